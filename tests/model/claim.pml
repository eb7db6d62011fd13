/* Claim, residency check and exit, with launches of one state that overlap: fleeti_claim, fleeti_claim_yield,
   fleeti_residency_check, fleeti_begin_at_once, fleeti_residency_decide, fleeti_residency_end, fleeti_residency_fail,
   fleeti_leave and fleeti_unclaim of fleet_sched.h.

   Every stream launches LAUNCHES times: the claim, one workgroup; then BLOCKS workgroups, which begin at any moments; it
   goes on when all have left. Nothing tells the launches apart: they may be executables of one captured graph. `due` counts
   the workgroups of all launches, refused ones too, that have not left, and `claiming` the claims that set the state; a
   claim that finds neither opens a run, and all others wait until it has set the state. The first workgroup on any chiplet
   decides. Workgroup i of all is on chiplet i mod CHIPLETS; with -DA_CHIPLET_EACH all those of stream i are on chiplet i.
   The launches of the streams in the bits of AT_ONCE need no check. With -DKEYS each stream's have a key of their own.

   Checked: only the workgroups of one launch run together, of one that was not refused, with ranks of their own; runs do not
   overlap; a workgroup of a run has read the epoch that the runs before it left; every launch runs or is reported, exactly
   once; launches that do not overlap are never refused; no process is stuck, with no time-out to help; at the end nothing is
   due, and the epoch is the number of runs.

   With -DLATE a workgroup that waits for the result may give up at any moment, as past its deadline. With -DABORT the host
   asks to abort at any moment: the claim after that, or a workgroup that waits, sets the stop word. With -DUNCLAIM the
   host may fail to launch after any claim.

   Stores at device scope are in flight until the wave drains: those of a claim, the result for each chiplet, and the epoch
   that a run leaves, become visible in any order. Read-modify-writes and looks are performed at memory.

   A claim that is refused does not give up. Abstractions: shapes, symbols, mailboxes and buckets are the launch's own and published by the end of the claim's kernel.
   Counts do not wrap.
   Sizes: STREAMS streams, LAUNCHES launches on each, BLOCKS workgroups in each, on CHIPLETS chiplets.

     holds two_streams
     holds one_chiplet -DCHIPLETS=1
     holds one_stream -DSTREAMS=1 -DLAUNCHES=3 -DLATE
     holds late_2 -DLATE -DSTREAMS=1 -DBLOCKS=3 -DLAUNCHES=2
     deep abort -DABORT -DCHIPLETS=1
     holds abort_1 -DABORT -DSTREAMS=1 -DLAUNCHES=2
     deep late -DLATE -DCHIPLETS=1
     holds unclaim -DUNCLAIM
     deep two_launches -DLAUNCHES=2
     deep three_streams -DSTREAMS=3 -DBLOCKS=1 -DCHIPLETS=1
     deep abort_2 -DABORT
     deep late_two_chiplets -DLATE
     deep two_launches_late -DLAUNCHES=2 -DLATE -DCHIPLETS=1
     deep two_launches_unclaim -DLAUNCHES=2 -DUNCLAIM -DCHIPLETS=1
     reach run -DREACH_RUN
     reach met -DREACH_MET
     holds at_once -DAT_ONCE=3
     holds at_once_keys -DAT_ONCE=3 -DKEYS
     holds at_once_some -DAT_ONCE=1
     holds at_once_some_keys -DAT_ONCE=1 -DKEYS
     holds at_once_one_stream -DAT_ONCE=1 -DSTREAMS=1 -DLAUNCHES=3
     deep at_once_twice -DAT_ONCE=3 -DLAUNCHES=2
     deep at_once_three -DAT_ONCE=7 -DSTREAMS=3 -DCHIPLETS=1
     holds at_once_unclaim -DAT_ONCE=3 -DUNCLAIM
     deep at_once_abort -DAT_ONCE=3 -DABORT
     twin refused_not_waiting -DBROKEN_NO_WAIT: assertion violated|invalid end state
     twin at_once_not_yielding -DAT_ONCE=3 -DBROKEN_NO_YIELD: assertion violated
     twin at_once_any_key -DAT_ONCE=3 -DKEYS -DBROKEN_ANY_KEY: assertion violated|invalid end state
     twin at_once_unclaim_keeps -DAT_ONCE=3 -DUNCLAIM -DBROKEN_UNCLAIM_KEEPS: assertion violated|invalid end state
     twin due_before_counts -DBROKEN_DUE_BEFORE_COUNTS: assertion violated
     twin no_look_at_due -DBROKEN_NO_LOOK_AT_DUE: assertion violated
     twin no_counts_in_result -DBROKEN_NO_COUNTS_IN_RESULT: assertion violated
     twin decided_early -DBROKEN_DECIDED_EARLY: assertion violated|invalid end state
     twin refused_not_due -DBROKEN_REFUSED_NOT_DUE: assertion violated
     twin result_not_drained -DBROKEN_RESULT_NOT_DRAINED -DA_CHIPLET_EACH -DLATE: assertion violated|invalid end state
     twin epoch_not_drained -DBROKEN_EPOCH_NOT_DRAINED -DLAUNCHES=2: assertion violated .seen_epoch
     twin unclaim_tells_nobody -DUNCLAIM -DBROKEN_UNCLAIM_TELLS_NOBODY: assertion violated|invalid end state
     twin unclaim_frees_first -DUNCLAIM -DLAUNCHES=2 -DBROKEN_UNCLAIM_FREES_FIRST: assertion violated|invalid end state
     twin failed_run_goes_on -DBROKEN_DECISION_OVERRULES -DLATE: assertion violated|invalid end state
     twin chiplet_closes -DBROKEN_CHIPLET_CLOSES: assertion violated */

