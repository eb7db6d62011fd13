/* engine_qwen3.c: an engine over examples/qwen3: the decoder in one launch that stays (serving.h), whose scheduler admits jobs
   to its batch, suspends proactive ones for reactive ones between layers, and lets jobs leave it one by one.

   One thread waits for the launch. Another reads the events that the device sends, and reports them. Jobs for which the
   device's request table has no entry wait in a queue of their class on the host. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#define FLEET_IMPLEMENTATION
#include "../qwen3/serving.h"
#include "engine.h"

#include <pthread.h>

#define DEFAULT_CONTEXT 4096u
#define LEAST_MIXED 3u

typedef struct job {
    struct job *next;
    engine_job j;
    uint32_t *prompt; /* until it is in the table */
    uint64_t ticket;
    uint64_t id;        /* in the table; 0: it waits on the host */
    uint32_t cancelled; /* under the lock */
    uint32_t begun;     /* 1: it has a token */
    uint32_t last;      /* the last one */
    uint32_t reused;    /* tokens of its prompt */
    uint32_t asks;      /* of its words */
} job;

struct engine {
    engine_desc desc;
    model m;
    serving s;
    pthread_t launch, events;
    uint32_t threads; /* that were made */
    uint32_t stopped; /* 1: engine_stop has returned */
    pthread_mutex_t lock;
    pthread_cond_t work;
    /* under the lock */
    job *waiting[JOB_CLASSES]; /* on the host, in order */
    job *active;               /* in the request table */
    uint32_t stopping, over;   /* over: the launch has ended */
    engine_load load;
    uint64_t tickets;
};

/* ---- jobs ---- */

static void job_event(const engine *e, const job *j, engine_event_kind kind, const char *error,
                      const engine_likelihood *likelihood)
{
    engine_event event;
    memset(&event, 0, sizeof event);
    event.kind = kind, event.user = j->j.user, event.token = j->last, event.error = error;
    event.reused = j->reused, event.likelihood = likelihood;
    for (uint32_t i = 0; i < e->m.config.eos_count && !j->j.ignore_eos && j->begun; i++)
        event.at_eos |= j->last == e->m.config.eos[i];
    e->desc.on_event(e->desc.user, &event);
}

static void job_end(const engine *e, job *j, engine_event_kind kind, const char *error)
{
    job_event(e, j, kind, error, NULL);
    free(j->prompt);
    free(j);
}

/* Ends all jobs of a list. */
static void end_all(const engine *e, job *list, engine_event_kind kind, const char *error)
{
    for (job *next; list; list = next) {
        next = list->next;
        job_end(e, list, kind, error);
    }
}

/* Under the lock. */
static void append_job(job **list, job *j)
{
    while (*list) list = &(*list)->next;
    *list = j, j->next = NULL;
}

/* Under the lock: takes the jobs that wait on the host. */
static job *take_waiting(engine *e)
{
    job *all = NULL;
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        while (e->waiting[k]) {
            job *j = e->waiting[k];
            e->waiting[k] = j->next;
            e->load.waiting[k]--;
            append_job(&all, j);
        }
    return all;
}

/* A request draws the same tokens whatever it is decoded with: its seed alone counts. */
static request_words words_of(const engine_job *from)
{
    request_words w;
    memset(&w, 0, sizeof w);
    w.sampling.temperature = (float)from->sample.temperature;
    w.sampling.top_k = from->sample.top_k;
    w.sampling.top_p = (float)from->sample.top_p, w.sampling.min_p = (float)from->sample.min_p;
    w.sampling.seed = from->sample.seed;
    w.ignore_eos = from->ignore_eos;
    w.repetition = from->shape.repetition > 0 ? (float)from->shape.repetition : 1;
    w.presence = (float)from->shape.presence, w.frequency = (float)from->shape.frequency;
    w.min_tokens = from->shape.min_tokens, w.reports = from->likelihoods;
    return w;
}

/* Enters what a job asks of its logits. -1: not now. */
static int enter_asks(engine *e, const engine_job *from, request_words *words)
{
    const shaping *shape = &from->shape;
    const qwen3_config *c = &e->m.config;
    request_asks *to;
    if (!has_penalties(words) && !words->min_tokens && !words->reports && !shape->n_biased)
        return 0;
    to = serving_ask(&e->s, words);
    if (!to) return -1;
    for (uint32_t i = 0; i < shape->n_biased; i++) {
        token_value *bias = &to->biased[to->n_biased++];
        bias->token = shape->biased[i].token, bias->value = word_of_float(shape->biased[i].bias);
    }
    for (uint32_t i = 0; i < c->eos_count && !from->ignore_eos; i++)
        to->delayed[to->n_delayed++] = c->eos[i];
    for (uint32_t i = 0; i < shape->n_ends; i++) to->delayed[to->n_delayed++] = shape->ends[i];
    return 0;
}
typedef char asks_have_room[ENGINE_MAX_BIASED <= MAX_BIASED &&
                                    ENGINE_MAX_ENDS + QWEN3_MAX_EOS <= MAX_DELAYED &&
                                    ENGINE_MAX_TOP == MAX_TOP
                                ? 1
                                : -1];

