/* tiles_cuda.h: products on NVIDIA GPUs, by tensor cores (mma.sync, from compute capability 8.0 on; fragments.h says which
   lane has what), with the weights from a stream.

   The producer wave copies each tile's weights through a ring of slots in LDS, ahead of the tasks and past the events
   that they wait for. The other waves take the pieces of a tile in turn, each for all rows, and leave sums of their own.

   What it costs: a tile reads its weights once, and all rows of its input. With k = 4096 those are 128 KB and 8 KB for
   each row, from the L2 for every tile of a worker: with 16 rows as many bytes as weights, with 64 rows four times as
   many. Beyond some 32 rows on an H200 that is what a product waits for, and not its weights. */

#include "fragments.h"
#include "instructions_cuda.h"

/* ---- the stream ---- */

#define SLOT_BYTES 8192u
#define SLOT_K (SLOT_BYTES / 2 / TILE) /* k's of a piece; the last piece of a tile may have less */
#define SLOT_BLOCKS (SLOT_K / BLOCK)

/* As many as the smallest of the GPUs that are compiled for has room for beside LDS_BYTES and what the kit takes: of
   227 KB from 9.0 on, 163 KB in 8.0 and 8.7, 99 KB elsewhere. */
#if !defined(DECODER_SLOTS)
#define DECODER_FIRST_OF(first, ...) first
#define DECODER_FIRST(...) DECODER_FIRST_OF(__VA_ARGS__, 0)
#define DECODER_ARCH DECODER_FIRST(__CUDA_ARCH_LIST__) /* sorted */
#if DECODER_ARCH >= 900 && DECODER_ARCH < 1200
#define DECODER_SLOTS 23
#elif DECODER_ARCH == 800 || DECODER_ARCH == 870
#define DECODER_SLOTS 15
#else
#define DECODER_SLOTS 7
#endif
#endif

/* Each works on a copy of its arguments: the compiler must assume that a step of the stream changes memory. */
FLEET_STREAM(linear, op)
{
    const char *weights = (const char *)args->weights;
    const uint32_t bytes = TILE * args->shape.k * 2;
    FLEET_UNUSED(at);
    FLEET_FOR_TILES(tile, &args->shape, ctx)
    {
        fleet_span(spans, weights + (size_t)tile.n * bytes, bytes);
    }
}
FLEET_STREAM(expert, op)
{
    const decoder *d = args->d;
    const char *weights = (const char *)args->weights;
    const uint32_t bytes = TILE * args->shape.k * 2, tiles = args->shape.n / TILE;
    const int32_t *active = d->active;
    uint32_t items;
    FLEET_UNUSED(at);
    if (!fleet_span_await(spans)) return;
    items = d->b->rows ? (uint32_t)*d->n_active * tiles : 0;
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < items;
         i += ctx.tile_num * ctx.slices)
        fleet_span(spans,
                   weights + ((size_t)(uint32_t)active[i / tiles] * tiles + i % tiles) * bytes,
                   bytes);
}
#define DECODER_STREAMS(TILE_, P) TILE_(P, linear) TILE_(P, attend) TILE_(P, expert)
#define DECODER_DISPATCH(set, LIST)                                                                \
    FLEET_DISPATCH_WITH_STREAM(set, LIST, DECODER_STREAMS, DECODER_SLOTS, SLOT_BYTES)
#define DECODER_STREAM_BYTES FLEET_STREAM_BYTES(op)

typedef struct weight_source {
    fleet_weights weights;
    fleet_status status; /* once it is not FLEET_OK, nothing more is taken */
} weight_source;
FLEET_DEVICE weight_source weights_open(const fleet_ctx *ctx)
{
    weight_source w;
    w.weights = fleet_weights_open(ctx);
    w.status = FLEET_OK;
    return w;
}

/* ---- products ---- */

#define MOST_GROUPS                                                                                \
    (2 * MOST_ROWS / FRAGMENT_ROWS) /* of rows, or of the second bf16 of their activations */
/* A multiplication is of a block and a group of rows. So many pieces of rows are on their way at a time, and so many
   multiplications in a row have sums of their own, for none to wait for the one before. */
#define AHEAD 4u

/* A block and a group of rows. */
FLEET_DEVICE void multiply_block(float *sum, const fleet_quad *weights, const fleet_quad *row)
{
    UNROLLED
    for (uint32_t half = 0; half < 2; half++)
        multiply_fragments(sum, weights[half].word, row->word + 2 * half);
}

/* This lane's weights of a block; zeros behind the last one, which are nobody's k's. */
FLEET_DEVICE void load_weights(fleet_quad *to, const bf16 *block, uint32_t there)
{
    const fleet_quad zero = {{0, 0, 0, 0}};
    UNROLLED
    for (uint32_t half = 0; half < 2; half++) {
        const bf16 *from = block + fragment_weights_at(fleet_lane(), half);
        to[half] = there ? *(const fleet_quad *)(const void *)from : zero;
    }
}

/* This lane's pieces of its rows for the multiplications from number `first` on of those from k on; row: where in x they
   begin. Where there are no more blocks, the last one is read again. */
