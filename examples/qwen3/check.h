/* check.h: compares a decoder with the expected tokens and logits of a small checkpoint.

   The reference (expected.h) computes in float32 throughout, as the CPU backend does: there each token must be as expected.
   GPUs round the inputs of their matrix units to bf16 (decoder.h), which may turn a choice between two nearly equal tokens,
   and then everything that follows. So they are fed the reference's tokens, and their own choice must be right wherever
   the reference's best two tokens are not too close. */
#ifndef QWEN3_CHECK_H
#define QWEN3_CHECK_H

#include "expected.h"
#include "session.h"

#if defined(FLEET_HOST)
#define CHECK_FED 0
#define CHECK_MARGIN 0.0
#define CHECK_LOGITS 2e-3
#else
#define CHECK_FED 1
#define CHECK_MARGIN 0.05
#define CHECK_LOGITS 6e-2
#endif

typedef struct checked { /* counts add up over calls */
    uint32_t tokens, right, near_ties, wrong, logits;
    double worst;            /* largest difference of a logit, or of the log-sum-exp */
    char first[128];         /* the first wrong token */
    char error[ERROR_BYTES]; /* why a run failed, */
    int failed;              /* and its status, RUN_... */
} checked;

static int checked_is_good(const checked *c)
{
    return c->tokens && c->logits && !c->wrong && c->worst <= CHECK_LOGITS;
}

static void check_difference(checked *c, double is, double expected)
{
    const double off = fabs(is - expected);
    if (!(off <= c->worst)) c->worst = off; /* also if NaN */
}

static void check_tokens(checked *c, const qwen3_case *e, const int32_t *generated, uint32_t count)
{
    for (uint32_t t = 0; t < e->greedy_count; t++) {
        const int32_t is = t < count ? generated[t] : -1;
        c->tokens++;
        if (is == (int32_t)e->greedy[t]) {
            c->right++;
        } else if (e->top2_margin[t] < CHECK_MARGIN) {
            c->near_ties++;
        } else if (!c->wrong++) {
            snprintf(c->first, sizeof c->first,
                     "token %u after a prompt of %u: %d, expected %u (margin %.4f)", t,
                     e->prompt_count, is, e->greedy[t], e->top2_margin[t]);
        }
    }
}

/* logits: [greedy_count][vocab] */
static void check_logits(checked *c, const qwen3_case *e, const float *logits, uint32_t vocab)
{
    for (uint32_t k = 0; k < e->check_count; k++) {
        const float *is = logits + (size_t)e->checks[k].step * vocab;
        double max = -INFINITY, sum = 0;
        for (uint32_t v = 0; v < QWEN3_CHECKED_LOGITS && v < vocab; v++) {
            check_difference(c, (double)is[v], e->checks[k].logits[v]);
            c->logits++;
        }
        for (uint32_t v = 0; v < vocab; v++) max = fmax(max, (double)is[v]);
        for (uint32_t v = 0; v < vocab; v++) sum += exp((double)is[v] - max);
        check_difference(c, max + log(sum), e->checks[k].logsumexp);
    }
}

/* Runs n cases as one batch. The reference is a model that was cast to bf16 as a whole and then
   widened, which also rounds RoPE's frequencies. -1: it did not run, c->error says why. */
static int check_cases(const model *m, const session_desc *desc, const qwen3_case *cases,
                       uint32_t n, checked *c)
{
    request requests[MAX_SEQUENCES];
    session s;
    session_desc d = *desc;
    int32_t *generated;
    float *logits;
    uint32_t counts[MAX_SEQUENCES];
    const uint32_t vocab = m->config.vocab;
    int bad = 0;
    if (n > MAX_SEQUENCES) {
        snprintf(c->error, sizeof c->error, "%u cases, at most %u", n, MAX_SEQUENCES);
        c->failed = RUN_REFUSED;
        return -1;
    }
    d.steps = d.context = 0, d.keep_logits = 1, d.rope_bf16 = 1;
    memset(requests, 0, sizeof requests);
    for (uint32_t i = 0; i < n; i++) {
        const qwen3_case *e = &cases[i];
        requests[i].prompt = e->prompt, requests[i].n_prompt = e->prompt_count;
        requests[i].steps = e->greedy_count;
        if (CHECK_FED) requests[i].forced = e->greedy, requests[i].n_forced = e->greedy_count;
        if (e->greedy_count > d.steps) d.steps = e->greedy_count;
    }
    for (uint32_t i = 0; i < n; i++)
        if (cases[i].prompt_count + cases[i].greedy_count - 1 > d.context)
            d.context = cases[i].prompt_count + cases[i].greedy_count - 1;
    generated = (int32_t *)malloc((size_t)n * d.steps * sizeof *generated);
    logits = (float *)malloc((size_t)n * d.steps * vocab * sizeof *logits);
    bad = session_open(&s, m, &d, requests, n);
    if (!bad &&
        (session_run(&s) || !generated || !logits ||
         fleet_to_host(logits, s.d.logits, (size_t)n * d.steps * vocab * sizeof *logits, NULL)))
        bad = RUN_FAILED;
    if (bad) snprintf(c->error, sizeof c->error, "%s", s.error[0] ? s.error : "out of memory");
    c->failed = bad;
    if (!bad) session_generated(&s, generated, counts);
    for (uint32_t i = 0; i < n && !bad; i++) {
        check_tokens(c, &cases[i], generated + (size_t)i * d.steps, counts[i]);
        check_logits(c, &cases[i], logits + (size_t)i * d.steps * vocab, vocab);
    }
    free(generated);
    free(logits);
    session_free(&s);
    return bad ? -1 : 0;
}

#endif /* QWEN3_CHECK_H */
