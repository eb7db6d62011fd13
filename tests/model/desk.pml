/* The state of a slot on a server's desk, over several launches: fleet_server_submit, fleet_server_poll,
   fleeti_desk_note, fleeti_poll_left, fleet_server_ended and fleet_server_reset of fleet_server.h, as several host threads
   call them.

   One slot. SUBMITTERS threads submit REQUESTS requests, as often as the slot is free. The device takes them in, sends a
   token of each, or none, and its last event, and its launch ends at any moment. Two threads poll; with DIES one of them
   may end at any point of a call. A thread tells the server that the launch has ended, resets it, and launches once more;
   LAUNCHES in all.

   Checked: each request that was submitted gets one last event, in the launch that it belongs to, unless the thread that
   ended had popped it; an event that is made up counts the tokens that were popped; what is popped is whole; no slot is
   freed for another request; the device takes in no request that has had its last event.

   The rings are those of request_ring.pml. Words are read and written in program order, and the state is one word, which
   changes in one step: edges 26 and 31, and the order of operations on that word and on `ended`, which is total. Left
   out: cancels (server.pml), numbers that wrap, and room in the rings.

     holds launches
     holds dead -DDIES -DLAUNCHES=1
     deep dead_2 -DDIES
     deep submitters_2 -DSUBMITTERS=2
     reach ended_by_the_launch -DREACH_LEFT
     reach submitted_at_the_end -DREACH_LATE
     reach dead_reader -DREACH_DEAD -DDIES
     twin not_noted -DBROKEN_NO_NOTE -DLAUNCHES=1: assertion violated
     twin noted_after_the_pop -DBROKEN_LATE_NOTE -DLAUNCHES=1: assertion violated
     twin left_while_it_runs -DBROKEN_ANY_LEFT: assertion violated
     twin left_before_what_was_sent -DBROKEN_EARLY_LEFT: assertion violated
     twin submitted_before_pushed -DBROKEN_EARLY_SUBMITTED: assertion violated
     twin no_look_at_the_end -DBROKEN_NO_LOOK: assertion violated
     twin numbers_begin_again -DBROKEN_REWIND: assertion violated
     twin reset_with_a_slot_taken -DBROKEN_RESET: assertion violated
     twin held_as_taken -DBROKEN_HELD: assertion violated
     twin submissions_are_kept -DBROKEN_KEEP: assertion violated */

#ifndef REQUESTS
#define REQUESTS 2
#endif
#ifndef SUBMITTERS
#define SUBMITTERS 1
#endif
#ifndef LAUNCHES
#define LAUNCHES 2
#endif
#define EVENTS (2 * REQUESTS)

mtype = { FREE, HELD, TAKEN, SUBMITTED, ENDED, LEFT };

/* The word of the slot. */
mtype phase = FREE;
byte generation, tokens;

byte event_of[EVENTS];            /* generation */
bit is_last[EVENTS];
byte head, tail;                  /* popped; pushed */
byte submission[REQUESTS];        /* generation */
byte submitted, taken_in;
bit running = 1, ended;
byte launches = 1;

bit accepted[REQUESTS + 1], over[REQUESTS + 1]; /* its submit has returned; its last event has been returned */
byte read[REQUESTS + 1];                        /* its tokens that were popped */
byte lost;                                      /* last event that the dead thread has popped: generation */

inline last_event(le_g, le_tokens)
{
    assert(!over[le_g] && read[le_g] == le_tokens);
    over[le_g] = 1
}

proctype submits()
{
    byte g;
end:
    do
    :: atomic { phase == FREE && generation < REQUESTS -> generation++; g = generation; phase = TAKEN; tokens = 0 };
#ifdef BROKEN_EARLY_SUBMITTED
        phase = SUBMITTED;
#endif
        atomic { submission[submitted] = g; submitted++ };
        accepted[g] = 1;
        atomic {
            if
            :: phase == TAKEN && generation == g -> phase = SUBMITTED
            :: else -> skip
            fi
        };
#ifndef BROKEN_NO_LOOK
        if
        :: ended ->
            atomic {
                if
                :: phase == SUBMITTED && generation == g ->
#ifdef REACH_LATE
                    assert(false);
#endif
                    phase = LEFT
                :: else -> skip
                fi
            }
        :: else -> skip
        fi
#endif
    :: atomic { generation == REQUESTS -> break }
    od
}

proctype device()
{
    byte g = 0;
    bit sent = 0;
end:
    do
    :: atomic { running && !g && taken_in < submitted ->
            g = submission[taken_in]; taken_in++; sent = 0;
            assert(!over[g] && generation == g) }
    :: atomic { running && g && !sent -> event_of[tail] = g; is_last[tail] = 0; tail++; sent = 1 }
    :: atomic { running && g -> event_of[tail] = g; is_last[tail] = 1; tail++; g = 0 }
    :: atomic { running -> running = 0; g = 0 }
    od
}

