/* fleet_trace.h - reads what a traced launch has recorded: log, report, JSON - MIT licence

   CONTENTS (search for the tag)
       >>manual           this page
       >>public           the log, and texts made of it
       >>implementation   log, report, JSON

   A launch with fleet_launch_desc.trace records when its tasks ran (fleet_sched.h, trace). This
   part copies the records to the host, finds for each task the event and the task that it waited
   for, and writes them as a text for people or for Perfetto. examples/tools/trace_picture.h draws a
   log.

   RECIPE
       Needs fleet_sched.h of the same version, whose layout of the records it reads. In one file,
       compiled with FLEET_TRACE as the kernels are:
           #define FLEET_IMPLEMENTATION
           #include "fleet_trace.h"
       After a launch with the trace, whether the run ended well or not:
           fleet_trace_read(&log, &trace, stream);
           fleet_trace_report(&log, 0, 0, text, sizeof text);
           fleet_trace_log_free(&log);
*/

/* Outside the guard: the second inclusion brings the implementations. */
#include "fleet_sched.h"
#if FLEET_VERSION != 300
#error "fleet_trace.h is of fleet 0.3, fleet.h is not: copy all headers from one version"
#endif

#ifndef FLEET_TRACE_H
#define FLEET_TRACE_H

/* ==== >>public: the log, and texts made of it ==== */

FLEET_C_BEGIN

#define FLEET_TRACE_NONE 0xffffffffu

/* One task, timed by the first wave of its group. Times count from the begin of the log's first
   task. */
typedef struct fleet_trace_task {
    uint64_t wait_begin_ns; /* the worker acquired the task: prefetch, then wait */
    uint64_t run_begin_ns;  /* its events are complete: the tile begins */
    uint64_t run_end_ns;    /* the tile has returned */
    uint64_t notify_end_ns; /* its own events are notified */
    uint32_t worker;        /* worker: number among all; wave: of a wavefront-task */
    uint32_t chiplet, wave;
    uint32_t step;        /* of the launch, from 0 on */
    uint32_t task;        /* id in the graph: fleet_plan_task_name */
    uint32_t grid;        /* index of its grid in the plan */
    uint32_t slice, part; /* slice: of a device-task; part: of a chiplet-task, as ctx.tile_index */
    uint32_t absent;      /* 1: outside its grid's shape in this launch; no tile ran */
    uint32_t desc;        /* index of its descriptor in the plan */
    uint32_t kind;        /* of its grid: fleet_trace_kind_name */
    /* it uses 1/share of its worker: a wavefront-task one wave of all, others 1/1 */
    uint32_t share;
    /* awaited: the counter of the event that completed last among those that the task waited for
       (fleet_plan_counter_name); 0: none. after: the index in the log of the task that ended last
       before this one could run: the one that completed that event, or the previous one on this
       worker; FLEET_TRACE_NONE: none. The plan does not list arrivals by run-time maps; there
       `after` is the latest task of the grids that notify the tensor. */
    uint32_t awaited, after;
} fleet_trace_task;

/* The arrivals at one event element in one step, and the tasks that waited for them. */
typedef struct fleet_trace_event {
    uint32_t counter, step; /* fleet_plan_counter_name */
    uint32_t arrivals;      /* of tasks in the log */
    uint32_t waiters;       /* tasks for which it was the last of their events to complete */
    uint32_t last;          /* index in the log of the task that arrived last */
    uint64_t first_ns, last_ns;
    uint64_t waited_ns; /* sum over those tasks */
} fleet_trace_event;

typedef struct fleet_trace_log {
    const fleet_plan *plan;  /* of the bucket that ran */
    fleet_trace_task *tasks; /* by worker, then by wait_begin_ns */
    fleet_trace_event *events;
    uint32_t n_tasks, n_events;
    uint32_t chiplets, workers;
    uint32_t chiplet_workers[FLEET_MAX_CHIPLETS]; /* workers are numbered chiplet after chiplet */
    uint32_t kinds;
    uint32_t waves;   /* per worker, without the producer */
    uint32_t steps;   /* 1 + the last step that has records */
    uint64_t dropped; /* records for which there was no room; fewer where they are billions */
} fleet_trace_log;

/* Waits for the stream, then reads what the last launch left. After a launch that failed these are
   the tasks whose tiles had returned. The plan on the host must outlive the log. Memory comes from
   FLEET_MALLOC; fleet_trace_log_free frees it. FLEET_ERROR_UNSUPPORTED: no worker has run with this
   trace yet, or the kernel was compiled without FLEET_TRACE. */
FLEET_API fleet_status fleet_trace_read(fleet_trace_log *log, const fleet_trace *trace,
                                        fleet_stream stream);
FLEET_API void fleet_trace_log_free(fleet_trace_log *log);

/* Grids whose names agree up to the first dot are of one kind, such as "qkv.0" and "qkv.1". Writes
   the name of a kind (0..log->kinds - 1), and returns, as snprintf does. */
FLEET_API size_t fleet_trace_kind_name(const fleet_trace_log *log, uint32_t kind, char *text,
                                       size_t bytes);

