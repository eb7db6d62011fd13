// run: asan whole -O1
// run: tsan whole
/* The server of examples/serve over sockets of 127.0.0.1, with an engine whose answers repeat their prompts
   (engine_test.c) and the tokenizer of tests/fixtures: statuses, streams, limits, clients that leave, stall or send nonsense, and the end. Each test has a
   server of its own. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "../../examples/serve/server.h"
#include "engine_test.c"
#include "test.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#define JSON "Content-Type: application/json\r\n"

/* ---- a server for a test ---- */

typedef struct setup {
    uint32_t context, batch, queue, body, connections, seconds, step_us;
    uint32_t has_no_text, strict;
    const char *key;
    output *trace;
} setup;

static setup plain_setup(void)
{
    setup s;
    memset(&s, 0, sizeof s);
    return s;
}

static void server_open(test_run *t, server *s, const setup *want)
{
    char error[512], step[16];
    engine_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(s, 0, sizeof *s);
    snprintf(step, sizeof step, "%u", want->step_us);
    setenv("TEST_STEP_US", step, 1);
    pthread_mutex_init(&s->lock, NULL);
    desc.context = want->context ? want->context : 4096,
    desc.batch = want->batch ? want->batch : 64;
    desc.queue = want->queue ? want->queue : 1000;
    desc.on_event = server_event, desc.user = s;
    s->desc.host = "127.0.0.1", s->desc.port = "0", s->desc.model = "tiny";
    s->desc.version = "7.8", s->desc.strict = want->strict;
    s->desc.api_key = want->key, s->desc.trace = want->trace;
    s->desc.max_body = want->body ? want->body : 65536,
    s->desc.seconds = want->seconds ? want->seconds : 20;
    s->desc.connections = want->connections ? want->connections : 500;
    s->e = engine_open(&desc, error, sizeof error);
    if (!s->e ||
        text_open(&s->codec, want->has_no_text ? "tests" : "tests/fixtures/qwen3-tiny", NULL,
                  TEST_VOCAB, error, sizeof error) ||
        server_start(s, error, sizeof error))
        test_fail(t, __FILE__, __LINE__, "%s", error);
}

static void server_close(server *s)
{
    server_stop(s);
    engine_close(s->e);
    text_close(&s->codec);
    pthread_mutex_destroy(&s->lock);
}

static void pause_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

static uint32_t jobs_of(server *s)
{
    const engine_load load = engine_load_of(s->e);
    return load.waiting[0] + load.waiting[1] + load.running[0] + load.running[1];
}

/* Whether so many jobs were submitted, at the latest after 10 s. */
static int soon_submitted(server *s, uint64_t want)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < 2000 && n != want; i++) {
        pthread_mutex_lock(&s->lock);
        n = s->numbers;
        pthread_mutex_unlock(&s->lock);
        if (n != want) pause_ms(5);
    }
    return n == want;
}

static uint64_t open_requests(server *s)
{
    uint64_t n;
    pthread_mutex_lock(&s->lock);
    n = s->counters.requests;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* Whether so many jobs are left, at the latest after 10 s. */
static int soon_jobs(server *s, uint32_t n)
{
    for (uint32_t i = 0; i < 1000 && jobs_of(s) != n; i++) pause_ms(10);
    return jobs_of(s) == n;
}

/* ---- clients ---- */

static int dial(server *s)
{
    struct sockaddr_in to;
    const struct timeval limit = {20, 0};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    memset(&to, 0, sizeof to);
    to.sin_family = AF_INET;
    to.sin_port = htons((uint16_t)server_port(s));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, (struct sockaddr *)&to, sizeof to)) abort();
    return fd;
}

static void say(int fd, const char *text)
{
    size_t n = strlen(text);
    while (n) {
        const ssize_t sent = send(fd, text, n, MSG_NOSIGNAL);
        if (sent <= 0) return;
        text += sent, n -= (size_t)sent;
    }
}

/* A whole POST, after which the server closes. */
static int post(server *s, const char *path, const char *body)
{
    char head[512];
    const int fd = dial(s);
    snprintf(head, sizeof head,
             "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" JSON
             "Content-Length: %zu\r\n\r\n",
             path, strlen(body));
    say(fd, head);
    say(fd, body);
    return fd;
}

typedef struct reply {
    int status; /* 0: none came */
    char *text; /* all bytes */
    char *body; /* in it; chunks are joined */
} reply;

static void join_chunks(char *body)
{
    char *from = body, *to = body;
    for (;;) {
        char *end;
        const unsigned long n = strtoul(from, &end, 16);
        if (!n || strlen(end) < n + 4) break;
        memmove(to, end + 2, n);
        to += n, from = end + 2 + n + 2;
    }
    *to = 0;
}

/* Reads until the server closes. */
static reply listen_to(int fd)
{
    reply r;
    size_t room = 65536, n = 0;
    memset(&r, 0, sizeof r);
    r.text = (char *)malloc(room);
    for (;;) {
        const ssize_t got = recv(fd, r.text + n, room - n - 1, 0);
        if (got <= 0) break;
        n += (size_t)got;
        if (room - n < 4096) r.text = (char *)realloc(r.text, room *= 2);
    }
    close(fd);
    r.text[n] = 0;
    if (!strncmp(r.text, "HTTP/1.1 ", 9)) r.status = atoi(r.text + 9);
    r.body = strstr(r.text, "\r\n\r\n");
    r.body = r.body ? r.body + 4 : r.text + n;
    if (strcasestr(r.text, "transfer-encoding: chunked")) join_chunks(r.body);
    return r;
}

static void reply_is(test_run *t, int fd, int status, const char *part)
{
    reply r = listen_to(fd);
    if (r.status != status || !strstr(r.text, part))
        test_fail(t, __FILE__, __LINE__, "not %d with %s, but %s", status, part, r.text);
    free(r.text);
}

/* ---- what an answer holds ---- */

typedef struct told {
    uint32_t tokens[8192], n, ends; /* ends: [DONE] */
    char text[16384], finish[16], error[64], code[32];
    long long prompt_tokens, completion_tokens, cached_tokens; /* -1: no usage */
} told;

