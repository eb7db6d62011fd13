/* The time of a launch with one empty task: the claim of the state, the residency check if there is
   one, and the end of the run. In a stream, and on a GPU in a graph of launches; beside two empty
   kernels of the same size, since a launch is two. Part of tests/bench/compare.sh. */
#include "empty.h"

#define LAUNCHES 50u

typedef struct launches {
    planned p;
    fleet_launch_desc desc;
} launches;
static void run_launches(uint32_t n, void *context)
{
    launches *l = (launches *)context;
    while (n--) CHECKED(fleet_launch(&l->p.state, &l->desc, FLEET_KERNEL_OF(none_kernel), NULL));
}

#if !defined(FLEET_HOST)
FLEET_GLOBAL(256) void nothing(uint32_t unused)
{
    FLEET_UNUSED(unused);
}
FLEET_THUNK1(nothing, uint32_t)

/* The same without the kit: a kernel of one workgroup, and one of all. */
static void run_pairs(uint32_t n, void *context)
{
    const launches *l = (const launches *)context;
    fleet_kernel_desc d = fleet_kernel_desc_default();
    uint32_t unused = 0;
    void *args[1];
    args[0] = &unused;
    d.threads = 256, d.stream = l->desc.stream;
    while (n--)
        for (uint32_t all = 0; all < 2; all++) {
            d.blocks = all ? l->p.state.blocks : 1;
            CHECKED(fleet_kernel_launch(FLEET_KERNEL_OF(nothing), args, &d));
        }
}

typedef struct graph_of {
    FLEETI_RT(GraphExec_t) exec;
    FLEETI_RT(Stream_t) stream;
} graph_of;
static void run_graph(uint32_t n, void *context)
{
    const graph_of *g = (const graph_of *)context;
    while (n--) FLEETI_RT(GraphLaunch)(g->exec, g->stream);
    FLEETI_RT(StreamSynchronize)(g->stream);
}
/* Of each of n units of work in a graph of them. */
static double graph_us(work_fn run, uint32_t n, launches *l)
{
    graph_of g;
    FLEETI_RT(Graph_t) graph;
    double us;
    FLEETI_RT(StreamCreateWithFlags)(&g.stream, FLEETI_RT(StreamNonBlocking));
    l->desc.stream = g.stream;
    FLEETI_RT(StreamBeginCapture)(g.stream, FLEETI_RT(StreamCaptureModeRelaxed));
    run(n, l);
    FLEETI_RT(StreamEndCapture)(g.stream, &graph);
    if (FLEETI_RT(GraphInstantiateWithFlags)(&g.exec, graph, 0)) {
        fprintf(stderr, "no graph of these launches\n");
        exit(1);
    }
    us = per_unit_us(run_graph, 4, &g) / n;
    FLEETI_RT(GraphExecDestroy)(g.exec);
    FLEETI_RT(GraphDestroy)(graph);
    FLEETI_RT(StreamDestroy)(g.stream);
    l->desc.stream = NULL;
    return us;
}
#endif

int main(void)
{
    fleet_plan_desc d = fleet_plan_desc_default();
    launches l;
    l.desc = fleet_launch_desc_default();
    l.p.g = fleet_graph_create(NULL);
    fleet_call_device(l.p.g, "rest", none_empty, fleet_shape0(), 0);
    CHECKED(fleet_topology_query(&d.topology));
    planned_begin(&l.p, &d);
    for (l.desc.ordinary = 0; l.desc.ordinary < 2; l.desc.ordinary++) {
        const char *name = l.desc.ordinary ? "ordinary" : "cooperative";
        printf("%s launch: %.1f us\n", name, per_unit_us(run_launches, LAUNCHES, &l));
#if !defined(FLEET_HOST)
        printf("%s launch in a graph: %.1f us\n", name, graph_us(run_launches, LAUNCHES, &l));
#endif
    }
#if !defined(FLEET_HOST)
    printf("two empty kernels: %.1f us\n", per_unit_us(run_pairs, LAUNCHES, &l));
    printf("two empty kernels in a graph: %.1f us\n", graph_us(run_pairs, LAUNCHES, &l));
#endif
    planned_free(&l.p);
    return 0;
}
