/* Linear layers: how fleet_linear_partition and fleet_partition_tile split an operator, and what fleet_linear_choose makes of
   it: against iterations counted by hand, the figures of FLEET, and every input that it must refuse.

       linear [NAME]      FLEET_SEED=n runs that one shape, FLEET_DEEP=1 many more */
#include "implementation.h"
#include "examples/parts/fleet_linear.h"
#include "examples/tools/plan_picture.h"
#include "walk.h"

#include <math.h>

#define CHECK_NEAR(got, want)                                                                      \
    do {                                                                                           \
        double test_got = (got), test_want = (want);                                               \
        if (!(fabs(test_got - test_want) <= 1e-9 * (1 + fabs(test_want)))) {                       \
            test_fail(t, __FILE__, __LINE__, "%s is %.12g, expected %.12g", #got, test_got,        \
                      test_want);                                                                  \
            return;                                                                                \
        }                                                                                          \
    } while (0)

/* Runs one(t, seed) for FLEET_SEED, or for many seeds; names the first that fails. */
static void for_seeds(test_run *t, void (*one)(test_run *, uint64_t))
{
    const char *only = getenv("FLEET_SEED"), *deep = getenv("FLEET_DEEP");
    uint64_t number = only ? strtoull(only, NULL, 10) : 0;
    const uint64_t end = only ? number + 1 : deep && deep[0] == '1' ? 40000 : 2000;
    for (; number < end && !t->failed_here; number++) {
        one(t, number);
        if (t->failed_here) printf("  FLEET_SEED=%llu\n", (unsigned long long)number);
    }
}

static fleet_linear_desc desc_of(int64_t m, int64_t n, int64_t k)
{
    fleet_linear_desc d = fleet_linear_desc_default();
    d.m = m, d.n = n, d.k = k;
    return d;
}

/* A descriptor whose tiles are m x n single elements, which fit any L2. */
static fleet_linear_desc tiles_of(int64_t m, int64_t n, uint32_t workers)
{
    fleet_linear_desc d = desc_of(m, n, 1);
    d.tile_m = d.tile_n = d.tile_k = d.element_bytes = 1;
    d.workers_per_chiplet = workers;
    d.levels = 1u << FLEET_LEVEL_DEVICE;
    d.splits = 1u << FLEET_SPLIT_N;
    d.traversals = 1u << FLEET_TRAVERSAL_M_MAJOR;
    return d;
}

/* ---- the cuts and the walks ------------------------------------------------------------------ */

/* A tile follows the previous one as its traversal says. */
static void check_follows(test_run *t, const fleet_linear *l, const fleet_partition *p, uint32_t i,
                          fleet_tile before, fleet_tile at)
{
    const uint32_t first = before.n - p->first_n, column = at.n - p->first_n;
    if (l->traversal == FLEET_TRAVERSAL_M_MAJOR) {
        CHECK_INT(at.n, i % p->m_tiles ? before.n : before.n + 1);
        CHECK_INT(at.m, i % p->m_tiles ? before.m + p->step_m : p->first_m);
    } else if (l->traversal == FLEET_TRAVERSAL_N_MAJOR) {
        CHECK_INT(at.m, i % p->n_tiles ? before.m : before.m + p->step_m);
        CHECK_INT(at.n, i % p->n_tiles ? before.n + 1 : p->first_n);
    } else if (column / l->window == first / l->window) {
        CHECK(at.m == before.m ? at.n == before.n + 1 : at.m == before.m + p->step_m);
    } else { /* the previous window is complete: its last row, its last column */
        CHECK_INT(column / l->window, first / l->window + 1);
        CHECK_INT(column % l->window, 0);
        CHECK_INT(first % l->window, l->window - 1);
        CHECK_INT(before.m, p->first_m + (p->m_tiles - 1) * p->step_m);
    }
}

static void cover_one(test_run *t, uint64_t seed)
{
    fleet_linear l;
    uint32_t m_tiles, n_tiles, slices, s, i, j, k;
    uint8_t *times;
    memset(&l, 0, sizeof l);
    l.m = 1 + draw(&seed, 80), l.n = 1 + draw(&seed, 80), l.k = 1 + draw(&seed, 60);
    l.tile_m = 1 + draw(&seed, 20), l.tile_n = 1 + draw(&seed, 20), l.tile_k = 1 + draw(&seed, 20);
    l.element_bytes = 2;
    l.split = draw(&seed, 3);
    l.traversal = draw(&seed, 3);
    slices = draw(&seed, 6) ? 1 + draw(&seed, 8) : 1 + draw(&seed, 500);
    m_tiles = (l.m + l.tile_m - 1) / l.tile_m;
    n_tiles = (l.n + l.tile_n - 1) / l.tile_n;
    l.window = draw(&seed, 8) ? 1 + draw(&seed, n_tiles + 2) : 1u << (28 + draw(&seed, 4));
    CHECK_INT(fleet_linear_m_tiles(&l), m_tiles);
    CHECK_INT(fleet_linear_n_tiles(&l), n_tiles);
    times = (uint8_t *)calloc((size_t)m_tiles * n_tiles * l.k, 1);
    for (s = 0; s < slices && !t->failed_here; s++) {
        const fleet_partition p = fleet_linear_partition(&l, s, slices);
        fleet_tile before = {0, 0};
        for (i = 0; p.k && i < p.m_tiles * p.n_tiles && !t->failed_here; i++) {
            const fleet_tile at = fleet_partition_tile(&l, &p, i);
            if (at.m >= m_tiles || at.n >= n_tiles || p.first_k + p.k > l.k) {
                test_fail(t, __FILE__, __LINE__, "slice %u tile %u is (%u, %u)", s, i, at.m, at.n);
                break;
            }
            for (k = p.first_k; k < p.first_k + p.k; k++)
                times[((size_t)at.m * n_tiles + at.n) * l.k + k]++;
            if (i) check_follows(t, &l, &p, i, before, at);
            before = at;
        }
    }
    for (j = 0; j < m_tiles * n_tiles * l.k && !t->failed_here; j++)
        if (times[j] != 1)
            test_fail(t, __FILE__, __LINE__, "tile %u has element %u of k %u times", j / l.k,
                      j % l.k, times[j]);
    free(times);
}

