/* A server without a GPU: one wave calls the boundaries with a simulated clock and runs the rows of each batch on a
   model that shows every mistake. The value of a row depends on its token, on each layer, and, through the page table,
   on what all earlier positions left in the same layer; activations lie in a buffer for decode rows and one for the
   chunk of each class. So a row that is lost, doubled, resumed at the wrong layer, or that reads another request's
   pages, changes the tokens of its request, which are compared with those of the request alone. */
#ifndef FLEET_TEST_SERVING_H
#define FLEET_TEST_SERVING_H

#include "implementation.h"
#include "examples/parts/fleet_server.h"
#include "test.h"

#include <stdlib.h>

#define SIM_REQUESTS 32u
#define SIM_LAYERS 5u
#define SIM_PAGES 64u
#define SIM_PAGE_TOKENS 4u
#define SIM_TOKENS 64u /* of a sequence */
#define SIM_ROWS 8u
#define SIM_CHUNK 6u
#define SIM_JOBS 512u
#define SIM_LAYER_TICKS 10u

/* A request as the host knows it. */
typedef struct job {
    uint64_t id;
    fleet_class priority;
    uint32_t prompt[SIM_TOKENS], prompt_tokens, max_tokens;
    uint32_t tokens[SIM_TOKENS], n; /* received */
    fleet_event_kind end;
    fleet_status status;
    uint32_t reused;                 /* tokens of the prompt, by its tokens' events */
    uint32_t ended, held, cancelled; /* held: the host does not release its events */
    fleet_server_event unreleased[SIM_TOKENS];
    uint32_t n_unreleased;
    /* when its first row ran: tick, and layers of proactive prompts since it was submitted */
    uint64_t submitted, first_row;
    uint32_t started, waited_layers;
    uint8_t runs[SIM_TOKENS][SIM_LAYERS]; /* times that a layer of a position was computed */
} job;

typedef struct sim {
    test_run *t;
    fleet_server server;
    fleet_table *table;
    uint64_t now;
    uint32_t step[2];
    uint32_t state[2]; /* FLEET_SERVING_... of each pool's last boundary */
    job *jobs;
    uint32_t n_jobs;
    uint32_t decode_x[2][SIM_ROWS], chunk_x[2][2][SIM_CHUNK]; /* [pool]; [class] */
    uint32_t kv[SIM_LAYERS][SIM_PAGES][SIM_PAGE_TOKENS];
    uint32_t layer[2]; /* in which each pool is */
    /* Called before each layer boundary, to submit something there. */
    void (*hook)(struct sim *, uint32_t pool, uint32_t layer);
    void *user;
} sim;

static uint32_t mix(uint32_t x, uint32_t y)
{
    x = (x ^ y) * 0x9e3779b1u;
    return x ^ x >> 15;
}
static uint32_t sim_begin(uint32_t token, uint32_t position)
{
    return mix(token + 1, position * 77 + 5);
}
/* In the last layer this is the next token, and whether it is the last one. */
static uint32_t sim_token(uint32_t x)
{
    return x % 1000;
}
static uint32_t sim_is_last(uint32_t x)
{
    return x % 19 == 0;
}

/* The tokens of a request that runs alone; returns their number. */
static uint32_t alone(const job *j, uint32_t *tokens)
{
    static uint32_t kv[SIM_LAYERS][SIM_TOKENS];
    uint32_t n = 0, token = j->prompt[0];
    for (uint32_t at = 0; n < j->max_tokens; at++) {
        uint32_t x;
        token = at < j->prompt_tokens ? j->prompt[at] : tokens[n - 1];
        x = sim_begin(token, at);
        for (uint32_t layer = 0; layer < SIM_LAYERS; layer++) {
            kv[layer][at] = x;
            for (uint32_t i = 0; i <= at; i++) x = mix(x, kv[layer][i] + layer);
        }
        if (at + 1 < j->prompt_tokens) continue;
        tokens[n++] = sim_token(x);
        if (sim_is_last(x)) break;
    }
    return n;
}

static job *sim_job(sim *s, uint64_t id)
{
    for (uint32_t i = s->n_jobs; i-- > 0;)
        if (s->jobs[i].id == id) return &s->jobs[i];
    return NULL;
}
static job *sim_job_of_slot(sim *s, uint32_t slot, uint32_t generation)
{
    return sim_job(s, (uint64_t)generation << 32 | (slot + 1));
}

