/* amd/prefill.h: the tasks of a kernel that takes chunks of up to PREFILL_ROWS rows of prompts through all layers (MI200, MI300
   and MI350). It leaves keys and values in the cache, and the residual stream of each prompt's last token.

   A product is divided into tiles of PREFILL_TILE_ROWS rows by 64, 96 or 128 columns, and where these are too few for all
   workers, a tile's k's into parts (split-K, prefill_divide), which the next task adds up. A wave has every fourth block of 32
   rows and all columns. It loads its rows from memory to registers, since no other wave needs them, and a quarter of the
   weights, which all waves exchange through LDS, BLOCK_K k's at a time. Loads are issued XS_AHEAD and WEIGHTS_AHEAD steps
   before their use, between matrix instructions.

   An instruction multiplies 32 rows and 32 columns by 8 or 16 k's. Where sums are stored as they are, a lane has a column of
   16 rows, so that the stores of a wave fill lines of memory. Where gates meet ups, it has 16 columns of a row.

   Attention takes blocks of PREFILL_QUERIES queries: some rows, and the heads that share a KV head. The waves of a workgroup
   share the keys, 32 at a time, and each has a running softmax of its own; afterwards their results are added up through LDS.
   Sums are added in an order that depends on positions alone.

   Where the model's dimensions allow it, a chiplet has KV heads of its own from their columns of qkv through attention, and
   columns of its own of o and down until their parts are added to the residual stream. These tasks are chiplet-tasks
   (prompt_share), whose events need no write-back. */
#ifndef QWEN3_AMD_PREFILL_H
#define QWEN3_AMD_PREFILL_H

#include "../tasks/attention.h"
#include "../tasks/sample.h"

#define PREFILL_QUERIES 32u /* of a block of attention */
#define PREFILL_ROWS 2048u  /* rows of a step, at most */
#define PREFILL_EXPERT_ROWS PREFILL_ROWS
#define PREFILL_LEAST                                                                              \
    (MAX_ROWS + 1) /* tokens for which the launches of their own pay: more than one step takes */
#define PREFILL_TILE_ROWS 256u
#define PREFILL_WARPS 4u
#define PREFILL_THREADS (PREFILL_WARPS * 64)
#define EMBEDDED 256u
#define SQUARED_COLUMNS 128u
#define PREFILL_ADDED_PARTS 1u
#define PARTS_LOADED 8u
#define LOW_TERM 0u /* activations have one term */

#define MATRIX 32u /* rows and columns of a matrix instruction */
#define PREFILL_COLUMNS 128u
#define STEPS_UNROLLED 4u
#define WEIGHT_STAGE (PREFILL_COLUMNS * BLOCK_K * 2)
#define WEIGHT_STAGES 2u
#define SCALES_AT (WEIGHT_STAGES * WEIGHT_STAGE)
/* The sums of each wave for every other one; and the maximum and the denominator of each query and wave. */
#define FLASH_SUMS (PREFILL_WARPS * (PREFILL_WARPS - 1) * MATRIX * PREFILL_QUERIES)
#define FLASH_BYTES ((FLASH_SUMS + 2 * PREFILL_WARPS * PREFILL_QUERIES) * 4)
#define PREFILL_LDS_BYTES (60u << 10) /* with a server's batches (tasks/serve_wide.h) */
#define PREFILL_PREFETCHES(TILE_, P)                                                               \
    TILE_(P, prefill_linear) TILE_(P, prefill_attend) TILE_(P, prefill_heads) TILE_(P, prefill_add)
#define PREFILL_DISPATCH(set, LIST) FLEET_DISPATCH_WITH_PREFETCH(set, LIST, PREFILL_PREFETCHES)
typedef char prefill_lds_fits[FLASH_BYTES <= PREFILL_LDS_BYTES &&
                                      SCALES_AT + PREFILL_TILE_ROWS * 4 <= PREFILL_LDS_BYTES
                                  ? 1
                                  : -1];

/* [row / PREFILL_TILE_ROWS][k / VECTOR][row][VECTOR]: 32 rows of VECTOR k's are neighbours, as a wave loads them. */
FLEET_HOST_DEVICE size_t prefill_at(uint32_t row, uint32_t k, uint32_t width, const uint32_t terms)
{
    const size_t tile = row / PREFILL_TILE_ROWS;
    FLEET_UNUSED(terms);
    return ((tile * (width / VECTOR) + k / VECTOR) * PREFILL_TILE_ROWS + row % PREFILL_TILE_ROWS) *
               VECTOR +
           k % VECTOR;
}
FLEET_DEVICE uint32_t own_lane(void)
{
    return fleet_lane();
}
FLEET_DEVICE uint32_t own_warp(void)
{
    return wave_uniform(fleet_wave_id());
}

FLEET_HOST_DEVICE uint32_t prefill_columns(const uint32_t terms)
{
    FLEET_UNUSED(terms);
    return PREFILL_COLUMNS;
}
#define PREFILL_PARTS 16u
#define PARTS_K (STEPS_UNROLLED * BLOCK_K)
#define COLUMNS_STEP MATRIX
/* Cycles that a worker takes to begin and to end a tile, and bytes of parts that it stores and loads in one. */
#define PREFILL_ITEM 8000u
#define PREFILL_BYTES_PER_CYCLE 12u
/* Cycles of the worker with the most tiles: 1,024 multiplications in one, and to store and load
   parts. Gates and ups, and logits, are not summed up anywhere else, so they have one part; all but
   gates and ups have the widest tiles. */
FLEET_HOST_DEVICE uint64_t prefill_cost(uint32_t columns, epilogue end, uint32_t rows,
                                        uint32_t workers, uint32_t terms, prefill_division by)
{
    const uint32_t tile_rows =
                       rows <= PREFILL_TILE_ROWS / 2 ? PREFILL_TILE_ROWS / 2 : PREFILL_TILE_ROWS,
                   tiles = ceil_div(rows, PREFILL_TILE_ROWS) * ceil_div(columns, by.width);
    const uint64_t sums_bytes = (uint64_t)rows * columns * sizeof(float) / workers;
    FLEET_UNUSED(terms);
    if ((end == EPILOGUE_SILU || end == EPILOGUE_ARGMAX) && by.parts > 1) return UINT64_MAX;
    if (end != EPILOGUE_SILU && by.width < PREFILL_COLUMNS) return UINT64_MAX;
    return ceil_div(tiles * by.parts, workers) *
               ((uint64_t)by.part_k * tile_rows * by.width / 1024 + PREFILL_ITEM) +
           2 * by.parts * sums_bytes / PREFILL_BYTES_PER_CYCLE;
}

