/* qwen3: a Qwen3 or Qwen3-MoE decoder as one megakernel, from a checkpoint as Hugging Face writes it.

       qwen3 MODEL_DIR --chat                               a conversation, and see --help
       qwen3 MODEL_DIR --prompt-ids 1,2,3 --steps 24

   Reads config.json and model.safetensors (or the index and its shards), packs the weights for this GPU's matrix units,
   builds the graph of one step, and decodes: all steps, of the prompt and of the continuation, in a single launch.
   Text or tokens go to stdout, timings to stderr. F16 and F32 matrices of the checkpoint are rounded to bf16, with a message.

   README.md lists the files, in reading order. Built by examples/run.sh; needs libjansson, libpcre2-8 and libunistring. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#define FLEET_IMPLEMENTATION
#include "bandwidth.h"
#include "chat_template.h"
#include "check.h"
#include "fits.h"
#include "text.h"
#include "../tools/random_seed.h"
#include "../tools/trace_picture.h"
#if defined(FLEET_MPI)
#include "../parts/fleet_peers_mpi.h"
#define ENGINE(what) fleet_peers_mpi_##what
typedef fleet_peers_mpi peers_engine;
#elif defined(FLEET_IPC)
#include "../parts/fleet_peers_ipc.h"
#define ENGINE(what) fleet_peers_ipc_##what
typedef fleet_peers_ipc peers_engine;
#endif

#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <unistd.h>

typedef struct options {
    const char *dir, *prompts, *schedule, *check, *trace, *prompt, *prompt_file, *system,
        *chat_template;
    uint32_t batch, chiplets, tile_rows, steps, context, prefill_rows, share_prefixes,
        random_weights, bench, help, dequantize;
    uint32_t chat, no_thinking, ignore_eos, top_k, ranks, rank_limit, workers;
    uint64_t seed;
    float temperature, top_p, min_p;
} options;

/* Everything that main frees. */
typedef struct program {
    options o;
    request requests[MAX_SEQUENCES];
    uint32_t *prompts[MAX_SEQUENCES]; /* as given; a batch may repeat them */
    uint32_t n_prompts, n;
    session_desc desc;
#if HAS_RANKS
    peers_engine ranks;
    rank_engine engine;
#endif
    qwen3_checkpoint checkpoint;
    qwen3_expected expected;
    qwen3_tokenizer tokenizer;
    qwen3_family family; /* of its chat template */
    conversation said;
    kept_tokens kept;   /* of the turns before */
    text_output answer; /* of the sequence that is printed while it grows */
    model m;
    session s;
    int32_t *generated;
    double *ended; /* when each step ended */
    output out;    /* standard output */
    output trace;
    char trace_name[4096];
    double started, loaded, planned, launched;
    char error[ERROR_BYTES];
} program;

static const char usage[] =
    "usage: qwen3 MODEL_DIR [OPTION...]\n"
    "Decodes with a Qwen3 or Qwen3-MoE model, all steps in one kernel launch.\n"
    "\n"
    "  --prompt TEXT       the prompt; its continuation is printed as it comes\n"
    "  --prompt-file FILE  the same from a file; -: from standard input\n"
    "  --chat              with a prompt: an answer to it, by the chat template; without: a "
    "conversation, a\n"
    "                      message per line of standard input\n"
    "  --system TEXT       what the model is told before a chat\n"
    "  --no-thinking       a chat without reasoning before the answers\n"
    "  --chat-template T   of the model's chat template, where it is not recognised: qwen3,\n"
    "                      qwen3-instruct, qwen3-thinking, qwen2.5 or llama3\n"
    "  --prompt-ids IDS    tokens of the prompt: 1,2,3; of several sequences: 1,2,3;4,5 (N*T: N "
    "times token T)\n"
    "  --steps N           tokens to generate (default: 24, of text 512); a sequence ends earlier "
    "at an eos_token_id\n"
    "  --ignore-eos        it does not\n"
    "  --temperature T     draws tokens at random (default 0: always the most probable one)\n"
    "  --top-k N, --top-p P, --min-p P\n"
    "                      from the N most probable ones; from the most probable ones that add up "
    "to P; from those\n"
    "                      at least P times as probable as the most probable one; in this order\n"
    "  --seed N            of the random numbers (default: another one each time, which is "
    "printed)\n"
    "  --batch N           sequences; where fewer prompts are given, they are taken again from the "
    "first one\n"
    "  --context N         tokens that the cache of a sequence has room for (default: as many as "
    "are needed)\n"
    "  --prefill-rows N    rows of a step that takes prompts, at most, where a kernel of its own "
    "does\n"
    "                      (H100, H200, AMD; default: as many as are fast)\n"
    "  --schedule NAME     static (default), chiplet, dynamic, auto; unfused: a barrier between "
    "all "
    "grids;\n"
    "                      unaware: planned without chiplets; both to compare with\n"
    "  --tile-rows N       rows of a tile of a linear layer, a multiple of 16 (not on NVIDIA; "
    "default: all;\n"
    "                      unaware: 16)\n"
    "  --chiplets N        virtual chiplets, where the device's L2 is one (default: as the device "
    "has)\n"
    "  --workers N         threads that run tiles, on the CPU (default: the processors that the "
    "process may use,\n"
    "                      by its affinity and the CPU quota of its cgroup)\n"
    "  --ranks N           tensor-parallel over N processes; needs -DFLEET_MPI (mpirun -n N qwen3 "
    "...) or, on\n"
    "                      GPUs, -DFLEET_IPC (FLEET_RANK=0 FLEET_RANKS=N FLEET_PEERS_FILE=NEW "
    "qwen3 "
    "...)\n"
    "  --rank-limit N      seconds that a rank waits for another one (default: 600)\n"
    "  --share-prefixes    prompts that begin alike share the keys and values of these tokens\n"
    "  --dequantize        makes bf16 of quantised weights when they are loaded: what GPUs need; "
    "the "
    "CPU\n"
    "                      computes with them as they are\n"
    "  --random-weights    needs config.json alone: for timing\n"
    "  --bench             also measures what a plain read of memory reaches, to compare with\n"
    "  --check FILE        runs the cases of an expected.json instead, and compares tokens and "
    "logits;\n"
    "                      with --schedule, --chiplets, --workers, --tile-rows, --ranks, "
    "--rank-limit, --dequantize and\n"
    "                      --prefill-rows only\n"
    "  --trace FILE        writes the last step's timeline, .svg or .json for Perfetto; needs "
    "-DFLEET_TRACE\n"
    "  --help\n"
    "\n"
    "Prints text, or of --prompt-ids \"tokens: ...\", a line per sequence. Ctrl-C ends the text, "
    "and "
    "a conversation\n"
    "where it waits for a message. Ends with 0; 1: it went wrong; 2: a file or an "
    "argument is; 130: Ctrl-C.\n";

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

