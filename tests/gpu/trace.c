/* The trace: one record for each task of each step, times in the order in which the graph has tasks run, and what the
   report, the JSON and the picture say of them. */
// run: asan whole engine=both
// run: tsan whole
// run: plain whole engine=both
// hip: 6 runs
#define FLEET_TRACE
#include "model.h"

#include "examples/tools/trace_picture.h"

#define MOST_TEXT (4u << 20)

static char text[MOST_TEXT];

/* ---- a traced rig ---- */

typedef struct traced {
    rig r;
    fleet_trace trace;
    fleet_trace_log log;
    uint32_t expects; /* records of a step */
} traced;

static int traced_open(test_run *t, traced *o, model *m, const setting *s, uint32_t records,
                       uint32_t first_step)
{
    fleet_trace_desc d = fleet_trace_desc_default();
    memset(o, 0, sizeof *o);
    if (!rig_open(t, &o->r, m, s)) return 0;
    d.records = records;
    d.first_step = first_step;
    NEED_STATUS(fleet_trace_create(&o->trace, o->r.plan, &d, NULL), FLEET_OK);
    o->r.launch.trace = &o->trace;
    o->expects = o->r.w.n_cells;
    return 1;
}
static int traced_run(test_run *t, traced *o, uint32_t steps)
{
    NEED_STATUS(rig_launch(&o->r, steps), FLEET_OK);
    if (!ended_with(t, &o->r.state, FLEET_OK)) return 0;
    fleet_trace_log_free(&o->log);
    NEED_STATUS(fleet_trace_read(&o->log, &o->trace, o->r.stream), FLEET_OK);
    return 1;
}
static void traced_close(traced *o)
{
    fleet_trace_log_free(&o->log);
    fleet_trace_free(&o->trace);
    rig_close(&o->r);
}

/* The cell of a record: which part of which task it was. */
static uint32_t cell_of(const traced *o, const fleet_trace_task *task)
{
    const uint32_t *first = o->r.initial + o->r.cell_of_at;
    return first[task->task] + task->slice * o->r.w.parts + task->part;
}

/* ---- records ---- */

/* Each part of each task has `want` records in a step, and they name their worker. */
static int counts_are(test_run *t, const traced *o, uint32_t step, uint32_t want)
{
    const uint32_t *first = o->r.initial + o->r.cell_of_at;
    uint32_t *times = (uint32_t *)calloc(o->r.n_all_cells + 1, 4), i, s, j;
    const fleet_trace_log *log = &o->log;
    if (!times) abort();
    for (i = 0; i < log->n_tasks && !t->failed_here; i++) {
        const fleet_trace_task *task = &log->tasks[i];
        const model_grid *g = rig_grid_of(&o->r, task->task);
        if (task->step != step) continue;
        if (cell_of(o, task) >= o->r.n_all_cells || task->grid != (uint32_t)(g - o->r.m->grids))
            test_fail(t, __FILE__, __LINE__, "record %u is of no task", i);
        else if (task->worker - o->r.plan->worker_base[task->chiplet] >=
                     o->r.plan->workers[task->chiplet] ||
                 (task->wave && (g->level != FLEET_LEVEL_WAVE || task->wave >= log->waves)))
            test_fail(t, __FILE__, __LINE__, "record %u: chiplet %u, worker %u, wave %u", i,
                      task->chiplet, task->worker, task->wave);
        else
            times[cell_of(o, task)]++;
    }
    for (i = 0; i < o->r.n_tasks && !t->failed_here; i++) {
        const model_grid *g = rig_grid_of(&o->r, i);
        for (s = 0; s < rig_slices(&o->r, g); s++)
            for (j = 0; j < rig_parts(&o->r, g, i, s); j++)
                if (times[first[i] + s * o->r.w.parts + j] != want)
                    test_fail(t, __FILE__, __LINE__,
                              "step %u: %s[%u] slice %u part %u has %u records", step, g->name,
                              i - g->first, s, j, times[first[i] + s * o->r.w.parts + j]);
    }
    free(times);
    return !t->failed_here;
}

/* Consumers began after their producers had ended; of those, and of the task before on the worker, `after` is the one
   that was done last. */
static int order_is_right(test_run *t, const traced *o)
{
    uint8_t *before = model_before(o->r.m);
    const fleet_trace_log *log = &o->log;
    uint32_t i, j;
    for (i = 0; i < log->n_tasks && !t->failed_here; i++) {
        const fleet_trace_task *c = &log->tasks[i];
        uint64_t latest = 0,
                 told = c->after == FLEET_TRACE_NONE ? 0 : log->tasks[c->after].notify_end_ns;
        uint32_t producers = 0;
        if (c->wait_begin_ns > c->run_begin_ns || c->run_begin_ns > c->run_end_ns ||
            c->run_end_ns > c->notify_end_ns)
            test_fail(t, __FILE__, __LINE__, "record %u goes back in time", i);
        if (i && c->worker == c[-1].worker && c->wave == c[-1].wave &&
            c->wait_begin_ns < c[-1].notify_end_ns)
            test_fail(t, __FILE__, __LINE__, "record %u begins within the one before", i);
        for (j = 0; j < log->n_tasks && !t->failed_here; j++) {
            const fleet_trace_task *p = &log->tasks[j];
            if (p->step != c->step || !before[(size_t)c->task * o->r.n_tasks + p->task]) continue;
            producers++;
            if (p->run_end_ns > c->run_begin_ns)
                test_fail(t, __FILE__, __LINE__, "task %u began %u ns before the end of task %u",
                          c->task, (unsigned)(p->run_end_ns - c->run_begin_ns), p->task);
            if (p->notify_end_ns > latest) latest = p->notify_end_ns;
        }
        if (i && c->worker == c[-1].worker && c[-1].notify_end_ns > latest && log->waves == 1)
            latest = c[-1].notify_end_ns;
        if (told < latest || (told > latest && c->step == 0 && log->waves == 1))
            test_fail(t, __FILE__, __LINE__,
                      "task %u came after one that was done at %u, not %u ns", c->task,
                      (unsigned)told, (unsigned)latest);
        if (!t->failed_here && (producers != 0) != (c->awaited != 0) && (producers || c->step == 0))
            test_fail(t, __FILE__, __LINE__, "task %u waits for counter %u, but has %u producers",
                      c->task, c->awaited, producers);
    }
    free(before);
    return !t->failed_here;
}

