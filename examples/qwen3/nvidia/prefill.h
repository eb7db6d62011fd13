/* nvidia/prefill.h: the tasks of a kernel that takes chunks of up to PREFILL_ROWS rows of prompts through all layers
   (compute capability 9.0a). It leaves keys and values in the cache, and the residual stream of each prompt's last token.

   Two warpgroups multiply what bulk copies have brought to stages of LDS, ahead of them and across tiles. There is no producer
   warp: with a ninth warp, threads would have 168 registers. A copy takes the warp that issues it some 70 cycles, whatever its
   size, so copies are large, and all warps share them. They fill the stage that all warps have read one stage ago, so that no
   warp waits for another one.

   A product is divided into tiles of PREFILL_TILE_ROWS rows by 64, 128 or 192 columns, and where these are too few for all
   workers, a tile's k's into parts (split-K, prefill_divide), which the next task adds up. A warpgroup has every other block of
   64 rows and keeps its sums in registers. The activations of these tasks are stored as their stages (prefill_at).

   Attention takes blocks of queries: the rows of a block and the heads that share a KV head, together PREFILL_QUERIES. A
   warpgroup multiplies 64 of them by FLASH_KEYS keys at a time, applies a running softmax to the scores in registers, and
   multiplies the weights by the values; the next keys' scores are computed in the same wait. Nothing is split, so sums are
   added in an order that depends on positions alone. */
#ifndef QWEN3_NVIDIA_PREFILL_H
#define QWEN3_NVIDIA_PREFILL_H

#include "attention.h"
#include "../backend_nvidia.h"
#include "../tasks/sample.h"

#define PREFILL_QUERIES 128u /* of a block of attention */
#define PREFILL_ROWS 2048u   /* rows of a step, at most */
/* The same of models with experts: a step reads the weights of all experts. */
#define PREFILL_EXPERT_ROWS 4096u
#define PREFILL_DISPATCH FLEET_DISPATCH
#define PREFILL_LEAST MAX_ROWS /* tokens for which the launches of their own pay */
#define PREFILL_ADDED_PARTS 2u
#define PREFILL_TILE_ROWS 256u
#define PREFILL_WARPS 8u
#define PREFILL_THREADS (PREFILL_WARPS * 32)
#define PREFILL_STAGES_BYTES (224u << 10)
#define MBARS_BYTES 16u   /* of a stage's mbarriers */
#define PREFILL_MBARS 16u /* of all stages, at most */
#define PREFILL_ARGS                                                                               \
    (PREFILL_STAGES_BYTES + PREFILL_MBARS * MBARS_BYTES) /* where the task's arguments are */
#define PREFILL_LDS_BYTES (PREFILL_STAGES_BYTES + 1024)
typedef char prefill_args_fit[PREFILL_ARGS + sizeof(task_args) <= PREFILL_LDS_BYTES ? 1 : -1];
#define SQUARED_COLUMNS 32u
#define EMBEDDED 128u
#define PARTS_LOADED 4u

/* A stage of products has WGMMA_K k's of a tile's rows, then of its columns. */
#define STAGE_ROW_BYTES (WGMMA_K * 2)

/* Position of an activation: the stages of a tile of rows follow one another. Where activations have two terms (`terms`; models
   with experts), a stage has half of the rows and half of the k's, and instead of the other ones the low terms, LOW_TERM further. */
#define LOW_TERM ATOM
FLEET_HOST_DEVICE size_t prefill_at(uint32_t row, uint32_t k, uint32_t width, const uint32_t terms)
{
    const uint32_t rows = PREFILL_TILE_ROWS / terms, groups = rows / VECTOR,
                   own_k = WGMMA_K / terms;
    const size_t stage = (size_t)(row / rows) * (width / own_k) + k / own_k;
    return ((stage * groups + row / VECTOR % groups) * 2 + k % own_k / BLOCK_K) * ATOM +
           atom_at(row, k);
}

/* Position of an activation of rows that are sorted by expert, one term: a stage has a part of all rows, so that a tile may begin
   with any group of VECTOR rows. groups: all of these. */
FLEET_HOST_DEVICE size_t sorted_at(uint32_t row, uint32_t k, uint32_t groups)
{
    return (((size_t)(k / WGMMA_K) * groups + row / VECTOR) * 2 + k % WGMMA_K / BLOCK_K) * ATOM +
           atom_at(row, k);
}

/* The epilogue that adds to the residual stream has no registers for more columns at a time. */
#define RESIDUAL_COLUMNS 128u
FLEET_HOST_DEVICE uint32_t prefill_columns(const uint32_t terms)
{
    return terms == 1 ? 192 : 256;
}
#define PREFILL_PARTS 8u
#define PARTS_K STAGE_K
#define COLUMNS_STEP 64u
/* What a worker might copy to LDS in the time that it takes to begin and to end a tile, and in that of a task that adds up
   parts, in bytes. An H200's copies 50 KB in 1 us. */
#define PREFILL_ITEM 200000u
#define PREFILL_ADDING 250000u
/* What the worker with the most tiles of a product of `rows` rows has to copy to LDS, in bytes,
   which takes longer than to multiply it. Parts are stored and loaded again; those of the residual
   stream by a task that also adds it and stores it. */
FLEET_HOST_DEVICE uint64_t prefill_cost(uint32_t columns, epilogue end, uint32_t rows,
                                        uint32_t workers, uint32_t terms, prefill_division by)
{
    const uint32_t tile_rows = rows * terms < PREFILL_TILE_ROWS ? rows * terms : PREFILL_TILE_ROWS,
                   tiles = ceil_div(rows * terms, PREFILL_TILE_ROWS) * ceil_div(columns, by.width);
    const uint64_t sums_bytes = (uint64_t)rows * columns * sizeof(float) / workers;
    uint64_t bytes = ceil_div(tiles * by.parts, workers) *
                     ((uint64_t)by.part_k * (tile_rows + by.width) * 2 + PREFILL_ITEM);
    if (by.parts > 1) {
        if (end == EPILOGUE_SILU || end == EPILOGUE_ARGMAX) return UINT64_MAX;
        bytes += 2 * by.parts * sums_bytes;
        if (end == EPILOGUE_RESIDUAL) bytes += PREFILL_ADDING + 6 * sums_bytes;
    } else if (end == EPILOGUE_RESIDUAL && terms == 1 && by.width > RESIDUAL_COLUMNS) {
        return UINT64_MAX;
    }
    return bytes;
}
/* Hidden from the compiler: otherwise it would compute what follows from them ahead of all tasks, and spill registers. */
FLEET_DEVICE uint32_t own_lane(void)
{
    return opaque(fleet_lane());
}
FLEET_DEVICE uint32_t own_warp(void)
{
    return warp_uniform(opaque(fleet_wave_id()));
}

#include "../tasks/prefill.h"

#if HAS_PREFILL

/* ---- stages ---- */

