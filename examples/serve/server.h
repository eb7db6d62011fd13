/* server.h: HTTP, by libmicrohttpd: connections, routes, and what happens to a request until it is answered.

   THREADS   One thread of libmicrohttpd reads, parses and writes. The engine's threads call server_event. The sweeper
             looks after what libmicrohttpd does not see: clients that leave while their connection is suspended, and
             requests that never become complete.
   LOCK      One lock guards the fields that are said to be under it, and the counters. It is held while a connection is
             suspended or resumed, and never while the engine is called.
   WAITING   A connection that waits for tokens is suspended. server_event resumes it. A plain answer is written when its
             job has ended, a stream whenever there are tokens. Tokens are kept as numbers until the client reads, in a
             buffer of max_tokens, so that a client that reads slowly delays nothing. */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include "../tools/random_seed.h"
#include "answer.h"
#include "http.h"
#include "metrics.h"
#include "trace.h"

#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>

#define MAX_HEADER_BYTES 16384u /* of a request: its names and values */
/* What libmicrohttpd keeps for a connection: a header, what it makes of the cookies in it, and the answer's header. */
#define CONNECTION_BYTES (4 * MAX_HEADER_BYTES)
#define MAX_BODIES 64u       /* bodies of the largest size that are in memory, at most */
#define MAX_EVENT_TOKENS 64u /* of an SSE event: more only where the client reads slowly */
#define SWEEP_NS 20000000    /* how often the sweeper looks */
#define STOP_SECONDS 2       /* that clients have to read their ends, once the server stops */
/* A client that sends a body reads its answer only after that, so the bytes of a refused body are read, and dropped. Of
   one with more than so many the connection is closed instead. */
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
    output *log, *trace;  /* or null */
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
    uint64_t seed; /* of requests without one, which have this and their number */
    double began;
    pthread_t sweeper;
    uint32_t sweeps; /* 1: the sweeper was started */
    pthread_mutex_t lock;
    /* under the lock */
    client *clients;
    metrics counters;
    uint64_t numbers; /* of requests, so far */
    uint64_t body_bytes;
    uint32_t stopping;
} server;

/* What is left to write of a stream. */
typedef enum stream_part {
    STREAM_TOKENS,
    STREAM_ERROR,
    STREAM_USAGE,
    STREAM_END,
    STREAM_OVER
} stream_part;

typedef struct exchange { /* a request and its answer */
    server *s;
    client *c;
    struct MHD_Connection *connection;
    uint32_t route; /* in routes, or ROUTES */
    uint32_t is_refused;
    uint32_t closes;  /* 1: the connection ends with the answer */
    uint64_t dropped; /* bytes of a refused body */
    refusal why;
    char *body;
    size_t bytes, room;
    completion request;
    uint32_t n_prompt;
    answer a;
    uint64_t ticket; /* of the engine */
    uint32_t submitted;
    double received; /* when the request was complete */
    double last;     /* when its last token came; the engine's threads alone */
    /* of a stream; libmicrohttpd's thread alone */
    stream_part part;
    uint32_t sent;
    char *event;
    size_t event_bytes, event_sent;
    /* under the lock */
    uint32_t holders; /* the connection and the engine; the last one frees it */
    uint32_t left;    /* 1: the client did */
    uint32_t ended;   /* 1: the job did */
    uint32_t n_tokens;
    engine_event_kind end;
    uint32_t at_eos;
    char error[256];
    uint32_t *tokens; /* [max_tokens]; the first n_tokens do not change */
} exchange;

typedef struct route {
    const char *path, *method;
    completion_kind kind; /* of a POST */
    uint32_t is_open;     /* 1: without the API key */
} route;
enum { ROUTE_CHAT, ROUTE_TEXT, ROUTE_MODELS, ROUTE_HEALTH, ROUTE_METRICS, ROUTES };
static const route routes[ROUTES] = {{"/v1/chat/completions", "POST", COMPLETION_CHAT, 0},
                                     {"/v1/completions", "POST", COMPLETION_TEXT, 0},
                                     {"/v1/models", "GET", COMPLETION_TEXT, 0},
                                     {"/health", "GET", COMPLETION_TEXT, 1},
                                     {"/metrics", "GET", COMPLETION_TEXT, 0}};

