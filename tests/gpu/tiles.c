/* fleet_tiles.h: copies with the swizzle, products of small whole numbers to the last bit, sums,
   maxima, softmax and RMS norm of rows; rows, columns and k's that no fragment divides; by any
   number of threads, by the declared ones, and in wavefront-tasks. */
// run: asan engine=both
// run: tsan
// hip: 6 runs
#include "settings.h"
#include "examples/parts/fleet_tiles.h"

#include <math.h>

#define CASES 8u
#define SMALL 4u /* cases that fit a wave's share of LDS */
#define MOST_M 40u
#define MOST_N 33u
#define MOST_K 150u
#define CHUNK 96u /* of k: c is added to */
#define STEPS 2u
#define THREADS 128u
#define DECLARED 64u /* coroutines of the CPU */
#define LDS_BYTES (40u << 10)
#define EPSILON 1e-5f
#define SCALE 0.125f

typedef struct shape {
    uint32_t m, n, k;
} shape;
static const shape shapes[CASES] = {{1, 1, 1},    {5, 9, 7},    {16, 16, 32}, {17, 3, 20},
                                    {33, 18, 97}, {16, 8, 150}, {40, 24, 64}, {2, 33, 130}};

typedef struct result {
    float c[MOST_M * MOST_N]; /* in memory; the others by way of LDS */
    float copied[MOST_M * MOST_N], soft[MOST_M * MOST_N], norm[MOST_M * MOST_N];
    float blocked[MOST_M * MOST_N];
    float sums[MOST_M], most[MOST_M];
    uint16_t a[MOST_M * MOST_K], rounded[MOST_M * MOST_N];
    float sum, max; /* of 1 + thread */
    uint32_t threads;
} result;

typedef struct tiles {
    shape shapes[CASES];
    uint16_t a[CASES][MOST_M * MOST_K], b[CASES][MOST_N * MOST_K]; /* strides of case_of */
    uint16_t weights[MOST_N];
    struct result *results; /* of each case */
} tiles;

/* Strides of a case: a by rows, which are aligned or not; b by rows or by columns. */
typedef struct strides {
    uint32_t a_row, b_row, b_column;
} strides;
FLEET_HOST_DEVICE strides strides_of(shape s, uint32_t i)
{
    strides of;
    of.a_row = i % 2 ? s.k : (s.k + 7) / 8 * 8;
    of.b_row = i % 4 < 2 ? s.k : 1;
    of.b_column = i % 4 < 2 ? 1 : s.n;
    return of;
}

FLEET_DEVICE void take_out(const fleet_ctx *ctx, float *to, fleet_rows from)
{
    for (uint32_t i = ctx->thread; i < from.rows * from.columns; i += ctx->threads)
        to[i] = from.at[i / from.columns * from.stride + i % from.columns];
}
FLEET_DEVICE void put_back(const fleet_ctx *ctx, fleet_rows to, const float *from)
{
    for (uint32_t i = ctx->thread; i < to.rows * to.columns; i += ctx->threads)
        to.at[i / to.columns * to.stride + i % to.columns] = from[i];
}

/* Two by two fragments of one wave, which loads each operand once. */
FLEET_DEVICE void block(const fleet_ctx *ctx, fleet_lds_tile a, fleet_lds_tile b, fleet_rows c)
{
    fleet_fragment sums[2][2];
    if (ctx->thread >= fleet_wave_size()) return;
    memset(sums, 0, sizeof sums);
    for (uint32_t k = 0; k < a.columns; k += FLEET_FRAGMENT_K) {
        fleet_operand x[2], y[2];
        FLEETI_UNROLLED
        for (uint32_t i = 0; i < 2; i++) {
            fleet_operand_load(&x[i], a, i * FLEET_FRAGMENT, k);
            fleet_operand_load(&y[i], b, i * FLEET_FRAGMENT, k);
        }
        FLEETI_UNROLLED
        for (uint32_t i = 0; i < 4; i++)
            fleet_fragment_multiply(&sums[i / 2][i % 2], &x[i / 2], &y[i % 2]);
    }
    FLEETI_UNROLLED
    for (uint32_t i = 0; i < 4; i++) {
        FLEETI_UNROLLED
        for (uint32_t j = 0; j < FLEET_FRAGMENT_SUMS; j++) {
            const uint32_t row = i / 2 * FLEET_FRAGMENT + fleet_fragment_row(j);
            const uint32_t column = i % 2 * FLEET_FRAGMENT + fleet_fragment_column(j);
            if (row < c.rows && column < c.columns)
                c.at[row * c.stride + column] = sums[i / 2][i % 2].sum[j];
        }
    }
}

