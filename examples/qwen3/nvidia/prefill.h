/* nvidia/prefill.h: the tasks of a kernel that takes chunks of up to PREFILL_ROWS rows of prompts through all layers
   (compute capability 9.0a). It leaves keys and values in the cache, and nothing else: the launch that decodes begins with
   the last token of each prompt.

   A product is divided into tiles of PREFILL_TILE_ROWS rows by 256 or 128 columns. Two warpgroups multiply a tile, 64 rows
   each, and keep its sums in registers; a producer warp copies rows and weights of PREFILL_K k's at a time into stages of
   LDS, ahead of them and across tiles. Both are stored in atoms (fragments.h), so that eight rows or columns are one copy
   of 1 KB.

   Attention takes blocks of queries: the rows of a block and the heads that share a KV head, together PREFILL_QUERIES. The
   producer warp copies the KV blocks of the sequence, in order; each warp multiplies them by QUERY_SETS sets of
   FRAGMENT_ROWS queries. Nothing is split, so sums are added in an order that depends on positions alone. */
#ifndef QWEN3_NVIDIA_PREFILL_H
#define QWEN3_NVIDIA_PREFILL_H

#include "attention.h"
#include "../backend_nvidia.h"

#define PREFILL_QUERIES 128u /* of a block of attention */
#define PREFILL_ROWS 2048u   /* rows of a step, at most */
#define PREFILL_TILE_ROWS 128u
#define PREFILL_CONSUMERS 8u /* warps */
#define PREFILL_PRODUCERS                                                                          \
    4u /* warps: one issues a copy in 60 cycles, too slowly for tensor cores */
#define PREFILL_WARPS (PREFILL_CONSUMERS + PREFILL_PRODUCERS)
#define PREFILL_THREADS (PREFILL_WARPS * 32)
#define PREFILL_K WGMMA_K                            /* k's of a stage */
#define PREFILL_GROUP_BYTES (VECTOR * PREFILL_K * 2) /* eight rows or columns of a stage */
#define PREFILL_LDS_OWN (4u << 10)                   /* arguments, mbarriers, alignment */
#define PREFILL_LDS_BYTES ((192u << 10) + PREFILL_LDS_OWN)
#define SQUARED_COLUMNS 128u /* columns whose squares are added up together */

#if HAS_PREFILL

/* ---- stages ---- */

/* A ring of stages in LDS; each thread keeps its own. full: the copies are complete; free: all consumers have read it. */
typedef struct prefill_ring {
    uint32_t lds, mbars, stages, stage_bytes; /* addresses in LDS */
    uint32_t stage, use;                      /* the next stage, and how often it was used before */
} prefill_ring;

FLEET_DEVICE uint32_t ring_stage(const prefill_ring *r)
{
    return r->lds + r->stage * r->stage_bytes;
}
FLEET_DEVICE uint32_t ring_full(const prefill_ring *r)
{
    return r->mbars + r->stage * 16;
}
FLEET_DEVICE uint32_t ring_free(const prefill_ring *r)
{
    return r->mbars + r->stage * 16 + 8;
}
FLEET_DEVICE void ring_next(prefill_ring *r)
{
    if (++r->stage == r->stages) r->stage = 0, r->use++;
}

/* All threads of the block call these two together. */
FLEET_DEVICE prefill_ring ring_open(const fleet_ctx *ctx, uint32_t offset, uint32_t stages,
                                    uint32_t stage_bytes)
{
    const uint32_t own = lds_address(ctx->lds) + ARGS_BYTES, aligned = (own + 1023) & ~1023u;
    prefill_ring r;
    r.mbars = aligned, r.lds = aligned + 1024 + offset;
    r.stages = stages, r.stage_bytes = stage_bytes, r.stage = r.use = 0;
    if (ctx->thread < stages) {
        mbar_init(r.mbars + ctx->thread * 16, 1);
        mbar_init(r.mbars + ctx->thread * 16 + 8, PREFILL_CONSUMERS);
        mbar_fence_init();
    }
    /* Orders what this thread has seen, that is the task's events, before its copies. */
    fence_proxy_async();
    fleet_barrier(ctx);
    return r;
}
FLEET_DEVICE void ring_close(const fleet_ctx *ctx, const prefill_ring *r)
{
    fleet_barrier(ctx); /* all copies have been waited for */
    if (ctx->thread < r->stages) {
        mbar_inval(r->mbars + ctx->thread * 16);
        mbar_inval(r->mbars + ctx->thread * 16 + 8);
    }
}