/* A ring of stages in LDS. full: the copies of all warps are complete; free: all warps have read it. */
typedef struct prefill_ring {
    uint32_t lds, mbars, stages, stage_bytes; /* addresses in LDS */
} prefill_ring;
/* A stage, and how often it was used before: where a warp reads, or where it copies to next. */
typedef struct ring_place {
    uint32_t stage, use;
} ring_place;

FLEET_DEVICE uint32_t ring_stage(const prefill_ring *r, ring_place at)
{
    return r->lds + at.stage * r->stage_bytes;
}
FLEET_DEVICE uint32_t ring_full(const prefill_ring *r, ring_place at)
{
    return r->mbars + at.stage * MBARS_BYTES;
}
FLEET_DEVICE uint32_t ring_free(const prefill_ring *r, ring_place at)
{
    return ring_full(r, at) + 8;
}
FLEET_DEVICE void ring_next(const prefill_ring *r, ring_place *at)
{
    if (++at->stage == r->stages) at->stage = 0, at->use++;
}
/* The warp may copy `bytes` to the stage when all warps have read what was there. Pair: their mbar_arrive_if. */
FLEET_DEVICE void ring_await_free(const prefill_ring *r, ring_place to, uint32_t bytes)
{
    if (to.use) mbar_wait(ring_free(r, to), to.use - 1);
    if (own_lane() == 0) mbar_expect(ring_full(r, to), bytes);
    fleet_wave_barrier();
}

/* All threads make a task's rings, and call rings_open. offset, first: where its stages are, and the number of the first
   one's mbarriers; copiers: warps that copy a part of each stage. */
FLEET_DEVICE prefill_ring ring_of(const fleet_ctx *ctx, uint32_t offset, uint32_t first,
                                  uint32_t stages, uint32_t stage_bytes, uint32_t copiers)
{
    prefill_ring r;
    r.lds = lds_address(ctx->lds) + offset;
    r.mbars = lds_address(ctx->lds) + PREFILL_STAGES_BYTES + first * MBARS_BYTES;
    r.stages = stages, r.stage_bytes = stage_bytes;
    if (ctx->thread < stages) {
        mbar_init(r.mbars + ctx->thread * MBARS_BYTES, copiers);
        mbar_init(r.mbars + ctx->thread * MBARS_BYTES + 8, PREFILL_WARPS);
        mbar_fence_init();
    }
    return r;
}
FLEET_DEVICE void rings_open(const fleet_ctx *ctx)
{
    /* Orders what this thread has seen, that is the task's events, before its copies. */
    fence_proxy_async();
    fleet_barrier(ctx);
}
/* All threads call it, after a barrier, when all copies have been waited for. */
FLEET_DEVICE void ring_close(const fleet_ctx *ctx, const prefill_ring *r)
{
    if (ctx->thread < r->stages) {
        mbar_inval(r->mbars + ctx->thread * MBARS_BYTES);
        mbar_inval(r->mbars + ctx->thread * MBARS_BYTES + 8);
    }
}

/* ---- products ---- */

/* Where the weights of a tile of TILE_N columns begin, and how far the next inner_k k's are. */
typedef struct tile_weights {
    const bf16 *from;
    uint32_t step;
} tile_weights;
FLEET_DEVICE tile_weights tile_weights_of(const task_args *task, uint32_t tile)
{
    const uint32_t inner_k = task->inner_k, tiles = task->shape.n / TILE_N,
                   panel_tiles = task->shape.tile_n / TILE_N;
    const uint32_t panel = tile / panel_tiles, left = tiles - panel * panel_tiles;
    /* only large-M layers have a narrower last panel */
    const uint32_t own = inner_k == WGMMA_K && left < panel_tiles ? left : panel_tiles;
    tile_weights w;
    w.from = panel_weights(task, panel) + (tile - panel * panel_tiles) * inner_k * TILE_N;
    w.step = own * inner_k * TILE_N;
    return w;
}

/* The next stage to be copied, of the worker's items one after the other: what the lane copies of each, if anything. Lane 0 has
   the warp's share of the rows, each lane after it some columns. */
typedef struct prefill_copies {
    const act_t *from;
    uint32_t to, bytes;       /* in the stage */
    uint32_t step, last_step; /* to the next WGMMA_K k's; and to those after STAGE_K */
    uint32_t warp_bytes;      /* of all lanes */
    uint32_t item, k, end;
    ring_place at;
} prefill_copies;

/* A copy of weights has eight columns, or in the layout for large M TILE_N columns. Panels are padded with zeros to K_ALIGN
   k's. */
FLEET_DEVICE void prefill_copies_begin(prefill_copies *c, const task_args *task,
                                       const prefill_items *t, uint32_t rows, uint32_t x_bytes,
                                       const uint32_t width)
{
    const prefill_item item = prefill_item_of(task, t, c->item, width);
    const uint32_t is_large_m = task->inner_k == WGMMA_K, columns = is_large_m ? TILE_N : VECTOR;
    const uint32_t all = width / columns, warp = own_warp(), lane = own_lane();
    const uint32_t row = item.row, own_rows = prefill_tile_end(row, rows) - row;
    const uint32_t share = x_bytes / PREFILL_WARPS, begin = warp * share,
                   end = ceil_div(own_rows, VECTOR) * VECTOR * STAGE_ROW_BYTES;
    const uint32_t rows_bytes = begin >= end ? 0 : end - begin < share ? end - begin : share;
    const uint32_t copies = warp < all ? ceil_div(all - warp, PREFILL_WARPS) : 0;
    c->k = item.k, c->end = item.end;
    c->warp_bytes = rows_bytes + copies * columns * STAGE_ROW_BYTES;
    if (lane == 0) {
        c->from = task->x + (size_t)(row - row % PREFILL_TILE_ROWS) * task->shape.k +
                  (size_t)item.k * PREFILL_TILE_ROWS + row % PREFILL_TILE_ROWS * WGMMA_K +
                  begin / sizeof(act_t);
        c->to = begin, c->bytes = rows_bytes;
        c->step = c->last_step = PREFILL_TILE_ROWS * WGMMA_K;
    } else {
        const uint32_t copy = warp + (lane - 1) * PREFILL_WARPS, column = copy * columns;
        const uint32_t own = (item.column + column) / TILE_N, last = task->shape.n / TILE_N - 1;
        const tile_weights w = tile_weights_of(task, own < last ? own : last);
        c->from = w.from + column % TILE_N / VECTOR * STAGE_HALF +
                  (size_t)(item.k / task->inner_k) * w.step;
        c->to = x_bytes + column * STAGE_ROW_BYTES;
        c->bytes = lane <= copies ? columns * STAGE_ROW_BYTES : 0;
        c->step = is_large_m ? w.step : VECTOR * WGMMA_K;
        c->last_step = is_large_m ? w.step : w.step - (STAGE_K - WGMMA_K) * VECTOR;
    }
}
/* stage_k: k's of a stage. */
FLEET_DEVICE void prefill_copy_stage(prefill_copies *c, const prefill_ring *r, uint32_t workers,
                                     const uint32_t stage_k)
{
    ring_await_free(r, c->at, c->warp_bytes);
    if (c->bytes) copy_bulk(ring_stage(r, c->at) + c->to, c->from, c->bytes, ring_full(r, c->at));
    ring_next(r, &c->at);
    c->k += stage_k;
    c->from += c->k % STAGE_K ? c->step : c->last_step;
    if (c->k == c->end) c->item += workers;
}
FLEET_DEVICE void prefill_copy(prefill_copies *c, const task_args *task, const prefill_items *t,
                               const prefill_ring *r, uint32_t rows, uint32_t workers,
                               uint32_t x_bytes, const uint32_t width)
{
    if (c->item >= t->items) return;
    if (c->k == c->end) prefill_copies_begin(c, task, t, rows, x_bytes, width);
    prefill_copy_stage(c, r, workers, WGMMA_K);
}

