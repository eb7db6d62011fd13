/* tasks/embed.h: the embeddings of a step. */
#ifndef QWEN3_TASKS_EMBED_H
#define QWEN3_TASKS_EMBED_H

#include "residual.h"

/* The embeddings of the step's rows. */
FLEET_TILE(embed, task_args)
{
    const decoder *d = &args->d;
    const batch *b = d->b;
    const linear_lds l = linear_lds_of(&ctx, b->rows);
    FLEET_UNUSED(at);
    FLEET_FOR_TILES(tile, &args->shape, ctx)
    {
        const residual from = {NULL, args->norm + tile.column, 0};
        for (uint32_t i = ctx.thread; i < b->rows * TILE_N; i += ctx.threads) {
            const uint32_t r = i / TILE_N, c = tile.column + i % TILE_N;
            const token_row *row = &b->row[r];
            const int32_t token =
                d->tokens[(uint32_t)row->sequence * (d->context + 1) + (uint32_t)row->position];
            l.sums[i] = float_of_bf16(d->embedding[(size_t)token * d->hidden + c]);
        }
        fleet_barrier(&ctx); /* sums are there, whoever left them */
        store_residual(&ctx, args, &l, &from, tile.column, 1, b->rows);
        fleet_barrier(&ctx); /* sums are the next tile's */
    }
    return FLEET_OK;
}

#endif /* QWEN3_TASKS_EMBED_H */
