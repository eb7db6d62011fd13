/* nvidia/pipeline.h: the weight pipeline on NVIDIA GPUs: its stages, the layout of packed weights, the rest of LDS, and how a
   task receives its arguments. */
#ifndef QWEN3_NVIDIA_PIPELINE_H
#define QWEN3_NVIDIA_PIPELINE_H

#include "../tasks/operands.h"
#include "fragments.h"
#include "ptx.h"

/* ---- stages and packed weights ---- */

#define STAGE_BYTES (STAGE_K * TILE_N * 2u) /* TILE_N columns by STAGE_K k's */
#define STAGE_BLOCKS (STAGE_K / BLOCK_K)
#define K_ALIGN STAGE_K /* so that every tile is a whole number of stages */

/* As many stages as fit in a GPU beside LDS_BYTES and what the kit takes: 227 KB from 9.0 on, 163 KB in 8.0 and 8.7,
   99 KB elsewhere. The host and all kernels of a program have one ring. */
#define DECODER_OF(arch, newest, older, others)                                                    \
    ((arch) >= 900 && (arch) < 1200   ? (newest)                                                   \
     : (arch) == 800 || (arch) == 870 ? (older)                                                    \
                                      : (others))
#define DECODER_FIRST_OF(first, ...) first
#define DECODER_FIRST(...) DECODER_FIRST_OF(__VA_ARGS__, 0)
#define DECODER_LDS_BYTES (1024 * DECODER_OF(DECODER_FIRST(__CUDA_ARCH_LIST__), 227, 163, 99))
#if !defined(DECODER_STAGES)
#define DECODER_STAGES_OF(arch) DECODER_OF(arch, 24, 16, 8)
#define DECODER_STAGES DECODER_STAGES_OF(DECODER_FIRST(__CUDA_ARCH_LIST__))
#if defined(__CUDA_ARCH__) && DECODER_STAGES_OF(__CUDA_ARCH__) != DECODER_STAGES
#error "The rings differ in size: build for one kind of GPU (-arch), or define DECODER_STAGES"
#endif
#endif

/* Tiles of a panel, at most: the sums of four would not stay in registers. The pairs of warps
   together hold WAVE_PAIRS chunks, which must fit in the ring. */
#define WAVE_PAIRS (MAX_WAVES / 2) /* pairs of warps, which divide the k's of a product */
#define MAX_PANEL_TILES (3 * WAVE_PAIRS <= DECODER_STAGES ? 3u : 2u)

/* In a panel, stages follow one another by k; the stages of all tiles with the same k's are
   neighbours. */
FLEET_HOST_DEVICE size_t weight_at(uint32_t column, uint32_t k, uint32_t panel_tiles,
                                   uint32_t inner_k)
{
    const uint32_t stage = k / inner_k * panel_tiles + column / TILE_N;
    return (size_t)stage * inner_k * TILE_N + k % inner_k / BLOCK_K * ATOM +
           pack_at(column % TILE_N, k, inner_k);
}

/* ---- sizes of large-M products (nvidia/wgmma.h) ---- */

#if !defined(SMALL_M_ROWS)
#define SMALL_M_ROWS 16u /* larger batches are faster with large-M products */
#endif
#define LARGE_M_PANEL_TILES 12u      /* 96 registers of sums */
#define CONSUMER_WARPS 4u            /* a warpgroup: 16 rows each */
#define PRODUCER_WARP CONSUMER_WARPS /* number of the warp that copies rows */
#define NORM_WARP (CONSUMER_WARPS + 1)
#define TILE_SUMS 8u                           /* of a lane */
#define CONSUMER_THREADS (CONSUMER_WARPS * 32) /* those of a warpgroup */

/* Split-K workspace in 16-byte words: a lane's sums of a tile, four in a word; then one word for
   each row, with its scale. */
#define TILE_QUADS (TILE_SUMS / 4)
#define SPLIT_K_SCALES (LARGE_M_PANEL_TILES * TILE_QUADS * CONSUMER_THREADS)
#define SPLIT_K_QUADS (SPLIT_K_SCALES + MAX_ROWS)

