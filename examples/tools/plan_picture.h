/* plan_picture.h - draws how the workers of a chiplet go through the tiles of a linear layer

   After fleet_linear_choose:
       size_t bytes = plan_picture(&plan, "gate_up", &topology, NULL, 0) + 1;
       char *svg = malloc(bytes);
       plan_picture(&plan, "gate_up", &topology, svg, bytes);

   The picture is SVG, without scripts and fonts of its own. It has one panel for each traversal, the plan's among them.
   Workers go down, tile steps to the right; a colour is a weight column, so that a block of one colour is one fetch of
   weights that several workers share. Uses only the public part of parts/fleet_linear.h. */
#ifndef PLAN_PICTURE_H
#define PLAN_PICTURE_H

#include "../parts/fleet_linear.h"
#include "svg.h"

#include <string.h>

#define PLAN_PICTURE_WORKERS 32u /* drawn at most */
#define PLAN_PICTURE_STEPS 24u
#define PLAN_PICTURE_NO_TILE 0xffffffffu

/* What every panel shows: the chiplet whose slice has the largest number of tiles. */
typedef struct plan_picture_view {
    fleet_partition part;
    uint32_t slice, stride, tiles; /* the chiplet's next tile is `stride` tiles on */
    uint32_t workers, steps, all_steps;
    uint32_t width, height; /* of a cell, in pixels */
} plan_picture_view;

static inline plan_picture_view plan_picture_view_of(const fleet_linear_plan *plan)
{
    plan_picture_view v;
    uint32_t s;
    memset(&v, 0, sizeof v);
    for (s = 0; s < plan->slices; s++) {
        const fleet_partition p = fleet_linear_partition(&plan->linear, s, plan->slices);
        if (!p.k || p.m_tiles * p.n_tiles <= v.tiles) continue;
        v.part = p;
        v.slice = s;
        v.tiles = p.m_tiles * p.n_tiles;
    }
    v.stride = plan->level == FLEET_LEVEL_CU ? plan->chiplets : 1;
    v.all_steps = (uint32_t)(((uint64_t)v.tiles - 1) / ((uint64_t)plan->workers * v.stride) + 1);
    v.steps = v.all_steps < PLAN_PICTURE_STEPS ? v.all_steps : PLAN_PICTURE_STEPS;
    v.workers = plan->workers < PLAN_PICTURE_WORKERS ? plan->workers : PLAN_PICTURE_WORKERS;
    v.width = 648 / v.steps < 54 ? 648 / v.steps : 54;
    v.height = v.workers <= 8 ? 20 : v.workers <= 16 ? 14 : 10;
    return v;
}

/* The weight column of a worker's tile in a step, or PLAN_PICTURE_NO_TILE. */
static inline uint32_t plan_picture_column(const fleet_linear *linear, const plan_picture_view *v,
                                           uint32_t all_workers, uint32_t step, uint32_t worker)
{
    const uint64_t t = ((uint64_t)step * all_workers + worker) * v->stride;
    if (worker >= v->workers || t >= v->tiles) return PLAN_PICTURE_NO_TILE;
    return fleet_partition_tile(linear, &v->part, (uint32_t)t).n;
}

/* What the planner predicts for the same cut in another traversal. */
static inline fleet_linear_plan plan_picture_predict(const fleet_linear_plan *plan,
                                                     const fleet_topology *topology,
                                                     const fleet_linear *linear)
{
    fleet_linear_desc d = fleet_linear_desc_default();
    fleet_linear_plan one;
    d.m = linear->m, d.n = linear->n, d.k = linear->k;
    d.tile_m = linear->tile_m, d.tile_n = linear->tile_n, d.tile_k = linear->tile_k;
    d.element_bytes = linear->element_bytes;
    d.l2_budget_bytes = plan->l2_budget_bytes;
    d.workers_per_chiplet = plan->workers;
    d.levels = 1u << plan->level;
    d.traversals = 1u << linear->traversal;
    if (plan->level == FLEET_LEVEL_DEVICE) d.splits = 1u << linear->split, d.slices = plan->slices;
    if (linear->traversal == FLEET_TRAVERSAL_WINDOWED) d.window = linear->window;
    (void)fleet_linear_choose(&d, topology, &one); /* an error leaves zeros */
    return one;
}

