/* engine_qwen3.c: an engine over examples/qwen3: two queues in front of sessions, each of which decodes a batch in one
   launch.

   A thread takes the jobs that wait, reactive ones first and each class in order, up to desc.batch of them, decodes them
   in a session, and takes the next ones when that launch has ended. While it runs, a second thread follows its steps, as
   the host sees them end, and reports their tokens.

   What it does not do: a job never joins a launch that runs and never suspends another one, so a reactive job may wait for
   a whole launch of proactive ones; a job that is cancelled leaves its launch when that ends, or at once where all jobs of
   the launch are cancelled; keys and values are allocated for each launch, whose prompts share pages. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#define FLEET_IMPLEMENTATION
#include "../qwen3/fits.h"
#include "engine.h"

#include <pthread.h>

#define DEFAULT_CONTEXT 4096u
#define SPLIT_BLOCKS 4u /* fixed: tokens do not depend on what is decoded beside them */

typedef struct job {
    struct job *next;
    engine_job j;
    uint32_t *prompt;
    uint64_t ticket;
    uint32_t cancelled; /* under the lock */
    uint32_t reported;  /* tokens so far; a job that is decoded again reports none twice */
    uint32_t last;      /* the last of them */
} job;

struct engine {
    engine_desc desc;
    model with_eos, without_eos; /* the same weights; for jobs with ignore_eos */
    pthread_t thread;
    uint32_t stopped; /* 1: engine_stop has returned */
    pthread_mutex_t lock;
    pthread_cond_t work;
    /* under the lock */
    job *waiting[JOB_CLASSES]; /* in order */
    job *batch[MAX_ROWS];      /* of the launch that runs */
    uint32_t n;
    session *running; /* while it may be aborted; else null */
    uint32_t aborted; /* 1: that launch was */
    uint32_t stopping;
    engine_load load;
    uint64_t tickets;
};

/* ---- jobs ---- */

static void job_event(const engine *e, const job *j, engine_event_kind kind, const char *error)
{
    engine_event event;
    memset(&event, 0, sizeof event);
    event.kind = kind, event.user = j->j.user, event.token = j->last, event.error = error;
    for (uint32_t i = 0; i < e->with_eos.config.eos_count && !j->j.ignore_eos; i++)
        event.at_eos |= j->last == e->with_eos.config.eos[i];
    e->desc.on_event(e->desc.user, &event);
}

static void job_end(const engine *e, job *j, engine_event_kind kind, const char *error)
{
    job_event(e, j, kind, error);
    free(j->prompt);
    free(j);
}

/* Reports token number `at` of a job, unless it was reported before. */
static void job_token(engine *e, job *j, uint32_t at, int32_t token)
{
    uint32_t cancelled;
    if (at < j->reported) return;
    j->reported++;
    j->last = (uint32_t)token;
    pthread_mutex_lock(&e->lock);
    cancelled = j->cancelled;
    pthread_mutex_unlock(&e->lock);
    if (!cancelled) job_event(e, j, ENGINE_TOKEN, NULL);
}

/* Under the lock. */
static void append_job(job **list, job *j)
{
    while (*list) list = &(*list)->next;
    *list = j, j->next = NULL;
}

/* Under the lock: moves the jobs of the next launch into the batch. They agree on ignore_eos, which is the session's. */
static void take_batch(engine *e)
{
    const job *first =
        e->waiting[JOB_REACTIVE] ? e->waiting[JOB_REACTIVE] : e->waiting[JOB_PROACTIVE];
    e->n = 0;
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        for (job **at = &e->waiting[k]; *at && e->n < e->desc.batch;) {
            job *j = *at;
            if (j->j.ignore_eos != first->j.ignore_eos) {
                at = &j->next;
                continue;
            }
            *at = j->next;
            e->load.waiting[k]--, e->load.running[k]++;
            e->batch[e->n++] = j;
        }
}

/* ---- a launch ---- */

typedef struct launch {
    engine *e;
    session s;
    uint32_t is_over; /* 1: the launch has ended */
} launch;

