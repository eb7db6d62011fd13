// run: plain whole
// run: asan whole -DQUICK
/* The decoder of examples/qwen3 on the CPU: against the checkpoints' references under all schedules, chiplets and
   engines; against a plain decoder in double precision, with sizes that need padding; sequences of all lengths that come
   and go; and arguments that are wrong. */
#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#define FLEET_IMPLEMENTATION
#include "../../examples/qwen3/check.h"
#include "../../examples/qwen3/fits.h"
#include "plain.h"
#include "test.h"

#if defined(QUICK)
#define IS_QUICK 1
#else
#define IS_QUICK 0
#endif

static const char *const fixtures[] = {"tests/fixtures/qwen3-tiny",
                                       "tests/fixtures/qwen3-moe-tiny"};

typedef struct loaded {
    qwen3_checkpoint checkpoint;
    qwen3_expected expected;
    model m;
    char error[ERROR_BYTES];
} loaded;

static int load(loaded *l, const char *dir)
{
    memset(l, 0, sizeof *l);
    if (qwen3_open(&l->checkpoint, dir)) {
        memcpy(l->error, l->checkpoint.error, sizeof l->error);
        return -1;
    }
    if (qwen3_expected_read(&l->expected, &l->checkpoint.config, dir, l->error, sizeof l->error))
        return -1;
    if (model_load(&l->m, &l->checkpoint.config, &l->checkpoint, FLEET_SCHEDULE_AUTO, MAX_ROWS,
                   NULL)) {
        memcpy(l->error, l->m.error, sizeof l->error);
        return -1;
    }
    return 0;
}
static void unload(loaded *l)
{
    model_free(&l->m);
    qwen3_expected_close(&l->expected);
    qwen3_close(&l->checkpoint);
}

/* static, chiplet, dynamic, auto, unfused, each with chiplets and now and then unaware of them, and with tiles of some or all
   rows; chiplets have unequal numbers of workers, wherever there are several. Pages are in order with seed 1 only. */
#define SCHEDULES 5u
static session_desc setting(uint32_t schedule, uint32_t chiplets, uint32_t engine, uint64_t seed)
{
    session_desc d;
    memset(&d, 0, sizeof d);
    d.schedule = schedule < 4 ? (fleet_schedule)schedule : FLEET_SCHEDULE_STATIC;
    d.unfused = schedule == 4;
    d.unaware = seed % 3 == 2, d.tile_rows = 16 * (uint32_t)(seed % 5);
    d.chiplets = chiplets;
    d.workers = chiplets * (1 + (uint32_t)(seed % 3)) + (chiplets > 1);
    d.seed = d.host.seed = seed, d.page_seed = seed - 1;
    d.placement = (fleet_placement)(FLEET_PLACEMENT_LINEAR + seed % 3);
    d.host.engine = engine ? FLEET_ENGINE_DETERMINISTIC : FLEET_ENGINE_THREADS;
    d.host.waves = 1 + (uint32_t)(seed / 3 % 2);
    return d;
}

/* Every case, alone and in one batch, for every schedule, 1, 2, 3 and 8 chiplets, and both engines,
   by turns: each has all schedules and both engines. */
static void references(test_run *t, const char *dir)
{
    static const uint32_t chiplets[] = {1, 2, 3, 8};
    loaded l;
    uint64_t seed = 0;
    if (load(&l, dir)) CHECK_TEXT(l.error, "no error");
    for (uint32_t i = 0; i < SCHEDULES * 4 * 2 && !t->failed_here; i++) {
        const session_desc d =
            setting(i % SCHEDULES, chiplets[i / SCHEDULES % 4], i / SCHEDULES / 4, ++seed);
        checked c;
        int bad = 0;
        memset(&c, 0, sizeof c);
        if (IS_QUICK ? i % 7 != 0 : !test_in_turn(i)) continue;
        for (uint32_t k = 0; k < l.expected.count && !bad; k++)
            bad = check_cases(&l.m, &d, l.expected.cases + k, 1, &c);
        if (!bad) bad = check_cases(&l.m, &d, l.expected.cases, l.expected.count, &c);
        if (bad || !checked_is_good(&c) || c.right != c.tokens)
            test_fail(t, __FILE__, __LINE__, "setting %u: %s%s, %u of %u tokens, logits within %g",
                      i, c.error, c.first, c.right, c.tokens, c.worst);
    }
    unload(&l);
}
static void dense_reference(test_run *t)
{
    references(t, fixtures[0]);
}
static void moe_reference(test_run *t)
{
    references(t, fixtures[1]);
}

