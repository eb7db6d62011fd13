// run: plain whole
// run: tsan whole -DQUICK
/* The decoder in a launch that stays (examples/qwen3/serving.h): each request has the tokens and the logits that it has
   alone in a session, whatever is suspended between layers, evicted, cancelled or decoded beside it; no layer of a token is
   computed twice; all pages come back, and none leaves numbers to the next request. On both engines, over seeds. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#define FLEET_IMPLEMENTATION
#include "../../examples/qwen3/serving.h"
#include "../../examples/qwen3/session.h"
#include "test.h"

#include <pthread.h>

#if defined(QUICK)
#define IS_QUICK 1
#else
#define IS_QUICK 0
#endif

static const char *const fixtures[] = {"tests/fixtures/qwen3-tiny",
                                       "tests/fixtures/qwen3-moe-tiny"};

#define CONTEXT 128u
#define LONGEST_PROMPT 300u
#define KINDS 10u
#define JOBS (IS_QUICK ? 12u : 40u)
#define MOST_JOBS (IS_QUICK ? 90u : 150u)
#define MOST_TOKENS 24u
#define LONGEST_PAUSE_US (IS_QUICK ? 100000 : 400) /* the simulated GPU takes its time */
#define DECODE_ROWS 4u
#define SPLIT_TOKENS 64u
#define HOST_WAVES 2u /* of a workgroup: sums depend on it */

/* Requests of one kind are the same but for their class. */
typedef struct kind {
    uint32_t prompt[LONGEST_PROMPT], n_prompt, max_tokens;
    request_words words;
    const request_asks *asks; /* null: nothing of its logits */
    int32_t alone[MOST_TOKENS];
    uint32_t n_alone;
    float *logits;                     /* [MOST_TOKENS][vocab] */
    token_report reports[MOST_TOKENS]; /* alone */
} kind;

typedef struct job {
    const kind *of;
    uint64_t id; /* 0: not submitted yet */
    fleet_class priority;
    uint32_t tokens[MOST_TOKENS], n, ended; /* ended: 1 + fleet_event_kind */
    uint32_t is_cancelled, is_aborted;
    uint32_t reused; /* tokens of its prompt */
    uint32_t asks;   /* of its words */
    token_report reports[MOST_TOKENS];
    fleet_status status;
} job;

typedef struct stand {
    test_run *t;
    uint32_t is_loaded;
    model m;
    kind kinds[KINDS];
    serving s;
    pthread_t thread;
    int bad; /* of the launch */
    job jobs[MOST_JOBS];
    uint32_t n, ended;
    fleet_server_event held[64]; /* a slow client has not released these yet */
    uint32_t n_held;
} stand;

static uint32_t random_below(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}
static void pause_us(long us)
{
    const struct timespec pause = {0, 1000 * us};
    nanosleep(&pause, NULL);
}

/* ---- what each kind yields alone ---- */

static void decode_alone(stand *o, kind *k)
{
    const size_t bytes = (size_t)MOST_TOKENS * o->m.config.vocab * sizeof(float);
    model m = o->m;
    request r;
    session_desc d;
    session s;
    memset(&r, 0, sizeof r);
    memset(&d, 0, sizeof d);
    if (k->words.ignore_eos) m.config.eos_count = 0;
    r.prompt = k->prompt, r.n_prompt = k->n_prompt, r.sampling = k->words.sampling;
    d.steps = k->max_tokens, d.context = CONTEXT, d.keep_logits = d.draws = 1;
    d.split_blocks = serving_split_blocks(CONTEXT, SPLIT_TOKENS);
    d.host.waves = HOST_WAVES;
    k->logits = (float *)calloc(1, bytes);
    if (session_open(&s, &m, &d, &r, 1) || session_run(&s))
        test_fail(o->t, __FILE__, __LINE__, "%s", s.error);
    else {
        session_generated(&s, k->alone, &k->n_alone);
        fleet_to_host(k->logits, s.d.logits, (size_t)k->max_tokens * m.config.vocab * sizeof(float),
                      NULL);
    }
    session_free(&s);
}

/* Kinds 0 and 1 are long; of the others, every third draws its tokens, and the last two begin like kind 0. */
static void make_kinds(stand *o)
{
    uint64_t seed = 5;
    for (uint32_t i = 0; i < KINDS && !o->t->failed_here; i++) {
        kind *k = &o->kinds[i];
        k->n_prompt = i < 2 ? 90 + i * 7 : 1 + random_below(&seed, 40);
        k->max_tokens = 1 + random_below(&seed, MOST_TOKENS);
        for (uint32_t t = 0; t < k->n_prompt; t++)
            k->prompt[t] = i >= KINDS - 2 && t < 32 ? o->kinds[0].prompt[t]
                                                    : random_below(&seed, o->m.config.vocab);
        if (i >= KINDS - 2) {
            k->n_prompt = 33 + random_below(&seed, 10);
            for (uint32_t t = 0; t < k->n_prompt; t++)
                k->prompt[t] = t < 32 ? o->kinds[0].prompt[t] : random_below(&seed, 500);
        }
        k->words.ignore_eos = i % 2;
        if (i % 3 == 2) {
            k->words.sampling.temperature = 0.9f, k->words.sampling.top_p = 0.95f;
            k->words.sampling.seed = i;
        }
        decode_alone(o, k);
    }
}

/* The model of a fixture, and what its kinds yield alone, are the same for all tests. Null: they could not be made. */
static stand stands[2];
static stand *stand_of(test_run *t, uint32_t fixture)
{
    stand *o = &stands[fixture];
    qwen3_checkpoint c;
    o->t = t;
    if (o->is_loaded) return o;
    if (qwen3_open(&c, fixtures[fixture]) ||
        model_load(&o->m, &c.config, &c, FLEET_SCHEDULE_STATIC, MAX_ROWS, NULL))
        test_fail(t, __FILE__, __LINE__, "%s%s", c.error, o->m.error);
    qwen3_close(&c);
    if (!t->failed_here) make_kinds(o);
    o->is_loaded = !t->failed_here;
    return o->is_loaded ? o : NULL;
}
static void stands_unload(void)
{
    for (stand *o = stands; o < stands + 2; o++) {
        if (!o->is_loaded) continue;
        for (uint32_t i = 0; i < KINDS; i++) free(o->kinds[i].logits);
        model_free(&o->m);
    }
}

