/* tasks/attention.h: attention on CPUs and AMD GPUs. */
#ifndef QWEN3_TASKS_ATTENTION_H
#define QWEN3_TASKS_ATTENTION_H

#include "kv_splits.h"

/* A backend that has these tasks defines, beside what tasks/backend.h lists, for n and groups of EIGHT values: */
FLEET_DEVICE float dot(const float *query, const kept *key, uint32_t n);
FLEET_DEVICE void add_eight(float *sum, float weight, const kept *values);

#define QUERIES 16u /* rows times heads of a tile */

typedef struct attention_lds {
    float *q;     /* [QUERIES][head_dim] */
    float *sum;   /* [QUERIES][head_dim] */
    float *score; /* [QUERIES][KEYS] */
    float *most, *weight,
        *shrink; /* [QUERIES]: the largest score so far, the sum of weights, what older ones are worth */
    float *scale; /* [MOST_ROWS * 2] */
} attention_lds;

FLEET_DEVICE attention_lds attention_lds_of(const fleet_ctx *ctx, uint32_t head_dim)
{
    attention_lds l;
    l.q = (float *)tile_lds(ctx);
    l.sum = l.q + QUERIES * head_dim;
    l.score = l.sum + QUERIES * head_dim;
    l.most = l.score + QUERIES * KEYS;
    l.weight = l.most + QUERIES;
    l.shrink = l.weight + QUERIES;
    l.scale = l.shrink + QUERIES;
    return l;
}

/* One head of q or k: value i of it after its norm and its rotation by position. from: [head_dim], as computed. */
FLEET_DEVICE float rotated(const decoder *d, const float *from, const float *norm, float scale,
                           uint32_t position, uint32_t i)
{
    const uint32_t half = d->head_dim / 2, j = i < half ? i : i - half;
    const float *turn = d->rope + ((size_t)position * half + j) * 2;
    const float a = from[j] * scale * norm[j], b = from[j + half] * scale * norm[j + half];
    return i < half ? a * turn[0] - b * turn[1] : b * turn[0] + a * turn[1];
}
FLEET_DEVICE float head_scale(const decoder *d, const float *from)
{
    float sum[EIGHT] = {0}, all = 0; /* so many loads need not wait for one another's additions */
    for (uint32_t i = 0; i < d->head_dim; i += EIGHT)
        for (uint32_t j = 0; j < EIGHT; j++) sum[j] += from[i + j] * from[i + j];
    for (uint32_t j = 0; j < EIGHT; j++) all += sum[j];
    return 1 / sqrtf(all / (float)d->head_dim + d->eps);
}

/* Keys and values of the rows at positions from `first` to `end`, which are new, to the cache. */
FLEET_DEVICE void append(const fleet_ctx *ctx, const op *o, const attention_lds *l,
                         const attention_part *p, uint32_t first, uint32_t end)
{
    const decoder *d = &o->d;
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim;
    const float *from = d->qkv + (size_t)p->row * width + (d->heads + p->head) * dim;
    const uint32_t skipped = first - p->position, rows = end - first;
    kept *cache = cache_of(o->cache, d, p);
    for (uint32_t r = ctx->thread; r < rows; r += ctx->threads)
        l->scale[r] = head_scale(d, from + (skipped + r) * width);
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < rows * dim; i += ctx->threads) {
        const uint32_t r = i / dim, c = i % dim;
        const float *k = from + (skipped + r) * width;
        cache[key_at(d, first + r, c)] =
            kept_of(rotated(d, k, o->k_norm, l->scale[r], first + r, c));
        cache[value_at(d, first + r, c)] = kept_of(k[d->kv_heads * dim + c]);
    }
    fleet_barrier(ctx);
}

/* Up to QUERIES queries against the keys from `first` to `end`. A query is a row of the sequence and a head of the
   group that shares keys: number i is row i / group, head i % group. */
