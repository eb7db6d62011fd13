/* The ready ring by itself: many workgroups pop and push on rings that are just large enough, over and over. Each
   entry once, nothing lost, and what the pusher saw is seen by the worker that pops. */
// run: asan engine=both
// run: tsan -DFEW
#include "settings.h"

/* A round is a tree: entry i is pushed by entry (i - 1) / fan, and entry 0 by the last one of the round before. */
typedef struct ring_job {
    fleeti_ring *ring;
    uint32_t capacity, entries, fan, rounds;
    uint32_t *popped; /* [entries]: plain words, handed on through the ring */
    uint32_t *done;   /* entries popped, a line of its own; then: 1 when all is over */
    uint32_t *wrong;
} ring_job;

/* That push together. */
FLEET_DEVICE uint32_t lanes(void)
{
    return fleet_wave_size() < 32 ? fleet_wave_size() : 32;
}

FLEET_GLOBAL(64) void churn(ring_job job)
{
    const uint32_t mask = job.capacity - 1;
    fleet_watch watch;
    uint32_t tries = 0, eager = 0;
    watch.stop = NULL, watch.host_abort = NULL, watch.limit_ticks = 0;
    watch.idle = NULL, watch.peers = NULL;
    for (;;) {
        fleet_status status = FLEET_OK;
        uint32_t got = 0, entry = 0, ticket = 0, round = 0, more = 0, first, last;
        if (fleet_lane() == 0) {
            got = fleeti_ring_reserve(job.ring, 1, eager, &ticket);
            if (got) status = fleeti_ring_take(job.ring, mask, ticket, &watch, &entry);
            if (!got && fleet_load_relaxed_device(job.done + 32)) status = FLEET_ERROR_ABORTED;
        }
        if (fleeti_any((uint32_t)status)) return;
        got = fleeti_first(got);
        entry = fleeti_first(entry);
        eager = got;
        if (!got) {
            if (fleeti_any((uint32_t)fleet_pause(&tries))) return;
            continue;
        }
        tries = 0;
        fleeti_invalidate(FLEET_SCOPE_DEVICE);
        if (fleet_lane() == 0) {
            round = job.popped[entry]++;
            /* The parent was popped once more than this one, in its round. */
            if (entry && job.popped[(entry - 1) / job.fan] != round + 1)
                fleet_add_relaxed_device(job.wrong, 1);
        }
        /* What this one wrote, before its children and before the last of the round. */
        more = fleet_lane() == 0 ? fleet_add_acq_rel_device(job.done, 1) + 1 : 0;
        more = fleeti_first(more);
        first = entry * job.fan + 1;
        last = first + job.fan < job.entries ? first + job.fan : job.entries;
        for (; first < last; first += lanes())
            fleeti_ring_push(job.ring, mask, fleet_lane() < lanes() && first + fleet_lane() < last,
                             first + fleet_lane());
        if (more == job.entries * job.rounds) {
            if (fleet_lane() == 0) fleet_store_relaxed_device(job.done + 32, 1);
        } else if (more % job.entries == 0) {
            fleeti_ring_push(job.ring, mask, fleet_lane() == 0, 0);
        }
    }
}
FLEET_THUNK1(churn, ring_job)

FLEET_GLOBAL(64) void begin(ring_job job, uint32_t ticket)
{
    if (fleet_wave_id() != 0) return;
    if (fleet_lane() == 0) {
        fleet_store_relaxed_device(&job.ring->head.word, ticket);
        fleet_store_relaxed_device(&job.ring->tail.word, ticket);
    }
    fleeti_drain();
    fleet_wave_barrier();
    fleeti_ring_push(job.ring, job.capacity - 1, fleet_lane() == 0, 0);
}
FLEET_THUNK2(begin, ring_job, uint32_t)

