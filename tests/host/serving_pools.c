/* A server with two pools in one launch: pool 0 works on prompts, pool 1 decodes in iterations of its own, and helps with
   prompts, layer by layer, while it has nothing to decode. Under all schedules and on both engines each request yields
   what it yields alone, no layer of a token is computed twice, and all pages come back. */
// run: asan engine=both
// run: model engine=deterministic
// run: tsan
#include "clients.h"

#define POOLS 2u
enum { ROWS, HELP }; /* symbols of pool 1 */

/* A request that waits for room for its events, which a tile makes in a layer of another one's prompt. */
typedef struct release {
    fleet_server *server;
    const fleet_server_event *held;
    uint32_t n, slot;
    uint32_t layer;        /* from this layer on, in the first one that is lent */
    uint32_t at;           /* in that layer; LAYERS: in none */
    uint32_t lent[LAYERS]; /* 1 + whether that layer of the prompt was lent */
} release;

typedef struct serving { /* one for each layer and pool */
    fleet_table *table;
    uint32_t *cells;  /* [LAYERS][PAGES][PAGE_TOKENS] */
    uint32_t *x;      /* activations: decode rows, chunks of both classes */
    uint32_t *runs;   /* [REQUESTS][GENERATIONS][LONGEST][LAYERS] */
    uint32_t *steps;  /* [POOLS] that had rows or helped */
    uint32_t *helped; /* [LAYERS]: tiles that pool 1 has run */
    uint32_t *broken; /* tiles that it has run in layers that were not lent */
    uint32_t layer, pool, helpers;
    struct release *release; /* null: none */
} serving;

/* Row i of a pool's batch in one layer. */
FLEET_DEVICE void run_row(const fleet_ctx *ctx, const serving *args, const fleet_batch *b,
                          uint32_t step, uint32_t i, uint32_t layer)
{
    const uint32_t batch = b == fleet_table_batch(args->table, 0, step) ? 0 : 1;
    const fleet_row row = fleet_batch_row(b, i, layer);
    const uint32_t *pages = fleet_row_pages(args->table, row);
    uint32_t *cells = args->cells + layer * PAGES * PAGE_TOKENS;
    uint32_t *x =
        args->x +
        (i < b->decode_rows ? i : DECODE_ROWS + b->chunk_class * CHUNK_ROWS + i - b->decode_rows);
    uint32_t value;
    if (row.kind == FLEET_ROW_NONE || ctx->thread != 0) return;
    fleet_add_relaxed_device(
        args->runs +
            ((row.slot * GENERATIONS + row.generation % GENERATIONS) * LONGEST + row.position) *
                LAYERS +
            layer,
        1);
    if (args->pool != batch) {
        fleet_add_relaxed_device(args->helped + layer, 1);
        if (!b->lent) fleet_add_relaxed_device(args->broken, 1);
    }
    value = layer ? *x : mix(fleet_row_token(args->table, row) + 1, row.position);
    for (uint32_t k = 0; k < row.position && layer; k++)
        value = mix(
            value,
            (cells - PAGES * PAGE_TOKENS)[pages[k / PAGE_TOKENS] * PAGE_TOKENS + k % PAGE_TOKENS]);
    cells[pages[row.position / PAGE_TOKENS] * PAGE_TOKENS + row.position % PAGE_TOKENS] = value;
    *x = value;
    if (layer + 1 == LAYERS && row.kind != FLEET_ROW_CHUNK)
        fleet_row_result(args->table, batch, step, i, FLEET_RESULT_MORE, value % 1000);
}

