/* fleet_tiles.h - copies to LDS, bf16 products, reductions of rows for tiles - MIT licence

   What tiles need and every program writes again, for AMD (gfx90a, gfx942, gfx950), NVIDIA (sm_80
   and later) and the CPU: copies of a matrix to LDS with a swizzle, a product of bf16 by the matrix
   instructions of the chip, sums and maxima, softmax and RMS norm of rows.

   CONTENTS (search for the tag)
       >>manual    this comment
       >>public    bf16, tiles in LDS, products, reductions, rows
       >>rows      copies, reductions, rows: the same on every platform
       >>amd       operands and fragments: whole sections
       >>nvidia
       >>host
       >>product   the product of whole tiles

   RECIPE
       A tile of FLEET_TILE that computes c = softmax(a b^T), a [16, 100] and b [32, 100] in memory:
           FLEET_LDS(fleet_quad, quads, FLEET_LDS_TILE_QUADS(16 + 32, 100));
           FLEET_LDS(float, sums, 16 * 32);
           FLEET_LDS(float, lds, FLEET_ROWS_LDS(16, THREADS));
           fleet_lds_tile a = {quads, 16, 100};
           fleet_lds_tile b = {quads + FLEET_LDS_TILE_QUADS(16, 100), 32, 100};
           fleet_rows c = {sums, 16, 32, 32};
           fleet_lds_tile_load(&ctx, a, args->a, 100, 1);
           fleet_lds_tile_load(&ctx, b, args->b, 100, 1);
           fleet_barrier(&ctx);
           fleet_lds_product(&ctx, a, b, c, 0);
           fleet_barrier(&ctx);
           fleet_rows_softmax(&ctx, c, 1, lds);
       A wavefront-task takes its arrays from ctx.lds, since FLEET_LDS is the whole workgroup's.

   RULES
       All threads of the group that runs the task call a function that takes ctx, with the same
       arguments; any number of threads is right, on the CPU one too. Sums have the same bits in
       each run with the same number of threads. The caller owns all LDS.

   WHAT IT DOES NOT DO
       It overlaps no copies with products and keeps no operand in registers from one fragment to
       the next: a program that is after a chip's peak does that with operands and fragments.

   MEMORY ORDER
       Nothing here notifies or waits. A barrier orders LDS alone: of what these functions write to
       memory, other threads read in a later task. Each function says which barriers it brings.

   ERRORS
       None are reported: arguments out of their bounds are undefined behaviour. Other AMD chips do
       not compile.
*/
/* Outside the guard: the second inclusion brings the implementations of the headers below. */
#include "fleet_sched.h"
#if FLEET_VERSION != 300
#error "fleet_tiles.h is of fleet 0.3, fleet.h is not: copy all headers from one version"
#endif

#ifndef FLEET_TILES_H
#define FLEET_TILES_H

#include <math.h>
#include <string.h>

/* ==== >>public: bf16, tiles in LDS, products, reductions, rows ==== */

/* ---- bf16 ---- */

/* The upper half of a float. It may alias: LDS has it in quads. */
typedef uint16_t __attribute__((may_alias)) fleet_bf16;
FLEET_HOST_DEVICE float fleet_bf16_to_float(uint32_t bf16);
/* To the nearest, ties to even; a NaN stays one. */
FLEET_HOST_DEVICE uint16_t fleet_bf16_from_float(float x);

/* ---- a tile in LDS ---- */

/* A matrix [rows][columns] of bf16 in LDS, whose rows are padded to 128 bytes. Of each row, quad v
   of eight elements stands at place v ^ s, where s differs in eight rows: threads that read the
   same column of eight rows, or half of the quads of two, meet no bank twice. */
typedef struct fleet_lds_tile {
    fleet_quad *quads;      /* LDS, FLEET_LDS_TILE_QUADS(rows, columns) of them; the caller's */
    uint32_t rows, columns; /* > 0, of data */
} fleet_lds_tile;
#define FLEET_LDS_TILE_QUADS(rows, columns) ((rows) * (((columns) + 63u) / 64u * 8u))

