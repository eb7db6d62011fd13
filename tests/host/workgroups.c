/* A workgroup on the CPU has the threads that its kernel declares, in both engines: README's
   four steps, data that passes between threads through LDS, waves, a weight pipeline. And what it
   tells of mistakes inside a tile: a barrier that some threads do not reach, LDS that is too small;
   under the memory model a barrier that is missing. */
// run: asan
// run: plain
// run: tsan
// run: model -DMODEL
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "implementation.h"

#include "fleet_sched.h"
#include "test.h"

#include <fcntl.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) /* it has a context for each thread, which costs a lot */
#define THREADS 8u
#else
#define THREADS 64u
#endif
#define TILES 8u
#define CELLS (TILES * THREADS)
#define COPIED 16u /* words of a stage */
#define MS ((uint64_t)1000000)

/* What goes wrong in `reverse`, and in which task. */
typedef enum fault {
    FAULT_NONE,
    FAULT_NO_BARRIER,
    FAULT_DIVERGES, /* one thread does not reach the second barrier */
    FAULT_LATE,     /* one thread stays away from it for long */
    FAULT_PAST_LDS
} fault;
#define FAULTY 5

typedef struct job {
    const float *x;
    float *y;
    const uint32_t *weights;
    uint32_t *seen; /* [TILES]: threads of wavefront-tasks; sums of stages */
    int n;
    uint32_t fault;
} job;

FLEET_TILE(half, job)
{
    const int i = at[0] * (int)ctx.threads + (int)ctx.thread;
    if (i < args->n) args->y[i] = args->x[i] / 2;
    return FLEET_OK;
}

/* Adds the value of the thread at the other end of the workgroup. */
FLEET_TILE(reverse, job)
{
    float *lds = (float *)ctx.lds;
    const uint32_t faulty = at[0] == FAULTY ? args->fault : FAULT_NONE;
    const int first = at[0] * (int)ctx.threads, thread = (int)ctx.thread;
    if (!lds) return FLEET_ERROR_NULL;
    lds[ctx.thread] = args->x[first + thread];
    if (faulty == FAULT_PAST_LDS && thread == 1) lds[ctx.lds_bytes / 4 + 1] = 1;
    if (faulty != FAULT_NO_BARRIER) fleet_barrier(&ctx);
    args->y[first + thread] += lds[ctx.threads - 1 - ctx.thread];
    if (faulty == FAULT_DIVERGES && thread == 3) return FLEET_OK;
    if (faulty == FAULT_LATE && thread == 3) {
        const uint64_t since = fleet_clock_ticks();
        uint32_t tries = 0;
        while (fleet_clock_ticks() - since < 300 * MS && !fleet_pause(&tries)) {
        }
        return FLEET_OK;
    }
    fleet_barrier(&ctx); /* the second one */
    return FLEET_OK;
}
#define SECOND_LINE 75u

FLEET_TILE(in_a_wave, job)
{
    uint32_t *lds = (uint32_t *)ctx.lds;
    if (ctx.group != FLEET_WAVE || ctx.threads != fleet_wave_size()) return FLEET_ERROR_ARGUMENT;
    /* As of a GPU's waves, and of its own. */
    if (ctx.lds_bytes != 64) return FLEET_ERROR_MEMORY;
    for (uint32_t i = 0; i < 16; i++) lds[i] = (uint32_t)at[0];
    fleet_barrier(&ctx);
    for (uint32_t i = 0; i < 16; i++)
        if (lds[i] != (uint32_t)at[0]) return FLEET_ERROR_TILE;
    __atomic_fetch_add(&args->seen[at[0]], 1, __ATOMIC_RELAXED);
    return FLEET_OK;
}

FLEET_TILE(count, job)
{
    if (ctx.thread == 0) args->seen[at[0]] = ctx.threads;
    return FLEET_OK;
}

/* A word of each page of the LDS: one thread stores it and another one loads it, without a barrier.
   */