#ifndef STREAMS
#define STREAMS 2
#endif
#ifndef LAUNCHES
#define LAUNCHES 1
#endif
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef CHIPLETS
#define CHIPLETS 2
#endif

#ifndef AT_ONCE
#define AT_ONCE 0
#endif
#define IS_AT_ONCE(stream) (AT_ONCE >> (stream) & 1)
#ifdef KEYS
#define KEY(stream) (1 + (stream))
#else
#define KEY(stream) 1
#endif

#define PENDING 0
#define BUSY 1
#define LATE_RESIDENCY 2
#define ABORTED 3
#define NONE 4 /* there was no run yet */
#define OPEN 5 /* nobody decides yet */
#define RESIDENT 6 /* of a chiplet: and the count of its workgroups on top */
#define ONCE 16 /* the same, without a check */

/* The state. */
byte due, claiming, residency = NONE, exited, epoch, key;
byte resident[CHIPLETS], begun[CHIPLETS], left[CHIPLETS], result[CHIPLETS] = NONE;
bit stop, abort_asked;

/* Stores in flight: of the claim that has opened a run, of a result, and of the epoch. */
bit advancing;
byte clearing[CHIPLETS], begins, telling[CHIPLETS]; /* the results, the residency word, and the results */

/* What is checked. */
byte runs, running, of_stream, ranks;
byte busy, late, poisoned, unclaimed;
bit launched[STREAMS * BLOCKS], turned_away[STREAMS];

#if CHIPLETS == 1
#define ALL(x) (x[0])
#define SUM(x) (x[0])
#else
#define ALL(x) (x[0] || x[1])
#define SUM(x) (x[0] + x[1])
#endif
/* Workgroups that have begun, or that will not begin any more. */
#define BEGUN(i) (result[i] >= ONCE && key == KEY(me) -> begun[i] : BLOCKS / CHIPLETS)
#define IS_OPEN (residency == OPEN || residency == PENDING)
#define CLEARED !ALL(clearing)
#define TOLD !ALL(telling)

/* fleeti_residency_end, in a d_step. told: 1: it has stored results. */
inline end_residency(fc_result)
{
    if
#ifdef BROKEN_DECISION_OVERRULES
    :: IS_OPEN || fc_result == RESIDENT ->
#else
    :: IS_OPEN ->
#endif
        residency = fc_result;
        for (i : 0 .. (CHIPLETS - 1)) { telling[i] = fc_result + (fc_result == RESIDENT -> have[i] : 0); have[i] = 0 }
        i = 0;
        told = 1
    :: else -> skip
    fi
}

/* fleeti_residency_fail */
inline fail_residency(fc_status)
{
    d_step
    {
        if
        :: IS_OPEN && fc_status == BUSY -> busy++
        :: IS_OPEN && fc_status == LATE_RESIDENCY -> late++
        :: IS_OPEN && fc_status == ABORTED -> stop = 1; late++
        :: else -> skip
        fi;
        end_residency(fc_status)
    }
}

