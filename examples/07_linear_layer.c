/* 07: the matrix products of a decoder layer, split by the planner.

   Example 03 split one product by hand. Here are the four of a Qwen3-8B layer, each a device-task that waits
   for all of the one before, and fleet_linear_choose says how each is split over the chiplets (split N, M or K) and in
   which order their workers take the tiles (M-major, N-major, windowed), with what it expects of the L2s.

       qkv        q, k, v = norm(x) Wqkv            4096 x 6144
       o          h = x + q Wo                      4096 x 4096     (attention, between these two, is left out)
       gate_up    a = silu(norm(h) Wg) * norm(h) Wu 4096 x 24576    columns of Wg and Wu in turn: a has 12288
       down       out = h + a Wd                   12288 x 4096

   What is fused, and why it may be
     norm      scales a row by 1 / rms, and so may as well scale its sums (the norm's weights are constants: they are
               multiplied into W beforehand). A tile loads all of its rows anyway and adds up the squares as it does.
               It may, because the event before it counts all slices of the product before: no part of a row is
               missing. A task that computes the rms would have to stand between the two, with an event more.
     silu      needs a gate and its up: neighbours in one tile.
     residual  is there when the step begins, or since the event before the last.
   Under split K a tile has neither a whole row nor a whole sum. It stores partial sums of both to the slab of its
   slice. A second grid adds the slabs, always in the same order, and then runs the epilogue.

   The same graph is then planned without knowledge of chiplets (fleet_plan_desc.chiplet_unaware, and direct signals): every
   tile is a CU-task of its own, which signals by itself. The program shows for both forms: predicted hit rates, tasks,
   signals and L2 write-backs. For CU-tasks the planner assumes that what tiles share is spread evenly over the chiplets. All splits and
   traversals run in both forms, some on other topologies too, and where sums have the same order, they must have the
   same bits. On the CPU the write-backs are counted, and must equal those of the plan.

       07_linear_layer [--full] [--batch N] [--chiplets X] [--svg FILE]

   The layer that runs is a 32nd of Qwen3-8B's in width and height. --full: as it is, for a GPU, and the time of a step
   is measured; the tile is a plain one, without matrix instructions, and with many rows bound by its arithmetic.
   --chiplets divides the workers of a GPU that has one L2 among so many virtual ones. --svg draws the order in which the
   workers of a chiplet compute the tiles of gate_up. */
#define FLEET_IMPLEMENTATION
#include "tools/output.h" /* first: it asks for POSIX */
#include "fleet_sched.h"
#include "parts/fleet_linear.h"
#include "tools/plan_picture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { QKV, O, GATE_UP, DOWN, OPS };
static const char *const names[OPS] = {"qkv", "o", "gate_up", "down"};

#define ROWS 16u    /* of a tile */
#define COLUMNS 64u /* of a tile: a multiple of the wave size */
#define THREADS 256u
#define MOST_WAVES 8u
#define VECTOR 8u              /* values in sixteen bytes, one load */
#define QUADS 4u               /* loads of weights that a lane has in flight */
#define CHUNK (QUADS * VECTOR) /* of k */
#define EPSILON 1e-6f
#define SUM_ELEMENTS 1024u /* outputs of a task that adds up slabs */
#define MOST_SLABS FLEET_MAX_CHIPLETS

/* Put before loops over arrays that must stay in registers. */
#if defined(FLEET_HOST)
#define UNROLLED
#else
#define UNROLLED _Pragma("unroll")
#endif

/* bf16: the upper half of a float; to the nearest, ties to even. There are no NaNs here. */
typedef uint16_t bf16;

