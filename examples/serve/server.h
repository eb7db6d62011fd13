/* server.h: HTTP, by libmicrohttpd: connections, routes, and what happens to a request until it is
   answered.

   THREADS   One thread of libmicrohttpd reads and writes, and does nothing that takes long. Workers
             parse bodies, make tokens of texts, submit jobs and write whole answers. The engine's
             threads call server_event. The sweeper looks after what libmicrohttpd does not see:
             clients that leave while their connection is suspended, and requests that never become
             complete.
   LOCK      One lock guards the fields that are said to be under it, and the counters. It is held
             while a connection is suspended or resumed, and never while the engine is called.
   WAITING   A connection that waits for a worker or for tokens is suspended, and resumed when there
             is something to write: a plain answer when all of its jobs have ended, a stream when
             there are tokens. Tokens wait until the client reads, in buffers of max_tokens, so that
             a client that reads slowly delays nothing. */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include "exchange.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

/* Paths of the API that this server does not have. */
static const struct {
    const char *path, *what;
} known_paths[] = {{"/v1/responses", "responses"},
                   {"/v1/embeddings", "embeddings"},
                   {"/v1/audio", "audio"},
                   {"/v1/images", "images"},
                   {"/v1/moderations", "moderations"},
                   {"/v1/assistants", "assistants"},
                   {"/v1/threads", "threads"},
                   {"/v1/files", "files"},
                   {"/v1/batches", "batches"},
                   {"/v1/fine_tuning", "fine-tuning"},
                   {"/v1/rerank", "reranking"},
                   {"/v1/messages", "messages of Anthropic's API"},
                   {"/api/", "Ollama's API"}};

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
    MHD_add_response_header(r, "X-Request-Id", x->id);
    if (x->closes) MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close");
    if (!*origin || !origin_is_listed(x->s->desc.origins, origin)) return;
    MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    MHD_add_response_header(r, MHD_HTTP_HEADER_ACCESS_CONTROL_EXPOSE_HEADERS, "X-Request-Id");
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

/* ---- answers to completions ---- */

/* Under the lock: the next choice that has something to say, or null. */
static choice *next_choice(exchange *x)
{
    for (uint32_t i = 0; i < x->n_choices; i++) {
        choice *h = &x->choices[(x->turn + i) % x->n_choices];
        if (h->over || (h->n_tokens == h->sent_tokens && !choice_finished(h))) continue;
        x->turn = (h->index + 1) % x->n_choices;
        return h;
    }
    return NULL;
}

/* Under the lock: a choice's event. Copies what is ready, since the text moves when it grows. */
static char *event_of_news(exchange *x, choice *h)
{
    const uint32_t left = h->n_tokens - h->sent_tokens;
    const uint32_t n = left < MAX_EVENT_TOKENS ? left : MAX_EVENT_TOKENS;
    const uint32_t last = choice_finished(h) && n == left;
    const char *text = h->text.at ? h->text.at : "";
    said what;
    char *event;
    h->sent += split_text(&x->a, h, "delta", text + h->sent, h->ready - h->sent, last, &what);
    event = event_of_choice(&x->a, choice_object(&x->a, h, "delta", !h->begun, &what,
                                                 h->sent_tokens, n, last ? finish_of(h) : NULL));
    h->sent_tokens += n;
    h->begun = 1, h->over = last;
    return event;
}

/* Makes the next event of a stream. 0: the connection was suspended, and there is none yet; -1: the
   client has left, or no memory is. */
