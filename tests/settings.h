/* What the run-time tests share: the settings in which they run (topology, schedule, placement, engine), and
   running a launch next to the test. Reads as C11, C++17, HIP and CUDA. */
#ifndef FLEET_TEST_SETTINGS_H
#define FLEET_TEST_SETTINGS_H

#include "implementation.h"
#include "fleet_sched.h"
#include "test.h"
#include "plan/walk.h"

#include <stdlib.h>
#include <time.h>

#if defined(FLEET_HOST)
#include <pthread.h>
#define TEST_THREADS 1u /* threads of a workgroup on a GPU; a wave of the CPU has one lane */
#define CELL_WORDS 6u
#else
#define TEST_THREADS 128u
#define CELL_WORDS 128u
#endif

typedef struct setting {
    fleet_topology topology;
    fleet_schedule schedule;
    uint32_t workers; /* per chiplet, 0: all units */
    uint32_t levels, unfused, unaware, early;
    uint32_t mixed; /* a bit for each grid: DYNAMIC whatever the plan's schedule is; 0: none */
    uint32_t ranks; /* of the plan; 0: 1 */
    const fleet_peers *peers; /* null: one launch runs all ranks */
    fleet_placement placement;
    uint64_t seed;
    uint32_t waves;
    uint32_t start; /* FLEETI_TEST_START */
    fleet_host_engine engine;
} setting;

/* Engines to run in, first and last. ThreadSanitizer has the first one: it is slow. */
static inline void setting_engines(fleet_host_engine *first, fleet_host_engine *last)
{
    const char *name = getenv("FLEET_TEST_ENGINE");
    *first = *last = FLEET_ENGINE_THREADS;
#if defined(FLEET_HOST) && !defined(__SANITIZE_THREAD__)
    if (name && strcmp(name, "threads") != 0) *last = FLEET_ENGINE_DETERMINISTIC;
    if (name && strcmp(name, "deterministic") == 0) *first = FLEET_ENGINE_DETERMINISTIC;
#endif
    (void)name;
}

static inline int deep(void)
{
    return getenv("FLEET_DEEP") != NULL;
}

/* Workers per chiplet, up to the first 0. Unequal ones first: tests that run few settings have them, too. */
#define TEST_SHAPES 12
static const uint32_t test_shapes[TEST_SHAPES][9] = {
    {2, 3}, {7, 6},    {1, 3, 2}, {2, 1, 1, 3, 1, 2, 1, 1}, {1},
    {1, 1}, {31},      {2, 2, 2}, {1, 1, 1, 1, 1, 1, 1, 1}, {31, 7},
    {2},    {7, 1, 2},
};

static inline fleet_topology topology_of(const uint32_t *workers, fleet_schedule schedule)
{
    fleet_topology topology = fleet_topology_make(1, 1);
    topology.private_l2 = 0;
    for (topology.chiplets = 0; workers[topology.chiplets]; topology.chiplets++)
        topology.units[topology.chiplets] =
            workers[topology.chiplets] + (schedule == FLEET_SCHEDULE_CHIPLET);
    return topology;
}

/* Setting i of those that this device has; 0: there are no more. few: only so many shapes. */
static inline int setting_get(uint32_t i, uint32_t few, setting *s)
{
    fleet_host_engine first, last;
    uint32_t engines, shape, k;
    setting_engines(&first, &last);
    engines = 1 + (uint32_t)(last - first);
    shape = i / (3 * engines);
    memset(s, 0, sizeof *s);
    s->engine = i % engines ? last : first;
    s->schedule = (fleet_schedule)(i / engines % 3);
    s->seed = i + 1;
    s->levels = shape % 3 == 2 ? 1 : 2;
    s->waves = 1 + shape % 2;
    if (shape >= few) return 0;
    start_at((shape + (uint32_t)s->schedule) % 3);
    s->start = FLEETI_TEST_START;
#if defined(FLEET_HIP)
    /* Chiplets are the hardware's: all workers, one each, unequal numbers. */
    if (shape >= 3 || fleet_topology_query(&s->topology)) return 0;
    if (shape == 1) s->workers = 1;
    if (shape == 2)
        for (k = 0; k < s->topology.chiplets; k++)
            if (k % 2 && s->topology.units[k] > 2) s->topology.units[k]--;
    (void)test_shapes;
#else
    if (shape >= TEST_SHAPES) return 0;
    (void)k;
    s->topology = topology_of(test_shapes[shape], s->schedule);
    {
        static const fleet_placement placements[] = {
            FLEET_PLACEMENT_LINEAR, FLEET_PLACEMENT_ROTATED, FLEET_PLACEMENT_RANDOM};
        s->placement = placements[shape % 3];
    }
#endif
    return 1;
}

/* FLEET_TEST_PART=0 or 1: every other setting, for programs that run many times. */
static inline int setting_skipped(uint32_t i)
{
    const char *part = getenv("FLEET_TEST_PART");
    return part && (uint32_t)atoi(part) != i % 2;
}

/* On the CPU the settings of a test that has more than two shapes (few) go by turns. From one shape
   to the next, its schedules and engines move on by a turn: each turn has as many of them as there
   are shapes, or all. */
static inline int setting_in_turn(uint32_t i, uint32_t few)
{
#if defined(FLEET_HOST)
    unsigned turn, turns = test_turns(&turn);
    if (few > 2 && turns > 1) return test_in_turn(i + i / turns);
#endif
    (void)few;
    return !setting_skipped(i);
}

