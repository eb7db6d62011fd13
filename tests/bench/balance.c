/* Tasks of uneven length without events: how near each schedule comes to the time in which no worker would ever be
   idle. One task in sixteen takes sixteen times as long as the others.

   nvcc -x cu -arch=sm_90 -std=c++17 -O3 -I. tests/bench/balance.c -o balance && ./balance
   On the CPU it measures the threads engine, which says nothing of a GPU. */
#include "bench.h"
#include "examples/parts/fleet_calibrate.h"

typedef struct work {
    uint32_t short_ticks;
    uint32_t *length; /* of each task, in units of the short ones */
} work;

/* One in sixteen is long, without a pattern: by the finalizer of MurmurHash3. */
static uint32_t length_of(uint32_t task)
{
    uint32_t h = task + 1;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return (h ^ h >> 16) >> 28 == 0 ? 16 : 1;
}
FLEET_TILE(spin, work)
{
    const uint64_t begun = fleet_clock_ticks();
    const uint64_t ticks = (uint64_t)args->short_ticks * args->length[at[0]];
    FLEET_UNUSED(ctx);
    while (fleet_clock_ticks() - begun < ticks) {
    }
    return FLEET_OK;
}
#define WORK_TILES(TILE, P) TILE(P, spin)
FLEET_DISPATCH(work, WORK_TILES)
FLEET_KERNEL(work_kernel, work, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(work);
}

typedef struct planned {
    fleet_state state;
    void *args;
} planned;

static void run_planned(uint32_t steps, void *context)
{
    planned *p = (planned *)context;
    fleet_launch_desc d = fleet_launch_desc_default();
    d.steps = steps;
    CHECKED(fleet_launch(&p->state, &d, FLEET_KERNEL_OF(work_kernel), p->args));
}

/* AUTO is told what these lengths are on average, and how they vary. */
static double step_us(const fleet_topology *t, fleet_schedule schedule,
                      const fleet_overheads *costs, uint32_t *length, uint32_t tasks,
                      uint32_t short_us)
{
    planned p;
    work w;
    fleet_image image;
    fleet_plan *plan;
    fleet_plan_desc d = fleet_plan_desc_default();
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_grid spin;
    double us;
    d.topology = *t;
    d.schedule = schedule;
    d.costs = *costs;
    spin = fleet_call_device(g, "spin", work_spin, fleet_shape1(fleet_dim_of((int32_t)tasks)), 0);
    fleet_grid_cost(g, spin, short_us * 31 * 1000 / 16, 187, 0);
    if (fleet_plan_build(g, &d, &plan)) {
        fprintf(stderr, "%s\n", fleet_graph_error(g));
        exit(1);
    }
    w.short_ticks = short_us * 1000 / FLEETI_CLOCK_NS;
    w.length = length;
    CHECKED(fleet_device_alloc(&p.args, sizeof w));
    CHECKED(fleet_to_device(p.args, &w, sizeof w, 0));
    CHECKED(fleet_upload(&image, plan, 0));
    CHECKED(fleet_state_create(&p.state, &image, NULL, 0));
    us = per_unit_us(run_planned, 5, &p);
    CHECKED(fleet_state_wait(&p.state, 0));
    fleet_state_free(&p.state);
    fleet_image_free(&image);
    fleet_device_free(p.args);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
    return us;
}

static fleet_overheads measured(const fleet_topology *t)
{
    fleet_overheads c;
    fleet_launch_desc d = fleet_launch_desc_default();
    d.steps = 100;
    CHECKED(fleet_calibrate(&c, t, &d, FLEET_KERNEL_OF(work_kernel), NULL));
    line("a task from a fixed queue (fleet_calibrate)", (double)c.static_task / 1e3, "us", "", 0);
    line("  to the next grid", (double)c.static_hop / 1e3, "us", "", 0);
    line("a task from a fixed queue beside ready queues", (double)c.mixed_task / 1e3, "us", "", 0);
    line("  to the next grid", (double)c.mixed_hop / 1e3, "us", "", 0);
    line("a task from a ready queue", (double)c.dynamic_task / 1e3, "us", "", 0);
    line("  to the next grid", (double)c.dynamic_hop / 1e3, "us", "", 0);
    return c;
}

int main(void)
{
    static const uint32_t lengths[] = {2, 10, 50};
    fleet_topology topology;
    fleet_overheads costs;
    uint32_t workers = 0, tasks, units = 0, *length, *memory;
    void *device;
    CHECKED(fleet_topology_query(&topology));
    for (uint32_t k = 0; k < topology.chiplets; k++) workers += topology.units[k];
    printf("%s: %u workgroups\n", topology.name, workers);
    costs = measured(&topology);
    tasks = 16 * workers;
    length = (uint32_t *)malloc(tasks * sizeof *length);
    for (uint32_t i = 0; length && i < tasks; i++) units += length[i] = length_of(i);
    CHECKED(length ? fleet_device_alloc(&device, tasks * sizeof *length) : FLEET_ERROR_MEMORY);
    CHECKED(fleet_to_device(device, length, tasks * sizeof *length, 0));
    memory = (uint32_t *)device;
    for (uint32_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const double never_idle = (double)units * lengths[i] / workers;
        const double fixed =
            step_us(&topology, FLEET_SCHEDULE_STATIC, &costs, memory, tasks, lengths[i]);
        const double dealt =
            step_us(&topology, FLEET_SCHEDULE_CHIPLET, &costs, memory, tasks, lengths[i]);
        const double popped =
            step_us(&topology, FLEET_SCHEDULE_DYNAMIC, &costs, memory, tasks, lengths[i]);
        const double chosen =
            step_us(&topology, FLEET_SCHEDULE_AUTO, &costs, memory, tasks, lengths[i]);
        char name[80];
        snprintf(name, sizeof name, "16 tasks a worker, %u or %u us, STATIC", lengths[i],
                 16 * lengths[i]);
        line(name, fixed, "us", "no worker ever idle", never_idle);
        line("  the same, CHIPLET", dealt, "us", "no worker ever idle", never_idle);
        line("  the same, DYNAMIC", popped, "us", "no worker ever idle", never_idle);
        line("  the same, DYNAMIC", popped, "us", "STATIC", fixed);
        line("  the same, AUTO", chosen, "us", "the better of both",
             fixed < popped ? fixed : popped);
    }
    fleet_device_free(device);
    free(length);
    return 0;
}
