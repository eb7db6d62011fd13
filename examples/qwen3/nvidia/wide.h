/* nvidia/wide.h: attention and the head of a kernel that decodes more sequences than MAX_ROWS in a
   step (tasks/wide.h).

   In attention a warp has a row and a KV head at a time, and nothing in common with the others: it copies the pages to stages
   of its own in LDS, ahead of what it multiplies and across items, with mma.sync as in attention.h. So nothing is split, and
   sums are added in an order that depends on the position alone. All warps have items at the same time, and together as many
   bytes in flight as memory needs. */
#ifndef QWEN3_NVIDIA_WIDE_H
#define QWEN3_NVIDIA_WIDE_H

#include "prefill.h"

#include "../tasks/wide.h"

#define WIDE_STAGES 3u /* of a warp */
#define WIDE_STAGE_BYTES (KV_BLOCK_VALUES * 2)
#define WIDE_QUERIES_AT (PREFILL_WARPS * WIDE_STAGES * WIDE_STAGE_BYTES)
#define WIDE_QUERY_BYTES (FRAGMENT_ROWS * QUERY_STRIDE * 2) /* of a warp */
typedef char
    wide_stages_fit[WIDE_QUERIES_AT + PREFILL_WARPS * WIDE_QUERY_BYTES <= PREFILL_STAGES_BYTES &&
                            PREFILL_WARPS * WIDE_STAGES * 8 <= PREFILL_MBARS * MBARS_BYTES
                        ? 1
                        : -1];

#if HAS_PREFILL

/* ---- attention ---- */

/* The warp's n-th row and KV head. */
FLEET_DEVICE uint32_t wide_item(const fleet_ctx *ctx, uint32_t n)
{
    const uint32_t workers = prefill_workers(ctx);
    return sorted_item(ctx, n, own_warp() * workers + prefill_worker(ctx), workers * PREFILL_WARPS);
}

/* The pages that a warp copies, of all its items one after the other. */
typedef struct page_copies {
    uint32_t lds, mbars;     /* of the warp's stages */
    uint32_t copied, read;   /* pages */
    uint32_t n, items;       /* the item, of how many */
    uint32_t next, end;      /* its next page, and how many it has */
    const uint32_t *numbers; /* of its pages */
    const kv_t *pages;       /* of its KV head */
    warp_words some;         /* up to 32 of the numbers */
} page_copies;

/* Copies the next page, if there is one, to the stage whose page was read last. */
FLEET_DEVICE void wide_copy(page_copies *c, const fleet_ctx *ctx, const task_args *task)
{
    const decoder *d = &task->d;
    const uint32_t stage = c->copied % WIDE_STAGES;
    uint32_t number;
    if (c->next == c->end) {
        const uint32_t i = wide_item(ctx, c->n);
        const prefill_block *b = d->prefill_blocks + i / d->kv_heads;
        if (i >= c->items) return;
        c->n++, c->next = 0, c->end = b->position / PAGE_TOKENS + 1;
        c->numbers = pages_of(d, b->table_row);
        c->pages = kv_page(d, task->cache, i % d->kv_heads, 0);
    }
    if (c->next % 32 == 0) c->some = load_warp_words(c->numbers + c->next, c->end - c->next);
    number = warp_word(c->some, c->next % 32);
    fleet_wave_barrier(); /* all lanes have read what was in the stage */
    if (own_lane() == 0) {
        mbar_expect(c->mbars + stage * 8, WIDE_STAGE_BYTES);
        copy_bulk(c->lds + stage * WIDE_STAGE_BYTES, c->pages + (size_t)number * KV_BLOCK_VALUES,
                  WIDE_STAGE_BYTES, c->mbars + stage * 8);
    }
    c->next++, c->copied++;
}

/* A key and a value that a lane appends: the elements 2 l and 2 l + 1 of each, and the two that are half a head further. */
typedef struct appended_head {
    roped_head key;
    vec2 low, high; /* of the value */
} appended_head;
FLEET_DEVICE void append_head(const decoder *d, kv_t *page, uint32_t position,
                              const appended_head *a)
{
    const uint32_t half = d->head_dim / 2, j = 2 * own_lane(), at = position % PAGE_TOKENS;
    if (j >= half) return;
    store_kv2(page + key_at(d, at, j), a->key.low[0], a->key.low[1]);
    store_kv2(page + key_at(d, at, j + half), a->key.high[0], a->key.high[1]);
    store_kv2(page + value_at(d, at, j), a->low.value[0], a->low.value[1]);
    store_kv2(page + value_at(d, at, j + half), a->high.value[0], a->high.value[1]);
}

/* Adds up the parts of a lane's elements of HEADS_LOADED heads, in their order. at: of the first two of each in its first
   part; the others are half a head later. All loads of PARTS_LOADED parts overlap. */
