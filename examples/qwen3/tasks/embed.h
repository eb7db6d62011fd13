/* tasks/embed.h: looks up the embeddings of a step's rows. */
#ifndef QWEN3_TASKS_EMBED_H
#define QWEN3_TASKS_EMBED_H

#include "residual.h"

/* Copies the embeddings of the step's rows to the residual stream. */
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
        fleet_barrier(&ctx); /* the sums of all threads are in LDS */
        store_residual(&ctx, args, &l, &from, tile.column, 1, b->rows);
        fleet_barrier(&ctx); /* the sums were read: the next tile may overwrite them */
    }
    return FLEET_OK;
}

#endif /* QWEN3_TASKS_EMBED_H */
