/* What goes by turns (test.h, settings.h): each case is in exactly one of them, and each turn has
   all that it should. */
// run: plain engine=both
// run: plain
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "settings.h"

#define MOST 12u

static void take(unsigned turn, unsigned turns)
{
    char text[32];
    snprintf(text, sizeof text, "%u/%u", turn, turns);
    setenv("FLEET_TEST_TURN", text, 1);
    unsetenv("FLEET_DEEP"), unsetenv("FLEET_TEST_PART"); /* deep runs have no turns */
}

static void each_case_is_in_one_turn(test_run *t)
{
    for (unsigned turns = 1; turns <= MOST; turns++)
        for (unsigned n = 0; n < 40; n++) {
            unsigned having = 0;
            for (unsigned turn = 0; turn < turns; turn++) {
                take(turn, turns);
                having += (unsigned)test_in_turn(n);
            }
            CHECK_INT(having, 1);
        }
}

/* One share begins where another one ends, and they are as long. */
static void shares_are_all_there_is(test_run *t)
{
    static const unsigned long long counts[] = {0, 1, 5, 150, 3000, 400000};
    for (unsigned turns = 1; turns <= MOST; turns++)
        for (uint32_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            unsigned long long at = 0, end = 0;
            for (unsigned turn = 0; turn < turns; turn++) {
                take(turn, turns);
                CHECK_INT(test_share(counts[i], &end), at);
                CHECK(end - at <= counts[i] / turns + 1);
                at = end;
            }
            CHECK_INT(end, counts[i]);
        }
}

static void by_hand_all_are_there(test_run *t)
{
    unsigned long long end;
    setenv("FLEET_TEST_TURN", "", 1);
    CHECK(test_in_turn(5));
    CHECK_INT(test_share(30, &end), 0);
    CHECK_INT(end, 30);
}

/* A turn has all schedules and engines of a test that has every shape, and every shape; each
   setting is in one turn. */
static void turns_have_all_kinds_of_settings(test_run *t)
{
    fleet_host_engine first, last;
    setting_engines(&first, &last);
    for (unsigned turns = 2; turns <= 6; turns++)
        for (uint32_t shapes = 1; shapes <= TEST_SHAPES; shapes++) {
            const uint32_t engines = 1 + (uint32_t)(last - first), kinds = 3 * engines;
            uint32_t having[TEST_SHAPES * 6] = {0}, settings = 0;
            setting s;
            for (unsigned turn = 0; turn < turns; turn++) {
                uint32_t seen = 0, seen_shapes = 0;
                take(turn, turns);
                for (settings = 0; setting_get(settings, shapes, &s); settings++)
                    if (setting_in_turn(settings, shapes)) {
                        having[settings]++;
                        seen |= 1u << (s.schedule * engines + (s.engine != first));
                        seen_shapes |= 1u << settings / kinds;
                    }
                if (shapes < TEST_SHAPES) continue;
                CHECK_INT(seen, (1u << kinds) - 1);
                if (turns % 3 == 0 && turns <= kinds) CHECK_INT(seen_shapes, (1u << shapes) - 1);
            }
            for (uint32_t i = 0; i < settings; i++) CHECK_INT(having[i], shapes > 2 ? 1 : turns);
        }
}

static void all(test_run *t)
{
    TEST(each_case_is_in_one_turn);
    TEST(shares_are_all_there_is);
    TEST(by_hand_all_are_there);
    TEST(turns_have_all_kinds_of_settings);
}
TEST_MAIN(all)