/* Where the tile has an element; columns up to the padding's end. */
FLEET_HOST_DEVICE fleet_bf16 *fleet_lds_tile_at(fleet_lds_tile tile, uint32_t row, uint32_t column);

/* Copies element (r, c) from from[r * row_stride + c * column_stride], bf16 in memory or LDS, and
   clears the padding. One of the strides is 1: column_stride, or row_stride for a matrix that is
   to be transposed. Rows at multiples of 16 bytes are read 16 bytes at a time. No barrier: one
   stands before the call if threads still read the tile, and one after it. */
FLEET_DEVICE void fleet_lds_tile_load(const fleet_ctx *ctx, fleet_lds_tile tile,
                                      const uint16_t *from, size_t row_stride,
                                      size_t column_stride);

/* ---- rows of floats ---- */

/* A matrix [rows][columns] of floats in LDS or memory; row r begins at at[r * stride]. */
typedef struct fleet_rows {
    float *at;
    uint32_t rows, columns, stride;
} fleet_rows;

/* The same from floats of the tile's shape, rounded: a first product as operand of a second. */
FLEET_DEVICE void fleet_lds_tile_round(const fleet_ctx *ctx, fleet_lds_tile tile, fleet_rows from);

/* ---- products ---- */

/* c = a b^T, or with add c += a b^T: a [m, k], b [n, k], c [m, n], in LDS or memory. The same
   threads have the same elements of c in each call with the same shapes, so that a sum over chunks
   of k needs none for c. No barrier: one stands before the call, after a and b were written, and
   one after it, before they are written again and before other threads read c. */
FLEET_DEVICE void fleet_lds_product(const fleet_ctx *ctx, fleet_lds_tile a, fleet_lds_tile b,
                                    fleet_rows c, uint32_t add);

/* What fleet_lds_product is made of. The lanes of a wave together hold a fragment of 16 rows and
   16 columns, FLEET_FRAGMENT_SUMS floats each, and an operand of 16 rows of a tile by 32 of their
   columns. In registers, if loops over them have constant bounds. All lanes of a wave call these.
       fleet_fragment     { float sum[FLEET_FRAGMENT_SUMS]; }
       fleet_operand      private to the platform
   On the CPU a wave is one lane: 1 KB of a fragment and 2 KB of an operand are on its stack. */
#define FLEET_FRAGMENT 16u
#define FLEET_FRAGMENT_K 32u
typedef struct fleet_fragment fleet_fragment;
typedef struct fleet_operand fleet_operand;
/* Rows from `row` on, columns from `column` on, a multiple of 32. Rows past the tile's are its last
   one again: their sums are to be ignored. */
FLEET_DEVICE void fleet_operand_load(fleet_operand *operand, fleet_lds_tile tile, uint32_t row,
                                     uint32_t column);
/* sums += a b^T. */
FLEET_DEVICE void fleet_fragment_multiply(fleet_fragment *sums, const fleet_operand *a,
                                          const fleet_operand *b);
/* The place in the fragment of the calling lane's sum[i]: a row of a, a row of b. */
FLEET_DEVICE uint32_t fleet_fragment_row(uint32_t i);
FLEET_DEVICE uint32_t fleet_fragment_column(uint32_t i);

/* ---- reductions ---- */

/* The sum, or the maximum, of all threads' values, returned to all. lds: ctx->threads floats, used
   from the call on up to its last barrier, which is its end. */
FLEET_DEVICE float fleet_group_sum(const fleet_ctx *ctx, float value, float *lds);
FLEET_DEVICE float fleet_group_max(const fleet_ctx *ctx, float value, float *lds);

/* Of rows. x was complete at a barrier before the call; the call ends with a barrier. lds:
   FLEET_ROWS_LDS(rows, ctx->threads) floats, apart from x, used as above. */
