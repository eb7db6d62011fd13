/* One graph over several devices: microseconds from a notify on one rank to a task on another, of an all-reduce, and of
   GEMM + reduce-scatter and all-gather + GEMM, each against the same tiles with a barrier of all ranks between them.

     devices [--ranks N] [--rows N] [--tokens N] [--columns N] [--depth N] [--trace FILE.svg]
     devices --small 1 [...]

   With several GPUs each rank has one, and a thread of this process; it needs peer access between them, and nothing else.
   Otherwise (one GPU, the CPU, or FLEET_VIRTUAL=1 in the environment) all ranks run in one launch on one device, each on
   its part of the workers: that measures what the protocol costs, not a link. --small, which the CPU always uses, is for simulators:
   results are checked, and times are not those of a device. Compiled with -DFLEET_TRACE, the program traces GEMM + reduce-scatter.
   tests/bench/devices.py measures PyTorch + NCCL on the same shapes, and
   tests/bench/devices.sh runs everything.

   tokens: rows of all ranks, a multiple of these. columns and depth: multiples of 8; each rank has its own `depth` k's of
   the first product, and columns of the second, which multiplies back. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t */
#endif

#include "bench.h"

#include "examples/tools/trace_picture.h"
#include "gemm_tile.h"

#include <pthread.h>
#include <string.h>

#define WIDTH 4096u /* bf16 of a row that is reduced */
#define BLOCKS 16u  /* tasks of a rank for it */
#define REDUCES 16u /* all-reduces by flagged data in a step, each after the one before */
#define SHARES 32u  /* tasks of a rank for each of these */
#define HOPS 64u
#define GROUP_ROWS 16u /* tiles of a column that come one after the other: neighbours share w */
#define SEND_ROWS 16u  /* of a tile's rows, that a task sends */
#define BATCH 8u       /* loads of a thread in flight */
#define EVENTS_BYTES (16u << 20) /* of a region, for the kit; the rest is the benchmark's */

typedef struct shape {
    uint32_t ranks, rows, tokens, columns, depth; /* depth: of one rank */
} shape;

/* Of one rank: y = x w^T is its summand of the first product, z = gathered v^T the second. In its memory. */
typedef struct operands {
    gemm_operand x, w, gathered, v;
    bf16 *z;
} operands;

typedef struct bench { /* what every tile sees */
    fleet_peers peers;
    shape s;
    uint32_t reduce;                     /* which of REDUCES */
    const operands *of[FLEET_MAX_PEERS]; /* another rank's are not read */
} bench;

/* A rank's part of its region: input and sums of the all-reduce, what each rank sent; summands of the product; its sum;
   the rows of all ranks. */
FLEET_HOST_DEVICE size_t row_bytes(const shape *s)
{
    return (size_t)s->rows * WIDTH * sizeof(bf16);
}
FLEET_HOST_DEVICE size_t tokens_each(const shape *s)
{
    return s->tokens / s->ranks;
}
FLEET_HOST_DEVICE size_t product_bytes(const shape *s)
{
    return tokens_each(s) * s->columns * sizeof(bf16);
}
FLEET_HOST_DEVICE size_t shared_bytes(const shape *s)
{
    return row_bytes(s) * (2 + s->ranks) + product_bytes(s) * (1 + 2 * s->ranks);
}
/* Words of rows that one task reduces, and the quads that carry them: three words and a flag. */
FLEET_HOST_DEVICE uint32_t share_words(const shape *s)
{
    return s->rows * WIDTH / 2 / SHARES;
}
FLEET_HOST_DEVICE uint32_t share_quads(const shape *s)
{
    return (share_words(s) + 2) / 3;
}
FLEET_HOST_DEVICE size_t flagged_bytes(const shape *s)
{
    return (size_t)2 * s->ranks * SHARES * share_quads(s) * sizeof(fleet_quad);
}
FLEET_HOST_DEVICE bf16 *part(const bench *b, uint32_t rank, size_t at)
{
    return (bf16 *)(void *)((char *)b->peers.bases[rank] + EVENTS_BYTES + at);
}
FLEET_HOST_DEVICE bf16 *input_of(const bench *b, uint32_t rank)
{
    return part(b, rank, 0);
}
FLEET_HOST_DEVICE bf16 *sums_of(const bench *b, uint32_t rank)
{
    return part(b, rank, row_bytes(&b->s));
}
FLEET_HOST_DEVICE bf16 *sent_of(const bench *b, uint32_t rank, uint32_t from)
{
    return part(b, rank, row_bytes(&b->s) * (2 + from));
}
/* From the rank for which this one comes `distance` + 1 after it; its own has the largest distance. */
FLEET_HOST_DEVICE bf16 *summand_of(const bench *b, uint32_t rank, uint32_t distance)
{
    return part(b, rank, row_bytes(&b->s) * (2 + b->s.ranks) + product_bytes(&b->s) * distance);
}
FLEET_HOST_DEVICE bf16 *product_of(const bench *b, uint32_t rank)
{
    return summand_of(b, rank, b->s.ranks);
}
FLEET_HOST_DEVICE bf16 *gathered_of(const bench *b, uint32_t rank)
{
    return summand_of(b, rank, b->s.ranks + 1);
}
/* Tiles of the rows of a rank. */
FLEET_HOST_DEVICE uint32_t row_tiles(const shape *s)
{
    return ((uint32_t)tokens_each(s) + GEMM_ROWS - 1) / GEMM_ROWS;
}
FLEET_HOST_DEVICE uint32_t group_rows(const shape *s)
{
    return row_tiles(s) < GROUP_ROWS ? row_tiles(s) : GROUP_ROWS;
}
/* The rank that comes `distance` after this one, as all ranks count. */
FLEET_HOST_DEVICE uint32_t rank_after(const shape *s, uint32_t rank, uint32_t distance)
{
    return (rank + distance) % s->ranks;
}

/* After all that. Rank `from` writes one while others may still read the other one. */
FLEET_HOST_DEVICE fleet_quad *flagged_of(const bench *b, uint32_t rank, uint32_t from,
                                         uint32_t share)
{
    fleet_quad *first = (fleet_quad *)(void *)part(b, rank, shared_bytes(&b->s));
    return first +
           ((size_t)(b->reduce % 2 * b->s.ranks + from) * SHARES + share) * share_quads(&b->s);
}

