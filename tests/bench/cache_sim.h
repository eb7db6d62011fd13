/* Caches of a chiplet GPU, on paper: a private L2 for each chiplet, one last-level cache on the memory's side,
   and counters of what passes between them. Knows no plan: locality.h feeds it.

   Hardware (CDNA3 and CDNA4 white papers; ROCm Compute Profiler, "L2 cache (TCC)")
     L2          4 MB, 16 ways, lines of 128 bytes, write-back. A store to a line that is not there takes one
                 without reading it (byte masks). Where a line goes is hashed "to evenly distribute requests"; the
                 hash is not published: here the address is folded by XOR.
     last level  256 MB, 16 ways, on the memory's side: each line between an L2 and memory passes through it, but
                 what leaves it stays in the L2s, and the other way round (neither inclusive nor exclusive).
   Replacement is LRU in both. A line that a streaming load brought in leaves before all others, until an ordinary
   access to it. */
#ifndef FLEET_CACHE_SIM_H
#define FLEET_CACHE_SIM_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_WAYS 16u
#define CACHE_LINE_BYTES 128u

/* One way: the number of its line, above these bits; 0 is empty, so that line 0 is never used. */
#define CACHE_DIRTY 1u    /* as an access: a store */
#define CACHE_STREAMED 2u /* as an access: a streaming load */
#define CACHE_LINE_SHIFT 2u

typedef struct cache {
    uint32_t set_bits;
    uint32_t dirty;       /* lines */
    uint32_t plain_index; /* 1: no hash */
    uint32_t *way;        /* CACHE_WAYS of each set, the one used last in front */
} cache;

typedef struct cache_counts {
    uint64_t requests, hits; /* of the L2s: loads and stores of one line */
    uint64_t fabric_reads,
        fabric_writes; /* lines that L2s read and write back; atomics are writes */
    uint64_t memory_reads, memory_writes; /* lines between the last-level cache and HBM */
} cache_counts;

typedef struct cache_sim {
    uint32_t chiplets;
    cache *l2, llc;
    cache_counts counts;
} cache_sim;

/* Takes a power of two of bytes. 0: out of memory. */
static inline int cache_make(cache *c, uint64_t bytes)
{
    const uint64_t sets = bytes / CACHE_LINE_BYTES / CACHE_WAYS;
    memset(c, 0, sizeof *c);
    while ((uint64_t)1 << c->set_bits < sets) c->set_bits++;
    c->way = (uint32_t *)calloc(((size_t)1 << c->set_bits) * CACHE_WAYS, sizeof *c->way);
    return c->way != NULL;
}

static inline uint32_t *cache_set(const cache *c, uint32_t line)
{
    uint64_t index = line;
    if (!c->plain_index) index ^= index >> c->set_bits ^ index >> 2 * c->set_bits;
    return c->way + (size_t)(index & (((uint64_t)1 << c->set_bits) - 1)) * CACHE_WAYS;
}

/* Which line is evicted: an empty way, else the streamed line that was used longest ago, else the line that was. */
static inline uint32_t cache_victim(const uint32_t *set)
{
    uint32_t i = CACHE_WAYS;
    if (!set[CACHE_WAYS - 1]) return CACHE_WAYS - 1;
    while (i && !(set[i - 1] & CACHE_STREAMED)) i--;
    return i ? i - 1 : CACHE_WAYS - 1;
}

