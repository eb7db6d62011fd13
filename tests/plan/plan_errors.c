/* Every bad input has a status of its own and a message that names what to change. A block from outside that is not a
   sound plan is refused, whatever its bytes are. */
#include "forge.h"

#define ONE fleet_shape1(fleet_dim_of(1))

typedef struct journal {
    int errors, warnings;
    char last[512];
} journal;

static void write_journal(void *user, fleet_status status, const char *message)
{
    journal *j = (journal *)user;
    if (status == FLEET_OK)
        j->warnings++;
    else
        j->errors++;
    snprintf(j->last, sizeof j->last, "%s", message);
}

static fleet_graph *graph(journal *j)
{
    fleet_graph_desc desc = fleet_graph_desc_default();
    memset(j, 0, sizeof *j);
    desc.log = write_journal;
    desc.log_user = j;
    return fleet_graph_create(&desc);
}

/* Checks that the graph has this error, logged once, with the place of the call; that it stays, and that every build
   fails with it. Destroys the graph. */
#define BROKEN(g, j, code, text)                                                                   \
    do {                                                                                           \
        fleet_plan *broken = NULL;                                                                 \
        CHECK_INT(fleet_graph_status(g), code);                                                    \
        CHECK_TEXT(fleet_graph_error(g), text);                                                    \
        CHECK_INT((j).errors, 1);                                                                  \
        CHECK_TEXT((j).last, text);                                                                \
        fleet_call_device(g, "", 0, fleet_shape0(), 0);                                            \
        CHECK_INT(fleet_plan_build(g, NULL, &broken), code);                                       \
        CHECK(broken == NULL);                                                                     \
        CHECK_TEXT(fleet_graph_error(g), text);                                                    \
        fleet_graph_destroy(g);                                                                    \
    } while (0)

/* Checks that building a plan fails with this error; another build may still succeed. Destroys the graph. */
#define REFUSED(g, desc, code, text)                                                               \
    do {                                                                                           \
        fleet_plan *refused = NULL;                                                                \
        CHECK_INT(fleet_plan_build(g, desc, &refused), code);                                      \
        CHECK(refused == NULL);                                                                    \
        CHECK_INT(fleet_graph_status(g), code);                                                    \
        CHECK_TEXT(fleet_graph_error(g), text);                                                    \
        fleet_graph_destroy(g);                                                                    \
    } while (0)

static void null_pointers(test_run *t)
{
    fleet_plan *plan = (fleet_plan *)1;
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_grid none;
    none.id = 0;
    CHECK_INT(fleet_plan_build(NULL, &desc, &plan), FLEET_ERROR_NULL);
    CHECK(plan == NULL);
    CHECK_INT(fleet_plan_build(g, &desc, NULL), FLEET_ERROR_NULL);
    CHECK_INT(fleet_plan_check(NULL, 100), FLEET_ERROR_NULL);
    CHECK_INT(fleet_graph_status(NULL), FLEET_ERROR_NULL);
    CHECK_TEXT(fleet_graph_error(NULL), "null");
    CHECK_INT(fleet_call_device(NULL, "x", 0, ONE, 0).id, 0);
    CHECK_INT(fleet_event_tensor(NULL, "x", ONE, 0).id, 0);
    CHECK_INT(fleet_symbol(NULL, "x", 0, 1).symbol, 0);
    CHECK_INT(fleet_declare_buffer(NULL, "x").id, 0);
    fleet_grid_level(NULL, none, FLEET_LEVEL_CU);
    fleet_plan_free(NULL);
    fleet_graph_destroy(NULL);
    fleet_bind_at_build(NULL, fleet_dim_of(1), 1);
    CHECK_INT(fleet_plan_report(NULL, NULL, 0), 0);
    CHECK_INT(fleet_plan_event(NULL, "x"), -1);
    CHECK_INT(fleet_plan_task(NULL, "x", NULL), -1);
    CHECK_INT(fleet_plan_get_stats(NULL).descs, 0);
    fleet_graph_destroy(g);
}

static void names(test_run *t)
{
    char name[100];
    journal j;
    fleet_graph *g = graph(&j);
    fleet_call_device(g, NULL, 0, ONE, 0);
    BROKEN(g, j, FLEET_ERROR_NULL, "grid: the name is null");
    g = graph(&j);
    fleet_event_tensor(g, "", ONE, 0);
    BROKEN(g, j, FLEET_ERROR_NAME, "event tensor \"\"");
    memset(name, 'n', sizeof name);
    name[63] = 0;
    g = graph(&j);
    fleet_call_device(g, name, 0, ONE, 0);
    fleet_event_tensor(g, name, ONE, 0); /* of another kind: both may have it */
    CHECK_INT(fleet_graph_status(g), FLEET_OK);
    fleet_call_device(g, name, 0, ONE, 0);
    BROKEN(g, j, FLEET_ERROR_NAME, "the name is taken");
    name[63] = 'n';
    name[64] = 0;
    g = graph(&j);
    fleet_call_device(g, name, 0, ONE, 0);
    BROKEN(g, j, FLEET_ERROR_NAME, "1 to 63 bytes");
    g = graph(&j);
    fleet_event_tensor(g, "step", ONE, 0);
    BROKEN(g, j, FLEET_ERROR_NAME, "implicit step event");
    g = graph(&j);
    fleet_event_tensor(g, "x after y", ONE, 0);
    BROKEN(g, j, FLEET_ERROR_NAME,
           "event tensor x after y: names that contain \" after \" belong to fleet_after");
    g = graph(&j);
    fleet_symbol(g, "n", 0, 1);
    fleet_symbol(g, "n", 0, 1);
    BROKEN(g, j, FLEET_ERROR_NAME, "symbol n: the name is taken");
}

/* The message begins with file and line of the call. */
static void place_of_the_call(test_run *t)
{
    journal j;
    fleet_graph *g = graph(&j);
    char place[64];
    snprintf(place, sizeof place, "plan_errors.c:%d: grid x", __LINE__ + 1);
    fleet_call_device(g, "x", FLEETI_TILE_NONE, ONE, 0);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, place);
}

static void arguments(test_run *t)
{
    journal j;
    fleet_graph *g = graph(&j);
    fleet_grid x;
    fleet_etensor E;
    fleet_dim n;
    fleet_symbol(g, "n", 3, 2);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "symbol n: bounds [3, 2]");
    g = graph(&j);
    fleet_symbol(g, "n", -1, 2);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "bounds [-1, 2]");
    g = graph(&j);
    n = fleet_symbol(g, "n", 0, 2);
    fleet_call_device(g, "x", 0, fleet_shape1(fleet_dim_times(fleet_dim_ceil_div(n, 2), 2)), 0);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "grid x: extent 0 is not a valid extent");
    g = graph(&j);
    fleet_event_tensor(g, "E", fleet_shape1(fleet_dim_ceil_div(fleet_dim_of(4), 0)), 0);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "event tensor E: extent 0 is not a valid extent");
    g = graph(&j);
    fleet_call_device(
        g, "x", 0,
        fleet_shape_append(
            fleet_shape_append(fleet_shape_append(fleet_shape4(fleet_dim_of(1), fleet_dim_of(1),
                                                               fleet_dim_of(1), fleet_dim_of(1)),
                                                  fleet_dim_of(1)),
                               fleet_dim_of(1)),
            fleet_dim_of(1)),
        0);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "at most 6 axes");
    g = graph(&j);
    fleet_event_tensor(g, "E", ONE, -1);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "event tensor E: count is -1");
    g = graph(&j);
    x = fleet_call_device(g, "x", 0, ONE, 0);
    fleet_grid_level(g, x, (fleet_level)7);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "grid x: level 7");
    g = graph(&j);
    E = fleet_event_tensor(g, "E", ONE, 0);
    fleet_event_scope(g, E, (fleet_scope)4);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "event tensor E: scope 4");
    g = graph(&j);
    E = fleet_event_tensor(g, "E", ONE, 0);
    fleet_event_external(g, E, FLEET_EXTERNAL_WAITS, 1, FLEET_SCOPE_DEVICE);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "event tensor E: external roles 2 with 1 notifies");
    g = graph(&j);
    E = fleet_event_tensor(g, "E", ONE, 0);
    fleet_event_external(g, E, FLEET_EXTERNAL_NOTIFIES, 1, FLEET_SCOPE_CHIPLET);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "device or system");
}

static void handles(test_run *t)
{
    journal j;
    fleet_graph *g = graph(&j), *other = fleet_graph_create(NULL);
    fleet_dim n = fleet_symbol(other, "n", 0, 1);
    fleet_etensor E;
    fleet_grid x;
    fleet_buffer b;
    E.id = 3;
    x.id = 0;
    b.id = 1;
    fleet_grid_level(g, x, FLEET_LEVEL_CU);
    BROKEN(g, j, FLEET_ERROR_HANDLE, "grid handle 0");
    g = graph(&j);
    fleet_event_scope(g, E, FLEET_SCOPE_DEVICE);
    BROKEN(g, j, FLEET_ERROR_HANDLE, "event tensor handle 3");
    g = graph(&j);
    x = fleet_call_device(g, "x", 0, ONE, 0);
    fleet_grid_reads(g, x, b);
    BROKEN(g, j, FLEET_ERROR_HANDLE, "buffer handle 1");
    g = graph(&j);
    fleet_call_device(g, "x", 0, fleet_shape1(n), 0);
    BROKEN(g, j, FLEET_ERROR_HANDLE, "grid x: extent 0 has a symbol of another graph");
    fleet_graph_destroy(other);
}

