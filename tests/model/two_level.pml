/* Two-level completion with write-back caches: fleeti_notify_all, fleeti_arrive, fleeti_poll_all and fleeti_wait_all of
   fleet_device.h, in a STATIC plan.

   Workers 0 and 1 live on chiplet 0, worker 2 on chiplet 1. In every step each runs
     P   writes its lines x; notifies E                                    (worker 0 by two waves, a line each)
     C   waits for E; reads all x; writes its line y; notifies F
     D   waits for F; reads all y
   and begins the next step at once: the steps overlap, and pass "overlap" of fleet.h proves that they may (each worker ends
   its queue in order; P of the next step comes after D, which waits for all C; C comes after all P). With -DSTEP there is no
   D; C notifies the step event, and P waits for it in the step before (FLEETI_PREVIOUS). With -DLOCAL (and -DSTEP), E is at chiplet
   scope: it counts workers 0 and 1, and only they wait for it.

   E and F have a sub-counter on chiplet 0, with a share of 2; chiplet 1 has a single producer, which releases and arrives
   for itself (fleeti_notify.sub == 0). Counters are words of eight bits that wrap during the run; nothing is reset. A share
   is sent when the sub-counter is exactly epoch * share: that rests on the proof above. Events by hand have none: with
   -DPRODUCER_AHEAD worker 0 only produces, and its notify waits for the epoch before (fleeti_await_previous_epoch); the twin
   does not.

   Checked: each load reads the value of its step; all workers end (no invalid end state); each chiplet with work releases
   once for each event and step.

   The memory is that of AMD (memory.inc), or with -DVIEWS of NVIDIA (views.inc). There is no twin for the wait after the
   write-back: a write-back that is not waited for goes on by itself, as evictions do anyway, so it is the twin no_release.

   Abstractions: the waves of a workgroup only store and drain between two barriers, so one process per workgroup stands
   for them, with a store in flight for each wave. A tile reads all its lines in one step. A wait polls until it succeeds.
   Sizes: 2 chiplets, 2 + 1 workers, STEPS steps.

     holds overlap -DMEMORY_FETCH=3
     holds step -DSTEP -DMEMORY_FETCH=3
     holds chiplet_scope -DLOCAL -DSTEP -DMEMORY_FETCH=1
     holds producer_ahead_waits -DPRODUCER_AHEAD
     holds views -DVIEWS -DSTEPS=3
     holds views_step -DVIEWS -DSTEP
     deep overlap_4 -DSTEPS=4 -DMEMORY_FETCH=0
     deep step_4 -DSTEP -DSTEPS=4 -DMEMORY_FETCH=5
     twin no_drain -DBROKEN_NO_DRAIN: assertion violated .loaded
     twin leader_drains -DBROKEN_ONLY_LEADER_DRAINS: assertion violated .loaded
     twin no_release -DBROKEN_NO_RELEASE: assertion violated .loaded
     twin all_release -DBROKEN_ALL_RELEASE: assertion violated .*released
     twin no_acquire -DBROKEN_NO_ACQUIRE: assertion violated .loaded
     twin acquire_l1 -DBROKEN_NARROW_ACQUIRE: assertion violated .loaded
     twin acquire_first -DBROKEN_ACQUIRE_BEFORE_POLL -DMEMORY_FETCH=3: assertion violated .loaded
     twin narrow_scope -DLOCAL -DSTEP -DBROKEN_NARROW_SCOPE: assertion violated .loaded
     twin unproven -DBROKEN_UNPROVEN_OVERLAP: assertion violated .loaded
     twin producer_ahead -DPRODUCER_AHEAD -DBROKEN_NO_EPOCH_BEFORE: invalid end state
     twin equal_shares -DBROKEN_EQUAL_SHARES: invalid end state
     twin no_wrap -DBROKEN_PLAIN_COMPARISON: assertion violated .loaded
     twin views_relaxed_sub -DVIEWS -DBROKEN_RELAXED_SUB: assertion violated .loaded
     twin views_relaxed_poll -DVIEWS -DBROKEN_NO_ACQUIRE: assertion violated .loaded */