static void hear(told *a, const json_t *value)
{
    const json_t *choice = json_array_get(json_object_get(value, "choices"), 0), *token;
    const char *code;
    const json_t *usage = json_object_get(value, "usage"), *error = json_object_get(value, "error");
    const json_t *holder = json_object_get(choice, "message");
    const char *text, *finish = json_string_value(json_object_get(choice, "finish_reason"));
    size_t i;
    if (!holder) holder = json_object_get(choice, "delta");
    text = json_string_value(holder ? json_object_get(holder, "content")
                                    : json_object_get(choice, "text"));
    if (text) strncat(a->text, text, sizeof a->text - strlen(a->text) - 1);
    if (finish) snprintf(a->finish, sizeof a->finish, "%s", finish);
    json_array_foreach(json_object_get(choice, "token_ids"), i, token) if (a->n < 8192)
        a->tokens[a->n++] = (uint32_t)json_integer_value(token);
    if (usage) {
        a->prompt_tokens = json_integer_value(json_object_get(usage, "prompt_tokens"));
        a->completion_tokens = json_integer_value(json_object_get(usage, "completion_tokens"));
        a->cached_tokens = json_integer_value(
            json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens"));
    }
    if (error)
        snprintf(a->error, sizeof a->error, "%s",
                 json_string_value(json_object_get(error, "message")));
    code = json_string_value(json_object_get(error, "code"));
    if (code) snprintf(a->code, sizeof a->code, "%s", code);
}

static told *told_by(const reply *r)
{
    told *a = (told *)calloc(1, sizeof *a);
    const char *at = r->body;
    a->prompt_tokens = a->completion_tokens = a->cached_tokens = -1;
    if (strncmp(at, "data: ", 6)) {
        json_t *value = json_loads(at, 0, NULL);
        if (value) hear(a, value);
        json_decref(value);
    }
    while (!strncmp(at, "data: ", 6)) {
        const char *end = strstr(at, "\n\n");
        json_t *value = end ? json_loadb(at + 6, (size_t)(end - at) - 6, 0, NULL) : NULL;
        if (value) hear(a, value);
        if (!strncmp(at + 6, "[DONE]", 6)) a->ends++;
        json_decref(value);
        if (!end) break;
        at = end + 2;
    }
    return a;
}

/* The tokens of a text, or of a chat in which it is the only message. */
static prompt tokens_of(server *s, const char *text, uint32_t chat)
{
    refusal why;
    qwen3_message message;
    completion c;
    prompt p;
    memset(&c, 0, sizeof c);
    memset(&p, 0, sizeof p);
    memset(&message, 0, sizeof message);
    message.role = "user", message.content = text, message.size = strlen(text);
    c.thinking = 1;
    c.prompts = &p, c.n_prompts = 1;
    if (chat)
        c.messages = &message, c.n_messages = 1;
    else
        p.text = text;
    if (text_to_tokens(&s->codec, &c, 0, &why)) abort();
    return p; /* the caller frees p.tokens */
}

/* Whether an answer of n tokens repeats its prompt, in tokens and in text. */
static void repeats(test_run *t, server *s, const told *a, const char *prompt, uint32_t chat,
                    uint32_t n)
{
    const struct prompt c = tokens_of(s, prompt, chat);
    qwen3_string text;
    memset(&text, 0, sizeof text);
    if (text_of_tokens(&s->codec, a->tokens, a->n, 0, &text)) abort();
    if (a->n != n) test_fail(t, __FILE__, __LINE__, "%u tokens of \"%s\", not %u", a->n, prompt, n);
    for (uint32_t i = 0; i < a->n; i++)
        if (a->tokens[i] != c.tokens[i % c.n_tokens])
            test_fail(t, __FILE__, __LINE__, "token %u of \"%s\" is %u", i, prompt, a->tokens[i]);
    if (n > c.n_tokens && !strstr(a->text, prompt))
        test_fail(t, __FILE__, __LINE__, "\"%s\" repeats \"%s\"?", a->text, prompt);
    if (text.at && strncmp(text.at, a->text, text.size))
        test_fail(t, __FILE__, __LINE__, "\"%s\" is the text of \"%s\"?", a->text, text.at);
    free(text.at);
    free(c.tokens);
}

/* ---- tests ---- */

static void statuses(test_run *t)
{
    static const struct {
        const char *request;
        int status;
        const char *part;
    } cases[] = {
        {"GET /health HTTP/1.1\r\n", 200, "\"status\":\"ok\""},
        {"HEAD /health HTTP/1.1\r\n", 200, "Content-Length"},
        {"GET /v1/models HTTP/1.1\r\n", 200, "\"id\":\"tiny\""},
        {"GET /metrics HTTP/1.1\r\n", 200, "\nserve_up 1\n"},
        {"GET / HTTP/1.1\r\n", 404, "no such path"},
        {"GET /v1/models/tiny HTTP/1.1\r\n", 200, "\"id\":\"tiny\",\"object\":\"model\""},
        {"GET /v1/models/large HTTP/1.1\r\n", 404, "\"code\":\"model_not_found\""},
        {"GET /version HTTP/1.1\r\n", 200, "{\"version\":\"7.8\"}"},
        {"POST /v1/embeddings HTTP/1.1\r\n", 404, "does not have embeddings"},
        {"POST /v1/responses HTTP/1.1\r\n", 404, "\"code\":\"unknown_url\""},
        {"GET /v1/completions HTTP/1.1\r\n", 405, "\r\nAllow: POST\r\n"},
        {"POST /health HTTP/1.1\r\n", 405, "\r\nAllow: GET\r\n"},
        {"POST /v1/completions HTTP/1.1\r\nContent-Length: 2\r\n", 415, "application/json"},
        {"POST /v1/completions HTTP/1.1\r\nContent-Type: application/jsonx\r\n", 415, "json"},
        {"POST /v1/completions HTTP/1.1\r\n" JSON, 400, "is empty"},
        {"POST /v1/completions HTTP/1.1\r\n" JSON "Content-Length: 65537\r\n", 413,
         "\"fits\":65536"},
        {"NONSENSE\r\n", 0, ""}, /* closed */
    };
    server s;
    setup plain = plain_setup();
    plain.strict = 1;
    server_open(t, &s, &plain);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int fd = dial(&s);
        say(fd, cases[i].request);
        say(fd, "Host: x\r\nConnection: close\r\n\r\n");
        if (strstr(cases[i].request, "Length: 2\r\n")) say(fd, "{}");
        if (cases[i].status == 413) /* read, so that a client that still sends has its answer */
            for (uint32_t k = 0; k < 65537; k += 17) say(fd, "seventeen bytes..");
        reply_is(t, fd, cases[i].status, cases[i].part);
    }
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[1],\"colour\":2}"), 400,
             "\"param\":\"colour\"");
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[1],\"max_tokens\":5000}"), 400,
             "\"code\":\"context_length_exceeded\",\"fits\":4096");
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[1022],\"max_tokens\":50}"), 400,
             "\"fits\":7");
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[1],\"best_of\":3}"), 400,
             "\"param\":\"best_of\",\"code\":\"unsupported_value\"");
    CHECK_INT(jobs_of(&s), 0);
    server_close(&s);
}

