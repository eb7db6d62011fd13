/* nvidia/wgmma.h: products of many rows on NVIDIA GPUs that have wgmma (compute capability 9.0a), which takes both
   operands from LDS: the weights from the stream's ring, as they came, and the rows from buffers that bulk copies fill.

   With many rows what limits a product is the way of the rows from the L2 to each SM. So a worker computes MOST_TOGETHER
   tiles of columns at once, whose sums four waves keep in registers: the rows come once for all of them. Where
   there are fewer tiles than that for each worker, some workers have the same tiles, and each a part of the k's; each of
   them adds up the sums of some tiles, of which the others leave theirs in memory, as words with a tag: nobody counts who
   has come, and no store has to be waited for before another.

   What is done before the first row is copied, and behind the last product, is time in which no weights come, for the ring
   is full then.

   Four waves multiply, one copies rows, and one finds out by what to divide them. */
#ifndef QWEN3_NVIDIA_WGMMA_H
#define QWEN3_NVIDIA_WGMMA_H

#include "../tasks/linear.h"

#if HAS_MANY_ROWS
/* ---- who has what ---- */

/* A worker's share of a layer: of some wide tiles, `next` apart, the chunks of k's from `chunk` to `chunk_end`. */
typedef struct many_share {
    uint32_t tile, end, next;
    uint32_t part, parts, group; /* of the k's; the workers that share a wide tile are a group */
    uint32_t chunk, chunk_end;
} many_share;

FLEET_DEVICE many_share many_share_of(const op *o, const fleet_ctx *ctx)
{
    const tile_range range = tiles_of(o, ctx);
    const uint32_t workers = ctx->tile_num, chunks = ceil_div(o->shape.k, CHUNK_K);
    const uint32_t groups = range.end - range.begin;
    many_share s;
    s.parts = groups && groups <= workers ? quotient(workers, groups) : 1;
    if (s.parts > chunks) s.parts = chunks;
    if (s.parts > 1) {
        const uint32_t place = range.first - range.begin;
        s.group = quotient(place, s.parts), s.part = place - s.group * s.parts;
        s.tile = range.begin + (s.group < groups ? s.group : groups);
        s.end = s.tile + (s.group < groups), s.next = 1;
        s.chunk = quotient(chunks * s.part, s.parts);
        s.chunk_end = quotient(chunks * (s.part + 1), s.parts);
    } else {
        s.group = s.part = 0;
        s.tile = range.first, s.end = range.end, s.next = range.step;
        s.chunk = 0, s.chunk_end = chunks;
    }
    return s;
}
/* Of a wide tile: the last one may have fewer. */
FLEET_DEVICE uint32_t tiles_in(const op *o, uint32_t tile)
{
    const uint32_t wide = o->shape.tile_n / TILE, left = o->shape.n / TILE - tile * wide;
    return left < wide ? left : wide;
}

/* Cycles between two pieces, as PIECES_APART. A task's first ones come while workers exchange sums of the task before, and
   the L2 answers them the later, the more pieces are on their way. There is time for these: so they come slowly. */
#if !defined(MANY_PIECES_APART)
#define MANY_PIECES_APART 300u
#endif
#if !defined(MANY_FIRST_APART)
#define MANY_FIRST_APART 500u /* of the chunks for which the ring has room, behind the arguments */
#endif

/* A chunk has all of its slots, the last ones of which may have nothing in them, and no end of the ring is between them:
   some pieces in front see to that. */
