/* fleet.h - v0.1 - graphs, event tensors and plans for megakernels on chiplet GPUs - MIT licence

   A megakernel is one persistent kernel in which many tile functions run as tasks, ordered by event
   counters. This header holds everything that is decided on the host: you describe task grids, event
   tensors and the maps between them; fleet_plan_build binds that graph to a topology (how many
   chiplets, how many workers each), derives every wait count, infers the narrowest scope of every
   event, proves that the schedule cannot deadlock, and writes one flat block, the plan.

   RECIPE
       In exactly one source file:
           #define FLEET_IMPLEMENTATION
           #include "fleet.h"
       Everywhere else: #include "fleet.h". C11 or C++17. Knows no GPU API.

   THE SMALLEST GRAPH
           fleet_graph  *g = fleet_graph_create(NULL);
           fleet_dim     n = fleet_symbol(g, "n", 1, 4096);
           fleet_etensor E = fleet_event_tensor(g, "E", fleet_shape1(n), FLEET_COUNT_DERIVED);
           fleet_grid    p = fleet_call_device(g, "partial", 0, fleet_shape2(n, fleet_dim_of(4)), 0);
           fleet_grid    f = fleet_call_device(g, "final", 1, fleet_shape1(n), 0);
           fleet_out_edge(g, p, E, "ij->i");      each partial(i, j) notifies E[i]: wait count 4
           fleet_in_edge(g, f, E, "i->i");        final(i) waits for E[i]
           fleet_plan_desc d = fleet_plan_desc_default();
           fleet_bind_at_build(&d, n, 3);
           fleet_plan *plan;
           if (fleet_plan_build(g, &d, &plan) != FLEET_OK) puts(fleet_graph_error(g));

   WHAT IT DOES NOT DO
       It runs nothing (fleet_sched.h does), compiles nothing, knows no operator and no model, prints
       nothing, and never exits.

   OPTIONS (define before the include that has FLEET_IMPLEMENTATION; scope: that file)
       FLEET_MALLOC(bytes), FLEET_FREE(ptr)   default: malloc, free. Graphs and plans come from here.
       FLEET_STB_DS_IMPLEMENTED               set it when another file of your program already defines
                                              STB_DS_IMPLEMENTATION.
       stb_ds.h is looked for as "stb_ds.h" and as <stb/stb_ds.h> on the include path.

   MEMORY MODEL
       Nothing here is shared between threads. A plan is immutable once built, and may then be read by
       any number of threads and devices.

   ERRORS
       Functions return fleet_status. Graph building keeps the first error, with file and line of the
       call; later calls are no-ops and return handles that are safe to pass on, so that building code
       reads straight. fleet_graph_error gives the message, which names the field or object to change.
*/
#ifndef FLEET_H
#define FLEET_H

#include <stddef.h>
#include <stdint.h>

#define FLEET_VERSION_MAJOR 0
#define FLEET_VERSION_MINOR 1

#ifdef __cplusplus
#define FLEET_C_BEGIN extern "C" {
#define FLEET_C_END }
#else
#define FLEET_C_BEGIN
#define FLEET_C_END
#endif

FLEET_C_BEGIN

/* ---- fleet: limits ----------------------------------------------------------------------------- */

#define FLEET_MAX_RANK 6      /* axes of a task grid or an event tensor */
#define FLEET_MAX_CHIPLETS 32 /* chiplets of one topology */
#define FLEET_MAX_SYMBOLS 32  /* symbols of one graph */
#define FLEET_LINE_BYTES 128  /* cache line: counters never share one with a stored flag */

/* ---- fleet: status ----------------------------------------------------------------------------- */

/* Every status and what it means. Host functions and tiles return them; device code stores them in
   the report. The order is part of the plan format: append only. */
