/* instructions_cuda.h: what tiles_cuda.h and attention_cuda.h ask of an NVIDIA GPU that C has no words for. Whoever has
   defined the guard brings other definitions: tests/qwen3/emulated.c, which runs those tiles on a CPU. */
#ifndef QWEN3_INSTRUCTIONS_CUDA_H
#define QWEN3_INSTRUCTIONS_CUDA_H

#include "decoder.h"

#include <cuda_fp16.h>

#define UNROLLED _Pragma("unroll") /* before a loop over registers */
#define ROLLED _Pragma("unroll 1")

/* 16 bytes of global memory, which the compiler does not see in a pointer that it loaded. Other workers may have
   written them during this launch: ordinary loads. */
FLEET_DEVICE fleet_quad load_quad(const act *from)
{
    __builtin_assume(__isGlobal(from));
    return *(const fleet_quad *)(const void *)from;
}
/* A line of global memory to the L1: a load that nobody waits for. */
FLEET_DEVICE void touch(const void *at)
{
    __asm__ volatile(
        "{\n.reg .u32 unused;\nld.global.ca.u32 unused,[%0];\n}" ::"l"(__cvta_generic_to_global(at))
        : "memory");
}

/* mma.sync of bf16: activations and weights. */
FLEET_DEVICE void multiply_fragments(float *sum, const uint32_t *a, const uint32_t *b)
{
    __asm__("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
/* The same of f16: queries and keys, weights and values. */
FLEET_DEVICE void multiply_kept(float *sum, const uint32_t *a, const uint32_t *b)
{
    __asm__("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

FLEET_DEVICE kept kept_of(float f)
{
    return __half_as_ushort(__float2half_rn(fminf(fmaxf(f, -65504.0f), 65504.0f)));
}
/* Two of them in a register; of weights, which are 0 to 1. */
FLEET_DEVICE uint32_t pair_of(float lower, float upper)
{
    uint32_t pair;
    __asm__("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(pair) : "f"(upper), "f"(lower));
    return pair;
}
/* 2 to the power of x, to some 22 bits; 0 where that is tiny. */
FLEET_DEVICE float power_of_two(float x)
{
    float power;
    __asm__("ex2.approx.ftz.f32 %0,%1;" : "=f"(power) : "f"(x));
    return power;
}

/* x of the lane whose number differs in the bits of `bits`; all lanes of the warp ask together. */
FLEET_DEVICE float from_lane(float x, uint32_t bits)
{
    return __shfl_xor_sync(~0u, x, (int)bits);
}

/* x of a lane; all lanes of the warp ask together. */
FLEET_DEVICE float of_lane(float x, uint32_t lane)
{
    return __shfl_sync(~0u, x, (int)lane);
}

/* Two neighbours of a row of an 8 x 8 matrix of halves, of which lane l has numbers 2 (l % 4) and 2 (l % 4) + 1 in row
   l / 4: those of the matrix turned over. */
FLEET_DEVICE uint32_t turned_over(uint32_t pair)
{
    uint32_t turned;
    __asm__ volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;" : "=r"(turned) : "r"(pair));
    return turned;
}

#endif /* QWEN3_INSTRUCTIONS_CUDA_H */
