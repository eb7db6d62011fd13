/* nvidia/prefill_experts.h: the tasks of the kernel that takes prompts of models with experts (compute capability 9.0a), as
   prefill.h has them for other models.

   The residual stream and the output of attention have two bf16 terms here (decoder.two_terms), so that the router chooses the
   right experts. A stage of a product then has both terms of its rows, and the columns once: each row is multiplied twice,
   into the same sums. A tile has up to TERM_ROWS rows by 128, 192 or 256 columns. Within experts, activations have one term:
   its rounding does not reach the same layer's choice, and later ones hardly (tests/bench/RESULTS.md, Prompts).

   After the router, `route` chooses each row's experts, a warp a row. `gather` sorts the pairs of row and expert by expert:
   an expert's rows are neighbours, from a place that is a multiple of VECTOR on, in their order. All workers count all pairs,
   which takes less time than one more task would. The products of experts have one item for each tile of an expert's rows
   and each tile of columns. `combine` adds up the results of a row's experts, the best one first. So the bits do not depend on
   the order in which workers run. */
#ifndef QWEN3_NVIDIA_PREFILL_EXPERTS_H
#define QWEN3_NVIDIA_PREFILL_EXPERTS_H

#include "../tasks/sample.h"
#include "prefill.h"

#define TERMS 2u
#define TERM_ROWS (PREFILL_TILE_ROWS / TERMS) /* of a tile of two terms */
#define TERM_BLOCK 64u                        /* rows that are multiplied together */

/* A model's experts, at most. */
#define PREFILL_EXPERTS 4096u

/* Rows of a tile of an expert, at most, in a step: with fewer, a stage is smaller, and more of them are in flight. */
FLEET_HOST_DEVICE uint32_t expert_tile_rows(uint32_t rows, uint32_t top_k, uint32_t experts)
{
    return rows * top_k > experts * (PREFILL_TILE_ROWS * 3 / 8) ? PREFILL_TILE_ROWS
                                                                : PREFILL_TILE_ROWS / 2;
}
/* Tiles of all experts, at most. */
FLEET_HOST_DEVICE uint32_t most_expert_tiles(uint32_t rows, uint32_t top_k, uint32_t experts)
{
    return rows * top_k / (PREFILL_TILE_ROWS / 2) + experts;
}
/* Places of rows that are sorted by expert. */
FLEET_HOST_DEVICE uint32_t expert_places(uint32_t rows, uint32_t top_k, uint32_t experts)
{
    return (ceil_div(rows * top_k, VECTOR) + experts) * VECTOR;
}
/* Values of sorted rows, whose last stage may be half empty. */
FLEET_HOST_DEVICE size_t sorted_values(uint32_t places, uint32_t width)
{
    return (size_t)ceil_div(width, WGMMA_K) * places * WGMMA_K;
}

/* A tile of an expert's rows: its first place, and the expert with the rows less one. */
typedef struct routed_tile {
    uint32_t place, expert;
} routed_tile;
#define ROUTED_ROWS 16u /* bits before the rows */

/* Where the rows of a step go, in decoder.prefill_routes. */
typedef struct prefill_routes {
    float *weight; /* [PREFILL_EXPERT_ROWS][top_k]: the experts' softmax weights, the best first */
    uint32_t *place;   /* likewise: the row's place among those that are sorted by expert */
    uint16_t *expert;  /* likewise */
    float *scale;      /* [places]: 1 / root mean square of the row at a place */
    routed_tile *tile; /* [*tiles] */
    uint32_t *tiles;
} prefill_routes;
FLEET_HOST_DEVICE prefill_routes prefill_routes_of(void *at, uint32_t top_k, uint32_t experts)
{
    const size_t pairs = (size_t)PREFILL_EXPERT_ROWS * top_k;
    prefill_routes r;
    r.weight = (float *)at;
    r.place = (uint32_t *)at + pairs;
    r.expert = (uint16_t *)(void *)(r.place + pairs);
    r.scale = (float *)(void *)(r.expert + pairs);
    r.tile = (routed_tile *)(void *)(r.scale + expert_places(PREFILL_EXPERT_ROWS, top_k, experts));
    r.tiles = (uint32_t *)(void *)(r.tile + most_expert_tiles(PREFILL_EXPERT_ROWS, top_k, experts));
    return r;
}
FLEET_HOST_DEVICE size_t prefill_routes_bytes(uint32_t top_k, uint32_t experts)
{
    return (size_t)most_expert_tiles(PREFILL_EXPERT_ROWS, top_k, experts) * sizeof(routed_tile) +
           (size_t)PREFILL_EXPERT_ROWS * top_k * 10 +
           (size_t)expert_places(PREFILL_EXPERT_ROWS, top_k, experts) * 4 + 4;
}

