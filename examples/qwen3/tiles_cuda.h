/* tiles_cuda.h: products on NVIDIA GPUs, by tensor cores (mma.sync, from compute capability 8.0 on; fragments.h says which
   lane has what), with the weights from a stream. many_rows_cuda.h has other ones, for launches of many sequences.

   The producer wave copies weights through a ring of slots in LDS, ahead of the tasks and past the events that they wait
   for. Up to MOST_WIDE tiles of columns are computed together: the activations that they have in common come from the
   L2 once for all of them. The waves divide k, a chunk at a time; where there are many rows, two waves share a chunk,
   each for half of the rows.

   What it costs: a worker reads its weights once, and for each wide tile all rows of its input. With 4096 by 4096
   weights on 132 SMs those are 256 KB, and 8 KB for each row. */

#include "fragments.h"
#include "instructions_cuda.h"

/* ---- what lies where ---- */

#define SLOT_BYTES (PIECE_K * TILE * 2u) /* a piece */
#define SLOT_BLOCKS (PIECE_K / BLOCK)
#define K_STEP PIECE_K /* packed weights end with zeros, up to a multiple of so many k's */

/* As many as the smallest of the GPUs that are compiled for has room for beside LDS_BYTES and what the kit takes: of
   227 KB from 9.0 on, 163 KB in 8.0 and 8.7, 99 KB elsewhere. */
#if !defined(DECODER_SLOTS)
#define DECODER_FIRST_OF(first, ...) first
#define DECODER_FIRST(...) DECODER_FIRST_OF(__VA_ARGS__, 0)
#define DECODER_ARCH DECODER_FIRST(__CUDA_ARCH_LIST__) /* sorted */
#if DECODER_ARCH >= 900 && DECODER_ARCH < 1200
#define DECODER_SLOTS 24
#elif DECODER_ARCH == 800 || DECODER_ARCH == 870
#define DECODER_SLOTS 16
#else
#define DECODER_SLOTS 8
#endif
#endif

/* Tiles that are computed together, at most: with four, sums would not stay in registers. The teams of waves take the pieces
   of TEAMS chunks at a time, which must not be more than the ring has room for. */
#define TEAMS (MOST_WAVES / 2) /* of waves, that divide the k's of a product */
#define MOST_WIDE (3 * TEAMS <= DECODER_SLOTS ? 3u : 2u)

/* Of packed weights, from where a wide tile's are: piece after piece, those of its tiles with the same k's in a row. */
FLEET_BOTH size_t weight_at(uint32_t column, uint32_t k, uint32_t wide, uint32_t piece_k)
{
    const uint32_t piece = k / piece_k * wide + column / TILE;
    return (size_t)piece * piece_k * TILE + k % piece_k / BLOCK * ATOM +
           pack_at(column % TILE, k, piece_k);
}

/* ---- LDS ---- */

/* A tile's arguments come with the stream, and stay in LDS in front of what else it has there: a load from memory is waited
   for as long as hundreds of instructions take, and for longer when weights take the bandwidth. */
#define OWN_BYTES ((uint32_t)sizeof(op))
FLEET_DEVICE void keep_rows(const fleet_ctx *ctx, uint32_t rows)
{
    op *own = (op *)ctx->lds;
    own->rows = rows, own->rows_epoch = ctx->epoch;
}
typedef char arguments_must_be_a_span[sizeof(op) % 16 ? -1 : 1];
#define LDS_BYTES (62u * 512) /* attention likes to have as much */
#define LDS_ALIGNED 512u      /* from where it has to be so for wgmma */
FLEET_DEVICE char *tile_lds(const fleet_ctx *ctx)
{
    char *own = (char *)ctx->lds + OWN_BYTES;
    return own + (LDS_ALIGNED - (uintptr_t)own % LDS_ALIGNED) % LDS_ALIGNED;
}

/* Of some tiles all parts, and of a wide tile all sums. */
#define PRODUCT_PARTS (TEAMS * MOST_ROWS * TILE)
#define PRODUCT_SUMS (MOST_ROWS * MOST_WIDE * TILE)

/* Begins to bring to LDS what the sums of a wide tile will be added to, and the weights of the norm to come, while they
   are added up: copies_wait, and a barrier. There is room for l->ahead_rows rows; of more they stay where they are. */
