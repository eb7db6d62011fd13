/* Litmus programs that expose each wait, fence and invalidate of the AMD section as much as they can: every
   wave stores right before the notify, and every reader has the same lines cached from the epoch before.
   tests/isa/mutate.sh builds this with mutated headers and runs it on the simulated MI300X. The implementation, which
   is host code but for a few kernels around a run, is built once and linked.

     litmus NAME [EPOCHS [SLICES]]      ends with 0 and prints "ok NAME" when every value read was the right one

   By hand (X chiplets, W workgroups of 256 threads on each):
     device1, device2   all workgroups notify and wait for one another; one or two levels of counters
     lone               the same, one wave per workgroup, which notifies and waits as FLEET_WAVE
     chiplet            the same among the workgroups of each chiplet, at chiplet scope
     system             host and device in turn; payload in host memory, and in device memory for each other
     order              fleet_add_acq_rel_device, fleet_load_acquire_device, by one thread of each workgroup
     order_system       the same at system scope
     test               fleet_test_device in a loop: all waves agree on each answer
     wait               two waits in a row, of which the second fails: all waves agree on each status
     publish            a record for the host, then the word that tells of it
     lanes              lanes of a wave hand values over through LDS
     ring               one workgroup pushes to a ready ring, the others pop as eagerly as they can
     messages           workgroups in pairs: one pushes to a ring of messages, the other pops
   Plans (steps in one launch, and three launches):
     static, dealt      device-, chiplet-, CU- and wavefront-tasks under STATIC and CHIPLET
     ready, some        the same under DYNAMIC, and with one grid DYNAMIC and the others STATIC
     replays            the device-, CU- and other tasks of `dealt`, in launches that a graph of HIP's replays
     routed             run-time maps under DYNAMIC: tasks that tensors name read what gathers have published
     carry, passed,     a symbol bound at launch; each task reads what others wrote in the step before: under STATIC,
     early              DYNAMIC, and DYNAMIC with early pushes
     fails, fails_dealt a tile fails in the second step, under STATIC and CHIPLET: no task that depends on it runs; then
                        recovery, and a run that is right
     ends, ends_dealt,  a tile ends the run after its step, under STATIC, CHIPLET and DYNAMIC, while other workers have
     ends_ready         ended theirs; then runs that nothing ends early
     aborts             the host aborts a launch that waits for what never comes
     flow               a weight pipeline; some tasks leave stages unacquired
     ranks,             one graph over all devices (AMDSIM_DEVICES): each rank stores to the next and reads from it,
     ranks_dealt        under STATIC and CHIPLET, and flagged data goes round
     small              only the device-task under CHIPLET, whose counts matter: invariant 5
     residency          only the device-task under STATIC, in many launches */
#define LITMUS_MAIN /* where mutants are chosen by a run: litmus_host, litmus_device (mutants.py) */
#include "examples/parts/fleet_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 256
#define SLAB 1024 /* words that a workgroup writes per epoch: four of each thread */

FLEET_EVENT_TENSOR1(etensor, elements)

typedef struct litmus {
    etensor ready, read;     /* all wrote; all have read */
    etensor go, done;        /* system: host to device, device to host */
    uint32_t *slab;          /* [blocks][SLAB] */
    uint32_t *rank;          /* [FLEET_MAX_CHIPLETS] lines */
    uint32_t *errors;        /* [0] wrong values, [1] failed waits */
    uint32_t *in, *out;      /* host memory */
    uint32_t blocks, epochs; /* blocks = chiplets x workers */
    uint32_t workers;
} litmus;

FLEET_DEVICE uint32_t value_of(uint32_t epoch, uint32_t block, uint32_t i)
{
    return (epoch * 64 + block) * SLAB + i;
}
FLEET_DEVICE void fill(const litmus *l, uint32_t block, uint32_t epoch, uint32_t thread,
                       uint32_t threads)
{
    for (uint32_t i = thread; i < SLAB; i += threads)
        l->slab[block * SLAB + i] = value_of(epoch, block, i);
}
/* Wrong values in a whole slab. */
FLEET_DEVICE uint32_t look(const litmus *l, uint32_t block, uint32_t epoch, uint32_t thread,
                           uint32_t threads)
{
    uint32_t wrong = 0;
    for (uint32_t i = thread; i < SLAB; i += threads)
        wrong += l->slab[block * SLAB + i] != value_of(epoch, block, i);
    return wrong;
}
FLEET_DEVICE void tell(const litmus *l, uint32_t wrong, uint32_t failed)
{
    if (wrong) fleet_add_relaxed_device(l->errors, wrong);
    if (failed) fleet_add_relaxed_device(l->errors + 1, 1);
}

/* What is read too early is counted but not judged: it only fills the caches. */
FLEET_DEVICE void keep(const litmus *l, uint32_t stale)
{
    if (stale) fleet_add_relaxed_device(l->errors + 32, stale);
}

#define ALL_MEET(name, group, thread, threads)                                                     \
    FLEET_GLOBAL(THREADS) void name(litmus l)                                                      \
    {                                                                                              \
        const uint32_t block = fleet_block_id();                                                   \
        fleet_event ready = etensor_at(&l.ready, 0), read = etensor_at(&l.read, 0);                \
        uint32_t wrong = 0, failed = 0;                                                            \
        for (uint32_t e = 1; e <= l.epochs && !failed; e++) {                                      \
            fill(&l, block, e, thread, threads);                                                   \
            fleet_notify_device(group, ready, e);                                                  \
            if ((failed = (uint32_t)fleet_wait_device(group, ready, e))) break;                    \
            for (uint32_t k = 1; k < l.blocks; k += 2)                                             \
                wrong += look(&l, (block + k) % l.blocks, e, thread, threads);                     \
            fleet_notify_device(group, read, e);                                                   \
            failed = (uint32_t)fleet_wait_device(group, read, e);                                  \
        }                                                                                          \
        tell(&l, wrong, failed);                                                                   \
    }
ALL_MEET(meet, FLEET_BLOCK, fleet_thread_id(), fleet_thread_count())
ALL_MEET(meet_lone, FLEET_WAVE, fleet_lane(), fleet_wave_size())

/* Each workgroup finds its place on its chiplet; chiplet k's workgroups use elements and slabs of their own. */
FLEET_GLOBAL(THREADS) void meet_chiplet(litmus l)
{
    const uint32_t chiplet = fleet_chiplet_id();
    FLEET_LDS(uint32_t, found, 1);
    uint32_t rank, base, wrong = 0, failed = 0;
    fleet_event ready = etensor_at(&l.ready, chiplet), read = etensor_at(&l.read, chiplet);
    if (fleet_thread_id() == 0) *found = fleet_add_relaxed_device(l.rank + chiplet * 32, 1);
    fleet_block_barrier();
    rank = *found;
    base = chiplet * l.workers;
    for (uint32_t e = 1; e <= l.epochs && !failed; e++) {
        fill(&l, base + rank, e, fleet_thread_id(), fleet_thread_count());
        fleet_notify_chiplet(FLEET_BLOCK, ready, e);
        if ((failed = (uint32_t)fleet_wait_chiplet(FLEET_BLOCK, ready, e))) break;
        for (uint32_t k = 1; k < l.workers; k++)
            wrong +=
                look(&l, base + (rank + k) % l.workers, e, fleet_thread_id(), fleet_thread_count());
        fleet_notify_chiplet(FLEET_BLOCK, read, e);
        failed = (uint32_t)fleet_wait_chiplet(FLEET_BLOCK, read, e);
    }
    tell(&l, wrong, failed);
}

/* The host fills `in` and notifies `go`; workgroups check it, answer in `out` and in their slabs, notify `done`,
   for which the host waits and they too. */
FLEET_GLOBAL(THREADS) void meet_host(litmus l)
{
    const uint32_t block = fleet_block_id(), thread = fleet_thread_id();
    fleet_event go = etensor_at(&l.go, 0), done = etensor_at(&l.done, 0);
    fleet_event read = etensor_at(&l.read, 0);
    uint32_t wrong = 0, failed = 0, stale = 0;
    for (uint32_t e = 1; e <= l.epochs && !failed; e++) {
        stale += l.in[thread] != value_of(e, 0, thread);
        if ((failed = (uint32_t)fleet_wait_system(FLEET_BLOCK, go, e))) break;
        wrong += l.in[thread] != value_of(e, 0, thread);
        for (uint32_t k = 1; k < l.blocks; k++)
            stale += look(&l, (block + k) % l.blocks, e, thread, THREADS);
        l.out[block * THREADS + thread] = value_of(e, block, thread);
        fill(&l, block, e, thread, THREADS);
        fleet_notify_system(FLEET_BLOCK, done, e);
        if ((failed = (uint32_t)fleet_wait_system(FLEET_BLOCK, done, e))) break;
        for (uint32_t k = 1; k < l.blocks; k++)
            wrong += look(&l, (block + k) % l.blocks, e, thread, THREADS);
        fleet_notify_device(FLEET_BLOCK, read, e);
        failed = (uint32_t)fleet_wait_device(FLEET_BLOCK, read, e);
    }
    tell(&l, wrong, failed);
    keep(&l, stale);
}

