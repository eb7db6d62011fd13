/* qwen3: a Qwen3 or Qwen3-MoE decoder as one megakernel, from a checkpoint as Hugging Face writes it.

       qwen3 MODEL_DIR --prompt-ids 1,2,3 --steps 24        and see --help

   Reads config.json and model.safetensors (or the index and its shards), packs the weights for this GPU's matrix units,
   builds the graph of one step, and decodes greedily: all steps, of the prompt and of the continuation, in a single launch.
   Tokens go to stdout, timings to stderr. F16 and F32 matrices of the checkpoint are rounded to bf16, with a message.

   README.md lists the files, in reading order. Built by examples/run.sh; needs libjansson. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#define FLEET_IMPLEMENTATION
#include "bandwidth.h"
#include "check.h"
#include "fits.h"
#include "../tools/trace_picture.h"

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

typedef struct options {
    const char *dir, *prompts, *schedule, *check, *trace;
    uint32_t batch, chiplets, steps, context, share_prefixes, random_weights, bench, help;
} options;

/* Everything that main frees. */
typedef struct program {
    options o;
    request requests[MAX_ROWS];
    uint32_t *prompts[MAX_ROWS]; /* as given; a batch may repeat them */
    uint32_t n_prompts, n;
    session_desc desc;
    qwen3_checkpoint checkpoint;
    qwen3_expected expected;
    model m;
    session s;
    int32_t *generated;
    double *ended; /* when each step ended */
    FILE *trace;
    double started, loaded, planned;
    char error[ERROR_BYTES];
} program;

static const char usage[] =
    "usage: qwen3 MODEL_DIR [OPTION...]\n"
    "Decodes greedily with a Qwen3 or Qwen3-MoE model, all steps in one kernel launch.\n"
    "\n"
    "  --prompt-ids IDS    tokens of the prompt: 1,2,3; of several sequences: 1,2,3;4,5 (N*T: N "
    "times token T)\n"
    "  --steps N           tokens to generate (default 24); a sequence ends earlier at an "
    "eos_token_id\n"
    "  --batch N           sequences; where fewer prompts are given, they are taken again from the "
    "first one\n"
    "  --context N         tokens that the cache of a sequence has room for (default: as many as "
    "are needed)\n"
    "  --schedule NAME     static (default), chiplet, dynamic, auto, or unfused: a barrier between "
    "all grids\n"
    "  --chiplets N        virtual chiplets, where the device's L2 is one (default: as the device "
    "has)\n"
    "  --share-prefixes    prompts that begin alike share the keys and values of these tokens\n"
    "  --random-weights    needs config.json alone: for timing\n"
    "  --bench             also measures what a plain read of memory reaches, to compare with\n"
    "  --check FILE        runs the cases of an expected.json instead, and compares tokens and "
    "logits;\n"
    "                      with --schedule and --chiplets only\n"
    "  --trace FILE        writes the last step's timeline, .svg or .json for Perfetto; needs "
    "-DFLEET_TRACE\n"
    "  --help\n"
    "\n"
    "Prints \"tokens: ...\", a line per sequence. Ends with 0; 1: it went wrong; 2: a file or an "
    "argument is.\n";

/* Prints why the program ends, and returns its status. */
static int stop(int code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "qwen3: ");
    vfprintf(stderr, format, list);
    fprintf(stderr, "\n");
    va_end(list);
    return code;
}

/* Output that cannot be written is an error: a disk may be full, a pipe closed. */
static int flush_tokens(void)
{
    if (fflush(stdout) || ferror(stdout))
        return stop(RUN_FAILED, "standard output cannot be written: %s", strerror(errno));
    return 0;
}
/* ---- arguments ---- */

typedef enum option_kind { OPTION_TEXT, OPTION_COUNT, OPTION_FLAG } option_kind;
typedef struct option {
    const char *name;
    option_kind kind;
    size_t at;       /* offset in options */
    uint32_t checks; /* 1: may be combined with --check */
} option;
static const option known[] = {
    {"--prompt-ids", OPTION_TEXT, offsetof(options, prompts), 0},
    {"--schedule", OPTION_TEXT, offsetof(options, schedule), 1},
    {"--check", OPTION_TEXT, offsetof(options, check), 1},
    {"--trace", OPTION_TEXT, offsetof(options, trace), 0},
    {"--batch", OPTION_COUNT, offsetof(options, batch), 0},
    {"--chiplets", OPTION_COUNT, offsetof(options, chiplets), 1},
    {"--steps", OPTION_COUNT, offsetof(options, steps), 0},
    {"--context", OPTION_COUNT, offsetof(options, context), 0},
    {"--share-prefixes", OPTION_FLAG, offsetof(options, share_prefixes), 0},
    {"--random-weights", OPTION_FLAG, offsetof(options, random_weights), 0},
    {"--bench", OPTION_FLAG, offsetof(options, bench), 0},
    {"--help", OPTION_FLAG, offsetof(options, help), 1},
};
#define KNOWN (sizeof known / sizeof known[0])
#define MAX_COUNT (1u << 24)

