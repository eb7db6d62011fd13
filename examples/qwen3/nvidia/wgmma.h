/* nvidia/wgmma.h: large-M products on NVIDIA GPUs with wgmma (compute capability 9.0a), which reads both operands from LDS: the
   weights from the pipeline's ring, as they arrived, and the rows from stages that bulk copies fill.

   With many rows, bringing the rows from the L2 to every SM is the bottleneck. So a worker computes a panel of
   LARGE_M_PANEL_TILES tiles, whose sums four warps keep in registers: the rows come once for all of them. If there are fewer
   panels than workers, several workers share a panel and split its k's. Each of them reduces the sums of some tiles; the
   others store their partial sums of these tiles to the split-K workspace, as flagged data: no counter, and no store has
   to complete before another.

   The time before the first row is copied and after the last product is lost: the ring is full, and no weights arrive.

   Warp roles: four consumers multiply, a producer copies rows, and a norm warp computes the rows' scales. */
#ifndef QWEN3_NVIDIA_WGMMA_H
#define QWEN3_NVIDIA_WGMMA_H

#include "../tasks/linear.h"

#if HAS_LARGE_M
/* ---- how work is divided ---- */

/* A worker's share of a layer: its panels, and of each the chunks of k's from `chunk` to
   `chunk_end`. */
typedef struct large_m_share {
    uint32_t panel, panel_end, panel_step;
    /* Number of this split of k, and splits. The workers that share a panel are a group. */
    uint32_t k_split, k_splits, group;
    uint32_t chunk, chunk_end;
} large_m_share;

FLEET_DEVICE large_m_share large_m_share_of(const task_args *task, const fleet_ctx *ctx)
{
    const panel_range range = panels_of_worker(task, ctx);
    const uint32_t workers = ctx->tile_num, chunks = ceil_div(task->shape.k, CHUNK_K);
    const uint32_t groups = range.end - range.begin;
    large_m_share s;
    s.k_splits = groups && groups <= workers ? fast_quotient(workers, groups) : 1;
    if (s.k_splits > chunks) s.k_splits = chunks;
    if (s.k_splits > 1) {
        const uint32_t place = range.first - range.begin;
        s.group = fast_quotient(place, s.k_splits), s.k_split = place - s.group * s.k_splits;
        s.panel = range.begin + (s.group < groups ? s.group : groups);
        s.panel_end = s.panel + (s.group < groups), s.panel_step = 1;
        s.chunk = fast_quotient(chunks * s.k_split, s.k_splits);
        s.chunk_end = fast_quotient(chunks * (s.k_split + 1), s.k_splits);
    } else {
        s.group = s.k_split = 0;
        s.panel = range.first, s.panel_end = range.end, s.panel_step = range.step;
        s.chunk = 0, s.chunk_end = chunks;
    }
    return s;
}
/* Tiles of a panel; the last one may have fewer. */
FLEET_DEVICE uint32_t panel_tiles_at(const task_args *task, uint32_t panel)
{
    const uint32_t panel_tiles = task->shape.tile_n / TILE_N,
                   left = task->shape.n / TILE_N - panel * panel_tiles;
    return left < panel_tiles ? left : panel_tiles;
}

/* Issue interval of a task's first stages. They arrive while workers still reduce the sums of the
   previous task, and each stage in flight delays those reductions in the L2. They have time, so
   they are issued slowly. */
#if !defined(LARGE_M_FIRST_INTERVAL)
#define LARGE_M_FIRST_INTERVAL 500u /* of the chunks that fit in the ring, after the arguments */
#endif

/* Every chunk takes all of its stages, the last of which may be empty, and the ring must not wrap
   inside of a chunk: stages of padding in front align the first one. */