static void header_that_is_too_long(test_run *t)
{
    server s;
    setup plain = plain_setup();
    char line[1001];
    int fd;
    server_open(t, &s, &plain);
    fd = dial(&s);
    memset(line, 'a', sizeof line), line[1000] = 0;
    say(fd, "GET /health HTTP/1.1\r\n");
    for (uint32_t i = 0; i < 20; i++) say(fd, "X: "), say(fd, line), say(fd, "\r\n");
    say(fd, "\r\n");
    reply_is(t, fd, 431, "");
    server_close(&s);
}

static void api_key(test_run *t)
{
    static const struct {
        const char *header;
        int status;
    } cases[] = {{"", 401},
                 {"Authorization: Bearer secre\r\n", 401},
                 {"Authorization: Bearer secretsecret\r\n", 401},
                 {"Authorization: Bearer Secret\r\n", 401},
                 {"Authorization: secret\r\n", 401},
                 {"Authorization: Bearer \r\n", 401},
                 {"Authorization: Bearer secret\r\n", 200}};
    server s;
    setup keyed = plain_setup();
    int fd;
    keyed.key = "secret";
    server_open(t, &s, &keyed);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fd = dial(&s);
        say(fd, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        say(fd, cases[i].header);
        say(fd, "\r\n");
        reply_is(t, fd, cases[i].status, cases[i].status == 401 ? "WWW-Authenticate: Bearer" : "");
    }
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[1]}"), 401, "API key");
    fd = dial(&s);
    say(fd, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    reply_is(t, fd, 200, "ok");
    server_close(&s);
}

/* Plain and streamed, completions and chats, of both classes, with and without usage. */
static void answers(test_run *t)
{
    const char *prompt = "h\xc3\xa4llo \xe2\x82\xac, ";
    server s;
    setup plain = plain_setup();
    server_open(t, &s, &plain);
    for (uint32_t i = 0; i < 16 && !t->failed_here; i++) {
        const uint32_t chat = i & 1, stream = i >> 1 & 1, usage = i >> 2 & 1;
        char body[512], asked[128];
        reply r;
        told *a;
        snprintf(asked, sizeof asked,
                 chat ? "\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]"
                      : "\"prompt\":\"%s\"",
                 prompt);
        snprintf(body, sizeof body, "{%s,\"max_tokens\":60,\"priority\":\"%s\"%s%s}", asked,
                 job_class_names[i >> 3], stream ? ",\"stream\":true" : "",
                 stream && usage ? ",\"stream_options\":{\"include_usage\":true}" : "");
        r = listen_to(post(&s, chat ? "/v1/chat/completions" : "/v1/completions", body));
        a = told_by(&r);
        if (r.status != 200) test_fail(t, __FILE__, __LINE__, "%s: %s", body, r.text);
        repeats(t, &s, a, prompt, chat, 60);
        if (strcmp(a->finish, "length") || a->ends != stream || a->error[0])
            test_fail(t, __FILE__, __LINE__, "%s: %s", body, r.text);
        if (a->completion_tokens != (usage || !stream ? 60 : -1))
            test_fail(t, __FILE__, __LINE__, "usage of %s: %s", body, r.text);
        if (stream && strcasestr(r.text, "text/event-stream") == NULL)
            test_fail(t, __FILE__, __LINE__, "%s: %s", body, r.text);
        free(a);
        free(r.text);
    }
    /* An end-of-sequence token ends an answer, unless it is to be ignored. */
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[7,1023]}"), 200,
             "\"token_ids\":[7,1023],\"finish_reason\":\"stop\"");
    reply_is(
        t,
        post(&s, "/v1/completions", "{\"prompt\":[7,1023],\"ignore_eos\":true,\"max_tokens\":3}"),
        200, "\"token_ids\":[7,1023,7],\"finish_reason\":\"length\"");
    server_close(&s);
}

/* Characters are whole in each event, and what never becomes one is U+FFFD. */
static void characters_in_parts(test_run *t)
{
    static const char *const streams[] = {"false", "true"};
    server s;
    setup plain = plain_setup();
    server_open(t, &s, &plain);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t *byte = s.codec.tokenizer.byte_token;
        char body[160];
        reply r;
        told *a;
        snprintf(body, sizeof body, "{\"prompt\":[%u,%u,%u],\"max_tokens\":%u,\"stream\":%s}",
                 byte[0xe2], byte[0x82], byte[0xac], i < 2 ? 3 : 5, streams[i % 2]);
        r = listen_to(post(&s, "/v1/completions", body));
        a = told_by(&r);
        if (strcmp(a->text, i < 2 ? "\xe2\x82\xac" : "\xe2\x82\xac\xef\xbf\xbd"))
            test_fail(t, __FILE__, __LINE__, "%s: \"%s\"", body, a->text);
        free(a);
        free(r.text);
    }
    server_close(&s);
}

/* A stream has tokens while others are still decoded: not only the one that was there when it began. */
static void tokens_come_at_once(test_run *t)
{
    server s;
    setup slow = plain_setup();
    char text[4096];
    size_t n = 0;
    uint32_t events = 0;
    int fd;
    slow.step_us = 20000;
    server_open(t, &s, &slow);
    fd = post(&s, "/v1/completions", "{\"prompt\":[5],\"max_tokens\":4000,\"stream\":true}");
    while (events < 4) {
        const ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
        if (got <= 0) break;
        n += (size_t)got, text[n] = 0, events = 0;
        for (const char *at = text; (at = strstr(at, "\ndata: ")) != NULL; at++) events++;
    }
    CHECK(events >= 4);
    CHECK_INT(jobs_of(&s), 1);
    close(fd);
    CHECK(soon_jobs(&s, 0));
    server_close(&s);
}

