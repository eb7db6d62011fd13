/* The rings of messages: host threads with one worker, in both directions at once, and two workgroups with each other.
   Each message once, in order, whole, with what its sender wrote before it; slots are not overwritten before they are
   read; full and empty rings are results; numbers that wrap. And the page allocator in a kernel. */
// run: asan engine=both
// run: tsan -DFEW
#include "settings.h"
#include "examples/parts/fleet_server.h"

#include <pthread.h>
#include <sched.h>

#define PRODUCERS 4u
#define CONSUMERS 2u
#define NOTES                                                                                      \
    256u /* pinned words per producer that messages refer to, more than messages in flight */

#if defined(FEW)
#define MESSAGES 1000u   /* per producer */
#elif defined(FLEET_HIP) /* which may be simulated */
#define MESSAGES 40u
#else
#define MESSAGES 3000u
#endif

FLEET_HOST_DEVICE uint32_t word_of(uint32_t producer, uint32_t number, uint32_t i)
{
    return (producer * 1000003u + number) * 64u + i;
}

/* ---- one call at a time ---- */

typedef struct call {
    fleet_ring *ring;
    uint32_t *messages, *result; /* result: of the call, then room */
    uint32_t n, pops;
} call;

FLEET_GLOBAL(64) void calls(call c)
{
    uint32_t n, room;
    if (fleet_wave_id() != 0) return;
    n = c.pops ? fleet_ring_try_pop(c.ring, c.messages, c.n)
               : fleet_ring_try_push(c.ring, c.messages, c.n);
    room = c.pops ? 0 : fleet_ring_room(c.ring, 1000);
    if (fleet_lane() == 0) c.result[0] = n, c.result[1] = room;
}
FLEET_THUNK1(calls, call)

typedef struct rig {
    fleet_ring host, *device;
    void *memory, *device_memory, *copy, *messages, *result;
} rig;

static int rig_make(test_run *t, rig *r, uint32_t slots, uint32_t bytes, uint32_t first)
{
    fleet_ring device;
    const size_t size = fleet_ring_bytes(slots, bytes);
    NEED(size >= (size_t)slots * (bytes + 4));
    NEED_STATUS(fleet_pinned_alloc(&r->memory, &r->device_memory, size), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&r->copy, sizeof device), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&r->messages, 64 * FLEET_RING_MESSAGE_BYTES), FLEET_OK);
    NEED_STATUS(fleet_device_alloc(&r->result, 8), FLEET_OK);
    NEED_STATUS(fleet_ring_init(&r->host, &device, r->memory, r->device_memory, slots, bytes),
                FLEET_OK);
    fleeti_ring_begin(&r->host, &device, first);
    r->device = (fleet_ring *)r->copy;
    NEED_STATUS(fleet_to_device(r->device, &device, sizeof device, 0), FLEET_OK);
    return 1;
}
static void rig_free(rig *r)
{
    fleet_pinned_free(r->memory);
    fleet_device_free(r->copy);
    fleet_device_free(r->messages);
    fleet_device_free(r->result);
}

/* Calls once; the messages come from words, or go there. result: as in call. */
static int rig_call(test_run *t, rig *r, uint32_t pops, uint32_t n, uint32_t *words,
                    uint32_t result[2])
{
    const size_t bytes = (size_t)n * r->host.words * 4;
    fleet_kernel_desc d = fleet_kernel_desc_default();
    void *args[1];
    call c;
    c.ring = r->device, c.n = n, c.pops = pops;
    c.messages = (uint32_t *)r->messages, c.result = (uint32_t *)r->result;
    args[0] = &c;
    d.blocks = 1, d.threads = 64;
    if (!pops) NEED_STATUS(fleet_to_device(c.messages, words, bytes, 0), FLEET_OK);
    NEED_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(calls), args, &d), FLEET_OK);
    NEED_STATUS(fleet_to_host(result, c.result, 8, 0), FLEET_OK);
    if (pops) NEED_STATUS(fleet_to_host(words, c.messages, bytes, 0), FLEET_OK);
    return 1;
}