FLEET_PRODUCER(linear_large_m, task_args)
{
    const large_m_share s = large_m_share_of(args, &ctx);
    FLEET_UNUSED(at);
    fleet_producer_throttle(producer, LARGE_M_INTERVAL);
    fleet_producer_copy(producer, args, ARGS_BYTES);
    fleet_producer_align(producer, CHUNK_STAGES, args);
    for (uint32_t panel = s.panel; panel < s.panel_end; panel += s.panel_step) {
        const uint32_t bytes = panel_tiles_at(args, panel) * TILE_N * CHUNK_K * 2;
        const char *from = (const char *)(const void *)panel_weights(args, panel);
        for (uint32_t chunk = s.chunk; chunk < s.chunk_end; chunk++) {
            const uint32_t first =
                panel == s.panel && chunk - s.chunk < DECODER_STAGES / CHUNK_STAGES - 1;
            fleet_producer_throttle(producer, first ? LARGE_M_FIRST_INTERVAL : LARGE_M_INTERVAL);
            fleet_producer_copy(producer, from + (size_t)chunk * bytes, bytes);
            fleet_producer_throttle(producer, 0); /* padding takes no time of the memory */
            for (uint32_t i = ceil_div(bytes, STAGE_BYTES); i < CHUNK_STAGES; i++)
                fleet_producer_copy(producer, args, 16);
        }
    }
}
/* Skips the padding. The norm warp releases it, since it has time and the consumers need not wait. */
FLEET_DEVICE void align_to_chunk(weight_source *source, uint32_t wave)
{
    const uint32_t slot = fleet_stage_index(&source->weights) % CHUNK_STAGES;
    const uint32_t n = slot ? CHUNK_STAGES - slot : 0;
    if (source->status || !n) return;
    if (wave != NORM_WARP)
        fleet_stages_skip(&source->weights, n);
    else if (fleet_stages_acquire(&source->weights, n))
        fleet_stages_release(&source->weights, n, 1);
    else
        source->status = fleet_consumer_status(&source->weights);
}

/* ---- rows ---- */

/* LDS of a large-M task. First the row stages take the place of partials and sums together. After the product:

                    panel of one worker               panel shared, reduced tiles few
       partials     sums, as many tiles as fit        prefetched residual
       sums         (continued)                       sums */
#define PREFETCHED_TILES 2u /* that fit in place of partials */
FLEET_DEVICE linear_lds large_m_lds_of(const fleet_ctx *ctx, const task_args *task,
                                       const large_m_share *s, uint32_t rows)
{
    linear_lds l = linear_lds_of(ctx, reciprocal_of(rows));
    const uint32_t is_prefetched = task->epilogue == EPILOGUE_RESIDUAL &&
                                   s->k_splits >= LARGE_M_PANEL_TILES / PREFETCHED_TILES;
    l.prefetched = l.partials, l.prefetched_stride = PREFETCHED_TILES * TILE_N;
    l.prefetched_rows = is_prefetched ? MAX_ROWS : 0;
    if (!is_prefetched) l.sums = l.partials;
    return l;
}
typedef char
    there_is_room[(MAX_ROWS + 1) * PREFETCHED_TILES * TILE_N <= PARTIAL_FLOATS &&
                          PREFETCHED_TILES * MAX_ROWS * TILE_N <= SUM_FLOATS &&
                          LARGE_M_PANEL_TILES / 2 * MAX_ROWS * TILE_N <= PARTIAL_FLOATS + SUM_FLOATS
                      ? 1
                      : -1];
/* Tiles of an unshared panel whose epilogue runs at a time. */
FLEET_DEVICE uint32_t max_epilogue_tiles(uint32_t rows)
{
    const uint32_t room = fast_quotient(PARTIAL_FLOATS + SUM_FLOATS, rows * TILE_N);
    return room < LARGE_M_PANEL_TILES ? room : LARGE_M_PANEL_TILES;
}

/* A row stage is a unit of ROW_BLOCKS blocks, as one wgmma_m64n192k64 reads it; with two terms,
   units of high and low terms alternate. The row stages are interleaved: groups of eight rows of
   one stage are ROW_GROUP_STRIDE apart. wgmma multiplies MAX_ROWS rows in any case. Missing groups
   are zeros, since multiplying these takes less power, and the power cap limits the clock. */
