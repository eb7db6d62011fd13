/* random_seed.h: an unpredictable seed, from the system's source of random numbers. */
#ifndef RANDOM_SEED_H
#define RANDOM_SEED_H

#include <stdint.h>
#include <stdio.h>
#if defined(__linux__)
#include <sys/random.h>
#endif

/* A number from 1 to INT64_MAX. -1: the system has none. */
static inline int random_seed(uint64_t *seed)
{
    uint64_t bits = 0;
    FILE *f;
    int bad;
#if defined(__linux__)
    if (getrandom(&bits, sizeof bits, 0) == (ssize_t)sizeof bits) {
        *seed = bits >> 1 ? bits >> 1 : 1;
        return 0;
    }
#endif
    f = fopen("/dev/urandom", "rb");
    bad = !f || fread(&bits, sizeof bits, 1, f) != 1;
    if (f) fclose(f);
    *seed = bits >> 1 ? bits >> 1 : 1;
    return bad ? -1 : 0;
}

#endif /* RANDOM_SEED_H */
