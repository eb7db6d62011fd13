/* backend_host.h: products on the CPU, with the compiler's vectors, which GCC and Clang map to the machine's. A block of
   packed weights is k after k, TILE_N columns each: a vector of sums has one column in each element. */
#ifndef QWEN3_BACKEND_HOST_H
#define QWEN3_BACKEND_HOST_H

#include "backend_in_place.h"

#define ROLLED

struct weight_source {
    uint32_t none;
};
FLEET_DEVICE weight_source weights_open(const fleet_ctx *ctx)
{
    weight_source w;
    FLEET_UNUSED(ctx);
    w.none = 0;
    return w;
}
FLEET_DEVICE void weights_next(weight_source *source, const bf16 *weights)
{
    FLEET_UNUSED(source), FLEET_UNUSED(weights);
}
#define DECODER_DISPATCH(set, LIST, STREAMS) FLEET_DISPATCH(set, LIST)

/* Arguments are read where they are. */
FLEET_DEVICE const task_args *own_args(const fleet_ctx *ctx, weight_source *source,
                                       const task_args *args)
{
    FLEET_UNUSED(ctx), FLEET_UNUSED(source);
    return args;
}
FLEET_DEVICE void multiply_begin(weight_source *source, const operand *in)
{
    FLEET_UNUSED(source), FLEET_UNUSED(in);
}

typedef float floats16 __attribute__((vector_size(64)));
typedef uint32_t words16 __attribute__((vector_size(64)));
typedef uint16_t halves16 __attribute__((vector_size(32)));

FLEET_HOST_DEVICE uint32_t pack_at(uint32_t column, uint32_t k, uint32_t inner_k)
{
    FLEET_UNUSED(inner_k);
    return k * TILE_N + column;
}

FLEET_HOST_DEVICE size_t weight_at(uint32_t column, uint32_t k, uint32_t panel_tiles,
                                   uint32_t inner_k)
{
    FLEET_UNUSED(panel_tiles);
    return k / BLOCK_K * BLOCK_K * TILE_N + pack_at(column, k % BLOCK_K, inner_k);
}

FLEET_DEVICE void load_weights(const bf16 *from, floats16 *to)
{
    halves16 half;
    words16 bits;
    memcpy(&half, from, sizeof half);
    bits = __builtin_convertvector(half, words16) << 16;
    memcpy(to, &bits, sizeof bits);
}

#define PREFETCH_K 64u /* k's, 2 KB */

/* Even and odd k's have sums of their own, which makes two chains of additions. The order is the
   same for any number of rows. */
FLEET_DEVICE void multiply_rows(const bf16 *weights, const float *const *x, uint32_t rows,
                                fleet_k_range k, floats16 *sum)
{
    floats16 even[2], odd[2];
    memset(even, 0, sizeof even);
    memset(odd, 0, sizeof odd);
    for (uint32_t i = k.first; i < k.first + k.count; i += 2) {
        floats16 a, b;
        /* The hardware prefetcher stops at page ends. */
        __builtin_prefetch(weights + (i + PREFETCH_K) * TILE_N);
        load_weights(weights + i * TILE_N, &a);
        load_weights(weights + (i + 1) * TILE_N, &b);
        for (uint32_t r = 0; r < rows; r++) {
            even[r] += x[r][i] * a;
            odd[r] += x[r][i + 1] * b;
        }
    }
    for (uint32_t r = 0; r < rows; r++) sum[r] = even[r] + odd[r];
}

/* The weights are a tile's, [k][TILE_N]. */
FLEET_DEVICE fleet_status multiply(const fleet_ctx *ctx, weight_source *source, const bf16 *weights,
                                   const operand *in, const linear_lds *l)
{
    float *partials = l->partials + fleet_wave_id() * MAX_ROWS * TILE_N;
    fleet_k_range all, k;
    FLEET_UNUSED(source);
    all.first = 0, all.count = in->k;
    k = fleet_split_k(all, BLOCK_K, fleet_wave_id(), ctx->threads);
    for (uint32_t i = 0; i < in->rows; i += 2) {
        const float *x[2];
        floats16 sum[2];
        x[0] = in->x + (size_t)row_of(in, i) * in->k;
        if (i + 1 < in->rows) {
            x[1] = in->x + (size_t)row_of(in, i + 1) * in->k;
            multiply_rows(weights, x, 2, k, sum);
            memcpy(partials + i * TILE_N, sum, sizeof sum);
        } else {
            multiply_rows(weights, x, 1, k, sum);
            memcpy(partials + i * TILE_N, sum, sizeof sum[0]);
        }
    }
    reduce_partials(ctx, l, in->rows);
    return FLEET_OK;
}
FLEET_DEVICE fleet_status multiply_experts(const fleet_ctx *ctx, weight_source *source,
                                           const task_args *task, uint32_t n, linear_lds *l,
                                           uint32_t rows)
{
    return multiply_each_expert(ctx, source, task, n, l, rows, multiply);
}

/* The squares come from the tiles that computed x. */
FLEET_DEVICE void rms_scales(const fleet_ctx *ctx, const task_args *task, const linear_lds *l,
                             uint32_t rows)
{
    const decoder *d = &task->d;
    const uint32_t tiles = d->hidden / TILE_N, first = tile_row_of(l);
    if (task->rmsnorm)
        for (uint32_t i = ctx->thread; i < rows * LANES_PER_ROW; i += ctx->threads) {
            const uint32_t r = i / LANES_PER_ROW;
            float sum = 0;
            for (uint32_t t = i % LANES_PER_ROW; t < tiles; t += LANES_PER_ROW)
                sum += d->squares[(first + r) * tiles + t];
            l->sums[i] = sum;
        }
    fleet_barrier(ctx);
    for (uint32_t r = ctx->thread; r < rows; r += ctx->threads) {
        float sum = 0;
        for (uint32_t i = 0; i < LANES_PER_ROW; i++) sum += l->sums[r * LANES_PER_ROW + i];
        l->scale[first + r] = task->rmsnorm ? 1 / sqrtf(sum / (float)d->hidden + d->eps) : 1;
    }
    fleet_barrier(ctx);
}

FLEET_DEVICE uint32_t lds_add(uint32_t *at, uint32_t value)
{
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

FLEET_DEVICE kv_t kv_of_float(float f)
{
    return f;
}
/* n: a multiple of VECTOR. */
FLEET_DEVICE float dot(const float *a, const float *b, uint32_t n)
{
    float sum[VECTOR] = {0}, all = 0;
    for (uint32_t i = 0; i < n; i += VECTOR)
        for (uint32_t j = 0; j < VECTOR; j++) sum[j] += a[i + j] * b[i + j];
    for (uint32_t j = 0; j < VECTOR; j++) all += sum[j];
    return all;
}
FLEET_DEVICE void add_scaled_vectors(float *sum, const float *weights, const float *values,
                                     uint32_t stride, uint32_t keys)
{
    for (uint32_t key = 0; key < keys; key++)
        for (uint32_t j = 0; j < VECTOR; j++) sum[j] += weights[key] * values[key * stride + j];
}

#endif /* QWEN3_BACKEND_HOST_H */
