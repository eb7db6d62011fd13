/* A server in a launch that stays, under all schedules and on both engines: host threads submit requests of both classes,
   cancel some, read slowly, and stop the server. Each request yields what it yields alone, no layer of a token is
   computed twice, and all pages come back. tests/host/serving.c has the rules of the scheduler. */
// run: asan engine=both
// run: model engine=deterministic
// run: tsan
#include "clients.h"

#define ROWS 0

typedef struct serving { /* one for each layer */
    fleet_table *table;
    uint32_t *cells;  /* [LAYERS][PAGES][PAGE_TOKENS] */
    uint32_t *x;      /* activations: decode rows, chunks of both classes */
    uint32_t *runs;   /* [REQUESTS][GENERATIONS][LONGEST][LAYERS] */
    uint32_t *steps;  /* that were run */
    uint32_t *broken; /* a bit for each rule of the policy that a batch has broken */
    uint32_t layer;
    struct arrival *arrival; /* null: none */
} serving;

/* A reactive request that a tile submits in a layer of the first chunk, and what runs until its first row. */
typedef struct arrival {
    fleet_server *server;
    fleet_request request;
    uint64_t id;
    fleet_status status;
    uint32_t layer, came, started;
    uint32_t late; /* rows of proactive prompts in layers after that one */
} arrival;

/* By the rows of any worker: `came` and `started` are published by the events of the graph at the latest. */
static void arrive(arrival *a, const fleet_table *table, fleet_row row, uint32_t layer)
{
    const uint32_t is_reactive = fleet_table_slot(table, row.slot)->priority == FLEET_REACTIVE;
    if (is_reactive) {
        __atomic_store_n(&a->started, 1, __ATOMIC_RELAXED);
    } else if (layer == a->layer && row.position == 0) {
        fleet_ticket ticket;
        a->status = fleet_server_submit(a->server, &a->request, &ticket);
        a->id = ticket.id;
        __atomic_store_n(&a->came, 1, __ATOMIC_RELEASE);
    } else if (__atomic_load_n(&a->came, __ATOMIC_ACQUIRE) && row.kind != FLEET_ROW_DECODE &&
               (layer > a->layer || row.position >= CHUNK_ROWS) &&
               !__atomic_load_n(&a->started, __ATOMIC_RELAXED)) {
        __atomic_fetch_add(&a->late, 1, __ATOMIC_RELAXED);
    }
}

FLEET_TILE(layer, serving)
{
    const uint32_t i = (uint32_t)at[0];
    const fleet_batch *b = fleet_table_batch(args->table, 0, ctx.epoch);
    const fleet_row row = fleet_batch_row(b, i, args->layer);
    const uint32_t *pages = fleet_row_pages(args->table, row);
    uint32_t *cells = args->cells + args->layer * PAGES * PAGE_TOKENS;
    uint32_t *x =
        args->x +
        (i < b->decode_rows ? i : DECODE_ROWS + b->chunk_class * CHUNK_ROWS + i - b->decode_rows);
    uint32_t value;
    if (row.kind == FLEET_ROW_NONE || ctx.thread != 0) return FLEET_OK;
    fleet_add_relaxed_device(
        args->runs +
            ((row.slot * GENERATIONS + row.generation % GENERATIONS) * LONGEST + row.position) *
                LAYERS +
            args->layer,
        1);
    if (args->arrival) arrive(args->arrival, args->table, row, args->layer);
    value = args->layer ? *x : mix(fleet_row_token(args->table, row) + 1, row.position);
    for (uint32_t k = 0; k < row.position && args->layer; k++)
        value = mix(
            value,
            (cells - PAGES * PAGE_TOKENS)[pages[k / PAGE_TOKENS] * PAGE_TOKENS + k % PAGE_TOKENS]);
    cells[pages[row.position / PAGE_TOKENS] * PAGE_TOKENS + row.position % PAGE_TOKENS] = value;
    *x = value;
    if (args->layer + 1 == LAYERS && row.kind != FLEET_ROW_CHUNK)
        fleet_row_result(args->table, 0, ctx.epoch, i, FLEET_RESULT_MORE, value % 1000);
    return FLEET_OK;
}
FLEET_TILE(gate, serving)
{
    const fleet_batch *b = fleet_table_batch(args->table, 0, ctx.epoch);
    FLEET_UNUSED(at);
    if (!fleet_server_between(&ctx, args->table, 0, args->layer)) return FLEET_OK;
    return fleet_cut_symbol(&ctx, ROWS, b->decode_end > args->layer ? (int32_t)b->decode_rows : 0);
}