FLEET_HOST_DEVICE float bf16_to_float(uint32_t x)
{
    const uint32_t bits = x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
FLEET_HOST_DEVICE bf16 bf16_from_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (bf16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

typedef struct gemm { /* what every tile sees of one product */
    fleet_linear linear;
    const bf16 *x; /* [m][x_stride], of which k are read */
    uint32_t x_stride;
    uint32_t streams; /* 1: no other tile of the chiplet needs the same weights */
    const fleet_quad *
        weights; /* [n / COLUMNS][k / VECTOR][COLUMNS]: eight k of a column, beside the next column's */
    uint32_t norm, silu;
    const bf16 *residual; /* [m][outputs], or null */
    bf16 *y;              /* [m][outputs]; n of them, with silu half as many */
    uint32_t slabs;       /* split K: slices that have some of k; else 0 */
    float *slab;          /* [slabs][m][n] */
    float *squares;       /* [slabs][m] */
} gemm;

FLEET_HOST_DEVICE uint32_t outputs_of(const gemm *g)
{
    return g->silu ? g->linear.n / 2 : g->linear.n;
}

FLEET_DEVICE void unpack(const fleet_quad *quad, float *values)
{
    UNROLLED
    for (uint32_t i = 0; i < 4; i++) {
        values[2 * i] = bf16_to_float(quad->word[i]);
        values[2 * i + 1] = bf16_to_float(quad->word[i] >> 16);
    }
}

/* Streaming loads: weights that the chiplet needs once must not evict those that it needs again. */
FLEET_DEVICE fleet_quad load_weights(const gemm *g, fleet_view view, uint32_t quad)
{
    return g->streams ? fleet_view_load_streaming16(view, quad * 16) : g->weights[quad];
}

/* Adds to sum[r] the products of activation row r with the lane's column over k, for the first `rows` rows of a tile;
   rows is a constant of the caller's, so that sums are registers. x: [rows][CHUNK], the wave's own LDS. squares: those
   of the activations, [rows][QUADS], or null: each place is always the same lane's. Matrix instructions of your own
   go here. */
FLEET_DEVICE void add_products(const gemm *g, const fleet_tile_iterator *tile, uint32_t column,
                               fleet_k_range k, float *x, float *squares, float *sum, uint32_t rows)
{
    const fleet_view view = fleet_view_of(g->weights);
    for (uint32_t first = k.first; first < k.first + k.count; first += CHUNK) {
        const uint32_t quad =
            (tile->n * (g->linear.k / VECTOR) + first / VECTOR) * COLUMNS + column;
        fleet_quad w[QUADS];
        UNROLLED
        for (uint32_t q = 0; q < QUADS; q++) w[q] = load_weights(g, view, quad + q * COLUMNS);
        fleet_wave_barrier(); /* all lanes have read the chunk before */
        for (uint32_t i = fleet_lane(); i < rows * QUADS; i += fleet_wave_size()) {
            /* Rows past the batch are the last one again: their sums are ignored. */
            const uint32_t row = i / QUADS < tile->rows ? i / QUADS : tile->rows - 1;
            const bf16 *from = g->x + (size_t)(tile->row + row) * g->x_stride + first;
            float values[VECTOR], square = 0;
            fleet_quad loaded;
            memcpy(&loaded, __builtin_assume_aligned(from + i % QUADS * VECTOR, 16), sizeof loaded);
            unpack(&loaded, values);
            UNROLLED
            for (uint32_t j = 0; j < VECTOR; j++) {
                x[i * VECTOR + j] = values[j];
                square += values[j] * values[j];
            }
            if (squares) squares[i] += square;
        }
        fleet_wave_barrier();
        UNROLLED
        for (uint32_t q = 0; q < QUADS; q++) {
            float values[VECTOR];
            unpack(&w[q], values);
            UNROLLED
            for (uint32_t r = 0; r < rows; r++) {
                UNROLLED
                for (uint32_t j = 0; j < VECTOR; j++)
                    sum[r] += x[(r * QUADS + q) * VECTOR + j] * values[j];
            }
        }
    }
}

/* The sums of one tile, [ROWS][COLUMNS]. Lanes have the columns, waves share k. */
FLEET_DEVICE void multiply_tile(const fleet_ctx *ctx, const gemm *g,
                                const fleet_tile_iterator *tile, float *lds, float *sums,
                                float *squares)
{
    const uint32_t wave = fleet_wave_id(), waves = ctx->threads / fleet_wave_size();
    const fleet_k_range k = fleet_tile_wave_k(tile, wave, waves);
    for (uint32_t i = fleet_lane(); i < ROWS * QUADS; i += fleet_wave_size())
        squares[wave * ROWS * QUADS + i] = 0;
    for (uint32_t first = 0; first < COLUMNS; first += fleet_wave_size()) {
        const uint32_t column = first + fleet_lane();
        float *x = lds + wave * ROWS * CHUNK;
        float *mine = first ? NULL : squares + wave * ROWS * QUADS;
        float sum[ROWS] = {0};
        if (tile->rows == 1)
            add_products(g, tile, column, k, x, mine, sum, 1);
        else
            add_products(g, tile, column, k, x, mine, sum, ROWS);
        fleet_reduce_add(ctx, sum, ROWS, lds);
        if (wave > 0) continue;
        UNROLLED
        for (uint32_t r = 0; r < ROWS; r++) sums[r * COLUMNS + column] = sum[r];
    }
}

/* The sum of a row of the tile, from the partial sums of the waves. */
FLEET_DEVICE float squares_of(const float *squares, uint32_t row)
{
    float sum = 0;
    for (uint32_t i = 0; i < fleet_wave_count() * QUADS; i++)
        sum += squares[i / QUADS * ROWS * QUADS + row * QUADS + i % QUADS];
    return sum;
}

/* Output i of a row, from whole sums: its own, or a gate and what it gates; and the squares of its activations. */
FLEET_DEVICE void finish(const gemm *g, uint32_t row, uint32_t i, float a, float b, float squares)
{
    const size_t at = (size_t)row * outputs_of(g) + i;
    if (g->norm) {
        const float scale = 1 / sqrtf(squares / (float)g->linear.k + EPSILON);
        a *= scale;
        b *= scale;
    }
    if (g->silu) a = a / (1 + expf(-a)) * b;
    if (g->residual) a += bf16_to_float(g->residual[at]);
    g->y[at] = bf16_from_float(a);
}

/* Runs on the workers of all chiplets, as in example 03; or, unaware of chiplets, for one tile as a CU-task. */
FLEET_TILE(multiply, gemm)
{
    const uint32_t width = args->silu && !args->slabs ? 2 : 1; /* sums of one output */
    FLEET_LDS(float, lds,
              ROWS *THREADS); /* activations of each wave; then its sums, for another wave */
    FLEET_LDS(float, sums, ROWS *COLUMNS);
    FLEET_LDS(float, squares, MOST_WAVES *ROWS *QUADS);
    FLEET_UNUSED(at);
    FLEET_FOR_TILES(tile, &args->linear, ctx)
    {
        const uint32_t columns = tile.columns / width;
        multiply_tile(&ctx, args, &tile, lds, sums, squares);
        fleet_barrier(&ctx);
        for (uint32_t i = ctx.thread; i < tile.rows * columns; i += ctx.threads) {
            const uint32_t r = i / columns, c = i % columns * width, row = tile.row + r;
            const float *sum = sums + r * COLUMNS + c;
            if (args->slabs) {
                const size_t slab_row = (size_t)ctx.slice * args->linear.m + row;
                args->slab[slab_row * args->linear.n + tile.column + c] = *sum;
                if (tile.column + c == 0) args->squares[slab_row] = squares_of(squares, r);
            } else {
                finish(args, row, (tile.column + c) / width, sum[0], sum[width - 1],
                       squares_of(squares, r));
            }
        }
        fleet_barrier(&ctx); /* sums and squares are the next tile's */
    }
    return FLEET_OK;
}

/* Split K: adds the partial sums of the slices, in their order. */
FLEET_TILE(add_slabs, gemm)
{
    const fleet_linear *l = &args->linear;
    const uint32_t outputs = outputs_of(args), width = l->n / outputs;
    const uint32_t first = (uint32_t)at[0] * SUM_ELEMENTS, left = l->m * outputs - first;
    for (uint32_t i = ctx.thread; i < left && i < SUM_ELEMENTS; i += ctx.threads) {
        const uint32_t row = (first + i) / outputs, j = (first + i) % outputs;
        float a = 0, b = 0, squares = 0;
        for (uint32_t s = 0; s < args->slabs; s++) {
            const size_t slab_row = (size_t)s * l->m + row;
            const float *sum = args->slab + slab_row * l->n + j * width;
            a += sum[0];
            b += sum[width - 1];
            squares += args->squares[slab_row];
        }
        finish(args, row, j, a, b, squares);
    }
    return FLEET_OK;
}

#define GEMM_TILES(TILE, P) TILE(P, multiply) TILE(P, add_slabs)
FLEET_DISPATCH(gemm, GEMM_TILES)
FLEET_KERNEL(layer_kernel, gemm, FLEET_ANY_THREADS(THREADS))
{
    FLEET_WORKER_LOOP(gemm);
}

static void check(const char *what, fleet_status status)
{
    if (!status) return;
    printf("wrong: %s: %s\n", what, fleet_status_text(status));
    exit(1);
}

/* ---- planning: host only, for any chip ---- */

typedef struct layer {
    uint32_t hidden, qkv, ffn; /* widths */
    uint32_t tile_k;           /* k is split in units of it */
    uint32_t k_slices;         /* of split K, on any number of chiplets: the same sums everywhere */
    uint32_t batch;
} layer;

/* The splits and traversals that the planner may choose from. FREE: all. */
typedef struct way {
    uint32_t split, traversal;
} way;
#define FREE 3u
#define WAYS 9u
static way way_of(uint32_t i)
{
    way w;
    w.split = i < WAYS ? i / 3 : FREE;
    w.traversal = i < WAYS ? i % 3 : FREE;
    return w;
}

static void choose(const layer *l, const fleet_topology *topology, fleet_level level, way w,
                   fleet_linear_plan *plans)
{
    for (uint32_t i = 0; i < OPS; i++) {
        fleet_linear_desc d = fleet_linear_desc_default();
        d.m = l->batch;
        d.k = i == DOWN ? l->ffn : l->hidden;
        d.n = i == QKV ? l->qkv : i == GATE_UP ? 2 * l->ffn : l->hidden;
        d.tile_m = ROWS, d.tile_n = COLUMNS, d.tile_k = l->tile_k;
        d.levels = 1u << level;
        if (level == FLEET_LEVEL_DEVICE && w.split != FREE) d.splits = 1u << w.split;
        if (w.traversal != FREE) d.traversals = 1u << w.traversal;
        if (level == FLEET_LEVEL_DEVICE && w.split == FLEET_SPLIT_K) d.slices = l->k_slices;
        d.fused_input = i == QKV || i == GATE_UP;
        d.fused_columns = i == GATE_UP ? l->ffn : i == QKV ? 0 : l->hidden;
#if defined(FLEET_CUDA)
        d.rates = fleet_rates_preset(FLEET_H200);
#endif
        if (fleet_linear_choose(&d, topology, &plans[i])) {
            printf("wrong: %s: %s\n", names[i], plans[i].why);
            exit(1);
        }
    }
}

/* Slices that have a run of k, under split K; else 0. */
static uint32_t slabs_of(const fleet_linear_plan *p)
{
    uint32_t slabs = 0;
    if (p->linear.split != FLEET_SPLIT_K) return 0;
    for (uint32_t s = 0; s < p->slices; s++)
        slabs += fleet_linear_partition(&p->linear, s, p->slices).k != 0;
    return slabs; /* the first ones */
}

/* The maximum number of tiles of a slice. */
static uint32_t tiles_of(const fleet_linear_plan *p)
{
    uint32_t most = 0;
    for (uint32_t s = 0; s < p->slices; s++) {
        const fleet_partition part = fleet_linear_partition(&p->linear, s, p->slices);
        if (part.m_tiles * part.n_tiles > most) most = part.m_tiles * part.n_tiles;
    }
    return most;
}

static fleet_etensor followed_by(fleet_graph *g, fleet_grid grid, const char *name,
                                 const char *edge)
{
    fleet_etensor done = fleet_event_tensor(g, name, fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_out_edge(g, grid, done, edge);
    return done;
}

/* One event between each grid and the next. It is the same graph whether the plan knows chiplets or not. */
static fleet_plan *build(const fleet_linear_plan *plans, const fleet_plan_desc *desc)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor before = {0};
    fleet_plan *plan = NULL;
    for (uint32_t i = 0; i < OPS; i++) {
        const fleet_linear *l = &plans[i].linear;
        fleet_grid grid = fleet_call_device(g, names[i], gemm_multiply, fleet_shape0(), i);
        fleet_grid_level(g, grid, FLEET_LEVEL_DEVICE);
        fleet_grid_slices(g, grid, fleet_dim_of((int32_t)plans[i].slices));
        fleet_grid_tiles(g, grid, fleet_dim_of((int32_t)tiles_of(&plans[i])));
        if (i) fleet_in_edge(g, grid, before, "->");
        if (i < DOWN || l->split == FLEET_SPLIT_K) before = followed_by(g, grid, names[i], "->");
        if (l->split == FLEET_SPLIT_K) {
            const uint32_t outputs = l->m * (i == GATE_UP ? l->n / 2 : l->n);
            const fleet_dim tasks = fleet_dim_of((int32_t)((outputs - 1) / SUM_ELEMENTS + 1));
            char name[32];
            snprintf(name, sizeof name, "%s_slabs", names[i]);
            grid = fleet_call_device(g, name, gemm_add_slabs, fleet_shape1(tasks), i);
            fleet_in_edge(g, grid, before, "i->");
            if (i < DOWN) before = followed_by(g, grid, name, "i->");
        }
    }
    if (fleet_plan_build(g, desc, &plan)) {
        printf("wrong: %s\n", fleet_graph_error(g));
        exit(1);
    }
    fleet_graph_destroy(g);
    return plan;
}

/* The two forms: chiplet-tasks, whose workers count on their chiplet first; and independent CU-tasks. */
static fleet_plan_desc form_of(const fleet_topology *topology, uint32_t unaware)
{
    fleet_plan_desc desc = fleet_plan_desc_default();
    desc.topology = *topology;
    desc.chiplet_unaware = unaware;
    desc.counter_levels = unaware ? 1 : 2;
    return desc;
}

/* A device-task is as many tasks as it has slices. */
static uint64_t tasks_in(const fleet_linear_plan *plans, const fleet_plan_stats *s)
{
    uint64_t tasks = s->tasks[FLEET_LEVEL_CU];
    for (uint32_t i = 0; i < OPS && s->tasks[FLEET_LEVEL_DEVICE]; i++) tasks += plans[i].slices;
    return tasks;
}

/* Of all weights of the layer. */
static double hit_rate(const fleet_linear_plan *plans)
{
    double asked = 0, fetched = 0;
    for (uint32_t i = 0; i < OPS; i++) {
        fetched += plans[i].l2_weight_bytes;
        asked += plans[i].l2_weight_bytes / (1 - plans[i].hit_rate);
    }
    return 1 - fetched / asked;
}

/* Of a run. */
typedef struct outcome {
    fleet_plan_stats plan;
    uint64_t releases; /* of a step, counted by the host */
    double us;         /* of a step */
} outcome;

static void print_head(const layer *l, const fleet_topology *t, uint32_t measured)
{
    printf("\nbatch %u on %s, width %u: predicted weight hits in L2; tasks, signals between "
           "chiplets, L2 write-backs%s\n",
           l->batch, t->name, l->hidden, measured ? ", measured time of a step" : "");
    printf("%-20s %5s %5s %7s %5s %5s | %-*s | %s\n", "", "qkv", "o", "gate_up", "down", "layer",
           measured ? 30 : 17, "chiplet-tasks", "layer CU-tasks, unaware");
}

/* One way to split the layer, in both forms. measured: of each form, or null. */
static void print_way(const layer *l, const fleet_topology *t, uint32_t number,
                      const outcome *measured)
{
    static const char *const split[] = {"N", "M", "K"};
    static const char *const walk[] = {"M-major", "N-major", "windowed"};
    const way w = way_of(number);
    fleet_linear_plan plans[OPS], cu[OPS];
    char name[32] = "the planner's choice";
    choose(l, t, FLEET_LEVEL_DEVICE, w, plans);
    choose(l, t, FLEET_LEVEL_CU, w, cu);
    if (w.split != FREE)
        snprintf(name, sizeof name, "split %s, %s", split[w.split], walk[w.traversal]);
    printf("%-20s", name);
    for (uint32_t i = 0; i < OPS; i++)
        printf(" %*.0f%%", i == GATE_UP ? 6 : 4, 100 * plans[i].hit_rate);
    printf(" %4.0f%%", 100 * hit_rate(plans));
    for (uint32_t unaware = 0; unaware < 2; unaware++) {
        const fleet_plan_desc desc = form_of(t, unaware);
        fleet_plan *plan = build(plans, &desc);
        const fleet_plan_stats s = fleet_plan_get_stats(plan);
        printf(" |");
        if (unaware) printf(" %3.0f%%", 100 * hit_rate(cu));
        printf(" %5llu %5llu %5llu", (unsigned long long)tasks_in(plans, &s),
               (unsigned long long)s.global_signals, (unsigned long long)s.releases);
        if (measured) printf(" %9.1f us", measured[unaware].us);
        fleet_plan_free(plan);
    }
    printf("\n");
}

/* ---- the layer in memory ---- */

static float hashed(uint32_t seed, uint32_t a, uint32_t b) /* -1 to 1 */
{
    uint32_t h = seed * 0x9e3779b9u ^ a * 0x85ebca6bu ^ b * 0xc2b2ae35u;
    h = (h ^ h >> 15) * 0x2c1b3c6du;
    h = (h ^ h >> 12) * 0x297a2d39u;
    return (float)((h ^ h >> 15) >> 8) * 0x1p-23f - 1;
}
/* Weight k of column n, already multiplied by that of the norm. */
static bf16 weight_of(const fleet_linear *l, uint32_t op, uint32_t n, uint32_t k)
{
    return bf16_from_float(hashed(op + 1, n, k) * 1.5f / sqrtf((float)l->k));
}

static void *device_memory(size_t bytes)
{
    void *memory = NULL;
    check("memory", fleet_device_alloc(&memory, bytes));
    return memory;
}
static void *host_memory(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory) check("memory", FLEET_ERROR_MEMORY);
    return memory;
}

/* As tiles read them: sixteen bytes are eight k of a column, and a wave loads those of neighbouring columns. */
static const fleet_quad *packed_weights(const fleet_linear *l, uint32_t op)
{
    const size_t count = (size_t)fleet_linear_n_tiles(l) * COLUMNS * l->k;
    bf16 *packed = (bf16 *)host_memory(count * sizeof *packed), *to = packed;
    void *device = device_memory(count * sizeof *packed);
    for (uint32_t first = 0; first < l->n; first += COLUMNS)
        for (uint32_t k = 0; k < l->k; k += VECTOR)
            for (uint32_t n = first; n < first + COLUMNS; n++)
                for (uint32_t i = 0; i < VECTOR; i++)
                    *to++ = n < l->n ? weight_of(l, op, n, k + i) : 0;
    check("copy", fleet_to_device(device, packed, count * sizeof *packed, NULL));
    free(packed);
    return (const fleet_quad *)device;
}

typedef struct memory {
    gemm gemms[OPS]; /* all but linear, streams, slabs */
    void *device_gemms;
    uint32_t values; /* of all activations: x, q k v, h, a, out, in this order */
    bf16 *device;    /* these */
    bf16 *fresh;     /* x, and nothing else yet */
    bf16 *now;       /* what a run left */
} memory;

static memory make_memory(const layer *l, const fleet_quad *const *weights)
{
    const uint32_t width[5] = {l->hidden, l->qkv, l->hidden, l->ffn, l->hidden};
    memory m;
    bf16 *tensor[5];
    memset(&m, 0, sizeof m);
    for (uint32_t i = 0; i < 5; i++) m.values += l->batch * width[i];
    m.device = (bf16 *)device_memory(m.values * sizeof *m.device);
    m.fresh = (bf16 *)host_memory(m.values * sizeof *m.fresh);
    m.now = (bf16 *)host_memory(m.values * sizeof *m.now);
    tensor[0] = m.device;
    for (uint32_t i = 1; i < 5; i++) tensor[i] = tensor[i - 1] + (size_t)l->batch * width[i - 1];
    memset(m.fresh, 0xff,
           m.values * sizeof *m.fresh); /* not numbers: a read that comes too early shows */
    for (uint32_t i = 0; i < l->batch * l->hidden; i++)
        m.fresh[i] = bf16_from_float(hashed(0, i / l->hidden, i % l->hidden));
    for (uint32_t i = 0; i < OPS; i++) {
        gemm *g = &m.gemms[i];
        g->x = tensor[i], g->x_stride = width[i];
        g->weights = weights[i];
        g->norm = i == QKV || i == GATE_UP;
        g->silu = i == GATE_UP;
        g->residual = i == O ? tensor[0] : i == DOWN ? tensor[2] : NULL;
        g->y = tensor[i + 1];
        g->squares = (float *)device_memory((size_t)MOST_SLABS * l->batch * sizeof(float));
    }
    /* One product at a time: they can have the same slabs. */
    m.gemms[0].slab =
        (float *)device_memory((size_t)MOST_SLABS * l->batch * 2 * l->ffn * sizeof(float));
    for (uint32_t i = 1; i < OPS; i++) m.gemms[i].slab = m.gemms[0].slab;
    m.device_gemms = device_memory(sizeof m.gemms);
    return m;
}

static void free_memory(memory *m)
{
    for (uint32_t i = 0; i < OPS; i++) fleet_device_free(m->gemms[i].squares);
    fleet_device_free(m->gemms[0].slab);
    fleet_device_free(m->device_gemms);
    fleet_device_free(m->device);
    free(m->fresh);
    free(m->now);
}

/* ---- running ---- */

static double now_us(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* A step, whose results stay in m->now. What each of `steps` costs is seen from two more launches: one with so many steps
   more than the other. */
static outcome run(memory *m, const fleet_linear_plan *plans, const fleet_plan_desc *desc,
                   uint32_t steps)
{
    fleet_plan *plan = build(plans, desc);
    fleet_launch_desc launch = fleet_launch_desc_default();
    fleet_host_stats stats;
    fleet_image image;
    fleet_state state;
    outcome o;
    double us[3];
    uint64_t releases[3];
    memset(&o, 0, sizeof o);
    for (uint32_t i = 0; i < OPS; i++) {
        gemm *g = &m->gemms[i];
        g->linear = plans[i].linear;
        g->slabs = slabs_of(&plans[i]);
        g->streams = fleet_linear_partition(&g->linear, 0, plans[i].slices).m_tiles == 1;
    }
    check("copy", fleet_to_device(m->device_gemms, m->gemms, sizeof m->gemms, NULL));
    check("copy", fleet_to_device(m->device, m->fresh, m->values * sizeof *m->fresh, NULL));
    check("upload", fleet_upload(&image, plan, NULL));
    check("state", fleet_state_create(&state, &image, NULL, NULL));
    memset(&stats, 0, sizeof stats);
    launch.host.stats = &stats;
    for (uint32_t i = 0; i < (steps ? 3u : 1u); i++) {
        const double begun = now_us();
        launch.steps = i < 2 ? 1 : 1 + steps;
        check("launch",
              fleet_launch(&state, &launch, FLEET_KERNEL_OF(layer_kernel), m->device_gemms));
        check("run", fleet_state_wait(&state, NULL));
        us[i] = now_us() - begun;
        releases[i] = stats.releases;
    }
    if (steps) {
        o.us = (us[2] - us[1]) / steps;
        o.releases = (releases[2] - releases[1]) / steps;
    }
    check("copy", fleet_to_host(m->now, m->device, m->values * sizeof *m->now, NULL));
    o.plan = fleet_plan_get_stats(plan);
    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_plan_free(plan);
    return o;
}

/* ---- checking ---- */

/* A row of activations with a column of weights, in double precision; *size: of the sum of absolute values. */
static double dot(const fleet_linear *l, uint32_t op, const bf16 *x, uint32_t column, double *size)
{
    double sum = 0;
    *size = 0;
    for (uint32_t k = 0; k < l->k; k++) {
        const double p = (double)bf16_to_float(x[k]) * bf16_to_float(weight_of(l, op, column, k));
        sum += p;
        *size += fabs(p);
    }
    return sum;
}

/* Each product against plain sums over the inputs that it found; of a large one a sample. Off by at most a rounding of
   the output, and by what float sums may lose. */
static void compare(const memory *m)
{
    for (uint32_t op = 0; op < OPS; op++) {
        const gemm *g = &m->gemms[op];
        const fleet_linear *l = &g->linear;
        const uint32_t outputs = outputs_of(g), width = l->n / outputs;
        const uint32_t step = l->m * outputs / 50000 + 1;
        for (uint32_t i = 0; i < l->m * outputs; i += step) {
            const uint32_t row = i / outputs, j = i % outputs;
            const bf16 *x = m->now + (g->x - m->device) + (size_t)row * g->x_stride;
            const double got = bf16_to_float(m->now[g->y - m->device + (ptrdiff_t)i]);
            double squares = 0, scale = 1, size, up_size, want, allowed;
            for (uint32_t k = 0; k < l->k && g->norm; k++)
                squares += (double)bf16_to_float(x[k]) * bf16_to_float(x[k]);
            if (g->norm) scale = 1 / sqrt(squares / l->k + (double)EPSILON);
            want = scale * dot(l, op, x, j * width, &size);
            if (g->silu) {
                const double up = scale * dot(l, op, x, j * width + 1, &up_size);
                want = want / (1 + exp(-want)) * up;
                size = size * fabs(up) + up_size * (1 + size);
            }
            if (g->residual) want += bf16_to_float(m->now[g->residual - m->device + (ptrdiff_t)i]);
            allowed = fabs(want) / 250 + 1e-5 * scale * scale * size;
            if (!(fabs(got - want) <= allowed)) {
                printf("wrong: %s[%u][%u] is %g, not %g\n", names[op], row, j, got, want);
                exit(1);
            }
        }
    }
}

#if defined(FLEET_HOST)
/* run_batch compares these two for all ways; shown are those of the planner's choice. */
static void print_counted(const outcome *ran, const fleet_topology *here)
{
    uint32_t workers = 0;
    for (uint32_t k = 0; k < here->chiplets; k++) workers += here->units[k];
    printf("here, on %u workers of %u chiplets, counted as planned: %llu write-backs by "
           "chiplet-tasks, %llu by CU-tasks\n",
           workers, here->chiplets, (unsigned long long)ran[0].releases,
           (unsigned long long)ran[1].releases);
}
#endif

#if defined(FLEET_HOST)
#define TOPOLOGIES 4u
#else
#define TOPOLOGIES 2u
#endif

/* Where the layer runs: on what is here, with all its workers; and with others. */
static fleet_plan_desc place_of(uint32_t i, const fleet_topology *here, uint32_t unaware)
{
    fleet_plan_desc desc = form_of(here, unaware);
#if defined(FLEET_HOST)
    static const uint32_t shape[TOPOLOGIES][2] = {{0, 0}, {1, 3}, {3, 2}, {8, 1}};
    if (i) {
        desc.topology = fleet_topology_make(shape[i][0], shape[i][1]);
        desc.topology.units[shape[i][0] - 1] += shape[i][0] > 1; /* unequal */
        desc.topology.wave_size = 1;
    }
#else
    if (i) desc.workers_per_chiplet = 1;
#endif
    return desc;
}

/* Equal to the first run that added in the same order; that one is compared with the reference. */
static void verify(const memory *m, bf16 **first)
{
    const size_t bytes = m->values * sizeof *m->now;
    if (!*first) {
        compare(m);
        *first = (bf16 *)host_memory(bytes);
        memcpy(*first, m->now, bytes);
    }
    if (memcmp(*first, m->now, bytes) != 0) {
        printf("wrong: not the same bits\n");
        exit(1);
    }
}

/* The runs of one batch; how many there were. */
static uint32_t run_batch(const layer *l, const fleet_quad *const *weights,
                          const fleet_topology *here, uint32_t steps, outcome shown[WAYS + 1][2])
{
    memory m = make_memory(l, weights);
    bf16 *first[2] = {NULL, NULL}; /* of whole sums, of slabs */
    uint32_t runs = 0;
    for (uint32_t number = 0; number <= WAYS; number++)
        for (uint32_t i = 0; i < 2 * TOPOLOGIES; i++) {
            const fleet_plan_desc desc = place_of(i / 2, here, i % 2);
            const way w = way_of(number);
            fleet_linear_plan plans[OPS];
            uint32_t mixed = 0;
            outcome o;
            /* Elsewhere one traversal of each split will do, and what the planner says. */
            if (i > 1 && number < WAYS && number % 3 != (number / 3 + i / 2) % 3) continue;
            choose(l, &desc.topology, FLEET_LEVEL_DEVICE, w, plans);
            o = run(&m, plans, &desc, i > 1 ? 0 : steps);
            runs++;
            if (i < 2) shown[number][i] = o;
#if defined(FLEET_HOST)
            if (i < 2 && o.releases != o.plan.releases) {
                printf("wrong: %llu releases in a step, %llu in its plan\n",
                       (unsigned long long)o.releases, (unsigned long long)o.plan.releases);
                exit(1);
            }
#endif
            for (uint32_t op = 0; op < OPS; op++) mixed |= m.gemms[op].slabs && w.split == FREE;
            if (mixed)
                compare(&m);
            else
                verify(&m, &first[w.split == FLEET_SPLIT_K]);
        }
    free(first[0]);
    free(first[1]);
    free_memory(&m);
    return runs;
}

/* ---- the program ---- */

static layer layer_of(uint32_t full, uint32_t batch)
{
    const uint32_t by = full ? 1 : 32;
    layer l;
    l.hidden = 4096 / by, l.qkv = 6144 / by, l.ffn = 12288 / by;
    l.tile_k = full ? 256 : 32;
    l.k_slices = full ? 8 : 4;
    l.batch = batch;
    return l;
}

static void print_report(const layer *l, const fleet_topology *chip)
{
    static char text[8192];
    fleet_linear_plan plans[OPS];
    choose(l, chip, FLEET_LEVEL_DEVICE, way_of(WAYS), plans);
    fleet_linear_report(plans, names, OPS, text, sizeof text);
    printf("\n%s", text);
}

static void draw(const layer *l, const fleet_topology *chip, const char *file)
{
    fleet_linear_plan plans[OPS];
    size_t bytes;
    char *text;
    output out;
    int why = output_open(&out, file);
    choose(l, chip, FLEET_LEVEL_DEVICE, way_of(WAYS), plans);
    bytes = plan_picture(&plans[GATE_UP], names[GATE_UP], chip, NULL, 0) + 1;
    text = (char *)host_memory(bytes);
    plan_picture(&plans[GATE_UP], names[GATE_UP], chip, text, bytes);
    output_put(&out, text, strlen(text));
    if (!why) why = output_close(&out, 1);
    if (why) {
        printf("wrong: %s cannot be written: %s\n", file, strerror(why));
        exit(1);
    }
    free(text);
}

/* Divides one chiplet into `chiplets` virtual ones. Returns 0 if there are several, or too few workers. */
static int divide(fleet_topology *t, uint32_t chiplets)
{
    const uint32_t all = t->units[0];
    if (t->chiplets != 1 || chiplets > all || chiplets > FLEET_MAX_CHIPLETS) return 0;
    t->chiplets = chiplets;
    for (uint32_t k = 0; k < chiplets; k++) t->units[k] = all / chiplets + (k < all % chiplets);
    return 1;
}

int main(int argc, char **argv)
{
    static const uint32_t batches[] = {1, 16, 64};
    const fleet_quad *weights[OPS];
    const char *svg = NULL;
    fleet_linear_plan plans[OPS];
    fleet_topology here, chip;
    uint32_t full = 0, batch = 0, chiplets = 0, runs = 0;
    layer l;
    for (int i = 1; i < argc; i++) {
        const int more = i + 1 < argc;
        if (!strcmp(argv[i], "--full"))
            full = 1;
        else if (!strcmp(argv[i], "--batch") && more && atoi(argv[i + 1]) > 0)
            batch = (uint32_t)atoi(argv[++i]);
        else if (!strcmp(argv[i], "--chiplets") && more && atoi(argv[i + 1]) > 0)
            chiplets = (uint32_t)atoi(argv[++i]);
        else if (!strcmp(argv[i], "--svg") && more)
            svg = argv[++i];
        else
            return printf("%s [--full] [--batch N] [--chiplets X] [--svg FILE]\n", argv[0]), 2;
    }
    check("query", fleet_topology_query(&here));
    if (chiplets && !divide(&here, chiplets))
        return printf("--chiplets %u: this device has %u, the first of %u workers\n", chiplets,
                      here.chiplets, here.units[0]),
               2;
#if defined(FLEET_HOST)
    const uint32_t shown_full = 1, measured = 0, steps = 1;
    chip = fleet_topology_preset(FLEET_MI300X); /* absent, but a plan for it can be built */
#else
    const uint32_t shown_full = full, measured = full, steps = full ? 10 : 0;
    chip = here;
#endif
    l = layer_of(full, 1);
    choose(&l, &here, FLEET_LEVEL_DEVICE, way_of(0), plans);
    for (uint32_t i = 0; i < OPS; i++) weights[i] = packed_weights(&plans[i].linear, i);
    for (uint32_t i = 0; i < (batch ? 1 : sizeof batches / sizeof *batches); i++) {
        const layer shown = layer_of(shown_full, batch ? batch : batches[i]);
        outcome ran[WAYS + 1][2];
        l = layer_of(full, shown.batch);
        runs += run_batch(&l, weights, &here, steps, ran);
        print_head(&shown, &chip, measured);
        for (uint32_t number = 0; number <= WAYS; number++)
            print_way(&shown, &chip, number, measured ? ran[number] : NULL);
#if defined(FLEET_HOST)
        print_counted(ran[WAYS], &here);
#endif
    }
    l = layer_of(shown_full, batch ? batch : 64);
    print_report(&l, &chip);
    if (svg) draw(&l, &chip, svg);
    for (uint32_t i = 0; i < OPS; i++) fleet_device_free((void *)(uintptr_t)weights[i]);
    printf("ok: %u runs of a layer of width %u, all bits equal where sums have the same order\n",
           runs, layer_of(full, 1).hidden);
    return 0;
}
