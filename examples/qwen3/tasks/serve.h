/* tasks/serve.h: the decoder in a launch that stays. The scheduler of parts/fleet_server.h chooses the rows of each
   step; two tasks connect it with the decoder's batch.

   boundary   The last task of a step: tells the scheduler the tokens that the step has chosen, lets it compose the next
              batch, and lays out its rows. While there is nothing to do it waits.
   gate       Between two layers: lets the scheduler suspend rows, and lays out the rows of the layers that follow if they
              are others.

   Groups     A batch has decode rows, a sequence each, and after them the chunk of one prompt. Each of these two groups
              runs in all layers, unless a gate suspends it: then it goes on with that layer in a later step. The rows of a
              layer are those of the groups that it has, without gaps, so that no other task knows of this.
              A server with long chunks has other places for its rows, and parks otherwise
              (serve_wide.h).
   Parking    A group that stops leaves its activations in decoder.parked_..., and gets them back where it goes on: for
              decode rows and for a chunk of each class there is room. */
#ifndef QWEN3_TASKS_SERVE_H
#define QWEN3_TASKS_SERVE_H

#include "../../parts/fleet_server.h"
#include "../kv_pages.h"
#include "sample.h"

#define GROUP_DECODE 1u
#define GROUP_CHUNK 2u

#define LIVE 0u /* the symbol's number (graph.h): 1, or 0 where the rest of a step has no rows */

/* What a request says beside its prompt (fleet_request.words). One that asks something (shape.h)
   has a temperature, even if it draws nothing, so that its logits are stored. */
typedef struct request_words {
    sampling_desc sampling;
    uint32_t ignore_eos;
    uint32_t output; /* where all its logits are stored, if they are kept */
    uint32_t asks;   /* 1 + its entry in served_state.asks and .history; 0: it asks nothing, and the
                        rest has no meaning */
    uint32_t greedy; /* 1: it has the most probable token, whatever `sampling` says */
    uint32_t min_tokens;
    uint32_t reports; /* 0: nothing of probabilities; 1 + as many of the most likely tokens */
    float repetition; /* 1: no penalty; of tokens of the prompt, too */
    float presence, frequency;
} request_words;
#define REQUEST_WORDS ((uint32_t)(sizeof(request_words) / 4))

/* ---- the rows of a layer ---- */

FLEET_DEVICE uint32_t groups_of(const fleet_batch *from, uint32_t layer)
{
    const uint32_t decode =
        from->decode_rows && layer >= from->decode_begin && layer < from->decode_end;
    const uint32_t chunk =
        from->chunk_rows && layer >= from->chunk_begin && layer < from->chunk_end;
    return (decode ? GROUP_DECODE : 0) | (chunk ? GROUP_CHUNK : 0);
}
/* Whether a group goes on in a later layer of this step. */
FLEET_DEVICE uint32_t has_later_groups(const fleet_batch *from, uint32_t layer)
{
    return (from->decode_rows && from->decode_begin > layer &&
            from->decode_begin < from->decode_end) ||
           (from->chunk_rows && from->chunk_begin > layer && from->chunk_begin < from->chunk_end);
}
/* The first row of a group in a layer that has these groups. */
FLEET_DEVICE uint32_t first_row_of(const fleet_batch *from, uint32_t groups, uint32_t group)
{
    return group == GROUP_CHUNK && groups & GROUP_DECODE ? from->decode_rows : 0;
}

/* Sequence n of the layer; the last one has the chunk. */
FLEET_DEVICE void fill_sequence(const decoder *d, batch *b, const fleet_batch *from, uint32_t layer,
                                uint32_t n)
{
    const uint32_t is_chunk = n == first_row_of(from, b->groups, GROUP_CHUNK);
    const fleet_row row = fleet_batch_row(from, is_chunk ? from->decode_rows : n, layer);
    const fleet_slot *slot = fleet_table_slot(d->table, row.slot);
    sequence_state *s = sequence_of(b, n);
    request_words words;
    memcpy(&words, fleet_row_words(d->table, row), sizeof words);
    s->prompt = s->known = (int32_t)slot->prompt_tokens;
    s->position = (int32_t)row.position, s->rows = is_chunk ? (int32_t)from->chunk_rows : 1;
    s->generated = (int32_t)slot->generated, s->limit = (int32_t)slot->max_tokens;
    s->last = (int32_t)slot->token;
    s->table_row = row.slot;
    s->shared = 0, s->source = (int32_t)n;
    s->output = d->logit_steps > 1 ? words.output : n;
    if (d->sampling) d->sampling[n] = words.sampling;
}

