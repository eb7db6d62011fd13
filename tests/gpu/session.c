/* Sessions: a graph that is opened, run several times and closed; failures are kept, and nothing leaks. And what the
   declaration of a kernel saves its launches. */
// run: asan engine=both
// run: tsan
// hip: 6 runs
#include <errno.h>
#include <math.h>
#include <time.h>
#include <unistd.h>

#include "names.h"
#include "settings.h"

#define MOST 64
#if defined(FLEET_HIP)
#define API(name) hip##name
#elif defined(FLEET_CUDA)
#define API(name) cuda##name
#endif

typedef struct sum { /* what every tile sees */
    uint32_t *squares, *total;
    uint32_t add, fails;
} sum;

FLEET_TILE(square, sum)
{
#if !defined(FLEET_HOST)
    if (ctx.threads != 64) return FLEET_ERROR_LAUNCH;
#endif
    if (fleet_extent(&ctx, 0) != ctx.symbols[0]) return FLEET_ERROR_ARGUMENT;
    if (ctx.thread == 0) args->squares[at[0]] = (uint32_t)(at[0] * at[0]);
    return args->fails ? FLEET_ERROR_TILE : FLEET_OK;
}
FLEET_TILE(add, sum)
{
    uint32_t total = args->add;
    for (int32_t i = 0; i < ctx.symbols[0]; i++) total += args->squares[i];
    if (ctx.thread == 0) *args->total = total;
    return FLEET_OK;
}
#define SUM_TILES(TILE, P) TILE(P, square) TILE(P, add)
FLEET_MEGAKERNEL(sum, SUM_TILES, FLEET_ANY_THREADS(64))

/* No name of a tile is taken by the kit or by a library, and a tile may ignore what it gets. */
typedef struct odd {
    uint32_t *runs;
} odd;
#define ODD_TILE(args_type, name)                                                                  \
    FLEET_TILE(name, args_type)                                                                    \
    {                                                                                              \
        return FLEET_OK;                                                                           \
    }
NAMES(ODD_TILE, odd)
/* Macros, which the kit's do not expand. */
FLEET_TILE(errno, odd)
{
    return FLEET_OK;
}
FLEET_TILE(stdout, odd)
{
    return FLEET_OK;
}
FLEET_TILE(slots, odd)
{
    if (ctx.thread == 0) fleet_add_relaxed_device(args->runs, 1);
    return fleet_extent(&ctx, 0) == 3 && fleet_extent(&ctx, 1) == 2 ? FLEET_OK : FLEET_ERROR_TILE;
}
/* A tile may call another. */
FLEET_TILE(norm, odd)
{
    return FLEET_TILE_OF(slots)(ctx, args);
}
FLEET_PREFETCH(slots, odd) {}
FLEET_PREFETCH(norm, odd) {}
FLEET_PREFETCH(write, odd) {}
FLEET_TILE(slots_prefetch, odd)
{
    return FLEET_OK;
}
#define ODD_TILES(TILE, P)                                                                         \
    NAMES(TILE, P)                                                                                 \
    TILE(P, errno) TILE(P, stdout) TILE(P, slots) TILE(P, norm) TILE(P, slots_prefetch)
#define ODD_PREFETCHES(TILE, P) TILE(P, slots) TILE(P, norm) TILE(P, write)
FLEET_DISPATCH_WITH_PREFETCH(odd, ODD_TILES, ODD_PREFETCHES)
FLEET_KERNEL(odd_kernel, odd, FLEET_ANY_THREADS(64))
{
    FLEET_WORKER_LOOP(odd);
}