/* ---- products ---- */

/* The tiles of a product: tile t has rows t % across and columns t / across, so that workers that run at the same time
   share weights. */
typedef struct prefill_tiles {
    uint32_t rows, across, tiles;
} prefill_tiles;
FLEET_DEVICE prefill_tiles prefill_tiles_of(const task_args *task, uint32_t rows, uint32_t width)
{
    prefill_tiles t;
    t.rows = rows, t.across = ceil_div(rows, PREFILL_TILE_ROWS);
    t.tiles = t.across * ceil_div(task->shape.n, width);
    return t;
}

/* Where eight columns of weights begin, and how far the next stages of a panel are. */
typedef struct column_group {
    const bf16 *from;
    uint32_t step; /* between inner_k k's */
} column_group;
FLEET_DEVICE column_group column_group_of(const task_args *task, uint32_t column)
{
    const uint32_t inner_k = task->inner_k, tiles = task->shape.n / TILE_N,
                   panel_tiles = task->shape.tile_n / TILE_N;
    const uint32_t tile = column / TILE_N, panel = tile / panel_tiles;
    const uint32_t left = tiles - panel * panel_tiles;
    /* only large-M layers have a narrower last panel */
    const uint32_t own = inner_k == WGMMA_K && left < panel_tiles ? left : panel_tiles;
    column_group g;
    g.from = panel_weights(task, panel) + (tile - panel * panel_tiles) * inner_k * TILE_N +
             column / VECTOR % 2 * (inner_k / BLOCK_K * ATOM);
    g.step = own * inner_k * TILE_N;
    return g;
}

/* A producer warp's part of a tile: every fourth copy of each stage; width: columns, a constant. */
FLEET_DEVICE void produce_tile(const task_args *task, prefill_ring *r, uint32_t row,
                               uint32_t column, const uint32_t width)
{
    const uint32_t lane = fleet_lane(), k = task->shape.k, inner_k = task->inner_k;
    const uint32_t producer = fleet_wave_id() - PREFILL_CONSUMERS,
                   mine = lane % PREFILL_PRODUCERS == producer;
    const uint32_t per_stage = inner_k / PREFILL_K; /* a power of two */
    const uint32_t groups = width / VECTOR, last = task->shape.n - VECTOR;
    const act_t *rows = task->x + (size_t)(row / VECTOR + lane % 16) * (k / BLOCK_K) * ATOM;
    column_group g;
    uint32_t within = 0;
    {
        const uint32_t own = column + lane % groups * VECTOR;
        g = column_group_of(task, own < last ? own : last);
    }
    ROLLED
    for (uint32_t at = 0; at < k; at += PREFILL_K, ring_next(r)) {
        const uint32_t to = ring_stage(r);
        /* Pair: the consumers' mbar_arrive_if after they have read the stage. */
        if (r->use) mbar_wait(ring_free(r), r->use - 1);
        if (lane == 0 && producer == 0) mbar_expect(ring_full(r), r->stage_bytes);
        fleet_wave_barrier();
        if (lane < 16 && mine)
            copy_bulk(to + lane * PREFILL_GROUP_BYTES, rows, PREFILL_GROUP_BYTES, ring_full(r));
        if (lane < groups && mine)
            copy_bulk(to + (16 + lane) * PREFILL_GROUP_BYTES, g.from + within * (2 * ATOM),
                      PREFILL_GROUP_BYTES, ring_full(r));
        rows += 2 * ATOM;
        if (++within == per_stage) within = 0, g.from += g.step;
    }
}

