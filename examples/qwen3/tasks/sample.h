/* tasks/sample.h: greedy sampling, and the end of a step. The head's epilogue keeps the largest logit of each worker's columns (argmax_...); `next`
   reduces them over all workers, appends the tokens, and prepares the next step. A sequence with a temperature has drawn its
   token before (draw.h). */
#ifndef QWEN3_TASKS_SAMPLE_H
#define QWEN3_TASKS_SAMPLE_H

#include "backend.h"

/* Maps infinities and NaN to infinity, so that such a logit wins and `next` finds it. x - x is 0 or
   NaN; a comparison would occupy two scalar registers on AMD. */
FLEET_DEVICE float nan_to_inf(float x)
{
    return fminf(x + (x - x), INFINITY);
}
/* The order of logits: the larger one, of equal ones the first token's. */
FLEET_DEVICE uint32_t is_better(float a, int32_t a_token, float b, int32_t b_token)
{
    return a > b || (a == b && a_token < b_token);
}

/* Whether a sequence draws its tokens at random. */
FLEET_DEVICE uint32_t draws(const decoder *d, uint32_t sequence)
{
    return d->sampling && d->sampling[sequence].temperature > 0;
}
/* Where the logits of a sequence's next token are stored. */
FLEET_DEVICE size_t logits_at(const decoder *d, uint32_t sequence)
{
    const sequence_state *s = sequence_of(d->b, sequence);
    const uint32_t step = (uint32_t)s->generated;
    return ((size_t)s->output * d->logit_steps + (step < d->logit_steps ? step : 0)) * d->vocab;
}

/* Whether row r, of this sequence, chooses its token. */
FLEET_DEVICE uint32_t chooses(const decoder *d, uint32_t sequence, uint32_t r)
{
    const sequence_state *s = sequence_of(d->b, sequence);
    return s->samples && r + 1 == (uint32_t)(s->first + s->rows);
}
/* Whether the logits of a sequence's next token are stored. */
FLEET_DEVICE uint32_t stores_logits(const decoder *d, uint32_t sequence)
{
    return d->logits && (d->logit_steps > 1 || !d->sampling || draws(d, sequence));
}

/* Marks the rows that choose a token, by 1, and by 2 those whose logits are stored, too. */
FLEET_DEVICE void argmax_begin(const fleet_ctx *ctx, const decoder *d, const linear_lds *l,
                               uint32_t rows)
{
    for (uint32_t i = ctx->thread; i < rows * ARGMAX_LANES; i += ctx->threads)
        l->best[i] = -INFINITY, l->best_token[i] = 0;
    for (uint32_t r = ctx->thread; r < rows; r += ctx->threads) {
        const uint32_t n = (uint32_t)d->b->row[r].sequence;
        l->chooses[r] = (int32_t)chooses(d, n, r);
        if (l->chooses[r] && stores_logits(d, n)) l->chooses[r] = 2;
    }
}
FLEET_DEVICE void argmax_columns(const fleet_ctx *ctx, const decoder *d, const linear_lds *l,
                                 uint32_t column, uint32_t columns, uint32_t rows)
{
    const uint32_t first = tile_row_of(l);
    for (uint32_t i = ctx->thread; i < rows * ARGMAX_LANES; i += ctx->threads) {
        const uint32_t r = i / ARGMAX_LANES, at = first * ARGMAX_LANES + i;
        float best = l->best[at];
        int32_t token = l->best_token[at];
        if (!l->chooses[first + r]) continue;
        for (uint32_t c = i % ARGMAX_LANES; c < columns; c += ARGMAX_LANES) {
            const float logit = nan_to_inf(l->sums[(c / TILE_N * rows + r) * TILE_N + c % TILE_N] *
                                           l->scale[first + r]);
            if (is_better(logit, (int32_t)(column + c), best, token))
                best = logit, token = (int32_t)(column + c);
        }
        l->best[at] = best, l->best_token[at] = token;
    }
    for (uint32_t i = ctx->thread; d->logits && i < rows * columns; i += ctx->threads) {
        const uint32_t r = i / columns, c = i % columns;
        if (l->chooses[first + r] == 2)
            d->logits[logits_at(d, (uint32_t)d->b->row[first + r].sequence) + column + c] =
                l->sums[(c / TILE_N * rows + r) * TILE_N + c % TILE_N] * l->scale[first + r];
    }
}
FLEET_DEVICE void argmax_end(const fleet_ctx *ctx, const decoder *d, const linear_lds *l,
                             uint32_t rows)
{
    for (uint32_t r = ctx->thread; r < rows; r += ctx->threads) {
        const uint32_t to = (ctx->slice * d->workers + ctx->tile_index) * MAX_ROWS + r;
        uint32_t best = r * ARGMAX_LANES;
        for (uint32_t i = best + 1; i < (r + 1) * ARGMAX_LANES; i++)
            if (is_better(l->best[i], l->best_token[i], l->best[best], l->best_token[best]))
                best = i;
        d->best[to] = l->best[best], d->best_token[to] = l->best_token[best];
    }
}

