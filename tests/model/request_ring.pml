/* The rings of messages between host threads and one worker of the device: fleet_ring_push, fleet_ring_pop,
   fleeti_message_next and fleeti_message_move (host), fleet_ring_try_push and fleet_ring_try_pop (device) of
   fleet_server.h.

   Two host threads push and the worker pops, or, with FROM_DEVICE, the worker pushes and two host threads pop, of which
   one may end at any point of a pop; TOTAL messages over SLOTS slots. The worker moves up to BATCH messages at once.
   Message n has the value n + 1. Sequence numbers, and the number in front of the slots as the other end reads it, are
   those of the code modulo MOD, and the first message has the number FIRST: they wrap.

   Checked: each message is popped once, with its own value, which neither an older nor a newer message of the slot has
   replaced; what a thread reads and then finds to be the next message (fleet_server_poll looks at it before it pops) is
   that message; no process is stuck.

   Memory. Sequence numbers are atomics. A host thread's plain store is in flight for any time, unless its release waits
   for it. The worker's store is in flight, then in its L2, and in memory when it is written back or evicted. The
   L2 fetches any slot at any moment and keeps it, however old, until an acquire drops it. Left out: the L1, which is
   dropped with the L2's lines, and positions of 64 bits, which do not wrap here either.

     holds to_device
     deep to_device_3 -DSLOTS=4 -DBATCH=3 -DTOTAL=6
     holds from_device -DFROM_DEVICE
     deep from_device_3 -DFROM_DEVICE -DSLOTS=4 -DBATCH=3 -DTOTAL=6
     reach full -DREACH_FULL
     reach overtaken -DREACH_OVERTAKEN
     twin published_before_written -DBROKEN_PUBLISH_FIRST: assertion violated
     twin pushed_without_a_look -DBROKEN_NO_ROOM: assertion violated|invalid end state
     twin no_acquire -DBROKEN_NO_ACQUIRE: assertion violated
     twin freed_before_read -DBROKEN_FREE_FIRST: assertion violated
     twin numbers_that_do_not_wrap -DBROKEN_COMPARE: assertion violated|invalid end state
     twin claimed_without_cas -DBROKEN_CLAIM: assertion violated
     twin popped_without_cas -DBROKEN_CLAIM -DFROM_DEVICE: assertion violated
     twin not_looked_at_again -DBROKEN_NO_LOOK -DFROM_DEVICE: assertion violated
     twin popped_then_freed -DBROKEN_TWO_STEPS -DFROM_DEVICE: invalid end state
     twin room_that_does_not_wrap -DBROKEN_COMPARE -DFROM_DEVICE: assertion violated
     twin no_drain -DBROKEN_NO_DRAIN -DFROM_DEVICE: assertion violated
     twin no_write_back -DBROKEN_NO_WRITE_BACK -DFROM_DEVICE: assertion violated
     twin read_after_the_pop -DBROKEN_LATE_READ -DFROM_DEVICE: assertion violated
     twin read_before_poll -DBROKEN_EARLY_READ -DFROM_DEVICE: assertion violated */

#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef BATCH
#define BATCH 2
#endif
#ifndef TOTAL
#define TOTAL 5
#endif
#define MOD 8
#define FIRST 5

#define SLOT(n) ((n) % SLOTS)
#define SEQUENCE(n) ((FIRST + (n)) % MOD)
/* Whether message n finds its slot free while the next one to be popped has the number FIRST + at, modulo MOD. */
#ifdef BROKEN_COMPARE
#define ROOM(n, at) (SEQUENCE(n) < (at) + SLOTS)
#else
#define ROOM(n, at) ((SEQUENCE(n) - (at) + MOD) % MOD < SLOTS)
#endif

byte sequence[SLOTS];
byte memory[SLOTS];                   /* the messages */
byte flying[SLOTS], l2[SLOTS];        /* the worker's; 0: none */
bit dirty[SLOTS];
byte host_flying[2], host_slot[2];    /* a host thread's store */
byte position;                        /* of the host's end */
byte popped;                          /* the number in front of the slots */
bit taken[TOTAL];

inline take(tk_n, tk_value)
{
    assert(tk_value == tk_n + 1 && !taken[tk_n]);
    taken[tk_n] = 1
}

#ifndef FROM_DEVICE

/* fleeti_message_next, at a moment at which n is the next number: the slot is free. */
inline claim()
{
    n = position;
    do
    :: n < TOTAL ->
#ifndef BROKEN_NO_ROOM
        at = popped;
        if
        :: ROOM(n, at) -> skip
        :: else ->
#ifdef REACH_FULL
            assert(false);
#endif
            n = position; at = 0; goto again /* full, or overtaken: the caller comes back later */
        fi;
        at = 0;
#endif
#ifdef BROKEN_CLAIM
        position = n + 1; break;
#else
        atomic {
            if
            :: position == n -> position = n + 1; break
            :: else ->
#ifdef REACH_OVERTAKEN
                assert(false);
#endif
                n = position
            fi
        };
#endif
again:
        skip
    :: else -> break
    od
}

proctype host_pushes(bit id)
{
    byte n, at;
    do
    :: claim();
        if
        :: n < TOTAL ->
#ifdef BROKEN_PUBLISH_FIRST
            sequence[SLOT(n)] = SEQUENCE(n + 1);
#endif
            d_step { host_flying[id] = n + 1; host_slot[id] = SLOT(n) }
            host_flying[id] == 0; /* a release */
#ifndef BROKEN_PUBLISH_FIRST
            sequence[SLOT(n)] = SEQUENCE(n + 1)
#endif
        :: else -> break
        fi
    od
}