static int count_of(const char *name, const char *text, uint32_t *count)
{
    char *end;
    const unsigned long n = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || n < 1 || n > MAX_COUNT)
        return stop(RUN_REFUSED, "%s needs a number from 1 to %u", name, MAX_COUNT);
    *count = (uint32_t)n;
    return 0;
}

/* No option is ignored: neither one that is given twice, nor one that --check does not use. */
static int read_options(options *o, int argc, char **argv)
{
    uint32_t given[KNOWN] = {0};
    o->steps = 24, o->schedule = "static";
    for (int i = 1; i < argc; i++) {
        char *to;
        uint32_t k = 0;
        while (k < KNOWN && strcmp(argv[i], known[k].name)) k++;
        if (k == KNOWN && (argv[i][0] == '-' || o->dir))
            return stop(RUN_REFUSED, "what is %s?\n%s", argv[i], usage);
        if (k == KNOWN) {
            o->dir = argv[i];
            continue;
        }
        if (given[k]++) return stop(RUN_REFUSED, "%s is given twice", known[k].name);
        to = (char *)o + known[k].at;
        if (known[k].kind == OPTION_FLAG) {
            *(uint32_t *)(void *)to = 1;
            continue;
        }
        if (++i == argc) return stop(RUN_REFUSED, "%s needs a value\n%s", known[k].name, usage);
        if (known[k].kind == OPTION_TEXT)
            *(const char **)(void *)to = argv[i];
        else if (count_of(known[k].name, argv[i], (uint32_t *)(void *)to))
            return RUN_REFUSED;
    }
    if (o->help) return 0;
    if (!o->dir) return stop(RUN_REFUSED, "no MODEL_DIR\n%s", usage);
    for (uint32_t k = 0; k < KNOWN && o->check; k++)
        if (given[k] && !known[k].checks)
            return stop(RUN_REFUSED, "%s has no meaning with --check", known[k].name);
#if !defined(FLEET_TRACE)
    if (o->trace)
        return stop(RUN_REFUSED,
                    "--trace: this program has no trace compiled in; build it with -DFLEET_TRACE");
#endif
    return 0;
}

/* Parses "1,2,3;4,5". */
static int read_prompts(program *a)
{
    const options *o = &a->o;
    const char *p = o->prompts ? o->prompts : o->random_weights ? "1" : NULL;
    uint32_t room = 0, n = 0;
    int begins = 1;
    if (!p) return stop(RUN_REFUSED, "no --prompt-ids");
    for (;;) {
        request *r = &a->requests[n];
        uint32_t *tokens = a->prompts[n < MAX_ROWS ? n : 0];
        char *end;
        unsigned long times = 1, token = strtoul(p, &end, 10);
        if (end != p && *end == '*') p = end + 1, times = token, token = strtoul(p, &end, 10);
        if (end == p || token > INT32_MAX || times < 1 || times > MAX_COUNT || !strchr(",;", *end))
            return stop(RUN_REFUSED, "--prompt-ids must be like 1,2,3 or 1,2,3;4,5");
        if (n == MAX_ROWS) return stop(RUN_REFUSED, "--prompt-ids has too many sequences");
        if (begins) room = 0, a->n_prompts = n + 1;
        if (r->n_prompt + times > MAX_COUNT)
            return stop(RUN_REFUSED, "--prompt-ids: sequence %u has more than %u tokens", n,
                        MAX_COUNT);
        if (r->n_prompt + times > room) {
            room = 2 * (r->n_prompt + (uint32_t)times);
            tokens = (uint32_t *)realloc(tokens, room * sizeof *tokens);
            if (!tokens) return stop(RUN_FAILED, "out of memory");
            a->prompts[n] = tokens;
        }
        while (times--) tokens[r->n_prompt++] = (uint32_t)token;
        r->prompt = tokens;
        begins = *end != ',';
        n += (uint32_t)begins;
        if (!*end) break;
        p = end + 1;
    }
    if (o->batch > MAX_ROWS) return stop(RUN_REFUSED, "--batch is at most %u", MAX_ROWS);
    if (o->batch && o->batch < n)
        return stop(RUN_REFUSED, "--batch %u: --prompt-ids has %u sequences", o->batch, n);
    a->n = o->batch ? o->batch : n;
    for (uint32_t i = n; i < a->n; i++) a->requests[i] = a->requests[i % n];
    return 0;
}