/* Chooses the width of tiles of an expert's columns: the one for which a tile copies the least to LDS. */
FLEET_HOST_DEVICE prefill_division prefill_divide_expert(const fleet_linear *shape, uint32_t rows,
                                                         uint32_t top_k, uint32_t experts)
{
    const uint32_t most = expert_tile_rows(rows, top_k, experts),
                   mean = ceil_div(rows * top_k, experts), tile_rows = mean < most ? mean : most;
    prefill_division best = {0, 1, shape->k};
    uint64_t least = UINT64_MAX;
    for (uint32_t width = 128; width <= prefill_columns(1); width += 64) {
        const uint64_t bytes = (uint64_t)ceil_div(shape->n, width) *
                               ((uint64_t)shape->k * (tile_rows + width) * 2 + PREFILL_ITEM);
        if (bytes < least) least = bytes, best.width = width;
    }
    return best;
}

#if HAS_PREFILL

FLEET_DEVICE prefill_routes own_routes(const decoder *d)
{
    return prefill_routes_of(d->prefill_routes, d->top_k, d->experts);
}

/* ---- products ---- */

/* The items of a product, numbered as those of prefill_items. Of experts, item i is tile i / across of routes.tile and tile
   i % across of columns: an expert's weights are read by workers that run at the same time. It is in LDS, since the sums take
   all registers. */
typedef struct term_items {
    prefill_items by;
    uint32_t groups;  /* of VECTOR places; 0: not of experts */
    uint32_t x_bytes; /* of a stage's rows */
} term_items;
typedef char
    term_items_fit[PREFILL_ARGS + sizeof(task_args) + sizeof(term_items) <= PREFILL_LDS_BYTES ? 1
                                                                                              : -1];
FLEET_DEVICE term_items *term_items_in(const fleet_ctx *ctx)
{
    return (term_items *)(void *)((char *)ctx->lds + PREFILL_ARGS + sizeof(task_args));
}
typedef struct term_item {
    uint32_t part, row, rows, column, k, end, expert;
} term_item;
/* tile: of an item of experts. kind, a constant: LAYER_PRODUCT of a launch that takes prompts,
   whose rows begin at 0, or one of a server. */
FLEET_DEVICE term_item term_item_of(const task_args *task, const term_items *t, uint32_t i,
                                    uint32_t rows, routed_tile tile, const uint32_t terms,
                                    const uint32_t width, const uint32_t kind)
{
    const uint32_t across = t->by.across, all = task->shape.k;
    term_item item;
    if (terms == 1) {
        item.part = item.k = 0, item.row = tile.place, item.column = i % across * width;
        item.rows = (tile.expert >> ROUTED_ROWS) + 1;
        item.expert = tile.expert & ((1u << ROUTED_ROWS) - 1);
        item.end = ceil_div(all, WGMMA_K) * WGMMA_K;
    } else {
        const uint32_t n = i / t->by.parts, column = n / across, down = n - column * across;
        const uint32_t begin = kind == LAYER_PRODUCT ? 0 : t->by.begin;
        uint32_t most;
        item.part = i - n * t->by.parts;
        item.row = (begin / TERM_ROWS + down) * TERM_ROWS, item.column = column * width;
        if (kind != LAYER_PRODUCT && !down) item.row = begin;
        most = TERM_ROWS - item.row % TERM_ROWS;
        item.rows = rows - item.row < most ? rows - item.row : most;
        item.expert = 0, item.k = item.part * t->by.part_k;
        item.end = all - item.k < t->by.part_k ? all : item.k + t->by.part_k;
    }
    return item;
}

/* What a worker needs for all of its items. A stage has WGMMA_K / terms k's of a tile's rows, then of its columns. */
typedef struct term_work {
    const task_args *task;
    const term_items *t;
    prefill_ring ring;
    ring_place at;
    prefill_copies c;
    routed_tile copied, read; /* of experts: of the items that are copied and multiplied next */
    uint32_t rows, workers;   /* rows: of the step */
    float scale[4];           /* of the lane's rows, */
    uint32_t scaled;          /* of which this is the first one; of experts not used */
} term_work;

/* The tile of experts of the worker's item i, or of one that exists. Loaded one item ahead. */
FLEET_DEVICE routed_tile term_listed(const term_work *w, uint32_t i)
{
    const uint32_t last = w->t->by.items - 1;
    return own_routes(&w->task->d).tile[(i < last ? i : last) / w->t->by.across];
}

