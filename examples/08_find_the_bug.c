/* 08_find_the_bug: three kernels that lack one thing each, and the tool that says which.

   New here: the memory model of the CPU (tools/memory_model.c). On a GPU a missing wait, a scope that is too narrow or
   a missing drain may give right results for weeks. The model runs the same kernel, on any CPU, on caches that only the
   kit's own drains, releases and acquires keep coherent, and reports the line that reads what it may not rely on, the
   line that stored it, where both ran, and which scope would be enough. examples/run.sh compiles this example so
   (tools/memory_model.sh); compiled as the others are, it runs only the kernel that is right.

   Each workgroup stores a row, and then copies the row of its left neighbour, which runs on another chiplet. */
#define FLEET_IMPLEMENTATION
#include "fleet_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 8u
#define CHIPLETS 4u /* of the CPU */
#define THREADS 64u
#define COLUMNS 256u
#define SEEDS 20u

FLEET_EVENT_TENSOR1(row_done, rows)

typedef struct neighbours {
    uint32_t *rows, *copies; /* [BLOCKS][COLUMNS] */
    row_done done;           /* one arrival: the row's workgroup */
    uint32_t *arrived;       /* [BLOCKS][32]: the last kernel counts for itself */
} neighbours;

FLEET_DEVICE uint32_t row_value(uint32_t row, uint32_t column)
{
    return row * 1000 + column + 1;
}
FLEET_DEVICE uint32_t left_of(uint32_t block)
{
    return (block + fleet_block_count() - 1) % fleet_block_count();
}

FLEET_GLOBAL(THREADS) void nothing_missing(neighbours n)
{
    const uint32_t me = fleet_block_id(), left = left_of(me), threads = fleet_thread_count();
    for (uint32_t i = fleet_thread_id(); i < COLUMNS; i += threads)
        n.rows[me * COLUMNS + i] = row_value(me, i);
    fleet_notify_device(FLEET_BLOCK, row_done_at(&n.done, me), 1);
    if (fleet_wait_device(FLEET_BLOCK, row_done_at(&n.done, left), 1)) return;
    for (uint32_t i = fleet_thread_id(); i < COLUMNS; i += threads)
        n.copies[me * COLUMNS + i] = n.rows[left * COLUMNS + i];
}
FLEET_THUNK1(nothing_missing, neighbours)

FLEET_GLOBAL(THREADS) void missing_wait(neighbours n)
{
    const uint32_t me = fleet_block_id(), left = left_of(me), threads = fleet_thread_count();
    for (uint32_t i = fleet_thread_id(); i < COLUMNS; i += threads)
        n.rows[me * COLUMNS + i] = row_value(me, i); /* missing_wait: store */
    fleet_notify_device(FLEET_BLOCK, row_done_at(&n.done, me), 1);
    /* BUG: it does not wait for the neighbour. */
    for (uint32_t i = fleet_thread_id(); i < COLUMNS; i += threads)
        n.copies[me * COLUMNS + i] = n.rows[left * COLUMNS + i]; /* missing_wait: read */
}
FLEET_THUNK1(missing_wait, neighbours)

FLEET_GLOBAL(THREADS) void narrow_scope(neighbours n)
{
    const uint32_t me = fleet_block_id(), left = left_of(me), threads = fleet_thread_count();
    for (uint32_t i = fleet_thread_id(); i < COLUMNS; i += threads)
        n.rows[me * COLUMNS + i] = row_value(me, i); /* narrow_scope: store */
    /* BUG: the neighbour runs on another chiplet. */
    fleet_notify_chiplet(FLEET_BLOCK, row_done_at(&n.done, me), 1);
    if (fleet_wait_chiplet(FLEET_BLOCK, row_done_at(&n.done, left), 1)) return;
    for (uint32_t i = fleet_thread_id(); i < COLUMNS; i += threads)
        n.copies[me * COLUMNS + i] = n.rows[left * COLUMNS + i]; /* narrow_scope: read */
}
FLEET_THUNK1(narrow_scope, neighbours)