static void every_tile_once(test_run *t)
{
    for_seeds(t, cover_one);
}

/* FLEET's figure: 4 x 6 tiles, 4 workers; the tiles of the workers, step by step. */
static void grid_of_the_paper(test_run *t)
{
    static const char *const want[3] = {
        "00 10 20 30|01 11 21 31|02 12 22 32|03 13 23 33|04 14 24 34|05 15 25 35|",
        "00 01 02 03|04 05 10 11|12 13 14 15|20 21 22 23|24 25 30 31|32 33 34 35|",
        "00 01 10 11|20 21 30 31|02 03 12 13|22 23 32 33|04 05 14 15|24 25 34 35|"};
    uint32_t traversal, i;
    for (traversal = 0; traversal < 3; traversal++) {
        fleet_linear l = {64, 384, 256, 16, 64, 256, 2, FLEET_SPLIT_N, 0, 2};
        fleet_partition p = fleet_linear_partition(&l, 0, 1);
        char got[128] = "";
        l.traversal = traversal;
        CHECK_INT(p.m_tiles * p.n_tiles, 24);
        for (i = 0; i < 24; i++) {
            const fleet_tile at = fleet_partition_tile(&l, &p, i);
            snprintf(got + strlen(got), sizeof got - strlen(got), "%u%u%c", at.m, at.n,
                     i % 4 == 3 ? '|' : ' ');
        }
        CHECK_TEXT(got, want[traversal]);
    }
}

/* ---- what the planner predicts --------------------------------------------------------------- */

/* A layer of FLEET's Table 5, at batch m. */
static const char *const layer_name[4] = {"qkv", "o", "gate_up", "down"};

static fleet_linear_desc layer_desc(uint32_t i, int64_t m)
{
    static const int64_t n[4] = {6144, 4096, 24576, 4096}, k[4] = {4096, 4096, 4096, 12288};
    fleet_linear_desc d = desc_of(m, n[i], k[i]);
    d.workers_per_chiplet = 31;
    d.rates = fleet_rates_preset(FLEET_MI350X);
    if (i == 2) d.fused_columns = n[i] / 2;
    return d;
}

static void table_5(test_run *t)
{
    static const uint32_t weights[4] = {48, 32, 192, 96}, mine[4] = {6, 4, 24, 12};
    static const uint32_t window[4] = {384, 256, 1536, 256};
    const fleet_topology chip = fleet_topology_preset(FLEET_MI350X);
    fleet_linear_plan p[4];
    char text[8192];
    uint32_t i;
    for (i = 0; i < 4; i++) {
        const fleet_linear_desc d = layer_desc(i, 1);
        CHECK_INT(fleet_linear_choose(&d, &chip, &p[i]), FLEET_OK);
        CHECK_INT(p[i].weight_bytes, (uint64_t)weights[i] << 20);
        CHECK_INT(p[i].chiplet_weight_bytes, (uint64_t)mine[i] << 20);
        CHECK_INT(p[i].window_bytes, (uint64_t)window[i] << 10);
        CHECK_INT(p[i].level, FLEET_LEVEL_DEVICE);
        CHECK_INT(p[i].slices, 8);
        CHECK_INT(p[i].linear.split, FLEET_SPLIT_N);
        CHECK_INT(p[i].linear.traversal, FLEET_TRAVERSAL_M_MAJOR);
        CHECK_INT(p[i].fits_llc, 1);
        CHECK_NEAR(p[i].hbm_weight_bytes, (double)p[i].weight_bytes);
        CHECK_NEAR(p[i].l2_activation_bytes, 8.0 * (double)d.k * 2); /* one row, not 16 */
        CHECK_NEAR(p[i].chiplet_activation_bytes, (double)d.k * 2);
        CHECK(p[i].memory_us > p[i].compute_us);
    }
    /* 31 workers at a column each, of 32 KB, and at one row of 8 KB */
    CHECK_INT(p[2].in_flight_bytes, (31 * 32 + 8) << 10);
    CHECK_NEAR(p[2].saved_bytes, 2.0 * 24576 * 2);
    CHECK_NEAR(p[2].hbm_output_bytes, 12288.0 * 2);
    CHECK_NEAR(p[0].saved_bytes, 0);
    CHECK(fleet_linear_report(p, layer_name, 4, text, sizeof text) < sizeof text);
    CHECK_TEXT(text, "8 chiplets of 31 workers, ridge 288 FLOP/B");
    CHECK_TEXT(text, "    48 MB      6 MB    384 KB        yes        96      8      N   M-major");
    CHECK_TEXT(text, "    32 MB      4 MB    256 KB        yes        64      8      N   M-major");
    CHECK_TEXT(text, "   192 MB     24 MB    1.5 MB        yes       384      8      N   M-major");
    CHECK_TEXT(text, "    96 MB     12 MB    256 KB        yes        64      8      N   M-major");
    CHECK_TEXT(text, "   368 MB     46 MB            no (1.4x)       608     32\n");
    for (i = 0; i < 4; i++) CHECK_TEXT(text, layer_name[i]);
}

