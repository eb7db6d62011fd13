/* backend_nvidia.h: what tasks/backend.h asks of NVIDIA GPUs; products are in nvidia/mma.h. */
#ifndef QWEN3_BACKEND_NVIDIA_H
#define QWEN3_BACKEND_NVIDIA_H

#include "nvidia/kv_block.h"
#include "nvidia/mma.h"

/* Values that a lane loads or stores together. */
FLEET_DEVICE four load_four(const float *from)
{
    return *(const four *)(const void *)from;
}
FLEET_DEVICE void put_four(float *to, four values)
{
    *(four *)(void *)to = values;
}
typedef struct __attribute__((aligned(8))) four_acts {
    act value[4];
} four_acts;
FLEET_DEVICE void put_four_acts(act *to, const act *values)
{
    four_acts together;
    for (uint32_t i = 0; i < 4; i++) together.value[i] = values[i];
    *(four_acts *)(void *)to = together;
}
typedef struct __attribute__((aligned(8))) two {
    float value[2];
} two;

FLEET_DEVICE two load_two(const float *from)
{
    return *(const two *)(const void *)from;
}
FLEET_DEVICE void put_two(float *to, float first, float second)
{
    two together;
    together.value[0] = first, together.value[1] = second;
    *(two *)(void *)to = together;
}

/* Begins to bring to LDS what the sums of a wide tile will be added to, and the weights of the norm to come, while they
   are added up: copies_wait, and a barrier. There is room for l->ahead_rows rows; of more they stay where they are. */
FLEET_DEVICE void fetch_residual(const fleet_ctx *ctx, const op *o, const product_lds *l,
                                 uint32_t column, uint32_t columns, uint32_t rows)
{
    const uint32_t left = o->d.hidden - column, quads = (left < columns ? left : columns) / 4;
    for (uint32_t i = ctx->thread; i < (rows + 1) * TILE; i += ctx->threads) {
        const uint32_t r = i / TILE, q = i % TILE;
        const float *from = r < rows ? o->d.h + r * o->d.hidden : o->norm;
        if (q < quads)
            copy_16(lds_address(l->ahead + r * l->ahead_columns + q * 4), from + column + q * 4);
    }
}

/* 1 / root mean square of each row, from the squares that the tiles before left: a row for each wave at a time, and the
   loads of some rows together. It is there behind the caller's next barrier. */
#define SCALED 2u      /* rows */
#define MOST_SCALED 8u /* by a wave that has time */
#define SQUARES 8u     /* of each */
/* Of `scaled` rows at a time, from `first` on, those of `waves` waves in turn. */
FLEET_DEVICE void scale_some(const op *o, const product_lds *l, uint32_t first, uint32_t rows,
                             uint32_t waves, const uint32_t scaled)
{
    const decoder *d = &o->d;
    const uint32_t tiles = d->hidden / TILE, lane = fleet_lane();
    for (; first < rows; first += scaled * waves) {
        float sum[MOST_SCALED] = {0};
        for (uint32_t t = fleet_lane(); o->normed && t < tiles; t += SQUARES * fleet_wave_size()) {
            float square[MOST_SCALED * SQUARES];
            UNROLLED
            for (uint32_t i = 0; i < scaled * SQUARES; i++) {
                const uint32_t r = first + i / SQUARES, at = t + i % SQUARES * fleet_wave_size();
                square[i] = r < rows && at < tiles ? d->squares[r * tiles + at] : 0;
            }
            UNROLLED
            for (uint32_t i = 0; i < scaled * SQUARES; i++) sum[i / SQUARES] += square[i];
        }
        /* All rows together, for a sum is waited for on its way from lane to lane; then a lane has a row. */
        UNROLLED
        for (uint32_t bit = fleet_wave_size() / 2; bit; bit /= 2) {
            UNROLLED
            for (uint32_t i = 0; i < scaled; i++) sum[i] += from_lane(sum[i], bit);
        }
        UNROLLED
        for (uint32_t i = 1; i < scaled; i++) sum[0] = lane == i ? sum[i] : sum[0];
        if (lane < scaled && first + lane < rows)
            l->scale[first + lane] =
                o->normed ? inverse_root(sum[0] / (float)d->hidden + d->eps) : 1;
    }
}
FLEET_DEVICE void scale_rows(const fleet_ctx *ctx, const op *o, const product_lds *l, uint32_t rows)
{
    FLEET_UNUSED(ctx);
    /* The last wave first: the ring waits for the first one's pieces. */
    scale_some(o, l, (MOST_WAVES - 1 - fleet_wave_id()) * SCALED, rows, MOST_WAVES, SCALED);
}

/* Of l->sums, [tiles][rows][TILE], of which each thread reads what it has left: so the lanes that have a row's columns add
   them up, without a barrier. All lanes of a warp take part each time. */
FLEET_DEVICE void put_squares(const fleet_ctx *ctx, const decoder *d, const product_lds *l,
                              uint32_t column, uint32_t tiles, uint32_t rows)
{
    const uint32_t lanes = TILE / 4; /* of a row */
    for (uint32_t first = 0; first < tiles * rows * lanes; first += ctx->threads) {
        const uint32_t i = first + ctx->thread, row = i / lanes, t = over(row, l->inverse);
        const uint32_t is_there = row < tiles * rows;
        four h = {{0, 0, 0, 0}};
        float squares;
        if (is_there) h = load_four(l->sums + i * 4);
        squares = h.value[0] * h.value[0] + h.value[1] * h.value[1] +
                  (h.value[2] * h.value[2] + h.value[3] * h.value[3]);
        for (uint32_t bit = lanes / 2; bit; bit /= 2) squares += from_lane(squares, bit);
        if (is_there && i % lanes == 0)
            d->squares[(row - t * rows) * (d->hidden / TILE) + column / TILE + t] = squares;
    }
}

#endif /* QWEN3_BACKEND_NVIDIA_H */
