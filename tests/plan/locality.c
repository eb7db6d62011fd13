/* The simulated caches of tests/bench, and what the plans of a decoder layer must show on them of the paper's tables.
   tests/bench/locality.h has the model; its benchmark prints the tables. */
// run: plain
#include "../bench/locality.h"

/* ---- the caches ---- */

#define KB 1024u

/* A cache of one set: LRU order is all there is. */
static void lru_order(test_run *t)
{
    cache c;
    uint32_t i, left;
    CHECK(cache_make(&c, CACHE_WAYS * CACHE_LINE_BYTES));
    CHECK_INT(c.set_bits, 0);
    for (i = 1; i <= CACHE_WAYS; i++) CHECK_INT(cache_access(&c, i, 0, &left), 0);
    CHECK_INT(left, 0);
    CHECK_INT(cache_access(&c, 1, 0, &left), 1); /* now 2 is the oldest */
    CHECK_INT(cache_access(&c, 100, 0, &left), 0);
    CHECK_INT(left >> CACHE_LINE_SHIFT, 2);
    CHECK_INT(cache_access(&c, 1, 0, &left), 1);
    CHECK_INT(cache_access(&c, 2, 0, &left), 0);
    CHECK_INT(left >> CACHE_LINE_SHIFT, 3);
    free(c.way);
}

/* Lines of one set evict each other while the rest is empty; with the hash they would spread. */
static void conflicts(test_run *t)
{
    const uint32_t sets = 64;
    int plain;
    for (plain = 0; plain < 2; plain++) {
        cache c;
        uint32_t i, round, left, hits = 0;
        CHECK(cache_make(&c, sets * CACHE_WAYS * CACHE_LINE_BYTES));
        CHECK_INT(c.set_bits, 6);
        c.plain_index = (uint32_t)plain;
        for (round = 0; round < 2; round++)
            for (i = 1; i <= CACHE_WAYS + 1; i++)
                hits += (uint32_t)cache_access(&c, i * sets, 0, &left);
        CHECK_INT(hits, plain ? 0 : CACHE_WAYS + 1);
        free(c.way);
    }
}

/* Consecutive lines fill the sets evenly, and all that fit stay. */
static void capacity(test_run *t)
{
    cache c;
    uint32_t i, left, hits = 0, lines = 256 * KB / CACHE_LINE_BYTES;
    CHECK(cache_make(&c, 256 * KB));
    for (i = 0; i < 2 * lines; i++) hits += (uint32_t)cache_access(&c, 4096 + i % lines, 0, &left);
    CHECK_INT(hits, lines);
    free(c.way);
}

static void streamed_lines_leave_first(test_run *t)
{
    cache c;
    uint32_t i, left;
    CHECK(cache_make(&c, CACHE_WAYS * CACHE_LINE_BYTES));
    for (i = 1; i <= CACHE_WAYS; i++)
        cache_access(&c, i, i == 7 || i == 9 || i == 11 ? CACHE_STREAMED : 0, &left);
    CHECK_INT(cache_access(&c, 9, 0, &left), 1); /* an ordinary load makes it ordinary */
    CHECK_INT(cache_access(&c, 7, CACHE_STREAMED, &left), 1); /* another streaming one does not */
    cache_access(&c, 100, CACHE_STREAMED, &left);
    CHECK_INT(left >> CACHE_LINE_SHIFT, 11);
    cache_access(&c, 101, 0, &left);
    CHECK_INT(left >> CACHE_LINE_SHIFT, 7);
    cache_access(&c, 102, 0, &left);
    CHECK_INT(left >> CACHE_LINE_SHIFT, 100);
    cache_access(&c, 103, 0, &left); /* none is left: the oldest */
    CHECK_INT(left >> CACHE_LINE_SHIFT, 1);
    CHECK_INT(cache_access(&c, 9, 0, &left), 1);
    free(c.way);
}

