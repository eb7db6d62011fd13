/* What the plan tests share: access to the sections of a plan, random numbers that replay from a seed, and a
   reference for edge maps, written from their description in fleet.h without its code. */
#ifndef FLEET_TEST_WALK_H
#define FLEET_TEST_WALK_H

#include "../implementation.h"
#include "fleet.h"
#include "../test.h"
#include <stdlib.h>

static inline const void *section(const fleet_plan *plan, uint64_t offset)
{
    return (const char *)plan + offset;
}
static inline const fleeti_queue *queues_of(const fleet_plan *plan)
{
    return (const fleeti_queue *)section(plan, plan->queues);
}
static inline const fleet_task *tasks_of(const fleet_plan *plan)
{
    return (const fleet_task *)section(plan, plan->tasks);
}
static inline const fleeti_wait *waits_of(const fleet_plan *plan)
{
    return (const fleeti_wait *)section(plan, plan->waits);
}
static inline const fleeti_notify *notifies_of(const fleet_plan *plan)
{
    return (const fleeti_notify *)section(plan, plan->notifies);
}
static inline const fleeti_event *events_of(const fleet_plan *plan)
{
    return (const fleeti_event *)section(plan, plan->events);
}
static inline const fleeti_grid *grids_of(const fleet_plan *plan)
{
    return (const fleeti_grid *)section(plan, plan->grids);
}
static inline const uint32_t *targets_of(const fleet_plan *plan)
{
    return (const uint32_t *)section(plan, plan->targets);
}

/* The key of a task by which fixed queues are ordered; 0 if the plan has no keys. */
static inline int64_t key_of(const fleet_plan *plan, const fleet_task *task)
{
    const fleet_key *keys = (const fleet_key *)section(plan, plan->keys);
    int64_t key = 0;
    int k;
    if (!plan->keyed) return 0;
    for (k = 0; k < FLEET_MAX_RANK; k++) key += keys[task->grid].weight[k] * task->at[k];
    return key + keys[task->grid].constant;
}

/* The chiplet to which a queue belongs. */
static inline uint32_t chiplet_of_queue(const fleet_plan *plan, uint32_t queue)
{
    uint32_t k = 0;
    if (plan->schedule == FLEET_SCHEDULE_CHIPLET) return queue;
    while (k + 1 < plan->chiplets && queue >= plan->worker_base[k + 1]) k++;
    return k;
}

/* splitmix64: a random test follows entirely from its seed. */
static inline uint32_t draw(uint64_t *seed, uint32_t below)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)((z ^ (z >> 31)) % below);
}

/* floor(a / b), b > 0, by search rather than by division of negative numbers. */
static inline int64_t ref_floor(int64_t a, int64_t b)
{
    int64_t q = 0;
    while (q * b > a) q--;
    while ((q + 1) * b <= a) q++;
    return q;
}

/* Limits are numbers here: a limit with a symbol has its value in .add. */
static inline int ref_has_limit(const fleet_axis_map *a)
{
    return a->clipped || a->limit.add || a->limit.symbol;
}

/* v with those bits flipped that the axis flips, one after another; v >= 0 where there are any. */
static inline int64_t ref_flipped(const fleet_axis_map *a, int64_t v, int shift)
{
    int bit;
    for (bit = 0; bit < 31 && shift >= 0; bit++)
        if (a->flip / ((int64_t)1 << bit) % 2) {
            const int64_t one = (int64_t)1 << (bit + shift);
            v += ref_floor(v, one) % 2 ? -one : one;
        }
    return v;
}

/* The units of an axis that a task has: [*first, returned end). */
static inline int64_t ref_axis_units(const fleet_axis_map *a, int rank, const int32_t *at,
                                     int64_t *first)
{
    int64_t end;
    int k;
    *first = a->offset;
    for (k = 0; k < rank; k++) *first += a->stride[k] * at[k];
    while (a->modulo.add && *first < 0) *first += a->modulo.add;
    while (a->modulo.add && *first >= a->modulo.add) *first -= a->modulo.add;
    *first = ref_flipped(a, *first, a->flip_axis ? at[a->flip_axis - 1] + a->flip_shift : 0);
    end = *first + a->width;
    if (ref_has_limit(a) && a->limit.add < end) end = a->limit.add;
    if (a->clipped && a->lower.add > *first) *first = a->lower.add;
    return end;
}

/* Whether an axis of a map takes a value for a task. Sets *outside if it takes one outside the axis. */
static inline int ref_axis_takes(const fleet_axis_map *a, int rank, const int32_t *at,
                                 int64_t value, int64_t extent, int *outside)
{
    int64_t v, end, low, high;
    if (a->every) return 1;
    end = ref_axis_units(a, rank, at, &v);
    if (end <= v) return 0;
    low = ref_floor(v, a->div);
    high = ref_floor(end - 1, a->div);
    if (low < 0 || high >= extent) *outside = 1;
    return value >= low && value <= high;
}

static inline int ref_axis_is_empty(const fleet_axis_map *a, int rank, const int32_t *at)
{
    int64_t v;
    return !a->every && ref_axis_units(a, rank, at, &v) <= v;
}

/* An einsum string as the map that it describes. */
static inline fleet_map ref_einsum(const char *einsum, int grid_rank, const int32_t *extent)
{
    fleet_map m = fleet_map0();
    const char *right = strstr(einsum, "->") + 2;
    for (; *right; right++) {
        int k = 0, by = 0;
        char op = 0;
        if (*right == '[') sscanf(++right, "%*c%c%d]", &op, &by);
        while (k < grid_rank && einsum[k] != *right) k++;
        if (op) {
            fleet_axis_map a = fleet_axis((uint32_t)k, 1, op == '^' ? 0 : op == '-' ? -by : by, 1);
            if (op == '^')
                a.flip = by;
            else
                a.modulo = fleet_dim_of(extent[m.rank]);
            m = fleet_map_append(m, a);
            right = strchr(right, ']');
            continue;
        }
        m = fleet_map_append(m,
                             k < grid_rank ? fleet_axis((uint32_t)k, 1, 0, 1) : fleet_axis_all());
    }
    return m;
}

/* The coordinate of a row-major index. */
static inline void ref_unravel(int64_t index, const int32_t *extent, int rank, int32_t *at)
{
    int k;
    for (k = rank - 1; k >= 0; k--) {
        at[k] = (int32_t)(index % extent[k]);
        index /= extent[k];
    }
}

static inline int64_t ref_points(const int32_t *extent, int rank)
{
    int64_t n = 1;
    int k;
    for (k = 0; k < rank; k++) n *= extent[k];
    return n;
}

/* Whether the task at `at` reaches element `index` of a tensor of that shape. */
static inline int ref_reaches(const fleet_map *map, int grid_rank, const int32_t *at,
                              const int32_t *extent, int64_t index, int *outside)
{
    int32_t e[FLEET_MAX_RANK];
    uint32_t j;
    int all = 1, ignored = 0, *note = outside;
    for (j = 0; j < map->rank; j++)
        if (ref_axis_is_empty(&map->axis[j], grid_rank, at)) note = &ignored;
    ref_unravel(index, extent, (int)map->rank, e);
    for (j = 0; j < map->rank; j++)
        all &= ref_axis_takes(&map->axis[j], grid_rank, at, e[j], extent[j], note);
    return all;
}

#endif
