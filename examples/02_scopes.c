/* 02: event tensors by hand, and what a scope costs.

   Example 01 left events, counts and scopes to a plan. Here there is neither a graph nor a plan, only
   fleet_device.h in an ordinary persistent kernel: every workgroup owns a strip of a ring of cells and steps it in time. A step
   of a strip needs the edges of both neighbours from the step before; every fourth step all strips meet to
   form a sum that drives the next steps. The same kernel runs twice:

     wide     all events at device scope, one counter each: every arrival is a release
     narrow   neighbours on one chiplet at chiplet scope, which needs no release; at meetings the workgroups
              of a chiplet count among themselves first, and one of them releases for all

   A release writes the chiplet's L2 back where L2s are private (MI300X); the kernel counts them.

   A workgroup chooses its strip at run time, by the chiplet on which it runs, so that neighbours share a chiplet
   wherever the hardware has placed them. */
#define FLEET_IMPLEMENTATION
#include "fleet_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STRIPS 32 /* workgroups */
#define THREADS 128
#define STRIP 256 /* cells; whole cache lines */
#define CELLS (STRIPS * STRIP)
#define STEPS 24
#define MEET_EVERY 4
#define MEETINGS (STEPS / MEET_EVERY)

enum { LEFT, RIGHT };
enum { AT_START, AT_EDGES, AT_MEETINGS, KINDS };

FLEET_EVENT_TENSOR2(edge_ready, strips, sides)
FLEET_EVENT_TENSOR1(gathering, places)

typedef struct ring {                /* the kernel's one parameter */
    uint32_t *cells;                 /* [2][CELLS]: a step reads one half and writes the other */
    uint32_t *sums;                  /* [2][STRIPS], likewise for meetings */
    uint32_t *population, *releases; /* [FLEET_MAX_CHIPLETS], [KINDS] */
    edge_ready ready;                /* one arrival: the strip's workgroup */
    gathering start, meeting;        /* STRIPS arrivals */
    uint32_t narrow;
} ring;

FLEET_DEVICE int32_t notify_edge(const ring *r, uint32_t strip, uint32_t side, uint32_t together,
                                 uint32_t step)
{
    fleet_event e = edge_ready_at(&r->ready, strip, side);
    return together ? fleet_notify_chiplet(FLEET_BLOCK, e, step)
                    : fleet_notify_device(FLEET_BLOCK, e, step);
}

FLEET_DEVICE fleet_status wait_edge(const ring *r, uint32_t strip, uint32_t side, uint32_t together,
                                    uint32_t step)
{
    fleet_event e = edge_ready_at(&r->ready, strip, side);
    return together ? fleet_wait_chiplet(FLEET_BLOCK, e, step)
                    : fleet_wait_device(FLEET_BLOCK, e, step);
}

