/* tasks/backend.h: the interface between tasks and backends: all that a backend defines, and what follows from it.

   A backend is three things: a section of platform.h (sizes and number formats), backend_NAME.h, and the attention tasks
   (tasks/attention.h serves where a backend has dot and add_eight). A definition that differs from a prototype here does
   not compile. Constants, as macros:

       LDS_BYTES                      dynamic LDS of a workgroup, without the ring of a weight stream
       PRODUCT_PARTS, PRODUCT_SUMS    floats of product_lds's parts and sums
       AHEAD_ROWS                     rows of the residual that fetch_residual brings to LDS; 0: none
       K_STEP                         packed weights end with zeros, up to a multiple of so many k's
       MOST_WIDE                      tiles of columns that are computed together, at most
       PIECE_K                        k's of a tile that are packed together
       FEW_ROWS                       rows up to which a product is one of few rows
       HAS_MANY_ROWS                  1: there are other products for more rows; known to the device's code alone. With
                                      MOST_TOGETHER and OPERAND_K in place of MOST_WIDE and PIECE_K
       JOINT                          16-byte words of a worker in decoder.joint
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

#if !defined(LDS_BYTES) || !defined(PRODUCT_PARTS) || !defined(PRODUCT_SUMS) ||                    \
    !defined(AHEAD_ROWS) || !defined(K_STEP) || !defined(MOST_WIDE) || !defined(PIECE_K) ||        \
    !defined(FEW_ROWS) || !defined(HAS_MANY_ROWS) || !defined(MOST_TOGETHER) ||                    \
    !defined(OPERAND_K) || !defined(JOINT) || !defined(DECODER_DISPATCH)
#error "tasks/backend.h: the backend lacks a constant"
#endif

/* ---- where values lie, for the host too ---- */

/* A weight, from where its block of BLOCK k's and TILE columns begins. */
FLEET_BOTH uint32_t pack_at(uint32_t column, uint32_t k, uint32_t piece_k);
/* A weight, from where its wide tile begins, which has `wide` tiles of columns; piece_k: PIECE_K, or OPERAND_K. */
FLEET_BOTH size_t weight_at(uint32_t column, uint32_t k, uint32_t wide, uint32_t piece_k);
/* An activation of [rows][width]. */
FLEET_BOTH size_t act_at(uint32_t row, uint32_t k, uint32_t width);
/* The cache of a sequence's head, in values: its size, and where value i of a key and of what belongs to it stands. */
FLEET_BOTH size_t cache_size(const decoder *d);
FLEET_BOTH size_t key_at(const decoder *d, uint32_t key, uint32_t i);
FLEET_BOTH size_t value_at(const decoder *d, uint32_t key, uint32_t i);
/* Floats that a part of a head's attention leaves. */
FLEET_BOTH uint32_t partial_size(const decoder *d);

/* ---- a task's begin: weight_source is a type of the backend ---- */

FLEET_DEVICE weight_source weights_open(const fleet_ctx *ctx);
/* The task's arguments, where they are read fast. A barrier. */
FLEET_DEVICE const op *own_op(const fleet_ctx *ctx, weight_source *source, const op *args);
/* Rows of the step, by the arguments that own_op returned. */
FLEET_DEVICE uint32_t rows_of(const op *o);
/* The task's LDS, without what the backend needs of it. */
FLEET_DEVICE char *tile_lds(const fleet_ctx *ctx);

/* ---- products ---- */

/* Once before the first multiply of these rows. */
FLEET_DEVICE void product_begin(weight_source *source, const operand *in);
/* The products of in->rows rows with in->wide tiles of columns to l->sums, [tiles][rows][TILE]; all threads. Weights are those
   at `weights`, or the stream's next. */
FLEET_DEVICE fleet_status multiply(const fleet_ctx *ctx, weight_source *source, const bf16 *weights,
                                   const operand *in, const product_lds *l);
/* 1 / root mean square of each row to l->scale; there after the caller's next barrier. */
FLEET_DEVICE void scale_rows(const fleet_ctx *ctx, const op *o, const product_lds *l,
                             uint32_t rows);
/* Begins to bring to l->ahead what sums of these columns are added to. */
FLEET_DEVICE void fetch_residual(const fleet_ctx *ctx, const op *o, const product_lds *l,
                                 uint32_t column, uint32_t columns, uint32_t rows);
/* The sum of the squares of each row of some tiles, of l->sums, to decoder.squares. */
FLEET_DEVICE void put_squares(const fleet_ctx *ctx, const decoder *d, const product_lds *l,
                              uint32_t column, uint32_t tiles, uint32_t rows);

/* ---- values that stand together, from where so many are aligned ---- */

FLEET_DEVICE four load_four(const float *from);
FLEET_DEVICE void put_four(float *to, four values);
FLEET_DEVICE void put_four_acts(act *to, const act *values);
FLEET_DEVICE kept kept_of(float f);

/* ---- what follows from these ---- */

FLEET_DEVICE product_lds product_lds_of(const fleet_ctx *ctx, uint32_t rows)
{
    product_lds l;
    l.parts = (float *)tile_lds(ctx);
    l.sums = l.parts + PRODUCT_PARTS;
    l.scale = l.sums + PRODUCT_SUMS;
    l.best = l.scale + MOST_ROWS;
    l.best_token = (int32_t *)(l.best + MOST_ROWS * LOOKERS);
    l.wanted = l.best_token + MOST_ROWS * LOOKERS;
    l.behind = l.wanted + MOST_ROWS;
    l.ahead = (float *)l.behind, l.ahead_rows = AHEAD_ROWS, l.ahead_columns = MOST_WIDE * TILE;
    l.inverse = inverse_of(rows);
    return l;
}

/* put_act of four neighbours. */
FLEET_DEVICE void put_acts(act *to, uint32_t second, four values)
{
    act first[4], others[4];
    for (uint32_t i = 0; i < 4; i++) {
        first[i] = act_of(values.value[i]);
        others[i] = act_of(values.value[i] - float_of(first[i]));
    }
    put_four_acts(to, first);
    if (second) put_four_acts(to + second, others);
}

#endif /* QWEN3_TASKS_BACKEND_H */
