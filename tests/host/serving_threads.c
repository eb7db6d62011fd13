/* Several host threads with one server: each request has one last event, whichever of them polls, submits, cancels, ends or
   resets at that moment, and whichever is suspended or ends in one of these calls; ids of other servers and of former
   requests are refused. The "model" yields the token's position. */
// run: asan whole
// run: tsan whole
#include "../implementation.h"
#include "examples/parts/fleet_server.h"
#include "../test.h"

#include <pthread.h>
#include <sched.h>

static uint32_t prompt[64];
static uint32_t
    boundaries; /* after so many the launch ends by itself; 0: when it is told to stop */
static uint32_t step;

/* One wave that runs boundaries until the server stops. */
static uint32_t iterate(fleet_table *table)
{
    static uint64_t now;
    const uint32_t next = fleet_server_boundary(table, 0, ++step, now += 10);
    const fleet_batch *b = fleet_table_batch(table, 0, step);
    for (uint32_t i = 0; next == FLEET_SERVING_BATCH && i < b->decode_rows + b->chunk_rows; i++) {
        const fleet_row r = fleet_batch_row(b, i, 0);
        if (r.kind == FLEET_ROW_DECODE || r.kind == FLEET_ROW_LAST)
            fleet_row_result(table, 0, step, i, FLEET_RESULT_MORE, r.position);
    }
    return next;
}
FLEET_GLOBAL(1) void serve(fleet_table *table)
{
    for (uint32_t n = 1; iterate(table) != FLEET_SERVING_STOPPED && n != boundaries; n++) {
    }
}
FLEET_THUNK1(serve, fleet_table *)

static fleet_status launch(fleet_server *server)
{
    fleet_kernel_desc k = fleet_kernel_desc_default();
    void *args[1];
    args[0] = &server->table;
    k.blocks = k.threads = 1;
    return fleet_kernel_launch(FLEET_KERNEL_OF(serve), args, &k);
}
/* So many boundaries, and no more. */
static fleet_status launch_for(fleet_server *server, uint32_t n)
{
    fleet_status status;
    boundaries = n;
    status = launch(server);
    boundaries = 0;
    return status;
}

static fleet_status submit(fleet_server *server, fleet_class priority, uint32_t max_tokens,
                           uint64_t *id)
{
    fleet_request r;
    fleet_ticket ticket;
    fleet_status status;
    memset(&r, 0, sizeof r);
    r.priority = priority, r.prompt = prompt, r.prompt_tokens = 2, r.max_tokens = max_tokens;
    status = fleet_server_submit(server, &r, &ticket);
    *id = ticket.id;
    return status;
}
static fleet_server_desc small(void)
{
    fleet_server_desc d = fleet_server_desc_default();
    d.requests = 8, d.reactive_requests = 2, d.events = 2;
    d.pages = 64, d.page_tokens = 4, d.prompt_tokens = 8, d.sequence_tokens = 256;
    d.decode_rows = 8, d.chunk_rows = 8;
    return d;
}

/* ---- a thread that is suspended, call by call ---- */

/* Thread A has popped a request's last event and is suspended before it frees the slot; the launch ends, before or after
   that, and thread B polls. */