#ifndef STEPS
#define STEPS 2
#endif
#define FIRST_EPOCH 84 /* three arrivals each: the counters wrap from 255 to 0 in the second step */

#define CHIPLETS 2
#define WORKERS 3
#define LINES 7
#define CHIPLET(worker) ((worker) / 2)
/* Lines 0, 1: x of worker 0; 2, 3: of the others. 4, 5, 6: y. */
#define X(worker) ((worker) + 1)
#define Y(worker) ((worker) + 4)
#define WRITER(line) ((line) < 4 -> ((line) == 0 -> 0 : (line) - 1) : (line) - 4)
#define EVENTS 2
#define E 0
#define F 1
#define WORDS (2 * EVENTS)
#define COUNTER_WORD(event) (event)
#define SUB_WORD(event) (EVENTS + (event))
#ifdef VIEWS
#include "views.inc"
#define OTHERS 0
#else
#include "memory.inc"
#define OTHERS LINES
#endif

byte counter[EVENTS] = 0;
byte sub[EVENTS] = 0; /* of chiplet 0 */
byte adding[WORKERS]; /* 1 + the event of an add in flight: no wave waits for its old value */
byte released[EVENTS * CHIPLETS];

#define WORD(value) ((value) & 255)
#define SHARE 2
#ifdef LOCAL
#define TARGET(event) ((event) == E -> 2 : 3)
#else
#define TARGET(event) 3
#endif

#ifdef BROKEN_PLAIN_COMPARISON
#define COMPLETE(event, epoch) (counter[event] >= WORD((epoch) * TARGET(event)))
#else
#define COMPLETE(event, epoch) (WORD(counter[event] - (epoch) * TARGET(event)) < 128)
#endif

/* fleeti_notify_all: every wave drains, all meet at a barrier, and the leader arrives. `a`, `b`: the lines that the
   workgroup's waves stored. */
inline notify(n_w, n_e, n_a, n_b)
{
#if defined(BROKEN_ONLY_LEADER_DRAINS)
    DRAINED(n_b) && !adding[n_w];
#elif !defined(BROKEN_NO_DRAIN)
    DRAINED(n_a) && DRAINED(n_b) && !adding[n_w];
#else
    !adding[n_w];
#endif
    /* fleeti_arrive */
#if defined(PRODUCER_AHEAD) && !defined(BROKEN_NO_EPOCH_BEFORE)
    COMPLETE(n_e, epoch - 1);
#endif
    if
#ifdef LOCAL
    :: n_e == E -> /* FLEETI_LOCAL: producers' drained stores and the readers share one L2 */
        if
        :: CHIPLET(n_w) == 0 -> d_step { RELEASES(n_w, COUNTER_WORD(E)); counter[E] = counter[E] + 1 }
        :: else -> skip
        fi;
        due = 0
    :: n_e == F && CHIPLET(n_w) == 0 ->
#else
    :: CHIPLET(n_w) == 0 ->
#endif
        d_step
        {
            sub[n_e] = sub[n_e] + 1;
#ifdef BROKEN_RELAXED_SUB
            RELEASES(n_w, SUB_WORD(n_e));
#else
            ACQ_REL(n_w, SUB_WORD(n_e));
#endif
#ifdef BROKEN_EQUAL_SHARES
            due = sub[n_e] == WORD(epoch * (TARGET(n_e) / CHIPLETS))
#else
            due = sub[n_e] == WORD(epoch * SHARE)
#endif
        }
#ifdef LOCAL
    :: n_e == F && CHIPLET(n_w) == 1 -> due = 1
#else
    :: CHIPLET(n_w) == 1 -> due = 1
#endif
    fi;
#ifdef BROKEN_ALL_RELEASE
    release(n_w);
    released[n_e * CHIPLETS + CHIPLET(n_w)]++;
#endif
    if
    :: due ->
#if !defined(BROKEN_NO_RELEASE) && !defined(BROKEN_ALL_RELEASE)
        release(n_w);
        released[n_e * CHIPLETS + CHIPLET(n_w)]++;
#endif
        d_step
        {
#ifdef VIEWS
            RELEASES(n_w, COUNTER_WORD(n_e));
            counter[n_e] = counter[n_e] + (CHIPLET(n_w) == 0 -> SHARE : 1)
#else
            adding[n_w] = 1 + n_e
#endif
        }
    :: else -> skip
    fi
}