/* Twice the same bits; and the same under every schedule and engine, since sums do not depend on the worker that adds them. */
static void same_bits(test_run *t)
{
    loaded l;
    outcome first;
    request requests[3];
    size_t logits;
    if (load(&l, fixtures[1])) CHECK_TEXT(l.error, "no error");
    memset(requests, 0, sizeof requests);
    for (uint32_t i = 0; i < 3; i++)
        requests[i].prompt = l.expected.cases[i].prompt,
        requests[i].n_prompt = l.expected.cases[i].prompt_count;
    memset(&first, 0, sizeof first);
    logits = (size_t)3 * 12 * l.m.config.vocab * sizeof(float);
    for (uint32_t i = 0; i < 12 && !t->failed_here; i++) {
        session_desc d = setting(i / 2 % SCHEDULES, 2, i % 2, 1 + i);
        outcome o;
        d.workers = 5, d.host.waves = 2, d.context = 32, d.steps = 12;
        o = run(&l.m, d, requests, 3);
        if (o.error[0]) test_fail(t, __FILE__, __LINE__, "%s", o.error);
        if (i && !t->failed_here &&
            (memcmp(o.logits, first.logits, logits) ||
             memcmp(o.generated, first.generated, sizeof(int32_t) * 36)))
            test_fail(t, __FILE__, __LINE__, "run %u has other bits", i);
        if (i)
            outcome_free(&o);
        else
            first = o;
    }
    outcome_free(&first);
    unload(&l);
}

/* Sequences that begin alike share complete pages, and each has the bits that it has alone; shared tokens take no rows. */
static void prefixes_are_shared(test_run *t)
{
    enum { N = 6, STEPS = 5, CONTEXT = 128, LONGEST = 120 };
    static const struct {
        uint32_t tokens, with, common, shared; /* shared: tokens of complete pages */
    } table[N] = {
        {LONGEST, 0, 0, 0}, /* the first one computes all that it has */
        {70, 0, 50, 48},    /* the 49th and 50th token are in a page that it has for itself */
        {LONGEST, 0, LONGEST, 112}, /* the same: its last token is computed all the same */
        {30, 0, 15, 0},             /* no complete page */
        {90, 1, 70, 64}, /* more in common with a sequence that waits itself than with the first */
        {80, 4, 64, 64}  /* a whole number of pages, of which another one has as many */
    };
    loaded l;
    request requests[N];
    uint32_t prompt[N][LONGEST], rows = 0, pages = 0, tokens = 0;
    if (load(&l, fixtures[1])) CHECK_TEXT(l.error, "no error");
    memset(requests, 0, sizeof requests);
    for (uint32_t i = 0; i < N; i++) {
        for (uint32_t k = 0; k < LONGEST; k++)
            prompt[i][k] = k < table[i].common ? prompt[table[i].with][k]
                                               : (i * 71 + k * 13 + 5) % l.m.config.vocab;
        requests[i].prompt = prompt[i], requests[i].n_prompt = table[i].tokens;
        rows += table[i].tokens - table[i].shared, tokens += table[i].tokens;
        pages += ceil_div(table[i].tokens + STEPS - 1, PAGE_TOKENS) - table[i].shared / PAGE_TOKENS;
    }
    for (uint32_t k = 0; k < (IS_QUICK ? 2u : SCHEDULES) && !t->failed_here; k++) {
        session_desc d = setting(k, 1 + k % 3, k % 2, 1 + k);
        const size_t logits = (size_t)STEPS * l.m.config.vocab;
        outcome all, apart;
        d.steps = STEPS, d.context = CONTEXT, d.split_blocks = 1;
        apart = run(&l.m, d, requests, N);
        d.share_prefixes = 1;
        all = run(&l.m, d, requests, N);
        CHECK_TEXT(all.error, "");
        CHECK_TEXT(apart.error, "");
        CHECK_INT(apart.prompt_rows, tokens);
        CHECK_INT(all.prompt_rows, rows);
        CHECK_INT(all.pages, pages);
        CHECK_INT(all.shared, 7 + 1); /* of the first sequence, and of the second */
        CHECK_INT(apart.shared, 0);
        for (uint32_t i = 0; i < N && !t->failed_here; i++) {
            outcome alone = run(&l.m, d, &requests[i], 1);
            CHECK_INT(alone.prompt_rows, table[i].tokens);
            CHECK(!memcmp(alone.generated, all.generated + i * STEPS, STEPS * sizeof(int32_t)));
            CHECK(!memcmp(alone.logits, all.logits + i * logits, logits * sizeof(float)));
            CHECK(!memcmp(alone.logits, apart.logits + i * logits, logits * sizeof(float)));
            outcome_free(&alone);
        }
        outcome_free(&apart);
        outcome_free(&all);
    }
    unload(&l);
}

/* The turns of a conversation compute what is new in each, and have the bits of sessions that
   compute all. */
