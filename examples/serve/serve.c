/* serve: an HTTP server for a model, with the requests and answers of OpenAI's API and two classes of requests.

       serve MODEL_DIR --port 8080        and see --help

   README.md describes it. Built by examples/run.sh, with engine_qwen3.c; needs libmicrohttpd and libjansson. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* POLLRDHUP */
#endif
#include "../../fleet.h"
#include "server.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>

#define VERSION_WORD(number) #number
#define VERSION_TEXT(major, minor) VERSION_WORD(major) "." VERSION_WORD(minor)

enum {
    SERVE_FAILED = 1,
    SERVE_REFUSED = 2
}; /* exit status; refused: a file or an argument is wrong */

typedef struct options {
    const char *dir, *host, *port, *name, *chat_template, *key_file, *names, *origins, *log, *trace;
    uint32_t context, batch, chunk, beside, queue, body, connections, of_address, seconds, workers,
        drain, strict, allow_special, dequantize, help;
} options;

static const char help_text[] =
    "usage: serve MODEL_DIR [OPTION...]\n"
    "Answers POST /v1/chat/completions, POST /v1/completions, GET /v1/models, /health, /metrics.\n"
    "\n"
    "  --host ADDRESS      to listen on (default 127.0.0.1: this machine only)\n"
    "  --port N            default 8080; 0: any that is free\n"
    "  --api-key-file FILE its first line is the key that all requests but /health must have\n"
    "  --server-name NAMES that requests may have as their host when there is no key, besides\n"
    "                      addresses, localhost and names without a dot; with commas between\n"
    "  --cors ORIGINS      sites whose pages may use it from a browser, such as\n"
    "                      https://chat.example, with commas between; *: any\n"
    "  --name NAME         of the model (default: the last part of MODEL_DIR)\n"
    "  --context N         tokens of prompt and answer (default: 4096, or fewer where the model "
    "has\n"
    "                      fewer positions)\n"
    "  --batch N           requests that are decoded together (default 16; up to 48, with experts\n"
    "                      on NVIDIA GPUs 16; up to 256 on an H100 or H200, or with a dense model\n"
    "                      on an AMD GPU)\n"
    "  --chunk N           tokens of a prompt in a step (default: what --batch leaves of 64, with\n"
    "                      experts on NVIDIA GPUs of 32, or 512 with more requests; where 256 are\n"
    "                      possible up to 2048 less --batch)\n"
    "  --chunk-beside N    tokens of a prompt in a step that also decodes requests: small chunks\n"
    "                      keep their tokens coming, large ones bring the first token sooner\n"
    "                      (default: as --chunk)\n"
    "  --workers N         threads that run tiles, on the CPU (default: the processors that the "
    "process\n"
    "                      may use, by its affinity and the CPU quota of its cgroup)\n"
    "  --dequantize        makes bf16 of quantised weights when they are loaded: what GPUs need\n"
    "  --queue N           requests of each class that may wait (default 256)\n"
    "  --body N            bytes of a request's body, at most (default 1048576)\n"
    "  --connections N     at most (default 1024)\n"
    "  --of-address N      connections of one address, at most (default: half of all; on "
    "127.0.0.1\n"
    "                      or ::1 all, since those are programs of this machine)\n"
    "  --seconds N         that a client has to send its request, and to read the rest of an "
    "answer\n"
    "                      (default 30)\n"
    "  --drain N           seconds that running requests have to end after SIGINT or SIGTERM, "
    "before\n"
    "                      they are cancelled (default 30)\n"
    "  --chat-template T   of the model's chat template, where it is not recognised: qwen3,\n"
    "                      qwen3-instruct, qwen3-thinking, qwen2.5 or llama3\n"
    "  --strict            refuses fields that are not known, and max_tokens that do not fit\n"
    "  --allow-special     control tokens in messages, such as <|im_end|>, are not text\n"
    "  --log FILE          a line for each request that comes or ends, with both queues; -: "
    "stderr\n"
    "  --trace FILE        a timeline of all requests, JSON for Perfetto\n"
    "  --help\n"
    "\n"
    "Ends at SIGINT or SIGTERM; at a second one without waiting. Status 0; 1: it went wrong; 2: a "
    "file or an argument is wrong.\n";

