/* 05: one plan for every batch size.

   The examples before knew their shapes when the plan was built. Here the batch is a symbol that is bound before a
   launch: a two-layer perceptron, out = relu(x W1) W2, serves 1 to 13 rows with one plan, uploaded once, and one
   state. fleet_bind is a tiny kernel on the stream: no rebuild, no upload, no wait. The plan has queues for some
   batches (buckets: 1, 2, 4, 8, 13); a launch takes the next larger one, and tasks outside its own batch are left
   out. Tiles read the symbol through ctx, since the last block of rows may be partial. */
#define FLEET_IMPLEMENTATION
#include "fleet_sched.h"

#include <stdio.h>
#include <stdlib.h>

#define BATCH 13 /* rows at most */
#define ROWS 4   /* of a task */
#define WIDTH 96
#define COLUMNS 32 /* of a task */
#define THREADS 128

typedef struct mlp { /* what every tile sees */
    const float *x, *w1, *w2;
    float *hidden, *out; /* [BATCH][WIDTH], as is x */
} mlp;

/* Computes a block of `to` = `from` w, for the rows of this launch. */
FLEET_DEVICE void layer(const fleet_ctx *ctx, const float *from, const float *w, float *to,
                        uint32_t relu)
{
    const uint32_t batch = (uint32_t)ctx->symbols[0], first = (uint32_t)ctx->at[0] * ROWS;
    const uint32_t rows = batch - first < ROWS ? batch - first : ROWS;
    for (uint32_t i = ctx->thread; i < rows * COLUMNS; i += ctx->threads) {
        const uint32_t row = first + i / COLUMNS;
        const uint32_t column = (uint32_t)ctx->at[1] * COLUMNS + i % COLUMNS;
        float sum = 0;
        for (uint32_t k = 0; k < WIDTH; k++) sum += from[row * WIDTH + k] * w[k * WIDTH + column];
        to[row * WIDTH + column] = relu && sum < 0 ? 0 : sum;
    }
}
FLEET_TILE(up, mlp)
{
    FLEET_UNUSED(at);
    layer(&ctx, args->x, args->w1, args->hidden, 1);
    return FLEET_OK;
}
FLEET_TILE(down, mlp)
{
    FLEET_UNUSED(at);
    layer(&ctx, args->hidden, args->w2, args->out, 0);
    return FLEET_OK;
}

#define MLP_TILES(TILE, P) TILE(P, up) TILE(P, down)
FLEET_DISPATCH(mlp, MLP_TILES)
FLEET_KERNEL(mlp_kernel, mlp, FLEET_ANY_THREADS(THREADS))
{
    FLEET_WORKER_LOOP(mlp);
}

static void check(const char *what, fleet_status status)
{
    if (!status) return;
    printf("wrong: %s: %s\n", what, fleet_status_text(status));
    exit(1);
}

static fleet_plan *build(fleet_schedule schedule)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_symbol(g, "batch", 1, BATCH), columns = fleet_dim_of(WIDTH / COLUMNS);
    fleet_dim blocks = fleet_dim_ceil_div(n, ROWS);
    fleet_etensor done = fleet_event_tensor(g, "done", fleet_shape1(blocks), FLEET_COUNT_DERIVED);
    fleet_grid first = fleet_call_device(g, "up", mlp_up, fleet_shape2(blocks, columns), 0);
    fleet_grid second = fleet_call_device(g, "down", mlp_down, fleet_shape2(blocks, columns), 0);
    fleet_out_edge(g, first, done, "bc->b");
    fleet_in_edge(g, second, done, "bc->b");

    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    desc.schedule = schedule; /* n is not bound here: it stays a symbol of the plan */
    check("query", fleet_topology_query(&desc.topology));
    if (fleet_plan_build(g, &desc, &plan)) {
        printf("wrong: %s\n", fleet_graph_error(g));
        exit(1);
    }
    fleet_graph_destroy(g);
    return plan;
}

