/* 10: requests that come and go while the launch runs.

   The examples before launched work that was known. Here one launch stays, and host threads submit requests to it: one
   thread many proactive ones (background work), another reactive ones, each when the one before has ended. A request
   has a prompt and yields tokens, as in a language model, but there is no model: a layer mixes words. What it mixes
   depends on the request's tokens, on the layer, and on all earlier positions of its sequence, which it finds through
   its page table. So a row that is lost, doubled, computed in the wrong layer or mixed up with another request's
   changes the tokens, and each request is compared with what it yields alone.

   A step of the graph is an iteration of the server:
       layer 0, gate 1, layer 1, gate 2, layer 2, ...: a task for each row of the batch, and between two layers the
           scheduler, which stops a proactive prompt there when a reactive one waits
       boundary: the last task; it sends tokens to the host, takes in new requests, composes the next batch, and waits
           when there is nothing to do. It sets the symbol `rows` for the next step
   One request is cancelled, and at the end the server is told to finish what it has and to stop. */
#define FLEET_IMPLEMENTATION
#include "fleet_sched.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>

#define LAYERS 6
#define PAGES 128
#define PAGE_TOKENS 8
#define DECODE_ROWS 8 /* of a batch */
#define CHUNK_ROWS 16 /* of a prompt in a batch */
#define THREADS 64

#define PROACTIVE 12
#define REACTIVE 10
#define JOBS (PROACTIVE + REACTIVE)
#define LONGEST 128 /* prompt and tokens */

typedef struct serving { /* what every tile sees; an element for each layer */
    fleet_table *table;
    uint32_t *cells; /* [LAYERS][PAGES][PAGE_TOKENS]: what each position leaves in each layer */
    /* activations: decode rows, and the chunk of each class, which may be stopped between two layers */
    uint32_t *x; /* [DECODE_ROWS + 2 * CHUNK_ROWS] */
    uint32_t layer;
} serving;

/* ---- the work, on the device and for the reference -------------------------------------------- */

FLEET_HOST_DEVICE uint32_t mix(uint32_t x, uint32_t y)
{
    x = (x ^ y) * 0x9e3779b1u;
    return x ^ x >> 15;
}
FLEET_HOST_DEVICE uint32_t begin(uint32_t token, uint32_t position)
{
    return mix(token + 1, position * 77 + 5);
}

/* Row at[0] of the batch in one layer. A row reads what earlier positions left in the layer before, so that the rows of
   a chunk need no order among themselves. */
FLEET_TILE(layer, serving)
{
    const uint32_t i = (uint32_t)at[0], of_layer = args->layer * PAGES;
    const fleet_batch *b = fleet_table_batch(args->table, 0, ctx.epoch);
    const fleet_row row = fleet_batch_row(b, i, args->layer);
    const uint32_t *pages = fleet_row_pages(args->table, row);
    uint32_t *x =
        args->x +
        (i < b->decode_rows ? i : DECODE_ROWS + b->chunk_class * CHUNK_ROWS + i - b->decode_rows);
    uint32_t value;
    if (row.kind == FLEET_ROW_NONE || ctx.thread != 0) return FLEET_OK;
    value = args->layer ? *x : begin(fleet_row_token(args->table, row), row.position);
    for (uint32_t k = 0; k < row.position && args->layer; k++)
        value = mix(value, args->cells[(of_layer - PAGES + pages[k / PAGE_TOKENS]) * PAGE_TOKENS +
                                       k % PAGE_TOKENS]);
    args->cells[(of_layer + pages[row.position / PAGE_TOKENS]) * PAGE_TOKENS +
                row.position % PAGE_TOKENS] = value;
    *x = value;
    if (args->layer + 1 == LAYERS && row.kind != FLEET_ROW_CHUNK)
        fleet_row_result(args->table, 0, ctx.epoch, i, FLEET_RESULT_MORE, value % 1000);
    return FLEET_OK;
}

#define ROWS 0 /* the symbol's number */

/* Before args->layer: the decode rows go on, a chunk may stop. */
FLEET_TILE(gate, serving)
{
    const fleet_batch *b = fleet_table_batch(args->table, 0, ctx.epoch);
    FLEET_UNUSED(at);
    if (!fleet_server_between(&ctx, args->table, args->layer)) return FLEET_OK;
    return fleet_cut_symbol(&ctx, ROWS, (int32_t)b->decode_rows);
}

FLEET_TILE(boundary, serving)
{
    const fleet_status status = fleet_server_next(&ctx, args->table);
    const fleet_batch *b = fleet_table_batch(args->table, 0, ctx.epoch + 1);
    FLEET_UNUSED(at);
    return status ? status
                  : fleet_next_symbol(&ctx, ROWS, (int32_t)(b->decode_rows + b->chunk_rows));
}