/* Prints why the program ends, and returns its status. */
static int stop(int code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "serve: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    return code;
}

/* The same for the error of a model's file. */
static int stop_for_file(const char *error)
{
    return stop(qwen3_is_no_memory(error) ? SERVE_FAILED : SERVE_REFUSED, "%s", error);
}

typedef struct option {
    const char *name;
    size_t at;     /* offset in options */
    uint32_t most; /* of a number; 0: text; OPTION_FLAG: it has no value */
} option;
#define OPTION_FLAG UINT32_MAX

static const option known_options[] = {
    {"--host", offsetof(options, host), 0},
    {"--port", offsetof(options, port), 0},
    {"--api-key-file", offsetof(options, key_file), 0},
    {"--server-name", offsetof(options, names), 0},
    {"--cors", offsetof(options, origins), 0},
    {"--name", offsetof(options, name), 0},
    {"--chat-template", offsetof(options, chat_template), 0},
    {"--log", offsetof(options, log), 0},
    {"--trace", offsetof(options, trace), 0},
    {"--context", offsetof(options, context), 1u << 24},
    {"--batch", offsetof(options, batch), 256},
    {"--chunk", offsetof(options, chunk), 2048},
    {"--chunk-beside", offsetof(options, beside), 2048},
    {"--workers", offsetof(options, workers), 1024},
    {"--queue", offsetof(options, queue), 1u << 20},
    {"--body", offsetof(options, body), 1u << 28},
    {"--connections", offsetof(options, connections), 1u << 16},
    {"--of-address", offsetof(options, of_address), 1u << 16},
    {"--seconds", offsetof(options, seconds), 86400},
    {"--drain", offsetof(options, drain), 86400},
    {"--strict", offsetof(options, strict), OPTION_FLAG},
    {"--allow-special", offsetof(options, allow_special), OPTION_FLAG},
    {"--dequantize", offsetof(options, dequantize), OPTION_FLAG},
};
#define KNOWN_OPTIONS (sizeof known_options / sizeof known_options[0])

static int read_options(options *o, int argc, char **argv)
{
    qwen3_family family;
    o->host = "127.0.0.1", o->port = "8080";
    o->batch = 16, o->queue = 256, o->body = 1u << 20, o->connections = 1024,
    o->seconds = o->drain = 30;
    for (int i = 1; i < argc; i++) {
        const option *known = known_options;
        char *to, *end;
        unsigned long n;
        if (!strcmp(argv[i], "--help")) {
            o->help = 1;
            return 0;
        }
        while (known < known_options + KNOWN_OPTIONS && strcmp(argv[i], known->name)) known++;
        if (known == known_options + KNOWN_OPTIONS) {
            if (argv[i][0] == '-' || o->dir)
                return stop(SERVE_REFUSED, "what is %s?\n%s", argv[i], help_text);
            o->dir = argv[i];
            continue;
        }
        to = (char *)o + known->at;
        if (known->most == OPTION_FLAG) {
            *(uint32_t *)(void *)to = 1;
            continue;
        }
        if (++i == argc) return stop(SERVE_REFUSED, "%s needs a value", known->name);
        if (!known->most) {
            *(const char **)(void *)to = argv[i];
            continue;
        }
        n = strtoul(argv[i], &end, 10);
        if (argv[i][0] < '0' || argv[i][0] > '9' || *end || n < 1 || n > known->most)
            return stop(SERVE_REFUSED, "%s needs a number from 1 to %u", known->name, known->most);
        *(uint32_t *)(void *)to = (uint32_t)n;
    }
    if (!*o->port || strspn(o->port, "0123456789") != strlen(o->port) ||
        strtoul(o->port, NULL, 10) > 65535)
        return stop(SERVE_REFUSED, "--port needs a number from 0 to 65535");
    if (o->chat_template && qwen3_family_named(o->chat_template, &family))
        return stop(SERVE_REFUSED, "--chat-template needs " QWEN3_FAMILY_NAMES);
    return o->dir ? 0 : stop(SERVE_REFUSED, "no MODEL_DIR\n%s", help_text);
}

