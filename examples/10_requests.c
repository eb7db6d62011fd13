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
   One request is cancelled, and at the end the server is told to finish what it has and to stop.

   Then the same with two pools of chiplets in one launch, each with a plan and iterations of its own: pool 0 works on
   prompts, pool 1 decodes. While pool 1 has nothing to decode, its chiplets help with the prompts, layer by layer: tiles of
   a layer are handed out one by one. */
#define FLEET_IMPLEMENTATION
#include "parts/fleet_server.h"

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
#define MOST_PROMPTS 5000
/* 1: one chiplet may be divided into several that share its L2. An AMD GPU finds chiplets by the hardware's numbers. */
#if defined(FLEET_HIP)
#define VIRTUAL_CHIPLETS 0
#else
#define VIRTUAL_CHIPLETS 1
#endif

typedef struct serving { /* what every tile sees; an element for each layer */
    fleet_table *table;
    uint32_t *cells; /* [LAYERS][PAGES][PAGE_TOKENS]: what each position leaves in each layer */
    /* activations: decode rows, and the chunk of each class, which may be stopped between two layers */
    uint32_t *x;      /* [DECODE_ROWS + 2 * CHUNK_ROWS] */
    uint32_t *helped; /* tiles of prompts that pool 1 has run; in host memory */
    uint32_t layer;
    uint32_t pool, pools;
    uint32_t workers; /* of the pool */
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

/* Row i of a pool's batch in one layer. A row reads what earlier positions left in the layer before, so that the rows of
   a chunk need no order among themselves. */
FLEET_DEVICE void run_row(const fleet_ctx *ctx, const serving *args, uint32_t pool, uint32_t step,
                          uint32_t i, uint32_t layer)
{
    const uint32_t of_layer = layer * PAGES;
    const fleet_batch *b = fleet_table_batch(args->table, pool, step);
    const fleet_row row = fleet_batch_row(b, i, layer);
    const uint32_t *pages = fleet_row_pages(args->table, row);
    uint32_t *x =
        args->x +
        (i < b->decode_rows ? i : DECODE_ROWS + b->chunk_class * CHUNK_ROWS + i - b->decode_rows);
    uint32_t value;
    if (row.kind == FLEET_ROW_NONE || ctx->thread != 0) return;
    value = layer ? *x : begin(fleet_row_token(args->table, row), row.position);
    for (uint32_t k = 0; k < row.position && layer; k++)
        value = mix(value, args->cells[(of_layer - PAGES + pages[k / PAGE_TOKENS]) * PAGE_TOKENS +
                                       k % PAGE_TOKENS]);
    args->cells[(of_layer + pages[row.position / PAGE_TOKENS]) * PAGE_TOKENS +
                row.position % PAGE_TOKENS] = value;
    *x = value;
    if (layer + 1 == LAYERS && row.kind != FLEET_ROW_CHUNK)
        fleet_row_result(args->table, pool, step, i, FLEET_RESULT_MORE, value % 1000);
}
FLEET_TILE(layer, serving)
{
    run_row(&ctx, args, args->pool, ctx.epoch, (uint32_t)at[0], args->layer);
    return FLEET_OK;
}
/* With two pools, a task for each worker: rows of prompts, one after another. In pool 1 of all layers that are lent. */
FLEET_TILE(shared, serving)
{
    fleet_share share = fleet_share_open(args->pool);
    FLEET_UNUSED(at);
    while (fleet_share_next(&ctx, args->table, &share)) {
        run_row(&ctx, args, 0, share.step, share.tile, share.layer);
        if (ctx.thread == 0 && args->pool == 1) fleet_add_relaxed_system(args->helped, 1);
    }
    return share.status;
}

enum { ROWS, HELPERS }; /* symbols, by their numbers */

/* Before args->layer: the decode rows go on, a chunk may stop. */
FLEET_TILE(gate, serving)
{
    const fleet_batch *b = fleet_table_batch(args->table, args->pool, ctx.epoch);
    const uint32_t cut =
        args->layer && fleet_server_between(&ctx, args->table, args->pool, args->layer);
    FLEET_UNUSED(at);
    if (args->pools == 2)
        return fleet_server_share(&ctx, args->table, args->layer,
                                  b->chunk_end > args->layer ? b->chunk_rows : 0);
    return cut ? fleet_cut_symbol(&ctx, ROWS, (int32_t)b->decode_rows) : FLEET_OK;
}

FLEET_TILE(boundary, serving)
{
    fleet_status status = fleet_server_next(&ctx, args->table, args->pool);
    const fleet_batch *b = fleet_table_batch(args->table, args->pool, ctx.epoch + 1);
    FLEET_UNUSED(at);
    if (args->pools == 2 && args->pool == 0) return status;
    if (!status && args->pool == 1)
        status = fleet_next_symbol(&ctx, HELPERS, b->lent ? (int32_t)args->workers : 0);
    return status ? status
                  : fleet_next_symbol(&ctx, ROWS, (int32_t)(b->decode_rows + b->chunk_rows));
}

#define SERVING_TILES(TILE, P) TILE(P, layer) TILE(P, shared) TILE(P, gate) TILE(P, boundary)
FLEET_MEGAKERNEL(serving, SERVING_TILES, FLEET_ANY_THREADS(THREADS))

/* Adds a grid, which comes after the last one, if there is one. */
static void add(fleet_graph *g, fleet_grid *last, uint32_t first, const char *kind, uint32_t i,
                uint32_t tile, fleet_shape shape, uint32_t args)
{
    char name[24];
    fleet_grid grid;
    snprintf(name, sizeof name, "%s.%u", kind, i);
    grid = fleet_call_device(g, name, tile, shape, args);
    if (!first) fleet_after(g, grid, *last);
    *last = grid;
}

/* One pool for both. */
static fleet_graph *iteration(void)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim rows = fleet_symbol(g, "rows", 0, DECODE_ROWS + CHUNK_ROWS);
    fleet_grid last;
    for (uint32_t i = 0; i < LAYERS; i++) {
        if (i) add(g, &last, 0, "gate", i, serving_gate, fleet_shape0(), i);
        if (i) fleet_symbol_cutter(g, rows, last);
        add(g, &last, !i, "layer", i, serving_layer, fleet_shape1(rows), i);
    }
    add(g, &last, 0, "boundary", 0, serving_boundary, fleet_shape0(), 0);
    fleet_symbol_writer(g, rows, last);
    return g;
}

