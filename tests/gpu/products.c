/* The products of examples/qwen3 on this platform, with numbers of rows and k's that take different
   paths: waves without k's, full and partial rings of blocks, one and several tiles of rows. */
// run: asan
// run: tsan
// run: plain -march=native
// hip: 6 runs
#include "settings.h"
#include "examples/qwen3/tasks/linear.h"

#define TILES(TILE_, P) TILE_(P, linear)
DECODER_DISPATCH(task_args, TILES, TILES)
FLEET_KERNEL(multiply_all, task_args, FLEET_ANY_THREADS(THREADS))
{
    FLEET_WORKER_LOOP(task_args);
}

#define CASES 5u
static const uint32_t row_cases[CASES] = {1, 16, 17, 33, MAX_ROWS};
static const uint32_t block_cases[CASES] = {1, 4, 5, 33, 71}; /* of BLOCK_K k's */
#define MAX_K (71u * BLOCK_K)
#define COLUMNS (2 * TILE_N + 5)
#define PADDED (3 * TILE_N)
#define WIDE (MAX_PANEL_TILES < 2 ? MAX_PANEL_TILES : 2u) /* the last panel is not full */
#define UNTOUCHED 12345.0f

/* From -1 to 1. */
static float value_of(uint32_t i)
{
    return (float)(i * 2654435761u >> 8) / 8388608.0f - 1;
}
static bf16 weight_of(uint32_t column, uint32_t k)
{
    return bf16_of_float(value_of(column * MAX_K + k));
}
static act_t x_of(uint32_t row, uint32_t k)
{
    return act_of_float(value_of(1000003 + row * MAX_K + k));
}

typedef struct product {
    task_args *ops;                       /* [CASES][CASES]: rows, k's */
    float *floats;                        /* of each task [MAX_ROWS][COLUMNS] */
    float want[CASES][MAX_ROWS][COLUMNS]; /* for each number of k's */
} product;

/* Device memory with these bytes. */
static void *copied(test_run *t, const void *from, size_t bytes)
{
    void *to = NULL;
    if (fleet_device_alloc(&to, bytes) || fleet_to_device(to, from, bytes, NULL))
        test_fail(t, __FILE__, __LINE__, "no device memory");
    return to;
}

/* Of a packed panel. */
static size_t tile_words(uint32_t k)
{
    return (size_t)WIDE * TILE_N * ceil_div(k, K_ALIGN) * K_ALIGN;
}
static const bf16 *packed_weights(test_run *t, uint32_t k)
{
    const size_t words = ceil_div(PADDED, WIDE * TILE_N) * tile_words(k);
    bf16 *packed = (bf16 *)calloc(words, sizeof *packed);
    void *to = NULL;
    for (uint32_t n = 0; packed && n < COLUMNS; n++)
        for (uint32_t i = 0; i < k; i++)
            packed[n / (WIDE * TILE_N) * tile_words(k) +
                   weight_at(n % (WIDE * TILE_N), i, WIDE, STAGE_K)] = weight_of(n, i);
    if (packed) to = copied(t, packed, words * sizeof *packed);
    free(packed);
    return (const bf16 *)to;
}

static const act_t *rows_of_x(test_run *t, uint32_t k)
{
    act_t *x = (act_t *)malloc((size_t)MAX_ROWS * k * sizeof *x);
    void *to = NULL;
    for (uint32_t i = 0; x && i < MAX_ROWS * k; i++)
        x[act_at(i / k, i % k, k)] = x_of(i / k, i % k);
    if (x) to = copied(t, x, (size_t)MAX_ROWS * k * sizeof *x);
    free(x);
    return (const act_t *)to;
}

static void want_products(product *p)
{
    for (uint32_t c = 0; c < CASES; c++)
        for (uint32_t r = 0; r < MAX_ROWS; r++)
            for (uint32_t n = 0; n < COLUMNS; n++) {
                double sum = 0;
                for (uint32_t k = 0; k < block_cases[c] * BLOCK_K; k++)
                    sum +=
                        (double)float_of_bf16(weight_of(n, k)) * (double)float_of_act(x_of(r, k));
                p->want[c][r][n] = (float)sum;
            }
}

/* A decoder that has nothing but its rows. */
static decoder decoder_of(test_run *t, uint32_t rows)
{
    decoder d;
    batch *b = (batch *)calloc(1, sizeof *b);
    memset(&d, 0, sizeof d);
    if (b) {
        b->rows = rows;
        d.b = (batch *)copied(t, b, sizeof *b);
    }
    free(b);
    return d;
}

static void check_results(test_run *t, const product *p, const float *floats)
{
    for (uint32_t i = 0; i < CASES * CASES; i++)
        for (uint32_t j = 0; j < MAX_ROWS * COLUMNS; j++) {
            const uint32_t r = j / COLUMNS, n = j % COLUMNS, rows = row_cases[i / CASES];
            const float is = floats[(size_t)i * MAX_ROWS * COLUMNS + j],
                        want = r < rows ? p->want[i % CASES][r][n] : UNTOUCHED;
            if (!(fabsf(is - want) <= 1e-5f * (100 + fabsf(want)))) {
                test_fail(t, __FILE__, __LINE__, "%u rows, %u k's: row %u, column %u is %f, not %f",
                          rows, block_cases[i % CASES] * BLOCK_K, r, n, (double)is, (double)want);
                return;
            }
        }
}