/* The same for the error of a file. */
static int stop_for_file(const char *error)
{
    return stop(qwen3_is_no_memory(error) ? RUN_FAILED : RUN_REFUSED, "%s", error);
}

/* Output that cannot be written is an error: a disk may be full, a pipe closed. */
static int flush_output(output *out)
{
    const int why = output_flush(out);
    return why ? stop(RUN_FAILED, "standard output cannot be written: %s", strerror(why)) : 0;
}
/* For text that could not be made or printed. */
static int stop_for_text(const text_output *text)
{
    return text->to->error ? flush_output(text->to) : stop(RUN_FAILED, "out of memory");
}

/* ---- arguments ---- */

typedef enum option_kind {
    OPTION_TEXT,
    OPTION_COUNT,
    OPTION_SEED,
    OPTION_NUMBER,
    OPTION_FLAG
} option_kind;
typedef struct option {
    const char *name;
    option_kind kind;
    size_t at;       /* offset in options */
    uint32_t checks; /* 1: may be combined with --check */
} option;
static const option known[] = {
    {"--prompt-ids", OPTION_TEXT, offsetof(options, prompts), 0},
    {"--prompt", OPTION_TEXT, offsetof(options, prompt), 0},
    {"--prompt-file", OPTION_TEXT, offsetof(options, prompt_file), 0},
    {"--system", OPTION_TEXT, offsetof(options, system), 0},
    {"--chat-template", OPTION_TEXT, offsetof(options, chat_template), 0},
    {"--schedule", OPTION_TEXT, offsetof(options, schedule), 1},
    {"--check", OPTION_TEXT, offsetof(options, check), 1},
    {"--trace", OPTION_TEXT, offsetof(options, trace), 0},
    {"--batch", OPTION_COUNT, offsetof(options, batch), 0},
    {"--chiplets", OPTION_COUNT, offsetof(options, chiplets), 1},
    {"--workers", OPTION_COUNT, offsetof(options, workers), 1},
    {"--tile-rows", OPTION_COUNT, offsetof(options, tile_rows), 1},
    {"--steps", OPTION_COUNT, offsetof(options, steps), 0},
    {"--context", OPTION_COUNT, offsetof(options, context), 0},
    {"--ranks", OPTION_COUNT, offsetof(options, ranks), 1},
    {"--rank-limit", OPTION_COUNT, offsetof(options, rank_limit), 1},
    {"--prefill-rows", OPTION_COUNT, offsetof(options, prefill_rows), 1},
    {"--share-prefixes", OPTION_FLAG, offsetof(options, share_prefixes), 0},
    {"--top-k", OPTION_COUNT, offsetof(options, top_k), 0},
    {"--seed", OPTION_SEED, offsetof(options, seed), 0},
    {"--temperature", OPTION_NUMBER, offsetof(options, temperature), 0},
    {"--top-p", OPTION_NUMBER, offsetof(options, top_p), 0},
    {"--min-p", OPTION_NUMBER, offsetof(options, min_p), 0},
    {"--chat", OPTION_FLAG, offsetof(options, chat), 0},
    {"--no-thinking", OPTION_FLAG, offsetof(options, no_thinking), 0},
    {"--ignore-eos", OPTION_FLAG, offsetof(options, ignore_eos), 0},
    {"--dequantize", OPTION_FLAG, offsetof(options, dequantize), 1},
    {"--random-weights", OPTION_FLAG, offsetof(options, random_weights), 0},
    {"--bench", OPTION_FLAG, offsetof(options, bench), 0},
    {"--help", OPTION_FLAG, offsetof(options, help), 1},
};
#define KNOWN (sizeof known / sizeof known[0])
#define MAX_COUNT (1u << 24)
#define TOKEN_STEPS 24u    /* default of --steps, */
#define TEXT_STEPS 512u    /* and where there is text */
#define TEXT_CONTEXT 8192u /* default of --context in a conversation, at most */