FLEET_DEVICE void term_copies_begin(term_work *w, const uint32_t terms, const uint32_t width,
                                    const uint32_t kind)
{
    const task_args *task = w->task;
    prefill_copies *c = &w->c;
    const term_item item =
        term_item_of(task, w->t, c->item, w->rows, w->copied, terms, width, kind);
    const uint32_t stage_k = WGMMA_K / terms, column_bytes = stage_k * 2;
    const uint32_t copies = width / VECTOR / PREFILL_WARPS, warp = own_warp(), lane = own_lane();
    const uint32_t share = w->t->x_bytes / PREFILL_WARPS, begin = warp * share,
                   end = ceil_div(item.rows, VECTOR) * VECTOR * STAGE_ROW_BYTES;
    const uint32_t rows_bytes = begin >= end ? 0 : end - begin < share ? end - begin : share;
    c->k = item.k, c->end = item.end;
    c->warp_bytes = rows_bytes + copies * VECTOR * column_bytes;
    if (terms == 1) w->copied = term_listed(w, c->item + w->workers);
    if (lane == 0) {
        const uint32_t in_tile = kind == LAYER_PRODUCT ? 0 : item.row % TERM_ROWS;
        const act_t *x = terms == 1
                             ? task->x + (size_t)item.row * WGMMA_K
                             : task->x + (size_t)(item.row - in_tile) * TERMS * task->shape.k +
                                   (size_t)item.k * TERMS * TERM_ROWS + in_tile * WGMMA_K;
        c->from = x + begin / sizeof(act_t), c->to = begin, c->bytes = rows_bytes;
        c->step = c->last_step = (terms == 1 ? w->t->groups * VECTOR : TERM_ROWS) * WGMMA_K;
    } else {
        const uint32_t column = (warp + (lane - 1) * PREFILL_WARPS) * VECTOR,
                       own = (item.column + column) / TILE_N, tiles = task->shape.n / TILE_N;
        const tile_weights from =
            tile_weights_of(task, item.expert * tiles + (own < tiles ? own : tiles - 1));
        c->from = from.from + column % TILE_N / VECTOR * STAGE_HALF +
                  (size_t)(item.k / STAGE_K) * from.step;
        c->to = w->t->x_bytes + column * column_bytes;
        c->bytes = lane <= copies ? VECTOR * column_bytes : 0;
        c->step = VECTOR * stage_k;
        c->last_step = from.step - (STAGE_K - stage_k) * VECTOR;
    }
}
FLEET_DEVICE void term_copy(term_work *w, const uint32_t terms, const uint32_t width,
                            const uint32_t kind)
{
    if (w->c.item >= w->t->by.items) return;
    if (w->c.k == w->c.end) term_copies_begin(w, terms, width, kind);
    prefill_copy_stage(&w->c, &w->ring, w->workers, WGMMA_K / terms);
}

FLEET_DEVICE void term_multiply(float *sum, wgmma_desc rows, wgmma_desc columns,
                                const uint32_t terms, const uint32_t width)
{
    if (terms == 1 && width == 96)
        wgmma_m64n96k64(sum, rows, columns);
    else if (terms == 1)
        prefill_multiply(sum, rows, columns, width);
    else if (width == 256)
        wgmma_m64n256k32x2(sum, rows, columns);
    else if (width == 192)
        wgmma_m64n192k32x2(sum, rows, columns);
    else if (width == 128)
        wgmma_m64n128k32x2(sum, rows, columns);
    else if (width == 96)
        wgmma_m64n96k32x2(sum, rows, columns);
    else
        wgmma_m64n64k32x2(sum, rows, columns);
}

/* An item of `width` columns. blocks: of TERM_BLOCK rows that a warpgroup has, every other one of
   the tile's, so that rows are read from LDS once; 0: there is one for both, and each has half of
   its columns. number: of the item. All but that are constants. */
