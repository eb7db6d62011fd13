/* 06: a mixture of experts, routed on the device.

   In the examples before, the plan knew which task waits for which. Here a router decides that in the launch itself:
   each token goes to k experts, and how many tokens an expert has is known when the last token is routed.

       route(token)         scores, softmax, the k best experts and their weights
       group()              one task: how many tokens each expert has, which expert each tile of ROWS rows belongs to
       scatter(token)       the token's row to a row of each of its experts
       gate_up(tile, block) h = silu(x Wg) * (x Wu), for the rows of one tile and some columns
       down(tile, block)    y = h Wd
       combine(token)       the weighted sum over its experts, as in Qwen3-MoE

   Three run-time tensors say what the plan cannot: scatter notifies the experts that `topk` names, an expert is
   complete after as many notifies as `counts` says, and then exactly the tiles that `indptr` gives it may run. Under
   DYNAMIC an expert's tiles begin as soon as its own tokens are there; under STATIC and CHIPLET, when all are. A grid
   may have a schedule of its own: here the experts' tiles come from ready queues while AUTO chooses for the others. The
   number of tokens is a symbol, as in example 05; an expert may have none. */
#define FLEET_IMPLEMENTATION
#include "fleet_sched.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ROWS 4     /* of a tile */
#define COLUMNS 16 /* of a task */
#define THREADS 128
#define MOST_EXPERTS 32
#define MOST_K 8

typedef struct moe {                  /* what every tile sees */
    uint32_t experts, k, hidden, ffn; /* sizes */
    const float *x, *router;          /* [tokens][hidden], [experts][hidden] */
    const float *gate, *up, *down;    /* [experts][hidden][ffn] twice, [experts][ffn][hidden] */
    float *weight;                    /* [tokens][k] */
    int32_t *topk, *counts, *indptr;  /* [tokens][k], [experts], [experts + 1] */
    int32_t *slot;                    /* [tokens][k]: row among the experts' rows */
    int32_t *expert_of;               /* [tiles] */
    float *rows, *h, *y;              /* [tiles * ROWS][hidden, ffn, hidden] */
    float *out;                       /* [tokens][hidden] */
} moe;

FLEET_TILE(route, moe)
{
    float *score = (float *)ctx.lds, sum = 0, chosen = 0; /* [experts] */
    const float *x = args->x + (uint32_t)at[0] * args->hidden;
    for (uint32_t e = ctx.thread; e < args->experts; e += ctx.threads) {
        float s = 0;
        for (uint32_t i = 0; i < args->hidden; i++) s += x[i] * args->router[e * args->hidden + i];
        score[e] = expf(s);
    }
    fleet_barrier(&ctx);
    if (ctx.thread != 0) return FLEET_OK;
    for (uint32_t e = 0; e < args->experts; e++) sum += score[e];
    for (uint32_t j = 0; j < args->k; j++) {
        uint32_t best = 0;
        for (uint32_t e = 1; e < args->experts; e++)
            if (score[e] > score[best]) best = e;
        args->topk[(uint32_t)at[0] * args->k + j] = (int32_t)best;
        args->weight[(uint32_t)at[0] * args->k + j] = score[best] / sum;
        chosen += score[best] / sum;
        score[best] = -1;
    }
    for (uint32_t j = 0; j < args->k; j++) /* norm_topk_prob */
        args->weight[(uint32_t)at[0] * args->k + j] /= chosen;
    return FLEET_OK;
}

FLEET_TILE(group, moe)
{
    const uint32_t pairs = (uint32_t)ctx.symbols[0] * args->k;
    int32_t tiles = 0;
    FLEET_UNUSED(at);
    if (ctx.thread != 0) return FLEET_OK;
    for (uint32_t e = 0; e < args->experts; e++) {
        int32_t n = 0;
        for (uint32_t i = 0; i < pairs; i++)
            if (args->topk[i] == (int32_t)e) args->slot[i] = tiles * ROWS + n++;
        args->counts[e] = n;
        args->indptr[e] = tiles;
        for (int32_t t = 0; t < (n + ROWS - 1) / ROWS; t++) args->expert_of[tiles++] = (int32_t)e;
    }
    args->indptr[args->experts] = tiles;
    return FLEET_OK;
}