static double server_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Logs and traces what happened to a request, and how many wait and run in each class. */
static void server_log(server *s, const exchange *x, const char *what)
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
        "running\n",
        at, (unsigned long long)x->a.number, job_class_names[x->request.priority], what,
        load.waiting[JOB_REACTIVE], load.running[JOB_REACTIVE], load.waiting[JOB_PROACTIVE],
        load.running[JOB_PROACTIVE]);
    output_flush(s->desc.log);
}

/* ---- responses ---- */

static const char *header_of(const exchange *x, const char *name)
{
    const char *value = MHD_lookup_connection_value(x->connection, MHD_HEADER_KIND, name);
    return value ? value : "";
}

/* What all responses have. Pages of the sites in --cors may read them. */
static void add_headers(const exchange *x, struct MHD_Response *r)
{
    const char *origin = header_of(x, MHD_HTTP_HEADER_ORIGIN);
    if (x->closes) MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    if (!*origin || !origin_is_listed(x->s->desc.origins, origin)) return;
    MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    MHD_add_response_header(r, MHD_HTTP_HEADER_VARY, "Origin");
}

/* Queues a response with this text, which it frees. */
static enum MHD_Result respond(exchange *x, unsigned status, const char *type, char *text)
{
    server *s = x->s;
    struct MHD_Response *r =
        text ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE) : NULL;
    enum MHD_Result result;
    if (!r) {
        free(text);
        return MHD_NO; /* closes the connection */
    }
    add_headers(x, r);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == 401) MHD_add_response_header(r, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    if (status == 405) MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, routes[x->route].method);
    if (status == 429 || status == 503)
        MHD_add_response_header(r, MHD_HTTP_HEADER_RETRY_AFTER, "1");
    pthread_mutex_lock(&s->lock);
    s->counters.responses[status]++;
    if (x->c) x->c->deadline = server_now() + s->desc.seconds;
    pthread_mutex_unlock(&s->lock);
    result = MHD_queue_response(x->connection, status, r);
    MHD_destroy_response(r);
    return result;
}
static enum MHD_Result respond_json(exchange *x, unsigned status, char *text)
{
    return respond(x, status, "application/json", text);
}
static enum MHD_Result respond_refusal(exchange *x)
{
    return respond_json(x, x->why.status, answer_refusal(&x->why));
}

/* ---- the end of a request ---- */

