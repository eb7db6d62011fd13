/* backend_amd.h: products with the matrix instructions (MFMA) of MI200, MI300 and MI350.

   One instruction multiplies a block of weights by 16 rows of activations: a lane brings eight k's of one column and
   eight k's of one row, and receives the sums of its row in four columns. A block of packed weights is stored in lane
   order, so that a wave loads it from memory into registers with one 1 KB load. LDS is not involved, since no other wave
   needs the same weights. */
#ifndef QWEN3_BACKEND_AMD_H
#define QWEN3_BACKEND_AMD_H

#include "backend_in_place.h"

#define BLOCKS_IN_FLIGHT(loads)                                                                    \
    ((loads) < 4 ? 8u : (loads) < 8 ? 6u : 3u) /* blocks in flight, of 1 KB each */
#define MFMA_ROWS 16u
#define MAX_ROW_LOADS (2 * MAX_ROWS / MFMA_ROWS) /* loads of activations for one block */

#define UNROLLED _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")

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
FLEET_DEVICE fleet_quad load_quad(const act_t *base, uint32_t offset_bytes)
{
    const __attribute__((address_space(1))) char *at =
        (const __attribute__((address_space(1))) char *)base;
    const words4 v = *(const __attribute__((address_space(1))) words4 *)(at + offset_bytes);
    const fleet_quad quad = {{v.x, v.y, v.z, v.w}};
    return quad;
}

/* Adds the product of a block of weights and 16 rows. Any assignment of k's is right as long as
   both operands agree: where an instruction takes 16 k's instead of 32, a lane's first four go
   before its last four. */
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

/* A lane's part of a block of weights and of the rows that it is multiplied by. */
typedef struct block {
    fleet_quad weights, rows[MAX_ROW_LOADS];
} block;

/* Where these come from, counted from the wave's first block; the same in all lanes, except for the
   offsets of rows. */
typedef struct block_source {
    fleet_view weights, x;
    uint32_t row_bytes[MAX_ROW_LOADS];
    uint32_t blocks;
} block_source;

/* Tells the compiler that a value from memory is the same in all lanes. */
FLEET_DEVICE uint32_t wave_uniform(uint32_t value)
{
    return (uint32_t)__builtin_amdgcn_readfirstlane((int)value);
}

/* After the last block, loads the last one again, which hits the cache. */
FLEET_DEVICE block load_block(const block_source *from, uint32_t i, uint32_t loads)
{
    const uint32_t at = i < from->blocks ? i : from->blocks - 1;
    const act_t *x = (const act_t *)from->x.base + at * BLOCK_K;
    block b;
    b.weights =
        fleet_view_load_streaming16(from->weights, (at * fleet_wave_size() + fleet_lane()) * 16);
    UNROLLED
    for (uint32_t t = 0; t < loads; t++) b.rows[t] = load_quad(x, from->row_bytes[t]);
    /* A scheduling barrier: loads return in the order of their issue, which has to be the order of
       the blocks. The compiler would gather them elsewhere and wait for all. */
    __builtin_amdgcn_sched_barrier(0);
    return b;
}
FLEET_DEVICE void multiply_block(const block *b, uint32_t loads, sums4 *sum)
{
    UNROLLED
    for (uint32_t t = 0; t < loads; t++) sum[t] = add_block(b->weights, b->rows[t], sum[t]);
}

/* Multiplies the k's of a wave by `loads` times 16 rows; `loads` is a constant of the caller, so
   that blocks and sums stay in registers. With two bf16 terms, the second half of these rows are
   the low terms of the first half. As soon as a block is multiplied, its registers receive the
   block BLOCKS_IN_FLIGHT later. partials: [MAX_ROWS][TILE_N]. */
