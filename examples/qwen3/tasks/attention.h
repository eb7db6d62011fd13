/* tasks/attention.h: attention on AMD GPUs, in two grids: `attend` computes the partial result of each KV split,
   `combine_kv_splits` combines the splits of each query. (nvidia/attention.h does both in one task; host/attention.h is for CPUs.)

   A query is a row of a sequence and one of the heads that share a KV head: query i is row i / group, head i % group. */
#ifndef QWEN3_TASKS_ATTENTION_H
#define QWEN3_TASKS_ATTENTION_H

#include "kv_splits.h"

/* A backend that uses these tasks also defines, for n and groups of VECTOR values: */
FLEET_DEVICE float dot(const float *query, const kv_t *key, uint32_t n);
/* Adds `keys` vectors, each scaled by its weight, `stride` elements apart. */
FLEET_DEVICE void add_scaled_vectors(float *sum, const float *weights, const kv_t *values,
                                     uint32_t stride, uint32_t keys);

#define QUERIES 16u /* queries that are computed together */

typedef struct attention_lds {
    float *q;     /* [QUERIES][head_dim] */
    float *sum;   /* [QUERIES][head_dim] */
    float *score; /* [QUERIES][KV_BLOCK] */
    /* [QUERIES]: running maximum of the scores, sum of the softmax weights, factor that rescales
       older results to a new maximum */
    float *row_max, *denominator, *rescale;
    /* [2][BLOCK_PAGES]: the pages of the KV block at hand, of one KV head, and of the next one */
    kv_t **page;
    float *scale; /* [MAX_ROWS * 2] */
} attention_lds;
#define BLOCK_PAGES (KV_BLOCK / PAGE_TOKENS)
typedef char scores_hold_squares[MAX_ROWS * LANES_PER_ROW <= QUERIES * KV_BLOCK ? 1 : -1];

FLEET_DEVICE attention_lds attention_lds_of(const fleet_ctx *ctx, uint32_t head_dim)
{
    attention_lds l;
    l.q = (float *)task_lds(ctx);
    l.sum = l.q + QUERIES * head_dim;
    l.score = l.sum + QUERIES * head_dim;
    l.row_max = l.score + QUERIES * KV_BLOCK;
    l.denominator = l.row_max + QUERIES;
    l.rescale = l.denominator + QUERIES;
    l.page = (kv_t **)(void *)(l.rescale + QUERIES);
    l.scale = (float *)(void *)(l.page + 2 * BLOCK_PAGES);
    return l;
}

/* Element i of a head of q or k, after RMS norm and RoPE. from: [head_dim], as the projection left
   it. */
FLEET_DEVICE float rmsnorm_rope(const decoder *d, const float *from, const float *norm, float scale,
                                uint32_t position, uint32_t i)
{
    const uint32_t half = d->head_dim / 2, j = i < half ? i : i - half;
    const float *rope = d->rope + ((size_t)position * half + j) * 2;
    const float a = from[j] * scale * norm[j], b = from[j + half] * scale * norm[j + half];
    return i < half ? a * rope[0] - b * rope[1] : b * rope[0] + a * rope[1];
}
/* Computes l->scale, 1 / root mean square, of `heads` heads from number `first` on; a row at `rows`
   has `group` of them. LANES_PER_ROW threads share a head, so that their loads overlap; their sums
   are in l->score. The caller synchronises before it reads l->scale. */
FLEET_DEVICE void head_rms_scales(const fleet_ctx *ctx, const decoder *d, const attention_lds *l,
                                  const float *rows, uint32_t group, uint32_t first, uint32_t heads)
{
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim;
    for (uint32_t i = ctx->thread; i < heads * LANES_PER_ROW; i += ctx->threads) {
        const uint32_t head = first + i / LANES_PER_ROW;
        const float *from = rows + head / group * width + head % group * dim;
        float sum = 0;
        for (uint32_t c = i % LANES_PER_ROW * VECTOR; c < dim; c += LANES_PER_ROW * VECTOR)
            for (uint32_t j = 0; j < VECTOR; j++) sum += from[c + j] * from[c + j];
        l->score[i] = sum;
    }
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < heads; i += ctx->threads) {
        float sum = 0;
        for (uint32_t j = 0; j < LANES_PER_ROW; j++) sum += l->score[i * LANES_PER_ROW + j];
        l->scale[i] = 1 / sqrtf(sum / (float)dim + d->eps);
    }
}

