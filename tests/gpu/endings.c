/* Each loop on the device that may turn for ever (LOOPS in fleet_device.h) is entered, and what it waits for never comes: an
   abort, the limit of a launch, or its last step ends it. A launch that does not end fails its test, and ends the program. */
// run: asan engine=both whole
// run: tsan whole
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* usleep */
#endif
#include "settings.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#define PATIENCE_NS 60000000000ull /* on a loaded machine, or a simulated one */
#define LIMIT_NS 200000000ull
#define AT_MOST 4

typedef struct job { /* what every tile sees */
    const uint32_t *weights;
    uint32_t
        *runs; /* [0] of `take`, [1] of other tiles, [2] of the writer: stored by one thread each */
    uint32_t last;         /* the step that ends the run; 0: none does */
    const uint32_t *never; /* a word of the host's that does not change */
} job;

FLEET_DEVICE fleet_status ran(const fleet_ctx *ctx, const job *args, uint32_t which)
{
    if (ctx->thread == 0) fleet_add_relaxed_device(args->runs + which, 1);
    return args->last && ctx->step + 1 == args->last ? fleet_finish(ctx) : FLEET_OK;
}
FLEET_PRODUCER(take, job)
{
    FLEET_UNUSED(at);
    fleet_producer_copy(producer, args->weights, 16);
}
FLEET_TILE(take, job)
{
    fleet_consumer consumer = fleet_consumer_open(&ctx);
    if (!fleet_stage_acquire(&consumer)) return fleet_consumer_status(&consumer);
    fleet_stage_release(&consumer, ctx.threads / fleet_wave_size());
    return ran(&ctx, args, 0);
}
FLEET_TILE(other, job)
{
    return ran(&ctx, args, 1);
}
#define JOB_TILES(TILE, P) TILE(P, take) TILE(P, other)
#define JOB_STREAMS(TILE, P) TILE(P, take)
FLEET_DISPATCH_WITH_PIPELINE(job, JOB_TILES, JOB_STREAMS, 4, 1024)
FLEET_KERNEL(job_kernel, job, 128)
{
    FLEET_WORKER_LOOP(job);
}

typedef struct stand {
    fleet_session s;
    job args;
    void *weights, *runs;
    fleet_status status;
    uint32_t over;
    pthread_t thread;
} stand;

static int stand_open(test_run *t, stand *o, const setting *setting, fleet_graph *g,
                      const fleet_session_desc *desc)
{
    fleet_session_desc d = *desc;
    memset(o, 0, sizeof *o);
    d.state = setting_state_desc(setting);
    NEED_STATUS(fleet_session_open(&o->s, g, &d, FLEET_KERNEL_OF(job_kernel)), FLEET_OK);
    fleet_graph_destroy(g);
    NEED_STATUS(fleet_device_alloc(&o->weights, 1024), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&o->runs, 256), FLEET_OK);
    NEED_STATUS(fleet_device_clear(o->weights, 1024, NULL), FLEET_OK);
    NEED_STATUS(fleet_device_clear(o->runs, 256, NULL), FLEET_OK);
    o->args.weights = (const uint32_t *)o->weights;
    o->args.runs = (uint32_t *)o->runs;
    return 1;
}
static void stand_close(stand *o)
{
    fleet_session_close(&o->s);
    fleet_device_free(o->weights);
    fleet_device_free(o->runs);
}
static fleet_session_desc desc_of(const setting *s)
{
    fleet_session_desc d = fleet_session_desc_default();
    d.plan = setting_plan_desc(s);
    d.launch = setting_launch_desc(s);
    d.launch.threads = 0;
    return d;
}

static void *stand_thread(void *stand_)
{
    stand *o = (stand *)stand_;
    o->status = fleet_session_run(&o->s, &o->args, sizeof o->args);
    if (!o->status) o->status = fleet_session_wait(&o->s);
    __atomic_store_n(&o->over, 1, __ATOMIC_RELEASE);
    return NULL;
}
static int stand_over(const stand *o)
{
    return __atomic_load_n(&o->over, __ATOMIC_ACQUIRE) != 0;
}

static void does_not_end(test_run *t, const setting *s)
{
    test_fail(t, __FILE__, __LINE__, "the run does not end");
    setting_print(s);
    fflush(stdout);
    _exit(1);
}

/* The ends of a run. */
typedef enum ending { LAST_STEP, ABORT, LIMIT, ENDINGS } ending;