static int count_of(const char *name, const char *text, uint32_t *count)
{
    char *end;
    const unsigned long n = strtoul(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || n < 1 || n > MAX_COUNT)
        return stop(RUN_REFUSED, "%s needs a number from 1 to %u", name, MAX_COUNT);
    *count = (uint32_t)n;
    return 0;
}

static int seed_of(const char *name, const char *text, uint64_t *seed)
{
    char *end;
    errno = 0;
    *seed = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || *seed < 1 || *seed > INT64_MAX)
        return stop(RUN_REFUSED, "%s needs a number from 1 to 2^63 - 1", name);
    return 0;
}

static int number_of(const char *name, const char *text, float *number)
{
    char *end;
    *number = strtof(text, &end);
    if (!*text || *end || !(*number > 0 && *number <= 1000))
        return stop(RUN_REFUSED, "%s needs a number above 0, at most 1000", name);
    return 0;
}

/* Options that contradict each other, or that need another one. */
static int options_refused(const options *o)
{
    qwen3_family family;
    const struct {
        uint32_t bad;
        const char *why;
    } rules[] = {
        {(o->prompts != NULL) + (o->prompt != NULL) + (o->prompt_file != NULL) > 1,
         "only one of --prompt-ids, --prompt and --prompt-file may be given"},
        {o->chat && o->prompts, "--chat takes text, not --prompt-ids"},
        {o->system && !o->chat, "--system has a meaning with --chat only"},
        {o->no_thinking && !o->chat, "--no-thinking has a meaning with --chat only"},
        {o->chat_template && !o->chat, "--chat-template has a meaning with --chat only"},
        {o->chat_template && qwen3_family_named(o->chat_template, &family),
         "--chat-template must be " QWEN3_FAMILY_NAMES},
        {o->temperature <= 0 && (o->top_k || o->top_p > 0 || o->min_p > 0 || o->seed),
         "--top-k, --top-p, --min-p and --seed need a --temperature"},
        {o->top_p > 1, "--top-p is at most 1"},
        {o->min_p > 1, "--min-p is at most 1"},
        {o->chat && !o->prompt && !o->prompt_file && (o->batch || o->trace || o->bench),
         "a conversation has no --batch, --trace or --bench"},
        {o->ranks && o->chat && !o->prompt && !o->prompt_file,
         "--ranks has no meaning in a conversation"},
        {o->rank_limit && !o->ranks, "--rank-limit has a meaning with --ranks only"},
        {o->tile_rows % 16 || o->tile_rows > MAX_ROWS,
         "--tile-rows must be a multiple of 16, at most 64"},
        {o->tile_rows && !HAS_ROW_TILES, "--tile-rows: this program has no such tiles"},
        {o->ranks && !strcmp(o->schedule, "unaware"), "--ranks: not with --schedule unaware"},
        {o->ranks && !strcmp(o->schedule, "dynamic"),
         "--ranks: ready queues do not reach over ranks; not with --schedule dynamic"},
        {o->ranks && o->temperature > 0 && !o->seed,
         "--ranks: a --temperature needs a --seed, so that all ranks draw the same"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].bad) return stop(RUN_REFUSED, "%s", rules[i].why);
    return 0;
}
static int takes_text(const options *o)
{
    return o->prompt || o->prompt_file || o->chat;
}

/* No option is ignored: neither one that is given twice, nor one that --check does not use. */
static int read_options(options *o, int argc, char **argv)
{
    uint32_t given[KNOWN] = {0};
    o->schedule = "static";
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
        else if (known[k].kind == OPTION_NUMBER
                     ? number_of(known[k].name, argv[i], (float *)(void *)to)
                 : known[k].kind == OPTION_SEED
                     ? seed_of(known[k].name, argv[i], (uint64_t *)(void *)to)
                     : count_of(known[k].name, argv[i], (uint32_t *)(void *)to))
            return RUN_REFUSED;
    }
    if (o->help) return 0;
    if (!o->dir) return stop(RUN_REFUSED, "no MODEL_DIR\n%s", usage);
    for (uint32_t k = 0; k < KNOWN && o->check; k++)
        if (given[k] && !known[k].checks)
            return stop(RUN_REFUSED, "%s has no meaning with --check", known[k].name);
    if (options_refused(o)) return RUN_REFUSED;
#if !defined(FLEET_TRACE)
    if (o->trace)
        return stop(RUN_REFUSED,
                    "--trace: this program has no trace compiled in; build it with -DFLEET_TRACE");
