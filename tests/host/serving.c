/* The rules of serving, each by name, in a simulation without a GPU (tests/serving.h): policy `agent`, policy `fifo`,
   what the table, the queues and the pages promise; then random traffic. */
// run: asan
#include "../serving.h"

/* Whether everything has ended as it does alone, and how. */
static void finish(test_run *t, sim *s)
{
    sim_finish(s);
    sim_check(s);
    for (uint32_t i = 0; i < s->n_jobs; i++) CHECK_INT(s->jobs[i].end, FLEET_EVENT_FINISHED);
}

static void run_with(test_run *t, void (*change)(fleet_server_desc *),
                     void (*run)(test_run *, sim *))
{
    fleet_server_desc d = sim_desc();
    if (change) change(&d);
    simulate(t, &d, run, NULL);
}

/* Requests that decode for long: until one of them is asked for, no prompt yields its last token early. */
static job *submit_long(sim *s, fleet_class priority, uint32_t prompt_tokens, uint32_t max_tokens)
{
    uint32_t want[SIM_TOKENS];
    for (;; s->n_jobs++) { /* numbers give the prompts: skip those that end early */
        job *j = s->jobs + s->n_jobs;
        memset(j, 0, sizeof *j);
        j->prompt_tokens = prompt_tokens, j->max_tokens = max_tokens;
        for (uint32_t i = 0; i < prompt_tokens; i++) j->prompt[i] = mix(s->n_jobs + 100, i) % 1000;
        if (alone(j, want) == max_tokens) return sim_submit(s, priority, prompt_tokens, max_tokens);
        j->ended = 1, j->end = FLEET_EVENT_FINISHED, j->n = 0, j->max_tokens = 0;
    }
}

/* ---- prefill --------------------------------------------------------------------------------- */

static void arrive_at_layer(sim *s, uint32_t pool, uint32_t layer)
{
    (void)pool;
    if (s->n_jobs == 1 && layer == *(uint32_t *)s->user && s->jobs[0].started)
        sim_submit(s, FLEET_REACTIVE, 4, 2);
}
static void preempt_at(test_run *t, sim *s)
{
    const uint32_t layer = *(uint32_t *)s->user;
    job *proactive = sim_submit(s, FLEET_PROACTIVE, 2 * SIM_CHUNK, 2), *reactive;
    s->hook = arrive_at_layer;
    CHECK_INT(sim_step(s), FLEET_SERVING_BATCH);
    if (layer == 0) CHECK_INT(sim_step(s), FLEET_SERVING_BATCH); /* it arrived before any row ran */
    CHECK_INT(s->n_jobs, 2);
    reactive = s->jobs + 1;
    CHECK_INT(slot_of(s, proactive)->phase, FLEET_PHASE_PREFILL);
    /* The rest of the step was passed over; the next one is the reactive prompt's, with decode rows of none. */
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, reactive));
    CHECK_INT(sim_batch(s, 0)->chunk_class, FLEET_REACTIVE);
    if (layer) CHECK_INT(slot_of(s, proactive)->layer, layer);
    CHECK(reactive->waited_layers <= 1);
    sim_layers(s, 0);
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, proactive));
    CHECK_INT(sim_batch(s, 0)->chunk_begin, layer);
    sim_layers(s, 0);
    finish(t, s);
}
/* A reactive request that arrives in any layer of a proactive chunk runs from the next layer boundary on. The chunk
   resumes in its layer, and no layer of a token is computed twice (sim_row counts). */
static void reactive_preempts_proactive_prefill_at_each_layer(test_run *t)
{
    const fleet_server_desc d = sim_desc();
    for (uint32_t layer = 1; layer < SIM_LAYERS && !t->failed_here; layer++)
        simulate(t, &d, preempt_at, &layer);
}

static void arrive_reactive(sim *s, uint32_t pool, uint32_t layer)
{
    (void)pool;
    if (s->n_jobs == 1 && layer == 2) sim_submit(s, FLEET_REACTIVE, 3, 1);
}
static void two_reactive(test_run *t, sim *s)
{
    job *first = sim_submit(s, FLEET_REACTIVE, 3 * SIM_CHUNK, 2);
    s->hook = arrive_reactive;
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        sim_boundary(s, 0);
        CHECK(sim_prefills(s, 0, first));
        CHECK_INT(sim_batch(s, 0)->chunk_begin, 0);
        CHECK_INT(sim_batch(s, 0)->chunk.position, chunk * SIM_CHUNK);
        sim_layers(s, 0);
        CHECK_INT(sim_batch(s, 0)->chunk_end, SIM_LAYERS);
    }
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, s->jobs + 1));
    sim_layers(s, 0);
    finish(t, s);
}
static void serial_prompts(fleet_server_desc *d)
{
    d->serial = 1;
}
static void reactive_requests_do_not_preempt_one_another(test_run *t)
{
    run_with(t, serial_prompts, two_reactive);
}

static void serial(test_run *t, sim *s)
{
    job *a = sim_submit(s, FLEET_PROACTIVE, 2 * SIM_CHUNK + 1, 1);
    job *b = sim_submit(s, FLEET_PROACTIVE, SIM_CHUNK, 1);
    static const uint32_t rows[4] = {SIM_CHUNK, SIM_CHUNK, 1, SIM_CHUNK};
    for (uint32_t i = 0; i < 4; i++) {
        sim_boundary(s, 0);
        CHECK(sim_prefills(s, 0, i < 3 ? a : b));
        CHECK_INT(sim_batch(s, 0)->chunk_rows, rows[i]);
        sim_layers(s, 0);
    }
    finish(t, s);
}
/* While a request decodes, chunks are short; before and afterwards they are as long as chunk_rows
   says. */
static void beside(test_run *t, sim *s)
{
    job *a = sim_submit(s, FLEET_REACTIVE, 1, 3);
    job *b = sim_submit(s, FLEET_PROACTIVE, 3 * SIM_CHUNK, 1);
    static const uint32_t rows[] = {1, 2, 2, SIM_CHUNK, SIM_CHUNK, 2};
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sim_boundary(s, 0);
        CHECK(sim_prefills(s, 0, i ? b : a));
        CHECK_INT(sim_batch(s, 0)->chunk_rows, rows[i]);
        sim_layers(s, 0);
    }
    finish(t, s);
}
static void short_beside(fleet_server_desc *d)
{
    d->beside_rows = 2;
}
static void chunks_are_short_beside_decode_rows(test_run *t)
{
    run_with(t, short_beside, beside);
}
/* Iterations with decode rows have no chunk there. */
static void in_turns(test_run *t, sim *s)
{
    job *a = sim_submit(s, FLEET_REACTIVE, 1, 3), *b;
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, a));
    sim_layers(s, 0);
    sim_boundary(s, 0);
    CHECK(sim_decodes(s, 0, a));
    sim_layers(s, 0);
    b = sim_submit(s, FLEET_PROACTIVE, 2 * SIM_CHUNK, 1);
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        sim_boundary(s, 0);
        CHECK(sim_prefills(s, 0, b));
        CHECK_INT(sim_batch(s, 0)->decode_rows, 0);
        CHECK_INT(sim_batch(s, 0)->chunk_rows, SIM_CHUNK);
        sim_layers(s, 0);
    }
    finish(t, s);
}
static void one_stage_beside(fleet_server_desc *d)
{
    d->beside_rows = 2, d->one_stage = 1;
}
static void chunks_without_decode_rows_are_long(test_run *t)
{
    run_with(t, one_stage_beside, in_turns);
}
static void prefill_is_serial_and_in_chunks(test_run *t)
{
    run_with(t, serial_prompts, serial);
}
/* Short prompts overtake a long one of their class, which has every other chunk meanwhile. */
static void overtaking(test_run *t, sim *s, fleet_class priority)
{
    job *a = sim_submit(s, priority, 6 * SIM_CHUNK, 1), *b[3];
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, a));
    sim_layers(s, 0);
    for (uint32_t i = 0; i < 3; i++) b[i] = sim_submit(s, priority, SIM_CHUNK - i, 1);
    {
        job *const order[] = {b[2], a, b[1], a, b[0], a};
        for (uint32_t i = 0; i < sizeof order / sizeof *order; i++) {
            sim_boundary(s, 0);
            CHECK(sim_prefills(s, 0, order[i]));
            sim_layers(s, 0);
        }
    }
    finish(t, s);
}
static void overtaking_reactive(test_run *t, sim *s)
{
    overtaking(t, s, FLEET_REACTIVE);
}
static void overtaking_proactive(test_run *t, sim *s)
{
    overtaking(t, s, FLEET_PROACTIVE);
}
static void short_prompts_overtake_long_ones(test_run *t)
{
    run_with(t, NULL, overtaking_reactive);
    if (!t->failed_here) run_with(t, NULL, overtaking_proactive);
}
/* A chunk that has stopped between two layers goes on before a shorter prompt of its class: there
   is place for one. */
static void stopped_first(test_run *t, sim *s)
{
    job *a = sim_submit(s, FLEET_PROACTIVE, 2 * SIM_CHUNK, 1), *b, *c;
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, a));
    b = sim_submit(s, FLEET_PROACTIVE, 1, 1);
    c = sim_submit(s, FLEET_REACTIVE, 1, 1);
    sim_layers(s, 0); /* a gives way */
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, c));
    sim_layers(s, 0);
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, a));
    sim_layers(s, 0);
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, b));
    sim_layers(s, 0);
    finish(t, s);
}
static void stopped_chunks_go_on_first(test_run *t)
{
    run_with(t, NULL, stopped_first);
}