/* All functions on one case. */
FLEET_TILE(all_of, tiles)
{
    const uint32_t which = (uint32_t)at[0];
    const shape s = args->shapes[which];
    const strides by = strides_of(s, which);
    struct result *r = args->results + which;
    const uint32_t chunk = s.k < CHUNK ? s.k : CHUNK;
    fleet_lds_tile a, b, p;
    fleet_rows c, memory;
    float *lds, *each;
    a.quads = (fleet_quad *)ctx.lds, a.rows = s.m, a.columns = chunk;
    b.quads = a.quads + FLEET_LDS_TILE_QUADS(s.m, chunk), b.rows = s.n, b.columns = chunk;
    c.at = (float *)(b.quads + FLEET_LDS_TILE_QUADS(s.n, chunk));
    c.rows = s.m, c.columns = s.n, c.stride = s.n + 1;
    each = c.at + s.m * c.stride;
    lds = each + s.m;
    if ((char *)(lds + FLEET_ROWS_LDS(s.m, ctx.threads)) > (char *)ctx.lds + ctx.lds_bytes)
        return FLEET_ERROR_LDS;
    memory = c, memory.at = r->c, memory.stride = s.n;
    for (uint32_t k = 0; k < s.k; k += chunk) {
        a.columns = b.columns = s.k - k < chunk ? s.k - k : chunk;
        fleet_lds_tile_load(&ctx, a, args->a[which] + k, by.a_row, 1);
        fleet_lds_tile_load(&ctx, b, args->b[which] + k * by.b_column, by.b_row, by.b_column);
        fleet_barrier(&ctx);
        fleet_lds_product(&ctx, a, b, c, k > 0);
        fleet_lds_product(&ctx, a, b, memory, k > 0);
        if (s.m <= 2 * FLEET_FRAGMENT && s.n <= 2 * FLEET_FRAGMENT && k == 0) {
            memory.at = r->blocked;
            block(&ctx, a, b, memory);
            memory.at = r->c;
        }
        for (uint32_t i = ctx.thread; i < s.m * a.columns; i += ctx.threads) {
            const uint32_t row = i / a.columns, column = i % a.columns;
            r->a[row * s.k + k + column] = *fleet_lds_tile_at(a, row, column);
        }
        fleet_barrier(&ctx);
    }
    take_out(&ctx, r->copied, c);
    fleet_rows_sum(&ctx, c, each, lds);
    for (uint32_t i = ctx.thread; i < s.m; i += ctx.threads) r->sums[i] = each[i];
    fleet_rows_max(&ctx, c, each, lds);
    for (uint32_t i = ctx.thread; i < s.m; i += ctx.threads) r->most[i] = each[i];
    fleet_barrier(&ctx); /* `each` is in use */
    /* The first row is masked, and what each other row has in the last column. */
    for (uint32_t i = ctx.thread; i < s.m * s.n; i += ctx.threads)
        if (i < s.n || (s.n > 1 && i % s.n == s.n - 1))
            c.at[i / s.n * c.stride + i % s.n] = -INFINITY;
    fleet_barrier(&ctx);
    fleet_rows_softmax(&ctx, c, SCALE, lds);
    take_out(&ctx, r->soft, c);
    p.quads = a.quads, p.rows = s.m, p.columns = s.n; /* its rows are no longer than those of a */
    fleet_lds_tile_round(&ctx, p, c);
    fleet_barrier(&ctx);
    for (uint32_t i = ctx.thread; i < s.m * s.n; i += ctx.threads)
        r->rounded[i] = *fleet_lds_tile_at(p, i / s.n, i % s.n);
    fleet_barrier(&ctx);
    /* A thread reads what it wrote itself: take_out and put_back have the same elements. */
    put_back(&ctx, c, r->copied);
    fleet_barrier(&ctx);
    fleet_rows_rms_norm(&ctx, c, which % 2 ? args->weights : NULL, EPSILON, lds);
    take_out(&ctx, r->norm, c);
    {
        const float sum = fleet_group_sum(&ctx, (float)(1 + ctx.thread), lds);
        const float max = fleet_group_max(&ctx, (float)(1 + ctx.thread), lds);
        if (ctx.thread == ctx.threads - 1) r->sum = sum, r->max = max, r->threads = ctx.threads;
    }
    return FLEET_OK;
}

