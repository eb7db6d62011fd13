/* exchange.h: a request and its answer, from the body to the end of its jobs: what workers and the
   engine's threads do. server.h says which threads there are, and what the lock guards. */
#ifndef SERVE_EXCHANGE_H
#define SERVE_EXCHANGE_H

#include "../tools/random_seed.h"
#include "answer.h"
#include "http.h"
#include "metrics.h"
#include "trace.h"

#include <pthread.h>
#include <time.h>

#define MAX_HEADER_BYTES 16384u /* of a request: its names and values */
/* What libmicrohttpd keeps for a connection: a header, what it makes of the cookies in it, and
   the answer's header. */
#define CONNECTION_BYTES (4 * MAX_HEADER_BYTES)
#define MAX_BODIES 64u       /* bodies of the largest size that are in memory, at most */
#define MAX_EVENT_TOKENS 64u /* of an SSE event: more only where the client reads slowly */
#define SWEEP_NS 20000000    /* how often the sweeper looks */
#define SERVER_WORKERS 2u    /* so that a long body does not delay all others */
#define STOP_SECONDS 2       /* that clients have to read their ends, once the server stops */
/* A client that sends a body reads its answer only after that, so the bytes of a refused body are
   read, and dropped. Of one with more than so many the connection is closed instead. */
#define MAX_DROPPED_BYTES ((uint64_t)16 << 20)

typedef struct server_desc {
    const char *host, *port;
    const char *api_key;  /* or null */
    const char *names;    /* --server-name; or null */
    const char *origins;  /* --cors; or null */
    const char *model;    /* its name */
    uint32_t max_body;    /* bytes */
    uint32_t connections; /* at most */
    uint32_t of_address;  /* connections of one address, at most */
    uint32_t seconds;     /* to send a request, and to read what is left of an answer */
    uint32_t strict;      /* 1: see request.h */
    const char *version;
    output *log, *trace; /* or null */
} server_desc;

struct exchange;

typedef struct client { /* a connection */
    struct client *next, *before;
    int fd;
    struct exchange *waits; /* the request for which it is suspended, or null */
    double deadline;        /* when it is shut down; 0: never */
} client;

typedef struct server {
    server_desc desc;
    engine *e;
    completion_rules rules;
    text_codec codec; /* the caller opens and closes it */
    struct MHD_Daemon *daemon;
    int64_t created;
    uint64_t seed; /* of jobs without one, which have this and their number */
    uint64_t run;  /* a random number, which makes ids different from those of other runs */
    double began;
    pthread_t sweeper, workers[SERVER_WORKERS];
    uint32_t sweeps, n_workers; /* threads that were started */
    pthread_mutex_t lock;
    pthread_cond_t work;
    /* under the lock */
    client *clients;
    struct exchange *queue, **queue_end; /* for workers, in order */
    metrics counters;
    uint64_t numbers;  /* of jobs, so far */
    uint64_t requests; /* so far */
    uint64_t body_bytes;
    uint32_t draining; /* 1: no more jobs are taken */
    uint32_t stopping; /* 1: jobs are cancelled */
    uint32_t quits;    /* 1: workers end when the queue is empty */
} server;

/* What is left to write of a stream. */
typedef enum stream_part { STREAM_TOKENS, STREAM_USAGE, STREAM_END, STREAM_OVER } stream_part;

/* What workers have to do for a request. */
enum { WORK_PARSE = 1, WORK_CANCEL = 2, WORK_ANSWER = 4 };

typedef struct exchange { /* a request and its answer */
    server *s;
    client *c;
    struct MHD_Connection *connection;
    char id[64];    /* X-Request-Id */
    uint32_t route; /* in routes, or ROUTES */
    uint32_t is_refused;
    uint32_t closes;  /* 1: the connection ends with the answer */
    uint64_t dropped; /* bytes of a refused body */
    refusal why;
    char *body;
    size_t bytes, room;
    completion request;
    answer a;
    choice *choices; /* n for each prompt, one prompt after the other */
    uint32_t n_choices;
    usage used;
    char *text;      /* the whole answer, once a worker has made it */
    double received; /* when the request was complete */
    /* of a stream; libmicrohttpd's thread alone */
    stream_part part;
    uint32_t turn; /* the choice that is looked at next */
    char *event;
    size_t event_bytes, event_sent;
    /* under the lock */
    struct exchange *next; /* in the queue of the workers */
    uint32_t wants, is_queued;
    uint32_t holders; /* the connection, the jobs, the workers; the last one frees it */
    uint32_t asked;   /* 1: a worker has the request, or had it */
    uint32_t parsed;  /* 1: it is refused, or its jobs are submitted */
    uint32_t written; /* 1: the whole answer is */
    uint32_t left;    /* 1: the client did */
    uint32_t running; /* choices that have not ended */
} exchange;