/* Handles of an identical graph are not handles of this one. */
static void handles_of_another_graph(test_run *t)
{
    static const char *const text[] = {
        "grid handle 1 is of another graph: x is number 1 of this one",
        "event tensor handle 1 is of another graph: E is number 1 of this one",
        "run-time tensor handle 1 is of another graph: r is number 1 of this one",
        "grid x: buffer handle 1 is not of this graph",
        "grid y: extent 0 has a symbol of another graph",
        "grid x: slices has a symbol of another graph",
        "grid x: tiles has a symbol of another graph",
        "limit of map axis 0 has a symbol of another graph",
        "grid handle 1 is of another graph",
    };
    uint32_t i, k;
    for (i = 0; i < 9; i++) {
        journal j, none;
        fleet_graph *g[2];
        fleet_dim n[2];
        fleet_etensor E[2];
        fleet_grid x[2];
        fleet_tensor r[2];
        fleet_buffer b[2];
        fleet_axis_map a = fleet_axis(0, 1, 0, 1);
        for (k = 0; k < 2; k++) {
            g[k] = graph(k ? &none : &j);
            n[k] = fleet_symbol(g[k], "n", 0, 1);
            E[k] = fleet_event_tensor(g[k], "E", ONE, 0);
            x[k] = fleet_call_device(g[k], "x", 0, ONE, 0);
            r[k] = fleet_runtime_tensor(g[k], "r", ONE, x[k]);
            b[k] = fleet_declare_buffer(g[k], "b");
        }
        a.limit = n[1];
        if (i == 0) fleet_grid_level(g[0], x[1], FLEET_LEVEL_CU);
        if (i == 1) fleet_out_edge(g[0], x[0], E[1], "i->i");
        if (i == 2) fleet_event_counts(g[0], E[0], r[1]);
        if (i == 3) fleet_grid_reads(g[0], x[0], b[1]);
        if (i == 4) fleet_call_device(g[0], "y", 0, fleet_shape1(fleet_dim_plus(n[1], 1)), 0);
        if (i == 5) fleet_grid_slices(g[0], x[0], n[1]);
        if (i == 6) fleet_grid_tiles(g[0], x[0], n[1]);
        if (i == 7) fleet_out_edge_map(g[0], x[0], E[0], fleet_map1(a));
        if (i == 8) fleet_runtime_tensor(g[0], "s", ONE, x[1]);
        BROKEN(g[0], j, FLEET_ERROR_HANDLE, text[i]);
        CHECK_INT(fleet_graph_status(g[1]), FLEET_OK);
        fleet_graph_destroy(g[1]);
    }
    for (i = 0; i < 2; i++) {
        fleet_graph *g = fleet_graph_create(NULL), *other = fleet_graph_create(NULL);
        fleet_dim n = fleet_symbol(g, "n", 0, 4), m = fleet_symbol(other, "n", 0, 4);
        fleet_plan_desc desc = fleet_plan_desc_default();
        const int64_t values[1] = {1};
        fleet_call_device(g, "x", 0, fleet_shape1(n), 0);
        if (i)
            fleet_buckets_at_build(&desc, m, values, 1);
        else
            fleet_bind_at_build(&desc, m, 2);
        fleet_graph_destroy(other);
        REFUSED(g, &desc, FLEET_ERROR_HANDLE,
                i ? "buckets 0 are not of a symbol that is bound at launch"
                  : "binding 0 is not of a symbol of this graph");
    }
}

static void einsum_strings(test_run *t)
{
    static const struct {
        const char *einsum, *text;
    } c[] = {
        {"ij", "it has no ->"},
        {"ij-i", "it has no ->"},
        {"i->i", "the left side needs one letter per axis of the grid"},
        {"ijk->i", "the left side needs one letter per axis of the grid"},
        {"ii->i", "a letter is twice on the left"},
        {"ij->", "the right side needs one letter per axis of the event tensor"},
        {"ij->ij", "the right side needs one letter per axis of the event tensor"},
        {"i,j->i", "it may hold only letters, spaces and ->"},
        {"ij->1", "it may hold only letters, spaces and one ->"},
        {"ij->i->j", "it may hold only letters, spaces and one ->"},
        {"", "it has no ->"},
    };
    size_t i;
    for (i = 0; i < sizeof c / sizeof c[0]; i++) {
        journal j;
        fleet_graph *g = graph(&j);
        fleet_etensor E = fleet_event_tensor(g, "E", ONE, 0);
        fleet_grid x =
            fleet_call_device(g, "x", 0, fleet_shape2(fleet_dim_of(1), fleet_dim_of(1)), 0);
        char quoted[64];
        snprintf(quoted, sizeof quoted, "out edge of grid x and event tensor E: \"%s\"",
                 c[i].einsum);
        fleet_out_edge(g, x, E, c[i].einsum);
        CHECK_TEXT(fleet_graph_error(g), quoted);
        BROKEN(g, j, FLEET_ERROR_MAP, c[i].text);
    }
    {
        journal j;
        fleet_graph *g = graph(&j);
        fleet_etensor E = fleet_event_tensor(g, "E", ONE, 0);
        fleet_grid x = fleet_call_device(g, "x", 0, ONE, 0);
        fleet_in_edge(g, x, E, " i -> i ");
        CHECK_INT(fleet_graph_status(g), FLEET_OK);
        fleet_in_edge(g, x, E, NULL);
        BROKEN(g, j, FLEET_ERROR_NULL, "in edge of grid x and event tensor E: the einsum string");
    }
}

/* A state has a pointer for each run-time tensor. */
static void tensors(test_run *t)
{
    journal j;
    fleet_graph *g = graph(&j);
    fleet_grid x = fleet_call_device(g, "x", 0, ONE, 0);
    char name[16];
    int i;
    for (i = 0; i <= FLEET_MAX_TENSORS; i++) {
        CHECK_INT(fleet_graph_status(g), FLEET_OK);
        snprintf(name, sizeof name, "t%d", i);
        fleet_runtime_tensor(g, name, ONE, x);
    }
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "run-time tensor t256: a graph has at most 256 of them");
}

static void maps(test_run *t)
{
    journal j;
    int i;
    for (i = 0; i < 10; i++) {
        static const char *const text[] = {
            "axis 0 of the map names task axis 1, but the grid has 1 axes",
            "axis 0 of the map has div 0 and width 1",
            "the map has 2 axes, the event tensor has 1",
            "past FLEET_MAX_RANK",
            "axis 0 of the map has div 2 and width 0",
            "the map has 7 axes",
            "axis 0 of the map has width 2, which must be 1 with a modulus or flipped bits",
            "axis 0 of the map has width 3, which must be 1 with a modulus or flipped bits",
            "axis 0 of the map flips the bits -1 by task axis -1",
            "axis 0 of the map flips the bits 1 by task axis 1: bits are 0 to 2^31-1, and the grid "
            "has "
            "1 axes",
        };
        fleet_axis_map a = fleet_axis(0, 1, 0, 1);
        fleet_graph *g = graph(&j);
        fleet_etensor E = fleet_event_tensor(g, "E", ONE, 0);
        fleet_grid x = fleet_call_device(g, "x", 0, ONE, 0);
        fleet_map m = fleet_map1(a);
        if (i == 0) m = fleet_map1(fleet_axis(1, 1, 0, 1));
        if (i == 1) m = fleet_map1(fleet_axis(0, 1, 0, 0));
        if (i == 2) m = fleet_map2(a, a);
        if (i == 3) m = fleet_map1(fleet_axis(6, 1, 0, 1));
        if (i == 4) m = fleet_map1(fleet_axis_retile(0, 0, 2, fleet_dim_of(0)));
        while (i == 5 && m.rank < 7) m = fleet_map_append(m, a);
        if (i == 6) m = fleet_map1(fleet_axis_periodic(0, 1, 1, 1, fleet_dim_of(3)));
        if (i == 7) m = fleet_map1(fleet_axis_xor(0, 1));
        if (i == 6 || i == 7) m.axis[0].width = i - 4;
        if (i == 8) m = fleet_map1(fleet_axis_xor(0, -1));
        if (i == 9) m = fleet_map1(fleet_axis_butterfly(0, 1, 0));
        fleet_in_edge_map(g, x, E, m);
        BROKEN(g, j, FLEET_ERROR_MAP, text[i]);
    }
}

/* What a launch changes does not change the records of a plan, which a modulus is in. */
static void periodic_maps(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_symbol(g, "n", 0, 8);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(n), 0);
    fleet_grid p = fleet_call_device(g, "p", 0, fleet_shape1(n), 0);
    fleet_grid c = fleet_call_device(g, "c", 0, fleet_shape1(n), 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    fleet_out_edge(g, p, E, "i->i");
    fleet_in_edge(g, c, E, "i->[i-1]");
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_UNSUPPORTED);
    CHECK_TEXT(fleet_graph_error(g), "the modulus of map axis 0 has a symbol that is bound at "
                                     "launch: bind it when the plan is built");
    fleet_bind_at_build(&desc, n, 5);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    fleet_plan_free(plan);
    fleet_in_edge_map(g, c, E, fleet_map1(fleet_axis_periodic(0, 1, 0, 1, fleet_dim_plus(n, -5))));
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_ARGUMENT);
    CHECK_TEXT(fleet_graph_error(g), "the modulus of map axis 0 is 0, not over 0");
    fleet_graph_destroy(g);
}

static void maps_out_of_shape(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_symbol(g, "n", 0, 100);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape2(fleet_dim_of(2), fleet_dim_of(8)), 0);
    fleet_grid p = fleet_call_device(g, "p", 0, fleet_shape1(n), 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    fleet_out_edge_map(g, p, E, fleet_map2(fleet_axis_all(), fleet_axis(0, 2, 0, 1)));
    fleet_bind_at_build(&desc, n, 4);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    fleet_plan_free(plan);
    fleet_bind_at_build(&desc, n, 5);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_MAP_RANGE);
    CHECK_TEXT(fleet_graph_error(g), "plan_errors.c:");
    CHECK_TEXT(fleet_graph_error(g),
               "out edge: task p(4) reaches 8 on axis 1 of event tensor E, whose "
               "extent is 8");
    /* An error of a build belongs to the build: the graph can be built again. */
    fleet_bind_at_build(&desc, n, 3);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(fleet_graph_status(g), FLEET_OK);
    CHECK_INT(strlen(fleet_graph_error(g)), 0);
    fleet_plan_free(plan);
    fleet_in_edge_map(g, p, E, fleet_map2(fleet_axis_all(), fleet_axis(0, -1, 1, 1)));
    REFUSED(g, &desc, FLEET_ERROR_MAP_RANGE, "in edge: task p(2) reaches -1 on axis 1");
    g = fleet_graph_create(NULL);
    E = fleet_event_tensor(g, "E", ONE, 0);
    p = fleet_call_device(g, "p", 0, fleet_shape1(fleet_dim_of(100)), 0);
    fleet_out_edge_map(g, p, E, fleet_map1(fleet_axis(0, INT64_MAX / 2, 0, INT64_MAX / 2)));
    REFUSED(g, NULL, FLEET_ERROR_MAP, "the numbers of map axis 0 overflow");
}

/* producer(4) -> E(n) -> consumer(4) */
static fleet_graph *pair(fleet_dim n, int64_t count, fleet_etensor *E)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_shape four = fleet_shape1(fleet_dim_of(4));
    fleet_grid p, c;
    *E = fleet_event_tensor(g, "E", fleet_shape1(n), count);
    p = fleet_call_device(g, "producer", 0, four, 0);
    c = fleet_call_device(g, "consumer", 0, four, 0);
    fleet_out_edge(g, p, *E, "i->i");
    fleet_in_edge(g, c, *E, "i->e");
    return g;
}

static void counts(test_run *t)
{
    fleet_etensor E;
    fleet_graph *g = pair(fleet_dim_of(4), 1, &E);
    fleet_plan *plan;
    CHECK_INT(fleet_plan_build(g, NULL, &plan), FLEET_OK);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
    g = fleet_graph_create(NULL);
    {
        fleet_etensor F = fleet_event_tensor(g, "F", fleet_shape1(fleet_dim_of(4)), 5);
        fleet_grid p =
            fleet_call_device(g, "p", 0, fleet_shape2(fleet_dim_of(4), fleet_dim_of(5)), 0);
        fleet_grid q = fleet_call_device(g, "q", 0, fleet_shape0(), 0);
        fleet_out_edge(g, p, F, "ij->i");
        CHECK_INT(fleet_plan_build(g, NULL, &plan), FLEET_OK);
        fleet_plan_free(plan);
        fleet_out_edge_map(g, q, F, fleet_map1(fleet_axis(0, 0, 3, 1)));
    }
    REFUSED(g, NULL, FLEET_ERROR_WAIT_COUNT,
            "event tensor F: 6 notifies reach F[3] but count is 5");
}