static void exchange_free(exchange *x)
{
    completion_free(&x->request);
    free(x->body);
    free(x->event);
    free(x->tokens);
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

/* libmicrohttpd is done with the request, or its client has left. */
static void exchange_completed(void *user, struct MHD_Connection *connection, void **state,
                               enum MHD_RequestTerminationCode how)
{
    exchange *x = (exchange *)*state;
    server *s = (server *)user;
    uint64_t ticket;
    uint32_t runs, is_last;
    (void)connection, (void)how;
    *state = NULL;
    if (!x) return;
    exchange_free_body(x);
    ticket = x->ticket;
    pthread_mutex_lock(&s->lock);
    runs = x->submitted && !x->ended;
    is_last = --x->holders == 0;
    if (x->c) x->c->waits = NULL, x->c->deadline = server_now() + s->desc.seconds;
    x->c = NULL;
    s->counters.requests--;
    pthread_mutex_unlock(&s->lock);
    if (runs) engine_cancel(s->e, ticket); /* its end frees the exchange */
    if (is_last) exchange_free(x);
}

/* ---- events of the engine ---- */

static void server_event(void *user, const engine_event *event)
{
    static const char *const words[] = {"token", "finished", "cancelled", "failed"};
    exchange *x = (exchange *)event->user;
    server *s = x->s;
    const double now = server_now(), since = now - x->received;
    const job_class k = x->request.priority;
    uint32_t is_last = 0;
    (void)user;
    if (event->kind == ENGINE_TOKEN) {
        trace_token(s->desc.trace, k, x->a.number, x->n_tokens,
                    (x->n_tokens ? x->last : x->received) - s->began, now - s->began);
        x->last = now;
    } else {
        trace_end_of_request(s->desc.trace, k, x->a.number, words[event->kind], now - s->began);
        server_log(s, x, words[event->kind]);
    }
    pthread_mutex_lock(&s->lock);
    if (event->kind == ENGINE_TOKEN) {
        if (!x->n_tokens) histogram_add(&s->counters.first_token[k], since);
        x->tokens[x->n_tokens++] = event->token;
        s->counters.generated_tokens++;
    } else {
        x->ended = 1, x->end = event->kind, x->at_eos = event->at_eos;
        copy_text(x->error, sizeof x->error, event->error ? event->error : "");
        s->counters.jobs[k][event->kind - ENGINE_FINISHED]++;
        histogram_add(&s->counters.whole[k], since);
        if (x->c) x->c->deadline = now + s->desc.seconds;
        is_last = --x->holders == 0;
    }
    /* A plain answer waits for the end. */
    if (!is_last && (x->ended || x->request.stream)) exchange_resume(x);
    pthread_mutex_unlock(&s->lock);
    if (is_last) exchange_free(x);
}

/* Why the answer ended, in the words of the API. */
static const char *finish_of(const exchange *x)
{
    switch (x->end) {
    case ENGINE_FINISHED:
        return x->at_eos ? "stop" : "length";
    case ENGINE_CANCELLED:
        return "cancelled";
    default:
        return "error";
    }
}

/* ---- answers to completions ---- */

static usage usage_of(const exchange *x)
{
    usage u;
    u.prompt = x->n_prompt, u.generated = x->n_tokens;
    return u;
}

/* Answers a job that has ended; until then the connection is suspended. */
static enum MHD_Result answer_whole_or_wait(exchange *x)
{
    server *s = x->s;
    uint32_t ended, left;
    pthread_mutex_lock(&s->lock);
    ended = x->ended, left = x->left;
    if (!ended && !left) exchange_suspend(x);
    pthread_mutex_unlock(&s->lock);
    if (left) return MHD_NO;
    if (!ended) return MHD_YES;
    return respond_json(x,
                        x->end == ENGINE_FAILED      ? 500
                        : x->end == ENGINE_CANCELLED ? 503
                                                     : 200,
                        answer_whole(&x->a, x->tokens, usage_of(x), finish_of(x),
                                     x->end == ENGINE_FAILED ? x->error : NULL));
}

/* Makes the next event of a stream. 0: the connection was suspended, and there is none yet; -1: the client has left, or
   no memory is. */
static int next_event(exchange *x)
{
    server *s = x->s;
    uint32_t n, ended, left, waits;
    pthread_mutex_lock(&s->lock);
    n = x->n_tokens - x->sent, ended = x->ended, left = x->left;
    waits = !n && !ended && !left;
    if (waits) exchange_suspend(x);
    pthread_mutex_unlock(&s->lock);
    if (left) return -1;
    if (waits) return 0;
    x->event = NULL;
    if (x->part == STREAM_TOKENS) {
        const uint32_t count = n < MAX_EVENT_TOKENS ? n : MAX_EVENT_TOKENS;
        const uint32_t last = ended && count == n;
        x->event = event_of_tokens(&x->a, x->tokens + x->sent, count, last ? finish_of(x) : NULL);
        x->sent += count;
        if (last)
            x->part = x->end == ENGINE_FAILED    ? STREAM_ERROR
                      : x->request.include_usage ? STREAM_USAGE
                                                 : STREAM_END;
    } else if (x->part == STREAM_ERROR) {
        x->event = event_of_error(x->error);
        x->part = x->request.include_usage ? STREAM_USAGE : STREAM_END;
    } else if (x->part == STREAM_USAGE) {
        x->event = event_of_usage(&x->a, usage_of(x));
        x->part = STREAM_END;
    } else {
        x->event = event_of_end();
        x->part = STREAM_OVER;
    }
    x->event_bytes = x->event ? strlen(x->event) : 0, x->event_sent = 0;
    return x->event ? 1 : -1;
}

/* libmicrohttpd asks for bytes of a stream. */
static ssize_t read_stream_bytes(void *user, uint64_t at, char *to, size_t room)
{
    exchange *x = (exchange *)user;
    size_t n;
    (void)at;
    if (x->event_sent == x->event_bytes) {
        int made;
        free(x->event);
        x->event = NULL, x->event_bytes = x->event_sent = 0;
        if (x->part == STREAM_OVER) return MHD_CONTENT_READER_END_OF_STREAM;
        made = next_event(x);
        if (made <= 0) return made ? MHD_CONTENT_READER_END_WITH_ERROR : 0;
    }
    n = x->event_bytes - x->event_sent;
    if (n > room) n = room;
    memcpy(to, x->event + x->event_sent, n);
    x->event_sent += n;
    return (ssize_t)n;
}

static enum MHD_Result answer_stream(exchange *x)
{
    server *s = x->s;
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream_bytes, x, NULL);
    enum MHD_Result result;
    if (!r) return MHD_NO;
    add_headers(x, r);
    MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    pthread_mutex_lock(&s->lock);
    s->counters.responses[200]++;
    pthread_mutex_unlock(&s->lock);
    result = MHD_queue_response(x->connection, 200, r);
    MHD_destroy_response(r);
    return result;
}