#define TILES(TILE, P) TILE(P, all_of)
FLEET_DISPATCH(tiles, TILES)
FLEET_KERNEL(any_kernel, tiles, FLEET_ANY_THREADS(THREADS))
{
    FLEET_WORKER_LOOP(tiles);
}
#if defined(FLEET_HOST)
FLEET_KERNEL(declared_kernel, tiles, DECLARED)
{
    FLEET_WORKER_LOOP(tiles);
}
#else /* it is the same there, and takes as long to compile */
#define declared_kernel any_kernel
#define declared_kernel_traits any_kernel_traits
#endif

/* ---- what they must be ---- */

/* From -4 to 4: exact in bf16, and so are all sums in float. */
static float whole(uint32_t which, uint32_t row, uint32_t k)
{
    const uint32_t hash = (which * 7919 + row * 104729 + k * 1299709) * 2654435761u;
    return (float)((hash >> 16) % 9) - 4;
}

static void fill(tiles *h)
{
    for (uint32_t i = 0; i < CASES; i++) {
        const shape s = shapes[i];
        const strides by = strides_of(s, i);
        h->shapes[i] = s;
        for (uint32_t k = 0; k < s.k; k++) {
            for (uint32_t m = 0; m < s.m; m++)
                h->a[i][m * by.a_row + k] = fleet_bf16_from_float(whole(i, m, k));
            for (uint32_t n = 0; n < s.n; n++)
                h->b[i][n * by.b_row + k * by.b_column] =
                    fleet_bf16_from_float(whole(i + 100, n, k));
        }
    }
    for (uint32_t n = 0; n < MOST_N; n++)
        h->weights[n] = fleet_bf16_from_float(0.5f + (float)n / 8);
}

static int near(double got, double want)
{
    return fabs(got - want) <= 1e-5 * (1 + fabs(want));
}

