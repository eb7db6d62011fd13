/* The life of a slot of a server's request table: fleet_server_submit, fleet_server_cancel, fleeti_desk_changed and
   fleet_server_poll (host), fleeti_take_in, fleeti_settle and the idle wait of fleet_server_next (device) of
   fleet_server.h.

   One slot. A host thread submits REQUESTS requests, one after the other, for the slot is free only when the last event
   of the one before has been read. Each has a thread that may cancel it, at any time after its submission, also when it
   has ended. The last request runs until it is cancelled, the others end by themselves at any moment.

   Checked: no cancel is lost, and no wake-up (no invalid end state: the last request would run for ever); a request is
   cancelled only if its own cancel was asked for; each request is taken in once, into a free slot, and has one last
   event.

   The rings are those of request_ring.pml and are not modelled again. Words are read and written in program order: what
   edge 31 orders is the order of these steps.

     holds slot
     deep slot_3 -DREQUESTS=3
     reach late_cancel -DREACH_LATE_CANCEL
     reach cancelled_at_once -DREACH_CANCELLED_AT_ONCE
     twin cancels_read_last -DBROKEN_CANCELS_READ_LAST: invalid end state
     twin changes_read_last -DBROKEN_CHANGES_READ_LAST: invalid end state
     twin counted_before_pushed -DBROKEN_COUNTED_FIRST: invalid end state
     twin counted_before_cancelled -DBROKEN_CANCEL_COUNTED_FIRST: invalid end state
     twin cancel_without_generation -DBROKEN_NO_GENERATION: assertion violated
     twin late_cancel_wins -DBROKEN_LATE_CANCEL_WINS: invalid end state */

#ifndef REQUESTS
#define REQUESTS 2
#endif

chan submissions = [1] of {byte};   /* generation */
chan events = [1] of {byte, bit};   /* generation, whether it was cancelled */
byte changes, cancels, cancelled;   /* words of the desk */
byte submitted;                     /* generations whose submit has returned */
bit taken, asked[REQUESTS + 1], ended[REQUESTS + 1];

proctype submits()
{
    byte g = 0;
    do
    :: g < REQUESTS ->
        g++;
        atomic { !taken -> taken = 1 };
#ifdef BROKEN_COUNTED_FIRST
        changes++;
        submissions!g;
#else
        submissions!g;
        changes++;
#endif
        submitted = g
    :: else -> break
    od
}

/* The last request is cancelled in any case. */
proctype cancels_it(byte g)
{
    submitted >= g;
    if
    :: true -> skip
    :: g < REQUESTS -> goto done
    fi;
    asked[g] = 1;
#ifdef REACH_LATE_CANCEL
    assert(!(ended[g] && submitted > g));
#endif
#ifdef BROKEN_CANCEL_COUNTED_FIRST
    cancels++;
    changes++;
#endif
    /* The slot's generation is looked at, and then the cancel is stored: another request may be there by then. */
    if
    :: submitted > g -> skip
    :: else -> skip
    fi;
#ifdef BROKEN_LATE_CANCEL_WINS
    cancelled = g;
#else
    atomic {
        if
        :: cancelled < g -> cancelled = g
        :: else -> skip
        fi
    };
#endif
#ifndef BROKEN_CANCEL_COUNTED_FIRST
    cancels++;
    changes++;
#endif
done:
    skip
}

proctype polls()
{
    byte n = 0, g;
    bit was;
    do
    :: n < REQUESTS ->
        events?g, was;
        assert(g == n + 1 && !ended[g] && (!was || asked[g]));
        ended[g] = 1;
        taken = 0;
        n++
    :: else -> break
    od
}

proctype device()
{
    byte seen_changes = 0, seen_cancels = 0, c, k, generation = 0, n = 0;
    bit runs = 0, flagged = 0, fresh = 0;
    do
    :: n < REQUESTS ->
        /* take in */
        c = changes;
        if
        :: c == seen_changes -> skip
        :: else ->
#ifndef BROKEN_CANCELS_READ_LAST
            k = cancels;
#endif
            do
            :: atomic { nempty(submissions) -> assert(!runs); submissions?generation; runs = 1; flagged = 0; fresh = 1 }
            :: empty(submissions) -> break
            od;
#ifdef BROKEN_CANCELS_READ_LAST
            k = cancels;
#endif
            if
            :: k == seen_cancels -> skip
            :: else ->
                if
#ifdef BROKEN_NO_GENERATION
                :: runs && cancelled -> flagged = 1
#else
                :: runs && cancelled == generation ->
#ifdef REACH_CANCELLED_AT_ONCE
                    assert(!fresh);
#endif
                    flagged = 1
#endif
                :: else -> skip
                fi
            fi;
#ifdef BROKEN_CHANGES_READ_LAST
            c = changes;
#endif
            seen_changes = c; seen_cancels = k; fresh = 0
        fi;
        /* the boundary: a request ends, or runs on */
        if
        :: runs && flagged ->
            events!generation, 1; runs = 0; n++
        :: runs && !flagged && generation < REQUESTS -> events!generation, 0; runs = 0; n++
        :: !(runs && flagged) && changes != seen_changes -> skip /* there is news, or it waits for some */
        fi
    :: else -> break
    od
}

init {
    byte g = 1;
    atomic {
        run submits();
        run polls();
        run device();
        do
        :: g <= REQUESTS -> run cancels_it(g); g++
        :: else -> break
        od
    }
}
