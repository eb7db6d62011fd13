/* fragments.h: which lane has what when the tensor cores of an NVIDIA GPU multiply a block of weights. Arithmetic alone:
   a CPU can go through it (tests/qwen3/fragments.c).

   mma.sync.m16n8k16 multiplies 16 x 16 by 16 x 8: here TILE columns of the layer by eight rows of the batch. Of lane l,
   with g = l / 4 and t = l % 4, it takes, two values in a register, and leaves (PTX ISA, fragments of mma.m16n8k16):
       A    columns g, g + 8, g, g + 8, at k = 2t, 2t + 1 in the first two, 2t + 8, 2t + 9 in the last two
       B    row g at the same k's
       sum  of columns g and g + 8 with the rows 2t and 2t + 1
   Which k of the layer stands for which k of the instruction is free, if A and B agree. So a lane loads eight k's of its
   row, from 8t on, as 16 bytes: the first four are its k's in a first multiplication, the others in a second. These
   two are a block of BLOCK k's. The weights lie in a block as the lanes want them: one after the other, each the 16
   bytes that are its A; in LDS any eight neighbours find theirs in different banks. */
#ifndef QWEN3_FRAGMENTS_H
#define QWEN3_FRAGMENTS_H

#include "decoder.h"

#define FRAGMENT_ROWS 8u /* of the batch */
#define FRAGMENT_SUMS 4u /* of a lane */

/* Where a lane's weights for the first or the second multiplication (half 0 or 1) of a block begin: four registers. */
FLEET_BOTH uint32_t fragment_weights_at(uint32_t lane, uint32_t half)
{
    return (half * 32 + lane) * 8;
}
/* Where in a block a weight stands. */
FLEET_BOTH uint32_t pack_at(uint32_t column, uint32_t k)
{
    const uint32_t lane = column % 8 * 4 + k / 8, half = k % 8 / 4;
    return fragment_weights_at(lane, half) + k % 4 / 2 * 4 + column / 8 * 2 + k % 2;
}

/* A lane's row of eight, and its first k of a block: two registers of the first multiplication, then two of the second. */
FLEET_BOTH uint32_t fragment_row(uint32_t lane)
{
    return lane / 4;
}
FLEET_BOTH uint32_t fragment_k(uint32_t lane)
{
    return lane % 4 * 8;
}

/* Where the lane's sum number i belongs, in [FRAGMENT_ROWS][TILE]. */
FLEET_BOTH uint32_t fragment_sum_at(uint32_t lane, uint32_t i)
{
    return (lane % 4 * 2 + i % 2) * TILE + i / 2 * 8 + lane / 4;
}
/* Which sum a lane stores i-th. If all stored the same one, four lanes would meet in a bank, two rows apart each. */
FLEET_BOTH uint32_t fragment_sum_turn(uint32_t lane, uint32_t i)
{
    return i ^ lane % 4;
}

#endif /* QWEN3_FRAGMENTS_H */
