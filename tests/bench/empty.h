/* Plans of empty tasks, for launch.c, sync.c and symbols.c. */
#ifndef FLEET_BENCH_EMPTY_H
#define FLEET_BENCH_EMPTY_H

#include "bench.h"

typedef struct none {
    uint32_t unused;
} none;
FLEET_TILE(empty, none)
{
    FLEET_UNUSED(ctx), FLEET_UNUSED(args), FLEET_UNUSED(at);
    return FLEET_OK;
}
#define NONE_TILES(TILE, P) TILE(P, empty)
FLEET_DISPATCH(none, NONE_TILES)
FLEET_KERNEL(none_kernel, none, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(none);
}

typedef struct planned {
    fleet_graph *g;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
} planned;

static void planned_begin(planned *p, const fleet_plan_desc *d)
{
    if (fleet_plan_build(p->g, d, &p->plan)) {
        fprintf(stderr, "%s\n", fleet_graph_error(p->g));
        exit(1);
    }
    CHECKED(fleet_upload(&p->image, p->plan, 0));
    CHECKED(fleet_state_create(&p->state, &p->image, NULL, 0));
}
static void planned_free(planned *p)
{
    CHECKED(fleet_state_wait(&p->state, 0));
    fleet_state_free(&p->state);
    fleet_image_free(&p->image);
    fleet_plan_free(p->plan);
    fleet_graph_destroy(p->g);
}
static __attribute__((unused)) void run_planned(uint32_t steps, void *context)
{
    planned *p = (planned *)context;
    fleet_launch_desc d = fleet_launch_desc_default();
    d.steps = steps;
    CHECKED(fleet_launch(&p->state, &d, FLEET_KERNEL_OF(none_kernel), NULL));
}

#endif