/* 1 - 1 / min(W, m_tiles), and the intensity that FLEET computes from it. */
static void hit_rate_equation(test_run *t)
{
    static const int64_t batch[5] = {1, 8, 16, 32, 64};
    static const double hit[5] = {0, 0, 0, 0.5, 0.75}, intensity[5] = {1, 8, 16, 64, 256};
    const fleet_topology chip = fleet_topology_preset(FLEET_MI350X);
    fleet_linear_plan p;
    uint32_t i, j, workers, m;
    for (i = 0; i < 4; i++) {
        for (j = 0; j < 5; j++) {
            fleet_linear_desc d = layer_desc(i, batch[j]);
            CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
            CHECK_NEAR(p.hit_rate, hit[j]);
            CHECK_NEAR(p.intensity, intensity[j]);
            CHECK_NEAR(p.l2_weight_bytes, (double)p.weight_bytes);
            d.splits = 1u << FLEET_SPLIT_M; /* no slice has two rows */
            CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
            CHECK_NEAR(p.hit_rate, 0);
            CHECK_NEAR(p.l2_weight_bytes, (double)p.weight_bytes * p.m_tiles);
            d.splits = 1u << FLEET_SPLIT_K;
            CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
            CHECK_NEAR(p.hit_rate, hit[j]);
            CHECK_NEAR(p.hbm_output_bytes,
                       (double)batch[j] *
                           (2.0 * 8 * 4 * (double)d.n + 2.0 * (double)(i == 2 ? d.n / 2 : d.n)));
            d.splits = 0, d.levels = 1u << FLEET_LEVEL_CU; /* four rows on four chiplets */
            CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
            CHECK_NEAR(p.hit_rate, 0);
            CHECK_INT(p.chiplet_weight_bytes, p.weight_bytes * p.m_tiles / 8);
            CHECK_NEAR(p.l2_activation_bytes, 8 * (double)p.activation_bytes);
        }
    }
    for (workers = 1; workers <= 38; workers++) {
        for (m = 1; m <= 100; m++) {
            const fleet_topology large = fleet_topology_preset(FLEET_MI300X);
            const fleet_linear_desc d = tiles_of(m, 8, workers);
            CHECK_INT(fleet_linear_choose(&d, &large, &p), FLEET_OK);
            CHECK_NEAR(p.hit_rate, 1 - 1.0 / (workers < m ? workers : m));
        }
    }
}

/* Iterations counted by hand. If workers, rows and columns divide one another, the fetches counted step by step, for
   each chiplet one per column (row) that its workers are at, are those predicted. */
static uint32_t walked; /* shapes that divide, so far */

static void walk_one(test_run *t, uint64_t seed)
{
    const uint32_t chiplets = 1 + draw(&seed, 8), a = 1u << draw(&seed, 3),
                   b = 1u << draw(&seed, 3);
    const uint32_t window = 1u << draw(&seed, 4), traversal = draw(&seed, 3), cu = draw(&seed, 2);
    const uint32_t unit = cu ? chiplets : 1, workers = 8 * a;
    const uint32_t rows = unit * 8 * b, columns = 8 * (1u << draw(&seed, 3)) * (cu ? 1 : chiplets);
    const fleet_topology chip = fleet_topology_make(chiplets, workers);
    fleet_linear_desc d = tiles_of(rows, columns, workers);
    fleet_linear_plan p;
    uint64_t weights = 0, held = 0;
    uint32_t c, step, w, seen_n[64 * 8], seen_m[64 * 8], mark = 0;
    memset(seen_n, 0, sizeof seen_n);
    memset(seen_m, 0, sizeof seen_m);
    d.traversals = 1u << traversal;
    if (traversal == FLEET_TRAVERSAL_WINDOWED) d.window = window;
    if (cu) {
        /* M-major iterations are spread evenly over chiplets, as predicted */
        d.levels = 1u << FLEET_LEVEL_CU, d.splits = 0;
        if (traversal) return;
    }
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    for (c = 0; c < chiplets; c++) {
        const fleet_partition part = fleet_linear_partition(&p.linear, cu ? 0 : c, p.slices);
        const uint32_t tiles = part.m_tiles * part.n_tiles;
        if (tiles % (workers * unit)) return; /* a last step that is not full */
        for (step = 0; step * workers * unit < tiles; step++) {
            mark++;
            for (w = 0; w < workers; w++) {
                const uint32_t i = (step * workers + w) * unit + (cu ? c : 0);
                const fleet_tile at = fleet_partition_tile(&p.linear, &part, i);
                CHECK(at.n < 512 && at.m < 512);
                weights += seen_n[at.n] != mark;
                held += seen_m[at.m] != mark;
                seen_n[at.n] = seen_m[at.m] = mark;
            }
        }
    }
    walked++;
    CHECK_NEAR(p.l2_weight_bytes, (double)weights);
    CHECK_NEAR(p.hit_rate, 1 - (double)weights / rows / columns);
    if (cu) return; /* in other traversals its rows are spread evenly, as predicted */
    CHECK(p.l2_activation_bytes <= (double)held);
    d.l2_budget_bytes = p.in_flight_bytes; /* no room for activations to stay */
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK_NEAR(p.l2_weight_bytes, (double)weights);
    CHECK_NEAR(p.l2_activation_bytes, (double)held);
}

