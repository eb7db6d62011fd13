/* tasks/attention.h: attention on AMD GPUs. (nvidia/attention.h and host/attention.h are those of the other platforms.)

   A work item is a KV split and one of its KV heads. A query is a row of a sequence and one of the heads that share a KV
   head: query i is row i / group, head i % group. QUERIES of them are computed together, as the columns of a matrix
   instruction. The waves share the pages of a split, and each has a running softmax of its own; afterwards their results
   are added up in LDS. Where a sequence has several splits, the last one that is done combines them all. */
#ifndef QWEN3_TASKS_ATTENTION_H
#define QWEN3_TASKS_ATTENTION_H

#include "kv_splits.h"

#define QUERIES 16u
#define HEAD_BLOCKS (MAX_HEAD_DIM / BLOCK_K) /* blocks of BLOCK_K elements of a head, at most */
#define LANE_PAIRS (MAX_HEAD_DIM / 2 / LANES_PER_ROW)
typedef char a_wave_takes_a_page[PAGE_TOKENS == 16 && TILE_N == 16 ? 1 : -1];

typedef _Float16 halves4 __attribute__((ext_vector_type(4)));
typedef _Float16 halves8 __attribute__((ext_vector_type(8)));

/* The items of the step, and the worker's first one. */
typedef struct attention_work {
    kv_split first;
    uint32_t first_item, items;
    uint32_t is_last; /* 1: the other splits of the item at hand are done */
} attention_work;

typedef struct attention_lds {
    attention_work *work;
    kv_t *q;                      /* [QUERIES][stride] */
    float *sum;                   /* [QUERIES][head_dim] */
    float *row_max, *denominator; /* [MAX_WAVES][QUERIES] */
    uint32_t stride;              /* its padding puts queries in different banks */
} attention_lds;

FLEET_DEVICE attention_lds attention_lds_of(const fleet_ctx *ctx, uint32_t head_dim)
{
    attention_lds l;
    l.work = (attention_work *)(void *)task_lds(ctx);
    l.stride = head_dim + VECTOR;
    l.sum = (float *)(void *)(task_lds(ctx) + (sizeof(attention_work) + 15) / 16 * 16);
    l.row_max = l.sum + QUERIES * head_dim;
    l.denominator = l.row_max + MAX_WAVES * QUERIES;
    l.q = (kv_t *)(void *)(l.denominator + MAX_WAVES * QUERIES);
    return l;
}

/* ---- queries and keys ---- */

/* A lane's part of a head of q or k: elements j and j + head_dim / 2 for j = lane + 16 p. LANES_PER_ROW lanes share a head. */
typedef struct head_part {
    float low[LANE_PAIRS], high[LANE_PAIRS];
} head_part;
FLEET_DEVICE uint32_t pair_of_lane(const decoder *d, uint32_t p)
{
    const uint32_t j = p * LANES_PER_ROW + fleet_thread_id() % LANES_PER_ROW,
                   half = d->head_dim / 2;
    return j < half ? j : half - 1;
}
/* Loads elements j * stride and j * stride + high; after the last pair, that again. */
FLEET_DEVICE head_part load_part(const decoder *d, const float *from, uint32_t stride,
                                 uint32_t high)
{
    const __attribute__((address_space(1))) float *at =
        (const __attribute__((address_space(1))) float *)from;
    head_part part;
    UNROLLED
    for (uint32_t p = 0; p < LANE_PAIRS; p++) {
        const uint32_t j = pair_of_lane(d, p) * stride;
        part.low[p] = at[j], part.high[p] = at[j + high];
    }
    return part;
}

/* Appends keys and values of the new rows, at positions from `first` to `end`, to the cache; and computes `queries`
   queries, scaled. All loads of a head are issued at once. */