/* Tells which sequences the batch has in a layer. By all threads; b is in LDS. A barrier has to follow. */
FLEET_DEVICE void arrange_sequences(const fleet_ctx *ctx, const decoder *d, batch *b,
                                    const fleet_batch *from, uint32_t layer)
{
    const uint32_t groups = groups_of(from, layer);
    fleet_barrier(ctx); /* the threads have read what changes now */
    if (ctx->thread == 0) {
        b->row_layers += (uint64_t)b->rows * (layer - b->since_layer);
        b->since_layer = layer;
        b->groups = groups;
        b->sequences =
            (groups & GROUP_DECODE ? from->decode_rows : 0) + (groups & GROUP_CHUNK ? 1 : 0);
    }
    fleet_barrier(ctx); /* the number of sequences is in LDS, */
    for (uint32_t n = ctx->thread; n < b->sequences; n += ctx->threads)
        fill_sequence(d, b, from, layer, n);
}

/* The token of a position of a sequence. */
FLEET_DEVICE int32_t token_at(const decoder *d, const sequence_state *s, int32_t position)
{
    fleet_row known;
    known.slot = s->table_row, known.generation = 0;
    known.position = (uint32_t)position, known.kind = FLEET_ROW_CHUNK;
    return position < s->known ? (int32_t)fleet_row_token(d->table, known) : s->last;
}

/* Lays out the rows that the batch has in a layer, likewise. */
FLEET_DEVICE void arrange_layer(const fleet_ctx *ctx, const decoder *d, batch *b,
                                const fleet_batch *from, uint32_t layer)
{
    arrange_sequences(ctx, d, b, from, layer);
    fleet_barrier(ctx); /* and the sequences, */
    arrange_batch(ctx, d, b);
    fleet_barrier(ctx); /* and their rows */
    for (uint32_t r = ctx->thread; r < b->rows; r += ctx->threads) {
        token_row *row = &b->row[r];
        const sequence_state *s = &b->sequence[row->sequence];
        row->page = pages_of(d, s->table_row)[(uint32_t)row->position / PAGE_TOKENS];
        row->token = token_at(d, s, row->position);
    }
    fleet_barrier(ctx);
}

/* ---- parking ---- */

#define VEC4_ACTS ((uint32_t)(sizeof(vec4) / sizeof(act_t))) /* activations of a vec4 */
/* Loads of a thread: one worker copies all, and the others wait for it. */
#define PARKED_IN_FLIGHT 16u

/* Copies n floats, by all threads; park_vectors: n is a multiple of 4, and both begin at one. Loads past the end repeat the last
   one. */
FLEET_DEVICE void park_vectors(const fleet_ctx *ctx, float *to, const float *from, uint32_t n)
{
    for (uint32_t i = ctx->thread; i < n / 4; i += PARKED_IN_FLIGHT * ctx->threads) {
        vec4 some[PARKED_IN_FLIGHT];
        UNROLLED
        for (uint32_t k = 0; k < PARKED_IN_FLIGHT; k++) {
            const uint32_t at = i + k * ctx->threads;
            some[k] = load_vec4(from + (size_t)(at < n / 4 ? at : n / 4 - 1) * 4);
        }
        UNROLLED
        for (uint32_t k = 0; k < PARKED_IN_FLIGHT; k++)
            if (i + k * ctx->threads < n / 4)
                store_vec4(to + (size_t)(i + k * ctx->threads) * 4, some[k]);
    }
}
FLEET_DEVICE void park_floats(const fleet_ctx *ctx, float *to, const float *from, uint32_t n)
{
    for (uint32_t i = ctx->thread; i < n; i += PARKED_IN_FLIGHT * ctx->threads) {
        float some[PARKED_IN_FLIGHT];
        UNROLLED
        for (uint32_t k = 0; k < PARKED_IN_FLIGHT; k++) {
            const uint32_t at = i + k * ctx->threads;
            some[k] = from[at < n ? at : n - 1];
        }
        UNROLLED
        for (uint32_t k = 0; k < PARKED_IN_FLIGHT; k++)
            if (i + k * ctx->threads < n) to[i + k * ctx->threads] = some[k];
    }
}

/* Copies the activations of `rows` rows: from the working rows from `first` on to the parked ones from `parked` on, or
   back. A thread copies the same values both times. */