/* Both functions show `steps` steps from first_step on; steps 0: the last one that has records.
   They write at most `bytes` bytes with the final 0, and return the length that the whole text has
   without it, as snprintf does.

   The report says how workers spent their time, how long the tasks of each kind took, which event
   was waited for longest, which event's arrivals were furthest apart, and what the critical path
   was: from the task that ended last back along `after`.
       busy        a tile runs
       wait        for events, prefetch included
       notify      from the end of the tile until its events are notified
       scheduling  between two tasks: queues and mailboxes; under CHIPLET and DYNAMIC also the
                   wait for events
       idle        before the first and after the last task of the worker
   A wavefront-task counts for its share of the worker. */
FLEET_API size_t fleet_trace_report(const fleet_trace_log *log, uint32_t first_step, uint32_t steps,
                                    char *text, size_t bytes);
/* For Perfetto and chrome://tracing: a process is a chiplet, a thread a worker. The second and
   further waves that run wavefront-tasks have threads of their own. Categories: task, wait,
   notify. */
FLEET_API size_t fleet_trace_json(const fleet_trace_log *log, uint32_t first_step, uint32_t steps,
                                  char *text, size_t bytes);

FLEET_C_END

#endif /* FLEET_TRACE_H */

/* ==== >>implementation ==== */

#if defined(FLEET_IMPLEMENTATION) && !defined(FLEETI_TRACE_IMPLEMENTED)
#define FLEETI_TRACE_IMPLEMENTED

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

FLEET_C_BEGIN

/* ---- trace: the log ---- */

/* The arrivals from which a log is made. */
typedef struct fleeti_log_arrival {
    uint32_t step, counter;
    uint32_t by_map; /* 1: at some element of the event whose first counter this is */
    uint32_t task;   /* index in the log */
    uint64_t at_ns;
} fleeti_log_arrival;
typedef struct fleeti_log_arrivals {
    fleeti_log_arrival *list;
    size_t count;
} fleeti_log_arrivals;

static const fleet_task *fleeti_log_task(const fleet_trace_log *log, uint32_t i)
{
    return (const fleet_task *)fleeti_at(log->plan, log->plan->tasks) + log->tasks[i].desc;
}
static uint32_t fleeti_step_counter(const fleet_plan *plan)
{
    return fleeti_plan_events(plan)[plan->step_event].counter;
}
static uint32_t fleeti_chiplet_of_worker(const fleet_plan *plan, uint32_t worker)
{
    uint32_t k = 0;
    while (k + 1 < plan->chiplets && worker >= plan->worker_base[k + 1]) k++;
    return k;
}

/* Grids whose names agree up to the first dot are of one kind, such as "qkv.0" and "qkv.1". */
static uint32_t fleeti_kind_length(const fleet_plan *plan, uint32_t grid)
{
    return (uint32_t)strcspn(fleeti_plan_text(plan, fleeti_plan_grids(plan)[grid].name), ".");
}
static uint32_t fleeti_same_kind(const fleet_plan *plan, uint32_t a, uint32_t b)
{
    const uint32_t length = fleeti_kind_length(plan, a);
    return a == b || (length == fleeti_kind_length(plan, b) &&
                      !memcmp(fleeti_plan_text(plan, fleeti_plan_grids(plan)[a].name),
                              fleeti_plan_text(plan, fleeti_plan_grids(plan)[b].name), length));
}
/* The first grid of the kind of a grid. */
static uint32_t fleeti_kind_of(const fleet_plan *plan, uint32_t grid)
{
    uint32_t first = 0;
    while (!fleeti_same_kind(plan, first, grid)) first++;
    return first;
}
/* The number of kinds before that of a grid; of n_grids: the number of all kinds. */
static uint32_t fleeti_kind_number(const fleet_plan *plan, uint32_t grid)
{
    const uint32_t end = grid < plan->n_grids ? fleeti_kind_of(plan, grid) : grid;
    uint32_t n = 0;
    for (uint32_t g = 0; g < end; g++) n += fleeti_kind_of(plan, g) == g;
    return n;
}

static fleet_trace_task fleeti_traced_of(const fleet_plan *plan, uint32_t worker, uint32_t waves,
                                         const fleeti_trace_record *r)
{
    const fleet_task *task = (const fleet_task *)fleeti_at(plan, plan->tasks) + r->desc;
    fleet_trace_task t;
    memset(&t, 0, sizeof t);
    t.wait_begin_ns = r->taken * FLEETI_CLOCK_NS;
    t.run_begin_ns =
        t.wait_begin_ns + (uint64_t)(uint32_t)(r->begun - (uint32_t)r->taken) * FLEETI_CLOCK_NS;
    t.run_end_ns = t.run_begin_ns + (uint64_t)(uint32_t)(r->ended - r->begun) * FLEETI_CLOCK_NS;
    t.notify_end_ns = t.run_end_ns + (uint64_t)(uint32_t)(r->notified - r->ended) * FLEETI_CLOCK_NS;
    t.worker = worker;
    t.chiplet = fleeti_chiplet_of_worker(plan, worker);
    t.wave = r->flags >> 8;
    t.step = r->step;
    t.task = task->id;
    t.grid = task->grid;
    t.slice = task->slice;
    if (task->level == FLEET_LEVEL_CHIPLET && plan->schedule != FLEET_SCHEDULE_DYNAMIC)
        t.part = worker - plan->worker_base[t.chiplet];
    else if (task->level >= FLEET_LEVEL_CHIPLET)
        t.part = task->batch;
    t.absent = (r->flags & FLEETI_TRACE_ABSENT) != 0;
    t.desc = r->desc;
    t.kind = fleeti_kind_number(plan, task->grid);
    t.share = task->level == FLEET_LEVEL_WAVE ? waves : 1;
    t.after = FLEET_TRACE_NONE;
    return t;
}