#define FLEET_ROWS_LDS(rows, threads) ((rows) + ((rows) > (threads) ? (rows) : (threads)))
/* out[r]: of row r, `rows` floats in LDS. The maximum ignores NaNs; without columns it is
   -INFINITY. */
FLEET_DEVICE void fleet_rows_sum(const fleet_ctx *ctx, fleet_rows x, float *out, float *lds);
FLEET_DEVICE void fleet_rows_max(const fleet_ctx *ctx, fleet_rows x, float *out, float *lds);
/* In place: exp(scale * x) over its sum in the row; scale > 0. -INFINITY masks an element; a row of
   these alone becomes zeros. */
FLEET_DEVICE void fleet_rows_softmax(const fleet_ctx *ctx, fleet_rows x, float scale, float *lds);
/* In place: x / sqrt(mean of squares of the row + epsilon), times weights[column], bf16 in memory
   or LDS; null: none. */
FLEET_DEVICE void fleet_rows_rms_norm(const fleet_ctx *ctx, fleet_rows x, const uint16_t *weights,
                                      float epsilon, float *lds);

/* ==== >>rows: copies, reductions, rows, the same on every platform ==== */

/* ---- copies ---- */

FLEET_HOST_DEVICE float fleet_bf16_to_float(uint32_t bf16)
{
    const uint32_t bits = bf16 << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

FLEET_HOST_DEVICE uint16_t fleet_bf16_from_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Bit 2 of s changes from row to row, so that two rows' first halves lie apart. */
FLEET_HOST_DEVICE fleet_quad *fleeti_tile_quad(fleet_lds_tile tile, uint32_t row, uint32_t quad)
{
    const uint32_t s = (row & 1u) << 2 | (row >> 1 & 3u);
    return tile.quads + FLEET_LDS_TILE_QUADS(row, tile.columns) + (quad ^ s);
}

FLEET_HOST_DEVICE fleet_bf16 *fleet_lds_tile_at(fleet_lds_tile tile, uint32_t row, uint32_t column)
{
    return (fleet_bf16 *)fleeti_tile_quad(tile, row, column / 8) + column % 8;
}

FLEET_DEVICE void fleet_lds_tile_load(const fleet_ctx *ctx, fleet_lds_tile tile,
                                      const uint16_t *from, size_t row_stride, size_t column_stride)
{
    const uint32_t across = FLEET_LDS_TILE_QUADS(1u, tile.columns), along = column_stride == 1;
    for (uint32_t i = ctx->thread; i < tile.rows * across; i += ctx->threads) {
        const uint32_t row = along ? i / across : i % tile.rows;
        const uint32_t first = (along ? i % across : i / tile.rows) * 8;
        const uint32_t left = first < tile.columns ? tile.columns - first : 0;
        const uint16_t *at = from + (left ? row * row_stride + first * column_stride : 0);
        fleet_quad quad;
        if (along && left >= 8 && ((uintptr_t)at & 15u) == 0) {
            memcpy(&quad, __builtin_assume_aligned(at, 16), sizeof quad);
        } else {
            FLEETI_UNROLLED
            for (uint32_t j = 0; j < 4; j++) {
                const uint32_t low = 2 * j < left ? at[2 * j * column_stride] : 0u;
                const uint32_t high = 2 * j + 1 < left ? at[(2 * j + 1) * column_stride] : 0u;
                quad.word[j] = low | high << 16;
            }
        }
        *fleeti_tile_quad(tile, row, first / 8) = quad;
    }
}

FLEET_DEVICE void fleet_lds_tile_round(const fleet_ctx *ctx, fleet_lds_tile tile, fleet_rows from)
{
    const uint32_t across = FLEET_LDS_TILE_QUADS(1u, tile.columns) * 8;
    for (uint32_t i = ctx->thread; i < tile.rows * across; i += ctx->threads) {
        const uint32_t row = i / across, column = i % across;
        const float x = column < tile.columns ? from.at[(size_t)row * from.stride + column] : 0;
        *fleet_lds_tile_at(tile, row, column) = fleet_bf16_from_float(x);
    }
}

/* ---- reductions of lds[row * parts + part], by sixteens ---- */

/* Threads per row. Part p of a row has its columns p, p + parts, ... */
FLEET_DEVICE uint32_t fleeti_rows_parts(const fleet_ctx *ctx, uint32_t rows)
{
    return rows && rows < ctx->threads ? ctx->threads / rows : 1;
}

/* Reports of barriers name the caller's line (>>host): hence the parentheses, which no macro of
   that name takes. */
FLEET_DEVICE void fleeti_rows_fold(const fleet_ctx *ctx, uint32_t rows, uint32_t parts,
                                   uint32_t max, float *out, float *lds)
{
    (fleet_barrier)(ctx);
    for (uint32_t step = 1; step < parts; step *= 16) {
        const uint32_t runs = (parts + 16 * step - 1) / (16 * step);
        for (uint32_t i = ctx->thread; i < rows * runs; i += ctx->threads) {
            const uint32_t first = i % runs * 16 * step;
            float *row = lds + i / runs * parts, all = row[first];
            for (uint32_t p = first + step; p < parts && p < first + 16 * step; p += step)
                all = max ? fmaxf(all, row[p]) : all + row[p];
            row[first] = all;
        }
        (fleet_barrier)(ctx);
    }
    for (uint32_t i = ctx->thread; i < rows; i += ctx->threads) out[i] = lds[i * parts];
    (fleet_barrier)(ctx);
}

FLEET_DEVICE float fleeti_group_fold(const fleet_ctx *ctx, float value, uint32_t max, float *lds)
{
    lds[ctx->thread] = value;
    fleeti_rows_fold(ctx, 1, ctx->threads, max, lds, lds);
    value = lds[0];
    (fleet_barrier)(ctx);
    return value;
}
FLEET_DEVICE float fleet_group_sum(const fleet_ctx *ctx, float value, float *lds)
{
    return fleeti_group_fold(ctx, value, 0, lds);
}
FLEET_DEVICE float fleet_group_max(const fleet_ctx *ctx, float value, float *lds)
{
    return fleeti_group_fold(ctx, value, 1, lds);
}

/* ---- rows, by the threads of fleeti_rows_parts ---- */

enum { FLEETI_ROWS_SUM, FLEETI_ROWS_MAX, FLEETI_ROWS_SQUARES };
FLEET_DEVICE void fleeti_rows_reduce(const fleet_ctx *ctx, fleet_rows x, uint32_t kind, float *out,
                                     float *lds)
{
    const uint32_t parts = fleeti_rows_parts(ctx, x.rows), max = kind == FLEETI_ROWS_MAX;
    for (uint32_t i = ctx->thread; i < x.rows * parts; i += ctx->threads) {
        const float *row = x.at + (size_t)(i / parts) * x.stride;
        float all = max ? -INFINITY : 0;
        for (uint32_t c = i % parts; c < x.columns; c += parts)
            all = max ? fmaxf(all, row[c])
                      : all + (kind == FLEETI_ROWS_SUM ? row[c] : row[c] * row[c]);
        lds[i] = all;
    }
    fleeti_rows_fold(ctx, x.rows, parts, max, out, lds);
}
FLEET_DEVICE void fleet_rows_sum(const fleet_ctx *ctx, fleet_rows x, float *out, float *lds)
{
    fleeti_rows_reduce(ctx, x, FLEETI_ROWS_SUM, out, lds);
}
FLEET_DEVICE void fleet_rows_max(const fleet_ctx *ctx, fleet_rows x, float *out, float *lds)
{
    fleeti_rows_reduce(ctx, x, FLEETI_ROWS_MAX, out, lds);
}

FLEET_DEVICE void fleet_rows_softmax(const fleet_ctx *ctx, fleet_rows x, float scale, float *lds)
{
    const uint32_t parts = fleeti_rows_parts(ctx, x.rows);
    float *each = lds + (x.rows > ctx->threads ? x.rows : ctx->threads);
    fleeti_rows_reduce(ctx, x, FLEETI_ROWS_MAX, each, lds);
    for (uint32_t i = ctx->thread; i < x.rows * parts; i += ctx->threads) {
        float *row = x.at + (size_t)(i / parts) * x.stride, sum = 0;
        const float most = each[i / parts];
        for (uint32_t c = i % parts; c < x.columns; c += parts) {
            row[c] = row[c] == -INFINITY ? 0 : expf(scale * (row[c] - most));
            sum += row[c];
        }
        lds[i] = sum;
    }
    fleeti_rows_fold(ctx, x.rows, parts, 0, each, lds);
    for (uint32_t i = ctx->thread; i < x.rows * parts; i += ctx->threads) {
        float *row = x.at + (size_t)(i / parts) * x.stride;
        const float factor = each[i / parts] == 0 ? 0 : 1 / each[i / parts];
        for (uint32_t c = i % parts; c < x.columns; c += parts) row[c] *= factor;
    }
    (fleet_barrier)(ctx);
}

FLEET_DEVICE void fleet_rows_rms_norm(const fleet_ctx *ctx, fleet_rows x, const uint16_t *weights,
                                      float epsilon, float *lds)
{
    const uint32_t parts = fleeti_rows_parts(ctx, x.rows);
    float *each = lds + (x.rows > ctx->threads ? x.rows : ctx->threads);
    fleeti_rows_reduce(ctx, x, FLEETI_ROWS_SQUARES, each, lds);
    for (uint32_t i = ctx->thread; i < x.rows * parts; i += ctx->threads) {
        float *row = x.at + (size_t)(i / parts) * x.stride;
        const float factor = 1 / sqrtf(each[i / parts] / (float)x.columns + epsilon);
        for (uint32_t c = i % parts; c < x.columns; c += parts)
            row[c] *= weights ? factor * fleet_bf16_to_float(weights[c]) : factor;
    }
    (fleet_barrier)(ctx);
}

/* The quad of a tile that a lane brings: its row, or the tile's last one. */
FLEET_DEVICE fleet_quad fleeti_operand_quad(fleet_lds_tile tile, uint32_t row, uint32_t quad)
{
    return *fleeti_tile_quad(tile, row < tile.rows ? row : tile.rows - 1, quad);
}

/* ==== >>amd: v_mfma_f32_16x16x16_bf16, twice, or v_mfma_f32_16x16x32_bf16 ==== */

#if defined(FLEET_HIP)

#if defined(__HIP_DEVICE_COMPILE__) && !defined(__gfx90a__) && !defined(__gfx942__) &&             \
    !defined(__gfx950__)
#error "fleet_tiles.h: products are for gfx90a, gfx942 and gfx950"
#endif

/* Lane l brings eight k's of row l % 16, from 8 (l / 16) on, and receives rows 4 (l / 16) to + 3 of
   column l % 16. Which k is which of the instruction's is free where both operands agree: one of
   16 k's takes each lane's first four, the next its last four. */
#define FLEET_FRAGMENT_SUMS 4u
struct fleet_fragment {
    float sum[FLEET_FRAGMENT_SUMS];
};
struct fleet_operand {
    fleet_quad quad;
};
FLEET_DEVICE void fleet_operand_load(fleet_operand *operand, fleet_lds_tile tile, uint32_t row,
                                     uint32_t column)
{
    const uint32_t lane = fleet_lane();
    operand->quad = fleeti_operand_quad(tile, row + lane % 16, column / 8 + lane / 16);
}
FLEET_DEVICE void fleet_fragment_multiply(fleet_fragment *sums, const fleet_operand *a,
                                          const fleet_operand *b)
{
    typedef float sums4 __attribute__((ext_vector_type(4)));
#if defined(__gfx950__)
    typedef __bf16 operand8 __attribute__((ext_vector_type(8)));
#else
    typedef short operand8 __attribute__((ext_vector_type(8)));
#endif
    sums4 sum;
    operand8 x, y;
    memcpy(&sum, sums->sum, sizeof sum);
    memcpy(&x, &a->quad, sizeof x);
    memcpy(&y, &b->quad, sizeof y);
#if defined(__gfx950__)
    sum = __builtin_amdgcn_mfma_f32_16x16x32_bf16(x, y, sum, 0, 0, 0);
#else
    sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x.lo, y.lo, sum, 0, 0, 0);
    sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x.hi, y.hi, sum, 0, 0, 0);
