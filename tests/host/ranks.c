/* One graph over several ranks, on one device: the launch runs the tasks of all of them, each waits in its own region and
   stores to those of the others. Every task sees its producers' data of this step, wherever they ran. */
// run: asan engine=both
// run: tsan
#include "model.h"

/* Three grids of n tasks, spread over the ranks: all tasks of one grid notify one element, for which all tasks of the next
   grid wait. */
static void model_barrier(model *m, int32_t n)
{
    model_begin(m);
    model_add_grid(m, FLEET_LEVEL_CU, 1, n, 1);
    model_add_grid(m, FLEET_LEVEL_CHIPLET, 1, n, 1);
    model_add_grid(m, FLEET_LEVEL_DEVICE, 1, n, 1);
    model_add_event(m, 0, 1, 1);
    model_add_event(m, 0, 1, 1);
    model_out(m, 0, 0, "i->");
    model_in(m, 1, 0, "i->");
    model_out(m, 1, 1, "i->");
    model_in(m, 2, 1, "i->");
}

/* Ranks 2 to 4, of one and of two chiplets, under both schedules, with and without counts on each chiplet first. */
static uint32_t next_setting(uint32_t i, setting *s)
{
    fleet_host_engine first, last;
    setting_engines(&first, &last);
    memset(s, 0, sizeof *s);
    s->ranks = 2 + i % 3;
    s->schedule = i / 3 % 2 ? FLEET_SCHEDULE_CHIPLET : FLEET_SCHEDULE_STATIC;
    s->topology = fleet_topology_make(1 + i / 6 % 2, 2 + i / 3 % 2);
    s->topology.private_l2 = 0;
    s->levels = 1 + i / 2 % 2;
    s->unfused = i % 12 == 7 && s->schedule == FLEET_SCHEDULE_STATIC;
    s->waves = 1 + i % 2;
    s->seed = i + 1;
    s->engine = i % 2 ? last : first;
    s->placement = (fleet_placement)(FLEET_PLACEMENT_LINEAR + i % 3);
    return i < (deep() ? 72u : 12u);
}

static void run_model(test_run *t, model *m, uint32_t first_epoch)
{
    setting s;
    uint32_t i;
    for (i = 0; next_setting(i, &s) && !t->failed_here; i++) {
        rig r;
        if (setting_skipped(i)) continue;
        m->graph = NULL;
        if (!rig_open_at(t, &r, m, &s, first_epoch)) return;
        if (rig_run(&r, 3) || rig_run(&r, 2)) {
            static char report[4096];
            fleet_state_report(&r.state, report, sizeof report);
            test_fail(t, __FILE__, __LINE__, "%s", report);
        } else {
            (void)rig_check(t, &r, 5);
        }
        rig_close(&r);
        model_end(m);
        if (t->failed_here) printf("    %u ranks\n", s.ranks), setting_print(&s);
    }
}

static void exchange(test_run *t)
{
    model m;
    model_exchange(&m, FLEET_LEVEL_WAVE, 5);
    run_model(t, &m, 0);
}
static void exchange_across_the_wrap(test_run *t)
{
    model m;
    model_exchange(&m, FLEET_LEVEL_WAVE, 4);
    run_model(t, &m, 0xfffffffdu);
}
static void barrier(test_run *t)
{
    model m;
    model_barrier(&m, 4);
    run_model(t, &m, 0);
}
static void every_level(test_run *t)
{
    model m;
    model_levels(&m, 4);
    m.grids[4].extent[0] = 4; /* a task on each rank */
    m.grids[4].count = 4, m.n_tasks += 2;
    run_model(t, &m, 0);
}

/* Two workgroups send each other quads in turns, each by its flag alone. */
typedef struct flags {
    fleet_quad quad[2][8]; /* by sender, several in flight */
    uint32_t errors;
} flags;
FLEET_GLOBAL(64) void exchange_flags(flags *f, uint32_t rounds)
{
    const uint32_t own = fleet_block_id(), other = 1 - own;
    if (fleet_thread_id() != 0) return;
    for (uint32_t round = 1; round <= rounds; round++) {
        fleet_quad q, got;
        uint32_t tries = 0;
        for (uint32_t i = 0; i < 3; i++) q.word[i] = cell_value(own, round, i);
        q.word[3] = round;
        if (round % 2)
            fleet_store_flagged_device(&f->quad[own][round % 8], q);
        else
            fleet_store_flagged_system(&f->quad[own][round % 8], q);
        do {
            if (tries && fleet_pause(&tries)) return;
            tries += !tries;
            got = round % 2 ? fleet_load_flagged_device(&f->quad[other][round % 8])
                            : fleet_load_flagged_system(&f->quad[other][round % 8]);
        } while (got.word[3] != round);
        for (uint32_t i = 0; i < 3; i++)
            if (got.word[i] != cell_value(other, round, i)) fleet_add_relaxed_device(&f->errors, 1);
    }
}
FLEET_THUNK2(exchange_flags, flags *, uint32_t)
static void flagged_words_are_whole(test_run *t)
{
    fleet_host_engine engine, last;
    void *memory = NULL, *args[2];
    uint32_t rounds = 200, errors = 0;
    fleet_kernel_desc d = fleet_kernel_desc_default();
    CHECK_STATUS(fleet_device_alloc(&memory, sizeof(flags)), FLEET_OK);
    args[0] = &memory, args[1] = &rounds;
    d.blocks = 2, d.threads = 64;
    setting_engines(&engine, &last);
    for (uint32_t seed = 1; seed <= 20; seed++) {
        d.host.engine = seed % 2 ? engine : last;
        d.host.seed = seed;
        CHECK_STATUS(fleet_device_clear(memory, sizeof(flags), NULL), FLEET_OK);
        CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(exchange_flags), args, &d), FLEET_OK);
        CHECK_STATUS(
            fleet_to_host(&errors, (char *)memory + offsetof(flags, errors), sizeof errors, NULL),
            FLEET_OK);
        CHECK_INT(errors, 0);
    }
    fleet_device_free(memory);
}

static void all(test_run *t)
{
    TEST(flagged_words_are_whole);
    TEST(exchange);
    TEST(exchange_across_the_wrap);
    TEST(barrier);
    TEST(every_level);
}
TEST_MAIN(all)
