/* Reads expected.json, which lies beside a small checkpoint and says what a known good decoder makes of it:

       {"cases": [{"prompt": [1, 2], "greedy": [3, 4], "top2_margin": [0.5, 0.25],
                   "checks": [{"step": 0, "logits_first16": [16 numbers], "logsumexp": 7.5}]}]}

   `greedy` are the tokens after the prompt, each the one with the largest logit; top2_margin[i] is how far that logit is
   above the second largest when greedy[i] is chosen: where it is small, another order of additions may choose
   another token. A check has what was computed at that step. Other fields are ignored. Checked against the model's
   config, errors as in checkpoint.h. */
#ifndef QWEN3_EXPECTED_H
#define QWEN3_EXPECTED_H

#include "checkpoint.h"

#define QWEN3_CHECKED_LOGITS 16u

typedef struct qwen3_check {
    uint32_t step; /* below greedy_count */
    double logits[QWEN3_CHECKED_LOGITS];
    double logsumexp;
} qwen3_check;

typedef struct qwen3_case {
    uint32_t *prompt, *greedy;           /* token ids, of the vocabulary */
    double *top2_margin;                 /* [greedy_count] */
    qwen3_check *checks;                 /* may be none */
    uint32_t prompt_count, greedy_count; /* each at least 1, together at most config.positions */
    uint32_t check_count;
} qwen3_case;

typedef struct qwen3_expected {
    qwen3_case *cases;
    uint32_t count; /* at least 1 */
} qwen3_expected;

/* `path` is a folder with an expected.json, or such a file. -1: the error says why, and nothing is held. */
static inline int qwen3_expected_read(qwen3_expected *expected, const qwen3_config *config,
                                      const char *path, char *error, size_t error_size);

/* Closing twice is harmless. */
static inline void qwen3_expected_close(qwen3_expected *expected);

/* The same of text in memory. */
static inline int qwen3_parse_expected(qwen3_expected *expected, const qwen3_config *config,
                                       const char *text, size_t size, const char *file, char *error,
                                       size_t error_size);

/* ---- qwen3 expected: implementation ---------------------------------------------------------------- */

/* An array of at least one token, in memory of its own. */
static inline int qwen3_read_tokens(const qwen3_source *s, const qwen3_config *config, json_t *o,
                                    const char *name, uint32_t **out, uint32_t *out_count)
{
    const qwen3_value tokens = qwen3_field(o, name);
    size_t count = 0, i;
    if (qwen3_array(s, &tokens, 1, config->positions, &count)) return -1;
    *out = (uint32_t *)calloc(count, sizeof **out);
    if (!*out) return qwen3_no_memory(s);
    *out_count = (uint32_t)count;
    for (i = 0; i < count; i++) {
        const qwen3_value token = qwen3_item(&tokens, i);
        if (qwen3_count(s, &token, 0, config->vocab - 1, &(*out)[i])) return -1;
    }
    return 0;
}

/* An array of `count` numbers. */
static inline int qwen3_read_numbers(const qwen3_source *s, json_t *o, const char *name,
                                     double least, size_t count, double *out)
{
    const qwen3_value numbers = qwen3_field(o, name);
    size_t i;
    if (qwen3_array(s, &numbers, count, count, &i)) return -1;
    for (i = 0; i < count; i++) {
        const qwen3_value number = qwen3_item(&numbers, i);
        if (qwen3_number(s, &number, least, 1e30, &out[i])) return -1;
    }
    return 0;
}

