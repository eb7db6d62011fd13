/* gemm_tile.h: a tile of the product x w^T, computed by a workgroup

   x is [rows][depth], w is [columns][depth], as linear layers store it; bf16, row-major, depth a multiple of 8. Sums are
   float32. Three sections implement the same:

       GEMM_ROWS, GEMM_COLUMNS   of a tile
       GEMM_THREADS              of a workgroup
       GEMM_LDS_BYTES            of dynamic LDS, which the tile has as ctx->lds
       gemm_operand_of           on the host: describes x or w, which is in device memory
       gemm_tile                 leaves a tile in LDS as bf16: gemm_quad reads 8 columns of a row

   They are: tensor cores of compute capability 9.0a (wgmma, bulk tensor copies); those of other NVIDIA GPUs (wmma), by
   -DGEMM_PORTABLE; and plain loops. A tile may reach beyond the last row or column, and the last k's beyond the depth. What
   it has outside the product is to be ignored. */
#ifndef GEMM_TILE_H
#define GEMM_TILE_H

#include "fleet_sched.h"

#include <string.h>

typedef uint16_t bf16; /* the upper half of a float */

FLEET_HOST_DEVICE float float_of(bf16 v)
{
    const uint32_t bits = (uint32_t)v << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
FLEET_HOST_DEVICE bf16 bf16_of(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (bf16)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

#define GEMM_ROWS 128u

#if defined(FLEET_CUDA) && !defined(GEMM_PORTABLE)
/* ---- compute capability 9.0a ----

   Two warpgroups multiply what bulk copies have brought to a ring of stages, GEMM_K k's each. The warps take turns with
   the copies: a third warpgroup would leave threads 168 registers, and the sums take 128. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

#define GEMM_COLUMNS 256u
#define GEMM_WARPS 8u
#define GEMM_THREADS (GEMM_WARPS * 32)
#define GEMM_K 64u
#define GEMM_STAGES 4u
#define GEMM_BOX_ROWS 128u
#define GEMM_BOX_BYTES (GEMM_BOX_ROWS * GEMM_K * 2)
#define GEMM_BOXES ((GEMM_ROWS + GEMM_COLUMNS) / GEMM_BOX_ROWS) /* of a stage: x, then w */
#define GEMM_STAGE_BYTES (GEMM_BOXES * GEMM_BOX_BYTES)
#define GEMM_MBARS (GEMM_STAGES * GEMM_STAGE_BYTES) /* two of each stage: full, free */
#define GEMM_LDS_BYTES (GEMM_MBARS + GEMM_STAGES * 16)
#define GEMM_STRIDE (GEMM_COLUMNS + 8) /* of the tile in LDS, which replaces stages */
#define GEMM_UNROLLED _Pragma("unroll")

typedef struct gemm_operand {
    CUtensorMap map; /* boxes of GEMM_BOX_ROWS rows, GEMM_K k's */
    uint32_t depth;
} gemm_operand;

static inline gemm_operand gemm_operand_of(const bf16 *at, uint32_t rows, uint32_t depth)
{
    typedef CUresult (*encode_fn)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                                  const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                                  const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                                  CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
    const cuuint64_t extents[2] = {depth, rows}, strides[1] = {(cuuint64_t)depth * sizeof(bf16)};
    const cuuint32_t box[2] = {GEMM_K, GEMM_BOX_ROWS}, ones[2] = {1, 1};
    cudaDriverEntryPointQueryResult found;
    void *encode = NULL;
    gemm_operand operand;
    operand.depth = depth;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000,
                                         cudaEnableDefault, &found) ||
        found != cudaDriverEntryPointSuccess ||
        ((encode_fn)encode)(
            &operand.map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)(uintptr_t)at, extents,
            strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)) {
        fprintf(stderr, "there is no tensor map of %u x %u\n", rows, depth);
        exit(1);
    }
    return operand;
}