#define ROW_BLOCKS (WGMMA_K / BLOCK_K)
typedef char a_unit_is_multiplied_at_once[ROW_BLOCKS * BLOCK_K == 64 && ATOM * 2 == 512 ? 1 : -1];
#define ROW_GROUP_BYTES (ROW_BLOCKS * ATOM * 2)
#define ROW_BYTES ((PARTIAL_FLOATS + SUM_FLOATS) * 4) /* of all stages */
#define ROW_STAGES (ROW_BYTES / (MAX_ROWS / VECTOR * ROW_GROUP_BYTES))
#define ROW_GROUP_STRIDE (ROW_STAGES * ROW_GROUP_BYTES)
typedef struct row_stages {
    const act_t *x;
    uint32_t low, terms;    /* terms: number of terms less 1 */
    uint32_t groups, width; /* width: blocks of x */
    uint32_t first, end;    /* blocks of the share */
    uint32_t lds;           /* of the first stage */
    uint32_t mbars;         /* in LDS, two for each stage */
    uint32_t buffer, use;   /* of the next unit */
} row_stages;

FLEET_DEVICE row_stages row_stages_of(const operand *in, const large_m_share *s,
                                      const linear_lds *l)
{
    row_stages u;
    u.x = in->x, u.low = in->low, u.terms = warp_uniform(in->low != 0);
    u.groups = ceil_div(in->rows, VECTOR), u.width = warp_uniform(in->k / BLOCK_K);
    u.first = warp_uniform(s->chunk * CHUNK_BLOCKS),
    u.end = warp_uniform(s->chunk_end * CHUNK_BLOCKS);
    if (u.end > u.width) u.end = u.width;
    u.lds = lds_address(l->partials), u.mbars = lds_address(l->extra);
    u.buffer = u.use = 0;
    return u;
}
FLEET_DEVICE uint32_t row_stage(const row_stages *u)
{
    return u->lds + u->buffer * ROW_GROUP_BYTES;
}
/* The barriers of this use of the stage: its copies have arrived; all consumers have read it. */
FLEET_DEVICE uint32_t row_full(const row_stages *u)
{
    return u->mbars + u->buffer * 16;
}
FLEET_DEVICE uint32_t row_free(const row_stages *u)
{
    return u->mbars + u->buffer * 16 + 8;
}
FLEET_DEVICE void next_row_stage(row_stages *u)
{
    if (++u->buffer == ROW_STAGES) u->buffer = 0, u->use++;
}

/* By one warp, once for a task; before a barrier of the workgroup, and close_rows after one. */
FLEET_DEVICE void open_rows(uint32_t mbars)
{
    const uint32_t i = fleet_lane();
    if (i < ROW_STAGES) mbar_init(mbars + i * 16, 1), mbar_init(mbars + i * 16 + 8, CONSUMER_WARPS);
    mbar_fence_init();
}
FLEET_DEVICE void close_rows(uint32_t mbars)
{
    if (fleet_lane() < 2 * ROW_STAGES) mbar_inval(mbars + fleet_lane() * 8);
}

/* The producer copies all units of the share: a group of eight rows in each lane. */
FLEET_DEVICE void produce_rows(row_stages *u)
{
    const uint32_t lane = fleet_lane();
    ROLLED
    for (uint32_t block = u->first; block < u->end; block += ROW_BLOCKS) {
        const uint32_t left = u->end - block, blocks = left < ROW_BLOCKS ? left : ROW_BLOCKS;
        ROLLED
        for (uint32_t term = 0; term <= u->terms; term++, next_row_stage(u)) {
            /* Pair: the consumers' mbar_arrive_if after they have read the stage. */
            if (u->use) mbar_wait(row_free(u), u->use - 1);
            if (lane == 0) mbar_expect(row_full(u), u->groups * ROW_GROUP_BYTES);
            fleet_wave_barrier();
            if (lane < u->groups) {
                const act_t *from =
                    u->x + ((size_t)lane * u->width + block) * ATOM + (term ? u->low : 0);
                const uint32_t to = row_stage(u) + lane * ROW_GROUP_STRIDE;
                copy_bulk(to, from, blocks * ATOM * 2, row_full(u));
                /* the weights after the last block are zeros; their partners must be finite */
                if (blocks < ROW_BLOCKS) copy_bulk(to + ATOM * 2, from, ATOM * 2, row_full(u));
            }
        }
    }
}