#endif
    if (o->ranks && !HAS_RANKS)
        return stop(RUN_REFUSED, "--ranks: this program is for one rank; build it with mpicc "
                                 "-DFLEET_MPI, or for GPUs with -DFLEET_IPC");
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
        uint32_t *tokens = a->prompts[n < MAX_SEQUENCES ? n : 0];
        char *end;
        unsigned long times = 1, token = strtoul(p, &end, 10);
        if (end != p && *end == '*') p = end + 1, times = token, token = strtoul(p, &end, 10);
        if (end == p || token > INT32_MAX || times < 1 || times > MAX_COUNT || !strchr(",;", *end))
            return stop(RUN_REFUSED, "--prompt-ids must be like 1,2,3 or 1,2,3;4,5");
        if (n == MAX_SEQUENCES) return stop(RUN_REFUSED, "--prompt-ids has too many sequences");
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
    return 0;
}

/* Takes the prompts again until the batch is full, and says how each sequence chooses its tokens. */
static int fill_batch(program *a)
{
    const options *o = &a->o;
    const uint32_t n = a->n_prompts;
    if (o->batch > MAX_SEQUENCES) return stop(RUN_REFUSED, "--batch is at most %u", MAX_SEQUENCES);
    if (o->batch && o->batch < n)
        return stop(RUN_REFUSED, "--batch %u: --prompt-ids has %u sequences", o->batch, n);
    a->n = o->batch ? o->batch : n;
    for (uint32_t i = 0; i < a->n; i++) {
        sampling_desc *s = &a->requests[i].sampling;
        if (i >= n) a->requests[i] = a->requests[i % n];
        s->temperature = o->temperature, s->top_k = o->top_k;
        s->top_p = o->top_p, s->min_p = o->min_p;
        s->seed = o->seed, s->stream = i;
    }
    return 0;
}

static int read_schedule(const char *name, session_desc *d)
{
    static const char *const names[] = {"static", "chiplet", "dynamic",
                                        "auto",   "unfused", "unaware"};
    static const fleet_schedule schedules[] = {FLEET_SCHEDULE_STATIC,  FLEET_SCHEDULE_CHIPLET,
                                               FLEET_SCHEDULE_DYNAMIC, FLEET_SCHEDULE_AUTO,
                                               FLEET_SCHEDULE_STATIC,  FLEET_SCHEDULE_STATIC};
    for (uint32_t i = 0; i < 6; i++)
        if (!strcmp(name, names[i])) {
            d->schedule = schedules[i], d->unfused = i == 4, d->unaware = i == 5;
            return 0;
        }
    return stop(RUN_REFUSED, "--schedule is static, chiplet, dynamic, auto, unfused or unaware");
}

/* Finds a wrong name before anything is loaded. The name of another rank than the first has the rank's number before its
   end. */
static int name_trace(program *a)
{
    const char *end = strrchr(a->o.trace, '.');
    int why;
    if (!end || (strcmp(end, ".svg") && strcmp(end, ".json")))
        return stop(RUN_REFUSED, "--trace %s: the name must end in .svg or .json", a->o.trace);
    snprintf(a->trace_name, sizeof a->trace_name, "%s", a->o.trace);
#if HAS_RANKS
    if (a->ranks.peers.rank)
        snprintf(a->trace_name, sizeof a->trace_name, "%.*s.%u%s", (int)(end - a->o.trace),
                 a->o.trace, a->ranks.peers.rank, end);
#endif
    why = output_refused(a->trace_name);
    return why ? stop(RUN_REFUSED, "--trace %s: the file cannot be written: %s", a->trace_name,
                      strerror(why))
               : 0;
}

/* ---- progress and times ---- */

static uint32_t shows_progress;

static void show_loading(uint32_t done, uint32_t of)
{
    if (shows_progress)
        fprintf(stderr, "\rloading %3u%%%s", 100 * done / of,
                done == of ? "\r              \r" : "");
}

static volatile sig_atomic_t interrupted; /* by Ctrl-C */
static void note_interrupt(int number)
{
    (void)number;
    interrupted = 1;
}
/* While this is on, Ctrl-C sets `interrupted`, and system calls that wait return. */
static void catch_interrupts(int on)
{
    static struct sigaction before;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = note_interrupt;
    if (on)
        sigaction(SIGINT, &action, &before);
    else
        sigaction(SIGINT, &before, NULL);
}

/* Watches from the host how far the launch is: the last grid of a step notifies an event that the
   host can see; of several ranks, it stores how many steps have ended. */
typedef struct watch {
    session *s;
    text_output *answer; /* null: nothing is printed */
    uint32_t is_over;    /* 1: the launch has ended */
    uint32_t steps;      /* steps that were seen to end */
    double *ended;       /* when each of them ended */
    uint32_t tokens;     /* that were printed */
    int failed;          /* 1: the text cannot be made or written */
} watch;