FLEET_DEVICE void begin_queries(const fleet_ctx *ctx, const task_args *task, const attention_lds *l,
                                const kv_split *p, uint32_t first, uint32_t end, uint32_t query,
                                uint32_t queries)
{
    const decoder *d = &task->d;
    const uint32_t dim = d->head_dim, half = dim / 2, width = (d->heads + 2 * d->kv_heads) * dim,
                   group = d->group;
    for (uint32_t i = ctx->thread / LANES_PER_ROW; i < queries + (end - first);
         i += ctx->threads / LANES_PER_ROW) {
        const uint32_t is_query = i < queries;
        const uint32_t r = is_query ? (query + i) / group : first - p->position + i - queries;
        const uint32_t head = is_query ? p->head * group + (query + i) % group : d->heads + p->head;
        const float *from = d->qkv + (size_t)(p->row + r) * width + head * dim;
        const uint32_t number = d->b->row[p->row + r].page, at = (p->position + r) % PAGE_TOKENS;
        const head_part x = load_part(d, from, 1, half),
                        norm = load_part(d, is_query ? task->q_norm : task->k_norm, 1, half),
                        value = load_part(d, from + (is_query ? 0 : d->kv_heads * dim), 1, half),
                        turn = load_part(d, d->rope + (size_t)(p->position + r) * dim, 2, 1);
        kv_t *page = kv_page(d, task->cache, p->head, number);
        float squares = 0, scale;
        UNROLLED
        for (uint32_t n = 0; n < LANE_PAIRS; n++)
            if (n * LANES_PER_ROW + ctx->thread % LANES_PER_ROW < half)
                squares += x.low[n] * x.low[n] + x.high[n] * x.high[n];
        scale = rms_scale(row_sum(squares) / (float)dim + d->eps);
        UNROLLED
        for (uint32_t n = 0; n < LANE_PAIRS; n++) {
            const uint32_t j = pair_of_lane(d, n);
            const float a = x.low[n] * scale * norm.low[n], b = x.high[n] * scale * norm.high[n];
            const float low = a * turn.low[n] - b * turn.high[n],
                        high = b * turn.low[n] + a * turn.high[n];
            if (is_query) {
                l->q[i * l->stride + j] = kv_of_float(low * d->root);
                l->q[i * l->stride + j + half] = kv_of_float(high * d->root);
            } else {
                page[key_at(d, at, j)] = kv_of_float(low);
                page[key_at(d, at, j + half)] = kv_of_float(high);
                page[value_at(d, at, j)] = kv_of_float(value.low[n]);
                page[value_at(d, at, j + half)] = kv_of_float(value.high[n]);
            }
        }
    }
    fleet_barrier(ctx);
}

/* ---- a wave's pages ---- */

/* Of query lane % QUERIES: elements 2 m and 2 m + 1 of block t, for m from lane / QUERIES * 4 on, are in sum[t][0] and
   sum[t][1]. The denominator is that of the lane's own keys. */
typedef struct wave_result {
    sums4 sum[HEAD_BLOCKS][2];
    float row_max, denominator;
} wave_result;

/* The larger, or the sum, of the values of the lanes that have the same query. */
FLEET_DEVICE float query_max(float value)
{
    value = fmaxf(value, shuffle_xor(value, QUERIES));
    return fmaxf(value, shuffle_xor(value, 2 * QUERIES));
}
FLEET_DEVICE float query_sum(float value)
{
    value += shuffle_xor(value, QUERIES);
    return value + shuffle_xor(value, 2 * QUERIES);
}

/* The wave's pages of the keys from `first` to `end`, of which the lane's query sees those up to `visible`. The scores
   of a page are the products of its keys and the queries; a lane receives those of four keys, which is also the order
   in which the product with the values takes the softmax weights. number: of the wave's first page. */