static inline int qwen3_read_checks(qwen3_case *c, qwen3_source s, json_t *o)
{
    const qwen3_value checks = qwen3_field(o, "checks");
    const char *of = s.within;
    size_t count = 0, i;
    if (qwen3_array(&s, &checks, 0, c->greedy_count, &count)) return -1;
    c->checks = (qwen3_check *)calloc(count + 1, sizeof *c->checks);
    if (!c->checks) return qwen3_no_memory(&s);
    c->check_count = (uint32_t)count;
    for (i = 0; i < count; i++) {
        const qwen3_value check = qwen3_item(&checks, i);
        qwen3_value step, sum;
        char where[100];
        s.within = of;
        if (qwen3_object(&s, &check)) return -1;
        snprintf(where, sizeof where, "%s.%s", of, check.name);
        s.within = where;
        step = qwen3_field(check.json, "step");
        sum = qwen3_field(check.json, "logsumexp");
        if (qwen3_count(&s, &step, 0, c->greedy_count - 1, &c->checks[i].step) ||
            qwen3_read_numbers(&s, check.json, "logits_first16", -1e30, QWEN3_CHECKED_LOGITS,
                               c->checks[i].logits) ||
            qwen3_number(&s, &sum, -1e30, 1e30, &c->checks[i].logsumexp))
            return -1;
    }
    return 0;
}

static inline int qwen3_read_case(qwen3_case *c, const qwen3_source *s, const qwen3_config *config,
                                  json_t *o)
{
    if (qwen3_read_tokens(s, config, o, "prompt", &c->prompt, &c->prompt_count) ||
        qwen3_read_tokens(s, config, o, "greedy", &c->greedy, &c->greedy_count))
        return -1;
    if (c->greedy_count > config->positions - c->prompt_count)
        return qwen3_fail(s, "greedy: %u tokens after %u are more than max_position_embeddings, %u",
                          c->greedy_count, c->prompt_count, config->positions);
    c->top2_margin = (double *)calloc(c->greedy_count, sizeof *c->top2_margin);
    if (!c->top2_margin) return qwen3_no_memory(s);
    if (qwen3_read_numbers(s, o, "top2_margin", 0, c->greedy_count, c->top2_margin)) return -1;
    return qwen3_read_checks(c, *s, o);
}

static inline int qwen3_read_cases(qwen3_expected *e, qwen3_source s, const qwen3_config *config,
                                   json_t *o)
{
    const qwen3_value cases = qwen3_field(o, "cases");
    size_t count = 0, i;
    if (qwen3_array(&s, &cases, 1, 100000, &count)) return -1;
    e->cases = (qwen3_case *)calloc(count, sizeof *e->cases);
    if (!e->cases) return qwen3_no_memory(&s);
    e->count = (uint32_t)count;
    for (i = 0; i < count; i++) {
        const qwen3_value one = qwen3_item(&cases, i);
        s.within = NULL;
        if (qwen3_object(&s, &one)) return -1;
        s.within = one.name;
        if (qwen3_read_case(&e->cases[i], &s, config, one.json)) return -1;
    }
    return 0;
}

static inline void qwen3_expected_close(qwen3_expected *e)
{
    uint32_t i;
    for (i = 0; i < e->count; i++) {
        free(e->cases[i].prompt);
        free(e->cases[i].greedy);
        free(e->cases[i].top2_margin);
        free(e->cases[i].checks);
    }
    free(e->cases);
    memset(e, 0, sizeof *e);
}

static inline int qwen3_parse_expected(qwen3_expected *e, const qwen3_config *config,
                                       const char *text, size_t size, const char *file, char *error,
                                       size_t error_size)
{
    const qwen3_source s = qwen3_source_of(file, error, error_size);
    json_t *o = qwen3_json(&s, text, size);
    int failed;
    memset(e, 0, sizeof *e);
    if (!o) return -1;
    failed = qwen3_read_cases(e, s, config, o);
    json_decref(o);
    if (failed) qwen3_expected_close(e);
    return failed;
}

static inline int qwen3_expected_read(qwen3_expected *e, const qwen3_config *config,
                                      const char *path, char *error, size_t error_size)
{
    const char *name;
    qwen3_bytes text;
    int failed;
    memset(e, 0, sizeof *e);
    if (qwen3_map_usual(&text, &name, path, "expected.json", error, error_size)) return -1;
    failed =
        qwen3_parse_expected(e, config, (const char *)text.at, text.size, name, error, error_size);
    qwen3_unmap(&text);
    return failed;
}

#endif