static int fleeti_compare_traced(const void *a_, const void *b_)
{
    const fleet_trace_task *a = (const fleet_trace_task *)a_, *b = (const fleet_trace_task *)b_;
    if (a->worker != b->worker) return a->worker < b->worker ? -1 : 1;
    if (a->wait_begin_ns != b->wait_begin_ns) return a->wait_begin_ns < b->wait_begin_ns ? -1 : 1;
    if (a->notify_end_ns != b->notify_end_ns) return a->notify_end_ns < b->notify_end_ns ? -1 : 1;
    return a->step != b->step ? (a->step < b->step ? -1 : 1)
                              : (a->desc > b->desc) - (a->desc < b->desc);
}
static int fleeti_compare_arrivals(const void *a_, const void *b_)
{
    const fleeti_log_arrival *a = (const fleeti_log_arrival *)a_,
                             *b = (const fleeti_log_arrival *)b_;
    if (a->by_map != b->by_map) return a->by_map < b->by_map ? -1 : 1;
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    if (a->counter != b->counter) return a->counter < b->counter ? -1 : 1;
    return (a->at_ns > b->at_ns) - (a->at_ns < b->at_ns);
}

/* Makes tasks of the valid records. memory: the trace. */
static fleet_status fleeti_log_tasks(fleet_trace_log *log, const fleet_trace *trace,
                                     const char *memory)
{
    const fleeti_trace_row *rows =
        (const fleeti_trace_row *)(const void *)(memory + sizeof(fleeti_trace));
    const fleeti_trace_record *records =
        (const fleeti_trace_record *)(const void *)(memory + fleeti_trace_records_at(trace->plan));
    const uint32_t workers = trace->plan->total_workers;
    uint64_t begin = UINT64_MAX;
    uint32_t n = 0;
    for (uint32_t w = 0; w < workers; w++) {
        if (!rows[w].bucket) continue;
        log->plan = fleet_plan_bucket(trace->plan, rows[w].bucket - 1);
        if (!log->plan) return FLEET_ERROR_IMAGE_INDEX;
        if (rows[w].waves > log->waves) log->waves = rows[w].waves;
        if (rows[w].wanted > trace->records) log->dropped += rows[w].wanted - trace->records;
        for (uint32_t i = 0; i < trace->records; i++)
            n += records[(size_t)w * trace->records + i].flags != 0;
    }
    if (!log->plan) return FLEET_ERROR_UNSUPPORTED;
    log->chiplets = log->plan->chiplets;
    log->workers = workers;
    for (uint32_t k = 0; k < log->chiplets; k++) log->chiplet_workers[k] = log->plan->workers[k];
    log->kinds = fleeti_kind_number(log->plan, log->plan->n_grids);
    log->tasks = (fleet_trace_task *)FLEET_MALLOC((n + 1u) * sizeof *log->tasks);
    if (!log->tasks) return FLEET_ERROR_MEMORY;
    for (size_t i = 0; i < (size_t)workers * trace->records; i++) {
        const fleet_task *tasks = (const fleet_task *)fleeti_at(log->plan, log->plan->tasks);
        fleet_trace_task *t = &log->tasks[log->n_tasks];
        if (!records[i].flags) continue;
        if (records[i].desc >= log->plan->n_descs ||
            tasks[records[i].desc].grid >= log->plan->n_grids)
            return FLEET_ERROR_IMAGE_INDEX;
        *t = fleeti_traced_of(log->plan, (uint32_t)(i / trace->records), log->waves, &records[i]);
        if (t->wait_begin_ns < begin) begin = t->wait_begin_ns;
        if (t->step >= log->steps) log->steps = t->step + 1;
        log->n_tasks++;
    }
    for (uint32_t i = 0; i < log->n_tasks; i++) {
        log->tasks[i].wait_begin_ns -= begin;
        log->tasks[i].run_begin_ns -= begin;
        log->tasks[i].run_end_ns -= begin;
        log->tasks[i].notify_end_ns -= begin;
    }
    qsort(log->tasks, log->n_tasks, sizeof *log->tasks, fleeti_compare_traced);
    return FLEET_OK;
}

