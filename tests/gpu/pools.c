/* Two states in one launch: two plans, each on chiplets of its own, with steps of its own; what ends one ends both. */
// run: asan engine=both
// run: model engine=deterministic
// run: tsan
// hip: 3 runs
#include "settings.h"

#define MOST 40u
#define BLOCKS 1024u
#define POOLS 2u

/* A limit of one wait that a busy machine does not reach by itself. Time on a simulator is instructions. */
#if defined(FLEET_HIP)
#define SHORT_NS 200000u
#elif defined(FLEET_CUDA)
#define SHORT_NS 30000000u
#else
#define SHORT_NS 400000000u
#endif

typedef struct pool { /* one for each pool: the tiles' arguments */
    uint32_t *x;      /* [2][MOST], by the parity of the step */
    uint32_t *sum;
    uint32_t *blocks; /* [BLOCKS]: 1 where a workgroup has run a task of the pool, */
    uint32_t *places; /* [FLEET_MAX_CHIPLETS]: and the device's chiplets, by their ids */
    uint32_t n;
    uint32_t last;  /* the step in which `add` finishes; 0: none */
    uint32_t fails; /* the step in which `add` fails; 0: none */
    uint32_t first; /* the epoch before step 1 */
} pool;

FLEET_HOST_DEVICE uint32_t mix(uint32_t x, uint32_t y)
{
    x = (x ^ y) * 0x9e3779b1u;
    return x ^ x >> 15;
}
FLEET_DEVICE uint32_t *cells_of(const pool *p, uint32_t epoch)
{
    return p->x + epoch % 2 * MOST;
}
/* A cell depends on the cells beside it and on the sum of all, in the step before. */
FLEET_TILE(cell, pool)
{
    const uint32_t i = (uint32_t)at[0], *from = cells_of(args, ctx.epoch - args->first - 1);
    if (ctx.thread != 0) return FLEET_OK;
    cells_of(args, ctx.epoch - args->first)[i] =
        mix(mix(from[i], from[(i + 1) % args->n]), mix(*args->sum, ctx.epoch - args->first));
    fleet_store_relaxed_device(&args->blocks[fleet_block_id()], 1);
    fleet_store_relaxed_device(&args->places[fleet_chiplet_id()], 1);
    return ctx.chiplet < ctx.chiplets ? FLEET_OK : FLEET_ERROR_ARGUMENT;
}
FLEET_TILE(add, pool)
{
    uint32_t sum = 0;
    FLEET_UNUSED(at);
    for (uint32_t i = 0; i < args->n; i++) sum += cells_of(args, ctx.epoch - args->first)[i];
    fleet_barrier(&ctx);
    if (ctx.thread == 0) *args->sum = sum;
    if (ctx.epoch - args->first == args->fails) return FLEET_ERROR_SCOPE;
    return ctx.epoch - args->first == args->last ? fleet_finish(&ctx) : FLEET_OK;
}
#define POOL_TILES(TILE, P) TILE(P, cell) TILE(P, add)
FLEET_MEGAKERNEL(pool, POOL_TILES, FLEET_ANY_THREADS(128))

typedef struct stand {
    fleet_plan *plan[POOLS];
    fleet_image image[POOLS];
    fleet_state state[POOLS];
    fleet_launch_desc launch;
    pool args[POOLS];
    pool *device_args;
    uint32_t *memory[POOLS];
    fleet_host_stats stats;
} stand;

#define WORDS (2 * MOST + 1 + BLOCKS + FLEET_MAX_CHIPLETS)

/* What is missing in pool 1: an event that `add` waits for; the value of a symbol. */
enum { COMPLETE, WITHOUT_EVENT, WITHOUT_SYMBOL };

static fleet_graph *graph_of(uint32_t which, uint32_t n, uint32_t missing)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_etensor done = fleet_event_tensor(g, "done", fleet_shape0(), FLEET_COUNT_DERIVED);
    const fleet_dim rows = missing == WITHOUT_SYMBOL ? fleet_symbol(g, "rows", 1, (int32_t)MOST)
                                                     : fleet_dim_of((int32_t)n);
    const fleet_grid cells =
        fleet_call_device(g, which ? "cells_1" : "cells_0", pool_cell, fleet_shape1(rows), which);
    const fleet_grid add =
        fleet_call_device(g, which ? "add_1" : "add_0", pool_add, fleet_shape0(), which);
    fleet_out_edge(g, cells, done, "i->");
    fleet_in_edge(g, add, done, "->");
    if (missing == WITHOUT_EVENT) {
        const fleet_etensor never =
            fleet_event_tensor(g, "never", fleet_shape0(), FLEET_COUNT_DERIVED);
        fleet_event_external(g, never, FLEET_EXTERNAL_NOTIFIES, 1, FLEET_SCOPE_SYSTEM);
        fleet_in_edge(g, add, never, "->");
    }
    return g;
}