static void fill(uint32_t *words, uint32_t n, uint32_t size, uint32_t number)
{
    for (uint32_t i = 0; i < n * size; i++) words[i] = word_of(7, number + i / size, i % size);
}
static int filled(const uint32_t *words, uint32_t n, uint32_t size, uint32_t number)
{
    for (uint32_t i = 0; i < n * size; i++)
        if (words[i] != word_of(7, number + i / size, i % size)) return 0;
    return 1;
}

/* Messages of so many bytes over a ring of so many slots: filled to the last slot, emptied, part by part. */
static void to_device(test_run *t, uint32_t slots, uint32_t bytes, uint32_t first)
{
    const uint32_t size = bytes / 4;
    uint32_t words[64 * 64], result[2], pushed = 0, popped = 0;
    rig r;
    if (!rig_make(t, &r, slots, bytes, first)) return;
    for (uint32_t round = 0; round < 6 && !t->failed_here; round++) {
        const uint32_t most = 1 + (round * 5 + 1) % slots;
        for (; pushed < popped + slots; pushed++) {
            fill(words, 1, size, pushed);
            CHECK_STATUS(fleet_ring_push(&r.host, words), FLEET_OK);
        }
        CHECK_STATUS(fleet_ring_push(&r.host, words), FLEET_ERROR_BUSY);
        if (!rig_call(t, &r, 1, most, words, result)) return;
        CHECK_INT(result[0], most);
        CHECK(filled(words, most, size, popped));
        popped += most;
    }
    while (popped < pushed && !t->failed_here) { /* asks for more than there are at the end */
        const uint32_t left = pushed - popped < 3 ? pushed - popped : 3;
        if (!rig_call(t, &r, 1, 3, words, result)) return;
        CHECK_INT(result[0], left);
        CHECK(filled(words, left, size, popped));
        popped += left;
    }
    if (!rig_call(t, &r, 1, 1, words, result)) return;
    CHECK_INT(result[0], 0);
    rig_free(&r);
}
static void from_device(test_run *t, uint32_t slots, uint32_t bytes, uint32_t first)
{
    const uint32_t size = bytes / 4, more = slots + 3 < 64 ? slots + 3 : 64;
    uint32_t words[64 * 64], result[2], pushed = 0, popped = 0;
    rig r;
    if (!rig_make(t, &r, slots, bytes, first)) return;
    CHECK_INT(fleet_ring_pop(&r.host, words), 0);
    for (uint32_t round = 0; round < 6 && !t->failed_here; round++) {
        const uint32_t room = slots - (pushed - popped), most = 1 + (round * 5 + 1) % slots;
        fill(words, more, size, pushed);
        if (!rig_call(t, &r, 0, more, words, result)) return;
        CHECK_INT(result[0], room < more ? room : more);
        CHECK_INT(result[1], room - result[0]);
        pushed += result[0];
        for (uint32_t i = 0; i < most && popped < pushed; i++, popped++) {
            CHECK_INT(fleet_ring_pop(&r.host, words), 1);
            CHECK(filled(words, 1, size, popped));
        }
    }
    for (; popped < pushed; popped++) {
        CHECK_INT(fleet_ring_pop(&r.host, words), 1);
        CHECK(filled(words, 1, size, popped));
    }
    CHECK_INT(fleet_ring_pop(&r.host, words), 0);
    rig_free(&r);
}

static void full_and_empty(test_run *t)
{
    static const uint32_t slots[4] = {2, 4, 8, 64}, bytes[4] = {4, 12, 128, 256};
    for (uint32_t i = 0; i < 4 && !t->failed_here; i++) {
        to_device(t, slots[i], bytes[3 - i], 0);
        to_device(t, slots[i], bytes[i], 0u - slots[i] - 1);
        from_device(t, slots[i], bytes[3 - i], 0);
        from_device(t, slots[i], bytes[i], 0u - slots[i] - 1);
    }
}

