/* The independent checker. From the records of a plan alone it proves that every task is in the queues as often as it
   must be, that the notifies of a step add up to what is waited for, that scopes cover placements and that counters
   do not overlap. It uses the plan format as fleet.h describes it, and none of the builder's code. */
#ifndef FLEET_TEST_CHECK_H
#define FLEET_TEST_CHECK_H

#include "walk.h"

typedef struct counter_use {
    uint32_t is_main, is_sub;       /* what the word is */
    uint32_t added;                 /* weights added in a step */
    uint32_t arrived;               /* at a sub-counter */
    uint32_t share, weight, parent; /* of a sub-counter */
    uint32_t from, local;          /* chiplets that notify it; those that do so without a release */
    uint32_t workers_from, worker; /* 1: one worker, `worker`; 2: several */
    uint32_t target;
} counter_use;

typedef struct plan_words {
    counter_use *device, *system;
} plan_words;

static counter_use *word_of(const fleet_plan *plan, plan_words *words, uint32_t counter)
{
    if (counter & FLEETI_SYSTEM)
        return (counter ^ FLEETI_SYSTEM) < plan->system_words
                   ? &words->system[counter ^ FLEETI_SYSTEM]
                   : NULL;
    return counter < plan->counter_words ? &words->device[counter] : NULL;
}

/* The arrivals that one execution of a descriptor makes: under CHIPLET all workers run a chiplet-task. */
static uint32_t arrivals_of(const fleet_plan *plan, const fleet_task *task, uint32_t chiplet)
{
    return plan->schedule == FLEET_SCHEDULE_CHIPLET && task->level == FLEET_LEVEL_CHIPLET
               ? plan->workers[chiplet]
               : 1;
}

static void check_tensors(test_run *t, const fleet_plan *plan, plan_words *words)
{
    uint32_t i, e;
    for (i = 0; i < plan->n_events; i++) {
        const fleeti_event *event = &events_of(plan)[i];
        if (event->elements)
            CHECK_INT((event->counter & ~FLEETI_SYSTEM) % (FLEET_CACHE_LINE_BYTES / 4), 0);
        for (e = 0; e < event->elements; e++) {
            counter_use *word = word_of(plan, words, event->counter + e * event->stride);
            CHECK(word && word != words->device && word != words->system);
            CHECK_INT(word->is_main, 0);
            word->is_main = i + 1;
            word->target = targets_of(plan)[event->first_target + e];
            word->added = event->outside_notifies;
        }
    }
}

static void check_notify(test_run *t, const fleet_plan *plan, plan_words *words, uint32_t queue,
                         const fleet_task *task, const fleeti_notify *notify)
{
    uint32_t chiplet = chiplet_of_queue(plan, queue), n = arrivals_of(plan, task, chiplet), several;
    counter_use *main_word = word_of(plan, words, notify->counter), *sub;
    CHECK(main_word && main_word->is_main);
    several = n > 1 || plan->schedule == FLEET_SCHEDULE_CHIPLET;
    if (several || (main_word->workers_from && main_word->worker != queue))
        main_word->workers_from = 2;
    else
        main_word->workers_from = 1;
    main_word->worker = queue;
    main_word->from |= 1u << chiplet;
    if (notify->sub == FLEETI_LOCAL) {
        CHECK_INT(notify->share, 0);
        main_word->local = 1;
        main_word->added += n * notify->weight;
    } else if (!notify->sub) {
        CHECK_INT(notify->share, 0);
        main_word->added += n * notify->weight;
    } else {
        sub = word_of(plan, words, notify->sub);
        CHECK(sub && !sub->is_main && !(notify->sub & FLEETI_SYSTEM));
        CHECK(!sub->is_sub || (sub->parent == notify->counter && sub->share == notify->share &&
                               sub->weight == notify->weight && sub->from == 1u << chiplet));
        sub->is_sub = 1;
        sub->parent = notify->counter;
        sub->share = notify->share;
        sub->weight = notify->weight;
        sub->from = 1u << chiplet;
        sub->arrived += n;
    }
}