FLEET_GLOBAL(THREADS) void step_ring(ring r)
{
    const uint32_t thread = fleet_thread_id(), threads = fleet_thread_count();
    const uint32_t chiplet = fleet_chiplet_id();
    uint32_t strip, drive = 0;
    int32_t edges = 0, meetings = 0, start; /* releases */
    FLEET_LDS(uint32_t, rank, 1);
    FLEET_LDS(uint32_t, part, THREADS);

    /* The workgroup gets a rank on its chiplet and, when all workgroups have one, a strip. */
    if (thread == 0) *rank = fleet_add_relaxed_device(r.population + chiplet, 1);
    start = fleet_notify_device(FLEET_BLOCK, gathering_at(&r.start, 0), 1);
    if (fleet_wait_device(FLEET_BLOCK, gathering_at(&r.start, 0), 1)) return;
    strip = *rank;
    for (uint32_t c = 0; c < chiplet; c++) strip += fleet_load_relaxed_device(r.population + c);

    /* How many workgroups this chiplet has: its strips are neighbours. */
    const uint32_t here = fleet_load_relaxed_device(r.population + chiplet);
    const uint32_t left = (strip + STRIPS - 1) % STRIPS, right = (strip + 1) % STRIPS;
    const uint32_t with_left = r.narrow && (*rank > 0 || here == STRIPS);
    const uint32_t with_right = r.narrow && (*rank + 1 < here || here == STRIPS);
    fleet_event meeting = gathering_at(&r.meeting, 0);
    if (r.narrow) meeting.share = here; /* arrivals on this chiplet: they may differ */

    for (uint32_t step = 1; step <= STEPS; step++) {
        const uint32_t *from = r.cells + (step + 1) % 2 * CELLS;
        uint32_t *to = r.cells + step % 2 * CELLS;

        /* The neighbours have done the step before (step 0 is complete), so their edges may be read,
           and they have read what is overwritten now. */
        if (wait_edge(&r, left, RIGHT, with_left, step - 1) ||
            wait_edge(&r, right, LEFT, with_right, step - 1))
            return;
        part[thread] = 0;
        for (uint32_t i = thread; i < STRIP; i += threads) {
            uint32_t c = strip * STRIP + i;
            to[c] = from[(c + CELLS - 1) % CELLS] + 2 * from[c] + from[(c + 1) % CELLS] + drive;
            part[thread] += to[c];
        }
        edges += notify_edge(&r, strip, LEFT, with_left, step);
        edges += notify_edge(&r, strip, RIGHT, with_right, step);

        if (step % MEET_EVERY == 0) {
            /* Two rows of sums: the workgroup that overwrites this one has met all that read it now. */
            uint32_t epoch = step / MEET_EVERY, *sums = r.sums + epoch % 2 * STRIPS;
            if (thread == 0) {
                uint32_t sum = 0;
                for (uint32_t k = 0; k < threads; k++) sum += part[k];
                sums[strip] = sum;
            }
            meetings += fleet_notify_device(FLEET_BLOCK, meeting, epoch);
            if (fleet_wait_device(FLEET_BLOCK, meeting, epoch)) return;
            drive = 0;
            for (uint32_t k = 0; k < STRIPS; k++) drive += sums[k];
        }
    }
    if (thread == 0) { /* notify returns the releases to the leader alone */
        fleet_add_relaxed_device(r.releases + AT_START, (uint32_t)start);
        fleet_add_relaxed_device(r.releases + AT_EDGES, (uint32_t)edges);
        fleet_add_relaxed_device(r.releases + AT_MEETINGS, (uint32_t)meetings);
    }
}
FLEET_THUNK1(step_ring, ring)

/* The reference: what the kernel computes, on one thread. */
static void reference(uint32_t *cells)
{
    uint32_t drive = 0;
    for (uint32_t step = 1; step <= STEPS; step++) {
        const uint32_t *from = cells + (step + 1) % 2 * CELLS;
        uint32_t *to = cells + step % 2 * CELLS, sum = 0;
        for (uint32_t c = 0; c < CELLS; c++) {
            to[c] = from[(c + CELLS - 1) % CELLS] + 2 * from[c] + from[(c + 1) % CELLS] + drive;
            sum += to[c];
        }
        if (step % MEET_EVERY == 0) drive = sum;
    }
}

/* All device memory of a run: one zeroed block, from which whole cache lines are taken. */
typedef struct arena {
    char *memory;
    size_t used;
} arena;

static uint32_t *take(arena *a, size_t bytes)
{
    size_t at = a->used;
    a->used +=
        (bytes + FLEET_CACHE_LINE_BYTES - 1) / FLEET_CACHE_LINE_BYTES * FLEET_CACHE_LINE_BYTES;
    return (uint32_t *)(void *)(a->memory + at);
}

static void lay_out(ring *r, arena *a)
{
    r->cells = take(a, 2 * CELLS * sizeof(uint32_t));
    r->sums = take(a, 2 * STRIPS * sizeof(uint32_t));
    r->population = take(a, FLEET_MAX_CHIPLETS * sizeof(uint32_t));
    r->releases = take(a, KINDS * sizeof(uint32_t));
    r->ready.events.words = take(a, edge_ready_bytes(&r->ready));
    r->start.events.words = take(a, gathering_bytes(&r->start));
    r->meeting.events.words = take(a, gathering_bytes(&r->meeting));
}

