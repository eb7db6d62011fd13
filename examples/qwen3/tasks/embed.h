/* tasks/embed.h: begins a step's residual stream. */
#ifndef QWEN3_TASKS_EMBED_H
#define QWEN3_TASKS_EMBED_H

#include "../kv_pages.h"
#include "residual.h"

/* Clears the pages that begin with these rows, in all layers: in a server another request has used them, whose numbers
   need not be finite (kv_pages.h). A row without a sequence has none. */
FLEET_DEVICE void clear_pages(const fleet_ctx *ctx, const decoder *d, const token_row *rows,
                              uint32_t n)
{
    const uint32_t vectors = page_size(d) * (uint32_t)sizeof(kv_t) / (uint32_t)sizeof(vec4);
    const vec4 zeros = {{0, 0, 0, 0}};
    for (uint32_t i = ctx->slice + ctx->tile_index * ctx->slices; i < n * d->layers;
         i += ctx->tile_num * ctx->slices) {
        const token_row *row = &rows[i % n];
        kv_t *layer = d->cache + layer_cache_size(d) * (i / n);
        if ((uint32_t)row->position % PAGE_TOKENS || row->sequence < 0) continue;
        for (uint32_t head = 0; head < d->kv_heads; head++) {
            float *page = (float *)(void *)kv_page(d, layer, head, row->page);
            for (uint32_t v = ctx->thread; v < vectors; v += ctx->threads)
                store_vec4(page + v * 4, zeros);
        }
    }
}

/* Copies the embeddings of the step's rows to the residual stream, or where task->floats is not null what layers that have run
   before have left of their sequences: [sequences][hidden]. */
FLEET_TILE(embed, task_args)
{
    const decoder *d = &args->d;
    const batch *b = d->b;
    const linear_lds l = linear_lds_of(&ctx, reciprocal_of(b->rows));
    FLEET_UNUSED(at);
    if (d->table) clear_pages(&ctx, d, b->row, b->rows);
    FLEET_FOR_TILES(tile, &args->shape, ctx)
    {
        const residual from = {NULL, args->norm + tile.column, 0};
        for (uint32_t i = ctx.thread; i < b->rows * TILE_N; i += ctx.threads) {
            const uint32_t c = tile.column + i % TILE_N;
            const token_row *row = &b->row[i / TILE_N];
            l.sums[i] = args->floats
                            ? args->floats[(size_t)row->sequence * d->hidden + c]
                            : float_of_bf16(d->embedding[(size_t)row->token * d->hidden + c]);
        }
        fleet_barrier(&ctx); /* the sums of all threads are in LDS */
        store_residual(&ctx, args, &l, &from, tile.column, 1, b->rows);
        fleet_barrier(&ctx); /* the sums were read: the next tile may overwrite them */
    }
    return FLEET_OK;
}

#endif /* QWEN3_TASKS_EMBED_H */
