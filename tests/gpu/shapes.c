/* One plan for all values of its symbols: exactly the tasks of the shape run, whatever was bound before, in which
   bucket, at which epoch. (Test 5 of papers.c.) */
// run: asan engine=both
// run: tsan
// hip: 3 runs
#include "settings.h"

#define MOST_N 13
#define MOST_M 3
#define ROWS 4 /* of a block */
#define GRIDS 5
#define CELLS 64

/* What every tile sees: which tasks ran in which step, and what they left. */
typedef struct shapes {
    uint32_t *ran;   /* [GRIDS][CELLS]: times */
    uint32_t *value; /* [GRIDS][CELLS]: the epoch in which it ran last */
} shapes;

FLEET_DEVICE void ran(const fleet_ctx *ctx, const shapes *s, uint32_t grid, uint32_t cell)
{
    if (ctx->thread == 0 && ctx->tile_index == 0) {
        fleet_add_relaxed_device(s->ran + grid * CELLS + cell, 1);
        s->value[grid * CELLS + cell] = ctx->epoch;
    }
}
static uint32_t blocks_of(uint32_t n)
{
    return (n + ROWS - 1) / ROWS;
}

FLEET_TILE(part, shapes) /* (block, m) */
{
    ran(&ctx, args, 0, (uint32_t)(at[0] * MOST_M + at[1]));
    return FLEET_OK;
}
FLEET_TILE(block, shapes) /* (block): a chiplet-task */
{
    for (int32_t j = 0; j < ctx.symbols[1]; j++)
        if (args->value[at[0] * MOST_M + j] != ctx.epoch) return FLEET_ERROR_TILE;
    ran(&ctx, args, 1, (uint32_t)at[0]);
    return FLEET_OK;
}
FLEET_TILE(row, shapes) /* (n): a wavefront-task */
{
    if (args->value[CELLS + at[0] / ROWS] != ctx.epoch) return FLEET_ERROR_TILE;
    ran(&ctx, args, 2, (uint32_t)at[0]);
    return FLEET_OK;
}
FLEET_TILE(slice, shapes) /* n slices of a device-task */
{
    for (int32_t i = 0; i < ctx.symbols[0]; i++)
        if (args->value[2 * CELLS + i] != ctx.epoch) return FLEET_ERROR_TILE;
    ran(&ctx, args, 3, ctx.slice);
    FLEET_UNUSED(at);
    return FLEET_OK;
}
FLEET_TILE(last, shapes) /* one task, whatever the shape */
{
    for (int32_t i = 0; i < ctx.symbols[0]; i++)
        if (args->value[3 * CELLS + i] != ctx.epoch) return FLEET_ERROR_TILE;
    ran(&ctx, args, 4, 0);
    FLEET_UNUSED(at);
    return FLEET_OK;
}
#define SHAPES_TILES(TILE, P) TILE(P, part) TILE(P, block) TILE(P, row) TILE(P, slice) TILE(P, last)
FLEET_DISPATCH(shapes, SHAPES_TILES)
FLEET_KERNEL(shapes_kernel, shapes, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(shapes);
}

/* ---- the host ---- */