/* Pool 0: the tiles of its layer. Pool 1: those of the layers that are lent. */
FLEET_TILE(share, serving)
{
    fleet_share share = fleet_share_open(args->pool);
    /* Some helpers come late, when others of their chiplet have read of earlier layers. */
    for (int32_t i = 0; args->pool && i < 100 * at[0]; i++) fleet_load_relaxed_device(args->broken);
    while (fleet_share_next(&ctx, args->table, &share))
        run_row(&ctx, args, fleet_table_batch(args->table, 0, share.step), share.step, share.tile,
                share.layer);
    return share.status;
}
FLEET_TILE(decode, serving)
{
    run_row(&ctx, args, fleet_table_batch(args->table, 1, ctx.epoch), ctx.epoch, (uint32_t)at[0],
            args->layer);
    return FLEET_OK;
}
static void note_release(release *r, const fleet_batch *b, uint32_t layer)
{
    if (!b->chunk_rows || b->chunk.position || b->chunk.slot != r->slot || r->lent[layer]) return;
    r->lent[layer] = 1 + b->lent;
    if (layer < r->layer || !b->lent || r->at < LAYERS) return;
    r->at = layer;
    for (uint32_t i = 0; i < r->n; i++) fleet_server_release(r->server, r->held + i);
}
FLEET_TILE(gate, serving)
{
    const fleet_batch *b = fleet_table_batch(args->table, args->pool, ctx.epoch);
    const uint32_t layer = args->layer;
    FLEET_UNUSED(at);
    if (layer && fleet_server_between(&ctx, args->table, args->pool, layer) && args->pool)
        return fleet_cut_symbol(&ctx, ROWS, b->decode_end > layer ? (int32_t)b->decode_rows : 0);
    if (args->pool) return FLEET_OK;
    if (ctx.thread == 0 && args->release) note_release(args->release, b, layer);
    return fleet_server_share(&ctx, args->table, layer, b->chunk_end > layer ? b->chunk_rows : 0);
}
FLEET_TILE(boundary, serving)
{
    const fleet_status status = fleet_server_next(&ctx, args->table, args->pool);
    const fleet_batch *b = fleet_table_batch(args->table, args->pool, ctx.epoch + 1);
    FLEET_UNUSED(at);
    if (status) return status;
    if (ctx.thread == 0 && (b->decode_rows || b->chunk_rows || b->lent)) args->steps[args->pool]++;
    if (!args->pool) return FLEET_OK;
    if (fleet_next_symbol(&ctx, HELP, b->lent ? (int32_t)args->helpers : 0))
        return FLEET_ERROR_SYMBOL_RANGE;
    return fleet_next_symbol(&ctx, ROWS, (int32_t)b->decode_rows);
}
#define SERVING_TILES(TILE, P) TILE(P, share) TILE(P, decode) TILE(P, gate) TILE(P, boundary)
FLEET_MEGAKERNEL(serving, SERVING_TILES, FLEET_ANY_THREADS(64))

/* A grid that comes after another one. */
static fleet_grid then(fleet_graph *g, const char *name, uint32_t number, uint32_t tile,
                       fleet_shape shape, uint32_t args, const fleet_grid *last)
{
    char text[24];
    fleet_grid grid;
    snprintf(text, sizeof text, "%s.%u", name, number);
    grid = fleet_call_device(g, text, tile, shape, args);
    if (last) fleet_after(g, grid, *last);
    return grid;
}
static fleet_graph *prompt_graph(uint32_t workers)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_grid last;
    for (uint32_t i = 0; i < LAYERS; i++) {
        last = then(g, "gate", i, serving_gate, fleet_shape0(), i, i ? &last : NULL);
        last = then(g, "layer", i, serving_share, fleet_shape1(fleet_dim_of((int32_t)workers)), i,
                    &last);
    }
    then(g, "boundary", 0, serving_boundary, fleet_shape0(), 0, &last);
    return g;
}
static fleet_graph *decode_graph(uint32_t workers)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim rows = fleet_symbol(g, "rows", 0, DECODE_ROWS);
    const fleet_dim help = fleet_symbol(g, "help", 0, (int32_t)workers);
    const fleet_grid helps = then(g, "help", 0, serving_share, fleet_shape1(help), LAYERS, NULL);
    fleet_grid last = helps;
    for (uint32_t i = 0; i < LAYERS; i++) {
        if (i) {
            last = then(g, "gate", i, serving_gate, fleet_shape0(), LAYERS + i, &last);
            fleet_symbol_cutter(g, rows, last);
        }
        last =
            then(g, "decode", i, serving_decode, fleet_shape1(rows), LAYERS + i, i ? &last : NULL);
    }
    last = then(g, "boundary", 1, serving_boundary, fleet_shape0(), LAYERS, &last);
    fleet_after(g, last, helps);
    fleet_symbol_writer(g, rows, last);
    fleet_symbol_writer(g, help, last);
    return g;
}

typedef struct stand {
    fleet_plan *plan; /* of pool 1 */
    fleet_image image;
    fleet_state state;
    fleet_session s; /* pool 0 */
    clients c;
    serving args[POOLS * LAYERS];
    uint32_t n_args; /* of the graphs of its launch */
    fleet_status status;
    fleet_host_stats stats;
} stand;

static void *launch(void *argument)
{
    stand *o = (stand *)argument;
    fleet_session_run(&o->s, o->args, o->n_args * sizeof *o->args);
    o->status = fleet_session_wait(&o->s);
    fleet_server_ended(&o->c.server, o->status);
    return NULL;
}