/* ---- a launch ---- */

static void *launch(void *user)
{
    stand *o = (stand *)user;
    o->bad = serving_run(&o->s);
    return NULL;
}

/* A GPU has as many workers as it has, and AMD's chiplets are real. */
static void set_workers(serving_desc *d, uint32_t workers, uint32_t chiplets)
{
#if defined(FLEET_HOST)
    d->workers = workers, d->chiplets = chiplets;
#elif defined(FLEET_CUDA)
    FLEET_UNUSED(workers);
    d->chiplets = chiplets;
#else
    FLEET_UNUSED(d), FLEET_UNUSED(workers), FLEET_UNUSED(chiplets);
#endif
}

static serving_desc usual(uint64_t seed)
{
    serving_desc d;
    memset(&d, 0, sizeof d);
    d.context = CONTEXT, d.decode_rows = DECODE_ROWS, d.chunk_rows = 10;
    d.split_tokens = SPLIT_TOKENS;
    d.pages = 40, d.requests = 12;
    d.mixed_rows = 2, d.suspend_decode = 1, d.draws = 1;
    d.age_ticks = UINT64_MAX / 2;
    d.keep_logits = JOBS;
    set_workers(&d, 2 + (uint32_t)(seed % 3), 1 + (uint32_t)(seed % 3));
    d.seed = d.host.seed = seed;
    d.host.engine = seed % 2 ? FLEET_ENGINE_DETERMINISTIC : FLEET_ENGINE_THREADS;
    d.host.waves = HOST_WAVES;
    return d;
}

static int stand_open(stand *o, const serving_desc *d)
{
    memset(o->jobs, 0, sizeof o->jobs);
    o->n = o->ended = o->n_held = 0;
    if (serving_open(&o->s, &o->m, d)) {
        test_fail(o->t, __FILE__, __LINE__, "%s", o->s.error);
        return -1;
    }
    if (pthread_create(&o->thread, NULL, launch, o)) abort();
    return 0;
}

/* 1: it is taken. */
static int submit(stand *o, uint32_t i, const kind *of, fleet_class priority)
{
    job *j = &o->jobs[i];
    request_words words = of->words;
    fleet_request r;
    fleet_ticket ticket;
    if (of->asks) {
        request_asks *asks = serving_ask(&o->s, &words);
        if (!asks) return 0;
        *asks = *of->asks;
    }
    words.output = i;
    r.priority = priority, r.prompt = of->prompt;
    r.prompt_tokens = of->n_prompt, r.max_tokens = of->max_tokens;
    r.words = (const uint32_t *)(const void *)&words;
    if (fleet_server_submit(&o->s.server, &r, &ticket)) {
        serving_ask_no_more(&o->s, words.asks);
        return 0;
    }
    j->asks = words.asks;
    j->of = of, j->id = ticket.id, j->priority = priority;
    o->n++;
    return 1;
}

static void release_all(stand *o)
{
    for (uint32_t i = 0; i < o->n_held; i++) fleet_server_release(&o->s.server, &o->held[i]);
    o->n_held = 0;
}

/* Takes the events that there are. */
static void take_events(stand *o)
{
    fleet_server_event e;
    while (fleet_server_poll(&o->s.server, &e)) {
        job *j = o->jobs;
        while (j < o->jobs + MOST_JOBS && j->id != e.id) j++;
        if (j == o->jobs + MOST_JOBS || j->ended) {
            test_fail(o->t, __FILE__, __LINE__, "an event of no request");
            return;
        }
        if (e.kind == FLEET_EVENT_TOKEN) {
            if (e.index != j->n || j->n == MOST_TOKENS)
                test_fail(o->t, __FILE__, __LINE__, "token %u after %u", e.index, j->n);
            if (j->asks && j->of->words.reports)
                j->reports[j->n] = o->s.asks[j->asks - 1].reports[e.index % REPORTED];
            j->tokens[j->n++] = e.token, j->reused = e.reused;
            if (e.index % 5 == 3 && o->n_held < 64)
                o->held[o->n_held++] = e;
            else
                fleet_server_release(&o->s.server, &e);
        } else {
            j->ended = 1 + (uint32_t)e.kind, j->status = e.status;
            serving_ask_no_more(&o->s, j->asks);
            o->ended++;
        }
    }
    if (o->n_held > 32) release_all(o);
}

static uint32_t iterations_of(const stand *o)
{
    fleet_server_stats stats;
    fleet_server_stats_read(&o->s.server, &stats);
    return stats.iterations;
}
static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* However long a loaded machine takes: gives up when the server has run no iteration for STILL_SECONDS. */
#define STILL_SECONDS 30
static void wait_for(stand *o, uint32_t ended)
{
    uint32_t iterations = iterations_of(o);
    double moved = seconds_now();
    for (uint32_t tries = 0; o->ended < ended && !o->t->failed_here; tries++) {
        take_events(o);
        if (tries % 50 == 49) release_all(o);
        pause_us(50);
        if (iterations_of(o) != iterations) iterations = iterations_of(o), moved = seconds_now();
        if (o->ended < ended && seconds_now() - moved > STILL_SECONDS)
            test_fail(o->t, __FILE__, __LINE__, "%u of %u requests ended, and no more will",
                      o->ended, ended);
    }
}

static void wait_for_iterations(stand *o, uint32_t n)
{
    while (iterations_of(o) < n && o->ended < o->n) {
        take_events(o);
        pause_us(20);
    }
}