FLEET_DEVICE void term_tile(term_work *w, const term_item *item, uint32_t number,
                            const uint32_t terms, const uint32_t blocks, const uint32_t width,
                            const uint32_t kind)
{
    const uint32_t warp = own_warp(), group = warp / 4, all = blocks ? blocks : 1;
    const uint32_t own_width = blocks ? width : width / 2, column = blocks ? 0 : group * own_width;
    const uint32_t row =
        item->row + (blocks ? group * TERM_BLOCK : 0) + warp % 4 * 16 + own_lane() / 4;
    const uint32_t end = terms == 1 || kind != LAYER_PRODUCT ? item->row + item->rows : w->rows;
    const uint32_t stage_k = WGMMA_K / terms, column_bytes = stage_k * 2;
    uint32_t used = 0;
    float sum[192];
    if (terms == 2 && row != w->scaled) prefill_scales(w->task, w->scale, row, w->rows, all);
    w->scaled = row;
    UNROLLED
    for (uint32_t j = 0; j < all * own_width / 2; j++) sum[j] = 0;
    ROLLED
    for (uint32_t k = item->k; k < item->end; k += stage_k, ring_next(&w->ring, &w->at)) {
        const uint32_t stage = ring_stage(&w->ring, w->at);
        const wgmma_desc columns =
            wgmma_desc_of(stage + w->t->x_bytes + column * column_bytes, VECTOR * column_bytes);
        mbar_wait(ring_full(&w->ring, w->at), w->at.use); /* pair: the copies, which complete it */
        wgmma_fence();
        UNROLLED
        for (uint32_t b = 0; b < all; b++)
            term_multiply(
                sum + b * (own_width / 2),
                wgmma_desc_of(stage + (blocks ? (b * 2 + group) * TERM_BLOCK * STAGE_ROW_BYTES : 0),
                              VECTOR * STAGE_ROW_BYTES),
                columns, terms, own_width);
        wgmma_commit();
        term_copy(w, terms, width, kind);
        wgmma_wait_but_last();
        mbar_arrive_if(used, used != 0); /* the stage before was read. Pair: ring_await_free */
        used = ring_free(&w->ring, w->at);
    }
    wgmma_wait_all();
    mbar_arrive_if(used, 1);
    if (terms == 1) { /* loaded now, since the sums leave no registers for them */
        const uint32_t is_up = w->task->product == PREFILL_EXPERT_UP;
        const float *scales = own_routes(&w->task->d).scale;
        UNROLLED
        for (uint32_t n = 0; n < 2 * all; n++)
            w->scale[n] = is_up && scaled_row(row, n) < end ? scales[scaled_row(row, n)] : 1;
    }
    if (kind == SERVED_HEAD_PRODUCT) {
        const uint32_t first = item->column + own_lane() % 4 * 2;
        if (w->task->d.logits)
            keep_logits(&w->task->d, sum, w->scale, row, first, end, all, own_width);
        keep_best(&w->task->d, sum, w->scale, row, first, end, number % w->workers,
                  number < w->workers, all, own_width);
        return;
    }
    prefill_epilogue(w->task, sum, w->scale, row, item->column + column + own_lane() % 4 * 2, end,
                     terms == 1 ? end : w->rows, terms == 1 ? 1 : w->t->by.parts, item->part,
                     w->task->epilogue == EPILOGUE_STORE ? w->task->floats : w->task->d.qkv, all,
                     own_width, terms, terms == 1, w->t->groups);
}

FLEET_DEVICE void term_product(const fleet_ctx *ctx, const task_args *task, const term_items *t,
                               uint32_t rows, const uint32_t terms, const uint32_t width,
                               const uint32_t kind)
{
    const uint32_t stage_bytes = t->x_bytes + width * (WGMMA_K / terms) * 2,
                   stages = PREFILL_STAGES_BYTES / stage_bytes;
    term_work w;
    memset(&w, 0, sizeof w);
    w.task = task, w.t = t, w.rows = rows, w.workers = prefill_workers(ctx);
    w.scaled = UINT32_MAX, w.c.item = prefill_worker(ctx);
    w.ring = ring_of(ctx, 0, 0, stages, stage_bytes, PREFILL_WARPS);
    if (terms == 1) w.copied = w.read = term_listed(&w, w.c.item);
    rings_open(ctx);
    for (uint32_t i = 0; i + 2 < stages; i++) term_copy(&w, terms, width, kind);
    for (uint32_t i = prefill_worker(ctx); i < t->by.items; i += w.workers) {
        const term_item item = term_item_of(task, t, i, rows, w.read, terms, width, kind);
        if (terms == 1) w.read = term_listed(&w, i + w.workers);
        if (kind != SERVED_HEAD_PRODUCT && item.rows <= TERM_BLOCK)
            term_tile(&w, &item, i, terms, 0, width, kind);
        else if (terms == 2 || item.rows <= 2 * TERM_BLOCK)
            term_tile(&w, &item, i, terms, 1, width, kind);
        else
            term_tile(&w, &item, i, terms, 2, width, kind);
    }
    fleet_barrier(ctx);
    ring_close(ctx, &w.ring);
}

FLEET_DEVICE fleet_status term_products(const fleet_ctx *ctx, const task_args *args,
                                        const uint32_t kind)
{
    const task_args *task = prefill_args(ctx, args);
    const decoder *d = &task->d;
    const prefill_step *step = prefill_step_of(ctx, d);
    const uint32_t rows = step->rows, product = task->product,
                   begin = kind == LAYER_PRODUCT ? 0 : step->begin;
    const prefill_division *by = &step->division[product];
    const uint32_t width = by->width, columns = ceil_div(task->shape.n, width);
    const uint32_t of_experts = product == PREFILL_EXPERT_UP || product == PREFILL_EXPERT_DOWN;
    term_items *t = term_items_in(ctx);
    if (ctx->thread == 0) {
        if (kind != LAYER_PRODUCT) t->by.begin = begin;
        t->by.across = of_experts ? columns : ceil_div(rows, TERM_ROWS) - begin / TERM_ROWS;
        t->by.parts = by->parts, t->by.part_k = by->part_k;
        t->by.items =
            of_experts ? columns * *own_routes(d).tiles : t->by.across * columns * by->parts;
        t->groups = of_experts ? expert_places(rows, d->top_k, d->experts) / VECTOR : 0;
        t->x_bytes = (of_experts ? expert_tile_rows(rows, d->top_k, d->experts) : TERM_ROWS) *
                     STAGE_ROW_BYTES;
    }
    fleet_barrier(ctx); /* the items are in LDS */
    if (of_experts && width == 128)
        term_product(ctx, task, t, rows, 1, 128, kind);
    else if (of_experts)
        term_product(ctx, task, t, rows, 1, 192, kind);
    else if (width == 128)
        term_product(ctx, task, t, rows, TERMS, 128, kind);
    else if (width == 192)
        term_product(ctx, task, t, rows, TERMS, 192, kind);
    else
        term_product(ctx, task, t, rows, TERMS, 256, kind);
    return FLEET_OK;
}
FLEET_TILE(prefill_linear_terms, task_args)
{
    FLEET_UNUSED(at);
    return term_products(&ctx, args, LAYER_PRODUCT);
}

