/* host/attention.h: attention on the CPU, in two grids: `attend` computes the partial result of each KV split,
   `combine_kv_splits` combines the splits of each query. A wave computes a split of a KV head alone, and needs no barrier.

   A query is a row of a sequence and one of the heads that share a KV head: query i is row i / group, head i % group. Some
   queries go through the KV blocks together. Scores have a key in each element of a vector, results an element of the
   value; in pages, keys are stored to suit (key_at). A query's sums are added up in the same order whatever is beside it. */
#ifndef QWEN3_HOST_ATTENTION_H
#define QWEN3_HOST_ATTENTION_H

#include "../tasks/kv_splits.h"

#define COLUMN_BLOCK 2u /* vectors that are computed together */

typedef struct query_block {
    uint32_t queries;
    uint32_t visible[ROW_BLOCK]; /* the last key that a query sees: causal mask */
    float row_max[ROW_BLOCK], denominator[ROW_BLOCK];
    float q[ROW_BLOCK][MAX_HEAD_DIM], sum[ROW_BLOCK][MAX_HEAD_DIM];
    float score[ROW_BLOCK][KV_BLOCK]; /* then the softmax weights */
} query_block;

/* exp, with a relative error of some 1e-7; 0 below -87. The polynomial is Taylor's, on [-log(2) / 2, log(2) / 2]. */
FLEET_DEVICE floats exp_floats(floats x)
{
    const floats zero = x - x, shift = zero + 12582912.0f; /* rounds to an integer when added */
    const floats n = x * 1.44269504f + shift, whole = n - shift;
    const floats r = x - whole * 0.693359375f + whole * 2.12194440e-4f; /* log(2), in two parts */
    const words is_zero = (words)(x < -87.0f);
    floats sum = r * (1.0f / 5040) + 1.0f / 720;
    words bits, exponent;
    sum = sum * r + 1.0f / 120;
    sum = sum * r + 1.0f / 24;
    sum = sum * r + 1.0f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    memcpy(&bits, &sum, sizeof bits);
    memcpy(&exponent, &n, sizeof exponent);
    bits = (bits + (exponent << 23)) & ~is_zero;
    memcpy(&sum, &bits, sizeof sum);
    return sum;
}

/* A head of q or k, after RMS norm and RoPE. from: [head_dim], as the projection left it. */
FLEET_DEVICE void rmsnorm_rope(const decoder *d, const float *from, const float *norm,
                               uint32_t position, float *to)
{
    const uint32_t half = d->head_dim / 2;
    const float *rope = d->rope + (size_t)position * half * 2;
    float squares[VECTOR] = {0}, sum = 0, scale;
    for (uint32_t i = 0; i < d->head_dim; i += VECTOR)
        for (uint32_t j = 0; j < VECTOR; j++) squares[j] += from[i + j] * from[i + j];
    for (uint32_t j = 0; j < VECTOR; j++) sum += squares[j];
    scale = rms_scale(sum / (float)d->head_dim + d->eps);
    for (uint32_t i = 0; i < half; i++) {
        const float a = from[i] * scale * norm[i], b = from[i + half] * scale * norm[i + half];
        to[i] = a * rope[i * 2] - b * rope[i * 2 + 1];
        to[i + half] = b * rope[i * 2] + a * rope[i * 2 + 1];
    }
}

/* Appends keys and values of the new rows, at positions from `first` to `end`, to the cache. */
FLEET_DEVICE void append_kv(const task_args *task, const kv_split *p, uint32_t first, uint32_t end)
{
    const decoder *d = &task->d;
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim;
    for (uint32_t position = first; position < end; position++) {
        const uint32_t row = p->row + position - p->position, at = position % PAGE_TOKENS;
        const float *from = d->qkv + (size_t)row * width + (d->heads + p->head) * dim;
        kv_t *page = kv_page(d, task->cache, p->head, d->b->row[row].page);
        float key[MAX_HEAD_DIM];
        rmsnorm_rope(d, from, task->k_norm, position, key);
        for (uint32_t i = 0; i < dim; i++) page[key_at(d, at, i)] = key[i];
        memcpy(page + value_at(d, at, 0), from + d->kv_heads * dim, dim * sizeof *page);
    }
}

