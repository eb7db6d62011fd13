/* backend_host.h: products on the CPU, with the vectors of the compiler: GCC and Clang make of them what the machine has.
   A block of packed weights is k after k, TILE columns each, so that a vector of sums has a column in each element. */
#ifndef QWEN3_BACKEND_HOST_H
#define QWEN3_BACKEND_HOST_H

#include "backend_in_place.h"

typedef float floats16 __attribute__((vector_size(64)));
typedef uint32_t words16 __attribute__((vector_size(64)));
typedef uint16_t halves16 __attribute__((vector_size(32)));

FLEET_BOTH uint32_t pack_at(uint32_t column, uint32_t k, uint32_t piece_k)
{
    FLEET_UNUSED(piece_k);
    return k * TILE + column;
}

FLEET_BOTH size_t weight_at(uint32_t column, uint32_t k, uint32_t wide, uint32_t piece_k)
{
    FLEET_UNUSED(wide);
    return k / BLOCK * BLOCK * TILE + pack_at(column, k % BLOCK, piece_k);
}

FLEET_DEVICE void load_weights(const bf16 *from, floats16 *to)
{
    halves16 half;
    words16 bits;
    memcpy(&half, from, sizeof half);
    bits = __builtin_convertvector(half, words16) << 16;
    memcpy(to, &bits, sizeof bits);
}

#define AHEAD 64u /* k's, 2 KB */

/* Even and odd k's apart: two chains of additions. The same order for any number of rows. */
FLEET_DEVICE void multiply_rows(const bf16 *weights, const float *const *x, uint32_t rows,
                                fleet_k_range k, floats16 *sum)
{
    floats16 even[2], odd[2];
    memset(even, 0, sizeof even);
    memset(odd, 0, sizeof odd);
    for (uint32_t i = k.first; i < k.first + k.count; i += 2) {
        floats16 a, b;
        __builtin_prefetch(weights + (i + AHEAD) * TILE); /* the hardware's own stops at pages */
        load_weights(weights + i * TILE, &a);
        load_weights(weights + (i + 1) * TILE, &b);
        for (uint32_t r = 0; r < rows; r++) {
            even[r] += x[r][i] * a;
            odd[r] += x[r][i + 1] * b;
        }
    }
    for (uint32_t r = 0; r < rows; r++) sum[r] = even[r] + odd[r];
}

/* The sums of `in` and a tile to l->sums. weights: the tile's, [k][TILE]. */
FLEET_DEVICE fleet_status multiply(const fleet_ctx *ctx, weight_source *source, const bf16 *weights,
                                   const operand *in, const product_lds *l)
{
    float *parts = l->parts + fleet_wave_id() * MOST_ROWS * TILE;
    fleet_k_range all, k;
    FLEET_UNUSED(source);
    all.first = 0, all.count = in->k;
    k = fleet_cut_k(all, BLOCK, fleet_wave_id(), ctx->threads);
    for (uint32_t i = 0; i < in->rows; i += 2) {
        const float *x[2];
        floats16 sum[2];
        x[0] = in->x + (size_t)row_of(in, i) * in->k;
        if (i + 1 < in->rows) {
            x[1] = in->x + (size_t)row_of(in, i + 1) * in->k;
            multiply_rows(weights, x, 2, k, sum);
            memcpy(parts + i * TILE, sum, sizeof sum);
        } else {
            multiply_rows(weights, x, 1, k, sum);
            memcpy(parts + i * TILE, sum, sizeof sum[0]);
        }
    }
    add_parts(ctx, l, in->rows);
    return FLEET_OK;
}

FLEET_DEVICE kept kept_of(float f)
{
    return f;
}
/* Of queries and keys; n: a multiple of EIGHT. */
FLEET_DEVICE float dot(const float *a, const float *b, uint32_t n)
{
    float sum[EIGHT] = {0}, all = 0;
    for (uint32_t i = 0; i < n; i += EIGHT)
        for (uint32_t j = 0; j < EIGHT; j++) sum[j] += a[i + j] * b[i + j];
    for (uint32_t j = 0; j < EIGHT; j++) all += sum[j];
    return all;
}
FLEET_DEVICE void add_eight(float *sum, float weight, const float *values)
{
    for (uint32_t j = 0; j < EIGHT; j++) sum[j] += weight * values[j];
}

#endif /* QWEN3_BACKEND_HOST_H */