/* The consumers fill the missing groups of all stages with zeros. */
FLEET_DEVICE void zero_missing_rows(const row_stages *u, const linear_lds *l, uint32_t thread)
{
    char *const rows = (char *)l->partials;
    const fleet_quad zeros = {{0, 0, 0, 0}};
    for (uint32_t at = u->groups * ROW_GROUP_STRIDE + thread * 16; at < ROW_BYTES;
         at += CONSUMER_THREADS * 16)
        *(fleet_quad *)(void *)(rows + at) = zeros;
    /* Publishes the zeros to the consumers' wgmma. Pair: their barrier in consume_chunks, before
       the first one. */
    fence_proxy_async();
}

/* ---- products ---- */

/* A stage is released in MAX_WAVES shares. The four consumers release them all, two of them two
   shares each. Two calls, since divisions by constants are quick. */
typedef char shares_are_whole[MAX_WAVES == CONSUMER_WARPS + 2 && MAX_WAVES % 2 == 0 ? 1 : -1];
FLEET_DEVICE void release_chunk(const weight_source *source, uint32_t wave)
{
    if (wave < 2)
        fleet_stages_release(&source->weights, CHUNK_STAGES, MAX_WAVES / 2);
    else
        fleet_stages_release(&source->weights, CHUNK_STAGES, MAX_WAVES);
}

/* The consumers multiply a panel of `tiles` tiles. The products of one unit run while those of the
   previous one are awaited. The warps agree on whether a stage is missing, since wgmma is an
   instruction of all four. If it is, they go on: the producer waits for its row stages to be
   released; the products read arbitrary LDS and their sums are ignored. Missing tiles of the last
   panel are computed too; their accumulators are ignored. No divergent branch may stand between a
   wgmma and its wait, or ptxas would serialise them. */
FLEET_DEVICE void consume_chunks(weight_source *source, row_stages *u, uint32_t wave, float *sum,
                                 uint32_t tiles)
{
    const uint32_t block_bytes = warp_uniform(tiles * TILE_N * BLOCK_K * 2);
    ROLLED
    for (uint32_t chunk = u->first; chunk < u->end; chunk += CHUNK_BLOCKS) {
        const uint32_t left = u->end - chunk, blocks = left < CHUNK_BLOCKS ? left : CHUNK_BLOCKS;
        const void *first = NULL;
        uint32_t weights;  /* their address in LDS */
        uint32_t used = 0; /* the barrier of the row stage that is being read */
        if (!source->status) {
            first = fleet_stages_acquire(&source->weights, CHUNK_STAGES);
            if (!first) source->status = fleet_consumer_status(&source->weights);
        }
        if (any_consumer(!first) && !source->status) source->status = FLEET_ERROR_ABORTED;
        weights = warp_uniform(source->status ? u->lds : lds_address(first));
        ROLLED
        for (uint32_t at = 0; at < blocks; at += ROW_BLOCKS) {
            ROLLED
            for (uint32_t term = 0; term <= u->terms; term++, next_row_stage(u)) {
                /* Pair: the copies of the unit, which complete it. */
                mbar_wait(row_full(u), u->use);
                wgmma_fence();
                wgmma_m64n192k64(sum, wgmma_desc_of(row_stage(u), ROW_GROUP_STRIDE),
                                 wgmma_desc_of(weights + at * block_bytes, ROW_GROUP_BYTES));
                wgmma_commit();
                wgmma_wait_but_last();
                /* To the producer: this warp has read the previous stage. Pair: produce_rows. */
                mbar_arrive_if(used, used != 0);
                used = row_free(u);
            }
        }
        wgmma_wait_all();
        mbar_arrive_if(used, 1);
        if (!source->status) release_chunk(source, wave);
    }
}

/* ---- sums ---- */

/* Position of a lane's sum number i of a tile, in row group `group` of 16 rows: a lane has two
   rows, eight apart, and of each two neighbours of the first eight columns and two of the last
   eight. */
FLEET_DEVICE uint32_t sum_row(uint32_t group, uint32_t i)
{
    return group * 16 + fleet_lane() / 4 + i / 2 % 2 * 8;
}
FLEET_DEVICE uint32_t sum_column(uint32_t i)
{
    return i / 4 * 8 + fleet_lane() % 4 * 2 + i % 2;
}