#define FLEET_STATUS_LIST(X)                                                                       \
    X(FLEET_OK, "ok")                                                                              \
    X(FLEET_ERROR_NULL, "a pointer that must not be null is null")                                 \
    X(FLEET_ERROR_MEMORY, "out of memory")                                                         \
    X(FLEET_ERROR_ARGUMENT, "an argument is out of its range")                                     \
    X(FLEET_ERROR_HANDLE, "a handle does not belong to this graph")                                \
    X(FLEET_ERROR_NAME, "a name is empty, too long or taken")                                      \
    X(FLEET_ERROR_SYMBOL_UNBOUND, "a symbol has no value")                                         \
    X(FLEET_ERROR_SYMBOL_RANGE, "a symbol's value is outside its declared bounds")                 \
    X(FLEET_ERROR_MAP, "an edge map is malformed or names an unknown axis")                        \
    X(FLEET_ERROR_MAP_RANGE, "an edge map reaches outside the event tensor")                       \
    X(FLEET_ERROR_WAIT_COUNT, "a given wait count disagrees with the maps")                        \
    X(FLEET_ERROR_NEVER_NOTIFIED, "a task waits for an event that nobody notifies")                \
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
    X(FLEET_ERROR_POISONED, "an earlier launch on this state failed: call fleet_recover")          \
    X(FLEET_ERROR_CENSUS, "a chiplet has fewer workgroups than the plan needs")                    \
    X(FLEET_ERROR_ABORTED, "the host asked to abort")                                              \
    X(FLEET_ERROR_TIMEOUT, "a wait passed its deadline")                                           \
    X(FLEET_ERROR_DEADLOCK, "nobody can run: every worker waits")                                  \
    X(FLEET_ERROR_TILE, "a tile returned a failure")                                               \
    X(FLEET_ERROR_LAUNCH, "the kernel cannot be launched")                                         \
    X(FLEET_ERROR_DEVICE, "a call of the GPU runtime failed")                                      \
    X(FLEET_ERROR_UNSUPPORTED, "this device or runtime cannot do that")

#define FLEETI_STATUS_ENUM(code, text) code,
typedef enum fleet_status { FLEET_STATUS_LIST(FLEETI_STATUS_ENUM) FLEET_STATUS_COUNT } fleet_status;

/* The name ("FLEET_ERROR_MAP") and the meaning of a status; never null. */
const char *fleet_status_name(fleet_status status);
const char *fleet_status_text(fleet_status status);

/* ---- fleet: topology --------------------------------------------------------------------------- */

/* What the builder knows of a chip. All numbers are data: make one by hand for a chip of your own. */
typedef struct fleet_topology {
    char name[24];
    uint32_t chiplets;                  /* X, 1..FLEET_MAX_CHIPLETS */
    uint32_t units[FLEET_MAX_CHIPLETS]; /* CUs or SMs per chiplet = workgroups resident at once */
    uint32_t wave_size;                 /* lanes of a wavefront or warp; 1 on the host */
    uint32_t lds_bytes;                 /* LDS (shared memory) per CU or SM */
    uint64_t l2_bytes;                  /* C, L2 per chiplet */
    uint64_t llc_bytes;                 /* last-level cache of the device, 0: none */
    uint32_t private_l2;                /* 1: the L2s of two chiplets are not coherent */
} fleet_topology;

/* Presets: name, chiplets, units per chiplet, wave, LDS bytes, L2 bytes, last-level bytes, private.
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

/* A preset; an unknown chip gives a topology of zero chiplets, which no plan accepts. */
fleet_topology fleet_topology_preset(fleet_chip chip);

/* A topology of `chiplets` times `units`, everything else as on MI300X: a start for your own. */
fleet_topology fleet_topology_make(uint32_t chiplets, uint32_t units);

/* ---- fleet: symbolic extents ------------------------------------------------------------------- */

/* An extent: floor((mul * symbol + add) / div), or the constant `add` where symbol is 0. */
typedef struct fleet_dim {
    int64_t add, mul, div;
    uint32_t symbol; /* 0: constant; else number of the symbol in its graph */
} fleet_dim;

typedef struct fleet_shape {
    fleet_dim extent[FLEET_MAX_RANK];
    uint32_t rank; /* 0: a single element */
} fleet_shape;

