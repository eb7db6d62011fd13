/* A server with more requests than a wave has lanes to share them: each yields its own tokens, in order and once, whether it ends,
   fails, is cancelled, or waits for a client that reads slowly. */
// run: asan engine=both
// run: tsan
// hip: 3 runs
#include "settings.h"
#include "examples/parts/fleet_server.h"

#include <pthread.h>

#define ROWS 0
#define REQUESTS 48u
#define DECODE_ROWS 40u
#define CHUNK_ROWS 5u
#define LONGEST 72u
#define FEW_EVENTS                                                                                 \
    3u /* of a request that the host has not released: where some clients read slowly */
#define MANY_EVENTS 64u

typedef struct serving {
    fleet_table *table;
    uint32_t *most; /* decode rows of a batch */
} serving;

FLEET_HOST_DEVICE uint32_t mix(uint32_t x, uint32_t y)
{
    x = (x ^ y) * 0x9e3779b1u;
    return x ^ x >> 15;
}
/* What becomes of a token at a position: the next one, and whether it is the last one. */
FLEET_HOST_DEVICE uint32_t next_of(uint32_t token, uint32_t position, uint32_t *token_after)
{
    const uint32_t value = mix(token + 1, position);
    *token_after = value % 1000;
    return value % 997 == 3   ? FLEET_RESULT_END
           : value % 991 == 7 ? FLEET_RESULT_FAIL
                              : FLEET_RESULT_MORE;
}

FLEET_TILE(row, serving)
{
    const uint32_t i = (uint32_t)at[0];
    const fleet_batch *b = fleet_table_batch(args->table, 0, ctx.epoch);
    const fleet_row r = fleet_batch_row(b, i, 0);
    uint32_t token, result;
    if (ctx.thread != 0 || r.kind == FLEET_ROW_NONE || r.kind == FLEET_ROW_CHUNK) return FLEET_OK;
    result = next_of(fleet_row_token(args->table, r), r.position, &token);
    fleet_row_result(args->table, 0, ctx.epoch, i, result,
                     result == FLEET_RESULT_FAIL ? (uint32_t)FLEET_ERROR_ARGUMENT : token);
    return FLEET_OK;
}
FLEET_TILE(boundary, serving)
{
    const fleet_batch *b = fleet_table_batch(args->table, 0, ctx.epoch + 1);
    const fleet_status status = fleet_server_next(&ctx, args->table, 0);
    FLEET_UNUSED(at);
    if (ctx.thread == 0 && b->decode_rows > *args->most) *args->most = b->decode_rows;
    return status ? status
                  : fleet_next_symbol(&ctx, ROWS, (int32_t)(b->decode_rows + b->chunk_rows));
}
#define SERVING_TILES(TILE, P) TILE(P, row) TILE(P, boundary)
FLEET_MEGAKERNEL(serving, SERVING_TILES, FLEET_ANY_THREADS(128))

typedef struct job {
    uint64_t id;
    uint32_t prompt[LONGEST], prompt_tokens, max_tokens;
    uint32_t want[LONGEST], n_want, fails;
    uint32_t n, ended; /* tokens so far; 1 + fleet_event_kind */
    fleet_server_event held[FEW_EVENTS];
    uint32_t n_held;
} job;

typedef struct stand {
    fleet_session s;
    fleet_server server;
    serving args[1];
    job jobs[REQUESTS];
    fleet_status status;
} stand;

static void *launch(void *argument)
{
    stand *o = (stand *)argument;
    fleet_session_run(&o->s, o->args, sizeof o->args);
    o->status = fleet_session_wait(&o->s);
    fleet_server_ended(&o->server, o->status);
    return NULL;
}

/* Random lengths, and the tokens that come of them. */
static void job_init(job *j, uint32_t i, uint32_t seed)
{
    uint32_t position, result = FLEET_RESULT_MORE;
    /* A prompt a step: the first requests have to last until many decode. */
    j->prompt_tokens = 1 + mix(i, seed) % CHUNK_ROWS, j->max_tokens = 52 + mix(i + 500, seed) % 8;
    for (uint32_t k = 0; k < j->prompt_tokens; k++) j->prompt[k] = mix(i + 1, k + seed) % 1000;
    position = j->prompt_tokens - 1;
    while (result == FLEET_RESULT_MORE && j->n_want < j->max_tokens) {
        const uint32_t token = j->n_want ? j->want[j->n_want - 1] : j->prompt[position];
        result = next_of(token, position++, &j->want[j->n_want]);
        if (result == FLEET_RESULT_FAIL)
            j->fails = 1;
        else
            j->n_want++;
    }
}
static uint32_t is_cancelled(uint32_t i)
{
    return i % 9 == 4;
}
/* Whether the client keeps some events to itself for a while. */
static uint32_t is_slow(uint32_t i)
{
    return i % 4 == 1;
}