/* Runs until it ends; aborts it after a while. Returns 0 if it did not end as it should. */
static int stand_ends(test_run *t, const setting *s, stand *o, ending how, uint64_t after_ns,
                      fleet_status want)
{
    const uint64_t since = now_ns();
    int asked = how != ABORT;
    o->over = 0;
    NEED(!pthread_create(&o->thread, NULL, stand_thread, o));
    while (!stand_over(o)) {
        const uint64_t passed = now_ns() - since;
        if (!asked && passed >= after_ns) {
            fleet_state_abort(&o->s.state);
            asked = 1;
        }
        if (passed > PATIENCE_NS) does_not_end(t, s);
        usleep(200);
    }
    pthread_join(o->thread, NULL);
    NEED_STATUS(o->status, want);
    if (want) NEED_STATUS(fleet_state_recover(&o->s.state, NULL), FLEET_OK);
    return 1;
}

/* ---- endless launches without work ---- */

typedef enum lack {
    NO_LACK,
    BELOW_THE_BUCKET, /* all but one task of each grid are absent: a worker has none of those */
    NONE_PRESENT,     /* all are absent but the one that counts steps */
    NO_TASK,          /* all are absent */
    WAVES_ALONE,      /* only the first worker has a task with stages */
    LACKS
} lack;

/* A launch whose producers have nothing to do on most workers. */
static void run_lacking(test_run *t, const setting *s, void *lack_)
{
    const lack kind = *(const lack *)lack_;
    fleet_session_desc d = desc_of(s);
    fleet_graph *g = fleet_graph_create(NULL);
    const int64_t most = AT_MOST * 8;
    const fleet_dim rows = fleet_symbol(g, "n", 0, (int32_t)most);
    fleet_grid more, steps;
    stand o;
    uint32_t how;
    fleet_grid takes = fleet_call_device(
        g, "take", job_take, kind == WAVES_ALONE ? fleet_shape1_of(1) : fleet_shape1(rows), 0);
    setting_mix(s, g, takes, 0);
    more = fleet_call_device(
        g, "other", job_other,
        kind >= NONE_PRESENT && kind <= NO_TASK ? fleet_shape1(rows) : fleet_shape1_of(AT_MOST), 0);
    if (kind == WAVES_ALONE) fleet_grid_level(g, more, FLEET_LEVEL_WAVE);
    if (kind == NONE_PRESENT) {
        steps = fleet_call_device(g, "steps", job_other, fleet_shape1_of(1), 0);
        (void)steps;
    }
    fleet_buckets_at_build(&d.plan, rows, &most, 1);
    d.launch.steps = FLEET_STEPS_ENDLESS;
    d.launch.finish = 1;
    d.launch.limit_ns = PATIENCE_NS;
    if (!stand_open(t, &o, s, g, &d)) return;
    CHECK_STATUS(fleet_bind(&o.s.state, "n",
                            kind == NO_LACK        ? most
                            : kind >= NONE_PRESENT ? 0
                                                   : 1,
                            NULL),
                 FLEET_OK);
    for (how = kind == NO_TASK ? ABORT : LAST_STEP; how <= ABORT; how++) {
        o.args.last = how == LAST_STEP ? 3 : 0;
        if (!stand_ends(t, s, &o, (ending)how, 3000000,
                        how == ABORT ? FLEET_ERROR_ABORTED : FLEET_OK))
            return;
        if (how == LAST_STEP) CHECK_INT(fleet_state_epoch(&o.s.state), 3);
        if (s->schedule == FLEET_SCHEDULE_STATIC) o.s.launch.steps = 100000000;
    }
    stand_close(&o);
}
static void endless_without_work(test_run *t)
{
    uint32_t kind;
    for (kind = 0; kind < LACKS && !t->failed_here; kind++) {
        lack l = (lack)kind;
        in_settings(t, 3, run_lacking, &l);
        if (t->failed_here) printf("    lack %u\n", kind);
    }
}

/* ---- a server whose host does not do its part ---- */

typedef struct serving {
    fleet_table *table;
} serving;
FLEET_TILE(row, serving)
{
    const fleet_row r =
        fleet_batch_row(fleet_table_batch(args->table, 0, ctx.epoch), (uint32_t)at[0], 0);
    if (ctx.thread == 0 && r.kind != FLEET_ROW_NONE && r.kind != FLEET_ROW_CHUNK)
        fleet_row_result(args->table, 0, ctx.epoch, (uint32_t)at[0], FLEET_RESULT_MORE,
                         r.position + 1);
    return FLEET_OK;
}
FLEET_TILE(boundary, serving)
{
    const fleet_batch *b = fleet_table_batch(args->table, 0, ctx.epoch + 1);
    const fleet_status status = fleet_server_next(&ctx, args->table, 0);
    return status ? status : fleet_next_symbol(&ctx, 0, (int32_t)(b->decode_rows + b->chunk_rows));
}
#define SERVING_TILES(TILE, P) TILE(P, row) TILE(P, boundary)
FLEET_MEGAKERNEL(serving, SERVING_TILES, 128)