/* A model without a tokenizer takes and gives token ids. */
static void without_tokenizer(test_run *t)
{
    server s;
    setup ids = plain_setup();
    ids.has_no_text = 1;
    server_open(t, &s, &ids);
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[5,6],\"max_tokens\":3}"), 200,
             "\"text\":\"\",\"token_ids\":[5,6,5]");
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":\"hi\"}"), 400, "no tokenizer");
    reply_is(
        t,
        post(&s, "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"),
        400, "\"param\":\"messages\"");
    server_close(&s);
}

/* A bias chooses the token, and how likely tokens are is told, whole and in a stream. */
static void likely_tokens(test_run *t)
{
    static const char *const parts[] = {
        "\"prompt\":[32,33],\"logprobs\":1,\"logit_bias\":{\"34\":100}",
        "\"logprobs\":{\"tokens\":[\"C\"],\"token_logprobs\":[-0.693147",
        "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"logprobs\":true,"
        "\"top_logprobs\":1,\"logit_bias\":{\"34\":100}",
        "\"logprobs\":{\"content\":[{\"token\":\"C\",\"logprob\":-0.693147"};
    static const char *const paths[] = {"/v1/completions", "/v1/chat/completions"};
    const setup plain = plain_setup();
    server s;
    server_open(t, &s, &plain);
    for (uint32_t i = 0; i < 4; i++) {
        char body[300];
        snprintf(body, sizeof body, "{%s,\"max_tokens\":1%s}", parts[i / 2 * 2],
                 i % 2 ? ",\"stream\":true" : "");
        reply_is(t, post(&s, paths[i / 2], body), 200, parts[i / 2 * 2 + 1]);
    }
    server_close(&s);
}

/* A connection serves one request after the other. */
static void requests_on_one_connection(test_run *t)
{
    server s;
    setup plain = plain_setup();
    int fd;
    reply r;
    uint32_t found = 0;
    server_open(t, &s, &plain);
    fd = dial(&s);
    for (uint32_t i = 0; i < 3; i++)
        say(fd, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n" JSON
                "Content-Length: 29\r\n\r\n{\"prompt\":[5],\"max_tokens\":2}");
    say(fd, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    r = listen_to(fd);
    for (const char *at = r.text; (at = strstr(at, "\"token_ids\":[5,5]")) != NULL; at++) found++;
    CHECK_INT(found, 3);
    CHECK_TEXT(r.text, "\"status\":\"ok\"");
    free(r.text);
    server_close(&s);
}

/* Bodies without a length: taken as they come, up to the limit. */
static void chunked_bodies(test_run *t)
{
    server s;
    setup small = plain_setup();
    char chunk[1100] = "400\r\n";
    int fd;
    small.body = 4096;
    server_open(t, &s, &small);
    fd = dial(&s);
    say(fd, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" JSON
            "Transfer-Encoding: chunked\r\n\r\n");
    say(fd, "d\r\n{\"prompt\":[5]\r\n");
    pause_ms(20);
    say(fd, "10\r\n,\"max_tokens\":2}\r\n0\r\n\r\n");
    reply_is(t, fd, 200, "\"token_ids\":[5,5]");
    fd = dial(&s);
    say(fd, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" JSON
            "Transfer-Encoding: chunked\r\n\r\n");
    memset(chunk + 5, ' ', 1024);
    strcpy(chunk + 5 + 1024, "\r\n");
    for (uint32_t i = 0; i < 20; i++) say(fd, chunk);
    say(fd, "0\r\n\r\n");
    reply_is(t, fd, 413, "\"fits\":4096");
    pthread_mutex_lock(&s.lock);
    if (s.body_bytes)
        test_fail(t, __FILE__, __LINE__, "%llu bytes of bodies", (unsigned long long)s.body_bytes);
    pthread_mutex_unlock(&s.lock);
    server_close(&s);
}

/* Many at a time: each gets its own answer, whole. */
#define MANY 200u
static void many_clients(test_run *t)
{
    static int fds[MANY];
    server s;
    setup busy = plain_setup();
    busy.batch = 16, busy.queue = MANY, busy.step_us = 50;
    server_open(t, &s, &busy);
    for (uint32_t i = 0; i < MANY; i++) {
        char body[256];
        snprintf(body, sizeof body,
                 "{\"prompt\":\"client %u, \",\"max_tokens\":%u,\"priority\":\"%s\",\"stream\":%s}",
                 i, 1 + i % 40, job_class_names[i % 3 == 0], i % 2 ? "true" : "false");
        fds[i] = post(&s, "/v1/completions", body);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        char prompt[32];
        reply r = listen_to(fds[i]);
        told *a = told_by(&r);
        snprintf(prompt, sizeof prompt, "client %u, ", i);
        if (r.status != 200) test_fail(t, __FILE__, __LINE__, "client %u: %s", i, r.text);
        repeats(t, &s, a, prompt, 0, 1 + i % 40);
        free(a);
        free(r.text);
    }
    CHECK(soon_jobs(&s, 0));
    CHECK_INT(s.counters.jobs[JOB_REACTIVE][JOB_FINISHED] +
                  s.counters.jobs[JOB_PROACTIVE][JOB_FINISHED],
              MANY);
    server_close(&s);
}

/* Clients that leave while they wait in the queue, for a plain answer, and in the middle of a stream: their jobs are
   cancelled, and the others go on. */
static void clients_that_leave(test_run *t)
{
    static const char *const bodies[] = {
        "{\"prompt\":\"leaves\",\"max_tokens\":4000}",
        "{\"prompt\":\"leaves\",\"max_tokens\":4000,\"stream\":true}",
        "{\"prompt\":\"leaves\",\"max_tokens\":4000,\"stream\":true,\"priority\":\"proactive\"}"};
    server s;
    setup slow = plain_setup();
    int fds[24], stays;
    slow.batch = 8, slow.step_us = 2000;
    server_open(t, &s, &slow);
    stays =
        post(&s, "/v1/completions", "{\"prompt\":\"stays\",\"max_tokens\":400,\"stream\":true}");
    for (uint32_t i = 0; i < 24; i++) fds[i] = post(&s, "/v1/completions", bodies[i % 3]);
    CHECK(soon_submitted(&s, 25));
    for (uint32_t i = 0; i < 24; i++) { /* some by a reset */
        const struct linger reset = {1, 0};
        if (i % 2) setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(fds[i]);
    }
    {
        reply r = listen_to(stays);
        told *a = told_by(&r);
        repeats(t, &s, a, "stays", 0, 400);
        free(a);
        free(r.text);
    }
    CHECK(soon_jobs(&s, 0));
    for (uint32_t i = 0; i < 100 && open_requests(&s); i++) pause_ms(10);
    CHECK_INT(open_requests(&s), 0);
    CHECK_INT(s.counters.jobs[JOB_REACTIVE][JOB_CANCELLED] +
                  s.counters.jobs[JOB_PROACTIVE][JOB_CANCELLED],
              24);
    server_close(&s);
}

/* Requests that never become complete, silent or byte by byte, are closed after desc.seconds; the others go on. */
static void half_requests(test_run *t)
{
    static const char *const halves[] = {"", "POST /v1/compl",
                                         "POST /v1/completions HTTP/1.1\r\nHost: x\r\nX",
                                         "POST /v1/completions HTTP/1.1\r\nHost: x\r\n" JSON
                                         "Content-Length: 100\r\n\r\n{\"prompt\":"};
    server s;
    setup plain = plain_setup();
    int fds[5];
    uint32_t closed = 0;
    plain.seconds = 1;
    server_open(t, &s, &plain);
    for (uint32_t i = 0; i < 4; i++) fds[i] = dial(&s), say(fds[i], halves[i]);
    fds[4] = dial(&s);
    for (uint32_t i = 0; i < 300 && !closed; i++) { /* at most 15 s */
        char byte;
        say(fds[4], "G");
        pause_ms(50);
        closed = recv(fds[4], &byte, 1, MSG_DONTWAIT) == 0;
    }
    CHECK(closed);
    for (uint32_t i = 0; i < 5; i++) {
        reply r = listen_to(fds[i]);
        if (r.status == 200) test_fail(t, __FILE__, __LINE__, "half a request is answered");
        free(r.text);
    }
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[5],\"max_tokens\":1}"), 200, "[5]");
    CHECK_INT(open_requests(&s), 0);
    server_close(&s);
}