/* fleeti_claim. `mine`: it opens the run. */
inline claim()
{
    d_step
    {
        mine = due == 0 && claiming == 0;
#ifdef BROKEN_REFUSED_NOT_DUE
        due = (mine -> due + BLOCKS : due);
#else
        due = due + BLOCKS;
#endif
        claiming++;
        turned_away[me] = !mine;
        if
        :: !mine -> busy++
        :: else -> skip
        fi
    }
    if
    :: mine ->
        refused = stop || abort_asked;
        d_step
        {
            for (i : 0 .. (CHIPLETS - 1))
            {
                clearing[i] = (refused -> ABORTED : (IS_AT_ONCE(me) -> ONCE + BLOCKS / CHIPLETS : PENDING)) + 1
            }
            i = 0;
            begins = (refused -> ABORTED : (IS_AT_ONCE(me) -> ONCE : OPEN));
            key = KEY(me);
            if
            :: refused -> poisoned++; stop = 1
            :: else -> skip
            fi
        }
        CLEARED && !begins; /* drain, barrier */
        claiming--;
        refused = 0
    :: else ->
        claiming--;
        /* fleeti_claim_yield */
#ifndef BROKEN_NO_WAIT
        claiming == 0;
#endif
#ifndef BROKEN_NO_YIELD
        #if CHIPLETS == 1
        BEGUN(0) >= BLOCKS;
#else
        BEGUN(0) + BEGUN(1) >= BLOCKS;
#endif
#endif
        skip
    fi;
    mine = 0
}

proctype stream(byte me)
{
    byte n, i;
    byte have[CHIPLETS];
    bit mine, refused, others, told;
    do
    :: n < LAUNCHES ->
        claim();
        if
        :: d_step { 1 -> for (i : 0 .. (BLOCKS - 1)) { launched[me * BLOCKS + i] = 1 } i = 0 }
            for (i : 0 .. (BLOCKS - 1)) { !launched[me * BLOCKS + i] }
            i = 0
#ifdef UNCLAIM
        :: 1 ->
            unclaimed++;
#if defined(BROKEN_UNCLAIM_TELLS_NOBODY)
            due = due - BLOCKS
#elif defined(BROKEN_UNCLAIM_FREES_FIRST)
            due = due - BLOCKS;
            d_step { end_residency(BUSY) }
            if
            :: told -> TOLD; told = 0
            :: else -> skip
            fi
#else
            others = due != BLOCKS;
#ifndef BROKEN_UNCLAIM_KEEPS
            d_step
            {
                for (i : 0 .. (CHIPLETS - 1))
                {
                    telling[i] = (result[i] >= ONCE && key == KEY(me) -> BUSY : telling[i])
                }
                i = 0
            }
            TOLD;
#endif
            d_step
            {
                end_residency(BUSY);
                if
                :: told && others -> busy++
                :: else -> skip
                fi;
                others = 0
            }
            if
            :: told -> TOLD
            :: else -> skip
            fi;
            d_step { due = due - BLOCKS; told = 0 }
#endif
#endif
        fi;
        n++
    :: else -> break
    od
}

/* fleeti_residency_decide */
inline decide()
{
#ifdef BROKEN_DUE_BEFORE_COUNTS
    fits = due == BLOCKS;
#endif
#ifndef BROKEN_DECIDED_EARLY
    SUM(resident) >= BLOCKS || residency != PENDING;
#endif
    have[0] = resident[0];
#if CHIPLETS > 1
    have[1] = resident[1];
#endif
#if defined(BROKEN_NO_LOOK_AT_DUE)
    fits = SUM(have) == BLOCKS;
#elif defined(BROKEN_DUE_BEFORE_COUNTS)
    fits = fits && SUM(have) == BLOCKS;
#elif defined(BROKEN_DECIDED_EARLY)
    fits = due == BLOCKS;
#else
    fits = SUM(have) == BLOCKS;
    fits = fits && due == BLOCKS;
#endif
    if
    :: SUM(have) < BLOCKS && residency != PENDING -> skip /* it has failed */
    :: else ->
        if
        :: !fits -> fail_residency(BUSY)
        :: else -> d_step { end_residency(RESIDENT) }
        fi
    fi;
    d_step
    {
        fits = 0; first = 0;
        for (i : 0 .. (CHIPLETS - 1)) { have[i] = 0 }
        i = 0
    }
}

#ifdef A_CHIPLET_EACH
#define HERE (me / BLOCKS % CHIPLETS)
#else
#define HERE (me % CHIPLETS)
#endif