#endif
    memcpy(sums->sum, &sum, sizeof sum);
}
FLEET_DEVICE uint32_t fleet_fragment_row(uint32_t i)
{
    return fleet_lane() / 16 * 4 + i;
}
FLEET_DEVICE uint32_t fleet_fragment_column(uint32_t i)
{
    FLEET_UNUSED(i);
    return fleet_lane() % 16;
}

#endif

/* ==== >>nvidia: mma.sync.m16n8k16, four times ==== */

#if defined(FLEET_CUDA)

/* Lane l, with g = l / 4 and t = l % 4, brings eight k's of rows g and g + 8, from 8 t on: half of
   them in the first, half in the second instruction (which k is which is free, as on AMD). It
   receives columns 2 t and 2 t + 1 of rows g, then g + 8; then the same eight columns further. */
#define FLEET_FRAGMENT_SUMS 8u
struct fleet_fragment {
    float sum[FLEET_FRAGMENT_SUMS];
};
struct fleet_operand {
    fleet_quad quads[2];
};
FLEET_DEVICE void fleet_operand_load(fleet_operand *operand, fleet_lds_tile tile, uint32_t row,
                                     uint32_t column)
{
    const uint32_t g = fleet_lane() / 4, quad = column / 8 + fleet_lane() % 4;
    operand->quads[0] = fleeti_operand_quad(tile, row + g, quad);
    operand->quads[1] = fleeti_operand_quad(tile, row + g + 8, quad);
}
FLEET_DEVICE void fleet_fragment_multiply(fleet_fragment *sums, const fleet_operand *a,
                                          const fleet_operand *b)
{
    FLEETI_UNROLLED
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t half = i / 2, k = i % 2 * 2; /* of the columns; a word */
        float *sum = sums->sum + 4 * half;
        __asm__("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                : "r"(a->quads[0].word[k]), "r"(a->quads[1].word[k]), "r"(a->quads[0].word[k + 1]),
                  "r"(a->quads[1].word[k + 1]), "r"(b->quads[half].word[k]),
                  "r"(b->quads[half].word[k + 1]));
    }
}
FLEET_DEVICE uint32_t fleet_fragment_row(uint32_t i)
{
    return fleet_lane() / 4 + i / 2 % 2 * 8;
}
FLEET_DEVICE uint32_t fleet_fragment_column(uint32_t i)
{
    return i / 4 * 8 + fleet_lane() % 4 * 2 + i % 2;
}

