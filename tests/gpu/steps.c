/* Whole runs of graphs in every setting: exactly once, in order, on fresh data; steps, launches, epochs. */
// run: asan engine=both
// run: tsan timeout=120
#include "model.h"

static void run_model(test_run *t, const setting *s, void *model_)
{
    model *m = (model *)model_;
    rig r;
    uint32_t steps = 3;
    if (!rig_open(t, &r, m, s)) return;
    CHECK_RUN(&r, steps);
    if (!rig_check(t, &r, steps)) return;
    CHECK_RUN(&r, 1);
    CHECK_RUN(&r, 2);
    if (!rig_check(t, &r, steps + 3)) return;
    rig_close(&r);
}

static void split_row_sum(test_run *t)
{
    model m;
    model_split_row_sum(&m, 9, 4);
    in_settings(t, 12, run_model, &m);
    model_end(&m);
}

static void every_level(test_run *t)
{
    model m;
    model_levels(&m, 5);
    in_settings(t, 12, run_model, &m);
    model_end(&m);
}

static void run_wrap(test_run *t, const setting *s, void *model_)
{
    model *m = (model *)model_;
    rig r;
    if (!rig_open_at(t, &r, m, s, 0xfffffffdu)) return;
    CHECK_RUN(&r, 2);
    CHECK_RUN(&r, 3);
    if (!rig_check(t, &r, 5)) return;
    rig_close(&r);
}

static void invariant_6_epochs_wrap(test_run *t)
{
    model m;
    model_levels(&m, 3);
    in_settings(t, 4, run_wrap, &m);
    model_end(&m);
}

static void all(test_run *t)
{
    TEST(split_row_sum);
    TEST(every_level);
    TEST(invariant_6_epochs_wrap);
}
TEST_MAIN(all)
