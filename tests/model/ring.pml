/* The ready rings of DYNAMIC, with stealing and join counters: fleeti_ring_push, fleeti_ring_reserve, fleeti_ring_take,
   fleeti_pop, fleeti_dynamic_take, fleeti_dynamic_finish, fleeti_make_ready and fleeti_push_consumers of fleet_sched.h, on AMD.

   Worker 0 (and 2, with -DWORKERS=3) lives on chiplet 0, worker 1 on chiplet 1. A step has these tasks, at home on
   these chiplets' rings:
     A (0), B (0)   sources: write their lines a and b; A notifies the element EA, B notifies EB
     C (1)          waits for EA and EB, so it has a join counter of 2; reads a and b; a sink
     D (1)          a source and a sink
   Sinks notify the step event, of target 2; the arrival that completes it pushes the sources of the next step. Every worker
   pops from its own chiplet's ring, then from the other's. With -DWANT=2 a pop takes up to two entries at a time, as those
   of wavefront-tasks do. Each ring has two slots, so that tickets wrap around the ring in every step; heads and tails are
   words of four bits that wrap too.

   Checked: each task runs exactly once in each step, in the step that its worker worked out from the step event; its inputs
   are those of its step; a push finds its slot taken; every worker leaves, and then the rings are empty and no ticket is
   without its entry.

   Stores: an entry is in flight from its post (fleeti_post64_device) until it lands, and the count of `available` may be
   seen before. The two lines of data live in memory.inc's caches; D has no data. With -DNO_DATA there is none.

   Abstractions: looks at `available` and at the stop word are no steps of their own (a look changes nothing, and a pop that
   finds nothing tries again). A consumer list is pushed entry by entry, which fleeti_ring_push_run does at once. No plan has
   guards, run-time maps or early pushes. A worker's own queue is not modelled, nor is a time-out (see end.pml).
   Sizes: 2 chiplets, 2 or 3 workers, 4 tasks, STEPS steps.

     holds data
     holds queues -DNO_DATA -DSTEPS=4
     holds batches -DWANT=2
     deep three_workers -DWORKERS=3 -DNO_DATA
     deep data_3 -DSTEPS=3
     deep batches_three_workers -DWORKERS=3 -DWANT=2 -DNO_DATA
     twin ticket_first -DBROKEN_TICKET_FIRST: invalid end state
     twin no_give_back -DBROKEN_NO_GIVE_BACK -DWANT=2: invalid end state
     twin win_all -DBROKEN_WIN_ALL -DWANT=3: invalid end state
     twin no_ticket_in_slot -DBROKEN_NO_TICKET_IN_SLOT: assertion violated
     twin no_wait_for_entry -DBROKEN_NO_WAIT_FOR_ENTRY: assertion violated
     twin separate_ticket -DBROKEN_SEPARATE_RESERVATION: assertion violated
     twin push_each -DBROKEN_NO_JOIN: assertion violated
     twin join_of_first_step -DBROKEN_JOIN_WITHOUT_EPOCH: invalid end state|assertion violated
     twin small_ring -DBROKEN_SMALL_RING: assertion violated
     twin no_acquire -DBROKEN_NO_ACQUIRE: assertion violated .loaded
     twin no_release -DBROKEN_NO_RELEASE: assertion violated .loaded */

#ifndef STEPS
#define STEPS 2
#endif
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef WANT
#define WANT 1
#endif

#define CHIPLETS 2
#define LINES 2
#define CHIPLET(worker) ((worker) % 2)
/* The worker that writes a line is the one that runs the task in this step. */
byte writer[LINES];
#define WRITER(line) writer[line]
#ifdef NO_DATA
#define OTHERS (CHIPLETS * CAPACITY)
inline acquire(aq_w) { skip }
inline release(rl_w) { skip }
#define STORE(line, value) skip
#define DRAINED(line) 1
#else
#include "memory.inc"
#define OTHERS (LINES + CHIPLETS * CAPACITY)
#endif

#define A 0
#define B 1
#define C 2
#define D 3
#define TASKS 4
#define SINKS 2

#ifdef BROKEN_SMALL_RING
#define CAPACITY 1
#else
#define CAPACITY 2
#endif
#define COUNT(value) ((value) & 15)
#define FIRST_TICKET 14 /* wraps in the first step */

/* A ring, one on each chiplet. `available` may be negative for a while. */
short available[CHIPLETS];
byte head[CHIPLETS] = FIRST_TICKET, tail[CHIPLETS] = FIRST_TICKET;
byte told[CHIPLETS * CAPACITY];  /* of a slot: ticket + 1 */
byte value[CHIPLETS * CAPACITY]; /* and the task */
/* A post in flight: 1 + the task, and its ticket. */
byte posting[CHIPLETS * CAPACITY], posted_ticket[CHIPLETS * CAPACITY];
#define SLOT(ring, ticket) ((ring) * CAPACITY + (ticket) % CAPACITY)

byte step_event, join_of_c, elements[2];
byte ran[TASKS], taken_entries;

/* fleeti_ring_push of one entry. */
inline push(pu_ring, pu_task)
{
#ifdef BROKEN_SEPARATE_RESERVATION
    ticket = tail[pu_ring];
    tail[pu_ring] = COUNT(ticket + 1);
#else
    d_step { ticket = tail[pu_ring]; tail[pu_ring] = COUNT(ticket + 1) }
#endif
    d_step
    {
        assert(!posting[SLOT(pu_ring, ticket)]);
        posting[SLOT(pu_ring, ticket)] = 1 + pu_task;
        posted_ticket[SLOT(pu_ring, ticket)] = ticket
    }
    available[pu_ring] = available[pu_ring] + 1
}

