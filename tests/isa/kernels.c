/* Kernels whose disassembly tests/isa/check.py reads. HIP only. Each has one notify or one wait of one scope,
   so that its whole control flow can be checked; worker_loop has everything, around a tile with many live
   values; BY_HAND leaves it out, LOOP the others, MESSAGES all but those of rings of messages, and CLAIM all but the
   kernels of the implementation and the beginning of a trace. */
#if defined(BY_HAND)
#include "fleet_device.h"
#elif defined(CLAIM)
#define FLEET_TRACE
#define FLEET_IMPLEMENTATION
#include "fleet_sched.h"
#else
#include "examples/parts/fleet_server.h"
#endif
#include "examples/parts/fleet_linear.h"

#define KERNEL extern "C" __global__ __launch_bounds__(256) void

#if !defined(LOOP) && !defined(MESSAGES) && !defined(CLAIM)

/* Every thread writes, so that every wave has a store to drain. */
#define PRODUCE(y) (y)[fleet_block_id() * 256 + fleet_thread_id()] = (float)fleet_thread_id()

/* Reads another workgroup's data: at an address that is the same in all lanes, which is what could tempt a
   compiler into scalar loads, and at one per thread. */
#define CONSUME(x, z)                                                                              \
    (z)[fleet_block_id() * 256 + fleet_thread_id()] =                                              \
        (x)[fleet_block_id() + 1] + (x)[(fleet_block_id() + 2) * 256 + fleet_thread_id()]

/* Which levels count is known here, as the compiler may or may not know it in a user's kernel. */
#define NOTIFY(name, scope, levels)                                                                \
    KERNEL notify_##name(fleet_event e, float *y, uint32_t epoch)                                  \
    {                                                                                              \
        e.chiplets = levels;                                                                       \
        PRODUCE(y);                                                                                \
        fleet_notify_##scope(FLEET_BLOCK, e, epoch);                                               \
    }
NOTIFY(block, block, 0)
NOTIFY(chiplet, chiplet, 0)
NOTIFY(device_one, device, 0)
NOTIFY(device_two, device, 8)
NOTIFY(system, system, 0)

#define NOTIFY_WAVE(name, scope, levels)                                                           \
    KERNEL notify_wave_##name(fleet_event e, float *y, uint32_t epoch)                             \
    {                                                                                              \
        e.chiplets = levels;                                                                       \
        PRODUCE(y);                                                                                \
        fleet_notify_##scope(FLEET_WAVE, e, epoch);                                                \
    }
NOTIFY_WAVE(chiplet, chiplet, 0)
NOTIFY_WAVE(device_two, device, 8)