static void last_event_that_a_suspended_thread_has(test_run *t)
{
    const fleet_server_desc d = small();
    for (uint32_t before = 0; before < 2; before++) {
        fleet_server s;
        fleet_server_event e;
        fleeti_notice n;
        uint64_t id, other, number;
        CHECK_INT(fleet_server_create(&s, &d, NULL), FLEET_OK);
        CHECK_INT(submit(&s, FLEET_PROACTIVE, 1, &id), FLEET_OK);
        CHECK_INT(launch_for(&s, 3), FLEET_OK);
        if (!before) fleet_server_ended(&s, FLEET_OK);
        for (uint32_t k = 0; k < 2; k++) { /* as fleet_server_poll does */
            CHECK_INT(fleeti_message_read(&s.desk->events, &number, &n), 1);
            CHECK_INT(fleeti_message_move(&s.desk->events, 1, number, number), 1);
            fleeti_desk_note(&s, &n);
            CHECK_INT(fleeti_message_move(&s.desk->events, 1, number, number + 1), 1);
        }
        CHECK_INT(n.kind, FLEET_EVENT_FINISHED);
        if (before) fleet_server_ended(&s, FLEET_OK);
        CHECK_INT(fleet_server_poll(&s, &e), 0); /* B */
        CHECK_INT(fleet_server_reset(&s, NULL), FLEET_ERROR_BUSY);
        fleeti_free_slot((fleeti_desk_slot *)(void *)(s.desk + 1) + n.slot, n.generation); /* A */
        CHECK_INT(fleet_server_reset(&s, NULL), FLEET_OK);
        /* The slot is the next launch's. */
        CHECK_INT(submit(&s, FLEET_PROACTIVE, 1, &other), FLEET_OK);
        CHECK_INT((uint32_t)other, (uint32_t)id);
        CHECK(other != id);
        fleet_server_free(&s);
    }
}

/* A has seen that the launch has ended, and looks for what it has left when the next one runs. Or it has read an event, and
   pops when the next launch has sent others. */
static void thread_that_is_suspended_until_the_next_launch(test_run *t)
{
    const fleet_server_desc d = small();
    fleet_server s;
    fleet_server_event e;
    fleeti_notice old;
    uint64_t id, number, tokens = 0;
    CHECK_INT(fleet_server_create(&s, &d, NULL), FLEET_OK);
    CHECK_INT(submit(&s, FLEET_PROACTIVE, 1, &id), FLEET_OK);
    CHECK_INT(launch_for(&s, 3), FLEET_OK);
    CHECK_INT(fleeti_message_read(&s.desk->events, &number, &old), 1); /* A */
    fleet_server_ended(&s, FLEET_OK);
    while (fleet_server_poll(&s, &e)) tokens += e.kind == FLEET_EVENT_TOKEN;
    CHECK_INT(tokens, 1);
    CHECK_INT(fleet_server_reset(&s, NULL), FLEET_OK);
    CHECK_INT(submit(&s, FLEET_PROACTIVE, 1, &id), FLEET_OK);
    CHECK_INT(fleeti_poll_left(&s, &e), 0); /* A */
    CHECK_INT(launch_for(&s, 3), FLEET_OK);
    fleeti_desk_note(&s, &old);
    CHECK_INT(fleeti_message_move(&s.desk->events, 1, number, number + 1), 0); /* A */
    CHECK_INT(fleet_server_poll(&s, &e), 1);
    CHECK(e.id == id && e.kind == FLEET_EVENT_TOKEN);
    CHECK_INT(fleet_server_poll(&s, &e), 1);
    CHECK(e.id == id && e.kind == FLEET_EVENT_FINISHED && e.index == 1);
    fleet_server_free(&s);
}

/* A has seen an empty ring and that a launch has ended; then the next one sends a token, and ends without a last event. */
static void token_comes_before_the_event_of_a_request_that_is_left(test_run *t)
{
    const fleet_server_desc d = small();
    fleet_server s;
    fleet_server_event e;
    uint64_t id;
    CHECK_INT(fleet_server_create(&s, &d, NULL), FLEET_OK);
    CHECK_INT(submit(&s, FLEET_PROACTIVE, 9, &id), FLEET_OK);
    CHECK_INT(launch_for(&s, 2), FLEET_OK);
    fleet_server_ended(&s, FLEET_ERROR_TIMEOUT);
    CHECK_INT(fleeti_poll_left(&s, &e), 1); /* A */
    CHECK(e.id == id && e.kind == FLEET_EVENT_TOKEN && e.index == 0);
    CHECK_INT(fleet_server_poll(&s, &e), 1);
    CHECK(e.id == id && e.kind == FLEET_EVENT_FAILED && e.index == 1);
    CHECK_INT(fleet_server_poll(&s, &e), 0);
    fleet_server_free(&s);
}

