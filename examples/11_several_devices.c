/* 11: one graph over several devices.

   A tensor-parallel perceptron over R ranks, one rank for each device. Rank p has some columns of x and the rows of w that
   belong to them, so that each rank computes a summand of y = x w (GEMM). Each block of rows of y has an owner, which adds
   the summands (reduce-scatter) and sends the sum to all ranks (all-gather). Each rank then multiplies y by its columns
   of v (GEMM). The copies and sums are tasks like the others: a block of rows reaches the next product while
   other blocks are still being multiplied, and no device waits for all of another.

   The kit takes a table of addresses (fleet_peers) and does the rest: every rank builds the same plan, runs the tasks
   that fleet_grid_ranks places on it, and tells other ranks when data that they wait for is there.

   Without an engine, the ranks are virtual: one launch runs 1, 2, 3 and 4 of them on one device. With one, each process is
   a rank. On the CPU, by MPI:
       mpicc -std=c11 -O2 -DFLEET_MPI -I.. 11_several_devices.c -lpthread -lm && mpirun -n 3 ./a.out
   On the GPUs of a machine: -DFLEET_IPC or -DFLEET_NVSHMEM; parts/fleet_peers_ipc.h and
   fleet_peers_nvshmem.h say how the processes are started. rocSHMEM has the same calls on the host as
   NVSHMEM, under its own names (rocshmem_get_uniqueid, _init_attr, _malloc, _ptr, ...), so that its
   engine would be fleet_peers_nvshmem.h with these; its heap has to be fine-grained memory. That was
   never compiled. */
#define FLEET_IMPLEMENTATION
#include "fleet_sched.h"

#include <stdio.h>
#include <stdlib.h>
#if defined(FLEET_MPI)
#include "parts/fleet_peers_mpi.h"
#define ENGINE(what) fleet_peers_mpi_##what
typedef fleet_peers_mpi engine;
#elif defined(FLEET_IPC)
#include "parts/fleet_peers_ipc.h"
#define ENGINE(what) fleet_peers_ipc_##what
typedef fleet_peers_ipc engine;
#elif defined(FLEET_NVSHMEM)
#include "parts/fleet_peers_nvshmem.h"
#define ENGINE(what) fleet_peers_nvshmem_##what
typedef fleet_peers_nvshmem engine;
#endif

#define M 56 /* rows of x, y and z */
#define K 44 /* columns of x, rows of w: the ranks' shares differ in size */
#define N 48 /* columns of w and y, rows of v */
#define P 60 /* columns of v and z */
#define ROWS 8
#define COLUMNS 16
#define BLOCKS (M / ROWS)
#define STEPS 3
#define THREADS 64

/* What a rank keeps in its region for the others to read and write. Every rank has the same layout. */
typedef struct shared {
    float summand[FLEET_MAX_PEERS][M][N]; /* of the rows that this rank owns, from each rank */
    float y[M][N];
} shared;

typedef struct perceptron { /* what every tile sees */
    fleet_peers peers;
    uint64_t offset; /* of `shared` in a region: the kit's events come first */
    const float *x, *w, *v;
    float *z;
} perceptron;

FLEET_DEVICE shared *shared_of(const perceptron *args, uint32_t rank)
{
    return (shared *)(void *)((char *)args->peers.bases[rank] + args->offset);
}
/* The ranks' shares of n columns. */
FLEET_HOST_DEVICE uint32_t share_begin(uint32_t n, uint32_t rank, uint32_t ranks)
{
    return n * rank / ranks;
}
FLEET_HOST_DEVICE uint32_t blocks_each(uint32_t ranks)
{
    return (BLOCKS + ranks - 1) / ranks; /* of y; the last rank may own fewer */
}
FLEET_DEVICE float dot(const float *a, const float *b, uint32_t begin, uint32_t end,
                       uint32_t stride)
{
    float sum = 0;
    for (uint32_t k = begin; k < end; k++) sum += a[k] * b[k * stride];
    return sum;
}