#define PAGES 300u
#define PAGE_BYTES 4096u
FLEET_TILE(pages, job)
{
    for (uint32_t i = 0; i < PAGES; i++) {
        uint32_t *word = (uint32_t *)ctx.lds + (size_t)i * PAGE_BYTES / 4;
        if (ctx.thread == 0) *word = i;
        if (ctx.thread == 1) args->seen[at[0]] = *word;
    }
    return FLEET_OK;
}

#define JOB_TILES(TILE, P)                                                                         \
    TILE(P, half) TILE(P, reverse) TILE(P, in_a_wave) TILE(P, count) TILE(P, pages)
FLEET_MEGAKERNEL(job, JOB_TILES, THREADS)
FLEET_KERNEL(any_kernel, job, FLEET_ANY_THREADS(THREADS))
{
    FLEET_WORKER_LOOP(job);
}

typedef job copy;
FLEET_PRODUCER(sum, copy)
{
    fleet_producer_copy(producer, args->weights + (uint32_t)at[0] * COPIED, COPIED * 4);
}
FLEET_TILE(sum, copy)
{
    fleet_consumer consumer = fleet_consumer_open(&ctx);
    const uint32_t *stage = (const uint32_t *)fleet_stage_acquire(&consumer);
    uint32_t total = 0;
    if (!stage) return fleet_consumer_status(&consumer);
    for (uint32_t i = 0; i < COPIED; i++) total += stage[i];
    fleet_stage_release(&consumer, ctx.threads / fleet_wave_size());
    __atomic_fetch_add(&args->seen[at[0]], total, __ATOMIC_RELAXED);
    return FLEET_OK;
}
#define COPY_TILES(TILE, P) TILE(P, sum)
FLEET_DISPATCH_WITH_PIPELINE(copy, COPY_TILES, COPY_TILES, 3, 1024)
FLEET_KERNEL(copy_kernel, copy, THREADS)
{
    FLEET_WORKER_LOOP(copy);
}

/* ---- a run ---- */

typedef struct rig {
    fleet_graph *graph;
    fleet_session session;
    fleet_session_desc desc;
    fleet_host_stats stats;
    job args;
    float x[CELLS], y[CELLS];
    uint32_t seen[TILES];
    char report[4096];
    fleet_status status;
} rig;

static void rig_make(rig *r, uint32_t engine, fleet_schedule schedule, uint32_t fault)
{
    memset(r, 0, sizeof *r);
    r->graph = fleet_graph_create(NULL);
    r->desc = fleet_session_desc_default();
    r->desc.plan.topology = fleet_topology_make(2, 2 + (schedule == FLEET_SCHEDULE_CHIPLET));
    r->desc.plan.topology.private_l2 = 0, r->desc.plan.topology.wave_size = 1;
    r->desc.plan.schedule = schedule;
    r->desc.launch.host.engine = (fleet_host_engine)engine;
    r->desc.launch.host.seed = 1;
    r->desc.launch.host.stack_bytes = 65536;
    r->desc.launch.host.stats = &r->stats;
#if defined(MODEL)
    r->desc.launch.host.memory_model = 1;
#endif
    r->args.fault = fault;
}
static void run(rig *r, fleet_kernel kernel)
{
    fleet_session *s = &r->session;
    float *x, *y;
    uint32_t *weights, *seen, i, values[TILES * COPIED];
    fleet_session_open(s, r->graph, &r->desc, kernel);
    x = (float *)fleet_session_alloc(s, sizeof r->x);
    y = (float *)fleet_session_alloc(s, sizeof r->y);
    weights = (uint32_t *)fleet_session_alloc(s, sizeof values);
    seen = (uint32_t *)fleet_session_alloc(s, sizeof r->seen);
    for (i = 0; i < CELLS; i++) r->x[i] = (float)i;
    for (i = 0; i < TILES * COPIED; i++) values[i] = i;
    if (seen) {
        fleet_to_device(x, r->x, sizeof r->x, NULL);
        fleet_device_clear(y, sizeof r->y, NULL);
        fleet_to_device(weights, values, sizeof values, NULL);
        fleet_device_clear(seen, sizeof r->seen, NULL);
        r->args.x = x, r->args.y = y, r->args.weights = weights, r->args.seen = seen;
    }
    fleet_session_run(s, &r->args, sizeof r->args);
    r->status = fleet_session_wait(s);
    if (seen) {
        fleet_to_host(r->y, y, sizeof r->y, NULL);
        fleet_to_host(r->seen, seen, sizeof r->seen, NULL);
    }
    fleet_session_report(s, r->report, sizeof r->report);
}
static void rig_end(rig *r)
{
    fleet_session_close(&r->session);
    fleet_graph_destroy(r->graph);
}