/* Adds to the sums the product of a, [rows][a_step], and b, [k][b_step] for each vector of columns. */
SPECIALIZED void add_products(floats (*sum)[COLUMN_BLOCK], const float *a, uint32_t a_step,
                              const float *const *b, uint32_t b_step, uint32_t k,
                              const uint32_t rows, const uint32_t vectors)
{
    for (uint32_t i = 0; i < k; i++) {
        floats column[COLUMN_BLOCK];
        UNROLLED
        for (uint32_t v = 0; v < vectors; v++)
            memcpy(&column[v], b[v] + (size_t)i * b_step, sizeof column[v]);
        UNROLLED
        for (uint32_t n = 0; n < rows * vectors; n++)
            sum[n / vectors][n % vectors] += a[n / vectors * a_step + i] * column[n % vectors];
    }
}

/* Scores of `vectors` vectors of keys of a KV block, from number `first` on. */
SPECIALIZED void score_keys(const decoder *d, query_block *q, kv_t *const *page, uint32_t first,
                            const uint32_t rows, const uint32_t vectors)
{
    floats sum[ROW_BLOCK][COLUMN_BLOCK];
    const float *keys[COLUMN_BLOCK];
    memset(sum, 0, sizeof sum);
    for (uint32_t v = 0; v < vectors; v++)
        keys[v] =
            page[(first + v) / TILE_VECTORS] + key_at(d, (first + v) % TILE_VECTORS * LANES, 0);
    add_products(sum, q->q[0], MAX_HEAD_DIM, keys, PAGE_TOKENS, d->head_dim, rows, vectors);
    for (uint32_t n = 0; n < rows * vectors; n++)
        memcpy(&q->score[n / vectors][(first + n % vectors) * LANES],
               &sum[n / vectors][n % vectors], sizeof sum[0][0]);
}
/* Makes softmax weights of the scores of `keys` keys from number `from` on, and rescales the sums so far. */
FLEET_DEVICE void softmax_block(query_block *q, uint32_t r, uint32_t from, uint32_t keys,
                                uint32_t dim)
{
    float *score = q->score[r], row_max = q->row_max[r], rescale, top[LANES], sum[LANES] = {0};
    uint32_t seen = q->visible[r] < from ? 0 : q->visible[r] - from + 1;
    if (seen > keys) seen = keys;
    for (uint32_t i = seen; i < KV_BLOCK; i++) score[i] = -INFINITY;
    if (seen == 0) {
        memset(score, 0, sizeof q->score[r]);
        return;
    }
    for (uint32_t j = 0; j < LANES; j++) top[j] = score[j];
    for (uint32_t i = LANES; i < KV_BLOCK; i += LANES)
        for (uint32_t j = 0; j < LANES; j++) top[j] = score[i + j] > top[j] ? score[i + j] : top[j];
    for (uint32_t j = 0; j < LANES; j++) row_max = top[j] > row_max ? top[j] : row_max;
    for (uint32_t i = 0; i < KV_BLOCK; i += LANES) {
        floats x;
        memcpy(&x, score + i, sizeof x);
        x = exp_floats(x - row_max);
        memcpy(score + i, &x, sizeof x);
        for (uint32_t j = 0; j < LANES; j++) sum[j] += score[i + j];
    }
    rescale = expf(q->row_max[r] - row_max);
    q->row_max[r] = row_max, q->denominator[r] *= rescale;
    for (uint32_t j = 0; j < LANES; j++) q->denominator[r] += sum[j];
    for (uint32_t i = 0; i < dim; i++) q->sum[r][i] *= rescale;
}
/* Adds the weighted values of a KV block, `vectors` vectors of their elements, from number `first` on. */
SPECIALIZED void add_values(const decoder *d, query_block *q, kv_t *const *page, uint32_t keys,
                            uint32_t first, const uint32_t rows, const uint32_t vectors)
{
    floats sum[ROW_BLOCK][COLUMN_BLOCK];
    for (uint32_t n = 0; n < rows * vectors; n++)
        memcpy(&sum[n / vectors][n % vectors], &q->sum[n / vectors][(first + n % vectors) * LANES],
               sizeof sum[0][0]);
    for (uint32_t i = 0; i < keys; i += PAGE_TOKENS) {
        const float *values[COLUMN_BLOCK];
        for (uint32_t v = 0; v < vectors; v++)
            values[v] = page[i / PAGE_TOKENS] + value_at(d, 0, (first + v) * LANES);
        add_products(sum, q->score[0] + i, KV_BLOCK, values, value_at(d, 1, 0) - value_at(d, 0, 0),
                     PAGE_TOKENS, rows, vectors);
    }
    for (uint32_t n = 0; n < rows * vectors; n++)
        memcpy(&q->sum[n / vectors][(first + n % vectors) * LANES], &sum[n / vectors][n % vectors],
               sizeof sum[0][0]);
}