#include "../tasks/prefill.h"

/* ---- products ---- */

typedef float sums16 __attribute__((ext_vector_type(16)));
/* LDS with its address space spelled out: while a flat access is pending, the wave waits for all of its loads. */
typedef __attribute__((address_space(3))) char lds_byte;
typedef __attribute__((address_space(3))) words4 lds_words;
typedef __attribute__((address_space(3))) float lds_float;
typedef act_t acts4 __attribute__((ext_vector_type(4)));
typedef __attribute__((address_space(3))) floats4 lds_floats;
typedef __attribute__((address_space(1))) float device_float; /* likewise device memory */

/* Adds the product of BLOCK_K / 2 k's of 32 rows of `a` and 32 of `b`, of which a lane has eight: lane l of row l % 32. The lane
   receives column l % 32 (a row of b) of rows 8 (i / 4) + 4 (l / 32) + i % 4. half: 0, 1: see STEP_HALVES. */
#if defined(__gfx950__)
#define STEP_HALVES 1u
#else
#define STEP_HALVES 2u /* an instruction takes four of a lane's k's */
#endif
FLEET_DEVICE sums16 multiply_32(words4 a, words4 b, sums16 sum, const uint32_t half)
{
#if defined(__gfx950__)
    typedef __bf16 operand8 __attribute__((ext_vector_type(8)));
    FLEET_UNUSED(half);
    return __builtin_amdgcn_mfma_f32_32x32x16_bf16((operand8)a, (operand8)b, sum, 0, 0, 0);
#else
    typedef short operand8 __attribute__((ext_vector_type(8)));
    const operand8 x = (operand8)a, y = (operand8)b;
    if (half) return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(x.hi, y.hi, sum, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(x.lo, y.lo, sum, 0, 0, 0);
#endif
}

#define BLOCK_ROWS (PREFILL_WARPS * MATRIX) /* rows between a wave's blocks of 32 */
#define MAX_ROW_BLOCKS (PREFILL_TILE_ROWS / BLOCK_ROWS)
#define MAX_COLUMN_BLOCKS (PREFILL_COLUMNS / MATRIX)
#define MAX_WEIGHT_LOADS (PREFILL_COLUMNS / TILE_N / PREFILL_WARPS)
#define XS_AHEAD 3u
#define WEIGHTS_AHEAD 6u /* two of these steps are in LDS */
#define WEIGHTS_HELD (WEIGHTS_AHEAD - WEIGHT_STAGES)
typedef char the_steps_take_turns
    [STEPS_UNROLLED % WEIGHTS_HELD == 0 && STEPS_UNROLLED > XS_AHEAD &&WEIGHT_STAGES == 2 ? 1 : -1];

/* A wave's operands: of STEPS_UNROLLED steps the rows, of WEIGHTS_HELD its part of the weights, and of two all weights. */
typedef struct product_operands {
    words4 x[STEPS_UNROLLED][MAX_ROW_BLOCKS * 2];
    words4 held[WEIGHTS_HELD][MAX_WEIGHT_LOADS];
    words4 weights[WEIGHT_STAGES][MAX_COLUMN_BLOCKS * 2];
} product_operands;
/* Where they come from. Offsets in bytes, those of the lane. */
typedef struct product_source {
    const act_t *x;
    const bf16 *weights[MAX_WEIGHT_LOADS];
    lds_byte *lds;
    uint32_t x_bytes, steps;
    uint32_t copied, read; /* in a stage: what the lane copies, and reads */
} product_source;

/* Loads number i of the wave's rows of a step: block i / 2, VECTOR k's of each half of the wave, and 16 further ones. After the last
   step, that again. */
FLEET_DEVICE void load_x(product_operands *o, const product_source *from, uint32_t step,
                         const uint32_t slot, const uint32_t i)
{
    const uint32_t at = step < from->steps ? step : from->steps - 1;
    const act_t *x = from->x + (size_t)at * BLOCK_K * PREFILL_TILE_ROWS;
    o->x[slot][i] = load_words(
        x, from->x_bytes + (i / 2 * BLOCK_ROWS + i % 2 * 2 * PREFILL_TILE_ROWS) * VECTOR * 2);
}
FLEET_DEVICE void load_held(product_operands *o, const product_source *from, uint32_t step,
                            const uint32_t slot, const uint32_t i)
{
    const uint32_t at = step < from->steps ? step : from->steps - 1;
    o->held[slot][i] =
        load_words(from->weights[i] + (size_t)at * BLOCK_K * TILE_N, fleet_lane() * 16);
}
/* After the last step, zeros: the products of the steps that fill up the last PARTS_K k's. */
FLEET_DEVICE void store_weights(const product_source *from, words4 words, uint32_t step,
                                const uint32_t stage, const uint32_t i)
{
    const words4 zeros = {0, 0, 0, 0};
    *(lds_words *)(from->lds + stage * WEIGHT_STAGE + i * PREFILL_WARPS * BLOCK_BYTES +
                   from->copied) = step < from->steps ? words : zeros;
}
FLEET_DEVICE void read_weights(product_operands *o, const product_source *from,
                               const uint32_t stage, const uint32_t i)
{
    o->weights[stage][i] =
        *(const lds_words *)(from->lds + stage * WEIGHT_STAGE + i / 2 * 2 * BLOCK_BYTES +
                             i % 2 * BLOCK_BYTES / 2 + from->read);
}
/* The wave's accesses to LDS are complete, and then those of all. The compiler must know that they are: while an access of which
   it cannot tell that it is not to LDS may be pending, it waits for all loads. The empty statements keep accesses on their side. */
FLEET_DEVICE void exchange_weights(void)
{
    __asm__ volatile("" ::: "memory");
    __builtin_amdgcn_s_waitcnt(NO_LDS_PENDING);
    __builtin_amdgcn_s_barrier();
    __asm__ volatile("" ::: "memory");
}
#define NOTHING_PENDING 0x0070 /* s_waitcnt vmcnt(0) lgkmcnt(0) */

/* Multiplies a step, number `turn` of each STEPS_UNROLLED. Between its matrix instructions, which leave the wave time for others, it
   reads the weights of the next step from LDS, loads rows, and passes on and loads its part of weights: for these it has waited
   WEIGHTS_HELD - 1 steps. Loads return in the order of their issue, which scheduling barriers keep. */
FLEET_DEVICE void multiply_step(product_operands *o, const product_source *from, uint32_t step,
                                const uint32_t turn, sums16 (*sum)[MAX_COLUMN_BLOCKS],
                                const uint32_t row_blocks, const uint32_t column_blocks,
                                const uint32_t lanes_have_rows)
{
    const uint32_t reads = column_blocks * 2, xs = row_blocks * 2,
                   loads = ceil_div(reads, PREFILL_WARPS), others = reads + xs + 2 * loads;
    const uint32_t products = row_blocks * column_blocks * 2 * STEP_HALVES,
                   each = ceil_div(others, products);
    const uint32_t stage = turn % WEIGHT_STAGES, slot = (turn + WEIGHT_STAGES) % WEIGHTS_HELD;
    UNROLLED
    for (uint32_t m = 0; m < products; m++) {
        const uint32_t block = m % (row_blocks * column_blocks), r = block / column_blocks,
                       c = block % column_blocks, n = m / (row_blocks * column_blocks),
                       pair = n / STEP_HALVES;
        const words4 x = o->x[turn][r * 2 + pair], w = o->weights[stage][c * 2 + pair];
        sum[r][c] = lanes_have_rows ? multiply_32(w, x, sum[r][c], n % STEP_HALVES)
                                    : multiply_32(x, w, sum[r][c], n % STEP_HALVES);
        __builtin_amdgcn_sched_barrier(0);
        UNROLLED
        for (uint32_t i = m * each; i < (m + 1) * each && i < others; i++) {
            if (i < reads)
                read_weights(o, from, 1 - stage, i);
            else if (i < reads + xs)
                load_x(o, from, step + XS_AHEAD, (turn + XS_AHEAD) % STEPS_UNROLLED, i - reads);
            else if (i < reads + xs + loads)
                store_weights(from, o->held[slot][i - reads - xs], step + WEIGHT_STAGES, stage,
                              i - reads - xs);
            else
                load_held(o, from, step + WEIGHTS_AHEAD, slot, i - reads - xs - loads);
            __builtin_amdgcn_sched_barrier(0);
        }
    }
    exchange_weights();
    __builtin_amdgcn_sched_barrier(0);
}

/* The scale of the thread's row: 1 / root mean square. */
FLEET_DEVICE float prefill_scale(const task_args *task, uint32_t row, uint32_t rows)
{
    const uint32_t all = squares_of(task->d.hidden);
    float sum = 0;
    if (!task->rmsnorm || row >= rows) return 1;
    for (uint32_t i = 0; i < all; i += 32) {
        floats4 some[8];
        UNROLLED
        for (uint32_t n = 0; n < 8; n++) {
            const uint32_t at = i + n * 4;
            some[n] = load_floats(task->d.squares, (row * all + (at < all ? at : i)) * 4);
        }
        UNROLLED
        for (uint32_t n = 0; n < 8; n++)
            if (i + n * 4 < all) sum += (some[n][0] + some[n][1]) + (some[n][2] + some[n][3]);
    }
    return rms_scale(sum / (float)task->d.hidden + task->d.eps);
}

/* Stores a part of the product, [rows][columns]. A lane has a column of each block. is_whole, a constant: 1: all rows and columns of
   the tile exist. */
FLEET_DEVICE void store_part(const task_args *task, const sums16 (*sum)[MAX_COLUMN_BLOCKS],
                             const lds_float *scales, const prefill_item *item, uint32_t rows,
                             uint32_t columns, uint32_t parts, const uint32_t row_blocks,
                             const uint32_t column_blocks, const uint32_t is_whole)
{
    const uint32_t lane = own_lane() % MATRIX, four = own_lane() / MATRIX * 4;
    const uint32_t own_bytes = (four * columns + lane) * 4;
    UNROLLED
    for (uint32_t b = 0; b < row_blocks; b++) {
        UNROLLED
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t first = b * BLOCK_ROWS + own_warp() * MATRIX + i / 4 * 8 + i % 4;
            const uint32_t row = wave_uniform(item->row + first);
            const float scale = scales[first + four];
            float *of_row = is_exchanged(task)
                                ? part_of_rank(task, rows, parts, item->part, row)
                                : task->d.qkv + ((size_t)item->part * rows + row) * columns;
            __attribute__((address_space(1))) char *to =
                (__attribute__((address_space(1))) char *)(of_row + item->column);
            UNROLLED
            for (uint32_t c = 0; c < column_blocks; c++)
                if (is_whole || (row + four < rows && item->column + c * MATRIX + lane < columns))
                    *(device_float *)(to + own_bytes + c * MATRIX * 4) = sum[b][c][i] * scale;
        }
    }
}
/* Stores silu(gate) * up, the input of the next product. A lane has a row of each block, and of a tile of TILE_N columns four
   gates and their ups. */
