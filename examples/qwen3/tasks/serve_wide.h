/* tasks/serve_wide.h: the tasks of a server whose steps have up to PREFILL_ROWS rows, of which
   fewer than PREFILL_TILE_ROWS decode: those of the kernel that takes prompts (prefill.h), and what
   serve.h has for steps of MAX_ROWS rows. nvidia/serve_wide.h and amd/serve_wide.h include it
   before their own tasks.

   Rows       Decode rows begin at row 0, and the chunk at chunk_row, wherever the other group is: a
              group that stops between two layers, or goes on, need not move. A layer has the rows
              from `begin` to `rows`; rows between the groups have no sequence: they are computed,
              and their results are ignored. Rows that choose a token are copied to a tile of their
              own, from head_row on: there row n is that of sequence n.
   Parking    Decode rows stay where they are until they go on, since no others run before. So does
              a chunk, until one of another class takes its place: before the first layer of that
              step, all workers park it, and get back one that goes on.
   Order      Products have the same parts in all steps, whatever the width of their tiles, and
              attention adds in an order of positions alone: a row has the same bits in all
              steps. */
#ifndef QWEN3_TASKS_SERVE_WIDE_H
#define QWEN3_TASKS_SERVE_WIDE_H

#include "draw.h"
#include "embed.h"
#include "serve.h"

/* Blocks of a step, at most: a decode row, or some rows of a chunk. */
#define SERVED_BLOCKS (PREFILL_TILE_ROWS + PREFILL_ROWS)

/* The parts of a product in all steps. Each number of parts costs steps of few rows and steps of
   many rows some multiple of what the best number costs them; this one has the least sum of both,
   where few rows count twice, since more steps have few. The width is chosen for each step. */
#define SERVED_FEW 16u
#define SERVED_MANY 512u
#define FEW_TO_MANY 2.0f
FLEET_HOST_DEVICE prefill_division served_divide(const fleet_linear *shape, epilogue end,
                                                 uint32_t workers, uint32_t terms)
{
    const uint32_t rows[2] = {SERVED_FEW, SERVED_MANY};
    prefill_division best = {0, 0, 0};
    float least[2], lost = INFINITY;
    for (uint32_t turn = 0; turn < 2; turn++)
        for (uint32_t wanted = 1; wanted <= PREFILL_PARTS; wanted++) {
            const prefill_division parts = prefill_parts(shape->k, wanted, 0);
            float sum = 0;
            for (uint32_t i = 0; i < 2; i++) {
                prefill_division by = parts;
                float bytes = INFINITY;
                by.width = prefill_width(shape->n, end, rows[i], workers, by, terms);
                if (by.width)
                    bytes = (float)prefill_cost(shape->n, end, rows[i], workers, terms, by);
                if (!turn && (wanted == 1 || bytes < least[i])) least[i] = bytes;
                sum += bytes / least[i] * (i ? 1 : FEW_TO_MANY);
            }
            if (turn && sum < lost) lost = sum, best = parts;
        }
    return best;
}

/* Batches that hold the sequences of a step, whose number is the first one's. */
FLEET_HOST_DEVICE uint32_t served_batches(uint32_t decode_rows)
{
    return ceil_div(decode_rows + 1, MAX_ROWS);
}

#if HAS_PREFILL

/* ---- the rows of a layer ---- */

FLEET_DEVICE void copy_batches(const fleet_ctx *ctx, const decoder *d, batch *to, const batch *from)
{
    const uint32_t n = d->prefill->batches;
    for (uint32_t i = 0; i < n; i++) copy_batch(ctx, to + i, from + i);
}
/* The LDS of a task that lays out a layer: the keys of each block, after the batches. */
FLEET_DEVICE uint32_t *block_keys(const decoder *d, const ending_lds *l)
{
    return (uint32_t *)(void *)(l->b + d->prefill->batches);
}
typedef char layout_fits_lds[2 * ENDING_BESTS * 4 +
                                         (PREFILL_TILE_ROWS / MAX_ROWS + 1) * sizeof(batch) +
                                         SERVED_BLOCKS * 4 + 2048 <=
                                     PREFILL_LDS_BYTES
                                 ? 1
                                 : -1];