/* NaN where something was not written. */
static int row_is(test_run *t, const result *r, uint32_t which, uint32_t m)
{
    const shape s = shapes[which];
    const uint32_t first_chunk = s.k < CHUNK ? s.k : CHUNK;
    double c[MOST_N], sum = 0, squares = 0, most = -INFINITY, masked_most = -INFINITY, exps = 0;
    const uint32_t left = m == 0 ? 0 : s.n > 1 ? s.n - 1 : s.n; /* not masked */
    for (uint32_t n = 0; n < s.n; n++) {
        double first = 0;
        c[n] = 0;
        for (uint32_t k = 0; k < s.k; k++) {
            c[n] += (double)whole(which, m, k) * whole(which + 100, n, k);
            if (k + 1 == first_chunk) first = c[n];
        }
        sum += c[n], squares += c[n] * c[n], most = fmax(most, c[n]);
        if (n < left) masked_most = fmax(masked_most, c[n]);
        NEED(r->c[m * s.n + n] == c[n]);
        NEED(r->copied[m * s.n + n] == c[n]);
        if (s.m <= 2 * FLEET_FRAGMENT && s.n <= 2 * FLEET_FRAGMENT)
            NEED(r->blocked[m * s.n + n] == first);
    }
    for (uint32_t k = 0; k < s.k; k++)
        NEED(r->a[m * s.k + k] == fleet_bf16_from_float(whole(which, m, k)));
    NEED(r->sums[m] == sum);
    NEED(r->most[m] == most);
    for (uint32_t n = 0; n < left; n++) exps += exp(SCALE * (c[n] - masked_most));
    for (uint32_t n = 0; n < s.n; n++) {
        const float soft = r->soft[m * s.n + n];
        const double weight =
            which % 2 ? fleet_bf16_to_float(fleet_bf16_from_float(0.5f + (float)n / 8)) : 1;
        NEED(near(soft, n < left ? exp(SCALE * (c[n] - masked_most)) / exps : 0));
        NEED(near(r->norm[m * s.n + n], c[n] / sqrt(squares / s.n + EPSILON) * weight));
        NEED(r->rounded[m * s.n + n] == fleet_bf16_from_float(soft));
    }
    return 1;
}

static void run(test_run *t, const setting *s, fleet_kernel kernel, fleet_level level,
                uint32_t cases)
{
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_state_desc state_desc = setting_state_desc(s);
    fleet_launch_desc launch = setting_launch_desc(s);
    tiles *h = (tiles *)calloc(1, sizeof *h);
    result *results = (result *)malloc(CASES * sizeof *results);
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_grid grid =
        fleet_call_device(g, "all_of", tiles_all_of, fleet_shape1(fleet_dim_of((int32_t)cases)), 0);
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    void *args, *memory;
    CHECK(h && results);
    fleet_grid_level(g, grid, level);
    CHECK_STATUS(fleet_device_alloc(&args, sizeof *h), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&memory, CASES * sizeof *results), FLEET_OK);
    fill(h);
    h->results = (result *)memory;
    memset(results, 0xff, CASES * sizeof *results); /* not numbers */
    CHECK_STATUS(fleet_to_device(args, h, sizeof *h, NULL), FLEET_OK);
    CHECK_STATUS(fleet_to_device(memory, results, CASES * sizeof *results, NULL), FLEET_OK);
    if (fleet_plan_build(g, &desc, &plan)) {
        test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(g));
        return;
    }
    launch.steps = STEPS;
    launch.lds_bytes = LDS_BYTES;
    launch.threads = kernel.traits->threads & ~FLEETI_ANY_THREADS;
    launch.host.stack_bytes = 0; /* fragments of the CPU are large */
    if (!(kernel.traits->threads & FLEETI_ANY_THREADS)) launch.host.waves = 0;
    CHECK_STATUS(fleet_upload(&image, plan, NULL), FLEET_OK);
    CHECK_STATUS(fleet_state_create(&state, &image, &state_desc, NULL), FLEET_OK);
    CHECK_STATUS(fleet_launch(&state, &launch, kernel, args), FLEET_OK);
    if (!ended_with(t, &state, FLEET_OK)) return;
    CHECK_STATUS(fleet_to_host(results, memory, CASES * sizeof *results, NULL), FLEET_OK);
    for (uint32_t i = 0; i < cases && !t->failed_here; i++) {
        const float threads = (float)results[i].threads;
        CHECK(results[i].sum == threads * (threads + 1) / 2 && results[i].max == threads);
        for (uint32_t m = 0; m < shapes[i].m; m++)
            if (!row_is(t, results + i, i, m)) {
                printf("    case %u, row %u\n", i, m);
                break;
            }
    }
    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_device_free(memory);
    fleet_device_free(args);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
    free(results);
    free(h);
}
static void run_any(test_run *t, const setting *s, void *unused)
{
    (void)unused;
    run(t, s, FLEET_KERNEL_OF(any_kernel), FLEET_LEVEL_CU, CASES);
}
static void run_declared(test_run *t, const setting *s, void *unused)
{
    (void)unused;
    run(t, s, FLEET_KERNEL_OF(declared_kernel), FLEET_LEVEL_CU, CASES);
}
static void run_waves(test_run *t, const setting *s, void *unused)
{
    (void)unused;
    run(t, s, FLEET_KERNEL_OF(any_kernel), FLEET_LEVEL_WAVE, SMALL);
}
static void any_threads(test_run *t)
{
    in_settings(t, 3, run_any, NULL);
}
static __attribute__((unused)) void declared_threads(test_run *t)
{
    in_settings(t, 2, run_declared, NULL);
}
static void wavefront_tasks(test_run *t)
{
    in_settings(t, 2, run_waves, NULL);
}

