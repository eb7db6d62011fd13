/* What synchronisation costs, on the GPU at hand, against the best that the same GPU offers without the
   kit, in the same run. Prints one line each: name, value, unit, baseline, its value, ratio.

   nvcc -x cu -arch=sm_90 -std=c++17 -O3 -I. tests/bench/sync.c -o sync && ./sync
   On the CPU it measures the threads engine, which says nothing of a GPU. */
#include "empty.h"

#if defined(FLEET_CUDA)
#include <cooperative_groups.h>
#endif

/* ---- an event at which all arrive and for which all wait, by hand ---- */

FLEET_EVENT_TENSOR1(gate, elements)

FLEET_GLOBAL(1024) void barrier_by_hand(gate g, uint32_t from, uint32_t n)
{
    for (uint32_t e = from + 1; e != from + n + 1; e++) {
        fleet_notify_device(FLEET_BLOCK, gate_at(&g, 0), e);
        if (fleet_wait_device(FLEET_BLOCK, gate_at(&g, 0), e)) return;
    }
}
FLEET_THUNK3(barrier_by_hand, gate, uint32_t, uint32_t)

FLEET_GLOBAL(1024)
void ping_by_hand(gate g, uint32_t from, uint32_t n, uint32_t partner, uint32_t group)
{
    uint32_t second = fleet_block_id() == partner;
    if (fleet_block_id() != 0 && !second) return;
    for (uint32_t e = from + 1; e != from + n + 1; e++) {
        if (!second) fleet_notify_device(group, gate_at(&g, 0), e);
        if (fleet_wait_device(group, gate_at(&g, second ? 0 : 1), e)) return;
        if (second) fleet_notify_device(group, gate_at(&g, 1), e);
    }
}
FLEET_THUNK5(ping_by_hand, gate, uint32_t, uint32_t, uint32_t, uint32_t)

typedef struct by_hand {
    gate g;
    uint32_t blocks, threads, epoch, partner, group;
} by_hand;

static void run_barrier(uint32_t n, void *context)
{
    by_hand *b = (by_hand *)context;
    fleet_kernel_desc d = fleet_kernel_desc_default();
    void *args[3];
    args[0] = &b->g, args[1] = &b->epoch, args[2] = &n;
    d.blocks = b->blocks;
    d.threads = b->threads;
    d.cooperative = 1;
    CHECKED(fleet_kernel_launch(FLEET_KERNEL_OF(barrier_by_hand), args, &d));
    b->epoch += n;
}
static void run_ping(uint32_t n, void *context)
{
    by_hand *b = (by_hand *)context;
    fleet_kernel_desc d = fleet_kernel_desc_default();
    void *args[5];
    args[0] = &b->g, args[1] = &b->epoch, args[2] = &n, args[3] = &b->partner;
    args[4] = &b->group;
    d.blocks = b->blocks;
    d.threads = b->threads;
    CHECKED(fleet_kernel_launch(FLEET_KERNEL_OF(ping_by_hand), args, &d));
    b->epoch += n;
}

/* ---- baselines ---- */