static void predicted_as_walked(test_run *t)
{
    for_seeds(t, walk_one);
    if (!t->failed_here && !getenv("FLEET_SEED")) CHECK(walked > 500);
}

/* The columns in flight must fit, otherwise nothing is shared. Windows make them fit. */
static void budget(test_run *t)
{
    const fleet_topology chip = fleet_topology_preset(FLEET_MI350X);
    fleet_linear_desc d = layer_desc(2, 1024); /* 64 rows of tiles, 48 columns a slice */
    fleet_linear_plan p;
    d.splits = 1u << FLEET_SPLIT_N;
    d.traversals = 1u << FLEET_TRAVERSAL_M_MAJOR;
    d.l2_budget_bytes = (32 + 31 * 8) << 10; /* a column of 32 KB, 31 rows of 8 KB */
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK_INT(p.in_flight_bytes, d.l2_budget_bytes);
    CHECK_INT(p.fits_l2, 1);
    CHECK_NEAR(p.hit_rate, 1 - 1.0 / 31);
    d.l2_budget_bytes--;
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK_INT(p.fits_l2, 0);
    CHECK_NEAR(p.hit_rate, 0);
    CHECK_TEXT(p.why, "do not fit the L2 budget");
    d.traversals = 0;
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK_INT(p.linear.traversal, FLEET_TRAVERSAL_WINDOWED);
    CHECK_INT(p.fits_l2, 1);
    CHECK(p.hit_rate > 0.5);
    d.traversals =
        1u << FLEET_TRAVERSAL_N_MAJOR; /* as many columns in flight as there are workers */
    d.l2_budget_bytes = 1 << 20;
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK_INT(p.in_flight_bytes, (31 * 32 + 8) << 10);
    CHECK_NEAR(p.hit_rate, 0);
}

/* More rows, columns or k never take less; more workers never share less; a last-level cache never adds. */
static void monotone_one(test_run *t, uint64_t seed)
{
    fleet_topology chip = fleet_topology_make(1 + draw(&seed, 8), 1 + draw(&seed, 38));
    fleet_linear_desc d =
        desc_of(1 + draw(&seed, 700), 1 + draw(&seed, 30000), 1 + draw(&seed, 9000));
    fleet_linear_desc more = d;
    fleet_linear_plan p, q;
    uint32_t i;
    if (draw(&seed, 2)) d.fused_input = 1, d.fused_columns = (d.n + 1) / 2;
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK(strlen(p.why) + 1 < sizeof p.why);
    CHECK(p.hit_rate >= 0 && p.hit_rate < 1);
    CHECK(p.l2_weight_bytes >= (double)p.weight_bytes * 0.999999);
    CHECK(p.l2_activation_bytes >= (double)p.activation_bytes * 0.999999);
    CHECK(p.hbm_weight_bytes <= p.l2_weight_bytes * 1.000001);
    CHECK(p.us >= p.flops / d.rates.flop_per_s[1] * 1e6 * 0.999999);
    CHECK(p.us == p.memory_us || p.us == p.compute_us);
    CHECK(p.chiplet_weight_bytes <= p.weight_bytes);
    CHECK(p.chiplet_weight_bytes * chip.chiplets >= p.weight_bytes);
    for (i = 0; i < 4; i++) { /* no forced choice is clearly better */
        fleet_linear_desc forced = d;
        if (i < 3)
            forced.splits = 1u << i;
        else
            forced.levels = 1u << FLEET_LEVEL_CU;
        CHECK_INT(fleet_linear_choose(&forced, &chip, &q), FLEET_OK);
        CHECK(p.us <= q.us * (i == FLEET_SPLIT_K ? 1.15 : 1.04));
    }
    d.splits = 1u << FLEET_SPLIT_N;
    d.traversals = 1u << FLEET_TRAVERSAL_M_MAJOR;
    more = d;
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    for (i = 0; i < 3; i++) {
        more = d;
        *(i == 0 ? &more.m : i == 1 ? &more.n : &more.k) += 1 + draw(&seed, 999);
        CHECK_INT(fleet_linear_choose(&more, &chip, &q), FLEET_OK);
        CHECK(q.us >= p.us * 0.999999);
        CHECK(i || q.hit_rate >= p.hit_rate - 1e-12);
    }
    for (i = 1; i <= chip.units[0]; i++) {
        more = d;
        more.workers_per_chiplet = i;
        CHECK_INT(fleet_linear_choose(&more, &chip, &q), FLEET_OK);
        CHECK(q.hit_rate <= p.hit_rate + 1e-12);
    }
    chip.llc_bytes = 0;
    CHECK_INT(fleet_linear_choose(&d, &chip, &q), FLEET_OK);
    CHECK_INT(q.fits_llc, 0);
    CHECK_NEAR(q.hbm_weight_bytes, q.l2_weight_bytes);
    CHECK(q.us >= p.us * 0.999999);
}

