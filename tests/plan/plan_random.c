/* Random graphs over odd topologies. Each plan goes through the independent checker (check.h), and is then
   run on paper for several steps in a random order: queues advance one by one, tiles take time, each
   notify is an event of its own. Before a tile starts, a reference that knows only the graph says whether
   all that it depends on has ended, in this step and in the steps before. Rejections must be right too.

       plan_random [NAME]      FLEET_SEED=n runs that one graph, FLEET_DEEP=1 many more */
#include "check.h"

#define MOST_GRIDS 6
#define MOST_EVENTS 8
#define MOST_EDGES 32
#define MOST_BUFFERS 4
#define STEPS 4

typedef struct ref_edge {
    int grid, event, out;
    fleet_map map;
} ref_edge;

typedef struct ref_graph {
    int n_grids, n_events, n_edges, n_buffers;
    int rank[MOST_GRIDS], level[MOST_GRIDS], slices[MOST_GRIDS];
    int32_t extent[MOST_GRIDS][FLEET_MAX_RANK];
    int first[MOST_GRIDS], count[MOST_GRIDS], n_tasks;
    int event_rank[MOST_EVENTS], event_first[MOST_EVENTS], elements[MOST_EVENTS], n_elements;
    int32_t event_extent[MOST_EVENTS][FLEET_MAX_RANK];
    ref_edge edge[MOST_EDGES];
    uint32_t reads[MOST_GRIDS], writes[MOST_GRIDS]; /* a bit for each buffer */
    uint8_t *notifies, *waits;                      /* [task][element] */
    int outside_range;
} ref_graph;

static int grid_of_task(const ref_graph *r, int task)
{
    int i = r->n_grids - 1;
    while (task < r->first[i]) i--;
    return i;
}

static fleet_shape shape_of(const int32_t *extent, int rank)
{
    fleet_shape s = fleet_shape0();
    int k;
    for (k = 0; k < rank; k++) s = fleet_shape_and(s, fleet_dim_of(extent[k]));
    return s;
}

static void add_edge(ref_graph *r, fleet_graph *g, fleet_grid grid, fleet_etensor event, int out,
                     fleet_map map)
{
    ref_edge *edge = &r->edge[r->n_edges++];
    edge->grid = (int)grid.id - 1;
    edge->event = (int)event.id - 1;
    edge->out = out;
    edge->map = map;
    if (out)
        fleet_out_edge_map(g, grid, event, map);
    else
        fleet_in_edge_map(g, grid, event, map);
}

/* A map from a grid's coordinates into a tensor of these extents that mostly stays inside. */
static fleet_map random_map(const ref_graph *r, int grid, const int32_t *extent, int rank,
                            uint64_t *seed)
{
    fleet_map map = fleet_map0();
    int j, k;
    for (j = 0; j < rank; j++) {
        fleet_axis_map a = fleet_axis_every();
        for (k = 0; k < r->rank[grid]; k++) {
            if (r->extent[grid][k] == extent[j] && draw(seed, 3))
                a = fleet_axis((uint32_t)k, 1, 0, 1);
            if (r->extent[grid][k] > extent[j] && extent[j] && draw(seed, 2))
                a = fleet_axis((uint32_t)k, 1, 0, (r->extent[grid][k] + extent[j] - 1) / extent[j]);
            if (r->extent[grid][k] < extent[j] && r->extent[grid][k] && !draw(seed, 2))
                a = fleet_axis_retile((uint32_t)k,
                                      (extent[j] + r->extent[grid][k] - 1) / r->extent[grid][k], 1,
                                      fleet_dim_of(extent[j]));
        }
        if (!draw(seed, 40)) a = fleet_axis(0, r->rank[grid] > 0, (int64_t)draw(seed, 4) - 2, 1);
        map = fleet_map_and(map, a);
    }
    return map;
}

