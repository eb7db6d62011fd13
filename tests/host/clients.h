/* The clients of a server in a launch that stays: threads submit jobs of both classes, cancel some, and read slowly; the
   tokens that each job yields alone. A layer mixes words; what it mixes depends on all earlier positions. For
   serving_launch.c and serving_pools.c. */
#ifndef FLEET_TEST_CLIENTS_H
#define FLEET_TEST_CLIENTS_H

#include "../settings.h"
#include "examples/parts/fleet_server.h"

#include <sys/select.h>

#define LAYERS 4u
#define PAGES 24u
#define PAGE_TOKENS 4u
#define DECODE_ROWS 4u
#define CHUNK_ROWS 5u
#define REQUESTS 6u
#define GENERATIONS 64u
#define LONGEST 32u
#define JOBS 24u

static inline uint32_t mix(uint32_t x, uint32_t y)
{
    x = (x ^ y) * 0x9e3779b1u;
    return x ^ x >> 15;
}

typedef struct job {
    uint64_t id;
    fleet_class priority;
    uint32_t prompt[LONGEST], prompt_tokens, max_tokens;
    uint32_t tokens[LONGEST], n;
    uint32_t ended; /* 1 + fleet_event_kind */
} job;

typedef struct clients {
    fleet_server server;
    job jobs[JOBS];
    pthread_mutex_t lock;
    fleet_server_event held[REQUESTS * 8]; /* not released yet */
    uint32_t n_held;
    uint32_t late; /* submissions that came after the stop */
} clients;

static void pause_us(int us)
{
    struct timeval pause;
    pause.tv_sec = 0, pause.tv_usec = us;
    select(0, NULL, NULL, NULL, &pause);
}

static void submit_class(clients *o, fleet_class priority)
{
    for (uint32_t i = 0; i < JOBS; i++) {
        job *j = &o->jobs[i];
        fleet_request r;
        fleet_ticket ticket;
        fleet_status status = FLEET_ERROR_BUSY;
        if (j->priority != priority) continue;
        r.priority = priority, r.prompt = j->prompt;
        r.prompt_tokens = j->prompt_tokens, r.max_tokens = j->max_tokens;
        while (status == FLEET_ERROR_BUSY) {
            pthread_mutex_lock(&o->lock);
            status = fleet_server_submit(&o->server, &r, &ticket);
            j->id = ticket.id;
            if (status == FLEET_ERROR_ABORTED) j->ended = 1 + FLEET_EVENT_CANCELLED, o->late++;
            pthread_mutex_unlock(&o->lock);
            if (status == FLEET_ERROR_BUSY) pause_us(100);
        }
        if (i % 7 == 3) fleet_server_cancel(&o->server, ticket.id);
        if (priority == FLEET_REACTIVE) pause_us(50);
    }
}
static void *submit_proactive(void *o)
{
    submit_class((clients *)o, FLEET_PROACTIVE);
    return NULL;
}
static void *submit_reactive(void *o)
{
    submit_class((clients *)o, FLEET_REACTIVE);
    return NULL;
}

static void release_all(clients *o)
{
    for (uint32_t i = 0; i < o->n_held; i++) fleet_server_release(&o->server, &o->held[i]);
    o->n_held = 0;
}
/* An event; returns how many requests it ends. Some clients are slow. */
static uint32_t take_event(test_run *t, clients *o)
{
    fleet_server_event e;
    uint32_t ends = 0, there;
    pthread_mutex_lock(&o->lock);
    if ((there = fleet_server_poll(&o->server, &e))) {
        job *j = o->jobs;
        while (j < o->jobs + JOBS && (j->id != e.id || !e.id)) j++;
        if (j == o->jobs + JOBS || j->ended || (e.kind == FLEET_EVENT_TOKEN && e.index != j->n)) {
            test_fail(t, __FILE__, __LINE__, "event %u of request %llx", (uint32_t)e.kind,
                      (unsigned long long)e.id);
            ends = JOBS;
        } else if (e.kind == FLEET_EVENT_TOKEN) {
            j->tokens[j->n++] = e.token;
            if (e.index % 3 == 1 && o->n_held < sizeof o->held / sizeof *o->held)
                o->held[o->n_held++] = e;
            else
                fleet_server_release(&o->server, &e);
        } else {
            j->ended = 1 + (uint32_t)e.kind, ends = 1;
        }
    } else {
        release_all(o);
    }
    pthread_mutex_unlock(&o->lock);
    if (!there) pause_us(20);
    return ends;
}

static uint32_t is_right(const job *j)
{
    static uint32_t cells[LAYERS][LONGEST];
    uint32_t n = 0;
    for (uint32_t at = 0; n < j->n; at++) {
        uint32_t x = mix((at < j->prompt_tokens ? j->prompt[at] : j->tokens[n - 1]) + 1, at);
        cells[0][at] = x;
        for (uint32_t l = 1; l < LAYERS; l++) {
            for (uint32_t k = 0; k < at; k++) x = mix(x, cells[l - 1][k]);
            cells[l][at] = x;
        }
        if (at + 1 >= j->prompt_tokens && j->tokens[n++] != x % 1000) return 0;
    }
    return j->ended == 1 + FLEET_EVENT_CANCELLED ||
           (j->ended == 1 + FLEET_EVENT_FINISHED && n == j->max_tokens);
}

/* Jobs of random lengths, some of which begin alike. */
static void clients_init(clients *o, uint64_t seed)
{
    pthread_mutex_init(&o->lock, NULL);
    for (uint32_t i = 0; i < JOBS; i++) {
        job *j = &o->jobs[i];
        j->priority = i % 3 ? FLEET_PROACTIVE : FLEET_REACTIVE;
        j->prompt_tokens = 1 + mix(i, (uint32_t)seed) % (i % 3 ? 18 : 7);
        j->max_tokens = 1 + mix(i + 50, (uint32_t)seed) % 8;
        for (uint32_t k = 0; k < j->prompt_tokens; k++)
            j->prompt[k] = mix(i % 5 ? i + 1 : 77, k) % 1000;
    }
}

/* How the launch ends. */
enum { DRAIN, STOP, ABORT };

/* Serves all jobs, until they have ended or, with another end, some of them. launch: runs the server, with `user`. */
static int serve_jobs(test_run *t, clients *o, uint32_t end, void *(*launch)(void *),
                      fleet_state *state, void *user)
{
    pthread_t threads[3];
    uint32_t ended = 0;
    NEED(!pthread_create(&threads[0], NULL, launch, user));
    NEED(!pthread_create(&threads[1], NULL, submit_proactive, o));
    NEED(!pthread_create(&threads[2], NULL, submit_reactive, o));
    while (ended < (end == DRAIN ? JOBS : JOBS / 3)) ended += take_event(t, o);
    if (end == STOP) fleet_server_stop(&o->server, 0);
    if (end == ABORT) fleet_state_abort(state);
    if (end == ABORT) pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    pthread_join(threads[2], NULL);
    if (end == DRAIN) fleet_server_stop(&o->server, 1);
    if (end != ABORT) pthread_join(threads[0], NULL);
    while (ended + o->late < JOBS) ended += take_event(t, o);
    return !t->failed_here;
}

#endif
