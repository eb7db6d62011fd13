/* fleet_calibrate.h - measures what the kit costs on a device - MIT licence

   CONTENTS (search for the tag)
       >>manual           this page
       >>public           fleet_calibrate
       >>implementation   plans of tasks that do nothing, timed

   With these costs, plans whose schedule is AUTO choose STATIC or DYNAMIC for the device at hand.

   RECIPE
       In one file:
           #define FLEET_IMPLEMENTATION
           #include "fleet_calibrate.h"
       Before plans are built:
           fleet_launch_desc launch = fleet_launch_desc_default();
           launch.steps = 20;
           fleet_calibrate(&desc.costs, &desc.topology, &launch,
                           FLEET_KERNEL_OF(row_sum_kernel), NULL);
*/

/* Outside the guard: the second inclusion brings the implementations. */
#include "fleet_sched.h"
#if FLEET_VERSION != 300
#error "fleet_calibrate.h is of fleet 0.3, fleet.h is not: copy all headers from one version"
#endif

#ifndef FLEET_CALIBRATE_H
#define FLEET_CALIBRATE_H

/* ==== >>public ==== */

FLEET_C_BEGIN

/* Measures the overheads that fleet_plan_desc.costs asks for, with your kernel on this device: it
   times plans of tasks whose tile does nothing, d->steps steps of each and three times as many. On
   an H200 this takes about 0.5 s with 20 steps and 3 s with 100. d: as for fleet_launch; t: as for
   your plans; args is passed on, but none of your tiles is called. Waits for d->stream. Call it
   once for each kernel and device; plans that are built with these costs choose their schedules for
   this device. */
FLEET_API fleet_status fleet_calibrate(fleet_overheads *costs, const fleet_topology *t,
                                       const fleet_launch_desc *d, fleet_kernel kernel,
                                       const void *args);

FLEET_C_END

#endif /* FLEET_CALIBRATE_H */

/* ==== >>implementation ==== */

#if defined(FLEET_IMPLEMENTATION) && !defined(FLEETI_CALIBRATE_IMPLEMENTED)
#define FLEETI_CALIBRATE_IMPLEMENTED

#include <stdio.h>
#include <string.h>

FLEET_C_BEGIN

#define FLEETI_EMPTY_GRIDS 9u

/* A chain of grids of empty tasks, `per_worker` for each worker: each task waits for `group` tasks
   of the grid before it, and as many wait for it. mixed: with one DYNAMIC task more. */
static fleet_status fleeti_empty_plan(const fleet_topology *t, fleet_schedule schedule,
                                      uint32_t mixed, uint32_t per_worker, fleet_plan **plan)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan_desc d = fleet_plan_desc_default();
    fleet_etensor before;
    uint32_t tasks = 0;
    if (!g) return FLEET_ERROR_MEMORY;
    memset(&before, 0, sizeof before);
    for (uint32_t k = 0; k < t->chiplets && k < FLEET_MAX_CHIPLETS; k++)
        tasks += t->units[k] * per_worker;
    uint32_t group = per_worker > 1 ? 16 : tasks;
    d.topology = *t;
    d.schedule = schedule;
    for (uint32_t i = 0; i < FLEETI_EMPTY_GRIDS; i++) {
        const fleet_shape groups =
            fleet_shape1(fleet_dim_of((int32_t)((tasks + group - 1) / group)));
        const fleet_map map = fleet_map1(fleet_axis(0, 1, 0, group));
        char name[2][24];
        snprintf(name[0], sizeof name[0], "empty %u", i);
        snprintf(name[1], sizeof name[1], "after %u", i);
        fleet_grid grid = fleet_call_device(g, name[0], FLEETI_TILE_EMPTY,
                                            fleet_shape1(fleet_dim_of((int32_t)tasks)), 0);
        if (i) fleet_in_edge_map(g, grid, before, map);
        if (i + 1 == FLEETI_EMPTY_GRIDS) break;
        before = fleet_event_tensor(g, name[1], groups, FLEET_COUNT_DERIVED);
        fleet_out_edge_map(g, grid, before, map);
    }
    if (mixed)
        fleet_grid_schedule(g, fleet_call_device(g, "popped", FLEETI_TILE_EMPTY, fleet_shape0(), 0),
                            FLEET_SCHEDULE_DYNAMIC);
    fleet_status status = fleet_plan_build(g, &d, plan);
    fleet_graph_destroy(g);
    return status;
}

/* Nanoseconds of a step: the least of five times of 3 n steps, less the least of n steps. */
static fleet_status fleeti_step_ns(const fleet_plan *plan, const fleet_launch_desc *d,
                                   fleet_kernel kernel, const void *args, double *ns)
{
    const uint32_t n = d->steps ? d->steps : 1;
    fleet_launch_desc launch = *d;
    fleet_image image;
    fleet_state state;
    uint64_t least[2] = {~0ull, ~0ull};
    fleet_status status = fleet_upload(&image, plan, d->stream);
    if (status) return status;
    launch.trace = NULL; /* it belongs to another plan */
    status = fleet_state_create(&state, &image, NULL, d->stream);
    for (uint32_t i = 0; i < 10 && !status; i++) {
        const uint64_t begun = fleeti_now_ns();
        launch.steps = i % 2 ? 3 * n : n;
        status = fleet_launch(&state, &launch, kernel, args);
        if (!status) status = fleet_state_wait(&state, d->stream);
        uint64_t took = fleeti_now_ns() - begun;
        if (took < least[i % 2]) least[i % 2] = took;
    }
    fleet_state_free(&state);
    fleet_image_free(&image);
    *ns = ((double)least[1] - (double)least[0]) / (2.0 * n);
    return status;
}

fleet_status fleet_calibrate(fleet_overheads *costs, const fleet_topology *t,
                             const fleet_launch_desc *d, fleet_kernel kernel, const void *args)
{
    static const uint32_t per_worker[3] = {4, 12, 1};
    fleet_overheads found;
    float *out[3][2];
    if (!costs) return FLEET_ERROR_NULL;
    memset(costs, 0, sizeof *costs);
    if (!t || !d || !kernel.address) return FLEET_ERROR_NULL;
    if (d->steps > (FLEET_STEPS_ENDLESS - 1) / 3) return FLEET_ERROR_ARGUMENT;
    out[0][0] = &found.static_task, out[0][1] = &found.static_hop;
    out[1][0] = &found.mixed_task, out[1][1] = &found.mixed_hop;
    out[2][0] = &found.dynamic_task, out[2][1] = &found.dynamic_hop;
    for (uint32_t how = 0; how < 3; how++) {
        double ns[3];
        for (uint32_t i = 0; i < 3; i++) {
            fleet_plan *plan = NULL;
            fleet_status status =
                fleeti_empty_plan(t, how == 2 ? FLEET_SCHEDULE_DYNAMIC : FLEET_SCHEDULE_STATIC,
                                  how == 1, per_worker[i], &plan);
            if (!status) status = fleeti_step_ns(plan, d, kernel, args, &ns[i]);
            fleet_plan_free(plan);
            if (status) return status;
        }
        double task = (ns[1] - ns[0]) / (8 * FLEETI_EMPTY_GRIDS);
        double hop = ns[2] / FLEETI_EMPTY_GRIDS - task;
        *out[how][0] = (float)(task > 0 ? task : 0);
        *out[how][1] = (float)(hop > 0 ? hop : 0);
    }
    *costs = found;
    return FLEET_OK;
}

FLEET_C_END

#endif /* FLEET_IMPLEMENTATION */
