/* engine_test.c: an engine without a model (examples/serve/engine.h), so that the server is tested
   alone. An answer repeats its prompt: what reaches the wrong client shows. Whole pages of a prompt
   with which the one before it began too are reused. Some tokens of a prompt are orders: */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "../../examples/serve/engine.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TEST_VOCAB 1024u
#define TEST_PAGE 16u     /* tokens */
#define TEST_BAD 1020u    /* the job fails when this is its next token */
#define TEST_BROKEN 1021u /* the device fails then */
#define TEST_HUGE 1022u   /* the job can never run; seven tokens could */
#define TEST_EOS 1023u

typedef struct test_job {
    struct test_job *next;
    engine_job job;
    uint32_t *prompt, done, cancelled, reused;
    uint64_t ticket;
} test_job;

struct engine {
    engine_desc desc;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    test_job *waiting[JOB_CLASSES], *running; /* in order */
    uint32_t *before, n_before;               /* the last prompt that was admitted */
    engine_load load;
    uint32_t stopping, joined;
    uint64_t tickets;
    long step_ns;
};

static void test_append(test_job **list, test_job *j)
{
    while (*list) list = &(*list)->next;
    *list = j, j->next = NULL;
}

static void test_event(engine *e, const test_job *j, engine_event_kind kind, uint32_t token,
                       const char *error)
{
    engine_event event;
    memset(&event, 0, sizeof event);
    event.kind = kind, event.user = j->job.user, event.token = token, event.error = error;
    event.at_eos = token == TEST_EOS, event.reused = j->reused;
    e->desc.on_event(e->desc.user, &event);
}

/* The job's next token. Whatever changes logits does so in a way that shows: a bias of 100 wins, a
   penalty adds the tokens so far, and no end comes too early. */
static uint32_t test_token(const test_job *j)
{
    const shaping *shape = &j->job.shape;
    uint32_t token = j->prompt[j->done % j->job.n_prompt];
    if (shape->presence > 0 || shape->frequency > 0 || shape->repetition > 1)
        token = (token + j->done) % TEST_BAD;
    for (uint32_t i = 0; i < shape->n_biased; i++)
        if (shape->biased[i].bias >= 100) token = shape->biased[i].token;
    if (j->done >= shape->min_tokens) return token;
    for (uint32_t i = 0; i < shape->n_ends; i++)
        if (token == shape->ends[i]) token = 0;
    return token == TEST_EOS && !j->job.ignore_eos ? 0 : token;
}

/* The chosen token has a probability of a half, and those that follow it less and less. */
static void test_told(engine *e, const test_job *j, uint32_t token)
{
    engine_likelihood told;
    engine_event event;
    memset(&event, 0, sizeof event);
    event.kind = ENGINE_TOKEN, event.user = j->job.user, event.token = token;
    event.reused = j->reused;
    if (j->job.likelihoods) event.likelihood = &told;
    told.own = -0.6931472f;
    for (uint32_t i = 0; i + 1 < j->job.likelihoods; i++)
        told.token[i] = (token + i) % TEST_VOCAB, told.of[i] = -0.6931472f * (float)(i + 1);
    e->desc.on_event(e->desc.user, &event);
}

/* Gives a running job its next token. 1: it has ended. */
static int test_step(engine *e, test_job *j, uint32_t cancelled)
{
    const uint32_t token = test_token(j);
    if (cancelled || e->load.failed || token == TEST_BAD || token == TEST_BROKEN) {
        if (token == TEST_BROKEN && !cancelled) {
            pthread_mutex_lock(&e->lock);
            e->load.failed = 1;
            snprintf(e->load.error, sizeof e->load.error, "the device is broken");
            pthread_mutex_unlock(&e->lock);
        }
        test_event(e, j, cancelled ? ENGINE_CANCELLED : ENGINE_FAILED, 0,
                   e->load.failed ? e->load.error : "a logit is not a number");
        return 1;
    }
    test_told(e, j, token);
    j->done++;
    if (j->done < j->job.max_tokens && (token != TEST_EOS || j->job.ignore_eos)) return 0;
    test_event(e, j, ENGINE_FINISHED, token, NULL);
    return 1;
}

