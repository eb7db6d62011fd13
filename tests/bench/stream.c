/* The linear phases of one decode step of Qwen3-8B at batch 1: 36 layers and the LM head, 15.14 GB of bf16 weights,
   181 events that all workers arrive at and wait for. Three ways on one GPU:
     by hand   one kernel written for this chain and nothing else: per SM a producer lane, a ring of 24 stages of 8 KB,
               eight warps, a counter in memory between phases; the producer runs across events, or stops at them
     fleet     the same tile in a plan, its weights by FLEET_PRODUCER; likewise
   and what a kernel that only reads the weights takes. Both chains compute the same bits. A launch runs several steps;
   times are those of one.
       nvcc -x cu -arch=sm_90 -O3 -std=c++17 -I. -Itests -Itests/bench tests/bench/stream.c */
#include "bench.h"

#if !defined(FLEET_CUDA)
int main(void)
{
    printf("a benchmark of NVIDIA GPUs from sm_90 on\n");
    return 0;
}
#else
#include <cuda_bf16.h>

#define SLOTS 24
#define SLOT_BYTES 8192
#define WARPS 8
#define LAYERS 36
#define STEPS 4
#define UNIT (SLOT_BYTES / 2) /* weights of a slot */

typedef struct phase {
    const char *weights; /* [rows][units][SLOT_BYTES] */
    const float *in;
    float *out;
    uint32_t rows, units; /* a row is so many slots */
    uint32_t turn;        /* worker of row 0: the same ones shall not always have a row more */
    uint32_t stops;       /* 1: the producer waits for the phase's event */
} phase;

/* ---- what both do with a row and with the activations ---- */

FLEET_DEVICE void activations_to_lds(const phase *p, __nv_bfloat16 *x, uint32_t thread)
{
    /* A stage at a time, all of it in flight together. */
    for (uint32_t unit = 0; unit < p->units; unit++) {
        const float4 *from = (const float4 *)(p->in + unit * UNIT) + thread;
        __nv_bfloat162 *to = (__nv_bfloat162 *)(x + unit * UNIT) + 2 * thread;
        float4 v[UNIT / 4 / (WARPS * 32)];
#pragma unroll
        for (uint32_t i = 0; i < UNIT / 4 / (WARPS * 32); i++) v[i] = __ldcg(from + i * WARPS * 32);
#pragma unroll
        for (uint32_t i = 0; i < UNIT / 4 / (WARPS * 32); i++) {
            to[2 * i * WARPS * 32] = __floats2bfloat162_rn(v[i].x, v[i].y);
            to[2 * i * WARPS * 32 + 1] = __floats2bfloat162_rn(v[i].z, v[i].w);
        }
    }
}
FLEET_DEVICE float dot_slot(const void *weights, const __nv_bfloat16 *x, uint32_t lane, float sum)
{
    const uint4 *a = (const uint4 *)weights, *b = (const uint4 *)x;
#pragma unroll 8
    for (uint32_t i = lane; i < SLOT_BYTES / 16; i += 32) {
        uint4 u = a[i], v = b[i];
        const __nv_bfloat162 *pu = (const __nv_bfloat162 *)&u, *pv = (const __nv_bfloat162 *)&v;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 fu = __bfloat1622float2(pu[j]), fv = __bfloat1622float2(pv[j]);
            sum += fu.x * fv.x;
            sum += fu.y * fv.y;
        }
    }
    return sum;
}
FLEET_DEVICE void put_row(const phase *p, uint32_t row, float sum, uint32_t lane)
{
    for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(~0u, sum, o);
    if (lane == 0) p->out[row] = sum * rsqrtf((float)(p->units * UNIT));
}

/* ---- fleet ---- */

