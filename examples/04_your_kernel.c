/* 04: the loop inside a kernel that is already there.

   Examples 01 and 03 let FLEET_KERNEL write the kernel. Here the kernel exists already: a product of a matrix
   and a vector, y = W x, with weights of 8 bits that stand for the entries of a code book. It has parameters and
   launch bounds of its own, fills its LDS before it begins, and counts its tasks afterwards. The loop replaces
   its work, and its LDS goes to the tiles. The launches keep their places on the stream: between them
   stand ordinary kernels, and the host waits once, at the end. */
#define FLEET_IMPLEMENTATION
#include "fleet_sched.h"

#include <stdio.h>
#include <stdlib.h>

#define SIZE 512 /* rows and columns of W */
#define ROWS 32  /* of a task */
#define PARTS 4  /* tasks that share the columns of their rows */
#define COLUMNS (SIZE / PARTS)
#define BOOK 256
#define THREADS 192
#define ROUNDS 5

typedef struct product { /* what every tile sees */
    const uint8_t *w;    /* [SIZE][SIZE] */
    const float *x;      /* [SIZE] */
    float *partial;      /* [SIZE][PARTS] */
    float *y;            /* [SIZE] */
} product;

typedef struct workspace { /* the kernel's LDS */
    float book[BOOK];
    float x[COLUMNS];
    uint32_t tasks; /* run by this workgroup */
} workspace;

/* Tiles: ctx.lds is the LDS that the kernel gave to the loop. */
FLEET_TILE(multiply, product)
{
    workspace *lds = (workspace *)ctx.lds;
    const uint32_t first = (uint32_t)at[1] * COLUMNS;
    for (uint32_t k = ctx.thread; k < COLUMNS; k += ctx.threads) lds->x[k] = args->x[first + k];
    fleet_barrier(&ctx);
    for (uint32_t r = ctx.thread; r < ROWS; r += ctx.threads) {
        const uint32_t row = (uint32_t)at[0] * ROWS + r;
        float sum = 0;
        for (uint32_t k = 0; k < COLUMNS; k++)
            sum += lds->book[args->w[row * SIZE + first + k]] * lds->x[k];
        args->partial[row * PARTS + (uint32_t)at[1]] = sum;
    }
    if (ctx.thread == 0) lds->tasks++;
    return FLEET_OK;
}

FLEET_TILE(add_parts, product)
{
    workspace *lds = (workspace *)ctx.lds;
    for (uint32_t r = ctx.thread; r < ROWS; r += ctx.threads) {
        const uint32_t row = (uint32_t)at[0] * ROWS + r;
        float sum = 0;
        for (uint32_t p = 0; p < PARTS; p++) sum += args->partial[row * PARTS + p];
        args->y[row] = sum;
    }
    if (ctx.thread == 0) lds->tasks++;
    return FLEET_OK;
}

#define PRODUCT_TILES(TILE, P) TILE(P, multiply) TILE(P, add_parts)
FLEET_DISPATCH(product, PRODUCT_TILES)

/* The existing kernel. Two parameters are new, in any place: the fleet_run, and what the tiles see. */
FLEET_GLOBAL(THREADS)
void multiply_all(const float *book, uint32_t *tasks, fleet_run run, const product *args)
{
    const uint32_t thread = fleet_thread_id(), threads = fleet_thread_count();
    FLEET_LDS(workspace, lds, 1);
    for (uint32_t i = thread; i < BOOK; i += threads) lds->book[i] = book[i];
    if (thread == 0) lds->tasks = 0;
    fleet_block_barrier();

    FLEET_WORKER_LOOP_IN(product, run, args, lds, sizeof(workspace));

    /* This workgroup has run its tasks; others may still run theirs. */
    if (thread == 0) fleet_add_relaxed_device(tasks, lds->tasks);
}
FLEET_THUNK4(multiply_all, const float *, uint32_t *, fleet_run, const product *)

/* Ordinary kernels: the next x from the last y, in whole numbers from -8 to 7; and the sum of all results. */
FLEET_GLOBAL(256) void requantise(const float *y, float *x)
{
    const uint32_t all = fleet_block_count() * fleet_thread_count();
    for (uint32_t i = fleet_block_id() * fleet_thread_count() + fleet_thread_id(); i < SIZE;
         i += all)
        x[i] = (float)(((int)y[i] & 15) - 8);
}
FLEET_THUNK2(requantise, const float *, float *)

FLEET_GLOBAL(64) void add_all(const float *y, float *sum)
{
    if (fleet_thread_id() != 0) return;
    *sum = 0;
    for (uint32_t i = 0; i < SIZE; i++) *sum += y[i];
}
FLEET_THUNK2(add_all, const float *, float *)

/* The kit returns statuses. This program ends with the first failure. */
static void check(const char *what, fleet_status status)
{
    if (!status) return;
    printf("wrong: %s: %s\n", what, fleet_status_text(status));
    exit(1);
}

static fleet_plan *build(void)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim blocks = fleet_dim_of(SIZE / ROWS), parts = fleet_dim_of(PARTS);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(blocks), FLEET_COUNT_DERIVED);
    fleet_grid multiply =
        fleet_call_device(g, "multiply", product_multiply, fleet_shape2(blocks, parts), 0);
    fleet_grid add = fleet_call_device(g, "add_parts", product_add_parts, fleet_shape1(blocks), 0);
    fleet_out_edge(g, multiply, E, "ij->i");
    fleet_in_edge(g, add, E, "i->i");

    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    check("query", fleet_topology_query(&desc.topology));
    if (fleet_plan_build(g, &desc, &plan)) {
        printf("wrong: %s\n", fleet_graph_error(g));
        exit(1);
    }
    fleet_graph_destroy(g); /* the plan does not need it */
    return plan;
}