FLEET_DEVICE void park_rows(const fleet_ctx *ctx, const decoder *d, uint32_t first, uint32_t parked,
                            uint32_t rows, uint32_t back)
{
    const uint32_t vectors = d->hidden / VEC4_ACTS, tiles = d->hidden / TILE_N;
    const uint32_t step = PARKED_IN_FLIGHT * ctx->threads;
    float *h = d->h + (size_t)first * d->hidden, *squares = d->squares + (size_t)first * tiles;
    float *parked_h = d->parked_h + (size_t)parked * d->hidden;
    float *parked_squares = d->parked_squares + (size_t)parked * tiles;
    park_vectors(ctx, back ? h : parked_h, back ? parked_h : h, rows * d->hidden);
    park_floats(ctx, back ? squares : parked_squares, back ? parked_squares : squares,
                rows * tiles);
    for (uint32_t term = 0; term <= d->two_terms; term++) {
        act_t *x = d->x + (size_t)term * MAX_ROWS * d->hidden;
        act_t *parked_x = d->parked_x + ((size_t)term * PARKED_ROWS + parked) * d->hidden;
        for (uint32_t i = ctx->thread; i < rows * vectors; i += step) {
            vec4 some[PARKED_IN_FLIGHT];
            float *to[PARKED_IN_FLIGHT];
            UNROLLED
            for (uint32_t k = 0; k < PARKED_IN_FLIGHT; k++) {
                const uint32_t n = i + k * ctx->threads;
                const uint32_t at = n < rows * vectors ? n : rows * vectors - 1, r = at / vectors;
                void *here = x + act_at(first + r, (at - r * vectors) * VEC4_ACTS, d->hidden);
                void *there = parked_x + (size_t)at * VEC4_ACTS;
                some[k] = load_vec4((const float *)(back ? there : here));
                to[k] = (float *)(back ? here : there);
            }
            UNROLLED
            for (uint32_t k = 0; k < PARKED_IN_FLIGHT; k++)
                if (i + k * ctx->threads < rows * vectors) store_vec4(to[k], some[k]);
        }
    }
}

/* Takes the activations of each group to where its rows are now; `back`: the second half, after a barrier. */
FLEET_DEVICE void move_groups(const fleet_ctx *ctx, const decoder *d, const fleet_batch *from,
                              uint32_t before, uint32_t now, uint32_t back)
{
    for (uint32_t group = GROUP_DECODE; group <= GROUP_CHUNK; group *= 2) {
        const uint32_t was = first_row_of(from, before, group), is = first_row_of(from, now, group);
        const uint32_t parked = group == GROUP_DECODE ? 0 : MAX_ROWS * (1 + from->chunk_class);
        if (before & now & group && was == is) continue;
        if ((back ? now : before) & group)
            park_rows(ctx, d, back ? is : was, parked,
                      group == GROUP_DECODE ? from->decode_rows : from->chunk_rows, back);
    }
    fleet_barrier(ctx);
}

/* ---- the tasks ---- */

/* All workers wait for a gate, and weights stream past the caches meanwhile, so that what it loads and the code that it
   runs come from memory. Therefore the boundary, and a gate that has changed something, say what the gates after it have
   to look at. */
#define GATES_ASK 0u /* they ask the scheduler */
#define GATES_QUIET                                                                                \
    1u /* the same, but only if the host has news: else their rows are those before */
#define GATES_CLOSED 2u /* nothing: the rest of the step has no rows */

/* After a decision about a layer. By one thread. */
FLEET_DEVICE void set_gates(const decoder *d, const fleet_batch *from, uint32_t layer,
                            uint32_t groups)
{
    gate_state gates;
    gates.news = fleet_table_news(d->table, &gates.seen);
    gates.kind = has_later_groups(from, layer) ? GATES_ASK : groups ? GATES_QUIET : GATES_CLOSED;
    d->served->gates = gates;
}
FLEET_DEVICE uint32_t gate_asks(const decoder *d)
{
    const gate_state gates = d->served->gates;
    return gates.kind == GATES_ASK ||
           (gates.kind == GATES_QUIET && fleet_load_relaxed_system(gates.news) != gates.seen);
}

/* Before a layer. */