static void multiply(const float *from, const float *w, float *to, uint32_t rows, int relu)
{
    for (uint32_t i = 0; i < rows * WIDTH; i++) {
        float sum = 0;
        for (uint32_t k = 0; k < WIDTH; k++)
            sum += from[i / WIDTH * WIDTH + k] * w[k * WIDTH + i % WIDTH];
        to[i] = relu && sum < 0 ? 0 : sum;
    }
}

static void *device_copy(const void *from, size_t bytes)
{
    void *memory = NULL;
    check("memory", fleet_device_alloc(&memory, bytes));
    check("copy", fleet_to_device(memory, from, bytes, NULL));
    return memory;
}

int main(void)
{
    static float x[BATCH * WIDTH], w1[WIDTH * WIDTH], w2[WIDTH * WIDTH], out[BATCH * WIDTH];
    static float hidden[BATCH * WIDTH], want[BATCH * WIDTH];
    static const char *const names[] = {"STATIC", "CHIPLET", "DYNAMIC"};
    uint32_t launches = 0;
    for (uint32_t i = 0; i < BATCH * WIDTH; i++)
        x[i] = (float)(i * 7 % 11) - 5;            /* whole numbers: */
    for (uint32_t i = 0; i < WIDTH * WIDTH; i++) { /* sums are exact in any order */
        w1[i] = (float)(i * 5 % 13) - 6;
        w2[i] = (float)(i * 3 % 7) - 3;
    }
    for (uint32_t schedule = 0; schedule < 3; schedule++) {
        fleet_plan *plan = build((fleet_schedule)schedule);
        fleet_image image;
        fleet_state state;
        fleet_launch_desc d = fleet_launch_desc_default();
        mlp m;
        void *args;
        m.x = (const float *)device_copy(x, sizeof x);
        m.w1 = (const float *)device_copy(w1, sizeof w1);
        m.w2 = (const float *)device_copy(w2, sizeof w2);
        m.hidden = (float *)device_copy(hidden, sizeof hidden);
        m.out = (float *)device_copy(out, sizeof out);
        args = device_copy(&m, sizeof m);
        check("upload", fleet_upload(&image, plan, NULL));
        check("state", fleet_state_create(&state, &image, NULL, NULL));

        for (uint32_t i = 0; i < 2 * BATCH; i++) {
            const uint32_t batch = 1 + i * 5 % BATCH; /* all of them, up and down, twice */
            uint32_t wrong = 0;
            memset(out, 0x7f, sizeof out); /* rows past the batch must stay as they are */
            check("fill", fleet_to_device(m.out, out, sizeof out, NULL));
            check("bind", fleet_bind(&state, "batch", batch, NULL));
            check("launch", fleet_launch(&state, &d, FLEET_KERNEL_OF(mlp_kernel), args));
            check("run", fleet_state_wait(&state, NULL));
            memset(want, 0x7f, sizeof want);
            multiply(x, w1, hidden, batch, 1);
            multiply(hidden, w2, want, batch, 0);
            check("copy", fleet_to_host(out, m.out, sizeof out, NULL));
            for (uint32_t k = 0; k < BATCH * WIDTH; k++) wrong += out[k] != want[k];
            if (wrong) {
                printf("wrong: batch %u: %u values (%s)\n", batch, wrong, names[schedule]);
                return 1;
            }
            launches++;
        }
        if (schedule == 0) {
            static char report[4096];
            const char *line;
            fleet_plan_report(plan, report, sizeof report);
            line = strstr(report, "symbols at launch");
            printf("%s", line ? line : "");
        }
        fleet_state_free(&state);
        fleet_image_free(&image);
        fleet_device_free(args);
        fleet_device_free((void *)(uintptr_t)m.x);
        fleet_device_free((void *)(uintptr_t)m.w1);
        fleet_device_free((void *)(uintptr_t)m.w2);
        fleet_device_free(m.hidden);
        fleet_device_free(m.out);
        fleet_plan_free(plan);
    }
    printf("ok: %u launches with batches of 1 to %d rows, three schedules, a plan each\n", launches,
           BATCH);
    return 0;
}
