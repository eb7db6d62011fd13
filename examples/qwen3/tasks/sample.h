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
    const sequence_state *s = &d->b->sequence[sequence];
    const uint32_t step = (uint32_t)s->generated;
    return ((size_t)s->output * d->logit_steps + (step < d->logit_steps ? step : 0)) * d->vocab;
}

/* Marks the rows that choose a token, by 1, and by 2 those whose logits are stored, too. */
FLEET_DEVICE void argmax_begin(const fleet_ctx *ctx, const decoder *d, const linear_lds *l,
                               uint32_t rows)
{
    for (uint32_t i = ctx->thread; i < rows * ARGMAX_LANES; i += ctx->threads)
        l->best[i] = -INFINITY, l->best_token[i] = 0;
    for (uint32_t r = ctx->thread; r < rows; r += ctx->threads) {
        const uint32_t n = (uint32_t)d->b->row[r].sequence;
        const sequence_state *s = &d->b->sequence[n];
        l->chooses[r] = s->samples && r + 1 == (uint32_t)(s->first + s->rows);
        if (l->chooses[r] && d->logits && (d->logit_steps > 1 || !d->sampling || draws(d, n)))
            l->chooses[r] = 2;
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

/* Copies a batch from or to memory, with all threads. */
FLEET_DEVICE void copy_batch(const fleet_ctx *ctx, batch *to, const batch *from)
{
    const uint32_t *words = (const uint32_t *)(const void *)from;
    for (uint32_t i = ctx->thread; i < sizeof(batch) / 4; i += ctx->threads)
        ((uint32_t *)(void *)to)[i] = words[i];
    fleet_barrier(ctx);
}

/* The LDS of the task that ends a step. */
typedef struct ending_lds {
    float *best; /* [MAX_ROWS][LANES_PER_ROW]: largest logits, and their tokens */
    int32_t *token;
    batch *b; /* a copy */
} ending_lds;
FLEET_DEVICE ending_lds ending_lds_of(const fleet_ctx *ctx)
{
    ending_lds l;
    l.best = (float *)(void *)task_lds(ctx);
    l.token = (int32_t *)(l.best + MAX_ROWS * LANES_PER_ROW);
    l.b = (batch *)(void *)(l.token + MAX_ROWS * LANES_PER_ROW);
    return l;
}

/* Finds the largest logit of each row: LANES_PER_ROW threads reduce those of all workers. */
FLEET_DEVICE void reduce_best(const fleet_ctx *ctx, const decoder *d, const ending_lds *l)
{
    for (uint32_t i = ctx->thread; i < l->b->rows * LANES_PER_ROW; i += ctx->threads) {
        const uint32_t r = i / LANES_PER_ROW;
        float best_logit = -INFINITY;
        int32_t which = 0;
        for (uint32_t w = i % LANES_PER_ROW; w < d->chiplets * d->workers; w += LANES_PER_ROW) {
            const uint32_t from = w * MAX_ROWS + r;
            if (is_better(d->best[from], d->best_token[from], best_logit, which))
                best_logit = d->best[from], which = d->best_token[from];
        }
        l->best[i] = best_logit, l->token[i] = which;
    }
    fleet_barrier(ctx);
}

/* Chooses the token of sequence n, whose last row samples. Returns where it and its logit are in LDS; a logit of
   INFINITY: one of its logits is not finite. */
FLEET_DEVICE uint32_t choose_token(const decoder *d, const ending_lds *l, uint32_t n)
{
    const sequence_state *s = &l->b->sequence[n];
    const uint32_t i = (uint32_t)(s->first + s->rows - 1) * LANES_PER_ROW;
    for (uint32_t j = i + 1; j < i + LANES_PER_ROW; j++)
        if (is_better(l->best[j], l->token[j], l->best[i], l->token[i]))
            l->best[i] = l->best[j], l->token[i] = l->token[j];
    if (draws(d, n) && l->best[i] != INFINITY) l->token[i] = d->drawn[n];
    return i;
}

/* Chooses the token of each sequence that has one in this step, and the rows of the next step. Ends
   the launch when no rows are left, if it is not one of several ranks. One task. */
FLEET_TILE(next, task_args)
{
    const decoder *d = &args->d;
    const ending_lds l = ending_lds_of(&ctx);
    batch *b = l.b;
    FLEET_UNUSED(at);
    copy_batch(&ctx, b, d->b);
    /* The launch before has ended all sequences (prefill.h), or failed. Ranks run all steps. */
    if (b->bad_sequence) return FLEET_ERROR_ARGUMENT;
    if (b->rows == 0) return d->peers.ranks > 1 ? FLEET_OK : fleet_finish(&ctx);
    reduce_best(&ctx, d, &l);
    for (uint32_t n = ctx.thread; n < b->sequences; n += ctx.threads) {
        sequence_state *s = &b->sequence[n];
        if (!s->rows) continue;
        s->position += s->rows;
        if (!s->samples) continue;
        s->last = l.token[choose_token(d, &l, n)];
        d->generated[n * d->limit + (uint32_t)s->generated++] = s->last;
        if (s->position < s->known) continue;
        for (uint32_t e = 0; e < b->n_eos; e++)
            if (s->last == b->eos[e]) s->limit = s->generated;
    }
    fleet_barrier(&ctx);
    if (ctx.thread == 0) {
        b->steps++;
        for (uint32_t n = 0; n < b->sequences; n++) {
            const sequence_state *s = &b->sequence[n];
            const uint32_t i = (uint32_t)(s->first + s->rows - 1) * LANES_PER_ROW;
            if (s->rows && s->samples && l.best[i] == INFINITY)
                b->bad_sequence = 1 + n, b->bad_token = l.token[i];
        }
        batch_next(b, MAX_ROWS, d->max_splits, d->kv_heads, b->workers);
    }
    fleet_barrier(&ctx);
    batch_pages(b, d->page_table, d->table_pages, ctx.thread, ctx.threads);
    batch_tokens(b, d->tokens, d->context + 1, ctx.thread, ctx.threads);
    fleet_barrier(&ctx);
    copy_batch(&ctx, d->b, b);
    if (HAS_RANKS && ctx.thread == 0) d->generated[b->sequences * d->limit] = (int32_t)b->steps;
    if (b->bad_sequence) return FLEET_ERROR_ARGUMENT;
    return b->rows || d->peers.ranks > 1 ? FLEET_OK : fleet_finish(&ctx);
}

#endif /* QWEN3_TASKS_SAMPLE_H */