/* ---- the other tasks of two terms ---- */

FLEET_TILE(prefill_embed_terms, task_args)
{
    FLEET_UNUSED(at);
    embed_rows(&ctx, args, TERMS);
    return FLEET_OK;
}
FLEET_TILE(prefill_add_terms, task_args)
{
    FLEET_UNUSED(at);
    add_parts(&ctx, args, 0, args->d.hidden, TERMS);
    return FLEET_OK;
}
#if HAS_RANKS
FLEET_TILE(prefill_join_terms, task_args)
{
    FLEET_UNUSED(at);
    join_rows(&ctx, args, TERMS);
    return FLEET_OK;
}
#endif
FLEET_TILE(prefill_attend_terms, task_args)
{
    FLEET_UNUSED(at);
    attend_blocks_of(&ctx, args, TERMS);
    return FLEET_OK;
}

/* ---- experts ---- */

/* Of several ranks, each has some neighbouring experts, and the pairs of others have no place. Nor
   have rows of a server's step that have no sequence (tasks/serve_wide.h). served, a constant: 1:
   there may be such rows, and the others begin at prefill_step.begin. */
#define NO_PLACE UINT32_MAX
#define NO_EXPERT UINT16_MAX
FLEET_DEVICE uint32_t has_other_ranks(const decoder *d)
{
    return HAS_RANKS && d->peers.ranks > 1;
}
FLEET_DEVICE uint32_t is_own_expert(const decoder *d, uint32_t expert, const uint32_t served)
{
    if (served && expert == NO_EXPERT) return 0;
    return !has_other_ranks(d) || expert - d->first_expert < d->own_experts;
}
FLEET_DEVICE uint32_t own_expert(const decoder *d, uint32_t expert)
{
    return has_other_ranks(d) ? expert - d->first_expert : expert;
}
FLEET_DEVICE uint32_t is_placed(uint32_t place, const uint32_t served)
{
    return (!HAS_RANKS && !served) || place != NO_PLACE;
}
FLEET_DEVICE uint32_t first_routed(const prefill_step *step, const uint32_t served)
{
    return served ? step->begin : 0;
}
/* What `down` of an expert multiplies: its products have no parts. */
FLEET_DEVICE uint32_t served_expert_ffn(const decoder *d)
{
    return d->prefill->division[PREFILL_EXPERT_DOWN].part_k;
}

/* An expert of a row, and its score. */
typedef struct scored_expert {
    float score;
    int32_t expert;
} scored_expert;
/* The best expert after `last`, of all lanes; a lane reads the scores that it has stored. */
FLEET_DEVICE scored_expert next_expert(const float *score, uint32_t experts, uint32_t is_first,
                                       scored_expert last)
{
    scored_expert best = {-INFINITY, (int32_t)experts};
    for (int32_t e = (int32_t)own_lane(); e < (int32_t)experts; e += 32)
        if ((is_first || is_better(last.score, last.expert, score[e], e)) &&
            is_better(score[e], e, best.score, best.expert))
            best.score = score[e], best.expert = e;
    UNROLLED
    for (uint32_t bit = 16; bit; bit /= 2) {
        scored_expert other;
        other.score = shuffle_xor(best.score, bit);
        other.expert = (int32_t)shuffle_xor((float)best.expert, bit); /* exact */
        if (is_better(other.score, other.expert, best.score, best.expert)) best = other;
    }
    return best;
}

/* Chooses each row's experts, as `route` (tasks/moe.h) does, and their weights. A warp takes a row. The router's scores are parts
   of a product. */