static fleet_graph *random_graph(ref_graph *r, uint64_t *seed)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_grid grid[MOST_GRIDS];
    fleet_buffer buffer[MOST_BUFFERS];
    int wide = !draw(seed, 4), backward = !draw(seed, 6), declared = draw(seed, 2) != 0;
    int chain = !draw(seed, 3), sparse = !draw(seed, 2), i, j, k, e, task, reader, writer;
    char name[24];
    memset(r, 0, sizeof *r);
    r->n_grids = 1 + (int)draw(seed, MOST_GRIDS);
    r->n_buffers = declared ? MOST_BUFFERS : 0;
    reader = (int)draw(seed, (uint32_t)r->n_grids);
    writer = (int)draw(seed, (uint32_t)r->n_grids);
    for (i = 0; i < r->n_buffers; i++) {
        snprintf(name, sizeof name, "buffer%d", i);
        buffer[i] = fleet_buffer_named(g, name);
    }
    for (i = 0; i < r->n_grids; i++) {
        static const int levels[] = {0, 0, 1, 1, 1, 2, 3};
        r->rank[i] = (int)draw(seed, 3);
        for (k = 0; k < r->rank[i]; k++)
            r->extent[i][k] = draw(seed, 16) ? 1 + (int32_t)draw(seed, wide ? 9 : 4) : 0;
        r->level[i] = levels[draw(seed, 7)];
        r->first[i] = r->n_tasks;
        r->count[i] = (int)ref_points(r->extent[i], r->rank[i]);
        r->n_tasks += r->count[i];
        snprintf(name, sizeof name, "g%d", i);
        grid[i] = fleet_call_device(g, name, (uint32_t)i, shape_of(r->extent[i], r->rank[i]), 0);
        fleet_grid_level(g, grid[i], (fleet_level)r->level[i]);
        if (r->level[i] == FLEET_LEVEL_DEVICE && draw(seed, 2))
            fleet_grid_slices(g, grid[i], fleet_dim_of(1 + draw(seed, 10)));
        if (r->level[i] >= FLEET_LEVEL_CHIPLET && draw(seed, 2))
            fleet_grid_tiles(g, grid[i], fleet_dim_of(1 + draw(seed, 10)));
        for (k = 0; k < r->n_buffers; k++) {
            /* Sparse: all read what nobody writes, and one pair shares another buffer. Chain: grid i reads
               buffer i and writes i + 1. Both have a chance that steps may overlap. */
            if (sparse) {
                if (!k || (k == 1 && i == reader)) r->reads[i] |= 1u << k;
                if (k == 1 && i == writer) r->writes[i] |= 1u << k;
            } else {
                if (k == i % r->n_buffers || !draw(seed, 6)) r->reads[i] |= 1u << k;
                if (chain ? k == (i + 1) % r->n_buffers : !draw(seed, 6)) r->writes[i] |= 1u << k;
            }
            if (r->reads[i] >> k & 1u) fleet_reads(g, grid[i], buffer[k]);
            if (r->writes[i] >> k & 1u) fleet_writes(g, grid[i], buffer[k]);
        }
    }
    r->n_events = (int)draw(seed, MOST_EVENTS);
    for (e = 0; e < r->n_events; e++) {
        fleet_etensor event;
        int producers = 1 + (int)draw(seed, 2) * (int)draw(seed, 2);
        int p = chain ? e % r->n_grids : (int)draw(seed, (uint32_t)r->n_grids), c;
        r->event_rank[e] = (int)draw(seed, 3);
        for (k = 0; k < r->event_rank[e]; k++)
            r->event_extent[e][k] = r->rank[p] && draw(seed, 4)
                                        ? r->extent[p][draw(seed, (uint32_t)r->rank[p])]
                                        : 1 + (int32_t)draw(seed, 3);
        r->event_first[e] = r->n_elements;
        r->elements[e] = (int)ref_points(r->event_extent[e], r->event_rank[e]);
        r->n_elements += r->elements[e];
        snprintf(name, sizeof name, "e%d", e);
        event = fleet_event_tensor(g, name, shape_of(r->event_extent[e], r->event_rank[e]), 0);
        for (i = 0; i < producers; i++) {
            add_edge(r, g, grid[p], event, 1,
                     random_map(r, p, r->event_extent[e], r->event_rank[e], seed));
            if (r->n_grids > 1) p = p ? p - 1 : 1;
        }
        for (i = chain ? 1 : (int)draw(seed, 3); i-- > 0;) {
            p = r->edge[r->n_edges - 1].grid;
            c = chain ? p + 1 : p + 1 + (int)draw(seed, MOST_GRIDS);
            if (c >= r->n_grids) {
                if (!backward) continue;
                c = (int)draw(seed, (uint32_t)r->n_grids);
            }
            add_edge(r, g, grid[c], event, 0,
                     random_map(r, c, r->event_extent[e], r->event_rank[e], seed));
        }
    }
    r->notifies = (uint8_t *)calloc((size_t)(r->n_tasks * r->n_elements + 1), 1);
    r->waits = (uint8_t *)calloc((size_t)(r->n_tasks * r->n_elements + 1), 1);
    for (i = 0; i < r->n_edges; i++) {
        const ref_edge *edge = &r->edge[i];
        for (j = 0; j < r->count[edge->grid]; j++) {
            int32_t at[FLEET_MAX_RANK];
            ref_unravel(j, r->extent[edge->grid], r->rank[edge->grid], at);
            task = r->first[edge->grid] + j;
            for (k = 0; k < r->elements[edge->event]; k++) {
                int at_element = task * r->n_elements + r->event_first[edge->event] + k;
                int hit = ref_reaches(&edge->map, r->rank[edge->grid], at,
                                      r->event_extent[edge->event], k, &r->outside_range);
                if (edge->out)
                    r->notifies[at_element] = (uint8_t)(r->notifies[at_element] + hit);
                else
                    r->waits[at_element] |= (uint8_t)hit;
            }
            if (!r->elements[edge->event]) {
                /* Nothing can be reached; a map that names a value there is out of range. */
                uint32_t axis, named = 0, empty = 0;
                for (axis = 0; axis < edge->map.rank; axis++) {
                    const fleet_axis_map *a = &edge->map.axis[axis];
                    int none = a->every ? r->event_extent[edge->event][axis] == 0
                                        : ref_axis_is_empty(a, r->rank[edge->grid], at);
                    int out = 0;
                    empty |= (uint32_t)none;
                    ref_axis_takes(a, r->rank[edge->grid], at, 0,
                                   r->event_extent[edge->event][axis], &out);
                    named |= (uint32_t)out;
                }
                if (named && !empty) r->outside_range = 1;
            }
        }
    }
    return g;
}

