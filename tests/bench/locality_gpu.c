/* The plans of locality.h as machine code: the layer's products by matrix instructions, launched by the kit, on an
   MI300X or on a simulated one, whose own caches count hits (AMDSIM_STATS=1). Two models of the caches that share
   no line of code look at the same schedule.

   tests/bench/locality_gpu.sh builds it, runs it on the simulated MI300X and shows both. By itself:
       locality_gpu BATCH KIND      KIND: 0 M-tile, 1 M-split, 2 Mirage-like

   Results are compared with sums on the host, a sample of each product. */
#define FLEET_IMPLEMENTATION
#include "fleet_sched.h"
#pragma clang diagnostic ignored "-Wunused-function"
#include "locality.h"

#include <math.h>

#define THREADS 256
#define WAVE_COLUMNS 16 /* a tile's 64 columns are those of 4 waves */

typedef short bf16x4 __attribute__((ext_vector_type(4)));
typedef short bf16x8 __attribute__((ext_vector_type(8)));
typedef float f32x4 __attribute__((ext_vector_type(4)));

typedef struct product {
    fleet_linear linear;
    uint32_t op;
    uint32_t fused; /* gate_up: its columns are gate and up in turn, its outputs SiLU(gate) * up */
    const uint16_t *x, *weights;
    uint16_t *y;
} product;

static __host__ __device__ float float_of(uint16_t bf16)
{
    union {
        uint32_t bits;
        float f;
    } u;
    u.bits = (uint32_t)bf16 << 16;
    return u.f;
}
static __host__ __device__ uint16_t bf16_of(float f)
{
    union {
        float f;
        uint32_t bits;
    } u;
    u.f = f;
    return (uint16_t)((u.bits + 0x7fff + (u.bits >> 16 & 1)) >> 16);
}
static __host__ __device__ float silu(float gate, float up)
{
    return gate / (1 + expf(-gate)) * up;
}

FLEET_DEVICE void store(const product *p, uint32_t row, uint32_t column, float value)
{
    if (p->fused) {
        const float other = __shfl_xor(value, 1);
        if (row < p->linear.m && column % 2 == 0)
            p->y[(size_t)row * (p->linear.n / 2) + column / 2] = bf16_of(silu(value, other));
    } else if (row < p->linear.m) {
        p->y[(size_t)row * p->linear.n + column] = bf16_of(value);
    }
}

/* A tile of 16 x 64: activations through LDS, weights straight to the registers of the wave whose columns they
   are. A lane has eight values of K, and each half of them is one matrix instruction's; which ones are together does
   not matter, as long as both factors have the same. */
FLEET_DEVICE void multiply_tile(const product *p, fleet_tile tile, uint32_t thread, uint16_t *lds)
{
    const uint32_t k = p->linear.k, lane = thread % 64, group = lane / 16;
    const uint32_t m = tile.m * LOCALITY_TILE_M, n = tile.n * LOCALITY_TILE_N;
    const uint32_t column = n + thread / 64 * WAVE_COLUMNS + lane % 16;
    const uint16_t *weights = p->weights + (size_t)column * k + 8 * group;
    const uint16_t *from = p->x + (size_t)(m + thread / 16) * k + thread % 16 * 16;
    f32x4 sum = {0, 0, 0, 0};
    for (uint32_t chunk = 0; chunk < k; chunk += LOCALITY_TILE_K) {
        bf16x8 *to = (bf16x8 *)(lds + thread * 16);
        to[0] = *(const bf16x8 *)(from + chunk);
        to[1] = *(const bf16x8 *)(from + chunk + 8);
        fleet_block_barrier();
        for (uint32_t i = 0; i < LOCALITY_TILE_K; i += 32) {
            const bf16x8 a = *(const bf16x8 *)(lds + lane % 16 * LOCALITY_TILE_K + i + 8 * group);
            const bf16x8 b = *(const bf16x8 *)(weights + chunk + i);
            sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a.lo, b.lo, sum, 0, 0, 0);
            sum = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a.hi, b.hi, sum, 0, 0, 0);
        }
        fleet_block_barrier();
    }
    for (uint32_t i = 0; i < 4; i++) store(p, m + 4 * group + i, column, sum[i]);
}

FLEET_DEVICE void silu_tile(const product *p, fleet_tile tile, uint32_t thread, uint32_t threads)
{
    for (uint32_t i = thread; i < LOCALITY_TILE_M * LOCALITY_TILE_N; i += threads) {
        const uint32_t row = tile.m * LOCALITY_TILE_M + i / LOCALITY_TILE_N;
        const uint32_t column = tile.n * LOCALITY_TILE_N + i % LOCALITY_TILE_N;
        const uint16_t *x = p->x + (size_t)row * 2 * p->linear.n + column;
        if (row < p->linear.m)
            p->y[(size_t)row * p->linear.n + column] =
                bf16_of(silu(float_of(x[0]), float_of(x[p->linear.n])));
    }
}

/* As walk_task of locality.h. */
FLEET_TILE(run_product, product)
{
    FLEET_LDS(uint16_t, lds, LOCALITY_TILE_M * LOCALITY_TILE_K);
    FLEET_UNUSED(at);
    const fleet_partition part = fleet_linear_partition(&args->linear, ctx.slice, ctx.slices);
    for (uint32_t t = ctx.tile_index; t < part.m_tiles * part.n_tiles; t += ctx.tile_num) {
        const fleet_tile tile = fleet_partition_tile(&args->linear, &part, t);
        if (args->op == OP_SILU)
            silu_tile(args, tile, ctx.thread, ctx.threads);
        else
            multiply_tile(args, tile, ctx.thread, lds);
    }
    return FLEET_OK;
}
#define PRODUCT_TILES(TILE, P) TILE(P, run_product)
FLEET_DISPATCH(product, PRODUCT_TILES)
FLEET_KERNEL(layer_kernel, product, THREADS)
{
    FLEET_WORKER_LOOP(product);
}

