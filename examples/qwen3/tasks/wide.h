/* tasks/wide.h: the end of a step of a kernel that decodes more sequences than MAX_ROWS, with the
   tasks of the kernel that takes prompts (prefill.h; ../prefill.h has the graph). A step has a row
   of each running sequence, up to PREFILL_TILE_ROWS. */
#ifndef QWEN3_TASKS_WIDE_H
#define QWEN3_TASKS_WIDE_H

#include "sample.h"

#if HAS_PREFILL

/* What becomes of a row's sequence after a step. */
enum { ROW_ENDS, ROW_GOES_ON, ROW_IS_BAD };

/* The token with the largest logit of a row, of what all workers that have tiles have found. */
typedef struct best_token {
    float logit;
    int32_t token;
} best_token;
FLEET_DEVICE best_token wide_best(const decoder *d, uint32_t workers, uint32_t row)
{
    best_token best = {-INFINITY, 0};
    ROLLED
    for (uint32_t first = 0; first < workers; first += BEST_LOADS) {
        float of[BEST_LOADS];
        int32_t its[BEST_LOADS];
        UNROLLED
        for (uint32_t k = 0; k < BEST_LOADS; k++) {
            const uint32_t at = (first + k < workers ? first + k : first) * PREFILL_TILE_ROWS + row;
            of[k] = d->best[at], its[k] = d->best_token[at];
        }
        UNROLLED
        for (uint32_t k = 0; k < BEST_LOADS; k++)
            if (is_better(of[k], its[k], best.logit, best.token))
                best.logit = of[k], best.token = its[k];
    }
    return best;
}

/* Chooses the token of each row's sequence. The next step has the rows of the sequences that go on,
   in the same order; a thread has a row. Ends the launch when there are none. One task. */
FLEET_TILE(wide_next, task_args)
{
    const decoder *d = &args->d;
    uint8_t *fate = (uint8_t *)(void *)ctx.lds; /* [PREFILL_TILE_ROWS] */
    prefill_step *step = d->prefill;
    const uint32_t r = ctx.thread, rows = step->rows, is_row = r < rows;
    const uint32_t tiles = ceil_div(args->shape.n, step->division[PREFILL_HEAD].width),
                   workers = d->chiplets * d->workers;
    token_row row = {0, 0, 0, 0};
    prefill_block block = {0, 0, 0, 0};
    best_token best = {-INFINITY, 0};
    uint32_t to = 0, left = 0, first_bad = rows;
    FLEET_UNUSED(at);
    if (!rows) return fleet_finish(&ctx);
    if (is_row) {
        const batch *b;
        sequence_state *s;
        best = wide_best(d, tiles < workers ? tiles : workers, r);
        row = d->prefill_rows[r], block = d->prefill_blocks[r];
        b = d->b + (uint32_t)row.sequence / MAX_ROWS;
        s = sequence_of(d->b, (uint32_t)row.sequence);
        s->position = ++row.position, block.position++;
        row.token = s->last = best.token;
        d->generated[(uint32_t)row.sequence * d->limit + (uint32_t)s->generated++] = best.token;
        if (row.position < s->known)
            row.token = d->tokens[(size_t)row.sequence * (d->context + 1) + (uint32_t)row.position];
        else
            for (uint32_t e = 0; e < b->n_eos; e++)
                if (best.token == b->eos[e]) s->limit = s->generated;
        fate[r] = best.logit == INFINITY    ? ROW_IS_BAD
                  : s->generated < s->limit ? ROW_GOES_ON
                                            : ROW_ENDS;
        if (fate[r] == ROW_GOES_ON)
            row.page = pages_of(d, block.table_row)[(uint32_t)row.position / PAGE_TOKENS];
    }
    fleet_barrier(&ctx); /* all rows were read, and their fates are in LDS */
    for (uint32_t i = rows; i-- > 0;) {
        const uint32_t goes_on = fate[i] == ROW_GOES_ON;
        left += goes_on, to += goes_on && i < r;
        if (fate[i] == ROW_IS_BAD) first_bad = i;
    }
    if (r == first_bad) {
        batch *b = d->b + (uint32_t)row.sequence / MAX_ROWS;
        b->bad_sequence = 1 + (uint32_t)row.sequence % MAX_ROWS, b->bad_token = best.token;
    }
    if (first_bad < rows) return FLEET_ERROR_ARGUMENT;
    if (is_row && fate[r] == ROW_GOES_ON) {
        block.row = to;
        d->prefill_rows[to] = row, d->prefill_blocks[to] = block;
    }
    if (r == 0) step->rows = step->blocks = left;
    return left ? FLEET_OK : fleet_finish(&ctx);
}

#else
/* Never run (model.has_prefill). */
NO_PREFILL(wide_next)
#endif

#endif /* QWEN3_TASKS_WIDE_H */