static void dual_queues(test_run *t, sim *s)
{
    job *runs = submit_long(s, FLEET_REACTIVE, 20, 20), *p[2],
        *r[2]; /* it has all reactive pages */
    sim_boundary(s, 0);
    for (uint32_t i = 0; i < 2; i++) p[i] = submit_long(s, FLEET_PROACTIVE, 15, 9);
    for (uint32_t i = 0; i < 2; i++) r[i] = submit_long(s, FLEET_REACTIVE, 15, 9);
    sim_layers(s, 0);
    sim_boundary(s, 0); /* there are pages for one more */
    CHECK_INT(slot_of(s, r[0])->phase, FLEET_PHASE_PREFILL);
    for (uint32_t i = 0; i < 2; i++) CHECK_INT(slot_of(s, p[i])->phase, FLEET_PHASE_QUEUED);
    CHECK_INT(slot_of(s, r[1])->phase, FLEET_PHASE_QUEUED);
    sim_layers(s, 0);
    finish(t, s);
    CHECK(r[0]->first_row < r[1]->first_row && r[1]->first_row < p[0]->first_row);
    CHECK(p[0]->first_row < p[1]->first_row && runs->n == 20);
}
static void few_pages(fleet_server_desc *d);
/* Each class is admitted in order of arrival, reactive requests before proactive ones that came earlier. */
static void classes_have_queues_of_their_own(test_run *t)
{
    run_with(t, few_pages, dual_queues);
}

static void one_stage(fleet_server_desc *d)
{
    d->one_stage = 1;
}
static void prefill_first(test_run *t, sim *s)
{
    job *reactive = submit_long(s, FLEET_REACTIVE, 2, 10), *proactive;
    sim_step(s);
    sim_step(s);
    proactive = sim_submit(s, FLEET_PROACTIVE, 2 * SIM_CHUNK, 1);
    for (uint32_t i = 0; i < 2; i++) {
        sim_boundary(s, 0);
        CHECK(sim_prefills(s, 0, proactive));
        CHECK_INT(sim_batch(s, 0)->decode_rows, 0);
        sim_layers(s, 0);
    }
    sim_boundary(s, 0);
    CHECK(sim_decodes(s, 0, reactive));
    sim_layers(s, 0);
    finish(t, s);
}
/* Where one pool runs one stage at a time, prefill precedes decode, whatever the class. */
static void prefill_precedes_decode(test_run *t)
{
    run_with(t, one_stage, prefill_first);
}

static void piggyback(test_run *t, sim *s)
{
    job *r, *p, *first = submit_long(s, FLEET_REACTIVE, 2, 12);
    sim_step(s);
    p = sim_submit(s, FLEET_PROACTIVE, 2 * SIM_CHUNK, 1);
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, p) && sim_decodes(s, 0, first)); /* beside a reactive decode row */
    sim_layers(s, 0);
    r = sim_submit(s, FLEET_REACTIVE, 2 * SIM_CHUNK, 1);
    for (uint32_t i = 0; i < 2; i++) {
        sim_boundary(s, 0);
        CHECK(sim_prefills(s, 0, r) && sim_decodes(s, 0, first));
        sim_layers(s, 0);
    }
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, p));
    sim_layers(s, 0);
    finish(t, s);
}
static void proactive_prefill_runs_while_no_reactive_one_waits(test_run *t)
{
    run_with(t, NULL, piggyback);
}

static void flood(test_run *t, sim *s)
{
    job *aged = sim_submit(s, FLEET_PROACTIVE, 3 * SIM_CHUNK, 2);
    uint32_t chunks = 0, before = 0;
    s->now += 500; /* aged on arrival of the flood */
    for (uint32_t i = 0; i < 40 && !aged->ended; i++) {
        job *r = sim_submit(s, FLEET_REACTIVE, 2 * SIM_CHUNK, 1);
        CHECK_INT(sim_boundary(s, 0), FLEET_SERVING_BATCH);
        /* It never interrupts a reactive prompt that has begun, and is not interrupted itself. */
        if (sim_prefills(s, 0, aged)) {
            for (uint32_t k = 1; k < s->n_jobs; k++)
                if (s->jobs[k].started && !s->jobs[k].ended)
                    CHECK(slot_of(s, s->jobs + k)->phase != FLEET_PHASE_PREFILL);
            CHECK(!chunks || before);
            chunks++, before = 0;
        } else {
            before++;
        }
        sim_layers(s, 0);
        CHECK_INT(sim_batch(s, 0)->chunk_end, SIM_LAYERS);
        sim_poll(s);
        (void)r;
    }
    CHECK(aged->ended && chunks == 3);
    finish(t, s);
}
static void age_soon(fleet_server_desc *d)
{
    d->age_ticks = 400;
    d->requests = 64, d->reactive_requests = 40;
    d->pages = SIM_PAGES, d->reactive_pages = 32;
}
/* Reactive prompts are always waiting; the aged request takes turns with them. */
static void aged_prefill_goes_on_in_a_flood_of_reactive_requests(test_run *t)
{
    run_with(t, age_soon, flood);
}
static void flood_unaged(test_run *t, sim *s)
{
    job *young = sim_submit(s, FLEET_PROACTIVE, 3 * SIM_CHUNK, 2);
    for (uint32_t i = 0; i < 20; i++) {
        sim_submit(s, FLEET_REACTIVE, 2 * SIM_CHUNK, 1);
        CHECK_INT(sim_step(s), FLEET_SERVING_BATCH);
        CHECK(!young->started);
    }
    finish(t, s);
}
static void proactive_prefill_waits_in_a_flood_until_it_is_aged(test_run *t)
{
    run_with(t, NULL, flood_unaged);
}

/* ---- decode ---------------------------------------------------------------------------------- */

static void joins_next(test_run *t, sim *s)
{
    job *a = submit_long(s, FLEET_REACTIVE, 2, 8), *b;
    sim_step(s);
    sim_boundary(s, 0);
    CHECK(sim_decodes(s, 0, a));
    b = submit_long(s, FLEET_REACTIVE, 3, 6); /* during an iteration */
    sim_layers(s, 0);
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, b) && sim_decodes(s, 0, a) && !sim_decodes(s, 0, b));
    sim_layers(s, 0);
    sim_boundary(s, 0);
    CHECK(sim_decodes(s, 0, a) && sim_decodes(s, 0, b));
    sim_layers(s, 0);
    finish(t, s);
}
static void request_joins_decode_at_the_next_iteration(test_run *t)
{
    run_with(t, NULL, joins_next);
}

static void homogeneous(test_run *t, sim *s)
{
    for (uint32_t priority = 0; priority < 2; priority++) {
        for (uint32_t i = 0; i < 6; i++) submit_long(s, (fleet_class)priority, 2, 12);
        for (uint32_t i = 0; i < 6; i++) sim_step(s);
        sim_boundary(s, 0);
        CHECK_INT(sim_batch(s, 0)->decode_rows, 6);
        sim_layers(s, 0);
        sim_finish(s);
    }
    finish(t, s);
}
static void batch_of_one_class_has_no_cap(test_run *t)
{
    run_with(t, NULL, homogeneous);
}

/* Five proactive requests and a reactive one: of the mixed batch's three rows two are proactive. The longest have been
   evicted, and are in the batch again, without a prefill, when it is mixed no more. */
static void five_and_one(test_run *t, sim *s)
{
    static const uint32_t prompts[5] = {4, 4, 8, 6, 4};
    job *p[5], *r;
    uint32_t pages[5], allocated[5], stays = 0;
    for (uint32_t i = 0; i < 5; i++) p[i] = submit_long(s, FLEET_PROACTIVE, prompts[i], 14);
    for (uint32_t i = 0; i < 7; i++) sim_step(s);
    sim_boundary(s, 0);
    CHECK_INT(sim_batch(s, 0)->decode_rows, 5);
    sim_layers(s, 0);
    sim_poll(s);
    r = submit_long(s, FLEET_REACTIVE, 3, 4);
    sim_step(s);
    sim_boundary(s, 0);
    CHECK_INT(sim_batch(s, 0)->decode_rows, 3);
    CHECK(sim_decodes(s, 0, r));
    for (uint32_t i = 0; i < 5; i++) {
        const fleet_slot *slot = slot_of(s, p[i]);
        pages[i] = fleeti_page_table(s->table, (uint32_t)p[i]->id - 1)[0];
        allocated[i] = slot->allocated;
        CHECK_INT(slot->phase, FLEET_PHASE_DECODE);
        stays += sim_decodes(s, 0, p[i]);
        for (uint32_t k = 0; k < 5; k++)
            if (sim_decodes(s, 0, p[k]) && !sim_decodes(s, 0, p[i]))
                CHECK(fleeti_length(slot) > fleeti_length(slot_of(s, p[k])));
    }
    CHECK_INT(stays, 2);
    CHECK(sim_decodes(s, 0, p[3]) &&
          sim_decodes(s, 0, p[4])); /* 11 and 8 tokens; the others 12 to 14 */
    sim_layers(s, 0);
    while (!r->ended) sim_step(s);
    sim_boundary(s, 0);
    CHECK_INT(sim_batch(s, 0)->decode_rows, 5);
    CHECK_INT(sim_batch(s, 0)->chunk_rows, 0);
    for (uint32_t i = 0; i < 5; i++) {
        CHECK_INT(fleeti_page_table(s->table, (uint32_t)p[i]->id - 1)[0], pages[i]);
        CHECK(slot_of(s, p[i])->allocated >= allocated[i]);
    }
    sim_layers(s, 0);
    finish(t, s);
}
static void mixed_batch_is_capped_and_evicted_requests_resume(test_run *t)
{
    run_with(t, NULL, five_and_one);
}