/* half, and reverse after it. */
static void two_grids(rig *r)
{
    const fleet_grid a = fleet_call_device(r->graph, "half", job_half, fleet_shape1_of(TILES), 0);
    const fleet_grid b =
        fleet_call_device(r->graph, "reverse", job_reverse, fleet_shape1_of(TILES), 0);
    const fleet_etensor done =
        fleet_event_tensor(r->graph, "done", fleet_shape1_of(TILES), FLEET_COUNT_DERIVED);
    fleet_out_edge(r->graph, a, done, "i->i");
    fleet_in_edge(r->graph, b, done, "i->i");
    r->args.n = (int)CELLS;
    r->desc.launch.lds_bytes = THREADS * 4;
}
static uint32_t wrong_values(const rig *r)
{
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < CELLS; i++) {
        const uint32_t other = i / THREADS * THREADS + THREADS - 1 - i % THREADS;
        wrong += r->y[i] != (float)i / 2 + (float)other;
    }
    return wrong;
}

/* Engines of this build: the memory model has one. */
#if defined(MODEL)
#define FIRST_ENGINE 1u
#else
#define FIRST_ENGINE 0u
#endif

/* ---- tests ---- */

static void the_four_steps_of_the_readme(test_run *t)
{
    for (uint32_t i = 3 * FIRST_ENGINE; i < 6; i++) {
        rig r;
        rig_make(&r, i / 3, (fleet_schedule)(i % 3), FAULT_NONE);
        fleet_call_device(r.graph, "half", job_half, fleet_shape1_of(TILES), 0);
        r.args.n = (int)CELLS - 3;
        run(&r, FLEET_KERNEL_OF(job_kernel));
        CHECK_INT(r.status, FLEET_OK);
        for (uint32_t k = 0; k < CELLS && !t->failed_here; k++)
            CHECK(r.y[k] == (k < CELLS - 3 ? (float)k / 2 : 0));
        rig_end(&r);
    }
}

static void data_passes_through_lds(test_run *t)
{
    for (uint32_t i = 12 * FIRST_ENGINE; i < 24; i++) {
        rig r;
        rig_make(&r, i / 12, (fleet_schedule)(i % 3), FAULT_NONE);
        two_grids(&r);
        r.desc.launch.host.seed = 1 + i;
        run(&r, FLEET_KERNEL_OF(job_kernel));
        CHECK_INT(r.status, FLEET_OK);
        CHECK_INT(wrong_values(&r), 0);
        CHECK_INT(r.stats.findings, 0);
        rig_end(&r);
    }
}

static void any_number_is_one_thread(test_run *t)
{
    for (uint32_t i = 3 * FIRST_ENGINE; i < 6; i++) {
        static const uint32_t waves[3] = {0, 3, 0};
        rig r;
        rig_make(&r, i / 3, FLEET_SCHEDULE_STATIC, FAULT_NONE);
        r.desc.launch.host.waves = waves[i % 3];
        fleet_call_device(r.graph, "count", job_count, fleet_shape1_of(TILES), 0);
        run(&r, i % 3 == 2 ? FLEET_KERNEL_OF(job_kernel) : FLEET_KERNEL_OF(any_kernel));
        CHECK_INT(r.status, FLEET_OK);
        for (uint32_t k = 0; k < TILES; k++)
            CHECK_INT(r.seen[k], i % 3 == 2 ? THREADS : waves[i % 3] ? waves[i % 3] : 1);
        rig_end(&r);
    }
}

