/* What a symbol costs that is bound at launch: the host's time for fleet_bind, and a step whose tasks are looked at,
   some of them left out, against the plan that was built for that very value.

   nvcc -x cu -arch=sm_90 -std=c++17 -O3 -I. tests/bench/symbols.c -o symbols && ./symbols
   On the CPU it measures the threads engine, which says nothing of a GPU. */
#include "empty.h"

FLEET_GLOBAL(64) void idle_kernel(uint32_t *at)
{
    (void)at;
}
FLEET_THUNK1(idle_kernel, uint32_t *)

/* Rows of as many tasks as there are workers, each row after the one before. value: of the symbol; 0: at launch. */
static void plan_rows(planned *p, const fleet_topology *t, uint32_t workers, int64_t value)
{
    fleet_plan_desc d = fleet_plan_desc_default();
    fleet_dim rows, shape;
    fleet_etensor done;
    fleet_grid grid;
    p->g = fleet_graph_create(NULL);
    rows = fleet_symbol(p->g, "rows", 1, 16);
    shape = fleet_dim_times(rows, workers);
    done = fleet_event_tensor(p->g, "done", fleet_shape0(), FLEET_COUNT_DERIVED);
    grid = fleet_call_device(p->g, "first", none_empty, fleet_shape1(shape), 0);
    fleet_out_edge(p->g, grid, done, "i->");
    grid = fleet_call_device(p->g, "second", none_empty, fleet_shape1(shape), 0);
    fleet_in_edge(p->g, grid, done, "i->");
    d.topology = *t;
    if (value) fleet_bind_at_build(&d, rows, value);
    planned_begin(p, &d);
}

static double bind_us(planned *p, uint32_t calls)
{
    const uint64_t from = fleeti_now_ns();
    for (uint32_t i = 0; i < calls; i++) CHECKED(fleet_bind(&p->state, "rows", 1 + i % 16, 0));
    return (double)(fleeti_now_ns() - from) / 1e3 / calls;
}
static double kernel_us(uint32_t calls)
{
    fleet_kernel_desc d = fleet_kernel_desc_default();
    uint32_t *nothing = NULL;
    void *args[1];
    const uint64_t from = fleeti_now_ns();
    args[0] = &nothing;
    d.threads = 64;
    for (uint32_t i = 0; i < calls; i++)
        CHECKED(fleet_kernel_launch(FLEET_KERNEL_OF(idle_kernel), args, &d));
    return (double)(fleeti_now_ns() - from) / 1e3 / calls;
}

int main(void)
{
    static const int64_t values[] = {16, 11, 5};
    planned p;
    fleet_topology topology;
    uint32_t workers = 0;
    double bind, kernel;
    CHECKED(fleet_topology_query(&topology));
    for (uint32_t k = 0; k < topology.chiplets; k++) workers += topology.units[k];
    printf("%s: %u workgroups\n", topology.name, workers);
    plan_rows(&p, &topology, workers, 0);
    bind_us(&p, 100); /* the first ones load the kernel */
    CHECKED(fleet_stream_wait(0));
    bind = bind_us(&p, 500); /* fewer than a stream takes before it makes the host wait */
    CHECKED(fleet_stream_wait(0));
    kernel_us(100);
    CHECKED(fleet_stream_wait(0));
    kernel = kernel_us(500);
    CHECKED(fleet_stream_wait(0));
    line("fleet_bind, time of the host", bind, "us", "launch of an empty kernel", kernel);
    for (uint32_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        planned exact;
        char name[80];
        double at_launch, at_build;
        CHECKED(fleet_bind(&p.state, "rows", values[i], 0));
        at_launch = per_unit_us(run_planned, 50, &p);
        plan_rows(&exact, &topology, workers, values[i]);
        at_build = per_unit_us(run_planned, 50, &exact);
        planned_free(&exact);
        snprintf(name, sizeof name, "step of 2 x %d empty tasks a worker, bound at launch",
                 (int)values[i]);
        line(name, at_launch, "us", "bound at build", at_build);
    }
    planned_free(&p);
    return 0;
}