/* Moves a lane's sums of a tile to [rows][TILE_N] in LDS, and back. */
FLEET_DEVICE void store_sums(const float *sum, float *to, uint32_t group, uint32_t rows)
{
    UNROLLED
    for (uint32_t i = 0; i < TILE_SUMS; i += 2) {
        const uint32_t r = sum_row(group, i);
        if (r < rows) store_vec2(to + r * TILE_N + sum_column(i), sum[i], sum[i + 1]);
    }
}

FLEET_DEVICE void load_sums(float *sum, const float *from, uint32_t group, uint32_t rows)
{
    UNROLLED
    for (uint32_t i = 0; i < TILE_SUMS; i += 2) {
        const uint32_t r = sum_row(group, i);
        vec2 both = {{0, 0}};
        if (r < rows) both = load_vec2(from + r * TILE_N + sum_column(i));
        sum[i] = both.value[0], sum[i + 1] = both.value[1];
    }
}
/* The consumers store `tiles` tiles, from number `first` on, to l->sums. */
FLEET_DEVICE void store_tiles(const linear_lds *l, const float *sum, uint32_t first, uint32_t tiles,
                              uint32_t wave, uint32_t rows)
{
    UNROLLED
    for (uint32_t i = 0; i < LARGE_M_PANEL_TILES; i++)
        if (i >= first && i < first + tiles && wave < CONSUMER_WARPS)
            store_sums(sum + i * TILE_SUMS, l->sums + (i - first) * rows * TILE_N, wave, rows);
}

/* The workspace of split k_split for this lane, a tile and a row group; `tile` counts from the
   panel's first one. It is not overwritten before all readers have ended, since the next product
   waits for this one. */
FLEET_DEVICE fleet_quad *split_k_quads(const task_args *task, const fleet_ctx *ctx,
                                       const large_m_share *s, uint32_t k_split, uint32_t tile,
                                       uint32_t group)
{
    const uint32_t worker = ctx->slice * task->d.workers + s->group * s->k_splits + k_split;
    return task->d.split_k + (size_t)worker * SPLIT_K_QUADS + tile * TILE_QUADS * CONSUMER_THREADS +
           group * 32 + fleet_lane();
}

/* Flagged data (edge 22). Four sums in a 16-byte word, each cut to 26 bits; the other six bits of
   each hold a part of the task's tag, 24 bits in all. These repeat after 2^23 tasks, but every
   layer overwrites the words that it uses. */
#define TAG_BITS 6u
#define TAG_MASK ((1u << TAG_BITS) - 1)
FLEET_DEVICE fleet_quad pack_sums(const float *sum, uint32_t tag)
{
    fleet_quad word;
    UNROLLED
    for (uint32_t i = 0; i < 4; i++)
        word.word[i] = (word_of_float(sum[i]) & ~TAG_MASK) | (tag >> i * TAG_BITS & TAG_MASK);
    return word;
}
FLEET_DEVICE uint32_t tag_differs(const fleet_quad *word, uint32_t tag)
{
    uint32_t late = 0;
    UNROLLED
    for (uint32_t i = 0; i < 4; i++) late |= word->word[i] ^ tag >> i * TAG_BITS;
    return late & TAG_MASK;
}
FLEET_DEVICE void add_packed(float *sum, const fleet_quad *word)
{
    UNROLLED
    for (uint32_t i = 0; i < 4; i++) sum[i] += float_of_word(word->word[i] & ~TAG_MASK);
}
/* Scales: while the consumers multiply, the norm warp computes them. Workers that share a panel
   share this work, too: each computes the scales of some rows and publishes them to the others. */
FLEET_DEVICE fleet_quad *split_k_scale(const task_args *task, const fleet_ctx *ctx,
                                       const large_m_share *s, uint32_t rows, uint32_t row)
{
    const uint32_t k_split = fast_quotient(row, ceil_div(rows, s->k_splits));
    const uint32_t worker = ctx->slice * task->d.workers + s->group * s->k_splits + k_split;
    return task->d.split_k + (size_t)worker * SPLIT_K_QUADS + SPLIT_K_SCALES + row;
}
FLEET_DEVICE void share_scales(const fleet_ctx *ctx, const task_args *task, const linear_lds *l,
                               const large_m_share *s, uint32_t rows)
{
    const uint32_t each = ceil_div(rows, s->k_splits), first = s->k_split * each;
    const uint32_t end = first + each < rows ? first + each : rows;
    rms_scale_rows(task, l, first, end, 1, MAX_SCALED_ROWS);
    fleet_wave_barrier(); /* all lanes have stored their scales to LDS */
    for (uint32_t r = first + fleet_lane(); r < end; r += 32) {
        fleet_quad word = {{word_of_float(l->scale[r]), 0, 0, task_tag(ctx, task)}};
        fleet_store_flagged_device(split_k_scale(task, ctx, s, rows, r), word);
    }
}
/* The warps that are not consumers load the scales of all rows, a lane each; they are in LDS after
   the caller's next barrier. */