static void check_wait(test_run *t, const fleet_plan *plan, plan_words *words, uint32_t queue,
                       const fleet_task *task, const fleeti_wait *wait)
{
    uint32_t i, count = wait->count & ~FLEETI_PREVIOUS, chiplet = chiplet_of_queue(plan, queue);
    for (i = 0; i < count; i++) {
        const counter_use *word = word_of(plan, words, wait->counter + i * wait->stride);
        uint32_t need = FLEET_SCOPE_BLOCK;
        CHECK(word && word->is_main);
        CHECK_INT(word->target, wait->target);
        CHECK(wait->target > 0);
        if (wait->count & FLEETI_PREVIOUS) CHECK_INT(word->is_main, plan->step_event + 1);
        if (word->from && (word->workers_from == 2 || word->worker != queue))
            need = FLEET_SCOPE_CHIPLET;
        if (word->from & ~(1u << chiplet)) need = FLEET_SCOPE_DEVICE;
        if (wait->counter & FLEETI_SYSTEM) need = FLEET_SCOPE_SYSTEM;
        CHECK(task->acquire >= need);
        if (word->local) CHECK_INT(word->from, 1u << chiplet);
    }
}

/* The parts of a task that run separately: slices, or in unaware plans tiles of slices. */
static uint32_t parts_of(const fleeti_grid *grid)
{
    return grid->slices * (grid->tiles ? grid->tiles : 1);
}

/* Each task of the graph is there once: on its one worker, on all workers of its chiplet, slice by slice, or tile by
   tile. */
static void check_placement(test_run *t, const fleet_plan *plan)
{
    uint32_t i, s, q, d, nodes = 0, *first = (uint32_t *)calloc(plan->n_grids + 1u, sizeof *first);
    uint32_t *times, *chiplet, *step_ends = (uint32_t *)calloc(plan->n_queues, sizeof *step_ends);
    for (i = 0; i < plan->n_grids; i++) {
        first[i] = nodes;
        nodes += grids_of(plan)[i].count * parts_of(&grids_of(plan)[i]);
    }
    times = (uint32_t *)calloc(nodes + 1u, sizeof *times);
    chiplet = (uint32_t *)calloc(nodes + 1u, sizeof *chiplet);
    for (q = 0; q < plan->n_queues; q++) {
        const fleeti_queue *queue = &queues_of(plan)[q];
        uint32_t last = 0;
        int64_t key = INT64_MIN;
        for (d = queue->first; d < queue->first + queue->count; d++) {
            const fleet_task *task = &tasks_of(plan)[d];
            const fleeti_grid *grid;
            uint32_t node;
            if (task->tile == FLEETI_TILE_NONE) {
                step_ends[q]++;
                continue;
            }
            /* The order of ids, which is that of the calls, unless keys say otherwise. */
            CHECK(key_of(plan, task) > key || (key_of(plan, task) == key && task->id >= last));
            last = task->id;
            key = key_of(plan, task);
            grid = &grids_of(plan)[task->grid];
            CHECK_INT(task->slices, grid->slices + (grid->tiles << 16));
            node = first[task->grid] + (task->id - grid->first_id) * parts_of(grid) +
                   (grid->tiles ? task->slice * grid->tiles + task->batch : task->slice);
            if (times[node]) CHECK_INT(chiplet[node], chiplet_of_queue(plan, q));
            chiplet[node] = chiplet_of_queue(plan, q);
            times[node]++;
        }
        CHECK_INT(step_ends[q], queue->count ? 1 : 0);
    }
    for (i = 0; i < plan->n_grids; i++) {
        const fleeti_grid *grid = &grids_of(plan)[i];
        for (s = 0; s < grid->count * parts_of(grid); s++) {
            uint32_t node = first[i] + s, want = 1;
            if (grid->level >= FLEET_LEVEL_CHIPLET && !grid->tiles &&
                plan->schedule == FLEET_SCHEDULE_STATIC)
                want = plan->workers[chiplet[node]];
            CHECK_INT(times[node], want);
            if (grid->tiles)
                CHECK_INT(chiplet[node], s % plan->chiplets);
            else if (grid->level == FLEET_LEVEL_DEVICE)
                CHECK_INT(chiplet[node], s % grid->slices % plan->chiplets);
        }
    }
    free(first);
    free(times);
    free(chiplet);
    free(step_ends);
}