static int stand_open(test_run *t, stand *o, const setting *s, uint32_t missing)
{
    setting pools[POOLS];
    memset(o, 0, sizeof *o);
    if (!setting_pools(s, pools)) return 0;
    for (uint32_t p = POOLS; p--;) { /* pool 1 first: it is beside the other */
        fleet_plan_desc d;
        fleet_state_desc state = setting_state_desc(s);
        pool *args = &o->args[p];
        fleet_graph *g;
        args->first = state.first_epoch;
        args->n = p ? 5 + (uint32_t)s->seed % 7 : 12 + (uint32_t)s->seed % (MOST - 12);
        g = graph_of(p, args->n, p ? missing : (uint32_t)COMPLETE);
        d = setting_plan_desc(&pools[p]);
        if (fleet_plan_build(g, &d, &o->plan[p]))
            test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(g));
        fleet_graph_destroy(g);
        NEED(o->plan[p]);
        NEED_STATUS(fleet_upload(&o->image[p], o->plan[p], NULL), FLEET_OK);
        state.beside = p ? NULL : &o->state[1];
        NEED_STATUS(fleet_state_create(&o->state[p], &o->image[p], &state, NULL), FLEET_OK);
        NEED_STATUS(fleet_device_alloc((void **)&o->memory[p], WORDS * 4), FLEET_OK);
        NEED_STATUS(fleet_device_clear(o->memory[p], WORDS * 4, NULL), FLEET_OK);
        args->x = o->memory[p], args->sum = args->x + 2 * MOST;
        args->blocks = args->sum + 1, args->places = args->blocks + BLOCKS;
    }
    o->launch = setting_launch_desc(s);
    o->launch.finish = 1;
    o->launch.host.stats = &o->stats;
#if defined(FLEET_MEMORY_MODEL)
    o->launch.host.engine = FLEET_ENGINE_DETERMINISTIC;
    o->launch.host.memory_model = 1;
#endif
    NEED_STATUS(fleet_device_alloc((void **)&o->device_args, sizeof o->args), FLEET_OK);
    return 1;
}
static void stand_close(stand *o)
{
    fleet_stream_wait(NULL);
    for (uint32_t p = 0; p < POOLS; p++) {
        fleet_state_free(&o->state[p]);
        fleet_image_free(&o->image[p]);
        fleet_plan_free(o->plan[p]);
        fleet_device_free(o->memory[p]);
    }
    fleet_device_free(o->device_args);
}
static int stand_run(test_run *t, stand *o, uint32_t steps, fleet_status want)
{
    o->launch.steps = steps;
    NEED_STATUS(fleet_to_device(o->device_args, o->args, sizeof o->args, NULL), FLEET_OK);
    NEED_STATUS(
        fleet_launch(&o->state[0], &o->launch, FLEET_KERNEL_OF(pool_kernel), o->device_args),
        FLEET_OK);
    NEED(ended_with(t, &o->state[0], want));
    NEED(o->stats.findings == 0);
    return 1;
}