/* Tiles with structs of their own, which are members of the set's: in a struct or in a union. */
typedef struct first_args {
    uint32_t *to, add;
} first_args;
typedef struct second_args {
    uint32_t times;
    uint32_t *from, *to;
} second_args;
typedef struct own {
    first_args first;
    union {
        second_args second;
        uint32_t *third;
    } u;
} own;
FLEET_TILE(first, first_args)
{
    if (ctx.thread == 0) args->to[at[0]] = (uint32_t)at[0] + args->add;
    return FLEET_OK;
}
FLEET_TILE(second, second_args)
{
    if (ctx.thread == 0) args->to[at[0]] = args->times * args->from[at[0]] + ctx.prefetched;
    return FLEET_OK;
}
FLEET_PREFETCH(second, second_args)
{
    FLEET_UNUSED(args->times);
}
FLEET_TILE(all_of_it, own)
{
    if (ctx.thread == 0) args->u.second.to[at[0]] += args->first.to[at[0]];
    return FLEET_OK;
}
#define OWN_TILES(TILE, P) TILE(P, first, first) TILE(P, second, u.second) TILE(P, all_of_it)
#define OWN_PREFETCHES(TILE, P) TILE(P, second, u.second)
FLEET_DISPATCH_WITH_PREFETCH(own, OWN_TILES, OWN_PREFETCHES)
FLEET_KERNEL(own_kernel, own, 64)
{
    FLEET_WORKER_LOOP(own);
}

FLEET_GLOBAL(64) void ordinary(uint32_t *word)
{
    *word = 1;
}
FLEET_THUNK1(ordinary, uint32_t *)

static fleet_graph *graph_of_sum(void)
{
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_dim n = fleet_symbol(g, "n", 1, MOST);
    const fleet_etensor done = fleet_event_tensor(g, "done", fleet_shape0(), FLEET_COUNT_DERIVED);
    const fleet_grid squares = fleet_call_device(g, "square", sum_square, fleet_shape1(n), 0);
    const fleet_grid total = fleet_call_device(g, "add", sum_add, fleet_shape0(), 0);
    fleet_out_edge(g, squares, done, "i->");
    fleet_in_edge(g, total, done, "->");
    return g;
}
static uint32_t sum_of(uint32_t n)
{
    return (n - 1) * n * (2 * n - 1) / 6;
}
static sum args_of(fleet_session *s)
{
    sum args;
    args.squares = (uint32_t *)fleet_session_alloc(s, (MOST + 1) * sizeof(uint32_t));
    args.total = args.squares + (args.squares ? MOST : 0);
    args.add = args.fails = 0;
    return args;
}
static fleet_session_desc desc_of(const setting *s)
{
    fleet_session_desc d = fleet_session_desc_default();
    d.plan = setting_plan_desc(s);
    d.state = setting_state_desc(s);
    d.launch = setting_launch_desc(s);
    d.launch.threads = 0;
    return d;
}

/* Runs in stream order: the caller's arguments may change as soon as a call has returned. */
static void run_twice(test_run *t, const setting *setting, void *unused)
{
    const fleet_session_desc d = desc_of(setting);
    fleet_graph *g = graph_of_sum();
    fleet_session s;
    uint32_t total;
    sum args;
    (void)unused;
    CHECK_STATUS(fleet_session_open(&s, g, &d, FLEET_KERNEL_OF(sum_kernel)), FLEET_OK);
    fleet_graph_destroy(g);
    args = args_of(&s);
    CHECK_STATUS(fleet_bind(&s.state, "n", 9, s.launch.stream), FLEET_OK);
    args.add = 5;
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_OK);
    args.add = 7;
    CHECK_STATUS(fleet_bind(&s.state, "n", 20, s.launch.stream), FLEET_OK);
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_OK);
    args.add = 9;
    CHECK_STATUS(fleet_session_wait(&s), FLEET_OK);
    CHECK_STATUS(fleet_to_host(&total, args.total, sizeof total, s.launch.stream), FLEET_OK);
    CHECK_INT(total, sum_of(20) + 7);
    CHECK_INT(fleet_state_epoch(&s.state) - FLEETI_TEST_START, 2);
    fleet_session_close(&s);
    fleet_session_close(&s);
}
static void a_session_runs_several_times(test_run *t)
{
    in_settings(t, 3, run_twice, NULL);
}