FLEET_DEVICE void prefill_multiply(float *sum, wgmma_desc rows, wgmma_desc columns,
                                   const uint32_t width)
{
    if (width == 192)
        wgmma_m64n192k64(sum, rows, columns);
    else if (width == 128)
        wgmma_m64n128k64(sum, rows, columns);
    else
        wgmma_m64n64k64(sum, rows, columns);
}

/* A lane has sums of two rows of each block, eight apart: sum[j * 4 + h * 2 + c] is row 8 h, column 8 j + c from its first
   ones. This is the row of its n-th scale. */
FLEET_DEVICE uint32_t scaled_row(uint32_t row, uint32_t n)
{
    return row + n / 2 * 128 + n % 2 * 8;
}
#define SQUARES_LOADED 4u /* vectors of each row at a time, so that latencies overlap */
FLEET_DEVICE void prefill_scales(const task_args *task, float *scale, uint32_t row, uint32_t rows,
                                 const uint32_t blocks)
{
    const uint32_t all = squares_of(task->d.hidden);
    UNROLLED
    for (uint32_t n = 0; n < 2 * blocks; n++) scale[n] = 0;
    ROLLED
    for (uint32_t first = 0; task->rmsnorm && first < all; first += 16 * SQUARES_LOADED) {
        vec4 some[4 * SQUARES_LOADED];
        UNROLLED
        for (uint32_t i = 0; i < 2 * blocks * SQUARES_LOADED; i++) {
            const uint32_t r = scaled_row(row, i / SQUARES_LOADED),
                           at = first + i % SQUARES_LOADED * 16 + own_lane() % 4 * 4;
            for (uint32_t e = 0; e < 4; e++) some[i].value[e] = 0;
            if (r < rows && at < all) some[i] = load_vec4(task->d.squares + (size_t)r * all + at);
        }
        UNROLLED
        for (uint32_t i = 0; i < 2 * blocks * SQUARES_LOADED; i++)
            scale[i / SQUARES_LOADED] +=
                (some[i].value[0] + some[i].value[1]) + (some[i].value[2] + some[i].value[3]);
    }
    UNROLLED
    for (uint32_t n = 0; n < 2 * blocks; n++) {
        scale[n] += shuffle_xor(scale[n], 1);
        scale[n] += shuffle_xor(scale[n], 2);
        scale[n] = task->rmsnorm ? rms_scale(scale[n] / (float)task->d.hidden + task->d.eps) : 1;
    }
}

FLEET_DEVICE void store_act_pair(act_t *to, float first, float second, const uint32_t terms)
{
    const act_t a = act_of_float(first), b = act_of_float(second);
    *(uint32_t *)(void *)to = a | (uint32_t)b << 16;
    if (terms == 2)
        *(uint32_t *)(void *)(to + LOW_TERM) =
            act_of_float(first - float_of_act(a)) | (uint32_t)act_of_float(second - float_of_act(b))
                                                        << 16;
}

/* Adds a lane's sums of row r to the residual stream, and stores the next product's input and the sums of squares. The loads
   of the row are issued before its first store, since the compiler would not move one across the other. */
FLEET_DEVICE void add_residual(const task_args *task, const float *sum, uint32_t r, uint32_t column,
                               uint32_t is_row, const uint32_t width, const uint32_t terms)
{
    const decoder *d = &task->d;
    float *to = d->h + (size_t)r * d->hidden + column;
    vec2 h[RESIDUAL_COLUMNS / 8];
    UNROLLED
    for (uint32_t j = 0; j < width / 8; j++) {
        h[j].value[0] = h[j].value[1] = 0;
        if (is_row && column + j * 8 < d->hidden) h[j] = load_vec2(to + j * 8);
    }
    UNROLLED
    for (uint32_t first = 0; first < width / 8; first += SQUARED_COLUMNS / 8) {
        const uint32_t c = column + first * 8, is_there = is_row && c < d->hidden;
        vec2 norm[SQUARED_COLUMNS / 8];
        float squares = 0;
        UNROLLED
        for (uint32_t j = 0; j < SQUARED_COLUMNS / 8; j++)
            if (is_there) norm[j] = load_vec2(task->norm + c + j * 8);
        UNROLLED
        for (uint32_t j = 0; j < SQUARED_COLUMNS / 8; j++) {
            const uint32_t i = first + j;
            const float a = h[i].value[0] + sum[i * 4], b = h[i].value[1] + sum[i * 4 + 1];
            squares += a * a + b * b;
            if (!is_there) continue;
            store_vec2(to + i * 8, a, b);
            store_act_pair(d->x + prefill_at(r, c + j * 8, d->hidden, terms), a * norm[j].value[0],
                           b * norm[j].value[1], terms);
        }
        squares += shuffle_xor(squares, 1);
        squares += shuffle_xor(squares, 2);
        if (is_there && own_lane() % 4 == 0)
            d->squares[(size_t)r * squares_of(d->hidden) + c / SQUARED_COLUMNS] = squares;
    }
}

/* Keeps the largest logit of each row among the worker's columns; is_first: 1: of its first tile. The same lane has a row in
   all tiles. */
FLEET_DEVICE void keep_best(const decoder *d, const float *sums, const float *scale, uint32_t row,
                            uint32_t column, uint32_t rows, uint32_t worker, uint32_t is_first,
                            const uint32_t blocks, const uint32_t width)
{
    UNROLLED
    for (uint32_t n = 0; n < 2 * blocks; n++) {
        const float *sum = sums + n / 2 * (width / 2) + n % 2 * 2;
        const uint32_t r = scaled_row(row, n),
                       at = worker * PREFILL_TILE_ROWS + r % PREFILL_TILE_ROWS;
        float best = -INFINITY;
        int32_t token = 0;
        UNROLLED
        for (uint32_t j = 0; j < width / 4; j++) {
            const uint32_t c = column + j / 2 * 8 + j % 2;
            const float logit = nan_to_inf(sum[j / 2 * 4 + j % 2] * scale[n]);
            if (c < d->vocab && logit > best) best = logit, token = (int32_t)c;
        }
        UNROLLED
        for (uint32_t bit = 1; bit < 4; bit *= 2) {
            const float other = shuffle_xor(best, bit);
            const int32_t its =
                (int32_t)word_of_float(shuffle_xor(float_of_word((uint32_t)token), bit));
            if (is_better(other, its, best, token)) best = other, token = its;
        }
        if (r >= rows || own_lane() % 4) continue;
        if (is_first || is_better(best, token, d->best[at], d->best_token[at]))
            d->best[at] = best, d->best_token[at] = token;
    }
}