static void write_backs(test_run *t)
{
    cache_sim s;
    CHECK(cache_sim_make(&s, 2, 256 * KB, 4096 * KB));
    CHECK_INT(cache_sim_access(&s, 0, 10, CACHE_DIRTY), 0); /* allocates a line, reads nothing */
    CHECK_INT(cache_sim_access(&s, 0, 10, CACHE_DIRTY), 1);
    cache_sim_access(&s, 0, 11, CACHE_DIRTY);
    cache_sim_access(&s, 1, 12, CACHE_DIRTY);
    CHECK_INT(s.counts.fabric_reads, 0);
    CHECK_INT(s.l2[0].dirty, 2);
    cache_sim_acquire(&s, 0); /* drops no line that is not written back */
    CHECK_INT(s.l2[0].dirty, 2);
    cache_sim_release(&s, 0);
    CHECK_INT(s.counts.fabric_writes, 2); /* its own two, each once */
    cache_sim_release(&s, 0);
    CHECK_INT(s.counts.fabric_writes, 2);
    CHECK_INT(cache_sim_access(&s, 0, 10, 0), 1); /* it stays */
    cache_sim_acquire(&s, 0);
    CHECK_INT(cache_sim_access(&s, 0, 10, 0), 0); /* clean: forgotten */
    CHECK_INT(s.counts.fabric_reads, 1);
    CHECK_INT(s.counts.memory_reads, 0); /* the last-level cache has it */
    CHECK_INT(s.counts.memory_writes, 0);
    cache_sim_arrive(&s);
    CHECK_INT(s.counts.fabric_writes, 3);
    CHECK_INT(s.counts.requests, 6);
    CHECK_INT(s.counts.hits, 2);
    cache_sim_free(&s);
}

/* A dirty line is written back when it is evicted; from the last-level cache it goes to memory. */
static void evicted_dirty_lines(test_run *t)
{
    const uint32_t set = CACHE_WAYS * CACHE_LINE_BYTES;
    cache_sim s;
    uint32_t i;
    CHECK(cache_sim_make(&s, 1, set, 2 * set));
    s.llc.plain_index = 1;
    for (i = 0; i < CACHE_WAYS; i++) cache_sim_access(&s, 0, 2 + 2 * i, CACHE_DIRTY);
    CHECK_INT(s.counts.fabric_writes, 0);
    for (i = 0; i < CACHE_WAYS; i++) cache_sim_access(&s, 0, 1000 + 2 * i, CACHE_DIRTY);
    CHECK_INT(s.counts.fabric_writes, CACHE_WAYS);
    CHECK_INT(s.counts.memory_writes, 0);
    cache_sim_release(&s, 0); /* sixteen more lines of the same set of the last-level cache */
    CHECK_INT(s.counts.fabric_writes, 2 * CACHE_WAYS);
    CHECK_INT(s.counts.memory_writes, CACHE_WAYS);
    CHECK_INT(s.counts.memory_reads, 0);
    cache_sim_free(&s);
}

/* A line evicted from the last-level cache stays in an L2, and the other way round. */
static void neither_inclusive_nor_exclusive(test_run *t)
{
    const uint32_t set = CACHE_WAYS * CACHE_LINE_BYTES;
    cache_sim s;
    uint32_t i;
    CHECK(cache_sim_make(&s, 2, 4 * set, set));
    cache_sim_access(&s, 0, 1, 0);
    CHECK_INT(s.counts.memory_reads, 1);
    cache_sim_access(&s, 1, 1, 0); /* another chiplet: not in its L2, but in the last-level cache */
    CHECK_INT(s.counts.fabric_reads, 2);
    CHECK_INT(s.counts.memory_reads, 1);
    for (i = 0; i < CACHE_WAYS; i++) cache_sim_access(&s, 1, 100 + i, 0);
    CHECK_INT(cache_sim_access(&s, 0, 1, 0), 1);
    cache_sim_acquire(&s, 0);
    CHECK_INT(cache_sim_access(&s, 0, 1, 0), 0);
    CHECK_INT(s.counts.memory_reads, 2 + CACHE_WAYS);
    cache_sim_free(&s);
}

