/* Claim, residency check and exit, with launches of one state that overlap: fleeti_claim, fleeti_residency_check,
   fleeti_residency_decide, fleeti_residency_fail, fleeti_leave and fleeti_unclaim of fleet_sched.h.

   Every stream launches LAUNCHES times: the claim, one workgroup; then BLOCKS workgroups, which begin at any moments; it
   goes on when all have left. Nothing tells the launches apart: they may be executables of one captured graph. `due` counts
   the workgroups of all launches, refused ones too, that have not left; a claim that finds 0 opens a run with a seat for
   each workgroup of one launch. The workgroup that takes the last seat decides. All workgroups are on one chiplet, so `resident` is one word;
   its old value is the rank.

   Checked: only the workgroups of one launch run together, with ranks of their own; runs do not overlap; a workgroup of a
   run has read the epoch that the runs before it left; every launch runs or is reported, exactly once; launches that do not
   overlap are never refused; no process is stuck, with no time-out to help; at the end nothing is due, and the epoch is the
   number of runs.

   With -DLATE a workgroup that waits for the result may give up at any moment, as past its deadline. With -DABORT the host
   asks to abort at any moment: the claim after that, or a workgroup that waits, sets the stop word. With -DUNCLAIM the
   host may fail to launch after any claim.

   Stores at device scope are in flight until the wave drains: those of a claim, and the epoch that a run leaves, become
   visible in any order. Read-modify-writes and looks are performed at memory.

   Abstractions: one chiplet; shapes, symbols, mailboxes and buckets are the launch's own and published by the end of the
   claim's kernel. Counts do not wrap.
   Sizes: STREAMS streams, LAUNCHES launches on each, BLOCKS workgroups in each.

     holds two_streams
     holds two_launches -DLAUNCHES=2
     holds one_stream -DSTREAMS=1 -DLAUNCHES=3 -DLATE
     holds abort -DABORT
     holds late -DLATE
     holds unclaim -DUNCLAIM
     deep three_streams -DSTREAMS=3 -DBLOCKS=1
     deep two_launches_late -DLAUNCHES=2 -DLATE
     deep two_launches_unclaim -DLAUNCHES=2 -DUNCLAIM
     twin frozen_token -DBROKEN_TOKEN: assertion violated .(of_stream|running==|seen_epoch)
     twin counted_before_seat -DBROKEN_COUNTED_BEFORE_SEAT: assertion violated .of_stream
     twin seats_before_due -DBROKEN_SEATS_BEFORE_DUE: assertion violated .of_stream
     twin no_look_at_due -DBROKEN_NO_LOOK_AT_DUE: assertion violated .of_stream
     twin no_look_at_seats -DBROKEN_NO_LOOK_AT_SEATS: assertion violated .of_stream
     twin refused_not_due -DBROKEN_REFUSED_NOT_DUE: assertion violated
     twin seats_not_last -DBROKEN_SEATS_NOT_LAST: assertion violated|invalid end state
     twin epoch_not_drained -DBROKEN_EPOCH_NOT_DRAINED -DLAUNCHES=2: assertion violated .seen_epoch
     twin unclaim_tells_nobody -DUNCLAIM -DBROKEN_UNCLAIM_TELLS_NOBODY: invalid end state
     twin unclaim_leaves_seats -DUNCLAIM -DLAUNCHES=2 -DBROKEN_UNCLAIM_LEAVES_SEATS: assertion violated|invalid end state
     twin failed_run_closes -DBROKEN_JUDGE_OVERRULES -DLATE: assertion violated|invalid end state */

#ifndef STREAMS
#define STREAMS 2
#endif
#ifndef LAUNCHES
#define LAUNCHES 1
#endif
#ifndef BLOCKS
#define BLOCKS 2
#endif

#define PENDING 0
#define RESIDENT 1
#define BUSY 2
#define LATE_RESIDENCY 3
#define ABORTED 4

/* The state. */
short due, seats;
byte result, resident, exited, epoch;
bit stop, abort_asked;
bit owner; /* of the frozen token's protocol */
byte arrived;

/* Stores in flight: of the claim that has opened a run, and of the epoch. */
bit clearing_resident, clearing_result, clearing_exited, seating, advancing;

/* What is checked. */
byte runs, running, members, of_stream, ranks;
byte busy, late, poisoned, unclaimed;
bit launched[STREAMS * BLOCKS];

#define DRAINED (!clearing_resident && !clearing_result && !clearing_exited)

inline fail_residency(fc_status)
{
    d_step
    {
        if
        :: result == PENDING ->
            result = fc_status;
            if
            :: fc_status == BUSY -> busy++
            :: fc_status == LATE_RESIDENCY -> late++
            :: fc_status == ABORTED -> stop = 1; late++
            fi
        :: else -> skip
        fi
    }
}

/* fleeti_claim. `mine`: it opens the run. */
inline claim()
{
    d_step
    {
#ifdef BROKEN_TOKEN
        mine = !owner;
        owner = 1;
#else
        mine = due == 0;
#ifdef BROKEN_REFUSED_NOT_DUE
        due = (mine -> due + BLOCKS : due);
#else
        due = due + BLOCKS;
#endif
#endif
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
            clearing_resident = 1;
            clearing_result = 1;
            clearing_exited = 1
        }
        if
        :: refused -> d_step { poisoned++; stop = 1 }
        :: else -> skip
        fi;
#ifdef BROKEN_SEATS_NOT_LAST
        seats = (refused -> 0 : BLOCKS);
        DRAINED
#else
        DRAINED;
        seats = (refused -> 0 : BLOCKS)
#endif
    :: else -> skip
    fi
}

