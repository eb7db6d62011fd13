/* The tiles of the mixture-of-experts benchmark: what a task computes, not when.

   Two sections implement the same functions: tensor cores of sm_90a (wgmma, bulk tensor copies), and plain loops for
   everything else. -DMOE_PORTABLE takes the plain loops under nvcc too.

       moe_some_scores    scores of some tokens with some experts, to memory     (few tokens)
       moe_block_scores   scores of a block of tokens with all experts, to LDS   (many tokens)
       moe_best_experts   the k best experts of some tokens and their weights
       moe_multiply_up    h = silu(x Wg) * (x Wu), for the rows of one tile and some columns
       moe_multiply_down  y = h Wd, the same
       moe_expect_up, moe_expect_down   what may be done before their tasks wait

   Rows: token t and its j-th expert are pair t * k + j. Pairs are dealt to slots, expert after expert; h and y have a
   row for each slot. A tile is a run of slots of one expert. */
#ifndef MOE_TILES_H
#define MOE_TILES_H

#include <math.h>
#include <string.h>

#define MOE_MOST_EXPERTS 128
#define MOE_MOST_K 8
#define MOE_MOST_BLOCK 32 /* tokens of a route task, or of choose */

typedef uint16_t moe_bf16;

typedef struct moe_tile {
    int32_t expert, slot, rows, pad;
} moe_tile;

#if defined(FLEET_CUDA) && !defined(MOE_PORTABLE)
#define MOE_TENSOR_CORES 1
#include <cuda.h>

/* Weight rows lie in memory so that a box has, in groups of eight, gate and up rows in turn. */
typedef struct moe_maps {
    CUtensorMap router, gate_up, down; /* boxes of 64 columns of the weight rows of a task */
    CUtensorMap x8, h8, h32;           /* of 64 columns of 8 or 32 rows */
} moe_maps;

/* Two warpgroups multiply, one fetches. */
#define MOE_MULTIPLIERS 256
#define MOE_FETCHERS 128
#define MOE_THREADS (MOE_MULTIPLIERS + MOE_FETCHERS)
#define MOE_LDS_BYTES 229376u
#else
#define MOE_TENSOR_CORES 0
#define MOE_THREADS 256
#define MOE_LDS_BYTES 24576u
#endif

/* What every tile sees. It is a parameter of the kernel, by value: copies by tensor maps want those there. */
typedef struct moe {
#if MOE_TENSOR_CORES
    moe_maps maps;
#endif
    uint32_t tokens, experts, k, hidden, ffn;
    uint32_t block;      /* tokens of a score, route or place task */
    uint32_t parts;      /* score tasks per block: each has experts / parts of them */
    uint32_t tile_rows;  /* most rows of a tile */
    uint32_t most_tiles; /* of this number of tokens */
    /* Weight rows that are multiplied at once (a column of h takes two), and how many such runs a task makes, or takes
       at once. */
    uint32_t up_rows, down_rows, up_runs, down_runs;
    uint32_t shares;         /* 0, or how many tasks share the runs of all tiles */
    uint32_t dealt;          /* eighths of them that are theirs from the start; the rest is taken */
    uint32_t stages;         /* most stages of the ring, at least 2 */
    uint32_t once;           /* 1: weights are read once and need not stay in the L2 */
    uint32_t combined;       /* tokens of a combine task */
    const moe_bf16 *x;       /* [tokens][hidden] */
    const moe_bf16 *router;  /* [experts][hidden] */
    const moe_bf16 *gate_up; /* [experts][2][ffn][hidden] */
    const moe_bf16 *down;    /* [experts][hidden][ffn] */
    float *scores;           /* [tokens][experts]; few tokens */
    int32_t *topk;           /* [tokens][k] */
    float *weight;           /* [tokens][k] */
    int32_t *rank;           /* [tokens][k]: among the pairs of its expert in its block */
    int32_t *before;         /* [blocks][experts]: such pairs; then, of the blocks before */
    int32_t *first;          /* [experts]: slot */
    int32_t *indptr;         /* [2] */
    int32_t *nowhere;        /* [blocks]: zeros */
    uint32_t *taken;         /* [2]: runs of gate_up and of down that are in no share */
    moe_tile *tile;          /* [most_tiles]; those that there are not have no rows */
    int32_t *slot;           /* [tokens][k] */
    int32_t *token_of;       /* [slots] */
    moe_bf16 *h, *y;         /* [slots][ffn], [slots][hidden] */
    moe_bf16 *out;           /* [tokens][hidden] */
    uint64_t *stamps;        /* [tasks][2]: begin and end of each tile, or null */
} moe;

typedef struct __attribute__((aligned(16))) moe_quad {
    uint32_t word[4];
} moe_quad;

#if defined(FLEET_HOST)
#define MOE_UNROLL
#else
#define MOE_UNROLL _Pragma("unroll")
#endif

/* 16 bytes. Loads in a row stay one, so that they are in flight together. */
FLEET_DEVICE moe_quad moe_load(const moe_bf16 *from)
{
#if defined(FLEET_CUDA)
    moe_quad q;
    __asm__ volatile("ld.global.v4.u32 {%0,%1,%2,%3},[%4];"
                     : "=r"(q.word[0]), "=r"(q.word[1]), "=r"(q.word[2]), "=r"(q.word[3])
                     : "l"(__cvta_generic_to_global(from))
                     : "memory");
    return q;
#else
    return *(const moe_quad *)(const void *)from;
#endif
}

/* ---- bf16 ---- */