FLEET_DEVICE void consume_tile(const task_args *task, prefill_ring *r, float *sum,
                               const uint32_t width)
{
    const uint32_t warpgroup = warp_uniform(fleet_wave_id() / 4);
    uint32_t used = 0;
    UNROLLED
    for (uint32_t i = 0; i < width / 2; i++) sum[i] = 0;
    ROLLED
    for (uint32_t at = 0; at < task->shape.k; at += PREFILL_K, ring_next(r)) {
        const uint32_t stage = ring_stage(r);
        const wgmma_desc rows =
            wgmma_desc_of(stage + warpgroup * 8 * PREFILL_GROUP_BYTES, PREFILL_GROUP_BYTES);
        const wgmma_desc columns =
            wgmma_desc_of(stage + 16 * PREFILL_GROUP_BYTES, PREFILL_GROUP_BYTES);
        mbar_wait(ring_full(r), r->use); /* pair: the copies of the stage, which complete it */
        wgmma_fence();
        if (width == 256)
            wgmma_m64n256k64(sum, rows, columns);
        else
            wgmma_m64n128k64(sum, rows, columns);
        wgmma_commit();
        wgmma_wait_but_last();
        mbar_arrive_if(used, used != 0); /* the previous stage was read. Pair: produce_tile */
        used = ring_free(r);
    }
    wgmma_wait_all();
    mbar_arrive_if(used, 1);
}

/* A lane has sums of two rows, eight apart: sum[j * 4 + h * 2 + c] is row 8 h, column 8 j + c from its first ones. */
FLEET_DEVICE void prefill_scales(const task_args *task, float *scale, uint32_t row, uint32_t rows)
{
    const uint32_t parts = ceil_div(task->d.hidden, SQUARED_COLUMNS);
    UNROLLED
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t r = row + h * 8;
        float sum = 0;
        if (task->rmsnorm && r < rows)
            for (uint32_t i = fleet_lane() % 4; i < parts; i += 4)
                sum += task->d.squares[(size_t)r * parts + i];
        sum += shuffle_xor(sum, 1);
        sum += shuffle_xor(sum, 2);
        scale[h] = task->rmsnorm ? fast_rsqrt(sum / (float)task->d.hidden + task->d.eps) : 1;
    }
}

FLEET_DEVICE void store_act_pair(act_t *to, float first, float second)
{
    *(uint32_t *)(void *)to = act_of_float(first) | (uint32_t)act_of_float(second) << 16;
}

/* Adds some of a lane's sums of a row to the residual stream, from group `first` of eight columns on; returns their
   squares. All loads are issued before the first store, since the compiler would not move one across the other. */
#define LOADED 8u
FLEET_DEVICE float add_residual(const task_args *task, const float *sum, float *to, uint32_t row,
                                uint32_t column, uint32_t first, uint32_t is_row)
{
    const decoder *d = &task->d;
    vec2 h[LOADED], norm[LOADED];
    float squares = 0;
    UNROLLED
    for (uint32_t i = 0; i < LOADED; i++) {
        const uint32_t c = column + (first + i) * 8;
        h[i].value[0] = h[i].value[1] = 0, norm[i] = h[i];
        if (!is_row || c >= d->hidden) continue;
        h[i] = load_vec2(to + (first + i) * 8), norm[i] = load_vec2(task->norm + c);
    }
    UNROLLED
    for (uint32_t i = 0; i < LOADED; i++) {
        const uint32_t c = column + (first + i) * 8;
        const float a = h[i].value[0] + sum[i * 4], b = h[i].value[1] + sum[i * 4 + 1];
        if (!is_row || c >= d->hidden) continue;
        store_vec2(to + (first + i) * 8, a, b);
        store_act_pair(d->x + act_at(row, c, d->hidden), a * norm[i].value[0],
                       b * norm[i].value[1]);
        squares += a * a + b * b;
    }
    return squares;
}