/* Under the lock: moves jobs to the request table, as long as it has entries for their class. */
static void push_jobs(engine *e)
{
    for (uint32_t k = 0; k < JOB_CLASSES && !e->over; k++)
        while (e->waiting[k]) {
            job *j = e->waiting[k];
            request_words words = words_of(&j->j);
            fleet_request r;
            fleet_ticket ticket;
            r.priority = k == JOB_REACTIVE ? FLEET_REACTIVE : FLEET_PROACTIVE;
            r.prompt = j->prompt, r.prompt_tokens = j->j.n_prompt;
            r.max_tokens = j->j.max_tokens;
            r.words = (const uint32_t *)(const void *)&words;
            if (enter_asks(e, &j->j, &words)) break;
            if (fleet_server_submit(&e->s.server, &r, &ticket)) {
                serving_ask_no_more(&e->s, words.asks);
                break;
            }
            j->asks = words.asks;
            e->waiting[k] = j->next;
            j->id = ticket.id;
            free(j->prompt);
            j->prompt = NULL;
            append_job(&e->active, j);
        }
}

/* ---- events ---- */

/* What the device has told of a job's token. */
static const engine_likelihood *likelihood_of(engine *e, const job *j, uint32_t index,
                                              engine_likelihood *to)
{
    const token_report *from;
    if (!j->j.likelihoods) return NULL;
    from = &e->s.asks[j->asks - 1].reports[index % REPORTED];
    to->own = float_of_word(from->own);
    for (uint32_t i = 0; i + 1 < j->j.likelihoods; i++)
        to->token[i] = from->top[i].token, to->of[i] = float_of_word(from->top[i].value);
    return to;
}

static void take_token(engine *e, const fleet_server_event *event)
{
    job *j;
    uint32_t cancelled;
    engine_likelihood told;
    const engine_likelihood *likelihood;
    pthread_mutex_lock(&e->lock);
    for (j = e->active; j->id != event->id;) j = j->next;
    if (!j->begun) e->load.waiting[j->j.priority]--, e->load.running[j->j.priority]++;
    j->begun = 1, j->last = event->token, j->reused = event->reused;
    cancelled = j->cancelled;
    likelihood = likelihood_of(e, j, event->index, &told);
    pthread_mutex_unlock(&e->lock);
    /* Tokens wait on the host as long as they must, so that no client makes the device wait. */
    fleet_server_release(&e->s.server, event);
    if (!cancelled) job_event(e, j, ENGINE_TOKEN, NULL, likelihood);
}

static void take_end(engine *e, const fleet_server_event *event)
{
    job **at, *j;
    engine_event_kind kind = ENGINE_FINISHED;
    const char *error = NULL;
    pthread_mutex_lock(&e->lock);
    for (at = &e->active; (*at)->id != event->id;) at = &(*at)->next;
    j = *at;
    *at = j->next;
    serving_ask_no_more(&e->s, j->asks);
    (j->begun ? e->load.running : e->load.waiting)[j->j.priority]--;
    if (event->kind == FLEET_EVENT_FAILED) {
        kind = ENGINE_FAILED;
        error = e->over ? e->load.error : "a logit is infinite or not a number";
    }
    if (event->kind == FLEET_EVENT_CANCELLED || j->cancelled || e->stopping)
        kind = ENGINE_CANCELLED;
    push_jobs(e); /* the table has an entry more */
    pthread_mutex_unlock(&e->lock);
    job_end(e, j, kind, error);
}

/* No event is there. Returns 0 when none will come. */
static uint32_t wait_for_events(engine *e)
{
    const struct timespec pause = {0, 20000};
    job *failed = NULL;
    uint32_t goes_on = 1, idle = 0;
    pthread_mutex_lock(&e->lock);
    while (!e->active && !e->over) pthread_cond_wait(&e->work, &e->lock), idle = 1;
    if (e->over && !e->active) failed = take_waiting(e), goes_on = 0;
    pthread_mutex_unlock(&e->lock);
    end_all(e, failed, ENGINE_FAILED, e->load.error);
    if (goes_on && !idle) nanosleep(&pause, NULL);
    return goes_on;
}

static void *report_events(void *user)
{
    engine *e = (engine *)user;
    fleet_server_event event;
    do
        while (fleet_server_poll(&e->s.server, &event))
            if (event.kind == FLEET_EVENT_TOKEN)
                take_token(e, &event);
            else
                take_end(e, &event);
    while (wait_for_events(e));
    return NULL;
}