static void newest_goes(test_run *t, sim *s)
{
    job *p[3], *r;
    for (uint32_t i = 0; i < 3; i++) p[i] = submit_long(s, FLEET_PROACTIVE, 3 + i, 12);
    for (uint32_t i = 0; i < 3; i++) sim_step(s);
    r = submit_long(s, FLEET_REACTIVE, 2, 3);
    sim_step(s);
    sim_boundary(s, 0);
    for (uint32_t i = 0; i < 3; i++) CHECK_INT(fleeti_length(slot_of(s, p[i])), 7);
    CHECK(sim_decodes(s, 0, r));
    CHECK(sim_decodes(s, 0, p[0]) && sim_decodes(s, 0, p[1]) && !sim_decodes(s, 0, p[2]));
    sim_layers(s, 0);
    finish(t, s);
}
static void of_equally_long_requests_the_newest_is_evicted(test_run *t)
{
    run_with(t, NULL, newest_goes);
}

static void aged_joins(test_run *t, sim *s)
{
    job *r[3], *p;
    uint32_t i;
    p = submit_long(s, FLEET_PROACTIVE, 2, 6);
    sim_step(s);
    for (i = 0; i < 3; i++) r[i] = submit_long(s, FLEET_REACTIVE, 2, 30);
    for (i = 0; i < 3; i++) sim_step(s);
    sim_boundary(s, 0);
    CHECK_INT(sim_batch(s, 0)->decode_rows, 3);
    CHECK(!sim_decodes(s, 0, p));
    sim_layers(s, 0);
    for (i = 0; i < 20 && !sim_decodes(s, 0, p); i++) sim_step(s);
    CHECK(i > 2 && i < 20);
    CHECK_INT(sim_batch(s, 0)->decode_rows, 4); /* past the cap, beside all reactive rows */
    for (i = 0; i < 3; i++) CHECK(sim_decodes(s, 0, r[i]));
    finish(t, s);
}
static void aged_request_joins_decode_past_the_cap(test_run *t)
{
    run_with(t, age_soon, aged_joins);
}

static void aged_beside(test_run *t, sim *s)
{
    job *p[3], *r;
    for (uint32_t i = 0; i < 3; i++) p[i] = submit_long(s, FLEET_PROACTIVE, 2 + i, 20);
    for (uint32_t i = 0; i < 4; i++) sim_step(s);
    slot_of(s, p[2])->flags |= FLEET_SLOT_AGED;
    r = submit_long(s, FLEET_REACTIVE, 2, 4);
    sim_step(s);
    sim_boundary(s, 0);
    CHECK(sim_decodes(s, 0, r));
    CHECK_INT(sim_batch(s, 0)->decode_rows,
              4); /* the cap of three leaves room for both that are not aged */
    sim_layers(s, 0);
    finish(t, s);
}
static void aged_requests_do_not_count_for_the_cap(test_run *t)
{
    run_with(t, NULL, aged_beside);
}

static void full_of_proactive(test_run *t, sim *s)
{
    job *r;
    for (uint32_t i = 0; i < SIM_ROWS; i++) submit_long(s, FLEET_PROACTIVE, 2, 14);
    for (uint32_t i = 0; i < SIM_ROWS; i++) sim_step(s);
    r = submit_long(s, FLEET_REACTIVE, 2, 3);
    sim_step(s);
    sim_boundary(s, 0);
    CHECK(sim_decodes(s, 0, r));
    sim_layers(s, 0);
    finish(t, s);
}
static void reactive_request_takes_a_row_of_a_full_batch(test_run *t)
{
    run_with(t, NULL, full_of_proactive);
}

static void arrive_while_decoding(sim *s, uint32_t pool, uint32_t layer)
{
    (void)pool;
    if (s->n_jobs == *(uint32_t *)s->user && layer == 2) sim_submit(s, FLEET_REACTIVE, 4, 2);
}
static void decode_whole(test_run *t, sim *s)
{
    job *p = submit_long(s, FLEET_PROACTIVE, 2, 8);
    uint32_t n = s->n_jobs;
    s->user = &n;
    sim_step(s);
    s->hook = arrive_while_decoding;
    sim_step(s);
    CHECK_INT(s->n_jobs, n + 1);
    CHECK_INT(sim_batch(s, 0)->decode_end, SIM_LAYERS);
    CHECK_INT(p->n, 1);
    sim_boundary(s, 0);
    sim_poll(s);
    CHECK_INT(p->n, 2);
    CHECK(sim_prefills(s, 0, s->jobs + n));
    sim_layers(s, 0);
    finish(t, s);
}
static void decode_gives_way_between_iterations(test_run *t)
{
    run_with(t, NULL, decode_whole);
}

static void decode_cut(test_run *t, sim *s)
{
    job *p = submit_long(s, FLEET_PROACTIVE, 2, 8), *q = submit_long(s, FLEET_PROACTIVE, 3, 8);
    uint32_t n = s->n_jobs;
    s->user = &n;
    sim_step(s);
    sim_step(s);
    s->hook = arrive_while_decoding;
    sim_step(s);
    CHECK_INT(sim_batch(s, 0)->decode_end, 2);
    sim_cancel(s, q); /* it ends when its row has run */
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, s->jobs + n));
    CHECK_INT(sim_batch(s, 0)->chunk_begin, 0);
    CHECK_INT(sim_batch(s, 0)->decode_begin, 2);
    CHECK_INT(sim_batch(s, 0)->decode_rows, 2);
    sim_layers(s, 0);
    sim_finish(s);
    sim_check(s);
    CHECK_INT(p->end, FLEET_EVENT_FINISHED);
    CHECK_INT(q->end, FLEET_EVENT_CANCELLED);
}
static void suspend_decode(fleet_server_desc *d)
{
    d->suspend_decode = 1;
}
/* With suspend_decode proactive rows stop at the next layer and resume there, beside the reactive prompt. */
static void decode_may_be_suspended_at_layers(test_run *t)
{
    run_with(t, suspend_decode, decode_cut);
}

/* ---- prediction, pools ----------------------------------------------------------------------- */

/* A device that moves a byte and computes a hundred operations in a tick: an iteration reads 50 bytes, and a row takes
   100 operations. */
static void roofline(fleet_server_desc *d)
{
    d->roofline.peak_bytes_per_ns = 1, d->roofline.peak_operations_per_ns = 100;
    d->roofline.u_m = 1, d->roofline.u_c = 0.5f, d->roofline.i_c = 200;
    d->pass.bytes = 50;
    d->row.operations = 100;
}
static void roofline_figures(test_run *t)
{
    fleet_roofline r;
    fleet_work w;
    r.peak_bytes_per_ns = 4, r.peak_operations_per_ns = 1000;
    r.u_m = 0.8f, r.i_c = 500, r.u_c = 0.25f; /* B_eff 3.2, P_eff min(1000, 500) */
    w.operations = 1000, w.bytes = 320;
    CHECK_INT(fleet_roofline_ns(&r, w) * 1000, 100000);
    CHECK_INT(fleet_roofline_share(&r, w) * 1000, 800);
    w.operations = 500000, w.bytes = 320;
    CHECK_INT(fleet_roofline_ns(&r, w) * 1000, 1000000);
    CHECK_INT(fleet_roofline_share(&r, w) * 100000, 8000);
    r.peak_operations_per_ns = 250;
    CHECK_INT(fleet_roofline_ns(&r, w) * 1000, 2000000);
    memset(&r, 0, sizeof r);
    CHECK_INT(fleet_roofline_ns(&r, w), 0);
}
static void cap_by_prediction(fleet_server_desc *d)
{
    roofline(d);
    d->mixed_rows = 0;
    d->pass.bytes = 4; /* a pass takes as long as four rows */
}
static void predicted_cap(test_run *t, sim *s)
{
    job *r;
    for (uint32_t i = 0; i < 6; i++) submit_long(s, FLEET_PROACTIVE, 2, 20);
    for (uint32_t i = 0; i < 6; i++) sim_step(s);
    r = submit_long(s, FLEET_REACTIVE, 2, 5);
    sim_step(s);
    sim_boundary(s, 0);
    CHECK(sim_decodes(s, 0, r));
    CHECK_INT(sim_batch(s, 0)->decode_rows, 4); /* with five it would take 1.25 times as long */
    sim_layers(s, 0);
    finish(t, s);
}
static void mixed_batch_is_capped_by_predicted_time(test_run *t)
{
    run_with(t, cap_by_prediction, predicted_cap);
}
/* Hours, or no number at all. */
static void slow_roofline(fleet_server_desc *d)
{
    roofline(d);
    d->pass.bytes = 1e30f;
}
static void no_roofline(fleet_server_desc *d)
{
    roofline(d);
    d->pass.bytes = d->row.bytes = -1e20f;
    d->pass.operations = d->row.operations = -1;
}
static void unpredicted(test_run *t, sim *s)
{
    sim_submit(s, FLEET_REACTIVE, 2, 2);
    sim_boundary(s, 0);
    CHECK_INT(sim_batch(s, 0)->predicted_ns, 0);
    sim_layers(s, 0);
    finish(t, s);
}
static void time_that_no_word_holds_is_not_predicted(test_run *t)
{
    run_with(t, slow_roofline, unpredicted);
    run_with(t, no_roofline, unpredicted);
}