/* Ends the launch, and checks that it gives all back. */
static void stand_close(stand *o, fleet_server_stats *stats, batch *last)
{
    release_all(o);
    fleet_server_stop(&o->s.server, 1);
    pthread_join(o->thread, NULL);
    if (o->bad) test_fail(o->t, __FILE__, __LINE__, "%s", o->s.error);
    fleet_server_stats_read(&o->s.server, stats);
    fleet_to_host(last, o->s.d.b, sizeof *last, NULL);
    if (!o->bad && stats->pages_available != o->s.server.desc.pages)
        test_fail(o->t, __FILE__, __LINE__, "%u of %u pages came back", stats->pages_available,
                  o->s.server.desc.pages);
}

/* A request has what it has alone; a cancelled one perhaps less. */
static void check_job(stand *o, uint32_t i)
{
    const job *j = &o->jobs[i];
    const kind *k = j->of;
    const uint32_t vocab = o->m.config.vocab;
    const size_t bytes = (size_t)j->n * vocab * sizeof(float);
    float *logits = (float *)malloc(bytes + 1);
    if (!logits ||
        fleet_to_host(logits, o->s.d.logits + (size_t)i * o->s.d.logit_steps * vocab, bytes, NULL))
        test_fail(o->t, __FILE__, __LINE__, "no logits");
    if (j->ended != 1 + FLEET_EVENT_FINISHED && !j->is_cancelled)
        test_fail(o->t, __FILE__, __LINE__, "request %u: end %u, status %d", i, j->ended,
                  (int)j->status);
    if (j->ended == 1 + FLEET_EVENT_FINISHED ? j->n != k->n_alone : j->n > k->n_alone)
        test_fail(o->t, __FILE__, __LINE__, "request %u: %u tokens of %u", i, j->n, k->n_alone);
    for (uint32_t t = 0; t < j->n && !o->t->failed_here; t++) {
        if (j->tokens[t] != (uint32_t)k->alone[t])
            test_fail(o->t, __FILE__, __LINE__, "request %u: token %u is %u, alone %d", i, t,
                      j->tokens[t], k->alone[t]);
        if (memcmp(logits + (size_t)t * vocab, k->logits + (size_t)t * vocab, vocab * 4))
            test_fail(o->t, __FILE__, __LINE__, "request %u: other logits of token %u", i, t);
    }
    free(logits);
}

/* ---- tests ---- */

/* Whether a test goes on with that seed. When requests come depends on the clock, so that it may take more than `seeds` of
   them until everything that it is about has happened; ThreadSanitizer does not wait for that. */
static int is_due(uint64_t seed, uint32_t seeds, int has_happened)
{
    return seed <= seeds || (!IS_QUICK && !has_happened && seed <= seeds + 30u);
}

/* Reactive requests come while proactive ones are in their prompts and decode. Two suspended groups at a time, evicted rows,
   and slow clients are among what happens. */
static void mix_of_classes(test_run *t, uint32_t fixture, uint32_t seeds)
{
    stand *o = stand_of(t, fixture);
    uint32_t cuts = 0, resumed = 0;
    if (!o) return;
    for (uint64_t seed = 1; is_due(seed, seeds, cuts && resumed) && !t->failed_here; seed++) {
        serving_desc d = usual(seed);
        fleet_server_stats stats;
        batch last;
        uint64_t random = seed, expected = 0;
        uint32_t next = 0;
        d.pages = seed % 4 ? 40 : 200;
        if (stand_open(o, &d)) break;
        while (next < JOBS && !t->failed_here) {
            /* first long proactive prompts, then either class; prompts with a common begin are another test's */
            const uint32_t k = next < 4 ? next % 2 : random_below(&random, KINDS - 2);
            const fleet_class c =
                next < 4 || random_below(&random, 3) ? FLEET_PROACTIVE : FLEET_REACTIVE;
            if (next >= 4) pause_us((long)random_below(&random, 400));
            if (submit(o, next, &o->kinds[k], c)) next++;
            take_events(o);
        }
        wait_for(o, JOBS);
        stand_close(o, &stats, &last);
        for (uint32_t i = 0; i < JOBS && !t->failed_here; i++) {
            check_job(o, i);
            expected += (uint64_t)(o->jobs[i].of->n_prompt + o->jobs[i].n - 1) * o->m.config.layers;
        }
        cuts += stats.layers_cut;
        /* Kinds come again, and find pages of their prompts: each computes its rows once at most. */
        if (!t->failed_here && last.row_layers > expected)
            test_fail(t, __FILE__, __LINE__, "%llu layers of tokens were computed, %llu needed",
                      (unsigned long long)last.row_layers, (unsigned long long)expected);
        resumed += last.row_layers < expected;
        serving_free(&o->s);
    }
    printf("%s: rows stopped between layers %u times\n", fixtures[fixture], cuts);
    if (!t->failed_here && !IS_QUICK && (!cuts || !resumed))
        test_fail(t, __FILE__, __LINE__, "%u cuts, %u runs found pages: nothing was tested", cuts,
                  resumed);
}
static void dense_checkpoint(test_run *t)
{
    mix_of_classes(t, 0, IS_QUICK ? 1 : getenv("FLEET_DEEP") ? 100 : 3);
}
static void experts_checkpoint(test_run *t)
{
    mix_of_classes(t, 1, getenv("FLEET_DEEP") ? 30 : 2);
}

/* Without prompts that come again, exactly the layers that are needed are computed, however often rows stop; and the error
   of predictions is known. */