static inline void setting_print(const setting *s)
{
    uint32_t k;
    static const char *const schedules[4] = {"STATIC", "CHIPLET", "DYNAMIC", "AUTO"};
    printf("    in: %s%s%s, mixed %#x, %s engine, %u chiplets of", schedules[s->schedule],
           s->unfused ? " unfused"
           : s->early ? " early"
                      : "",
           s->unaware ? " unaware" : "", s->mixed, s->engine ? "deterministic" : "threads",
           s->topology.chiplets);
    for (k = 0; k < s->topology.chiplets; k++) printf(" %u", s->topology.units[k]);
    printf(" units, workers %u, %u counter levels, placement %d, seed %llu, %u waves, start %#x\n",
           s->workers, s->levels, (int)s->placement, (unsigned long long)s->seed, s->waves,
           s->start);
}

/* Runs function(t, &setting, user) in every setting of this device, up to the first that fails. */
static inline void in_settings(test_run *t, uint32_t few,
                               void (*function)(test_run *, const setting *, void *), void *user)
{
    setting s;
    uint32_t i;
    for (i = 0; setting_get(i, few, &s) && !t->failed_here; i++) {
        if (!setting_in_turn(i, few)) continue;
        function(t, &s, user);
        if (t->failed_here) setting_print(&s);
    }
}

/* Gives grid i of a graph the schedule that the setting has for it. */
static inline void setting_mix(const setting *s, fleet_graph *g, fleet_grid grid, uint32_t i)
{
    if (s->mixed >> i % 32 & 1) fleet_grid_schedule(g, grid, FLEET_SCHEDULE_DYNAMIC);
}

/* Splits the setting's chiplets into those of two pools; 0: the device has one that cannot be shared. A single virtual
   chiplet becomes one for each pool. */
static inline int setting_pools(const setting *s, setting pools[2])
{
    const uint32_t chiplets = s->topology.chiplets;
    const uint32_t first = chiplets > 1 ? 1 + (uint32_t)(s->seed % (chiplets - 1)) : 1;
    pools[0] = pools[1] = *s;
#if defined(FLEET_HIP)
    if (chiplets == 1) return 0;
#endif
    pools[0].topology.chiplets = first;
    pools[1].topology.chiplets = chiplets > 1 ? chiplets - first : 1;
    for (uint32_t k = first; k < chiplets; k++)
        pools[1].topology.units[k - first] = s->topology.units[k];
    return 1;
}

/* The descriptors of a setting. */
static inline fleet_plan_desc setting_plan_desc(const setting *s)
{
    fleet_plan_desc d = fleet_plan_desc_default();
    d.topology = s->topology;
    d.schedule = s->schedule;
    d.workers_per_chiplet = s->workers;
    d.counter_levels = s->levels;
    d.unfused = s->unfused;
    d.chiplet_unaware = s->unaware;
    d.early_push = s->early;
    d.ranks = s->ranks;
    return d;
}
static inline fleet_launch_desc setting_launch_desc(const setting *s)
{
    fleet_launch_desc d = fleet_launch_desc_default();
    d.threads = TEST_THREADS > 1 ? TEST_THREADS : 0;
    d.host.engine = s->engine;
    d.host.seed = s->seed;
    d.host.waves = s->waves;
    d.host.stack_bytes = 65536;
    return d;
}
static inline fleet_state_desc setting_state_desc(const setting *s)
{
    fleet_state_desc d = fleet_state_desc_default();
    d.placement = s->placement;
    d.seed = s->seed;
    return d;
}

/* Whether tasks ran as often as they shall, by counts for each cell of several grids. */
static inline int runs_are(test_run *t, const uint32_t *device, const uint32_t *want,
                           uint32_t grids, uint32_t cells)
{
    uint32_t *have = (uint32_t *)malloc((size_t)grids * cells * 4), i;
    fleet_status status = fleet_to_host(have, device, (size_t)grids * cells * 4, NULL);
    if (status) test_fail(t, __FILE__, __LINE__, "%s", fleet_status_name(status));
    for (i = 0; i < grids * cells && !status; i++)
        if (have[i] != want[i])
            test_fail(t, __FILE__, __LINE__, "grid %u cell %u ran %u times, not %u", i / cells,
                      i % cells, have[i], want[i]);
    free(have);
    return !t->failed_here;
}

/* Whether the run ended so; otherwise the test fails with the report. */
static inline int ended_with(test_run *t, fleet_state *state, fleet_status want)
{
    static char report[4096];
    if (fleet_state_wait(state, NULL) == want) return 1;
    fleet_state_report(state, report, sizeof report);
    test_fail(t, __FILE__, __LINE__, "not %s: %s", fleet_status_name(want), report);
    return 0;
}

static inline uint64_t now_ns(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A few polls' worth of time for other threads. */
static inline void rest(void)
{
    uint64_t since = now_ns();
    while (now_ns() - since < 200000) {
    }
}

/* CHECK for functions that return 0 when they fail. */
#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            test_fail(t, __FILE__, __LINE__, "%s", #condition);                                    \
            return 0;                                                                              \
        }                                                                                          \
    } while (0)
#define NEED_STATUS(got, want)                                                                     \
    do {                                                                                           \
        fleet_status need_got = (got), need_want = (want);                                         \
        if (need_got != need_want) {                                                               \
            test_fail(t, __FILE__, __LINE__, "%s is %s, expected %s", #got,                        \
                      fleet_status_name(need_got), fleet_status_name(need_want));                  \
            return 0;                                                                              \
        }                                                                                          \
    } while (0)
#define CHECK_STATUS(got, want)                                                                    \
    do {                                                                                           \
        fleet_status check_got = (got), check_want = (want);                                       \
        if (check_got != check_want) {                                                             \
            test_fail(t, __FILE__, __LINE__, "%s is %s, expected %s", #got,                        \
                      fleet_status_name(check_got), fleet_status_name(check_want));                \
            return;                                                                                \
        }                                                                                          \
    } while (0)

#endif