/* A has submitted a request, and is suspended before it says so; the request ends, and B is in the middle of a reset. */
static void thread_that_is_suspended_until_a_reset(test_run *t)
{
    const fleet_server_desc d = small();
    fleet_server s;
    fleet_server_event e;
    fleeti_desk_slot *desk;
    uint64_t id;
    uint32_t generation;
    CHECK_INT(fleet_server_create(&s, &d, NULL), FLEET_OK);
    CHECK_INT(submit(&s, FLEET_PROACTIVE, 1, &id), FLEET_OK);
    CHECK_INT(launch_for(&s, 3), FLEET_OK);
    fleet_server_ended(&s, FLEET_OK);
    for (uint32_t n = 0; n < 2; n++) CHECK_INT(fleet_server_poll(&s, &e), 1);
    desk = (fleeti_desk_slot *)(void *)(s.desk + 1) + ((uint32_t)id - 1);
    generation = (uint32_t)(id >> 32);
    desk->state = fleeti_desk_state(generation, FLEETI_DESK_HELD, 0); /* B */
    fleeti_desk_move(desk, generation, FLEETI_DESK_TAKEN, FLEETI_DESK_SUBMITTED);
    fleeti_desk_move(desk, generation, FLEETI_DESK_SUBMITTED, FLEETI_DESK_LEFT);
    CHECK_INT(fleet_server_poll(&s, &e), 0);
    CHECK_INT(fleet_server_cancel(&s, id), FLEET_ERROR_GONE);
    fleeti_free_slot(desk, generation);
    CHECK_INT(fleet_server_reset(&s, NULL), FLEET_OK);
    fleet_server_free(&s);
}

/* A has taken a slot and is suspended before its message is in the ring; the launch ends. */
static void thread_that_is_suspended_while_it_submits(test_run *t)
{
    const fleet_server_desc d = small();
    fleet_server s;
    fleet_server_event e;
    fleeti_submission m;
    uint32_t generation;
    CHECK_INT(fleet_server_create(&s, &d, NULL), FLEET_OK);
    memset(&m, 0, sizeof m);
    m.slot = fleeti_take_slot(&s, FLEET_PROACTIVE, &generation);
    CHECK_INT(launch_for(&s, 1), FLEET_OK);
    fleet_server_ended(&s, FLEET_ERROR_TIMEOUT);
    CHECK_INT(fleet_server_poll(&s, &e), 0); /* it has no id yet */
    CHECK_INT(fleet_server_reset(&s, NULL), FLEET_ERROR_BUSY);
    m.generation = generation, m.priority = FLEET_PROACTIVE, m.prompt_tokens = m.max_tokens = 1;
    CHECK_INT(fleet_ring_push(&s.desk->submissions, &m), FLEET_OK);
    fleeti_desk_move((fleeti_desk_slot *)(void *)(s.desk + 1) + m.slot, generation,
                     FLEETI_DESK_TAKEN, FLEETI_DESK_LEFT);
    CHECK_INT(fleet_server_poll(&s, &e), 1);
    CHECK(e.kind == FLEET_EVENT_FAILED && e.status == FLEET_ERROR_TIMEOUT && e.index == 0);
    CHECK_INT(fleet_server_poll(&s, &e), 0);
    CHECK_INT(fleet_server_reset(&s, NULL), FLEET_OK);
    /* The next launch does not take it in. */
    CHECK_INT(launch_for(&s, 3), FLEET_OK);
    CHECK_INT(fleet_server_poll(&s, &e), 0);
    fleet_server_free(&s);
}

/* ---- readers that end ---- */

