/* amd/serve_wide.h: the head of servers with long chunks (tasks/serve_wide.h), and of launches that
   decode more sequences than MAX_ROWS (tasks/wide.h). Their attention is that of prompts. */
#ifndef QWEN3_AMD_SERVE_WIDE_H
#define QWEN3_AMD_SERVE_WIDE_H

#include "prefill.h"

/* Servers of models with experts have no long chunks here. */
FLEET_DEVICE void served_expert_widths(const decoder *d, prefill_step *step, uint32_t rows)
{
    FLEET_UNUSED(d), FLEET_UNUSED(step), FLEET_UNUSED(rows);
}

#include "../tasks/serve_wide.h"
#include "../tasks/wide.h"

FLEET_HOST_DEVICE prefill_division head_division(uint32_t k)
{
    return prefill_parts(k, 1, PREFILL_COLUMNS);
}
FLEET_HOST_DEVICE uint32_t served_row_blocks(const decoder *d, uint32_t decode_rows)
{
    FLEET_UNUSED(d), FLEET_UNUSED(decode_rows);
    return 0;
}

FLEET_TILE(head_wide, task_args)
{
    const prefill_step *step = args->d.prefill;
    const uint32_t begin = wave_uniform(step->head_row),
                   end = args->d.table ? begin + wave_uniform(step->choosing)
                                       : wave_uniform(step->rows);
    const prefill_items t = prefill_items_of(args, &step->division[PREFILL_HEAD], begin, end);
    FLEET_UNUSED(at);
    if (end - begin <= BLOCK_ROWS)
        prefill_product(&ctx, args, 0, &t, end, 1, 4, KEEPS_LOGITS);
    else
        prefill_product(&ctx, args, 0, &t, end, 2, 4, KEEPS_LOGITS);
    return FLEET_OK;
}

#endif /* QWEN3_AMD_SERVE_WIDE_H */