/* Large-M weights are packed as wgmma reads them: WGMMA_K k's of all tiles of a panel are one
   operand, and operands follow one another by k. A chunk of CHUNK_K k's is acquired at a time. Two
   operands let the second one's products run while the first one's are awaited; with more, stages
   would be released later. */
#define CHUNK_K (2 * WGMMA_K)
#define CHUNK_BLOCKS (CHUNK_K / BLOCK_K)
#define CHUNK_STAGES (LARGE_M_PANEL_TILES * TILE_N * CHUNK_K * 2 / STAGE_BYTES)
typedef char a_chunk_fills_its_slots
    [CHUNK_STAGES * STAGE_BYTES == LARGE_M_PANEL_TILES * TILE_N * CHUNK_K * 2 ? 1 : -1];

/* With other ring sizes the ring would wrap inside of a chunk. */
#if HAS_WGMMA && DECODER_STAGES % CHUNK_STAGES == 0
#define HAS_LARGE_M 1u
#else
#define HAS_LARGE_M 0u
#endif

/* 1: a kernel of its own takes prompts (nvidia/prefill.h), where the products of a model are whole stages of it. */
#define HAS_PREFILL HAS_WGMMA
FLEET_HOST_DEVICE uint32_t prefill_suits(uint32_t experts, uint32_t hidden, uint32_t q,
                                         uint32_t ffn)
{
    return experts || (hidden % WGMMA_K == 0 && q % WGMMA_K == 0 && ffn % WGMMA_K == 0);
}

/* ---- LDS ---- */

/* A task's arguments arrive with the pipeline and stay at the beginning of LDS: a load from memory
   takes as long as hundreds of instructions, and longer while weights use the bandwidth. */
#define ARGS_BYTES ((uint32_t)sizeof(task_args))
FLEET_DEVICE void store_row_count(const fleet_ctx *ctx, uint32_t rows)
{
    task_args *own = (task_args *)ctx->lds;
    own->rows = rows, own->rows_epoch = ctx->epoch;
    own->rows_reciprocal = reciprocal_of(rows);
}
typedef char arguments_must_be_a_span[sizeof(task_args) % 16 ? -1 : 1];
#define LDS_BYTES (62u * 512) /* attention needs this much */
#define LDS_ALIGNED 512u      /* wgmma operands begin at a multiple of this */
FLEET_DEVICE char *task_lds(const fleet_ctx *ctx)
{
    char *own = (char *)ctx->lds + ARGS_BYTES;
    return own + (LDS_ALIGNED - (uintptr_t)own % LDS_ALIGNED) % LDS_ALIGNED;
}

/* The partial sums of a tile or more, and all sums of a panel. */
#define PARTIAL_FLOATS (WAVE_PAIRS * MAX_ROWS * TILE_N)
#define SUM_FLOATS                                                                                 \
    PARTIAL_FLOATS /* those of MAX_PANEL_TILES, or with partials the experts' totals */
typedef char sums_have_room[MAX_PANEL_TILES <= WAVE_PAIRS ? 1 : -1];

#define PREFETCHED_ROWS 16u
typedef char lds_has_room[ARGS_BYTES + LDS_ALIGNED + LINEAR_LDS_BYTES +
                                      (PREFETCHED_ROWS + 1) * MAX_PANEL_TILES * TILE_N * 4 >
                                  LDS_BYTES
                              ? -1
                              : 1];

/* ---- what tasks declare to the pipeline ---- */

/* Issue interval of stages (fleet_producer_throttle) in cycles, tuned on an H200 at 1.98 GHz; in the kernel for large M,
   LARGE_M_INTERVAL. Ten cycles change the time of a step by up to 4%: 300 is too short for small M, where a worker
   issues a stage sooner after the previous one. */
#if !defined(ISSUE_INTERVAL)
#define ISSUE_INTERVAL 310u
#endif
#if !defined(LARGE_M_INTERVAL)
#define LARGE_M_INTERVAL 300u
#endif