#define AHEAD_ROWS 16u
FLEET_DEVICE void fetch_residual(const fleet_ctx *ctx, const op *o, const product_lds *l,
                                 uint32_t column, uint32_t columns, uint32_t rows)
{
    const uint32_t left = o->d.hidden - column, quads = (left < columns ? left : columns) / 4;
    for (uint32_t i = ctx->thread; i < (rows + 1) * TILE; i += ctx->threads) {
        const uint32_t r = i / TILE, q = i % TILE;
        const float *from = r < rows ? o->d.h + r * o->d.hidden : o->norm;
        if (q < quads)
            copy_16(lds_address(l->ahead + r * l->ahead_columns + q * 4), from + column + q * 4);
    }
}

typedef char
    lds_has_room[OWN_BYTES + LDS_ALIGNED + PRODUCT_BYTES + (AHEAD_ROWS + 1) * MOST_WIDE * TILE * 4 >
                         LDS_BYTES
                     ? -1
                     : 1];

/* ---- the stream ---- */

/* Cycles between two pieces (fleet_span_pace), as they suit an H200. */
#if !defined(PIECES_APART)
#define PIECES_APART 300u
#endif

FLEET_STREAM(linear, op)
{
    const tile_range tiles = tiles_of(args, &ctx);
    FLEET_UNUSED(at);
    fleet_span_pace(spans, PIECES_APART);
    fleet_span(spans, args, OWN_BYTES);
    for (uint32_t n = tiles.first; n < tiles.end; n += tiles.step)
        fleet_span(spans, weights_of(args, n), args->tile_bytes);
}
FLEET_STREAM(expert, op)
{
    const decoder *d = &args->d;
    const uint32_t tiles = args->shape.n / TILE;
    const int32_t *active = d->active;
    uint32_t items;
    FLEET_UNUSED(at);
    fleet_span_pace(spans, PIECES_APART);
    fleet_span(spans, args, OWN_BYTES);
    if (!fleet_span_await(spans)) return;
    items = d->b->rows ? (uint32_t)*d->n_active * tiles : 0;
    for (uint32_t i = ctx.slice + ctx.tile_index * ctx.slices; i < items;
         i += ctx.tile_num * ctx.slices)
        fleet_span(spans, weights_of(args, (uint32_t)active[i / tiles] * tiles + i % tiles),
                   args->tile_bytes);
}
#define DECODER_DISPATCH(set, LIST, STREAMS)                                                       \
    FLEET_DISPATCH_WITH_STREAM(set, LIST, STREAMS, DECODER_SLOTS, SLOT_BYTES)

/* ---- products ---- */

/* Values that a lane loads or stores together. */
FLEET_DEVICE four load_four(const float *from)
{
    return *(const four *)(const void *)from;
}
FLEET_DEVICE void put_four(float *to, four values)
{
    *(four *)(void *)to = values;
}
typedef struct __attribute__((aligned(8))) four_acts {
    act value[4];
} four_acts;
FLEET_DEVICE void put_four_acts(act *to, const act *values)
{
    four_acts together;
    for (uint32_t i = 0; i < 4; i++) together.value[i] = values[i];
    *(four_acts *)(void *)to = together;
}
typedef struct __attribute__((aligned(8))) two {
    float value[2];
} two;

FLEET_DEVICE two load_two(const float *from)
{
    return *(const two *)(const void *)from;
}
FLEET_DEVICE void put_two(float *to, float first, float second)
{
    two together;
    together.value[0] = first, together.value[1] = second;
    *(two *)(void *)to = together;
}

#define MOST_GROUPS (MOST_ROWS / 2 / FRAGMENT_ROWS) /* of rows, which one wave has */
#define MOST_ACTS 8u /* pieces of activations that a lane has on their way */

/* What a wave has of a product. A chunk is the pieces of all tiles with the same k's; TEAMS teams of two waves take chunks
   in turn. Of up to MOST_GROUPS groups of rows each wave has all, and half of the chunk's blocks; of more it has half,
   and all blocks. */
