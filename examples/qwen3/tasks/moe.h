/* tasks/moe.h: mixture of experts. */
#ifndef QWEN3_TASKS_MOE_H
#define QWEN3_TASKS_MOE_H

#include "linear.h"

/* Which experts each row goes to, and with what weight; then the pairs sorted by expert. One task. */
FLEET_TILE(route, op)
{
    const decoder *d = &args->d;
    const uint32_t rows = d->b->rows, pairs = rows * d->top_k;
    int32_t *expert = (int32_t *)tile_lds(&ctx);      /* [pairs] */
    int32_t *count = expert + MOST_ROWS * MOST_TOP_K; /* [experts] */
    FLEET_UNUSED(at);
    for (uint32_t r = ctx.thread; r < rows; r += ctx.threads) {
        const float *score = d->scores + r * d->experts;
        float most = -INFINITY, sum = 0, chosen = 0;
        for (uint32_t e = 0; e < d->experts; e++) most = fmaxf(most, comparable(score[e]));
        for (uint32_t e = 0; e < d->experts; e++) sum += exp_of(comparable(score[e]) - most);
        for (uint32_t j = 0; j < d->top_k; j++) {
            /* The best of those that come behind the one before: with a lower score, or the same and a higher number. */
            uint32_t best = d->experts;
            const uint32_t before = j ? (uint32_t)expert[r * d->top_k + j - 1] : d->experts;
            const float bound = j ? comparable(score[before]) : 0;
            float highest = 0;
            for (uint32_t e = 0; e < d->experts; e++) {
                const float value = comparable(score[e]);
                if (j && !is_better(bound, (int32_t)before, value, (int32_t)e)) continue;
                if (best == d->experts || value > highest) best = e, highest = value;
            }
            expert[r * d->top_k + j] = (int32_t)best;
            chosen += exp_of(highest - most);
        }
        for (uint32_t j = 0; j < d->top_k; j++)
            d->pair_weight[r * d->top_k + j] =
                exp_of(comparable(score[expert[r * d->top_k + j]]) - most) /
                (d->norm_topk ? chosen : sum);
    }
    fleet_barrier(&ctx);
    for (uint32_t e = ctx.thread; e < d->experts; e += ctx.threads) {
        int32_t n = 0;
        for (uint32_t i = 0; i < pairs; i++) n += expert[i] == (int32_t)e;
        count[e] = n;
    }
    fleet_barrier(&ctx);
    if (ctx.thread == 0) {
        int32_t active = 0, place = 0;
        for (uint32_t e = 0; e < d->experts; e++) {
            const int32_t n = count[e];
            count[e] = place;
            if (!n) continue;
            d->active[active] = (int32_t)e;
            d->first_place[active++] = place;
            place += n;
        }
        d->first_place[active] = place;
        *d->n_active = active;
    }
    fleet_barrier(&ctx);
    for (uint32_t e = ctx.thread; e < d->experts; e += ctx.threads) {
        int32_t place = count[e];
        for (uint32_t i = 0; i < pairs; i++) {
            if (expert[i] != (int32_t)e) continue;
            d->place_row[place] = (int32_t)(i / d->top_k);
            d->pair_place[i] = place++;
        }
    }
    return FLEET_OK;
}

/* The experts that have rows, each TILE columns at a time: gates and ups from rows of x, or downs from what they left. */
FLEET_TILE(expert, op)
{
    weight_source weights = weights_open(&ctx);
    const op *o = own_op(&ctx, &weights, args);
    const decoder *d = &o->d;
    const uint32_t all = rows_of(o);
    product_lds l = product_lds_of(&ctx, all);
    const uint32_t tiles = o->shape.n / TILE, items = all ? (uint32_t)*d->n_active * tiles : 0;
    fleet_status status = FLEET_OK;
    FLEET_UNUSED(at);
    if (all == 0) return FLEET_OK;
    scale_rows(&ctx, o, &l, all);
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < items;
         i += ctx.tile_num * ctx.slices) {
        const uint32_t e = i / tiles, n = i % tiles;
        const uint32_t first = (uint32_t)d->first_place[e],
                       rows = (uint32_t)d->first_place[e + 1] - first;
        operand in;
        fleet_status s;
        in.x = o->x, in.second = o->x_second, in.k = o->shape.k;
        in.rows = rows, in.wide = 1;
        l.inverse = inverse_of(rows);
        in.list = o->ending == END_SILU ? d->place_row + first : NULL, in.first = first;
        product_begin(&weights, &in);
        s = multiply(&ctx, &weights, weights_of(o, (uint32_t)d->active[e] * tiles + n), &in, &l);
        if (s) status = s; /* but the other waves may be waiting */
        if (o->ending == END_SILU)
            for (uint32_t j = ctx.thread; j < rows * TILE / 2; j += ctx.threads) {
                const uint32_t r = j / (TILE / 2), c = n * (TILE / 2) + j % (TILE / 2);
                const float *sum = l.sums + r * TILE + j % (TILE / 2), scale = l.scale[in.list[r]];
                if (c < o->columns)
                    put_act(o->acts + act_at(first + r, c, o->columns), o->acts_second,
                            silu(sum[0] * scale) * (sum[TILE / 2] * scale));
            }
        else
            for (uint32_t j = ctx.thread; j < rows * TILE; j += ctx.threads) {
                const uint32_t r = j / TILE, c = n * TILE + j % TILE;
                if (c < o->columns) o->floats[(size_t)(first + r) * o->columns + c] = l.sums[j];
            }
    }
    return status;
}

/* The weighted sum of a row's experts, onto the residual stream. */
FLEET_TILE(add_experts, op)
{
    const decoder *d = &args->d;
    const product_lds l = product_lds_of(&ctx, d->b->rows);
    FLEET_UNUSED(at);
    FLEET_FOR_TILES(tile, &args->shape, ctx)
    {
        const residual from = {d->h + tile.column, args->norm + tile.column, d->hidden};
        for (uint32_t i = ctx.thread; i < d->b->rows * TILE; i += ctx.threads) {
            const uint32_t r = i / TILE, c = tile.column + i % TILE;
            float sum = 0;
            for (uint32_t j = 0; j < d->top_k; j++) {
                const uint32_t pair = r * d->top_k + j;
                sum += d->pair_weight[pair] *
                       d->expert_out[(size_t)(uint32_t)d->pair_place[pair] * d->hidden + c];
            }
            l.sums[i] = sum;
        }
        fleet_barrier(&ctx); /* sums are there, whoever left them */
        put_residual(&ctx, args, &l, &from, tile.column, 1, d->b->rows);
        fleet_barrier(&ctx); /* sums are the next tile's */
    }
    return FLEET_OK;
}

#endif /* QWEN3_TASKS_MOE_H */