static void turns_go_on(test_run *t)
{
    enum { TURNS = 5, STEPS = 5, CONTEXT = 128 };
    static const struct {
        uint32_t kept, more; /* tokens of the turn before that stay, its answer's included */
    } table[TURNS] = {{0, 20}, {24, 9}, {24 + 9, 40}, {11, 30}, {11 + 30, 0}};
    for (uint32_t k = 0; k < (IS_QUICK ? 2u : SCHEDULES) && !t->failed_here; k++) {
        uint32_t prompt[CONTEXT], before = 0;
        kept_tokens kept;
        loaded l;
        if (load(&l, fixtures[k % 2])) CHECK_TEXT(l.error, "no error");
        memset(&kept, 0, sizeof kept);
        for (uint32_t i = 0; i < TURNS && !t->failed_here; i++) {
            const uint32_t n = table[i].kept + table[i].more;
            const size_t logits = (size_t)STEPS * l.m.config.vocab;
            session_desc d = setting(k, 1 + k % 3, 1, k);
            request r;
            outcome all, turn;
            memset(&r, 0, sizeof r);
            for (uint32_t p = table[i].kept; p < n; p++)
                prompt[p] = (i * 71 + p * 13 + 5) % l.m.config.vocab;
            r.prompt = prompt, r.n_prompt = n;
            d.steps = STEPS, d.context = CONTEXT, d.split_blocks = 1;
            all = run(&l.m, d, &r, 1);
            d.kept = &kept;
            turn = run(&l.m, d, &r, 1);
            CHECK_TEXT(turn.error, "");
            CHECK_INT(all.prompt_rows, n);
            /* The last token chooses the next one, and is computed always. */
            CHECK_INT(turn.prompt_rows, n == before ? 1 : n - table[i].kept);
            CHECK(!memcmp(turn.generated, all.generated, STEPS * sizeof(int32_t)));
            CHECK(!memcmp(turn.logits, all.logits, logits * sizeof(float)));
            for (uint32_t s = 0; s < STEPS; s++) prompt[n + s] = (uint32_t)turn.generated[s];
            before = n;
            outcome_free(&turn);
            outcome_free(&all);
        }
        kept_tokens_free(&kept);
        unload(&l);
    }
}

/* The threads of a workgroup lay out a step as one does, whichever comes first between two barriers; and one that only
   decodes has the rows that batch_choose would have chosen. */
static void threads_share_a_batch(test_run *t)
{
    static const uint32_t threads[] = {1, 3, 64, 192, 256};
    uint64_t random = 7;
    for (uint32_t turn = 0; turn < 400 && !t->failed_here; turn++) {
        const uint32_t step = threads[turn % 5], decodes = turn % 2;
        batch b, one, all;
        uint32_t rows = 0, size;
        memset(&b, 0, sizeof b);
        b.sequences = turn % (MAX_ROWS + 1), b.part_rows = turn % 3 * 4;
        b.split_blocks = turn % 7 ? 0 : 2;
        for (uint32_t i = 0; i < b.sequences; i++) {
            sequence_state *q = &b.sequence[i];
            random = random * 6364136223846793005u + 1442695040888963407u;
            q->prompt = 1 + (int32_t)(random >> 60), q->limit = (int32_t)(random >> 56) & 3;
            q->position = decodes ? q->prompt - 1 + (int32_t)(random >> 50 & 63)
                                  : (int32_t)(random >> 52 & 31);
            q->source = (int32_t)i;
        }
        one = b;
        batch_choose(&one, MAX_ROWS);
        CHECK(!decodes || one.decodes);
        all = b, all.decodes = one.decodes;
        if (one.decodes)
            for (uint32_t k = 0; k < step; k++) batch_choose_decoding(&all, k, step);
        else
            batch_choose(&all, MAX_ROWS);
        batch_arrange(&one, MAX_KV_SPLITS, 2, 304);
        for (uint32_t k = step; k-- > 0;) batch_rows(&all, k, step);
        for (uint32_t k = 0; k < step; k++) {
            size = batch_split_blocks(&all, 2, 304);
            batch_split(&all, size, MAX_KV_SPLITS, k, step);
        }
        for (uint32_t k = step; k-- > 0;) batch_list(&all, 2, k, step);
        CHECK(!memcmp(&one, &all, sizeof one));
        for (uint32_t i = 0; i < one.sequences; i++) {
            CHECK(one.sequence[i].first == (int32_t)rows);
            for (int32_t r = 0; r < one.sequence[i].rows; r++, rows++)
                CHECK(one.row[rows].sequence == (int32_t)i &&
                      one.row[rows].position == one.sequence[i].position + r);
            for (uint32_t k = one.first_split[i]; k < one.first_split[i + 1]; k++)
                CHECK(one.split_sequence[k] == i);
        }
        CHECK(one.rows == rows && rows <= MAX_ROWS);
        CHECK(one.kv_splits == one.first_split[one.sequences]);
    }
}

/* With splits of a given size a prompt is cut where that says, and a sequence that decodes into splits of one size, none of
   them short, whatever is beside it. */
static void splits_suit_positions(test_run *t)
{
    enum { SIZE = 32 };
    for (uint32_t blocks = 1; blocks < 20 * SIZE && !t->failed_here; blocks++) {
        batch b;
        memset(&b, 0, sizeof b);
        b.sequences = 2, b.split_blocks = SIZE;
        for (uint32_t i = 0; i < 2; i++) {
            sequence_state *q = &b.sequence[i];
            q->rows = 1, q->position = (int32_t)(blocks * KV_BLOCK) - 1;
            q->prompt = i ? q->position + 1 : 1; /* the second one has a token of its prompt left */
        }
        batch_split(&b, SIZE, 64, 0, 1);
        for (uint32_t i = 0; i < 2; i++) {
            const sequence_state *q = &b.sequence[i];
            const uint32_t last = blocks - (q->splits - 1) * q->split_blocks;
            CHECK(last >= 1 && last <= q->split_blocks);
            if (i)
                CHECK_INT(q->split_blocks, SIZE);
            else
                CHECK(q->split_blocks - last < q->splits && q->split_blocks < 3 * SIZE / 2 + 1);
        }
    }
}

/* A step may have rows of any sequences, and of their prompts as many as one likes: each sequence has the bits that it has
   alone. The host chooses at random, step by step, each of which is a launch. */