/* ---- the end of a step ---- */

/* Loads of a thread that are in flight at once: of the batch, and of logits. */
#define BATCH_LOADS 12u
#define BEST_LOADS 8u

/* Copies a batch from or to memory, with all threads. All loads are issued before the first store, since one worker copies
   it, and latency counts. */
#define BATCH_WORDS ((uint32_t)sizeof(batch) / 4)
FLEET_DEVICE void copy_batch(const fleet_ctx *ctx, batch *to, const batch *from)
{
    const uint32_t *words = (const uint32_t *)(const void *)from;
    for (uint32_t i = ctx->thread; i < BATCH_WORDS; i += ctx->threads * BATCH_LOADS) {
        uint32_t some[BATCH_LOADS];
        UNROLLED
        for (uint32_t k = 0; k < BATCH_LOADS; k++) {
            const uint32_t at = i + k * ctx->threads;
            some[k] = words[at < BATCH_WORDS ? at : i];
        }
        UNROLLED
        for (uint32_t k = 0; k < BATCH_LOADS; k++)
            if (i + k * ctx->threads < BATCH_WORDS)
                ((uint32_t *)(void *)to)[i + k * ctx->threads] = some[k];
    }
    fleet_barrier(ctx);
}

/* The LDS of the task that ends a step. */
typedef struct ending_lds {
    /* [ENDING_BESTS]: largest logits, and their tokens; after reduce_best those of row r are in
       entry r % ENDING_BESTS */
    float *best;
    int32_t *token;
    batch *b; /* a copy, of all */
} ending_lds;
#define ENDING_BESTS 256u /* threads, and rows that choose, at most */
typedef char threads_have_an_entry[THREADS <= ENDING_BESTS && MAX_ROWS <= ENDING_BESTS ? 1 : -1];
FLEET_DEVICE ending_lds ending_lds_of(const fleet_ctx *ctx)
{
    ending_lds l;
    l.best = (float *)(void *)task_lds(ctx);
    l.token = (int32_t *)(l.best + ENDING_BESTS);
    l.b = (batch *)(void *)(l.token + ENDING_BESTS);
    return l;
}

/* Finds the largest logit of each of n rows, of what all workers have found, of as many as `apart` rows each: as many threads
   share a row as there are, a power of two. Neighbouring threads have neighbouring rows. */
FLEET_DEVICE void reduce_best(const fleet_ctx *ctx, const decoder *d, const ending_lds *l,
                              uint32_t n, const uint32_t apart)
{
    /* A server's step may have no rows: then the first one is reduced, and ignored. */
    const uint32_t rows = n ? n : 1, all = d->chiplets * d->workers;
    uint32_t lanes = 1;
    while (2 * lanes * rows <= ctx->threads) lanes *= 2;
    for (uint32_t i = ctx->thread; i < rows * lanes; i += ctx->threads) {
        const uint32_t lane = i / rows, r = i - lane * rows;
        float best = -INFINITY;
        int32_t which = 0;
        for (uint32_t first = lane; first < all; first += lanes * BEST_LOADS) {
            float of[BEST_LOADS];
            int32_t its[BEST_LOADS];
            UNROLLED
            for (uint32_t k = 0; k < BEST_LOADS; k++) {
                const uint32_t w = first + k * lanes < all ? first + k * lanes : first;
                of[k] = d->best[w * apart + r], its[k] = d->best_token[w * apart + r];
            }
            UNROLLED
            for (uint32_t k = 0; k < BEST_LOADS; k++)
                if (is_better(of[k], its[k], best, which)) best = of[k], which = its[k];
        }
        l->best[i] = best, l->token[i] = which;
    }
    for (lanes /= 2; lanes; lanes /= 2) {
        const uint32_t half = lanes * rows;
        fleet_barrier(ctx); /* what is joined now is in LDS */
        for (uint32_t i = ctx->thread; i < half; i += ctx->threads)
            if (is_better(l->best[i + half], l->token[i + half], l->best[i], l->token[i]))
                l->best[i] = l->best[i + half], l->token[i] = l->token[i + half];
    }
    fleet_barrier(ctx);
}

/* Chooses the token of sequence n, whose last row samples. Returns where it and its logit are in LDS; a logit of
   INFINITY: one of its logits is not finite. */
