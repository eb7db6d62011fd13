/* tasks/draw.h: random sampling. Each sequence with a temperature draws its token from the softmax of its logits, divided by
   the temperature and filtered. One workgroup draws for one sequence. In a server it does first
   what the request asks of its logits (shape.h), which may have the most probable token then.

   The filters come in the order of Hugging Face's and vLLM's samplers, each on what the ones before it have left:
       top_k   the k most probable tokens
       top_p   the smallest set of the most probable tokens whose probabilities add up to p or more
       min_p   tokens at least min_p times as probable as the most probable one
   Tokens of equal probability stay or go together. Where temperature is 0 the most probable token is chosen (sample.h).

   How     A token's distance is how far its logit, over the temperature, is below the largest: an integer with
           DISTANCE_BITS of fraction, so that its weight, exp(-distance), is one, too. All filters are bounds on the
           distance. threshold_of finds them digit by digit, with sums per digit in LDS; since sums of integers do not
           depend on their order, neither do the bounds. Where the first digit leaves few tokens, they are listed in LDS,
           and the logits are not read again.
   Chance  The token with the largest -distance - log(e) is drawn, where e is a random number of the exponential
           distribution (the Gumbel-max trick); each token has a number of its own. It comes from Philox 4x32-10, whose
           key is the seed, and whose counter is the token, the position and the stream of the sequence. So what is drawn
           depends on the sequence alone, neither on its neighbours in the batch nor on the schedule. */
#ifndef QWEN3_TASKS_DRAW_H
#define QWEN3_TASKS_DRAW_H

#include "shape.h"

/* ---- random numbers ---- */

typedef struct philox {
    uint32_t word[4];
} philox;

/* Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011). */
FLEET_DEVICE philox philox_4x32(philox counter, uint64_t key)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    ROLLED
    for (uint32_t round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xd2511f53u * counter.word[0],
                       b = (uint64_t)0xcd9e8d57u * counter.word[2];
        counter.word[0] = (uint32_t)(b >> 32) ^ counter.word[1] ^ k0;
        counter.word[2] = (uint32_t)(a >> 32) ^ counter.word[3] ^ k1;
        counter.word[1] = (uint32_t)b, counter.word[3] = (uint32_t)a;
        k0 += 0x9e3779b9u, k1 += 0xbb67ae85u;
    }
    return counter;
}

/* -log of an exponential random number. Small ones matter, since they win: u near 0 has all its bits. */
FLEET_DEVICE float gumbel(uint32_t random)
{
    const float u = fminf(((float)random + 0.5f) * (1.0f / 4294967296.0f), 0.99999994f);
    return -logf(-log1pf(-u));
}

/* ---- distances ---- */

#define DISTANCE_BITS 26u
#define MAX_DISTANCE UINT32_MAX /* 64: such a token is never drawn, but counts for top_k */
#define WEIGHT_ONE 2147483648.0f

#define DIGIT_BITS 8u
#define DIGIT_BINS (1u << DIGIT_BITS)
#define MAX_LISTED 1024u

typedef struct draw_lds { /* one base address: scalar registers are scarce */
    float best[ENDING_BESTS];
    int32_t best_token[ENDING_BESTS];
    uint32_t low[DIGIT_BINS], high[DIGIT_BINS]; /* sums of 64 bits, in two halves */
    uint32_t listed;                            /* tokens that were to be listed */
    uint32_t distance[MAX_LISTED];              /* theirs */
    int32_t token[MAX_LISTED];
} draw_lds;
typedef char draw_fits_lds[sizeof(draw_lds) <= LINEAR_LDS_BYTES ? 1 : -1];

/* The tokens that may still be drawn: all, or those in LDS. */
typedef struct draw_row {
    const float *logits;
    float max, scale; /* the largest logit; 1 / temperature */
    uint32_t count, is_listed;
} draw_row;

FLEET_DEVICE uint32_t distance_of_logit(const draw_row *r, float logit)
{
    /* The maximum may have been rounded otherwise: never negative. */
    const float distance = fmaxf(r->max - logit, 0) * r->scale;
    return distance < 63.99f ? (uint32_t)(distance * (float)(1u << DISTANCE_BITS)) : MAX_DISTANCE;
}
FLEET_DEVICE uint32_t distance_at(draw_lds *l, const draw_row *r, uint32_t i)
{
    return r->is_listed ? l->distance[i] : distance_of_logit(r, r->logits[i]);
}
FLEET_DEVICE float float_of_distance(uint32_t distance)
{
    return (float)distance * (1.0f / (float)(1u << DISTANCE_BITS));
}