typedef char a_lane_for_each_row[THREADS - CONSUMER_THREADS >= MAX_ROWS ? 1 : -1];
FLEET_DEVICE void load_scales(const fleet_ctx *ctx, weight_source *source, const task_args *task,
                              const linear_lds *l, const large_m_share *s, uint32_t rows)
{
    const uint32_t tag = task_tag(ctx, task), row = ctx->thread - CONSUMER_THREADS,
                   is_row = row < rows;
    const fleet_quad *from = split_k_scale(task, ctx, s, rows, is_row ? row : 0);
    fleet_quad word;
    uint32_t tries = 0;
    uint64_t since = 0;
    for (;;) {
        word = fleet_load_flagged_device(from);
        if (!any_lane(word.word[3] != tag && !source->status)) break;
        source->status = fleet_consumer_pause(&source->weights, &tries, &since);
    }
    if (is_row) l->scale[row] = float_of_word(word.word[0]);
}

/* A consumer stores its sums of `tiles` tiles to the workspace, except those from `begin` to `end`,
   which its worker reduces. */
FLEET_DEVICE void store_split_k(const fleet_ctx *ctx, const task_args *task, const large_m_share *s,
                                const float *sum, uint32_t tiles, uint32_t begin, uint32_t end,
                                uint32_t rows)
{
    const uint32_t wave = warp_uniform(fleet_wave_id()), tag = task_tag(ctx, task);
    fleet_quad *to = split_k_quads(task, ctx, s, s->k_split, 0, wave);
    if (wave * 16 >= rows) return;
    UNROLLED
    for (uint32_t i = 0; i < LARGE_M_PANEL_TILES; i++) {
        if (i >= tiles || (i >= begin && i < end)) continue;
        UNROLLED
        for (uint32_t w = 0; w < TILE_QUADS; w++)
            fleet_store_flagged_device(to + (i * TILE_QUADS + w) * CONSUMER_THREADS,
                                       pack_sums(sum + i * TILE_SUMS + w * 4, tag));
    }
}

/* A warp's work items: row groups of some tiles. */
typedef struct wave_item {
    uint32_t tile, group, groups;
} wave_item;
FLEET_DEVICE void advance_item(wave_item *w, uint32_t by)
{
    w->group += by;
    while (w->group >= w->groups) w->tile++, w->group -= w->groups;
}
FLEET_DEVICE wave_item wave_item_of(uint32_t rows)
{
    wave_item w;
    w.tile = w.group = 0, w.groups = ceil_div(rows, 16);
    advance_item(&w, fleet_wave_id());
    return w;
}

/* Adds the other splits' partial sums to a lane's sums, beginning with the next split. They all run
   this task now or soon. `from`: of the first split; `loaded`: a constant, splits whose words are
   in flight at a time. */
