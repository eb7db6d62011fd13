/* trace_picture.h - draws the timeline of a traced launch

   After fleet_trace_read (../parts/fleet_trace.h):
       size_t bytes = trace_picture(&log, 0, 0, NULL, 0) + 1;
       char *svg = malloc(bytes);
       trace_picture(&log, 0, 0, svg, bytes);

   trace_pictures draws several logs, one below the other and on one scale of time.

   The picture is SVG, without scripts and fonts of its own. Time runs to the right; each worker has a row, and rows are
   grouped by chiplet. Tiles have the colour of their kind, waits are grey, notifies are dark, and a red line is the
   critical path. Where several intervals fall on one point, the longest is drawn. examples/qwen3 writes it with
   --trace FILE.svg. Uses only the public part of fleet_trace.h. */
#ifndef TRACE_PICTURE_H
#define TRACE_PICTURE_H

#include "../parts/fleet_trace.h"
#include "svg.h"

#include <string.h>

#define TRACE_PICTURE_LEFT 72u /* of the rows, in pixels */
#ifndef TRACE_PICTURE_POINTS
#define TRACE_PICTURE_POINTS 1200u /* of time, side by side; default 1200, at least 600 */
#endif
#define TRACE_PICTURE_WIDTH (TRACE_PICTURE_LEFT + TRACE_PICTURE_POINTS + 36u)
#define TRACE_PICTURE_LEGEND 24u                            /* kinds named at most */
#define TRACE_PICTURE_COLUMNS (TRACE_PICTURE_POINTS / 300u) /* of the legend */
#define TRACE_PICTURE_WAIT SVG_COLOURS
#define TRACE_PICTURE_NOTIFY (SVG_COLOURS + 1u)
#define TRACE_PICTURE_FILLS (SVG_COLOURS + 2u)
#define TRACE_PICTURE_FREE 0xffffffffu

/* The steps that are shown, and where. */
typedef struct trace_picture_view {
    const fleet_trace_log *log;
    uint32_t first_step, last_step;
    uint32_t last; /* the task that ended last; FLEET_TRACE_NONE: there is none */
    uint64_t begin_ns, end_ns;
    double points_per_ns;
    uint32_t top, height; /* of all rows, and of one row, in pixels */
} trace_picture_view;

/* What is drawn on a point of a row, and how much of the point it covers. */
typedef struct trace_picture_point {
    uint32_t fill;
    float covered;
} trace_picture_point;

static inline const char *trace_picture_colour(uint32_t fill)
{
    if (fill == TRACE_PICTURE_WAIT) return "#c4c4c4";
    return fill == TRACE_PICTURE_NOTIFY ? "#555" : svg_colour(fill);
}

static inline int trace_picture_shows(const trace_picture_view *v, uint32_t step)
{
    return step >= v->first_step && step <= v->last_step;
}

/* Steps as in fleet_trace_report. */
static inline trace_picture_view trace_picture_view_of(const fleet_trace_log *log,
                                                       uint32_t first_step, uint32_t steps)
{
    const uint32_t last_step = log->steps ? log->steps - 1 : 0;
    const uint32_t named = log->kinds < TRACE_PICTURE_LEGEND ? log->kinds : TRACE_PICTURE_LEGEND;
    trace_picture_view v;
    memset(&v, 0, sizeof v);
    v.log = log;
    v.first_step = steps ? first_step : last_step;
    v.last_step = v.first_step + (steps ? steps - 1 : 0);
    if (v.last_step < v.first_step || v.last_step > last_step) v.last_step = last_step;
    v.last = FLEET_TRACE_NONE;
    v.begin_ns = UINT64_MAX;
    for (uint32_t i = 0; i < log->n_tasks; i++) {
        const fleet_trace_task *t = &log->tasks[i];
        if (!trace_picture_shows(&v, t->step)) continue;
        if (t->wait_begin_ns < v.begin_ns) v.begin_ns = t->wait_begin_ns;
        if (v.last != FLEET_TRACE_NONE && t->notify_end_ns <= v.end_ns) continue;
        v.end_ns = t->notify_end_ns;
        v.last = i;
    }
    if (v.last == FLEET_TRACE_NONE) v.begin_ns = 0;
    v.points_per_ns =
        TRACE_PICTURE_POINTS / (double)(v.end_ns > v.begin_ns ? v.end_ns - v.begin_ns : 1);
    v.top = 60 + (named + 2) / TRACE_PICTURE_COLUMNS * 18;
    v.height = log->workers <= 16 ? 20 : log->workers <= 64 ? 12 : 7;
    return v;
}