/* (rank, block of rows, block of columns): this rank's summand, stored to the rank that owns the rows. */
FLEET_TILE(multiply, perceptron)
{
    const uint32_t rank = (uint32_t)at[0], ranks = args->peers.ranks;
    shared *owner = shared_of(args, (uint32_t)at[1] / blocks_each(ranks));
    for (uint32_t i = ctx.thread; i < ROWS * COLUMNS; i += ctx.threads) {
        const uint32_t row = (uint32_t)at[1] * ROWS + i / COLUMNS;
        const uint32_t column = (uint32_t)at[2] * COLUMNS + i % COLUMNS;
        owner->summand[rank][row][column] =
            dot(args->x + row * K, args->w + column, share_begin(K, rank, ranks),
                share_begin(K, rank + 1, ranks), N);
    }
    return FLEET_OK;
}
/* (block of rows): on its owner. The ranks are added in order, so that every run gives the same bits. */
FLEET_TILE(reduce, perceptron)
{
    const uint32_t ranks = args->peers.ranks;
    shared *own = shared_of(args, (uint32_t)at[0] / blocks_each(ranks));
    for (uint32_t i = ctx.thread; i < ROWS * N; i += ctx.threads) {
        const uint32_t row = (uint32_t)at[0] * ROWS + i / N, column = i % N;
        float sum = 0;
        for (uint32_t r = 0; r < ranks; r++) sum += own->summand[r][row][column];
        own->y[row][column] = sum;
    }
    return FLEET_OK;
}
/* (block of rows, rank): from its owner to another rank. */
FLEET_TILE(send, perceptron)
{
    const uint32_t owner = (uint32_t)at[0] / blocks_each(args->peers.ranks), to = (uint32_t)at[1];
    const shared *own = shared_of(args, owner);
    shared *other = shared_of(args, to);
    for (uint32_t i = ctx.thread; i < ROWS * N && to != owner; i += ctx.threads)
        other->y[(uint32_t)at[0] * ROWS + i / N][i % N] =
            own->y[(uint32_t)at[0] * ROWS + i / N][i % N];
    return FLEET_OK;
}
/* (rank, block of rows): this rank's columns of z. */
FLEET_TILE(multiply_again, perceptron)
{
    const uint32_t rank = (uint32_t)at[0], ranks = args->peers.ranks;
    const uint32_t begin = share_begin(P, rank, ranks);
    const uint32_t columns = share_begin(P, rank + 1, ranks) - begin;
    const shared *own = shared_of(args, rank);
    for (uint32_t i = ctx.thread; i < ROWS * columns; i += ctx.threads) {
        const uint32_t row = (uint32_t)at[1] * ROWS + i / columns, column = begin + i % columns;
        args->z[row * P + column] = dot(own->y[row], args->v + column, 0, N, P);
    }
    return FLEET_OK;
}

#define PERCEPTRON_TILES(TILE, S)                                                                  \
    TILE(S, multiply) TILE(S, reduce) TILE(S, send) TILE(S, multiply_again)
FLEET_DISPATCH(perceptron, PERCEPTRON_TILES)
FLEET_KERNEL(perceptron_kernel, perceptron, FLEET_ANY_THREADS(THREADS))
{
    FLEET_WORKER_LOOP(perceptron);
}

static void check(const char *what, fleet_status status, const char *why)
{
    if (!status) return;
    printf("wrong: %s: %s: %s\n", what, fleet_status_text(status), why);
    exit(1);
}

static fleet_plan *build(uint32_t ranks)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_shape blocks = fleet_shape1_of(BLOCKS);
    fleet_etensor summed = fleet_event_tensor(g, "summed", blocks, FLEET_COUNT_DERIVED);
    fleet_etensor owned = fleet_event_tensor(g, "owned", blocks, FLEET_COUNT_DERIVED);
    fleet_etensor sent =
        fleet_event_tensor(g, "sent", fleet_shape2_of(BLOCKS, ranks), FLEET_COUNT_DERIVED);
    fleet_grid multiply = fleet_call_device(g, "multiply", perceptron_multiply,
                                            fleet_shape3_of(ranks, BLOCKS, N / COLUMNS), 0);
    fleet_grid reduce = fleet_call_device(g, "reduce", perceptron_reduce, blocks, 0);
    fleet_grid send =
        fleet_call_device(g, "send", perceptron_send, fleet_shape2_of(BLOCKS, ranks), 0);
    fleet_grid again = fleet_call_device(g, "multiply_again", perceptron_multiply_again,
                                         fleet_shape2_of(ranks, BLOCKS), 0);
    const fleet_axis_map owner = fleet_axis(0, 1, 0, blocks_each(ranks));
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    fleet_grid_ranks(g, multiply, fleet_axis(0, 1, 0, 1)); /* by the first coordinate */
    fleet_grid_ranks(g, reduce, owner);
    fleet_grid_ranks(g, send, owner);
    fleet_grid_ranks(g, again, fleet_axis(0, 1, 0, 1));
    fleet_out_edge(g, multiply, summed, "rbc->b"); /* across ranks: all of them notify the owner */
    fleet_in_edge(g, reduce, summed, "b->b");
    fleet_out_edge(g, reduce, owned, "b->b"); /* within the owner */
    fleet_in_edge(g, send, owned, "br->b");
    fleet_out_edge(g, send, sent, "br->br"); /* across ranks: the owner notifies rank r */
    fleet_in_edge(g, again, sent, "rb->br");

    check("query", fleet_topology_query(&desc.topology), "");
    desc.ranks = ranks;
    desc.workers_per_chiplet = 2;
    check("build", fleet_plan_build(g, &desc, &plan), fleet_graph_error(g));
    fleet_graph_destroy(g);
    return plan;
}

/* Small whole numbers, so that any order of addition gives the same result. */
static float value(uint32_t i, uint32_t seed)
{
    return (float)((i * 2654435761u + seed * 40503u) >> 13 & 7u) - 3.0f;
}
static float *device_values(uint32_t n, uint32_t seed)
{
    float *host = (float *)malloc(n * sizeof(float));
    void *device = NULL;
    if (!host) exit(1);
    for (uint32_t i = 0; i < n; i++) host[i] = value(i, seed);
    check("alloc", fleet_device_alloc(&device, n * sizeof(float)), "");
    check("copy", fleet_to_device(device, host, n * sizeof(float), NULL), "");
    free(host);
    return (float *)device;
}