FLEET_DEVICE void add_quad(float *sum, fleet_quad q)
{
    for (uint32_t i = 0; i < 4; i++) {
        sum[2 * i] += float_of((bf16)q.word[i]);
        sum[2 * i + 1] += float_of((bf16)(q.word[i] >> 16));
    }
}
FLEET_DEVICE fleet_quad quad_of(const float *sum)
{
    fleet_quad out;
    for (uint32_t i = 0; i < 4; i++)
        out.word[i] = (uint32_t)bf16_of(sum[2 * i]) | (uint32_t)bf16_of(sum[2 * i + 1]) << 16;
    return out;
}
/* Adds eight bf16 of each of `ranks` arrays that are `stride` apart. */
FLEET_DEVICE fleet_quad add_eight(const bf16 *from, size_t stride, uint32_t ranks)
{
    float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (uint32_t r = 0; r < ranks; r++)
        add_quad(sum, *(const fleet_quad *)(const void *)(from + r * stride));
    return quad_of(sum);
}

FLEET_TILE(hop, bench)
{
    FLEET_UNUSED(at), (void)args, (void)ctx;
    return FLEET_OK;
}
/* (rank, block): to all ranks. */
FLEET_TILE(push, bench)
{
    const uint32_t rank = (uint32_t)at[0], n = args->s.rows * WIDTH / BLOCKS / 8;
    const fleet_quad *from = (const fleet_quad *)(const void *)input_of(args, rank);
    for (uint32_t i = ctx.thread; i < n; i += ctx.threads) {
        const size_t k = (size_t)at[1] * n + i;
        const fleet_quad q = from[k];
        for (uint32_t r = 0; r < args->s.ranks; r++)
            ((fleet_quad *)(void *)sent_of(args, r, rank))[k] = q;
    }
    return FLEET_OK;
}
FLEET_TILE(sum, bench)
{
    const uint32_t rank = (uint32_t)at[0], n = args->s.rows * WIDTH / BLOCKS / 8;
    const size_t stride = row_bytes(&args->s) / sizeof(bf16);
    for (uint32_t i = ctx.thread; i < n; i += ctx.threads) {
        const size_t k = ((size_t)at[1] * n + i) * 8;
        *(fleet_quad *)(void *)(sums_of(args, rank) + k) =
            add_eight(sent_of(args, rank, 0) + k, stride, args->s.ranks);
    }
    return FLEET_OK;
}
FLEET_DEVICE uint32_t add_two(uint32_t a, uint32_t b)
{
    return (uint32_t)bf16_of(float_of((bf16)a) + float_of((bf16)b)) |
           (uint32_t)bf16_of(float_of((bf16)(a >> 16)) + float_of((bf16)(b >> 16))) << 16;
}
/* (rank, share): pushes its words to the other ranks as flagged data, and adds what they push. */
FLEET_TILE(exchange, bench)
{
    const uint32_t rank = (uint32_t)at[0], share = (uint32_t)at[1], n = share_words(&args->s);
    const uint32_t flag = ctx.epoch * REDUCES + args->reduce;
    const uint32_t *own = (const uint32_t *)(const void *)input_of(args, rank) + share * n;
    uint32_t *sums = (uint32_t *)(void *)sums_of(args, rank) + share * n;
    for (uint32_t i = ctx.thread; i < share_quads(&args->s); i += ctx.threads) {
        fleet_quad q;
        for (uint32_t k = 0; k < 3; k++) q.word[k] = 3 * i + k < n ? own[3 * i + k] : 0;
        q.word[3] = flag;
        for (uint32_t r = 0; r < args->s.ranks; r++)
            if (r != rank) fleet_store_flagged_system(flagged_of(args, r, rank, share) + i, q);
    }
    for (uint32_t i = ctx.thread; i < share_quads(&args->s); i += ctx.threads) {
        uint32_t sum[3];
        for (uint32_t k = 0; k < 3; k++) sum[k] = 3 * i + k < n ? own[3 * i + k] : 0;
        for (uint32_t r = 0; r < args->s.ranks; r++) {
            fleet_quad q;
            fleet_status status;
            if (r == rank) continue;
            status = fleet_await_flagged(&ctx, flagged_of(args, rank, r, share) + i, flag, r, &q);
            if (status) return status;
            for (uint32_t k = 0; k < 3; k++) sum[k] = add_two(sum[k], q.word[k]);
        }
        for (uint32_t k = 0; k < 3; k++)
            if (3 * i + k < n) sums[3 * i + k] = sum[k];
    }
    return FLEET_OK;
}

/* ---- GEMM + reduce-scatter, all-gather + GEMM ----

   Tiles of rows are numbered in the rows of one rank. The last coordinates of a tile are the group of tiles of rows, the
   tile of columns, and the tile of rows in its group; groups are padded with tiles that do nothing. */

/* A tile of a matrix that begins with the rows of a rank. */
typedef struct place {
    uint32_t row, column, rows,
        columns; /* the last two: that there are, 0 of a tile that does nothing */
} place;

FLEET_DEVICE place place_of(const shape *s, const int32_t *group, uint32_t columns)
{
    const uint32_t tile = (uint32_t)group[0] * group_rows(s) + (uint32_t)group[2];
    const uint32_t rows = (uint32_t)tokens_each(s);
    place p;
    p.row = tile * GEMM_ROWS, p.column = (uint32_t)group[1] * GEMM_COLUMNS;
    p.rows = p.row >= rows ? 0 : rows - p.row < GEMM_ROWS ? rows - p.row : GEMM_ROWS;
    p.columns = columns - p.column < GEMM_COLUMNS ? columns - p.column : GEMM_COLUMNS;
    return p;
}
/* Stores the tile in LDS to `to`, rows of `width`. */
FLEET_DEVICE void store_tile(const fleet_ctx *ctx, place p, bf16 *to, uint32_t width)
{
    const uint32_t across = GEMM_COLUMNS / 8;
    for (uint32_t i = ctx->thread; i < p.rows * across; i += ctx->threads) {
        const uint32_t r = i / across, c = i % across;
        if (c * 8 < p.columns)
            *(fleet_quad *)(void *)(to + (size_t)(p.row + r) * width + p.column + c * 8) =
                gemm_quad(ctx, r, c);
    }
}
/* Stores the sums of what is at the same place in `n` arrays that are `stride` apart, and of the tile in LDS if there is
   one. */