#define SERVING_TILES(TILE, P) TILE(P, layer) TILE(P, gate) TILE(P, boundary)
FLEET_MEGAKERNEL(serving, SERVING_TILES, THREADS)

static fleet_graph *iteration(void)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim rows = fleet_symbol(g, "rows", 0, DECODE_ROWS + CHUNK_ROWS);
    fleet_grid last = fleet_call_device(g, "layer.0", serving_layer, fleet_shape1(rows), 0);
    char name[16];
    for (uint32_t i = 1; i < LAYERS; i++) {
        fleet_grid between;
        snprintf(name, sizeof name, "gate.%u", i);
        between = fleet_call_device(g, name, serving_gate, fleet_shape0(), i);
        fleet_symbol_cutter(g, rows, between);
        fleet_after(g, between, last);
        snprintf(name, sizeof name, "layer.%u", i);
        last = fleet_call_device(g, name, serving_layer, fleet_shape1(rows), i);
        fleet_after(g, last, between);
    }
    {
        const fleet_grid end =
            fleet_call_device(g, "boundary", serving_boundary, fleet_shape0(), 0);
        fleet_symbol_writer(g, rows, end);
        fleet_after(g, end, last);
    }
    return g;
}

/* ---- the host --------------------------------------------------------------------------------- */

typedef struct job {
    uint64_t id; /* 0: not submitted yet */
    fleet_class priority;
    uint32_t prompt[LONGEST], prompt_tokens, max_tokens;
    uint32_t tokens[LONGEST], n;
    uint32_t ended; /* 1 + fleet_event_kind */
} job;

typedef struct program {
    fleet_session s;
    fleet_server server;
    serving args[LAYERS];
    fleet_status status;  /* of the launch */
    job jobs[JOBS];       /* the proactive ones first */
    pthread_mutex_t lock; /* of the jobs */
} program;

static void check(const char *what, fleet_status status)
{
    if (!status) return;
    printf("wrong: %s: %s\n", what, fleet_status_text(status));
    exit(1);
}

static void rest(void)
{
    struct timeval pause;
    pause.tv_sec = 0, pause.tv_usec = 50;
    select(0, NULL, NULL, NULL, &pause);
}

/* The launch. On a GPU fleet_session_run returns at once, on the CPU it returns at the end: a thread suits both. */
static void *launch(void *argument)
{
    program *p = (program *)argument;
    fleet_session_run(&p->s, p->args, sizeof p->args);
    p->status = fleet_session_wait(&p->s);
    fleet_server_ended(&p->server, p->status);
    return NULL;
}

/* Submits a job, however often it takes. */
static void submit(program *p, job *j)
{
    fleet_request r;
    fleet_ticket ticket;
    fleet_status status = FLEET_ERROR_BUSY;
    r.priority = j->priority;
    r.prompt = j->prompt, r.prompt_tokens = j->prompt_tokens, r.max_tokens = j->max_tokens;
    while (status == FLEET_ERROR_BUSY) {
        pthread_mutex_lock(&p->lock); /* its first event finds its id */
        status = fleet_server_submit(&p->server, &r, &ticket);
        j->id = ticket.id;
        pthread_mutex_unlock(&p->lock);
        if (status) rest();
    }
    check("submit", status);
}

