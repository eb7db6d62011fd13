/* What tests of the decoder share: a run and its outcome, and a plain decoder in double precision
   to compare with. */
#ifndef TEST_QWEN3_PLAIN_H
#define TEST_QWEN3_PLAIN_H

#include "../../examples/qwen3/session.h"

/* The tokens and logits of a run; to be freed. */
typedef struct outcome {
    int32_t *generated;
    float *logits;
    uint32_t counts[MAX_SEQUENCES];
    uint32_t steps;       /* that had rows */
    uint32_t prompt_rows; /* in all of them */
    uint32_t pages;       /* that have users */
    uint32_t shared;      /* that have several */
    char error[ERROR_BYTES];
} outcome;

static outcome run(const model *m, session_desc d, const request *requests, uint32_t n)
{
    outcome o;
    session s;
    const size_t tokens = (size_t)n * d.steps, logits = tokens * m->config.vocab;
    memset(&o, 0, sizeof o);
    d.keep_logits = 1;
    o.generated = (int32_t *)calloc(tokens, sizeof *o.generated);
    o.logits = (float *)calloc(logits, sizeof *o.logits);
    if (session_open(&s, m, &d, requests, n) ||
        fleet_device_clear(s.d.logits, logits * sizeof *o.logits, NULL) ||
        fleet_device_clear(s.d.generated, tokens * sizeof *o.generated, NULL) || session_run(&s) ||
        fleet_to_host(o.logits, s.d.logits, logits * sizeof *o.logits, NULL))
        snprintf(o.error, sizeof o.error, "%s", s.error[0] ? s.error : "?");
    else {
        session_generated(&s, o.generated, o.counts);
        for (uint32_t i = 0; i < s.d.rounds; i++)
            if (s.last[i].steps > o.steps) o.steps = s.last[i].steps;
        o.prompt_rows = session_prompt_rows(&s);
        o.pages = s.pages.taken, o.shared = page_table_shared(&s.pages);
    }
    session_free(&s);
    return o;
}
static void outcome_free(outcome *o)
{
    free(o->generated);
    free(o->logits);
}

/* ---- a plain decoder ---- */

/* Of a tensor of bf16 or float32. */
static double at(const qwen3_tensor *x, uint32_t row, uint32_t column)
{
    const size_t i = (size_t)row * x->columns + column;
    uint16_t word;
    float f;
    if (x->dtype == QWEN3_F32) {
        memcpy(&f, x->data + i * 4, sizeof f);
        return (double)f;
    }
    memcpy(&word, x->data + i * 2, sizeof word);
    return (double)float_of_bf16(word);
}
static void product(const qwen3_tensor *w, const double *x, double *y)
{
    for (uint32_t r = 0; r < w->rows; r++) {
        y[r] = 0;
        for (uint32_t c = 0; c < w->columns; c++) y[r] += at(w, r, c) * x[c];
    }
}
static void normed(const qwen3_tensor *w, const double *x, double *y, double eps)
{
    double sum = 0;
    for (uint32_t i = 0; i < w->columns; i++) sum += x[i] * x[i];
    for (uint32_t i = 0; i < w->columns; i++)
        y[i] = x[i] / sqrt(sum / w->columns + eps) * at(w, 0, i);
}
static void turned(const qwen3_config *c, double *x, uint32_t position)
{
    const uint32_t half = c->head_dim / 2;
    for (uint32_t i = 0; i < half; i++) {
        const double angle = position * pow(c->rope_theta, -2.0 * i / c->head_dim), a = x[i],
                     b = x[i + half];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + half] = b * cos(angle) + a * sin(angle);
    }
}

#define PLAIN_MAX 1024 /* of any width */
typedef struct plain_cache {
    double *k, *v; /* [layers][positions][kv_heads * head_dim] */
} plain_cache;