/* The last part of a path, without slashes at its end. */
static void name_of_dir(const char *dir, char *name, size_t room)
{
    size_t end = strlen(dir), begin;
    while (end > 1 && dir[end - 1] == '/') end--;
    for (begin = end; begin && dir[begin - 1] != '/';) begin--;
    snprintf(name, room, "%.*s", (int)(end - begin), dir + begin);
}

/* Not an option's value, which all users of a machine can see. */
static int read_key(const char *file, char *key, size_t room)
{
    FILE *f = fopen(file, "r");
    size_t n;
    if (!f) return stop(SERVE_REFUSED, "--api-key-file %s: %s", file, strerror(errno));
    n = fread(key, 1, room - 1, f);
    fclose(f);
    key[n] = 0;
    key[strcspn(key, "\r\n")] = 0;
    if (!key[0] || strlen(key) == room - 1)
        return stop(SERVE_REFUSED, "--api-key-file %s: the first line must have 1 to %zu bytes",
                    file, room - 2);
    return 0;
}

static int is_loopback(const char *host)
{
    return !strcmp(host, "127.0.0.1") || !strcmp(host, "::1");
}

/* Files that a process may have open: a socket for each connection. */
static int raise_files(uint32_t connections)
{
    struct rlimit limit;
    const rlim_t wanted = (rlim_t)connections + 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= wanted) return 0;
    if (limit.rlim_max < wanted)
        return stop(SERVE_REFUSED, "--connections %u: this process may have %llu open files",
                    connections, (unsigned long long)limit.rlim_max);
    limit.rlim_cur = wanted;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        return stop(SERVE_FAILED, "the number of open files cannot be raised");
    return 0;
}

/* An output that cannot be written, or 0. */
static int stop_for_output(const char *option, const char *name, int why)
{
    return why ? stop(SERVE_FAILED, "%s%s%s cannot be written: %s", option, *option ? " " : "",
                      name, strerror(why))
               : 0;
}
static int put_out(const char *text, size_t size)
{
    output out = output_to(stdout);
    output_put(&out, text, size);
    return stop_for_output("", "standard output", output_flush(&out));
}

/* Lets running requests end, until it takes too long or another signal comes. */
static void drain(server *s, uint32_t seconds, const sigset_t *signals)
{
    const struct timespec pause = {0, SWEEP_NS};
    const double until = server_now() + seconds;
    server_drain(s);
    while (requests_open(s) && server_now() < until && sigtimedwait(signals, NULL, &pause) < 0)
        continue;
}

/* Runs the server until a signal asks for its end. */
static int serve(server *s, const options *o, sigset_t *signals)
{
    char error[512], line[512];
    int signal_number, bad;
    if (server_start(s, error, sizeof error)) return stop(SERVE_FAILED, "%s", error);
    /* Until here the files of a run before are left as they are. */
    if (s->desc.log && (bad = stop_for_output("--log", o->log, output_publish(s->desc.log))) != 0)
        return bad;
    if (s->desc.trace &&
        (bad = stop_for_output("--trace", o->trace, output_publish(s->desc.trace))) != 0)
        return bad;
    if (!s->desc.api_key && !is_loopback(o->host))
        fprintf(stderr, "serve: anyone who reaches %s can use it: there is no --api-key-file\n",
                o->host);
    snprintf(line, sizeof line, "serving %s on http://%s%s%s:%u, context %u, %s\n", s->desc.model,
             strchr(o->host, ':') ? "[" : "", o->host, strchr(o->host, ':') ? "]" : "",
             server_port(s), s->rules.limits.context,
             s->codec.is_open ? "text and token ids" : "token ids only");
    if ((bad = put_out(line, strlen(line))) != 0) return bad;
    sigwait(signals, &signal_number);
    drain(s, o->drain, signals);
    pthread_sigmask(SIG_UNBLOCK, signals, NULL); /* one more signal ends it at once */
    return 0;
}

