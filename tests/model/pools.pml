/* Two pools of a server that share the tiles of a layer: fleeti_turn_begin and fleeti_turn_end, fleet_server_share, fleet_share_next
   and the idle wait of fleet_server_next of fleet_server.h.

   Pool 0 has LAYERS layers of TILES tiles each. Before each of them it decides whether pool 1 helps, as it likes. Pool 1 helps
   while the layer is lent, and otherwise waits for the bell.

   Checked: each tile is run once, in its layer, and by pool 1 only in a layer that was lent; a layer begins when all tiles
   before it have run; one boundary has the table at a time; both pools end (no invalid end state).

   Words are read and written in program order: what edges 36 to 38 order is the order of these steps.

     holds pools
     deep pools_4 -DLAYERS=4
     reach pool_1_helps -DREACH_HELP
     reach loan_ends_under_pool_1 -DREACH_LOAN_ENDS
     twin no_ticket -DBROKEN_NO_TICKET: assertion violated
     twin loan_ends_without_bell -DBROKEN_NO_BELL: invalid end state
     twin bell_read_last -DBROKEN_BELL_READ_LAST: invalid end state
     twin loan_read_first -DBROKEN_LOAN_READ_FIRST: assertion violated
     twin layer_does_not_wait -DBROKEN_NO_WAIT: assertion violated
     twin tile_counted_when_taken -DBROKEN_COUNTED_EARLY: assertion violated
     twin tile_taken_without_cas -DBROKEN_NO_CAS: assertion violated */

#ifndef LAYERS
#define LAYERS 3
#endif
#define TILES 2

byte turns, turn, within;        /* the ticket of the next boundary, the one that has the table, and boundaries that do */
byte bell, handed, taken, ran;   /* tiles of all layers so far: handed out, taken, run */
byte layer;
bit lent, stop;
bit was_lent[LAYERS], done[LAYERS * TILES];

inline turn_begin()
{
#ifdef BROKEN_NO_TICKET
    ticket = turn;
#else
    atomic { ticket = turns; turns++ };
#endif
    turn == ticket;
    within++;
    assert(within == 1)
}
inline turn_end()
{
    within--;
    turn = ticket + 1
}

/* Tiles until there are none: for pool 0 of its layer, for pool 1 until the layer is not lent. */
inline share(pool)
{
    own = 0;
    do
    ::
#ifndef BROKEN_BELL_READ_LAST
        seen = bell;
#endif
#ifdef BROKEN_LOAN_READ_FIRST
        helps = pool == 0 || lent;
#endif
        end = handed;
#ifndef BROKEN_LOAN_READ_FIRST
        helps = pool == 0 || lent;
#endif
#ifdef BROKEN_BELL_READ_LAST
        seen = bell;
#endif
        found = 0;
        do
        :: helps && !found ->
            tile = taken;
            if
            :: tile >= end -> break
            :: else ->
#ifdef BROKEN_NO_CAS
                taken = tile + 1; found = 1
#else
                atomic {
                    if
                    :: taken == tile -> taken = tile + 1; found = 1
                    :: else -> skip
                    fi
                }
#endif
            fi
        :: else -> break
        od;
        if
        :: found ->
#ifdef BROKEN_COUNTED_EARLY
            atomic { ran = ran + 1 };
#endif
            assert(!done[tile] && layer == tile / TILES);
            done[tile] = 1;
#ifdef REACH_HELP
            assert(pool == 0);
#endif
            assert(pool == 0 || was_lent[tile / TILES]);
            assert(layer == tile / TILES); /* when it ends */
#ifndef BROKEN_COUNTED_EARLY
            own++
#endif
        :: else ->
            atomic { ran = ran + own; own = 0 };
            if
            :: pool == 0 || !helps -> break
            :: else -> bell != seen
            fi
        fi
    od
}

proctype pool_0()
{
    byte ticket, own, seen, end, tile, n = 0;
    bit before, helps, found;
    do
    :: n < LAYERS ->
#ifndef BROKEN_NO_WAIT
        ran == handed;
#endif
        turn_begin();
        before = lent;
        if
        :: lent = 1
        :: lent = 0
        fi;
        was_lent[n] = lent;
#ifndef BROKEN_NO_BELL
        if
        :: before != lent -> bell++
        :: else -> skip
        fi;
#endif
        turn_end();
        layer = n;
        handed = handed + TILES;
        if
        :: lent -> bell++
        :: else -> skip
        fi;
        share(0);
        n++
    :: else -> break
    od;
    ran == handed;
    turn_begin();
    before = lent;
    lent = 0;
#ifndef BROKEN_NO_BELL
    if
    :: before -> bell++
    :: else -> skip
    fi;
#endif
    turn_end();
    stop = 1
}

proctype pool_1()
{
    byte ticket, own, seen, end, tile, idle;
    bit helps, found, loan;
    do
    ::
        turn_begin();
        loan = lent;
        idle = bell;
        turn_end();
        if
        :: loan -> share(1)
#ifdef REACH_LOAN_ENDS
            ; assert(stop)
#endif
        :: !loan && stop -> break
        :: !loan && !stop -> (bell != idle || stop)
        fi
    od
}

init {
    atomic {
        run pool_0();
        run pool_1()
    }
}
