/* nvidia/kv_block.h: how keys and values lie in the cache, and which lane multiplies which of them. */
#ifndef QWEN3_NVIDIA_KV_BLOCK_H
#define QWEN3_NVIDIA_KV_BLOCK_H

#include "../decoder.h"
#include "fragments.h"

/* A unit of a head's cache has the keys of KV_BLOCK positions, row after row, then their values. Steps append row by row, and
   memory is written in sectors of 32 bytes: were a row's values apart from each other, each would cost a sector, which is
   read, changed and written. The 16-byte pieces of a row change places by its number, so that any eight lanes that load
   together find theirs in different banks. Heads are padded to the largest one: loops over them have constants for
   bounds. */
#define HEAD_VECTORS (MAX_HEAD_DIM / VECTOR) /* of 16 bytes */
#define HEAD_TILES (MAX_HEAD_DIM / TILE_N)
#define KV_BLOCK_VALUES (2 * KV_BLOCK * MAX_HEAD_DIM) /* values */

/* In a unit's keys, or in its values. */
FLEET_BOTH uint32_t kv_block_at(uint32_t row, uint32_t i)
{
    return row * MAX_HEAD_DIM + (i / VECTOR ^ (row & 6) ^ row % 2 * 4) * VECTOR + i % VECTOR;
}
/* Of a head, in values. */
FLEET_BOTH size_t cache_size(const decoder *d)
{
    return (size_t)ceil_div(d->context, KV_BLOCK) * KV_BLOCK_VALUES;
}
/* Where in a head's cache value i of a key stands, and of the values of that key. Eight neighbours are together. */
FLEET_BOTH size_t key_at(const decoder *d, uint32_t key, uint32_t i)
{
    FLEET_UNUSED(d);
    return (size_t)key / KV_BLOCK * KV_BLOCK_VALUES + kv_block_at(key % KV_BLOCK, i);
}
FLEET_BOTH size_t value_at(const decoder *d, uint32_t key, uint32_t i)
{
    return key_at(d, key, i) + KV_BLOCK_VALUES / 2;
}

/* Keys are multiplied by queries as weights by rows. In the other product values are the columns, and keys the k's: of its
   keys (2t, 2t + 1, 2t + 8, 2t + 9) a lane loads the pieces g and g + HEAD_VECTORS / 2, key by key, and takes their values
   number m for multiplication m. So columns g and g + 8 of that are values 8g + m of the head's halves, and after HEAD_TILES
   multiplications a lane has eight neighbours of each half. */
FLEET_BOTH void fragment_values(uint32_t *a, const fleet_quad *value, uint32_t m)
{
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t x = value[i / 2 * 4 + i % 2].word[m / 2],
                       y = value[i / 2 * 4 + 2 + i % 2].word[m / 2];
        a[i] = m % 2 ? x >> 16 | (y & 0xffff0000u) : (x & 0xffffu) | y << 16;
    }
}
/* What lanes leave of a part, 16 bytes each; and in floats. */
#define KV_PARTIAL_QUADS 32u
FLEET_BOTH uint32_t kv_partial_size(const decoder *d)
{
    FLEET_UNUSED(d);
    return KV_PARTIAL_QUADS * 4;
}

#endif /* QWEN3_NVIDIA_KV_BLOCK_H */
