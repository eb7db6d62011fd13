/* The work of building, planning and checking a graph grows linearly with the graph, and stays below the limit of
   fleet_plan_desc whatever the extents are. The test counts work, not time: the compiler makes each basic block of the
   header call __sanitizer_cov_trace_pc. */
// run: plain whole -O0 -fsanitize-coverage=trace-pc
#include <stddef.h>
#include <stdlib.h>
static size_t taken; /* bytes of memory, in all */
static void *take(size_t bytes)
{
    taken += bytes;
    return malloc(bytes);
}
#define FLEET_MALLOC(bytes) take(bytes)
#define FLEET_FREE(memory) free(memory)
#include "walk.h"

static uint64_t blocks,
    blocks_end = UINT64_MAX; /* a build that passes the end would take for ever */
static const char *too_long = "";

__attribute__((no_sanitize_coverage)) void __sanitizer_cov_trace_pc(void);
__attribute__((no_sanitize_coverage)) void __sanitizer_cov_trace_pc(void)
{
    if (++blocks < blocks_end) return;
    printf("FAIL no_extent_takes_long: %s: over %llu blocks\n", too_long,
           (unsigned long long)blocks_end);
    fflush(stdout);
    _Exit(1);
}

/* How the chain of grids is planned. */
typedef struct way {
    fleet_schedule schedule;
    uint32_t unfused, outside, empty, buffers;
} way;

/* n grids, each of which waits for the previous one. empty: only the first one has tasks. */
static fleet_graph *chain(const way *w, uint32_t n)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor before;
    fleet_grid grid;
    char name[32];
    uint32_t i;
    before.id = 0;
    for (i = 0; i < n; i++) {
        fleet_shape shape = fleet_shape1(fleet_dim_of(w->empty && i ? 0 : 3));
        snprintf(name, sizeof name, "grid %u", i);
        grid = fleet_call_device(g, name, 0, shape, 0);
        if (before.id) fleet_in_edge(g, grid, before, "i->");
        if (w->buffers) {
            snprintf(name, sizeof name, "buffer %u", i);
            fleet_grid_writes(g, grid, fleet_declare_buffer(g, name));
        }
        snprintf(name, sizeof name, "event %u", i);
        before = fleet_event_tensor(g, name, fleet_shape0(), FLEET_COUNT_DERIVED);
        fleet_out_edge(g, grid, before, "i->");
        if (w->outside)
            fleet_event_external(g, before, FLEET_EXTERNAL_WAITS, 0, FLEET_SCOPE_DEVICE);
    }
    return g;
}

/* Blocks for n grids; 0: it failed. */
static uint64_t work(const way *w, uint32_t n)
{
    const uint64_t begun = blocks;
    fleet_graph *g = chain(w, n);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    fleet_status status;
    desc.topology = fleet_topology_make(2, 3);
    desc.schedule = w->schedule;
    desc.unfused = w->unfused;
    status = fleet_plan_build(g, &desc, &plan);
    if (status) printf("    %s\n", fleet_graph_error(g));
    if (!status) status = fleet_plan_check(plan, (size_t)plan->bytes);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
    return status ? 0 : blocks - begun;
}

static void work_is_linear(test_run *t)
{
    static const way ways[] = {
        {FLEET_SCHEDULE_STATIC, 0, 0, 0, 0},  {FLEET_SCHEDULE_CHIPLET, 0, 0, 0, 0},
        {FLEET_SCHEDULE_DYNAMIC, 0, 0, 0, 0}, {FLEET_SCHEDULE_AUTO, 0, 0, 0, 0},
        {FLEET_SCHEDULE_STATIC, 1, 0, 0, 0},  {FLEET_SCHEDULE_STATIC, 1, 0, 1, 0},
        {FLEET_SCHEDULE_DYNAMIC, 0, 1, 0, 0}, {FLEET_SCHEDULE_STATIC, 0, 0, 0, 1},
    };
    uint32_t i;
    for (i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        /* Without buffers there is no proof that steps may overlap, which is quadratic, and which is not tried with
           over 4096 grids. */
        const uint32_t n = ways[i].buffers ? 4500 : 1000;
        const uint64_t few = work(&ways[i], n), many = work(&ways[i], 4 * n);
        printf("    %u: %llu and %llu blocks\n", i, (unsigned long long)few,
               (unsigned long long)many);
        CHECK(few && many);
        CHECK(many < 5 * few);
    }
}

/* ---- extents of up to 2^31 - 1 ---- */

static fleet_dim some_extent(fleet_graph *g, uint64_t *rng, uint32_t largest)
{
    static const char *const names[] = {"k", "l", "m", "n", "o", "p", "q", "r"};
    const uint32_t bits = draw(rng, largest + 1), at = FLEETI_LEN(g->symbols);
    const int64_t n = ((int64_t)1 << bits) - (int64_t)draw(rng, 2);
    if (at < 2 && !draw(rng, 8)) return fleet_symbol(g, names[at], 1, n > 0 ? n : 1);
    return fleet_dim_of(n < 0x7fffffff ? n : 0x7fffffff);
}

