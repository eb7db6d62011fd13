/* Random layered graphs in random settings: each task once a step and after all its producers, by tickets and by
   data. FLEET_TEST_SEED replays one graph, FLEET_TEST_GRAPHS says how many. */
// run: asan engine=both timeout=120
// run: asan engine=deterministic -DMANY timeout=120
// run: tsan -DFEW timeout=120
#include "model.h"

static fleet_level any_level(uint64_t *seed)
{
    static const fleet_level levels[6] = {FLEET_LEVEL_CU,      FLEET_LEVEL_CU,
                                          FLEET_LEVEL_CU,      FLEET_LEVEL_WAVE,
                                          FLEET_LEVEL_CHIPLET, FLEET_LEVEL_DEVICE};
    return levels[draw(seed, 6)];
}

static const char *any_map(uint64_t *seed, uint32_t grid_rank, uint32_t event_rank)
{
    static const char *maps[3][3][4] = {
        {{"->", "->", "->", "->"}, {"->i", "->i", "->i", "->i"}, {"->ij", "->ij", "->ij", "->ij"}},
        {{"i->", "i->", "i->", "i->"},
         {"i->i", "i->i", "i->i", "i->u"},
         {"i->iu", "i->ui", "i->iu", "i->uv"}},
        {{"ij->", "ij->", "ij->", "ij->"},
         {"ij->i", "ij->j", "ij->i", "ij->u"},
         {"ij->ij", "ij->ij", "ij->ji", "ij->iu"}},
    };
    return maps[grid_rank][event_rank][draw(seed, 4)];
}

/* Layers of one to three grids, extents all alike so that every map fits; each layer has events that it
   notifies, and waits for some of those of any layer before. */
static void model_random(model *m, uint64_t *seed)
{
    int32_t extent = 1 + (int32_t)draw(seed, 4);
    uint32_t layers = 1 + draw(seed, 4), layer, first_event = 0;
    model_begin(m);
    for (layer = 0; layer < layers; layer++) {
        uint32_t grids = 1 + draw(seed, 3), g, e, end = m->n_events;
        uint32_t first = m->n_grids;
        for (g = 0; g < grids; g++) {
            uint32_t grid = model_add_grid(m, any_level(seed), draw(seed, 3), extent, extent);
            if (m->grids[grid].level == FLEET_LEVEL_DEVICE) m->grids[grid].slices = draw(seed, 5);
            if (m->grids[grid].level >= FLEET_LEVEL_CHIPLET) m->grids[grid].tiles = draw(seed, 5);
            for (e = first_event; e < end; e++)
                if (draw(seed, 2))
                    model_in(m, grid, e, any_map(seed, m->grids[grid].rank, m->events[e].rank));
        }
        for (e = 0; e < 1 + draw(seed, 2); e++) {
            uint32_t event = model_add_event(m, draw(seed, 3), extent, extent),
                     every = first + draw(seed, grids);
            static const char *all[3][3] = {
                {"->", "->u", "->uv"}, {"i->", "i->u", "i->uv"}, {"ij->", "ij->u", "ij->uv"}};
            /* Somebody notifies each element, so that nobody waits in vain. */
            model_out(m, every, event, all[m->grids[every].rank][m->events[event].rank]);
            for (g = first; g < m->n_grids; g++)
                if (g != every && draw(seed, 2))
                    model_out(m, g, event, any_map(seed, m->grids[g].rank, m->events[event].rank));
        }
        if (layer > 1) first_event += draw(seed, 2);
    }
}

static void any_setting(setting *s, uint64_t *seed)
{
    uint32_t n = 0;
    while (setting_get(n, TEST_SHAPES, s)) n++;
    do setting_get(draw(seed, n), TEST_SHAPES, s);
    while (s->topology.units[0] > 16 && draw(seed, 8)); /* threads are dear */
    s->seed = 1 + draw(seed, 1000000);
    s->levels = 1 + draw(seed, 2);
    s->waves = 1 + draw(seed, 3);
    if (s->schedule == FLEET_SCHEDULE_DYNAMIC && draw(seed, 2)) {
        s->schedule = FLEET_SCHEDULE_STATIC;
        s->mixed = draw(seed, 0xffffffffu) | 1u << draw(seed, 4);
    }
    s->early = (s->schedule == FLEET_SCHEDULE_DYNAMIC || s->mixed) && draw(seed, 3) == 0;
    s->unaware = draw(seed, 3) == 0;
    s->unfused = s->schedule == FLEET_SCHEDULE_STATIC && !s->mixed && draw(seed, 3) == 0;
}

static void one_graph(test_run *t, uint64_t seed)
{
    model m;
    rig r;
    setting s;
    any_setting(&s, &seed);
    model_random(&m, &seed);
    if (rig_open_at(t, &r, &m, &s, draw(&seed, 2) ? 0 : 0xfffffffeu)) {
        uint32_t launch, steps = 0;
        for (launch = 0; launch < 2 && !t->failed_here; launch++) {
            uint32_t n = 1 + draw(&seed, 2);
            fleet_status status = rig_run(&r, n);
            if (status) {
                static char report[4096];
                fleet_report(&r.state, report, sizeof report);
                test_fail(t, __FILE__, __LINE__, "%s", fleet_status_name(status));
                printf("%s", report);
            }
            steps += n;
            if (!t->failed_here) rig_check(t, &r, steps);
        }
        rig_close(&r);
    }
    model_end(&m);
    if (t->failed_here) setting_print(&s);
}

static void random_graphs(test_run *t)
{
    const char *given = getenv("FLEET_TEST_SEED"), *count = getenv("FLEET_TEST_GRAPHS");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 1;
#if !defined(FLEET_HOST)
    uint64_t n = 20;
#elif defined(FEW)
    uint64_t n = 120; /* every other one, as ThreadSanitizer's runs are */
#elif defined(MANY)
    uint64_t n = deep() ? 50000 : 2000;
#else
    uint64_t n = deep() ? 5000 : 400;
#endif
    if (count) n = strtoull(count, NULL, 10);
    if (given) n = 1;
    for (n += seed; seed < n && !t->failed_here; seed++) {
        if (!given && setting_skipped((uint32_t)seed)) continue;
        one_graph(t, seed);
        if (t->failed_here) printf("    FLEET_TEST_SEED=%llu\n", (unsigned long long)seed);
    }
}

static void all(test_run *t)
{
    TEST(random_graphs);
}
TEST_MAIN(all)
