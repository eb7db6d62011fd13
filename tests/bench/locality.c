/* What cooperative tiling does to the caches, on paper: Table 4 and Table 5 of FLEET (arXiv 2604.15379) beside
   real plans on simulated caches. locality.h says what is modelled and where it differs, and why.

   cc -std=c11 -O2 -I. tests/bench/locality.c -o locality && ./locality */
/* test.h, by way of walk.h, has what only tests use. */
#pragma GCC diagnostic ignored "-Wunused-function"
#include "locality.h"

static locality run(layer_kind kind, uint32_t batch, const locality_model *model)
{
    layer l;
    locality r;
    if (!layer_make(&l, kind, batch)) {
        fprintf(stderr, "%s\n", l.why);
        exit(1);
    }
    r = locality_run(&l, model);
    fleet_plan_free(l.plan);
    return r;
}

static void hit_cell(double simulated, double paper)
{
    printf(" | %5.1f %5.1f %+6.1f", simulated, paper, simulated - paper);
}
static void ratio_cell(double simulated, double paper)
{
    printf(" | %4.2f %4.2f %+5.2f", simulated, paper, simulated - paper);
}

/* The hit rate that the paper's reads mean if a schedule makes as many requests as Mirage. */
static double at_equal_requests(double reads, double unaware_hit)
{
    return 100 - reads * (100 - unaware_hit);
}

static void table4(locality result[PAPER_ROWS][3])
{
    size_t i;
    printf(
        "Hit rate of the L2s in %%: simulated, paper, difference\n"
        "  B | Mirage-like          | M-tile               | M-split              | paper at equal "
        "requests: M-tile, M-split\n");
    for (i = 0; i < PAPER_ROWS; i++) {
        const paper_row *p = &paper_table4[i];
        printf("%3u", p->batch);
        hit_cell(hit_rate(&result[i][LAYER_UNAWARE]), p->unaware_hit);
        hit_cell(hit_rate(&result[i][LAYER_M_TILE]), p->m_tile_hit);
        hit_cell(hit_rate(&result[i][LAYER_M_SPLIT]), p->m_split_hit);
        printf(" | %5.1f %5.1f\n", at_equal_requests(p->m_tile_reads, p->unaware_hit),
               at_equal_requests(p->m_split_reads, p->unaware_hit));
    }
    printf(
        "\nReads and writes by the L2s, of the Mirage-like ones: simulated, paper, difference\n"
        "  B | reads M-tile    | reads M-split   | writes M-tile   | writes M-split  | behind the "
        "last-level cache: reads M-tile, M-split\n");
    for (i = 0; i < PAPER_ROWS; i++) {
        const paper_row *p = &paper_table4[i];
        const cache_counts *tile = &result[i][LAYER_M_TILE].total;
        const cache_counts *split = &result[i][LAYER_M_SPLIT].total;
        const cache_counts *unaware = &result[i][LAYER_UNAWARE].total;
        printf("%3u", p->batch);
        ratio_cell(ratio(tile->fabric_reads, unaware->fabric_reads), p->m_tile_reads);
        ratio_cell(ratio(split->fabric_reads, unaware->fabric_reads), p->m_split_reads);
        ratio_cell(ratio(tile->fabric_writes, unaware->fabric_writes), p->m_tile_writes);
        ratio_cell(ratio(split->fabric_writes, unaware->fabric_writes), p->m_split_writes);
        printf(" | %4.2f %4.2f\n", ratio(tile->memory_reads, unaware->memory_reads),
               ratio(split->memory_reads, unaware->memory_reads));
    }
}