FLEET_TILE(scatter, moe)
{
    for (uint32_t i = ctx.thread; i < args->k * args->hidden; i += ctx.threads) {
        const uint32_t j = i / args->hidden, c = i % args->hidden;
        const uint32_t row = (uint32_t)args->slot[(uint32_t)at[0] * args->k + j];
        args->rows[row * args->hidden + c] = args->x[(uint32_t)at[0] * args->hidden + c];
    }
    return FLEET_OK;
}

/* Rows of the tile that hold a token: the last tile of an expert may be partial. */
FLEET_DEVICE uint32_t rows_of(const moe *m, int32_t tile)
{
    const int32_t e = m->expert_of[tile];
    const int32_t left = m->counts[e] - (tile - m->indptr[e]) * ROWS;
    return left < ROWS ? (uint32_t)left : ROWS;
}

FLEET_TILE(gate_up, moe)
{
    const uint32_t rows = rows_of(args, at[0]), first = (uint32_t)at[1] * COLUMNS;
    const size_t expert = (size_t)args->expert_of[at[0]] * args->hidden * args->ffn;
    for (uint32_t i = ctx.thread; i < rows * COLUMNS; i += ctx.threads) {
        const uint32_t row = (uint32_t)at[0] * ROWS + i / COLUMNS, c = first + i % COLUMNS;
        float g = 0, u = 0;
        if (c >= args->ffn) continue;
        for (uint32_t p = 0; p < args->hidden; p++) {
            g += args->rows[row * args->hidden + p] * args->gate[expert + p * args->ffn + c];
            u += args->rows[row * args->hidden + p] * args->up[expert + p * args->ffn + c];
        }
        args->h[row * args->ffn + c] = g / (1 + expf(-g)) * u;
    }
    return FLEET_OK;
}

FLEET_TILE(down, moe)
{
    const uint32_t rows = rows_of(args, at[0]), first = (uint32_t)at[1] * COLUMNS;
    const size_t expert = (size_t)args->expert_of[at[0]] * args->hidden * args->ffn;
    for (uint32_t i = ctx.thread; i < rows * COLUMNS; i += ctx.threads) {
        const uint32_t row = (uint32_t)at[0] * ROWS + i / COLUMNS, c = first + i % COLUMNS;
        float sum = 0;
        if (c >= args->hidden) continue;
        for (uint32_t p = 0; p < args->ffn; p++)
            sum += args->h[row * args->ffn + p] * args->down[expert + p * args->hidden + c];
        args->y[row * args->hidden + c] = sum;
    }
    return FLEET_OK;
}

FLEET_TILE(combine, moe)
{
    for (uint32_t c = ctx.thread; c < args->hidden; c += ctx.threads) {
        float sum = 0; /* in the order of the experts' ranks: the same from run to run */
        for (uint32_t j = 0; j < args->k; j++) {
            const uint32_t pair = (uint32_t)at[0] * args->k + j;
            sum += args->weight[pair] * args->y[(uint32_t)args->slot[pair] * args->hidden + c];
        }
        args->out[(uint32_t)at[0] * args->hidden + c] = sum;
    }
    return FLEET_OK;
}

#define MOE_TILES(TILE, P)                                                                         \
    TILE(P, route) TILE(P, group) TILE(P, scatter) TILE(P, gate_up) TILE(P, down) TILE(P, combine)
FLEET_DISPATCH(moe, MOE_TILES)
FLEET_KERNEL(moe_kernel, moe, FLEET_ANY_THREADS(THREADS))
{
    FLEET_WORKER_LOOP(moe);
}

static void check(const char *what, fleet_status status)
{
    if (!status) return;
    printf("wrong: %s: %s\n", what, fleet_status_text(status));
    exit(1);
}

