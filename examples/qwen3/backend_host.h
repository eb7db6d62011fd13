/* backend_host.h: products on the CPU, with the compiler's vectors, which GCC and Clang map to the machine's. A vector of
   sums has a column of a tile in each element. */
#ifndef QWEN3_BACKEND_HOST_H
#define QWEN3_BACKEND_HOST_H

#include "backend_in_place.h"

#include <stddef.h>

#define HAS_PREFILL 0u
FLEET_HOST_DEVICE uint32_t prefill_suits(uint32_t experts, uint32_t hidden, uint32_t q,
                                         uint32_t ffn)
{
    FLEET_UNUSED(experts), FLEET_UNUSED(hidden), FLEET_UNUSED(q), FLEET_UNUSED(ffn);
    return 0;
}

#define MAX_PANEL_TILES 4u
#define PARTIAL_FLOATS 8192u /* there are none; other tasks need the room */

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
FLEET_DEVICE panel_range own_panels(const fleet_ctx *ctx, const task_args *task, uint32_t row_tiles)
{
    return tiles_of_worker(task, ctx, row_tiles);
}

/* Vectors, rows that are multiplied together, and tiles times rows whose sums are in registers. */
#if defined(__AVX512F__)
#define LANES 16u
#define ROW_BLOCK 8u
#define SUM_TILES 16u
#elif defined(__AVX__)
#define LANES 8u
#define ROW_BLOCK 4u
#define SUM_TILES 4u
#elif defined(__aarch64__)
#define LANES 4u
#define ROW_BLOCK 4u
#define SUM_TILES 4u
#else
#define LANES 4u
#define ROW_BLOCK 2u
#define SUM_TILES 2u
#endif
#define TILE_VECTORS (TILE_N / LANES)
typedef float floats __attribute__((vector_size(LANES * 4)));
typedef uint32_t words __attribute__((vector_size(LANES * 4)));
typedef int32_t integers __attribute__((vector_size(LANES * 4)));

#define UNROLLED _Pragma("GCC unroll 32")
/* For functions whose last parameters are constants where they are called. */
#define SPECIALIZED static inline __attribute__((always_inline, unused))

/* Two k's of a column are the halves of a word: a shift or a mask makes a float of one. */
FLEET_HOST_DEVICE uint32_t pack_at(uint32_t column, uint32_t k, uint32_t inner_k)
{
    FLEET_UNUSED(inner_k);
    return (k / 2 * TILE_N + column) * 2 + k % 2;
}
/* The tiles of a panel alternate, block by block: a panel is read from its beginning to its end. */
FLEET_HOST_DEVICE size_t weight_at(uint32_t column, uint32_t k, uint32_t panel_tiles,
                                   uint32_t inner_k)
{
    const size_t block = (size_t)(k / BLOCK_K) * panel_tiles + column / TILE_N;
    return block * BLOCK_K * TILE_N + pack_at(column % TILE_N, k % BLOCK_K, inner_k);
}

/* Codes of fewer bits (quantized.h) lie in the same blocks: as many k's of a column as a word has
   room for are neighbours. After the blocks of a panel follow, for each group of k's and each tile,
   what a group's sums are multiplied by and, of INT4, what is subtracted from its codes. Groups of
   whole columns have the same for all k's. */
