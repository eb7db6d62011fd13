/* qwen3: a Qwen3 or Qwen3-MoE decoder as one megakernel, from a checkpoint as Hugging Face writes it.

       qwen3 MODEL_DIR --prompt-ids 1,2,3 --steps 24        and see --help

   Reads config.json and model.safetensors (or the index and its shards), packs the weights for the matrix units of this
   GPU, builds the graph of one step (model.h), and decodes greedily: all steps, of the prompt and of what follows, in a
   single launch. Tokens go to stdout, timings to stderr.

       checkpoint.h   the files of a model, checked
       decoder.h      what lies in device memory; the rows of a step
       tiles.h        the tile functions; tiles_host.h, tiles_cuda.h, tiles_amd.h: the products of each platform,
                      with weights_in_place.h, fragments.h, many_rows_cuda.h, attention_cuda.h and
                      instructions_cuda.h
       model.h        packing, the graph, the launch
       check.h        against a reference's tokens and logits

   Built by examples/run.sh; needs libjansson. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#define FLEET_IMPLEMENTATION
#include "check.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

typedef struct options {
    const char *dir, *prompts, *schedule, *check, *trace;
    uint32_t batch, chiplets, steps, context, random_weights;
} options;

static const char usage[] =
    "usage: qwen3 MODEL_DIR [OPTION...]\n"
    "Decodes greedily with a Qwen3 or Qwen3-MoE model, all steps in one kernel launch.\n"
    "\n"
    "  --prompt-ids IDS    tokens of the prompt: 1,2,3; of several sequences: 1,2,3;4,5 (N*T: N "
    "times token T)\n"
    "  --steps N           tokens to generate (default 24)\n"
    "  --batch N           sequences; where fewer prompts are given, they are taken again from the "
    "first one\n"
    "  --context N         tokens that the cache of a sequence has room for (default: as many as "
    "are needed)\n"
    "  --schedule NAME     static (default), chiplet, dynamic, auto, or unfused: a barrier between "
    "all grids\n"
    "  --chiplets N        virtual chiplets, where the device's L2 is one (default: as the device "
    "has)\n"
    "  --random-weights    needs config.json alone: for timing\n"
    "  --check FILE        runs the cases of an expected.json instead, and compares tokens and "
    "logits\n"
    "  --trace FILE        writes the last step's timeline, .svg or .json for Perfetto; needs "
    "-DFLEET_TRACE\n"
    "  --help\n"
    "\n"
    "Prints \"tokens: ...\", a line per sequence. Ends with 0; 1: it went wrong; 2: a file or an "
    "argument is.\n";

static void stop(int code, const char *why)
{
    fprintf(stderr, "qwen3: %s\n", why);
    exit(code);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- arguments ---- */

static uint32_t number(const char *option, const char *text)
{
    char *end, why[128];
    const unsigned long n = text ? strtoul(text, &end, 10) : 0;
    if (!text || *text < '0' || *text > '9' || *end || n < 1 || n > 1u << 24) {
        snprintf(why, sizeof why, "%s needs a number from 1 to %u", option, 1u << 24);
        stop(2, why);
    }
    return (uint32_t)n;
}

static options options_of(int argc, char **argv)
{
    options o;
    memset(&o, 0, sizeof o);
    o.steps = 24, o.schedule = "static";
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        const char **text = !strcmp(a, "--prompt-ids") ? &o.prompts
                            : !strcmp(a, "--schedule") ? &o.schedule
                            : !strcmp(a, "--check")    ? &o.check
                            : !strcmp(a, "--trace")    ? &o.trace
                                                       : NULL;
        uint32_t *count = !strcmp(a, "--batch")      ? &o.batch
                          : !strcmp(a, "--chiplets") ? &o.chiplets
                          : !strcmp(a, "--steps")    ? &o.steps
                          : !strcmp(a, "--context")  ? &o.context
                                                     : NULL;
        if (!strcmp(a, "--help")) {
            fputs(usage, stdout);
            exit(0);
        } else if (!strcmp(a, "--random-weights")) {
            o.random_weights = 1;
        } else if (text) {
            if (!value) fprintf(stderr, "qwen3: %s needs a value\n%s", a, usage), exit(2);
            *text = value, i++;
        } else if (count) {
            *count = number(a, value), i++;
        } else if (a[0] == '-' || o.dir) {
            fprintf(stderr, "qwen3: what is %s?\n%s", a, usage), exit(2);
        } else {
            o.dir = a;
        }
    }
    if (!o.dir) fprintf(stderr, "qwen3: no MODEL_DIR\n%s", usage), exit(2);