static void churn_on(test_run *t, const setting *s, uint32_t blocks, uint32_t capacity,
                     uint32_t fan, uint32_t rounds, uint32_t ticket)
{
    ring_job job;
    fleet_kernel_desc d = fleet_kernel_desc_default();
    uint32_t words[64], *popped = (uint32_t *)calloc(capacity, 4), i;
    fleeti_ring ring;
    void *memory[4], *args[2];
    job.capacity = job.entries = capacity, job.fan = fan, job.rounds = rounds;
    CHECK_STATUS(fleet_device_alloc(&memory[0], sizeof(fleeti_ring) + capacity * 8), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&memory[1], capacity * 4), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&memory[2], 256), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&memory[3], 4), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(memory[0], sizeof(fleeti_ring) + capacity * 8, 0), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(memory[1], capacity * 4, 0), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(memory[2], 256, 0), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(memory[3], 4, 0), FLEET_OK);
    job.ring = (fleeti_ring *)memory[0], job.popped = (uint32_t *)memory[1];
    job.done = (uint32_t *)memory[2], job.wrong = (uint32_t *)memory[3];
    d.host.engine = s->engine;
    d.host.seed = s->seed;
    d.host.stack_bytes = 65536;
    d.threads = 64;
    args[0] = &job, args[1] = &ticket;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(begin), args, &d), FLEET_OK);
    d.blocks = blocks;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(churn), args, &d), FLEET_OK);
    CHECK_STATUS(fleet_to_host(words, job.done, sizeof words, 0), FLEET_OK);
    CHECK_STATUS(fleet_to_host(popped, job.popped, capacity * 4, 0), FLEET_OK);
    CHECK_STATUS(fleet_to_host(&ring, job.ring, sizeof ring, 0), FLEET_OK);
    CHECK_INT(words[0], capacity * rounds);
    CHECK_STATUS(fleet_to_host(words, job.wrong, 4, 0), FLEET_OK);
    CHECK_INT(words[0], 0);
    for (i = 0; i < capacity; i++) CHECK_INT(popped[i], rounds);
    CHECK_INT(ring.available.word, 0);
    CHECK_INT(ring.head.word, ticket + capacity * rounds);
    CHECK_INT(ring.tail.word, ticket + capacity * rounds);
    for (i = 0; i < 4; i++) fleet_device_free(memory[i]);
    free(popped);
}

#if defined(FEW) || defined(FLEET_HIP) /* which may be simulated */
#define ROUNDS 20u
#else
#define ROUNDS 1000u
#endif

/* Entries become ready one by one, in pairs, and all at once; rings from one slot on; tickets that wrap. */
static void exactly_once(test_run *t)
{
    fleet_host_engine engine, last;
    setting s;
    uint32_t seed;
    memset(&s, 0, sizeof s);
    setting_engines(&engine, &last);
    for (; engine <= last; engine = (fleet_host_engine)(engine + 1))
        for (seed = 1; seed <= 4 && !t->failed_here; seed++) {
            s.engine = engine;
            s.seed = seed;
            churn_on(t, &s, 7, 1, 1, ROUNDS, 1);
            churn_on(t, &s, 7, 2, 1, ROUNDS, 2);
            churn_on(t, &s, 7, 8, 2, ROUNDS, 8);
            churn_on(t, &s, 7, 32, 31, ROUNDS, 0u - 32u * 3u);
            churn_on(t, &s, 7, 64, 3, ROUNDS, 0u - 100u);
        }
}

/* 64 poppers. FLEET_DEEP: tens of millions of entries. */
static void stress(test_run *t)
{
    fleet_host_engine engine, last;
    setting s;
#if defined(FLEET_HOST) || defined(FLEET_HIP) || defined(FEW)
    uint32_t rounds = deep() ? 400000 : ROUNDS;
#else
    uint32_t rounds = deep() ? 1000000 : 20 * ROUNDS;
#endif
    memset(&s, 0, sizeof s);
    s.seed = 1;
    setting_engines(&engine, &last);
    for (; engine <= last && !t->failed_here; engine = (fleet_host_engine)(engine + 1)) {
        s.engine = engine;
        churn_on(t, &s, 64, 64, 4, rounds / 2, 64);
        churn_on(t, &s, 64, 4, 3, rounds, 4);
    }
}

static void all(test_run *t)
{
    TEST(exactly_once);
    TEST(stress);
}
TEST_MAIN(all)