/* row, column: the lane's first ones. */
FLEET_DEVICE void prefill_epilogue(const task_args *task, const float *sum, const float *scale,
                                   uint32_t row, uint32_t column, uint32_t rows,
                                   const uint32_t width)
{
    const decoder *d = &task->d;
    UNROLLED
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t r = row + h * 8;
        const uint32_t is_row = r < rows;
        if (task->epilogue == EPILOGUE_SILU) {
            UNROLLED
            for (uint32_t j = 0; j < width / 8; j += 2) {
                const uint32_t c = (column - column % TILE_N) / 2 + j * 4 + column % TILE_N;
                const float *gate = sum + j * 4 + h * 2, *up = gate + 4;
                float value[2];
                UNROLLED
                for (uint32_t i = 0; i < 2; i++) {
                    const float x = gate[i] * scale[h];
                    value[i] = fast_ratio(x, 1 + fast_exp(-x)) * (up[i] * scale[h]);
                }
                if (is_row && c < task->columns)
                    store_act_pair(task->acts + act_at(r, c, task->columns), value[0], value[1]);
            }
        } else if (task->epilogue == EPILOGUE_STORE) {
            float *to = task->floats + (size_t)r * task->columns + column;
            UNROLLED
            for (uint32_t j = 0; j < width / 8; j++)
                if (is_row && column + j * 8 < task->columns)
                    store_vec2(to + j * 8, sum[j * 4 + h * 2] * scale[h],
                               sum[j * 4 + h * 2 + 1] * scale[h]);
        } else {
            float *to = d->h + (size_t)r * d->hidden + column;
            UNROLLED
            for (uint32_t part = 0; part < width / SQUARED_COLUMNS; part++) {
                float squares = 0;
                UNROLLED
                for (uint32_t i = 0; i < SQUARED_COLUMNS / 8; i += LOADED)
                    squares +=
                        add_residual(task, sum + (part * (SQUARED_COLUMNS / 8) + i) * 4 + h * 2, to,
                                     r, column, part * (SQUARED_COLUMNS / 8) + i, is_row);
                squares += shuffle_xor(squares, 1);
                squares += shuffle_xor(squares, 2);
                if (is_row && fleet_lane() % 4 == 0 &&
                    column - column % 8 + part * SQUARED_COLUMNS < d->hidden)
                    d->squares[(size_t)r * ceil_div(d->hidden, SQUARED_COLUMNS) +
                               column / SQUARED_COLUMNS + part] = squares;
            }
        }
    }
}

FLEET_DEVICE void prefill_product(const fleet_ctx *ctx, const task_args *task, uint32_t rows,
                                  const uint32_t width)
{
    const prefill_tiles t = prefill_tiles_of(task, rows, width);
    const uint32_t stage_bytes = (16 + width / VECTOR) * PREFILL_GROUP_BYTES;
    const uint32_t workers = ctx->tile_num * ctx->slices, wave = warp_uniform(fleet_wave_id());
    prefill_ring r =
        ring_open(ctx, 0, (PREFILL_LDS_BYTES - PREFILL_LDS_OWN) / stage_bytes, stage_bytes);
    for (uint32_t i = ctx->slice + ctx->tile_index * ctx->slices; i < t.tiles; i += workers) {
        const uint32_t row = i % t.across * PREFILL_TILE_ROWS, column = i / t.across * width;
        if (wave >= PREFILL_CONSUMERS) {
            produce_tile(task, &r, row, column, width);
        } else {
            const uint32_t own_row = row + wave * 16 + fleet_lane() / 4;
            float sum[128], scale[2];
            prefill_scales(task, scale, own_row, rows);
            consume_tile(task, &r, sum, width);
            prefill_epilogue(task, sum, scale, own_row, column + fleet_lane() % 4 * 2, rows, width);
        }
    }
    ring_close(ctx, &r);
}

/* Tiles of 128 columns where there are too few of 256 to keep all workers busy. */
FLEET_DEVICE uint32_t prefill_width(const task_args *task, uint32_t rows, uint32_t workers)
{
    const uint32_t wide = prefill_tiles_of(task, rows, 256).tiles,
                   narrow = prefill_tiles_of(task, rows, 128).tiles;
    /* A narrow tile takes more than half as long, since it reads its rows again. */
    return ceil_div(wide, workers) * 8 <= ceil_div(narrow, workers) * 5 ? 256 : 128;
}