static void wavefront_tasks_run_once(test_run *t)
{
    for (uint32_t i = 3 * FIRST_ENGINE; i < 6; i++) {
        rig r;
        rig_make(&r, i / 3, (fleet_schedule)(i % 3), FAULT_NONE);
        fleet_grid_level(
            r.graph,
            fleet_call_device(r.graph, "in_a_wave", job_in_a_wave, fleet_shape1_of(TILES), 0),
            FLEET_LEVEL_WAVE);
        r.desc.launch.lds_bytes = 64;
        run(&r, FLEET_KERNEL_OF(job_kernel));
        CHECK_INT(r.status, FLEET_OK);
        for (uint32_t k = 0; k < TILES; k++) CHECK_INT(r.seen[k], 1);
        rig_end(&r);
    }
}

static void a_producer_beside_them(test_run *t)
{
    for (uint32_t i = 3 * FIRST_ENGINE; i < 6; i++) {
        rig r;
        rig_make(&r, i / 3, (fleet_schedule)(i % 3), FAULT_NONE);
        fleet_call_device(r.graph, "sum", copy_sum, fleet_shape1_of(TILES), 0);
        run(&r, FLEET_KERNEL_OF(copy_kernel));
        CHECK_INT(r.status, FLEET_OK);
        for (uint32_t k = 0; k < TILES; k++)
            CHECK_INT(r.seen[k], THREADS * (COPIED * COPIED * k + COPIED * (COPIED - 1) / 2));
        rig_end(&r);
    }
}

#if !defined(MODEL)
/* Of the deterministic engine's orders: some go wrong, and the same ones again. */
static void a_missing_barrier_shows(test_run *t)
{
#if !defined(__SANITIZE_THREAD__) /* which reports it */
    uint32_t wrong[2] = {0, 0};
    for (uint32_t i = 0; i < 20; i++) {
        rig r;
        rig_make(&r, FLEET_ENGINE_DETERMINISTIC, FLEET_SCHEDULE_STATIC, FAULT_NO_BARRIER);
        two_grids(&r);
        r.desc.launch.host.seed = 1 + i % 10;
        run(&r, FLEET_KERNEL_OF(job_kernel));
        CHECK_INT(r.status, FLEET_OK);
        wrong[i / 10] += wrong_values(&r);
        rig_end(&r);
    }
    CHECK(wrong[0] >= 10);
    CHECK_INT(wrong[0], wrong[1]);
#else
    (void)t;
#endif
}
#endif

/* In both engines, and with a thread of the system for each wave. */
static void a_divergent_barrier_is_told(test_run *t)
{
    for (uint32_t i = 2 * FIRST_ENGINE; i < 5; i++) {
        const uint32_t waves = i == 4 ? 4 : THREADS;
        char want[80];
        rig r;
        rig_make(&r, i / 2 % 2, FLEET_SCHEDULE_STATIC, i % 2 ? FAULT_LATE : FAULT_DIVERGES);
        two_grids(&r);
        if (i == 4) r.desc.launch.host.waves = waves;
#if defined(MODEL)
        if (i == 4) r.desc.launch.host.engine = FLEET_ENGINE_DETERMINISTIC;
#endif
        r.desc.launch.limit_ns = i % 2 ? 20 * MS : 10000 * MS;
        run(&r, FLEET_KERNEL_OF(job_kernel));
        snprintf(want, sizeof want,
                 "task reverse(5), step 1: %u of %u threads wait at a barrier in line %u",
                 waves - 1, waves, SECOND_LINE);
        CHECK(r.status == FLEET_ERROR_TILE || (i == 3 && r.status == FLEET_ERROR_DEADLOCK));
        CHECK_TEXT(r.report, want);
        CHECK_INT(fleet_state_epoch(&r.session.state), 0);
        rig_end(&r);
    }
}