static void each_layer_once(test_run *t)
{
    stand *o = stand_of(t, 0);
    uint32_t cuts = 0;
    if (!o) return;
    for (uint64_t seed = 1; is_due(seed, 3, cuts != 0) && !t->failed_here; seed++) {
        serving_desc d = usual(seed);
        fleet_server_stats stats;
        batch last;
        uint64_t expected = 0;
        d.pages = 100;
        d.roofline.peak_bytes_per_ns = 1, d.roofline.peak_operations_per_ns = 10;
        d.roofline.u_m = 1, d.roofline.u_c = 0.5f, d.roofline.i_c = 10;
        if (stand_open(o, &d)) break;
        for (uint32_t i = 0; i < KINDS - 2; i++) {
            if (!submit(o, i, &o->kinds[i], i < 2 ? FLEET_PROACTIVE : FLEET_REACTIVE)) i--;
            if (i > 1) wait_for_iterations(o, 2 * i);
        }
        wait_for(o, KINDS - 2);
        stand_close(o, &stats, &last);
        for (uint32_t i = 0; i < KINDS - 2 && !t->failed_here; i++) {
            check_job(o, i);
            expected += (uint64_t)(o->jobs[i].of->n_prompt + o->jobs[i].n - 1) * o->m.config.layers;
        }
        CHECK_INT((long long)last.row_layers, (long long)expected);
        cuts += stats.layers_cut;
        /* All iterations are predicted but those of rows that stop or resume between layers. */
        CHECK(stats.predicted && stats.predicted <= stats.iterations);
        CHECK(stats.predicted + 2 * stats.layers_cut >= stats.iterations);
        CHECK(stats.error_mean && stats.error_mean <= stats.error_max);
        serving_free(&o->s);
    }
    if (!cuts) test_fail(t, __FILE__, __LINE__, "no cut: nothing was tested");
}

/* A prompt that begins like an earlier one finds its complete pages: 32 tokens are not computed again. */
static void prefixes_are_found(test_run *t)
{
    stand *o = stand_of(t, 0);
    fleet_server_stats stats;
    batch last;
    serving_desc d = usual(2);
    uint64_t expected = 0;
    if (!o || stand_open(o, &d)) return;
    for (uint32_t i = 0; i < 3 && !t->failed_here; i++) {
        const uint32_t of = i ? KINDS - i : 0;
        CHECK(submit(o, i, &o->kinds[of], (fleet_class)(i % 2)));
        wait_for(o, i + 1);
        CHECK_INT(o->jobs[i].reused, i ? 32 : 0);
        expected += (uint64_t)(o->kinds[of].n_prompt - (i ? 32 : 0) + o->jobs[i].n - 1) *
                    o->m.config.layers;
    }
    stand_close(o, &stats, &last);
    for (uint32_t i = 0; i < 3 && !t->failed_here; i++) check_job(o, i);
    CHECK_INT((long long)last.row_layers, (long long)expected);
    serving_free(&o->s);
}

/* Cancelled at any time: the others have what they have alone, and all pages come back. */
static void cancels(test_run *t)
{
    stand *o = stand_of(t, 0);
    uint32_t cancelled = 0;
    if (!o) return;
    for (uint64_t seed = 1; seed <= 2 && !t->failed_here; seed++) {
        const serving_desc d = usual(seed);
        fleet_server_stats stats;
        batch last;
        uint64_t random = seed;
        uint32_t next = 0;
        if (stand_open(o, &d)) break;
        while (next < JOBS && !t->failed_here) {
            if (submit(o, next, &o->kinds[random_below(&random, KINDS)],
                       (fleet_class)random_below(&random, 2)))
                next++;
            if (next && random_below(&random, 3) == 0) {
                job *j = &o->jobs[next - 1 - random_below(&random, next < 8 ? next : 8)];
                fleet_server_cancel(&o->s.server, j->id);
                j->is_cancelled = 1;
            }
            if (random_below(&random, 2)) pause_us((long)random_below(&random, 300));
            take_events(o);
        }
        wait_for(o, JOBS);
        stand_close(o, &stats, &last);
        for (uint32_t i = 0; i < JOBS && !t->failed_here; i++) {
            check_job(o, i);
            cancelled += o->jobs[i].ended == 1 + FLEET_EVENT_CANCELLED;
        }
        serving_free(&o->s);
    }
    CHECK(cancelled > 5);
}

/* ---- what requests ask of their logits ---- */

#define ASKING_KINDS 6u
#define ASKING_TOKENS 12u
/* Penalties, biases and a least length, alone and together; the last two draw one of two tokens. */
static void make_asking_kinds(stand *o, kind *kinds, request_asks *asks)
{
    const uint32_t vocab = o->m.config.vocab;
    uint64_t seed = 21;
    for (uint32_t i = 0; i < ASKING_KINDS; i++) {
        kind *k = &kinds[i];
        request_words *w = &k->words;
        k->n_prompt = 7 + 6 * i, k->max_tokens = ASKING_TOKENS;
        for (uint32_t t = 0; t < k->n_prompt; t++) k->prompt[t] = random_below(&seed, vocab);
        k->asks = &asks[i];
        w->repetition = 1;
        w->reports = i % 3 == 2 ? 0 : 1 + (i < 5 ? 4 * i : MAX_TOP);
        /* the answer says the same three times, and then something else */
        if (i == 0 || i > 3) w->presence = -5, w->frequency = 1.7f;
        if (i == 1 || i > 3) w->repetition = 1.3f;
        if (i > 3) w->sampling.temperature = 0.8f, w->sampling.top_k = 2, w->sampling.seed = i;
        w->ignore_eos = 1;
        if (i == 3 || i == 5) /* all even tokens that fit, and no end by them for eight tokens */
            for (w->min_tokens = 8; asks[i].n_delayed < MAX_DELAYED; asks[i].n_delayed++)
                asks[i].delayed[asks[i].n_delayed] = 2 * asks[i].n_delayed;
        if (i < 2 || i == 3) continue;
        for (uint32_t token = i; token < vocab; token += 3) {
            /* three tokens are so likely that they come again and again */
            const float bias = token < i + 9 ? 30.0f : token % 2 ? -100.0f : 1.5f;
            token_value *b = &asks[i].biased[asks[i].n_biased++];
            b->token = token, b->value = word_of_float(bias);
        }
        if (i == 2) w->frequency = 2.5f;
    }
}

/* A logit as the request wants it, in double precision. */
static double asked_logit(const kind *k, const job *j, uint32_t step, uint32_t token, float logit)
{
    const request_words *w = &k->words;
    double x = (double)logit;
    uint32_t count = 0, in_prompt = 0;
    for (uint32_t i = 0; i < k->n_prompt; i++) in_prompt |= k->prompt[i] == token;
    for (uint32_t i = 0; i < step; i++) count += j->tokens[i] == token;
    if (in_prompt || count) x = x > 0 ? x / (double)w->repetition : x * (double)w->repetition;
    x -= (double)w->frequency * count + (count ? (double)w->presence : 0);
    for (uint32_t i = 0; i < k->asks->n_biased; i++)
        if (k->asks->biased[i].token == token) x += (double)float_of_word(k->asks->biased[i].value);
    for (uint32_t i = 0; i < k->asks->n_delayed && step < w->min_tokens; i++)
        if (k->asks->delayed[i] == token) x = -1e30;
    return x;
}