/* Row r of the tile; sequence -1: none. */
FLEET_DEVICE token_row tile_row(const decoder *d, batch *b, uint32_t decode_rows,
                                uint32_t chunk_row, uint32_t chunk_rows, uint32_t r)
{
    const uint32_t in_chunk = r - chunk_row;
    const sequence_state *s;
    token_row row = {-1, 0, 0, 0};
    if (r < decode_rows)
        row.sequence = (int32_t)r;
    else if (r >= chunk_row && in_chunk < chunk_rows)
        row.sequence = (int32_t)decode_rows;
    if (row.sequence < 0) return row;
    s = sequence_of(b, (uint32_t)row.sequence);
    row.position = s->position + (r < decode_rows ? 0 : (int32_t)in_chunk);
    row.page = pages_of(d, s->table_row)[(uint32_t)row.position / PAGE_TOKENS];
    row.token = token_at(d, s, row.position);
    return row;
}

/* Block i: a decode row, or the next rows of the chunk. */
FLEET_DEVICE prefill_block tile_block(const decoder *d, batch *b, uint32_t decode_rows,
                                      uint32_t chunk_row, uint32_t chunk_rows, uint32_t i)
{
    const uint32_t most = PREFILL_QUERIES / d->group;
    const sequence_state *s = sequence_of(b, i < decode_rows ? i : decode_rows);
    prefill_block block = {i, 1, (uint32_t)s->position, s->table_row};
    if (i >= decode_rows) {
        const uint32_t first = (i - decode_rows) * most;
        block.row = chunk_row + first, block.position += first;
        block.rows = chunk_rows - first < most ? chunk_rows - first : most;
    }
    return block;
}

/* Lays out the rows that the batch has in a layer, and their blocks, those with the most keys
   first. Where a warp attends for a row that decodes, the blocks of such rows come before those of
   the chunk. By all threads; the batch is in LDS. */
FLEET_DEVICE void arrange_tile(const fleet_ctx *ctx, const decoder *d, const ending_lds *l,
                               const fleet_batch *from, uint32_t layer, const uint32_t terms)
{
    prefill_step *step = d->prefill;
    batch *b = l->b;
    uint32_t *keys = block_keys(d, l);
    const uint32_t groups = groups_of(from, layer), chunk_row = step->chunk_row;
    const uint32_t decode_rows = groups & GROUP_DECODE ? from->decode_rows : 0,
                   chunk_rows = groups & GROUP_CHUNK ? from->chunk_rows : 0;
    const uint32_t blocks = decode_rows + ceil_div(chunk_rows, PREFILL_QUERIES / d->group),
                   row_blocks = step->has_row_blocks ? decode_rows : 0;
    arrange_sequences(ctx, d, b, from, layer);
    for (uint32_t n = ctx->thread; n < b->sequences; n += ctx->threads) {
        sequence_state *s = sequence_of(b, n);
        s->first = (int32_t)(step->head_row + n + 1) - s->rows; /* where it chooses a token */
        s->samples = s->position + s->rows >= s->prompt;
    }
    fleet_barrier(ctx); /* the sequences are in LDS */
    for (uint32_t r = ctx->thread; r < chunk_row + chunk_rows; r += ctx->threads)
        d->prefill_rows[r] = tile_row(d, b, decode_rows, chunk_row, chunk_rows, r);
    for (uint32_t i = ctx->thread; i < blocks; i += ctx->threads) {
        const prefill_block block = tile_block(d, b, decode_rows, chunk_row, chunk_rows, i);
        keys[i] = block.position + block.rows;
    }
    fleet_barrier(ctx); /* the keys of all blocks are in LDS */
    for (uint32_t i = ctx->thread; i < blocks; i += ctx->threads) {
        const uint32_t is_row = i < row_blocks, first = is_row ? 0 : row_blocks,
                       end = is_row ? row_blocks : blocks;
        uint32_t place = first;
        for (uint32_t k = first; k < end; k++)
            place += keys[k] > keys[i] || (keys[k] == keys[i] && k < i);
        d->prefill_blocks[place] = tile_block(d, b, decode_rows, chunk_row, chunk_rows, i);
    }
    if (ctx->thread == 0) {
        step->ends = chunk_rows && sequence_of(b, decode_rows)->samples;
        step->begin = chunk_rows && !decode_rows ? chunk_row : 0;
        step->rows = chunk_rows ? chunk_row + chunk_rows : decode_rows;
        step->choosing = decode_rows + step->ends;
        for (uint32_t k = 0; k < PREFILL_HEAD; k++) /* one row, where there is none */
            step->division[k].width =
                prefill_width(step->columns[k], prefill_end_of(k), chunk_rows + decode_rows + 1,
                              d->chiplets * d->workers, step->division[k], terms);
        if (terms == 2) served_expert_widths(d, step, chunk_rows + decode_rows + 1);
        step->blocks = blocks, step->row_blocks = row_blocks;
        b->rows = decode_rows + chunk_rows, b->prompt_rows += chunk_rows;
    }
    fleet_barrier(ctx);
}