/* One thread of each workgroup writes a line of its slab; the last to arrive may read at once. */
#define ORDER(name, scope, word)                                                                   \
    FLEET_GLOBAL(64) void name(litmus l)                                                           \
    {                                                                                              \
        const uint32_t block = fleet_block_id();                                                   \
        uint32_t wrong = 0, stale = 0;                                                             \
        if (fleet_thread_id() != 0) return;                                                        \
        for (uint32_t e = 1; e <= l.epochs; e++) {                                                 \
            for (uint32_t i = 0; i < 64; i += 8) l.slab[block * SLAB + i] = value_of(e, block, i); \
            if (fleet_add_acq_rel_##scope(word, 1) + 1 != (2 * e - 1) * l.blocks) {                \
                uint32_t tries = 0;                                                                \
                for (uint32_t k = 1; k < l.blocks; k++)                                            \
                    stale += l.slab[(block + k) % l.blocks * SLAB] == 0;                           \
                while (fleet_load_acquire_##scope(word) < (2 * e - 1) * l.blocks)                  \
                    fleet_pause(&tries);                                                           \
            }                                                                                      \
            for (uint32_t k = 1; k < l.blocks; k++) {                                              \
                uint32_t other = (block + k) % l.blocks;                                           \
                for (uint32_t i = 0; i < 64; i += 8)                                               \
                    wrong += l.slab[other * SLAB + i] != value_of(e, other, i);                    \
            }                                                                                      \
            {                                                                                      \
                uint32_t tries = 0;                                                                \
                fleet_add_acq_rel_##scope(word, 1);                                                \
                while (fleet_load_relaxed_##scope(word) < 2 * e * l.blocks) fleet_pause(&tries);   \
            }                                                                                      \
        }                                                                                          \
        tell(&l, wrong, 0);                                                                        \
        keep(&l, stale);                                                                           \
    }
ORDER(order_device, device, l.errors + 64)
ORDER(order_system, system, l.in)

/* Workgroup 0 tests until the element is complete, then reads what the others wrote; each wave counts the
   answers that it got. */
FLEET_GLOBAL(THREADS) void agree_on_tests(litmus l)
{
    FLEET_LDS(uint32_t, count, THREADS / 64);
    fleet_event ready = etensor_at(&l.ready, 0), read = etensor_at(&l.read, 0);
    uint32_t wrong = 0, stale = 0;
    for (uint32_t e = 1; e <= l.epochs; e++) {
        if (fleet_block_id() == 0) {
            uint32_t tests = 1;
            for (uint32_t k = 1; k < l.blocks; k++)
                stale += look(&l, k, e, fleet_thread_id(), THREADS);
            while (!fleet_test_device(FLEET_BLOCK, ready, e) && tests < 100000) tests++;
            for (uint32_t k = 1; k < l.blocks; k++)
                wrong += look(&l, k, e, fleet_thread_id(), THREADS);
            fleet_block_barrier();
            if (fleet_lane() == 0) count[fleet_wave_id()] = tests;
            fleet_block_barrier();
            for (uint32_t w = 0; w < THREADS / 64; w++) wrong += count[w] != tests;
        } else {
            fill(&l, fleet_block_id(), e, fleet_thread_id(), THREADS);
            fleet_notify_device(FLEET_BLOCK, ready, e);
        }
        fleet_notify_device(FLEET_BLOCK, read, e);
        if (fleet_wait_device(FLEET_BLOCK, read, e)) break;
    }
    tell(&l, wrong, 0);
    keep(&l, stale);
}

/* The first wait is complete, the second ends by its stop word at its first look. */
FLEET_GLOBAL(THREADS) void agree_on_waits(litmus l)
{
    fleet_event ready = etensor_at(&l.ready, 0), never = etensor_at(&l.read, 0);
    uint32_t wrong = 0;
    if (fleet_thread_id() == 0) fleet_store_relaxed_device(l.errors + 64, FLEET_ERROR_ABORTED);
    fleet_notify_device(FLEET_BLOCK, ready, 1);
    never.watch.stop = l.errors + 64;
    for (uint32_t e = 1; e <= l.epochs; e++) {
        wrong += fleet_wait_device(FLEET_BLOCK, ready, 1) != FLEET_OK;
        wrong += fleet_wait_device(FLEET_BLOCK, never, 1) != FLEET_ERROR_ABORTED;
    }
    tell(&l, wrong, 0);
}

/* The host answers each record in `in` before the next is written. */
FLEET_GLOBAL(64) void publish(litmus l)
{
    uint32_t tries = 0;
    if (fleet_thread_id() != 0) return;
    for (uint32_t e = 1; e <= l.epochs; e++) {
        for (uint32_t i = 1; i < 16; i++) fleet_store_relaxed_system(l.out + 32 * i, e);
        fleeti_publish_system(l.out, e);
        for (uint32_t i = 0; i < 40; i++)
            fleet_pause(&tries); /* the host looks before any wait of this wave */
        while (fleet_load_relaxed_system(l.in) != e) fleet_pause(&tries);
    }
}

/* Each lane reads its neighbour's word, writes its own, and reads the neighbour's again. */
FLEET_GLOBAL(64) void lanes(litmus l)
{
    FLEET_LDS(uint32_t, words, 65);
    uint32_t *word = words + fleet_lane(), wrong = 0;
    word[0] = 0;
    if (fleet_lane() == 63) word[1] = 0;
    fleet_wave_barrier();
    for (uint32_t e = 1; e <= l.epochs; e++) {
        uint32_t before = word[1], after;
        fleet_wave_barrier();
        word[0] = e;
        fleet_wave_barrier();
        after = word[1];
        fleet_wave_barrier();
        wrong += fleet_lane() < 63 && (before != e - 1 || after != e);
    }
    tell(&l, wrong, 0);
}

/* Entry t of the ring is 7 (t + 1); the next is pushed when it has been taken: errors[64] counts them. */
#define RING_SLOTS 8
FLEET_GLOBAL(64) void race_for_entries(litmus l)
{
    fleeti_ring *ring = (fleeti_ring *)(void *)l.slab;
    uint32_t *taken = l.errors + 64, total = 32 * l.epochs, tries = 0, wrong = 0, failed = 0;
    fleet_watch watch;
    __builtin_memset(&watch, 0, sizeof watch);
    if (fleet_block_id() == 0) {
        for (uint32_t e = 1; e <= total; e++) {
            fleeti_ring_push(ring, RING_SLOTS - 1, fleet_lane() == 0, 7 * e);
            while (fleet_load_relaxed_device(taken) < e) fleet_pause(&tries);
        }
    } else if (fleet_thread_id() == 0) {
        while (fleet_load_relaxed_device(taken) < total) {
            uint32_t ticket, value;
            if (!fleeti_ring_reserve(ring, 1, 0, &ticket)) continue;
            failed |= (uint32_t)fleeti_ring_take(ring, RING_SLOTS - 1, ticket, &watch, &value);
            wrong += value != 7 * (ticket + 1);
            fleet_add_relaxed_device(taken, 1);
        }
        tell(&l, wrong, failed);
    }
}

/* In a pair's slab: the slots, the two ends, notes that the messages refer to. */
#define MESSAGE_SLOTS 4
#define MESSAGE_WORDS 7
#define MESSAGE_ENDS 256
#define MESSAGE_NOTES 512
FLEET_GLOBAL(64) void pass_messages(litmus l)
{
    FLEET_LDS(uint32_t, batch, 5 * MESSAGE_WORDS);
    const uint32_t pops = fleet_block_id() % 2, lane = fleet_lane();
    uint32_t *slab = l.slab + (fleet_block_id() - pops) * SLAB, *notes = slab + MESSAGE_NOTES;
    fleet_ring *end = (fleet_ring *)(void *)(slab + MESSAGE_ENDS + 32 * pops);
    uint32_t total = 32 * l.epochs, done = 0, tries = 0, wrong = 0, n;
    if ((fleet_block_id() | 1) >= l.blocks) return;
    for (; done < total; done += n) {
        uint32_t most = 1 + done % 5, number = done + lane;
        if (most > total - done) most = total - done;
        if (!pops && lane < most) {
            notes[number % 64] = value_of(number, 1, 0);
            for (uint32_t i = 0; i < MESSAGE_WORDS; i++)
                batch[lane * MESSAGE_WORDS + i] = value_of(number, 0, i);
        }
        n = pops ? fleet_ring_try_pop(end, batch, most) : fleet_ring_try_push(end, batch, most);
        if (pops && lane < n) {
            wrong += notes[number % 64] != value_of(number, 1, 0);
            for (uint32_t i = 0; i < MESSAGE_WORDS; i++)
                wrong += batch[lane * MESSAGE_WORDS + i] != value_of(number, 0, i);
        }
        if (!n) fleet_pause(&tries);
    }
    tell(&l, wrong, 0);
}

/* ---- plans -------------------------------------------------------------------------------------------- */

#define ROWS 4 /* wavefront-tasks per CU-task */

typedef struct tiles {
    uint32_t *made;   /* [chiplets][SLAB], by a device-task */
    uint32_t *mixed;  /* [tasks][SLAB], by CU-tasks, each from all of made */
    uint32_t *rows;   /* [tasks][ROWS][64], by wavefront-tasks, each from one of mixed */
    uint32_t *errors; /* [0] wrong values */
    uint32_t *in, *out;
    uint32_t chiplets, tasks;
    int32_t *topk, *counts, *indptr; /* routed: [TOKENS][2], [EXPERTS], [EXPERTS + 1] */
    uint32_t fails;                  /* the epoch in which a task fails, or ends the run; 0: none */
    fleet_peers peers; /* ranks: in each region after the kit's events, struct shared */
    uint64_t offset;
} tiles;

/* errors[RAN]: tasks that ran, of those that count. */
#define RAN 96
FLEET_DEVICE void ran(const tiles *args, const fleet_ctx *ctx, uint32_t wrong)
{
    if (wrong) fleet_add_relaxed_device(args->errors, wrong);
    if (ctx->tile_index == 0 && ctx->thread == 0) fleet_add_relaxed_device(args->errors + RAN, 1);
}

/* A slab for each slice: the workers of a chiplet share its writing. */
FLEET_TILE(make, tiles)
{
    FLEET_UNUSED(at);
    for (uint32_t i = ctx.thread * ctx.tile_num + ctx.tile_index; i < SLAB;
         i += ctx.threads * ctx.tile_num)
        args->made[ctx.slice * SLAB + i] = value_of(ctx.epoch, ctx.slice, i);
    return FLEET_OK;
}

FLEET_TILE(mix, tiles)
{
    uint32_t wrong = 0;
    for (uint32_t i = ctx.thread; i < SLAB; i += ctx.threads) {
        uint32_t sum = 0;
        for (uint32_t k = 0; k < args->chiplets; k++) {
            uint32_t made = args->made[k * SLAB + i];
            wrong += made != value_of(ctx.epoch, k, i);
            sum += made;
        }
        args->mixed[(uint32_t)at[0] * SLAB + i] = sum;
    }
    if (wrong) fleet_add_relaxed_device(args->errors, wrong);
    return FLEET_OK;
}

FLEET_TILE(split, tiles)
{
    uint32_t wrong = 0;
    for (uint32_t r = 0; r < SLAB / 64; r++) {
        uint32_t i = r * 64 + ctx.thread, sum = 0;
        for (uint32_t k = 0; k < args->chiplets; k++) sum += value_of(ctx.epoch, k, i);
        wrong += args->mixed[(uint32_t)at[0] * SLAB + i] != sum;
    }
    args->rows[(uint32_t)(at[0] * ROWS + at[1]) * 64 + ctx.thread] = ctx.epoch;
    if (wrong) fleet_add_relaxed_device(args->errors, wrong);
    return FLEET_OK;
}

/* A chiplet-task per chiplet: reads what wavefront-tasks wrote everywhere, and what the host wrote; writes for
   the host. */
FLEET_TILE(gather, tiles)
{
    uint32_t wrong = args->in && args->in[ctx.thread & 63] != ctx.epoch;
    for (uint32_t i = ctx.thread; i < args->tasks * ROWS * 64; i += ctx.threads)
        wrong += args->rows[i] != ctx.epoch;
    if (args->out && ctx.tile_index == 0 && ctx.thread < 64)
        args->out[(uint32_t)at[0] * 64 + ctx.thread] = ctx.epoch;
    ran(args, &ctx, wrong);
    return FLEET_OK;
}

/* Even and odd steps have slabs of their own: what a task reads was cached two steps before, with other values. */
FLEET_DEVICE uint32_t *slab_of(const tiles *args, uint32_t task, uint32_t epoch)
{
    return args->mixed + (epoch % 2 * args->tasks + task) * SLAB;
}
FLEET_TILE(carry, tiles)
{
    const uint32_t self = (uint32_t)at[0], n = (uint32_t)ctx.symbols[0], before = ctx.epoch - 1;
    uint32_t wrong = self >= n;
    for (uint32_t k = 1; k < n && before; k += 2) {
        const uint32_t other = (self + k) % n;
        for (uint32_t i = ctx.thread; i < SLAB; i += 2 * ctx.threads)
            wrong += slab_of(args, other, before)[i] != value_of(before, other, i);
    }
    for (uint32_t i = ctx.thread; i < SLAB; i += ctx.threads)
        slab_of(args, self, ctx.epoch)[i] = value_of(ctx.epoch, self, i);
    ran(args, &ctx, wrong);
    return FLEET_OK;
}
/* Two events: the task of its own number, and all of them. */
FLEET_TILE(pair, tiles)
{
    const uint32_t self = (uint32_t)at[0], n = (uint32_t)ctx.symbols[0];
    uint32_t wrong = self >= n;
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t i = ctx.thread + 3 * ctx.threads; i < SLAB; i += ctx.threads)
            wrong += slab_of(args, k, ctx.epoch)[i] != value_of(ctx.epoch, k, i);
    ran(args, &ctx, wrong);
    return FLEET_OK;
}

FLEET_TILE(may_fail, tiles)
{
    if (ctx.epoch == args->fails && (uint32_t)at[0] == args->tasks / 2) return FLEET_ERROR_ARGUMENT;
    if (args->out) fleet_store_relaxed_system(args->out, 1); /* the run has begun */
    for (uint32_t i = ctx.thread; i < 64; i += ctx.threads)
        args->mixed[(uint32_t)at[0] * 64 + i] = ctx.epoch;
    return FLEET_OK;
}
FLEET_TILE(depend, tiles)
{
    uint32_t wrong = args->fails && ctx.epoch >= args->fails;
    for (uint32_t i = ctx.thread; i < 64; i += ctx.threads)
        wrong += args->mixed[(uint32_t)at[0] * 64 + i] != ctx.epoch;
    ran(args, &ctx, wrong);
    return FLEET_OK;
}

/* The first task ends the run, when the others have ended. */
FLEET_TILE(end_early, tiles)
{
    uint32_t tries = 0;
    ran(args, &ctx, args->fails && ctx.epoch > args->fails);
    if (at[0] || ctx.epoch != args->fails) return FLEET_OK;
    for (uint32_t k = 0; k < 50; k++) fleet_pause(&tries);
    return ctx.thread == ctx.threads - 1 ? fleet_finish(&ctx) : FLEET_OK;
}

/* What a rank's region holds for the others. */
#define RANK_TASKS 6
typedef struct shared {
    uint32_t pushed[RANK_TASKS][SLAB]; /* by the rank before */
    uint32_t kept[RANK_TASKS][SLAB];   /* by this rank, for the rank before */
    fleet_quad flagged[RANK_TASKS][64];
} shared;
FLEET_DEVICE shared *shared_of(const tiles *args, uint32_t rank)
{
    return (shared *)(void *)((char *)args->peers.bases[rank % args->peers.ranks] + args->offset);
}
/* (rank, task): stores to the rank after, and to its own memory. */
FLEET_TILE(push, tiles)
{
    const uint32_t rank = (uint32_t)at[0], task = (uint32_t)at[1], self = rank * RANK_TASKS + task;
    for (uint32_t i = ctx.thread; i < SLAB; i += ctx.threads)
        shared_of(args, rank + 1)->pushed[task][i] = shared_of(args, rank)->kept[task][i] =
            value_of(ctx.epoch, self, i);
    return FLEET_OK;
}
/* (rank, task): what the rank before has stored here, and what the rank after keeps. */
FLEET_TILE(pull, tiles)
{
    const uint32_t rank = (uint32_t)at[0], ranks = args->peers.ranks;
    const uint32_t before = (rank + ranks - 1) % ranks, after = (rank + 1) % ranks;
    uint32_t wrong = 0;
    for (uint32_t k = 0; k < RANK_TASKS; k++)
        for (uint32_t i = ctx.thread; i < SLAB; i += ctx.threads) {
            wrong += shared_of(args, rank)->pushed[k][i] !=
                     value_of(ctx.epoch, before * RANK_TASKS + k, i);
            wrong += shared_of(args, after)->kept[k][i] !=
                     value_of(ctx.epoch, after * RANK_TASKS + k, i);
        }
    ran(args, &ctx, wrong);
    return FLEET_OK;
}
/* (rank, task): sends quads to the rank after, and takes those of the rank before. */
FLEET_TILE(pass, tiles)
{
    const uint32_t rank = (uint32_t)at[0], task = (uint32_t)at[1], ranks = args->peers.ranks;
    const uint32_t before = (rank + ranks - 1) % ranks;
    fleet_quad q;
    fleet_status status;
    uint32_t wrong = 0;
    if (ctx.thread >= 64) return FLEET_OK;
    for (uint32_t i = 0; i < 3; i++) q.word[i] = value_of(ctx.epoch, rank, 3 * ctx.thread + i);
    q.word[3] = ctx.epoch;
    fleet_store_flagged_system(&shared_of(args, rank + 1)->flagged[task][ctx.thread], q);
    status = fleet_await_flagged(&ctx, &shared_of(args, rank)->flagged[task][ctx.thread], ctx.epoch,
                                 before, &q);
    for (uint32_t i = 0; i < 3 && !status; i++)
        wrong += q.word[i] != value_of(ctx.epoch, before, 3 * ctx.thread + i);
    if (wrong) fleet_add_relaxed_device(args->errors, wrong);
    return status;
}

#define TOKENS 24
#define EXPERTS 6

/* Two experts for a token, others in each step, and the last expert's in every other step only. The last wave writes, the first one looks at what it wrote. */
FLEET_TILE(route, tiles)
{
    const uint32_t used = EXPERTS - ctx.epoch % 2;
    const uint32_t i = (uint32_t)at[0], first = (i + ctx.epoch) % used;
    if (ctx.thread == ctx.threads - 1) {
        args->topk[2 * i] = (int32_t)first;
        args->topk[2 * i + 1] = (int32_t)((first + 1 + i % (used - 1)) % used);
    }
    return FLEET_OK;
}

/* A tile for each expert that has tokens. */
FLEET_TILE(count, tiles)
{
    FLEET_UNUSED(at);
    if (ctx.thread != ctx.threads - 1) return FLEET_OK;
    args->indptr[0] = 0;
    for (uint32_t e = 0; e < EXPERTS; e++) {
        int32_t n = 0;
        for (uint32_t i = 0; i < 2 * TOKENS; i++) n += args->topk[i] == (int32_t)e;
        args->counts[e] = n;
        args->indptr[e + 1] = args->indptr[e] + (n > 0);
    }
    return FLEET_OK;
}

FLEET_TILE(scatter, tiles)
{
    for (uint32_t i = ctx.thread; i < SLAB; i += ctx.threads)
        args->mixed[(uint32_t)at[0] * SLAB + i] = value_of(ctx.epoch, (uint32_t)at[0], i);
    return FLEET_OK;
}

/* Tile t: the slabs of all tokens of its expert. */
FLEET_TILE(use, tiles)
{
    uint32_t wrong;
    int32_t e = 0;
    while (e < EXPERTS && args->indptr[e + 1] <= at[0]) e++;
    wrong = e == EXPERTS; /* there is no such tile in this step */
    for (uint32_t i = 0; i < 2 * TOKENS; i++) {
        if (args->topk[i] != e) continue;
        for (uint32_t k = ctx.thread; k < SLAB; k += ctx.threads)
            wrong += args->mixed[i / 2 * SLAB + k] != value_of(ctx.epoch, i / 2, k);
    }
    if (wrong) fleet_add_relaxed_device(args->errors, wrong);
    return FLEET_OK;
}

#define TILES(TILE, P)                                                                             \
    TILE(P, make)                                                                                  \
    TILE(P, mix)                                                                                   \
    TILE(P, split)                                                                                 \
    TILE(P, gather)                                                                                \
    TILE(P, route)                                                                                 \
    TILE(P, count)                                                                                 \
    TILE(P, scatter)                                                                               \
    TILE(P, use)                                                                                   \
    TILE(P, carry)                                                                                 \
    TILE(P, pair)                                                                                  \
    TILE(P, may_fail)                                                                              \
    TILE(P, depend) TILE(P, end_early) TILE(P, push) TILE(P, pull) TILE(P, pass)
FLEET_DISPATCH(tiles, TILES)

/* -DBY_HAND leaves the loop out: without it this compiles in half the time. */
FLEET_KERNEL(run_tiles, tiles, FLEET_ANY_THREADS(THREADS))
{
#if !defined(BY_HAND)
    FLEET_WORKER_LOOP(tiles);
#endif
}

/* A weight pipeline: waves read their share of a stage late, and every third task leaves half of its stages. */
#define STAGES 10
#define STAGE 256 /* words */
typedef struct flows {
    const uint32_t *weights; /* word i has i * 2654435761 */
    uint32_t *errors;
} flows;
#if !defined(BY_HAND) && !defined(NO_STREAM)
FLEET_PRODUCER(flow, flows)
{
    FLEET_UNUSED(ctx);
    fleet_producer_copy(producer, args->weights + (uint32_t)at[0] * STAGES * STAGE,
                        STAGES * STAGE * 4);
}
FLEET_TILE(flow, flows)
{
    const uint32_t waves = ctx.threads / fleet_wave_size();
    const uint32_t stages = at[0] % 3 == 1 ? STAGES / 2 : STAGES;
    fleet_consumer consumer = fleet_consumer_open(&ctx);
    uint32_t wrong = 0, tries = 0;
    for (uint32_t i = 0; i < stages; i++) {
        const uint32_t *stage = (const uint32_t *)fleet_stage_acquire(&consumer);
        if (!stage) return fleet_consumer_status(&consumer);
        for (uint32_t k = 0; k < 2 * fleet_wave_id(); k++) fleet_pause(&tries);
        for (uint32_t w = ctx.thread; w < STAGE; w += ctx.threads)
            wrong += stage[w] != (((uint32_t)at[0] * STAGES + i) * STAGE + w) * 2654435761u;
        fleet_stage_release(&consumer, waves);
    }
    if (wrong) fleet_add_relaxed_device(args->errors, wrong);
    if (ctx.thread == 0) fleet_add_relaxed_device(args->errors + RAN, 1);
    return FLEET_OK;
}
#define FLOWS(TILE, P) TILE(P, flow)
FLEET_DISPATCH_WITH_PIPELINE(flows, FLOWS, FLOWS, 4, STAGE * 4)
FLEET_KERNEL(run_flows, flows, FLEET_ANY_THREADS(THREADS))
{
    FLEET_WORKER_LOOP(flows);
}
#endif

/* ---- the host ------------------------------------------------------------------------------------------ */

static void must(const char *what, fleet_status status)
{
    if (!status) return;
    printf("wrong: %s: %s\n", what, fleet_status_text(status));
    exit(1);
}

static void *device_zeros(size_t bytes)
{
    void *memory;
    must("memory", fleet_device_alloc(&memory, bytes));
    must("clear", fleet_device_clear(memory, bytes, NULL));
    return memory;
}

static void *pinned_zeros(size_t bytes, void **device)
{
    void *memory;
    must("memory", fleet_pinned_alloc(&memory, device, bytes));
    memset(memory, 0, bytes);
    return memory;
}

static void describe(etensor *t, uint32_t elements, uint32_t target, uint32_t chiplets,
                     uint32_t share)
{
    memset(t, 0, sizeof *t);
    t->elements = elements;
    t->events.target = target;
    t->events.chiplets = chiplets;
    t->events.share = share;
    t->events.words = (uint32_t *)device_zeros(etensor_bytes(t));
}

static uint32_t errors_of(const litmus *l)
{
    uint32_t errors[2];
    must("end", fleet_to_host(errors, l->errors, sizeof errors, NULL));
    if (errors[0]) printf("wrong: %u values\n", errors[0]);
    if (errors[1]) printf("wrong: %u waits failed\n", errors[1]);
    return errors[0] || errors[1];
}
/* Tasks of a plan: each ran once. */
static uint32_t errors_of_plan(const litmus *l, uint32_t tasks)
{
    uint32_t count;
    must("end", fleet_to_host(&count, l->errors + RAN, sizeof count, NULL));
    if (count != tasks) printf("wrong: %u tasks ran, not %u\n", count, tasks);
    return errors_of(l) || count != tasks;
}

FLEET_THUNK1(meet_chiplet, litmus)
FLEET_THUNK1(meet_lone, litmus)
FLEET_THUNK1(order_device, litmus)
FLEET_THUNK1(order_system, litmus)
FLEET_THUNK1(agree_on_tests, litmus)
FLEET_THUNK1(agree_on_waits, litmus)
FLEET_THUNK1(lanes, litmus)
FLEET_THUNK1(race_for_entries, litmus)
FLEET_THUNK1(pass_messages, litmus)
FLEET_THUNK1(publish, litmus)
FLEET_THUNK1(meet_host, litmus)
FLEET_THUNK1(meet, litmus)

static void launch(fleet_kernel kernel, litmus *l, uint32_t blocks, uint32_t threads)
{
    void *args[1];
    fleet_kernel_desc d = fleet_kernel_desc_default();
    args[0] = l;
    d.blocks = blocks;
    d.threads = threads;
    d.cooperative = 1;
    must("launch", fleet_kernel_launch(kernel, args, &d));
}

/* 1 while the kernel runs. Asked before the host looks at a word: once it has ended, nothing changes. */
static uint32_t running(void)
{
    return hipStreamQuery(NULL) == hipErrorNotReady;
}
static void host_wait(const uint32_t *word, uint32_t want)
{
    uint32_t alive = 1;
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != want) {
        if (!alive) must("host", FLEET_ERROR_TIMEOUT);
        for (uint32_t i = 0; i < 1000 && __atomic_load_n(word, __ATOMIC_ACQUIRE) != want; i++)
            continue;
        alive = __atomic_load_n(word, __ATOMIC_ACQUIRE) == want || running();
    }
}