static void rows_mix(test_run *t)
{
    enum { N = 5, STEPS = 6, CONTEXT = 192, TURNS = 400 };
    loaded l;
    request requests[N];
    uint32_t prompt[N][170];
    outcome alone[N];
    session_desc d = setting(0, 2, 0, 5);
    size_t logits;
    if (load(&l, fixtures[1])) CHECK_TEXT(l.error, "no error");
    logits = (size_t)STEPS * l.m.config.vocab;
    memset(requests, 0, sizeof requests);
    d.steps = STEPS, d.context = CONTEXT, d.split_blocks = 1, d.keep_logits = 1;
    for (uint32_t i = 0; i < N; i++) {
        requests[i].n_prompt = i == 2 ? 170 : 3 + 23 * i;
        for (uint32_t k = 0; k < 170; k++) prompt[i][k] = (i * 57 + k * 29 + 3) % l.m.config.vocab;
        requests[i].prompt = prompt[i];
        alone[i] = run(&l.m, d, &requests[i], 1);
    }
    for (uint32_t seed = 1; seed <= (IS_QUICK ? 1u : 3u) && !t->failed_here; seed++) {
        session s;
        uint32_t random = seed, turns = 0, running = N;
        float *is = (float *)malloc(N * logits * sizeof *is);
        int32_t generated[N * STEPS];
        d.launch = 1, d.page_seed = seed;
        if (session_open(&s, &l.m, &d, requests, N)) test_fail(t, __FILE__, __LINE__, s.error);
        s.last[0] = s.first[0], s.last[0].prompt_rows = 0;
        while (running && turns++ < TURNS && !t->failed_here) {
            batch *b = s.last;
            uint32_t spare = MAX_ROWS, rows = 0;
            running = 0;
            for (uint32_t i = 0; i < N; i++) {
                sequence_state *q = &b->sequence[i];
                const uint32_t left = (uint32_t)(q->prompt - q->position);
                uint32_t most = q->generated == q->limit ? 0 : q->position < q->prompt ? left : 1;
                running += most != 0;
                if (most > spare) most = spare;
                random = random * 1664525u + 1013904223u;
                q->rows = (int32_t)((random >> 8) % 3 ? (random >> 12) % (most + 1) : 0);
                spare -= (uint32_t)q->rows, rows += (uint32_t)q->rows;
            }
            if (!rows) continue;
            batch_arrange(b, s.d.max_splits, s.d.kv_heads, b->workers);
            batch_pages(b, s.pages.row, s.pages.row_pages, 0, 1);
            batch_tokens(b, s.d.tokens, d.context + 1, 0, 1);
            if (fleet_to_device(s.d.b, b, sizeof *b, NULL) || session_run(&s))
                test_fail(t, __FILE__, __LINE__, "seed %u: %s", seed, s.error);
        }
        CHECK(!running && turns > 20);
        if (fleet_to_host(is, s.d.logits, N * logits * sizeof *is, NULL) ||
            fleet_to_host(generated, s.d.generated, sizeof generated, NULL))
            test_fail(t, __FILE__, __LINE__, "no results");
        for (uint32_t i = 0; i < N && !t->failed_here; i++) {
            CHECK(!memcmp(alone[i].generated, generated + i * STEPS, STEPS * sizeof(int32_t)));
            CHECK(!memcmp(alone[i].logits, is + i * logits, logits * sizeof(float)));
        }
        free(is);
        session_free(&s);
    }
    for (uint32_t i = 0; i < N; i++) outcome_free(&alone[i]);
    unload(&l);
}

/* ---- a plain decoder ---- */

typedef struct plain { /* a model of small sizes, in memory as a checkpoint has it */
    qwen3_checkpoint c;
    uint16_t *words;
    size_t used, room;
    uint64_t random;
} plain;

static qwen3_tensor tensor(plain *p, uint32_t rows, uint32_t columns, float scale)
{
    qwen3_tensor x;
    memset(&x, 0, sizeof x);
    x.data = (const unsigned char *)(p->words + p->used);
    x.rows = rows, x.columns = columns, x.dtype = QWEN3_BF16, x.name = "random", x.file = "none";
    for (size_t i = 0; i < (size_t)rows * columns; i++) {
        p->random = p->random * 6364136223846793005ull + 1442695040888963407ull;
        p->words[p->used++] = bf16_of_float((((float)(p->random >> 40) / 8388608.0f - 1) * scale) +
                                            (rows == 1 ? 1.0f : 0.0f));
    }
    return x;
}