/* ---- the layer ---- */

/* The simulated runs, each made once: by batch (1, 8, 16, 32, 64) and kind. */
static locality walks[PAPER_ROWS][3];
static int walked[PAPER_ROWS][3];

static locality run(test_run *t, layer_kind kind, uint32_t batch, const locality_model *model)
{
    layer l;
    locality r;
    memset(&r, 0, sizeof r);
    if (!layer_make(&l, kind, batch)) {
        test_fail(t, __FILE__, __LINE__, "%s", l.why);
        return r;
    }
    r = locality_run(&l, model);
    fleet_plan_free(l.plan);
    return r;
}

static const locality *walk_of(test_run *t, layer_kind kind, size_t row)
{
    const locality_model model = locality_model_default();
    if (!walked[row][kind]) walks[row][kind] = run(t, kind, paper_table4[row].batch, &model);
    walked[row][kind] = 1;
    return &walks[row][kind];
}

/* Table 5: 6, 4, 24 and 12 MB of weights in each chiplet, exactly; a layer has 46. */
static void weights_of_a_chiplet(test_run *t)
{
    static const uint64_t mb[OPS] = {6, 4, 24, 0, 12};
    uint64_t sum = 0;
    uint32_t op;
    layer l;
    CHECK(layer_make(&l, LAYER_M_TILE, 64));
    CHECK_INT(l.plan->chiplets, 8);
    CHECK_INT(l.plan->total_workers, 248);
    for (op = 0; op < OPS; op++) {
        const uint64_t bytes = op == OP_SILU ? 0 : weight_bytes_of_chiplet(&l.linear[op], 8);
        CHECK_INT(bytes, mb[op] << 20);
        sum += bytes;
    }
    CHECK_INT(sum, 46 << 20);
    fleet_plan_free(l.plan);
}

/* Every plan reads each weight once for each row of tiles, on whichever chiplet. */
static void the_same_requests(test_run *t)
{
    size_t row;
    int kind;
    uint32_t op;
    for (row = 0; row < PAPER_ROWS; row++) {
        const uint32_t m_tiles = (paper_table4[row].batch - 1) / LOCALITY_TILE_M + 1;
        for (kind = 0; kind < 3; kind++) {
            const locality *r = walk_of(t, (layer_kind)kind, row);
            uint64_t lines = 0;
            for (op = 0; op < OPS; op++) lines += r->op[op].weight_requests;
            CHECK_INT(lines, m_tiles * ((uint64_t)368 << 20) / CACHE_LINE_BYTES);
            CHECK(r->total.hits + r->total.fabric_reads < r->total.requests);
            CHECK(r->total.memory_reads <= r->total.fabric_reads);
        }
    }
}

/* One row of tiles: M-tile and M-split are the same schedule, and no weight is shared. */
static void equal_up_to_sixteen_rows(test_run *t)
{
    size_t row;
    uint32_t op;
    for (row = 0; paper_table4[row].batch <= LOCALITY_TILE_M; row++) {
        const paper_row *p = &paper_table4[row];
        const locality *tile = walk_of(t, LAYER_M_TILE, row);
        const locality *split = walk_of(t, LAYER_M_SPLIT, row);
        const locality *unaware = walk_of(t, LAYER_UNAWARE, row);
        CHECK_INT(memcmp(tile, split, sizeof *tile), 0);
        for (op = 0; op < OPS; op++) CHECK_INT(tile->op[op].weight_hits, 0);
        CHECK(hit_rate(tile) >= hit_rate(unaware));
        CHECK(hit_rate(tile) > p->m_tile_hit - 6 && hit_rate(tile) < p->m_tile_hit + 6);
        CHECK(hit_rate(unaware) > p->unaware_hit - 6 && hit_rate(unaware) < p->unaware_hit + 6);
    }
}