/* ---- before the first layer ---- */

/* Which chunks move before the first layer of the next step. By one thread. */
FLEET_DEVICE void plan_moves(const decoder *d, const fleet_batch *before, const fleet_batch *next)
{
    prefill_step *step = d->prefill;
    const uint32_t kind = 1 + next->chunk_class;
    if (before->chunk_rows) {
        step->held = before->chunk_end < d->layers ? 1 + before->chunk_class : 0;
        step->held_rows = before->chunk_rows;
    }
    step->saves = step->restores = 0;
    if (!next->chunk_rows || step->held == kind) return;
    step->saves = step->held;
    if (next->chunk_begin) step->restores = kind;
}

FLEET_DEVICE void copy_act4(act_t *to, const act_t *from)
{
    *(act4 *)(void *)to = *(const act4 *)(const void *)from;
}
/* Copies the lane's four columns from c on of row r to the parked row, or back. All lanes call it.
   */
FLEET_DEVICE void park_columns(const decoder *d, uint32_t r, uint32_t parked, uint32_t c,
                               uint32_t back, const uint32_t terms)
{
    const uint32_t all = squares_of(d->hidden);
    float *h = d->h + (size_t)r * d->hidden + c, *squares = d->squares + (size_t)r * all;
    float *parked_h = d->parked_h + (size_t)parked * d->hidden + c,
          *parked_squares = d->parked_squares + (size_t)parked * all;
    act_t *x = d->x + prefill_at(r, c, d->hidden, terms),
          *parked_x = d->parked_x + (size_t)parked * terms * d->hidden + c;
    if (c >= d->hidden) return;
    store_vec4(back ? h : parked_h, load_vec4(back ? parked_h : h));
    copy_act4(back ? x : parked_x, back ? parked_x : x);
    if (terms == 2)
        copy_act4(back ? x + LOW_TERM : parked_x + d->hidden,
                  back ? parked_x + d->hidden : x + LOW_TERM);
    if (c % SQUARED_COLUMNS) return;
    *((back ? squares : parked_squares) + c / SQUARED_COLUMNS) =
        (back ? parked_squares : squares)[c / SQUARED_COLUMNS];
}

/* Clears pages, embeds the rows of the first layer, and moves chunks. A lane has the same columns
   in all that it does. */
FLEET_DEVICE void embed_tile(const fleet_ctx *ctx, const task_args *args, const uint32_t terms)
{
    const decoder *d = &args->d;
    const prefill_step *step = d->prefill;
    const uint32_t parts = ceil_div(d->hidden, EMBEDDED), begin = step->begin, rows = step->rows;
    const uint32_t chunk_row = step->chunk_row, saves = step->saves ? step->held_rows : 0;
    const uint32_t restores =
        step->restores ? fleet_table_batch(d->table, 0, ctx->epoch)->chunk_rows : 0;
    const uint32_t moved = chunk_row + (saves > restores ? saves : restores),
                   end = rows > moved ? rows : moved;
    clear_pages(ctx, d, d->prefill_rows + begin, rows - begin);
    for (uint32_t i = prefill_worker(ctx) * PREFILL_WARPS + own_warp(); i < end * parts;
         i += prefill_workers(ctx) * PREFILL_WARPS) {
        const uint32_t r = i / parts, c = i % parts * EMBEDDED + own_lane() * 4;
        const uint32_t n = r - chunk_row, is_chunk = r >= chunk_row;
        if (is_chunk && n < saves)
            park_columns(d, r, (step->saves - 1) * step->chunk_room + n, c, 0, terms);
        if (is_chunk && n < restores)
            park_columns(d, r, (step->restores - 1) * step->chunk_room + n, c, 1, terms);
        else if (r >= begin && r < rows)
            embed_columns(args, d->prefill_rows + r, r, c, terms);
    }
}
FLEET_TILE(embed_wide, task_args)
{
    FLEET_UNUSED(at);
    embed_tile(&ctx, args, 1);
    return FLEET_OK;
}