#if defined(FLEET_CUDA)
static __global__ void grid_sync(uint32_t n)
{
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    for (uint32_t i = 0; i < n; i++) grid.sync();
}
static void run_grid_sync(uint32_t n, void *context)
{
    by_hand *b = (by_hand *)context;
    void *args[1];
    args[0] = &n;
    cudaLaunchCooperativeKernel((const void *)grid_sync, dim3(b->blocks), dim3(b->threads), args, 0,
                                0);
}
static __global__ void nothing(void) {}
typedef struct empty_graph {
    cudaGraphExec_t exec;
    uint32_t kernels;
} empty_graph;
static void run_graph(uint32_t n, void *context)
{
    for (uint32_t i = 0; i < n; i++) cudaGraphLaunch(((empty_graph *)context)->exec, 0);
}
static double graph_boundary_us(uint32_t blocks, uint32_t threads)
{
    empty_graph g;
    cudaGraph_t graph;
    cudaStream_t stream;
    double us;
    g.kernels = 500;
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    for (uint32_t i = 0; i < g.kernels; i++) nothing<<<blocks, threads, 0, stream>>>();
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&g.exec, graph, 0);
    us = per_unit_us(run_graph, 5, &g) / g.kernels;
    cudaGraphExecDestroy(g.exec);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
    return us;
}
/* One thread's release store to another's acquire poll: the least that a flag costs. */
static __global__ void raw_ping(uint32_t *flag, uint32_t from, uint32_t n, uint32_t partner)
{
    uint32_t second = blockIdx.x == partner, v;
    if ((blockIdx.x != 0 && !second) || threadIdx.x != 0) return;
    for (uint32_t e = from + 1; e != from + n + 1; e++) {
        if (!second)
            asm volatile("st.release.gpu.global.u32 [%0],%1;" ::"l"(flag), "r"(e) : "memory");
        do
            asm volatile("ld.acquire.gpu.global.u32 %0,[%1];"
                         : "=r"(v)
                         : "l"(flag + (second ? 0 : 32))
                         : "memory");
        while (v != e);
        if (second)
            asm volatile("st.release.gpu.global.u32 [%0],%1;" ::"l"(flag + 32), "r"(e) : "memory");
    }
}
static void run_raw_ping(uint32_t n, void *context)
{
    by_hand *b = (by_hand *)context;
    raw_ping<<<b->blocks, b->threads>>>(b->g.events.words, b->epoch, n, b->partner);
    b->epoch += n;
}
#endif

/* ---- plans ---- */

#define LAYERS 100
typedef enum shape { NO_EVENTS, OWN_EVENTS, BARRIERS, CHIPLET_CHAIN } shape;

/* LAYERS grids: of one task per worker without events; with an event from each task to the same worker's next,
   which is always complete; with an event that all wait for; or chiplet-tasks in a chain. */
static planned planned_of(const fleet_topology *t, shape kind, fleet_schedule schedule,
                          uint32_t levels)
{
    planned p;
    fleet_plan_desc d = fleet_plan_desc_default();
    fleet_etensor before, after;
    uint32_t workers = 0;
    d.topology = *t;
    d.schedule = schedule;
    d.counter_levels = levels;
    for (uint32_t k = 0; k < t->chiplets; k++) workers += t->units[k];
    p.g = fleet_graph_create(NULL);
    before.id = 0;
    for (uint32_t i = 0; i < LAYERS; i++) {
        char name[2][16];
        fleet_grid grid;
        snprintf(name[0], sizeof name[0], "g%u", i);
        snprintf(name[1], sizeof name[1], "E%u", i);
        grid = fleet_call_device(
            p.g, name[0], 0,
            kind == CHIPLET_CHAIN ? fleet_shape0() : fleet_shape1(fleet_dim_of(workers)), i);
        if (kind == CHIPLET_CHAIN) fleet_grid_level(p.g, grid, FLEET_LEVEL_DEVICE);
        if (kind == NO_EVENTS) continue;
        after = fleet_event_tensor(
            p.g, name[1], kind == OWN_EVENTS ? fleet_shape1(fleet_dim_of(workers)) : fleet_shape0(),
            FLEET_COUNT_DERIVED);
        fleet_out_edge(p.g, grid, after,
                       kind == OWN_EVENTS ? "i->i"
                       : kind == BARRIERS ? "i->"
                                          : "->");
        if (i)
            fleet_in_edge(p.g, grid, before,
                          kind == OWN_EVENTS ? "i->i"
                          : kind == BARRIERS ? "i->"
                                             : "->");
        before = after;
    }
    planned_begin(&p, &d);
    return p;
}
static double planned_us(const fleet_topology *t, shape kind, fleet_schedule schedule,
                         uint32_t levels)
{
    planned p = planned_of(t, kind, schedule, levels);
    double us = per_unit_us(run_planned, 20, &p) / LAYERS;
    planned_free(&p);
    return us;
}