/* When the device fails, every job ends, and none is taken any more. */
static void *run_launch(void *user)
{
    engine *e = (engine *)user;
    const int bad = serving_run(&e->s);
    pthread_mutex_lock(&e->lock);
    e->over = 1;
    if (bad && !e->stopping) {
        e->load.failed = 1;
        snprintf(e->load.error, sizeof e->load.error, "%.250s", e->s.error);
        e->load.error[strcspn(e->load.error, "\n")] = 0;
    }
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* ---- the interface ---- */

static int open_model(engine *e, char *error)
{
    qwen3_checkpoint checkpoint;
    serving_desc desc;
    int bad;
    memset(&checkpoint, 0, sizeof checkpoint);
    memset(&desc, 0, sizeof desc);
    if (qwen3_open(&checkpoint, e->desc.dir)) {
        memcpy(error, checkpoint.error, ERROR_BYTES);
        return -1;
    }
    fputs(checkpoint.config.warnings, stderr);
    checkpoint.config.dequantized = (int)e->desc.dequantize;
    if (!e->desc.context)
        e->desc.context = checkpoint.config.positions < DEFAULT_CONTEXT
                              ? checkpoint.config.positions
                              : DEFAULT_CONTEXT;
    desc.context = e->desc.context, desc.decode_rows = e->desc.batch, desc.draws = 1;
    desc.chunk_rows = e->desc.chunk, desc.beside_rows = e->desc.beside;
    desc.workers = e->desc.workers;
    desc.mixed_rows = e->desc.batch / 2 > LEAST_MIXED ? e->desc.batch / 2 : LEAST_MIXED;
    desc.suspend_decode = 1;
    bad = e->desc.dequantize && !checkpoint.config.quantization.codes;
    if (bad) snprintf(error, ERROR_BYTES, "--dequantize: config.json has no quantization_config");
    if (!bad && e->desc.context > checkpoint.config.positions) {
        bad = 1;
        snprintf(error, ERROR_BYTES, "--context %u is longer than max_position_embeddings, %u",
                 e->desc.context, checkpoint.config.positions);
    }
    bad =
        bad || serving_memory_refused(&checkpoint.config, &checkpoint, desc, memory_left(), error);
    if (!bad &&
        model_load(&e->m, &checkpoint.config, &checkpoint, FLEET_SCHEDULE_STATIC, MAX_ROWS, NULL)) {
        bad = 1;
        memcpy(error, e->m.error, ERROR_BYTES);
    }
    if (!bad && serving_open(&e->s, &e->m, &desc)) {
        bad = 1;
        memcpy(error, e->s.error, ERROR_BYTES);
    }
    fleet_stream_wait(NULL);
    qwen3_close(&checkpoint);
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
    if (!open_model(e, why)) {
        if (!pthread_create(&e->launch, NULL, run_launch, e)) e->threads = 1;
        if (e->threads && !pthread_create(&e->events, NULL, report_events, e)) e->threads = 2;
        if (e->threads == 2) return e;
        snprintf(why, sizeof why, "no thread can be made");
    }
    snprintf(error, bytes, "%s", why);
    engine_close(e);
    return NULL;
}

engine_limits engine_limits_of(const engine *e)
{
    engine_limits limits;
    memset(&limits, 0, sizeof limits);
    limits.vocab = e->m.config.vocab, limits.context = e->desc.context;
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
    (void)fits; /* what the context holds fits: there are pages for it */
    if (j) j->prompt = (uint32_t *)malloc(bytes);
    if (!j || !j->prompt) {
        free(j);
        return ENGINE_BUSY;
    }
    memcpy(j->prompt, given->prompt, bytes);
    j->j = *given;
    pthread_mutex_lock(&e->lock);
    if (e->stopping || e->over)
        status = ENGINE_DOWN;
    else if (e->load.waiting[given->priority] >= e->desc.queue)
        status = ENGINE_BUSY;
    else {
        *ticket = j->ticket = ++e->tickets;
        e->load.waiting[given->priority]++;
        append_job(&e->waiting[given->priority], j);
        push_jobs(e);
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
    for (job *j = e->active; j && !found; j = j->next)
        if (j->ticket == ticket) {
            j->cancelled = 1;
            fleet_server_cancel(&e->s.server, j->id);
        }
    pthread_mutex_unlock(&e->lock);
    if (found) job_end(e, found, ENGINE_CANCELLED, NULL);
}

void engine_stop(engine *e)
{
    job *waiting;
    if (e->stopped) return;
    e->stopped = 1;
    pthread_mutex_lock(&e->lock);
    e->stopping = 1;
    waiting = take_waiting(e);
    if (e->threads) fleet_server_stop(&e->s.server, 0);
    pthread_mutex_unlock(&e->lock);
    end_all(e, waiting, ENGINE_CANCELLED, NULL);
    if (e->threads > 0) pthread_join(e->launch, NULL);
    if (e->threads > 1) pthread_join(e->events, NULL);
}

void engine_close(engine *e)
{
    engine_stop(e);
    serving_free(&e->s);
    model_free(&e->m);
    pthread_cond_destroy(&e->work);
    pthread_mutex_destroy(&e->lock);
    free(e);
}