FLEET_DEVICE void store_gated(const task_args *task, const sums16 (*sum)[MAX_COLUMN_BLOCKS],
                              const lds_float *scales, const prefill_item *item, uint32_t rows,
                              const uint32_t row_blocks, const uint32_t column_blocks)
{
    UNROLLED
    for (uint32_t b = 0; b < row_blocks; b++) {
        const uint32_t own = b * BLOCK_ROWS + own_warp() * MATRIX + own_lane() % MATRIX,
                       row = item->row + own;
        const float scale = scales[own];
        UNROLLED
        for (uint32_t t = 0; t < 2 * column_blocks; t++) {
            const uint32_t column = (item->column + t * TILE_N) / 2 + own_lane() / MATRIX * 4;
            acts4 gated;
            UNROLLED
            for (uint32_t j = 0; j < 4; j++) {
                const float gate = sum[b][t / 2][t % 2 * 8 + j] * scale,
                            up = sum[b][t / 2][t % 2 * 8 + 4 + j] * scale;
                gated[j] = act_of_float(gate * up * __builtin_amdgcn_rcpf(1 + fast_exp(-gate)));
            }
            if (row < rows && column < task->columns)
                *(__attribute__((address_space(1)))
                  acts4 *)(task->acts + prefill_at(row, column, task->columns, 1)) = gated;
        }
    }
}

/* The column of the product that is number c of those of a chiplet, `group`: it has the columns of its query heads, then those of
   its KV heads' keys and values; or of o and down a contiguous share. */