typedef struct group_scales {
    float scale[TILE_N];
} group_scales;
typedef struct group_zeros {
    group_scales of;
    int8_t zero[TILE_N];
} group_zeros;
FLEET_HOST_DEVICE uint32_t code_bits(uint32_t codes)
{
    return codes == WEIGHTS_BF16 ? 16 : codes == WEIGHTS_INT4 ? 4 : 8;
}
FLEET_HOST_DEVICE uint32_t code_block_bytes(uint32_t codes)
{
    return BLOCK_K * TILE_N * code_bits(codes) / 8;
}
FLEET_HOST_DEVICE uint32_t coded_groups(const weight_format *f, uint32_t k)
{
    return f->group ? ceil_div(k, f->group) : 1;
}
FLEET_HOST_DEVICE uint32_t coded_scale_bytes(uint32_t codes)
{
    return codes == WEIGHTS_BF16   ? 0
           : codes == WEIGHTS_INT4 ? (uint32_t)sizeof(group_zeros)
                                   : (uint32_t)sizeof(group_scales);
}
/* Bytes of a tile of k's that are a multiple of BLOCK_K. */
FLEET_HOST_DEVICE uint32_t coded_tile_bytes(const weight_format *f, uint32_t k)
{
    return k / BLOCK_K * code_block_bytes(f->codes) +
           coded_groups(f, k) * coded_scale_bytes(f->codes);
}
/* Stores the code of a column and k, and what a group of a column has. */
static inline void coded_put(unsigned char *panel, const weight_format *f, uint32_t panel_tiles,
                             uint32_t column, uint32_t k, uint32_t code)
{
    const uint32_t bits = code_bits(f->codes), each = 32 / bits, i = k % BLOCK_K;
    const size_t block = (size_t)(k / BLOCK_K) * panel_tiles + column / TILE_N;
    const uint32_t at = ((i / each * TILE_N + column % TILE_N) * each + i % each) * bits;
    unsigned char *to = panel + block * code_block_bytes(f->codes) + at / 8;
    if (bits == 8)
        *to = (unsigned char)code;
    else
        *to = (unsigned char)(at % 8 ? (*to & 15u) | code << 4 : (*to & 0xf0u) | (code & 15u));
}
static inline void coded_put_scale(unsigned char *panel, const weight_format *f,
                                   uint32_t panel_tiles, uint32_t column, uint32_t k,
                                   uint32_t group, float scale, int zero)
{
    unsigned char *to =
        panel + (size_t)(k / BLOCK_K) * panel_tiles * code_block_bytes(f->codes) +
        ((size_t)group * panel_tiles + column / TILE_N) * coded_scale_bytes(f->codes);
    memcpy(to + column % TILE_N * sizeof scale, &scale, sizeof scale);
    if (f->codes == WEIGHTS_INT4)
        to[offsetof(group_zeros, zero) + column % TILE_N] = (unsigned char)zero;
}

/* VECTOR k's of eight rows are neighbours. With whole rows one after the other, the same k's of several rows would lie in
   the same set of the L1. */
#define ACT_ROWS 8u
FLEET_HOST_DEVICE size_t act_at(uint32_t row, uint32_t k, uint32_t width)
{
    return ((size_t)(row / ACT_ROWS) * width + k / VECTOR * VECTOR) * ACT_ROWS +
           row % ACT_ROWS * VECTOR + k % VECTOR;
}

/* Rows that are multiplied together. */
typedef struct row_block {
    uint32_t rows;
    const float *x[ROW_BLOCK]; /* beyond `rows`, the last row again */
    float *sum[ROW_BLOCK];
} row_block;

/* Finds the next rows whose sums are wanted, from row i on. Returns the row after them. */
FLEET_DEVICE uint32_t next_rows(const operand *in, const linear_lds *l, uint32_t i, row_block *b)
{
    b->rows = 0;
    for (; i < in->rows && b->rows < ROW_BLOCK; i++) {
        if (in->wanted && !in->wanted[row_of(in, i)]) continue;
        b->x[b->rows] = in->x + act_at(row_of(in, i), 0, in->k);
        b->sum[b->rows++] = l->sums + (size_t)i * TILE_N;
    }
    for (uint32_t r = b->rows; b->rows && r < ROW_BLOCK; r++)
        b->x[r] = b->x[r - 1], b->sum[r] = b->sum[r - 1];
    return i;
}

/* The weights of some tiles. Steps are in bytes. */
typedef struct tile_block {
    const char *weights, *scales;
    size_t step, tile_step;             /* between blocks of a tile, and between tiles */
    size_t scale_step, scale_tile_step; /* the same of the scales of groups */
    size_t sum_step;                    /* between the sums of a row in two tiles */
    uint32_t blocks;                    /* of all k's */
    uint32_t first, end;                /* those that are multiplied now */
    uint32_t group;                     /* blocks of a group */
    size_t prefetched;                  /* from a block to the one that is prefetched; 0: none is */
} tile_block;
#define LINE_BYTES 64u
#define PREFETCHED_BYTES ((size_t)MAX_PANEL_TILES * BLOCK_K * TILE_N * 2) /* 4 KB */

/* Of VECTOR k's. */
SPECIALIZED void prefetch_weights(const char *from, size_t tile_step, const uint32_t codes,
                                  const uint32_t tiles)
{
    UNROLLED
    for (uint32_t t = 0; t < tiles; t++)
        for (uint32_t line = 0; line < VECTOR * TILE_N * code_bits(codes) / 8; line += LINE_BYTES)
            __builtin_prefetch(from + t * tile_step + line);
}