/* Appends keys and values of the new rows, at positions from `first` to `end`, to the cache. */
FLEET_DEVICE void append_kv(const fleet_ctx *ctx, const task_args *task, const attention_lds *l,
                            const kv_split *p, uint32_t first, uint32_t end)
{
    const decoder *d = &task->d;
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim;
    const float *from = d->qkv + (size_t)p->row * width + (d->heads + p->head) * dim;
    const uint32_t skipped = first - p->position, rows = end - first;
    const token_row *row = d->b->row + p->row + skipped;
    head_rms_scales(ctx, d, l, from, 1, skipped, rows);
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < rows * dim; i += ctx->threads) {
        const uint32_t r = i / dim, c = i % dim;
        const float *k = from + (skipped + r) * width;
        const uint32_t at = (first + r) % PAGE_TOKENS;
        kv_t *page = kv_page(d, task->cache, p->head, row[r].page);
        page[key_at(d, at, c)] =
            kv_of_float(rmsnorm_rope(d, k, task->k_norm, l->scale[r], first + r, c));
        page[value_at(d, at, c)] = kv_of_float(k[d->kv_heads * dim + c]);
    }
    fleet_barrier(ctx);
}

/* Looks up the pages of the KV block from key `from` on. The first threads are busy where this is
   called. */
FLEET_DEVICE void find_pages(const fleet_ctx *ctx, const task_args *task, const attention_lds *l,
                             const kv_split *p, uint32_t from, uint32_t end)
{
    const uint32_t *pages = pages_of(&task->d, p->table_row) + from / PAGE_TOKENS;
    for (uint32_t i = ctx->threads - 1 - ctx->thread; i < BLOCK_PAGES; i += ctx->threads)
        if (from + i * PAGE_TOKENS < end)
            l->page[from / KV_BLOCK % 2 * BLOCK_PAGES + i] =
                kv_page(&task->d, task->cache, p->head, pages[i]);
}

/* Up to QUERIES queries against the keys from `first` to `end`, KV_BLOCK keys at a time with a
   running softmax. Leaves a partial result for combine_kv_splits. */
FLEET_DEVICE void attend_queries(const fleet_ctx *ctx, const task_args *task,
                                 const attention_lds *l, const kv_split *p, uint32_t first,
                                 uint32_t end, uint32_t query, uint32_t queries)
{
    const decoder *d = &task->d;
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim, group = d->group;
    const float *rows = d->qkv + (size_t)p->row * width + p->head * group * dim;
    find_pages(ctx, task, l, p, first, end);
    head_rms_scales(ctx, d, l, rows, group, query, queries);
    for (uint32_t i = ctx->thread; i < queries; i += ctx->threads)
        l->row_max[i] = -INFINITY, l->denominator[i] = 0;
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < queries * dim; i += ctx->threads) {
        const uint32_t n = i / dim, r = (query + n) / group, g = (query + n) % group;
        l->q[i] = rmsnorm_rope(d, rows + r * width + g * dim, task->q_norm, l->scale[n],
                               p->position + r, i % dim) *
                  d->root;
        l->sum[i] = 0;
    }
    for (uint32_t from = first; from < end; from += KV_BLOCK) {
        const uint32_t keys = end - from < KV_BLOCK ? end - from : KV_BLOCK;
        kv_t *const *page = l->page + from / KV_BLOCK % 2 * BLOCK_PAGES;
        fleet_barrier(ctx);
        for (uint32_t i = ctx->thread; i < queries * keys; i += ctx->threads) {
            const uint32_t n = i / keys, key = from + i % keys;
            const kv_t *keys_of = page[i % keys / PAGE_TOKENS];
            /* causal mask: a row sees itself and all earlier ones */
            const uint32_t visible = p->position + (query + n) / group;
            l->score[n * KV_BLOCK + i % keys] =
                key <= visible ? dot(l->q + n * dim, keys_of + key_at(d, key % PAGE_TOKENS, 0), dim)
                               : -INFINITY;
        }
        fleet_barrier(ctx);
        if (from + KV_BLOCK < end) find_pages(ctx, task, l, p, from + KV_BLOCK, end);
        for (uint32_t n = ctx->thread; n < queries; n += ctx->threads) {
            float row_max = l->row_max[n], sum = 0;
            float *score = l->score + n * KV_BLOCK;
            for (uint32_t j = 0; j < keys; j++) row_max = score[j] > row_max ? score[j] : row_max;
            for (uint32_t j = 0; j < keys; j++) {
                score[j] = row_max == -INFINITY ? 0 : fast_exp(score[j] - row_max);
                sum += score[j];
            }
            l->rescale[n] = row_max == -INFINITY ? 0 : fast_exp(l->row_max[n] - row_max);
            l->denominator[n] = l->denominator[n] * l->rescale[n] + sum;
            l->row_max[n] = row_max;
        }
        fleet_barrier(ctx);
        for (uint32_t i = ctx->thread; i < queries * dim / VECTOR; i += ctx->threads) {
            const uint32_t n = i / (dim / VECTOR), c = i % (dim / VECTOR) * VECTOR;
            float sum[VECTOR];
            for (uint32_t j = 0; j < VECTOR; j++) sum[j] = l->sum[n * dim + c + j] * l->rescale[n];
            for (uint32_t key = 0; key < keys; key += PAGE_TOKENS)
                add_scaled_vectors(sum, l->score + n * KV_BLOCK + key,
                                   page[key / PAGE_TOKENS] + value_at(d, 0, c), dim,
                                   keys - key < PAGE_TOKENS ? keys - key : PAGE_TOKENS);
            for (uint32_t j = 0; j < VECTOR; j++) l->sum[n * dim + c + j] = sum[j];
        }
    }
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < queries * (dim + 2); i += ctx->threads) {
        const uint32_t n = i / (dim + 2), c = i % (dim + 2), r = (query + n) / group,
                       g = (query + n) % group;
        const size_t to =
            (((size_t)p->row + r) * d->heads + p->head * group + g) * d->max_splits + p->split;
        d->kv_partials[to * kv_partial_size(d) + c] = c < dim    ? l->sum[n * dim + c]
                                                      : c == dim ? l->row_max[n]
                                                                 : l->denominator[n];
    }
    fleet_barrier(ctx);
}