/* Pool 0 of two. */
static fleet_graph *prompts(uint32_t workers)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_shape all = fleet_shape1(fleet_dim_of((int32_t)workers));
    fleet_grid last;
    for (uint32_t i = 0; i < LAYERS; i++) {
        add(g, &last, !i, "gate", i, serving_gate, fleet_shape0(), i);
        add(g, &last, 0, "layer", i, serving_shared, all, i);
    }
    add(g, &last, 0, "boundary", 0, serving_boundary, fleet_shape0(), 0);
    return g;
}

/* Pool 1 of two. Its arguments come after those of pool 0. */
static fleet_graph *decoding(uint32_t workers)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim rows = fleet_symbol(g, "rows", 0, DECODE_ROWS);
    const fleet_dim helpers = fleet_symbol(g, "helpers", 0, (int32_t)workers);
    fleet_grid last, help;
    add(g, &help, 1, "help", 0, serving_shared, fleet_shape1(helpers), LAYERS);
    for (uint32_t i = 0; i < LAYERS; i++)
        add(g, &last, !i, "layer", i, serving_layer, fleet_shape1(rows), LAYERS + i);
    add(g, &last, 0, "boundary", 0, serving_boundary, fleet_shape0(), LAYERS);
    fleet_after(g, last, help);
    fleet_symbol_writer(g, rows, last);
    fleet_symbol_writer(g, helpers, last);
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
    serving args[2 * LAYERS];
    fleet_plan *plan; /* of pool 1, with its image and state */
    fleet_image image;
    fleet_state state;
    fleet_status status;  /* of the launch */
    job jobs[JOBS + 1];   /* the proactive ones first; the last one is for help */
    uint32_t *helped;     /* the host's address of args->helped */
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
    fleet_session_run(&p->s, p->args, p->args[0].pools * LAYERS * sizeof p->args[0]);
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