FLEET_DEVICE uint32_t column_of_group(const task_args *task, uint32_t group, uint32_t c)
{
    const decoder *d = &task->d;
    const uint32_t q = d->heads * d->head_dim, kv = d->kv_heads * d->head_dim,
                   own_q = q / task->share.groups, own_kv = kv / task->share.groups;
    if (task->product != PREFILL_QKV) return group * (task->shape.n / task->share.groups) + c;
    if (c < own_q) return group * own_q + c;
    if (c < own_q + own_kv) return q + group * own_kv + c - own_q;
    return q + kv + group * own_kv + c - own_q - own_kv;
}

/* What becomes of the sums of a tile: parts are stored as they are, gates meet their ups, and of
   logits the largest ones are kept, and what a server's requests may need. Lanes have columns of
   parts, and rows of the others. */
enum { STORES_PARTS, STORES_GATED, KEEPS_LOGITS };

/* Stores the logits of a row whose sequence draws, or whose logits are kept. column: the lane's
   first one. */
FLEET_DEVICE void keep_logits(const decoder *d, const sums16 *sum, float scale, uint32_t row,
                              uint32_t column, const uint32_t column_blocks)
{
    const int32_t sequence = d->prefill_rows[row].sequence;
    float *to;
    if (sequence < 0 || !chooses(d, (uint32_t)sequence, row) ||
        !stores_logits(d, (uint32_t)sequence))
        return;
    to = d->logits + logits_at(d, (uint32_t)sequence);
    UNROLLED
    for (uint32_t i = 0; i < 16 * column_blocks; i++) {
        const uint32_t c = column + i / 16 * MATRIX + i % 16 / 4 * 8 + i % 4;
        if (c < d->vocab) to[c] = sum[i / 16][i % 16] * scale;
    }
}
/* Keeps the largest logit of each row among the worker's columns; is_first: 1: of its first tile.
   The same lane has a row in all tiles. */
FLEET_DEVICE void keep_best(const decoder *d, const sums16 (*sum)[MAX_COLUMN_BLOCKS],
                            const lds_float *scales, const prefill_item *item, uint32_t rows,
                            uint32_t worker, uint32_t is_first, const uint32_t row_blocks,
                            const uint32_t column_blocks)
{
    const uint32_t column = item->column + own_lane() / MATRIX * 4;
    UNROLLED
    for (uint32_t b = 0; b < row_blocks; b++) {
        const uint32_t own = b * BLOCK_ROWS + own_warp() * MATRIX + own_lane() % MATRIX,
                       row = item->row + own, at = worker * PREFILL_TILE_ROWS + own;
        const float scale = scales[own];
        float best = -INFINITY, other;
        int32_t token = 0, its;
        UNROLLED
        for (uint32_t i = 0; i < 16 * column_blocks; i++) {
            const uint32_t c = column + i / 16 * MATRIX + i % 16 / 4 * 8 + i % 4;
            const float logit = nan_to_inf(sum[b][i / 16][i % 16] * scale);
            if (c < d->vocab && logit > best) best = logit, token = (int32_t)c;
        }
        other = shuffle_xor(best, MATRIX);
        its = (int32_t)word_of_float(shuffle_xor(float_of_word((uint32_t)token), MATRIX));
        if (is_better(other, its, best, token)) best = other, token = its;
        if (row >= rows) continue;
        if (d->logits) keep_logits(d, sum[b], scale, row, column, column_blocks);
        if (own_lane() >= MATRIX) continue;
        if (is_first || is_better(best, token, d->best[at], d->best_token[at]))
            d->best[at] = best, d->best_token[at] = token;
    }
}

/* row_blocks: of 32 rows that a wave has; column_blocks: of 32 columns; kind: STORES_PARTS or
   another one. All are constants. Blocks that do not exist are multiplied too; their sums are
   ignored. */
FLEET_DEVICE void prefill_product(const fleet_ctx *ctx, const task_args *task, uint32_t group,
                                  const prefill_items *t, uint32_t rows, const uint32_t row_blocks,
                                  const uint32_t column_blocks, const uint32_t kind)
{
    const uint32_t lane = own_lane(), wave = own_warp(), half = lane / MATRIX, own = lane % MATRIX;
    const uint32_t tiles = column_blocks * 2, loads = ceil_div(tiles, PREFILL_WARPS),
                   last_tile = task->shape.n / TILE_N - 1;
    const uint32_t columns =
        task->epilogue == EPILOGUE_RESIDUAL ? task->d.hidden : task->columns; /* of parts */
    lds_float *scales = (lds_float *)((lds_byte *)ctx->lds + SCALES_AT);
    for (uint32_t i = prefill_worker(ctx); i < t->items; i += prefill_workers(ctx)) {
        prefill_item item = prefill_item_of(task, t, i, column_blocks * MATRIX);
        product_source from;
        product_operands o;
        words4 first[WEIGHT_STAGES][MAX_WEIGHT_LOADS];
        sums16 sum[MAX_ROW_BLOCKS][MAX_COLUMN_BLOCKS];
        float scale;
        uint32_t step = 0;
        if (task->share.groups)
            item.column = wave_uniform(column_of_group(task, group, item.column));
        __builtin_amdgcn_s_waitcnt(NOTHING_PENDING);
        from.lds = (lds_byte *)ctx->lds;
        from.steps = wave_uniform((item.end - item.k) / BLOCK_K);
        from.x = task->x + (size_t)item.row * task->shape.k + (size_t)item.k * PREFILL_TILE_ROWS;
        from.x_bytes = (half * PREFILL_TILE_ROWS + wave * MATRIX + own) * VECTOR * 2;
        from.copied = wave * BLOCK_BYTES + lane * 16;
        from.read = own / TILE_N * BLOCK_BYTES + (half * TILE_N + own % TILE_N) * 16;
        UNROLLED
        for (uint32_t n = 0; n < loads; n++) {
            /* 96 columns: instead of a second tile two waves load their first one again, which hits the cache */
            const uint32_t mine =
                               wave + n * PREFILL_WARPS < tiles ? wave + n * PREFILL_WARPS : wave,
                           tile = wave_uniform(item.column / TILE_N + mine);
            from.weights[n] =
                panel_weights(task, tile < last_tile ? tile : last_tile) + (size_t)item.k * TILE_N;
        }
        scale = prefill_scale(task, item.row + ctx->thread, rows);
        UNROLLED
        for (uint32_t s = 0; s < WEIGHT_STAGES; s++) {
            UNROLLED
            for (uint32_t n = 0; n < loads; n++) {
                const uint32_t at = s < from.steps ? s : from.steps - 1;
                first[s][n] = load_words(from.weights[n] + at * BLOCK_K * TILE_N, lane * 16);
                __builtin_amdgcn_sched_barrier(0);
            }
        }
        UNROLLED
        for (uint32_t n = 0; n < XS_AHEAD * row_blocks * 2; n++) {
            load_x(&o, &from, n / (row_blocks * 2), n / (row_blocks * 2), n % (row_blocks * 2));
            __builtin_amdgcn_sched_barrier(0);
        }
        UNROLLED
        for (uint32_t n = 0; n < WEIGHTS_HELD * loads; n++) {
            const uint32_t s = WEIGHT_STAGES + n / loads;
            load_held(&o, &from, s, s % WEIGHTS_HELD, n % loads);
            __builtin_amdgcn_sched_barrier(0);
        }
        UNROLLED
        for (uint32_t n = 0; n < row_blocks * column_blocks; n++)
            sum[n / column_blocks][n % column_blocks] = (sums16)(0.0f);
        if (i != prefill_worker(ctx))
            fleet_barrier(ctx); /* the last item's scales have been read */
        scales[ctx->thread] = scale;
        UNROLLED
        for (uint32_t n = 0; n < WEIGHT_STAGES * loads; n++)
            store_weights(&from, first[n / loads][n % loads], n / loads, n / loads, n % loads);
        exchange_weights();
        UNROLLED
        for (uint32_t n = 0; n < tiles; n++) read_weights(&o, &from, 0, n);
        exchange_weights(); /* the first step stores to what was read */
        do {
            UNROLLED
            for (uint32_t u = 0; u < STEPS_UNROLLED; u++)
                multiply_step(&o, &from, step + u, u, sum, row_blocks, column_blocks,
                              kind != STORES_PARTS);
            step += STEPS_UNROLLED;
        } while (step < from.steps);
        if (kind == KEEPS_LOGITS)
            keep_best(&task->d, sum, scales, &item, rows, prefill_worker(ctx),
                      i == prefill_worker(ctx), row_blocks, column_blocks);
        else if (kind == STORES_GATED)
            store_gated(task, sum, scales, &item, rows, row_blocks, column_blocks);
        else if (item.row + row_blocks * BLOCK_ROWS <= rows &&
                 item.column + column_blocks * MATRIX <= columns)
            store_part(task, sum, scales, &item, rows, columns, t->parts, row_blocks, column_blocks,
                       1);
        else
            store_part(task, sum, scales, &item, rows, columns, t->parts, row_blocks, column_blocks,
                       0);
    }
}

