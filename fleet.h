/* fleet.h - v0.3 - graphs, event tensors and plans for megakernels on chiplet GPUs - MIT licence

   A megakernel is one persistent kernel in which many tile functions run as tasks, ordered by event counters. This
   header holds what is decided on the host. You describe task grids, event tensors and the maps between them as a
   graph. fleet_plan_build binds the graph to a topology (how many chiplets, how many workers on each), derives every
   wait count, infers the narrowest scope of every event, proves that the schedule cannot deadlock, and writes one
   flat block: the plan. Shapes may depend on symbols that are bound before a launch, and maps on tensors that the
   launch itself writes.

   STABILITY (fleet 0.3; .github/CHANGES.md lists what each version has changed)
       Stable from one minor version to the next: all that begins with fleet_ or FLEET_ and is not
       called private. Where a minor version changes that, CHANGES says how to follow. Not stable:
       fleeti_ and FLEETI_, private fields, the words of messages and reports, the layout of a plan
       (headers of another version refuse it), machine code. All headers are of one version, which
       the compiler checks, and so are all files of a program, which the linker checks.

   CONTENTS (search for the tag)
       >>manual           this comment
       >>public           limits, statuses, topologies, extents, graph, maps, plan, reports
       >>layout           private, read by the other two headers: the block of a plan
       >>implementation   the table of passes; text, numbers, topologies, extents, coordinate maps
       >>graph            the calls that build a graph
       >>build            what the passes share, buckets, and fleet_plan_build, which runs the passes
       >>bind             pass: symbols, topology and shapes become numbers
       >>choose           pass: AUTO becomes STATIC or DYNAMIC
       >>edges            pass: events, edges and run-time maps become numbers
       >>place            pass: each task gets its chiplet and worker
       >>analyse          pass: which tasks notify each event element, and which wait for it
       >>count            pass: wait counts, scopes, counters, targets
       >>overlap          pass: whether sources may start before the previous step has ended
       >>tensors          pass: run-time tensors are written before maps read them
       >>symbols          pass: a task that sets a symbol does not run beside tasks whose shapes have it
       >>records          pass: the wait and notify records of each task
       >>emit             pass: the block of the plan
       >>order            pass: neither a queue order nor a cycle can deadlock
       >>check            fleet_plan_check, for blocks that come from outside
       >>report           queries of a plan, and its report

   RECIPE
       In exactly one source file:
           #define FLEET_IMPLEMENTATION
           #include "fleet.h"
       Everywhere else: #include "fleet.h". C11 or C++17. No GPU API is needed.

   THE SMALLEST GRAPH
           fleet_graph  *g = fleet_graph_create(NULL);
           fleet_dim     n = fleet_symbol(g, "n", 1, 4096);
           fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(n), FLEET_COUNT_DERIVED);
           fleet_shape   a = fleet_shape2(n, fleet_dim_of(4)), c = fleet_shape1(n);
           fleet_grid    p = fleet_call_device(g, "partial", 0, a, 0);
           fleet_grid    f = fleet_call_device(g, "final", 1, c, 0);
           fleet_out_edge(g, p, E, "ij->i");      each partial(i, j) notifies E[i]: wait count 4
           fleet_in_edge(g, f, E, "i->i");        final(i) waits for E[i]
           fleet_plan_desc d = fleet_plan_desc_default();
           fleet_bind_at_build(&d, n, 3);
           fleet_plan *plan;
           if (fleet_plan_build(g, &d, &plan) != FLEET_OK) puts(fleet_graph_error(g));

   WHAT IT DOES NOT DO
       It runs nothing (fleet_sched.h does), compiles nothing, prints nothing and never exits. It knows no
       operator and no model.

   OPTIONS (define them before the include that has FLEET_IMPLEMENTATION)
       FLEET_MALLOC(bytes), FLEET_FREE(ptr)   Default: malloc, free. Graphs, plans and scratch memory come from them;
                                              the lists of a graph come from stb_ds (STBDS_REALLOC, STBDS_FREE).
       FLEET_API                              Before each declaration of a function. Default: none.
                                              __attribute__((visibility("hidden"))): a shared
                                              library does not export them; static
                                              __attribute__((unused)): they belong to the one file
                                              that uses them. The same in all files.
       stb_ds.h is searched for as "stb_ds.h" and as <stb/stb_ds.h> on the include path. Its
       functions are static here, unless the file has included it already: then it is the program's,
       which has STB_DS_IMPLEMENTATION somewhere.

   THREADS
       A graph belongs to one thread at a time. A plan never changes once it is built; any number of threads and
       devices may read it.

   ERRORS
       Functions return fleet_status. One that fails leaves zeros in its results. A graph keeps the first error of its building calls, with the file and line of
       the call. Later calls do nothing and return handles that are safe to pass on, so that building code needs no
       checks in between. fleet_graph_error returns the message, which names the object and what to change.
*/
#ifndef FLEET_H
#define FLEET_H

#include <stddef.h>
#include <stdint.h>

/* Of all headers, and of the plans that they build: 10000 major + 100 minor + patch. */
#define FLEET_VERSION 300

/* Before the declaration of each function that FLEET_IMPLEMENTATION defines. */
#if !defined(FLEET_API)
#define FLEET_API
#endif
/* After some of them: the name that linkers print, where no file or more than one has the
   implementation, or one of another version. */
#define FLEETI_SYMBOL(name)                                                                        \
    __asm__(name "__define_FLEET_IMPLEMENTATION_in_exactly_one_file_of_fleet_0_3")

#ifdef __cplusplus
#define FLEET_C_BEGIN extern "C" {
#define FLEET_C_END }
#else
#define FLEET_C_BEGIN
#define FLEET_C_END
#endif

/* Functions that both the host and tiles call. On AMD a call would need scratch memory. */
#if defined(__HIP__) && defined(__OPTIMIZE__)
#define FLEET_HOST_DEVICE                                                                          \
    static __attribute__((host)) __attribute__((device)) inline                                    \
        __attribute__((unused, always_inline))
#elif defined(__CUDACC__) || defined(__HIP__)
#define FLEET_HOST_DEVICE                                                                          \
    static __attribute__((host)) __attribute__((device)) inline __attribute__((unused))
#else
#define FLEET_HOST_DEVICE static inline __attribute__((unused))
#endif

FLEET_C_BEGIN

/* ==== >>public: graph, maps, plan, reports ==== */

/* ---- limits ---- */

#define FLEET_MAX_RANK 6      /* axes of a task grid or an event tensor */
#define FLEET_MAX_CHIPLETS 32 /* chiplets of one plan: those of a topology, times its ranks */
#define FLEET_MAX_PEERS 8     /* ranks of one plan: devices that run one graph together */
#define FLEET_MAX_SYMBOLS 32  /* symbols of one graph */
#define FLEET_MAX_TENSORS 256 /* run-time tensors of one graph; a state has a pointer for each */
#define FLEET_MAX_BUCKETS 64  /* buckets of one plan: sets of queues, for values of its symbols */
#define FLEET_CACHE_LINE_BYTES 128 /* of a cache line; counters share none with other data */
#define FLEET_MAX_WORK 0x10000000u /* of one plan, by default: fleet_plan_desc.max_work */

/* ---- statuses ---- */

/* Every status and its meaning. Host functions and tiles return them; device code stores them in the report. The
   order is part of the plan format: append only. */
#define FLEET_STATUS_LIST(X)                                                                       \
    X(FLEET_OK, "ok")                                                                              \
    X(FLEET_ERROR_NULL, "a pointer that must not be null is null")                                 \
    X(FLEET_ERROR_MEMORY, "out of memory")                                                         \
    X(FLEET_ERROR_ARGUMENT, "an argument is out of its range")                                     \
    X(FLEET_ERROR_HANDLE, "a handle does not belong to this graph")                                \
    X(FLEET_ERROR_NAME, "a name is empty, too long, taken or unknown")                             \
    X(FLEET_ERROR_SYMBOL_UNBOUND, "a symbol has no value")                                         \
    X(FLEET_ERROR_SYMBOL_RANGE, "a symbol's value is outside its declared bounds")                 \
    X(FLEET_ERROR_MAP, "an edge map is malformed or names an unknown axis")                        \
    X(FLEET_ERROR_MAP_RANGE, "an edge map reaches outside the event tensor")                       \
    X(FLEET_ERROR_WAIT_COUNT, "a given wait count disagrees with the maps")                        \
    X(FLEET_ERROR_NEVER_NOTIFIED, "a task waits for an event that is never notified")              \
    X(FLEET_ERROR_CYCLE, "the graph has a cycle")                                                  \
    X(FLEET_ERROR_ORDER, "the order of a static queue would deadlock across workers")              \
    X(FLEET_ERROR_SCOPE, "an event's scope is too narrow for its placement")                       \
    X(FLEET_ERROR_PLACEMENT, "a placement names a chiplet or worker that does not exist")          \
    X(FLEET_ERROR_TOO_MANY_TASKS, "the graph has more tasks than a plan can number")               \
    X(FLEET_ERROR_TOO_MANY_EDGES, "a task has more edges than a descriptor can hold")              \
    X(FLEET_ERROR_TOO_MANY_WORKERS, "more workers are planned than the device can hold at once")   \
    X(FLEET_ERROR_TOPOLOGY, "the topology is impossible")                                          \
    X(FLEET_ERROR_IMAGE_MAGIC, "this is not a plan")                                               \
    X(FLEET_ERROR_IMAGE_VERSION, "the plan was built by another version of fleet")                 \
    X(FLEET_ERROR_IMAGE_SIZE, "the plan is truncated or its sizes disagree")                       \
    X(FLEET_ERROR_BUSY, "the state is in use by another launch")                                   \
    X(FLEET_ERROR_POISONED, "an earlier launch on this state failed: call fleet_state_recover")    \
    X(FLEET_ERROR_RESIDENCY, "a chiplet has fewer workgroups than the plan needs")                 \
    X(FLEET_ERROR_ABORTED, "the host asked to abort")                                              \
    X(FLEET_ERROR_TIMEOUT, "a wait passed its deadline")                                           \
    X(FLEET_ERROR_DEADLOCK, "no task can run: every worker waits")                                 \
    X(FLEET_ERROR_TILE, "a tile returned a failure")                                               \
    X(FLEET_ERROR_LAUNCH, "the kernel cannot be launched")                                         \
    X(FLEET_ERROR_DEVICE, "a call of the GPU runtime failed")                                      \
    X(FLEET_ERROR_UNSUPPORTED, "this device or runtime cannot do that")                            \
    X(FLEET_ERROR_IMAGE_INDEX, "an index in the plan points outside it")                           \
    X(FLEET_ERROR_TENSOR_ORDER, "a map may read a run-time tensor before it is written")           \
    X(FLEET_ERROR_TENSOR_UNBOUND, "a run-time tensor has no memory")                               \
    X(FLEET_ERROR_TENSOR_VALUE, "a run-time tensor holds a value that its map cannot take")        \
    X(FLEET_ERROR_IMAGE_CHECKSUM, "the plan is damaged: its checksum does not match its bytes")    \
    X(FLEET_ERROR_EPOCH, "an event was notified for an epoch whose predecessor is incomplete")     \
    X(FLEET_ERROR_PEER_TIMEOUT, "another rank has not started or not notified in time")            \
    X(FLEET_ERROR_PEER_FAILED, "another rank has failed")                                          \
    X(FLEET_ERROR_PEER_PLAN, "another rank has another plan")                                      \
    X(FLEET_ERROR_GONE, "what the call names has ended, or is of another owner")                   \
    X(FLEET_ERROR_BARRIER, "threads of a tile wait at a barrier that others do not reach")         \
    X(FLEET_ERROR_LDS, "a tile has written past its LDS: fleet_launch_desc.lds_bytes is too "      \
                       "small")

#define FLEETI_STATUS_ENUM(code, text) code,
typedef enum fleet_status { FLEET_STATUS_LIST(FLEETI_STATUS_ENUM) FLEET_STATUS_COUNT } fleet_status;

/* The name ("FLEET_ERROR_MAP") and the meaning of a status; never null. */
FLEET_API const char *fleet_status_name(fleet_status status);
FLEET_API const char *fleet_status_text(fleet_status status);

/* ---- topologies ---- */

/* A chip, as the builder sees it. Plain data: fill one in for a chip without a preset. */
typedef struct fleet_topology {
    char name[24];
    uint32_t chiplets;                  /* X, 1..FLEET_MAX_CHIPLETS */
    uint32_t units[FLEET_MAX_CHIPLETS]; /* CUs or SMs per chiplet = workgroups resident at once */
    uint32_t wave_size;                 /* lanes of a wavefront or warp; 1 on the host */
    uint32_t lds_bytes;                 /* LDS (shared memory) per CU or SM */
    uint64_t l2_bytes;                  /* L2 per chiplet */
    uint64_t llc_bytes;                 /* last-level cache of the device; 0: none */
    uint32_t private_l2;                /* 1: the L2s of two chiplets are not coherent */
} fleet_topology;

/* Presets: name, chiplets, units per chiplet, wave, LDS bytes, L2 bytes, last-level bytes, private L2.
   Sources: CDNA3 and CDNA4 white papers and ISA guides, NVIDIA Hopper and Blackwell tuning guides. */
#define FLEET_TOPOLOGY_LIST(X)                                                                     \
    X(MI300X, 8, 38, 64, 65536, 4194304, 268435456, 1)                                             \
    X(MI300A, 6, 38, 64, 65536, 4194304, 268435456, 1)                                             \
    X(MI350X, 8, 32, 64, 163840, 4194304, 268435456, 1)                                            \
    X(MI250X, 1, 110, 64, 65536, 8388608, 0, 0)                                                    \
    X(H100, 1, 132, 32, 232448, 52428800, 0, 0)                                                    \
    X(H200, 1, 132, 32, 232448, 62914560, 0, 0)                                                    \
    X(B200, 2, 74, 32, 232448, 66060288, 0, 0)

#define FLEETI_TOPOLOGY_ENUM(n, x, u, w, lds, l2, llc, p) FLEET_##n,
typedef enum fleet_chip { FLEET_TOPOLOGY_LIST(FLEETI_TOPOLOGY_ENUM) FLEET_CHIP_COUNT } fleet_chip;

/* A preset. An unknown chip gives a topology without chiplets, which no plan accepts. */
FLEET_API fleet_topology fleet_topology_preset(fleet_chip chip);

/* A topology of `chiplets` times `units`, otherwise that of MI300X: a start for your own. */
FLEET_API fleet_topology fleet_topology_make(uint32_t chiplets, uint32_t units);

/* ---- symbolic extents ---- */

/* An extent: floor((mul * symbol + add + sum of per[j] * c[j]) / div), or the constant `add` where
   symbol and per are 0. c: the coordinates on the axes before it. */
typedef struct fleet_dim {
    int64_t add, mul, div, per[FLEET_MAX_RANK];
    uint32_t symbol; /* 0: constant; else a symbol's number (low 8 bits) and a tag of its graph */
} fleet_dim;

typedef struct fleet_shape {
    fleet_dim extent[FLEET_MAX_RANK];
    uint32_t rank; /* 0: a single element */
} fleet_shape;

typedef struct fleet_graph fleet_graph;

/* Arithmetic of extents. A result that does not exist (see each) is reported by the call that is given it. */
FLEET_API fleet_dim fleet_dim_of(int64_t n);                    /* the constant n */
FLEET_API fleet_dim fleet_dim_times(fleet_dim d, int64_t k);    /* d * k; d must have no division */
FLEET_API fleet_dim fleet_dim_plus(fleet_dim d, int64_t k);     /* d + k */
FLEET_API fleet_dim fleet_dim_ceil_div(fleet_dim d, int64_t k); /* ceil(d / k), k > 0 */
/* d + k * c[axis], for an extent that depends on an axis before its own: i < n, j <= i is
       fleet_shape2(n, fleet_dim_plus_axis(fleet_dim_of(1), 0, 1))
   A grid or an event tensor of this shape has n (n + 1) / 2 points and no others, row-major. A
   point where such an extent is below 0 is an error. Extents with a symbol that is bound at launch
   cannot depend on others, but others may depend on their axes: put that axis first. */
FLEET_API fleet_dim fleet_dim_plus_axis(fleet_dim d, uint32_t axis, int64_t k);

/* A named extent with a value in [min, max], 0 <= min. Bind it when a plan is built (fleet_bind_at_build), or leave
   it to be bound before each launch (fleet_bind): then one plan serves all values. */
FLEET_API fleet_dim fleet_symbol(fleet_graph *g, const char *name, int64_t min, int64_t max);

FLEET_API fleet_shape fleet_shape0(void); /* one element, no axis */
FLEET_API fleet_shape fleet_shape1(fleet_dim a);
FLEET_API fleet_shape fleet_shape2(fleet_dim a, fleet_dim b);
FLEET_API fleet_shape fleet_shape3(fleet_dim a, fleet_dim b, fleet_dim c);
FLEET_API fleet_shape fleet_shape4(fleet_dim a, fleet_dim b, fleet_dim c, fleet_dim d);
/* Appends an axis, for shapes of five and six axes. */
FLEET_API fleet_shape fleet_shape_append(fleet_shape s, fleet_dim a);

/* The same for constant extents: fleet_shape2_of(8, 4) is fleet_shape2(fleet_dim_of(8), fleet_dim_of(4)). A shape of
   both kinds: fleet_shape_and_of(fleet_shape1(n), 4). */
FLEET_API fleet_shape fleet_shape1_of(int64_t a);
FLEET_API fleet_shape fleet_shape2_of(int64_t a, int64_t b);
FLEET_API fleet_shape fleet_shape3_of(int64_t a, int64_t b, int64_t c);
FLEET_API fleet_shape fleet_shape4_of(int64_t a, int64_t b, int64_t c, int64_t d);
FLEET_API fleet_shape fleet_shape_and_of(fleet_shape s, int64_t a);

/* ---- graph ---- */

/* Handles. 0 is no object; once the graph has an error, every call accepts it and does nothing. The low half is a
   number, the high half a tag of the graph, so that a handle of another graph is an error. */
typedef struct fleet_etensor {
    uint64_t id;
} fleet_etensor;
typedef struct fleet_grid {
    uint64_t id;
} fleet_grid;
typedef struct fleet_buffer {
    uint64_t id;
} fleet_buffer;
typedef struct fleet_tensor {
    uint64_t id;
} fleet_tensor;

typedef enum fleet_scope {
    FLEET_SCOPE_BLOCK,
    FLEET_SCOPE_CHIPLET,
    FLEET_SCOPE_DEVICE,
    FLEET_SCOPE_SYSTEM
} fleet_scope;

typedef enum fleet_level {
    FLEET_LEVEL_WAVE,    /* wavefront-task: one wave runs it */
    FLEET_LEVEL_CU,      /* CU-task: one workgroup runs it. The default */
    FLEET_LEVEL_CHIPLET, /* chiplet-task: all workers of one chiplet run it, by tile index */
    FLEET_LEVEL_DEVICE   /* device-task: one chiplet-task per slice; complete when all are */
} fleet_level;

/* Is called with each warning and error as it arises. `user` is the descriptor's log_user. */
typedef void (*fleet_log_fn)(void *user, fleet_status status, const char *message);

typedef struct fleet_graph_desc {
    fleet_log_fn log; /* default: none */
    void *log_user;
} fleet_graph_desc;

/* The defaults, for a caller that changes single fields. */
FLEET_API fleet_graph_desc fleet_graph_desc_default(void);

/* Makes an empty graph, which the caller destroys. desc: null for the defaults. Null when out of memory. */
FLEET_API fleet_graph *fleet_graph_create(const fleet_graph_desc *desc)
    FLEETI_SYMBOL("fleet_graph_create");
FLEET_API void fleet_graph_destroy(fleet_graph *g);

/* The first error of the graph, else that of its last fleet_plan_build. The text is "" if there is none; it belongs
   to the graph. */
FLEET_API const char *fleet_graph_error(const fleet_graph *g);
FLEET_API fleet_status fleet_graph_status(const fleet_graph *g);

/* Building calls are macros that pass the caller's "file:line" to the function of the same name. */
#define FLEETI_HERE FLEETI_HERE_AT(__FILE__, __LINE__)
#define FLEETI_HERE_AT(file, line) file ":" FLEETI_QUOTED(line)
#define FLEETI_QUOTED(line) #line

#define FLEET_COUNT_DERIVED 0

/* Adds an event tensor: an array of event counters. count: the notifies that complete each element, one for each task
   that notifies it, or FLEET_COUNT_DERIVED; a given count is checked against the maps. The name "step" is reserved
   for the implicit event that ends a step, and names that contain " after " for fleet_after. */
FLEET_API fleet_etensor fleeti_event_tensor(fleet_graph *g, const char *name, fleet_shape shape,
                                            int64_t count, const char *site);
#define fleet_event_tensor(g, name, shape, count)                                                  \
    fleeti_event_tensor(g, name, shape, count, FLEETI_HERE)

/* Adds a task grid: one task per coordinate of shape, in row-major order. tile: the number by which your kernel's
   dispatch finds the tile function (FLEET_DISPATCH numbers them). args: index into the caller's array of arguments,
   so that one tile serves many layers. Static queues follow the order in which grids are added, unless
   fleet_grid_order says otherwise. */
FLEET_API fleet_grid fleeti_call_device(fleet_graph *g, const char *name, uint32_t tile,
                                        fleet_shape shape, uint32_t args, const char *site);
#define fleet_call_device(g, name, tile, shape, args)                                              \
    fleeti_call_device(g, name, tile, shape, args, FLEETI_HERE)

/* Sets the level of a grid's tasks (default: FLEET_LEVEL_CU). */
FLEET_API void fleeti_grid_level(fleet_graph *g, fleet_grid grid, fleet_level level,
                                 const char *site);
#define fleet_grid_level(g, grid, level) fleeti_grid_level(g, grid, level, FLEETI_HERE)

/* Sets the number of slices of a device-task, at least 1 (default: one per chiplet). Slice s runs as a chiplet-task
   on chiplet s mod X. A chiplet without a slice takes no part in the task. */
FLEET_API void fleeti_grid_slices(fleet_graph *g, fleet_grid grid, fleet_dim slices,
                                  const char *site);
#define fleet_grid_slices(g, grid, slices) fleeti_grid_slices(g, grid, slices, FLEETI_HERE)

/* Sets the maximum number of tiles, 1..65535, of a chiplet-task or of a slice of a device-task. An unaware plan
   (fleet_plan_desc) makes a CU-task of each of them; other plans only check the number. Default: the workers of the
   chiplet that has most. A symbol that is bound at launch counts with the value of its bucket, so that a launch may
   have tasks without a tile. */
FLEET_API void fleeti_grid_tiles(fleet_graph *g, fleet_grid grid, fleet_dim tiles,
                                 const char *site);
#define fleet_grid_tiles(g, grid, tiles) fleeti_grid_tiles(g, grid, tiles, FLEETI_HERE)

/* What decides where and when a grid's tasks run. */
typedef enum fleet_schedule {
    FLEET_SCHEDULE_STATIC,  /* a queue for each worker, fixed in the plan */
    FLEET_SCHEDULE_CHIPLET, /* one scheduler workgroup per chiplet deals that chiplet's tasks */
    /* Ready queues on the device. The arrival that completes the last event of a task pushes it to the queue of its
       chiplet. Idle workers pop there, then steal from other chiplets, but never a chiplet-task. As a task may run
       anywhere, its events have device scope. It cannot wait for an event that is notified from outside. */
    FLEET_SCHEDULE_DYNAMIC,
    FLEET_SCHEDULE_AUTO /* STATIC or DYNAMIC, by fleet_grid_cost and fleet_overheads; the report says why */
} fleet_schedule;

/* Sets the schedule of one grid to STATIC, DYNAMIC or AUTO (default: the plan's). In a plan with STATIC and DYNAMIC
   grids, an idle worker looks at the head of its own queue first, then at the ready queues; it never waits for one
   task while it could run another. CHIPLET is a schedule of whole plans. */
FLEET_API void fleeti_grid_schedule(fleet_graph *g, fleet_grid grid, fleet_schedule schedule,
                                    const char *site);
#define fleet_grid_schedule(g, grid, schedule) fleeti_grid_schedule(g, grid, schedule, FLEETI_HERE)

/* The place of a task among those of its queue: constant + the sum of weight[k] * c[k] for the task's coordinate c. */
typedef struct fleet_key {
    int64_t constant, weight[FLEET_MAX_RANK];
} fleet_key;

FLEET_API fleet_key fleet_key_of(int64_t constant);
/* Adds weight * c[task_axis]. */
FLEET_API fleet_key fleet_key_plus(fleet_key key, uint32_t task_axis, int64_t weight);

/* Orders the tasks of fixed queues (STATIC, CHIPLET) by keys, smallest first. Tasks with equal keys are in the order in
   which their grids were added, and row-major in a grid. A grid without a key has, for all its tasks, the largest key
   of the grids added before it: it comes after them. Needed where the tasks of two grids wait for one another in
   turn, as in the steps k of a factorisation, or if a stage of a pipeline waits until the next stage has emptied a
   buffer: with all tasks of one grid before those of the other, a queue would deadlock (FLEET_ERROR_ORDER).
       fleet_grid_order(g, panel, fleet_key_plus(fleet_key_of(0), 0, 2));      panel(k, ...) has key 2 k
       fleet_grid_order(g, update, fleet_key_plus(fleet_key_of(1), 0, 2));     update(k, ...) has key 2 k + 1
   Ready queues (DYNAMIC) and unfused plans ignore keys. */
FLEET_API void fleeti_grid_order(fleet_graph *g, fleet_grid grid, fleet_key key, const char *site);
#define fleet_grid_order(g, grid, key) fleeti_grid_order(g, grid, key, FLEETI_HERE)

/* Tells AUTO how long a grid's tiles run. mean_ns: of one tile, in nanoseconds. variation_percent: standard deviation
   from tile to tile, in percent of the mean. tasks: how many tasks have a tile to run, the first ones; 0: all.
   Measured or estimated. Default: 5000 ns, 0%, all; where run-time maps name the tasks, 50% and half of them. */
FLEET_API void fleeti_grid_cost(fleet_graph *g, fleet_grid grid, uint64_t mean_ns,
                                uint32_t variation_percent, uint32_t tasks, const char *site);
#define fleet_grid_cost(g, grid, mean_ns, variation_percent, tasks)                                \
    fleeti_grid_cost(g, grid, mean_ns, variation_percent, tasks, FLEETI_HERE)

/* ---- coordinate maps ---- */

/* One axis of the target as a function of the task's coordinate c. With v = offset + sum of stride[k] * c[k], the
   axis takes every value from floor(v / div) to floor((v + width - 1) / div). If limit is set, v + width is cut at
   limit first: the last tile may be partial, and a task that begins at or after the limit reaches nothing. If clipped
   is set, v is cut at lower too, and both limits count whatever their values are. Before all that,
   v is taken modulo `modulo` (to 0 .. modulo - 1, also below 0) if that is set, and then some of
   its bits are flipped: v ^ flip, or v ^ (flip << (c[flip_axis - 1] + flip_shift)) where flip_axis
   is set. Width must be 1 then. */
typedef struct fleet_axis_map {
    int64_t stride[FLEET_MAX_RANK];
    int64_t offset;
    int64_t div;      /* > 0 */
    int64_t width;    /* > 0; 1: a single unit */
    fleet_dim limit;  /* total number of units; constant 0: no limit, unless clipped */
    uint32_t every;   /* 1: every value of the axis; the other fields are ignored */
    uint32_t clipped; /* 1: only units in [lower, limit) count */
    fleet_dim lower;  /* first unit, if clipped */
    fleet_dim modulo; /* constant 0: none */
    int64_t flip;     /* bits; 0: none */
    uint32_t flip_axis;
    int32_t flip_shift;
} fleet_axis_map;

typedef struct fleet_map {
    fleet_axis_map axis[FLEET_MAX_RANK];
    uint32_t rank;
} fleet_map;

/* floor((stride * c[task_axis] + offset) / div) */
FLEET_API fleet_axis_map fleet_axis(uint32_t task_axis, int64_t stride, int64_t offset,
                                    int64_t div);
/* From one tiling to another: the tiles of `to` units that task c[task_axis], a tile of `from` units, touches. limit:
   total number of units. */
FLEET_API fleet_axis_map fleet_axis_retile(uint32_t task_axis, int64_t from, int64_t to,
                                           fleet_dim limit);
/* fleet_axis whose value before the division must be in [lo, hi): a task whose value is outside reaches no element by
   this edge. "i - 1, none for i = 0" is fleet_axis_clipped(0, 1, -1, 1, fleet_dim_of(0), n). A five-point stencil that
   sweeps `sweeps` times over n x m tiles needs one event tensor, `done` [sweeps, n, m], which grid(t, i, j) notifies by
   "tij->tij", and an in edge for the tile itself and each neighbour. At borders, where neighbours are missing, tasks
   wait for fewer elements:
       fleet_axis_map before = fleet_axis_clipped(0, 1, -1, 1, fleet_dim_of(0), sweeps);      t - 1, none for t = 0
       fleet_axis_map up = fleet_axis_clipped(1, 1, -1, 1, fleet_dim_of(0), n);               i - 1, none for i = 0
       fleet_in_edge_map(g, grid, done, fleet_map3(before, up, fleet_axis(2, 1, 0, 1)));      and so on */
FLEET_API fleet_axis_map fleet_axis_clipped(uint32_t task_axis, int64_t stride, int64_t offset,
                                            int64_t div, fleet_dim lo, fleet_dim hi);
/* fleet_axis whose value before the division is taken modulo `modulo`, for periodic borders: "i -
   1, and n - 1 for i = 0" is fleet_axis_periodic(0, 1, -1, 1, n). In an einsum string "[i-1]",
   modulo the extent of the event tensor's axis. A modulus with a symbol that is bound at launch is
   refused. */
FLEET_API fleet_axis_map fleet_axis_periodic(uint32_t task_axis, int64_t stride, int64_t offset,
                                             int64_t div, fleet_dim modulo);
/* c[task_axis] ^ mask; in an einsum string "[i^4]". mask: at least 0. */
FLEET_API fleet_axis_map fleet_axis_xor(uint32_t task_axis, int64_t mask);
/* The partner in a butterfly whose stages are a task axis: c[task_axis] ^ (1 << (c[stage_axis] +
   shift)), and c[task_axis] itself where the exponent is below 0. Stage s of a sort or an FFT of
   2^k values, which reads what stage s - 1 left, waits for done[s - 1, i] and done[s - 1, i ^ 1 <<
   s]. */
FLEET_API fleet_axis_map fleet_axis_butterfly(uint32_t task_axis, uint32_t stage_axis,
                                              int32_t shift);
FLEET_API fleet_axis_map fleet_axis_all(void);
FLEET_API fleet_map fleet_map0(void); /* no axis: one event for all tasks */
FLEET_API fleet_map fleet_map1(fleet_axis_map a);
FLEET_API fleet_map fleet_map2(fleet_axis_map a, fleet_axis_map b);
FLEET_API fleet_map fleet_map3(fleet_axis_map a, fleet_axis_map b, fleet_axis_map c);
/* Appends an axis, for maps of four axes and more. */
FLEET_API fleet_map fleet_map_append(fleet_map m, fleet_axis_map a);

/* Adds an edge by an einsum string: the tasks of the grid notify (out) or wait for (in) elements of the event tensor.
   On the left of "->" stands a letter for each axis of the grid, on the right a letter for each axis of the event
   tensor, or in brackets a letter of the left with "+3", "-1" (periodic) or "^4" (bits flipped). A
   letter that is only on the right stands for every value of its axis, for which there is such an
   element: "j->ij" is a column, of a triangle too. An empty right side is the single element of a
   tensor without axes. Spaces are ignored. */
FLEET_API void fleeti_out_edge(fleet_graph *g, fleet_grid grid, fleet_etensor event,
                               const char *einsum, const char *site);
#define fleet_out_edge(g, grid, event, einsum) fleeti_out_edge(g, grid, event, einsum, FLEETI_HERE)
FLEET_API void fleeti_in_edge(fleet_graph *g, fleet_grid grid, fleet_etensor event,
                              const char *einsum, const char *site);
#define fleet_in_edge(g, grid, event, einsum) fleeti_in_edge(g, grid, event, einsum, FLEETI_HERE)

/* Adds an edge by an affine map, with one axis for each axis of the event tensor. */
FLEET_API void fleeti_out_edge_map(fleet_graph *g, fleet_grid grid, fleet_etensor event,
                                   fleet_map map, const char *site);
#define fleet_out_edge_map(g, grid, event, map)                                                    \
    fleeti_out_edge_map(g, grid, event, map, FLEETI_HERE)
FLEET_API void fleeti_in_edge_map(fleet_graph *g, fleet_grid grid, fleet_etensor event,
                                  fleet_map map, const char *site);
#define fleet_in_edge_map(g, grid, event, map) fleeti_in_edge_map(g, grid, event, map, FLEETI_HERE)

/* Runs all tasks of grid `later` after all tasks of grid `earlier`: adds an event tensor of one element, named "LATER
   after EARLIER", which `earlier` notifies and for which `later` waits. A second call for the same grids adds nothing.
   Names of that form are reserved for it. */
FLEET_API void fleeti_after(fleet_graph *g, fleet_grid later, fleet_grid earlier, const char *site);
#define fleet_after(g, later, earlier) fleeti_after(g, later, earlier, FLEETI_HERE)

/* ---- run-time maps ---- */

/* Adds a run-time tensor: int32 values in device memory, row-major. The tasks of grid `writer` write it, and maps
   read it in the same launch to find events and tasks. A writer with one CU-task writes all of it; a writer with a
   task for each row writes row i by task i. fleet_bind_tensor gives the tensor its memory. The builder refuses a map
   that may read it before it is written (FLEET_ERROR_TENSOR_ORDER). A launch checks the values before it uses them
   (FLEET_ERROR_TENSOR_VALUE, with tensor, index and value in the report).
   An event tensor that run-time maps reach has one axis and no other out edges. Under DYNAMIC it works as described
   below. Under STATIC and CHIPLET, whose queues are fixed, it collapses to one event: a notify of any element
   notifies it, and a wait for any element waits for all notifies (as in the Event Tensor paper). */
FLEET_API fleet_tensor fleeti_runtime_tensor(fleet_graph *g, const char *name, fleet_shape shape,
                                             fleet_grid writer, const char *site);
#define fleet_runtime_tensor(g, name, shape, writer)                                               \
    fleeti_runtime_tensor(g, name, shape, writer, FLEETI_HERE)

/* Notifies by index: task i notifies event[topk[i, j]] for all j. topk: [tasks of the grid, k], values in
   [0, elements), or what fleet_tensor_none declares. The grid has one axis. */
FLEET_API void fleeti_out_edge_gather(fleet_graph *g, fleet_grid grid, fleet_etensor event,
                                      fleet_tensor topk, const char *site);
#define fleet_out_edge_gather(g, grid, event, topk)                                                \
    fleeti_out_edge_gather(g, grid, event, topk, FLEETI_HERE)

/* Declares a value, mostly -1, that names no element in a tensor by which grids gather: such an
   entry notifies nothing. Without it the value is an error. Under DYNAMIC the event then needs
   fleet_event_counts, whose sum is not checked. */
FLEET_API void fleeti_tensor_none(fleet_graph *g, fleet_tensor topk, int32_t none,
                                  const char *site);
#define fleet_tensor_none(g, topk, none) fleeti_tensor_none(g, topk, none, FLEETI_HERE)

/* Waits by range: the tasks with indptr[e] <= at[0] < indptr[e + 1] wait for event[e]. Tasks with at[0] >= the last
   value of indptr do not exist in this step. indptr: [elements + 1], begins with 0, never decreases, values up to the
   extent of the grid's first axis; one CU-task writes it. */
FLEET_API void fleeti_in_edge_range(fleet_graph *g, fleet_grid grid, fleet_etensor event,
                                    fleet_tensor indptr, const char *site);
#define fleet_in_edge_range(g, grid, event, indptr)                                                \
    fleeti_in_edge_range(g, grid, event, indptr, FLEETI_HERE)

/* Wait counts by tensor: element e is complete after counts[e] notifies, and after the task that writes counts has
   ended; with count 0 too. counts: [elements], values up to the event tensor's count; one CU-task writes it. The run
   fails with FLEET_ERROR_TENSOR_VALUE if their sum is not the number of notifies, or if an element gets more than its
   count. */
FLEET_API void fleeti_event_counts(fleet_graph *g, fleet_etensor event, fleet_tensor counts,
                                   const char *site);
#define fleet_event_counts(g, event, counts) fleeti_event_counts(g, event, counts, FLEETI_HERE)

/* ---- symbols that the run sets ---- */

/* Lets the run set a symbol from step to step: the task of grid `writer` calls fleet_next_symbol (fleet_sched.h), and
   all workers have that value in the next step. writer: one CU- or wavefront-task, after all others of the step
   (fleet_after); all such symbols have the same writer. A launch begins with the value of fleet_bind, or else with the symbol's min. The
   plan has queues for the symbol's max, and no other buckets of it. Each worker waits for the end of a step before it
   begins the next. */
FLEET_API void fleeti_symbol_writer(fleet_graph *g, fleet_dim symbol, fleet_grid writer,
                                    const char *site);
#define fleet_symbol_writer(g, symbol, writer) fleeti_symbol_writer(g, symbol, writer, FLEETI_HERE)

/* Lets the run lower such a symbol within a step too: the task of grid `cutter` calls fleet_cut_symbol
   (fleet_sched.h), for the rest of the step. cutter: one CU- or wavefront-task. Each grid whose shape has the symbol comes, as a
   whole, before or after it. A symbol may have many cutters. With one before each layer, the layers after a cut to 0
   are passed over without tiles. That a task of such a grid exists is known only when its events are complete: it
   prefetches nothing, and where it turns out not to exist its weight pipeline has copied ahead in vain. In STATIC plans
   that holds for the first grid after the cutter; others on the same workers know it before, and then do not wait either. */
FLEET_API void fleeti_symbol_cutter(fleet_graph *g, fleet_dim symbol, fleet_grid cutter,
                                    const char *site);
#define fleet_symbol_cutter(g, symbol, cutter) fleeti_symbol_cutter(g, symbol, cutter, FLEETI_HERE)

/* ---- placement, scope, external events, buffers ---- */

/* Places the tasks of a grid of CU-, wavefront- or chiplet-tasks. The map's first axis is the chiplet; its second, if
   it has one, the worker on that chiplet, which only a STATIC grid may name. A value out of range is an error: a map
   does not wrap around. Default: a grid's tasks go to the chiplets in contiguous runs of equal length, or in turn if
   a launch may leave tasks out (symbols, run-time tensors), and to a chiplet's workers in turn; chiplet-task k goes
   to chiplet k mod X. */
FLEET_API void fleeti_grid_place(fleet_graph *g, fleet_grid grid, fleet_map map, const char *site);
#define fleet_grid_place(g, grid, map) fleeti_grid_place(g, grid, map, FLEETI_HERE)

/* Places the tasks of a grid on ranks, in a plan for several (fleet_plan_desc.ranks): the value of the map is the rank
   of the task's device, one for each task. Every grid needs a map; fleet_axis(0, 0, r, 1) places a whole grid on rank
   r, and fleet_axis(0, 1, 0, n) gives each rank n values of the first axis. fleet_grid_place then names a chiplet, and
   a worker, of that device. */
FLEET_API void fleeti_grid_ranks(fleet_graph *g, fleet_grid grid, fleet_axis_map map,
                                 const char *site);
#define fleet_grid_ranks(g, grid, map) fleeti_grid_ranks(g, grid, map, FLEETI_HERE)

/* Sets the scope of an event tensor. It may be wider than the inferred one; a narrower one is an error. */
FLEET_API void fleeti_event_scope(fleet_graph *g, fleet_etensor event, fleet_scope scope,
                                  const char *site);
#define fleet_event_scope(g, event, scope) fleeti_event_scope(g, event, scope, FLEETI_HERE)

/* Declares that something outside the kernel takes part in an event. roles: FLEET_EXTERNAL_NOTIFIES
   (it adds `notifies` arrivals to each element in each step), FLEET_EXTERNAL_WAITS (it waits for
   it), or both. scope: FLEET_SCOPE_DEVICE for kernels and copies on this device; FLEET_SCOPE_SYSTEM
   for the host and other devices: the counters are then in host memory that the device can access.
   In a DYNAMIC plan the grids that wait for external notifies are STATIC: their workers wait for
   them. */
#define FLEET_EXTERNAL_NOTIFIES 1u
#define FLEET_EXTERNAL_WAITS 2u
FLEET_API void fleeti_event_external(fleet_graph *g, fleet_etensor event, uint32_t roles,
                                     uint32_t notifies, fleet_scope scope, const char *site);
#define fleet_event_external(g, event, roles, notifies, scope)                                     \
    fleeti_event_external(g, event, roles, notifies, scope, FLEETI_HERE)

/* Declares buffers, and the grids that read and write them. If every grid declares what it uses, the builder tries to
   prove that sources may start before the previous step has ended. */
FLEET_API fleet_buffer fleeti_buffer(fleet_graph *g, const char *name, const char *site);
#define fleet_declare_buffer(g, name) fleeti_buffer(g, name, FLEETI_HERE)
FLEET_API void fleeti_grid_reads(fleet_graph *g, fleet_grid grid, fleet_buffer buffer,
                                 const char *site);
#define fleet_grid_reads(g, grid, buffer) fleeti_grid_reads(g, grid, buffer, FLEETI_HERE)
FLEET_API void fleeti_grid_writes(fleet_graph *g, fleet_grid grid, fleet_buffer buffer,
                                  const char *site);
#define fleet_grid_writes(g, grid, buffer) fleeti_grid_writes(g, grid, buffer, FLEETI_HERE)

/* ---- plan ---- */

/* The kit's overhead in nanoseconds, for AUTO. task: of a task that waits for one event and notifies another. hop:
   from the end of a grid to the start of the next, which waits for all of it. One of
   examples/parts measures them. */
typedef struct fleet_overheads {
    float static_task, static_hop;   /* from a worker's queue, in a plan that is STATIC */
    float mixed_task, mixed_hop;     /* the same, in a plan with DYNAMIC grids */
    float dynamic_task, dynamic_hop; /* from a ready queue */
} fleet_overheads;

typedef struct fleeti_binding {
    uint32_t symbol;
    int64_t value;
} fleeti_binding;

typedef struct fleeti_buckets {
    uint32_t symbol;
    uint32_t count;
    const int64_t *values;
} fleeti_buckets;

typedef struct fleet_plan_desc {
    fleet_topology topology; /* default: the preset MI300X */
    /* Devices that run the graph together, each as the topology describes it, at most FLEET_MAX_PEERS. All ranks build
       the same plan from the same graph. Chiplets and workers are numbered over all ranks, and an event tensor gets a
       first axis: the rank of the producers that an element counts. Schedules: STATIC and CHIPLET. Not with external
       events, run-time tensors, symbols that tasks set, and several buckets. Default 0: 1 */
    uint32_t ranks;
    fleet_schedule schedule;      /* default: FLEET_SCHEDULE_STATIC */
    uint32_t workers_per_chiplet; /* W; default 0: all units (CHIPLET: all but one) */
    /* 1: every arrival at a device-scope event goes to its one counter. 2: arrivals are counted on each chiplet
       first, and each chiplet sends one arrival. Default 0: 2 */
    uint32_t counter_levels;
    /* Distance of two counters of a tensor: a power of two in 4..128. Default 0: 128, and 16 in tensors of more than
       4096 elements */
    uint32_t counter_stride_bytes;
    /* 1: replaces the graph's events by a device-wide barrier between each grid and the next: the baseline for the
       gain of fine-grained events, with the same tiles. Always STATIC; grids run in the order in which they were
       added, which their edges must allow. Default 0 */
    uint32_t unfused;
    /* 1: ignores chiplets. Each device- or chiplet-task becomes independent CU-tasks, one for each tile t of its
       fleet_grid_tiles in each slice s. CU-task i of a grid goes to chiplet i mod X and there to the workers in turn,
       so that tiles which would share an L2 run on different chiplets. The context says slice = s, tile_index = t,
       tile_num = tiles: a tile function that goes from tile to tile by a stride of tile_num computes the same tiles,
       unchanged. It must not use a barrier among the tiles, nor rely on its chiplet. Each CU-task arrives for itself.
       A placement of chiplet-tasks is ignored, and a given scope is widened if it must be. With counter_levels = 1
       this is the baseline of the FLEET paper (standard decomposition, direct signals). Works under every schedule
       and with unfused. Default 0 */
    uint32_t chiplet_unaware;
    /* 1: pushes a task to its ready queue as soon as all its producers have been started, instead of when they have
       ended. The worker that pops it runs its prefetch, waits for its events and runs its tile. Costs two more
       atomics for each task and event. Default 0 */
    uint32_t early_push;
    fleet_overheads costs; /* for AUTO; default: as measured on an H200 */
    /* fleet_bind_at_build appends to these. Default 0 */
    fleeti_binding bindings[FLEET_MAX_SYMBOLS];
    uint32_t n_bindings;
    /* fleet_buckets_at_build appends to these. */
    fleeti_buckets buckets[FLEET_MAX_SYMBOLS];
    /* default 0: powers of two, and the symbol's max. If the buckets of all symbols together were more than
       FLEET_MAX_BUCKETS, every second one is left out of those by default, from the longest list first, until they fit:
       1, 4, 16 ... */
    uint32_t n_buckets;
    /* The work that the build may take, in all buckets together: 16 for each task, each of its descriptors in queues and
       each element of an event tensor; 1 for each part of a task and each element that it notifies or waits for; 8 for
       each element that a task under DYNAMIC waits for. A graph that needs more is refused with
       FLEET_ERROR_TOO_MANY_TASKS. The default takes some seconds and a few gigabytes. Default 0: FLEET_MAX_WORK */
    uint64_t max_work;
} fleet_plan_desc;

/* The defaults, for a caller that changes single fields. */
FLEET_API fleet_plan_desc fleet_plan_desc_default(void);

/* Binds a symbol in a descriptor. fleet_plan_build checks the value. */
FLEET_API void fleet_bind_at_build(fleet_plan_desc *desc, fleet_dim symbol, int64_t value);

/* Names the values, ascending, of a symbol that is bound at launch for which the plan has queues; its max is added. A
   launch uses the next larger value and skips the tasks outside the shape that its symbols give. `values` must stay
   valid until fleet_plan_build. The product of the numbers of buckets of all symbols is at most FLEET_MAX_BUCKETS. */
FLEET_API void fleet_buckets_at_build(fleet_plan_desc *desc, fleet_dim symbol,
                                      const int64_t *values, uint32_t count);

/* A plan is one block of plain data without pointers, so that it can be copied anywhere, to a file too. Programs may
   read what stands first in struct fleet_plan (>>layout): bytes, schedule, chiplets, workers, n_tasks, ... */
typedef struct fleet_plan fleet_plan;

/* Builds a plan. On success *out is a block from FLEET_MALLOC, which the caller frees with fleet_plan_free. On
   failure *out is null, and fleet_graph_error tells what to change. The graph keeps nothing of it but the error, so
   that any number of plans may be built from one graph. Time and memory are linear in tasks and in the elements that
   they reach, and bounded by desc->max_work. desc: null for the defaults. */
FLEET_API fleet_status fleet_plan_build(fleet_graph *g, const fleet_plan_desc *desc,
                                        fleet_plan **out);
FLEET_API void fleet_plan_free(fleet_plan *plan);

/* Checks a 16-byte aligned block that came from outside (a file, a network). Errors: FLEET_ERROR_NULL, _ARGUMENT
   (alignment), _MEMORY; _IMAGE_MAGIC, _IMAGE_VERSION, _IMAGE_SIZE, _IMAGE_CHECKSUM; _IMAGE_INDEX: an index points
   outside the block, or two parts of it disagree. Reads at most `bytes` bytes, whatever they hold. A block that was
   forged with a matching checksum may pass. It may then compute nonsense or end with a status, but the kit accesses
   nothing outside the image, the state and what the plan asks of its caller: tile functions that accept every
   coordinate in the shapes of their grids, an array of fleet_plan_args arguments, and fleet_plan_tensor_values values
   for each run-time tensor. Compare these numbers with what you have. */
FLEET_API fleet_status fleet_plan_check(const void *block, size_t bytes)
    FLEETI_SYMBOL("fleet_plan_check");

/* The FLEET_VERSION of the headers that built the plan, for a message about
   FLEET_ERROR_IMAGE_VERSION; 0: it is no plan. */
FLEET_API uint32_t fleet_plan_version(const void *block, size_t bytes);

/* The number of arguments that launches of the plan read: 1 + the largest index of a grid. */
FLEET_API uint64_t fleet_plan_args(const fleet_plan *plan);
/* The number of values of a run-time tensor that launches of the plan read; -1 if the plan has no such tensor. */
FLEET_API int64_t fleet_plan_tensor_values(const fleet_plan *plan, const char *tensor);

/* ---- reports ---- */

/* The numbers of the report, per step. */
typedef struct fleet_plan_stats {
    uint32_t tasks
        [4]; /* per fleet_level; in an unaware plan the CU-tasks that device- and chiplet-tasks became */
    uint32_t descs;          /* descriptors, with the copies of chiplet-tasks and the step ends */
    uint64_t local_signals;  /* arrivals at counters that stay within a chiplet */
    uint64_t global_signals; /* arrivals at counters that several chiplets read */
    uint64_t releases;       /* device or system releases: L2 write-backs where L2s are private */
    uint64_t acquires; /* device or system acquires: one for each task that waits for such events */
    uint32_t shortest_queue, longest_queue;
} fleet_plan_stats;

/* Counts through all records of a plan. Zeros for a null plan. */
FLEET_API fleet_plan_stats fleet_plan_get_stats(const fleet_plan *plan);

/* Writes the report as text: tasks per level, signals and releases per event, scopes, queue lengths, bytes, warnings.
   Writes at most `bytes` bytes with the final 0, and returns the length without it that the whole text needs, as
   snprintf does. */
FLEET_API size_t fleet_plan_report(const fleet_plan *plan, char *text, size_t bytes);

/* The plan of bucket i, ascending; the last one is the plan itself. It is in the same block. Null if there is none. */
FLEET_API const fleet_plan *fleet_plan_bucket(const fleet_plan *plan, uint32_t i);
/* The index of the event tensor of that name, or -1. */
FLEET_API int32_t fleet_plan_event(const fleet_plan *plan, const char *name);
/* The id of a task, by its grid's name and its coordinate, a number for each axis; or -1. */
FLEET_API int64_t fleet_plan_task(const fleet_plan *plan, const char *grid, const int32_t *at);
/* Write "final(3)" for a task id and "E[3]" for a counter word; return as snprintf does. */
FLEET_API size_t fleet_plan_task_name(const fleet_plan *plan, uint32_t id, char *text,
                                      size_t bytes);
FLEET_API size_t fleet_plan_counter_name(const fleet_plan *plan, uint32_t counter, char *text,
                                         size_t bytes);

/* ==== >>layout: the block of a plan ==== */

/* DYNAMIC: the ready rings of a chiplet. */
typedef enum fleeti_ring_kind {
    FLEETI_RING_CHIPLET,
    FLEETI_RING_CU,
    FLEETI_RING_WAVE
} fleeti_ring_kind;
#define FLEETI_RINGS 3u

/* The header, with which a plan begins. Offsets are in bytes from its first byte. The block is 16-byte aligned, and
   the device reads it without synchronisation. */
struct fleet_plan {
    uint64_t magic;
    uint32_t version; /* FLEET_VERSION */
    uint32_t header_bytes;
    uint64_t bytes;    /* of the whole block */
    uint64_t checksum; /* of the whole block with this field as 0: against accidents, not forgery */
    uint32_t schedule; /* fleet_schedule; DYNAMIC if any grid is */
    uint32_t chiplets; /* of all ranks */
    uint32_t workers[FLEET_MAX_CHIPLETS];     /* W of each chiplet, without the scheduler */
    uint32_t worker_base[FLEET_MAX_CHIPLETS]; /* number of the chiplet's first worker */
    uint32_t total_workers;                   /* of all chiplets */
    uint32_t n_tasks;                         /* tasks of a step (a device-task is one) */
    /* The rest is private. */
    uint32_t n_queues; /* STATIC: one per worker; CHIPLET: per chiplet; DYNAMIC: both */
    uint32_t n_descs;  /* fleet_task entries, step ends included */
    uint32_t n_waits, n_notifies;
    uint32_t n_events, n_grids;
    uint32_t n_elements;    /* event elements, which are the entries of the target table */
    uint32_t counter_words; /* 32-bit words of the device counters; word 0 is never used */
    uint32_t system_words;  /* the same for counters in host memory that the device can access */
    uint32_t has_waves;     /* 1: some grid has wavefront-tasks */
    uint32_t private_l2;    /* of the topology: chiplets are real and must be found by their id */
    uint32_t step_event;    /* number of the implicit step event, the last one */
    uint64_t queues, tasks, waits, notifies, events, grids, targets, names;
    /* DYNAMIC: which tasks become ready by which events. */
    uint64_t consumers; /* fleeti_consumer entries, by element; those of the step event: sources */
    /* Per element its first consumer, and the end. With early pushes the table has as many entries once more before
       the end: the tasks that become ready when all tasks that notify the element have been started. */
    uint64_t first_consumers;
    uint64_t triggers; /* fleeti_trigger of each notify record */
    uint32_t n_consumers;
    uint32_t joins;   /* counter word of descriptor 0's join counter */
    uint32_t guarded; /* 1: launches may leave tasks out */
    uint32_t early;   /* 1: early pushes */
    uint32_t taken; /* with early pushes: counter word of element 0's count of started producers */
    uint64_t taken_targets; /* with early pushes: per element its producers per step, uint32_t */
    uint32_t ring_entries[FLEETI_RINGS * FLEET_MAX_CHIPLETS]; /* tasks that a ring gets in a step */
    /* Symbols. A plan with buckets is the plan of the largest one. The others follow in its block; each is a plan
       like this one, with counters of its own. */
    uint32_t n_symbols, n_buckets;
    uint64_t symbols; /* fleeti_symbol entries */
    uint64_t buckets; /* uint64_t offsets of the plans, ascending; the last one is 0, this plan */
    uint64_t maps;    /* fleeti_runtime_map entries, by grid */
    uint64_t tensors; /* fleeti_tensor_info entries */
    uint32_t n_maps, n_tensors;
    uint64_t guards;                  /* a fleeti_guard per grid, if a symbol is bound at launch */
    uint64_t keys;                    /* a fleet_key per grid, if keys order the fixed queues */
    uint32_t keyed;                   /* 1: they do */
    uint32_t rebinds;                 /* a bit for each symbol that a task sets for the next step */
    int32_t bound[FLEET_MAX_SYMBOLS]; /* the largest values of the symbols that this plan serves */
    fleet_topology topology;          /* of one device */
    uint32_t ranks;                   /* chiplets of rank r: from r * chiplets / ranks on */
    uint32_t n_forwards;
    uint64_t forwards;                    /* fleeti_forward entries */
    uint32_t step_waits[FLEET_MAX_PEERS]; /* per rank: first wait record for the previous step */
    uint32_t n_step_waits[FLEET_MAX_PEERS];
    uint64_t spaces; /* uint32_t words: the levels of each fleeti_space */
    uint32_t n_space_words, pad;
};

#define FLEET_PLAN_MAGIC 0x6e616c5074656c66ull /* "fletPlan" */

typedef struct fleeti_symbol {
    uint64_t name; /* offset in the block */
    int32_t min, max;
    uint32_t at_launch;
    uint32_t pad;
} fleeti_symbol;

/* An extent as launches evaluate it: a fleet_dim that depends on no axis. */
typedef struct fleeti_extent {
    int64_t add, mul, div;
    uint32_t symbol;
} fleeti_extent;

/* The shape of a grid as a function of the symbols. */
typedef struct fleeti_guard {
    fleeti_extent extent[FLEET_MAX_RANK];
    fleeti_extent slices;
} fleeti_guard;

/* A run of descriptors. */
typedef struct fleeti_queue {
    uint32_t first, count;
} fleeti_queue;

#define FLEETI_TILE_NONE 0xffffffffu  /* the end of a step: no tile, only its notify */
#define FLEETI_TILE_EMPTY 0xfffffffeu /* a tile that does nothing */
/* Added to the tile in a descriptor that was fetched ahead: the task is outside its grid's shape. From this number on
   tiles do nothing. */
#define FLEETI_TILE_ABSENT 0x80000000u

/* A descriptor: what a worker reads for one task. A chiplet-task has one per chiplet under CHIPLET, one per worker
   under STATIC and DYNAMIC. The descriptors of a queue are contiguous. Under STATIC and CHIPLET a queue that is not
   empty ends with a step end. */
typedef struct fleet_task {
    uint32_t tile;
    uint32_t args;
    int32_t at[FLEET_MAX_RANK]; /* coordinate in the grid */
    uint32_t waits;             /* first of n_waits wait records */
    uint32_t notifies;          /* first of n_notifies notify records */
    uint16_t n_waits, n_notifies;
    uint8_t level; /* fleet_level, but not DEVICE; or FLEETI_LEVEL_PART */
    /* Two fields of one byte, so that a comparison of scopes cannot read a flag. */
    uint8_t acquire : 2; /* fleet_scope: the widest of its waits */
    uint8_t flags : 6;   /* FLEETI_GUARDED, MAPPED, EARLY, FEEDS, SETTLED */
    /* Wavefront-tasks in an ordered queue: the number of them in a row from this one on. Chiplet-tasks in a plan
       under DYNAMIC: the index of this one among the W of its chiplet. PART: its tile. Otherwise 1. */
    uint16_t batch;
    uint32_t slice, slices; /* of a device-task; otherwise 0, 1. PART: slices | tiles << 16 */
    uint32_t id;            /* the task's number in the graph: grid after grid, row-major */
    uint32_t grid;          /* index of its fleeti_grid */
} fleet_task;

/* Unaware plans: a CU-task that is one tile of a slice. No descriptor has the level FLEET_LEVEL_DEVICE, whose number
   this is. */
#define FLEETI_LEVEL_PART 3u
#define FLEETI_MAX_PARTS                                                                           \
    65535u /* slices of a task, and tiles of a slice, that a descriptor can hold */

/* Its grid has a symbol that tasks cut, but what decides is settled before it waits (fleeti_find_settled). */
#define FLEETI_SETTLED 0x01u
#define FLEETI_FEEDS 0x04u /* DYNAMIC: its arrivals may make other tasks ready */
#define FLEETI_EARLY 0x08u /* it is pushed early: its worker must wait for its events */
/* Its grid has run-time maps, or a symbol that tasks cut and is not settled: only when its events are complete is it known
   that the task exists. */
#define FLEETI_MAPPED 0x10u
#define FLEETI_GUARDED 0x20u /* the symbols decide whether the task exists */

/* The same fields in the word of a descriptor that begins with its level, which device code reads. */
#define FLEETI_LEVEL_IN(word) ((word)&0xffu)
#define FLEETI_ACQUIRE_IN(word) ((word) >> 8 & 3u)
#define FLEETI_FLAGS_IN(word) ((word) >> 10 & 0x3fu)
#define FLEETI_BATCH_IN(word) ((word) >> 16)

/* DYNAMIC: descriptor `desc` waits for an element. It becomes ready with the last of its `need` elements. */
typedef struct fleeti_consumer {
    uint32_t desc;
    uint32_t need; /* number | ring << 24 */
} fleeti_consumer;
#define FLEETI_CONSUMER_NEED 0x00ffffffu
#define FLEETI_CONSUMER_RING(need) ((need) >> 24) /* FLEETI_RINGS * chiplet + fleeti_ring_kind */

/* A wait record: wait until each of `count` counters, `stride` words apart, has `target` arrivals per step. */
typedef struct fleeti_wait {
    uint32_t counter; /* word index; FLEETI_SYSTEM: in the system counters */
    uint32_t count;   /* FLEETI_PREVIOUS: wait for the previous step, not this one */
    uint32_t stride;  /* words */
    uint32_t target;
} fleeti_wait;

/* An element for which tasks of other ranks wait. The arrival that completes its counter in a step, on the device of its
   producers, stores the epoch to `word` of the system counters of each of these ranks: one word for each element, which
   no other rank stores to. There a wait record has this word, and target 1. */
typedef struct fleeti_forward {
    uint32_t counter, target; /* as in wait records */
    uint32_t ranks;           /* a bit each */
    uint32_t word;
} fleeti_forward;

/* A notify record. Without sub: add weight to the counter. With sub: add one to that word first; the arrival that
   brings it to `share` in this step adds weight to the counter on behalf of its chiplet. */
typedef struct fleeti_notify {
    /* word index; FLEETI_SYSTEM: in the system counters or, in a plan for several ranks, the number of a
       fleeti_forward, whose counter it is */
    uint32_t counter;
    /* word index, 0: none; FLEETI_LOCAL: producers and consumers share an L2, so that no release is needed */
    uint32_t sub;
    uint32_t share;
    uint32_t weight;
} fleeti_notify;

/* Kinds of run-time maps: what the tasks of a grid do with a run-time tensor. Under STATIC and CHIPLET a launch
   checks the tensors, and they decide which tasks exist, but arrivals follow the plan's records. To add a kind: add a
   row and the two functions that it names, a call that makes a map of it (>>graph), a function that binds it
   (>>edges), and what is new of it on the device (fleet_sched.h). Columns: name; traits; function that checks the
   fields of a map in a block from outside (>>check); function that proves that the tensor is written before it is
   read (>>tensors), null: always; text of the report. */
#define FLEETI_MAP_LIST(X)                                                                         \
    /* A task notifies the elements that its row names. */                                         \
    X(GATHER, FLEETI_BY_ROW | FLEETI_ARRIVES, fleeti_gather_fits, fleeti_gather_in_order,          \
      "notifies by")                                                                               \
    /* The writer adds to each element what its count lacks of its bound, and one. */              \
    X(COUNTS, FLEETI_BY_WRITER | FLEETI_ARRIVES, fleeti_counts_fit, NULL, "sets wait counts by")   \
    /* The writer completes the events of absent tasks; each element indexes its waiters. */       \
    X(RANGES, FLEETI_BY_WRITER | FLEETI_ARRIVES | FLEETI_TASKS | FLEETI_LISTS, fleeti_ranges_fit,  \
      fleeti_ranges_in_order, "names tasks by")                                                    \
    /* A task exists if it is in a range, and waits for the element of that range. */              \
    X(EXISTS, FLEETI_TASKS, fleeti_ranges_fit, NULL, "exists by")

#define FLEETI_BY_ROW 1u    /* the tensor has a row of values for each task of the grid */
#define FLEETI_BY_WRITER 2u /* the grid is the tensor's writer, which is one CU-task */
#define FLEETI_ARRIVES 4u /* the grid's tasks arrive at elements by it; otherwise they wait by it */
#define FLEETI_TASKS 8u   /* the values bound ranges of tasks, one range for each element */
#define FLEETI_LISTS 16u  /* the plan lists the tasks of another grid, by these ranges */

#define FLEETI_MAP_ENUM(name, traits, fits, in_order, text) FLEETI_MAP_##name,
typedef enum fleeti_map_kind { FLEETI_MAP_LIST(FLEETI_MAP_ENUM) FLEETI_MAP_KINDS } fleeti_map_kind;

typedef struct fleeti_runtime_map {
    uint32_t kind; /* fleeti_map_kind */
    uint32_t tensor;
    uint32_t values; /* GATHER: of a row; otherwise of the tensor */
    uint32_t bound;  /* the largest value allowed */
    uint32_t first_element, elements;
    uint32_t counter, stride,
        target;            /* of the elements; target 0: the plan's records notify them */
    uint32_t none;         /* GATHER: value over the bound that names no element; 0: no value */
    uint32_t grid;         /* RANGES: whose tasks */
    uint32_t first, inner; /* RANGES: consumer entry of the first task, and tasks per value */
} fleeti_runtime_map;

typedef struct fleeti_tensor_info {
    uint64_t name;   /* offset in the block */
    uint64_t values; /* that launches read */
} fleeti_tensor_info;

/* The element of a notify record, and the arrivals per step that complete it. The arrival that reaches the target
   makes its consumers ready: [from, end) of the list, or, where from is FLEETI_APART, what the element says: it ends the
   step, or a run-time map adds consumers. */
typedef struct fleeti_trigger {
    uint32_t element, target, from, end;
} fleeti_trigger;
#define FLEETI_APART 0xffffffffu

#define FLEETI_SYSTEM 0x80000000u
#define FLEETI_PREVIOUS 0x80000000u
#define FLEETI_LOCAL 0x80000000u

/* An event tensor, for reports and external events. */
typedef struct fleeti_event {
    uint64_t name;         /* offset in the block */
    uint32_t counter;      /* word index of element 0; FLEETI_SYSTEM: in the system counters */
    uint32_t stride;       /* words between elements */
    uint32_t first_target; /* index of element 0 in the target table */
    uint32_t elements;
    int32_t extent[FLEET_MAX_RANK];
    uint32_t rank;
    uint32_t outside; /* FLEET_EXTERNAL_... */
    uint32_t outside_notifies;
    uint32_t scoped[4]; /* elements per inferred or given fleet_scope */
    uint32_t warnings;  /* FLEETI_WARN_... */
    uint32_t words;     /* FLEETI_SYSTEM | word of element 0 on other ranks; 0: none waits for it */
    uint32_t space; /* 1 + word of its levels, if extents depend on axes; `extent` is the most */
} fleeti_event;

/* The system counters of a plan for several ranks begin with what ranks tell each other, in a line each. STOP: a rank has
   ended the run, in one word, which any of them stores: FLEETI_SYSTEM | the word that it blames. The first lines have a
   word for each rank, so that their index tells the rank. PLAN: the sum that tells whether a rank's plan is that of the
   others. LATE: FLEETI_SYSTEM | the word for which a rank has waited too long; so the others find the rank for which
   all wait, directly or not. */
#define FLEETI_PEER_STOP 0u
#define FLEETI_PEER_PLAN (FLEET_CACHE_LINE_BYTES / 4u)
#define FLEETI_PEER_LATE (2 * FLEET_CACHE_LINE_BYTES / 4u)
#define FLEETI_PEER_LINES 3u

#define FLEETI_WARN_NO_WAITER 1u

typedef struct fleeti_grid {
    uint64_t name; /* offset in the block */
    uint32_t tile, args, level, slices;
    uint32_t tiles; /* unaware plans: CU-tasks for each slice; 0: tasks have their own level */
    int32_t extent[FLEET_MAX_RANK];
    uint32_t rank;
    uint32_t first_id, count; /* tasks of the graph */
    uint32_t runs_ahead;      /* 1: its sources need not wait for the previous step */
    uint32_t first_map, n_maps;
    uint32_t guarded;            /* 1: its shape depends on symbols that are bound at launch */
    uint32_t settled;            /* 1: its tasks have FLEETI_SETTLED */
    uint32_t schedule;           /* fleet_schedule */
    uint32_t chosen;             /* FLEETI_CHOSEN_...: by AUTO; 0: given */
    float static_ns, dynamic_ns; /* AUTO's estimates of the grid's time in a step */
    /* a bit for each symbol that its task sets: for the next step, for the rest of the step */
    uint32_t writes, cuts;
    uint32_t space; /* as in fleeti_event */
} fleeti_grid;

#define FLEETI_CHOSEN_BY_TIME 1u
#define FLEETI_CHOSEN_AVOIDS_DEADLOCK 2u /* DYNAMIC, because fixed queues would deadlock */

/* The tables of a plan, on the host and the device. Macros: nvcc makes other code of functions. */
#define FLEETI_PLAN_TABLE(type, plan, table)                                                       \
    ((const type *)(const void *)((const char *)(plan) + (plan)->table))
#define fleeti_plan_queues(plan) FLEETI_PLAN_TABLE(fleeti_queue, plan, queues)
#define fleeti_plan_tasks(plan) FLEETI_PLAN_TABLE(fleet_task, plan, tasks)
#define fleeti_plan_waits(plan) FLEETI_PLAN_TABLE(fleeti_wait, plan, waits)
#define fleeti_plan_notifies(plan) FLEETI_PLAN_TABLE(fleeti_notify, plan, notifies)
#define fleeti_plan_events(plan) FLEETI_PLAN_TABLE(fleeti_event, plan, events)
#define fleeti_plan_grids(plan) FLEETI_PLAN_TABLE(fleeti_grid, plan, grids)
#define fleeti_plan_targets(plan) FLEETI_PLAN_TABLE(uint32_t, plan, targets)
#define fleeti_plan_consumers(plan) FLEETI_PLAN_TABLE(fleeti_consumer, plan, consumers)
#define fleeti_plan_first_consumers(plan) FLEETI_PLAN_TABLE(uint32_t, plan, first_consumers)
#define fleeti_plan_triggers(plan) FLEETI_PLAN_TABLE(fleeti_trigger, plan, triggers)
#define fleeti_plan_taken_targets(plan) FLEETI_PLAN_TABLE(uint32_t, plan, taken_targets)
#define fleeti_plan_symbols(plan) FLEETI_PLAN_TABLE(fleeti_symbol, plan, symbols)
#define fleeti_plan_buckets(plan) FLEETI_PLAN_TABLE(uint64_t, plan, buckets)
#define fleeti_plan_maps(plan) FLEETI_PLAN_TABLE(fleeti_runtime_map, plan, maps)
#define fleeti_plan_tensors(plan) FLEETI_PLAN_TABLE(fleeti_tensor_info, plan, tensors)
#define fleeti_plan_guards(plan) FLEETI_PLAN_TABLE(fleeti_guard, plan, guards)
#define fleeti_plan_keys(plan) FLEETI_PLAN_TABLE(fleet_key, plan, keys)
#define fleeti_plan_forwards(plan) FLEETI_PLAN_TABLE(fleeti_forward, plan, forwards)
#define fleeti_plan_spaces(plan) FLEETI_PLAN_TABLE(uint32_t, plan, spaces)

FLEET_C_END

#endif /* FLEET_H */

/* ==== >>implementation: table of passes, helpers ==== */

#ifdef FLEET_IMPLEMENTATION
#ifndef FLEETI_IMPLEMENTED
#define FLEETI_IMPLEMENTED

/* A plan is built in passes. Pass NAME is the function fleeti_pass_NAME in section >>NAME. A pass fills in fields of
   fleeti_build and relies on the fields of the passes before it. A task's id is its number when tasks are enumerated
   grid after grid, row-major. To add a pass, add a row and its function. */
#define FLEETI_PASSES(X)                                                                           \
    /* name       takes                     leaves */                                              \
    X(bind)    /* graph, descriptor         topology, shapes, tasks and ids as numbers */          \
    X(choose)  /* shapes, times, costs      the schedule of each grid and of the plan */           \
    X(edges)   /* shapes, schedules         events, edges, run-time maps as numbers */             \
    X(place)   /* tasks, schedules          the chiplet and worker of each task */                 \
    X(analyse) /* edges, slots              producers and waiters of each event element */         \
    X(count)   /* elements                  scopes, targets, counters, notify records */           \
    X(overlap) /* edges, slots, buffers     whether sources wait for the previous step */          \
    X(tensors) /* edges, run-time maps      the proof that tensors are written in time */          \
    X(symbols) /* edges, symbols            the proof that symbols are set in time */              \
    X(records) /* edges, counters           the wait and notify records of each task */            \
    X(emit)    /* all of these              the block of the plan, its queues sorted by keys */    \
    X(order)   /* the block                 the proof that no order deadlocks */

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FLEET_MALLOC
#define FLEET_MALLOC(bytes) malloc(bytes)
#define FLEET_FREE(ptr) free(ptr)
#endif

/* A copy of stb_ds.h in the user's tree is not a system header: do not show its warnings to the user. */
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-value"
#pragma GCC diagnostic ignored "-Wimplicit-fallthrough"
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#endif
#if defined(__CUDACC__)
#pragma nv_diagnostic push
#pragma nv_diag_suppress 550 /* set but never used */
#endif
#if !defined(INCLUDE_STB_DS_H)
/* What is declared as static stays so, whatever follows. */
FLEET_C_BEGIN
struct stbds_string_arena;
static void stbds_rand_seed(size_t);
static size_t stbds_hash_bytes(void *, size_t, size_t);
static size_t stbds_hash_string(char *, size_t);
static char *stbds_stralloc(struct stbds_string_arena *, char *);
static void stbds_strreset(struct stbds_string_arena *);
static void *stbds_arrgrowf(void *, size_t, size_t, size_t);
static void stbds_arrfreef(void *);
static void stbds_hmfree_func(void *, size_t);
static void *stbds_hmget_key(void *, size_t, void *, size_t, int);
static void *stbds_hmget_key_ts(void *, size_t, void *, size_t, ptrdiff_t *, int);
static void *stbds_hmput_default(void *, size_t);
static void *stbds_hmput_key(void *, size_t, void *, size_t, int);
static void *stbds_hmdel_key(void *, size_t, void *, size_t, size_t, int);
static void *stbds_shmode_func(size_t, int);
FLEET_C_END
#define STB_DS_IMPLEMENTATION
#if __has_include("stb_ds.h")
#include "stb_ds.h"
#elif __has_include(<stb/stb_ds.h>)
#include <stb/stb_ds.h>
#else
#error "fleet.h needs stb_ds.h (github.com/nothings/stb, one file): put it on the include path"
#endif
#undef STB_DS_IMPLEMENTATION
#endif
#if defined(__CUDACC__)
#pragma nv_diagnostic pop
#endif
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

FLEET_C_BEGIN

#define FLEETI_NONE 0xffffffffu     /* no task, no worker, no grid */
#define FLEETI_MAX_INDEX 0x7fffffff /* 31 bits: the top bit of an index is a flag */
#define FLEETI_NAME_BYTES 64        /* a name and its final 0 */
#define FLEETI_LINE_WORDS (FLEET_CACHE_LINE_BYTES / 4u)
#define FLEETI_NO_LIMIT INT64_MAX
#define FLEETI_NO_LOWER INT64_MIN

/* ---- text ---- */

#define FLEETI_STATUS_NAME(code, text)                                                             \
    case code:                                                                                     \
        return #code;
#define FLEETI_STATUS_TEXT(code, text)                                                             \
    case code:                                                                                     \
        return text;

const char *fleet_status_name(fleet_status status)
{
    switch (status) {
        FLEET_STATUS_LIST(FLEETI_STATUS_NAME)
    case FLEET_STATUS_COUNT:
        break;
    }
    return "FLEET_UNKNOWN_STATUS";
}

const char *fleet_status_text(fleet_status status)
{
    switch (status) {
        FLEET_STATUS_LIST(FLEETI_STATUS_TEXT)
    case FLEET_STATUS_COUNT:
        break;
    }
    return "not a status of fleet";
}

/* A text in the caller's buffer. `length` counts all that has been put, whether it fits or not, as snprintf does. */
typedef struct fleeti_text {
    char *text;
    size_t bytes, length;
} fleeti_text;

static fleeti_text fleeti_text_at(char *text, size_t bytes)
{
    fleeti_text out;
    out.text = text;
    out.bytes = text ? bytes : 0;
    out.length = 0;
    if (out.bytes) text[0] = 0;
    return out;
}

static void fleeti_put_list(fleeti_text *out, const char *format, va_list list)
{
    size_t room = out->length < out->bytes ? out->bytes - out->length : 0;
    int n = vsnprintf(room ? out->text + out->length : NULL, room, format, list);
    if (n > 0) out->length += (size_t)n;
}

static void fleeti_put(fleeti_text *out, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fleeti_put_list(out, format, list);
    va_end(list);
}

/* Puts "final(3)" or "E[2,1]"; a tensor without axes is just "E". */
static void fleeti_put_point(fleeti_text *out, const char *name, const int32_t *at, uint32_t rank,
                             const char *brackets)
{
    fleeti_put(out, "%s", name);
    if (!rank && brackets[0] == '[') return;
    fleeti_put(out, "%c", brackets[0]);
    for (uint32_t k = 0; k < rank; k++) fleeti_put(out, k ? ",%d" : "%d", (int)at[k]);
    fleeti_put(out, "%c", brackets[1]);
}

/* Converts a row-major index to a coordinate. */
static void fleeti_unravel(uint32_t index, const int32_t *extent, uint32_t rank, int32_t *at)
{
    for (uint32_t k = rank; k-- > 0;) {
        at[k] = (int32_t)(index % (uint32_t)extent[k]);
        index /= (uint32_t)extent[k];
    }
}

/* An index space some of whose extents depend on the axes before them, as a tree. Level k has an
   entry for each prefix of k coordinates, in row-major order: how many prefixes of k + 1
   coordinates come before its own. One more entry has them all. So the last level counts points. */
typedef struct fleeti_space {
    const uint32_t *level[FLEET_MAX_RANK];
    uint32_t prefixes[FLEET_MAX_RANK]; /* of k coordinates */
    uint32_t on[FLEET_MAX_RANK];       /* a bit for each axis on which extent k depends */
    uint32_t rank;                     /* 0: extents are constant, and there is no tree */
} fleeti_space;

/* Converts the number of a prefix of `rank` coordinates to these. */
static void fleeti_space_point(const fleeti_space *s, uint32_t index, uint32_t rank, int32_t *at)
{
    for (uint32_t k = rank; k-- > 0;) {
        uint32_t low = 0, high = s->prefixes[k];
        while (high - low > 1) { /* the last prefix that begins at the index or before it */
            const uint32_t middle = low + (high - low) / 2;
            if (s->level[k][middle] <= index)
                low = middle;
            else
                high = middle;
        }
        at[k] = (int32_t)(index - s->level[k][low]);
        index = low;
    }
}

/* The number of a point; FLEETI_NONE: it is outside. */
static uint32_t fleeti_space_index(const fleeti_space *s, const int32_t *at)
{
    uint32_t index = 0;
    for (uint32_t k = 0; k < s->rank; k++) {
        const uint32_t *own = s->level[k] + index;
        if (at[k] < 0 || (uint32_t)at[k] >= own[1] - own[0]) return FLEETI_NONE;
        index = own[0] + (uint32_t)at[k];
    }
    return index;
}

/* The same for all spaces: of constant extents too. */
static void fleeti_point_of(const fleeti_space *s, const int32_t *extent, uint32_t rank,
                            uint32_t index, int32_t *at)
{
    if (s->rank)
        fleeti_space_point(s, index, rank, at);
    else
        fleeti_unravel(index, extent, rank, at);
}
static uint32_t fleeti_index_of(const fleeti_space *s, const int32_t *extent, uint32_t rank,
                                const int32_t *at)
{
    uint32_t index = 0;
    if (s->rank) return fleeti_space_index(s, at);
    for (uint32_t k = 0; k < rank; k++) {
        if (at[k] < 0 || at[k] >= extent[k]) return FLEETI_NONE;
        index = index * (uint32_t)extent[k] + (uint32_t)at[k];
    }
    return index;
}

/* ---- numbers ---- */

#define FLEETI_HUGE ((int64_t)1 << 61) /* sums of a few smaller numbers cannot overflow */

static int64_t fleeti_clamp(int64_t v)
{
    return v > FLEETI_HUGE ? FLEETI_HUGE : v < -FLEETI_HUGE ? -FLEETI_HUGE : v;
}

/* Product and sum, saturated at +-FLEETI_HUGE; callers reject a result at that bound as too large. */
static int64_t fleeti_mul(int64_t a, int64_t b)
{
    int64_t x = fleeti_clamp(a), y = fleeti_clamp(b);
    int negative = (x < 0) != (y < 0);
    x = x < 0 ? -x : x;
    y = y < 0 ? -y : y;
    if (x && y > FLEETI_HUGE / x) return negative ? -FLEETI_HUGE : FLEETI_HUGE;
    return negative ? -(x * y) : x * y;
}

static int64_t fleeti_add(int64_t a, int64_t b)
{
    return fleeti_clamp(fleeti_clamp(a) + fleeti_clamp(b));
}

static int fleeti_is_huge(int64_t v)
{
    return v >= FLEETI_HUGE || v <= -FLEETI_HUGE;
}

static int64_t fleeti_floor_div(int64_t a, int64_t b) /* b > 0 */
{
    int64_t q = a / b;
    return a % b < 0 ? q - 1 : q;
}

static uint32_t fleeti_popcount(uint32_t v)
{
    v = v - ((v >> 1) & 0x55555555u);
    v = (v & 0x33333333u) + ((v >> 2) & 0x33333333u);
    return (((v + (v >> 4)) & 0x0f0f0f0fu) * 0x01010101u) >> 24;
}

/* ---- topology presets ---- */

static fleet_topology fleeti_topology(const char *name, uint32_t chiplets, uint32_t units,
                                      uint32_t wave, uint32_t lds, uint64_t l2, uint64_t llc,
                                      uint32_t private_l2)
{
    fleet_topology t;
    memset(&t, 0, sizeof t);
    snprintf(t.name, sizeof t.name, "%s", name);
    t.chiplets = chiplets;
    for (uint32_t k = 0; k < chiplets && k < FLEET_MAX_CHIPLETS; k++) t.units[k] = units;
    t.wave_size = wave;
    t.lds_bytes = lds;
    t.l2_bytes = l2;
    t.llc_bytes = llc;
    t.private_l2 = private_l2;
    return t;
}

#define FLEETI_TOPOLOGY_CASE(n, x, u, w, lds, l2, llc, p)                                          \
    case FLEET_##n:                                                                                \
        return fleeti_topology(#n, x, u, w, lds, l2, llc, p);

fleet_topology fleet_topology_preset(fleet_chip chip)
{
    switch (chip) {
        FLEET_TOPOLOGY_LIST(FLEETI_TOPOLOGY_CASE)
    case FLEET_CHIP_COUNT:
        break;
    }
    return fleeti_topology("unknown", 0, 0, 1, 0, 0, 0, 0);
}

fleet_topology fleet_topology_make(uint32_t chiplets, uint32_t units)
{
    fleet_topology t = fleet_topology_preset(FLEET_MI300X);
    snprintf(t.name, sizeof t.name, "custom");
    t.chiplets = chiplets;
    for (uint32_t k = 0; k < FLEET_MAX_CHIPLETS; k++) t.units[k] = k < chiplets ? units : 0;
    return t;
}

/* ---- extents and shapes ---- */

fleet_dim fleet_dim_of(int64_t n)
{
    fleet_dim d;
    memset(&d, 0, sizeof d);
    d.add = n;
    d.div = 1;
    return d;
}

/* div = 0 marks an extent that does not exist, which the call that is given it reports. It is not all zero, because
   an all-zero limit means that there is no limit. */
static fleet_dim fleeti_dim_invalid(void)
{
    fleet_dim d = fleet_dim_of(0);
    d.div = 0;
    d.symbol = FLEETI_NONE;
    return d;
}

/* 1 + the last axis on which an extent depends; 0: on none. */
static uint32_t fleeti_dim_axes(const fleet_dim *d)
{
    uint32_t axes = FLEET_MAX_RANK;
    while (axes && !d->per[axes - 1]) axes--;
    return axes;
}

/* The symbol that an extent is, without arithmetic; 0: it is none. */
static uint32_t fleeti_plain_symbol(fleet_dim d)
{
    return d.mul == 1 && d.add == 0 && d.div == 1 && !fleeti_dim_axes(&d) ? d.symbol : 0;
}

static fleet_dim fleeti_dim_checked(fleet_dim d)
{
    for (uint32_t k = 0; k < FLEET_MAX_RANK; k++)
        if (fleeti_is_huge(d.per[k])) return fleeti_dim_invalid();
    if (d.div <= 0 || fleeti_is_huge(d.add) || fleeti_is_huge(d.mul) || fleeti_is_huge(d.div))
        return fleeti_dim_invalid();
    return d;
}

fleet_dim fleet_dim_times(fleet_dim d, int64_t k)
{
    if (d.div != 1) return fleeti_dim_invalid();
    d.add = fleeti_mul(d.add, k);
    d.mul = fleeti_mul(d.mul, k);
    for (uint32_t j = 0; j < FLEET_MAX_RANK; j++) d.per[j] = fleeti_mul(d.per[j], k);
    return fleeti_dim_checked(d);
}

fleet_dim fleet_dim_plus(fleet_dim d, int64_t k)
{
    if (d.div <= 0) return fleeti_dim_invalid();
    d.add = fleeti_add(d.add, fleeti_mul(k, d.div));
    return fleeti_dim_checked(d);
}

fleet_dim fleet_dim_plus_axis(fleet_dim d, uint32_t axis, int64_t k)
{
    if (d.div <= 0 || axis >= FLEET_MAX_RANK) return fleeti_dim_invalid();
    d.per[axis] = fleeti_add(d.per[axis], fleeti_mul(k, d.div));
    return fleeti_dim_checked(d);
}

/* ceil(floor(x / div) / k) = floor((x + (k - 1) div) / (k div)) */
fleet_dim fleet_dim_ceil_div(fleet_dim d, int64_t k)
{
    if (d.div <= 0 || k <= 0) return fleeti_dim_invalid();
    d.add = fleeti_add(d.add, fleeti_mul(k - 1, d.div));
    d.div = fleeti_mul(d.div, k);
    if (!d.symbol && !fleeti_dim_axes(&d) && !fleeti_is_huge(d.div))
        return fleet_dim_of(fleeti_floor_div(d.add, d.div));
    return fleeti_dim_checked(d);
}

fleet_shape fleet_shape0(void)
{
    fleet_shape s;
    memset(&s, 0, sizeof s);
    return s;
}

/* One axis too many leaves a rank that every call rejects. */
fleet_shape fleet_shape_append(fleet_shape s, fleet_dim a)
{
    if (s.rank < FLEET_MAX_RANK) s.extent[s.rank] = a;
    if (s.rank <= FLEET_MAX_RANK) s.rank++;
    return s;
}

fleet_shape fleet_shape1(fleet_dim a)
{
    return fleet_shape_append(fleet_shape0(), a);
}

fleet_shape fleet_shape2(fleet_dim a, fleet_dim b)
{
    return fleet_shape_append(fleet_shape1(a), b);
}

fleet_shape fleet_shape3(fleet_dim a, fleet_dim b, fleet_dim c)
{
    return fleet_shape_append(fleet_shape2(a, b), c);
}

fleet_shape fleet_shape4(fleet_dim a, fleet_dim b, fleet_dim c, fleet_dim d)
{
    return fleet_shape_append(fleet_shape3(a, b, c), d);
}

fleet_shape fleet_shape_and_of(fleet_shape s, int64_t a)
{
    return fleet_shape_append(s, fleet_dim_of(a));
}

fleet_shape fleet_shape1_of(int64_t a)
{
    return fleet_shape_and_of(fleet_shape0(), a);
}

fleet_shape fleet_shape2_of(int64_t a, int64_t b)
{
    return fleet_shape_and_of(fleet_shape1_of(a), b);
}

fleet_shape fleet_shape3_of(int64_t a, int64_t b, int64_t c)
{
    return fleet_shape_and_of(fleet_shape2_of(a, b), c);
}

fleet_shape fleet_shape4_of(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return fleet_shape_and_of(fleet_shape3_of(a, b, c), d);
}

/* ---- keys ---- */

fleet_key fleet_key_of(int64_t constant)
{
    fleet_key key;
    memset(&key, 0, sizeof key);
    key.constant = constant;
    return key;
}

/* A task axis past FLEET_MAX_RANK leaves a key that fleet_grid_order rejects. */
fleet_key fleet_key_plus(fleet_key key, uint32_t task_axis, int64_t weight)
{
    if (task_axis < FLEET_MAX_RANK)
        key.weight[task_axis] = fleeti_add(key.weight[task_axis], weight);
    else
        key.constant = FLEETI_HUGE;
    return key;
}

/* The key of the task at a coordinate of FLEET_MAX_RANK axes. */
static int64_t fleeti_key_at(const fleet_key *key, const int32_t *at)
{
    int64_t v = key->constant;
    for (uint32_t k = 0; k < FLEET_MAX_RANK; k++)
        v = fleeti_add(v, fleeti_mul(key->weight[k], at[k]));
    return v;
}

/* ---- coordinate maps by hand ---- */

/* A task axis past FLEET_MAX_RANK leaves a map without width, which every call rejects. */
fleet_axis_map fleet_axis(uint32_t task_axis, int64_t stride, int64_t offset, int64_t div)
{
    fleet_axis_map a;
    memset(&a, 0, sizeof a);
    if (task_axis < FLEET_MAX_RANK) a.stride[task_axis] = stride;
    a.offset = offset;
    a.div = div;
    a.width = task_axis < FLEET_MAX_RANK;
    return a;
}

fleet_axis_map fleet_axis_retile(uint32_t task_axis, int64_t from, int64_t to, fleet_dim limit)
{
    fleet_axis_map a = fleet_axis(task_axis, from, 0, to);
    if (a.width) a.width = from;
    a.limit = limit;
    return a;
}

fleet_axis_map fleet_axis_clipped(uint32_t task_axis, int64_t stride, int64_t offset, int64_t div,
                                  fleet_dim lo, fleet_dim hi)
{
    fleet_axis_map a = fleet_axis(task_axis, stride, offset, div);
    a.clipped = 1;
    a.lower = lo;
    a.limit = hi;
    return a;
}

fleet_axis_map fleet_axis_periodic(uint32_t task_axis, int64_t stride, int64_t offset, int64_t div,
                                   fleet_dim modulo)
{
    fleet_axis_map a = fleet_axis(task_axis, stride, offset, div);
    a.modulo = modulo;
    return a;
}

fleet_axis_map fleet_axis_xor(uint32_t task_axis, int64_t mask)
{
    fleet_axis_map a = fleet_axis(task_axis, 1, 0, 1);
    a.flip = mask;
    return a;
}

fleet_axis_map fleet_axis_butterfly(uint32_t task_axis, uint32_t stage_axis, int32_t shift)
{
    fleet_axis_map a = fleet_axis_xor(task_axis, 1);
    if (stage_axis >= FLEET_MAX_RANK) a.width = 0;
    a.flip_axis = stage_axis + 1;
    a.flip_shift = shift;
    return a;
}

fleet_axis_map fleet_axis_all(void)
{
    fleet_axis_map a = fleet_axis(0, 0, 0, 1);
    a.every = 1;
    return a;
}

fleet_map fleet_map0(void)
{
    fleet_map m;
    memset(&m, 0, sizeof m);
    return m;
}

fleet_map fleet_map_append(fleet_map m, fleet_axis_map a)
{
    if (m.rank < FLEET_MAX_RANK) m.axis[m.rank] = a;
    if (m.rank <= FLEET_MAX_RANK) m.rank++;
    return m;
}

fleet_map fleet_map1(fleet_axis_map a)
{
    return fleet_map_append(fleet_map0(), a);
}

fleet_map fleet_map2(fleet_axis_map a, fleet_axis_map b)
{
    return fleet_map_append(fleet_map1(a), b);
}

fleet_map fleet_map3(fleet_axis_map a, fleet_axis_map b, fleet_axis_map c)
{
    return fleet_map_append(fleet_map2(a, b), c);
}

/* ==== >>graph: the calls that build a graph ==== */

typedef struct fleeti_symbol_def {
    char name[FLEETI_NAME_BYTES];
    int64_t min, max;
    uint32_t writer; /* 1 + the grid whose task sets it for the next step; 0: none */
} fleeti_symbol_def;

typedef struct fleeti_event_def {
    char name[FLEETI_NAME_BYTES];
    const char *site;
    fleet_shape shape;
    int64_t count;
    uint32_t scope_given; /* 1: scope is given */
    fleet_scope scope;
    uint32_t outside, outside_notifies;
    fleet_scope outside_scope;
    uint32_t by_tensor; /* 1: run-time maps notify it or wait for it */
    uint32_t counts;    /* 1 + the tensor of its wait counts; 0: none */
} fleeti_event_def;

typedef struct fleeti_tensor_def {
    char name[FLEETI_NAME_BYTES];
    const char *site;
    fleet_shape shape;
    uint32_t writer;     /* grid, from 0 */
    uint32_t none_given; /* 1: none is given */
    int32_t none;
} fleeti_tensor_def;

typedef struct fleeti_grid_def {
    char name[FLEETI_NAME_BYTES];
    const char *site;
    fleet_shape shape;
    uint32_t tile, args;
    fleet_level level;
    uint32_t slices_given; /* 1: slices is given */
    fleet_dim slices;
    uint32_t tiles_given; /* 1: tiles is given */
    fleet_dim tiles;
    uint32_t placed; /* 1: place is given */
    fleet_map place;
    uint32_t ranked; /* 1: ranks is given */
    fleet_axis_map ranks;
    uint32_t scheduled; /* 1: schedule is given */
    fleet_schedule schedule;
    uint32_t keyed; /* 1: key is given */
    fleet_key key;
    uint32_t timed; /* 1: the next three are given */
    uint32_t variation_percent, expected;
    uint64_t mean_ns;
    uint32_t declares; /* 1: it declares what it reads or writes */
    /* a bit for each symbol that its task sets: for the next step, for the rest of the step */
    uint32_t writes, cuts;
} fleeti_grid_def;

typedef struct fleeti_edge_def {
    const char *site;
    uint32_t grid, event; /* from 0 */
    uint32_t out;         /* 1: notifies, 0: waits */
    uint32_t tensor;      /* 1 + the run-time tensor of a gather or range edge; 0: the map counts */
    fleet_map map;
} fleeti_edge_def;

typedef struct fleeti_use_def {
    uint32_t grid, buffer; /* from 0 */
    uint32_t writes;
} fleeti_use_def;

typedef struct fleeti_name {
    char *key; /* the first letter of the kind, then the name */
    uint32_t value;
} fleeti_name;

struct fleet_graph {
    fleet_graph_desc desc;
    fleet_status status;       /* of the building calls; the first error stays */
    fleet_status build_status; /* of the last fleet_plan_build */
    char message[512];
    fleeti_name *names; /* an stb_ds string map; the others are stb_ds arrays */
    fleeti_symbol_def *symbols;
    fleeti_event_def *events;
    fleeti_grid_def *grids;
    fleeti_edge_def *edges;
    fleeti_use_def *uses;
    fleeti_tensor_def *tensors;
    uint32_t n_buffers;
};

static void fleeti_set_message(fleet_graph *g, fleet_status status, const char *site,
                               const char *format, va_list list)
{
    fleeti_text out = fleeti_text_at(g->message, sizeof g->message);
    if (site) fleeti_put(&out, "%s: ", site);
    fleeti_put_list(&out, format, list);
    if (g->desc.log) g->desc.log(g->desc.log_user, status, g->message);
}

/* Records the first error of the building calls. */
static void fleeti_fail(fleet_graph *g, fleet_status status, const char *site, const char *format,
                        ...)
{
    va_list list;
    if (g->status != FLEET_OK) return;
    g->status = status;
    va_start(list, format);
    fleeti_set_message(g, status, site, format, list);
    va_end(list);
}

/* Fails the graph if `bytes` cannot be allocated. Called before an stb_ds container grows, because stb_ds does not
   report failed allocations. */
static int fleeti_check_room(fleet_graph *g, size_t bytes)
{
    void *room = FLEET_MALLOC(bytes);
    if (!room) {
        fleeti_fail(g, FLEET_ERROR_MEMORY, NULL, "no memory for the graph");
        return 0;
    }
    FLEET_FREE(room);
    return 1;
}

/* The same for one more entry of the map of names. */
static int fleeti_check_room_for_name(fleet_graph *g)
{
    return fleeti_check_room(g, 1024 + 8 * stbds_shlenu(g->names) * sizeof *g->names);
}

/* Appends to an array of the graph; 0 if there is no memory. Evaluates `array` several times. */
#define FLEETI_PUSH(g, array, value)                                                               \
    (stbds_arrlenu(array) < stbds_arrcap(array) ||                                                 \
             fleeti_check_room(g, 64 + 2 * (stbds_arrlenu(array) + 4) * sizeof *(array))           \
         ? (stbds_arrput(array, value), 1)                                                         \
         : 0)

fleet_graph_desc fleet_graph_desc_default(void)
{
    fleet_graph_desc desc;
    memset(&desc, 0, sizeof desc);
    return desc;
}

fleet_graph *fleet_graph_create(const fleet_graph_desc *desc)
{
    fleet_graph *g = (fleet_graph *)FLEET_MALLOC(sizeof *g);
    if (!g) return NULL;
    memset(g, 0, sizeof *g);
    if (desc) g->desc = *desc;
    stbds_sh_new_arena(g->names);
    return g;
}

void fleet_graph_destroy(fleet_graph *g)
{
    if (!g) return;
    stbds_shfree(g->names);
    stbds_arrfree(g->symbols);
    stbds_arrfree(g->events);
    stbds_arrfree(g->grids);
    stbds_arrfree(g->edges);
    stbds_arrfree(g->tensors);
    stbds_arrfree(g->uses);
    FLEET_FREE(g);
}

const char *fleet_graph_error(const fleet_graph *g)
{
    if (!g) return fleet_status_text(FLEET_ERROR_NULL);
    return fleet_graph_status(g) == FLEET_OK ? "" : g->message;
}

fleet_status fleet_graph_status(const fleet_graph *g)
{
    if (!g) return FLEET_ERROR_NULL;
    return g->status != FLEET_OK ? g->status : g->build_status;
}

/* Whether a building call may do its work: there is a graph, and it has no error yet. */
static int fleeti_can_build(const fleet_graph *g)
{
    return g && g->status == FLEET_OK;
}

static uint32_t fleeti_u32(size_t n)
{
    return (uint32_t)n;
}

#define FLEETI_LEN(array) fleeti_u32(stbds_arrlenu(array))

/* A tag that distinguishes an object of this graph from an object of another graph with the same number. It depends
   on the graph's address and the object's name, because a later graph may have the same address. */
static uint64_t fleeti_graph_tag(const fleet_graph *g, const char *name)
{
    uint64_t mark = (uint64_t)(uintptr_t)g * 0x9e3779b97f4a7c15ull;
    for (; *name; name++) mark = (mark ^ (unsigned char)*name) * 0x100000001b3ull;
    return mark ^ mark >> 32;
}

static uint64_t fleeti_handle(const fleet_graph *g, const char *name, uint32_t number)
{
    return fleeti_graph_tag(g, name) << 32 | number;
}

static uint32_t fleeti_number(uint64_t handle)
{
    return (uint32_t)handle;
}

#define FLEETI_SYMBOL_BITS 8u /* low bits of fleet_dim.symbol, which hold the number */

static uint32_t fleeti_symbol_handle(const fleet_graph *g, uint32_t number)
{
    return (uint32_t)fleeti_graph_tag(g, g->symbols[number - 1].name) << FLEETI_SYMBOL_BITS |
           number;
}

/* The number of a symbol of this graph, from 1; 0 if it is none. */
static uint32_t fleeti_symbol_number(const fleet_graph *g, uint32_t symbol)
{
    const uint32_t number = symbol & ((1u << FLEETI_SYMBOL_BITS) - 1u);
    return number - 1u < FLEETI_LEN(g->symbols) && fleeti_symbol_handle(g, number) == symbol
               ? number
               : 0;
}

#define FLEETI_AFTER " after " /* in the names of the event tensors that fleet_after adds */

/* Claims a name within its kind; 0 and an error if it is invalid or taken. */
static int fleeti_claim_name(fleet_graph *g, const char *kind, const char *name, uint32_t id,
                             const char *site)
{
    char key[FLEETI_NAME_BYTES + 1];
    size_t length = 0;
    if (!name) {
        fleeti_fail(g, FLEET_ERROR_NULL, site, "%s: the name is null", kind);
        return 0;
    }
    while (length < FLEETI_NAME_BYTES && name[length]) length++;
    if (!length || length >= FLEETI_NAME_BYTES) {
        fleeti_fail(g, FLEET_ERROR_NAME, site, "%s \"%.70s\": a name has 1 to %d bytes", kind, name,
                    FLEETI_NAME_BYTES - 1);
        return 0;
    }
    key[0] = kind[0];
    memcpy(key + 1, name, length + 1);
    if (kind[0] == 'e' && strcmp(name, "step") == 0) {
        fleeti_fail(g, FLEET_ERROR_NAME, site,
                    "event tensor step: the name belongs to the implicit step event");
        return 0;
    }
    if (kind[0] == 'e' && strstr(name, FLEETI_AFTER)) {
        fleeti_fail(g, FLEET_ERROR_NAME, site,
                    "event tensor %s: names that contain \"%s\" belong to fleet_after: choose "
                    "another one",
                    name, FLEETI_AFTER);
        return 0;
    }
    if (stbds_shgeti(g->names, key) >= 0) {
        fleeti_fail(g, FLEET_ERROR_NAME, site, "%s %s: the name is taken", kind, name);
        return 0;
    }
    if (!fleeti_check_room_for_name(g)) return 0;
    stbds_shput(g->names, key, id);
    return 1;
}

fleet_dim fleet_symbol(fleet_graph *g, const char *name, int64_t min, int64_t max)
{
    fleeti_symbol_def def;
    fleet_dim d = fleet_dim_of(0);
    if (!fleeti_can_build(g)) return d;
    if (!fleeti_claim_name(g, "symbol", name, FLEETI_LEN(g->symbols), NULL)) return d;
    if (FLEETI_LEN(g->symbols) >= FLEET_MAX_SYMBOLS) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, NULL, "symbol %s: a graph has at most %d symbols",
                    name, FLEET_MAX_SYMBOLS);
        return d;
    }
    if (min < 0 || min > max || fleeti_is_huge(max)) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, NULL,
                    "symbol %s: bounds [%lld, %lld] must be 0 <= min <= max", name, (long long)min,
                    (long long)max);
        return d;
    }
    memset(&def, 0, sizeof def);
    memcpy(def.name, name, strlen(name));
    def.min = min;
    def.max = max;
    if (!FLEETI_PUSH(g, g->symbols, def)) return d;
    d.mul = 1;
    d.symbol = fleeti_symbol_handle(g, FLEETI_LEN(g->symbols));
    return d;
}

/* Checks that an extent can be evaluated: it has a divisor, it depends on the first `axes` axes
   only, and its symbol is one of this graph. Replaces the symbol by its number. */
static int fleeti_check_dim(fleet_graph *g, fleet_dim *d, uint32_t axes, const char *owner,
                            const char *field, const char *site)
{
    const uint32_t symbol = fleeti_symbol_number(g, d->symbol);
    if (d->div <= 0) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, site,
                    "%s: %s is not a valid extent: fleet_dim_times needs one without division, "
                    "fleet_dim_ceil_div a divisor over 0, and numbers must not overflow",
                    owner, field);
        return 0;
    }
    if (fleeti_dim_axes(d) > axes) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, site,
                    "%s: %s depends on axis %u: only the extents of grids and event tensors may, "
                    "on axes before their own",
                    owner, field, fleeti_dim_axes(d) - 1u);
        return 0;
    }
    if (d->symbol && !symbol) {
        fleeti_fail(g, FLEET_ERROR_HANDLE, site, "%s: %s has a symbol of another graph", owner,
                    field);
        return 0;
    }
    d->symbol = symbol;
    return 1;
}

/* depends: 1 if extents may depend on the axes before them. */
static int fleeti_check_shape(fleet_graph *g, fleet_shape *shape, uint32_t depends,
                              const char *owner, const char *site)
{
    char field[32];
    if (shape->rank > FLEET_MAX_RANK) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, site, "%s: a shape has at most %d axes", owner,
                    FLEET_MAX_RANK);
        return 0;
    }
    for (uint32_t k = 0; k < shape->rank; k++) {
        snprintf(field, sizeof field, "extent %u", k);
        if (!fleeti_check_dim(g, &shape->extent[k], depends ? k : 0, owner, field, site)) return 0;
    }
    return 1;
}

fleet_etensor fleeti_event_tensor(fleet_graph *g, const char *name, fleet_shape shape,
                                  int64_t count, const char *site)
{
    fleet_etensor handle;
    fleeti_event_def def;
    char owner[96];
    handle.id = 0;
    if (!fleeti_can_build(g)) return handle;
    if (!fleeti_claim_name(g, "event tensor", name, FLEETI_LEN(g->events), site)) return handle;
    snprintf(owner, sizeof owner, "event tensor %s", name);
    if (!fleeti_check_shape(g, &shape, 1, owner, site)) return handle;
    if (count < 0 || count > FLEETI_MAX_INDEX) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, site, "%s: count is %lld, not in 0..2^31-1", owner,
                    (long long)count);
        return handle;
    }
    memset(&def, 0, sizeof def);
    memcpy(def.name, name, strlen(name));
    def.site = site;
    def.shape = shape;
    def.count = count;
    if (FLEETI_PUSH(g, g->events, def)) handle.id = fleeti_handle(g, name, FLEETI_LEN(g->events));
    return handle;
}

fleet_grid fleeti_call_device(fleet_graph *g, const char *name, uint32_t tile, fleet_shape shape,
                              uint32_t args, const char *site)
{
    fleet_grid handle;
    fleeti_grid_def def;
    char owner[96];
    handle.id = 0;
    if (!fleeti_can_build(g)) return handle;
    if (!fleeti_claim_name(g, "grid", name, FLEETI_LEN(g->grids), site)) return handle;
    snprintf(owner, sizeof owner, "grid %s", name);
    if (!fleeti_check_shape(g, &shape, 1, owner, site)) return handle;
    if (tile == FLEETI_TILE_NONE) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, site, "%s: tile 0xffffffff is reserved", owner);
        return handle;
    }
    memset(&def, 0, sizeof def);
    memcpy(def.name, name, strlen(name));
    def.site = site;
    def.shape = shape;
    def.tile = tile;
    def.args = args;
    def.level = FLEET_LEVEL_CU;
    if (FLEETI_PUSH(g, g->grids, def)) handle.id = fleeti_handle(g, name, FLEETI_LEN(g->grids));
    return handle;
}

/* Reports a handle that is not one of this graph. own: the object of this graph that has its number, or null. */
static void fleeti_fail_handle(fleet_graph *g, const char *kind, uint64_t handle, const char *own,
                               const char *site)
{
    if (own)
        fleeti_fail(g, FLEET_ERROR_HANDLE, site,
                    "%s handle %u is of another graph: %s is number %u of this one", kind,
                    fleeti_number(handle), own, fleeti_number(handle));
    else
        fleeti_fail(g, FLEET_ERROR_HANDLE, site, "%s handle %u is not of this graph", kind,
                    fleeti_number(handle));
}

/* The object that a handle names; null and an error if it is not one of this graph. */
static fleeti_grid_def *fleeti_grid_of(fleet_graph *g, fleet_grid grid, const char *site)
{
    const uint32_t i = fleeti_number(grid.id) - 1u;
    if (!fleeti_can_build(g)) return NULL;
    if (i < FLEETI_LEN(g->grids) && fleeti_handle(g, g->grids[i].name, i + 1u) == grid.id)
        return &g->grids[i];
    fleeti_fail_handle(g, "grid", grid.id, i < FLEETI_LEN(g->grids) ? g->grids[i].name : NULL,
                       site);
    return NULL;
}

static fleeti_event_def *fleeti_event_of(fleet_graph *g, fleet_etensor event, const char *site)
{
    const uint32_t i = fleeti_number(event.id) - 1u;
    if (!fleeti_can_build(g)) return NULL;
    if (i < FLEETI_LEN(g->events) && fleeti_handle(g, g->events[i].name, i + 1u) == event.id)
        return &g->events[i];
    fleeti_fail_handle(g, "event tensor", event.id,
                       i < FLEETI_LEN(g->events) ? g->events[i].name : NULL, site);
    return NULL;
}

void fleeti_grid_level(fleet_graph *g, fleet_grid grid, fleet_level level, const char *site)
{
    fleeti_grid_def *def = fleeti_grid_of(g, grid, site);
    if (!def) return;
    if ((unsigned)level > FLEET_LEVEL_DEVICE) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, site, "grid %s: level %u does not exist", def->name,
                    (unsigned)level);
        return;
    }
    def->level = level;
}

void fleeti_grid_schedule(fleet_graph *g, fleet_grid grid, fleet_schedule schedule,
                          const char *site)
{
    fleeti_grid_def *def = fleeti_grid_of(g, grid, site);
    if (!def) return;
    if ((unsigned)schedule > FLEET_SCHEDULE_AUTO || schedule == FLEET_SCHEDULE_CHIPLET) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, site,
                    "grid %s: schedule is %u, but that of a grid must be STATIC, DYNAMIC or AUTO",
                    def->name, (unsigned)schedule);
        return;
    }
    def->scheduled = 1;
    def->schedule = schedule;
}

void fleeti_grid_order(fleet_graph *g, fleet_grid grid, fleet_key key, const char *site)
{
    fleeti_grid_def *def = fleeti_grid_of(g, grid, site);
    if (!def) return;
    if (fleeti_is_huge(key.constant)) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, site,
                    "order of grid %s: the constant of the key is over 2^61, or the key names a "
                    "task axis past FLEET_MAX_RANK",
                    def->name);
        return;
    }
    for (uint32_t k = def->shape.rank; k < FLEET_MAX_RANK; k++)
        if (key.weight[k]) {
            fleeti_fail(g, FLEET_ERROR_ARGUMENT, site,
                        "order of grid %s: the key names task axis %u, but the grid has %u axes",
                        def->name, k, def->shape.rank);
            return;
        }
    def->keyed = 1;
    def->key = key;
}

void fleeti_grid_cost(fleet_graph *g, fleet_grid grid, uint64_t mean_ns, uint32_t variation_percent,
                      uint32_t tasks, const char *site)
{
    fleeti_grid_def *def = fleeti_grid_of(g, grid, site);
    if (!def) return;
    def->timed = 1;
    def->mean_ns = mean_ns;
    def->variation_percent = variation_percent;
    def->expected = tasks;
}

void fleeti_grid_slices(fleet_graph *g, fleet_grid grid, fleet_dim slices, const char *site)
{
    fleeti_grid_def *def = fleeti_grid_of(g, grid, site);
    char owner[96];
    if (!def) return;
    snprintf(owner, sizeof owner, "grid %s", def->name);
    if (!fleeti_check_dim(g, &slices, 0, owner, "slices", site)) return;
    def->slices_given = 1;
    def->slices = slices;
}

void fleeti_grid_tiles(fleet_graph *g, fleet_grid grid, fleet_dim tiles, const char *site)
{
    fleeti_grid_def *def = fleeti_grid_of(g, grid, site);
    char owner[96];
    if (!def) return;
    snprintf(owner, sizeof owner, "grid %s", def->name);
    if (!fleeti_check_dim(g, &tiles, 0, owner, "tiles", site)) return;
    def->tiles_given = 1;
    def->tiles = tiles;
}

static int fleeti_is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* A letter of an einsum string, with what brackets add to it. */
typedef struct fleeti_term {
    char letter, op; /* op: '+', '-', '^'; 0: none */
    int64_t by;
} fleeti_term;

/* Reads the terms up to the arrow or the end. Returns their number, or -1 at any other character.
   */
static int fleeti_terms(const char **at, fleeti_term *terms, int max, int brackets)
{
    int n = 0;
    for (; **at && **at != '-'; ++*at) {
        fleeti_term term = {0, 0, 0};
        if (**at == ' ') continue;
        const int opened = brackets && **at == '[';
        *at += opened;
        if (!fleeti_is_letter(**at)) return -1;
        term.letter = **at;
        if (opened) {
            term.op = *++*at;
            if (!term.op || !strchr("+-^", term.op)) return -1;
            int digits = 0;
            for (++*at; **at >= '0' && **at <= '9' && digits < 9; ++*at, digits++)
                term.by = 10 * term.by + (**at - '0');
            if (!digits || **at != ']') return -1;
        }
        if (n < max) terms[n] = term;
        n++;
    }
    return n;
}

/* Parses an einsum string into an affine map. Null on success, otherwise what is wrong with it. */
static const char *fleeti_parse_einsum(const char *einsum, uint32_t grid_rank,
                                       const fleet_shape *event, fleet_map *map)
{
    fleeti_term left[FLEET_MAX_RANK], right[FLEET_MAX_RANK];
    const char *at = einsum;
    const uint32_t event_rank = event->rank;
    uint32_t k;
    int n_left = fleeti_terms(&at, left, FLEET_MAX_RANK, 0);
    if (n_left < 0) return "it may hold only letters, spaces and ->";
    if (at[0] != '-' || at[1] != '>') return "it has no ->";
    at += 2;
    int n_right = fleeti_terms(&at, right, FLEET_MAX_RANK, 1);
    if (n_right < 0 || *at)
        return "it may hold only letters, spaces and one ->, and terms as [i+1], [i-1], [i^4] "
               "after it";
    if ((uint32_t)n_left != grid_rank) return "the left side needs one letter per axis of the grid";
    if ((uint32_t)n_right != event_rank)
        return "the right side needs one letter per axis of the event tensor";
    for (k = 0; k < grid_rank; k++)
        for (uint32_t j = 0; j < k; j++)
            if (left[j].letter == left[k].letter) return "a letter is twice on the left";
    *map = fleet_map0();
    for (uint32_t j = 0; j < event_rank; j++) {
        const fleeti_term *term = &right[j];
        for (k = 0; k < grid_rank && left[k].letter != term->letter; k++) {
        }
        if (term->op && k == grid_rank) return "a letter in brackets is not on the left";
        if (strchr("+-", term->op) && term->op && fleeti_dim_axes(&event->extent[j]))
            return "[i+1] and [i-1] are modulo the extent of their axis, which depends on another "
                   "axis: use fleet_axis_clipped";
        if (term->op == '^')
            *map = fleet_map_append(*map, fleet_axis_xor(k, term->by));
        else if (term->op)
            *map = fleet_map_append(
                *map, fleet_axis_periodic(k, 1, term->op == '-' ? -term->by : term->by, 1,
                                          event->extent[j]));
        else
            *map =
                fleet_map_append(*map, k < grid_rank ? fleet_axis(k, 1, 0, 1) : fleet_axis_all());
    }
    return NULL;
}

/* Checks what can be checked of a map while no extent is known. */
static int fleeti_check_map(fleet_graph *g, fleet_map *map, uint32_t grid_rank, const char *owner,
                            const char *site)
{
    char field[40];
    for (uint32_t j = 0; j < map->rank; j++) {
        fleet_axis_map *a = &map->axis[j];
        if (a->every) continue;
        for (uint32_t k = grid_rank; k < FLEET_MAX_RANK; k++) {
            if (a->stride[k]) {
                fleeti_fail(g, FLEET_ERROR_MAP, site,
                            "%s: axis %u of the map names task axis %u, but the grid has %u axes",
                            owner, j, k, grid_rank);
                return 0;
            }
        }
        if (a->width <= 0 || a->div <= 0) {
            fleeti_fail(g, FLEET_ERROR_MAP, site,
                        "%s: axis %u of the map has div %lld and width %lld, which must be over 0 "
                        "(width 0: it names a task axis past FLEET_MAX_RANK)",
                        owner, j, (long long)a->div, (long long)a->width);
            return 0;
        }
        const int wraps = a->modulo.add || a->modulo.symbol;
        if ((wraps || a->flip) && a->width != 1) {
            fleeti_fail(g, FLEET_ERROR_MAP, site,
                        "%s: axis %u of the map has width %lld, which must be 1 with a modulus or "
                        "flipped bits",
                        owner, j, (long long)a->width);
            return 0;
        }
        if (a->flip < 0 || a->flip > INT32_MAX || a->flip_axis > grid_rank) {
            fleeti_fail(g, FLEET_ERROR_MAP, site,
                        "%s: axis %u of the map flips the bits %lld by task axis %d: bits are 0 to "
                        "2^31-1, and the grid has %u axes",
                        owner, j, (long long)a->flip, (int)a->flip_axis - 1, grid_rank);
            return 0;
        }
        snprintf(field, sizeof field, "modulus of map axis %u", j);
        if (wraps && !fleeti_check_dim(g, &a->modulo, 0, owner, field, site)) return 0;
        snprintf(field, sizeof field, "lower limit of map axis %u", j);
        if (a->clipped && !fleeti_check_dim(g, &a->lower, 0, owner, field, site)) return 0;
        snprintf(field, sizeof field, "limit of map axis %u", j);
        if (!a->clipped && !a->limit.add && !a->limit.symbol) continue;
        if (!fleeti_check_dim(g, &a->limit, 0, owner, field, site)) return 0;
        if (!a->clipped && !a->limit.symbol && a->limit.add < 0) {
            fleeti_fail(g, FLEET_ERROR_ARGUMENT, site,
                        "%s: %s is %lld, but must be at least 0 (0: no limit)", owner, field,
                        (long long)a->limit.add);
            return 0;
        }
    }
    return 1;
}

/* Adds an edge by a map or, if that is null, by an einsum string. */
static void fleeti_add_edge(fleet_graph *g, fleet_grid grid, fleet_etensor event,
                            const fleet_map *map, const char *einsum, uint32_t out,
                            const char *site)
{
    const fleeti_grid_def *from = fleeti_grid_of(g, grid, site);
    const fleeti_event_def *to = fleeti_event_of(g, event, site);
    fleeti_edge_def def;
    char owner[192];
    if (!from || !to) return;
    snprintf(owner, sizeof owner, "%s edge of grid %s and event tensor %s", out ? "out" : "in",
             from->name, to->name);
    memset(&def, 0, sizeof def);
    def.site = site;
    def.grid = fleeti_number(grid.id) - 1u;
    def.event = fleeti_number(event.id) - 1u;
    def.out = out;
    if (map) {
        def.map = *map;
        if (map->rank != to->shape.rank) {
            fleeti_fail(g, FLEET_ERROR_MAP, site,
                        "%s: the map has %u axes, the event tensor has %u", owner, map->rank,
                        to->shape.rank);
            return;
        }
        if (!fleeti_check_map(g, &def.map, from->shape.rank, owner, site)) return;
    } else {
        if (!einsum) {
            fleeti_fail(g, FLEET_ERROR_NULL, site, "%s: the einsum string is null", owner);
            return;
        }
        const char *wrong = fleeti_parse_einsum(einsum, from->shape.rank, &to->shape, &def.map);
        if (wrong) {
            fleeti_fail(g, FLEET_ERROR_MAP, site,
                        "%s: \"%.40s\" (grid axes: %u, event axes: %u): %s", owner, einsum,
                        from->shape.rank, to->shape.rank, wrong);
            return;
        }
    }
    (void)FLEETI_PUSH(g, g->edges, def);
}

void fleeti_out_edge(fleet_graph *g, fleet_grid grid, fleet_etensor event, const char *einsum,
                     const char *site)
{
    fleeti_add_edge(g, grid, event, NULL, einsum, 1, site);
}

void fleeti_in_edge(fleet_graph *g, fleet_grid grid, fleet_etensor event, const char *einsum,
                    const char *site)
{
    fleeti_add_edge(g, grid, event, NULL, einsum, 0, site);
}

void fleeti_out_edge_map(fleet_graph *g, fleet_grid grid, fleet_etensor event, fleet_map map,
                         const char *site)
{
    fleeti_add_edge(g, grid, event, &map, NULL, 1, site);
}

void fleeti_in_edge_map(fleet_graph *g, fleet_grid grid, fleet_etensor event, fleet_map map,
                        const char *site)
{
    fleeti_add_edge(g, grid, event, &map, NULL, 0, site);
}

/* The key of a pair of grids in the map of names cannot be that of an object, because no kind begins with '>'. The
   name of the event tensor may be cut, in which case two may be alike: it is for reports only. */
void fleeti_after(fleet_graph *g, fleet_grid later, fleet_grid earlier, const char *site)
{
    const fleeti_grid_def *second = fleeti_grid_of(g, later, site);
    const fleeti_grid_def *first = fleeti_grid_of(g, earlier, site);
    const fleet_map map = fleet_map0();
    fleeti_event_def def;
    fleet_etensor event;
    char key[32];
    if (!second || !first) return;
    if (first == second) {
        fleeti_fail(g, FLEET_ERROR_CYCLE, site,
                    "fleet_after: grid %s cannot run after itself: name two grids", first->name);
        return;
    }
    snprintf(key, sizeof key, ">%u %u", fleeti_number(later.id), fleeti_number(earlier.id));
    if (stbds_shgeti(g->names, key) >= 0 || !fleeti_check_room_for_name(g)) return;
    stbds_shput(g->names, key, FLEETI_LEN(g->events));
    memset(&def, 0, sizeof def);
    fleeti_text name = fleeti_text_at(def.name, sizeof def.name);
    fleeti_put(&name, "%s%s%s", second->name, FLEETI_AFTER, first->name);
    def.site = site;
    if (!FLEETI_PUSH(g, g->events, def)) return;
    event.id = fleeti_handle(g, def.name, FLEETI_LEN(g->events));
    fleeti_add_edge(g, earlier, event, &map, NULL, 1, site);
    fleeti_add_edge(g, later, event, &map, NULL, 0, site);
}

fleet_tensor fleeti_runtime_tensor(fleet_graph *g, const char *name, fleet_shape shape,
                                   fleet_grid writer, const char *site)
{
    fleeti_tensor_def def;
    fleet_tensor handle;
    char owner[96];
    handle.id = 0;
    if (!fleeti_grid_of(g, writer, site)) return handle;
    if (!fleeti_claim_name(g, "run-time tensor", name, FLEETI_LEN(g->tensors), site)) return handle;
    if (FLEETI_LEN(g->tensors) >= FLEET_MAX_TENSORS) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, site,
                    "run-time tensor %s: a graph has at most %d of them", name, FLEET_MAX_TENSORS);
        return handle;
    }
    snprintf(owner, sizeof owner, "run-time tensor %.64s", name);
    if (!fleeti_check_shape(g, &shape, 0, owner, site)) return handle;
    memset(&def, 0, sizeof def);
    memcpy(def.name, name, strlen(name));
    def.site = site;
    def.shape = shape;
    def.writer = fleeti_number(writer.id) - 1u;
    if (FLEETI_PUSH(g, g->tensors, def)) handle.id = fleeti_handle(g, name, FLEETI_LEN(g->tensors));
    return handle;
}

static fleeti_tensor_def *fleeti_tensor_of(fleet_graph *g, fleet_tensor tensor, uint32_t rank,
                                           const char *owner, const char *site)
{
    const uint32_t i = fleeti_number(tensor.id) - 1u;
    if (!fleeti_can_build(g)) return NULL;
    fleeti_tensor_def *def = i < FLEETI_LEN(g->tensors) ? &g->tensors[i] : NULL;
    if (!def || fleeti_handle(g, def->name, i + 1u) != tensor.id) {
        char kind[160];
        snprintf(kind, sizeof kind, "%s: run-time tensor", owner);
        fleeti_fail_handle(g, kind, tensor.id, def ? def->name : NULL, site);
        return NULL;
    }
    if (def->shape.rank == rank) return def;
    fleeti_fail(g, FLEET_ERROR_MAP, site, "%s: run-time tensor %s has %u axes, not %u", owner,
                def->name, def->shape.rank, rank);
    return NULL;
}

void fleeti_tensor_none(fleet_graph *g, fleet_tensor topk, int32_t none, const char *site)
{
    fleeti_tensor_def *def = fleeti_tensor_of(g, topk, 2, "value for none", site);
    if (!def) return;
    def->none_given = 1;
    def->none = none;
}

/* The event tensor of a run-time map, which it marks as such; null and an error if it cannot have one. */
static fleeti_event_def *fleeti_event_by_tensor(fleet_graph *g, fleet_etensor event,
                                                const char *owner, const char *site)
{
    fleeti_event_def *def = fleeti_event_of(g, event, site);
    if (!def) return NULL;
    if (def->shape.rank == 1) {
        def->by_tensor = 1;
        return def;
    }
    fleeti_fail(g, FLEET_ERROR_MAP, site, "%s: event tensor %s has %u axes, not one", owner,
                def->name, def->shape.rank);
    return NULL;
}

static void fleeti_add_tensor_edge(fleet_graph *g, fleet_grid grid, fleet_etensor event,
                                   fleet_tensor tensor, uint32_t out, const char *site)
{
    const fleeti_grid_def *from = fleeti_grid_of(g, grid, site);
    fleeti_edge_def def;
    char owner[96];
    if (!from) return;
    snprintf(owner, sizeof owner, "%s edge of grid %s", out ? "gather" : "range", from->name);
    if (!fleeti_tensor_of(g, tensor, out ? 2 : 1, owner, site) ||
        !fleeti_event_by_tensor(g, event, owner, site))
        return;
    if (out ? from->shape.rank != 1 : from->shape.rank < 1) {
        fleeti_fail(g, FLEET_ERROR_MAP, site, "%s: the grid has %u axes, not %s", owner,
                    from->shape.rank, out ? "one" : "one or more");
        return;
    }
    memset(&def, 0, sizeof def);
    def.site = site;
    def.grid = fleeti_number(grid.id) - 1u;
    def.event = fleeti_number(event.id) - 1u;
    def.out = out;
    def.tensor = fleeti_number(tensor.id);
    (void)FLEETI_PUSH(g, g->edges, def);
}

void fleeti_out_edge_gather(fleet_graph *g, fleet_grid grid, fleet_etensor event, fleet_tensor topk,
                            const char *site)
{
    fleeti_add_tensor_edge(g, grid, event, topk, 1, site);
}

void fleeti_in_edge_range(fleet_graph *g, fleet_grid grid, fleet_etensor event, fleet_tensor indptr,
                          const char *site)
{
    fleeti_add_tensor_edge(g, grid, event, indptr, 0, site);
}

void fleeti_event_counts(fleet_graph *g, fleet_etensor event, fleet_tensor counts, const char *site)
{
    fleeti_event_def *def = fleeti_event_of(g, event, site);
    char owner[96];
    if (!def) return;
    snprintf(owner, sizeof owner, "counts of event tensor %s", def->name);
    if (!fleeti_tensor_of(g, counts, 1, owner, site) ||
        !fleeti_event_by_tensor(g, event, owner, site))
        return;
    if (def->counts) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, site, "%s: it has counts already", owner);
        return;
    }
    def->counts = fleeti_number(counts.id);
}

/* The symbol and the grid of a call that lets the grid's task set the symbol; null: the call is an error. */
static fleeti_grid_def *fleeti_setter_of(fleet_graph *g, fleet_dim symbol, fleet_grid grid,
                                         uint32_t *number, const char *site)
{
    fleeti_grid_def *def = fleeti_grid_of(g, grid, site);
    if (!def) return NULL;
    *number = fleeti_symbol_number(g, fleeti_plain_symbol(symbol));
    if (*number) return def;
    fleeti_fail(g, FLEET_ERROR_HANDLE, site,
                "grid %s sets a symbol: give the extent that fleet_symbol returned for this graph",
                def->name);
    return NULL;
}

void fleeti_symbol_writer(fleet_graph *g, fleet_dim symbol, fleet_grid writer, const char *site)
{
    uint32_t number = 0;
    fleeti_grid_def *def = fleeti_setter_of(g, symbol, writer, &number, site);
    if (!def) return;
    for (uint32_t i = 0; i < FLEETI_LEN(g->symbols); i++) {
        const uint32_t other = g->symbols[i].writer;
        if (!other || other == fleeti_number(writer.id)) continue;
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, site,
                    "symbol %s: its writer is grid %s, but that of symbol %s is grid %s: one task "
                    "sets all symbols",
                    g->symbols[number - 1u].name, def->name, g->symbols[i].name,
                    g->grids[other - 1u].name);
        return;
    }
    g->symbols[number - 1u].writer = fleeti_number(writer.id);
    def->writes |= 1u << (number - 1u);
}

void fleeti_symbol_cutter(fleet_graph *g, fleet_dim symbol, fleet_grid cutter, const char *site)
{
    uint32_t number = 0;
    fleeti_grid_def *def = fleeti_setter_of(g, symbol, cutter, &number, site);
    if (def) def->cuts |= 1u << (number - 1u);
}

void fleeti_grid_place(fleet_graph *g, fleet_grid grid, fleet_map map, const char *site)
{
    fleeti_grid_def *def = fleeti_grid_of(g, grid, site);
    char owner[96];
    if (!def) return;
    snprintf(owner, sizeof owner, "placement of grid %s", def->name);
    if (map.rank < 1 || map.rank > 2) {
        fleeti_fail(g, FLEET_ERROR_MAP, site,
                    "%s: the map has %u axes, not one (chiplet) or two (chiplet, worker)", owner,
                    map.rank);
        return;
    }
    if (!fleeti_check_map(g, &map, def->shape.rank, owner, site)) return;
    if (map.axis[0].every || (map.rank == 2 && map.axis[1].every)) {
        fleeti_fail(g, FLEET_ERROR_PLACEMENT, site,
                    "%s: a task has one place: use no fleet_axis_all", owner);
        return;
    }
    def->placed = 1;
    def->place = map;
}

void fleeti_grid_ranks(fleet_graph *g, fleet_grid grid, fleet_axis_map map, const char *site)
{
    fleeti_grid_def *def = fleeti_grid_of(g, grid, site);
    fleet_map axes = fleet_map1(map);
    char owner[96];
    if (!def) return;
    snprintf(owner, sizeof owner, "ranks of grid %s", def->name);
    if (!fleeti_check_map(g, &axes, def->shape.rank, owner, site)) return;
    if (map.every) {
        fleeti_fail(g, FLEET_ERROR_PLACEMENT, site,
                    "%s: a task has one rank: use no fleet_axis_all", owner);
        return;
    }
    def->ranked = 1;
    def->ranks = axes.axis[0];
}

void fleeti_event_scope(fleet_graph *g, fleet_etensor event, fleet_scope scope, const char *site)
{
    fleeti_event_def *def = fleeti_event_of(g, event, site);
    if (!def) return;
    if ((unsigned)scope > FLEET_SCOPE_SYSTEM) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, site, "event tensor %s: scope %u does not exist",
                    def->name, (unsigned)scope);
        return;
    }
    def->scope_given = 1;
    def->scope = scope;
}

void fleeti_event_external(fleet_graph *g, fleet_etensor event, uint32_t roles, uint32_t notifies,
                           fleet_scope scope, const char *site)
{
    fleeti_event_def *def = fleeti_event_of(g, event, site);
    if (!def) return;
    if (!roles || roles > (FLEET_EXTERNAL_NOTIFIES | FLEET_EXTERNAL_WAITS) ||
        (roles & FLEET_EXTERNAL_NOTIFIES ? !notifies || notifies > FLEETI_MAX_INDEX
                                         : notifies != 0)) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, site,
                    "event tensor %s: external roles %u with %u notifies, which must be over 0 "
                    "with FLEET_EXTERNAL_NOTIFIES and 0 without",
                    def->name, roles, notifies);
        return;
    }
    if (scope != FLEET_SCOPE_DEVICE && scope != FLEET_SCOPE_SYSTEM) {
        fleeti_fail(g, FLEET_ERROR_ARGUMENT, site,
                    "event tensor %s: the scope of an external event must be device or system",
                    def->name);
        return;
    }
    def->outside = roles;
    def->outside_notifies = notifies;
    def->outside_scope = scope;
}

fleet_buffer fleeti_buffer(fleet_graph *g, const char *name, const char *site)
{
    fleet_buffer handle;
    handle.id = 0;
    if (!fleeti_can_build(g)) return handle;
    if (!fleeti_claim_name(g, "buffer", name, g->n_buffers, site)) return handle;
    handle.id = fleeti_handle(g, "", ++g->n_buffers);
    return handle;
}

static void fleeti_add_use(fleet_graph *g, fleet_grid grid, fleet_buffer buffer, uint32_t writes,
                           const char *site)
{
    fleeti_grid_def *grid_def = fleeti_grid_of(g, grid, site);
    fleeti_use_def def;
    if (!grid_def) return;
    if (fleeti_number(buffer.id) - 1u >= g->n_buffers ||
        fleeti_handle(g, "", fleeti_number(buffer.id)) != buffer.id) {
        fleeti_fail(g, FLEET_ERROR_HANDLE, site, "grid %s: buffer handle %u is not of this graph",
                    grid_def->name, fleeti_number(buffer.id));
        return;
    }
    def.grid = fleeti_number(grid.id) - 1u;
    def.buffer = fleeti_number(buffer.id) - 1u;
    def.writes = writes;
    if (FLEETI_PUSH(g, g->uses, def)) grid_def->declares = 1;
}

void fleeti_grid_reads(fleet_graph *g, fleet_grid grid, fleet_buffer buffer, const char *site)
{
    fleeti_add_use(g, grid, buffer, 0, site);
}

void fleeti_grid_writes(fleet_graph *g, fleet_grid grid, fleet_buffer buffer, const char *site)
{
    fleeti_add_use(g, grid, buffer, 1, site);
}

/* ==== >>build: state of a build, buckets, running the passes ==== */

/* ---- state of a build ---- */

/* The elements that a task reaches through an edge: `runs` runs of `length` consecutive elements. Run r begins at
   first + the sum of step[k] * digit k of r, where digit k counts up to n[k]; or at list[r]. */
typedef struct fleeti_box {
    const uint32_t *list;
    uint32_t first, length, runs;
    uint32_t rank, n[FLEET_MAX_RANK], step[FLEET_MAX_RANK];
} fleeti_box;

/* An axis of a map as numbers. */
typedef struct fleeti_axis {
    int64_t stride[FLEET_MAX_RANK], offset, div, width, lower, limit;
    int64_t modulo, flip; /* 0: none */
    int64_t extent;       /* extent of the event tensor's axis */
    int64_t row;          /* elements between two adjacent values of the axis */
    uint32_t every, flip_axis;
    int32_t flip_shift;
} fleeti_axis;

typedef struct fleeti_edge {
    const fleeti_edge_def *def;
    uint32_t grid, event, rank;
    fleeti_axis axis[FLEET_MAX_RANK];
    /* Where extents of the event depend on axes: its elements, listed by task of the grid. */
    const struct fleeti_bound_grid *listed_by;
    uint32_t *list, *first_of;
    /* If every axis is "every" or a single unit, the boxes of all tasks differ only in their first element, which is
       affine in the coordinate: first + the sum of step[k] * c[k]. */
    uint32_t affine;
    int64_t first, step[FLEET_MAX_RANK];
    fleeti_box box;
} fleeti_edge;

typedef struct fleeti_bound_grid {
    const fleeti_grid_def *def;
    int32_t extent[FLEET_MAX_RANK]; /* the largest ones, where they depend on axes */
    uint32_t rank;
    fleeti_space space;
    uint32_t first, count; /* ids of its tasks */
    uint32_t slices;       /* of a device-task; otherwise 1 */
    uint32_t tiles;        /* unaware plans: tiles of each slice; 0: tasks have their own level */
    uint32_t parts;        /* parts of a task: slices; in unaware plans slices * tiles */
    uint32_t shards;       /* chiplets that run parts of a task; part p belongs to shard p mod X */
    uint32_t first_shard;  /* its first entry in shard_notifies, which has one per task and shard */
    uint32_t first_slot; /* its first entry in `slot`, which has one per task (unaware: per part) */
    uint32_t first_out, n_outs, first_in, n_ins; /* its edges in outs and ins */
    uint32_t first_map, n_maps;
    fleet_key key; /* if keys order the plan */
    fleet_schedule schedule;
    uint32_t chosen; /* FLEETI_CHOSEN_..., by AUTO from these estimates */
    double static_ns, dynamic_ns;
} fleeti_bound_grid;

typedef struct fleeti_bound_event {
    const fleeti_event_def *def;    /* null for the step event */
    int32_t extent[FLEET_MAX_RANK]; /* as of a grid */
    uint32_t rank;
    fleeti_space space;
    uint32_t first, elements;
    uint32_t counter;      /* word of element 0; FLEETI_SYSTEM: in host memory */
    uint32_t words;        /* the same on other ranks, with FLEETI_SYSTEM; 0: none */
    uint32_t stride;       /* words between elements */
    uint32_t may_be_empty; /* 1: a grid without tasks is among its producers */
    uint32_t by_tensor;    /* 1: run-time maps notify its elements, or wait for them */
    uint32_t uniform;      /* 1: its elements have one scope and target; only tasks notify them */
    uint32_t target;       /* of every element, if uniform */
    uint32_t scoped[4];
    uint32_t warnings;
} fleeti_bound_event;

#define FLEETI_WORKER_NONE 0xffffffffu
#define FLEETI_WORKER_MANY 0xfffffffeu

typedef struct fleeti_element {
    uint64_t notifies;      /* notifies by tasks and from outside */
    uint32_t producers;     /* a bit for each chiplet with a producer */
    uint32_t chiplets;      /* a bit for each chiplet with a producer or waiter */
    uint32_t any_chiplet;   /* 1: some producer or waiter may run on any chiplet */
    uint32_t worker;        /* the only worker of them all, or FLEETI_WORKER_... */
    uint32_t last_producer; /* largest id; FLEETI_NONE: there is none */
    uint32_t first_waiter;  /* smallest id; FLEETI_NONE: there is none */
    uint32_t target;        /* what all arrivals of a step add to its counter */
    uint32_t record;        /* its first arrivals entry; it has one per bit of `producers` */
    uint32_t scope;
} fleeti_element;

/* The arrivals of one chiplet at one element in a step. */
typedef struct fleeti_arrivals {
    uint64_t arrivals; /* each worker of a chiplet-task arrives */
    uint64_t units;    /* tasks, where a slice of a device-task is one */
    uint64_t roaming;  /* units whose tasks may run on other chiplets, or arrive separately */
} fleeti_arrivals;

/* Wait or notify records, of four words each, while they are collected. */
typedef struct fleeti_records {
    uint32_t (*item)[4];
    uint32_t count, room;
} fleeti_records;

typedef struct fleeti_span {
    uint32_t first, count;
} fleeti_span;

typedef struct fleeti_wait_span {
    uint32_t first;
    uint16_t count;
    uint8_t scope; /* the widest of its waits */
} fleeti_wait_span;

/* A block of the build's scratch memory. All blocks are freed together. */
typedef struct fleeti_scratch {
    struct fleeti_scratch *next;
    uint64_t pad;
} fleeti_scratch;

/* What a grid waits for. */
typedef struct fleeti_inputs {
    uint32_t any;     /* 1: some event */
    uint32_t named;   /* 1: an event that tells by a run-time tensor which of its tasks exist */
    uint32_t outside; /* 1: an event that is notified from outside */
} fleeti_inputs;

typedef struct fleeti_build {
    fleet_graph *g;
    const fleet_plan_desc *desc;
    fleet_plan *plan; /* null until it is emitted */
    fleeti_scratch *scratch;
    int64_t symbol[FLEET_MAX_SYMBOLS]; /* value in this bucket */
    const uint8_t *at_launch;          /* 1 per symbol that is bound at launch */
    uint32_t n_at_launch, n_buckets;
    uint32_t writes, cuts; /* a bit for each symbol that a task sets, as in fleeti_grid_def */
    /* Where the counters of this bucket begin: after those of the previous buckets, because steps of one bucket must
       not complete events of another. */
    uint32_t first_word, first_system_word;
    uint64_t work; /* so far: fleet_plan_desc.max_work */

    uint32_t ranks;
    uint32_t chiplets, n_grids, n_events; /* n_events includes the step event */
    uint32_t own_chiplets;                /* of one rank */
    uint8_t *rank_of;                     /* per task; null: one rank */
    fleet_schedule schedule;              /* of the plan: DYNAMIC if any grid is */
    uint32_t is_static, is_dynamic;       /* the plan's schedule is STATIC; is DYNAMIC */
    uint32_t unfused, unaware, levels, early;
    uint32_t keyed;          /* 1: keys order the fixed queues */
    uint32_t avoid_deadlock; /* 1: fixed queues would deadlock, so that AUTO chooses DYNAMIC */
    fleet_overheads costs;
    uint32_t workers[FLEET_MAX_CHIPLETS], base[FLEET_MAX_CHIPLETS], total_workers;
    uint8_t *chiplet_of; /* per worker */

    fleeti_bound_grid *grids;
    fleeti_inputs *inputs; /* per grid */
    uint32_t *before;      /* per grid: 1 + the last grid before it that has tasks; 0: none */
    fleeti_bound_event *events;
    fleeti_event_def *barriers; /* unfused plans: per grid the event before it */
    fleeti_edge *outs, *ins;    /* edges, sorted by grid */
    fleeti_runtime_map *maps;
    uint32_t n_maps;
    uint32_t n_tasks, n_shards, n_slots, n_elements;

    uint32_t *slot; /* per task: its worker or chiplet (fleeti_queues_of) */
    uint32_t n_queues, n_descs;
    uint32_t chiplet_queues; /* number of the first chiplet's queue, after those of the workers */
    fleeti_span *queue;

    fleeti_element *elements;
    fleeti_arrivals *arrivals;
    uint32_t n_arrivals;
    uint32_t counter_words, system_words, joins, taken;
    uint64_t n_consumers;

    fleeti_records waits, notifies, forwards;
    fleeti_wait_span *task_waits;
    fleeti_span *shard_notifies;
    /* per rank: the wait records for the previous step, and whether sources need them */
    fleeti_span step_waits[FLEET_MAX_PEERS];
    uint32_t waits_for_step;
    uint8_t *runs_ahead; /* per grid */
    uint8_t *settled;    /* per grid; null: none is */
} fleeti_build;

/* ---- errors, memory, names ---- */

static fleet_status fleeti_reject(fleeti_build *b, fleet_status status, const char *site,
                                  const char *format, ...)
{
    va_list list;
    b->g->build_status = status;
    va_start(list, format);
    fleeti_set_message(b->g, status, site, format, list);
    va_end(list);
    return status;
}

static fleet_status fleeti_no_memory(fleeti_build *b)
{
    return fleeti_reject(b, FLEET_ERROR_MEMORY, NULL, "no memory for the plan");
}

#define FLEETI_WORK_OF_ITEM 16u  /* a task, a descriptor, an element: what has memory of its own */
#define FLEETI_WORK_OF_PREFIX 4u /* of coordinates, in a fleeti_space */
#define FLEETI_WORK_OF_CONSUMER 8u /* an entry in the list of an element's consumers */
#define FLEETI_COUNTERS_PER_WORK 8u

/* Adds n to the work, before it is done. Not FLEET_OK: that would be too much. A pass calls it before it goes through
   anything whose number comes from an extent; otherwise a graph of three lines would keep it busy for hours. */
static fleet_status fleeti_work(fleeti_build *b, uint64_t n, const char *kind, const char *name,
                                const char *site)
{
    const uint64_t max = b->desc->max_work ? b->desc->max_work : FLEET_MAX_WORK;
    if (n <= max && b->work <= max - n) {
        b->work += n;
        return FLEET_OK;
    }
    return fleeti_reject(b, FLEET_ERROR_TOO_MANY_TASKS, site,
                         "%s %s brings the work of planning to over %llu: use fewer and larger "
                         "tasks, or raise max_work of the plan's descriptor",
                         kind, name, (unsigned long long)max);
}

static fleet_status fleeti_work_of_grid(fleeti_build *b, const fleeti_bound_grid *grid, uint64_t n)
{
    return fleeti_work(b, n, "grid", grid->def->name, grid->def->site);
}

/* Zeroed memory for `count` items until the build ends; null if there is none. */
static void *fleeti_alloc(fleeti_build *b, size_t count, size_t bytes)
{
    fleeti_scratch *block;
    if (count > (SIZE_MAX - sizeof *block) / bytes) return NULL;
    block = (fleeti_scratch *)FLEET_MALLOC(sizeof *block + count * bytes);
    if (!block) return NULL;
    block->next = b->scratch;
    b->scratch = block;
    memset(block + 1, 0, count * bytes);
    return block + 1;
}
#define FLEETI_ALLOC(b, type, count) ((type *)fleeti_alloc((b), (count), sizeof(type)))

static void fleeti_free_scratch(fleeti_build *b)
{
    while (b->scratch) {
        fleeti_scratch *next = b->scratch->next;
        FLEET_FREE(b->scratch);
        b->scratch = next;
    }
    if (b->waits.item) FLEET_FREE(b->waits.item);
    if (b->notifies.item) FLEET_FREE(b->notifies.item);
    if (b->forwards.item) FLEET_FREE(b->forwards.item);
}

/* Makes room for n more records; 0 if there is no memory. */
static int fleeti_reserve(fleeti_records *r, uint64_t n)
{
    uint64_t room = r->room ? r->room : 64;
    void *item;
    if (r->count + n <= r->room) return 1;
    while (room < r->count + n) room *= 2;
    if (room > SIZE_MAX / sizeof *r->item || room > 0xffffffffu) return 0;
    item = FLEET_MALLOC((size_t)room * sizeof *r->item);
    if (!item) return 0;
    if (r->item) {
        memcpy(item, r->item, r->count * sizeof *r->item);
        FLEET_FREE(r->item);
    }
    r->item = (uint32_t(*)[4])item;
    r->room = (uint32_t)room;
    return 1;
}

/* Appends a record. fleeti_reserve has made room for it. */
static void fleeti_append(fleeti_records *r, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    uint32_t *item = r->item[r->count++];
    item[0] = a;
    item[1] = b;
    item[2] = c;
    item[3] = d;
}

/* Appends a copy of record `index`. fleeti_reserve has made room for it. */
static void fleeti_append_copy(fleeti_records *r, uint32_t index)
{
    const uint32_t *item = r->item[index];
    fleeti_append(r, item[0], item[1], item[2], item[3]);
}

static const char *fleeti_scope_name(uint32_t scope)
{
    static const char *const name[4] = {"block", "chiplet", "device", "system"};
    return name[scope & 3u];
}

/* The grid that has a task id. */
static const fleeti_bound_grid *fleeti_grid_of_task(const fleeti_build *b, uint32_t id)
{
    uint32_t low = 0, high = b->n_grids;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (b->grids[middle].first <= id)
            low = middle;
        else
            high = middle;
    }
    return &b->grids[low];
}

#define FLEETI_POINT_BYTES 160 /* room for a name and six coordinates */

#define FLEETI_MAP_TRAITS(name, traits, fits, in_order, text) traits,
/* Whether a map's kind has a trait. */
static uint32_t fleeti_map_has(const fleeti_runtime_map *map, uint32_t trait)
{
    static const uint32_t traits[] = {FLEETI_MAP_LIST(FLEETI_MAP_TRAITS)};
    return traits[map->kind] & trait;
}

static const char *fleeti_task_text(const fleeti_build *b, uint32_t id, char *text)
{
    const fleeti_bound_grid *grid = fleeti_grid_of_task(b, id);
    fleeti_text out = fleeti_text_at(text, FLEETI_POINT_BYTES);
    int32_t at[FLEET_MAX_RANK];
    fleeti_point_of(&grid->space, grid->extent, grid->rank, id - grid->first, at);
    fleeti_put_point(&out, grid->def->name, at, grid->rank, "()");
    return text;
}

static const char *fleeti_element_text(const fleeti_bound_event *event, uint32_t index, char *text)
{
    fleeti_text out = fleeti_text_at(text, FLEETI_POINT_BYTES);
    int32_t at[FLEET_MAX_RANK];
    fleeti_point_of(&event->space, event->extent, event->rank, index, at);
    fleeti_put_point(&out, event->def ? event->def->name : "step", at, event->rank, "[]");
    return text;
}

/* ---- schedules and slots ---- */

/* Schedules: how the tasks of a grid are queued. To add one: an enum value, a row, its choice in
   fleeti_choose_schedules, and its section in fleet_sched.h. Columns:
     name
     1: tasks are in the queues of workers; 0: in those of chiplets
     1: a queue runs in order and ends with a step end; 0: a task runs when it is ready */
#define FLEETI_SCHEDULE_LIST(X)                                                                    \
    X(STATIC, 1, 1)                                                                                \
    X(CHIPLET, 0, 1)                                                                               \
    X(DYNAMIC, 0, 0)

#define FLEETI_SCHEDULE_ROW(name, by_worker, in_order) {#name, by_worker, in_order},
static const struct {
    const char *name;
    int by_worker, in_order;
} fleeti_schedules[] = {FLEETI_SCHEDULE_LIST(FLEETI_SCHEDULE_ROW)};

static const char *fleeti_schedule_name(uint32_t schedule)
{
    return fleeti_schedules[schedule].name;
}

/* Whether the grid's tasks are in the queues of workers. */
static int fleeti_is_by_worker(const fleeti_bound_grid *grid)
{
    return fleeti_schedules[grid->schedule].by_worker;
}

/* Whether the grid's tasks run in the order of their queue; otherwise any worker may take one that is ready. */
static int fleeti_is_in_order(const fleeti_bound_grid *grid)
{
    return fleeti_schedules[grid->schedule].in_order;
}

/* The level at which the grid's tasks run in this plan. */
static uint32_t fleeti_level_of(const fleeti_bound_grid *grid)
{
    return grid->tiles ? (uint32_t)FLEET_LEVEL_CU : (uint32_t)grid->def->level;
}

/* Of the tasks of a grid whose shape has `symbols`, where tasks of the graph cut `cuts`. */
static uint32_t fleeti_flags_of(uint32_t symbols, uint32_t cuts, uint32_t n_maps, uint32_t settled)
{
    const uint32_t late = n_maps || symbols & cuts;
    return (symbols ? FLEETI_GUARDED : 0) | (settled ? FLEETI_SETTLED : late ? FLEETI_MAPPED : 0);
}

/* A bit for each symbol of the grid's shape that is bound at launch. */
static uint32_t fleeti_symbols_of_shape(const fleeti_build *b, const fleeti_grid_def *def)
{
    uint32_t symbol = def->slices_given ? def->slices.symbol : 0, symbols = 0;
    if (symbol && b->at_launch[symbol - 1u]) symbols |= 1u << (symbol - 1u);
    for (uint32_t k = 0; k < def->shape.rank; k++) {
        symbol = def->shape.extent[k].symbol;
        if (symbol && b->at_launch[symbol - 1u]) symbols |= 1u << (symbol - 1u);
    }
    return symbols;
}
/* Whether the grid's shape is known only at launch. */
static int fleeti_is_guarded(const fleeti_build *b, const fleeti_grid_def *def)
{
    return fleeti_symbols_of_shape(b, def) != 0;
}

/* The queues that hold a task: `queues` of them from `first` on, with `copies` descriptors in each. slot: the task's
   worker; its chiplet, if it is a chiplet-task or in a queue of chiplets. A chiplet-task has a descriptor for each
   worker, except under CHIPLET, where it has one that the scheduler deals to all. */
typedef struct fleeti_queue_set {
    uint32_t first, queues, copies;
} fleeti_queue_set;

static fleeti_queue_set fleeti_queues_of(const fleeti_build *b, const fleeti_bound_grid *grid,
                                         uint32_t slot)
{
    const int by_all = fleeti_level_of(grid) >= FLEET_LEVEL_CHIPLET;
    fleeti_queue_set s;
    s.first = slot;
    s.queues = s.copies = 1;
    if (!fleeti_is_by_worker(grid)) {
        s.first += b->chiplet_queues;
        if (by_all && !fleeti_is_in_order(grid)) s.copies = b->workers[slot];
    } else if (by_all) {
        s.first = b->base[slot];
        s.queues = b->workers[slot];
    }
    return s;
}

/* The only worker that runs a task with this slot, or FLEETI_WORKER_MANY. */
static uint32_t fleeti_worker_of(const fleeti_build *b, const fleeti_bound_grid *grid,
                                 uint32_t slot)
{
    const fleeti_queue_set s = fleeti_queues_of(b, grid, slot);
    return fleeti_is_by_worker(grid) && s.queues == 1 ? s.first : FLEETI_WORKER_MANY;
}

/* Whether the grid's placement names workers. */
static int fleeti_names_workers(const fleeti_grid_def *def)
{
    return def->placed && def->place.rank == 2;
}

static int64_t fleeti_evaluate(const fleeti_build *b, fleet_dim d)
{
    int64_t v = d.add;
    if (d.symbol) v = fleeti_add(v, fleeti_mul(d.mul, b->symbol[d.symbol - 1u]));
    return fleeti_floor_div(v, d.div);
}

/* An extent that may depend on the coordinates before it. */
static int64_t fleeti_evaluate_at(const fleeti_build *b, const fleet_dim *d, const int32_t *at)
{
    fleet_dim here = *d;
    for (uint32_t k = 0; k < FLEET_MAX_RANK; k++)
        here.add = fleeti_add(here.add, fleeti_mul(d->per[k], at[k]));
    return fleeti_evaluate(b, here);
}

/* ---- the block ---- */

#define FLEETI_SECTION_ALIGN 64u

/* Appends a section of `count` items to a block of *bytes; returns its offset. */
static uint64_t fleeti_section(uint64_t *bytes, uint64_t count, uint64_t item)
{
    uint64_t at = (*bytes + FLEETI_SECTION_ALIGN - 1) / FLEETI_SECTION_ALIGN * FLEETI_SECTION_ALIGN;
    *bytes = at + count * item;
    return at;
}

/* Each step is a bijection, so that any change of a single word changes the sum. */
static uint64_t fleeti_sum_word(uint64_t sum, uint64_t word)
{
    sum = (sum ^ word) * 0x9e3779b97f4a7c15ull;
    return sum ^ sum >> 32;
}

/* The checksum of a block: eight bytes at a time, the last ones padded with zeros. */
static uint64_t fleeti_checksum(const fleet_plan *plan)
{
    const char *block = (const char *)plan;
    const uint64_t own = offsetof(fleet_plan, checksum), whole = plan->bytes / 8 * 8;
    uint64_t sum = plan->bytes, word;
    for (uint64_t at = 0; at < whole; at += 8) {
        memcpy(&word, block + at, 8);
        sum = fleeti_sum_word(sum, at == own ? 0 : word);
    }
    word = 0;
    memcpy(&word, block + whole, (size_t)(plan->bytes - whole));
    return fleeti_sum_word(sum, word);
}

static void *fleeti_at(const fleet_plan *plan, uint64_t offset)
{
    return (char *)(uintptr_t)plan + offset;
}

/* The counter at which a notify record arrives. */
static uint32_t fleeti_notified(const fleet_plan *plan, const fleeti_notify *notify)
{
    if (plan->ranks == 1 || !(notify->counter & FLEETI_SYSTEM)) return notify->counter;
    return fleeti_plan_forwards(plan)[notify->counter & ~FLEETI_SYSTEM].counter;
}

/* ---- descriptor ---- */

fleet_plan_desc fleet_plan_desc_default(void)
{
    fleet_plan_desc desc;
    memset(&desc, 0, sizeof desc);
    desc.topology = fleet_topology_preset(FLEET_MI300X);
    desc.schedule = FLEET_SCHEDULE_STATIC;
    return desc;
}

/* Binding a symbol again replaces its value, so that all symbols of a graph fit. What is too much, or is not a plain
   symbol, is recorded so that the build reports it. */
void fleet_bind_at_build(fleet_plan_desc *desc, fleet_dim symbol, int64_t value)
{
    const uint32_t number = fleeti_plain_symbol(symbol);
    uint32_t i;
    if (!desc) return;
    for (i = 0; i < desc->n_bindings && i < FLEET_MAX_SYMBOLS; i++)
        if (desc->bindings[i].symbol == number) break;
    if (i < FLEET_MAX_SYMBOLS) {
        desc->bindings[i].symbol = number;
        desc->bindings[i].value = value;
    }
    if (i >= desc->n_bindings) desc->n_bindings = i + 1;
}

void fleet_buckets_at_build(fleet_plan_desc *desc, fleet_dim symbol, const int64_t *values,
                            uint32_t count)
{
    if (!desc) return;
    if (desc->n_buckets < FLEET_MAX_SYMBOLS) {
        fleeti_buckets *list = &desc->buckets[desc->n_buckets];
        list->symbol = fleeti_plain_symbol(symbol);
        list->values = values;
        list->count = count;
    }
    desc->n_buckets++;
}

/* ---- buckets ---- */

/* The buckets of each symbol: the values for which the plan has queues. A symbol that is bound at build has one. */
typedef struct fleeti_bucketing {
    int64_t value[FLEET_MAX_SYMBOLS][FLEET_MAX_BUCKETS];
    uint32_t count[FLEET_MAX_SYMBOLS];
    uint8_t at_launch[FLEET_MAX_SYMBOLS];
    uint32_t n_at_launch, total;
} fleeti_bucketing;

static fleet_status fleeti_bind_symbols(fleeti_build *b, fleeti_bucketing *all)
{
    const fleet_graph *g = b->g;
    const fleet_plan_desc *desc = b->desc;
    uint32_t n = FLEETI_LEN(g->symbols), s;
    if (desc->n_bindings > FLEET_MAX_SYMBOLS)
        return fleeti_reject(b, FLEET_ERROR_ARGUMENT, NULL, "plan: n_bindings is %u, at most %d",
                             desc->n_bindings, FLEET_MAX_SYMBOLS);
    for (uint32_t i = 0; i < desc->n_bindings; i++) {
        s = fleeti_symbol_number(g, desc->bindings[i].symbol) - 1u;
        if (s >= n)
            return fleeti_reject(b, FLEET_ERROR_HANDLE, NULL,
                                 "plan: binding %u is not of a symbol of this graph", i);
        all->value[s][0] = desc->bindings[i].value;
        all->count[s] = 1;
    }
    for (s = 0; s < n; s++) {
        const fleeti_symbol_def *def = &g->symbols[s];
        if (def->writer && all->count[s])
            return fleeti_reject(b, FLEET_ERROR_ARGUMENT, NULL,
                                 "symbol %s is bound at build, but grid %s sets it in each step",
                                 def->name, g->grids[def->writer - 1u].name);
        if (!all->count[s]) {
            all->at_launch[s] = 1;
            all->n_at_launch++;
            if (def->max > FLEETI_MAX_INDEX)
                return fleeti_reject(b, FLEET_ERROR_SYMBOL_RANGE, NULL,
                                     "symbol %s: its max is %lld, but that of a symbol that is "
                                     "bound at launch is at most 2^31-1",
                                     def->name, (long long)def->max);
        } else if (all->value[s][0] < def->min || all->value[s][0] > def->max) {
            return fleeti_reject(
                b, FLEET_ERROR_SYMBOL_RANGE, NULL, "symbol %s is %lld, outside [%lld, %lld]",
                def->name, (long long)all->value[s][0], (long long)def->min, (long long)def->max);
        }
    }
    return FLEET_OK;
}

/* Appends a bucket, unless its value is no larger than the last one. */
static fleet_status fleeti_add_bucket(fleeti_build *b, fleeti_bucketing *all, uint32_t s,
                                      int64_t value)
{
    uint32_t n = all->count[s];
    if (n && value <= all->value[s][n - 1]) return FLEET_OK;
    if (n == FLEET_MAX_BUCKETS)
        return fleeti_reject(b, FLEET_ERROR_ARGUMENT, NULL, "symbol %s has over %d buckets",
                             b->g->symbols[s].name, FLEET_MAX_BUCKETS);
    all->value[s][n] = value;
    all->count[s] = n + 1;
    return FLEET_OK;
}

/* The number of all buckets; saturated. */
static uint64_t fleeti_count_buckets(const fleeti_bucketing *all, uint32_t n)
{
    uint64_t total = 1;
    for (uint32_t s = 0; s < n && total <= FLEET_MAX_BUCKETS; s++) total *= all->count[s];
    return total;
}

/* Leaves every second bucket out of the longest list that is by default, but never the largest value. Returns 0 if
   no list can be shorter. */
static int fleeti_thin_buckets(fleeti_bucketing *all, const uint8_t *by_default, uint32_t n)
{
    uint32_t longest = n;
    for (uint32_t s = 0; s < n; s++)
        if (by_default[s] && all->count[s] > (longest < n ? all->count[longest] : 1)) longest = s;
    if (longest == n) return 0;
    uint32_t kept = (all->count[longest] + 1) / 2;
    for (uint32_t i = 0; i < kept; i++)
        all->value[longest][i] = all->value[longest][2 * i + (all->count[longest] % 2 ? 0 : 1)];
    all->count[longest] = kept;
    return 1;
}

static fleet_status fleeti_fill_buckets(fleeti_build *b, fleeti_bucketing *all)
{
    const fleet_plan_desc *desc = b->desc;
    uint32_t n = FLEETI_LEN(b->g->symbols), s;
    uint8_t by_default[FLEET_MAX_SYMBOLS];
    int64_t value;
    fleet_status status = FLEET_OK;
    if (desc->n_buckets > FLEET_MAX_SYMBOLS)
        return fleeti_reject(b, FLEET_ERROR_ARGUMENT, NULL, "plan: n_buckets is %u, at most %d",
                             desc->n_buckets, FLEET_MAX_SYMBOLS);
    for (uint32_t i = 0; i < desc->n_buckets; i++) {
        const fleeti_buckets *list = &desc->buckets[i];
        s = fleeti_symbol_number(b->g, list->symbol) - 1u;
        if (s >= n || !all->at_launch[s] || (list->count && !list->values))
            return fleeti_reject(b, FLEET_ERROR_HANDLE, NULL,
                                 "plan: buckets %u are not of a symbol that is bound at launch", i);
        const fleeti_symbol_def *def = &b->g->symbols[s];
        for (uint32_t k = 0; k < list->count && status == FLEET_OK; k++) {
            value = list->values[k];
            if (value < def->min || value > def->max || (k && value <= list->values[k - 1]))
                return fleeti_reject(
                    b, FLEET_ERROR_SYMBOL_RANGE, NULL,
                    "symbol %s: bucket %lld is outside [%lld, %lld], or not above the previous one",
                    def->name, (long long)value, (long long)def->min, (long long)def->max);
            status = fleeti_add_bucket(b, all, s, value);
        }
        if (status == FLEET_OK) status = fleeti_add_bucket(b, all, s, def->max);
        if (status != FLEET_OK) return status;
        if (def->writer && all->count[s] > 1)
            return fleeti_reject(b, FLEET_ERROR_ARGUMENT, NULL,
                                 "symbol %s: a launch has one bucket, so a symbol that grid %s "
                                 "sets in each step has that of its max alone",
                                 def->name, b->g->grids[def->writer - 1u].name);
    }
    memset(by_default, 0, sizeof by_default);
    for (s = 0; s < n && status == FLEET_OK; s++) {
        const fleeti_symbol_def *def = &b->g->symbols[s];
        if (all->count[s]) continue;
        by_default[s] = 1;
        for (value = 1; value < def->max && !def->writer && status == FLEET_OK; value *= 2)
            if (value >= def->min) status = fleeti_add_bucket(b, all, s, value);
        if (status == FLEET_OK) status = fleeti_add_bucket(b, all, s, def->max);
    }
    if (status != FLEET_OK) return status;
    while (fleeti_count_buckets(all, n) > FLEET_MAX_BUCKETS)
        if (!fleeti_thin_buckets(all, by_default, n)) {
            for (s = 0; fleeti_count_buckets(all, s + 1) <= FLEET_MAX_BUCKETS; s++) {
            }
            return fleeti_reject(b, FLEET_ERROR_ARGUMENT, NULL,
                                 "plan: over %d buckets in all, with those of symbol %s: name "
                                 "fewer with fleet_buckets_at_build",
                                 FLEET_MAX_BUCKETS, b->g->symbols[s].name);
        }
    all->total = (uint32_t)fleeti_count_buckets(all, n);
    return FLEET_OK;
}

/* Sets the symbols to bucket i of all. The last symbol changes fastest. */
static void fleeti_use_bucket(fleeti_build *b, const fleeti_bucketing *all, uint32_t i)
{
    for (uint32_t s = FLEETI_LEN(b->g->symbols); s-- > 0;) {
        b->symbol[s] = all->value[s][i % all->count[s]];
        i /= all->count[s];
    }
    b->at_launch = all->at_launch;
    b->n_at_launch = all->n_at_launch;
    for (uint32_t s = 0; s < FLEETI_LEN(b->g->grids); s++) {
        b->writes |= b->g->grids[s].writes;
        b->cuts |= b->g->grids[s].cuts;
    }
}

/* Puts the plans of all buckets into one block, that of the largest bucket first. */
static fleet_status fleeti_join_buckets(fleeti_build *b, fleet_plan **plan, uint32_t n,
                                        fleet_plan **out)
{
    uint64_t bytes = plan[n - 1]->bytes, *offset;
    uint64_t table = fleeti_section(&bytes, n, sizeof *offset);
    for (uint32_t i = 0; i + 1 < n; i++) (void)fleeti_section(&bytes, plan[i]->bytes, 1);
    fleet_plan *whole = bytes < SIZE_MAX ? (fleet_plan *)FLEET_MALLOC((size_t)bytes + 1) : NULL;
    if (!whole) return fleeti_no_memory(b);
    memset(whole, 0, (size_t)bytes + 1);
    memcpy(whole, plan[n - 1], (size_t)plan[n - 1]->bytes);
    whole->n_buckets = n;
    whole->buckets = table;
    offset = (uint64_t *)fleeti_at(whole, table);
    bytes = table + n * sizeof *offset;
    for (uint32_t i = 0; i + 1 < n; i++) {
        offset[i] = fleeti_section(&bytes, plan[i]->bytes, 1);
        memcpy(fleeti_at(whole, offset[i]), plan[i], (size_t)plan[i]->bytes);
    }
    whole->bytes = bytes + 1; /* the last byte of a block is always 0 */
    whole->checksum = fleeti_checksum(whole);
    *out = whole;
    return FLEET_OK;
}

/* ---- passes in order ---- */

#define FLEETI_DECLARE_PASS(name) static fleet_status fleeti_pass_##name(fleeti_build *b);
FLEETI_PASSES(FLEETI_DECLARE_PASS)

#define FLEETI_PASS_ENTRY(name) fleeti_pass_##name,
/* Runs the passes for one bucket. */
static fleet_status fleeti_build_bucket(fleeti_build *b)
{
    static fleet_status (*const passes[])(fleeti_build *) = {FLEETI_PASSES(FLEETI_PASS_ENTRY)};
    fleet_status status = FLEET_OK;
    for (uint32_t i = 0; i < sizeof passes / sizeof passes[0] && status == FLEET_OK; i++)
        status = passes[i](b);
    if (status == FLEET_OK) b->plan->checksum = fleeti_checksum(b->plan);
    fleeti_free_scratch(b);
    return status;
}

fleet_status fleet_plan_build(fleet_graph *g, const fleet_plan_desc *desc, fleet_plan **out)
{
    fleet_plan_desc defaults = fleet_plan_desc_default();
    fleet_plan *plan[FLEET_MAX_BUCKETS];
    fleeti_bucketing *all;
    fleeti_build build, *b = &build;
    uint32_t n = 0, first_word = FLEETI_LINE_WORDS, first_system_word = FLEETI_LINE_WORDS;
    uint64_t work = 0;
    if (desc && desc->ranks > 1) first_system_word = FLEETI_PEER_LINES * FLEETI_LINE_WORDS;
    if (out) *out = NULL;
    if (!g || !out) return FLEET_ERROR_NULL;
    if (g->status != FLEET_OK) return g->status;
    g->build_status = FLEET_OK;
    g->message[0] = 0;
    memset(b, 0, sizeof *b);
    b->g = g;
    b->desc = desc ? desc : &defaults;
    all = (fleeti_bucketing *)FLEET_MALLOC(sizeof *all);
    if (!all) return fleeti_no_memory(b);
    memset(all, 0, sizeof *all);
    fleet_status status = fleeti_bind_symbols(b, all);
    if (status == FLEET_OK) status = fleeti_fill_buckets(b, all);
    for (uint32_t i = 0; status == FLEET_OK && i < all->total; i++) {
        uint32_t avoid_deadlock = 0;
        do {
            memset(b, 0, sizeof *b);
            b->g = g;
            b->desc = desc ? desc : &defaults;
            b->first_word = first_word;
            b->first_system_word = first_system_word;
            b->work = work;
            b->n_buckets = all->total;
            b->avoid_deadlock = avoid_deadlock;
            fleeti_use_bucket(b, all, i);
            n = i + 1;
            status = fleeti_build_bucket(b);
            work = b->work;
            plan[i] = b->plan;
            if (status != FLEET_ERROR_ORDER || g->build_status != FLEET_OK) break;
            fleet_plan_free(plan[i]); /* no error was reported: AUTO chooses once more */
        } while (!avoid_deadlock++);
        if (status != FLEET_OK) break;
        first_word = plan[i]->counter_words;
        if (plan[i]->system_words) first_system_word = plan[i]->system_words;
    }
    if (status == FLEET_OK && n > 1) {
        status = fleeti_join_buckets(b, plan, n, out);
    } else if (status == FLEET_OK) {
        *out = plan[0];
        n = 0;
    }
    while (n > 0) fleet_plan_free(plan[--n]);
    FLEET_FREE(all);
    return status;
}

void fleet_plan_free(fleet_plan *plan)
{
    if (plan) FLEET_FREE(plan);
}

/* ==== >>bind: symbols, topology and shapes become numbers ==== */

static fleet_status fleeti_bind_topology(fleeti_build *b)
{
    const fleet_plan_desc *desc = b->desc;
    const fleet_topology *t = &desc->topology;
    uint32_t scheduler = desc->schedule == FLEET_SCHEDULE_CHIPLET;
    if (t->chiplets < 1 || t->chiplets > FLEET_MAX_CHIPLETS)
        return fleeti_reject(b, FLEET_ERROR_TOPOLOGY, NULL,
                             "topology: chiplets is %u, not in 1..%d", t->chiplets,
                             FLEET_MAX_CHIPLETS);
    b->ranks = desc->ranks ? desc->ranks : 1;
    if (b->ranks > FLEET_MAX_PEERS || b->ranks * t->chiplets > FLEET_MAX_CHIPLETS)
        return fleeti_reject(b, FLEET_ERROR_TOPOLOGY, NULL,
                             "plan: ranks is %u, but at most %d ranks of %d chiplets in all can "
                             "run one graph",
                             b->ranks, FLEET_MAX_PEERS, FLEET_MAX_CHIPLETS);
    if (t->wave_size < 1 || t->wave_size > 64 || (t->wave_size & (t->wave_size - 1)))
        return fleeti_reject(b, FLEET_ERROR_TOPOLOGY, NULL,
                             "topology: wave_size is %u, not a power of two in 1..64",
                             t->wave_size);
    b->own_chiplets = t->chiplets;
    b->chiplets = b->ranks * t->chiplets;
    for (uint32_t k = 0; k < b->chiplets; k++) {
        const uint32_t units = t->units[k % t->chiplets];
        uint32_t min = 1 + scheduler;
        if (units < min || units > 65536)
            return fleeti_reject(b, FLEET_ERROR_TOPOLOGY, NULL,
                                 "topology: units[%u] is %u, not in %u..65536%s", k, units, min,
                                 scheduler ? " (one is the scheduler)" : "");
        uint32_t max = units - scheduler;
        if (desc->workers_per_chiplet > max)
            return fleeti_reject(
                b, FLEET_ERROR_TOO_MANY_WORKERS, NULL,
                "plan: workers_per_chiplet is %u, but chiplet %u has room for %u%s",
                desc->workers_per_chiplet, k, max, scheduler ? " and the scheduler" : "");
        b->workers[k] = desc->workers_per_chiplet ? desc->workers_per_chiplet : max;
        b->base[k] = b->total_workers;
        b->total_workers += b->workers[k];
    }
    b->chiplet_of = FLEETI_ALLOC(b, uint8_t, b->total_workers);
    if (!b->chiplet_of) return fleeti_no_memory(b);
    for (uint32_t k = 0; k < b->chiplets; k++)
        for (uint32_t j = 0; j < b->workers[k]; j++) b->chiplet_of[b->base[k] + j] = (uint8_t)k;
    return FLEET_OK;
}

/* The given costs, or those of an H200 with 132 workgroups of 256 threads. */
static fleet_overheads fleeti_costs_of(const fleet_plan_desc *desc)
{
    static const fleet_overheads h200 = {1500, 220, 3080, 1010, 5000, 3200};
    fleet_overheads none;
    memset(&none, 0, sizeof none);
    return memcmp(&desc->costs, &none, sizeof none) == 0 ? h200 : desc->costs;
}

static fleet_status fleeti_bind_desc(fleeti_build *b)
{
    const fleet_plan_desc *desc = b->desc;
    uint32_t stride = desc->counter_stride_bytes;
    if ((unsigned)desc->schedule > FLEET_SCHEDULE_AUTO)
        return fleeti_reject(b, FLEET_ERROR_ARGUMENT, NULL, "plan: schedule %u does not exist",
                             (unsigned)desc->schedule);
    if (desc->counter_levels > 2)
        return fleeti_reject(b, FLEET_ERROR_ARGUMENT, NULL,
                             "plan: counter_levels is %u, not 0, 1 or 2", desc->counter_levels);
    if (stride && (stride < 4 || stride > FLEET_CACHE_LINE_BYTES || (stride & (stride - 1))))
        return fleeti_reject(b, FLEET_ERROR_ARGUMENT, NULL,
                             "plan: counter_stride_bytes is %u, not a power of two in 4..128",
                             stride);
    b->levels = desc->counter_levels ? desc->counter_levels : 2;
    b->unfused = desc->unfused;
    if (desc->unfused > 1 || (desc->unfused && desc->schedule != FLEET_SCHEDULE_STATIC))
        return fleeti_reject(b, FLEET_ERROR_ARGUMENT, NULL,
                             "plan: unfused is %u, but must be 0, or 1 with the schedule STATIC",
                             desc->unfused);
    b->unaware = desc->chiplet_unaware;
    if (desc->chiplet_unaware > 1)
        return fleeti_reject(b, FLEET_ERROR_ARGUMENT, NULL,
                             "plan: chiplet_unaware is %u, not 0 or 1", desc->chiplet_unaware);
    b->early = desc->early_push;
    if (desc->early_push > 1)
        return fleeti_reject(b, FLEET_ERROR_ARGUMENT, NULL, "plan: early_push is %u, not 0 or 1",
                             desc->early_push);
    b->costs = fleeti_costs_of(desc);
    if (!(b->costs.static_task >= 0 && b->costs.static_hop >= 0 && b->costs.mixed_task >= 0 &&
          b->costs.mixed_hop >= 0 && b->costs.dynamic_task >= 0 && b->costs.dynamic_hop >= 0))
        return fleeti_reject(b, FLEET_ERROR_ARGUMENT, NULL,
                             "plan: one of the costs is negative or NaN");
    return FLEET_OK;
}

/* Whether no extent on axis k can overflow, with the largest coordinates before it. */
static int fleeti_extent_fits(const fleeti_build *b, const fleet_dim *d, const int32_t *extent,
                              uint32_t k)
{
    int64_t size = fleeti_clamp(d->add);
    if (size < 0) size = -size;
    if (d->symbol) {
        const int64_t part = fleeti_mul(d->mul, b->symbol[d->symbol - 1u]);
        size = fleeti_add(size, part < 0 ? -part : part);
    }
    for (uint32_t j = 0; j < k; j++) {
        const int64_t part = fleeti_mul(d->per[j], extent[j]);
        size = fleeti_add(size, part < 0 ? -part : part);
    }
    return !fleeti_is_huge(size);
}

/* Evaluates a shape some of whose extents depend on axes: level after level of its tree. */
static fleet_status fleeti_bind_space(fleeti_build *b, const fleet_shape *shape, const char *kind,
                                      const char *name, const char *site, int32_t *extent,
                                      uint32_t *count, fleeti_space *space)
{
    uint32_t prefixes = 1;
    space->rank = shape->rank;
    for (uint32_t k = 0; k < shape->rank; k++) {
        const fleet_dim *d = &shape->extent[k];
        uint64_t points = 0;
        if (fleeti_work(b, FLEETI_WORK_OF_PREFIX * (prefixes + 1ull), kind, name, site) != FLEET_OK)
            return b->g->build_status;
        uint32_t *level = FLEETI_ALLOC(b, uint32_t, prefixes + 1u);
        if (!level) return fleeti_no_memory(b);
        if (!fleeti_extent_fits(b, d, extent, k))
            return fleeti_reject(b, FLEET_ERROR_ARGUMENT, site,
                                 "%s %s: the numbers of extent %u overflow", kind, name, k);
        for (uint32_t j = 0; j < k; j++) space->on[k] |= (d->per[j] ? 1u : 0u) << j;
        extent[k] = 0;
        for (uint32_t i = 0; i < prefixes; i++) {
            int32_t at[FLEET_MAX_RANK] = {0};
            fleeti_space_point(space, i, k, at);
            const int64_t v = fleeti_evaluate_at(b, d, at);
            if (v < 0) {
                char where[FLEETI_POINT_BYTES];
                fleeti_text out = fleeti_text_at(where, sizeof where);
                fleeti_put_point(&out, "", at, k, "()");
                return fleeti_reject(b, FLEET_ERROR_ARGUMENT, site,
                                     "%s %s: extent %u is %lld, below 0, at %s", kind, name, k,
                                     (long long)v, where);
            }
            level[i] = (uint32_t)points;
            points = v > FLEETI_MAX_INDEX ? FLEETI_MAX_INDEX + 1ull : points + (uint64_t)v;
            if (points > FLEETI_MAX_INDEX)
                return fleeti_reject(b, FLEET_ERROR_TOO_MANY_TASKS, site,
                                     "%s %s has over 2^31-1 points", kind, name);
            if (v > extent[k]) extent[k] = (int32_t)v;
        }
        level[prefixes] = (uint32_t)points;
        space->level[k] = level;
        space->prefixes[k] = prefixes;
        prefixes = (uint32_t)points;
    }
    *count = prefixes;
    return FLEET_OK;
}

/* Evaluates a shape. *count gets the number of its points. */
static fleet_status fleeti_bind_shape(fleeti_build *b, const fleet_shape *shape, const char *kind,
                                      const char *name, const char *site, int32_t *extent,
                                      uint32_t *count, fleeti_space *space)
{
    int64_t points = 1;
    for (uint32_t k = 0; k < shape->rank; k++)
        if (fleeti_dim_axes(&shape->extent[k]))
            return fleeti_bind_space(b, shape, kind, name, site, extent, count, space);
    for (uint32_t k = 0; k < shape->rank; k++) {
        int64_t v = fleeti_evaluate(b, shape->extent[k]);
        if (v < 0)
            return fleeti_reject(b, FLEET_ERROR_ARGUMENT, site, "%s %s: extent %u is %lld, below 0",
                                 kind, name, k, (long long)v);
        points = fleeti_mul(points, v);
        if (v > FLEETI_MAX_INDEX) points = points ? FLEETI_HUGE : 0;
        extent[k] = (int32_t)(v > FLEETI_MAX_INDEX ? FLEETI_MAX_INDEX : v);
    }
    if (points > FLEETI_MAX_INDEX)
        return fleeti_reject(b, FLEET_ERROR_TOO_MANY_TASKS, site, "%s %s has over 2^31-1 points",
                             kind, name);
    *count = (uint32_t)points;
    return FLEET_OK;
}

/* A launch leaves out the tasks outside its shape, so that the shape must not shrink when a symbol grows. */
static fleet_status fleeti_check_growth(fleeti_build *b, const fleeti_grid_def *def)
{
    for (uint32_t k = 0; k <= def->shape.rank; k++) {
        const fleet_dim *d = k < def->shape.rank ? &def->shape.extent[k] : &def->slices;
        if (k == def->shape.rank && !def->slices_given) break;
        if (!d->symbol || !b->at_launch[d->symbol - 1u]) continue;
        if (fleeti_dim_axes(d))
            return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, def->site,
                                 "grid %s: extent %u depends on axis %u and on symbol %s, which is "
                                 "bound at launch: bind it at build, or put the axis that the "
                                 "symbol bounds first, and let the others depend on it",
                                 def->name, k, fleeti_dim_axes(d) - 1u,
                                 b->g->symbols[d->symbol - 1u].name);
        if (d->mul < 0)
            return fleeti_reject(b, FLEET_ERROR_ARGUMENT, def->site,
                                 "grid %s: an extent shrinks as symbol %s grows, which is bound at "
                                 "launch: bind it at build",
                                 def->name, b->g->symbols[d->symbol - 1u].name);
        if (fleeti_is_huge(fleeti_mul(d->mul, FLEETI_MAX_INDEX)))
            return fleeti_reject(b, FLEET_ERROR_ARGUMENT, def->site,
                                 "grid %s: the numbers of an extent overflow with symbol %s, which "
                                 "is bound at launch: bind it at build",
                                 def->name, b->g->symbols[d->symbol - 1u].name);
    }
    return FLEET_OK;
}

/* An unfused plan is always STATIC, so that any graph can have one. An external event makes no task
   ready: in a DYNAMIC plan a grid that waits for one is STATIC, too. */
static fleet_status fleeti_bind_schedule(fleeti_build *b, fleeti_bound_grid *grid, uint32_t outside)
{
    const fleeti_grid_def *def = grid->def;
    grid->schedule = b->desc->schedule;
    if (outside && !def->scheduled && grid->schedule == FLEET_SCHEDULE_DYNAMIC)
        grid->schedule = FLEET_SCHEDULE_STATIC;
    if (b->unfused || !def->scheduled || def->schedule == grid->schedule) return FLEET_OK;
    if (grid->schedule == FLEET_SCHEDULE_CHIPLET)
        return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, def->site,
                             "grid %s has its own schedule, but CHIPLET is the schedule of all "
                             "grids of a plan: remove fleet_grid_schedule",
                             def->name);
    grid->schedule = def->schedule;
    return FLEET_OK;
}

/* Computes into how many parts and shards the grid's tasks fall. */
static fleet_status fleeti_bind_parts(fleeti_build *b, fleeti_bound_grid *grid)
{
    const fleeti_grid_def *def = grid->def;
    int64_t tiles = 0;
    for (uint32_t k = 0; k < b->chiplets; k++)
        if (b->workers[k] > tiles) tiles = b->workers[k];
    if (tiles > FLEETI_MAX_PARTS) tiles = FLEETI_MAX_PARTS;
    if (def->tiles_given) {
        tiles = fleeti_evaluate(b, def->tiles);
        if (def->level < FLEET_LEVEL_CHIPLET)
            return fleeti_reject(b, FLEET_ERROR_ARGUMENT, def->site,
                                 "grid %s: only device- and chiplet-tasks have tiles", def->name);
        if (tiles < 1 || tiles > FLEETI_MAX_PARTS)
            return fleeti_reject(b, FLEET_ERROR_ARGUMENT, def->site,
                                 "grid %s: tiles is %lld, not in 1..%u", def->name,
                                 (long long)tiles, FLEETI_MAX_PARTS);
    }
    if (b->unaware && def->level >= FLEET_LEVEL_CHIPLET) {
        if (grid->slices > FLEETI_MAX_PARTS)
            return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, def->site,
                                 "grid %s: slices is %u, but an unaware plan allows at most %u",
                                 def->name, grid->slices, FLEETI_MAX_PARTS);
        grid->tiles = (uint32_t)tiles;
    }
    grid->parts = grid->slices * (grid->tiles ? grid->tiles : 1);
    grid->shards = grid->parts < b->own_chiplets ? grid->parts : b->own_chiplets;
    return FLEET_OK;
}

static fleet_status fleeti_find_inputs(fleeti_build *b)
{
    const fleeti_edge_def *edges = b->g->edges;
    b->inputs = FLEETI_ALLOC(b, fleeti_inputs, b->n_grids);
    if (!b->inputs) return fleeti_no_memory(b);
    for (uint32_t i = 0; i < FLEETI_LEN(edges); i++) {
        fleeti_inputs *in = &b->inputs[edges[i].grid];
        if (edges[i].out) continue;
        in->any = 1;
        in->named |= edges[i].tensor != 0;
        in->outside |= b->g->events[edges[i].event].outside & FLEET_EXTERNAL_NOTIFIES;
    }
    return FLEET_OK;
}

static fleet_status fleeti_bind_grids(fleeti_build *b)
{
    uint64_t tasks = 0, shards = 0, slots = 0;
    b->n_grids = FLEETI_LEN(b->g->grids);
    b->grids = FLEETI_ALLOC(b, fleeti_bound_grid, b->n_grids);
    b->before = FLEETI_ALLOC(b, uint32_t, b->n_grids + 1u);
    if (!b->grids || !b->before) return fleeti_no_memory(b);
    if (fleeti_find_inputs(b) != FLEET_OK) return b->g->build_status;
    for (uint32_t i = 0; i < b->n_grids; i++) {
        const fleeti_grid_def *def = &b->g->grids[i];
        fleeti_bound_grid *grid = &b->grids[i];
        int64_t slices = b->own_chiplets;
        fleet_status status = fleeti_bind_shape(b, &def->shape, "grid", def->name, def->site,
                                                grid->extent, &grid->count, &grid->space);
        if (status == FLEET_OK) status = fleeti_check_growth(b, def);
        grid->def = def;
        if (status == FLEET_OK) status = fleeti_bind_schedule(b, grid, b->inputs[i].outside);
        if (status != FLEET_OK) return status;
        grid->rank = def->shape.rank;
        grid->first = (uint32_t)tasks;
        grid->first_shard = (uint32_t)shards;
        grid->first_slot = (uint32_t)slots;
        if (def->slices_given) {
            slices = fleeti_evaluate(b, def->slices);
            if (def->level != FLEET_LEVEL_DEVICE)
                return fleeti_reject(b, FLEET_ERROR_ARGUMENT, def->site,
                                     "grid %s: only device-tasks have slices", def->name);
            if (slices < 1 || slices > FLEETI_MAX_INDEX)
                return fleeti_reject(b, FLEET_ERROR_ARGUMENT, def->site,
                                     "grid %s: slices is %lld, not in 1..2^31-1", def->name,
                                     (long long)slices);
        }
        grid->slices = def->level == FLEET_LEVEL_DEVICE ? (uint32_t)slices : 1;
        status = fleeti_bind_parts(b, grid);
        if (status != FLEET_OK) return status;
        b->before[i + 1] = grid->count ? i + 1 : b->before[i];
        tasks += grid->count;
        shards += (uint64_t)grid->count * grid->shards;
        slots += (uint64_t)grid->count * (grid->tiles ? grid->parts : 1);
        if (tasks > FLEETI_MAX_INDEX || shards > FLEETI_MAX_INDEX || slots > FLEETI_MAX_INDEX)
            return fleeti_reject(b, FLEET_ERROR_TOO_MANY_TASKS, def->site,
                                 "grid %s brings the graph to over 2^31-1 tasks", def->name);
        status = fleeti_work_of_grid(
            b, grid,
            grid->count *
                (uint64_t)(FLEETI_WORK_OF_ITEM + (grid->tiles ? grid->parts : 0) + grid->shards));
        if (status != FLEET_OK) return status;
    }
    b->n_tasks = (uint32_t)tasks;
    b->n_shards = (uint32_t)shards;
    b->n_slots = (uint32_t)slots;
    return FLEET_OK;
}

/* The coordinate of a grid's first task, if it has one; `at` has FLEET_MAX_RANK axes. */
static void fleeti_first_coordinate(const fleeti_bound_grid *grid, int32_t *at)
{
    memset(at, 0, FLEET_MAX_RANK * sizeof *at);
    if (grid->space.rank && grid->count) fleeti_space_point(&grid->space, 0, grid->rank, at);
}

/* Goes to the next coordinate in row-major order. */
static void fleeti_next_coordinate(const fleeti_bound_grid *grid, int32_t *at)
{
    if (grid->space.rank) {
        const uint32_t next = fleeti_space_index(&grid->space, at) + 1u;
        if (next < grid->count) fleeti_space_point(&grid->space, next, grid->rank, at);
        return;
    }
    for (uint32_t k = grid->rank; k-- > 0;) {
        if (++at[k] < grid->extent[k]) return;
        at[k] = 0;
    }
}

/* Finds the key of each grid, if some grid has one. */
static fleet_status fleeti_bind_keys(fleeti_build *b)
{
    int64_t largest = -FLEETI_HUGE;
    for (uint32_t i = 0; i < b->n_grids && !b->unfused; i++) b->keyed |= b->grids[i].def->keyed;
    for (uint32_t i = 0; i < b->n_grids && b->keyed; i++) {
        fleeti_bound_grid *grid = &b->grids[i];
        const fleet_key *key = &grid->def->key;
        int64_t size = key->constant < 0 ? -key->constant : key->constant, most = key->constant;
        if (!grid->def->keyed) {
            grid->key = fleet_key_of(largest);
            continue;
        }
        grid->key = *key;
        if (!grid->count) continue;
        if (grid->space.rank) { /* its corners need not be tasks */
            int32_t at[FLEET_MAX_RANK];
            if (fleeti_work_of_grid(b, grid, grid->count) != FLEET_OK) return b->g->build_status;
            most = -FLEETI_HUGE;
            fleeti_first_coordinate(grid, at);
            for (uint32_t k = 0; k < grid->count; k++, fleeti_next_coordinate(grid, at))
                if (fleeti_key_at(key, at) > most) most = fleeti_key_at(key, at);
        }
        for (uint32_t k = 0; k < grid->rank; k++) {
            const int64_t far = fleeti_mul(key->weight[k], grid->extent[k] - 1);
            size = fleeti_add(size, far < 0 ? -far : far);
            if (far > 0 && !grid->space.rank) most = fleeti_add(most, far);
        }
        if (fleeti_is_huge(size))
            return fleeti_reject(b, FLEET_ERROR_ARGUMENT, grid->def->site,
                                 "order of grid %s: a key is over 2^61: use smaller weights",
                                 grid->def->name);
        if (most > largest) largest = most;
    }
    return FLEET_OK;
}

static fleet_status fleeti_pass_bind(fleeti_build *b)
{
    fleet_status status = fleeti_bind_desc(b);
    if (status == FLEET_OK) status = fleeti_bind_topology(b);
    if (status == FLEET_OK) status = fleeti_bind_grids(b);
    if (status == FLEET_OK) status = fleeti_bind_keys(b);
    return status;
}

/* ==== >>choose: AUTO becomes STATIC or DYNAMIC ==== */

static double fleeti_root(double v)
{
    double root = v > 1 ? v : 1;
    for (uint32_t i = 0; v > 0 && i < 64; i++) root = (root + v / root) / 2;
    return v > 0 ? root : 0;
}

/* AUTO's estimates of a grid's time, as if all its n tasks could start at once on P workers. From fixed queues a
   worker gets n / P tasks, and the grid ends with the worker whose tasks happen to be longest: the maximum of P sums,
   which for a normal distribution lies about sqrt(2 ln P) - 0.65 standard deviations above the mean. From ready
   queues other workers take that worker's tasks, except its last one. */
static void fleeti_estimate(const fleeti_build *b, uint32_t index, uint32_t mixed, double *fixed,
                            double *ready)
{
    const fleeti_bound_grid *grid = &b->grids[index];
    const fleeti_grid_def *def = grid->def;
    const fleeti_inputs in = b->inputs[index];
    double tasks = grid->count, at_once = b->total_workers, log = 0;
    double mean = def->timed ? (double)def->mean_ns : 5000;
    double varies = def->timed ? def->variation_percent / 100.0 : in.named ? 0.5 : 0;
    *fixed = *ready = 0;
    if (!grid->count) return;
    if (def->level == FLEET_LEVEL_WAVE) at_once *= 8; /* a workgroup usually has 8 waves */
    if (fleeti_level_of(grid) >= FLEET_LEVEL_CHIPLET) at_once = b->own_chiplets;
    tasks *= grid->parts;
    double exist = in.named && !def->timed ? tasks / 2 : tasks;
    if (def->timed && def->expected && def->expected < exist) exist = def->expected;
    /* A worker runs `rounds` tasks; a fixed queue also holds those that do not exist, `turns` in all. */
    double rounds = (double)(uint64_t)((exist + at_once - 1) / at_once);
    if (rounds < 1) rounds = 1;
    double turns = (double)(uint64_t)((tasks + at_once - 1) / at_once);
    for (uint32_t k = (uint32_t)at_once; k > 1; k /= 2) log += 0.7;
    double tail = log > 0 ? mean * varies * (fleeti_root(2 * log) - 0.65) : 0;
    *fixed = rounds * mean + tail * fleeti_root(rounds) +
             turns * (double)(mixed ? b->costs.mixed_task : b->costs.static_task) +
             in.any * (double)(mixed ? b->costs.mixed_hop : b->costs.static_hop);
    *ready = rounds * mean + tail + rounds * (double)b->costs.dynamic_task +
             in.any * (double)b->costs.dynamic_hop;
}

/* Whether ready queues are worth it for a grid: they must promise to save a seventh of its time. They also slow fixed
   queues down, so that the plan as a whole must gain. A small promised gain is likely to be a loss, because tiles
   that share a memory bus vary together, whereas the estimate assumes that they vary independently. */
static int fleeti_dynamic_pays(double fixed, double ready)
{
    return ready < 0.85 * fixed;
}

static void fleeti_choose_schedules(fleeti_build *b)
{
    double all_fixed = 0, best = 0, fixed, ready, mixed;
    uint32_t must = 0;
    for (uint32_t i = 0; i < b->n_grids; i++) {
        fleeti_bound_grid *grid = &b->grids[i];
        fleeti_estimate(b, i, 0, &fixed, &ready);
        fleeti_estimate(b, i, 1, &mixed, &ready);
        grid->chosen = grid->schedule == FLEET_SCHEDULE_AUTO;
        if (grid->chosen &&
            (b->ranks > 1 || b->inputs[i].outside || fleeti_names_workers(grid->def))) {
            grid->chosen = 0; /* only STATIC is possible */
            grid->schedule = FLEET_SCHEDULE_STATIC;
        }
        must |= grid->schedule == FLEET_SCHEDULE_DYNAMIC;
        all_fixed += fixed;
        best += grid->schedule == FLEET_SCHEDULE_STATIC ||
                        (grid->chosen && !fleeti_dynamic_pays(mixed, ready))
                    ? mixed
                    : ready;
    }
    uint32_t has_ready = must || b->avoid_deadlock || best < 0.95 * all_fixed;
    for (uint32_t i = 0; i < b->n_grids; i++) {
        fleeti_bound_grid *grid = &b->grids[i];
        fleeti_estimate(b, i, has_ready, &grid->static_ns, &grid->dynamic_ns);
        if (!grid->chosen) continue;
        grid->schedule = has_ready && fleeti_dynamic_pays(grid->static_ns, grid->dynamic_ns)
                             ? FLEET_SCHEDULE_DYNAMIC
                             : FLEET_SCHEDULE_STATIC;
        if (!b->avoid_deadlock || !fleeti_is_by_worker(grid)) continue;
        grid->schedule = FLEET_SCHEDULE_DYNAMIC;
        grid->chosen = FLEETI_CHOSEN_AVOIDS_DEADLOCK;
    }
}

/* What a plan for several ranks cannot have. */
static fleet_status fleeti_check_ranks(fleeti_build *b)
{
    for (uint32_t i = 0; i < b->n_grids; i++) {
        const fleeti_grid_def *def = b->grids[i].def;
        if (!def->ranked && b->grids[i].count)
            return fleeti_reject(b, FLEET_ERROR_PLACEMENT, def->site,
                                 "grid %s has no ranks, but the plan is for %u: call "
                                 "fleet_grid_ranks",
                                 def->name, b->ranks);
        if (b->grids[i].schedule == FLEET_SCHEDULE_DYNAMIC)
            return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, def->site,
                                 "grid %s: a ready queue does not reach over ranks: give the grid "
                                 "the schedule STATIC",
                                 def->name);
        if (def->writes | def->cuts)
            return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, def->site,
                                 "grid %s sets a symbol, which other ranks would not see",
                                 def->name);
    }
    for (uint32_t i = 0; i < FLEETI_LEN(b->g->events); i++) {
        const fleeti_event_def *def = &b->g->events[i];
        if (def->outside || (def->scope_given && def->scope == FLEET_SCOPE_SYSTEM))
            return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, def->site,
                                 "event tensor %s: in a plan for several ranks only these use "
                                 "system scope: remove fleet_event_external or fleet_event_scope",
                                 def->name);
    }
    if (b->n_buckets > 1)
        return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, NULL,
                             "plan: one for several ranks has one bucket: bind the symbols at "
                             "build, or name their max as the only bucket");
    if (FLEETI_LEN(b->g->tensors))
        return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, b->g->tensors[0].site,
                             "run-time tensor %s: a plan for several ranks has none",
                             b->g->tensors[0].name);
    return FLEET_OK;
}

static fleet_status fleeti_pass_choose(fleeti_build *b)
{
    fleeti_choose_schedules(b);
    b->schedule = b->desc->schedule == FLEET_SCHEDULE_CHIPLET ? FLEET_SCHEDULE_CHIPLET
                                                              : FLEET_SCHEDULE_STATIC;
    for (uint32_t i = 0; i < b->n_grids; i++)
        if (b->grids[i].schedule != FLEET_SCHEDULE_STATIC) b->schedule = b->grids[i].schedule;
    b->is_static = b->schedule == FLEET_SCHEDULE_STATIC;
    b->is_dynamic = b->schedule == FLEET_SCHEDULE_DYNAMIC;
    return b->ranks > 1 ? fleeti_check_ranks(b) : FLEET_OK;
}

/* ==== >>edges: events, edges and run-time maps become numbers ==== */

/* ---- events ---- */

/* Words between two counters of a tensor. */
static uint32_t fleeti_counter_stride(const fleeti_build *b, uint32_t elements)
{
    if (b->desc->counter_stride_bytes) return b->desc->counter_stride_bytes / 4;
    return elements > 4096 ? 4 : FLEETI_LINE_WORDS;
}

/* Decides which events run-time maps reach element by element. The others collapse to one element, because a task in
   a fixed queue cannot wait for an element that is known only at run time. */
static void fleeti_collapse_events(fleeti_build *b)
{
    const fleeti_edge_def *edges = b->g->edges;
    for (uint32_t i = 0; i < FLEETI_LEN(b->g->events); i++)
        b->events[i].by_tensor = b->is_dynamic && b->g->events[i].by_tensor;
    for (uint32_t i = 0; i < FLEETI_LEN(edges); i++)
        if (edges[i].tensor && !edges[i].out &&
            b->grids[edges[i].grid].schedule != FLEET_SCHEDULE_DYNAMIC)
            b->events[edges[i].event].by_tensor = 0;
}

/* In a plan for several ranks an event tensor has a first axis, the rank of the producers: an element counts arrivals of
   one device only. Out edges reach the element of the task's rank, in edges those of all ranks. Hence no other pass has
   to tell an event over ranks from one within a device. */
static fleet_status fleeti_add_rank_axis(fleeti_build *b, fleeti_bound_event *event)
{
    const uint64_t elements = (uint64_t)event->elements * b->ranks;
    if (event->rank == FLEET_MAX_RANK || elements > FLEETI_MAX_INDEX)
        return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, event->def->site,
                             "event tensor %s: in a plan for several ranks it may have at most %d "
                             "axes, and 2^31-1 elements with those of all ranks",
                             event->def->name, FLEET_MAX_RANK - 1);
    if (event->space.rank) {
        const fleeti_space one = event->space;
        fleeti_space *all = &event->space;
        uint32_t *ranks = FLEETI_ALLOC(b, uint32_t, 2);
        if (!ranks) return fleeti_no_memory(b);
        ranks[1] = b->ranks;
        all->level[0] = ranks, all->prefixes[0] = 1, all->on[0] = 0, all->rank++;
        for (uint32_t k = 0; k < one.rank; k++) {
            const uint32_t n = one.prefixes[k], points = one.level[k][n];
            uint32_t *level = FLEETI_ALLOC(b, uint32_t, (size_t)b->ranks * n + 1u);
            if (!level) return fleeti_no_memory(b);
            for (uint32_t i = 0; i < b->ranks * n; i++)
                level[i] = i / n * points + one.level[k][i % n];
            level[b->ranks * n] = b->ranks * points;
            all->level[k + 1] = level;
            all->prefixes[k + 1] = b->ranks * n;
            all->on[k + 1] = one.on[k] << 1;
        }
    }
    for (uint32_t k = event->rank++; k > 0; k--) event->extent[k] = event->extent[k - 1];
    event->extent[0] = (int32_t)b->ranks;
    event->elements = (uint32_t)elements;
    return FLEET_OK;
}

/* The map of an edge on the axes of its bound event. */
static fleet_map fleeti_edge_map(const fleeti_build *b, const fleeti_edge_def *def,
                                 const fleeti_bound_grid *grid, uint32_t event_rank)
{
    fleet_map map = def->map;
    if (b->ranks == 1) return map;
    map = fleet_map1(def->out ? grid->def->ranks : fleet_axis_all());
    for (uint32_t k = 0; k + 1 < event_rank; k++) map = fleet_map_append(map, def->map.axis[k]);
    return map;
}

static fleet_status fleeti_bind_events(fleeti_build *b)
{
    uint64_t elements = 0, words = 0;
    uint32_t own = FLEETI_LEN(b->g->events), n = own + (b->unfused ? b->n_grids : 0);
    b->n_events = n + 1;
    b->events = FLEETI_ALLOC(b, fleeti_bound_event, b->n_events);
    b->barriers = FLEETI_ALLOC(b, fleeti_event_def, n - own);
    if (!b->events || !b->barriers) return fleeti_no_memory(b);
    for (uint32_t i = own; i < n; i++) {
        const fleeti_grid_def *grid = &b->g->grids[i - own];
        fleeti_event_def *def = &b->barriers[i - own];
        def->site = grid->site;
        snprintf(def->name, sizeof def->name, "before %.*s", (int)sizeof def->name - 8, grid->name);
    }
    fleeti_collapse_events(b);
    for (uint32_t i = 0; i < n; i++) {
        const fleeti_event_def *def = i < own ? &b->g->events[i] : &b->barriers[i - own];
        fleeti_bound_event *event = &b->events[i];
        fleet_status status =
            fleeti_bind_shape(b, &def->shape, "event tensor", def->name, def->site, event->extent,
                              &event->elements, &event->space);
        if (status != FLEET_OK) return status;
        event->def = def;
        event->rank = def->shape.rank;
        if (def->by_tensor && !event->by_tensor) { /* collapsed: one event for all */
            event->rank = 0;
            event->elements = 1;
        }
        if (b->ranks > 1) {
            status = fleeti_add_rank_axis(b, event);
            if (status != FLEET_OK) return status;
        }
        event->first = (uint32_t)elements;
        elements += event->elements;
        if (elements >= FLEETI_MAX_INDEX)
            return fleeti_reject(b, FLEET_ERROR_TOO_MANY_TASKS, def->site,
                                 "event tensor %s brings the graph to over 2^31-1 elements",
                                 def->name);
        event->stride = fleeti_counter_stride(b, event->elements);
        words += (uint64_t)event->elements * event->stride;
        if (words > FLEETI_MAX_INDEX)
            return fleeti_reject(b, FLEET_ERROR_TOO_MANY_TASKS, def->site,
                                 "event tensor %s brings the counters to over 2^31-1 words",
                                 def->name);
        status = fleeti_work(b, FLEETI_WORK_OF_ITEM * (uint64_t)event->elements, "event tensor",
                             def->name, def->site);
        if (status != FLEET_OK) return status;
    }
    fleeti_bound_event *step = &b->events[n];
    step->first = (uint32_t)elements;
    step->elements = 1;
    if (b->ranks > 1 && fleeti_add_rank_axis(b, step) != FLEET_OK) return b->g->build_status;
    step->stride = fleeti_counter_stride(b, step->elements);
    b->n_elements = (uint32_t)elements + step->elements;
    return FLEET_OK;
}

/* The element of the step event that counts the queues of a chiplet's rank. */
static fleeti_element *fleeti_step_of_chiplet(const fleeti_build *b, uint32_t chiplet)
{
    return &b->elements[b->n_elements - b->ranks + chiplet / b->own_chiplets];
}

/* ---- boxes of elements ---- */

static int64_t fleeti_axis_value(const fleeti_axis *a, uint32_t rank, const int32_t *at)
{
    int64_t v = a->offset;
    for (uint32_t k = 0; k < rank; k++) v += a->stride[k] * at[k];
    if (a->modulo) v -= fleeti_floor_div(v, a->modulo) * a->modulo;
    if (a->flip && a->flip_axis) {
        const int64_t shift = (int64_t)at[a->flip_axis - 1] + a->flip_shift;
        /* Beyond 31 bits nothing is inside of any event tensor, whatever the value is. */
        if (shift >= 0) v ^= a->flip << (shift < 31 ? shift : 31);
    } else {
        v ^= a->flip;
    }
    return v;
}

/* The values that the axis takes for a task: returns their number, and the first one in *low. */
static int64_t fleeti_axis_span(const fleeti_axis *a, uint32_t rank, const int32_t *at,
                                int64_t *low)
{
    *low = 0;
    if (a->every) return a->extent;
    int64_t v = fleeti_axis_value(a, rank, at);
    int64_t end = v + a->width < a->limit ? v + a->width : a->limit;
    if (v < a->lower) v = a->lower;
    if (end <= v) return 0;
    *low = fleeti_floor_div(v, a->div);
    return fleeti_floor_div(end - 1, a->div) - *low + 1;
}

/* The box of n[k] values along each axis, without its first element. Axes that are contiguous are merged, so that
   most boxes are a single run. */
static void fleeti_shape_box(fleeti_box *box, const fleeti_edge *edge, const int64_t *n)
{
    box->length = box->runs = 1;
    box->rank = 0;
    for (uint32_t k = edge->rank; k-- > 0;) {
        if (n[k] == 0) box->runs = 0;
        if (n[k] <= 1) continue;
        if (!box->rank && edge->axis[k].row == (int64_t)box->length) {
            box->length *= (uint32_t)n[k];
            continue;
        }
        box->n[box->rank] = (uint32_t)n[k];
        box->step[box->rank++] = (uint32_t)edge->axis[k].row;
        box->runs *= (uint32_t)n[k];
    }
}

/* Fills in the box of a task. *box is a copy of the edge's own box, or was filled in for the same edge. */
static void fleeti_box_of_task(const fleeti_edge *edge, uint32_t grid_rank, const int32_t *at,
                               fleeti_box *box)
{
    int64_t n[FLEET_MAX_RANK], low, first = edge->first;
    if (edge->listed_by) {
        const fleeti_bound_grid *grid = edge->listed_by;
        const uint32_t *own =
            edge->first_of + fleeti_index_of(&grid->space, grid->extent, grid->rank, at);
        box->list = edge->list + own[0];
        box->runs = own[1] - own[0];
        box->length = 1;
        box->first = box->runs ? box->list[0] : 0;
        return;
    }
    if (edge->affine) {
        for (uint32_t k = 0; k < grid_rank; k++) first += edge->step[k] * at[k];
    } else {
        for (uint32_t k = 0; k < edge->rank; k++) {
            n[k] = fleeti_axis_span(&edge->axis[k], grid_rank, at, &low);
            first += low * edge->axis[k].row;
        }
        fleeti_shape_box(box, edge, n);
    }
    box->first = (uint32_t)first;
}

static uint32_t fleeti_box_run(const fleeti_box *box, uint32_t run)
{
    uint32_t first = box->first;
    if (box->list) return box->list[run];
    for (uint32_t k = 0; k < box->rank; k++) {
        first += run % box->n[k] * box->step[k];
        run /= box->n[k];
    }
    return first;
}

/* Goes through the elements that a task reaches through an edge:
       fleeti_reach r = fleeti_reach_of(edge, grid->rank, at);
       while (fleeti_reach_next(&r)) ... r.e ... */
typedef struct fleeti_reach {
    fleeti_box box;
    uint32_t runs; /* begun */
    uint32_t e, end;
} fleeti_reach;

static fleeti_reach fleeti_reach_of(const fleeti_edge *edge, uint32_t grid_rank, const int32_t *at)
{
    fleeti_reach r;
    r.box = edge->box;
    r.runs = r.e = r.end = 0;
    fleeti_box_of_task(edge, grid_rank, at, &r.box);
    return r;
}

static int fleeti_reach_next(fleeti_reach *r)
{
    if (r->e + 1 < r->end) {
        r->e++;
        return 1;
    }
    if (r->runs == r->box.runs) return 0;
    r->e = fleeti_box_run(&r->box, r->runs++);
    r->end = r->e + r->box.length;
    return 1;
}

/* Binds the axes of a map. Afterwards no value for a task of the grid can overflow. */
static fleet_status fleeti_bind_map(fleeti_build *b, const fleet_map *map,
                                    const fleeti_bound_grid *grid, const char *what,
                                    const char *site, fleeti_axis *axis)
{
    for (uint32_t j = 0; j < map->rank; j++) {
        const fleet_axis_map *from = &map->axis[j];
        int64_t size =
            fleeti_add(from->offset < 0 ? -fleeti_clamp(from->offset) : from->offset, from->width);
        axis[j].every = from->every;
        if (from->every) continue;
        memcpy(axis[j].stride, from->stride, sizeof axis[j].stride);
        axis[j].offset = from->offset;
        axis[j].div = from->div;
        axis[j].width = from->width;
        axis[j].limit = FLEETI_NO_LIMIT;
        if (from->clipped || from->limit.add || from->limit.symbol)
            axis[j].limit = fleeti_evaluate(b, from->limit);
        axis[j].lower = from->clipped ? fleeti_evaluate(b, from->lower) : FLEETI_NO_LOWER;
        axis[j].flip = from->flip;
        axis[j].flip_axis = from->flip_axis;
        axis[j].flip_shift = from->flip_shift;
        axis[j].modulo = 0;
        if (from->modulo.add || from->modulo.symbol) {
            axis[j].modulo = fleeti_evaluate(b, from->modulo);
            if (from->modulo.symbol && b->at_launch[from->modulo.symbol - 1u])
                return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, site,
                                     "%s of grid %s: the modulus of map axis %u has a symbol that "
                                     "is bound at launch: bind it when the plan is built",
                                     what, grid->def->name, j);
            if (axis[j].modulo <= 0)
                return fleeti_reject(b, FLEET_ERROR_ARGUMENT, site,
                                     "%s of grid %s: the modulus of map axis %u is %lld, not over "
                                     "0",
                                     what, grid->def->name, j, (long long)axis[j].modulo);
        }
        if (axis[j].limit < 0 && !from->clipped)
            return fleeti_reject(b, FLEET_ERROR_ARGUMENT, site,
                                 "%s of grid %s: limit of map axis %u is %lld, below 0", what,
                                 grid->def->name, j, (long long)axis[j].limit);
        for (uint32_t k = 0; k < grid->rank; k++) {
            int64_t stride = fleeti_clamp(from->stride[k]);
            size = fleeti_add(size, fleeti_mul(stride < 0 ? -stride : stride, grid->extent[k]));
        }
        if (fleeti_is_huge(size) || fleeti_is_huge(from->div))
            return fleeti_reject(b, FLEET_ERROR_MAP, site,
                                 "%s of grid %s: the numbers of map axis %u overflow", what,
                                 grid->def->name, j);
    }
    return FLEET_OK;
}

/* Whether all tasks of the grid stay inside the event tensor, by the corners of the grid: a linear form has its
   extremes there. A map with limits may fail this test and be valid. */
static int fleeti_corners_inside(const fleeti_edge *edge, const fleeti_bound_grid *grid)
{
    for (uint32_t j = 0; j < edge->rank; j++) {
        const fleeti_axis *a = &edge->axis[j];
        int64_t min = a->offset, max = a->offset;
        if (a->every) continue;
        if (a->flip) return 0;
        for (uint32_t k = 0; k < grid->rank; k++) {
            int64_t far = a->stride[k] * (grid->extent[k] - 1);
            if (far < 0)
                min += far;
            else
                max += far;
        }
        if (a->modulo) min = 0, max = a->modulo - 1;
        int64_t end = max + a->width < a->limit ? max + a->width : a->limit;
        if (min < a->lower) min = a->lower;
        if (min < 0 || fleeti_floor_div(end - 1, a->div) >= a->extent) return 0;
    }
    return 1;
}

static fleet_status fleeti_check_range(fleeti_build *b, const fleeti_edge *edge)
{
    const fleeti_bound_grid *grid = &b->grids[edge->grid];
    const fleeti_bound_event *event = &b->events[edge->event];
    int32_t at[FLEET_MAX_RANK];
    char task[FLEETI_POINT_BYTES];
    if (fleeti_corners_inside(edge, grid)) return FLEET_OK;
    if (fleeti_work_of_grid(b, grid, grid->count) != FLEET_OK) return b->g->build_status;
    fleeti_first_coordinate(grid, at);
    for (uint32_t i = 0; i < grid->count; i++, fleeti_next_coordinate(grid, at)) {
        int64_t low, n, value = 0;
        uint32_t outside = FLEETI_NONE, empty = 0;
        for (uint32_t j = 0; j < edge->rank; j++) {
            n = fleeti_axis_span(&edge->axis[j], grid->rank, at, &low);
            if (!n) empty = 1;
            if (low >= 0 && low + n <= edge->axis[j].extent) continue;
            outside = j;
            value = low < 0 ? low : low + n - 1;
        }
        if (outside != FLEETI_NONE && !empty)
            return fleeti_reject(
                b, FLEET_ERROR_MAP_RANGE, edge->def->site,
                "%s edge: task %s reaches %lld on axis %u of event tensor %s, whose extent is %lld",
                edge->def->out ? "out" : "in", fleeti_task_text(b, grid->first + i, task),
                (long long)value, outside, event->def->name, (long long)edge->axis[outside].extent);
    }
    return FLEET_OK;
}

/* The way of one task through the tree of an event's elements. */
typedef struct fleeti_descent {
    const fleeti_space *space;
    uint32_t first;                                 /* element */
    int64_t low[FLEET_MAX_RANK], n[FLEET_MAX_RANK]; /* values on each axis that is not "every" */
    int32_t at[FLEET_MAX_RANK];
    uint32_t every;        /* a bit for each axis that is */
    uint32_t *list;        /* null: they are counted only */
    uint32_t found;        /* elements */
    uint32_t outside;      /* 1 + an axis on which a value is outside; 0: none */
    int64_t value, extent; /* there */
    int32_t outside_at[FLEET_MAX_RANK];
} fleeti_descent;

/* Goes through the values on axis k after a prefix. Where the extent depends on an axis of which
   the task reaches every value, those prefixes count that have the value. 0: a value is outside. */
static int fleeti_descend(fleeti_descent *d, uint32_t k, uint32_t prefix)
{
    const uint32_t *own = d->space->level[k] + prefix;
    const int64_t extent = own[1] - own[0];
    int64_t v = d->every >> k & 1u ? 0 : d->low[k];
    int64_t end = d->every >> k & 1u ? extent : v + d->n[k];
    if (v < 0 || end > extent) {
        d->outside = k + 1;
        d->value = v < 0 ? v : end - 1;
        d->extent = extent;
        memcpy(d->outside_at, d->at, sizeof d->at);
        if (!(d->every & d->space->on[k])) return 0;
        if (v < 0) v = 0;
        if (end > extent) end = extent;
    }
    for (; v < end; v++) {
        d->at[k] = (int32_t)v;
        if (k + 1 < d->space->rank) {
            if (!fleeti_descend(d, k + 1, own[0] + (uint32_t)v)) return 0;
            continue;
        }
        if (d->list) d->list[d->found] = d->first + own[0] + (uint32_t)v;
        d->found++;
    }
    return 1;
}

/* The elements of an event whose extents depend on axes that a task reaches. */
static fleet_status fleeti_list_task(fleeti_build *b, const fleeti_edge *edge, uint32_t i,
                                     const int32_t *at, uint32_t *list, uint32_t *n)
{
    const fleeti_bound_grid *grid = &b->grids[edge->grid];
    const fleeti_bound_event *event = &b->events[edge->event];
    char task[FLEETI_POINT_BYTES], where[FLEETI_POINT_BYTES];
    fleeti_descent d;
    memset(&d, 0, sizeof d);
    d.space = &event->space;
    d.first = event->first;
    d.list = list;
    *n = 0;
    for (uint32_t k = 0; k < edge->rank; k++) {
        d.every |= (edge->axis[k].every ? 1u : 0u) << k;
        d.n[k] = fleeti_axis_span(&edge->axis[k], grid->rank, at, &d.low[k]);
        if (!d.n[k] && !edge->axis[k].every) return FLEET_OK;
    }
    const int inside = fleeti_descend(&d, 0, 0);
    *n = d.found;
    if (inside && (d.found || !d.outside)) return FLEET_OK;
    fleeti_text out = fleeti_text_at(where, sizeof where);
    fleeti_put_point(&out, event->def->name, d.outside_at, d.outside - 1u, "[]");
    return fleeti_reject(
        b, FLEET_ERROR_MAP_RANGE, edge->def->site,
        "%s edge: task %s reaches %lld on axis %u of event tensor %s, whose extent is %lld at %s",
        edge->def->out ? "out" : "in", fleeti_task_text(b, grid->first + i, task),
        (long long)d.value, d.outside - 1u, event->def->name, (long long)d.extent, where);
}

/* Lists the elements of such an event by task. */
static fleet_status fleeti_list_elements(fleeti_build *b, fleeti_edge *edge)
{
    const fleeti_bound_grid *grid = &b->grids[edge->grid];
    int32_t at[FLEET_MAX_RANK];
    uint64_t all = 0;
    uint32_t n;
    edge->first_of = FLEETI_ALLOC(b, uint32_t, grid->count + 1u);
    if (!edge->first_of) return fleeti_no_memory(b);
    for (uint32_t pass = 0; pass < 2; pass++) {
        fleeti_first_coordinate(grid, at);
        for (uint32_t i = 0; i < grid->count; i++, fleeti_next_coordinate(grid, at)) {
            uint32_t *list = pass ? edge->list + edge->first_of[i] : NULL;
            fleet_status status = fleeti_list_task(b, edge, i, at, list, &n);
            if (status == FLEET_OK && !pass)
                status = fleeti_work_of_grid(b, grid, FLEETI_WORK_OF_PREFIX * (n + 1ull));
            if (status != FLEET_OK) return status;
            if (pass) continue;
            all += n;
            if (all > FLEETI_MAX_INDEX)
                return fleeti_reject(b, FLEET_ERROR_TOO_MANY_EDGES, edge->def->site,
                                     "%s edge of grid %s: its tasks reach over 2^31-1 elements",
                                     edge->def->out ? "out" : "in", grid->def->name);
            edge->first_of[i + 1] = (uint32_t)all;
        }
        if (!pass) edge->list = FLEETI_ALLOC(b, uint32_t, (size_t)all + 1u);
        if (!edge->list) return fleeti_no_memory(b);
    }
    edge->listed_by = grid;
    return FLEET_OK;
}

static fleet_status fleeti_bind_edge(fleeti_build *b, const fleeti_edge_def *def, fleeti_edge *edge)
{
    const fleeti_bound_grid *grid = &b->grids[def->grid];
    const fleeti_bound_event *event = &b->events[def->event];
    int64_t row = 1, n[FLEET_MAX_RANK];
    fleet_status status;
    edge->def = def;
    edge->grid = def->grid;
    edge->event = def->event;
    edge->rank = event->rank;
    edge->first = event->first;
    edge->affine = 1;
    if (!grid->count) return FLEET_OK; /* the edge is never evaluated */
    fleet_map map = fleeti_edge_map(b, def, grid, event->rank);
    status =
        fleeti_bind_map(b, &map, grid, def->out ? "out edge" : "in edge", def->site, edge->axis);
    if (status != FLEET_OK) return status;
    for (uint32_t j = edge->rank; j-- > 0;) {
        fleeti_axis *a = &edge->axis[j];
        a->extent = event->extent[j];
        a->row = row;
        row *= a->extent;
        if (!a->every && (a->div != 1 || a->width != 1 || a->limit != FLEETI_NO_LIMIT ||
                          a->lower != FLEETI_NO_LOWER || a->modulo || a->flip))
            edge->affine = 0;
    }
    if (event->space.rank) {
        edge->affine = 0;
        return fleeti_list_elements(b, edge);
    }
    status = fleeti_check_range(b, edge);
    if (status != FLEET_OK || !edge->affine) return status;
    for (uint32_t j = 0; j < edge->rank; j++) {
        const fleeti_axis *a = &edge->axis[j];
        n[j] = a->every ? a->extent : 1;
        if (a->every) continue;
        edge->first += a->offset * a->row;
        for (uint32_t k = 0; k < grid->rank; k++) edge->step[k] += a->stride[k] * a->row;
    }
    fleeti_shape_box(&edge->box, edge, n);
    return FLEET_OK;
}

/* Whether an edge of the graph becomes records of the plan. Those of a run-time map do so only if its event has
   collapsed; an unfused plan keeps only the edges of external events. */
static int fleeti_edge_has_records(const fleeti_build *b, const fleeti_edge_def *def)
{
    if (b->unfused) return b->g->events[def->event].outside != 0;
    return !def->tensor || !b->events[def->event].by_tensor;
}

/* The edges of the plan, by number: those of the graph; one from the writer of the counts of each collapsed event; in
   an unfused plan also two for each grid, from the grid before it and to it. Null if a number has no edge. */
static uint32_t fleeti_edge_numbers(const fleeti_build *b)
{
    return FLEETI_LEN(b->g->edges) + FLEETI_LEN(b->g->events) + (b->unfused ? 2 * b->n_grids : 0);
}
static const fleeti_edge_def *fleeti_edge_at(const fleeti_build *b, uint32_t i,
                                             fleeti_edge_def *made)
{
    const fleet_graph *g = b->g;
    uint32_t n = FLEETI_LEN(g->edges), events = FLEETI_LEN(g->events);
    if (i < n) return fleeti_edge_has_records(b, &g->edges[i]) ? &g->edges[i] : NULL;
    memset(made, 0, sizeof *made);
    i -= n;
    if (i < events) {
        if (!g->events[i].counts || b->events[i].by_tensor || b->unfused) return NULL;
        made->site = g->events[i].site;
        made->grid = g->tensors[g->events[i].counts - 1u].writer;
        made->event = i;
        made->out = 1;
        return made;
    }
    i -= events;
    uint32_t grid = i / 2;
    uint32_t before = b->before[grid];
    if (!before || !b->grids[grid].count) return NULL; /* it is the first grid */
    made->site = g->grids[grid].site;
    made->grid = i % 2 ? grid : before - 1;
    made->event = events + grid;
    made->out = i % 2 == 0;
    return made;
}

/* Whether events lead from some task of a grid to some task of another one. Visits each grid and event once. Lists of
   edges are chains of 1 + the edge's index; 0 ends them. */
static fleet_status fleeti_leads_to(fleeti_build *b, uint32_t from, uint32_t to, uint32_t *leads)
{
    const fleet_graph *g = b->g;
    const uint32_t n = FLEETI_LEN(g->edges), n_events = FLEETI_LEN(g->events);
    uint32_t *out_of = FLEETI_ALLOC(b, uint32_t, b->n_grids);
    uint32_t *into = FLEETI_ALLOC(b, uint32_t, n_events);
    uint32_t *next = FLEETI_ALLOC(b, uint32_t, n);
    uint32_t *stack = FLEETI_ALLOC(b, uint32_t, b->n_grids + 1u);
    uint8_t *seen = FLEETI_ALLOC(b, uint8_t, b->n_grids);
    uint32_t count = 1;
    *leads = 0;
    if (!out_of || !into || !next || !stack || !seen) return fleeti_no_memory(b);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *chain = g->edges[i].out ? &out_of[g->edges[i].grid] : &into[g->edges[i].event];
        next[i] = *chain;
        *chain = i + 1;
    }
    stack[0] = from;
    seen[from] = 1;
    while (count) {
        for (uint32_t i = out_of[stack[--count]]; i; i = next[i - 1]) {
            uint32_t *waiters = &into[g->edges[i - 1].event];
            for (uint32_t k = *waiters; k; k = next[k - 1]) {
                const uint32_t grid = g->edges[k - 1].grid;
                if (grid == to) *leads = 1;
                if (!seen[grid]) stack[count++] = grid;
                seen[grid] = 1;
            }
            *waiters = 0; /* all of them are visited */
        }
    }
    return FLEET_OK;
}

/* Unfused plans run grids in the order in which they were added. Checks that their events allow it. */
static fleet_status fleeti_check_unfused(fleeti_build *b)
{
    const fleeti_edge_def *edges = b->g->edges;
    uint32_t *last = FLEETI_ALLOC(b, uint32_t, FLEETI_LEN(b->g->events));
    if (!last) return fleeti_no_memory(b);
    for (uint32_t i = 0; i < FLEETI_LEN(edges); i++)
        if (edges[i].out && edges[i].grid + 1 > last[edges[i].event])
            last[edges[i].event] = edges[i].grid + 1;
    for (uint32_t i = 0; i < FLEETI_LEN(b->g->events); i++) {
        const uint32_t counts = b->g->events[i].counts; /* their writer completes elements too */
        if (counts && b->g->tensors[counts - 1u].writer + 1 > last[i])
            last[i] = b->g->tensors[counts - 1u].writer + 1;
    }
    for (uint32_t i = 0; i < FLEETI_LEN(edges); i++)
        if (!edges[i].out && last[edges[i].event] > edges[i].grid) {
            const uint32_t late = last[edges[i].event] - 1;
            uint32_t leads = late == edges[i].grid;
            fleet_status status =
                leads ? FLEET_OK : fleeti_leads_to(b, edges[i].grid, late, &leads);
            if (status != FLEET_OK) return status;
            return fleeti_reject(b, FLEET_ERROR_ORDER, edges[i].site,
                                 "unfused: grid %s waits for event tensor %s, which grid %s "
                                 "notifies: %s",
                                 b->grids[edges[i].grid].def->name,
                                 b->g->events[edges[i].event].name, b->grids[late].def->name,
                                 leads ? "no order of the grids helps: split one of them"
                                       : "add that grid first");
        }
    return FLEET_OK;
}

/* Sorts the edges by grid, in the order of the calls, and binds them. */
static fleet_status fleeti_bind_edges(fleeti_build *b)
{
    uint32_t n = fleeti_edge_numbers(b), n_outs = 0, n_ins = 0;
    fleeti_edge_def *made = FLEETI_ALLOC(b, fleeti_edge_def, n - FLEETI_LEN(b->g->edges) + 1u);
    if (!made) return fleeti_no_memory(b);
    if (b->unfused && fleeti_check_unfused(b) != FLEET_OK) return b->g->build_status;
    for (uint32_t i = 0; i < n; i++) {
        const fleeti_edge_def *def = fleeti_edge_at(b, i, made);
        if (!def) continue;
        if (def->out)
            b->grids[def->grid].n_outs++;
        else
            b->grids[def->grid].n_ins++;
    }
    for (uint32_t i = 0; i < b->n_grids; i++) {
        fleeti_bound_grid *grid = &b->grids[i];
        grid->first_out = n_outs;
        grid->first_in = n_ins;
        n_outs += grid->n_outs;
        n_ins += grid->n_ins;
        grid->n_outs = grid->n_ins = 0;
    }
    b->outs = FLEETI_ALLOC(b, fleeti_edge, n_outs);
    b->ins = FLEETI_ALLOC(b, fleeti_edge, n_ins);
    if (!b->outs || !b->ins) return fleeti_no_memory(b);
    for (uint32_t i = 0; i < n; i++) {
        const fleeti_edge_def *def = fleeti_edge_at(b, i, made);
        if (!def) continue;
        if (def == made) made++;
        fleeti_bound_grid *grid = &b->grids[def->grid];
        fleeti_edge *edge = def->out ? &b->outs[grid->first_out + grid->n_outs++]
                                     : &b->ins[grid->first_in + grid->n_ins++];
        fleet_status status = fleeti_bind_edge(b, def, edge);
        if (status != FLEET_OK) return status;
        if (def->out && !grid->count) b->events[def->event].may_be_empty = 1;
    }
    return FLEET_OK;
}

/* ---- binding run-time maps ---- */

static fleet_status fleeti_reject_tensor(fleeti_build *b, const fleeti_tensor_def *tensor,
                                         fleet_status status, const char *format, ...)
{
    char why[256];
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    return fleeti_reject(b, status, tensor->site, "run-time tensor %s: %s", tensor->name, why);
}

/* The extents of a tensor in this bucket. Its writer must be one CU-task or, unless one_writer, have a task for each
   row. */
static fleet_status fleeti_bind_tensor_shape(fleeti_build *b, uint32_t tensor, uint32_t one_writer,
                                             int32_t *extent)
{
    const fleeti_tensor_def *def = &b->g->tensors[tensor];
    const fleeti_bound_grid *writer = &b->grids[def->writer];
    uint32_t count;
    fleet_status status = fleeti_bind_shape(b, &def->shape, "run-time tensor", def->name, def->site,
                                            extent, &count, NULL);
    if (status != FLEET_OK) return status;
    if (writer->count == 1 && writer->def->level == FLEET_LEVEL_CU &&
        !fleeti_is_guarded(b, writer->def))
        return FLEET_OK;
    if (one_writer)
        return fleeti_reject_tensor(b, def, FLEET_ERROR_UNSUPPORTED,
                                    "one CU-task must write counts and ranges, but grid %s has %u "
                                    "tasks, another level, or a symbol in its shape",
                                    writer->def->name, writer->count);
    if (writer->rank == 1 && writer->count == (uint32_t)extent[0]) return FLEET_OK;
    return fleeti_reject_tensor(
        b, def, FLEET_ERROR_UNSUPPORTED,
        "one CU-task must write its %d rows, or task i row i, but grid %s has %u tasks",
        (int)extent[0], writer->def->name, writer->count);
}

static fleeti_runtime_map *fleeti_add_map(fleeti_build *b, uint32_t grid, uint32_t kind,
                                          uint32_t tensor, uint32_t event)
{
    const fleeti_bound_event *e = &b->events[event];
    fleeti_runtime_map *map = &b->maps[b->n_maps++];
    memset(map, 0, sizeof *map);
    map->kind = kind;
    map->tensor = tensor;
    map->grid = grid;
    map->first_element = e->first;
    map->elements = (uint32_t)e->extent[0];
    map->inner = event;
    return map;
}

/* Whether the launch follows the map. If its event has collapsed, records of the plan stand in for it. */
static int fleeti_map_is_live(const fleeti_build *b, const fleeti_runtime_map *map)
{
    return b->events[map->inner].by_tensor != 0;
}

static fleet_status fleeti_work_of_map(fleeti_build *b, const fleeti_edge_def *def)
{
    return fleeti_work_of_grid(b, &b->grids[def->grid], b->events[def->event].elements);
}

/* A gather: each row names elements of the event. */
static fleet_status fleeti_bind_gather(fleeti_build *b, const fleeti_edge_def *def)
{
    const fleeti_tensor_def *tensor = &b->g->tensors[def->tensor - 1u];
    int32_t extent[FLEET_MAX_RANK];
    fleet_status status = fleeti_bind_tensor_shape(b, def->tensor - 1u, 0, extent);
    if (status == FLEET_OK) status = fleeti_work_of_map(b, def);
    if (status != FLEET_OK) return status;
    if ((uint32_t)extent[0] != b->grids[def->grid].count)
        return fleeti_reject_tensor(
            b, tensor, FLEET_ERROR_MAP_RANGE,
            "it has %d rows, but grid %s, which gathers by it, has %u tasks", (int)extent[0],
            b->grids[def->grid].def->name, b->grids[def->grid].count);
    if (extent[1] && !b->events[def->event].extent[0])
        return fleeti_reject_tensor(b, tensor, FLEET_ERROR_MAP_RANGE,
                                    "it names elements of event tensor %s, which has none",
                                    b->events[def->event].def->name);
    fleeti_runtime_map *map =
        fleeti_add_map(b, def->grid, FLEETI_MAP_GATHER, def->tensor - 1u, def->event);
    map->values = (uint32_t)extent[1];
    map->bound = map->elements ? map->elements - 1 : 0;
    if (!tensor->none_given) return FLEET_OK;
    map->none = (uint32_t)tensor->none;
    if (map->none < map->elements)
        return fleeti_reject_tensor(b, tensor, FLEET_ERROR_MAP_RANGE,
                                    "%d is to name no element, but event tensor %s has %u "
                                    "elements: declare -1 or another value outside of them",
                                    (int)tensor->none, b->events[def->event].def->name,
                                    map->elements);
    return FLEET_OK;
}

static fleet_status fleeti_bind_counts(fleeti_build *b, uint32_t event)
{
    const fleeti_event_def *def = &b->g->events[event];
    const fleeti_tensor_def *tensor = &b->g->tensors[def->counts - 1u];
    int32_t extent[FLEET_MAX_RANK];
    fleet_status status = fleeti_bind_tensor_shape(b, def->counts - 1u, 1, extent);
    if (status != FLEET_OK) return status;
    if (extent[0] != b->events[event].extent[0] || def->count < 1 || def->count > FLEETI_MAX_INDEX)
        return fleeti_reject_tensor(b, tensor, FLEET_ERROR_WAIT_COUNT,
                                    "it has %d counts for the %d elements of event tensor %s, "
                                    "whose count, their bound, is %lld",
                                    (int)extent[0], (int)b->events[event].extent[0], def->name,
                                    (long long)def->count);
    fleeti_runtime_map *map =
        fleeti_add_map(b, tensor->writer, FLEETI_MAP_COUNTS, def->counts - 1u, event);
    map->values = (uint32_t)extent[0];
    map->bound = (uint32_t)def->count;
    return FLEET_OK;
}

/* A range: one map for the writer, which checks the tensor, and one for the grid whose tasks it names. */
static fleet_status fleeti_bind_range(fleeti_build *b, const fleeti_edge_def *def)
{
    const fleeti_tensor_def *tensor = &b->g->tensors[def->tensor - 1u];
    const fleeti_bound_grid *grid = &b->grids[def->grid];
    const uint32_t kind[2] = {FLEETI_MAP_RANGES, FLEETI_MAP_EXISTS};
    int32_t extent[FLEET_MAX_RANK];
    fleet_status status = fleeti_bind_tensor_shape(b, def->tensor - 1u, 1, extent);
    if (status == FLEET_OK) status = fleeti_work_of_map(b, def);
    if (status != FLEET_OK) return status;
    if (extent[0] != b->events[def->event].extent[0] + 1)
        return fleeti_reject_tensor(b, tensor, FLEET_ERROR_MAP_RANGE,
                                    "it has %d values, not one more than the %d elements of event "
                                    "tensor %s",
                                    (int)extent[0], (int)b->events[def->event].extent[0],
                                    b->events[def->event].def->name);
    if (grid->space.rank)
        return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, def->site,
                             "range edge of grid %s: an extent depends on an axis, but a range "
                             "needs as many tasks for each value of the first axis",
                             grid->def->name);
    for (uint32_t i = 0; i < 2; i++) {
        fleeti_runtime_map *map = fleeti_add_map(b, i ? def->grid : tensor->writer, kind[i],
                                                 def->tensor - 1u, def->event);
        map->values = (uint32_t)extent[0];
        map->bound = (uint32_t)grid->extent[0];
        map->first = def->grid;
    }
    return FLEET_OK;
}

/* Binds the run-time maps and sorts them by grid. While the plan is built, map.grid is the grid that has the map,
   map.first the grid whose tasks a range names, and map.inner the event. */
static fleet_status fleeti_bind_maps(fleeti_build *b)
{
    const fleet_graph *g = b->g;
    uint32_t n = 0, i;
    fleet_status status = FLEET_OK;
    for (i = 0; i < FLEETI_LEN(g->edges); i++) n += g->edges[i].tensor ? 2 : 0;
    for (i = 0; i < FLEETI_LEN(g->events); i++) n += g->events[i].counts != 0;
    b->maps = FLEETI_ALLOC(b, fleeti_runtime_map, n);
    fleeti_runtime_map *sorted = FLEETI_ALLOC(b, fleeti_runtime_map, n);
    if (!b->maps || !sorted) return fleeti_no_memory(b);
    for (i = 0; i < FLEETI_LEN(g->events) && status == FLEET_OK; i++) {
        if (g->events[i].by_tensor && g->events[i].outside)
            return fleeti_reject(
                b, FLEET_ERROR_UNSUPPORTED, g->events[i].site,
                "event tensor %s: run-time maps reach it, so that it cannot be external",
                g->events[i].name);
        if (b->events[i].by_tensor && g->events[i].scope_given &&
            g->events[i].scope == FLEET_SCOPE_SYSTEM)
            return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, g->events[i].site,
                                 "event tensor %s: its scope is system, but under DYNAMIC run-time "
                                 "maps arrive only at counters in device memory",
                                 g->events[i].name);
        if (g->events[i].counts) status = fleeti_bind_counts(b, i);
    }
    for (i = 0; i < FLEETI_LEN(g->edges) && status == FLEET_OK; i++) {
        const fleeti_edge_def *def = &g->edges[i];
        if (def->out && !def->tensor && g->events[def->event].by_tensor)
            return fleeti_reject(
                b, FLEET_ERROR_MAP, def->site,
                "event tensor %s: run-time maps reach it, so that only gather edges may notify it",
                g->events[def->event].name);
        if (!def->tensor || !b->grids[def->grid].count) continue;
        if (b->grids[def->grid].def->level > FLEET_LEVEL_CU)
            return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, def->site,
                                 "grid %s: only CU- and wavefront-tasks have run-time maps",
                                 b->grids[def->grid].def->name);
        status = def->out ? fleeti_bind_gather(b, def) : fleeti_bind_range(b, def);
    }
    if (status != FLEET_OK) return status;
    for (uint32_t k = 0; k < b->n_maps; k++) b->grids[b->maps[k].grid].n_maps++;
    for (i = 0, n = 0; i < b->n_grids; i++) {
        b->grids[i].first_map = n;
        n += b->grids[i].n_maps;
        b->grids[i].n_maps = 0;
    }
    for (uint32_t k = 0; k < b->n_maps; k++) {
        fleeti_bound_grid *grid = &b->grids[b->maps[k].grid];
        sorted[grid->first_map + grid->n_maps++] = b->maps[k];
    }
    b->maps = sorted;
    return FLEET_OK;
}

static fleet_status fleeti_pass_edges(fleeti_build *b)
{
    fleet_status status = fleeti_bind_events(b);
    if (status == FLEET_OK) status = fleeti_bind_edges(b);
    if (status == FLEET_OK) status = fleeti_bind_maps(b);
    return status;
}

/* ==== >>place: each task gets its chiplet and worker ==== */

/* The single value of a placement axis for a task. */
static fleet_status fleeti_place_value(fleeti_build *b, const fleeti_bound_grid *grid,
                                       const fleeti_axis *axis, uint32_t id, const int32_t *at,
                                       const char *what, uint32_t bound, uint32_t *value)
{
    char task[FLEETI_POINT_BYTES];
    int64_t low, n = fleeti_axis_span(axis, grid->rank, at, &low);
    if (n != 1)
        return fleeti_reject(b, FLEET_ERROR_PLACEMENT, grid->def->site,
                             "placement of grid %s: task %s has %lld %ss, not one", grid->def->name,
                             fleeti_task_text(b, id, task), (long long)n, what);
    if (low < 0 || low >= bound)
        return fleeti_reject(b, FLEET_ERROR_PLACEMENT, grid->def->site,
                             "placement of grid %s: task %s names %s %lld of %u", grid->def->name,
                             fleeti_task_text(b, id, task), what, (long long)low, bound);
    *value = (uint32_t)low;
    return FLEET_OK;
}

static fleet_status fleeti_check_place(fleeti_build *b, const fleeti_bound_grid *grid,
                                       fleeti_axis *axis)
{
    const fleeti_grid_def *def = grid->def;
    if (!def->placed) return FLEET_OK;
    if (def->level == FLEET_LEVEL_DEVICE)
        return fleeti_reject(b, FLEET_ERROR_PLACEMENT, def->site,
                             "placement of grid %s: slice s of a device-task always runs on "
                             "chiplet s mod X: remove fleet_grid_place",
                             def->name);
    if (fleeti_names_workers(def) && !fleeti_is_by_worker(grid))
        return fleeti_reject(b, FLEET_ERROR_PLACEMENT, def->site,
                             "placement of grid %s: only a STATIC grid may name workers",
                             def->name);
    if (def->place.rank == 2 && def->level == FLEET_LEVEL_CHIPLET)
        return fleeti_reject(b, FLEET_ERROR_PLACEMENT, def->site,
                             "placement of grid %s: all workers of a chiplet run a chiplet-task: "
                             "name only the chiplet",
                             def->name);
    return fleeti_bind_map(b, &def->place, grid, "placement", def->site, axis);
}

/* Adds the descriptors of n tasks with this slot to the counts of their queues. */
static void fleeti_count_descs(const fleeti_build *b, const fleeti_bound_grid *grid, uint32_t slot,
                               uint64_t n, uint64_t *count)
{
    const fleeti_queue_set s = fleeti_queues_of(b, grid, slot);
    for (uint32_t j = 0; j < s.queues; j++) count[s.first + j] += n * s.copies;
}

/* The largest number of descriptors that the grid's tasks may have. */
static uint64_t fleeti_descs_of(const fleeti_build *b, const fleeti_bound_grid *grid)
{
    uint32_t most = 1;
    for (uint32_t k = 0; k < b->chiplets && fleeti_level_of(grid) >= FLEET_LEVEL_CHIPLET; k++) {
        const fleeti_queue_set s = fleeti_queues_of(b, grid, k);
        if (s.queues * s.copies > most) most = s.queues * s.copies;
    }
    return (uint64_t)grid->count * grid->parts * most;
}

/* The stored slot of a part of a task. Part is 0 for tasks that are placed as a whole. */
static uint32_t fleeti_stored_slot(const fleeti_build *b, const fleeti_bound_grid *grid,
                                   uint32_t id, uint32_t part)
{
    const uint32_t i = id - grid->first;
    return b->slot[grid->first_slot + (grid->tiles ? i * grid->parts + part : i)];
}

/* The number of parts of a shard. */
static uint32_t fleeti_parts_of_shard(const fleeti_build *b, const fleeti_bound_grid *grid,
                                      uint32_t shard)
{
    return (grid->parts - shard + b->own_chiplets - 1) / b->own_chiplets;
}

/* The first chiplet of a task's rank. */
static uint32_t fleeti_first_chiplet(const fleeti_build *b, uint32_t id)
{
    return b->rank_of ? b->rank_of[id] * b->own_chiplets : 0;
}

/* The chiplet of a shard. */
static uint32_t fleeti_shard_chiplet(const fleeti_build *b, const fleeti_bound_grid *grid,
                                     uint32_t id, uint32_t shard)
{
    const uint32_t level = fleeti_level_of(grid);
    if (level == FLEET_LEVEL_DEVICE) return fleeti_first_chiplet(b, id) + shard;
    uint32_t slot = fleeti_stored_slot(b, grid, id, shard);
    return fleeti_is_by_worker(grid) && level != FLEET_LEVEL_CHIPLET ? b->chiplet_of[slot] : slot;
}

/* The slot of a part of a task, for fleeti_queues_of. */
static uint32_t fleeti_slot_of(const fleeti_build *b, const fleeti_bound_grid *grid, uint32_t id,
                               uint32_t part)
{
    return fleeti_level_of(grid) == FLEET_LEVEL_DEVICE
               ? fleeti_first_chiplet(b, id) + part % b->own_chiplets
               : fleeti_stored_slot(b, grid, id, part);
}

/* Finds the rank of each task of a grid, and the number of its tasks on each rank. */
static fleet_status fleeti_find_ranks(fleeti_build *b, const fleeti_bound_grid *grid,
                                      uint32_t *tasks_on)
{
    const fleet_map map = fleet_map1(grid->def->ranks);
    fleeti_axis axis;
    int32_t at[FLEET_MAX_RANK];
    uint32_t rank;
    memset(tasks_on, 0, FLEET_MAX_PEERS * sizeof *tasks_on);
    tasks_on[0] = grid->count;
    if (b->ranks == 1 || !grid->count) return FLEET_OK;
    tasks_on[0] = 0;
    memset(&axis, 0, sizeof axis);
    fleeti_first_coordinate(grid, at);
    fleet_status status = fleeti_bind_map(b, &map, grid, "ranks", grid->def->site, &axis);
    for (uint32_t i = 0; i < grid->count && status == FLEET_OK;
         i++, fleeti_next_coordinate(grid, at)) {
        rank = 0;
        status = fleeti_place_value(b, grid, &axis, grid->first + i, at, "rank", b->ranks, &rank);
        b->rank_of[grid->first + i] = (uint8_t)rank;
        tasks_on[rank]++;
    }
    return status;
}

/* Places one grid. next: each chiplet's next worker in turn. It continues over the grids, so that the remainders do
   not all go to the same workers. */
static fleet_status fleeti_place_grid(fleeti_build *b, const fleeti_bound_grid *grid,
                                      uint32_t *next, uint64_t *count)
{
    const fleeti_grid_def *def = grid->def;
    fleeti_axis axis[FLEET_MAX_RANK];
    int32_t at[FLEET_MAX_RANK];
    uint32_t *slot = b->slot + grid->first_slot;
    const uint32_t level = fleeti_level_of(grid), n = grid->count * (grid->tiles ? grid->parts : 1);
    const int placed = def->placed && !grid->tiles;
    /* A launch leaves out the last tasks: spread them over all chiplets. */
    const int in_turn = fleeti_is_guarded(b, def) || b->inputs[grid - b->grids].named;
    const uint32_t parts = grid->tiles ? grid->parts : 1;
    uint32_t placed_on[FLEET_MAX_PEERS], tasks_on[FLEET_MAX_PEERS], k, worker, first, nth;
    memset(axis, 0, sizeof axis);
    fleeti_first_coordinate(grid, at);
    memset(placed_on, 0, sizeof placed_on);
    fleet_status status = fleeti_check_place(b, grid, axis);
    if (status == FLEET_OK)
        status = fleeti_work_of_grid(b, grid, FLEETI_WORK_OF_ITEM * fleeti_descs_of(b, grid));
    if (status == FLEET_OK) status = fleeti_find_ranks(b, grid, tasks_on);
    if (status != FLEET_OK) return status;
    if (level == FLEET_LEVEL_DEVICE) {
        for (uint32_t i = 0; i < b->ranks; i++)
            for (k = 0; k < grid->shards; k++)
                fleeti_count_descs(b, grid, i * b->own_chiplets + k,
                                   (uint64_t)tasks_on[i] * fleeti_parts_of_shard(b, grid, k),
                                   count);
        return FLEET_OK;
    }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t id = grid->first + i / parts;
        first = fleeti_first_chiplet(b, id);
        nth = placed_on[first / b->own_chiplets]++; /* of its rank */
        if (placed) {
            status = fleeti_place_value(b, grid, &axis[0], id, at, "chiplet", b->own_chiplets, &k);
            if (status != FLEET_OK) return status;
        } else if (level == FLEET_LEVEL_CHIPLET || grid->tiles || in_turn) {
            k = nth % b->own_chiplets;
        } else {
            k = (uint32_t)((uint64_t)nth * b->own_chiplets / tasks_on[first / b->own_chiplets]);
        }
        k += first;
        slot[i] = k;
        if (level != FLEET_LEVEL_CHIPLET && fleeti_is_by_worker(grid)) {
            if (placed && def->place.rank == 2) {
                status = fleeti_place_value(b, grid, &axis[1], grid->first + i, at, "worker",
                                            b->workers[k], &worker);
                if (status != FLEET_OK) return status;
            } else {
                worker = next[k];
                next[k] = worker + 1 < b->workers[k] ? worker + 1 : 0;
            }
            slot[i] = b->base[k] + worker;
        }
        fleeti_count_descs(b, grid, slot[i], 1, count);
        if (placed) fleeti_next_coordinate(grid, at);
    }
    return FLEET_OK;
}

/* Places all tasks and sizes the queues. In a plan that is not DYNAMIC, a queue with tasks also has a step end. */
static fleet_status fleeti_pass_place(fleeti_build *b)
{
    uint32_t next[FLEET_MAX_CHIPLETS];
    uint64_t descs = 0;
    memset(next, 0, sizeof next);
    b->chiplet_queues = b->is_static || b->is_dynamic ? b->total_workers : 0;
    b->n_queues = b->chiplet_queues + (b->is_static ? 0 : b->chiplets);
    b->slot = FLEETI_ALLOC(b, uint32_t, b->n_slots);
    b->queue = FLEETI_ALLOC(b, fleeti_span, b->n_queues);
    uint64_t *count = FLEETI_ALLOC(b, uint64_t, b->n_queues);
    if (b->ranks > 1) b->rank_of = FLEETI_ALLOC(b, uint8_t, b->n_tasks);
    if (!b->slot || !b->queue || !count || (b->ranks > 1 && !b->rank_of))
        return fleeti_no_memory(b);
    for (uint32_t i = 0; i < b->n_grids; i++) {
        fleet_status status = fleeti_place_grid(b, &b->grids[i], next, count);
        if (status != FLEET_OK) return status;
    }
    for (uint32_t i = 0; b->ranks > 1 && i < b->ranks; i++) {
        uint32_t k = 0;
        while (k < b->n_tasks && b->rank_of[k] != i) k++;
        if (k == b->n_tasks)
            return fleeti_reject(b, FLEET_ERROR_PLACEMENT, NULL, "plan: rank %u of %u has no task",
                                 i, b->ranks);
    }
    for (uint32_t i = 0; i < b->n_queues; i++) {
        if (count[i] && !b->is_dynamic) count[i]++;
        b->queue[i].first = (uint32_t)descs;
        b->queue[i].count = (uint32_t)count[i];
        descs += count[i];
        if (descs > FLEETI_MAX_INDEX)
            return fleeti_reject(b, FLEET_ERROR_TOO_MANY_TASKS, NULL,
                                 "plan: the queues hold over 2^31-1 descriptors");
    }
    b->n_descs = (uint32_t)descs;
    return FLEET_OK;
}

/* ==== >>analyse: which tasks notify each event element, and which wait ==== */

/* The chiplets on which a task runs, a bit each. *worker: its only worker, or FLEETI_WORKER_MANY. */
static uint32_t fleeti_task_chiplets(const fleeti_build *b, const fleeti_bound_grid *grid,
                                     uint32_t id, uint32_t *worker)
{
    const uint32_t level = fleeti_level_of(grid);
    uint32_t chiplets = 0;
    *worker = FLEETI_WORKER_MANY;
    if (level == FLEET_LEVEL_DEVICE) {
        if (grid->shards == 1) *worker = fleeti_worker_of(b, grid, fleeti_first_chiplet(b, id));
        chiplets = grid->shards == 32 ? 0xffffffffu : (1u << grid->shards) - 1u;
        return chiplets << fleeti_first_chiplet(b, id);
    }
    if (grid->parts > 1) {
        for (uint32_t shard = 0; shard < grid->shards; shard++)
            chiplets |= 1u << fleeti_shard_chiplet(b, grid, id, shard);
        return chiplets;
    }
    *worker = fleeti_worker_of(b, grid, fleeti_stored_slot(b, grid, id, 0));
    return 1u << fleeti_shard_chiplet(b, grid, id, 0);
}

static void fleeti_add_participant(fleeti_element *element, uint32_t chiplets, uint32_t worker,
                                   uint32_t any_chiplet)
{
    element->chiplets |= chiplets;
    element->any_chiplet |= any_chiplet;
    if (element->worker == FLEETI_WORKER_NONE)
        element->worker = worker;
    else if (element->worker != worker)
        element->worker = FLEETI_WORKER_MANY;
}

/* Adds the work for the elements that a task reaches through an edge. Later passes go through them again for each part
   of the task. */
static fleet_status fleeti_work_of_reach(fleeti_build *b, const fleeti_bound_grid *grid,
                                         const fleeti_reach *r)
{
    return fleeti_work_of_grid(b, grid, grid->parts * ((uint64_t)r->box.runs * r->box.length + 1));
}

static fleet_status fleeti_analyse_task(fleeti_build *b, const fleeti_bound_grid *grid, uint32_t id,
                                        const int32_t *at)
{
    uint32_t worker, chiplets = fleeti_task_chiplets(b, grid, id, &worker);
    const uint32_t any_chiplet = !fleeti_is_in_order(grid);
    for (uint32_t i = 0; i < grid->n_outs; i++) {
        const fleeti_edge *edge = &b->outs[grid->first_out + i];
        fleeti_reach r = fleeti_reach_of(edge, grid->rank, at);
        if (fleeti_work_of_reach(b, grid, &r) != FLEET_OK) return b->g->build_status;
        while (fleeti_reach_next(&r)) {
            fleeti_element *element = &b->elements[r.e];
            fleeti_add_participant(element, chiplets, worker, any_chiplet);
            element->notifies++;
            element->producers |= chiplets;
            element->last_producer = id; /* ids ascend */
        }
    }
    for (uint32_t i = 0; i < grid->n_ins; i++) {
        const fleeti_edge *edge = &b->ins[grid->first_in + i];
        fleeti_reach r = fleeti_reach_of(edge, grid->rank, at);
        if (fleeti_work_of_reach(b, grid, &r) != FLEET_OK) return b->g->build_status;
        while (fleeti_reach_next(&r)) {
            fleeti_element *element = &b->elements[r.e];
            fleeti_add_participant(element, chiplets, worker, any_chiplet);
            if (id < element->first_waiter) element->first_waiter = id;
        }
    }
    return FLEET_OK;
}

/* The index of a chiplet's arrivals at an element. The entries are in the order of the bits of `producers`. */
static uint32_t fleeti_record_of(const fleeti_element *element, uint32_t chiplet)
{
    return element->record + fleeti_popcount(element->producers & ((1u << chiplet) - 1u));
}

/* DYNAMIC: whether no task waits for what the task notifies. Then it ends the step itself. */
static int fleeti_is_sink(const fleeti_build *b, const fleeti_bound_grid *grid, const int32_t *at)
{
    for (uint32_t i = 0; i < grid->n_outs; i++) {
        const fleeti_edge *edge = &b->outs[grid->first_out + i];
        fleeti_reach r = fleeti_reach_of(edge, grid->rank, at);
        while (fleeti_reach_next(&r))
            if (b->elements[r.e].first_waiter != FLEETI_NONE) return 0;
    }
    return 1;
}

/* Whether a task of the grid makes arrivals by run-time maps. Then it ends the step itself, after them. */
static int fleeti_arrives_by_maps(const fleeti_build *b, const fleeti_bound_grid *grid)
{
    for (uint32_t i = grid->first_map; i < grid->first_map + grid->n_maps; i++)
        if (fleeti_map_is_live(b, &b->maps[i]) && fleeti_map_has(&b->maps[i], FLEETI_ARRIVES))
            return 1;
    return 0;
}

/* Adds the arrivals of a task at an element, on each chiplet on which the task runs. */
static void fleeti_add_arrivals(fleeti_build *b, const fleeti_bound_grid *grid, uint32_t id,
                                fleeti_element *element)
{
    const uint32_t level = fleeti_level_of(grid);
    /* A task that arrives by run-time maps ends the step by a separate arrival after them. */
    const int alone =
        element >= &b->elements[b->n_elements - b->ranks] && fleeti_arrives_by_maps(b, grid);
    for (uint32_t shard = 0; shard < grid->shards; shard++) {
        const uint32_t k = fleeti_shard_chiplet(b, grid, id, shard);
        const uint64_t units = fleeti_parts_of_shard(b, grid, shard);
        fleeti_arrivals *a = &b->arrivals[fleeti_record_of(element, k)];
        a->units += units;
        a->arrivals += level >= FLEET_LEVEL_CHIPLET ? units * b->workers[k] : units;
        if ((!fleeti_is_in_order(grid) && level < FLEET_LEVEL_CHIPLET) || alone)
            a->roaming += units;
    }
}

/* DYNAMIC: the tasks for which no task waits end the step. */
static void fleeti_analyse_sinks(fleeti_build *b, fleeti_element *step, int arrive)
{
    int32_t at[FLEET_MAX_RANK];
    uint32_t worker;
    for (uint32_t i = 0; i < b->n_grids; i++) {
        const fleeti_bound_grid *grid = &b->grids[i];
        fleeti_first_coordinate(grid, at);
        for (uint32_t j = 0; j < grid->count; j++, fleeti_next_coordinate(grid, at)) {
            if (!fleeti_arrives_by_maps(b, grid) && !fleeti_is_sink(b, grid, at)) continue;
            if (arrive) {
                fleeti_add_arrivals(b, grid, grid->first + j, step);
                continue;
            }
            step->producers |= fleeti_task_chiplets(b, grid, grid->first + j, &worker);
            step->notifies++;
        }
    }
}

/* Each queue with tasks ends the step: a worker's queue by one arrival; a scheduler's, under CHIPLET, by one of each
   worker of its chiplet. */
static void fleeti_analyse_step(fleeti_build *b, fleeti_arrivals *arrivals)
{
    if (b->is_dynamic) {
        fleeti_element *step = &b->elements[b->n_elements - 1];
        step->any_chiplet = 1;
        fleeti_analyse_sinks(b, step, arrivals != NULL);
        return;
    }
    for (uint32_t q = 0; q < b->n_queues; q++) {
        uint32_t k = b->is_static ? b->chiplet_of[q] : q, worker = FLEETI_WORKER_MANY;
        fleeti_element *step = fleeti_step_of_chiplet(b, k);
        if (!b->queue[q].count) continue;
        /* The queue waits for the end of the step on all ranks. */
        for (uint32_t i = 0; i < b->ranks; i++)
            b->elements[b->n_elements - 1 - i].chiplets |= 1u << k;
        if (arrivals) {
            fleeti_arrivals *a = &arrivals[fleeti_record_of(step, k)];
            a->units++;
            a->arrivals += b->is_static ? 1 : b->workers[k];
            continue;
        }
        if (b->is_static) worker = q;
        fleeti_add_participant(step, 1u << k, worker, 0);
        step->producers |= 1u << k;
        step->notifies++;
    }
}

static void fleeti_add_task_arrivals(fleeti_build *b, const fleeti_bound_grid *grid, uint32_t id,
                                     const int32_t *at)
{
    for (uint32_t i = 0; i < grid->n_outs; i++) {
        const fleeti_edge *edge = &b->outs[grid->first_out + i];
        fleeti_reach r = fleeti_reach_of(edge, grid->rank, at);
        while (fleeti_reach_next(&r)) fleeti_add_arrivals(b, grid, id, &b->elements[r.e]);
    }
}

/* DYNAMIC: the first waiters and last producers of the elements that run-time maps reach. */
static void fleeti_analyse_maps(fleeti_build *b)
{
    for (uint32_t i = 0; i < b->n_maps; i++) {
        const fleeti_runtime_map *map = &b->maps[i];
        const fleeti_bound_grid *grid = &b->grids[map->grid];
        if (!fleeti_map_is_live(b, map)) continue;
        for (uint32_t e = map->first_element; e < map->first_element + map->elements; e++) {
            fleeti_element *element = &b->elements[e];
            uint32_t last = grid->first + grid->count - 1;
            element->any_chiplet = 1; /* its producers and waiters are known only at run time */
            if (!fleeti_map_has(map, FLEETI_ARRIVES))
                element->first_waiter =
                    grid->first < element->first_waiter ? grid->first : element->first_waiter;
            else if (element->last_producer == FLEETI_NONE || last > element->last_producer)
                element->last_producer = last;
        }
    }
}

static fleet_status fleeti_pass_analyse(fleeti_build *b)
{
    int32_t at[FLEET_MAX_RANK];
    uint64_t records = 0;
    b->elements = FLEETI_ALLOC(b, fleeti_element, b->n_elements);
    if (!b->elements) return fleeti_no_memory(b);
    for (uint32_t i = 0; i < b->n_events; i++) {
        const fleeti_bound_event *event = &b->events[i];
        for (uint32_t e = event->first; e < event->first + event->elements; e++) {
            b->elements[e].worker = FLEETI_WORKER_NONE;
            b->elements[e].last_producer = b->elements[e].first_waiter = FLEETI_NONE;
            b->elements[e].notifies = event->def ? event->def->outside_notifies : 0;
            if (event->by_tensor) b->elements[e].notifies = (uint64_t)event->def->count;
        }
    }
    fleeti_analyse_maps(b);
    for (uint32_t i = 0; i < b->n_grids; i++) {
        const fleeti_bound_grid *grid = &b->grids[i];
        fleeti_first_coordinate(grid, at);
        for (uint32_t j = 0; j < grid->count; j++, fleeti_next_coordinate(grid, at))
            if (fleeti_analyse_task(b, grid, grid->first + j, at) != FLEET_OK)
                return b->g->build_status;
    }
    fleeti_analyse_step(b, NULL);
    for (uint32_t e = 0; e < b->n_elements; e++) {
        b->elements[e].record = (uint32_t)records;
        records += fleeti_popcount(b->elements[e].producers);
        if (records > FLEETI_MAX_INDEX)
            return fleeti_reject(b, FLEET_ERROR_TOO_MANY_TASKS, NULL,
                                 "plan: over 2^31-1 notify records");
    }
    b->n_arrivals = (uint32_t)records;
    b->arrivals = FLEETI_ALLOC(b, fleeti_arrivals, b->n_arrivals);
    if (!b->arrivals) return fleeti_no_memory(b);
    for (uint32_t i = 0; i < b->n_grids; i++) {
        const fleeti_bound_grid *grid = &b->grids[i];
        fleeti_first_coordinate(grid, at);
        if (!grid->n_outs) continue;
        for (uint32_t j = 0; j < grid->count; j++, fleeti_next_coordinate(grid, at))
            fleeti_add_task_arrivals(b, grid, grid->first + j, at);
    }
    fleeti_analyse_step(b, b->arrivals);
    return FLEET_OK;
}

/* ==== >>count: wait counts, scopes, counters, targets ==== */

/* An external event makes no task ready, so that no task of a ready queue may wait for it. */
static fleet_status fleeti_check_external(fleeti_build *b)
{
    for (uint32_t i = 0; i < b->n_grids; i++) {
        const fleeti_bound_grid *grid = &b->grids[i];
        if (!grid->count || fleeti_is_in_order(grid)) continue;
        for (uint32_t k = grid->first_in; k < grid->first_in + grid->n_ins; k++) {
            const fleeti_event_def *def = b->events[b->ins[k].event].def;
            if (def->outside & FLEET_EXTERNAL_NOTIFIES)
                return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, def->site,
                                     "event tensor %s: an external notify makes no task ready: "
                                     "grid %s, which waits for it, cannot have the schedule "
                                     "DYNAMIC (fleet_grid_schedule)",
                                     def->name, grid->def->name);
        }
    }
    return FLEET_OK;
}

/* An event that gather edges notify and that has no counts: each of its elements has the same target, so that the
   number of notifies must be the sum of all targets. */
static fleet_status fleeti_check_gathered(fleeti_build *b, const fleeti_bound_event *event)
{
    const fleeti_event_def *def = event->def;
    uint64_t notifies = 0, targets = (uint64_t)event->elements * (uint64_t)def->count;
    for (uint32_t i = 0; i < b->n_maps; i++) {
        const fleeti_bound_grid *grid = &b->grids[b->maps[i].grid];
        uint32_t varies = (uint32_t)fleeti_is_guarded(b, grid->def);
        const fleeti_tensor_def *tensor = &b->g->tensors[b->maps[i].tensor];
        if (b->maps[i].kind != FLEETI_MAP_GATHER || &b->events[b->maps[i].inner] != event) continue;
        for (uint32_t k = 0; k < grid->n_maps; k++)
            varies |= b->maps[grid->first_map + k].kind == FLEETI_MAP_EXISTS;
        if (varies)
            return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, def->site,
                                 "event tensor %s: the number of tasks of grid %s that notify it "
                                 "is known only at launch: give it counts (fleet_event_counts)",
                                 def->name, grid->def->name);
        if (tensor->none_given)
            return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, def->site,
                                 "event tensor %s: entries of run-time tensor %s may name no "
                                 "element, so that the number of notifies is known only at "
                                 "launch: give it counts (fleet_event_counts)",
                                 def->name, tensor->name);
        notifies += (uint64_t)grid->count * b->maps[i].values;
    }
    if (notifies == targets) return FLEET_OK;
    return fleeti_reject(
        b, FLEET_ERROR_WAIT_COUNT, def->site,
        "event tensor %s: gather edges make %llu notifies, but its %u elements with "
        "count %lld need %llu",
        def->name, (unsigned long long)notifies, event->elements, (long long)def->count,
        (unsigned long long)targets);
}

static fleet_status fleeti_check_counts(fleeti_build *b, fleeti_bound_event *event)
{
    const fleeti_event_def *def = event->def;
    char text[FLEETI_POINT_BYTES], task[FLEETI_POINT_BYTES];
    const uint32_t n = event->elements / b->ranks; /* those of one rank's producers */
    uint32_t waited = 0;
    if (b->unfused && !def->outside)
        return FLEET_OK; /* a barrier of the unfused plan, or without edges in it */
    if (b->n_buckets > 1 && def->outside)
        return fleeti_reject(
            b, FLEET_ERROR_UNSUPPORTED, def->site,
            "event tensor %s: external notifies and waits cannot know the bucket of a launch: bind "
            "the symbols at build, or name their max as the only bucket",
            def->name);
    if (event->by_tensor && def->count < 1)
        return fleeti_reject(b, FLEET_ERROR_WAIT_COUNT, def->site,
                             "event tensor %s: gather edges notify it, so that its count must be "
                             "given: that of each element or, with fleet_event_counts, their bound",
                             def->name);
    if (event->by_tensor && !def->counts) {
        fleet_status status = fleeti_check_gathered(b, event);
        if (status != FLEET_OK) return status;
    }
    for (uint32_t i = 0; i < n; i++) {
        const fleeti_element *element = &b->elements[event->first + i];
        uint64_t notifies = 0;
        for (uint32_t k = 0; k < b->ranks; k++) notifies += element[k * n].notifies;
        if (def->count && !def->by_tensor && notifies != (uint64_t)def->count)
            return fleeti_reject(b, FLEET_ERROR_WAIT_COUNT, def->site,
                                 "event tensor %s: %llu notifies reach %s but count is %lld",
                                 def->name, (unsigned long long)notifies,
                                 fleeti_element_text(event, i, text), (long long)def->count);
        if (element->first_waiter == FLEETI_NONE) continue;
        waited = 1;
        if (!notifies && !event->may_be_empty)
            return fleeti_reject(b, FLEET_ERROR_NEVER_NOTIFIED, def->site,
                                 "event tensor %s: task %s waits for %s, which is never notified",
                                 def->name, fleeti_task_text(b, element->first_waiter, task),
                                 fleeti_element_text(event, i, text));
    }
    if (event->elements && !waited && !(def->outside & FLEET_EXTERNAL_WAITS)) {
        event->warnings |= FLEETI_WARN_NO_WAITER;
        if (b->g->desc.log && !b->avoid_deadlock) { /* the first attempt has logged it */
            char message[FLEETI_POINT_BYTES];
            snprintf(message, sizeof message, "warning: event tensor %s: no task waits for it",
                     def->name);
            b->g->desc.log(b->g->desc.log_user, FLEET_OK, message);
        }
    }
    return FLEET_OK;
}

/* The rank whose producers an element counts. */
static uint32_t fleeti_rank_of_element(const fleeti_build *b, const fleeti_bound_event *event,
                                       uint32_t e)
{
    return (e - event->first) / (event->elements / b->ranks);
}

/* The other ranks with tasks that wait for an element, a bit each. */
static uint32_t fleeti_remote_waiters(const fleeti_build *b, const fleeti_bound_event *event,
                                      const fleeti_element *element)
{
    uint32_t ranks = 0;
    if (b->ranks == 1 || !element->producers) return 0;
    for (uint32_t k = 0; k < b->chiplets; k++)
        if (element->chiplets >> k & 1u) ranks |= 1u << k / b->own_chiplets;
    return ranks & ~(1u << fleeti_rank_of_element(b, event, (uint32_t)(element - b->elements)));
}

/* The narrowest scope that covers all producers and waiters of an element. */
static uint32_t fleeti_needed_scope(const fleeti_build *b, const fleeti_bound_event *event,
                                    const fleeti_element *element)
{
    uint32_t scope = FLEET_SCOPE_DEVICE;
    if (!element->any_chiplet && fleeti_popcount(element->chiplets) <= 1)
        scope = b->chiplet_queues && element->worker != FLEETI_WORKER_MANY ? FLEET_SCOPE_BLOCK
                                                                           : FLEET_SCOPE_CHIPLET;
    if (fleeti_remote_waiters(b, event, element)) scope = FLEET_SCOPE_SYSTEM;
    if (event->def && event->def->outside && scope < (uint32_t)event->def->outside_scope)
        scope = (uint32_t)event->def->outside_scope;
    return scope;
}

static fleet_status fleeti_infer_scopes(fleeti_build *b, fleeti_bound_event *event)
{
    const fleeti_event_def *def = event->def;
    char text[FLEETI_POINT_BYTES];
    for (uint32_t i = 0; i < event->elements; i++) {
        fleeti_element *element = &b->elements[event->first + i];
        uint32_t scope = fleeti_needed_scope(b, event, element);
        if (def && def->scope_given) {
            if ((uint32_t)def->scope < scope && !(b->unaware && scope == FLEET_SCOPE_DEVICE))
                return fleeti_reject(b, FLEET_ERROR_SCOPE, def->site,
                                     "event tensor %s: scope %s is given, but %s needs scope %s",
                                     def->name, fleeti_scope_name((uint32_t)def->scope),
                                     fleeti_element_text(event, i, text), fleeti_scope_name(scope));
            if ((uint32_t)def->scope > scope) scope = (uint32_t)def->scope;
        }
        element->scope = scope;
        event->scoped[scope]++;
    }
    return FLEET_OK;
}

/* Whether the arrivals of a chiplet are counted on it first, so that it sends one arrival. */
static int fleeti_counts_first(const fleeti_build *b, const fleeti_element *element,
                               const fleeti_arrivals *arrivals)
{
    return element->scope >= FLEET_SCOPE_DEVICE && b->levels == 2 && arrivals->arrivals > 1 &&
           !arrivals->roaming;
}

/* The arrivals by run-time maps at each element of an event in a step: those of the gather edges, which the writer of
   counts fills up to the bound, and one more of that writer. Without this one, an element whose count is its bound
   could be complete, and its range be read, before the writer has ended. */
static uint64_t fleeti_mapped_arrivals(const fleeti_bound_event *event)
{
    return event->by_tensor ? (uint64_t)event->def->count + (event->def->counts != 0) : 0;
}

/* Sets the target of an element: what all arrivals of a step add to its counter. */
static fleet_status fleeti_set_target(fleeti_build *b, const fleeti_bound_event *event,
                                      fleeti_element *element)
{
    uint64_t target = event->by_tensor ? fleeti_mapped_arrivals(event)
                      : event->def     ? event->def->outside_notifies
                                       : 0;
    uint32_t n = fleeti_popcount(element->producers);
    char text[FLEETI_POINT_BYTES];
    for (uint32_t i = 0; i < n; i++) {
        const fleeti_arrivals *a = &b->arrivals[element->record + i];
        target += fleeti_counts_first(b, element, a) ? a->units : a->arrivals;
        if (a->arrivals > FLEETI_MAX_INDEX) target = a->arrivals;
    }
    if (target > FLEETI_MAX_INDEX)
        return fleeti_reject(
            b, FLEET_ERROR_TOO_MANY_TASKS, NULL, "event element %s receives over 2^31-1 arrivals",
            fleeti_element_text(event, (uint32_t)(element - b->elements) - event->first, text));
    element->target = (uint32_t)target;
    return FLEET_OK;
}

/* Rounds words up to whole lines. */
static uint64_t fleeti_whole_lines(uint64_t words)
{
    return (words + FLEETI_LINE_WORDS - 1) / FLEETI_LINE_WORDS * FLEETI_LINE_WORDS;
}

/* The words of an event's counters, in whole lines. */
static uint64_t fleeti_counter_words(uint32_t elements, uint32_t stride)
{
    return elements ? fleeti_whole_lines((uint64_t)(elements - 1) * stride + 1) : 0;
}

/* Reserves counters, which start on a line of their own. Returns their first word. */
static uint32_t fleeti_reserve_words(uint64_t *words, uint32_t elements, uint32_t stride)
{
    uint64_t first = *words;
    *words += fleeti_counter_words(elements, stride);
    return (uint32_t)(first > FLEETI_MAX_INDEX ? 0 : first);
}

/* Lays out one event tensor: its counters, sub-counters for each chiplet that counts first, and a notify record for
   each element and chiplet. */
static fleet_status fleeti_lay_out_event(fleeti_build *b, fleeti_bound_event *event,
                                         uint64_t *device, uint64_t *system)
{
    const uint64_t before = *device;
    uint32_t sub[FLEET_MAX_CHIPLETS], counts_first = 0, k, r, agree = 1;
    const fleeti_element *elements = b->elements + event->first;
    memset(sub, 0, sizeof sub);
    if (event->scoped[FLEET_SCOPE_SYSTEM] && b->ranks == 1)
        event->counter =
            FLEETI_SYSTEM | fleeti_reserve_words(system, event->elements, event->stride);
    else
        event->counter = fleeti_reserve_words(device, event->elements, event->stride);
    if (event->scoped[FLEET_SCOPE_SYSTEM] && b->ranks > 1)
        event->words = FLEETI_SYSTEM | fleeti_reserve_words(system, event->elements, event->stride);
    for (uint32_t i = 0; i < event->elements; i++) {
        for (k = 0, r = elements[i].record; k < b->chiplets; k++) {
            if (!(elements[i].producers >> k & 1u)) continue;
            if (fleeti_counts_first(b, &elements[i], &b->arrivals[r++])) counts_first |= 1u << k;
        }
    }
    for (k = 0; k < b->chiplets; k++)
        if (counts_first >> k & 1u)
            sub[k] = fleeti_reserve_words(device, event->elements, event->stride);
    if (*device > FLEETI_MAX_INDEX || *system > FLEETI_MAX_INDEX)
        return fleeti_reject(b, FLEET_ERROR_TOO_MANY_TASKS, NULL,
                             "event tensor %s brings the counters to over 2^31-1 words",
                             event->def ? event->def->name : "step");
    if (b->is_dynamic &&
        fleeti_work(b, (*device - before) / FLEETI_COUNTERS_PER_WORK, "event tensor",
                    event->def ? event->def->name : "step", NULL) != FLEET_OK)
        return b->g->build_status; /* fleeti_emit_triggers has a table of them */
    uint32_t target = event->elements ? elements[0].target : 0;
    for (uint32_t i = 0; i < event->elements; i++) {
        const fleeti_element *element = &elements[i];
        const uint32_t remote = fleeti_remote_waiters(b, event, element);
        uint32_t counter = event->counter + i * event->stride;
        if (element->target != target) agree = 0;
        if (remote) {
            if (!fleeti_reserve(&b->forwards, 1)) return fleeti_no_memory(b);
            fleeti_append(&b->forwards, counter, element->target, remote,
                          (event->words & ~FLEETI_SYSTEM) + i * event->stride);
            counter = FLEETI_SYSTEM | (b->forwards.count - 1u);
        }
        for (k = 0, r = element->record; k < b->chiplets; k++) {
            if (!(element->producers >> k & 1u)) continue;
            const fleeti_arrivals *a = &b->arrivals[r++];
            if (element->scope <= FLEET_SCOPE_CHIPLET)
                fleeti_append(&b->notifies, counter, FLEETI_LOCAL, 0, 1);
            else if (fleeti_counts_first(b, element, a))
                fleeti_append(&b->notifies, counter, sub[k] + i * event->stride,
                              (uint32_t)a->arrivals, (uint32_t)a->units);
            else
                fleeti_append(&b->notifies, counter, 0, 0, 1);
        }
    }
    event->target = target;
    event->uniform = agree && target && b->ranks == 1 &&
                     !(event->def && event->def->outside_notifies) &&
                     event->scoped[elements[0].scope] == event->elements;
    return FLEET_OK;
}

static fleet_status fleeti_pass_count(fleeti_build *b)
{
    /* The first line of both regions is unused: word 0 means "none". */
    uint64_t device = b->first_word, system = b->first_system_word;
    if (!fleeti_reserve(&b->notifies, b->n_arrivals)) return fleeti_no_memory(b);
    if (fleeti_check_external(b) != FLEET_OK) return b->g->build_status;
    for (uint32_t i = 0; i < b->n_events; i++) {
        fleeti_bound_event *event = &b->events[i];
        fleet_status status = event->def ? fleeti_check_counts(b, event) : FLEET_OK;
        if (status == FLEET_OK) status = fleeti_infer_scopes(b, event);
        for (uint32_t e = 0; e < event->elements && status == FLEET_OK; e++)
            status = fleeti_set_target(b, event, &b->elements[event->first + e]);
        if (status == FLEET_OK) status = fleeti_lay_out_event(b, event, &device, &system);
        if (status != FLEET_OK) return status;
    }
    if (b->is_dynamic) {
        b->joins = (uint32_t)device;
        device += fleeti_whole_lines(b->n_descs);
        b->taken = (uint32_t)device;
        if (b->early) device += fleeti_whole_lines(b->n_elements);
        if (device > FLEETI_MAX_INDEX)
            return fleeti_reject(b, FLEET_ERROR_TOO_MANY_TASKS, NULL,
                                 "plan: the counters are over 2^31-1 words");
    }
    b->counter_words = (uint32_t)device;
    b->system_words = b->ranks > 1 || system > FLEETI_LINE_WORDS ? (uint32_t)system : 0;
    return FLEET_OK;
}

/* ==== >>overlap: whether sources may run ahead of the previous step ==== */

/* What orders a task of step s + 1 after a task of step s if sources do not wait for the step event? Two things: a
   worker finishes its queue of step s before it starts step s + 1; and events order the tasks within a step. This
   pass proves from them that sources need not wait. The proof is about whole grids. It is tried in STATIC plans if
   every grid has declared its buffers, there are no external events, and no task sets symbols.

   Facts about grids K and F (a task is "complete" when its arrivals have been counted):
     all[K] has F   Each task of K starts after all tasks of F are complete. This holds if K's tasks wait for every
                    element of a tensor that every task of F notifies; if all[K] has G and done[G] has F; and if each
                    task of K waits for a task of G, the only producer of that tensor, and all[G] has F.
     done[K] has F  When all of K is complete, all of F is. This holds if K's tasks together wait for every element of
                    a tensor that every task of F notifies, and transitively; it includes all[K].
   Grids are visited in the order of their calls. A fact about a later grid is not used, which may only lose proofs.

   "H of step s + 1 comes after F of step s" follows from any of these:
     (own)   F and H run on one and the same worker.
     (a)     Every worker that has tasks of F also has tasks of a grid in all[H]. In step s + 1 these come after
             everything that the worker did in step s, and H comes after them.
     (b)     Every worker that has tasks of H also has a task of some K with F in all[K]. The worker has seen F
             complete before it left step s. This concerns F's arrivals at the tensor by which K waits for F; where all
             arrivals of F matter, F must have only that edge.

   Sources may run ahead if "comes after" holds
     - for all F and H that notify a common tensor with an element of several arrivals, for all arrivals: otherwise an
       early arrival of s + 1 would be counted for a late one of s;
     - for all F and H that use a common buffer which one of them writes.
   F = H is such a pair too. Steps further apart follow: H of s + 2 is after all of F of s + 1, and each task of F of
   s + 1 is after itself in s, on the same worker. The step ends of two steps may be counted out of order then, but no
   source waits for them. So either all sources run ahead, or none. */

#define FLEETI_MAX_OVERLAP_GRIDS 4096u /* fleeti_facts takes the square of it in bits */
#define FLEETI_MAX_OVERLAP_PAIRS                                                                   \
    0x100000000ull /* pairs of grids, edges and buffers, times words of workers */

typedef struct fleeti_facts {
    uint32_t grid_words, worker_words; /* words of a set of grids, of a set of workers */
    uint64_t *all, *done;              /* per grid: sets of grids, as above */
    uint64_t *on;                      /* per grid: the workers that have tasks of it */
    uint64_t *reach;                   /* per grid: the workers that have tasks of grids in all[] */
    uint64_t *seen;                 /* per worker: the grids in all[] of the grids of its tasks */
    uint64_t *common;               /* per grid: the grids that are in seen[] of all its workers */
    uint32_t *first_out, *next_out; /* per event: its out edges, a chain of 1 + index; 0 ends it */
    uint32_t *first_use, *next_use; /* per buffer: its uses, the same */
    uint32_t *stamp;                /* per element: mark of the last edge that reached it */
    uint8_t *reaches;               /* per out edge: FLEETI_REACHES, ...; 0: not known yet */
} fleeti_facts;

#define FLEETI_REACHES 1u /* each task reaches an element */
#define FLEETI_MAY_REACH_NONE 2u

static int fleeti_set_has(const uint64_t *set, uint32_t i)
{
    return (int)(set[i / 64] >> (i % 64) & 1u);
}

static void fleeti_set_put(uint64_t *set, uint32_t i)
{
    set[i / 64] |= (uint64_t)1 << (i % 64);
}

static void fleeti_set_join(uint64_t *set, const uint64_t *other, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++) set[i] |= other[i];
}

static int fleeti_set_inside(const uint64_t *set, const uint64_t *other, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++)
        if (set[i] & ~other[i]) return 0;
    return 1;
}

/* Whether the union of two sets has one member. */
static int fleeti_sets_are_one(const uint64_t *a, const uint64_t *b, uint32_t words)
{
    uint64_t found = 0;
    for (uint32_t i = 0; i < words; i++) {
        const uint64_t both = a[i] | b[i];
        if (!both) continue;
        if (found || both & (both - 1)) return 0;
        found = both;
    }
    return found != 0;
}

/* The smallest number of elements that a task reaches through an edge. *together: the number that all its tasks
   reach. */
static uint32_t fleeti_edge_coverage(const fleeti_build *b, const fleeti_edge *edge,
                                     uint32_t *stamp, uint32_t mark, uint32_t *together)
{
    const fleeti_bound_grid *grid = &b->grids[edge->grid];
    int32_t at[FLEET_MAX_RANK];
    uint32_t min = FLEETI_NONE;
    *together = 0;
    fleeti_first_coordinate(grid, at);
    for (uint32_t i = 0; i < grid->count; i++, fleeti_next_coordinate(grid, at)) {
        fleeti_reach r = fleeti_reach_of(edge, grid->rank, at);
        if (r.box.runs * r.box.length < min) min = r.box.runs * r.box.length;
        while (fleeti_reach_next(&r)) {
            if (stamp[r.e] != mark) ++*together;
            stamp[r.e] = mark;
        }
    }
    return min;
}

/* Whether each task of its grid reaches an element through an out edge. The answer is kept: an event may have many in
   edges, each of which asks. */
static int fleeti_always_reaches(const fleeti_build *b, fleeti_facts *facts, uint32_t out)
{
    const fleeti_edge *edge = &b->outs[out];
    const fleeti_bound_grid *grid = &b->grids[edge->grid];
    uint8_t *answer = &facts->reaches[out];
    int32_t at[FLEET_MAX_RANK];
    if (*answer) return *answer == FLEETI_REACHES;
    *answer = FLEETI_REACHES;
    fleeti_first_coordinate(grid, at);
    for (uint32_t i = 0; i < grid->count && *answer == FLEETI_REACHES;
         i++, fleeti_next_coordinate(grid, at)) {
        const fleeti_reach r = fleeti_reach_of(edge, grid->rank, at);
        if (!r.box.runs) *answer = FLEETI_MAY_REACH_NONE;
    }
    return *answer == FLEETI_REACHES;
}

/* Adds to all[k] and done[k] what one in edge of grid k proves. */
static void fleeti_add_facts(const fleeti_build *b, fleeti_facts *facts, uint32_t k, uint32_t in)
{
    const fleeti_edge *edge = &b->ins[in];
    uint32_t words = facts->grid_words, elements = b->events[edge->event].elements;
    uint32_t together;
    uint64_t *all = facts->all + (size_t)k * words, *done = facts->done + (size_t)k * words;
    uint32_t min = fleeti_edge_coverage(b, edge, facts->stamp, in + 1, &together);
    for (uint32_t o = facts->first_out[edge->event]; o; o = facts->next_out[o - 1]) {
        const fleeti_edge *out = &b->outs[o - 1];
        const uint64_t *f_all = facts->all + (size_t)out->grid * words;
        const uint64_t *f_done = facts->done + (size_t)out->grid * words;
        int only = o == facts->first_out[edge->event] && !facts->next_out[o - 1];
        if (!b->grids[out->grid].count) continue;
        if (min && only) fleeti_set_join(all, f_all, words);
        if (together < elements || !fleeti_always_reaches(b, facts, o - 1)) continue;
        fleeti_set_put(done, out->grid);
        fleeti_set_join(done, f_done, words);
        if (min < elements) continue;
        fleeti_set_put(all, out->grid);
        fleeti_set_join(all, f_done, words);
    }
    fleeti_set_join(done, all, words);
}

/* Finds the workers that have tasks of a grid. */
static void fleeti_find_workers(const fleeti_build *b, const fleeti_bound_grid *grid, uint64_t *on)
{
    uint32_t worker;
    for (uint32_t i = 0; i < grid->count; i++) {
        if (fleeti_level_of(grid) < FLEET_LEVEL_CHIPLET) {
            for (uint32_t k = 0; k < grid->parts; k++)
                fleeti_set_put(on, fleeti_stored_slot(b, grid, grid->first + i, k));
            continue;
        }
        for (uint32_t k = 0; k < b->chiplets; k++) {
            if (!(fleeti_task_chiplets(b, grid, grid->first + i, &worker) >> k & 1u)) continue;
            for (uint32_t j = 0; j < b->workers[k]; j++) fleeti_set_put(on, b->base[k] + j);
        }
    }
}

static int fleeti_new_facts(fleeti_build *b, fleeti_facts *facts)
{
    uint32_t n_outs = 0;
    size_t grids = b->n_grids, workers = b->total_workers;
    memset(facts, 0, sizeof *facts);
    facts->grid_words = (b->n_grids + 63) / 64;
    facts->worker_words = (b->total_workers + 63) / 64;
    for (uint32_t i = 0; i < b->n_grids; i++) n_outs += b->grids[i].n_outs;
    facts->all = FLEETI_ALLOC(b, uint64_t, grids * facts->grid_words);
    facts->done = FLEETI_ALLOC(b, uint64_t, grids * facts->grid_words);
    facts->common = FLEETI_ALLOC(b, uint64_t, grids * facts->grid_words);
    facts->on = FLEETI_ALLOC(b, uint64_t, grids * facts->worker_words);
    facts->reach = FLEETI_ALLOC(b, uint64_t, grids * facts->worker_words);
    facts->seen = FLEETI_ALLOC(b, uint64_t, workers * facts->grid_words);
    facts->first_out = FLEETI_ALLOC(b, uint32_t, b->n_events);
    facts->next_out = FLEETI_ALLOC(b, uint32_t, n_outs);
    facts->first_use = FLEETI_ALLOC(b, uint32_t, b->g->n_buffers);
    facts->next_use = FLEETI_ALLOC(b, uint32_t, FLEETI_LEN(b->g->uses));
    facts->stamp = FLEETI_ALLOC(b, uint32_t, b->n_elements);
    facts->reaches = FLEETI_ALLOC(b, uint8_t, n_outs);
    return facts->all && facts->done && facts->common && facts->on && facts->reach && facts->seen &&
           facts->first_out && facts->next_out && facts->first_use && facts->next_use &&
           facts->stamp && facts->reaches;
}

/* Finds all[] and done[], which hold under any schedule. */
static void fleeti_find_order(const fleeti_build *b, fleeti_facts *facts)
{
    for (uint32_t g = 0; g < b->n_grids; g++) {
        const fleeti_bound_grid *grid = &b->grids[g];
        for (uint32_t i = grid->first_out; i < grid->first_out + grid->n_outs; i++) {
            facts->next_out[i] = facts->first_out[b->outs[i].event];
            facts->first_out[b->outs[i].event] = i + 1;
        }
    }
    for (uint32_t g = 0; g < b->n_grids; g++) {
        const fleeti_bound_grid *grid = &b->grids[g];
        for (uint32_t i = 0; grid->count && i < grid->n_ins; i++)
            fleeti_add_facts(b, facts, g, grid->first_in + i);
    }
}

static void fleeti_find_facts(const fleeti_build *b, fleeti_facts *facts)
{
    uint32_t n = b->n_grids, gw = facts->grid_words, ww = facts->worker_words;
    fleeti_find_order(b, facts);
    for (uint32_t g = 0; g < n; g++) {
        const fleeti_bound_grid *grid = &b->grids[g];
        uint64_t *on = facts->on + (size_t)g * ww;
        if (!grid->count) continue;
        fleeti_find_workers(b, grid, on);
        for (uint32_t i = 0; i < n; i++)
            if (fleeti_set_has(facts->all + (size_t)g * gw, i))
                fleeti_set_join(facts->reach + (size_t)g * ww, facts->on + (size_t)i * ww, ww);
        for (uint32_t v = 0; v < b->total_workers; v++)
            if (fleeti_set_has(on, v))
                fleeti_set_join(facts->seen + (size_t)v * gw, facts->all + (size_t)g * gw, gw);
    }
    for (uint32_t g = 0; g < n; g++) {
        uint64_t *common = facts->common + (size_t)g * gw;
        memset(common, 0xff, gw * sizeof *common);
        for (uint32_t v = 0; v < b->total_workers; v++) {
            const uint64_t *seen = facts->seen + (size_t)v * gw;
            if (!fleeti_set_has(facts->on + (size_t)g * ww, v)) continue;
            for (uint32_t i = 0; i < gw; i++) common[i] &= seen[i];
        }
    }
}

/* Whether grid h of a step comes after grid f of the previous step. */
static int fleeti_comes_after(const fleeti_build *b, const fleeti_facts *facts, uint32_t f,
                              uint32_t h, uint32_t all_arrivals)
{
    const uint32_t words = facts->worker_words;
    const uint64_t *on_f = facts->on + (size_t)f * words, *on_h = facts->on + (size_t)h * words;
    if (!b->grids[f].count || !b->grids[h].count) return 1;
    return fleeti_sets_are_one(on_f, on_h, words) ||
           fleeti_set_inside(on_f, facts->reach + (size_t)h * words, words) ||
           ((!all_arrivals || b->grids[f].n_outs == 1) &&
            fleeti_set_has(facts->common + (size_t)h * facts->grid_words, f));
}

static int fleeti_has_shared_element(const fleeti_build *b, const fleeti_bound_event *event)
{
    for (uint32_t e = event->first; e < event->first + event->elements; e++) {
        uint64_t arrivals = 0;
        for (uint32_t i = 0; i < fleeti_popcount(b->elements[e].producers); i++)
            arrivals += b->arrivals[b->elements[e].record + i].arrivals;
        if (arrivals > 1) return 1;
    }
    return 0;
}

static int fleeti_arrivals_in_order(const fleeti_build *b, const fleeti_facts *facts)
{
    for (uint32_t i = 0; i + 1 < b->n_events; i++) {
        if (!fleeti_has_shared_element(b, &b->events[i])) continue;
        for (uint32_t o = facts->first_out[i]; o; o = facts->next_out[o - 1])
            for (uint32_t p = facts->first_out[i]; p; p = facts->next_out[p - 1])
                if (!fleeti_comes_after(b, facts, b->outs[o - 1].grid, b->outs[p - 1].grid, 1))
                    return 0;
    }
    return 1;
}

static int fleeti_buffers_in_order(const fleeti_build *b, const fleeti_facts *facts)
{
    const fleeti_use_def *uses = b->g->uses;
    uint32_t n = FLEETI_LEN(uses);
    for (uint32_t i = 0; i < n; i++) { /* chains of 1 + index */
        facts->next_use[i] = facts->first_use[uses[i].buffer];
        facts->first_use[uses[i].buffer] = i + 1;
    }
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = facts->first_use[uses[i].buffer]; j; j = facts->next_use[j - 1])
            if ((uses[i].writes || uses[j - 1].writes) &&
                !fleeti_comes_after(b, facts, uses[i].grid, uses[j - 1].grid, 0))
                return 0;
    return 1;
}

/* Whether the proof can be tried. */
static int fleeti_may_overlap(const fleeti_build *b)
{
    uint64_t n = b->n_grids + (uint64_t)FLEETI_LEN(b->g->edges) + FLEETI_LEN(b->g->uses);
    if (n * n > FLEETI_MAX_OVERLAP_PAIRS / ((b->total_workers + 63) / 64)) return 0;
    if (!b->is_static || b->writes || !b->n_grids || b->n_grids > FLEETI_MAX_OVERLAP_GRIDS)
        return 0;
    for (uint32_t i = 0; i < b->n_grids; i++)
        if (!b->g->grids[i].declares) return 0;
    for (uint32_t i = 0; i + 1 < b->n_events; i++)
        if (b->events[i].def->outside) return 0;
    return 1;
}

static fleet_status fleeti_pass_overlap(fleeti_build *b)
{
    fleeti_facts facts;
    b->runs_ahead = FLEETI_ALLOC(b, uint8_t, b->n_grids);
    if (!b->runs_ahead) return fleeti_no_memory(b);
    b->waits_for_step = b->n_tasks != 0;
    if (!b->n_tasks || !fleeti_may_overlap(b)) return FLEET_OK;
    if (!fleeti_new_facts(b, &facts)) return fleeti_no_memory(b);
    fleeti_find_facts(b, &facts);
    if (!fleeti_arrivals_in_order(b, &facts) || !fleeti_buffers_in_order(b, &facts))
        return FLEET_OK;
    b->waits_for_step = 0;
    for (uint32_t i = 0; i < b->n_grids; i++) {
        const fleeti_bound_grid *grid = &b->grids[i];
        b->runs_ahead[i] = grid->count != 0;
        for (uint32_t j = 0; j < grid->n_ins; j++)
            if (!b->events[b->ins[grid->first_in + j].event].may_be_empty) b->runs_ahead[i] = 0;
    }
    return FLEET_OK;
}

/* ==== >>tensors: run-time tensors are written before maps read them ==== */

/* Whether grid k runs after the writer: events lead from each task of the writer to each task of k. */
static int fleeti_after_writer(const fleeti_facts *facts, uint32_t k, uint32_t writer)
{
    return fleeti_set_has(facts->all + (size_t)k * facts->grid_words, writer);
}

/* Whether a range is written in time. Ranges are read when an element of their event is complete. That is after the
   writer if the writer also writes the event's counts, or if all tasks that notify the event come after the writer. */
static int fleeti_range_is_written(const fleeti_build *b, const fleeti_facts *facts, uint32_t event,
                                   uint32_t writer)
{
    const fleet_graph *g = b->g;
    uint32_t n = 0;
    if (g->events[event].counts && g->tensors[g->events[event].counts - 1u].writer == writer)
        return 1;
    for (uint32_t i = 0; i < b->n_maps; i++) {
        const fleeti_runtime_map *map = &b->maps[i];
        if (map->kind != FLEETI_MAP_GATHER || map->inner != event) continue;
        if (map->grid != writer && !fleeti_after_writer(facts, map->grid, writer)) return 0;
        n++;
    }
    return n != 0;
}

static fleet_status fleeti_gather_in_order(fleeti_build *b, const fleeti_facts *facts,
                                           const fleeti_runtime_map *map)
{
    const fleeti_tensor_def *tensor = &b->g->tensors[map->tensor];
    if (map->grid == tensor->writer || fleeti_after_writer(facts, map->grid, tensor->writer))
        return FLEET_OK;
    return fleeti_reject_tensor(b, tensor, FLEET_ERROR_TENSOR_ORDER,
                                "no event path leads from each task of grid %s, which writes it, "
                                "to each of grid %s, which gathers by it",
                                b->grids[tensor->writer].def->name, b->grids[map->grid].def->name);
}

static fleet_status fleeti_ranges_in_order(fleeti_build *b, const fleeti_facts *facts,
                                           const fleeti_runtime_map *map)
{
    const fleeti_tensor_def *tensor = &b->g->tensors[map->tensor];
    if (fleeti_range_is_written(b, facts, map->inner, tensor->writer)) return FLEET_OK;
    return fleeti_reject_tensor(
        b, tensor, FLEET_ERROR_TENSOR_ORDER,
        "elements of event tensor %s may be complete before grid %s has written it: let the same "
        "task write the event's counts, or lead events from it to the tasks that notify them",
        b->g->events[map->inner].name, b->grids[tensor->writer].def->name);
}

typedef fleet_status (*fleeti_in_order_fn)(fleeti_build *b, const fleeti_facts *facts,
                                           const fleeti_runtime_map *map);

#define FLEETI_MAP_IN_ORDER(name, traits, fits, in_order, text) in_order,
static fleet_status fleeti_pass_tensors(fleeti_build *b)
{
    static const fleeti_in_order_fn in_order[] = {FLEETI_MAP_LIST(FLEETI_MAP_IN_ORDER)};
    fleeti_facts facts;
    fleet_status status = FLEET_OK;
    if (!b->n_maps) return FLEET_OK;
    if (b->n_grids > FLEETI_MAX_OVERLAP_GRIDS)
        return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, NULL,
                             "plan: a graph with run-time maps has at most %u grids",
                             FLEETI_MAX_OVERLAP_GRIDS);
    if (!fleeti_new_facts(b, &facts)) return fleeti_no_memory(b);
    fleeti_find_order(b, &facts);
    for (uint32_t i = 0; i < b->n_maps && status == FLEET_OK; i++)
        if (in_order[b->maps[i].kind]) status = in_order[b->maps[i].kind](b, &facts, &b->maps[i]);
    return status;
}

/* ==== >>symbols: tasks that set symbols run alone with them ==== */

/* A task that sets a symbol changes the shapes of grids in place (fleeti_set_symbol_now in fleet_sched.h). So no task
   that looks at them may run at the same time: the writer comes after all other tasks of its step, and each worker
   waits for the end of the step before the next one; a cutter comes before or after each grid that has the symbol. */

static fleet_status fleeti_check_setter(fleeti_build *b, const fleeti_bound_grid *grid)
{
    const fleeti_grid_def *def = grid->def;
    const uint32_t cuts_only = def->cuts & ~b->writes;
    uint32_t s = 0;
    while (cuts_only && !(cuts_only >> s & 1u)) s++;
    if (cuts_only)
        return fleeti_reject(b, FLEET_ERROR_ARGUMENT, def->site,
                             "grid %s cuts symbol %s, which has no writer: fleet_symbol_writer",
                             def->name, b->g->symbols[s].name);
    if (grid->count == 1 && !grid->n_maps && !fleeti_is_guarded(b, def) &&
        fleeti_level_of(grid) <= FLEET_LEVEL_CU)
        return FLEET_OK;
    return fleeti_reject(b, FLEET_ERROR_ARGUMENT, def->site,
                         "grid %s sets symbols: it must be one CU- or wavefront-task, with a "
                         "constant shape and without run-time maps",
                         def->name);
}

/* A worker looks whether a task exists before it waits for the task's events. Where tasks cut the grid's symbol, the answer
   may change until the wait has ended, and a task that does not exist has to wait like others: a task that comes after
   it is then also after all that it has waited for.
   Neither is so in a grid that is settled. Each of its workers has had a task of an earlier grid, the anchor, whose wait
   was for every grid that may come before this one, but for those that vanish with it: those are empty when the symbol
   is 0, and so is this grid then alone. When a layer has vanished, its workers wait for its first grid and no other. */

/* Whether the grid has no tasks where the symbol is 0; `only`: nowhere else either, and it has no other symbol. */
static int fleeti_vanishes(const fleeti_build *b, uint32_t g, uint32_t symbol, int only)
{
    const fleeti_grid_def *def = b->grids[g].def;
    int vanishes = 0;
    for (uint32_t k = 0; k < def->shape.rank; k++) {
        const fleet_dim *d = &def->shape.extent[k];
        if (d->symbol == symbol && d->mul > 0 && d->add < d->div && (!only || d->mul >= d->div))
            vanishes = 1;
        if (only && ((d->symbol && (d->symbol != symbol || d->add)) || fleeti_dim_axes(d)))
            return 0;
    }
    return vanishes && (!only || !def->slices_given || !def->slices.symbol);
}

/* Adds the grids that may come before grid g to before[g]. 0: something else may. */
static int fleeti_may_come_before(const fleeti_build *b, const fleeti_facts *facts, uint32_t g,
                                  uint64_t *before)
{
    const fleeti_bound_grid *grid = &b->grids[g];
    const size_t words = facts->grid_words;
    for (uint32_t i = grid->first_in; i < grid->first_in + grid->n_ins; i++) {
        const uint32_t event = b->ins[i].event;
        if (b->events[event].def && b->events[event].def->outside) return 0;
        for (uint32_t o = facts->first_out[event]; o; o = facts->next_out[o - 1]) {
            const uint32_t from = b->outs[o - 1].grid;
            if (from >= g) return 0;
            fleeti_set_put(before + g * words, from);
            fleeti_set_join(before + g * words, before + from * words, facts->grid_words);
        }
    }
    return 1;
}

/* Whether grid `anchor` makes grid g settled. */
static int fleeti_is_anchor(const fleeti_build *b, const fleeti_facts *facts, uint32_t g,
                            uint32_t anchor, const uint64_t *before)
{
    const size_t words = facts->worker_words;
    const uint32_t symbols = fleeti_symbols_of_shape(b, b->grids[g].def);
    uint32_t symbol = 1;
    while (symbols >> symbol) symbol++;
    if (!fleeti_vanishes(b, g, symbol, 1) ||
        !fleeti_set_inside(facts->on + g * words, facts->on + anchor * words, facts->worker_words))
        return 0;
    for (uint32_t p = 0; p < g; p++)
        if (fleeti_set_has(before + (size_t)g * facts->grid_words, p) &&
            !fleeti_set_has(facts->all + (size_t)anchor * facts->grid_words, p) &&
            !fleeti_vanishes(b, p, symbol, 0))
            return 0;
    return 1;
}

static fleet_status fleeti_find_settled(fleeti_build *b, const fleeti_facts *facts)
{
    uint32_t anchor;
    for (uint32_t g = 0; g < b->n_grids; g++)
        if (b->grids[g].n_maps) return FLEET_OK;
    if (!b->is_static || b->keyed || !b->cuts) return FLEET_OK;
    uint64_t *before = FLEETI_ALLOC(b, uint64_t, (size_t)b->n_grids * facts->grid_words);
    b->settled = FLEETI_ALLOC(b, uint8_t, b->n_grids);
    if (!before || !b->settled) return fleeti_no_memory(b);
    for (uint32_t g = 0; g < b->n_grids; g++) {
        const fleeti_bound_grid *grid = &b->grids[g];
        if (!fleeti_may_come_before(b, facts, g, before)) break;
        if (!grid->count || fleeti_level_of(grid) == FLEET_LEVEL_WAVE ||
            !(fleeti_symbols_of_shape(b, grid->def) & b->cuts))
            continue;
        fleeti_find_workers(b, grid, facts->on + (size_t)g * facts->worker_words);
        for (anchor = g; anchor-- && (b->settled[anchor] || !b->grids[anchor].count ||
                                      !fleeti_is_guarded(b, b->grids[anchor].def));) {
        }
        if (anchor != FLEETI_NONE)
            b->settled[g] = (uint8_t)fleeti_is_anchor(b, facts, g, anchor, before);
    }
    return FLEET_OK;
}

static fleet_status fleeti_pass_symbols(fleeti_build *b)
{
    fleeti_facts facts;
    fleet_status status = FLEET_OK;
    for (uint32_t i = 0; i < b->n_grids && status == FLEET_OK; i++)
        if (b->grids[i].def->writes | b->grids[i].def->cuts)
            status = fleeti_check_setter(b, &b->grids[i]);
    if (status != FLEET_OK || !b->writes) return status;
    if (b->n_grids > FLEETI_MAX_OVERLAP_GRIDS)
        return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, NULL,
                             "plan: a graph whose tasks set symbols has at most %u grids",
                             FLEETI_MAX_OVERLAP_GRIDS);
    if (!fleeti_new_facts(b, &facts)) return fleeti_no_memory(b);
    fleeti_find_order(b, &facts);
    for (uint32_t i = 0; i < b->n_grids; i++) {
        const fleeti_grid_def *setter = b->grids[i].def;
        for (uint32_t k = 0; k < b->n_grids && setter->writes | setter->cuts; k++) {
            const fleeti_bound_grid *grid = &b->grids[k];
            const uint32_t has = fleeti_symbols_of_shape(b, grid->def) & setter->cuts;
            if (k == i || !grid->count) continue;
            if (setter->writes && !fleeti_after_writer(&facts, i, k))
                return fleeti_reject(b, FLEET_ERROR_ORDER, setter->site,
                                     "grid %s sets symbols for the next step, but grid %s may run "
                                     "beside it: fleet_after(g, %s, %s), with %s added last",
                                     setter->name, grid->def->name, setter->name, grid->def->name,
                                     setter->name);
            if (has && grid->n_maps)
                return fleeti_reject(b, FLEET_ERROR_UNSUPPORTED, grid->def->site,
                                     "grid %s has run-time maps, and a symbol that grid %s cuts",
                                     grid->def->name, setter->name);
            if (has && !fleeti_after_writer(&facts, i, k) && !fleeti_after_writer(&facts, k, i))
                return fleeti_reject(b, FLEET_ERROR_ORDER, setter->site,
                                     "grid %s cuts a symbol of grid %s, which may run beside it: "
                                     "fleet_after(g, %s, %s)",
                                     setter->name, grid->def->name, grid->def->name, setter->name);
        }
    }
    return fleeti_find_settled(b, &facts);
}

/* ==== >>records: the wait and notify records of each task ==== */

/* Adds `count` counters to the wait records from `from` on. Extends the last record if they continue it. */
static int fleeti_add_wait(fleeti_build *b, uint32_t from, uint32_t counter, uint32_t count,
                           uint32_t stride, uint32_t target)
{
    fleeti_records *waits = &b->waits;
    if (waits->count > from) {
        uint32_t *last = waits->item[waits->count - 1];
        if (last[3] == target && last[0] + last[1] * stride == counter) {
            last[1] += count;
            return 1;
        }
    }
    if (!fleeti_reserve(waits, 1)) return 0;
    fleeti_append(waits, counter, count, stride, target);
    return 1;
}

/* Adds the waits of a task of this rank through one edge. Sets *inner if tasks complete some of the elements. */
static int fleeti_add_edge_waits(fleeti_build *b, const fleeti_edge *edge, const fleeti_box *box,
                                 uint32_t rank, uint8_t *scope, uint32_t *inner)
{
    const fleeti_bound_event *event = &b->events[edge->event];
    uint32_t from = b->waits.count, e, end;
    for (uint32_t r = 0; r < box->runs; r++) {
        e = fleeti_box_run(box, r);
        end = e + box->length;
        if (event->uniform) {
            if (!fleeti_add_wait(b, from, event->counter + (e - event->first) * event->stride,
                                 box->length, event->stride, event->target))
                return 0;
            if (b->elements[e].scope > *scope) *scope = (uint8_t)b->elements[e].scope;
            *inner = 1;
            continue;
        }
        for (; e < end; e++) {
            const fleeti_element *element = &b->elements[e];
            if (!element->target) continue;
            if (b->ranks > 1 && fleeti_rank_of_element(b, event, e) != rank) {
                if (!fleeti_add_wait(b, from, event->words + (e - event->first) * event->stride, 1,
                                     event->stride, 1))
                    return 0;
            } else if (!fleeti_add_wait(b, from,
                                        event->counter + (e - event->first) * event->stride, 1,
                                        event->stride, element->target)) {
                return 0;
            }
            if (element->scope > *scope) *scope = (uint8_t)element->scope;
            if (element->producers) *inner = 1;
        }
    }
    return 1;
}

/* If the records from `start` on repeat the previous list, removes them. Returns where the list is. */
static uint32_t fleeti_share_records(fleeti_records *r, uint32_t start, const fleeti_span *before)
{
    uint32_t n = r->count - start;
    if (!n || n != before->count ||
        memcmp(r->item[start], r->item[before->first], n * sizeof *r->item) != 0)
        return start;
    r->count = start;
    return before->first;
}

static fleet_status fleeti_too_many_edges(fleeti_build *b, uint32_t id, uint64_t n,
                                          const char *what)
{
    char task[FLEETI_POINT_BYTES];
    return fleeti_reject(b, FLEET_ERROR_TOO_MANY_EDGES, fleeti_grid_of_task(b, id)->def->site,
                         "task %s has %llu %s, at most 65535", fleeti_task_text(b, id, task),
                         (unsigned long long)n, what);
}

static fleet_status fleeti_record_waits(fleeti_build *b, const fleeti_bound_grid *grid, uint32_t id,
                                        const int32_t *at, fleeti_span *before)
{
    fleeti_wait_span *list = &b->task_waits[id];
    uint32_t start = b->waits.count, inner = 0;
    for (uint32_t i = 0; i < grid->n_ins; i++) {
        const fleeti_edge *edge = &b->ins[grid->first_in + i];
        fleeti_box box = edge->box;
        fleeti_box_of_task(edge, grid->rank, at, &box);
        if (!fleeti_add_edge_waits(b, edge, &box, b->rank_of ? b->rank_of[id] : 0, &list->scope,
                                   &inner))
            return fleeti_no_memory(b);
    }
    if (b->waits.count > start && !inner && b->waits_for_step) {
        /* Only external notifies complete what it waits for, and these may be a step ahead. */
        const fleeti_bound_event *step = &b->events[b->n_events - 1];
        uint32_t scope = b->elements[step->first].scope;
        if (!fleeti_reserve(&b->waits, 1)) return fleeti_no_memory(b);
        fleeti_append(&b->waits, step->counter, 1u | FLEETI_PREVIOUS, step->stride, step->target);
        if (scope > list->scope) list->scope = (uint8_t)scope;
    }
    uint32_t n = b->waits.count - start;
    if (n > 65535) return fleeti_too_many_edges(b, id, n, "wait records");
    list->first = n ? fleeti_share_records(&b->waits, start, before) : 0;
    list->count = (uint16_t)n;
    before->first = list->first;
    before->count = n;
    return FLEET_OK;
}

/* Collects the notify records of a task on one chiplet. A single record is used where it is; several are copied into
   a row. */
static fleet_status fleeti_record_notifies(fleeti_build *b, const fleeti_bound_grid *grid,
                                           uint32_t id, uint32_t chiplet, const int32_t *at,
                                           fleeti_span *before, fleeti_span *list)
{
    fleeti_records *notifies = &b->notifies;
    uint32_t start = notifies->count, single = 0;
    uint64_t n = 0;
    if (b->is_dynamic && !fleeti_arrives_by_maps(b, grid) && fleeti_is_sink(b, grid, at)) {
        if (!fleeti_reserve(notifies, 1)) return fleeti_no_memory(b);
        single = fleeti_record_of(&b->elements[b->n_elements - 1], chiplet);
        fleeti_append_copy(notifies, single);
        n = 1;
    }
    for (uint32_t i = 0; i < grid->n_outs; i++) {
        const fleeti_edge *edge = &b->outs[grid->first_out + i];
        fleeti_reach r = fleeti_reach_of(edge, grid->rank, at);
        /* 0 if the map's limit cuts the task off */
        const uint64_t reached = (uint64_t)r.box.runs * r.box.length;
        n += reached;
        if (n > 65535) return fleeti_too_many_edges(b, id, n, "notifies or more");
        if (n == 1 && reached == 1 && grid->n_outs == 1) {
            single = fleeti_record_of(&b->elements[r.box.first], chiplet);
            break;
        }
        if (!fleeti_reserve(notifies, n)) return fleeti_no_memory(b);
        while (fleeti_reach_next(&r)) {
            single = fleeti_record_of(&b->elements[r.e], chiplet);
            fleeti_append_copy(notifies, single);
        }
    }
    list->count = (uint32_t)n;
    if (n == 1) {
        notifies->count = start;
        list->first = single;
        return FLEET_OK;
    }
    list->first = n ? fleeti_share_records(notifies, start, before) : 0;
    *before = *list;
    return FLEET_OK;
}

static fleet_status fleeti_record_grid(fleeti_build *b, const fleeti_bound_grid *grid)
{
    fleeti_span waits_before, notifies_before[FLEET_MAX_CHIPLETS];
    int32_t at[FLEET_MAX_RANK];
    memset(&waits_before, 0, sizeof waits_before);
    memset(notifies_before, 0, sizeof notifies_before);
    fleeti_first_coordinate(grid, at);
    for (uint32_t i = 0; i < grid->count; i++, fleeti_next_coordinate(grid, at)) {
        uint32_t id = grid->first + i;
        fleeti_span *list = &b->shard_notifies[grid->first_shard + (uint64_t)i * grid->shards];
        fleet_status status = fleeti_record_waits(b, grid, id, at, &waits_before);
        for (uint32_t k = 0; k < grid->shards && status == FLEET_OK; k++) {
            const uint32_t on = fleeti_shard_chiplet(b, grid, id, k);
            status = fleeti_record_notifies(b, grid, id, on, at, &notifies_before[on], &list[k]);
        }
        if (status != FLEET_OK) return status;
        if (b->waits.count > FLEETI_MAX_INDEX || b->notifies.count > FLEETI_MAX_INDEX)
            return fleeti_reject(b, FLEET_ERROR_TOO_MANY_TASKS, grid->def->site,
                                 "grid %s brings the plan to over 2^31-1 wait or notify records",
                                 grid->def->name);
    }
    return FLEET_OK;
}

/* The waits for the previous step, on each rank: for the queues of that rank, and for what other ranks store. */
static int fleeti_record_step_waits(fleeti_build *b)
{
    const fleeti_bound_event *step = &b->events[b->n_events - 1];
    for (uint32_t rank = 0; rank < b->ranks; rank++) {
        const uint32_t first = b->waits.count;
        for (uint32_t p = 0; p < b->ranks; p++) {
            const uint32_t at = p * step->stride, own = p == rank;
            if (!fleeti_reserve(&b->waits, 1)) return 0;
            fleeti_append(&b->waits, (own ? step->counter : step->words) + at, 1u | FLEETI_PREVIOUS,
                          step->stride, own ? b->elements[step->first + p].target : 1);
        }
        b->step_waits[rank].first = first;
        b->step_waits[rank].count = b->ranks;
    }
    return 1;
}

static fleet_status fleeti_pass_records(fleeti_build *b)
{
    b->task_waits = FLEETI_ALLOC(b, fleeti_wait_span, b->n_tasks);
    b->shard_notifies = FLEETI_ALLOC(b, fleeti_span, b->n_shards);
    if (!b->task_waits || !b->shard_notifies || !fleeti_reserve(&b->waits, 1))
        return fleeti_no_memory(b);
    if (b->n_tasks && (b->waits_for_step || b->ranks > 1) && !fleeti_record_step_waits(b))
        return fleeti_no_memory(b);
    for (uint32_t i = 0; i < b->n_grids; i++) {
        fleet_status status = fleeti_record_grid(b, &b->grids[i]);
        if (status != FLEET_OK) return status;
    }
    return FLEET_OK;
}

/* ==== >>emit: the block of the plan ==== */

/* ---- header ---- */

/* Lays out the sections of a block, which follow from the counts in its header. The names end the block. */
static void fleeti_lay_out_block(fleet_plan *head)
{
    const uint64_t early = head->early;
    uint64_t bytes = sizeof *head;
    head->queues = fleeti_section(&bytes, head->n_queues, sizeof(fleeti_queue));
    head->tasks = fleeti_section(&bytes, head->n_descs, sizeof(fleet_task));
    head->waits = fleeti_section(&bytes, head->n_waits, sizeof(fleeti_wait));
    head->notifies = fleeti_section(&bytes, head->n_notifies, sizeof(fleeti_notify));
    head->events = fleeti_section(&bytes, head->n_events, sizeof(fleeti_event));
    head->grids = fleeti_section(&bytes, head->n_grids, sizeof(fleeti_grid));
    head->targets = fleeti_section(&bytes, head->n_elements, sizeof(uint32_t));
    head->consumers = head->first_consumers = head->taken_targets = head->triggers = 0;
    if (head->schedule == FLEET_SCHEDULE_DYNAMIC) {
        head->consumers = fleeti_section(&bytes, head->n_consumers, sizeof(fleeti_consumer));
        head->first_consumers =
            fleeti_section(&bytes, head->n_elements * (1 + early) + 1, sizeof(uint32_t));
        head->taken_targets = fleeti_section(&bytes, early * head->n_elements, sizeof(uint32_t));
        head->triggers = fleeti_section(&bytes, head->n_notifies, sizeof(fleeti_trigger));
    }
    head->symbols = fleeti_section(&bytes, head->n_symbols, sizeof(fleeti_symbol));
    head->guards = fleeti_section(&bytes, head->guarded ? head->n_grids : 0, sizeof(fleeti_guard));
    head->keys = fleeti_section(&bytes, head->keyed ? head->n_grids : 0, sizeof(fleet_key));
    head->maps = fleeti_section(&bytes, head->n_maps, sizeof(fleeti_runtime_map));
    head->tensors = fleeti_section(&bytes, head->n_tensors, sizeof(fleeti_tensor_info));
    head->forwards = fleeti_section(&bytes, head->n_forwards, sizeof(fleeti_forward));
    head->spaces = fleeti_section(&bytes, head->n_space_words, sizeof(uint32_t));
    head->names = fleeti_section(&bytes, 0, 1);
}

static uint64_t fleeti_name_bytes(const fleeti_build *b)
{
    uint64_t bytes = sizeof "step";
    for (uint32_t i = 0; i + 1 < b->n_events; i++) bytes += strlen(b->events[i].def->name) + 1;
    for (uint32_t i = 0; i < FLEETI_LEN(b->g->symbols); i++)
        bytes += strlen(b->g->symbols[i].name) + 1;
    for (uint32_t i = 0; i < FLEETI_LEN(b->g->tensors); i++)
        bytes += strlen(b->g->tensors[i].name) + 1;
    for (uint32_t i = 0; i < b->n_grids; i++) bytes += strlen(b->grids[i].def->name) + 1;
    return bytes;
}

/* The words that the levels of a space take. */
static uint64_t fleeti_space_words(const fleeti_space *space)
{
    uint64_t words = 0;
    for (uint32_t k = 0; k < space->rank; k++) words += space->prefixes[k] + 1ull;
    return words;
}

/* Allocates the block and fills in its header; null if there is no memory. */
static fleet_plan *fleeti_new_block(const fleeti_build *b)
{
    fleet_plan head;
    memset(&head, 0, sizeof head);
    head.magic = FLEET_PLAN_MAGIC;
    head.version = FLEET_VERSION;
    head.header_bytes = (uint32_t)sizeof head;
    head.schedule = (uint32_t)b->schedule;
    head.chiplets = b->chiplets;
    memcpy(head.workers, b->workers, sizeof head.workers);
    memcpy(head.worker_base, b->base, sizeof head.worker_base);
    head.total_workers = b->total_workers;
    head.n_tasks = b->n_tasks;
    head.n_queues = b->n_queues;
    head.n_descs = b->n_descs;
    head.n_waits = b->waits.count;
    head.n_notifies = b->notifies.count;
    head.n_events = b->n_events;
    head.n_grids = b->n_grids;
    head.n_elements = b->n_elements;
    head.counter_words = b->counter_words;
    head.system_words = b->system_words;
    for (uint32_t i = 0; i < b->n_grids; i++)
        if (b->grids[i].count && b->grids[i].def->level == FLEET_LEVEL_WAVE) head.has_waves = 1;
    head.private_l2 = b->desc->topology.private_l2 != 0;
    head.step_event = b->n_events - 1;
    head.topology = b->desc->topology;
    head.topology.name[sizeof head.topology.name - 1] = 0;
    head.ranks = b->ranks;
    head.n_forwards = b->forwards.count;
    for (uint32_t i = 0; i < b->ranks && b->ranks > 1; i++) {
        head.step_waits[i] = b->step_waits[i].first;
        head.n_step_waits[i] = b->step_waits[i].count;
    }
    head.guarded = b->n_at_launch != 0;
    head.keyed = b->keyed;
    head.rebinds = b->writes;
    if (b->is_dynamic) {
        head.n_consumers = (uint32_t)b->n_consumers;
        head.joins = b->joins;
        head.early = b->early;
        head.taken = b->early ? b->taken : 0;
    }
    head.n_symbols = FLEETI_LEN(b->g->symbols);
    head.n_buckets = 1;
    for (uint32_t i = 0; i < head.n_symbols; i++)
        head.bound[i] =
            (int32_t)(b->symbol[i] > FLEETI_MAX_INDEX ? FLEETI_MAX_INDEX : b->symbol[i]);
    uint64_t space_words = 0;
    for (uint32_t i = 0; i < b->n_grids; i++) space_words += fleeti_space_words(&b->grids[i].space);
    for (uint32_t i = 0; i < b->n_events; i++)
        space_words += fleeti_space_words(&b->events[i].space);
    if (space_words > FLEETI_MAX_INDEX) return NULL;
    head.n_space_words = (uint32_t)space_words;
    head.n_maps = b->n_maps;
    head.n_tensors = FLEETI_LEN(b->g->tensors);
    fleeti_lay_out_block(&head);
    head.bytes = head.names + fleeti_name_bytes(b);
    if (head.bytes > SIZE_MAX) return NULL;
    fleet_plan *plan = (fleet_plan *)FLEET_MALLOC((size_t)head.bytes);
    if (!plan) return NULL;
    memset(plan, 0, (size_t)head.bytes);
    memcpy(plan, &head, sizeof head);
    return plan;
}

/* ---- queues of descriptors ---- */

/* Appends a task's descriptors to the queues that hold it. In a plan under DYNAMIC the descriptors of a chiplet-task
   are numbered. */
static void fleeti_emit_descs(const fleeti_build *b, const fleet_task *desc, uint32_t slot,
                              fleet_task *tasks, uint32_t *end)
{
    const fleeti_bound_grid *grid = &b->grids[desc->grid];
    const fleeti_queue_set s = fleeti_queues_of(b, grid, slot);
    fleet_task share = *desc;
    for (uint32_t j = 0; j < s.queues * s.copies; j++) {
        if (b->is_dynamic && fleeti_level_of(grid) >= FLEET_LEVEL_CHIPLET)
            share.batch = (uint16_t)j;
        tasks[end[s.first + j / s.copies]++] = share;
    }
}

static void fleeti_emit_grid(const fleeti_build *b, uint32_t index, fleet_task *tasks,
                             uint32_t *end)
{
    const fleeti_bound_grid *grid = &b->grids[index];
    const uint32_t level = fleeti_level_of(grid);
    fleet_task desc;
    memset(&desc, 0, sizeof desc);
    desc.tile = grid->def->tile;
    desc.args = grid->def->args;
    desc.level = (uint8_t)(level == FLEET_LEVEL_DEVICE ? (uint32_t)FLEET_LEVEL_CHIPLET
                           : grid->tiles               ? FLEETI_LEVEL_PART
                                                       : level);
    desc.batch = 1;
    desc.slices = grid->slices | grid->tiles << 16;
    desc.grid = index;
    uint32_t flags = fleeti_flags_of(fleeti_symbols_of_shape(b, grid->def), b->cuts, grid->n_maps,
                                     b->settled && b->settled[index]) |
                     (b->early && !fleeti_is_in_order(grid) ? FLEETI_EARLY : 0);
    fleeti_first_coordinate(grid, desc.at);
    for (uint32_t i = 0; i < grid->count; i++, fleeti_next_coordinate(grid, desc.at)) {
        const fleeti_span *notifies =
            &b->shard_notifies[grid->first_shard + (uint64_t)i * grid->shards];
        desc.id = grid->first + i;
        desc.waits = b->task_waits[desc.id].first;
        desc.n_waits = b->task_waits[desc.id].count;
        desc.acquire = b->task_waits[desc.id].scope & 3u;
        desc.flags = flags & 0x3fu;
        for (uint32_t p = 0; p < grid->parts; p++) {
            desc.slice = grid->tiles ? p / grid->tiles : p;
            if (grid->tiles) desc.batch = (uint16_t)(p % grid->tiles);
            desc.notifies = notifies[p % grid->shards].first;
            desc.n_notifies = (uint16_t)notifies[p % grid->shards].count;
            fleeti_emit_descs(b, &desc, fleeti_slot_of(b, grid, desc.id, p), tasks, end);
        }
    }
}

static void fleeti_emit_step_end(const fleeti_build *b, uint32_t queue, fleet_task *task)
{
    const uint32_t chiplet = b->is_static ? b->chiplet_of[queue] : queue;
    task->tile = FLEETI_TILE_NONE;
    task->notifies = fleeti_record_of(fleeti_step_of_chiplet(b, chiplet), chiplet);
    task->n_notifies = 1;
    task->level = (uint8_t)(b->is_static ? FLEET_LEVEL_CU : FLEET_LEVEL_CHIPLET);
    task->batch = 1;
    task->slices = 1;
    task->id = FLEETI_NONE;
    task->grid = FLEETI_NONE;
}

/* Wavefront-tasks in a row run at once. Numbers them, in runs of up to what a batch can hold. */
static void fleeti_set_batches(fleet_task *tasks, uint32_t n)
{
    uint32_t run;
    for (uint32_t i = 0; i < n; i += run) {
        for (run = 0; i + run < n && run < 65535 && tasks[i + run].level == FLEET_LEVEL_WAVE;
             run++) {
        }
        for (uint32_t j = 0; j < run; j++) tasks[i + j].batch = (uint16_t)(run - j);
        if (!run) run = 1;
    }
}

/* Makes the sources of a queue wait for the previous step (edge 9 of fleet_device.h). A worker waits once per step:
   its queue orders the tasks after the first one that waits, except the wavefront-tasks that run at once with it. */
static void fleeti_wait_for_step(const fleeti_build *b, fleet_task *tasks, uint32_t n,
                                 uint32_t rank)
{
    uint32_t scope = b->elements[b->n_elements - 1].scope, known_from = FLEETI_NONE;
    for (uint32_t i = 0; i < n && (!b->chiplet_queues || i < known_from); i++) {
        fleet_task *task = &tasks[i];
        if (!task->n_waits) {
            task->waits = b->step_waits[rank].first;
            task->n_waits = (uint16_t)b->step_waits[rank].count;
            if (scope > task->acquire) task->acquire = scope & 3u;
        } else if (!(b->waits.item[task->waits + task->n_waits - 1u][1] & FLEETI_PREVIOUS)) {
            continue;
        }
        if (known_from == FLEETI_NONE)
            known_from = i + (task->level == FLEET_LEVEL_WAVE ? task->batch : 1u);
    }
}

typedef struct fleeti_place_in_queue {
    int64_t key;
    uint32_t at; /* place by ids */
} fleeti_place_in_queue;

static int fleeti_compare_places(const void *a, const void *b)
{
    const fleeti_place_in_queue *x = (const fleeti_place_in_queue *)a;
    const fleeti_place_in_queue *y = (const fleeti_place_in_queue *)b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/* Sorts the tasks of fixed queues, which are in the order of ids, by their keys. */
static fleet_status fleeti_sort_queues(fleeti_build *b, fleet_task *tasks)
{
    const uint32_t n_queues = b->is_dynamic ? b->chiplet_queues : b->n_queues;
    uint32_t longest = 0;
    for (uint32_t q = 0; q < n_queues; q++)
        if (b->queue[q].count > longest) longest = b->queue[q].count;
    fleeti_place_in_queue *place = FLEETI_ALLOC(b, fleeti_place_in_queue, longest);
    fleet_task *copy = FLEETI_ALLOC(b, fleet_task, longest);
    if (!place || !copy) return fleeti_no_memory(b);
    for (uint32_t q = 0; q < n_queues; q++) {
        const uint32_t n = b->queue[q].count - (b->queue[q].count && !b->is_dynamic);
        fleet_task *first = tasks + b->queue[q].first;
        for (uint32_t i = 0; i < n; i++) {
            place[i].key = fleeti_key_at(&b->grids[first[i].grid].key, first[i].at);
            place[i].at = i;
        }
        if (n) qsort(place, n, sizeof *place, fleeti_compare_places);
        for (uint32_t i = 0; i < n; i++) copy[i] = first[place[i].at];
        if (n) memcpy(first, copy, n * sizeof *copy);
    }
    return FLEET_OK;
}

static fleet_status fleeti_emit_queues(fleeti_build *b, fleet_plan *plan, uint32_t *end)
{
    fleeti_queue *queues = (fleeti_queue *)fleeti_at(plan, plan->queues);
    fleet_task *tasks = (fleet_task *)fleeti_at(plan, plan->tasks);
    for (uint32_t i = 0; i < b->n_queues; i++) {
        queues[i].first = end[i] = b->queue[i].first;
        queues[i].count = b->queue[i].count;
    }
    for (uint32_t i = 0; i < b->n_grids; i++) fleeti_emit_grid(b, i, tasks, end);
    if (b->keyed && fleeti_sort_queues(b, tasks) != FLEET_OK) return b->g->build_status;
    for (uint32_t i = 0; i < b->n_queues; i++) {
        uint32_t n = queues[i].count;
        fleet_task *first = tasks + queues[i].first;
        if (!n || (b->is_dynamic && i >= b->chiplet_queues)) continue;
        if (!b->is_dynamic) fleeti_emit_step_end(b, i, first + --n);
        fleeti_set_batches(first, n);
        if (b->waits_for_step)
            fleeti_wait_for_step(b, first, n,
                                 (b->is_static || b->is_dynamic ? b->chiplet_of[i] : i) /
                                     b->own_chiplets);
    }
    return FLEET_OK;
}

/* ---- tables ---- */

static uint64_t fleeti_emit_name(fleet_plan *plan, uint64_t *at, const char *name)
{
    uint64_t offset = *at;
    size_t bytes = strlen(name) + 1;
    memcpy(fleeti_at(plan, offset), name, bytes);
    *at += bytes;
    return offset;
}

/* The number of values of a map's tensor. `tasks`: of the grid that has the map. */
static uint64_t fleeti_map_values(const fleeti_runtime_map *map, uint32_t tasks)
{
    return (uint64_t)map->values * (fleeti_map_has(map, FLEETI_BY_ROW) ? tasks : 1);
}

/* Converts a map from the builder's fields to the device's. */
static void fleeti_emit_map(const fleeti_build *b, fleet_plan *plan, uint32_t i)
{
    const fleeti_runtime_map *from = &b->maps[i];
    const fleeti_bound_event *event = &b->events[from->inner];
    fleeti_runtime_map *map = (fleeti_runtime_map *)fleeti_at(plan, plan->maps) + i;
    *map = *from;
    map->first = map->inner = 0;
    ((fleeti_tensor_info *)fleeti_at(plan, plan->tensors))[map->tensor].values =
        fleeti_map_values(map, b->grids[from->grid].count);
    if (fleeti_map_has(from, FLEETI_TASKS)) {
        map->grid = from->first;
        map->inner = b->grids[from->first].count / (uint32_t)b->grids[from->first].extent[0];
    }
    if (!event->by_tensor) return;
    map->counter = event->counter;
    map->stride = event->stride;
    map->target = (uint32_t)fleeti_mapped_arrivals(event);
}

/* Appends the levels of a space at word *at of their section. Returns 1 + their first word; 0: the
   extents are constant. */
static uint32_t fleeti_emit_space(fleet_plan *plan, const fleeti_space *space, uint32_t *at)
{
    uint32_t *to = (uint32_t *)fleeti_at(plan, plan->spaces);
    const uint32_t first = *at;
    for (uint32_t k = 0; k < space->rank; k++) {
        memcpy(to + *at, space->level[k], (space->prefixes[k] + 1u) * sizeof *to);
        *at += space->prefixes[k] + 1u;
    }
    return space->rank ? 1 + first : 0;
}

/* Writes an extent as launches evaluate it. One that depends only on symbols that were bound at build becomes a
   constant, because their values may exceed the 31 bits of a launch's symbols. Copies field by field, to keep padding
   bytes out of the block. */
static void fleeti_emit_dim(const fleeti_build *b, fleeti_extent *to, fleet_dim d)
{
    if (!d.symbol || !b->at_launch[d.symbol - 1u]) d = fleet_dim_of(fleeti_evaluate(b, d));
    to->add = d.add;
    to->mul = d.mul;
    to->div = d.div;
    to->symbol = d.symbol;
}

static void fleeti_emit_tables(const fleeti_build *b, fleet_plan *plan)
{
    fleeti_event *events = (fleeti_event *)fleeti_at(plan, plan->events);
    fleeti_grid *grids = (fleeti_grid *)fleeti_at(plan, plan->grids);
    uint32_t *targets = (uint32_t *)fleeti_at(plan, plan->targets);
    fleeti_symbol *symbols = (fleeti_symbol *)fleeti_at(plan, plan->symbols);
    uint64_t name = plan->names;
    uint32_t space = 0;
    for (uint32_t i = 0; i < b->n_grids; i++)
        grids[i].space = fleeti_emit_space(plan, &b->grids[i].space, &space);
    for (uint32_t i = 0; i < b->n_events; i++)
        events[i].space = fleeti_emit_space(plan, &b->events[i].space, &space);
    for (uint32_t i = 0; i < b->n_events; i++) {
        const fleeti_bound_event *from = &b->events[i];
        fleeti_event *event = &events[i];
        event->name = fleeti_emit_name(plan, &name, from->def ? from->def->name : "step");
        event->counter = from->counter;
        event->words = from->words;
        event->stride = from->stride;
        event->first_target = from->first;
        event->elements = from->elements;
        memcpy(event->extent, from->extent, sizeof event->extent);
        event->rank = from->rank;
        event->outside = from->def ? from->def->outside : 0;
        event->outside_notifies = from->def ? from->def->outside_notifies : 0;
        memcpy(event->scoped, from->scoped, sizeof event->scoped);
        event->warnings = from->warnings;
    }
    for (uint32_t i = 0; i < b->n_grids; i++) {
        const fleeti_bound_grid *from = &b->grids[i];
        fleeti_grid *grid = &grids[i];
        grid->name = fleeti_emit_name(plan, &name, from->def->name);
        grid->tile = from->def->tile;
        grid->args = from->def->args;
        grid->level = (uint32_t)from->def->level;
        grid->slices = from->slices;
        grid->tiles = from->tiles;
        memcpy(grid->extent, from->extent, sizeof grid->extent);
        grid->rank = from->rank;
        grid->first_id = from->first;
        grid->count = from->count;
        grid->runs_ahead = b->runs_ahead[i];
        grid->schedule = (uint32_t)from->schedule;
        grid->chosen = from->chosen;
        grid->static_ns = (float)from->static_ns;
        grid->dynamic_ns = (float)from->dynamic_ns;
        grid->guarded = (uint32_t)fleeti_is_guarded(b, from->def);
        grid->settled = b->settled && b->settled[i];
        grid->first_map = from->first_map;
        grid->n_maps = from->n_maps;
        grid->writes = from->def->writes;
        grid->cuts = from->def->cuts;
    }
    for (uint32_t i = 0; b->keyed && i < b->n_grids; i++)
        ((fleet_key *)fleeti_at(plan, plan->keys))[i] = b->grids[i].key;
    for (uint32_t i = 0; i < plan->n_maps; i++) fleeti_emit_map(b, plan, i);
    for (uint32_t i = 0; i < plan->n_tensors; i++)
        ((fleeti_tensor_info *)fleeti_at(plan, plan->tensors))[i].name =
            fleeti_emit_name(plan, &name, b->g->tensors[i].name);
    for (uint32_t i = 0; i < plan->n_symbols; i++) {
        const fleeti_symbol_def *from = &b->g->symbols[i];
        symbols[i].name = fleeti_emit_name(plan, &name, from->name);
        symbols[i].at_launch = b->at_launch[i];
        symbols[i].min = b->at_launch[i] ? (int32_t)from->min : plan->bound[i];
        symbols[i].max = b->at_launch[i] ? (int32_t)from->max : plan->bound[i];
    }
    for (uint32_t i = 0; b->n_at_launch && i < b->n_grids; i++) {
        const fleeti_grid_def *def = b->grids[i].def;
        fleeti_guard *guard = (fleeti_guard *)fleeti_at(plan, plan->guards) + i;
        for (uint32_t k = 0; k < FLEET_MAX_RANK; k++)
            fleeti_emit_dim(b, &guard->extent[k],
                            k >= def->shape.rank ? fleet_dim_of(1)
                            : fleeti_dim_axes(&def->shape.extent[k])
                                ? fleet_dim_of(b->grids[i].extent[k])
                                : def->shape.extent[k]);
        fleeti_emit_dim(b, &guard->slices,
                        def->slices_given ? def->slices : fleet_dim_of(b->grids[i].slices));
    }
    for (uint32_t i = 0; i < b->n_elements; i++) targets[i] = b->elements[i].target;
    if (b->waits.count)
        memcpy(fleeti_at(plan, plan->waits), b->waits.item, b->waits.count * sizeof *b->waits.item);
    if (b->notifies.count)
        memcpy(fleeti_at(plan, plan->notifies), b->notifies.item,
               b->notifies.count * sizeof *b->notifies.item);
    if (b->forwards.count)
        memcpy(fleeti_at(plan, plan->forwards), b->forwards.item,
               b->forwards.count * sizeof *b->forwards.item);
}

/* ---- consumers, under DYNAMIC ---- */

/* Lists a task as a consumer of each element for which it waits, except elements that are never notified: counts in
   next[element], and fills in `out` if it is not null. With next null it only counts. Returns the number of elements.
   With early pushes the list of an element is that of its started producers, in the second half of the table, unless
   run-time maps reach it. */
static uint64_t fleeti_list_consumer(const fleeti_build *b, const fleeti_bound_grid *grid,
                                     const int32_t *at, uint32_t *next, fleeti_consumer *out,
                                     fleeti_consumer consumer)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < grid->n_ins; i++) {
        const fleeti_edge *edge = &b->ins[grid->first_in + i];
        const uint32_t half = b->early && !b->events[edge->event].by_tensor ? b->n_elements : 0;
        fleeti_reach r = fleeti_reach_of(edge, grid->rank, at);
        while (fleeti_reach_next(&r)) {
            if (!b->elements[r.e].target) continue;
            n++;
            if (!next) continue;
            if (out) out[next[r.e + half]] = consumer;
            next[r.e + half]++;
        }
    }
    for (uint32_t i = grid->first_map; i < grid->first_map + grid->n_maps; i++)
        n += !fleeti_map_has(&b->maps[i], FLEETI_ARRIVES) &&
             fleeti_map_is_live(b, &b->maps[i]); /* a task is in one range, which is one element */
    return n;
}

/* Counts the consumer entries: each descriptor has one per element, a source has one. */
static fleet_status fleeti_count_consumers(fleeti_build *b)
{
    fleeti_consumer none;
    int32_t at[FLEET_MAX_RANK];
    uint32_t k;
    memset(&none, 0, sizeof none);
    for (uint32_t i = 0; i < b->n_grids; i++) {
        const fleeti_bound_grid *grid = &b->grids[i];
        fleeti_first_coordinate(grid, at);
        for (uint32_t j = 0; !fleeti_is_in_order(grid) && j < grid->count;
             j++, fleeti_next_coordinate(grid, at)) {
            uint64_t n = fleeti_list_consumer(b, grid, at, NULL, NULL, none), copies = grid->parts;
            if (n > FLEETI_CONSUMER_NEED)
                return fleeti_too_many_edges(b, grid->first + j, n, "events to wait for");
            if (fleeti_level_of(grid) >= FLEET_LEVEL_CHIPLET)
                for (k = 0, copies = 0; k < grid->shards; k++)
                    copies += (uint64_t)fleeti_parts_of_shard(b, grid, k) *
                              b->workers[fleeti_shard_chiplet(b, grid, grid->first + j, k)];
            if (fleeti_work_of_grid(b, grid, FLEETI_WORK_OF_CONSUMER * copies * (n ? n : 1)) !=
                FLEET_OK)
                return b->g->build_status;
            b->n_consumers += copies * (n ? n : 1); /* a range lists each task once */
            if (b->n_consumers > FLEETI_MAX_INDEX)
                return fleeti_reject(b, FLEET_ERROR_TOO_MANY_TASKS, grid->def->site,
                                     "grid %s brings the plan to over 2^31-1 pairs of a task and "
                                     "an event that it waits for",
                                     grid->def->name);
        }
    }
    return FLEET_OK;
}

static uint32_t fleeti_ring_of(const fleet_task *task)
{
    return task->level == FLEET_LEVEL_CHIPLET ? FLEETI_RING_CHIPLET
           : task->level == FLEET_LEVEL_WAVE  ? FLEETI_RING_WAVE
                                              : FLEETI_RING_CU;
}

/* Writes the consumers of ranges, after those of all elements: for each range the tasks of its grid, in order. */
static fleet_status fleeti_emit_ranges(fleeti_build *b, fleet_plan *plan, uint32_t end)
{
    const fleet_task *tasks = fleeti_plan_tasks(plan);
    const fleeti_queue *queues = fleeti_plan_queues(plan);
    fleeti_runtime_map *maps = (fleeti_runtime_map *)fleeti_at(plan, plan->maps);
    fleeti_consumer none, *consumers = (fleeti_consumer *)fleeti_at(plan, plan->consumers);
    uint32_t *first = FLEETI_ALLOC(b, uint32_t, b->n_grids); /* 1 + map */
    uint32_t *next = FLEETI_ALLOC(b, uint32_t, plan->n_maps);
    memset(&none, 0, sizeof none);
    if (!first || !next) return fleeti_no_memory(b);
    for (uint32_t i = 0; i < plan->n_maps; i++) {
        if (!fleeti_map_has(&maps[i], FLEETI_LISTS) || !fleeti_map_is_live(b, &b->maps[i]))
            continue;
        maps[i].first = end;
        end += b->grids[maps[i].grid].count;
        next[i] = first[maps[i].grid];
        first[maps[i].grid] = i + 1;
    }
    for (uint32_t q = b->chiplet_queues; q < b->n_queues; q++)
        for (uint32_t d = queues[q].first; d < queues[q].first + queues[q].count; d++)
            for (uint32_t i = first[tasks[d].grid]; i; i = next[i - 1]) {
                const fleeti_bound_grid *grid = &b->grids[tasks[d].grid];
                fleeti_consumer *c = &consumers[maps[i - 1].first + (tasks[d].id - grid->first)];
                c->desc = d;
                c->need = (uint32_t)fleeti_list_consumer(b, grid, tasks[d].at, NULL, NULL, none) |
                          (FLEETI_RINGS * (q - b->chiplet_queues) + fleeti_ring_of(&tasks[d]))
                              << 24;
            }
    return FLEET_OK;
}

/* Marks the tasks whose arrivals may make other tasks ready. */
static void fleeti_mark_feeders(const fleeti_build *b, fleet_plan *plan)
{
    fleet_task *tasks = (fleet_task *)fleeti_at(plan, plan->tasks);
    const fleeti_trigger *triggers = fleeti_plan_triggers(plan);
    const uint32_t *first = fleeti_plan_first_consumers(plan);
    for (uint32_t d = 0; d < plan->n_descs; d++) {
        uint32_t feeds = (uint32_t)fleeti_arrives_by_maps(b, &b->grids[tasks[d].grid]);
        for (uint32_t i = 0; i < tasks[d].n_notifies && !feeds; i++) {
            const uint32_t e = triggers[tasks[d].notifies + i].element;
            feeds = first[e] < first[e + 1] || e == b->n_elements - 1;
        }
        if (feeds) tasks[d].flags |= FLEETI_FEEDS;
    }
}

/* Writes the consumers of each element, in two rounds: the first one counts them, the second one fills them in. */
static fleet_status fleeti_emit_consumers(fleeti_build *b, fleet_plan *plan)
{
    const fleet_task *tasks = fleeti_plan_tasks(plan);
    const fleeti_queue *queues = fleeti_plan_queues(plan);
    fleeti_consumer *consumers = (fleeti_consumer *)fleeti_at(plan, plan->consumers);
    uint32_t *first = (uint32_t *)fleeti_at(plan, plan->first_consumers);
    const uint32_t lists = b->n_elements * (1 + b->early), step = b->n_elements - 1;
    uint32_t *next = FLEETI_ALLOC(b, uint32_t, lists + 1u);
    if (!next) return fleeti_no_memory(b);
    for (uint32_t fill = 0; fill < 2; fill++) {
        for (uint32_t q = b->chiplet_queues; q < b->n_queues; q++)
            for (uint32_t d = queues[q].first; d < queues[q].first + queues[q].count; d++) {
                const fleeti_bound_grid *grid = &b->grids[tasks[d].grid];
                const uint32_t ring =
                    FLEETI_RINGS * (q - b->chiplet_queues) + fleeti_ring_of(&tasks[d]);
                fleeti_consumer c;
                c.desc = d, c.need = 0;
                uint32_t need = (uint32_t)fleeti_list_consumer(b, grid, tasks[d].at, NULL, NULL, c);
                c.need = (need ? need : 1) | ring << 24;
                if (!fill) plan->ring_entries[ring]++;
                if (need) {
                    fleeti_list_consumer(b, grid, tasks[d].at, next, fill ? consumers : NULL, c);
                } else {
                    if (fill) consumers[next[step]] = c;
                    next[step]++;
                }
            }
        if (fill) break;
        for (uint32_t e = 0; e < lists; e++) first[e + 1] = first[e] + next[e];
        for (uint32_t e = 0; e < lists; e++) next[e] = first[e];
    }
    return fleeti_emit_ranges(b, plan, first[lists]);
}

/* Fills in the consumers of a trigger's element. */
static void fleeti_trigger_consumers(const fleet_plan *plan, fleeti_trigger *trigger)
{
    const uint32_t *first = fleeti_plan_first_consumers(plan);
    const fleeti_runtime_map *maps = fleeti_plan_maps(plan);
    uint32_t apart = trigger->element == plan->n_elements - 1;
    for (uint32_t i = 0; i < plan->n_maps && !apart; i++)
        apart = maps[i].kind == FLEETI_MAP_RANGES &&
                trigger->element - maps[i].first_element < maps[i].elements;
    trigger->from = apart ? FLEETI_APART : first[trigger->element];
    trigger->end = apart ? FLEETI_APART : first[trigger->element + 1];
}

/* Writes the trigger of each notify record, whose element is found by its counter. With early pushes also the number
   of producers of each element. */
static fleet_status fleeti_emit_triggers(fleeti_build *b, fleet_plan *plan)
{
    const fleeti_notify *notifies = fleeti_plan_notifies(plan);
    fleeti_trigger *triggers = (fleeti_trigger *)fleeti_at(plan, plan->triggers);
    uint32_t *of_counter = FLEETI_ALLOC(b, uint32_t, b->counter_words);
    uint32_t *of_system = FLEETI_ALLOC(b, uint32_t, b->system_words);
    if (!of_counter || !of_system) return fleeti_no_memory(b);
    if (b->n_maps && fleeti_work_of_grid(b, &b->grids[b->maps[0].grid],
                                         (uint64_t)plan->n_notifies * b->n_maps / 8) != FLEET_OK)
        return b->g->build_status;
    for (uint32_t i = 0; i < b->n_events; i++)
        for (uint32_t e = 0; e < b->events[i].elements; e++) {
            const uint32_t word = b->events[i].counter + e * b->events[i].stride;
            (word & FLEETI_SYSTEM ? of_system : of_counter)[word & ~FLEETI_SYSTEM] =
                b->events[i].first + e;
        }
    for (uint32_t i = 0; i < plan->n_notifies; i++) {
        const uint32_t word = notifies[i].counter;
        triggers[i].element =
            (word & FLEETI_SYSTEM ? of_system : of_counter)[word & ~FLEETI_SYSTEM];
        triggers[i].target = b->elements[triggers[i].element].target;
        fleeti_trigger_consumers(plan, &triggers[i]);
    }
    for (uint32_t e = 0; b->early && e < b->n_elements; e++)
        for (uint32_t i = 0; i < fleeti_popcount(b->elements[e].producers); i++)
            ((uint32_t *)fleeti_at(plan, plan->taken_targets))[e] +=
                (uint32_t)b->arrivals[b->elements[e].record + i].arrivals;
    return FLEET_OK;
}

static fleet_status fleeti_pass_emit(fleeti_build *b)
{
    uint32_t *end = FLEETI_ALLOC(b, uint32_t, b->n_queues);
    fleet_status status = b->is_dynamic ? fleeti_count_consumers(b) : FLEET_OK;
    if (status != FLEET_OK) return status;
    b->plan = end ? fleeti_new_block(b) : NULL;
    if (!b->plan) return fleeti_no_memory(b);
    status = fleeti_emit_queues(b, b->plan, end);
    if (status != FLEET_OK) return status;
    fleeti_emit_tables(b, b->plan);
    if (!b->is_dynamic) return FLEET_OK;
    status = fleeti_emit_consumers(b, b->plan);
    if (status == FLEET_OK) status = fleeti_emit_triggers(b, b->plan);
    if (status == FLEET_OK) fleeti_mark_feeders(b, b->plan);
    return status;
}

/* ==== >>order: neither a queue order nor a cycle can deadlock ==== */

/* Without keys, queues follow the order of ids. If the producers of every element have smaller ids than its waiters, the order of
   ids extends all event edges and all queue edges, and nothing can deadlock. Nearly all graphs are like that. For the
   others this pass executes the plan on paper: by events alone, which finds cycles, then also by queues. */
static int fleeti_ids_are_ordered(const fleeti_build *b)
{
    for (uint32_t e = 0; e < b->n_elements; e++) {
        const fleeti_element *element = &b->elements[e];
        if (element->last_producer != FLEETI_NONE && element->first_waiter != FLEETI_NONE &&
            element->last_producer >= element->first_waiter)
            return 0;
    }
    return 1;
}

/* A dry run. A node is a task or a part of it. A chiplet-task starts when it is at the head of the queues of all its
   workers, so that its tile may use a barrier of the chiplet. External notifies count as done. */
typedef struct fleeti_dry_run {
    const fleet_task *tasks;
    const fleeti_queue *queues;
    uint32_t sequential; /* 1: queues run in order; 0: only events order tasks */
    uint32_t n_nodes, n_done;
    uint32_t *first_node; /* first node of each grid, and the end */
    uint8_t *done;        /* per node: 1 if it has run */
    uint32_t *pending;    /* per node: waits for elements not complete yet */
    uint32_t *heads;      /* per node: queues at whose head it stands */
    uint32_t *ready;      /* a stack of nodes that can run */
    uint32_t n_ready;
    uint32_t *missing;               /* per element: notifies that are missing */
    uint32_t *first_waiter, *waiter; /* nodes that wait for an element, from first_waiter[e] on */
    uint32_t *position;              /* per queue: descriptors that have run */
    uint32_t *producer;              /* per element of a stuck run: a producer that has not run */
    uint32_t blocker;
} fleeti_dry_run;

static uint32_t fleeti_node_grid(const fleeti_build *b, const fleeti_dry_run *run, uint32_t node)
{
    uint32_t low = 0, high = b->n_grids;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (run->first_node[middle] <= node)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint32_t fleeti_node_task(const fleeti_build *b, const fleeti_dry_run *run, uint32_t node)
{
    uint32_t g = fleeti_node_grid(b, run, node);
    return b->grids[g].first + (node - run->first_node[g]) / b->grids[g].parts;
}

/* The ordered queues that hold a node: returns their number, and the first in *first. A ready queue has no order. */
static uint32_t fleeti_node_queues(const fleeti_build *b, const fleeti_dry_run *run, uint32_t node,
                                   uint32_t *first)
{
    const uint32_t g = fleeti_node_grid(b, run, node), at = node - run->first_node[g];
    const fleeti_bound_grid *grid = &b->grids[g];
    const uint32_t id = grid->first + at / grid->parts, part = at % grid->parts;
    const fleeti_queue_set s = fleeti_queues_of(b, grid, fleeti_slot_of(b, grid, id, part));
    *first = s.first;
    return fleeti_is_in_order(grid) ? s.queues : 0;
}

static uint32_t fleeti_node_of_desc(const fleeti_build *b, const fleeti_dry_run *run,
                                    const fleet_task *task)
{
    const fleeti_bound_grid *grid = &b->grids[task->grid];
    const uint32_t part = grid->tiles ? task->slice * grid->tiles + task->batch : task->slice;
    return run->first_node[task->grid] + (task->id - grid->first) * grid->parts + part;
}

/* The node at the head of a queue; FLEETI_NONE if only the step end is left, or nothing. */
static uint32_t fleeti_queue_head(const fleeti_build *b, const fleeti_dry_run *run, uint32_t queue)
{
    const fleet_task *task = &run->tasks[run->queues[queue].first + run->position[queue]];
    if (run->position[queue] + !b->is_dynamic >= run->queues[queue].count) return FLEETI_NONE;
    return fleeti_node_of_desc(b, run, task);
}

static void fleeti_try_ready(const fleeti_build *b, fleeti_dry_run *run, uint32_t node)
{
    uint32_t first;
    if (run->pending[node]) return;
    if (run->sequential && run->heads[node] < fleeti_node_queues(b, run, node, &first)) return;
    run->ready[run->n_ready++] = node;
}

static void fleeti_reach_head(const fleeti_build *b, fleeti_dry_run *run, uint32_t queue)
{
    uint32_t node = fleeti_queue_head(b, run, queue);
    if (node == FLEETI_NONE) return;
    run->heads[node]++;
    fleeti_try_ready(b, run, node);
}

typedef void (*fleeti_visit_fn)(const fleeti_build *b, fleeti_dry_run *run, uint32_t node,
                                uint32_t element);

/* Calls visit for every element that the node notifies (out) or waits for. */
static void fleeti_visit_node(const fleeti_build *b, fleeti_dry_run *run, uint32_t node,
                              uint32_t out, fleeti_visit_fn visit)
{
    uint32_t g = fleeti_node_grid(b, run, node);
    const fleeti_bound_grid *grid = &b->grids[g];
    int32_t at[FLEET_MAX_RANK];
    /* Run-time maps may reach all elements of their event: the first one stands for them. */
    for (uint32_t i = grid->first_map; i < grid->first_map + grid->n_maps; i++)
        if (fleeti_map_is_live(b, &b->maps[i]) &&
            (fleeti_map_has(&b->maps[i], FLEETI_ARRIVES) != 0) == (out != 0))
            visit(b, run, node, b->maps[i].first_element);
    fleeti_point_of(&grid->space, grid->extent, grid->rank,
                    (node - run->first_node[g]) / grid->parts, at);
    for (uint32_t i = 0; i < (out ? grid->n_outs : grid->n_ins); i++) {
        const fleeti_edge *edge = out ? &b->outs[grid->first_out + i] : &b->ins[grid->first_in + i];
        const fleeti_bound_event *event = &b->events[edge->event];
        fleeti_reach r = fleeti_reach_of(edge, grid->rank, at);
        while (fleeti_reach_next(&r)) visit(b, run, node, event->by_tensor ? event->first : r.e);
    }
}

static void fleeti_visit_all(const fleeti_build *b, fleeti_dry_run *run, uint32_t out,
                             fleeti_visit_fn visit)
{
    for (uint32_t node = 0; node < run->n_nodes; node++)
        fleeti_visit_node(b, run, node, out, visit);
}

static void fleeti_visit_miss(const fleeti_build *b, fleeti_dry_run *run, uint32_t node, uint32_t e)
{
    (void)b;
    (void)node;
    run->missing[e]++;
}

static void fleeti_visit_count(const fleeti_build *b, fleeti_dry_run *run, uint32_t node,
                               uint32_t e)
{
    (void)b;
    (void)node;
    run->first_waiter[e + 1]++;
}

/* Lists the node as a waiter. first_waiter[e] is the place of the next one, so that it ends up at the end of e's
   waiters. */
static void fleeti_visit_wait(const fleeti_build *b, fleeti_dry_run *run, uint32_t node, uint32_t e)
{
    (void)b;
    run->waiter[run->first_waiter[e]++] = node;
    if (run->missing[e]) run->pending[node]++;
}

static void fleeti_visit_notify(const fleeti_build *b, fleeti_dry_run *run, uint32_t node,
                                uint32_t e)
{
    (void)node;
    if (--run->missing[e]) return;
    for (uint32_t i = e ? run->first_waiter[e - 1] : 0; i < run->first_waiter[e]; i++) {
        run->pending[run->waiter[i]]--;
        fleeti_try_ready(b, run, run->waiter[i]);
    }
}

/* Executes the plan on paper, in scratch memory of the build. */
static fleet_status fleeti_run_dry(fleeti_build *b, const fleet_plan *plan, fleeti_dry_run *run,
                                   uint32_t sequential)
{
    uint32_t node, first;
    memset(run, 0, sizeof *run);
    run->tasks = fleeti_plan_tasks(plan);
    run->queues = fleeti_plan_queues(plan);
    run->sequential = sequential;
    run->first_node = FLEETI_ALLOC(b, uint32_t, b->n_grids + 1u);
    if (!run->first_node) return fleeti_no_memory(b);
    for (uint32_t i = 0; i < b->n_grids; i++)
        run->first_node[i + 1] = run->first_node[i] + b->grids[i].count * b->grids[i].parts;
    run->n_nodes = run->first_node[b->n_grids];
    run->done = FLEETI_ALLOC(b, uint8_t, run->n_nodes);
    run->pending = FLEETI_ALLOC(b, uint32_t, run->n_nodes);
    run->heads = FLEETI_ALLOC(b, uint32_t, run->n_nodes);
    run->ready = FLEETI_ALLOC(b, uint32_t, run->n_nodes);
    run->missing = FLEETI_ALLOC(b, uint32_t, b->n_elements);
    run->first_waiter = FLEETI_ALLOC(b, uint32_t, b->n_elements + 1u);
    run->position = FLEETI_ALLOC(b, uint32_t, b->n_queues);
    if (!run->done || !run->pending || !run->heads || !run->ready || !run->missing ||
        !run->first_waiter || !run->position)
        return fleeti_no_memory(b);
    fleeti_visit_all(b, run, 1, fleeti_visit_miss);
    fleeti_visit_all(b, run, 0, fleeti_visit_count);
    for (uint32_t i = 0; i < b->n_elements; i++) run->first_waiter[i + 1] += run->first_waiter[i];
    run->waiter = FLEETI_ALLOC(b, uint32_t, run->first_waiter[b->n_elements]);
    if (!run->waiter) return fleeti_no_memory(b);
    fleeti_visit_all(b, run, 0, fleeti_visit_wait);
    for (node = 0; node < run->n_nodes; node++)
        if (!sequential || !fleeti_node_queues(b, run, node, &first))
            fleeti_try_ready(b, run, node);
    for (uint32_t i = 0; sequential && i < (b->is_dynamic ? b->chiplet_queues : b->n_queues); i++)
        fleeti_reach_head(b, run, i);
    while (run->n_ready) {
        node = run->ready[--run->n_ready];
        run->done[node] = 1;
        run->n_done++;
        fleeti_visit_node(b, run, node, 1, fleeti_visit_notify);
        if (!sequential) continue;
        uint32_t n = fleeti_node_queues(b, run, node, &first);
        for (uint32_t i = first; i < first + n; i++) {
            run->position[i]++;
            fleeti_reach_head(b, run, i);
        }
    }
    return FLEET_OK;
}

/* A path of nodes, each blocked by the next one, up to the first repetition. */
typedef struct fleeti_blocked {
    uint32_t *path;  /* nodes; the cycle is path[from .. count - 1], and back to path[from] */
    uint32_t *queue; /* in which path[i + 1] is before path[i]; FLEETI_NONE: an event blocks it */
    uint32_t from, count;
} fleeti_blocked;

/* Records a producer of each element that has not run. */
static void fleeti_visit_producer(const fleeti_build *b, fleeti_dry_run *run, uint32_t node,
                                  uint32_t e)
{
    (void)b;
    if (!run->done[node]) run->producer[e] = node;
}

static void fleeti_visit_blocker(const fleeti_build *b, fleeti_dry_run *run, uint32_t node,
                                 uint32_t e)
{
    (void)b;
    (void)node;
    if (run->missing[e]) run->blocker = run->producer[e];
}

/* The node that blocks a node which has not run: a producer of an element for which it waits; or else the head of a
   queue in which the node is further back. */
static uint32_t fleeti_find_blocker(const fleeti_build *b, fleeti_dry_run *run, uint32_t node,
                                    uint32_t *queue)
{
    uint32_t i, first;
    *queue = run->blocker = FLEETI_NONE;
    fleeti_visit_node(b, run, node, 0, fleeti_visit_blocker);
    if (run->blocker != FLEETI_NONE) return run->blocker;
    uint32_t n = fleeti_node_queues(b, run, node, &first);
    for (i = first; i + 1 < first + n && fleeti_queue_head(b, run, i) == node; i++) {
    }
    *queue = i;
    return fleeti_queue_head(b, run, i);
}

static fleet_status fleeti_find_cycle(fleeti_build *b, fleeti_dry_run *run, fleeti_blocked *out)
{
    uint32_t *seen = FLEETI_ALLOC(b, uint32_t, run->n_nodes), node = 0, i;
    out->path = FLEETI_ALLOC(b, uint32_t, run->n_nodes + 1u);
    out->queue = FLEETI_ALLOC(b, uint32_t, run->n_nodes + 1u);
    run->producer = FLEETI_ALLOC(b, uint32_t, b->n_elements);
    if (!seen || !out->path || !out->queue || !run->producer) return fleeti_no_memory(b);
    fleeti_visit_all(b, run, 1, fleeti_visit_producer);
    while (run->done[node]) node++;
    for (i = 0; !seen[node]; i++) {
        seen[node] = i + 1;
        out->path[i] = node;
        node = fleeti_find_blocker(b, run, node, &out->queue[i]);
    }
    out->from = seen[node] - 1;
    out->count = i;
    return FLEET_OK;
}

static fleet_status fleeti_report_cycle(fleeti_build *b, fleeti_dry_run *run)
{
    fleeti_blocked blocked;
    char task[FLEETI_POINT_BYTES], list[400];
    fleeti_text out = fleeti_text_at(list, sizeof list);
    fleet_status status = fleeti_find_cycle(b, run, &blocked);
    if (status != FLEET_OK) return status;
    uint32_t n = blocked.count - blocked.from;
    for (uint32_t i = 0; i < n && i < 4; i++)
        fleeti_put(
            &out, "%s waits for ",
            fleeti_task_text(b, fleeti_node_task(b, run, blocked.path[blocked.from + i]), task));
    if (n > 4) fleeti_put(&out, "%u more, the last for ", n - 4);
    fleeti_put(&out, "%s",
               fleeti_task_text(b, fleeti_node_task(b, run, blocked.path[blocked.from]), task));
    return fleeti_reject(b, FLEET_ERROR_CYCLE, NULL, "the graph has a cycle: %s", list);
}

/* Whether the grid may be DYNAMIC. */
static int fleeti_may_be_dynamic(const fleeti_build *b, uint32_t grid)
{
    return b->desc->schedule != FLEET_SCHEDULE_CHIPLET && !b->unfused && !b->inputs[grid].outside &&
           !fleeti_names_workers(b->grids[grid].def);
}

/* Says what helps if a task of grid `early` is queued before one of grid `late` that must run first: another order of
   the grids, unless events lead both ways; otherwise to take the tasks of one grid out of the fixed queues. */
static fleet_status fleeti_advise_order(fleeti_build *b, uint32_t early, uint32_t late,
                                        char *advice, size_t bytes)
{
    const char *first = b->grids[late].def->name, *then = b->grids[early].def->name;
    uint32_t leads = early == late;
    fleet_status status = leads ? FLEET_OK : fleeti_leads_to(b, early, late, &leads);
    if (status != FLEET_OK) return status;
    if (b->keyed)
        snprintf(advice, bytes, "change the key of grid %s or of grid %s (fleet_grid_order)", first,
                 then);
    else if (!leads)
        snprintf(advice, bytes, "add grid %s before grid %s", first, then);
    else if (b->desc->schedule == FLEET_SCHEDULE_CHIPLET)
        snprintf(advice, bytes,
                 "no order of the grids helps: order their tasks by keys (fleet_grid_order), or "
                 "build the plan under DYNAMIC");
    else if (fleeti_may_be_dynamic(b, early) || fleeti_may_be_dynamic(b, late))
        snprintf(advice, bytes,
                 "no order of the grids helps: order their tasks by keys (fleet_grid_order), or "
                 "make grid %s DYNAMIC (fleet_grid_schedule)",
                 fleeti_may_be_dynamic(b, early) ? then : first);
    else
        snprintf(advice, bytes,
                 "no order of the grids helps, and neither can be DYNAMIC: order their tasks by "
                 "keys (fleet_grid_order), place them on different workers, or split one of them");
    return FLEET_OK;
}

static fleet_status fleeti_report_order(fleeti_build *b, fleeti_dry_run *run)
{
    fleeti_blocked blocked;
    char late[FLEETI_POINT_BYTES], early[FLEETI_POINT_BYTES], queue[64], advice[320];
    uint32_t i;
    fleet_status status = fleeti_find_cycle(b, run, &blocked);
    if (status != FLEET_OK) return status;
    /* Events alone make no cycle here, so that some step of the cycle is along a queue. */
    for (i = blocked.from; blocked.queue[i] == FLEETI_NONE; i++) {
    }
    uint32_t q = blocked.queue[i];
    uint32_t after = blocked.path[i];
    uint32_t before = blocked.path[i + 1 < blocked.count ? i + 1 : blocked.from];
    if (b->chiplet_queues)
        snprintf(queue, sizeof queue, "worker %u of chiplet %u", q - b->base[b->chiplet_of[q]],
                 b->chiplet_of[q]);
    else
        snprintf(queue, sizeof queue, "chiplet %u", q);
    status = fleeti_advise_order(b, fleeti_node_grid(b, run, before),
                                 fleeti_node_grid(b, run, after), advice, sizeof advice);
    if (status != FLEET_OK) return status;
    return fleeti_reject(b, FLEET_ERROR_ORDER, NULL,
                         "in the queue of %s task %s is before %s, but can run only after it: %s",
                         queue, fleeti_task_text(b, fleeti_node_task(b, run, before), early),
                         fleeti_task_text(b, fleeti_node_task(b, run, after), late), advice);
}

/* Whether AUTO can still make some grid DYNAMIC. */
static int fleeti_can_avoid_deadlock(const fleeti_build *b)
{
    for (uint32_t i = 0; i < b->n_grids; i++)
        if (b->grids[i].count && b->grids[i].chosen && fleeti_is_by_worker(&b->grids[i])) return 1;
    return 0;
}

static fleet_status fleeti_pass_order(fleeti_build *b)
{
    fleeti_dry_run run;
    if (!b->keyed && fleeti_ids_are_ordered(b)) return FLEET_OK;
    fleet_status status = fleeti_run_dry(b, b->plan, &run, 0);
    if (status != FLEET_OK) return status;
    if (run.n_done < run.n_nodes) return fleeti_report_cycle(b, &run);
    status = fleeti_run_dry(b, b->plan, &run, 1);
    if (status != FLEET_OK || run.n_done == run.n_nodes) return status;
    return fleeti_can_avoid_deadlock(b) ? FLEET_ERROR_ORDER : fleeti_report_order(b, &run);
}

/* ==== >>check: blocks that come from outside ==== */

/* Checks everything by which device code and host functions index, divide or loop, so that they need not. Most parts
   of a plan repeat others: the places of sections and counters follow from their sizes, a descriptor repeats its
   grid, a record the element of its counter. All repetitions must agree. What remains free is which task notifies
   which element. The checks rely on those before them. */

static int fleeti_range_fits(uint32_t first, uint32_t count, uint32_t size)
{
    return count <= size && first <= size - count;
}

/* Whether n words are 0. */
static int fleeti_are_zero(const uint32_t *word, uint32_t n)
{
    while (n && !word[n - 1]) n--;
    return n == 0;
}

/* The space of a grid or an event in a plan. */
static fleeti_space fleeti_space_of(const fleet_plan *plan, uint32_t space, uint32_t rank)
{
    const uint32_t *level = fleeti_plan_spaces(plan) + space - 1u;
    fleeti_space s;
    memset(&s, 0, sizeof s);
    if (!space) return s;
    s.rank = rank;
    for (uint32_t k = 0, prefixes = 1; k < rank; k++) {
        s.level[k] = level;
        s.prefixes[k] = prefixes;
        level += prefixes + 1u;
        prefixes = level[-1];
    }
    return s;
}

/* Whether levels are those of a space with these extents and so many points, and follow the ones
   before, which end at word *end. */
static int fleeti_space_fits(const fleet_plan *plan, uint32_t space, const int32_t *extent,
                             uint32_t rank, uint32_t count, uint32_t *end)
{
    const uint32_t *words = fleeti_plan_spaces(plan);
    uint32_t prefixes = 1;
    if (space != 1 + *end) return 0;
    for (uint32_t k = 0; k < rank; k++) {
        uint32_t most = 0;
        if (plan->n_space_words - *end <= prefixes) return 0;
        const uint32_t *level = words + *end;
        if (level[0]) return 0;
        for (uint32_t i = 0; i < prefixes; i++) {
            if (level[i + 1] < level[i]) return 0;
            if (level[i + 1] - level[i] > most) most = level[i + 1] - level[i];
        }
        if (most != (uint32_t)extent[k]) return 0;
        *end += prefixes + 1u;
        prefixes = level[prefixes];
        if (prefixes > FLEETI_MAX_INDEX) return 0;
    }
    return prefixes == count;
}

/* The same for all spaces. */
static int fleeti_extents_fit(const fleet_plan *plan, uint32_t space, const int32_t *extent,
                              uint32_t rank, uint32_t count, uint32_t *end)
{
    uint64_t points = 1;
    if (rank > FLEET_MAX_RANK) return 0;
    for (uint32_t k = 0; k < rank; k++)
        if (extent[k] < 0) return 0;
    if (space) return rank && fleeti_space_fits(plan, space, extent, rank, count, end);
    for (uint32_t k = 0; k < rank; k++) {
        points *= (uint64_t)extent[k];
        if (points > FLEETI_MAX_INDEX) return 0;
    }
    return points == count;
}

/* The number of the first chiplet's queue, after those of the workers. */
static uint32_t fleeti_chiplet_queues(const fleet_plan *plan)
{
    return plan->schedule == FLEET_SCHEDULE_CHIPLET ? 0 : plan->total_workers;
}

/* A plan under check, and its tables. */
typedef struct fleeti_check {
    const fleet_plan *plan;
    uint32_t dynamic;     /* 1: its schedule is DYNAMIC */
    uint32_t cuts;        /* a bit for each symbol that a task cuts */
    uint32_t space_words; /* checked so far */
    const fleeti_queue *queues;
    const fleet_task *tasks;
    const fleeti_wait *waits;
    const fleeti_notify *notifies;
    const fleeti_event *events;
    const fleeti_grid *grids;
    const uint32_t *targets;
    const fleeti_symbol *symbols;
    const fleeti_guard *guards;
    const fleeti_runtime_map *maps;
    const fleeti_tensor_info *tensors;
    const fleeti_forward *forwards;
    uint64_t end_of_names;
    /* Where its counters begin: after those of the previous buckets. */
    uint64_t first_word, first_system;
    /* Scratch memory. by_counter: the events with elements, by counter; those in device memory, then those in host
       memory. */
    uint32_t *by_counter, n_device, n_system;
    uint32_t *other_target; /* per element: the next one with another target */
    uint32_t *exist;        /* per grid: its maps that decide which of its tasks exist */
    uint32_t *arrive;       /* per grid: its maps by which its tasks arrive */
    uint32_t *feeds;  /* DYNAMIC: per notify record, how many before it may make a task ready */
    uint32_t *listed; /* DYNAMIC: per descriptor, its number of consumer entries */
} fleeti_check;

uint32_t fleet_plan_version(const void *block, size_t bytes)
{
    const fleet_plan *plan = (const fleet_plan *)block;
    uint64_t magic;
    uint32_t version;
    if (!block || bytes < offsetof(fleet_plan, version) + sizeof version) return 0;
    memcpy(&magic, (const void *)&plan->magic, sizeof magic);
    memcpy(&version, (const void *)&plan->version, sizeof version);
    return magic == FLEET_PLAN_MAGIC ? version : 0;
}

/* Checks magic, version, sizes and checksum. */
static fleet_status fleeti_check_block(const void *block, size_t bytes)
{
    const fleet_plan *plan = (const fleet_plan *)block;
    uint64_t magic;
    uint32_t version;
    if (!block) return FLEET_ERROR_NULL;
    if ((uintptr_t)block % 16) return FLEET_ERROR_ARGUMENT;
    if (bytes < sizeof magic) return FLEET_ERROR_IMAGE_SIZE;
    memcpy(&magic, block, sizeof magic);
    if (magic != FLEET_PLAN_MAGIC) return FLEET_ERROR_IMAGE_MAGIC;
    if (bytes < sizeof magic + sizeof version) return FLEET_ERROR_IMAGE_SIZE;
    memcpy(&version, (const char *)block + sizeof magic, sizeof version);
    if (version != FLEET_VERSION) return FLEET_ERROR_IMAGE_VERSION;
    if (bytes < sizeof *plan || plan->header_bytes != sizeof *plan || plan->bytes > bytes ||
        plan->bytes <= sizeof *plan)
        return FLEET_ERROR_IMAGE_SIZE;
    return plan->checksum == fleeti_checksum(plan) ? FLEET_OK : FLEET_ERROR_IMAGE_CHECKSUM;
}

/* Checks that sections are where the counts put them. */
static int fleeti_check_layout(fleeti_check *c)
{
    const fleet_plan *plan = c->plan;
    fleet_plan head;
    memcpy(&head, plan, sizeof head);
    if (plan->early > 1 || plan->guarded > 1 || plan->keyed > 1 ||
        plan->n_tasks > FLEETI_MAX_INDEX || plan->n_descs > FLEETI_MAX_INDEX ||
        plan->n_waits > FLEETI_MAX_INDEX || plan->n_notifies > FLEETI_MAX_INDEX ||
        plan->n_elements > FLEETI_MAX_INDEX || plan->n_consumers > FLEETI_MAX_INDEX ||
        plan->n_maps > FLEETI_MAX_INDEX || !plan->n_events || plan->n_symbols > FLEET_MAX_SYMBOLS ||
        plan->n_tensors > FLEET_MAX_TENSORS || plan->n_forwards > FLEETI_MAX_INDEX ||
        plan->n_space_words > FLEETI_MAX_INDEX || plan->pad)
        return 0;
    fleeti_lay_out_block(&head);
    if (memcmp(&head, plan, sizeof head) != 0 || head.names >= plan->bytes) return 0;
    c->queues = fleeti_plan_queues(plan);
    c->tasks = fleeti_plan_tasks(plan);
    c->waits = fleeti_plan_waits(plan);
    c->notifies = fleeti_plan_notifies(plan);
    c->events = fleeti_plan_events(plan);
    c->grids = fleeti_plan_grids(plan);
    c->targets = fleeti_plan_targets(plan);
    c->symbols = fleeti_plan_symbols(plan);
    c->guards = fleeti_plan_guards(plan);
    c->maps = fleeti_plan_maps(plan);
    c->tensors = fleeti_plan_tensors(plan);
    c->forwards = fleeti_plan_forwards(plan);
    return 1;
}

/* Checks that this is the next name, and that it ends. */
static int fleeti_check_name(fleeti_check *c, uint64_t name)
{
    const char *text = (const char *)c->plan + c->end_of_names;
    const uint64_t room = c->plan->bytes - c->end_of_names;
    uint64_t n = 0;
    if (name != c->end_of_names) return 0;
    while (n < room && n < FLEETI_NAME_BYTES && text[n]) n++;
    if (!n || n == room || n == FLEETI_NAME_BYTES) return 0;
    c->end_of_names += n + 1;
    return 1;
}

/* Checks that names are in the builder's order, without gaps. */
static int fleeti_check_names(fleeti_check *c)
{
    const fleet_plan *plan = c->plan;
    int fits = 1;
    c->end_of_names = plan->names;
    for (uint32_t i = 0; fits && i < plan->n_events; i++)
        fits = fleeti_check_name(c, c->events[i].name);
    for (uint32_t i = 0; fits && i < plan->n_grids; i++)
        fits = fleeti_check_name(c, c->grids[i].name);
    for (uint32_t i = 0; fits && i < plan->n_tensors; i++)
        fits = fleeti_check_name(c, c->tensors[i].name);
    for (uint32_t i = 0; fits && i < plan->n_symbols; i++)
        fits = fleeti_check_name(c, c->symbols[i].name);
    return fits;
}

static int fleeti_check_workers(const fleeti_check *c)
{
    const fleet_plan *plan = c->plan;
    const fleet_topology *t = &plan->topology;
    const uint32_t scheduler = plan->schedule == FLEET_SCHEDULE_CHIPLET;
    uint32_t k, workers = 0;
    if (plan->chiplets < 1 || plan->chiplets > FLEET_MAX_CHIPLETS || plan->ranks < 1 ||
        plan->ranks > FLEET_MAX_PEERS || !t->chiplets || plan->chiplets % plan->ranks ||
        t->chiplets != plan->chiplets / plan->ranks || plan->schedule > FLEET_SCHEDULE_DYNAMIC ||
        (plan->ranks > 1 && (plan->schedule == FLEET_SCHEDULE_DYNAMIC || plan->n_tensors ||
                             plan->rebinds || !plan->n_tasks)) ||
        (plan->ranks == 1 && plan->n_forwards) || t->wave_size < 1 || t->wave_size > 64 ||
        t->wave_size & (t->wave_size - 1) || plan->private_l2 != (t->private_l2 != 0) ||
        t->name[sizeof t->name - 1])
        return 0;
    for (k = 0; k < plan->chiplets; k++) {
        const uint32_t units = t->units[k % t->chiplets];
        if (plan->worker_base[k] != workers || !plan->workers[k] || units > 65536 ||
            plan->workers[k] > units - (units ? scheduler : 0))
            return 0;
        workers += plan->workers[k];
    }
    return workers == plan->total_workers &&
           fleeti_are_zero(plan->workers + k, FLEET_MAX_CHIPLETS - k) &&
           fleeti_are_zero(plan->worker_base + k, FLEET_MAX_CHIPLETS - k) &&
           plan->n_queues == fleeti_chiplet_queues(plan) +
                                 (plan->schedule == FLEET_SCHEDULE_STATIC ? 0 : plan->chiplets);
}

/* Checks symbols. The shapes that they give at launch are at most those of the grids. */
static int fleeti_check_symbols(const fleeti_check *c)
{
    const fleet_plan *plan = c->plan;
    uint32_t i, at_launch = 0;
    for (i = 0; i < plan->n_symbols; i++) {
        const fleeti_symbol *s = &c->symbols[i];
        if (s->at_launch > 1 || s->pad || s->min < 0 || s->min > s->max ||
            plan->bound[i] < s->min || plan->bound[i] > s->max ||
            (!s->at_launch && s->min != s->max))
            return 0;
        at_launch |= s->at_launch;
    }
    for (; i < FLEET_MAX_SYMBOLS; i++)
        if (plan->bound[i]) return 0;
    return plan->guarded == at_launch;
}

/* Whether an extent of launches gives that of its grid, for the largest symbols. Sets *guarded if it has a symbol. */
static int fleeti_check_dim_of(const fleeti_check *c, const fleeti_extent *d, int64_t extent,
                               uint32_t *guarded)
{
    if (d->div <= 0 || d->mul < 0 || fleeti_is_huge(d->div) || fleeti_is_huge(d->add) ||
        fleeti_is_huge(fleeti_mul(d->mul, FLEETI_MAX_INDEX)) || d->symbol > c->plan->n_symbols ||
        (d->symbol && !c->symbols[d->symbol - 1].at_launch))
        return 0;
    int64_t value = d->add + (d->symbol ? d->mul * c->plan->bound[d->symbol - 1] : 0);
    if (d->symbol) *guarded = 1;
    return fleeti_floor_div(value, d->div) == extent;
}

/* A bit for each symbol that launches bind of the grid's shape. */
static uint32_t fleeti_check_symbols_of(const fleeti_check *c, uint32_t grid)
{
    uint32_t symbols = 0;
    if (!c->plan->guarded) return 0;
    for (uint32_t k = 0; k < FLEET_MAX_RANK; k++)
        if (c->guards[grid].extent[k].symbol)
            symbols |= 1u << (c->guards[grid].extent[k].symbol - 1u);
    if (c->guards[grid].slices.symbol) symbols |= 1u << (c->guards[grid].slices.symbol - 1u);
    return symbols;
}

/* Checks the symbols that tasks set, and counts those that they cut. */
static int fleeti_check_setters(fleeti_check *c)
{
    const fleet_plan *plan = c->plan;
    uint32_t writes = 0;
    for (uint32_t i = 0; i < plan->n_grids; i++) {
        const fleeti_grid *grid = &c->grids[i];
        if ((grid->writes | grid->cuts) &&
            (grid->count != 1 || grid->level > FLEET_LEVEL_CU || grid->guarded || grid->n_maps))
            return 0;
        if (writes && grid->writes) return 0;
        writes |= grid->writes;
        c->cuts |= grid->cuts;
    }
    for (uint32_t i = 0; i < 32; i++)
        if (writes >> i & 1u && (i >= plan->n_symbols || !c->symbols[i].at_launch ||
                                 plan->bound[i] != c->symbols[i].max))
            return 0;
    return writes == plan->rebinds && !(c->cuts & ~writes);
}

static int fleeti_check_grids(fleeti_check *c)
{
    const fleet_plan *plan = c->plan;
    uint32_t tasks = 0, maps = 0, waves = 0, fits = 1;
    for (uint32_t i = 0; i < plan->n_grids; i++) {
        const fleeti_grid *grid = &c->grids[i];
        uint32_t guarded = 0;
        if (grid->level > FLEET_LEVEL_DEVICE || grid->tile == FLEETI_TILE_NONE || !grid->slices ||
            grid->slices > FLEETI_MAX_INDEX ||
            (grid->level != FLEET_LEVEL_DEVICE && grid->slices != 1) ||
            grid->tiles > FLEETI_MAX_PARTS ||
            (grid->tiles &&
             (grid->level < FLEET_LEVEL_CHIPLET || grid->slices > FLEETI_MAX_PARTS)) ||
            grid->first_id != tasks || grid->count > plan->n_tasks - tasks ||
            !fleeti_extents_fit(plan, grid->space, grid->extent, grid->rank, grid->count,
                                &c->space_words) ||
            grid->runs_ahead > 1 || grid->chosen > FLEETI_CHOSEN_AVOIDS_DEADLOCK ||
            grid->first_map != maps || grid->n_maps > plan->n_maps - maps ||
            (grid->schedule != plan->schedule &&
             (!c->dynamic || grid->schedule != FLEET_SCHEDULE_STATIC)))
            return 0;
        for (uint32_t k = 0; plan->guarded && k < FLEET_MAX_RANK && fits; k++)
            fits = (uint32_t)fleeti_check_dim_of(c, &c->guards[i].extent[k],
                                                 k < grid->rank ? grid->extent[k] : 1, &guarded);
        if (plan->guarded && fits)
            fits = (uint32_t)fleeti_check_dim_of(c, &c->guards[i].slices, grid->slices, &guarded);
        if (!fits || grid->guarded != guarded || grid->settled > guarded) return 0;
        tasks += grid->count;
        maps += grid->n_maps;
        if (grid->count && grid->level == FLEET_LEVEL_WAVE) waves = 1;
    }
    return tasks == plan->n_tasks && maps == plan->n_maps && plan->has_waves == waves;
}

/* Checks events and their counters. Counters are contiguous: those of each tensor, then its sub-counters, at most one
   run for each chiplet. Hence the words that a state needs are bounded by the size of the block. */
static int fleeti_check_events(fleeti_check *c)
{
    const fleet_plan *plan = c->plan;
    uint64_t min = c->first_word, max = c->first_word, system = c->first_system;
    uint32_t elements = 0;
    if (plan->step_event != plan->n_events - 1) return 0;
    for (uint32_t i = 0; i < plan->n_events; i++) {
        const fleeti_event *event = &c->events[i];
        const uint64_t words = fleeti_counter_words(event->elements, event->stride);
        const uint32_t in_host = event->counter & FLEETI_SYSTEM;
        if (event->first_target != elements || event->elements > plan->n_elements - elements ||
            !event->stride || event->stride > FLEETI_LINE_WORDS ||
            event->stride & (event->stride - 1) ||
            (plan->ranks > 1 && (event->rank < 1 || event->outside || in_host ||
                                 event->extent[0] != (int32_t)plan->ranks)) ||
            (i == plan->step_event &&
             (event->elements != plan->ranks || in_host || event->rank != (plan->ranks > 1))) ||
            event->outside > (FLEET_EXTERNAL_NOTIFIES | FLEET_EXTERNAL_WAITS) ||
            (event->outside & FLEET_EXTERNAL_NOTIFIES ? event->outside_notifies > FLEETI_MAX_INDEX
                                                      : event->outside_notifies) ||
            event->warnings > FLEETI_WARN_NO_WAITER ||
            (uint64_t)event->scoped[0] + event->scoped[1] + event->scoped[2] + event->scoped[3] !=
                event->elements ||
            (event->scoped[FLEET_SCOPE_SYSTEM] != 0) !=
                ((plan->ranks > 1 ? event->words : in_host) != 0) ||
            (event->words && (plan->ranks == 1 || event->words != (FLEETI_SYSTEM | system))))
            return 0;
        if (event->words) system += words;
        if (!fleeti_extents_fit(plan, event->space, event->extent, event->rank, event->elements,
                                &c->space_words))
            return 0;
        if (in_host) {
            if ((event->counter & ~FLEETI_SYSTEM) != system) return 0;
            system += words;
        } else {
            if (event->counter < min || event->counter > max ||
                (event->counter - c->first_word) % FLEETI_LINE_WORDS)
                return 0;
            if (event->elements) c->by_counter[c->n_device++] = i;
            min = max = event->counter + words;
        }
        max += plan->chiplets * words;
        if (system > FLEETI_MAX_INDEX) return 0;
        elements += event->elements;
    }
    for (uint32_t i = 0; i < plan->n_events; i++)
        if (c->events[i].counter & FLEETI_SYSTEM) c->by_counter[c->n_device + c->n_system++] = i;
    for (uint32_t k = elements; k-- > 0;)
        c->other_target[k] =
            k + 1 < elements && c->targets[k] == c->targets[k + 1] ? c->other_target[k + 1] : k + 1;
    for (uint32_t k = 0; k < elements; k++)
        if (c->targets[k] > FLEETI_MAX_INDEX) return 0;
    /* Workers divide by the target of the step event. */
    if (elements != plan->n_elements) return 0;
    for (uint32_t k = 0; plan->n_tasks && k < plan->ranks; k++)
        if (!c->targets[elements - 1 - k]) return 0;
    if (c->dynamic) {
        const uint64_t joins = fleeti_whole_lines(plan->n_descs);
        if (plan->joins < min || plan->joins > max ||
            (plan->joins - c->first_word) % FLEETI_LINE_WORDS ||
            plan->taken != (plan->early ? plan->joins + joins : 0))
            return 0;
        min = max = plan->joins + joins + (plan->early ? fleeti_whole_lines(elements) : 0);
    } else if (plan->joins || plan->taken || plan->early || plan->n_consumers ||
               !fleeti_are_zero(plan->ring_entries, FLEETI_RINGS * FLEET_MAX_CHIPLETS)) {
        return 0;
    }
    return plan->counter_words >= min && plan->counter_words <= max &&
           plan->counter_words <= FLEETI_MAX_INDEX &&
           (plan->counter_words - c->first_word) % FLEETI_LINE_WORDS == 0 &&
           plan->system_words == (plan->ranks > 1 || system > FLEETI_LINE_WORDS ? system : 0);
}

/* The event that owns `count` counters from this word on, `stride` words apart. They are those of elements from
   *element on, which all have the same target. Null if there is none. */
static const fleeti_event *fleeti_check_counter(const fleeti_check *c, uint32_t counter,
                                                uint32_t count, uint32_t stride, uint32_t *element)
{
    const uint32_t in_host = counter & FLEETI_SYSTEM;
    const uint32_t *list = c->by_counter + (in_host ? c->n_device : 0);
    uint32_t low = 0, high = in_host ? c->n_system : c->n_device;
    if (!high) return NULL;
    while (high - low > 1) {
        const uint32_t middle = low + (high - low) / 2;
        if (c->events[list[middle]].counter <= counter)
            low = middle;
        else
            high = middle;
    }
    const fleeti_event *event = &c->events[list[low]];
    if (counter < event->counter || (counter - event->counter) % event->stride ||
        (count > 1 && stride != event->stride))
        return NULL;
    *element = (counter - event->counter) / event->stride;
    if (!fleeti_range_fits(*element, count, event->elements)) return NULL;
    *element += event->first_target;
    return c->other_target[*element] - *element >= count ? event : NULL;
}

/* Checks that a word of the system counters, and count - 1 that follow, are those of elements on other ranks. *step: they
   are of the step event. */
static int fleeti_check_words(const fleeti_check *c, uint32_t word, uint32_t count, uint32_t stride,
                              uint32_t *step)
{
    for (uint32_t i = 0; i < c->plan->n_events; i++) {
        const fleeti_event *event = &c->events[i];
        const uint32_t at = word - event->words;
        if (!event->words || word < event->words || at / event->stride >= event->elements) continue;
        *step = i == c->plan->step_event;
        return at % event->stride == 0 && (count == 1 || stride == event->stride) &&
               fleeti_range_fits(at / event->stride, count, event->elements);
    }
    return 0;
}

/* Checks forwards and the wait records for the previous step. */
static int fleeti_check_forwards(const fleeti_check *c)
{
    const fleet_plan *plan = c->plan;
    uint32_t e = 0;
    for (uint32_t i = 0; i < plan->n_forwards; i++) {
        const fleeti_forward *forward = &c->forwards[i];
        const fleeti_event *event = fleeti_check_counter(c, forward->counter, 1, 1, &e);
        if (!event || !event->words || !forward->target || forward->target != c->targets[e])
            return 0;
        uint32_t at = e - event->first_target;
        if (forward->word != (event->words & ~FLEETI_SYSTEM) + at * event->stride ||
            !forward->ranks || forward->ranks >> plan->ranks ||
            forward->ranks >> at / (event->elements / plan->ranks) & 1u)
            return 0;
    }
    for (uint32_t i = 0; i < FLEET_MAX_PEERS; i++) {
        const uint32_t n = plan->n_step_waits[i];
        if (n != (plan->ranks > 1 && i < plan->ranks ? plan->ranks : 0) ||
            !fleeti_range_fits(plan->step_waits[i], n, plan->n_waits))
            return 0;
        for (uint32_t k = 0; k < n; k++)
            if (!(c->waits[plan->step_waits[i] + k].count & FLEETI_PREVIOUS)) return 0;
    }
    return 1;
}

/* Checks wait and notify records, and the triggers, which repeat them. */
static int fleeti_check_records(const fleeti_check *c)
{
    const fleet_plan *plan = c->plan;
    const fleeti_event *step = &c->events[plan->step_event];
    const fleeti_trigger *triggers = fleeti_plan_triggers(plan);
    const uint32_t *first = fleeti_plan_first_consumers(plan);
    fleeti_trigger trigger;
    uint32_t e = 0;
    for (uint32_t i = 0; i < plan->n_waits; i++) {
        const fleeti_wait *wait = &c->waits[i];
        const uint32_t count = wait->count & ~FLEETI_PREVIOUS;
        uint32_t of_step = 0;
        if (plan->ranks > 1 && wait->counter & FLEETI_SYSTEM) {
            if (!count || wait->target != 1 || !wait->stride || wait->stride > FLEETI_LINE_WORDS ||
                !fleeti_check_words(c, wait->counter, count, wait->stride, &of_step) ||
                (wait->count & FLEETI_PREVIOUS && !of_step))
                return 0;
            continue;
        }
        if (!count || !wait->target || !wait->stride || wait->stride > FLEETI_LINE_WORDS ||
            !fleeti_check_counter(c, wait->counter, count, wait->stride, &e) ||
            wait->target != c->targets[e] ||
            (wait->count & FLEETI_PREVIOUS && e < step->first_target))
            return 0;
    }
    for (uint32_t i = 0; i < plan->n_notifies; i++) {
        const fleeti_notify *notify = &c->notifies[i];
        if (plan->ranks > 1 && notify->counter & FLEETI_SYSTEM &&
            (notify->counter & ~FLEETI_SYSTEM) >= plan->n_forwards)
            return 0;
        const fleeti_event *event =
            fleeti_check_counter(c, fleeti_notified(plan, notify), 1, 1, &e);
        if (!event || !notify->weight || notify->weight > c->targets[e]) return 0;
        if (!notify->sub || notify->sub == FLEETI_LOCAL) {
            if (notify->share || notify->weight != 1 ||
                (notify->sub && notify->counter & FLEETI_SYSTEM))
                return 0;
        } else if (notify->sub < c->first_word || notify->sub >= plan->counter_words ||
                   notify->share < 2 || notify->share > FLEETI_MAX_INDEX ||
                   notify->weight > notify->share) {
            return 0;
        }
        if (!c->dynamic) continue;
        trigger.element = e;
        fleeti_trigger_consumers(plan, &trigger);
        if (triggers[i].element != e || triggers[i].target != c->targets[e] ||
            triggers[i].from != trigger.from || triggers[i].end != trigger.end)
            return 0;
        c->feeds[i + 1] = c->feeds[i] + (first[e] < first[e + 1] || e == plan->n_elements - 1);
    }
    return 1;
}

/* Checks a map that launches follow. The records of the plan stand in for the others, whose events have collapsed. */
static int fleeti_check_live_map(const fleeti_check *c, const fleeti_runtime_map *m)
{
    uint32_t e = m->first_element;
    if (!c->dynamic || m->target > FLEETI_MAX_INDEX) return 0;
    if (!m->elements) return !fleeti_map_has(m, FLEETI_BY_ROW) || !m->values;
    const fleeti_event *event = fleeti_check_counter(c, m->counter, m->elements, m->stride, &e);
    return event && !(m->counter & FLEETI_SYSTEM) && m->counter == event->counter &&
           m->stride == event->stride && m->first_element == event->first_target &&
           m->elements == event->elements && m->target == c->targets[e];
}

/* The checks of each kind. own: the grid that has the map; grid: the one whose tasks it names. */
static int fleeti_gather_fits(const fleeti_runtime_map *m, const fleeti_grid *own,
                              const fleeti_grid *grid)
{
    (void)grid;
    return own->rank == 1 && fleeti_map_values(m, own->count) <= FLEETI_MAX_INDEX &&
           m->bound == (m->elements ? m->elements - 1 : 0) && (!m->none || m->none > m->bound);
}

static int fleeti_counts_fit(const fleeti_runtime_map *m, const fleeti_grid *own,
                             const fleeti_grid *grid)
{
    (void)own, (void)grid;
    return m->values == m->elements && m->bound <= FLEETI_MAX_INDEX && !m->none &&
           (!m->target || m->bound + 1 == m->target);
}

static int fleeti_ranges_fit(const fleeti_runtime_map *m, const fleeti_grid *own,
                             const fleeti_grid *grid)
{
    (void)own;
    return m->values == m->elements + 1 && grid->rank >= 1 && grid->count && !grid->space &&
           !m->none && m->bound == (uint32_t)grid->extent[0] && m->inner == grid->count / m->bound;
}

typedef int (*fleeti_fits_fn)(const fleeti_runtime_map *m, const fleeti_grid *own,
                              const fleeti_grid *grid);

#define FLEETI_MAP_FITS(name, traits, fits, in_order, text) fits,
/* Checks a run-time map: whatever values within its bound a tensor has, the device stays inside the plan. of: the
   grid that has the map. *consumers: the first consumer entry of the next range. */
static int fleeti_check_runtime_map(const fleeti_check *c, const fleeti_runtime_map *m, uint32_t of,
                                    uint32_t *consumers)
{
    static const fleeti_fits_fn fits[] = {FLEETI_MAP_LIST(FLEETI_MAP_FITS)};
    const fleet_plan *plan = c->plan;
    const fleeti_grid *own = &c->grids[of];
    if (m->kind >= FLEETI_MAP_KINDS || m->tensor >= plan->n_tensors || m->grid >= plan->n_grids ||
        m->values > FLEETI_MAX_INDEX || m->elements > FLEETI_MAX_INDEX ||
        own->level > FLEET_LEVEL_CU)
        return 0;
    const fleeti_grid *grid = &c->grids[m->grid];
    if ((!fleeti_map_has(m, FLEETI_LISTS) && m->grid != of) ||
        c->tensors[m->tensor].values != fleeti_map_values(m, own->count))
        return 0;
    if (fleeti_map_has(m, FLEETI_BY_WRITER) &&
        (own->count != 1 || own->level != FLEET_LEVEL_CU || own->guarded))
        return 0;
    if (!fits[m->kind](m, own, grid) || (!fleeti_map_has(m, FLEETI_TASKS) && m->inner)) return 0;
    if (m->target && !fleeti_check_live_map(c, m)) return 0;
    if (!m->target && (m->counter || m->stride)) return 0;
    if (!fleeti_map_has(m, FLEETI_LISTS) || !m->target) return !m->first;
    if (m->first != *consumers || grid->count > plan->n_consumers - *consumers ||
        grid->schedule != FLEET_SCHEDULE_DYNAMIC)
        return 0;
    *consumers += grid->count;
    return 1;
}

static int fleeti_check_maps(const fleeti_check *c)
{
    const fleet_plan *plan = c->plan;
    const uint32_t *first = fleeti_plan_first_consumers(plan);
    const uint64_t lists = plan->n_elements * (1ull + plan->early);
    uint32_t consumers = 0;
    if (c->dynamic) {
        for (uint32_t i = 0; i < lists; i++)
            if (first[i] > first[i + 1]) return 0;
        consumers = first[lists];
        if (first[0] || consumers > plan->n_consumers) return 0;
    }
    for (uint32_t i = 0; i < plan->n_grids; i++)
        for (uint32_t k = 0; k < c->grids[i].n_maps; k++) {
            const fleeti_runtime_map *m = &c->maps[c->grids[i].first_map + k];
            if (!fleeti_check_runtime_map(c, m, i, &consumers)) return 0;
            if (m->target) (fleeti_map_has(m, FLEETI_ARRIVES) ? c->arrive : c->exist)[i]++;
        }
    return consumers == plan->n_consumers;
}

/* Checks a step end, which has no flags, because it has nothing to which a flag applies. */
static int fleeti_check_step_end(const fleeti_check *c, const fleet_task *task)
{
    const uint32_t level = c->plan->schedule == FLEET_SCHEDULE_CHIPLET
                               ? (uint32_t)FLEET_LEVEL_CHIPLET
                               : (uint32_t)FLEET_LEVEL_CU;
    const fleeti_event *step = &c->events[c->plan->step_event];
    for (uint32_t k = 0; k < FLEET_MAX_RANK; k++)
        if (task->at[k]) return 0;
    return task->grid == FLEETI_NONE && task->id == FLEETI_NONE && task->slices == 1 &&
           !task->slice && task->batch == 1 && task->level == level && !task->args &&
           !task->flags && !task->acquire && !task->n_waits && task->n_notifies == 1 &&
           fleeti_notified(c->plan, &c->notifies[task->notifies]) - step->counter <
               step->elements * step->stride;
}

/* Checks the descriptor of a task against its grid. *order: its place among all tasks. */
static int fleeti_check_task(const fleeti_check *c, const fleet_task *task, uint64_t *order)
{
    const fleet_plan *plan = c->plan;
    if (task->grid >= plan->n_grids) return 0;
    const fleeti_grid *grid = &c->grids[task->grid];
    if (task->tile != grid->tile || task->args != grid->args || task->slice >= grid->slices ||
        task->slices != (grid->slices | grid->tiles << 16))
        return 0;
    uint32_t level =
        grid->level < FLEET_LEVEL_CHIPLET ? grid->level : (uint32_t)FLEET_LEVEL_CHIPLET;
    if (grid->tiles) level = FLEETI_LEVEL_PART;
    if (task->level != level || (grid->tiles && task->batch >= grid->tiles)) return 0;
    for (uint32_t k = grid->rank; k < FLEET_MAX_RANK; k++)
        if (task->at[k]) return 0;
    const fleeti_space space = fleeti_space_of(plan, grid->space, grid->rank);
    const uint32_t id = fleeti_index_of(&space, grid->extent, grid->rank, task->at);
    if (id >= grid->count || task->id != grid->first_id + id) return 0;
    uint32_t flags = fleeti_flags_of(fleeti_check_symbols_of(c, task->grid), c->cuts, grid->n_maps,
                                     grid->settled) |
                     (plan->early && grid->schedule == FLEET_SCHEDULE_DYNAMIC ? FLEETI_EARLY : 0);
    if (c->dynamic && (c->arrive[task->grid] ||
                       c->feeds[task->notifies + task->n_notifies] != c->feeds[task->notifies]))
        flags |= FLEETI_FEEDS;
    /* A task that waits for nothing has nothing to acquire. */
    if (task->flags != flags || (!task->n_waits && task->acquire)) return 0;
    *order = ((uint64_t)task->id << 32) +
             (grid->tiles ? (uint64_t)task->slice * grid->tiles + task->batch : task->slice);
    return 1;
}

/* Checks `batch` of a descriptor that is not a PART. last: it is the last one of its queue. */
static int fleeti_check_batch(const fleeti_check *c, const fleet_task *task, uint32_t queue,
                              uint32_t chiplet, uint32_t last)
{
    const fleet_plan *plan = c->plan;
    const uint32_t own = queue < fleeti_chiplet_queues(plan);
    if (c->dynamic && task->level == FLEET_LEVEL_CHIPLET)
        return own ? task->batch == queue - plan->worker_base[chiplet]
                   : task->batch < plan->workers[chiplet];
    if (task->batch == 1) return 1;
    return task->batch && task->level == FLEET_LEVEL_WAVE && !last &&
           (own || plan->schedule == FLEET_SCHEDULE_CHIPLET) && task[1].level == FLEET_LEVEL_WAVE &&
           task[1].batch == task->batch - 1;
}

/* Checks the queues, which are contiguous. In each of them tasks are in order, fixed queues by keys first, followed by
   a step end unless the plan is DYNAMIC. In a DYNAMIC plan, tasks of DYNAMIC grids are in the queues of chiplets, others in those of workers. */
static int fleeti_check_queues(const fleeti_check *c)
{
    const fleet_plan *plan = c->plan;
    uint32_t descs = 0, chiplet = 0;
    for (uint32_t q = 0; q < plan->n_queues; q++) {
        const uint32_t own = q < fleeti_chiplet_queues(plan);
        const fleet_key *keys = plan->keyed && (own || !c->dynamic) ? fleeti_plan_keys(plan) : NULL;
        uint64_t order = 0, before = 0;
        int64_t key = 0, key_before = 0;
        if (!own)
            chiplet = q - fleeti_chiplet_queues(plan);
        else if (chiplet + 1 < plan->chiplets && q >= plan->worker_base[chiplet + 1])
            chiplet++;
        if (c->queues[q].first != descs || c->queues[q].count > plan->n_descs - descs) return 0;
        descs += c->queues[q].count;
        for (uint32_t i = descs - c->queues[q].count; i < descs; i++) {
            const fleet_task *task = &c->tasks[i];
            const uint32_t last = i + 1 == descs;
            if (!fleeti_range_fits(task->waits, task->n_waits, plan->n_waits) ||
                !fleeti_range_fits(task->notifies, task->n_notifies, plan->n_notifies))
                return 0;
            if (task->tile == FLEETI_TILE_NONE) {
                if (c->dynamic || !last || !fleeti_check_step_end(c, task)) return 0;
                continue;
            }
            if (!fleeti_check_task(c, task, &order) || (last && !c->dynamic) ||
                (c->dynamic && (c->grids[task->grid].schedule == FLEET_SCHEDULE_STATIC) != own) ||
                (task->level != FLEETI_LEVEL_PART &&
                 !fleeti_check_batch(c, task, q, chiplet, last)))
                return 0;
            if (keys) key = fleeti_key_at(&keys[task->grid], task->at);
            if (i == descs - c->queues[q].count)
                ; /* the first one of its queue */
            else if (c->dynamic && !own && task->level == FLEET_LEVEL_CHIPLET && task->batch) {
                if (order != before || task->batch != task[-1].batch + 1) return 0;
            } else if (key < key_before || (key == key_before && order <= before)) {
                return 0;
            }
            before = order;
            key_before = key;
        }
    }
    return descs == plan->n_descs;
}

/* DYNAMIC: checks that consumers [from, end) are tasks of ready queues, each with its ring. */
static int fleeti_check_rings(const fleeti_check *c, const fleeti_consumer *consumers,
                              uint32_t from, uint32_t end)
{
    const fleet_plan *plan = c->plan;
    const fleeti_queue *queues = c->queues + plan->total_workers;
    for (; from < end; from++) {
        const uint32_t desc = consumers[from].desc;
        uint32_t k = 0;
        if (desc < queues[0].first || desc >= plan->n_descs) return 0;
        while (desc - queues[k].first >= queues[k].count) k++;
        if (FLEETI_CONSUMER_RING(consumers[from].need) !=
            FLEETI_RINGS * k + fleeti_ring_of(&c->tasks[desc]))
            return 0;
    }
    return 1;
}

/* DYNAMIC: checks that a range lists the tasks of its grid, in order. */
static int fleeti_check_range_tasks(const fleeti_check *c, const fleeti_runtime_map *m,
                                    const fleeti_consumer *consumers)
{
    const fleeti_grid *grid = &c->grids[m->grid];
    if (!fleeti_check_rings(c, consumers, m->first, m->first + grid->count)) return 0;
    for (uint32_t i = 0; i < grid->count; i++) {
        const fleeti_consumer *consumer = &consumers[m->first + i];
        if (c->tasks[consumer->desc].id != grid->first_id + i ||
            (consumer->need & FLEETI_CONSUMER_NEED) !=
                c->listed[consumer->desc] + c->exist[m->grid])
            return 0;
    }
    return 1;
}

/* DYNAMIC: checks the consumers, and how many tasks a ring gets in a step. A task is listed as often as it needs
   elements, so that a ring gets it once. */
static int fleeti_check_consumers(const fleeti_check *c)
{
    const fleet_plan *plan = c->plan;
    const fleeti_consumer *consumers = fleeti_plan_consumers(plan);
    const uint32_t *first = fleeti_plan_first_consumers(plan);
    uint32_t entries[FLEETI_RINGS * FLEET_MAX_CHIPLETS];
    if (!c->dynamic) return 1;
    uint32_t listed = first[plan->n_elements * (1 + plan->early)];
    if (!fleeti_check_rings(c, consumers, 0, listed)) return 0;
    for (uint32_t i = 0; i < listed; i++) c->listed[consumers[i].desc]++;
    for (uint32_t i = 0; i < listed; i++) {
        const uint32_t desc = consumers[i].desc;
        if ((consumers[i].need & FLEETI_CONSUMER_NEED) !=
            c->listed[desc] + c->exist[c->tasks[desc].grid])
            return 0;
    }
    for (uint32_t i = 0; i < plan->n_maps; i++)
        if (fleeti_map_has(&c->maps[i], FLEETI_LISTS) && c->maps[i].target &&
            !fleeti_check_range_tasks(c, &c->maps[i], consumers))
            return 0;
    memset(entries, 0, sizeof entries);
    for (uint32_t q = 0; q < plan->chiplets; q++) {
        const fleeti_queue *queue = &c->queues[plan->total_workers + q];
        for (uint32_t d = queue->first; d < queue->first + queue->count; d++) {
            if (!c->listed[d] && !c->exist[c->tasks[d].grid]) return 0;
            entries[FLEETI_RINGS * q + fleeti_ring_of(&c->tasks[d])]++;
        }
    }
    return memcmp(entries, plan->ring_entries, sizeof entries) == 0;
}

/* Checks the contents of a plan whose header and names are valid. */
static fleet_status fleeti_check_contents(fleeti_check *c)
{
    const fleet_plan *plan = c->plan;
    const uint64_t words = (uint64_t)plan->n_events + plan->n_elements + 2ull * plan->n_grids +
                           c->dynamic * (1ull + plan->n_notifies + plan->n_descs);
    if (!fleeti_check_workers(c) || !fleeti_check_symbols(c) || !fleeti_check_grids(c) ||
        !fleeti_check_setters(c))
        return FLEET_ERROR_IMAGE_INDEX;
    uint32_t *scratch = words < SIZE_MAX / 4 ? (uint32_t *)FLEET_MALLOC((size_t)words * 4) : NULL;
    if (!scratch) return FLEET_ERROR_MEMORY;
    memset(scratch, 0, (size_t)words * 4);
    c->by_counter = scratch;
    c->other_target = c->by_counter + plan->n_events;
    c->exist = c->other_target + plan->n_elements;
    c->arrive = c->exist + plan->n_grids;
    c->feeds = c->arrive + plan->n_grids;
    c->listed = c->feeds + c->dynamic * (1ull + plan->n_notifies);
    c->n_device = c->n_system = 0;
    int fits = fleeti_check_events(c) && fleeti_check_maps(c) && fleeti_check_forwards(c) &&
               fleeti_check_records(c) && fleeti_check_queues(c) && fleeti_check_consumers(c);
    FLEET_FREE(scratch);
    return fits ? FLEET_OK : FLEET_ERROR_IMAGE_INDEX;
}

/* Whether the shapes of grids are the same functions of the symbols in two buckets, but for the
   largest extent on an axis that depends on others. */
static int fleeti_guards_agree(const fleeti_check *c, const fleeti_check *whole)
{
    for (uint32_t i = 0; i < c->plan->n_grids; i++) {
        const fleeti_guard *a = &c->guards[i], *b = &whole->guards[i];
        if (memcmp(&a->slices, &b->slices, sizeof a->slices) != 0) return 0;
        for (uint32_t k = 0; k < FLEET_MAX_RANK; k++) {
            if (memcmp(&a->extent[k], &b->extent[k], sizeof a->extent[k]) == 0) continue;
            if (!c->grids[i].space || a->extent[k].symbol || b->extent[k].symbol) return 0;
        }
    }
    return 1;
}

/* Whether the plan of a bucket has the workers and the graph of the whole plan. */
static int fleeti_check_bucket(const fleeti_check *whole, const fleeti_check *c)
{
    const fleet_plan *plan = whole->plan, *bucket = c->plan;
    if (bucket->n_buckets != 1 || bucket->buckets || bucket->ranks != plan->ranks ||
        c->end_of_names != bucket->bytes ||
        (bucket->schedule == FLEET_SCHEDULE_CHIPLET) !=
            (plan->schedule == FLEET_SCHEDULE_CHIPLET) ||
        bucket->n_grids != plan->n_grids || bucket->n_events != plan->n_events ||
        bucket->n_symbols != plan->n_symbols || bucket->n_tensors != plan->n_tensors ||
        bucket->guarded != plan->guarded ||
        c->end_of_names - bucket->names != whole->end_of_names - plan->names ||
        memcmp((const char *)bucket + bucket->names, (const char *)plan + plan->names,
               (size_t)(bucket->bytes - bucket->names)) != 0 ||
        memcmp(bucket->workers, plan->workers, sizeof plan->workers) != 0 ||
        (plan->guarded && !fleeti_guards_agree(c, whole)))
        return 0;
    for (uint32_t i = 0; i < plan->n_symbols; i++)
        if (c->symbols[i].min != whole->symbols[i].min ||
            c->symbols[i].max != whole->symbols[i].max ||
            c->symbols[i].at_launch != whole->symbols[i].at_launch)
            return 0;
    for (uint32_t i = 0; i < plan->n_grids; i++)
        if (c->grids[i].tile != whole->grids[i].tile || c->grids[i].args != whole->grids[i].args ||
            c->grids[i].level != whole->grids[i].level ||
            c->grids[i].rank != whole->grids[i].rank ||
            c->grids[i].writes != whole->grids[i].writes ||
            c->grids[i].cuts != whole->grids[i].cuts)
            return 0;
    return 1;
}

/* Opens a plan at the start of `bytes` bytes: checks its header and its names. */
static fleet_status fleeti_check_open(fleeti_check *c, const void *block, size_t bytes)
{
    const fleet_status status = fleeti_check_block(block, bytes);
    if (status != FLEET_OK) return status;
    c->plan = (const fleet_plan *)block;
    c->dynamic = c->plan->schedule == FLEET_SCHEDULE_DYNAMIC;
    return fleeti_check_layout(c) && fleeti_check_names(c) ? FLEET_OK : FLEET_ERROR_IMAGE_SIZE;
}

/* Checks the plans of the other buckets. They are where the table says, which is where the builder puts them. */
static fleet_status fleeti_check_buckets(fleeti_check *whole)
{
    const fleet_plan *plan = whole->plan;
    uint64_t end = whole->end_of_names, table = fleeti_section(&end, plan->n_buckets, 8);
    const uint64_t *offset = (const uint64_t *)fleeti_at(plan, table);
    uint32_t i;
    if (table != plan->buckets || end >= plan->bytes) return FLEET_ERROR_IMAGE_SIZE;
    for (i = 0; i + 1 < plan->n_buckets; i++) {
        uint64_t at = fleeti_section(&end, 0, 1);
        fleeti_check c = *whole;
        if (offset[i] != at || at >= plan->bytes) return FLEET_ERROR_IMAGE_SIZE;
        fleet_status status =
            fleeti_check_open(&c, fleeti_at(plan, at), (size_t)(plan->bytes - at));
        if (status != FLEET_OK) return status;
        if (!fleeti_check_bucket(whole, &c)) return FLEET_ERROR_IMAGE_INDEX;
        status = fleeti_check_contents(&c);
        if (status != FLEET_OK) return status;
        whole->first_word = c.plan->counter_words;
        if (c.plan->system_words) whole->first_system = c.plan->system_words;
        end += c.plan->bytes;
    }
    if (offset[i]) return FLEET_ERROR_IMAGE_INDEX;
    return end + 1 == plan->bytes && !*((const char *)plan + end) ? FLEET_OK
                                                                  : FLEET_ERROR_IMAGE_SIZE;
}

fleet_status fleet_plan_check(const void *block, size_t bytes)
{
    fleeti_check c;
    const fleet_plan *plan = (const fleet_plan *)block;
    memset(&c, 0, sizeof c);
    c.first_word = c.first_system = FLEETI_LINE_WORDS;
    fleet_status status = fleeti_check_open(&c, block, bytes);
    if (status != FLEET_OK) return status;
    if (plan->ranks > 1) c.first_system = FLEETI_PEER_LINES * FLEETI_LINE_WORDS;
    if (plan->n_buckets < 1 || plan->n_buckets > FLEET_MAX_BUCKETS) return FLEET_ERROR_IMAGE_INDEX;
    if (plan->n_buckets > 1)
        status = fleeti_check_buckets(&c);
    else if (plan->buckets || c.end_of_names != plan->bytes)
        status = FLEET_ERROR_IMAGE_SIZE;
    if (status != FLEET_OK) return status;
    for (uint32_t i = 0; i < plan->n_symbols; i++) /* the whole plan serves every value */
        if (plan->bound[i] != c.symbols[i].max) return FLEET_ERROR_IMAGE_INDEX;
    return fleeti_check_contents(&c);
}

/* ==== >>report: queries of a plan, and its report ==== */

/* ---- queries ---- */

static const char *fleeti_plan_text(const fleet_plan *plan, uint64_t offset)
{
    return (const char *)fleeti_at(plan, offset);
}

const fleet_plan *fleet_plan_bucket(const fleet_plan *plan, uint32_t i)
{
    if (!plan || i >= plan->n_buckets) return NULL;
    if (plan->n_buckets == 1) return plan;
    return (const fleet_plan *)fleeti_at(plan, fleeti_plan_buckets(plan)[i]);
}

uint64_t fleet_plan_args(const fleet_plan *plan)
{
    uint64_t args = 0;
    for (uint32_t i = 0; plan && i < plan->n_grids; i++)
        if (fleeti_plan_grids(plan)[i].args >= args) args = fleeti_plan_grids(plan)[i].args + 1ull;
    return args;
}

int64_t fleet_plan_tensor_values(const fleet_plan *plan, const char *tensor)
{
    uint64_t max = 0;
    uint32_t i = 0;
    if (!plan || !tensor) return -1;
    while (i < plan->n_tensors &&
           strcmp(fleeti_plan_text(plan, fleeti_plan_tensors(plan)[i].name), tensor) != 0)
        i++;
    if (i == plan->n_tensors) return -1;
    for (uint32_t k = 0; k < plan->n_buckets; k++) {
        const uint64_t values = fleeti_plan_tensors(fleet_plan_bucket(plan, k))[i].values;
        if (values > max) max = values;
    }
    return (int64_t)max;
}

int32_t fleet_plan_event(const fleet_plan *plan, const char *name)
{
    if (!plan || !name) return -1;
    for (uint32_t i = 0; i < plan->n_events; i++)
        if (strcmp(fleeti_plan_text(plan, fleeti_plan_events(plan)[i].name), name) == 0)
            return (int32_t)i;
    return -1;
}

int64_t fleet_plan_task(const fleet_plan *plan, const char *grid, const int32_t *at)
{
    if (!plan || !grid) return -1;
    for (uint32_t i = 0; i < plan->n_grids; i++) {
        const fleeti_grid *info = &fleeti_plan_grids(plan)[i];
        if (strcmp(fleeti_plan_text(plan, info->name), grid) != 0) continue;
        if (!info->count || (info->rank && !at)) return -1;
        const fleeti_space space = fleeti_space_of(plan, info->space, info->rank);
        const uint32_t index = fleeti_index_of(&space, info->extent, info->rank, at);
        return index == FLEETI_NONE ? -1 : (int64_t)info->first_id + index;
    }
    return -1;
}

size_t fleet_plan_task_name(const fleet_plan *plan, uint32_t id, char *text, size_t bytes)
{
    fleeti_text out = fleeti_text_at(text, bytes);
    int32_t at[FLEET_MAX_RANK];
    for (uint32_t i = 0; plan && i < plan->n_grids; i++) {
        const fleeti_grid *grid = &fleeti_plan_grids(plan)[i];
        if (id - grid->first_id >= grid->count) continue;
        const fleeti_space space = fleeti_space_of(plan, grid->space, grid->rank);
        fleeti_point_of(&space, grid->extent, grid->rank, id - grid->first_id, at);
        fleeti_put_point(&out, fleeti_plan_text(plan, grid->name), at, grid->rank, "()");
        return out.length;
    }
    fleeti_put(&out, id == FLEETI_NONE ? "the end of the step" : "task %u", id);
    return out.length;
}

/* The event and element of a counter word that is not a sub-counter; null if there is none. */
static const fleeti_event *fleeti_event_at(const fleet_plan *plan, uint32_t counter,
                                           uint32_t *element)
{
    for (uint32_t i = 0; i < plan->n_events; i++) {
        const fleeti_event *event = &fleeti_plan_events(plan)[i];
        const uint32_t first =
            plan->ranks > 1 && counter & FLEETI_SYSTEM ? event->words : event->counter;
        if ((counter ^ first) & FLEETI_SYSTEM || counter < first) continue;
        *element = (counter - first) / event->stride;
        if (*element < event->elements && (counter - first) % event->stride == 0) return event;
    }
    return NULL;
}

size_t fleet_plan_counter_name(const fleet_plan *plan, uint32_t counter, char *text, size_t bytes)
{
    fleeti_text out = fleeti_text_at(text, bytes);
    const fleeti_event *event = NULL;
    int32_t at[FLEET_MAX_RANK];
    uint32_t element = 0, sub = 0;
    if (!plan) return 0;
    const fleeti_notify *notifies = fleeti_plan_notifies(plan);
    event = fleeti_event_at(plan, counter, &element);
    for (uint32_t i = 0; !event && counter && i < plan->n_notifies; i++) {
        if (notifies[i].sub != counter) continue;
        sub = 1;
        event = fleeti_event_at(plan, fleeti_notified(plan, &notifies[i]), &element);
    }
    if (!event) {
        fleeti_put(&out, "counter %u", counter);
        return out.length;
    }
    const fleeti_space space = fleeti_space_of(plan, event->space, event->rank);
    fleeti_point_of(&space, event->extent, event->rank, element, at);
    fleeti_put_point(&out, fleeti_plan_text(plan, event->name), at, event->rank, "[]");
    if (sub) fleeti_put(&out, " (count of one chiplet)");
    return out.length;
}

/* ---- statistics and report ---- */

/* The arrivals at an event tensor in a step. */
typedef struct fleeti_event_stats {
    uint32_t min_target, max_target;
    uint64_t local, global, releases;
} fleeti_event_stats;

/* Counts the arrivals at one event tensor. Its notify records come in the order of elements, one for each element and
   chiplet, before the lists that copy them; *next is the first record not counted yet. Arrivals that no chiplet
   counts first are what is left of the target. */
static fleeti_event_stats fleeti_count_event(const fleet_plan *plan, uint32_t index, uint32_t *next)
{
    const fleeti_event *event = &fleeti_plan_events(plan)[index];
    const fleeti_notify *notifies = fleeti_plan_notifies(plan);
    const uint32_t *targets = fleeti_plan_targets(plan) + event->first_target;
    fleeti_event_stats stats;
    memset(&stats, 0, sizeof stats);
    for (uint32_t i = 0; i < event->elements; i++) {
        uint32_t counter = event->counter + i * event->stride, local = 0, direct = 0;
        uint64_t left = targets[i];
        left -= left < event->outside_notifies ? left : event->outside_notifies;
        if (!i || targets[i] < stats.min_target) stats.min_target = targets[i];
        if (targets[i] > stats.max_target) stats.max_target = targets[i];
        for (; *next < plan->n_notifies && fleeti_notified(plan, &notifies[*next]) == counter;
             ++*next) {
            const fleeti_notify *notify = &notifies[*next];
            if (notify->sub == FLEETI_LOCAL) {
                local = 1;
            } else if (!notify->sub) {
                direct = 1;
            } else {
                stats.local += notify->share;
                stats.global++;
                stats.releases++;
                left -= left < notify->weight ? left : notify->weight;
            }
        }
        if (local) stats.local += left;
        if (!direct) continue;
        stats.global += left;
        stats.releases += left;
    }
    return stats;
}

fleet_plan_stats fleet_plan_get_stats(const fleet_plan *plan)
{
    fleet_plan_stats stats;
    uint32_t next = 0;
    memset(&stats, 0, sizeof stats);
    if (!plan) return stats;
    const fleet_task *tasks = fleeti_plan_tasks(plan);
    const fleeti_queue *queues = fleeti_plan_queues(plan);
    for (uint32_t i = 0; i < plan->n_grids; i++) {
        const fleeti_grid *grid = &fleeti_plan_grids(plan)[i];
        if (grid->tiles)
            stats.tasks[FLEET_LEVEL_CU] += grid->count * grid->slices * grid->tiles;
        else
            stats.tasks[grid->level] += grid->count;
    }
    stats.descs = plan->n_descs;
    for (uint32_t i = 0; i < plan->n_events; i++) {
        fleeti_event_stats event = fleeti_count_event(plan, i, &next);
        stats.local_signals += event.local;
        stats.global_signals += event.global;
        stats.releases += event.releases;
    }
    for (uint32_t i = 0; i < plan->n_queues; i++) {
        uint32_t n = queues[i].count;
        if (!i || n < stats.shortest_queue) stats.shortest_queue = n;
        if (n > stats.longest_queue) stats.longest_queue = n;
        for (uint32_t j = queues[i].first; j < queues[i].first + n; j++) {
            if (tasks[j].acquire < FLEET_SCOPE_DEVICE) continue;
            stats.acquires +=
                plan->schedule == FLEET_SCHEDULE_CHIPLET && tasks[j].level == FLEET_LEVEL_CHIPLET
                    ? plan->workers[i]
                    : 1;
        }
    }
    return stats;
}

static void fleeti_report_head(const fleet_plan *plan, fleeti_text *out)
{
    uint32_t min = plan->workers[0], max = plan->workers[0];
    for (uint32_t k = 1; k < plan->chiplets; k++) {
        if (plan->workers[k] < min) min = plan->workers[k];
        if (plan->workers[k] > max) max = plan->workers[k];
    }
    fleeti_put(out,
               "plan: %u tasks in %u grids, %u event elements in %u tensors and the step event\n",
               plan->n_tasks, plan->n_grids, plan->n_elements - 1, plan->n_events - 1);
    fleeti_put(out, "on %s: ", plan->topology.name);
    if (plan->ranks > 1)
        fleeti_put(out, "%u ranks, %u elements that other ranks wait for, ", plan->ranks,
                   plan->n_forwards);
    fleeti_put(out, "%u chiplets, %u workers (", plan->chiplets, plan->total_workers);
    fleeti_put(out, min == max ? "%u" : "%u to %u", min, max);
    fleeti_put(out, " a chiplet%s), %s schedule, L2s %s\n",
               plan->schedule == FLEET_SCHEDULE_CHIPLET ? ", and its scheduler" : "",
               fleeti_schedule_name(plan->schedule), plan->private_l2 ? "private" : "coherent");
}

/* Reports grids whose schedule is not the plan's, and why AUTO chose it. */
static void fleeti_report_schedules(const fleet_plan *plan, fleeti_text *out)
{
    uint32_t mixed = plan->schedule == FLEET_SCHEDULE_DYNAMIC;
    for (uint32_t i = 0; i < plan->n_grids; i++) {
        const fleeti_grid *grid = &fleeti_plan_grids(plan)[i];
        const char *name = fleeti_plan_text(plan, grid->name);
        if (grid->chosen == FLEETI_CHOSEN_AVOIDS_DEADLOCK)
            fleeti_put(out,
                       "schedule: AUTO makes grid %s DYNAMIC: fixed queues in the order of the "
                       "grids would deadlock\n",
                       name);
        else if (grid->chosen)
            fleeti_put(out,
                       "schedule: AUTO makes grid %s %s: its %u tasks take about %.1f us a step "
                       "from ready queues, %.1f us from fixed ones%s\n",
                       name, fleeti_schedule_name(grid->schedule), grid->count,
                       (double)grid->dynamic_ns / 1e3, (double)grid->static_ns / 1e3,
                       mixed ? " beside ready ones"
                       : fleeti_dynamic_pays((double)grid->static_ns, (double)grid->dynamic_ns)
                           ? ", which does not pay for what ready queues cost the other grids"
                           : "");
        else if (grid->schedule != plan->schedule)
            fleeti_put(out, "schedule: grid %s is %s\n", name,
                       fleeti_schedule_name(grid->schedule));
    }
}

static void fleeti_report_grids(const fleet_plan *plan, fleeti_text *out)
{
    static const char *const level[4] = {"wave", "CU", "chiplet", "device"};
    fleeti_put(out, "\n%-24s %-8s %9s %7s %5s  %s\n", "grid", "level", "tasks", "slices", "tile",
               "shape");
    for (uint32_t i = 0; i < plan->n_grids; i++) {
        const fleeti_grid *grid = &fleeti_plan_grids(plan)[i];
        fleeti_put(out, "%-24s %-8s %9u %7u %5u  ", fleeti_plan_text(plan, grid->name),
                   level[grid->level & 3u], grid->count, grid->slices, grid->tile);
        for (uint32_t k = 0; k < grid->rank; k++)
            fleeti_put(out, k ? " x %d" : "%d", (int)grid->extent[k]);
        fleeti_put(out, grid->space ? " at most\n" : grid->rank ? "\n" : "1\n");
    }
}

/* Reports what an unaware plan makes of device- and chiplet-tasks. */
static void fleeti_report_unaware(const fleet_plan *plan, fleeti_text *out)
{
    for (uint32_t i = 0; i < plan->n_grids; i++) {
        const fleeti_grid *grid = &fleeti_plan_grids(plan)[i];
        if (grid->tiles)
            fleeti_put(out,
                       "unaware: each task of grid %s is %u CU-tasks, %u tiles of %u slices, dealt "
                       "over all chiplets\n",
                       fleeti_plan_text(plan, grid->name), grid->slices * grid->tiles, grid->tiles,
                       grid->slices);
    }
}

static void fleeti_report_events(const fleet_plan *plan, fleeti_text *out)
{
    uint32_t next = 0;
    char target[32];
    fleeti_put(out, "\n%-24s %9s %7s %7s %7s %7s %11s %9s %9s %9s\n", "event", "elements", "block",
               "chiplet", "device", "system", "target", "local", "global", "releases");
    for (uint32_t i = 0; i < plan->n_events; i++) {
        const fleeti_event *event = &fleeti_plan_events(plan)[i];
        fleeti_event_stats stats = fleeti_count_event(plan, i, &next);
        snprintf(target, sizeof target, stats.min_target == stats.max_target ? "%u" : "%u-%u",
                 stats.min_target, stats.max_target);
        fleeti_put(out, "%-24s %9u %7u %7u %7u %7u %11s %9llu %9llu %9llu\n",
                   fleeti_plan_text(plan, event->name), event->elements, event->scoped[0],
                   event->scoped[1], event->scoped[2], event->scoped[3], target,
                   (unsigned long long)stats.local, (unsigned long long)stats.global,
                   (unsigned long long)stats.releases);
    }
}

/* Reports whether sources wait for the previous step, and why. */
static void fleeti_report_overlap(const fleet_plan *plan, fleeti_text *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_grids; i++) {
        if (!fleeti_plan_grids(plan)[i].runs_ahead) continue;
        fleeti_put(out,
                   n++ ? ", %s"
                       : "steps: sources that start before the previous step has ended, which "
                         "buffers and maps prove safe: %s",
                   fleeti_plan_text(plan, fleeti_plan_grids(plan)[i].name));
    }
    if (n)
        fleeti_put(out, "\n");
    else if (plan->schedule == FLEET_SCHEDULE_DYNAMIC)
        fleeti_put(
            out, "steps: the last task of a step makes the sources of the next one ready%s\n",
            plan->early ? "; other tasks are pushed when their producers have been started" : "");
    else if (plan->schedule == FLEET_SCHEDULE_CHIPLET)
        fleeti_put(out, "steps: sources wait for the previous step, as always under CHIPLET, where "
                        "schedulers deal ahead\n");
    else if (plan->rebinds)
        fleeti_put(out, "steps: all workers wait for the previous step, which sets symbols\n");
    else
        fleeti_put(out, "steps: sources wait for the previous step: buffers and maps do not prove "
                        "that they may start earlier\n");
}

/* Reports the plans for other values of the symbols. */
static void fleeti_report_buckets(const fleet_plan *plan, fleeti_text *out)
{
    const fleeti_symbol *symbols = fleeti_plan_symbols(plan);
    if (!plan->guarded) return;
    fleeti_put(out, "symbols at launch:");
    for (uint32_t k = 0; k < plan->n_symbols; k++)
        if (symbols[k].at_launch)
            fleeti_put(out, " %s in %d..%d", fleeti_plan_text(plan, symbols[k].name),
                       (int)symbols[k].min, (int)symbols[k].max);
    fleeti_put(out, "; the numbers above are those of the largest of %u buckets\n",
               plan->n_buckets);
    for (uint32_t i = 0; i < plan->n_grids; i++) {
        const fleeti_grid *grid = &fleeti_plan_grids(plan)[i];
        for (uint32_t k = 0; k < plan->n_symbols; k++)
            if ((grid->writes | grid->cuts) >> k & 1u)
                fleeti_put(out, "grid %s sets symbol %s%s%s\n", fleeti_plan_text(plan, grid->name),
                           fleeti_plan_text(plan, symbols[k].name),
                           grid->writes >> k & 1u ? " for the next step" : "",
                           grid->cuts >> k & 1u ? " for the rest of its step" : "");
    }
    for (uint32_t i = 0; i < plan->n_buckets; i++) {
        const fleet_plan *bucket = fleet_plan_bucket(plan, i);
        fleeti_put(out, "bucket %u:", i);
        for (uint32_t k = 0; k < plan->n_symbols; k++)
            if (symbols[k].at_launch)
                fleeti_put(out, " %s <= %d", fleeti_plan_text(plan, symbols[k].name),
                           (int)bucket->bound[k]);
        fleeti_put(out, ", %u tasks, %s\n", bucket->n_tasks,
                   fleeti_schedule_name(bucket->schedule));
    }
}

#define FLEETI_MAP_TEXT(name, traits, fits, in_order, text) text,

/* Reports what run-time tensors decide. */
static void fleeti_report_maps(const fleet_plan *plan, fleeti_text *out)
{
    static const char *const what[] = {FLEETI_MAP_LIST(FLEETI_MAP_TEXT)};
    const fleeti_runtime_map *maps = fleeti_plan_maps(plan);
    for (uint32_t i = 0; i < plan->n_grids; i++) {
        const fleeti_grid *grid = &fleeti_plan_grids(plan)[i];
        for (uint32_t k = grid->first_map; k < grid->first_map + grid->n_maps; k++)
            fleeti_put(out, "run-time map: grid %s %s tensor %s%s\n",
                       fleeti_plan_text(plan, grid->name), what[maps[k].kind],
                       fleeti_plan_text(plan, fleeti_plan_tensors(plan)[maps[k].tensor].name),
                       maps[k].target ? ""
                                      : ", its events collapsed to one because queues are fixed");
    }
}

size_t fleet_plan_report(const fleet_plan *plan, char *text, size_t bytes)
{
    fleeti_text out = fleeti_text_at(text, bytes);
    if (!plan) return 0;
    fleet_plan_stats stats = fleet_plan_get_stats(plan);
    fleeti_report_head(plan, &out);
    fleeti_report_grids(plan, &out);
    fleeti_report_events(plan, &out);
    fleeti_put(&out,
               "\nper step: %llu local and %llu global signals, at most %llu device or system "
               "releases%s\n          (one per element and chiplet; elements completed by the same "
               "arrival share one), %llu acquires\n",
               (unsigned long long)stats.local_signals, (unsigned long long)stats.global_signals,
               (unsigned long long)stats.releases,
               plan->private_l2 ? ", each an L2 write-back" : "",
               (unsigned long long)stats.acquires);
    fleeti_put(&out, "queues: %u, %u to %u descriptors each, %u in all\n", plan->n_queues,
               stats.shortest_queue, stats.longest_queue, stats.descs);
    fleeti_put(&out, "bytes: plan %llu, counters %llu\n", (unsigned long long)plan->bytes,
               4 * ((unsigned long long)plan->counter_words + plan->system_words));
    fleeti_report_schedules(plan, &out);
    fleeti_report_unaware(plan, &out);
    fleeti_report_overlap(plan, &out);
    fleeti_report_buckets(plan, &out);
    fleeti_report_maps(plan, &out);
    for (uint32_t i = 0; i < plan->n_events; i++)
        if (fleeti_plan_events(plan)[i].warnings & FLEETI_WARN_NO_WAITER)
            fleeti_put(&out, "warning: event tensor %s: no task waits for it\n",
                       fleeti_plan_text(plan, fleeti_plan_events(plan)[i].name));
    return out.length;
}

FLEET_C_END

#endif /* FLEETI_IMPLEMENTED */
#endif /* FLEET_IMPLEMENTATION */