FLEET_DEVICE void store_sums(const fleet_ctx *ctx, place p, bf16 *to, uint32_t width,
                             uint32_t is_tile, const bf16 *from, size_t stride, uint32_t n)
{
    const uint32_t across = GEMM_COLUMNS / 8, quads = p.rows * across;
    for (uint32_t first = ctx->thread; first < quads; first += BATCH * ctx->threads) {
        float sum[BATCH][8];
        GEMM_UNROLLED
        for (uint32_t b = 0; b < BATCH; b++) {
            const uint32_t i = first + b * ctx->threads, c = i % across;
            for (uint32_t v = 0; v < 8; v++) sum[b][v] = 0;
            if (i < quads && is_tile) add_quad(sum[b], gemm_quad(ctx, i / across, c));
        }
        for (uint32_t r = 0; r < n; r++) {
            fleet_quad q[BATCH]; /* all loads come before all stores, so that they overlap */
            GEMM_UNROLLED
            for (uint32_t b = 0; b < BATCH; b++) {
                const uint32_t i = first + b * ctx->threads, c = i % across * 8;
                memset(&q[b], 0, sizeof q[b]);
                if (i < quads && c < p.columns)
                    q[b] =
                        *(const fleet_quad *)(const void *)(from + r * stride +
                                                            (size_t)(p.row + i / across) * width +
                                                            p.column + c);
            }
            GEMM_UNROLLED
            for (uint32_t b = 0; b < BATCH; b++) add_quad(sum[b], q[b]);
        }
        GEMM_UNROLLED
        for (uint32_t b = 0; b < BATCH; b++) {
            const uint32_t i = first + b * ctx->threads, c = i % across * 8;
            if (i < quads && c < p.columns)
                *(fleet_quad *)(void *)(to + (size_t)(p.row + i / across) * width + p.column + c) =
                    quad_of(sum[b]);
        }
    }
}
/* (rank, distance of the owner of the rows less 1, ...): the rank's summand. Its own rows come last: the summands of the
   others are there, which it adds if `adds`. All else goes to the owner. */
FLEET_DEVICE fleet_status multiply_tile(const fleet_ctx *ctx, const bench *args, const int32_t *at,
                                        uint32_t adds)
{
    const uint32_t rank = (uint32_t)at[0], distance = (uint32_t)at[1],
                   owner = rank_after(&args->s, rank, distance + 1);
    const place p = place_of(&args->s, at + 2, args->s.columns);
    const operands *of = args->of[rank];
    if (!p.rows) return FLEET_OK;
    gemm_tile(ctx, &of->x, owner * (uint32_t)tokens_each(&args->s) + p.row, &of->w, p.column);
    if (adds && owner == rank)
        store_sums(ctx, p, product_of(args, rank), args->s.columns, 1, summand_of(args, rank, 0),
                   product_bytes(&args->s) / sizeof(bf16), args->s.ranks - 1);
    else
        store_tile(ctx, p, summand_of(args, owner, distance), args->s.columns);
    return FLEET_OK;
}
FLEET_TILE(multiply, bench)
{
    return multiply_tile(&ctx, args, at, 0);
}
FLEET_TILE(multiply_add, bench)
{
    return multiply_tile(&ctx, args, at, 1);
}
/* (rank, ...): the sum of all summands of its rows, of which `multiply` made its own too. */
FLEET_TILE(reduce, bench)
{
    const uint32_t rank = (uint32_t)at[0];
    const place p = place_of(&args->s, at + 1, args->s.columns);
    store_sums(&ctx, p, product_of(args, rank), args->s.columns, 0, summand_of(args, rank, 0),
               product_bytes(&args->s) / sizeof(bf16), args->s.ranks);
    return FLEET_OK;
}
/* (rank, distance of the receiver less 1, tile of rows, part): sends SEND_ROWS of the rank's rows. */
FLEET_TILE(send, bench)
{
    const uint32_t rank = (uint32_t)at[0], each = (uint32_t)tokens_each(&args->s),
                   to = rank_after(&args->s, rank, (uint32_t)at[1] + 1);
    const uint32_t row = (uint32_t)at[2] * GEMM_ROWS + (uint32_t)at[3] * SEND_ROWS,
                   rows = row >= each              ? 0
                          : each - row < SEND_ROWS ? each - row
                                                   : SEND_ROWS,
                   n = rows * args->s.columns / 8;
    const size_t first = (size_t)(rank * each + row) * args->s.columns;
    const fleet_quad *own = (const fleet_quad *)(const void *)(gathered_of(args, rank) + first);
    fleet_quad *other = (fleet_quad *)(void *)(gathered_of(args, to) + first);
    for (uint32_t i = ctx.thread; i < n; i += BATCH * ctx.threads) {
        fleet_quad q[BATCH];
        GEMM_UNROLLED
        for (uint32_t b = 0; b < BATCH; b++)
            if (i + b * ctx.threads < n) q[b] = own[i + b * ctx.threads];
        GEMM_UNROLLED
        for (uint32_t b = 0; b < BATCH; b++)
            if (i + b * ctx.threads < n) other[i + b * ctx.threads] = q[b];
    }
    return FLEET_OK;
}
/* (rank, distance from the owner of the rows, ...): its own rows come first, then those that come first from others. */
FLEET_TILE(multiply_gathered, bench)
{
    const uint32_t rank = (uint32_t)at[0],
                   owner = rank_after(&args->s, rank, args->s.ranks - (uint32_t)at[1]);
    const place p = place_of(&args->s, at + 2, args->s.depth);
    const operands *of = args->of[rank];
    const size_t first = owner * tokens_each(&args->s);
    if (!p.rows) return FLEET_OK;
    gemm_tile(&ctx, &of->gathered, (uint32_t)first + p.row, &of->v, p.column);
    store_tile(&ctx, p, of->z + first * args->s.depth, args->s.depth);
    return FLEET_OK;
}

#define BENCH_TILES(X, P)                                                                          \
    X(P, hop)                                                                                      \
    X(P, push)                                                                                     \
    X(P, sum)                                                                                      \
    X(P, exchange) X(P, multiply) X(P, multiply_add) X(P, reduce) X(P, send) X(P, multiply_gathered)
FLEET_DISPATCH(bench, BENCH_TILES)
FLEET_KERNEL(bench_kernel, bench, FLEET_ANY_THREADS(GEMM_THREADS))
{
    FLEET_STATIC_WORKER_LOOP(bench);
}

/* ---- graphs ---- */