/* Rows in one tile with those before them are multiplied with these, and their sums ignored. */
FLEET_TILE(prefill_linear, task_args)
{
    const prefill_step *step = prefill_step_of(&ctx, &args->d);
    const prefill_division *by = &step->division[args->product];
    const uint32_t rows = wave_uniform(step->rows), width = wave_uniform(by->width),
                   begin = wave_uniform(step->begin) / PREFILL_TILE_ROWS * PREFILL_TILE_ROWS,
                   is_small = rows - begin <= BLOCK_ROWS;
    const uint32_t group = (uint32_t)at[0];
    prefill_items t = prefill_items_of(args, by, begin, rows);
    if (args->share.groups) t.items /= args->share.groups;
    if (args->epilogue != EPILOGUE_SILU && is_small)
        prefill_product(&ctx, args, group, &t, rows, 1, 4, STORES_PARTS);
    else if (args->epilogue != EPILOGUE_SILU)
        prefill_product(&ctx, args, group, &t, rows, 2, 4, STORES_PARTS);
    else if (is_small && width == 64)
        prefill_product(&ctx, args, group, &t, rows, 1, 2, STORES_GATED);
    else if (is_small && width == 96)
        prefill_product(&ctx, args, group, &t, rows, 1, 3, STORES_GATED);
    else if (is_small)
        prefill_product(&ctx, args, group, &t, rows, 1, 4, STORES_GATED);
    else if (width == 64)
        prefill_product(&ctx, args, group, &t, rows, 2, 2, STORES_GATED);
    else if (width == 96)
        prefill_product(&ctx, args, group, &t, rows, 2, 3, STORES_GATED);
    else
        prefill_product(&ctx, args, group, &t, rows, 2, 4, STORES_GATED);
    return FLEET_OK;
}
FLEET_TILE(prefill_embed, task_args)
{
    FLEET_UNUSED(at);
    embed_rows(&ctx, args, 1);
    return FLEET_OK;
}
FLEET_TILE(prefill_add, task_args)
{
    const uint32_t columns = args->d.hidden / (args->share.groups ? args->share.groups : 1);
    add_parts(&ctx, args, args->share.groups ? (uint32_t)at[0] * columns : 0, columns, 1);
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

/* ---- queries, keys and values ---- */

/* A lane's part of a head: four elements of each half. LANES_PER_ROW lanes share a head. */
typedef struct head_fours {
    floats4 low, high;
} head_fours;
typedef char lanes_have_all_elements[LANES_PER_ROW * 4 >= MAX_HEAD_DIM / 2 ? 1 : -1];

/* The parts of a head's sums, added up in their order. stride: floats between parts. */
#define HEAD_PARTS 5u /* loaded at a time */
FLEET_DEVICE head_fours add_head(const float *from, uint32_t half, uint32_t parts, size_t stride)
{
    head_fours sum;
    sum.low = load_floats(from, 0), sum.high = load_floats(from + half, 0);
    ROLLED
    for (uint32_t p = 1; p < parts; p += HEAD_PARTS) {
        floats4 low[HEAD_PARTS], high[HEAD_PARTS];
        UNROLLED
        for (uint32_t n = 0; n < HEAD_PARTS; n++) {
            const float *next = from + (p + n < parts ? p + n : p) * stride;
            low[n] = load_floats(next, 0), high[n] = load_floats(next + half, 0);
        }
        UNROLLED
        for (uint32_t n = 0; n < HEAD_PARTS; n++)
            if (p + n < parts) sum.low += low[n], sum.high += high[n];
    }
    return sum;
}
FLEET_DEVICE void store_halves(kv_t *to, const float *values)
{
    kv_t some[4];
    for (uint32_t j = 0; j < 4; j++) some[j] = kv_of_float(values[j]);
    memcpy(to, some, sizeof some);
}

/* Applies norm and RoPE, LANES_PER_ROW lanes to a head. Queries replace themselves as scaled f16; keys and values go to their page. */
FLEET_TILE(prefill_heads, task_args)
{
    const decoder copy = args->d, *const d = &copy; /* not to be loaded again after each store */
    const float *const k_norm = args->k_norm, *const q_norm = args->q_norm;
    kv_t *const cache = args->cache;
    const prefill_step *step = prefill_step_of(&ctx, d);
    const uint32_t groups = args->share.groups ? args->share.groups : 1,
                   group = args->share.groups ? (uint32_t)at[0] : 0;
    const uint32_t q_heads = d->heads / groups, kv_heads = d->kv_heads / groups,
                   heads = q_heads + kv_heads, dim = d->head_dim, half = dim / 2;
    const uint32_t width = (d->heads + 2 * d->kv_heads) * dim, own = ctx.threads / LANES_PER_ROW,
                   lane = ctx.thread % LANES_PER_ROW * 4, is_there = lane < half,
                   j = is_there ? lane : 0;
    const uint32_t all = step->rows * heads, begin = step->begin * heads,
                   parts = step->division[PREFILL_QKV].parts;
    const size_t stride = (size_t)step->rows * width; /* between parts of the product */
    for (uint32_t i = begin + prefill_worker(&ctx) * own + ctx.thread / LANES_PER_ROW; i < all;
         i += prefill_workers(&ctx) * own) {
        const uint32_t r = i / heads, own_head = i - r * heads, is_query = own_head < q_heads,
                       head = is_query ? group * q_heads + own_head
                                       : d->heads + group * kv_heads + own_head - q_heads;
        const token_row *row = d->prefill_rows + step->first + r;
        float *from = d->qkv + (size_t)r * width + head * dim;
        const float *norm = (is_query ? q_norm : k_norm) + j,
                    *rope = d->rope + (size_t)(uint32_t)row->position * dim + 2 * j;
        const head_fours x = add_head(from + j, half, parts, stride);
        const floats4 norms[2] = {load_floats(norm, 0), load_floats(norm + half, 0)},
                      turns[2] = {load_floats(rope, 0), load_floats(rope + 4, 0)};
        float low[4], high[4], squares = 0, scale;
        for (uint32_t e = 0; e < 4; e++) squares += x.low[e] * x.low[e] + x.high[e] * x.high[e];
        scale = rms_scale(row_sum(is_there ? squares : 0) / (float)dim + d->eps);
        if (is_query) scale *= d->root;
        for (uint32_t e = 0; e < 4; e++) {
            const float a = x.low[e] * scale * norms[0][e], b = x.high[e] * scale * norms[1][e],
                        cosine = turns[e / 2][e % 2 * 2], sine = turns[e / 2][e % 2 * 2 + 1];
            low[e] = a * cosine - b * sine, high[e] = b * cosine + a * sine;
        }
        if (!is_there || row->sequence < 0) continue;
        if (is_query) {
            store_halves((kv_t *)(void *)from + j, low);
            store_halves((kv_t *)(void *)from + j + half, high);
        } else {
            kv_t *page = kv_page(d, cache, head - d->heads, row->page);
            const uint32_t at_row = (uint32_t)row->position % PAGE_TOKENS;
            const head_fours value = add_head(from + d->kv_heads * dim + j, half, parts, stride);
            store_halves(page + key_at(d, at_row, j), low);
            store_halves(page + key_at(d, at_row, j + half), high);
            for (uint32_t e = 0; e < 4; e++) {
                page[value_at(d, at_row, j + e)] = kv_of_float(value.low[e]);
                page[value_at(d, at_row, j + half + e)] = kv_of_float(value.high[e]);
            }
        }
    }
    return FLEET_OK;
}

/* ---- attention ---- */

#define FLASH_KEYS MATRIX /* of a wave at a time */
#define FLASH_PAGES (FLASH_KEYS / PAGE_TOKENS)
#define FLASH_VECTORS (MAX_HEAD_DIM / VECTOR / 2) /* vectors of a head that a lane has */
#define FLASH_ELEMENTS (MAX_HEAD_DIM / MATRIX)    /* blocks of 32 elements of a head */
typedef char all_waves_have_elements[FLASH_ELEMENTS <= PREFILL_WARPS ? 1 : -1];

/* Adds the product of 32 rows of `a` and 32 of `b`, of which a lane has four f16. */
FLEET_DEVICE sums16 multiply_halves(halves4 a, halves4 b, sums16 sum)
{
    return __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, sum, 0, 0, 0);
}