/* ---- requests ---- */

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
        return refuse_too_long(&x->why, fits ? "max_tokens" : prompt, fits,
                               "does not fit into memory");
    default:
        return refuse(&x->why, 503, "", "the engine takes no requests");
    }
}

/* Parses the body and submits its job. 0, or -1 and x->why. */
static int exchange_submit(exchange *x)
{
    server *s = x->s;
    completion *c = &x->request;
    uint32_t fits = 0;
    engine_job job;
    engine_status status;
    int bad;
    if (completion_parse(c, routes[x->route].kind, x->body, x->bytes, &s->rules, &x->why))
        return -1;
    bad = text_to_tokens(&s->codec, c, &x->why) ||
          completion_fit(c, c->n_tokens, &s->rules.limits, &x->why);
    if (!bad) {
        x->tokens = (uint32_t *)malloc(c->max_tokens * sizeof *x->tokens);
        if (!x->tokens) bad = refuse(&x->why, 503, "max_tokens", "no memory is left");
    }
    if (!bad) {
        memset(&job, 0, sizeof job);
        x->n_prompt = c->n_tokens;
        job.prompt = c->tokens, job.n_prompt = c->n_tokens, job.max_tokens = c->max_tokens,
        job.ignore_eos = c->ignore_eos;
        job.priority = c->priority, job.user = x;
        x->a.codec = &s->codec, x->a.kind = c->kind, x->a.model = s->desc.model;
        x->a.created = (int64_t)time(NULL);
        pthread_mutex_lock(&s->lock);
        x->a.number = ++s->numbers;
        if (!c->has_seed) c->sample.seed = s->seed + x->a.number;
        x->holders++;
        x->submitted = 1;
        if (x->c) x->c->deadline = 0;
        pthread_mutex_unlock(&s->lock);
        job.sample = c->sample;
        /* before it has events */
        trace_request(s->desc.trace, c->priority, x->a.number, x->n_prompt, c->max_tokens);
        server_log(s, x, "arrives");
        status = engine_submit(s->e, &job, &x->ticket, &fits);
        pthread_mutex_lock(&s->lock);
        if (status) x->holders--, x->submitted = 0;
        if (!status) s->counters.prompt_tokens += x->n_prompt;
        pthread_mutex_unlock(&s->lock);
        bad = refuse_status(x, status, fits);
    }
    completion_free_prompt(c);
    return bad;
}

static enum MHD_Result answer_request(exchange *x)
{
    server *s = x->s;
    engine_load load;
    char *text;
    uint32_t stopping;
    x->received = server_now();
    pthread_mutex_lock(&s->lock);
    stopping = s->stopping;
    pthread_mutex_unlock(&s->lock);
    if (x->is_refused) return respond_refusal(x);
    switch (x->route) {
    case ROUTE_MODELS:
        return respond_json(x, 200, answer_models(s->desc.model, &s->rules.limits, s->created));
    case ROUTE_HEALTH:
        load = engine_load_of(s->e);
        return respond_json(x, load.failed || stopping ? 503 : 200, answer_health(&load, stopping));
    case ROUTE_METRICS:
        load = engine_load_of(s->e);
        pthread_mutex_lock(&s->lock);
        text = metrics_print(&s->counters, &load);
        pthread_mutex_unlock(&s->lock);
        return respond(x, 200, "text/plain; version=0.0.4", text);
    default:
        break;
    }
    if (stopping) {
        refuse(&x->why, 503, "", "the server stops");
        return respond_refusal(x);
    }
    if (exchange_submit(x)) {
        if (x->a.number) server_log(s, x, "refused");
        return respond_refusal(x);
    }
    exchange_free_body(x);
    return x->request.stream ? answer_stream(x) : answer_whole_or_wait(x);
}