/* Under the lock. The last token of a prompt is computed in any case. */
static void test_reuse(engine *e, test_job *j)
{
    const uint32_t n = j->job.n_prompt;
    uint32_t same = 0;
    while (same < n - 1 && same < e->n_before && j->prompt[same] == e->before[same]) same++;
    j->reused = same / TEST_PAGE * TEST_PAGE;
    free(e->before);
    e->before = (uint32_t *)malloc(n * sizeof *e->before);
    if (!e->before) abort();
    memcpy(e->before, j->prompt, n * sizeof *e->before);
    e->n_before = n;
}

/* Under the lock: fills the batch, reactive jobs first; when the engine ends, with all there are. */
static void test_admit(engine *e)
{
    const uint32_t all = e->stopping || e->load.failed;
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        while (e->waiting[k] &&
               (all ||
                e->load.running[JOB_REACTIVE] + e->load.running[JOB_PROACTIVE] < e->desc.batch)) {
            test_job *j = e->waiting[k];
            e->waiting[k] = j->next;
            e->load.waiting[k]--, e->load.running[k]++;
            test_reuse(e, j);
            test_append(&e->running, j);
        }
}

static void *test_thread(void *user)
{
    engine *e = (engine *)user;
    const struct timespec pause = {0, e->step_ns};
    pthread_mutex_lock(&e->lock);
    for (;;) {
        test_job **at = &e->running;
        test_admit(e);
        if (!e->running && e->stopping) break;
        if (!e->running) {
            pthread_cond_wait(&e->work, &e->lock);
            continue;
        }
        while (*at) {
            test_job *j = *at;
            const uint32_t cancelled = j->cancelled || e->stopping;
            int ended;
            pthread_mutex_unlock(&e->lock);
            ended = test_step(e, j, cancelled);
            pthread_mutex_lock(&e->lock);
            if (!ended) {
                at = &j->next;
                continue;
            }
            *at = j->next;
            e->load.running[j->job.priority]--;
            free(j->prompt);
            free(j);
        }
        pthread_mutex_unlock(&e->lock);
        if (e->step_ns) nanosleep(&pause, NULL);
        pthread_mutex_lock(&e->lock);
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

engine *engine_open(const engine_desc *desc, char *error, size_t bytes)
{
    const char *us = getenv("TEST_STEP_US");
    engine *e = (engine *)calloc(1, sizeof *e);
    if (!e) return NULL;
    e->desc = *desc;
    if (!e->desc.context) e->desc.context = 4096;
    e->step_ns = 1000 * (us ? atol(us) : 100);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->work, NULL);
    if (!pthread_create(&e->thread, NULL, test_thread, e)) return e;
    snprintf(error, bytes, "no thread can be made");
    free(e);
    return NULL;
}

engine_limits engine_limits_of(const engine *e)
{
    engine_limits limits;
    limits.vocab = TEST_VOCAB, limits.context = e->desc.context;
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

engine_status engine_submit(engine *e, const engine_job *job, uint64_t *ticket, uint32_t *fits)
{
    engine_status status = ENGINE_OK;
    test_job *j;
    *fits = 7;
    if (job->prompt[0] == TEST_HUGE) return ENGINE_TOO_LONG;
    j = (test_job *)calloc(1, sizeof *j);
    if (j) j->prompt = (uint32_t *)malloc(job->n_prompt * sizeof *j->prompt);
    if (!j || !j->prompt) abort();
    memcpy(j->prompt, job->prompt, job->n_prompt * sizeof *j->prompt);
    j->job = *job;
    pthread_mutex_lock(&e->lock);
    if (e->stopping || e->load.failed)
        status = ENGINE_DOWN;
    else if (e->load.waiting[job->priority] >= e->desc.queue)
        status = ENGINE_BUSY;
    else {
        *ticket = j->ticket = ++e->tickets;
        e->load.waiting[job->priority]++;
        test_append(&e->waiting[job->priority], j);
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
    pthread_mutex_lock(&e->lock);
    for (test_job *j = e->running; j; j = j->next)
        if (j->ticket == ticket) j->cancelled = 1;
    for (uint32_t k = 0; k < JOB_CLASSES; k++)
        for (test_job *j = e->waiting[k]; j; j = j->next)
            if (j->ticket == ticket) j->cancelled = 1;
    pthread_mutex_unlock(&e->lock);
}

void engine_stop(engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->stopping = 1;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    if (!e->joined) pthread_join(e->thread, NULL);
    e->joined = 1;
}

void engine_close(engine *e)
{
    engine_stop(e);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->work);
    free(e->before);
    free(e);
}