/* Compares columns [begin, end) of z with x w v. */
static void compare(const float *z, uint32_t begin, uint32_t end)
{
    for (uint32_t m = 0; m < M; m++) {
        float y[N];
        for (uint32_t n = 0; n < N; n++) {
            y[n] = 0;
            for (uint32_t k = 0; k < K; k++) y[n] += value(m * K + k, 1) * value(k * N + n, 2);
        }
        for (uint32_t p = begin; p < end; p++) {
            float sum = 0;
            for (uint32_t n = 0; n < N; n++) sum += y[n] * value(n * P + p, 3);
            if (z[m * P + p] == sum) continue;
            printf("wrong: z[%u][%u] is %g, expected %g\n", m, p, (double)z[m * P + p],
                   (double)sum);
            exit(1);
        }
    }
}

/* Runs STEPS steps as the rank of the table, or as all of them. meet: a barrier of the ranks, for `user`. */
static void run(const fleet_plan *plan, const fleet_peers *peers, int (*meet)(void *), void *user)
{
    const uint32_t all = peers->rank == FLEET_ALL_RANKS, ranks = peers->ranks;
    const uint32_t begin = all ? 0 : share_begin(P, peers->rank, ranks);
    const uint32_t end = all ? P : share_begin(P, peers->rank + 1, ranks);
    static float z[M * P];
    perceptron args;
    void *device_args = NULL, *device_z = NULL;
    fleet_image image;
    fleet_state state;
    fleet_state_desc state_desc = fleet_state_desc_default();
    fleet_launch_desc launch = fleet_launch_desc_default();
    fleet_status status;
    char report[4096];
    args.peers = *peers;
    args.offset = (fleet_peers_bytes(plan) + 255) / 256 * 256;
    args.x = device_values(M * K, 1);
    args.w = device_values(K * N, 2);
    args.v = device_values(N * P, 3);
    check("alloc", fleet_device_alloc(&device_z, sizeof z), "");
    args.z = (float *)device_z;
    check("alloc", fleet_device_alloc(&device_args, sizeof args), "");
    check("copy", fleet_to_device(device_args, &args, sizeof args, NULL), "");
    state_desc.peers = peers;
    launch.steps = STEPS;
    check("upload", fleet_upload(&image, plan, NULL), "");
    status = fleet_state_create(&state, &image, &state_desc, NULL);
    check("state", status, state.message);
    check("state", fleet_stream_wait(NULL), "");
    if (meet(user)) exit(1); /* all regions are clear */
    status = fleet_launch(&state, &launch, FLEET_KERNEL_OF(perceptron_kernel),
                          (perceptron *)device_args);
    if (!status) status = fleet_state_wait(&state, NULL);
    if (status) {
        fleet_state_report(&state, report, sizeof report);
        check("run", status, report);
    }
    check("copy", fleet_to_host(z, device_z, sizeof z, NULL), "");
    compare(z, begin, end);
    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_device_free(device_args), fleet_device_free(device_z);
    fleet_device_free((void *)(uintptr_t)args.x), fleet_device_free((void *)(uintptr_t)args.w);
    fleet_device_free((void *)(uintptr_t)args.v);
}

#if defined(ENGINE)
static int meet_ranks(void *ranks)
{
    return ENGINE(meet)((engine *)ranks);
}
int main(int argc, char **argv)
{
    static engine ranks; /* zeros */
    fleet_peers peers;
    fleet_plan *plan;
    if (ENGINE(begin)(&ranks, &argc, &argv)) return 1;
    plan = build(ranks.peers.ranks);
    if (ENGINE(open)(&ranks, fleet_peers_bytes(plan) + 256 + sizeof(shared), &peers)) return 1;
    run(plan, &peers, meet_ranks, &ranks);
    if (meet_ranks(&ranks)) return 1;
    if (peers.rank == 0) printf("ok: %u steps over %u processes\n", STEPS, peers.ranks);
    fleet_plan_free(plan);
    ENGINE(end)(&ranks);
    return 0;
}
#else
static int nothing(void *user)
{
    FLEET_UNUSED(user);
    return 0;
}
int main(void)
{
    for (uint32_t ranks = 1; ranks <= 4; ranks++) {
        fleet_plan *plan = build(ranks);
        const size_t bytes = fleet_peers_bytes(plan) + 256 + sizeof(shared);
        fleet_peers peers;
        peers.rank = ranks > 1 ? FLEET_ALL_RANKS : 0;
        peers.ranks = ranks;
        for (uint32_t i = 0; i < ranks; i++)
            check("alloc", fleet_device_alloc(&peers.bases[i], bytes), "");
        run(plan, &peers, nothing, NULL);
        for (uint32_t i = 0; i < ranks; i++) fleet_device_free(peers.bases[i]);
        fleet_plan_free(plan);
    }
    printf("ok: %u steps over 1, 2, 3 and 4 virtual devices\n", STEPS);
    return 0;
}
#endif