static void error_of(test_run *t, sim *s)
{
    fleet_server_stats stats;
    submit_long(s, FLEET_REACTIVE, 2, 6);
    for (uint32_t i = 0; i < 4; i++) {
        CHECK_INT(sim_boundary(s, 0), FLEET_SERVING_BATCH);
        CHECK_INT(sim_batch(s, 0)->predicted_ns, 50);
        sim_layers(s, 0);
        s->now += i * 10; /* 50, 60, 70, 80 ticks */
    }
    sim_boundary(s, 0);
    fleet_server_stats_read(&s->server, &stats);
    CHECK_INT(stats.predicted, 4);
    CHECK_INT(stats.error_max, 375); /* 30 / 80 */
    CHECK_INT(stats.error_mean, (0 + 166.6 + 285.7 + 375) / 4);
    sim_layers(s, 0);
    finish(t, s);
}
static void error_of_prediction_is_reported(test_run *t)
{
    run_with(t, roofline, error_of);
}

static void two_pools(fleet_server_desc *d)
{
    d->pools = 2;
}
/* One pool's iteration to its end. */
static void pool_step(sim *s, uint32_t pool)
{
    while (sim_layer(s, pool)) {
    }
    sim_poll(s);
}
static void elastic(test_run *t, sim *s)
{
    job *a = submit_long(s, FLEET_REACTIVE, SIM_CHUNK, 3), *b;
    uint32_t layer;
    CHECK_INT(sim_boundary(s, 0), FLEET_SERVING_BATCH);
    CHECK_INT(sim_batch(s, 0)->lent, 1); /* decode is idle */
    CHECK_INT(sim_boundary(s, 1), FLEET_SERVING_IDLE);
    pool_step(s, 0);
    b = submit_long(s, FLEET_REACTIVE, 2 * SIM_CHUNK, 2);
    CHECK_INT(sim_boundary(s, 0),
              FLEET_SERVING_BATCH); /* a has its first token and wants to decode */
    CHECK(sim_prefills(s, 0, b));
    CHECK_INT(sim_batch(s, 0)->lent, 0);
    CHECK_INT(sim_boundary(s, 1), FLEET_SERVING_BATCH);
    CHECK(sim_decodes(s, 1, a));
    sim_layer(s, 0);
    sim_layer(s, 0);
    CHECK_INT(sim_batch(s, 0)->lent, 0); /* decode is running */
    pool_step(s, 1);
    a->held = 1;
    while (sim_boundary(s, 1) == FLEET_SERVING_BATCH) pool_step(s, 1);
    sim_poll(s);
    CHECK(a->ended);
    layer = s->layer[0];
    sim_layer(s, 0);
    CHECK_INT(sim_batch(s, 0)->lent, 1); /* from the next layer on */
    CHECK(layer > 0 && layer < SIM_LAYERS);
    pool_step(s, 0);
    while (!b->ended) {
        if (sim_boundary(s, 0) == FLEET_SERVING_BATCH) pool_step(s, 0);
        if (sim_boundary(s, 1) == FLEET_SERVING_BATCH) pool_step(s, 1);
        sim_poll(s);
    }
    sim_check(s);
}
static void idle_decode_pool_helps_layer_by_layer(test_run *t)
{
    run_with(t, two_pools, elastic);
}
/* Decode comes back while its chiplets are lent: it begins after the layer. */
static void gives_back(test_run *t, sim *s)
{
    job *a = submit_long(s, FLEET_REACTIVE, 2, 8), *b;
    a->held = 1;
    CHECK_INT(sim_boundary(s, 0), FLEET_SERVING_BATCH);
    pool_step(s, 0);
    for (uint32_t i = 0; i < 3; i++) { /* until a has no room for events */
        sim_boundary(s, 0);
        if (sim_boundary(s, 1) == FLEET_SERVING_BATCH) pool_step(s, 1);
        sim_poll(s);
    }
    CHECK(slot_of(s, a)->flags & FLEET_SLOT_UNSENT);
    b = submit_long(s, FLEET_REACTIVE, SIM_CHUNK, 2);
    CHECK_INT(sim_boundary(s, 0), FLEET_SERVING_BATCH);
    CHECK_INT(sim_batch(s, 0)->lent, 1);
    sim_layer(s, 0);
    sim_release(s, a);
    CHECK_INT(sim_boundary(s, 1),
              FLEET_SERVING_IDLE); /* its chiplets work for the other pool in this layer */
    sim_layer(s, 0);
    CHECK_INT(sim_batch(s, 0)->lent, 0);
    CHECK_INT(sim_boundary(s, 1), FLEET_SERVING_BATCH);
    CHECK(sim_decodes(s, 1, a));
    pool_step(s, 1);
    pool_step(s, 0);
    while (!a->ended || !b->ended) {
        if (sim_boundary(s, 0) == FLEET_SERVING_BATCH) pool_step(s, 0);
        if (sim_boundary(s, 1) == FLEET_SERVING_BATCH) pool_step(s, 1);
        sim_poll(s);
    }
    sim_check(s);
}
static void two_events(fleet_server_desc *d)
{
    d->pools = 2, d->events = 2;
}
static void lent_chiplets_go_back_at_the_next_layer(test_run *t)
{
    run_with(t, two_events, gives_back);
}

/* Bandwidth: a chunk of SIM_CHUNK rows takes 6 / 50 of the time to compute, so everything is memory-bound. */
static void shared_bandwidth(fleet_server_desc *d)
{
    roofline(d);
    d->pools = 2;
}
static void defers(test_run *t, sim *s)
{
    job *p = submit_long(s, FLEET_PROACTIVE, 2, 6), *q, *r;
    CHECK_INT(sim_boundary(s, 0), FLEET_SERVING_BATCH);
    pool_step(s, 0);
    /* Proactive decode beside a proactive chunk: equal classes overlap. */
    q = submit_long(s, FLEET_PROACTIVE, SIM_CHUNK, 6);
    CHECK_INT(sim_boundary(s, 0), FLEET_SERVING_BATCH);
    CHECK_INT(sim_boundary(s, 1), FLEET_SERVING_BATCH);
    CHECK(sim_prefills(s, 0, q) && sim_decodes(s, 1, p));
    pool_step(s, 0);
    pool_step(s, 1);
    /* Beside a reactive chunk it waits. */
    r = submit_long(s, FLEET_REACTIVE, SIM_CHUNK, 4);
    CHECK_INT(sim_boundary(s, 0), FLEET_SERVING_BATCH);
    CHECK(sim_prefills(s, 0, r));
    CHECK_INT(sim_boundary(s, 1), FLEET_SERVING_IDLE);
    pool_step(s, 0);
    CHECK_INT(sim_boundary(s, 0), FLEET_SERVING_IDLE);
    CHECK_INT(sim_boundary(s, 1), FLEET_SERVING_BATCH);
    CHECK(sim_decodes(s, 1, r) && sim_decodes(s, 1, p));
    /* And a proactive chunk waits beside reactive decode. */
    q = submit_long(s, FLEET_PROACTIVE, SIM_CHUNK, 2);
    CHECK_INT(sim_boundary(s, 0), FLEET_SERVING_IDLE);
    for (uint32_t i = 0; i < 50 && !r->ended; i++) {
        pool_step(s, 1);
        if (!r->ended) CHECK(sim_boundary(s, 0) == FLEET_SERVING_IDLE || r->n == 4);
        sim_boundary(s, 1);
        sim_poll(s);
    }
    CHECK_INT(sim_boundary(s, 0), FLEET_SERVING_BATCH);
    CHECK(sim_prefills(s, 0, q));
    pool_step(s, 0);
    pool_step(s, 1);
    for (uint32_t i = 0; i < 50; i++) {
        if (sim_boundary(s, 0) == FLEET_SERVING_BATCH) pool_step(s, 0);
        if (sim_boundary(s, 1) == FLEET_SERVING_BATCH) pool_step(s, 1);
    }
    sim_poll(s);
    sim_check(s);
}
static void memory_bound_work_of_the_lower_class_is_deferred(test_run *t)
{
    run_with(t, shared_bandwidth, defers);
}

/* ---- fifo, policies of one's own ------------------------------------------------------------- */

static void fifo(fleet_server_desc *d)
{
    d->policy = FLEET_POLICY_FIFO;
}
static void in_order(test_run *t, sim *s)
{
    job *p = submit_long(s, FLEET_PROACTIVE, 2 * SIM_CHUNK, 6), *r;
    uint32_t n = s->n_jobs;
    s->user = &n;
    s->hook = arrive_while_decoding; /* a reactive one in its first chunk */
    CHECK_INT(sim_step(s), FLEET_SERVING_BATCH);
    r = s->jobs + n;
    CHECK_INT(sim_batch(s, 0)->chunk_end, SIM_LAYERS);
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, p));
    sim_layers(s, 0);
    sim_boundary(s, 0);
    CHECK(sim_prefills(s, 0, r) && sim_decodes(s, 0, p));
    sim_layers(s, 0);
    finish(t, s);
}
static void classless(test_run *t, sim *s)
{
    fleet_ticket ticket;
    for (uint32_t i = 0; i < SIM_REQUESTS; i++)
        CHECK_INT(sim_try(s, FLEET_PROACTIVE, 2, 2, 0, &ticket), FLEET_OK);
    CHECK_INT(sim_try(s, FLEET_PROACTIVE, 2, 2, 0, &ticket), FLEET_ERROR_BUSY);
    finish(t, s);
}
static void fifo_serves_in_order_of_arrival(test_run *t)
{
    run_with(t, fifo, in_order);
    if (!t->failed_here) run_with(t, fifo, classless);
}

/* A policy of the user's: it admits all, works on the newest prompt, and decodes the newest request alone. Where `user`
   is set, it also asks for what cannot be. */