FLEET_DEVICE void attend_pages(const task_args *task, const attention_lds *l, const kv_split *p,
                               uint32_t first, uint32_t end, uint32_t visible, uint32_t number,
                               wave_result *to)
{
    const decoder *d = &task->d;
    const uint32_t dim = d->head_dim, lane = fleet_lane(), column = lane % QUERIES,
                   four = lane / QUERIES;
    const uint32_t waves = WAVES;
    const uint32_t *pages = pages_of(d, p->table_row) + first / PAGE_TOKENS;
    const uint32_t count = ceil_div(end - first, PAGE_TOKENS);
    const words4 zeros = {0, 0, 0, 0};
    words4 query[HEAD_BLOCKS];
    to->row_max = -INFINITY, to->denominator = 0;
    UNROLLED
    for (uint32_t t = 0; t < HEAD_BLOCKS; t++) {
        const uint32_t at = t * BLOCK_K + four * VECTOR;
        to->sum[t][0] = to->sum[t][1] = (sums4)(0.0f);
        query[t] = zeros;
        if (at < dim) memcpy(&query[t], l->q + column * l->stride + at, sizeof query[t]);
    }
    ROLLED
    for (uint32_t n = wave_uniform(fleet_wave_id()); n < count; n += waves) {
        const kv_t *page = kv_page(d, task->cache, p->head, wave_uniform(number));
        const uint32_t key = first + n * PAGE_TOKENS + four * 4;
        words4 keys[HEAD_BLOCKS], values[HEAD_BLOCKS];
        sums4 score = (sums4)(0.0f);
        halves4 weights;
        float row_max = to->row_max, base, rescale, sum = 0;
        UNROLLED
        for (uint32_t t = 0; t < HEAD_BLOCKS; t++) {
            const uint32_t at = t * BLOCK_K + four * VECTOR;
            keys[t] = zeros;
            if (at < dim) keys[t] = load_words(page, key_at(d, column, at) * 2);
        }
        UNROLLED
        for (uint32_t t = 0; t < HEAD_BLOCKS; t++) {
            const uint32_t at = t * BLOCK_K + column * 2;
            values[t] = zeros;
            if (at < dim) values[t] = load_words(page, value_at(d, four * 4, at) * 2);
        }
        if (n + waves < count) number = pages[n + waves];
        UNROLLED
        for (uint32_t t = 0; t < HEAD_BLOCKS; t++) {
            const halves8 k = (halves8)keys[t], q = (halves8)query[t];
            if (t * BLOCK_K >= dim) break;
            score = __builtin_amdgcn_mfma_f32_16x16x16f16(k.lo, q.lo, score, 0, 0, 0);
            score = __builtin_amdgcn_mfma_f32_16x16x16f16(k.hi, q.hi, score, 0, 0, 0);
        }
        UNROLLED
        for (uint32_t i = 0; i < 4; i++) {
            if (key + i > visible || key + i >= end) score[i] = -INFINITY;
            row_max = fmaxf(row_max, score[i]);
        }
        row_max = query_max(row_max);
        base = row_max == -INFINITY ? 0 : row_max; /* weights are 0 then, or not a number */
        rescale = fast_exp(to->row_max - base);
        UNROLLED
        for (uint32_t i = 0; i < 4; i++) {
            const float weight = fast_exp(score[i] - base);
            weights[i] = (_Float16)weight, sum += weight;
        }
        to->denominator = to->denominator * rescale + sum, to->row_max = row_max;
        UNROLLED
        for (uint32_t t = 0; t < HEAD_BLOCKS; t++) {
            const halves8 v = (halves8)values[t];
            if (t * BLOCK_K >= dim) break;
            to->sum[t][0] *= rescale, to->sum[t][1] *= rescale;
            to->sum[t][0] =
                __builtin_amdgcn_mfma_f32_16x16x16f16(v.lo, weights, to->sum[t][0], 0, 0, 0);
            to->sum[t][1] =
                __builtin_amdgcn_mfma_f32_16x16x16f16(v.hi, weights, to->sum[t][1], 0, 0, 0);
        }
    }
    to->denominator = query_sum(to->denominator);
}

/* Adds up the results of the waves, in their order, in l->sum. `waves` of them had pages. */
FLEET_DEVICE void add_waves(const fleet_ctx *ctx, const attention_lds *l, uint32_t dim,
                            uint32_t waves, const wave_result *from)
{
    const uint32_t lane = fleet_lane(), column = lane % QUERIES, four = lane / QUERIES,
                   wave = wave_uniform(fleet_wave_id());
    float row_max = -INFINITY, rescale;
    if (four == 0) {
        l->row_max[wave * QUERIES + column] = from->row_max;
        l->denominator[wave * QUERIES + column] = from->denominator;
    }
    fleet_barrier(ctx);
    for (uint32_t w = 0; w < waves; w++) row_max = fmaxf(row_max, l->row_max[w * QUERIES + column]);
    rescale = row_max == -INFINITY ? 0 : fast_exp(from->row_max - row_max);
    for (uint32_t w = 0; w < waves; w++) {
        UNROLLED
        for (uint32_t t = 0; t < HEAD_BLOCKS; t++) {
            const uint32_t at = t * BLOCK_K + four * VECTOR;
            float *to = l->sum + column * dim + at;
            if (t * BLOCK_K >= dim || wave != w) break;
            if (at < dim) {
                UNROLLED
                for (uint32_t i = 0; i < 2; i++) {
                    vec4 sum = {{0, 0, 0, 0}};
                    if (w) sum = load_vec4(to + i * 4);
                    UNROLLED
                    for (uint32_t j = 0; j < 4; j++)
                        sum.value[j] += from->sum[t][j % 2][i * 2 + j / 2] * rescale;
                    store_vec4(to + i * 4, sum);
                }
            }
        }
        fleet_barrier(ctx);
    }
}