/* Asks the scheduler. The groups that the layer has now. */
FLEET_DEVICE uint32_t ask_scheduler(const fleet_ctx *ctx, const decoder *d, uint32_t layer)
{
    const fleet_batch *from = fleet_table_batch(d->table, 0, ctx->epoch);
    uint32_t now;
    fleet_server_between(ctx, d->table, 0, layer);
    now = groups_of(from, layer);
    if (ctx->thread == 0) set_gates(d, from, layer, now);
    return now;
}
/* Where no group is left, now or later, the rest of the step is passed over. */
FLEET_DEVICE fleet_status pass_over(const fleet_ctx *ctx, const decoder *d, uint32_t layer,
                                    uint32_t now)
{
    if (now || has_later_groups(fleet_table_batch(d->table, 0, ctx->epoch), layer)) return FLEET_OK;
    return fleet_cut_symbol(ctx, LIVE, 0);
}
OUTLINED fleet_status suspend_rows(const fleet_ctx *ctx, const decoder *d, uint32_t layer)
{
    const ending_lds l = ending_lds_of(ctx);
    const fleet_batch *from = fleet_table_batch(d->table, 0, ctx->epoch);
    const uint32_t now = ask_scheduler(ctx, d, layer), before = d->b->groups;
    if (before == now) return FLEET_OK;
    copy_batch(ctx, l.b, d->b);
    move_groups(ctx, d, from, before, now, 0);
    move_groups(ctx, d, from, before, now, 1);
    arrange_layer(ctx, d, l.b, from, layer);
    copy_batch(ctx, d->b, l.b);
    return pass_over(ctx, d, layer, now);
}
/* Whether the gate has to ask; for all threads, of which one looks. */
FLEET_DEVICE uint32_t gate_opens(const fleet_ctx *ctx, const decoder *d)
{
    uint32_t *asks = (uint32_t *)(void *)task_lds(ctx);
    if (ctx->thread == 0) *asks = gate_asks(d);
    fleet_barrier(ctx); /* one thread has looked, for all */
    return *asks;
}
FLEET_TILE(gate, task_args)
{
    FLEET_UNUSED(at);
    if (!gate_opens(&ctx, &args->d)) return FLEET_OK;
    return suspend_rows(&ctx, &args->d, args->layer);
}

/* The token of sequence n, whose last row samples, for the scheduler. By one thread. */
FLEET_DEVICE void report_token(const fleet_ctx *ctx, const decoder *d, const ending_lds *l,
                               const fleet_batch *from, uint32_t n)
{
    const uint32_t chosen = choose_token(d, l, n), token = (uint32_t)l->token[chosen];
    const uint32_t i = n == first_row_of(from, l->b->groups, GROUP_CHUNK) ? from->decode_rows : n;
    uint32_t result = FLEET_RESULT_MORE;
    request_words words;
    memcpy(&words, fleet_row_words(d->table, fleet_batch_row(from, i, d->layers - 1)),
           sizeof words);
    for (uint32_t e = 0; e < l->b->n_eos && !words.ignore_eos; e++)
        if ((int32_t)token == l->b->eos[e]) result = FLEET_RESULT_END;
    if (l->best[chosen] == INFINITY)
        fleet_row_result(d->table, 0, ctx->epoch, i, FLEET_RESULT_FAIL, FLEET_ERROR_TILE);
    else
        fleet_row_result(d->table, 0, ctx->epoch, i, result, token);
}

/* After reduce_best: tells the scheduler the tokens, and lets it compose the next batch. */
FLEET_DEVICE fleet_status next_batch(const fleet_ctx *ctx, const decoder *d, const ending_lds *l)
{
    const fleet_batch *from = fleet_table_batch(d->table, 0, ctx->epoch);
    fleet_status status;
    /* By the wave that reads the results. */
    if (ctx->thread < fleet_wave_size()) {
        for (uint32_t n = ctx->thread; n < l->b->sequences; n += fleet_wave_size())
            if (sequence_of(l->b, n)->samples) report_token(ctx, d, l, from, n);
        fleet_wave_barrier();
    }
    if (ctx->thread == 0) {
        l->b->steps += l->b->rows != 0;
        l->b->row_layers += (uint64_t)l->b->rows * (d->layers - l->b->since_layer);
        l->b->since_layer = 0, l->b->rows = 0;
    }
    status = fleet_server_next(ctx, d->table, 0);
    if (status) return status;
    from = fleet_table_batch(d->table, 0, ctx->epoch + 1);
    if (ctx->thread == 0) set_gates(d, from, 0, groups_of(from, 0));
    return FLEET_OK;
}

/* After a step. */
OUTLINED fleet_status compose_step(const fleet_ctx *ctx, const decoder *d)
{
    const ending_lds l = ending_lds_of(ctx);
    const fleet_batch *next = fleet_table_batch(d->table, 0, ctx->epoch + 1);
    fleet_status status;
    copy_batch(ctx, l.b, d->b);
    reduce_best(ctx, d, &l, l.b->rows, MAX_ROWS);
    status = next_batch(ctx, d, &l);
    if (status) return status;
    arrange_layer(ctx, d, l.b, next, 0);
    copy_batch(ctx, d->b, l.b);
    return fleet_next_symbol(ctx, LIVE, next->decode_rows || next->chunk_rows);
}
FLEET_TILE(boundary, task_args)
{
    FLEET_UNUSED(at);
    return compose_step(&ctx, &args->d);
}

#endif /* QWEN3_TASKS_SERVE_H */
