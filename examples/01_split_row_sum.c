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
FLEET_MEGAKERNEL(row_sum, ROW_SUM_TILES, 256)

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

    /* A session: the plan of the graph for this device, its memory, and launches. It keeps the first failure. */
    fleet_session_desc desc = fleet_session_desc_default();
    fleet_bind_at_build(&desc.plan, blocks, n);
    fleet_session s;
    fleet_session_open(&s, g, &desc, FLEET_KERNEL_OF(row_sum_kernel));

    /* Data in device memory. */
    float *a = (float *)malloc(a_bytes), *c = (float *)malloc(c_bytes);
    for (uint32_t i = 0; i < rows * COLUMNS; i++) a[i] = (float)(i * 7 % 31) - 15.0f;
    void *device_a = fleet_session_alloc(&s, a_bytes);
    row_sum args;
    args.a = (const float *)device_a;
    args.partial = (float *)fleet_session_alloc(&s, c_bytes * PARTS);
    args.c = (float *)fleet_session_alloc(&s, c_bytes);
    if (!s.failure) fleet_to_device(device_a, a, a_bytes, s.launch.stream);

    /* One launch: all 5 n tasks. */
    fleet_session_run(&s, &args, sizeof args);
    if (fleet_session_wait(&s) || fleet_to_host(c, args.c, c_bytes, s.launch.stream)) {
        static char report[4096];
        fleet_session_report(&s, report, sizeof report);
        fputs(report, stderr);
        return 1;
    }

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
        printf("ok: %u rows summed by %u tasks on %u workers of %u chiplets\n", rows,
               s.plan->n_tasks, s.plan->total_workers, s.plan->chiplets);

    fleet_session_close(&s);
    fleet_graph_destroy(g);
    free(a);
    free(c);
    return wrong != 0;
}