/* ---- results ---- */

FLEET_DEVICE float *kv_partial_at(const decoder *d, uint32_t row, uint32_t head, uint32_t split)
{
    return d->kv_partials +
           (((size_t)row * d->heads + head) * d->max_splits + split) * kv_partial_size(d);
}

/* Stores the results of some queries; of one of several splits, the partial results. */
FLEET_DEVICE void store_queries(const fleet_ctx *ctx, const decoder *d, const attention_lds *l,
                                const kv_split *p, uint32_t waves, uint32_t query, uint32_t queries)
{
    const uint32_t dim = d->head_dim, fours = dim / 4;
    for (uint32_t i = ctx->thread; i < queries * fours; i += ctx->threads) {
        const uint32_t n = i / fours, c = i % fours * 4, row = p->row + (query + n) / d->group,
                       head = p->head * d->group + (query + n) % d->group;
        float row_max = -INFINITY, denominator = 0;
        vec4 sum = load_vec4(l->sum + n * dim + c);
        for (uint32_t w = 0; w < waves; w++) row_max = fmaxf(row_max, l->row_max[w * QUERIES + n]);
        for (uint32_t w = 0; w < waves; w++)
            if (row_max != -INFINITY)
                denominator += l->denominator[w * QUERIES + n] *
                               fast_exp(l->row_max[w * QUERIES + n] - row_max);
        if (p->splits == 1) {
            for (uint32_t j = 0; j < 4; j++) sum.value[j] /= denominator;
            store_acts(d->attended + act_at(row, head * dim + c, d->heads * dim),
                       d->two_terms * MAX_ROWS * d->heads * dim, sum);
        } else {
            float *to = kv_partial_at(d, row, head, p->split);
            for (uint32_t j = 0; j < 4; j++) to[c + j] = sum.value[j];
            if (c == 0) to[dim] = row_max, to[dim + 1] = denominator;
        }
    }
}

/* Counts the split as done. The last one combines all splits of its queries: rescales their sums to a common maximum and
   divides by the common denominator. */
FLEET_DEVICE void combine_kv_splits(const fleet_ctx *ctx, const decoder *d, const attention_lds *l,
                                    const kv_split *p)
{
    const uint32_t dim = d->head_dim, queries = p->rows * d->group, stride = kv_partial_size(d);
    drain_stores();
    fleet_barrier(ctx);
    if (ctx->thread == 0) {
        uint32_t *done = d->splits_done + p->row * d->heads + p->head * d->group;
        /* Publishes this split's partial results to the workgroup that counts last, and acquires those that were
           counted before: its pair is itself. */
        const uint32_t is_last = fleet_add_acq_rel_device(done, 1) + 1 == p->splits;
        if (is_last) fleet_store_relaxed_device(done, 0); /* for the next layer */
        l->work->is_last = is_last;
    }
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; l->work->is_last && i < queries * dim; i += ctx->threads) {
        const uint32_t n = i / dim, c = i % dim, row = p->row + n / d->group,
                       head = p->head * d->group + n % d->group;
        const float *from = kv_partial_at(d, row, head, 0);
        float row_max = -INFINITY, sum = 0, denominator = 0;
        for (uint32_t s = 0; s < p->splits; s++) row_max = fmaxf(row_max, from[s * stride + dim]);
        for (uint32_t s = 0; s < p->splits; s++) {
            const float *partial = from + s * stride, rescale = fast_exp(partial[dim] - row_max);
            sum += partial[c] * rescale;
            denominator += partial[dim + 1] * rescale;
        }
        store_act(d->attended + act_at(row, head * dim + c, d->heads * dim),
                  d->two_terms * MAX_ROWS * d->heads * dim, sum / denominator);
    }
}