/* The first failure is kept, and calls after it do nothing. */
static void a_session_that_cannot_be_opened_says_why(test_run *t)
{
    char text[1024];
    fleet_session s;
    fleet_graph *g = graph_of_sum();
    sum args;
    CHECK_STATUS(fleet_session_open(NULL, g, NULL, FLEET_KERNEL_OF(sum_kernel)), FLEET_ERROR_NULL);
    CHECK_STATUS(fleet_session_open(&s, NULL, NULL, FLEET_KERNEL_OF(sum_kernel)), FLEET_ERROR_NULL);
    fleet_session_close(&s);
    CHECK_STATUS(fleet_session_open(&s, g, NULL, FLEET_KERNEL_OF(ordinary)), FLEET_ERROR_ARGUMENT);
    fleet_session_report(&s, text, sizeof text);
    CHECK_TEXT(text, "was not defined by FLEET_KERNEL");
    fleet_session_close(&s);
    fleet_in_edge(g, fleet_call_device(g, "add", sum_add, fleet_shape0(), 0),
                  fleet_event_tensor(g, "done", fleet_shape0(), FLEET_COUNT_DERIVED), "x->x");
    CHECK(fleet_session_open(&s, g, NULL, FLEET_KERNEL_OF(sum_kernel)) != FLEET_OK);
    args = args_of(&s);
    CHECK(!args.squares);
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), s.failure);
    CHECK_STATUS(fleet_session_wait(&s), s.failure);
    CHECK_STATUS(fleet_session_wait(&s), fleet_graph_status(g));
    fleet_session_report(&s, text, sizeof text);
    CHECK_TEXT(text, fleet_graph_error(g));
    fleet_graph_destroy(g);
    fleet_session_close(&s);
}

static void a_session_goes_on_after_a_refused_run(test_run *t)
{
    char text[1024];
    fleet_session s;
    fleet_graph *g = graph_of_sum();
    uint32_t total;
    sum args;
    CHECK_STATUS(fleet_session_open(&s, g, NULL, FLEET_KERNEL_OF(sum_kernel)), FLEET_OK);
    fleet_graph_destroy(g);
    args = args_of(&s);
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_ERROR_SYMBOL_UNBOUND);
    CHECK_STATUS(fleet_bind(&s.state, "n", 9, s.launch.stream), FLEET_OK);
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_ERROR_SYMBOL_UNBOUND);
    CHECK(!fleet_session_alloc(&s, 4));
    CHECK_INT(fleet_state_epoch(&s.state), FLEETI_TEST_START);
    CHECK_STATUS(fleet_session_wait(&s), FLEET_ERROR_SYMBOL_UNBOUND);
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args - 4), FLEET_ERROR_ARGUMENT);
    fleet_session_report(&s, text, sizeof text);
    CHECK_TEXT(text, "FLEET_ERROR_ARGUMENT: args is ");
    CHECK_TEXT(text, "must be 24: 1 of the set's structs");
    CHECK_STATUS(fleet_session_wait(&s), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_session_run(&s, NULL, sizeof args), FLEET_ERROR_ARGUMENT);
    fleet_session_report(&s, text, sizeof text);
    CHECK_TEXT(text, "args is null");
    CHECK_STATUS(fleet_session_wait(&s), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_OK);
    CHECK_STATUS(fleet_session_wait(&s), FLEET_OK);
    CHECK_STATUS(fleet_to_host(&total, args.total, sizeof total, s.launch.stream), FLEET_OK);
    CHECK_INT(total, sum_of(9));
    /* A tile that fails poisons the state, and the session may be closed or used again. */
    args.fails = 1;
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_OK);
    CHECK_STATUS(fleet_session_wait(&s), FLEET_ERROR_TILE);
    fleet_session_report(&s, text, sizeof text);
    CHECK_TEXT(text, "square");
    args.fails = 0;
    CHECK_STATUS(fleet_state_recover(&s.state, s.launch.stream), FLEET_OK);
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_OK);
    CHECK_STATUS(fleet_session_wait(&s), FLEET_OK);
    fleet_session_close(&s);
}

static void open_sum(test_run *t, fleet_session *s, fleet_stream stream, sum *args)
{
    fleet_graph *g = graph_of_sum();
    fleet_session_desc d = fleet_session_desc_default();
    d.launch.stream = stream;
    CHECK_STATUS(fleet_session_open(s, g, &d, FLEET_KERNEL_OF(sum_kernel)), FLEET_OK);
    fleet_graph_destroy(g);
    *args = args_of(s);
    CHECK_STATUS(fleet_bind(&s->state, "n", 9, s->launch.stream), FLEET_OK);
}