#endif

/* ==== >>host: a wave is one lane, which has all ==== */

#if defined(FLEET_HOST)

#define FLEET_FRAGMENT_SUMS (FLEET_FRAGMENT * FLEET_FRAGMENT)
struct fleet_fragment {
    float sum[FLEET_FRAGMENT_SUMS];
};
struct fleet_operand {
    float x[FLEET_FRAGMENT][FLEET_FRAGMENT_K];
};
FLEET_DEVICE void fleet_operand_load(fleet_operand *operand, fleet_lds_tile tile, uint32_t row,
                                     uint32_t column)
{
    for (uint32_t i = 0; i < FLEET_FRAGMENT * FLEET_FRAGMENT_K / 8; i++) {
        const fleet_quad quad = fleeti_operand_quad(tile, row + i / 4, column / 8 + i % 4);
        for (uint32_t j = 0; j < 8; j++)
            operand->x[i / 4][i % 4 * 8 + j] =
                fleet_bf16_to_float(quad.word[j / 2] >> 16 * (j % 2) & 0xffffu);
    }
}
FLEET_DEVICE void fleet_fragment_multiply(fleet_fragment *sums, const fleet_operand *a,
                                          const fleet_operand *b)
{
    for (uint32_t i = 0; i < FLEET_FRAGMENT_SUMS; i++)
        for (uint32_t k = 0; k < FLEET_FRAGMENT_K; k++)
            sums->sum[i] += a->x[i / FLEET_FRAGMENT][k] * b->x[i % FLEET_FRAGMENT][k];
}
FLEET_DEVICE uint32_t fleet_fragment_row(uint32_t i)
{
    return i / FLEET_FRAGMENT;
}
FLEET_DEVICE uint32_t fleet_fragment_column(uint32_t i)
{
    return i % FLEET_FRAGMENT;
}

