/* nvidia/kv_block.h: the layout of keys and values in a page of the cache, and which lane multiplies which of them. */
#ifndef QWEN3_NVIDIA_KV_BLOCK_H
#define QWEN3_NVIDIA_KV_BLOCK_H

#include "../decoder.h"
#include "fragments.h"

/* A KV block is a page of a head: the keys of KV_BLOCK positions, then their values. It is one stage of the weight pipeline.
   Both are laid out as wgmma reads an operand from LDS: keys in atoms, as weights are (fragments.h); values in rows of 64
   elements, whose 16-byte vectors are permuted by the row's number (PTX ISA: N-major with a swizzle of 128 bytes). So any
   eight lanes of an mma.sync's warp load from different banks, too. Steps append row by row, and memory is written in
   sectors of 32 bytes: each belongs to one row, since it would otherwise be read, changed and written. Heads are padded to
   MAX_HEAD_DIM, so that loops have constant bounds. */
#define HEAD_VECTORS (MAX_HEAD_DIM / VECTOR) /* of 16 bytes */
#define HEAD_TILES (MAX_HEAD_DIM / TILE_N)
#define KV_BLOCK_VALUES (2 * KV_BLOCK * MAX_HEAD_DIM) /* keys and values, in elements */
#define VALUE_COLUMNS 64u                             /* of a row of values */

FLEET_HOST_DEVICE uint32_t page_size(const decoder *d)
{
    FLEET_UNUSED(d);
    return KV_BLOCK_VALUES;
}
/* Aligned groups of VECTOR elements stay together. */
FLEET_HOST_DEVICE uint32_t key_at(const decoder *d, uint32_t row, uint32_t i)
{
    FLEET_UNUSED(d);
    return (row / VECTOR * (MAX_HEAD_DIM / BLOCK_K) + i / BLOCK_K) * ATOM + atom_at(row, i);
}
FLEET_HOST_DEVICE uint32_t value_at(const decoder *d, uint32_t row, uint32_t i)
{
    FLEET_UNUSED(d);
    return KV_BLOCK_VALUES / 2 + (i / VALUE_COLUMNS * KV_BLOCK + row) * VALUE_COLUMNS +
           (i % VALUE_COLUMNS / VECTOR ^ row % VECTOR) * VECTOR + i % VECTOR;
}

/* Keys are multiplied by queries as weights are by rows. In the other product, values are the
   columns and keys the k's: of its keys (2t, 2t + 1, 2t + 8, 2t + 9) a lane loads the vectors g and
   g + HEAD_VECTORS / 2, key by key, and uses element m of each for multiplication m. Columns g and
   g + 8 of that multiplication are therefore elements 8g + m of the head's halves, and after
   HEAD_TILES multiplications a lane has eight neighbours of each half. */
FLEET_HOST_DEVICE void fragment_values(uint32_t *a, const fleet_quad *value, uint32_t m)
{
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t x = value[i / 2 * 4 + i % 2].word[m / 2],
                       y = value[i / 2 * 4 + 2 + i % 2].word[m / 2];
        a[i] = m % 2 ? x >> 16 | (y & 0xffff0000u) : (x & 0xffffu) | y << 16;
    }
}
/* Size of a query's partial result: 16-byte words, one of each lane; and floats. */
#define KV_PARTIAL_QUADS 32u
FLEET_HOST_DEVICE uint32_t kv_partial_size(const decoder *d)
{
    FLEET_UNUSED(d);
    return KV_PARTIAL_QUADS * 4;
}

#endif /* QWEN3_NVIDIA_KV_BLOCK_H */