static void bad_arguments(test_run *t)
{
    static uint32_t words[512];
    uint32_t *aligned = (uint32_t *)(((uintptr_t)words + 127) / 128 * 128);
    fleet_ring host, device;
    CHECK_INT(fleet_ring_bytes(0, 16), 0);
    CHECK_INT(fleet_ring_bytes(1, 16), 0);
    CHECK_INT(fleet_ring_bytes(6, 16), 0);
    CHECK_INT(fleet_ring_bytes(1u << 21, 16), 0);
    CHECK_INT(fleet_ring_bytes(4, 0), 0);
    CHECK_INT(fleet_ring_bytes(4, 6), 0);
    CHECK_INT(fleet_ring_bytes(4, 260), 0);
    CHECK_INT(fleet_ring_bytes(4, 124), 5 * 128);
    CHECK_STATUS(fleet_ring_init(&host, &device, aligned, aligned, 3, 16), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_ring_init(&host, &device, aligned + 1, aligned + 1, 2, 16),
                 FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_ring_init(&host, NULL, aligned, aligned, 2, 16), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_ring_init(&host, &device, aligned, NULL, 2, 16), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_ring_init(&host, &device, aligned, aligned, 2, 16), FLEET_OK);
    CHECK_STATUS(fleet_ring_push(&host, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_ring_push(NULL, words), FLEET_ERROR_NULL);
    CHECK_INT(fleet_ring_pop(NULL, words), 0);
    CHECK_INT(fleet_ring_pop(&host, NULL), 0);
}

/* ---- host threads ---- */

/* {producer, number, index of its note, the note's value again, then words of the pattern}; replies alike. */
#define WORDS 9u

typedef struct echo {
    fleet_ring *in, *out;
    uint32_t *notes;   /* [PRODUCERS][NOTES], pinned: written by producers, read by the worker */
    uint32_t *replies; /* the same, written by the worker and read by consumers */
    uint32_t *errors, total, most;
} echo;

/* Answers each message. A note and a reply are plain words, published by the message that refers to them. */
FLEET_GLOBAL(64) void answer(echo e)
{
    FLEET_LDS(uint32_t, batch, 16 * WORDS);
    FLEET_LDS(uint32_t, next, PRODUCERS);
    uint32_t tries = 0, done = 0, wrong = 0;
    if (fleet_wave_id() != 0) return;
    for (uint32_t i = fleet_lane(); i < PRODUCERS; i += fleet_wave_size()) next[i] = 0;
    fleet_wave_barrier();
    while (done < e.total) {
        const uint32_t n = fleet_ring_try_pop(e.in, batch, 1 + done % e.most);
        uint32_t sent = 0;
        if (!n && fleet_pause(&tries)) return;
        if (fleet_lane() == 0)
            for (uint32_t i = 0; i < n; i++) {
                const uint32_t *m = batch + i * WORDS, producer = m[0] % PRODUCERS;
                wrong += m[0] != producer || m[1] != next[producer]++;
                wrong += m[3] != e.notes[producer * NOTES + m[2] % NOTES];
                for (uint32_t k = 4; k < WORDS; k++) wrong += m[k] != word_of(producer, m[1], k);
                e.replies[producer * NOTES + m[2] % NOTES] = ~m[3];
            }
        while (sent < n) { /* stores of lane 0 before the call are part of what it publishes */
            const uint32_t pushed = fleet_ring_try_push(e.out, batch + sent * WORDS, n - sent);
            if (!pushed && fleet_pause(&tries)) return;
            sent += pushed;
        }
        done += n;
    }
    if (fleet_lane() == 0) *e.errors = wrong;
}
FLEET_THUNK1(answer, echo)

typedef struct session {
    fleet_ring *in, *out;
    uint32_t *notes, *replies;
    uint32_t got[PRODUCERS][MESSAGES]; /* how often each message came back */
    uint32_t back[PRODUCERS]; /* messages that came back, to keep notes until they have been used */
    uint32_t popped, wrong;
} session;
typedef struct part {
    session *all;
    uint32_t producer;
} part;

static void *produce(void *part_)
{
    const part *p = (const part *)part_;
    session *s = p->all;
    for (uint32_t i = 0; i < MESSAGES; i++) {
        uint32_t m[WORDS];
        while (i - __atomic_load_n(&s->back[p->producer], __ATOMIC_ACQUIRE) >= NOTES) sched_yield();
        m[0] = p->producer, m[1] = i, m[2] = i % NOTES, m[3] = word_of(p->producer, i, 3);
        for (uint32_t k = 4; k < WORDS; k++) m[k] = word_of(p->producer, i, k);
        s->notes[p->producer * NOTES + i % NOTES] = m[3];
        while (fleet_ring_push(s->in, m)) sched_yield();
    }
    return NULL;
}
static void *consume(void *all)
{
    session *s = (session *)all;
    uint32_t last[PRODUCERS], m[WORDS], wrong = 0;
    memset(last, 0xff, sizeof last);
    while (__atomic_load_n(&s->popped, __ATOMIC_RELAXED) < PRODUCERS * MESSAGES) {
        uint32_t producer;
        if (!fleet_ring_pop(s->out, m)) {
            sched_yield();
            continue;
        }
        producer = m[0] % PRODUCERS;
        wrong += m[0] != producer || m[1] >= MESSAGES;
        wrong += (int32_t)(m[1] - last[producer]) <= 0; /* each consumer sees them in order */
        last[producer] = m[1];
        wrong += s->replies[producer * NOTES + m[2] % NOTES] != ~m[3];
        for (uint32_t k = 4; k < WORDS; k++) wrong += m[k] != word_of(producer, m[1], k);
        __atomic_fetch_add(&s->got[producer][m[1] % MESSAGES], 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&s->back[producer], 1, __ATOMIC_ACQ_REL);
        __atomic_fetch_add(&s->popped, 1, __ATOMIC_RELAXED);
    }
    __atomic_fetch_add(&s->wrong, wrong, __ATOMIC_RELAXED);
    return NULL;
}

static void threads_on(test_run *t, uint32_t slots, uint32_t most, uint32_t first)
{
    static session s;
    fleet_kernel_desc d = fleet_kernel_desc_default();
    pthread_t threads[PRODUCERS + CONSUMERS];
    part parts[PRODUCERS];
    void *args[1], *notes, *device_notes, *errors;
    uint32_t wrong = 1;
    rig in, out;
    echo e;
    if (!rig_make(t, &in, slots, WORDS * 4, first)) return;
    if (!rig_make(t, &out, slots, WORDS * 4, first)) return;
    CHECK_STATUS(fleet_pinned_alloc(&notes, &device_notes, 2 * PRODUCERS * NOTES * 4), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&errors, 4), FLEET_OK);
    memset(&s, 0, sizeof s);
    memset(notes, 0, 2 * PRODUCERS * NOTES * 4);
    s.in = &in.host, s.out = &out.host;
    s.notes = (uint32_t *)notes, s.replies = s.notes + PRODUCERS * NOTES;
    e.in = in.device, e.out = out.device, e.errors = (uint32_t *)errors;
    e.notes = (uint32_t *)device_notes, e.replies = e.notes + PRODUCERS * NOTES;
    e.total = PRODUCERS * MESSAGES, e.most = most;
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        parts[i].all = &s, parts[i].producer = i;
        CHECK(!pthread_create(&threads[i], NULL, produce, &parts[i]));
    }
    for (uint32_t i = 0; i < CONSUMERS; i++)
        CHECK(!pthread_create(&threads[PRODUCERS + i], NULL, consume, &s));
    args[0] = &e;
    d.blocks = 1, d.threads = 64;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(answer), args, &d), FLEET_OK);
    for (uint32_t i = 0; i < PRODUCERS + CONSUMERS; i++) pthread_join(threads[i], NULL);
    CHECK_STATUS(fleet_to_host(&wrong, errors, 4, 0), FLEET_OK);
    CHECK_INT(wrong, 0);
    CHECK_INT(s.wrong, 0);
    for (uint32_t i = 0; i < PRODUCERS * MESSAGES; i++)
        CHECK_INT(s.got[i / MESSAGES][i % MESSAGES], 1);
    CHECK_INT(in.host.position, (uint64_t)first + PRODUCERS * MESSAGES);
    CHECK_INT(*(uint64_t *)(void *)fleeti_message_popped(&out.host),
              (uint64_t)first + PRODUCERS * MESSAGES);
    fleet_pinned_free(notes);
    fleet_device_free(errors);
    rig_free(&in), rig_free(&out);
}