FLEET_STREAM(linear_many, op)
{
    const many_share s = many_share_of(args, &ctx);
    FLEET_UNUSED(at);
    fleet_span_pace(spans, MANY_PIECES_APART);
    fleet_span(spans, args, OWN_BYTES);
    while (fleet_span_slot(spans) % CHUNK_SLOTS) fleet_span(spans, args, 16);
    for (uint32_t tile = s.tile; tile < s.end; tile += s.next) {
        const uint32_t bytes = tiles_in(args, tile) * TILE * CHUNK_K * 2;
        const char *from = (const char *)(const void *)weights_of(args, tile);
        for (uint32_t chunk = s.chunk; chunk < s.chunk_end; chunk++) {
            const uint32_t first =
                tile == s.tile && chunk - s.chunk < DECODER_SLOTS / CHUNK_SLOTS - 1;
            fleet_span_pace(spans, first ? MANY_FIRST_APART : MANY_PIECES_APART);
            fleet_span(spans, from + (size_t)chunk * bytes, bytes);
            for (uint32_t i = ceil_div(bytes, SLOT_BYTES); i < CHUNK_SLOTS; i++)
                fleet_span(spans, args, 16);
        }
    }
}
/* The scaler does it, which has time, and the multipliers do not wait. */
FLEET_DEVICE void pass_over(weight_source *source, uint32_t wave)
{
    const uint32_t slot = fleet_weights_slot(&source->weights) % CHUNK_SLOTS;
    const uint32_t n = slot ? CHUNK_SLOTS - slot : 0;
    if (source->status || !n) return;
    if (wave != SCALER)
        fleet_weights_skip(&source->weights, n);
    else if (fleet_weights_take(&source->weights, n))
        fleet_weights_give_back(&source->weights, n, 1);
    else
        source->status = fleet_weights_status(&source->weights);
}

/* ---- rows ---- */

/* As of other products. Rows are where these have parts and sums. When they are through, there are sums, of as many tiles as
   there is room for: of all that a worker adds up, where workers share tiles. What they are added to is brought ahead where
   these are few: it is in place of parts then, and the sums in place of sums. */
#define MOST_AHEAD 2u /* tiles */
FLEET_DEVICE product_lds many_lds_of(const fleet_ctx *ctx, const op *o, const many_share *s,
                                     uint32_t rows)
{
    product_lds l = product_lds_of(ctx, rows);
    const uint32_t is_ahead = o->ending == END_RESIDUAL && s->parts >= MOST_TOGETHER / MOST_AHEAD;
    l.ahead = l.parts, l.ahead_columns = MOST_AHEAD * TILE;
    l.ahead_rows = is_ahead ? MOST_ROWS : 0;
    if (!is_ahead) l.sums = l.parts;
    return l;
}
typedef char
    there_is_room[(MOST_ROWS + 1) * MOST_AHEAD * TILE <= PRODUCT_PARTS &&
                          MOST_AHEAD * MOST_ROWS * TILE <= PRODUCT_SUMS &&
                          MOST_TOGETHER / 2 * MOST_ROWS * TILE <= PRODUCT_PARTS + PRODUCT_SUMS
                      ? 1
                      : -1];
/* Of tiles that a worker has for itself. */
FLEET_DEVICE uint32_t most_finished(uint32_t rows)
{
    const uint32_t room = quotient(PRODUCT_PARTS + PRODUCT_SUMS, rows * TILE);
    return room < MOST_TOGETHER ? room : MOST_TOGETHER;
}

/* Rows come in units of ROW_BLOCKS blocks, as multiply_rows takes them; where activations have two terms, the units of the
   second ones are between those of the first. A unit's groups of eight rows lie a group of each buffer apart. wgmma
   multiplies MOST_ROWS rows, whether they are there or not: those of groups that are not there are zeros, which takes less
   power, and it is power that the clock depends on. */
#define ROW_BLOCKS (OPERAND_K / BLOCK)
typedef char a_unit_is_multiplied_at_once[ROW_BLOCKS * BLOCK == 64 && ATOM * 2 == 512 ? 1 : -1];
#define ROW_GROUP_BYTES (ROW_BLOCKS * ATOM * 2)
#define ROW_BYTES ((PRODUCT_PARTS + PRODUCT_SUMS) * 4) /* of all buffers */
#define ROW_BUFFERS (ROW_BYTES / (MOST_ROWS / EIGHT * ROW_GROUP_BYTES))
#define ROW_GROUPS_APART (ROW_BUFFERS * ROW_GROUP_BYTES)
typedef struct row_units {
    const act *x;
    uint32_t second, terms; /* terms: less 1 */
    uint32_t groups, width; /* width: blocks of x */
    uint32_t first, end;    /* blocks of the share */
    uint32_t lds;           /* of the first buffer */
    uint32_t counts;        /* in LDS, of each buffer two */
    uint32_t buffer, use;   /* of the next unit */
} row_units;