/* The time it takes depends on what the client sent, and not on how much of it is right. */
static int keys_are_equal(const char *key, const char *given)
{
    const size_t n = strlen(key), m = strlen(given);
    volatile unsigned char differs = n != m;
    for (size_t i = 0; i < m; i++)
        differs = (unsigned char)(differs | (given[i] ^ key[n ? i % n : 0]));
    return !differs;
}

/* The path of a request, whose line may have the whole address. */
static const char *path_of(const char *url)
{
    const char *rest = strstr(url, "://");
    if (url[0] == '/' || !rest) return url;
    rest += 3;
    return rest[strcspn(rest, "/")] ? rest + strcspn(rest, "/") : "/";
}

/* Whether this is the question of a browser, before it sends a request of another site's page. */
static int is_preflight(const exchange *x, const char *method)
{
    return !strcmp(method, MHD_HTTP_METHOD_OPTIONS) && *header_of(x, MHD_HTTP_HEADER_ORIGIN) &&
           *header_of(x, MHD_HTTP_HEADER_ACCESS_CONTROL_REQUEST_METHOD);
}

/* The key, the method and the type: what the header alone shows of a request whose end is known. The key comes first. */
static int check_request(const exchange *x, const char *method, refusal *why)
{
    const server *s = x->s;
    const char *key = bearer_of(header_of(x, MHD_HTTP_HEADER_AUTHORIZATION));
    const char *expects = header_of(x, MHD_HTTP_HEADER_EXPECT);
    const char *coding = header_of(x, MHD_HTTP_HEADER_CONTENT_ENCODING);
    const uint64_t length = strtoull(header_of(x, MHD_HTTP_HEADER_CONTENT_LENGTH), NULL, 10);
    const route *r = x->route < ROUTES ? &routes[x->route] : NULL;
    if (s->desc.api_key && !(r && r->is_open) && (!key || !keys_are_equal(s->desc.api_key, key)))
        return refuse(why, 401, "Authorization", "needs \"Bearer\" and the API key");
    if (!r) return refuse(why, 404, "", "there is no such path");
    if (strcmp(method, r->method) && !(r->method[0] == 'G' && !strcmp(method, "HEAD")))
        return refuse(why, 405, "", "this path takes %s", r->method);
    if (*expects && strcasecmp(expects, "100-continue"))
        return refuse(why, 417, "Expect", "only \"100-continue\" is known");
    if (*coding && strcasecmp(coding, "identity"))
        return refuse(why, 415, "Content-Encoding", "bodies are taken as they are, not compressed");
    if (r->method[0] == 'P' && !is_json_type(header_of(x, MHD_HTTP_HEADER_CONTENT_TYPE)))
        return refuse(why, 415, "Content-Type", "must be application/json");
    if (length > s->desc.max_body)
        return refuse_too_long(why, "Content-Length", s->desc.max_body, "too many bytes");
    return 0;
}

/* Allows a page of --cors what it asks for. */
static enum MHD_Result answer_preflight(exchange *x)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    const char *wanted = header_of(x, MHD_HTTP_HEADER_ACCESS_CONTROL_REQUEST_HEADERS);
    enum MHD_Result result;
    if (!r) return MHD_NO;
    add_headers(x, r);
    MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_METHODS, "GET, POST");
    if (*wanted) MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_HEADERS, wanted);
    MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_MAX_AGE, "600");
    result = MHD_queue_response(x->connection, 204, r);
    MHD_destroy_response(r);
    return result;
}

/* The header is there. Most refusals wait until the body was read: a client that still sends would lose its answer. One
   that waits to be told to send, or that has too much, is answered at once, and so is one whose body has no certain end. */
static enum MHD_Result begin_request(exchange *x, const char *url, const char *method,
                                     const char *version)
{
    const server *s = x->s;
    http_site site;
    request_head h;
    memset(&h, 0, sizeof h);
    site.names = s->desc.names, site.origins = s->desc.origins, site.has_key = !!s->desc.api_key;
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, head_line, &h);
    while (x->route < ROUTES && strcmp(path_of(url), routes[x->route].path)) x->route++;
    if (head_framing(&h, version, MAX_HEADER_BYTES, &x->why)) {
        x->closes = x->is_refused = 1;
        return respond_refusal(x);
    }
    x->is_refused = head_site(&h, &site, &x->why) != 0;
    if (!x->is_refused && is_preflight(x, method) && origin_is_listed(s->desc.origins, h.origin))
        return answer_preflight(x);
    if (!x->is_refused) x->is_refused = check_request(x, method, &x->why) != 0;
    if (!x->is_refused) return MHD_YES;
    x->closes = *header_of(x, MHD_HTTP_HEADER_EXPECT) ||
                (h.length && strtoull(h.length, NULL, 10) > MAX_DROPPED_BYTES);
    return x->closes ? respond_refusal(x) : MHD_YES;
}