#if !defined(FLEET_TRACE)
    if (o.trace)
        stop(2, "--trace: this program has no trace compiled in; build it with -DFLEET_TRACE");
#endif
    return o;
}

/* "1,2,3;4,5" as requests. */
static uint32_t prompts_of(const options *o, request *requests)
{
    const char *p = o->prompts ? o->prompts : o->random_weights ? "1" : NULL;
    uint32_t n = 0, room = 0;
    uint32_t *tokens = NULL;
    if (!p) stop(2, "no --prompt-ids");
    for (;;) {
        char *end;
        unsigned long times = 1, token = strtoul(p, &end, 10);
        if (end != p && *end == '*') p = end + 1, times = token, token = strtoul(p, &end, 10);
        if (end == p || token > INT32_MAX || times < 1 || times > 1u << 24 || !strchr(",;", *end))
            stop(2, "--prompt-ids must be like 1,2,3 or 1,2,3;4,5");
        if (!tokens) {
            if (n == MOST_ROWS) stop(2, "--prompt-ids has too many sequences");
            memset(&requests[n], 0, sizeof *requests);
            room = 0;
        }
        if (requests[n].n_prompt + times > room) {
            room = 2 * (requests[n].n_prompt + (uint32_t)times);
            tokens = (uint32_t *)realloc(tokens, room * sizeof *tokens);
            if (!tokens) stop(1, "out of memory");
        }
        while (times--) tokens[requests[n].n_prompt++] = (uint32_t)token;
        requests[n].prompt = tokens;
        if (*end != ',') tokens = NULL, n++;
        if (!*end) break;
        p = end + 1;
    }
    if (o->batch > MOST_ROWS) stop(2, "--batch is at most 64");
    for (uint32_t given = n; n < o->batch; n++) requests[n] = requests[n % given];
    return n;
}

static void schedule_of(const char *name, session_desc *d)
{
    static const char *const names[] = {"static", "chiplet", "dynamic", "auto", "unfused"};
    static const fleet_schedule schedules[] = {FLEET_SCHEDULE_STATIC, FLEET_SCHEDULE_CHIPLET,
                                               FLEET_SCHEDULE_DYNAMIC, FLEET_SCHEDULE_AUTO,
                                               FLEET_SCHEDULE_STATIC};
    for (uint32_t i = 0; i < 5; i++)
        if (!strcmp(name, names[i])) {
            d->schedule = schedules[i], d->unfused = i == 4;
            return;
        }
    stop(2, "--schedule is static, chiplet, dynamic, auto or unfused");
}

/* ---- progress and times ---- */

static uint32_t shows_progress;

static void show_loading(uint32_t done, uint32_t of)
{
    if (shows_progress)
        fprintf(stderr, "\rloading %3u%%%s", 100 * done / of,
                done == of ? "\r              \r" : "");
}

/* Looks from outside how far the launch is: the last grid of a step notifies an event that the host can see. */
typedef struct watch {
    session *s;
    uint32_t first_epoch;
    volatile uint32_t over;
    double first_token, decoding, end; /* when these steps ended */
    uint32_t decoding_step, last_step;
} watch;

static void *watch_steps(void *user)
{
    watch *w = (watch *)user;
    const session *s = w->s;
    const int32_t event = fleet_plan_event(s->plan, "next");
    const struct timespec pause = {0, 100000};
    uint32_t steps = 0;
    while (!w->over && steps < s->steps) {
        uint32_t done = 0;
        if (fleet_event_test(&s->state, event, 0, w->first_epoch + steps + 1, &done)) break;
        if (!done) {
            nanosleep(&pause, NULL);
            continue;
        }
        w->end = now(), w->last_step = ++steps;
        if (steps == s->first_token) w->first_token = w->end;
        if (steps == s->decoding) w->decoding = w->end, w->decoding_step = steps;
        if (shows_progress) fprintf(stderr, "\rstep %u of %u", steps, s->steps);
    }
    if (shows_progress) fprintf(stderr, "\r                        \r");
    return NULL;
}