static void never_notified(test_run *t)
{
    fleet_etensor E;
    fleet_graph *g = pair(fleet_dim_of(6), 0, &E);
    REFUSED(g, NULL, FLEET_ERROR_NEVER_NOTIFIED,
            "event tensor E: task consumer(0) waits for E[4], which is never notified");
}

static void nobody_waits(test_run *t)
{
    journal j;
    fleet_graph *g = graph(&j);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(fleet_dim_of(3)), 0);
    fleet_grid p = fleet_call_device(g, "p", 0, fleet_shape1(fleet_dim_of(3)), 0);
    fleet_plan *plan;
    char text[4096];
    fleet_out_edge(g, p, E, "i->i");
    CHECK_INT(fleet_plan_build(g, NULL, &plan), FLEET_OK);
    CHECK_INT(j.warnings, 1);
    CHECK_INT(j.errors, 0);
    CHECK_TEXT(j.last, "event tensor E: no task waits for it");
    CHECK_INT(events_of(plan)[0].warnings, FLEETI_WARN_NO_WAITER);
    fleet_plan_report(plan, text, sizeof text);
    CHECK_TEXT(text, "event tensor E: no task waits for it");
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

static void symbols(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_symbol(g, "batch", 2, 8);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    fleet_call_device(g, "x", 0, fleet_shape1(n), 0);
    fleet_bind_at_build(&desc, n, 9);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_SYMBOL_RANGE);
    CHECK_TEXT(fleet_graph_error(g), "symbol batch is 9, outside [2, 8]");
    fleet_bind_at_build(&desc, n, 8);
    fleet_bind_at_build(&desc, fleet_dim_plus(n, 1), 3); /* not a symbol */
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_HANDLE);
    CHECK_TEXT(fleet_graph_error(g), "binding 1 is not of a symbol");
    desc.n_bindings = 33;
    REFUSED(g, &desc, FLEET_ERROR_ARGUMENT, "n_bindings is 33");
}

/* Symbols that are bound at launch. */
static void symbols_at_launch(test_run *t)
{
    static const int64_t down[2] = {4, 2}, far[2] = {4, 9}, near[3] = {2, 3, 5};
    int64_t many[16];
    uint32_t i;
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_symbol(g, "batch", 2, 8), less = n, m;
    fleet_dim large = fleet_symbol(g, "large", 1, (int64_t)1 << 33);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_etensor E;
    fleet_plan *plan;
    fleet_grid x = fleet_call_device(g, "x", 0, fleet_shape1(n), 0);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_SYMBOL_RANGE);
    CHECK_TEXT(fleet_graph_error(g), "symbol large: its max is 8589934592");
    fleet_bind_at_build(&desc, large, 7);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(plan->n_buckets, 3); /* 2, 4, 8 */
    fleet_plan_free(plan);
    fleet_buckets_at_build(&desc, n, down, 2);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_SYMBOL_RANGE);
    CHECK_TEXT(fleet_graph_error(g), "symbol batch: bucket 2 is outside [2, 8], or not above");
    desc.n_buckets = 0;
    fleet_buckets_at_build(&desc, n, far, 2);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_SYMBOL_RANGE);
    CHECK_TEXT(fleet_graph_error(g), "symbol batch: bucket 9 is outside [2, 8]");
    desc.n_buckets = 0;
    fleet_buckets_at_build(&desc, large, near, 1);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_HANDLE);
    CHECK_TEXT(fleet_graph_error(g), "buckets 0 are not of a symbol that is bound at launch");
    desc.n_buckets = 0;
    fleet_buckets_at_build(&desc, n, near, 3);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(plan->n_buckets, 4); /* 2, 3, 5, 8 */
    CHECK_INT(fleet_plan_bucket(plan, 2)->bound[0], 5);
    CHECK(fleet_plan_bucket(plan, 3) == plan && !fleet_plan_bucket(plan, 4));
    fleet_plan_free(plan);
    E = fleet_event_tensor(g, "E", fleet_shape0(), 0);
    fleet_event_external(g, E, FLEET_EXTERNAL_WAITS, 0, FLEET_SCOPE_SYSTEM);
    fleet_out_edge(g, x, E, "i->");
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_UNSUPPORTED);
    CHECK_TEXT(fleet_graph_error(g),
               "event tensor E: external notifies and waits cannot know the bucket");
    m = fleet_symbol(g, "many", 1, 1 << 20);
    fleet_call_device(g, "y", 0, fleet_shape1(m), 0);
    for (i = 0; i < 16; i++) many[i] = 1 + i;
    fleet_buckets_at_build(&desc, m, many, 16);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_ARGUMENT);
    CHECK_TEXT(fleet_graph_error(g), "plan: over 64 buckets in all, with those of symbol many");
    fleet_graph_destroy(g);
    g = fleet_graph_create(NULL);
    less = fleet_dim_plus(fleet_dim_times(fleet_symbol(g, "n", 1, 8), -1), 9);
    fleet_call_device(g, "z", 0, fleet_shape1(less), 0);
    REFUSED(g, NULL, FLEET_ERROR_ARGUMENT, "grid z: an extent shrinks as symbol n grows");
}

/* ---- extents that depend on axes ---- */

/* A grid `tri` and an event tensor E of these shapes, and an in edge between them where there is a
   map. */
static fleet_graph *triangle(journal *j, fleet_shape grid, fleet_shape event, const char *einsum)
{
    fleet_graph *g = graph(j);
    fleet_grid tri = fleet_call_device(g, "tri", 0, grid, 0);
    fleet_grid all = fleet_call_device(g, "all", 0, fleet_shape0(), 0);
    fleet_etensor E = fleet_event_tensor(g, "E", event, 0);
    fleet_map every = fleet_map0();
    uint32_t k;
    for (k = 0; k < event.rank; k++) every = fleet_map_append(every, fleet_axis_all());
    fleet_out_edge_map(g, all, E, every);
    if (einsum) fleet_in_edge(g, tri, E, einsum);
    return g;
}

/* What the building calls see. */
static void dependent_extents(test_run *t)
{
    const fleet_dim three = fleet_dim_of(3), by0 = fleet_dim_plus_axis(three, 0, 1);
    const fleet_dim by1 = fleet_dim_plus_axis(three, 1, 1), huge = fleet_dim_of((int64_t)1 << 60);
    journal j;
    fleet_graph *g = triangle(&j, fleet_shape2(by1, three), fleet_shape0(), NULL);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "grid tri: extent 0 depends on axis 1: only the extents");
    g = triangle(&j, fleet_shape2(three, by1), fleet_shape0(), NULL);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "grid tri: extent 1 depends on axis 1");
    g = triangle(&j, fleet_shape0(), fleet_shape3(three, by1, three), NULL);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "event tensor E: extent 1 depends on axis 1");
    g = triangle(&j, fleet_shape2(three, fleet_dim_plus_axis(three, 6, 1)), fleet_shape0(), NULL);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "grid tri: extent 1 is not a valid extent");
    g = triangle(&j, fleet_shape2(three, fleet_dim_plus_axis(huge, 0, 4 * huge.add)),
                 fleet_shape0(), NULL);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "grid tri: extent 1 is not a valid extent");
    g = triangle(&j, fleet_shape2(three, by0), fleet_shape2(three, by0), "ij->i[j+1]");
    BROKEN(g, j, FLEET_ERROR_MAP, "[i+1] and [i-1] are modulo the extent of their axis, which");
    g = triangle(&j, fleet_shape1(three), fleet_shape0(), NULL);
    fleet_runtime_tensor(g, "by", fleet_shape2(three, by0),
                         fleet_call_device(g, "w", 0, fleet_shape0(), 0));
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "run-time tensor by: extent 1 depends on axis 0");
    g = graph(&j);
    fleet_grid_slices(g, fleet_call_device(g, "x", 0, fleet_shape1(three), 0), by0);
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "grid x: slices depends on axis 0");
    g = triangle(&j, fleet_shape1(three), fleet_shape1(three), NULL);
    fleet_in_edge_map(g, fleet_call_device(g, "x", 0, fleet_shape1(three), 0),
                      fleet_event_tensor(g, "F", fleet_shape1(three), 0),
                      fleet_map1(fleet_axis_periodic(0, 1, 0, 1, by0)));
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "modulus of map axis 0 depends on axis 0");
}

/* What the builder sees, with the grid, the axis and the coordinate. */
static void triangles(test_run *t)
{
    const fleet_dim three = fleet_dim_of(3), none = fleet_dim_of(0);
    const fleet_dim up_to = fleet_dim_plus_axis(fleet_dim_of(1), 0, 1);
    const fleet_dim below = fleet_dim_plus_axis(fleet_dim_of(-1), 1, 1);
    const fleet_dim many = fleet_dim_of(1 << 20), steep = fleet_dim_plus_axis(none, 0, 1 << 20);
    const fleet_shape lower = fleet_shape2(three, up_to), square = fleet_shape2(three, three);
    fleet_plan_desc desc = fleet_plan_desc_default();
    journal j;
    fleet_graph *g = triangle(&j, fleet_shape3(three, up_to, below), fleet_shape0(), NULL);
    fleet_dim n;
    REFUSED(g, NULL, FLEET_ERROR_ARGUMENT, "grid tri: extent 2 is -1, below 0, at (0,0)");
    g = triangle(&j, fleet_shape1(three), fleet_shape3(three, up_to, below), NULL);
    REFUSED(g, NULL, FLEET_ERROR_ARGUMENT, "event tensor E: extent 2 is -1, below 0, at (0,0)");
    g = triangle(&j, square, lower, "ij->ij");
    REFUSED(
        g, NULL, FLEET_ERROR_MAP_RANGE,
        "in edge: task tri(0,1) reaches 1 on axis 1 of event tensor E, whose extent is 1 at E[0]");
    g = triangle(&j, lower, lower, "ij->ji");
    REFUSED(
        g, NULL, FLEET_ERROR_MAP_RANGE,
        "in edge: task tri(1,0) reaches 1 on axis 1 of event tensor E, whose extent is 1 at E[0]");
    g = triangle(&j, fleet_shape1(fleet_dim_of(4)), lower, "j->ij"); /* no row has it */
    REFUSED(
        g, NULL, FLEET_ERROR_MAP_RANGE,
        "in edge: task tri(3) reaches 3 on axis 1 of event tensor E, whose extent is 3 at E[2]");
    g = triangle(&j, lower, fleet_shape1(fleet_dim_of(2)), "ij->j");
    REFUSED(g, NULL, FLEET_ERROR_MAP_RANGE,
            "in edge: task tri(2,2) reaches 2 on axis 0 of event tensor E, whose extent is 2");
    g = triangle(&j, fleet_shape2(many, steep), fleet_shape0(), NULL);
    REFUSED(g, NULL, FLEET_ERROR_TOO_MANY_TASKS, "grid tri has over 2^31-1 points");
    g = triangle(
        &j, fleet_shape3(many, fleet_dim_plus_axis(none, 0, 512), fleet_dim_plus_axis(none, 0, 1)),
        fleet_shape0(), NULL);
    REFUSED(g, NULL, FLEET_ERROR_TOO_MANY_TASKS, "grid tri");
    g = triangle(&j, fleet_shape2(fleet_dim_of((int64_t)1 << 40), up_to), fleet_shape0(), NULL);
    REFUSED(g, NULL, FLEET_ERROR_TOO_MANY_TASKS, "grid tri has over 2^31-1 points");
    g = triangle(&j, fleet_shape2(fleet_dim_of(1 << 30), up_to), fleet_shape0(), NULL);
    REFUSED(g, NULL, FLEET_ERROR_TOO_MANY_TASKS, "grid tri brings the work of planning to over");
    g = triangle(&j, fleet_shape2(many, fleet_dim_plus_axis(none, 0, (int64_t)1 << 50)),
                 fleet_shape0(), NULL);
    REFUSED(g, NULL, FLEET_ERROR_ARGUMENT, "grid tri: the numbers of extent 1 overflow");
    g = graph(&j);
    n = fleet_symbol(g, "n", 1, 9);
    fleet_call_device(g, "tri", 0, fleet_shape2(three, fleet_dim_plus_axis(n, 0, 1)), 0);
    REFUSED(g, NULL, FLEET_ERROR_UNSUPPORTED,
            "grid tri: extent 1 depends on axis 0 and on symbol n, which is bound at launch");
    g = graph(&j);
    n = fleet_symbol(g, "n", 1, 9);
    fleet_call_device(g, "tri", 0, fleet_shape2(three, fleet_dim_plus_axis(n, 0, -1)), 0);
    fleet_bind_at_build(&desc, n, 1);
    REFUSED(g, &desc, FLEET_ERROR_ARGUMENT, "grid tri: extent 1 is -1, below 0, at (2)");
}