/* Copies the task's arguments to LDS, where all threads read them. */
FLEET_DEVICE const task_args *prefill_args(const fleet_ctx *ctx, const task_args *args)
{
    fleet_quad *own = (fleet_quad *)ctx->lds;
    for (uint32_t i = ctx->thread; i < sizeof *args / 16; i += ctx->threads)
        own[i] = ((const fleet_quad *)(const void *)args)[i];
    fleet_barrier(ctx);
    return (const task_args *)ctx->lds;
}
FLEET_DEVICE const prefill_step *prefill_step_of(const fleet_ctx *ctx, const decoder *d)
{
    return d->prefill + ctx->step;
}
FLEET_DEVICE uint32_t prefill_worker(const fleet_ctx *ctx)
{
    return ctx->slice + ctx->tile_index * ctx->slices;
}
FLEET_DEVICE uint32_t prefill_workers(const fleet_ctx *ctx)
{
    return ctx->tile_num * ctx->slices;
}

FLEET_TILE(prefill_linear, task_args)
{
    const task_args *task = prefill_args(&ctx, args);
    const uint32_t rows = prefill_step_of(&ctx, &task->d)->rows;
    FLEET_UNUSED(at);
    /* not tile_num, in which chiplets may differ: all workers must choose the same */
    if (prefill_width(task, rows, task->d.chiplets * task->d.workers) == 256)
        prefill_product(&ctx, task, rows, 256);
    else
        prefill_product(&ctx, task, rows, 128);
    return FLEET_OK;
}

/* A warp embeds SQUARED_COLUMNS columns of a row. */
FLEET_TILE(prefill_embed, task_args)
{
    const decoder *d = &args->d;
    const prefill_step *step = prefill_step_of(&ctx, d);
    const uint32_t parts = ceil_div(d->hidden, SQUARED_COLUMNS);
    FLEET_UNUSED(at);
    for (uint32_t i = prefill_worker(&ctx) * PREFILL_WARPS + fleet_wave_id();
         i < step->rows * parts; i += prefill_workers(&ctx) * PREFILL_WARPS) {
        const uint32_t r = i / parts, c = i % parts * SQUARED_COLUMNS + fleet_lane() * 4;
        const token_row *row = d->prefill_rows + step->first + r;
        float squares = 0;
        if (c < d->hidden) {
            const vec4 norm = load_vec4(args->norm + c);
            const bf16 *from = d->embedding + (size_t)(uint32_t)row->token * d->hidden + c;
            vec4 h, next;
            for (uint32_t j = 0; j < 4; j++) {
                h.value[j] = float_of_bf16(from[j]), next.value[j] = h.value[j] * norm.value[j];
                squares += h.value[j] * h.value[j];
            }
            store_vec4(d->h + (size_t)r * d->hidden + c, h);
            store_acts(d->x + act_at(r, c, d->hidden), 0, next);
        }
        squares = wave_sum(squares);
        if (fleet_lane() == 0) d->squares[i] = squares;
    }
    return FLEET_OK;
}

/* A warp applies norm and RoPE to a head. Queries replace themselves as f16; keys and values go to their page. */
FLEET_TILE(prefill_heads, task_args)
{
    const decoder *d = &args->d;
    const prefill_step *step = prefill_step_of(&ctx, d);
    const uint32_t heads = d->heads + d->kv_heads, dim = d->head_dim, half = dim / 2;
    const uint32_t width = (d->heads + 2 * d->kv_heads) * dim, j = 2 * fleet_lane();
    FLEET_UNUSED(at);
    for (uint32_t i = prefill_worker(&ctx) * PREFILL_WARPS + fleet_wave_id();
         i < step->rows * heads; i += prefill_workers(&ctx) * PREFILL_WARPS) {
        const uint32_t r = i / heads, head = i - r * heads, is_key = head >= d->heads;
        const token_row *row = d->prefill_rows + step->first + r;
        const uint32_t position = (uint32_t)row->position;
        float *from = d->qkv + (size_t)r * width + head * dim;
        const roped_head t = rmsnorm_rope(d, from, is_key ? args->k_norm : args->q_norm, position);
        if (j >= half) continue;
        if (is_key) {
            kv_t *page = kv_page(d, args->cache, head - d->heads, row->page);
            const uint32_t own = position % PAGE_TOKENS;
            const vec2 low = load_vec2(from + d->kv_heads * dim + j),
                       high = load_vec2(from + d->kv_heads * dim + half + j);
            store_kv2(page + key_at(d, own, j), t.low[0], t.low[1]);
            store_kv2(page + key_at(d, own, j + half), t.high[0], t.high[1]);
            store_kv2(page + value_at(d, own, j), low.value[0], low.value[1]);
            store_kv2(page + value_at(d, own, j + half), high.value[0], high.value[1]);
        } else {
            kv_t *to = (kv_t *)(void *)from;
            store_kv2(to + j, t.low[0], t.low[1]);
            store_kv2(to + j + half, t.high[0], t.high[1]);
        }
    }
    return FLEET_OK;
}