/* Prints the tokens of the only sequence that have come. */
static void print_tokens(watch *w)
{
    const session *s = w->s;
    for (; w->answer && w->tokens < s->desc.steps && !w->failed; w->tokens++) {
        const int32_t token = __atomic_load_n(&s->generated[w->tokens], __ATOMIC_RELAXED);
        if (token < 0) return;
        w->failed = text_token(w->answer, (uint32_t)token) != 0;
    }
}

static void *watch_steps(void *user)
{
    watch *w = (watch *)user;
    session *s = w->s;
    const struct timespec pause = {0, WATCH_NS};
    while (w->steps < s->steps) {
        const uint32_t is_over = __atomic_load_n(&w->is_over, __ATOMIC_ACQUIRE);
        const int done = session_step_ended(s, w->steps);
        if (interrupted || w->failed) session_interrupt(s);
        if (done < 0 || (!done && is_over)) break;
        if (!done) {
            nanosleep(&pause, NULL);
            continue;
        }
        w->ended[w->steps++] = now();
        print_tokens(w);
        if (shows_progress && !w->answer) fprintf(stderr, "\rstep %u of %u", w->steps, s->steps);
    }
    if (shows_progress && !w->answer) fprintf(stderr, "\r                        \r");
    return NULL;
}

/* Runs the session, notes when its steps end, and prints the tokens of the answer as they come, if there is one. Steps that
   the watch missed end with the launch. */
static int watched_run(session *s, double *ended, text_output *answer)
{
    watch w;
    pthread_t thread;
    double end;
    int bad;
    memset(&w, 0, sizeof w);
    w.s = s, w.ended = ended, w.answer = answer;
    catch_interrupts(1);
    if (pthread_create(&thread, NULL, watch_steps, &w))
        return stop(RUN_FAILED, "no thread for the progress");
    bad = session_run(s);
    end = now();
    __atomic_store_n(&w.is_over, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    catch_interrupts(0);
    print_tokens(&w); /* of steps that the watch missed */
    if (w.failed) return stop_for_text(answer);
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
        int why = output_open(&a->trace, a->trace_name);
        output_put(&a->trace, text, strlen(text));
        if (!why) why = output_close(&a->trace, 1);
        bad = why != 0;
        if (bad)
            stop(RUN_FAILED, "--trace %s: cannot be written: %s", a->trace_name, strerror(why));
    }
    if (!bad) fprintf(stderr, "the timeline of the last step is in %s\n", a->trace_name);
    free(report);
    free(text);
    return bad ? RUN_FAILED : 0;
}

/* ---- decoding ---- */

/* TPOT counts the steps after the first one in which every running sequence generates a token. */
static void print_times(const program *a)
{
    const model *m = &a->m;
    const run_summary *c = &a->s.summary;
    const double first_token = c->first_token ? a->ended[c->first_token - 1] : 0;
    const uint32_t steps = c->decoding ? c->steps - c->decoding : 0;
    if (!c->first_token || m->rank) return; /* interrupted; or another rank prints them */
    fprintf(stderr,
            "load %.2f s, plan %.3f s, launch to first token %.1f ms, process start to first token "
            "%.2f s\n",
            a->loaded - a->started, a->planned - a->loaded, 1e3 * (first_token - a->launched),
            first_token - a->started);
    if (a->o.share_prefixes)
        fprintf(stderr, "%u rows of prompts were computed; %u of %u pages are shared\n",
                session_prompt_rows(&a->s), page_table_shared(&a->s.pages), a->s.pages.taken);
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

/* Decodes all requests in one launch; a single sequence of text is printed as it grows. */
static int run_requests(program *a, uint32_t *counts)
{
    const uint32_t steps = a->desc.steps;
    text_output *answer = takes_text(&a->o) && a->n == 1 ? &a->answer : NULL;
    int bad = open_session(a);
    if (bad) return bad;
    a->planned = now();
    a->generated = (int32_t *)malloc((size_t)a->n * steps * sizeof *a->generated);
    a->ended = (double *)calloc(a->s.steps + 1u, sizeof *a->ended);
    if (!a->generated || !a->ended) return stop(RUN_FAILED, "out of memory");
    a->launched = now();
    if ((bad = watched_run(&a->s, a->ended, answer)) != 0) return bad;
    session_generated(&a->s, a->generated, counts);
    return answer && text_end(answer) ? stop_for_text(answer) : 0;
}

/* Prints the sequences of a batch, as text or as tokens. */
static int print_sequences(program *a, const uint32_t *counts)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const int32_t *tokens = a->generated + (size_t)i * a->desc.steps;
        if (takes_text(&a->o)) {
            output_format(&a->out, "%s== sequence %u\n", i ? "\n" : "", i);
            a->answer.text.size = a->answer.printed = 0;
            for (uint32_t t = 0; t < counts[i]; t++)
                if (text_token(&a->answer, (uint32_t)tokens[t])) return stop_for_text(&a->answer);
            if (text_end(&a->answer)) return stop_for_text(&a->answer);
            continue;
        }
        output_format(&a->out, "tokens:");
        for (uint32_t t = 0; t < counts[i]; t++) output_format(&a->out, " %d", tokens[t]);
        output_format(&a->out, "\n");
    }
    return flush_output(&a->out);
}

