/* nvidia/mma.h: small-M products on NVIDIA GPUs: mma.sync (compute capability 8.0 and later; fragments.h has the lanes) on
   weights from the pipeline. nvidia/wgmma.h has the products for large batches.

   The producer warp copies weights through a ring of stages in LDS, ahead of the tasks and past the events that they wait
   for. A panel has up to MAX_PANEL_TILES tiles of columns, whose common activations come from the L2 once. The warps divide
   k, a chunk at a time; with many rows, two warps share a chunk, each for half of the rows.

   Traffic: a worker reads its weights once, and all rows of its input for each panel. For 4096 x 4096 weights on 132 SMs
   that is 256 KB of weights, and 8 KB for each row. */

#ifndef QWEN3_NVIDIA_MMA_H
#define QWEN3_NVIDIA_MMA_H

#include "pipeline.h"

#define MAX_ROW_GROUPS (MAX_ROWS / 2 / FRAGMENT_ROWS) /* groups of rows that one warp has */

/* A warp's share of a product. A chunk is the stages of all tiles with the same k's; WAVE_PAIRS
   pairs of warps take turns with the chunks. With up to MAX_ROW_GROUPS groups of rows, each warp
   has all rows and half of the chunk's blocks; with more, it has half of the rows and all blocks. */
typedef struct wave_share {
    uint32_t pair, first_group, groups, first_block, blocks;
    uint32_t partial, partials; /* number of this partial sum, and partial sums in all */
} wave_share;
FLEET_DEVICE wave_share wave_share_of(uint32_t rows)
{
    const uint32_t all = ceil_div(rows, FRAGMENT_ROWS), wave = warp_uniform(fleet_wave_id()),
                   second = wave % 2;
    wave_share w;
    w.pair = wave / 2;
    if (all > MAX_ROW_GROUPS) {
        w.first_group = second * MAX_ROW_GROUPS,
        w.groups = second ? all - MAX_ROW_GROUPS : MAX_ROW_GROUPS;
        w.first_block = 0, w.blocks = STAGE_BLOCKS;
        w.partial = w.pair, w.partials = WAVE_PAIRS;
    } else {
        w.first_group = 0, w.groups = all;
        w.first_block = second * (STAGE_BLOCKS / 2), w.blocks = STAGE_BLOCKS / 2;
        w.partial = wave, w.partials = 2 * WAVE_PAIRS;
    }
    return w;
}

/* Loads the lane's weights for the two multiplications of a block. */
FLEET_DEVICE void load_weights(uint32_t (*to)[4], const bf16 *block)
{
    const bf16 *mine = block + fragment_at(fleet_lane());
    const fleet_quad first = *(const fleet_quad *)(const void *)mine,
                     others = *(const fleet_quad *)(const void *)(mine + STAGE_HALF);
    UNROLLED
    for (uint32_t half = 0; half < 2; half++)
        fragment_weights(to[half], first.word, others.word, half);
}

/* Where a lane finds its activations. A unit is one term of one block: with two terms, each block
   has two units. */
typedef struct act_rows {
    const act_t *x;
    uint32_t row[MAX_ROW_GROUPS], last,
        low;        /* offsets, in values; last: number of the last block */
    uint32_t terms; /* terms less 1 */
} act_rows;
FLEET_DEVICE act_rows act_rows_of(const wave_share *w, const operand *in, const uint32_t groups)
{
    act_rows from;
    from.x = in->x, from.last = in->k / BLOCK_K - 1;
    from.low = in->low, from.terms = in->low != 0;
    UNROLLED
    for (uint32_t g = 0; g < groups; g++) {
        const uint32_t r = (w->first_group + g) * FRAGMENT_ROWS + fragment_row(fleet_lane());
        /* rows after the last one repeat it; their sums are ignored */
        from.row[g] = (uint32_t)act_at(row_of(in, r < in->rows ? r : in->rows - 1),
                                       fragment_k(fleet_lane()), in->k);
    }
    return from;
}
FLEET_DEVICE void load_acts(fleet_quad *to, const act_rows *from, uint32_t unit,
                            const uint32_t groups)
{
    const uint32_t block = unit >> from->terms;
    const act_t *x = from->x + ((block < from->last ? block : from->last) * ATOM +
                                (unit & from->terms ? from->low : 0));
    UNROLLED
    for (uint32_t g = 0; g < groups; g++) to[g] = load_quad(x + from->row[g]);
}