/* The prompt's tokens follow from the job's number, or from `seed` if it is not 0. */
static fleet_status sim_try(sim *s, fleet_class priority, uint32_t prompt_tokens,
                            uint32_t max_tokens, uint32_t seed, fleet_ticket *ticket)
{
    job *j = s->jobs + s->n_jobs;
    fleet_request r;
    fleet_status status;
    if (s->n_jobs == SIM_JOBS) abort(); /* a test has more than there is room for */
    memset(j, 0, sizeof *j);
    j->priority = priority, j->prompt_tokens = prompt_tokens, j->max_tokens = max_tokens;
    for (uint32_t i = 0; i < prompt_tokens && i < SIM_TOKENS; i++)
        j->prompt[i] = mix(seed ? seed : s->n_jobs + 100, i) % 1000;
    r.priority = priority, r.prompt = j->prompt;
    r.prompt_tokens = prompt_tokens, r.max_tokens = max_tokens;
    status = fleet_server_submit(&s->server, &r, ticket);
    if (!status) {
        j->id = ticket->id;
        j->submitted = s->now;
        s->n_jobs++;
    }
    return status;
}
static job *sim_submit(sim *s, fleet_class priority, uint32_t prompt_tokens, uint32_t max_tokens)
{
    fleet_ticket ticket;
    fleet_status status = sim_try(s, priority, prompt_tokens, max_tokens, 0, &ticket);
    if (status)
        test_fail(s->t, __FILE__, __LINE__, "submit: %s, %s, %u", fleet_status_name(status),
                  ticket.field ? ticket.field : "", ticket.fits);
    return s->jobs + s->n_jobs - (status ? 0 : 1);
}

static void sim_cancel(sim *s, job *j)
{
    j->cancelled = 1;
    fleet_server_cancel(&s->server, j->id);
}

static fleet_slot *slot_of(sim *s, const job *j)
{
    return fleet_table_slot(s->table, (uint32_t)j->id - 1);
}

/* Reads all events. */
static void sim_poll(sim *s)
{
    fleet_server_event e;
    while (fleet_server_poll(&s->server, &e)) {
        job *j = sim_job(s, e.id);
        if (!j || j->ended) {
            test_fail(s->t, __FILE__, __LINE__, "an event of a request that has ended");
            return;
        }
        if (e.kind != FLEET_EVENT_TOKEN) {
            j->ended = 1, j->end = e.kind, j->status = e.status;
            if (e.index != j->n)
                test_fail(s->t, __FILE__, __LINE__, "%u tokens came, not %u", j->n, e.index);
            continue;
        }
        if (e.index != j->n)
            test_fail(s->t, __FILE__, __LINE__, "token %u came as number %u", e.index, j->n);
        if (j->n && e.reused != j->reused)
            test_fail(s->t, __FILE__, __LINE__, "token %u came with %u reused tokens, not %u", j->n,
                      e.reused, j->reused);
        j->reused = e.reused;
        j->tokens[j->n++] = e.token;
        if (j->held)
            j->unreleased[j->n_unreleased++] = e;
        else
            fleet_server_release(&s->server, &e);
    }
}
static void sim_release(sim *s, job *j)
{
    for (uint32_t i = 0; i < j->n_unreleased; i++)
        fleet_server_release(&s->server, &j->unreleased[i]);
    j->n_unreleased = j->held = 0;
}

static uint32_t sim_kv(const sim *s, const uint32_t *pages, uint32_t layer, uint32_t position)
{
    return s->kv[layer][pages[position / SIM_PAGE_TOKENS]][position % SIM_PAGE_TOKENS];
}

/* One row in one layer. */
static void sim_row(sim *s, uint32_t pool, const fleet_batch *b, uint32_t i, uint32_t layer)
{
    const fleet_row row = fleet_batch_row(b, i, layer);
    const uint32_t *pages = fleet_row_pages(s->table, row);
    uint32_t *x = i < b->decode_rows ? &s->decode_x[pool][i]
                                     : &s->chunk_x[pool][b->chunk_class][i - b->decode_rows];
    job *j;
    if (row.kind == FLEET_ROW_NONE) return;
    j = sim_job_of_slot(s, row.slot, row.generation);
    if (!j || j->ended) {
        test_fail(s->t, __FILE__, __LINE__, "a row of a request that has ended");
        return;
    }
    if (!(fleet_table_slot(s->table, row.slot)->flags & FLEET_SLOT_RUNNING))
        test_fail(s->t, __FILE__, __LINE__, "a row of a request that does not run");
    if (!j->started) j->started = 1, j->first_row = s->now;
    if (j->runs[row.position][layer]++)
        test_fail(s->t, __FILE__, __LINE__, "layer %u of position %u is computed twice", layer,
                  row.position);
    if (layer == 0) *x = sim_begin(fleet_row_token(s->table, row), row.position);
    s->kv[layer][pages[row.position / SIM_PAGE_TOKENS]][row.position % SIM_PAGE_TOKENS] = *x;
    for (uint32_t k = 0; k <= row.position; k++) *x = mix(*x, sim_kv(s, pages, layer, k) + layer);
    if (layer + 1 == SIM_LAYERS && row.kind != FLEET_ROW_CHUNK)
        fleet_row_result(s->table, pool, s->step[pool], i,
                         sim_is_last(*x) ? FLEET_RESULT_END : FLEET_RESULT_MORE, sim_token(*x));
}