static void fleeti_add_arrival(fleeti_log_arrivals *out, const fleet_trace_log *log, uint32_t task,
                               uint32_t counter, uint32_t by_map)
{
    if (out->list) {
        fleeti_log_arrival *a = &out->list[out->count];
        a->step = log->tasks[task].step;
        a->counter = counter;
        a->by_map = by_map;
        a->task = task;
        a->at_ns = log->tasks[task].notify_end_ns;
    }
    out->count++;
}
/* Counts the arrivals while there is no list; else lists them. Every task also arrives at its
   step's event. */
static void fleeti_list_arrivals(fleeti_log_arrivals *out, const fleet_trace_log *log)
{
    const fleet_plan *plan = log->plan;
    const fleeti_notify *notifies = (const fleeti_notify *)fleeti_at(plan, plan->notifies);
    const fleeti_runtime_map *maps = (const fleeti_runtime_map *)fleeti_at(plan, plan->maps);
    out->count = 0;
    for (uint32_t i = 0; i < log->n_tasks; i++) {
        const fleet_task *task = fleeti_log_task(log, i);
        const fleeti_grid *grid = &fleeti_plan_grids(plan)[task->grid];
        for (uint32_t k = 0; k < task->n_notifies; k++)
            fleeti_add_arrival(out, log, i, notifies[task->notifies + k].counter, 0);
        for (uint32_t k = 0; k < grid->n_maps; k++) {
            const fleeti_runtime_map *m = &maps[grid->first_map + k];
            if (m->kind <= FLEETI_MAP_COUNTS && m->target)
                fleeti_add_arrival(out, log, i, m->counter, 1);
        }
        fleeti_add_arrival(out, log, i, fleeti_step_counter(plan), 0);
    }
}

/* Makes events of the sorted arrivals that the plan knows. */
static fleet_status fleeti_log_events(fleet_trace_log *log, const fleeti_log_arrivals *arrivals)
{
    log->events = (fleet_trace_event *)FLEET_MALLOC((arrivals->count + 1) * sizeof *log->events);
    if (!log->events) return FLEET_ERROR_MEMORY;
    for (size_t i = 0; i < arrivals->count && !arrivals->list[i].by_map; i++) {
        const fleeti_log_arrival *a = &arrivals->list[i];
        fleet_trace_event *e = &log->events[log->n_events - (log->n_events != 0)];
        if (!log->n_events || e->step != a->step || e->counter != a->counter) {
            e = &log->events[log->n_events++];
            memset(e, 0, sizeof *e);
            e->step = a->step;
            e->counter = a->counter;
            e->first_ns = a->at_ns;
        }
        e->arrivals++;
        e->last = a->task;
        e->last_ns = a->at_ns;
    }
    return FLEET_OK;
}

static fleet_trace_event *fleeti_find_event(const fleet_trace_log *log, uint32_t step,
                                            uint32_t counter)
{
    uint32_t low = 0, high = log->n_events;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const fleet_trace_event *e = &log->events[middle];
        if (e->step < step || (e->step == step && e->counter < counter))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == log->n_events || log->events[low].step != step ||
        log->events[low].counter != counter)
        return NULL;
    return &log->events[low];
}
/* The task that may have completed an element by a run-time map: that of the latest such arrival at
   its tensor before this time. */
static uint32_t fleeti_find_mapped(const fleet_trace_log *log, const fleeti_log_arrivals *arrivals,
                                   uint32_t step, uint32_t counter, uint64_t before_ns)
{
    uint32_t element = 0, found = FLEET_TRACE_NONE;
    const fleeti_event *event = fleeti_event_at(log->plan, counter, &element);
    fleeti_log_arrival key;
    size_t low = 0, high = arrivals->count;
    if (!event) return found;
    key.by_map = 1;
    key.step = step;
    key.counter = event->counter;
    key.task = 0;
    key.at_ns = before_ns;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (fleeti_compare_arrivals(&arrivals->list[middle], &key) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low) {
        const fleeti_log_arrival *a = &arrivals->list[low - 1];
        if (a->by_map && a->step == step && a->counter == event->counter) found = a->task;
    }
    return found;
}

/* The task before it on its worker: of those that had ended when it was acquired, the last one. */
static uint32_t fleeti_before_it(const fleet_trace_log *log, uint32_t i)
{
    const fleet_trace_task *t = &log->tasks[i];
    uint32_t best = FLEET_TRACE_NONE;
    /* Tasks of other waves may still have run then. */
    for (uint32_t j = i; j-- > 0 && log->tasks[j].worker == t->worker;) {
        if (best != FLEET_TRACE_NONE && i - j > 2 * log->waves) break;
        if (log->tasks[j].notify_end_ns > t->wait_begin_ns) continue;
        if (best == FLEET_TRACE_NONE ||
            log->tasks[j].notify_end_ns > log->tasks[best].notify_end_ns)
            best = j;
    }
    return best;
}