/* Both work on a copy of their arguments: the compiler must assume that each step of the stream changes memory. */
FLEET_PRODUCER(product, phase)
{
    const phase f = *args;
    FLEET_UNUSED(at);
    if (f.stops && !fleet_producer_await_task(producer)) return;
    for (uint32_t r = (ctx.tile_index + ctx.tile_num - f.turn) % ctx.tile_num; r < f.rows;
         r += ctx.tile_num)
        fleet_producer_copy(producer, f.weights + (uint64_t)r * f.units * SLOT_BYTES,
                            f.units * SLOT_BYTES);
}
FLEET_TILE(product, phase)
{
    const uint32_t warp = ctx.thread / 32, lane = ctx.thread % 32;
    __nv_bfloat16 *x = (__nv_bfloat16 *)ctx.lds;
    fleet_consumer consumer = fleet_consumer_open(&ctx);
    const phase f = *args;
    uint32_t index = 0;
    FLEET_UNUSED(at);
    activations_to_lds(&f, x, ctx.thread);
    fleet_barrier(&ctx);
    for (uint32_t r = (ctx.tile_index + ctx.tile_num - f.turn) % ctx.tile_num; r < f.rows;
         r += ctx.tile_num, index++) {
        float sum = 0;
        if (index % WARPS != warp) {
            fleet_stages_skip(&consumer, f.units);
            continue;
        }
        for (uint32_t k = 0; k < f.units; k++) {
            const void *w = fleet_stage_acquire(&consumer);
            if (!w) return fleet_consumer_status(&consumer);
            sum = dot_slot(w, x + k * UNIT, lane, sum);
            fleet_stage_release(&consumer, 1);
        }
        put_row(&f, r, sum, lane);
    }
    return FLEET_OK;
}
#define PHASE_TILES(TILE, P) TILE(P, product)
FLEET_DISPATCH_WITH_PIPELINE(phase, PHASE_TILES, PHASE_TILES, SLOTS, SLOT_BYTES)
FLEET_KERNEL(phase_kernel, phase, FLEET_ANY_THREADS(WARPS * 32))
{
    FLEET_WORKER_LOOP(phase);
}

/* ---- by hand ---- */

__device__ __forceinline__ uint32_t shared_of(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
__device__ __forceinline__ void await(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared.b64 p,[%0],%1;\n"
                 "@p bra there;\nbra again;\nthere:\n}" ::"r"(shared_of(barrier)),
                 "r"(parity)
                 : "memory");
}
__global__ void __launch_bounds__(WARPS * 32 + 32)
    by_hand(const phase *phases, uint32_t n, uint32_t *counter, uint32_t base)
{
    extern __shared__ uint4 lds[];
    char *ring = (char *)lds;
    __nv_bfloat16 *x = (__nv_bfloat16 *)(ring + SLOTS * SLOT_BYTES);
    __shared__ uint64_t full[SLOTS], empty[SLOTS];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, workers = gridDim.x;
    uint32_t number = 0;
    if (threadIdx.x < SLOTS) {
        asm volatile("mbarrier.init.shared.b64 [%0],1;" ::"r"(shared_of(full + threadIdx.x)));
        asm volatile("mbarrier.init.shared.b64 [%0],1;" ::"r"(shared_of(empty + threadIdx.x)));
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    if (warp == WARPS) {
        if (lane) return;
        for (uint32_t p = 0; p < STEPS * n; p++) {
            const phase f = phases[p % n];
            if (f.stops && p)
                while ((int32_t)(fleeti_poll_device(counter) - base - p * workers) < 0) {
                }
            for (uint32_t r = (blockIdx.x + workers - f.turn) % workers; r < f.rows; r += workers)
                for (uint32_t k = 0; k < f.units; k++, number++) {
                    const uint32_t slot = number % SLOTS;
                    if (number >= SLOTS) await(empty + slot, (number / SLOTS & 1) ^ 1);
                    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;" ::"r"(
                                     shared_of(full + slot)),
                                 "r"(SLOT_BYTES)
                                 : "memory");
                    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                                 ".L2::cache_hint [%0],[%1],%2,[%3],%4;" ::"r"(
                                     shared_of(ring + slot * SLOT_BYTES)),
                                 "l"(f.weights + ((uint64_t)r * f.units + k) * SLOT_BYTES),
                                 "r"(SLOT_BYTES), "r"(shared_of(full + slot)),
                                 "l"(0x12f0000000000000ull)
                                 : "memory");
                }
        }
        return;
    }
    for (uint32_t p = 0; p < STEPS * n; p++) {
        const phase f = phases[p % n];
        uint32_t index = 0;
        if (p) {
            if (threadIdx.x == 0)
                while ((int32_t)(fleeti_poll_device(counter) - base - p * workers) < 0) {
                }
            asm volatile("bar.sync 1,256;" ::: "memory");
        }
        activations_to_lds(&f, x, threadIdx.x);
        asm volatile("bar.sync 1,256;" ::: "memory");
        for (uint32_t r = (blockIdx.x + workers - f.turn) % workers; r < f.rows;
             r += workers, index++) {
            float sum = 0;
            if (index % WARPS != warp) {
                number += f.units;
                continue;
            }
            for (uint32_t k = 0; k < f.units; k++, number++) {
                const uint32_t slot = number % SLOTS;
                await(full + slot, number / SLOTS & 1);
                sum = dot_slot(ring + slot * SLOT_BYTES, x + k * UNIT, lane, sum);
                __syncwarp();
                if (lane == 0)
                    asm volatile("mbarrier.arrive.shared.b64 _,[%0];" ::"r"(shared_of(empty + slot))
                                 : "memory");
            }
            put_row(&f, r, sum, lane);
        }
        asm volatile("bar.sync 1,256;" ::: "memory");
        if (threadIdx.x == 0) fleeti_add_arrival_device(counter, 1);
    }
}

