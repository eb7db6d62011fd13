/* tasks/residual.h: writes the residual stream and the input of the next layer. */
#ifndef QWEN3_TASKS_RESIDUAL_H
#define QWEN3_TASKS_RESIDUAL_H

#include "backend.h"

/* Adds l->sums of some tiles, from `column` on, to from->h (if not null), and stores the result to
   the residual stream and, times the next norm's weights, to x. A thread writes its results back to
   l->sums, where store_squares finds them. */
FLEET_DEVICE void store_residual(const fleet_ctx *ctx, const task_args *task, const linear_lds *l,
                                 const residual *from, uint32_t column, uint32_t tiles,
                                 uint32_t rows)
{
    const decoder *d = &task->d;
    const uint32_t fours = TILE_N / 4, first = tile_row_of(l);
    for (uint32_t i = ctx->thread; i < tiles * rows * fours; i += ctx->threads) {
        const uint32_t t = fast_div(i / fours, l->reciprocal), r = i / fours - t * rows,
                       c = t * TILE_N + i % fours * 4;
        const vec4 norm = load_vec4(from->norm + c);
        vec4 h = load_vec4(l->sums + i * 4), next;
        if (from->h) {
            const vec4 before = load_vec4(from->h + r * from->step + c);
            for (uint32_t j = 0; j < 4; j++) h.value[j] += before.value[j];
        }
        for (uint32_t j = 0; j < 4; j++) next.value[j] = h.value[j] * norm.value[j];
        store_vec4(l->sums + i * 4, h);
        store_vec4(d->h + (first + r) * d->hidden + column + c, h);
        store_acts(d->x + act_at(first + r, column + c, d->hidden),
                   d->two_terms * MAX_ROWS * d->hidden, next);
    }
    store_squares(ctx, d, l, column, tiles, rows);
}

#endif /* QWEN3_TASKS_RESIDUAL_H */