/* After a run that failed the session says so until it recovers. */
static void a_poisoned_session_says_so_and_recovers(test_run *t)
{
    char text[2048];
    fleet_session s;
    fleet_outcome o;
    uint32_t number = 0;
    sum args;
    open_sum(t, &s, NULL, &args);
    s.launch.number = &number;
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_OK);
    CHECK_INT(number, 1);
    args.fails = 1;
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_OK);
    CHECK_INT(number, 2);
    CHECK_STATUS(fleet_session_wait(&s), FLEET_ERROR_TILE);
    fleet_session_report(&s, text, sizeof text);
    CHECK_TEXT(text, "launch 2: FLEET_ERROR_TILE, it failed, and none of its steps count: call "
                     "fleet_state_recover (a session: fleet_session_recover)");
    CHECK(!strstr(text, "launch 1"));
    CHECK(fleet_state_outcome(&s.state, 1, &o));
    CHECK_STATUS(o.status, FLEET_OK);
    CHECK_INT(o.steps, 1);
    CHECK(!fleet_state_outcome(&s.state, 3, &o));
    args.fails = 0;
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_ERROR_POISONED);
    fleet_session_report(&s, text, sizeof text);
    CHECK_TEXT(text, "FLEET_ERROR_POISONED: an earlier launch failed (FLEET_ERROR_TILE, below)");
    CHECK_TEXT(text, "fleet_session_recover");
    CHECK_STATUS(fleet_session_wait(&s), FLEET_ERROR_POISONED);
    CHECK_STATUS(fleet_session_wait(&s), FLEET_ERROR_TILE);
    /* The state's own call is refused when it comes to run, and has a number. */
    CHECK_STATUS(fleet_launch(&s.state, &s.launch, s.kernel, s.args), FLEET_OK);
    CHECK_INT(number, 3);
    CHECK_STATUS(fleet_session_wait(&s), FLEET_ERROR_TILE);
    fleet_session_report(&s, text, sizeof text);
    CHECK_TEXT(text, "launch 3: FLEET_ERROR_POISONED, refused: launch 2 had failed");
    CHECK_STATUS(fleet_session_recover(&s), FLEET_OK);
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_OK);
    CHECK_STATUS(fleet_session_wait(&s), FLEET_OK);
    fleet_session_report(&s, text, sizeof text);
    CHECK_TEXT(text, "FLEET_OK: ok; 1 launches finished, 1 steps done\n");
    CHECK(!strstr(text, "launch 2"));
    fleet_session_close(&s);
}

static void the_size_of_arguments_is_checked(test_run *t)
{
    char text[1024];
    fleet_session s;
    sum args, two[2];
    open_sum(t, &s, NULL, &args);
    two[0] = two[1] = args;
    CHECK_STATUS(fleet_session_launch(&s), FLEET_ERROR_ARGUMENT);
    fleet_session_report(&s, text, sizeof text);
    CHECK_TEXT(text, "the tiles have no arguments yet: call fleet_session_args");
    CHECK_STATUS(fleet_session_wait(&s), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_session_run(&s, NULL, 0), FLEET_ERROR_ARGUMENT);
    fleet_session_report(&s, text, sizeof text);
    CHECK_TEXT(text, "args is null and has 0 bytes, but must be 24");
    CHECK_STATUS(fleet_session_wait(&s), FLEET_ERROR_ARGUMENT);
    CHECK_STATUS(fleet_session_run(&s, two, sizeof two), FLEET_ERROR_ARGUMENT);
    fleet_session_report(&s, text, sizeof text);
    CHECK_TEXT(text, "args is 48 bytes, but must be 24");
    CHECK_STATUS(fleet_session_wait(&s), FLEET_ERROR_ARGUMENT);
    CHECK_INT(fleet_state_epoch(&s.state), FLEETI_TEST_START);
    fleet_session_close(&s);
}

/* Arguments that are copied apart stay for all launches that follow; on a GPU these may be replays.
   */
