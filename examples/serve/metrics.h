/* metrics.h: what the server counts, and its text in the format of Prometheus. The caller has the lock of the counters. */
#ifndef SERVE_METRICS_H
#define SERVE_METRICS_H

#include "engine.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Upper bounds of the buckets of a histogram; one more has no bound. */
static const double metrics_seconds[] = {0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03,
                                         0.1,    0.3,    1,     3,     10,   30};
#define METRICS_BUCKETS (sizeof metrics_seconds / sizeof metrics_seconds[0])

typedef struct histogram {
    uint64_t bucket[METRICS_BUCKETS + 1], count;
    double sum;
} histogram;

/* How a job ended. */
typedef enum job_end { JOB_FINISHED, JOB_CANCELLED, JOB_FAILED, JOB_ENDS } job_end;
static const char *const job_end_names[JOB_ENDS] = {"finished", "cancelled", "failed"};

#define MAX_STATUS 600u

typedef struct metrics {
    uint64_t responses[MAX_STATUS]; /* by status of HTTP */
    uint64_t jobs[JOB_CLASSES][JOB_ENDS];
    uint64_t prompt_tokens, cached_tokens, generated_tokens;
    uint64_t connections, requests; /* open now */
    histogram first_token[JOB_CLASSES], whole[JOB_CLASSES];
} metrics;

static void histogram_add(histogram *h, double seconds)
{
    size_t k = 0;
    while (k < METRICS_BUCKETS && seconds > metrics_seconds[k]) k++;
    h->bucket[k]++, h->count++;
    h->sum += seconds;
}

/* A text that grows; null after memory was short. */
typedef struct metrics_text {
    char *text;
    size_t length, room;
} metrics_text;

static void metrics_line(metrics_text *t, const char *format, ...)
{
    char line[256];
    va_list list;
    size_t n;
    va_start(list, format);
    n = (size_t)vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (n >= sizeof line) n = sizeof line - 1;
    if (t->length + n + 1 > t->room) {
        char *more = t->text || !t->room ? (char *)realloc(t->text, 2 * (t->length + n + 1)) : NULL;
        if (!more) free(t->text);
        t->text = more, t->room = 2 * (t->length + n + 1);
    }
    if (!t->text) return;
    for (size_t i = 0; i <= n; i++) t->text[t->length + i] = line[i];
    t->length += n;
}

static void metrics_head(metrics_text *t, const char *name, const char *type, const char *help)
{
    metrics_line(t, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void metrics_histogram(metrics_text *t, const char *name, const char *help,
                              const histogram *of_class)
{
    metrics_head(t, name, "histogram", help);
    for (uint32_t k = 0; k < JOB_CLASSES; k++) {
        const histogram *h = &of_class[k];
        const char *priority = job_class_names[k];
        uint64_t sum = 0;
        for (size_t i = 0; i < METRICS_BUCKETS; i++)
            metrics_line(t, "%s_bucket{priority=\"%s\",le=\"%g\"} %" PRIu64 "\n", name, priority,
                         metrics_seconds[i], sum += h->bucket[i]);
        metrics_line(t, "%s_bucket{priority=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", name, priority,
                     h->count);
        metrics_line(t, "%s_sum{priority=\"%s\"} %.6f\n", name, priority, h->sum);
        metrics_line(t, "%s_count{priority=\"%s\"} %" PRIu64 "\n", name, priority, h->count);
    }
}

static void metrics_gauge(metrics_text *t, const char *name, const char *help,
                          const uint32_t *of_class)
{
    metrics_head(t, name, "gauge", help);
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        metrics_line(t, "%s{priority=\"%s\"} %u\n", name, job_class_names[k], of_class[k]);
}

/* The caller frees the text; null if memory is short. */
static char *metrics_print(const metrics *m, const engine_load *load)
{
    metrics_text t = {NULL, 0, 0};
    metrics_head(&t, "serve_up", "gauge", "1 while the engine takes requests.");
    metrics_line(&t, "serve_up %u\n", !load->failed);
    metrics_head(&t, "serve_http_responses_total", "counter", "Responses by status.");
    for (uint32_t k = 0; k < MAX_STATUS; k++)
        if (m->responses[k])
            metrics_line(&t, "serve_http_responses_total{code=\"%u\"} %" PRIu64 "\n", k,
                         m->responses[k]);
    metrics_head(&t, "serve_requests_total", "counter",
                 "Requests that were decoded, by their end.");
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        for (uint32_t end = 0; end < JOB_ENDS; end++)
            metrics_line(&t, "serve_requests_total{priority=\"%s\",end=\"%s\"} %" PRIu64 "\n",
                         job_class_names[k], job_end_names[end], m->jobs[k][end]);
    metrics_gauge(&t, "serve_requests_waiting", "Requests in the queues.", load->waiting);
    metrics_gauge(&t, "serve_requests_running", "Requests that are decoded now.", load->running);
    metrics_head(&t, "serve_tokens_total", "counter", "Tokens of prompts, and generated ones.");
    metrics_line(&t, "serve_tokens_total{kind=\"prompt\"} %" PRIu64 "\n", m->prompt_tokens);
    metrics_line(&t, "serve_tokens_total{kind=\"generated\"} %" PRIu64 "\n", m->generated_tokens);
    metrics_head(&t, "serve_cached_tokens_total", "counter",
                 "Tokens of prompts that an earlier one had left computed.");
    metrics_line(&t, "serve_cached_tokens_total %" PRIu64 "\n", m->cached_tokens);
    metrics_head(&t, "serve_connections", "gauge", "Open connections.");
    metrics_line(&t, "serve_connections %" PRIu64 "\n", m->connections);
    metrics_head(&t, "serve_http_requests_open", "gauge",
                 "HTTP requests without a whole response.");
    metrics_line(&t, "serve_http_requests_open %" PRIu64 "\n", m->requests);
    metrics_histogram(&t, "serve_first_token_seconds", "From a request to its first token.",
                      m->first_token);
    metrics_histogram(&t, "serve_request_seconds", "From a request to its end.", m->whole);
    return t.text;
}

#endif /* SERVE_METRICS_H */
