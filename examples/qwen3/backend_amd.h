/* backend_amd.h: products with the matrix instructions (MFMA) of MI200, MI300 and MI350.

   One instruction multiplies a block of weights by 16 rows of activations: a lane brings eight k's of one column and
   eight k's of one row, and receives the sums of its row in four columns. A block of packed weights is stored in lane
   order, so that a wave loads it from memory into registers with one 1 KB load. LDS is not involved, since no other wave
   needs the same weights. */
#ifndef QWEN3_BACKEND_AMD_H
#define QWEN3_BACKEND_AMD_H

#include "backend_in_place.h"

#define HAS_PREFILL 1u
FLEET_HOST_DEVICE uint32_t prefill_suits(uint32_t experts, uint32_t hidden, uint32_t q,
                                         uint32_t ffn)
{
    return !experts && hidden % BLOCK_K == 0 && q % BLOCK_K == 0 && ffn % BLOCK_K == 0;
}

#define MAX_PANEL_TILES 1u
#define PARTIAL_FLOATS (MAX_WAVES * MAX_ROWS * TILE_N)

FLEET_HOST_DEVICE size_t act_at(uint32_t row, uint32_t k, uint32_t width)
{
    return (size_t)row * width + k;
}

#define UNROLLED _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")

/* Waves of a workgroup, as a constant. */
#define WAVES (THREADS / fleet_wave_size())

/* Adds up the partial sums of the waves, [WAVES][MAX_ROWS][TILE_N], in their order: thread i those from 4 i on. */
FLEET_DEVICE void reduce_partials(const fleet_ctx *ctx, const linear_lds *l, uint32_t rows)
{
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread * 4; i < rows * TILE_N; i += THREADS * 4) {
        vec4 sum = load_vec4(l->partials + i);
        UNROLLED
        for (uint32_t w = 1; w < WAVES; w++) {
            const vec4 next = load_vec4(l->partials + w * MAX_ROWS * TILE_N + i);
            UNROLLED
            for (uint32_t j = 0; j < 4; j++) sum.value[j] += next.value[j];
        }
        store_vec4(l->sums + i, sum);
    }
    if (l->own_sums)
        fleet_wave_barrier(); /* a row's sums are stored by one wave */
    else
        fleet_barrier(ctx);
}

#define IN_FLIGHT(loads)                                                                           \
    ((loads) < 4 ? 8u : (loads) < 8 ? 4u : 2u) /* blocks in flight, of 1 KB each */
#define MFMA_ROWS 16u
#define MAX_ROW_LOADS (2 * MAX_ROWS / MFMA_ROWS) /* loads of activations for one block */

/* s_waitcnt lgkmcnt(0) and nothing else (gfx9). Tiles use pointers which the compiler cannot prove
   to be outside of LDS; while such an access may be pending, it does not count loads but waits for
   all of them. */
#define NO_LDS_PENDING 0xc07f

typedef float sums4 __attribute__((ext_vector_type(4)));
typedef uint32_t words4 __attribute__((ext_vector_type(4), may_alias));

/* Lane 16 i + c holds k's 8 i to 8 i + 7 of column c. */
FLEET_HOST_DEVICE uint32_t pack_at(uint32_t column, uint32_t k, uint32_t inner_k)
{
    FLEET_UNUSED(inner_k);
    return (k / VECTOR * TILE_N + column) * VECTOR + k % VECTOR;
}

FLEET_HOST_DEVICE size_t weight_at(uint32_t column, uint32_t k, uint32_t panel_tiles,
                                   uint32_t inner_k)
{
    FLEET_UNUSED(panel_tiles);
    return k / BLOCK_K * BLOCK_K * TILE_N + pack_at(column, k % BLOCK_K, inner_k);
}

/* Loads 16 bytes of device memory, at an offset from an address that all lanes share. The address
   space is spelled out, since a flat load would make the wave wait for everything in flight. */
FLEET_DEVICE words4 load_words(const act_t *base, uint32_t offset_bytes)
{
    const __attribute__((address_space(1))) char *at =
        (const __attribute__((address_space(1))) char *)base;
    return *(const __attribute__((address_space(1))) words4 *)(at + offset_bytes);
}