FLEET_DEVICE uint32_t newest_of(const fleet_table *table, fleet_phase phase)
{
    uint32_t newest = FLEET_NONE;
    for (uint32_t i = 0; i < table->desc.requests; i++) {
        const fleet_slot *slot = fleet_table_slot(table, i);
        if (slot->phase != (uint32_t)phase) continue;
        if (newest == FLEET_NONE || slot->order > fleet_table_slot(table, newest)->order)
            newest = i;
    }
    return newest;
}
static uint32_t newest_errs, newest_erred, newest_asked;
FLEET_DEVICE void newest_admit(fleet_table *table, uint64_t now)
{
    (void)now;
    for (uint32_t i = 0; i < table->desc.requests; i++) fleet_table_admit(table, i);
}
FLEET_DEVICE uint32_t newest_prefill(fleet_table *table, uint32_t pool)
{
    const uint32_t newest = newest_of(table, FLEET_PHASE_PREFILL);
    (void)pool;
    if (newest != FLEET_NONE || !newest_errs) return newest;
    newest_erred++;
    return newest_erred % 2 ? newest_of(table, FLEET_PHASE_DECODE) : table->desc.requests + 7;
}
FLEET_DEVICE void newest_decode(fleet_table *table, uint32_t pool, uint32_t chunk)
{
    const uint32_t newest = newest_of(table, FLEET_PHASE_DECODE);
    (void)pool, (void)chunk;
    for (uint32_t i = 0; i < table->desc.requests; i++) {
        if (i != newest) fleet_table_evict(table, i);
        if (newest_errs && fleet_table_slot(table, i)->phase != FLEET_PHASE_DECODE)
            newest_erred += 1000 * fleet_table_join(table, i);
    }
    if (newest != FLEET_NONE) fleet_table_join(table, newest);
}
FLEET_DEVICE uint32_t newest_preempts(const fleet_table *table, uint32_t pool, uint32_t slot)
{
    (void)table, (void)pool, (void)slot;
    newest_asked++;
    return 0;
}
FLEET_DEVICE uint32_t newest_lends(const fleet_table *table)
{
    (void)table;
    return 0;
}
FLEET_POLICY(newest)

static uint32_t newest_step(test_run *t, sim *s)
{
    const uint32_t next = newest_boundary(s->table, 0, ++s->step[0], s->now);
    s->layer[0] = 0;
    sim_poll(s);
    if (next != FLEET_SERVING_BATCH) return next;
    if (newest_layer(s->table, 0, s->step[0], 1, s->now) || sim_batch(s, 0)->decode_rows > 1)
        test_fail(t, __FILE__, __LINE__, "rows give way, or %u are decoded",
                  sim_batch(s, 0)->decode_rows);
    sim_layers(s, 0);
    return next;
}
static void own(test_run *t, sim *s)
{
    job *old = submit_long(s, FLEET_REACTIVE, 2, 6), *young;
    newest_errs = s->user != NULL, newest_erred = 0;
    newest_step(t, s);
    newest_step(t, s);
    CHECK(sim_decodes(s, 0, old));
    young = submit_long(s, FLEET_PROACTIVE, 3, 4);
    newest_step(t, s);
    CHECK(sim_prefills(s, 0, young));
    newest_step(t, s);
    CHECK(sim_decodes(s, 0, young) && !sim_decodes(s, 0, old));
    for (uint32_t i = 0; i < 40 && newest_step(t, s) == FLEET_SERVING_BATCH; i++) {
        if (!young->ended) CHECK(!sim_decodes(s, 0, old));
    }
    CHECK(young->ended && old->ended);
    if (newest_errs) CHECK(newest_erred > 2 && newest_erred < 1000);
    finish(t, s);
}
static void policy_may_be_replaced(test_run *t)
{
    run_with(t, NULL, own);
}
static void policy_that_errs_harms_no_request(test_run *t)
{
    fleet_server_desc d = sim_desc();
    simulate(t, &d, own, &d);
}

/* The layers of an iteration wait for what is decided between them: without anything new nothing is. */
static void unasked(test_run *t, sim *s)
{
    submit_long(s, FLEET_PROACTIVE, SIM_CHUNK, 1);
    newest_asked = 0;
    CHECK_INT(newest_boundary(s->table, 0, ++s->step[0], s->now), FLEET_SERVING_BATCH);
    for (uint32_t layer = 1; layer < SIM_LAYERS; layer++) {
        if (layer == 2) submit_long(s, FLEET_PROACTIVE, 1, 1);
        CHECK_INT(newest_layer(s->table, 0, s->step[0], layer, s->now), 0);
        CHECK_INT(newest_asked, layer >= 2);
    }
    s->layer[0] = 0;
    sim_layers(s, 0);
    for (uint32_t i = 0; i < 20 && newest_step(t, s) == FLEET_SERVING_BATCH; i++) {
    }
    finish(t, s);
}
static void policy_is_asked_between_layers_when_something_has_come(test_run *t)
{
    run_with(t, NULL, unasked);
}

/* ---- the table, queues and pages ------------------------------------------------------------- */

static void slow_reader(test_run *t, sim *s)
{
    job *slow = submit_long(s, FLEET_REACTIVE, 2, 10), *other;
    slow->held = 1;
    other = submit_long(s, FLEET_PROACTIVE, 2, 14);
    for (uint32_t i = 0; i < 40; i++) sim_step(s);
    CHECK_INT(slow->n, 3); /* as many as the host may leave unreleased */
    CHECK_INT(slot_of(s, slow)->generated, 4);
    CHECK(!(slot_of(s, slow)->flags & FLEET_SLOT_JOINED)); /* it takes no row from others */
    CHECK(other->ended && other->end == FLEET_EVENT_FINISHED);
    sim_release(s, slow);
    finish(t, s);
}
static void three_events(fleet_server_desc *d)
{
    d->events = 3;
}
static void request_whose_events_are_not_released_waits_alone(test_run *t)
{
    run_with(t, three_events, slow_reader);
}

static void cancel_anywhere(test_run *t, sim *s)
{
    for (uint32_t when = 0; when < 12; when++) {
        job *j = submit_long(s, (fleet_class)(when % 2), 2 * SIM_CHUNK, 6);
        uint64_t stale = s->n_jobs > 1 ? s->jobs[0].id : 0;
        for (uint32_t i = 0; i < when; i++) sim_step(s);
        if (stale && s->jobs[0].id != j->id) fleet_server_cancel(&s->server, stale); /* no effect */
        sim_cancel(s, j);
        sim_cancel(s, j);
        sim_finish(s);
        CHECK(j->ended);
        CHECK_INT(j->end, when < 7 ? FLEET_EVENT_CANCELLED : FLEET_EVENT_FINISHED);
    }
    sim_check(s);
}
static void few_requests(fleet_server_desc *d)
{
    d->requests = 2;
}
static void request_may_be_cancelled_in_any_phase(test_run *t)
{
    run_with(t, few_requests, cancel_anywhere);
}

static void cancel_former(test_run *t, sim *s)
{
    job *a = submit_long(s, FLEET_PROACTIVE, 2, 6), *b, *c;
    sim_step(s);
    sim_cancel(s, a);
    sim_finish(s);
    b = submit_long(s, FLEET_PROACTIVE, 2, 6); /* in a's slot */
    CHECK_INT((uint32_t)a->id, (uint32_t)b->id);
    sim_step(s);
    fleet_server_cancel(&s->server, a->id);
    sim_step(s);
    c = submit_long(s, FLEET_REACTIVE, 2, 6);
    sim_cancel(s, c); /* b's slot is looked at, and has the cancel of a */
    sim_finish(s);
    sim_check(s);
    CHECK_INT(b->end, FLEET_EVENT_FINISHED);
    CHECK_INT(c->end, FLEET_EVENT_CANCELLED);
}
static void one_reactive(fleet_server_desc *d)
{
    d->requests = 2, d->reactive_requests = 1, d->policy = FLEET_POLICY_AGENT;
}
static void cancel_of_a_former_request_has_no_effect(test_run *t)
{
    run_with(t, one_reactive, cancel_former);
}

static void cancel_chunk(sim *s, uint32_t pool, uint32_t layer)
{
    (void)pool;
    if (layer == 2) sim_cancel(s, s->jobs);
}
static void cancel_inside(test_run *t, sim *s)
{
    sim_submit(s, FLEET_REACTIVE, 2 * SIM_CHUNK, 2);
    s->hook = cancel_chunk;
    sim_step(s);
    CHECK_INT(sim_batch(s, 0)->chunk_end, 2);
    sim_finish(s);
    sim_check(s);
    CHECK_INT(s->jobs[0].end, FLEET_EVENT_CANCELLED);
}
static void cancelled_chunk_ends_at_the_next_layer(test_run *t)
{
    run_with(t, NULL, cancel_inside);
}

static void stop_anywhere(test_run *t, sim *s)
{
    const uint32_t drain = *(uint32_t *)s->user % 2, when = *(uint32_t *)s->user / 2;
    fleet_ticket ticket;
    uint32_t next = FLEET_SERVING_IDLE;
    for (uint32_t i = 0; i < 5; i++)
        submit_long(s, (fleet_class)(i % 2), 2 + 3 * i, 5)->held = !drain && i < 2;
    for (uint32_t i = 0; i < when; i++) sim_step(s);
    fleet_server_stop(&s->server, drain);
    for (uint32_t i = 0; i < s->n_jobs; i++) s->jobs[i].cancelled = !drain;
    CHECK_INT(sim_try(s, FLEET_REACTIVE, 1, 1, 0, &ticket), FLEET_ERROR_ABORTED);
    for (uint32_t i = 0; i < 200 && next != FLEET_SERVING_STOPPED; i++) next = sim_step(s);
    CHECK_INT(next, FLEET_SERVING_STOPPED);
    sim_poll(s);
    if (!drain) CHECK(s->table->stats.iterations <= when);
    for (uint32_t i = 0; i < s->n_jobs; i++)
        if (drain) CHECK_INT(s->jobs[i].end, FLEET_EVENT_FINISHED);
    sim_check(s);
    /* The table is good for another launch. */
    fleet_server_ended(&s->server, FLEET_OK);
    CHECK_INT(fleet_server_reset(&s->server, NULL), FLEET_OK);
    sim_submit(s, FLEET_REACTIVE, 3, 3);
    sim_finish(s);
    CHECK_INT(s->jobs[s->n_jobs - 1].end, FLEET_EVENT_FINISHED);
    sim_check(s);
}
/* Also of a server whose host does not release events any more: a stop needs no room. */
static void server_stops_at_once_or_when_all_have_ended(test_run *t)
{
    fleet_server_desc d = sim_desc();
    d.events = 2;
    for (uint32_t i = 0; i < 24 && !t->failed_here; i++) simulate(t, &d, stop_anywhere, &i);
}