static uint32_t units_of(const setting *s)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->topology.chiplets; k++) n += s->topology.units[k];
    return n;
}

/* beside: whether the launch has the second state. */
static int stand_open(test_run *t, stand *o, const setting *s, uint32_t beside)
{
    const uint32_t words = REQUESTS * GENERATIONS * LONGEST * LAYERS;
    fleet_session_desc session = fleet_session_desc_default();
    fleet_server_desc d = fleet_server_desc_default();
    fleet_plan_desc plan;
    setting pools[POOLS];
    fleet_graph *g;
    memset(o, 0, sizeof *o);
    o->n_args = beside ? POOLS * LAYERS : LAYERS;
    setting_pools(s, pools);
    clients_init(&o->c, s->seed);
    d.requests = REQUESTS, d.reactive_requests = 2, d.events = 2;
    d.pages = PAGES, d.page_tokens = PAGE_TOKENS, d.reactive_pages = 8;
    d.prompt_tokens = d.sequence_tokens = LONGEST;
    d.decode_rows = DECODE_ROWS, d.chunk_rows = CHUNK_ROWS, d.layers = LAYERS;
    d.pools = POOLS;
    d.policy = s->seed % 5 ? FLEET_POLICY_AGENT : FLEET_POLICY_FIFO;
    d.suspend_decode = s->seed % 2;
    d.age_ticks = s->seed % 3 ? 0 : 200000;
    NEED_STATUS(fleet_server_create(&o->c.server, &d, NULL), FLEET_OK);
    if (beside) {
        fleet_state_desc state = setting_state_desc(s);
        plan = setting_plan_desc(&pools[1]);
        g = decode_graph(units_of(&pools[1]));
        if (fleet_plan_build(g, &plan, &o->plan))
            test_fail(t, __FILE__, __LINE__, "%s", fleet_graph_error(g));
        fleet_graph_destroy(g);
        NEED(o->plan);
        NEED_STATUS(fleet_upload(&o->image, o->plan, NULL), FLEET_OK);
        NEED_STATUS(fleet_state_create(&o->state, &o->image, &state, NULL), FLEET_OK);
    }
    session.plan = setting_plan_desc(&pools[0]);
    session.state = setting_state_desc(s);
    session.state.beside = beside ? &o->state : NULL;
    session.launch = setting_launch_desc(s);
    session.launch.steps = FLEET_STEPS_ENDLESS;
    session.launch.finish = 1;
#if defined(FLEET_MEMORY_MODEL)
    session.launch.host.engine = FLEET_ENGINE_DETERMINISTIC;
    session.launch.host.memory_model = 1;
#endif
    session.launch.host.stats = &o->stats;
    g = prompt_graph(units_of(&pools[0]));
    if (fleet_session_open(&o->s, g, &session, FLEET_KERNEL_OF(serving_kernel)))
        test_fail(t, __FILE__, __LINE__, "%s: %s", fleet_graph_error(g), o->s.message);
    fleet_graph_destroy(g);
    o->args[0].table = o->c.server.table;
    o->args[0].cells = (uint32_t *)fleet_session_alloc(&o->s, LAYERS * PAGES * PAGE_TOKENS * 4);
    o->args[0].x = (uint32_t *)fleet_session_alloc(&o->s, (DECODE_ROWS + 2 * CHUNK_ROWS) * 4);
    o->args[0].runs = (uint32_t *)fleet_session_alloc(&o->s, words * 4);
    o->args[0].steps = (uint32_t *)fleet_session_alloc(&o->s, (POOLS + LAYERS + 1) * 4);
    NEED(o->args[0].runs && o->args[0].steps);
    o->args[0].helped = o->args[0].steps + POOLS;
    o->args[0].broken = o->args[0].helped + LAYERS;
    o->args[0].helpers = units_of(&pools[1]);
    NEED_STATUS(fleet_device_clear(o->args[0].steps, (POOLS + LAYERS + 1) * 4, NULL), FLEET_OK);
    NEED_STATUS(fleet_device_clear(o->args[0].runs, words * 4, NULL), FLEET_OK);
    for (uint32_t i = 1; i < POOLS * LAYERS; i++)
        o->args[i] = o->args[0], o->args[i].layer = i % LAYERS, o->args[i].pool = i / LAYERS;
    return 1;
}
static void stand_close(stand *o)
{
    fleet_session_close(&o->s);
    fleet_state_free(&o->state);
    fleet_image_free(&o->image);
    fleet_plan_free(o->plan);
    fleet_server_free(&o->c.server);
}

