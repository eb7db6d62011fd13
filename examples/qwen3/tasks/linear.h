/* tasks/linear.h: linear layers. */
#ifndef QWEN3_TASKS_LINEAR_H
#define QWEN3_TASKS_LINEAR_H

#include "residual.h"
#include "sample.h"

FLEET_DEVICE float silu(float x)
{
    return ratio_of(x, 1 + exp_of(-x));
}

/* The sums of `tiles` tiles of columns from number `first` on go where they are wanted. */
FLEET_DEVICE void finish(const fleet_ctx *ctx, const op *o, const product_lds *l, uint32_t first,
                         uint32_t tiles, uint32_t rows)
{
    const decoder *d = &o->d;
    const uint32_t column = first * TILE, half = TILE / 2, inverse = l->inverse;
    if (o->ending == END_LOGITS) {
        put_logits(ctx, d, l, column,
                   d->vocab - column < tiles * TILE ? d->vocab - column : tiles * TILE, rows);
    } else if (o->ending == END_SILU) {
        const uint32_t fours = half / 4;
        for (uint32_t i = ctx->thread; i < tiles * rows * fours; i += ctx->threads) {
            const uint32_t t = over(i / fours, inverse), r = i / fours - t * rows,
                           c = (first + t) * half + i % fours * 4;
            const float *sum = l->sums + i / fours * TILE + i % fours * 4, scale = l->scale[r];
            const four gate = load_four(sum), up = load_four(sum + half);
            four gated;
            for (uint32_t j = 0; j < 4; j++)
                gated.value[j] = silu(gate.value[j] * scale) * (up.value[j] * scale);
            if (c < o->columns) put_acts(o->acts + act_at(r, c, o->columns), o->acts_second, gated);
        }
    } else if (o->ending == END_FLOATS) {
        for (uint32_t i = ctx->thread; i < tiles * rows * TILE; i += ctx->threads) {
            const uint32_t t = over(i / TILE, inverse), r = i / TILE - t * rows,
                           c = column + t * TILE + i % TILE;
            if (c < o->columns) o->floats[r * o->columns + c] = l->sums[i] * l->scale[r];
        }
    } else {
        const residual from = residual_of(o, l, column, rows);
        put_residual(ctx, o, l, &from, column, tiles, rows);
    }
}

/* A layer's, whose rows are those of the step. */
FLEET_DEVICE operand operand_of(const op *o, uint32_t rows)
{
    operand in;
    in.x = o->x, in.second = o->x_second, in.list = NULL, in.first = 0;
    in.k = o->shape.k, in.rows = rows, in.wide = MOST_WIDE > 1 ? o->shape.tile_n / TILE : 1;
    return in;
}

/* A linear layer, with the norm before it and what comes after it. All rows of the step are one tile: a weight is read
   by one worker, once. */
FLEET_TILE(linear, op)
{
    weight_source weights = weights_open(&ctx);
    const op *o = own_op(&ctx, &weights, args);
    const decoder *d = &o->d;
    const uint32_t rows = rows_of(o);
    const operand in = operand_of(o, rows);
    product_lds l;
    tile_range range;
    fleet_status status = FLEET_OK;
    FLEET_UNUSED(at);
    if (rows == 0) return FLEET_OK;
    product_begin(&weights, &in); /* before all else, for it is what is waited for */
    l = product_lds_of(&ctx, rows), range = tiles_of(o, &ctx);
    if (o->ending != END_RESIDUAL) scale_rows(&ctx, o, &l, rows); /* which takes sums as they are */
    if (o->ending == END_LOGITS) begin_logits(&ctx, d, &l, rows);
    for (uint32_t n = range.first; n < range.end; n += range.step) {
        const uint32_t wide = in.wide,
                       left = o->shape.n / TILE - n * wide; /* the last one may not be full */
        fleet_status s;
        if (o->ending == END_RESIDUAL && rows <= AHEAD_ROWS) {
            fleet_barrier(&ctx); /* the tile before has read its own */
            fetch_residual(&ctx, o, &l, n * wide * TILE, wide * TILE, rows);
        }
        s = multiply(&ctx, &weights, weights_of(o, n), &in, &l);
        if (s) status = s; /* but the other waves may be waiting */
        finish(&ctx, o, &l, n * wide, MOST_WIDE > 1 && left < wide ? left : wide, rows);
    }
    if (o->ending == END_LOGITS) {
        fleet_barrier(&ctx);
        end_logits(&ctx, d, &l, rows);
    }
    return status;
}

#endif /* QWEN3_TASKS_LINEAR_H */