/* Of query lane % 32. sum: elements of the head, block by block, in the order of multiply_32. The denominator is that of the lane's
   keys. */
typedef struct flash_state {
    sums16 sum[FLASH_ELEMENTS];
    float row_max, denominator;
} flash_state;

/* A block of the wave's keys and values, and where a lane finds its parts of them: in bytes from the beginning of a page. Those
   beyond the head are loaded from its beginning: keys meet queries of 0, and their sums of values are not stored. */
typedef struct flash_operands {
    halves8 keys[FLASH_VECTORS];
    halves4 values[FLASH_ELEMENTS][4];
    uint32_t key_bytes[FLASH_VECTORS], value_bytes[FLASH_ELEMENTS][2];
} flash_operands;

FLEET_DEVICE void flash_locate(const decoder *d, flash_operands *o)
{
    const uint32_t dim = d->head_dim, half = own_lane() / MATRIX, own = own_lane() % MATRIX;
    UNROLLED
    for (uint32_t v = 0; v < FLASH_VECTORS; v++) {
        const uint32_t at = (2 * v + half) * VECTOR;
        o->key_bytes[v] = key_at(d, own % PAGE_TOKENS, at < dim ? at : 0) * 2;
    }
    UNROLLED
    for (uint32_t e = 0; e < FLASH_ELEMENTS; e++) {
        const uint32_t at = e * MATRIX + own;
        UNROLLED
        for (uint32_t n = 0; n < 2; n++)
            o->value_bytes[e][n] = value_at(d, n * 8 + half * 4, at < dim ? at : 0) * 2;
    }
}
FLEET_DEVICE void load_keys(flash_operands *o, const kv_t *const *pages)
{
    /* Loaded before the choice between them: that of an address would be an index, which needs scratch memory. */
    const kv_t *const low = pages[0];
    const kv_t *const high = pages[1];
    UNROLLED
    for (uint32_t v = 0; v < FLASH_VECTORS; v++)
        o->keys[v] =
            (halves8)load_words(own_lane() % MATRIX < PAGE_TOKENS ? low : high, o->key_bytes[v]);
    __builtin_amdgcn_sched_barrier(0);
}
FLEET_DEVICE void load_values(flash_operands *o, const kv_t *const *pages)
{
    UNROLLED
    for (uint32_t e = 0; e < FLASH_ELEMENTS; e++) {
        UNROLLED
        for (uint32_t n = 0; n < 4; n++) {
            const __attribute__((address_space(1))) char *page =
                (const __attribute__((address_space(1))) char *)pages[n / 2];
            o->values[e][n] = *(const __attribute__((address_space(1)))
                                halves4 *)(page + o->value_bytes[e][n % 2]);
        }
    }
    __builtin_amdgcn_sched_barrier(0);
}