/* ---- run-time tensors ---- */

/* One grid routes tokens, one task groups them, and another grid scatters them, each after the previous one. What
   `wrong` names is violated. */
enum {
    ALL_RIGHT,
    NO_PATH,
    NO_COUNTS,
    NO_BOUND,
    TWO_GROUPS,
    FEW_ROWS,
    SHORT_RANGE,
    PLAIN_EDGE,
    BY_CHIPLETS,
    TOO_FEW_NOTIFIES,
    NONE, /* an entry that names no element may be among the gather's */
    NONE_IS_ONE,
    NONE_UNCOUNTED,
    WRONGS
};

static fleet_graph *routed(int wrong)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim n = fleet_dim_of(6), experts = fleet_dim_of(3);
    fleet_etensor done = fleet_event_tensor(g, "done", fleet_shape0(), 0);
    fleet_etensor grouped = fleet_event_tensor(g, "grouped", fleet_shape0(), 0);
    fleet_etensor filled = fleet_event_tensor(g, "filled", fleet_shape1(experts),
                                              wrong == NO_BOUND    ? 0
                                              : wrong == NO_COUNTS ? 4
                                                                   : 6);
    fleet_grid route = fleet_call_device(g, "route", 0, fleet_shape1(n), 0);
    fleet_grid group = fleet_call_device(
        g, "group", 1, fleet_shape1(fleet_dim_of(wrong == TWO_GROUPS ? 2 : 1)), 0);
    fleet_grid scatter = fleet_call_device(g, "scatter", 2, fleet_shape1(n), 0);
    fleet_grid tile = fleet_call_device(g, "tile", 3, fleet_shape2(fleet_dim_of(9), experts), 0);
    fleet_tensor topk = fleet_runtime_tensor(
        g, "topk", fleet_shape2(fleet_dim_of(wrong == FEW_ROWS ? 5 : 6), fleet_dim_of(2)), route);
    fleet_tensor counts = fleet_runtime_tensor(g, "counts", fleet_shape1(experts), group);
    fleet_tensor indptr = fleet_runtime_tensor(
        g, "indptr", fleet_shape1(fleet_dim_of(wrong == SHORT_RANGE ? 3 : 4)), group);
    if (wrong == BY_CHIPLETS) fleet_grid_level(g, tile, FLEET_LEVEL_CHIPLET);
    fleet_out_edge(g, route, done, "i->");
    fleet_in_edge(g, group, done, "i->");
    fleet_out_edge(g, group, grouped, "i->");
    if (wrong != NO_PATH) fleet_in_edge(g, scatter, grouped, "i->");
    fleet_out_edge_gather(g, scatter, filled, topk);
    if (wrong >= NONE) fleet_tensor_none(g, topk, wrong == NONE_IS_ONE ? 2 : -1);
    if (wrong == PLAIN_EDGE) fleet_out_edge(g, route, filled, "i->j");
    if (wrong != NO_COUNTS && wrong != TOO_FEW_NOTIFIES && wrong != NONE_UNCOUNTED)
        fleet_event_counts(g, filled, counts);
    fleet_in_edge_range(g, tile, filled, indptr);
    return g;
}

static void run_time_maps(test_run *t)
{
    static const struct {
        fleet_status status;
        const char *text;
    } want[] = {
        {FLEET_OK, ""},
        {FLEET_ERROR_TENSOR_ORDER, "topk: no event path leads from each task of grid route"},
        {FLEET_OK, ""}, /* all tasks that notify come after the writer */
        {FLEET_ERROR_WAIT_COUNT, "counts: it has 3 counts for the 3 elements"},
        {FLEET_ERROR_UNSUPPORTED,
         "one CU-task must write counts and ranges, but grid group has 2 tasks"},
        {FLEET_ERROR_UNSUPPORTED, "topk: one CU-task must write its 5 rows, or task i row i"},
        {FLEET_ERROR_MAP_RANGE, "indptr: it has 3 values, not one more than the 3 elements"},
        {FLEET_ERROR_MAP, "event tensor filled: run-time maps reach it"},
        {FLEET_ERROR_UNSUPPORTED, "grid tile: only CU- and wavefront-tasks have run-time maps"},
        {FLEET_ERROR_WAIT_COUNT, "filled: gather edges make 12 notifies, but its 3 elements with"},
        {FLEET_OK, ""},
        {FLEET_ERROR_MAP_RANGE,
         "topk: 2 is to name no element, but event tensor filled has 3 elements"},
        {FLEET_ERROR_UNSUPPORTED,
         "filled: entries of run-time tensor topk may name no element, so that the number of"},
    };
    int wrong, schedule;
    for (schedule = 0; schedule < 3; schedule++)
        for (wrong = ALL_RIGHT; wrong < WRONGS; wrong++) {
            fleet_graph *g;
            fleet_plan_desc desc = fleet_plan_desc_default();
            fleet_plan *plan;
            /* Under other schedules the event collapses, and the plan's own arrivals complete it. */
            if ((wrong == TOO_FEW_NOTIFIES || wrong == NONE_UNCOUNTED) &&
                schedule != FLEET_SCHEDULE_DYNAMIC)
                continue;
            g = routed(wrong);
            desc.topology = fleet_topology_make(2, 3);
            desc.schedule = (fleet_schedule)schedule;
            CHECK_INT(fleet_plan_build(g, &desc, &plan), want[wrong].status);
            CHECK_TEXT(fleet_graph_error(g), want[wrong].text);
            if (plan) CHECK_INT(fleet_plan_check(plan, (size_t)plan->bytes), FLEET_OK);
            fleet_plan_free(plan);
            fleet_graph_destroy(g);
        }
}

/* In an unfused plan grids run in the order in which they were added: the writer before the tasks that its tensor
   names. */
static void run_time_maps_unfused(test_run *t)
{
    int late;
    for (late = 0; late < 2; late++) {
        fleet_graph *g = fleet_graph_create(NULL);
        fleet_dim n = fleet_dim_of(3);
        fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(n), 3);
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_grid move = fleet_call_device(g, "move", 0, fleet_shape1(n), 0), group, tile;
        fleet_tensor topk, counts, indptr;
        fleet_plan *plan;
        if (!late) group = fleet_call_device(g, "group", 1, fleet_shape0(), 0);
        tile = fleet_call_device(g, "tile", 2, fleet_shape1(fleet_dim_of(6)), 0);
        if (late) group = fleet_call_device(g, "group", 1, fleet_shape0(), 0);
        topk = fleet_runtime_tensor(g, "topk", fleet_shape2(n, fleet_dim_of(1)), move);
        counts = fleet_runtime_tensor(g, "counts", fleet_shape1(n), group);
        indptr = fleet_runtime_tensor(g, "indptr", fleet_shape1(fleet_dim_of(4)), group);
        fleet_out_edge_gather(g, move, E, topk);
        fleet_event_counts(g, E, counts);
        fleet_in_edge_range(g, tile, E, indptr);
        desc.topology = fleet_topology_make(2, 2);
        desc.unfused = 1;
        CHECK_INT(fleet_plan_build(g, &desc, &plan), late ? FLEET_ERROR_ORDER : FLEET_OK);
        CHECK_TEXT(fleet_graph_error(g),
                   late ? "unfused: grid tile waits for event tensor E, which grid group" : "");
        fleet_plan_free(plan);
        fleet_graph_destroy(g);
    }
}

/* Calls that are refused at once. */
static void run_time_handles(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim two = fleet_dim_of(2);
    fleet_grid x = fleet_call_device(g, "x", 0, fleet_shape1(two), 0);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(two), 2);
    fleet_tensor none = {0}, flat = fleet_runtime_tensor(g, "flat", fleet_shape1(two), x);
    CHECK_INT(fleet_graph_status(g), FLEET_OK);
    fleet_out_edge_gather(g, x, E, flat);
    CHECK_INT(fleet_graph_status(g), FLEET_ERROR_MAP);
    CHECK_TEXT(fleet_graph_error(g),
               "gather edge of grid x: run-time tensor flat has 1 axes, not 2");
    fleet_graph_destroy(g);
    g = fleet_graph_create(NULL);
    x = fleet_call_device(g, "x", 0, fleet_shape1(two), 0);
    E = fleet_event_tensor(g, "E", fleet_shape2(two, two), 2);
    fleet_in_edge_range(g, x, E, none);
    CHECK_INT(fleet_graph_status(g), FLEET_ERROR_HANDLE);
    fleet_graph_destroy(g);
    g = fleet_graph_create(NULL);
    x = fleet_call_device(g, "x", 0, fleet_shape1(two), 0);
    flat = fleet_runtime_tensor(g, "flat", fleet_shape1(two), x);
    fleet_tensor_none(g, flat, -1); /* no gather can have it */
    CHECK_INT(fleet_graph_status(g), FLEET_ERROR_MAP);
    CHECK_TEXT(fleet_graph_error(g), "value for none: run-time tensor flat has 1 axes, not 2");
    fleet_graph_destroy(g);
    g = fleet_graph_create(NULL);
    x = fleet_call_device(g, "x", 0, fleet_shape1(two), 0);
    E = fleet_event_tensor(g, "E", fleet_shape2(two, two), 2);
    flat = fleet_runtime_tensor(g, "flat", fleet_shape1(two), x);
    fleet_event_counts(g, E, flat);
    CHECK_INT(fleet_graph_status(g), FLEET_ERROR_MAP);
    CHECK_TEXT(fleet_graph_error(g),
               "counts of event tensor E: event tensor E has 2 axes, not one");
    fleet_graph_destroy(g);
}