FLEET_DEVICE void route_rows(const fleet_ctx *ctx, const task_args *args, const uint32_t served)
{
    const task_args *task = prefill_args(ctx, args);
    const decoder *d = &task->d;
    const prefill_step *step = prefill_step_of(ctx, d);
    const prefill_routes to = own_routes(d);
    const uint32_t rows = step->rows, parts = step->division[PREFILL_ROUTER].parts;
    const uint32_t experts = d->experts, top_k = d->top_k, lane = own_lane();
    const size_t stride = (size_t)rows * task->columns; /* between parts */
    float *score = (float *)ctx->lds + own_warp() * experts;
    for (uint32_t r = first_routed(step, served) + prefill_worker(ctx) * PREFILL_WARPS + own_warp();
         r < rows; r += prefill_workers(ctx) * PREFILL_WARPS) {
        const float *from = task->floats + (size_t)r * task->columns;
        scored_expert best = {0, 0}, own = {0, 0};
        float row_max = 0, sum = 0;
        if (served && d->prefill_rows[r].sequence < 0) {
            if (lane < top_k) to.expert[r * top_k + lane] = NO_EXPERT;
            continue;
        }
        for (uint32_t e = lane; e < experts; e += 32) {
            float s = 0;
            for (uint32_t p = 0; p < parts; p++) s += from[p * stride + e];
            score[e] = nan_to_inf(s);
        }
        for (uint32_t i = 0; i < top_k; i++) {
            best = next_expert(score, experts, i == 0, best);
            if (i == 0) row_max = best.score;
            if (i == lane) own = best;
            sum += fast_exp(best.score - row_max);
        }
        if (!d->norm_topk) {
            sum = 0;
            for (uint32_t e = lane; e < experts; e += 32) sum += fast_exp(score[e] - row_max);
            UNROLLED
            for (uint32_t bit = 16; bit; bit /= 2) sum += shuffle_xor(sum, bit);
        }
        if (lane < top_k) {
            to.expert[r * top_k + lane] = (uint16_t)own.expert;
            to.weight[r * top_k + lane] = fast_exp(own.score - row_max) / sum;
        }
    }
}
FLEET_TILE(prefill_route, task_args)
{
    FLEET_UNUSED(at);
    route_rows(&ctx, args, 0);
    return FLEET_OK;
}

/* LDS of `gather`, and after it two words for each expert: pairs of rows before the worker's own, then its next place; pairs of
   other rows. */
typedef struct gather_lds {
    uint32_t places[PREFILL_THREADS], tiles[PREFILL_THREADS]; /* of the experts of each thread */
    uint32_t chosen[PREFILL_WARPS][MAX_TOP_K], place[PREFILL_WARPS][MAX_TOP_K];
} gather_lds;
typedef char
    gather_has_room[sizeof(gather_lds) + 2 * 4 * PREFILL_EXPERTS <= PREFILL_STAGES_BYTES ? 1 : -1];

/* Counts all pairs from `first` on, and finds each expert's first place and its next one, `next`,
   for the worker's rows, which begin with pair `own`. The first worker lists the tiles. */
FLEET_DEVICE void place_experts(const fleet_ctx *ctx, const decoder *d, const prefill_routes *to,
                                gather_lds *l, uint32_t *next, uint32_t *others, uint32_t first,
                                uint32_t pairs, uint32_t own, const uint32_t served)
{
    const uint32_t each = ceil_div(d->experts, ctx->threads), begin = ctx->thread * each;
    const uint32_t end = begin + each < d->experts ? begin + each : d->experts;
    const uint32_t tile_rows = expert_tile_rows(pairs / d->top_k, d->top_k, d->experts);
    uint32_t place = 0, tile = 0;
    for (uint32_t e = ctx->thread; e < d->experts; e += ctx->threads) next[e] = others[e] = 0;
    fleet_barrier(ctx);
    for (uint32_t i = first + ctx->thread * VECTOR; i < pairs; i += ctx->threads * VECTOR) {
        const fleet_quad quad = *(const fleet_quad *)(const void *)(to->expert + i);
        UNROLLED
        for (uint32_t j = 0; j < VECTOR; j++) {
            const uint32_t e = quad.word[j / 2] >> j % 2 * 16 & 0xffffu;
            if (i + j < pairs && is_own_expert(d, e, served))
                lds_add(i + j < own ? &next[e] : &others[e], 1);
        }
    }
    fleet_barrier(ctx);
    for (uint32_t e = begin; e < end; e++) {
        place += ceil_div(next[e] + others[e], VECTOR) * VECTOR;
        tile += ceil_div(next[e] + others[e], tile_rows);
    }
    l->places[ctx->thread] = place, l->tiles[ctx->thread] = tile;
    fleet_barrier(ctx);
    place = tile = 0;
    for (uint32_t i = 0; i < ctx->thread; i++) place += l->places[i], tile += l->tiles[i];
    for (uint32_t e = begin; e < end; e++) {
        const uint32_t all = next[e] + others[e];
        next[e] += place;
        /* tiles of about the same size, so that workers take about as long */
        const uint32_t tiles = ceil_div(all, tile_rows),
                       each_rows = tiles ? ceil_div(all, tiles * VECTOR) * VECTOR : 0;
        for (uint32_t i = 0; i < all; i += each_rows, tile++) {
            const uint32_t left = all - i < each_rows ? all - i : each_rows;
            if (prefill_worker(ctx)) continue;
            to->tile[tile].place = place + i;
            to->tile[tile].expert = own_expert(d, e) | (left - 1) << ROUTED_ROWS;
        }
        place += ceil_div(all, VECTOR) * VECTOR;
    }
    if (prefill_worker(ctx) == 0 && ctx->thread == ctx->threads - 1) *to->tiles = tile;
}