/* Table 4 for tiles that share weights. locality.h tells of M-split's hit rate. */
static void cooperation_above_sixteen_rows(test_run *t)
{
    size_t row;
    for (row = 0; row < PAPER_ROWS; row++) {
        const paper_row *p = &paper_table4[row];
        const locality *tile, *split, *unaware;
        double reads, split_reads;
        if (p->batch <= LOCALITY_TILE_M) continue;
        tile = walk_of(t, LAYER_M_TILE, row);
        split = walk_of(t, LAYER_M_SPLIT, row);
        unaware = walk_of(t, LAYER_UNAWARE, row);
        reads = ratio(tile->total.fabric_reads, unaware->total.fabric_reads);
        split_reads = ratio(split->total.fabric_reads, unaware->total.fabric_reads);
        CHECK(hit_rate(tile) > p->m_tile_hit - 6 && hit_rate(tile) < p->m_tile_hit + 6);
        CHECK(hit_rate(unaware) > p->unaware_hit - 6 && hit_rate(unaware) < p->unaware_hit + 6);
        CHECK(hit_rate(tile) > hit_rate(unaware));
        CHECK(hit_rate(tile) > hit_rate(split));
        CHECK(reads < 1 && split_reads > 1);
        CHECK(reads > p->m_tile_reads - 0.1 && reads < p->m_tile_reads + 0.1);
        CHECK(split_reads > p->m_split_reads - 0.2 && split_reads < p->m_split_reads + 0.2);
        CHECK(tile->total.fabric_writes < unaware->total.fabric_writes);
    }
}

/* In lock-step the weights' hit rate is 1 - 1 / min(W, m_tiles), except where a column's tiles fall into two rounds
   of the 31 workers; with drift it is lower. */
static void the_equation(test_run *t)
{
    locality_model lock_step = locality_model_default();
    size_t row;
    uint32_t op;
    lock_step.drift = 0;
    for (row = 0; row < PAPER_ROWS; row++) {
        const uint32_t batch = paper_table4[row].batch;
        const uint32_t m_tiles = (batch - 1) / LOCALITY_TILE_M + 1;
        const double most = 100 - 100.0 / m_tiles;
        const locality *drifting = walk_of(t, LAYER_M_TILE, row);
        locality even;
        if (m_tiles == 1) continue;
        even = run(t, LAYER_M_TILE, batch, &lock_step);
        for (op = 0; op < OPS; op++) {
            const op_counts *c = &even.op[op], *d = &drifting->op[op];
            if (op == OP_SILU) continue;
            CHECK(percent(c->weight_hits, c->weight_requests) <= most + 1e-9);
            CHECK(percent(c->weight_hits, c->weight_requests) > most - 3);
            CHECK(d->weight_hits < c->weight_hits);
        }
    }
}

/* The same seed gives the same numbers, another one nearly the same. */
static void seeds(test_run *t)
{
    const size_t row = 3;
    const locality *first = walk_of(t, LAYER_M_TILE, row);
    locality_model model = locality_model_default();
    locality again = run(t, LAYER_M_TILE, paper_table4[row].batch, &model), other;
    CHECK_INT(memcmp(first, &again, sizeof again), 0);
    model.seed++;
    other = run(t, LAYER_M_TILE, paper_table4[row].batch, &model);
    CHECK(memcmp(first, &other, sizeof other) != 0);
    CHECK(hit_rate(&other) > hit_rate(first) - 3 && hit_rate(&other) < hit_rate(first) + 3);
}

static void all(test_run *t)
{
    TEST(lru_order);
    TEST(conflicts);
    TEST(capacity);
    TEST(streamed_lines_leave_first);
    TEST(write_backs);
    TEST(evicted_dirty_lines);
    TEST(neither_inclusive_nor_exclusive);
    TEST(weights_of_a_chiplet);
    TEST(the_same_requests);
    TEST(equal_up_to_sixteen_rows);
    TEST(cooperation_above_sixteen_rows);
    TEST(the_equation);
    TEST(seeds);
}
TEST_MAIN(all)