static void run_levels(test_run *t, const setting *s, void *model_)
{
    traced o;
    uint32_t step;
    if (!traced_open(t, &o, (model *)model_, s, 1024, 0)) return;
    if (!traced_run(t, &o, 3)) return;
    if (!rig_check(t, &o.r, 3)) return;
    CHECK_INT(o.log.dropped, 0);
    CHECK_INT(o.log.steps, 3);
    for (step = 0; step < 3; step++)
        if (!counts_are(t, &o, step, 1)) return;
    CHECK_INT(o.log.n_tasks, 3 * o.expects);
    if (!order_is_right(t, &o)) return;
    /* The next launch clears it. */
    if (!traced_run(t, &o, 1)) return;
    CHECK_INT(o.log.n_tasks, o.expects);
    if (!counts_are(t, &o, 0, 1)) return;
    traced_close(&o);
}

static void every_task_has_one_record(test_run *t)
{
    model m;
    model_levels(&m, 4);
    in_settings(t, 12, run_levels, &m);
    model_end(&m);
}

static void run_variants(test_run *t, const setting *s, void *unused)
{
    setting other = *s;
    model m;
    (void)unused;
    model_levels(&m, 3);
    if (s->schedule == FLEET_SCHEDULE_STATIC) other.mixed = s->seed % 2 ? 0x15 : 0xa;
    if (s->schedule == FLEET_SCHEDULE_DYNAMIC) other.early = 1;
    if (s->schedule == FLEET_SCHEDULE_CHIPLET) other.unaware = 1;
    run_levels(t, &other, &m);
    if (t->failed_here) setting_print(&other);
    model_end(&m);
}

static void mixed_early_and_unaware(test_run *t)
{
    in_settings(t, 3, run_variants, NULL);
}

/* Several waves of a worker at once, and more tasks than waves. */
static void run_waves(test_run *t, const setting *s_, void *model_)
{
    setting s = *s_;
    s.waves = 4;
    run_levels(t, &s, model_);
}

static void waves_of_a_worker(test_run *t)
{
    model m;
    model_levels(&m, 7);
    in_settings(t, 2, run_waves, &m);
    model_end(&m);
}

/* Rows of three records: the rest is counted. */
static void run_full(test_run *t, const setting *s, void *model_)
{
    traced o;
    uint32_t i, row = 0;
    if (!traced_open(t, &o, (model *)model_, s, 3, 0)) return;
    if (!traced_run(t, &o, 2)) return;
    if (!rig_check(t, &o.r, 2)) return;
    CHECK_INT(o.log.n_tasks + o.log.dropped, 2 * o.expects);
    for (i = 0; i < o.log.n_tasks; i++) {
        row = i && o.log.tasks[i].worker == o.log.tasks[i - 1].worker ? row + 1 : 1;
        CHECK(row <= 3);
    }
    if (o.log.dropped) {
        char words[64];
        snprintf(words, sizeof words, "%u records of the launch dropped", (unsigned)o.log.dropped);
        CHECK(fleet_trace_report(&o.log, 0, 2, text, sizeof text) < sizeof text);
        CHECK_TEXT(text, words);
    }
    traced_close(&o);
}

static void what_does_not_fit_is_counted(test_run *t)
{
    model m;
    model_levels(&m, 6);
    in_settings(t, 6, run_full, &m);
    model_end(&m);
}

static void run_from_a_step(test_run *t, const setting *s, void *model_)
{
    traced o;
    if (!traced_open(t, &o, (model *)model_, s, 1024, 2)) return;
    if (!traced_run(t, &o, 4)) return;
    CHECK_INT(o.log.n_tasks, 2 * o.expects);
    CHECK_INT(o.log.dropped, 0);
    CHECK_INT(o.log.steps, 4);
    if (!counts_are(t, &o, 0, 0) || !counts_are(t, &o, 1, 0)) return;
    if (!counts_are(t, &o, 2, 1) || !counts_are(t, &o, 3, 1)) return;
    /* Not one step: no worker leaves a record, but that it was there. */
    if (!traced_run(t, &o, 1)) return;
    CHECK_INT(o.log.n_tasks, 0);
    CHECK(fleet_trace_report(&o.log, 0, 0, text, sizeof text) > 0);
    CHECK(trace_picture(&o.log, 0, 0, text, sizeof text) > 0);
    traced_close(&o);
}

static void from_a_step_on(test_run *t)
{
    model m;
    model_levels(&m, 3);
    in_settings(t, 4, run_from_a_step, &m);
    model_end(&m);
}

/* ---- failures ---- */