static inline const char *plan_picture_traversal(uint32_t traversal)
{
    return traversal == FLEET_TRAVERSAL_M_MAJOR   ? "M-major"
           : traversal == FLEET_TRAVERSAL_N_MAJOR ? "N-major"
                                                  : "windowed";
}

/* Draws one traversal; y is its top. Adjacent workers at the same column make one block. */
static inline void plan_picture_panel(svg_text *out, const fleet_linear_plan *plan,
                                      const fleet_topology *topology, const fleet_linear *linear,
                                      const plan_picture_view *v, uint32_t y)
{
    const fleet_linear_plan predicted = plan_picture_predict(plan, topology, linear);
    const uint32_t x = 56, width = v->steps * v->width, height = v->workers * v->height;
    uint32_t step, worker, next;
    svg_put(out, "<text x=\"%u\" y=\"%u\" font-weight=\"bold\">%s", x, y + 14,
            plan_picture_traversal(linear->traversal));
    if (linear->traversal == FLEET_TRAVERSAL_WINDOWED)
        svg_put(out, " by %u column%s", linear->window, linear->window == 1 ? "" : "s");
    svg_put(out, "%s</text>\n", linear->traversal == plan->linear.traversal ? " (the plan's)" : "");
    y += 22;
    svg_put(out, "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" fill=\"#e4e4e4\"/>\n", x, y,
            width, height);
    for (step = 0; step < v->steps; step++) {
        for (worker = 0; worker < v->workers; worker = next) {
            const uint32_t n = plan_picture_column(linear, v, plan->workers, step, worker);
            next = worker + 1;
            if (n == PLAN_PICTURE_NO_TILE) continue;
            while (plan_picture_column(linear, v, plan->workers, step, next) == n) next++;
            svg_put(out,
                    "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" fill=\"%s\" "
                    "stroke=\"#fff\"/>",
                    x + step * v->width, y + worker * v->height, v->width,
                    (next - worker) * v->height, svg_colour(n));
            svg_put(out, "<text class=\"c\" x=\"%u\" y=\"%u\">%u</text>\n",
                    x + step * v->width + v->width / 2, y + (worker + next) * v->height / 2 + 3, n);
        }
        svg_put(out, "<text class=\"n\" x=\"%u\" y=\"%u\">%u</text>\n",
                x + step * v->width + v->width / 2, y + height + 11, step);
    }
    svg_put(out,
            "<text class=\"e\" x=\"%u\" y=\"%u\">0</text>"
            "<text class=\"e\" x=\"%u\" y=\"%u\">%u</text>\n",
            x - 4, y + 9, x - 4, y + height - 1, v->workers - 1);
    svg_put(out,
            "<text transform=\"translate(%u %u) rotate(-90)\" text-anchor=\"middle\">"
            "worker</text>\n",
            x - 26, y + height / 2);
    svg_put(out, "<text x=\"%u\" y=\"%u\">time, in tile steps</text>\n", x, y + height + 25);
    if (predicted.slices)
        svg_put(out,
                "<text x=\"%u\" y=\"%u\">hit rate of weights %.1f%%: one fetch of a weight column "
                "serves %.1f tiles</text>\n",
                x, y + height + 41, 100 * predicted.hit_rate, 1 / (1 - predicted.hit_rate));
}