/* Where vector v of a row's sums is. */
SPECIALIZED float *sum_vector(const tile_block *w, const row_block *b, const uint32_t r,
                              const uint32_t v)
{
    return b->sum[r] + v / TILE_VECTORS * w->sum_step + v % TILE_VECTORS * LANES;
}
/* Code number i of each of the words as a float, exactly. */
SPECIALIZED floats floats_of_codes(words word, const uint32_t codes, const uint32_t i)
{
    const uint32_t bits = code_bits(codes);
    floats f;
    if (codes == WEIGHTS_BF16) { /* the halves of a word are the upper halves of floats */
        const words one = i ? word & 0xffff0000u : word << 16;
        memcpy(&f, &one, sizeof f);
        return f;
    }
    word <<= 32 - bits - i * bits; /* to the upper end, where the sign is */
    if (codes == WEIGHTS_FP8) {
        /* sign, four bits of exponent, three of fraction: those of a float but for the exponent's
           bias */
        const words one = (words)((integers)word >> 4) & 0x87f00000u;
        memcpy(&f, &one, sizeof f);
        return f * 0x1p120f;
    }
    return __builtin_convertvector((integers)word >> (32 - bits), floats);
}
/* The zero points of a group. */
SPECIALIZED floats zero_vector(const tile_block *w, const uint32_t group, const uint32_t v)
{
    const char *from = w->scales + group * w->scale_step + v / TILE_VECTORS * w->scale_tile_step +
                       offsetof(group_zeros, zero) + v % TILE_VECTORS * LANES;
    float zero[LANES];
    floats f;
    for (uint32_t i = 0; i < LANES; i++) zero[i] = (float)(int8_t)from[i];
    memcpy(&f, zero, sizeof f);
    return f;
}
/* Adds a group's sum, times its scale, to the sum of the groups before. */
SPECIALIZED floats scaled_sum(const tile_block *w, const uint32_t group, const uint32_t v,
                              const float *before, floats sum)
{
    floats scale, all;
    memcpy(&scale,
           w->scales + group * w->scale_step + v / TILE_VECTORS * w->scale_tile_step +
               v % TILE_VECTORS * LANES * sizeof(float),
           sizeof scale);
    memcpy(&all, before, sizeof all);
    return all + sum * scale;
}
/* Adds the products of the k's of a word of each column to the sums, k after k. */
SPECIALIZED void multiply_words(const tile_block *w, const row_block *b, const char *from,
                                const size_t at, const floats *zero, const uint32_t codes,
                                const uint32_t rows, const uint32_t vectors,
                                floats sum[ROW_BLOCK][MAX_PANEL_TILES * TILE_VECTORS])
{
    const uint32_t each = 32 / code_bits(codes), unpacked = codes == WEIGHTS_BF16 ? 2 : 1;
    words word[MAX_PANEL_TILES * TILE_VECTORS];
    UNROLLED
    for (uint32_t v = 0; v < vectors; v++)
        memcpy(&word[v], from + v / TILE_VECTORS * w->tile_step + v % TILE_VECTORS * LANES * 4,
               sizeof word[v]);
    UNROLLED
    for (uint32_t o = 0; o < each; o += unpacked) {
        floats weight[2][MAX_PANEL_TILES * TILE_VECTORS];
        UNROLLED
        for (uint32_t n = 0; n < unpacked * vectors; n++) {
            const uint32_t q = n % unpacked, v = n / unpacked;
            weight[q][v] = floats_of_codes(word[v], codes, o + q);
            if (codes == WEIGHTS_INT4) weight[q][v] -= zero[v];
        }
        UNROLLED
        for (uint32_t n = 0; n < unpacked * rows * vectors; n++) {
            const uint32_t q = n / (rows * vectors), r = n / vectors % rows, v = n % vectors;
            sum[r][v] += b->x[r][at + o + q] * weight[q][v];
        }
    }
}
/* Adds the products of k's and their weights to the sums, k after k. A group of weights with a
   common scale has a sum of its own. */