static void a_session_launches_again_and_is_captured(test_run *t)
{
    uint32_t total, i;
    fleet_stream stream = NULL;
    fleet_session s;
    sum args;
#if !defined(FLEET_HOST)
    CHECK(!API(StreamCreateWithFlags)(&stream, API(StreamNonBlocking)));
#endif
    open_sum(t, &s, stream, &args);
    args.add = 3;
    CHECK_STATUS(fleet_session_args(&s, &args, sizeof args), FLEET_OK);
    for (i = 0; i < 3; i++) CHECK_STATUS(fleet_session_launch(&s), FLEET_OK);
    CHECK_STATUS(fleet_session_wait(&s), FLEET_OK);
    CHECK_INT(fleet_state_epoch(&s.state) - FLEETI_TEST_START, 3);
    CHECK_STATUS(fleet_to_host(&total, args.total, sizeof total, s.launch.stream), FLEET_OK);
    CHECK_INT(total, sum_of(9) + 3);
#if !defined(FLEET_HOST)
    {
        API(Graph_t) graph;
        API(GraphExec_t) exec;
        fleet_outcome o;
        char text[1024];
        CHECK(!API(StreamBeginCapture)(stream, API(StreamCaptureModeGlobal)));
        CHECK_STATUS(fleet_session_launch(&s), FLEET_OK);
        CHECK(!API(StreamEndCapture)(stream, &graph));
        CHECK(!API(GraphInstantiate)(&exec, graph, NULL, NULL, 0));
        for (i = 0; i < 3; i++) {
            args.add = 10 + i;
            CHECK_STATUS(fleet_session_args(&s, &args, sizeof args), FLEET_OK);
            CHECK(!API(GraphLaunch)(exec, stream));
            CHECK_STATUS(fleet_session_wait(&s), FLEET_OK);
            CHECK_STATUS(fleet_to_host(&total, args.total, sizeof total, stream), FLEET_OK);
            CHECK_INT(total, sum_of(9) + 10 + i);
            CHECK(fleet_state_outcome(&s.state, 4, &o));
            CHECK_INT(o.run, 4 + i);
            CHECK_STATUS(o.status, FLEET_OK);
        }
        CHECK_INT(fleet_state_epoch(&s.state) - FLEETI_TEST_START, 6);
        args.fails = 1;
        CHECK_STATUS(fleet_session_args(&s, &args, sizeof args), FLEET_OK);
        CHECK(!API(GraphLaunch)(exec, stream));
        CHECK_STATUS(fleet_session_wait(&s), FLEET_ERROR_TILE);
        fleet_session_report(&s, text, sizeof text);
        CHECK_TEXT(text, "launch 4 (run 7 of the state): FLEET_ERROR_TILE");
        (void)API(GraphExecDestroy)(exec);
        (void)API(GraphDestroy)(graph);
    }
#endif
    fleet_session_close(&s);
#if !defined(FLEET_HOST)
    (void)API(StreamDestroy)(stream);
#endif
}

/* Nothing points into a session, an image or a state: they may be returned by value. */
static fleet_session opened_elsewhere(fleet_graph *g)
{
    fleet_session s, moved;
    fleet_session_open(&s, g, NULL, FLEET_KERNEL_OF(sum_kernel));
    moved = s;
    memset(&s, 0xff, sizeof s);
    return moved;
}
static void a_session_may_be_moved(test_run *t)
{
    fleet_graph *g = graph_of_sum();
    fleet_session s = opened_elsewhere(g);
    fleet_image image = s.image;
    uint32_t total;
    sum args = args_of(&s);
    memset(&s.image, 0, sizeof s.image); /* a state holds what it needs of its image */
    CHECK_STATUS(fleet_bind(&s.state, "n", 12, s.launch.stream), FLEET_OK);
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_OK);
    CHECK_STATUS(fleet_session_wait(&s), FLEET_OK);
    CHECK_STATUS(fleet_to_host(&total, args.total, sizeof total, s.launch.stream), FLEET_OK);
    CHECK_INT(total, sum_of(12));
    s.image = image;
    fleet_session_close(&s);
    fleet_graph_destroy(g);
}

