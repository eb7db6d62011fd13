/* The work of building, planning and checking a graph grows linearly with the graph. The test counts work, not time:
   the compiler makes each basic block of the header call __sanitizer_cov_trace_pc. */
// run: plain whole -O0 -fsanitize-coverage=trace-pc
#include "walk.h"

static uint64_t blocks;

__attribute__((no_sanitize_coverage)) void __sanitizer_cov_trace_pc(void);
__attribute__((no_sanitize_coverage)) void __sanitizer_cov_trace_pc(void)
{
    blocks++;
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

static void list(test_run *t)
{
    TEST(work_is_linear);
}

TEST_MAIN(list)