typedef struct wave_share {
    uint32_t team, first_group, groups, first_block, blocks;
    uint32_t part, parts; /* which part of the k's it adds up, and of how many */
} wave_share;
FLEET_DEVICE wave_share wave_share_of(uint32_t rows)
{
    const uint32_t all = ceil_div(rows, FRAGMENT_ROWS), wave = uniform(fleet_wave_id()),
                   second = wave % 2;
    wave_share w;
    w.team = wave / 2;
    if (all > MOST_GROUPS) {
        w.first_group = second * MOST_GROUPS, w.groups = second ? all - MOST_GROUPS : MOST_GROUPS;
        w.first_block = 0, w.blocks = SLOT_BLOCKS;
        w.part = w.team, w.parts = TEAMS;
    } else {
        w.first_group = 0, w.groups = all;
        w.first_block = second * (SLOT_BLOCKS / 2), w.blocks = SLOT_BLOCKS / 2;
        w.part = wave, w.parts = 2 * TEAMS;
    }
    return w;
}
/* A wave's place in the weights, and in the activations. */
typedef struct weight_source {
    fleet_weights weights;
    fleet_status status;        /* once it is not FLEET_OK, nothing more is taken */
    fleet_quad acts[MOST_ACTS]; /* the next ones, on their way */
} weight_source;
FLEET_DEVICE weight_source weights_open(const fleet_ctx *ctx)
{
    weight_source w;
    w.weights = fleet_weights_open(ctx);
    w.status = FLEET_OK;
    return w;
}

/* The stream's first piece, and the rows of the step: those that the worker's task before had, where that was of this session
   and step, for a load takes 1% of a layer. What else may be in LDS, such as another session's, is not taken for it. If the
   run ends without the piece, whoever asks for the next one is told. */
FLEET_DEVICE const op *own_op(const fleet_ctx *ctx, weight_source *source, const op *args)
{
    fleet_quad *own = (fleet_quad *)ctx->lds;
    if (fleet_wave_id() == 0) {
        const void *piece = fleet_weights_next(&source->weights);
        const op *o = piece ? (const op *)piece : args, *before = (const op *)ctx->lds;
        const uint32_t known = before->session == o->session && before->rows_epoch == ctx->epoch;
        const uint32_t rows = known ? before->rows : o->d.b->rows;
        fleet_wave_barrier(); /* all lanes have read what is overwritten now */
        for (uint32_t i = fleet_lane(); i < OWN_BYTES / 16; i += 32)
            own[i] = ((const fleet_quad *)(const void *)o)[i];
        if (piece)
            fleet_weights_release(&source->weights, 1);
        else
            source->status = fleet_weights_status(&source->weights);
        fleet_wave_barrier();
        if (fleet_lane() == 0) keep_rows(ctx, rows);
    } else {
        fleet_weights_skip(&source->weights, 1);
    }
    fleet_barrier(ctx);
    return (const op *)ctx->lds;
}
FLEET_DEVICE uint32_t rows_of(const op *o)
{
    return o->rows;
}
/* What a worker marks words with that another one of the same task waits for: no two tasks and steps have the same tag, so
   nothing has to be ordered. Odd: what memory begins with is none. It comes again after more than 2^31 tasks. */
FLEET_DEVICE uint32_t task_tag(const fleet_ctx *ctx, const op *o)
{
    return (ctx->epoch * o->ops + o->number) * 2 + 1;
}

/* This lane's weights for the two multiplications of a block. */
FLEET_DEVICE void load_weights(uint32_t (*to)[4], const bf16 *block)
{
    const bf16 *mine = block + fragment_at(fleet_lane());
    const fleet_quad first = *(const fleet_quad *)(const void *)mine,
                     others = *(const fleet_quad *)(const void *)(mine + PIECE_HALF);
    UNROLLED
    for (uint32_t half = 0; half < 2; half++)
        fragment_weights(to[half], first.word, others.word, half);
}

/* Where a lane finds its activations. A unit of them is of a block; where they have two terms, each block has two units,
   one behind the other. */