/* No row has run twice in a layer, and pool 1 has run none in a layer that was not lent. */
static void check_runs(test_run *t, const stand *o, uint32_t helped[LAYERS])
{
    uint32_t counts[POOLS + LAYERS + 1];
    const uint32_t words = REQUESTS * GENERATIONS * LONGEST * LAYERS;
    uint32_t *runs = (uint32_t *)malloc(words * 4), twice = 0;
    CHECK_STATUS(fleet_to_host(runs, o->args[0].runs, words * 4, NULL), FLEET_OK);
    for (uint32_t i = 0; i < words; i++) twice += runs[i] > 1;
    free(runs);
    CHECK_INT(twice, 0);
    CHECK_STATUS(fleet_to_host(counts, o->args[0].steps, sizeof counts, NULL), FLEET_OK);
    CHECK(counts[0] && counts[1]);
    CHECK_INT(counts[POOLS + LAYERS], 0);
    for (uint32_t l = 0; helped && l < LAYERS; l++) helped[l] += counts[POOLS + l];
}

typedef struct way {
    uint32_t end;
    uint32_t helped[LAYERS];
} way;

static void serve_in(test_run *t, const setting *s, void *user)
{
    static stand o;
    way *w = (way *)user;
    fleet_server_stats stats;
    if (!stand_open(t, &o, s, 1)) return;
    if (!serve_jobs(t, &o.c, w->end, launch, &o.s.state, &o)) return;
    if (o.status != (w->end == ABORT ? FLEET_ERROR_ABORTED : FLEET_OK)) {
        static char report[4096];
        fleet_session_report(&o.s, report, sizeof report);
        test_fail(t, __FILE__, __LINE__, "%s", report);
        return;
    }
    for (uint32_t i = 0; i < JOBS; i++) {
        const job *j = &o.c.jobs[i];
        if (w->end == ABORT && j->ended == 1 + FLEET_EVENT_FAILED) continue;
        if (!is_right(j))
            test_fail(t, __FILE__, __LINE__, "request %u: %u tokens, end %u", i, j->n, j->ended);
        if (w->end == DRAIN && i % 7 != 3) CHECK_INT(j->ended, 1 + FLEET_EVENT_FINISHED);
    }
    check_runs(t, &o, w->helped);
    CHECK_INT(o.stats.findings, 0);
    fleet_server_stats_read(&o.c.server, &stats);
    if (w->end != ABORT) CHECK_INT(stats.pages_available, PAGES);
    if (w->end == ABORT) { /* the states recover, the server is reset, and serves again */
        CHECK_STATUS(fleet_state_recover(&o.s.state, NULL), FLEET_OK);
        CHECK_STATUS(fleet_server_reset(&o.c.server, NULL), FLEET_OK);
        for (uint32_t i = 0; i < JOBS; i++)
            o.c.jobs[i].n = o.c.jobs[i].ended = 0, o.c.jobs[i].id = 0;
        o.c.late = 0;
        if (!serve_jobs(t, &o.c, DRAIN, launch, &o.s.state, &o)) return;
        CHECK_STATUS(o.status, FLEET_OK);
        for (uint32_t i = 0; i < JOBS; i++) CHECK(is_right(&o.c.jobs[i]));
    }
    stand_close(&o);
}
static void requests_of_both_classes_are_served_by_two_pools(test_run *t)
{
    way w;
    setting s;
    memset(&w, 0, sizeof w);
    w.end = DRAIN;
    for (uint32_t i = 0; setting_get(i, deep() ? 12 : 3, &s) && !t->failed_here; i++) {
        if (setting_skipped(i)) continue;
        serve_in(t, &s, &w); /* all together show that pool 1 helps in each layer */
        if (t->failed_here) setting_print(&s);
    }
    for (uint32_t l = 0; l < LAYERS; l++) CHECK(w.helped[l]);
}
static void both_pools_stop_while_requests_run(test_run *t)
{
    way w;
    memset(&w, 0, sizeof w);
    w.end = STOP;
    in_settings(t, deep() ? 12 : 1, serve_in, &w);
}
static void abort_ends_both_pools_and_they_serve_again(test_run *t)
{
    way w;
    memset(&w, 0, sizeof w);
    w.end = ABORT;
    in_settings(t, deep() ? 4 : 1, serve_in, &w);
}

/* A request that decodes has no room for events: pool 1 helps with the prompt of another one. In a layer of that, the
   host makes room: the next layer is not lent. */