/* row, column: the lane's first ones. end: of the tile's rows; rows: of a part; parts: of the
   product; part: which one this is. floats: where these, or what is not for another epilogue, are
   stored; width: columns of the warpgroup; of_experts, a constant: 1: rows are sorted by expert, in
   so many groups. */
FLEET_DEVICE void prefill_epilogue(const task_args *task, const float *sums, const float *scale,
                                   uint32_t row, uint32_t column, uint32_t end, uint32_t rows,
                                   uint32_t parts, uint32_t part, float *floats,
                                   const uint32_t blocks, const uint32_t width,
                                   const uint32_t terms, const uint32_t of_experts, uint32_t groups)
{
    const uint32_t is_residual = !of_experts && task->epilogue == EPILOGUE_RESIDUAL,
                   columns = is_residual ? task->d.hidden : task->columns;
    UNROLLED
    for (uint32_t n = 0; n < 2 * blocks; n++) {
        const float *sum = sums + n / 2 * (width / 2) + n % 2 * 2;
        const uint32_t r = scaled_row(row, n), is_row = r < end;
        if (task->epilogue == EPILOGUE_SILU) {
            UNROLLED
            for (uint32_t j = 0; j < width / 8; j += 2) {
                const uint32_t c = (column - column % TILE_N) / 2 + j * 4 + column % TILE_N;
                float value[2];
                UNROLLED
                for (uint32_t i = 0; i < 2; i++) {
                    const float x = sum[j * 4 + i] * scale[n], up = sum[j * 4 + 4 + i] * scale[n];
                    value[i] = fast_ratio(x, 1 + fast_exp(-x)) * up;
                }
                if (is_row && c < task->columns)
                    store_act_pair(task->acts + (of_experts
                                                     ? sorted_at(r, c, groups)
                                                     : prefill_at(r, c, task->columns, terms)),
                                   value[0], value[1], terms);
            }
        } else if (!is_residual || parts > 1 || is_exchanged(task)) {
            float *to = is_exchanged(task) ? part_of_rank(task, rows, parts, part, r) + column
                                           : floats + ((size_t)part * rows + r) * columns + column;
            UNROLLED
            for (uint32_t j = 0; j < width / 8; j++)
                if (is_row && column + j * 8 < columns)
                    store_vec2(to + j * 8, sum[j * 4] * scale[n], sum[j * 4 + 1] * scale[n]);
        } else if (terms == 2 || width <= RESIDUAL_COLUMNS) {
            UNROLLED
            for (uint32_t c = 0; c < width; c += RESIDUAL_COLUMNS)
                add_residual(task, sum + c / 2, r, column + c, is_row,
                             width - c < RESIDUAL_COLUMNS ? width - c : RESIDUAL_COLUMNS, terms);
        }
    }
}

/* What is multiplied: a product of a layer, or logits, whose largest ones are kept, or which a
   server's requests may need. A server's layers are told apart only where activations have two
   terms (prefill_experts.h). */
enum { LAYER_PRODUCT, HEAD_PRODUCT, SERVED_HEAD_PRODUCT, SERVED_LAYER_PRODUCT };

/* Stores the logits of the rows whose sequences draw, or whose logits are kept. */
FLEET_DEVICE void keep_logits(const decoder *d, const float *sums, const float *scale, uint32_t row,
                              uint32_t column, uint32_t rows, const uint32_t blocks,
                              const uint32_t width)
{
    UNROLLED
    for (uint32_t n = 0; n < 2 * blocks; n++) {
        const float *sum = sums + n / 2 * (width / 2) + n % 2 * 2;
        const uint32_t r = scaled_row(row, n);
        const int32_t sequence = r < rows ? d->prefill_rows[r].sequence : -1;
        float *to;
        if (sequence < 0 || !chooses(d, (uint32_t)sequence, r) ||
            !stores_logits(d, (uint32_t)sequence))
            continue;
        to = d->logits + logits_at(d, (uint32_t)sequence);
        UNROLLED
        for (uint32_t j = 0; j < width / 4; j++) {
            const uint32_t c = column + j / 2 * 8 + j % 2;
            if (c < d->vocab) to[c] = sum[j / 2 * 4 + j % 2] * scale[n];
        }
    }
}

/* blocks: of 64 rows that a warpgroup has, every other one of the tile; width: columns; kind: LAYER_PRODUCT or another one. All
   are constants. Blocks that do not exist are multiplied too; their sums are ignored. */
FLEET_DEVICE void prefill_product(const fleet_ctx *ctx, const task_args *task,
                                  const prefill_items *t, uint32_t rows, const uint32_t blocks,
                                  const uint32_t width, const uint32_t kind)
{
    const uint32_t x_bytes = blocks * 128 * STAGE_ROW_BYTES,
                   stage_bytes = x_bytes + width * STAGE_ROW_BYTES,
                   stages = PREFILL_STAGES_BYTES / stage_bytes;
    const prefill_ring ring = ring_of(ctx, 0, 0, stages, stage_bytes, PREFILL_WARPS);
    const uint32_t warp = own_warp(), workers = prefill_workers(ctx);
    uint32_t scaled = UINT32_MAX; /* the row of the tile that `scale` is of */
    float scale[4];
    ring_place at = {0, 0};
    prefill_copies c;
    memset(&c, 0, sizeof c);
    c.item = prefill_worker(ctx);
    rings_open(ctx);
    for (uint32_t i = 0; i + 2 < stages; i++)
        prefill_copy(&c, task, t, &ring, rows, workers, x_bytes, width);
    for (uint32_t i = prefill_worker(ctx); i < t->items; i += workers) {
        const prefill_item item = prefill_item_of(task, t, i, width);
        const uint32_t own_row = item.row + warp / 4 * 64 + warp % 4 * 16 + own_lane() / 4,
                       end = prefill_tile_end(item.row, rows);
        uint32_t used = 0;
        float sum[192];
        if (item.row != scaled) prefill_scales(task, scale, own_row, end, blocks);
        scaled = item.row;
        UNROLLED
        for (uint32_t j = 0; j < blocks * width / 2; j++) sum[j] = 0;
        ROLLED
        for (uint32_t k = item.k; k < item.end; k += WGMMA_K, ring_next(&ring, &at)) {
            const uint32_t stage = ring_stage(&ring, at);
            const wgmma_desc columns = wgmma_desc_of(stage + x_bytes, VECTOR * STAGE_ROW_BYTES);
            mbar_wait(ring_full(&ring, at), at.use); /* pair: the copies, which complete it */
            wgmma_fence();
            UNROLLED
            for (uint32_t b = 0; b < blocks; b++)
                prefill_multiply(sum + b * (width / 2),
                                 wgmma_desc_of(stage + (b * 2 + warp / 4) * 64 * STAGE_ROW_BYTES,
                                               VECTOR * STAGE_ROW_BYTES),
                                 columns, width);
            wgmma_commit();
            prefill_copy(&c, task, t, &ring, rows, workers, x_bytes, width);
            wgmma_wait_but_last();
            mbar_arrive_if(used, used != 0); /* the stage before was read. Pair: ring_await_free */
            used = ring_free(&ring, at);
        }
        wgmma_wait_all();
        mbar_arrive_if(used, 1);
        if (kind == SERVED_HEAD_PRODUCT && task->d.logits)
            keep_logits(&task->d, sum, scale, own_row, item.column + own_lane() % 4 * 2, end,
                        blocks, width);
        if (kind != LAYER_PRODUCT)
            keep_best(&task->d, sum, scale, own_row, item.column + own_lane() % 4 * 2, end,
                      prefill_worker(ctx), i < workers, blocks, width);
        else
            prefill_epilogue(task, sum, scale, own_row, item.column + own_lane() % 4 * 2, end, rows,
                             t->parts, item.part, task->d.qkv, blocks, width, 1, 0, 0);
    }
    fleet_barrier(ctx);
    ring_close(ctx, &ring);
}

