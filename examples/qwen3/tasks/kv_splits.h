/* tasks/kv_splits.h: how attention is divided among workers. The keys of a sequence are cut into KV splits of some KV
   blocks (batch.h chooses how many); a work item is one split and one KV head, and of a prompt a part of the step's rows. */
#ifndef QWEN3_TASKS_KV_SPLITS_H
#define QWEN3_TASKS_KV_SPLITS_H

#include "../kv_pages.h"

#define NO_TASK UINT32_MAX

/* One KV split of a sequence, for one KV head: the KV blocks from `first` to `end`. */
typedef struct kv_split {
    uint32_t table_row, head; /* table_row: of the sequence, in the page table */
    uint32_t split, splits;   /* number of this split, and splits of the sequence */
    uint32_t first, end;
    /* of the sequence: tokens before this step, its first row, its rows up to the item's last one, and those before the
       item's first one */
    uint32_t position, row, rows, before;
    uint32_t is_fixed; /* has_fixed_splits */
} kv_split;

FLEET_DEVICE kv_split kv_split_of(const batch *b, uint32_t kv_heads, uint32_t i)
{
    const sequence_state *s;
    kv_split p;
    const uint32_t n = b->split_sequence[i / kv_heads];
    uint32_t blocks, rows;
    s = &b->sequence[n];
    rows = (uint32_t)s->rows;
    p.table_row = s->table_row, p.head = i % kv_heads;
    p.split = i / kv_heads - b->first_split[n], p.splits = s->splits;
    for (p.before = 0; p.split >= p.splits; p.split -= p.splits) p.before += b->part_rows;
    p.position = (uint32_t)s->position, p.row = (uint32_t)s->first;
    p.rows = b->part_rows && rows - p.before > b->part_rows ? p.before + b->part_rows : rows;
    p.is_fixed = has_fixed_splits(b, s);
    blocks = ceil_div(p.position + p.rows, KV_BLOCK);
    p.first = s->split_blocks * p.split;
    p.end = p.first + s->split_blocks < blocks ? p.first + s->split_blocks : blocks;
    if (p.end < p.first) p.end = p.first; /* no row of the part sees these keys */
    return p;
}

#endif /* QWEN3_TASKS_KV_SPLITS_H */