static int read_schedule(const char *name, session_desc *d)
{
    static const char *const names[] = {"static", "chiplet", "dynamic", "auto", "unfused"};
    static const fleet_schedule schedules[] = {FLEET_SCHEDULE_STATIC, FLEET_SCHEDULE_CHIPLET,
                                               FLEET_SCHEDULE_DYNAMIC, FLEET_SCHEDULE_AUTO,
                                               FLEET_SCHEDULE_STATIC};
    for (uint32_t i = 0; i < 5; i++)
        if (!strcmp(name, names[i])) {
            d->schedule = schedules[i], d->unfused = i == 4;
            return 0;
        }
    return stop(RUN_REFUSED, "--schedule is static, chiplet, dynamic, auto or unfused");
}

/* Opens the file before anything is loaded, so that a wrong name is found at once. */
static int open_trace(program *a)
{
    const char *end = strrchr(a->o.trace, '.');
    if (!end || (strcmp(end, ".svg") && strcmp(end, ".json")))
        return stop(RUN_REFUSED, "--trace %s: the name must end in .svg or .json", a->o.trace);
    a->trace = fopen(a->o.trace, "w");
    if (a->trace) return 0;
    return stop(RUN_REFUSED, "--trace %s: the file cannot be written: %s", a->o.trace,
                strerror(errno));
}

/* ---- progress and times ---- */

static uint32_t shows_progress;

static void show_loading(uint32_t done, uint32_t of)
{
    if (shows_progress)
        fprintf(stderr, "\rloading %3u%%%s", 100 * done / of,
                done == of ? "\r              \r" : "");
}

/* Watches from the host how far the launch is: the last grid of a step notifies an event that the
   host can see. */
typedef struct watch {
    const session *s;
    uint32_t is_over; /* 1: the launch has ended */
    uint32_t steps;   /* steps that were seen to end */
    double *ended;    /* when each of them ended */
} watch;

static void *watch_steps(void *user)
{
    watch *w = (watch *)user;
    const session *s = w->s;
    const int32_t event = fleet_plan_event(s->plan, "next");
    const struct timespec pause = {0, 100000};
    while (w->steps < s->steps) {
        const uint32_t is_over = __atomic_load_n(&w->is_over, __ATOMIC_ACQUIRE);
        uint32_t done = 0;
        if (fleet_event_test(&s->state, event, 0, w->steps + 1, &done) || (!done && is_over)) break;
        if (!done) {
            nanosleep(&pause, NULL);
            continue;
        }
        w->ended[w->steps++] = now();
        if (shows_progress) fprintf(stderr, "\rstep %u of %u", w->steps, s->steps);
    }
    if (shows_progress) fprintf(stderr, "\r                        \r");
    return NULL;
}

