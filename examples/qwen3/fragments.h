/* fragments.h: which lane has what when the tensor cores of an NVIDIA GPU multiply a block of weights, or of keys or
   values. Arithmetic alone: a CPU can go through it (tests/qwen3/fragments.c, emulated.c).

   mma.sync.m16n8k16 multiplies 16 x 16 by 16 x 8: here TILE columns of the layer by eight rows of the batch. Of lane l,
   with g = l / 4 and t = l % 4, it takes, two values in a register, and leaves (PTX ISA, fragments of mma.m16n8k16):
       A    columns g, g + 8, g, g + 8, at k = 2t, 2t + 1 in the first two, 2t + 8, 2t + 9 in the last two
       B    row g at the same k's
       sum  of columns g and g + 8 with the rows 2t and 2t + 1
   Which k of the layer stands for which k of the instruction is free, if A and B agree. So a lane loads eight k's of its
   row or column, from 8t on, as 16 bytes: the first four are its k's in a first multiplication, the others in a second.
   These two are a block of BLOCK k's.

   Weights and activations both lie in atoms, EIGHT columns or rows by BLOCK k's, as wgmma takes its operands from LDS
   (PTX ISA, K-major with a swizzle of 64 bytes, the address counted from a multiple of 512): a column has 64 bytes, and
   its 16-byte pieces change places by its number, so that any eight lanes find theirs in different banks. */
#ifndef QWEN3_FRAGMENTS_H
#define QWEN3_FRAGMENTS_H

#include "decoder.h"

#define FRAGMENT_ROWS 8u /* of the batch */
#define FRAGMENT_SUMS 4u /* of a lane */

/* An atom, in values; and where in one the k's of a row or column stand. */
#define ATOM (EIGHT * BLOCK)
FLEET_BOTH uint32_t atom_at(uint32_t row, uint32_t k)
{
    return row % EIGHT * BLOCK + (k % BLOCK / EIGHT ^ row % EIGHT / 2) * EIGHT + k % EIGHT;
}

/* A piece of weights is TILE columns by PIECE_K k's, or for many rows by OPERAND_K: the atoms of its first eight columns,
   then those of the others. So pieces that are neighbours in LDS have their groups of eight columns at equal distances. */
#define PIECE_K 256u
#define PIECE_HALF (PIECE_K / BLOCK * ATOM)
#define OPERAND_K 64u /* what four wgmma multiply */
/* Where a weight stands, from the atom on in which its block begins. */
FLEET_BOTH uint32_t pack_at(uint32_t column, uint32_t k, uint32_t piece_k)
{
    return column / EIGHT * (piece_k / BLOCK * ATOM) + atom_at(column, k);
}
/* Of activations: the atoms of eight rows one behind the other, then those of the next eight. */
FLEET_BOTH size_t act_at(uint32_t row, uint32_t k, uint32_t width)
{
    return ((size_t)(row / EIGHT) * (width / BLOCK) + k / BLOCK) * ATOM + atom_at(row, k);
}

/* A lane's row of eight, and its first k of a block: two registers of the first multiplication, then two of the second.
   In an atom they begin at fragment_at. */
FLEET_BOTH uint32_t fragment_row(uint32_t lane)
{
    return lane / 4;
}
FLEET_BOTH uint32_t fragment_k(uint32_t lane)
{
    return lane % 4 * EIGHT;
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

/* ---- the cache ---- */

/* A unit of a head's cache has the keys of KEYS positions, then their values: in blocks of KEYS by TILE of head_dim, of
   which a lane's 16 bytes, its A, stand one behind the other. Keys are multiplied by queries in place of rows, and what
   stands for the k's is head_dim, of which a lane has 4t to 4t + 3; values are columns, and the keys are the k's, 2t,
   2t + 1, 2t + 8 and 2t + 9. So the weights of scores, turned over, are what values are multiplied by. Heads are padded to
   the largest one: the loops over their blocks have constants for bounds. */
#define CACHE_BLOCK (KEYS * TILE)
#define HEAD_TILES (MOST_HEAD_DIM / TILE)
#define UNIT (2 * KEYS * MOST_HEAD_DIM) /* values */

/* Of a head, in values. */
FLEET_BOTH size_t cache_size(const decoder *d)
{
    return (size_t)ceil_div(d->context, KEYS) * UNIT;
}
/* Where in a head's cache value i of a key stands, and of the values of that key. Two neighbours of a key are together. */
FLEET_BOTH size_t key_at(uint32_t key, uint32_t i)
{
    const uint32_t row = key % KEYS, lane = row % 8 * 4 + i % TILE / 4;
    return (size_t)key / KEYS * UNIT + i / TILE * CACHE_BLOCK + lane * EIGHT + i % 4 / 2 * 4 +
           row / 8 * 2 + i % 2;
}
FLEET_BOTH size_t value_at(uint32_t key, uint32_t i)
{
    const uint32_t row = key % KEYS, lane = i % 8 * 4 + row % 8 / 2;
    return (size_t)key / KEYS * UNIT + UNIT / 2 + i / TILE * CACHE_BLOCK + lane * EIGHT +
           row / 8 * 4 + i % TILE / 8 * 2 + row % 2;
}
/* What lanes leave of a part, 16 bytes each; and in floats. */
#define PARTIAL 32u
FLEET_BOTH uint32_t partial_size(const decoder *d)
{
    FLEET_UNUSED(d);
    return PARTIAL * 4;
}
/* Lane l leaves the sums of values l / 4 and l / 4 + 8 of a block together, and finds four in a row again: two
   neighbours, each with the one eight behind it. The first of them, in its half of the head: */
FLEET_BOTH uint32_t four_sums_at(uint32_t lane)
{
    return lane / 4 * TILE + lane % 4 * 2;
}

#endif /* QWEN3_FRAGMENTS_H */