typedef struct fleet_graph fleet_graph;

fleet_dim fleet_dim_of(int64_t n);                    /* the constant n */
fleet_dim fleet_dim_times(fleet_dim d, int64_t k);    /* d * k; only of a dim without division */
fleet_dim fleet_dim_plus(fleet_dim d, int64_t k);     /* d + k */
fleet_dim fleet_dim_ceil_div(fleet_dim d, int64_t k); /* ceil(d / k), k > 0 */

/* A named extent whose value, within [min, max], is bound when a plan is built. */
fleet_dim fleet_symbol(fleet_graph *g, const char *name, int64_t min, int64_t max);

fleet_shape fleet_shape0(void); /* one element, no axis */
fleet_shape fleet_shape1(fleet_dim a);
fleet_shape fleet_shape2(fleet_dim a, fleet_dim b);
fleet_shape fleet_shape3(fleet_dim a, fleet_dim b, fleet_dim c);
fleet_shape fleet_shape4(fleet_dim a, fleet_dim b, fleet_dim c, fleet_dim d);
/* Appends an axis: shapes of five and six axes. */
fleet_shape fleet_shape_and(fleet_shape s, fleet_dim a);

/* ---- fleet: graph ------------------------------------------------------------------------------ */

/* Handles; 0 is none, and every call accepts it as a no-op once the graph has an error. */
typedef struct fleet_etensor {
    uint32_t id;
} fleet_etensor;
typedef struct fleet_grid {
    uint32_t id;
} fleet_grid;
typedef struct fleet_buffer {
    uint32_t id;
} fleet_buffer;

typedef enum fleet_scope {
    FLEET_SCOPE_BLOCK,
    FLEET_SCOPE_CHIPLET,
    FLEET_SCOPE_DEVICE,
    FLEET_SCOPE_SYSTEM
} fleet_scope;

typedef enum fleet_level {
    FLEET_LEVEL_WAVE,    /* wavefront-task: one wave */
    FLEET_LEVEL_CU,      /* CU-task: one workgroup. The default */
    FLEET_LEVEL_CHIPLET, /* chiplet-task: all workers of one chiplet, each with its tile index */
    FLEET_LEVEL_DEVICE   /* device-task: one chiplet-task per slice; complete when all are */
} fleet_level;

/* Called with each warning and error, at the moment it arises; `user` is the descriptor's. */
typedef void (*fleet_log_fn)(void *user, fleet_status status, const char *message);

typedef struct fleet_graph_desc {
    fleet_log_fn log; /* default: none */
    void *log_user;
} fleet_graph_desc;

fleet_graph_desc fleet_graph_desc_default(void);

/* Makes an empty graph (desc may be null: defaults); null when out of memory. The caller owns it. */
fleet_graph *fleet_graph_create(const fleet_graph_desc *desc);
void fleet_graph_destroy(fleet_graph *g);

/* The first error of the graph or of the last fleet_plan_build on it. "" when there is none. */
const char *fleet_graph_error(const fleet_graph *g);
fleet_status fleet_graph_status(const fleet_graph *g);

/* Every building call below goes through a macro that adds the caller's file and line. */
#define FLEETI_HERE __FILE__, __LINE__

#define FLEET_COUNT_DERIVED 0

/* An event tensor: an array of event counters. count: FLEET_COUNT_DERIVED, or the number of notifies
   (one per task that notifies an element) that completes each element, checked against the maps. */
fleet_etensor fleeti_event_tensor(fleet_graph *g, const char *name, fleet_shape shape,
                                  int64_t count, const char *file, int line);
#define fleet_event_tensor(g, name, shape, count)                                                  \
    fleeti_event_tensor(g, name, shape, count, FLEETI_HERE)

/* A task grid: one task per coordinate of shape, in row-major order. tile: the number by which your
   kernel's dispatch finds the tile function (FLEET_DISPATCH makes them). args: index into the
   caller's argument array, so that one tile serves many layers. Static queues follow the order in
   which grids are added. */
