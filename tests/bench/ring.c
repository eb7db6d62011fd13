/* Pops per second of the ready ring, from one popper to many, against a ring whose poppers compare and swap and
   against one atomic counter, which hands out numbers and cannot run empty; and the way from a push to the idle
   popper that gets it.

   nvcc -x cu -arch=sm_90 -std=c++17 -O3 -I. tests/bench/ring.c -o ring && ./ring
   On the CPU it measures the threads engine, which says nothing of a GPU. */
#include "bench.h"

typedef enum kind { READY_RING, CAS_RING, ONE_ATOMIC } kind;

typedef struct job {
    fleeti_ring *ring;
    uint32_t capacity, entries;
    uint32_t kind;
} job;

FLEET_GLOBAL(64) void fill(job j)
{
    for (uint32_t i = fleet_block_id() * fleet_thread_count() + fleet_thread_id(); i < j.entries;
         i += fleet_block_count() * fleet_thread_count())
        fleeti_ring_slots(j.ring)[i] = (uint64_t)(j.capacity + i + 1) << 32 | i;
    if (fleet_block_id() == 0 && fleet_thread_id() == 0) {
        fleet_store_relaxed_device(&j.ring->head.word, j.capacity);
        fleet_store_relaxed_device(&j.ring->tail.word, j.capacity + j.entries);
        fleet_store_relaxed_device(&j.ring->available.word, j.entries);
    }
}
FLEET_THUNK1(fill, job)

FLEET_DEVICE uint32_t pop_by_cas(const job *j, uint32_t *value)
{
    for (;;) {
        uint32_t head = fleet_load_relaxed_device(&j->ring->head.word);
        if (head == fleet_load_relaxed_device(&j->ring->tail.word)) return 0;
        if (fleet_cas_relaxed_device(&j->ring->head.word, head, head + 1) == head) {
            *value = (uint32_t)fleeti_poll64_device(
                &fleeti_ring_slots(j->ring)[head & (j->capacity - 1)]);
            return 1;
        }
    }
}
FLEET_GLOBAL(64) void drain_all(job j, uint32_t *sums)
{
    uint32_t sum = 0, value = 0, ticket, got = 1;
    fleet_status status = FLEET_OK;
    fleet_watch watch;
    watch.stop = NULL, watch.host_abort = NULL, watch.limit_ticks = 0;
    watch.idle = NULL, watch.peers = NULL;
    if (fleet_thread_id() != 0) return;
    while (got && !status) {
        if (j.kind == READY_RING) {
            got = fleeti_ring_reserve(j.ring, 1, got, &ticket);
            if (got) status = fleeti_ring_take(j.ring, j.capacity - 1, ticket, &watch, &value);
        } else if (j.kind == CAS_RING) {
            got = pop_by_cas(&j, &value);
        } else {
            value = fleet_add_relaxed_device(&j.ring->head.word, 1) - j.capacity;
            got = value < j.entries;
        }
        if (got) sum += value;
    }
    fleet_add_relaxed_device(sums, sum);
}
FLEET_THUNK2(drain_all, job, uint32_t *)

/* Two workgroups hand one entry to and fro. */
FLEET_GLOBAL(64) void to_and_fro(job a, job b, uint32_t n)
{
    const uint32_t second = fleet_block_id();
    fleeti_ring *from = second ? a.ring : b.ring, *to = second ? b.ring : a.ring;
    fleet_watch watch;
    fleet_status status = FLEET_OK;
    watch.stop = NULL, watch.host_abort = NULL, watch.limit_ticks = 0;
    watch.idle = NULL, watch.peers = NULL;
    if (!second) fleeti_ring_push(to, a.capacity - 1, fleet_lane() == 0, 0);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t got = 0, value, ticket, tries = 0;
        while (!got) {
            if (fleet_lane() == 0) {
                got = fleeti_ring_reserve(from, 1, 0, &ticket);
                if (got) status = fleeti_ring_take(from, a.capacity - 1, ticket, &watch, &value);
            }
            got = fleeti_first(got);
            if (status || (!got && fleet_pause(&tries))) return;
        }
        if (!second && i + 1 == n) return;
        fleeti_ring_push(to, a.capacity - 1, fleet_lane() == 0, 0);
    }
}
FLEET_THUNK3(to_and_fro, job, job, uint32_t)

