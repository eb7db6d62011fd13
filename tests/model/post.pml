/* The task that the waves of a workgroup have begun, posted for the producer of the weight pipeline where nothing else tells
   it: fleeti_pipeline_begun and fleeti_produce_posted of fleet_sched.h, a sequence lock.

   The writer posts TASKS tasks one after the other, and does not wait for the reader: it stores in POST a number that is
   half the range away, which is none of a later task, then the WORDS words of the task, then its number in POST. The reader
   looks at POST, loads the words, and looks at POST again. It takes the task if it found the same number twice.

   Checked: the words that the reader takes are those of that task; the last task is taken.

   LDS is not taken to be in order: a store of the writer is in flight for any time, and overtakes those to other words,
   unless a release (fleeti_lds_release) or fleeti_lds_order comes between; likewise the loads of the reader.

     holds three_tasks
     holds three_words -DWORDS=3 -DTASKS=2
     twin no_order_after_mark -DBROKEN_NO_ORDER_AFTER_MARK: assertion violated
     twin no_order_before_look -DBROKEN_NO_ORDER_BEFORE_LOOK: assertion violated
     twin no_release -DBROKEN_NO_RELEASE: assertion violated
     twin no_mark -DBROKEN_NO_MARK: assertion violated
     twin no_second_look -DBROKEN_NO_SECOND_LOOK: assertion violated */

#ifndef TASKS
#define TASKS 3
#endif
#ifndef WORDS
#define WORDS 2
#endif
#define POST WORDS

#ifdef BROKEN_NO_ORDER_BEFORE_LOOK
#define MAY_LOOK_AGAIN !(looked & 128)
#else
#define MAY_LOOK_AGAIN looked == (1 << WORDS) - 1
#endif

byte lds[WORDS + 1], flying[WORDS + 1];
bit in_flight[WORDS + 1];

/* To one word stores arrive in their order. */
inline store(st_word, st_value)
{
    d_step { !in_flight[st_word] -> flying[st_word] = st_value; in_flight[st_word] = 1 }
}
inline order()
{
    for (k : 0 .. WORDS) { !in_flight[k] }
    k = 0
}

active proctype memory()
{
end:
    do
    :: d_step { in_flight[0] -> lds[0] = flying[0]; in_flight[0] = 0 }
    :: d_step { in_flight[1] -> lds[1] = flying[1]; in_flight[1] = 0 }
    :: d_step { in_flight[2] -> lds[2] = flying[2]; in_flight[2] = 0 }
#if WORDS == 3
    :: d_step { in_flight[3] -> lds[3] = flying[3]; in_flight[3] = 0 }
#endif
    od
}

active proctype writer()
{
    byte task = 1, i, k;
    do
    :: task <= TASKS ->
#ifndef BROKEN_NO_MARK
        order(); /* a release */
        store(POST, task + 128);
#endif
#ifndef BROKEN_NO_ORDER_AFTER_MARK
        order();
#endif
        for (i : 0 .. (WORDS - 1)) { store(i, task) }
#ifndef BROKEN_NO_RELEASE
        order();
#endif
        store(POST, task);
        task++
    :: else -> break
    od
}

active proctype reader()
{
    byte post, again, last, got[WORDS], k;
    byte looked; /* a bit for each load */
    do
    :: last < TASKS ->
        post = lds[POST]; /* an acquire: the loads below come after it */
        if
        :: post > last && post < 128 ->
            do
            :: !(looked & 1) -> got[0] = lds[0]; looked = looked | 1
            :: !(looked & 2) -> got[1] = lds[1]; looked = looked | 2
#if WORDS == 3
            :: !(looked & 4) -> got[2] = lds[2]; looked = looked | 4
#endif
            :: MAY_LOOK_AGAIN ->
#ifdef BROKEN_NO_SECOND_LOOK
                again = post;
#else
                again = lds[POST];
#endif
                looked = looked | 128
            :: looked == 127 + (1 << WORDS) -> break
            od;
            looked = 0;
            if
            :: again == post ->
                for (k : 0 .. (WORDS - 1)) { assert(got[k] == post) }
                k = 0;
                last = post
            :: else -> skip
            fi;
            again = 0
        :: else -> skip
        fi;
        post = 0
    :: else -> break
    od
}