#define PARTIALS_IN_FLIGHT 5u
FLEET_DEVICE void add_partials(weight_source *source, float *sum, const fleet_quad *from,
                               const large_m_share *s, uint32_t tag, const uint32_t loaded)
{
    const uint32_t others = warp_uniform(s->k_splits - 1);
    ROLLED
    for (uint32_t first = 0; first < others; first += loaded) {
        fleet_quad word[PARTIALS_IN_FLIGHT][TILE_QUADS];
        uint32_t late, tries = 0;
        uint64_t since = 0;
        for (;;) {
            late = 0;
            UNROLLED
            for (uint32_t p = 0; p < loaded; p++) {
                const uint32_t next = s->k_split + 1 + (first + p < others ? first + p : first),
                               k_split = next < s->k_splits ? next : next - s->k_splits;
                UNROLLED
                for (uint32_t w = 0; w < TILE_QUADS; w++)
                    word[p][w] = fleet_load_flagged_device(from + (size_t)k_split * SPLIT_K_QUADS +
                                                           w * CONSUMER_THREADS);
            }
            UNROLLED
            for (uint32_t p = 0; p < loaded; p++) {
                UNROLLED
                for (uint32_t w = 0; w < TILE_QUADS; w++) late |= tag_differs(&word[p][w], tag);
            }
            if (!any_lane(late && !source->status)) break;
            source->status = fleet_consumer_pause(&source->weights, &tries, &since);
        }
        UNROLLED
        for (uint32_t p = 0; p < loaded; p++) {
            UNROLLED
            for (uint32_t w = 0; w < TILE_QUADS; w++)
                if (first + p < others) add_packed(sum + w * 4, &word[p][w]);
        }
    }
}

/* All warps reduce `tiles` tiles, from number `first` on, which the consumers have stored to
   l->sums. */
FLEET_DEVICE void reduce_split_k(const fleet_ctx *ctx, weight_source *source, const task_args *task,
                                 const linear_lds *l, const large_m_share *s, uint32_t first,
                                 uint32_t tiles, uint32_t rows)
{
    const uint32_t tag = task_tag(ctx, task);
    for (wave_item w = wave_item_of(rows); w.tile < tiles; advance_item(&w, MAX_WAVES)) {
        const fleet_quad *from = split_k_quads(task, ctx, s, 0, first + w.tile, w.group);
        float *to = l->sums + w.tile * rows * TILE_N, sum[TILE_SUMS];
        load_sums(sum, to, w.group, rows);
        if (s->k_splits <= 4) /* fewer loads whose result is ignored */
            add_partials(source, sum, from, s, tag, 3);
        else
            add_partials(source, sum, from, s, tag, PARTIALS_IN_FLIGHT);
        store_sums(sum, to, w.group, rows);
    }
}

/* Of several ranks, after all panels: adds the ranks' sums of those that the worker shares with no other one and has pushed.
   Its accumulators are dead by now, so that nothing spills. */
FLEET_DEVICE void take_unshared(const fleet_ctx *ctx, const task_args *task, const operand *in,
                                const large_m_share *s, const linear_lds *l,
                                fleet_status *exchanged)
{
    const uint32_t rows = in->rows, max_tiles = max_epilogue_tiles(rows);
    for (uint32_t panel = s->panel; panel < s->panel_end; panel += s->panel_step) {
        const uint32_t tiles = panel_tiles_at(task, panel),
                       at = panel * (task->shape.tile_n / TILE_N);
        for (uint32_t first = 0; first < tiles; first += max_tiles) {
            const uint32_t left = tiles - first, n = left < max_tiles ? left : max_tiles;
            take_sums(ctx, task, l, at + first, n, rows, 1, exchanged);
            apply_epilogue(ctx, task, in, l, at + first, n);
            fleet_barrier(ctx); /* other sums replace these */
        }
    }
}