/* Under STATIC the last of a run of wavefront-tasks has batch 1, the one before it 2, and so on. */
static void check_batches(test_run *t, const fleet_plan *plan)
{
    uint32_t q, d;
    for (q = 0; q < plan->n_queues; q++) {
        const fleeti_queue *queue = &queues_of(plan)[q];
        uint32_t run = 0;
        for (d = queue->first + queue->count; d-- > queue->first;) {
            const fleet_task *task = &tasks_of(plan)[d];
            run = task->level == FLEET_LEVEL_WAVE ? run + 1 : 0;
            if (task->level == FLEETI_LEVEL_PART)
                CHECK(task->batch < grids_of(plan)[task->grid].tiles);
            else
                CHECK_INT(task->batch, run ? run : 1);
        }
    }
}

static void check_bucket(test_run *t, const fleet_plan *plan)
{
    plan_words words;
    fleet_plan_stats stats = fleet_plan_get_stats(plan);
    uint64_t local = 0, global = 0;
    uint32_t pass, q, d, i, w;
    words.device = (counter_use *)calloc(plan->counter_words, sizeof *words.device);
    words.system = (counter_use *)calloc(plan->system_words + 1u, sizeof *words.system);
    check_placement(t, plan);
    check_batches(t, plan);
    check_tensors(t, plan, &words);
    for (pass = 0; pass < 2; pass++) {
        for (q = 0; q < plan->n_queues; q++) {
            const fleeti_queue *queue = &queues_of(plan)[q];
            for (d = queue->first; d < queue->first + queue->count; d++) {
                const fleet_task *task = &tasks_of(plan)[d];
                for (i = 0; !pass && i < task->n_notifies; i++) {
                    const fleeti_notify *n = &notifies_of(plan)[task->notifies + i];
                    uint32_t a = arrivals_of(plan, task, chiplet_of_queue(plan, q));
                    check_notify(t, plan, &words, q, task, n);
                    if (n->sub)
                        local += a;
                    else
                        global += a;
                }
                for (i = 0; pass && i < task->n_waits; i++)
                    check_wait(t, plan, &words, q, task, &waits_of(plan)[task->waits + i]);
                if (t->failed_here) return;
            }
        }
        for (w = 0; !pass && w < plan->counter_words; w++) {
            counter_use *sub = &words.device[w];
            if (!sub->is_sub) continue;
            CHECK_INT(sub->arrived, sub->share);
            CHECK(sub->share > 1);
            word_of(plan, &words, sub->parent)->added += sub->weight;
            global++;
        }
        for (w = 0; !pass && w < plan->counter_words; w++)
            CHECK_INT(words.device[w].added, words.device[w].target);
        for (w = 0; !pass && w < plan->system_words; w++)
            CHECK_INT(words.system[w].added, words.system[w].target);
    }
    CHECK_INT(stats.local_signals, local);
    CHECK_INT(stats.global_signals, global);
    free(words.device);
    free(words.system);
}

static void check_plan(test_run *t, const fleet_plan *plan)
{
    uint32_t i;
    CHECK_INT(fleet_plan_check(plan, (size_t)plan->bytes), FLEET_OK);
    for (i = 0; i < plan->n_buckets && !t->failed_here; i++)
        check_bucket(t, fleet_plan_bucket(plan, i));
}

#endif