static void run_failing(test_run *t, const setting *s, void *model_)
{
    const model *m = (const model *)model_;
    const uint32_t odd = m->grids[2].first;
    uint32_t i, seen = 0, later = 0, records;
    fleet_status status;
    traced o;
    if (!traced_open(t, &o, (model *)model_, s, 1024, 0)) return;
    if (!rig_odd(t, &o.r, ODD_FAIL_ALL, odd, ODD_EVERY, 1)) return;
    CHECK_STATUS(rig_run(&o.r, 3), FLEET_ERROR_TILE);
    CHECK_STATUS(fleet_trace_read(&o.log, &o.trace, NULL), FLEET_OK);
    if (!counts_are(t, &o, 0, 1)) return;
    for (i = 0; i < o.log.n_tasks; i++) {
        seen += o.log.tasks[i].step == 1 && o.log.tasks[i].task == odd;
        later += o.log.tasks[i].step == 2 ||
                 (o.log.tasks[i].step == 1 && o.log.tasks[i].task >= m->grids[4].first);
    }
    CHECK(seen > 0);
    CHECK_INT(later, 0);
    CHECK(fleet_trace_report(&o.log, 0, 3, text, sizeof text) > 0);
    records = o.log.n_tasks;
    fleet_trace_log_free(&o.log);
    /* A launch that is refused leaves the records of the one before. */
    CHECK_STATUS(rig_launch(&o.r, 1), FLEET_OK);
    status = fleet_state_wait(&o.r.state, NULL);
    CHECK(status == FLEET_ERROR_TILE || status == FLEET_ERROR_POISONED);
    CHECK_STATUS(fleet_trace_read(&o.log, &o.trace, NULL), FLEET_OK);
    CHECK_INT(o.log.n_tasks, records);
    if (!counts_are(t, &o, 0, 1)) return;
    fleet_trace_log_free(&o.log);
    if (!rig_recover(t, &o.r)) return;
    if (!traced_run(t, &o, 1)) return;
    if (!counts_are(t, &o, 0, 1)) return;
    traced_close(&o);
}

static void a_failed_run_leaves_what_it_did(test_run *t)
{
    model m;
    model_levels(&m, 3);
    in_settings(t, 4, run_failing, &m);
    model_end(&m);
}