static double pops_us(job j, uint32_t poppers, uint32_t *sums)
{
    fleet_kernel_desc d = fleet_kernel_desc_default();
    double best = 0;
    void *args[2];
    args[0] = &j, args[1] = &sums;
    d.threads = 32;
    for (int i = 0; i < 5; i++) {
        timer timer;
        uint32_t sum = 0;
        double us;
        d.blocks = 64;
        CHECKED(fleet_device_clear(sums, 4, 0));
        CHECKED(fleet_kernel_launch(FLEET_KERNEL_OF(fill), args, &d));
        CHECKED(fleet_stream_wait(0));
        d.blocks = poppers;
        timer_start(&timer);
        CHECKED(fleet_kernel_launch(FLEET_KERNEL_OF(drain_all), args, &d));
        us = timer_stop_us(&timer);
        CHECKED(fleet_to_host(&sum, sums, 4, 0));
        if (sum != (uint32_t)((uint64_t)j.entries * (j.entries - 1) / 2)) {
            fprintf(stderr, "an entry is lost or doubled\n");
            exit(1);
        }
        if (i == 0 || us < best) best = us;
    }
    return best;
}

static void run_to_and_fro(uint32_t n, void *context)
{
    job *j = (job *)context;
    fleet_kernel_desc d = fleet_kernel_desc_default();
    void *args[3];
    args[0] = &j[0], args[1] = &j[1], args[2] = &n;
    d.threads = 32;
    d.blocks = 2;
    CHECKED(fleet_kernel_launch(FLEET_KERNEL_OF(to_and_fro), args, &d));
}

static job new_job(uint32_t capacity)
{
    job j;
    void *memory;
    const size_t bytes = sizeof(fleeti_ring) + (size_t)capacity * 8;
    CHECKED(fleet_device_alloc(&memory, bytes));
    CHECKED(fleet_device_clear(memory, bytes, 0));
    j.ring = (fleeti_ring *)memory;
    j.capacity = capacity, j.entries = 0, j.kind = READY_RING;
    return j;
}

int main(void)
{
    static const uint32_t poppers[] = {1, 8, 64, 132, 512};
    fleet_topology topology;
    uint32_t workers = 0;
    job j = new_job(1u << 18), pair[2];
    void *sums;
    CHECKED(fleet_topology_query(&topology));
    for (uint32_t k = 0; k < topology.chiplets; k++) workers += topology.units[k];
    printf("%s: %u workgroups on %u chiplets\n", topology.name, workers, topology.chiplets);
    CHECKED(fleet_device_alloc(&sums, 4));
    for (uint32_t i = 0; i < sizeof poppers / sizeof poppers[0]; i++) {
        double us[3];
        char name[64];
        j.entries = poppers[i] < 64 ? 8192 * poppers[i] : 1u << 18;
        for (j.kind = READY_RING; j.kind <= ONE_ATOMIC; j.kind++)
            us[j.kind] = pops_us(j, poppers[i], (uint32_t *)sums);
        snprintf(name, sizeof name, "ready ring, %u poppers", poppers[i]);
        line(name, j.entries / us[READY_RING], "M/s", "compare and swap", j.entries / us[CAS_RING]);
        line("  the same", j.entries / us[READY_RING], "M/s", "one atomic",
             j.entries / us[ONE_ATOMIC]);
    }
    pair[0] = new_job(4), pair[1] = new_job(4);
    for (int i = 0; i < 2; i++) {
        fleet_kernel_desc d = fleet_kernel_desc_default();
        void *args[1];
        args[0] = &pair[i];
        d.threads = 64;
        CHECKED(fleet_kernel_launch(FLEET_KERNEL_OF(fill), args, &d));
    }
    line("push to idle popper", per_unit_us(run_to_and_fro, 500, pair) / 2 * 1e3, "ns", "", 0);
    fleet_device_free(sums);
    fleet_device_free(j.ring);
    fleet_device_free(pair[0].ring);
    fleet_device_free(pair[1].ring);
    return 0;
}
