/* tasks/operands.h: what tasks that multiply have in common with backends. */
#ifndef QWEN3_TASKS_OPERANDS_H
#define QWEN3_TASKS_OPERANDS_H

#include "../decoder.h"

/* The rows of a product, and how wide it is. Row i is list[i] of x, or first + i where there is no list. */
typedef struct operand {
    const act *x;
    const int32_t *list;
    uint32_t first;
    uint32_t k; /* of x, too */
    uint32_t
        second; /* where the second bf16 of an activation is, behind the first; 0: there is none */
    uint32_t rows;
    uint32_t wide; /* tiles of columns */
} operand;

FLEET_DEVICE uint32_t row_of(const operand *in, uint32_t i)
{
    return in->list ? (uint32_t)in->list[i] : in->first + i;
}

/* LDS of the tiles that multiply. */
typedef struct product_lds {
    float *parts; /* [PRODUCT_PARTS]: what the waves add up */
    float *sums;  /* [PRODUCT_SUMS]: of a wide tile, [wide][rows][TILE] */
    float *scale; /* [MOST_ROWS] */
    float *best;  /* [MOST_ROWS][LOOKERS]: the largest logit so far of some of the columns */
    int32_t *best_token, *wanted; /* likewise; [MOST_ROWS]: 1: the row chooses a token */
    void *behind;                 /* a platform's own */
    float *ahead; /* [rows + 1][ahead_columns] of up to ahead_rows rows: see residual_of */
    uint32_t ahead_rows, ahead_columns;
    uint32_t inverse; /* of the rows: see over */
} product_lds;
#define LOOKERS (THREADS / MOST_ROWS)
#define PRODUCT_BYTES ((PRODUCT_PARTS + PRODUCT_SUMS + MOST_ROWS * (2 + 2 * LOOKERS)) * 4)

FLEET_DEVICE const bf16 *weights_of(const op *o, uint32_t n)
{
    return o->weights + (size_t)n * (o->tile_bytes / 2);
}

/* What a wide tile's sums are added to, and the weights of the norm to come: in memory, or in LDS, where a platform has
   brought them ahead (fetch_residual). */
typedef struct residual {
    const float *h, *norm;
    uint32_t step; /* from row to row of h */
} residual;
FLEET_DEVICE residual residual_of(const op *o, const product_lds *l, uint32_t column, uint32_t rows)
{
    residual r;
    r.h = o->d.h + column, r.norm = o->norm + column, r.step = o->d.hidden;
    if (rows <= l->ahead_rows) {
        r.step = l->ahead_columns;
        r.h = l->ahead, r.norm = l->ahead + rows * r.step;
    }
    return r;
}

/* n / rows, of up to MOST_ROWS rows of some tiles: divisions take long. */
FLEET_DEVICE uint32_t inverse_of(uint32_t rows)
{
    return (1u << 20) / (rows ? rows : 1) + 1;
}
FLEET_DEVICE uint32_t over(uint32_t n, uint32_t inverse)
{
    return n * inverse >> 20;
}

#define RUNS 16u /* threads that share the work on a row: at most TILE */

/* Which wide tiles of a product a worker computes. */
typedef struct tile_range {
    uint32_t begin, end; /* of the chiplet */
    uint32_t first, step;
} tile_range;

FLEET_DEVICE tile_range tiles_of(const op *o, const fleet_ctx *ctx)
{
    const fleet_part part = fleet_linear_part(&o->shape, ctx->slice, ctx->slices);
    const uint32_t n = ctx->tile_num;
    tile_range t;
    const uint32_t turn = o->turn < n ? o->turn : o->turn % n, mine = ctx->tile_index + n - turn;
    t.begin = part.first_n, t.end = part.first_n + part.n_tiles;
    t.first = t.begin + (mine < n ? mine : mine - n), t.step = n;
    return t;
}

/* Neighbouring columns that a thread has: it waits once for all of them. */
typedef struct __attribute__((aligned(16))) four {
    float value[4];
} four;

/* Puts an activation where a product will take it. */
FLEET_DEVICE void put_act(act *to, uint32_t second, float value)
{
    to[0] = act_of(value);
    if (second) to[second] = act_of(value - float_of(to[0]));
}

#endif /* QWEN3_TASKS_OPERANDS_H */