/* A client that does not read: its tokens wait, other requests are as fast as ever, and in the end the connection is
   closed. One that reads late has all of its tokens. */
static void slow_readers(test_run *t)
{
    const char *body =
        "{\"prompt\":\"slow, \",\"max_tokens\":4000,\"stream\":true,\"ignore_eos\":true}";
    server s;
    setup plain = plain_setup();
    int never, late, small = 2048;
    reply r;
    told *a;
    plain.seconds = 3;
    server_open(t, &s, &plain);
    never = dial(&s);
    setsockopt(never, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    say(never, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n" JSON "Content-Length: 77\r\n\r\n");
    say(never, body);
    late = post(&s, "/v1/completions", body);
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[5],\"max_tokens\":1}"), 200, "[5]");
    CHECK(soon_jobs(&s, 0)); /* both were decoded to their ends */
    r = listen_to(late);
    a = told_by(&r);
    repeats(t, &s, a, "slow, ", 0, 4000);
    CHECK_INT(a->ends, 1);
    free(a);
    free(r.text);
    for (uint32_t i = 0; i < 2000 && open_requests(&s); i++) pause_ms(10);
    CHECK_INT(open_requests(&s), 0);
    close(never);
    server_close(&s);
}

/* A queue that is full refuses, in its own class alone. */
static void full_queue(test_run *t)
{
    static const char *const body =
        "{\"prompt\":\"queue\",\"max_tokens\":4000,\"priority\":\"%s\"}";
    server s;
    setup narrow = plain_setup();
    char reactive[128], proactive[128];
    int fds[4];
    narrow.batch = 1, narrow.queue = 2, narrow.step_us = 2000;
    server_open(t, &s, &narrow);
    snprintf(reactive, sizeof reactive, body, "reactive");
    snprintf(proactive, sizeof proactive, body, "proactive");
    for (uint32_t i = 0; i < 3; i++) {
        fds[i] = post(&s, "/v1/completions", reactive);
        CHECK(soon_submitted(&s, i + 1));
        while (!i && !engine_load_of(s.e).running[JOB_REACTIVE]) pause_ms(1);
    }
    reply_is(t, post(&s, "/v1/completions", reactive), 429, "Retry-After: ");
    fds[3] = post(&s, "/v1/completions", proactive);
    CHECK(soon_jobs(&s, 4)); /* taken */
    for (uint32_t i = 0; i < 4; i++) close(fds[i]);
    CHECK(soon_jobs(&s, 0));
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[5],\"max_tokens\":1}"), 200, "[5]");
    server_close(&s);
}

/* A request that fails takes no other one with it. What it had is in its answer. */
static void job_that_fails(test_run *t)
{
    server s;
    setup plain = plain_setup();
    int good;
    plain.step_us = 500;
    server_open(t, &s, &plain);
    good = post(&s, "/v1/completions", "{\"prompt\":\"good\",\"max_tokens\":100}");
    reply_is(
        t, post(&s, "/v1/completions", "{\"prompt\":[65,66,1020]}"), 500,
        "{\"error\":{\"message\":\"a logit is not a number\",\"type\":\"server_error\",\"param\":"
        "null,\"code\":\"engine_failed\"}}");
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[65,66,1020],\"stream\":true}"), 200,
             "\"token_ids\":[65");
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[65,66,1020],\"stream\":true}"), 200,
             "{\"error\":{\"message\":\"a logit is not a number\"");
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[[65,66],[65,1020]]}"), 500,
             "\"code\":\"engine_failed\"");
    reply_is(t, good, 200, "\"completion_tokens\":100");
    server_close(&s);
}

