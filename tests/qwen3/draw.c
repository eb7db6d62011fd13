// run: asan whole
/* The task `draw` of examples/qwen3: random numbers, filters and what is drawn, against a reference in double precision by a
   chi-square test; and in a decoder, the same tokens whatever the batch, the schedule and the engine. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "implementation.h"
#include "../../examples/qwen3/session.h"
#include "test.h"

/* ---- the task alone: a graph of one grid ---- */

#define SEQUENCES 64u
#define MAX_VOCAB 2000u

typedef struct drawing {
    decoder d;
    task_args args;
    batch b;
    sampling_desc sampling[SEQUENCES];
    int32_t drawn[SEQUENCES];
    float logits[SEQUENCES * MAX_VOCAB], best[MAX_ROWS];
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_host_desc host;
} drawing;

static int drawing_open(drawing *w, uint32_t vocab, uint32_t waves, fleet_host_engine engine)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan_desc desc = fleet_plan_desc_default();
    int bad;
    memset(w, 0, sizeof *w);
    w->host.waves = waves, w->host.engine = engine, w->host.seed = 1;
    w->d.vocab = vocab, w->d.logit_steps = 1, w->d.b = &w->b;
    w->d.sampling = w->sampling, w->d.drawn = w->drawn, w->d.logits = w->logits;
    w->d.chiplets = w->d.workers = 1, w->d.best = w->best;
    w->b.sequences = SEQUENCES;
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        w->b.sequence[i].first = (int32_t)i;
        w->b.sequence[i].rows = w->b.sequence[i].samples = 1;
    }
    w->args.d = w->d;
    if (!g) return -1;
    fleet_grid_level(g, fleet_call_device(g, "draw", task_args_draw, fleet_shape0(), 0),
                     FLEET_LEVEL_DEVICE);
    bad = fleet_topology_query(&desc.topology) != 0;
    desc.topology.chiplets = 2, desc.topology.units[0] = 2, desc.topology.units[1] = 1;
    desc.schedule = FLEET_SCHEDULE_STATIC;
    bad = bad || fleet_plan_build(g, &desc, &w->plan) || fleet_upload(&w->image, w->plan, NULL) ||
          fleet_state_create(&w->state, &w->image, NULL, NULL);
    fleet_graph_destroy(g);
    return bad;
}
static int drawing_run(drawing *w)
{
    fleet_launch_desc d = fleet_launch_desc_default();
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        const float *logits = w->logits + i * w->d.vocab;
        w->best[i] = logits[0];
        for (uint32_t k = 1; k < w->d.vocab; k++) w->best[i] = fmaxf(w->best[i], logits[k]);
    }
    d.steps = 1, d.threads = THREADS, d.lds_bytes = LDS_BYTES;
    d.host = w->host;
    return fleet_launch(&w->state, &d, FLEET_KERNEL_OF(decode), &w->args) ||
           fleet_state_wait(&w->state, NULL);
}
static void drawing_close(drawing *w)
{
    fleet_state_free(&w->state);
    fleet_image_free(&w->image);
    fleet_plan_free(w->plan);
}

/* ---- the reference ---- */

static const float *compared;
static int by_logit(const void *a, const void *b)
{
    const float x = compared[*(const uint32_t *)a], y = compared[*(const uint32_t *)b];
    return x > y ? -1 : x < y;
}

/* The probability of each token: sorts, and cuts the list three times. */
static void reference(const float *logits, uint32_t vocab, const sampling_desc *s, double *p)
{
    static uint32_t order[MAX_VOCAB];
    double sum = 0, mass = 0;
    uint32_t kept = vocab, i;
    for (i = 0; i < vocab; i++) order[i] = i;
    compared = logits;
    qsort(order, vocab, sizeof *order, by_logit);
    for (i = 0; i < vocab; i++)
        p[order[i]] =
            exp(((double)logits[order[i]] - (double)logits[order[0]]) / (double)s->temperature);
    if (s->top_k && s->top_k < kept) kept = s->top_k;
    while (kept < vocab && p[order[kept]] == p[order[kept - 1]]) kept++;
    for (i = 0; i < kept; i++) sum += p[order[i]];
    if (s->top_p > 0) {
        for (i = 0; i < kept && mass < (double)s->top_p * sum; i++) mass += p[order[i]];
        while (i < kept && p[order[i]] == p[order[i - 1]]) i++;
        kept = i;
    }
    while (kept > 1 && p[order[kept - 1]] < (double)s->min_p) kept--;
    for (sum = 0, i = 0; i < kept; i++) sum += p[order[i]];
    for (i = 0; i < vocab; i++) p[order[i]] = i < kept ? p[order[i]] / sum : 0;
}