FLEET_DEVICE uint32_t gemm_lds(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}
FLEET_DEVICE void gemm_mbar_init(uint32_t at, uint32_t arrivals)
{
    __asm__ volatile("mbarrier.init.shared.b64 [%0],%1;" ::"r"(at), "r"(arrivals) : "memory");
}
FLEET_DEVICE void gemm_mbar_inval(uint32_t at)
{
    __asm__ volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at) : "memory");
}
FLEET_DEVICE void gemm_mbar_arrive(uint32_t at)
{
    __asm__ volatile("mbarrier.arrive.shared.b64 _,[%0];" ::"r"(at) : "memory");
}
FLEET_DEVICE void gemm_mbar_expect(uint32_t at, uint32_t bytes)
{
    __asm__ volatile("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;" ::"r"(at), "r"(bytes)
                     : "memory");
}
/* Waits for phase `use`. What the tile itself has begun ends by itself: this needs no deadline. */
FLEET_DEVICE void gemm_mbar_wait(uint32_t at, uint32_t use)
{
    __asm__ volatile("{\n.reg .pred p;\n"
                     "again:\n"
                     "mbarrier.try_wait.parity.shared.b64 p,[%0],%1;\n"
                     "@!p bra again;\n}" ::"r"(at),
                     "r"(use & 1)
                     : "memory");
}
FLEET_DEVICE void gemm_copy(uint32_t to, const gemm_operand *from, uint32_t mbar, uint32_t k,
                            uint32_t row)
{
    __asm__ volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::"
                     "bytes [%0],[%1,{%3,%4}],[%2];" ::"r"(to),
                     "l"(&from->map), "r"(mbar), "r"(k), "r"(row)
                     : "memory");
}
/* The host copied the map to memory before the launch: before a thread uses it there, its proxy has to see that. */
FLEET_DEVICE void gemm_acquire_map(const gemm_operand *operand)
{
    __asm__ volatile("fence.proxy.tensormap::generic.acquire.sys [%0],128;" ::"l"(&operand->map)
                     : "memory");
}
/* K-major rows of 64 k's with a swizzle of 128 bytes. */
FLEET_DEVICE uint64_t gemm_matrix(uint32_t at)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

#define GEMM_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define GEMM_D16(i) GEMM_D4(i), GEMM_D4(i + 4), GEMM_D4(i + 8), GEMM_D4(i + 12)
#define GEMM_D64(i) GEMM_D16(i), GEMM_D16(i + 16), GEMM_D16(i + 32), GEMM_D16(i + 48)
#define GEMM_TEN(n)                                                                                \
    "%" #n "0,%" #n "1,%" #n "2,%" #n "3,%" #n "4,%" #n "5,%" #n "6,%" #n "7,%" #n "8,%" #n "9,"
#define GEMM_FORTY(a, b, c, d) GEMM_TEN(a) GEMM_TEN(b) GEMM_TEN(c) GEMM_TEN(d)
#define GEMM_NAMES                                                                                 \
    GEMM_FORTY(, 1, 2, 3)                                                                          \
    GEMM_FORTY(4, 5, 6, 7) GEMM_FORTY(8, 9, 10, 11) "%120,%121,%122,%123,%124,%125,%126,%127"
#define GEMM_K16(offset)                                                                           \
    "add.s64 rows,%128," #offset ";\nadd.s64 columns,%129," #offset ";\n"                          \
    "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" GEMM_NAMES                           \
    "},rows,columns,1,1,1,0,0;\n"
/* d += 64 rows by 256 columns, 64 k's. One statement, since each would need a wgmma.fence of its own. */
FLEET_DEVICE void gemm_multiply(float *d, uint64_t rows, uint64_t columns)
{
    __asm__ volatile("wgmma.fence.sync.aligned;\n{\n.reg .b64 rows,columns;\n" GEMM_K16(0)
                         GEMM_K16(2) GEMM_K16(4) GEMM_K16(6) "}\nwgmma.commit_group.sync.aligned;"
                     : GEMM_D64(0), GEMM_D64(64)
                     : "l"(rows), "l"(columns)
                     : "memory");
}
/* Waits for all products but the last one. */
FLEET_DEVICE void gemm_wait_but_last(void)
{
    __asm__ volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}
/* Waits for all products; the compiler may not use their sums before. */
FLEET_DEVICE void gemm_wait(float *d)
{
    __asm__ volatile("wgmma.wait_group.sync.aligned 0;" : GEMM_D64(0), GEMM_D64(64)::"memory");
}

