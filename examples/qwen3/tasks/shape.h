/* tasks/shape.h: what a request of a server asks of its logits before a token is chosen, in this
   order:

       repetition  a logit of a token that the prompt or the answer has is divided by the penalty if
                   it is positive, and multiplied by it otherwise
       frequency   is subtracted once for each time that the answer has the token
       presence    is subtracted if the answer has the token
       bias        is added
       min_tokens  until the answer has so many tokens, those that would end it are impossible

   The workgroup that draws the request's token (draw.h) writes the changed logits to a row of their
   own, [served_state.shaped], in which it has counted the tokens before. Requests that ask nothing
   pay one comparison. */
#ifndef QWEN3_TASKS_SHAPE_H
#define QWEN3_TASKS_SHAPE_H

#include "serve.h"

#define IN_PROMPT 0x80000000u /* of a token's count in the answer */

FLEET_DEVICE request_words words_of_sequence(const decoder *d, uint32_t sequence)
{
    fleet_row row;
    request_words words;
    row.slot = sequence_of(d->b, sequence)->table_row;
    row.generation = row.position = 0, row.kind = FLEET_ROW_DECODE;
    memcpy(&words, fleet_row_words(d->table, row), sizeof words);
    return words;
}

FLEET_HOST_DEVICE uint32_t has_penalties(const request_words *w)
{
    return w->repetition != 1 || w->presence != 0 || w->frequency != 0;
}
FLEET_DEVICE uint32_t delays_end(const request_words *w, const sequence_state *s)
{
    return (uint32_t)s->generated < w->min_tokens;
}

/* Counts in `row` how often the answer has each token, and marks those of the prompt. */
FLEET_DEVICE void count_tokens(const fleet_ctx *ctx, const decoder *d, const sequence_state *s,
                               const request_words *w, uint32_t *row)
{
    const uint32_t generated = (uint32_t)s->generated, prompt = (uint32_t)s->prompt;
    int32_t *history = d->served->history + (size_t)(w->asks - 1) * d->context;
    for (uint32_t i = ctx->thread; i < d->vocab; i += ctx->threads) row[i] = 0;
    fleet_barrier(ctx); /* the row is empty */
    for (uint32_t i = ctx->thread; w->repetition != 1 && i < prompt; i += ctx->threads)
        fleet_store_relaxed_device(&row[token_at(d, s, (int32_t)i)], IN_PROMPT);
    fleet_barrier(ctx); /* tokens of the prompt are marked; several threads may mark the same one */
    for (uint32_t i = ctx->thread; i < generated; i += ctx->threads) {
        const int32_t token = i + 1 < generated ? history[i] : s->last;
        if (i + 1 == generated) history[i] = token;
        fleet_add_relaxed_device(&row[token], 1);
    }
    fleet_barrier(ctx); /* all are counted */
}

FLEET_DEVICE float penalized(const request_words *w, float logit, uint32_t seen)
{
    const uint32_t count = seen & ~IN_PROMPT;
    if (seen) logit = logit > 0 ? logit / w->repetition : logit * w->repetition;
    if (count) logit = logit - w->frequency * (float)count - w->presence;
    return logit;
}

/* The logits by which the token is chosen. By all threads. */
FLEET_DEVICE const float *shape_logits(const fleet_ctx *ctx, const decoder *d, uint32_t sequence,
                                       const request_words *w, const float *logits)
{
    const sequence_state *s = sequence_of(d->b, sequence);
    const request_asks *asks = d->served->asks + (w->asks - 1);
    const uint32_t counts = has_penalties(w), delays = delays_end(w, s);
    const uint32_t biased = fleet_load_relaxed_system(&asks->n_biased),
                   delayed = delays ? fleet_load_relaxed_system(&asks->n_delayed) : 0;
    uint32_t *row = d->served->shaped + (size_t)sequence * d->vocab;
    float *shaped = (float *)(void *)row;
    if (!counts && !biased && !delayed) return logits;
    if (counts) count_tokens(ctx, d, s, w, row);
    for (uint32_t i = ctx->thread; i < d->vocab; i += ctx->threads) {
        const float logit = counts ? penalized(w, logits[i], row[i]) : logits[i];
        memcpy(row + i, &logit, sizeof logit);
    }
    fleet_barrier(ctx); /* penalties have been applied */
    for (uint32_t i = ctx->thread; i < biased; i += ctx->threads) {
        const uint32_t token = fleet_load_relaxed_system(&asks->biased[i].token),
                       bias = fleet_load_relaxed_system(&asks->biased[i].value);
        shaped[token] += float_of_word(bias);
    }
    fleet_barrier(ctx); /* biases were added */
    for (uint32_t i = ctx->thread; i < delayed; i += ctx->threads)
        shaped[fleet_load_relaxed_system(&asks->delayed[i])] = -INFINITY;
    fleet_barrier(ctx); /* the logits are complete */
    return shaped;
}

#endif /* QWEN3_TASKS_SHAPE_H */
