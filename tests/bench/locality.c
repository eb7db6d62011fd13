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
    d.levels = 1u << (l->kind == LAYER_UNAWARE ? FLEET_LEVEL_CU : FLEET_LEVEL_DEVICE);
    if (l->kind != LAYER_UNAWARE) d.splits = 1u << f->split;
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
    return 0;
}