/* One KV block, for `rows` queries. */
SPECIALIZED void attend_block(const decoder *d, query_block *q, kv_t *const *page, uint32_t from,
                              uint32_t keys, const uint32_t rows)
{
    const uint32_t key_vectors = ceil_div(keys, LANES), vectors = padded_head(d) / LANES;
    uint32_t i = 0;
    for (; i + COLUMN_BLOCK <= key_vectors; i += COLUMN_BLOCK)
        score_keys(d, q, page, i, rows, COLUMN_BLOCK);
    for (; i < key_vectors; i++) score_keys(d, q, page, i, rows, 1);
    for (uint32_t r = 0; r < rows; r++) softmax_block(q, r, from, keys, padded_head(d));
    for (i = 0; i + COLUMN_BLOCK <= vectors; i += COLUMN_BLOCK)
        add_values(d, q, page, keys, i, rows, COLUMN_BLOCK);
    for (; i < vectors; i++) add_values(d, q, page, keys, i, rows, 1);
}

/* Up to ROW_BLOCK queries, from number `query` on, against the keys from `first` to `end`. Leaves a partial result for
   combine_kv_splits. */
FLEET_DEVICE void attend_queries(const task_args *task, const kv_split *p, uint32_t first,
                                 uint32_t end, uint32_t query, uint32_t queries)
{
    const decoder *d = &task->d;
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim, group = d->group;
    const uint32_t *pages = pages_of(d, p->table_row);
    query_block q;
    memset(&q, 0, sizeof q);
    for (uint32_t n = 0; n < queries; n++) {
        const uint32_t r = (query + n) / group, head = p->head * group + (query + n) % group;
        const float *from = d->qkv + (size_t)(p->row + r) * width + head * dim;
        rmsnorm_rope(d, from, task->q_norm, p->position + r, q.q[n]);
        for (uint32_t i = 0; i < dim; i++) q.q[n][i] *= d->root;
        q.visible[n] = p->position + r;
    }
    for (uint32_t n = 0; n < ROW_BLOCK; n++) q.row_max[n] = -INFINITY;
    if (end > q.visible[queries - 1] + 1) end = q.visible[queries - 1] + 1;
    for (uint32_t from = first; from < end; from += KV_BLOCK) {
        const uint32_t keys = end - from < KV_BLOCK ? end - from : KV_BLOCK;
        kv_t *page[KV_BLOCK / PAGE_TOKENS];
        for (uint32_t i = 0; i * PAGE_TOKENS < keys; i++)
            page[i] = kv_page(d, task->cache, p->head, pages[from / PAGE_TOKENS + i]);
        if (queries == 1)
            attend_block(d, &q, page, from, keys, 1);
        else if (queries == 2 || ROW_BLOCK == 2)
            attend_block(d, &q, page, from, keys, 2);
        else if (queries <= 4 || ROW_BLOCK == 4)
            attend_block(d, &q, page, from, keys, ROW_BLOCK < 4 ? ROW_BLOCK : 4);
        else
            attend_block(d, &q, page, from, keys, ROW_BLOCK);
    }
    for (uint32_t n = 0; n < queries; n++) {
        const uint32_t r = (query + n) / group, head = p->head * group + (query + n) % group;
        float *to = d->kv_partials +
                    (((size_t)p->row + r) * d->heads + head) * d->max_splits * kv_partial_size(d) +
                    (size_t)p->split * kv_partial_size(d);
        memcpy(to, q.sum[n], dim * sizeof *to);
        to[dim] = q.row_max[n], to[dim + 1] = q.denominator[n];
    }
}

