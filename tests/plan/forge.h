/* What a forger of plans can do: compute a matching checksum. Written from its description in fleet.h, without its
   code. */
#ifndef FLEET_TEST_FORGE_H
#define FLEET_TEST_FORGE_H

#include "walk.h"

/* The checksum of `bytes` bytes, of which those of a plan's own checksum count as 0. */
static inline uint64_t sum_of(const unsigned char *block, uint64_t bytes)
{
    uint64_t sum = bytes, at;
    for (at = 0; at < bytes + 8 - bytes % 8; at += 8) {
        uint64_t word = 0;
        memcpy(&word, block + at, bytes - at < 8 ? (size_t)(bytes - at) : 8u);
        if (at == offsetof(fleet_plan, checksum)) word = 0;
        sum = (sum ^ word) * 0x9e3779b97f4a7c15ull;
        sum ^= sum >> 32;
    }
    return sum;
}

/* Whether so many bytes from `at` on may be a plan, to a forger. */
static inline int is_plan_at(const unsigned char *block, uint64_t bytes, uint64_t at)
{
    const fleet_plan *plan = (const fleet_plan *)(const void *)(block + at);
    return at % 64 == 0 && at <= bytes && bytes - at > sizeof *plan && plan->bytes <= bytes - at &&
           plan->bytes > sizeof *plan;
}

/* Sets the checksums of a block and of the plans of buckets in it. Offsets are those of an intact plan; `table` is
   the offset of their table. */
static inline void seal(void *block, uint64_t bytes, const uint64_t *table, uint32_t buckets)
{
    unsigned char *byte = (unsigned char *)block;
    fleet_plan *plan = (fleet_plan *)block;
    uint32_t i;
    for (i = 0; i + 1 < buckets; i++) {
        fleet_plan *bucket = (fleet_plan *)(void *)(byte + table[i]);
        if (is_plan_at(byte, bytes, table[i]))
            bucket->checksum = sum_of(byte + table[i], bucket->bytes);
    }
    if (is_plan_at(byte, bytes, 0)) plan->checksum = sum_of(byte, plan->bytes);
}

#endif
