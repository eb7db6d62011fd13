/* How a run ends: its last step, a tile that fails, a deadline that passes, an abort by the host, at any moment.
   fleeti_wait_all, fleeti_back_off and fleeti_block_vote of fleet_device.h; fleeti_wait_events, fleeti_finish_task,
   fleeti_next_task_slow, fleeti_record_failure, fleeti_static_finish and fleeti_leave of fleet_sched.h, under STATIC.

   Two workgroups of two waves. In each step each runs
     P    waits for the step before; produces                  notifies E
     C    waits for E; consumes what both produced
     END  notifies the step event
   Wave 0 polls and arrives for its workgroup, wave 1 looks at the stop word between tasks. -DTILE: up to FAILURES tiles fail,
   each in any wave. -DLATE: a wait passes its deadline at any moment. -DABORT: the host asks to abort at any moment; the
   waits see it.

   Checked: no tile runs before what it waits for is complete, by both waves of each producer; all waves leave (no invalid
   end state); from the moment that the host sees a status, the report of the first failure is complete and of that status;
   a run that failed does not advance the epoch and tells the host, a run that did not has run all its tasks.

   A report's words are in flight until the wave drains (fleeti_publish_system). Data between tasks is that of two_level.pml,
   and is not modelled again. A look of wave 1 may be as old as the one before.
   Sizes: 2 workgroups, 2 waves each, STEPS steps of 3 tasks.

     holds ends
     holds tile -DTILE -DFAILURES=2 -DSTEPS=1
     deep tile_2 -DTILE
     holds late -DLATE
     holds abort -DABORT
     holds all -DTILE -DLATE -DABORT -DSTEPS=1
     deep all_1 -DTILE -DLATE -DABORT -DFAILURES=3 -DSTEPS=1
     deep all_2 -DTILE -DLATE -DABORT -DFAILURES=2
     deep late_3 -DLATE -DSTEPS=3
     reach clean_end -DREACH_CLEAN_END
     reach report -DTILE -DREACH_REPORT
     reach two_reasons -DTILE -DLATE -DREACH_SECOND_REPORT
     reach abort_unseen -DABORT -DREACH_ABORT_UNSEEN
     twin wait_gives_up_well -DLATE -DBROKEN_WAIT_RETURNS_OK: assertion violated .*complete
     twin no_look_at_stop -DTILE -DBROKEN_NO_LOOK_AT_STOP: invalid end state
     twin waves_stop_alone -DABORT -DBROKEN_NO_VOTE: invalid end state
     twin waits_fail_alone -DLATE -DBROKEN_WAIT_FAILS_ALONE: invalid end state|assertion violated .*complete
     twin notifies_despite_failure -DTILE -DBROKEN_NOTIFIES: assertion violated .*complete
     twin status_before_report -DTILE -DBROKEN_STATUS_BEFORE_REPORT: assertion violated .*first_worker
     twin all_report_first -DTILE -DLATE -DBROKEN_ALL_ARE_FIRST: assertion violated .*first_status
     twin leaves_without_barrier -DTILE -DBROKEN_LEAVES_WITHOUT_BARRIER: assertion violated .*epoch
     twin epoch_despite_stop -DTILE -DBROKEN_EPOCH_DESPITE_STOP: assertion violated .*epoch */

#ifndef STEPS
#define STEPS 2
#endif
#ifndef FAILURES
#define FAILURES 1
#endif
#define BLOCKS 2
#define WAVES 2
#define TASKS 3
#define P 0
#define C 1
#define END 2

#define ABORTED 1
#define TIMEOUT 2
#define TILE_FAILED 3

byte e_count, step_count;
byte stop;
bit abort_asked;
byte exited, epoch, failures;

/* Of a workgroup. */
byte at_barrier[BLOCKS];
bit barrier_round[BLOCKS], failed[BLOCKS], vote[BLOCKS * 2];

/* What the host sees: the first failure, one of each worker's own, and the status. */
byte first_worker, first_status, host_status;
byte own_worker[BLOCKS], own_status[BLOCKS];
byte flying[BLOCKS * WAVES]; /* of a wave: its worker's number is in flight to 1: first, 2: its own */

byte produced[BLOCKS * WAVES], consumed[BLOCKS * WAVES], ended[BLOCKS];

hidden byte complete;
#define ME (b * WAVES + w)

inline barrier()
{
    d_step
    {
        round = barrier_round[b];
        at_barrier[b]++;
        if
        :: at_barrier[b] == WAVES -> at_barrier[b] = 0; barrier_round[b] = 1 - round
        :: else -> skip
        fi
    }
    d_step { barrier_round[b] != round; round = 0 }
}

/* fleeti_record_failure */
inline give_up(gu_status)
{
    d_step
    {
        first = stop == 0;
        stop = (stop -> stop : gu_status)
#ifdef BROKEN_ALL_ARE_FIRST
        ;
        first = 1
#endif
    }
    if
    :: first || !own_status[b] ->
        d_step { flying[ME] = 2 - first }
#ifndef BROKEN_STATUS_BEFORE_REPORT
        !flying[ME];
#endif
        if
        :: first ->
            first_status = gu_status;
            d_step
            {
                host_status = gu_status;
                /* From now on the host may read the report. */
                assert(first_worker && first_status == host_status && stop == host_status)
            }
        :: else ->
            own_status[b] = gu_status;
#ifdef REACH_SECOND_REPORT
            assert(gu_status == stop);
#endif
        fi
    :: else -> skip
    fi;
    first = 0
}