/* ---- the task ---- */

/* Workers that have no tile of the next task, a linear layer, come first, so that others can load its weights meanwhile. */
FLEET_DEVICE void find_work(const fleet_ctx *ctx, const task_args *args, attention_work *work)
{
    const decoder *d = &args->d;
    const uint32_t first =
        ctx->slice + (ctx->tile_num - 1 - turn_of_worker(args + 1, ctx, 1)) * ctx->slices;
    work->first_item = first, work->items = d->b->kv_splits * d->kv_heads;
    if (first < work->items) work->first = kv_split_of(d->b, d->kv_heads, first);
}

/* The worker's first item is found before the task waits: the batch is that of the layer's first task. */
FLEET_PREFETCH(attend, task_args)
{
    FLEET_UNUSED(at);
    if (ctx.thread == 0) find_work(&ctx, args, attention_lds_of(&ctx, args->d.head_dim).work);
}

/* Computes the worker's KV splits, for one KV head each. Splits are dealt out so that a KV head
   stays on one chiplet if the number of chiplets divides the number of KV heads. The split with the
   last keys also appends the step's own keys and values, before it reads them. */
FLEET_TILE(attend, task_args)
{
    const decoder *d = &args->d;
    const attention_lds l = attention_lds_of(&ctx, d->head_dim);
    const uint32_t waves = ctx.threads / fleet_wave_size();
    uint32_t items, first_item;
    FLEET_UNUSED(at);
    if (!ctx.prefetched) {
        if (ctx.thread == 0) find_work(&ctx, args, l.work);
        fleet_barrier(&ctx);
    }
    items = wave_uniform(l.work->items), first_item = wave_uniform(l.work->first_item);
    /* A worker without work loads the first weights of the next task, which is a linear layer, meanwhile, and touches more
       of that one and of the one after it. */
    if (first_item >= items) {
        hold_first(&ctx, args + 1);
        touch_first(&ctx, args + 1);
        touch_first(&ctx, args + 2);
        return FLEET_OK;
    }
    for (uint32_t i = first_item; i < items; i += ctx.tile_num * ctx.slices) {
        const kv_split p = i == first_item ? l.work->first : kv_split_of(d->b, d->kv_heads, i);
        const uint32_t first = p.first * KV_BLOCK, last = p.position + p.rows,
                       end = p.end * KV_BLOCK < last ? p.end * KV_BLOCK : last;
        const uint32_t pages = ceil_div(end - first, PAGE_TOKENS),
                       busy = pages < waves ? pages : waves;
        uint32_t append = first > p.position ? first : p.position;
        if (append > end) append = end;
        for (uint32_t query = 0; query < p.rows * d->group; query += QUERIES, append = end) {
            const uint32_t left = p.rows * d->group - query,
                           queries = left < QUERIES ? left : QUERIES;
            const uint32_t mine_first = fleet_wave_id() < pages ? fleet_wave_id() : 0;
            const uint32_t number = pages_of(d, p.table_row)[first / PAGE_TOKENS + mine_first];
            wave_result mine;
            begin_queries(&ctx, args, &l, &p, append, end, query, queries);
            attend_pages(args, &l, &p, first, end,
                         p.position + (query + fleet_lane() % QUERIES) / d->group, number, &mine);
            add_waves(&ctx, &l, d->head_dim, busy, &mine);
            store_queries(&ctx, d, &l, &p, busy, query, queries);
        }
        if (p.splits > 1) combine_kv_splits(&ctx, d, &l, &p);
        fleet_barrier(&ctx); /* the next item overwrites what was read */
    }
    return FLEET_OK;
}
#define ATTENTION_TASKS(TILE_, P) TILE_(P, attend)
#define COMBINE_TASK NO_TASK

#endif /* QWEN3_TASKS_ATTENTION_H */