/* Requests, steps, arrivals, messages and changes have numbers that wrap. Half-way, too, a cancel is newer than that of the
   request before. */
static void wrap(test_run *t, sim *s)
{
    s->step[0] = FLEETI_TEST_START;
    for (uint32_t round = 0; round < 6; round++) {
        job *stays = submit_long(s, FLEET_REACTIVE, 2, 3);
        job *goes = submit_long(s, FLEET_PROACTIVE, SIM_CHUNK + 2, 9), *first, *second;
        sim_step(s);
        sim_step(s);
        sim_cancel(s, goes);
        while (!stays->ended || !goes->ended) sim_step(s);
        CHECK_INT(stays->end, FLEET_EVENT_FINISHED);
        CHECK_INT(goes->end, FLEET_EVENT_CANCELLED);
        first = sim_submit(s, FLEET_PROACTIVE, 3, 1);
        second = sim_submit(s, FLEET_PROACTIVE, 3, 1);
        sim_step(s);
        CHECK(first->started && !second->started);
        sim_finish(s);
    }
    sim_check(s);
}
static void numbers_wrap(test_run *t)
{
    const fleet_server_desc d = sim_desc();
    for (uint32_t back = 1; back <= 4 && !t->failed_here; back++) {
        test_start = 0u - back;
        simulate(t, &d, wrap, NULL);
        test_start = 0x80000000u - back;
        simulate(t, &d, wrap, NULL);
    }
    test_start = 0;
}

static void stop_suspended(test_run *t, sim *s)
{
    job *p = submit_long(s, FLEET_PROACTIVE, 2, 8);
    uint32_t n = s->n_jobs;
    s->user = &n;
    sim_step(s);
    s->hook = arrive_while_decoding;
    sim_step(s);
    CHECK_INT(sim_batch(s, 0)->decode_end, 2);
    for (uint32_t i = 0; i < s->n_jobs; i++) s->jobs[i].cancelled = 1;
    fleet_server_stop(&s->server, 0);
    CHECK_INT(sim_step(s), FLEET_SERVING_STOPPED);
    CHECK_INT(p->end, FLEET_EVENT_CANCELLED);
    sim_check(s);
}
static void suspended_rows_do_not_resume_after_a_stop(test_run *t)
{
    run_with(t, suspend_decode, stop_suspended);
}

static void launch_dies(test_run *t, sim *s)
{
    fleet_server_event e;
    job *j = submit_long(s, FLEET_REACTIVE, 2, 9), *k;
    for (uint32_t i = 0; i < 4; i++) sim_step(s);
    CHECK_INT(j->n, 3);
    sim_boundary(s, 0); /* sends one more */
    k = sim_submit(s, FLEET_PROACTIVE, 3, 2);
    fleet_server_ended(&s->server, FLEET_ERROR_TIMEOUT);
    sim_poll(s);
    CHECK_INT(j->n, 4); /* what it had yielded has come */
    CHECK(j->ended && k->ended);
    CHECK_INT(j->end, FLEET_EVENT_FAILED);
    CHECK_INT(k->status, FLEET_ERROR_TIMEOUT);
    CHECK(!fleet_server_poll(&s->server, &e));
    CHECK_INT(fleet_server_reset(&s->server, NULL), FLEET_OK);
    sim_submit(s, FLEET_PROACTIVE, 3, 2);
    sim_finish(s);
    CHECK_INT(s->jobs[s->n_jobs - 1].end, FLEET_EVENT_FINISHED);
}
static void requests_of_a_launch_that_failed_get_its_status(test_run *t)
{
    run_with(t, NULL, launch_dies);
}

static void one_fails(test_run *t, sim *s)
{
    job *bad = submit_long(s, FLEET_REACTIVE, 2, 9), *good = submit_long(s, FLEET_REACTIVE, 3, 9);
    for (uint32_t i = 0; i < 4; i++) sim_step(s);
    sim_boundary(s, 0);
    sim_layers(s, 0);
    for (uint32_t i = 0; i < 2; i++)
        if (fleet_batch_row(sim_batch(s, 0), i, 0).slot == (uint32_t)bad->id - 1)
            fleet_row_result(s->table, 0, s->step[0], i, FLEET_RESULT_FAIL, FLEET_ERROR_DEVICE);
    sim_finish(s);
    sim_check(s);
    CHECK_INT(bad->end, FLEET_EVENT_FAILED);
    CHECK_INT(bad->status, FLEET_ERROR_DEVICE);
    CHECK_INT(good->end, FLEET_EVENT_FINISHED);
}
static void request_that_fails_takes_no_other_with_it(test_run *t)
{
    run_with(t, NULL, one_fails);
}

/* Where requests have words, one without them is refused by the name of the field. */
static void requests_need_their_words(test_run *t)
{
    const uint32_t prompt[1] = {1}, words[2] = {2, 3};
    fleet_server_desc d = fleet_server_desc_default();
    fleet_server server;
    fleet_ticket ticket;
    fleet_request r;
    memset(&r, 0, sizeof r);
    d.words = 2;
    CHECK_INT(fleet_server_create(&server, &d, NULL), FLEET_OK);
    if (t->failed_here) return;
    r.priority = FLEET_REACTIVE, r.prompt = prompt, r.prompt_tokens = r.max_tokens = 1;
    CHECK_INT(fleet_server_submit(&server, &r, &ticket), FLEET_ERROR_NULL);
    CHECK_TEXT(ticket.field, "words");
    r.words = words;
    CHECK_INT(fleet_server_submit(&server, &r, &ticket), FLEET_OK);
    fleet_server_free(&server);
}
static void refused(test_run *t, sim *s)
{
    fleet_ticket ticket;
    CHECK_INT(sim_try(s, FLEET_REACTIVE, SIM_TOKENS, 1, 0, &ticket), FLEET_ERROR_ARGUMENT);
    CHECK_TEXT(ticket.field, "prompt_tokens");
    CHECK_INT(ticket.fits, SIM_TOKENS - 1);
    CHECK_INT(sim_try(s, FLEET_REACTIVE, 10, SIM_TOKENS - 9, 0, &ticket), FLEET_ERROR_ARGUMENT);
    CHECK_TEXT(ticket.field, "max_tokens");
    CHECK_INT(ticket.fits, SIM_TOKENS - 10);
    CHECK_INT(sim_try(s, FLEET_REACTIVE, 0, 1, 0, &ticket), FLEET_ERROR_ARGUMENT);
    CHECK_INT(sim_try(s, FLEET_REACTIVE, 1, 0, 0, &ticket), FLEET_ERROR_ARGUMENT);
    /* A proactive request can have 6 of the 16 pages, of four tokens each. */
    CHECK_INT(sim_try(s, FLEET_PROACTIVE, 20, 5, 0, &ticket), FLEET_ERROR_ARGUMENT);
    CHECK_INT(ticket.fits, 4);
    CHECK_INT(sim_try(s, FLEET_PROACTIVE, 20, 4, 0, &ticket), FLEET_OK);
    for (uint32_t i = 0; i < SIM_REQUESTS - 8 - 1; i++)
        CHECK_INT(sim_try(s, FLEET_PROACTIVE, 2, 2, 0, &ticket), FLEET_OK);
    CHECK_INT(sim_try(s, FLEET_PROACTIVE, 2, 2, 0, &ticket), FLEET_ERROR_BUSY);
    CHECK(!ticket.id && !ticket.field);
    /* A quarter of the entries is left to reactive requests. */
    for (uint32_t i = 0; i < 8; i++)
        CHECK_INT(sim_try(s, FLEET_REACTIVE, 2, 2, 0, &ticket), FLEET_OK);
    CHECK_INT(sim_try(s, FLEET_REACTIVE, 2, 2, 0, &ticket), FLEET_ERROR_BUSY);
    sim_finish(s);
    for (uint32_t i = 0; i < s->n_jobs; i++) CHECK_INT(s->jobs[i].end, FLEET_EVENT_FINISHED);
}
static void few_pages(fleet_server_desc *d)
{
    d->pages = 16, d->reactive_pages = 10;
}
static void request_that_never_fits_is_refused_with_what_would(test_run *t)
{
    run_with(t, few_pages, refused);
}

static void shares(test_run *t, sim *s)
{
    job *p[3], *r[4];
    /* Two pages each; six pages are for both classes. */
    for (uint32_t i = 0; i < 3; i++) p[i] = submit_long(s, FLEET_PROACTIVE, 3, 5);
    sim_boundary(s, 0);
    CHECK_INT(s->table->pages_used[FLEET_PROACTIVE], 6);
    sim_layers(s, 0);
    submit_long(s, FLEET_PROACTIVE, 3, 5);
    r[0] = submit_long(s, FLEET_REACTIVE, 20, 20); /* all reactive pages */
    sim_step(s);
    CHECK_INT(slot_of(s, r[0])->phase, FLEET_PHASE_PREFILL);
    CHECK_INT(s->table->stats.queued[FLEET_PROACTIVE], 1);
    finish(t, s);
    (void)p;
}
static void pages_are_kept_for_reactive_requests(test_run *t)
{
    run_with(t, few_pages, shares);
}

