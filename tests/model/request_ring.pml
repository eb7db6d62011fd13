/* The rings of messages between host threads and one worker of the device: fleet_ring_push, fleet_ring_pop and
   fleeti_message_claim (host), fleet_ring_try_push and fleet_ring_try_pop (device) of fleet_sched.h.

   Two host threads push and the worker pops, or, with FROM_DEVICE, the worker pushes and two host threads pop; TOTAL
   messages over SLOTS slots. The worker moves up to BATCH messages at once. Message n has the value n + 1. Sequence
   numbers are those of the code modulo MOD, and the first message has the number FIRST: they wrap.

   Checked: each message is popped once, with its own value, which neither an older nor a newer message of the slot has
   replaced; a host thread that finds a slot ahead of the number that it wants has really been overtaken; no process is stuck.

   Memory. Sequence numbers are atomics. A host thread's plain store is in flight for any time, unless its release waits
   for it. The worker's plain store is in flight, then in its L2, and in memory when it is written back or evicted. The
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
     twin numbers_that_do_not_wrap -DBROKEN_COMPARE: assertion violated
     twin claimed_without_cas -DBROKEN_CLAIM: assertion violated
     twin no_drain -DBROKEN_NO_DRAIN -DFROM_DEVICE: assertion violated
     twin no_write_back -DBROKEN_NO_WRITE_BACK -DFROM_DEVICE: assertion violated
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
#ifdef FROM_DEVICE
#define STATE 1 /* what a host thread waits for: the message */
#else
#define STATE 0 /* room */
#endif

byte sequence[SLOTS];
byte memory[SLOTS];                   /* the messages */
byte flying[SLOTS], l2[SLOTS];        /* the worker's; 0: none */
bit dirty[SLOTS];
byte host_flying[2], host_slot[2];    /* a host thread's store */
byte position;                        /* of the host's end */
bit popped[TOTAL];

inline take(tk_n, tk_value)
{
    assert(tk_value == tk_n + 1 && !popped[tk_n]);
    popped[tk_n] = 1
}

/* fleeti_message_claim: n and slot are set when it breaks with claimed. */
inline claim()
{
    n = position;
    do
    :: n < TOTAL ->
#ifdef BROKEN_EARLY_READ
        value = memory[SLOT(n)];
#endif
#ifdef BROKEN_COMPARE
        ahead = sequence[SLOT(n)] - SEQUENCE(n + STATE);
#else
        ahead = (sequence[SLOT(n)] - SEQUENCE(n + STATE) + MOD) % MOD;
        if
        :: ahead >= MOD / 2 -> ahead = ahead - MOD
        :: else -> skip
        fi;
#endif
#ifdef BROKEN_NO_ROOM
        ahead = 0;
#endif
        if
        :: ahead < 0 -> /* full, or empty: the caller comes back later */
#ifdef REACH_FULL
            assert(false);
#endif
            ahead = 0; n = position
        :: ahead > 0 ->
            assert(position != n); /* another thread took it */
#ifdef REACH_OVERTAKEN
            assert(false);
#endif
            ahead = 0; n = position
        :: ahead == 0 ->
#ifdef BROKEN_CLAIM
            position = n + 1; break
#else
            atomic {
                if
                :: position == n -> position = n + 1; break
                :: else -> n = position
                fi
            }
#endif
        fi
    :: else -> break
    od
}

#ifndef FROM_DEVICE

proctype host_pushes(bit id)
{
    byte n;
    short ahead;
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
inline free_all()
{
    for (i : 0 .. (found - 1)) { sequence[SLOT(n + i)] = SEQUENCE(n + i + SLOTS) }
    i = 0
}

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
        free_all();
        read_all();
#else
        read_all();
        free_all();
#endif
        n = n + found; found = 0
    :: else -> break
    od
}

#else

proctype host_pops()
{
    byte n, value;
    short ahead;
    do
    :: claim();
        if
        :: n < TOTAL ->
#ifndef BROKEN_EARLY_READ
            value = memory[SLOT(n)];
#endif
            take(n, value);
            sequence[SLOT(n)] = SEQUENCE(n + SLOTS);
            value = 0
        :: else -> break
        fi
    od
}

proctype device_pushes()
{
    byte n, found, i;
    do
    :: n < TOTAL ->
        do
        :: found < BATCH && n + found < TOTAL && sequence[SLOT(n + found)] == SEQUENCE(n + found) -> found++
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
        i = 0;
        run moves();
#ifdef FROM_DEVICE
        run host_pops();
        run host_pops();
        run device_pushes()
#else
        run host_pushes(0);
        run host_pushes(1);
        run device_pops()
#endif
    }
}
