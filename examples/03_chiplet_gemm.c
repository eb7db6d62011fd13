/* 03: one matrix product for all workers of all chiplets: a device-task.

   C = A B, A [M, K] and B [K, N] in bf16, sums and C in float. Example 01 had CU-tasks, one workgroup each. Here
   the product is a single task of the graph: the columns are split over the chiplets, so that each chiplet
   reads its own part of the weights B and nothing else; and all workers of a chiplet share the tiles of its
   part, walking M first, so that workers that run at the same time read the same columns of B from their L2.

   Then row_max(i) needs all of row i, and so all chiplets. The event between them gets one arrival from each
   chiplet, whatever the number of workers. The program prints how many arrivals and releases the plan counts, here and on
   an MI300X, beside those of a plan in which every worker arrives by itself. */
#define FLEET_IMPLEMENTATION
#include "fleet_sched.h"
#include "parts/fleet_linear.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define M 150 /* N is no multiple of the chiplets, M none of a tile */
#define N 301
#define K 64
#define TILE_M 16
#define TILE_N 16
#define THREADS 256

/* bf16: the upper half of a float. */
typedef uint16_t bf16;

FLEET_HOST_DEVICE float bf16_to_float(bf16 x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* To the nearest, ties to even. */
static bf16 bf16_from_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (f != f) return 0x7fc0;
    return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

typedef struct gemm {
    fleet_linear
        linear; /* how the product is split over the chiplets, and the order of their tiles */
    const bf16 *a, *b;
    float *c;
    float *most; /* [M]: the maximum of each row of C */
} gemm;

/* Computes the workgroup's tile of C. A tile of your own, with matrix instructions, goes here. */
FLEET_DEVICE void multiply_tile(const gemm *g, const fleet_tile_iterator *tile, uint32_t thread,
                                uint32_t threads)
{
    for (uint32_t i = thread; i < tile->rows * TILE_N; i += threads) {
        uint32_t m = tile->row + i / TILE_N, n = tile->column + i % TILE_N;
        float sum = 0;
        if (i % TILE_N >= tile->columns) continue;
        for (uint32_t k = 0; k < K; k++)
            sum += bf16_to_float(g->a[m * K + k]) * bf16_to_float(g->b[k * N + n]);
        g->c[m * N + n] = sum;
    }
}

/* Runs on every worker of every chiplet. Slice s of the device-task is a chiplet's share: a run of columns. Its
   workers take every tile_num-th tile of it. */
FLEET_TILE(multiply, gemm)
{
    FLEET_UNUSED(at);
    FLEET_FOR_TILES(tile, &args->linear, ctx)
    {
        multiply_tile(args, &tile, ctx.thread, ctx.threads);
    }
    return FLEET_OK;
}

FLEET_TILE(row_max, gemm)
{
    const float *c = args->c + (size_t)at[0] * N;
    float most = -FLT_MAX;
    FLEET_LDS(float, part, THREADS);
    for (uint32_t n = ctx.thread; n < N; n += ctx.threads) most = c[n] > most ? c[n] : most;
    part[ctx.thread] = most;
    fleet_barrier(&ctx);
    if (ctx.thread == 0) {
        for (uint32_t i = 1; i < ctx.threads; i++) most = part[i] > most ? part[i] : most;
        args->most[at[0]] = most;
    }
    return FLEET_OK;
}

#define GEMM_TILES(TILE, P) TILE(P, multiply) TILE(P, row_max)
FLEET_DISPATCH(gemm, GEMM_TILES)

FLEET_KERNEL(gemm_kernel, gemm, FLEET_ANY_THREADS(THREADS))
{
    FLEET_WORKER_LOOP(gemm);
}

/* The kit returns statuses. This program ends with the first failure. */
static void check(const char *what, fleet_status status)
{
    if (!status) return;
    printf("wrong: %s: %s\n", what, fleet_status_text(status));
    exit(1);
}

static fleet_graph *describe(void)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor done = fleet_event_tensor(g, "done", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_grid product = fleet_call_device(g, "multiply", gemm_multiply, fleet_shape0(), 0);
    fleet_grid rows =
        fleet_call_device(g, "row_max", gemm_row_max, fleet_shape1(fleet_dim_of(M)), 0);
    fleet_grid_level(g, product, FLEET_LEVEL_DEVICE);
    fleet_out_edge(g, product, done, "->");
    fleet_in_edge(g, rows, done, "i->");
    return g;
}

static fleet_plan *build(fleet_graph *g, const fleet_plan_desc *desc)
{
    fleet_plan *plan = NULL;
    if (fleet_plan_build(g, desc, &plan)) {
        printf("wrong: %s\n", fleet_graph_error(g));
        exit(1);
    }
    return plan;
}

/* A plan tells what it costs without being run, also for chips that are not here. Two events count: `done`,
   and the end of the step, at which the workers' last row_max arrive in the same way. */
static void print_signals(fleet_graph *g, fleet_topology topology)
{
    fleet_plan_desc desc = fleet_plan_desc_default();
    desc.topology = topology;
    printf("signals of a step on %s\n", topology.name);
    for (desc.counter_levels = 1; desc.counter_levels <= 2; desc.counter_levels++) {
        fleet_plan *plan = build(g, &desc);
        fleet_plan_stats s = fleet_plan_get_stats(plan);
        printf("    %s %4llu within chiplets, %4llu between them, %4llu releases\n",
               desc.counter_levels == 1 ? "every worker arrives:  " : "every chiplet arrives: ",
               (unsigned long long)s.local_signals, (unsigned long long)s.global_signals,
               (unsigned long long)s.releases);
        fleet_plan_free(plan);
    }
}

static void *device_copy(const void *from, size_t bytes, fleet_stream stream)
{
    void *memory = NULL;
    check("memory", fleet_device_alloc(&memory, bytes));
    check("copy", fleet_to_device(memory, from, bytes, stream));
    return memory;
}

static void fill(bf16 *x, uint32_t count, uint32_t seed)
{
    for (uint32_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = bf16_from_float((float)(seed >> 8) * 0x1p-23f - 1.0f);
    }
}

int main(void)
{
    static bf16 a[M * K], b[K * N];
    static float c[M * N], most[M];
    fleet_stream stream = NULL;
    fleet_graph *g = describe();
    fleet_plan_desc desc = fleet_plan_desc_default();
    check("query", fleet_topology_query(&desc.topology));
    print_signals(g, desc.topology);
    print_signals(g, fleet_topology_preset(FLEET_MI300X));
    fleet_plan *plan = build(g, &desc);

    fill(a, M * K, 1);
    fill(b, K * N, 2);
    for (uint32_t i = 0; i < M * N; i++) c[i] = FLT_MAX; /* must not be read */
    gemm args;
    memset(&args, 0, sizeof args);
    args.linear.m = M, args.linear.n = N, args.linear.k = K;
    args.linear.tile_m = TILE_M, args.linear.tile_n = TILE_N, args.linear.tile_k = K;
    args.linear.element_bytes = sizeof(bf16);
    args.linear.split = FLEET_SPLIT_N;
    args.linear.traversal = FLEET_TRAVERSAL_M_MAJOR;
    args.a = (const bf16 *)device_copy(a, sizeof a, stream);
    args.b = (const bf16 *)device_copy(b, sizeof b, stream);
    args.c = (float *)device_copy(c, sizeof c, stream);
    args.most = (float *)device_copy(most, sizeof most, stream);
    void *device_args = device_copy(&args, sizeof args, stream);

    fleet_image image;
    fleet_state state;
    fleet_launch_desc launch = fleet_launch_desc_default();
    launch.stream = stream;
    check("upload", fleet_upload(&image, plan, stream));
    check("state", fleet_state_create(&state, &image, NULL, stream));
    check("launch", fleet_launch(&state, &launch, FLEET_KERNEL_OF(gemm_kernel), device_args));
    check("run", fleet_state_wait(&state, stream));
    check("copy", fleet_to_host(c, args.c, sizeof c, stream));
    check("copy", fleet_to_host(most, args.most, sizeof most, stream));

    /* The plain reference in double; a sum of K products in float may be off by K roundings. */
    uint32_t wrong = 0;
    for (uint32_t m = 0; m < M; m++) {
        float row_most = -FLT_MAX;
        for (uint32_t n = 0; n < N; n++) {
            double sum = 0, size = 0;
            for (uint32_t k = 0; k < K; k++) {
                double p = (double)bf16_to_float(a[m * K + k]) * bf16_to_float(b[k * N + n]);
                sum += p;
                size += fabs(p);
            }
            wrong += !(fabs(c[m * N + n] - sum) <= K * FLT_EPSILON * size);
            row_most = c[m * N + n] > row_most ? c[m * N + n] : row_most;
        }
        wrong += most[m] != row_most;
    }
    if (wrong)
        printf("wrong: %u of %u numbers\n", wrong, M * N + M);
    else
        printf("ok: %u x %u x %u and its row maxima, by %u workers on %u chiplets\n", M, N, K,
               plan->total_workers, plan->chiplets);

    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_device_free((void *)args.a);
    fleet_device_free((void *)args.b);
    fleet_device_free(args.c);
    fleet_device_free(args.most);
    fleet_device_free(device_args);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
    return wrong != 0;
}