/* Copies the task's arguments to LDS, where all threads read them. */
FLEET_DEVICE const task_args *prefill_args(const fleet_ctx *ctx, const task_args *args)
{
    fleet_quad *own = (fleet_quad *)(void *)((char *)ctx->lds + PREFILL_ARGS);
    for (uint32_t i = ctx->thread; i < sizeof *args / 16; i += ctx->threads)
        own[i] = ((const fleet_quad *)(const void *)args)[i];
    fleet_barrier(ctx);
    return (const task_args *)(const void *)own;
}
FLEET_DEVICE fleet_status prefill_products(const fleet_ctx *ctx, const task_args *args,
                                           const uint32_t kind)
{
    const task_args *task = prefill_args(ctx, args);
    const prefill_step *step = prefill_step_of(ctx, &task->d);
    const uint32_t rows = step->rows, own_rows = rows - step->begin,
                   is_small = own_rows <= PREFILL_TILE_ROWS / 2 &&
                              rows <= prefill_tile_end(step->begin, rows);
    const prefill_division *by = &step->division[task->product];
    const uint32_t width = by->width;
    const prefill_items t = prefill_items_of(task, by, step->begin, rows);
    if (is_small && width == 64)
        prefill_product(ctx, task, &t, rows, 1, 64, kind);
    else if (is_small && width == 128)
        prefill_product(ctx, task, &t, rows, 1, 128, kind);
    else if (is_small)
        prefill_product(ctx, task, &t, rows, 1, 192, kind);
    else if (width == 64)
        prefill_product(ctx, task, &t, rows, 2, 64, kind);
    else if (width == 128)
        prefill_product(ctx, task, &t, rows, 2, 128, kind);
    else
        prefill_product(ctx, task, &t, rows, 2, 192, kind);
    return FLEET_OK;
}
FLEET_TILE(prefill_linear, task_args)
{
    FLEET_UNUSED(at);
    return prefill_products(&ctx, args, LAYER_PRODUCT);
}

FLEET_TILE(prefill_embed, task_args)
{
    FLEET_UNUSED(at);
    embed_rows(&ctx, args, 1);
    return FLEET_OK;
}

FLEET_TILE(prefill_add, task_args)
{
    FLEET_UNUSED(at);
    add_parts(&ctx, args, 0, args->d.hidden, 1);
    return FLEET_OK;
}
#if HAS_RANKS
FLEET_TILE(prefill_join, task_args)
{
    FLEET_UNUSED(at);
    join_rows(&ctx, args, 1);
    return FLEET_OK;
}
#endif
FLEET_TILE(prefill_keep, task_args)
{
    FLEET_UNUSED(at);
    keep_rows(&ctx, args);
    return FLEET_OK;
}

/* Adds the lane's parts of HEADS_LOADED heads to the first part, in their order. head: where their first floats are, or null; j: of
   the lane's first two; the others are half a head later. stride: floats between parts. */
#define HEADS_LOADED 4u
FLEET_DEVICE void add_head_parts(float *const *head, uint32_t j, uint32_t half, uint32_t parts,
                                 size_t stride)
{
    vec2 low[HEADS_LOADED], high[HEADS_LOADED];
    UNROLLED
    for (uint32_t n = 0; n < HEADS_LOADED; n++)
        if (head[n]) low[n] = load_vec2(head[n] + j), high[n] = load_vec2(head[n] + half + j);
    for (uint32_t p = 1; p < parts; p++) {
        UNROLLED
        for (uint32_t n = 0; n < HEADS_LOADED; n++) {
            if (!head[n]) continue;
            const vec2 a = load_vec2(head[n] + p * stride + j),
                       b = load_vec2(head[n] + p * stride + half + j);
            for (uint32_t i = 0; i < 2; i++)
                low[n].value[i] += a.value[i], high[n].value[i] += b.value[i];
        }
    }
    UNROLLED
    for (uint32_t n = 0; n < HEADS_LOADED; n++) {
        if (!head[n]) continue;
        store_vec2(head[n] + j, low[n].value[0], low[n].value[1]);
        store_vec2(head[n] + half + j, high[n].value[0], high[n].value[1]);
    }
}

/* A warp applies norm and RoPE to HEADS_LOADED heads at a time, so that latencies overlap. Queries replace themselves as f16;
   keys and values go to their page. */