FLEET_DEVICE uint32_t load_word(const void *base, uint32_t offset_bytes)
{
    const __attribute__((address_space(1))) char *at =
        (const __attribute__((address_space(1))) char *)base;
    return *(const __attribute__((address_space(1))) uint32_t *)(at + offset_bytes);
}
/* The same of floats, whose address need only be a multiple of theirs. */
typedef float floats4 __attribute__((ext_vector_type(4), aligned(4)));
FLEET_DEVICE floats4 load_floats(const float *base, uint32_t offset_bytes)
{
    const __attribute__((address_space(1))) char *at =
        (const __attribute__((address_space(1))) char *)base;
    return *(const __attribute__((address_space(1))) floats4 *)(at + offset_bytes);
}

/* Adds the product of a block of weights and 16 rows. Any assignment of k's is right as long as
   both operands agree: where an instruction takes 16 k's instead of 32, a lane's first four go
   before its last four. */
FLEET_DEVICE sums4 add_block(words4 weights, words4 rows, sums4 sum)
{
#if defined(__gfx950__)
    typedef __bf16 operand8 __attribute__((ext_vector_type(8)));
    return __builtin_amdgcn_mfma_f32_16x16x32_bf16((operand8)weights, (operand8)rows, sum, 0, 0, 0);
#else
    typedef short operand8 __attribute__((ext_vector_type(8)));
    const operand8 w = (operand8)weights, x = (operand8)rows;
    sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(w.lo, x.lo, sum, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(w.hi, x.hi, sum, 0, 0, 0);
#endif
}

/* Waits until the wave's stores are in the L2 of its chiplet. */
FLEET_DEVICE void drain_stores(void)
{
    __asm__ volatile("s_waitcnt vmcnt(0)" ::: "memory");
}

/* Tells the compiler that a value from memory is the same in all lanes. */
FLEET_DEVICE uint32_t wave_uniform(uint32_t value)
{
    return (uint32_t)__builtin_amdgcn_readfirstlane((int)value);
}

/* ---- weights held in registers ---- */

/* The first blocks that a wave multiplies for the next tile: 256 bytes of registers a lane, 64 KB a
   workgroup. They are loaded before the task waits for its events, so that no load of these waits
   for an event; and for a further tile of the task, before the sums of the one at hand are reduced.
   A worker that has no part in attention holds the first weights of the layer after it meanwhile. */
#define HELD_BLOCKS 16u
#define GROUP_BLOCKS 8u
typedef struct held_weights {
    words4 block[HELD_BLOCKS];
    const bf16 *tile;              /* whose blocks these are; null: none */
    uint32_t first_tile, end_tile; /* the worker's of the prefetched task, which need not divide */
} held_weights;

struct weight_source {
    held_weights *held;
    uint32_t is_held; /* 1: the blocks of the next tile are loaded, or being loaded */
    const bf16 *next; /* the tile after that, or null */
};
FLEET_DEVICE weight_source weights_open(const fleet_ctx *ctx)
{
    weight_source w;
    w.held = (held_weights *)ctx->registers, w.is_held = 0, w.next = NULL;
    return w;
}
FLEET_DEVICE void weights_next(weight_source *source, const bf16 *weights)
{
    source->next = weights;
}

/* A wave's share of k, in blocks. */
typedef struct wave_share {
    uint32_t first_k, blocks;
} wave_share;
FLEET_DEVICE wave_share share_of_wave(uint32_t all_k)
{
    fleet_k_range k;
    wave_share s;
    k.first = 0, k.count = all_k;
    k = fleet_split_k(k, BLOCK_K, fleet_wave_id(), WAVES);
    s.first_k = wave_uniform(k.first), s.blocks = wave_uniform(k.count / BLOCK_K);
    return s;
}

/* After the last block, loads the last one again. */
FLEET_DEVICE words4 load_weights(fleet_view from, uint32_t i, uint32_t blocks)
{
    const uint32_t at = i < blocks ? i : blocks - 1;
    const fleet_quad quad =
        fleet_view_load_streaming16(from, (at * fleet_wave_size() + fleet_lane()) * 16);
    const words4 words = {quad.word[0], quad.word[1], quad.word[2], quad.word[3]};
    return words;
}
FLEET_DEVICE void hold_group(held_weights *held, fleet_view from, uint32_t first, uint32_t blocks)
{
    UNROLLED
    for (uint32_t i = first; i < first + GROUP_BLOCKS; i++) {
        held->block[i] = load_weights(from, i, blocks);
        __builtin_amdgcn_sched_barrier(0);
    }
}
FLEET_DEVICE void hold_weights(held_weights *held, const bf16 *weights, wave_share k)
{
    const fleet_view from = fleet_view_of(weights + k.first_k * TILE_N);
    UNROLLED
    for (uint32_t first = 0; first < HELD_BLOCKS; first += GROUP_BLOCKS) {
        if (k.blocks <= first) return;
        hold_group(held, from, first, k.blocks);
    }
}
/* The worker's tiles of a linear layer. Its earlier tasks of the step have told it the rows, which only `next` and gates
   change. */
typedef struct own_tiles {
    panel_range range;
    const bf16 *first; /* the weights of the first of these; null: there is none */
} own_tiles;
FLEET_DEVICE own_tiles own_tiles_of(const fleet_ctx *ctx, const task_args *args)
{
    const uint32_t row_tiles =
        args->shape.tile_m < MAX_ROWS ? row_tiles_of(args, row_count_of(args)) : 1;
    own_tiles own;
    own.range = tiles_of_worker(args, ctx, row_tiles), own.first = NULL;
    if (args->epilogue != EPILOGUE_EXPERTS && own.range.first < own.range.end)
        own.first =
            panel_weights(args, row_tiles > 1 ? own.range.first / row_tiles : own.range.first);
    return own;
}
/* Holds the weights of the worker's first tile, unless it does. */
FLEET_DEVICE void hold_first(const fleet_ctx *ctx, const task_args *args)
{
    const own_tiles own = own_tiles_of(ctx, args);
    held_weights *held = (held_weights *)ctx->registers;
    held->first_tile = own.range.first, held->end_tile = own.range.end;
    if (!own.first || held->tile == own.first) return;
    hold_weights(held, own.first, share_of_wave(args->shape.k));
    held->tile = own.first;
}
/* Loads the blocks of the worker's first tile that follow the held ones, up to TOUCHED_BLOCKS of each wave, for the caches
   alone: a worker that has nothing to do leaves them in the memory-side cache, from which they come faster later. A lane
   loads a word of 64 bytes. */
#define TOUCHED_BLOCKS 16u
#define BLOCK_BYTES (BLOCK_K * TILE_N * 2u)
FLEET_DEVICE void touch_first(const fleet_ctx *ctx, const task_args *args)
{
    const own_tiles own = own_tiles_of(ctx, args);
    const wave_share k = share_of_wave(args->shape.k);
    const uint32_t last = HELD_BLOCKS + TOUCHED_BLOCKS,
                   end = (k.blocks < last ? k.blocks : last) * BLOCK_BYTES;
    uint32_t words = 0;
    if (!own.first) return;
    UNROLLED
    for (uint32_t i = 0; i < TOUCHED_BLOCKS * BLOCK_BYTES; i += fleet_wave_size() * 64) {
        const uint32_t at = HELD_BLOCKS * BLOCK_BYTES + i + fleet_lane() * 64;
        if (at < end) words |= load_word(own.first + k.first_k * TILE_N, at);
    }
    __asm__ volatile("" ::"v"(words)); /* the loads are not dead, and have returned */
}
FLEET_PREFETCH(linear, task_args)
{
    FLEET_UNUSED(at);
    hold_first(&ctx, args);
}
#define EXPERT_STREAMS(TILE_, P)
#define DECODER_DISPATCH(set, LIST, STREAMS)                                                       \
    FLEET_DISPATCH_WITH_REGISTERS(set, LIST, STREAMS, held_weights)

/* Arguments are read where they are. Which experts have rows is not known before the task's event. */
FLEET_DEVICE const task_args *own_args(const fleet_ctx *ctx, weight_source *source,
                                       const task_args *args)
{
    source->is_held = ctx->prefetched && args->epilogue != EPILOGUE_EXPERTS;
    source->held->tile = NULL;
    return args;
}
FLEET_DEVICE void multiply_begin(weight_source *source, const operand *in)
{
    FLEET_UNUSED(source), FLEET_UNUSED(in);
}
FLEET_DEVICE panel_range own_panels(const fleet_ctx *ctx, const task_args *task, uint32_t row_tiles)
{
    const held_weights *held = (const held_weights *)ctx->registers;
    panel_range range;
    if (!ctx->prefetched) return tiles_of_worker(task, ctx, row_tiles);
    range.first = held->first_tile, range.begin = range.first;
    range.end = held->end_tile, range.step = ctx->tile_num;
    return range;
}

/* ---- products ---- */

/* A lane's part of a block of weights and of the rows that it is multiplied by. */
typedef struct block {
    words4 weights, rows[MAX_ROW_LOADS];
} block;

/* Where these come from, counted from the wave's first block; the same in all lanes, except for the
   offsets of rows. */
typedef struct block_source {
    fleet_view weights;
    const act_t *x;
    uint32_t row_bytes[MAX_ROW_LOADS];
    uint32_t blocks;
} block_source;

/* After the last block, loads the last one again, which hits the cache. */
FLEET_DEVICE void load_rows(block *b, const block_source *from, uint32_t i, uint32_t loads)
{
    const act_t *x = from->x + (i < from->blocks ? i : from->blocks - 1) * BLOCK_K;
    UNROLLED
    for (uint32_t t = 0; t < loads; t++) b->rows[t] = load_words(x, from->row_bytes[t]);
    /* A scheduling barrier: loads return in the order of their issue, which has to be the order of
       the blocks. The compiler would gather them elsewhere and wait for all. */
    __builtin_amdgcn_sched_barrier(0);
}
FLEET_DEVICE void multiply_block(words4 weights, const block *b, uint32_t loads, sums4 *sum)
{
    UNROLLED
    for (uint32_t t = 0; t < loads; t++) sum[t] = add_block(weights, b->rows[t], sum[t]);
}

/* Multiplies the held blocks. If more follow (a constant of the caller), the first of these are
   being loaded at the end, in the order in which a loop over them loads the next. */
FLEET_DEVICE void multiply_held(const held_weights *held, block *b, const block_source *from,
                                uint32_t more, uint32_t loads, sums4 *sum)
{
    UNROLLED
    for (uint32_t i = 0; i < IN_FLIGHT(loads); i++) load_rows(&b[i], from, i, loads);
    UNROLLED
    for (uint32_t i = 0; i < HELD_BLOCKS; i++) {
        block *at = &b[i % IN_FLIGHT(loads)];
        const uint32_t next = i + IN_FLIGHT(loads);
        if (more || i < from->blocks) multiply_block(held->block[i], at, loads, sum);
        if (more && next >= HELD_BLOCKS)
            at->weights = load_weights(from->weights, next, from->blocks);
        if (more || next < HELD_BLOCKS) load_rows(at, from, next, loads);
    }
}

/* Multiplies the k's of a wave by `loads` times 16 rows; `loads` is a constant of the caller, so
   that blocks and sums stay in registers. With two bf16 terms, the second half of these rows are
   the low terms of the first half. partials: [MAX_ROWS][TILE_N]. */
FLEET_DEVICE void multiply_rows(const held_weights *held, const bf16 *weights, const operand *in,
                                wave_share k, uint32_t loads, float *partials)
{
    const uint32_t lane = fleet_lane(), low = wave_uniform(in->low);
    const uint32_t tiles = low ? loads / 2 : loads;
    block_source from;
    block b[IN_FLIGHT(1)];
    sums4 sum[MAX_ROW_LOADS];
    from.weights = fleet_view_of(weights + k.first_k * TILE_N);
    from.x = in->x + k.first_k;
    from.blocks = k.blocks;
    UNROLLED
    for (uint32_t t = 0; t < loads; t++) {
        /* Rows after the batch's last one repeat it; their sums are ignored. */
        const uint32_t i = t % tiles * MFMA_ROWS + lane % MFMA_ROWS;
        const uint32_t row = row_of(in, i < in->rows ? i : in->rows - 1);
        from.row_bytes[t] = ((t < tiles ? 0 : low) + row * in->k + lane / MFMA_ROWS * VECTOR) * 2;
        sum[t] = (sums4)(0.0f);
    }
    __builtin_amdgcn_s_waitcnt(NO_LDS_PENDING);
    if (k.blocks > HELD_BLOCKS) {
        uint32_t first = HELD_BLOCKS;
        multiply_held(held, b, &from, 1, loads, sum);
        for (; first + IN_FLIGHT(loads) < k.blocks; first += IN_FLIGHT(loads)) {
            UNROLLED
            for (uint32_t i = 0; i < IN_FLIGHT(loads); i++) {
                const uint32_t next = first + IN_FLIGHT(loads) + i;
                multiply_block(b[i].weights, &b[i], loads, sum);
                b[i].weights = load_weights(from.weights, next, k.blocks);
                load_rows(&b[i], &from, next, loads);
            }
        }
        UNROLLED
        for (uint32_t i = 0; i < IN_FLIGHT(loads); i++)
            if (first + i < k.blocks) multiply_block(b[i].weights, &b[i], loads, sum);
    } else if (k.blocks) {
        multiply_held(held, b, &from, 0, loads, sum);
    }
    if (tiles < loads) {
        UNROLLED
        for (uint32_t t = 0; t < loads / 2; t++) sum[t] += sum[t + loads / 2];
    }
    UNROLLED
    for (uint32_t t = 0; t < loads; t++) {
        const uint32_t row = t * MFMA_ROWS + lane % MFMA_ROWS;
        if (t < tiles)
            memcpy(partials + row * TILE_N + lane / MFMA_ROWS * 4, &sum[t], sizeof sum[t]);
    }
}

/* The weights are a tile's, block after block. */
FLEET_DEVICE fleet_status multiply(const fleet_ctx *ctx, weight_source *source, const bf16 *weights,
                                   const operand *in, const linear_lds *l)
{
    float *partials = l->partials + fleet_wave_id() * MAX_ROWS * TILE_N;
    const uint32_t tiles = ceil_div(wave_uniform(in->rows), MFMA_ROWS);
    const uint32_t loads = wave_uniform(in->low) ? 2 * tiles : tiles;
    const wave_share k = share_of_wave(in->k);
    if (!source->is_held) hold_weights(source->held, weights, k);
    if (loads <= 1)
        multiply_rows(source->held, weights, in, k, 1, partials);
    else if (loads <= 2)
        multiply_rows(source->held, weights, in, k, 2, partials);
    else if (loads <= 4)
        multiply_rows(source->held, weights, in, k, 4, partials);
    else
        multiply_rows(source->held, weights, in, k, MAX_ROW_LOADS, partials);
    source->is_held = source->next != NULL;
    if (source->next) hold_weights(source->held, source->next, k);
    reduce_partials(ctx, l, in->rows);
    return FLEET_OK;
}
FLEET_DEVICE fleet_status multiply_experts(const fleet_ctx *ctx, weight_source *source,
                                           const task_args *task, uint32_t n, linear_lds *l,
                                           uint32_t rows)
{
    return multiply_each_expert(ctx, source, task, n, l, rows, multiply);
}

/* ---- norms ---- */

/* The value of the lane whose number differs in this bit. The lane's number is hidden from the
   compiler, which would compute the addresses of the exchange before the worker loop and keep them
   in registers. */
FLEET_DEVICE float shuffle_xor(float value, uint32_t bit)
{
    uint32_t lane = fleet_lane();
    int bits;
    __asm__ volatile("" : "+v"(lane));
    memcpy(&bits, &value, sizeof bits);
    bits = __builtin_amdgcn_ds_bpermute((int)((lane ^ bit) * 4), bits);
    memcpy(&value, &bits, sizeof value);
    return value;
}
/* The sum over LANES_PER_ROW lanes, by rotations of a row of lanes. */
FLEET_DEVICE float row_sum(float value)
{
#define ADD_ROTATED(control)                                                                       \
    {                                                                                              \
        int bits;                                                                                  \
        float other;                                                                               \
        memcpy(&bits, &value, sizeof bits);                                                        \
        bits = __builtin_amdgcn_update_dpp(0, bits, control, 0xf, 0xf, 0);                         \
        memcpy(&other, &bits, sizeof other);                                                       \
        value += other;                                                                            \
    }
    ADD_ROTATED(0x128) /* row_ror:8 */
    ADD_ROTATED(0x124)
    ADD_ROTATED(0x122)
    ADD_ROTATED(0x121)
#undef ADD_ROTATED
    return value;
}

/* The squares come from the tiles that computed x. LANES_PER_ROW lanes add up those of a row, four tiles with each load; a
   wave has SCALED_ROWS rows at a time, so that their loads overlap. */
#define SCALED_ROWS 8u
#define WAVE_ROWS (64u / LANES_PER_ROW) /* rows of a load */
#define SCALED_LOADS 4u                 /* of a lane and a row at a time: 256 tiles */
FLEET_DEVICE void rms_scales(const fleet_ctx *ctx, const task_args *task, const linear_lds *l,
                             uint32_t rows)
{
    const decoder *d = &task->d;
    const uint32_t tiles = d->hidden / TILE_N, vectors = tiles / 4,
                   lane = fleet_lane() % LANES_PER_ROW, own = fleet_lane() / LANES_PER_ROW,
                   begin = tile_row_of(l), end = begin + rows;
    FLEET_UNUSED(ctx);
    for (uint32_t first = begin + wave_uniform(fleet_wave_id()) * SCALED_ROWS; first < end;
         first += SCALED_ROWS * WAVES) {
        float sum[SCALED_ROWS / WAVE_ROWS] = {0};
        uint32_t at[SCALED_ROWS / WAVE_ROWS];
        UNROLLED
        for (uint32_t i = 0; i < SCALED_ROWS / WAVE_ROWS; i++) {
            const uint32_t row = first + i * WAVE_ROWS + own;
            at[i] = (row < end ? row : end - 1) * tiles * 4;
        }
        for (uint32_t v = lane; task->rmsnorm && v < vectors; v += LANES_PER_ROW * SCALED_LOADS) {
            floats4 some[SCALED_ROWS / WAVE_ROWS][SCALED_LOADS];
            UNROLLED
            for (uint32_t n = 0; n < SCALED_ROWS / WAVE_ROWS * SCALED_LOADS; n++) {
                const uint32_t i = n / SCALED_LOADS, k = n % SCALED_LOADS,
                               next = v + k * LANES_PER_ROW;
                some[i][k] = load_floats(d->squares, at[i] + (next < vectors ? next : v) * 16);
            }
            UNROLLED
            for (uint32_t n = 0; n < SCALED_ROWS / WAVE_ROWS * SCALED_LOADS; n++) {
                const uint32_t i = n / SCALED_LOADS, k = n % SCALED_LOADS;
                const floats4 x = some[i][k];
                if (v + k * LANES_PER_ROW < vectors) sum[i] += (x[0] + x[1]) + (x[2] + x[3]);
            }
        }
        UNROLLED
        for (uint32_t i = 0; i < SCALED_ROWS / WAVE_ROWS; i++) {
            const uint32_t row = first + i * WAVE_ROWS + own;
            if (task->rmsnorm && vectors * 4 + lane < tiles)
                sum[i] += d->squares[at[i] / 4 + vectors * 4 + lane];
            sum[i] = row_sum(sum[i]);
            if (lane == 0 && row < end)
                l->scale[row] = task->rmsnorm ? rms_scale(sum[i] / (float)d->hidden + d->eps) : 1;
        }
    }
}

/* ---- attention ---- */

FLEET_DEVICE uint32_t lds_add(uint32_t *at, uint32_t value)
{
    return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}

/* Rounds to the nearest finite f16; NaN stays NaN, which fminf and fmaxf would turn into a number. */
FLEET_DEVICE kv_t kv_of_float(float f)
{
    const _Float16 half = (_Float16)(f != f ? f : fminf(fmaxf(f, -65504.0f), 65504.0f));
    kv_t bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}
/* A page of a head: its keys, row after row, then its values, of which those of four rows at the same element are
   neighbours: a lane loads them as an operand of a matrix instruction. */
FLEET_HOST_DEVICE uint32_t page_size(const decoder *d)
{
    return 2 * PAGE_TOKENS * d->head_dim;
}
FLEET_HOST_DEVICE uint32_t key_at(const decoder *d, uint32_t row, uint32_t i)
{
    return row * d->head_dim + i;
}
FLEET_HOST_DEVICE uint32_t value_at(const decoder *d, uint32_t row, uint32_t i)
{
    return (PAGE_TOKENS + row / 4 * 4) * d->head_dim + i * 4 + row % 4;
}

#endif /* QWEN3_BACKEND_AMD_H */