/* Each element has a place of its own. Eight rows' quads of one column are in different banks, and
   so are four quads of two rows, which is how matrix instructions read them. */
static void swizzle(test_run *t)
{
    static fleet_quad quads[FLEET_LDS_TILE_QUADS(20u, 130u)];
    static uint8_t seen[FLEET_LDS_TILE_QUADS(20u, 130u) * 8];
    fleet_lds_tile tile;
    tile.quads = quads, tile.rows = 20, tile.columns = 130;
    CHECK_INT(FLEET_LDS_TILE_QUADS(20u, 130u), 20 * 24);
    for (uint32_t row = 0; row < 20; row++)
        for (uint32_t column = 0; column < 192; column++)
            seen[fleet_lds_tile_at(tile, row, column) - (fleet_bf16 *)quads]++;
    for (uint32_t i = 0; i < sizeof seen; i++) CHECK_INT(seen[i], 1);
    for (uint32_t first = 0; first < 16; first += 8)
        for (uint32_t quad = 0; quad < 24; quad++) {
            uint32_t banks = 0, halves = 0;
            for (uint32_t i = 0; i < 8; i++) {
                const fleet_bf16 *of_rows = fleet_lds_tile_at(tile, first + i, quad * 8);
                const fleet_bf16 *of_two = fleet_lds_tile_at(tile, first + quad % 4 * 2 + i / 4,
                                                             (quad / 4 * 4 + i % 4) * 8);
                banks |= 1u << (of_rows - (fleet_bf16 *)quads) / 8 % 8;
                halves |= 1u << (of_two - (fleet_bf16 *)quads) / 8 % 8;
            }
            CHECK_INT(banks, 255);
            CHECK_INT(halves, 255);
        }
}

static void rounding(test_run *t)
{
    static const float from[7] = {
        1, 1.00390625f, 1.01171875f, -3.3895314e38f, 3.4028235e38f, 1e-40f, 0};
    static const uint16_t want[7] = {0x3f80, 0x3f80, 0x3f82, 0xff7f, 0x7f80, 0x0001, 0};
    for (uint32_t i = 0; i < 7; i++) CHECK_INT(fleet_bf16_from_float(from[i]), want[i]);
    for (uint32_t i = 0; i < 65536; i++) {
        const float x = fleet_bf16_to_float(i);
        if (x == x)
            CHECK_INT(fleet_bf16_from_float(x), i);
        else
            CHECK(fleet_bf16_to_float(fleet_bf16_from_float(x)) != x);
    }
}

static void all(test_run *t)
{
    TEST(swizzle);
    TEST(rounding);
    TEST(any_threads);
#if !defined(__SANITIZE_THREAD__) /* slow there, and all in one thread of the system */
    TEST(declared_threads);
#endif
    TEST(wavefront_tasks);
}

TEST_MAIN(all)