static fleet_graph *shapes_graph(const setting *s, fleet_dim *n, fleet_dim *m)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim blocks;
    fleet_etensor parts, block_done, row_done, sliced;
    fleet_grid grid[GRIDS];
    *n = fleet_symbol(g, "n", 1, MOST_N);
    *m = fleet_symbol(g, "m", 1, MOST_M);
    blocks = fleet_dim_ceil_div(*n, ROWS);
    parts = fleet_event_tensor(g, "parts", fleet_shape1(blocks), FLEET_COUNT_DERIVED);
    block_done = fleet_event_tensor(g, "block_done", fleet_shape1(blocks), FLEET_COUNT_DERIVED);
    row_done = fleet_event_tensor(g, "row_done", fleet_shape1(*n), FLEET_COUNT_DERIVED);
    sliced = fleet_event_tensor(g, "sliced", fleet_shape0(), FLEET_COUNT_DERIVED);
    grid[0] = fleet_call_device(g, "part", shapes_part, fleet_shape2(blocks, *m), 0);
    grid[1] = fleet_call_device(g, "block", shapes_block, fleet_shape1(blocks), 0);
    grid[2] = fleet_call_device(g, "row", shapes_row, fleet_shape1(*n), 0);
    grid[3] = fleet_call_device(g, "slice", shapes_slice, fleet_shape0(), 0);
    grid[4] = fleet_call_device(g, "last", shapes_last, fleet_shape0(), 0);
    fleet_grid_level(g, grid[1], FLEET_LEVEL_CHIPLET);
    fleet_grid_level(g, grid[2], FLEET_LEVEL_WAVE);
    fleet_grid_level(g, grid[3], FLEET_LEVEL_DEVICE);
    fleet_grid_slices(g, grid[3], *n);
    fleet_grid_tiles(g, grid[3], fleet_dim_plus(*m, 1)); /* where the plan is unaware */
    for (uint32_t i = 0; i < GRIDS; i++) setting_mix(s, g, grid[i], i);
    fleet_grid_cost(g, grid[0], 50000, 200, 0); /* for AUTO: many of these want ready queues */
    fleet_out_edge(g, grid[0], parts, "ij->i");
    fleet_in_edge(g, grid[1], parts, "i->i");
    fleet_out_edge(g, grid[1], block_done, "i->i");
    fleet_in_edge_map(g, grid[2], block_done, fleet_map1(fleet_axis(0, 1, 0, ROWS)));
    fleet_out_edge(g, grid[2], row_done, "i->i");
    fleet_in_edge(g, grid[3], row_done, "->i");
    fleet_out_edge(g, grid[3], sliced, "->");
    fleet_in_edge(g, grid[4], sliced, "->");
    return g;
}

typedef struct shapes_rig {
    fleet_graph *g;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_launch_desc launch;
    shapes s;
    void *args;
    uint32_t want[GRIDS * CELLS];
} shapes_rig;

static int shapes_open(test_run *t, shapes_rig *r, const setting *s, uint32_t epoch)
{
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_state_desc state = setting_state_desc(s);
    fleet_dim n, m;
    void *memory = NULL;
    static const int64_t few[1] = {2};
    memset(r, 0, sizeof *r);
    r->g = shapes_graph(s, &n, &m);
    fleet_buckets_at_build(&desc, m, few, 1); /* 2, 3; n has 1, 2, 4, 8, 13 */
    NEED_STATUS(fleet_plan_build(r->g, &desc, &r->plan), FLEET_OK);
    NEED(r->plan->n_buckets == 10);
    NEED_STATUS(fleet_plan_check(r->plan, (size_t)r->plan->bytes), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&memory, 2 * GRIDS * CELLS * 4), FLEET_OK);
    NEED_STATUS(fleet_device_clear(memory, 2 * GRIDS * CELLS * 4, NULL), FLEET_OK);
    r->s.ran = (uint32_t *)memory;
    r->s.value = r->s.ran + GRIDS * CELLS;
    NEED_STATUS(fleet_device_alloc(&r->args, sizeof r->s), FLEET_OK);
    NEED_STATUS(fleet_to_device(r->args, &r->s, sizeof r->s, NULL), FLEET_OK);
    NEED_STATUS(fleet_upload(&r->image, r->plan, NULL), FLEET_OK);
    state.first_epoch = epoch;
    NEED_STATUS(fleet_state_create(&r->state, &r->image, &state, NULL), FLEET_OK);
    r->launch = setting_launch_desc(s);
    return 1;
}

static void shapes_close(shapes_rig *r)
{
    fleet_state_free(&r->state);
    fleet_image_free(&r->image);
    fleet_device_free(r->s.ran);
    fleet_device_free(r->args);
    fleet_plan_free(r->plan);
    fleet_graph_destroy(r->g);
}

static int shapes_bind(test_run *t, shapes_rig *r, uint32_t n, uint32_t m)
{
    NEED_STATUS(fleet_bind(&r->state, "n", n, NULL), FLEET_OK);
    NEED_STATUS(fleet_bind(&r->state, "m", m, NULL), FLEET_OK);
    return 1;
}

/* Adds what a launch of `steps` steps of that shape runs. */
static void shapes_expect(shapes_rig *r, uint32_t n, uint32_t m, uint32_t steps)
{
    for (uint32_t i = 0; i < blocks_of(n); i++) {
        for (uint32_t j = 0; j < m; j++) r->want[i * MOST_M + j] += steps;
        r->want[CELLS + i] += steps;
    }
    for (uint32_t i = 0; i < n; i++) {
        r->want[2 * CELLS + i] += steps;
        r->want[3 * CELLS + i] += steps;
    }
    r->want[4 * CELLS] += steps;
}

