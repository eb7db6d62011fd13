// run: asan whole
// run: tsan whole
/* What engine.h promises of an engine: each job ends once, with the tokens that it has when it is alone, whatever is decoded
   with it, cancelled or stopped. For the engine without a model, or with -DENGINE_QWEN3 for that of examples/qwen3, which
   deep runs build. */
#define _GNU_SOURCE
#if defined(ENGINE_QWEN3)
#include "../../examples/serve/engine_qwen3.c"
#else
#include "engine_test.c"
#endif
#include "test.h"

#define KINDS 12u
#define MOST_TOKENS 40u
#define JOBS 2000u
#define SUBMITTERS 3u

typedef struct kind { /* of jobs that are the same but for their class */
    uint32_t prompt[48], n_prompt, max_tokens;
    uint32_t alone[MOST_TOKENS], n_alone;
} kind;

typedef struct record {
    const kind *of;
    uint64_t ticket;
    uint32_t n, tokens[MOST_TOKENS];
    uint32_t reused;
    uint32_t told; /* tokens that came with their likelihood */
    uint32_t ends; /* how often it ended */
    engine_event_kind end;
    uint32_t late; /* events after its end */
} record;

typedef struct bench {
    engine *e;
    kind kinds[KINDS];
    record *records;
    uint32_t jobs, ended, busy; /* by __atomic */
} bench;

static void on_event(void *user, const engine_event *event)
{
    bench *b = (bench *)user;
    record *r = (record *)event->user;
    if (r->ends) r->late++;
    if (event->kind == ENGINE_TOKEN) {
        if (r->n < MOST_TOKENS) r->tokens[r->n] = event->token;
        r->reused = event->reused;
        r->told += event->likelihood && event->likelihood->own <= 0 &&
                   event->likelihood->of[0] >= event->likelihood->of[1];
        __atomic_store_n(&r->n, r->n + 1, __ATOMIC_RELAXED);
        return;
    }
    r->end = event->kind;
    __atomic_store_n(&r->ends, r->ends + 1, __ATOMIC_RELEASE); /* publishes the end */
    __atomic_fetch_add(&b->ended, 1, __ATOMIC_RELEASE);        /* publishes the record to soon() */
}

static void pause_us(long us)
{
    const struct timespec pause = {0, 1000 * us};
    nanosleep(&pause, NULL);
}

static int soon(const bench *b, uint32_t ended)
{
    for (uint32_t i = 0; i < 60000; i++) {
        if (__atomic_load_n(&b->ended, __ATOMIC_ACQUIRE) == ended) return 1;
        pause_us(1000);
    }
    return 0;
}

