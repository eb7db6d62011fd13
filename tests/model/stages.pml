/* The weight pipeline's ring of stages, some of which tasks never acquire: fleeti_producer_begin_task, fleet_producer_copy,
   fleeti_producer_await_stage, fleeti_producer_stage_abandoned, fleeti_producer_await_copy, fleeti_producer_end_task, fleeti_producer_end,
   fleet_consumer_open, fleet_stage_acquire, fleet_stage_release and the stream functions of NVIDIA of fleet_device.h and
   fleet_sched.h, under STATIC, where no task waits for an event.

   Two waves run TASKS tasks in order and meet at a barrier after each; the producer runs ahead of them, and a process for
   each slot is the copy engine, which lands copies in any order. A task declares PIECES pieces. Each wave takes any number
   of them, from none to one more than there are, and gives back those that it took. The two may differ, as long as all pieces
   have slots of their own; else (-DTOGETHER) both take as many: a wave that waits at the barrier with a piece untaken that
   the ring needs for another wave's next piece would wait for ever, which is what fleet_stage_release asks not to do.

   The barriers of a slot are mbarriers, of which a look tells the parity of the phase in progress and nothing else: one for
   `released`, and two for `landed`, of even and of odd uses. A look is exact for a taker that looks at most SLOTS pieces past
   the last one that it took, or past its task's beginning; one that looks further first compares the word `turn`, the use
   that the producer has begun in slot 0 last (fleeti_stage_fill, fleeti_stage_turn_reached). The entry of a task is its tag, slot and
   use of its first piece, and 1 + its number of pieces once it has declared them all; ENTRIES of them form a ring too.
   -DAPART: the first wave has all pieces but the last, the second wave has that one alone: it skips whole rings.

   Checked: a wave that gets a piece has that very piece, from the look to the release, while nothing is copied over it; a
   wave that asks for more than was declared gets none; no copy begins while one is in flight there; the producer and both
   waves end, and no copy is in flight then.

   Abstractions: LDS is sequentially consistent, one word at a time (each hand-over in the code is a release and an acquire at
   block scope). A wave is one lane. Limits of time and the stop word are not modelled (see end.pml).
   Sizes: SLOTS slots, 2 waves, TASKS tasks of PIECES pieces, 3 entries.

     holds two_of_two
     holds three_of_two -DPIECES=3 -DTASKS=3 -DTOGETHER
     holds two_of_three -DSLOTS=3 -DTASKS=3
     holds one_of_two -DPIECES=1 -DTASKS=5
     holds last_of_four -DPIECES=4 -DSLOTS=1 -DTASKS=2 -DAPART
     holds last_of_two -DSLOTS=1 -DTASKS=3 -DAPART
     holds last_of_three -DPIECES=3 -DTASKS=2 -DAPART
     deep two_of_two_6 -DTASKS=6
     deep three_of_three -DSLOTS=3 -DPIECES=3 -DTASKS=4
     deep two_of_one -DSLOTS=1 -DTASKS=6 -DTOGETHER
     twin one_barrier -DBROKEN_ONE_BARRIER: assertion violated
     twin no_turn -DBROKEN_NO_TURN -DPIECES=4 -DSLOTS=1 -DTASKS=2 -DAPART: assertion violated
     twin one_too_far -DBROKEN_ONE_TOO_FAR -DSLOTS=1 -DTASKS=2 -DAPART: assertion violated
     twin barrier_before_turn -DBROKEN_BARRIER_BEFORE_TURN -DPIECES=4 -DSLOTS=1 -DTASKS=2 -DAPART: assertion violated
     twin no_wait_for_copy -DBROKEN_NO_WAIT_FOR_COPY: assertion violated
     twin no_reclaim -DBROKEN_NO_RECLAIM: invalid end state
     twin waits_for_takers -DBROKEN_WAITS_FOR_TAKERS: invalid end state
     twin declares_late -DBROKEN_DECLARES_LATE: assertion violated
     twin begun_before_barrier -DBROKEN_BEGUN_BEFORE_BARRIER: assertion violated|invalid end state
     twin entries_reused -DBROKEN_ENTRIES_REUSED -DPIECES=1 -DSLOTS=3: assertion violated|invalid end state
     twin leaves_copies -DBROKEN_LEAVES_COPIES: assertion violated */

#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef TASKS
#define TASKS 4
#endif
#ifndef PIECES
#define PIECES 2
#endif
#define WAVES 2
#define ENTRIES 3 /* FLEETI_PIPELINE_TASKS */

/* Of a slot: 1 + the number of the piece that it holds, 0 while one is copied; 1 + the one in flight. */
byte holds[SLOTS], copying[SLOTS];
bit landed[2 * SLOTS]; /* parity of the phase in progress */
bit released[SLOTS];   /* likewise */
byte missing[SLOTS] = WAVES; /* arrivals until the phase ends */
byte turn;
byte reading[SLOTS]; /* waves that read it */