FLEET_DEVICE void load_rows(fleet_quad *to, const act *x, const uint32_t *row, uint32_t groups,
                            uint32_t k, uint32_t first, uint32_t last)
{
    UNROLLED
    for (uint32_t i = 0; i < AHEAD; i++) {
        const uint32_t from = k + (first + i) / groups * BLOCK;
        to[i] = load_quad(x + (row[(first + i) % groups] + (from < last ? from : last)));
    }
}

/* This wave's share, for so many groups of rows: a constant. Where activations are two bf16 each, the second half of the
   groups are the second ones of the first half. */
FLEET_DEVICE void multiply_groups(const fleet_ctx *ctx, weight_source *source, const operand *in,
                                  float *parts, const uint32_t groups)
{
    const uint32_t waves = ctx->threads / fleet_wave_size(), lane = fleet_lane();
    const uint32_t k_end = in->stride, last = k_end - BLOCK, pieces = ceil_div(k_end, SLOT_K);
    const uint32_t sums = groups < AHEAD ? AHEAD : groups;
    const uint32_t rows = in->second ? groups / 2 : groups; /* groups of them */
    uint32_t row[MOST_GROUPS];
    float sum[MOST_GROUPS][FRAGMENT_SUMS];
    fleet_quad coming[AHEAD], block[2];
    uint32_t taken = 0; /* or passed over */
    UNROLLED
    for (uint32_t i = 0; i < groups; i++) {
        const uint32_t r = i % rows * FRAGMENT_ROWS + fragment_row(lane);
        /* Behind the last row it is read again; nobody looks at its sums. */
        row[i] = row_of(in, r < in->rows ? r : in->rows - 1) * in->stride + fragment_k(lane) +
                 (i < rows ? 0 : in->second);
    }
    memset(sum, 0, sizeof sum);
    load_rows(coming, in->x, row, groups, fleet_wave_id() * SLOT_K, 0, last);
    for (uint32_t piece = fleet_wave_id(); piece < pieces && !source->status; piece += waves) {
        const bf16 *weights;
        fleet_weights_skip(&source->weights, piece - taken);
        weights = (const bf16 *)fleet_weights_next(&source->weights);
        if (!weights) {
            source->status = fleet_weights_status(&source->weights);
            break;
        }
        taken = piece + 1;
        UNROLLED
        for (uint32_t first = 0; first < SLOT_BLOCKS * groups; first += AHEAD) {
            const uint32_t k = piece * SLOT_K, next = first + AHEAD;
            fleet_quad x[AHEAD];
            memcpy(x, coming, sizeof x);
            if (next < SLOT_BLOCKS * groups)
                load_rows(coming, in->x, row, groups, k, next, last);
            else
                load_rows(coming, in->x, row, groups, k + waves * SLOT_K, 0, last);
            UNROLLED
            for (uint32_t i = 0; i < AHEAD; i++) {
                const uint32_t number = (first + i) / groups;
                if ((first + i) % groups == 0)
                    load_weights(block, weights + number * BLOCK * TILE,
                                 k + number * BLOCK < k_end);
                multiply_block(sum[(first + i) % sums], block, &x[i]);
            }
        }
        fleet_weights_release(&source->weights, 1);
    }
    fleet_weights_skip(&source->weights, pieces - taken);
    UNROLLED
    for (uint32_t j = groups; j < sums; j++)
        for (uint32_t s = 0; s < FRAGMENT_SUMS; s++) sum[j % groups][s] += sum[j][s];
    if (in->second) {
        UNROLLED
        for (uint32_t i = groups / 2; i < groups; i++)
            for (uint32_t s = 0; s < FRAGMENT_SUMS; s++) sum[i - groups / 2][s] += sum[i][s];
    }
    UNROLLED
    for (uint32_t i = 0; i < groups; i++) {
        float *to = parts + i * FRAGMENT_ROWS * TILE;
        if (i >= rows) continue;
        UNROLLED
        for (uint32_t s = 0; s < FRAGMENT_SUMS; s++) {
            const uint32_t turn = fragment_sum_turn(lane, s);
            to[fragment_sum_at(lane, turn)] =
                turn & 2 ? (turn & 1 ? sum[i][3] : sum[i][2]) : (turn & 1 ? sum[i][1] : sum[i][0]);
        }
    }
}

/* parts: [waves][MOST_ROWS][TILE], of which this wave writes its own. The weights are the stream's next. */
FLEET_DEVICE fleet_status multiply(const fleet_ctx *ctx, weight_source *source, const bf16 *weights,
                                   const operand *in, float *parts)
{
    const uint32_t groups = ceil_div(in->rows, FRAGMENT_ROWS) * (in->second ? 2 : 1);
    FLEET_UNUSED(weights);
    parts += fleet_wave_id() * MOST_ROWS * TILE;
    if (groups <= 1)
        multiply_groups(ctx, source, in, parts, 1);
    else if (groups <= 2)
        multiply_groups(ctx, source, in, parts, 2);
    else if (groups <= 4)
        multiply_groups(ctx, source, in, parts, 4);
    else if (groups <= 8)
        multiply_groups(ctx, source, in, parts, 8);
    else
        multiply_groups(ctx, source, in, parts, MOST_GROUPS);
    return source->status;
}