/* Empty rings near the wrap of their numbers, for each pair of workgroups. */
static void make_rings(const litmus *l)
{
    static uint32_t image[MESSAGE_NOTES] __attribute__((aligned(128)));
    fleet_ring host, end;
    for (uint32_t b = 0; b + 1 < l->blocks; b += 2) {
        uint32_t *slab = l->slab + b * SLAB, first = 0u - 40;
        must("ring", fleet_ring_init(&host, &end, image, slab, MESSAGE_SLOTS, MESSAGE_WORDS * 4));
        fleeti_ring_begin(&host, &end, first);
        memcpy(image + MESSAGE_ENDS, &end, sizeof end);
        memcpy(image + MESSAGE_ENDS + 32, &end, sizeof end);
        must("ring", fleet_to_device(slab, image, sizeof image, NULL));
    }
}

static uint32_t by_hand(const char *name, const fleet_topology *topology, uint32_t epochs)
{
    litmus l;
    void *in, *out, *go, *done;
    uint32_t *host_in, *host_out, *host_go, *host_done, wrong = 0, two, one_wave;
    memset(&l, 0, sizeof l);
    l.workers = topology->units[0] < 4 ? topology->units[0] : 4;
    l.blocks = topology->chiplets * l.workers;
    l.epochs = epochs;
    two = !strcmp(name, "device2");
    one_wave = !strcmp(name, "lone");
    if (!strcmp(name, "chiplet")) {
        describe(&l.ready, topology->chiplets, l.workers, 0, 0);
        describe(&l.read, topology->chiplets, l.workers, 0, 0);
    } else if (!strcmp(name, "test")) {
        describe(&l.ready, 1, l.blocks - 1, 0, 0);
        describe(&l.read, 1, l.blocks, 0, 0);
    } else {
        describe(&l.ready, 1, l.blocks, two ? topology->chiplets : 0, l.workers);
        describe(&l.read, 1, l.blocks, two ? topology->chiplets : 0, l.workers);
    }
    l.slab = (uint32_t *)device_zeros((size_t)l.blocks * SLAB * 4);
    l.rank = (uint32_t *)device_zeros(FLEET_MAX_CHIPLETS * FLEET_CACHE_LINE_BYTES);
    l.errors = (uint32_t *)device_zeros(512);
    host_in = (uint32_t *)pinned_zeros(4096, &in);
    host_out = (uint32_t *)pinned_zeros((size_t)(l.blocks + 2) * THREADS * 4, &out);
    host_go = (uint32_t *)pinned_zeros(FLEET_CACHE_LINE_BYTES, &go);
    host_done = (uint32_t *)pinned_zeros(FLEET_CACHE_LINE_BYTES, &done);
    l.in = (uint32_t *)in, l.out = (uint32_t *)out;
    l.go.elements = l.done.elements = 1;
    l.go.events.target = 1;
    l.done.events.target = l.blocks;
    l.go.events.words = (uint32_t *)go, l.done.events.words = (uint32_t *)done;
    must("set-up", fleet_stream_wait(NULL));
    if (!strcmp(name, "chiplet")) {
        launch(FLEET_KERNEL_OF(meet_chiplet), &l, l.blocks, THREADS);
    } else if (one_wave) {
        launch(FLEET_KERNEL_OF(meet_lone), &l, l.blocks, 64);
    } else if (!strcmp(name, "order")) {
        launch(FLEET_KERNEL_OF(order_device), &l, l.blocks, 64);
    } else if (!strcmp(name, "order_system")) {
        launch(FLEET_KERNEL_OF(order_system), &l, l.blocks, 64);
    } else if (!strcmp(name, "test")) {
        launch(FLEET_KERNEL_OF(agree_on_tests), &l, l.blocks, THREADS);
    } else if (!strcmp(name, "wait")) {
        launch(FLEET_KERNEL_OF(agree_on_waits), &l, l.blocks, THREADS);
    } else if (!strcmp(name, "lanes")) {
        launch(FLEET_KERNEL_OF(lanes), &l, 1, 64);
    } else if (!strcmp(name, "ring")) {
        launch(FLEET_KERNEL_OF(race_for_entries), &l, l.blocks, 64);
    } else if (!strcmp(name, "messages")) {
        make_rings(&l);
        launch(FLEET_KERNEL_OF(pass_messages), &l, l.blocks, 64);
    } else if (!strcmp(name, "publish")) {
        launch(FLEET_KERNEL_OF(publish), &l, 1, 64);
        for (uint32_t e = 1; e <= epochs; e++) {
            host_wait(host_out, e);
            for (uint32_t i = 1; i < 16; i++)
                wrong += __atomic_load_n(host_out + 32 * i, __ATOMIC_RELAXED) != e;
            __atomic_store_n(host_in, e, __ATOMIC_RELEASE);
        }
    } else if (!strcmp(name, "system")) {
        launch(FLEET_KERNEL_OF(meet_host), &l, l.blocks, THREADS);
        for (uint32_t e = 1; e <= epochs; e++) {
            for (uint32_t i = 0; i < THREADS; i++)
                __atomic_store_n(host_in + i, (e * 64) * SLAB + i, __ATOMIC_RELAXED);
            __atomic_fetch_add(host_go, 1, __ATOMIC_ACQ_REL);
            host_wait(host_done, e * l.blocks);
            for (uint32_t i = 0; i < l.blocks * THREADS; i++)
                wrong += __atomic_load_n(host_out + i, __ATOMIC_RELAXED) !=
                         (e * 64 + i / THREADS) * SLAB + i % THREADS;
        }
    } else if (!strcmp(name, "device1") || two) {
        launch(FLEET_KERNEL_OF(meet), &l, l.blocks, THREADS);
    } else
        must(name, FLEET_ERROR_NAME);
    if (wrong) printf("wrong: %u values on the host\n", wrong);
    return errors_of(&l) || wrong;
}