static int shapes_launch(test_run *t, shapes_rig *r, uint32_t steps)
{
    r->launch.steps = steps;
    r->launch.host.seed++;
    NEED_STATUS(fleet_launch(&r->state, &r->launch, FLEET_KERNEL_OF(shapes_kernel), r->args),
                FLEET_OK);
    return 1;
}

static int shapes_check(test_run *t, shapes_rig *r)
{
    return ended_with(t, &r->state, FLEET_OK) && runs_are(t, r->s.ran, r->want, GRIDS, CELLS);
}

static void run_shapes(test_run *t, const setting *s, void *epoch)
{
    shapes_rig r;
    uint64_t rng = s->seed;
    if (!shapes_open(t, &r, s, *(const uint32_t *)epoch)) return;
    for (uint32_t i = 0; i < 12; i++) {
        uint32_t n, m, steps;
        rng = rng * 6364136223846793005ull + 1442695040888963407ull;
        n = i == 0 ? 3 : i == 1 ? MOST_N : 1 + (uint32_t)(rng >> 33) % MOST_N;
        m = 1 + (uint32_t)(rng >> 45) % MOST_M;
        steps = 1 + (uint32_t)(rng >> 55) % 3;
        if (!shapes_bind(t, &r, n, m) || !shapes_launch(t, &r, steps)) return;
        shapes_expect(&r, n, m, steps);
        if (i % 3 == 0 && !shapes_check(t, &r)) return; /* the others queue up */
    }
    if (!shapes_check(t, &r)) return;
    shapes_close(&r);
}

static void one_plan_for_all_values(test_run *t)
{
    uint32_t epoch = 0;
    in_settings(t, 12, run_shapes, &epoch);
}

static void run_mixed(test_run *t, const setting *s_, void *epoch)
{
    setting s = *s_;
    if (s.schedule != FLEET_SCHEDULE_STATIC) return;
    for (s.mixed = 1; s.mixed < 1u << GRIDS && !t->failed_here; s.mixed += 6)
        run_shapes(t, &s, epoch);
    if (t->failed_here) setting_print(&s);
}

static void mixed_schedules(test_run *t)
{
    uint32_t epoch = 0xfffffff0u;
    in_settings(t, 6, run_mixed, &epoch);
}

static void run_unaware(test_run *t, const setting *s_, void *epoch)
{
    setting s = *s_;
    s.unaware = 1;
    run_shapes(t, &s, epoch);
    if (t->failed_here) setting_print(&s);
}

static void unaware_of_chiplets(test_run *t)
{
    uint32_t epoch = 0;
    in_settings(t, 6, run_unaware, &epoch);
}

/* AUTO: few tasks of uneven length go to fixed queues, many to ready ones, in the same image. */
static void run_chosen(test_run *t, const setting *s_, void *seen)
{
    setting s = *s_;
    shapes_rig r;
    uint32_t epoch = 0;
    if (s.schedule != FLEET_SCHEDULE_STATIC) return;
    s.schedule = FLEET_SCHEDULE_AUTO;
    run_shapes(t, &s, &epoch);
    if (!t->failed_here && shapes_open(t, &r, &s, 0)) {
        for (uint32_t i = 0; i < r.plan->n_buckets; i++)
            *(uint32_t *)seen |= 1u << fleet_plan_bucket(r.plan, i)->schedule;
        shapes_close(&r);
    }
    if (t->failed_here) setting_print(&s);
}

static void schedules_are_chosen_by_value(test_run *t)
{
    uint32_t seen = 0;
    setting s;
    for (uint32_t i = 0; setting_get(i, 6, &s) && !t->failed_here; i++)
        if (!setting_skipped(i)) run_chosen(t, &s, &seen); /* together they choose both */
#if !defined(FLEET_HIP) /* whose workers are too many for these few tasks */
    if (!t->failed_here)
        CHECK_INT(seen, 1u << FLEET_SCHEDULE_STATIC | 1u << FLEET_SCHEDULE_DYNAMIC);
#endif
}

static void all_buckets_wrap(test_run *t)
{
    uint32_t epoch = 0xfffffffdu;
    in_settings(t, 3, run_shapes, &epoch);
}

#if defined(FLEET_HIP)
#define API(name) hip##name
#elif defined(FLEET_CUDA)
#define API(name) cuda##name
#endif