/* A device that fails ends every request with what it had, /health says so, and no other one is taken. */
static void device_that_fails(test_run *t)
{
    server s;
    setup plain = plain_setup();
    int fds[3], health;
    plain.batch = 3, plain.step_us = 500;
    server_open(t, &s, &plain);
    fds[0] =
        post(&s, "/v1/completions", "{\"prompt\":\"other\",\"max_tokens\":4000,\"stream\":true}");
    CHECK(soon_submitted(&s, 1));
    fds[2] = post(&s, "/v1/completions", "{\"prompt\":\"waits\",\"max_tokens\":4000}");
    CHECK(soon_submitted(&s, 2));
    pause_ms(20);
    fds[1] = post(&s, "/v1/completions",
                  "{\"prompt\":[65,66,67,68,69,70,71,72,1021],\"max_tokens\":100}");
    for (uint32_t i = 0; i < 3; i++) {
        reply r = listen_to(fds[i]);
        told *a = told_by(&r);
        CHECK_TEXT(a->error, "the device is broken");
        CHECK_INT(strlen(a->finish), 0);
        CHECK_INT(a->ends, 0);
        CHECK_INT(r.status, i ? 500 : 200);
        if (i == 0) CHECK(a->n > 0);
        free(a);
        free(r.text);
    }
    health = dial(&s);
    say(health, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    reply_is(t, health, 503, "\"status\":\"failed\"");
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[1]}"), 503, "takes no requests");
    server_close(&s);
}

/* More connections than the limit wait, and are served when others have left. */
static void limit_of_connections(test_run *t)
{
    server s;
    setup few = plain_setup();
    int fds[4], fifth;
    few.connections = 4;
    server_open(t, &s, &few);
    for (uint32_t i = 0; i < 4; i++) fds[i] = dial(&s);
    pause_ms(50);
    fifth = post(&s, "/v1/completions", "{\"prompt\":[5],\"max_tokens\":1}");
    pause_ms(50);
    pthread_mutex_lock(&s.lock);
    if (s.counters.connections > 4) test_fail(t, __FILE__, __LINE__, "more than 4 connections");
    pthread_mutex_unlock(&s.lock);
    for (uint32_t i = 0; i < 4; i++) close(fds[i]);
    reply_is(t, fifth, 200, "\"token_ids\":[5]");
    server_close(&s);
}

/* The server stops: clients have what was generated, and are told that there is no more. */
static void stop_in_the_middle(test_run *t)
{
    server s;
    setup slow = plain_setup();
    int fds[4];
    slow.batch = 2, slow.step_us = 1000;
    server_open(t, &s, &slow);
    for (uint32_t i = 0; i < 4; i++)
        fds[i] = post(&s, "/v1/completions",
                      i % 2 ? "{\"prompt\":\"ends\",\"max_tokens\":4000}"
                            : "{\"prompt\":\"ends\",\"max_tokens\":4000,\"stream\":true}");
    CHECK(soon_submitted(&s, 4));
    pause_ms(50);
    server_stop(&s);
    for (uint32_t i = 0; i < 4; i++) {
        reply r = listen_to(fds[i]);
        told *a = told_by(&r);
        CHECK_INT(r.status, i % 2 ? 503 : 200);
        CHECK_TEXT(a->code, "server_stopping");
        CHECK_INT(strlen(a->finish), 0); /* as if it had ended well */
        CHECK_INT(a->ends, 0);
        repeats(t, &s, a, "ends", 0, a->n);
        free(a);
        free(r.text);
    }
    server_close(&s);
}

/* A server that drains takes no jobs, says so, and lets those that it has end. */
static void drain_lets_jobs_end(test_run *t)
{
    server s;
    setup slow = plain_setup();
    int stays, health;
    slow.step_us = 1000;
    server_open(t, &s, &slow);
    stays = post(&s, "/v1/completions", "{\"prompt\":[5],\"max_tokens\":300,\"stream\":true}");
    CHECK(soon_submitted(&s, 1));
    server_drain(&s);
    health = dial(&s);
    say(health, "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    reply_is(t, health, 503, "\"status\":\"draining\"");
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[5]}"), 503, "the server stops");
    reply_is(t, stays, 200, "data: [DONE]");
    server_close(&s);
}

/* Requests are named by the client or by the server; ids are those of this run alone. */
static void names_of_requests(test_run *t)
{
    char *text = NULL, first[64] = "", second[64] = "";
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    output log = output_to(file);
    server s;
    setup plain = plain_setup();
    int fd;
    for (uint32_t i = 0; i < 2; i++) {
        reply r;
        const char *id;
        server_open(t, &s, &plain);
        s.desc.log = &log;
        r = listen_to(post(&s, "/v1/completions", "{\"prompt\":[5],\"max_tokens\":1}"));
        id = strstr(r.text, "\"id\":\"cmpl-");
        CHECK_TEXT(r.text, "X-Request-Id: req-");
        if (id) snprintf(i ? second : first, sizeof first, "%.30s", id + 6);
        free(r.text);
        if (i) break;
        server_close(&s);
    }
    CHECK(first[0] && second[0] && strcmp(first, second));
    fd = dial(&s);
    say(fd,
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" JSON
        "X-Request-Id: mine-1.2\r\nContent-Length: 30\r\n\r\n{\"prompt\":[5],\"max_tokens\":2} ");
    reply_is(t, fd, 200, "X-Request-Id: mine-1.2\r\n");
    fd = dial(&s);
    say(fd, "GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: a b\r\n\r\n");
    reply_is(t, fd, 404, "X-Request-Id: req-");
    server_close(&s);
    output_close(&log, 1);
    CHECK_TEXT(text, "arrives");
    CHECK_TEXT(text, "  mine-1.2\n");
    free(text);
}