/* One dies in fleet_server_poll with an event. The others' requests go on for many times the ring's length. */
static void reader_that_dies_takes_its_own_event_with_it(test_run *t)
{
    const fleet_server_desc d = small();
    for (uint32_t last = 0; last < 2; last++) {
        fleet_server s;
        fleet_server_event e;
        uint64_t dead, lives, number;
        uint32_t n = 0, ended = 0, lost = 0;
        CHECK_INT(fleet_server_create(&s, &d, NULL), FLEET_OK);
        CHECK_INT(submit(&s, FLEET_PROACTIVE, last ? 1 : 9, &dead), FLEET_OK);
        CHECK_INT(launch_for(&s, 2), FLEET_OK);
        for (uint32_t k = 0; k <= last; k++) {
            fleeti_notice note;
            CHECK_INT(fleeti_message_read(&s.desk->events, &number, &note), 1);
            fleeti_desk_note(&s, &note);
            CHECK_INT(fleeti_message_move(&s.desk->events, 1, number, number + 1), 1);
        }
        CHECK_INT(submit(&s, FLEET_PROACTIVE, 150, &lives), FLEET_OK);
        for (uint32_t k = 0; k < 1000 && !ended; k++) {
            CHECK_INT(launch_for(&s, 1), FLEET_OK);
            while (fleet_server_poll(&s, &e)) {
                const uint32_t is_token = e.kind == FLEET_EVENT_TOKEN;
                if (e.id == dead) { /* its second token, and no other */
                    CHECK(is_token && e.index == 1);
                    lost++;
                    continue;
                }
                CHECK_INT(e.index, n);
                n += is_token, ended += !is_token;
                fleet_server_release(&s, &e);
            }
        }
        CHECK(ended == 1 && n == 150 && lost == !last);
        fleet_server_ended(&s, FLEET_ERROR_ABORTED);
        ended = 0;
        while (fleet_server_poll(&s, &e)) {
            CHECK(e.id == dead && e.kind == FLEET_EVENT_FAILED && e.index == 2);
            ended++;
        }
        CHECK_INT(ended, !last);
        CHECK_INT(fleet_server_reset(&s, NULL), last ? FLEET_ERROR_BUSY : FLEET_OK);
        fleet_server_free(&s);
    }
}

/* The ring has room for what was read: a host that releases twice gets no more. */
static void event_that_is_released_twice(test_run *t)
{
    const fleet_server_desc d = small();
    fleet_server s;
    fleet_server_event e;
    uint64_t id;
    uint32_t n = 0;
    CHECK_INT(fleet_server_create(&s, &d, NULL), FLEET_OK);
    CHECK_INT(submit(&s, FLEET_PROACTIVE, 100, &id), FLEET_OK);
    for (uint32_t k = 0; k < 20; k++) {
        CHECK_INT(launch_for(&s, 3), FLEET_OK);
        CHECK_INT(fleet_server_poll(&s, &e), 1);
        CHECK_INT(fleet_server_release(&s, &e), FLEET_OK);
        for (uint32_t again = 0; again < 5; again++)
            CHECK_INT(fleet_server_release(&s, &e), FLEET_ERROR_ARGUMENT);
    }
    CHECK_INT(launch_for(&s, 3), FLEET_OK);
    while (fleet_server_poll(&s, &e)) n++;
    CHECK_INT(n, d.events);
    fleet_server_free(&s);
}

/* ---- ids ---- */