typedef enum what {
    HOPS_ACROSS,
    HOPS_WITHIN,
    STEP,
    ALL_REDUCE,
    ALL_REDUCE_FLAGGED,
    SCATTER, /* GEMM + reduce-scatter: the owner adds summands where it multiplies its own rows */
    SCATTER_TASKS,    /* by tasks, tile by tile, some rounds of products after the last summand */
    SCATTER_BARRIERS, /* the same tasks with barriers */
    GATHER,           /* all-gather + GEMM */
    GATHER_BARRIERS
} what;

/* A task (rank, distance less 1, ...) whose second coordinate is less than `notifiers` notifies the element of the rank at
   that distance, that coordinate, and what `rest` says. Ranks are counted round, which maps are not: of two edges, one
   reaches an element. */
static void notify_after(fleet_graph *g, const shape *s, fleet_grid grid, fleet_etensor event,
                         int64_t notifiers, fleet_map rest)
{
    for (uint32_t rounds = 0; rounds < 2; rounds++) {
        fleet_map map =
            fleet_map2(fleet_axis_clipped(0, 1, 1 - (int64_t)(rounds * s->ranks), 1,
                                          fleet_dim_of(0), fleet_dim_of(s->ranks)),
                       fleet_axis_clipped(1, 1, 0, 1, fleet_dim_of(0), fleet_dim_of(notifiers)));
        map.axis[0].stride[1] = 1;
        for (uint32_t i = 0; i < rest.rank; i++) map = fleet_map_append(map, rest.axis[i]);
        fleet_out_edge_map(g, grid, event, map);
    }
}
/* The key of a task whose axes from `axis` on are the group, column and row of a tile. */
static fleet_key tile_key(int64_t constant, uint32_t axis, const shape *s, int64_t columns)
{
    const int64_t rows = group_rows(s);
    fleet_key key = fleet_key_plus(fleet_key_of(constant), axis, columns * rows);
    return fleet_key_plus(fleet_key_plus(key, axis + 1, rows), axis + 2, 1);
}
static fleet_shape tiles_of(fleet_shape grid, const shape *s, int64_t groups, int64_t columns)
{
    return fleet_shape_and_of(fleet_shape_and_of(fleet_shape_and_of(grid, groups), columns),
                              group_rows(s));
}

static void add_scatter(fleet_graph *g, what what, const shape *s, const fleet_topology *topology)
{
    const fleet_axis_map by_first = fleet_axis(0, 1, 0, 1);
    const int64_t groups = (row_tiles(s) + group_rows(s) - 1) / group_rows(s),
                  columns = (s->columns + GEMM_COLUMNS - 1) / GEMM_COLUMNS,
                  tiles = groups * columns * group_rows(s);
    const int64_t ranks = s->ranks, by_tasks = what != SCATTER, notifiers = ranks - !by_tasks;
    const fleet_grid multiply =
        fleet_call_device(g, "multiply", by_tasks ? bench_multiply : bench_multiply_add,
                          tiles_of(fleet_shape2_of(ranks, ranks), s, groups, columns), 0);
    fleet_map tile = fleet_map0(), own;
    fleet_etensor summed;
    for (uint32_t i = 2; i < 5; i++) tile = fleet_map_append(tile, fleet_axis(i, 1, 0, 1));
    fleet_grid_ranks(g, multiply, by_first);
    fleet_grid_order(g, multiply, fleet_key_plus(tile_key(0, 2, s, columns), 1, tiles));
    if (!notifiers) return;
    summed = fleet_event_tensor(g, "summed",
                                tiles_of(fleet_shape2_of(ranks, notifiers), s, groups, columns), 0);
    notify_after(g, s, multiply, summed, notifiers, tile);
    if (by_tasks) {
        fleet_grid add = fleet_call_device(g, "add", bench_reduce,
                                           tiles_of(fleet_shape1_of(ranks), s, groups, columns), 0);
        fleet_grid_ranks(g, add, by_first);
        /* It comes some rounds of products after the last summand, which has arrived by then. */
        fleet_grid_order(g, add,
                         tile_key((ranks - 1) * tiles + 2 * topology->units[0], 1, s, columns));
        fleet_in_edge(g, add, summed, "rgci->rdgci");
        return;
    }
    /* At the largest distance: there it is the rank, else less than 0. */
    own = fleet_map2(
        fleet_axis_clipped(0, 1, -ranks * (ranks - 1), 1, fleet_dim_of(0), fleet_dim_of(ranks)),
        fleet_axis_all());
    own.axis[0].stride[1] = ranks;
    for (uint32_t i = 0; i < tile.rank; i++) own = fleet_map_append(own, tile.axis[i]);
    fleet_in_edge_map(g, multiply, summed, own);
}
static void add_gather(fleet_graph *g, const shape *s)
{
    const fleet_axis_map by_first = fleet_axis(0, 1, 0, 1);
    const int64_t rows = row_tiles(s), groups = (rows + group_rows(s) - 1) / group_rows(s),
                  columns = (s->depth + GEMM_COLUMNS - 1) / GEMM_COLUMNS,
                  tiles = groups * columns * group_rows(s), others = s->ranks - 1;
    fleet_grid multiply;
    fleet_etensor arrived;
    memset(&arrived, 0, sizeof arrived);
    if (others) {
        const int64_t padded = groups * group_rows(s);
        fleet_grid send =
            fleet_call_device(g, "send", bench_send,
                              fleet_shape4_of(s->ranks, others, padded, GEMM_ROWS / SEND_ROWS), 0);
        arrived = fleet_event_tensor(g, "arrived", fleet_shape3_of(s->ranks, others, padded), 0);
        fleet_grid_ranks(g, send, by_first);
        notify_after(g, s, send, arrived, others, fleet_map1(fleet_axis(2, 1, 0, 1)));
        /* Spread over two thirds of the products before those that need the rows. */
        fleet_grid_order(
            g, send,
            fleet_key_plus(fleet_key_plus(fleet_key_of(0), 1, tiles), 2, tiles * 2 / 3 / padded));
    }
    multiply =
        fleet_call_device(g, "multiply", bench_multiply_gathered,
                          tiles_of(fleet_shape2_of(s->ranks, s->ranks), s, groups, columns), 0);
    fleet_grid_ranks(g, multiply, by_first);
    fleet_grid_order(g, multiply, fleet_key_plus(tile_key(0, 2, s, columns), 1, tiles));
    if (others) { /* own rows, at distance 0, reach no element */
        fleet_axis_map tile = fleet_axis(4, 1, 0, 1);
        tile.stride[2] = group_rows(s);
        fleet_in_edge_map(
            g, multiply, arrived,
            fleet_map3(by_first,
                       fleet_axis_clipped(1, 1, -1, 1, fleet_dim_of(0), fleet_dim_of(others)),
                       tile));
    }
}