fleet_grid fleeti_call_device(fleet_graph *g, const char *name, uint32_t tile, fleet_shape shape,
                              uint32_t args, const char *file, int line);
#define fleet_call_device(g, name, tile, shape, args)                                              \
    fleeti_call_device(g, name, tile, shape, args, FLEETI_HERE)

/* Sets the level of a grid's tasks (default FLEET_LEVEL_CU). */
void fleeti_grid_level(fleet_graph *g, fleet_grid grid, fleet_level level, const char *file,
                       int line);
#define fleet_grid_level(g, grid, level) fleeti_grid_level(g, grid, level, FLEETI_HERE)

/* Sets the number of slices of a device-task (default: one per chiplet). Slice s runs as a
   chiplet-task on chiplet s mod X; chiplets without a slice do nothing and signal nothing. */
void fleeti_grid_slices(fleet_graph *g, fleet_grid grid, fleet_dim slices, const char *file,
                        int line);
#define fleet_grid_slices(g, grid, slices) fleeti_grid_slices(g, grid, slices, FLEETI_HERE)

/* ---- fleet: coordinate maps -------------------------------------------------------------------- */

/* One axis of the target as a function of the task's coordinate c. With v = offset + sum of
   stride[k] * c[k], the axis takes every value from floor(v / div) to floor((v + width - 1) / div);
   where limit is set, v + width is cut at limit first (the last tile may be partial). */
typedef struct fleet_axis_map {
    int64_t stride[FLEET_MAX_RANK];
    int64_t offset;
    int64_t div;     /* > 0 */
    int64_t width;   /* > 0; 1: a single unit */
    fleet_dim limit; /* units in all; constant 0: no limit */
    uint32_t every;  /* 1: every value of the axis; the other fields are not read */
} fleet_axis_map;

typedef struct fleet_map {
    fleet_axis_map axis[FLEET_MAX_RANK];
    uint32_t rank;
} fleet_map;

/* floor((stride * c[task_axis] + offset) / div) */
fleet_axis_map fleet_axis(uint32_t task_axis, int64_t stride, int64_t offset, int64_t div);
/* The tiles of `to` units that task tile c[task_axis] of `from` units touches, of `limit` units in
   all: from one tiling to another. */
fleet_axis_map fleet_axis_retile(uint32_t task_axis, int64_t from, int64_t to, fleet_dim limit);
fleet_axis_map fleet_axis_every(void);
fleet_map fleet_map0(void); /* one event for all */
fleet_map fleet_map1(fleet_axis_map a);
fleet_map fleet_map2(fleet_axis_map a, fleet_axis_map b);
/* Appends an axis: maps of three and more. */
fleet_map fleet_map_and(fleet_map m, fleet_axis_map a);

/* An edge by an einsum string: left of "->" a letter per axis of the grid, right of it a letter per
   axis of the event tensor. A letter that stands only on the right means every value of that axis;
   nothing on the right means the one element of a tensor without axes. Spaces are ignored. */
void fleeti_out_edge(fleet_graph *g, fleet_grid grid, fleet_etensor event, const char *einsum,
                     const char *file, int line);
#define fleet_out_edge(g, grid, event, einsum) fleeti_out_edge(g, grid, event, einsum, FLEETI_HERE)
void fleeti_in_edge(fleet_graph *g, fleet_grid grid, fleet_etensor event, const char *einsum,
                    const char *file, int line);
#define fleet_in_edge(g, grid, event, einsum) fleeti_in_edge(g, grid, event, einsum, FLEETI_HERE)

/* An edge by an affine map with one axis per axis of the event tensor. */
void fleeti_out_edge_map(fleet_graph *g, fleet_grid grid, fleet_etensor event, fleet_map map,
                         const char *file, int line);
#define fleet_out_edge_map(g, grid, event, map)                                                    \
    fleeti_out_edge_map(g, grid, event, map, FLEETI_HERE)