FLEET_DEVICE float moe_float_bits(uint32_t bits)
{
    float f;
    __builtin_memcpy(&f, &bits, sizeof f);
    return f;
}
FLEET_DEVICE float moe_float(moe_bf16 v)
{
    return moe_float_bits((uint32_t)v << 16);
}
FLEET_DEVICE float moe_low(uint32_t two)
{
    return moe_float_bits(two << 16);
}
FLEET_DEVICE float moe_high(uint32_t two)
{
    return moe_float_bits(two & 0xffff0000u);
}
/* Rounds to nearest, ties to even. */
FLEET_DEVICE moe_bf16 moe_round(float f)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &f, sizeof bits);
    if (f != f) return 0x7fff;
    return (moe_bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- what group and its like keep in LDS ---- */

typedef struct moe_choice {
    int32_t expert[MOE_MOST_BLOCK * MOE_MOST_K]; /* of each pair, and its rank */
    int32_t rank[MOE_MOST_BLOCK * MOE_MOST_K];
    int32_t count[MOE_MOST_EXPERTS], first[MOE_MOST_EXPERTS], sum[2][MOE_MOST_EXPERTS];
} moe_choice;
#define MOE_CHOICE_BYTES 4096u /* of LDS, before everything else */

#if MOE_TENSOR_CORES
/* ---- tensor cores: barriers in LDS, copies, products ---- */

FLEET_DEVICE uint32_t moe_lds(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}
FLEET_DEVICE void moe_barrier_init(uint32_t barrier, uint32_t arrivals)
{
    __asm__ volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(barrier), "r"(arrivals)
                     : "memory");
}
FLEET_DEVICE void moe_barrier_end(uint32_t barrier)
{
    __asm__ volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
FLEET_DEVICE void moe_barrier_arrive(uint32_t barrier)
{
    __asm__ volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(barrier) : "memory");
}
FLEET_DEVICE void moe_barrier_expect(uint32_t barrier, uint32_t bytes)
{
    __asm__ volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(barrier),
                     "r"(bytes)
                     : "memory");
}
/* Copies that the tile itself has begun end by themselves: this needs no deadline. */
FLEET_DEVICE void moe_barrier_wait(uint32_t barrier, uint32_t parity)
{
    __asm__ volatile("{\n.reg .pred p;\n"
                     "again:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p,[%0],%1;\n"
                     "@!p bra again;\n}" ::"r"(barrier),
                     "r"(parity)
                     : "memory");
}
/* Between ordinary accesses to LDS and those of copies and wgmma, both ways. */
FLEET_DEVICE void moe_fence_lds(void)
{
    __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
/* The same for memory. It costs as much as a round trip. */
FLEET_DEVICE void moe_fence_memory(void)
{
    __asm__ volatile("fence.proxy.async.global;" ::: "memory");
}
/* A barrier of some of the waves; 0 is the workgroup's. */
FLEET_DEVICE void moe_meet(uint32_t name, uint32_t threads)
{
    __asm__ volatile("bar.sync %0,%1;" ::"r"(name), "r"(threads) : "memory");
}
FLEET_DEVICE uint64_t moe_policy(uint32_t once)
{
    uint64_t policy;
    if (once)
        __asm__("createpolicy.fractional.L2::evict_first.b64 %0,1.0;" : "=l"(policy));
    else
        __asm__("createpolicy.fractional.L2::evict_normal.b64 %0,1.0;" : "=l"(policy));
    return policy;
}
FLEET_DEVICE void moe_fetch5(uint32_t to, const CUtensorMap *map, uint32_t barrier,
                             const int32_t *at, uint64_t policy)
{
    __asm__ volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::"
                     "bytes.L2::cache_hint [%0],[%1,{%3,%4,%5,%6,%7}],[%2],%8;" ::"r"(to),
                     "l"(map), "r"(barrier), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
                     "r"(at[4]), "l"(policy)
                     : "memory");
}
FLEET_DEVICE void moe_fetch2(uint32_t to, const CUtensorMap *map, uint32_t barrier, int32_t column,
                             int32_t row)
{
    __asm__ volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::"
                     "bytes [%0],[%1,{%3,%4}],[%2];" ::"r"(to),
                     "l"(map), "r"(barrier), "r"(column), "r"(row)
                     : "memory");
}
FLEET_DEVICE void moe_fetch16(uint32_t to, const void *from)
{
    __asm__ volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(to),
                     "l"(__cvta_generic_to_global(from))
                     : "memory");
}
/* Arrives when all that this thread fetched by moe_fetch16 is there. */
FLEET_DEVICE void moe_fetched16(uint32_t barrier)
{
    __asm__ volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier)
                     : "memory");
}

/* A matrix of rows of 64 bf16 in LDS whose 16-byte pieces are swizzled by the row's number mod 8; `at` is a multiple
   of 1024. Sixteen columns further on is 2 more. */