FLEET_TILE(prefill_heads, task_args)
{
    /* Copies in registers: the compiler would load again what a store might have changed. */
    const decoder copy = args->d, *const d = &copy;
    const float *const k_norm = args->k_norm, *const q_norm = args->q_norm;
    kv_t *const cache = args->cache;
    const prefill_step *step = prefill_step_of(&ctx, d);
    const uint32_t heads = d->heads + d->kv_heads, dim = d->head_dim, half = dim / 2;
    const uint32_t width = (d->heads + 2 * d->kv_heads) * dim, j = 2 * own_lane();
    const uint32_t all = step->rows * heads, mine = j < half ? j : 0,
                   begin = (step->has_row_blocks ? step->chunk_row : step->begin) * heads;
    const uint32_t parts = step->division[PREFILL_QKV].parts;
    const size_t stride = (size_t)step->rows * width; /* between parts of the product */
    const head_norm of_q = load_head_norm(d, q_norm), of_k = load_head_norm(d, k_norm);
    FLEET_UNUSED(at);
    for (uint32_t first =
             begin + (prefill_worker(&ctx) * PREFILL_WARPS + own_warp()) * HEADS_LOADED;
         first < all; first += prefill_workers(&ctx) * PREFILL_WARPS * HEADS_LOADED) {
        roped_head t[HEADS_LOADED];
        vec2 own_low[HEADS_LOADED], own_high[HEADS_LOADED], low[HEADS_LOADED], high[HEADS_LOADED];
        vec4 cos_sin[HEADS_LOADED];
        if (parts > 1) {
            float *heads_of[HEADS_LOADED], *values_of[HEADS_LOADED];
            UNROLLED
            for (uint32_t n = 0; n < HEADS_LOADED; n++) {
                const uint32_t i = first + n, r = i / heads, head = i - r * heads;
                float *from = d->qkv + (size_t)r * width + head * dim;
                heads_of[n] = i < all && j < half ? from : NULL;
                values_of[n] = heads_of[n] && head >= d->heads ? from + d->kv_heads * dim : NULL;
            }
            add_head_parts(heads_of, j, half, parts, stride);
            add_head_parts(values_of, j, half, parts, stride);
        }
        /* Loads of all heads first, since none would pass the sums over a warp. */
        UNROLLED
        for (uint32_t n = 0; n < HEADS_LOADED; n++) {
            const uint32_t i = first + n < all ? first + n : all - 1, r = i / heads,
                           head = i - r * heads;
            const float *from = d->qkv + (size_t)r * width + head * dim + mine;
            const float *value = head >= d->heads ? from + d->kv_heads * dim : from;
            cos_sin[n] = load_rope(d, (uint32_t)d->prefill_rows[step->first + r].position);
            own_low[n] = load_vec2(from), own_high[n] = load_vec2(from + half);
            low[n] = load_vec2(value), high[n] = load_vec2(value + half);
        }
        UNROLLED
        for (uint32_t n = 0; n < HEADS_LOADED; n++) {
            const uint32_t i = first + n < all ? first + n : all - 1;
            t[n] = rmsnorm_rope_of(d, own_low[n], own_high[n], i % heads >= d->heads ? of_k : of_q,
                                   cos_sin[n]);
        }
        UNROLLED
        for (uint32_t n = 0; n < HEADS_LOADED; n++) {
            const uint32_t i = first + n, r = i / heads, head = i - r * heads;
            const token_row *row = d->prefill_rows + step->first + r;
            if (i >= all || j >= half || row->sequence < 0) continue;
            if (head >= d->heads) {
                kv_t *page = kv_page(d, cache, head - d->heads, row->page);
                const uint32_t own = (uint32_t)row->position % PAGE_TOKENS;
                store_kv2(page + key_at(d, own, j), t[n].low[0], t[n].low[1]);
                store_kv2(page + key_at(d, own, j + half), t[n].high[0], t[n].high[1]);
                store_kv2(page + value_at(d, own, j), low[n].value[0], low[n].value[1]);
                store_kv2(page + value_at(d, own, j + half), high[n].value[0], high[n].value[1]);
            } else {
                kv_t *to = (kv_t *)(void *)(d->qkv + (size_t)r * width + head * dim);
                store_kv2(to + j, t[n].low[0], t[n].low[1]);
                store_kv2(to + j + half, t[n].high[0], t[n].high[1]);
            }
        }
    }
    return FLEET_OK;
}

/* ---- attention ---- */

#define FLASH_QUERIES 64u /* of a warpgroup */
#define FLASH_KEYS 128u   /* of a stage */
#define FLASH_PAGES (FLASH_KEYS / PAGE_TOKENS)
#define FLASH_QUERY_BYTES (FLASH_QUERIES * MAX_HEAD_DIM * 2) /* of a warpgroup */
#define FLASH_STAGE_BYTES (FLASH_KEYS * MAX_HEAD_DIM * 2)    /* keys or values */
#define FLASH_STAGES 3u                                      /* of keys, and of values */
typedef char
    prefill_queries_fit[PREFILL_QUERIES == 2 * FLASH_QUERIES &&
                                2 * FLASH_QUERY_BYTES + 2 * FLASH_STAGES * FLASH_STAGE_BYTES <=
                                    PREFILL_STAGES_BYTES
                            ? 1
                            : -1];
typedef char a_warp_copies_a_page[FLASH_PAGES == PREFILL_WARPS ? 1 : -1];

/* Lane l of a warp has two of its 16 queries, g = l / 4 and g + 8: element j * 4 + h * 2 + c is query 8 h + g, and column or
   key 8 j + 2 (l % 4) + c. */
typedef struct flash_state {
    float sum[64], score[64];
    uint32_t weight[32];              /* two f16 each: operand A of the product with the values */
    float denominator[2], row_max[2]; /* of the lane's keys; of all keys, unscaled */
} flash_state;

/* The row of a block that a query belongs to; queries that do not exist repeat the last row's. */
FLEET_DEVICE uint32_t flash_row(const decoder *d, const prefill_block *b, uint32_t query)
{
    const uint32_t row = query / d->group;
    return row < b->rows ? row : b->rows - 1;
}

/* Copies a warpgroup's queries, from number `first` on, to LDS, in the layout of keys, and zeros in place of those that do
   not exist. */
FLEET_DEVICE void flash_queries(const decoder *d, const prefill_block *b, uint32_t head, kv_t *to,
                                uint32_t first)
{
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim;
    const uint32_t thread = own_warp() % 4 * 32 + own_lane();
    warpgroup_barrier(first / FLASH_QUERIES); /* all warps have multiplied the queries before */
    UNROLLED
    for (uint32_t n = 0; n < FLASH_QUERIES * HEAD_VECTORS / 128; n++) {
        const uint32_t i = n * 128 + thread, q = i / HEAD_VECTORS, v = i % HEAD_VECTORS;
        const uint32_t query = first + q, r = query / d->group;
        fleet_quad quad = {{0, 0, 0, 0}};
        if (r < b->rows && v * VECTOR < dim)
            quad = load_floats(d->qkv + (size_t)(b->row + r) * width +
                               (head * d->group + query - r * d->group) * dim + v * VECTOR / 2);
        *(fleet_quad *)(void *)(to + key_at(d, q, v * VECTOR)) = quad;
    }
    fence_proxy_async();                      /* orders the queries in LDS before wgmma's reads */
    warpgroup_barrier(first / FLASH_QUERIES); /* the other warps' queries are in LDS */
}

/* Applies softmax to the scores of the keys from `key` on. visible: keys that each of the lane's queries sees, where some
   query of the warpgroup does not see all of the stage's (is_masked). */
