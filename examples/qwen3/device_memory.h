/* device_memory.h: allocations of device memory that are freed together, and how much is free. */
#ifndef QWEN3_DEVICE_MEMORY_H
#define QWEN3_DEVICE_MEMORY_H

#include "platform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#define ERROR_BYTES 512u

/* Exit status of the program. */
enum {
    RUN_FAILED = 1,
    RUN_REFUSED = 2,      /* a file or an argument is wrong */
    RUN_INTERRUPTED = 130 /* by Ctrl-C, as shells have it */
};

typedef struct device_memory { /* allocations that are freed together */
    void **block;
    uint32_t n;
    /* 1: only adds up the bytes; allocates and writes nothing */
    uint32_t counts;
    uint64_t bytes;
    char *error;
} device_memory;

/* Null and an error if there is no memory; null if it only counts. */
static void *memory_get(device_memory *m, const char *what, uint64_t bytes)
{
    void *block = NULL, **blocks;
    if (m->error[0]) return NULL;
    if (m->counts) {
        m->bytes += bytes;
        return NULL;
    }
    if (m->n % 64 == 0) {
        blocks = (void **)realloc((void *)m->block, (m->n + 64) * sizeof *blocks);
        if (blocks) m->block = blocks;
    } else {
        blocks = m->block;
    }
    if (!blocks || fleet_device_alloc(&block, bytes ? bytes : 16)) {
        snprintf(m->error, ERROR_BYTES, "%s: no %.1f MB of device memory left after %.1f MB", what,
                 (double)bytes / 1e6, (double)m->bytes / 1e6);
        return NULL;
    }
    m->block[m->n++] = block;
    m->bytes += bytes;
    return block;
}
static void *memory_copy(device_memory *m, const char *what, const void *from, uint64_t bytes)
{
    void *block = memory_get(m, what, bytes);
    if (block && fleet_to_device(block, from, bytes, NULL))
        snprintf(m->error, ERROR_BYTES, "%s: cannot be copied to the device", what);
    return block;
}
static void *memory_zeros(device_memory *m, const char *what, uint64_t bytes)
{
    void *block = memory_get(m, what, bytes);
    if (block && fleet_device_clear(block, bytes, NULL))
        snprintf(m->error, ERROR_BYTES, "%s: cannot be cleared", what);
    return block;
}
static void memory_free(device_memory *m)
{
    for (uint32_t i = 0; i < m->n; i++) fleet_device_free(m->block[i]);
    free((void *)m->block);
    m->block = NULL, m->n = 0;
}

static uint32_t device_workers(void)
{
    fleet_topology t;
    uint32_t n = 0;
#if defined(FLEET_HOST)
    return fleet_host_machine().workers;
#endif
    if (fleet_topology_query(&t)) return 1;
    for (uint32_t i = 0; i < t.chiplets; i++) n += t.units[i];
    return n;
}

/* Bytes of device memory that are free. */
static inline uint64_t memory_left(void)
{
#if defined(FLEET_HOST)
    return fleet_host_machine().memory_bytes;
#else
    size_t left = 0, all = 0;
#if defined(FLEET_CUDA)
    if (cudaMemGetInfo(&left, &all) != cudaSuccess) return UINT64_MAX;
#else
    if (hipMemGetInfo(&left, &all) != hipSuccess) return UINT64_MAX;
#endif
    return left;
#endif
}

#endif /* QWEN3_DEVICE_MEMORY_H */