static void id_of_another_server_or_request_is_refused(test_run *t)
{
    const fleet_server_desc d = small();
    fleet_server a, b;
    fleet_server_event e;
    uint64_t of_a, of_b, again;
    uint32_t n = 0;
    CHECK_INT(fleet_server_create(&a, &d, NULL), FLEET_OK);
    CHECK_INT(fleet_server_create(&b, &d, NULL), FLEET_OK);
    CHECK_INT(submit(&a, FLEET_PROACTIVE, 2, &of_a), FLEET_OK);
    CHECK_INT(submit(&b, FLEET_PROACTIVE, 2, &of_b), FLEET_OK);
    CHECK(of_a != of_b);
    CHECK_INT(fleet_server_cancel(&b, of_a), FLEET_ERROR_GONE);
    CHECK_INT(fleet_server_cancel(&b, 0), FLEET_ERROR_GONE);
    CHECK_INT(fleet_server_cancel(&b, of_b + 1), FLEET_ERROR_GONE);
    CHECK_INT(fleet_server_cancel(&b, ~(uint64_t)0), FLEET_ERROR_GONE);
    CHECK_INT(launch_for(&a, 4), FLEET_OK);
    CHECK_INT(fleet_server_poll(&a, &e), 1);
    CHECK_INT(fleet_server_release(&b, &e), FLEET_ERROR_GONE);
    CHECK_INT(fleet_server_release(&a, &e), FLEET_OK);
    CHECK_INT(launch_for(&b, 4), FLEET_OK);
    for (; fleet_server_poll(&b, &e); n++) CHECK(e.id == of_b && e.kind != FLEET_EVENT_CANCELLED);
    CHECK_INT(n, 3);
    CHECK_INT(fleet_server_cancel(&b, of_b), FLEET_ERROR_GONE); /* it has ended */
    CHECK_INT(submit(&b, FLEET_PROACTIVE, 2, &again), FLEET_OK);
    CHECK_INT((uint32_t)again, (uint32_t)of_b);
    CHECK_INT(fleet_server_cancel(&b, of_b), FLEET_ERROR_GONE);
    CHECK_INT(fleet_server_cancel(&b, again), FLEET_OK);
    fleet_server_free(&a), fleet_server_free(&b);
}

/* Slots of servers in the same memory, one after the other, and side by side. */
static void no_two_servers_give_the_same_ids(test_run *t)
{
    const fleet_server_desc d = small();
    const size_t bytes = fleet_server_bytes(&d), pinned = fleet_server_host_bytes(&d);
    enum { SERVERS = 64 };
    static uint64_t ids[SERVERS];
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    void *desk = aligned_alloc(256, (pinned + 255) / 256 * 256);
    CHECK(memory && desk);
    for (uint32_t i = 0; i < SERVERS && !t->failed_here; i++) {
        fleet_server s;
        CHECK_INT(fleet_server_init(&s, &d, memory, desk, desk, NULL), FLEET_OK);
        CHECK_INT(submit(&s, FLEET_PROACTIVE, 1, &ids[i]), FLEET_OK);
        for (uint32_t k = 0; k < i; k++) CHECK(ids[k] != ids[i]);
        fleet_server_free(&s);
    }
    free(memory), free(desk);
}

/* ---- all at once ---- */

#define SUBMITTERS 2u
#define POLLERS 3u
#define PER_ROUND 40u /* requests of a submitter in a launch */
#define ROUNDS 4u
#define RECORDS (ROUNDS * SUBMITTERS * PER_ROUND)

typedef struct storm {
    test_run *t;
    fleet_server server, other;
    uint64_t seed;
    uint64_t ids[RECORDS];
    uint32_t submitted, last, cancelled_foreign, stopping;
    uint32_t tokens[RECORDS], lasts[RECORDS], index[RECORDS]; /* by what was polled */
    uint32_t submitting, over, ended, unknown;
    fleet_status status;
} storm;
typedef struct worker {
    storm *s;
    uint64_t random;
} worker;

static uint32_t draw(uint64_t *random, uint32_t n)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*random >> 33) % n;
}

/* A request is known as soon as its id is in the list, which may be after its last event was polled. */
static uint32_t record_of(storm *s, uint64_t id)
{
    for (;;) {
        const uint32_t n = __atomic_load_n(&s->submitted, __ATOMIC_ACQUIRE);
        for (uint32_t i = 0; i < n && i < RECORDS; i++)
            if (__atomic_load_n(&s->ids[i], __ATOMIC_ACQUIRE) == id) return i;
        sched_yield();
    }
}

