/* backend_nvidia.h: the rest of what tasks/backend.h asks of the NVIDIA backend: vectors, the residual, norms. Products are in
   nvidia/mma.h, the weight pipeline in nvidia/pipeline.h, the layout of the cache in nvidia/kv_block.h. */
#ifndef QWEN3_BACKEND_NVIDIA_H
#define QWEN3_BACKEND_NVIDIA_H

#include "nvidia/kv_block.h"
#include "nvidia/mma.h"

#define OUTLINED NOINLINE_DEVICE
#define SAME_ORDER_ROWS (MAX_ROW_GROUPS * FRAGMENT_ROWS)

FLEET_DEVICE void store_act4(act_t *to, const act_t *values)
{
    act4 together;
    for (uint32_t i = 0; i < 4; i++) together.value[i] = values[i];
    *(act4 *)(void *)to = together;
}
typedef struct __attribute__((aligned(8))) vec2 {
    float value[2];
} vec2;

FLEET_DEVICE vec2 load_vec2(const float *from)
{
    return *(const vec2 *)(const void *)from;
}
FLEET_DEVICE void store_vec2(float *to, float first, float second)
{
    vec2 together;
    together.value[0] = first, together.value[1] = second;
    *(vec2 *)(void *)to = together;
}

/* The copies run while the sums are added up; copy_async_wait and a barrier complete them. LDS has
   room for l->prefetched_rows rows; with more, the residual stays in memory. */
FLEET_DEVICE void prefetch_residual(const fleet_ctx *ctx, const task_args *task,
                                    const linear_lds *l, uint32_t column, uint32_t columns,
                                    uint32_t rows)
{
    const uint32_t left = task->d.hidden - column, quads = (left < columns ? left : columns) / 4;
    for (uint32_t i = ctx->thread; i < (rows + 1) * TILE_N; i += ctx->threads) {
        const uint32_t r = i / TILE_N, q = i % TILE_N;
        const float *from = r < rows ? task->d.h + r * task->d.hidden : task->norm;
        if (q < quads)
            copy_async16(lds_address(l->prefetched + r * l->prefetched_stride + q * 4),
                         from + column + q * 4);
    }
}

/* Scales: a wave takes SCALED_ROWS rows at a time and overlaps their loads. */
#define SCALED_ROWS 2u       /* rows that a warp takes at a time */
#define MAX_SCALED_ROWS 8u   /* rows that the norm warp takes */
#define SQUARES_IN_FLIGHT 8u /* loads of each row */
/* Scales `scaled_rows` rows at a time, from `first` on; `waves` warps take turns. The squares come
   from the tiles that computed x. */
FLEET_DEVICE void rms_scale_rows(const task_args *task, const linear_lds *l, uint32_t first,
                                 uint32_t rows, uint32_t waves, const uint32_t scaled_rows)
{
    const decoder *d = &task->d;
    const uint32_t tiles = d->hidden / TILE_N, lane = fleet_lane();
    for (; first < rows; first += scaled_rows * waves) {
        float sum[MAX_SCALED_ROWS] = {0};
        for (uint32_t t = fleet_lane(); task->rmsnorm && t < tiles;
             t += SQUARES_IN_FLIGHT * fleet_wave_size()) {
            float square[MAX_SCALED_ROWS * SQUARES_IN_FLIGHT];
            UNROLLED
            for (uint32_t i = 0; i < scaled_rows * SQUARES_IN_FLIGHT; i++) {
                const uint32_t r = first + i / SQUARES_IN_FLIGHT,
                               at = t + i % SQUARES_IN_FLIGHT * fleet_wave_size();
                square[i] = r < rows && at < tiles ? d->squares[r * tiles + at] : 0;
            }
            UNROLLED
            for (uint32_t i = 0; i < scaled_rows * SQUARES_IN_FLIGHT; i++)
                sum[i / SQUARES_IN_FLIGHT] += square[i];
        }
        /* Reduces all rows together, since shuffles have a long latency; afterwards lane i holds
           row i. */
        UNROLLED
        for (uint32_t bit = fleet_wave_size() / 2; bit; bit /= 2) {
            UNROLLED
            for (uint32_t i = 0; i < scaled_rows; i++) sum[i] += shuffle_xor(sum[i], bit);
        }
        UNROLLED
        for (uint32_t i = 1; i < scaled_rows; i++) sum[0] = lane == i ? sum[i] : sum[0];
        if (lane < scaled_rows && first + lane < rows)
            l->scale[first + lane] =
                task->rmsnorm ? rms_scale(sum[0] / (float)d->hidden + d->eps) : 1;
    }
}
FLEET_DEVICE void rms_scales(const fleet_ctx *ctx, const task_args *task, const linear_lds *l,
                             uint32_t rows)
{
    FLEET_UNUSED(ctx);
    /* The last wave begins: the first one receives the pipeline's first stage. */
    rms_scale_rows(task, l, (MAX_WAVES - 1 - fleet_wave_id()) * SCALED_ROWS, rows, MAX_WAVES,
                   SCALED_ROWS);
}

/* Each thread reads the entries of l->sums that it has written itself, so that the lanes of a row
   add up its squares without a barrier. All lanes of a warp take part in every iteration. */
FLEET_DEVICE void store_squares(const fleet_ctx *ctx, const decoder *d, const linear_lds *l,
                                uint32_t column, uint32_t tiles, uint32_t rows)
{
    const uint32_t lanes = TILE_N / 4; /* of a row */
    for (uint32_t first = 0; first < tiles * rows * lanes; first += ctx->threads) {
        const uint32_t i = first + ctx->thread, row = i / lanes, t = fast_div(row, l->reciprocal);
        const uint32_t is_there = row < tiles * rows;
        vec4 h = {{0, 0, 0, 0}};
        float squares;
        if (is_there) h = load_vec4(l->sums + i * 4);
        squares = h.value[0] * h.value[0] + h.value[1] * h.value[1] +
                  (h.value[2] * h.value[2] + h.value[3] * h.value[3]);
        for (uint32_t bit = lanes / 2; bit; bit /= 2) squares += shuffle_xor(squares, bit);
        if (is_there && i % lanes == 0)
            d->squares[(row - t * rows) * (d->hidden / TILE_N) + column / TILE_N + t] = squares;
    }
}

#endif /* QWEN3_BACKEND_NVIDIA_H */
