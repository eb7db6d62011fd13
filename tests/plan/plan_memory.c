/* Out of memory at every allocation in turn: FLEET_ERROR_MEMORY, nothing leaks, and the graph builds once
   there is memory again. */
// run: asan whole
#include <stddef.h>
#include <stdlib.h>

static long allocations, fail_at = -1, live;

static void *counted_malloc(size_t bytes)
{
    void *p;
    if (++allocations == fail_at) return NULL;
    p = malloc(bytes);
    if (p) live++;
    return p;
}

static void counted_free(void *p)
{
    live--;
    free(p);
}

#define FLEET_MALLOC(bytes) counted_malloc(bytes)
#define FLEET_FREE(p) counted_free(p)
#include "walk.h"

static fleet_grid small_p, small_d; /* of the last small graph */

static fleet_graph *small_graph(void)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim two = fleet_dim_of(2);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(two), 0);
    fleet_etensor F = fleet_event_tensor(g, "F", fleet_shape0(), 0);
    fleet_grid p = fleet_call_device(g, "p", 0, fleet_shape2(two, fleet_dim_of(3)), 0);
    fleet_grid d = fleet_call_device(g, "d", 1, fleet_shape0(), 0);
    fleet_buffer b = fleet_declare_buffer(g, "b");
    fleet_grid_level(g, d, FLEET_LEVEL_DEVICE);
    fleet_out_edge(g, p, E, "ij->i");
    fleet_out_edge(g, p, F, "ij->");
    fleet_in_edge(g, d, E, "->e");
    fleet_in_edge(g, d, F, "->");
    fleet_grid_reads(g, p, b);
    fleet_grid_writes(g, d, b);
    small_p = p, small_d = d;
    return g;
}

/* A cycle, so that the search for it allocates too. */
static fleet_graph *cyclic_graph(void)
{
    fleet_graph *g = small_graph();
    fleet_etensor back = fleet_event_tensor(g, "back", fleet_shape0(), 0);
    fleet_out_edge(g, small_d, back, "->");
    fleet_in_edge(g, small_p, back, "ij->");
    return g;
}

static void sweep(test_run *t, fleet_graph *(*make)(void), fleet_status want)
{
    long n, failures = 0;
    for (n = 1;; n++) {
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *plan = NULL;
        fleet_graph *g;
        fleet_status status;
        desc.topology = fleet_topology_make(2, 2);
        CHECK_INT(live, 0);
        allocations = 0;
        fail_at = n;
        g = make();
        status = fleet_plan_build(g, &desc, &plan);
        if (allocations < n) {
            CHECK_INT(status, want);
            fleet_plan_free(plan);
            fleet_graph_destroy(g);
            break;
        }
        failures++;
        CHECK(plan == NULL);
        CHECK_INT(status, g ? FLEET_ERROR_MEMORY : FLEET_ERROR_NULL);
        if (g) CHECK_TEXT(fleet_graph_error(g), "no memory for the");
        fleet_graph_destroy(g);
    }
    fail_at = -1;
    CHECK(failures > 20);
    CHECK_INT(live, 0);
}

static void out_of_memory(test_run *t)
{
    sweep(t, small_graph, FLEET_OK);
    sweep(t, cyclic_graph, FLEET_ERROR_CYCLE);
}

static void a_failed_build_leaves_the_graph(test_run *t)
{
    fleet_graph *g = small_graph();
    fleet_plan *plan;
    long n;
    for (n = 1; n < 20; n++) {
        allocations = 0;
        fail_at = n;
        CHECK_INT(fleet_plan_build(g, NULL, &plan), FLEET_ERROR_MEMORY);
        fail_at = -1;
        CHECK_INT(fleet_plan_build(g, NULL, &plan), FLEET_OK);
        fleet_plan_free(plan);
    }
    fleet_graph_destroy(g);
    CHECK_INT(live, 0);
}

static void list(test_run *t)
{
    TEST(out_of_memory);
    TEST(a_failed_build_leaves_the_graph);
}

TEST_MAIN(list)
