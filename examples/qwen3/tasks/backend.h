/* tasks/backend.h: the interface between tasks and backends. All that a backend defines is listed here. As C, a definition
   that differs from its prototype does not compile (the CPU's; NVIDIA's in tests/qwen3/emulated.c).

   A backend consists of
       platform.h           its section: sizes and number formats
       backend_NAME.h       the functions and constants below
       attention tasks      with ATTENTION_TASKS(TILE_, P), their list, and COMBINE_TASK: the task that combines
                            KV splits, or NO_TASK where `attend` combines them
       task_sets.h          versions of tasks that only it has

   Constants (macros):
       LDS_BYTES                      dynamic LDS of a workgroup, without the weight pipeline
       PARTIAL_FLOATS, SUM_FLOATS     sizes of linear_lds.partials and linear_lds.sums
       PREFETCHED_ROWS                rows of the residual stream that prefetch_residual copies to LDS; 0: none
       K_ALIGN                        packed weights are padded with zeros to a multiple of this many k's
       MAX_PANEL_TILES                tiles of a panel (the columns that are computed together), at most
       STAGE_K                        k's of a tile that are packed together
       SMALL_M_ROWS                   largest batch of the small-M products
       SAME_ORDER_ROWS                small-M products of up to so many rows add in the same order
       HAS_LARGE_M                    1: larger batches have products of their own; only device code knows. Those have
                                      LARGE_M_PANEL_TILES and WGMMA_K in place of MAX_PANEL_TILES and STAGE_K
       SPLIT_K_QUADS                  16-byte words of a worker in decoder.split_k
       ROLLED                         before a loop that must not be unrolled, since registers are scarce
       UNROLLED                       before a loop over registers
       OUTLINED                       declares a long function that runs once a step or layer: a call, if registers are scarce
       DECODER_DISPATCH(set, LIST, STREAMS)    FLEET_DISPATCH; the tasks in STREAMS have their weights ahead of their events,
                                      by a pipeline or by prefetches, if the backend has one of these
       EXPERT_STREAMS(TILE_, P)       whether expert_down is one of them; needed where STREAMS are used */
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
    !defined(STAGE_K) || !defined(SMALL_M_ROWS) || !defined(SAME_ORDER_ROWS) ||                    \
    !defined(HAS_LARGE_M) || !defined(LARGE_M_PANEL_TILES) || !defined(WGMMA_K) ||                 \
    !defined(SPLIT_K_QUADS) || !defined(ROLLED) || !defined(UNROLLED) || !defined(OUTLINED) ||     \
    !defined(DECODER_DISPATCH)
#error "tasks/backend.h: the backend lacks a constant"
#endif

/* ---- memory layouts, which the host uses too ---- */

/* Position of a weight in its block of BLOCK_K k's and TILE_N columns. */
FLEET_HOST_DEVICE uint32_t pack_at(uint32_t column, uint32_t k, uint32_t inner_k);
/* Position of a weight's block in its panel, which has panel_tiles tiles. inner_k: STAGE_K or
   WGMMA_K. */
FLEET_HOST_DEVICE size_t weight_at(uint32_t column, uint32_t k, uint32_t panel_tiles,
                                   uint32_t inner_k);
/* Position of an activation in [rows][width]. */
FLEET_HOST_DEVICE size_t act_at(uint32_t row, uint32_t k, uint32_t width);
/* A page of the cache, of one KV head (kv_pages.h), in elements: its size, and the positions of
   element i of the key and of the value of its token number `row`. */
FLEET_HOST_DEVICE uint32_t page_size(const decoder *d);
FLEET_HOST_DEVICE uint32_t key_at(const decoder *d, uint32_t row, uint32_t i);
FLEET_HOST_DEVICE uint32_t value_at(const decoder *d, uint32_t row, uint32_t i);
/* Floats of the partial result of one query and KV split. */
FLEET_HOST_DEVICE uint32_t kv_partial_size(const decoder *d);