/* What the host is told of token s, against the reference. */
static void check_report(stand *o, const job *j, uint32_t s, const float *logits)
{
    const uint32_t vocab = o->m.config.vocab;
    const token_report *report = &j->reports[s];
    double sum = 0, own = (double)logits[j->tokens[s]];
    uint32_t before = UINT32_MAX;
    if (!j->of->words.reports) return;
    for (uint32_t token = 0; token < vocab; token++) sum += exp((double)logits[token]);
    own -= log(sum);
    if (fabs((double)float_of_word(report->own) - own) > 1e-4)
        test_fail(o->t, __FILE__, __LINE__, "token %u: log probability %g, not %g", s,
                  (double)float_of_word(report->own), own);
    for (uint32_t i = 0; i + 1 < j->of->words.reports; i++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t token = 0; token < vocab; token++) {
            const uint32_t is_left = before == UINT32_MAX || logits[token] < logits[before] ||
                                     (!(logits[token] > logits[before]) && token > before);
            if (is_left && (best == UINT32_MAX || logits[token] > logits[best])) best = token;
        }
        before = best;
        if (report->top[i].token != best || fabs((double)float_of_word(report->top[i].value) -
                                                 (double)logits[best] + log(sum)) > 1e-4)
            test_fail(o->t, __FILE__, __LINE__, "token %u, place %u: %u with %g, not %u with %g", s,
                      i, report->top[i].token, (double)float_of_word(report->top[i].value), best,
                      (double)logits[best] - log(sum));
    }
}

/* Each token of job i is the most likely one, or one of the two, of what the reference makes of the
   logits that were kept. Returns how many are not those of the largest logits. */
static uint32_t check_asked(stand *o, uint32_t i)
{
    const job *j = &o->jobs[i];
    const kind *k = j->of;
    const uint32_t vocab = o->m.config.vocab, places = k->words.sampling.temperature > 0 ? 2 : 1;
    uint32_t others = 0;
    float *logits = (float *)malloc(vocab * sizeof(float));
    if (!logits) abort();
    if (j->n != k->max_tokens) test_fail(o->t, __FILE__, __LINE__, "%u tokens", j->n);
    for (uint32_t s = 0; s < j->n && !o->t->failed_here; s++) {
        const size_t from = ((size_t)i * o->s.d.logit_steps + s) * vocab;
        uint32_t better = 0, larger = 0;
        double own;
        fleet_to_host(logits, o->s.d.logits + from, vocab * sizeof(float), NULL);
        own = asked_logit(k, j, s, j->tokens[s], logits[j->tokens[s]]);
        for (uint32_t token = 0; token < vocab; token++) {
            better += asked_logit(k, j, s, token, logits[token]) > own + 1e-4;
            larger += logits[token] > logits[j->tokens[s]];
        }
        if (better >= places)
            test_fail(o->t, __FILE__, __LINE__, "kind %u, token %u: %u tokens are better", i, s,
                      better);
        check_report(o, j, s, logits);
        others += larger >= places;
    }
    free(logits);
    return others;
}

/* Requests of all these kinds, and plain ones beside them: as the reference has it, and the same
   bits as alone. */
static void logits_are_shaped_in(test_run *t, uint32_t fixture, uint32_t chunk_rows)
{
    static kind kinds[ASKING_KINDS];
    static request_asks asks[ASKING_KINDS];
    stand *o = stand_of(t, fixture);
    serving_desc d = usual(2);
    fleet_server_stats stats;
    batch last;
    if (!o) return;
    memset(kinds, 0, sizeof kinds);
    memset(asks, 0, sizeof asks);
    d.chunk_rows = chunk_rows;
    make_asking_kinds(o, kinds, asks);
    for (uint32_t i = 0; i < ASKING_KINDS && !t->failed_here; i++) {
        kind *k = &kinds[i];
        const size_t bytes = (size_t)MOST_TOKENS * o->m.config.vocab * sizeof(float);
        k->logits = (float *)calloc(1, bytes);
        if (!k->logits || stand_open(o, &d)) break;
        CHECK(submit(o, 0, k, FLEET_REACTIVE));
        wait_for(o, 1);
        stand_close(o, &stats, &last);
        if (!check_asked(o, 0) && !t->failed_here)
            test_fail(t, __FILE__, __LINE__, "kind %u changes no token", i);
        k->n_alone = o->jobs[0].n;
        for (uint32_t s = 0; s < k->n_alone; s++) k->alone[s] = (int32_t)o->jobs[0].tokens[s];
        memcpy(k->reports, o->jobs[0].reports, sizeof k->reports);
        fleet_to_host(k->logits, o->s.d.logits, bytes, NULL);
        serving_free(&o->s);
    }
    d = usual(1), d.chunk_rows = chunk_rows;
    if (!t->failed_here && !stand_open(o, &d)) {
        const uint32_t all = 2 * ASKING_KINDS + 4;
        for (uint32_t i = 0; i < all && !t->failed_here;) {
            const kind *k =
                i % 4 == 3 && !o->s.is_wide ? &o->kinds[2 + i / 4] : &kinds[i * 5 % ASKING_KINDS];
            i += (uint32_t)submit(o, i, k, (fleet_class)(i % 2));
            take_events(o);
        }
        wait_for(o, all);
        stand_close(o, &stats, &last);
        for (uint32_t i = 0; i < all && !t->failed_here; i++) {
            const job *j = &o->jobs[i];
            check_job(o, i);
            CHECK(!memcmp(j->reports, j->of->reports, sizeof j->reports));
        }
        CHECK_INT(o->s.n_free_asks, o->s.desc.requests);
        serving_free(&o->s);
    }
    for (uint32_t i = 0; i < ASKING_KINDS; i++) free(kinds[i].logits);
}
static void logits_are_shaped(test_run *t)
{
    stand *o = stand_of(t, 0);
    logits_are_shaped_in(t, 0, 10);
    if (!t->failed_here) logits_are_shaped_in(t, 1, 10);
    if (!t->failed_here && o && o->m.has_prefill) logits_are_shaped_in(t, 0, 100);
}