/* Units in flight. */
#define WINDOW(groups) ((groups) <= 2 ? 4u : ACTS_IN_FLIGHT / (groups))

FLEET_DEVICE void begin_groups(const wave_share *w, weight_source *source, const operand *in,
                               const uint32_t groups)
{
    const act_rows from = act_rows_of(w, in, groups);
    const uint32_t first = (w->pair * STAGE_BLOCKS + w->first_block) << from.terms;
    UNROLLED
    for (uint32_t u = 0; u < WINDOW(groups); u++)
        load_acts(source->acts + u * groups, &from, first + u, groups);
}

/* groups (of rows) and panel_tiles are constants. As soon as a unit is multiplied, its registers
   receive the unit that is a window later; at the end, the first units of the next product of the
   same rows. */
FLEET_DEVICE void add_chunks(const wave_share *w, weight_source *source, const operand *in,
                             float (*sum)[MAX_ROW_GROUPS][FRAGMENT_SUMS], const uint32_t groups,
                             const uint32_t panel_tiles)
{
    const uint32_t chunks = ceil_div(in->k, STAGE_K), window = WINDOW(groups);
    const act_rows from = act_rows_of(w, in, groups);
    const uint32_t units = w->blocks << from.terms, chunk_units = STAGE_BLOCKS << from.terms;
    uint32_t taken = 0; /* stages acquired or skipped */
    for (uint32_t chunk = w->pair; chunk < chunks; chunk += WAVE_PAIRS) {
        const uint32_t next = chunk + WAVE_PAIRS < chunks ? chunk + WAVE_PAIRS : w->pair;
        const uint32_t before = w->first_block << from.terms; /* the other warp's */
        const bf16 *stage[MAX_PANEL_TILES];
        uint32_t first_stage;
        fleet_stages_skip(&source->weights, chunk * panel_tiles - taken);
        first_stage = fleet_stage_index(&source->weights);
        stage[0] = (const bf16 *)(panel_tiles == 1
                                      ? fleet_stage_acquire(&source->weights) /* fewer tests */
                                      : fleet_stages_acquire(&source->weights, panel_tiles));
        if (!stage[0]) {
            source->status = fleet_consumer_status(&source->weights);
            return;
        }
        UNROLLED
        for (uint32_t t = 1; t < panel_tiles; t++) { /* the ring may wrap inside of a chunk */
            const int32_t offset =
                (int32_t)(t - (first_stage + t < DECODER_STAGES ? 0 : DECODER_STAGES));
            stage[t] = stage[0] + offset * (int32_t)(STAGE_BYTES / sizeof(bf16));
        }
        taken = (chunk + 1) * panel_tiles;
        ROLLED
        for (uint32_t first = 0; first < units; first += window) {
            const uint32_t later =
                before + (first + window < units ? chunk * chunk_units + first + window
                                                 : next * chunk_units);
            UNROLLED
            for (uint32_t u = 0; u < window; u++) {
                const uint32_t block = (before + first + u) >> from.terms;
                UNROLLED
                for (uint32_t t = 0; t < panel_tiles; t++) {
                    uint32_t weights[2][4];
                    load_weights(weights, stage[t] + block * ATOM);
                    UNROLLED
                    for (uint32_t i = 0; i < 2 * groups; i++)
                        mma_bf16(sum[t][i % groups], weights[i / groups],
                                 source->acts[u * groups + i % groups].word + i / groups * 2);
                }
                load_acts(source->acts + u * groups, &from, later + u, groups);
            }
        }
        fleet_stages_release(&source->weights, panel_tiles, 2);
    }
    fleet_stages_skip(&source->weights, chunks * panel_tiles - taken);
}

/* Stores this warp's sums of a tile to LDS, [rows of all groups][TILE_N]. */
FLEET_DEVICE void store_partial(const wave_share *w, float (*sum)[FRAGMENT_SUMS], float *partial,
                                const uint32_t groups)
{
    const uint32_t lane = fleet_lane();
    partial += w->first_group * FRAGMENT_ROWS * TILE_N;
    UNROLLED
    for (uint32_t g = 0; g < groups; g++) {
        if (g >= w->groups) break;
        UNROLLED
        for (uint32_t s = 0; s < FRAGMENT_SUMS; s++) {
            const uint32_t turn = fragment_sum_turn(lane, s);
            partial[g * FRAGMENT_ROWS * TILE_N + fragment_sum_at(lane, turn)] =
                turn & 2 ? (turn & 1 ? sum[g][3] : sum[g][2]) : (turn & 1 ? sum[g][1] : sum[g][0]);
        }
    }
}
/* A lane loads or stores these with one instruction. */
FLEET_DEVICE vec4 load_vec4(const float *from)
{
    return *(const vec4 *)(const void *)from;
}
FLEET_DEVICE void store_vec4(float *to, vec4 values)
{
    *(vec4 *)(void *)to = values;
}

