/* tasks/moe.h: mixture of experts: `route` chooses each row's experts and groups the rows by expert; `linear` computes
   silu(gate) * up of each pair (EPILOGUE_EXPERTS); `expert_down` multiplies by the down weights, adds up the weighted
   results of a row's experts, and adds them to the residual stream. */
#ifndef QWEN3_TASKS_MOE_H
#define QWEN3_TASKS_MOE_H

#include "linear.h"

FLEET_DEVICE uint32_t bits_set(uint32_t x)
{
    x -= x >> 1 & 0x55555555u;
    x = (x & 0x33333333u) + (x >> 2 & 0x33333333u);
    return ((x + (x >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

/* LDS of `route`. A key is an expert and the number of a pair: sorted keys are sorted by expert. */
#define MAX_PAIRS (MAX_ROWS * MAX_TOP_K)
#define ROUTE_SCORES 4096u /* at least the experts of a row */
typedef struct route_lds {
    float score[ROUTE_SCORES]; /* of some rows */
    float chosen[MAX_PAIRS];   /* the score of each pair */
    uint32_t key[MAX_PAIRS];
    uint32_t is_first[MAX_PAIRS / 32]; /* a bit for each position: whether an expert begins there */
} route_lds;
typedef char route_has_room[sizeof(route_lds) <= LINEAR_LDS_BYTES ? 1 : -1];

/* How many experts of a row are better than expert e: with a higher score, or with the same one and a lower number. */
FLEET_DEVICE uint32_t expert_rank(const float *score, uint32_t e, uint32_t experts)
{
    const float own = score[e];
    uint32_t rank = 0;
    for (uint32_t i = 0; i < e; i++) rank += score[i] >= own;
    for (uint32_t i = e + 1; i < experts; i++) rank += score[i] > own;
    return rank;
}
/* Finds the key and the score of each pair. Threads share the experts of all rows: no round waits for another. */
FLEET_DEVICE void choose_experts(const fleet_ctx *ctx, const decoder *d, route_lds *l,
                                 uint32_t rows)
{
    const uint32_t experts = d->experts, top_k = d->top_k, at_once = ROUTE_SCORES / experts;
    for (uint32_t first = 0; first < rows; first += at_once) {
        const uint32_t n = (rows - first < at_once ? rows - first : at_once) * experts;
        const float *score = d->scores + first * experts;
        for (uint32_t i = ctx->thread; i < n; i += ctx->threads) l->score[i] = nan_to_inf(score[i]);
        fleet_barrier(ctx);
        for (uint32_t i = ctx->thread; i < n; i += ctx->threads) {
            const uint32_t r = i / experts, e = i - r * experts,
                           rank = expert_rank(l->score + r * experts, e, experts),
                           pair = (first + r) * top_k + rank;
            if (rank < top_k) l->chosen[pair] = l->score[i], l->key[pair] = e * MAX_PAIRS + pair;
        }
        fleet_barrier(ctx); /* the next rows may replace these */
    }
}

/* The softmax weight of a pair. */
FLEET_DEVICE float pair_weight(const decoder *d, const route_lds *l, uint32_t pair)
{
    const uint32_t r = pair / d->top_k, n = d->norm_topk ? d->top_k : d->experts;
    const float *score = d->norm_topk ? l->chosen + r * d->top_k : d->scores + r * d->experts;
    const float row_max = l->chosen[r * d->top_k];
    float sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += fast_exp(nan_to_inf(score[i]) - row_max);
    return fast_exp(l->chosen[pair] - row_max) / sum;
}

/* Chooses each row's experts and their weights, and sorts the pairs by expert. One task. */
FLEET_TILE(route, task_args)
{
    const decoder *d = &args->d;
    const uint32_t rows = d->b->rows, pairs = rows * d->top_k;
    route_lds *l = (route_lds *)(void *)task_lds(&ctx);
    uint32_t *sorted;
    FLEET_UNUSED(at);
    if (rows == 0) return FLEET_OK;
    for (uint32_t i = ctx.thread; i < MAX_PAIRS / 32; i += ctx.threads) l->is_first[i] = 0;
    choose_experts(&ctx, d, l, rows);
    sorted = (uint32_t *)(void *)l->score; /* the scores were read */
    for (uint32_t i = ctx.thread; i < pairs; i += ctx.threads) {
        const uint32_t key = l->key[i];
        uint32_t place = 0;
        for (uint32_t j = 0; j < pairs; j++) place += l->key[j] < key;
        sorted[place] = key;
        d->place_row[place] = (int32_t)(i / d->top_k);
        d->place_weight[place] = pair_weight(d, l, i);
    }
    fleet_barrier(&ctx);
    for (uint32_t p = ctx.thread; p < pairs; p += ctx.threads)
        if (p == 0 || sorted[p - 1] / MAX_PAIRS != sorted[p] / MAX_PAIRS)
            lds_add(&l->is_first[p / 32], 1u << p % 32);
    fleet_barrier(&ctx);
    for (uint32_t p = ctx.thread; p < pairs; p += ctx.threads) {
        const uint32_t word = l->is_first[p / 32], is_first = word >> p % 32 & 1,
                       is_last = p + 1 == pairs;
        uint32_t n = bits_set(word & ((1u << p % 32) - 1));
        if (!is_first && !is_last) continue;
        for (uint32_t i = 0; i < p / 32; i++) n += bits_set(l->is_first[i]);
        if (is_first)
            d->active[n] = (int32_t)(sorted[p] / MAX_PAIRS), d->first_place[n++] = (int32_t)p;
        if (is_last) d->first_place[n] = (int32_t)pairs, *d->n_active = (int32_t)n;
    }
    return FLEET_OK;
}

/* Multiplies by the down weights. A worker has some columns, of all experts: so it adds up the results of a row itself.
   */
FLEET_TILE(expert_down, task_args)
{
    weight_source weights = weights_open(&ctx);
    const task_args *task = own_args(&ctx, &weights, args);
    const uint32_t rows = row_count_of(task);
    const panel_range range = panels_of_worker(task, &ctx);
    fleet_status status = FLEET_OK, exchanged = FLEET_OK;
    FLEET_UNUSED(at);
    if (rows == 0) return FLEET_OK;
    for (uint32_t n = range.first; n < range.end; n += range.step) {
        const uint32_t column = n * TILE_N;
        linear_lds l = linear_lds_of(&ctx, rows_reciprocal_of(task));
        residual from;
        if (rows <= PREFETCHED_ROWS) prefetch_residual(&ctx, task, &l, column, TILE_N, rows);
        /* After a failure it goes on: the other waves wait at barriers. */
        status = multiply_experts(&ctx, &weights, task, n, &l, rows);
        if (is_exchanged(task)) exchange_sums(&ctx, task, &l, n, 1, rows, &exchanged);
        from = residual_of(task, &l, column, rows);
        store_residual(&ctx, task, &l, &from, column, 1, rows);
        fleet_barrier(&ctx); /* the sums and the residual were read */
    }
    return status ? status : exchanged;
}

#endif /* QWEN3_TASKS_MOE_H */