/* Why a run ended early. */
static fleet_status told(fleet_state *state)
{
    static char report[4096];
    fleet_state_report(state, report, sizeof report);
    fputs(report, stderr);
    return fleet_state_status(state) ? fleet_state_status(state) : FLEET_ERROR_TIMEOUT;
}

/* Two launches captured, and replayed until there were so many. */
static void replay(fleet_state *state, const fleet_launch_desc *desc, void *args, uint32_t launches)
{
    fleet_launch_desc d = *desc;
    hipStream_t stream;
    hipGraph_t graph;
    hipGraphExec_t exec;
    uint32_t failed = hipStreamCreateWithFlags(&stream, hipStreamNonBlocking) != hipSuccess;
    d.stream = stream;
    failed |= hipStreamBeginCapture(stream, hipStreamCaptureModeGlobal) != hipSuccess;
    for (uint32_t k = 0; k < 2 && !failed; k++)
        must("launch", fleet_launch(state, &d, FLEET_KERNEL_OF(run_tiles), args));
    failed |= hipStreamEndCapture(stream, &graph) != hipSuccess;
    failed |= hipGraphInstantiate(&exec, graph, NULL, NULL, 0) != hipSuccess;
    for (uint32_t k = 0; k < launches && !failed; k += 2)
        failed |= hipGraphLaunch(exec, stream) != hipSuccess;
    failed |= hipStreamSynchronize(stream) != hipSuccess;
    must("replay", failed ? FLEET_ERROR_DEVICE : FLEET_OK);
}

