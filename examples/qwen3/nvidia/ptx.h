/* nvidia/ptx.h: instructions of NVIDIA GPUs that C has no words for, by the names of the instructions. tests/qwen3/emulated.c
   defines the guard and its own versions of these, and so runs the tasks on a CPU. */
#ifndef QWEN3_NVIDIA_PTX_H
#define QWEN3_NVIDIA_PTX_H

#include "../platform.h"

#include <cuda_fp16.h>

#define UNROLLED _Pragma("unroll") /* before loops over registers */
#define ROLLED _Pragma("unroll 1")
/* A real call, so that the function has registers of its own. */
#define NOINLINE_DEVICE static __device__ __noinline__ __attribute__((unused))

/* Loads 16 bytes from a pointer that the compiler cannot prove to be global. An ordinary load:
   other workers may have written the data during this launch. */
FLEET_DEVICE fleet_quad load_quad(const act_t *from)
{
    __builtin_assume(__isGlobal(from));
    return *(const fleet_quad *)(const void *)from;
}
FLEET_DEVICE fleet_quad load_floats(const float *from)
{
    __builtin_assume(__isGlobal(from));
    return *(const fleet_quad *)(const void *)from;
}
FLEET_DEVICE uint32_t lds_add(uint32_t *at, uint32_t value)
{
    __builtin_assume(__isShared(at));
    return atomicAdd(at, value);
}
/* n / d for numbers below 2^20, where the reciprocal is exact enough; an integer division takes
   much longer. */
FLEET_DEVICE uint32_t fast_quotient(uint32_t n, uint32_t d)
{
    return (uint32_t)__fdividef((float)n + 0.5f, (float)d);
}