/* A report of a barrier that some threads do not reach names the tile's line. */
#define fleet_group_sum(ctx, value, lds)                                                           \
    (fleeti_host_line(__LINE__), fleet_group_sum(ctx, value, lds))
#define fleet_group_max(ctx, value, lds)                                                           \
    (fleeti_host_line(__LINE__), fleet_group_max(ctx, value, lds))
#define fleet_rows_sum(ctx, x, out, lds)                                                           \
    (fleeti_host_line(__LINE__), fleet_rows_sum(ctx, x, out, lds))
#define fleet_rows_max(ctx, x, out, lds)                                                           \
    (fleeti_host_line(__LINE__), fleet_rows_max(ctx, x, out, lds))
#define fleet_rows_softmax(ctx, x, scale, lds)                                                     \
    (fleeti_host_line(__LINE__), fleet_rows_softmax(ctx, x, scale, lds))
#define fleet_rows_rms_norm(ctx, x, weights, epsilon, lds)                                         \
    (fleeti_host_line(__LINE__), fleet_rows_rms_norm(ctx, x, weights, epsilon, lds))

#endif

/* ==== >>product: the product of whole tiles ==== */

/* Where c has the lane's sum[i] of the fragment at (row, column); null: outside. */
FLEET_DEVICE float *fleeti_fragment_at(fleet_rows c, uint32_t row, uint32_t column, uint32_t i)
{
    row += fleet_fragment_row(i), column += fleet_fragment_column(i);
    return row < c.rows && column < c.columns ? c.at + (size_t)row * c.stride + column : NULL;
}

