/* backend_in_place.h: for platforms whose products take weights from memory as they are, rather than from a stream, and
   compute a tile at a time. */
#ifndef QWEN3_BACKEND_IN_PLACE_H
#define QWEN3_BACKEND_IN_PLACE_H

#include "tasks/operands.h"

#define K_STEP BLOCK
#define PIECE_K BLOCK
#define MOST_WIDE 1u
#define JOINT 0u

/* However many rows there are, they are multiplied in one way. */
#define FEW_ROWS MOST_ROWS
#define MOST_TOGETHER MOST_WIDE
#define OPERAND_K PIECE_K
#define HAS_MANY_ROWS 0u

FLEET_BOTH size_t act_at(uint32_t row, uint32_t k, uint32_t width)
{
    return (size_t)row * width + k;
}

typedef struct weight_source {
    uint32_t none;
} weight_source;
FLEET_DEVICE weight_source weights_open(const fleet_ctx *ctx)
{
    weight_source w;
    FLEET_UNUSED(ctx);
    w.none = 0;
    return w;
}
FLEET_DEVICE void product_begin(weight_source *source, const operand *in)
{
    FLEET_UNUSED(source), FLEET_UNUSED(in);
}
#define AHEAD_ROWS 0u
FLEET_DEVICE void fetch_residual(const fleet_ctx *ctx, const op *o, const product_lds *l,
                                 uint32_t column, uint32_t columns, uint32_t rows)
{
    FLEET_UNUSED(ctx), FLEET_UNUSED(o), FLEET_UNUSED(l);
    FLEET_UNUSED(column), FLEET_UNUSED(columns), FLEET_UNUSED(rows);
}
#define DECODER_DISPATCH(set, LIST, STREAMS) FLEET_DISPATCH(set, LIST)

/* Arguments stay where they are. */
#define LDS_BYTES PRODUCT_BYTES
FLEET_DEVICE const op *own_op(const fleet_ctx *ctx, weight_source *source, const op *args)
{
    FLEET_UNUSED(ctx), FLEET_UNUSED(source);
    return args;
}
FLEET_DEVICE uint32_t rows_of(const op *o)
{
    return o->d.b->rows;
}
FLEET_DEVICE char *tile_lds(const fleet_ctx *ctx)
{
    return (char *)ctx->lds;
}

#define PRODUCT_PARTS (MOST_WAVES * MOST_ROWS * TILE)
#define PRODUCT_SUMS (MOST_ROWS * TILE)

/* Adds up what the waves left, [waves][MOST_ROWS][TILE], always in their order. */
FLEET_DEVICE void add_parts(const fleet_ctx *ctx, const product_lds *l, uint32_t rows)
{
    const uint32_t waves = ctx->threads / fleet_wave_size();
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < rows * TILE; i += ctx->threads) {
        float sum = 0;
        for (uint32_t w = 0; w < waves; w++) sum += l->parts[w * MOST_ROWS * TILE + i];
        l->sums[i] = sum;
    }
    fleet_barrier(ctx);
}

/* 1 / root mean square of each row, from the squares that the tiles before left. */
FLEET_DEVICE void scale_rows(const fleet_ctx *ctx, const op *o, const product_lds *l, uint32_t rows)
{
    const decoder *d = &o->d;
    const uint32_t tiles = d->hidden / TILE;
    if (o->normed)
        for (uint32_t i = ctx->thread; i < rows * RUNS; i += ctx->threads) {
            const uint32_t r = i / RUNS;
            float sum = 0;
            for (uint32_t t = i % RUNS; t < tiles; t += RUNS) sum += d->squares[r * tiles + t];
            l->sums[i] = sum;
        }
    fleet_barrier(ctx);
    for (uint32_t r = ctx->thread; r < rows; r += ctx->threads) {
        float sum = 0;
        for (uint32_t i = 0; i < RUNS; i++) sum += l->sums[r * RUNS + i];
        l->scale[r] = o->normed ? 1 / sqrtf(sum / (float)d->hidden + d->eps) : 1;
    }
    fleet_barrier(ctx);
}

FLEET_DEVICE four load_four(const float *from)
{
    four values;
    memcpy(&values, from, sizeof values);
    return values;
}
FLEET_DEVICE void put_four(float *to, four values)
{
    memcpy(to, &values, sizeof values);
}
FLEET_DEVICE void put_four_acts(act *to, const act *values)
{
    memcpy(to, values, 4 * sizeof *values);
}

/* Of l->sums, [tiles][rows][TILE], which another thread may have left. */
FLEET_DEVICE void put_squares(const fleet_ctx *ctx, const decoder *d, const product_lds *l,
                              uint32_t column, uint32_t tiles, uint32_t rows)
{
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < tiles * rows; i += ctx->threads) {
        const uint32_t t = over(i, l->inverse), r = i - t * rows;
        const float *sum = l->sums + i * TILE;
        float squares = 0;
        for (uint32_t c = 0; c < TILE; c++) squares += sum[c] * sum[c];
        d->squares[r * (d->hidden / TILE) + column / TILE + t] = squares;
    }
}

/* The cache of a head: its keys, then its values. In values: how many there are, and where value i of a key stands. */
FLEET_BOTH size_t cache_size(const decoder *d)
{
    return (size_t)2 * d->context * d->head_dim;
}
FLEET_BOTH size_t key_at(const decoder *d, uint32_t key, uint32_t i)
{
    return (size_t)key * d->head_dim + i;
}
FLEET_BOTH size_t value_at(const decoder *d, uint32_t key, uint32_t i)
{
    return ((size_t)d->context + key) * d->head_dim + i;
}
/* Floats of a part: sums, the largest score, the sum of weights. */
FLEET_BOTH uint32_t partial_size(const decoder *d)
{
    return d->head_dim + 2;
}

#endif /* QWEN3_BACKEND_IN_PLACE_H */