/* ---- filters ---- */

/* Lists the tokens up to a distance, in any order, if they are few. */
FLEET_DEVICE void list_tokens(const fleet_ctx *ctx, draw_lds *l, draw_row *r, uint32_t limit)
{
    if (ctx->thread == 0) l->listed = 0;
    fleet_barrier(ctx);
    for (uint32_t i = ctx->thread; i < r->count; i += ctx->threads) {
        const uint32_t distance = distance_of_logit(r, r->logits[i]);
        if (distance <= limit) {
            const uint32_t at = lds_add(&l->listed, 1);
            if (at < MAX_LISTED) l->distance[at] = distance, l->token[at] = (int32_t)i;
        }
    }
    fleet_barrier(ctx); /* the list is complete */
    if (l->listed <= MAX_LISTED) r->count = l->listed, r->is_listed = 1;
}

/* Adds up what the tokens up to `limit` have, by the digit of their distance above `below`; of higher digits only `prefix`
   counts. */
FLEET_DEVICE void fill_bins(const fleet_ctx *ctx, draw_lds *l, const draw_row *r, uint32_t limit,
                            uint32_t below, uint32_t prefix, uint32_t weighs)
{
    for (uint32_t i = ctx->thread; i < DIGIT_BINS; i += ctx->threads) l->low[i] = l->high[i] = 0;
    fleet_barrier(ctx); /* the bins are empty */
    for (uint32_t i = ctx->thread; i < r->count; i += ctx->threads) {
        const uint32_t distance = distance_at(l, r, i), digits = distance >> below,
                       bin = digits % DIGIT_BINS;
        uint32_t weight = 1;
        if (distance > limit || digits / DIGIT_BINS != prefix) continue;
        if (weighs) weight = (uint32_t)(WEIGHT_ONE * fast_exp(-float_of_distance(distance)));
        /* A sum that wraps carries one. */
        if (weight && lds_add(&l->low[bin], weight) > UINT32_MAX - weight)
            lds_add(&l->high[bin], 1);
    }
    fleet_barrier(ctx); /* the bins are full */
}

/* The smallest distance such that the tokens up to it have `target` in all; of tokens beyond `limit` none counts. A token
   has 1, or its weight if `share` is not 0: then the target is that share of all weights. All threads call it, and all
   find the digits. */
FLEET_DEVICE uint32_t threshold_of(const fleet_ctx *ctx, draw_lds *l, draw_row *r, uint32_t limit,
                                   uint64_t target, float share)
{
    uint64_t before = 0; /* of the tokens with smaller digits */
    uint32_t found = 0;
    ROLLED
    for (uint32_t below = 32; below > 0;) {
        uint64_t all = 0, sum = before;
        uint32_t digit = 0;
        below -= DIGIT_BITS;
        fill_bins(ctx, l, r, limit, below, found, share > 0);
        ROLLED
        for (uint32_t i = 0; i < DIGIT_BINS; i++) all += l->low[i] | (uint64_t)l->high[i] << 32;
        if (share > 0 && below == 32 - DIGIT_BITS) target = (uint64_t)((double)share * (double)all);
        ROLLED
        for (uint32_t i = 0; i < DIGIT_BINS - 1; i++) {
            sum += l->low[i] | (uint64_t)l->high[i] << 32;
            if (sum < target) before = sum, digit = i + 1;
        }
        found = found * DIGIT_BINS + digit;
        fleet_barrier(ctx); /* the bins were read */
        if (below == 32 - DIGIT_BITS && !r->is_listed)
            list_tokens(ctx, l, r, ((found + 1) << below) - 1);
    }
    return found;
}

/* The largest distance that all filters leave. */
FLEET_DEVICE uint32_t filter_row(const fleet_ctx *ctx, draw_lds *l, draw_row *r,
                                 const sampling_desc *s)
{
    uint32_t limit = MAX_DISTANCE;
    if (s->top_k && s->top_k < r->count) limit = threshold_of(ctx, l, r, limit, s->top_k, 0);
    if (s->top_p > 0 && s->top_p < 1) limit = threshold_of(ctx, l, r, limit, 0, s->top_p);
    if (s->min_p > 0) {
        const float most = -logf(s->min_p);
        const uint32_t bound =
            most < 63.99f ? (uint32_t)(most * (float)(1u << DISTANCE_BITS)) : MAX_DISTANCE;
        if (bound < limit) limit = bound;
    }
    return limit;
}