static void plain_make(plain *p, uint64_t seed)
{
    static const uint32_t heads[][3] = {
        {4, 2, 8}, {8, 1, 8}, {2, 2, 16}, {3, 1, 32}, {6, 3, 16}}; /* heads, kv heads, dim */
    qwen3_config *c = &p->c.config;
    const uint32_t *h = heads[seed % 5];
    memset(p, 0, sizeof *p);
    p->random = seed;
    c->heads = h[0], c->kv_heads = h[1], c->head_dim = h[2];
    c->hidden = 32 * (1 + (uint32_t)(seed % 3)), c->layers = 1 + (uint32_t)(seed % 2);
    c->ffn = 20 + (uint32_t)(seed * 13 % 90), c->vocab = 33 + (uint32_t)(seed * 7 % 50);
    c->positions = 512, c->rope_theta = 10000, c->norm_eps = 1e-6;
    if (seed % 2) {
        c->experts = 5 + (uint32_t)(seed % 9), c->experts_per_token = 1 + (uint32_t)(seed % 3);
        c->expert_ffn = 9 + (uint32_t)(seed % 40), c->norm_topk = (int)(seed / 2 % 2);
        c->sparse[c->layers - 1] = 1, c->sparse_layers = 1;
    }
    p->room = 4000000;
    p->words = (uint16_t *)malloc(p->room * 2);
    p->c.layers = (qwen3_layer_weights *)calloc(c->layers, sizeof *p->c.layers);
    p->c.embed = tensor(p, c->vocab, c->hidden, 1);
    p->c.head = tensor(p, c->vocab, c->hidden, 0.5f);
    p->c.norm = tensor(p, 1, c->hidden, 0.3f);
    for (uint32_t i = 0; i < c->layers; i++) {
        qwen3_layer_weights *l = &p->c.layers[i];
        const uint32_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
        l->input_norm = tensor(p, 1, c->hidden, 0.3f), l->post_norm = tensor(p, 1, c->hidden, 0.3f);
        l->q_norm = tensor(p, 1, c->head_dim, 0.3f), l->k_norm = tensor(p, 1, c->head_dim, 0.3f);
        l->q = tensor(p, q, c->hidden, 0.3f), l->k = tensor(p, kv, c->hidden, 0.3f);
        l->v = tensor(p, kv, c->hidden, 0.3f), l->o = tensor(p, c->hidden, q, 0.3f);
        l->sparse = c->sparse[i];
        if (!l->sparse) {
            l->gate = tensor(p, c->ffn, c->hidden, 0.3f),
            l->up = tensor(p, c->ffn, c->hidden, 0.3f);
            l->down = tensor(p, c->hidden, c->ffn, 0.3f);
            continue;
        }
        l->router = tensor(p, c->experts, c->hidden, 0.3f);
        l->expert_gate = (qwen3_tensor *)calloc(c->experts * 3, sizeof(qwen3_tensor));
        l->expert_up = l->expert_gate + c->experts, l->expert_down = l->expert_up + c->experts;
        for (uint32_t e = 0; e < c->experts; e++) {
            l->expert_gate[e] = tensor(p, c->expert_ffn, c->hidden, 0.3f);
            l->expert_up[e] = tensor(p, c->expert_ffn, c->hidden, 0.3f);
            l->expert_down[e] = tensor(p, c->hidden, c->expert_ffn, 0.3f);
        }
    }
}
static void plain_free(plain *p)
{
    for (uint32_t i = 0; i < p->c.config.layers; i++) free(p->c.layers[i].expert_gate);
    free(p->c.layers);
    free(p->words);
}

/* Random models whose sizes are no multiples of tiles, against the plain decoder: logits of every step. */
static void against_plain(test_run *t)
{
    const uint32_t n = 5, steps = 6, positions = 200;
    for (uint64_t seed = 1; seed <= (IS_QUICK ? 6 : 30) && !t->failed_here; seed++) {
        plain p;
        model m;
        request requests[5];
        uint32_t prompt[5][150];
        session_desc d = setting((uint32_t)(seed % SCHEDULES), 1 + (uint32_t)(seed % 3),
                                 (uint32_t)(seed / 2 % 2), seed);
        outcome o;
        plain_cache cache;
        double *logits, worst = 0;
        plain_make(&p, seed);
        if (model_load(&m, &p.c.config, &p.c, FLEET_SCHEDULE_AUTO, MAX_ROWS, NULL))
            test_fail(t, __FILE__, __LINE__, "seed %d: %s", (int)seed, m.error);
        memset(requests, 0, sizeof requests);
        for (uint32_t i = 0; i < n; i++) {
            requests[i].n_prompt = i == 1 ? 150 : 1 + (uint32_t)(seed * (i + 3) % 20);
            for (uint32_t k = 0; k < 150; k++)
                prompt[i][k] = (uint32_t)(seed * 31 + k * 17 + i * 5) % p.c.config.vocab;
            requests[i].prompt = prompt[i];
            requests[i].steps = 1 + (uint32_t)((seed + i) % steps);
        }
        d.steps = steps, d.context = positions;
        o = run(&m, d, requests, n);
        if (o.error[0]) test_fail(t, __FILE__, __LINE__, "seed %d: %s", (int)seed, o.error);
        cache.k = (double *)malloc(sizeof(double) * 2 * positions * PLAIN_MAX),
        cache.v = (double *)malloc(sizeof(double) * 2 * positions * PLAIN_MAX);
        logits = (double *)malloc(sizeof(double) * p.c.config.vocab);
        for (uint32_t i = 0; i < n && !t->failed_here; i++) {
            if (o.counts[i] != requests[i].steps)
                test_fail(t, __FILE__, __LINE__, "seed %d: %u tokens of sequence %u, expected %u",
                          (int)seed, o.counts[i], i, requests[i].steps);
            for (uint32_t k = 0; k + 1 < requests[i].n_prompt + requests[i].steps; k++) {
                const uint32_t picks = k + 1 >= requests[i].n_prompt,
                               at_step = k + 1 - requests[i].n_prompt;
                const uint32_t token =
                    k < requests[i].n_prompt
                        ? prompt[i][k]
                        : (uint32_t)o.generated[i * steps + k - requests[i].n_prompt];
                const float *is = o.logits + ((size_t)i * steps + at_step) * p.c.config.vocab;
                plain_step(&p.c, &cache, positions, k, token, logits);
                for (uint32_t v = 0; v < p.c.config.vocab && picks; v++) {
                    if (!(fabs((double)is[v] - logits[v]) <= worst))
                        worst = fabs((double)is[v] - logits[v]);
                    if (is[v] > is[o.generated[i * steps + at_step]])
                        test_fail(t, __FILE__, __LINE__, "seed %d: not the largest logit",
                                  (int)seed);
                }
            }
        }
        if (!(worst < 2e-3))
            test_fail(t, __FILE__, __LINE__, "seed %d: a logit is off by %g", (int)seed, worst);
        free(cache.k);
        free(cache.v);
        free(logits);
        outcome_free(&o);
        model_free(&m);
        plain_free(&p);
    }
}