static inline uint32_t trace_picture_row_top(const trace_picture_view *v, uint32_t worker)
{
    uint32_t chiplet = 0, end = v->log->chiplet_workers[0];
    while (chiplet + 1 < v->log->chiplets && worker >= end)
        end += v->log->chiplet_workers[++chiplet];
    return v->top + worker * v->height + 8 * chiplet;
}
static inline double trace_picture_x(const trace_picture_view *v, uint64_t ns)
{
    return (double)(ns - v->begin_ns) * v->points_per_ns;
}

static inline void trace_picture_interval(const trace_picture_view *v, trace_picture_point *row,
                                          uint32_t fill, uint64_t begin_ns, uint64_t end_ns)
{
    const double begin = trace_picture_x(v, begin_ns), end = trace_picture_x(v, end_ns);
    for (uint32_t x = (uint32_t)begin; x < TRACE_PICTURE_POINTS && x < end; x++) {
        const double from = begin > x ? begin : x, to = end < x + 1 ? end : x + 1;
        if ((float)(to - from) <= row[x].covered) continue;
        row[x].covered = (float)(to - from);
        row[x].fill = fill;
    }
}
/* One wave's part of a worker's row, whose tasks are [first, end) of the log. */
static inline void trace_picture_row(const trace_picture_view *v, trace_picture_point *row,
                                     uint32_t first, uint32_t end, uint32_t wave)
{
    for (uint32_t x = 0; x < TRACE_PICTURE_POINTS; x++)
        row[x].fill = TRACE_PICTURE_FREE, row[x].covered = 0;
    for (uint32_t i = first; i < end; i++) {
        const fleet_trace_task *t = &v->log->tasks[i];
        if (!trace_picture_shows(v, t->step) || (t->share > 1 && t->wave != wave)) continue;
        trace_picture_interval(v, row, TRACE_PICTURE_WAIT, t->wait_begin_ns, t->run_begin_ns);
        trace_picture_interval(v, row, t->kind % SVG_COLOURS, t->run_begin_ns, t->run_end_ns);
        trace_picture_interval(v, row, TRACE_PICTURE_NOTIFY, t->run_end_ns, t->notify_end_ns);
    }
}

/* The end of the tasks of a worker, which begin at `first`; *waves: 1 + the highest number of a wave among them. */
static inline uint32_t trace_picture_row_end(const trace_picture_view *v, uint32_t worker,
                                             uint32_t first, uint32_t *waves)
{
    uint32_t i = first;
    for (*waves = 1; i < v->log->n_tasks && v->log->tasks[i].worker == worker; i++)
        if (trace_picture_shows(v, v->log->tasks[i].step) && v->log->tasks[i].wave >= *waves)
            *waves = v->log->tasks[i].wave + 1;
    return i;
}

/* All intervals of one fill as one shape, a few bytes each. */
static inline void trace_picture_put_fill(svg_text *out, const trace_picture_view *v, uint32_t fill)
{
    trace_picture_point row[TRACE_PICTURE_POINTS];
    uint32_t first = 0, waves, end;
    svg_put(out, "<path fill=\"%s\" d=\"", trace_picture_colour(fill));
    for (uint32_t w = 0; w < v->log->workers; w++, first = end) {
        end = trace_picture_row_end(v, w, first, &waves);
        for (uint32_t wave = 0; wave < waves; wave++) {
            const double height = (double)(v->height - 1) / waves;
            trace_picture_row(v, row, first, end, wave);
            for (uint32_t x = 0, next; x < TRACE_PICTURE_POINTS; x = next) {
                for (next = x + 1; next < TRACE_PICTURE_POINTS && row[next].fill == row[x].fill;)
                    next++;
                if (row[x].fill == fill)
                    svg_put(out, "M%u %gh%uv%gh-%uz", TRACE_PICTURE_LEFT + x,
                            trace_picture_row_top(v, w) + wave * height, next - x, height,
                            next - x);
            }
        }
    }
    svg_put(out, "\"/>\n");
}