static void host_threads(test_run *t)
{
    const uint32_t part = getenv("FLEET_TEST_PART") ? (uint32_t)atoi(getenv("FLEET_TEST_PART")) : 2;
    if (part != 1) threads_on(t, 4, 3, 0u - 100u);
    if (part != 0 && !t->failed_here) threads_on(t, 64, 16, 0u - PRODUCERS * MESSAGES / 2);
}

/* ---- two workgroups ---- */

typedef struct between {
    fleet_ring *push, *pop; /* ends of one ring, in device memory */
    uint32_t *notes;        /* [NOTES], in device memory */
    uint32_t *errors, total;
} between;

/* Block 0 pushes and block 1 pops, in batches of many sizes. */
FLEET_GLOBAL(64) void pass_on(between b)
{
    FLEET_LDS(uint32_t, batch, 16 * WORDS);
    uint32_t tries = 0, done = 0, wrong = 0;
    if (fleet_wave_id() != 0) return;
    while (done < b.total) {
        uint32_t most = 1 + done * 7 % 11, n, i = fleet_lane();
        if (most > b.total - done) most = b.total - done;
        if (fleet_block_id() == 0) {
            for (; i < most; i += fleet_wave_size()) { /* each lane writes a message and its note */
                b.notes[(done + i) % NOTES] = word_of(0, done + i, 1);
                for (uint32_t k = 0; k < WORDS; k++) batch[i * WORDS + k] = word_of(0, done + i, k);
            }
            n = fleet_ring_try_push(b.push, batch, most);
        } else {
            n = fleet_ring_try_pop(b.pop, batch, most);
            for (; i < n; i += fleet_wave_size()) {
                for (uint32_t k = 0; k < WORDS; k++)
                    wrong += batch[i * WORDS + k] != word_of(0, done + i, k);
                wrong += b.notes[(done + i) % NOTES] != word_of(0, done + i, 1);
            }
        }
        if (!n && fleet_pause(&tries)) return;
        done += n;
    }
    if (wrong) fleet_add_relaxed_device(b.errors, wrong);
    if (fleet_lane() == 0) fleet_add_relaxed_device(b.errors + 1, 1);
}
FLEET_THUNK1(pass_on, between)