static uint32_t random_below(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

#define FIXTURE "tests/fixtures/qwen3-tiny"

static void bench_open(test_run *t, bench *b, const char *dir, const char *step_us, uint32_t batch,
                       uint32_t queue)
{
    char error[512];
    uint64_t seed = 7;
    engine_desc desc;
    memset(&desc, 0, sizeof desc);
    memset(b, 0, sizeof *b);
    setenv("TEST_STEP_US", step_us, 1);
    desc.dir = dir;
    desc.context = 512, desc.batch = batch, desc.queue = queue;
    desc.on_event = on_event, desc.user = b;
    b->e = engine_open(&desc, error, sizeof error);
    if (!b->e) test_fail(t, __FILE__, __LINE__, "%s", error);
    b->records = (record *)calloc(JOBS, sizeof *b->records);
    for (uint32_t k = 0; k < KINDS; k++) {
        kind *of = &b->kinds[k];
        of->n_prompt = 1 + random_below(&seed, 48),
        of->max_tokens = 1 + random_below(&seed, MOST_TOKENS);
        for (uint32_t i = 0; i < of->n_prompt; i++) of->prompt[i] = random_below(&seed, 500);
    }
}

static void bench_close(bench *b)
{
    engine_close(b->e);
    free(b->records);
}

static engine_status submit(bench *b, record *r, const kind *of, job_class priority)
{
    uint32_t fits = 0;
    engine_job job;
    memset(&job, 0, sizeof job);
    r->of = of;
    job.prompt = of->prompt, job.n_prompt = of->n_prompt, job.max_tokens = of->max_tokens;
    job.priority = priority, job.user = r;
    if ((of - b->kinds) % 2) { /* every other one draws its tokens */
        job.sample.temperature = 0.8, job.sample.top_p = 0.9;
        job.sample.seed = (uint64_t)(of - b->kinds);
    }
    if ((of - b->kinds) % 3 == 1) { /* and every third one asks something of its logits */
        static const engine_bias biased[] = {{3, 100}, {4, 100}, {5, -100}};
        static const uint32_t ends[] = {3};
        job.shape.repetition = 1.2, job.shape.presence = 0.5, job.shape.frequency = 1.5;
        job.shape.biased = biased, job.shape.n_biased = (of - b->kinds) % 2 ? 3 : 0;
        job.shape.ends = ends, job.shape.n_ends = 1, job.shape.min_tokens = 2;
    }
    return engine_submit(b->e, &job, &r->ticket, &fits);
}

/* Each kind alone. */
static void run_alone(test_run *t, bench *b)
{
    for (uint32_t k = 0; k < KINDS; k++) {
        record *r = &b->records[k];
        if (submit(b, r, &b->kinds[k], JOB_REACTIVE) || !soon(b, k + 1))
            test_fail(t, __FILE__, __LINE__, "kind %u does not end", k);
        if (r->ends != 1 || r->end != ENGINE_FINISHED || r->n != r->of->max_tokens)
            test_fail(t, __FILE__, __LINE__, "kind %u: %u tokens of %u", k, r->n,
                      r->of->max_tokens);
        memcpy(b->kinds[k].alone, r->tokens, sizeof r->tokens);
        b->kinds[k].n_alone = r->n;
    }
    b->jobs = KINDS;
}

static void check_record(test_run *t, const record *r, uint32_t i)
{
    if (r->ends != 1 || r->late || r->n > r->of->n_alone)
        test_fail(t, __FILE__, __LINE__, "job %u: %u ends, %u events after it, %u tokens of %u", i,
                  r->ends, r->late, r->n, r->of->n_alone);
    if (r->end == ENGINE_FAILED || (r->end == ENGINE_FINISHED && r->n != r->of->n_alone))
        test_fail(t, __FILE__, __LINE__, "job %u: end %d after %u tokens of %u", i, (int)r->end,
                  r->n, r->of->n_alone);
    if (!t->failed_here && memcmp(r->tokens, r->of->alone, r->n * sizeof r->tokens[0]))
        test_fail(t, __FILE__, __LINE__, "job %u has other tokens than alone", i);
}

typedef struct submitter {
    bench *b;
    uint32_t number, jobs;
    uint32_t taken;
} submitter;

/* Submits jobs, and cancels some: at once, later, and after their end. */
static void *submit_and_cancel(void *user)
{
    submitter *s = (submitter *)user;
    bench *b = s->b;
    uint64_t seed = s->number;
    for (uint32_t i = 0; i < s->jobs; i++) {
        record *r = &b->records[KINDS + s->number * s->jobs + i];
        const kind *of = &b->kinds[random_below(&seed, KINDS)];
        while (submit(b, r, of, random_below(&seed, 3) ? JOB_REACTIVE : JOB_PROACTIVE)) {
            __atomic_fetch_add(&b->busy, 1, __ATOMIC_RELAXED);
            pause_us(100);
        }
        if (random_below(&seed, 8) == 0) engine_cancel(b->e, r->ticket);
        if (random_below(&seed, 4) == 0)
            engine_cancel(b->e, (r - random_below(&seed, i < 20 ? i + 1 : 20))->ticket);
        if (random_below(&seed, 16) == 0) pause_us(random_below(&seed, 500));
    }
    return NULL;
}

static void same_tokens_as_alone(test_run *t)
{
    const uint32_t jobs = getenv("FLEET_DEEP") ? (JOBS - KINDS) / SUBMITTERS : 100;
    const uint32_t all = KINDS + SUBMITTERS * jobs;
    pthread_t threads[SUBMITTERS];
    submitter s[SUBMITTERS];
    engine_load load;
    uint32_t finished = 0;
    bench b;
    bench_open(t, &b, FIXTURE, "20", 8, 20);
    run_alone(t, &b);
    for (uint32_t i = 0; i < SUBMITTERS; i++) {
        s[i].b = &b, s[i].number = i, s[i].jobs = jobs;
        if (pthread_create(&threads[i], NULL, submit_and_cancel, &s[i])) abort();
    }
    for (uint32_t i = 0; i < SUBMITTERS; i++) pthread_join(threads[i], NULL);
    if (!soon(&b, all)) test_fail(t, __FILE__, __LINE__, "%u of %u jobs ended", b.ended, all);
    for (uint32_t i = 0; i < all && !t->failed_here; i++) {
        check_record(t, &b.records[i], i);
        finished += b.records[i].end == ENGINE_FINISHED;
    }
    if (finished == all || finished < all / 3)
        test_fail(t, __FILE__, __LINE__, "%u of %u finished: nothing was tested", finished, all);
    load = engine_load_of(b.e);
    CHECK(!load.failed && !load.waiting[0] && !load.waiting[1] && !load.running[0] &&
          !load.running[1]);
    bench_close(&b);
}

/* A prompt says with each token how many of its tokens it found in pages of earlier prompts. */
static void reused_tokens_are_told(test_run *t)
{
    static const uint32_t same[] = {40, 40, 40, 20, 3}; /* as in the first one */
    static const uint32_t reused[] = {0, 32, 32, 16, 0};
    bench b;
    bench_open(t, &b, FIXTURE, "20", 8, 20);
    for (uint32_t i = 0; i < 5; i++) {
        kind *of = &b.kinds[i];
        of->n_prompt = 40, of->max_tokens = 1 + i % 2;
        for (uint32_t k = 0; k < 40; k++) of->prompt[k] = k < same[i] ? k : 100 + i;
        CHECK_INT(submit(&b, &b.records[i], of, (job_class)(i % 2)), ENGINE_OK);
        CHECK(soon(&b, i + 1));
        CHECK_INT(b.records[i].reused, reused[i]);
    }
    bench_close(&b);
}

/* A queue takes as many jobs as it is long, in each class. */
static void full_queues(test_run *t)
{
    uint32_t taken[JOB_CLASSES] = {0, 0}, n = 0;
    bench b;
    bench_open(t, &b, FIXTURE, "100", 1, 3);
    for (uint32_t i = 0; i < 200; i++)
        for (uint32_t k = 0; k < JOB_CLASSES; k++) {
            const engine_load load = engine_load_of(b.e);
            const engine_status status = submit(&b, &b.records[n], &b.kinds[0], (job_class)k);
            n += !status, taken[k] += !status;
            if (load.waiting[k] > 3) test_fail(t, __FILE__, __LINE__, "%u wait", load.waiting[k]);
            if (status && status != ENGINE_BUSY)
                test_fail(t, __FILE__, __LINE__, "%d", (int)status);
        }
    CHECK(taken[0] >= 3 && taken[1] >= 3 && n < 400);
    CHECK(soon(&b, n));
    bench_close(&b);
}

/* A stop in the middle: each job ends once, most of them cancelled, and no other one is taken. */
static void stop_ends_every_job(test_run *t)
{
    record extra;
    uint32_t cancelled = 0;
    bench b;
    bench_open(t, &b, FIXTURE, "1000", 8, 100);
    run_alone(t, &b);
    for (uint32_t i = 0; i < 100; i++)
        if (submit(&b, &b.records[KINDS + i], &b.kinds[i % KINDS], (job_class)(i % 2)))
            test_fail(t, __FILE__, __LINE__, "job %u is not taken", i);
    engine_stop(b.e);
    CHECK_INT(__atomic_load_n(&b.ended, __ATOMIC_ACQUIRE), KINDS + 100);
    for (uint32_t i = 0; i < KINDS + 100; i++) {
        check_record(t, &b.records[i], i);
        cancelled += b.records[i].end == ENGINE_CANCELLED;
    }
    CHECK(cancelled > 0);
    memset(&extra, 0, sizeof extra);
    CHECK_INT(submit(&b, &extra, &b.kinds[0], JOB_REACTIVE), ENGINE_DOWN);
    CHECK_INT(extra.ends, 0);
    engine_cancel(b.e, 1); /* has ended long ago */
    bench_close(&b);
}

#if defined(ENGINE_QWEN3)
/* A job that is cancelled while it runs ends at once, and gives its pages back; the one beside it goes on. */
static void cancelled_job_leaves(test_run *t)
{
    kind slow;
    fleet_server_stats stats;
    bench b;
    bench_open(t, &b, FIXTURE, "1000", 8, 100);
    memset(&slow, 0, sizeof slow);
    slow.n_prompt = 1, slow.max_tokens = 500;
    CHECK_INT(submit(&b, &b.records[0], &slow, JOB_PROACTIVE), ENGINE_OK);
    for (uint32_t i = 1; i < 6; i++) {
        CHECK_INT(submit(&b, &b.records[i], &slow, (job_class)(i % 2)), ENGINE_OK);
        while (!__atomic_load_n(&b.records[i].n, __ATOMIC_RELAXED)) pause_us(20);
        engine_cancel(b.e, b.records[i].ticket);
        while (!__atomic_load_n(&b.records[i].ends, __ATOMIC_ACQUIRE)) pause_us(20);
        CHECK_INT(b.records[i].end, ENGINE_CANCELLED);
        CHECK(b.records[i].n < 400);
    }
    engine_cancel(b.e, b.records[0].ticket);
    CHECK(soon(&b, 6));
    for (uint32_t i = 0; i < 1000; i++) { /* the event comes before the figures */
        fleet_server_stats_read(&b.e->s.server, &stats);
        if (stats.pages_available == b.e->s.server.desc.pages) break;
        pause_us(100);
    }
    CHECK_INT(stats.pages_available, b.e->s.server.desc.pages);
    bench_close(&b);
}

/* When the device fails, each job ends as failed, after the tokens that it had. */
static void device_failure(test_run *t)
{
    bench b;
    bench_open(t, &b, FIXTURE, "1000", 8, 100);
    run_alone(t, &b);
    for (uint32_t i = 0; i < 60; i++)
        CHECK_INT(submit(&b, &b.records[KINDS + i], &b.kinds[i % KINDS], (job_class)(i % 2)),
                  ENGINE_OK);
    fleet_state_abort(&b.e->s.state);
    CHECK(soon(&b, KINDS + 60));
    for (uint32_t i = KINDS; i < KINDS + 60 && !t->failed_here; i++) {
        const record *r = &b.records[i];
        CHECK_INT(r->ends, 1);
        CHECK(r->end == ENGINE_FINISHED || r->end == ENGINE_FAILED);
        CHECK(!memcmp(r->tokens, r->of->alone, r->n * sizeof r->tokens[0]));
    }
    CHECK_INT(b.records[KINDS + 59].end, ENGINE_FAILED);
    CHECK_INT(engine_load_of(b.e).failed, 1);
    CHECK_TEXT(engine_load_of(b.e).error, "run: ");
    CHECK_INT(submit(&b, &b.records[KINDS + 60], &b.kinds[0], JOB_REACTIVE), ENGINE_DOWN);
    bench_close(&b);
}

/* Copies a file into a folder. */
static void copy_file(const char *name, const char *dir, void (*change)(char *bytes, size_t n))
{
    char path[512], *bytes = (char *)calloc(1, 1u << 22);
    size_t n;
    FILE *f;
    snprintf(path, sizeof path, FIXTURE "/%s", name);
    f = fopen(path, "rb");
    n = f ? fread(bytes, 1, (1u << 22) - 1, f) : 0;
    if (f) fclose(f);
    if (change) change(bytes, n);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) abort();
    free(bytes);
}