/* Finds the event that a task waited for last, and the task after which it ran. */
static void fleeti_link_task(fleet_trace_log *log, const fleeti_log_arrivals *arrivals, uint32_t i)
{
    const fleet_plan *plan = log->plan;
    const fleet_task *task = fleeti_log_task(log, i);
    const fleeti_wait *waits = (const fleeti_wait *)fleeti_at(plan, plan->waits) + task->waits;
    fleet_trace_task *t = &log->tasks[i];
    fleet_trace_event *awaited = NULL;
    t->after = fleeti_before_it(log, i);
    for (uint32_t k = 0; k < task->n_waits; k++) {
        const uint32_t previous = (waits[k].count & FLEETI_PREVIOUS) != 0;
        const uint32_t count = waits[k].count & ~FLEETI_PREVIOUS;
        if (previous > t->step) continue;
        for (uint32_t c = 0; c < count; c++) {
            const uint32_t counter = waits[k].counter + c * waits[k].stride;
            fleet_trace_event *e = fleeti_find_event(log, t->step - previous, counter);
            const uint32_t last =
                e ? e->last
                  : fleeti_find_mapped(log, arrivals, t->step - previous, counter, t->run_begin_ns);
            if (e && (!awaited || e->last_ns > awaited->last_ns)) awaited = e;
            if (last != FLEET_TRACE_NONE && last != i &&
                (t->after == FLEET_TRACE_NONE ||
                 log->tasks[last].notify_end_ns > log->tasks[t->after].notify_end_ns))
                t->after = last;
        }
    }
    if (!awaited) return;
    t->awaited = awaited->counter;
    awaited->waiters++;
    awaited->waited_ns += t->run_begin_ns - t->wait_begin_ns;
}

/* Where a plan has a task wait for arrivals that cannot precede it, as a forged one may, `after`
   may lead in a circle. It is cut here, so that the path always ends. */
static fleet_status fleeti_cut_circles(fleet_trace_log *log)
{
    /* 1 + the task that found it */
    uint32_t *seen = (uint32_t *)FLEET_MALLOC((log->n_tasks + 1u) * sizeof *seen);
    if (!seen) return FLEET_ERROR_MEMORY;
    memset(seen, 0, (log->n_tasks + 1u) * sizeof *seen);
    for (uint32_t i = 0; i < log->n_tasks; i++) {
        uint32_t at = i, from = i;
        while (at != FLEET_TRACE_NONE && !seen[at]) {
            seen[at] = i + 1;
            from = at;
            at = log->tasks[at].after;
        }
        if (at != FLEET_TRACE_NONE && seen[at] == i + 1) log->tasks[from].after = FLEET_TRACE_NONE;
    }
    FLEET_FREE(seen);
    return FLEET_OK;
}

fleet_status fleet_trace_read(fleet_trace_log *log, const fleet_trace *trace, fleet_stream stream)
{
    fleeti_log_arrivals arrivals;
    if (!log) return FLEET_ERROR_NULL;
    memset(log, 0, sizeof *log);
    if (!trace || !trace->device) return FLEET_ERROR_NULL;
    memset(&arrivals, 0, sizeof arrivals);
    char *memory = (char *)FLEET_MALLOC(fleeti_trace_size(trace));
    if (!memory) return FLEET_ERROR_MEMORY;
    /* After the kernels on the stream. Pair: the records of fleeti_trace_notified (edge 17). */
    fleet_status status = fleet_to_host(memory, trace->device, fleeti_trace_size(trace), stream);
    if (!status) status = fleeti_log_tasks(log, trace, memory);
    FLEET_FREE(memory);
    if (!status) {
        fleeti_list_arrivals(&arrivals, log);
        arrivals.list =
            (fleeti_log_arrival *)FLEET_MALLOC((arrivals.count + 1) * sizeof *arrivals.list);
        if (!arrivals.list) status = FLEET_ERROR_MEMORY;
    }
    if (!status) {
        fleeti_list_arrivals(&arrivals, log);
        qsort(arrivals.list, arrivals.count, sizeof *arrivals.list, fleeti_compare_arrivals);
        status = fleeti_log_events(log, &arrivals);
    }
    for (uint32_t i = 0; i < log->n_tasks && !status; i++) fleeti_link_task(log, &arrivals, i);
    if (!status) status = fleeti_cut_circles(log);
    if (arrivals.list) FLEET_FREE(arrivals.list);
    if (status) fleet_trace_log_free(log);
    return status;
}

size_t fleet_trace_kind_name(const fleet_trace_log *log, uint32_t kind, char *text, size_t bytes)
{
    fleeti_text out = fleeti_text_at(text, bytes);
    if (!log || kind >= log->kinds) return 0;
    for (uint32_t g = 0; g < log->plan->n_grids; g++) {
        if (fleeti_kind_number(log->plan, g) != kind) continue;
        fleeti_put(&out, "%.*s", (int)fleeti_kind_length(log->plan, g),
                   fleeti_plan_text(log->plan, fleeti_plan_grids(log->plan)[g].name));
        break;
    }
    return out.length;
}

void fleet_trace_log_free(fleet_trace_log *log)
{
    if (!log) return;
    if (log->tasks) FLEET_FREE(log->tasks);
    if (log->events) FLEET_FREE(log->events);
    memset(log, 0, sizeof *log);
}

/* ---- trace: report ---- */

