/* platform.h: sizes and number formats. The first part holds for all platforms; then each platform has a section.

   With tasks/backend.h, this is what a backend consists of. */
#ifndef QWEN3_PLATFORM_H
#define QWEN3_PLATFORM_H

#include "fleet_sched.h"

#include <math.h>
#include <string.h>

#define MAX_ROWS 64u  /* rows of a step, hence sequences in a batch */
#define MAX_ROUNDS 4u /* batches of a session, which take turns in each step */
#define MAX_SEQUENCES (MAX_ROUNDS * MAX_ROWS)
#define TILE_N 16u        /* columns of a tile: the N of one matrix instruction */
#define BLOCK_K 32u       /* k's of a block of packed weights, which is TILE_N columns wide */
#define PAGE_TOKENS 16u   /* tokens of a page of keys and values; KV_BLOCK is a multiple */
#define COPY_THREADS 256u /* threads of the kernels that fill and read memory */
#define MAX_TOP_K 16u
#define MAX_EOS 16u
#define VECTOR 8u /* values of 2 bytes in a 16-byte load */

typedef uint16_t bf16; /* the upper half of a float */

/* What packed weights are: bf16, or codes of fewer bits with scales (quantized.h). */
enum { WEIGHTS_BF16, WEIGHTS_FP8, WEIGHTS_INT8, WEIGHTS_INT4 };
typedef struct weight_format {
    uint32_t codes; /* WEIGHTS_... */
    uint32_t group; /* k's of a column that share a scale; 0: all */
} weight_format;

FLEET_HOST_DEVICE float float_of_bf16(uint32_t x)
{
    const uint32_t bits = x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
/* Rounds to nearest, ties to even. NaN stays NaN: rounded like a number, NVIDIA's NaN would become
   -0. */
FLEET_HOST_DEVICE bf16 bf16_of_float(float f)
{
#if defined(__CUDA_ARCH__)
    bf16 half;
    __asm__("cvt.rn.bf16.f32 %0,%1;" : "=h"(half) : "f"(f));
    return half;
#else
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (f != f) return (bf16)(bits >> 16 | 0x40u);
    return (bf16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#endif
}

/* What RMS norm multiplies by. NaN if the mean of the squares has overflowed: zeros would become tokens, whereas logits that
   are no numbers end the run with an error. On NVIDIA the bare instruction, exact to two units in the last place. */
FLEET_DEVICE float rms_scale(float mean)
{
#if defined(__CUDA_ARCH__)
    return rsqrtf(mean) + (mean - mean);
#else
    return 1 / sqrtf(mean) + (mean - mean);
#endif
}

/* The same bits as another type. */
FLEET_HOST_DEVICE float float_of_word(uint32_t word)
{
    float f;
    memcpy(&f, &word, sizeof f);
    return f;
}
FLEET_HOST_DEVICE uint32_t word_of_float(float f)
{
    uint32_t word;
    memcpy(&word, &f, sizeof word);
    return word;
}

FLEET_HOST_DEVICE uint32_t ceil_div(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

/* ---- NVIDIA ---- */

#if defined(FLEET_CUDA)
/* With the producer that makes seven warps. Up to eight warps leave 255 registers to a thread, nine
   leave 168. */
#define THREADS 192u
#define MAX_WAVES 6u
#define MAX_HEAD_DIM 128u
#define MAX_KV_SPLITS 32u /* of a sequence: one lane lists one split */
#define PART_QUERIES 16u  /* queries of a prompt's rows that an item of attention takes; 0: all */
#define KV_BLOCK 16u
#define ACTS_ARE_ROUNDED 1u
#define HAS_ROW_TILES                                                                              \
    0u /* 1: a linear layer may be cut into tiles of fewer rows than MAX_ROWS (session_desc.tile_rows) */
#define CONTIGUOUS_PANELS 0u
#define HAS_PACKED_CODES 0u  /* 1: products take weights of other formats than bf16 */
#define HAS_SERVER_KERNELS 1 /* 1: servers have other kernels than sessions */
#define WATCH_NS 100000

typedef bf16 act_t;
typedef uint16_t kv_t; /* f16 */

FLEET_HOST_DEVICE act_t act_of_float(float f)
{
    return bf16_of_float(f);
}
FLEET_HOST_DEVICE float float_of_act(act_t a)
{
    return float_of_bf16(a);
}

/* GPUs use the bare instructions. Exactness for small results needs constants in registers, which
   are scarce, and branches; softmax weights and gates do not need it. */
FLEET_DEVICE float fast_exp(float x)
{
    return __expf(x);
}
FLEET_DEVICE float fast_ratio(float a, float b)
{
    return __fdividef(a, b);
}
#endif /* FLEET_CUDA */

/* ---- AMD ---- */

#if defined(FLEET_HIP)
#define THREADS 256u
#define MAX_WAVES 8u
#define MAX_HEAD_DIM 128u
#define MAX_KV_SPLITS 64u
#define PART_QUERIES 0u
#define KV_BLOCK 64u
#define ACTS_ARE_ROUNDED 1u
#if !defined(HAS_ROW_TILES)
#define HAS_ROW_TILES 0u /* by default: they cost scalar registers, which are spilled */
#endif
#define CONTIGUOUS_PANELS 0u
#define HAS_PACKED_CODES 0u
#define HAS_SERVER_KERNELS 0
#define WATCH_NS 100000

typedef bf16 act_t;
typedef uint16_t kv_t; /* f16 */

FLEET_HOST_DEVICE act_t act_of_float(float f)
{
    return bf16_of_float(f);
}
FLEET_HOST_DEVICE float float_of_act(act_t a)
{
    return float_of_bf16(a);
}

/* The bare instructions, as on NVIDIA GPUs. */
FLEET_DEVICE float fast_exp(float x)
{
    return __expf(x);
}
FLEET_DEVICE float fast_ratio(float a, float b)
{
    return __fdividef(a, b);
}
#endif /* FLEET_HIP */

/* ---- the CPU ---- */

#if defined(FLEET_HOST)
#define THREADS 256u
#define MAX_WAVES 8u
#define MAX_HEAD_DIM 256u
#define MAX_KV_SPLITS 64u
#define PART_QUERIES 0u
#define KV_BLOCK 64u
#define ACTS_ARE_ROUNDED 0u
#define HAS_ROW_TILES 1u
#define CONTIGUOUS_PANELS 1u /* a worker's panels of a layer are neighbours, not every n-th one */
#define HAS_PACKED_CODES 1u
#define HAS_SERVER_KERNELS 0
#define WATCH_NS 2000000 /* the watch takes a processor from the workers */

typedef float act_t; /* an activation, as matrix products read it */
typedef float kv_t;  /* a key or value element */

FLEET_HOST_DEVICE act_t act_of_float(float f)
{
    return f;
}
FLEET_HOST_DEVICE float float_of_act(act_t a)
{
    return a;
}

FLEET_DEVICE float fast_exp(float x)
{
    return expf(x);
}
FLEET_DEVICE float fast_ratio(float a, float b)
{
    return a / b;
}
#endif /* FLEET_HOST */

#endif /* QWEN3_PLATFORM_H */