FLEET_DEVICE uint32_t choose_token(const decoder *d, const ending_lds *l, uint32_t n)
{
    const sequence_state *s = sequence_of(l->b, n);
    const uint32_t i = (uint32_t)(s->first + s->rows - 1) % ENDING_BESTS;
    if (draws(d, n) && l->best[i] != INFINITY) l->token[i] = d->drawn[n];
    return i;
}

/* batch_arrange by all threads, after a barrier and before one. */
FLEET_DEVICE void arrange_batch(const fleet_ctx *ctx, const decoder *d, batch *b)
{
    batch_rows(b, ctx->thread, ctx->threads);
    fleet_barrier(ctx); /* the number of rows is in LDS, */
    batch_split(b, batch_split_blocks(b, d->kv_heads, b->workers), d->max_splits, ctx->thread,
                ctx->threads);
    fleet_barrier(ctx); /* and the splits of each sequence */
    batch_list(b, d->kv_heads, ctx->thread, ctx->threads);
}

/* Finds the sequence whose logits are not finite. By one thread. */
FLEET_DEVICE void report_bad(const ending_lds *l)
{
    batch *b = l->b;
    for (uint32_t n = 0; n < b->sequences; n++) {
        const sequence_state *s = &b->sequence[n];
        const uint32_t i = (uint32_t)(s->first + s->rows - 1);
        if (s->rows && s->samples && l->best[i] == INFINITY)
            b->bad_sequence = 1 + n, b->bad_token = l->token[i];
    }
}

/* Ends the launch when no batch has rows, if it is not one of several ranks. rows: of the batch of this round. */
FLEET_DEVICE fleet_status end_step(const fleet_ctx *ctx, const decoder *d, uint32_t rows)
{
    const batch *all = d->b - d->round;
    for (uint32_t i = 0; i < d->rounds; i++)
        if (i != d->round) rows |= all[i].rows;
    return rows || d->peers.ranks > 1 ? FLEET_OK : fleet_finish(ctx);
}

/* Chooses the token of each sequence that has one in this step, and the rows of the next step. Ends
   the launch when no rows are left, if it is not one of several ranks. One task. */
FLEET_TILE(next, task_args)
{
    const decoder *d = &args->d;
    const ending_lds l = ending_lds_of(&ctx);
    batch *b = l.b;
    uint32_t decodes;
    FLEET_UNUSED(at);
    copy_batch(&ctx, b, d->b);
    /* The launch before has ended all sequences (prefill.h), or failed. Ranks run all steps. */
    if (b->bad_sequence) return FLEET_ERROR_ARGUMENT;
    if (b->rows == 0) return end_step(&ctx, d, 0);
    reduce_best(&ctx, d, &l, b->rows, MAX_ROWS);
    for (uint32_t n = ctx.thread; n < b->sequences; n += ctx.threads) {
        sequence_state *s = &b->sequence[n];
        uint32_t chosen;
        if (!s->rows) continue;
        s->position += s->rows;
        if (!s->samples) continue;
        chosen = choose_token(d, &l, n);
        if (l.best[chosen] == INFINITY) lds_add(&b->bad_sequence, 1);
        s->last = l.token[chosen];
        d->generated[n * d->limit + (uint32_t)s->generated++] = s->last;
        if (s->position < s->known) continue;
        for (uint32_t e = 0; e < b->n_eos; e++)
            if (s->last == b->eos[e]) s->limit = s->generated;
    }
    decodes = b->decodes;
    fleet_barrier(&ctx); /* the sequences have their positions and tokens after this step */
    if (ctx.thread == 0) b->steps++;
    if (b->bad_sequence) {
        if (ctx.thread == 0) report_bad(&l);
    } else {
        if (decodes)
            batch_choose_decoding(b, ctx.thread, ctx.threads);
        else if (ctx.thread == 0)
            batch_choose(b, MAX_ROWS);
        fleet_barrier(&ctx); /* the sequences have the rows of the next step */
        arrange_batch(&ctx, d, b);
        batch_pages(b, d->page_table, d->table_pages, ctx.thread, ctx.threads);
        batch_tokens(b, d->tokens, d->context + 1, ctx.thread, ctx.threads);
    }
    fleet_barrier(&ctx); /* the batch is complete */
    copy_batch(&ctx, d->b, b);
    if (HAS_RANKS && ctx.thread == 0 && d->round + 1 == d->rounds)
        d->generated[b->sequences * d->limit] = (int32_t)b->steps;
    if (b->bad_sequence) return FLEET_ERROR_ARGUMENT;
    return end_step(&ctx, d, b->rows);
}

#endif /* QWEN3_TASKS_SAMPLE_H */