/* The steps that are shown. */
typedef struct fleeti_view {
    const fleet_trace_log *log;
    const fleet_plan *plan;
    uint32_t first_step, last_step;
    uint32_t count; /* tasks whose tile ran */
    uint32_t last;  /* the task that ended last; FLEET_TRACE_NONE: there is none */
    uint64_t begin_ns, end_ns;
} fleeti_view;

static uint32_t fleeti_views(const fleeti_view *v, uint32_t step)
{
    return step >= v->first_step && step <= v->last_step;
}
static fleeti_view fleeti_view_of(const fleet_trace_log *log, uint32_t first_step, uint32_t steps)
{
    fleeti_view v;
    memset(&v, 0, sizeof v);
    v.log = log;
    v.plan = log->plan;
    v.first_step = steps ? first_step : log->steps ? log->steps - 1 : 0;
    v.last_step = v.first_step + (steps ? steps - 1 : 0);
    if (v.last_step < v.first_step || v.last_step >= log->steps)
        v.last_step = log->steps ? log->steps - 1 : 0;
    v.last = FLEET_TRACE_NONE;
    v.begin_ns = UINT64_MAX;
    for (uint32_t i = 0; i < log->n_tasks; i++) {
        const fleet_trace_task *t = &log->tasks[i];
        if (!fleeti_views(&v, t->step)) continue;
        v.count += !t->absent;
        if (t->wait_begin_ns < v.begin_ns) v.begin_ns = t->wait_begin_ns;
        if (v.last == FLEET_TRACE_NONE || t->notify_end_ns > v.end_ns) {
            v.end_ns = t->notify_end_ns;
            v.last = i;
        }
    }
    return v;
}
/* The task before i on the critical path. */
static uint32_t fleeti_path_back(const fleeti_view *v, uint32_t i)
{
    const uint32_t after = v->log->tasks[i].after;
    return after != FLEET_TRACE_NONE && fleeti_views(v, v->log->tasks[after].step)
               ? after
               : FLEET_TRACE_NONE;
}

/* "final(3)", with its slice if there are several. */
static void fleeti_traced_name(const fleeti_view *v, const fleet_trace_task *t, char *text,
                               size_t bytes)
{
    fleeti_text out = fleeti_text_at(text, bytes);
    out.length = fleet_plan_task_name(v->plan, t->task, text, bytes);
    if (fleeti_plan_grids(v->plan)[t->grid].slices > 1) fleeti_put(&out, " slice %u", t->slice);
}

/* Worker-nanoseconds. */
typedef struct fleeti_shares {
    double busy, wait, notify, between, idle;
} fleeti_shares;

static fleeti_shares fleeti_shares_of(const fleeti_view *v)
{
    const fleet_trace_log *log = v->log;
    const double all = (double)(v->end_ns - v->begin_ns);
    fleeti_shares s;
    uint32_t i = 0;
    memset(&s, 0, sizeof s);
    for (uint32_t w = 0; w < v->plan->total_workers; w++) {
        uint64_t first = UINT64_MAX, last = 0;
        double busy = 0, wait = 0, notify = 0;
        for (; i < log->n_tasks && log->tasks[i].worker == w; i++) {
            const fleet_trace_task *t = &log->tasks[i];
            if (!fleeti_views(v, t->step)) continue;
            if (t->wait_begin_ns < first) first = t->wait_begin_ns;
            if (t->notify_end_ns > last) last = t->notify_end_ns;
            busy += (double)(t->run_end_ns - t->run_begin_ns) / t->share;
            wait += (double)(t->run_begin_ns - t->wait_begin_ns) / t->share;
            notify += (double)(t->notify_end_ns - t->run_end_ns) / t->share;
        }
        s.busy += busy, s.wait += wait, s.notify += notify;
        /* Another wave may have begun its next task while the first one still notifies. */
        if (last >= first && (double)(last - first) > busy + wait + notify)
            s.between += (double)(last - first) - busy - wait - notify;
        s.idle += last >= first ? all - (double)(last - first) : all;
    }
    return s;
}

static void fleeti_report_shares(const fleeti_view *v, fleeti_text *out)
{
    const fleeti_shares s = fleeti_shares_of(v);
    const double all = (double)(v->end_ns - v->begin_ns) * v->plan->total_workers / 100;
    const double part = all > 0 ? 1 / all : 0;
    fleeti_put(out,
               "time: %.2f us; of all workers' busy %.1f%%, wait %.1f%%, notify %.1f%%, "
               "scheduling %.1f%%, idle %.1f%%\n",
               (double)(v->end_ns - v->begin_ns) / 1e3, s.busy * part, s.wait * part,
               s.notify * part, s.between * part, s.idle * part);
}

/* Sums over the tasks of a kind. */
typedef struct fleeti_grid_times {
    uint32_t tasks;
    uint64_t run_ns, most_ns, wait_ns;
} fleeti_grid_times;