/* The reference's verdict: an element that is waited for and that nobody notifies. */
static int waits_in_vain(const ref_graph *r)
{
    int e, k, i, task, event = 0;
    for (e = 0; e < r->n_elements; e++) {
        int waited = 0, notified = 0, excused = 0;
        for (event = 0;
             e < r->event_first[event] || e >= r->event_first[event] + r->elements[event];)
            event++;
        for (task = 0; task < r->n_tasks; task++) {
            waited |= r->waits[task * r->n_elements + e];
            notified |= r->notifies[task * r->n_elements + e] != 0;
        }
        for (i = 0; i < r->n_edges; i++) {
            k = r->edge[i].grid;
            if (r->edge[i].out && r->edge[i].event == event && !r->count[k]) excused = 1;
        }
        if (waited && !notified && !excused) return 1;
    }
    return 0;
}

/* Whether events alone order tasks in a circle: takes away what can run until nothing can. */
static int has_cycle(const ref_graph *r)
{
    uint8_t *ran = (uint8_t *)calloc((size_t)r->n_tasks + 1, 1);
    int task, e, p, left = r->n_tasks, progress = 1;
    while (progress) {
        progress = 0;
        for (task = 0; task < r->n_tasks; task++) {
            int ready = !ran[task];
            for (e = 0; ready && e < r->n_elements; e++)
                for (p = 0; ready && r->waits[task * r->n_elements + e] && p < r->n_tasks; p++)
                    if (r->notifies[p * r->n_elements + e] && !ran[p]) ready = 0;
            if (!ready) continue;
            ran[task] = 1;
            left--;
            progress = 1;
        }
    }
    free(ran);
    return left > 0;
}

/* ---- the run on paper ---------------------------------------------------------------------------------- */

