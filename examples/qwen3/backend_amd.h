/* backend_amd.h: products with the matrix instructions (MFMA) of MI200, MI300 and MI350. One multiplies a block of weights
   by 16 rows of activations; a lane gives it eight k's of one column and eight of one row, and gets the sums of its row
   in four columns. A block of packed weights is what its lanes take, one behind the other, so that a wave loads it
   from memory into registers at once, 1 KB. LDS is not involved: no other wave needs the same weights. */
#ifndef QWEN3_BACKEND_AMD_H
#define QWEN3_BACKEND_AMD_H

#include "backend_in_place.h"

#define AHEAD(loads)                                                                               \
    ((loads) < 4 ? 8u : (loads) < 8 ? 6u : 3u) /* blocks that a wave has on their way, and so KB */
#define INSTRUCTION_ROWS 16u
#define MOST_LOADS (2 * MOST_ROWS / INSTRUCTION_ROWS) /* of activations, for a block */

#define UNROLLED _Pragma("unroll")

/* s_waitcnt lgkmcnt(0), and for nothing else (gfx9). Tiles reach through pointers of which the compiler does not know that
   they are not to LDS; while such an access may be pending it counts no loads, but waits for all. */
#define NO_LDS_PENDING 0xc07f

typedef float sums4 __attribute__((ext_vector_type(4)));
typedef uint32_t words4 __attribute__((ext_vector_type(4), may_alias));

/* Lane 16 i + c has k's 8 i to 8 i + 7 of column c. */
FLEET_BOTH uint32_t pack_at(uint32_t column, uint32_t k, uint32_t piece_k)
{
    FLEET_UNUSED(piece_k);
    return (k / EIGHT * TILE + column) * EIGHT + k % EIGHT;
}

FLEET_BOTH size_t weight_at(uint32_t column, uint32_t k, uint32_t wide, uint32_t piece_k)
{
    FLEET_UNUSED(wide);
    return k / BLOCK * BLOCK * TILE + pack_at(column, k % BLOCK, piece_k);
}

/* Sixteen bytes of device memory, at an offset from an address that is the same in all lanes. Said to be there, so that
   it is no flat load, behind which the wave would have to wait for everything that is on its way. */
FLEET_DEVICE fleet_quad load_quad(const act *base, uint32_t offset_bytes)
{
    const __attribute__((address_space(1))) char *at =
        (const __attribute__((address_space(1))) char *)base;
    const words4 v = *(const __attribute__((address_space(1))) words4 *)(at + offset_bytes);
    const fleet_quad quad = {{v.x, v.y, v.z, v.w}};
    return quad;
}

/* Adds the product of a block of weights and 16 rows. Which k is which does not matter to the instructions, as long as
   both operands agree: where they take 16 k's rather than 32, a lane's first four go before its last. */