static inline void trace_picture_put_rows(svg_text *out, const trace_picture_view *v)
{
    for (uint32_t k = 0, worker = 0; k < v->log->chiplets; k++) {
        const uint32_t workers = v->log->chiplet_workers[k], height = workers * v->height;
        const uint32_t top = trace_picture_row_top(v, worker);
        worker += workers;
        if (!workers) continue;
        svg_put(out,
                "<rect x=\"%u\" y=\"%u\" width=\"%u\" height=\"%u\" fill=\"#eee\"/>"
                "<text class=\"e\" x=\"%u\" y=\"%u\">chiplet %u</text>\n",
                TRACE_PICTURE_LEFT, top, TRACE_PICTURE_POINTS, height, TRACE_PICTURE_LEFT - 6,
                top + (height + 8) / 2, k);
    }
    for (uint32_t fill = 0; fill < TRACE_PICTURE_FILLS; fill++)
        trace_picture_put_fill(out, v, fill);
}

/* The critical path, from its end to its begin. */
static inline void trace_picture_put_path(svg_text *out, const trace_picture_view *v)
{
    const fleet_trace_task *tasks = v->log->tasks;
    svg_put(out, "<polyline fill=\"none\" stroke=\"#d00000\" stroke-width=\"1.5\" points=\"");
    for (uint32_t i = v->last; i != FLEET_TRACE_NONE && trace_picture_shows(v, tasks[i].step);
         i = tasks[i].after) {
        const double y = trace_picture_row_top(v, tasks[i].worker) + (v->height - 1) / 2.0;
        svg_put(out, "%.1f,%.1f %.1f,%.1f ",
                TRACE_PICTURE_LEFT + trace_picture_x(v, tasks[i].run_end_ns), y,
                TRACE_PICTURE_LEFT + trace_picture_x(v, tasks[i].run_begin_ns), y);
    }
    svg_put(out, "\"/>\n");
}

static inline void trace_picture_put_legend_entry(svg_text *out, uint32_t number, uint32_t fill)
{
    const uint32_t x = 16 + number % TRACE_PICTURE_COLUMNS * 310;
    const uint32_t y = 42 + number / TRACE_PICTURE_COLUMNS * 18;
    svg_put(out, "<rect x=\"%u\" y=\"%u\" width=\"12\" height=\"12\" fill=\"%s\"/>", x, y,
            trace_picture_colour(fill));
    svg_put(out, "<text x=\"%u\" y=\"%u\">", x + 18, y + 10);
}

/* Each kind with the sums of its tasks, then the waits and notifies of all workers. */
static inline void trace_picture_put_legend(svg_text *out, const trace_picture_view *v)
{
    const uint32_t kinds = v->log->kinds;
    const uint32_t named = kinds < TRACE_PICTURE_LEGEND ? kinds : TRACE_PICTURE_LEGEND;
    double wait_ns = 0, notify_ns = 0;
    for (uint32_t kind = 0; kind < named; kind++) {
        char name[64];
        uint64_t run_ns = 0;
        uint32_t tasks = 0;
        for (uint32_t i = 0; i < v->log->n_tasks; i++) {
            const fleet_trace_task *t = &v->log->tasks[i];
            if (t->kind != kind || t->absent || !trace_picture_shows(v, t->step)) continue;
            run_ns += t->run_end_ns - t->run_begin_ns;
            tasks++;
        }
        fleet_trace_kind_name(v->log, kind, name, sizeof name);
        trace_picture_put_legend_entry(out, kind, kind % SVG_COLOURS);
        svg_put_xml(out, name, 20);
        svg_put(out, ": %u tasks, %.2f us</text>\n", tasks, (double)run_ns / 1e3);
    }
    for (uint32_t i = 0; i < v->log->n_tasks; i++) {
        const fleet_trace_task *t = &v->log->tasks[i];
        if (!trace_picture_shows(v, t->step)) continue;
        wait_ns += (double)(t->run_begin_ns - t->wait_begin_ns) / t->share;
        notify_ns += (double)(t->notify_end_ns - t->run_end_ns) / t->share;
    }
    trace_picture_put_legend_entry(out, named, TRACE_PICTURE_WAIT);
    svg_put(out, "wait: %.2f us</text>\n", wait_ns / 1e3);
    trace_picture_put_legend_entry(out, named + 1, TRACE_PICTURE_NOTIFY);
    svg_put(out, "notify: %.2f us</text>\n", notify_ns / 1e3);
    if (kinds > named)
        svg_put(out, "<text x=\"%u\" y=\"%u\">and %u kinds more, in the same colours</text>\n",
                16 + (named + 2) % TRACE_PICTURE_COLUMNS * 310,
                52 + (named + 2) / TRACE_PICTURE_COLUMNS * 18, kinds - named);
}