/* x and z may be the same memory: nothing but the wait keeps the loads where they are. */
#define WAIT(scope)                                                                                \
    KERNEL wait_##scope(fleet_event e, const float *x, float *z, uint32_t epoch)                   \
    {                                                                                              \
        if (fleet_wait_##scope(FLEET_BLOCK, e, epoch)) return;                                     \
        CONSUME(x, z);                                                                             \
    }                                                                                              \
    KERNEL wait_wave_##scope(fleet_event e, const float *x, float *z, uint32_t epoch)              \
    {                                                                                              \
        if (fleet_wait_##scope(FLEET_WAVE, e, epoch)) return;                                      \
        CONSUME(x, z);                                                                             \
    }                                                                                              \
    KERNEL test_##scope(fleet_event e, const float *x, float *z, uint32_t epoch)                   \
    {                                                                                              \
        if (fleet_test_##scope(FLEET_BLOCK, e, epoch)) CONSUME(x, z);                              \
    }
WAIT(block)
WAIT(chiplet)
WAIT(device)
WAIT(system)

KERNEL acq_rel_device(uint32_t *word, const float *x, float *y, float *z)
{
    PRODUCE(y);
    fleet_block_barrier();
    if (fleet_thread_id() == 0 && fleet_add_acq_rel_device(word, 1) == 7) CONSUME(x, z);
}
KERNEL acq_rel_system(uint32_t *word, const float *x, float *y, float *z)
{
    PRODUCE(y);
    fleet_block_barrier();
    if (fleet_thread_id() == 0 && fleet_add_acq_rel_system(word, 1) == 7) CONSUME(x, z);
}
KERNEL load_acquire_device(const uint32_t *word, const float *x, float *z)
{
    if (fleet_load_acquire_device(word) == 7) CONSUME(x, z);
}
KERNEL load_acquire_system(const uint32_t *word, const float *x, float *z)
{
    if (fleet_load_acquire_system(word) == 7) CONSUME(x, z);
}

KERNEL publish(uint32_t *record, uint32_t *word)
{
    fleet_store_relaxed_system(record + fleet_thread_id(), 1);
    fleeti_publish_system(word, 2);
}

KERNEL publish_device(uint32_t *record, uint32_t *word)
{
    fleet_store_relaxed_device(record + fleet_thread_id(), 1);
    fleeti_publish_device(word, 2);
}

/* Two words that the compiler would store together. */
KERNEL lds_order(uint32_t *z)
{
    FLEET_LDS(uint32_t, words, 128);
    uint32_t *word = words + fleet_lane();
    word[0] = z[0];
    fleeti_lds_order();
    word[64] = z[1];
    fleet_block_barrier();
    z[fleet_thread_id()] = words[fleet_thread_id() % 128];
}

/* Each lane reads its neighbour's word, writes its own, and reads the neighbour's again. */
KERNEL wave_barrier(uint32_t *z)
{
    FLEET_LDS(uint32_t, words, 65);
    uint32_t *word = words + fleet_lane();
    uint32_t before = word[1];
    fleet_wave_barrier();
    word[0] = z[fleet_lane()];
    fleet_wave_barrier();
    z[fleet_lane()] = before + word[1];
}

KERNEL store_device(uint32_t *word)
{
    fleet_store_relaxed_device(word, 1);
}

KERNEL clock_ticks(uint64_t *z)
{
    *z = fleet_clock_ticks();
}
KERNEL chiplet_id(uint32_t *z)
{
    z[fleet_thread_id()] = fleet_chiplet_id();
}

/* Cache policy: each load with a store of its width. */
#define POLICY(name, load, store)                                                                  \
    KERNEL name(const float *x, float *z)                                                          \
    {                                                                                              \
        store(z + 4 * fleet_thread_id(), load(x + 4 * fleet_thread_id()));                         \
    }
POLICY(streaming4, fleet_load_streaming4, fleet_store_nt4)
POLICY(streaming8, fleet_load_streaming8, fleet_store_nt8)
POLICY(streaming16, fleet_load_streaming16, fleet_store_nt16)
POLICY(fresh4, fleet_load_coherent4, fleet_store_nt4)
POLICY(fresh8, fleet_load_coherent8, fleet_store_nt8)
POLICY(fresh16, fleet_load_coherent16, fleet_store_nt16)
KERNEL streaming64(const float *x, float *z, uint32_t stride)
{
    fleet_quad quads[4];
    fleet_load_streaming64(quads, x + 4 * fleet_thread_id(), stride);
    for (uint32_t i = 0; i < 4; i++)
        fleet_store_nt16(z + 4 * (4 * fleet_thread_id() + i), quads[i]);
}
/* Two loads of each width, which can be in flight together. */
#define VIEW(bytes, type)                                                                          \
    KERNEL view##bytes(const float *x, float *z)                                                   \
    {                                                                                              \
        const fleet_view view = fleet_view_of(x);                                                  \
        const uint32_t at = fleet_thread_id() * bytes;                                             \
        const type first = fleet_view_load_streaming##bytes(view, at);                             \
        const type second = fleet_view_load_streaming##bytes(view, 8192 + at);                     \
        fleet_store_nt##bytes((char *)z + at, first);                                              \
        fleet_store_nt##bytes((char *)z + 8192 + at, second);                                      \
    }
VIEW(4, uint32_t)
VIEW(8, uint64_t)
VIEW(16, fleet_quad)

/* A store for each tile of an iterator. */
KERNEL tile_iterator(const fleet_linear *linear, const uint32_t *share, float *z)
{
    const fleet_tile_iterator first =
        fleet_tile_begin_slice(linear, share[0], share[1], share[2], share[3]);
    for (fleet_tile_iterator w = first; w.more; fleet_tile_next(&w))
        z[((w.row + w.rows) * linear->n + w.column + w.columns) * 64 + fleet_lane()] = (float)w.k;
}

KERNEL reduce_add(const float *x, float *z)
{
    FLEET_LDS(float, lds, 8 * 256);
    float sum[8];
    for (uint32_t i = 0; i < 8; i++) sum[i] = x[i * 256 + fleet_thread_id()];
    fleet_block_reduce_add(sum, 8, lds);
    if (fleet_wave_id() == 0)
        for (uint32_t i = 0; i < 8; i++) z[i * 64 + fleet_lane()] = sum[i];
}

#endif
#if !defined(BY_HAND) && !defined(LOOP) && !defined(CLAIM)

/* ---- symbols that tasks set, idle waits ---- */

KERNEL set_symbol(fleet_ctx ctx, uint32_t symbol, int32_t value, uint32_t *status)
{
    *status = (uint32_t)fleet_next_symbol(&ctx, symbol, value);
}
KERNEL idle_wait(fleet_ctx ctx, const uint32_t *word, uint32_t seen, uint32_t *status)
{
    *status = (uint32_t)fleet_idle(&ctx, word, seen);
}

/* ---- rings of messages ---- */

KERNEL messages_push(fleet_ring *ring, const uint32_t *messages, uint32_t *pushed)
{
    *pushed = fleet_ring_try_push(ring, messages, 3);
}
KERNEL messages_pop(fleet_ring *ring, uint32_t *messages, uint32_t *popped)
{
    *popped = fleet_ring_try_pop(ring, messages, 3);
}

#endif
#if !defined(BY_HAND) && !defined(MESSAGES) && !defined(CLAIM)

/* ---- the residency check ---- */

KERNEL fail_residency(fleeti_state *state, const uint32_t *status)
{
    fleet_store_relaxed_system(&state->config.host->resident_found, 1);
    fleeti_wait_diagnostics seen = {};
    seen.status = (fleet_status)*status;
    fleeti_residency_fail(state, seen);
}

/* ---- the worker loop ------------------------------------------------------------------------------- */

typedef struct tiles {
    fleet_linear linear;
    const float *a, *b;
    float *c;
    float *sums;
} tiles;

#define K 64

/* c[row][col .. col + 3] = sum over k of a[row][k] b[k][col ..], through LDS: four sums, two pointers, a
   coordinate and the strides live at once. */
FLEET_TILE(multiply, tiles)
{
    float *lds = (float *)ctx.lds;
    float sum[4] = {0, 0, 0, 0};
    uint32_t row = (uint32_t)at[0] * 16 + ctx.thread / 16, column = ctx.thread % 16 * 4;
    for (uint32_t n = ctx.tile_index; n < 16; n += ctx.tile_num) {
        const float *b = args->b + ((size_t)at[1] * 16 + n) * K * 64;
        for (uint32_t k0 = 0; k0 < K; k0 += 16) {
            fleet_block_barrier();
#pragma unroll 4
            for (uint32_t i = ctx.thread; i < 16 * 64; i += ctx.threads)
                lds[i] = b[(size_t)k0 * 64 + i];
            fleet_block_barrier();
#pragma unroll 4
            for (uint32_t k = 0; k < 16; k++) {
                float x = args->a[(size_t)row * K + k0 + k];
                for (uint32_t j = 0; j < 4; j++) sum[j] += x * lds[k * 64 + column + j];
            }
        }
        for (uint32_t j = 0; j < 4; j++)
            args->c[((size_t)row * 16 + n) * 64 + column + j] = sum[j] * (float)(ctx.slice + 1);
    }
    return FLEET_OK;
}

/* Reads what other tasks wrote, at a uniform and at a divergent address; may fail. */
FLEET_TILE(reduce, tiles)
{
    float sum = args->sums[ctx.step & 7u];
    if (ctx.lds_bytes < 4096) return FLEET_ERROR_ARGUMENT;
    for (uint32_t i = ctx.thread; i < 1024; i += ctx.threads)
        sum += args->c[(size_t)at[0] * 1024 + i] * (float)at[2] + (float)ctx.epoch;
    args->sums[((size_t)at[3] * ctx.chiplets + ctx.chiplet) * 64 + ctx.thread] = sum;
    return FLEET_OK;
}

/* An iterator over tiles; its waves divide k, and their sums are added. */
FLEET_TILE(iterated, tiles)
{
    const fleet_view b = fleet_view_of(args->b);
    FLEET_LDS(float, lds, 4 * 256);
    FLEET_FOR_TILES(tile, &args->linear, ctx)
    {
        const fleet_k_range k = fleet_tile_wave_k(&tile, fleet_wave_id(), fleet_wave_count());
        const uint32_t row = tile.row + fleet_lane() % tile.rows;
        const uint32_t column = tile.column + fleet_lane() % tile.columns;
        float sum[4] = {0, 0, 0, 0};
        for (uint32_t i = k.first; i < k.first + k.count; i++) {
            const float x = args->a[(size_t)row * args->linear.k + i];
            const fleet_quad y = fleet_view_load_streaming16(b, (i * args->linear.n + column) * 16);
            for (uint32_t j = 0; j < 4; j++) sum[j] += x * (float)y.word[j];
        }
        fleet_reduce_add(&ctx, sum, 4, lds);
        for (uint32_t j = 0; j < 4 && fleet_wave_id() == 0; j++)
            args->c[((size_t)row * args->linear.n + column) * 4 + j] = sum[j] + (float)at[0];
    }
    return FLEET_OK;
}

#define TILES(TILE, P) TILE(P, multiply) TILE(P, reduce) TILE(P, iterated)
FLEET_DISPATCH(tiles, TILES)

KERNEL worker_loop(fleet_run run, const tiles *args)
{
    FLEET_WORKER_LOOP(tiles);
}

/* ---- a weight pipeline --------------------------------------------------------------------------------- */

typedef struct flows {
    const float *weights;
    float *sums;
} flows;

FLEET_PRODUCER(flow, flows)
{
    fleet_producer_copy(producer,
                        args->weights + ((size_t)at[0] * ctx.tile_num + ctx.tile_index) * 65536,
                        65536 * 4);
}
FLEET_TILE(flow, flows)
{
    const uint32_t waves = ctx.threads / fleet_wave_size();
    fleet_consumer consumer = fleet_consumer_open(&ctx);
    fleet_status status = FLEET_OK;
    float sum = 0;
    for (uint32_t i = 0; i < 32 && !status; i++) {
        const fleet_quad *stage = (const fleet_quad *)fleet_stage_acquire(&consumer);
        if (stage) {
            for (uint32_t w = ctx.thread; w < 512; w += ctx.threads) sum += (float)stage[w].word[0];
            fleet_stage_release(&consumer, waves);
        } else {
            status = fleet_consumer_status(&consumer);
        }
    }
    args->sums[(size_t)at[0] * ctx.threads + ctx.thread] = sum;
    return status;
}
#define FLOWS(TILE, P) TILE(P, flow)
FLEET_DISPATCH_WITH_PIPELINE(flows, FLOWS, FLOWS, 6, 8192)

extern "C" __global__ __launch_bounds__(256 + FLEET_PRODUCER_THREADS,
                                        1) void stream_loop(fleet_run run, const flows *args)
{
    FLEET_WORKER_LOOP(flows);
}

#endif
#if defined(CLAIM)

KERNEL trace_enter(fleeti_worker w)
{
    fleeti_trace_enter(&w);
}

#endif