static void checked(const char *what, fleet_status status)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", what, fleet_status_text(status));
    exit(1);
}

/* `count` values around 0 in device memory, and the host's copy of them. */
static uint16_t *made(size_t count, uint32_t seed, float scale, uint16_t **host)
{
    void *device;
    *host = (uint16_t *)malloc(count * sizeof **host);
    if (!*host) exit(1);
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        (*host)[i] = bf16_of(scale * ((float)(seed >> 8) * 0x1p-23f - 1));
    }
    checked("memory", fleet_device_alloc(&device, count * sizeof **host));
    checked("copy", fleet_to_device(device, *host, count * sizeof **host, 0));
    return (uint16_t *)device;
}

static float dot(const product *p, const uint16_t *x, const uint16_t *weights, uint32_t row,
                 uint32_t column)
{
    double sum = 0;
    for (uint32_t k = 0; k < p->linear.k; k++)
        sum += (double)float_of(x[(size_t)row * p->linear.k + k]) *
               float_of(weights[(size_t)column * p->linear.k + k]);
    return (float)sum;
}

/* A sample of the outputs; *seen says how many. */
static uint32_t wrong_of(const product *p, const uint16_t *x, const uint16_t *weights,
                         const uint16_t *y, uint32_t *seen)
{
    const uint32_t columns = p->linear.n / (p->fused ? 2 : 1);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < 64; i++, ++*seen) {
        const uint32_t row = i * 37 % p->linear.m, column = (i * 7919 + i) % columns;
        const float got = float_of(y[(size_t)row * columns + column]);
        float want;
        if (p->fused)
            want =
                silu(dot(p, x, weights, row, 2 * column), dot(p, x, weights, row, 2 * column + 1));
        else
            want = dot(p, x, weights, row, column);
        wrong += !(fabsf(got - want) <= 0.01f + 0.02f * fabsf(want));
    }
    return wrong;
}

/* What cache_sim.h says of the plan: as it stands, and where each acquire empties the L2, as amdsim has it. */
static void print_expected(const layer *l)
{
    locality_model model = locality_model_default();
    locality r = locality_run(l, &model);
    printf("cache_sim: hits %.1f %%, lines read %llu\n", hit_rate(&r),
           (unsigned long long)r.total.fabric_reads);
    model.acquires_forget = 1;
    r = locality_run(l, &model);
    printf("cache_sim: hits %.1f %%, lines read %llu, where acquires empty the L2\n", hit_rate(&r),
           (unsigned long long)r.total.fabric_reads);
    printf("the plan:  write-backs %llu\n",
           (unsigned long long)fleet_plan_get_stats(l->plan).releases);
}

int main(int argc, char **argv)
{
    const uint32_t batch = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
    const layer_kind kind = (layer_kind)(argc > 2 ? atoi(argv[2]) : 0);
    const uint32_t rows = (batch - 1) / LOCALITY_TILE_M * LOCALITY_TILE_M + LOCALITY_TILE_M;
    uint16_t *x[OPS], *weights[OPS], *y[OPS];
    product p[OPS];
    layer l;
    fleet_image image;
    fleet_state state;
    fleet_launch_desc launch = fleet_launch_desc_default();
    void *args;
    uint32_t wrong = 0, seen = 0;
    if (!layer_make(&l, kind, batch)) {
        fprintf(stderr, "%s\n", l.why);
        return 1;
    }
    memset(p, 0, sizeof p);
    for (uint32_t i = 0; i < OPS; i++) {
        const size_t k = l.linear[i].k, n = l.linear[i].n;
        p[i].linear = l.linear[i];
        p[i].op = i;
        p[i].fused = i == OP_GATE_UP && !layer_is_unaware(kind);
        if (i == OP_SILU)
            p[i].x = p[OP_GATE_UP].y, x[i] = y[OP_GATE_UP];
        else if (i == OP_DOWN)
            p[i].x = p[OP_SILU].y, x[i] = y[OP_SILU];
        else
            p[i].x = made(rows * k, i + 1, 1, &x[i]);
        p[i].weights = made(k * n ? k * n : 1, i + 11, 0.03f, &weights[i]);
        p[i].y = made(rows * n, i + 21, 0, &y[i]);
    }
    if (!layer_is_unaware(kind)) p[OP_GATE_UP].y = p[OP_SILU].y;
    checked("memory", fleet_device_alloc(&args, sizeof p));
    checked("copy", fleet_to_device(args, p, sizeof p, 0));
    launch.threads = THREADS;
    checked("upload", fleet_upload(&image, l.plan, 0));
    checked("state", fleet_state_create(&state, &image, NULL, 0));
    checked("launch", fleet_launch(&state, &launch, FLEET_KERNEL_OF(layer_kernel), args));
    checked("run", fleet_state_wait(&state, 0));
    for (uint32_t i = 0; i < OPS; i++) {
        const uint32_t columns = p[i].fused ? l.linear[i].n / 2 : l.linear[i].n;
        checked("copy", fleet_to_host(y[i], p[i].y, (size_t)rows * columns * sizeof *y[i], 0));
    }
    for (uint32_t i = 0; i < OPS; i++)
        if (i != OP_SILU) wrong += wrong_of(&p[i], x[i], weights[i], y[i], &seen);
    printf("%s: %u of %u samples are wrong\n", wrong ? "FAIL" : "ok", wrong, seen);
    print_expected(&l);
    return wrong != 0;
}