FLEET_DEVICE row_units row_units_of(const operand *in, const many_share *s, const product_lds *l)
{
    row_units u;
    u.x = in->x, u.second = in->second, u.terms = uniform(in->second != 0);
    u.groups = ceil_div(in->rows, EIGHT), u.width = uniform(in->k / BLOCK);
    u.first = uniform(s->chunk * CHUNK_BLOCKS), u.end = uniform(s->chunk_end * CHUNK_BLOCKS);
    if (u.end > u.width) u.end = u.width;
    u.lds = lds_address(l->parts), u.counts = lds_address(l->behind);
    u.buffer = u.use = 0;
    return u;
}
FLEET_DEVICE uint32_t row_buffer(const row_units *u)
{
    return u->lds + u->buffer * ROW_GROUP_BYTES;
}
/* Of this use of the buffer: its copies are there; and its multipliers are through. */
FLEET_DEVICE uint32_t row_full(const row_units *u)
{
    return u->counts + u->buffer * 16;
}
FLEET_DEVICE uint32_t row_free(const row_units *u)
{
    return u->counts + u->buffer * 16 + 8;
}
FLEET_DEVICE void next_rows(row_units *u)
{
    if (++u->buffer == ROW_BUFFERS) u->buffer = 0, u->use++;
}

/* Once for a task, by a wave; before a barrier of all, and closed behind one. */
FLEET_DEVICE void open_rows(uint32_t counts)
{
    const uint32_t i = fleet_lane();
    if (i < ROW_BUFFERS)
        count_open(counts + i * 16, 1), count_open(counts + i * 16 + 8, MULTIPLIERS);
    counts_opened();
}
FLEET_DEVICE void close_rows(uint32_t counts)
{
    if (fleet_lane() < 2 * ROW_BUFFERS) count_close(counts + fleet_lane() * 8);
}

/* The copier's: all units of a share, a group of rows each lane. */
FLEET_DEVICE void copy_rows(row_units *u)
{
    const uint32_t lane = fleet_lane();
    ROLLED
    for (uint32_t block = u->first; block < u->end; block += ROW_BLOCKS) {
        const uint32_t left = u->end - block, blocks = left < ROW_BLOCKS ? left : ROW_BLOCKS;
        ROLLED
        for (uint32_t term = 0; term <= u->terms; term++, next_rows(u)) {
            /* Pair: the multipliers' count_down when they are through with what the buffer held. */
            if (u->use) count_wait(row_free(u), u->use - 1);
            if (lane == 0) count_expect(row_full(u), u->groups * ROW_GROUP_BYTES);
            fleet_wave_barrier();
            if (lane < u->groups) {
                const act *from =
                    u->x + ((size_t)lane * u->width + block) * ATOM + (term ? u->second : 0);
                const uint32_t to = row_buffer(u) + lane * ROW_GROUPS_APART;
                copy_bulk(to, from, blocks * ATOM * 2, row_full(u));
                /* Weights behind the last block are zeros; what they are multiplied with must be numbers. */
                if (blocks < ROW_BLOCKS) copy_bulk(to + ATOM * 2, from, ATOM * 2, row_full(u));
            }
        }
    }
}

/* The multipliers' part: what stands for groups that are not there, in all buffers. */
FLEET_DEVICE void clear_rows(const row_units *u, const product_lds *l, uint32_t thread)
{
    char *const rows = (char *)l->parts;
    const fleet_quad zeros = {{0, 0, 0, 0}};
    for (uint32_t at = u->groups * ROW_GROUPS_APART + thread * 16; at < ROW_BYTES;
         at += MULTIPLYING * 16)
        *(fleet_quad *)(void *)(rows + at) = zeros;
    /* Publishes the zeros to all multipliers' wgmma. Pair: the barrier of these in add_many, before the first one. */
    copies_follow();
}

/* ---- products ---- */

/* Each multiplier gives back what all have taken: they have six shares, two of them two each. Two calls, for divisions by
   constants are quick. */
typedef char shares_are_whole[MOST_WAVES == MULTIPLIERS + 2 && MOST_WAVES % 2 == 0 ? 1 : -1];
FLEET_DEVICE void give_back_share(const weight_source *source, uint32_t wave)
{
    if (wave < 2)
        fleet_weights_give_back(&source->weights, CHUNK_SLOTS, MOST_WAVES / 2);
    else
        fleet_weights_give_back(&source->weights, CHUNK_SLOTS, MOST_WAVES);
}