static void too_many(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim big = fleet_dim_of(1 << 20);
    fleet_grid x;
    fleet_etensor E;
    fleet_plan_desc desc = fleet_plan_desc_default(), whatever = desc;
    whatever.max_work = UINT64_MAX; /* other limits are met first */
    fleet_call_device(g, "x", 0, fleet_shape2(big, big), 0);
    REFUSED(g, NULL, FLEET_ERROR_TOO_MANY_TASKS, "grid x has over 2^31-1 points");
    g = fleet_graph_create(NULL);
    fleet_call_device(g, "x", 0, fleet_shape1(fleet_dim_of(INT64_MAX)), 0);
    CHECK_INT(fleet_graph_status(g), FLEET_OK);
    REFUSED(g, NULL, FLEET_ERROR_TOO_MANY_TASKS, "grid x");
    g = fleet_graph_create(NULL);
    fleet_call_device(g, "x", 0, fleet_shape1(fleet_dim_of(0x7fffffff)), 0);
    fleet_call_device(g, "y", 0, ONE, 0);
    REFUSED(g, &whatever, FLEET_ERROR_TOO_MANY_TASKS, "grid y brings the graph to over");
    g = fleet_graph_create(NULL);
    fleet_event_tensor(g, "E", fleet_shape2(big, big), 0);
    REFUSED(g, NULL, FLEET_ERROR_TOO_MANY_TASKS, "event tensor E has over");
    /* The tasks can be numbered, but the copies of chiplet-tasks in 38 queues cannot. */
    g = fleet_graph_create(NULL);
    x = fleet_call_device(g, "x", 0, ONE, 0);
    fleet_grid_level(g, x, FLEET_LEVEL_DEVICE);
    fleet_grid_slices(g, x, fleet_dim_of(0x7fffffff));
    REFUSED(g, &whatever, FLEET_ERROR_TOO_MANY_TASKS, "descriptors");
    /* Elements can be numbered, but the words of their counters cannot. */
    g = fleet_graph_create(NULL);
    fleet_event_tensor(g, "a", fleet_shape1(fleet_dim_of(1 << 20)), 0);
    desc.counter_stride_bytes = 128, desc.max_work = UINT64_MAX;
    {
        char name[2] = "b";
        int i;
        for (i = 0; i < 5; i++, name[0]++)
            fleet_event_tensor(g, name, fleet_shape1(fleet_dim_of(1 << 24)), 0);
    }
    REFUSED(g, &desc, FLEET_ERROR_TOO_MANY_TASKS, "over 2^31-1 words");
    /* A descriptor counts its waits in 16 bits. */
    g = fleet_graph_create(NULL);
    E = fleet_event_tensor(g, "E", fleet_shape2(fleet_dim_of(70000), fleet_dim_of(2)), 0);
    x = fleet_call_device(g, "x", 0, fleet_shape1(fleet_dim_of(70000)), 0);
    fleet_out_edge(g, x, E, "i->ie");
    x = fleet_call_device(g, "y", 0, ONE, 0);
    fleet_in_edge_map(g, x, E, fleet_map2(fleet_axis_all(), fleet_axis(0, 0, 1, 1)));
    REFUSED(g, NULL, FLEET_ERROR_TOO_MANY_EDGES, "task y(0) has 70000 wait records, at most 65535");
    g = fleet_graph_create(NULL);
    E = fleet_event_tensor(g, "E", fleet_shape1(fleet_dim_of(65536)), 0);
    x = fleet_call_device(g, "x", 0, ONE, 0);
    fleet_out_edge(g, x, E, "i->e");
    REFUSED(g, NULL, FLEET_ERROR_TOO_MANY_EDGES, "task x(0) has 65536 notifies");
    g = fleet_graph_create(NULL);
    fleet_call_device(g, "x", 0, fleet_shape1(fleet_dim_of(-4)), 0);
    REFUSED(g, NULL, FLEET_ERROR_ARGUMENT, "grid x: extent 0 is -4");
}

static void scope_too_narrow(test_run *t)
{
    fleet_etensor E;
    fleet_graph *g = pair(fleet_dim_of(4), 0, &E);
    fleet_event_scope(g, E, FLEET_SCOPE_CHIPLET);
    REFUSED(g, NULL, FLEET_ERROR_SCOPE,
            "event tensor E: scope chiplet is given, but E[0] needs scope device");
    g = pair(fleet_dim_of(4), 0, &E);
    fleet_event_scope(g, E, FLEET_SCOPE_DEVICE);
    fleet_event_external(g, E, FLEET_EXTERNAL_WAITS, 0, FLEET_SCOPE_SYSTEM);
    REFUSED(g, NULL, FLEET_ERROR_SCOPE, "scope device is given, but E[0] needs scope system");
}

/* The fields of an unaware plan. Any plan checks tiles. Given scopes are widened, except where an external event
   needs one. */
static void unaware(test_run *t)
{
    static const struct {
        int64_t tiles;
        fleet_level level;
        const char *text;
    } c[] = {{0, FLEET_LEVEL_DEVICE, "grid x: tiles is 0, not in 1..65535"},
             {-3, FLEET_LEVEL_CHIPLET, "grid x: tiles is -3, not in 1..65535"},
             {65536, FLEET_LEVEL_DEVICE, "grid x: tiles is 65536, not in 1..65535"},
             {4, FLEET_LEVEL_CU, "grid x: only device- and chiplet-tasks have tiles"},
             {4, FLEET_LEVEL_WAVE, "grid x: only device- and chiplet-tasks have tiles"}};
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_graph *g, *other;
    fleet_plan *plan;
    fleet_etensor E;
    fleet_grid x;
    fleet_dim n;
    journal j;
    size_t i;
    for (i = 0; i < 2 * sizeof c / sizeof c[0]; i++) {
        g = fleet_graph_create(NULL);
        x = fleet_call_device(g, "x", 0, ONE, 0);
        fleet_grid_level(g, x, c[i / 2].level);
        fleet_grid_tiles(g, x, fleet_dim_of(c[i / 2].tiles));
        desc.chiplet_unaware = i % 2;
        REFUSED(g, &desc, FLEET_ERROR_ARGUMENT, c[i / 2].text);
    }
    desc.chiplet_unaware = 2;
    g = fleet_graph_create(NULL);
    REFUSED(g, &desc, FLEET_ERROR_ARGUMENT, "plan: chiplet_unaware is 2, not 0 or 1");
    desc.chiplet_unaware = 1;
    g = fleet_graph_create(NULL); /* a symbol may give 0 */
    n = fleet_symbol(g, "n", 0, 4);
    x = fleet_call_device(g, "x", 0, ONE, 0);
    fleet_grid_level(g, x, FLEET_LEVEL_DEVICE);
    fleet_grid_tiles(g, x, n);
    fleet_bind_at_build(&desc, n, 0);
    REFUSED(g, &desc, FLEET_ERROR_ARGUMENT, "grid x: tiles is 0");
    desc.n_bindings = 0;
    g = graph(&j);
    x = fleet_call_device(g, "x", 0, ONE, 0);
    fleet_grid_tiles(g, x, fleet_dim_ceil_div(fleet_dim_of(4), 0));
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "grid x: tiles is not a valid extent");
    g = graph(&j);
    other = fleet_graph_create(NULL);
    x = fleet_call_device(g, "x", 0, ONE, 0);
    fleet_grid_tiles(g, x, fleet_symbol(other, "n", 1, 2));
    fleet_graph_destroy(other);
    BROKEN(g, j, FLEET_ERROR_HANDLE, "grid x: tiles has a symbol of another graph");
    g = fleet_graph_create(NULL);
    x = fleet_call_device(g, "x", 0, ONE, 0);
    fleet_grid_level(g, x, FLEET_LEVEL_DEVICE);
    fleet_grid_slices(g, x, fleet_dim_of(65536));
    REFUSED(g, &desc, FLEET_ERROR_UNSUPPORTED,
            "grid x: slices is 65536, but an unaware plan allows at most 65535");
    g = fleet_graph_create(NULL);
    x = fleet_call_device(g, "x", 0, ONE, 0);
    fleet_grid_level(g, x, FLEET_LEVEL_DEVICE);
    fleet_grid_slices(g, x, fleet_dim_of(65535));
    fleet_grid_tiles(g, x, fleet_dim_of(65535));
    REFUSED(g, &desc, FLEET_ERROR_TOO_MANY_TASKS, "grid x brings the graph to over 2^31-1 tasks");
    g = pair(fleet_dim_of(4), 0, &E);
    fleet_event_scope(g, E, FLEET_SCOPE_DEVICE);
    fleet_event_external(g, E, FLEET_EXTERNAL_WAITS, 0, FLEET_SCOPE_SYSTEM);
    REFUSED(g, &desc, FLEET_ERROR_SCOPE, "scope device is given, but E[0] needs scope system");
    g = pair(fleet_dim_of(4), 0, &E);
    fleet_event_scope(g, E, FLEET_SCOPE_CHIPLET);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    CHECK_INT(events_of(plan)[0].scoped[FLEET_SCOPE_DEVICE], 4);
    fleet_plan_free(plan);
    fleet_graph_destroy(g);
}

static void cycles(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_shape two = fleet_shape1(fleet_dim_of(2));
    fleet_etensor E = fleet_event_tensor(g, "E", two, 0), F = fleet_event_tensor(g, "F", two, 0);
    fleet_grid a = fleet_call_device(g, "a", 0, two, 0), b = fleet_call_device(g, "b", 0, two, 0);
    fleet_out_edge(g, a, E, "i->i");
    fleet_in_edge(g, b, E, "i->i");
    fleet_out_edge(g, b, F, "i->i");
    fleet_in_edge(g, a, F, "i->i");
    REFUSED(g, NULL, FLEET_ERROR_CYCLE,
            "the graph has a cycle: a(0) waits for b(0) waits for a(0)");
    g = fleet_graph_create(NULL);
    E = fleet_event_tensor(g, "E", two, 0);
    a = fleet_call_device(g, "a", 0, two, 0);
    fleet_out_edge(g, a, E, "i->i");
    fleet_in_edge(g, a, E, "i->i");
    REFUSED(g, NULL, FLEET_ERROR_CYCLE, "the graph has a cycle: a(0) waits for a(0)");
}