static int next_event(exchange *x)
{
    server *s = x->s;
    const choice *failed;
    choice *next = NULL;
    uint32_t left, waits;
    pthread_mutex_lock(&s->lock);
    left = x->left, failed = failed_choice(x);
    if (!left && x->part == STREAM_TOKENS) {
        next = next_choice(x);
        if (!next && !failed && !x->running)
            x->part = x->request.include_usage ? STREAM_USAGE : STREAM_END;
    }
    waits = !left && !failed && !next && x->part == STREAM_TOKENS;
    if (waits) exchange_suspend(x);
    if (next) x->event = event_of_news(x, next);
    pthread_mutex_unlock(&s->lock);
    if (left) return -1;
    if (waits) return 0;
    if (failed && !next) {
        const char *code, *message = failure_of(failed, &code);
        x->event = event_of_error(message, code);
        x->part = STREAM_OVER;
    } else if (!next && x->part == STREAM_USAGE) {
        x->event = event_of_usage(&x->a, x->used);
        x->part = STREAM_END;
    } else if (!next) {
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

/* Answers a request that workers have done with. */
static enum MHD_Result answer_text(exchange *x)
{
    const choice *failed = failed_choice(x);
    char *text = x->text;
    x->text = NULL;
    return respond_json(x, !failed ? 200 : failed->end == ENGINE_CANCELLED ? 503 : 500, text);
}

/* Under the lock: hands a request to the workers, unless the server stops. */
static void exchange_hand_over(exchange *x)
{
    if (x->asked) return;
    x->asked = 1;
    if (x->s->draining)
        x->is_refused = x->parsed = 1;
    else {
        if (x->c) x->c->deadline = 0;
        exchange_ask(x, WORK_PARSE);
    }
}

/* The body of a request is there, or its connection goes on. */
static enum MHD_Result answer_post(exchange *x)
{
    server *s = x->s;
    uint32_t left, parsed, ready, is_refused;
    if (!x->asked) {
        x->received = server_now();
        refuse(&x->why, 503, "", "the server stops"); /* unless it is handed over */
    }
    pthread_mutex_lock(&s->lock);
    exchange_hand_over(x);
    left = x->left, parsed = x->parsed, is_refused = parsed && x->is_refused;
    ready = parsed && (is_refused || x->written || x->request.stream);
    if (!ready && !left) exchange_suspend(x);
    pthread_mutex_unlock(&s->lock);
    if (left) return MHD_NO;
    if (!ready) return MHD_YES;
    if (is_refused) return respond_refusal(x);
    return x->written ? answer_text(x) : answer_stream(x);
}

static enum MHD_Result answer_get(exchange *x)
{
    server *s = x->s;
    engine_load load;
    char *text;
    uint32_t draining;
    switch (x->route) {
    case ROUTE_MODELS:
        return respond_json(x, 200, answer_models(s->desc.model, &s->rules.limits, s->created));
    case ROUTE_MODEL:
        return respond_json(x, 200,
                            dumped(model_object(s->desc.model, &s->rules.limits, s->created)));
    case ROUTE_VERSION:
        return respond_json(x, 200, answer_version(s->desc.version));
    case ROUTE_HEALTH:
        load = engine_load_of(s->e);
        pthread_mutex_lock(&s->lock);
        draining = s->draining;
        pthread_mutex_unlock(&s->lock);
        return respond_json(x, load.failed || draining ? 503 : 200,
                            answer_health(&load, load.failed ? "failed"
                                                 : draining  ? "draining"
                                                             : "ok"));
    default:
        load = engine_load_of(s->e);
        pthread_mutex_lock(&s->lock);
        text = metrics_print(&s->counters, &load);
        pthread_mutex_unlock(&s->lock);
        return respond(x, 200, "text/plain; version=0.0.4", text);
    }
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
    snprintf(x->id, sizeof x->id, "req-%016llx-%llu", (unsigned long long)s->run,
             (unsigned long long)++s->requests);
    pthread_mutex_unlock(&s->lock);
    return x;
}

/* A client's own name for its request, in the answer and in the log. */
static void name_request(exchange *x, const char *name)
{
    const size_t n = strlen(name);
    if (n && n < sizeof x->id &&
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/+=") == n)
        memcpy(x->id, name, n + 1);
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

/* A model by its name. */
static int check_model(const server *s, const char *name, refusal *why)
{
    if (!strcmp(name, s->desc.model)) return 0;
    refuse(why, 404, "model", "this server has one model, \"%.64s\"", s->desc.model);
    why->code = "model_not_found";
    return -1;
}

static int refuse_path(const char *url, refusal *why)
{
    for (size_t i = 0; i < sizeof known_paths / sizeof known_paths[0]; i++)
        if (!strncmp(url, known_paths[i].path, strlen(known_paths[i].path)))
            return refuse(why, 404, "",
                          "this server does not have %s; it has /v1/chat/completions, "
                          "/v1/completions and /v1/models",
                          known_paths[i].what);
    return refuse(why, 404, "", "there is no such path");
}

/* The key, the method and the type: what the header alone shows of a request whose end is known.
   The key comes first. */
static int check_request(const exchange *x, const char *url, const char *method, refusal *why)
{
    const server *s = x->s;
    const char *key = bearer_of(header_of(x, MHD_HTTP_HEADER_AUTHORIZATION));
    const char *expects = header_of(x, MHD_HTTP_HEADER_EXPECT);
    const char *coding = header_of(x, MHD_HTTP_HEADER_CONTENT_ENCODING);
    const uint64_t length = strtoull(header_of(x, MHD_HTTP_HEADER_CONTENT_LENGTH), NULL, 10);
    const route *r = x->route < ROUTES ? &routes[x->route] : NULL;
    if (s->desc.api_key && !(r && r->is_open) && (!key || !keys_are_equal(s->desc.api_key, key)))
        return refuse(why, 401, "Authorization", "needs \"Bearer\" and the API key");
    if (!r) return refuse_path(url, why);
    if (strcmp(method, r->method) && !(r->method[0] == 'G' && !strcmp(method, "HEAD")))
        return refuse(why, 405, "", "this path takes %s", r->method);
    if (x->route == ROUTE_MODEL && check_model(s, url + strlen(r->path), why)) return -1;
    if (*expects && strcasecmp(expects, "100-continue"))
        return refuse(why, 417, "Expect", "only \"100-continue\" is known");
    if (*coding && strcasecmp(coding, "identity"))
        return refuse(why, 415, "Content-Encoding", "bodies are taken as they are, not compressed");
    if (r->method[0] == 'P' && !is_json_type(header_of(x, MHD_HTTP_HEADER_CONTENT_TYPE)))
        return refuse(why, 415, "Content-Type", "must be application/json");
    if (length > s->desc.max_body)
        return refuse_long_body(why, "Content-Length", s->desc.max_body, "too many bytes");
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

/* The header is there. Most refusals wait until the body was read: a client that still sends
   would lose its answer. One that waits to be told to send, or that has too much, is answered at
   once, and so is one whose body has no certain end. */
static enum MHD_Result begin_request(exchange *x, const char *url, const char *method,
                                     const char *version)
{
    const server *s = x->s;
    http_site site;
    request_head h;
    memset(&h, 0, sizeof h);
    site.names = s->desc.names, site.origins = s->desc.origins, site.has_key = !!s->desc.api_key;
    MHD_get_connection_values(x->connection, MHD_HEADER_KIND, head_line, &h);
    url = path_of(url);
    while (x->route < ROUTES && strcmp(url, routes[x->route].path)) x->route++;
    if (!strncmp(url, "/v1/models/", 11)) x->route = ROUTE_MODEL;
    name_request(x, header_of(x, "X-Request-Id"));
    if (head_framing(&h, version, MAX_HEADER_BYTES, &x->why)) {
        x->closes = x->is_refused = 1;
        return respond_refusal(x);
    }
    x->is_refused = head_site(&h, &site, &x->why) != 0;
    if (!x->is_refused && is_preflight(x, method) && origin_is_listed(s->desc.origins, h.origin))
        return answer_preflight(x);
    if (!x->is_refused) x->is_refused = check_request(x, url, method, &x->why) != 0;
    if (!x->is_refused) return MHD_YES;
    x->closes = *header_of(x, MHD_HTTP_HEADER_EXPECT) ||
                (h.length && strtoull(h.length, NULL, 10) > MAX_DROPPED_BYTES);
    return x->closes ? respond_refusal(x) : MHD_YES;
}

/* Keeps the bytes of a body that come, unless the request is refused anyway. MHD_NO: they do not
   end. */
static enum MHD_Result exchange_take(exchange *x, const char *bytes, size_t n)
{
    server *s = x->s;
    if (x->is_refused) {
        x->dropped += n;
        return x->dropped > MAX_DROPPED_BYTES ? MHD_NO : MHD_YES;
    }
    if (n > s->desc.max_body - x->bytes) { /* a chunked body, whose length was not known */
        refuse_long_body(&x->why, "", s->desc.max_body, "the body has too many bytes");
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

/* libmicrohttpd calls this when the header is there, for each part of the body, at the body's
   end, and when a connection goes on. */
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
    if (!x->asked && x->is_refused) return respond_refusal(x);
    return routes[x->route].method[0] == 'P' ? answer_post(x) : answer_get(x);
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

/* Clients that have left are seen when their connections go on; their jobs are cancelled then. */
static void *sweep(void *user)
{
    server *s = (server *)user;
    const struct timespec pause = {0, SWEEP_NS};
    struct pollfd *polls = (struct pollfd *)calloc(s->desc.connections, sizeof *polls);
    exchange **waiting = (exchange **)calloc(s->desc.connections, sizeof *waiting);
    uint32_t stopping = !polls || !waiting;
    while (!stopping) {
        uint32_t n;
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&s->lock);
        stopping = s->stopping;
        n = sweep_deadlines(s, polls, waiting);
        if (poll(polls, n, 0) <= 0) n = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (!polls[i].revents) continue;
            waiting[i]->left = 1;
            exchange_resume(waiting[i]);
        }
        pthread_mutex_unlock(&s->lock);
    }
    free(polls);
    free((void *)waiting);
    return NULL;
}

/* ---- start and stop ---- */

static int start_threads(server *s)
{
    pthread_cond_init(&s->work, NULL);
    s->queue_end = &s->queue;
    if (pthread_create(&s->sweeper, NULL, sweep, s)) return -1;
    s->sweeps = 1;
    for (; s->n_workers < SERVER_WORKERS; s->n_workers++)
        if (pthread_create(&s->workers[s->n_workers], NULL, work, s)) return -1;
    return 0;
}

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
    s->rules.has_text = s->codec.is_open, s->rules.strict = s->desc.strict;
    s->created = (int64_t)time(NULL), s->began = server_now();
    if (random_seed(&s->seed) || random_seed(&s->run)) {
        snprintf(error, bytes, "no random numbers");
        return -1;
    }
    trace_begin(s->desc.trace);
    bad = getaddrinfo(s->desc.host, s->desc.port, &hints, &address);
    if (bad) {
        snprintf(error, bytes, "%s, port %s: %s", s->desc.host, s->desc.port, gai_strerror(bad));
        return -1;
    }
    if (start_threads(s)) {
        snprintf(error, bytes, "no thread can be made");
        freeaddrinfo(address);
        return -1;
    }
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

static uint64_t requests_open(server *s)
{
    uint64_t n;
    pthread_mutex_lock(&s->lock);
    n = s->counters.requests;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* From now on no job is taken, and those that were end by themselves. */
static void server_drain(server *s)
{
    pthread_mutex_lock(&s->lock);
    s->draining = 1;
    pthread_mutex_unlock(&s->lock);
}

/* Cancels every job, gives clients a while to read their answers, and closes all connections. The
   engine stays open, stopped. */
static void server_stop(server *s)
{
    const struct timespec pause = {0, SWEEP_NS};
    const double since = server_now();
    pthread_mutex_lock(&s->lock);
    s->draining = s->stopping = 1;
    pthread_mutex_unlock(&s->lock);
    engine_stop(s->e);
    if (s->sweeps) pthread_join(s->sweeper, NULL);
    while (requests_open(s) && server_now() - since < STOP_SECONDS) nanosleep(&pause, NULL);
    pthread_mutex_lock(&s->lock);
    s->quits = 1;
    if (s->n_workers) pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (; s->n_workers; s->n_workers--) pthread_join(s->workers[s->n_workers - 1], NULL);
    if (s->daemon) MHD_stop_daemon(s->daemon);
    if (s->began > 0) trace_end(s->desc.trace);
    if (s->queue_end) pthread_cond_destroy(&s->work);
    s->daemon = NULL, s->sweeps = 0, s->queue_end = NULL;
}

#endif /* SERVE_SERVER_H */