/* ---- the task ---- */

/* The largest logit of a row, from what the workers' epilogues have found of as many as `apart` rows each. */
FLEET_DEVICE float largest_logit(const fleet_ctx *ctx, draw_lds *l, const decoder *d, uint32_t row,
                                 const uint32_t apart)
{
    float best = -INFINITY;
    for (uint32_t w = ctx->thread; w < d->chiplets * d->workers; w += ctx->threads)
        best = fmaxf(best, d->best[w * apart + row]);
    l->best[ctx->thread] = best;
    fleet_barrier(ctx);
    for (uint32_t t = 0; t < ctx->threads; t++) best = fmaxf(best, l->best[t]);
    fleet_barrier(ctx); /* the values were read */
    return best;
}

/* A token of a row, and its logit. */
typedef struct row_best {
    float logit;
    int32_t token;
} row_best;
/* The best one, for all threads, of those that are worse than `than`. */
FLEET_DEVICE row_best row_best_of(const fleet_ctx *ctx, draw_lds *l, const draw_row *r,
                                  row_best than)
{
    row_best best = {-INFINITY, INT32_MAX};
    for (uint32_t i = ctx->thread; i < r->count; i += ctx->threads) {
        const int32_t token = r->is_listed ? l->token[i] : (int32_t)i;
        const float logit = r->logits[token];
        if (is_better(than.logit, than.token, logit, token) &&
            is_better(logit, token, best.logit, best.token))
            best.logit = logit, best.token = token;
    }
    l->best[ctx->thread] = best.logit, l->best_token[ctx->thread] = best.token;
    fleet_barrier(ctx); /* the best token of each thread is in LDS */
    for (uint32_t t = 0; t < ctx->threads; t++)
        if (is_better(l->best[t], l->best_token[t], best.logit, best.token))
            best.logit = l->best[t], best.token = l->best_token[t];
    fleet_barrier(ctx); /* they were read */
    return best;
}

/* Does what the request asks of its logits. 1: its token is chosen. */
FLEET_DEVICE uint32_t shape_row(const fleet_ctx *ctx, draw_lds *l, const decoder *d,
                                uint32_t sequence, draw_row *r)
{
    const request_words words = words_of_sequence(d, sequence);
    row_best best = {INFINITY, -1};
    if (!words.asks) return 0;
    r->logits = shape_logits(ctx, d, sequence, &words, r->logits);
    best = row_best_of(ctx, l, r, best);
    r->max = best.logit;
    if (words.greedy && ctx->thread == 0) d->drawn[sequence] = best.token;
    return words.greedy;
}

/* shapes: 0, the sequence is none of a server; a constant where HAS_SERVER_KERNELS. */
FLEET_DEVICE void draw_token(const fleet_ctx *ctx, const decoder *d, uint32_t sequence,
                             const uint32_t apart, const uint32_t shapes)
{
    const sequence_state *s = sequence_of(d->b, sequence);
    const sampling_desc *how = &d->sampling[sequence];
    draw_lds *l = (draw_lds *)(void *)task_lds(ctx);
    draw_row r;
    float best = -INFINITY;
    int32_t token = INT32_MAX;
    uint32_t limit;
    r.logits = d->logits + logits_at(d, sequence);
    r.count = d->vocab, r.is_listed = 0;
    r.scale = 1 / how->temperature;
    r.max = largest_logit(ctx, l, d, (uint32_t)(s->first + s->rows - 1) % apart, apart);
    if (r.max == INFINITY) return; /* `next` reports it */
    if (shapes && shape_row(ctx, l, d, sequence, &r)) return;
    limit = filter_row(ctx, l, &r, how);
    for (uint32_t i = ctx->thread; i < r.count; i += ctx->threads) {
        const uint32_t distance = distance_at(l, &r, i);
        const int32_t which = r.is_listed ? l->token[i] : (int32_t)i;
        philox random;
        float score;
        if (distance > limit) continue;
        random.word[0] = (uint32_t)which, random.word[1] = (uint32_t)(s->position + s->rows);
        random.word[2] = how->stream, random.word[3] = 0;
        score = gumbel(philox_4x32(random, how->seed).word[0]) - float_of_distance(distance);
        if (is_better(score, which, best, token)) best = score, token = which;
    }
    l->best[ctx->thread] = best, l->best_token[ctx->thread] = token;
    fleet_barrier(ctx); /* the best token of each thread is in LDS */
    if (ctx->thread == 0) {
        for (uint32_t t = 1; t < ctx->threads; t++)
            if (is_better(l->best[t], l->best_token[t], best, token))
                best = l->best[t], token = l->best_token[t];
        d->drawn[sequence] = token;
    }
    fleet_barrier(ctx); /* they were read: the next sequence may overwrite them */
}