/* Requests that do not say how tokens are drawn have them drawn as the model's file says. */
static void set_defaults(server *s, const qwen3_drawing *d)
{
    sampling *to = &s->rules.defaults;
    if (!d->given || !engine_limits_of(s->e).samples) return;
    to->temperature = d->temperature < 1e-3 ? 0 : d->temperature;
    to->top_p = d->top_p, to->min_p = d->min_p, to->top_k = d->top_k;
    fprintf(stderr,
            "serve: by default, as " QWEN3_GENERATION
            " says: temperature %g, top_p %g, min_p %g, top_k %u\n",
            to->temperature, to->top_p, to->min_p, to->top_k);
}

/* Opens the engine and serves. */
static int run_engine(server *s, const options *o, sigset_t *signals)
{
    char error[512];
    engine_desc desc;
    qwen3_drawing drawing;
    int bad;
    memset(&desc, 0, sizeof desc);
    desc.dir = o->dir, desc.context = o->context, desc.batch = o->batch, desc.chunk = o->chunk,
    desc.beside = o->beside;
    desc.queue = o->queue, desc.workers = o->workers, desc.dequantize = o->dequantize;
    desc.on_event = server_event, desc.user = s;
    s->e = engine_open(&desc, error, sizeof error);
    if (!s->e) return stop_for_file(error);
    bad = text_open(&s->codec, o->dir, o->chat_template, engine_limits_of(s->e).vocab, error,
                    sizeof error) ||
                  qwen3_drawing_read(o->dir, &drawing, error, sizeof error)
              ? stop_for_file(error)
              : 0;
    if (!bad) set_defaults(s, &drawing);
    s->codec.allow_special = o->allow_special;
    if (!bad) bad = serve(s, o, signals);
    server_stop(s);
    engine_close(s->e);
    text_close(&s->codec);
    return bad;
}

/* Files that were not published are removed. */
static int close_output(output *o, const char *option, const char *name, int bad)
{
    const int why = output_close(o, !bad);
    return bad ? bad : stop_for_output(option, name, why);
}

static int run(server *s, int argc, char **argv)
{
    char name[128], key[256];
    options o;
    sigset_t signals;
    output log = output_to(NULL), trace = output_to(NULL);
    int bad, why = 0;
    memset(&o, 0, sizeof o);
    if ((bad = read_options(&o, argc, argv)) != 0) return bad;
    if (o.help) return put_out(help_text, strlen(help_text));
    name_of_dir(o.name ? o.name : o.dir, name, sizeof name);
    if (o.key_file && (bad = read_key(o.key_file, key, sizeof key)) != 0) return bad;
    if ((bad = raise_files(o.connections)) != 0) return bad;
    s->desc.host = o.host, s->desc.port = o.port, s->desc.model = name;
    s->desc.api_key = o.key_file ? key : NULL;
    s->desc.names = o.names, s->desc.origins = o.origins, s->desc.strict = o.strict;
    s->desc.version = VERSION_TEXT(FLEET_VERSION_MAJOR, FLEET_VERSION_MINOR);
    if (!o.of_address) o.of_address = is_loopback(o.host) ? o.connections : (o.connections + 1) / 2;
    s->desc.of_address = o.of_address;
    s->desc.max_body = o.body, s->desc.connections = o.connections, s->desc.seconds = o.seconds;
    /* Before threads are made, which inherit it: only sigwait takes them. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    if (o.log && !strcmp(o.log, "-"))
        log = output_to(stderr);
    else if (o.log && (why = output_open(&log, o.log)) != 0)
        bad = stop(SERVE_REFUSED, "--log %s: %s", o.log, strerror(why));
    if (!bad && o.trace && (why = output_open(&trace, o.trace)) != 0)
        bad = stop(SERVE_REFUSED, "--trace %s: %s", o.trace, strerror(why));
    if (o.log) s->desc.log = &log;
    if (o.trace) s->desc.trace = &trace;
    if (!bad) bad = run_engine(s, &o, &signals);
    bad = close_output(&log, "--log", o.log, bad);
    return close_output(&trace, "--trace", o.trace, bad);
}

int main(int argc, char **argv)
{
    static server s;
    int code;
    output_begin();
    pthread_mutex_init(&s.lock, NULL);
    code = run(&s, argc, argv);
    pthread_mutex_destroy(&s.lock);
    return code;
}