/* A layer of a chunk of a proactive request that is not aged delays the reactive ones that wait, and have their pages. */
static void sim_count_waiting(sim *s, const fleet_batch *b, uint32_t layer)
{
    if (!b->chunk_rows || b->chunk_class != FLEET_PROACTIVE || layer < b->chunk_begin ||
        layer >= b->chunk_end ||
        (fleet_table_slot(s->table, b->chunk.slot)->flags & FLEET_SLOT_AGED))
        return;
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        job *j = s->jobs + i;
        const fleet_slot *slot;
        if (j->priority != FLEET_REACTIVE || j->started || j->ended || j->cancelled) continue;
        slot = slot_of(s, j);
        if (slot->generation == (uint32_t)(j->id >> 32) && slot->phase == FLEET_PHASE_QUEUED)
            j->waited_layers = 0;
        else
            j->waited_layers++;
    }
}

/* A boundary of the pool, when its iteration has ended. */
/* What the table counts, so that a policy need not look at all slots, is what the slots say. */
static void sim_count_phases(const sim *s)
{
    uint32_t n[FLEET_PHASE_ENDED + 1][2] = {{0}}, joined = 0;
    for (uint32_t i = 0; i < s->server.desc.requests; i++) {
        const fleet_slot *slot = fleet_table_slot(s->table, i);
        n[slot->phase][slot->priority]++;
        joined += (slot->flags & FLEET_SLOT_JOINED) != 0;
        if (slot->phase != FLEET_PHASE_FREE && i >= s->table->slots_used)
            test_fail(s->t, __FILE__, __LINE__, "slot %u is in use, beyond %u", i,
                      s->table->slots_used);
    }
    for (uint32_t phase = FLEET_PHASE_QUEUED; phase < FLEET_PHASE_ENDED; phase++)
        for (uint32_t k = 0; k < 2; k++)
            if (n[phase][k] != s->table->in_phase[phase][k])
                test_fail(s->t, __FILE__, __LINE__, "phase %u, class %u: %u requests, counted %u",
                          phase, k, n[phase][k], s->table->in_phase[phase][k]);
    if (joined != s->table->joined)
        test_fail(s->t, __FILE__, __LINE__, "%u joined, counted %u", joined, s->table->joined);
}
static uint32_t sim_boundary(sim *s, uint32_t pool)
{
    s->step[pool]++;
    s->layer[pool] = 0;
    s->state[pool] = fleet_server_boundary(s->table, pool, s->step[pool], s->now);
    if (!s->t->failed_here) sim_count_phases(s);
    return s->state[pool];
}
/* The next layer of the pool's batch; 0: it was the last one. */
static uint32_t sim_layer(sim *s, uint32_t pool)
{
    const fleet_batch *b = fleet_table_batch(s->table, pool, s->step[pool]);
    const uint32_t layer = s->layer[pool];
    if (s->hook) s->hook(s, pool, layer);
    if (layer) fleet_server_layer(s->table, pool, s->step[pool], layer, s->now);
    sim_count_waiting(s, b, layer);
    /* Rows of the same layer read what the others have left: those of a chunk in order. */
    for (uint32_t i = 0; i < b->decode_rows + b->chunk_rows; i++) sim_row(s, pool, b, i, layer);
    s->now += SIM_LAYER_TICKS;
    return ++s->layer[pool] < SIM_LAYERS;
}
/* All layers that are left of the pool's batch. */
static void sim_layers(sim *s, uint32_t pool)
{
    while (sim_layer(s, pool)) {
    }
}
/* A boundary, and a whole iteration if there is one. */
static uint32_t sim_step(sim *s)
{
    const uint32_t next = sim_boundary(s, 0);
    if (next == FLEET_SERVING_BATCH) sim_layers(s, 0);
    if (next == FLEET_SERVING_IDLE) s->now += SIM_LAYER_TICKS;
    sim_poll(s);
    return next;
}
static const fleet_batch *sim_batch(sim *s, uint32_t pool)
{
    return fleet_table_batch(s->table, pool, s->step[pool]);
}
/* Whether the slot has a row in the pool's batch. */
static uint32_t sim_decodes(sim *s, uint32_t pool, const job *j)
{
    const fleet_batch *b = sim_batch(s, pool);
    for (uint32_t i = 0; i < b->decode_rows; i++)
        if (fleet_batch_row(b, i, b->decode_begin).slot == (uint32_t)j->id - 1) return 1;
    return 0;
}
static uint32_t sim_prefills(sim *s, uint32_t pool, const job *j)
{
    const fleet_batch *b = sim_batch(s, pool);
    return b->chunk_rows && b->chunk.slot == (uint32_t)j->id - 1;
}