/* One thread copies the k's from `k` on to a stage. */
FLEET_DEVICE void gemm_copy_stage(uint32_t to, uint32_t mbar, const gemm_operand *x, uint32_t row,
                                  const gemm_operand *w, uint32_t column, uint32_t k)
{
    gemm_mbar_expect(mbar, GEMM_STAGE_BYTES);
    gemm_copy(to, x, mbar, k, row);
    GEMM_UNROLLED
    for (uint32_t b = 1; b < GEMM_BOXES; b++)
        gemm_copy(to + b * GEMM_BOX_BYTES, w, mbar, k, column + (b - 1) * GEMM_BOX_ROWS);
}
FLEET_DEVICE void gemm_tile(const fleet_ctx *ctx, const gemm_operand *x, uint32_t row,
                            const gemm_operand *w, uint32_t column)
{
    const uint32_t lds = gemm_lds(ctx->lds), full = lds + GEMM_MBARS, free = full + 8;
    const uint32_t steps = (x->depth + GEMM_K - 1) / GEMM_K, warp = ctx->thread / 32,
                   lane = ctx->thread % 32;
    uint32_t *tile = (uint32_t *)ctx->lds;
    float sum[128];
    if (ctx->thread < GEMM_STAGES) {
        gemm_mbar_init(full + ctx->thread * 16, 1);
        gemm_mbar_init(free + ctx->thread * 16, GEMM_WARPS);
    }
    /* Orders this thread's view of memory and LDS, that is the task's events, what tasks before did with the LDS, and the
       barriers, before copies, which use the async proxy. The barrier carries it to the threads that copy. */
    __asm__ volatile("fence.proxy.async;" ::: "memory");
    fleet_barrier(ctx);
    if (lane == 0) gemm_acquire_map(x), gemm_acquire_map(w);
    if (ctx->thread == 0)
        for (uint32_t i = 0; i < GEMM_STAGES && i < steps; i++)
            gemm_copy_stage(lds + i * GEMM_STAGE_BYTES, full + i * 16, x, row, w, column,
                            i * GEMM_K);
    __syncwarp();
    GEMM_UNROLLED
    for (uint32_t i = 0; i < 128; i++) sum[i] = 0;
    for (uint32_t i = 0; i < steps; i++) {
        const uint32_t stage = i % GEMM_STAGES, at = lds + stage * GEMM_STAGE_BYTES;
        const uint32_t last = (i - 1) % GEMM_STAGES, next = i - 1 + GEMM_STAGES;
        gemm_mbar_wait(full + stage * 16, i / GEMM_STAGES); /* pair: the copies, in bytes */
        gemm_multiply(sum, gemm_matrix(at + warp / 4 * (GEMM_BOX_BYTES / 2)),
                      gemm_matrix(at + GEMM_BOX_BYTES));
        gemm_wait_but_last();
        if (i && lane == 0) {
            gemm_mbar_arrive(free + last * 16); /* this warp has read the stage before */
            if (next < steps && i % GEMM_WARPS == warp) {
                gemm_mbar_wait(free + last * 16, (i - 1) / GEMM_STAGES); /* pair: the arrivals */
                gemm_copy_stage(lds + last * GEMM_STAGE_BYTES, full + last * 16, x, row, w, column,
                                next * GEMM_K);
            }
        }
        __syncwarp();
    }
    gemm_wait(sum);
    fleet_barrier(ctx); /* all warps have read all stages */
    if (ctx->thread < GEMM_STAGES) {
        gemm_mbar_inval(full + ctx->thread * 16);
        gemm_mbar_inval(free + ctx->thread * 16);
    }
    /* Of a lane: two rows eight apart, two columns of every eight. */
    tile += (warp * 16 + lane / 4) * (GEMM_STRIDE / 2) + lane % 4;
    GEMM_UNROLLED
    for (uint32_t i = 0; i < 64; i++) {
        uint32_t two;
        __asm__("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(two) : "f"(sum[2 * i + 1]), "f"(sum[2 * i]));
        tile[i % 2 * 8 * (GEMM_STRIDE / 2) + i / 2 * 4] = two;
    }
    fleet_barrier(ctx);
}

#else
/* ---- plain: what the two other sections share ---- */

#define GEMM_COLUMNS 128u
#define GEMM_STRIDE (GEMM_COLUMNS + 8)
#define GEMM_UNROLLED

typedef struct gemm_operand {
    const bf16 *at;
    uint32_t rows, depth;
} gemm_operand;

static inline gemm_operand gemm_operand_of(const bf16 *at, uint32_t rows, uint32_t depth)
{
    gemm_operand operand;
    operand.at = at, operand.rows = rows, operand.depth = depth;
    return operand;
}

#if defined(FLEET_CUDA)
/* ---- other NVIDIA GPUs ---- */
#include <mma.h>

#define GEMM_THREADS 256u
#define GEMM_PLAIN_K 32u
#define GEMM_PLAIN_STRIDE (GEMM_PLAIN_K + 8)
/* The tile, then GEMM_PLAIN_K k's of x and of w. */
#define GEMM_BLOCK_BYTES (GEMM_ROWS * GEMM_PLAIN_STRIDE * 2)
#define GEMM_LDS_BYTES (GEMM_ROWS * GEMM_STRIDE * 2 + 2 * GEMM_BLOCK_BYTES)

FLEET_DEVICE void gemm_copy(const fleet_ctx *ctx, bf16 *to, const gemm_operand *from, uint32_t row,
                            uint32_t k)
{
    for (uint32_t i = ctx->thread; i < GEMM_ROWS * GEMM_PLAIN_K / 8; i += ctx->threads) {
        const uint32_t r = row + i / 4, at = k + i % 4 * 8;
        fleet_quad quad = {{0, 0, 0, 0}};
        if (r < from->rows && at < from->depth)
            quad = *(const fleet_quad *)(const void *)(from->at + (size_t)r * from->depth + at);
        *(fleet_quad *)(void *)(to + i / 4 * GEMM_PLAIN_STRIDE + i % 4 * 8) = quad;
    }
}
FLEET_DEVICE void gemm_tile(const fleet_ctx *ctx, const gemm_operand *x, uint32_t row,
                            const gemm_operand *w, uint32_t column)
{
    using namespace nvcuda;
    bf16 *tile = (bf16 *)ctx->lds, *a = tile + GEMM_ROWS * GEMM_STRIDE,
         *b = a + GEMM_ROWS * GEMM_PLAIN_STRIDE;
    const uint32_t warp = ctx->thread / 32, own_row = warp / 4 * 64, own_column = warp % 4 * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[8];
    for (uint32_t i = 0; i < 8; i++) wmma::fill_fragment(sum[i], 0.0f);
    for (uint32_t k = 0; k < x->depth; k += GEMM_PLAIN_K) {
        gemm_copy(ctx, a, x, row, k);
        gemm_copy(ctx, b, w, column, k);
        fleet_barrier(ctx);
        for (uint32_t kk = 0; kk < GEMM_PLAIN_K; kk += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> fa[4];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::col_major> fb[2];
            for (uint32_t i = 0; i < 4; i++)
                wmma::load_matrix_sync(
                    fa[i], (const __nv_bfloat16 *)a + (own_row + i * 16) * GEMM_PLAIN_STRIDE + kk,
                    GEMM_PLAIN_STRIDE);
            for (uint32_t i = 0; i < 2; i++)
                wmma::load_matrix_sync(fb[i],
                                       (const __nv_bfloat16 *)b +
                                           (own_column + i * 16) * GEMM_PLAIN_STRIDE + kk,
                                       GEMM_PLAIN_STRIDE);
            for (uint32_t i = 0; i < 8; i++) wmma::mma_sync(sum[i], fa[i / 2], fb[i % 2], sum[i]);
        }
        fleet_barrier(ctx);
    }
    for (uint32_t i = 0; i < 8; i++) {
        float *scratch = (float *)(void *)a + warp * 256; /* of the 2 blocks: 1 KB for each warp */
        const uint32_t r = ctx->thread % 32 / 2, c = ctx->thread % 2 * 8;
        wmma::store_matrix_sync(scratch, sum[i], 16, wmma::mem_row_major);
        fleet_wave_barrier();
        for (uint32_t v = 0; v < 8; v++)
            tile[(own_row + i / 2 * 16 + r) * GEMM_STRIDE + own_column + i % 2 * 16 + c + v] =
                bf16_of(scratch[r * 16 + c + v]);
        fleet_wave_barrier();
    }
    fleet_barrier(ctx);
}

#else
/* ---- loops ---- */

#if defined(FLEET_HOST)
#define GEMM_THREADS 1u
#else
#define GEMM_THREADS 256u
#endif
#define GEMM_LDS_BYTES (GEMM_ROWS * GEMM_STRIDE * 2)

FLEET_DEVICE void gemm_tile(const fleet_ctx *ctx, const gemm_operand *x, uint32_t row,
                            const gemm_operand *w, uint32_t column)
{
    for (uint32_t i = ctx->thread; i < GEMM_ROWS * GEMM_COLUMNS; i += ctx->threads) {
        const uint32_t r = row + i / GEMM_COLUMNS, c = column + i % GEMM_COLUMNS;
        float sum = 0;
        for (uint32_t k = 0; k < x->depth && r < x->rows && c < w->rows; k++)
            sum += float_of(x->at[(size_t)r * x->depth + k]) *
                   float_of(w->at[(size_t)c * w->depth + k]);
        ((bf16 *)ctx->lds)[i / GEMM_COLUMNS * GEMM_STRIDE + i % GEMM_COLUMNS] = bf16_of(sum);
    }
    fleet_barrier(ctx);
}
#endif
#endif

/* Columns 8 c to 8 c + 7 of a row of the tile in LDS. */
FLEET_DEVICE fleet_quad gemm_quad(const fleet_ctx *ctx, uint32_t row, uint32_t c)
{
    return *(const fleet_quad *)(const void *)((const bf16 *)ctx->lds + row * GEMM_STRIDE + c * 8);
}

#endif /* GEMM_TILE_H */