/* Weights alone, operator by operator, against 1 - 1 / min(W, m_tiles). */
static void per_operator(locality result[PAPER_ROWS][3])
{
    locality_model lock_step = locality_model_default();
    size_t i;
    uint32_t op;
    lock_step.drift = 0;
    printf("\nHit rate of the weights alone in %%, M-tile: with the drift, in lock-step, by the "
           "equation 1 - 1 / min(W, m_tiles)\n  B");
    for (op = 0; op < OPS; op++)
        if (op != OP_SILU) printf(" | %-17s", layer_shapes[op].name);
    printf("\n");
    for (i = 0; i < PAPER_ROWS; i++) {
        const uint32_t batch = paper_table4[i].batch;
        const uint32_t m_tiles = (batch - 1) / LOCALITY_TILE_M + 1;
        const locality r = run(LAYER_M_TILE, batch, &lock_step);
        printf("%3u", batch);
        for (op = 0; op < OPS; op++) {
            const op_counts *drifting = &result[i][LAYER_M_TILE].op[op], *even = &r.op[op];
            if (op == OP_SILU) continue;
            printf(" | %5.1f %5.1f %5.1f",
                   percent(drifting->weight_hits, drifting->weight_requests),
                   percent(even->weight_hits, even->weight_requests), 100 - 100.0 / m_tiles);
        }
        printf("\n");
    }
    printf("\nHit rate of all requests in %%: Mirage-like, M-tile, M-split\n  B");
    for (op = 0; op < OPS; op++)
        if (op != OP_SILU) printf(" | %-17s", layer_shapes[op].name);
    printf("\n");
    for (i = 0; i < PAPER_ROWS; i++) {
        printf("%3u", paper_table4[i].batch);
        for (op = 0; op < OPS; op++) {
            const op_counts *u = &result[i][LAYER_UNAWARE].op[op];
            const op_counts *t = &result[i][LAYER_M_TILE].op[op];
            const op_counts *s = &result[i][LAYER_M_SPLIT].op[op];
            if (op == OP_SILU) continue;
            printf(" | %5.1f %5.1f %5.1f", percent(u->hits, u->requests),
                   percent(t->hits, t->requests), percent(s->hits, s->requests));
        }
        printf("\n");
    }
}

/* The planner's hit rate of the weights in %, where it may choose nothing. */
static double predicted(const layer *l, uint32_t op)
{
    const fleet_linear *f = &l->linear[op];
    fleet_linear_desc d = fleet_linear_desc_default();
    fleet_linear_plan plan;
    d.m = f->m, d.n = f->n, d.k = f->k;
    d.tile_m = f->tile_m, d.tile_n = f->tile_n, d.tile_k = f->tile_k;
    d.element_bytes = f->element_bytes;
    d.workers_per_chiplet = LOCALITY_WORKERS;
    d.levels = 1u << (layer_is_unaware(l->kind) ? FLEET_LEVEL_CU : FLEET_LEVEL_DEVICE);
    if (!layer_is_unaware(l->kind)) d.splits = 1u << f->split;
    d.traversals = 1u << f->traversal;
    if (fleet_linear_choose(&d, &l->plan->topology, &plan)) {
        fprintf(stderr, "%s\n", plan.why);
        exit(1);
    }
    return 100 * plan.hit_rate;
}

static void predictions(locality result[PAPER_ROWS][3])
{
    static const char *const names[] = {"M-tile", "M-split", "Mirage-like"};
    size_t i;
    uint32_t op;
    int kind;
    printf(
        "\nHit rate of the weights alone in %%: simulated, predicted by fleet_linear_choose\n  B | "
        "            ");
    for (op = 0; op < OPS; op++)
        if (op != OP_SILU) printf(" | %-11s", layer_shapes[op].name);
    printf("\n");
    for (i = 0; i < PAPER_ROWS; i++)
        for (kind = 0; kind < 3; kind++) {
            layer l;
            if (!layer_make(&l, (layer_kind)kind, paper_table4[i].batch)) exit(1);
            printf("%3u | %-12s", paper_table4[i].batch, names[kind]);
            for (op = 0; op < OPS; op++) {
                const op_counts *c = &result[i][kind].op[op];
                if (op == OP_SILU) continue;
                printf(" | %5.1f %5.1f", percent(c->weight_hits, c->weight_requests),
                       predicted(&l, op));
            }
            printf("\n");
            fleet_plan_free(l.plan);
        }
}