/* Each queue alone is fine; together they deadlock. */
static void static_orders(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_etensor E = fleet_event_tensor(g, "E", ONE, 0), F = fleet_event_tensor(g, "F", ONE, 0);
    fleet_grid wants_e = fleet_call_device(g, "wants_e", 0, ONE, 0);
    fleet_grid wants_f = fleet_call_device(g, "wants_f", 0, ONE, 0);
    fleet_grid makes_f = fleet_call_device(g, "makes_f", 0, ONE, 0);
    fleet_grid makes_e = fleet_call_device(g, "makes_e", 0, ONE, 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_axis_map zero = fleet_axis(0, 0, 0, 1), one = fleet_axis(0, 0, 1, 1);
    fleet_plan *plan;
    fleet_in_edge(g, wants_e, E, "i->i");
    fleet_in_edge(g, wants_f, F, "i->i");
    fleet_out_edge(g, makes_f, F, "i->i");
    fleet_out_edge(g, makes_e, E, "i->i");
    desc.topology = fleet_topology_make(2, 1);
    fleet_grid_place(g, wants_e, fleet_map1(zero));
    fleet_grid_place(g, makes_f, fleet_map1(zero)); /* after wants_e */
    fleet_grid_place(g, wants_f, fleet_map1(one));
    fleet_grid_place(g, makes_e, fleet_map1(one)); /* after wants_f */
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_ORDER);
    /* Either of the two queues may be named. */
    CHECK_TEXT(fleet_graph_error(g), "in the queue of worker 0 of chiplet ");
    CHECK_TEXT(fleet_graph_error(g), " is before makes_");
    CHECK_TEXT(fleet_graph_error(g), ", but can run only after it: add grid makes_");
    fleet_grid_place(g, makes_f, fleet_map2(zero, one)); /* on a worker of its own it is fine */
    desc.topology = fleet_topology_make(2, 2);
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    fleet_plan_free(plan);
    fleet_grid_place(g, makes_f, fleet_map1(zero));
    fleet_grid_place(g, wants_f, fleet_map1(one));
    desc.schedule = FLEET_SCHEDULE_CHIPLET;
    REFUSED(g, &desc, FLEET_ERROR_ORDER, "(0) is before makes_");
}

static void grids_after_grids(test_run *t)
{
    journal j;
    fleet_graph *g = graph(&j), *other = fleet_graph_create(NULL);
    fleet_grid x = fleet_call_device(g, "x", 0, ONE, 0), y;
    fleet_grid foreign = fleet_call_device(other, "foreign", 0, ONE, 0);
    char place[64];
    snprintf(place, sizeof place, "plan_errors.c:%d: fleet_after: grid x cannot", __LINE__ + 1);
    fleet_after(g, x, x);
    BROKEN(g, j, FLEET_ERROR_CYCLE, place);
    g = graph(&j);
    x = fleet_call_device(g, "x", 0, ONE, 0);
    fleet_after(g, x, foreign);
    BROKEN(g, j, FLEET_ERROR_HANDLE, "grid handle 1 is of another graph");
    g = graph(&j);
    x = fleet_call_device(g, "x", 0, ONE, 0);
    fleet_after(g, foreign, x);
    BROKEN(g, j, FLEET_ERROR_HANDLE, "grid handle 1 is of another graph");
    fleet_graph_destroy(other);
    g = graph(&j);
    x = fleet_call_device(g, "x", 0, ONE, 0);
    y = fleet_call_device(g, "y", 0, ONE, 0);
    fleet_after(g, x, y);
    fleet_after(g, y, x);
    REFUSED(g, NULL, FLEET_ERROR_CYCLE, "the graph has a cycle: x(0) waits for y(0)");
    fleet_after(NULL, x, y);
}

static void orders_by_keys(test_run *t)
{
    journal j;
    fleet_graph *g = graph(&j);
    fleet_shape four = fleet_shape1_of(4);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_etensor E;
    fleet_grid x, y;
    x = fleet_call_device(g, "x", 0, four, 0);
    fleet_grid_order(g, x, fleet_key_plus(fleet_key_of(0), 1, 1));
    BROKEN(g, j, FLEET_ERROR_ARGUMENT,
           "order of grid x: the key names task axis 1, but the grid has 1 axes");
    g = graph(&j);
    x = fleet_call_device(g, "x", 0, four, 0);
    fleet_grid_order(g, x, fleet_key_plus(fleet_key_of(0), FLEET_MAX_RANK, 1));
    BROKEN(g, j, FLEET_ERROR_ARGUMENT, "order of grid x: the constant of the key is over 2^61");
    g = graph(&j);
    x = fleet_call_device(g, "x", 0, four, 0);
    fleet_grid_order(g, x, fleet_key_plus(fleet_key_of(-1), 0, INT64_MAX / 8));
    REFUSED(g, NULL, FLEET_ERROR_ARGUMENT,
            "order of grid x: a key is over 2^61: use smaller weights");
    x.id = 1;
    fleet_grid_order(NULL, x, fleet_key_of(0));
    /* Keys that turn a good order round. */
    g = graph(&j);
    E = fleet_event_tensor(g, "E", four, 0);
    x = fleet_call_device(g, "x", 0, four, 0);
    y = fleet_call_device(g, "y", 0, four, 0);
    fleet_out_edge(g, x, E, "i->i");
    fleet_in_edge(g, y, E, "i->i");
    fleet_grid_order(g, x, fleet_key_of(1));
    fleet_grid_order(g, y, fleet_key_of(0));
    desc.topology = fleet_topology_make(1, 1);
    REFUSED(
        g, &desc, FLEET_ERROR_ORDER,
        "in the queue of worker 0 of chiplet 0 task y(0) is before x(0), but can run only after "
        "it: change the key of grid x or of grid y (fleet_grid_order)");
}

/* Two grids whose tasks wait for one another in turn: ping(0), pong(0), ping(1), pong(1) ... One worker has them all. */
static fleet_graph *ping_pong(int pong_first, fleet_schedule ping_is)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_shape four = fleet_shape1(fleet_dim_of(4));
    fleet_etensor E = fleet_event_tensor(g, "E", four, 0);
    fleet_etensor F = fleet_event_tensor(g, "F", fleet_shape1(fleet_dim_of(5)), 0);
    fleet_grid begin = fleet_call_device(g, "begin", 0, fleet_shape0(), 0), ping, pong;
    if (pong_first) pong = fleet_call_device(g, "pong", 0, four, 0);
    ping = fleet_call_device(g, "ping", 0, four, 0);
    if (!pong_first) pong = fleet_call_device(g, "pong", 0, four, 0);
    fleet_out_edge_map(g, begin, F, fleet_map1(fleet_axis(0, 0, 0, 1)));
    fleet_in_edge(g, ping, F, "i->i");
    fleet_out_edge(g, ping, E, "i->i");
    fleet_in_edge(g, pong, E, "i->i");
    fleet_out_edge_map(g, pong, F, fleet_map1(fleet_axis(0, 1, 1, 1)));
    if (ping_is != FLEET_SCHEDULE_STATIC) fleet_grid_schedule(g, ping, ping_is);
    return g;
}

/* The advice of FLEET_ERROR_ORDER helps: it does not lead from one order of the grids to another and back. */
static void advice_on_orders(test_run *t)
{
    int pong_first;
    for (pong_first = 0; pong_first < 2; pong_first++) {
        fleet_graph *g = ping_pong(pong_first, FLEET_SCHEDULE_STATIC);
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *plan = NULL;
        desc.topology = fleet_topology_make(1, 1);
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_ORDER);
        CHECK_TEXT(fleet_graph_error(g),
                   pong_first ? "no order of the grids helps: order their tasks by keys "
                                "(fleet_grid_order), or make grid pong DYNAMIC"
                              : "no order of the grids helps: order their tasks by keys "
                                "(fleet_grid_order), or make grid ping DYNAMIC");
        desc.schedule = FLEET_SCHEDULE_CHIPLET;
        desc.topology = fleet_topology_make(1, 2);
        /* A scheduler looks ahead, but its queue is one. */
        REFUSED(g, &desc, FLEET_ERROR_ORDER,
                "no order of the grids helps: order their tasks by keys "
                "(fleet_grid_order), or build the plan under DYNAMIC");
        g = ping_pong(pong_first, FLEET_SCHEDULE_STATIC);
        desc.schedule = FLEET_SCHEDULE_STATIC;
        desc.unfused = 1;
        REFUSED(g, &desc, FLEET_ERROR_ORDER, "no order of the grids helps: split one of them");
    }
    {
        fleet_graph *g = ping_pong(0, FLEET_SCHEDULE_DYNAMIC);
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *plan = NULL;
        desc.topology = fleet_topology_make(1, 1);
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
        fleet_plan_free(plan);
        fleet_graph_destroy(g);
    }
}

/* AUTO does not refuse what DYNAMIC can run, and does not report its first choice. */
static void auto_untangles(test_run *t)
{
    int one;
    for (one = 0; one < 2; one++) {
        fleet_graph *g = ping_pong(0, one ? FLEET_SCHEDULE_AUTO : FLEET_SCHEDULE_STATIC);
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *plan = NULL;
        char text[4096];
        desc.topology = fleet_topology_make(1, 1);
        desc.schedule = one ? FLEET_SCHEDULE_STATIC : FLEET_SCHEDULE_AUTO;
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
        CHECK_TEXT(fleet_graph_error(g), "");
        CHECK_INT(fleet_graph_status(g), FLEET_OK);
        CHECK_INT(fleet_plan_check(plan, (size_t)plan->bytes), FLEET_OK);
        fleet_plan_report(plan, text, sizeof text);
        CHECK_TEXT(text, "AUTO makes grid ping DYNAMIC: fixed queues in the order of the grids "
                         "would deadlock");
        fleet_plan_free(plan);
        fleet_graph_destroy(g);
    }
}

/* With a limit below 0 no task would reach anything. */
static void limits(test_run *t)
{
    static const int64_t limit[] = {-1, -5, INT64_MIN, INT64_MIN + 1};
    uint32_t i;
    for (i = 0; i < 6; i++) {
        journal j;
        fleet_graph *g = graph(&j);
        fleet_dim n = fleet_symbol(g, "n", 1, 8);
        fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(fleet_dim_of(8)), 0);
        fleet_grid x = fleet_call_device(g, "x", 0, fleet_shape1(fleet_dim_of(8)), 0);
        fleet_axis_map a = fleet_axis(0, 1, 0, 1);
        if (i < 4) {
            a.limit = fleet_dim_of(limit[i]);
            fleet_out_edge_map(g, x, E, fleet_map1(a));
            BROKEN(g, j, FLEET_ERROR_ARGUMENT,
                   "out edge of grid x and event tensor E: limit of map axis 0 is ");
            continue;
        }
        a.limit = fleet_dim_plus(n, -8);
        if (i == 4)
            fleet_out_edge_map(g, x, E, fleet_map1(a));
        else
            fleet_in_edge_map(g, x, E, fleet_map1(a));
        REFUSED(g, NULL, FLEET_ERROR_ARGUMENT,
                i == 4 ? "out edge of grid x: limit of map axis 0 is -7, below 0"
                       : "in edge of grid x: limit of map axis 0 is -7, below 0");
    }
}

/* A chain of 100,000 tasks that is queued in the wrong order, and then closed to a cycle: the search for the cause
   must take linear time. */