static void run_products(test_run *t, const setting *s, void *user)
{
    const product *p = (const product *)user;
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_state_desc state_desc = setting_state_desc(s);
    fleet_launch_desc launch = setting_launch_desc(s);
    fleet_graph *g = fleet_graph_create(NULL);
    const size_t words = (size_t)CASES * CASES * MAX_ROWS * COLUMNS;
    float *floats = (float *)malloc(words * sizeof *floats);
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    void *ops;
    CHECK(floats);
    for (size_t i = 0; i < words; i++) floats[i] = UNTOUCHED;
    CHECK_STATUS(fleet_to_device(p->floats, floats, words * sizeof *floats, NULL), FLEET_OK);
    for (uint32_t i = 0; i < CASES * CASES; i++) {
        char name[16];
        fleet_grid grid;
        snprintf(name, sizeof name, "linear.%u", i);
        grid = fleet_call_device(g, name, task_args_linear, fleet_shape0(), i);
        fleet_grid_level(g, grid, FLEET_LEVEL_DEVICE);
    }
    CHECK_STATUS(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    ops = copied(t, p->ops, CASES * CASES * sizeof *p->ops);
    CHECK_STATUS(fleet_upload(&image, plan, NULL), FLEET_OK);
    CHECK_STATUS(fleet_state_create(&state, &image, &state_desc, NULL), FLEET_OK);
    launch.threads = THREADS;
    launch.lds_bytes = LDS_BYTES, launch.pipeline_bytes = FLEET_PIPELINE_BYTES(task_args);
    CHECK_STATUS(fleet_launch(&state, &launch, FLEET_KERNEL_OF(multiply_all), ops), FLEET_OK);
    if (!ended_with(t, &state, FLEET_OK)) return;
    CHECK_STATUS(fleet_to_host(floats, p->floats, words * sizeof *floats, NULL), FLEET_OK);
    check_results(t, p, floats);
    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_device_free(ops);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
    free(floats);
}

static void products(test_run *t)
{
    static product p;
    task_args ops[CASES * CASES];
    void *floats;
    decoder d[CASES];
    const bf16 *weights[CASES];
    const act_t *x[CASES];
    memset(ops, 0, sizeof ops);
    want_products(&p);
    CHECK_STATUS(fleet_device_alloc(&floats, sizeof p.want[0] * CASES * CASES), FLEET_OK);
    p.ops = ops, p.floats = (float *)floats;
    for (uint32_t c = 0; c < CASES; c++) {
        d[c] = decoder_of(t, row_cases[c]);
        weights[c] = packed_weights(t, block_cases[c] * BLOCK_K);
        x[c] = rows_of_x(t, block_cases[c] * BLOCK_K);
        CHECK(d[c].b && weights[c] && x[c]);
    }
    for (uint32_t i = 0; i < CASES * CASES; i++) {
        task_args *o = &ops[i];
        o->d = d[i / CASES], o->weights = weights[i % CASES], o->x = x[i % CASES];
        o->session = 1 + i / CASES; /* within one, the tasks of a step have the same rows */
        o->shape.m = o->shape.tile_m = MAX_ROWS;
        o->shape.n = PADDED, o->shape.tile_n = WIDE * TILE_N;
        o->panel_bytes = (uint32_t)tile_words(block_cases[i % CASES] * BLOCK_K) * 2;
        o->shape.k = block_cases[i % CASES] * BLOCK_K, o->shape.tile_k = BLOCK_K;
        o->shape.element_bytes = 2;
        o->shape.split = FLEET_SPLIT_N, o->shape.traversal = FLEET_TRAVERSAL_M_MAJOR;
        o->epilogue = EPILOGUE_STORE, o->columns = COLUMNS;
        o->floats = p.floats + (size_t)i * MAX_ROWS * COLUMNS;
    }
    in_settings(t, 2, run_products, &p);
    for (uint32_t c = 0; c < CASES; c++) {
        fleet_device_free(d[c].b);
        fleet_device_free((void *)(uintptr_t)weights[c]);
        fleet_device_free((void *)(uintptr_t)x[c]);
    }
    fleet_device_free(floats);
}

/* What becomes of NaN when it is converted to the type of weights, and of keys and values. */
#define NANS 4u
typedef struct converted {
    uint32_t from[NANS];
    bf16 half[NANS];
    kv_t cached[NANS];
} converted;
FLEET_GLOBAL(64) void convert(converted *c)
{
    for (uint32_t i = fleet_thread_id(); i < NANS; i += fleet_thread_count()) {
        float f;
        memcpy(&f, &c->from[i], sizeof f);
        c->half[i] = bf16_of_float(f), c->cached[i] = kv_of_float(f);
    }
}
FLEET_THUNK1(convert, converted *)

static int is_nan(const kv_t *cached)
{
    uint32_t bits = 0;
    memcpy(&bits, cached, sizeof *cached);
    return sizeof(kv_t) == 2 ? (bits & 0x7fff) > 0x7c00 : (bits & 0x7fffffff) > 0x7f800000;
}

static void nan_stays_nan(test_run *t)
{
    converted c = {{0x7fffffff, 0x7fc00000, 0xffffffff, 0x7f800001}, {0}, {0}};
    fleet_kernel_desc k = fleet_kernel_desc_default();
    void *memory = copied(t, &c, sizeof c), *args[1];
    args[0] = &memory;
    k.blocks = 1, k.threads = 64;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(convert), args, &k), FLEET_OK);
    CHECK_STATUS(fleet_to_host(&c, memory, sizeof c, NULL), FLEET_OK);
    fleet_device_free(memory);
    for (uint32_t i = 0; i < NANS; i++) {
        CHECK((c.half[i] & 0x7fff) > 0x7f80);
        CHECK(is_nan(&c.cached[i]));
    }
}

static void all(test_run *t)
{
    TEST(nan_stays_nan);
    TEST(products);
}

TEST_MAIN(all)