void fleeti_in_edge_map(fleet_graph *g, fleet_grid grid, fleet_etensor event, fleet_map map,
                        const char *file, int line);
#define fleet_in_edge_map(g, grid, event, map) fleeti_in_edge_map(g, grid, event, map, FLEETI_HERE)

/* ---- fleet: placement, scope, buffers, the outside ---------------------------------------------- */

/* Places a grid of CU-, wavefront- or chiplet-tasks: the map's first axis is the chiplet, its second
   (where it has one) the worker on that chiplet; values out of range are an error, so that a map must
   say its own modulus by its shape. Default: a grid's tasks are spread over the chiplets in
   contiguous runs of equal length, and over a chiplet's workers in turn; chiplet-task k goes to
   chiplet k mod X. A worker may be named under the STATIC schedule only. */
void fleeti_place(fleet_graph *g, fleet_grid grid, fleet_map map, const char *file, int line);
#define fleet_place(g, grid, map) fleeti_place(g, grid, map, FLEETI_HERE)

/* Gives an event tensor a scope by hand: wider than the inferred one is allowed, narrower an error. */
void fleeti_event_scope(fleet_graph *g, fleet_etensor event, fleet_scope scope, const char *file,
                        int line);
#define fleet_event_scope(g, event, scope) fleeti_event_scope(g, event, scope, FLEETI_HERE)

/* Declares that somebody outside the kernel takes part in an event: FLEET_OUTSIDE_NOTIFIES adds
   `notifies` arrivals per step and element, FLEET_OUTSIDE_WAITS waits for it. scope:
   FLEET_SCOPE_DEVICE for ordinary kernels and copies on the device, FLEET_SCOPE_SYSTEM for the host
   and other devices (the counters then live in host memory that the device can reach). */
#define FLEET_OUTSIDE_NOTIFIES 1u
#define FLEET_OUTSIDE_WAITS 2u
void fleeti_event_outside(fleet_graph *g, fleet_etensor event, uint32_t roles, uint32_t notifies,
                          fleet_scope scope, const char *file, int line);
#define fleet_event_outside(g, event, roles, notifies, scope)                                      \
    fleeti_event_outside(g, event, roles, notifies, scope, FLEETI_HERE)

/* Declared buffers let the builder prove that a step may run ahead of the one before it. Where every
   grid declares what it reads and writes, sources for which no reader or writer of the step before
   can conflict start without the step event. */
fleet_buffer fleeti_buffer(fleet_graph *g, const char *name, const char *file, int line);
#define fleet_buffer_named(g, name) fleeti_buffer(g, name, FLEETI_HERE)
void fleeti_reads(fleet_graph *g, fleet_grid grid, fleet_buffer buffer, const char *file, int line);
#define fleet_reads(g, grid, buffer) fleeti_reads(g, grid, buffer, FLEETI_HERE)
void fleeti_writes(fleet_graph *g, fleet_grid grid, fleet_buffer buffer, const char *file,
                   int line);
#define fleet_writes(g, grid, buffer) fleeti_writes(g, grid, buffer, FLEETI_HERE)

/* ---- fleet: plan ------------------------------------------------------------------------------- */

typedef enum fleet_schedule {
    FLEET_SCHEDULE_STATIC, /* per-worker queues in the plan; no scheduler workgroup */
    FLEET_SCHEDULE_CHIPLET /* one scheduler workgroup per chiplet deals that chiplet's tasks */
} fleet_schedule;

typedef struct fleet_binding {
    uint32_t symbol;
    int64_t value;
} fleet_binding;

typedef struct fleet_plan_desc {
    fleet_topology topology;      /* default: the preset MI300X */
    fleet_schedule schedule;      /* default: FLEET_SCHEDULE_STATIC */
    uint32_t workers_per_chiplet; /* W; default 0: every unit (less one scheduler under CHIPLET) */
    uint32_t
        counter_levels; /* 1: every arrival of a device event goes to its one counter; 2: chiplets count
                                      first and send one arrival each; default 0: 2 */
    uint32_t counter_stride_bytes; /* distance of two counters of one tensor, a power of two in
                                      4..128; default 0: 128, and 16 in tensors of over 4096 elements */
    fleet_binding bindings[FLEET_MAX_SYMBOLS];
    uint32_t n_bindings; /* default 0 */
} fleet_plan_desc;