FLEET_DEVICE void fleet_lds_product(const fleet_ctx *ctx, fleet_lds_tile a, fleet_lds_tile b,
                                    fleet_rows c, uint32_t add)
{
    const uint32_t wave = ctx->thread / fleet_wave_size(), waves = ctx->threads / fleet_wave_size();
    const uint32_t down = (c.rows + FLEET_FRAGMENT - 1) / FLEET_FRAGMENT;
    const uint32_t across = (c.columns + FLEET_FRAGMENT - 1) / FLEET_FRAGMENT;
    for (uint32_t f = wave; f < down * across; f += waves) {
        const uint32_t row = f / across * FLEET_FRAGMENT, column = f % across * FLEET_FRAGMENT;
        fleet_fragment sums;
        FLEETI_UNROLLED
        for (uint32_t i = 0; i < FLEET_FRAGMENT_SUMS; i++) {
            const float *at = fleeti_fragment_at(c, row, column, i);
            sums.sum[i] = add && at ? *at : 0;
        }
        for (uint32_t k = 0; k < a.columns; k += FLEET_FRAGMENT_K) {
            fleet_operand x, y;
            fleet_operand_load(&x, a, row, k);
            fleet_operand_load(&y, b, column, k);
            fleet_fragment_multiply(&sums, &x, &y);
        }
        FLEETI_UNROLLED
        for (uint32_t i = 0; i < FLEET_FRAGMENT_SUMS; i++) {
            float *at = fleeti_fragment_at(c, row, column, i);
            if (at) *at = sums.sum[i];
        }
    }
}

#endif /* FLEET_TILES_H */
