/* nvidia/serve_wide.h: attention and the head of servers with long chunks (tasks/serve_wide.h). */
#ifndef QWEN3_NVIDIA_SERVE_WIDE_H
#define QWEN3_NVIDIA_SERVE_WIDE_H

#include "wide.h"

#include "../tasks/serve_wide.h"

/* The head's tiles have the most columns, since it has many; and no parts. */
#define HEAD_COLUMNS 192u
FLEET_HOST_DEVICE prefill_division head_division(uint32_t k)
{
    return prefill_parts(k, 1, HEAD_COLUMNS);
}
/* In a server that decodes more rows than so many, a warp attends for each of them and KV head; for
   fewer rows all warps of a worker together are faster. The choice depends on the server and not on
   the rows of a step, and so do a row's bits. */
#define LEAST_ROW_BLOCKS 16u
FLEET_HOST_DEVICE uint32_t served_row_blocks(const decoder *d, uint32_t decode_rows)
{
    return decode_rows > LEAST_ROW_BLOCKS && d->group <= FRAGMENT_ROWS;
}

#if HAS_PREFILL

FLEET_TILE(attend_served, task_args)
{
    const prefill_step *step = args->d.prefill;
    const uint32_t row_blocks = step->row_blocks, blocks = step->blocks;
    FLEET_UNUSED(at);
    if (row_blocks) {
        attend_rows(&ctx, prefill_args(&ctx, args), row_blocks);
        fleet_barrier(&ctx); /* the barriers in LDS have ended, and may be made anew */
    }
    if (blocks > row_blocks) attend_blocks_of(&ctx, args, 1);
    return FLEET_OK;
}

FLEET_TILE(head_wide, task_args)
{
    const task_args *task = prefill_args(&ctx, args);
    const prefill_step *step = task->d.prefill;
    const uint32_t begin = step->head_row, end = begin + step->choosing;
    const prefill_items t = prefill_items_of(task, &step->division[PREFILL_HEAD], begin, end);
    FLEET_UNUSED(at);
    if (end - begin <= PREFILL_TILE_ROWS / 2)
        prefill_product(&ctx, task, &t, end, 1, HEAD_COLUMNS, SERVED_HEAD_PRODUCT);
    else
        prefill_product(&ctx, task, &t, end, 2, HEAD_COLUMNS, SERVED_HEAD_PRODUCT);
    return FLEET_OK;
}

#else
/* Never run (model.has_prefill). */
NO_PREFILL(attend_served)
NO_PREFILL(head_wide)
#endif

#endif /* QWEN3_NVIDIA_SERVE_WIDE_H */