/* Rules of the policy that hold for every batch, whatever came when. Each is a bit of serving.broken. */
enum { REACTIVE_STOPPED, PROACTIVE_FIRST, OUT_OF_ORDER, CAP_EXCEEDED, REACTIVE_LEFT_OUT };

/* Of the batch that has run. Only the end of its request stops a reactive chunk; fifo stops none. */
static uint32_t check_ran(const fleet_table *t, const fleet_batch *b)
{
    const uint32_t flags = fleet_table_slot(t, b->chunk.slot)->flags;
    if (!b->chunk_rows || b->chunk_end == LAYERS || (flags & FLEET_SLOT_CANCELLED)) return 0;
    return b->chunk_class == FLEET_REACTIVE || t->desc.policy == FLEET_POLICY_FIFO
               ? 1u << REACTIVE_STOPPED
               : 0;
}
/* Of the batch that comes, under the policy agent. */
static uint32_t check_comes(const fleet_table *t, const fleet_batch *b)
{
    const fleet_slot *chunk = fleet_table_slot(t, b->chunk.slot);
    const uint32_t proactive =
        b->chunk_rows && b->chunk_class == FLEET_PROACTIVE && !(chunk->flags & FLEET_SLOT_AGED);
    uint32_t broken = 0, young = 0, reactive = 0, aged = 0, waits = 0, left_out = 0;
    uint32_t older = 0, shorter = 0; /* than a reactive chunk's prompt */
    for (uint32_t i = 0; i < b->decode_rows; i++) {
        const fleet_slot *s = fleet_table_slot(t, fleet_batch_row(b, i, b->decode_begin).slot);
        if (s->priority == FLEET_REACTIVE)
            reactive++;
        else if (s->flags & FLEET_SLOT_AGED)
            aged++;
        else
            young++;
    }
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const fleet_slot *s = fleet_table_slot(t, i);
        if (s->priority != FLEET_REACTIVE || (s->flags & FLEET_SLOT_CANCELLED)) continue;
        waits |= s->phase == FLEET_PHASE_PREFILL;
        if (s->phase == FLEET_PHASE_PREFILL && b->chunk_rows && b->chunk_class == FLEET_REACTIVE) {
            older |= (int32_t)(s->order - chunk->order) < 0;
            shorter |= s->prompt_tokens - s->prefilled < chunk->prompt_tokens - chunk->prefilled;
        }
        left_out |=
            s->phase == FLEET_PHASE_DECODE && !(s->flags & (FLEET_SLOT_JOINED | FLEET_SLOT_UNSENT));
    }
    if (older && (shorter || t->desc.serial)) broken |= 1u << OUT_OF_ORDER;
    if (proactive && waits) broken |= 1u << PROACTIVE_FIRST;
    if (reactive && young && reactive + young > 3) broken |= 1u << CAP_EXCEEDED;
    /* Rows that resume between layers are a batch of an earlier boundary. */
    if (left_out && !b->decode_begin && reactive + aged < DECODE_ROWS)
        broken |= 1u << REACTIVE_LEFT_OUT;
    return broken;
}
FLEET_TILE(boundary, serving)
{
    const fleet_batch *b = fleet_table_batch(args->table, 0, ctx.epoch + 1);
    fleet_status status;
    FLEET_UNUSED(at);
    if (ctx.thread == 0)
        *args->broken |= check_ran(args->table, fleet_table_batch(args->table, 0, ctx.epoch));
    status = fleet_server_next(&ctx, args->table, 0);
    if (ctx.thread == 0) {
        ++*args->steps;
        if (args->table->desc.policy == FLEET_POLICY_AGENT)
            *args->broken |= check_comes(args->table, b);
    }
    return status ? status
                  : fleet_next_symbol(&ctx, ROWS, (int32_t)(b->decode_rows + b->chunk_rows));
}
#define SERVING_TILES(TILE, P) TILE(P, layer) TILE(P, gate) TILE(P, boundary)
FLEET_MEGAKERNEL(serving, SERVING_TILES, FLEET_ANY_THREADS(64))

typedef struct stand {
    fleet_session s;
    clients c;
    serving args[LAYERS];
    fleet_status status;
    fleet_host_stats stats;
} stand;

static void *launch(void *argument)
{
    stand *o = (stand *)argument;
    fleet_session_run(&o->s, o->args, sizeof o->args);
    o->status = fleet_session_wait(&o->s);
    fleet_server_ended(&o->c.server, o->status);
    return NULL;
}