#if !defined(FLEET_HOST)
/* A captured fleet_bind is part of the graph: its replay finds the values that were bound in it. */
static void run_captured(test_run *t, const setting *s, void *unused)
{
    shapes_rig r;
    fleet_stream stream;
    uint32_t k;
#if defined(FLEET_HIP)
    hipGraph_t graph;
    hipGraphExec_t exec;
#else
    cudaGraph_t graph;
    cudaGraphExec_t exec;
#endif
    (void)unused;
    if (!shapes_open(t, &r, s, 0) || !shapes_bind(t, &r, 2, 1)) return;
    CHECK_STATUS(fleet_stream_wait(NULL), FLEET_OK);
    CHECK(!API(StreamCreateWithFlags)(&stream, API(StreamNonBlocking)));
    CHECK(!API(StreamBeginCapture)(stream, API(StreamCaptureModeGlobal)));
    r.launch.stream = stream;
    for (k = 0; k < 2; k++) {
        CHECK_STATUS(fleet_bind(&r.state, "n", k ? 11 : 3, stream), FLEET_OK);
        if (!shapes_launch(t, &r, 2)) return;
    }
    CHECK(!API(StreamEndCapture)(stream, &graph));
    CHECK(!API(GraphInstantiate)(&exec, graph, NULL, NULL, 0));
    for (k = 0; k < 3; k++) {
        CHECK(!API(GraphLaunch)(exec, stream));
        shapes_expect(&r, 3, 1, 2);
        shapes_expect(&r, 11, 1, 2);
    }
    CHECK_STATUS(fleet_bind(&r.state, "n", 7, stream), FLEET_OK);
    if (!shapes_launch(t, &r, 1)) return;
    shapes_expect(&r, 7, 1, 1);
    CHECK_STATUS(fleet_state_wait(&r.state, stream), FLEET_OK);
    if (!shapes_check(t, &r)) return;
    (void)API(GraphExecDestroy)(exec);
    (void)API(GraphDestroy)(graph);
    (void)API(StreamDestroy)(stream);
    shapes_close(&r);
}

static void captured_values(test_run *t)
{
    in_settings(t, 2, run_captured, NULL);
}
#endif

static void run_errors(test_run *t, const setting *s, void *unused)
{
    shapes_rig r;
    char report[2048];
    (void)unused;
    if (!shapes_open(t, &r, s, 0)) return;
    CHECK_STATUS(fleet_launch(&r.state, &r.launch, FLEET_KERNEL_OF(shapes_kernel), r.args),
                 FLEET_ERROR_SYMBOL_UNBOUND);
    fleet_state_report(&r.state, report, sizeof report);
    CHECK_TEXT(report, "symbol n has no value");
    if (!shapes_bind(t, &r, 5, 2)) return;
    CHECK_STATUS(fleet_bind(&r.state, "n", 14, NULL), FLEET_ERROR_SYMBOL_RANGE);
    fleet_state_report(&r.state, report, sizeof report);
    CHECK_TEXT(report, "symbol n is 14, outside [1, 13]");
    CHECK_STATUS(fleet_bind(&r.state, "n", 0, NULL), FLEET_ERROR_SYMBOL_RANGE);
    CHECK_STATUS(fleet_bind(&r.state, "k", 1, NULL), FLEET_ERROR_NAME);
    fleet_state_report(&r.state, report, sizeof report);
    CHECK_TEXT(report, "symbol k is not one of the plan");
    /* What was refused changed nothing; and values outlive a recovery. */
    shapes_expect(&r, 5, 2, 1);
    if (!shapes_launch(t, &r, 1) || !shapes_check(t, &r)) return;
    fleet_state_abort(&r.state);
    if (!shapes_launch(t, &r, 1)) return;
    CHECK_STATUS(fleet_state_wait(&r.state, NULL), FLEET_ERROR_ABORTED);
    CHECK_STATUS(fleet_state_recover(&r.state, NULL), FLEET_OK);
    shapes_expect(&r, 5, 2, 2);
    if (!shapes_launch(t, &r, 2) || !shapes_check(t, &r)) return;
    shapes_close(&r);
}

static void values_are_checked(test_run *t)
{
    in_settings(t, 1, run_errors, NULL);
}

static void all(test_run *t)
{
    TEST(one_plan_for_all_values);
    TEST(all_buckets_wrap);
    TEST(mixed_schedules);
    TEST(unaware_of_chiplets);
    TEST(schedules_are_chosen_by_value);
    TEST(values_are_checked);
#if !defined(FLEET_HOST)
    TEST(captured_values);
#endif
}

TEST_MAIN(all)
