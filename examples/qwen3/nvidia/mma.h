/* nvidia/mma.h: products on NVIDIA GPUs, by tensor cores (mma.sync, from compute capability 8.0 on; fragments.h says which
   lane has what), with the weights from a stream. nvidia/wgmma.h has other ones, for launches of many sequences.

   The producer wave copies weights through a ring of slots in LDS, ahead of the tasks and past the events that they wait
   for. Up to MOST_WIDE tiles of columns are computed together: the activations that they have in common come from the
   L2 once for all of them. The waves divide k, a chunk at a time; where there are many rows, two waves share a chunk,
   each for half of the rows.

   What it costs: a worker reads its weights once, and for each wide tile all rows of its input. With 4096 by 4096
   weights on 132 SMs those are 256 KB, and 8 KB for each row. */

#ifndef QWEN3_NVIDIA_MMA_H
#define QWEN3_NVIDIA_MMA_H

#include "pipeline.h"

#define MOST_GROUPS (MOST_ROWS / 2 / FRAGMENT_ROWS) /* of rows, which one wave has */

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

#endif /* QWEN3_NVIDIA_MMA_H */