static void monotone(test_run *t)
{
    for_seeds(t, monotone_one);
}

/* ---- what it chooses ------------------------------------------------------------------------- */

static void choices(test_run *t)
{
    const fleet_topology chip = fleet_topology_preset(FLEET_MI300X);
    fleet_topology uneven = fleet_topology_make(3, 20);
    fleet_linear_desc d = desc_of(64, 24576, 4096);
    fleet_linear_plan p;
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK_INT(p.workers, 38);
    CHECK_TEXT(p.why, "8 chiplet-tasks, split N, M-major: a fetch of weights serves 4.0 tiles");
    CHECK_TEXT(p.why, "split M would bring 769 MB into the L2s, not 196 MB");
    CHECK_TEXT(p.why, "CU-tasks would bring");
    d = desc_of(1, 24576, 4096);
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK_TEXT(p.why, "one row of tiles");
    CHECK_TEXT(p.why, "CU-tasks would be 384 tasks");
    /* two columns and a long k: all chiplets have work only if k is split */
    d = desc_of(1, 128, 65536);
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK_INT(p.linear.split, FLEET_SPLIT_K);
    CHECK_INT(p.slices, 8);
    CHECK_INT(p.chiplet_weight_bytes * 8, p.weight_bytes);
    /* fewer tiles than chiplets, and nothing to split: CU-tasks */
    d = desc_of(1, 256, 200);
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK_INT(p.level, FLEET_LEVEL_CU);
    CHECK_INT(p.slices, 1);
    CHECK_TEXT(p.why, "4 CU-tasks");
    /* many rows: windows, because M-major would read activations for every column */
    d = desc_of(8192, 8192, 8192);
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK_INT(p.linear.traversal, FLEET_TRAVERSAL_WINDOWED);
    CHECK(p.linear.window > 1 && p.linear.window < 38);
    CHECK(p.compute_us > p.memory_us);
    /* what is given is kept */
    d = desc_of(64, 1000, 1000);
    d.window = 3, d.slices = 20;
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK_INT(p.level, FLEET_LEVEL_DEVICE);
    CHECK_INT(p.linear.traversal, FLEET_TRAVERSAL_WINDOWED);
    CHECK_INT(p.linear.window, 3);
    CHECK_INT(p.slices, 20);
    uneven.units[1] = 7;
    d = desc_of(64, 1000, 1000);
    CHECK_INT(fleet_linear_choose(&d, &uneven, &p), FLEET_OK);
    CHECK_INT(p.workers, 7);
    d.fused_input = 1;
    CHECK_INT(fleet_linear_choose(&d, &uneven, &p), FLEET_OK);
    CHECK_NEAR(p.saved_bytes, 2.0 * 64 * 1000 * 2);
}