/* Computes the worker's KV splits, for one KV head each. Splits are dealt out so that a KV head
   stays on one chiplet if the number of chiplets divides the number of KV heads. The split with the
   last keys also appends the step's own keys and values, before it reads them. */
FLEET_TILE(attend, task_args)
{
    const decoder *d = &args->d;
    const batch *b = d->b;
    const uint32_t step = ctx.tile_num * ctx.slices, waves = ctx.threads / fleet_wave_size();
    FLEET_UNUSED(at);
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices + fleet_wave_id() * step;
         i < b->kv_splits * d->kv_heads; i += step * waves) {
        const kv_split p = kv_split_of(b, d->kv_heads, i);
        const uint32_t first = p.first * KV_BLOCK, last = p.position + p.rows,
                       end = p.end * KV_BLOCK < last ? p.end * KV_BLOCK : last;
        append_kv(args, &p, first > p.position ? first : p.position, end);
        for (uint32_t query = 0; query < p.rows * d->group; query += ROW_BLOCK) {
            const uint32_t left = p.rows * d->group - query;
            attend_queries(args, &p, first, end, query, left < ROW_BLOCK ? left : ROW_BLOCK);
        }
    }
    return FLEET_OK;
}

/* Combines the KV splits of each query: rescales their sums to a common maximum and divides by the
   common denominator. */
FLEET_TILE(combine_kv_splits, task_args)
{
    const decoder *d = &args->d;
    const batch *b = d->b;
    const uint32_t dim = d->head_dim, stride = kv_partial_size(d);
    const uint32_t step = ctx.tile_num * ctx.slices, waves = ctx.threads / fleet_wave_size();
    FLEET_UNUSED(at);
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices + fleet_wave_id() * step;
         i < b->rows * d->heads; i += step * waves) {
        const uint32_t row = i / d->heads, s = (uint32_t)b->row[row].sequence,
                       splits = b->sequence[s].splits;
        const float *from = d->kv_partials + (size_t)i * d->max_splits * stride;
        float row_max = -INFINITY, denominator = 0, sum[MAX_HEAD_DIM] = {0};
        for (uint32_t p = 0; p < splits; p++) row_max = fmaxf(row_max, from[p * stride + dim]);
        for (uint32_t p = 0; p < splits; p++) {
            const float *partial = from + p * stride, rescale = expf(partial[dim] - row_max);
            for (uint32_t c = 0; c < dim; c++) sum[c] += partial[c] * rescale;
            denominator += partial[dim + 1] * rescale;
        }
        for (uint32_t c = 0; c < dim; c += VECTOR) {
            act_t *to = d->attended + act_at(row, i % d->heads * dim + c, d->heads * dim);
            for (uint32_t j = 0; j < VECTOR; j++) to[j] = sum[c + j] / denominator;
        }
    }
    return FLEET_OK;
}
#define ATTENTION_TASKS(TILE_, P) TILE_(P, attend) TILE_(P, combine_kv_splits)
#define COMBINE_TASK ((uint32_t)task_args_combine_kv_splits)

#endif /* QWEN3_HOST_ATTENTION_H */