proctype stream(byte me)
{
    byte n, i;
    bit mine, refused, others;
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
#ifdef BROKEN_UNCLAIM_TELLS_NOBODY
            due = due - BLOCKS
#else
#ifndef BROKEN_UNCLAIM_LEAVES_SEATS
            seats = seats - BLOCKS; /* as if its workgroups had come: no seats stand open while nothing is due */
#endif
            d_step { due = due - BLOCKS; others = due != 0 }
            if
            :: others -> fail_residency(BUSY)
            :: else -> skip
            fi;
            others = 0
#endif
#endif
        fi;
        n++
    :: else -> break
    od
}

/* fleeti_residency_decide */
inline judge()
{
#if !defined(BROKEN_TOKEN)
#if !defined(BROKEN_COUNTED_BEFORE_SEAT)
    resident == BLOCKS || result != PENDING;
#endif
#if defined(BROKEN_SEATS_BEFORE_DUE)
    fits = seats == 0;
    fits = fits && due == BLOCKS;
#elif defined(BROKEN_COUNTED_BEFORE_SEAT)
    fits = due == BLOCKS;
    fits = fits && resident == BLOCKS;
#elif defined(BROKEN_NO_LOOK_AT_DUE)
    fits = seats == 0;
#elif defined(BROKEN_NO_LOOK_AT_SEATS)
    fits = due == BLOCKS;
#else
    fits = due == BLOCKS;
    fits = fits && seats == 0;
#endif
    if
    :: !fits -> fail_residency(BUSY)
    :: else ->
#endif
        /* An add: a workgroup that timed out may have failed the check. */
        d_step
        {
#ifdef BROKEN_JUDGE_OVERRULES
            result = RESIDENT
#else
            if
            :: result == PENDING -> result = RESIDENT
            :: else -> skip
            fi
#endif
        }
#if !defined(BROKEN_TOKEN)
    fi
#endif
}

proctype block(byte me)
{
    byte seen_epoch, rank;
    short seat;
    bit fits;
end:
    do
    :: launched[me] ->
        seen_epoch = epoch; /* fleeti_enter, before the residency check */
        /* fleeti_residency_check */
#if defined(BROKEN_TOKEN)
        if
        :: !owner -> goto left
        :: else -> skip
        fi;
        d_step { rank = resident; resident++ }
        d_step { arrived++; seat = BLOCKS - arrived + 1 }
#elif defined(BROKEN_COUNTED_BEFORE_SEAT)
        d_step { rank = resident; resident++ }
        d_step { seat = seats; seats-- }
        if
        :: seat <= 0 -> due--; goto left
        :: else -> skip
        fi;
#else
        d_step { seat = seats; seats-- }
        if
        :: seat <= 0 -> due--; goto left
        :: else -> skip
        fi;
        d_step { rank = resident; resident++ }
#endif
        if
        :: seat == 1 -> judge()
        :: else -> skip
        fi;
        do
        :: result != PENDING -> break
#ifdef LATE
        :: result == PENDING -> fail_residency(LATE_RESIDENCY)
#endif
#ifdef ABORT
        :: result == PENDING && abort_asked -> fail_residency(ABORTED)
#endif
        od;
        if
        :: result != RESIDENT ->
#ifdef BROKEN_TOKEN
            skip
#else
            due--;
            goto left
#endif
        :: else -> skip
        fi;
        /* It runs. */
        d_step
        {
            assert(rank < BLOCKS && !(ranks & (1 << rank)));
            ranks = ranks | (1 << rank);
            if
            :: running == 0 -> of_stream = me / BLOCKS
            :: else -> skip
            fi;
            assert(of_stream == me / BLOCKS);
            assert(seen_epoch == runs);
            running++
        }
        /* fleeti_leave */
        d_step { exited++; seat = exited }
        if
        :: seat == BLOCKS ->
            d_step
            {
                assert(running == BLOCKS);
                running = 0;
                ranks = 0;
                runs++;
                advancing = !stop
            }
#ifndef BROKEN_EPOCH_NOT_DRAINED
            !advancing;
#endif
#ifdef BROKEN_TOKEN
            owner = 0
#else
            due = due - BLOCKS
#endif
        :: else -> skip
        fi;
    left:
        skip;
        d_step { seen_epoch = 0; rank = 0; seat = 0; fits = 0; launched[me] = 0 }
    od
}

/* Stores land at any moment. */
active proctype stores()
{
end:
    do
    :: d_step { clearing_resident -> clearing_resident = 0; resident = 0; arrived = 0 }
    :: d_step { clearing_result -> clearing_result = 0; result = PENDING }
    :: d_step { clearing_exited -> clearing_exited = 0; exited = 0 }
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
#ifndef BROKEN_TOKEN
    assert(due == 0 && running == 0);
    assert(epoch == runs || stop);
    assert(unclaimed || runs + busy + late + poisoned == STREAMS * LAUNCHES);
#endif
#if STREAMS == 1
    assert(busy == 0)
#endif
}