/* ---- long chunks ---- */

#define LONG_KINDS 6u
/* Prompts of more than 200 tokens, and short ones; two draw their tokens. What each yields alone in such a server, in steps of
   other sizes. */
static void make_long_kinds(stand *o, kind *kinds, serving_desc d)
{
    static const uint32_t prompts[LONG_KINDS] = {270, 230, 205, 5, 40, 130};
    uint64_t seed = 9;
    d.chunk_rows = 100;
    for (uint32_t i = 0; i < LONG_KINDS && !o->t->failed_here; i++) {
        kind *k = &kinds[i];
        fleet_server_stats stats;
        batch last;
        k->n_prompt = prompts[i], k->max_tokens = i < 3 ? 2 + i : MOST_TOKENS;
        for (uint32_t t = 0; t < k->n_prompt; t++)
            k->prompt[t] = random_below(&seed, o->m.config.vocab);
        k->words.ignore_eos = 1;
        if (i % 3 == 2) k->words.sampling.temperature = 0.9f, k->words.sampling.seed = i;
        k->logits = (float *)calloc((size_t)MOST_TOKENS * o->m.config.vocab, sizeof(float));
        if (!k->logits || stand_open(o, &d)) return;
        if (!submit(o, 0, k, FLEET_REACTIVE))
            test_fail(o->t, __FILE__, __LINE__, "a request was refused");
        wait_for(o, 1);
        stand_close(o, &stats, &last);
        k->n_alone = o->jobs[0].n;
        for (uint32_t t = 0; t < k->n_alone; t++) k->alone[t] = (int32_t)o->jobs[0].tokens[t];
        fleet_to_host(k->logits, o->s.d.logits,
                      (size_t)k->n_alone * o->m.config.vocab * sizeof(float), NULL);
        serving_free(&o->s);
    }
}

/* Where the device has a kernel for them, chunks have more rows than a step of the others, or than
   a tile of products, and each request has what it has alone, however often a chunk stops between
   two layers and another one takes its place. */
static void long_chunks_of(test_run *t, uint32_t fixture)
{
    stand *o = stand_of(t, fixture);
    static kind kinds[LONG_KINDS];
    serving_desc d = usual(2);
    uint32_t cuts = 0;
    if (!o) return;
    d.context = LONGEST_PROMPT + MOST_TOKENS, d.chunk_rows = 248, d.pages = 150;
    if (!o->m.has_prefill) {
        char error[64];
        snprintf(error, sizeof error, "rows of a prompt: from 1 to %u",
                 serving_rows(&o->m) - DECODE_ROWS);
        CHECK_INT(serving_open(&o->s, &o->m, &d), RUN_REFUSED);
        CHECK_TEXT(o->s.error, error);
        serving_free(&o->s);
        return;
    }
    d.chunk_rows = 2041;
    CHECK_INT(serving_open(&o->s, &o->m, &d), RUN_REFUSED);
    CHECK_TEXT(o->s.error, "rows of a prompt: from 1 to 2040");
    serving_free(&o->s);
    make_long_kinds(o, kinds, d);
    for (uint64_t seed = 1; is_due(seed, 4, cuts != 0) && !t->failed_here; seed++) {
        fleet_server_stats stats;
        batch last;
        uint64_t random = seed, expected = 0;
        uint32_t next = 0;
        d.chunk_rows = seed % 2 ? 300 : 210, d.suspend_decode = seed % 4 < 2;
        if (stand_open(o, &d)) break;
        while (next < JOBS && !t->failed_here) {
            const uint32_t k = next < 2 ? next : random_below(&random, LONG_KINDS);
            const fleet_class c =
                next < 2 || random_below(&random, 2) ? FLEET_PROACTIVE : FLEET_REACTIVE;
            if (next >= 2) pause_us((long)random_below(&random, LONGEST_PAUSE_US));
            if (submit(o, next, &kinds[k], c)) next++;
            take_events(o);
        }
        wait_for(o, JOBS);
        stand_close(o, &stats, &last);
        for (uint32_t i = 0; i < JOBS && !t->failed_here; i++) {
            check_job(o, i);
            expected += (uint64_t)(o->jobs[i].of->n_prompt + o->jobs[i].n - 1) * o->m.config.layers;
        }
        if (!t->failed_here && last.row_layers > expected)
            test_fail(t, __FILE__, __LINE__, "%llu layers of tokens were computed, %llu needed",
                      (unsigned long long)last.row_layers, (unsigned long long)expected);
        cuts += stats.layers_cut;
        serving_free(&o->s);
    }
    printf("%s, long chunks: rows stopped between layers %u times\n", fixtures[fixture], cuts);
    if (!cuts) test_fail(t, __FILE__, __LINE__, "no cut: nothing was tested");
    for (uint32_t i = 0; i < LONG_KINDS; i++) free(kinds[i].logits);
}
static void long_chunks(test_run *t)
{
    long_chunks_of(t, 0);
}
static void long_chunks_of_experts(test_run *t)
{
    long_chunks_of(t, 1);
}

/* A server that decodes more requests together than a step of the other kernels has rows: each has
   what it has alone. */