/* ---- attention ---- */

#define QUERY_SETS 2u /* of a warp */
#define WARP_QUERIES (QUERY_SETS * FRAGMENT_ROWS)
#define PREFILL_QUERY_BYTES (PREFILL_QUERIES * QUERY_STRIDE * 2)
#define PREFILL_KV_STAGES 12u
typedef char prefill_queries_fit[PREFILL_QUERIES == PREFILL_CONSUMERS * WARP_QUERIES ? 1 : -1];

/* A lane has queries 2 (l % 4) and 2 (l % 4) + 1 of each set. */
typedef struct flash_state {
    float sum[QUERY_SETS][HEAD_TILES][FRAGMENT_SUMS];
    float denominator[QUERY_SETS][2]; /* of the lane's keys */
    float row_max[QUERY_SETS][2];
    uint32_t visible[QUERY_SETS][2]; /* keys that the query may see */
} flash_state;

/* Copies the warp's queries to LDS, and zeros in place of those that do not exist. */
FLEET_DEVICE void flash_queries(const decoder *d, const prefill_block *b, uint32_t row,
                                uint32_t head, kv_t *to, uint32_t first)
{
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim;
    const uint32_t vectors = MAX_HEAD_DIM / VECTOR;
    for (uint32_t i = fleet_lane(); i < WARP_QUERIES * vectors; i += 32) {
        const uint32_t q = i / vectors, v = i % vectors, query = first + q, r = query / d->group;
        fleet_quad quad = {{0, 0, 0, 0}};
        if (r < b->rows && v * VECTOR < dim)
            quad = load_floats(d->qkv + (size_t)(row + r) * width +
                               (head * d->group + query - r * d->group) * dim + v * VECTOR / 2);
        *(fleet_quad *)(void *)(to + q * QUERY_STRIDE + v * VECTOR) = quad;
    }
    fleet_wave_barrier(); /* other lanes' queries are in LDS */
}