/* fleeti_desk_note: in one step, as the word is compared and swapped. */
inline note(nt_g, nt_last)
{
    atomic {
        if
        :: generation == nt_g && (phase == TAKEN || phase == SUBMITTED || phase == LEFT) ->
            if
            :: nt_last -> phase = ENDED
            :: else -> tokens = 1
            fi
        :: else -> skip
        fi
    }
}

#ifdef DIES
#define MAY_DIE dies
#else
#define MAY_DIE false
#endif
proctype polls(bit dies)
{
    byte n, g, t;
    bit last, e;
    do
    :: e = ended;
end_nothing:
        (head < tail || ((e || ended) && phase == LEFT)
#ifdef BROKEN_ANY_LEFT
            || (e && phase == SUBMITTED)
#endif
        );
        n = head;
        if
        :: n < tail ->
            d_step { g = event_of[n]; last = is_last[n] };
            if
            :: MAY_DIE -> goto dead
            :: n != head -> goto again
            :: n == head -> skip
            fi;
#if !defined(BROKEN_NO_NOTE) && !defined(BROKEN_LATE_NOTE)
            note(g, last);
#endif
            if
            :: MAY_DIE -> goto dead
            :: true -> skip
            fi;
            atomic {
                if
                :: head == n ->
                    assert(event_of[n] == g && is_last[n] == last && !over[g]);
                    head++;
                    read[g] = read[g] + !last
                :: else -> goto again
                fi
            };
#ifdef BROKEN_LATE_NOTE
            note(g, last);
#endif
            if
            :: MAY_DIE -> lost = (last -> g : 0); goto dead
            :: true -> skip
            fi;
            if
            :: last ->
                d_step {
                    last_event(g, read[g]);
                    assert(generation == g && phase == ENDED)
                };
                phase = FREE
            :: else -> skip
            fi
        :: else -> /* fleeti_poll_left */
            atomic {
                if
                :: e && (phase == LEFT
#ifdef BROKEN_ANY_LEFT
                    || phase == SUBMITTED
#endif
                    ) -> g = generation; t = tokens
                :: else -> goto again
                fi
            };
#ifndef BROKEN_EARLY_LEFT
            if
            :: head < tail -> goto again
            :: else -> skip
            fi;
#endif
            atomic {
                if
                :: generation == g && tokens == t && (phase == LEFT
#ifdef BROKEN_ANY_LEFT
                    || phase == SUBMITTED
#endif
                    ) ->
#ifdef REACH_LEFT
                    assert(false);
#endif
                    last_event(g, t);
                    phase = FREE
                :: else -> skip
                fi
            }
        fi;
again:
        skip;
        d_step { n = 0; g = 0; t = 0; last = 0; e = 0 }
    od;
dead:
#ifdef REACH_DEAD
    assert(!lost);
#endif
    skip
}

/* The thread that launches. */
proctype serves()
{
    byte i;
    bit done;
end:
    do
    :: !running && !ended ->
        /* fleet_server_ended */
        i = head;
        do
        :: i < tail -> note(event_of[i], is_last[i]); i++
        :: else -> break
        od;
        i = 0;
        ended = 1;
        atomic {
            if
            :: phase == SUBMITTED -> phase = LEFT
            :: else -> skip
            fi
        }
    :: atomic { ended && launches < LAUNCHES && (phase == FREE || phase == TAKEN) ->
            done = (phase == FREE);
#ifdef BROKEN_RESET
            done = 1;
#endif
            if
            :: done && phase == FREE ->
#ifdef BROKEN_HELD
                phase = TAKEN;
#else
                phase = HELD;
#endif
                i = 1
            :: else -> skip
            fi };
        /* fleet_server_reset */
        if
        :: done ->
#ifdef BROKEN_REWIND
            atomic { head = 0; tail = 0 };
#endif
#ifndef BROKEN_KEEP
            taken_in = submitted;
#endif
            ended = 0;
            atomic {
                if
                :: i -> phase = FREE
                :: else -> skip
                fi;
                i = 0
            };
            launches++;
            running = 1
        :: else -> skip
        fi
    od
}

/* When nothing can happen any more. */
proctype looks()
{
    byte g = 1;
    timeout;
    do
    :: g <= REQUESTS ->
        assert(!accepted[g] || over[g] || lost == g);
        g++
    :: else -> break
    od
}

init
{
    atomic {
        run submits();
#if SUBMITTERS == 2
        run submits();
#endif
        run polls(1);
        run polls(0);
        run serves();
        run device();
        run looks()
    }
}