/* ---- the end of a step ---- */

/* Copies the rows that choose a token to where lm_head reads them: a warp has EMBEDDED columns of a
   row. */
FLEET_DEVICE void choose_rows(const fleet_ctx *ctx, const task_args *args, const uint32_t terms)
{
    const decoder *d = &args->d;
    const prefill_step *step = d->prefill;
    const uint32_t parts = ceil_div(d->hidden, EMBEDDED), all = squares_of(d->hidden);
    for (uint32_t i = prefill_worker(ctx) * PREFILL_WARPS + own_warp(); i < step->choosing * parts;
         i += prefill_workers(ctx) * PREFILL_WARPS) {
        const uint32_t n = i / parts, c = i % parts * EMBEDDED + own_lane() * 4;
        const uint32_t from = step->ends && n + 1 == step->choosing ? step->rows - 1 : n,
                       to = step->head_row + n;
        if (c >= d->hidden) continue;
        for (uint32_t low = 0; low < terms; low++) {
            const act_t *x = d->x + prefill_at(from, c, d->hidden, terms) + low * LOW_TERM;
            copy_act4(d->x + prefill_at(to, c, d->hidden, terms) + low * LOW_TERM, x);
        }
        if (c % SQUARED_COLUMNS == 0)
            d->squares[(size_t)to * all + c / SQUARED_COLUMNS] =
                d->squares[(size_t)from * all + c / SQUARED_COLUMNS];
    }
}
FLEET_TILE(choose_wide, task_args)
{
    FLEET_UNUSED(at);
    choose_rows(&ctx, args, 1);
    return FLEET_OK;
}

FLEET_TILE(draw_wide, task_args)
{
    FLEET_UNUSED(at);
    draw_tokens(&ctx, &args->d, PREFILL_TILE_ROWS, 1);
    return FLEET_OK;
}

FLEET_DEVICE fleet_status suspend_tile(const fleet_ctx *ctx, const decoder *d, uint32_t layer,
                                       const uint32_t terms)
{
    const ending_lds l = ending_lds_of(ctx);
    const uint32_t now = ask_scheduler(ctx, d, layer);
    if (d->b->groups == now) return FLEET_OK;
    copy_batches(ctx, d, l.b, d->b);
    arrange_tile(ctx, d, &l, fleet_table_batch(d->table, 0, ctx->epoch), layer, terms);
    copy_batches(ctx, d, d->b, l.b);
    return pass_over(ctx, d, layer, now);
}
OUTLINED fleet_status suspend_rows_wide(const fleet_ctx *ctx, const decoder *d, uint32_t layer)
{
    return suspend_tile(ctx, d, layer, 1);
}
FLEET_TILE(gate_wide, task_args)
{
    FLEET_UNUSED(at);
    if (!gate_opens(&ctx, &args->d)) return FLEET_OK;
    return suspend_rows_wide(&ctx, &args->d, args->layer);
}

FLEET_DEVICE fleet_status compose_rows(const fleet_ctx *ctx, const decoder *d, const uint32_t terms)
{
    const ending_lds l = ending_lds_of(ctx);
    const fleet_batch *next = fleet_table_batch(d->table, 0, ctx->epoch + 1);
    fleet_status status;
    copy_batches(ctx, d, l.b, d->b);
    reduce_best(ctx, d, &l, d->prefill->choosing, PREFILL_TILE_ROWS);
    status = next_batch(ctx, d, &l);
    if (status) return status;
    if (ctx->thread == 0) plan_moves(d, fleet_table_batch(d->table, 0, ctx->epoch), next);
    arrange_tile(ctx, d, &l, next, 0, terms);
    copy_batches(ctx, d, d->b, l.b);
    return fleet_next_symbol(ctx, LIVE, next->decode_rows || next->chunk_rows);
}
OUTLINED fleet_status compose_tile(const fleet_ctx *ctx, const decoder *d)
{
    return compose_rows(ctx, d, 1);
}
FLEET_TILE(boundary_wide, task_args)
{
    FLEET_UNUSED(at);
    return compose_tile(&ctx, &args->d);
}

#else
/* Never run (model.has_prefill). */
NO_PREFILL(embed_wide)
NO_PREFILL(choose_wide)
NO_PREFILL(draw_wide)
NO_PREFILL(gate_wide)
NO_PREFILL(boundary_wide)
#endif

#endif /* QWEN3_TASKS_SERVE_WIDE_H */