static ring describe(uint32_t narrow)
{
    ring r;
    memset(&r, 0, sizeof r);
    r.narrow = narrow;
    r.ready.strips = STRIPS, r.ready.sides = 2;
    r.ready.events.target = 1;
    r.start.places = r.meeting.places = 1;
    r.start.events.target = r.meeting.events.target = STRIPS;
    if (narrow) r.meeting.events.chiplets = FLEET_MAX_CHIPLETS; /* of any id */
    /* No wait lasts for ever: 10 s on NVIDIA and on the CPU, 100 s on AMD, by fleet_clock_ticks. */
    r.ready.events.watch.limit_ticks = 10000000000;
    r.start.events.watch = r.meeting.events.watch = r.ready.events.watch;
    return r;
}

/* Runs the kernel once and checks cells and counts. Returns the number of errors. */
static uint32_t run(uint32_t narrow, const uint32_t *start, const uint32_t *expected)
{
    static uint32_t cells[CELLS];
    uint32_t population[FLEET_MAX_CHIPLETS], releases[KINDS], chiplets = 0, errors = 0;
    fleet_kernel_desc launch = fleet_kernel_desc_default();
    fleet_host_stats stats;
    arena a;
    ring r = describe(narrow);
    void *memory = NULL, *args[1];

    a.memory = NULL, a.used = 0;
    lay_out(&r, &a); /* finds the size */
    memset(&stats, 0, sizeof stats);
    launch.blocks = STRIPS;
    launch.threads = THREADS;
    launch.cooperative = 1; /* workgroups wait for each other: all must be resident */
    launch.host.chiplets = 3;
    launch.host.stats = &stats;
    args[0] = &r;
    if (fleet_device_alloc(&memory, a.used)) return 1;
    if (fleet_device_clear(memory, a.used, launch.stream)) errors++;
    a.memory = (char *)memory, a.used = 0;
    lay_out(&r, &a);
    if (errors || fleet_to_device(r.cells, start, sizeof cells, launch.stream) ||
        fleet_kernel_launch(FLEET_KERNEL_OF(step_ring), args, &launch) ||
        fleet_to_host(cells, r.cells + STEPS % 2 * CELLS, sizeof cells, launch.stream) ||
        fleet_to_host(population, r.population, sizeof population, launch.stream) ||
        fleet_to_host(releases, r.releases, sizeof releases, launch.stream)) {
        fleet_device_free(memory);
        return 1;
    }
    fleet_device_free(memory);

    for (uint32_t c = 0; c < CELLS; c++) errors += cells[c] != expected[c];
    for (uint32_t c = 0; c < FLEET_MAX_CHIPLETS; c++) chiplets += population[c] != 0;
    printf("%-6s %u workgroups on %u chiplets: %4u releases for %u edges, %3u for %u meetings\n",
           narrow ? "narrow" : "wide", STRIPS, chiplets, releases[AT_EDGES], 2 * STRIPS * STEPS,
           releases[AT_MEETINGS], MEETINGS);

    /* Wide: every arrival. Narrow: only between chiplets, and one for each chiplet at a meeting. */
    uint32_t borders = narrow ? (chiplets > 1 ? chiplets : 0) : STRIPS;
    errors += releases[AT_EDGES] != 2 * borders * STEPS;
    errors += releases[AT_MEETINGS] != (narrow ? chiplets : STRIPS) * MEETINGS;
#if defined(FLEET_HOST)
    errors += stats.releases != releases[AT_START] + releases[AT_EDGES] + releases[AT_MEETINGS];
#endif
    return errors;
}

int main(void)
{
    static uint32_t start[CELLS], expected[2 * CELLS];
    for (uint32_t c = 0; c < CELLS; c++) start[c] = expected[c] = c * 2654435761u >> 7;
    reference(expected);
    uint32_t errors = run(0, start, expected + STEPS % 2 * CELLS);
    errors += run(1, start, expected + STEPS % 2 * CELLS);
    if (errors)
        printf("wrong: %u cells or counts\n", errors);
    else
        printf("ok: %u cells through %u steps, twice\n", CELLS, STEPS);
    return errors != 0;
}
