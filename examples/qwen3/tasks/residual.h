/* tasks/residual.h: the residual stream, and the inputs of the next layer. */
#ifndef QWEN3_TASKS_RESIDUAL_H
#define QWEN3_TASKS_RESIDUAL_H

#include "backend.h"

/* Puts some tiles of the new residual stream, from `column` on, where the next layer looks for them: from->h, if there is
   any, and l->sums, which a thread reads where it has left them: fours of number thread, thread + threads... */
FLEET_DEVICE void put_residual(const fleet_ctx *ctx, const op *o, const product_lds *l,
                               const residual *from, uint32_t column, uint32_t tiles, uint32_t rows)
{
    const decoder *d = &o->d;
    const uint32_t fours = TILE / 4;
    for (uint32_t i = ctx->thread; i < tiles * rows * fours; i += ctx->threads) {
        const uint32_t t = over(i / fours, l->inverse), r = i / fours - t * rows,
                       c = t * TILE + i % fours * 4;
        const four norm = load_four(from->norm + c);
        four h = load_four(l->sums + i * 4), next;
        if (from->h) {
            const four before = load_four(from->h + r * from->step + c);
            for (uint32_t j = 0; j < 4; j++) h.value[j] += before.value[j];
        }
        for (uint32_t j = 0; j < 4; j++) next.value[j] = h.value[j] * norm.value[j];
        put_four(l->sums + i * 4, h);
        put_four(d->h + r * d->hidden + column + c, h);
        put_acts(d->x + act_at(r, column + c, d->hidden), d->split * MOST_ROWS * d->hidden, next);
    }
    put_squares(ctx, d, l, column, tiles, rows);
}

#endif /* QWEN3_TASKS_RESIDUAL_H */