/* mma.sync of bf16: activations and weights. */
FLEET_DEVICE void mma_bf16(float *sum, const uint32_t *a, const uint32_t *b)
{
    __asm__("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* mma.sync of f16: queries and keys, softmax weights and values. */
FLEET_DEVICE void mma_f16(float *sum, const uint32_t *a, const uint32_t *b)
{
    __asm__("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Tells the compiler that a value is the same in all lanes of the warp. */
FLEET_DEVICE uint32_t warp_uniform(uint32_t x)
{
    return __shfl_sync(~0u, x, 0);
}

/* Up to 32 words that a warp loads together, one in each lane. */
typedef struct warp_words {
    uint32_t mine;
} warp_words;
FLEET_DEVICE warp_words load_warp_words(const uint32_t *from, uint32_t n)
{
    const uint32_t lane = threadIdx.x % 32;
    warp_words words;
    words.mine = lane < n ? from[lane] : 0;
    return words;
}
FLEET_DEVICE uint32_t warp_word(warp_words words, uint32_t i)
{
    return __shfl_sync(~0u, words.mine, (int)i);
}

/* Hides from the compiler what x is: otherwise it would compute what follows from x ahead of all
   tasks and keep it in registers that these need. */
FLEET_DEVICE uint32_t opaque(uint32_t x)
{
    __asm__ volatile("" : "+r"(x));
    return x;
}

/* ---- copies to LDS, and wgmma ---- */

FLEET_DEVICE uint32_t lds_address(const void *at)
{
    return (uint32_t)__cvta_generic_to_shared(at);
}
/* Copies 16 bytes from memory; complete after copy_async_wait. */
FLEET_DEVICE void copy_async16(uint32_t to, const void *from)
{
    __asm__ volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(to),
                     "l"(__cvta_generic_to_global(from))
                     : "memory");
}
FLEET_DEVICE void copy_async_wait(void)
{
    __asm__ volatile("cp.async.wait_all;" ::: "memory");
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WGMMA 1

typedef uint64_t wgmma_desc; /* matrix descriptor of an operand in LDS */

/* mbarrier in LDS: a waiter for use i waits for phase i. */
FLEET_DEVICE void mbar_init(uint32_t at, uint32_t count)
{
    __asm__ volatile("mbarrier.init.shared.b64 [%0],%1;" ::"r"(at), "r"(count) : "memory");
}
/* Publishes the barriers to bulk copies, which use the async proxy. For other warps, the caller's
   barrier does. */
FLEET_DEVICE void mbar_fence_init(void)
{
    __asm__ volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
FLEET_DEVICE void mbar_inval(uint32_t at)
{
    __asm__ volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at) : "memory");
}
FLEET_DEVICE void mbar_expect(uint32_t at, uint32_t bytes)
{
    __asm__ volatile("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;" ::"r"(at), "r"(bytes)
                     : "memory");
}
/* One lane of the warp arrives if `arrives`; without a branch. */
FLEET_DEVICE void mbar_arrive_if(uint32_t at, uint32_t arrives)
{
    __asm__ volatile("{\n.reg .pred p,q;\n"
                     "elect.sync _|p,0xffffffff;\n"
                     "setp.ne.and.u32 q,%1,0,p;\n"
                     "@q mbarrier.arrive.shared.b64 _,[%0];\n}" ::"r"(at),
                     "r"(arrives)
                     : "memory");
}
FLEET_DEVICE void mbar_wait(uint32_t at, uint32_t use)
{
    __asm__ volatile("{\n.reg .pred p;\n"
                     "again:\n"
                     "mbarrier.try_wait.parity.shared.b64 p,[%0],%1;\n"
                     "@!p bra again;\n}" ::"r"(at),
                     "r"(use & 1)
                     : "memory");
}
/* Orders this thread's view of memory (by itself, an acquire or a barrier) before operations of the
   async proxy that follow: bulk copies of what others wrote to memory, or over LDS that was read or
   written; and wgmma on what threads wrote to LDS. */
FLEET_DEVICE void fence_proxy_async(void)
{
    __asm__ volatile("fence.proxy.async;" ::: "memory");
}
/* The barrier at `count` counts the bytes. */
FLEET_DEVICE void copy_bulk(uint32_t to, const act_t *from, uint32_t bytes, uint32_t count)
{
    __asm__ volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0],[%1],%2,[%3];" ::"r"(to),
                     "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(count)
                     : "memory");
}
/* Votes among the four consumer warps, which is also a barrier of these. It has number 2; the kit's
   are 0 and 1. */
FLEET_DEVICE uint32_t any_consumer(uint32_t so)
{
    uint32_t any;
    __asm__ volatile("{\n.reg .pred p,q;\nsetp.ne.u32 p,%1,0;\n"
                     "barrier.cta.red.or.pred q,2,128,p;\nselp.u32 %0,1,0,q;\n}"
                     : "=r"(any)
                     : "r"(so)
                     : "memory");
    return any;
}
/* A barrier of the four warps of a warpgroup, 0 or 1. */
FLEET_DEVICE void warpgroup_barrier(uint32_t warpgroup)
{
    if (warpgroup == 0)
        __asm__ volatile("barrier.cta.sync 3,128;" ::: "memory");
    else
        __asm__ volatile("barrier.cta.sync 4,128;" ::: "memory");
}
/* Two warpgroups take turns: each waits until the other one has passed the turn to it. */
FLEET_DEVICE void await_turn(uint32_t warpgroup)
{
    if (warpgroup == 0)
        __asm__ volatile("barrier.cta.sync 5,256;" ::: "memory");
    else
        __asm__ volatile("barrier.cta.sync 6,256;" ::: "memory");
}
FLEET_DEVICE void pass_turn(uint32_t warpgroup)
{
    if (warpgroup == 0)
        __asm__ volatile("barrier.cta.arrive 6,256;" ::: "memory");
    else
        __asm__ volatile("barrier.cta.arrive 5,256;" ::: "memory");
}
/* K-major with a swizzle of 64 bytes; stride: bytes between groups of eight rows or columns. */
FLEET_DEVICE wgmma_desc wgmma_desc_of(uint32_t at, uint32_t stride)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)(stride >> 4) << 32 | (uint64_t)2 << 62;
}
/* Values in pages (kv_block.h), whose columns are contiguous: N-major with a swizzle of 128 bytes. Bytes between 64 columns,
   and between eight keys. */