static void take_event(test_run *t, stand *o, const fleet_server_event *e, uint32_t *ended)
{
    uint32_t i = 0;
    job *j;
    while (i < REQUESTS && o->jobs[i].id != e->id) i++;
    CHECK(i < REQUESTS);
    if (t->failed_here) return;
    j = o->jobs + i;
    CHECK_INT(j->ended, 0);
    if (e->kind != FLEET_EVENT_TOKEN) {
        j->ended = 1 + (uint32_t)e->kind, ++*ended;
        CHECK_INT(e->index, j->n);
        if (e->kind == FLEET_EVENT_CANCELLED)
            CHECK(is_cancelled(i));
        else
            CHECK(j->n == j->n_want &&
                  e->kind == (j->fails ? FLEET_EVENT_FAILED : FLEET_EVENT_FINISHED));
        if (e->kind == FLEET_EVENT_FAILED) CHECK_STATUS(e->status, FLEET_ERROR_ARGUMENT);
        return;
    }
    CHECK(j->n < j->n_want && e->index == j->n && e->token == j->want[j->n]);
    if (t->failed_here) return;
    if (j->n++ == 0 && is_cancelled(i)) fleet_server_cancel(&o->server, j->id);
    j->held[j->n_held++] = *e;
    if (is_slow(i) && j->n_held < FEW_EVENTS && j->n < j->n_want) return;
    for (uint32_t k = 0; k < j->n_held; k++) fleet_server_release(&o->server, &j->held[k]);
    j->n_held = 0;
}

static int stand_open(test_run *t, stand *o, const setting *s, uint32_t events)
{
    fleet_session_desc session = fleet_session_desc_default();
    fleet_server_desc d = fleet_server_desc_default();
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim rows = fleet_symbol(g, "rows", 0, DECODE_ROWS + CHUNK_ROWS);
    const fleet_grid all = fleet_call_device(g, "row", serving_row, fleet_shape1(rows), 0);
    const fleet_grid end = fleet_call_device(g, "boundary", serving_boundary, fleet_shape0(), 0);
    fleet_after(g, end, all);
    fleet_symbol_writer(g, rows, end);
    memset(o, 0, sizeof *o);
    d.requests = REQUESTS, d.reactive_requests = 1, d.events = events;
    d.pages = 2000, d.page_tokens = 4, d.reactive_pages = 8;
    d.prompt_tokens = d.sequence_tokens = LONGEST;
    d.decode_rows = DECODE_ROWS, d.chunk_rows = CHUNK_ROWS;
    d.mixed_rows = DECODE_ROWS;
    d.policy = s->seed % 2 ? FLEET_POLICY_AGENT : FLEET_POLICY_FIFO;
    NEED_STATUS(fleet_server_create(&o->server, &d, NULL), FLEET_OK);
    session.plan = setting_plan_desc(s);
    session.plan.workers_per_chiplet =
        1; /* the boundary is tested; a simulator is slow with more */
    session.state = setting_state_desc(s);
    session.launch = setting_launch_desc(s);
    session.launch.steps = FLEET_STEPS_ENDLESS;
    session.launch.finish = 1;
    if (fleet_session_open(&o->s, g, &session, FLEET_KERNEL_OF(serving_kernel)))
        test_fail(t, __FILE__, __LINE__, "%s: %s", fleet_graph_error(g), o->s.message);
    fleet_graph_destroy(g);
    o->args[0].table = o->server.table;
    o->args[0].most = (uint32_t *)fleet_session_alloc(&o->s, 4);
    NEED(o->args[0].most);
    NEED_STATUS(fleet_device_clear(o->args[0].most, 4, NULL), FLEET_OK);
    return !t->failed_here;
}

static void serve_in(test_run *t, const setting *s, void *user)
{
    static stand o;
    pthread_t thread;
    fleet_server_stats stats;
    uint32_t ended = 0, most = 0;
    const uint32_t events = *(const uint32_t *)user;
    if (!stand_open(t, &o, s, events)) return;
    for (uint32_t i = 0; i < REQUESTS; i++) {
        job *j = o.jobs + i;
        fleet_request r;
        fleet_ticket ticket;
        job_init(j, i, (uint32_t)s->seed);
        r.priority = i ? FLEET_PROACTIVE : FLEET_REACTIVE;
        r.prompt = j->prompt, r.words = NULL;
        r.prompt_tokens = j->prompt_tokens, r.max_tokens = j->max_tokens;
        CHECK_STATUS(fleet_server_submit(&o.server, &r, &ticket), FLEET_OK);
        j->id = ticket.id;
    }
    if (pthread_create(&thread, NULL, launch, &o)) test_fail(t, __FILE__, __LINE__, "no thread");
    while (ended < REQUESTS && !t->failed_here) {
        fleet_server_event e;
        if (fleet_server_poll(&o.server, &e)) take_event(t, &o, &e, &ended);
    }
    fleet_server_stop(&o.server, !t->failed_here);
    pthread_join(thread, NULL);
    CHECK_STATUS(o.status, FLEET_OK);
    fleet_server_stats_read(&o.server, &stats);
    CHECK_INT(stats.pages_available, 2000);
    for (uint32_t k = 0; k < 2; k++)
        CHECK_INT(stats.queued[k] + stats.prefill[k] + stats.decode[k], 0);
    CHECK_STATUS(fleet_to_host(&most, o.args[0].most, sizeof most, NULL), FLEET_OK);
    /* More than share a vote, unless requests wait for their clients. */
    if (events == MANY_EVENTS) CHECK(most > 32);
    fleet_session_close(&o.s);
    fleet_server_free(&o.server);
}
static void more_requests_than_lanes(test_run *t)
{
    uint32_t events = MANY_EVENTS;
    in_settings(t, deep() ? 8 : 1, serve_in, &events);
}
static void many_requests_wait_for_their_clients(test_run *t)
{
    uint32_t events = FEW_EVENTS;
    in_settings(t, deep() ? 8 : 1, serve_in, &events);
}

static void list(test_run *t)
{
    TEST(more_requests_than_lanes);
    TEST(many_requests_wait_for_their_clients);
}
TEST_MAIN(list)