typedef struct route {
    const char *path, *method;
    completion_kind kind; /* of a POST */
    uint32_t is_open;     /* 1: without the API key */
} route;
enum {
    ROUTE_CHAT,
    ROUTE_TEXT,
    ROUTE_TOKENS,
    ROUTE_DETOKENS,
    ROUTE_MODELS,
    ROUTE_MODEL,
    ROUTE_VERSION,
    ROUTE_HEALTH,
    ROUTE_METRICS,
    ROUTES
};
static const route routes[ROUTES] = {{"/v1/chat/completions", "POST", COMPLETION_CHAT, 0},
                                     {"/v1/completions", "POST", COMPLETION_TEXT, 0},
                                     {"/tokenize", "POST", COMPLETION_TOKENS, 0},
                                     {"/detokenize", "POST", COMPLETION_DETOKENS, 0},
                                     {"/v1/models", "GET", COMPLETION_TEXT, 0},
                                     {"/v1/models/", "GET", COMPLETION_TEXT, 0}, /* and a name */
                                     {"/version", "GET", COMPLETION_TEXT, 0},
                                     {"/health", "GET", COMPLETION_TEXT, 1},
                                     {"/metrics", "GET", COMPLETION_TEXT, 0}};

static double server_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Logs and traces what happened to a job, and how many wait and run in each class. */
static void server_log(server *s, const exchange *x, uint64_t number, const char *what)
{
    const double at = server_now() - s->began;
    engine_load load;
    if (!s->desc.log && !s->desc.trace) return;
    load = engine_load_of(s->e);
    trace_load(s->desc.trace, &load, at);
    if (!s->desc.log) return;
    output_format(
        s->desc.log,
        "%9.3f  %-6llu %-9s %-10s  reactive %u waiting %u running, proactive %u waiting %u "
        "running  %s\n",
        at, (unsigned long long)number, job_class_names[x->request.priority], what,
        load.waiting[JOB_REACTIVE], load.running[JOB_REACTIVE], load.waiting[JOB_PROACTIVE],
        load.running[JOB_PROACTIVE], x->id);
    output_flush(s->desc.log);
}

/* ---- the end of a request ---- */

static void exchange_free(exchange *x)
{
    completion_free(&x->request);
    for (uint32_t i = 0; i < x->n_choices; i++) choice_free(&x->choices[i]);
    free(x->choices);
    free(x->body);
    free(x->event);
    free(x->text);
    free(x);
}

static void exchange_free_body(exchange *x)
{
    pthread_mutex_lock(&x->s->lock);
    x->s->body_bytes -= x->room;
    pthread_mutex_unlock(&x->s->lock);
    free(x->body);
    x->body = NULL, x->bytes = x->room = 0;
}

/* Under the lock. */
static void exchange_resume(exchange *x)
{
    if (!x->c || x->c->waits != x) return;
    x->c->waits = NULL;
    MHD_resume_connection(x->connection);
}
static void exchange_suspend(exchange *x)
{
    x->c->waits = x;
    MHD_suspend_connection(x->connection);
}

/* Under the lock: has a worker do something for a request. */
static void exchange_ask(exchange *x, uint32_t what)
{
    server *s = x->s;
    x->wants |= what;
    if (x->is_queued) return;
    x->is_queued = 1;
    x->holders++;
    x->next = NULL;
    *s->queue_end = x, s->queue_end = &x->next;
    pthread_cond_signal(&s->work);
}

/* Cancels the jobs of a request that the client or a stop of the text has ended. Their ends still
   come. all: those of other choices, too. */
static void exchange_cancel(exchange *x, uint32_t all)
{
    for (uint32_t i = 0; i < x->n_choices; i++) {
        choice *h = &x->choices[i];
        uint64_t ticket = 0;
        pthread_mutex_lock(&x->s->lock);
        if (h->ticket && !h->cancel_sent && (all || h->stopped))
            ticket = h->ticket, h->cancel_sent = 1;
        pthread_mutex_unlock(&x->s->lock);
        if (ticket) engine_cancel(x->s->e, ticket);
    }
}