static void fill(job *j, uint32_t of, fleet_class priority, uint32_t prompt_tokens, uint32_t max)
{
    memset(j, 0, sizeof *j);
    j->priority = priority, j->prompt_tokens = prompt_tokens, j->max_tokens = max;
    for (uint32_t k = 0; k < prompt_tokens; k++) j->prompt[k] = mix(of + 1, k) % 1000;
}

/* With nothing to decode: long prompts, one after another, until pool 1 has helped with one. It
   does when it finds a layer that pool 0 has not finished. Returns how many were wrong, or 1 if it
   never helps. */
static uint32_t wait_for_help(program *p)
{
    job *j = &p->jobs[JOBS];
    uint32_t n = 0, wrong = 0;
    while (n < MOST_PROMPTS && !wrong && (!n || !__atomic_load_n(p->helped, __ATOMIC_ACQUIRE))) {
        fill(j, JOBS + n++, FLEET_PROACTIVE, LONGEST - 1, 1);
        submit(p, j);
        while (!take_event(p)) continue;
        wrong += !is_right(j);
    }
    return wrong + !__atomic_load_n(p->helped, __ATOMIC_ACQUIRE);
}

/* Splits the device: a quarter of its chiplets decodes, or of a single chiplet's workers. 0: it cannot be split. */
static uint32_t split(fleet_topology pools[2])
{
    fleet_topology *a = &pools[0], *b = &pools[1];
    check("topology", fleet_topology_query(a));
    *b = *a;
    if (a->chiplets > 1) {
        b->chiplets = (a->chiplets + 3) / 4, a->chiplets -= b->chiplets;
        for (uint32_t k = 0; k < b->chiplets; k++) b->units[k] = a->units[a->chiplets + k];
        return 1;
    }
    b->units[0] = (a->units[0] + 3) / 4, a->units[0] -= b->units[0];
    return VIRTUAL_CHIPLETS && a->units[0];
}
static uint32_t workers_of(const fleet_topology *t)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < t->chiplets; k++) n += t->units[k];
    return n;
}

/* The plan of pool 1, with a state that runs in the launches of the session's. */
static void open_decoding(program *p, const fleet_topology *t)
{
    fleet_plan_desc d = fleet_plan_desc_default();
    fleet_graph *g = decoding(workers_of(t));
    d.topology = *t;
    check("plan", fleet_plan_build(g, &d, &p->plan));
    check("image", fleet_upload(&p->image, p->plan, NULL));
    check("state", fleet_state_create(&p->state, &p->image, NULL, NULL));
    fleet_graph_destroy(g);
}

