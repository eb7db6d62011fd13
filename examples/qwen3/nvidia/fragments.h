/* nvidia/fragments.h: which lane holds what when NVIDIA's tensor cores multiply a block of weights, or of keys or values. This
   is arithmetic alone: a CPU can check it (tests/qwen3/fragments.c, emulated.c).

   mma.sync.m16n8k16 multiplies 16 x 16 by 16 x 8: here TILE_N columns of the layer by eight rows of the batch. Lane l, with
   g = l / 4 and t = l % 4, brings two values in a register, and receives (PTX ISA, fragments of mma.m16n8k16):
       A    columns g, g + 8, g, g + 8, at k = 2t, 2t + 1 in the first two, 2t + 8, 2t + 9 in the last two
       B    row g at the same k's
       sum  columns g and g + 8 of the rows 2t and 2t + 1
   Which k of the layer stands for which k of the instruction is free, as long as A and B agree. So a lane loads eight
   consecutive k's of its row or column, from 8t on, as 16 bytes: the first four are its k's in a first multiplication, the
   others in a second. The two multiplications cover a block of BLOCK_K k's.

   Weights and activations are both stored in atoms, VECTOR columns or rows by BLOCK_K k's, as wgmma reads its operands from
   LDS (PTX ISA: K-major with a swizzle of 64 bytes, addresses counted from a multiple of 512). A column has 64 bytes, whose
   16-byte vectors are permuted by the column's number, so that any eight lanes load from different banks. */
#ifndef QWEN3_NVIDIA_FRAGMENTS_H
#define QWEN3_NVIDIA_FRAGMENTS_H

#include "../platform.h"

#define FRAGMENT_ROWS 8u /* rows of the batch */
#define FRAGMENT_SUMS 4u /* of a lane */

/* An atom, in values; and the position of a row's or column's k in it. */
#define ATOM (VECTOR * BLOCK_K)
FLEET_HOST_DEVICE uint32_t atom_at(uint32_t row, uint32_t k)
{
    return row % VECTOR * BLOCK_K + (k % BLOCK_K / VECTOR ^ row % VECTOR / 2) * VECTOR + k % VECTOR;
}

/* A stage holds TILE_N columns by STAGE_K k's (large M: WGMMA_K): the atoms of its first eight
   columns, then those of the others. So groups of eight columns are at equal distances even across
   neighbouring stages. */
#define STAGE_K 256u
#define STAGE_HALF (STAGE_K / BLOCK_K * ATOM)
#define WGMMA_K 64u /* k's of four wgmma */
/* Position of a weight, from the atom in which its block begins. */
FLEET_HOST_DEVICE uint32_t pack_at(uint32_t column, uint32_t k, uint32_t inner_k)
{
    return column / VECTOR * (inner_k / BLOCK_K * ATOM) + atom_at(column, k);
}
/* The atoms of eight rows follow one another, then come those of the next eight rows. */
FLEET_HOST_DEVICE size_t act_at(uint32_t row, uint32_t k, uint32_t width)
{
    return ((size_t)(row / VECTOR) * (width / BLOCK_K) + k / BLOCK_K) * ATOM + atom_at(row, k);
}

/* A lane's row among eight, its first k of a block, and the position of both in an atom. The vector
   holds two registers of the first multiplication, then two of the second. */
FLEET_HOST_DEVICE uint32_t fragment_row(uint32_t lane)
{
    return lane / 4;
}
FLEET_HOST_DEVICE uint32_t fragment_k(uint32_t lane)
{
    return lane % 4 * VECTOR;
}
FLEET_HOST_DEVICE uint32_t fragment_at(uint32_t lane)
{
    return atom_at(fragment_row(lane), fragment_k(lane));
}
/* Operand A of the first or second multiplication (half 0 or 1) of a block, from the lane's vectors
   of the first eight columns and of the others. */
FLEET_HOST_DEVICE void fragment_weights(uint32_t *a, const uint32_t *first, const uint32_t *others,
                                        uint32_t half)
{
    a[0] = first[2 * half], a[1] = others[2 * half];
    a[2] = first[2 * half + 1], a[3] = others[2 * half + 1];
}

/* Position of the lane's sum number i in [FRAGMENT_ROWS][TILE_N]. */
FLEET_HOST_DEVICE uint32_t fragment_sum_at(uint32_t lane, uint32_t i)
{
    return (lane % 4 * 2 + i % 2) * TILE_N + i / 2 * 8 + lane / 4;
}
/* Which sum a lane stores i-th. If all lanes stored the same one, four of them would conflict in a
   bank. */
FLEET_HOST_DEVICE uint32_t fragment_sum_turn(uint32_t lane, uint32_t i)
{
    return i ^ lane % 4;
}

#endif /* QWEN3_NVIDIA_FRAGMENTS_H */