/* Floats of a tile's partial sum. */
FLEET_DEVICE uint32_t partial_floats_of(uint32_t rows)
{
    return ceil_div(rows, FRAGMENT_ROWS) * FRAGMENT_ROWS * TILE_N;
}

/* Adds up the partial sums of `tiles` tiles, in their order, four columns at a time, whose loads overlap. own: see
   linear_lds.own_sums; a row's sums of a tile are stored by one warp. */
FLEET_DEVICE void reduce_partials(const fleet_ctx *ctx, const wave_share *w, const linear_lds *l,
                                  float *sums, uint32_t tiles, uint32_t rows, uint32_t own)
{
    const uint32_t partial_floats = partial_floats_of(rows), fours = TILE_N / 4;
    copy_async_wait(); /* those of prefetch_residual */
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < tiles * rows * fours; i += ctx->threads) {
        const uint32_t t = fast_div(i / fours, l->reciprocal);
        const float *first =
            l->partials + t * w->partials * partial_floats + (i * 4 - t * rows * TILE_N);
        vec4 partial[2 * WAVE_PAIRS], sum = {{0, 0, 0, 0}};
        UNROLLED
        for (uint32_t p = 0; p < 2 * WAVE_PAIRS; p++)
            partial[p] = load_vec4(first + (p < w->partials ? p : 0) * partial_floats);
        UNROLLED
        for (uint32_t p = 0; p < 2 * WAVE_PAIRS; p++)
            for (uint32_t j = 0; j < 4; j++)
                sum.value[j] += p < w->partials ? partial[p].value[j] : 0;
        store_vec4(sums + i * 4, sum);
    }
    if (own)
        fleet_wave_barrier();
    else
        fleet_barrier(ctx);
}

/* Leaves the partial sums of the panel's last tiles, as many as LDS has room for; returns the number of the first of
   these. The others are added up. The caller adds up the rest: code that all products share is still in the instruction
   cache. */
FLEET_DEVICE uint32_t multiply_groups(const fleet_ctx *ctx, const wave_share *w,
                                      weight_source *source, const operand *in, const linear_lds *l,
                                      const uint32_t groups, const uint32_t panel_tiles)
{
    const uint32_t all = w->partials * partial_floats_of(in->rows); /* floats of a tile */
    /* tiles that there is room for; a constant with one group */
    const uint32_t room = groups == 1 || 3 * all <= PARTIAL_FLOATS ? 3
                          : 2 * all <= PARTIAL_FLOATS              ? 2
                                                                   : 1;
    float sum[MAX_PANEL_TILES][MAX_ROW_GROUPS][FRAGMENT_SUMS];
    uint32_t first = 0;
    memset(sum, 0, sizeof sum);
    if (!source->status) add_chunks(w, source, in, sum, groups, panel_tiles);
    UNROLLED
    for (uint32_t t = 0; t < panel_tiles; t++) {
        if (t == first + room) {
            reduce_partials(ctx, w, l, l->sums + first * in->rows * TILE_N, room, in->rows, 0);
            first = t;
        }
        store_partial(w, sum[t],
                      l->partials + (t - first) * all + w->partial * partial_floats_of(in->rows),
                      groups);
    }
    return first;
}
typedef char
    one_group_has_room[3 * 2 * WAVE_PAIRS * FRAGMENT_ROWS * TILE_N <= PARTIAL_FLOATS ? 1 : -1];

/* Calls with the number of groups as a constant: four where two warps share the groups, so that all warps agree on how many
   partial sums LDS has room for. */
#define WITH_GROUPS(call, share, source, in)                                                       \
    do {                                                                                           \
        if ((share).groups > 2 || (share).partials < 2 * WAVE_PAIRS)                               \
            call(share, source, in, 4);                                                            \
        else if ((share).groups > 1)                                                               \
            call(share, source, in, 2);                                                            \
        else                                                                                       \
            call(share, source, in, 1);                                                            \
    } while (0)