/* The multipliers' part: adds up the products of a wide tile of `tiles` tiles. Those of a unit of rows are under way while
   those of the one before are waited for. Whether one of the waves got no pieces they find out together: wgmma is an
   instruction of all four. The rows go on then, for the copier waits for them to be used; and products, too: whatever is in
   LDS, nobody looks at the sums. So it is with tiles that there are not, for which there is something else behind the
   others. While products are under way there is no branch that lanes take differently, or ptxas would make each wgmma wait
   for the one before. */
FLEET_DEVICE void add_many(weight_source *source, row_units *u, uint32_t wave, float *sum,
                           uint32_t tiles)
{
    const uint32_t block_bytes = uniform(tiles * TILE * BLOCK * 2);
    ROLLED
    for (uint32_t chunk = u->first; chunk < u->end; chunk += CHUNK_BLOCKS) {
        const uint32_t left = u->end - chunk, blocks = left < CHUNK_BLOCKS ? left : CHUNK_BLOCKS;
        const void *first = NULL;
        uint32_t pieces;   /* where they are in LDS */
        uint32_t used = 0; /* the rows of the products that are under way */
        if (!source->status) {
            first = fleet_weights_take(&source->weights, CHUNK_SLOTS);
            if (!first) source->status = fleet_weights_status(&source->weights);
        }
        if (any_multiplier(!first) && !source->status) source->status = FLEET_ERROR_ABORTED;
        pieces = uniform(source->status ? u->lds : lds_address(first));
        ROLLED
        for (uint32_t at = 0; at < blocks; at += ROW_BLOCKS) {
            ROLLED
            for (uint32_t term = 0; term <= u->terms; term++, next_rows(u)) {
                /* Pair: the copies of the unit, which complete it. */
                count_wait(row_full(u), u->use);
                products_begin();
                multiply_rows(sum, lds_operand(row_buffer(u), ROW_GROUPS_APART),
                              lds_operand(pieces + at * block_bytes, ROW_GROUP_BYTES));
                products_commit();
                products_wait_but_last();
                /* To the copier: this wave is through with the unit before. Pair: copy_rows. */
                count_down(used, used != 0);
                used = row_free(u);
            }
        }
        products_wait();
        count_down(used, 1);
        if (!source->status) give_back_share(source, wave);
    }
}

/* ---- sums ---- */

/* Where a lane's sum number i of a tile belongs, of group `group` of 16 rows: the lane has two rows, eight apart, and of each
   two neighbours of the first eight columns, and those eight behind them. */
FLEET_DEVICE uint32_t sum_row(uint32_t group, uint32_t i)
{
    return group * 16 + fleet_lane() / 4 + i / 2 % 2 * 8;
}
FLEET_DEVICE uint32_t sum_column(uint32_t i)
{
    return i / 4 * 8 + fleet_lane() % 4 * 2 + i % 2;
}

/* A lane's sums of a tile to [rows][TILE] in LDS, and from there. */
FLEET_DEVICE void put_sums(const float *sum, float *to, uint32_t group, uint32_t rows)
{
    UNROLLED
    for (uint32_t i = 0; i < TILE_SUMS; i += 2) {
        const uint32_t r = sum_row(group, i);
        if (r < rows) put_two(to + r * TILE + sum_column(i), sum[i], sum[i + 1]);
    }
}

FLEET_DEVICE void get_sums(float *sum, const float *from, uint32_t group, uint32_t rows)
{
    UNROLLED
    for (uint32_t i = 0; i < TILE_SUMS; i += 2) {
        const uint32_t r = sum_row(group, i);
        two both = {{0, 0}};
        if (r < rows) both = load_two(from + r * TILE + sum_column(i));
        sum[i] = both.value[0], sum[i + 1] = both.value[1];
    }
}
/* The multipliers': of `tiles` tiles, from number `first` on, to l->sums. */
FLEET_DEVICE void put_some(const product_lds *l, const float *sum, uint32_t first, uint32_t tiles,
                           uint32_t wave, uint32_t rows)
{
    UNROLLED
    for (uint32_t i = 0; i < MOST_TOGETHER; i++)
        if (i >= first && i < first + tiles && wave < MULTIPLIERS)
            put_sums(sum + i * TILE_SUMS, l->sums + (i - first) * rows * TILE, wave, rows);
}