static void plain_mlp(const qwen3_tensor *gate, const qwen3_tensor *up, const qwen3_tensor *down,
                      const double *x, double weight, double *h)
{
    double g[PLAIN_MAX], u[PLAIN_MAX], y[PLAIN_MAX];
    product(gate, x, g);
    product(up, x, u);
    for (uint32_t i = 0; i < gate->rows; i++) g[i] = g[i] / (1 + exp(-g[i])) * u[i];
    product(down, g, y);
    for (uint32_t i = 0; i < down->rows; i++) h[i] += weight * y[i];
}

/* One token through all layers; its logits. */
static void plain_step(const qwen3_checkpoint *p, plain_cache *cache, uint32_t positions,
                       uint32_t position, uint32_t token, double *logits)
{
    const qwen3_config *c = &p->config;
    const uint32_t dim = c->head_dim, kv = c->kv_heads * dim, group = c->heads / c->kv_heads;
    double h[PLAIN_MAX], x[PLAIN_MAX], q[PLAIN_MAX], y[PLAIN_MAX], score[PLAIN_MAX];
    for (uint32_t i = 0; i < c->hidden; i++) h[i] = at(&p->embed, token, i);
    for (uint32_t n = 0; n < c->layers; n++) {
        const qwen3_layer_weights *l = &p->layers[n];
        double *keys = cache->k + (size_t)n * positions * kv,
               *values = cache->v + (size_t)n * positions * kv;
        normed(&l->input_norm, h, x, c->norm_eps);
        product(&l->q, x, q);
        product(&l->k, x, keys + (size_t)position * kv);
        product(&l->v, x, values + (size_t)position * kv);
        for (uint32_t i = 0; i < c->heads; i++)
            normed(&l->q_norm, q + i * dim, q + i * dim, c->norm_eps),
                turned(c, q + i * dim, position);
        for (uint32_t i = 0; i < c->kv_heads; i++) {
            double *k = keys + (size_t)position * kv + i * dim;
            normed(&l->k_norm, k, k, c->norm_eps);
            turned(c, k, position);
        }
        for (uint32_t i = 0; i < c->heads; i++) {
            double sum = 0;
            for (uint32_t j = 0; j < dim; j++) y[i * dim + j] = 0;
            for (uint32_t s = 0; s <= position; s++) {
                score[s] = 0;
                for (uint32_t j = 0; j < dim; j++)
                    score[s] += q[i * dim + j] * keys[(size_t)s * kv + i / group * dim + j];
                score[s] = exp(score[s] / sqrt(dim));
                sum += score[s];
            }
            for (uint32_t s = 0; s <= position; s++)
                for (uint32_t j = 0; j < dim; j++)
                    y[i * dim + j] += score[s] / sum * values[(size_t)s * kv + i / group * dim + j];
        }
        product(&l->o, y, x);
        for (uint32_t i = 0; i < c->hidden; i++) h[i] += x[i];
        normed(&l->post_norm, h, x, c->norm_eps);
        if (!l->sparse) {
            plain_mlp(&l->gate, &l->up, &l->down, x, 1, h);
        } else {
            double chosen = 0, all = 0;
            uint32_t best[MAX_TOP_K];
            product(&l->router, x, score);
            for (uint32_t e = 0; e < c->experts; e++) score[e] = exp(score[e]), all += score[e];
            for (uint32_t j = 0; j < c->experts_per_token; j++) {
                best[j] = c->experts;
                for (uint32_t e = 0; e < c->experts; e++) {
                    uint32_t taken = 0;
                    for (uint32_t k = 0; k < j; k++) taken |= best[k] == e;
                    if (!taken && (best[j] == c->experts || score[e] > score[best[j]])) best[j] = e;
                }
                chosen += score[best[j]];
            }
            for (uint32_t j = 0; j < c->experts_per_token; j++)
                plain_mlp(&l->expert_gate[best[j]], &l->expert_up[best[j]],
                          &l->expert_down[best[j]], x,
                          score[best[j]] / (c->norm_topk ? chosen : all), h);
        }
    }
    normed(&p->norm, h, x, c->norm_eps);
    product(&p->head, x, logits);
}

#endif