typedef struct act_rows {
    const act *x;
    uint32_t row[MOST_GROUPS], last, second; /* in values; last: block */
    uint32_t terms;                          /* less 1 */
} act_rows;
FLEET_DEVICE act_rows act_rows_of(const wave_share *w, const operand *in, const uint32_t groups)
{
    act_rows from;
    from.x = in->x, from.last = in->k / BLOCK - 1;
    from.second = in->second, from.terms = in->second != 0;
    UNROLLED
    for (uint32_t g = 0; g < groups; g++) {
        const uint32_t r = (w->first_group + g) * FRAGMENT_ROWS + fragment_row(fleet_lane());
        /* Behind the last row it is read again; nobody looks at its sums. */
        from.row[g] = (uint32_t)act_at(row_of(in, r < in->rows ? r : in->rows - 1),
                                       fragment_k(fleet_lane()), in->k);
    }
    return from;
}
FLEET_DEVICE void load_acts(fleet_quad *to, const act_rows *from, uint32_t unit,
                            const uint32_t groups)
{
    const uint32_t block = unit >> from->terms;
    const act *x = from->x + ((block < from->last ? block : from->last) * ATOM +
                              (unit & from->terms ? from->second : 0));
    UNROLLED
    for (uint32_t g = 0; g < groups; g++) to[g] = load_quad(x + from->row[g]);
}

/* Units that are on their way at a time. */
#define WINDOW(groups) ((groups) <= 2 ? 4u : MOST_ACTS / (groups))

FLEET_DEVICE void begin_groups(const wave_share *w, weight_source *source, const operand *in,
                               const uint32_t groups)
{
    const act_rows from = act_rows_of(w, in, groups);
    const uint32_t first = (w->team * SLOT_BLOCKS + w->first_block) << from.terms;
    UNROLLED
    for (uint32_t u = 0; u < WINDOW(groups); u++)
        load_acts(source->acts + u * groups, &from, first + u, groups);
}

/* groups and wide are constants: of rows, and in->wide. As soon as a unit is multiplied, its registers take the one that is
   a window behind it, at the end those with which the next product of the same rows begins. */
FLEET_DEVICE void add_chunks(const wave_share *w, weight_source *source, const operand *in,
                             float (*sum)[MOST_GROUPS][FRAGMENT_SUMS], const uint32_t groups,
                             const uint32_t wide)
{
    const uint32_t chunks = ceil_div(in->k, PIECE_K), window = WINDOW(groups);
    const act_rows from = act_rows_of(w, in, groups);
    const uint32_t units = w->blocks << from.terms, chunk_units = SLOT_BLOCKS << from.terms;
    uint32_t taken = 0; /* pieces, or passed over */
    for (uint32_t chunk = w->team; chunk < chunks; chunk += TEAMS) {
        const uint32_t next = chunk + TEAMS < chunks ? chunk + TEAMS : w->team;
        const uint32_t before = w->first_block << from.terms; /* units of the other wave */
        const bf16 *piece[MOST_WIDE];
        uint32_t slot;
        fleet_weights_skip(&source->weights, chunk * wide - taken);
        slot = fleet_weights_slot(&source->weights);
        piece[0] = (const bf16 *)fleet_weights_take(&source->weights, wide);
        if (!piece[0]) {
            source->status = fleet_weights_status(&source->weights);
            return;
        }
        UNROLLED
        for (uint32_t t = 1; t < wide; t++) { /* the ring's first slot comes behind its last one */
            const int32_t ahead = (int32_t)(t - (slot + t < DECODER_SLOTS ? 0 : DECODER_SLOTS));
            piece[t] = piece[0] + ahead * (int32_t)(SLOT_BYTES / sizeof(bf16));
        }
        taken = (chunk + 1) * wide;
        ROLLED
        for (uint32_t first = 0; first < units; first += window) {
            const uint32_t behind =
                before + (first + window < units ? chunk * chunk_units + first + window
                                                 : next * chunk_units);
            UNROLLED
            for (uint32_t u = 0; u < window; u++) {
                const uint32_t block = (before + first + u) >> from.terms;
                UNROLLED
                for (uint32_t t = 0; t < wide; t++) {
                    uint32_t weights[2][4];
                    load_weights(weights, piece[t] + block * ATOM);
                    UNROLLED
                    for (uint32_t i = 0; i < 2 * groups; i++)
                        multiply_fragments(sum[t][i % groups], weights[i / groups],
                                           source->acts[u * groups + i % groups].word +
                                               i / groups * 2);
                }
                load_acts(source->acts + u * groups, &from, behind + u, groups);
            }
        }
        fleet_weights_give_back(&source->weights, wide, 2);
    }
    fleet_weights_skip(&source->weights, chunks * wide - taken);
}