SPECIALIZED void multiply_rows(const tile_block *w, const row_block *b, const uint32_t codes,
                               const uint32_t rows, const uint32_t tiles)
{
    const uint32_t vectors = tiles * TILE_VECTORS, each = 32 / code_bits(codes),
                   is_scaled = codes != WEIGHTS_BF16;
    size_t at = (size_t)w->first * BLOCK_K * ACT_ROWS;
    if (is_scaled && !w->first) {
        UNROLLED
        for (uint32_t n = 0; n < rows * vectors; n++)
            memset(sum_vector(w, b, n / vectors, n % vectors), 0, sizeof(floats));
    }
    for (uint32_t i = w->first, end; i < w->end; i = end) {
        const uint32_t group = is_scaled ? i / w->group : 0;
        floats sum[ROW_BLOCK][MAX_PANEL_TILES * TILE_VECTORS], zero[MAX_PANEL_TILES * TILE_VECTORS];
        end = is_scaled && (group + 1) * w->group < w->end ? (group + 1) * w->group : w->end;
        UNROLLED
        for (uint32_t n = 0; n < rows * vectors; n++) {
            const uint32_t r = n / vectors, v = n % vectors;
            if (w->first && !is_scaled)
                memcpy(&sum[r][v], sum_vector(w, b, r, v), sizeof sum[r][v]);
            else
                memset(&sum[r][v], 0, sizeof sum[r][v]);
        }
        UNROLLED
        for (uint32_t v = 0; v < vectors; v++)
            if (codes == WEIGHTS_INT4) zero[v] = zero_vector(w, group, v);
        for (; i < end; i++) {
            const char *block = w->weights + i * w->step;
            for (uint32_t k = 0; k < BLOCK_K; k += VECTOR, at += VECTOR * ACT_ROWS) {
                const char *from = block + k * TILE_N * code_bits(codes) / 8;
                if (w->prefetched)
                    prefetch_weights(from + w->prefetched, w->tile_step, codes, tiles);
                if (is_scaled) {
                    for (uint32_t j = 0; j < VECTOR; j += each)
                        multiply_words(w, b, from + j * TILE_N * 4 / each, at + j, zero, codes,
                                       rows, vectors, sum);
                } else {
                    UNROLLED
                    for (uint32_t j = 0; j < VECTOR; j += each)
                        multiply_words(w, b, from + j * TILE_N * 4 / each, at + j, zero, codes,
                                       rows, vectors, sum);
                }
            }
        }
        /* Rows beyond the last one have its sums: all are read before one is stored. */
        UNROLLED
        for (uint32_t n = 0; n < rows * vectors; n++) {
            const uint32_t r = n / vectors, v = n % vectors;
            if (!is_scaled) continue;
            sum[r][v] = scaled_sum(w, group, v, sum_vector(w, b, r, v), sum[r][v]);
        }
        UNROLLED
        for (uint32_t n = 0; n < rows * vectors; n++)
            memcpy(sum_vector(w, b, n / vectors, n % vectors), &sum[n / vectors][n % vectors],
                   sizeof sum[0][0]);
    }
}
/* As many tiles at a time as there are registers for. Chains of dependent additions are too few otherwise. */
SPECIALIZED void multiply_tiles(tile_block *w, row_block *b, const char *weights,
                                const char *scales, uint32_t tiles, const uint32_t codes,
                                const uint32_t rows)
{
    const uint32_t room = SUM_TILES / rows < MAX_PANEL_TILES ? SUM_TILES / rows : MAX_PANEL_TILES;
    /* Many rows have chains enough, and share the unpacking of a tile's codes. */
    const uint32_t most = codes != WEIGHTS_BF16 && rows > 1 ? 1 : room;
    for (uint32_t t = 0, n; t < tiles; t += n) {
        w->weights = weights + t * w->tile_step;
        if (codes != WEIGHTS_BF16) w->scales = scales + t * w->scale_tile_step;
        n = tiles - t < most ? 1 : most;
        if (n == most)
            multiply_rows(w, b, codes, rows, most);
        else
            multiply_rows(w, b, codes, rows, 1);
        for (uint32_t r = 0; r < ROW_BLOCK; r++) b->sum[r] += n * w->sum_step;
    }
}

/* Blocks of a tile that all rows are multiplied by while the L1 holds them; a multiple of those of
   a group. */
#define L1_BLOCKS 8u

/* The wave's share of the rows. Rows go through a product of bf16 as they are; codes are unpacked
   for one row, or for as many as go together. */