static fleet_graph *graph_of(void)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim rows = fleet_symbol(g, "rows", 0, DECODE_ROWS + CHUNK_ROWS);
    fleet_grid last = fleet_call_device(g, "layer.0", serving_layer, fleet_shape1(rows), 0), end;
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
    end = fleet_call_device(g, "boundary", serving_boundary, fleet_shape0(), 0);
    fleet_symbol_writer(g, rows, end);
    fleet_after(g, end, last);
    return g;
}

static int stand_open(test_run *t, stand *o, const setting *s)
{
    const uint32_t words = REQUESTS * GENERATIONS * LONGEST * LAYERS;
    fleet_session_desc session = fleet_session_desc_default();
    fleet_server_desc d = fleet_server_desc_default();
    fleet_graph *g = graph_of();
    memset(o, 0, sizeof *o);
    clients_init(&o->c, s->seed);
    d.requests = REQUESTS, d.reactive_requests = 2, d.events = 2;
    d.pages = PAGES, d.page_tokens = PAGE_TOKENS, d.reactive_pages = 8;
    d.prompt_tokens = d.sequence_tokens = LONGEST;
    d.decode_rows = DECODE_ROWS, d.chunk_rows = CHUNK_ROWS, d.layers = LAYERS;
    d.policy = s->seed % 5 ? FLEET_POLICY_AGENT : FLEET_POLICY_FIFO;
    d.suspend_decode = s->seed % 2, d.serial = s->seed % 4 == 1;
    d.age_ticks = s->seed % 3 ? 0 : 200000;
    NEED_STATUS(fleet_server_create(&o->c.server, &d, NULL), FLEET_OK);
    session.plan = setting_plan_desc(s);
    session.state = setting_state_desc(s);
    session.launch = setting_launch_desc(s);
    session.launch.steps = FLEET_STEPS_ENDLESS;
    session.launch.finish = 1;
#if defined(FLEET_MEMORY_MODEL)
    session.launch.host.engine = FLEET_ENGINE_DETERMINISTIC;
    session.launch.host.memory_model = 1;
#endif
    session.launch.host.stats = &o->stats;
    if (fleet_session_open(&o->s, g, &session, FLEET_KERNEL_OF(serving_kernel)))
        test_fail(t, __FILE__, __LINE__, "%s: %s", fleet_graph_error(g), o->s.message);
    fleet_graph_destroy(g);
    o->args[0].table = o->c.server.table;
    o->args[0].cells = (uint32_t *)fleet_session_alloc(&o->s, LAYERS * PAGES * PAGE_TOKENS * 4);
    o->args[0].x = (uint32_t *)fleet_session_alloc(&o->s, (DECODE_ROWS + 2 * CHUNK_ROWS) * 4);
    o->args[0].runs = (uint32_t *)fleet_session_alloc(&o->s, words * 4);
    o->args[0].steps = (uint32_t *)fleet_session_alloc(&o->s, 8);
    NEED(o->args[0].runs && o->args[0].steps);
    o->args[0].broken = o->args[0].steps + 1;
    NEED_STATUS(fleet_device_clear(o->args[0].steps, 8, NULL), FLEET_OK);
    NEED_STATUS(fleet_device_clear(o->args[0].runs, words * 4, NULL), FLEET_OK);
    for (uint32_t i = 1; i < LAYERS; i++) o->args[i] = o->args[0], o->args[i].layer = i;
    return 1;
}
static void stand_close(stand *o)
{
    fleet_session_close(&o->s);
    fleet_server_free(&o->c.server);
}

static int serve(test_run *t, stand *o, uint32_t end)
{
    return serve_jobs(t, &o->c, end, launch, &o->s.state, o);
}

static void check_runs(test_run *t, const stand *o)
{
    uint32_t seen[2];
    const uint32_t words = REQUESTS * GENERATIONS * LONGEST * LAYERS;
    uint32_t *runs = (uint32_t *)malloc(words * 4), twice = 0;
    CHECK_STATUS(fleet_to_host(runs, o->args[0].runs, words * 4, NULL), FLEET_OK);
    for (uint32_t i = 0; i < words; i++) twice += runs[i] > 1;
    free(runs);
    CHECK_INT(twice, 0);
    CHECK_STATUS(fleet_to_host(seen, o->args[0].steps, sizeof seen, NULL), FLEET_OK);
    CHECK_INT(seen[1], 0);
}