byte entry_tag[ENTRIES] = 255; /* of no task */
byte entry_slot[ENTRIES], entry_use[ENTRIES], entry_end[ENTRIES];
byte begun;
bit quit, producer_left;
byte at_barrier, barrier_round;

#define PASSED(barrier, phase) (barrier != ((phase) & 1))

/* The barrier of a use, and its phase there. */
#ifdef BROKEN_ONE_BARRIER
#define LANDED(s, use) (s)
#define HAS_LANDED(s, use) PASSED(landed[s], use)
#else
#define LANDED(s, use) (2 * (s) + ((use) & 1))
#define HAS_LANDED(s, use) PASSED(landed[LANDED(s, use)], (use) >> 1)
#endif

/* The copy engine: complete_tx ends the phase. */
active [SLOTS] proctype copies()
{
    byte s = _pid;
end:
    do
    :: d_step {
        copying[s] ->
            assert(!producer_left);
            assert(!reading[s]);
            holds[s] = copying[s];
            landed[LANDED(s, (copying[s] - 1) / SLOTS)] = 1 - landed[LANDED(s, (copying[s] - 1) / SLOTS)];
            copying[s] = 0
    }
    od
}

/* mbarrier.arrive at `released`. */
#define ARRIVE(s, n)                                                                               \
    missing[s] = missing[s] - n;                                                                   \
    if                                                                                             \
    :: missing[s] == 0 ->                                                                          \
        released[s] = 1 - released[s];                                                             \
        missing[s] = WAVES                                                                         \
    :: else -> skip                                                                                \
    fi

/* fleeti_stages_are_near */
#ifdef BROKEN_NO_TURN
#define NEAR 1
#elif defined(BROKEN_ONE_TOO_FAR)
#define NEAR (skipped <= SLOTS)
#else
#define NEAR (skipped + 1 <= SLOTS)
#endif
/* The turn, then the barrier. */
#define IS_FULL(s, use) ((NEAR || turn >= (use)) && HAS_LANDED(s, use))

/* fleeti_producer_task_ended, fleeti_producer_stage_abandoned. */
#define ENDED(task) (begun > (task) + 1)
#define ENTRY(task) ((task) % ENTRIES)
#define CURRENT ENTRY(begun + ENTRIES - 1)
#ifdef BROKEN_WAITS_FOR_TAKERS
#define LEFT ENDED(task)
#else
#define LEFT                                                                                       \
    (ENDED(task) || (entry_tag[CURRENT] == begun &&                                                \
                     entry_use[CURRENT] * SLOTS + entry_slot[CURRENT] > (use - 1) * SLOTS + slot))
#endif

proctype producer()
{
    byte task, piece, slot, use, first;
    do
    :: task < TASKS ->
        /* fleeti_producer_begin_task */
#ifndef BROKEN_ENTRIES_REUSED
        task < begun + ENTRIES - 1 || quit;
#endif
        if
        :: quit -> break
        :: else -> skip
        fi;
#ifndef BROKEN_ENTRIES_REUSED
        if
        :: !(task < begun + ENTRIES - 1) -> break
        :: else -> skip
        fi;
#endif
        entry_slot[ENTRY(task)] = slot;
        entry_use[ENTRY(task)] = use;
        entry_end[ENTRY(task)] = 0;
        entry_tag[ENTRY(task)] = task + 1;
        first = use * SLOTS + slot;
        piece = 0;
        do
        :: piece < PIECES ->
            /* fleet_producer_copy: fleeti_producer_stage_is_free, else fleeti_producer_await_stage */
            if
            :: PASSED(released[slot], use + 1) -> skip
            :: else ->
                do
                :: LEFT ->
#ifndef BROKEN_NO_WAIT_FOR_COPY
                    HAS_LANDED(slot, use - 1); /* fleeti_producer_await_copy: no wave has waited for the copy */
#endif
#ifndef BROKEN_NO_RECLAIM
                    if
                    :: PASSED(released[slot], use + 1) -> skip
                    :: else -> d_step { ARRIVE(slot, missing[slot]) } /* fleeti_stage_reclaim */
                    fi;
#endif
                    if
                    :: ENDED(task) -> goto declared
                    :: else -> skip
                    fi;
                    PASSED(released[slot], use + 1) -> break
                :: PASSED(released[slot], use + 1) -> break
                :: !LEFT && quit -> goto declared
                od
            fi;
            /* fleeti_stage_fill */
            skip;
            if
            :: slot == 0 -> turn = use
            :: else -> skip
            fi;
            d_step
            {
                assert(!copying[slot]);
                assert(!reading[slot]);
                holds[slot] = 0;
                copying[slot] = 1 + use * SLOTS + slot
            }
            piece++;
            d_step
            {
                slot++;
                if
                :: slot == SLOTS -> slot = 0; use++
                :: else -> skip
                fi
            }
        :: else -> break
        od;
    declared:
        skip;
#ifndef BROKEN_DECLARES_LATE
        d_step { entry_end[ENTRY(task)] = use * SLOTS + slot - first + 1 }
#endif
        task++
    :: else -> break
    od;
    /* fleeti_producer_end */
    skip;
#ifndef BROKEN_LEAVES_COPIES
    for (piece : 0 .. (SLOTS - 1)) {
        if
        :: piece < slot -> HAS_LANDED(piece, use)
        :: piece >= slot && use -> HAS_LANDED(piece, use - 1)
        :: else -> skip
        fi
    }
#endif
    producer_left = 1
}