/* Zeros in what a row has of its last stage, where that is half empty: a server's other rows have
   left numbers there, perhaps infinite ones. By a warp, for all places of a row; width: of the
   row. */
FLEET_DEVICE void clear_tails(act_t *acts, const uint32_t *place, uint32_t top_k, uint32_t width,
                              uint32_t groups)
{
    const uint32_t first = width / VECTOR,
                   vectors = ceil_div(width, WGMMA_K) * (WGMMA_K / VECTOR) - first;
    const fleet_quad zeros = {{0, 0, 0, 0}};
    for (uint32_t i = own_lane(); i < top_k * vectors; i += 32) {
        const uint32_t to = place[i / vectors], v = first + i % vectors;
        if (is_placed(to, 1))
            *(fleet_quad *)(void *)(acts + sorted_at(to, v * VECTOR, groups)) = zeros;
    }
}

/* A warp copies the first term of row r to the places of its experts, and its scale. */
#define GATHERED 4u /* vectors that a lane loads at a time, so that latencies overlap */
FLEET_DEVICE void gather_row(const task_args *task, const prefill_routes *to, const uint32_t *place,
                             uint32_t r, uint32_t groups, const uint32_t served)
{
    const decoder *d = &task->d;
    const uint32_t hidden = d->hidden, vectors = hidden / VECTOR, lane = own_lane(),
                   parts = squares_of(hidden);
    float squares = 0;
    for (uint32_t i = lane; i < parts; i += 32) squares += d->squares[(size_t)r * parts + i];
    UNROLLED
    for (uint32_t bit = 16; bit; bit /= 2) squares += shuffle_xor(squares, bit);
    if (served) {
        clear_tails(task->acts, place, d->top_k, hidden, groups);
        clear_tails(d->gated, place, d->top_k, served_expert_ffn(d), groups);
    }
    if (lane < d->top_k && is_placed(place[lane], served))
        to->scale[place[lane]] = rms_scale(squares / (float)hidden + d->eps);
    for (uint32_t first = lane; first < vectors; first += 32 * GATHERED) {
        fleet_quad quad[GATHERED];
        UNROLLED
        for (uint32_t j = 0; j < GATHERED; j++) {
            const uint32_t v = first + j * 32;
            if (v < vectors)
                quad[j] = *(const fleet_quad *)(const void *)(d->x + prefill_at(r, v * VECTOR,
                                                                                hidden, TERMS));
        }
        for (uint32_t n = 0; n < d->top_k; n++) {
            if (!is_placed(place[n], served)) continue;
            UNROLLED
            for (uint32_t j = 0; j < GATHERED; j++) {
                const uint32_t v = first + j * 32;
                act_t *at = task->acts + sorted_at(place[n], v * VECTOR, groups);
                if (v < vectors) *(fleet_quad *)(void *)at = quad[j];
            }
        }
    }
}

/* Sorts the pairs by expert: a worker has some neighbouring rows, and its warps take one each. */
FLEET_DEVICE void gather_rows(const fleet_ctx *ctx, const task_args *args, const uint32_t served)
{
    const task_args *task = prefill_args(ctx, args);
    const decoder *d = &task->d;
    const prefill_routes to = own_routes(d);
    const prefill_step *step = prefill_step_of(ctx, d);
    const uint32_t rows = step->rows, top_k = d->top_k, routed = first_routed(step, served);
    /* neighbouring rows of the chiplet's, of which there are as many whatever its size */
    const uint32_t of_slices = rows - routed, begin = routed + of_slices * ctx->slice / ctx->slices,
                   all = routed + of_slices * (ctx->slice + 1) / ctx->slices - begin;
    const uint32_t first = begin + all * ctx->tile_index / ctx->tile_num,
                   end = begin + all * (ctx->tile_index + 1) / ctx->tile_num;
    const uint32_t warp = own_warp(), lane = own_lane(),
                   groups = expert_places(rows, top_k, d->experts) / VECTOR;
    gather_lds *l = (gather_lds *)ctx->lds;
    uint32_t *next = (uint32_t *)(void *)(l + 1);
    place_experts(ctx, d, &to, l, next, next + d->experts, routed * top_k, rows * top_k,
                  first * top_k, served);
    for (uint32_t at_row = first; at_row < end; at_row += PREFILL_WARPS) {
        const uint32_t r = at_row + warp, is_pair = r < end && lane < top_k;
        const uint32_t e = is_pair ? to.expert[r * top_k + lane] : 0,
                       is_own = is_pair && is_own_expert(d, e, served);
        if (is_pair) l->chosen[warp][lane] = e;
        fleet_barrier(ctx); /* the experts of all warps' rows, and the next places are there */
        if (is_pair) {
            uint32_t place = served && !is_own ? NO_PLACE : next[e];
            for (uint32_t i = 0; i < warp; i++)
                for (uint32_t j = 0; j < top_k; j++) place += l->chosen[i][j] == e;
            if (!is_own) place = NO_PLACE;
            l->place[warp][lane] = to.place[r * top_k + lane] = place;
        }
        fleet_barrier(ctx); /* all warps have read the next places */
        if (is_own) lds_add(&next[e], 1);
        if (r < end) gather_row(task, &to, l->place[warp], r, groups, served);
    }
}
FLEET_TILE(prefill_gather, task_args)
{
    FLEET_UNUSED(at);
    gather_rows(&ctx, args, 0);
    return FLEET_OK;
}