static void large_knots(test_run *t)
{
    int closed;
    for (closed = 0; closed < 2; closed++) {
        fleet_graph *g = fleet_graph_create(NULL);
        fleet_dim n = fleet_dim_of(100000);
        fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(fleet_dim_of(100001)), 0);
        fleet_grid x = fleet_call_device(g, "x", 0, fleet_shape1(n), 0);
        fleet_grid end = fleet_call_device(g, "end", 0, fleet_shape0(), 0);
        fleet_out_edge_map(g, x, E, fleet_map1(fleet_axis(0, 1, 0, 1)));
        fleet_in_edge_map(g, x, E, fleet_map1(fleet_axis(0, 1, 1, 1)));
        fleet_out_edge_map(g, end, E, fleet_map1(fleet_axis(0, 0, 100000, 1)));
        if (closed) fleet_in_edge_map(g, end, E, fleet_map1(fleet_axis(0, 0, 0, 1)));
        if (closed)
            REFUSED(g, NULL, FLEET_ERROR_CYCLE,
                    "x(0) waits for x(1) waits for x(2) waits for x(3) "
                    "waits for 99997 more");
        else
            REFUSED(g, NULL, FLEET_ERROR_ORDER, "can run only after it");
    }
}

static void topologies(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan;
    fleet_call_device(g, "x", 0, ONE, 0);
    desc.topology.chiplets = 0;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_TOPOLOGY);
    CHECK_TEXT(fleet_graph_error(g), "topology: chiplets is 0, not in 1..32");
    desc.topology.chiplets = 33;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_TOPOLOGY);
    desc = fleet_plan_desc_default();
    desc.topology.units[5] = 0;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_TOPOLOGY);
    CHECK_TEXT(fleet_graph_error(g), "topology: units[5] is 0");
    desc.topology.units[5] = 1;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
    fleet_plan_free(plan);
    desc.schedule = FLEET_SCHEDULE_CHIPLET;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_TOPOLOGY);
    CHECK_TEXT(fleet_graph_error(g), "one is the scheduler");
    desc.topology.wave_size = 48;
    desc.topology.units[5] = 38;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_TOPOLOGY);
    CHECK_TEXT(fleet_graph_error(g), "wave_size is 48");
    desc.topology.wave_size = 128;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_TOPOLOGY);
    desc = fleet_plan_desc_default();
    desc.topology.units[3] = 30;
    desc.workers_per_chiplet = 31;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_TOO_MANY_WORKERS);
    CHECK_TEXT(fleet_graph_error(g), "workers_per_chiplet is 31, but chiplet 3 has room for 30");
    desc.workers_per_chiplet = 30;
    desc.schedule = FLEET_SCHEDULE_CHIPLET;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_TOO_MANY_WORKERS);
    CHECK_TEXT(fleet_graph_error(g), "chiplet 3 has room for 29 and the scheduler");
    desc = fleet_plan_desc_default();
    desc.schedule = (fleet_schedule)4;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_ARGUMENT);
    CHECK_TEXT(fleet_graph_error(g), "schedule 4");
    desc = fleet_plan_desc_default();
    desc.counter_levels = 3;
    CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_ERROR_ARGUMENT);
    CHECK_TEXT(fleet_graph_error(g), "counter_levels is 3");
    desc = fleet_plan_desc_default();
    desc.counter_stride_bytes = 24;
    REFUSED(g, &desc, FLEET_ERROR_ARGUMENT, "counter_stride_bytes is 24");
}

/* No task of the launch would push what an external event makes ready: a grid that waits for it is
   STATIC in a DYNAMIC plan, and cannot be declared DYNAMIC. */
static void outside_under_dynamic(test_run *t)
{
    for (uint32_t declared = 0; declared < 2; declared++) {
        fleet_graph *g = fleet_graph_create(NULL);
        fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape0(), 0);
        fleet_grid x = fleet_call_device(g, "x", 0, fleet_shape0(), 0);
        fleet_plan_desc desc = fleet_plan_desc_default();
        fleet_plan *plan;
        fleet_in_edge(g, x, E, "->");
        fleet_event_external(g, E, FLEET_EXTERNAL_NOTIFIES, 1, FLEET_SCOPE_SYSTEM);
        if (declared) fleet_grid_schedule(g, x, FLEET_SCHEDULE_DYNAMIC);
        desc.schedule = FLEET_SCHEDULE_DYNAMIC;
        if (declared) {
            REFUSED(g, &desc, FLEET_ERROR_UNSUPPORTED,
                    "grid x, which waits for it, cannot have the schedule DYNAMIC");
            continue;
        }
        CHECK_INT(fleet_plan_build(g, &desc, &plan), FLEET_OK);
        fleet_plan_free(plan);
        fleet_graph_destroy(g);
    }
}

/* The schedules that a single grid may have, and in which plans. */
static void schedules_of_grids(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_grid x = fleet_call_device(g, "x", 0, fleet_shape1(fleet_dim_of(4)), 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_grid_schedule(g, x, FLEET_SCHEDULE_DYNAMIC);
    desc.schedule = FLEET_SCHEDULE_CHIPLET;
    REFUSED(g, &desc, FLEET_ERROR_UNSUPPORTED, "grid x has its own schedule");
    g = fleet_graph_create(NULL);
    x = fleet_call_device(g, "x", 0, fleet_shape1(fleet_dim_of(4)), 0);
    fleet_grid_schedule(g, x, FLEET_SCHEDULE_CHIPLET);
    REFUSED(g, NULL, FLEET_ERROR_ARGUMENT, "grid x: schedule is 1, but that of a grid must be");
    g = fleet_graph_create(NULL);
    x = fleet_call_device(g, "x", 0, fleet_shape1(fleet_dim_of(4)), 0);
    fleet_grid_schedule(g, x, FLEET_SCHEDULE_DYNAMIC);
    fleet_grid_place(g, x, fleet_map2(fleet_axis(0, 0, 0, 1), fleet_axis(0, 0, 0, 1)));
    REFUSED(g, NULL, FLEET_ERROR_PLACEMENT, "only a STATIC grid may name workers");
    g = fleet_graph_create(NULL);
    x = fleet_call_device(g, "x", 0, fleet_shape1(fleet_dim_of(4)), 0);
    desc.schedule = FLEET_SCHEDULE_AUTO;
    desc.costs.static_task = -1;
    REFUSED(g, &desc, FLEET_ERROR_ARGUMENT, "one of the costs is negative or NaN");
}

/* A fixed queue beside ready queues can still deadlock. */
static void order_in_a_mixed_plan(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_etensor a = fleet_event_tensor(g, "a", fleet_shape0(), 0);
    fleet_etensor b = fleet_event_tensor(g, "b", fleet_shape0(), 0);
    fleet_grid last = fleet_call_device(g, "last", 0, fleet_shape0(), 0);
    fleet_grid first = fleet_call_device(g, "first", 0, fleet_shape0(), 0);
    fleet_grid between = fleet_call_device(g, "between", 0, fleet_shape0(), 0);
    fleet_out_edge(g, first, a, "->");
    fleet_in_edge(g, between, a, "->");
    fleet_out_edge(g, between, b, "->");
    fleet_in_edge(g, last, b, "->");
    fleet_grid_schedule(g, between, FLEET_SCHEDULE_DYNAMIC);
    desc.topology = fleet_topology_make(1, 1);
    REFUSED(g, &desc, FLEET_ERROR_ORDER, "task last() is before first()");
}

static void placements(test_run *t)
{
    static const char *const text[] = {
        "task x(2,0) names chiplet 8 of 8",
        "task x(0,0) names worker -1 of 38",
        "slice s of a device-task",
        "all workers of a chiplet run a chiplet-task",
        "only a STATIC grid may name workers",
        "task x(0,0) has 2 chiplets, not one",
    };
    int i;
    for (i = 0; i < 6; i++) {
        fleet_graph *g = fleet_graph_create(NULL);
        fleet_grid x =
            fleet_call_device(g, "x", 0, fleet_shape2(fleet_dim_of(4), fleet_dim_of(2)), 0);
        fleet_axis_map good = fleet_axis(0, 1, 0, 1), wide = good;
        fleet_plan_desc desc = fleet_plan_desc_default();
        wide.width = 2;
        fleet_grid_place(g, x, fleet_map1(good));
        if (i == 0) fleet_grid_place(g, x, fleet_map1(fleet_axis(0, 4, 0, 1)));
        if (i == 1) fleet_grid_place(g, x, fleet_map2(good, fleet_axis(0, 1, -1, 1)));
        if (i == 2) fleet_grid_level(g, x, FLEET_LEVEL_DEVICE);
        if (i == 3) fleet_grid_level(g, x, FLEET_LEVEL_CHIPLET);
        if (i == 3 || i == 4) fleet_grid_place(g, x, fleet_map2(good, good));
        if (i == 4) desc.schedule = FLEET_SCHEDULE_CHIPLET;
        if (i == 5) fleet_grid_place(g, x, fleet_map1(wide));
        REFUSED(g, &desc, FLEET_ERROR_PLACEMENT, text[i]);
    }
    {
        journal j;
        fleet_graph *g = graph(&j);
        fleet_grid_place(g, fleet_call_device(g, "x", 0, ONE, 0), fleet_map1(fleet_axis_all()));
        BROKEN(g, j, FLEET_ERROR_PLACEMENT, "placement of grid x: a task has one place");
        g = graph(&j);
        fleet_grid_place(g, fleet_call_device(g, "x", 0, ONE, 0), fleet_map0());
        BROKEN(g, j, FLEET_ERROR_MAP, "placement of grid x: the map has 0 axes");
        g = graph(&j);
        fleet_grid_slices(g, fleet_call_device(g, "x", 0, ONE, 0), fleet_dim_of(2));
        REFUSED(g, NULL, FLEET_ERROR_ARGUMENT, "grid x: only device-tasks have slices");
    }
}

/* ---- blocks from outside --------------------------------------------------------------------------------- */

static fleet_plan *small_plan(fleet_schedule schedule, int buckets, uint32_t unaware)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_dim two = buckets ? fleet_symbol(g, "n", 1, 2) : fleet_dim_of(2);
    fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(two), 0);
    fleet_etensor F = fleet_event_tensor(g, "F", fleet_shape0(), 0);
    fleet_grid w = fleet_call_device(g, "w", 0, fleet_shape2(two, fleet_dim_of(3)), 0);
    fleet_grid d = fleet_call_device(g, "d", 1, fleet_shape0(), 0);
    fleet_grid c = fleet_call_device(g, "c", 2, fleet_shape1(two), 0);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    fleet_grid_level(g, w, FLEET_LEVEL_WAVE);
    fleet_grid_level(g, d, FLEET_LEVEL_DEVICE);
    fleet_grid_tiles(g, d, fleet_dim_of(2));
    fleet_out_edge(g, w, E, "ij->i");
    fleet_in_edge(g, d, E, "->e");
    fleet_out_edge(g, d, F, "->");
    fleet_in_edge(g, c, F, "i->");
    fleet_in_edge(g, c, E, "i->i");
    if (schedule != FLEET_SCHEDULE_DYNAMIC && !buckets)
        fleet_event_external(g, F, FLEET_EXTERNAL_WAITS, 0, FLEET_SCOPE_SYSTEM);
    desc.topology = fleet_topology_make(2, 3);
    desc.schedule = schedule;
    desc.chiplet_unaware = unaware;
    fleet_plan_build(g, &desc, &plan);
    fleet_graph_destroy(g);
    return plan;
}

static fleet_plan *mapped_plan(void)
{
    fleet_graph *g = routed(ALL_RIGHT);
    fleet_plan_desc desc = fleet_plan_desc_default();
    fleet_plan *plan = NULL;
    desc.topology = fleet_topology_make(2, 2);
    desc.schedule = FLEET_SCHEDULE_DYNAMIC;
    fleet_plan_build(g, &desc, &plan);
    fleet_graph_destroy(g);
    return plan;
}