/* The reference: what the stream does, on one thread. All numbers are whole and below 2^24: sums are exact in any order. */
static float reference(const float *book, const uint8_t *w, float *y)
{
    static float x[SIZE];
    float total = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        for (uint32_t i = 0; i < SIZE; i++) x[i] = (float)(((int)y[i] & 15) - 8);
        for (uint32_t row = 0; row < SIZE; row++) {
            y[row] = 0;
            for (uint32_t k = 0; k < SIZE; k++) y[row] += book[w[row * SIZE + k]] * x[k];
        }
    }
    for (uint32_t i = 0; i < SIZE; i++) total += y[i];
    return total;
}

static void *device_copy(const void *from, size_t bytes, fleet_stream stream)
{
    void *memory = NULL;
    check("memory", fleet_device_alloc(&memory, bytes));
    check("copy", fleet_to_device(memory, from, bytes, stream));
    return memory;
}

int main(void)
{
    static uint8_t w[SIZE * SIZE];
    static float book[BOOK], y[SIZE], expected[SIZE], zeros[SIZE * PARTS];
    float sum = 0, expected_sum;
    uint32_t tasks = 0, errors = 0;
    fleet_stream stream = NULL;
    fleet_plan *plan = build();
    for (uint32_t i = 0; i < SIZE * SIZE; i++) w[i] = (uint8_t)(i * 2654435761u >> 24);
    for (uint32_t i = 0; i < BOOK; i++) book[i] = (float)(i * 37 % 17) - 8.0f;
    for (uint32_t i = 0; i < SIZE; i++) y[i] = expected[i] = (float)(i % 16);
    expected_sum = reference(book, w, expected);

    product args;
    float *device_x = (float *)device_copy(zeros, SIZE * sizeof(float), stream);
    float *device_y = (float *)device_copy(y, sizeof y, stream);
    uint8_t *device_w = (uint8_t *)device_copy(w, sizeof w, stream);
    float *device_partial = (float *)device_copy(zeros, sizeof zeros, stream);
    float *device_book = (float *)device_copy(book, sizeof book, stream);
    float *device_sum = (float *)device_copy(&sum, sizeof sum, stream);
    uint32_t *device_tasks = (uint32_t *)device_copy(&tasks, sizeof tasks, stream);
    args.w = device_w;
    args.x = device_x;
    args.partial = device_partial;
    args.y = device_y;
    product *device_args = (product *)device_copy(&args, sizeof args, stream);
    fleet_image image;
    fleet_state state;
    check("upload", fleet_upload(&image, plan, stream));
    check("state", fleet_state_create(&state, &image, NULL, stream));

    /* The stream: requantise, multiply_all, requantise, multiply_all, ..., add_all. */
    fleet_run run;
    fleet_launch_desc launch = fleet_launch_desc_default();
    fleet_kernel_desc ordinary = fleet_kernel_desc_default();
    void *x_args[2], *product_args[4], *sum_args[2];
    x_args[0] = &device_y, x_args[1] = &device_x;
    product_args[0] = &device_book, product_args[1] = &device_tasks;
    product_args[2] = &run, product_args[3] = &device_args;
    sum_args[0] = &device_y, sum_args[1] = &device_sum;
    launch.threads = THREADS;
    launch.stream = ordinary.stream = stream;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        check("requantise", fleet_kernel_launch(FLEET_KERNEL_OF(requantise), x_args, &ordinary));
        check("prepare",
              fleet_run_prepare(&state, &launch, &run)); /* a fleet_run is for one launch */
        check("multiply_all", fleet_launch_args(&state, &launch, &run,
                                                FLEET_KERNEL_OF(multiply_all), product_args));
    }
    ordinary.threads = 64;
    check("add_all", fleet_kernel_launch(FLEET_KERNEL_OF(add_all), sum_args, &ordinary));
    check("run", fleet_state_wait(&state, stream));
    check("copy", fleet_to_host(y, device_y, sizeof y, stream));
    check("copy", fleet_to_host(&sum, device_sum, sizeof sum, stream));
    check("copy", fleet_to_host(&tasks, device_tasks, sizeof tasks, stream));

    for (uint32_t i = 0; i < SIZE; i++) errors += y[i] != expected[i];
    errors += sum != expected_sum;
    errors += tasks != plan->n_tasks * ROUNDS;
    errors += fleet_state_epoch(&state) != ROUNDS;
    if (errors)
        printf("wrong: %u of %u numbers\n", errors, SIZE + 3);
    else
        printf(
            "ok: %u products of a matrix and a vector by %u tasks, in %u launches on one state\n",
            ROUNDS, tasks, fleet_state_epoch(&state));

    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_device_free(device_args);
    fleet_device_free(device_w);
    fleet_device_free(device_x);
    fleet_device_free(device_y);
    fleet_device_free(device_partial);
    fleet_device_free(device_book);
    fleet_device_free(device_sum);
    fleet_device_free(device_tasks);
    fleet_plan_free(plan);
    return errors != 0;
}