FLEET_GLOBAL(THREADS) void missing_drain(neighbours n)
{
    const uint32_t me = fleet_block_id(), left = left_of(me), threads = fleet_thread_count();
    uint32_t tries = 0;
    for (uint32_t i = fleet_thread_id(); i < COLUMNS; i += threads)
        n.rows[me * COLUMNS + i] = row_value(me, i); /* missing_drain: store */
    /* BUG: a barrier does not wait until the other waves' stores have arrived, and thread 0 drains only its own. */
    fleet_block_barrier();
    if (fleet_thread_id() == 0) fleet_add_acq_rel_device(n.arrived + me * 32, 1);
    while (!fleet_load_acquire_device(n.arrived + left * 32))
        if (fleet_pause(&tries)) return;
    for (uint32_t i = fleet_thread_id(); i < COLUMNS; i += threads)
        n.copies[me * COLUMNS + i] = n.rows[left * COLUMNS + i]; /* missing_drain: read */
}
FLEET_THUNK1(missing_drain, neighbours)

static void *zeroed(size_t bytes)
{
    void *memory = NULL;
    if (fleet_device_alloc(&memory, bytes) || fleet_device_clear(memory, bytes, 0)) {
        printf("out of memory\n");
        exit(1);
    }
    return memory;
}

/* Runs the kernel from one seed; returns the findings. *wrong: elements that have wrong values. */
static uint64_t run(fleet_kernel kernel, uint64_t seed, uint32_t *wrong)
{
    static uint32_t copies[BLOCKS * COLUMNS];
    fleet_kernel_desc d = fleet_kernel_desc_default();
    fleet_host_stats stats;
    fleet_status status;
    neighbours n;
    void *args[1];
    memset(&stats, 0, sizeof stats);
    memset(&n, 0, sizeof n);
    n.done.rows = BLOCKS;
    n.done.events.target = 1;
    n.done.events.words = (uint32_t *)zeroed(row_done_bytes(&n.done));
    n.rows = (uint32_t *)zeroed(sizeof copies);
    n.copies = (uint32_t *)zeroed(sizeof copies);
    n.arrived = (uint32_t *)zeroed(BLOCKS * 32 * sizeof(uint32_t));
    d.blocks = BLOCKS, d.threads = THREADS, d.cooperative = 1;
    d.host.engine = FLEET_ENGINE_DETERMINISTIC;
    d.host.seed = seed;
    d.host.waves = 2;
    d.host.chiplets = CHIPLETS;
#if defined(FLEET_MEMORY_MODEL)
    d.host.memory_model = 1;
#endif
    d.host.stats = &stats;
    args[0] = &n;
    status = fleet_kernel_launch(kernel, args, &d);
    if (!status) status = fleet_to_host(copies, n.copies, sizeof copies, 0);
    if (status) {
        printf("launch: %s\n", fleet_status_name(status));
        exit(1);
    }
    *wrong = 0;
    for (uint32_t b = 0; b < BLOCKS; b++)
        for (uint32_t i = 0; i < COLUMNS; i++)
            *wrong += copies[b * COLUMNS + i] != (b + BLOCKS - 1) % BLOCKS * 1000 + i + 1;
    fleet_device_free(n.done.events.words);
    fleet_device_free(n.rows);
    fleet_device_free(n.copies);
    fleet_device_free(n.arrived);
    return stats.findings;
}

int main(void)
{
    uint32_t wrong;
#if defined(FLEET_MEMORY_MODEL)
    const struct {
        const char *name;
        fleet_kernel kernel;
    } kernels[3] = {{"missing_wait", FLEET_KERNEL_OF(missing_wait)},
                    {"narrow_scope", FLEET_KERNEL_OF(narrow_scope)},
                    {"missing_drain", FLEET_KERNEL_OF(missing_drain)}};
    for (uint32_t k = 0; k < 3; k++) {
        uint64_t findings = 0, seed = 0;
        fprintf(stderr, "-- %s\n", kernels[k].name);
        while (!findings && seed < SEEDS) findings = run(kernels[k].kernel, ++seed, &wrong);
        fprintf(stderr, "-- in the run of seed %u %u of %u elements are wrong\n", (uint32_t)seed,
                wrong, BLOCKS * COLUMNS);
        if (!findings) {
            printf("wrong: no report for %s\n", kernels[k].name);
            return 1;
        }
    }
    for (uint64_t seed = 1; seed <= SEEDS; seed++)
        if (run(FLEET_KERNEL_OF(nothing_missing), seed, &wrong) || wrong) {
            printf("wrong: a report for the kernel that is right, or %u wrong elements\n", wrong);
            return 1;
        }
    printf("ok: a report for each of three bugs, and none for the kernel without\n");
#else
    run(FLEET_KERNEL_OF(nothing_missing), 1, &wrong);
    if (wrong) {
        printf("wrong: %u elements\n", wrong);
        return 1;
    }
    printf("ok: the kernel without a bug; for the others see tools/memory_model.sh\n");
#endif
    return 0;
}