static void fleeti_add_times(fleeti_grid_times *sum, const fleet_trace_task *t)
{
    const uint64_t ran = t->run_end_ns - t->run_begin_ns;
    sum->wait_ns += t->run_begin_ns - t->wait_begin_ns;
    if (t->absent) return;
    sum->tasks++;
    sum->run_ns += ran;
    if (ran > sum->most_ns) sum->most_ns = ran;
}
static fleeti_grid_times fleeti_times_of_grid(const fleeti_view *v, uint32_t grid)
{
    fleeti_grid_times sum;
    memset(&sum, 0, sizeof sum);
    for (uint32_t i = 0; i < v->log->n_tasks; i++)
        if (fleeti_views(v, v->log->tasks[i].step) &&
            fleeti_same_kind(v->plan, v->log->tasks[i].grid, grid))
            fleeti_add_times(&sum, &v->log->tasks[i]);
    return sum;
}
/* Over the tasks on the critical path; FLEET_TRACE_NONE: of all kinds. */
static fleeti_grid_times fleeti_times_on_path(const fleeti_view *v, uint32_t grid)
{
    fleeti_grid_times sum;
    memset(&sum, 0, sizeof sum);
    for (uint32_t i = v->last; i != FLEET_TRACE_NONE; i = fleeti_path_back(v, i))
        if (grid == FLEET_TRACE_NONE || fleeti_same_kind(v->plan, v->log->tasks[i].grid, grid))
            fleeti_add_times(&sum, &v->log->tasks[i]);
    return sum;
}

static void fleeti_report_times(const fleeti_view *v, fleeti_text *out)
{
    fleeti_put(out, "\n%-24s %9s %11s %9s %9s %11s\n", "kind", "tasks", "total us", "mean us",
               "max us", "wait us");
    for (uint32_t g = 0; g < v->plan->n_grids; g++) {
        const fleeti_grid_times sum = fleeti_times_of_grid(v, g);
        const int length = (int)fleeti_kind_length(v->plan, g);
        if (fleeti_kind_of(v->plan, g) != g) continue;
        fleeti_put(out, "%-24.*s %9u %11.2f %9.2f %9.2f %11.2f\n", length,
                   fleeti_plan_text(v->plan, fleeti_plan_grids(v->plan)[g].name), sum.tasks,
                   (double)sum.run_ns / 1e3, sum.tasks ? (double)sum.run_ns / sum.tasks / 1e3 : 0.0,
                   (double)sum.most_ns / 1e3, (double)sum.wait_ns / 1e3);
    }
}

static void fleeti_report_event(const fleeti_view *v, const fleet_trace_event *e, const char *what,
                                fleeti_text *out)
{
    const fleet_trace_task *last = &v->log->tasks[e->last];
    char event[160], task[192];
    fleet_plan_counter_name(v->plan, e->counter, event, sizeof event);
    fleeti_traced_name(v, last, task, sizeof task);
    fleeti_put(out,
               "%s: %s in step %u: %.2f us by %u tasks; its last arrival, by %s on worker %u, came "
               "%.2f us after the first of %u\n",
               what, event, e->step, (double)e->waited_ns / 1e3, e->waiters, task, last->worker,
               (double)(e->last_ns - e->first_ns) / 1e3, e->arrivals);
}
static void fleeti_report_events_seen(const fleeti_view *v, fleeti_text *out)
{
    const fleet_trace_event *longest = NULL, *widest = NULL;
    for (uint32_t i = 0; i < v->log->n_events; i++) {
        const fleet_trace_event *e = &v->log->events[i];
        if (!fleeti_views(v, e->step) || e->counter == fleeti_step_counter(v->plan)) continue;
        if (e->waited_ns && (!longest || e->waited_ns > longest->waited_ns)) longest = e;
        if (e->arrivals > 1 &&
            (!widest || e->last_ns - e->first_ns > widest->last_ns - widest->first_ns))
            widest = e;
    }
    if (longest || widest) fleeti_put(out, "\n");
    if (longest) fleeti_report_event(v, longest, "waited for longest", out);
    if (widest) fleeti_report_event(v, widest, "arrivals furthest apart", out);
}

static void fleeti_report_path(const fleeti_view *v, fleeti_text *out)
{
    const fleeti_grid_times all = fleeti_times_on_path(v, FLEET_TRACE_NONE);
    const char *comma = "";
    fleeti_put(out, "critical path: %u tasks, their tiles %.2f of %.2f us:", all.tasks,
               (double)all.run_ns / 1e3, (double)(v->end_ns - v->begin_ns) / 1e3);
    for (uint32_t g = 0; g < v->plan->n_grids; g++) {
        const fleeti_grid_times sum = fleeti_times_on_path(v, g);
        if (!sum.tasks || fleeti_kind_of(v->plan, g) != g) continue;
        fleeti_put(out, "%s %u of %.*s %.2f us", comma, sum.tasks,
                   (int)fleeti_kind_length(v->plan, g),
                   fleeti_plan_text(v->plan, fleeti_plan_grids(v->plan)[g].name),
                   (double)sum.run_ns / 1e3);
        comma = ",";
    }
    fleeti_put(out, "\n");
}