typedef struct paper_run {
    const ref_graph *r;
    const fleet_plan *plan;
    uint64_t seed;
    uint32_t *device;          /* counters, sub-counters among them */
    uint32_t *position, *step; /* per queue */
    uint32_t *progress;        /* per descriptor, within the step of its queue: 0 not started,
                                    1 tile runs, 2 + n: n notifies made */
    uint8_t *ended;            /* per descriptor: in the step of its queue */
    uint32_t *copies;          /* per task: descriptors of it */
    uint32_t *tiles;           /* [step][task]: tiles that have ended */
    uint32_t *tasks_done;      /* [step]: tasks of which all tiles have ended */
    int ahead;                 /* sources run ahead of the step before */
} paper_run;

static int satisfied(const paper_run *p, const fleeti_wait *wait, uint32_t step)
{
    uint32_t i, times = wait->count & FLEETI_PREVIOUS ? step : step + 1;
    for (i = 0; i < (wait->count & ~FLEETI_PREVIOUS); i++)
        if (p->device[wait->counter + i * wait->stride] < wait->target * times) return 0;
    return 1;
}

static int task_ended(const paper_run *p, uint32_t task, uint32_t step)
{
    return p->tiles[step * (uint32_t)p->r->n_tasks + task] == p->copies[task];
}

/* The reference: may this task start in this step? */
static void check_start(test_run *t, const paper_run *p, uint32_t task, uint32_t step)
{
    const ref_graph *r = p->r;
    uint32_t n = (uint32_t)r->n_tasks, e, q;
    int mine = grid_of_task(r, (int)task);
    for (e = 0; e < (uint32_t)r->n_elements; e++) {
        if (!r->waits[task * (uint32_t)r->n_elements + e]) continue;
        for (q = 0; q < n; q++)
            if (r->notifies[q * (uint32_t)r->n_elements + e]) CHECK(task_ended(p, q, step));
    }
    if (!step) return;
    if (!p->ahead) {
        CHECK_INT(p->tasks_done[step - 1], n);
        return;
    }
    for (q = 0; q < n; q++) {
        int other = grid_of_task(r, (int)q);
        if ((r->writes[mine] & (r->reads[other] | r->writes[other])) |
            (r->reads[mine] & r->writes[other]))
            CHECK(task_ended(p, q, step - 1));
    }
}

/* Takes descriptor d of a queue one event further: its tile starts, ends, or it makes a notify. Returns
   whether anything could be done. */
static int advance(test_run *t, paper_run *p, uint32_t queue, uint32_t d)
{
    const fleet_task *task = &tasks_of(p->plan)[d];
    uint32_t step = p->step[queue], i;
    if (!p->progress[d]) {
        for (i = 0; i < task->n_waits; i++)
            if (!satisfied(p, &waits_of(p->plan)[task->waits + i], step)) return 0;
        if (task->tile != FLEETI_TILE_NONE) check_start(t, p, task->id, step);
        p->progress[d] = 1;
        return 1;
    }
    if (p->progress[d] == 1 && task->tile != FLEETI_TILE_NONE) {
        p->tiles[step * (uint32_t)p->r->n_tasks + task->id]++;
        if (task_ended(p, task->id, step)) p->tasks_done[step]++;
    }
    if (p->progress[d] <= task->n_notifies) {
        const fleeti_notify *notify = &notifies_of(p->plan)[task->notifies + p->progress[d] - 1];
        uint32_t n = arrivals_of(p->plan, task, chiplet_of_queue(p->plan, queue));
        for (i = 0; i < n; i++) {
            if (!notify->sub || notify->sub == FLEETI_LOCAL)
                p->device[notify->counter] += notify->weight;
            else if (++p->device[notify->sub] % notify->share == 0)
                p->device[notify->counter] += notify->weight;
        }
    }
    p->progress[d]++;
    if (p->progress[d] > task->n_notifies) p->ended[d] = 1;
    return 1;
}

/* Lets a queue do one thing: under STATIC with the task at its head, or with any of the batch there; under
   CHIPLET with any of the next few, as a scheduler that looks ahead does. */