FLEET_DEVICE void attend_queries(const fleet_ctx *ctx, const op *o, const attention_lds *l,
                                 const attention_part *p, uint32_t first, uint32_t end,
                                 uint32_t query, uint32_t queries)
{
    const decoder *d = &o->d;
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim, group = d->group;
    const float *rows = d->qkv + (size_t)p->row * width + p->head * group * dim;
    const kept *cache = cache_of(o->cache, d, p);
    for (uint32_t i = ctx->thread; i < queries; i += ctx->threads) {
        const uint32_t r = (query + i) / group, g = (query + i) % group;
        l->scale[i] = head_scale(d, rows + r * width + g * dim);
        l->most[i] = -INFINITY, l->weight[i] = 0;
    }
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < queries * dim; i += ctx->threads) {
        const uint32_t n = i / dim, r = (query + n) / group, g = (query + n) % group;
        l->q[i] = rotated(d, rows + r * width + g * dim, o->q_norm, l->scale[n], p->position + r,
                          i % dim) *
                  d->root;
        l->sum[i] = 0;
    }
    for (uint32_t from = first; from < end; from += KEYS) {
        const uint32_t keys = end - from < KEYS ? end - from : KEYS;
        fleet_barrier(ctx);
        for (uint32_t i = ctx->thread; i < queries * keys; i += ctx->threads) {
            const uint32_t n = i / keys, key = from + i % keys;
            /* A row sees itself and what came before it. */
            const uint32_t seen = p->position + (query + n) / group;
            l->score[n * KEYS + i % keys] =
                key <= seen ? dot(l->q + n * dim, cache + key_at(d, key, 0), dim) : -INFINITY;
        }
        fleet_barrier(ctx);
        for (uint32_t n = ctx->thread; n < queries; n += ctx->threads) {
            float most = l->most[n], sum = 0;
            float *score = l->score + n * KEYS;
            for (uint32_t j = 0; j < keys; j++) most = score[j] > most ? score[j] : most;
            for (uint32_t j = 0; j < keys; j++) {
                score[j] = most == -INFINITY ? 0 : exp_of(score[j] - most);
                sum += score[j];
            }
            l->shrink[n] = most == -INFINITY ? 0 : exp_of(l->most[n] - most);
            l->weight[n] = l->weight[n] * l->shrink[n] + sum;
            l->most[n] = most;
        }
        fleet_barrier(ctx);
        for (uint32_t i = ctx->thread; i < queries * dim / EIGHT; i += ctx->threads) {
            const uint32_t n = i / (dim / EIGHT), c = i % (dim / EIGHT) * EIGHT;
            float sum[EIGHT];
            for (uint32_t j = 0; j < EIGHT; j++) sum[j] = l->sum[n * dim + c + j] * l->shrink[n];
            for (uint32_t key = 0; key < keys; key++)
                add_eight(sum, l->score[n * KEYS + key], cache + value_at(d, from + key, c));
            for (uint32_t j = 0; j < EIGHT; j++) l->sum[n * dim + c + j] = sum[j];
        }
    }
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < queries * (dim + 2); i += ctx->threads) {
        const uint32_t n = i / (dim + 2), c = i % (dim + 2), r = (query + n) / group,
                       g = (query + n) % group;
        const size_t to =
            (((size_t)p->row + r) * d->heads + p->head * group + g) * d->most_parts + p->part;
        d->partial[to * partial_size(d) + c] = c < dim    ? l->sum[n * dim + c]
                                               : c == dim ? l->most[n]
                                                          : l->weight[n];
    }
    fleet_barrier(ctx);
}

/* Attention, a part of a sequence's keys and one head of them at a time. Parts are dealt out so that a head's keys stay
   with a chiplet, where the number of chiplets divides that of heads. Whoever has the last of the keys has also those
   of the step's own rows, and appends them. */
FLEET_TILE(attend, op)
{
    const decoder *d = &args->d;
    const batch *b = d->b;
    const attention_lds l = attention_lds_of(&ctx, d->head_dim);
    const uint32_t group = d->group;
    FLEET_UNUSED(at);
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < b->parts * d->kv_heads;
         i += ctx.tile_num * ctx.slices) {
        const attention_part p = attention_part_of(b, d->kv_heads, i);
        const uint32_t first = p.first * KEYS, last = p.position + p.rows,
                       end = p.end * KEYS < last ? p.end * KEYS : last;
        if (end > p.position)
            append(&ctx, args, &l, &p, first > p.position ? first : p.position, end);
        for (uint32_t query = 0; query < p.rows * group; query += QUERIES) {
            const uint32_t left = p.rows * group - query;
            attend_queries(&ctx, args, &l, &p, first, end, query, left < QUERIES ? left : QUERIES);
        }
    }
    return FLEET_OK;
}

/* Puts the parts together. */
FLEET_TILE(combine, op)
{
    const decoder *d = &args->d;
    const batch *b = d->b;
    const uint32_t dim = d->head_dim;
    FLEET_UNUSED(at);
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < b->rows * d->heads;
         i += ctx.tile_num * ctx.slices) {
        const uint32_t s = (uint32_t)b->row[i / d->heads].sequence,
                       parts = b->first_part[s + 1] - b->first_part[s];
        const uint32_t stride = partial_size(d);
        const float *from = d->partial + (size_t)i * d->most_parts * stride;
        for (uint32_t c = ctx.thread; c < dim; c += ctx.threads) {
            float most = -INFINITY, sum = 0, weight = 0;
            for (uint32_t p = 0; p < parts; p++) most = fmaxf(most, from[p * stride + dim]);
            for (uint32_t p = 0; p < parts; p++) {
                const float *part = from + p * stride, worth = exp_of(part[dim] - most);
                sum += part[c] * worth;
                weight += part[dim + 1] * worth;
            }
            put_act(d->attended + act_at(i / d->heads, i % d->heads * dim + c, d->heads * dim),
                    d->split * MOST_ROWS * d->heads * dim, sum / weight);
        }
    }
    return FLEET_OK;
}
#define ATTENTION_TILES(TILE_, P) TILE_(P, attend) TILE_(P, combine)
#define COMBINE_TASK ((uint32_t)op_combine)

#endif /* QWEN3_TASKS_ATTENTION_H */
