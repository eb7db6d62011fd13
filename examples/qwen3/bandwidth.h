/* bandwidth.h: measures the bandwidth of a plain read of device memory, as a bound for decoding. */
#ifndef QWEN3_BANDWIDTH_H
#define QWEN3_BANDWIDTH_H

#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif

#include "weights.h"

#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Reads memory: each workgroup a contiguous part. */
#define READERS 8u /* workgroups per worker on GPUs */
FLEET_GLOBAL(COPY_THREADS)
void read_all(const fleet_quad *from, uint64_t quads, uint32_t *sink)
{
    const uint64_t blocks = fleet_block_count(), first = quads * fleet_block_id() / blocks,
                   end = quads * (fleet_block_id() + 1) / blocks;
    const uint32_t threads = fleet_thread_count();
    uint32_t sum[4] = {0, 0, 0, 0};
#if defined(FLEET_CUDA) || defined(FLEET_HIP)
#pragma unroll 8
#endif
    for (uint64_t i = first + fleet_thread_id(); i < end; i += threads) {
        const fleet_quad quad = from[i];
        for (uint32_t j = 0; j < 4; j++) sum[j] ^= quad.word[j];
    }
    if ((sum[0] ^ sum[1] ^ sum[2] ^ sum[3]) == 0x2545f491u) *sink = 1; /* keeps the loads */
}
FLEET_THUNK3(read_all, const fleet_quad *, uint64_t, uint32_t *)

/* Bytes a second: the median of several reads, since TPOT is a mean of several steps. 0: it cannot
   be measured. */
#define READS 9
static double read_bandwidth(void)
{
    const uint64_t words = 1u << 27; /* of bf16: 256 MB, more than caches hold */
#if defined(FLEET_HOST)
    const uint64_t bytes = words * 2;
    const uint32_t readers = device_workers();
#else
    const uint64_t bytes = words * 16; /* 2 GB, so that the launch does not count */
    const uint32_t readers = device_workers() * READERS;
#endif
    fleet_kernel_desc desc = fleet_kernel_desc_default();
    void *memory = NULL, *sink = NULL, *args[3], *fill[4];
    uint64_t quads = bytes / 16, all = bytes / 2, seed = 1;
    double rate[READS];
    uint32_t n = 0;
    float scale = 1;
    if (fleet_device_alloc(&memory, bytes) || fleet_device_alloc(&sink, 4)) {
        fleet_device_free(memory);
        return 0;
    }
    args[0] = &memory, args[1] = &quads, args[2] = &sink;
    fill[0] = &memory, fill[1] = &all, fill[2] = &seed, fill[3] = &scale;
    desc.blocks = readers, desc.threads = COPY_THREADS;
    if (!fleet_kernel_launch(FLEET_KERNEL_OF(fill_random), fill, &desc) && !fleet_stream_wait(NULL))
        for (n = 0; n < READS; n++) {
            const double start = now();
            uint32_t at = n;
            if (fleet_kernel_launch(FLEET_KERNEL_OF(read_all), args, &desc) ||
                fleet_stream_wait(NULL))
                break;
            rate[n] = (double)bytes / (now() - start);
            for (; at && rate[at] < rate[at - 1]; at--) {
                const double faster = rate[at - 1];
                rate[at - 1] = rate[at], rate[at] = faster;
            }
        }
    fleet_device_free(memory);
    fleet_device_free(sink);
    return n == READS ? rate[READS / 2] : 0;
}

#endif /* QWEN3_BANDWIDTH_H */