/* Computes the worker's KV splits, for one KV head each. Splits are dealt out so that a KV head
   stays on one chiplet if the number of chiplets divides the number of KV heads. The split with the
   last keys also appends the step's own keys and values, before it reads them. */
FLEET_TILE(attend, task_args)
{
    const decoder *d = &args->d;
    const batch *b = d->b;
    const attention_lds l = attention_lds_of(&ctx, d->head_dim);
    const uint32_t group = d->group;
    FLEET_UNUSED(at);
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < b->kv_splits * d->kv_heads;
         i += ctx.tile_num * ctx.slices) {
        const kv_split p = kv_split_of(b, d->kv_heads, i);
        const uint32_t first = p.first * KV_BLOCK, last = p.position + p.rows,
                       end = p.end * KV_BLOCK < last ? p.end * KV_BLOCK : last;
        if (end > p.position)
            append_kv(&ctx, args, &l, &p, first > p.position ? first : p.position, end);
        for (uint32_t query = 0; query < p.rows * group; query += QUERIES) {
            const uint32_t left = p.rows * group - query;
            attend_queries(&ctx, args, &l, &p, first, end, query, left < QUERIES ? left : QUERIES);
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
    const uint32_t dim = d->head_dim;
    FLEET_UNUSED(at);
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < b->rows * d->heads;
         i += ctx.tile_num * ctx.slices) {
        const uint32_t s = (uint32_t)b->row[i / d->heads].sequence, splits = b->sequence[s].splits;
        const uint32_t stride = kv_partial_size(d);
        const float *from = d->kv_partials + (size_t)i * d->max_splits * stride;
        for (uint32_t c = ctx.thread; c < dim; c += ctx.threads) {
            float row_max = -INFINITY, sum = 0, denominator = 0;
            for (uint32_t p = 0; p < splits; p++) row_max = fmaxf(row_max, from[p * stride + dim]);
            for (uint32_t p = 0; p < splits; p++) {
                const float *partial = from + p * stride,
                            rescale = fast_exp(partial[dim] - row_max);
                sum += partial[c] * rescale;
                denominator += partial[dim + 1] * rescale;
            }
            store_act(d->attended + act_at(i / d->heads, i % d->heads * dim + c, d->heads * dim),
                      d->two_terms * MAX_ROWS * d->heads * dim, sum / denominator);
        }
    }
    return FLEET_OK;
}
#define ATTENTION_TASKS(TILE_, P) TILE_(P, attend) TILE_(P, combine_kv_splits)
#define COMBINE_TASK ((uint32_t)task_args_combine_kv_splits)

#endif /* QWEN3_TASKS_ATTENTION_H */