SPECIALIZED void multiply_codes(const fleet_ctx *ctx, const bf16 *weights, const operand *in,
                                const linear_lds *l, const uint32_t codes)
{
    /* Tiles of experts are packed one by one. */
    const uint32_t tiles = in->panel_tiles, together = in->list ? 1 : tiles;
    const uint32_t waves = ctx->threads / fleet_wave_size();
    const char *const first = (const char *)weights, *scales;
    tile_block w;
    w.blocks = in->k / BLOCK_K;
    w.step = (size_t)together * code_block_bytes(codes);
    scales = first + w.blocks * w.step;
    w.scale_step = in->format.group ? (size_t)together * coded_scale_bytes(codes) : 0;
    w.tile_step = in->list ? coded_tile_bytes(&in->format, in->k) : code_block_bytes(codes);
    w.scale_tile_step = in->list ? w.tile_step : coded_scale_bytes(codes);
    w.group = in->format.group ? in->format.group / BLOCK_K : L1_BLOCKS;
    w.sum_step = (size_t)in->rows * TILE_N;
    for (w.first = 0; w.first < w.blocks; w.first = w.end) {
        uint32_t n = 0, row = 0;
        w.end = w.blocks - w.first < L1_BLOCKS ? w.blocks : w.first + L1_BLOCKS;
        while (row < in->rows) {
            row_block b;
            row = next_rows(in, l, row, &b);
            w.prefetched = n == 0 ? PREFETCHED_BYTES : 0;
            if (b.rows == 0 || n++ % waves != fleet_wave_id()) continue;
            if (b.rows == 1)
                multiply_tiles(&w, &b, first, scales, tiles, codes, 1);
            else if (codes == WEIGHTS_BF16 && (b.rows == 2 || ROW_BLOCK == 2))
                multiply_tiles(&w, &b, first, scales, tiles, codes, 2);
            else if (codes == WEIGHTS_BF16 && (b.rows <= 4 || ROW_BLOCK == 4))
                multiply_tiles(&w, &b, first, scales, tiles, codes, ROW_BLOCK < 4 ? ROW_BLOCK : 4);
            else
                multiply_tiles(&w, &b, first, scales, tiles, codes, ROW_BLOCK);
        }
    }
}
/* The registers of its loops do not depend on what surrounds a call. */
#define MULTIPLY_SHARE(name, codes)                                                                \
    static __attribute__((noinline, unused)) void name(const fleet_ctx *ctx, const bf16 *weights,  \
                                                       const operand *in, const linear_lds *l)     \
    {                                                                                              \
        multiply_codes(ctx, weights, in, l, codes);                                                \
    }
MULTIPLY_SHARE(multiply_bf16, WEIGHTS_BF16)
MULTIPLY_SHARE(multiply_fp8, WEIGHTS_FP8)
MULTIPLY_SHARE(multiply_int8, WEIGHTS_INT8)
MULTIPLY_SHARE(multiply_int4, WEIGHTS_INT4)

FLEET_DEVICE fleet_status multiply(const fleet_ctx *ctx, weight_source *source, const bf16 *weights,
                                   const operand *in, const linear_lds *l)
{
    FLEET_UNUSED(source);
    fleet_barrier(ctx); /* the sums of the last product were read */
    switch (in->format.codes) {
    case WEIGHTS_FP8:
        multiply_fp8(ctx, weights, in, l);
        break;
    case WEIGHTS_INT8:
        multiply_int8(ctx, weights, in, l);
        break;
    case WEIGHTS_INT4:
        multiply_int4(ctx, weights, in, l);
        break;
    default:
        multiply_bf16(ctx, weights, in, l);
    }
    fleet_barrier(ctx);
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
        l->scale[first + r] = task->rmsnorm ? rms_scale(sum / (float)d->hidden + d->eps) : 1;
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

/* A page of a head: [head_dim][PAGE_TOKENS] of its keys, then its values, row after row. */
FLEET_HOST_DEVICE uint32_t padded_head(const decoder *d)
{
    return ceil_div(d->head_dim, LANES) * LANES;
}
FLEET_HOST_DEVICE uint32_t page_size(const decoder *d)
{
    return PAGE_TOKENS * (d->head_dim + padded_head(d));
}
FLEET_HOST_DEVICE uint32_t key_at(const decoder *d, uint32_t row, uint32_t i)
{
    FLEET_UNUSED(d);
    return i * PAGE_TOKENS + row;
}
FLEET_HOST_DEVICE uint32_t value_at(const decoder *d, uint32_t row, uint32_t i)
{
    return PAGE_TOKENS * d->head_dim + row * padded_head(d) + i;
}

#endif /* QWEN3_BACKEND_HOST_H */