proctype block(byte me)
{
    byte seen_epoch, rank, found, i;
    byte have[CHIPLETS];
    bit fits, first, told;
end:
    do
    :: launched[me] ->
        d_step { seen_epoch = epoch; found = result[HERE] } /* fleeti_enter_run */
        if
        :: found >= ONCE -> /* fleeti_begin_at_once */
#ifndef BROKEN_ANY_KEY
            if
            :: key != KEY(me / BLOCKS) -> goto refused_here
            :: else -> skip
            fi;
#endif
            d_step { rank = begun[HERE]; begun[HERE] = rank + 1; found = found - ONCE + RESIDENT };
            if
            :: rank >= found - RESIDENT -> goto refused_here
            :: else -> goto runs_now
            fi
        :: else -> skip
        fi;
        /* fleeti_residency_check */
        d_step { rank = resident[HERE]; resident[HERE] = rank + 1 }
        if
        :: rank == 0 -> d_step { first = residency == OPEN; residency = (first -> PENDING : residency) }
        :: else -> skip
        fi;
        if
        :: first -> decide()
        :: else -> skip
        fi;
        do
        :: result[HERE] != PENDING -> break
#ifdef LATE
        :: result[HERE] == PENDING -> fail_residency(LATE_RESIDENCY)
#endif
#ifdef ABORT
        :: result[HERE] == PENDING && abort_asked -> fail_residency(ABORTED)
#endif
        od;
        found = result[HERE];
        if
#ifdef BROKEN_NO_COUNTS_IN_RESULT
        :: found < RESIDENT ->
#else
        :: found < RESIDENT || rank >= found - RESIDENT ->
#endif
#ifndef BROKEN_RESULT_NOT_DRAINED
            if
            :: told -> TOLD
            :: else -> skip
            fi;
#endif
    refused_here:
            due--;
            goto gone
        :: else -> skip
        fi;
    runs_now:
        skip;
        /* It runs. */
        d_step
        {
            i = HERE * BLOCKS + rank;
            assert(rank < BLOCKS && !(ranks & (1 << i)));
            ranks = ranks | (1 << i);
            i = 0;
            if
            :: running == 0 -> of_stream = me / BLOCKS
            :: else -> skip
            fi;
            assert(of_stream == me / BLOCKS && !turned_away[me / BLOCKS]);
            assert(seen_epoch == runs);
            running++
        }
        /* fleeti_leave */
        if
        :: told -> TOLD
        :: else -> skip
        fi;
        d_step { left[HERE] = left[HERE] + 1; first = left[HERE] == found - RESIDENT }
        if
        :: first && found - RESIDENT != BLOCKS ->
            d_step
            {
#ifdef BROKEN_CHIPLET_CLOSES
                exited = BLOCKS;
#else
                exited = exited + found - RESIDENT;
#endif
                first = exited == BLOCKS
            }
        :: else -> skip
        fi;
        if
        :: first ->
            d_step
            {
                assert(running == BLOCKS);
                running = 0;
                ranks = 0;
                runs++;
#ifdef REACH_RUN
                assert(0);
#endif
                advancing = !stop
            }
#ifndef BROKEN_EPOCH_NOT_DRAINED
            !advancing;
#endif
            due = due - BLOCKS
        :: else -> skip
        fi;
    gone:
        skip;
#ifdef REACH_MET
        assert(!(busy == STREAMS));
#endif
        d_step
        {
            seen_epoch = 0; rank = 0; found = 0; first = 0; told = 0;
            launched[me] = 0
        }
    od
}

/* Stores land at any moment. */
active proctype stores()
{
end:
    do
    :: d_step { clearing[0] -> result[0] = clearing[0] - 1; clearing[0] = 0; resident[0] = 0; begun[0] = 0; left[0] = 0; exited = 0 }
    :: d_step { begins -> residency = begins; begins = 0 }
    :: d_step { telling[0] -> result[0] = telling[0]; telling[0] = 0 }
#if CHIPLETS > 1
    :: d_step { clearing[1] -> result[1] = clearing[1] - 1; clearing[1] = 0; resident[1] = 0; begun[1] = 0; left[1] = 0 }
    :: d_step { telling[1] -> result[1] = telling[1]; telling[1] = 0 }
#endif
    :: d_step { advancing -> advancing = 0; epoch++ }
#ifdef ABORT
    :: d_step { !abort_asked -> abort_asked = 1 }
#endif
    od
}

init
{
    byte i;
    atomic
    {
        for (i : 0 .. (STREAMS * BLOCKS - 1)) { run block(i) }
        for (i : 0 .. (STREAMS - 1)) { run stream(i) }
        i = 0
    }
    _nr_pr == STREAMS * BLOCKS + 2;
    !advancing;
    assert(due == 0 && claiming == 0 && running == 0);
    assert(epoch == runs || stop);
    assert(unclaimed || runs + busy + late + poisoned == STREAMS * LAUNCHES);
#if STREAMS == 1
    assert(busy == 0)
#endif
}