FLEET_DEVICE void flash_block(flash_state *a, const kv_t *q, const kv_t *block, uint32_t key,
                              float scale)
{
    const uint32_t lane = fleet_lane(), row = lane / 4, vector = lane % 4;
    const uint32_t first_key = vector * 2;
    float score[QUERY_SETS][FRAGMENT_SUMS];
    uint32_t b[QUERY_SETS][2];
    float rescale[QUERY_SETS][2];
    uint32_t changed = 0;
    memset(score, 0, sizeof score);
    UNROLLED
    for (uint32_t i = 0; i < HEAD_VECTORS / 4; i++) {
        const fleet_quad first = load_kv_vector(block, row, i % 2 * 4 + vector, 0, i / 2 * 8),
                         others = load_kv_vector(block, row, i % 2 * 4 + vector, 8, i / 2 * 8);
        UNROLLED
        for (uint32_t s = 0; s < QUERY_SETS; s++) {
            const fleet_quad query =
                *(const fleet_quad *)(const void *)(q + (s * FRAGMENT_ROWS + row) * QUERY_STRIDE +
                                                    vector * VECTOR + i * BLOCK_K);
            UNROLLED
            for (uint32_t half = 0; half < 2; half++) {
                uint32_t of[4];
                fragment_weights(of, first.word, others.word, half);
                mma_f16(score[s], of, query.word + half * 2);
            }
        }
    }
    UNROLLED
    for (uint32_t s = 0; s < QUERY_SETS; s++) {
        float p[2][2];
        UNROLLED
        for (uint32_t n = 0; n < 2; n++) {
            const float x = key + row < a->visible[s][n] ? score[s][n] * scale : -INFINITY,
                        y = key + row + 8 < a->visible[s][n] ? score[s][n + 2] * scale : -INFINITY;
            float row_max = fmaxf(x, y);
            UNROLLED
            for (uint32_t bit = 4; bit < 32; bit *= 2)
                row_max = fmaxf(row_max, shuffle_xor(row_max, bit));
            row_max = fmaxf(row_max, a->row_max[s][n]);
            changed |= row_max > a->row_max[s][n];
            rescale[s][n] = fast_exp2(a->row_max[s][n] - row_max);
            a->row_max[s][n] = row_max;
            p[0][n] = fast_exp2(x - row_max), p[1][n] = fast_exp2(y - row_max);
            a->denominator[s][n] = a->denominator[s][n] * rescale[s][n] + (p[0][n] + p[1][n]);
        }
        b[s][0] = transpose_8x8(pack_f16(p[0][0], p[0][1]));
        b[s][1] = transpose_8x8(pack_f16(p[1][0], p[1][1]));
    }
    /* Most blocks change no maximum. */
    if (any_lane(changed)) {
        UNROLLED
        for (uint32_t s = 0; s < QUERY_SETS; s++) {
            UNROLLED
            for (uint32_t i = 0; i < HEAD_TILES; i++) {
                UNROLLED
                for (uint32_t j = 0; j < FRAGMENT_SUMS; j++) a->sum[s][i][j] *= rescale[s][j % 2];
            }
        }
    }
    {
        const kv_t *values = block + KV_BLOCK_VALUES / 2;
        fleet_quad value[8]; /* two vectors of each of four keys */
        UNROLLED
        for (uint32_t i = 0; i < 4; i++) {
            UNROLLED
            for (uint32_t n = 0; n < 2; n++)
                value[i * 2 + n] = load_kv_vector(values, first_key + i % 2, row, i / 2 * 8,
                                                  n * (HEAD_VECTORS / 2));
        }
        UNROLLED
        for (uint32_t i = 0; i < HEAD_TILES; i++) {
            uint32_t of[4];
            fragment_values(of, value, i);
            UNROLLED
            for (uint32_t s = 0; s < QUERY_SETS; s++) mma_f16(a->sum[s][i], of, b[s]);
        }
    }
}

/* Divides the sums by their denominators and stores them. Lane l has elements 8 (l / 4) to 8 (l / 4) + 7 of the head's
   halves (kv_block.h). */
FLEET_DEVICE void flash_store(const decoder *d, flash_state *a, const prefill_block *b,
                              uint32_t row, uint32_t head, uint32_t first)
{
    const uint32_t lane = fleet_lane(), dim = d->head_dim, width = d->heads * dim;
    UNROLLED
    for (uint32_t s = 0; s < QUERY_SETS; s++) {
        UNROLLED
        for (uint32_t n = 0; n < 2; n++) {
            const uint32_t query = first + s * FRAGMENT_ROWS + lane % 4 * 2 + n;
            const uint32_t r = query / d->group, of = head * d->group + query - r * d->group;
            float denominator = a->denominator[s][n];
            UNROLLED
            for (uint32_t bit = 4; bit < 32; bit *= 2) denominator += shuffle_xor(denominator, bit);
            denominator = 1 / denominator;
            UNROLLED
            for (uint32_t half = 0; half < 2; half++) {
                const uint32_t c = half * (MAX_HEAD_DIM / 2) + lane / 4 * 8;
                UNROLLED
                for (uint32_t m = 0; m < HEAD_TILES; m += 4) {
                    vec4 four;
                    UNROLLED
                    for (uint32_t j = 0; j < 4; j++)
                        four.value[j] = a->sum[s][m + j][half * 2 + n] * denominator;
                    if (r < b->rows && c + m < dim)
                        store_acts(d->attended + act_at(row + r, of * dim + c + m, width), 0, four);
                }
            }
        }
    }
}