static fleet_plan *build(what what, const shape *s, const fleet_topology *topology)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan_desc d = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    const fleet_axis_map by_first = fleet_axis(0, 1, 0, 1);
    if (what <= STEP) {
        /* a chain that goes from rank to rank, or to and fro between two workers of rank 0 */
        const uint32_t hops = what == STEP ? 1 : HOPS;
        fleet_grid last,
            idle = fleet_call_device(g, "idle", bench_hop, fleet_shape1_of(s->ranks), 0);
        fleet_grid_ranks(g, idle, by_first);
        memset(&last, 0, sizeof last);
        for (uint32_t i = 0; i < hops; i++) {
            char name[16];
            fleet_grid grid;
            snprintf(name, sizeof name, "hop%u", i);
            grid = fleet_call_device(g, name, bench_hop, fleet_shape1_of(1), 0);
            fleet_grid_ranks(g, grid, fleet_axis(0, 0, what == HOPS_ACROSS ? i % s->ranks : 0, 1));
            fleet_grid_place(g, grid,
                             fleet_map2(fleet_axis(0, 0, 0, 1), fleet_axis(0, 0, i % 2, 1)));
            if (i) fleet_after(g, grid, last);
            last = grid;
        }
    } else if (what == ALL_REDUCE) {
        const fleet_shape shape = fleet_shape2_of(s->ranks, BLOCKS);
        fleet_etensor sent = fleet_event_tensor(g, "sent", fleet_shape1_of(BLOCKS), 0);
        fleet_grid push = fleet_call_device(g, "push", bench_push, shape, 0);
        fleet_grid sum = fleet_call_device(g, "sum", bench_sum, shape, 0);
        fleet_grid_ranks(g, push, by_first), fleet_grid_ranks(g, sum, by_first);
        fleet_out_edge(g, push, sent, "rb->b"), fleet_in_edge(g, sum, sent, "rb->b");
    } else if (what == ALL_REDUCE_FLAGGED) {
        const fleet_shape shape = fleet_shape2_of(s->ranks, SHARES);
        fleet_etensor done[REDUCES];
        for (uint32_t k = 0; k < REDUCES; k++) {
            char name[32];
            fleet_grid grid;
            (void)snprintf(name, sizeof name, "exchange %u", k);
            grid = fleet_call_device(g, name, bench_exchange, shape, k);
            fleet_grid_ranks(g, grid, by_first);
            (void)snprintf(name, sizeof name, "exchanged %u", k);
            done[k] = fleet_event_tensor(g, name, shape, 0);
            if (k) fleet_in_edge(g, grid, done[k - 1], "rb->rb"); /* within the rank */
            fleet_out_edge(g, grid, done[k], "rb->rb");
        }
    } else if (what < GATHER) {
        add_scatter(g, what, s, topology);
    } else {
        add_gather(g, s);
    }
    d.topology = *topology;
    d.ranks = s->ranks;
    d.unfused = what == SCATTER_BARRIERS || what == GATHER_BARRIERS;
    if (fleet_plan_build(g, &d, &plan)) {
        fprintf(stderr, "%s\n", fleet_graph_error(g));
        exit(1);
    }
    fleet_graph_destroy(g);
    return plan;
}

/* ---- ranks ---- */

typedef struct ensemble {
    shape s;
    uint32_t gpus; /* 1: the ranks are virtual */
    fleet_topology topology;
    operands of[FLEET_MAX_PEERS]; /* as in device memory */
    bf16 *x[FLEET_MAX_PEERS], *w[FLEET_MAX_PEERS], *v[FLEET_MAX_PEERS];
    bench args;
    pthread_barrier_t meet;
    /* of the run in hand */
    fleet_plan *plan;
    uint32_t steps, runs; /* after a first one, which is not counted */
    double us;
    uint32_t is_traced;
    fleet_trace_log logs[FLEET_MAX_PEERS];
} ensemble;
#define MAX_RUNS 5u
#define TURNS 5u
typedef struct rank {
    ensemble *e;
    uint32_t number;
} rank;

static void use_gpu(const ensemble *e, uint32_t number)
{
#if defined(FLEET_CUDA) || defined(FLEET_HIP)
    if (e->gpus > 1 && FLEETI_RT(SetDevice)((int)number)) exit(1);
    for (uint32_t i = 0; i < e->gpus && e->gpus > 1; i++)
        if (i != number) (void)FLEETI_RT(DeviceEnablePeerAccess)((int)i, 0);
    (void)FLEETI_RT(GetLastError)();
#else
    (void)e, (void)number;
#endif
}

static void *run_rank(void *rank_)
{
    const rank *r = (const rank *)rank_;
    ensemble *e = r->e;
    fleet_image image;
    fleet_state state;
    fleet_state_desc d = fleet_state_desc_default();
    fleet_launch_desc launch = fleet_launch_desc_default();
    fleet_trace trace;
    bench args[REDUCES];
    void *device = NULL;
    double us[MAX_RUNS];
    use_gpu(e, r->number);
    for (uint32_t i = 0; i < REDUCES; i++) {
        args[i] = e->args;
        args[i].peers.rank = e->s.ranks == 1 ? 0 : e->gpus > 1 ? r->number : FLEET_ALL_RANKS;
        args[i].reduce = i;
    }
    if (fleet_peers_bytes(e->plan) > EVENTS_BYTES) exit(1);
    d.peers = &args[0].peers;
    CHECKED(fleet_device_alloc(&device, sizeof args));
    CHECKED(fleet_to_device(device, args, sizeof args, NULL));
    CHECKED(fleet_upload(&image, e->plan, NULL));
    CHECKED(fleet_state_create(&state, &image, &d, NULL));
    if (e->is_traced) {
        CHECKED(fleet_trace_create(&trace, e->plan, NULL, NULL));
        launch.trace = &trace;
    }
    CHECKED(fleet_stream_wait(NULL));
    launch.steps = e->steps;
    launch.lds_bytes = GEMM_LDS_BYTES;
    for (uint32_t i = 0; i <= e->runs; i++) {
        timer t;
        fleet_status status;
        pthread_barrier_wait(&e->meet);
        timer_start(&t);
        status = fleet_launch(&state, &launch, FLEET_KERNEL_OF(bench_kernel), (bench *)device);
        us[i ? i - 1 : 0] = timer_stop_us(&t);
        if (!status) status = fleet_state_wait(&state, NULL);
        if (status) {
            static char report[4096];
            fleet_state_report(&state, report, sizeof report);
            fprintf(stderr, "rank %u: %s\n", r->number, report);
            exit(1);
        }
    }
    qsort(us, e->runs, sizeof us[0], by_value);
    if (r->number == 0) e->us = us[e->runs / 2] / e->steps;
    if (e->is_traced) {
        CHECKED(fleet_trace_read(&e->logs[r->number], &trace, NULL));
        fleet_trace_free(&trace);
    }
    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_device_free(device);
    return NULL;
}