static void rates(test_run *t)
{
    const int chips = FLEET_CHIP_COUNT;
    fleet_rates r = fleet_rates_preset(FLEET_MI300X);
    int i, j;
    CHECK_INT(r.flop_per_s[1] / r.hbm_bytes_per_s, 246); /* and a fraction */
    r = fleet_rates_preset(FLEET_MI350X);
    CHECK_INT(r.flop_per_s[1] / r.hbm_bytes_per_s, 288);
    for (i = 0; i < chips; i++) {
        r = fleet_rates_preset((fleet_chip)i);
        CHECK(r.hbm_bytes_per_s > 1e12 && r.hbm_bytes_per_s < 2e13);
        for (j = 0; j < 3; j++) CHECK(r.flop_per_s[j] > 1e13 && r.flop_per_s[j] < 1e16);
        CHECK(r.flop_per_s[0] >= r.flop_per_s[1] && r.flop_per_s[1] > r.flop_per_s[2]);
    }
#define CHECK_RATES(chip, hbm, one, two, four)                                                     \
    r = fleet_rates_preset(FLEET_##chip);                                                          \
    CHECK_NEAR(r.hbm_bytes_per_s, (hbm)*1e12);                                                     \
    CHECK_NEAR(r.flop_per_s[2], (four)*1e12);
    FLEET_RATES_LIST(CHECK_RATES)
    r = fleet_rates_preset(FLEET_CHIP_COUNT);
    CHECK(r.hbm_bytes_per_s == 0);
}

/* ---- what it refuses ------------------------------------------------------------------------- */

static void refuse(test_run *t, const fleet_linear_desc *d, const fleet_topology *chip,
                   fleet_status want, const char *name)
{
    fleet_linear_plan p, none;
    memset(&p, 0xa5, sizeof p);
    memset(&none, 0, sizeof none);
    CHECK_INT(fleet_linear_choose(d, chip, &p), want);
    CHECK_TEXT(p.why, name);
    CHECK(strncmp(p.why, name, strlen(name)) == 0); /* the sentence begins with the field */
    CHECK(memcmp(&p, &none, offsetof(fleet_linear_plan, why)) == 0);
}

#define REFUSE(field, value, status, name)                                                         \
    do {                                                                                           \
        fleet_linear_desc bad = good;                                                              \
        bad.field = (value);                                                                       \
        refuse(t, &bad, &chip, status, name);                                                      \
        if (t->failed_here) return;                                                                \
    } while (0)
#define REFUSE_CHIP(field, value, status, name)                                                    \
    do {                                                                                           \
        fleet_topology bad = chip;                                                                 \
        bad.field = (value);                                                                       \
        refuse(t, &good, &bad, status, name);                                                      \
        if (t->failed_here) return;                                                                \
    } while (0)

static void bad_input(test_run *t)
{
    static const int64_t wrong[] = {0, -1, INT64_MIN, INT64_MAX, ((int64_t)1 << 28) + 1};
    const fleet_topology chip = fleet_topology_preset(FLEET_MI300X);
    const fleet_linear_desc good = desc_of(64, 4096, 4096);
    fleet_linear_desc both;
    fleet_linear_plan p;
    uint32_t i;
    CHECK_INT(fleet_linear_choose(&good, &chip, &p), FLEET_OK);
    for (i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        REFUSE(m, wrong[i], FLEET_ERROR_ARGUMENT, "m is");
        REFUSE(n, wrong[i], FLEET_ERROR_ARGUMENT, "n is");
        REFUSE(k, wrong[i], FLEET_ERROR_ARGUMENT, "k is");
        REFUSE(tile_m, wrong[i], FLEET_ERROR_ARGUMENT, "tile_m is");
        REFUSE(tile_n, wrong[i], FLEET_ERROR_ARGUMENT, "tile_n is");
        REFUSE(tile_k, wrong[i], FLEET_ERROR_ARGUMENT, "tile_k is");
        REFUSE(element_bytes, wrong[i], FLEET_ERROR_ARGUMENT, "element_bytes is");
        if (!wrong[i]) continue;
        REFUSE(window, wrong[i], FLEET_ERROR_ARGUMENT, "window is");
        REFUSE(slices, wrong[i], FLEET_ERROR_ARGUMENT, "slices is");
        REFUSE(fused_columns, wrong[i], FLEET_ERROR_ARGUMENT, "fused_columns is");
    }
    REFUSE(element_bytes, 3, FLEET_ERROR_ARGUMENT, "element_bytes is 3, but must be 1, 2 or 4");
    REFUSE(element_bytes, 8, FLEET_ERROR_ARGUMENT, "element_bytes is 8");
    REFUSE(slices, 4097, FLEET_ERROR_ARGUMENT, "slices is 4097, but must be 0 to 4096");
    REFUSE(fused_columns, 4097, FLEET_ERROR_ARGUMENT, "fused_columns is 4097");
    REFUSE(fused_input, 2, FLEET_ERROR_ARGUMENT, "fused_input is");
    REFUSE(splits, 8, FLEET_ERROR_ARGUMENT, "splits is");
    REFUSE(traversals, 8, FLEET_ERROR_ARGUMENT, "traversals is");
    REFUSE(levels, 1u << FLEET_LEVEL_CHIPLET, FLEET_ERROR_ARGUMENT, "levels may hold");
    REFUSE(l2_budget_bytes, 40959, FLEET_ERROR_ARGUMENT,
           "l2_budget_bytes is 40959, but must be from 40960");
    REFUSE(l2_budget_bytes, chip.l2_bytes + 1, FLEET_ERROR_ARGUMENT, "l2_budget_bytes is");
    REFUSE(workers_per_chiplet, 39, FLEET_ERROR_TOO_MANY_WORKERS, "workers_per_chiplet is 39");
    REFUSE(rates.hbm_bytes_per_s, 0, FLEET_ERROR_ARGUMENT, "rates.hbm_bytes_per_s");
    REFUSE(rates.hbm_bytes_per_s, (double)NAN, FLEET_ERROR_ARGUMENT, "rates.hbm_bytes_per_s");
    REFUSE(rates.flop_per_s[1], -1, FLEET_ERROR_ARGUMENT, "rates.flop_per_s[1], of elements of 2");
    REFUSE_CHIP(chiplets, 0, FLEET_ERROR_TOPOLOGY, "topology.chiplets is 0");
    REFUSE_CHIP(chiplets, FLEET_MAX_CHIPLETS + 1, FLEET_ERROR_TOPOLOGY, "topology.chiplets is 33");
    REFUSE_CHIP(units[5], 0, FLEET_ERROR_TOPOLOGY, "topology.units");
    REFUSE_CHIP(l2_bytes, 0, FLEET_ERROR_TOPOLOGY, "topology.l2_bytes is 0");
    REFUSE_CHIP(l2_bytes, 1000, FLEET_ERROR_ARGUMENT, "l2_budget_bytes");
    both = good;
    both.levels = 1u << FLEET_LEVEL_CU, both.splits = 1u << FLEET_SPLIT_M;
    refuse(t, &both, &chip, FLEET_ERROR_ARGUMENT, "splits need chiplet-tasks");
    both.splits = 0, both.slices = 8;
    refuse(t, &both, &chip, FLEET_ERROR_ARGUMENT, "slices need chiplet-tasks");
    both = good;
    both.window = 2, both.traversals = 1u << FLEET_TRAVERSAL_M_MAJOR;
    refuse(t, &both, &chip, FLEET_ERROR_ARGUMENT, "window is given");
    both = desc_of((int64_t)1 << 28, (int64_t)1 << 28, 1);
    refuse(t, &both, &chip, FLEET_ERROR_TOO_MANY_TASKS, "tile_m and tile_n");
    refuse(t, NULL, &chip, FLEET_ERROR_NULL, "desc is null");
    refuse(t, &good, NULL, FLEET_ERROR_NULL, "topology is null");
    CHECK_INT(fleet_linear_choose(&good, &chip, NULL), FLEET_ERROR_NULL);
}

/* The largest numbers allowed: nothing overflows. */
static void extremes(test_run *t)
{
    const int64_t most = (int64_t)1 << 28;
    fleet_topology chip = fleet_topology_preset(FLEET_MI300X);
    fleet_linear_desc d = desc_of(most, most, most);
    fleet_linear_plan p;
    char text[4096];
    d.element_bytes = 4;
    d.tile_m = d.tile_n = 8192;
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_ERROR_ARGUMENT); /* a chunk of 16 MB */
    d.tile_k = 16;
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK_INT(p.weight_bytes, (uint64_t)1 << 58);
    d.tile_m = d.tile_n = d.tile_k = most;
    chip.l2_bytes = UINT64_MAX;
    chip.llc_bytes = UINT64_MAX;
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK_INT(p.m_tiles * p.n_tiles, 1);
    CHECK(fleet_linear_report(&p, NULL, 1, text, sizeof text) < sizeof text);
    CHECK(plan_picture(&p, NULL, &chip, text, sizeof text) < 2 * sizeof text);
    d = desc_of(1, 1, 1);
    d.slices = 4096;
    d.window = most;
    CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    CHECK_NEAR(p.hit_rate, 0);
    CHECK_INT(p.weight_bytes, 2);
}