/* ---- dispatch, by the device's own clock ---- */

typedef struct stamps {
    uint64_t *began, *ended; /* by worker; of the last step */
} stamps;
FLEET_TILE(stamp, stamps)
{
    FLEET_UNUSED(at);
    if (ctx.thread == 0) {
        args->began[ctx.worker] = fleet_clock_ticks();
        args->ended[ctx.worker] = fleet_clock_ticks();
    }
    return FLEET_OK;
}
#define STAMP_TILES(TILE, P) TILE(P, stamp)
FLEET_DISPATCH(stamps, STAMP_TILES)
FLEET_KERNEL(stamp_kernel, stamps, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(stamps);
}

/* A chain of chiplet-tasks on one chiplet: from the end of the last worker's tile, notify included, to the
   beginning of the first one of the next. Mean, in us. */
static double dispatch_us(const fleet_topology *t, fleet_schedule schedule)
{
    planned p = planned_of(t, CHIPLET_CHAIN, schedule, 2);
    const uint32_t workers = p.plan->workers[0]; /* the chain is on the first chiplet */
    const size_t row = workers * sizeof(uint64_t), bytes = LAYERS * 2 * row;
    fleet_launch_desc d = fleet_launch_desc_default();
    uint64_t *times = (uint64_t *)malloc(bytes);
    stamps args[LAYERS];
    void *device, *device_args;
    double sum = 0;
    CHECKED(fleet_device_alloc(&device, bytes));
    CHECKED(fleet_device_alloc(&device_args, sizeof args));
    for (uint32_t i = 0; i < LAYERS; i++) {
        args[i].began = (uint64_t *)device + 2 * i * workers;
        args[i].ended = args[i].began + workers;
    }
    CHECKED(fleet_to_device(device_args, args, sizeof args, 0));
    d.steps = 5;
    CHECKED(fleet_launch(&p.state, &d, FLEET_KERNEL_OF(stamp_kernel), device_args));
    CHECKED(fleet_to_host(times, device, bytes, 0));
    for (uint32_t i = 1; i < LAYERS; i++) {
        const uint64_t *ended = times + (2 * i - 1) * workers, *began = times + 2 * i * workers;
        uint64_t last = ended[0], first = began[0];
        for (uint32_t w = 1; w < workers; w++) {
            if (ended[w] > last) last = ended[w];
            if (began[w] < first) first = began[w];
        }
        sum += (double)(int64_t)(first - last);
    }
    fleet_device_free(device);
    fleet_device_free(device_args);
    free(times);
    planned_free(&p);
    return sum / (LAYERS - 1) * FLEETI_CLOCK_NS / 1e3;
}