/* Reports the tokens of a step that has ended, and advances `b` as the device does. */
static void report_step(launch *l, batch *b)
{
    const session *s = &l->s;
    for (uint32_t i = 0; i < b->sequences; i++) {
        sequence_state *q = &b->sequence[i];
        int32_t token;
        q->position += q->rows;
        if (!q->samples) continue;
        token = s->generated[i * s->desc.steps + (uint32_t)q->generated];
        job_token(l->e, l->e->batch[i], (uint32_t)q->generated, token);
        q->generated++;
        for (uint32_t k = 0; k < b->n_eos; k++)
            if (token == b->eos[k]) q->limit = q->generated;
    }
    batch_next(b, MAX_ROWS, s->d.max_splits, s->m->config.kv_heads, b->workers);
}

/* Follows the launch from the host: the last grid of a step notifies an event that the host can see. */
static void *follow_steps(void *user)
{
    launch *l = (launch *)user;
    const session *s = &l->s;
    const int32_t event = fleet_plan_event(s->plan, "next");
    const struct timespec pause = {0, 50000};
    batch b = s->first;
    for (uint32_t step = 1; b.rows;) {
        const uint32_t is_over = __atomic_load_n(&l->is_over, __ATOMIC_ACQUIRE);
        uint32_t done = 0;
        if (is_over || fleet_event_test(&s->state, event, 0, step, &done)) break;
        if (done)
            report_step(l, &b), step++;
        else
            nanosleep(&pause, NULL);
    }
    return NULL;
}

/* Under the lock: ends the launch that runs, if no job needs it any more. */
static void abort_unwanted(engine *e)
{
    uint32_t wanted = 0;
    for (uint32_t i = 0; i < e->n; i++) wanted += !e->batch[i]->cancelled;
    if (wanted || !e->running) return;
    e->aborted = 1;
    fleet_state_abort(&e->running->state);
}

/* Decodes the batch. 0, or -1 and s->error. */
static int launch_run(launch *l)
{
    engine *e = l->e;
    pthread_t follower;
    int bad;
    if (pthread_create(&follower, NULL, follow_steps, l))
        return session_fail(&l->s, "memory", "no thread can be made");
    pthread_mutex_lock(&e->lock);
    e->running = &l->s;
    abort_unwanted(e); /* jobs may have been cancelled while the session was opened */
    pthread_mutex_unlock(&e->lock);
    bad = session_run(&l->s);
    pthread_mutex_lock(&e->lock);
    e->running = NULL;
    pthread_mutex_unlock(&e->lock);
    __atomic_store_n(&l->is_over, 1, __ATOMIC_RELEASE);
    pthread_join(follower, NULL);
    return bad;
}

/* Reports what the follower did not see. Where the launch failed at a logit, that is what came before. */
static void report_rest(launch *l)
{
    session *s = &l->s;
    const uint32_t n = s->first.sequences, steps = s->desc.steps;
    uint32_t counts[MAX_ROWS];
    int32_t *tokens = (int32_t *)malloc((size_t)n * steps * sizeof *tokens);
    if (tokens) session_generated(s, tokens, counts);
    for (uint32_t i = 0; tokens && i < n; i++)
        for (uint32_t t = l->e->batch[i]->reported; t < counts[i]; t++)
            job_token(l->e, l->e->batch[i], t, tokens[i * steps + t]);
    free(tokens);
}

/* The device failed: every job ends, and none is taken. */
static void engine_fail(engine *e, const char *error)
{
    job *waiting[JOB_CLASSES];
    pthread_mutex_lock(&e->lock);
    e->load.failed = 1;
    snprintf(e->load.error, sizeof e->load.error, "%.250s", error);
    e->load.error[strcspn(e->load.error, "\n")] = 0;
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        waiting[k] = e->waiting[k], e->waiting[k] = NULL, e->load.waiting[k] = 0;
    pthread_mutex_unlock(&e->lock);
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        for (job *j = waiting[k], *next; j; j = next) {
            next = j->next;
            job_end(e, j, ENGINE_FAILED, e->load.error);
        }
}

/* Under the lock: puts a list in front of the jobs that wait. */
static void prepend_jobs(job **waiting, job *list)
{
    job **end = &list;
    while (*end) end = &(*end)->next;
    *end = *waiting, *waiting = list;
}

/* Ends the jobs of a launch. bad_job: whose logits are no numbers, or n; the others are decoded again, since a request
   that fails takes no other one with it. Their tokens will be the same. */