#define CLIENTS 3u
#define TOKENS 300u
typedef struct service {
    stand o; /* of its launch */
    fleet_server server;
    serving args;
    uint64_t ids[CLIENTS];
    uint32_t next[CLIENTS]; /* token that is expected */
    uint32_t ended, lost;   /* requests; events that a dead reader had */
} service;

static void *service_thread(void *service_)
{
    service *v = (service *)service_;
    v->o.status = fleet_session_run(&v->o.s, &v->args, sizeof v->args);
    if (!v->o.status) v->o.status = fleet_session_wait(&v->o.s);
    fleet_server_ended(&v->server, v->o.status);
    __atomic_store_n(&v->o.over, 1, __ATOMIC_RELEASE);
    return NULL;
}
static int service_open(test_run *t, service *v, const setting *s)
{
    fleet_session_desc d = desc_of(s);
    fleet_server_desc server = fleet_server_desc_default();
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim rows = fleet_symbol(g, "rows", 0, 8);
    const fleet_grid all = fleet_call_device(g, "row", serving_row, fleet_shape1(rows), 0);
    const fleet_grid end = fleet_call_device(g, "boundary", serving_boundary, fleet_shape0(), 0);
    uint32_t prompt[2] = {1, 2}, i;
    fleet_after(g, end, all);
    fleet_symbol_writer(g, rows, end);
    memset(v, 0, sizeof *v);
    server.requests = 4, server.events = 8, server.decode_rows = server.chunk_rows = 4;
    server.policy = FLEET_POLICY_FIFO;
    NEED_STATUS(fleet_server_create(&v->server, &server, NULL), FLEET_OK);
    d.state = setting_state_desc(s);
    d.plan.workers_per_chiplet = 1;
    d.launch.steps = FLEET_STEPS_ENDLESS;
    NEED_STATUS(fleet_session_open(&v->o.s, g, &d, FLEET_KERNEL_OF(serving_kernel)), FLEET_OK);
    fleet_graph_destroy(g);
    v->args.table = v->server.table;
    for (i = 0; i < CLIENTS; i++) {
        fleet_request r;
        fleet_ticket ticket;
        memset(&r, 0, sizeof r);
        r.priority = FLEET_REACTIVE, r.prompt = prompt, r.prompt_tokens = 2;
        r.max_tokens = i ? TOKENS / 2 : TOKENS;
        NEED_STATUS(fleet_server_submit(&v->server, &r, &ticket), FLEET_OK);
        v->ids[i] = ticket.id;
    }
    return 1;
}
static int service_start(test_run *t, service *v)
{
    NEED(!pthread_create(&v->o.thread, NULL, service_thread, v));
    return 1;
}
/* Waits for the end of the launch. */
static int service_close(test_run *t, const setting *s, service *v, fleet_status want)
{
    const uint64_t since = now_ns();
    while (!stand_over(&v->o)) {
        if (now_ns() - since > PATIENCE_NS) does_not_end(t, s);
        usleep(200);
    }
    pthread_join(v->o.thread, NULL);
    fleet_session_close(&v->o.s);
    fleet_server_free(&v->server);
    NEED_STATUS(v->o.status, want);
    return 1;
}
/* Reads an event, if there is one, and releases it `releases` times, but those of client `holds`. */
static int service_read(test_run *t, service *v, uint32_t releases, uint32_t holds)
{
    fleet_server_event e;
    uint32_t i = 0;
    if (!fleet_server_poll(&v->server, &e)) return 0;
    while (i < CLIENTS && v->ids[i] != e.id) i++;
    NEED(i < CLIENTS);
    if (e.kind != FLEET_EVENT_TOKEN) {
        NEED_STATUS(e.status, FLEET_OK);
        NEED(e.kind == FLEET_EVENT_FINISHED);
        v->ended++;
        return 1;
    }
    NEED(v->lost ? e.index >= v->next[i] : e.index == v->next[i]);
    NEED(e.token == e.index + 2);
    v->next[i] = e.index + 1;
    for (; releases && i != holds; releases--) fleet_server_release(&v->server, &e);
    return 1;
}
/* Reads until all but the client that holds its events have ended. */
static int service_reads_all(test_run *t, const setting *s, service *v, uint32_t releases,
                             uint32_t holds)
{
    const uint32_t all = CLIENTS - (holds < CLIENTS);
    const uint64_t since = now_ns();
    while (v->ended < all) {
        if (!service_read(t, v, releases, holds)) sched_yield();
        if (t->failed_here) return 0;
        if (now_ns() - since > PATIENCE_NS) does_not_end(t, s);
    }
    return 1;
}