static void wrong_arguments(test_run *t)
{
    model m, n;
    setting s;
    traced o;
    rig other;
    fleet_trace_desc d = fleet_trace_desc_default();
    fleet_trace trace;
    fleet_trace_log log;
    fleet_launch_desc launch;
    CHECK(setting_get(0, 1, &s));
    model_split_row_sum(&m, 3, 2);
    model_split_row_sum(&n, 2, 2);
    if (!traced_open(t, &o, &m, &s, 16, 0) || !rig_open(t, &other, &n, &s)) return;
    /* Nothing was launched with it yet. */
    CHECK_STATUS(fleet_trace_read(&log, &o.trace, NULL), FLEET_ERROR_UNSUPPORTED);
    other.launch.trace = &o.trace;
    CHECK_STATUS(rig_launch(&other, 1), FLEET_ERROR_ARGUMENT);
    fleet_state_report(&other.state, text, sizeof text);
    CHECK_TEXT(text, "fleet_launch_desc.trace was made for another plan");
    other.launch.trace = NULL;
    CHECK_STATUS(rig_run(&other, 1), FLEET_OK);
    /* Launches without the trace, and tasks alone, leave nothing in it. */
    if (!traced_run(t, &o, 1)) return;
    launch = o.r.launch;
    o.r.launch.trace = NULL;
    CHECK_STATUS(
        fleet_launch_task(&o.r.state, &launch, FLEET_KERNEL_OF(world_kernel), o.r.device, 0, 0),
        FLEET_OK);
    CHECK_STATUS(rig_run(&o.r, 2), FLEET_OK);
    fleet_trace_log_free(&o.log);
    CHECK_STATUS(fleet_trace_read(&o.log, &o.trace, NULL), FLEET_OK);
    if (!counts_are(t, &o, 0, 1)) return;
    CHECK_INT(o.log.steps, 1);
    CHECK_STATUS(fleet_trace_create(NULL, o.r.plan, NULL, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_trace_create(&trace, NULL, NULL, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_trace_init(&trace, o.r.plan, NULL, NULL, NULL), FLEET_ERROR_NULL);
    d.records = 0;
    CHECK_INT(fleet_trace_bytes(o.r.plan, &d), 0);
    CHECK_INT(fleet_trace_bytes(NULL, NULL), 0);
    CHECK_STATUS(fleet_trace_create(&trace, o.r.plan, &d, NULL), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_trace_read(NULL, &o.trace, NULL), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_trace_read(&log, NULL, NULL), FLEET_ERROR_NULL);
    fleet_trace_free(NULL);
    fleet_trace_log_free(NULL);
    CHECK_INT(fleet_trace_report(NULL, 0, 0, text, sizeof text), 0);
    CHECK_INT(fleet_trace_json(NULL, 0, 0, text, sizeof text), 0);
    CHECK_INT(trace_picture(NULL, 0, 0, text, sizeof text), 0);
    traced_close(&o);
    rig_close(&other);
    model_end(&m);
    model_end(&n);
}

/* ---- what is written ---- */

/* Strict JSON: returns what follows the value, or null. */
static const char *json_value(const char *at, uint32_t *objects);

static const char *json_string(const char *at)
{
    if (!at || *at++ != '"') return NULL;
    for (; *at && *at != '"'; at++) {
        if ((unsigned char)*at < ' ') return NULL;
        if (*at == '\\' && !strchr("\"\\/bfnrt", *++at)) return NULL;
    }
    return *at ? at + 1 : NULL;
}
static const char *json_digits(const char *at)
{
    if (!at || *at < '0' || *at > '9') return NULL;
    while (*at >= '0' && *at <= '9') at++;
    return at;
}
static const char *json_number(const char *at)
{
    if (*at == '-') at++;
    at = *at == '0' ? at + 1 : json_digits(at);
    if (at && *at == '.') at = json_digits(at + 1);
    return at;
}
static const char *json_space(const char *at)
{
    while (*at == ' ' || *at == '\n') at++;
    return at;
}
static const char *json_list(const char *at, char end, uint32_t *objects)
{
    at = json_space(at + 1);
    if (*at == end) return at + 1;
    for (;;) {
        if (end == '}') {
            at = json_string(at);
            if (!at || *at++ != ':') return NULL;
        }
        at = json_value(at, objects);
        if (!at) return NULL;
        at = json_space(at);
        if (*at == end) return at + 1;
        if (*at != ',') return NULL;
        at = json_space(at + 1);
    }
}
static const char *json_value(const char *at, uint32_t *objects)
{
    *objects += *at == '{';
    if (*at == '{') return json_list(at, '}', objects);
    if (*at == '[') return json_list(at, ']', objects);
    return *at == '"' ? json_string(at) : json_number(at);
}

/* Well-formed XML as far as a picture has it: tags balance, attributes are quoted, no stray < or &. */
static int xml_is_well(const char *at)
{
    const char *open[16];
    size_t length[16];
    uint32_t depth = 0, roots = 0;
    while (*at) {
        const char *name;
        size_t n;
        int closes;
        if (*at == '&') {
            if (at[1] != '#' || !(at = json_digits(at + 2)) || *at++ != ';') return 0;
            continue;
        }
        if (*at != '<') {
            if (!depth && *at != '\n') return 0;
            at++;
            continue;
        }
        closes = *++at == '/';
        at += closes;
        for (name = at; (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z');) at++;
        n = (size_t)(at - name);
        if (!n) return 0;
        if (closes) {
            if (*at != '>' || !depth || length[--depth] != n || memcmp(open[depth], name, n) != 0)
                return 0;
            at++;
            continue;
        }
        roots += !depth;
        while (*at == ' ') {
            at += 1 + strcspn(at + 1, "=<>/ \"");
            if (*at != '=' || at[1] != '"') return 0;
            at += 2 + strcspn(at + 2, "<\"");
            if (*at++ != '"') return 0;
        }
        if (at[0] == '/' && at[1] == '>') {
            at += 2;
            continue;
        }
        if (*at++ != '>' || depth == 16) return 0;
        open[depth] = name, length[depth++] = n;
    }
    return !depth && roots == 1;
}

static uint32_t times_in(const char *in, const char *part)
{
    uint32_t n = 0;
    for (; (in = strstr(in, part)) != NULL; in += strlen(part)) n++;
    return n;
}

/* The numbers after a grid's name in the report's table. */
static int grid_line(const char *grid, unsigned *tasks, double *total, double *mean, double *most)
{
    char start[32];
    const char *at;
    snprintf(start, sizeof start, "\n%-24s ", grid);
    at = strstr(text, start);
    return at && sscanf(at + strlen(start), "%u %lf %lf %lf", tasks, total, mean, most) == 4;
}
static int near(double a, double b)
{
    return a - b < 0.011 && b - a < 0.011;
}

static void check_report(test_run *t, const traced *o, uint32_t first, uint32_t steps)
{
    const fleet_trace_log *log = &o->log;
    uint32_t g, i;
    double shares[5];
    const char *at;
    const size_t length = fleet_trace_report(log, first, steps, text, sizeof text);
    CHECK(length < sizeof text && strlen(text) == length);
    for (g = 0; g < o->r.m->n_grids; g++) {
        uint64_t ran = 0, longest = 0;
        uint32_t n = 0;
        unsigned tasks = 0;
        double total = 0, mean = 0, most = 0;
        for (i = 0; i < log->n_tasks; i++) {
            const fleet_trace_task *task = &log->tasks[i];
            const uint64_t took = task->run_end_ns - task->run_begin_ns;
            if (task->grid != g || task->step < first || task->step - first >= steps) continue;
            n++, ran += took;
            if (took > longest) longest = took;
        }
        CHECK(n > 0);
        CHECK(grid_line(o->r.m->grids[g].name, &tasks, &total, &mean, &most));
        CHECK_INT(tasks, n);
        CHECK(near(total, (double)ran / 1e3) && near(mean, (double)ran / n / 1e3) &&
              near(most, (double)longest / 1e3));
    }
    at = strstr(text, "busy");
    CHECK(at && sscanf(at, "busy %lf%%, wait %lf%%, notify %lf%%, scheduling %lf%%, idle %lf%%",
                       &shares[0], &shares[1], &shares[2], &shares[3], &shares[4]) == 5);
    for (i = 0; i < 4; i++) shares[4] += shares[i];
    CHECK(shares[4] > 99.7);
    /* Waves that go on while the first one, not running just now, still notifies make it more. */
    if (log->waves == 1 || o->r.s.engine == FLEET_ENGINE_DETERMINISTIC) CHECK(shares[4] < 100.3);
    CHECK_TEXT(text, "arrivals furthest apart: E");
    CHECK_TEXT(text, "critical path: ");
    /* As snprintf: the size is known before there is memory, and what does not fit is left out. */
    CHECK_INT(fleet_trace_report(log, first, steps, NULL, 0), length);
    CHECK_INT(fleet_trace_report(log, first, steps, text, 10), length);
    CHECK_INT(strlen(text), 9);
}

static void check_json(test_run *t, const traced *o, uint32_t first, uint32_t steps)
{
    const fleet_plan *plan = o->log.plan;
    uint32_t objects = 0, i, tasks = 0, waits = 0;
    const size_t length = fleet_trace_json(&o->log, first, steps, text, sizeof text);
    const char *end;
    CHECK(length < sizeof text && strlen(text) == length);
    end = json_value(text, &objects);
    CHECK(end && *json_space(end) == 0);
    for (i = 0; i < o->log.n_tasks; i++) {
        const fleet_trace_task *task = &o->log.tasks[i];
        if (task->step < first || task->step - first >= steps) continue;
        tasks++;
        waits += task->run_begin_ns > task->wait_begin_ns;
    }
    CHECK_INT(times_in(text, "\"cat\":\"task\""), tasks);
    CHECK_INT(times_in(text, "\"cat\":\"wait\""), waits);
    CHECK_INT(times_in(text, "\"process_name\""), plan->chiplets);
    CHECK_INT(times_in(text, "\"thread_name\""), plan->total_workers * o->log.waves);
    CHECK_INT(times_in(text, "\"name\":\"g0(1)\""), steps);
    /* Outer object, otherData, each event and its arguments. */
    CHECK_INT(objects, 2 + 2 * plan->chiplets + 2 * plan->total_workers * o->log.waves + 2 * tasks +
                           waits + times_in(text, "\"cat\":\"notify\""));
}

static void check_svg(test_run *t, const traced *o, uint32_t first, uint32_t steps)
{
    const size_t length = trace_picture(&o->log, first, steps, text, sizeof text);
    CHECK(length < sizeof text && strlen(text) == length);
    CHECK(xml_is_well(text));
    CHECK_INT(times_in(text, ">chiplet "), o->log.plan->chiplets);
    CHECK_INT(times_in(text, "<polyline"), 1);
    for (uint32_t g = 0; g < o->r.m->n_grids; g++) CHECK_TEXT(text, o->r.m->grids[g].name);
}

/* Two logs in one picture. */
static void check_two(test_run *t, const traced *o)
{
    static const char *const titles[2] = {"one & two", "three"};
    fleet_trace_log logs[2];
    size_t length;
    logs[0] = logs[1] = o->log;
    length = trace_pictures(logs, titles, 2, "both", text, sizeof text);
    CHECK(length < sizeof text && strlen(text) == length);
    CHECK(xml_is_well(text));
    CHECK_INT(times_in(text, ">chiplet "), 2 * o->log.plan->chiplets);
    CHECK_INT(times_in(text, "<polyline"), 2);
    CHECK_TEXT(text, "one &#38; two");
    CHECK_TEXT(text, "three");
    CHECK_INT(trace_pictures(logs, titles, 0, "none", text, sizeof text), 0);
}

static void run_written(test_run *t, const setting *s_, void *model_)
{
    setting s = *s_;
    traced o;
    s.waves = s.seed / 2 % 2 ? 4 : 1;
    if (!traced_open(t, &o, (model *)model_, &s, 1024, 0)) return;
    if (!traced_run(t, &o, 3)) return;
    check_report(t, &o, 0, 2);
    if (!t->failed_here) check_json(t, &o, 1, 1);
    if (!t->failed_here) check_svg(t, &o, 0, 3);
    if (!t->failed_here) check_two(t, &o);
    /* Without steps: the last one. */
    if (t->failed_here) return;
    CHECK(fleet_trace_report(&o.log, 0, 0, text, sizeof text) > 0);
    CHECK_TEXT(text, ", step 2, ");
    CHECK(trace_picture(&o.log, 0, 0, text, sizeof text) > 0);
    CHECK_TEXT(text, ", step 2, ");
    traced_close(&o);
}

static void report_json_and_picture(test_run *t)
{
    model m;
    model_levels(&m, 4);
    in_settings(t, 5, run_written, &m);
    model_end(&m);
}

/* A log by hand: two tasks on worker 0, of which the second waits for the first and is the whole of the critical path
   with it. A point of the picture is one microsecond. */
static void a_made_log(test_run *t)
{
    static fleet_trace_task tasks[2];
    static fleet_trace_event event;
    const fleeti_event *e;
    char want[128];
    unsigned high;
    model m;
    setting s;
    traced o;
    CHECK(setting_get(0, 1, &s));
    model_split_row_sum(&m, 2, 1);
    if (!traced_open(t, &o, &m, &s, 16, 0)) return;
    if (!traced_run(t, &o, 1)) return;
    CHECK_INT(o.log.n_tasks, 4);
    memset(tasks, 0, sizeof tasks);
    memset(&event, 0, sizeof event);
    for (uint32_t i = 0; i < 4; i++)
        if (o.log.tasks[i].task % 2 == 0) tasks[o.log.tasks[i].task / 2] = o.log.tasks[i];
    e = events_of(o.log.plan) + fleet_plan_event(o.log.plan, "E0");
    tasks[0].worker = tasks[1].worker = tasks[0].chiplet = tasks[1].chiplet = 0;
    tasks[0].wait_begin_ns = 0;
    tasks[0].run_begin_ns = 100000;
    tasks[0].run_end_ns = 400000;
    tasks[0].notify_end_ns = 450000;
    tasks[0].after = FLEET_TRACE_NONE;
    tasks[1].wait_begin_ns = 460000;
    tasks[1].run_begin_ns = 700000;
    tasks[1].run_end_ns = tasks[1].notify_end_ns = 1200000;
    tasks[1].after = 0;
    event.counter = e->counter;
    event.arrivals = 2;
    event.waiters = 1;
    event.waited_ns = 240000;
    event.first_ns = 440000;
    event.last_ns = 450000;
    memcpy(o.log.tasks, tasks, sizeof tasks);
    o.log.n_tasks = 2;
    o.log.events[0] = event;
    o.log.n_events = 1;
    CHECK(trace_picture(&o.log, 0, 0, text, sizeof text) < sizeof text);
    CHECK(xml_is_well(text));
    high = o.r.plan->total_workers <= 16 ? 19 : o.r.plan->total_workers <= 64 ? 11 : 6;
    snprintf(want, sizeof want, "#7fb2e5\" d=\"M172 78h300v%uh-300z\"/>", high);
    CHECK_TEXT(text, want);
    snprintf(want, sizeof want, "#f2a65a\" d=\"M772 78h500v%uh-500z\"/>", high);
    CHECK_TEXT(text, want);
    snprintf(want, sizeof want, "#c4c4c4\" d=\"M72 78h100v%uh-100zM532 78h240v%uh-240z\"/>", high,
             high);
    CHECK_TEXT(text, want);
    snprintf(want, sizeof want, "#555\" d=\"M472 78h50v%uh-50z\"/>", high);
    CHECK_TEXT(text, want);
    snprintf(want, sizeof want, "points=\"1272.0,%.1f 772.0,%.1f 472.0,%.1f 172.0,%.1f \"",
             78 + high / 2.0, 78 + high / 2.0, 78 + high / 2.0, 78 + high / 2.0);
    CHECK_TEXT(text, want);
    /* Beside a shorter log, whose only tile ends after 400 us: both are drawn on the scale of the longer one. */
    {
        static const char *const titles[2] = {"long", "short"};
        fleet_trace_log logs[2];
        logs[0] = logs[1] = o.log;
        logs[1].n_tasks = 1;
        CHECK(trace_pictures(logs, titles, 2, "both", text, sizeof text) < sizeof text);
        snprintf(want, sizeof want, "#7fb2e5\" d=\"M172 78h300v%uh-300z\"/>", high);
        CHECK_INT(times_in(text, want), 2);
    }
    CHECK(fleet_trace_json(&o.log, 0, 0, text, sizeof text) < sizeof text);
    CHECK_TEXT(text, "\"name\":\"g1(0)\",\"cat\":\"task\",\"pid\":0,\"tid\":0,\"ts\":700.000,"
                     "\"dur\":500.000");
    CHECK(fleet_trace_report(&o.log, 0, 0, text, sizeof text) < sizeof text);
    CHECK_TEXT(text,
               "waited for longest: E0[0] in step 0: 240.00 us by 1 tasks; its last arrival, by "
               "g0(0,0) on worker 0, came 10.00 us after the first of 2\n");
    CHECK_TEXT(text, "critical path: 2 tasks, their tiles 800.00 of 1200.00 us: 1 of g0 300.00 us, "
                     "1 of g1 500.00 us\n");
    traced_close(&o);
    model_end(&m);
}

/* ---- a chain ---- */

typedef struct chain { /* what every tile sees */
    uint64_t ticks;
    uint32_t *word;
} chain;

FLEET_TILE(quick, chain)
{
    FLEET_UNUSED(ctx);
    FLEET_UNUSED(args);
    FLEET_UNUSED(at);
    return FLEET_OK;
}
FLEET_TILE(slow, chain)
{
    const uint64_t since = fleet_clock_ticks();
    FLEET_UNUSED(ctx);
    FLEET_UNUSED(at);
    while (fleet_clock_ticks() - since < args->ticks) /* others run meanwhile */
        if (fleet_load_relaxed_device(args->word)) return FLEET_ERROR_TILE;
    return FLEET_OK;
}
#define CHAIN_TILES(TILE, P) TILE(P, quick) TILE(P, slow)
FLEET_DISPATCH(chain, CHAIN_TILES)
FLEET_KERNEL(chain_kernel, chain, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(chain);
}

#define LINKS 4u

/* Of the tasks of these grids from a step on: the one that ended last; with `next`, of those on its worker that had ended
   when it was taken. */
static uint32_t ended_last(const fleet_trace_log *log, uint32_t from_step, uint32_t first_grid,
                           uint32_t last_grid, const fleet_trace_task *next)
{
    uint32_t last = FLEET_TRACE_NONE;
    for (uint32_t i = 0; i < log->n_tasks; i++) {
        const fleet_trace_task *task = &log->tasks[i];
        if (task->step < from_step || task->grid < first_grid || task->grid > last_grid) continue;
        if (next && (task->worker != next->worker || task->notify_end_ns > next->wait_begin_ns))
            continue;
        if (last == FLEET_TRACE_NONE || task->notify_end_ns > log->tasks[last].notify_end_ns)
            last = i;
    }
    return last;
}

/* Many quick tasks, then one slow one after the other: the path is one of the quick ones, and all slow ones. Only where a
   worker loses its processor between a link and what it writes down of it does the path go by way of that worker. */
static void run_chain(test_run *t, const setting *s, void *unused)
{
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_state_desc state_desc = setting_state_desc(s);
    fleet_launch_desc launch = setting_launch_desc(s);
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor before = fleet_event_tensor(g, "start", fleet_shape0(), FLEET_COUNT_DERIVED);
    fleet_grid grid = fleet_call_device(g, "quick", chain_quick, fleet_shape1(fleet_dim_of(20)), 0);
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_trace trace;
    fleet_trace_log log;
    chain args;
    void *device_args = NULL;
    uint32_t i, path = 0, links = 0, last;
    char want[64];
    (void)unused;
    args.ticks = 20000 / FLEETI_CLOCK_NS;
    fleet_out_edge(g, grid, before, "i->");
    for (i = 0; i < LINKS; i++) {
        char name[16];
        snprintf(name, sizeof name, "link.%u", i); /* of one kind */
        grid = fleet_call_device(g, name, chain_slow, fleet_shape0(), 0);
        fleet_in_edge(g, grid, before, "->");
        if (i + 1 == LINKS) break;
        snprintf(name, sizeof name, "made%u", i);
        before = fleet_event_tensor(g, name, fleet_shape0(), FLEET_COUNT_DERIVED);
        fleet_out_edge(g, grid, before, "->");
    }
    CHECK_STATUS(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_STATUS(fleet_upload(&image, plan, NULL), FLEET_OK);
    CHECK_STATUS(fleet_state_create(&state, &image, &state_desc, NULL), FLEET_OK);
    CHECK_STATUS(fleet_trace_create(&trace, plan, NULL, NULL), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&device_args, sizeof args + 4), FLEET_OK);
    args.word = (uint32_t *)(void *)((chain *)device_args + 1);
    CHECK_STATUS(fleet_device_clear(args.word, 4, NULL), FLEET_OK);
    CHECK_STATUS(fleet_to_device(device_args, &args, sizeof args, NULL), FLEET_OK);
    launch.trace = &trace;
    launch.steps = 2;
    CHECK_STATUS(fleet_launch(&state, &launch, FLEET_KERNEL_OF(chain_kernel), device_args),
                 FLEET_OK);
    if (!ended_with(t, &state, FLEET_OK)) return;
    CHECK_STATUS(fleet_trace_read(&log, &trace, NULL), FLEET_OK);
    CHECK_INT(log.n_tasks, 2 * (20 + LINKS));
    last = ended_last(&log, 1, 0, LINKS, NULL);
    for (i = last; i != FLEET_TRACE_NONE && log.tasks[i].step == 1; i = log.tasks[i].after) {
        const fleet_trace_task *task = &log.tasks[i];
        if (task->grid) {
            const uint32_t link = ended_last(&log, 1, task->grid - 1, task->grid - 1, NULL);
            const uint32_t before_it = ended_last(&log, 0, 0, LINKS, task);
            CHECK(task->run_end_ns - task->run_begin_ns >= 20000);
            CHECK(task->after != FLEET_TRACE_NONE);
            CHECK_INT(log.tasks[task->after].notify_end_ns,
                      before_it == FLEET_TRACE_NONE ||
                              log.tasks[link].notify_end_ns > log.tasks[before_it].notify_end_ns
                          ? log.tasks[link].notify_end_ns
                          : log.tasks[before_it].notify_end_ns);
            links++;
        }
        CHECK(path++ < log.n_tasks);
    }
    CHECK(fleet_trace_report(&log, 0, 0, text, sizeof text) < sizeof text);
    snprintf(want, sizeof want, "critical path: %u tasks, ", path);
    CHECK_TEXT(text, want);
    snprintf(want, sizeof want, " %u of link ", links);
    if (links) CHECK_TEXT(text, want);
    CHECK_TEXT(text, "\nlink                             4 ");
    CHECK(trace_picture(&log, 0, 0, text, sizeof text) < sizeof text);
    CHECK_TEXT(text, ">link: 4 tasks, ");
    fleet_trace_log_free(&log);
    fleet_trace_free(&trace);
    fleet_state_free(&state);
    fleet_image_free(&image);
    fleet_device_free(device_args);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

static void the_critical_path_is_the_chain(test_run *t)
{
    in_settings(t, 4, run_chain, NULL);
}

/* ---- weight pipelines, and tasks outside the launch's shape ---- */

typedef struct rows { /* what every tile sees */
    const uint32_t *weights;
    uint32_t *sums;
    uint32_t steps; /* after so many of a launch, a tile ends the run; 0: none does */
} rows;

#define ROWS 12u
#define ROW_WORDS 512u

FLEET_PRODUCER(sum_row, rows)
{
    FLEET_UNUSED(ctx);
    fleet_producer_copy(producer, args->weights + (uint32_t)at[0] * ROW_WORDS, ROW_WORDS * 4);
}
FLEET_TILE(sum_row, rows)
{
    fleet_consumer consumer = fleet_consumer_open(&ctx);
    uint32_t sum = 0;
    for (uint32_t done = 0; done < ROW_WORDS; done += 256) { /* a slot has 1024 bytes */
        const uint32_t *stage = (const uint32_t *)fleet_stage_acquire(&consumer);
        if (!stage) return fleet_consumer_status(&consumer);
        for (uint32_t i = ctx.thread; i < 256; i += ctx.threads) sum += stage[i];
        fleet_stage_release(&consumer, ctx.threads / fleet_wave_size());
    }
    fleet_add_relaxed_device(args->sums + at[0], sum);
    return ctx.step + 1 == args->steps ? fleet_finish(&ctx) : FLEET_OK;
}
#define ROWS_TILES(TILE, P) TILE(P, sum_row)
FLEET_DISPATCH_WITH_PIPELINE(rows, ROWS_TILES, ROWS_TILES, 4, 1024)
FLEET_KERNEL(rows_kernel, rows, FLEET_ANY_THREADS(256))
{
    FLEET_WORKER_LOOP(rows);
}

static void run_streams(test_run *t, const setting *s, void *unused)
{
    static uint32_t weights[ROWS * ROW_WORDS];
    uint32_t have[ROWS], ran[2 * ROWS], i, k;
    const uint32_t n = 5 + (uint32_t)s->seed % 4; /* the bucket of 8 runs */
    fleet_plan_desc desc = setting_plan_desc(s);
    fleet_state_desc state_desc = setting_state_desc(s);
    fleet_launch_desc launch = setting_launch_desc(s);
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim symbol = fleet_symbol(g, "n", 1, ROWS);
    fleet_etensor done = fleet_event_tensor(g, "done", fleet_shape1(symbol), FLEET_COUNT_DERIVED);
    fleet_grid first, again;
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_trace trace;
    fleet_trace_log log;
    rows args;
    void *memory[3] = {NULL, NULL, NULL};
    (void)unused;
    first = fleet_call_device(g, "first", rows_sum_row, fleet_shape1(symbol), 0);
    again = fleet_call_device(g, "again", rows_sum_row, fleet_shape1(symbol), 0);
    fleet_out_edge(g, first, done, "i->i");
    fleet_in_edge(g, again, done, "i->i");
    CHECK_STATUS(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_STATUS(fleet_upload(&image, plan, NULL), FLEET_OK);
    CHECK_STATUS(fleet_state_create(&state, &image, &state_desc, NULL), FLEET_OK);
    CHECK_STATUS(fleet_trace_create(&trace, plan, NULL, NULL), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&memory[0], sizeof weights), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&memory[1], sizeof have), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&memory[2], sizeof args), FLEET_OK);
    for (i = 0; i < ROWS * ROW_WORDS; i++) weights[i] = i * 2246822519u;
    args.weights = (const uint32_t *)memory[0];
    args.sums = (uint32_t *)memory[1];
    args.steps = 0;
    CHECK_STATUS(fleet_to_device(memory[0], weights, sizeof weights, NULL), FLEET_OK);
    CHECK_STATUS(fleet_device_clear(memory[1], sizeof have, NULL), FLEET_OK);
    CHECK_STATUS(fleet_to_device(memory[2], &args, sizeof args, NULL), FLEET_OK);
    CHECK_STATUS(fleet_bind(&state, "n", n, NULL), FLEET_OK);
    launch.pipeline_bytes = FLEET_PIPELINE_BYTES(rows);
    launch.trace = &trace;
    launch.steps = 2;
    CHECK_STATUS(fleet_launch(&state, &launch, FLEET_KERNEL_OF(rows_kernel), memory[2]), FLEET_OK);
    if (!ended_with(t, &state, FLEET_OK)) return;
    CHECK_STATUS(fleet_to_host(have, memory[1], sizeof have, NULL), FLEET_OK);
    CHECK_STATUS(fleet_trace_read(&log, &trace, NULL), FLEET_OK);
    CHECK_INT(log.dropped, 0);
    CHECK(log.plan != plan); /* a smaller bucket's */
    memset(ran, 0, sizeof ran);
    for (i = 0; i < log.n_tasks; i++) {
        const uint32_t row = log.tasks[i].task % 8;
        CHECK_INT(log.tasks[i].absent, row >= n);
        ran[log.tasks[i].task] += !log.tasks[i].absent;
    }
    for (i = 0; i < n; i++) {
        uint32_t sum = 0;
        for (k = 0; k < ROW_WORDS; k++) sum += weights[i * ROW_WORDS + k];
        CHECK_INT(have[i], 4 * sum);
        CHECK_INT(ran[i], 2);
        CHECK_INT(ran[8 + i], 2);
    }
    CHECK(fleet_trace_report(&log, 0, 2, text, sizeof text) < sizeof text);
    fleet_trace_log_free(&log);
    /* A launch that ends early leaves records of the steps that ran, and none of the launch before. */
    args.steps = launch.finish = 1, launch.steps = 5;
    CHECK_STATUS(fleet_to_device(memory[2], &args, sizeof args, NULL), FLEET_OK);
    CHECK_STATUS(fleet_launch(&state, &launch, FLEET_KERNEL_OF(rows_kernel), memory[2]), FLEET_OK);
    if (!ended_with(t, &state, FLEET_OK)) return;
    CHECK_STATUS(fleet_trace_read(&log, &trace, NULL), FLEET_OK);
    for (k = i = 0; i < log.n_tasks; i++) {
        CHECK_INT(log.tasks[i].step, 0);
        k += !log.tasks[i].absent;
    }
    CHECK_INT(k, 2 * n);
    fleet_trace_log_free(&log);
    fleet_trace_free(&trace);
    fleet_state_free(&state);
    fleet_image_free(&image);
    for (i = 0; i < 3; i++) fleet_device_free(memory[i]);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

static void streams_and_symbols(test_run *t)
{
    in_settings(t, 5, run_streams, NULL);
}

/* ---- numbers that wrap ---- */

/* A worker that runs 2^28 plain tasks in a step, of an endless launch: what it counts as records after each step. From step
   10 on the number of the step is about to wrap. */
#define LONG_STEPS 48u
#define LONG_TASKS (1u << 28)
FLEET_GLOBAL(64) void count_for_long(const fleet_task *end, uint32_t *counted)
{
    fleeti_worker w;
    fleeti_fixed f;
    uint32_t step = 0;
    __builtin_memset(&w, 0, sizeof w);
    __builtin_memset(&f, 0, sizeof f);
    w.fixed = &f;
    w.schedule = FLEET_SCHEDULE_STATIC;
    f.steps = FLEET_STEPS_ENDLESS;
    w.trace.room = 8;
    w.trace.first_step = 2;
    w.trace.skip = fleeti_uniform(w.number);
    w.task = fleeti_pinned_from_memory(end);
    for (uint32_t i = 0; i < LONG_STEPS; i++, step = i == 10 ? 0xfffffffeu : step + 1) {
        w.steps_left = fleeti_uniform(FLEET_STEPS_ENDLESS - step);
        w.number += LONG_TASKS + 1;
        fleeti_trace_count(&w);
        if (fleet_thread_id() == 0) counted[i] = w.number - w.trace.skip;
    }
}
FLEET_THUNK2(count_for_long, const fleet_task *, uint32_t *)

static void records_that_wrap(test_run *t)
{
    fleet_kernel_desc d = fleet_kernel_desc_default();
    uint32_t counted[LONG_STEPS];
    fleet_task end;
    void *task, *to, *args[2];
    memset(&end, 0, sizeof end);
    end.tile = FLEETI_TILE_NONE, end.level = FLEET_LEVEL_CU;
    CHECK_STATUS(fleet_device_alloc(&task, sizeof end), FLEET_OK);
    CHECK_STATUS(fleet_device_alloc(&to, sizeof counted), FLEET_OK);
    CHECK_STATUS(fleet_to_device(task, &end, sizeof end, NULL), FLEET_OK);
    args[0] = &task, args[1] = &to;
    d.threads = 64;
    CHECK_STATUS(fleet_kernel_launch(FLEET_KERNEL_OF(count_for_long), args, &d), FLEET_OK);
    CHECK_STATUS(fleet_to_host(counted, to, sizeof counted, NULL), FLEET_OK);
    for (uint32_t i = 0; i < LONG_STEPS; i++) {
        if (i < 13)
            CHECK_INT(counted[i], i < 2 ? 0 : (i - 1) * LONG_TASKS);
        else
            CHECK(counted[i] >= 0x80000000u); /* no record has room any more */
    }
    fleet_device_free(task);
    fleet_device_free(to);
}

static void all(test_run *t)
{
    TEST(every_task_has_one_record);
    TEST(mixed_early_and_unaware);
    TEST(waves_of_a_worker);
    TEST(what_does_not_fit_is_counted);
    TEST(from_a_step_on);
    TEST(a_failed_run_leaves_what_it_did);
    TEST(wrong_arguments);
    TEST(report_json_and_picture);
    TEST(a_made_log);
    TEST(the_critical_path_is_the_chain);
    TEST(streams_and_symbols);
    TEST(records_that_wrap);
}
TEST_MAIN(all)