/* All panels of a worker. */
FLEET_DEVICE fleet_status multiply_large_m(const fleet_ctx *ctx, weight_source *source,
                                           const task_args *task, const operand *in,
                                           const large_m_share *s, const linear_lds *l)
{
    fleet_status exchanged = FLEET_OK;
    const uint32_t wave = warp_uniform(fleet_wave_id()), rows = in->rows;
    const uint32_t max_tiles = max_epilogue_tiles(rows);
    row_stages units = row_stages_of(in, s, l);
    if (wave != PRODUCER_WARP) align_to_chunk(source, wave);
    for (uint32_t panel = s->panel; panel < s->panel_end; panel += s->panel_step) {
        const uint32_t tiles = warp_uniform(panel_tiles_at(task, panel)),
                       at = panel * (task->shape.tile_n / TILE_N);
        float sum[LARGE_M_PANEL_TILES * TILE_SUMS];
        memset(sum, 0, sizeof sum);
        if (wave < CONSUMER_WARPS) {
            zero_missing_rows(&units, l, ctx->thread);
            consume_chunks(source, &units, wave, sum, tiles);
        } else if (wave == PRODUCER_WARP) {
            /* Publishes the rows in memory to the bulk copies, and that their place in LDS was
               read. Pairs: the wait for the task's event, and the barrier at the end of a panel. */
            fence_proxy_async();
            produce_rows(&units);
        } else if (wave == NORM_WARP && panel == s->panel && task->epilogue != EPILOGUE_RESIDUAL) {
            if (s->k_splits == 1)
                rms_scale_rows(task, l, 0, rows, 1, MAX_SCALED_ROWS);
            else
                share_scales(ctx, task, l, s, rows);
        }
        if (s->k_splits == 1) {
            ROLLED
            for (uint32_t first = 0; first < tiles; first += max_tiles) {
                const uint32_t left = tiles - first, n = left < max_tiles ? left : max_tiles;
                fleet_barrier(ctx); /* the place of the sums held rows, or other sums */
                store_tiles(l, sum, first, n, wave, rows);
                fleet_barrier(ctx);
                if (is_exchanged(task))
                    push_sums(ctx, task, l, at + first, n, rows, 1); /* see take_unshared */
                else
                    apply_epilogue(ctx, task, in, l, at + first, n);
            }
        } else {
            const uint32_t begin = fast_quotient(tiles * s->k_split, s->k_splits),
                           end = fast_quotient(tiles * (s->k_split + 1), s->k_splits);
            if (wave < CONSUMER_WARPS) {
                any_consumer(0); /* a barrier of the consumers: the place of the sums held rows */
                store_tiles(l, sum, begin, end - begin, wave, rows);
                store_split_k(ctx, task, s, sum, tiles, begin, end, rows);
            }
            if (wave >= CONSUMER_WARPS && task->epilogue != EPILOGUE_RESIDUAL)
                load_scales(ctx, source, task, l, s, rows);
            fleet_barrier(ctx); /* the prefetched residual replaces rows; all warps read the sums */
            if (l->prefetched_rows)
                prefetch_residual(ctx, task, l, (at + begin) * TILE_N, (end - begin) * TILE_N,
                                  rows);
            reduce_split_k(ctx, source, task, l, s, begin, end - begin, rows);
            copy_async_wait(); /* those of prefetch_residual */
            fleet_barrier(ctx);
            if (is_exchanged(task))
                exchange_sums(ctx, task, l, at + begin, end - begin, rows, &exchanged);
            apply_epilogue(ctx, task, in, l, at + begin, end - begin);
        }
        fleet_barrier(ctx); /* rows replace the sums again */
    }
    if (s->k_splits == 1 && is_exchanged(task)) take_unshared(ctx, task, in, s, l, &exchanged);
    return exchanged;
}

/* Large-M version of `linear`. */
FLEET_TILE(linear_large_m, task_args)
{
    weight_source source = weights_open(&ctx);
    const uint32_t mbars = lds_address(linear_lds_of(&ctx, 1).extra);
    const uint32_t copies = fleet_wave_id() == PRODUCER_WARP;
    const task_args *task;
    operand in;
    fleet_status exchanged = FLEET_OK;
    FLEET_UNUSED(at);
    if (copies) open_rows(mbars);
    task = own_args(&ctx, &source, args); /* includes a barrier */
    in = step_operand(task, row_count_of(task));
    if (in.rows) {
        const large_m_share s = large_m_share_of(task, &ctx);
        const linear_lds l = large_m_lds_of(&ctx, task, &s, in.rows);
        if (task->epilogue == EPILOGUE_ARGMAX) argmax_begin(&ctx, &task->d, &l, in.rows);
        exchanged = multiply_large_m(&ctx, &source, task, &in, &s, &l);
        fleet_barrier(&ctx);
        if (task->epilogue == EPILOGUE_ARGMAX) argmax_end(&ctx, &task->d, &l, in.rows);
    }
    if (copies) close_rows(mbars);
    return source.status ? source.status : exchanged;
}
#else
FLEET_PRODUCER(linear_large_m, task_args)
{
    declare_panels(&ctx, args, producer);
}
FLEET_TILE(linear_large_m, task_args)
{
    FLEET_UNUSED(at);
    return FLEET_TILE_OF(linear)(ctx, args);
}
#endif

#endif /* QWEN3_NVIDIA_WGMMA_H */