/* Serves all jobs. Returns whether something was wrong. */
static int serve(program *p, uint32_t pools)
{
    fleet_server_desc d = fleet_server_desc_default();
    fleet_session_desc session = fleet_session_desc_default();
    fleet_server_stats stats;
    fleet_ticket ticket;
    fleet_request request;
    fleet_topology parts[2];
    fleet_graph *g;
    pthread_t threads[3];
    uint32_t ended = 0, wrong = 0, cancelled = 0, tokens = 0;
    void *helped, *helped_device;

    memset(p, 0, sizeof *p);
    d.requests = 16;
    d.pages = PAGES, d.page_tokens = PAGE_TOKENS;
    d.prompt_tokens = d.sequence_tokens = LONGEST;
    d.decode_rows = DECODE_ROWS, d.chunk_rows = CHUNK_ROWS;
    d.layers = LAYERS;
    d.pools = pools;
    check("server", fleet_server_create(&p->server, &d, NULL));
    session.launch.steps = FLEET_STEPS_ENDLESS;
    session.launch.finish = 1;
    if (pools == 2) {
        if (!split(parts)) {
            printf("two pools need a device with more than one chiplet\n");
            fleet_server_free(&p->server);
            return 0;
        }
        open_decoding(p, &parts[1]);
        session.plan.topology = parts[0];
        session.state.beside = &p->state;
    }
    g = pools == 2 ? prompts(workers_of(&parts[0])) : iteration();
    check("session", fleet_session_open(&p->s, g, &session, FLEET_KERNEL_OF(serving_kernel)));
    p->args[0].table = p->server.table;
    p->args[0].cells = (uint32_t *)fleet_session_alloc(&p->s, LAYERS * PAGES * PAGE_TOKENS * 4);
    p->args[0].x = (uint32_t *)fleet_session_alloc(&p->s, (DECODE_ROWS + 2 * CHUNK_ROWS) * 4);
    check("pinned", fleet_pinned_alloc(&helped, &helped_device, sizeof *p->helped));
    p->helped = (uint32_t *)helped, p->args[0].helped = (uint32_t *)helped_device;
    *p->helped = 0;
    for (uint32_t i = 0; i < 2 * LAYERS; i++) {
        p->args[i] = p->args[0];
        p->args[i].layer = i % LAYERS, p->args[i].pool = i / LAYERS, p->args[i].pools = pools;
        p->args[i].workers = pools == 2 ? workers_of(&parts[i / LAYERS]) : 0;
    }

    /* A request that could never run is refused, with what would fit. */
    request.priority = FLEET_REACTIVE, request.prompt = p->jobs[0].prompt;
    request.prompt_tokens = 100, request.max_tokens = 100;
    if (fleet_server_submit(&p->server, &request, &ticket) != FLEET_ERROR_ARGUMENT) return 1;
    printf("refused: %s of a prompt of 100 tokens is at most %u\n", ticket.field, ticket.fits);

    /* Long background jobs, and short ones that someone waits for. */
    for (uint32_t i = 0; i < JOBS; i++)
        if (i < PROACTIVE)
            fill(&p->jobs[i], i, FLEET_PROACTIVE, 60 + i * 3, 25);
        else
            fill(&p->jobs[i], i, FLEET_REACTIVE, 5 + i, 6);
    pthread_mutex_init(&p->lock, NULL);
    if (pthread_create(&threads[0], NULL, launch, p) ||
        pthread_create(&threads[1], NULL, submit_proactive, p) ||
        pthread_create(&threads[2], NULL, submit_reactive, p))
        return 1;
    while (ended < JOBS) ended += take_event(p);
    pthread_join(threads[1], NULL);
    pthread_join(threads[2], NULL);
    if (pools == 2) wrong = wait_for_help(p);
    fleet_server_stop(&p->server, 1);
    pthread_join(threads[0], NULL);
    check("launch", p->status);

    for (uint32_t i = 0; i < JOBS; i++) {
        wrong += !is_right(&p->jobs[i]);
        cancelled += p->jobs[i].ended == 1 + FLEET_EVENT_CANCELLED;
        tokens += p->jobs[i].n;
    }
    fleet_server_stats_read(&p->server, &stats);
    printf("%u iterations; %u times a proactive prompt stopped between two layers\n",
           stats.iterations, stats.layers_cut);
    if (wrong || stats.pages_available != PAGES)
        printf("wrong: %u of %u requests, %u of %u pages are free\n", wrong, JOBS,
               stats.pages_available, PAGES);
    else
        printf("ok: %u requests of two classes yielded %u tokens in one launch; %u cancelled\n",
               JOBS, tokens, cancelled);
    if (pools == 2)
        printf("the decoding pool helped with %u rows of prompts in a layer\n", *p->helped);
    fleet_session_close(&p->s);
    fleet_state_free(&p->state);
    fleet_image_free(&p->image);
    fleet_plan_free(p->plan);
    fleet_server_free(&p->server);
    fleet_pinned_free(helped);
    fleet_graph_destroy(g);
    return wrong != 0;
}

int main(void)
{
    static program p;
    const int one = serve(&p, 1);
    printf("and with a pool of chiplets for prompts, and one that decodes:\n");
    return one || serve(&p, 2);
}
