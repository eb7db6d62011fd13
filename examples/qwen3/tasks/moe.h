/* tasks/moe.h: mixture of experts: `route` chooses experts, `expert` multiplies (gate and up, then down), `add_experts` adds
   the weighted results to the residual stream. */
#ifndef QWEN3_TASKS_MOE_H
#define QWEN3_TASKS_MOE_H

#include "linear.h"

/* Chooses each row's experts and their weights, then sorts the pairs by expert. One task. */
FLEET_TILE(route, task_args)
{
    const decoder *d = &args->d;
    const uint32_t rows = d->b->rows, pairs = rows * d->top_k;
    int32_t *expert = (int32_t *)task_lds(&ctx);    /* [pairs] */
    int32_t *count = expert + MAX_ROWS * MAX_TOP_K; /* [experts] */
    FLEET_UNUSED(at);
    for (uint32_t r = ctx.thread; r < rows; r += ctx.threads) {
        const float *score = d->scores + r * d->experts;
        float row_max = -INFINITY, sum = 0, chosen = 0;
        for (uint32_t e = 0; e < d->experts; e++) row_max = fmaxf(row_max, nan_to_inf(score[e]));
        for (uint32_t e = 0; e < d->experts; e++) sum += fast_exp(nan_to_inf(score[e]) - row_max);
        for (uint32_t j = 0; j < d->top_k; j++) {
            /* The best expert after the previous one: with a lower score, or with the same score
               and a higher number. */
            uint32_t best = d->experts;
            const uint32_t before = j ? (uint32_t)expert[r * d->top_k + j - 1] : d->experts;
            const float bound = j ? nan_to_inf(score[before]) : 0;
            float highest = 0;
            for (uint32_t e = 0; e < d->experts; e++) {
                const float value = nan_to_inf(score[e]);
                if (j && !is_better(bound, (int32_t)before, value, (int32_t)e)) continue;
                if (best == d->experts || value > highest) best = e, highest = value;
            }
            expert[r * d->top_k + j] = (int32_t)best;
            chosen += fast_exp(highest - row_max);
        }
        for (uint32_t j = 0; j < d->top_k; j++)
            d->pair_weight[r * d->top_k + j] =
                fast_exp(nan_to_inf(score[expert[r * d->top_k + j]]) - row_max) /
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

/* Multiplies the rows of each active expert, TILE_N columns at a time: gate and up read x, down
   reads their results. */
FLEET_TILE(expert, task_args)
{
    weight_source weights = weights_open(&ctx);
    const task_args *task = own_args(&ctx, &weights, args);
    const decoder *d = &task->d;
    const uint32_t all = row_count_of(task);
    linear_lds l = linear_lds_of(&ctx, all);
    const uint32_t tiles = task->shape.n / TILE_N, items = all ? (uint32_t)*d->n_active * tiles : 0;
    fleet_status status = FLEET_OK;
    FLEET_UNUSED(at);
    if (all == 0) return FLEET_OK;
    rms_scales(&ctx, task, &l, all);
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < items;
         i += ctx.tile_num * ctx.slices) {
        const uint32_t e = i / tiles, n = i % tiles;
        const uint32_t first = (uint32_t)d->first_place[e],
                       rows = (uint32_t)d->first_place[e + 1] - first;
        operand in;
        fleet_status s;
        in.x = task->x, in.low = task->x_low, in.k = task->shape.k;
        in.rows = rows, in.panel_tiles = 1;
        l.reciprocal = reciprocal_of(rows);
        in.list = task->epilogue == EPILOGUE_SILU ? d->place_row + first : NULL, in.first = first;
        multiply_begin(&weights, &in);
        s = multiply(&ctx, &weights, panel_weights(task, (uint32_t)d->active[e] * tiles + n), &in,
                     &l);
        if (s) status = s; /* go on: the other waves wait at barriers */
        if (task->epilogue == EPILOGUE_SILU)
            for (uint32_t j = ctx.thread; j < rows * TILE_N / 2; j += ctx.threads) {
                const uint32_t r = j / (TILE_N / 2), c = n * (TILE_N / 2) + j % (TILE_N / 2);
                const float *sum = l.sums + r * TILE_N + j % (TILE_N / 2),
                            scale = l.scale[in.list[r]];
                if (c < task->columns)
                    store_act(task->acts + act_at(first + r, c, task->columns), task->acts_low,
                              silu(sum[0] * scale) * (sum[TILE_N / 2] * scale));
            }
        else
            for (uint32_t j = ctx.thread; j < rows * TILE_N; j += ctx.threads) {
                const uint32_t r = j / TILE_N, c = n * TILE_N + j % TILE_N;
                if (c < task->columns)
                    task->floats[(size_t)(first + r) * task->columns + c] = l.sums[j];
            }
    }
    return status;
}

/* Adds the weighted sum of each row's experts to the residual stream. */
FLEET_TILE(add_experts, task_args)
{
    const decoder *d = &args->d;
    const linear_lds l = linear_lds_of(&ctx, d->b->rows);
    FLEET_UNUSED(at);
    FLEET_FOR_TILES(tile, &args->shape, ctx)
    {
        const residual from = {d->h + tile.column, args->norm + tile.column, d->hidden};
        for (uint32_t i = ctx.thread; i < d->b->rows * TILE_N; i += ctx.threads) {
            const uint32_t r = i / TILE_N, c = tile.column + i % TILE_N;
            float sum = 0;
            for (uint32_t j = 0; j < d->top_k; j++) {
                const uint32_t pair = r * d->top_k + j;
                sum += d->pair_weight[pair] *
                       d->expert_out[(size_t)(uint32_t)d->pair_place[pair] * d->hidden + c];
            }
            l.sums[i] = sum;
        }
        fleet_barrier(&ctx); /* the sums of all threads are in LDS */
        store_residual(&ctx, args, &l, &from, tile.column, 1, d->b->rows);
        fleet_barrier(&ctx); /* the sums were read: the next tile may overwrite them */
    }
    return FLEET_OK;
}

#endif /* QWEN3_TASKS_MOE_H */