/* ---- the beginning of a task; weight_source is a type of the backend ---- */

FLEET_DEVICE weight_source weights_open(const fleet_ctx *ctx);
/* Returns the task's arguments, from where they are read quickly. Includes a barrier. */
FLEET_DEVICE const task_args *own_args(const fleet_ctx *ctx, weight_source *source,
                                       const task_args *args);
/* Rows of the step, from the arguments that own_args returned. */
FLEET_DEVICE uint32_t row_count_of(const task_args *task);
/* Their reciprocal, for fast_div. */
FLEET_DEVICE uint32_t rows_reciprocal_of(const task_args *task);
/* The worker's panels, or tiles if each panel has row_tiles of them. */
FLEET_DEVICE panel_range own_panels(const fleet_ctx *ctx, const task_args *task,
                                    uint32_t row_tiles);
/* The task's LDS, after what the backend itself keeps there. */
FLEET_DEVICE char *task_lds(const fleet_ctx *ctx);

/* ---- products ---- */

/* Loads the first activations; called before the first multiply of these rows. */
FLEET_DEVICE void multiply_begin(weight_source *source, const operand *in);
/* Tells which weights the multiply after the next one will take; null: none in this task. */
FLEET_DEVICE void weights_next(weight_source *source, const bf16 *weights);
/* Multiplies in->rows rows by a panel of in->panel_tiles tiles; the sums go to l->sums,
   [tiles][rows][TILE_N]. All threads call it. The weights are at `weights`, or next in the
   pipeline. A status other than FLEET_OK is that of the task's later products too. */
FLEET_DEVICE fleet_status multiply(const fleet_ctx *ctx, weight_source *source, const bf16 *weights,
                                   const operand *in, const linear_lds *l);
/* Multiplies the pairs of all active experts by tile n of their down weights, at decoder.first_place; the sum of each
   row's results, times their weights, goes to l->sums, which it moves, [rows][TILE_N]. All threads call it. */
FLEET_DEVICE fleet_status multiply_experts(const fleet_ctx *ctx, weight_source *source,
                                           const task_args *task, uint32_t n, linear_lds *l,
                                           uint32_t rows);
/* Computes 1 / root mean square of `rows` rows from tile_row_of(l) on, which is in l->scale after the caller's next
   barrier. Overwrites l->sums. */
FLEET_DEVICE void rms_scales(const fleet_ctx *ctx, const task_args *task, const linear_lds *l,
                             uint32_t rows);
/* Begins to copy to l->prefetched what the sums of these columns will be added to. */
FLEET_DEVICE void prefetch_residual(const fleet_ctx *ctx, const task_args *task,
                                    const linear_lds *l, uint32_t column, uint32_t columns,
                                    uint32_t rows);
/* Stores the sum of squares of each row of these tiles, from l->sums, to decoder.squares. */
FLEET_DEVICE void store_squares(const fleet_ctx *ctx, const decoder *d, const linear_lds *l,
                                uint32_t column, uint32_t tiles, uint32_t rows);

/* Returns x. NVIDIA: the compiler does not compute what follows from it ahead of all tasks, in registers that these need. */
FLEET_DEVICE uint32_t opaque(uint32_t x);

/* Adds to a word in LDS, atomically among the threads of the workgroup; returns the old value. */
FLEET_DEVICE uint32_t lds_add(uint32_t *at, uint32_t value);

/* ---- aligned vectors ---- */

FLEET_DEVICE vec4 load_vec4(const float *from);
FLEET_DEVICE void store_vec4(float *to, vec4 values);
FLEET_DEVICE void store_act4(act_t *to, const act_t *values);
FLEET_DEVICE kv_t kv_of_float(float f);

/* ---- shared code on top of the interface ---- */

FLEET_DEVICE linear_lds linear_lds_of(const fleet_ctx *ctx, uint32_t reciprocal)
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
    l.first_row = 0, l.reciprocal = reciprocal, l.own_sums = 0;
    return l;
}

/* store_act of four neighbouring columns. */
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
