/* mma.sync.m16n8k16 on the CPU: which lane has which element of A (16 x 16), B (16 x 8) and the sums (16 x 8), as the PTX
   ISA gives them. */
#ifndef QWEN3_TEST_MMA_H
#define QWEN3_TEST_MMA_H

#include <stdint.h>

#define LANES 32u
#define LANE_SUMS 4u

/* What a lane brings, out of its registers: two elements in each. */
typedef struct lane_elements {
    float a[8], b[4];
} lane_elements;

static lane_elements lane_elements_of(const uint32_t *a, const uint32_t *b,
                                      float (*value)(uint32_t half))
{
    lane_elements e;
    for (uint32_t i = 0; i < 8; i++) e.a[i] = value(i % 2 ? a[i / 2] >> 16 : a[i / 2] & 0xffffu);
    for (uint32_t i = 0; i < 4; i++) e.b[i] = value(i % 2 ? b[i / 2] >> 16 : b[i / 2] & 0xffffu);
    return e;
}

/* Adds to one lane's sums the product of what all lanes brought. */
static void mma(float *sum, const lane_elements *lanes, uint32_t lane)
{
    for (uint32_t i = 0; i < LANE_SUMS; i++) {
        const uint32_t row = lane / 4 + (i < 2 ? 0 : 8), column = lane % 4 * 2 + i % 2;
        for (uint32_t k = 0; k < 16; k++) {
            const uint32_t among = k % 8 / 2, pair = k < 8 ? 0 : 1;
            sum[i] += lanes[row % 8 * 4 + among].a[pair * 4 + row / 8 * 2 + k % 2] *
                      lanes[column * 4 + among].b[pair * 2 + k % 2];
        }
    }
}

#endif /* QWEN3_TEST_MMA_H */