static void end_batch(engine *e, int bad, uint32_t bad_job, const char *error)
{
    job *again[JOB_CLASSES] = {NULL, NULL}, *ended[MAX_ROWS];
    engine_event_kind how[MAX_ROWS];
    uint32_t n = 0;
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < e->n; i++) {
        job *j = e->batch[i];
        const job_class k = j->j.priority;
        e->load.running[k]--;
        if (bad && bad_job < e->n && i != bad_job && !j->cancelled && !e->stopping) {
            e->load.waiting[k]++;
            append_job(&again[k], j);
            continue;
        }
        how[n] = j->cancelled || e->stopping ? ENGINE_CANCELLED
                 : bad                       ? ENGINE_FAILED
                                             : ENGINE_FINISHED;
        ended[n++] = j;
    }
    for (uint32_t k = 0; k < JOB_CLASSES; k++) prepend_jobs(&e->waiting[k], again[k]);
    e->n = 0;
    pthread_mutex_unlock(&e->lock);
    for (uint32_t i = 0; i < n; i++) job_end(e, ended[i], how[i], error);
}

/* A request draws the same tokens whatever it is decoded with: its seed alone counts. */
static sampling_desc sampling_of(const sampling *from)
{
    sampling_desc s;
    memset(&s, 0, sizeof s);
    s.temperature = (float)from->temperature, s.top_k = from->top_k;
    s.top_p = (float)from->top_p, s.min_p = (float)from->min_p;
    s.seed = from->seed;
    return s;
}

static void run_batch(engine *e)
{
    launch *l = (launch *)calloc(1, sizeof *l);
    request requests[MAX_ROWS];
    session_desc desc;
    uint32_t bad_job = e->n;
    int opened, bad;
    if (!l) {
        end_batch(e, 1, e->n, "out of memory");
        return;
    }
    l->e = e;
    memset(&desc, 0, sizeof desc);
    desc.schedule = FLEET_SCHEDULE_STATIC;
    desc.share_prefixes = 1;
    desc.split_blocks = SPLIT_BLOCKS;
    memset(requests, 0, sizeof requests);
    for (uint32_t i = 0; i < e->n; i++) {
        const engine_job *j = &e->batch[i]->j;
        requests[i].prompt = e->batch[i]->prompt, requests[i].n_prompt = j->n_prompt;
        requests[i].steps = j->max_tokens;
        requests[i].sampling = sampling_of(&j->sample);
        if (j->sample.temperature > 0) desc.draws = 1;
        if (j->max_tokens > desc.steps) desc.steps = j->max_tokens;
        if (j->n_prompt + j->max_tokens - 1 > desc.context)
            desc.context = j->n_prompt + j->max_tokens - 1;
    }
    opened = !session_open(&l->s, e->batch[0]->j.ignore_eos ? &e->without_eos : &e->with_eos, &desc,
                           requests, e->n);
    bad = !opened || launch_run(l);
    if (opened) report_rest(l);
    if (opened && bad) {
        if (l->s.last.bad_sequence)
            bad_job = l->s.last.bad_sequence - 1;
        else if (!e->aborted)
            engine_fail(e, l->s.error);
    }
    end_batch(e, bad, bad_job, l->s.error);
    session_free(&l->s);
    free(l);
}

static void *engine_thread(void *user)
{
    engine *e = (engine *)user;
    for (;;) {
        pthread_mutex_lock(&e->lock);
        while (!e->stopping && !e->waiting[JOB_REACTIVE] && !e->waiting[JOB_PROACTIVE])
            pthread_cond_wait(&e->work, &e->lock);
        e->aborted = 0;
        if (!e->stopping) take_batch(e);
        pthread_mutex_unlock(&e->lock);
        if (!e->n) return NULL; /* it stops */
        run_batch(e);
    }
}

/* ---- the interface ---- */

static int load_model(engine *e, char *error)
{
    qwen3_checkpoint checkpoint;
    session_desc desc;
    int bad;
    memset(&desc, 0, sizeof desc);
    desc.schedule = FLEET_SCHEDULE_STATIC;
    memset(&checkpoint, 0, sizeof checkpoint);
    if (qwen3_open(&checkpoint, e->desc.dir)) {
        memcpy(error, checkpoint.error, ERROR_BYTES);
        return -1;
    }
    if (!e->desc.context)
        e->desc.context = checkpoint.config.positions < DEFAULT_CONTEXT
                              ? checkpoint.config.positions
                              : DEFAULT_CONTEXT;
    desc.context = desc.steps = e->desc.context;
    desc.draws = 1;
    bad = e->desc.context > checkpoint.config.positions;
    if (bad)
        snprintf(error, ERROR_BYTES, "--context %u is longer than max_position_embeddings, %u",
                 e->desc.context, checkpoint.config.positions);
    bad = bad || memory_refused(&checkpoint.config, &checkpoint, &desc, e->desc.batch, 1,
                                memory_left(), error);
    if (!bad) {
        bad = model_load(&e->with_eos, &checkpoint.config, &checkpoint, desc.schedule,
                         e->desc.batch, NULL);
        if (bad) memcpy(error, e->with_eos.error, ERROR_BYTES);
        fleet_stream_wait(NULL);
    }
    qwen3_close(&checkpoint);
    e->without_eos = e->with_eos;
    e->without_eos.config.eos_count = 0;
    return bad;
}