static inline void plan_picture_head(svg_text *out, const fleet_linear_plan *plan, const char *name,
                                     const fleet_topology *topology, const plan_picture_view *v,
                                     uint32_t height)
{
    static const char split[] = {'N', 'M', 'K'};
    const fleet_linear *l = &plan->linear;
    const uint32_t shown = plan->n_tiles < SVG_COLOURS ? plan->n_tiles : SVG_COLOURS;
    uint32_t i;
    svg_put(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"%u\" "
            "viewBox=\"0 0 760 %u\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\" "
            "fill=\"#222\">\n<title>",
            height, height);
    svg_put_xml(out, name ? name : "linear layer", SIZE_MAX);
    svg_put(out, "</title>\n<style>.n,.c{font-size:9px;text-anchor:middle}.c{fill:#222}"
                 ".e{font-size:9px;text-anchor:end}" SVG_DARK "</style>\n");
    svg_put(out, "<rect width=\"760\" height=\"%u\" fill=\"#fbfbfb\"/>\n", height);
    svg_put(out, "<text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"bold\">");
    svg_put_xml(out, name ? name : "linear layer", 40);
    svg_put(out, ": [%u, %u] = [%u, %u] x [%u, %u]</text>\n", l->m, l->n, l->m, l->k, l->k, l->n);
    svg_put(out, "<text x=\"16\" y=\"44\">");
    svg_put_xml(out, topology->name, sizeof topology->name);
    if (plan->level == FLEET_LEVEL_CU)
        svg_put(out, ", chiplet 0 of %u, %u CU-tasks in all, drawn as dealt out in turn",
                plan->chiplets, v->tiles);
    else
        svg_put(out, ", chiplet %u of %u, slice %u of %u, split %c", v->slice % plan->chiplets,
                plan->chiplets, v->slice, plan->slices, split[l->split]);
    svg_put(out, ": %u x %u tiles of %u x %u</text>\n", v->part.m_tiles, v->part.n_tiles, l->tile_m,
            l->tile_n);
    svg_put(out, "<text x=\"16\" y=\"60\">%s %u workers, %s %u of %u steps; grey: no tile</text>\n",
            v->workers < plan->workers ? "drawn: the first" : "drawn: all", v->workers,
            v->steps < v->all_steps ? "the first" : "all", v->steps, v->all_steps);
    svg_put(out, "<text x=\"16\" y=\"80\">weight column:</text>\n");
    for (i = 0; i < shown; i++)
        svg_put(out,
                "<rect x=\"%u\" y=\"69\" width=\"14\" height=\"14\" fill=\"%s\"/>"
                "<text class=\"c\" x=\"%u\" y=\"79\">%u</text>\n",
                110 + i * 18, svg_colour(i), 117 + i * 18, i);
    if (plan->n_tiles > shown)
        svg_put(out, "<text x=\"%u\" y=\"80\">and on to %u in the same colours</text>\n",
                116 + shown * 18, plan->n_tiles - 1);
}

/* Writes the picture into at most `bytes` bytes with the final 0; returns the length that it needs without it, as
   snprintf does. name: of the operator, or null. topology: that for which the plan was chosen. Draws at most
   PLAN_PICTURE_WORKERS workers and PLAN_PICTURE_STEPS steps. A null argument, and a plan that fleet_linear_choose has
   refused, give an empty text and 0. */
static inline size_t plan_picture(const fleet_linear_plan *plan, const char *name,
                                  const fleet_topology *topology, char *text, size_t bytes)
{
    static const uint32_t traversals[3] = {FLEET_TRAVERSAL_N_MAJOR, FLEET_TRAVERSAL_WINDOWED,
                                           FLEET_TRAVERSAL_M_MAJOR};
    svg_text out = svg_text_in(text, bytes);
    plan_picture_view v;
    uint32_t i, panel;
    if (!plan || !topology || !plan->slices) return 0;
    v = plan_picture_view_of(plan);
    panel = v.workers * v.height + 80;
    plan_picture_head(&out, plan, name, topology, &v, 100 + 3 * panel);
    for (i = 0; i < 3; i++) {
        fleet_linear one = plan->linear;
        one.traversal = traversals[i];
        if (plan->linear.traversal != FLEET_TRAVERSAL_WINDOWED) /* about square blocks */
            for (one.window = 1; one.window * one.window < plan->workers;) one.window++;
        plan_picture_panel(&out, plan, topology, &one, &v, 98 + i * panel);
    }
    svg_put(&out, "</svg>\n");
    return out.length;
}

#endif /* PLAN_PICTURE_H */