/* What this device reads in a second: each workgroup its part, from one end to the other. */
#define READERS 8u /* workgroups of a worker on GPUs */
FLEET_GLOBAL(COPY_THREADS)
void read_all(const fleet_quad *from, uint64_t quads, uint32_t *sink)
{
    const uint64_t blocks = fleet_block_count(), first = quads * fleet_block_id() / blocks,
                   end = quads * (fleet_block_id() + 1) / blocks;
    const uint32_t threads = fleet_thread_count();
    uint32_t sum[4] = {0, 0, 0, 0};
#if defined(FLEET_CUDA) || defined(FLEET_HIP)
#pragma unroll 8
#endif
    for (uint64_t i = first + fleet_thread_id(); i < end; i += threads) {
        const fleet_quad quad = from[i];
        for (uint32_t j = 0; j < 4; j++) sum[j] ^= quad.word[j];
    }
    if ((sum[0] ^ sum[1] ^ sum[2] ^ sum[3]) == 0x2545f491u) *sink = 1; /* so that it must be read */
}
FLEET_THUNK3(read_all, const fleet_quad *, uint64_t, uint32_t *)

/* The median of some: TPOT is a mean, too. 0: it cannot be measured. */
#define READS 9
static double read_bandwidth(void)
{
    const uint64_t words = 1u << 27; /* of bf16: 256 MB, more than caches hold; */
#if defined(FLEET_HOST)
    const uint64_t bytes = words * 2;
    const uint32_t readers = device_workers();
#else
    const uint64_t bytes = words * 16; /* and 2 GB, for a launch to be nothing beside it */
    const uint32_t readers = device_workers() * READERS;
#endif
    fleet_kernel_desc desc = fleet_kernel_desc_default();
    void *memory = NULL, *sink = NULL, *args[3], *fill[4];
    uint64_t quads = bytes / 16, all = bytes / 2, seed = 1;
    double rate[READS];
    uint32_t n = 0;
    float scale = 1;
    if (fleet_device_alloc(&memory, bytes) || fleet_device_alloc(&sink, 4)) {
        fleet_device_free(memory);
        return 0;
    }
    args[0] = &memory, args[1] = &quads, args[2] = &sink;
    fill[0] = &memory, fill[1] = &all, fill[2] = &seed, fill[3] = &scale;
    desc.blocks = readers, desc.threads = COPY_THREADS;
    if (!fleet_kernel_launch(FLEET_KERNEL_OF(fill_random), fill, &desc) && !fleet_stream_wait(NULL))
        for (n = 0; n < READS; n++) {
            const double start = now();
            uint32_t at = n;
            if (fleet_kernel_launch(FLEET_KERNEL_OF(read_all), args, &desc) ||
                fleet_stream_wait(NULL))
                break;
            rate[n] = (double)bytes / (now() - start);
            for (; at && rate[at] < rate[at - 1]; at--) {
                const double faster = rate[at - 1];
                rate[at - 1] = rate[at], rate[at] = faster;
            }
        }
    fleet_device_free(memory);
    fleet_device_free(sink);
    return n == READS ? rate[READS / 2] : 0;
}

/* ---- trace ---- */

/* Text of any length, as functions write it that work like snprintf; to be freed. */
typedef size_t text_fn(const fleet_trace_log *log, uint32_t first_step, uint32_t steps, char *text,
                       size_t bytes);
static char *text_of(text_fn *write, const fleet_trace_log *log)
{
    const size_t length = write(log, 0, 0, NULL, 0);
    char *text = (char *)malloc(length + 1);
    if (!text) stop(1, "out of memory");
    write(log, 0, 0, text, length + 1);
    return text;
}

static void write_trace(const session *s, const char *path)
{
    const char *end = strrchr(path, '.');
    fleet_trace_log log;
    FILE *file;
    char *text;
    const fleet_status status = fleet_trace_read(&log, &s->trace, NULL);
    if (status) stop(1, fleet_status_text(status));
    text = text_of(fleet_trace_report, &log);
    fprintf(stderr, "%s", text);
    free(text);
    text = text_of(end && !strcmp(end, ".json") ? fleet_trace_json : fleet_trace_svg, &log);
    file = fopen(path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file))
        stop(2, "--trace: the file cannot be written");
    fprintf(stderr, "the timeline of the last step is in %s\n", path);
    free(text);
    fleet_trace_log_free(&log);
}

/* ---- decoding ---- */