/* Microseconds of a step, the median of the runs. */
static double run(ensemble *e, what what, uint32_t steps, uint32_t runs)
{
    pthread_t thread[FLEET_MAX_PEERS];
    rank r[FLEET_MAX_PEERS];
    fleet_plan *plan = build(what, &e->s, &e->topology);
    e->plan = plan;
    e->steps = steps, e->runs = runs;
    pthread_barrier_init(&e->meet, NULL, e->gpus);
    for (uint32_t i = 0; i < e->gpus; i++) {
        r[i].e = e, r[i].number = i;
        if (pthread_create(&thread[i], NULL, run_rank, &r[i])) exit(1);
    }
    for (uint32_t i = 0; i < e->gpus; i++) pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&e->meet);
    if (!e->is_traced) fleet_plan_free(plan); /* the logs name its tasks */
    return e->us;
}

/* ---- data ---- */

/* Small whole numbers, so that sums are exact. */
static bf16 value(size_t i, uint32_t seed)
{
    return bf16_of((float)((uint32_t)(i * 2654435761u + seed * 40503u) >> 20 & 3u) - 1.0f);
}
/* From -1 to 1: what products are timed with, since a GPU takes less power, and runs faster, with small whole numbers. */
static bf16 noise(size_t i, uint32_t seed)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u + seed;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return bf16_of((float)(int32_t)(x >> 32) * 0x1p-31f);
}
static bf16 nothing(size_t i, uint32_t seed)
{
    return (void)i, (void)seed, (bf16)0x7fc0; /* not a number */
}
static void fill(void *to, size_t n, bf16 (*of)(size_t, uint32_t), size_t first, uint32_t seed)
{
    bf16 *host = (bf16 *)malloc(n * sizeof *host);
    if (!host) exit(1);
    for (size_t i = 0; i < n; i++) host[i] = of(first + i, seed);
    CHECKED(fleet_to_device(to, host, n * sizeof *host, NULL));
    free(host);
}
static void differ(const char *what, float got, float want)
{
    if (got == want) return;
    fprintf(stderr, "wrong: %s is %g, expected %g\n", what, (double)got, (double)want);
    exit(1);
}
static void check_all_reduce(ensemble *e)
{
    bf16 *got = (bf16 *)malloc(row_bytes(&e->s));
    for (uint32_t r = 0; got && r < e->s.ranks; r++) {
        use_gpu(e, r);
        CHECKED(fleet_to_host(got, sums_of(&e->args, r), row_bytes(&e->s), NULL));
        for (size_t i = 0; i < (size_t)e->s.rows * WIDTH; i++) {
            float want = 0;
            for (uint32_t p = 0; p < e->s.ranks; p++) want += float_of(value(i, 100 + p));
            differ("a sum of the all-reduce", float_of(got[i]), want);
        }
    }
    free(got);
}
/* Elements of the first rows, the last ones and some others are checked, likewise columns. */
#define CHECKED_ELEMENTS 300u
static size_t checked_index(uint32_t i, size_t n)
{
    const size_t k = (size_t)i / 3 * 7919 % n;
    return i % 3 == 0 ? k : i % 3 == 1 ? i % 8 % n : n - 1 - i % 8 % n;
}
static float dot(size_t x, uint32_t x_seed, size_t w, uint32_t w_seed, uint32_t depth)
{
    float sum = 0;
    for (uint32_t k = 0; k < depth; k++)
        sum += float_of(value(x * depth + k, x_seed)) * float_of(value(w * depth + k, w_seed));
    return sum;
}
static void check_scatter(ensemble *e)
{
    bf16 *got = (bf16 *)malloc(product_bytes(&e->s));
    for (uint32_t r = 0; got && r < e->s.ranks; r++) {
        use_gpu(e, r);
        CHECKED(fleet_to_host(got, product_of(&e->args, r), product_bytes(&e->s), NULL));
        for (uint32_t i = 0; i < CHECKED_ELEMENTS; i++) {
            const size_t m = checked_index(i, tokens_each(&e->s)),
                         n = checked_index(i * 5 + 1, e->s.columns);
            float want = 0;
            for (uint32_t p = 0; p < e->s.ranks; p++)
                want += float_of(
                    bf16_of(dot(r * tokens_each(&e->s) + m, 200 + p, n, 300 + p, e->s.depth)));
            differ("an element of the sum of products", float_of(got[m * e->s.columns + n]),
                   float_of(bf16_of(want)));
        }
    }
    free(got);
}
static void check_gather(ensemble *e)
{
    const size_t bytes = (size_t)e->s.tokens * e->s.depth * sizeof(bf16);
    bf16 *got = (bf16 *)malloc(bytes);
    for (uint32_t r = 0; got && r < e->s.ranks; r++) {
        use_gpu(e, r);
        CHECKED(fleet_to_host(got, e->of[r].z, bytes, NULL));
        for (uint32_t i = 0; i < CHECKED_ELEMENTS; i++) {
            const size_t m = checked_index(i, e->s.tokens),
                         n = checked_index(i * 5 + 1, e->s.depth);
            differ("an element of the product of gathered rows", float_of(got[m * e->s.depth + n]),
                   float_of(bf16_of(dot(m, 400, n, 500 + r, e->s.columns))));
        }
    }
    free(got);
}