FLEET_DEVICE void load_heads(vec2 *low, vec2 *high, const float *const *at, uint32_t half,
                             uint32_t parts, size_t stride)
{
    UNROLLED
    for (uint32_t n = 0; n < HEADS_LOADED; n++)
        low[n].value[0] = low[n].value[1] = high[n].value[0] = high[n].value[1] = 0;
    ROLLED
    for (uint32_t p = 0; p < parts; p += PARTS_LOADED) {
        vec2 a[PARTS_LOADED][HEADS_LOADED], b[PARTS_LOADED][HEADS_LOADED];
        UNROLLED
        for (uint32_t i = 0; i < PARTS_LOADED * HEADS_LOADED; i++) {
            const uint32_t q = i / HEADS_LOADED, n = i % HEADS_LOADED;
            const float *from = at[n] + (p + q) * stride;
            a[q][n].value[0] = a[q][n].value[1] = b[q][n].value[0] = b[q][n].value[1] = 0;
            if (p + q < parts) a[q][n] = load_vec2(from), b[q][n] = load_vec2(from + half);
        }
        UNROLLED
        for (uint32_t i = 0; i < PARTS_LOADED * HEADS_LOADED * 2; i++) {
            const uint32_t q = i / 2 / HEADS_LOADED, n = i / 2 % HEADS_LOADED, e = i % 2;
            low[n].value[e] += a[q][n].value[e], high[n].value[e] += b[q][n].value[e];
        }
    }
}

/* Applies norm and RoPE to an item's queries, which go to the warp's LDS, and to the key that is appended. */
FLEET_DEVICE appended_head wide_heads(const task_args *task, const prefill_block *b, uint32_t head,
                                      kv_t *queries, uint32_t parts, uint32_t rows)
{
    const decoder *d = &task->d;
    const uint32_t dim = d->head_dim, half = dim / 2, j = 2 * own_lane(), mine = j < half ? j : 0;
    const uint32_t width = (d->heads + 2 * d->kv_heads) * dim, group = d->group, all = group + 2;
    const float *row = d->qkv + (size_t)b->row * width + mine;
    const head_norm q_norm = load_head_norm(d, task->q_norm),
                    k_norm = load_head_norm(d, task->k_norm);
    const vec4 cos_sin = load_rope(d, b->position);
    appended_head own;
    memset(&own, 0, sizeof own);
    fleet_wave_barrier(); /* all lanes have read the queries before */
    ROLLED
    for (uint32_t first = 0; first < all; first += HEADS_LOADED) {
        const float *at[HEADS_LOADED];
        vec2 low[HEADS_LOADED], high[HEADS_LOADED];
        UNROLLED
        for (uint32_t n = 0; n < HEADS_LOADED; n++) { /* the queries, the key and the value */
            const uint32_t i = first + n < all ? first + n : all - 1;
            at[n] =
                row +
                (i < group ? head * group + i : d->heads + (i - group) * d->kv_heads + head) * dim;
        }
        load_heads(low, high, at, half, parts, (size_t)rows * width);
        UNROLLED
        for (uint32_t n = 0; n < HEADS_LOADED; n++) {
            const uint32_t i = first + n;
            roped_head t;
            if (i >= all) continue;
            if (i == group + 1) {
                own.low = low[n], own.high = high[n];
                continue;
            }
            t = rmsnorm_rope_of(d, low[n], high[n], i < group ? q_norm : k_norm, cos_sin);
            if (i == group) own.key = t;
            if (i >= group || j >= half) continue;
            store_kv2(queries + i * QUERY_STRIDE + j, t.low[0], t.low[1]);
            store_kv2(queries + i * QUERY_STRIDE + j + half, t.high[0], t.high[1]);
        }
    }
    fleet_wave_barrier(); /* the queries of all lanes are in LDS */
    return own;
}

FLEET_DEVICE act_t low_term(float value)
{
    return act_of_float(value - float_of_act(act_of_float(value)));
}
/* Divides the sums by their denominators and stores them: a lane has eight neighbours of each half of two queries. */
FLEET_DEVICE void wide_store(const decoder *d, const attention_state *a, uint32_t row,
                             uint32_t head, const uint32_t terms)
{
    const uint32_t dim = d->head_dim, width = d->heads * dim, lane = own_lane();
    UNROLLED
    for (uint32_t i = 0; i < FRAGMENT_SUMS; i++) {
        const uint32_t query = lane % 4 * 2 + i % 2, e = i / 2 * (MAX_HEAD_DIM / 2) + lane / 4 * 8;
        const float scale = 1 / a->denominator[i % 2];
        fleet_quad quad;
        if (query >= d->group || e >= dim) continue;
        UNROLLED
        for (uint32_t m = 0; m < 4; m++)
            quad.word[m] = act_of_float(a->sum[2 * m][i] * scale) |
                           (uint32_t)act_of_float(a->sum[2 * m + 1][i] * scale) << 16;
        *(fleet_quad *)(void *)(d->attended + prefill_at(row, (head * d->group + query) * dim + e,
                                                         width, terms)) = quad;
        if (terms == 1) continue;
        UNROLLED
        for (uint32_t m = 0; m < 4; m++)
            quad.word[m] = low_term(a->sum[2 * m][i] * scale) |
                           (uint32_t)low_term(a->sum[2 * m + 1][i] * scale) << 16;
        *(fleet_quad *)(void *)(d->attended + LOW_TERM +
                                prefill_at(row, (head * d->group + query) * dim + e, width,
                                           terms)) = quad;
    }
}