#if defined(APART) && !defined(TOGETHER)
#define TOGETHER
#endif
#ifdef TOGETHER
byte takes, chosen;
#define MORE (next < takes)
#define ENOUGH (next >= takes)
#else
#define MORE 1
#define ENOUGH 1
#endif

proctype wave(byte w)
{
    byte task, next, skipped, slot, use = 255, s, u, round; /* use 255: not opened */
    do
    :: task < TASKS ->
        /* fleeti_pipeline_begun, by the leader */
        if
        :: w == 0 -> begun = task + 1
        :: else -> skip
        fi;
        /* The tile. fleet_consumer_open: */
#ifdef TOGETHER
        if
        :: w == 0 ->
            atomic
            {
                if
                :: takes = 0
                :: takes = PIECES
#ifdef APART
                :: takes = PIECES - 1
#else
                :: takes = 1
                :: takes = PIECES + 1
#endif
                fi;
                chosen = task + 1
            }
        :: else -> chosen == task + 1
        fi;
#endif
        do
#ifdef APART
        :: MORE && (next == PIECES - 1) != w -> d_step { next++; skipped++ } /* fleet_stages_skip */
        :: MORE && (next == PIECES - 1) == w ->
#else
        :: MORE ->
#endif
            if
            :: use == 255 ->
                entry_tag[ENTRY(task)] == task + 1;
                slot = entry_slot[ENTRY(task)];
                use = entry_use[ENTRY(task)]
            :: else -> skip
            fi;
            s = (slot + next) % SLOTS;
            u = use + (slot + next) / SLOTS;
            /* fleet_stage_acquire: fleeti_stage_is_ready, fleeti_stages_wait */
            do
#ifdef BROKEN_BARRIER_BEFORE_TURN
            :: HAS_LANDED(s, u) ->
                NEAR || turn >= u; /* a look at the barrier that is older than that at the turn */
#else
            :: IS_FULL(s, u) ->
#endif
                if
                :: entry_end[ENTRY(task)] == 0 || next < entry_end[ENTRY(task)] - 1 -> break
                :: else -> goto ended /* FLEET_ERROR_ARGUMENT */
                fi
            :: entry_end[ENTRY(task)] && next >= entry_end[ENTRY(task)] - 1 -> goto ended
            od;
            /* It has the piece: and reads it, until it gives it back. */
            skip;
            d_step
            {
                assert(next < PIECES);
                assert(holds[s] == 1 + u * SLOTS + s && !copying[s]);
                reading[s]++;
                skipped = 0;
                next++
            }
            d_step
            {
                assert(holds[s] == 1 + u * SLOTS + s);
                reading[s]--;
#ifdef APART
                ARRIVE(s, WAVES) /* no other wave has the piece */
#else
                ARRIVE(s, 1)
#endif
            }
        :: ENOUGH -> break /* takes no more */
        od;
    ended:
        skip;
        d_step { next = 0; skipped = 0; slot = 0; use = 255; s = 0; u = 0; task++ }
        /* The barrier of fleeti_notify_all. */
#ifdef BROKEN_BEGUN_BEFORE_BARRIER
        if
        :: w == 0 && task < TASKS -> begun = task + 1
        :: else -> skip
        fi;
#endif
        d_step
        {
            round = barrier_round;
            at_barrier++;
            if
            :: at_barrier == WAVES -> at_barrier = 0; barrier_round = 1 - barrier_round
            :: else -> skip
            fi
        }
        barrier_round != round
    :: else -> break
    od;
    /* fleeti_pipeline_stop */
    quit = 1
}

init
{
    atomic { run producer(); run wave(0); run wave(1) }
    _nr_pr == SLOTS + 1;
    d_step
    {
        byte i;
        for (i : 0 .. (SLOTS - 1)) { assert(!copying[i]) }
    }
}