static void release_in(test_run *t, const setting *s, void *user)
{
    static stand o;
    setting agent = *s;
    pthread_t thread;
    agent.seed = 15 * s->seed + 1; /* the policy agent, and none is aged (stand_open) */
    for (uint32_t layer = 0; layer + 1 < LAYERS && !t->failed_here; layer++) {
        fleet_server_event held[2], e;
        fleet_ticket ticket;
        fleet_request r;
        release hook;
        uint32_t ended = 0;
        if (!stand_open(t, &o, &agent, 1)) return;
        memset(&hook, 0, sizeof hook);
        hook.server = &o.c.server, hook.held = held, hook.n = 2, hook.layer = layer,
        hook.at = LAYERS;
        for (uint32_t i = 0; i < POOLS * LAYERS; i++) o.args[i].release = &hook;
        for (uint32_t i = 0; i < 2; i++) {
            job *j = &o.c.jobs[i];
            for (uint32_t k = 0; k < LONGEST; k++) j->prompt[k] = mix(i + 1, k) % 1000;
            j->prompt_tokens = i ? CHUNK_ROWS : 2, j->max_tokens = i ? 1 : 4;
        }
        hook.slot = FLEET_NONE; /* until the second one is submitted */
        r.priority = FLEET_REACTIVE, r.words = NULL;
        r.prompt = o.c.jobs[0].prompt, r.prompt_tokens = 2, r.max_tokens = 4;
        CHECK_STATUS(fleet_server_submit(&o.c.server, &r, &ticket), FLEET_OK);
        o.c.jobs[0].id = ticket.id;
        CHECK(!pthread_create(&thread, NULL, launch, &o));
        for (uint32_t n = 0; n < 2;) {
            if (!fleet_server_poll(&o.c.server, &held[n]))
                pause_us(50);
            else
                o.c.jobs[0].tokens[o.c.jobs[0].n++] = held[n].token, n++;
        }
        pause_us(20000); /* mostly it has computed its third token then, which waits */
        r.prompt = o.c.jobs[1].prompt, r.prompt_tokens = CHUNK_ROWS, r.max_tokens = 1;
        hook.slot = 1; /* reactive requests have slots 0 and 1 */
        CHECK_STATUS(fleet_server_submit(&o.c.server, &r, &ticket), FLEET_OK);
        o.c.jobs[1].id = ticket.id;
        while (ended < 2 && !t->failed_here) {
            job *j;
            if (!fleet_server_poll(&o.c.server, &e)) {
                pause_us(50);
                continue;
            }
            j = &o.c.jobs[e.id == o.c.jobs[1].id];
            if (e.kind == FLEET_EVENT_TOKEN)
                j->tokens[j->n++] = e.token, fleet_server_release(&o.c.server, &e);
            else
                j->ended = 1 + (uint32_t)e.kind, ended++;
            if (j == &o.c.jobs[1] && j->ended && hook.at == LAYERS) /* no layer was lent */
                for (uint32_t i = 0; i < 2; i++) fleet_server_release(&o.c.server, &held[i]);
        }
        fleet_server_stop(&o.c.server, 1);
        pthread_join(thread, NULL);
        CHECK_STATUS(o.status, FLEET_OK);
        if (hook.at + 1 < LAYERS) {
            CHECK_INT(hook.lent[hook.at + 1], 1);
            ++*(uint32_t *)user;
        }
        CHECK(is_right(&o.c.jobs[0]) && is_right(&o.c.jobs[1]));
        check_runs(t, &o, NULL);
        stand_close(&o);
    }
}
static void decode_gets_its_chiplets_at_the_next_layer(test_run *t)
{
    uint32_t found = 0;
    in_settings(t, 1, release_in, &found);
    CHECK(found);
}

/* In a launch of one state pool 1 would have no boundaries. */
static void alone_in(test_run *t, const setting *s, void *user)
{
    static stand o;
    fleet_failure f;
    (void)user;
    if (!stand_open(t, &o, s, 0)) return;
    launch(&o);
    CHECK_STATUS(o.status, FLEET_ERROR_TILE);
    CHECK_INT(fleet_state_failure(&o.s.state, &f), 1);
    CHECK_INT(f.tile_status, FLEET_ERROR_UNSUPPORTED);
    stand_close(&o);
}
static void two_pools_need_two_states(test_run *t)
{
    in_settings(t, 1, alone_in, NULL);
}

static void all(test_run *t)
{
    TEST(two_pools_need_two_states);
    TEST(decode_gets_its_chiplets_at_the_next_layer);
    TEST(requests_of_both_classes_are_served_by_two_pools);
    TEST(both_pools_stop_while_requests_run);
    TEST(abort_ends_both_pools_and_they_serve_again);
}
TEST_MAIN(all)