FLEET_DEVICE void flash_softmax(flash_state *a, uint32_t key, const uint32_t *visible,
                                uint32_t is_masked, float scale)
{
    /* four maxima and sums of a query: a single chain would take 32 latencies */
    float row_max[2][4], sum[2][4], rescale[2];
    if (is_masked) {
        const uint32_t first = key + own_lane() % 4 * 2;
        UNROLLED
        for (uint32_t i = 0; i < 64; i++)
            if (first + i / 4 * 8 + i % 2 >= visible[i / 2 % 2]) a->score[i] = -INFINITY;
    }
    UNROLLED
    for (uint32_t i = 0; i < 8; i++)
        row_max[i / 4][i % 4] = a->row_max[i / 4], sum[i / 4][i % 4] = 0;
    UNROLLED
    for (uint32_t i = 0; i < 64; i++)
        row_max[i / 2 % 2][i / 4 % 2 * 2 + i % 2] =
            fmaxf(row_max[i / 2 % 2][i / 4 % 2 * 2 + i % 2], a->score[i]);
    UNROLLED
    for (uint32_t h = 0; h < 2; h++) {
        float *of = row_max[h];
        of[0] = fmaxf(fmaxf(of[0], of[1]), fmaxf(of[2], of[3]));
        of[0] = fmaxf(of[0], shuffle_xor(of[0], 1));
        of[0] = fmaxf(of[0], shuffle_xor(of[0], 2));
        rescale[h] = fast_exp2((a->row_max[h] - of[0]) * scale);
        a->row_max[h] = of[0];
        of[0] *= scale;
    }
    UNROLLED
    for (uint32_t i = 0; i < 64; i++) {
        a->score[i] = fast_exp2(a->score[i] * scale - row_max[i / 2 % 2][0]);
        sum[i / 2 % 2][i / 4 % 2 * 2 + i % 2] += a->score[i];
    }
    UNROLLED
    for (uint32_t h = 0; h < 2; h++)
        a->denominator[h] =
            a->denominator[h] * rescale[h] + ((sum[h][0] + sum[h][1]) + (sum[h][2] + sum[h][3]));
    UNROLLED
    for (uint32_t i = 0; i < 32; i++) a->weight[i] = pack_f16(a->score[i * 2], a->score[i * 2 + 1]);
    /* Most stages change no maximum. */
    if (any_lane(rescale[0] < 1 || rescale[1] < 1)) {
        UNROLLED
        for (uint32_t i = 0; i < 64; i++) a->sum[i] *= rescale[i / 2 % 2];
    }
}

/* Divides the sums by their denominators and stores them. query: the lane's first one. */
FLEET_DEVICE void flash_store(const decoder *d, const flash_state *a, const prefill_block *b,
                              uint32_t head, uint32_t query, const uint32_t terms)
{
    const uint32_t dim = d->head_dim, width = d->heads * dim;
    UNROLLED
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t i = query + h * 8, r = i / d->group;
        const uint32_t first = (head * d->group + i - r * d->group) * dim + own_lane() % 4 * 2;
        float scale = a->denominator[h];
        scale += shuffle_xor(scale, 1);
        scale += shuffle_xor(scale, 2);
        scale = 1 / scale;
        UNROLLED
        for (uint32_t j = 0; j < 16; j++)
            if (r < b->rows && j * 8 < dim)
                store_act_pair(d->attended + prefill_at(b->row + r, first + j * 8, width, terms),
                               a->sum[j * 4 + h * 2] * scale, a->sum[j * 4 + h * 2 + 1] * scale,
                               terms);
    }
}

/* Item n of one of the `takers`. Items are sorted by their keys, so takers alternate between ascending and descending order. A
   chiplet has every slices-th item, whatever its size. taker: as prefill_worker counts workers, takers: as prefill_workers. */
FLEET_DEVICE uint32_t sorted_item(const fleet_ctx *ctx, uint32_t n, uint32_t taker, uint32_t takers)
{
    const uint32_t descending = takers - ctx->slices + 2 * ctx->slice - taker;
    return n * takers + (n % 2 ? descending : taker);
}
/* The worker's n-th block and KV head. */
FLEET_DEVICE uint32_t flash_item(const fleet_ctx *ctx, uint32_t n)
{
    return sorted_item(ctx, n, prefill_worker(ctx), prefill_workers(ctx));
}

/* What a warp copies: a page of each stage, of all the worker's items. Values come one stage after keys. */
typedef struct flash_copies {
    prefill_ring keys, values;
    ring_place keys_at, values_at;
    const kv_t *page;        /* whose values are next; null: none */
    const uint32_t *numbers; /* of the pages of the item */
    uint32_t number;         /* of the next one, loaded ahead */
    uint32_t n, items;       /* the item, of how many */
    uint32_t next, last, head;
} flash_copies;

FLEET_DEVICE void flash_copies_begin(flash_copies *c, const fleet_ctx *ctx, const decoder *d,
                                     const prefill_block *blocks)
{
    const uint32_t i = flash_item(ctx, c->n);
    if (i < c->items) {
        const prefill_block *b = blocks + i / d->kv_heads;
        const uint32_t warp = own_warp();
        c->numbers = pages_of(d, b->table_row);
        c->next = 0, c->last = (b->position + b->rows - 1) / PAGE_TOKENS, c->head = i % d->kv_heads;
        c->number = c->numbers[warp < c->last ? warp : c->last];
    } else {
        c->numbers = NULL;
    }
}
/* Copies the warp's page of the next stage of keys, and of the stage of values before it. In place of pages after the last
   one that is copied again: their weights are zero, and their values must be numbers. */
FLEET_DEVICE void flash_copy(flash_copies *c, const fleet_ctx *ctx, const task_args *task,
                             const prefill_block *blocks)
{
    const uint32_t warp = own_warp();
    if (c->page) {
        ring_await_free(&c->values, c->values_at, KV_BLOCK_VALUES);
        if (own_lane() == 0)
            copy_bulk(ring_stage(&c->values, c->values_at) + warp * KV_BLOCK_VALUES,
                      c->page + KV_BLOCK_VALUES / 2, KV_BLOCK_VALUES,
                      ring_full(&c->values, c->values_at));
        ring_next(&c->values, &c->values_at);
    }
    c->page = NULL;
    if (!c->numbers) return;
    c->page = kv_page(&task->d, task->cache, c->head, c->number);
    ring_await_free(&c->keys, c->keys_at, KV_BLOCK_VALUES);
    if (own_lane() == 0)
        copy_bulk(ring_stage(&c->keys, c->keys_at) + warp * KV_BLOCK_VALUES, c->page,
                  KV_BLOCK_VALUES, ring_full(&c->keys, c->keys_at));
    ring_next(&c->keys, &c->keys_at);
    c->next += FLASH_PAGES;
    if (c->next <= c->last) {
        c->number = c->numbers[c->next + warp < c->last ? c->next + warp : c->last];
    } else {
        c->n++;
        flash_copies_begin(c, ctx, &task->d, blocks);
    }
}

/* Where a warp reads. */
typedef struct flash_places {
    ring_place keys, values;
} flash_places;