/* AMD's GPUs see each other's stores before a kernel ends in fine-grained memory alone. */
#if defined(FLEET_HIP)
static fleet_status region_alloc(void **region, size_t bytes)
{
    return hipExtMallocWithFlags(region, bytes, hipDeviceMallocFinegrained) ? FLEET_ERROR_DEVICE
                                                                            : FLEET_OK;
}
#else
#define region_alloc fleet_device_alloc
#endif

static void *alloc(size_t elements)
{
    void *at = NULL;
    CHECKED(fleet_device_alloc(&at, elements * sizeof(bf16)));
    return at;
}
static void open_ensemble(ensemble *e)
{
    const size_t bytes = EVENTS_BYTES + shared_bytes(&e->s) + flagged_bytes(&e->s);
    const size_t weights = (size_t)e->s.columns * e->s.depth;
    e->args.s = e->s;
    e->args.peers.ranks = e->s.ranks;
    for (uint32_t i = 0; i < e->s.ranks; i++) {
        operands *of = &e->of[i];
        void *copy = NULL;
        use_gpu(e, i);
        CHECKED(region_alloc(&e->args.peers.bases[i], bytes));
        e->x[i] = (bf16 *)alloc((size_t)e->s.tokens * e->s.depth);
        e->w[i] = (bf16 *)alloc(weights);
        e->v[i] = (bf16 *)alloc(weights);
        of->z = (bf16 *)alloc((size_t)e->s.tokens * e->s.depth);
        of->x = gemm_operand_of(e->x[i], e->s.tokens, e->s.depth);
        of->w = gemm_operand_of(e->w[i], e->s.columns, e->s.depth);
        of->gathered = gemm_operand_of(gathered_of(&e->args, i), e->s.tokens, e->s.columns);
        of->v = gemm_operand_of(e->v[i], e->s.depth, e->s.columns);
        CHECKED(fleet_device_alloc(&copy, sizeof *of));
        CHECKED(fleet_to_device(copy, of, sizeof *of, NULL));
        e->args.of[i] = (const operands *)copy;
    }
    use_gpu(e, 0);
    CHECKED(fleet_topology_query(&e->topology));
    /* Virtual ranks share the workers. */
    if (e->gpus == 1)
        for (uint32_t k = 0; k < e->topology.chiplets; k++) {
            e->topology.units[k] /= e->s.ranks;
            if (e->topology.units[k] < 2) e->topology.units[k] = 2;
        }
}
static void fill_rows(ensemble *e)
{
    void *zeros = calloc(1, flagged_bytes(&e->s)); /* no flag is 0 */
    for (uint32_t i = 0; zeros && i < e->s.ranks; i++) {
        use_gpu(e, i);
        fill(input_of(&e->args, i), (size_t)e->s.rows * WIDTH, value, 0, 100 + i);
        CHECKED(fleet_to_device(flagged_of(&e->args, i, 0, 0), zeros, flagged_bytes(&e->s), NULL));
    }
    free(zeros);
    use_gpu(e, 0);
}
/* A rank has its rows of what is gathered; the others' are not numbers, nor are results. */
static void fill_products(ensemble *e, bf16 (*of)(size_t, uint32_t))
{
    const size_t weights = (size_t)e->s.columns * e->s.depth,
                 each = tokens_each(&e->s) * e->s.columns;
    for (uint32_t i = 0; i < e->s.ranks; i++) {
        use_gpu(e, i);
        fill(e->x[i], (size_t)e->s.tokens * e->s.depth, of, 0, 200 + i);
        fill(e->w[i], weights, of, 0, 300 + i);
        fill(gathered_of(&e->args, i) + i * each, each, of, i * each, 400);
        fill(e->v[i], weights, of, 0, 500 + i);
    }
    use_gpu(e, 0);
}
static void clear_scatter(ensemble *e)
{
    for (uint32_t i = 0; i < e->s.ranks; i++) {
        use_gpu(e, i);
        fill(summand_of(&e->args, i, 0), product_bytes(&e->s) / sizeof(bf16) * (e->s.ranks + 1),
             nothing, 0, 0);
    }
    use_gpu(e, 0);
}
static void clear_gather(ensemble *e)
{
    const size_t each = tokens_each(&e->s) * e->s.columns;
    for (uint32_t i = 0; i < e->s.ranks; i++) {
        use_gpu(e, i);
        fill(e->of[i].z, (size_t)e->s.tokens * e->s.depth, nothing, 0, 0);
        for (uint32_t p = 0; p < e->s.ranks; p++)
            if (p != i) fill(gathered_of(&e->args, i) + p * each, each, nothing, 0, 0);
    }
    use_gpu(e, 0);
}

/* Checks what the products give with whole numbers, then times them with others, unless the run is small. The five take
   turns, since a GPU gets slower as it gets hot. */
static void products(ensemble *e, uint32_t small)
{
    double us[GATHER_BARRIERS + 1], turns[GATHER_BARRIERS + 1][TURNS];
    const double flop = 2e-6 * e->s.tokens * e->s.columns * e->s.depth;
    fill_products(e, value);
    for (uint32_t k = SCATTER; k <= GATHER_BARRIERS; k++) {
        if (k < GATHER)
            clear_scatter(e);
        else
            clear_gather(e);
        us[k] = run(e, (what)k, 1, 1);
        if (k < GATHER)
            check_scatter(e);
        else
            check_gather(e);
    }
    if (!small) fill_products(e, noise);
    for (uint32_t i = 0; i < TURNS && !small; i++)
        for (uint32_t k = SCATTER; k <= GATHER_BARRIERS; k++) turns[k][i] = run(e, (what)k, 4, 1);
    for (uint32_t k = SCATTER; k <= GATHER_BARRIERS && !small; k++) {
        qsort(turns[k], TURNS, sizeof turns[k][0], by_value);
        us[k] = turns[k][TURNS / 2];
    }
    printf("GEMM + reduce-scatter, %u x %u x %u of each rank: %.1f us (%.0f TFLOPS a rank); with "
           "tasks that add %.1f, and "
           "barriers %.1f: %.2f times\n",
           e->s.tokens, e->s.columns, e->s.depth, us[SCATTER], flop / us[SCATTER],
           us[SCATTER_TASKS], us[SCATTER_BARRIERS], us[SCATTER_BARRIERS] / us[SCATTER]);
    printf("all-gather + GEMM, %u x %u x %u of each rank: %.1f us (%.0f TFLOPS a rank), with "
           "barriers %.1f: %.2f times\n",
           e->s.tokens, e->s.depth, e->s.columns, us[GATHER], flop / us[GATHER],
           us[GATHER_BARRIERS], us[GATHER_BARRIERS] / us[GATHER]);
    fflush(stdout);
}