static void *submits(void *argument)
{
    worker *w = (worker *)argument;
    storm *s = w->s;
    for (uint32_t i = 0; i < PER_ROUND;) {
        uint64_t id;
        const fleet_status status =
            submit(&s->server, (fleet_class)draw(&w->random, 2), 1 + draw(&w->random, 5), &id);
        if (status == FLEET_OK) {
            const uint32_t at = __atomic_fetch_add(&s->submitted, 1, __ATOMIC_ACQ_REL);
            __atomic_store_n(&s->ids[at], id, __ATOMIC_RELEASE);
            i++;
        } else if (status == FLEET_ERROR_BUSY) {
            sched_yield();
        } else {
            break; /* it was stopped, or has ended */
        }
    }
    __atomic_fetch_sub(&s->submitting, 1, __ATOMIC_ACQ_REL);
    return NULL;
}

static void *polls(void *argument)
{
    worker *w = (worker *)argument;
    storm *s = w->s;
    while (!__atomic_load_n(&s->over, __ATOMIC_ACQUIRE)) {
        fleet_server_event e;
        uint32_t at;
        if (__atomic_load_n(&s->ended, __ATOMIC_ACQUIRE) && !draw(&w->random, 20))
            fleet_server_ended(&s->server, s->status);
        if (!fleet_server_poll(&s->server, &e)) {
            sched_yield();
            continue;
        }
        at = record_of(s, e.id);
        if (e.kind == FLEET_EVENT_TOKEN) {
            __atomic_fetch_add(&s->tokens[at], 1, __ATOMIC_ACQ_REL);
            if (draw(&w->random, 2)) sched_yield();
            fleet_server_release(&s->server, &e);
            if (!draw(&w->random, 4)) fleet_server_release(&s->server, &e);
        } else {
            __atomic_store_n(&s->index[at], e.index, __ATOMIC_RELAXED);
            __atomic_fetch_add(&s->lasts[at], 1, __ATOMIC_ACQ_REL);
            __atomic_fetch_add(&s->last, 1, __ATOMIC_ACQ_REL);
        }
    }
    return NULL;
}

static void *cancels(void *argument)
{
    worker *w = (worker *)argument;
    storm *s = w->s;
    while (!__atomic_load_n(&s->over, __ATOMIC_ACQUIRE)) {
        const uint32_t n = __atomic_load_n(&s->submitted, __ATOMIC_ACQUIRE);
        const uint64_t id = n ? __atomic_load_n(&s->ids[draw(&w->random, n)], __ATOMIC_ACQUIRE) : 0;
        if (id && !draw(&w->random, 3)) fleet_server_cancel(&s->server, id);
        if (id && fleet_server_cancel(&s->other, id) != FLEET_ERROR_GONE)
            __atomic_store_n(&s->cancelled_foreign, 1, __ATOMIC_RELAXED);
        sched_yield();
    }
    return NULL;
}

static void *runs(void *argument)
{
    storm *s = (storm *)argument;
    launch(&s->server);
    return NULL;
}