FLEET_DEVICE sums4 add_block(fleet_quad weights, fleet_quad rows, sums4 sum)
{
#if defined(__gfx950__)
    typedef __bf16 operand8 __attribute__((ext_vector_type(8)));
    operand8 w, x;
    memcpy(&w, &weights, sizeof w);
    memcpy(&x, &rows, sizeof x);
    return __builtin_amdgcn_mfma_f32_16x16x32_bf16(w, x, sum, 0, 0, 0);
#else
    typedef short operand4 __attribute__((ext_vector_type(4)));
    operand4 w[2], x[2];
    memcpy(w, &weights, sizeof w);
    memcpy(x, &rows, sizeof x);
    sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(w[0], x[0], sum, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(w[1], x[1], sum, 0, 0, 0);
#endif
}

/* A block of weights, and the rows that it is multiplied by: what a lane has of them. */
typedef struct block {
    fleet_quad weights, rows[MOST_LOADS];
} block;

/* Where they lie, from the wave's first block on; the same in all lanes, but for the offsets of rows. */
typedef struct block_source {
    fleet_view weights, x;
    uint32_t row_bytes[MOST_LOADS];
    uint32_t blocks;
} block_source;

/* What is the same in all lanes, which the compiler does not know of a value from memory. */
FLEET_DEVICE uint32_t of_wave(uint32_t value)
{
    return (uint32_t)__builtin_amdgcn_readfirstlane((int)value);
}

/* Behind the last block comes the last one again, from the cache. */
FLEET_DEVICE block load_block(const block_source *from, uint32_t i, uint32_t loads)
{
    const uint32_t at = i < from->blocks ? i : from->blocks - 1;
    const act *x = (const act *)from->x.base + at * BLOCK;
    block b;
    b.weights =
        fleet_view_load_streaming16(from->weights, (at * fleet_wave_size() + fleet_lane()) * 16);
    UNROLLED
    for (uint32_t t = 0; t < loads; t++) b.rows[t] = load_quad(x, from->row_bytes[t]);
    /* Nothing is moved past here. Loads are waited for in the order in which they were begun, which has to be that of
       the blocks: the compiler would collect them elsewhere, and wait for all. */
    __builtin_amdgcn_sched_barrier(0);
    return b;
}
FLEET_DEVICE void multiply_block(const block *b, uint32_t loads, sums4 *sum)
{
    UNROLLED
    for (uint32_t t = 0; t < loads; t++) sum[t] = add_block(b->weights, b->rows[t], sum[t]);
}

/* `loads` times 16 rows with the k's of a wave; a constant of the caller's, so that blocks and sums are registers. Where
   activations are two bf16 each, the second half of these rows are the second ones of the first half. As soon as a block
   is multiplied, its registers take the one that comes AHEAD behind it. parts: [MOST_ROWS][TILE]. */
FLEET_DEVICE void multiply_rows(const bf16 *weights, const operand *in, uint32_t first_k,
                                uint32_t blocks, uint32_t loads, float *parts)
{
    const uint32_t lane = fleet_lane(), second = of_wave(in->second);
    const uint32_t tiles = second ? loads / 2 : loads;
    block_source from;
    block b[AHEAD(1)];
    sums4 sum[MOST_LOADS];
    from.weights = fleet_view_of(weights + first_k * TILE);
    from.x = fleet_view_of(in->x + first_k);
    from.blocks = blocks;
    UNROLLED
    for (uint32_t t = 0; t < loads; t++) {
        /* Rows behind the batch are its last one again: nobody looks at their sums. */
        const uint32_t i = t % tiles * INSTRUCTION_ROWS + lane % INSTRUCTION_ROWS;
        const uint32_t row = row_of(in, i < in->rows ? i : in->rows - 1);
        from.row_bytes[t] =
            ((t < tiles ? 0 : second) + row * in->k + lane / INSTRUCTION_ROWS * EIGHT) * 2;
        sum[t] = (sums4)(0.0f);
    }
    if (blocks) {
        uint32_t first = 0;
        __builtin_amdgcn_s_waitcnt(NO_LDS_PENDING);
        UNROLLED
        for (uint32_t i = 0; i < AHEAD(loads); i++) b[i] = load_block(&from, i, loads);
        for (; first + AHEAD(loads) < blocks; first += AHEAD(loads)) {
            UNROLLED
            for (uint32_t i = 0; i < AHEAD(loads); i++) {
                multiply_block(&b[i], loads, sum);
                b[i] = load_block(&from, first + AHEAD(loads) + i, loads);
            }
        }
        UNROLLED
        for (uint32_t i = 0; i < AHEAD(loads); i++)
            if (first + i < blocks) multiply_block(&b[i], loads, sum);
    }
    if (tiles < loads) {
        UNROLLED
        for (uint32_t t = 0; t < loads / 2; t++) sum[t] += sum[t + loads / 2];
    }
    UNROLLED
    for (uint32_t t = 0; t < loads; t++) {
        const uint32_t row = t * INSTRUCTION_ROWS + lane % INSTRUCTION_ROWS;
        if (t < tiles)
            memcpy(parts + row * TILE + lane / INSTRUCTION_ROWS * 4, &sum[t], sizeof sum[t]);
    }
}

/* The sums of `in` and a tile to l->sums. weights: the tile's, block after block. */
FLEET_DEVICE fleet_status multiply(const fleet_ctx *ctx, weight_source *source, const bf16 *weights,
                                   const operand *in, const product_lds *l)
{
    float *parts = l->parts + fleet_wave_id() * MOST_ROWS * TILE;
    const uint32_t wave = fleet_wave_id(), waves = ctx->threads / fleet_wave_size();
    const uint32_t tiles = ceil_div(of_wave(in->rows), INSTRUCTION_ROWS);
    const uint32_t loads = of_wave(in->second) ? 2 * tiles : tiles;
    fleet_k_range k;
    uint32_t blocks;
    FLEET_UNUSED(source);
    k.first = 0, k.count = in->k;
    k = fleet_cut_k(k, BLOCK, wave, waves);
    k.first = of_wave(k.first), blocks = of_wave(k.count / BLOCK);
    if (loads <= 1)
        multiply_rows(weights, in, k.first, blocks, 1, parts);
    else if (loads <= 2)
        multiply_rows(weights, in, k.first, blocks, 2, parts);
    else if (loads <= 4)
        multiply_rows(weights, in, k.first, blocks, 4, parts);
    else
        multiply_rows(weights, in, k.first, blocks, MOST_LOADS, parts);
    add_parts(ctx, l, in->rows);
    return FLEET_OK;
}

/* ---- attention ---- */

/* The nearest f16 that is finite; of NaN, NaN, which fminf and fmaxf would turn into a number. */
FLEET_DEVICE kept kept_of(float f)
{
    const _Float16 half = (_Float16)(f != f ? f : fminf(fmaxf(f, -65504.0f), 65504.0f));
    kept bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}
/* Eight keys or values. */
FLEET_DEVICE void load_eight(const kept *from, float *to)
{
    const fleet_quad quad = load_quad(from, 0);
    _Float16 half[EIGHT];
    memcpy(half, &quad, sizeof half);
    UNROLLED
    for (uint32_t j = 0; j < EIGHT; j++) to[j] = (float)half[j];
}

/* Of a query, in LDS, and a key; n: a multiple of EIGHT. */
FLEET_DEVICE float dot(const float *a, const kept *b, uint32_t n)
{
    float sum[EIGHT] = {0}, all = 0;
    for (uint32_t i = 0; i < n; i += EIGHT) {
        float key[EIGHT];
        load_eight(b + i, key);
        UNROLLED
        for (uint32_t j = 0; j < EIGHT; j++) sum[j] += a[i + j] * key[j];
    }
    UNROLLED
    for (uint32_t j = 0; j < EIGHT; j++) all += sum[j];
    return all;
}
FLEET_DEVICE void add_eight(float *sum, float weight, const kept *values)
{
    float value[EIGHT];
    load_eight(values, value);
    UNROLLED
    for (uint32_t j = 0; j < EIGHT; j++) sum[j] += weight * value[j];
}

#endif /* QWEN3_BACKEND_AMD_H */
