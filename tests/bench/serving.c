/* The decoder as a server under load: reactive requests beside proactive ones, under the policies agent and fifo.

       serving MODEL_DIR [--random-weights] [--seconds N] [--shorten N] [--batch N] [--context N] [--seed N] [--mixed N]
               [--chunk N] [--beside N] [--clients N] [--prompt N] [--answer N] [--only KIND]

   Arrivals are Poisson, open loop: a request counts from the time at which it was due. Prompts and answers have lognormal
   lengths: reactive ones with medians of 1/16 and 1/32 of the context, proactive ones with 1/4 and 1/16, all with a sigma
   of 0.8, cut to what fits. Both policies get the same trace. Prints a row for each run, tab-separated; serving.py makes
   tables and plots of them, and serving.sh builds and runs both.

   decode    N requests that decode together, all with the same prompt of 1,000 tokens or half of the context: time of a
             step. The same step of the one-shot program: tests/bench/qwen3.sh. By the least and the most the scheduler
             then predicts how long an iteration takes; a line for each policy says how wrong it was
   first     a request with such a prompt at a time: time to its first token
   alone     --clients requests of --prompt and --answer tokens at once, by the device's clock,
             which a simulated GPU has, too: from the first batch to the last one's first token, and
             its time per token after that
   clients   N clients with one request each at a time, four times, all of the same length: tokens a second, and mean and
             99th percentile of the time to the first token and of the time per token, in milliseconds
   load      mixes of 1 reactive request for 2 proactive ones, at utilisations of 0.3 to 1.5 of the rate that was measured
             with all requests there at once
   growth    the same reactive requests beside proactive ones at 4 and 10 twelfths of that rate; twice as long
   paper     1, 3, 5 reactive beside 6 proactive requests a minute; 15 minutes, shortened by a factor
   pending   short reactive requests, one at a time, while proactive ones always fill the batch and wait with prompts
   idle      a reactive request at a time: from submission to its first batch, and from a boundary to the host. The clocks
             of host and device are aligned by the tightest bounds of all events; half of their distance is the error */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#define FLEET_IMPLEMENTATION
#include "../../examples/qwen3/serving.h"

#include <pthread.h>

#define MOST 8192u /* requests of a run */

typedef struct options {
    const char *dir, *only;
    uint32_t random_weights, batch, context, seed, mixed, chunk, beside, clients, prompt, answer;
    double seconds, shorten;
} options;

typedef struct arrival {
    double due; /* seconds from the begin of the run */
    fleet_class priority;
    uint32_t prompt, tokens;
} arrival;

typedef struct record {
    arrival a;
    uint64_t id, begun, sent; /* begun, sent: ticks of its first batch, and of its first token */
    uint64_t latest;          /* and of its last one so far */
    double submitted, first, end; /* host's clock; 0: not yet */
    uint32_t n, ended;
} record;

typedef struct policy_totals { /* of the servers of one policy */
    uint32_t iterations, layers_cut, predicted, error_max;
    double error_sum;
} policy_totals;

typedef struct bench {
    options o;
    policy_totals totals[2];
    model m;
    serving s;
    pthread_t thread;
    int bad;
    record *records;
    uint32_t n;
    uint64_t random;
    uint32_t *prompt; /* random tokens */
    uint32_t same_prompts;
    fleet_roofline roofline; /* by two measured steps; all 0 until then */
    /* host's time - device's: no less and no more, in seconds; as far as events say */
    double least, most;
} bench;