static void exchange_release(exchange *x)
{
    uint32_t is_last;
    pthread_mutex_lock(&x->s->lock);
    is_last = --x->holders == 0;
    pthread_mutex_unlock(&x->s->lock);
    if (is_last) exchange_free(x);
}

/* libmicrohttpd is done with the request, or its client has left. */
static void exchange_completed(void *user, struct MHD_Connection *connection, void **state,
                               enum MHD_RequestTerminationCode how)
{
    exchange *x = (exchange *)*state;
    server *s = (server *)user;
    uint32_t parsed;
    (void)connection, (void)how;
    *state = NULL;
    if (!x) return;
    pthread_mutex_lock(&s->lock);
    if (x->c) x->c->waits = NULL, x->c->deadline = server_now() + s->desc.seconds;
    x->c = NULL;
    x->left = 1;
    s->counters.requests--;
    parsed = x->parsed || !x->asked; /* else a worker has the body, and will see that x->left */
    pthread_mutex_unlock(&s->lock);
    if (parsed) {
        exchange_free_body(x);
        exchange_cancel(x, 1);
    }
    exchange_release(x);
}

/* ---- events of the engine ---- */

/* Under the lock: what a stop of the text ends has ended, whatever the engine still does. */
static void choice_over(choice *h)
{
    exchange *x = h->x;
    if (h->ended) return;
    h->ended = 1;
    choice_end(h);
    x->used.generated += h->n_tokens;
    if (--x->running == 0) {
        if (x->c) x->c->deadline = server_now() + x->s->desc.seconds;
        if (!x->request.stream && !x->left) exchange_ask(x, WORK_ANSWER);
    }
}

/* Under the lock. */
static void take_token(choice *h, const engine_event *event, double since)
{
    exchange *x = h->x;
    server *s = x->s;
    if (h->ended) return;
    if (!h->n_tokens) {
        histogram_add(&s->counters.first_token[x->request.priority], since);
        /* A prompt counts once. The first of its answers is admitted first: what that one finds was
           left by other requests. */
        if (h->index % x->request.n == 0) {
            x->used.cached += event->reused;
            s->counters.cached_tokens += event->reused;
        }
    }
    choice_token(h, &x->request, &s->codec, event->token, event->likelihood);
    s->counters.generated_tokens++;
    if (h->stopped) {
        h->end = ENGINE_FINISHED;
        choice_over(h);
        exchange_ask(x, WORK_CANCEL);
    }
}

/* Under the lock. */
static void take_end(choice *h, const engine_event *event, double since)
{
    exchange *x = h->x;
    const job_class k = x->request.priority;
    const engine_event_kind end = h->stopped ? ENGINE_FINISHED : event->kind;
    if (!h->ended) {
        h->end = end, h->at_eos = event->at_eos;
        copy_text(h->error, sizeof h->error, event->error ? event->error : "");
    }
    h->ticket = 0;
    choice_over(h);
    x->s->counters.jobs[k][end - ENGINE_FINISHED]++;
    histogram_add(&x->s->counters.whole[k], since);
}

static void server_event(void *user, const engine_event *event)
{
    static const char *const words[] = {"token", "finished", "cancelled", "failed"};
    choice *h = (choice *)event->user;
    exchange *x = h->x;
    server *s = x->s;
    const double now = server_now(), since = now - x->received;
    const job_class k = x->request.priority;
    uint32_t is_last = 0;
    (void)user;
    if (event->kind == ENGINE_TOKEN) {
        trace_token(s->desc.trace, k, h->number, h->n_tokens,
                    (h->n_tokens ? h->last : x->received) - s->began, now - s->began);
        h->last = now;
    } else {
        trace_end_of_request(s->desc.trace, k, h->number, words[event->kind], now - s->began);
        server_log(s, x, h->number, words[event->kind]);
    }
    pthread_mutex_lock(&s->lock);
    if (event->kind == ENGINE_TOKEN)
        take_token(h, event, since);
    else {
        take_end(h, event, since);
        is_last = --x->holders == 0;
    }
    if (!is_last && x->request.stream) exchange_resume(x);
    pthread_mutex_unlock(&s->lock);
    if (is_last) exchange_free(x);
}

/* ---- workers: requests ---- */