/* One launch, which is stopped, or ends by itself after some boundaries. */
static void storm_round(test_run *t, storm *s, uint64_t *random)
{
    worker w[SUBMITTERS];
    pthread_t threads[SUBMITTERS], kernel;
    const uint32_t way = draw(random, 3); /* 0: drain, 1: stop now, 2: it fails */
    const uint32_t before = s->submitted;
    __atomic_store_n(&s->submitting, SUBMITTERS, __ATOMIC_RELEASE);
    boundaries = way == 2 ? 1 + draw(random, 60) : 0;
    s->status = way == 2 ? FLEET_ERROR_TIMEOUT : FLEET_OK;
    CHECK(!pthread_create(&kernel, NULL, runs, s));
    for (uint32_t i = 0; i < SUBMITTERS; i++) {
        w[i].s = s, w[i].random = draw(random, 1u << 30);
        CHECK(!pthread_create(&threads[i], NULL, submits, &w[i]));
    }
    if (way != 2) {
        const uint32_t after = before + draw(random, 2 * SUBMITTERS * PER_ROUND);
        while (__atomic_load_n(&s->submitted, __ATOMIC_ACQUIRE) < after &&
               __atomic_load_n(&s->submitting, __ATOMIC_ACQUIRE))
            sched_yield();
        fleet_server_stop(&s->server, way == 0);
    }
    pthread_join(kernel, NULL);
    __atomic_store_n(&s->ended, 1, __ATOMIC_RELEASE);
    fleet_server_ended(&s->server, s->status);
    for (uint32_t i = 0; i < SUBMITTERS; i++) pthread_join(threads[i], NULL);
    while (__atomic_load_n(&s->last, __ATOMIC_ACQUIRE) < s->submitted) sched_yield();
    __atomic_store_n(&s->ended, 0, __ATOMIC_RELEASE);
    while (fleet_server_reset(&s->server, NULL) == FLEET_ERROR_BUSY) sched_yield();
}

static void storm_of(test_run *t, uint64_t seed)
{
    static storm s;
    fleet_server_desc d = small();
    worker w[POLLERS + 1];
    pthread_t threads[POLLERS + 1];
    uint64_t random = seed;
    memset(&s, 0, sizeof s);
    s.t = t, s.seed = seed;
    d.events = 1 + (uint32_t)seed % 3;
    CHECK_INT(fleet_server_create(&s.server, &d, NULL), FLEET_OK);
    CHECK_INT(fleet_server_create(&s.other, &d, NULL), FLEET_OK);
    for (uint32_t i = 0; i < d.requests; i++) {
        uint64_t id;
        CHECK_INT(submit(&s.other, FLEET_REACTIVE, 5, &id), FLEET_OK);
    }
    for (uint32_t i = 0; i <= POLLERS; i++) {
        w[i].s = &s, w[i].random = seed * 100 + i;
        CHECK(!pthread_create(&threads[i], NULL, i < POLLERS ? polls : cancels, &w[i]));
    }
    for (uint32_t round = 0; round < ROUNDS && !t->failed_here; round++)
        storm_round(t, &s, &random);
    __atomic_store_n(&s.over, 1, __ATOMIC_RELEASE);
    for (uint32_t i = 0; i <= POLLERS; i++) pthread_join(threads[i], NULL);
    CHECK(!s.cancelled_foreign);
    CHECK_INT(s.last, s.submitted);
    for (uint32_t i = 0; i < s.submitted; i++) {
        CHECK_INT(s.lasts[i], 1);
        CHECK_INT(s.tokens[i], s.index[i]);
    }
    fleet_server_free(&s.server), fleet_server_free(&s.other);
}
static void threads_in_each_others_way(test_run *t)
{
    const char *seed = getenv("FLEET_TEST_SEED");
    const uint64_t first = seed ? strtoull(seed, NULL, 0) : 1;
    const uint64_t n = seed ? 1 : getenv("FLEET_DEEP") ? 500 : 10;
    for (uint64_t i = first; i < first + n && !t->failed_here; i++) {
        storm_of(t, i);
        if (t->failed_here) printf("# FLEET_TEST_SEED=%llu\n", (unsigned long long)i);
    }
}

static void all(test_run *t)
{
    TEST(last_event_that_a_suspended_thread_has);
    TEST(thread_that_is_suspended_until_the_next_launch);
    TEST(token_comes_before_the_event_of_a_request_that_is_left);
    TEST(thread_that_is_suspended_until_a_reset);
    TEST(thread_that_is_suspended_while_it_submits);
    TEST(reader_that_dies_takes_its_own_event_with_it);
    TEST(event_that_is_released_twice);
    TEST(id_of_another_server_or_request_is_refused);
    TEST(no_two_servers_give_the_same_ids);
    TEST(threads_in_each_others_way);
}
TEST_MAIN(all)