/* Until nothing runs and nothing waits. */
static void sim_finish(sim *s)
{
    for (uint32_t i = 0; i < 100000 && sim_step(s) == FLEET_SERVING_BATCH; i++) {
    }
    sim_poll(s);
}

/* Each request has ended once, with the tokens that it yields alone; all pages are back. */
static void sim_check(sim *s)
{
    test_run *t = s->t;
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        job *j = s->jobs + i;
        uint32_t want[SIM_TOKENS], n = alone(j, want);
        if (!j->ended) test_fail(t, __FILE__, __LINE__, "request %u has not ended", i);
        if (j->end == FLEET_EVENT_CANCELLED && !j->cancelled)
            test_fail(t, __FILE__, __LINE__, "request %u was not to be cancelled", i);
        if (j->end == FLEET_EVENT_FINISHED && j->n != n)
            test_fail(t, __FILE__, __LINE__, "request %u has %u tokens, not %u", i, j->n, n);
        for (uint32_t k = 0; k < j->n && k < n; k++)
            if (j->tokens[k] != want[k])
                test_fail(t, __FILE__, __LINE__, "request %u, token %u: %u, not %u", i, k,
                          j->tokens[k], want[k]);
        for (uint32_t k = 0; k < j->prompt_tokens && j->n; k++)
            if (j->runs[k][0] != (k >= j->reused))
                test_fail(t, __FILE__, __LINE__,
                          "request %u, of whose tokens %u are reused: token %u ran %u times", i,
                          j->reused, k, j->runs[k][0]);
    }
    CHECK_INT(fleet_pages_available(s->table->pages), s->server.desc.pages);
    CHECK(!fleet_pages_check(s->table->pages));
    CHECK_INT(s->table->joined, 0);
    CHECK_INT(s->table->pages_used[0] + s->table->pages_used[1], 0);
}

static fleet_server_desc sim_desc(void)
{
    fleet_server_desc d = fleet_server_desc_default();
    d.requests = SIM_REQUESTS;
    d.pages = SIM_PAGES, d.page_tokens = SIM_PAGE_TOKENS;
    d.prompt_tokens = d.sequence_tokens = SIM_TOKENS;
    d.decode_rows = SIM_ROWS, d.chunk_rows = SIM_CHUNK;
    d.layers = SIM_LAYERS;
    d.mixed_rows = 3;
    d.age_ticks = 1000000;
    d.tick_ns = 1;
    return d;
}

/* A scenario runs as a kernel of one wave. */
typedef struct scenario {
    sim *s;
    void (*run)(test_run *, sim *);
} scenario;

FLEET_GLOBAL(1) void scenario_kernel(scenario *o)
{
    o->run(o->s->t, o->s);
}
FLEET_THUNK1(scenario_kernel, scenario *)

static void simulate(test_run *t, const fleet_server_desc *d, void (*run)(test_run *, sim *),
                     void *user)
{
    fleet_kernel_desc k = fleet_kernel_desc_default();
    sim *s = (sim *)calloc(1, sizeof *s);
    scenario o, *argument = &o;
    void *args[1];
    s->t = t, s->user = user;
    s->jobs = (job *)malloc(SIM_JOBS * sizeof *s->jobs);
    memset(s->kv, 0x7f, sizeof s->kv);
    CHECK_INT(fleet_server_create(&s->server, d, NULL), FLEET_OK);
    s->table = s->server.table;
    o.s = s, o.run = run;
    args[0] = &argument;
    k.blocks = k.threads = 1;
    k.host.engine = FLEET_ENGINE_THREADS;
    CHECK_INT(fleet_kernel_launch(FLEET_KERNEL_OF(scenario_kernel), args, &k), FLEET_OK);
    fleet_server_free(&s->server);
    free(s->jobs);
    free(s);
}

#endif