/* What each pool has after so many steps; and no workgroup, and no chiplet of the device, has run tasks of both. */
static int is_right(test_run *t, const stand *o, uint32_t steps0, uint32_t steps1)
{
    uint32_t have[POOLS][WORDS];
    for (uint32_t p = 0; p < POOLS; p++) {
        const uint32_t n = o->args[p].n, steps = p ? steps1 : steps0;
        uint32_t x[2][MOST] = {{0}}, sum = 0;
        NEED_STATUS(fleet_to_host(have[p], o->memory[p], WORDS * 4, NULL), FLEET_OK);
        for (uint32_t e = 1; e <= steps; e++) {
            const uint32_t *from = x[(e - 1) % 2];
            uint32_t next = 0;
            for (uint32_t i = 0; i < n; i++)
                next += x[e % 2][i] = mix(mix(from[i], from[(i + 1) % n]), mix(sum, e));
            sum = next;
        }
        if (fleet_state_epoch(&o->state[p]) - o->args[p].first != steps || have[p][2 * MOST] != sum)
            test_fail(t, __FILE__, __LINE__, "pool %u: %u steps instead of %u, sum %x, not %x", p,
                      fleet_state_epoch(&o->state[p]) - o->args[p].first, steps, have[p][2 * MOST],
                      sum);
    }
    for (uint32_t i = 0; i < BLOCKS; i++)
        NEED(!have[0][2 * MOST + 1 + i] || !have[1][2 * MOST + 1 + i]);
#if defined(FLEET_HIP)
    for (uint32_t i = 0; i < FLEET_MAX_CHIPLETS; i++)
        NEED(!have[0][2 * MOST + 1 + BLOCKS + i] || !have[1][2 * MOST + 1 + BLOCKS + i]);
#endif
    return !t->failed_here;
}

static void run_both(test_run *t, const setting *s, void *user)
{
    stand o;
    (void)user;
    if (!stand_open(t, &o, s, COMPLETE)) return;
    for (uint32_t launch = 1; launch <= 3; launch++)
        if (!stand_run(t, &o, 4, FLEET_OK) || !is_right(t, &o, 4 * launch, 4 * launch)) return;
    stand_close(&o);
}
static void two_plans_run_in_one_launch(test_run *t)
{
    in_settings(t, TEST_SHAPES, run_both, NULL);
}

/* Each pool ends when its own tile says so. */
static void finish_each(test_run *t, const setting *s, void *user)
{
    stand o;
    (void)user;
    if (!stand_open(t, &o, s, COMPLETE)) return;
    for (uint32_t launch = 1; launch <= 2; launch++) {
        const uint32_t long_one = 37 * launch, short_one = 3 * launch;
        o.args[0].last = s->seed % 2 ? long_one : short_one;
        o.args[1].last = s->seed % 2 ? short_one : long_one;
        if (!stand_run(t, &o, FLEET_STEPS_ENDLESS, FLEET_OK) ||
            !is_right(t, &o, o.args[0].last, o.args[1].last))
            return;
    }
    stand_close(&o);
}
static void pools_have_steps_of_their_own(test_run *t)
{
    in_settings(t, TEST_SHAPES, finish_each, NULL);
}

/* After a failure: both states recover, and run again. */
static int runs_again(test_run *t, stand *o)
{
    for (uint32_t p = 0; p < POOLS; p++) {
        o->args[p].fails = o->args[p].last = o->args[p].first = 0;
        NEED_STATUS(fleet_device_clear(o->memory[p], WORDS * 4, NULL), FLEET_OK);
    }
    NEED_STATUS(fleet_state_recover(&o->state[0], NULL), FLEET_OK);
    return stand_run(t, o, 3, FLEET_OK) && is_right(t, o, 3, 3);
}
static void fail_in(test_run *t, const setting *s, void *user)
{
    for (uint32_t p = 0; p < POOLS; p++) {
        static char report[8192];
        const char *of_pool, *first;
        fleet_failure f;
        stand o;
        (void)user;
        if (!stand_open(t, &o, s, COMPLETE)) return;
        o.args[p].fails = 5; /* the other one would never end */
        if (!stand_run(t, &o, FLEET_STEPS_ENDLESS, FLEET_ERROR_TILE)) return;
        fleet_state_report(&o.state[0], report, sizeof report);
        of_pool = strstr(report, p ? "pool 1: FLEET_ERROR_TILE" : "pool 0: FLEET_ERROR_TILE");
        first = of_pool ? strstr(of_pool, p ? "task add_1" : "task add_0") : NULL;
        if (!first) test_fail(t, __FILE__, __LINE__, "%s", report);
        CHECK_INT(fleet_state_failure(&o.state[p], &f), 1);
        CHECK_INT(f.tile_status, FLEET_ERROR_SCOPE);
        CHECK_INT(f.epoch - o.args[p].first, 5);
        if (!runs_again(t, &o)) return;
        stand_close(&o);
    }
}
static void failure_of_either_pool_ends_both(test_run *t)
{
    in_settings(t, TEST_SHAPES, fail_in, NULL);
}