/* n sequences with prompts and ends of all lengths: each chooses the tokens that it chooses alone,
   which some of them show, by turns. */
static void check_sequences(test_run *t, const char *fixture, uint32_t n, uint32_t schedule)
{
    enum { STEPS = 9 };
    loaded l;
    request requests[MAX_SEQUENCES];
    uint32_t prompt[MAX_SEQUENCES][32];
    session_desc d = setting(schedule, 2, 0, 4);
    outcome all;
    if (load(&l, fixture)) CHECK_TEXT(l.error, "no error");
    memset(requests, 0, sizeof requests);
    for (uint32_t i = 0; i < n; i++) {
        requests[i].n_prompt = 1 + i * 7 % 32;
        for (uint32_t k = 0; k < 32; k++) prompt[i][k] = (i * 37 + k * 11) % l.m.config.vocab;
        requests[i].prompt = prompt[i];
        requests[i].steps = 1 + i % STEPS;
    }
    d.steps = STEPS, d.context = 48;
    all = run(&l.m, d, requests, n);
    CHECK_TEXT(all.error, "");
    /* As many rows as a step has room for, while there are as many. */
    CHECK(all.steps < 40);
    for (uint32_t i = 0; i < n && !t->failed_here; i += IS_QUICK ? 13 : 3) {
        outcome alone;
        if (!IS_QUICK && !test_in_turn(i / 3)) continue;
        alone = run(&l.m, d, &requests[i], 1);
        CHECK_INT(all.counts[i], requests[i].steps);
        CHECK_INT(alone.counts[0], requests[i].steps);
        CHECK(
            !memcmp(alone.generated, all.generated + i * STEPS, alone.counts[0] * sizeof(int32_t)));
        outcome_free(&alone);
    }
    outcome_free(&all);
    unload(&l);
}

static void many_sequences(test_run *t)
{
    check_sequences(t, fixtures[0], MAX_ROWS, 0);
}
/* More than a step has rows for. */
static void sequences_take_turns(test_run *t)
{
    if (!IS_QUICK || test_in_turn(SCHEDULES)) check_sequences(t, fixtures[0], MAX_ROWS + 1, 0);
    for (uint32_t schedule = 0; schedule < SCHEDULES && !t->failed_here; schedule++)
        if (!IS_QUICK || test_in_turn(schedule))
            check_sequences(t, fixtures[schedule % 2], schedule % 2 ? 200 : 100, schedule);
    if (!t->failed_here && (!IS_QUICK || test_in_turn(SCHEDULES + 1)))
        check_sequences(t, fixtures[1], MAX_SEQUENCES, 0);
}

/* A token that ends a sequence does, and the others go on. */
static void end_tokens(test_run *t)
{
    loaded l;
    request requests[3];
    session_desc d = setting(2, 2, 0, 3);
    outcome o;
    const qwen3_case *e;
    if (load(&l, fixtures[0])) CHECK_TEXT(l.error, "no error");
    e = l.expected.cases;
    memset(requests, 0, sizeof requests);
    for (uint32_t i = 0; i < 3; i++)
        requests[i].prompt = e[i].prompt, requests[i].n_prompt = e[i].prompt_count;
    l.m.config.eos_count = 2, l.m.config.eos[0] = e[0].greedy[3],
    l.m.config.eos[1] = e[1].greedy[7];
    d.steps = 16, d.context = 40;
    o = run(&l.m, d, requests, 3);
    CHECK_TEXT(o.error, "");
    CHECK_INT(o.counts[0], 4);
    CHECK_INT(o.counts[1], 8);
    CHECK_INT(o.counts[2], 16);
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t k = 0; k < o.counts[i]; k++)
            CHECK_INT(o.generated[i * 16 + k], e[i].greedy[k]);
    outcome_free(&o);
    unload(&l);
}