/* This wave's sums of a tile to LDS, [rows of all groups][TILE]. */
FLEET_DEVICE void put_part(const wave_share *w, float (*sum)[FRAGMENT_SUMS], float *part,
                           const uint32_t groups)
{
    const uint32_t lane = fleet_lane();
    part += w->first_group * FRAGMENT_ROWS * TILE;
    UNROLLED
    for (uint32_t g = 0; g < groups; g++) {
        if (g >= w->groups) break;
        UNROLLED
        for (uint32_t s = 0; s < FRAGMENT_SUMS; s++) {
            const uint32_t turn = fragment_sum_turn(lane, s);
            part[g * FRAGMENT_ROWS * TILE + fragment_sum_at(lane, turn)] =
                turn & 2 ? (turn & 1 ? sum[g][3] : sum[g][2]) : (turn & 1 ? sum[g][1] : sum[g][0]);
        }
    }
}
/* Adds up the parts of `tiles` tiles, always in their order. */
FLEET_DEVICE void add_parts(const fleet_ctx *ctx, const wave_share *w, const product_lds *l,
                            float *sums, uint32_t tiles, uint32_t part, uint32_t rows)
{
    copies_wait(); /* those of fetch_residual */
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < tiles * rows * TILE; i += ctx->threads) {
        const uint32_t t = over(i / TILE, l->inverse);
        const float *first = l->parts + t * w->parts * part + (i - t * rows * TILE);
        float sum = 0;
        for (uint32_t p = 0; p < w->parts; p++) sum += first[p * part];
        sums[i] = sum;
    }
    fleet_barrier(ctx);
}

FLEET_DEVICE void multiply_groups(const fleet_ctx *ctx, const wave_share *w, weight_source *source,
                                  const operand *in, const product_lds *l, const uint32_t groups,
                                  const uint32_t wide)
{
    const uint32_t part = ceil_div(in->rows, FRAGMENT_ROWS) * FRAGMENT_ROWS * TILE;
    const uint32_t all = w->parts * part; /* of a tile; and tiles at a time */
    const uint32_t room = 3 * all <= PRODUCT_PARTS ? 3 : 2 * all <= PRODUCT_PARTS ? 2 : 1;
    float sum[MOST_WIDE][MOST_GROUPS][FRAGMENT_SUMS];
    uint32_t first = 0;
    memset(sum, 0, sizeof sum);
    if (!source->status) add_chunks(w, source, in, sum, groups, wide);
    UNROLLED
    for (uint32_t t = 0; t < wide; t++) {
        put_part(w, sum[t], l->parts + (t - first) * all + w->part * part, groups);
        if (t + 1 == first + room || t + 1 == wide) {
            add_parts(ctx, w, l, l->sums + first * in->rows * TILE, t + 1 - first, part, in->rows);
            first = t + 1;
        }
    }
}

/* With the constant of a wave's share. */
#define WITH_GROUPS(call, share, source, in)                                                       \
    do {                                                                                           \
        if ((share).groups > 2)                                                                    \
            call(share, source, in, 4);                                                            \
        else if ((share).groups > 1)                                                               \
            call(share, source, in, 2);                                                            \
        else                                                                                       \
            call(share, source, in, 1);                                                            \
    } while (0)
#define BEGIN_GROUPS(share, source, in, groups) begin_groups(&(share), source, in, groups)
#define MULTIPLY_GROUPS(share, source, in, groups)                                                 \
    do {                                                                                           \
        if ((in)->wide == 3)                                                                       \
            multiply_groups(ctx, &(share), source, in, l, groups, 3);                              \
        else if ((in)->wide == 2)                                                                  \
            multiply_groups(ctx, &(share), source, in, l, groups, 2);                              \
        else                                                                                       \
            multiply_groups(ctx, &(share), source, in, l, groups, 1);                              \
    } while (0)