/* A deadline in one pool. */
static void time_out_in(test_run *t, const setting *s, void *user)
{
    static char report[8192];
    stand o;
    (void)user;
    if (!stand_open(t, &o, s, WITHOUT_EVENT)) return;
    o.launch.limit_ns = SHORT_NS;
    if (!stand_run(t, &o, FLEET_STEPS_ENDLESS, FLEET_ERROR_TIMEOUT)) return;
    fleet_state_report(&o.state[0], report, sizeof report);
    if (!strstr(report, "pool 1: FLEET_ERROR_TIMEOUT") || !strstr(report, "waits for never"))
        test_fail(t, __FILE__, __LINE__, "%s", report);
    stand_close(&o);
}
static void deadline_of_one_pool_ends_both(test_run *t)
{
    in_settings(t, 3, time_out_in, NULL);
}

#if defined(FLEET_HOST)
static void *abort_soon(void *state)
{
    rest();
    fleet_state_abort((fleet_state *)state);
    return NULL;
}
#endif
static void abort_in(test_run *t, const setting *s, void *user)
{
    stand o;
    (void)user;
    if (!stand_open(t, &o, s, COMPLETE)) return;
#if defined(FLEET_HOST)
    {
        pthread_t thread;
        CHECK(!pthread_create(&thread, NULL, abort_soon, &o.state[s->seed % 2]));
        if (!stand_run(t, &o, FLEET_STEPS_ENDLESS, FLEET_ERROR_ABORTED)) return;
        pthread_join(thread, NULL);
    }
#else
    o.launch.steps = FLEET_STEPS_ENDLESS;
    CHECK_STATUS(fleet_to_device(o.device_args, o.args, sizeof o.args, NULL), FLEET_OK);
    CHECK_STATUS(fleet_launch(&o.state[0], &o.launch, FLEET_KERNEL_OF(pool_kernel), o.device_args),
                 FLEET_OK);
    rest();
    fleet_state_abort(&o.state[s->seed % 2]);
    if (!ended_with(t, &o.state[0], FLEET_ERROR_ABORTED)) return;
#endif
    if (!runs_again(t, &o)) return;
    stand_close(&o);
}
static void abort_ends_both(test_run *t)
{
    in_settings(t, 3, abort_in, NULL);
}

/* What is refused, and why. */
static void refuse_in(test_run *t, const setting *s, void *user)
{
    stand o;
    fleet_state other, nothing;
    fleet_state_desc d = setting_state_desc(s);
    (void)user;
    if (!stand_open(t, &o, s, COMPLETE)) return;
    d.beside = &o.state[1];
    CHECK_STATUS(fleet_state_create(&other, &o.image[0], &d, NULL), FLEET_ERROR_ARGUMENT);
    CHECK_TEXT(other.message, "fleet_state_desc.beside is beside another state already");
    d.beside = &o.state[0];
    CHECK_STATUS(fleet_state_create(&other, &o.image[0], &d, NULL), FLEET_ERROR_ARGUMENT);
    CHECK_TEXT(other.message, "fleet_state_desc.beside has a state beside it");
    memset(&nothing, 0, sizeof nothing);
    d.beside = &nothing;
    CHECK_STATUS(fleet_state_create(&other, &o.image[0], &d, NULL), FLEET_ERROR_ARGUMENT);
    CHECK_TEXT(other.message, "fleet_state_desc.beside is not a state");
    CHECK_STATUS(fleet_launch(&o.state[1], &o.launch, FLEET_KERNEL_OF(pool_kernel), o.device_args),
                 FLEET_ERROR_UNSUPPORTED);
    stand_close(&o);
    if (!stand_open(t, &o, s, WITHOUT_SYMBOL)) return;
    CHECK_STATUS(fleet_launch(&o.state[0], &o.launch, FLEET_KERNEL_OF(pool_kernel), o.device_args),
                 FLEET_ERROR_SYMBOL_UNBOUND);
    CHECK_TEXT(o.state[0].message, "pool 1: symbol rows has no value");
    stand_close(&o);
}
static void wrong_pairs_are_refused(test_run *t)
{
    in_settings(t, 1, refuse_in, NULL);
}

static void all(test_run *t)
{
    TEST(two_plans_run_in_one_launch);
    TEST(pools_have_steps_of_their_own);
    TEST(failure_of_either_pool_ends_both);
    TEST(deadline_of_one_pool_ends_both);
    TEST(abort_ends_both);
    TEST(wrong_pairs_are_refused);
}
TEST_MAIN(all)