static inline uint32_t trace_picture_bottom(const trace_picture_view *v)
{
    return trace_picture_row_top(v, v->log->workers - 1) + v->height;
}

static inline void trace_picture_put_head(svg_text *out, uint32_t height, const char *title)
{
    svg_put(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" "
            "viewBox=\"0 0 %u %u\" role=\"img\" font-family=\"sans-serif\" font-size=\"12\" "
            "fill=\"#222\">\n<title>",
            TRACE_PICTURE_WIDTH, height, TRACE_PICTURE_WIDTH, height);
    svg_put_xml(out, title, SIZE_MAX);
    svg_put(out,
            "</title>\n<style>.e{font-size:9px;text-anchor:end}"
            ".n{font-size:9px;text-anchor:middle}%s</style>\n"
            "<rect width=\"%u\" height=\"%u\" fill=\"#fbfbfb\"/>\n",
            SVG_DARK, TRACE_PICTURE_WIDTH, height);
}

/* A log with its title, its legend and the scale of time. */
static inline void trace_picture_put_log(svg_text *out, const trace_picture_view *v,
                                         const char *title)
{
    const uint32_t bottom = trace_picture_bottom(v);
    svg_put(out, "<text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"bold\">");
    svg_put_xml(out, title, SIZE_MAX);
    svg_put(out, "; red: the critical path</text>\n");
    trace_picture_put_legend(out, v);
    trace_picture_put_rows(out, v);
    trace_picture_put_path(out, v);
    for (uint32_t i = 0; i <= 8; i++)
        svg_put(out, "<text class=\"n\" x=\"%u\" y=\"%u\">%.2f us</text>\n",
                TRACE_PICTURE_LEFT + i * (TRACE_PICTURE_POINTS / 8), bottom + 14,
                TRACE_PICTURE_POINTS / v->points_per_ns * i / 8e3);
}

/* Draws `steps` steps from first_step on; steps 0: the last one that has records. Writes at most `bytes` bytes with the
   final 0, and returns the length that the picture needs without it, as snprintf does. 0: there is no log. */
static inline size_t trace_picture(const fleet_trace_log *log, uint32_t first_step, uint32_t steps,
                                   char *text, size_t bytes)
{
    svg_text out = svg_text_in(text, bytes);
    trace_picture_view v;
    char title[256];
    if (!log || !log->workers) return 0;
    v = trace_picture_view_of(log, first_step, steps);
    fleet_trace_report(log, first_step, steps, title, sizeof title);
    title[strcspn(title, "\n")] = 0; /* its first line */
    trace_picture_put_head(&out, trace_picture_bottom(&v) + 28, title);
    trace_picture_put_log(&out, &v, title);
    svg_put(&out, "</svg>\n");
    return out.length;
}

/* Draws the last step of `count` logs under their titles, one below the other and on one scale of time. Writes and
   returns as trace_picture does; 0: there is no log. */
static inline size_t trace_pictures(const fleet_trace_log *logs, const char *const *titles,
                                    uint32_t count, const char *title, char *text, size_t bytes)
{
    svg_text out = svg_text_in(text, bytes);
    trace_picture_view v;
    double points_per_ns = 0;
    uint32_t height = 0, top = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (!logs[i].workers) return 0;
        v = trace_picture_view_of(&logs[i], 0, 0);
        if (!i || v.points_per_ns < points_per_ns) points_per_ns = v.points_per_ns;
        height += trace_picture_bottom(&v) + 28;
    }
    if (!count) return 0;
    trace_picture_put_head(&out, height, title);
    for (uint32_t i = 0; i < count; i++) {
        v = trace_picture_view_of(&logs[i], 0, 0);
        v.points_per_ns = points_per_ns;
        svg_put(&out, "<g transform=\"translate(0 %u)\">\n", top);
        trace_picture_put_log(&out, &v, titles[i]);
        svg_put(&out, "</g>\n");
        top += trace_picture_bottom(&v) + 28;
    }
    svg_put(&out, "</svg>\n");
    return out.length;
}

#endif /* TRACE_PICTURE_H */