/* ---- report and picture ---------------------------------------------------------------------- */

static fleet_linear_plan some_plan(int64_t m, uint32_t level)
{
    const fleet_topology chip = fleet_topology_preset(FLEET_MI350X);
    fleet_linear_desc d = layer_desc(0, m);
    fleet_linear_plan p;
    d.levels = 1u << level;
    fleet_linear_choose(&d, &chip, &p);
    return p;
}

typedef size_t (*writer)(const fleet_linear_plan *plan, char *text, size_t bytes);

static size_t write_report(const fleet_linear_plan *plan, char *text, size_t bytes)
{
    static const char *const names[1] = {"qkv"};
    return fleet_linear_report(plan, names, 1, text, bytes);
}

static size_t write_svg(const fleet_linear_plan *plan, char *text, size_t bytes)
{
    const fleet_topology chip = fleet_topology_preset(FLEET_MI350X);
    return plan_picture(plan, "qkv", &chip, text, bytes);
}

static void snprintf_contract(test_run *t)
{
    static const writer all[2] = {write_report, write_svg};
    const fleet_linear_plan p = some_plan(64, FLEET_LEVEL_DEVICE);
    uint32_t i, j;
    for (i = 0; i < 2; i++) {
        const size_t length = all[i](&p, NULL, 0);
        const size_t sizes[] = {0, 1, 2, 7, 100, length - 1, length, length + 1, length + 50};
        char *whole = (char *)malloc(length + 1), *text = (char *)malloc(length + 50);
        CHECK_INT(all[i](&p, NULL, 100), length);
        CHECK_INT(all[i](&p, whole, length + 1), length);
        CHECK_INT(strlen(whole), length);
        for (j = 0; j < sizeof sizes / sizeof sizes[0]; j++) {
            const size_t fits = sizes[j] <= length ? sizes[j] : length + 1;
            memset(text, '#', length + 50);
            CHECK_INT(all[i](&p, text, sizes[j]), length);
            if (fits) CHECK(text[fits - 1] == 0 && strncmp(text, whole, fits - 1) == 0);
            if (fits < length + 50) CHECK(text[fits] == '#');
        }
        free(whole);
        free(text);
    }
}

static void report_of_odd_lists(test_run *t)
{
    static const char *const names[3] = {"one", NULL, "three"};
    fleet_linear_plan p[3];
    char text[8192];
    fleet_linear_desc bad = desc_of(0, 1, 1);
    const fleet_topology chip = fleet_topology_preset(FLEET_MI350X);
    p[1] = some_plan(1, FLEET_LEVEL_CU);
    p[2] = some_plan(64, FLEET_LEVEL_DEVICE);
    fleet_linear_choose(&bad, &chip, &p[0]);
    fleet_linear_report(p, names, 3, text, sizeof text);
    CHECK_TEXT(text, "3 operators, 8 chiplets of 31 workers");
    CHECK_TEXT(text, "one              m is 0, but must be 1 to 268435456\n");
    CHECK_TEXT(text, "operator 1 ");
    CHECK_TEXT(text, "96     96      -   M-major"); /* CU-tasks: no split */
    CHECK_TEXT(text, "75.0%");
    fleet_linear_report(p, NULL, 0, text, sizeof text);
    CHECK_TEXT(text, "0 operators\n");
    fleet_linear_report(NULL, NULL, 5, text, sizeof text);
    CHECK_TEXT(text, "0 operators\n");
}