static void table5(void)
{
    static const uint32_t paper_mb[OPS] = {6, 4, 24, 0, 12};
    layer l;
    uint32_t op;
    uint64_t bytes, sum = 0;
    if (!layer_make(&l, LAYER_M_TILE, 1)) {
        fprintf(stderr, "%s\n", l.why);
        exit(1);
    }
    printf("\nWeights of one chiplet in MB (and the paper's):");
    for (op = 0; op < OPS; op++) {
        if (op == OP_SILU) continue;
        sum += bytes = weight_bytes_of_chiplet(&l.linear[op], l.plan->chiplets);
        printf(" %s %.0f (%u),", layer_shapes[op].name, (double)bytes / (1 << 20), paper_mb[op]);
    }
    printf(" layer %.0f (46)\n", (double)sum / (1 << 20));
    fleet_plan_free(l.plan);
}

static void variant(const char *name, layer_kind unaware, const locality_model *model)
{
    static const uint32_t batches[] = {1, 32, 64};
    size_t i;
    printf("%-52s", name);
    for (i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        const locality u = run(unaware, batches[i], model);
        const locality t = run(LAYER_M_TILE, batches[i], model);
        const locality s = run(LAYER_M_SPLIT, batches[i], model);
        printf(" | %4.1f %4.1f %4.1f", hit_rate(&u), hit_rate(&t), hit_rate(&s));
    }
    printf("\n");
    fflush(stdout);
}

/* What was tried besides: one thing changed at a time. */
static void variants(void)
{
    static const uint32_t drifts[] = {0, 4, 8, 12, 16, 20};
    locality_model model = locality_model_default();
    char name[64];
    size_t i;
    printf("\nOne thing changed: hit rates in %% of Mirage-like, M-tile, M-split\n%-52s | %-14s | "
           "%-14s | %-14s\n",
           "", "B = 1", "B = 32", "B = 64");
    for (i = 0; i < sizeof drifts / sizeof drifts[0]; i++) {
        model.drift = drifts[i];
        snprintf(name, sizeof name, "drift of %u steps", drifts[i]);
        variant(name, LAYER_UNAWARE, &model);
    }
    model = locality_model_default();
    model.seed = 2;
    variant("another seed", LAYER_UNAWARE, &model);
    model = locality_model_default();
    variant("Mirage-like: column after column", LAYER_UNAWARE_COLUMNS, &model);
    variant("Mirage-like: a task is a column and all its rows", LAYER_UNAWARE_WHOLE_COLUMNS,
            &model);
    variant("Mirage-like: M-tile's graph, unaware and no more", LAYER_UNAWARE_SLICES, &model);
    model.real_rows = 1;
    variant("only real rows are loaded", LAYER_UNAWARE, &model);
    model = locality_model_default();
    model.plain_index = 1;
    variant("sets of the L2 without a hash", LAYER_UNAWARE, &model);
    model = locality_model_default();
    model.weights_by_k = 1;
    variant("weights as [K, N]", LAYER_UNAWARE, &model);
    model = locality_model_default();
    model.acquires_forget = 1;
    variant("every task's acquire empties its L2", LAYER_UNAWARE, &model);
}

int main(void)
{
    static locality result[PAPER_ROWS][3];
    const locality_model model = locality_model_default();
    size_t i;
    int kind;
    for (i = 0; i < PAPER_ROWS; i++)
        for (kind = 0; kind < 3; kind++)
            result[i][kind] = run((layer_kind)kind, paper_table4[i].batch, &model);
    printf("Qwen3-8B, one layer, MI350X: 8 chiplets of %u workers; drift %u steps, seed %u\n\n",
           LOCALITY_WORKERS, LOCALITY_DRIFT, LOCALITY_SEED);
    table4(result);
    per_operator(result);
    predictions(result);
    table5();
    variants();
    return 0;
}