static int advance_queue(test_run *t, paper_run *p, uint32_t queue)
{
    const fleeti_queue *q = &queues_of(p->plan)[queue];
    uint32_t head = q->first + p->position[queue], window, i, start;
    if (p->step[queue] >= STEPS || !q->count) return 0;
    window = p->plan->schedule == FLEET_SCHEDULE_CHIPLET          ? 4
             : tasks_of(p->plan)[head].level == FLEETI_LEVEL_PART ? 1
                                                                  : tasks_of(p->plan)[head].batch;
    start = draw(&p->seed, window);
    for (i = 0; i < window; i++) {
        uint32_t d = head + (start + i) % window;
        if (d >= q->first + q->count || p->ended[d]) continue;
        if (tasks_of(p->plan)[d].tile == FLEETI_TILE_NONE && d != head) continue;
        if (!advance(t, p, queue, d)) continue;
        while (p->position[queue] < q->count && p->ended[q->first + p->position[queue]])
            p->position[queue]++;
        if (p->position[queue] == q->count) {
            p->position[queue] = 0;
            p->step[queue]++;
            memset(p->ended + q->first, 0, q->count);
            memset(p->progress + q->first, 0, q->count * sizeof *p->progress);
        }
        return 1;
    }
    return 0;
}

static void run_on_paper(test_run *t, const ref_graph *r, const fleet_plan *plan, uint64_t seed)
{
    paper_run run, *p = &run;
    uint32_t i, idle = 0, queue = 0, burst = 0;
    memset(p, 0, sizeof *p);
    p->r = r;
    p->plan = plan;
    p->seed = seed;
    p->device = (uint32_t *)calloc(plan->counter_words, sizeof *p->device);
    p->position = (uint32_t *)calloc(plan->n_queues, sizeof *p->position);
    p->step = (uint32_t *)calloc(plan->n_queues, sizeof *p->step);
    p->progress = (uint32_t *)calloc(plan->n_descs + 1u, sizeof *p->progress);
    p->ended = (uint8_t *)calloc(plan->n_descs + 1u, 1);
    p->copies = (uint32_t *)calloc(plan->n_tasks + 1u, sizeof *p->copies);
    p->tiles = (uint32_t *)calloc(STEPS * plan->n_tasks + 1u, sizeof *p->tiles);
    p->tasks_done = (uint32_t *)calloc(STEPS, sizeof *p->tasks_done);
    for (i = 0; i < plan->n_descs; i++)
        if (tasks_of(plan)[i].tile != FLEETI_TILE_NONE) p->copies[tasks_of(plan)[i].id]++;
    for (i = 0; i < plan->n_grids; i++) p->ahead |= (int)grids_of(plan)[i].runs_ahead;
    while (idle < plan->n_queues && !t->failed_here) {
        /* Bursts on one queue let some run far ahead of others. */
        if (!burst) {
            queue = draw(&p->seed, plan->n_queues);
            burst = draw(&p->seed, 3) ? 1 + draw(&p->seed, 4) : 1 + draw(&p->seed, 60);
        }
        burst--;
        if (advance_queue(t, p, queue)) {
            idle = 0;
            continue;
        }
        burst = 0;
        /* Nothing there: see whether anybody can go on, in turn. */
        for (idle = 0;
             idle < plan->n_queues && !advance_queue(t, p, (queue + idle) % plan->n_queues);)
            idle++;
    }
    for (i = 0; i < plan->n_queues; i++)
        if (queues_of(plan)[i].count) CHECK_INT(p->step[i], STEPS);
    for (i = 0; i < STEPS; i++) CHECK_INT(p->tasks_done[i], plan->n_tasks);
    for (i = 0; i < plan->n_events; i++) {
        const fleeti_event *event = &events_of(plan)[i];
        uint32_t e;
        for (e = 0; e < event->elements; e++)
            CHECK_INT(p->device[event->counter + e * event->stride],
                      STEPS * targets_of(plan)[event->first_target + e]);
    }
    free(p->device);
    free(p->position);
    free(p->step);
    free(p->progress);
    free(p->ended);
    free(p->copies);
    free(p->tiles);
    free(p->tasks_done);
}