#define WANTED (task == P -> step_count >= BLOCKS * step : (task == C -> e_count >= BLOCKS * (step + 1) : 1))

#define ALL(what, value)                                                                           \
    (what[0] >= value && what[1] >= value && what[2] >= value && what[3] >= value)

proctype wave(byte b; byte w)
{
    byte step, task, status;
    bit round, turn, vetoed, mine, first;
    do
    :: step < STEPS ->
        /* fleeti_next_task */
        if
        :: vetoed ->
            if
            :: mine -> give_up(TILE_FAILED)
            :: else -> skip
            fi;
            break
        :: else -> skip
        fi;
        /* fleeti_wait_all */
        if
        :: w == 0 ->
            do
            :: WANTED -> break
#ifndef BROKEN_NO_LOOK_AT_STOP
            :: !WANTED && stop -> status = stop; break
#endif
#ifdef ABORT
            :: !WANTED && abort_asked -> status = ABORTED; break
#endif
#ifdef LATE
            :: !WANTED -> status = TIMEOUT; break
#endif
            od;
            failed[b] = status != 0
        :: else -> skip
        fi;
        barrier();
        if
#ifdef BROKEN_WAIT_FAILS_ALONE
        :: status -> give_up(status); break
        :: else -> skip
#else
        :: failed[b] ->
            if
            :: w == 0 -> give_up(status)
            :: else -> skip
            fi;
#ifdef BROKEN_WAIT_RETURNS_OK
            status = 0
#else
            break
#endif
        :: else -> skip
#endif
        fi;
        /* The tile. `complete`: what it waits for. */
        atomic
        {
            if
            :: task == P ->
                d_step
                {
                    complete = ALL(consumed, step);
                    assert(complete);
                    produced[ME] = step + 1
                }
            :: task == C ->
                d_step
                {
                    complete = ALL(produced, step + 1);
                    assert(complete);
                    consumed[ME] = step + 1
                }
            :: else -> skip
            fi;
            skip;
#ifdef TILE
            if
            :: task != END ->
                if
                :: failures < FAILURES ->
                    failures++;
                    mine = 1;
                    if
                    :: task == P -> produced[ME] = step /* it did not */
                    :: else -> consumed[ME] = step
                    fi
                :: skip
                fi
            :: else -> skip
            fi
#endif
        }
        /* fleeti_finish_task: the vote is its barrier. */
        atomic
        {
            turn = 1 - turn;
#ifndef BROKEN_NOTIFIES
            if
            :: mine || (w == 1 && stop) -> vote[b * 2 + turn] = 1
            :: !mine -> skip /* the look at the stop word was an older one */
            fi
#endif
        }
#ifdef BROKEN_NO_VOTE
        vetoed = mine || (w == 1 && stop);
        barrier();
#else
        barrier();
        vetoed = vote[b * 2 + turn];
#endif
        if
        :: !vetoed && w == 0 ->
            if
            :: task == P -> e_count++
            :: task == END -> step_count++; ended[b]++
            :: else -> skip
            fi
        :: else -> skip
        fi;
        d_step
        {
            task++;
            if
            :: task == TASKS -> task = 0; step++
            :: else -> skip
            fi
        }
    :: else -> break
    od;
    /* fleeti_leave. After the last END a veto has no next task: there was no tile. */
    skip;
#ifndef BROKEN_LEAVES_WITHOUT_BARRIER
    barrier();
#endif
    if
    :: w == 0 ->
        !flying[ME];
        exited++;
        if
        :: exited == BLOCKS ->
#ifdef BROKEN_EPOCH_DESPITE_STOP
            epoch = STEPS
#else
            epoch = (stop -> 0 : STEPS)
#endif
        :: else -> skip
        fi
    :: else -> skip
    fi
}

/* Words of reports become visible at any moment. */
active [BLOCKS * WAVES] proctype words()
{
end:
    do
    :: d_step {
        flying[_pid] == 1 ->
            first_worker = 1 + _pid / WAVES;
            flying[_pid] = 0
    }
    :: d_step {
        flying[_pid] == 2 ->
            own_worker[_pid / WAVES] = 1 + _pid / WAVES;
            flying[_pid] = 0
    }
    od
}

#ifdef ABORT
#define HOSTS 1
active proctype host()
{
    abort_asked = 1;
end:
    0
}
#else
#define HOSTS 0
#endif

init
{
    atomic { run wave(0, 0); run wave(0, 1); run wave(1, 0); run wave(1, 1) }
    _nr_pr == BLOCKS * WAVES + HOSTS + 1;
    !flying[0] && !flying[1] && !flying[2] && !flying[3];
    assert(exited == BLOCKS);
    assert(epoch == (stop -> 0 : STEPS));
    assert(host_status == stop);
    if
    :: stop -> assert(first_worker && first_status == stop)
    :: else ->
        assert(ALL(produced, STEPS) && ALL(consumed, STEPS) && ended[0] == STEPS && ended[1] == STEPS);
#ifdef REACH_CLEAN_END
        assert(0);
#endif
#ifdef REACH_ABORT_UNSEEN
        assert(!abort_asked);
#endif
    fi;
#ifdef REACH_REPORT
    assert(!stop)
#endif
}
