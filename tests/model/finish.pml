/* A tile ends the run after its step (edge 25): fleet_finish, fleeti_finishes, fleeti_last_epoch, fleeti_make_ready,
   fleeti_dynamic_poll, fleeti_claim and fleeti_leave of fleet_sched.h. Launches of one state follow one another, as the
   replays of a captured graph do.

   WORKERS workers. In each step each runs one task, under -DREADY any of them runs each; a task may ask for the end, store
   the epoch, and notifies the step event. STATIC and CHIPLET: before the next step a worker waits for the step event and
   looks at the word. DYNAMIC (-DREADY): the arrival that completes the step event looks at it and makes the next step's
   tasks ready; idle workers look at it and at the step event.

   Checked: all workers end with the same step: the one in which a task has asked for the end, or the last of the launch; no
   task of a later step runs; the epoch grows by the steps that ran; the next launch begins with the step after it, and ends
   early only if one of its own tasks asks for it, whatever the word held before.

   A store is in flight until its wave drains, and then visible to all (the word is stored and loaded past the caches). A
   load may be as old as the worker's last acquire. Failures are those of end.pml, claims of launches that overlap those of
   claim.pml. Sizes: WORKERS workers, LAUNCHES launches of STEPS steps.

     holds static
     holds ready -DREADY
     deep static_3 -DWORKERS=3
     deep ready_3 -DREADY -DWORKERS=3 -DSTEPS=2 -DLAUNCHES=1
     reach early -DREACH_EARLY
     reach in_the_last_step -DREACH_LAST
     reach two_ask -DREACH_TWO
     twin no_wait -DBROKEN_NO_WAIT: assertion violated|invalid end state
     twin no_drain -DBROKEN_NO_DRAIN: assertion violated|invalid end state
     twin no_acquire -DBROKEN_NO_ACQUIRE: assertion violated|invalid end state
     twin any_epoch -DBROKEN_ANY_EPOCH: assertion violated|invalid end state
     twin word_stays -DBROKEN_WORD_STAYS: assertion violated
     twin epoch_of_all_steps -DBROKEN_EPOCH_OF_ALL: assertion violated
     twin ready_no_acquire -DREADY -DBROKEN_NO_ACQUIRE: assertion violated|invalid end state
     twin ready_no_drain -DREADY -DBROKEN_NO_DRAIN: assertion violated|invalid end state
     twin ready_goes_on -DREADY -DBROKEN_GOES_ON: assertion violated
     twin ready_word_stays -DREADY -DBROKEN_WORD_STAYS: assertion violated */

#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef STEPS
#define STEPS 3
#endif
#ifndef LAUNCHES
#define LAUNCHES 2
#endif

byte count;           /* arrivals at the step event, over all launches */
byte word = 1;        /* the epoch in which a task asked for the end, 0: none; a task that ran alone has stored its own */
byte flying[WORKERS]; /* a store of the word; 0: none */
byte old[WORKERS];    /* what a load that is not newer than the last acquire may find */
byte epoch, first, exited, ready;
byte ran[WORKERS * STEPS * LAUNCHES + 1]; /* tasks, by epoch */
byte asked;                               /* epoch in which a task of this launch asked for the end; 0: none has */
hidden byte asks;
chan seats = [0] of { bit };

/* The word is loaded: the value now, or one since the last acquire. */
inline load()
{
    if
    :: seen = word
    :: seen = old[w]
    fi
}
inline acquire()
{
#ifndef BROKEN_NO_ACQUIRE
    old[w] = word
#else
    skip
#endif
}

/* The tile of a task of step e, its drain and its arrival: is_last where it completes the step event. */
inline task(e)
{
    d_step
    {
        assert(!asked || asked == e); /* no task of a step after the one that ends the run */
        assert(count >= WORKERS * (e - 1));
        ran[e]++
    }
    if
    :: atomic
        {
            flying[w] = e;
            asks = asked;
            asked = e
#ifdef REACH_TWO
            ;
            assert(!asks)
#endif
        }
    :: skip
    fi;
#ifndef BROKEN_NO_DRAIN
    !flying[w];
#endif
    d_step
    {
        count++;
        is_last = count == WORKERS * e
    }
}

proctype worker(byte w)
{
    byte e, seen, found;
    bit is_last, done;
end:
    do
    :: seats?_ ->
        e = first;
        done = 0;
        old[w] = word;
#ifndef READY
        do
        :: !done ->
            task(e);
            /* fleeti_finishes, unless this is the launch's last step */
            if
            :: e < first + STEPS - 1 ->
#ifndef BROKEN_NO_WAIT
                count >= WORKERS * e;
#endif
                acquire();
                load();
#ifdef BROKEN_ANY_EPOCH
                done = seen != 0
#else
                done = seen == e
#endif
            :: else -> done = 1
            fi;
            e++
        :: else -> break
        od;
        e--;
#else
        do
        :: atomic { ready -> ready-- };
            e = count / WORKERS + 1; /* the step does not end without this task */
            task(e);
            if
            :: is_last ->
                acquire();
                load();
                if
#ifndef BROKEN_GOES_ON
                :: seen == e || e == first + STEPS - 1 -> skip
                :: else -> ready = WORKERS
#else
                :: e == first + STEPS - 1 -> skip
                :: else -> ready = WORKERS
#endif
                fi
            :: else -> skip
            fi
        :: !done ->
            /* fleeti_dynamic_poll: nothing is ready */
            acquire();
            load();
            seen = (seen -> seen : first + STEPS - 1);
            found = count;
            done = found >= WORKERS * seen;
            e = seen;
            if
            :: done -> break
            :: else -> (ready || count != found || word != old[w]) /* not until something has changed */
            fi
        od;
#endif
        /* fleeti_leave */
        skip;
        d_step
        {
            assert(e == (asked -> asked : first + STEPS - 1));
            exited++
        }
    od
}

/* Words that are stored become visible at any moment. */
active [WORKERS] proctype words()
{
end:
    do
    :: d_step {
        flying[_pid] ->
            word = flying[_pid];
            flying[_pid] = 0
    }
    od
}

init
{
    byte launch, w;
    bit early;
    atomic
    {
        w = 0;
        do
        :: w < WORKERS ->
            run worker(w);
            w++
        :: else -> break
        od
    }
    do
    :: launch < LAUNCHES ->
        /* fleeti_claim */
        d_step
        {
#ifndef BROKEN_WORD_STAYS
            word = 0;
#endif
            first = epoch + 1;
            asked = 0;
            exited = 0;
#ifdef READY
            ready = WORKERS
#endif
        }
        w = 0;
        do
        :: w < WORKERS ->
            seats!1;
            w++
        :: else -> break
        od;
        exited == WORKERS;
        /* fleeti_leave, by the last one */
        d_step
        {
            early = word != 0;
#ifdef BROKEN_EPOCH_OF_ALL
            early = 0;
#endif
            epoch = (early -> word : epoch + STEPS);
            assert(count == WORKERS * epoch);
            assert(ran[epoch] == WORKERS && !ran[epoch + 1]);
            assert(!asked || epoch == asked);
#ifdef REACH_EARLY
            assert(!(launch == 1 && asked && asked < first + STEPS - 1));
#endif
#ifdef REACH_LAST
            assert(asked != first + STEPS - 1);
#endif
            launch++
        }
    :: else -> break
    od
}