/* Attention of the warp's next item, i. stages, queries: in the warp's LDS. */
FLEET_DEVICE void wide_attend_item(const fleet_ctx *ctx, const task_args *task, page_copies *c,
                                   uint32_t i, kv_t *stages, kv_t *queries, uint32_t parts,
                                   uint32_t rows, const uint32_t terms)
{
    const decoder *d = &task->d;
    const uint32_t head = i % d->kv_heads;
    const prefill_block b = d->prefill_blocks[i / d->kv_heads];
    const uint32_t last = b.position / PAGE_TOKENS;
    const appended_head own = wide_heads(task, &b, head, queries, parts, rows);
    const float scale = 1.44269504f * d->root; /* log2(e) */
    attention_state a;
    memset(&a, 0, sizeof a);
    a.row_max[0] = a.row_max[1] = LOWEST_SCORE;
    a.visible[0] = a.visible[1] = b.position + 1;
    ROLLED
    for (uint32_t u = 0; u <= last; u++) {
        const uint32_t stage = c->read % WIDE_STAGES, lane = own_lane();
        kv_t *block = stages + stage * KV_BLOCK_VALUES;
        float score[FRAGMENT_SUMS];
        mbar_wait(c->mbars + stage * 8, c->read / WIDE_STAGES); /* pair: the copy of the page */
        if (u == last) {
            append_head(d, block, b.position, &own);
            append_head(d, kv_page(d, task->cache, head, pages_of(d, b.table_row)[last]),
                        b.position, &own);
            fence_proxy_async();  /* orders the stores to the stage before the copy over them */
            fleet_wave_barrier(); /* the key and the value are in LDS */
        }
        score_block(score, queries, block, lane);
        accumulate_block(&a, score, u * KV_BLOCK, scale, block, lane);
        c->read++;
        wide_copy(c, ctx, task);
    }
    wide_store(d, &a, b.row, head, terms);
}

/* Attention of the first `blocks` blocks, which have a row each. */
FLEET_DEVICE void attend_rows(const fleet_ctx *ctx, const task_args *task, uint32_t blocks,
                              const uint32_t terms)
{
    const prefill_step *step = prefill_step_of(ctx, &task->d);
    const uint32_t warp = own_warp(), parts = step->division[PREFILL_QKV].parts;
    kv_t *queries = (kv_t *)(void *)((char *)ctx->lds + WIDE_QUERIES_AT + warp * WIDE_QUERY_BYTES);
    kv_t *stages = (kv_t *)(void *)((char *)ctx->lds + warp * (WIDE_STAGES * WIDE_STAGE_BYTES));
    page_copies c;
    memset(&c, 0, sizeof c);
    c.lds = lds_address(stages), c.items = blocks * task->d.kv_heads;
    c.mbars = lds_address(ctx->lds) + PREFILL_STAGES_BYTES + warp * WIDE_STAGES * 8;
    if (own_lane() < WIDE_STAGES) {
        mbar_init(c.mbars + own_lane() * 8, 1);
        mbar_fence_init();
    }
    /* Queries and elements that do not exist are zeros. */
    for (uint32_t i = own_lane(); i < WIDE_QUERY_BYTES / 16; i += 32) {
        const fleet_quad zeros = {{0, 0, 0, 0}};
        ((fleet_quad *)(void *)queries)[i] = zeros;
    }
    rings_open(ctx);
    for (uint32_t i = 0; i < WIDE_STAGES; i++) wide_copy(&c, ctx, task);
    for (uint32_t n = 0, i; (i = wide_item(ctx, n)) < c.items; n++)
        wide_attend_item(ctx, task, &c, i, stages, queries, parts, step->rows, terms);
    fleet_barrier(ctx); /* all copies were waited for */
    if (own_lane() < WIDE_STAGES) mbar_inval(c.mbars + own_lane() * 8);
}
FLEET_TILE(wide_attend, task_args)
{
    const task_args *task = prefill_args(&ctx, args);
    FLEET_UNUSED(at);
    attend_rows(&ctx, task, prefill_step_of(&ctx, &task->d)->rows, 1);
    return FLEET_OK;
}

/* ---- the head ---- */

FLEET_TILE(wide_head, task_args)
{
    FLEET_UNUSED(at);
    return prefill_products(&ctx, args, HEAD_PRODUCT);
}

#else
/* Never run (model.has_prefill). */
NO_PREFILL(wide_attend)
NO_PREFILL(wide_head)
#endif

#endif /* QWEN3_NVIDIA_WIDE_H */