/* One access: 1 where the line was there. *left: the way that made room, 0 where none had to. */
static inline int cache_access(cache *c, uint32_t line, uint32_t bits, uint32_t *left)
{
    uint32_t *set = cache_set(c, line), place = 0, entry = line << CACHE_LINE_SHIFT | bits;
    int hit;
    while (place < CACHE_WAYS && set[place] >> CACHE_LINE_SHIFT != line) place++;
    hit = place < CACHE_WAYS;
    *left = 0;
    if (hit) {
        entry = set[place] | (bits & CACHE_DIRTY);
        if (!(bits & CACHE_STREAMED)) entry &= ~CACHE_STREAMED;
        c->dirty += (entry ^ set[place]) & CACHE_DIRTY;
    } else {
        place = cache_victim(set);
        *left = set[place];
        c->dirty += bits & CACHE_DIRTY;
        c->dirty -= *left & CACHE_DIRTY;
    }
    for (; place; place--) set[place] = set[place - 1];
    set[0] = entry;
    return hit;
}

static inline void cache_sim_free(cache_sim *s)
{
    uint32_t k;
    for (k = 0; s->l2 && k < s->chiplets; k++) free(s->l2[k].way);
    free(s->l2);
    free(s->llc.way);
}

/* Empty caches. 0: out of memory. */
static inline int cache_sim_make(cache_sim *s, uint32_t chiplets, uint64_t l2_bytes,
                                 uint64_t llc_bytes)
{
    uint32_t k;
    int made;
    memset(s, 0, sizeof *s);
    s->chiplets = chiplets;
    s->l2 = (cache *)calloc(chiplets, sizeof *s->l2);
    made = s->l2 != NULL && cache_make(&s->llc, llc_bytes);
    for (k = 0; made && k < chiplets; k++) made = cache_make(&s->l2[k], l2_bytes);
    if (!made) cache_sim_free(s);
    return made;
}

/* What an L2 passes on: a line that it lacks, or one that it writes back. */
static inline void cache_sim_fabric(cache_sim *s, uint32_t line, uint32_t bits)
{
    uint32_t left;
    const int hit = cache_access(&s->llc, line, bits, &left);
    if (bits & CACHE_DIRTY) {
        s->counts.fabric_writes++;
    } else {
        s->counts.fabric_reads++;
        s->counts.memory_reads += !hit;
    }
    s->counts.memory_writes += left & CACHE_DIRTY;
}

/* A load or a store of one line by a chiplet: 1 where its L2 has the line. */
static inline int cache_sim_access(cache_sim *s, uint32_t chiplet, uint32_t line, uint32_t bits)
{
    uint32_t left;
    const int hit = cache_access(&s->l2[chiplet], line, bits, &left);
    s->counts.requests++;
    s->counts.hits += (uint64_t)hit;
    if (left & CACHE_DIRTY) cache_sim_fabric(s, left >> CACHE_LINE_SHIFT, CACHE_DIRTY);
    if (!hit && !(bits & CACHE_DIRTY)) cache_sim_fabric(s, line, 0);
    return hit;
}

/* A device-scope release: the chiplet's dirty lines are written back, and stay. */
static inline void cache_sim_release(cache_sim *s, uint32_t chiplet)
{
    cache *c = &s->l2[chiplet];
    uint32_t *w;
    for (w = c->way; c->dirty; w++) {
        if (!(*w & CACHE_DIRTY)) continue;
        *w &= ~CACHE_DIRTY;
        c->dirty--;
        cache_sim_fabric(s, *w >> CACHE_LINE_SHIFT, CACHE_DIRTY);
    }
}

/* A device-scope acquire: the chiplet forgets what it has not written. */
static inline void cache_sim_acquire(cache_sim *s, uint32_t chiplet)
{
    cache *c = &s->l2[chiplet];
    uint32_t set, i, kept;
    for (set = 0; set >> c->set_bits == 0; set++) {
        uint32_t *way = c->way + (size_t)set * CACHE_WAYS;
        for (i = kept = 0; i < CACHE_WAYS; i++)
            if (way[i] & CACHE_DIRTY) way[kept++] = way[i];
        while (kept < CACHE_WAYS) way[kept++] = 0;
    }
}

/* A device-scope arrival: an atomic beyond the L2. */
static inline void cache_sim_arrive(cache_sim *s)
{
    s->counts.fabric_writes++;
}

#endif