static int refuse_status(exchange *x, engine_status status, uint32_t fits)
{
    const char *prompt = x->request.kind == COMPLETION_CHAT ? "messages" : "prompt";
    switch (status) {
    case ENGINE_OK:
        return 0;
    case ENGINE_BUSY:
        return refuse(&x->why, 429, "priority", "the queue of %s requests is full",
                      job_class_names[x->request.priority]);
    case ENGINE_TOO_LONG:
        return refuse_context(&x->why, fits ? "max_tokens" : prompt, fits,
                              "does not fit into memory");
    default:
        return refuse(&x->why, 503, "", "the engine takes no requests");
    }
}

static const prompt *prompt_of(const exchange *x, const choice *h)
{
    return &x->request.prompts[h->index / x->request.n];
}

/* Makes room for all answers. */
static int exchange_choices(exchange *x)
{
    const completion *c = &x->request;
    const uint32_t n = c->n * c->n_prompts;
    x->choices = (choice *)calloc(n, sizeof *x->choices);
    for (uint32_t i = 0; i < n && x->choices; i++) {
        choice *h = &x->choices[i];
        h->x = x, h->index = i;
        h->calls = c->calls, h->one_call = c->one_call;
        /* The prompt has its beginning. */
        if (c->messages && x->s->codec.family == QWEN3_THINKING) h->reasoning = REASONING_BEGINS;
        x->n_choices = i + 1;
        h->tokens = (uint32_t *)malloc(c->max_tokens * sizeof *h->tokens);
        if (!h->tokens || choice_likelihoods(h, c) ||
            (c->echo && choice_echo(h, &x->s->codec, prompt_of(x, h), c->keep_special)))
            return refuse(&x->why, 503, "max_tokens", "no memory is left");
    }
    if (!x->choices) return refuse(&x->why, 503, "n", "no memory is left");
    for (uint32_t i = 0; i < c->n_prompts; i++) x->used.prompt += c->prompts[i].n_tokens;
    return 0;
}

/* What all parts of the answer have. The id is that of the first job. */
static void exchange_begin_answer(exchange *x)
{
    server *s = x->s;
    x->a.kind = x->request.kind, x->a.model = s->desc.model;
    x->a.reasoning = x->request.reasoning, x->a.codec = &s->codec;
    x->a.created = (int64_t)time(NULL);
    snprintf(x->a.id, sizeof x->a.id, "%s-%016llx-%llu",
             x->a.kind == COMPLETION_CHAT ? "chatcmpl" : "cmpl", (unsigned long long)s->run,
             (unsigned long long)x->choices[0].number);
}

static engine_status choice_submit(choice *h, uint32_t *fits)
{
    exchange *x = h->x;
    server *s = x->s;
    const completion *c = &x->request;
    const prompt *p = prompt_of(x, h);
    uint64_t ticket = 0;
    engine_job job;
    engine_status status;
    memset(&job, 0, sizeof job);
    job.prompt = p->tokens, job.n_prompt = p->n_tokens, job.max_tokens = c->max_tokens,
    job.ignore_eos = c->ignore_eos;
    job.priority = c->priority, job.user = h;
    job.sample = c->sample, job.shape = c->shape;
    job.likelihoods = c->likelihoods;
    job.shape.ends = c->stop_tokens, job.shape.n_ends = c->n_stop_tokens;
    job.sample.seed = c->has_seed ? c->sample.seed + h->index : s->seed + h->number;
    /* before it has events */
    trace_request(s->desc.trace, c->priority, h->number, p->n_tokens, c->max_tokens);
    server_log(s, x, h->number, "arrives");
    pthread_mutex_lock(&s->lock);
    x->holders++;
    pthread_mutex_unlock(&s->lock);
    status = engine_submit(s->e, &job, &ticket, fits);
    pthread_mutex_lock(&s->lock);
    if (status)
        x->holders--;
    else if (!h->ended || h->stopped)
        h->ticket = ticket;
    pthread_mutex_unlock(&s->lock);
    if (status) server_log(s, x, h->number, "refused");
    return status;
}

/* Submits a job for each answer, or none. */
static int exchange_submit(exchange *x)
{
    server *s = x->s;
    uint32_t fits = 0;
    engine_status status = ENGINE_OK;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < x->n_choices; i++) x->choices[i].number = ++s->numbers;
    x->running = x->n_choices;
    pthread_mutex_unlock(&s->lock);
    exchange_begin_answer(x);
    for (uint32_t i = 0; i < x->n_choices && !status; i++)
        status = choice_submit(&x->choices[i], &fits);
    if (status) exchange_cancel(x, 1);
    pthread_mutex_lock(&s->lock);
    if (!status) s->counters.prompt_tokens += x->used.prompt;
    pthread_mutex_unlock(&s->lock);
    return refuse_status(x, status, fits);
}