/* Calls every query of an accepted plan; the sanitizers watch. */
static void ask_everything(const fleet_plan *plan)
{
    char text[512];
    uint32_t i;
    int32_t at[FLEET_MAX_RANK] = {0, 0, 0, 0, 0, 0};
    fleet_plan_get_stats(plan);
    fleet_plan_report(plan, text, sizeof text);
    fleet_plan_event(plan, "F");
    fleet_plan_task(plan, "w", at);
    for (i = 0; i < 40; i++) fleet_plan_task_name(plan, i, text, sizeof text);
    for (i = 0; i < 600; i += 7) fleet_plan_counter_name(plan, i, text, sizeof text);
    for (i = 0; i + 1 < plan->n_buckets; i++) ask_everything(fleet_plan_bucket(plan, i));
}

/* A plan without buckets, with a matching checksum. */
static fleet_status check_sealed(fleet_plan *plan)
{
    seal(plan, plan->bytes, NULL, 1);
    return fleet_plan_check(plan, (size_t)plan->bytes);
}

/* Parts that must agree. Each of these disagreements once passed the check and misled a launch. */
static void forged_fields(test_run *t)
{
    fleet_plan *plan = small_plan(FLEET_SCHEDULE_STATIC, 0, 0), *mapped = mapped_plan();
    const size_t bytes = (size_t)plan->bytes, mapped_bytes = (size_t)mapped->bytes;
    fleet_plan *p = (fleet_plan *)malloc(bytes), *m = (fleet_plan *)malloc(mapped_bytes);
    const uint32_t end = queues_of(plan)[0].first + queues_of(plan)[0].count - 1;
    uint32_t i, gather = 0;
    const fleeti_runtime_map *maps = (const fleeti_runtime_map *)section(mapped, mapped->maps);
    while (maps[gather].kind != FLEETI_MAP_GATHER) gather++;
    memcpy(m, mapped, mapped_bytes);
    CHECK_INT(check_sealed(m), FLEET_OK);
    for (i = 0; i < 13; i++) {
        fleet_task *tasks = (fleet_task *)((char *)p + plan->tasks);
        fleeti_notify *notify = (fleeti_notify *)((char *)p + plan->notifies);
        fleeti_runtime_map *map = (fleeti_runtime_map *)((char *)m + mapped->maps) + gather;
        memcpy(p, plan, bytes);
        memcpy(m, mapped, mapped_bytes);
        CHECK_INT(check_sealed(p), FLEET_OK);
        CHECK(tasks[end].tile == FLEETI_TILE_NONE);
        switch (i) {
        case 0:
            tasks[end].flags = FLEETI_GUARDED;
            break;
        case 1:
            tasks[end].flags = FLEETI_MAPPED;
            break;
        case 2:
            tasks[end].args = 1000000;
            break;
        case 3:
            tasks[0].tile = 2;
            break;
        case 4:
            tasks[0].args = 1000000;
            break;
        case 5:
            tasks[0].at[5] = 1;
            break;
        case 6:
            p->counter_words = 1000000000;
            break;
        case 7:
            p->system_words += 32;
            break;
        case 8:
            p->buckets = 64;
            break;
        case 9:
            p->guards += 64;
            break;
        case 10: /* a local arrival in host memory */
            while (!(notify->counter & FLEETI_SYSTEM)) notify++;
            notify->sub = FLEETI_LOCAL, notify->share = 0, notify->weight = 1;
            break;
        case 11:
            map->values = 1 << 20;
            break;
        default: /* an element */
            map->none = 1;
            break;
        }
        CHECK(check_sealed(i < 11 ? p : m) != FLEET_OK);
    }
    free(p);
    free(m);
    fleet_plan_free(plan);
    fleet_plan_free(mapped);
}

/* What a plan asks of its caller. */
static void asked_of_the_caller(test_run *t)
{
    fleet_plan *plan = mapped_plan();
    CHECK_INT(fleet_plan_tensor_values(plan, "none"), -1);
    CHECK_INT(fleet_plan_tensor_values(NULL, "topk"), -1);
    CHECK_INT(fleet_plan_tensor_values(plan, NULL), -1);
    CHECK_INT(fleet_plan_args(plan), 1);
    CHECK_INT(fleet_plan_args(NULL), 0);
    fleet_plan_free(plan);
}

static void images(test_run *t)
{
    fleet_plan *plan = small_plan(FLEET_SCHEDULE_STATIC, 0, 0), *other;
    size_t bytes = (size_t)plan->bytes, n;
    CHECK_INT(fleet_plan_check(plan, bytes), FLEET_OK);
    CHECK_INT(fleet_plan_check(plan, bytes + 100), FLEET_OK); /* a larger buffer holds it too */
    for (n = 0; n < bytes; n++) {
        /* A buffer of exactly n bytes: an access beyond it is an error of the sanitizer. */
        char *cut = (char *)malloc(n ? n : 1);
        memcpy(cut, plan, n);
        CHECK_INT(fleet_plan_check(cut, n), FLEET_ERROR_IMAGE_SIZE);
        free(cut);
    }
    other = (fleet_plan *)malloc(bytes);
    memcpy(other, plan, bytes);
    other->version++;
    CHECK_INT(fleet_plan_check(other, bytes), FLEET_ERROR_IMAGE_VERSION);
    CHECK_INT(fleet_plan_version(other, bytes), FLEET_VERSION + 1);
    CHECK_INT(fleet_plan_version(plan, bytes), FLEET_VERSION);
    CHECK_INT(fleet_plan_version(plan, 11), 0);
    CHECK_INT(fleet_plan_version(NULL, bytes), 0);
    other->magic ^= 1;
    CHECK_INT(fleet_plan_version(other, bytes), 0);
    CHECK_INT(fleet_plan_check(other, bytes), FLEET_ERROR_IMAGE_MAGIC);
    memcpy(other, plan, bytes);
    other->header_bytes += 8;
    CHECK_INT(fleet_plan_check(other, bytes), FLEET_ERROR_IMAGE_SIZE);
    memcpy(other, plan, bytes);
    other->tasks = ~63ull;
    CHECK_INT(fleet_plan_check(other, bytes), FLEET_ERROR_IMAGE_CHECKSUM);
    CHECK_INT(check_sealed(other), FLEET_ERROR_IMAGE_SIZE);
    memcpy(other, plan, bytes);
    ((fleeti_wait *)((char *)other + other->waits))->counter = 1u << 20;
    CHECK_INT(check_sealed(other), FLEET_ERROR_IMAGE_INDEX);
    memcpy(other, plan, bytes);
    ((fleet_task *)((char *)other + other->tasks))->notifies = other->n_notifies;
    CHECK_INT(check_sealed(other), FLEET_ERROR_IMAGE_INDEX);
    memcpy(other, plan, bytes);
    memset((char *)other + other->names, 'x', bytes - (size_t)other->names); /* without an end */
    CHECK_INT(check_sealed(other), FLEET_ERROR_IMAGE_SIZE);
    free(other);
    CHECK_INT(fleet_plan_check((char *)plan + 4, bytes - 4), FLEET_ERROR_ARGUMENT); /* misaligned */
    fleet_plan_free(plan);
}

/* Sets every byte in turn to several other values, and words to extreme ones, with a matching checksum: refused or
   harmless. */
static void hostile_images(test_run *t)
{
    static const unsigned char flips[] = {0x01, 0x80, 0xff, 0x55};
    static const uint32_t words[] = {0, 1, 0x7fffffffu, 0x80000000u, 0xffffffffu};
    int kind;
    for (kind = 0; kind < 8; kind++) {
        /* A plan of each schedule, one with buckets, one with run-time maps; an unaware plan of each schedule. */
        fleet_plan *plan = kind == 4  ? mapped_plan()
                           : kind > 4 ? small_plan((fleet_schedule)(kind - 5), 0, 1)
                                      : small_plan((fleet_schedule)(kind % 3), kind == 3, 0);
        size_t bytes = (size_t)plan->bytes, i, k;
        unsigned char *image = (unsigned char *)malloc(bytes);
        const uint32_t buckets = plan->n_buckets;
        uint64_t table[FLEET_MAX_BUCKETS];
        memset(table, 0, sizeof table);
        if (buckets > 1) memcpy(table, section(plan, plan->buckets), buckets * sizeof table[0]);
        memcpy(image, plan, bytes);
        for (i = 0; i < bytes; i++) {
            unsigned char keep = image[i];
            for (k = 0; k < sizeof flips; k++) {
                image[i] = keep ^ flips[k];
                seal(image, bytes, table, buckets);
                if (fleet_plan_check(image, bytes) == FLEET_OK)
                    ask_everything((fleet_plan *)(void *)image);
            }
            image[i] = keep;
        }
        for (i = 0; i + 4 <= bytes; i += 4) {
            uint32_t keep;
            memcpy(&keep, image + i, 4);
            for (k = 0; k < sizeof words / sizeof words[0]; k++) {
                memcpy(image + i, &words[k], 4);
                seal(image, bytes, table, buckets);
                if (fleet_plan_check(image, bytes) == FLEET_OK)
                    ask_everything((fleet_plan *)(void *)image);
            }
            memcpy(image + i, &keep, 4);
        }
        seal(image, bytes, table, buckets);
        CHECK_INT(fleet_plan_check(image, bytes), FLEET_OK);
        /* The target of the step event, by which workers divide. */
        ((uint32_t *)(void *)(image + plan->targets))[plan->n_elements - 1] = 0;
        seal(image, bytes, table, buckets);
        CHECK_INT(fleet_plan_check(image, bytes), FLEET_ERROR_IMAGE_INDEX);
        free(image);
        fleet_plan_free(plan);
    }
}

static void list(test_run *t)
{
    TEST(null_pointers);
    TEST(names);
    TEST(place_of_the_call);
    TEST(arguments);
    TEST(handles);
    TEST(handles_of_another_graph);
    TEST(einsum_strings);
    TEST(tensors);
    TEST(maps);
    TEST(periodic_maps);
    TEST(maps_out_of_shape);
    TEST(counts);
    TEST(never_notified);
    TEST(nobody_waits);
    TEST(symbols);
    TEST(symbols_at_launch);
    TEST(dependent_extents);
    TEST(triangles);
    TEST(run_time_maps);
    TEST(run_time_maps_unfused);
    TEST(run_time_handles);
    TEST(too_many);
    TEST(scope_too_narrow);
    TEST(unaware);
    TEST(cycles);
    TEST(static_orders);
    TEST(grids_after_grids);
    TEST(orders_by_keys);
    TEST(advice_on_orders);
    TEST(auto_untangles);
    TEST(limits);
    TEST(large_knots);
    TEST(topologies);
    TEST(outside_under_dynamic);
    TEST(schedules_of_grids);
    TEST(order_in_a_mixed_plan);
    TEST(placements);
    TEST(images);
    TEST(forged_fields);
    TEST(asked_of_the_caller);
    TEST(hostile_images);
}

TEST_MAIN(list)