/* Whether runs of a kind are asked for. */
static uint32_t wants(const bench *b, const char *kind)
{
    return !b->bad && (!b->o.only || !strcmp(b->o.only, kind));
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double uniform(bench *b)
{
    b->random = b->random * 6364136223846793005u + 1442695040888963407u;
    return ((double)(b->random >> 11) + 0.5) / 9007199254740992.0;
}
static uint32_t lognormal(bench *b, double median, uint32_t most)
{
    const double normal = sqrt(-2 * log(uniform(b))) * cos(6.283185307179586 * uniform(b));
    const double x = median * exp(0.8 * normal);
    return x < 1 ? 1 : x > most ? most : (uint32_t)x;
}

static arrival request_of(bench *b, fleet_class priority)
{
    const uint32_t context = b->o.context, is_reactive = priority == FLEET_REACTIVE;
    arrival a;
    a.due = 0, a.priority = priority;
    a.prompt = lognormal(b, (double)context / (is_reactive ? 16 : 4), context / 2);
    a.tokens = lognormal(b, (double)context / (is_reactive ? 32 : 16), context / 2);
    return a;
}

/* Adds arrivals of a class at `rate` a second. */
static void add_arrivals(bench *b, fleet_class priority, double rate, double seconds)
{
    for (double due = -log(uniform(b)) / rate; due < seconds && b->n < MOST && rate > 0;
         due += -log(uniform(b)) / rate) {
        record *r = &b->records[b->n++];
        memset(r, 0, sizeof *r);
        r->a = request_of(b, priority);
        r->a.due = due;
    }
}
static int by_due(const void *a, const void *b)
{
    const double x = ((const record *)a)->a.due, y = ((const record *)b)->a.due;
    return x < y ? -1 : x > y;
}

/* ---- a run ---- */

static void take_event(bench *b, const fleet_server_event *e, uint32_t *ended)
{
    const double at = now(), tick = (double)e->tick * FLEETI_CLOCK_NS * 1e-9;
    record *r = b->records;
    while (r < b->records + b->n && (r->id != e->id || r->ended)) r++;
    if (r == b->records + b->n) return;
    r->begun = e->begun;
    if (at - tick < b->most) b->most = at - tick;
    if (e->begun && r->submitted - (double)e->begun * FLEETI_CLOCK_NS * 1e-9 > b->least)
        b->least = r->submitted - (double)e->begun * FLEETI_CLOCK_NS * 1e-9;
    if (e->kind == FLEET_EVENT_TOKEN) {
        if (!r->n++) r->first = at, r->sent = e->tick;
        r->latest = e->tick;
        fleet_server_release(&b->s.server, e);
    } else {
        r->end = at, r->ended = 1 + (uint32_t)e->kind;
        *ended += 1;
    }
}

static uint32_t submit(bench *b, record *r)
{
    request_words words;
    fleet_request q;
    fleet_ticket ticket;
    memset(&words, 0, sizeof words);
    words.ignore_eos = 1;
    q.priority = r->a.priority;
    /* mostly other tokens for each request, so that none finds pages of another one */
    q.prompt = b->prompt + (b->same_prompts ? 0 : (size_t)(r - b->records) * 7 % MOST);
    q.prompt_tokens = r->a.prompt, q.max_tokens = r->a.tokens;
    q.words = (const uint32_t *)(const void *)&words;
    r->submitted = now();
    if (fleet_server_submit(&b->s.server, &q, &ticket)) return 0;
    r->id = ticket.id;
    return 1;
}

/* Submits what is due, each class in order, and takes events, until all have ended or `limit` seconds have passed: then
   it cancels the others. Returns the seconds that it took. */
static double run(bench *b, double limit)
{
    const struct timespec pause = {0, 20000};
    const double began = now();
    uint32_t next[2] = {0, 0}, ended = 0, cancelled = 0;
    qsort(b->records, b->n, sizeof *b->records, by_due);
    while (ended < b->n && !b->bad) {
        fleet_server_event e;
        uint32_t busy = 0;
        for (uint32_t k = 0; k < 2; k++)
            for (;;) {
                while (next[k] < b->n && (uint32_t)b->records[next[k]].a.priority != k) next[k]++;
                if (next[k] == b->n) break;
                if (!cancelled && b->records[next[k]].a.due > now() - began) break;
                if (cancelled) {
                    b->records[next[k]++].ended = 1 + FLEET_EVENT_CANCELLED, ended++;
                    continue;
                }
                if (!submit(b, &b->records[next[k]])) break;
                next[k]++;
            }
        while (fleet_server_poll(&b->s.server, &e)) take_event(b, &e, &ended), busy = 1;
        if (!cancelled && now() - began > limit) {
            cancelled = 1;
            for (uint32_t i = 0; i < b->n; i++)
                if (b->records[i].id && !b->records[i].ended)
                    fleet_server_cancel(&b->s.server, b->records[i].id);
        }
#if defined(FLEET_HOST)
        if (!busy) nanosleep(&pause, NULL); /* the processors are the device */
#else
        (void)pause, (void)busy;
#endif
    }
    return now() - began;
}

/* ---- what it took ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
typedef struct figures {
    double mean, p99;
} figures;
static figures figures_of(double *values, uint32_t n)
{
    figures f = {0, 0};
    if (!n) return f;
    qsort(values, n, sizeof *values, by_value);
    for (uint32_t i = 0; i < n; i++) f.mean += values[i] / n;
    f.p99 = values[(n * 99 + 99) / 100 - 1];
    return f;
}

typedef enum measure { PENDING, FIRST_TOKEN, LATENCY } measure;
static figures figures_for(const bench *b, fleet_class priority, measure what, double began)
{
    const double offset = (b->least + b->most) / 2;
    double *values = (double *)malloc(MOST * sizeof *values);
    uint32_t n = 0;
    figures f;
    for (uint32_t i = 0; values && i < b->n; i++) {
        const record *r = &b->records[i];
        const double due = began + r->a.due;
        if (r->a.priority != priority || r->ended != 1 + FLEET_EVENT_FINISHED) continue;
        values[n++] = what == PENDING
                          ? (double)r->begun * FLEETI_CLOCK_NS * 1e-9 + offset - r->submitted
                      : what == FIRST_TOKEN ? r->first - due
                                            : r->end - due;
    }
    f = figures_of(values, n);
    free(values);
    return f;
}

static void print_run(bench *b, const char *kind, const char *policy, double x, double reactive,
                      double proactive, double limit)
{
    const double began = now(), took = run(b, limit);
    uint32_t n[2] = {0, 0}, cut[2] = {0, 0}, tokens[2] = {0, 0};
    figures f[6];
    for (uint32_t i = 0; i < b->n; i++) {
        const record *r = &b->records[i];
        n[r->a.priority]++;
        cut[r->a.priority] += r->ended != 1 + FLEET_EVENT_FINISHED;
        tokens[r->a.priority] += r->n;
    }
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t w = 0; w < 3; w++)
            f[k * 3 + w] = figures_for(b, (fleet_class)k, (measure)w, began);
    printf("%s\t%s\t%.4g\t%.4g\t%.4g\t%u\t%u\t%u\t%u\t%.2f\t%.1f\t%.1f", kind, policy, x,
           60 * reactive, 60 * proactive, n[0], n[1], cut[0], cut[1], took, tokens[0] / took,
           tokens[1] / took);
    for (uint32_t i = 0; i < 6; i++) printf("\t%.3f\t%.3f", 1e3 * f[i].mean, 1e3 * f[i].p99);
    printf("\n");
    fflush(stdout);
}

/* ---- the runs ---- */

static void *launch(void *user)
{
    bench *b = (bench *)user;
    b->bad = serving_run(&b->s);
    return NULL;
}

static int open_server(bench *b, fleet_policy_kind policy, uint32_t decode_rows)
{
    serving_desc d;
    memset(&d, 0, sizeof d);
    d.context = b->o.context, d.decode_rows = decode_rows, d.policy = policy;
    d.mixed_rows = b->o.mixed, d.chunk_rows = b->o.chunk, d.beside_rows = b->o.beside;
    d.suspend_decode = 1;
    d.requests = 8 * decode_rows;
    d.roofline = b->roofline;
    b->least = -1e30, b->most = 1e30;
    if (serving_open(&b->s, &b->m, &d)) {
        fprintf(stderr, "serving: %s\n", b->s.error);
        return -1;
    }
    return pthread_create(&b->thread, NULL, launch, b);
}
static void close_server(bench *b)
{
    fleet_server_stop(&b->s.server, 0);
    pthread_join(b->thread, NULL);
    if (b->bad) fprintf(stderr, "serving: %s\n", b->s.error);
    serving_free(&b->s);
}

/* Requests a second, of which a third is reactive, when all are there at once. */
static double service_rate(bench *b)
{
    uint32_t n = b->o.batch / 2 + 1; /* the first ones warm up */
    double took = 0;
    for (uint32_t again = 0; again < 2; again++, n = 6 * b->o.batch) {
        b->n = 0, b->random = b->o.seed;
        for (uint32_t i = 0; i < n; i++) {
            memset(&b->records[i], 0, sizeof b->records[i]);
            b->records[b->n++].a = request_of(b, i % 3 ? FLEET_PROACTIVE : FLEET_REACTIVE);
        }
        took = run(b, 120);
    }
    return 6 * b->o.batch / took;
}

/* What a run measures; null where it needs nothing. */
typedef struct trace {
    const char *kind;
    double x, reactive, proactive, seconds; /* requests a second */
    uint64_t seed;
} trace;

/* A request at a time. */
static void idle_runs(bench *b, const char *policy, const trace *none)
{
    (void)none;
    const uint32_t n = 200;
    double *wake = (double *)malloc(n * sizeof *wake), *token = (double *)malloc(n * sizeof *token);
    for (uint32_t i = 0; wake && token && i < n && !b->bad; i++) {
        const struct timespec pause = {0, 2000000};
        b->n = 1;
        memset(b->records, 0, sizeof *b->records);
        b->records->a.priority = FLEET_REACTIVE, b->records->a.prompt = 1 + i % 8;
        b->records->a.tokens = 1;
        nanosleep(&pause, NULL);
        run(b, 60);
        wake[i] = (double)b->records->begun * FLEETI_CLOCK_NS * 1e-9 - b->records->submitted;
        token[i] = b->records->first - (double)b->records->sent * FLEETI_CLOCK_NS * 1e-9;
    }
    {
        const double offset = (b->least + b->most) / 2, error = (b->most - b->least) / 2;
        figures w, t;
        for (uint32_t i = 0; i < n; i++) wake[i] += offset, token[i] -= offset;
        w = figures_of(wake, n), t = figures_of(token, n);
        printf("idle\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\n", policy, 1e6 * w.mean, 1e6 * w.p99,
               1e6 * t.mean, 1e6 * t.p99, 1e6 * error);
        fflush(stdout);
    }
    free(wake);
    free(token);
}

/* Reactive requests, one at a time, while there are always proactive ones in their prompts and in the decode batch. */
static void pending_runs(bench *b, const char *policy, const trace *none)
{
    const struct timespec pause = {0, 20000};
    const double began = now(), seconds = b->o.seconds;
    const uint32_t proactive = 2 * b->o.batch;
    double *pending = (double *)malloc(MOST * sizeof *pending), next = began + seconds / 10;
    uint32_t n = 0, ended = 0, stopping = 0, left;
    record *one = &b->records[proactive];
    figures f;
    (void)none;
    if (!pending) return;
    memset(b->records, 0, (proactive + 1) * sizeof *b->records);
    b->n = proactive + 1, b->random = b->o.seed;
    for (uint32_t i = 0; i <= proactive; i++) b->records[i].ended = 1;
    do {
        fleet_server_event e;
        if (now() - began > seconds && !stopping) {
            stopping = 1;
            for (uint32_t i = 0; i < proactive; i++)
                fleet_server_cancel(&b->s.server, b->records[i].id);
        }
        left = 0;
        for (uint32_t i = 0; i < proactive; i++) {
            record *r = &b->records[i];
            if (r->ended && !stopping) {
                memset(r, 0, sizeof *r);
                r->a = request_of(b, FLEET_PROACTIVE);
                if (!submit(b, r)) r->ended = 1;
            }
            left += !r->ended;
        }
        while (fleet_server_poll(&b->s.server, &e)) take_event(b, &e, &ended);
        if (one->ended && one->begun && n < MOST) {
            pending[n++] = (double)one->begun * FLEETI_CLOCK_NS * 1e-9 - one->submitted;
            next = now() + 0.02 * uniform(b);
            one->begun = 0;
        }
        if (one->ended && !stopping && now() > next) {
            memset(one, 0, sizeof *one);
            one->a.priority = FLEET_REACTIVE, one->a.prompt = 16, one->a.tokens = 4;
            if (!submit(b, one)) one->ended = 1;
        }
        left += !one->ended;
#if defined(FLEET_HOST)
        nanosleep(&pause, NULL); /* the processors are the device */
#else
        (void)pause;
#endif
    } while ((!stopping || left) && !b->bad);
    for (uint32_t i = 0; i < n; i++) pending[i] += (b->least + b->most) / 2;
    f = figures_of(pending, n);
    printf("pending\t%s\t%u\t%.1f\t%.1f\t%.1f\n", policy, n, 1e6 * f.mean, 1e6 * f.p99,
           n ? 1e6 * pending[n - 1] : 0);
    fflush(stdout);
    free(pending);
}

/* The device by two steps: the first one is limited by memory, the second one by arithmetic. */
static void fill_roofline(bench *b, const uint32_t rows[2], const double ns[2], uint32_t context)
{
    fleet_roofline *r = &b->roofline;
    fleet_work work[2];
    for (uint32_t i = 0; i < 2; i++)
        work[i] = fleeti_iteration_work(&b->s.server.desc, rows[i], rows[i] * context, 0, 0);
    r->peak_bytes_per_ns = (float)(work[0].bytes / ns[0]), r->u_m = 1;
    r->peak_operations_per_ns = (float)(work[1].operations / ns[1]);
    r->i_c = work[1].operations / work[1].bytes;
    r->u_c = (float)(work[1].bytes / ns[1]) / r->peak_bytes_per_ns;
}

/* The last request joins when all others decode already, and ends first. */
static int measure_decode(bench *b)
{
    static const uint32_t together[] = {0, 1, 8, 32, MAX_ROWS - LEAST_CHUNK_ROWS, 128, 256};
    const uint32_t prompt = b->o.context / 2 < 1000 ? b->o.context / 2 : 1000, steps = 25;
    const uint32_t narrow = serving_rows(&b->m) - LEAST_CHUNK_ROWS,
                   most = b->o.batch > narrow ? b->o.batch : narrow;
    uint32_t rows[2] = {0, 0};
    double ns[2] = {0, 0};
    if (open_server(b, FLEET_POLICY_AGENT, most)) return -1;
    b->same_prompts = 1;
    for (uint32_t k = 0; k < sizeof together / sizeof *together && !b->bad; k++) {
        const uint32_t n = together[k] ? together[k] : 1; /* the first one fills the pages */
        const record *last = &b->records[n - 1];
        if (n > most) break;
        b->n = n;
        memset(b->records, 0, n * sizeof *b->records);
        for (uint32_t i = 0; i < n; i++) {
            b->records[i].a.due = 1e-9 * i, b->records[i].a.prompt = prompt;
            b->records[i].a.priority = FLEET_REACTIVE;
            b->records[i].a.tokens = steps + 1 + (i + 1 < n ? 2 * n : 0);
        }
        run(b, 120);
        if (!together[k]) continue;
        rows[n > 1] = n;
        ns[n > 1] = (double)(last->latest - last->sent) * FLEETI_CLOCK_NS / steps;
        printf("decode\t%u\t%.3f\t%u\n", n, ns[n > 1] * 1e-6, prompt);
        fflush(stdout);
    }
    if (ns[0] > 0 && ns[1] > 0) fill_roofline(b, rows, ns, prompt + steps / 2);
    b->same_prompts = 0;
    close_server(b);
    return b->bad;
}

/* The first request is not counted. */
static int measure_first(bench *b)
{
    enum { REQUESTS = 12 };
    const uint32_t prompt = b->o.context / 2 < 1000 ? b->o.context / 2 : 1000;
    double took[REQUESTS];
    figures f;
    if (open_server(b, FLEET_POLICY_AGENT, b->o.batch)) return -1;
    b->n = REQUESTS + 1;
    memset(b->records, 0, b->n * sizeof *b->records);
    for (uint32_t i = 0; i < b->n; i++) {
        b->records[i].a.priority = FLEET_REACTIVE, b->records[i].a.due = 0.3 * i;
        b->records[i].a.prompt = prompt, b->records[i].a.tokens = 1;
    }
    run(b, 60);
    for (uint32_t i = 0; i < REQUESTS; i++)
        took[i] = b->records[i + 1].first - b->records[i + 1].submitted;
    f = figures_of(took, REQUESTS);
    printf("first\t%u\t%.2f\t%.2f\n", prompt, 1e3 * f.mean, 1e3 * f.p99);
    fflush(stdout);
    close_server(b);
    return b->bad;
}

static int measure_alone(bench *b)
{
    uint64_t begun = UINT64_MAX;
    const record *last = b->records;
    if (open_server(b, FLEET_POLICY_AGENT, b->o.batch)) return -1;
    b->n = b->o.clients;
    memset(b->records, 0, b->n * sizeof *b->records);
    for (uint32_t i = 0; i < b->n; i++) {
        b->records[i].a.priority = FLEET_REACTIVE, b->records[i].a.due = 1e-9 * i;
        b->records[i].a.prompt = b->o.prompt, b->records[i].a.tokens = b->o.answer;
    }
    run(b, 3600);
    for (uint32_t i = 0; i < b->n; i++) {
        if (b->records[i].begun < begun) begun = b->records[i].begun;
        if (b->records[i].sent > last->sent) last = &b->records[i];
    }
    printf("alone\t%u\t%u\t%.1f\t%.1f\n", b->n, b->o.prompt,
           (double)(last->sent - begun) * FLEETI_CLOCK_NS * 1e-3,
           last->n > 1
               ? (double)(last->latest - last->sent) * FLEETI_CLOCK_NS * 1e-3 / (last->n - 1)
               : 0);
    fflush(stdout);
    close_server(b);
    return b->bad;
}

/* As many clients as --clients says, each with one request at a time, four times, of the same
   length. Where a request has not all its tokens, there is no figure. */
static int measure_clients(bench *b)
{
    const uint32_t all = 4 * b->o.clients;
    double *first = (double *)malloc(all * sizeof *first),
           *each = (double *)malloc(all * sizeof *each);
    uint32_t next = 0, ended = 0, whole = 1;
    double began, took;
    figures f, e;
    if (!first || !each || all > MOST || open_server(b, FLEET_POLICY_AGENT, b->o.batch)) return -1;
    b->n = all;
    memset(b->records, 0, all * sizeof *b->records);
    began = now();
    while (ended < all && !b->bad) {
        fleet_server_event event;
        while (next < all && next < ended + b->o.clients) {
            record *r = &b->records[next];
            r->a.priority = FLEET_REACTIVE, r->a.prompt = b->o.prompt, r->a.tokens = b->o.answer;
            if (!submit(b, r)) break;
            next++;
        }
        while (fleet_server_poll(&b->s.server, &event)) take_event(b, &event, &ended);
    }
    took = now() - began;
    for (uint32_t i = 0; i < all; i++) {
        const record *r = &b->records[i];
        whole &= r->n == b->o.answer;
        first[i] = r->first - r->submitted;
        each[i] =
            (double)(r->latest - r->sent) * FLEETI_CLOCK_NS * 1e-9 / (r->n > 1 ? r->n - 1 : 1);
    }
    f = figures_of(first, all), e = figures_of(each, all);
    if (whole)
        printf("clients\t%u\t%u\t%u\t%.0f\t%.1f\t%.1f\t%.2f\t%.2f\n", b->o.clients, b->o.prompt,
               b->o.answer, all * b->o.answer / took, 1e3 * f.mean, 1e3 * f.p99, 1e3 * e.mean,
               1e3 * e.p99);
    else
        fprintf(stderr, "serving: not all clients have got their answers\n");
    fflush(stdout);
    free(first);
    free(each);
    close_server(b);
    return b->bad || !whole;
}

static void fill_trace(bench *b, double reactive, double proactive, double seconds, uint64_t seed)
{
    b->n = 0, b->random = b->o.seed * 1000003u + seed;
    add_arrivals(b, FLEET_REACTIVE, reactive, seconds);
    add_arrivals(b, FLEET_PROACTIVE, proactive, seconds);
}

static void trace_run(bench *b, const char *policy, const trace *of)
{
    fill_trace(b, of->reactive, of->proactive, of->seconds, of->seed);
    print_run(b, of->kind, policy, of->x, of->reactive, of->proactive, 4 * b->o.seconds);
}

static const char *const policy_names[] = {"agent", "fifo"}; /* by fleet_policy_kind */

static void add_totals(policy_totals *t, const fleet_server_stats *stats)
{
    t->iterations += stats->iterations, t->layers_cut += stats->layers_cut;
    t->predicted += stats->predicted;
    t->error_sum += (double)stats->error_mean * stats->predicted;
    if (stats->error_max > t->error_max) t->error_max = stats->error_max;
}
/* One policy after the other, each in a server of its own: the machine may be slower a minute later. */
static void in_both(bench *b, void (*run_in)(bench *, const char *, const trace *), const trace *of)
{
    for (uint32_t k = 0; k < 2 && !b->bad; k++) {
        fleet_server_stats stats;
        if (open_server(b, (fleet_policy_kind)k, b->o.batch)) {
            b->bad = -1;
            return;
        }
        run_in(b, policy_names[k], of);
        fleet_server_stats_read(&b->s.server, &stats);
        add_totals(&b->totals[k], &stats);
        close_server(b);
    }
}

static void measure_traces(bench *b, double rate)
{
    static const double loads[] = {0.3, 0.6, 0.9, 1.2, 1.5}, beside[] = {4, 10},
                        paper[] = {1, 3, 5};
    const double s = b->o.seconds, faster = b->o.shorten / 60;
    for (uint32_t i = 0; i < 5 && wants(b, "load"); i++) {
        const trace of = {"load", loads[i], loads[i] * rate / 3, loads[i] * rate * 2 / 3, s, 1 + i};
        in_both(b, trace_run, &of);
    }
    for (uint32_t i = 0; i < 2 && wants(b, "growth"); i++) {
        const trace of = {"growth", beside[i], rate / 20, rate * beside[i] / 12, 2 * s, 11};
        in_both(b, trace_run, &of);
    }
    for (uint32_t i = 0; i < 3 && wants(b, "paper"); i++) {
        const trace of = {"paper",    paper[i],           paper[i] * faster,
                          6 * faster, 900 / b->o.shorten, 21 + i};
        in_both(b, trace_run, &of);
    }
}

static int measure_all(bench *b)
{
    double rate = 0;
    if (wants(b, "decode") && measure_decode(b)) return -1;
    if (wants(b, "first") && measure_first(b)) return -1;
    if ((wants(b, "clients") || wants(b, "alone")) && b->o.prompt + b->o.answer > b->o.context) {
        fprintf(stderr, "serving: --context has no room for --prompt and --answer\n");
        return -1;
    }
    if (wants(b, "alone") && measure_alone(b)) return -1;
    if (wants(b, "clients") && measure_clients(b)) return -1;
    if (wants(b, "load") || wants(b, "growth")) {
        if (open_server(b, FLEET_POLICY_AGENT, b->o.batch)) return -1;
        rate = service_rate(b);
        printf("rate\t%.4g\n", rate);
        fflush(stdout);
        close_server(b);
    }
    if (wants(b, "idle")) in_both(b, idle_runs, NULL);
    if (wants(b, "pending")) in_both(b, pending_runs, NULL);
    measure_traces(b, rate);
    for (uint32_t k = 0; k < 2; k++) {
        const policy_totals *t = &b->totals[k];
        printf("stops\t%s\t%u\t%u\n", policy_names[k], t->iterations, t->layers_cut);
        if (t->predicted)
            printf("predicted\t%s\t%u\t%.1f\t%.1f\n", policy_names[k], t->predicted,
                   t->error_sum / t->predicted / 10, t->error_max / 10.0);
    }
    return b->bad;
}

static int load(bench *b)
{
    qwen3_checkpoint c;
    qwen3_config config;
    char error[ERROR_BYTES] = "";
    int bad;
    memset(&c, 0, sizeof c);
    if (b->o.random_weights) {
        bad = qwen3_config_read(&config, b->o.dir, error, sizeof error);
    } else {
        bad = qwen3_open(&c, b->o.dir);
        config = c.config;
        snprintf(error, sizeof error, "%s", c.error);
    }
    if (!bad && b->o.context > config.positions) b->o.context = config.positions;
    if (!bad && (bad = model_load(&b->m, &config, b->o.random_weights ? NULL : &c,
                                  FLEET_SCHEDULE_STATIC, MAX_ROWS, NULL)) != 0)
        snprintf(error, sizeof error, "%.500s", b->m.error);
    fleet_stream_wait(NULL);
    qwen3_close(&c);
    if (bad) fprintf(stderr, "serving: %s\n", error);
    return bad;
}

static int read_options(options *o, int argc, char **argv)
{
    const struct {
        const char *name;
        uint32_t *number;
        double *seconds;
    } known[] = {{"--seconds", NULL, &o->seconds}, {"--shorten", NULL, &o->shorten},
                 {"--batch", &o->batch, NULL},     {"--context", &o->context, NULL},
                 {"--seed", &o->seed, NULL},       {"--mixed", &o->mixed, NULL},
                 {"--chunk", &o->chunk, NULL},     {"--beside", &o->beside, NULL},
                 {"--clients", &o->clients, NULL}, {"--prompt", &o->prompt, NULL},
                 {"--answer", &o->answer, NULL}};
    const uint32_t n = sizeof known / sizeof *known;
    o->batch = 16, o->context = 4096, o->seed = 1, o->seconds = 15, o->shorten = 30;
    o->clients = 16, o->prompt = 200, o->answer = 100;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--random-weights")) {
            o->random_weights = 1;
        } else if (argv[i][0] != '-') {
            o->dir = argv[i];
        } else if (!strcmp(argv[i], "--only") && i + 1 < argc) {
            o->only = argv[++i];
        } else {
            const double x = i + 1 < argc ? atof(argv[i + 1]) : 0;
            uint32_t k = 0;
            while (k < n && strcmp(argv[i], known[k].name)) k++;
            if (!(x > 0) || k == n) return -1;
            if (known[k].number) *known[k].number = (uint32_t)x;
            if (known[k].seconds) *known[k].seconds = x;
            i++;
        }
    }
    return o->dir ? 0 : -1;
}

int main(int argc, char **argv)
{
    static bench b;
    int bad;
    if (read_options(&b.o, argc, argv)) {
        fprintf(stderr, "usage: serving MODEL_DIR [--random-weights] [--seconds N] [--shorten N] "
                        "[--batch N] [--context N] [--seed N] [--mixed N] [--chunk N] [--beside N] "
                        "[--clients N] [--prompt N] [--answer N] [--only KIND]\n");
        return 2;
    }
    if (load(&b)) return 1;
    b.records = (record *)calloc(MOST, sizeof *b.records);
    b.prompt = (uint32_t *)malloc((MOST + b.o.context) * sizeof *b.prompt);
    if (!b.records || !b.prompt) return 1;
    b.random = 99;
    for (uint32_t i = 0; i < MOST + b.o.context; i++)
        b.prompt[i] = (uint32_t)(uniform(&b) * b.m.config.vocab);
    bad = measure_all(&b);
    free(b.records);
    free(b.prompt);
    model_free(&b.m);
    return bad != 0;
}