FLEET_DEVICE void flash_consume(const decoder *d, prefill_ring *ring, const prefill_block *b,
                                uint32_t row, uint32_t head, kv_t *queries, const char *stages)
{
    const uint32_t lane = fleet_lane(), first = fleet_wave_id() * WARP_QUERIES;
    const uint32_t blocks = ceil_div(b->position + b->rows, KV_BLOCK);
    const uint32_t last = first + WARP_QUERIES - 1;
    /* keys that the warp's last query sees */
    const uint32_t last_row = last / d->group < b->rows ? last / d->group : b->rows - 1;
    const uint32_t seen = first / d->group < b->rows ? b->position + last_row + 1 : 0;
    const float scale = d->root * 1.44269504f;
    kv_t *q = queries + fleet_wave_id() * WARP_QUERIES * QUERY_STRIDE;
    flash_state a;
    memset(a.sum, 0, sizeof a.sum);
    UNROLLED
    for (uint32_t s = 0; s < QUERY_SETS; s++) {
        UNROLLED
        for (uint32_t n = 0; n < 2; n++) {
            const uint32_t r = (first + s * FRAGMENT_ROWS + lane % 4 * 2 + n) / d->group;
            a.visible[s][n] = r < b->rows ? b->position + r + 1 : 0;
            a.denominator[s][n] = 0, a.row_max[s][n] = LOWEST_SCORE;
        }
    }
    flash_queries(d, b, row, head, q, first);
    ROLLED
    for (uint32_t i = 0; i < blocks; i++, ring_next(ring)) {
        const char *stage = stages + ring->stage * STAGE_BYTES;
        mbar_wait(ring_full(ring), ring->use); /* pair: the copy of the page */
        if (i * KV_BLOCK < seen)
            flash_block(&a, q, (const kv_t *)(const void *)stage, i * KV_BLOCK, scale);
        fleet_wave_barrier(); /* all lanes have read the stage */
        mbar_arrive_if(ring_free(ring), 1);
    }
    flash_store(d, &a, b, row, head, first);
    fleet_wave_barrier(); /* the queries were read: the next block's may replace them */
}

FLEET_DEVICE void flash_produce(const task_args *task, prefill_ring *ring, const prefill_block *b,
                                uint32_t head)
{
    const decoder *d = &task->d;
    const uint32_t *pages = pages_of(d, b->table_row);
    const uint32_t blocks = ceil_div(b->position + b->rows, KV_BLOCK);
    warp_words some = load_warp_words(pages, blocks), next = some;
    ROLLED
    for (uint32_t i = 0; i < blocks; i++, ring_next(ring)) {
        uint32_t page;
        if (i % 32 == 0) {
            const uint32_t on = i + 32;
            some = next;
            if (on < blocks) next = load_warp_words(pages + on, blocks - on);
        }
        page = warp_word(some, i % 32);
        /* Pair: the consumers' mbar_arrive_if after they have read the stage. */
        if (ring->use) mbar_wait(ring_free(ring), ring->use - 1);
        if (fleet_lane() == 0) {
            mbar_expect(ring_full(ring), STAGE_BYTES);
            copy_bulk(ring_stage(ring), kv_page(d, task->cache, head, page), STAGE_BYTES,
                      ring_full(ring));
        }
    }
}

FLEET_TILE(prefill_attend, task_args)
{
    const task_args *task = prefill_args(&ctx, args);
    const decoder *d = &task->d;
    const prefill_step *step = prefill_step_of(&ctx, d);
    const uint32_t items = step->blocks * d->kv_heads, wave = warp_uniform(fleet_wave_id());
    prefill_ring ring = ring_open(&ctx, PREFILL_QUERY_BYTES, PREFILL_KV_STAGES, STAGE_BYTES);
    char *stages = (char *)ctx.lds + (ring.lds - lds_address(ctx.lds));
    FLEET_UNUSED(at);
    for (uint32_t i = prefill_worker(&ctx); i < items; i += prefill_workers(&ctx)) {
        const prefill_block b = d->prefill_blocks[step->first_block + i / d->kv_heads];
        const uint32_t head = i % d->kv_heads;
        if (wave < PREFILL_CONSUMERS)
            flash_consume(d, &ring, &b, b.row, head, (kv_t *)(void *)(stages - PREFILL_QUERY_BYTES),
                          stages);
        else if (wave == PREFILL_CONSUMERS)
            flash_produce(task, &ring, &b, head);
    }
    ring_close(&ctx, &ring);
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
NO_PREFILL(prefill_attend)
#endif

#endif /* QWEN3_NVIDIA_PREFILL_H */