/* fleeti_wait_all: polls, then one acquire for the workgroup. */
inline wait(w_w, w_e, w_epoch)
{
#ifdef BROKEN_ACQUIRE_BEFORE_POLL
    acquire(w_w);
    COMPLETE(w_e, w_epoch)
#else
    d_step
    {
#ifdef PRODUCER_AHEAD
        w_w == 0 || COMPLETE(w_e, w_epoch); /* worker 0 only produces, as in event tensors by hand */
#else
        COMPLETE(w_e, w_epoch);
#endif
#ifndef BROKEN_NO_ACQUIRE
        ACQUIRES(w_w, COUNTER_WORD(w_e))
#endif
    }
#if defined(BROKEN_NARROW_ACQUIRE)
    acquire_l1(w_w)
#elif !defined(BROKEN_NO_ACQUIRE)
    acquire(w_w)
#endif
#endif
}

#define VALUE(epoch) ((epoch) - FIRST_EPOCH + 2)

inline reads(r_w, r_d)
{
    load(r_w, r_d);
#ifndef PRODUCER_AHEAD
    assert(loaded == VALUE(epoch))
#endif
}

proctype worker(byte w)
{
    byte epoch = FIRST_EPOCH;
    bit due;
    do
    :: epoch < FIRST_EPOCH + STEPS ->
        epoch++;
#ifdef STEP
        wait(w, F, epoch - 1);
#endif
        atomic
        {
            STORE(X(w), VALUE(epoch));
            if
            :: w == 0 -> STORE(0, VALUE(epoch))
            :: else -> skip
            fi
        }
        if
        :: w == 0 -> notify(w, E, 0, X(w))
        :: else -> notify(w, E, X(w), X(w))
        fi;
#if defined(LOCAL) && !defined(BROKEN_NARROW_SCOPE)
        if
        :: CHIPLET(w) == 0 ->
            wait(w, E, epoch);
            atomic { reads(w, 0); reads(w, 1); reads(w, 2) }
        :: else -> skip
        fi;
#else
        wait(w, E, epoch);
        atomic { reads(w, 0); reads(w, 1); reads(w, 2); reads(w, 3) }
#endif
        atomic { STORE(Y(w), VALUE(epoch)) }
        notify(w, F, Y(w), Y(w));
#if !defined(STEP) && !defined(BROKEN_UNPROVEN_OVERLAP)
        wait(w, F, epoch);
        atomic { reads(w, 4); reads(w, 5); reads(w, 6) }
#endif
    :: else -> break
    od
}

/* Adds without a wait for the old value are performed at any moment before the wave's next drain. */
active proctype adds()
{
end:
    do
    :: d_step { adding[0] -> counter[adding[0] - 1] = counter[adding[0] - 1] + SHARE; adding[0] = 0 }
    :: d_step { adding[1] -> counter[adding[1] - 1] = counter[adding[1] - 1] + SHARE; adding[1] = 0 }
    :: d_step { adding[2] -> counter[adding[2] - 1] = counter[adding[2] - 1] + 1; adding[2] = 0 }
    od
}

init
{
    d_step
    {
        counter[E] = WORD(FIRST_EPOCH * TARGET(E));
        counter[F] = WORD(FIRST_EPOCH * 3);
        sub[E] = WORD(FIRST_EPOCH * SHARE);
        sub[F] = WORD(FIRST_EPOCH * SHARE)
    }
    atomic { run worker(0); run worker(1); run worker(2) }
    _nr_pr == OTHERS + 2;
#ifdef LOCAL
    assert(released[0] == 0 && released[1] == 0);
#else
    assert(released[0] == STEPS && released[1] == STEPS);
#endif
    assert(released[2] == STEPS && released[3] == STEPS)
}