#define BEGIN_GROUPS(share, source, in, groups) begin_groups(&(share), source, in, groups)
#define MULTIPLY_GROUPS(share, source, in, groups)                                                 \
    do {                                                                                           \
        if ((in)->panel_tiles == 3)                                                                \
            first = multiply_groups(ctx, &(share), source, in, l, groups, 3);                      \
        else if ((in)->panel_tiles == 2)                                                           \
            first = multiply_groups(ctx, &(share), source, in, l, groups, 2);                      \
        else                                                                                       \
            first = multiply_groups(ctx, &(share), source, in, l, groups, 1);                      \
    } while (0)

/* Loads the units that the product begins with. */
FLEET_DEVICE void multiply_begin(weight_source *source, const operand *in)
{
    const wave_share share = wave_share_of(in->rows);
    WITH_GROUPS(BEGIN_GROUPS, share, source, in);
}
/* The weights are the pipeline's next stages. */
FLEET_DEVICE fleet_status multiply(const fleet_ctx *ctx, weight_source *source, const bf16 *weights,
                                   const operand *in, const linear_lds *l)
{
    const wave_share share = wave_share_of(in->rows);
    uint32_t first;
    FLEET_UNUSED(weights);
    WITH_GROUPS(MULTIPLY_GROUPS, share, source, in);
    reduce_partials(ctx, &share, l, l->sums + first * in->rows * TILE_N, in->panel_tiles - first,
                    in->rows, l->own_sums && first == 0);
    return source->status;
}

/* ---- experts ---- */

/* A warp's position in the down products of a tile. A step is a chunk of an expert's weights times FRAGMENT_ROWS of its
   pairs; the pairs of warps take turns with an expert's chunks. So each warp goes through the ring at its own pace: it
   adds its sums to totals of its own in LDS, in the order of the experts, and no barrier is needed until the end. */
typedef struct expert_step {
    uint32_t expert, chunk, first;  /* expert: among the active ones; first: position of a pair */
    uint32_t begin, end, later_end; /* of the expert's pairs; of the next expert's */
} expert_step;
FLEET_DEVICE expert_step first_expert_step(const decoder *d, uint32_t active, uint32_t chunk)
{
    expert_step s;
    s.expert = 0, s.chunk = chunk;
    s.first = s.begin = (uint32_t)d->first_place[0]; /* above 0 on some of several ranks */
    s.end = (uint32_t)d->first_place[1], s.later_end = (uint32_t)d->first_place[active > 1 ? 2 : 1];
    return s;
}
/* Loads where an expert's pairs end two experts ahead, so that nothing waits for it. */
FLEET_DEVICE void next_expert_step(const decoder *d, uint32_t active, uint32_t chunks,
                                   uint32_t first_chunk, expert_step *s)
{
    s->first += FRAGMENT_ROWS;
    if (s->first < s->end) return;
    s->first = s->begin, s->chunk += WAVE_PAIRS;
    if (s->chunk < chunks) return;
    s->expert++, s->chunk = first_chunk;
    s->first = s->begin = s->end, s->end = s->later_end;
    s->later_end = (uint32_t)d->first_place[s->expert + 2 < active ? s->expert + 2 : active];
}

/* Where a step finds a lane's activations, and the rows and weights of the lane's sums. */
typedef struct step_pairs {
    const act_t *x;
    uint32_t block, last; /* block: the step's first one */
    uint32_t row[2];
    float weight[2]; /* meaningless after the expert's last pair */
} step_pairs;
FLEET_DEVICE step_pairs step_pairs_of(const task_args *task, const expert_step *s,
                                      uint32_t first_block)
{
    const decoder *d = &task->d;
    const uint32_t lane = opaque(fleet_lane()), last = s->end - 1,
                   at = s->first + fragment_row(lane);
    step_pairs p;
    p.x = task->x + act_at(at < last ? at : last, fragment_k(lane), task->shape.k);
    p.block = s->chunk * STAGE_BLOCKS + first_block, p.last = task->shape.k / BLOCK_K - 1;
    UNROLLED
    for (uint32_t j = 0; j < 2; j++) {
        const uint32_t place = s->first + lane % 4 * 2 + j;
        p.row[j] = (uint32_t)d->place_row[place < last ? place : last];
        p.weight[j] = d->place_weight[place < last ? place : last];
    }
    return p;
}
FLEET_DEVICE fleet_quad load_step_acts(const task_args *task, const step_pairs *p, uint32_t unit)
{
    const uint32_t block = p->block + unit / 2;
    return load_quad(
        p->x + ((size_t)(block < p->last ? block : p->last) * ATOM + (unit % 2 ? task->x_low : 0)));
}

