/* The time of a launch with one empty task: the claim of the state, the residency check, and the end of the run. By the
   device's clock, with what its runtime adds. Part of tests/bench/on_amd.sh. */
#include "empty.h"

#define LAUNCHES 4u

typedef struct launches {
    planned p;
    fleet_launch_desc desc;
} launches;
static void run_launches(uint32_t n, void *context)
{
    launches *l = (launches *)context;
    while (n--) CHECKED(fleet_launch(&l->p.state, &l->desc, FLEET_KERNEL_OF(none_kernel), NULL));
}

int main(void)
{
    fleet_plan_desc d = fleet_plan_desc_default();
    launches l;
    l.desc = fleet_launch_desc_default();
    l.p.g = fleet_graph_create(NULL);
    fleet_call_device(l.p.g, "rest", none_empty, fleet_shape0(), 0);
    CHECKED(fleet_topology_query(&d.topology));
    planned_begin(&l.p, &d);
    for (l.desc.ordinary = 0; l.desc.ordinary < 2; l.desc.ordinary++)
        printf("%s launch: %.1f us\n", l.desc.ordinary ? "ordinary" : "cooperative",
               median_us(run_launches, LAUNCHES, &l) / LAUNCHES);
    planned_free(&l.p);
    return 0;
}