static void serve_in(test_run *t, const setting *s, void *user)
{
    static stand o;
    const uint32_t end = *(uint32_t *)user;
    fleet_server_stats stats;
    if (!stand_open(t, &o, s) || !serve(t, &o, end)) return;
    CHECK_STATUS(o.status, end == ABORT ? FLEET_ERROR_ABORTED : FLEET_OK);
    for (uint32_t i = 0; i < JOBS; i++) {
        const job *j = &o.c.jobs[i];
        if (end == ABORT && j->ended == 1 + FLEET_EVENT_FAILED) continue;
        if (!is_right(j))
            test_fail(t, __FILE__, __LINE__, "request %u: %u tokens, end %u", i, j->n, j->ended);
        if (end == DRAIN && i % 7 != 3) CHECK_INT(j->ended, 1 + FLEET_EVENT_FINISHED);
    }
    check_runs(t, &o);
    CHECK_INT(o.stats.findings, 0);
    fleet_server_stats_read(&o.c.server, &stats);
    if (end != ABORT) CHECK_INT(stats.pages_available, PAGES);
    stand_close(&o);
}
static void requests_of_both_classes_are_served(test_run *t)
{
    uint32_t end = DRAIN;
    in_settings(t, deep() ? 12 : 2, serve_in, &end);
}
static void server_stops_while_requests_run(test_run *t)
{
    uint32_t end = STOP;
    in_settings(t, deep() ? 12 : 1, serve_in, &end);
}

/* While there is nothing to do, no step is run: only the first one has no rows. */
static void idle_in(test_run *t, const setting *s, void *user)
{
    static stand o;
    pthread_t thread;
    fleet_server_stats stats;
    uint32_t ended = 0, steps = 0;
    (void)user;
    if (!stand_open(t, &o, s)) return;
    CHECK(!pthread_create(&thread, NULL, launch, &o));
    for (uint32_t i = 0; i < 3; i++) {
        job *j = &o.c.jobs[i];
        fleet_request r;
        fleet_ticket ticket;
        pause_us(3000);
        r.priority = j->priority, r.prompt = j->prompt;
        r.prompt_tokens = j->prompt_tokens, r.max_tokens = j->max_tokens;
        CHECK_STATUS(fleet_server_submit(&o.c.server, &r, &ticket), FLEET_OK);
        j->id = ticket.id;
        while (ended <= i && !t->failed_here) ended += take_event(t, &o.c);
    }
    pause_us(3000);
    fleet_server_stop(&o.c.server, 1);
    pthread_join(thread, NULL);
    for (uint32_t i = 0; i < 3; i++) CHECK(is_right(&o.c.jobs[i]));
    fleet_server_stats_read(&o.c.server, &stats);
    CHECK_STATUS(fleet_to_host(&steps, o.args[0].steps, 4, NULL), FLEET_OK);
    CHECK_INT(steps, stats.iterations + 1);
    stand_close(&o);
}
static void idle_server_runs_no_steps(test_run *t)
{
    in_settings(t, 1, idle_in, NULL);
}

/* A reactive request that comes in any layer of a proactive prompt, or in its last one: no row of that prompt runs in a
   later layer before those of the reactive one. */
static void arrival_in(test_run *t, const setting *s, void *user)
{
    static stand o;
    setting agent = *s;
    pthread_t thread;
    arrival a;
    (void)user;
    agent.seed = 15 * s->seed + 1; /* the policy agent, and none is aged (stand_open) */
    for (uint32_t layer = 0; layer < LAYERS && !t->failed_here; layer++) {
        uint32_t ended = 0;
        fleet_request r;
        fleet_ticket ticket;
        if (!stand_open(t, &o, &agent)) return;
        memset(&a, 0, sizeof a);
        a.server = &o.c.server, a.layer = layer;
        for (uint32_t i = 0; i < 2; i++) {
            job *j = &o.c.jobs[i]; /* the first one is reactive */
            j->prompt_tokens = i ? 2 * CHUNK_ROWS + 1 : 3, j->max_tokens = 2;
            r.priority = j->priority, r.prompt = j->prompt, r.words = NULL;
            r.prompt_tokens = j->prompt_tokens, r.max_tokens = j->max_tokens;
            for (uint32_t k = 0; k < LONGEST; k++) j->prompt[k] = mix(i + 1, k) % 1000;
            if (!i) a.request = r;
        }
        for (uint32_t i = 0; i < LAYERS; i++) o.args[i].arrival = &a;
        CHECK_STATUS(fleet_server_submit(&o.c.server, &r, &ticket), FLEET_OK);
        o.c.jobs[1].id = ticket.id;
        CHECK(!pthread_create(&thread, NULL, launch, &o));
        while (!__atomic_load_n(&a.came, __ATOMIC_ACQUIRE)) pause_us(20);
        o.c.jobs[0].id = a.id;
        while (ended < 2 && !t->failed_here) ended += take_event(t, &o.c);
        fleet_server_stop(&o.c.server, 1);
        pthread_join(thread, NULL);
        CHECK_STATUS(a.status, FLEET_OK);
        CHECK_INT(a.late, 0);
        CHECK(is_right(&o.c.jobs[0]) && is_right(&o.c.jobs[1]));
        check_runs(t, &o);
        stand_close(&o);
    }
}
static void reactive_request_waits_for_one_layer(test_run *t)
{
    in_settings(t, 1, arrival_in, NULL);
}