/* Runs the session and notes when its steps end. Steps that the watch missed end with the launch. */
static int watched_run(session *s, double *ended)
{
    watch w;
    pthread_t thread;
    double end;
    int bad;
    memset(&w, 0, sizeof w);
    w.s = s, w.ended = ended;
    if (pthread_create(&thread, NULL, watch_steps, &w))
        return stop(RUN_FAILED, "no thread for the progress");
    bad = session_run(s);
    end = now();
    __atomic_store_n(&w.is_over, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    if (bad) return stop(RUN_FAILED, "%s", s->error);
    for (uint32_t i = 0; i < s->summary.steps; i++)
        if (i >= w.steps || ended[i] > end) ended[i] = end;
    return 0;
}

/* Returns the text of a function that works like snprintf; the caller frees it. */
typedef size_t text_fn(const fleet_trace_log *log, uint32_t first_step, uint32_t steps, char *text,
                       size_t bytes);
static char *text_of(text_fn *write, const fleet_trace_log *log)
{
    const size_t length = write(log, 0, 0, NULL, 0);
    char *text = (char *)malloc(length + 1);
    if (text) write(log, 0, 0, text, length + 1);
    return text;
}

static int write_trace(program *a)
{
    fleet_trace_log log;
    char *report, *text;
    int bad;
    const fleet_status status = fleet_trace_read(&log, &a->s.trace, NULL);
    if (status) return stop(RUN_FAILED, "--trace: %s", fleet_status_text(status));
    report = text_of(fleet_trace_report, &log);
    text = text_of(strstr(a->o.trace, ".json") ? fleet_trace_json : trace_picture, &log);
    fleet_trace_log_free(&log);
    bad = !report || !text;
    if (bad) stop(RUN_FAILED, "out of memory");
    if (!bad) fprintf(stderr, "%s", report);
    if (!bad) {
        bad = fputs(text, a->trace) < 0;
        bad = fclose(a->trace) || bad;
        a->trace = NULL;
        if (bad) stop(RUN_FAILED, "--trace %s: cannot be written: %s", a->o.trace, strerror(errno));
    }
    if (!bad) fprintf(stderr, "the timeline of the last step is in %s\n", a->o.trace);
    free(report);
    free(text);
    return bad ? RUN_FAILED : 0;
}

/* ---- decoding ---- */

/* TPOT counts the steps after the first one in which every running sequence generates a token. */
static void print_times(const program *a, double launched)
{
    const model *m = &a->m;
    const run_summary *c = &a->s.summary;
    const double first_token = a->ended[c->first_token - 1];
    const uint32_t steps = c->decoding ? c->steps - c->decoding : 0;
    fprintf(stderr,
            "load %.2f s, plan %.3f s, launch to first token %.1f ms, process start to first token "
            "%.2f s\n",
            a->loaded - a->started, a->planned - a->loaded, 1e3 * (first_token - launched),
            first_token - a->started);
    if (a->o.share_prefixes)
        fprintf(stderr, "%u rows of prompts were computed; %u of %u pages are shared\n",
                a->s.last.prompt_rows, page_table_shared(&a->s.pages), a->s.pages.taken);
    if (steps) {
        const double tpot = (a->ended[c->steps - 1] - a->ended[c->decoding - 1]) / steps;
        const double sequences = (double)c->tokens / steps;
        const double cache = 2.0 * m->config.layers * m->config.kv_heads * m->config.head_dim *
                             sizeof(kv_t) * (double)c->cached / steps;
        const double bytes = (double)m->step_bytes + cache;
        if (!(tpot > 0)) {
            fprintf(stderr, "TPOT is not known: %u steps were over before they could be timed\n",
                    steps);
            return;
        }
        fprintf(stderr,
                "TPOT %.3f ms over %u steps of %.4g sequences; a step reads %s%.1f MB (%.1f of "
                "weights, %.1f of keys and values): %.1f GB/s",
                1e3 * tpot, steps, sequences,
                m->config.experts && sequences > 1 ? "at least " : "", /* more experts */
                bytes / 1e6, (double)m->step_bytes / 1e6, cache / 1e6, bytes / tpot / 1e9);
        if (a->o.bench) {
            const double bandwidth = read_bandwidth();
            if (bandwidth > 0)
                fprintf(stderr, ", %.0f%% of the %.1f GB/s that a plain read reaches here",
                        100 * bytes / tpot / bandwidth, bandwidth / 1e9);
            else
                fprintf(stderr, "; what a plain read reaches cannot be measured");
        }
        fprintf(stderr, "\n");
    }
}

static int open_session(program *a)
{
    const int bad = session_open(&a->s, &a->m, &a->desc, a->requests, a->n);
    return bad ? stop(bad, "%s", a->s.error) : 0;
}

static int decode_prompts(program *a)
{
    const uint32_t steps = a->desc.steps;
    uint32_t counts[MAX_ROWS];
    double launched;
    int bad = open_session(a);
    if (bad) return bad;
    a->planned = now();
    a->generated = (int32_t *)malloc((size_t)a->n * steps * sizeof *a->generated);
    a->ended = (double *)calloc(a->s.steps + 1u, sizeof *a->ended);
    if (!a->generated || !a->ended) return stop(RUN_FAILED, "out of memory");
    launched = now();
    if ((bad = watched_run(&a->s, a->ended)) != 0) return bad;
    if (session_generated(&a->s, a->generated, counts)) return stop(RUN_FAILED, "%s", a->s.error);
    for (uint32_t i = 0; i < a->n; i++) {
        printf("tokens:");
        for (uint32_t t = 0; t < counts[i]; t++) printf(" %d", a->generated[i * steps + t]);
        printf("\n");
    }
    if ((bad = flush_tokens()) != 0) return bad;
    print_times(a, launched);
    if (!a->trace) return 0;
    if (a->s.summary.steps < a->s.steps) { /* the recorded step did not run: again */
        a->desc.launch = a->s.summary.steps;
        session_free(&a->s);
        if ((bad = open_session(a)) != 0) return bad;
        if (session_run(&a->s)) return stop(RUN_FAILED, "%s", a->s.error);
    }
    return write_trace(a);
}

static int check(program *a)
{
    const qwen3_expected *e = &a->expected;
    checked c;
    int good, bad;
    memset(&c, 0, sizeof c);
    for (uint32_t i = 0; i <= e->count; i++) { /* each case alone, then all in one batch */
        const qwen3_case *cases = e->cases + (i < e->count ? i : 0);
        a->desc.page_seed = i; /* the first in order, the others in orders of their own */
        if (check_cases(&a->m, &a->desc, cases, i < e->count ? 1 : e->count, &c))
            return stop(c.failed, "%s", c.error);
    }
    good = checked_is_good(&c);
    if (c.wrong) fprintf(stderr, "%s\n", c.first);
    printf("%s: %u of %u tokens as expected, each case alone and all in one batch",
           good ? "ok" : "wrong", c.right, c.tokens);
    if (CHECK_MARGIN > 0)
        printf(", %u others where the best two are within %.2f", c.near_ties, CHECK_MARGIN);
    printf("; %u logits within %.1e, allowed %.0e\n", c.logits, c.worst, CHECK_LOGITS);
    bad = flush_tokens();
    return bad ? bad : good ? 0 : RUN_FAILED;
}

/* Opens the checkpoint, or its config alone, and checks whether this model can decode these
   requests here. */
static int open_model(program *a, qwen3_config *config)
{
    const qwen3_checkpoint *from = a->o.random_weights ? NULL : &a->checkpoint;
    uint32_t shortest = 1;
    int bad;
    if (a->o.random_weights) {
        if (qwen3_config_read(config, a->o.dir, a->error, sizeof a->error))
            return stop(RUN_REFUSED, "%s", a->error);
    } else {
        if (qwen3_open(&a->checkpoint, a->o.dir))
            return stop(RUN_REFUSED, "%s", a->checkpoint.error);
        *config = a->checkpoint.config;
        if (a->checkpoint.rounded)
            fprintf(stderr, "%u matrices are F16 or F32 in the checkpoint: rounded to bf16\n",
                    a->checkpoint.rounded);
    }
    if (a->o.check) {
        if (qwen3_expected_read(&a->expected, config, a->o.check, a->error, sizeof a->error))
            return stop(RUN_REFUSED, "%s", a->error);
        a->n = a->expected.count;
        return 0;
    }
    for (uint32_t i = 0; i < a->n; i++)
        if (a->requests[i].n_prompt + a->o.steps - 1 > shortest)
            shortest = a->requests[i].n_prompt + a->o.steps - 1;
    if (!a->desc.context) a->desc.context = shortest;
    if (requests_refused(config, &a->desc, a->requests, a->n, a->error))
        return stop(RUN_REFUSED, "%s", a->error);
    bad = memory_refused(config, from, &a->desc, a->n, shortest, memory_left(), a->error);
    return bad ? stop(bad, "%s", a->error) : 0;
}

static int run(program *a, int argc, char **argv)
{
    qwen3_config config;
    int bad = read_options(&a->o, argc, argv);
    if (bad) return bad;
    if (a->o.help) {
        fputs(usage, stdout);
        return flush_tokens();
    }
    a->desc.chiplets = a->o.chiplets, a->desc.steps = a->o.steps, a->desc.context = a->o.context;
    a->desc.trace = a->o.trace != NULL, a->desc.share_prefixes = a->o.share_prefixes;
    if ((bad = read_schedule(a->o.schedule, &a->desc)) != 0) return bad;
    if (!a->o.check && (bad = read_prompts(a)) != 0) return bad;
    if (a->o.trace && (bad = open_trace(a)) != 0) return bad;
    if ((bad = open_model(a, &config)) != 0) return bad;
    bad = model_load(&a->m, &config, a->o.random_weights ? NULL : &a->checkpoint, a->desc.schedule,
                     a->n, show_loading);
    if (bad) return stop(bad, "%s", a->m.error);
    qwen3_close(&a->checkpoint);
    fleet_stream_wait(NULL);
    a->loaded = now();
    return a->o.check ? check(a) : decode_prompts(a);
}

int main(int argc, char **argv)
{
    static program a;
    int code;
    signal(SIGPIPE, SIG_IGN); /* so that a closed pipe is an error of write */
    shows_progress = (uint32_t)isatty(2);
    a.started = now();
    code = run(&a, argc, argv);
    session_free(&a.s);
    model_free(&a.m);
    qwen3_close(&a.checkpoint);
    qwen3_expected_close(&a.expected);
    for (uint32_t i = 0; i < a.n_prompts; i++) free(a.prompts[i]);
    free(a.generated);
    free(a.ended);
    if (a.trace) fclose(a.trace);
    return code;
}