/* Where this lane's sums of a tile and a group of rows are that part `part` of the group of workers leaves: `tile` counts
   from the first one that they share. Nobody leaves others there before all have ended who read these, for the next
   product waits for this one. */
FLEET_DEVICE fleet_quad *joint_words(const op *o, const fleet_ctx *ctx, const many_share *s,
                                     uint32_t part, uint32_t tile, uint32_t group)
{
    const uint32_t worker = ctx->slice * o->d.workers + s->group * s->parts + part;
    return o->d.joint + (size_t)worker * JOINT + tile * TILE_WORDS * MULTIPLYING + group * 32 +
           fleet_lane();
}

/* Flagged data (edge 22). Four sums in a word, each cut off to 26 bits: the six others are those of the task's tag, of which they have 24 in all.
   Those come again after 2^23 tasks, while each layer overwrites the words that it uses. */
#define TAG_BITS 6u
#define TAG_MASK ((1u << TAG_BITS) - 1)
FLEET_DEVICE fleet_quad word_of_sums(const float *sum, uint32_t tag)
{
    fleet_quad word;
    UNROLLED
    for (uint32_t i = 0; i < 4; i++)
        word.word[i] = (word_of_float(sum[i]) & ~TAG_MASK) | (tag >> i * TAG_BITS & TAG_MASK);
    return word;
}
FLEET_DEVICE uint32_t is_late(const fleet_quad *word, uint32_t tag)
{
    uint32_t late = 0;
    UNROLLED
    for (uint32_t i = 0; i < 4; i++) late |= word->word[i] ^ tag >> i * TAG_BITS;
    return late & TAG_MASK;
}
FLEET_DEVICE void add_word(float *sum, const fleet_quad *word)
{
    UNROLLED
    for (uint32_t i = 0; i < 4; i++) sum[i] += float_of_word(word->word[i] & ~TAG_MASK);
}
/* While the others multiply, the scaler finds out by what to divide rows. Workers that share tiles share that, too: each
   finds it for some rows, of which it tells the others. */
FLEET_DEVICE fleet_quad *joint_scale(const op *o, const fleet_ctx *ctx, const many_share *s,
                                     uint32_t rows, uint32_t row)
{
    const uint32_t part = quotient(row, ceil_div(rows, s->parts));
    const uint32_t worker = ctx->slice * o->d.workers + s->group * s->parts + part;
    return o->d.joint + (size_t)worker * JOINT + JOINT_SCALES + row;
}
FLEET_DEVICE void scale_shared(const fleet_ctx *ctx, const op *o, const product_lds *l,
                               const many_share *s, uint32_t rows)
{
    const uint32_t each = ceil_div(rows, s->parts), first = s->part * each;
    const uint32_t end = first + each < rows ? first + each : rows;
    scale_some(o, l, first, end, 1, MOST_SCALED);
    fleet_wave_barrier(); /* each of some lanes has left one in LDS */
    for (uint32_t r = first + fleet_lane(); r < end; r += 32) {
        fleet_quad word = {{word_of_float(l->scale[r]), 0, 0, task_tag(ctx, o)}};
        store_as_one(joint_scale(o, ctx, s, rows, r), word);
    }
}
/* Those who do not multiply, a row each lane; behind the caller's next barrier they are in LDS. */
typedef char a_lane_for_each_row[THREADS - MULTIPLYING >= MOST_ROWS ? 1 : -1];
FLEET_DEVICE void get_scales(const fleet_ctx *ctx, weight_source *source, const op *o,
                             const product_lds *l, const many_share *s, uint32_t rows)
{
    const uint32_t tag = task_tag(ctx, o), row = ctx->thread - MULTIPLYING, is_row = row < rows;
    const fleet_quad *from = joint_scale(o, ctx, s, rows, is_row ? row : 0);
    fleet_quad word;
    uint32_t tries = 0;
    uint64_t since = 0;
    for (;;) {
        word = load_as_one(from);
        if (!any_lane(word.word[3] != tag && !source->status)) break;
        source->status = fleet_weights_pause(&source->weights, &tries, &since);
    }
    if (is_row) l->scale[row] = float_of_word(word.word[0]);
}