/* Adds the results of each row's experts, times their weights, to the residual stream; of several
   ranks the sum of this one's experts is the product's only part. A warp has EMBEDDED columns of
   ADDED rows. */
#define COMBINED 8u /* results of a row that are loaded at a time */
FLEET_DEVICE void combine_rows(const fleet_ctx *ctx, const task_args *args, const uint32_t served)
{
    const decoder copy = args->d, *const d = &copy; /* in registers: see prefill_heads */
    const float *const norm = args->norm, *const sums = args->floats;
    const prefill_routes from = own_routes(d);
    const prefill_step *step = prefill_step_of(ctx, d);
    const uint32_t rows = step->rows, top_k = d->top_k, begin = first_routed(step, served);
    const uint32_t across = ceil_div(d->hidden, EMBEDDED),
                   all = ceil_div(rows - begin, ADDED) * across;
    for (uint32_t i = prefill_worker(ctx) * PREFILL_WARPS + own_warp(); i < all;
         i += prefill_workers(ctx) * PREFILL_WARPS) {
        const uint32_t row = begin + i / across * ADDED, c = i % across * EMBEDDED + own_lane() * 4;
        const uint32_t own = c < d->hidden ? (rows - row < ADDED ? rows - row : ADDED) : 0;
        vec4 h[ADDED];
        UNROLLED
        for (uint32_t n = 0; n < ADDED; n++) {
            for (uint32_t j = 0; j < 4; j++) h[n].value[j] = 0;
            if (n < own && !is_exchanged(args))
                h[n] = load_vec4(d->h + (size_t)(row + n) * d->hidden + c);
        }
        ROLLED
        for (uint32_t first = 0; first < top_k; first += COMBINED) {
            vec4 result[COMBINED][ADDED];
            float weight[COMBINED][ADDED];
            UNROLLED
            for (uint32_t k = 0; k < COMBINED * ADDED; k++) {
                const uint32_t q = k / ADDED, n = k % ADDED, pair = (row + n) * top_k + first + q;
                weight[q][n] = 0;
                for (uint32_t j = 0; j < 4; j++) result[q][n].value[j] = 0;
                if (n >= own || first + q >= top_k || !is_placed(from.place[pair], served))
                    continue;
                weight[q][n] = from.weight[pair];
                result[q][n] = load_vec4(sums + (size_t)from.place[pair] * d->hidden + c);
            }
            UNROLLED
            for (uint32_t k = 0; k < COMBINED * ADDED * 4; k++)
                h[k / 4 % ADDED].value[k % 4] += weight[k / 4 / ADDED][k / 4 % ADDED] *
                                                 result[k / 4 / ADDED][k / 4 % ADDED].value[k % 4];
        }
        UNROLLED
        for (uint32_t n = 0; n < ADDED; n++)
            if (!is_exchanged(args))
                store_columns(d, norm, row + n, c, h[n], n < own, TERMS, 1);
            else if (n < own)
                store_vec4(part_of_rank(args, rows, 1, 0, row + n) + c, h[n]);
    }
}
FLEET_TILE(prefill_combine, task_args)
{
    FLEET_UNUSED(at);
    combine_rows(&ctx, args, 0);
    return FLEET_OK;
}
#else
NO_PREFILL(prefill_linear_terms)
NO_PREFILL(prefill_embed_terms)
NO_PREFILL(prefill_add_terms)
#if HAS_RANKS
NO_PREFILL(prefill_join_terms)
#endif
NO_PREFILL(prefill_attend_terms)
NO_PREFILL(prefill_route)
NO_PREFILL(prefill_gather)
NO_PREFILL(prefill_combine)
#endif

#endif /* QWEN3_NVIDIA_PREFILL_EXPERTS_H */