static uint32_t by_plan(const char *name, const fleet_topology *topology, uint32_t steps,
                        uint32_t slices)
{
    const uint32_t dynamic = !strcmp(name, "ready"); /* has no events of the outside */
    const uint32_t some =
        !strcmp(name, "some"); /* one grid from ready queues, the others from fixed ones */
    const uint32_t replays = !strcmp(name, "replays");
    const uint32_t whole =
        dynamic || some || replays || !strcmp(name, "static") || !strcmp(name, "dealt");
    const uint32_t outside = whole && !dynamic && !replays;
    const uint32_t launches = replays ? 4 : whole ? 3 : !strcmp(name, "residency") ? 16 : 1;
    const uint32_t workers = !strcmp(name, "residency") ? topology->units[0]
                             : topology->units[0] < 4   ? topology->units[0] - 1
                                                        : 3;
    tiles t;
    litmus l;
    void *args, *in, *out;
    uint32_t *host_in, *host_out, wrong = 0;
    fleet_plan *plan = NULL;
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_launch_desc d = fleet_launch_desc_default();
    fleet_image image;
    fleet_state state;
    fleet_graph *g = fleet_graph_create(NULL);
    memset(&t, 0, sizeof t);
    memset(&l, 0, sizeof l);
    t.chiplets = topology->chiplets;
    t.tasks = 2 * t.chiplets * workers;

    fleet_grid make_grid = fleet_call_device(g, "make", tiles_make, fleet_shape0(), 0);
    fleet_grid_level(g, make_grid, FLEET_LEVEL_DEVICE);
    if (slices) fleet_grid_slices(g, make_grid, fleet_dim_of(slices));
    if (whole) {
        fleet_dim n = fleet_dim_of(t.tasks);
        fleet_etensor made = fleet_event_tensor(g, "made", fleet_shape0(), FLEET_COUNT_DERIVED);
        fleet_etensor mixed = fleet_event_tensor(g, "mixed", fleet_shape1(n), FLEET_COUNT_DERIVED);
        fleet_etensor rows = fleet_event_tensor(g, "rows", fleet_shape0(), FLEET_COUNT_DERIVED);
        fleet_grid mix_grid = fleet_call_device(g, "mix", tiles_mix, fleet_shape1(n), 0);
        fleet_grid split_grid =
            fleet_call_device(g, "split", tiles_split, fleet_shape2(n, fleet_dim_of(ROWS)), 0);
        fleet_grid gather_grid =
            fleet_call_device(g, "gather", tiles_gather, fleet_shape1(fleet_dim_of(t.chiplets)), 0);
        fleet_grid_level(g, split_grid, FLEET_LEVEL_WAVE);
        fleet_grid_level(g, gather_grid, FLEET_LEVEL_CHIPLET);
        if (some) fleet_grid_schedule(g, mix_grid, FLEET_SCHEDULE_DYNAMIC);
        fleet_out_edge(g, make_grid, made, "->");
        fleet_in_edge(g, mix_grid, made, "i->");
        fleet_out_edge(g, mix_grid, mixed, "i->i");
        fleet_in_edge(g, split_grid, mixed, "ij->i");
        fleet_out_edge(g, split_grid, rows, "ij->");
        fleet_in_edge(g, gather_grid, rows, "i->");
        if (dynamic) fleet_in_edge(g, gather_grid, made, "i->"); /* two events: a join */
        if (outside) {
            fleet_etensor go = fleet_event_tensor(g, "go", fleet_shape0(), FLEET_COUNT_DERIVED);
            fleet_etensor gathered =
                fleet_event_tensor(g, "gathered", fleet_shape0(), FLEET_COUNT_DERIVED);
            fleet_in_edge(g, gather_grid, go, "i->");
            fleet_out_edge(g, gather_grid, gathered, "i->");
            fleet_event_external(g, go, FLEET_EXTERNAL_NOTIFIES, 1, FLEET_SCOPE_SYSTEM);
            fleet_event_external(g, gathered, FLEET_EXTERNAL_WAITS, 0, FLEET_SCOPE_SYSTEM);
        }
    }
    desc.topology = *topology;
    desc.workers_per_chiplet = workers;
    desc.schedule = dynamic ? FLEET_SCHEDULE_DYNAMIC
                    : some || !strcmp(name, "static") || !strcmp(name, "residency")
                        ? FLEET_SCHEDULE_STATIC
                        : FLEET_SCHEDULE_CHIPLET;
    if (fleet_plan_build(g, &desc, &plan)) {
        printf("wrong: %s\n", fleet_graph_error(g));
        return 1;
    }
    l.errors = (uint32_t *)device_zeros(512);
    t.errors = l.errors;
    t.made = (uint32_t *)device_zeros((size_t)(t.chiplets + slices) * SLAB * 4);
    t.mixed = (uint32_t *)device_zeros((size_t)t.tasks * SLAB * 4);
    t.rows = (uint32_t *)device_zeros((size_t)t.tasks * ROWS * 64 * 4);
    host_in = (uint32_t *)pinned_zeros(4096, &in);
    host_out = (uint32_t *)pinned_zeros((size_t)t.chiplets * 256, &out);
    if (outside) t.in = (uint32_t *)in, t.out = (uint32_t *)out;
    args = device_zeros(sizeof t);
    must("copy", fleet_to_device(args, &t, sizeof t, NULL));
    must("upload", fleet_upload(&image, plan, NULL));
    must("state", fleet_state_create(&state, &image, NULL, NULL));
    must("set-up", fleet_stream_wait(NULL));
    d.steps = steps;
    d.threads = THREADS;
    if (replays) replay(&state, &d, args, launches);
    for (uint32_t k = 0; k < launches && !replays; k++) {
        must("launch", fleet_launch(&state, &d, FLEET_KERNEL_OF(run_tiles), args));
        for (uint32_t e = k * steps + 1; e <= (k + 1) * steps && outside; e++) {
            for (uint32_t i = 0; i < 64; i++) __atomic_store_n(host_in + i, e, __ATOMIC_RELAXED);
            must("go", fleet_event_notify(&state, fleet_plan_event(plan, "go"), 0, e));
            for (uint32_t done = 0, alive = 1; !done;) {
                if (!alive) must("gathered", told(&state));
                alive = running();
                must("gathered",
                     fleet_event_test(&state, fleet_plan_event(plan, "gathered"), 0, e, &done));
            }
            for (uint32_t i = 0; i < t.chiplets * 64; i++)
                wrong += __atomic_load_n(host_out + i, __ATOMIC_RELAXED) != e;
        }
    }
    must("run", fleet_state_wait(&state, NULL));
    if (wrong) printf("wrong: %u values on the host\n", wrong);
    return errors_of_plan(&l, whole ? t.chiplets * steps * launches : 0) || wrong;
}