/* A multiplier's: leaves the sums of `tiles` tiles, but for those from `begin` to `end`, which it keeps. */
FLEET_DEVICE void leave_joint(const fleet_ctx *ctx, const op *o, const many_share *s,
                              const float *sum, uint32_t tiles, uint32_t begin, uint32_t end,
                              uint32_t rows)
{
    const uint32_t wave = uniform(fleet_wave_id()), tag = task_tag(ctx, o);
    fleet_quad *to = joint_words(o, ctx, s, s->part, 0, wave);
    if (wave * 16 >= rows) return;
    UNROLLED
    for (uint32_t i = 0; i < MOST_TOGETHER; i++) {
        if (i >= tiles || (i >= begin && i < end)) continue;
        UNROLLED
        for (uint32_t w = 0; w < TILE_WORDS; w++)
            store_as_one(to + (i * TILE_WORDS + w) * MULTIPLYING,
                         word_of_sums(sum + i * TILE_SUMS + w * 4, tag));
    }
}

/* What a wave does in turn: groups of rows of some tiles. */
typedef struct wave_turn {
    uint32_t tile, group, groups;
} wave_turn;
FLEET_DEVICE void turn_on(wave_turn *w, uint32_t by)
{
    w->group += by;
    while (w->group >= w->groups) w->tile++, w->group -= w->groups;
}
FLEET_DEVICE wave_turn wave_turn_of(uint32_t rows)
{
    wave_turn w;
    w.tile = w.group = 0, w.groups = ceil_div(rows, 16);
    turn_on(&w, fleet_wave_id());
    return w;
}

/* Adds to a lane's sums what the other parts leave, from the next one on: they all have this task now, or soon. `from`: of
   the first part; loaded, a constant: parts of which the words are on their way at a time. */
#define PARTS_LOADED 5u
FLEET_DEVICE void add_others(weight_source *source, float *sum, const fleet_quad *from,
                             const many_share *s, uint32_t tag, const uint32_t loaded)
{
    const uint32_t others = uniform(s->parts - 1);
    ROLLED
    for (uint32_t first = 0; first < others; first += loaded) {
        fleet_quad word[PARTS_LOADED][TILE_WORDS];
        uint32_t late, tries = 0;
        uint64_t since = 0;
        for (;;) {
            late = 0;
            UNROLLED
            for (uint32_t p = 0; p < loaded; p++) {
                const uint32_t next = s->part + 1 + (first + p < others ? first + p : first),
                               part = next < s->parts ? next : next - s->parts;
                UNROLLED
                for (uint32_t w = 0; w < TILE_WORDS; w++)
                    word[p][w] = load_as_one(from + (size_t)part * JOINT + w * MULTIPLYING);
            }
            UNROLLED
            for (uint32_t p = 0; p < loaded; p++) {
                UNROLLED
                for (uint32_t w = 0; w < TILE_WORDS; w++) late |= is_late(&word[p][w], tag);
            }
            if (!any_lane(late && !source->status)) break;
            source->status = fleet_weights_pause(&source->weights, &tries, &since);
        }
        UNROLLED
        for (uint32_t p = 0; p < loaded; p++) {
            UNROLLED
            for (uint32_t w = 0; w < TILE_WORDS; w++)
                if (first + p < others) add_word(sum + w * 4, &word[p][w]);
        }
    }
}

/* All waves': to the sums of `tiles` tiles, from number `first` on, which the multipliers have put to l->sums. */
FLEET_DEVICE void add_joint(const fleet_ctx *ctx, weight_source *source, const op *o,
                            const product_lds *l, const many_share *s, uint32_t first,
                            uint32_t tiles, uint32_t rows)
{
    const uint32_t tag = task_tag(ctx, o);
    for (wave_turn w = wave_turn_of(rows); w.tile < tiles; turn_on(&w, MOST_WAVES)) {
        const fleet_quad *from = joint_words(o, ctx, s, 0, first + w.tile, w.group);
        float *to = l->sums + w.tile * rows * TILE, sum[TILE_SUMS];
        get_sums(sum, to, w.group, rows);
        if (s->parts <= 4) /* fewer words are loaded in vain */
            add_others(source, sum, from, s, tag, 3);
        else
            add_others(source, sum, from, s, tag, PARTS_LOADED);
        put_sums(sum, to, w.group, rows);
    }
}