static void many_requests_of(test_run *t, uint32_t fixture)
{
    stand *o = stand_of(t, fixture);
    static kind kinds[LONG_KINDS];
    serving_desc d = usual(2);
    fleet_server_stats stats;
    batch last;
    uint64_t random = 3;
    if (!o || !o->m.has_prefill) return;
    d.context = LONGEST_PROMPT + MOST_TOKENS, d.pages = 1500;
    d.decode_rows = 120; /* attention depends on it */
    make_long_kinds(o, kinds, d);
    d.chunk_rows = 0, d.requests = MOST_JOBS, d.keep_logits = MOST_JOBS;
    d.beside_rows = 150;
    if (!t->failed_here && !stand_open(o, &d)) {
        for (uint32_t next = 0; next < MOST_JOBS && !t->failed_here;) {
            const uint32_t k = random_below(&random, 4) ? 3 + random_below(&random, 3)
                                                        : random_below(&random, LONG_KINDS);
            if (submit(o, next, &kinds[k], (fleet_class)random_below(&random, 2))) next++;
            take_events(o);
        }
        wait_for(o, MOST_JOBS);
        stand_close(o, &stats, &last);
        for (uint32_t i = 0; i < MOST_JOBS && !t->failed_here; i++) check_job(o, i);
        serving_free(&o->s);
    }
    for (uint32_t i = 0; i < LONG_KINDS; i++) free(kinds[i].logits);
}
static void many_requests(test_run *t)
{
    many_requests_of(t, 0);
}
static void many_requests_of_experts(test_run *t)
{
    many_requests_of(t, 1);
}

/* Aborts the launch: what has not ended fails, and the next launch serves again. */
static void abort_and_recover(stand *o)
{
    for (uint32_t i = 0; i < JOBS; i++) o->jobs[i].is_aborted = o->jobs[i].id && !o->jobs[i].ended;
    release_all(o);
    fleet_state_abort(&o->s.state);
    pthread_join(o->thread, NULL);
    if (!o->bad) test_fail(o->t, __FILE__, __LINE__, "the launch was not aborted");
    take_events(o);
    release_all(o);
    for (uint32_t i = 0; i < JOBS; i++)
        if (o->jobs[i].id && !o->jobs[i].ended)
            test_fail(o->t, __FILE__, __LINE__, "a request has not ended");
    if (serving_recover(&o->s)) test_fail(o->t, __FILE__, __LINE__, "%s", o->s.error);
    if (pthread_create(&o->thread, NULL, launch, o)) abort();
}
/* Whether a request of the soak has ended as it should, with tokens that it has alone. */
static uint32_t has_ended_well(const job *j)
{
    const uint32_t is_whole = j->n == j->of->n_alone;
    if (memcmp(j->tokens, j->of->alone, j->n * sizeof j->tokens[0])) return 0;
    if (j->ended == 1 + FLEET_EVENT_FINISHED) return is_whole;
    if (j->ended == 1 + FLEET_EVENT_FAILED)
        return j->is_aborted && j->status == FLEET_ERROR_ABORTED;
    return j->is_cancelled;
}

/* Requests without end, of all kinds and lengths, of which every eighth is cancelled, while the launch is aborted now and
   then: each ends once, and has the tokens that it has alone. The records of requests that have ended are used again. */
static void soak_on(test_run *t, fleet_host_engine engine)
{
    const char *wanted = getenv("SOAK_REQUESTS");
    const uint32_t usually = IS_QUICK               ? 30
                             : getenv("FLEET_DEEP") ? 50000
                                                    : 75,
                   all = wanted ? (uint32_t)atoi(wanted) : usually;
    stand *o = stand_of(t, 0);
    const uint32_t apart = all < 3000 ? all / 3 : 1000; /* requests between two aborts */
    fleet_server_stats stats;
    batch last;
    uint64_t random = 77;
    uint32_t submitted = 0, checked = 0, aborts = 0;
    serving_desc d = usual(2);
    if (!o) return;
    d.decode_rows = 7, d.chunk_rows = 24, d.requests = 24, d.pages = 60, d.mixed_rows = 4;
    set_workers(&d, 2, 1);
    d.host.engine = engine;
    if (stand_open(o, &d)) return;
    while (checked < all && !t->failed_here) {
        uint32_t moved = 0;
        for (uint32_t i = 0; i < JOBS && !t->failed_here; i++) {
            job *j = &o->jobs[i];
            if (j->ended) {
                if (!has_ended_well(j))
                    test_fail(t, __FILE__, __LINE__, "request %u of %u: end %u, %u tokens", checked,
                              all, j->ended, j->n);
                memset(j, 0, sizeof *j);
                checked++, moved = 1;
            }
            if (!j->id && submitted < all &&
                submit(o, i, &o->kinds[random_below(&random, KINDS)],
                       (fleet_class)(random_below(&random, 3) != 0))) {
                submitted++, moved = 1;
                if (random_below(&random, 8) == 0)
                    fleet_server_cancel(&o->s.server, j->id), j->is_cancelled = 1;
            }
            if (j->id && !j->is_cancelled && random_below(&random, 1u << 17) == 0)
                fleet_server_cancel(&o->s.server, j->id), j->is_cancelled = 1;
        }
        take_events(o);
        if (submitted < all && checked / apart > aborts) abort_and_recover(o), aborts++;
        if (moved) continue;
        release_all(o);
        pause_us(50);
    }
    stand_close(o, &stats, &last);
    printf("soak: %u requests, %u aborts; %u iterations since the last one, rows stopped between "
           "layers %u times\n",
           checked, aborts, stats.iterations, stats.layers_cut);
    CHECK(aborts || IS_QUICK);
    serving_free(&o->s);
}
static void soak(test_run *t)
{
    soak_on(t, FLEET_ENGINE_THREADS);
    if (!t->failed_here && !IS_QUICK) soak_on(t, FLEET_ENGINE_DETERMINISTIC);
}

#if defined(FLEET_HOST)
/* A page that begins holds no number of an earlier request: after a run in a cache full of NaN, the pages that were used
   have none. */