static fleet_axis_map some_axis(uint64_t *rng, uint32_t task_axes, fleet_dim n)
{
    const uint32_t of = draw(rng, task_axes);
    const int64_t k = 1 + draw(rng, 64);
    switch (draw(rng, 7)) {
    case 0:
        return fleet_axis_all();
    case 1:
        return fleet_axis(of, 1, 0, 1);
    case 2:
        return fleet_axis(of, 1, 0, k);
    case 3:
        return fleet_axis_clipped(of, 1, -1, 1, fleet_dim_of(0), n);
    case 4:
        return fleet_axis_clipped(of, 1, k, k, fleet_dim_of(k), n);
    case 5:
        return fleet_axis_clipped(of, 1, 0, 1, fleet_dim_of(0), fleet_dim_of(1)); /* one task */
    default:
        return fleet_axis_retile(of, k, 1 + draw(rng, 64), n);
    }
}

static fleet_map some_map(uint64_t *rng, uint32_t task_axes, const fleet_shape *event)
{
    fleet_map map = fleet_map0();
    uint32_t k;
    for (k = 0; k < event->rank; k++)
        map = fleet_map_append(map, some_axis(rng, task_axes, event->extent[k]));
    return map;
}

static fleet_shape some_shape(fleet_graph *g, uint64_t *rng, uint32_t axes, uint32_t largest)
{
    fleet_shape shape = fleet_shape0();
    for (shape.rank = 0; shape.rank < axes; shape.rank++)
        shape.extent[shape.rank] = some_extent(g, rng, largest / axes);
    return shape;
}

/* Two or three grids, with events between them, of any form. */
static fleet_graph *some_graph(uint64_t *rng)
{
    static const char *const grids[] = {"a", "b", "c"}, *const events[] = {"A", "B"};
    const uint32_t n = 2 + draw(rng, 2), buffers = draw(rng, 2);
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_shape shape, event_shape = fleet_shape0();
    fleet_etensor event;
    fleet_grid grid;
    uint32_t i;
    event.id = 0;
    for (i = 0; i < n; i++) {
        shape = some_shape(g, rng, 1 + draw(rng, 2), draw(rng, 32));
        grid = fleet_call_device(g, grids[i], 0, shape, 0);
        switch (draw(rng, 8)) {
        case 0:
            fleet_grid_level(g, grid, FLEET_LEVEL_WAVE);
            break;
        case 1:
            fleet_grid_level(g, grid, FLEET_LEVEL_CHIPLET);
            break;
        case 2:
            fleet_grid_level(g, grid, FLEET_LEVEL_DEVICE);
            if (draw(rng, 2)) fleet_grid_slices(g, grid, some_extent(g, rng, 31));
            break;
        case 3:
            fleet_grid_place(g, grid, fleet_map1(fleet_axis(0, 0, 1, 1)));
            break;
        case 4:
            fleet_grid_order(g, grid, fleet_key_plus(fleet_key_of(0), 0, -1));
            break;
        default:
            break;
        }
        if (buffers) fleet_grid_writes(g, grid, fleet_declare_buffer(g, grids[i]));
        if (event.id) fleet_in_edge_map(g, grid, event, some_map(rng, shape.rank, &event_shape));
        if (i + 1 == n) break;
        event_shape = some_shape(g, rng, draw(rng, 3), draw(rng, 32));
        event = fleet_event_tensor(g, events[i], event_shape, FLEET_COUNT_DERIVED);
        fleet_out_edge_map(g, grid, event, some_map(rng, shape.rank, &event_shape));
        if (!draw(rng, 8)) /* a cycle, which takes the plan to be run on paper */
            fleet_in_edge_map(g, grid, event, some_map(rng, shape.rank, &event_shape));
    }
    return g;
}

/* A router names the rows that expert tasks wait for: a gather, counts and a range. */
static fleet_graph *some_routing(uint64_t *rng)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim tokens = some_extent(g, rng, 31), experts = some_extent(g, rng, 31);
    const int64_t k = 1 + draw(rng, 64);
    const fleet_etensor routed =
        fleet_event_tensor(g, "routed", fleet_shape0(), FLEET_COUNT_DERIVED);
    const fleet_etensor ready = fleet_event_tensor(g, "ready", fleet_shape1(experts), k);
    const fleet_grid router = fleet_call_device(g, "router", 0, fleet_shape0(), 0);
    const fleet_grid token = fleet_call_device(g, "token", 0, fleet_shape1(tokens), 0);
    const fleet_grid expert =
        fleet_call_device(g, "expert", 0, fleet_shape1(some_extent(g, rng, 31)), 0);
    const fleet_tensor topk =
        fleet_runtime_tensor(g, "topk", fleet_shape2(tokens, fleet_dim_of(k)), router);
    const fleet_tensor counts = fleet_runtime_tensor(g, "counts", fleet_shape1(experts), router);
    const fleet_tensor range =
        fleet_runtime_tensor(g, "range", fleet_shape1(fleet_dim_plus(experts, 1)), router);
    fleet_out_edge(g, router, routed, "->");
    fleet_in_edge(g, token, routed, "i->");
    fleet_out_edge_gather(g, token, ready, topk);
    fleet_event_counts(g, ready, counts);
    fleet_in_edge_range(g, expert, ready, range);
    return g;
}