/* All of a worker's tiles. */
FLEET_DEVICE void multiply_many(const fleet_ctx *ctx, weight_source *source, const op *o,
                                const operand *in, const many_share *s, const product_lds *l)
{
    const uint32_t wave = uniform(fleet_wave_id()), rows = in->rows;
    const uint32_t most = most_finished(rows);
    row_units units = row_units_of(in, s, l);
    if (wave != COPIER) pass_over(source, wave);
    for (uint32_t tile = s->tile; tile < s->end; tile += s->next) {
        const uint32_t tiles = uniform(tiles_in(o, tile)), at = tile * (o->shape.tile_n / TILE);
        float sum[MOST_TOGETHER * TILE_SUMS];
        memset(sum, 0, sizeof sum);
        if (wave < MULTIPLIERS) {
            clear_rows(&units, l, ctx->thread);
            add_many(source, &units, wave, sum, tiles);
        } else if (wave == COPIER) {
            /* Publishes to the copies what rows memory has, and that their place in LDS is read no more. Pairs: the wait for
               the task's event, and the barrier that ends a tile. */
            copies_follow();
            copy_rows(&units);
        } else if (wave == SCALER && tile == s->tile && o->ending != END_RESIDUAL) {
            if (s->parts == 1)
                scale_some(o, l, 0, rows, 1, MOST_SCALED);
            else
                scale_shared(ctx, o, l, s, rows);
        }
        if (s->parts == 1) {
            ROLLED
            for (uint32_t first = 0; first < tiles; first += most) {
                const uint32_t left = tiles - first, n = left < most ? left : most;
                fleet_barrier(ctx); /* the sums were rows, or other tiles' */
                put_some(l, sum, first, n, wave, rows);
                fleet_barrier(ctx);
                finish(ctx, o, l, at + first, n, rows);
            }
        } else {
            const uint32_t begin = quotient(tiles * s->part, s->parts),
                           end = quotient(tiles * (s->part + 1), s->parts);
            if (wave < MULTIPLIERS) {
                any_multiplier(0); /* a barrier of theirs: the sums were rows */
                put_some(l, sum, begin, end - begin, wave, rows);
                leave_joint(ctx, o, s, sum, tiles, begin, end, rows);
            }
            if (wave >= MULTIPLIERS && o->ending != END_RESIDUAL)
                get_scales(ctx, source, o, l, s, rows);
            fleet_barrier(ctx); /* what is fetched was rows, too, and sums are all waves' */
            if (l->ahead_rows)
                fetch_residual(ctx, o, l, (at + begin) * TILE, (end - begin) * TILE, rows);
            add_joint(ctx, source, o, l, s, begin, end - begin, rows);
            copies_wait(); /* those of fetch_residual */
            fleet_barrier(ctx);
            finish(ctx, o, l, at + begin, end - begin, rows);
        }
        fleet_barrier(ctx); /* and are rows again */
    }
}

/* `linear`, for kernels whose steps mostly have many rows. */
FLEET_TILE(linear_many, op)
{
    weight_source source = weights_open(&ctx);
    const uint32_t counts = lds_address(product_lds_of(&ctx, 1).behind);
    const uint32_t copies = fleet_wave_id() == COPIER;
    const op *o;
    operand in;
    FLEET_UNUSED(at);
    if (copies) open_rows(counts);
    o = own_op(&ctx, &source, args); /* has a barrier */
    in = operand_of(o, rows_of(o));
    if (in.rows) {
        const many_share s = many_share_of(o, &ctx);
        const product_lds l = many_lds_of(&ctx, o, &s, in.rows);
        if (o->ending == END_LOGITS) begin_logits(&ctx, &o->d, &l, in.rows);
        multiply_many(&ctx, &source, o, &in, &s, &l);
        fleet_barrier(&ctx);
        if (o->ending == END_LOGITS) end_logits(&ctx, &o->d, &l, in.rows);
    }
    if (copies) close_rows(counts);
    return source.status;
}
#else
FLEET_STREAM(linear_many, op)
{
    linear_stream(ctx, args, at, spans);
}
FLEET_TILE(linear_many, op)
{
    FLEET_UNUSED(at);
    return linear(ctx, args);
}
#endif

#endif /* QWEN3_NVIDIA_WGMMA_H */