static void starve(test_run *t, sim *s)
{
    job *p;
    uint32_t i;
    submit_long(s, FLEET_REACTIVE, 20, 20);
    submit_long(s, FLEET_REACTIVE, 3, 5);
    sim_step(s);
    p = submit_long(s, FLEET_PROACTIVE, 15, 9); /* all pages that it may have */
    s->now += 500;
    for (i = 0; i < 200 && !p->started; i++) {
        fleet_ticket
            ticket; /* as many as the table takes: they would use every page that comes free */
        while (s->n_jobs < SIM_JOBS - 2 &&
               sim_try(s, FLEET_REACTIVE, 10, 10, 0, &ticket) == FLEET_OK) {
        }
        sim_step(s);
    }
    CHECK(i < 200);
    fleet_server_stop(&s->server, 1);
    finish(t, s);
}
static void few_pages_aged(fleet_server_desc *d)
{
    few_pages(d);
    d->age_ticks = 400;
    d->requests = 16, d->reactive_requests = 8;
}
static void aged_request_gets_pages_in_a_flood(test_run *t)
{
    run_with(t, few_pages_aged, starve);
}

static void prefix(test_run *t, sim *s)
{
    fleet_ticket ticket;
    job *first = s->jobs, *second = s->jobs + 1;
    CHECK_INT(sim_try(s, FLEET_REACTIVE, 18, 3, 7, &ticket), FLEET_OK);
    sim_finish(s);
    CHECK_INT(sim_try(s, FLEET_REACTIVE, 22, 3, 7, &ticket),
              FLEET_OK); /* begins with the same tokens */
    sim_boundary(s, 0);
    CHECK_INT(sim_batch(s, 0)->chunk.position, 16); /* four whole pages */
    sim_layers(s, 0);
    sim_finish(s);
    CHECK(first->runs[15][0] && !second->runs[15][0] && second->runs[16][0]);
    CHECK_INT(first->reused, 0);
    CHECK_INT(second->reused, 16);
    /* Its only token comes after its pages have been given back. */
    CHECK_INT(sim_try(s, FLEET_PROACTIVE, 22, 1, 7, &ticket), FLEET_OK);
    sim_finish(s);
    CHECK_INT(s->jobs[2].reused, 20);
    sim_check(s);
}
static void prompt_that_begins_alike_reuses_whole_pages(test_run *t)
{
    run_with(t, NULL, prefix);
}

/* The server has no memory, and is not made; what it says is the field and the largest value that fits. */
static void refuses(test_run *t, const fleet_server_desc *d, const char *field, uint32_t fits)
{
    fleet_server server;
    CHECK_INT(fleet_server_bytes(d), 0);
    CHECK_INT(fleet_server_host_bytes(d), 0);
    CHECK_INT(fleet_server_create(&server, d, NULL), FLEET_ERROR_ARGUMENT);
    CHECK_TEXT(server.field, field);
    CHECK_INT(server.fits, fits);
    CHECK(!server.table && !server.desk);
    fleet_server_free(&server);
}
static void descriptors(test_run *t)
{
    fleet_server_desc d = fleet_server_desc_default();
    fleet_server server;
    CHECK(fleet_server_bytes(&d) > 0 && fleet_server_host_bytes(&d) > 0);
    d.requests = 65537;
    refuses(t, &d, "requests", 65536);
    d.requests = 65536;
    refuses(t, &d, "events", 15); /* with their last ones 2^20 in all */
    d.events = 15;
    CHECK(fleet_server_bytes(&d) > 0);
    d = fleet_server_desc_default();
    d.events = 1u << 16;
    refuses(t, &d, "events", 4096);
    d = fleet_server_desc_default();
    d.reactive_pages = 2000;
    refuses(t, &d, "reactive_pages", 1023);
    d.reactive_pages = 0, d.policy = (fleet_policy_kind)(FLEET_POLICY_FIFO + 1);
    refuses(t, &d, "policy", FLEET_POLICY_FIFO);
    CHECK_INT(fleet_server_create(NULL, &d, NULL), FLEET_ERROR_NULL);
    CHECK_INT(fleet_server_create(&server, NULL, NULL), FLEET_OK);
    CHECK(!server.field);
    fleet_server_free(&server);
}
/* Extreme values of each field, alone and equal or next to another one's: a descriptor is refused with a value that fits,
   or the server takes a smallest request of each class, and the largest ones that it names. */
#define DESC_FIELDS 15u
static uint32_t *desc_field(fleet_server_desc *d, uint32_t i, const char **name)
{
    static const char *const names[DESC_FIELDS] = {
        "requests",    "reactive_requests", "events",          "pages",
        "page_tokens", "reactive_pages",    "prompt_tokens",   "words",
        "decode_rows", "chunk_rows",        "sequence_tokens", "layers",
        "pools",       "mixed_rows",        "beside_rows"};
    uint32_t *const at[DESC_FIELDS] = {
        &d->requests,    &d->reactive_requests, &d->events,          &d->pages,
        &d->page_tokens, &d->reactive_pages,    &d->prompt_tokens,   &d->words,
        &d->decode_rows, &d->chunk_rows,        &d->sequence_tokens, &d->layers,
        &d->pools,       &d->mixed_rows,        &d->beside_rows};
    *name = names[i];
    return at[i];
}
static void takes_requests(test_run *t, const fleet_server_desc *d)
{
    static uint32_t tokens[70000];
    fleet_server s;
    CHECK_INT(fleet_server_create(&s, d, NULL), FLEET_OK);
    for (uint32_t class_ = 0; class_ < 2 && !t->failed_here; class_++) {
        fleet_request r;
        fleet_ticket ticket;
        fleet_status status;
        memset(&r, 0, sizeof r);
        r.priority = (fleet_class)class_, r.prompt = r.words = tokens;
        r.prompt_tokens = UINT32_MAX, r.max_tokens = 1;
        CHECK_INT(fleet_server_submit(&s, &r, &ticket), FLEET_ERROR_ARGUMENT);
        CHECK_TEXT(ticket.field, "prompt_tokens");
        CHECK(ticket.fits >= 1 && ticket.fits <= s.desc.prompt_tokens);
        r.prompt_tokens = ticket.fits + 1;
        CHECK_INT(fleet_server_submit(&s, &r, &ticket), FLEET_ERROR_ARGUMENT);
        r.prompt_tokens = ticket.fits < 65000 ? ticket.fits : 65000, r.max_tokens = UINT32_MAX;
        CHECK_INT(fleet_server_submit(&s, &r, &ticket), FLEET_ERROR_ARGUMENT);
        CHECK_TEXT(ticket.field, "max_tokens");
        CHECK(ticket.fits >= 1 && ticket.fits < s.desc.sequence_tokens);
        r.max_tokens = ticket.fits;
        status = fleet_server_submit(&s, &r, &ticket);
        /* A reactive request before may have the only entry. */
        CHECK(!status || (class_ && s.desc.requests == 1 && status == FLEET_ERROR_BUSY));
    }
    fleet_server_free(&s);
}
static void check_descriptor(test_run *t, fleet_server_desc d)
{
    fleet_server s;
    const char *name = "";
    if (fleet_server_bytes(&d) && fleet_server_host_bytes(&d)) {
        if (fleet_server_bytes(&d) + fleet_server_host_bytes(&d) < 1u << 18) takes_requests(t, &d);
        return;
    }
    CHECK_INT(fleet_server_create(&s, &d, NULL), FLEET_ERROR_ARGUMENT);
    for (uint32_t i = 0; i < DESC_FIELDS; i++) {
        uint32_t *at = desc_field(&d, i, &name);
        if (strcmp(name, s.field)) continue;
        *at = s.fits;
        CHECK_INT(fleet_server_bytes(&d) != 0 ||
                      strcmp(name, (fleet_server_create(&s, &d, NULL), s.field)),
                  1);
        return;
    }
    CHECK_TEXT(s.field, "the name of a field");
}
static void extreme_descriptors(test_run *t)
{
    static const uint32_t values[] = {0,         1,
                                      2,         3,
                                      4,         7,
                                      8,         9,
                                      15,        16,
                                      64,        4096,
                                      4097,      65535,
                                      65536,     65537,
                                      1u << 20,  (1u << 24) - 1,
                                      1u << 24,  (1u << 24) + 1,
                                      1u << 31,  UINT32_MAX - 1,
                                      UINT32_MAX};
    const uint32_t n = sizeof values / sizeof *values;
    static const float ticks[] = {-1, 1e-30f, 1e-3f, 1e9f, 2e9f};
    fleet_server_desc base = fleet_server_desc_default();
    const char *name;
    base.requests = 4, base.events = 2, base.pages = 8, base.page_tokens = 4;
    base.prompt_tokens = 16, base.sequence_tokens = 32, base.decode_rows = base.chunk_rows = 4;
    for (uint32_t a = 0; a < DESC_FIELDS && !t->failed_here; a++)
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t b = a; b < DESC_FIELDS; b++)
                for (uint32_t less = 0; less < 2; less++) {
                    fleet_server_desc d = base;
                    *desc_field(&d, a, &name) = values[i];
                    *desc_field(&d, b, &name) = values[i] - less;
                    check_descriptor(t, d);
                    *desc_field(&d, a, &name) = values[i] - less;
                    *desc_field(&d, b, &name) = values[i];
                    check_descriptor(t, d);
                }
    for (uint32_t i = 0; i < sizeof ticks / sizeof *ticks; i++) {
        fleet_server_desc d = base;
        d.tick_ns = ticks[i];
        CHECK((fleet_server_bytes(&d) != 0) == (i == 2 || i == 3));
    }
}
static void server_has_two_pools_at_most(test_run *t)
{
    fleet_server_desc d = fleet_server_desc_default();
    fleet_server server;
    d.pools = 3;
    refuses(t, &d, "pools", 2);
    d.pools = 2;
    CHECK_INT(fleet_server_create(&server, &d, NULL), FLEET_OK);
    CHECK(!server.field);
    fleet_server_free(&server);
}