/* ---- the tests -------------------------------------------------------------------------------------------- */

typedef struct tally {
    int built, ahead, range, vain, cycle, order;
} tally;

static void random_desc(fleet_plan_desc *desc, uint64_t *seed)
{
    static const uint32_t chiplets[] = {1, 2, 3, 8}, workers[] = {1, 2, 7, 31};
    uint32_t small = draw(seed, 2), k;
    uint32_t x = chiplets[draw(seed, small ? 2 : 4)], w = workers[draw(seed, small ? 2 : 4)];
    *desc = fleet_plan_desc_default();
    desc->schedule = (fleet_schedule)draw(seed, 2);
    desc->topology = fleet_topology_make(x, w + 1);
    if (draw(seed, 2)) desc->workers_per_chiplet = w;
    if (!desc->workers_per_chiplet && draw(seed, 2))
        for (k = 0; k < x; k++) desc->topology.units[k] = 2 + draw(seed, w + 1);
    desc->counter_levels = draw(seed, 3);
    desc->unaware = !draw(seed, 3);
    if (draw(seed, 2)) desc->counter_stride_bytes = 4u << draw(seed, 6);
}

static void try_seed(test_run *t, uint64_t number, tally *n)
{
    uint64_t seed = number * 0x2545f4914f6cdd1dull + 1;
    ref_graph r;
    fleet_graph *g = random_graph(&r, &seed);
    fleet_plan_desc desc;
    fleet_plan *plan;
    fleet_status status, want = FLEET_OK;
    uint32_t i;
    random_desc(&desc, &seed);
    status = fleet_plan_build(g, &desc, &plan);
    if (r.outside_range)
        want = FLEET_ERROR_MAP_RANGE;
    else if (waits_in_vain(&r))
        want = FLEET_ERROR_NEVER_NOTIFIED;
    else if (has_cycle(&r))
        want = FLEET_ERROR_CYCLE;
    n->range += want == FLEET_ERROR_MAP_RANGE;
    n->vain += want == FLEET_ERROR_NEVER_NOTIFIED;
    n->cycle += want == FLEET_ERROR_CYCLE;
    n->order += status == FLEET_ERROR_ORDER;
    if (status != want && !(want == FLEET_OK && status == FLEET_ERROR_ORDER))
        test_fail(t, __FILE__, __LINE__, "%s (%s), expected %s", fleet_status_name(status),
                  fleet_graph_error(g), fleet_status_name(want));
    if (plan && !t->failed_here) {
        n->built++;
        for (i = 0; i < plan->n_grids; i++) {
            if (!grids_of(plan)[i].runs_ahead) continue;
            n->ahead++;
            break;
        }
        check_plan(t, plan);
        for (i = 0; i < 3; i++) run_on_paper(t, &r, plan, seed + i);
    }
    if (t->failed_here) printf("  FLEET_SEED=%llu\n", (unsigned long long)number);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
    free(r.notifies);
    free(r.waits);
}

static void random_graphs(test_run *t)
{
    const char *one = getenv("FLEET_SEED"), *deep = getenv("FLEET_DEEP");
    uint64_t number, most = deep && deep[0] == '1' ? 100000 : 5000;
    tally n;
    memset(&n, 0, sizeof n);
    if (one) {
        try_seed(t, strtoull(one, NULL, 10), &n);
        return;
    }
    for (number = 0; number < most && !t->failed_here; number++) try_seed(t, number, &n);
    if (t->failed_here) return;
    /* The generator must not drift to where a test says nothing. */
    if (getenv("FLEET_VERBOSE"))
        printf("built %d (%d run ahead), out of range %d, in vain %d, cyclic %d, order %d\n",
               n.built, n.ahead, n.range, n.vain, n.cycle, n.order);
    CHECK(n.built > (int)most / 3);
    CHECK(n.ahead > 100);
    CHECK(n.range > 10);
    CHECK(n.vain > 10);
    CHECK(n.cycle > 10);
    CHECK(n.order > 10);
}

static void list(test_run *t)
{
    TEST(random_graphs);
}

TEST_MAIN(list)