static void *submit_proactive(void *argument)
{
    program *p = (program *)argument;
    for (uint32_t i = 0; i < PROACTIVE; i++) submit(p, &p->jobs[i]);
    pthread_mutex_lock(&p->lock);
    fleet_server_cancel(&p->server, p->jobs[PROACTIVE - 1].id);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void *submit_reactive(void *argument)
{
    program *p = (program *)argument;
    for (uint32_t i = PROACTIVE; i < JOBS; i++) {
        uint32_t ended = 0;
        submit(p, &p->jobs[i]);
        while (!ended) { /* someone waits for the answer */
            pthread_mutex_lock(&p->lock);
            ended = p->jobs[i].ended;
            pthread_mutex_unlock(&p->lock);
            if (!ended) rest();
        }
    }
    return NULL;
}

/* Reads an event, if there is one; returns how many requests it ends. */
static uint32_t take_event(program *p)
{
    fleet_server_event e;
    uint32_t ends = 0, there;
    pthread_mutex_lock(&p->lock);
    if ((there = fleet_server_poll(&p->server, &e))) {
        job *j = p->jobs;
        while (j->id != e.id) j++;
        if (e.kind == FLEET_EVENT_TOKEN)
            j->tokens[j->n++] = e.token;
        else
            j->ended = 1 + (uint32_t)e.kind, ends = 1;
        fleet_server_release(&p->server,
                             &e); /* where a client is slow: when it has taken the token */
    }
    pthread_mutex_unlock(&p->lock);
    if (!there) rest();
    return ends;
}

/* Whether the tokens are those that the job yields alone. A cancelled one may have yielded fewer. */
static uint32_t is_right(const job *j)
{
    static uint32_t cells[LAYERS][LONGEST];
    uint32_t n = 0;
    for (uint32_t at = 0; n < j->n; at++) {
        uint32_t x = begin(at < j->prompt_tokens ? j->prompt[at] : j->tokens[n - 1], at);
        cells[0][at] = x;
        for (uint32_t l = 1; l < LAYERS; l++) {
            for (uint32_t k = 0; k < at; k++) x = mix(x, cells[l - 1][k]);
            cells[l][at] = x;
        }
        if (at + 1 < j->prompt_tokens) continue;
        if (j->tokens[n++] != x % 1000) return 0;
    }
    return j->ended == 1 + FLEET_EVENT_CANCELLED ||
           (j->ended == 1 + FLEET_EVENT_FINISHED && n == j->max_tokens);
}

int main(void)
{
    static program p;
    fleet_server_desc d = fleet_server_desc_default();
    fleet_session_desc session = fleet_session_desc_default();
    fleet_server_stats stats;
    fleet_ticket ticket;
    fleet_request request;
    fleet_graph *g = iteration();
    pthread_t threads[3];
    uint32_t ended = 0, wrong = 0, cancelled = 0, tokens = 0;

    d.requests = 16;
    d.pages = PAGES, d.page_tokens = PAGE_TOKENS;
    d.prompt_tokens = d.sequence_tokens = LONGEST;
    d.decode_rows = DECODE_ROWS, d.chunk_rows = CHUNK_ROWS;
    d.layers = LAYERS;
    check("server", fleet_server_create(&p.server, &d, NULL));
    session.launch.steps = FLEET_STEPS_ENDLESS;
    session.launch.finish = 1;
    check("session", fleet_session_open(&p.s, g, &session, FLEET_KERNEL_OF(serving_kernel)));
    p.args[0].table = p.server.table;
    p.args[0].cells = (uint32_t *)fleet_session_alloc(&p.s, LAYERS * PAGES * PAGE_TOKENS * 4);
    p.args[0].x = (uint32_t *)fleet_session_alloc(&p.s, (DECODE_ROWS + 2 * CHUNK_ROWS) * 4);
    for (uint32_t i = 1; i < LAYERS; i++) p.args[i] = p.args[0], p.args[i].layer = i;

    /* A request that could never run is refused, with what would fit. */
    request.priority = FLEET_REACTIVE, request.prompt = p.jobs[0].prompt;
    request.prompt_tokens = 100, request.max_tokens = 100;
    if (fleet_server_submit(&p.server, &request, &ticket) != FLEET_ERROR_ARGUMENT) return 1;
    printf("refused: %s of a prompt of 100 tokens is at most %u\n", ticket.field, ticket.fits);

    /* Long background jobs, and short ones that someone waits for. */
    for (uint32_t i = 0; i < JOBS; i++) {
        job *j = &p.jobs[i];
        j->priority = i < PROACTIVE ? FLEET_PROACTIVE : FLEET_REACTIVE;
        j->prompt_tokens = i < PROACTIVE ? 60 + i * 3 : 5 + i;
        j->max_tokens = i < PROACTIVE ? 25 : 6;
        for (uint32_t k = 0; k < j->prompt_tokens; k++) j->prompt[k] = mix(i + 1, k) % 1000;
    }
    pthread_mutex_init(&p.lock, NULL);
    if (pthread_create(&threads[0], NULL, launch, &p) ||
        pthread_create(&threads[1], NULL, submit_proactive, &p) ||
        pthread_create(&threads[2], NULL, submit_reactive, &p))
        return 1;
    while (ended < JOBS) ended += take_event(&p);
    pthread_join(threads[1], NULL);
    pthread_join(threads[2], NULL);
    fleet_server_stop(&p.server, 1);
    pthread_join(threads[0], NULL);
    check("launch", p.status);

    for (uint32_t i = 0; i < JOBS; i++) {
        wrong += !is_right(&p.jobs[i]);
        cancelled += p.jobs[i].ended == 1 + FLEET_EVENT_CANCELLED;
        tokens += p.jobs[i].n;
    }
    fleet_server_stats_read(&p.server, &stats);
    printf("%u iterations; %u times a proactive prompt stopped between two layers\n",
           stats.iterations, stats.layers_cut);
    if (wrong || stats.pages_available != PAGES)
        printf("wrong: %u of %u requests, %u of %u pages are free\n", wrong, JOBS,
               stats.pages_available, PAGES);
    else
        printf("ok: %u requests of two classes yielded %u tokens in one launch; %u cancelled\n",
               JOBS, tokens, cancelled);
    fleet_session_close(&p.s);
    fleet_server_free(&p.server);
    fleet_graph_destroy(g);
    return wrong != 0;
}