int main(void)
{
    fleet_topology topology;
    by_hand b;
    void *words;
    double sync32 = 0, sync256 = 0, raw = 0, boundary = 0, hand;
    CHECKED(fleet_topology_query(&topology));
    memset(&b, 0, sizeof b);
    for (uint32_t k = 0; k < topology.chiplets; k++) b.blocks += topology.units[k];
    printf("%s: %u workgroups on %u chiplets\n", topology.name, b.blocks, topology.chiplets);
    b.g.elements = 2;
    b.g.events.target = b.blocks;
    CHECKED(fleet_device_alloc(&words, 4096));
    b.g.events.words = (uint32_t *)words;

#if defined(FLEET_CUDA)
    b.threads = 32;
    sync32 = per_unit_us(run_grid_sync, 500, &b);
    b.threads = 256;
    sync256 = per_unit_us(run_grid_sync, 500, &b);
    boundary = graph_boundary_us(b.blocks, 256);
#endif
    for (uint32_t threads = 32; threads <= 256; threads += 224) {
        double sync = threads == 32 ? sync32 : sync256;
        CHECKED(fleet_device_clear(words, 4096, 0));
        b.epoch = 0;
        b.threads = threads;
        hand = per_unit_us(run_barrier, 500, &b);
        line(threads == 32 ? "all arrive, all wait, by hand, 32 threads"
                           : "all arrive, all wait, by hand, 256 threads",
             hand, "us", "grid.sync", sync);
    }
    line("  the same", hand, "us", "empty kernels in a graph", boundary);
    line("all arrive, all wait, STATIC plan, 256 threads",
         planned_us(&topology, BARRIERS, FLEET_SCHEDULE_STATIC, 2), "us", "grid.sync", sync256);
    {
        static const uint32_t virtual_chiplets[] = {2, 4, 11};
        for (uint32_t i = 0; i < 3 && virtual_chiplets[i] <= b.blocks; i++)
            for (uint32_t levels = 1; levels <= 2; levels++) {
                char name[80];
                fleet_topology t = topology;
                t.chiplets = virtual_chiplets[i];
                for (uint32_t k = 0; k < t.chiplets; k++)
                    t.units[k] = b.blocks / t.chiplets + (k < b.blocks % t.chiplets);
                snprintf(name, sizeof name, "  the same, %u virtual chiplets, %u counter level%s",
                         t.chiplets, levels, levels > 1 ? "s" : "");
                line(name, planned_us(&t, BARRIERS, FLEET_SCHEDULE_STATIC, levels), "us",
                     "grid.sync", sync256);
            }
    }

    b.threads = 32;
    b.g.events.target = 1;
    for (b.group = FLEET_WAVE; b.group <= FLEET_BLOCK; b.group++) {
        double notify[8], flag[8];
        uint32_t n = 0;
        for (uint32_t partner = 1; partner < b.blocks && n < 8; partner += b.blocks / 8 + 1, n++) {
            b.partner = partner;
            CHECKED(fleet_device_clear(words, 4096, 0));
            b.epoch = 0;
            notify[n] = per_unit_us(run_ping, 1000, &b) / 2;
            flag[n] = 0;
#if defined(FLEET_CUDA)
            CHECKED(fleet_device_clear(words, 4096, 0));
            b.epoch = 0;
            flag[n] = per_unit_us(run_raw_ping, 1000, &b) / 2;
#endif
        }
        qsort(notify, n, sizeof notify[0], by_value);
        qsort(flag, n, sizeof flag[0], by_value);
        raw = flag[n / 2];
        line(b.group == FLEET_WAVE ? "notify to wait, one warp, as a wave, median of pairs"
                                   : "notify to wait, one warp, as a block, median of pairs",
             notify[n / 2] * 1e3, "ns", "raw flag", raw * 1e3);
    }

    line("static task: empty tile, no events, 256 threads",
         planned_us(&topology, NO_EVENTS, FLEET_SCHEDULE_STATIC, 2), "us", "limit 0.25", 0.25);
    line("static task: one event in, one out, always complete",
         planned_us(&topology, OWN_EVENTS, FLEET_SCHEDULE_STATIC, 2), "us", "", 0);
    {
        fleet_topology one = topology; /* clocks of one chiplet are compared */
        one.chiplets = 1;
        line("CHIPLET: last tile, its event, dispatch, first next tile",
             dispatch_us(&one, FLEET_SCHEDULE_CHIPLET), "us", "limit 2.5", 2.5);
        line("STATIC: last tile, its event, first next tile",
             dispatch_us(&one, FLEET_SCHEDULE_STATIC), "us", "", 0);
    }
    line("CHIPLET: chiplet-task to chiplet-task, whole round",
         planned_us(&topology, CHIPLET_CHAIN, FLEET_SCHEDULE_CHIPLET, 2), "us", "", 0);
    line("STATIC: the same chain", planned_us(&topology, CHIPLET_CHAIN, FLEET_SCHEDULE_STATIC, 2),
         "us", "", 0);
    fleet_device_free(words);
    return 0;
}