static int decode_prompts(program *a)
{
    uint32_t counts[MAX_SEQUENCES];
    int bad = run_requests(a, counts);
    if (!bad && !(takes_text(&a->o) && a->n == 1)) bad = print_sequences(a, counts);
    if (bad) return bad;
    if (interrupted) {
        fprintf(stderr, "interrupted\n");
        return RUN_INTERRUPTED;
    }
    print_times(a);
    if (!a->o.trace) return 0;
    if (a->s.summary.steps < a->s.steps) { /* the recorded step did not run: again */
        a->desc.launch = a->s.summary.steps;
        session_free(&a->s);
        if ((bad = open_session(a)) != 0) return bad;
        if (session_run(&a->s)) return stop(RUN_FAILED, "%s", a->s.error);
    }
    return write_trace(a);
}

/* ---- text ---- */

/* Encodes the prompt, in whose spans `plain` control tokens are text, into the first request. */
static int encode_prompt(program *a, const qwen3_string *text, const qwen3_spans *plain)
{
    request *r = &a->requests[0];
    qwen3_tokens tokens = {NULL, 0, 0, 0, 0};
    if (qwen3_encode(&a->tokenizer, text->at, text->size, plain, &tokens, a->error,
                     sizeof a->error)) {
        free(tokens.at);
        return stop_for_file(a->error);
    }
    free(a->prompts[0]);
    a->prompts[0] = tokens.at, a->n_prompts = 1;
    memset(r, 0, sizeof *r);
    r->prompt = tokens.at, r->n_prompt = (uint32_t)tokens.count;
    return tokens.count ? 0 : stop(RUN_REFUSED, "the prompt is empty");
}

/* Chooses the number of steps for the prompt, and fills the batch with it. */
static int take_prompt(program *a, const qwen3_config *config)
{
    const uint32_t room = a->o.context ? a->o.context : config->positions;
    const uint32_t n = a->requests[0].n_prompt;
    if (n > room)
        return stop(RUN_REFUSED, "a prompt of %u tokens does not fit a context of %u%s", n, room,
                    a->o.context ? " (--context)" : ", max_position_embeddings");
    a->desc.steps = a->o.steps ? a->o.steps : TEXT_STEPS;
    if (!a->o.steps && a->desc.steps > room - n + 1) a->desc.steps = room - n + 1;
    return fill_batch(a);
}

/* Encodes the prompt that the chat template makes of messages. */
static int encode_chat(program *a, const qwen3_message *messages, size_t n)
{
    qwen3_string prompt = {NULL, 0, 0};
    qwen3_spans said = {NULL, 0, 0};
    const int failed = qwen3_chat_prompt(messages, n, qwen3_style_of(a->family, !a->o.no_thinking),
                                         &prompt, &said, a->error, sizeof a->error);
    const int bad = failed ? stop(RUN_FAILED, "%s", a->error) : encode_prompt(a, &prompt, &said);
    free(prompt.at);
    free(said.at);
    return bad;
}

static int open_text(program *a, const qwen3_config *config)
{
    const options *o = &a->o;
    qwen3_string text = {NULL, 0, 0};
    int bad = 0;
    if (qwen3_tokenizer_open(&a->tokenizer, o->dir, a->error, sizeof a->error))
        return stop_for_file(a->error);
    if (o->chat &&
        (o->chat_template ? qwen3_family_named(o->chat_template, &a->family)
                          : qwen3_family_read(o->dir, &a->family, a->error, sizeof a->error)))
        return stop_for_file(a->error);
    a->answer.tokenizer = &a->tokenizer;
    if (o->system && conversation_add(&a->said, "system", o->system, strlen(o->system)))
        return stop(RUN_FAILED, "out of memory");
    if (!o->prompt && !o->prompt_file) return 0; /* a conversation: no message yet */
    if (o->prompt_file && read_text(o->prompt_file, &text, a->error, sizeof a->error))
        bad = stop_for_file(a->error);
    else if (!o->prompt_file && qwen3_string_add(&text, o->prompt, strlen(o->prompt)))
        bad = stop(RUN_FAILED, "out of memory");
    else if (!o->chat)
        bad = encode_prompt(a, &text, NULL);
    else if (conversation_add(&a->said, "user", text.at ? text.at : "", text.size))
        bad = stop(RUN_FAILED, "out of memory");
    else
        bad = encode_chat(a, a->said.messages, a->said.count);
    free(text.at);
    return bad ? bad : take_prompt(a, config);
}

/* Encodes the conversation, whose last message is not answered yet. Of one that does not fit the
   context with an answer, the oldest turns go, each a message and its answer; a message that does
   not fit alone goes instead, so that it costs no history. */