/* When all sequences have ended so has the launch; what is said of its steps is said of those that it took. */
static void launch_ends(test_run *t)
{
    enum { STEPS = 60, N = 3 };
    loaded l;
    request requests[N];
    const qwen3_case *e;
    if (load(&l, fixtures[0])) CHECK_TEXT(l.error, "no error");
    e = l.expected.cases;
    memset(requests, 0, sizeof requests);
    for (uint32_t i = 0; i < N; i++)
        requests[i].prompt = e[i].prompt, requests[i].n_prompt = e[i].prompt_count;
    l.m.config.eos_count = N;
    for (uint32_t i = 0; i < N; i++) l.m.config.eos[i] = e[i].greedy[3 + 2 * i];
    for (uint32_t i = 0; i < 2 * SCHEDULES && !t->failed_here; i++) {
        session_desc d = setting(i / 2, 2, i % 2, 1 + i);
        session s;
        int32_t generated[N * STEPS];
        uint32_t counts[N], steps = 0, tokens = 0, done = 1, running;
        uint64_t cached = 0;
        d.steps = STEPS, d.context = 100;
        if (session_open(&s, &l.m, &d, requests, N) || session_run(&s)) {
            test_fail(t, __FILE__, __LINE__, "setting %u: %s", i, s.error);
            session_free(&s);
            break;
        }
        session_generated(&s, generated, counts);
        for (uint32_t k = 0; k < N; k++) {
            CHECK_INT(counts[k], 4 + 2 * k);
            CHECK(!memcmp(generated + k * STEPS, e[k].greedy, counts[k] * sizeof(int32_t)));
        }
        /* All prompts fit into the first step: then one token a step for each that is left. */
        for (running = N; running; steps++) {
            running = 0;
            for (uint32_t k = 0; k < N; k++) {
                if (steps >= counts[k]) continue;
                if (steps) tokens++, cached += e[k].prompt_count + steps;
                running++;
            }
            if (!running) break;
        }
        CHECK_INT(s.summary.steps, steps);
        CHECK_INT(s.last->steps, steps);
        CHECK_INT(s.summary.first_token, 1);
        CHECK_INT(s.summary.decoding, 1);
        CHECK_INT(s.summary.tokens, tokens);
        CHECK_INT(s.summary.cached, cached);
        /* It took no further step. */
        CHECK_INT(s.steps, STEPS);
        CHECK_INT(fleet_event_test(&s.state, fleet_plan_event(s.plan, "next"), 0, steps + 1, &done),
                  FLEET_OK);
        CHECK_INT(done, 0);
        CHECK_INT(fleet_state_epoch(&s.state), steps); /* and the state may be used again */
        session_free(&s);
        /* One of as many steps ends as any other. */
        d.launch = steps;
        if (session_open(&s, &l.m, &d, requests, N) || session_run(&s))
            test_fail(t, __FILE__, __LINE__, "setting %u: %s", i, s.error);
        CHECK_INT(fleet_state_epoch(&s.state), steps);
        session_free(&s);
    }
    unload(&l);
}

/* A logit that is infinite or not a number, be it only one of many and never the largest, is an error that names it, and
   no expert is chosen that does not exist. */
static void unusable_logits(test_run *t)
{
    static const struct {
        uint16_t head,
            norm; /* of one token, and of the layer's first norm: bf16 in place of all; 0: as they are */
        const char *error;
    } table[] = {{0x7f7f, 0, "the logit of token 20 is"},
                 {0xff7f, 0, "the logit of token 20 is"},
                 {0, 0x7f7f, "the logit of token 0 is"}};
    for (uint32_t i = 0; i < 3 * 2 * 2 && !t->failed_here; i++) {
        const uint64_t seed = 1 + i % 2; /* with experts, and without */
        const uint32_t which = i / 2 % 3, token = 20;
        plain p;
        model m;
        request r;
        uint32_t prompt[] = {1, 2, 3};
        session_desc d = setting(i % SCHEDULES, 1 + i % 3, i / 6, 1 + i);
        outcome o;
        plain_make(&p, seed);
        for (uint32_t k = 0; k < p.c.config.hidden; k++) {
            uint16_t *head = (uint16_t *)(uintptr_t)p.c.head.data + token * p.c.config.hidden + k;
            uint16_t *norm = (uint16_t *)(uintptr_t)p.c.layers[0].post_norm.data + k;
            if (table[which].head) *head = table[which].head;
            if (table[which].norm) *norm = table[which].norm;
        }
        memset(&r, 0, sizeof r);
        r.prompt = prompt, r.n_prompt = 3;
        d.steps = 4, d.context = 16;
        if (model_load(&m, &p.c.config, &p.c, d.schedule, 1, NULL))
            test_fail(t, __FILE__, __LINE__, "%s", m.error);
        o = run(&m, d, &r, 1);
        if (!strstr(o.error, "sequence 0, after 3 tokens: ") ||
            !strstr(o.error, table[which].error))
            test_fail(t, __FILE__, __LINE__, "run %u: \"%s\"", i, o.error);
        outcome_free(&o);
        model_free(&m);
        plain_free(&p);
    }
}