/* Activations have two terms in models with experts (decoder.two_terms). */
#define STEP_BLOCKS (STAGE_BLOCKS / 2) /* of one warp */
#define STEP_UNITS (2 * STEP_BLOCKS)
typedef char a_step_is_in_flight_at_once[STEP_UNITS <= ACTS_IN_FLIGHT ? 1 : -1];
/* The warp's share of the products, to totals, [rows][TILE_N]. The activations of a step replace those of the step
   before as these are multiplied. */
FLEET_DEVICE void add_experts(weight_source *source, const task_args *task, float *totals)
{
    const decoder *d = &task->d;
    const uint32_t wave = warp_uniform(fleet_wave_id()), active = (uint32_t)*d->n_active,
                   chunks = ceil_div(task->shape.k, STAGE_K);
    const uint32_t first_block = wave % 2 * STEP_BLOCKS, lane = opaque(fleet_lane());
    const bf16 *stage = NULL;
    uint32_t taken = 0; /* stages acquired or skipped */
    expert_step s = first_expert_step(d, active, wave / 2);
    step_pairs now = step_pairs_of(task, &s, first_block);
    if (wave / 2 >= chunks) s.expert = active; /* there is nothing for this warp */
    UNROLLED
    for (uint32_t u = 0; u < STEP_UNITS; u++) source->acts[u] = load_step_acts(task, &now, u);
    while (s.expert < active) {
        const uint32_t at = s.expert * chunks + s.chunk, end = s.end;
        const uint32_t first = s.first;
        float sum[2][FRAGMENT_SUMS] = {{0}};
        step_pairs next = now;
        if (s.first == s.begin) {
            fleet_stages_skip(&source->weights, at - taken);
            stage = (const bf16 *)fleet_stage_acquire(&source->weights);
            if (!stage) {
                source->status = fleet_consumer_status(&source->weights);
                return;
            }
            taken = at + 1;
        }
        next_expert_step(d, active, chunks, wave / 2, &s);
        if (s.expert < active) next = step_pairs_of(task, &s, first_block);
        UNROLLED
        for (uint32_t u = 0; u < STEP_UNITS; u++) {
            uint32_t weights[2][4];
            load_weights(weights, stage + (first_block + u / 2) * ATOM);
            UNROLLED
            for (uint32_t half = 0; half < 2; half++)
                mma_bf16(sum[half], weights[half], source->acts[u].word + half * 2);
            source->acts[u] = load_step_acts(task, &next, u);
        }
        if (s.expert * chunks + s.chunk != at) fleet_stage_release(&source->weights, 2);
        UNROLLED
        for (uint32_t i = 0; i < FRAGMENT_SUMS; i++)
            if (first + lane % 4 * 2 + i % 2 < end)
                totals[now.row[i % 2] * TILE_N + i / 2 * 8 + lane / 4] +=
                    now.weight[i % 2] * (sum[0][i] + sum[1][i]);
        fleet_wave_barrier(); /* other lanes may have the same row in the next step */
        now = next;
    }
    fleet_stages_skip(&source->weights, active * chunks - taken);
}

/* The warps' totals take the place of partials and sums. */
typedef char
    totals_have_room[MAX_WAVES * MAX_ROWS * TILE_N <= PARTIAL_FLOATS + SUM_FLOATS ? 1 : -1];
FLEET_DEVICE fleet_status multiply_experts(const fleet_ctx *ctx, weight_source *source,
                                           const task_args *task, uint32_t n, linear_lds *l,
                                           uint32_t rows)
{
    const uint32_t floats = rows * TILE_N;
    float *totals = l->partials + fleet_wave_id() * floats;
    FLEET_UNUSED(n); /* the weights are the pipeline's next stages */
    for (uint32_t i = opaque(fleet_lane()); i < floats; i += 32) totals[i] = 0;
    fleet_wave_barrier();
    /* of several ranks, one may have none of the active experts */
    if (!source->status && *task->d.n_active) add_experts(source, task, totals);
    copy_async_wait(); /* those of prefetch_residual */
    fleet_barrier(ctx);
    for (uint32_t i = opaque(ctx->thread); i < floats; i += ctx->threads)
        for (uint32_t w = 1; w < MAX_WAVES; w++) l->partials[i] += l->partials[w * floats + i];
    fleet_barrier(ctx);
    l->sums = l->partials;
    return source->status;
}

#endif /* QWEN3_NVIDIA_MMA_H */