/* The weights of a product: the task arguments, then the worker's panels. */
FLEET_DEVICE void declare_panels(const fleet_ctx *ctx, const task_args *args,
                                 fleet_producer *producer)
{
    const panel_range tiles = panels_of_worker(args, ctx);
    fleet_producer_throttle(producer, ISSUE_INTERVAL);
    fleet_producer_copy(producer, args, ARGS_BYTES);
    for (uint32_t n = tiles.first; n < tiles.end; n += tiles.step)
        fleet_producer_copy(producer, panel_weights(args, n), args->panel_bytes);
}
/* Experts are known when the task begins. The stages of a panel's tiles alternate, as in the panels of layers. */
FLEET_DEVICE void declare_experts(const fleet_ctx *ctx, const task_args *args,
                                  fleet_producer *producer)
{
    const decoder *d = &args->d;
    const int32_t *active = d->active;
    panel_range range;
    fleet_producer_throttle(producer, ISSUE_INTERVAL);
    fleet_producer_copy(producer, args, ARGS_BYTES);
    if (!fleet_producer_await_task(producer) || !d->b->rows) return;
    range = expert_panels_of_worker(args, ctx, (uint32_t)*d->n_active);
    for (uint32_t n = range.first; n < range.end; n += range.step) {
        const expert_panel p = expert_panel_of(args, n);
        const char *from =
            (const char *)(const void *)expert_tile(args, (uint32_t)active[p.index], p.first);
        for (uint32_t stage = 0; stage < args->panel_bytes; stage += STAGE_BYTES)
            for (uint32_t t = 0; t < p.tiles; t++)
                fleet_producer_copy(producer, from + (size_t)t * args->panel_bytes + stage,
                                    STAGE_BYTES);
    }
}
FLEET_PRODUCER(linear, task_args)
{
    if (args->epilogue == EPILOGUE_EXPERTS)
        declare_experts(&ctx, args, producer);
    else
        declare_panels(&ctx, args, producer);
}
FLEET_PRODUCER(linear_dense, task_args)
{
    declare_panels(&ctx, args, producer);
}
/* The producer has awaited expert_up of the same layer: so the experts are known already, and their weights need not
   wait for this task's event. */
FLEET_PRODUCER(expert_down, task_args)
{
    const decoder *d = &args->d;
    const panel_range range = panels_of_worker(args, &ctx);
    const int32_t *active = d->active;
    uint32_t n_active;
    FLEET_UNUSED(at);
    fleet_producer_throttle(producer, ISSUE_INTERVAL);
    fleet_producer_copy(producer, args, ARGS_BYTES);
    n_active = d->b->rows ? (uint32_t)*d->n_active : 0;
    for (uint32_t n = range.first; n < range.end; n += range.step)
        for (uint32_t e = 0; e < n_active; e++)
            fleet_producer_copy(producer, expert_tile(args, (uint32_t)active[e], n),
                                args->panel_bytes);
}
#define EXPERT_STREAMS(TILE_, P) TILE_(P, expert_down)
#define DECODER_DISPATCH(set, LIST, STREAMS)                                                       \
    FLEET_DISPATCH_WITH_PIPELINE(set, LIST, STREAMS, DECODER_STAGES, STAGE_BYTES)
/* With prefetches, of the tasks that have a producer. */
#define DECODER_DISPATCH_WITH_PREFETCH(set, LIST, STREAMS)                                         \
    FLEET_DISPATCH_WITH_PIPELINE_AND_PREFETCH(set, LIST, STREAMS, DECODER_STAGES, STAGE_BYTES,     \
                                              STREAMS)

#define ACTS_IN_FLIGHT 8u /* vectors of activations that a lane has in flight */

/* A warp's position in the weights, and its next activations. */
typedef struct weight_source {
    fleet_consumer weights;
    fleet_status status;             /* once it is not FLEET_OK, no more stages are acquired */
    fleet_quad acts[ACTS_IN_FLIGHT]; /* in flight */
} weight_source;
FLEET_DEVICE weight_source weights_open(const fleet_ctx *ctx)
{
    weight_source w;
    w.weights = fleet_consumer_open(ctx);
    w.status = FLEET_OK;
    return w;
}
/* The producer knows. */
FLEET_DEVICE void weights_next(weight_source *source, const bf16 *weights)
{
    FLEET_UNUSED(source), FLEET_UNUSED(weights);
}