/* The embedding of token 507 becomes so large that its logits are not finite. */
static void enlarge_embedding(char *bytes, size_t n)
{
    const char *at = bytes + 8;
    uint64_t header, begin;
    memcpy(&header, bytes, 8);
    at = strstr(at, "\"model.embed_tokens.weight\"");
    at = at ? strstr(at, "\"data_offsets\":[") : NULL;
    if (!at) abort();
    begin = 8 + header + strtoull(at + 16, NULL, 10) + (uint64_t)507 * 128 * 2;
    if (begin + 128 * 2 > n) abort();
    memset(bytes + begin, 0x7f, 128 * 2);
}

/* A request whose logits are not finite fails. Those beside it do not, and lose and repeat no token. */
static void bad_logits_of_one(test_run *t)
{
    char dir[] = "/tmp/fleet-serve-XXXXXX", file[64];
    record *r;
    kind bad;
    bench b;
    if (!mkdtemp(dir)) abort();
    copy_file("config.json", dir, NULL);
    copy_file("model.safetensors", dir, enlarge_embedding);
    bench_open(t, &b, dir, "20", 16, 100);
    for (uint32_t i = 0; i < 2; i++) {
        snprintf(file, sizeof file, "%s/%s", dir, i ? "config.json" : "model.safetensors");
        unlink(file);
    }
    rmdir(dir);
    run_alone(t, &b);
    memset(&bad, 0, sizeof bad);
    bad.prompt[0] = 1, bad.prompt[1] = 507, bad.prompt[2] = 3, bad.n_prompt = 3, bad.max_tokens = 5;
    r = &b.records[KINDS];
    for (uint32_t i = 0; i < 13; i++)
        if (submit(&b, &r[i], i == 6 ? &bad : &b.kinds[i % KINDS], (job_class)(i % 2)))
            test_fail(t, __FILE__, __LINE__, "job %u is not taken", i);
    CHECK(soon(&b, KINDS + 13));
    for (uint32_t i = 0; i < 13 && !t->failed_here; i++)
        if (i != 6) {
            check_record(t, &r[i], i);
            CHECK_INT(r[i].end, ENGINE_FINISHED);
        }
    CHECK_INT(r[6].end, ENGINE_FAILED);
    CHECK_INT(r[6].ends, 1);
    CHECK_INT(engine_load_of(b.e).failed, 0);
    bench_close(&b);
}
#endif