/* The pages of the wave's blocks, of which it has every PREFILL_WARPS-th. Each lane holds the number of a page of LISTED_BLOCKS
   blocks. */
#define LISTED_BLOCKS (64 / FLASH_PAGES)
typedef struct flash_pages {
    const uint32_t *numbers; /* of the sequence */
    uint32_t last, listed;
} flash_pages;
/* Those of the wave's block i, one after the other. In place of pages after the last one that is taken again: its weights
   are zeros. */
FLEET_DEVICE void flash_pages_of(const decoder *d, kv_t *layer, uint32_t head, flash_pages *list,
                                 uint32_t i, const kv_t **pages)
{
    if (i % LISTED_BLOCKS == 0) {
        const uint32_t block = i + own_lane() / FLASH_PAGES,
                       page = (block * PREFILL_WARPS + own_warp()) * FLASH_PAGES +
                              own_lane() % FLASH_PAGES;
        list->listed = load_word(list->numbers, (page < list->last ? page : list->last) * 4);
    }
    UNROLLED
    for (uint32_t p = 0; p < FLASH_PAGES; p++)
        pages[p] = kv_page(d, layer, head,
                           (uint32_t)__builtin_amdgcn_readlane(
                               (int)list->listed, (int)(i % LISTED_BLOCKS * FLASH_PAGES + p)));
}

/* A score may exceed the maximum that is subtracted by so much before the maximum is raised, and the sums are rescaled: most
   blocks then rescale nothing. Weights of up to e to this power fit in f16. */
#define FLASH_SLACK 8.0f

/* The wave's keys of a block: every PREFILL_WARPS-th FLASH_KEYS, of which the lane's query sees `visible`. Lane l has the scores of keys 8
   (i / 4) + 4 (l / 32) + i % 4, which is also the order in which the product with the values takes their weights. Keys are
   loaded once those before have met the queries, values once those before are added. */
FLEET_DEVICE void flash_keys(const task_args *task, const prefill_block *b, uint32_t head,
                             uint32_t visible, const halves8 *query, flash_state *to)
{
    const decoder *d = &task->d;
    const uint32_t dim = d->head_dim, half = own_lane() / MATRIX;
    const uint32_t end = wave_uniform(b->position + b->rows);
    const kv_t *pages[FLASH_PAGES];
    flash_operands o;
    flash_pages list;
    uint32_t first = own_warp() * FLASH_KEYS;
    list.numbers = pages_of(d, b->table_row), list.last = (end - 1) / PAGE_TOKENS;
    flash_locate(d, &o);
    flash_pages_of(d, task->cache, head, &list, 0, pages);
    load_keys(&o, pages);
    load_values(&o, pages);
    ROLLED
    for (uint32_t i = 1; first < end; i++, first += PREFILL_WARPS * FLASH_KEYS) {
        sums16 score = (sums16)(0.0f);
        float row_max = to->row_max, base, rescale, sum = 0;
        uint32_t must_rescale;
        flash_pages_of(d, task->cache, head, &list, i, pages);
        UNROLLED
        for (uint32_t v = 0; v < FLASH_VECTORS; v++) {
            score = multiply_halves(o.keys[v].lo, query[v].lo, score);
            score = multiply_halves(o.keys[v].hi, query[v].hi, score);
        }
        __builtin_amdgcn_sched_barrier(0);
        load_keys(&o, pages);
        UNROLLED
        for (uint32_t n = 0; n < 16; n++) {
            if (first + n / 4 * 8 + half * 4 + n % 4 >= visible) score[n] = -INFINITY;
            row_max = fmaxf(row_max, score[n]);
        }
        row_max = fmaxf(row_max, shuffle_xor(row_max, MATRIX));
        if (row_max <= to->row_max + FLASH_SLACK) row_max = to->row_max;
        base = row_max == -INFINITY ? 0 : row_max; /* weights are 0 then, or not a number */
        rescale = row_max == -INFINITY ? 1 : fast_exp(to->row_max - base);
        UNROLLED
        for (uint32_t n = 0; n < 16; n++) {
            score[n] = fast_exp(score[n] - base);
            sum += score[n];
        }
        to->denominator = to->denominator * rescale + sum, to->row_max = row_max;
        must_rescale = __builtin_amdgcn_ballot_w64(rescale != 1) != 0;
        UNROLLED
        for (uint32_t e = 0; e < FLASH_ELEMENTS; e++) {
            if (e * MATRIX >= dim) break;
            if (must_rescale) to->sum[e] *= rescale;
            UNROLLED
            for (uint32_t n = 0; n < 4; n++) {
                halves4 weights;
                UNROLLED
                for (uint32_t j = 0; j < 4; j++) weights[j] = (_Float16)score[n * 4 + j];
                to->sum[e] = multiply_halves(o.values[e][n], weights, to->sum[e]);
            }
        }
        __builtin_amdgcn_sched_barrier(0);
        load_values(&o, pages);
    }
    to->denominator += shuffle_xor(to->denominator, MATRIX);
}