/* Keeps the bytes of a body that come, unless the request is refused anyway. MHD_NO: they do not end. */
static enum MHD_Result exchange_take(exchange *x, const char *bytes, size_t n)
{
    server *s = x->s;
    if (x->is_refused) {
        x->dropped += n;
        return x->dropped > MAX_DROPPED_BYTES ? MHD_NO : MHD_YES;
    }
    if (n > s->desc.max_body - x->bytes) { /* a chunked body, whose length was not known */
        refuse_too_long(&x->why, "", s->desc.max_body, "the body has too many bytes");
        x->is_refused = 1;
    } else if (x->bytes + n > x->room) {
        const size_t room = 2 * (x->bytes + n);
        char *more = NULL;
        pthread_mutex_lock(&s->lock);
        if (s->body_bytes + room - x->room <= (uint64_t)MAX_BODIES * s->desc.max_body) {
            more = (char *)realloc(x->body, room);
            if (more) s->body_bytes += room - x->room, x->body = more, x->room = room;
        }
        pthread_mutex_unlock(&s->lock);
        if (!more) {
            refuse(&x->why, 429, "", "too many requests are being received");
            x->is_refused = 1;
        }
    }
    if (x->is_refused) {
        exchange_free_body(x);
        return MHD_YES;
    }
    memcpy(x->body + x->bytes, bytes, n);
    x->bytes += n;
    return MHD_YES;
}

static exchange *exchange_begin(server *s, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    exchange *x = (exchange *)calloc(1, sizeof *x);
    if (!x) return NULL;
    x->s = s, x->connection = connection;
    x->holders = 1;
    x->c = info ? (client *)info->socket_context : NULL;
    pthread_mutex_lock(&s->lock);
    s->counters.requests++;
    pthread_mutex_unlock(&s->lock);
    return x;
}

/* libmicrohttpd calls this when the header is there, for each part of the body, at the body's end, and when a connection
   goes on. */
static enum MHD_Result handle(void *user, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_bytes, void **state)
{
    exchange *x = (exchange *)*state;
    if (!x) {
        *state = x = exchange_begin((server *)user, connection);
        return x && x->c ? begin_request(x, url, method, version) : MHD_NO;
    }
    if (*upload_bytes) {
        const size_t n = *upload_bytes;
        *upload_bytes = 0;
        return exchange_take(x, upload, n);
    }
    return x->submitted ? answer_whole_or_wait(x) : answer_request(x);
}

/* ---- connections ---- */

static void client_changed(void *user, struct MHD_Connection *connection, void **context,
                           enum MHD_ConnectionNotificationCode code)
{
    server *s = (server *)user;
    client *c = (client *)*context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        c = (client *)calloc(1, sizeof *c);
        *context = c;
        if (!c || !info) return; /* its requests are not taken */
        c->fd = info->connect_fd;
        pthread_mutex_lock(&s->lock);
        c->deadline = server_now() + s->desc.seconds;
        c->next = s->clients;
        if (c->next) c->next->before = c;
        s->clients = c;
        s->counters.connections++;
        pthread_mutex_unlock(&s->lock);
    } else if (c) {
        pthread_mutex_lock(&s->lock);
        if (c->next) c->next->before = c->before;
        if (c->before)
            c->before->next = c->next;
        else
            s->clients = c->next;
        s->counters.connections--;
        pthread_mutex_unlock(&s->lock);
        free(c);
        *context = NULL;
    }
}

/* Under the lock: shuts late connections down, and returns how many have a request that waits. */
static uint32_t sweep_deadlines(server *s, struct pollfd *polls, exchange **waiting)
{
    const double now = server_now();
    uint32_t n = 0;
    for (client *c = s->clients; c; c = c->next) {
        if (c->deadline > 0 && now > c->deadline) {
            shutdown(c->fd, SHUT_RDWR); /* libmicrohttpd sees that, and closes it */
            c->deadline = 0;
        }
        if (!c->waits || n == s->desc.connections) continue;
        polls[n].fd = c->fd, polls[n].events = POLLRDHUP, polls[n].revents = 0;
        waiting[n++] = c->waits;
    }
    return n;
}