static float random_logit(uint64_t *state)
{
    float sum = 0;
    for (uint32_t i = 0; i < 6; i++) {
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        sum += (float)(*state >> 40) * (1.0f / 16777216.0f) - 0.5f;
    }
    return 4 * sum;
}

/* How far the counts are from the probabilities, in standard deviations of the chi-square distribution (Wilson and
   Hilferty). Tokens that are expected less than eight times are counted together. */
static double deviation(const uint32_t *counts, const double *p, uint32_t vocab, double draws)
{
    double sum = 0, rare = 0, degrees = -1, seen = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        const double expected = p[i] * draws;
        if (expected < 8) {
            rare += expected, seen += counts[i];
            continue;
        }
        sum += (counts[i] - expected) * (counts[i] - expected) / expected, degrees++;
    }
    if (rare > 8) sum += (seen - rare) * (seen - rare) / rare, degrees++;
    if (degrees < 1) return 0;
    return (cbrt(sum / degrees) - (1 - 2 / (9 * degrees))) / sqrt(2 / (9 * degrees));
}

/* ---- tests ---- */

static void philox_answers(test_run *t)
{
    static const struct {
        uint32_t counter;
        uint64_t key;
        uint32_t out[4];
    } known[] = {{0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
                 {UINT32_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}};
    for (uint32_t i = 0; i < 2; i++) {
        philox p;
        for (uint32_t j = 0; j < 4; j++) p.word[j] = known[i].counter;
        p = philox_4x32(p, known[i].key);
        CHECK(!memcmp(p.word, known[i].out, sizeof p.word));
    }
    /* finite at both ends */
    CHECK(gumbel(0) > 22 && gumbel(0) < 23 && gumbel(UINT32_MAX) < -2.7f &&
          gumbel(UINT32_MAX) > -3);
}

/* Each sequence of a launch has another stream; each launch another position. */
static void chi_square(test_run *t)
{
    static const sampling_desc cases[] = {
        {1, 0, 0, 0, 1, 0},         {0.6f, 0, 1, 0, 2, 0},  {1, 7, 0, 0, 3, 0},
        {1.5f, 0, 0.8f, 0, 4, 0},   {1, 0, 0, 0.15f, 5, 0}, {0.8f, 12, 0.9f, 0.05f, 6, 0},
        {2, 30, 0.95f, 0, 7, 0},    {1, 1, 0, 0, 8, 0},     {1, 0, 1e-6f, 0, 9, 0},
        {0.01f, 0, 0.9f, 0, 10, 0}, {1, 5000, 0, 1, 11, 0}, {100, 0, 0.5f, 0, 12, 0},
    };
    static drawing w;
    static double p[MAX_VOCAB];
    static uint32_t counts[MAX_VOCAB];
    double worst = 0;
    for (uint32_t c = 0; c < sizeof cases / sizeof cases[0] && !t->failed_here; c++) {
        const uint32_t vocab = c % 3 ? 41 : MAX_VOCAB - 3, launches = 24;
        uint64_t random = c + 1;
        double off;
        memset(counts, 0, sizeof counts);
        CHECK(!drawing_open(&w, vocab, 1 + c % 3, FLEET_ENGINE_DETERMINISTIC));
        for (uint32_t i = 0; i < vocab; i++) w.logits[i] = random_logit(&random);
        w.logits[vocab / 2] = w.logits[vocab / 3]; /* a tie */
        for (uint32_t i = 0; i < SEQUENCES; i++) {
            memcpy(w.logits + i * vocab, w.logits, vocab * sizeof *w.logits);
            w.sampling[i] = cases[c], w.sampling[i].stream = i;
        }
        reference(w.logits, vocab, &cases[c], p);
        for (uint32_t l = 0; l < launches; l++) {
            for (uint32_t i = 0; i < SEQUENCES; i++) w.b.sequence[i].position = (int32_t)l;
            CHECK(!drawing_run(&w));
            for (uint32_t i = 0; i < SEQUENCES; i++) {
                CHECK(w.drawn[i] >= 0 && (uint32_t)w.drawn[i] < vocab);
                counts[w.drawn[i]]++;
            }
        }
        drawing_close(&w);
        for (uint32_t i = 0; i < vocab; i++)
            if (counts[i] && p[i] <= 0)
                test_fail(t, __FILE__, __LINE__, "case %u: token %u was filtered out", c, i);
        off = deviation(counts, p, vocab, (double)launches * SEQUENCES);
        if (fabs(off) > fabs(worst)) worst = off;
        if (fabs(off) > 4.5)
            test_fail(t, __FILE__, __LINE__, "case %u: chi-square is off by %.1f deviations", c,
                      off);
    }
    printf("chi-square: at most %.2f deviations\n", worst);
}

/* Tokens of equal logits stay together, at the bound of each filter. */
static void ties(test_run *t)
{
    static drawing w;
    static const sampling_desc cases[] = {
        {1, 3, 0, 0, 1, 0}, {1, 0, 0.5f, 0, 1, 0}, {1, 0, 0, 0.5f, 1, 0}};
    for (uint32_t c = 0; c < 3; c++) {
        uint32_t counts[8] = {0};
        CHECK(!drawing_open(&w, 8, 2, FLEET_ENGINE_THREADS));
        for (uint32_t i = 0; i < SEQUENCES; i++) {
            /* 0 is the best; four equal ones follow, of more than half its weight; then three of less */
            for (uint32_t k = 0; k < 8; k++)
                w.logits[i * 8 + k] = k == 0 ? 5.0f : k < 5 ? 4.5f : 3.0f;
            w.sampling[i] = cases[c], w.sampling[i].stream = i;
        }
        for (int32_t l = 0; l < 20; l++) {
            for (uint32_t i = 0; i < SEQUENCES; i++) w.b.sequence[i].position = l;
            CHECK(!drawing_run(&w));
            for (uint32_t i = 0; i < SEQUENCES; i++) counts[w.drawn[i]]++;
        }
        drawing_close(&w);
        for (uint32_t k = 0; k < 8; k++) CHECK_INT(counts[k] > 0, k < 5);
    }
}

/* Sequences without a temperature, without rows, or that choose none are left alone. */
static void left_alone(test_run *t)
{
    static drawing w;
    CHECK(!drawing_open(&w, 8, 1, FLEET_ENGINE_THREADS));
    for (uint32_t i = 0; i < SEQUENCES; i++) {
        w.sampling[i].temperature = (float)(i % 4 != 1);
        w.b.sequence[i].rows = i % 4 != 2, w.b.sequence[i].samples = i % 4 != 3;
        w.drawn[i] = -1;
    }
    CHECK(!drawing_run(&w));
    for (uint32_t i = 0; i < SEQUENCES; i++) CHECK_INT(w.drawn[i] >= 0, i % 4 == 0);
    drawing_close(&w);
}

/* ---- in a decoder ---- */

#define STEPS 12u
static const uint32_t prompts[4][3] = {{318, 5, 6}, {460, 191, 256}, {7, 7, 7}, {1, 2, 3}};

static model m;

static int tokens_of(test_run *t, uint32_t schedule, uint32_t first, uint32_t n, uint32_t seed,
                     uint32_t deterministic, int32_t *generated)
{
    request requests[4];
    session_desc d;
    session s;
    uint32_t counts[4];
    int bad;
    memset(requests, 0, sizeof requests);
    memset(&d, 0, sizeof d);
    for (uint32_t i = 0; i < n; i++) {
        requests[i].prompt = prompts[first + i], requests[i].n_prompt = 3;
        requests[i].sampling.temperature = first + i == 3 ? 0 : 0.9f + (float)(first + i);
        requests[i].sampling.top_k = 50, requests[i].sampling.top_p = 0.95f;
        requests[i].sampling.seed = seed, requests[i].sampling.stream = first + i;
    }
    d.schedule = schedule < 4 ? (fleet_schedule)schedule : FLEET_SCHEDULE_STATIC;
    d.unfused = schedule == 4, d.chiplets = 1 + schedule % 3, d.workers = 4;
    d.steps = STEPS, d.context = STEPS + 3, d.draws = 1;
    d.host.engine = deterministic ? FLEET_ENGINE_DETERMINISTIC : FLEET_ENGINE_THREADS;
    d.host.waves = 1 + schedule % 2;
    bad = session_open(&s, &m, &d, requests, n) || session_run(&s);
    if (bad)
        test_fail(t, __FILE__, __LINE__, "%s", s.error);
    else
        session_generated(&s, generated, counts);
    session_free(&s);
    return bad;
}

static void same_tokens(test_run *t)
{
    static int32_t all[4 * STEPS], other[4 * STEPS];
    uint32_t differ = 0;
    if (tokens_of(t, 0, 0, 4, 1, 0, all)) return;
    for (uint32_t i = 0; i < 4; i++) { /* each alone */
        if (tokens_of(t, 0, i, 1, 1, 0, other)) return;
        CHECK(!memcmp(other, all + i * STEPS, STEPS * sizeof *all));
    }
    for (uint32_t schedule = 1; schedule < 5; schedule++) {
        if (tokens_of(t, schedule, 0, 4, 1, schedule % 2, other)) return;
        CHECK(!memcmp(other, all, sizeof all));
    }
    if (tokens_of(t, 0, 0, 4, 2, 0, other)) return;
    for (uint32_t i = 0; i < 4; i++) {
        const int same = !memcmp(other + i * STEPS, all + i * STEPS, STEPS * sizeof *all);
        CHECK_INT(same, i == 3); /* without a temperature, a seed has no meaning */
        for (uint32_t k = 0; k < STEPS; k++) differ += other[i * STEPS + k] != all[i * STEPS + k];
    }
    CHECK(differ > STEPS); /* not by chance, in one token */
}

/* Against a graph that cannot draw: the tokens of a sequence without a temperature are the same. */
static void greedy_is_greedy(test_run *t)
{
    static int32_t drawn[STEPS], greedy[STEPS];
    request r;
    session_desc d;
    session s;
    uint32_t count;
    memset(&r, 0, sizeof r);
    memset(&d, 0, sizeof d);
    if (tokens_of(t, 0, 3, 1, 1, 0, drawn)) return;
    r.prompt = prompts[3], r.n_prompt = 3;
    d.steps = STEPS, d.context = STEPS + 3;
    CHECK(!session_open(&s, &m, &d, &r, 1) && !session_run(&s));
    session_generated(&s, greedy, &count);
    session_free(&s);
    CHECK(!memcmp(drawn, greedy, sizeof greedy));
}

static void bad_sampling(test_run *t)
{
    static const struct {
        sampling_desc s;
        const char *why;
    } cases[] = {{{-1, 0, 0, 0, 0, 0}, "a temperature of -1"},
                 {{(float)NAN, 0, 0, 0, 0, 0}, "a temperature of"},
                 {{1e30f, 0, 0, 0, 0, 0}, "a temperature of 1e+30"},
                 {{1, 0, 1.5f, 0, 0, 0}, "a top_p of 1.5"},
                 {{1, 0, 0, (float)NAN, 0, 0}, "a min_p of"},
                 {{1, 0, 0, 0, 0, 0}, "opened without draws"}};
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        request r;
        session_desc d;
        session s;
        memset(&r, 0, sizeof r);
        memset(&d, 0, sizeof d);
        r.prompt = prompts[0], r.n_prompt = 3, r.sampling = cases[i].s;
        d.steps = 2, d.context = 8, d.draws = i != 5;
        CHECK_INT(session_open(&s, &m, &d, &r, 1), RUN_REFUSED);
        CHECK_TEXT(s.error, cases[i].why);
        session_free(&s);
    }
}

static void all(test_run *t)
{
    static qwen3_checkpoint checkpoint;
    if (qwen3_open(&checkpoint, "tests/fixtures/qwen3-tiny") ||
        model_load(&m, &checkpoint.config, &checkpoint, FLEET_SCHEDULE_AUTO, MAX_ROWS, NULL)) {
        printf("FAIL load: %s%s\n", checkpoint.error, m.error);
        t->failures++;
        return;
    }
    TEST(philox_answers);
    TEST(chi_square);
    TEST(ties);
    TEST(left_alone);
    TEST(same_tokens);
    TEST(greedy_is_greedy);
    TEST(bad_sampling);
    model_free(&m);
    qwen3_close(&checkpoint);
}

TEST_MAIN(all)