/* Parses the XML that the picture may hold: elements, quoted attributes, text, numeric entities. */
static const char *xml_error(const char *s)
{
    char open[16][16];
    int depth = 0, seen = 0;
    while (*s) {
        char name[16] = "";
        int n = 0, closing;
        if (*s != '<') {
            if (*s == '>') return "a bare character";
            if (*s == '&' && (s[1] != '#' || strspn(s + 2, "0123456789") == 0 ||
                              s[2 + strspn(s + 2, "0123456789")] != ';'))
                return "an entity";
            if (!depth && *s != '\n') return "text outside the root";
            if (*s != '\n' && (*s < ' ' || *s > '~')) return "a control character";
            s++;
            continue;
        }
        closing = *++s == '/';
        if (closing) s++;
        while (*s >= 'a' && *s <= 'z' && n < 15) name[n++] = *s++;
        name[n] = 0;
        if (!n) return "an element without a name";
        if (closing) {
            if (!depth || strcmp(open[--depth], name) != 0) return "an end without its start";
            if (*s++ != '>') return "an end tag";
            continue;
        }
        if (!depth && seen++) return "two roots";
        while (*s == ' ') {
            s += 1 + strspn(s + 1, "abcdefghijklmnopqrstuvwxyzB-");
            if (s[0] != '=' || s[1] != '"') return "an attribute";
            for (s += 2; *s && *s != '"'; s++)
                if (*s == '<' || *s == '&') return "an attribute's value";
            if (*s++ != '"') return "an attribute's end";
        }
        if (s[0] == '/' && s[1] == '>') {
            s += 2;
            continue;
        }
        if (*s++ != '>' || depth == 16) return "a start tag";
        strcpy(open[depth++], name);
    }
    return depth ? "an element without its end" : !seen ? "nothing" : NULL;
}

static void picture(test_run *t)
{
    static char text[1 << 20];
    fleet_topology chip = fleet_topology_preset(FLEET_MI350X);
    fleet_linear_plan p = some_plan(64, FLEET_LEVEL_DEVICE);
    const char *error;
    size_t length;
    memset(chip.name, '<', sizeof chip.name); /* not even ended */
    length = plan_picture(&p, "a<b>&\"'\x01\xff</svg><script>", &chip, text, sizeof text);
    CHECK(length < sizeof text);
    error = xml_error(text);
    if (error) test_fail(t, __FILE__, __LINE__, "not XML: %s", error);
    CHECK_TEXT(text, "<title>a&#60;b&#62;&#38;&#34;&#39;??&#60;/svg&#62;&#60;script&#62;</title>");
    CHECK_TEXT(text, "[64, 6144] = [64, 4096] x [4096, 6144]");
    CHECK_TEXT(text, "chiplet 0 of 8, slice 0 of 8, split N: 4 x 12 tiles of 16 x 64");
    CHECK_TEXT(text, "drawn: all 31 workers, all 2 of 2 steps");
    CHECK_TEXT(text, ">N-major<");
    CHECK_TEXT(text, ">windowed by 6 columns<");
    CHECK_TEXT(text, ">M-major (the plan's)<");
    CHECK_TEXT(text, "hit rate of weights 75.0%");
    CHECK(!strstr(text, "<script"));
    CHECK(!strstr(text, "href"));
    chip = fleet_topology_preset(FLEET_H200);
    {
        fleet_linear_desc d = desc_of(4096, 8192, 512);
        CHECK_INT(fleet_linear_choose(&d, &chip, &p), FLEET_OK);
    }
    CHECK(plan_picture(&p, NULL, &chip, text, sizeof text) < sizeof text);
    CHECK(!xml_error(text));
    CHECK_TEXT(text, "drawn: the first 32 workers, the first 24 of ");
    CHECK_TEXT(text, ">H200, chiplet 0 of 1");
    p = some_plan(64, FLEET_LEVEL_CU);
    CHECK(plan_picture(&p, "CU", &chip, text, sizeof text) < sizeof text);
    CHECK(!xml_error(text));
    CHECK_TEXT(text, "chiplet 0 of 8, 384 CU-tasks in all");
    p.slices = 0;
    CHECK_INT(plan_picture(&p, NULL, &chip, text, sizeof text), 0);
    CHECK_INT(strlen(text), 0);
    CHECK_INT(plan_picture(NULL, NULL, &chip, text, sizeof text), 0);
}

static void list(test_run *t)
{
    TEST(every_tile_once);
    TEST(grid_of_the_paper);
    TEST(table_5);
    TEST(hit_rate_equation);
    TEST(predicted_as_walked);
    TEST(budget);
    TEST(monotone);
    TEST(choices);
    TEST(rates);
    TEST(bad_input);
    TEST(extremes);
    TEST(snprintf_contract);
    TEST(report_of_odd_lists);
    TEST(picture);
}

TEST_MAIN(list)
