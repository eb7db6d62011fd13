/* fragments.h: which lane has what when the tensor cores of an NVIDIA GPU multiply a block of weights, or of keys or
   values. Arithmetic alone: a CPU can go through it (tests/qwen3/fragments.c, emulated.c).

   mma.sync.m16n8k16 multiplies 16 x 16 by 16 x 8: here TILE_N columns of the layer by eight rows of the batch. Of lane l,
   with g = l / 4 and t = l % 4, it takes, two values in a register, and leaves (PTX ISA, fragments of mma.m16n8k16):
       A    columns g, g + 8, g, g + 8, at k = 2t, 2t + 1 in the first two, 2t + 8, 2t + 9 in the last two
       B    row g at the same k's
       sum  of columns g and g + 8 with the rows 2t and 2t + 1
   Which k of the layer stands for which k of the instruction is free, if A and B agree. So a lane loads eight k's of its
   row or column, from 8t on, as 16 bytes: the first four are its k's in a first multiplication, the others in a second.
   These two are a block of BLOCK_K k's.

   Weights and activations both lie in atoms, VECTOR columns or rows by BLOCK_K k's, as wgmma takes its operands from LDS
   (PTX ISA, K-major with a swizzle of 64 bytes, the address counted from a multiple of 512): a column has 64 bytes, and
   its 16-byte pieces change places by its number, so that any eight lanes find theirs in different banks. */
#ifndef QWEN3_NVIDIA_FRAGMENTS_H
#define QWEN3_NVIDIA_FRAGMENTS_H

#include "../platform.h"

#define FRAGMENT_ROWS 8u /* of the batch */
#define FRAGMENT_SUMS 4u /* of a lane */

/* An atom, in values; and where in one the k's of a row or column stand. */
#define ATOM (VECTOR * BLOCK_K)
FLEET_BOTH uint32_t atom_at(uint32_t row, uint32_t k)
{
    return row % VECTOR * BLOCK_K + (k % BLOCK_K / VECTOR ^ row % VECTOR / 2) * VECTOR + k % VECTOR;
}

/* A piece of weights is TILE_N columns by STAGE_K k's, or for many rows by WGMMA_K: the atoms of its first eight columns,
   then those of the others. So pieces that are neighbours in LDS have their groups of eight columns at equal distances. */
#define STAGE_K 256u
#define STAGE_HALF (STAGE_K / BLOCK_K * ATOM)
#define WGMMA_K 64u /* what four wgmma multiply */
/* Where a weight stands, from the atom on in which its block begins. */
FLEET_BOTH uint32_t pack_at(uint32_t column, uint32_t k, uint32_t inner_k)
{
    return column / VECTOR * (inner_k / BLOCK_K * ATOM) + atom_at(column, k);
}
/* Of activations: the atoms of eight rows one behind the other, then those of the next eight. */
FLEET_BOTH size_t act_at(uint32_t row, uint32_t k, uint32_t width)
{
    return ((size_t)(row / VECTOR) * (width / BLOCK_K) + k / BLOCK_K) * ATOM + atom_at(row, k);
}

/* A lane's row of eight, and its first k of a block: two registers of the first multiplication, then two of the second.
   In an atom they begin at fragment_at. */
FLEET_BOTH uint32_t fragment_row(uint32_t lane)
{
    return lane / 4;
}
FLEET_BOTH uint32_t fragment_k(uint32_t lane)
{
    return lane % 4 * VECTOR;
}
FLEET_BOTH uint32_t fragment_at(uint32_t lane)
{
    return atom_at(fragment_row(lane), fragment_k(lane));
}
/* A of the first or the second multiplication (half 0 or 1) of a block: words of the lane's k's in the first eight columns
   and in the others. */
FLEET_BOTH void fragment_weights(uint32_t *a, const uint32_t *first, const uint32_t *others,
                                 uint32_t half)
{
    a[0] = first[2 * half], a[1] = others[2 * half];
    a[2] = first[2 * half + 1], a[3] = others[2 * half + 1];
}

/* Where the lane's sum number i belongs, in [FRAGMENT_ROWS][TILE_N]. */
FLEET_BOTH uint32_t fragment_sum_at(uint32_t lane, uint32_t i)
{
    return (lane % 4 * 2 + i % 2) * TILE_N + i / 2 * 8 + lane / 4;
}
/* Which sum a lane stores i-th. If all stored the same one, four lanes would meet in a bank, two rows apart each. */
FLEET_BOTH uint32_t fragment_sum_turn(uint32_t lane, uint32_t i)
{
    return i ^ lane % 4;
}

#endif /* QWEN3_NVIDIA_FRAGMENTS_H */