/* The address sanitizer ends the program at the access. */
static void lds_that_is_too_small_is_told(test_run *t)
{
#if !defined(__SANITIZE_ADDRESS__)
    for (uint32_t i = FIRST_ENGINE; i < 2; i++) {
        rig r;
        rig_make(&r, i, FLEET_SCHEDULE_STATIC, FAULT_PAST_LDS);
        two_grids(&r);
        run(&r, FLEET_KERNEL_OF(job_kernel));
        CHECK_INT(r.status, FLEET_ERROR_TILE);
        CHECK_TEXT(r.report, "task reverse(5), step 1: a tile has written past its LDS");
        rig_end(&r);
    }
#else
    (void)t;
#endif
}

static void no_lds_is_null(test_run *t)
{
    for (uint32_t i = FIRST_ENGINE; i < 2; i++) {
        rig r;
        rig_make(&r, i, FLEET_SCHEDULE_STATIC, FAULT_NONE);
        two_grids(&r);
        r.desc.launch.lds_bytes = 0;
        run(&r, FLEET_KERNEL_OF(job_kernel));
        CHECK_INT(r.status, FLEET_ERROR_TILE);
        CHECK_TEXT(r.report, "FLEET_ERROR_NULL");
        rig_end(&r);
    }
}

#if defined(MODEL)
/* Whatever the order is: in each seed. */
static void the_model_finds_what_a_tile_does_wrong(test_run *t)
{
    static const uint32_t faults[2] = {FAULT_NO_BARRIER, FAULT_PAST_LDS};
    static const char *const reports[2] = {"unordered read of LDS: tests/host/workgroups.c:",
                                           "past the LDS: tests/host/workgroups.c:"};
    static char text[65536];
    for (uint32_t i = 0; i < 20; i++) {
        const int told = dup(2);
        FILE *file = tmpfile();
        size_t length;
        rig r;
        CHECK(file && dup2(fileno(file), 2) == 2);
        rig_make(&r, FLEET_ENGINE_DETERMINISTIC, FLEET_SCHEDULE_STATIC, faults[i % 2]);
        two_grids(&r);
        r.desc.launch.host.seed = 1 + i / 2;
        run(&r, FLEET_KERNEL_OF(job_kernel));
        CHECK_INT(r.status, i % 2 ? FLEET_ERROR_TILE : FLEET_OK);
        CHECK(r.stats.findings > 0);
        rig_end(&r);
        fflush(stderr);
        dup2(told, 2);
        close(told);
        rewind(file);
        length = fread(text, 1, sizeof text - 1, file);
        text[length] = 0;
        fclose(file);
        CHECK_TEXT(text, reports[i % 2]);
        CHECK_TEXT(text, ", in reverse(5)\n");
    }
}
#endif

#if defined(MODEL)
/* The model looks addresses up in a cache by page: no page of the LDS is missed, wherever it lies.
   */
static void the_model_watches_each_page(test_run *t)
{
    const int told = dup(2), none = open("/dev/null", O_WRONLY);
    rig r;
    CHECK(none >= 0 && dup2(none, 2) == 2);
    rig_make(&r, FLEET_ENGINE_DETERMINISTIC, FLEET_SCHEDULE_STATIC, FAULT_NONE);
    fleet_call_device(r.graph, "pages", job_pages, fleet_shape1_of(TILES), 0);
    r.desc.launch.lds_bytes = PAGES * PAGE_BYTES;
    run(&r, FLEET_KERNEL_OF(job_kernel));
    dup2(told, 2);
    close(told), close(none);
    CHECK_INT(r.status, FLEET_OK);
    CHECK_INT(r.stats.findings, TILES * PAGES);
    rig_end(&r);
}
#endif

static void whole_workgroups(test_run *t)
{
    TEST(the_four_steps_of_the_readme);
    TEST(data_passes_through_lds);
    TEST(any_number_is_one_thread);
    TEST(wavefront_tasks_run_once);
    TEST(a_producer_beside_them);
    TEST(a_divergent_barrier_is_told);
    TEST(lds_that_is_too_small_is_told);
    TEST(no_lds_is_null);
#if defined(MODEL)
    TEST(the_model_finds_what_a_tile_does_wrong);
    TEST(the_model_watches_each_page);
#else
    TEST(a_missing_barrier_shows);
#endif
}
TEST_MAIN(whole_workgroups)