/* Reads it all and no more. */
__global__ void __launch_bounds__(1024) read_all(const uint4 *from, size_t n, uint32_t *sink)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    uint4 sum = make_uint4(0, 0, 0, 0);
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * stride < n; i += 4 * stride)
#pragma unroll
        for (int k = 0; k < 4; k++) {
            uint4 v = __ldcs(from + i + k * stride);
            sum.x ^= v.x, sum.y ^= v.y, sum.z ^= v.z, sum.w ^= v.w;
        }
    for (; i < n; i += stride) sum.x ^= from[i].x;
    if ((sum.x ^ sum.y ^ sum.z ^ sum.w) == 0x12345678) *sink = 1;
}
__global__ void fill(uint32_t *weights, size_t n)
{
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u;
        h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
        /* Two bf16 of either sign, magnitude 0.5 to 2. */
        weights[i] = (h & 0x80ff80ffu) | 0x3f003f00u;
    }
}

/* ---- measuring ---- */

#define RUNS 21
typedef struct bench {
    phase *phases; /* device */
    uint32_t n, workers, base;
    uint32_t *counter;
    size_t bytes;
    char *weights;
    fleet_state state;
    fleet_launch_desc launch;
    float *activations;
} bench;

static void run_by_hand(bench *b)
{
    by_hand<<<b->workers, WARPS * 32 + 32, SLOTS * SLOT_BYTES + 3 * UNIT * 2>>>(
        b->phases, b->n, b->counter, b->base);
    b->base += STEPS * b->n * b->workers;
}
static void run_fleet(bench *b)
{
    CHECKED(fleet_launch(&b->state, &b->launch, FLEET_KERNEL_OF(phase_kernel), b->phases));
}
static void run_read(bench *b)
{
    for (uint32_t i = 0; i < STEPS; i++)
        read_all<<<b->workers * 2, 1024>>>((const uint4 *)b->weights, b->bytes / 16,
                                           b->counter + 32);
}
static double once_ms(bench *b, void (*run)(bench *))
{
    timer timer;
    timer_start(&timer);
    run(b);
    return timer_stop_us(&timer) / 1e3 / STEPS;
}

