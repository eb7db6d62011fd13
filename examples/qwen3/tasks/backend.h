/* tasks/backend.h: the interface between tasks and backends: all that a backend defines, and what follows from it.

   A backend is three things: a section of platform.h (sizes and number formats), backend_NAME.h, and the attention tasks
   (tasks/attention.h serves where a backend has dot and add_scaled_vector). A definition that differs from a prototype here does
   not compile. Constants, as macros:

       LDS_BYTES                      dynamic LDS of a workgroup, without the ring of a weight stream
       PARTIAL_FLOATS, SUM_FLOATS    floats of linear_lds's parts and sums
       PREFETCHED_ROWS                     rows of the residual that prefetch_residual brings to LDS; 0: none
       K_ALIGN                         packed weights end with zeros, up to a multiple of so many k's
       MAX_PANEL_TILES                      tiles of columns that are computed together, at most
       STAGE_K                        k's of a tile that are packed together
       SMALL_M_ROWS                       rows up to which a product is one of few rows
       HAS_LARGE_M                  1: there are other products for more rows; known to the device's code alone. With
                                      LARGE_M_PANEL_TILES and WGMMA_K in place of MAX_PANEL_TILES and STAGE_K
       SPLIT_K_QUADS                          16-byte words of a worker in decoder.joint
       DECODER_DISPATCH(set, LIST, STREAMS)    FLEET_DISPATCH, with a weight stream where there is one */
#ifndef QWEN3_TASKS_BACKEND_H
#define QWEN3_TASKS_BACKEND_H

#include "operands.h"

#if defined(FLEET_HOST)
#include "../backend_host.h"
#elif defined(FLEET_CUDA)
#include "../backend_nvidia.h"
#else
#include "../backend_amd.h"
#endif

#if !defined(LDS_BYTES) || !defined(PARTIAL_FLOATS) || !defined(SUM_FLOATS) ||                     \
    !defined(PREFETCHED_ROWS) || !defined(K_ALIGN) || !defined(MAX_PANEL_TILES) ||                 \
    !defined(STAGE_K) || !defined(SMALL_M_ROWS) || !defined(HAS_LARGE_M) ||                        \
    !defined(LARGE_M_PANEL_TILES) || !defined(WGMMA_K) || !defined(SPLIT_K_QUADS) ||               \
    !defined(DECODER_DISPATCH)
#error "tasks/backend.h: the backend lacks a constant"
#endif

/* ---- where values lie, for the host too ---- */

/* A weight, from where its block of BLOCK_K k's and TILE_N columns begins. */
FLEET_BOTH uint32_t pack_at(uint32_t column, uint32_t k, uint32_t inner_k);
/* A weight, from where its wide tile begins, which has `wide` tiles of columns; inner_k: STAGE_K, or WGMMA_K. */
FLEET_BOTH size_t weight_at(uint32_t column, uint32_t k, uint32_t panel_tiles, uint32_t inner_k);
/* An activation of [rows][width]. */
FLEET_BOTH size_t act_at(uint32_t row, uint32_t k, uint32_t width);
/* The cache of a sequence's head, in values: its size, and where value i of a key and of what belongs to it stands. */
FLEET_BOTH size_t cache_size(const decoder *d);
FLEET_BOTH size_t key_at(const decoder *d, uint32_t key, uint32_t i);
FLEET_BOTH size_t value_at(const decoder *d, uint32_t key, uint32_t i);
/* Floats that a part of a head's attention leaves. */
FLEET_BOTH uint32_t kv_partial_size(const decoder *d);

/* ---- a task's begin: weight_source is a type of the backend ---- */

FLEET_DEVICE weight_source weights_open(const fleet_ctx *ctx);
/* The task's arguments, where they are read fast. A barrier. */
FLEET_DEVICE const task_args *own_args(const fleet_ctx *ctx, weight_source *source,
                                       const task_args *args);
/* Rows of the step, by the arguments that own_args returned. */
FLEET_DEVICE uint32_t row_count_of(const task_args *task);
/* The task's LDS, without what the backend needs of it. */
FLEET_DEVICE char *task_lds(const fleet_ctx *ctx);

/* ---- products ---- */

/* Once before the first multiply of these rows. */
FLEET_DEVICE void multiply_begin(weight_source *source, const operand *in);
/* The products of in->rows rows with in->wide tiles of columns to l->sums, [tiles][rows][TILE_N]; all threads. Weights are those
   at `weights`, or the stream's next. */
FLEET_DEVICE fleet_status multiply(const fleet_ctx *ctx, weight_source *source, const bf16 *weights,
                                   const operand *in, const linear_lds *l);
/* 1 / root mean square of each row to l->scale; there after the caller's next barrier. */
FLEET_DEVICE void rms_scales(const fleet_ctx *ctx, const task_args *task, const linear_lds *l,
                             uint32_t rows);
/* Begins to bring to l->ahead what sums of these columns are added to. */
FLEET_DEVICE void prefetch_residual(const fleet_ctx *ctx, const task_args *task,
                                    const linear_lds *l, uint32_t column, uint32_t columns,
                                    uint32_t rows);
/* The sum of the squares of each row of some tiles, of l->sums, to decoder.squares. */
FLEET_DEVICE void store_squares(const fleet_ctx *ctx, const decoder *d, const linear_lds *l,
                                uint32_t column, uint32_t tiles, uint32_t rows);

/* ---- values that stand together, from where so many are aligned ---- */

FLEET_DEVICE vec4 load_vec4(const float *from);
FLEET_DEVICE void store_vec4(float *to, vec4 values);
FLEET_DEVICE void store_act4(act_t *to, const act_t *values);
FLEET_DEVICE kv_t kv_of_float(float f);

/* ---- what follows from these ---- */

FLEET_DEVICE linear_lds linear_lds_of(const fleet_ctx *ctx, uint32_t rows)
{
    linear_lds l;
    l.partials = (float *)task_lds(ctx);
    l.sums = l.partials + PARTIAL_FLOATS;
    l.scale = l.sums + SUM_FLOATS;
    l.best = l.scale + MAX_ROWS;
    l.best_token = (int32_t *)(l.best + MAX_ROWS * ARGMAX_LANES);
    l.chooses = l.best_token + MAX_ROWS * ARGMAX_LANES;
    l.extra = l.chooses + MAX_ROWS;
    l.prefetched = (float *)l.extra, l.prefetched_rows = PREFETCHED_ROWS,
    l.prefetched_stride = MAX_PANEL_TILES * TILE_N;
    l.reciprocal = reciprocal_of(rows);
    return l;
}

/* store_act of four neighbours. */
FLEET_DEVICE void store_acts(act_t *to, uint32_t low, vec4 values)
{
    act_t first[4], others[4];
    for (uint32_t i = 0; i < 4; i++) {
        first[i] = act_of_float(values.value[i]);
        others[i] = act_of_float(values.value[i] - float_of_act(first[i]));
    }
    store_act4(to, first);
    if (low) store_act4(to + low, others);
}

#endif /* QWEN3_TASKS_BACKEND_H */