static void pages_are_cleared(test_run *t)
{
    stand *o = stand_of(t, 0);
    fleet_server_stats stats;
    batch last;
    serving_desc d = usual(2);
    uint32_t clean = 0, dirty = 0;
    if (!o) return;
    d.keep_logits = JOBS;
    if (serving_open(&o->s, &o->m, &d)) test_fail(t, __FILE__, __LINE__, "%s", o->s.error);
    for (uint64_t i = 0; i < layer_cache_size(&o->s.d) * o->m.config.layers; i++)
        o->s.d.cache[i] = (kv_t)NAN;
    if (pthread_create(&o->thread, NULL, launch, o)) abort();
    CHECK(submit(o, 0, &o->kinds[0], FLEET_PROACTIVE) &&
          submit(o, 1, &o->kinds[3], FLEET_REACTIVE));
    wait_for(o, 2);
    stand_close(o, &stats, &last);
    for (uint32_t i = 0; i < 2 && !t->failed_here; i++) check_job(o, i);
    for (uint32_t p = 0; p < o->s.d.pages; p++) {
        uint32_t bad = 0, n = page_size(&o->s.d);
        const kv_t *page = kv_page(&o->s.d, o->s.d.cache + layer_cache_size(&o->s.d), 0, p);
        for (uint32_t i = 0; i < n; i++) bad += page[i] != page[i];
        if (bad && bad != n) test_fail(t, __FILE__, __LINE__, "page %u has %u NaN", p, bad);
        clean += !bad, dirty += bad != 0;
    }
    CHECK(clean >= 7 && dirty > 0);
    serving_free(&o->s);
}

#endif

#if defined(FLEET_HOST)
#define ABORTS 1u
#else
#define ABORTS 8u
#endif
/* A failure of the device ends all requests with its status; what they had before has arrived. It comes some time after the first
   token, so that the workers are anywhere in a step. */
static void the_device_fails_in(test_run *t, uint32_t fixture, uint32_t chunk_rows, uint64_t seed)
{
    stand *o = stand_of(t, fixture);
    serving_desc d = usual(2);
    uint32_t tokens = 0;
    if (!o) return;
    if (chunk_rows > MAX_ROWS && !o->m.has_prefill) return;
    d.chunk_rows = chunk_rows;
    if (stand_open(o, &d)) return;
    for (uint32_t i = 0; i < 6; i++) CHECK(submit(o, i, &o->kinds[i % 2], (fleet_class)(i % 2)));
    while (!tokens) {
        pause_us(50);
        take_events(o);
        for (uint32_t i = 0; i < 6; i++) tokens += o->jobs[i].n;
    }
    pause_us((long)random_below(&seed, 300));
    fleet_state_abort(&o->s.state);
    pthread_join(o->thread, NULL);
    CHECK(o->bad);
    CHECK_TEXT(o->s.error, "run: ");
    wait_for(o, 6);
    for (uint32_t i = 0; i < 6 && !t->failed_here; i++) {
        const job *j = &o->jobs[i];
        if (j->ended == 1 + FLEET_EVENT_FINISHED) continue;
        CHECK_INT(j->ended, 1 + FLEET_EVENT_FAILED);
        CHECK_INT(j->status, FLEET_ERROR_ABORTED);
        CHECK(!memcmp(j->tokens, j->of->alone, j->n * sizeof j->tokens[0]));
    }
    serving_free(&o->s);
}
static void the_device_fails(test_run *t)
{
    for (uint64_t seed = 1; seed <= ABORTS && !t->failed_here; seed++) {
        the_device_fails_in(t, 0, 10, seed);
        if (!t->failed_here) the_device_fails_in(t, 1, 10, seed);
        if (!t->failed_here) the_device_fails_in(t, 0, 248, seed);
        if (!t->failed_here) the_device_fails_in(t, 1, 248, seed);
    }
}

static void refused(test_run *t)
{
    stand *o = stand_of(t, 0);
    serving_desc d = usual(2);
    qwen3_checkpoint c;
    char error[ERROR_BYTES] = "";
    if (!o) return;
    d.context = o->m.config.positions + 1;
    CHECK_INT(serving_open(&o->s, &o->m, &d), RUN_REFUSED);
    CHECK_TEXT(o->s.error, "context: from 1 to 512");
    serving_free(&o->s);
    d = usual(2), d.decode_rows = 257;
    CHECK_INT(serving_open(&o->s, &o->m, &d), RUN_REFUSED);
    CHECK_TEXT(o->s.error, o->m.has_prefill ? "decoded together: from 1 to 256"
                                            : "decoded together: from 1 to 48");
    serving_free(&o->s);
    d = usual(2), d.decode_rows = 40, d.chunk_rows = 2009;
    CHECK_INT(serving_open(&o->s, &o->m, &d), RUN_REFUSED);
    CHECK_TEXT(o->s.error, o->m.has_prefill ? "rows of a prompt: from 1 to 2008"
                                            : "rows of a prompt: from 1 to 24");
    serving_free(&o->s);
    d = usual(2), d.requests = 65537;
    CHECK_INT(serving_open(&o->s, &o->m, &d), RUN_REFUSED);
    CHECK_TEXT(o->s.error, "requests: from 1 to 65536");
    serving_free(&o->s);
    d = usual(2), d.pages = 0;
    CHECK(!qwen3_open(&c, fixtures[0]));
    CHECK_INT(serving_memory_refused(&c.config, &c, d, UINT64_MAX, error), 0);
    CHECK_INT(serving_memory_refused(&c.config, &c, d, 20000000, error), RUN_REFUSED);
    CHECK_TEXT(error, "GB of memory are needed for 4 requests of up to 128 tokens, and 0.020 are");
    qwen3_close(&c);
}

static void tests(test_run *t)
{
    /* Under ThreadSanitizer: what threads may race for is in these two, with cancels, aborts and recoveries. */
    TEST(dense_checkpoint);
    TEST(soak);
    TEST(long_chunks);
    TEST(many_requests);
    if (!IS_QUICK) {
        TEST(experts_checkpoint);
        TEST(long_chunks_of_experts);
        TEST(many_requests_of_experts);
        TEST(each_layer_once);
        TEST(prefixes_are_found);
        TEST(logits_are_shaped);
        TEST(refused);
        TEST(cancels);
#if defined(FLEET_HOST)
        TEST(pages_are_cleared);
#endif
        TEST(the_device_fails);
    }
    stands_unload();
}
TEST_MAIN(tests)