FLEET_DEVICE void multiply_rows(const bf16 *weights, const operand *in, uint32_t first_k,
                                uint32_t blocks, uint32_t loads, float *partials)
{
    const uint32_t lane = fleet_lane(), low = wave_uniform(in->low);
    const uint32_t tiles = low ? loads / 2 : loads;
    block_source from;
    block b[BLOCKS_IN_FLIGHT(1)];
    sums4 sum[MAX_ROW_LOADS];
    from.weights = fleet_view_of(weights + first_k * TILE_N);
    from.x = fleet_view_of(in->x + first_k);
    from.blocks = blocks;
    UNROLLED
    for (uint32_t t = 0; t < loads; t++) {
        /* Rows after the batch's last one repeat it; their sums are ignored. */
        const uint32_t i = t % tiles * MFMA_ROWS + lane % MFMA_ROWS;
        const uint32_t row = row_of(in, i < in->rows ? i : in->rows - 1);
        from.row_bytes[t] = ((t < tiles ? 0 : low) + row * in->k + lane / MFMA_ROWS * VECTOR) * 2;
        sum[t] = (sums4)(0.0f);
    }
    if (blocks) {
        uint32_t first = 0;
        __builtin_amdgcn_s_waitcnt(NO_LDS_PENDING);
        UNROLLED
        for (uint32_t i = 0; i < BLOCKS_IN_FLIGHT(loads); i++) b[i] = load_block(&from, i, loads);
        for (; first + BLOCKS_IN_FLIGHT(loads) < blocks; first += BLOCKS_IN_FLIGHT(loads)) {
            UNROLLED
            for (uint32_t i = 0; i < BLOCKS_IN_FLIGHT(loads); i++) {
                multiply_block(&b[i], loads, sum);
                b[i] = load_block(&from, first + BLOCKS_IN_FLIGHT(loads) + i, loads);
            }
        }
        UNROLLED
        for (uint32_t i = 0; i < BLOCKS_IN_FLIGHT(loads); i++)
            if (first + i < blocks) multiply_block(&b[i], loads, sum);
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
    const uint32_t wave = fleet_wave_id(), waves = ctx->threads / fleet_wave_size();
    const uint32_t tiles = ceil_div(wave_uniform(in->rows), MFMA_ROWS);
    const uint32_t loads = wave_uniform(in->low) ? 2 * tiles : tiles;
    fleet_k_range k;
    uint32_t blocks;
    FLEET_UNUSED(source);
    k.first = 0, k.count = in->k;
    k = fleet_split_k(k, BLOCK_K, wave, waves);
    k.first = wave_uniform(k.first), blocks = wave_uniform(k.count / BLOCK_K);
    if (loads <= 1)
        multiply_rows(weights, in, k.first, blocks, 1, partials);
    else if (loads <= 2)
        multiply_rows(weights, in, k.first, blocks, 2, partials);
    else if (loads <= 4)
        multiply_rows(weights, in, k.first, blocks, 4, partials);
    else
        multiply_rows(weights, in, k.first, blocks, MAX_ROW_LOADS, partials);
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

/* Adds up over the lanes of a wave; all lanes receive the sum. The lane's number is hidden from the
   compiler, which would compute the addresses of the exchange before the worker loop and keep them
   in registers. */
FLEET_DEVICE float wave_sum(float value)
{
    uint32_t lane = fleet_lane();
    __asm__ volatile("" : "+v"(lane));
    for (uint32_t bit = fleet_wave_size() / 2; bit; bit /= 2) {
        int bits;
        float other;
        memcpy(&bits, &value, sizeof bits);
        bits = __builtin_amdgcn_ds_bpermute((int)((lane ^ bit) * 4), bits);
        memcpy(&other, &bits, sizeof other);
        value += other;
    }
    return value;
}

/* A wave takes SCALED_ROWS rows at a time, so that their loads overlap. The squares come from the
   tiles that computed x. */
#define SCALED_ROWS 4u
FLEET_DEVICE void rms_scales(const fleet_ctx *ctx, const task_args *task, const linear_lds *l,
                             uint32_t rows)
{
    const decoder *d = &task->d;
    const uint32_t tiles = d->hidden / TILE_N, lane = fleet_lane();
    FLEET_UNUSED(ctx);
    for (uint32_t first = wave_uniform(fleet_wave_id()) * SCALED_ROWS; first < rows;
         first += SCALED_ROWS * (THREADS / fleet_wave_size())) {
        float sum[SCALED_ROWS] = {0};
        for (uint32_t t = lane; task->rmsnorm && t < tiles; t += fleet_wave_size()) {
            UNROLLED
            for (uint32_t i = 0; i < SCALED_ROWS; i++)
                sum[i] += d->squares[(first + i < rows ? first + i : first) * tiles + t];
        }
        UNROLLED
        for (uint32_t i = 0; i < SCALED_ROWS; i++) {
            sum[i] = wave_sum(sum[i]);
            if (lane == 0 && first + i < rows)
                l->scale[first + i] =
                    task->rmsnorm ? 1 / sqrtf(sum[i] / (float)d->hidden + d->eps) : 1;
        }
    }
}

/* ---- attention ---- */

/* Rounds to the nearest finite f16; NaN stays NaN, which fminf and fmaxf would turn into a number. */
FLEET_DEVICE uint32_t lds_add(uint32_t *at, uint32_t value)
{
    return __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}

FLEET_DEVICE kv_t kv_of_float(float f)
{
    const _Float16 half = (_Float16)(f != f ? f : fminf(fmaxf(f, -65504.0f), 65504.0f));
    kv_t bits;
    memcpy(&bits, &half, sizeof bits);
    return bits;
}
/* Converts VECTOR keys or values. */
FLEET_DEVICE void load_vector(const kv_t *from, float *to)
{
    const fleet_quad quad = load_quad(from, 0);
    _Float16 half[VECTOR];
    memcpy(half, &quad, sizeof half);
    UNROLLED
    for (uint32_t j = 0; j < VECTOR; j++) to[j] = (float)half[j];
}

/* n: a multiple of VECTOR; the query is in LDS. */
FLEET_DEVICE float dot(const float *a, const kv_t *b, uint32_t n)
{
    float sum[VECTOR] = {0}, all = 0;
    for (uint32_t i = 0; i < n; i += VECTOR) {
        float key[VECTOR];
        load_vector(b + i, key);
        UNROLLED
        for (uint32_t j = 0; j < VECTOR; j++) sum[j] += a[i + j] * key[j];
    }
    UNROLLED
    for (uint32_t j = 0; j < VECTOR; j++) all += sum[j];
    return all;
}
FLEET_DEVICE void add_scaled_vector(float *sum, float weight, const kv_t *values)
{
    float value[VECTOR];
    load_vector(values, value);
    UNROLLED
    for (uint32_t j = 0; j < VECTOR; j++) sum[j] += weight * value[j];
}

#endif /* QWEN3_BACKEND_AMD_H */