static void decode_prompts(const options *o, const model *m, const session_desc *desc,
                           const request *requests, uint32_t n, double started, double loaded)
{
    session s;
    watch w;
    pthread_t thread;
    int32_t *picked = (int32_t *)malloc((size_t)n * desc->steps * sizeof *picked);
    uint32_t counts[MOST_ROWS];
    double planned, launched;
    memset(&w, 0, sizeof w);
    if (!picked) stop(1, "out of memory");
    if (session_open(&s, m, desc, requests, n)) stop(2, s.error);
    planned = now();
    w.s = &s;
    if (pthread_create(&thread, NULL, watch_steps, &w)) stop(1, "no thread for the progress");
    launched = now();
    if (session_run(&s)) stop(1, s.error);
    w.over = 1;
    pthread_join(thread, NULL);
    if (session_picked(&s, picked, counts)) stop(1, s.error);
    for (uint32_t i = 0; i < n; i++) {
        printf("tokens:");
        for (uint32_t t = 0; t < counts[i]; t++) printf(" %d", picked[i * desc->steps + t]);
        printf("\n");
    }
    fprintf(stderr,
            "load %.2f s, plan %.3f s, launch to first token %.1f ms, process start to first token "
            "%.2f s\n",
            loaded - started, planned - loaded, 1e3 * (w.first_token - launched),
            w.first_token - started);
    if (w.last_step > w.decoding_step && w.decoding_step) {
        const uint32_t steps = w.last_step - w.decoding_step;
        const double tpot = (w.end - w.decoding) / steps;
        const double cache = 2.0 * m->config.layers * m->config.kv_heads * m->config.head_dim *
                             sizeof(kept) * (double)s.cached / steps;
        const double bytes = (double)m->step_bytes + cache, bandwidth = read_bandwidth();
        fprintf(stderr,
                "TPOT %.3f ms over %u steps of %u sequences; a step reads %.1f MB (%.1f of "
                "weights, %.1f of keys and values)",
                1e3 * tpot, steps, n, bytes / 1e6, (double)m->step_bytes / 1e6, cache / 1e6);
        fprintf(stderr, ": %.1f GB/s, %.0f%% of the %.1f GB/s that a plain read reaches here\n",
                bytes / tpot / 1e9, 100 * bytes / tpot / bandwidth, bandwidth / 1e9);
    }
    if (o->trace) write_trace(&s, o->trace);
    free(picked);
    session_free(&s);
}

static int check(const qwen3_expected *e, const model *m, const session_desc *desc)
{
    checked c;
    int good;
    memset(&c, 0, sizeof c);
    for (uint32_t i = 0; i < e->count; i++)
        if (check_cases(m, desc, e->cases + i, 1, &c)) stop(1, c.error);
    if (check_cases(m, desc, e->cases, e->count, &c)) stop(1, c.error);
    good = checked_is_good(&c);
    if (c.wrong) fprintf(stderr, "%s\n", c.first);
    printf("%s: %u of %u tokens as expected, each case alone and all in one batch",
           good ? "ok" : "wrong", c.right, c.tokens);
    if (CHECK_MARGIN > 0)
        printf(", %u others where the best two are within %.2f", c.near_ties, CHECK_MARGIN);
    printf("; %u logits within %.1e, allowed %.0e\n", c.logits, c.worst, CHECK_LOGITS);
    return good ? 0 : 1;
}

int main(int argc, char **argv)
{
    const double started = now();
    const options o = options_of(argc, argv);
    request requests[MOST_ROWS];
    session_desc desc;
    model m;
    qwen3_checkpoint checkpoint;
    qwen3_config config;
    qwen3_expected expected;
    uint32_t n = 0;
    int code = 0;
    char error[MOST_ERROR];
    memset(&desc, 0, sizeof desc);
    desc.chiplets = o.chiplets, desc.steps = o.steps, desc.context = o.context;
    desc.trace = o.trace != NULL;
    schedule_of(o.schedule, &desc);
    shows_progress = (uint32_t)isatty(2);
    if (!o.check) {
        n = prompts_of(&o, requests);
        for (uint32_t i = 0; i < n && !o.context; i++)
            if (requests[i].n_prompt + o.steps > desc.context)
                desc.context = requests[i].n_prompt + o.steps;
    }
    if (o.random_weights) {
        if (qwen3_config_read(&config, o.dir, error, sizeof error)) stop(2, error);
    } else {
        if (qwen3_open(&checkpoint, o.dir)) stop(2, checkpoint.error);
        config = checkpoint.config;
    }
    if (o.check) {
        if (qwen3_expected_read(&expected, &config, o.check, error, sizeof error)) stop(2, error);
        n = expected.count;
    }
    if (model_load(&m, &config, o.random_weights ? NULL : &checkpoint, desc.schedule, n,
                   show_loading))
        stop(2, m.error);
    if (!o.random_weights) qwen3_close(&checkpoint);
    fleet_stream_wait(NULL);
    if (o.check) {
        code = check(&expected, &m, &desc);
        qwen3_expected_close(&expected);
    } else {
        decode_prompts(&o, &m, &desc, requests, n, started, now());
    }
    model_free(&m);
    return code;
}