/* Tells the tokens of a text, or the text of tokens. */
static int exchange_tell(exchange *x)
{
    const server *s = x->s;
    const prompt *p = &x->request.prompts[0];
    qwen3_string text;
    memset(&text, 0, sizeof text);
    if (x->request.kind == COMPLETION_TOKENS)
        x->text = answer_tokens(p, &s->rules.limits);
    else if (!text_of_tokens(&s->codec, p->tokens, p->n_tokens, 1, &text))
        x->text = answer_detokens(&text);
    free(text.at);
    return x->text ? 0 : refuse(&x->why, 503, "", "no memory is left");
}

/* Parses the body, and submits its jobs. 0, or -1 and x->why. */
static int exchange_parse(exchange *x)
{
    server *s = x->s;
    completion *c = &x->request;
    const completion_kind kind = routes[x->route].kind;
    const uint32_t tells = kind == COMPLETION_TOKENS || kind == COMPLETION_DETOKENS;
    int bad = completion_parse(c, kind, x->body, x->bytes, &s->rules, &x->why);
    exchange_free_body(x);
    if (!bad && tells && !s->codec.is_open)
        bad = refuse(&x->why, 400, "", "this model has no tokenizer");
    if (!bad) bad = text_to_tokens(&s->codec, c, tells ? 0 : s->rules.limits.context, &x->why);
    if (!bad && tells)
        bad = exchange_tell(x);
    else if (!bad)
        bad = completion_fit(c, &s->rules, &x->why) || exchange_choices(x) || exchange_submit(x);
    completion_free_prompt(c);
    return bad ? -1 : 0;
}

/* Without a failure. */
static uint32_t choice_finished(const choice *h)
{
    return h->ended && h->end == ENGINE_FINISHED && !h->failed;
}

/* The choice that has failed, or was cancelled; null: none. Under the lock, or when all have
   ended. */
static const choice *failed_choice(const exchange *x)
{
    for (uint32_t i = 0; i < x->n_choices; i++) {
        const choice *h = &x->choices[i];
        if (h->ended && !choice_finished(h)) return h;
    }
    return NULL;
}

/* What is wrong with it, in words and in a word of the API. */
static const char *failure_of(const choice *h, const char **code)
{
    *code = h->end == ENGINE_CANCELLED ? "server_stopping" : "engine_failed";
    return h->end == ENGINE_CANCELLED ? "the server stops"
           : h->error[0]              ? h->error
                                      : "no memory is left";
}

static void exchange_write(exchange *x)
{
    const choice *failed = failed_choice(x);
    const char *code = "", *message = failed ? failure_of(failed, &code) : "";
    x->text = failed ? answer_failure(message, code)
                     : answer_whole(&x->a, x->choices, x->n_choices, x->used);
}

/* Does what a request wants, and returns what its connection can see of it. */
static void exchange_work(exchange *x, uint32_t wants)
{
    server *s = x->s;
    if (wants & WORK_PARSE) {
        const int bad = exchange_parse(x);
        uint32_t left;
        pthread_mutex_lock(&s->lock);
        x->is_refused = bad != 0;
        x->written |= x->request.kind > COMPLETION_CHAT;
        x->parsed = 1;
        left = x->left;
        exchange_resume(x);
        pthread_mutex_unlock(&s->lock);
        if (left) exchange_cancel(x, 1);
    }
    if (wants & (WORK_PARSE | WORK_CANCEL)) exchange_cancel(x, 0);
    if (wants & WORK_ANSWER) {
        exchange_write(x);
        pthread_mutex_lock(&s->lock);
        x->written = 1;
        exchange_resume(x);
        pthread_mutex_unlock(&s->lock);
    }
}

static void *work(void *user)
{
    server *s = (server *)user;
    pthread_mutex_lock(&s->lock);
    while (s->queue || !s->quits) {
        exchange *x = s->queue;
        uint32_t wants;
        if (!x) {
            pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        s->queue = x->next;
        if (!s->queue) s->queue_end = &s->queue;
        wants = x->wants;
        x->wants = x->is_queued = 0;
        pthread_mutex_unlock(&s->lock);
        exchange_work(x, wants);
        exchange_release(x);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

#endif /* SERVE_EXCHANGE_H */