/* Several prompts, and several answers to each, whole and streamed. */
static void several_answers(test_run *t)
{
    static const char *const wanted[] = {
        "{\"index\":0,\"text\":\"ababa\"", "{\"index\":1,\"text\":\"ababa\"",
        "{\"index\":2,\"text\":\"cdcdc\"", "{\"index\":3,\"text\":\"cdcdc\""};
    server s;
    setup plain = plain_setup();
    reply r;
    uint32_t finished = 0, last[4] = {0, 0, 0, 0};
    server_open(t, &s, &plain);
    r = listen_to(post(&s, "/v1/completions",
                       "{\"prompt\":[\"ab\",\"cd\"],\"n\":2,\"max_tokens\":3,\"echo\":true}"));
    for (uint32_t i = 0; i < 4; i++) CHECK_TEXT(r.body, wanted[i]);
    CHECK_TEXT(r.body, "\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":12,");
    free(r.text);
    r = listen_to(post(&s, "/v1/completions",
                       "{\"prompt\":[\"ab\",\"cd\"],\"n\":2,\"max_tokens\":3,\"stream\":true,"
                       "\"stream_options\":{\"include_usage\":true}}"));
    for (const char *at = r.body; (at = strstr(at, "{\"index\":")) != NULL; at++) {
        const uint32_t index = (uint32_t)atoi(at + 9) & 3u;
        CHECK(!last[index]); /* nothing follows the end of a choice */
        last[index] = !strncmp(strstr(at, "finish_reason"), "finish_reason\":\"length", 22);
        finished += last[index];
    }
    CHECK_INT(finished, 4);
    CHECK_TEXT(r.body, "\"completion_tokens\":12,");
    CHECK_TEXT(r.body, "data: [DONE]");
    free(r.text);
    CHECK(soon_jobs(&s, 0));
    server_close(&s);
}

/* Usage and metrics say how many tokens of prompts were found in pages of earlier ones. Answers to
   one prompt share it: what the first of them finds counts. */
static void cached_tokens_are_counted(test_run *t)
{
    static const struct {
        const char *more, *path;
        uint32_t prompts, cached;
    } cases[] = {{"", "text", 1, 0},
                 {"", "text", 1, 32},
                 {",\"stream\":true,\"stream_options\":{\"include_usage\":true}", "text", 1, 32},
                 {",\"n\":3", "text", 1, 32},
                 {"", "text", 2, 64},
                 {"", "chat", 1, 0},
                 {",\"n\":2", "chat", 1, 48}};
    server s;
    setup plain = plain_setup();
    reply r;
    char ids[256] = "[7", line[64], text[64] = "";
    uint64_t all = 0;
    int fd;
    server_open(t, &s, &plain);
    for (uint32_t i = 1; i < 40; i++) snprintf(ids + strlen(ids), 8, ",%u", 7 + i % 3);
    strcat(ids, "]");
    memset(text, 'x', 40);
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0] && !t->failed_here; i++) {
        const uint32_t chat = !strcmp(cases[i].path, "chat");
        char body[1024];
        told *a;
        if (chat)
            snprintf(body, sizeof body,
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":1%s}",
                     text, cases[i].more);
        else if (cases[i].prompts == 2)
            snprintf(body, sizeof body, "{\"prompt\":[%s,%s],\"max_tokens\":2%s}", ids, ids,
                     cases[i].more);
        else
            snprintf(body, sizeof body, "{\"prompt\":%s,\"max_tokens\":2%s}", ids, cases[i].more);
        r = listen_to(post(&s, chat ? "/v1/chat/completions" : "/v1/completions", body));
        a = told_by(&r);
        if (r.status != 200 || a->cached_tokens != cases[i].cached)
            test_fail(t, __FILE__, __LINE__, "case %u: %s", i, r.text);
        all += cases[i].cached;
        free(a);
        free(r.text);
    }
    fd = dial(&s);
    say(fd, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    r = listen_to(fd);
    snprintf(line, sizeof line, "\nserve_cached_tokens_total %llu\n", (unsigned long long)all);
    CHECK_TEXT(r.body, line);
    free(r.text);
    server_close(&s);
}

/* A queue that has no room for all answers takes none of them. */
static void all_answers_or_none(test_run *t)
{
    server s;
    setup narrow = plain_setup();
    narrow.batch = 1, narrow.queue = 2, narrow.step_us = 1000;
    server_open(t, &s, &narrow);
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[5],\"max_tokens\":4000,\"n\":8}"), 429,
             "rate_limit_exceeded");
    CHECK(soon_jobs(&s, 0));
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[5],\"max_tokens\":1}"), 200, "[5]");
    CHECK_INT(open_requests(&s), 0);
    server_close(&s);
}

/* A stop ends the answer and its job; a stream never shows a part of it. */
static void stops_end_answers(test_run *t)
{
    static const char *const streams[] = {"false", "true"};
    server s;
    setup plain = plain_setup();
    plain.step_us = 200;
    server_open(t, &s, &plain);
    for (uint32_t i = 0; i < 4; i++) {
        char body[256];
        reply r;
        told *a;
        snprintf(body, sizeof body,
                 "{\"prompt\":\"one END two \",\"max_tokens\":4000,\"stop\":[\"ND t\",\"never\"],"
                 "\"include_stop_str_in_output\":%s,\"stream\":%s}",
                 streams[i / 2], streams[i % 2]);
        r = listen_to(post(&s, "/v1/completions", body));
        a = told_by(&r);
        if (strcmp(a->text, i < 2 ? "one E" : "one END t") || strcmp(a->finish, "stop"))
            test_fail(t, __FILE__, __LINE__, "%s: \"%s\", %s", body, a->text, a->finish);
        CHECK_INT(a->ends, i % 2);
        free(a);
        free(r.text);
    }
    reply_is(t,
             post(&s, "/v1/completions",
                  "{\"prompt\":[7,8,9],\"max_tokens\":4000,\"stop_token_ids\":[8]}"),
             200, "\"token_ids\":[7,8],\"finish_reason\":\"stop\"");
    CHECK(soon_jobs(&s, 0)); /* long before they had all of their tokens */
    server_close(&s);
}

/* Reasoning has a field of its own, whole and in parts, unless it is not wanted. */
static void reasoning_has_a_field(test_run *t)
{
    server s;
    setup plain = plain_setup();
    prompt p;
    server_open(t, &s, &plain);
    p = tokens_of(&s, "<think>\nWell.\n</think>\n\nYes.", 0);
    CHECK(p.n_tokens > 4);
    /* The test's engine repeats its prompt, so that a chat begins with <|im_start|>. */
    {
        choice h;
        answer a;
        completion c;
        json_t *whole;
        char *text;
        const usage u = {1, 2, 0};
        memset(&c, 0, sizeof c);
        for (uint32_t reasoning = 0; reasoning < 3; reasoning++) {
            memset(&h, 0, sizeof h);
            memset(&a, 0, sizeof a);
            a.kind = COMPLETION_CHAT, a.model = "tiny", a.reasoning = reasoning;
            h.tokens = (uint32_t *)calloc(p.n_tokens, sizeof *h.tokens);
            for (uint32_t i = 0; i < p.n_tokens; i++)
                choice_token(&h, &c, &s.codec, p.tokens[i], NULL);
            choice_end(&h);
            text = answer_whole(&a, &h, 1, u);
            whole = json_loads(text, 0, NULL);
            CHECK_TEXT(text, reasoning == 2 ? "\"content\":\"<think>\\nWell.\\n</think>\\n\\nYes.\""
                                            : "\"content\":\"Yes.\"");
            CHECK_INT(strstr(text, "\"reasoning_content\":\"Well.\"") != NULL, reasoning == 1);
            json_decref(whole);
            free(text);
            choice_free(&h);
        }
    }
    free(p.tokens);
    server_close(&s);
}