/* The warp has read a stage of keys, and copies its share of a later one. */
FLEET_DEVICE void flash_keys_read(flash_copies *c, flash_places *at, const fleet_ctx *ctx,
                                  const task_args *task, const prefill_block *blocks)
{
    mbar_arrive_if(ring_free(&c->keys, at->keys), 1); /* pair: ring_await_free */
    ring_next(&c->keys, &at->keys);
    flash_copy(c, ctx, task, blocks);
}
FLEET_DEVICE void flash_values_read(flash_copies *c, flash_places *at)
{
    mbar_arrive_if(ring_free(&c->values, at->values), 1); /* pair: ring_await_free */
    ring_next(&c->values, &at->values);
}

/* The warpgroups take turns: while one's products are computed, the other applies softmax. Both have as many turns. */
FLEET_DEVICE void flash_block(const fleet_ctx *ctx, const task_args *task, flash_copies *c,
                              flash_places *at, const prefill_block *blocks, const prefill_block *b,
                              uint32_t head, const uint32_t terms)
{
    const decoder *d = &task->d;
    const uint32_t warp = own_warp(), warpgroup = warp / 4, first = warpgroup * FLASH_QUERIES;
    const uint32_t query = first + warp % 4 * 16 + own_lane() / 4;
    const uint32_t stages = ceil_div(b->position + b->rows, FLASH_KEYS);
    const uint32_t all_see = b->position + flash_row(d, b, first) + 1; /* so many keys */
    const float scale = d->root * 1.44269504f;                         /* log2(e) */
    const uint32_t stride = VECTOR * MAX_HEAD_DIM * 2;
    kv_t *queries = (kv_t *)ctx->lds + warpgroup * FLASH_QUERY_BYTES / 2;
    const wgmma_desc q = wgmma_desc_of(lds_address(queries), stride);
    uint32_t visible[2];
    flash_state a;
    UNROLLED
    for (uint32_t h = 0; h < 2; h++) {
        visible[h] = b->position + flash_row(d, b, query + h * 8) + 1;
        a.denominator[h] = 0, a.row_max[h] = LOWEST_SCORE;
    }
    UNROLLED
    for (uint32_t i = 0; i < 64; i++) a.sum[i] = 0;
    flash_queries(d, b, head, queries, first);
    mbar_wait(ring_full(&c->keys, at->keys), at->keys.use); /* pair: the copies of the pages */
    await_turn(warpgroup);
    wgmma_fence();
    wgmma_scores(a.score, q, wgmma_desc_of(ring_stage(&c->keys, at->keys), stride));
    wgmma_commit();
    pass_turn(warpgroup);
    wgmma_wait_sums(a.score);
    ROLLED
    for (uint32_t i = 1; i < stages; i++) {
        flash_keys_read(c, at, ctx, task, blocks);
        flash_softmax(&a, (i - 1) * FLASH_KEYS, visible, i * FLASH_KEYS > all_see, scale);
        mbar_wait(ring_full(&c->values, at->values), at->values.use); /* pair: as above */
        mbar_wait(ring_full(&c->keys, at->keys), at->keys.use);       /* pair: as above */
        await_turn(warpgroup);
        wgmma_fence();
        wgmma_values(a.sum, a.weight, wgmma_desc_of_values(ring_stage(&c->values, at->values)));
        wgmma_scores(a.score, q, wgmma_desc_of(ring_stage(&c->keys, at->keys), stride));
        wgmma_commit();
        pass_turn(warpgroup);
        wgmma_wait_sums(a.score);
        wgmma_wait_sums(a.sum);
        wgmma_wait_weights(a.weight);
        flash_values_read(c, at);
    }
    flash_keys_read(c, at, ctx, task, blocks);
    flash_softmax(&a, (stages - 1) * FLASH_KEYS, visible, stages * FLASH_KEYS > all_see, scale);
    mbar_wait(ring_full(&c->values, at->values), at->values.use); /* pair: as above */
    await_turn(warpgroup);
    wgmma_fence();
    wgmma_values(a.sum, a.weight, wgmma_desc_of_values(ring_stage(&c->values, at->values)));
    wgmma_commit();
    pass_turn(warpgroup);
    wgmma_wait_sums(a.sum);
    wgmma_wait_weights(a.weight);
    flash_values_read(c, at);
    flash_store(d, &a, b, head, query, terms);
}

FLEET_DEVICE void attend_blocks_of(const fleet_ctx *ctx, const task_args *args,
                                   const uint32_t terms)
{
    const task_args *task = prefill_args(ctx, args);
    const decoder *d = &task->d;
    const prefill_step *step = prefill_step_of(ctx, d);
    const prefill_block *blocks = d->prefill_blocks + step->first_block + step->row_blocks;
    const uint32_t stages_at = 2 * FLASH_QUERY_BYTES;
    flash_copies c;
    flash_places reads;
    memset(&c, 0, sizeof c);
    memset(&reads, 0, sizeof reads);
    c.keys = ring_of(ctx, stages_at, 0, FLASH_STAGES, FLASH_STAGE_BYTES, PREFILL_WARPS);
    c.values = ring_of(ctx, stages_at + FLASH_STAGES * FLASH_STAGE_BYTES, FLASH_STAGES,
                       FLASH_STAGES, FLASH_STAGE_BYTES, PREFILL_WARPS);
    rings_open(ctx);
    c.items = (step->blocks - step->row_blocks) * d->kv_heads;
    flash_copies_begin(&c, ctx, d, blocks);
    flash_copy(&c, ctx, task, blocks);
    flash_copy(&c, ctx, task, blocks);
    if (own_warp() / 4 == 1) pass_turn(1); /* the first turn is the first one's */
    for (uint32_t n = 0, i; (i = flash_item(ctx, n)) < c.items; n++) {
        const prefill_block b = blocks[i / d->kv_heads];
        flash_block(ctx, task, &c, &reads, blocks, &b, i % d->kv_heads, terms);
    }
    if (own_warp() / 4 == 0) await_turn(0); /* that it has been passed at last */
    fleet_barrier(ctx);
    ring_close(ctx, &c.keys);
    ring_close(ctx, &c.values);
}
FLEET_TILE(prefill_attend, task_args)
{
    FLEET_UNUSED(at);
    attend_blocks_of(&ctx, args, 1);
    return FLEET_OK;
}
#else
/* Never run (model.has_prefill). */
#define NO_PREFILL(name)                                                                           \
    FLEET_TILE(name, task_args)                                                                    \
    {                                                                                              \
        FLEET_UNUSED(ctx), FLEET_UNUSED(args), FLEET_UNUSED(at);                                   \
        return FLEET_ERROR_UNSUPPORTED;                                                            \
    }
NO_PREFILL(prefill_embed)
NO_PREFILL(prefill_linear)
NO_PREFILL(prefill_heads)
NO_PREFILL(prefill_add)
#if HAS_RANKS
NO_PREFILL(prefill_join)
#endif
NO_PREFILL(prefill_keep)
NO_PREFILL(prefill_attend)
#endif

#endif /* QWEN3_NVIDIA_PREFILL_H */