/* ---- what requests are told ---- */

/* The logarithm of the sum of the exponentials of all logits. */
FLEET_DEVICE float log_sum_of(const fleet_ctx *ctx, draw_lds *l, const draw_row *r)
{
    float sum = 0;
    for (uint32_t i = ctx->thread; i < r->count; i += ctx->threads)
        sum += fast_exp(r->logits[i] - r->max);
    l->best[ctx->thread] = sum;
    fleet_barrier(ctx); /* the sum of each thread is in LDS */
    sum = 0;
    for (uint32_t t = 0; t < ctx->threads; t++) sum += l->best[t];
    fleet_barrier(ctx); /* they were read */
    return r->max + logf(sum);
}

/* Tells the host how likely the model finds the token that was chosen, and the most likely ones:
   before penalties, biases and temperature. The event of the token, which a later task sends,
   publishes it. */
FLEET_DEVICE void report_choice(const fleet_ctx *ctx, const decoder *d, uint32_t sequence,
                                const uint32_t apart)
{
    const sequence_state *s = sequence_of(d->b, sequence);
    const request_words words = words_of_sequence(d, sequence);
    draw_lds *l = (draw_lds *)(void *)task_lds(ctx);
    row_best next = {INFINITY, -1};
    token_report *to;
    draw_row r;
    float log_sum;
    uint32_t n;
    if (!words.asks || !words.reports) return;
    r.logits = d->logits + logits_at(d, sequence);
    r.count = d->vocab, r.is_listed = 0, r.scale = 1;
    r.max = largest_logit(ctx, l, d, (uint32_t)(s->first + s->rows - 1) % apart, apart);
    if (r.max == INFINITY) return;
    log_sum = log_sum_of(ctx, l, &r);
    to = &d->served->asks[words.asks - 1].reports[(uint32_t)s->generated % REPORTED];
    n = words.reports - 1 < r.count ? words.reports - 1 : r.count;
    if (ctx->thread == 0) /* which has chosen it */
        fleet_store_relaxed_system(&to->own, word_of_float(r.logits[d->drawn[sequence]] - log_sum));
    if (n && n < r.count) { /* lists some more, or reads the whole row for each */
        const uint32_t limit = threshold_of(ctx, l, &r, MAX_DISTANCE, n, 0);
        if (!r.is_listed) list_tokens(ctx, l, &r, limit);
    }
    ROLLED
    for (uint32_t i = 0; i < n; i++) {
        next = row_best_of(ctx, l, &r, next);
        if (ctx->thread != 0) continue;
        fleet_store_relaxed_system(&to->top[i].token, (uint32_t)next.token);
        fleet_store_relaxed_system(&to->top[i].value, word_of_float(next.logit - log_sum));
    }
}

/* Draws the token of each sequence that has a temperature and chooses a token in this step. */
FLEET_DEVICE void draw_tokens(const fleet_ctx *ctx, const decoder *d, const uint32_t apart,
                              const uint32_t shapes)
{
    for (uint32_t n = ctx->slice + ctx->tile_index * ctx->slices; n < d->b->sequences;
         n += ctx->tile_num * ctx->slices)
        if (draws(d, n) && sequence_of(d->b, n)->rows && sequence_of(d->b, n)->samples) {
            draw_token(ctx, d, n, apart, shapes);
            if (shapes) report_choice(ctx, d, n, apart);
        }
}
#if HAS_SERVER_KERNELS
FLEET_TILE(draw, task_args)
{
    FLEET_UNUSED(at);
    draw_tokens(&ctx, &args->d, MAX_ROWS, 0);
    return FLEET_OK;
}
FLEET_TILE(draw_served, task_args)
{
    FLEET_UNUSED(at);
    draw_tokens(&ctx, &args->d, MAX_ROWS, 1);
    return FLEET_OK;
}
#else /* one task for both, so that the kernel has this code once */
FLEET_TILE(draw, task_args)
{
    FLEET_UNUSED(at);
    draw_tokens(&ctx, &args->d, MAX_ROWS, args->d.table != NULL);
    return FLEET_OK;
}
#endif

#endif /* QWEN3_TASKS_DRAW_H */