static void opens_nothing(test_run *t)
{
#if defined(ENGINE_QWEN3)
    char error[512];
    engine_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.dir = "tests/fixtures/none", desc.batch = 1, desc.queue = 1;
    CHECK(!engine_open(&desc, error, sizeof error));
    CHECK_TEXT(error, "tests/fixtures/none");
    desc.dir = "tests/fixtures/qwen3-tiny", desc.context = 513;
    CHECK(!engine_open(&desc, error, sizeof error));
    CHECK_TEXT(error, "--context 513 is longer than max_position_embeddings, 512");
#endif
    (void)t;
}

/* A bias chooses the token, and one that ends the answer is not among the first min_tokens. */
static void logits_are_shaped(test_run *t)
{
    static const engine_bias biased[] = {{7, 100}, {9, 50}};
    static const uint32_t ends[] = {7};
    engine_job job;
    bench b;
    record *r;
    uint32_t fits = 0;
    bench_open(t, &b, FIXTURE, "0", 2, 4);
    memset(&job, 0, sizeof job);
    job.prompt = b.kinds[0].prompt, job.n_prompt = b.kinds[0].n_prompt;
    job.max_tokens = 5, job.ignore_eos = 1, job.likelihoods = 3;
    job.shape.biased = biased, job.shape.n_biased = 2;
    for (uint32_t i = 0; i < 2; i++) {
        r = &b.records[i];
        job.user = r;
        if (i) job.shape.ends = ends, job.shape.n_ends = 1, job.shape.min_tokens = 3;
        CHECK_INT(engine_submit(b.e, &job, &r->ticket, &fits), ENGINE_OK);
        CHECK(soon(&b, i + 1));
        CHECK(r->n == 5 && r->end == ENGINE_FINISHED && r->told == 5);
        for (uint32_t k = 0; k < 5; k++) CHECK_INT(r->tokens[k] == 7, !i || k >= 3);
    }
    bench_close(&b);
}

static void tests(test_run *t)
{
    TEST(same_tokens_as_alone);
    TEST(reused_tokens_are_told);
    TEST(logits_are_shaped);
    TEST(full_queues);
    TEST(stop_ends_every_job);
#if defined(ENGINE_QWEN3)
    TEST(cancelled_job_leaves);
    TEST(device_failure);
    TEST(bad_logits_of_one);
#endif
    TEST(opens_nothing);
}
TEST_MAIN(tests)
