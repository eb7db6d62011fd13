/* The time of a launch with one empty task: the claim of the state, the residency check, and the end of the run. By the
   device's clock, with what its runtime adds. Part of tests/bench/on_amd.sh. */
#include "bench.h"

typedef struct nothing {
    uint32_t unused;
} nothing;
FLEET_TILE(rest, nothing)
{
    FLEET_UNUSED(ctx), FLEET_UNUSED(args), FLEET_UNUSED(at);
    return FLEET_OK;
}
#define NOTHING_TILES(TILE_, P) TILE_(P, rest)
FLEET_DISPATCH(nothing, NOTHING_TILES)
FLEET_KERNEL(nothing_kernel, nothing, 256)
{
    FLEET_WORKER_LOOP(nothing);
}

#define LAUNCHES 4u

typedef struct launches {
    fleet_state state;
    fleet_launch_desc desc;
} launches;
static void run_launches(uint32_t n, void *context)
{
    launches *l = (launches *)context;
    while (n--) CHECKED(fleet_launch(&l->state, &l->desc, FLEET_KERNEL_OF(nothing_kernel), NULL));
}

int main(void)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan_desc d = fleet_plan_desc_default();
    fleet_state_desc state = fleet_state_desc_default();
    fleet_plan *plan = NULL;
    fleet_image image;
    launches l;
    l.desc = fleet_launch_desc_default();
    fleet_call_device(g, "rest", nothing_rest, fleet_shape0(), 0);
    CHECKED(fleet_topology_query(&d.topology));
    CHECKED(fleet_plan_build(g, &d, &plan));
    CHECKED(fleet_upload(&image, plan, NULL));
    CHECKED(fleet_state_create(&l.state, &image, &state, NULL));
    for (l.desc.ordinary = 0; l.desc.ordinary < 2; l.desc.ordinary++)
        printf("%s launch: %.1f us\n", l.desc.ordinary ? "ordinary" : "cooperative",
               median_us(run_launches, LAUNCHES, &l) / LAUNCHES);
    CHECKED(fleet_state_wait(&l.state, NULL));
    fleet_state_free(&l.state);
    fleet_image_free(&image);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
    return 0;
}