/* What is counted beforehand is what is taken; and what a refusal names does fit. */
static void memory_is_known(test_run *t)
{
    for (uint32_t i = 0; i < 2; i++) {
        loaded l;
        session s;
        session_desc d = setting(0, 3, 0, 1);
        request r[7];
        bytes_needed bytes, other;
        uint32_t prompt = 1, context = 0, batch = 0;
        uint64_t all;
        char error[ERROR_BYTES] = "", wanted[64];
        const qwen3_config *c = &l.m.config;
        const qwen3_checkpoint *from = i ? NULL : &l.checkpoint;
        if (load(&l, fixtures[i])) CHECK_TEXT(l.error, "no error");
        if (i) { /* random weights */
            model_free(&l.m);
            CHECK_INT(model_load(&l.m, &l.checkpoint.config, NULL, FLEET_SCHEDULE_STATIC, 7, NULL),
                      0);
        }
        memset(r, 0, sizeof r);
        for (uint32_t k = 0; k < 7; k++) r[k].prompt = &prompt, r[k].n_prompt = 1;
        d.steps = 3, d.context = 400;
        CHECK_INT(count_bytes(c, from, &d, 7, &bytes, error), 0);
        CHECK_INT(session_open(&s, &l.m, &d, r, 7), 0);
        CHECK_INT(bytes.weights, l.m.memory.bytes);
        CHECK_INT(bytes.session, s.memory.bytes);
        session_free(&s);
        all = bytes.weights + bytes.session;
        CHECK_INT(memory_refused(c, from, &d, 7, 3, all + all / 32, error), 0);
        CHECK_INT(memory_refused(c, from, &d, 7, 3, all - 1, error), RUN_REFUSED);
        CHECK_TEXT(error, "GB of memory are needed (weights ");
        CHECK(strstr(error, "--context "));
        context = (uint32_t)strtoul(strstr(error, "--context ") + 10, NULL, 10);
        CHECK(strstr(error, "--batch "));
        batch = (uint32_t)strtoul(strstr(error, "--batch ") + 8, NULL, 10);
        CHECK(context >= 3 && context < 400 && batch >= 1 && batch < 7);
        for (uint32_t k = 0; k < 4; k++) { /* the one named, and one more */
            session_desc to = d;
            if (k < 2) to.context = context + k;
            CHECK_INT(count_bytes(c, from, &to, k < 2 ? 7 : batch + k % 2, &other, error), 0);
            CHECK_INT(other.weights + other.session <= all - 1 - (all - 1) / 64, k % 2 == 0);
        }
        /* Where even the shortest is too long, or a single one too many, it is not named. */
        d.context = 3;
        CHECK_INT(count_bytes(c, from, &d, 7, &bytes, error), 0);
        CHECK_INT(count_bytes(c, from, &d, 1, &other, error), 0);
        all = bytes.weights + bytes.session - 1;
        while (all - all / 64 < bytes.weights + bytes.session - 1) all++;
        CHECK_INT(memory_refused(c, from, &d, 7, 3, all, error), RUN_REFUSED);
        CHECK(!strstr(error, "--context") && strstr(error, "--batch "));
        CHECK_INT(memory_refused(c, from, &d, 7, 3, other.weights, error), RUN_REFUSED);
        CHECK_TEXT(error, "no --context or --batch would fit");
        snprintf(wanted, sizeof wanted, "(weights %.3f, 7 sequences of up to 3 tokens",
                 (double)other.weights / 1e9);
        CHECK_TEXT(error, wanted);
        unload(&l);
    }
}

/* What cannot be run is refused by name. */
static void refused(test_run *t)
{
    loaded l;
    session s;
    request r[MAX_SEQUENCES + 1];
    uint32_t prompt[] = {1, 2, 512};
    session_desc d = setting(0, 1, 0, 1);
    if (load(&l, fixtures[0])) CHECK_TEXT(l.error, "no error");
    memset(r, 0, sizeof r);
    for (uint32_t i = 0; i <= MAX_SEQUENCES; i++) r[i].prompt = prompt, r[i].n_prompt = 2;
    d.steps = 4, d.context = 5;
#define REFUSED(n, part)                                                                           \
    do {                                                                                           \
        CHECK(session_open(&s, &l.m, &d, r, n) == RUN_REFUSED);                                    \
        CHECK_TEXT(s.error, part);                                                                 \
        session_free(&s);                                                                          \
    } while (0)
    REFUSED(0, "0 sequences");
    REFUSED(MAX_SEQUENCES + 1, "257 sequences");
    d.context = 4;
    REFUSED(1, "--context");
    d.context = 513;
    REFUSED(1, "a context of 513 tokens is longer than max_position_embeddings, 512");
    d.context = 5;
    r[0].n_prompt = 0;
    REFUSED(1, "a prompt of 0 tokens");
    r[0].n_prompt = 3, d.context = 6;
    REFUSED(1, "token 512 is not one of the vocabulary's 512");
    r[0].n_prompt = 2, d.steps = 0;
    REFUSED(1, "must be at least 1");
    d.steps = 4, d.chiplets = 33;
    REFUSED(1, "--chiplets 33");
    unload(&l);
}

static void list(test_run *t)
{
    TEST(dense_reference);
    TEST(moe_reference);
    TEST(same_bits);
    TEST(prefixes_are_shared);
    TEST(turns_go_on);
    TEST(threads_share_a_batch);
    TEST(splits_suit_positions);
    TEST(rows_mix);
    TEST(against_plain);
    TEST(many_sequences);
    TEST(sequences_take_turns);
    TEST(end_tokens);
    TEST(launch_ends);
    TEST(unusable_logits);
    TEST(memory_is_known);
    TEST(refused);
}

TEST_MAIN(list)