inline drop()
{
    d_step
    {
        for (k : 0 .. (SLOTS - 1)) { l2[k] = 0 }
        k = 0
    }
}
inline read_all()
{
    for (i : 0 .. (found - 1)) {
        d_step
        {
            if
            :: l2[SLOT(n + i)] -> skip
            :: else -> l2[SLOT(n + i)] = memory[SLOT(n + i)]
            fi;
            take(n + i, l2[SLOT(n + i)])
        }
    }
    i = 0
}
#define FREE_ALL popped = SEQUENCE(n + found)

proctype device_pops()
{
    byte n, found, i, k;
    do
    :: n < TOTAL ->
        do
        :: found < BATCH && n + found < TOTAL && sequence[SLOT(n + found)] == SEQUENCE(n + found + 1) -> found++
        :: found > 0 -> break
        od;
#ifndef BROKEN_NO_ACQUIRE
        drop();
#endif
#ifdef BROKEN_FREE_FIRST
        FREE_ALL;
        read_all();
#else
        read_all();
        FREE_ALL;
#endif
        n = n + found; found = 0
    :: else -> break
    od
}

#else

/* The first one may end in any pop: before it has moved the position, or after that, and then its message is lost, and
   nothing else. */
proctype host_pops(bit ends)
{
    byte n, value, there;
    do
    :: n = position;
        if
        :: n == TOTAL -> break
        :: else -> skip
        fi;
#ifdef BROKEN_EARLY_READ
        value = memory[SLOT(n)];
#endif
        if
        :: sequence[SLOT(n)] == SEQUENCE(n + 1) -> skip
        :: else -> goto again /* there is none, or another thread has popped it */
        fi;
#if !defined(BROKEN_EARLY_READ) && !defined(BROKEN_LATE_READ)
        value = memory[SLOT(n)];
#endif
#ifndef BROKEN_NO_LOOK
        there = (position == n);
#else
        there = 1;
#endif
#ifndef BROKEN_LATE_READ
        assert(!there || value == n + 1);
#endif
        if
        :: ends -> goto dead
        :: !there -> goto again
        :: there -> skip
        fi;
#ifdef BROKEN_CLAIM
        position = n + 1; there = 1;
#else
        atomic {
            there = (position == n);
            if
            :: there -> position = n + 1
            :: else -> skip
            fi
#ifndef BROKEN_TWO_STEPS
            ; popped = SEQUENCE(position)
#endif
        };
#endif
        if
        :: !there -> goto again
        :: there && ends -> goto dead
        :: there -> skip
        fi;
#ifdef BROKEN_LATE_READ
        value = memory[SLOT(n)];
#endif
#ifdef BROKEN_TWO_STEPS
        popped == SEQUENCE(n);
        popped = SEQUENCE(n + 1);
#endif
#ifdef BROKEN_CLAIM
        popped = SEQUENCE(n + 1);
#endif
        take(n, value);
again:
        value = 0; there = 0
    od;
dead:
    skip
}

proctype device_pushes()
{
    byte n, found, i, seen = FIRST % MOD;
    do
    :: n < TOTAL ->
        do
        :: found < BATCH && n + found < TOTAL && ROOM(n + found, seen) -> found++
        :: found < BATCH && n + found < TOTAL && !ROOM(n + found, seen) && seen != popped -> seen = popped
        :: found > 0 -> break
        od;
        for (i : 0 .. (found - 1)) {
            d_step { flying[SLOT(n + i)] == 0 -> flying[SLOT(n + i)] = n + i + 1 }
        }
        i = 0;
#ifndef BROKEN_NO_DRAIN
        for (i : 0 .. (SLOTS - 1)) { flying[i] == 0 }
        i = 0;
#endif
#ifndef BROKEN_NO_WRITE_BACK
        d_step
        {
            for (i : 0 .. (SLOTS - 1)) {
                if
                :: dirty[i] -> memory[i] = l2[i]; dirty[i] = 0
                :: else -> skip
                fi
            }
            i = 0
        }
#endif
        for (i : 0 .. (found - 1)) { sequence[SLOT(n + i)] = SEQUENCE(n + i + 1) }
        i = 0;
        n = n + found; found = 0
    :: else -> break
    od
}

#endif

/* What may happen at any moment. */
#define MOVES(s)                                                                                   \
    ::d_step { flying[s] -> l2[s] = flying[s]; dirty[s] = 1; flying[s] = 0 }                       \
    ::d_step { dirty[s] -> memory[s] = l2[s]; dirty[s] = 0 }                                       \
    ::d_step { !l2[s] -> l2[s] = memory[s] }

proctype moves()
{
end:
    do
    MOVES(0)
    MOVES(1)
#if SLOTS == 4
    MOVES(2)
    MOVES(3)
#endif
    :: d_step { host_flying[0] -> memory[host_slot[0]] = host_flying[0]; host_flying[0] = 0; host_slot[0] = 0 }
    :: d_step { host_flying[1] -> memory[host_slot[1]] = host_flying[1]; host_flying[1] = 0; host_slot[1] = 0 }
    od
}

init
{
    byte i;
    atomic {
        for (i : 0 .. (SLOTS - 1)) { sequence[i] = SEQUENCE(i) }
        popped = FIRST % MOD;
        i = 0;
        run moves();
#ifdef FROM_DEVICE
        run host_pops(1);
        run host_pops(0);
        run device_pushes()
#else
        run host_pushes(0);
        run host_pushes(1);
        run device_pops()
#endif
    }
}