static int encode_turn(program *a, uint32_t *is_left_out)
{
    conversation *c = &a->said;
    const size_t first = a->o.system ? 1 : 0; /* message of a turn */
    const uint32_t context = a->o.context;
    const uint32_t some = context / 4 < TEXT_STEPS ? context / 4 : TEXT_STEPS;
    const uint32_t answer = a->o.steps ? a->o.steps : some + !some;
    const uint32_t room = answer <= context ? context - answer + 1 : 0;
    const uint32_t *n = &a->requests[0].n_prompt;
    qwen3_message alone[2];
    uint32_t turns = 0;
    int bad = encode_chat(a, c->messages, c->count);
    if (bad || *n <= room) return bad;
    alone[0] = c->messages[0], alone[first] = c->messages[c->count - 1];
    if ((bad = encode_chat(a, alone, first + 1)) != 0) return bad;
    if (*n > room) {
        fprintf(stderr,
                "the message is left out: %u tokens and an answer of %u do not fit a context of %u "
                "(--context, --steps)\n",
                *n, answer, context);
        conversation_drop(c, c->count - 1, 1);
        *is_left_out = 1;
        return 0;
    }
    do { /* at last it is the message alone */
        conversation_drop(c, first, 2);
        turns++;
        bad = encode_chat(a, c->messages, c->count);
    } while (!bad && *n > room);
    fprintf(stderr, "the context of %u tokens is full: the oldest turns are left out, %u of them\n",
            context, turns);
    return bad;
}

/* Answers the last message. Each turn is a launch of its own, which computes what is new since the
   one before: from the first token on that differs, such as reasoning that the template leaves out
   of answers. */
static int answer_turn(program *a)
{
    uint32_t count, is_left_out = 0;
    int bad = encode_turn(a, &is_left_out);
    if (bad || is_left_out) return bad;
    if ((bad = take_prompt(a, &a->m.config)) != 0) return bad;
    a->answer.text.size = a->answer.printed = 0;
    bad = run_requests(a, &count);
    if (!bad && conversation_add(&a->said, "assistant", a->answer.text.at, a->answer.text.size))
        bad = stop(RUN_FAILED, "out of memory");
    session_free(&a->s);
    memset(&a->s, 0, sizeof a->s);
    free(a->generated);
    free(a->ended);
    a->generated = NULL, a->ended = NULL;
    return bad;
}

static int converse(program *a)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    const uint8_t *odd;
    int bad = 0;
    while (!bad) {
        interrupted = 0;
        if (isatty(0)) fprintf(stderr, "> ");
        catch_interrupts(1);
        size = getline(&line, &room, stdin);
        catch_interrupts(0);
        if (size < 0) break;
        if (size > 0 && line[size - 1] == '\n') size--;
        if (size == 0) continue;
        odd = u8_check((const uint8_t *)line, (size_t)size);
        if (odd) {
            fprintf(stderr, "the message is left out: not UTF-8 at byte %td\n",
                    odd - (const uint8_t *)line);
            continue;
        }
        bad = conversation_add(&a->said, "user", line, (size_t)size)
                  ? stop(RUN_FAILED, "out of memory")
                  : answer_turn(a);
    }
    free(line);
    return bad;
}

static int is_conversation(const options *o)
{
    return o->chat && !o->prompt && !o->prompt_file;
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
    output_format(&a->out, "%s: %u of %u tokens as expected, each case alone and all in one batch",
                  good ? "ok" : "wrong", c.right, c.tokens);
    if (CHECK_MARGIN > 0)
        output_format(&a->out, ", %u others where the best two are within %.2f", c.near_ties,
                      CHECK_MARGIN);
    output_format(&a->out, "; %u logits within %.1e, allowed %.0e\n", c.logits, c.worst,
                  CHECK_LOGITS);
    bad = flush_output(&a->out);
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
            return stop_for_file(a->error);
    } else {
        if (qwen3_open(&a->checkpoint, a->o.dir)) return stop_for_file(a->checkpoint.error);
        *config = a->checkpoint.config;
        if (a->checkpoint.rounded)
            fprintf(stderr, "%u matrices are F16 or F32 in the checkpoint: rounded to bf16\n",
                    a->checkpoint.rounded);
    }
    fputs(config->warnings, stderr);
    if (a->o.dequantize && !config->quantization.codes)
        return stop(RUN_REFUSED, "--dequantize: config.json has no quantization_config");
    config->dequantized = (int)a->o.dequantize;
#if HAS_RANKS
    config->rank = a->ranks.peers.rank, config->ranks = a->ranks.peers.ranks;
#endif
    if (a->o.check) {
        if (qwen3_expected_read(&a->expected, config, a->o.check, a->error, sizeof a->error))
            return stop_for_file(a->error);
        a->n = a->expected.count;
        return 0;
    }
    if (a->o.ignore_eos) config->eos_count = 0;
    if (takes_text(&a->o) && (bad = open_text(a, config)) != 0) return bad;
    if (is_conversation(&a->o)) {
        a->n = 1, a->desc.steps = 1;
        if (!a->desc.context)
            a->desc.context = config->positions < TEXT_CONTEXT ? config->positions : TEXT_CONTEXT;
        a->o.context = a->desc.context; /* of each turn */
        a->desc.kept = &a->kept;
        bad = memory_refused(config, from, &a->desc, 1, 1, memory_left(), a->error);
        return bad ? stop(bad, "%s", a->error) : 0;
    }
    for (uint32_t i = 0; i < a->n; i++)
        if (a->requests[i].n_prompt + a->desc.steps - 1 > shortest)
            shortest = a->requests[i].n_prompt + a->desc.steps - 1;
    if (!a->desc.context) a->desc.context = shortest;
    if (requests_refused(config, &a->desc, a->requests, a->n, a->error))
        return stop(RUN_REFUSED, "%s", a->error);
    bad = memory_refused(config, from, &a->desc, a->n, shortest, memory_left(), a->error);
    return bad ? stop(bad, "%s", a->error) : 0;
}