typedef struct layer { /* sizes of one test */
    uint32_t most, experts, k, hidden, ffn;
} layer;

static fleet_plan *build(const layer *l, fleet_schedule schedule)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_symbol(g, "tokens", 0, l->most), experts = fleet_dim_of(l->experts);
    fleet_dim pairs = fleet_dim_times(n, l->k);
    /* Each expert may leave one tile partial. */
    fleet_dim tiles = fleet_dim_plus(fleet_dim_ceil_div(pairs, ROWS), l->experts);
    fleet_dim ffn = fleet_dim_of((l->ffn + COLUMNS - 1) / COLUMNS);
    fleet_dim hidden = fleet_dim_of((l->hidden + COLUMNS - 1) / COLUMNS);

    fleet_etensor routed = fleet_event_tensor(g, "routed", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_etensor grouped = fleet_event_tensor(g, "grouped", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_etensor filled = fleet_event_tensor(g, "filled", fleet_shape1(experts), l->most);
    fleet_etensor upped = fleet_event_tensor(g, "upped", fleet_shape1(tiles), FLEET_COUNT_DERIVED);
    fleet_etensor downed = fleet_event_tensor(g, "downed", fleet_shape0(), FLEET_COUNT_DERIVED);

    fleet_grid route = fleet_call_device(g, "route", moe_route, fleet_shape1(n), 0);
    fleet_grid group = fleet_call_device(g, "group", moe_group, fleet_shape0(), 0);
    fleet_grid scatter = fleet_call_device(g, "scatter", moe_scatter, fleet_shape1(n), 0);
    fleet_grid up = fleet_call_device(g, "gate_up", moe_gate_up, fleet_shape2(tiles, ffn), 0);
    fleet_grid down = fleet_call_device(g, "down", moe_down, fleet_shape2(tiles, hidden), 0);
    fleet_grid combine = fleet_call_device(g, "combine", moe_combine, fleet_shape1(n), 0);

    fleet_tensor topk = fleet_runtime_tensor(g, "topk", fleet_shape2(n, fleet_dim_of(l->k)), route);
    fleet_tensor counts = fleet_runtime_tensor(g, "counts", fleet_shape1(experts), group);
    fleet_tensor indptr =
        fleet_runtime_tensor(g, "indptr", fleet_shape1(fleet_dim_plus(experts, 1)), group);

    fleet_out_edge(g, route, routed, "i->");
    fleet_in_edge(g, group, routed, "->");
    fleet_out_edge(g, group, grouped, "->");
    fleet_in_edge(g, scatter, grouped, "i->");
    fleet_out_edge_gather(g, scatter, filled, topk); /* token i: filled[topk[i, j]] */
    fleet_event_counts(g, filled, counts);           /* complete after counts[e] */
    fleet_in_edge_range(g, up, filled, indptr);      /* tiles indptr[e] to indptr[e + 1] */
    fleet_out_edge(g, up, upped, "tc->t");
    fleet_in_edge_range(g, down, filled, indptr); /* the same tiles exist */
    fleet_in_edge(g, down, upped, "tc->t");
    fleet_out_edge(g, down, downed, "tc->");
    fleet_in_edge(g, combine, downed, "i->");

    if (schedule == FLEET_SCHEDULE_AUTO) {
        fleet_grid_schedule(g, up, FLEET_SCHEDULE_DYNAMIC);
        fleet_grid_schedule(g, down, FLEET_SCHEDULE_DYNAMIC);
        fleet_grid_cost(g, route, 3000, 0, 0); /* 3 us a tile, without much variation */
    }
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    desc.schedule = schedule;
    check("query", fleet_topology_query(&desc.topology));
    if (fleet_plan_build(g, &desc, &plan)) {
        printf("wrong: %s\n", fleet_graph_error(g));
        exit(1);
    }
    fleet_graph_destroy(g);
    return plan;
}

/* The reference: the layer for one token, in double precision. */
static void reference(const layer *l, const moe *m, const float *x, double *out)
{
    double score[MOST_EXPERTS], sum = 0, chosen = 0;
    uint32_t best[MOST_K];
    for (uint32_t e = 0; e < l->experts; e++) {
        score[e] = 0;
        for (uint32_t i = 0; i < l->hidden; i++)
            score[e] += (double)x[i] * (double)m->router[e * l->hidden + i];
        sum += exp(score[e]);
    }
    for (uint32_t j = 0; j < l->k; j++) {
        best[j] = l->experts;
        for (uint32_t e = 0; e < l->experts; e++) {
            uint32_t taken = 0;
            for (uint32_t i = 0; i < j; i++) taken |= best[i] == e;
            if (!taken && (best[j] == l->experts || score[e] > score[best[j]])) best[j] = e;
        }
        chosen += exp(score[best[j]]) / sum;
    }
    for (uint32_t c = 0; c < l->hidden; c++) out[c] = 0;
    for (uint32_t j = 0; j < l->k; j++) {
        const size_t expert = (size_t)best[j] * l->hidden * l->ffn;
        const double weight = exp(score[best[j]]) / sum / chosen;
        for (uint32_t f = 0; f < l->ffn; f++) {
            double g = 0, u = 0;
            for (uint32_t p = 0; p < l->hidden; p++) {
                g += (double)x[p] * (double)m->gate[expert + p * l->ffn + f];
                u += (double)x[p] * (double)m->up[expert + p * l->ffn + f];
            }
            g = g / (1 + exp(-g)) * u * weight;
            for (uint32_t c = 0; c < l->hidden; c++)
                out[c] += g * (double)m->down[expert + f * l->hidden + c];
        }
    }
}

static uint64_t random_state = 1;
static float *random_values(size_t n, float scale)
{
    float *v = (float *)malloc(n * sizeof *v);
    if (!v) check("memory", FLEET_ERROR_MEMORY);
    for (size_t i = 0; i < n; i++) {
        random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
        v[i] = ((float)(random_state >> 40) / 8388608.0f - 1) * scale;
    }
    return v;
}

static void *device_memory(const void *from, size_t bytes)
{
    void *memory = NULL;
    check("memory", fleet_device_alloc(&memory, bytes));
    if (from) check("copy", fleet_to_device(memory, from, bytes, NULL));
    return memory;
}

/* Runs the layer with several numbers of tokens; returns how many launches were right. */
static uint32_t run(const layer *l, fleet_schedule schedule, const uint32_t *tokens, uint32_t n)
{
    const uint32_t pairs = l->most * l->k, tiles = (pairs + ROWS - 1) / ROWS + l->experts;
    const size_t weights = (size_t)l->experts * l->hidden * l->ffn, x_size = l->most * l->hidden;
    fleet_plan *plan = build(l, schedule);
    fleet_image image;
    fleet_state state;
    fleet_launch_desc d = fleet_launch_desc_default();
    moe host, m;
    void *args, *memory[17];
    float *out = (float *)malloc(x_size * sizeof *out);
    double *want = (double *)malloc(l->hidden * sizeof *want);
    uint32_t used = 0, right = 0;
    memset(&host, 0, sizeof host);
    host.experts = l->experts, host.k = l->k, host.hidden = l->hidden, host.ffn = l->ffn;
    host.x = random_values(x_size, 1);
    host.router = random_values((size_t)l->experts * l->hidden, 0.5f);
    host.gate = random_values(weights, 0.2f);
    host.up = random_values(weights, 0.2f);
    host.down = random_values(weights, 0.2f);
    m = host;
    m.x = (const float *)(memory[used++] = device_memory(host.x, x_size * 4));
    m.router = (const float *)(memory[used++] =
                                   device_memory(host.router, (size_t)l->experts * l->hidden * 4));
    m.gate = (const float *)(memory[used++] = device_memory(host.gate, weights * 4));
    m.up = (const float *)(memory[used++] = device_memory(host.up, weights * 4));
    m.down = (const float *)(memory[used++] = device_memory(host.down, weights * 4));
    m.weight = (float *)(memory[used++] = device_memory(NULL, pairs * 4));
    m.topk = (int32_t *)(memory[used++] = device_memory(NULL, pairs * 4));
    m.counts = (int32_t *)(memory[used++] = device_memory(NULL, l->experts * 4));
    m.indptr = (int32_t *)(memory[used++] = device_memory(NULL, (l->experts + 1) * 4));
    m.slot = (int32_t *)(memory[used++] = device_memory(NULL, pairs * 4));
    m.expert_of = (int32_t *)(memory[used++] = device_memory(NULL, tiles * 4));
    m.rows = (float *)(memory[used++] = device_memory(NULL, (size_t)tiles * ROWS * l->hidden * 4));
    m.h = (float *)(memory[used++] = device_memory(NULL, (size_t)tiles * ROWS * l->ffn * 4));
    m.y = (float *)(memory[used++] = device_memory(NULL, (size_t)tiles * ROWS * l->hidden * 4));
    m.out = (float *)(memory[used++] = device_memory(NULL, x_size * 4));
    args = memory[used++] = device_memory(&m, sizeof m);

    check("upload", fleet_upload(&image, plan, NULL));
    check("state", fleet_state_create(&state, &image, NULL, NULL));
    check("topk", fleet_bind_tensor(&state, "topk", m.topk, NULL));
    check("counts", fleet_bind_tensor(&state, "counts", m.counts, NULL));
    check("indptr", fleet_bind_tensor(&state, "indptr", m.indptr, NULL));
    d.lds_bytes = MOST_EXPERTS * sizeof(float);
    for (uint32_t i = 0; i < n; i++) {
        double worst = 0;
        check("bind", fleet_bind(&state, "tokens", tokens[i], NULL));
        check("launch", fleet_launch(&state, &d, FLEET_KERNEL_OF(moe_kernel), args));
        check("run", fleet_state_wait(&state, NULL));
        check("copy", fleet_to_host(out, m.out, x_size * 4, NULL));
        for (uint32_t t = 0; t < tokens[i]; t++) {
            reference(l, &host, host.x + t * l->hidden, want);
            for (uint32_t c = 0; c < l->hidden; c++) {
                const double error = fabs((double)out[t * l->hidden + c] - want[c]);
                if (!(error <= worst)) worst = error;
            }
        }
        if (!(worst < 1e-3)) {
            printf("wrong: %u tokens, %u experts, schedule %d: off by %g\n", tokens[i], l->experts,
                   (int)schedule, worst);
            exit(1);
        }
        right++;
    }
    fleet_state_free(&state);
    fleet_image_free(&image);
    while (used > 0) fleet_device_free(memory[--used]);
    fleet_plan_free(plan);
    free((void *)(uintptr_t)host.x);
    free((void *)(uintptr_t)host.router);
    free((void *)(uintptr_t)host.gate);
    free((void *)(uintptr_t)host.up);
    free((void *)(uintptr_t)host.down);
    free(out);
    free(want);
    return right;
}

int main(void)
{
    static const layer layers[] = {{17, 4, 2, 32, 24}, {9, 13, 3, 20, 33}, {33, 1, 1, 16, 16}};
    static const uint32_t tokens[][4] = {{8, 0, 17, 1}, {9, 2, 5, 7}, {33, 3, 0, 20}};
    uint32_t right = 0;
    for (uint32_t i = 0; i < sizeof layers / sizeof *layers; i++)
        for (uint32_t schedule = 0; schedule <= FLEET_SCHEDULE_AUTO; schedule++)
            right += run(&layers[i], (fleet_schedule)schedule, tokens[i], 4);
    printf("ok: %u launches of three layers with 0 to 33 tokens, routed on the device\n", right);
    return 0;
}