static void tiles_may_have_any_name(test_run *t)
{
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_session s;
    uint32_t runs = 0;
    odd args;
    for (uint32_t i = odd_write; i <= odd_slots_prefetch; i++) {
        char name[2] = {(char)('a' + i - odd_write), 0};
        fleet_call_device(g, name, i, fleet_shape2(fleet_dim_of(3), fleet_dim_of(2)), 0);
    }
    CHECK_STATUS(fleet_session_open(&s, g, NULL, FLEET_KERNEL_OF(odd_kernel)), FLEET_OK);
    args.runs = (uint32_t *)fleet_session_alloc(&s, sizeof(uint32_t));
    CHECK_STATUS(fleet_to_device(args.runs, &runs, sizeof runs, s.launch.stream), FLEET_OK);
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_OK);
    CHECK_STATUS(fleet_session_wait(&s), FLEET_OK);
    CHECK_STATUS(fleet_to_host(&runs, args.runs, sizeof runs, s.launch.stream), FLEET_OK);
    CHECK_INT(runs, 12);
    /* Shapes that no launch changes outlive a recovery. */
    CHECK_STATUS(fleet_state_recover(&s.state, s.launch.stream), FLEET_OK);
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_OK);
    CHECK_STATUS(fleet_session_wait(&s), FLEET_OK);
    fleet_session_close(&s);
    fleet_graph_destroy(g);
}

static void run_own(test_run *t, const setting *setting, void *unused)
{
    const fleet_session_desc d = desc_of(setting);
    const fleet_shape shape = fleet_shape1_of(7);
    fleet_graph *g = fleet_graph_create(NULL);
    const fleet_grid a = fleet_call_device(g, "first", own_first, shape, 0);
    const fleet_grid b = fleet_call_device(g, "second", own_second, shape, 0);
    const fleet_grid c = fleet_call_device(g, "all", own_all_of_it, shape, 0);
    uint32_t got[14];
    fleet_session s;
    own args;
    (void)unused;
    memset(&args, 0, sizeof args);
    fleet_after(g, b, a);
    fleet_after(g, c, b);
    CHECK_STATUS(fleet_session_open(&s, g, &d, FLEET_KERNEL_OF(own_kernel)), FLEET_OK);
    fleet_graph_destroy(g);
    args.first.to = args.u.second.from = (uint32_t *)fleet_session_alloc(&s, sizeof got);
    args.first.add = 100;
    args.u.second.to = args.first.to + 7, args.u.second.times = 10;
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_OK);
    CHECK_STATUS(fleet_session_wait(&s), FLEET_OK);
    CHECK_STATUS(fleet_to_host(got, args.first.to, sizeof got, s.launch.stream), FLEET_OK);
    for (uint32_t i = 0; i < 7; i++) {
        CHECK_INT(got[i], 100 + i);
        CHECK(got[7 + i] == 11 * (100 + i) || got[7 + i] == 11 * (100 + i) + 1);
    }
    fleet_session_close(&s);
}
static void a_tile_may_have_a_struct_of_its_own(test_run *t)
{
    in_settings(t, 3, run_own, NULL);
}

static void tiles_that_the_kernel_lacks_are_refused(test_run *t)
{
    char text[1024];
    fleet_graph *g = graph_of_sum();
    fleet_session s;
    sum args;
    fleet_call_device(g, "unknown", 2, fleet_shape0(), 0);
    CHECK_STATUS(fleet_session_open(&s, g, NULL, FLEET_KERNEL_OF(sum_kernel)), FLEET_OK);
    args = args_of(&s);
    CHECK_STATUS(fleet_bind(&s.state, "n", 9, s.launch.stream), FLEET_OK);
    CHECK_STATUS(fleet_session_run(&s, &args, sizeof args), FLEET_ERROR_ARGUMENT);
    fleet_session_report(&s, text, sizeof text);
    CHECK_TEXT(text, "grid unknown has tile 2, but the kernel's set has 2 tiles");
    fleet_session_close(&s);
    fleet_graph_destroy(g);
}

static void all(test_run *t)
{
    TEST(a_session_runs_several_times);
    TEST(a_session_that_cannot_be_opened_says_why);
    TEST(a_session_goes_on_after_a_refused_run);
    TEST(a_poisoned_session_says_so_and_recovers);
    TEST(the_size_of_arguments_is_checked);
    TEST(a_session_launches_again_and_is_captured);
    TEST(a_session_may_be_moved);
    TEST(tiles_may_have_any_name);
    TEST(a_tile_may_have_a_struct_of_its_own);
    TEST(tiles_that_the_kernel_lacks_are_refused);
}
TEST_MAIN(all)
