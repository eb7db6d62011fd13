/* tasks/ranks.h: what a decoder over several ranks has instead of the residual epilogue, and after lm_head. Each rank's product of o, and of
   down or the experts, is a summand of the residual stream, [MAX_ROWS][hidden] in its region, and `add_ranks` adds those of
   all ranks. There are two places, which o and down take in turns: a rank stores to one again after its own `add_ranks`
   of the other, which has waited for all ranks to be through with the first. What lm_head has left in a region is read
   before the next step's first sum of all ranks, and stored to after it. */
#ifndef QWEN3_TASKS_RANKS_H
#define QWEN3_TASKS_RANKS_H

#include "residual.h"
#include "sample.h"

/* Adds the ranks' summands, in their order, so that all ranks have the same bits, and adds the sum to the residual stream.
   task->floats: this rank's summand. */
FLEET_TILE(add_ranks, task_args)
{
    const decoder *d = &args->d;
    const linear_lds l = linear_lds_of(&ctx, d->b->rows);
    FLEET_UNUSED(at);
    FLEET_FOR_TILES(tile, &args->shape, ctx)
    {
        const residual from = {d->h + tile.column, args->norm + tile.column, d->hidden};
        for (uint32_t i = ctx.thread; i < d->b->rows * TILE_N; i += ctx.threads) {
            const size_t at_sum = (size_t)(i / TILE_N) * d->hidden + tile.column + i % TILE_N;
            float sum = 0;
            for (uint32_t r = 0; r < d->peers->ranks; r++)
                sum += ((const float *)fleet_peer_address(d->peers, args->floats, r))[at_sum];
            l.sums[i] = sum;
        }
        fleet_barrier(&ctx); /* the sums of all threads are in LDS */
        store_residual(&ctx, args, &l, &from, tile.column, 1, d->b->rows);
        fleet_barrier(&ctx); /* the sums were read: the next tile may overwrite them */
    }
    return FLEET_OK;
}

/* After `route`: leaves this rank's experts in the list of those that are active, numbered from 0 on. The list is sorted,
   so they are neighbours, and so are the places of their pairs. */
FLEET_TILE(own_experts, task_args)
{
    const decoder *d = &args->d;
    const int32_t begin = (int32_t)d->first_expert, end = begin + (int32_t)d->own_experts;
    FLEET_UNUSED(at);
    if (ctx.thread == 0 && d->b->rows) {
        const int32_t all = *d->n_active;
        int32_t first = 0, n = 0;
        while (first < all && d->active[first] < begin) first++;
        for (; first + n < all && d->active[first + n] < end; n++)
            d->active[n] = d->active[first + n] - begin,
            d->first_place[n] = d->first_place[first + n];
        d->first_place[n] = d->first_place[first + n];
        *d->n_active = n;
    }
    return FLEET_OK;
}

/* Brings together what the ranks have found among their tokens: best, best_token and the logits that are kept, as lm_head
   leaves them where there is one rank. args->columns: the tokens of a rank's share. One task. */
FLEET_TILE(join_heads, task_args)
{
    const decoder *d = &args->d;
    const uint32_t ranks = d->peers->ranks, each = args->columns, rows = d->b->rows;
    FLEET_UNUSED(at);
    for (uint32_t i = ctx.thread; i < d->chiplets * d->workers * rows; i += ctx.threads) {
        const uint32_t to = i / rows * MAX_ROWS + i % rows;
        float best = -INFINITY;
        int32_t token = 0;
        for (uint32_t r = 0; r < ranks; r++) {
            const float *from = (const float *)fleet_peer_address(d->peers, heads_of(d), r);
            const int32_t *tokens = (const int32_t *)(const void *)(from + bests_of(d));
            const int32_t its = tokens[to] + (int32_t)(r * each);
            if (is_better(from[to], its, best, token)) best = from[to], token = its;
        }
        d->best[to] = best, d->best_token[to] = token;
    }
    for (uint32_t n = 0; d->logits && n < d->b->sequences; n++) {
        const sequence_state *s = &d->b->sequence[n];
        float *to = d->logits + logits_at(d, n);
        if (!s->rows || !s->samples) continue;
        for (uint32_t r = 0; r < ranks; r++, to += each) {
            const uint32_t own = tokens_of_rank(d, each, r);
            const float *from = (const float *)fleet_peer_address(d->peers, heads_of(d), r) +
                                2 * bests_of(d) + logits_at(d, n) / d->vocab * own;
            for (uint32_t i = ctx.thread; i < own; i += ctx.threads) to[i] = from[i];
        }
    }
    return FLEET_OK;
}

#endif /* QWEN3_TASKS_RANKS_H */