fleet_plan_desc fleet_plan_desc_default(void);

/* Binds a symbol in a descriptor; the value is checked by fleet_plan_build. */
void fleet_bind_at_build(fleet_plan_desc *desc, fleet_dim symbol, int64_t value);

/* A plan begins with this header; all offsets are in bytes from its first byte. Plain data, without
   pointers: copy it anywhere. 16-byte aligned. The device reads it without synchronisation. */
typedef struct fleet_plan {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint64_t bytes; /* of the whole block */
    uint32_t schedule;
    uint32_t chiplets;
    uint32_t workers[FLEET_MAX_CHIPLETS];     /* W of each chiplet, without the scheduler */
    uint32_t worker_base[FLEET_MAX_CHIPLETS]; /* number of the chiplet's first worker */
    uint32_t total_workers;
    uint32_t n_tasks;  /* tasks of the graph (a device-task is one) */
    uint32_t n_queues; /* STATIC: one per worker; CHIPLET: one per chiplet */
    uint32_t n_descs;  /* fleet_task entries, step ends included */
    uint32_t n_waits, n_notifies;
    uint32_t n_events, n_grids;
    uint32_t n_elements;    /* event elements, and so entries of the target table */
    uint32_t counter_words; /* 32-bit words of the device counters; word 0 is never used */
    uint32_t system_words;  /* the same in host memory that the device reaches */
    uint32_t has_waves;     /* 1: some grid has wavefront-tasks */
    uint32_t private_l2;    /* of the topology: chiplets are real and must be found by their id */
    uint32_t step_event;    /* number of the implicit step event, the last one */
    uint64_t queues, tasks, waits, notifies, events, grids, targets, names;
    fleet_topology topology;
} fleet_plan;

#define FLEET_PLAN_MAGIC 0x6e616c5074656c66ull /* "fletPlan" */
#define FLEET_PLAN_VERSION 1u

/* A run of descriptors. */
typedef struct fleeti_queue {
    uint32_t first, count;
} fleeti_queue;

#define FLEETI_TILE_NONE 0xffffffffu /* the end of a step: no tile, only its notify */

/* What a worker reads for one task. A chiplet-task has one per chiplet under CHIPLET, one per worker
   under STATIC; descriptors of one queue are contiguous. */
typedef struct fleet_task {
    uint32_t tile;
    uint32_t args;
    int32_t at[FLEET_MAX_RANK]; /* coordinate in the grid */
    uint32_t waits;             /* first of n_waits wait records */
    uint32_t notifies;          /* first of n_notifies notify records */
    uint16_t n_waits, n_notifies;
    uint8_t
        level; /* fleet_level: WAVE, CU or CHIPLET (a slice of a device-task is a chiplet-task) */
    uint8_t acquire; /* fleet_scope: the widest among its waits */
    uint16_t
        batch; /* wavefront-tasks: how many stand in a row from here on, this one included; else 1 */
    uint32_t slice, slices; /* of a device-task; 0, 1 otherwise */
    uint32_t id;            /* number in the graph: grid after grid, row-major; for reports */
    uint32_t grid;          /* index of its grid's info */
} fleet_task;

/* Wait until each counter at word, word + stride, ... (count of them) has target arrivals per step. */
typedef struct fleeti_wait {
    uint32_t counter; /* word index; FLEETI_SYSTEM: in the system counters */
    uint32_t count;   /* FLEETI_PREVIOUS: of the step before this one */
    uint32_t stride;  /* words */
    uint32_t target;
} fleeti_wait;

/* Arrive: without sub, add weight to the counter. With sub, add one there first; who brings it to
   share arrivals of this step adds weight for the whole chiplet. */