/* In memory of the caller's, which stays his. */
static void server_in_given_memory(test_run *t)
{
    fleet_server_desc d = sim_desc();
    void *device = NULL, *pinned = NULL, *pinned_device = NULL;
    fleet_server server;
    fleet_request r;
    fleet_ticket ticket;
    const uint32_t prompt = 7;
    CHECK_INT(fleet_device_alloc(&device, fleet_server_bytes(&d)), FLEET_OK);
    CHECK_INT(fleet_pinned_alloc(&pinned, &pinned_device, fleet_server_host_bytes(&d)), FLEET_OK);
    CHECK_INT(fleet_server_init(&server, &d, NULL, pinned, pinned_device, NULL), FLEET_ERROR_NULL);
    CHECK_INT(fleet_server_init(&server, &d, device, NULL, pinned_device, NULL), FLEET_ERROR_NULL);
    CHECK_INT(fleet_server_init(&server, &d, device, pinned, pinned_device, NULL), FLEET_OK);
    CHECK((void *)server.table == device && (void *)server.desk == pinned);
    r.priority = FLEET_REACTIVE, r.prompt = &prompt, r.prompt_tokens = r.max_tokens = 1;
    CHECK_INT(fleet_server_submit(&server, &r, &ticket), FLEET_OK);
    fleet_server_free(&server);
    memset(device, 0, fleet_server_bytes(&d));
    memset(pinned, 0, fleet_server_host_bytes(&d));
    fleet_device_free(device);
    fleet_pinned_free(pinned);
}

/* ---- random traffic -------------------------------------------------------------------------- */

typedef struct traffic {
    uint32_t seed, state, requests, stop;
} traffic;
static uint32_t draw(traffic *r, uint32_t n)
{
    r->state = r->state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(r->state >> 8) * n >> 24);
}
static void act(sim *s, uint32_t pool, uint32_t layer)
{
    traffic *r = (traffic *)s->user;
    fleet_ticket ticket;
    (void)pool, (void)layer;
    if (s->n_jobs < r->requests && draw(r, 8) == 0) {
        const fleet_class priority = (fleet_class)(draw(r, 3) != 0);
        sim_try(s, priority, 1 + draw(r, draw(r, 4) ? 10 : 30), 1 + draw(r, draw(r, 4) ? 6 : 18),
                draw(r, 4) ? 0 : 1 + draw(r, 3), &ticket);
        if (draw(r, 6) == 0) s->jobs[s->n_jobs - 1].held = 1;
    }
    if (s->n_jobs && draw(r, 60) == 0) sim_cancel(s, s->jobs + draw(r, s->n_jobs));
    if (s->n_jobs && draw(r, 12) == 0) sim_release(s, s->jobs + draw(r, s->n_jobs));
}
static void traffic_scenario(test_run *t, sim *s)
{
    traffic *r = (traffic *)s->user;
    uint32_t next = FLEET_SERVING_IDLE, pool = 0;
    s->hook = act;
    for (uint32_t i = 0; i < 200000 && next != FLEET_SERVING_STOPPED && !t->failed_here; i++) {
        uint32_t open = 0;
        if (s->n_jobs >= r->requests) {
            fleet_server_stop(&s->server, 1);
            for (uint32_t k = 0; k < s->n_jobs; k++) sim_release(s, s->jobs + k);
        }
        act(s, 0, 0);
        pool = s->server.desc.pools == 2 ? draw(r, 2) : 0;
        /* One step of the pool: a layer of its batch, or a boundary. */
        if (s->state[pool] == FLEET_SERVING_BATCH && s->layer[pool] < SIM_LAYERS) {
            sim_layer(s, pool);
            continue;
        }
        next = sim_boundary(s, pool);
        if (next == FLEET_SERVING_IDLE) s->now += SIM_LAYER_TICKS;
        sim_poll(s);
        for (uint32_t k = 0; k < s->server.desc.pools; k++)
            open |= s->state[k] == FLEET_SERVING_BATCH && s->layer[k] < SIM_LAYERS;
        CHECK(next != FLEET_SERVING_STOPPED || !open);
        CHECK(!fleet_pages_check(s->table->pages));
    }
    CHECK_INT(next, FLEET_SERVING_STOPPED);
    CHECK_INT(s->n_jobs, r->requests);
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        const job *j = s->jobs + i;
        CHECK(j->end == FLEET_EVENT_FINISHED || j->end == FLEET_EVENT_CANCELLED);
        if (s->server.desc.policy == FLEET_POLICY_AGENT) CHECK(j->waited_layers <= 1);
    }
    sim_check(s);
}
/* Random arrivals, lengths, cancels and readers that stop, under many settings: every request ends once, with the
   tokens that it yields alone; no layer of a token is computed twice; all pages come back. */
static void random_traffic(test_run *t)
{
    const uint32_t seeds = getenv("FLEET_DEEP") ? 5000 : 150;
    for (uint32_t seed = 1; seed <= seeds && !t->failed_here; seed++) {
        fleet_server_desc d = sim_desc();
        traffic r;
        memset(&r, 0, sizeof r);
        r.seed = seed, r.state = seed * 2654435761u, r.requests = 60;
        start_at(seed % START_POINTS);
        d.requests = 8 + seed % 3 * 12;
        d.reactive_requests = 2;
        d.events = 1 + seed % 5;
        d.one_stage = seed / 2 % 2;
        d.suspend_decode = seed / 3 % 2;
        d.pools = 1 + seed / 4 % 2;
        d.mixed_rows = seed % 4;
        if (seed % 5 == 0) roofline(&d);
        if (seed % 7 == 0) d.policy = FLEET_POLICY_FIFO;
        d.pages = seed % 3 ? SIM_PAGES : 24;
        d.reactive_pages = d.pages / 2;
        d.age_ticks = seed % 2 ? 600 : 1000000;
        if (d.pages < SIM_PAGES) d.sequence_tokens = d.prompt_tokens = 48;
        simulate(t, &d, traffic_scenario, &r);
        if (t->failed_here) printf("    in: seed %u\n", seed);
    }
}

static void all(test_run *t)
{
    TEST(reactive_preempts_proactive_prefill_at_each_layer);
    TEST(reactive_requests_do_not_preempt_one_another);
    TEST(prefill_is_serial_and_in_chunks);
    TEST(short_prompts_overtake_long_ones);
    TEST(stopped_chunks_go_on_first);
    TEST(chunks_are_short_beside_decode_rows);
    TEST(chunks_without_decode_rows_are_long);
    TEST(classes_have_queues_of_their_own);
    TEST(prefill_precedes_decode);
    TEST(proactive_prefill_runs_while_no_reactive_one_waits);
    TEST(aged_prefill_goes_on_in_a_flood_of_reactive_requests);
    TEST(proactive_prefill_waits_in_a_flood_until_it_is_aged);
    TEST(request_joins_decode_at_the_next_iteration);
    TEST(batch_of_one_class_has_no_cap);
    TEST(mixed_batch_is_capped_and_evicted_requests_resume);
    TEST(of_equally_long_requests_the_newest_is_evicted);
    TEST(aged_request_joins_decode_past_the_cap);
    TEST(aged_requests_do_not_count_for_the_cap);
    TEST(reactive_request_takes_a_row_of_a_full_batch);
    TEST(decode_gives_way_between_iterations);
    TEST(decode_may_be_suspended_at_layers);
    TEST(roofline_figures);
    TEST(mixed_batch_is_capped_by_predicted_time);
    TEST(time_that_no_word_holds_is_not_predicted);
    TEST(error_of_prediction_is_reported);
    TEST(idle_decode_pool_helps_layer_by_layer);
    TEST(lent_chiplets_go_back_at_the_next_layer);
    TEST(memory_bound_work_of_the_lower_class_is_deferred);
    TEST(fifo_serves_in_order_of_arrival);
    TEST(policy_may_be_replaced);
    TEST(policy_that_errs_harms_no_request);
    TEST(policy_is_asked_between_layers_when_something_has_come);
    TEST(request_whose_events_are_not_released_waits_alone);
    TEST(request_may_be_cancelled_in_any_phase);
    TEST(cancel_of_a_former_request_has_no_effect);
    TEST(numbers_wrap);
    TEST(cancelled_chunk_ends_at_the_next_layer);
    TEST(server_stops_at_once_or_when_all_have_ended);
    TEST(suspended_rows_do_not_resume_after_a_stop);
    TEST(requests_of_a_launch_that_failed_get_its_status);
    TEST(request_that_fails_takes_no_other_with_it);
    TEST(request_that_never_fits_is_refused_with_what_would);
    TEST(requests_need_their_words);
    TEST(pages_are_kept_for_reactive_requests);
    TEST(aged_request_gets_pages_in_a_flood);
    TEST(prompt_that_begins_alike_reuses_whole_pages);
    TEST(descriptors);
    TEST(extreme_descriptors);
    TEST(server_has_two_pools_at_most);
    TEST(server_in_given_memory);
    TEST(random_traffic);
}
TEST_MAIN(all)