FLEET_DEVICE uint64_t moe_matrix(uint32_t at)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}
FLEET_DEVICE void moe_products_begin(void)
{
    __asm__ volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
FLEET_DEVICE void moe_products_commit(void)
{
    __asm__ volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
FLEET_DEVICE void moe_products_but_one(void)
{
    __asm__ volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}
FLEET_DEVICE void moe_products_all(void)
{
    __asm__ volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

#define MOE_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define MOE_D8(i) MOE_D4(i), MOE_D4(i + 4)
#define MOE_D16(i) MOE_D8(i), MOE_D8(i + 8)
#define MOE_D32(i) MOE_D16(i), MOE_D16(i + 16)
#define MOE_WGMMA(n, list, a, b, ...)                                                              \
    __asm__ volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" list "}," a      \
                     "," b ",1,1,1,0,0;"                                                           \
                     : __VA_ARGS__                                                                 \
                     : "l"(rows), "l"(columns))
#define MOE_R4 "%0,%1,%2,%3"
#define MOE_R8 MOE_R4 ",%4,%5,%6,%7"
#define MOE_R16 MOE_R8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define MOE_R32 MOE_R16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define MOE_R48 MOE_R32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define MOE_R64 MOE_R48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

/* d += 64 rows times the transpose of n rows, over 16 columns. n is known at compile time. */
FLEET_DEVICE void moe_multiply(float *d, uint32_t n, uint64_t rows, uint64_t columns)
{
    if (n == 8)
        MOE_WGMMA(8, MOE_R4, "%4", "%5", MOE_D4(0));
    else if (n == 16)
        MOE_WGMMA(16, MOE_R8, "%8", "%9", MOE_D8(0));
    else if (n == 32)
        MOE_WGMMA(32, MOE_R16, "%16", "%17", MOE_D16(0));
    else if (n == 64)
        MOE_WGMMA(64, MOE_R32, "%32", "%33", MOE_D32(0));
    else if (n == 96)
        MOE_WGMMA(96, MOE_R48, "%48", "%49", MOE_D32(0), MOE_D16(32));
    else
        MOE_WGMMA(128, MOE_R64, "%64", "%65", MOE_D32(0), MOE_D32(32));
}

/* ---- tensor cores: the ring, and one product through it ---- */

#define MOE_MOST_STAGES 32u
#define MOE_STEP 64u               /* columns of a stage: 128 bytes */
#define MOE_HALF_ROWS (64u * 128u) /* bytes of 64 rows of a stage */

typedef enum moe_kind { MOE_SCORES, MOE_GATE_UP, MOE_DOWN } moe_kind;

/* Products: some weight rows times token rows; then the next weight rows, `runs` times. */
typedef struct moe_product {
    const CUtensorMap *weights;
    int32_t at[5];        /* of the first box; at[0] runs over the columns */
    uint32_t axis;        /* of the rows of the weights: 1 or 3, */
    uint32_t advance;     /* from a run to the next */
    uint32_t weight_rows; /* of a box */
    uint32_t runs;
    uint32_t steps; /* of MOE_STEP columns, per run, ... */
    uint32_t
        start; /* ... from this step on, then from 0: workers that read the same rows should not do so at once */
    uint32_t most_stages, once;
    const CUtensorMap *rows; /* boxes of row_box token rows from row `row` on; or ... */
    uint32_t row_box;
    int32_t row;
    const moe_bf16 *gather; /* ... rows of this matrix, row token_of[i] for i < n_rows */
    const int32_t *token_of;
    uint32_t n_rows, stride; /* elements of a row of it */
    void *to;                /* the results of the first run */
    uint32_t to_stride;      /* elements from token to token */
    uint32_t features;       /* results for each token per run */
} moe_product;

/* LDS of a product: barriers, then the stages, then room for results in flight. */
typedef struct moe_ring {
    uint32_t full, empty; /* barriers, 8 bytes each */
    uint32_t stages, stage_bytes, weight_bytes, data;
    uint32_t results; /* of the first warpgroup */
} moe_ring;

#define MOE_TOGETHER 32u                       /* most tokens whose results are in flight */
#define MOE_RESULT_BYTES (2u * 64u * 2u + 16u) /* of a token; no two tokens in one bank */

FLEET_DEVICE moe_ring moe_ring_of(const fleet_ctx *ctx, const moe_product *p, uint32_t n)
{
    moe_ring r;
    const uint32_t end = moe_lds(ctx->lds) + ctx->lds_bytes;
    r.full = moe_lds(ctx->lds) + MOE_CHOICE_BYTES;
    r.empty = r.full + 8 * MOE_MOST_STAGES;
    r.data = (r.empty + 8 * MOE_MOST_STAGES + 1023) / 1024 * 1024;
    r.results = end - 2 * MOE_TOGETHER * MOE_RESULT_BYTES;
    r.weight_bytes = p->weight_rows * 128;
    r.stage_bytes = r.weight_bytes + n * 128;
    r.stages = (r.results - r.data) / r.stage_bytes;
    if (r.stages > p->most_stages) r.stages = p->most_stages;
    return r;
}

/* By all threads, before roles part. The fence keeps what earlier tiles did with this LDS before the copies. */
FLEET_DEVICE void moe_ring_begin(const fleet_ctx *ctx, const moe_ring *r, uint32_t gathers,
                                 uint32_t multipliers)
{
    if (ctx->thread < r->stages)
        moe_barrier_init(r->full + 8 * ctx->thread, 1 + (gathers ? MOE_FETCHERS : 0));
    else if (ctx->thread >= 32 && ctx->thread < 32 + r->stages)
        moe_barrier_init(r->empty + 8 * (ctx->thread - 32), multipliers / 32);
    moe_fence_lds();
    fleet_block_barrier();
}
/* By all threads, when all have done with it. */
FLEET_DEVICE void moe_ring_end(const fleet_ctx *ctx, const moe_ring *r)
{
    fleet_block_barrier();
    if (ctx->thread < r->stages)
        moe_barrier_end(r->full + 8 * ctx->thread);
    else if (ctx->thread >= 32 && ctx->thread < 32 + r->stages)
        moe_barrier_end(r->empty + 8 * (ctx->thread - 32));
}

/* Where in the weights the next box is. */
typedef struct moe_place_in {
    int32_t column, row;
} moe_place_in;

FLEET_DEVICE void moe_fetch_weights(const moe_product *p, const moe_ring *r, moe_place_in *next,
                                    uint32_t stage, uint32_t bytes, uint64_t policy)
{
    const uint32_t full = r->full + 8 * stage;
    int32_t at[5];
    at[0] = next->column, at[1] = p->axis == 1 ? next->row : 0, at[2] = p->at[2];
    at[3] = p->axis == 1 ? 0 : next->row, at[4] = p->at[4];
    moe_barrier_expect(full, bytes);
    moe_fetch5(r->data + stage * r->stage_bytes, p->weights, full, at, policy);
    next->column += MOE_STEP;
    if (next->column == (int32_t)(p->steps * MOE_STEP)) next->column = 0;
    if (next->column == (int32_t)(p->start * MOE_STEP)) next->row += (int32_t)p->advance;
}

/* The fetching waves. The weights of the first stages are in flight before the rows are looked up. */
FLEET_DEVICE void moe_fetch(const fleet_ctx *ctx, const moe_product *p, const moe_ring *r,
                            uint32_t n, uint32_t gathers)
{
    const uint32_t me = ctx->thread - MOE_MULTIPLIERS, steps = p->runs * p->steps;
    const uint32_t bytes = r->weight_bytes + (gathers ? 0 : n * 128);
    const uint64_t policy = moe_policy(p->once);
    uint32_t stage = 0, parity = 1, to = 0;
    int32_t column = (int32_t)(p->start * MOE_STEP);
    moe_place_in next;
    const moe_bf16 *from[8];
    next.column = column, next.row = p->at[p->axis == 1 ? 1 : 3];
    if (me == 0) {
        const uint32_t first = r->stages < steps ? r->stages : steps;
        FLEETI_ROLLED
        for (uint32_t i = 0; i < first; i++) moe_fetch_weights(p, r, &next, i, bytes, policy);
        /* What other tasks stored reaches copies after the fence: the acquire came before. */
        if (!gathers) moe_fence_memory();
    } else if (!gathers) {
        return;
    }
    if (gathers) {
        /* Eight threads for a row, each 16 bytes; swizzled as tensor maps do it. */
        MOE_UNROLL
        for (uint32_t i = 0; i < (n + 15) / 16; i++) {
            const uint32_t row = me / 8 + 16 * i, some = row < p->n_rows ? row : 0;
            from[i] = p->gather + (size_t)p->token_of[some] * p->stride + me % 8 * 8;
        }
        to = r->weight_bytes + me / 8 * 128 + (me ^ me / 8) % 8 * 16;
    }
    FLEETI_ROLLED
    for (uint32_t step = 0; step < steps; step++) {
        const uint32_t data = r->data + stage * r->stage_bytes, full = r->full + 8 * stage;
        if (step >= r->stages) {
            moe_barrier_wait(r->empty + 8 * stage, parity);
            if (me == 0) moe_fetch_weights(p, r, &next, stage, bytes, policy);
        }
        if (gathers) {
            MOE_UNROLL
            for (uint32_t i = 0; i < (n + 15) / 16; i++)
                if (me / 8 + 16 * i < p->n_rows)
                    moe_fetch16(data + to + i * 2048, from[i] + column);
            moe_fetched16(full);
        } else {
            for (uint32_t i = 0; i < n; i += p->row_box)
                moe_fetch2(data + r->weight_bytes + i * 128, p->rows, full, column,
                           p->row + (int32_t)i);
        }
        column += MOE_STEP;
        if (column == (int32_t)(p->steps * MOE_STEP)) column = 0;
        if (++stage == r->stages) stage = 0, parity ^= 1;
    }
}

/* The multiplying waves: d[t], the product of the t-th 64 weight rows of this warpgroup and n token rows. Goes on in
   the ring where the run before it ended. */
FLEET_DEVICE void moe_accumulate(const fleet_ctx *ctx, const moe_product *p, const moe_ring *r,
                                 float d[2][64], uint32_t n, uint32_t halves, uint32_t gathers,
                                 uint32_t *at_stage, uint32_t *at_parity)
{
    uint32_t stage = *at_stage, parity = *at_parity, before = 0;
    const uint32_t offset = ctx->thread / 128 * halves * MOE_HALF_ROWS;
    /* Were they not written here, the compiler would keep their registers through the whole kernel. */
    MOE_UNROLL
    for (uint32_t i = 0; i < halves * 64; i++)
        if (i % 64 < n / 2) d[i / 64][i % 64] = 0;
    FLEETI_ROLLED
    for (uint32_t step = 0; step < p->steps; step++) {
        const uint32_t data = r->data + stage * r->stage_bytes;
        const uint64_t rows = moe_matrix(data + offset);
        const uint64_t columns = moe_matrix(data + r->weight_bytes);
        moe_barrier_wait(r->full + 8 * stage, parity);
        if (gathers) moe_fence_lds(); /* cp.async writes as threads do */
        moe_products_begin();
        MOE_UNROLL
        for (uint32_t i = 0; i < MOE_STEP / 16; i++) {
            MOE_UNROLL
            for (uint32_t t = 0; t < halves; t++)
                moe_multiply(d[t], n, rows + t * (MOE_HALF_ROWS >> 4) + 2 * i, columns + 2 * i);
        }
        moe_products_commit();
        if (step) {
            moe_products_but_one();
            if (fleet_lane() == 0) moe_barrier_arrive(r->empty + 8 * before);
        }
        before = stage;
        if (++stage == r->stages) stage = 0, parity ^= 1;
    }
    moe_products_all();
    if (fleet_lane() == 0) moe_barrier_arrive(r->empty + 8 * before);
    *at_stage = stage, *at_parity = parity;
}

/* Two bf16 of neighbouring tokens. */
FLEET_DEVICE uint32_t moe_pair(float first, float second)
{
    uint32_t two;
    __asm__("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(two) : "f"(second), "f"(first));
    return two;
}
/* A wave's 8 features of 8 tokens, as wgmma leaves them, to rows of tokens: lane i < 8 names that of token i. */
FLEET_DEVICE void moe_put_transposed(uint32_t row, uint32_t two)
{
    __asm__ volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0],{%1};" ::"r"(row),
                     "r"(two)
                     : "memory");
}

/* d of one warpgroup to rows of `to`, by way of LDS. */
FLEET_DEVICE void moe_store(const fleet_ctx *ctx, const moe_product *p, const moe_ring *r,
                            float d[2][64], uint32_t n, uint32_t halves, moe_kind kind,
                            moe_bf16 *to)
{
    const uint32_t group = ctx->thread / 128, me = ctx->thread % 128, wave = me / 32;
    const uint32_t most = (kind == MOE_GATE_UP ? 32 : 64) * halves; /* features of this group */
    const uint32_t left = p->features - group * most, pieces = (left < most ? left : most) / 8;
    const uint32_t space = r->results + group * MOE_TOGETHER * MOE_RESULT_BYTES;
    const uint32_t mine = space + me % 8 * MOE_RESULT_BYTES;
    MOE_UNROLL
    for (uint32_t from = 0; from < n; from += MOE_TOGETHER) {
        if (from >= p->n_rows) break;
        moe_meet(2 + group, 128);
        MOE_UNROLL
        for (uint32_t t = 0; t < halves; t++) {
            MOE_UNROLL
            for (uint32_t j = 0; j < (n < MOE_TOGETHER ? n : MOE_TOGETHER) / 8; j++) {
                const float *v = &d[t][4 * (from / 8 + j)];
                const uint32_t row = mine + 8 * j * MOE_RESULT_BYTES;
                if (kind == MOE_GATE_UP) {
                    const float a = __fdividef(v[0], 1 + __expf(-v[0])) * v[2];
                    const float b = __fdividef(v[1], 1 + __expf(-v[1])) * v[3];
                    moe_put_transposed(row + 2 * (32 * t + 8 * wave), moe_pair(a, b));
                } else {
                    moe_put_transposed(row + 2 * (64 * t + 16 * wave), moe_pair(v[0], v[1]));
                    moe_put_transposed(row + 2 * (64 * t + 16 * wave + 8), moe_pair(v[2], v[3]));
                }
            }
        }
        moe_meet(2 + group, 128);
        for (uint32_t i = me; i < MOE_TOGETHER * pieces; i += 128) {
            const uint32_t row = i / pieces, piece = i % pieces;
            moe_quad q;
            if (from + row >= p->n_rows) break;
            __asm__ volatile("ld.shared.v4.u32 {%0,%1,%2,%3},[%4];"
                             : "=r"(q.word[0]), "=r"(q.word[1]), "=r"(q.word[2]), "=r"(q.word[3])
                             : "r"(space + row * MOE_RESULT_BYTES + 16 * piece)
                             : "memory");
            *(moe_quad *)(to + (size_t)(from + row) * p->to_stride + group * most + 8 * piece) = q;
        }
    }
}

/* All runs of products with n token rows; n, halves, gathers and kind are known at compile time. */
FLEET_DEVICE void moe_run(const fleet_ctx *ctx, const moe_product *p, uint32_t n, uint32_t halves,
                          uint32_t gathers, moe_kind kind)
{
    const moe_ring r = moe_ring_of(ctx, p, n);
    const uint32_t multipliers =
        p->weight_rows > 64 * halves ? MOE_MULTIPLIERS : MOE_MULTIPLIERS / 2;
    moe_ring_begin(ctx, &r, gathers, multipliers);
    if (ctx->thread >= MOE_MULTIPLIERS) {
        moe_fetch(ctx, p, &r, n, gathers);
    } else if (ctx->thread < multipliers) {
        uint32_t stage = 0, parity = 0;
        FLEETI_ROLLED
        for (uint32_t run = 0; run < p->runs; run++) {
            float d[2][64];
            moe_accumulate(ctx, p, &r, d, n, halves, gathers, &stage, &parity);
            if (kind == MOE_SCORES) {
                float *scores = (float *)p->to;
                const uint32_t lane = fleet_lane(), expert = ctx->thread / 32 * 16 + lane / 4;
                MOE_UNROLL
                for (uint32_t i = 0; i < n / 2; i++)
                    scores[(i / 4 * 8 + lane % 4 * 2 + i % 2) * p->to_stride + expert +
                           i % 4 / 2 * 8] = d[0][i];
            } else {
                moe_store(ctx, p, &r, d, n, halves, kind,
                          (moe_bf16 *)p->to + (size_t)run * p->features);
            }
        }
    }
    fleet_wave_barrier(); /* one thread of a wave may have fetched alone */
    moe_ring_end(ctx, &r);
}

/* The narrowest product that holds the rows, of which there are at most `most`, known at compile time. */
FLEET_DEVICE void moe_run_rows(const fleet_ctx *ctx, const moe_product *p, uint32_t most,
                               uint32_t gathers, moe_kind kind)
{
    if (p->n_rows <= 8)
        moe_run(ctx, p, 8, 2, gathers, kind);
    else if (p->n_rows <= 16)
        moe_run(ctx, p, 16, 2, gathers, kind);
    else if (p->n_rows <= 32 || most <= 32)
        moe_run(ctx, p, 32, 2, gathers, kind);
    else if (p->n_rows <= 64 || most <= 64)
        moe_run(ctx, p, 64, 2, gathers, kind);
    else if (p->n_rows <= 96)
        moe_run(ctx, p, 96, 2, gathers, kind);
    else
        moe_run(ctx, p, 128, 2, gathers, kind);
}

FLEET_DEVICE moe_product moe_product_of(const moe *m, uint32_t hidden)
{
    moe_product p;
    p.at[0] = p.at[1] = p.at[2] = p.at[3] = p.at[4] = 0;
    p.axis = 1, p.advance = 0, p.runs = 1, p.start = 0;
    p.steps = hidden / MOE_STEP;
    p.most_stages = m->stages, p.once = m->once;
    p.rows = NULL, p.row_box = 8, p.row = 0;
    p.gather = NULL, p.token_of = NULL, p.n_rows = 0, p.stride = hidden;
    return p;
}

FLEET_DEVICE void moe_multiply_up(const fleet_ctx *ctx, const moe *m, moe_tile tile,
                                  uint32_t column, uint32_t runs, uint32_t most)
{
    moe_product p = moe_product_of(m, m->hidden);
    p.weights = &m->maps.gate_up;
    p.at[3] = (int32_t)(column / 8), p.at[4] = tile.expert;
    p.axis = 3, p.advance = m->up_rows / 16, p.weight_rows = m->up_rows, p.runs = runs;
    p.gather = m->x, p.token_of = m->token_of + tile.slot, p.n_rows = (uint32_t)tile.rows;
    p.to = m->h + (size_t)tile.slot * m->ffn + column, p.to_stride = m->ffn;
    p.features = m->up_rows / 2;
    moe_run_rows(ctx, &p, most, 1, MOE_GATE_UP);
}

FLEET_DEVICE void moe_multiply_down(const fleet_ctx *ctx, const moe *m, moe_tile tile,
                                    uint32_t column, uint32_t runs, uint32_t most)
{
    const uint32_t many = tile.rows > 16;
    moe_product p = moe_product_of(m, m->ffn);
    p.weights = &m->maps.down;
    p.at[1] = (int32_t)column, p.at[2] = tile.expert;
    p.advance = m->down_rows, p.weight_rows = m->down_rows, p.runs = runs;
    p.rows = many ? &m->maps.h32 : &m->maps.h8, p.row_box = many ? 32 : 8, p.row = tile.slot;
    p.n_rows = (uint32_t)tile.rows;
    p.to = m->y + (size_t)tile.slot * m->hidden + column, p.to_stride = m->hidden;
    p.features = m->down_rows;
    moe_run_rows(ctx, &p, most, 0, MOE_DOWN);
}

/* The maps of a task, before it waits. */
FLEET_DEVICE void moe_expect(const fleet_ctx *ctx, const CUtensorMap *weights,
                             const CUtensorMap *rows)
{
    if (ctx->thread == MOE_MULTIPLIERS)
        __asm__ volatile("prefetch.tensormap [%0];" ::"l"(weights) : "memory");
    if (ctx->thread == MOE_MULTIPLIERS && rows)
        __asm__ volatile("prefetch.tensormap [%0];" ::"l"(rows) : "memory");
}
FLEET_DEVICE void moe_expect_up(const fleet_ctx *ctx, const moe *m)
{
    moe_expect(ctx, &m->maps.gate_up, NULL);
}
FLEET_DEVICE void moe_expect_down(const fleet_ctx *ctx, const moe *m)
{
    moe_expect(ctx, &m->maps.down, m->tokens > 16 ? &m->maps.h32 : &m->maps.h8);
}

/* ---- tensor cores: routing ---- */

#define MOE_SCORE_STRIDE (MOE_MOST_EXPERTS + 4u) /* of a row of scores in LDS */

/* They take the room for results. */
FLEET_DEVICE float *moe_block_scores(const fleet_ctx *ctx, const moe *m, uint32_t token)
{
    moe_product p = moe_product_of(m, m->hidden);
    p.weights = &m->maps.router;
    p.weight_rows = MOE_MOST_EXPERTS, p.once = 0;
    p.start = token / m->block % p.steps;
    p.rows = &m->maps.x8, p.row = (int32_t)token;
    p.to = (char *)ctx->lds + ctx->lds_bytes - 2 * MOE_TOGETHER * MOE_RESULT_BYTES;
    p.to_stride = MOE_SCORE_STRIDE;
    if (m->block <= 8)
        moe_run(ctx, &p, 8, 1, 0, MOE_SCORES);
    else
        moe_run(ctx, &p, 32, 1, 0, MOE_SCORES);
    return (float *)p.to;
}

FLEET_DEVICE float moe_dot8(moe_quad a, moe_quad b)
{
    float sum = 0;
    MOE_UNROLL
    for (uint32_t i = 0; i < 4; i++) {
        sum += moe_low(a.word[i]) * moe_low(b.word[i]);
        sum += moe_high(a.word[i]) * moe_high(b.word[i]);
    }
    return sum;
}

/* A wave or more for each expert, which it multiplies with two tokens at a time. Products of a row are in flight
   together as far as they go into registers. */
FLEET_DEVICE void moe_some_scores(const fleet_ctx *ctx, const moe *m, uint32_t token,
                                  uint32_t expert, uint32_t experts)
{
    enum { TOGETHER = 8 };
    const uint32_t lane = fleet_lane(), wave = ctx->thread / 32, waves = ctx->threads / 32;
    const uint32_t each = waves / experts ? waves / experts : 1; /* waves for an expert */
    const uint32_t n = m->tokens - token < m->block ? m->tokens - token : m->block;
    if (wave >= each * experts) return;
    for (uint32_t e = expert + wave / each; e < expert + experts; e += waves / each) {
        const moe_bf16 *row = m->router + (size_t)e * m->hidden;
        FLEETI_ROLLED
        for (uint32_t t = wave % each * 2; t < n; t += each * 2) {
            const uint32_t second = t + 1 < n ? t + 1 : t;
            const moe_bf16 *x = m->x + (size_t)(token + t) * m->hidden;
            const moe_bf16 *y = m->x + (size_t)(token + second) * m->hidden;
            float a = 0, b = 0;
            for (uint32_t from = 8 * lane; from < m->hidden; from += TOGETHER * 256) {
                moe_quad w[TOGETHER], v[TOGETHER], u[TOGETHER];
                MOE_UNROLL
                for (uint32_t i = 0; i < TOGETHER; i++) {
                    const uint32_t at = from + 256 * i < m->hidden ? from + 256 * i : from;
                    w[i] = moe_load(row + at), v[i] = moe_load(x + at), u[i] = moe_load(y + at);
                }
                MOE_UNROLL
                for (uint32_t i = 0; i < TOGETHER; i++) {
                    const float use = from + 256 * i < m->hidden ? 1 : 0;
                    a += use * moe_dot8(w[i], v[i]), b += use * moe_dot8(w[i], u[i]);
                }
            }
            for (uint32_t i = 16; i; i /= 2) {
                a += __shfl_xor_sync(0xffffffffu, a, i);
                b += __shfl_xor_sync(0xffffffffu, b, i);
            }
            if (lane == 0) m->scores[(size_t)(token + t) * m->experts + e] = a;
            if (lane == 0)
                m->scores[(size_t)(token + second) * m->experts + e] = second > t ? b : a;
        }
    }
}

/* A wave for each token: the best of its lanes' experts, k times. */
FLEET_DEVICE void moe_best_experts(const fleet_ctx *ctx, const moe *m, const float *scores,
                                   uint32_t stride, uint32_t token, uint32_t n, moe_choice *choice)
{
    const uint32_t lane = fleet_lane();
    FLEETI_ROLLED
    for (uint32_t t = ctx->thread / 32; t < n; t += ctx->threads / 32) {
        uint32_t key[MOE_MOST_EXPERTS / 32]; /* larger for a larger score; 0: none */
        float best = 0, mine = 0, sum;
        MOE_UNROLL
        for (uint32_t i = 0; i < MOE_MOST_EXPERTS / 32; i++) {
            const uint32_t e = lane + 32 * i;
            const uint32_t bits = e < m->experts ? __float_as_uint(scores[t * stride + e]) : 0;
            key[i] = e >= m->experts ? 0 : bits >> 31 ? ~bits : bits | 0x80000000u;
        }
        FLEETI_ROLLED
        for (uint32_t j = 0; j < m->k; j++) {
            uint32_t top = 0, which = 0, owner, bits;
            MOE_UNROLL
            for (uint32_t i = 0; i < MOE_MOST_EXPERTS / 32; i++)
                if (key[i] > top) top = key[i], which = i;
            bits = __reduce_max_sync(0xffffffffu, top);
            owner = (uint32_t)__ffs((int)__ballot_sync(0xffffffffu, top == bits)) - 1;
            which = __shfl_sync(0xffffffffu, which, owner);
            MOE_UNROLL
            for (uint32_t i = 0; i < MOE_MOST_EXPERTS / 32; i++)
                if (lane == owner && i == which) key[i] = 0;
            {
                const float score = __uint_as_float(bits >> 31 ? bits & 0x7fffffffu : ~bits);
                if (j == 0) best = score;
                if (lane == j) {
                    mine = __expf(score - best);
                    choice->expert[t * m->k + j] = (int32_t)(owner + 32 * which);
                }
            }
        }
        sum = mine;
        for (uint32_t i = 16; i; i /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, i);
        if (lane < m->k) {
            m->topk[(token + t) * m->k + lane] = choice->expert[t * m->k + lane];
            m->weight[(token + t) * m->k + lane] = mine / sum;
        }
    }
}
#else
/* ---- plain loops: products ---- */

FLEET_DEVICE float moe_dot(const moe_bf16 *a, const moe_bf16 *b, uint32_t n)
{
    float sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += moe_float(a[i]) * moe_float(b[i]);
    return sum;
}

FLEET_DEVICE void moe_multiply_up(const fleet_ctx *ctx, const moe *m, moe_tile tile,
                                  uint32_t column, uint32_t runs, uint32_t most)
{
    const uint32_t columns = runs * m->up_rows / 2, rows = (uint32_t)tile.rows;
    const moe_bf16 *expert = m->gate_up + (size_t)tile.expert * 2 * m->ffn * m->hidden;
    FLEET_UNUSED(most);
    for (uint32_t i = ctx->thread; i < rows * columns; i += ctx->threads) {
        const uint32_t slot = (uint32_t)tile.slot + i / columns, c = column + i % columns;
        const moe_bf16 *x = m->x + (size_t)m->token_of[slot] * m->hidden;
        const moe_bf16 *gate = expert + (size_t)c * m->hidden;
        const float g = moe_dot(x, gate, m->hidden);
        const float u = moe_dot(x, gate + (size_t)m->ffn * m->hidden, m->hidden);
        m->h[(size_t)slot * m->ffn + c] = moe_round(g / (1 + expf(-g)) * u);
    }
}

FLEET_DEVICE void moe_multiply_down(const fleet_ctx *ctx, const moe *m, moe_tile tile,
                                    uint32_t column, uint32_t runs, uint32_t most)
{
    const uint32_t columns = runs * m->down_rows, rows = (uint32_t)tile.rows;
    const moe_bf16 *expert = m->down + (size_t)tile.expert * m->hidden * m->ffn;
    FLEET_UNUSED(most);
    for (uint32_t i = ctx->thread; i < rows * columns; i += ctx->threads) {
        const uint32_t slot = (uint32_t)tile.slot + i / columns, c = column + i % columns;
        m->y[(size_t)slot * m->hidden + c] =
            moe_round(moe_dot(m->h + (size_t)slot * m->ffn, expert + (size_t)c * m->ffn, m->ffn));
    }
}

FLEET_DEVICE void moe_expect_up(const fleet_ctx *ctx, const moe *m)
{
    FLEET_UNUSED(ctx), FLEET_UNUSED(m);
}
FLEET_DEVICE void moe_expect_down(const fleet_ctx *ctx, const moe *m)
{
    FLEET_UNUSED(ctx), FLEET_UNUSED(m);
}

/* ---- plain loops: routing ---- */

#define MOE_SCORE_STRIDE ((uint32_t)MOE_MOST_EXPERTS)

FLEET_DEVICE void moe_some_scores(const fleet_ctx *ctx, const moe *m, uint32_t token,
                                  uint32_t expert, uint32_t experts)
{
    const uint32_t n = m->tokens - token < m->block ? m->tokens - token : m->block;
    for (uint32_t i = ctx->thread; i < n * experts; i += ctx->threads) {
        const uint32_t t = token + i / experts, e = expert + i % experts;
        m->scores[(size_t)t * m->experts + e] =
            moe_dot(m->x + (size_t)t * m->hidden, m->router + (size_t)e * m->hidden, m->hidden);
    }
}

FLEET_DEVICE float *moe_block_scores(const fleet_ctx *ctx, const moe *m, uint32_t token)
{
    float *scores = (float *)(void *)((char *)ctx->lds + MOE_CHOICE_BYTES);
    const uint32_t n = m->tokens - token < m->block ? m->tokens - token : m->block;
    for (uint32_t i = ctx->thread; i < n * m->experts; i += ctx->threads) {
        const uint32_t t = i / m->experts, e = i % m->experts;
        scores[t * MOE_SCORE_STRIDE + e] = moe_dot(m->x + (size_t)(token + t) * m->hidden,
                                                   m->router + (size_t)e * m->hidden, m->hidden);
    }
    fleet_block_barrier();
    return scores;
}

FLEET_DEVICE void moe_best_experts(const fleet_ctx *ctx, const moe *m, const float *scores,
                                   uint32_t stride, uint32_t token, uint32_t n, moe_choice *choice)
{
    for (uint32_t t = ctx->thread; t < n; t += ctx->threads) {
        int32_t *expert = choice->expert + t * m->k;
        float weight[MOE_MOST_K], sum = 0;
        for (uint32_t j = 0; j < m->k; j++) {
            uint32_t best = m->experts;
            for (uint32_t e = 0; e < m->experts; e++) {
                uint32_t taken = 0;
                for (uint32_t i = 0; i < j; i++) taken |= expert[i] == (int32_t)e;
                if (!taken &&
                    (best == m->experts || scores[t * stride + e] > scores[t * stride + best]))
                    best = e;
            }
            expert[j] = (int32_t)best;
            weight[j] = expf(scores[t * stride + best] - scores[t * stride + (uint32_t)expert[0]]);
            sum += weight[j];
        }
        for (uint32_t j = 0; j < m->k; j++) {
            m->topk[(token + t) * m->k + j] = expert[j];
            m->weight[(token + t) * m->k + j] = weight[j] / sum;
        }
    }
}
#endif

/* ---- tiles ---- */

FLEET_DEVICE void moe_stamp(const fleet_ctx *ctx, const moe *m, uint32_t end)
{
    if (m->stamps && ctx->thread == 0) m->stamps[2 * ctx->task + end] = fleet_clock_ticks();
}

/* By all threads: how many of the pairs each expert has, and each pair's number among them. */
FLEET_DEVICE void moe_count(const fleet_ctx *ctx, const moe *m, uint32_t pairs, moe_choice *choice)
{
    fleet_block_barrier();
    for (uint32_t e = ctx->thread; e < m->experts; e += ctx->threads) {
        int32_t n = 0;
        FLEETI_ROLLED
        for (uint32_t from = 0; from < pairs; from += 32) {
            uint32_t mine = 0; /* a bit for each of 32 pairs */
            MOE_UNROLL
            for (uint32_t i = 0; i < 32; i++)
                mine |= (uint32_t)(choice->expert[from + i] == (int32_t)e) << i;
            if (pairs - from < 32) mine &= (1u << (pairs - from)) - 1;
            for (; mine; mine &= mine - 1)
                choice->rank[from + fleeti_popcount32((mine & (0u - mine)) - 1)] = n++;
        }
        choice->count[e] = n;
    }
    fleet_block_barrier();
}

/* By all threads: from the experts' counts their slots and tiles. Tiles of one expert are about equal. */
FLEET_DEVICE void moe_deal(const fleet_ctx *ctx, const moe *m, moe_choice *choice)
{
    enum { TILES = 1 << 20 }; /* tiles stand above slots, so that both are added at once */
    const int32_t most = (int32_t)m->tile_rows;
    int32_t *sum = choice->sum[0], *other = choice->sum[1];
    for (uint32_t e = ctx->thread; e < m->experts; e += ctx->threads)
        sum[e] = choice->count[e] + TILES * ((choice->count[e] + most - 1) / most);
    fleet_block_barrier();
    FLEETI_ROLLED
    for (uint32_t step = 1; step < m->experts; step *= 2) {
        int32_t *swap = sum;
        for (uint32_t e = ctx->thread; e < m->experts; e += ctx->threads)
            other[e] = sum[e] + (e >= step ? sum[e - step] : 0);
        fleet_block_barrier();
        sum = other, other = swap;
    }
    for (uint32_t e = ctx->thread; e < m->experts; e += ctx->threads) {
        const int32_t n = choice->count[e], tiles = (n + most - 1) / most;
        const int32_t rows = tiles ? ((n + tiles - 1) / tiles + 7) / 8 * 8 : 0;
        const int32_t slot = sum[e] % TILES - n, tile = sum[e] / TILES - tiles;
        choice->first[e] = slot;
        m->first[e] = slot;
        for (int32_t i = 0; i < tiles; i++) {
            moe_tile t;
            t.expert = (int32_t)e, t.slot = slot + i * rows, t.pad = 0;
            t.rows = n - i * rows < rows ? n - i * rows : rows;
            m->tile[tile + i] = t;
        }
    }
    {
        const int32_t tiles = sum[m->experts - 1] / TILES;
        for (uint32_t i = (uint32_t)tiles + ctx->thread; i < m->most_tiles; i += ctx->threads)
            m->tile[i].rows = 0;
        if (ctx->thread == 0) {
            m->indptr[0] = 0, m->indptr[1] = tiles;
            m->taken[0] = m->taken[1] = 0;
        }
    }
    fleet_block_barrier();
}

FLEET_TILE(score, moe)
{
    const uint32_t experts = args->experts / args->parts;
    moe_stamp(&ctx, args, 0);
    moe_some_scores(&ctx, args, (uint32_t)at[0] * args->block, (uint32_t)at[1] * experts, experts);
    moe_stamp(&ctx, args, 1);
    return FLEET_OK;
}

/* Few tokens: one task chooses for all of them, and groups what it chose. */
FLEET_TILE(choose, moe)
{
    moe_choice *choice = (moe_choice *)ctx.lds;
    const uint32_t pairs = args->tokens * args->k;
    FLEET_UNUSED(at);
    moe_stamp(&ctx, args, 0);
    moe_best_experts(&ctx, args, args->scores, args->experts, 0, args->tokens, choice);
    moe_count(&ctx, args, pairs, choice);
    moe_deal(&ctx, args, choice);
    for (uint32_t i = ctx.thread; i < pairs; i += ctx.threads) {
        const int32_t slot = choice->first[choice->expert[i]] + choice->rank[i];
        args->slot[i] = slot;
        args->token_of[slot] = (int32_t)(i / args->k);
    }
    moe_stamp(&ctx, args, 1);
    return FLEET_OK;
}

/* Many tokens: each block of them chooses and counts, ... */
FLEET_TILE(route, moe)
{
    moe_choice *choice = (moe_choice *)ctx.lds;
    const uint32_t token = (uint32_t)at[0] * args->block, left = args->tokens - token;
    const uint32_t n = left < args->block ? left : args->block;
    const float *scores;
    moe_stamp(&ctx, args, 0);
    scores = moe_block_scores(&ctx, args, token);
    moe_best_experts(&ctx, args, scores, MOE_SCORE_STRIDE, token, n, choice);
    moe_count(&ctx, args, n * args->k, choice);
    for (uint32_t i = ctx.thread; i < n * args->k; i += ctx.threads)
        args->rank[token * args->k + i] = choice->rank[i];
    for (uint32_t e = ctx.thread; e < args->experts; e += ctx.threads)
        args->before[(uint32_t)at[0] * args->experts + e] = choice->count[e];
    moe_stamp(&ctx, args, 1);
    return FLEET_OK;
}

/* ... one task sums the counts up, ... */
FLEET_TILE(group, moe)
{
    enum { TOGETHER = 32 }; /* loads in flight */
    moe_choice *choice = (moe_choice *)ctx.lds;
    const uint32_t blocks = (args->tokens + args->block - 1) / args->block;
    FLEET_UNUSED(at);
    moe_stamp(&ctx, args, 0);
    for (uint32_t e = ctx.thread; e < args->experts; e += ctx.threads) {
        int32_t sum = 0;
        for (uint32_t from = 0; from < blocks; from += TOGETHER) {
            int32_t count[TOGETHER];
            MOE_UNROLL
            for (uint32_t i = 0; i < TOGETHER; i++)
                count[i] = from + i < blocks ? args->before[(from + i) * args->experts + e] : 0;
            MOE_UNROLL
            for (uint32_t i = 0; i < TOGETHER; i++) {
                if (from + i < blocks) args->before[(from + i) * args->experts + e] = sum;
                sum += count[i];
            }
        }
        choice->count[e] = sum;
    }
    fleet_block_barrier();
    moe_deal(&ctx, args, choice);
    moe_stamp(&ctx, args, 1);
    return FLEET_OK;
}

/* ... and each block finds its slots. */
FLEET_TILE(place, moe)
{
    const uint32_t first = (uint32_t)at[0] * args->block * args->k;
    const uint32_t left = args->tokens * args->k - first, most = args->block * args->k;
    moe_stamp(&ctx, args, 0);
    for (uint32_t i = ctx.thread; i < (left < most ? left : most); i += ctx.threads) {
        const int32_t e = args->topk[first + i];
        const int32_t slot = args->first[e] + args->rank[first + i] +
                             args->before[(uint32_t)at[0] * args->experts + (uint32_t)e];
        args->slot[first + i] = slot;
        args->token_of[slot] = (int32_t)((first + i) / args->k);
    }
    moe_stamp(&ctx, args, 1);
    return FLEET_OK;
}

/* Which runs a task of gate_up or down has: [from, to), and then what it takes, of [dealt, all), `together` at once. */
typedef struct moe_share {
    uint32_t from, to, dealt, all, together;
} moe_share;

/* How many tiles there are is known when they are grouped. Either a task has some runs of one tile, and the plan has
   tasks for the most tiles that there may be. Or each of `shares` tasks has as many runs, from tile to tile, and then,
   some SMs are nearer to memory than others, so a worker that is done takes from the rest. */
FLEET_DEVICE moe_share moe_share_of(const moe *m, const int32_t *at, uint32_t runs,
                                    uint32_t together)
{
    moe_share s;
    s.all = s.dealt = 0, s.together = together;
    if (m->shares) {
        s.all = s.dealt = (uint32_t)m->indptr[1] * runs;
        if (s.all >= 4 * m->shares) s.dealt = s.all * m->dealt / 8 / together * together;
        s.from = s.dealt * (uint32_t)at[0] / m->shares;
        s.to = s.dealt * ((uint32_t)at[0] + 1) / m->shares;
    } else {
        s.from = (uint32_t)at[0] * runs + (uint32_t)at[1] * together;
        s.to = m->tile[at[0]].rows ? s.from + together : s.from;
    }
    return s;
}
/* By all threads: whether there is more; then s->from is the next. */
FLEET_DEVICE uint32_t moe_more(const fleet_ctx *ctx, moe_share *s, uint32_t *taken)
{
    uint32_t *next = (uint32_t *)ctx->lds;
    if (s->from < s->to) return 1;
    if (s->dealt == s->all) return 0;
    fleet_block_barrier();
    if (ctx->thread == 0) *next = s->dealt + fleet_add_relaxed_device(taken, s->together);
    fleet_block_barrier();
    s->from = *next, s->to = s->from + s->together;
    return s->from < s->all;
}

FLEET_DEVICE void moe_all_gate_up(const fleet_ctx *ctx, const moe *m, const int32_t *at,
                                  uint32_t most)
{
    const uint32_t columns = m->up_rows / 2, runs = m->ffn / columns; /* of a tile */
    moe_share s = moe_share_of(m, at, runs, m->up_runs);
    if (!m->shares && s.from == s.to) return;
    moe_stamp(ctx, m, 0);
    while (moe_more(ctx, &s, m->taken)) {
        const uint32_t first = s.from % runs, left = s.to - s.from;
        const uint32_t some = runs - first < left ? runs - first : left;
        moe_multiply_up(ctx, m, m->tile[s.from / runs], first * columns, some, most);
        s.from += some;
    }
    moe_stamp(ctx, m, 1);
}
FLEET_DEVICE void moe_all_down(const fleet_ctx *ctx, const moe *m, const int32_t *at, uint32_t most)
{
    const uint32_t columns = m->down_rows, runs = m->hidden / columns;
    moe_share s = moe_share_of(m, at, runs, m->down_runs);
    if (!m->shares && s.from == s.to) return;
    moe_stamp(ctx, m, 0);
    while (moe_more(ctx, &s, m->taken + 1)) {
        const uint32_t first = s.from % runs, left = s.to - s.from;
        const uint32_t some = runs - first < left ? runs - first : left;
        moe_multiply_down(ctx, m, m->tile[s.from / runs], first * columns, some, most);
        s.from += some;
    }
    moe_stamp(ctx, m, 1);
}

/* gate_up and down for tiles of at most so many rows. */
#define MOE_PAIR(rows)                                                                             \
    FLEET_TILE(gate_up_##rows, moe)                                                                \
    {                                                                                              \
        moe_all_gate_up(&ctx, args, at, rows);                                                     \
        return FLEET_OK;                                                                           \
    }                                                                                              \
    FLEET_TILE(down_##rows, moe)                                                                   \
    {                                                                                              \
        moe_all_down(&ctx, args, at, rows);                                                        \
        return FLEET_OK;                                                                           \
    }                                                                                              \
    FLEET_PREFETCH(gate_up_##rows, moe)                                                            \
    {                                                                                              \
        FLEET_UNUSED(at);                                                                          \
        moe_expect_up(&ctx, args);                                                                 \
    }                                                                                              \
    FLEET_PREFETCH(down_##rows, moe)                                                               \
    {                                                                                              \
        FLEET_UNUSED(at);                                                                          \
        moe_expect_down(&ctx, args);                                                               \
    }
MOE_PAIR(32)
MOE_PAIR(64)
MOE_PAIR(128)

/* Eight columns a thread, in the order of the experts' ranks: the same from run to run. */
FLEET_TILE(combine, moe)
{
    const uint32_t pieces = args->hidden / 8, first = (uint32_t)at[0] * args->combined;
    const uint32_t left = args->tokens - first, n = left < args->combined ? left : args->combined;
    int32_t *slot =
        (int32_t *)ctx.lds; /* [n][MOE_MOST_K]; those from k on are as the first, with weight 0 */
    float *weight = (float *)(slot + n * MOE_MOST_K);
    moe_stamp(&ctx, args, 0);
    for (uint32_t i = ctx.thread; i < n * MOE_MOST_K; i += ctx.threads) {
        const uint32_t pair = (first + i / MOE_MOST_K) * args->k, j = i % MOE_MOST_K;
        slot[i] = args->slot[pair + (j < args->k ? j : 0)];
        weight[i] = j < args->k ? args->weight[pair + j] : 0;
    }
    fleet_block_barrier();
    for (uint32_t i = ctx.thread; i < n * pieces; i += ctx.threads) {
        const uint32_t t = i / pieces, column = i % pieces * 8;
        moe_quad q[MOE_MOST_K], out;
        float sum[8];
        MOE_UNROLL
        for (uint32_t j = 0; j < MOE_MOST_K; j++)
            q[j] = moe_load(args->y + (size_t)slot[t * MOE_MOST_K + j] * args->hidden + column);
        MOE_UNROLL
        for (uint32_t c = 0; c < 8; c++) sum[c] = 0;
        MOE_UNROLL
        for (uint32_t j = 0; j < MOE_MOST_K; j++) {
            MOE_UNROLL
            for (uint32_t c = 0; c < 8; c += 2) {
                sum[c] += weight[t * MOE_MOST_K + j] * moe_low(q[j].word[c / 2]);
                sum[c + 1] += weight[t * MOE_MOST_K + j] * moe_high(q[j].word[c / 2]);
            }
        }
        MOE_UNROLL
        for (uint32_t c = 0; c < 4; c++)
            out.word[c] = (uint32_t)moe_round(sum[2 * c]) | (uint32_t)moe_round(sum[2 * c + 1])
                                                                << 16;
        *(moe_quad *)(void *)(args->out + (size_t)(first + t) * args->hidden + column) = out;
    }
    moe_stamp(&ctx, args, 1);
    return FLEET_OK;
}

/* Three sets, and so three kernels: one with narrow tiles only is smaller, and has registers to spare. */
typedef moe moe_few;
#define MOE_FEW_TILES(TILE, P)                                                                     \
    TILE(P, score) TILE(P, choose) TILE(P, gate_up_32) TILE(P, down_32) TILE(P, combine)
#define MOE_FEW_PREFETCHES(TILE, P) TILE(P, gate_up_32) TILE(P, down_32)
FLEET_DISPATCH_WITH_PREFETCH(moe_few, MOE_FEW_TILES, MOE_FEW_PREFETCHES)
typedef moe moe_some;
#define MOE_SOME_TILES(TILE, P)                                                                    \
    TILE(P, route)                                                                                 \
    TILE(P, group) TILE(P, place) TILE(P, gate_up_64) TILE(P, down_64) TILE(P, combine)
#define MOE_SOME_PREFETCHES(TILE, P) TILE(P, gate_up_64) TILE(P, down_64)
FLEET_DISPATCH_WITH_PREFETCH(moe_some, MOE_SOME_TILES, MOE_SOME_PREFETCHES)
typedef moe moe_many;
#define MOE_MANY_TILES(TILE, P)                                                                    \
    TILE(P, route)                                                                                 \
    TILE(P, group) TILE(P, place) TILE(P, gate_up_128) TILE(P, down_128) TILE(P, combine)
#define MOE_MANY_PREFETCHES(TILE, P) TILE(P, gate_up_128) TILE(P, down_128)
FLEET_DISPATCH_WITH_PREFETCH(moe_many, MOE_MANY_TILES, MOE_MANY_PREFETCHES)

#endif
