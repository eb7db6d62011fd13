/* tasks/operands.h: what tasks that multiply have in common with backends. */
#ifndef QWEN3_TASKS_OPERANDS_H
#define QWEN3_TASKS_OPERANDS_H

#include "../decoder.h"

/* The rows of a product, and how wide it is. Row i is list[i] of x, or first + i where there is no list. */
typedef struct operand {
    const act_t *x;
    const int32_t *list;
    uint32_t first;
    uint32_t k; /* of x, too */
    uint32_t
        low; /* where the second bf16 of an activation is, behind the first; 0: there is none */
    uint32_t rows;
    uint32_t panel_tiles; /* tiles of columns */
} operand;

FLEET_DEVICE uint32_t row_of(const operand *in, uint32_t i)
{
    return in->list ? (uint32_t)in->list[i] : in->first + i;
}

/* LDS of the tiles that multiply. */
typedef struct linear_lds {
    float *partials; /* [PARTIAL_FLOATS]: what the waves add up */
    float *sums;     /* [SUM_FLOATS]: of a wide tile, [wide][rows][TILE_N] */
    float *scale;    /* [MAX_ROWS] */
    float *best;     /* [MAX_ROWS][ARGMAX_LANES]: the largest logit so far of some of the columns */
    int32_t *best_token, *chooses; /* likewise; [MAX_ROWS]: 1: the row chooses a token */
    void *extra;                   /* a platform's own */
    float *
        prefetched; /* [rows + 1][prefetched_stride] of up to prefetched_rows rows: see residual_of */
    uint32_t prefetched_rows, prefetched_stride;
    uint32_t reciprocal; /* of the rows: see over */
} linear_lds;
#define ARGMAX_LANES (THREADS / MAX_ROWS)
#define LINEAR_LDS_BYTES ((PARTIAL_FLOATS + SUM_FLOATS + MAX_ROWS * (2 + 2 * ARGMAX_LANES)) * 4)

FLEET_DEVICE const bf16 *panel_weights(const task_args *task, uint32_t n)
{
    return task->weights + (size_t)n * (task->panel_bytes / 2);
}

/* What a wide tile's sums are added to, and the weights of the norm to come: in memory, or in LDS, where a platform has
   brought them ahead (prefetch_residual). */
typedef struct residual {
    const float *h, *norm;
    uint32_t step; /* from row to row of h */
} residual;
FLEET_DEVICE residual residual_of(const task_args *task, const linear_lds *l, uint32_t column,
                                  uint32_t rows)
{
    residual r;
    r.h = task->d.h + column, r.norm = task->norm + column, r.step = task->d.hidden;
    if (rows <= l->prefetched_rows) {
        r.step = l->prefetched_stride;
        r.h = l->prefetched, r.norm = l->prefetched + rows * r.step;
    }
    return r;
}

/* n / rows, of up to MAX_ROWS rows of some tiles: divisions take long. */
FLEET_DEVICE uint32_t reciprocal_of(uint32_t rows)
{
    return (1u << 20) / (rows ? rows : 1) + 1;
}
FLEET_DEVICE uint32_t fast_div(uint32_t n, uint32_t reciprocal)
{
    return n * reciprocal >> 20;
}

#define LANES_PER_ROW 16u /* threads that share the work on a row: at most TILE_N */

/* Which wide tiles of a product a worker computes. */
typedef struct panel_range {
    uint32_t begin, end; /* of the chiplet */
    uint32_t first, step;
} panel_range;

FLEET_DEVICE panel_range panels_of_worker(const task_args *task, const fleet_ctx *ctx)
{
    const fleet_part part = fleet_linear_part(&task->shape, ctx->slice, ctx->slices);
    const uint32_t n = ctx->tile_num;
    panel_range t;
    const uint32_t offset = task->first_worker < n ? task->first_worker : task->first_worker % n,
                   mine = ctx->tile_index + n - offset;
    t.begin = part.first_n, t.end = part.first_n + part.n_tiles;
    t.first = t.begin + (mine < n ? mine : mine - n), t.step = n;
    return t;
}

/* Neighbouring columns that a thread has: it waits once for all of them. */
typedef struct __attribute__((aligned(16))) vec4 {
    float value[4];
} vec4;

/* Puts an activation where a product will take it. */
FLEET_DEVICE void store_act(act_t *to, uint32_t low, float value)
{
    to[0] = act_of_float(value);
    if (low) to[low] = act_of_float(value - float_of_act(to[0]));
}

#endif /* QWEN3_TASKS_OPERANDS_H */