/* Appends to a log what every THINNED-th worker of a rank did: so rows of the picture can be told apart. `to` has room for
   all tasks of the ranks. Ranks come in order; each log has the times of its own GPU, from the first task on, which all
   begin together. */
#define THINNED 12u
static void add_thinned(fleet_trace_log *to, const fleet_trace_log *from)
{
    uint32_t *kept = (uint32_t *)malloc(from->n_tasks * sizeof *kept), n = to->n_tasks;
    if (!kept) exit(1);
    for (uint32_t i = 0; i < from->n_tasks; i++)
        kept[i] = from->tasks[i].worker % THINNED ? FLEET_TRACE_NONE : n++;
    for (uint32_t i = 0; i < from->n_tasks; i++) {
        fleet_trace_task t = from->tasks[i];
        if (kept[i] == FLEET_TRACE_NONE) continue;
        t.worker /= THINNED;
        if (t.after != FLEET_TRACE_NONE) t.after = kept[t.after];
        to->tasks[kept[i]] = t;
    }
    to->n_tasks = n;
    free(kept);
}
/* What is left of the logs of a run, which are freed. The caller frees the tasks. */
static fleet_trace_log thinned(ensemble *e)
{
    fleet_trace_log log = e->logs[0];
    uint32_t tasks = 0, base = 0;
    for (uint32_t i = 0; i < e->gpus; i++) tasks += e->logs[i].n_tasks;
    log.tasks = (fleet_trace_task *)malloc(tasks * sizeof *log.tasks);
    log.n_tasks = log.workers = 0;
    for (uint32_t i = 0; log.tasks && i < e->gpus; i++) add_thinned(&log, &e->logs[i]);
    for (uint32_t i = 0; i < e->gpus; i++) fleet_trace_log_free(&e->logs[i]);
    log.events = NULL, log.n_events = 0;
    for (uint32_t k = 0; k < log.chiplets; k++) {
        const uint32_t end = base + log.chiplet_workers[k];
        log.chiplet_workers[k] = (end + THINNED - 1) / THINNED - (base + THINNED - 1) / THINNED;
        log.workers += log.chiplet_workers[k];
        base = end;
    }
    return log;
}
/* Draws a step of GEMM + reduce-scatter with barriers, then one with events, on one scale of time. */
static void draw(ensemble *e, const char *file)
{
    static const char *const titles[2] = {
        "A barrier between products and sums; chiplet k is device k, every twelfth worker",
        "An event for each tile"};
    static const what whats[2] = {SCATTER_BARRIERS, SCATTER};
    static char text[8 << 20];
    fleet_trace_log logs[2];
    fleet_plan *plans[2];
    FILE *out = fopen(file, "w");
    size_t length;
    e->is_traced = 1;
    for (uint32_t i = 0; i < 2; i++) {
        (void)run(e, whats[i], 1, 2);
        logs[i] = thinned(e), plans[i] = e->plan;
    }
    length = trace_pictures(logs, titles, 2, "GEMM and reduce-scatter over several devices", text,
                            sizeof text);
    if (!out || length >= sizeof text || fputs(text, out) < 0 || fclose(out)) exit(1);
    for (uint32_t i = 0; i < 2; i++) free(logs[i].tasks), fleet_plan_free(plans[i]);
}

int main(int argc, char **argv)
{
    static ensemble e;
    int count = 1;
    double across, within, step;
    const char *picture = NULL;
    uint32_t small = GEMM_THREADS == 1;
    e.s.ranks = 2, e.s.rows = 1;
    for (int i = 1; i + 1 < argc; i += 2)
        if (!strcmp(argv[i], "--small")) small = 1;
    e.s.tokens = small ? 256 : 2048, e.s.columns = small ? 128 : 2048,
    e.s.depth = small ? 32 : 2048;
    for (int i = 1; i + 1 < argc; i += 2) {
        const uint32_t n = (uint32_t)atoi(argv[i + 1]);
        if (!strcmp(argv[i], "--ranks")) e.s.ranks = n;
        if (!strcmp(argv[i], "--rows")) e.s.rows = n;
        if (!strcmp(argv[i], "--tokens")) e.s.tokens = n;
        if (!strcmp(argv[i], "--columns")) e.s.columns = n;
        if (!strcmp(argv[i], "--depth")) e.s.depth = n;
        if (!strcmp(argv[i], "--trace")) picture = argv[i + 1];
    }
    if (e.s.ranks < 1 || e.s.ranks > FLEET_MAX_PEERS || !e.s.rows || !e.s.tokens ||
        e.s.tokens % e.s.ranks || !e.s.columns || e.s.columns % 8 || !e.s.depth || e.s.depth % 8) {
        fprintf(stderr, "devices: tokens in multiples of the ranks, columns and depth of 8\n");
        return 1;
    }
#if defined(FLEET_CUDA) || defined(FLEET_HIP)
    if (FLEETI_RT(GetDeviceCount)(&count)) return 1;
#endif
    e.gpus = !getenv("FLEET_VIRTUAL") && (uint32_t)count >= e.s.ranks ? e.s.ranks : 1;
    open_ensemble(&e);
    across = run(&e, HOPS_ACROSS, small ? 4 : 100, 5);
    within = run(&e, HOPS_WITHIN, small ? 4 : 100, 5);
    step = run(&e, STEP, small ? 16 : 1000, 5);
    printf("%u ranks, %s\n", e.s.ranks, e.gpus > 1 ? "a GPU each" : "on one device");
    printf("from notify to task: %.2f us to another rank, %.2f us within one; a step %.2f us\n",
           (across - step) / (HOPS - 1), (within - step) / (HOPS - 1), step);
    fill_rows(&e);
    printf("all-reduce of %u x %u bf16: %.2f us, of which a step takes %.2f\n", e.s.rows, WIDTH,
           run(&e, ALL_REDUCE, small ? 8 : 500, 5), step);
    check_all_reduce(&e);
    printf("the same by flagged data: %.2f us, one of %u in a step\n",
           run(&e, ALL_REDUCE_FLAGGED, small ? 4 : 100, 5) / REDUCES, REDUCES);
    check_all_reduce(&e);
    products(&e, small);
    if (picture) draw(&e, picture);
    return 0;
}