/* An image of the graph and a state on it. */
static void prepare(fleet_graph *g, const fleet_plan_desc *desc, fleet_state *state)
{
    static fleet_image image;
    fleet_plan *plan;
    if (fleet_plan_build(g, desc, &plan)) {
        printf("wrong: %s\n", fleet_graph_error(g));
        exit(1);
    }
    must("upload", fleet_upload(&image, plan, NULL));
    must("state", fleet_state_create(state, &image, NULL, NULL));
}
static void *device_copy(const void *from, size_t bytes)
{
    void *to = device_zeros(bytes);
    must("copy", fleet_to_device(to, from, bytes, NULL));
    return to;
}

static uint32_t by_symbol(const char *name, const fleet_topology *topology, uint32_t steps)
{
    /* One grid, so that nothing but the wait for the step before acquires. */
    const uint32_t alone = !strcmp(name, "carry");
    const uint32_t workers = topology->units[0] < 3 ? topology->units[0] : 3;
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_launch_desc d = fleet_launch_desc_default();
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_state state;
    tiles t;
    litmus l;
    void *args;
    uint32_t n;
    memset(&t, 0, sizeof t);
    memset(&l, 0, sizeof l);
    t.tasks = 2 * topology->chiplets * workers;
    n = t.tasks - t.tasks / 4;
    fleet_dim symbol = fleet_symbol(g, "n", 1, t.tasks);
    fleet_grid carry_grid = fleet_call_device(g, "carry", tiles_carry, fleet_shape1(symbol), 0);
    if (!alone) {
        fleet_etensor own = fleet_event_tensor(g, "own", fleet_shape1(symbol), FLEET_COUNT_DERIVED);
        fleet_etensor all = fleet_event_tensor(g, "all", fleet_shape0(), FLEET_COUNT_DERIVED);
        fleet_grid pair_grid = fleet_call_device(g, "pair", tiles_pair, fleet_shape1(symbol), 0);
        fleet_out_edge(g, carry_grid, own, "i->i");
        fleet_out_edge(g, carry_grid, all, "i->");
        fleet_in_edge(g, pair_grid, own, "i->i");
        fleet_in_edge(g, pair_grid, all, "i->");
    }
    desc.topology = *topology;
    desc.workers_per_chiplet = workers;
    desc.schedule = alone ? FLEET_SCHEDULE_STATIC : FLEET_SCHEDULE_DYNAMIC;
    desc.early_push = !strcmp(name, "early");
    prepare(g, &desc, &state);
    t.errors = l.errors = (uint32_t *)device_zeros(512);
    t.mixed = (uint32_t *)device_zeros((size_t)2 * t.tasks * SLAB * 4);
    args = device_copy(&t, sizeof t);
    must("bind", fleet_bind(&state, "n", n, NULL));
    must("set-up", fleet_stream_wait(NULL));
    d.steps = steps;
    d.threads = THREADS;
    for (uint32_t k = 0; k < 2; k++)
        must("launch", fleet_launch(&state, &d, FLEET_KERNEL_OF(run_tiles), args));
    if (fleet_state_wait(&state, NULL)) must("run", told(&state));
    return errors_of_plan(&l, 2 * steps * n * (alone ? 1 : 2));
}