typedef struct fleeti_notify {
    uint32_t counter; /* word index; FLEETI_SYSTEM: in the system counters */
    uint32_t
        sub; /* word index, 0: none; FLEETI_LOCAL: producers and consumers share an L2, no release */
    uint32_t share;
    uint32_t weight;
} fleeti_notify;

#define FLEETI_SYSTEM 0x80000000u
#define FLEETI_PREVIOUS 0x80000000u
#define FLEETI_LOCAL 0x80000000u

/* What reports and the outside need to know of an event tensor. */
typedef struct fleeti_event {
    uint64_t name;         /* offset of its name in the block */
    uint32_t counter;      /* word index of element 0; FLEETI_SYSTEM: in the system counters */
    uint32_t stride;       /* words between elements */
    uint32_t first_target; /* index of element 0 in the target table */
    uint32_t elements;
    int32_t extent[FLEET_MAX_RANK];
    uint32_t rank;
    uint32_t outside; /* FLEET_OUTSIDE_... */
    uint32_t outside_notifies;
    uint32_t scoped[4]; /* elements per inferred or given fleet_scope */
    uint32_t warnings;  /* FLEETI_WARN_... */
} fleeti_event;

#define FLEETI_WARN_NO_WAITER 1u

typedef struct fleeti_grid {
    uint64_t name;
    uint32_t tile, args, level, slices;
    int32_t extent[FLEET_MAX_RANK];
    uint32_t rank;
    uint32_t first_id, count; /* tasks of the graph */
    uint32_t runs_ahead;      /* 1: its sources need not wait for the step before */
} fleeti_grid;

/* Builds a plan. On success *out is a block from FLEET_MALLOC that the caller frees with
   fleet_plan_free; on failure *out is null and fleet_graph_error tells what to change. The graph is
   not changed but for its error: any number of plans may come from one graph. Time and memory are
   linear in tasks and edges. */
fleet_status fleet_plan_build(fleet_graph *g, const fleet_plan_desc *desc, fleet_plan **out);
void fleet_plan_free(fleet_plan *plan);

/* Checks a block that came from outside (a file, a network): magic, version, sizes, and that every
   index in it stays inside it. bytes: what the caller holds. */
fleet_status fleet_plan_check(const void *block, size_t bytes);

/* The numbers of the report, per step. */
typedef struct fleet_plan_stats {
    uint32_t tasks[4];       /* per fleet_level */
    uint32_t descs;          /* descriptors, the copies of chiplet-tasks and step ends included */
    uint64_t local_signals;  /* arrivals at counters that stay within a chiplet */
    uint64_t global_signals; /* arrivals at counters that several chiplets read */
    uint64_t releases;       /* device or system releases: L2 write-backs where L2s are private */
    uint64_t acquires; /* device or system acquires, one per task that waits for such events */
    uint32_t shortest_queue, longest_queue;
    uint64_t plan_bytes, counter_bytes;
} fleet_plan_stats;

fleet_plan_stats fleet_plan_get_stats(const fleet_plan *plan);

/* Writes the report (words and numbers: tasks per level, signals and releases per event, scopes,
   queue lengths, bytes, warnings) as text of at most `bytes` bytes including the final 0; returns the
   length it would need without the 0, as snprintf does. */
size_t fleet_plan_report(const fleet_plan *plan, char *text, size_t bytes);

/* Finds the event tensor of that name; its index, or -1. */
int32_t fleet_plan_event(const fleet_plan *plan, const char *name);
/* Finds a task: the grid's name and its coordinate (as many as the grid has axes); its id, or -1. */
int64_t fleet_plan_task(const fleet_plan *plan, const char *grid, const int32_t *at);
/* Writes "final(3)" for a task id, "E[3]" for a counter word; returns as snprintf does. */
size_t fleet_plan_task_name(const fleet_plan *plan, uint32_t id, char *text, size_t bytes);
size_t fleet_plan_counter_name(const fleet_plan *plan, uint32_t counter, char *text, size_t bytes);

FLEET_C_END

#endif /* FLEET_H */