/* "trace: STATIC, steps 2 to 3, 96 tasks on 4 workers of 2 chiplets, no record dropped". */
static void fleeti_put_view(fleeti_text *out, const fleeti_view *v)
{
    fleeti_put(out, "trace: %s, ", fleeti_schedule_name(v->plan->schedule));
    if (v->first_step == v->last_step)
        fleeti_put(out, "step %u", v->first_step);
    else
        fleeti_put(out, "steps %u to %u", v->first_step, v->last_step);
    fleeti_put(out, ", %u tasks on %u workers of %u chiplets, ", v->count, v->plan->total_workers,
               v->plan->chiplets);
    if (v->log->dropped)
        fleeti_put(out, "%llu records of the launch dropped", (unsigned long long)v->log->dropped);
    else
        fleeti_put(out, "no record dropped");
}

size_t fleet_trace_report(const fleet_trace_log *log, uint32_t first_step, uint32_t steps,
                          char *text, size_t bytes)
{
    fleeti_text out = fleeti_text_at(text, bytes);
    if (!log || !log->plan) return 0;
    fleeti_view v = fleeti_view_of(log, first_step, steps);
    fleeti_put_view(&out, &v);
    fleeti_put(&out, "\n");
    if (v.last == FLEET_TRACE_NONE) return out.length;
    fleeti_report_shares(&v, &out);
    fleeti_report_times(&v, &out);
    fleeti_report_events_seen(&v, &out);
    fleeti_report_path(&v, &out);
    return out.length;
}

/* ---- trace: JSON ---- */

/* Puts text between quotes: printable ASCII, escaped. */
static void fleeti_put_json(fleeti_text *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fleeti_put(out, "\\");
        fleeti_put(out, "%c", *text >= ' ' && *text <= '~' ? *text : '?');
    }
}

/* Puts an event of the trace without its arguments; times in microseconds. */
static void fleeti_put_span(fleeti_text *out, const fleeti_view *v, const fleet_trace_task *t,
                            const char *name, const char *category, uint64_t begin, uint64_t end)
{
    fleeti_put(out, ",\n{\"ph\":\"X\",\"name\":\"");
    fleeti_put_json(out, name);
    fleeti_put(out, "\",\"cat\":\"%s\",\"pid\":%u,\"tid\":%u,\"ts\":%llu.%03u,\"dur\":%llu.%03u",
               category, t->chiplet, t->worker + t->wave * v->plan->total_workers,
               (unsigned long long)(begin / 1000), (unsigned)(begin % 1000),
               (unsigned long long)((end - begin) / 1000), (unsigned)((end - begin) % 1000));
}
static void fleeti_put_traced(fleeti_text *out, const fleeti_view *v, const fleet_trace_task *t)
{
    char name[192], event[160] = "its events";
    fleeti_traced_name(v, t, name, sizeof name);
    if (t->run_begin_ns > t->wait_begin_ns) {
        char wait[192];
        if (t->awaited) fleet_plan_counter_name(v->plan, t->awaited, event, sizeof event);
        snprintf(wait, sizeof wait, "wait for %s", event);
        fleeti_put_span(out, v, t, wait, "wait", t->wait_begin_ns, t->run_begin_ns);
        fleeti_put(out, "}");
    }
    fleeti_put_span(out, v, t, name, "task", t->run_begin_ns, t->run_end_ns);
    fleeti_put(out, ",\"args\":{\"step\":%u,\"task\":%u,\"slice\":%u,\"part\":%u,\"absent\":%u}}",
               t->step, t->task, t->slice, t->part, t->absent);
    if (t->notify_end_ns > t->run_end_ns) {
        fleeti_put_span(out, v, t, "notify", "notify", t->run_end_ns, t->notify_end_ns);
        fleeti_put(out, "}");
    }
}

size_t fleet_trace_json(const fleet_trace_log *log, uint32_t first_step, uint32_t steps, char *text,
                        size_t bytes)
{
    fleeti_text out = fleeti_text_at(text, bytes);
    const char *comma = "";
    if (!log || !log->plan) return 0;
    fleeti_view v = fleeti_view_of(log, first_step, steps);
    fleeti_put(&out,
               "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped\":%llu},\n"
               "\"traceEvents\":[\n",
               (unsigned long long)log->dropped);
    for (uint32_t k = 0; k < v.plan->chiplets; k++) {
        fleeti_put(&out,
                   "%s{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,"
                   "\"args\":{\"name\":\"chiplet %u\"}}",
                   comma, k, k);
        comma = ",\n";
    }
    for (uint32_t i = 0; i < v.plan->total_workers * log->waves; i++) {
        const uint32_t worker = i % v.plan->total_workers, wave = i / v.plan->total_workers;
        fleeti_put(&out,
                   ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%u,"
                   "\"args\":{\"name\":\"worker %u",
                   fleeti_chiplet_of_worker(v.plan, worker), i, worker);
        fleeti_put(&out, wave ? " wave %u\"}}" : "\"}}", wave);
    }
    for (uint32_t i = 0; i < log->n_tasks; i++)
        if (fleeti_views(&v, log->tasks[i].step)) fleeti_put_traced(&out, &v, &log->tasks[i]);
    fleeti_put(&out, "\n]}\n");
    return out.length;
}

FLEET_C_END

#endif /* FLEET_IMPLEMENTATION */