static void between_on(test_run *t, fleet_host_engine engine, uint64_t seed, uint32_t slots,
                       uint32_t first)
{
    const size_t bytes = fleet_ring_bytes(slots, WORDS * 4);
    fleet_kernel_desc d = fleet_kernel_desc_default();
    fleet_ring ends[2];
    void *args[1], *memory, *notes, *errors, *device, *image;
    uint32_t result[2];
    between b;
    CHECK_STATUS(fleet_device_alloc(&memory, bytes), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&notes, NOTES * 4), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&errors, 8), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&device, 2 * 128), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(errors, 8, 0), FLEET_OK);
    CHECK_STATUS(fleet_pinned_alloc(&image, &args[0], bytes), FLEET_OK);
    CHECK_STATUS(fleet_ring_init(&ends[0], &ends[1], image, memory, slots, WORDS * 4), FLEET_OK);
    fleeti_ring_begin(&ends[0], &ends[1], first);
    CHECK_STATUS(fleet_to_device(memory, image, bytes, 0), FLEET_OK);
    b.push = (fleet_ring *)device, b.pop = (fleet_ring *)(void *)((char *)device + 128);
    CHECK_STATUS(fleet_to_device(b.push, &ends[1], sizeof ends[1], 0), FLEET_OK);
    CHECK_STATUS(fleet_to_device(b.pop, &ends[1], sizeof ends[1], 0), FLEET_OK);
    b.notes = (uint32_t *)notes, b.errors = (uint32_t *)errors, b.total = 300;
    args[0] = &b;
    d.blocks = 2, d.threads = 64;
    d.host.engine = engine, d.host.seed = seed, d.host.chiplets = 2;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(pass_on), args, &d), FLEET_OK);
    CHECK_STATUS(fleet_to_host(result, errors, 8, 0), FLEET_OK);
    CHECK_INT(result[0], 0);
    CHECK_INT(result[1], 2);
    fleet_pinned_free(image);
    fleet_device_free(memory), fleet_device_free(notes);
    fleet_device_free(errors), fleet_device_free(device);
}

