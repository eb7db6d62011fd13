/* 01: a megakernel of two task grids and one event tensor.

   A has 32 n rows of 128 floats. partial_sum(i, j) sums columns 32 j .. 32 j + 31 of the 32 rows of block i;
   final_sum(i) adds the four partial sums of each row. final_sum(i) starts as soon as its own four
   partial sums are there, whatever the other blocks do: event E[i] counts them.

   Builds as it is with hipcc -x hip, nvcc -x cu, and cc -x c (-pthread). */
#define FLEET_IMPLEMENTATION
#include "fleet_sched.h"

#include <stdio.h>
#include <stdlib.h>

#define ROWS 32
#define COLUMNS 128
#define PARTS 4

typedef struct row_sum { /* what every tile sees */
    const float *a;
    float *partial; /* [row][part] */
    float *c;
} row_sum;

FLEET_TILE(partial_sum, row_sum)
{
    for (uint32_t r = ctx.thread; r < ROWS; r += ctx.threads) {
        size_t row = (size_t)at[0] * ROWS + r;
        const float *a = args->a + row * COLUMNS + at[1] * (COLUMNS / PARTS);
        float sum = 0;
        for (int k = 0; k < COLUMNS / PARTS; k++) sum += a[k];
        args->partial[row * PARTS + (size_t)at[1]] = sum;
    }
    return FLEET_OK;
}

FLEET_TILE(final_sum, row_sum)
{
    for (uint32_t r = ctx.thread; r < ROWS; r += ctx.threads) {
        size_t row = (size_t)at[0] * ROWS + r;
        float sum = 0;
        for (int k = 0; k < PARTS; k++) sum += args->partial[row * PARTS + (size_t)k];
        args->c[row] = sum;
    }
    return FLEET_OK;
}

#define ROW_SUM_TILES(TILE, P) TILE(P, partial_sum) TILE(P, final_sum)
FLEET_DISPATCH(row_sum, ROW_SUM_TILES)

FLEET_KERNEL(row_sum_kernel, row_sum, 256)
{
    FLEET_WORKER_LOOP(row_sum);
}

static int failed(const char *what, fleet_status status)
{
    if (status) fprintf(stderr, "%s: %s\n", what, fleet_status_text(status));
    return status != FLEET_OK;
}

int main(void)
{
    const uint32_t n = 24, rows = n * ROWS;
    const size_t a_bytes = (size_t)rows * COLUMNS * sizeof(float), c_bytes = rows * sizeof(float);

    /* The graph: described once, for any n. */
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim blocks = fleet_symbol(g, "n", 1, 4096);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(blocks), FLEET_COUNT_DERIVED);
    fleet_grid partial = fleet_call_device(g, "partial_sum", row_sum_partial_sum,
                                           fleet_shape2(blocks, fleet_dim_of(PARTS)), 0);
    fleet_grid final =
        fleet_call_device(g, "final_sum", row_sum_final_sum, fleet_shape1(blocks), 0);
    fleet_out_edge(g, partial, E, "ij->i");
    fleet_in_edge(g, final, E, "i->i");

    /* The plan: the graph bound to this device. */
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    if (failed("query", fleet_query_topology(&desc.topology))) return 1;
    fleet_bind_at_build(&desc, blocks, n);
    if (failed("plan", fleet_plan_build(g, &desc, &plan))) {
        fprintf(stderr, "%s\n", fleet_graph_error(g));
        return 1;
    }

    /* Data, image and state in device memory. */
    float *a = (float *)malloc(a_bytes), *c = (float *)malloc(c_bytes);
    for (uint32_t i = 0; i < rows * COLUMNS; i++) a[i] = (float)(i * 7 % 31) - 15.0f;
    void *device_a, *device_partial, *device_c, *device_args;
    fleet_stream stream = NULL;
    if (failed("memory", fleet_device_alloc(&device_a, a_bytes)) ||
        failed("memory", fleet_device_alloc(&device_partial, c_bytes * PARTS)) ||
        failed("memory", fleet_device_alloc(&device_c, c_bytes)) ||
        failed("memory", fleet_device_alloc(&device_args, sizeof(row_sum))))
        return 1;
    row_sum args;
    args.a = (const float *)device_a;
    args.partial = (float *)device_partial;
    args.c = (float *)device_c;
    fleet_image image;
    fleet_state state;
    if (failed("copy", fleet_to_device(device_a, a, a_bytes, stream)) ||
        failed("copy", fleet_to_device(device_args, &args, sizeof args, stream)) ||
        failed("upload", fleet_upload(&image, plan, stream)) ||
        failed("state", fleet_state_create(&state, &image, NULL, stream)))
        return 1;

    /* One launch: all 5 n tasks. */
    fleet_launch_desc launch = fleet_launch_desc_default();
    launch.stream = stream;
    if (failed("launch",
               fleet_launch(&state, &launch, FLEET_KERNEL_OF(row_sum_kernel), device_args)))
        return 1;
    if (failed("run", fleet_wait_state(&state, stream))) {
        static char report[4096];
        fleet_report(&state, report, sizeof report);
        fputs(report, stderr);
        return 1;
    }
    if (failed("copy", fleet_to_host(c, device_c, c_bytes, stream))) return 1;

    /* The plain reference: small integers, so that float sums are exact in any order. */
    uint32_t wrong = 0;
    for (uint32_t r = 0; r < rows; r++) {
        float sum = 0;
        for (uint32_t k = 0; k < COLUMNS; k++) sum += a[r * COLUMNS + k];
        wrong += sum != c[r];
    }
    if (wrong)
        printf("wrong: %u of %u rows\n", wrong, rows);
    else
        printf("ok: %u rows summed by %u tasks on %u workers of %u chiplets\n", rows, plan->n_tasks,
               plan->total_workers, plan->chiplets);

    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_device_free(device_a);
    fleet_device_free(device_partial);
    fleet_device_free(device_c);
    fleet_device_free(device_args);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
    free(a);
    free(c);
    return wrong != 0;
}