/* The tokens of texts and chats, and the text of tokens. */
static void tokens_are_told(test_run *t)
{
    server s;
    setup plain = plain_setup();
    server_open(t, &s, &plain);
    reply_is(t, post(&s, "/tokenize", "{\"prompt\":\"ab<|im_end|>\"}"), 200,
             "{\"count\":3,\"max_model_len\":4096,\"tokens\":[64,65,508]}");
    reply_is(t, post(&s, "/tokenize", "{\"content\":\"\"}"), 200, "\"tokens\":[]");
    reply_is(
        t, post(&s, "/tokenize", "{\"messages\":[{\"role\":\"user\",\"content\":\"<|im_end|>\"}]}"),
        200, "\"tokens\":[507,");
    reply_is(t, post(&s, "/detokenize", "{\"tokens\":[64,65,508]}"), 200,
             "{\"prompt\":\"ab<|im_end|>\",\"content\":\"ab<|im_end|>\"}");
    reply_is(t, post(&s, "/detokenize", "{\"tokens\":[1024]}"), 400, "tokens[0]");
    reply_is(t, post(&s, "/tokenize", "{}"), 400, "prompt: is missing");
    server_close(&s);
}

/* Texts that are far too long are refused, while others are answered. */
static void long_texts(test_run *t)
{
    server s;
    setup large = plain_setup();
    const size_t n = 300000;
    char *body = (char *)malloc(n + 64);
    int fds[4];
    large.body = 1u << 20;
    server_open(t, &s, &large);
    memcpy(body, "{\"prompt\":\"", 11);
    memset(body + 11, 'a', n);
    memcpy(body + 11 + n, "\"}", 3);
    for (uint32_t i = 0; i < 4; i++) fds[i] = post(&s, "/v1/completions", body);
    for (uint32_t i = 0; i < 4; i++)
        reply_is(t, fds[i], 400, "\"code\":\"context_length_exceeded\",\"fits\":4096");
    free(body);
    pthread_mutex_lock(&s.lock);
    CHECK(s.body_bytes == 0);
    pthread_mutex_unlock(&s.lock);
    server_close(&s);
}

/* The trace is JSON, and has a row for each request with a slice for each token. */
static void trace_has_rows(test_run *t)
{
    char *text = NULL;
    size_t bytes = 0, i;
    FILE *file = open_memstream(&text, &bytes);
    output trace = output_to(file);
    server s;
    setup traced = plain_setup();
    json_t *events, *event;
    uint32_t slices = 0, rows = 0, ends = 0;
    traced.trace = &trace;
    server_open(t, &s, &traced);
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[1,2,3],\"max_tokens\":5}"), 200, "");
    reply_is(t, post(&s, "/v1/completions", "{\"prompt\":[1,1020],\"priority\":\"proactive\"}"),
             500, "");
    server_close(&s);
    output_close(&trace, 1);
    events = json_loads(text, 0, NULL);
    json_array_foreach(events, i, event)
    {
        const char *kind = json_string_value(json_object_get(event, "ph"));
        const char *name = json_string_value(json_object_get(event, "name"));
        CHECK(kind && name);
        slices += !strcmp(kind, "X") && json_number_value(json_object_get(event, "dur")) >= 0;
        rows += !strcmp(name, "thread_name");
        ends += !strcmp(name, "finished") || !strcmp(name, "failed");
    }
    json_decref(events);
    free(text);
    CHECK_INT(slices, 6);
    CHECK_INT(rows, 2);
    CHECK_INT(ends, 2);
}

static void metrics_count(test_run *t)
{
    static const char *const lines[] = {
        "\nserve_requests_total{priority=\"proactive\",end=\"finished\"} 1\n",
        "\nserve_tokens_total{kind=\"prompt\"} 3\n",
        "\nserve_tokens_total{kind=\"generated\"} 2\n",
        "\nserve_cached_tokens_total 0\n",
        "\nserve_http_responses_total{code=\"400\"} 1\n",
        "\nserve_first_token_seconds_count{priority=\"proactive\"} 1\n",
        "\nserve_request_seconds_bucket{priority=\"proactive\",le=\"+Inf\"} 1\n",
        "\nserve_requests_waiting{priority=\"reactive\"} 0\n"};
    server s;
    setup plain = plain_setup();
    reply r;
    int fd;
    server_open(t, &s, &plain);
    reply_is(t, post(&s, "/v1/completions", "{}"), 400, "prompt");
    reply_is(t,
             post(&s, "/v1/completions",
                  "{\"prompt\":[1,2,3],\"max_tokens\":2,\"priority\":\"proactive\"}"),
             200, "");
    fd = dial(&s);
    say(fd, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    r = listen_to(fd);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) CHECK_TEXT(r.body, lines[i]);
    free(r.text);
    server_close(&s);
}

static void tests(test_run *t)
{
    signal(SIGPIPE, SIG_IGN);
    TEST(statuses);
    TEST(header_that_is_too_long);
    TEST(api_key);
    TEST(answers);
    TEST(characters_in_parts);
    TEST(tokens_come_at_once);
    TEST(without_tokenizer);
    TEST(likely_tokens);
    TEST(requests_on_one_connection);
    TEST(chunked_bodies);
    TEST(many_clients);
    TEST(clients_that_leave);
    TEST(half_requests);
    TEST(slow_readers);
    TEST(full_queue);
    TEST(job_that_fails);
    TEST(device_that_fails);
    TEST(limit_of_connections);
    TEST(stop_in_the_middle);
    TEST(drain_lets_jobs_end);
    TEST(names_of_requests);
    TEST(several_answers);
    TEST(cached_tokens_are_counted);
    TEST(all_answers_or_none);
    TEST(stops_end_answers);
    TEST(reasoning_has_a_field);
    TEST(tokens_are_told);
    TEST(long_texts);
    TEST(trace_has_rows);
    TEST(metrics_count);
}
TEST_MAIN(tests)