#if HAS_RANKS
/* ---- several ranks ---- */

static int open_regions(void *ranks, size_t bytes, fleet_peers *peers)
{
    return ENGINE(open)((peers_engine *)ranks, bytes, peers);
}
static int meet_ranks(void *ranks, uint64_t digest)
{
    return ENGINE(compare)((peers_engine *)ranks, digest);
}
/* All ranks decode the same, and the first one prints it. */
static int join_ranks(program *a)
{
    const uint32_t ranks = a->o.ranks ? a->o.ranks : 1;
    if (a->ranks.peers.ranks != ranks)
        return stop(RUN_REFUSED, "--ranks %u, but %u processes were started", ranks,
                    a->ranks.peers.ranks);
    a->engine.user = &a->ranks, a->engine.open = open_regions, a->engine.meet = meet_ranks;
    a->desc.ranks = &a->engine;
    a->desc.peer_limit_ns = a->o.rank_limit * 1000000000ull;
    if (a->ranks.peers.rank && !freopen("/dev/null", "w", stdout))
        return stop(RUN_FAILED, "/dev/null: %s", strerror(errno));
    return 0;
}
#endif

static int run(program *a, int argc, char **argv)
{
    qwen3_config config;
    int bad = read_options(&a->o, argc, argv);
    if (bad) return bad;
#if HAS_RANKS
    if (!a->o.help && (bad = join_ranks(a)) != 0) return bad;
#endif
    if (a->o.help) {
        output_put(&a->out, usage, strlen(usage));
        return flush_output(&a->out);
    }
    a->desc.tile_rows = a->o.tile_rows;
    a->desc.chiplets = a->o.chiplets, a->desc.workers = a->o.workers;
    a->desc.context = a->o.context;
    a->desc.steps = a->o.steps ? a->o.steps : TOKEN_STEPS;
    a->desc.prefill_rows = a->o.prefill_rows, a->desc.draws = a->o.temperature > 0;
    if (a->desc.draws && !a->o.seed) {
        if (random_seed(&a->o.seed)) return stop(RUN_FAILED, "no random numbers: give a --seed");
        fprintf(stderr, "seed %llu\n", (unsigned long long)a->o.seed);
    }
    a->desc.trace = a->o.trace != NULL, a->desc.share_prefixes = a->o.share_prefixes;
    if ((bad = read_schedule(a->o.schedule, &a->desc)) != 0) return bad;
    if (!a->o.check && !takes_text(&a->o) &&
        ((bad = read_prompts(a)) != 0 || (bad = fill_batch(a)) != 0))
        return bad;
    if (a->o.trace && (bad = name_trace(a)) != 0) return bad;
    if ((bad = open_model(a, &config)) != 0) return bad;
    bad = model_load(&a->m, &config, a->o.random_weights ? NULL : &a->checkpoint, a->desc.schedule,
                     a->n, show_loading);
    if (bad) return stop(bad, "%s", a->m.error);
    qwen3_close(&a->checkpoint);
    fleet_stream_wait(NULL);
    a->loaded = now();
    return a->o.check ? check(a) : is_conversation(&a->o) ? converse(a) : decode_prompts(a);
}

int main(int argc, char **argv)
{
    static program a;
    int code;
    signal(SIGPIPE, SIG_IGN); /* so that a closed pipe is an error of write */
    output_begin();
    a.out = output_to(stdout), a.answer.to = &a.out;
    shows_progress = (uint32_t)isatty(2);
    a.started = now();
#if HAS_RANKS
    if (ENGINE(begin)(&a.ranks, &argc, &argv)) return RUN_FAILED;
    code = run(&a, argc, argv);
    if (code && code != RUN_INTERRUPTED) ENGINE(fail)(&a.ranks, code);
#else
    code = run(&a, argc, argv);
#endif
    session_free(&a.s);
    model_free(&a.m);
    qwen3_close(&a.checkpoint);
    qwen3_expected_close(&a.expected);
    qwen3_tokenizer_close(&a.tokenizer);
    conversation_free(&a.said);
    kept_tokens_free(&a.kept);
    free(a.answer.text.at);
    for (uint32_t i = 0; i < a.n_prompts; i++) free(a.prompts[i]);
    free(a.generated);
    free(a.ended);
    output_close(&a.trace, 0);
#if HAS_RANKS
    ENGINE(end)(&a.ranks);
#endif
    return code;
}