FLEET_DEVICE wgmma_desc wgmma_desc_of_values(uint32_t at)
{
    return (uint64_t)(at >> 4 & 0x3fff) | (uint64_t)(2048 >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}
FLEET_DEVICE void wgmma_fence(void)
{
    __asm__ volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
FLEET_DEVICE void wgmma_commit(void)
{
    __asm__ volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* Waits for all committed groups, or for all but the last one. */
FLEET_DEVICE void wgmma_wait_all(void)
{
    __asm__ volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
FLEET_DEVICE void wgmma_wait_but_last(void)
{
    __asm__ volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}
#define SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_24(i)                                                                                 \
    SUMS_4(i), SUMS_4(i + 4), SUMS_4(i + 8), SUMS_4(i + 12), SUMS_4(i + 16), SUMS_4(i + 20)
#define NAMES_10(n)                                                                                \
    "%" #n "0,%" #n "1,%" #n "2,%" #n "3,%" #n "4,%" #n "5,%" #n "6,%" #n "7,%" #n "8,%" #n "9,"
#define SUMS_96 SUMS_24(0), SUMS_24(24), SUMS_24(48), SUMS_24(72)
#define NAMES_30(a, b, c) NAMES_10(a) NAMES_10(b) NAMES_10(c)
#define NAMES_90 NAMES_30(, 1, 2) NAMES_30(3, 4, 5) NAMES_30(6, 7, 8)
#define NAMES_32 NAMES_30(, 1, 2) "%30,%31"
#define NAMES_48 NAMES_30(, 1, 2) NAMES_10(3) "%40,%41,%42,%43,%44,%45,%46,%47"
#define NAMES_64 NAMES_30(, 1, 2) NAMES_30(3, 4, 5) "%60,%61,%62,%63"
#define NAMES_128                                                                                  \
    NAMES_90 NAMES_10(9) NAMES_10(10) NAMES_10(11) "%120,%121,%122,%123,%124,%125,%126,%127"
#define NAMES_96 NAMES_90 "%90,%91,%92,%93,%94,%95"
#define SUMS_128 SUMS_96, SUMS_24(96), SUMS_4(120), SUMS_4(124)
#define SUMS_64 SUMS_24(0), SUMS_24(24), SUMS_4(48), SUMS_4(52), SUMS_4(56), SUMS_4(60)
#define SUMS_48 SUMS_24(0), SUMS_24(24)
#define SUMS_32 SUMS_24(0), SUMS_4(24), SUMS_4(28)
/* 64 rows by n columns, 16 k's at offsets in units of 16 bytes. The descriptors are operands r and c. */
#define WGMMA_K16(n, names, r, c, row_offset, column_offset)                                       \
    "add.s64 rows,%" #r "," #row_offset ";\nadd.s64 columns,%" #c "," #column_offset ";\n"         \
    "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" names                             \
    "},rows,columns,1,1,1,0,0;\n"
/* d += 64 rows by n columns, as much as a stage of prompts has (nvidia/prefill.h): 64 k's, which are two atoms of 512 bytes with
   32 k's each; or 32 k's (wgmma_m64nNk32x2), where the second atom of rows has their low terms. One statement, since each would
   need instructions and a wgmma_fence of its own. */
#define WGMMA_OF(name, n, names, sums, r, c, third, fourth)                                        \
    FLEET_DEVICE void name(float *d, wgmma_desc rows, wgmma_desc columns)                          \
    {                                                                                              \
        __asm__ volatile("{\n.reg .b64 rows,columns;\n" WGMMA_K16(n, names, r, c, 0, 0)            \
                             WGMMA_K16(n, names, r, c, 2, 2) WGMMA_K16(n, names, r, c, 32, third)  \
                                 WGMMA_K16(n, names, r, c, 34, fourth) "}"                         \
                         : sums                                                                    \
                         : "l"(rows), "l"(columns));                                               \
    }
WGMMA_OF(wgmma_m64n64k64, 64, NAMES_32, SUMS_32, 32, 33, 32, 34)
WGMMA_OF(wgmma_m64n96k64, 96, NAMES_48, SUMS_48, 48, 49, 32, 34)
WGMMA_OF(wgmma_m64n128k64, 128, NAMES_64, SUMS_64, 64, 65, 32, 34)
WGMMA_OF(wgmma_m64n192k64, 192, NAMES_96, SUMS_96, 96, 97, 32, 34)
WGMMA_OF(wgmma_m64n64k32x2, 64, NAMES_32, SUMS_32, 32, 33, 0, 2)
WGMMA_OF(wgmma_m64n96k32x2, 96, NAMES_48, SUMS_48, 48, 49, 0, 2)
WGMMA_OF(wgmma_m64n128k32x2, 128, NAMES_64, SUMS_64, 64, 65, 0, 2)
WGMMA_OF(wgmma_m64n192k32x2, 192, NAMES_96, SUMS_96, 96, 97, 0, 2)
WGMMA_OF(wgmma_m64n256k32x2, 256, NAMES_128, SUMS_128, 128, 129, 0, 2)

/* d = 64 queries by 128 keys, of 128 elements each: f16, both K-major. */
#define SCORES_K16(offset, adds)                                                                   \
    "add.s64 rows,%64," #offset ";\nadd.s64 columns,%65," #offset ";\n"                            \
    "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" NAMES_64 "},rows,columns," adds        \
    ",1,1,0,0;\n"
FLEET_DEVICE void wgmma_scores(float *d, wgmma_desc queries, wgmma_desc keys)
{
    __asm__ volatile(
        "{\n.reg .b64 rows,columns;\n.reg .pred none;\nsetp.ne.u64 none,%64,%64;\n" SCORES_K16(
            0, "none") SCORES_K16(2, "1") SCORES_K16(32, "1") SCORES_K16(34, "1")
            SCORES_K16(64, "1") SCORES_K16(66, "1") SCORES_K16(96, "1") SCORES_K16(98, "1") "}"
        : SUMS_64
        : "l"(queries), "l"(keys));
}
/* d += 64 rows of 128 softmax weights, f16 in registers, by the values of 128 keys, 128 columns each. */
#define VALUES_K16(i, j, k, l, offset)                                                             \
    "add.s64 columns,%96," #offset ";\n"                                                           \
    "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" NAMES_64 "},{%" #i ",%" #j ",%" #k     \
    ",%" #l "},columns,1,1,1,1;\n"
#define WORDS_8(i)                                                                                 \
    "r"(w[i]), "r"(w[i + 1]), "r"(w[i + 2]), "r"(w[i + 3]), "r"(w[i + 4]), "r"(w[i + 5]),          \
        "r"(w[i + 6]), "r"(w[i + 7])
FLEET_DEVICE void wgmma_values(float *d, const uint32_t *w, wgmma_desc values)
{
    __asm__ volatile("{\n.reg .b64 columns;\n" VALUES_K16(64, 65, 66, 67, 0)
                         VALUES_K16(68, 69, 70, 71, 256) VALUES_K16(72, 73, 74, 75, 512)
                             VALUES_K16(76, 77, 78, 79, 768) VALUES_K16(80, 81, 82, 83, 1024)
                                 VALUES_K16(84, 85, 86, 87, 1280) VALUES_K16(88, 89, 90, 91, 1536)
                                     VALUES_K16(92, 93, 94, 95, 1792) "}"
                     : SUMS_64
                     : WORDS_8(0), WORDS_8(8), WORDS_8(16), WORDS_8(24), "l"(values));
}
/* Waits for all committed groups; the compiler may not use 64 of their sums before, nor reuse the registers of their 32
   words of weights. */
FLEET_DEVICE void wgmma_wait_sums(float *d)
{
    __asm__ volatile("wgmma.wait_group.sync.aligned 0;" : SUMS_64::"memory");
}
FLEET_DEVICE void wgmma_wait_weights(const uint32_t *w)
{
    __asm__ volatile("" ::WORDS_8(0), WORDS_8(8), WORDS_8(16), WORDS_8(24) : "memory");
}
#else
#define HAS_WGMMA 0
#endif

/* Rounds to the nearest finite f16; NaN stays NaN, which fminf and fmaxf would turn into a number. */
FLEET_DEVICE kv_t kv_of_float(float f)
{
    float finite;
    __asm__("max.NaN.f32 %0,%1,%2;\nmin.NaN.f32 %0,%0,%3;"
            : "=&f"(finite)
            : "f"(f), "f"(-65504.0f), "f"(65504.0f));
    return __half_as_ushort(__float2half_rn(finite));
}
/* Two f16 in a register; the values are in range. */
FLEET_DEVICE uint32_t pack_f16(float lower, float upper)
{
    uint32_t pair;
    __asm__("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(pair) : "f"(upper), "f"(lower));
    return pair;
}
FLEET_DEVICE float low_f16(uint32_t pair)
{
    return __half2float(__ushort_as_half((uint16_t)pair));
}
FLEET_DEVICE float high_f16(uint32_t pair)
{
    return __half2float(__ushort_as_half((uint16_t)(pair >> 16)));
}
/* Base-2 logarithm with some 22 bits; of 0 it is less than all others. */
FLEET_DEVICE float fast_log2(float x)
{
    float power;
    __asm__("lg2.approx.f32 %0,%1;" : "=f"(power) : "f"(x));
    return power;
}
/* 2 to the power of x with some 22 bits; 0 if that is tiny. */
FLEET_DEVICE float fast_exp2(float x)
{
    float power;
    __asm__("ex2.approx.ftz.f32 %0,%1;" : "=f"(power) : "f"(x));
    return power;
}

/* x of the lane whose number differs in `bits`. All lanes of the warp call it together. */
FLEET_DEVICE float shuffle_xor(float x, uint32_t bits)
{
    return __shfl_xor_sync(~0u, x, (int)bits);
}

/* Whether `so` holds in any lane. All lanes of the warp call it together. */
FLEET_DEVICE uint32_t any_lane(uint32_t so)
{
    return __any_sync(~0u, (int)so) != 0;
}

/* x of a lane. All lanes of the warp call it together. */
FLEET_DEVICE float shuffle(float x, uint32_t lane)
{
    return __shfl_sync(~0u, x, (int)lane);
}

/* Transposes an 8 x 8 matrix of f16, of which lane l holds elements 2 (l % 4) and 2 (l % 4) + 1 of
   row l / 4. */
FLEET_DEVICE uint32_t transpose_8x8(uint32_t pair)
{
    uint32_t turned;
    __asm__ volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;" : "=r"(turned) : "r"(pair));
    return turned;
}

#endif /* QWEN3_NVIDIA_PTX_H */