/* A tile that fails, or an abort by the host: no task that depends on what did not happen runs. Then the state is
   recovered, and runs well. */
static uint32_t by_failure(const char *name, const fleet_topology *topology, uint32_t steps)
{
    const uint32_t workers = topology->units[0] < 4 ? topology->units[0] - 1 : 3;
    const uint32_t aborts = !strcmp(name, "aborts"), dealt = !strcmp(name, "fails_dealt");
    const fleet_status wanted = aborts ? FLEET_ERROR_ABORTED : FLEET_ERROR_TILE;
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_launch_desc d = fleet_launch_desc_default();
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_state state;
    fleet_status status;
    char report[4096];
    tiles t;
    litmus l;
    void *args, *out;
    uint32_t *begun = (uint32_t *)pinned_zeros(4096, &out);
    memset(&t, 0, sizeof t);
    memset(&l, 0, sizeof l);
    t.tasks = 12 * topology->chiplets * workers;
    t.fails = 2;
    fleet_dim n = fleet_dim_of(t.tasks);
    fleet_etensor all = fleet_event_tensor(g, "all", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_grid first = fleet_call_device(g, "may_fail", tiles_may_fail, fleet_shape1(n), 0);
    fleet_grid second = fleet_call_device(g, "depend", tiles_depend, fleet_shape1(n), 0);
    fleet_out_edge(g, first, all, "i->");
    fleet_in_edge(g, second, all, "i->");
    if (aborts) {
        fleet_etensor go = fleet_event_tensor(g, "go", fleet_shape0(), FLEET_COUNT_DERIVED);
        fleet_in_edge(g, second, go, "i->");
        fleet_event_external(g, go, FLEET_EXTERNAL_NOTIFIES, 1, FLEET_SCOPE_SYSTEM);
        t.fails = 1; /* nothing that waits may run */
        t.tasks = 0xffffffff;
        t.out = (uint32_t *)out;
    }
    desc.topology = *topology;
    desc.workers_per_chiplet = workers;
    desc.schedule = dealt ? FLEET_SCHEDULE_CHIPLET : FLEET_SCHEDULE_STATIC;
    prepare(g, &desc, &state);
    t.errors = l.errors = (uint32_t *)device_zeros(512);
    t.mixed = (uint32_t *)device_zeros((size_t)12 * topology->chiplets * workers * 64 * 4);
    args = device_copy(&t, sizeof t);
    must("set-up", fleet_stream_wait(NULL));
    d.steps = steps;
    d.threads = THREADS;
    must("launch", fleet_launch(&state, &d, FLEET_KERNEL_OF(run_tiles), args));
    if (aborts) {
        host_wait(begun, 1);
        fleet_state_abort(&state);
    }
    status = fleet_state_wait(&state, NULL);
    fleet_state_report(&state, report, sizeof report);
    if (status != wanted || (!aborts && !strstr(report, "may_fail"))) {
        printf("wrong: %s\n%s\n", fleet_status_text(status), report);
        return 1;
    }
    if (errors_of(&l) || aborts) return errors_of(&l);
    t.fails = 0;
    must("copy", fleet_to_device(args, &t, sizeof t, NULL));
    must("clear", fleet_device_clear(l.errors, 512, NULL));
    must("recover", fleet_state_recover(&state, NULL));
    must("launch", fleet_launch(&state, &d, FLEET_KERNEL_OF(run_tiles), args));
    if (fleet_state_wait(&state, NULL)) must("run", told(&state));
    return errors_of_plan(&l, t.tasks * steps);
}

/* Ends the run in epoch 4. What a task alone asked for in epoch 1, before, ends no run. */
static uint32_t by_end(const char *name, const fleet_topology *topology, uint32_t steps)
{
    const uint32_t workers = topology->units[0] < 4 ? topology->units[0] - 1 : 3;
    const uint32_t tasks = 2 * topology->chiplets * workers;
    static const uint32_t ends_in[] = {1, 0, 4, 0}; /* 0: no task ends it */
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_launch_desc d = fleet_launch_desc_default();
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_state state;
    tiles t;
    litmus l;
    void *args;
    memset(&t, 0, sizeof t);
    memset(&l, 0, sizeof l);
    fleet_call_device(g, "end_early", tiles_end_early, fleet_shape1(fleet_dim_of(tasks)), 0);
    desc.topology = *topology;
    desc.workers_per_chiplet = workers;
    desc.schedule = !strcmp(name, "ends_ready")   ? FLEET_SCHEDULE_DYNAMIC
                    : !strcmp(name, "ends_dealt") ? FLEET_SCHEDULE_CHIPLET
                                                  : FLEET_SCHEDULE_STATIC;
    prepare(g, &desc, &state);
    t.errors = l.errors = (uint32_t *)device_zeros(512);
    args = device_zeros(sizeof t);
    d.threads = THREADS;
    d.finish = 1;
    for (uint32_t k = 0; k < 4; k++) {
        t.fails = ends_in[k];
        d.steps = k == 2 ? steps : 2;
        must("copy", fleet_to_device(args, &t, sizeof t, NULL));
        must("set-up", fleet_stream_wait(NULL));
        must("launch", k ? fleet_launch(&state, &d, FLEET_KERNEL_OF(run_tiles), args)
                         : fleet_launch_task(&state, &d, FLEET_KERNEL_OF(run_tiles), args, 0, 0));
        if (fleet_state_wait(&state, NULL)) must("run", told(&state));
        if (!k) must("clear", fleet_device_clear(l.errors, 512, NULL));
        if (errors_of_plan(&l, 2 * k * tasks)) return 1;
    }
    if (fleet_state_epoch(&state) == 6) return 0;
    printf("wrong: epoch %u\n", fleet_state_epoch(&state));
    return 1;
}

#if !defined(BY_HAND) && !defined(NO_STREAM)
static uint32_t by_stream(const fleet_topology *topology, uint32_t steps)
{
    const uint32_t workers = topology->units[0] < 3 ? topology->units[0] : 3;
    const uint32_t tasks = 2 * topology->chiplets * workers + 1, words = tasks * STAGES * STAGE;
    uint32_t *weights = (uint32_t *)malloc((size_t)words * 4);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_launch_desc d = fleet_launch_desc_default();
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_state state;
    flows f;
    litmus l;
    void *args;
    memset(&l, 0, sizeof l);
    for (uint32_t i = 0; i < words; i++) weights[i] = i * 2654435761u;
    fleet_call_device(g, "flow", flows_flow, fleet_shape1(fleet_dim_of(tasks)), 0);
    desc.topology = *topology;
    desc.workers_per_chiplet = workers;
    desc.schedule = FLEET_SCHEDULE_STATIC;
    prepare(g, &desc, &state);
    f.errors = l.errors = (uint32_t *)device_zeros(512);
    f.weights = (const uint32_t *)device_copy(weights, (size_t)words * 4);
    args = device_copy(&f, sizeof f);
    must("set-up", fleet_stream_wait(NULL));
    free(weights);
    d.steps = steps = steps < 2 ? steps : 2;
    d.threads = THREADS;
    d.pipeline_bytes = FLEET_PIPELINE_BYTES(flows);
    must("launch", fleet_launch(&state, &d, FLEET_KERNEL_OF(run_flows), args));
    if (fleet_state_wait(&state, NULL)) must("run", told(&state));
    return errors_of_plan(&l, tasks * steps);
}

#else
static uint32_t by_stream(const fleet_topology *topology, uint32_t steps)
{
    FLEET_UNUSED(topology), FLEET_UNUSED(steps);
    return 1;
}
#endif

static fleet_graph *routed_graph(void)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_dim_of(TOKENS), experts = fleet_dim_of(EXPERTS);
    fleet_etensor routed = fleet_event_tensor(g, "routed", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_etensor counted = fleet_event_tensor(g, "counted", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_etensor filled = fleet_event_tensor(g, "filled", fleet_shape1(experts), TOKENS);
    fleet_grid route_grid = fleet_call_device(g, "route", tiles_route, fleet_shape1(n), 0);
    fleet_grid count_grid = fleet_call_device(g, "count", tiles_count, fleet_shape0(), 0);
    fleet_grid scatter_grid = fleet_call_device(g, "scatter", tiles_scatter, fleet_shape1(n), 0);
    fleet_grid use_grid = fleet_call_device(g, "use", tiles_use, fleet_shape1(experts), 0);
    fleet_tensor topk =
        fleet_runtime_tensor(g, "topk", fleet_shape2(n, fleet_dim_of(2)), route_grid);
    fleet_tensor counts = fleet_runtime_tensor(g, "counts", fleet_shape1(experts), count_grid);
    fleet_tensor indptr =
        fleet_runtime_tensor(g, "indptr", fleet_shape1(fleet_dim_plus(experts, 1)), count_grid);
    fleet_out_edge(g, route_grid, routed, "i->");
    fleet_in_edge(g, count_grid, routed, "->");
    fleet_out_edge(g, count_grid, counted, "->");
    fleet_in_edge(g, scatter_grid, counted, "i->");
    fleet_out_edge_gather(g, scatter_grid, filled, topk);
    fleet_event_counts(g, filled, counts);
    fleet_in_edge_range(g, use_grid, filled, indptr);
    return g;
}

static uint32_t by_tensors(const fleet_topology *topology, uint32_t steps)
{
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_launch_desc d = fleet_launch_desc_default();
    fleet_graph *g = routed_graph();
    int32_t wrong[TOKENS * 2];
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    tiles t;
    litmus l;
    void *args;
    memset(&t, 0, sizeof t);
    memset(&l, 0, sizeof l);
    desc.topology = *topology;
    desc.workers_per_chiplet = topology->units[0] < 3 ? topology->units[0] : 3;
    desc.schedule = FLEET_SCHEDULE_DYNAMIC;
    if (fleet_plan_build(g, &desc, &plan)) {
        printf("wrong: %s\n", fleet_graph_error(g));
        return 1;
    }
    t.errors = l.errors = (uint32_t *)device_zeros(512);
    t.mixed = (uint32_t *)device_zeros((size_t)TOKENS * SLAB * 4);
    t.topk = (int32_t *)device_zeros(TOKENS * 2 * 4);
    t.counts = (int32_t *)device_zeros(EXPERTS * 4);
    t.indptr = (int32_t *)device_zeros((EXPERTS + 1) * 4);
    memset(wrong, 0xff, sizeof wrong); /* what no map takes */
    must("topk", fleet_to_device(t.topk, wrong, TOKENS * 2 * 4, NULL));
    must("counts", fleet_to_device(t.counts, wrong, EXPERTS * 4, NULL));
    must("indptr", fleet_to_device(t.indptr, wrong, (EXPERTS + 1) * 4, NULL));
    args = device_zeros(sizeof t);
    must("copy", fleet_to_device(args, &t, sizeof t, NULL));
    must("upload", fleet_upload(&image, plan, NULL));
    must("state", fleet_state_create(&state, &image, NULL, NULL));
    must("topk", fleet_bind_tensor(&state, "topk", t.topk, NULL));
    must("counts", fleet_bind_tensor(&state, "counts", t.counts, NULL));
    must("indptr", fleet_bind_tensor(&state, "indptr", t.indptr, NULL));
    must("set-up", fleet_stream_wait(NULL));
    d.steps = steps;
    d.threads = THREADS;
    for (uint32_t k = 0; k < 3; k++)
        must("launch", fleet_launch(&state, &d, FLEET_KERNEL_OF(run_tiles), args));
    if (fleet_state_wait(&state, NULL)) must("run", told(&state));
    return errors_of(&l);
}

static void use_device(uint32_t device)
{
    must("device", hipSetDevice((int)device) ? FLEET_ERROR_DEVICE : FLEET_OK);
}

/* A rank on each device: its launch and its state, in one thread. */
static uint32_t by_ranks(const char *name, const fleet_topology *topology, uint32_t steps,
                         uint32_t ranks)
{
    fleet_plan *plan = NULL;
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_state_desc state_desc = fleet_state_desc_default();
    fleet_launch_desc d = fleet_launch_desc_default();
    fleet_image image[FLEET_MAX_PEERS];
    fleet_state state[FLEET_MAX_PEERS];
    void *args[FLEET_MAX_PEERS];
    litmus l[FLEET_MAX_PEERS];
    uint32_t wrong = 0;
    tiles t;
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_shape shape = fleet_shape2_of(ranks, RANK_TASKS);
    const fleet_axis_map by_first = fleet_axis(0, 1, 0, 1);
    fleet_etensor pushed = fleet_event_tensor(g, "pushed", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_grid push = fleet_call_device(g, "push", tiles_push, shape, 0);
    fleet_grid pull = fleet_call_device(g, "pull", tiles_pull, shape, 0);
    fleet_grid pass = fleet_call_device(g, "pass", tiles_pass, shape, 0);
    fleet_grid_ranks(g, push, by_first);
    fleet_grid_ranks(g, pull, by_first);
    fleet_grid_ranks(g, pass, by_first);
    fleet_out_edge(g, push, pushed, "ri->");
    fleet_in_edge(g, pull, pushed, "ri->");
    desc.topology = *topology;
    desc.ranks = ranks;
    desc.workers_per_chiplet = topology->units[0] < 3 ? topology->units[0] : 3;
    if (strcmp(name, "ranks") != 0) {
        desc.schedule = FLEET_SCHEDULE_CHIPLET;
        desc.workers_per_chiplet -= desc.workers_per_chiplet == topology->units[0];
    }
    if (fleet_plan_build(g, &desc, &plan)) {
        printf("wrong: %s\n", fleet_graph_error(g));
        return 1;
    }
    memset(&t, 0, sizeof t);
    memset(l, 0, sizeof l);
    t.offset = (fleet_peers_bytes(plan) + 255) / 256 * 256;
    t.peers.ranks = ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        const size_t bytes = t.offset + sizeof(shared);
        uint32_t failed = 0;
        use_device(r);
        for (uint32_t k = 0; k < ranks; k++)
            failed |= k != r && hipDeviceEnablePeerAccess((int)k, 0) != hipSuccess;
        failed |= hipExtMallocWithFlags(&t.peers.bases[r], bytes, hipDeviceMallocFinegrained) !=
                  hipSuccess;
        must("region", failed ? FLEET_ERROR_DEVICE : FLEET_OK);
        must("clear", fleet_device_clear(t.peers.bases[r], bytes, NULL));
        must("clear", fleet_stream_wait(NULL));
    }
    for (uint32_t r = 0; r < ranks; r++) {
        use_device(r);
        t.peers.rank = r;
        t.errors = l[r].errors = (uint32_t *)device_zeros(512);
        args[r] = device_zeros(sizeof t);
        must("copy", fleet_to_device(args[r], &t, sizeof t, NULL));
        must("upload", fleet_upload(&image[r], plan, NULL));
        state_desc.peers = &t.peers;
        must("state", fleet_state_create(&state[r], &image[r], &state_desc, NULL));
        must("set-up", fleet_stream_wait(NULL));
    }
    d.steps = steps;
    d.threads = THREADS;
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t r = 0; r < ranks; r++) {
            use_device(r);
            must("launch", fleet_launch(&state[r], &d, FLEET_KERNEL_OF(run_tiles), args[r]));
        }
    for (uint32_t r = 0; r < ranks; r++) {
        use_device(r);
        if (fleet_state_wait(&state[r], NULL)) must("run", told(&state[r]));
        wrong += errors_of_plan(&l[r], RANK_TASKS * steps * 2);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    uint32_t epochs = argc > 2 ? (uint32_t)atoi(argv[2]) : 6, plan;
    uint32_t slices = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;
    fleet_topology topology;
    int devices = 0;
    if (hipGetDeviceCount(&devices)) return 2;
    must("query", fleet_topology_query(&topology));
#if defined(LITMUS_MUTANTS)
    if (getenv("LITMUS_MUTANT")) litmus_host = (uint32_t)atoi(getenv("LITMUS_MUTANT"));
    for (int i = devices; i-- > 0;) {
        use_device((uint32_t)i);
        if (hipMemcpyToSymbol(HIP_SYMBOL(litmus_device), &litmus_host, sizeof litmus_host))
            return 2;
        if (litmus_choose()) return 2;
    }
#endif
    plan = !strcmp(name, "static") || !strcmp(name, "dealt") || !strcmp(name, "ready") ||
           !strcmp(name, "some") || !strcmp(name, "small") || !strcmp(name, "residency") ||
           !strcmp(name, "replays");
    if (!strcmp(name, "routed")      ? by_tensors(&topology, epochs)
        : !strcmp(name, "flow")      ? by_stream(&topology, epochs)
        : !strncmp(name, "ends", 4)  ? by_end(name, &topology, epochs)
        : !strncmp(name, "ranks", 5) ? by_ranks(name, &topology, epochs, (uint32_t)devices)
        : !strncmp(name, "fails", 5) || !strcmp(name, "aborts")
            ? by_failure(name, &topology, epochs)
        : !strcmp(name, "carry") || !strcmp(name, "passed") || !strcmp(name, "early")
            ? by_symbol(name, &topology, epochs)
        : plan ? by_plan(name, &topology, epochs, slices)
               : by_hand(name, &topology, epochs))
        return 1;
    printf("ok %s\n", name);
    return 0;
}