/* Copies the task's arguments from the pipeline's first stage, or from args without one, by one warp. The step's row count
   comes from the worker's previous task if that was of the same session, step and round, since the load would take 1% of a layer;
   session and epoch tell other data in LDS apart. A gate may have changed it. Otherwise rows_epoch says that it is not
   known. */
FLEET_DEVICE void copy_args(const fleet_ctx *ctx, weight_source *source, const void *stage,
                            const task_args *args, uint32_t early)
{
    task_args *own = (task_args *)ctx->lds;
    fleet_quad *to = (fleet_quad *)ctx->lds;
    const task_args *task = stage ? (const task_args *)stage : args;
    const uint32_t known = own->session == task->session && own->rows_epoch == ctx->epoch &&
                           own->round == task->round && !task->after_gate;
    const uint32_t rows = own->rows, reciprocal = own->rows_reciprocal;
    fleet_wave_barrier(); /* all lanes have read what is overwritten now */
    for (uint32_t i = fleet_lane(); i < ARGS_BYTES / 16; i += 32)
        to[i] = ((const fleet_quad *)(const void *)task)[i];
    if (stage) fleet_stage_release(&source->weights, 1);
    fleet_wave_barrier();
    if (fleet_lane() == 0)
        own->rows = rows, own->rows_reciprocal = reciprocal, own->found.early = early,
        own->rows_epoch = known ? ctx->epoch : ctx->epoch - 1;
}
/* Before the task's event, while the first warp publishes the previous task's results and the second one polls: copies the
   arguments, if they have arrived, and finds the worker's panels. So the task begins with its activations. */
#define ARGS_WARP 2u
#define SPLITS_WARP 3u /* likewise in attention */
FLEET_PREFETCH(linear_dense, task_args)
{
    task_args *own = (task_args *)ctx.lds;
    const void *stage = NULL;
    weight_source source;
    FLEET_UNUSED(at);
    if (fleet_wave_id() != ARGS_WARP) return;
    if (fleet_consumer_try_open(&ctx, &source.weights))
        stage = fleet_stage_try_acquire(&source.weights);
    if (stage) {
        panel_range range;
        copy_args(&ctx, &source, stage, args, 1);
        range = panels_of_worker(own, &ctx);
        if (fleet_lane() == 0)
            own->found.first = range.first, own->found.end = range.end,
            own->found.step = range.step;
    } else if (fleet_lane() == 0) {
        own->found.early = 0;
    }
}
/* If the launch ends before the first stage arrives, the next acquire reports it. */
FLEET_DEVICE const task_args *own_args(const fleet_ctx *ctx, weight_source *source,
                                       const task_args *args)
{
    const task_args *own = (const task_args *)ctx->lds;
    const uint32_t early = ctx->prefetched && own->found.early;
    if (ctx->prefetched && !early) fleet_barrier(ctx); /* all threads have read `early` */
    if (early || fleet_wave_id() != 0) {
        fleet_stages_skip(&source->weights, 1);
    } else {
        const void *stage = fleet_stage_acquire(&source->weights);
        copy_args(ctx, source, stage, args, 0);
        if (!stage) source->status = fleet_consumer_status(&source->weights);
    }
    if (!early) fleet_barrier(ctx); /* else that of the wait for the event */
    if (own->rows_epoch == ctx->epoch) return own;
    fleet_barrier(ctx); /* all threads have read rows_epoch */
    if (ctx->thread == 0) store_row_count(ctx, own->d.b->rows);
    fleet_barrier(ctx);
    return own;
}
FLEET_DEVICE panel_range own_panels(const fleet_ctx *ctx, const task_args *task, uint32_t row_tiles)
{
    panel_range range;
    FLEET_UNUSED(row_tiles);
    if (!ctx->prefetched || !task->found.early) return panels_of_worker(task, ctx);
    range.begin = range.first = task->found.first, range.end = task->found.end;
    range.step = task->found.step;
    return range;
}
FLEET_DEVICE uint32_t rows_reciprocal_of(const task_args *task)
{
    return task->rows_reciprocal;
}
FLEET_DEVICE uint32_t row_count_of(const task_args *task)
{
    return task->rows;
}

#endif /* QWEN3_NVIDIA_PIPELINE_H */