/* fleeti_make_ready of the step event: the sources. */
inline begin_step()
{
    push(0, A);
    push(0, B);
    push(1, D)
}

/* fleeti_ring_reserve: up to WANT entries, with the first one's ticket. */
inline win(wn_ring)
{
#ifdef BROKEN_TICKET_FIRST
    d_step { first = head[wn_ring]; head[wn_ring] = COUNT(first + 1); got = 1 }
#else
    d_step
    {
        there = available[wn_ring];
        available[wn_ring] = available[wn_ring] - WANT;
#ifdef BROKEN_WIN_ALL
        got = (there <= 0 -> 0 : WANT)
#else
        got = (there <= 0 -> 0 : (there < WANT -> there : WANT))
#endif
    }
#ifndef BROKEN_NO_GIVE_BACK
    if
    :: got < WANT -> available[wn_ring] = available[wn_ring] + (WANT - got)
    :: else -> skip
    fi;
#endif
    if
    :: got -> d_step { first = head[wn_ring]; head[wn_ring] = COUNT(first + got) }
    :: else -> skip
    fi;
    there = 0
#endif
}

/* The tile and its notify (fleeti_arrive with triggers; then fleeti_make_ready). The release is that of the arrival. */
inline produce(pr_line)
{
    d_step { writer[pr_line] = w; STORE(pr_line, epoch + 2) }
    DRAINED(pr_line);
#ifndef BROKEN_NO_RELEASE
    release(w);
#endif
    d_step { elements[pr_line]++; completes = elements[pr_line] == epoch + 1 }
    /* fleeti_push_consumers: C's join counter. */
    if
    :: completes ->
#ifdef BROKEN_NO_JOIN
        completes = 1;
#else
        d_step
        {
            join_of_c++;
#ifdef BROKEN_JOIN_WITHOUT_EPOCH
            completes = join_of_c == 2
#else
            completes = join_of_c == (epoch + 1) * 2
#endif
        }
#endif
        if
        :: completes -> push(1, C)
        :: else -> skip
        fi
    :: else -> skip
    fi
}

inline sink()
{
    d_step { step_event++; completes = step_event == (epoch + 1) * SINKS }
    if
    :: completes && epoch + 1 < STEPS -> begin_step()
    :: else -> skip
    fi
}

inline run_task()
{
    d_step
    {
        assert(ran[task] == epoch);
        ran[task]++
    }
    if
    :: task == A -> produce(0)
    :: task == B -> produce(1)
    :: task == C ->
#ifndef NO_DATA
        atomic
        {
            load(w, 0);
            assert(loaded == epoch + 2);
            load(w, 1);
            assert(loaded == epoch + 2)
        }
#endif
        sink()
    :: task == D -> sink()
    fi
}

#define OVER (step_event >= STEPS * SINKS)
#ifdef BROKEN_TICKET_FIRST
#define MAY_POP(ring) 1
#else
#define MAY_POP(ring) (available[ring] > 0)
#endif

proctype worker(byte w)
{
    byte ring, first, got, task, epoch, ticket, i;
    byte entries[WANT];
    short there;
    bit completes;
    if
    :: w == 0 -> begin_step() /* fleeti_enter: worker 0 pushes the first step's sources */
    :: else -> skip
    fi;
    do
    /* fleeti_pop: its own ring before the other. */
    :: MAY_POP(CHIPLET(w)) || MAY_POP(1 - CHIPLET(w)) ->
        d_step
        {
            ring = (MAY_POP(CHIPLET(w)) -> CHIPLET(w) : 1 - CHIPLET(w));
            got = 0
        }
        win(ring);
        i = 0;
        do
        :: i < got -> /* fleeti_ring_take: waits for the entry of the ticket */
            d_step
            {
#if defined(BROKEN_NO_WAIT_FOR_ENTRY)
                skip;
#elif defined(BROKEN_NO_TICKET_IN_SLOT)
                told[SLOT(ring, COUNT(first + i))];
#else
                told[SLOT(ring, COUNT(first + i))] == COUNT(first + i) + 1;
#endif
                entries[i] = value[SLOT(ring, COUNT(first + i))];
                taken_entries++;
                i++
            }
        :: else -> break
        od;
        if
        :: got ->
#ifndef BROKEN_NO_ACQUIRE
            acquire(w);
#endif
            epoch = step_event / SINKS; /* the step that has not ended */
            i = 0;
            do
            :: i < got ->
                task = entries[i];
                run_task();
                i++
            :: else -> break
            od
        :: else -> skip
        fi;
        skip;
        d_step { i = 0; first = 0; task = 0; ticket = 0; completes = 0; entries[0] = 0; entries[WANT - 1] = 0; got = 0 }
    :: OVER -> break
    od
}

/* Posts land at any moment: a process for each slot. */
active [CHIPLETS * CAPACITY] proctype post()
{
    byte s = _pid % (CHIPLETS * CAPACITY);
end:
    do
    :: d_step {
        posting[s] ->
            told[s] = posted_ticket[s] + 1;
            value[s] = posting[s] - 1;
            posting[s] = 0;
            posted_ticket[s] = 0
    }
    od
}

init
{
    byte i;
    atomic
    {
        for (i : 0 .. (WORKERS - 1)) { run worker(i) }
    }
    i = 0;
    _nr_pr == OTHERS + 1;
    assert(ran[A] == STEPS && ran[B] == STEPS && ran[C] == STEPS && ran[D] == STEPS);
    assert(available[0] == 0 && available[1] == 0 && head[0] == tail[0] && head[1] == tail[1])
}