/* Where wave w leaves its sums of elements e for wave e, in vectors of four. */
FLEET_DEVICE uint32_t flash_slot(uint32_t e, uint32_t w)
{
    return (e * (PREFILL_WARPS - 1) + (w < e ? w : w - 1)) * 256;
}
FLEET_DEVICE floats4 flash_four(const flash_state *a, const uint32_t e, const uint32_t n,
                                float rescale)
{
    floats4 some;
    for (uint32_t j = 0; j < 4; j++) some[j] = a->sum[e][n * 4 + j] * rescale;
    return some;
}
/* Adds up the results of the waves, wave e the e-th 32 elements, and stores them. row: the lane's query's; column: its first one. */
FLEET_DEVICE void flash_store(const fleet_ctx *ctx, const decoder *d, const flash_state *a,
                              uint32_t row, uint32_t column, uint32_t is_there)
{
    const uint32_t lane = own_lane(), wave = own_warp(), query = lane % MATRIX, dim = d->head_dim;
    lds_float *sums = (lds_float *)ctx->lds, *row_maxs = sums + FLASH_SUMS,
              *denominators = row_maxs + PREFILL_WARPS * PREFILL_QUERIES;
    float row_max = -INFINITY, denominator = 0, rescale;
    if (lane < MATRIX)
        row_maxs[wave * MATRIX + query] = a->row_max,
                                 denominators[wave * MATRIX + query] = a->denominator;
    fleet_barrier(ctx);
    UNROLLED
    for (uint32_t w = 0; w < PREFILL_WARPS; w++)
        row_max = fmaxf(row_max, row_maxs[w * MATRIX + query]);
    UNROLLED
    for (uint32_t w = 0; w < PREFILL_WARPS; w++)
        denominator +=
            denominators[w * MATRIX + query] * fast_exp(row_maxs[w * MATRIX + query] - row_max);
    rescale = fast_exp(a->row_max - row_max) / denominator;
    UNROLLED
    for (uint32_t e = 0; e < FLASH_ELEMENTS; e++) {
        lds_floats *to = (lds_floats *)sums + flash_slot(e, wave);
        if (e == wave || e * MATRIX >= dim) continue;
        UNROLLED
        for (uint32_t n = 0; n < 4; n++) to[n * 64 + lane] = flash_four(a, e, n, rescale);
    }
    fleet_barrier(ctx); /* the sums of all waves are in LDS */
    UNROLLED
    for (uint32_t e = 0; e < FLASH_ELEMENTS; e++) {
        if (e != wave || e * MATRIX >= dim) continue;
        UNROLLED
        for (uint32_t n = 0; n < 4; n++) {
            const uint32_t at = e * MATRIX + n * 8 + lane / MATRIX * 4;
            const floats4 own = flash_four(a, e, n, rescale);
            floats4 sum = {0, 0, 0, 0};
            vec4 all;
            UNROLLED
            for (uint32_t w = 0; w < PREFILL_WARPS; w++)
                sum += w == e ? own : ((lds_floats *)sums)[flash_slot(e, w) + n * 64 + lane];
            for (uint32_t j = 0; j < 4; j++) all.value[j] = sum[j];
            if (is_there && at < dim)
                store_acts(d->attended + prefill_at(row, column + at, d->heads * dim, 1), 0, all);
        }
    }
}

/* Items are a block of rows and a KV head, the blocks with the most keys first. */
FLEET_TILE(prefill_attend, task_args)
{
    const decoder *d = &args->d;
    const prefill_step *step = prefill_step_of(&ctx, d);
    const prefill_block *blocks = d->prefill_blocks + step->first_block;
    const uint32_t dim = d->head_dim, width = (d->heads + 2 * d->kv_heads) * dim,
                   kv_heads = d->kv_heads / (args->share.groups ? args->share.groups : 1),
                   first = args->share.groups ? (uint32_t)at[0] * kv_heads : 0,
                   items = step->blocks * kv_heads, half = own_lane() / MATRIX;
    for (uint32_t i = prefill_worker(&ctx); i < items; i += prefill_workers(&ctx)) {
        const prefill_block b = blocks[i / kv_heads];
        const uint32_t kv_head = first + i % kv_heads, query = own_lane() % MATRIX,
                       r = query / d->group, head = kv_head * d->group + query - r * d->group,
                       is_there = r < b.rows;
        const float *from = d->qkv + (size_t)(b.row + (is_there ? r : 0)) * width + head * dim;
        halves8 queries[FLASH_VECTORS];
        flash_state a;
        a.row_max = -INFINITY, a.denominator = 0;
        UNROLLED
        for (uint32_t e = 0; e < FLASH_ELEMENTS; e++) a.sum[e] = (sums16)(0.0f);
        UNROLLED
        for (uint32_t v = 0; v < FLASH_VECTORS; v++) {
            const uint32_t first = (2 * v + half) * VECTOR;
            const words4 zeros = {0, 0, 0, 0};
            queries[v] = (halves8)zeros;
            if (first < dim)
                queries[v] = (halves8)load_words((const act_t *)(const void *)from, first * 2);
        }
        if (i != prefill_worker(&ctx)) fleet_barrier(&ctx); /* the last item's sums were read */
        flash_keys(args, &b, kv_head, b.position + (is_there ? r : 0) + 1, queries, &a);
        flash_store(&ctx, d, &a, b.row + r, head * dim, is_there);
    }
    return FLEET_OK;
}

/* ---- weights ahead ---- */

/* Memory limits the products, and is idle between them. So while the first two waves signal and poll, the others load weights of the
   products that follow (prompt_share), which stay in the memory-side cache. A wave has one piece in flight, a word of each
   of its lines: more would delay the polls. More than TOUCHED_BYTES a worker would arrive after the event. */
#define TOUCHED_LINE 128u
#define TOUCHED_PIECE (64 * TOUCHED_LINE)
#define TOUCHED_BYTES 65536u
#define TOUCHING_WAVES (PREFILL_WARPS - 2)
FLEET_DEVICE void touch_ahead(const fleet_ctx *ctx, const task_args *args, uint32_t group)
{
    const uint32_t groups = args->share.groups ? args->share.groups : 1;
    const uint32_t worker = prefill_worker(ctx) * groups + group,
                   workers = prefill_workers(ctx) * groups;
    if (own_warp() < PREFILL_WARPS - TOUCHING_WAVES) return;
    ROLLED
    for (uint32_t piece = own_warp() - (PREFILL_WARPS - TOUCHING_WAVES);
         piece < TOUCHED_BYTES / TOUCHED_PIECE; piece += TOUCHING_WAVES) {
        const uint64_t at = (uint64_t)(piece * workers + worker) * TOUCHED_PIECE;
        uint32_t word;
        if (at + TOUCHED_PIECE > args->share.ahead_bytes) return;
        word = load_word((const char *)args->share.ahead + at, own_lane() * TOUCHED_LINE);
        __asm__ volatile("" ::"v"(word)); /* the load is not dead, and has returned */
    }
}
FLEET_PREFETCH(prefill_linear, task_args)
{
    touch_ahead(&ctx, args, (uint32_t)at[0]);
}
FLEET_PREFETCH(prefill_attend, task_args)
{
    touch_ahead(&ctx, args, (uint32_t)at[0]);
}
FLEET_PREFETCH(prefill_heads, task_args)
{
    touch_ahead(&ctx, args, (uint32_t)at[0]);
}
FLEET_PREFETCH(prefill_add, task_args)
{
    touch_ahead(&ctx, args, (uint32_t)at[0]);
}

#endif /* QWEN3_AMD_PREFILL_H */