engine *engine_open(const engine_desc *desc, char *error, size_t bytes)
{
    char why[ERROR_BYTES] = "";
    engine *e = (engine *)calloc(1, sizeof *e);
    if (!e) {
        snprintf(error, bytes, "out of memory");
        return NULL;
    }
    e->desc = *desc;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    if (!load_model(e, why)) {
        if (!pthread_create(&e->thread, NULL, engine_thread, e)) return e;
        snprintf(why, sizeof why, "no thread can be made");
    }
    snprintf(error, bytes, "%s", why);
    e->stopped = 1; /* there is no thread to wait for */
    engine_close(e);
    return NULL;
}

engine_limits engine_limits_of(const engine *e)
{
    engine_limits limits;
    memset(&limits, 0, sizeof limits);
    limits.vocab = e->with_eos.config.vocab, limits.context = e->desc.context;
    limits.samples = 1;
    return limits;
}

engine_load engine_load_of(engine *e)
{
    engine_load load;
    pthread_mutex_lock(&e->lock);
    load = e->load;
    pthread_mutex_unlock(&e->lock);
    return load;
}

engine_status engine_submit(engine *e, const engine_job *given, uint64_t *ticket, uint32_t *fits)
{
    const size_t bytes = given->n_prompt * sizeof *given->prompt;
    engine_status status = ENGINE_OK;
    job *j = (job *)calloc(1, sizeof *j);
    (void)fits; /* what the context holds fits: engine_open has checked that */
    if (j) j->prompt = (uint32_t *)malloc(bytes);
    if (!j || !j->prompt) {
        free(j);
        return ENGINE_BUSY;
    }
    memcpy(j->prompt, given->prompt, bytes);
    j->j = *given;
    pthread_mutex_lock(&e->lock);
    if (e->stopping || e->load.failed)
        status = ENGINE_DOWN;
    else if (e->load.waiting[given->priority] >= e->desc.queue)
        status = ENGINE_BUSY;
    else {
        *ticket = j->ticket = ++e->tickets;
        e->load.waiting[given->priority]++;
        append_job(&e->waiting[given->priority], j);
        pthread_cond_signal(&e->work);
        j = NULL;
    }
    pthread_mutex_unlock(&e->lock);
    if (j) free(j->prompt);
    free(j);
    return status;
}

void engine_cancel(engine *e, uint64_t ticket)
{
    job *found = NULL;
    pthread_mutex_lock(&e->lock);
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        for (job **at = &e->waiting[k]; *at && !found; at = &(*at)->next)
            if ((*at)->ticket == ticket) {
                found = *at;
                *at = found->next;
                e->load.waiting[k]--;
                break;
            }
    for (uint32_t i = 0; i < e->n && !found; i++)
        if (e->batch[i]->ticket == ticket) {
            e->batch[i]->cancelled = 1;
            abort_unwanted(e);
        }
    pthread_mutex_unlock(&e->lock);
    if (found) job_end(e, found, ENGINE_CANCELLED, NULL);
}

void engine_stop(engine *e)
{
    job *waiting[JOB_CLASSES];
    if (e->stopped) return;
    e->stopped = 1;
    pthread_mutex_lock(&e->lock);
    e->stopping = 1;
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        waiting[k] = e->waiting[k], e->waiting[k] = NULL, e->load.waiting[k] = 0;
    for (uint32_t i = 0; i < e->n; i++) e->batch[i]->cancelled = 1;
    abort_unwanted(e);
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        for (job *j = waiting[k], *next; j; j = next) {
            next = j->next;
            job_end(e, j, ENGINE_CANCELLED, NULL);
        }
    pthread_join(e->thread, NULL);
}

void engine_close(engine *e)
{
    engine_stop(e);
    model_free(&e->with_eos);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    free(e);
}