/* A second release gives no room, nor takes any: no event is lost, and the launch goes on while its host does not read. */
static void run_released_twice(test_run *t, const setting *s, void *unused)
{
    static service v;
    uint32_t read = 0;
    (void)unused;
    if (!service_open(t, &v, s) || !service_start(t, &v)) return;
    while (read < 60 && !t->failed_here) read += (uint32_t)service_read(t, &v, 2, CLIENTS);
    usleep(20000); /* the device sends what there is room for */
    if (!service_reads_all(t, s, &v, 2, CLIENTS)) return;
    CHECK(v.next[0] == TOKENS && v.next[1] == TOKENS / 2);
    fleet_server_stop(&v.server, 1);
    (void)service_close(t, s, &v, FLEET_OK);
}
/* A client that does not read holds up its own request alone. */
static void run_client_stalls(test_run *t, const setting *s, void *unused)
{
    static service v;
    (void)unused;
    if (!service_open(t, &v, s) || !service_start(t, &v)) return;
    if (!service_reads_all(t, s, &v, 1, 0)) return;
    fleet_state_abort(&v.o.s.state);
    (void)service_close(t, s, &v, FLEET_ERROR_ABORTED);
}
/* Threads that die inside of fleet_server_poll take an event each with them. */
static void run_readers_die(test_run *t, const setting *s, void *unused)
{
    static service v;
    uint32_t number = 0, read = 0;
    const uint64_t since = now_ns();
    (void)unused;
    if (!service_open(t, &v, s) || !service_start(t, &v)) return;
    while (v.lost < 3 && !t->failed_here) {
        if (now_ns() - since > PATIENCE_NS) does_not_end(t, s);
        if (read < 20 * (v.lost + 1))
            read += (uint32_t)service_read(t, &v, 1, CLIENTS);
        else if (fleeti_message_claim(&v.server.desk->events, 1, &number))
            v.lost++; /* all that such a thread has done */
    }
    if (!service_reads_all(t, s, &v, 1, CLIENTS)) return;
    CHECK(v.next[0] == TOKENS && v.next[1] == TOKENS / 2);
    fleet_state_abort(&v.o.s.state);
    (void)service_close(t, s, &v, FLEET_ERROR_ABORTED);
}
/* A ring that has no room, against all rules, holds up no boundary: it ends by an abort or a stop; or all goes on where there
   is room again. */
static void run_ring_is_full(test_run *t, const setting *s, void *how_)
{
    const uint32_t how = *(const uint32_t *)how_;
    static service v;
    uint64_t *popped;
    fleet_ring ring;
    if (!service_open(t, &v, s)) return;
    /* As if as many messages as there are slots had not been read. */
    popped = (uint64_t *)(void *)fleeti_message_popped(&v.server.desk->events);
    CHECK_STATUS(fleet_to_host(&ring, &v.server.table->events, sizeof ring, NULL), FLEET_OK);
    ring.position += ring.mask + 1;
    CHECK_STATUS(fleet_to_device(&v.server.table->events, &ring, sizeof ring, NULL), FLEET_OK);
    if (!service_start(t, &v)) return;
    usleep(10000);
    CHECK(!service_read(t, &v, 1, CLIENTS));
    if (how == 0) fleet_state_abort(&v.o.s.state);
    if (how == 1) fleet_server_stop(&v.server, 0);
    if (how == 2) {
        __atomic_store_n(popped, ring.position, __ATOMIC_RELEASE);
        fleeti_desk_changed(&v.server, 0);
        if (!service_reads_all(t, s, &v, 1, CLIENTS)) return;
        CHECK(v.next[0] == TOKENS && v.next[1] == TOKENS / 2);
        fleet_server_stop(&v.server, 1);
    }
    (void)service_close(t, s, &v, how ? FLEET_OK : FLEET_ERROR_ABORTED);
}
static void a_second_release_gives_no_room(test_run *t)
{
    in_settings(t, 1, run_released_twice, NULL);
}
static void a_client_that_stalls_holds_up_no_other(test_run *t)
{
    in_settings(t, 1, run_client_stalls, NULL);
}
static void readers_that_die_hold_up_nobody(test_run *t)
{
    in_settings(t, 1, run_readers_die, NULL);
}
static void no_boundary_waits_for_a_full_ring(test_run *t)
{
    uint32_t how;
    for (how = 0; how < 3 && !t->failed_here; how++) in_settings(t, 1, run_ring_is_full, &how);
}

static void all(test_run *t)
{
    TEST(endless_without_work);
    TEST(a_second_release_gives_no_room);
    TEST(a_client_that_stalls_holds_up_no_other);
    TEST(readers_that_die_hold_up_nobody);
    TEST(no_boundary_waits_for_a_full_ring);
}
TEST_MAIN(all)