/* Before the first product of these rows: loads what it begins with. */
FLEET_DEVICE void product_begin(weight_source *source, const operand *in)
{
    const wave_share share = wave_share_of(in->rows);
    WITH_GROUPS(BEGIN_GROUPS, share, source, in);
}
/* The sums of `in` and in->wide tiles, whose weights are the stream's next, to l->sums. */
FLEET_DEVICE fleet_status multiply(const fleet_ctx *ctx, weight_source *source, const bf16 *weights,
                                   const operand *in, const product_lds *l)
{
    const wave_share share = wave_share_of(in->rows);
    FLEET_UNUSED(weights);
    WITH_GROUPS(MULTIPLY_GROUPS, share, source, in);
    return source->status;
}

/* 1 / root mean square of each row, from the squares that the tiles before left: a row for each wave at a time, and the
   loads of some rows together. It is there behind the caller's next barrier. */
#define SCALED 2u      /* rows */
#define MOST_SCALED 8u /* by a wave that has time */
#define SQUARES 8u     /* of each */
/* Of `scaled` rows at a time, from `first` on, those of `waves` waves in turn. */
FLEET_DEVICE void scale_some(const op *o, const product_lds *l, uint32_t first, uint32_t rows,
                             uint32_t waves, const uint32_t scaled)
{
    const decoder *d = &o->d;
    const uint32_t tiles = d->hidden / TILE, lane = fleet_lane();
    for (; first < rows; first += scaled * waves) {
        float sum[MOST_SCALED] = {0};
        for (uint32_t t = fleet_lane(); o->normed && t < tiles; t += SQUARES * fleet_wave_size()) {
            float square[MOST_SCALED * SQUARES];
            UNROLLED
            for (uint32_t i = 0; i < scaled * SQUARES; i++) {
                const uint32_t r = first + i / SQUARES, at = t + i % SQUARES * fleet_wave_size();
                square[i] = r < rows && at < tiles ? d->squares[r * tiles + at] : 0;
            }
            UNROLLED
            for (uint32_t i = 0; i < scaled * SQUARES; i++) sum[i / SQUARES] += square[i];
        }
        /* All rows together, for a sum is waited for on its way from lane to lane; then a lane has a row. */
        UNROLLED
        for (uint32_t bit = fleet_wave_size() / 2; bit; bit /= 2) {
            UNROLLED
            for (uint32_t i = 0; i < scaled; i++) sum[i] += from_lane(sum[i], bit);
        }
        UNROLLED
        for (uint32_t i = 1; i < scaled; i++) sum[0] = lane == i ? sum[i] : sum[0];
        if (lane < scaled && first + lane < rows)
            l->scale[first + lane] =
                o->normed ? inverse_root(sum[0] / (float)d->hidden + d->eps) : 1;
    }
}
FLEET_DEVICE void scale_rows(const fleet_ctx *ctx, const op *o, const product_lds *l, uint32_t rows)
{
    FLEET_UNUSED(ctx);
    /* The last wave first: the ring waits for the first one's pieces. */
    scale_some(o, l, (MOST_WAVES - 1 - fleet_wave_id()) * SCALED, rows, MOST_WAVES, SCALED);
}

/* Of l->sums, [tiles][rows][TILE], of which each thread reads what it has left: so the lanes that have a row's columns add
   them up, without a barrier. All lanes of a warp take part each time. */
FLEET_DEVICE void put_squares(const fleet_ctx *ctx, const decoder *d, const product_lds *l,
                              uint32_t column, uint32_t tiles, uint32_t rows)
{
    const uint32_t lanes = TILE / 4; /* of a row */
    for (uint32_t first = 0; first < tiles * rows * lanes; first += ctx->threads) {
        const uint32_t i = first + ctx->thread, row = i / lanes, t = over(row, l->inverse);
        const uint32_t is_there = row < tiles * rows;
        four h = {{0, 0, 0, 0}};
        float squares;
        if (is_there) h = load_four(l->sums + i * 4);
        squares = h.value[0] * h.value[0] + h.value[1] * h.value[1] +
                  (h.value[2] * h.value[2] + h.value[3] * h.value[3]);
        for (uint32_t bit = lanes / 2; bit; bit /= 2) squares += from_lane(squares, bit);
        if (is_there && i % lanes == 0)
            d->squares[(row - t * rows) * (d->hidden / TILE) + column / TILE + t] = squares;
    }
}
