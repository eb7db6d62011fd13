/* tasks/kv_splits.h: how attention is cut up. */
#ifndef QWEN3_TASKS_KV_SPLITS_H
#define QWEN3_TASKS_KV_SPLITS_H

#include "backend.h"

#define NO_TASK UINT32_MAX

/* A part of a sequence's attention, for one head of keys and values: its units from `first` to `end`. */
typedef struct attention_part {
    uint32_t sequence, head;
    uint32_t part, parts; /* of the sequence */
    uint32_t first, end;
    uint32_t position, row, rows; /* of the sequence: tokens before this step, its rows in it */
} attention_part;

FLEET_DEVICE attention_part attention_part_of(const batch *b, uint32_t kv_heads, uint32_t i)
{
    const sequence_state *s;
    attention_part p;
    const uint32_t n = b->part_sequence[i / kv_heads];
    uint32_t units;
    s = &b->sequence[n];
    p.sequence = n, p.head = i % kv_heads;
    p.part = i / kv_heads - b->first_part[n];
    p.parts = b->first_part[n + 1] - b->first_part[n];
    p.position = (uint32_t)s->position, p.row = (uint32_t)s->first, p.rows = (uint32_t)s->rows;
    units = ceil_div(p.position + p.rows, KEYS);
    p.first = s->part_units * p.part;
    p.end = p.first + s->part_units < units ? p.first + s->part_units : units;
    return p;
}
/* A head's keys and values, in those of a layer. */
FLEET_DEVICE kept *cache_of(kept *layer, const decoder *d, const attention_part *p)
{
    return layer + ((size_t)p->sequence * d->kv_heads + p->head) * cache_size(d);
}

#endif /* QWEN3_TASKS_KV_SPLITS_H */