int main(void)
{
    static const uint32_t rows[5] = {6144, 0, 4096, 24576, 4096}, units[5] = {1, 1, 1, 1, 3};
    static phase phases[5 * LAYERS + 1];
    static float first[2][8192], second[2][8192];
    static const char *const names[5] = {"reads only", "by hand, across events",
                                         "fleet, across events", "by hand, stops at events",
                                         "fleet, stops at events"};
    static double ms[5][RUNS];
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_etensor before = {0};
    fleet_plan *plan = NULL;
    fleet_image image;
    uint32_t turn = 0, same = 1;
    size_t at = 0;
    float *activations;
    bench b;
    memset(&b, 0, sizeof b);
    CHECKED(fleet_topology_query(&desc.topology));
    for (uint32_t k = 0; k < desc.topology.chiplets; k++) b.workers += desc.topology.units[k];
    b.n = 5 * LAYERS + 1;
    for (uint32_t p = 0; p < b.n; p++) {
        phases[p].rows = p + 1 < b.n ? rows[p % 5] : 151936;
        phases[p].units = p + 1 < b.n ? units[p % 5] : 1;
        phases[p].turn = turn;
        turn = (turn + phases[p].rows) % b.workers;
        b.bytes += (size_t)phases[p].rows * phases[p].units * SLOT_BYTES;
    }
    CHECKED(fleet_device_alloc((void **)&b.weights, b.bytes));
    CHECKED(fleet_device_alloc((void **)&activations, 2 * 160000 * sizeof(float)));
    CHECKED(fleet_device_alloc((void **)&b.counter, 256));
    CHECKED(fleet_device_clear(b.counter, 256, NULL));
    CHECKED(fleet_device_alloc((void **)&b.phases, sizeof phases));
    fill<<<1024, 256>>>((uint32_t *)b.weights, b.bytes / 4);
    fill<<<1024, 256>>>((uint32_t *)activations, 2 * 160000);
    for (uint32_t p = 0; p < b.n; p++) {
        char name[16];
        fleet_grid grid;
        snprintf(name, sizeof name, "product %u", p);
        grid = fleet_call_device(g, name, phase_product, fleet_shape0(), p);
        snprintf(name, sizeof name, "E%u", p);
        fleet_grid_level(g, grid, FLEET_LEVEL_DEVICE);
        if (p) fleet_in_edge(g, grid, before, "->");
        if (p + 1 < b.n) {
            before = fleet_event_tensor(g, name, fleet_shape0(), FLEET_COUNT_DERIVED);
            fleet_out_edge(g, grid, before, "->");
        }
        phases[p].weights = b.weights + at;
        at += (size_t)phases[p].rows * phases[p].units * SLOT_BYTES;
        /* The second phase of a layer stands for attention: it has no weights, and leaves its input. */
        phases[p].in = activations + (p & 1) * 160000;
        phases[p].out = activations + (~p & 1) * 160000;
    }
    if (fleet_plan_build(g, &desc, &plan)) {
        fprintf(stderr, "%s\n", fleet_graph_error(g));
        return 1;
    }
    CHECKED(fleet_upload(&image, plan, NULL));
    CHECKED(fleet_state_create(&b.state, &image, NULL, NULL));
    b.launch = fleet_launch_desc_default();
    b.launch.steps = STEPS;
    b.launch.threads = WARPS * 32;
    b.launch.lds_bytes = 3 * UNIT * 2;
    b.launch.pipeline_bytes = FLEET_PIPELINE_BYTES(phase);
    CHECKED(fleeti_rt(cudaFuncSetAttribute((const void *)by_hand,
                                           cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           SLOTS * SLOT_BYTES + 3 * UNIT * 2)));
    for (uint32_t stops = 0; stops < 2; stops++) {
        for (uint32_t p = 0; p < b.n; p++) phases[p].stops = stops;
        CHECKED(fleet_to_device(b.phases, phases, sizeof phases, NULL));
        for (uint32_t r = 0; r < RUNS + 3; r++) { /* in turn, so that all see the same clocks */
            double read = once_ms(&b, run_read);
            double hand, fleet;
            CHECKED(fleet_device_clear(activations + 160000, 160000 * 4, NULL));
            fill<<<64, 256>>>((uint32_t *)activations, 160000);
            hand = once_ms(&b, run_by_hand);
            CHECKED(fleet_to_host(first[stops], activations + 160000, sizeof first[0], NULL));
            CHECKED(fleet_device_clear(activations + 160000, 160000 * 4, NULL));
            fill<<<64, 256>>>((uint32_t *)activations, 160000);
            fleet = once_ms(&b, run_fleet);
            CHECKED(fleet_state_wait(&b.state, NULL));
            CHECKED(fleet_to_host(second[stops], activations + 160000, sizeof second[0], NULL));
            same &= memcmp(first[stops], second[stops], sizeof first[0]) == 0;
            if (r < 3) continue;
            if (!stops) ms[0][r - 3] = read;
            ms[1 + 2 * stops][r - 3] = hand;
            ms[2 + 2 * stops][r - 3] = fleet;
        }
    }
    printf("%u phases, %.2f GB of weights, %u workers, %d slots of %d bytes\n", b.n,
           (double)b.bytes / 1e9, b.workers, SLOTS, SLOT_BYTES);
    for (uint32_t i = 0; i < 5; i++) {
        qsort(ms[i], RUNS, sizeof(double), by_value);
        printf("%-28s median %.3f ms  min %.3f  %.0f GB/s", names[i], ms[i][RUNS / 2], ms[i][0],
               (double)b.bytes / ms[i][RUNS / 2] / 1e6);
        if (i == 2 || i == 4)
            printf("  %.1f%% of by hand", 100 * ms[i - 1][RUNS / 2] / ms[i][RUNS / 2]);
        printf("\n");
    }
    printf("%s: %g %g %g\n", same ? "same bits" : "DIFFERENT", second[0][0], second[0][1],
           second[0][2]);
    fleet_state_free(&b.state);
    fleet_image_free(&image);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
    return !same;
}
#endif