static void between_workgroups(test_run *t)
{
    fleet_host_engine engine, last;
    setting_engines(&engine, &last);
    for (; engine <= last; engine = (fleet_host_engine)(engine + 1))
        for (uint64_t seed = 1; seed <= (engine ? 20u : 1u) && !t->failed_here; seed++) {
            between_on(t, engine, seed, 2, 0u - 50u);
            between_on(t, engine, seed, 16, 0u - 100u);
        }
}

/* ---- pages ---- */

/* The same requests on the host and in a kernel leave the same bytes (tests/host/pages.c: that they are right). */
#define REQUESTS 4u
#define TABLE 8u
#define PAGE_TOKENS 3u
#define PAGES 16u
typedef struct request {
    fleet_admission a;
    uint32_t tokens[TABLE * PAGE_TOKENS], table[TABLE], pages, active;
} request;
typedef struct script {
    request requests[REQUESTS];
    uint32_t random;
} script;

FLEET_HOST_DEVICE uint32_t script_random(script *s, uint32_t n)
{
    s->random = s->random * 1664525u + 1013904223u;
    return (s->random >> 16) % n;
}
FLEET_HOST_DEVICE void script_run(fleet_pages *p, script *s, uint32_t steps)
{
    for (uint32_t i = 0; i < steps; i++) {
        request *r = &s->requests[script_random(s, REQUESTS)];
        if (!r->active) {
            const uint32_t alike = script_random(s, TABLE * PAGE_TOKENS);
            for (uint32_t k = 0; k < TABLE * PAGE_TOKENS; k++)
                r->tokens[k] = k < alike ? k : script_random(s, 2);
            r->active = !fleet_pages_admit(p, r->tokens, TABLE * PAGE_TOKENS / 2,
                                           1 + script_random(s, TABLE), r->table, &r->a);
            r->pages = r->active ? r->a.reused : 0;
        } else if (script_random(s, 8) && r->a.reserved) {
            r->table[r->pages] = fleet_pages_allocate(p, &r->a);
            fleet_pages_insert(p, &r->a, r->table[r->pages], r->tokens + r->pages * PAGE_TOKENS);
            r->pages++;
        } else {
            fleet_pages_finish(p, &r->a, r->table, r->pages);
            r->active = 0;
        }
    }
}
FLEET_GLOBAL(64) void run_script(fleet_pages *p, script *s, uint32_t steps)
{
    if (fleet_thread_id() == 0) script_run(p, s, steps);
}
FLEET_THUNK3(run_script, fleet_pages *, script *, uint32_t)

static void pages_on_the_device(test_run *t)
{
    static uint64_t block[1024], got[1024];
    static script s, its;
    const size_t bytes = fleet_pages_bytes(PAGES, PAGE_TOKENS);
    fleet_pages *p = (fleet_pages *)(void *)block;
    fleet_kernel_desc d = fleet_kernel_desc_default();
    void *memory, *device_script, *args[3];
    uint32_t steps = 300;
    CHECK(bytes <= sizeof block);
    memset(&s, 0, sizeof s);
    CHECK_STATUS(fleet_pages_init(p, PAGES, PAGE_TOKENS), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&memory, bytes), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&device_script, sizeof s), FLEET_OK);
    CHECK_STATUS(fleet_to_device(memory, p, bytes, 0), FLEET_OK);
    CHECK_STATUS(fleet_to_device(device_script, &s, sizeof s, 0), FLEET_OK);
    args[0] = &memory, args[1] = &device_script, args[2] = &steps;
    d.blocks = 1, d.threads = 64;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(run_script), args, &d), FLEET_OK);
    script_run(p, &s, steps);
    CHECK_STATUS(fleet_to_host(got, memory, bytes, 0), FLEET_OK);
    CHECK_STATUS(fleet_to_host(&its, device_script, sizeof its, 0), FLEET_OK);
    CHECK(p->key > 20);
    CHECK(!memcmp(got, block, bytes));
    CHECK(!memcmp(&its, &s, sizeof s));
    CHECK(!fleet_pages_check((fleet_pages *)(void *)got));
    fleet_device_free(memory);
    fleet_device_free(device_script);
}

static void all(test_run *t)
{
    TEST(bad_arguments);
    TEST(full_and_empty);
    TEST(host_threads);
    TEST(between_workgroups);
    TEST(pages_on_the_device);
}
TEST_MAIN(all)