#define LIMIT 0x10000u
#define BLOCKS_PER_WORK 60u /* without optimisation, and with all passes */
#define BYTES_PER_WORK 60u
#define SEEDS 3000u

static void no_extent_takes_long(test_run *t)
{
    static const fleet_schedule schedules[] = {FLEET_SCHEDULE_STATIC, FLEET_SCHEDULE_CHIPLET,
                                               FLEET_SCHEDULE_DYNAMIC, FLEET_SCHEDULE_AUTO};
    unsigned long long end;
    const uint32_t first = (uint32_t)test_share(SEEDS, &end);
    uint32_t seed, planned = 0, refused = 0;
    uint64_t most = 0;
    size_t most_taken = 0;
    for (seed = first; seed < end; seed++) {
        uint64_t rng = 0x9e3779b97f4a7c15ull * (seed + 1), begun, used;
        fleet_graph *g = draw(&rng, 4) ? some_graph(&rng) : some_routing(&rng);
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *plan = NULL;
        fleet_status status;
        char name[32];
        CHECK_INT(fleet_graph_status(g), FLEET_OK);
        desc.topology = fleet_topology_make(1 + draw(&rng, 8), 2 + draw(&rng, 6));
        desc.schedule = schedules[draw(&rng, 4)];
        desc.chiplet_unaware = !draw(&rng, 8);
        desc.unfused = desc.schedule == FLEET_SCHEDULE_STATIC && !draw(&rng, 8);
        desc.early_push = !draw(&rng, 4);
        desc.max_work = LIMIT;
        snprintf(name, sizeof name, "seed %u", seed);
        too_long = name;
        taken = 0, begun = blocks;
        blocks_end = begun + 0x40000 + BLOCKS_PER_WORK * LIMIT;
        status = fleet_plan_build(g, &desc, &plan);
        used = blocks - begun, blocks_end = UINT64_MAX;
        if (used > most) most = used;
        if (taken > most_taken) most_taken = taken;
        if (status == FLEET_ERROR_TOO_MANY_TASKS) {
            CHECK(strstr(fleet_graph_error(g), "grid ") || strstr(fleet_graph_error(g), "tensor "));
            refused++;
        }
        planned += status == FLEET_OK;
        fleet_plan_free(plan);
        fleet_graph_destroy(g);
    }
    printf("    %u planned, %u refused; at most %.1f blocks and %.1f bytes for a piece of work\n",
           planned, refused, (double)most / LIMIT, (double)most_taken / LIMIT);
    CHECK(planned > (end - first) / 10 && refused > (end - first) / 10);
    CHECK(most_taken < 0x100000 + (size_t)BYTES_PER_WORK * LIMIT);
}

/* By default too, and the message says what the limit is. */
static void the_default_limit_is_named(test_run *t)
{
    const fleet_dim n = fleet_dim_of(0x7fffffff);
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_etensor done = fleet_event_tensor(g, "done", fleet_shape1(fleet_dim_of(8)), 0);
    const fleet_grid grid = fleet_call_device(g, "clipped", 0, fleet_shape1(n), 0);
    const uint64_t begun = blocks;
    fleet_plan *plan = NULL;
    char limit[32];
    fleet_out_edge_map(
        g, grid, done,
        fleet_map1(fleet_axis_clipped(0, 1, 0, 1, fleet_dim_of(0), fleet_dim_of(8))));
    too_long = "the default limit";
    blocks_end = begun + 0x100000;
    CHECK_INT(fleet_plan_build(g, NULL, &plan), FLEET_ERROR_TOO_MANY_TASKS);
    blocks_end = UINT64_MAX;
    CHECK_TEXT(fleet_graph_error(g), "grid clipped brings the work of planning to over");
    CHECK_TEXT(fleet_graph_error(g), "raise max_work of the plan's descriptor");
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)FLEET_MAX_WORK);
    CHECK_TEXT(fleet_graph_error(g), limit);
    fleet_graph_destroy(g);
}

static void list(test_run *t)
{
    TEST(work_is_linear);
    TEST(no_extent_takes_long);
    TEST(the_default_limit_is_named);
}

TEST_MAIN(list)