/* After an abort: the state recovers, the server is reset, and serves again. */
static void abort_in(test_run *t, const setting *s, void *user)
{
    static stand o;
    (void)user;
    if (!stand_open(t, &o, s) || !serve(t, &o, ABORT)) return;
    CHECK_STATUS(o.status, FLEET_ERROR_ABORTED);
    CHECK_STATUS(fleet_state_recover(&o.s.state, NULL), FLEET_OK);
    CHECK_STATUS(fleet_server_reset(&o.c.server, NULL), FLEET_OK);
    for (uint32_t i = 0; i < JOBS; i++) o.c.jobs[i].n = o.c.jobs[i].ended = 0, o.c.jobs[i].id = 0;
    o.c.late = 0;
    if (!serve(t, &o, DRAIN)) return;
    CHECK_STATUS(o.status, FLEET_OK);
    for (uint32_t i = 0; i < JOBS; i++) CHECK(is_right(&o.c.jobs[i]));
    stand_close(&o);
}
static void server_serves_again_after_an_abort(test_run *t)
{
    in_settings(t, deep() ? 4 : 1, abort_in, NULL);
}

/* The end of the launch is announced while a thread submits: each request that was accepted gets its one last event. */
typedef struct race {
    fleet_server server;
    uint32_t prompt[4000];
    uint64_t ids[128];
    uint32_t n, over;
} race;
static void *submit_until_the_end(void *argument)
{
    race *r = (race *)argument;
    fleet_request request;
    fleet_ticket ticket;
    fleet_status status = FLEET_OK;
    request.priority = FLEET_REACTIVE, request.prompt = r->prompt;
    request.prompt_tokens = 4000, request.max_tokens = 1;
    while (!status || status == FLEET_ERROR_BUSY) { /* a full server may be about to have room */
        status = fleet_server_submit(&r->server, &request, &ticket);
        if (!status) r->ids[r->n] = ticket.id, __atomic_store_n(&r->n, r->n + 1, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&r->over, 1, __ATOMIC_RELEASE);
    return NULL;
}
static void requests_submitted_at_the_end_get_their_last_event(test_run *t)
{
    static race r;
    fleet_server_desc d = fleet_server_desc_default();
    d.requests = 64, d.reactive_requests = 1;
    CHECK_STATUS(fleet_server_create(&r.server, &d, NULL), FLEET_OK);
    for (uint32_t i = 0; i < (deep() ? 2000 : 100) && !t->failed_here; i++) {
        uint64_t ids[128];
        uint32_t n = 0, over = 0;
        fleet_server_event e;
        pthread_t thread;
        r.n = r.over = 0;
        CHECK(!pthread_create(&thread, NULL, submit_until_the_end, &r));
        while (__atomic_load_n(&r.n, __ATOMIC_ACQUIRE) < (i % 2 ? 64 : 1 + i % 50)) {
        } /* it is filling in the next one now, or looks for a free slot */
        fleet_server_ended(&r.server, FLEET_ERROR_TIMEOUT);
        while (!over) {
            over = __atomic_load_n(&r.over, __ATOMIC_ACQUIRE);
            while (fleet_server_poll(&r.server, &e) && n < 128) ids[n++] = e.id;
        }
        pthread_join(thread, NULL);
        CHECK_INT(n, r.n);
        for (uint32_t k = 0; k < n; k++) {
            uint32_t found = 0;
            for (uint32_t l = 0; l < n; l++) found += ids[l] == r.ids[k];
            CHECK_INT(found, 1);
        }
        CHECK_STATUS(fleet_server_reset(&r.server, NULL), FLEET_OK);
    }
    fleet_server_free(&r.server);
}

static void all(test_run *t)
{
    TEST(idle_server_runs_no_steps);
    TEST(reactive_request_waits_for_one_layer);
    TEST(requests_of_both_classes_are_served);
    TEST(server_stops_while_requests_run);
    TEST(server_serves_again_after_an_abort);
    TEST(requests_submitted_at_the_end_get_their_last_event);
}
TEST_MAIN(all)