static void *sweep(void *user)
{
    server *s = (server *)user;
    const struct timespec pause = {0, SWEEP_NS};
    struct pollfd *polls = (struct pollfd *)calloc(s->desc.connections, sizeof *polls);
    exchange **waiting = (exchange **)calloc(s->desc.connections, sizeof *waiting);
    uint64_t *tickets = (uint64_t *)calloc(s->desc.connections, sizeof *tickets);
    uint32_t stopping = !polls || !waiting || !tickets;
    while (!stopping) {
        uint32_t n, left = 0;
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&s->lock);
        stopping = s->stopping;
        n = sweep_deadlines(s, polls, waiting);
        if (poll(polls, n, 0) <= 0) n = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (!polls[i].revents) continue;
            tickets[left++] = waiting[i]->ticket;
            waiting[i]->left = 1;
            exchange_resume(waiting[i]);
        }
        pthread_mutex_unlock(&s->lock);
        for (uint32_t i = 0; i < left; i++) engine_cancel(s->e, tickets[i]);
    }
    free(polls);
    free((void *)waiting);
    free(tickets);
    return NULL;
}

/* ---- start and stop ---- */

/* Starts to listen; s->e is open. 0, or -1 and an error; call server_stop in any case. */
static int server_start(server *s, char *error, size_t bytes)
{
    struct addrinfo hints, *address = NULL;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    int bad;
    memset(&hints, 0, sizeof hints);
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
    hints.ai_socktype = SOCK_STREAM;
    s->rules.limits = engine_limits_of(s->e), s->rules.model = s->desc.model;
    s->rules.has_text = s->codec.is_open;
    s->created = (int64_t)time(NULL), s->began = server_now();
    if (random_seed(&s->seed)) {
        snprintf(error, bytes, "no random numbers");
        return -1;
    }
    trace_begin(s->desc.trace);
    bad = getaddrinfo(s->desc.host, s->desc.port, &hints, &address);
    if (bad) {
        snprintf(error, bytes, "%s, port %s: %s", s->desc.host, s->desc.port, gai_strerror(bad));
        return -1;
    }
    if (pthread_create(&s->sweeper, NULL, sweep, s)) {
        snprintf(error, bytes, "no thread can be made");
        freeaddrinfo(address);
        return -1;
    }
    s->sweeps = 1;
    if (address->ai_family == AF_INET6) flags |= MHD_USE_IPv6;
    s->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, handle, s, MHD_OPTION_SOCK_ADDR, address->ai_addr,
        MHD_OPTION_NOTIFY_COMPLETED, exchange_completed, s, MHD_OPTION_NOTIFY_CONNECTION,
        client_changed, s, MHD_OPTION_CONNECTION_LIMIT, s->desc.connections,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, s->desc.of_address, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, s->desc.seconds,
        MHD_OPTION_LISTEN_BACKLOG_SIZE, 1024u, MHD_OPTION_END);
    freeaddrinfo(address);
    if (s->daemon) return 0;
    snprintf(error, bytes, "%s, port %s: cannot listen", s->desc.host, s->desc.port);
    return -1;
}

/* The port that it listens on, where desc.port is 0. */
static unsigned server_port(const server *s)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
    return info ? info->port : 0;
}

/* Cancels every job, gives clients a while to read what was generated, and closes all connections. The engine stays
   open, stopped. */
static void server_stop(server *s)
{
    const struct timespec pause = {0, SWEEP_NS};
    const double since = server_now();
    uint64_t open = 1;
    pthread_mutex_lock(&s->lock);
    s->stopping = 1;
    pthread_mutex_unlock(&s->lock);
    engine_stop(s->e);
    if (s->sweeps) pthread_join(s->sweeper, NULL);
    while (open && server_now() - since < STOP_SECONDS) {
        pthread_mutex_lock(&s->lock);
        open = s->counters.requests;
        pthread_mutex_unlock(&s->lock);
        if (open) nanosleep(&pause, NULL);
    }
    if (s->daemon) MHD_stop_daemon(s->daemon);
    if (s->began > 0) trace_end(s->desc.trace);
    s->daemon = NULL, s->sweeps = 0;
}

#endif /* SERVE_SERVER_H */
