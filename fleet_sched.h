/* fleet_sched.h - v0.3 - runs plans: worker loops, per-chiplet schedulers, launch, watchdog, trace - MIT licence

   STABILITY: as the first page of fleet.h says; so for the functions and types of >>public, >>ranks
   and >>launches, and for nothing with fleeti_.

   CONTENTS (search for the tag)
       >>manual           this page
       >>public           tiles, dispatch, kernels and the worker loop, topology, images and states, launch, failures,
                          sessions, events from the host, trace
       >>ranks            one graph over several devices
       >>launches         launches that stay, symbols that the run sets, two plans in one launch
       >>layout           what a state and a trace hold in memory
       >>context          what a worker knows: descriptors in LDS, its place, the task in hand, run-time tensors
       >>residency        the check before the first tile, and how workgroups leave
       >>symbols          what a tile may do to the run: end it early, set symbols, wait
       >>pipeline         the weight pipeline: consumers and producer
       >>static           the three schedules: each worker walks its own queue,
       >>chiplet          one scheduler per chiplet posts to mailboxes,
       >>dynamic          arrivals push to ready rings and idle workers pop
       >>record           what FLEET_TRACE adds to the loop: when each task ran
       >>loop             the worker loop: start, next task, wait, tile, notify
       >>implementation   host code, in the order of >>public

   Turns a plan (fleet.h) and your tile functions into a megakernel. The kernel stays yours: the worker loop is a
   macro that you put where the tasks are to run; the plan says under which schedules (fleet_schedule).
   The symbols that the plan leaves open get their values before a launch (fleet_bind), and run-time tensors get their
   memory (fleet_bind_tensor). The state keeps both.

   RECIPE
       In exactly one file that your GPU compiler compiles (on the CPU: any, link with -pthread):
           #define FLEET_IMPLEMENTATION
           #include "fleet_sched.h"
       Tile functions and kernels may live in any number of files that include it.

   THE SMALLEST COMPLETE PROGRAM
       examples/01_split_row_sum.c. In outline:
           typedef struct row_sum { const float *a; float *partial; float *c; } row_sum;
           FLEET_TILE(partial_sum, row_sum) { ... ctx, args and at are in scope ... return FLEET_OK; }
           FLEET_TILE(final_sum, row_sum)   { ... }
           #define ROW_SUM_TILES(TILE, P) TILE(P, partial_sum) TILE(P, final_sum)
           FLEET_MEGAKERNEL(row_sum, ROW_SUM_TILES, 256)
           ... describe a graph as in fleet.h, with tile numbers row_sum_partial_sum, row_sum_final_sum ...
           fleet_session s;
           fleet_session_open(&s, graph, NULL, FLEET_KERNEL_OF(row_sum_kernel));
           ... fleet_session_alloc, fleet_to_device: data in device memory ...
           fleet_session_run(&s, &args, sizeof args);
           status = fleet_session_wait(&s);
       A session makes one plan, image and state and launches on its stream. To build these apart, share them, or keep
       them in memory of one's own: fleet_plan_build, fleet_upload, fleet_state_create, fleet_launch
       (examples/04_your_kernel.c).

   WHAT IT DOES NOT DO
       It allocates nothing during a launch, prints nothing, and never exits. It brings no tile code.

   OPTIONS (scope: every file that has device code, the same everywhere)
       FLEET_NO_WATCHDOG   Compiles out the deadline, the abort and the record of running tasks.
       FLEET_TRACE         Makes fleet_launch_desc.trace work: each task of a launch leaves a record of when it was
                           acquired, began, ended and had notified. Scope: the files whose kernels are traced, and the
                           one with FLEET_IMPLEMENTATION. Without it no tracing code is compiled.

   MEMORY MODEL
       fleet_device.h has the argument, and in its table EDGES all that workers tell each other;
       comments here give its numbers. The plan is immutable and is read without synchronisation.
       What hands a task out, an entry of a mailbox or of a ready ring, publishes no data: the
       worker acquires after it has read the entry, at the scope of the task's events (edges 6, 7).

   ERRORS
       A function that fails leaves zeros in its results, apart from what says why (fleet_state.message).
       A launch is asynchronous. fleet_state_wait and fleet_state_status return its status. A run that ends early (a
       tile fails, a deadline passes, the host aborts) poisons the state: later launches on it return at once until
       fleet_state_recover. fleet_state_report says which worker waited for which event.
*/

/* Outside the guard: the second inclusion brings the implementations of the headers below. */
#include "fleet_device.h"
#if FLEET_VERSION != 300 || FLEETI_DEVICE_VERSION != 300
#error "fleet_sched.h is of fleet 0.3, fleet.h or fleet_device.h is not: copy all from one version"
#endif

#ifndef FLEET_SCHED_H
#define FLEET_SCHED_H

/* ==== >>public: what programs use ==== */

/* ---- tiles ---- */

/* What a tile knows about its task and its place. Lives in registers. */
typedef struct fleet_ctx {
    int32_t at[FLEET_MAX_RANK]; /* the task's coordinate */
    uint32_t thread, threads;   /* in the group that runs this task: a wave or the workgroup */
    /* of a chiplet-task: this worker's part of it, and the number of parts; else 0, 1 */
    uint32_t tile_index, tile_num;
    /* of a device-task: slice s runs on chiplet s mod X, unless the plan is chiplet-unaware; else 0, 1 */
    uint32_t slice, slices;
    uint32_t chiplet, chiplets; /* k, X */
    uint32_t worker, workers;   /* number on this chiplet, 0..W-1, and W */
    uint32_t epoch;             /* of this step; counts from 1 over all launches and wraps */
    const int32_t *symbols;     /* values in this launch, in the order of fleet_symbol */
    uint32_t step;              /* of this launch, from 0 on */
    uint32_t task;              /* id in the graph */
    uint32_t lds_bytes;
    void *lds;           /* dynamic LDS of the group; a wavefront-task has its wave's share */
    uint32_t group;      /* FLEET_BLOCK, or FLEET_WAVE in a wavefront-task */
    uint32_t grid;       /* index in the plan */
    void *registers;     /* FLEET_DISPATCH_WITH_REGISTERS */
    uint32_t prefetched; /* 1: the task's prefetch has run */
    /* The rest is private. */
    fleeti_thread self;
    fleeti_pipeline pipeline;
    uint32_t pipeline_tag;
    /* 1: the next two say where the task's stages begin; 0: not known yet */
    uint32_t pipeline_located;
    uint32_t pipeline_stage, pipeline_use;
} fleet_ctx;

/* A barrier of the threads that run the task. Use it in tiles: where the workgroup has a weight pipeline, its
   producer wave runs no tile, so that __syncthreads, fleet_block_barrier and events by hand of FLEET_BLOCK would
   wait for it for ever. */
FLEET_DEVICE void fleet_barrier(const fleet_ctx *ctx);
/* fleet_block_reduce_add over the threads that run the task; needs n * ctx.threads floats of LDS. */
FLEET_DEVICE void fleet_reduce_add(const fleet_ctx *ctx, float *sum, uint32_t n, float *lds);

/* The extent of an axis of the task's grid in this step; at[axis] is less. Tiles that do not call it pay nothing. */
FLEET_DEVICE int32_t fleet_extent(const fleet_ctx *ctx, uint32_t axis);

/* Ends the run successfully after this step: the other steps of the launch do not run, and fleet_state_epoch tells how
   many did. The state stays usable, and a captured launch may be replayed. Any thread of any tile may call it, for
   loops that run until something converges. FLEET_ERROR_UNSUPPORTED: fleet_launch_desc.finish is 0. In
   fleet_launch_task it has no effect. */
FLEET_DEVICE fleet_status fleet_finish(const fleet_ctx *ctx);

/* A tile may ignore some of them. */
#define FLEETI_TILE_PARAMETERS(args_type)                                                          \
    const fleet_ctx ctx __attribute__((unused)), const args_type *args __attribute__((unused)),    \
        const int32_t *at __attribute__((unused))

/* FLEET_TILE(name, args_type) { ... return FLEET_OK; } defines a tile function. In scope: ctx (fleet_ctx), at (const
   int32_t *, the task's coordinate) and args (const args_type *, the element at the grid's args index). No task may
   write to that element: it may be copied before the task's events are complete. All threads of the group run the
   tile. A status other than FLEET_OK from any thread ends the run. For barriers use fleet_barrier(&ctx). */
#define FLEET_TILE(name, args_type)                                                                \
    typedef const args_type *fleeti_args_named_##name;                                             \
    FLEET_DEVICE fleet_status fleeti_body_named_##name(FLEETI_TILE_PARAMETERS(args_type));         \
    FLEET_DEVICE fleet_status fleeti_tile_named_##name(const fleet_ctx ctx, const args_type *args) \
    {                                                                                              \
        return fleeti_body_named_##name(ctx, args, ctx.at);                                        \
    }                                                                                              \
    FLEET_DEVICE fleet_status fleeti_body_named_##name(FLEETI_TILE_PARAMETERS(args_type))
/* The function of a tile, to be called from another one: FLEET_TILE_OF(name)(ctx, args). It is not called `name`, which
   may be that of a function of the C library or of a GPU's. */
#define FLEET_TILE_OF(name) fleeti_tile_named_##name

/* For other variables that a function does not use. */
#define FLEET_UNUSED(x) (void)(x)

/* ---- dispatch ---- */

/* FLEET_DISPATCH(set, LIST) makes a set of tile functions: LIST(TILE, P) is TILE(P, name) for each
   of them, in any order. It defines the tile numbers set_name for fleet_call_device, and the one
   place where each tile is called. The type `set` is that of the tiles' arguments. A tile may have
   a struct of its own, which is a member of `set`, or an anonymous union's:
       typedef struct mlp { up_args up; down_args down; } mlp;
       FLEET_TILE(up, up_args) { ... }
       #define MLP_TILES(TILE, P) TILE(P, up, up) TILE(P, down, down)
   is TILE(P, name, member). A tile of another type does not compile; so for prefetches and
   producers, whose lists name the member again. */
#define FLEET_DISPATCH(set, LIST)                                                                  \
    FLEETI_DISPATCH(set, LIST)                                                                     \
    FLEETI_NO_PREFETCH(set)                                                                        \
    FLEETI_NO_PIPELINE(set)

/* Prefetch: what a tile may fetch before its events are complete, such as its weights. FLEET_PREFETCH(name,
   args_type) { ... } gets what the tile `name` gets, and runs just before the task waits. It does not run
       - where a scheduler or a ready ring hands out tasks whose events are complete already (CHIPLET, DYNAMIC); with
         early pushes (fleet_plan_desc) workers do wait under DYNAMIC, and prefetch;
       - in grids with run-time maps, whose tasks may turn out to be absent;
       - in STATIC grids of a plan that has DYNAMIC grids: their worker looks for other tasks to run until the events
         are complete.
   It may read only what no task of this launch writes. FLEET_DISPATCH_WITH_PREFETCH(set, LIST, PREFETCHES) is
   FLEET_DISPATCH with PREFETCHES(TILE, P) for the tiles that have one. */
#define FLEET_PREFETCH(name, args_type)                                                            \
    FLEET_DEVICE void fleeti_prefetch_named_##name(FLEETI_TILE_PARAMETERS(args_type))

#define FLEET_DISPATCH_WITH_PREFETCH(set, LIST, PREFETCHES)                                        \
    FLEET_DISPATCH_WITH_REGISTERS(set, LIST, PREFETCHES, uint32_t)

/* The same with an object of type `registers` for each thread, at ctx.registers, zero at first. If ctx.prefetched, the tile
   finds there what its prefetch loaded; and what its worker's earlier tiles left. With constant indices, loads stay in flight. */
#define FLEET_DISPATCH_WITH_REGISTERS(set, LIST, PREFETCHES, registers)                            \
    FLEETI_DISPATCH(set, LIST)                                                                     \
    FLEETI_PREFETCHES(set, PREFETCHES, registers)                                                  \
    FLEETI_NO_PIPELINE(set)

/* Weight pipeline: memory that no task writes, such as weights, is copied to LDS ahead of the tile that reads it.
   FLEET_PRODUCER(name, args_type) { fleet_producer_copy(producer, at, bytes); ... } gets what the tile `name` gets, and declares
   what the tile will read, in the order in which it will. One additional wave of each workgroup, the producer, runs
   these functions and copies the spans to a ring of stages in LDS. Under STATIC it follows the worker's own queue,
   as far ahead of the tasks and of the events that they wait for as the ring has room; else it begins when the task
   may run. Each wave of the tile acquires and releases the stages in order:
       fleet_consumer consumer = fleet_consumer_open(&ctx);
       while (...) { p = fleet_stage_acquire(&consumer); ... fleet_stage_release(&consumer, sharers); }
   A producer function may read what other tasks of the launch wrote, such as run-time tensors, only after
   fleet_producer_await_task (_await_previous). It may read, and declare, what tasks of earlier steps wrote after
   fleet_producer_await_step. Wavefront-tasks have no pipeline.
   FLEET_DISPATCH_WITH_PIPELINE(set, LIST, PRODUCERS, stages, stage_bytes) is FLEET_DISPATCH with PRODUCERS(TILE, P) for
   the tiles that have one. FLEET_DISPATCH_WITH_PIPELINE_AND_PREFETCH(set, LIST, PRODUCERS, stages, stage_bytes,
   PREFETCHES) has prefetches too, under STATIC alone. They may acquire stages by fleet_consumer_try_open and
   fleet_stage_try_acquire; the tile opens the pipeline anew. They may not wait for one: until the task begins, stages
   that an earlier task has left are not filled. stages: their number. stage_bytes: bytes of each, a multiple of 1024; on
   NVIDIA the stages have that alignment in the dynamic LDS of FLEET_WORKER_LOOP. A launch adds FLEET_PIPELINE_BYTES(set),
   the LDS of the ring, and the threads of the producer. On the CPU nothing is copied: a stage is the span itself. */
#define FLEET_PRODUCER(name, args_type)                                                            \
    FLEET_DEVICE void fleeti_producer_named_##name(FLEETI_TILE_PARAMETERS(args_type),              \
                                                   fleet_producer *producer)

#define FLEET_DISPATCH_WITH_PIPELINE(set, LIST, PRODUCERS, stages, stage_bytes)                    \
    FLEETI_DISPATCH(set, LIST)                                                                     \
    FLEETI_NO_PREFETCH(set)                                                                        \
    FLEETI_PIPELINE(set, PRODUCERS, stages, stage_bytes)
#define FLEET_DISPATCH_WITH_PIPELINE_AND_PREFETCH(set, LIST, PRODUCERS, stages, stage_bytes,       \
                                                  PREFETCHES)                                      \
    FLEETI_DISPATCH(set, LIST)                                                                     \
    FLEETI_PREFETCHES(set, PREFETCHES, uint32_t)                                                   \
    FLEETI_PIPELINE(set, PRODUCERS, stages, stage_bytes)
#define FLEET_PIPELINE_BYTES(set)                                                                  \
    (fleeti_set_##set##_stages > 0                                                                 \
         ? FLEETI_PIPELINE_BYTES((uint32_t)fleeti_set_##set##_stages,                              \
                                 (uint32_t)fleeti_set_##set##_stage_bytes)                         \
         : 0u)

/* Opens the pipeline for this wave, before the first stage of the task in hand. try: if the producer has come there, else 0. */
FLEET_DEVICE fleet_consumer fleet_consumer_open(const fleet_ctx *ctx);
FLEET_DEVICE uint32_t fleet_consumer_try_open(const fleet_ctx *ctx, fleet_consumer *s);

/* ---- kernels and the worker loop ---- */

typedef struct fleeti_state fleeti_state; /* private: >>layout */
typedef struct fleeti_host fleeti_host;

/* What a kernel needs to run a plan; passed by value. fleet_run_prepare fills it. */
typedef struct fleet_run {
    const fleet_plan *plan; /* in device memory */
    fleeti_state *state;
    uint64_t limit_ticks;      /* limit of one wait; 0: none */
    uint32_t blocks;           /* workgroups of the launch */
    uint32_t steps, lds_bytes; /* lds_bytes: dynamic LDS of a workgroup */
    uint32_t finish;           /* 1: tiles may call fleet_finish */
    uint32_t key;              /* tells its launches from those of others of the state; not 0 */
    uint32_t single_task;      /* 1 + descriptor: run this one alone, without events */
    uint32_t single_chiplet;
} fleet_run;

/* FLEET_KERNEL(name, set, threads) { FLEET_WORKER_LOOP(set); } defines a kernel with the parameters fleet_run run
   and const set *args, which fleet_launch launches. threads: of a workgroup, without the producer.
   FLEET_KERNEL_OF(name) knows them, and the LDS of the set's weight pipeline: a launch need not say them again. */
#define FLEET_KERNEL(name, set, threads)                                                           \
    FLEET_GLOBAL((threads) + (fleeti_set_##set##_stages > 0 ? FLEET_PRODUCER_THREADS : 0))         \
    void name(fleet_run run, const set *args);                                                     \
    FLEETI_UNPACK(name, (FLEETI_ARG(fleet_run, 0), FLEETI_ARG(const set *, 1)))                    \
    FLEETI_TRAITS(name, threads, FLEET_PIPELINE_BYTES(set), sizeof(set), fleeti_set_##set##_tiles) \
    FLEET_GLOBAL((threads) + (fleeti_set_##set##_stages > 0 ? FLEET_PRODUCER_THREADS : 0))         \
    void name(fleet_run run, const set *args)
#define FLEET_WORKER_LOOP(set)                                                                     \
    FLEET_WORKER_LOOP_IN(set, run, args, fleeti_dynamic_lds(), run.lds_bytes)
/* The same for STATIC plans alone: a smaller loop, which leaves tiles more registers. Launches of other plans, and
   of one task alone, end with FLEET_ERROR_UNSUPPORTED. */
#define FLEET_STATIC_WORKER_LOOP(set)                                                              \
    FLEETI_LOOP(set, run, args, fleeti_dynamic_lds(), run.lds_bytes, 1)

/* On the CPU a workgroup has the declared number of threads, too, which take turns from barrier
   to barrier. Tiles that are right with any number of them, by strides of ctx.threads as in
   01_split_row_sum.c, run faster there with one: FLEET_ANY_THREADS(threads) in place of threads
   says that they are. On a GPU it is the same. */
#if defined(FLEET_HOST) /* a launch decides, not a constant of the compiler */
#define FLEET_ANY_THREADS(threads) ((threads) | FLEETI_ANY_THREADS)
#else
#define FLEET_ANY_THREADS(threads) (threads)
#endif

/* FLEET_MEGAKERNEL(set, LIST, threads) is FLEET_DISPATCH(set, LIST) and the kernel set_kernel with its worker loop:
   all that a set needs without prefetches, weight pipelines and parameters of the kernel's own. */
#define FLEET_MEGAKERNEL(set, LIST, threads)                                                       \
    FLEET_DISPATCH(set, LIST)                                                                      \
    FLEET_KERNEL(set##_kernel, set, threads)                                                       \
    {                                                                                              \
        FLEET_WORKER_LOOP(set);                                                                    \
    }

/* The loop for a kernel of any signature: `fleet_run_` is its fleet_run, `set_args` its array of `set`. All threads
   of the workgroup must reach it, and their number must be a multiple of the wave size. lds, lds_bytes: LDS that
   tiles get through ctx, or NULL, 0. With a weight pipeline the first FLEET_PIPELINE_BYTES(set) bytes, aligned to 16,
   are its ring, and tiles get the rest. When the loop returns, all tasks of this workgroup have run; those of other
   workgroups may still run. */
#define FLEET_WORKER_LOOP_IN(set, fleet_run_, set_args, lds, lds_bytes)                            \
    FLEETI_LOOP(set, fleet_run_, set_args, lds, lds_bytes, 0)

/* Bytes of static LDS that a kernel with a worker loop uses in addition to FLEET_LDS_BYTES. */
#define FLEET_LOOP_LDS_BYTES (16 * FLEETI_LOOP_QUADS + FLEETI_PARKED_BYTES(fleeti_fixed))

FLEET_C_BEGIN

/* ---- topology ---- */

/* Describes the current device: chiplets as the hardware numbers them (from device attributes where the HIP version
   has them, else counted by a kernel), CUs or SMs, LDS, caches. On the CPU: two chiplets of unequal size,
   with as many workers as fleet_host_machine counts, but at least three and two.
   In a green context it is the part that the context has. FLEET_ERROR_DEVICE: there is no device, or its runtime
   failed. */
FLEET_API fleet_status fleet_topology_query(fleet_topology *topology)
    FLEETI_SYMBOL("fleet_topology_query");
/* The same, with the CUs or SMs that kernels on the stream may use: of a green context, or with a CU mask
   (hipExtStreamCreateWithCUMask, ROC_GLOBAL_CU_MASK; HSA_CU_MASK is not seen). Sessions describe their stream's. */
FLEET_API fleet_status fleet_topology_query_stream(fleet_topology *topology, fleet_stream stream);

/* ---- images and states ---- */

/* A plan in device memory. The plan on the host must outlive it. A handle, which may be copied and moved; one copy is
   to be freed. */
typedef struct fleet_image {
    const fleet_plan *plan;
    void *device;
    uint32_t owned;
} fleet_image;

/* Copies the plan to the caller's device memory of plan->bytes bytes, 256-byte aligned. Stream-ordered. Returns what
   fleet_plan_check finds wrong. */
FLEET_API fleet_status fleet_image_init(fleet_image *image, const fleet_plan *plan,
                                        void *device_memory, fleet_stream stream);
/* The same with memory of its own, which fleet_image_free frees. */
FLEET_API fleet_status fleet_upload(fleet_image *image, const fleet_plan *plan,
                                    fleet_stream stream);
FLEET_API void fleet_image_free(fleet_image *image);

/* How workgroups are assigned to chiplets. */
typedef enum fleet_placement {
    FLEET_PLACEMENT_DEFAULT, /* by the hardware's chiplet id where it has one; else LINEAR */
    FLEET_PLACEMENT_LINEAR,  /* virtual chiplets: workgroups are dealt to them in turn */
    FLEET_PLACEMENT_ROTATED, /* the same, starting at a chiplet that the seed selects */
    FLEET_PLACEMENT_RANDOM   /* in a random order that the seed selects */
} fleet_placement;

typedef struct fleet_state_desc {
    /* default: FLEET_PLACEMENT_DEFAULT. FLEET_ERROR_UNSUPPORTED: virtual chiplets where L2s are private */
    fleet_placement placement;
    uint64_t seed;        /* default 1 */
    uint32_t first_epoch; /* steps that count as completed already; default 0 */
    /* workgroups launched in addition to those that the plan needs, for hardware that assigns them to its chiplets
       unevenly: each chiplet keeps what it needs, and the rest leave at once. All must be resident together. Default
       0; virtual chiplets need none */
    uint32_t spare;
    const fleet_peers *peers;   /* of a plan for several ranks (>>ranks); copied. Default: none */
    struct fleet_state *beside; /* a second plan's (>>launches). Default: none */
} fleet_state_desc;

FLEET_API fleet_state_desc fleet_state_desc_default(void);

/* Counters, epoch, mailboxes and failure records of one run at a time. Like an image it is a handle without pointers to
   itself, and may be moved or returned by value; only one copy of it may be used and freed. */
typedef struct fleet_state {
    /* why the last call that makes, binds or launches it was refused; empty if it was not */
    char message[192];
    /* The rest is private. */
    fleet_image image; /* a copy, which owns nothing */
    char *device;      /* device memory of fleet_state_bytes */
    /* pinned memory of fleet_state_host_bytes, and its device address */
    fleeti_host *host, *host_device;
    uint32_t owned, virtual_chiplets;
    uint32_t blocks, first_epoch; /* blocks: workgroups of a launch */
    uint32_t debugged, is_beside; /* 1: it was made under a debugger; 1: it is another's `beside` */
    struct fleet_state *beside;   /* whose plan runs in this one's launches; null: none */
    fleet_peers peers;            /* a plan for several ranks */
    /* a bit for each symbol that has a value, and for each tensor that has memory */
    uint32_t bound_symbols, bound_tensors[(FLEET_MAX_TENSORS + 31) / 32];
    /* 1 + the largest tile number of the plan, and a grid that has it */
    uint32_t tiles, tiles_grid;
    size_t running, mailboxes, chiplet_of, counters, rings, shapes; /* offsets in device */
    size_t failures, system, log;                                   /* offsets in host */
    uint32_t launches;                                              /* enqueued */
    uint32_t runs;                                                  /* prepared */
} fleet_state;

FLEET_API size_t fleet_state_bytes(const fleet_plan *plan);
FLEET_API size_t fleet_state_host_bytes(const fleet_plan *plan);
/* Makes a state in the caller's memory, which must outlive it: device memory of fleet_state_bytes, 256-byte aligned,
   and pinned host memory of fleet_state_host_bytes with its device address (fleet_pinned_alloc). The image's memory
   must outlive the state, too. desc may be null: defaults. Stream-ordered. */
FLEET_API fleet_status fleet_state_init(fleet_state *state, const fleet_image *image,
                                        const fleet_state_desc *desc, void *device_memory,
                                        void *pinned, void *pinned_device, fleet_stream stream)
    FLEETI_SYMBOL("fleet_state_init");
/* The same with memory of its own, which fleet_state_free frees. */
FLEET_API fleet_status fleet_state_create(fleet_state *state, const fleet_image *image,
                                          const fleet_state_desc *desc, fleet_stream stream);
FLEET_API void fleet_state_free(fleet_state *state);

/* ---- launch ---- */

typedef struct fleet_trace fleet_trace;

#define FLEET_LIMIT_NONE UINT64_MAX

typedef struct fleet_launch_desc {
    /* passes over the graph, or FLEET_STEPS_ENDLESS; default 1. Under DYNAMIC the arrivals at step events of so many
       steps together are at most 2^31 - 1 */
    uint32_t steps;
    /* per workgroup; a multiple of the wave size, at most 1024 with the producer's, and at most
       those of the kernel's declaration. Default 0: those of FLEET_KERNEL; 256 for kernels that are
       declared otherwise */
    uint32_t threads;
    /* dynamic LDS that tiles get through ctx; default 0: on the CPU ctx.lds is null */
    uint32_t lds_bytes;
    /* FLEET_PIPELINE_BYTES(set) where tiles have weight pipelines: the launch adds that much LDS, and
       FLEET_PRODUCER_THREADS (on the CPU a wave) to each workgroup. Default 0: what FLEET_KERNEL declares; none for
       kernels that are declared otherwise */
    uint32_t pipeline_bytes;
    /* 1: never a cooperative launch, the residency check alone proves that all workgroups are
       resident. A cooperative one needs no check where chiplets are virtual, and is faster there;
       an ordinary one is faster on AMD, where a captured launch is always ordinary, and so is one
       that stays, because cooperative launches would wait for its end. Default 0: cooperative where
       possible */
    uint32_t ordinary;
    /* 1: launches although the runtime says that not all workgroups fit on the device at once, where it is known to be
       wrong. The launch is an ordinary one then, and the residency check decides. Default 0:
       FLEET_ERROR_TOO_MANY_WORKERS */
    uint32_t ignore_occupancy;
    /* 1: tiles may call fleet_finish. No worker begins a step before all of them have ended the one before, so that the
       prefetches and weight copies of different steps overlap less. Default 0 */
    uint32_t finish;
    /* limit of one wait, on the CPU while the process runs and no wave makes progress; at most INT64_MAX, or
       FLEET_LIMIT_NONE. Default 0: 10 s, and none where the state was made under a debugger */
    uint64_t limit_ns;
    /* The limit in place of limit_ns in a plan for several ranks (>>ranks). Default 0: 10 minutes */
    uint64_t peer_limit_ns;
    /* Where each task leaves its record. Made for the state's plan; must outlive the launch. Needs FLEET_TRACE.
       Default: none */
    const fleet_trace *trace;
    fleet_stream stream;
    uint32_t *number;     /* receives the launch's number, for fleet_launch_status. Default: null */
    fleet_host_desc host; /* how the CPU simulates the device */
} fleet_launch_desc;

FLEET_API fleet_launch_desc fleet_launch_desc_default(void);

/* Enqueues desc->steps steps of the state's plan on desc->stream, with a kernel defined by
   FLEET_KERNEL. args: the array of the tiles' arguments in device memory, with an element for each
   index that grids name; null if no tile has arguments. The call may be captured into a graph, each
   replay of which runs desc->steps further steps. The returned status covers what is known at once;
   fleet_state_wait returns that of the run. Of launches of one state that overlap, in several
   streams or as replays of one graph, at most one runs. The others end with FLEET_ERROR_BUSY, and
   of ordinary launches all do if they meet before all workgroups of the first one are resident.
   FLEET_ERROR_TOO_MANY_WORKERS: the device, or the part of it that the stream may use, cannot hold
   all workgroups of this kernel at once. FLEET_ERROR_SYMBOL_UNBOUND, FLEET_ERROR_TENSOR_UNBOUND:
   fleet_bind or fleet_bind_tensor is missing. FLEET_ERROR_UNSUPPORTED: a trace without FLEET_TRACE.
   FLEET_ERROR_ARGUMENT: a field of desc is out of its range, the trace belongs to another plan, or
   a grid's tile number is not one of the kernel's set. */
FLEET_API fleet_status fleet_launch(fleet_state *state, const fleet_launch_desc *desc,
                                    fleet_kernel kernel, const void *args);

/* The same for a kernel with other parameters: fleet_run_prepare fills the fleet_run that one of them must be, and
   fleet_launch_args launches it once, with the same desc. args: as for cudaLaunchKernel. */
FLEET_API fleet_status fleet_run_prepare(fleet_state *state, const fleet_launch_desc *desc,
                                         fleet_run *run);
FLEET_API fleet_status fleet_launch_args(fleet_state *state, const fleet_launch_desc *desc,
                                         const fleet_run *run, fleet_kernel kernel, void **args)
    FLEETI_SYMBOL("fleet_launch_args");

/* Runs one task alone with its real arguments, for a debugger or a profiler: it waits for no event and notifies
   none. task: from fleet_plan_task. slice: of a device-task; in a chiplet-unaware plan its tiles run one after
   another. Waits for the end and returns the first status of the tile that is not FLEET_OK. */
FLEET_API fleet_status fleet_launch_task(fleet_state *state, const fleet_launch_desc *desc,
                                         fleet_kernel kernel, const void *args, uint32_t task,
                                         uint32_t slice);

/* Gives a symbol its value for all later launches in stream order, without a new plan, upload or wait; a captured
   call is part of the graph. FLEET_ERROR_NAME: the plan has no such symbol that is bound at launch.
   FLEET_ERROR_SYMBOL_RANGE: the value is outside the symbol's bounds; fleet_state_report names the symbol. */
FLEET_API fleet_status fleet_bind(fleet_state *state, const char *symbol, int64_t value,
                                  fleet_stream stream);

/* Gives a run-time tensor its device memory for all later launches in stream order: an int32 for each value of its
   shape, at the largest values of its symbols. The memory must outlive these launches. FLEET_ERROR_NAME: the plan
   has no such tensor. */
FLEET_API fleet_status fleet_bind_tensor(fleet_state *state, const char *tensor, int32_t *memory,
                                         fleet_stream stream);

/* The status of the launches since the last call of this or of fleet_state_wait, without waiting:
   the first failure, which stays until fleet_state_recover; or FLEET_ERROR_BUSY, _RESIDENCY or
   _POISONED if one was refused. */
FLEET_API fleet_status fleet_state_status(fleet_state *state);
/* Waits for the stream, then returns the same. FLEET_OK: all launches in it have run all their
   steps. */
FLEET_API fleet_status fleet_state_wait(fleet_state *state, fleet_stream stream);

/* What has become of a launch. Launches of a state are numbered in the order in which their calls
   enqueue them, from 1 on; a replay has the number of the launch that was captured. */
typedef struct fleet_outcome {
    uint32_t number;
    uint32_t
        run; /* which of the state's launches it was in time, refused ones and replays included */
    fleet_status status; /* FLEET_OK: it has run all its steps, or still runs */
    uint32_t ended;      /* 0: it runs */
    uint32_t refused;    /* 1: it has run nothing */
    uint32_t steps;      /* that it has run, up to fleet_finish; 0 if it failed */
    uint32_t other;      /* refused: number of the launch that had the state, or has poisoned it */
} fleet_outcome;

/* Returns 0 if the launch has not begun, or is not one of the last 64 since the state was made or
   recovered. Of replays it is the last one. Works while a kernel hangs. fleet_state_report has a
   line for each that failed or was refused. */
FLEET_API uint32_t fleet_state_outcome(const fleet_state *state, uint32_t number,
                                       fleet_outcome *outcome);

/* Steps completed by finished launches. */
FLEET_API uint32_t fleet_state_epoch(const fleet_state *state);

/* ---- failures ---- */

/* Asks the run to end: waits return, and each worker stops after at most a few more tasks whose events were complete
   already. May be called from any thread at any time. */
FLEET_API void fleet_state_abort(fleet_state *state);
/* Makes a poisoned state usable. Counters and the epoch start from 0. Stream-ordered. */
FLEET_API fleet_status fleet_state_recover(fleet_state *state, fleet_stream stream);

/* What a worker or scheduler found when it ended the run. */
typedef struct fleet_failure {
    uint32_t status; /* fleet_status */
    /* number of the worker among all; total_workers + k: the scheduler of chiplet k */
    uint32_t worker;
    uint32_t task;    /* id in the graph, for fleet_plan_task_name */
    uint32_t counter; /* for fleet_plan_counter_name; 0: the failure is not that of an event */
    /* Arrivals in this step; expected is the element's target. Under FLEET_ERROR_TENSOR_VALUE `counter` is the
       run-time tensor, `seen` the index and `expected` the value found there; or `seen` is FLEETI_TENSOR_SUM, and
       `expected` the sum of the tensor's values. Under FLEET_ERROR_SYMBOL_RANGE `counter` is the
       number of the symbol, `seen` the value that the task sets and `expected` the one before. */
    uint32_t seen, expected;
    uint32_t epoch;
    uint32_t tile_status;  /* returned by the tile */
    uint32_t bucket;       /* of the plan: task belongs to fleet_plan_bucket(plan, bucket) */
    uint32_t bucket_epoch; /* epoch among the steps of that bucket */
    uint32_t peer;         /* a plan for several ranks: the rank that caused it */
} fleet_failure;

#define FLEETI_TENSOR_SUM 0xffffffffu

/* Writes the first failure and returns 1; returns 0 if there is none. Works while the kernel hangs. */
FLEET_API uint32_t fleet_state_failure(const fleet_state *state, fleet_failure *failure);
/* The hang report in words: every worker that ended the run or gave up waiting, and every tile that still runs.
   Writes and returns as snprintf does. Works while the kernel hangs: it copies from the device on a stream of its
   own. */
FLEET_API size_t fleet_state_report(const fleet_state *state, char *text, size_t bytes);

/* ---- sessions ---- */

/* A session makes the calls above one by one: it holds the plan of a graph, its image and state, and a copy of the
   arguments.
       fleet_session s;
       fleet_session_open(&s, graph, NULL, FLEET_KERNEL_OF(sum_kernel));
       args.total = (float *)fleet_session_alloc(&s, sizeof(float));
       fleet_session_run(&s, &args, sizeof args);
       if (fleet_session_wait(&s)) fleet_session_report(&s, text, sizeof text);
       fleet_session_close(&s);
   The first failure is kept. Calls do nothing after it and return its status, so that only the last one needs a
   check. fleet_session_wait returns it too and forgets it, unless the session could not be opened.
   On the CPU `launch.host` of the descriptor chooses the engine, such as FLEET_ENGINE_DETERMINISTIC with a seed of
   the order in which waves run. */
typedef struct fleet_session_desc {
    fleet_plan_desc plan;   /* default: as for fleet_plan_build, with the topology of this device */
    fleet_state_desc state; /* default: as for fleet_state_create */
    fleet_launch_desc launch; /* of each run; its stream is for all. Default: as for fleet_launch */
} fleet_session_desc;

FLEET_API fleet_session_desc fleet_session_desc_default(void);

typedef struct fleeti_session_memory fleeti_session_memory;

/* A handle, which may be moved. The parts may be used by the calls above, for fleet_bind(&s.state, ...),
   fleet_state_abort(&s.state), fleet_plan_report and so on; `launch` may be changed between runs, apart from its stream. */
typedef struct fleet_session {
    fleet_plan *plan;
    fleet_image image;
    fleet_state state;
    fleet_launch_desc launch;
    fleet_kernel kernel;
    void *args;           /* device memory for the arguments */
    uint32_t args_bytes;  /* of the elements that the graph's grids name */
    uint32_t has_args;    /* 1: they have been copied */
    fleet_status failure; /* the one that is kept */
    fleeti_session_memory *memory;
    char message[512]; /* of the failure that was kept last, for the report */
} fleet_session;

/* Builds the plan, and makes image and state. kernel: defined by FLEET_KERNEL or FLEET_MEGAKERNEL. desc: null for the
   defaults. The session does not use the graph later. Whatever the status, the session may be closed. */
FLEET_API fleet_status fleet_session_open(fleet_session *session, fleet_graph *graph,
                                          const fleet_session_desc *desc, fleet_kernel kernel)
    FLEETI_SYMBOL("fleet_session_open");
/* Device memory that lives as long as the session; null if there is none, or after a failure. */
FLEET_API void *fleet_session_alloc(fleet_session *session, size_t bytes);
/* Copies the arguments to the device in stream order. args: an element of the kernel's set for each
   index that grids name, `bytes` in all, which the caller may reuse on return.
   FLEET_ERROR_ARGUMENT: that is not their size. null, 0: only where the set's struct has one byte,
   and so holds nothing. */
FLEET_API fleet_status fleet_session_args(fleet_session *session, const void *args, size_t bytes);
/* Launches `launch.steps` steps with these arguments. The call may be captured into a graph; its
   replays use the arguments that were copied last. FLEET_ERROR_POISONED: an earlier launch failed,
   see fleet_session_recover. */
FLEET_API fleet_status fleet_session_launch(fleet_session *session);
/* Both. */
FLEET_API fleet_status fleet_session_run(fleet_session *session, const void *args, size_t bytes);
/* Waits for the stream. Returns the first failure since the last wait, or that of the runs. */
FLEET_API fleet_status fleet_session_wait(fleet_session *session);
/* After a run that failed: fleet_state_recover, and waits for it. Forgets failures of the session's
   calls, too. */
FLEET_API fleet_status fleet_session_recover(fleet_session *session);
/* fleet_state_report, or why there is nothing to run. */
FLEET_API size_t fleet_session_report(const fleet_session *session, char *text, size_t bytes);
/* Waits for the stream, and frees all that the session holds. Closing it again does nothing. */
FLEET_API void fleet_session_close(fleet_session *session);
/* Closes it while a launch of another session stays (>>launches), for whose end fleet_session_close would wait: that session
   takes its memory over, and frees it when it is closed itself. FLEET_ERROR_MEMORY: the session is still open. */
FLEET_API fleet_status fleet_session_leave(fleet_session *session, fleet_session *to);

/* ---- events from the host ---- */

/* External events (fleet_event_external) from the host, at system scope. event: from fleet_plan_event. element:
   row-major index. epoch: fleet_state_epoch + 1 is the next step. A notify releases what this host thread wrote; a
   wait or a test that succeeds acquires. fleet_event_notify returns FLEET_ERROR_EPOCH, and makes no arrival, while
   the element is not complete in the epoch before: the arrival would count for that epoch. limit_ns:
   FLEET_LIMIT_NONE waits without a limit; else FLEET_ERROR_TIMEOUT after it. */
FLEET_API fleet_status fleet_event_notify(fleet_state *state, int32_t event, uint32_t element,
                                          uint32_t epoch);
FLEET_API fleet_status fleet_event_test(const fleet_state *state, int32_t event, uint32_t element,
                                        uint32_t epoch, uint32_t *done);
FLEET_API fleet_status fleet_event_wait(const fleet_state *state, int32_t event, uint32_t element,
                                        uint32_t epoch, uint64_t limit_ns);
/* For an ordinary kernel: the element as fleet_notify_device, fleet_wait_system and so on take it. */
FLEET_API fleet_status fleet_event_handle(const fleet_state *state, int32_t event, uint32_t element,
                                          fleet_event *out);

/* ---- trace ---- */

/* When the tasks of a launch ran; needs FLEET_TRACE. Give the launch a trace:
       fleet_trace_create(&trace, plan, NULL, stream);
       launch.trace = &trace;
   examples/parts/fleet_trace.h reads it when the launch has ended, and makes texts of it. A launch
   clears its trace, a captured one at each replay; a launch that is refused leaves the trace as it
   is. Times are those of a clock that all chiplets share, in steps of 10 ns on AMD, 32 ns on an H200
   and up to 1 us on other NVIDIA GPUs. (Cycle counters are finer, but each SM has its own, and their
   rate changes during a launch.) A record costs the first wave of a workgroup 100 to 140
   instructions, most of them after the notify, and each other wave 20 to 60. */
typedef struct fleet_trace_desc {
    /* per worker, of 32 bytes each, 1 to 2^31 - 1; further tasks are only counted. Default 1024 */
    uint32_t records;
    uint32_t first_step; /* of a launch, from 0 on: earlier steps leave no records. Default 0 */
} fleet_trace_desc;

FLEET_API fleet_trace_desc fleet_trace_desc_default(void);

/* Memory for the records of one launch at a time. The plan on the host must outlive it. */
struct fleet_trace {
    const fleet_plan *plan;
    void *device;
    uint32_t records;
    uint32_t owned;
};

/* desc may be null: defaults. Returns 0 if desc asks for no records, or for too many. */
FLEET_API size_t fleet_trace_bytes(const fleet_plan *plan, const fleet_trace_desc *desc);
/* Makes a trace in the caller's device memory of fleet_trace_bytes, 256-byte aligned. Stream-ordered. */
FLEET_API fleet_status fleet_trace_init(fleet_trace *trace, const fleet_plan *plan,
                                        const fleet_trace_desc *desc, void *device_memory,
                                        fleet_stream stream);
/* The same with memory of its own, which fleet_trace_free frees. */
FLEET_API fleet_status fleet_trace_create(fleet_trace *trace, const fleet_plan *plan,
                                          const fleet_trace_desc *desc, fleet_stream stream);
FLEET_API void fleet_trace_free(fleet_trace *trace);

FLEET_C_END

/* ==== >>ranks: one graph over several devices ==== */

FLEET_C_BEGIN

/* Every rank builds the same plan (fleet_plan_desc.ranks, fleet_grid_ranks) and has a state and launches of its own. What
   tells a rank that events of others are complete lies in its region, whose address all ranks know: fleet_peers of
   fleet_device.h, for fleet_state_desc.peers. The program's own data may lie after it.

   A state clears its own region. So each rank makes its state, waits for the stream, meets the others at a barrier of the
   program (MPI_Barrier), and only then launches; after fleet_state_recover the same. All ranks run the same steps with
   the same symbols. Before the first step they check that their plans are the same. A launch ends when its last step has
   ended on all ranks: what they wrote to this one is there.

   When a rank fails, the launches of all others end too, and fleet_failure.peer and the reports name it:
     FLEET_ERROR_PEER_FAILED    it ended by a failure or an abort, or could not begin; its own report says why
     FLEET_ERROR_PEER_TIMEOUT   it has not started, or not notified an event, within fleet_launch_desc.peer_limit_ns and
                                an eighth of it, in which ranks tell each other whom they wait for: where a rank waits
                                for one that waits for a third, the third is named. Waits within a rank have twice the
                                limit
     FLEET_ERROR_PEER_PLAN      it has another plan
   To go on, all ranks recover, meet, and launch.

   With the rank FLEET_ALL_RANKS one launch runs the tasks of all ranks on one device, each with its part of the workers;
   their events lie in the region of rank 0. These virtual devices serve to test a plan, or a program whose tiles take
   what belongs to a rank from the coordinate of their task. */

/* Bytes of the region that the kit uses on each rank; 0: a plan for one rank. */
FLEET_API size_t fleet_peers_bytes(const fleet_plan *plan);
/* Whether the table fits the plan: ranks, and bases that are aligned and not null. Writes what is wrong with it; text may
   be null. fleet_state_init returns the same, with the text in state->message. */
FLEET_API fleet_status fleet_peers_check(const fleet_peers *peers, const fleet_plan *plan,
                                         char *text, size_t bytes);

FLEET_C_END

/* In a tile: polls flagged data (fleet_device.h) that rank `peer` stores to `from`, in this rank's memory, until it has this
   flag, and loads it. One thread or several at once may call it, each for its own quad. Not FLEET_OK: the run ends, which
   the report blames on that rank, and the tile returns this status. */
FLEET_DEVICE fleet_status fleet_await_flagged(const fleet_ctx *ctx, const fleet_quad *from,
                                              uint32_t flag, uint32_t peer, fleet_quad *words);

/* ==== >>launches: that stay, and of two plans ==== */

/* ---- symbols that the run sets, launches that stay ---- */

/* A launch that stays runs until a tile calls fleet_finish:
       launch.steps = FLEET_STEPS_ENDLESS;
   The writer of its symbols (fleet_symbol_writer) is the boundary between two steps. There one task sees what the step
   has made, waits for the host while there is nothing to do, and sets the symbols of the next step:
       FLEET_TILE(boundary, job)
       {
           while (there is nothing to do) {
               if (fleet_load_relaxed_system(&args->host->stop)) return fleet_finish(&ctx);
               status = fleet_idle(&ctx, &args->host->news, the value that it has seen last);
               if (status) return status;
           }
           return fleet_next_symbol(&ctx, JOB_ROWS, rows);
       }
   Epochs, counters and step numbers wrap.

   While it runs, some calls of GPU runtimes do not return, because they wait for the whole device:
     - cudaFree, cudaFreeHost, hipFree and hipHostFree. So fleet_device_free, fleet_pinned_free and all that frees what it
       holds (fleet_session_close, fleet_state_free and so on; on AMD before ROCm 7
       also fleet_topology_query) are for after its end; a session is closed meanwhile by fleet_session_leave.
     - Work on its own stream waits for its end, and so do the copies that the kit waits for. Streams that are
       not cudaStreamNonBlocking (hipStreamNonBlocking) wait for the null stream, and it for them: give the launch and all
       that runs beside it streams of the other kind. Under ROCm a call on a stream, even fleet_bind, also waits while
       another thread waits for the stream.
     - The first launch of a kernel, where CUDA loads kernels lazily: launch it once before, or set CUDA_MODULE_LOADING
       to EAGER. */

/* fleet_launch_desc.steps: no last step. It needs fleet_launch_desc.finish, or a plan with a writer. */
#define FLEET_STEPS_ENDLESS UINT32_MAX

/* The value of a symbol in this step, also where the run sets it; ctx->symbols is for the others. */
FLEET_DEVICE int32_t fleet_symbol_now(const fleet_ctx *ctx, uint32_t symbol);

/* In the task of a symbol's writer, by all threads with the same values: sets the symbol, which is number `symbol` in
   the order of fleet_symbol, from the next step on. Where it changes, the threads share the work of setting the
   shapes of all grids that have it. fleet_symbol_now returns the new value when the call has returned. In such plans
   fleet_finish always works. FLEET_ERROR_SYMBOL_RANGE: the value is outside the symbol's bounds. Then the run ends
   with this status, whatever the tile returns, and fleet_state_report names the symbol. FLEET_ERROR_ARGUMENT: the
   task's grid is not the symbol's writer. */
FLEET_DEVICE fleet_status fleet_next_symbol(const fleet_ctx *ctx, uint32_t symbol, int32_t value);
/* The same in the task of one of its cutters, for the rest of this step: lowers it. The grids that come after the
   cutter have the new shape, and the writer sees the value, which stays until the writer sets another.
   FLEET_ERROR_SYMBOL_RANGE also for a value above the present one. */
FLEET_DEVICE fleet_status fleet_cut_symbol(const fleet_ctx *ctx, uint32_t symbol, int32_t value);

/* In a tile, by all threads of the group: waits until *word is not `seen`. word: in host memory that the device can
   access (fleet_pinned_alloc). What a host thread wrote to such memory before it called fleet_wake may be read then.
   Meanwhile, and for limit_ns afterwards, no wait of the run times out. Returns FLEET_OK; or why the run ends:
   FLEET_ERROR_ABORTED, or the status of another failure. */
FLEET_DEVICE fleet_status fleet_idle(const fleet_ctx *ctx, const uint32_t *word, uint32_t seen);

FLEET_C_BEGIN

/* By any host thread: adds one to the word, and so ends waits of fleet_idle for it, after a few microseconds. */
FLEET_API void fleet_wake(uint32_t *word);

FLEET_C_END

/* ---- two plans in one launch ---- */

/* A launch of a state runs a second plan too, if another state is beside it:
       fleet_state_create(&second, &second_image, NULL, stream);
       desc.beside = &second;
       fleet_state_create(&first, &first_image, &desc, stream);
       fleet_launch(&first, &launch, kernel, args);
   The launch's own plan is that of pool 0 and runs on the first chiplets; that of the state beside is pool 1 and runs on
   the chiplets after them, which its plan numbers from 0 too. Each pool has steps, epochs and symbols of its own, and ends
   after the launch's number of steps or by its own fleet_finish. Both have the launch's kernel, arguments and descriptor;
   a trace is of pool 0. Where one pool fails, or the host aborts, the other one ends too.

   fleet_state_status, _wait, _report, _abort and _recover of pool 0's state are for both; fleet_state_failure, _epoch,
   fleet_bind and fleet_event_... are each state's own. Launches of the state beside are refused (FLEET_ERROR_UNSUPPORTED).
   It must outlive the other one, and not move. fleet_state_init with a state beside needs fleet_state_bytes of that one's
   plan more. It returns FLEET_ERROR_ARGUMENT, with the reason in `message`, where `beside` is no state, is beside another one
   or has one itself, where a plan is for several ranks, and for more than FLEET_MAX_CHIPLETS chiplets in all. */

/* ==== >>layout: what a state and a trace hold in memory ==== */

FLEET_C_BEGIN

/* A word that takes read-modify-writes never shares a cache line with one that is stored to. */
typedef struct fleeti_line {
    uint32_t word;
    uint32_t pad[FLEETI_EVENT_LINE - 1];
} fleeti_line;

typedef struct fleeti_wide_line {
    uint64_t word;
    uint64_t pad[FLEETI_EVENT_LINE / 2 - 1];
} fleeti_wide_line;

/* What the workgroups of a chiplet poll until there is a result, and what they need then, from the
   claim that opened the run: the bucket, and the steps that it and the state have completed; where
   they begin at once, the key of their fleet_run, and how many have begun. */
typedef struct fleeti_run_line {
    uint32_t word, bucket, bucket_epoch, epoch, key, begun;
    uint32_t pad[FLEETI_EVENT_LINE - 6];
} fleeti_run_line;

typedef struct fleeti_mailbox fleeti_mailbox;
typedef struct fleeti_ring fleeti_ring;
typedef struct fleeti_trace fleeti_trace;
typedef struct fleeti_log fleeti_log;

/* A ready ring; those of chiplet k begin at FLEETI_RINGS * k. */
typedef struct fleeti_ready_ring {
    fleeti_ring *ring;
    uint32_t mask; /* capacity - 1 */
    uint32_t pad;
} fleeti_ready_ring;

/* What workers load when they need it, rather than keep in registers. */
typedef struct fleeti_config {
    uint32_t *counters;
    fleeti_host *host;         /* device address */
    fleeti_mailbox *mailboxes; /* per worker; CHIPLET only */
    /* DYNAMIC; indexed as ring_entries of the plan */
    fleeti_ready_ring ready[FLEETI_RINGS * FLEET_MAX_CHIPLETS];
    /* virtual chiplet of each workgroup; null: the hardware's chiplet id is used */
    const uint8_t *chiplet_of;
    fleet_watch watch;                /* each launch sets limit_ticks, fleet_state_init the rest */
    int32_t *shapes;                  /* FLEETI_SHAPE words per grid */
    fleeti_trace *trace;              /* of the launch that owns the state; null: none */
    const fleet_plan *plan;           /* of the largest bucket; device address */
    fleeti_links links;               /* the system counters */
    uint32_t *words[FLEET_MAX_PEERS]; /* of the ranks that there are, else null */
    uint32_t rank, ranks;             /* ranks: 0, the launch has no others */
    uint32_t first_chiplet, end_chiplet; /* that this launch runs: those of its rank, or all */
    /* By hardware ids: the ranks that share each chiplet of the device, [first_chiplet, end_chiplet) being those of the
       first one; else 1 */
    uint32_t ranks_here;
    uint32_t finish; /* as in its fleet_run */
    /* The other one of two states that run in one launch, which is one of the first state; null: none. */
    fleeti_state *other;
    fleeti_log *log; /* device address */
    uint32_t pad[2 * FLEETI_EVENT_LINE - 58];
    int32_t symbol_values[FLEET_MAX_SYMBOLS];   /* symbols, for later launches */
    const uint32_t *tensors[FLEET_MAX_TENSORS]; /* memory of the run-time tensors */
} fleeti_config;                                /* whole lines */

/* The shape of a grid in this launch: its extents, filled up with 1, and its slices. */
#define FLEETI_SHAPE (FLEET_MAX_RANK + 2u)

/* All of these but `open` take read-modify-writes. A claim writes them down (fleeti_log_claim): to
   load the host's words would take a microsecond each. */
typedef struct fleeti_due_line {
    /* workgroups of launches, refused ones included, that have not left, and FLEETI_CLAIMING for
       each claim that is setting the state; 0: the state is free */
    uint32_t word;
    uint32_t claims; /* launches so far, refused ones included */
    uint32_t open;   /* number of the launch that opened the last run */
    /* launches that opened a run and failed the residency check, of these because others met them,
       or for another reason but an abort: as fleeti_host.busy, less those that claims refused, and
       nonresident */
    uint32_t met, nonresident;
    uint32_t pad[FLEETI_EVENT_LINE - 5];
} fleeti_due_line;

#define FLEETI_CLAIMING 0x1000000u

/* The state in device memory. After this header, each part on cache lines of its own: running[total_workers + 1],
   mailboxes, virtual chiplets, counters, rings, shapes. */
struct fleeti_state {
    fleeti_due_line due;
    fleeti_line epoch;    /* steps completed; stored by the last workgroup that leaves */
    fleeti_line finished; /* launches; stored by the last workgroup that leaves */
    fleeti_line stop;     /* fleet_status that ends the run; stays until fleet_state_recover */
    /* the residency check: FLEETI_OPEN; FLEETI_PENDING: a workgroup decides; its result is FLEETI_RESIDENT, passed, or the
       fleet_status of its failure; 0: there was no run yet */
    fleeti_line residency;
    fleeti_line exited; /* workgroups of the chiplets on which all have left */
    /* 0, or 1 + (epoch << 32): a tile has called fleet_finish in that epoch of the state, the run's last one */
    fleeti_wide_line finish;
    fleeti_wide_line idle; /* fleet_watch.idle */
    fleeti_line met;       /* 1: all ranks have started with the plan of this one */
    /* Each launch sets these before its workgroups start: the bucket of the plan, and the symbols. Tasks of a plan that
       rebinds symbols set these too, and the shapes. */
    fleeti_line bucket;
    int32_t symbols[FLEET_MAX_SYMBOLS];
    uint32_t bucket_epoch[FLEET_MAX_BUCKETS]; /* steps of each bucket; as epoch */
    fleeti_config config;                     /* constant during a launch */
    /* By hardware id, so that workgroups of different chiplets do not use the same lines: those that have come, that have
       left, and the result of the residency check for them. */
    fleeti_line resident[FLEET_MAX_CHIPLETS];
    fleeti_line left[FLEET_MAX_CHIPLETS];
    fleeti_run_line result[FLEET_MAX_CHIPLETS];
};

/* A result that is no fleet_status. For the workgroups of a chiplet it has the number of the
   chiplet in bits 24 to 29, and below it how many of them belong to the run: those of lower
   ranks. */
#define FLEETI_RESIDENT 0x80000000u
#define FLEETI_AT_ONCE 0xc0000000u /* the same, without a check */
#define FLEETI_RESULT_KIND(result) ((result)&FLEETI_AT_ONCE)
#define FLEETI_PENDING 0x40000000u
#define FLEETI_OPEN 0x20000000u
#define FLEETI_RESULT_CHIPLET(result) ((result) >> 24 & 0x3fu)
typedef char chiplets_of_two_states_fit_in_a_result[2 * FLEET_MAX_CHIPLETS <= 64 ? 1 : -1];
#define FLEETI_RESULT_COUNT(result) ((result)&0xffffffu)
/* as resident_chiplet: not all workgroups became resident in time */
#define FLEETI_ANY_CHIPLET 0xffffffffu

/* One worker's mailbox. The scheduler stores the slots, the worker stores `taken`. */
#define FLEETI_MAILBOX 8u
struct fleeti_mailbox {
    uint64_t
        slot[FLEETI_MAILBOX]; /* sequence << 48 | acquire scope << 46 | batch << 32 | descriptor */
    uint64_t pad[FLEET_CACHE_LINE_BYTES / 8 - FLEETI_MAILBOX];
    fleeti_line taken; /* entries read in this launch */
};

/* Many threads push and many pop. A pop first reserves one unit of `available` and only then takes a ticket, so that
   an entry will exist for each ticket. Ticket t belongs to slot t mod capacity, which holds t + 1 beside the value:
   a slot that was never written cannot pass for a pushed one. Nothing is ever reset, and all counts wrap. The caller
   guarantees that entry t + capacity is pushed only after entry t has been popped and the tasks that follow from it
   have been waited for. (The ring of a plan has room for all tasks of a step that can be pushed to it, and a step
   begins when the one before has ended.) Then a push always finds its slot free, and need not check. */
struct fleeti_ring {
    fleeti_line available, head, tail;
}; /* then: uint64_t slots[capacity], (ticket + 1) << 32 | value */

/* What the host sees of a run, in pinned memory: readable while the kernel hangs. */
struct fleeti_host {
    fleeti_line abort; /* stored by the host */
    uint32_t status;   /* of the first failure; stays until fleet_state_recover */
    uint32_t finished; /* launches */
    uint32_t busy;     /* launches refused: others had not left the state */
    uint32_t poisoned; /* launches refused: the state is poisoned */
    /* launches that failed the residency check, and why the last one did */
    uint32_t nonresident, resident_chiplet, resident_found, resident_needed;
    uint32_t epoch;
    uint32_t task_status;           /* of fleet_launch_task */
    fleet_failure first;            /* the failure whose status this is */
    uint32_t late[FLEET_MAX_PEERS]; /* FLEETI_PEER_LATE of its region then */
    uint32_t pad[FLEETI_EVENT_LINE - 29];
    /* After it: a fleet_failure per worker and scheduler, the counters of system scope, and the
       log. */
};

/* One launch, as its claim found the state. What became of a launch that opened a run is in what
   the next one found, or in what the host's words are now. */
typedef struct fleeti_log_entry {
    uint32_t claim;  /* 1 + its number among the claims; 0: none */
    uint32_t number; /* of the launch; replays have that of the captured one */
    uint32_t status; /* FLEET_OK: it opened a run; else why the claim refused it */
    uint32_t other;  /* refused: number of the launch that has the state */
    /* before it: fleeti_host.finished and nonresident, busy less those that claims refused, the
       epoch */
    uint32_t finished, nonresident, met, epoch;
} fleeti_log_entry;
#define FLEETI_LOG_ENTRIES 64u
/* The last launches of a state, in pinned memory. */
struct fleeti_log {
    fleeti_line busy; /* launches that claims refused as FLEET_ERROR_BUSY */
    /* by the host alone: what fleet_state_status has returned of fleeti_host.busy, nonresident and
       poisoned */
    uint32_t told_busy, told_nonresident, told_poisoned;
    uint32_t pad[FLEETI_EVENT_LINE - 3];
    fleeti_log_entry entries[FLEETI_LOG_ENTRIES];
};

/* A trace in device memory. After this header: fleeti_trace_row[workers], on cache lines of their own; then
   fleeti_trace_record[workers][records]. Each worker clears its own part; the end of the kernel publishes them. */
struct fleeti_trace {
    uint32_t records; /* per worker */
    uint32_t first_step;
    uint32_t workers;
    uint32_t pad[FLEETI_EVENT_LINE - 3];
};
/* Stored by a worker when it leaves. */
typedef struct fleeti_trace_row {
    /* records that its tasks ask for, dropped ones included; of 3 * 2^30 and more, at least 2^31 */
    uint32_t wanted;
    uint32_t bucket; /* 1 + bucket of the plan; 0: the worker was not there */
    uint32_t waves;  /* that run tasks */
    uint32_t pad;
} fleeti_trace_row;
/* One task. One lane of its group stores it as two quads, without a fence. */
typedef struct fleeti_trace_record {
    uint64_t taken; /* fleet_clock_ticks */
    /* When its tile began, returned, and had notified: the low words of the clock. No two of them are 2^32 ticks
       apart (4 s on NVIDIA). */
    uint32_t begun, ended, notified;
    uint32_t desc;
    uint32_t step;  /* of the launch */
    uint32_t flags; /* FLEETI_TRACE_... | wave << 8; 0: no record */
} fleeti_trace_record;
#define FLEETI_TRACE_VALID 1u
#define FLEETI_TRACE_ABSENT 2u

FLEET_C_END

/* Workgroups of a chiplet that run no tasks: under CHIPLET its scheduler. */
FLEET_HOST_DEVICE uint32_t fleeti_schedulers(const fleet_plan *plan)
{
    return plan->schedule == FLEET_SCHEDULE_CHIPLET;
}
/* Workgroups that the plan needs on a chiplet. */
FLEET_HOST_DEVICE uint32_t fleeti_blocks_of(const fleet_plan *plan, uint32_t chiplet)
{
    return plan->workers[chiplet] + fleeti_schedulers(plan);
}

/* The plan of a bucket in the block of the largest one. */
FLEET_HOST_DEVICE const fleet_plan *fleeti_plan_at(const fleet_plan *plan, uint32_t bucket)
{
    const char *block = (const char *)plan;
    const uint64_t *offsets = fleeti_plan_buckets(plan);
    if (plan->n_buckets == 1) return plan;
    return (const fleet_plan *)(const void *)(block + offsets[bucket]);
}

/* Per worker: 1 + id of the last task that it began. One more word for a task that runs alone. */
FLEET_DEVICE uint32_t *fleeti_running(fleeti_state *state)
{
    return (uint32_t *)(void *)(state + 1);
}
FLEET_DEVICE fleet_failure *fleeti_failures(fleeti_host *host)
{
    return (fleet_failure *)(void *)(host + 1);
}

/* ==== >>context: what a worker knows ==== */

/* ---- descriptors in LDS ---- */

/* Descriptors that are fetched ahead: a ring of slots in LDS, each with a descriptor, its first wait record and its
   first notify record. Task number n has slot n mod FLEETI_SLOTS_AHEAD. Under STATIC the last wave fills one half,
   FLEETI_CHUNK tasks ahead, while all waves work through the other half. */
#define FLEETI_CHUNK 8u
#define FLEETI_SLOTS_AHEAD (2 * FLEETI_CHUNK)
#define FLEETI_SLOT_WORDS 24u
#define FLEETI_SLOT_WAIT 16u   /* four words */
#define FLEETI_SLOT_NOTIFY 20u /* four words */
#define FLEETI_SLOT(number) ((number) % FLEETI_SLOTS_AHEAD * FLEETI_SLOT_WORDS)
#define FLEETI_SLOT_QUADS (FLEETI_SLOTS_AHEAD * FLEETI_SLOT_WORDS / 4)
/* Where the worker walks no queue, few slots are in use: half a ring away lie a task's descriptor index, its epoch and
   the number of wavefront-tasks from it on, and, four words, its first trigger. */
#define FLEETI_SLOT_INDEX(number) FLEETI_SLOT((number) + FLEETI_CHUNK)
#define FLEETI_SLOT_EPOCH(number) (FLEETI_SLOT_INDEX(number) + 1)
#define FLEETI_SLOT_TRIGGER(number) (FLEETI_SLOT_INDEX(number) + 4)
/* After the slots: under DYNAMIC the descriptor indices of a batch. */
#define FLEETI_BATCH_LIMIT 32u
#define FLEETI_BATCH_WORD(i) (4 * FLEETI_SLOT_QUADS + (i))
/* Then, for the wave that pops: the rings of its own chiplet, four words each, and the step event. Beside the rings:
   where triggers and consumers lie, and whether tasks may be absent or pushed early, for the wave that pushes; whether the
   last pop found a task. */
#define FLEETI_HOME_WORD(kind) (FLEETI_BATCH_WORD(FLEETI_BATCH_LIMIT) + 8 * (kind))
#define FLEETI_TRIGGERS_WORD (FLEETI_HOME_WORD(0) + 4)
#define FLEETI_CONSUMERS_WORD (FLEETI_HOME_WORD(0) + 6)
#define FLEETI_HOT_WORD (FLEETI_HOME_WORD(1) + 4)
#define FLEETI_GUARDED_WORD (FLEETI_HOME_WORD(1) + 5)
#define FLEETI_EARLY_WORD (FLEETI_HOME_WORD(1) + 6)
#define FLEETI_STEP_WORD FLEETI_HOME_WORD(FLEETI_RINGS)
/* An epoch that had begun when the wave last looked: fewer than 2^31 arrivals at the step event ago. */
#define FLEETI_BEGUN_WORD (FLEETI_STEP_WORD + 3)
/* And the head of its own queue: the descriptor, its first wait record, its index. */
#define FLEETI_OWN_WORD (FLEETI_STEP_WORD + 4)
#define FLEETI_OWN_INDEX (FLEETI_OWN_WORD + 20)
#define FLEETI_FIRST_EPOCH_WORD (FLEETI_OWN_INDEX + 1) /* the launch's */
#define FLEETI_LOOP_QUADS (FLEETI_SLOT_QUADS + FLEETI_BATCH_LIMIT / 4 + 2 * FLEETI_RINGS + 7)

/* ---- thread context ---- */

#define FLEETI_SINGLE_TASK 0xffu /* fleet_launch_task: one task, without events */

#define FLEETI_ROLE_NONE 0u  /* not part of the run: touch nothing */
#define FLEETI_ROLE_IDLE 1u  /* counted, but not needed: there are more workgroups than workers */
#define FLEETI_ROLE_FIRST 2u /* + chiplet << 16 | number on it */
#define FLEETI_ROLE_BESIDE 0x80000000u /* and of the state beside the launch's */

#if defined(FLEET_TRACE)
/* What a wave keeps to record its tasks. */
typedef struct fleeti_tracer {
    FLEETI_GLOBAL_POINTER(fleeti_trace_record) records; /* of this worker */
    uint32_t room;                                      /* their number; 0: no trace */
    /* the same in the first wave, which records the tasks of the workgroup; else 0 */
    uint32_t lead;
    uint32_t first_step;
    uint32_t skip; /* tasks acquired, less the records for them: ends of steps have none */
    /* wavefront-tasks: the record of this wave's next one; the descriptor of that in hand */
    uint32_t batch, desc;
    uint32_t low, high; /* when the task in hand was acquired */
    uint32_t begun, ended;
} fleeti_tracer;
#endif

/* What thread 0 keeps from the residency check for when it leaves: the line of its chiplet, how
   many workgroups of the line belong to the run, and the bucket of the plan. */
#define FLEETI_PLACE_OF(line, count) ((line) | (count) << 12)
#define FLEETI_PLACE_OF_BUCKET(bucket) ((bucket) << 6)
#define FLEETI_PLACE_LINE(place) ((place)&0x3fu)
#define FLEETI_PLACE_BUCKET(place) ((place) >> 6 & 0x3fu)
#define FLEETI_PLACE_COUNT(place) ((place) >> 12)
typedef char a_place_fits[FLEET_MAX_CHIPLETS <= 64 && FLEET_MAX_BUCKETS <= 64 ? 1 : -1];

/* What does not change while the worker runs, and is the same in all threads of the workgroup. On NVIDIA it lies in
   LDS: tiles need the registers, and a spilled one costs more than a load from LDS. */
typedef struct fleeti_fixed {
    FLEETI_GLOBAL_POINTER(fleeti_state) state;
    uint32_t role; /* FLEETI_ROLE_... */
    FLEETI_GLOBAL_POINTER(uint32_t) counters;
    FLEETI_GLOBAL_POINTER(const fleet_plan) plan;
    /* the plan's tables */
    FLEETI_GLOBAL_POINTER(const fleet_task) tasks;
    FLEETI_GLOBAL_POINTER(const fleeti_wait) waits;
    FLEETI_GLOBAL_POINTER(const fleeti_notify) notifies;
    /* CHIPLET: the worker's own; of a scheduler: that of its chiplet's first worker */
    FLEETI_GLOBAL_POINTER(fleeti_mailbox) mailbox;
    uint32_t chiplets, steps;
    uint32_t blocks;       /* of this launch */
    uint32_t place;        /* FLEETI_PLACE_...; in thread 0 */
    uint32_t epoch_offset; /* epoch of the state less that of the bucket */
    /* its chiplet, its number there, and the number of workers there */
    uint32_t chiplet, worker, workers;
    uint32_t id;                            /* its number among all */
    uint32_t first, count;                  /* the worker's queue; under CHIPLET the chiplet's */
    uint32_t looks_ahead;                   /* of fleeti_static_look_ahead */
    FLEETI_GLOBAL_POINTER(const void) args; /* of the kernel's tiles */
    uint32_t lds_bytes;
    uint32_t launch_error; /* FLEET_ERROR_...: this kernel cannot run the launch */
} fleeti_fixed;
FLEETI_PARK(fleeti_fixed, fleeti_fixed_in_lds)

typedef struct fleeti_worker {
    fleeti_thread self;
    const fleeti_fixed *fixed;
    fleeti_lds slots;  /* in LDS, FLEETI_SLOT: descriptors fetched ahead */
    uint32_t schedule; /* fleet_schedule, or FLEETI_SINGLE_TASK */
    uint32_t steps_left;
    uint32_t epoch; /* among the steps of the bucket that runs */
    /* DYNAMIC: the head of the worker's own queue, and the epoch of its step */
    uint32_t own, own_epoch;
    /* of the next task, counted over all steps; CHIPLET: of the next mailbox entry */
    uint32_t number;
    uint32_t turn;
    uint32_t veto;
    uint32_t head;        /* STATIC: number of this step's first task */
    uint32_t batch_count; /* CHIPLET, DYNAMIC: wavefront-tasks in the batch */
    /* CHIPLET: the descriptor that the next mailbox entry probably brings */
    uint32_t predicted;
    /* wavefront-tasks: the next one of this wave, and the end of the batch */
    uint32_t batch_at, batch_end;
    uint32_t group;  /* of the task in hand */
    uint32_t slow;   /* 0: STATIC, no batch, not done */
    uint32_t plain;  /* the task in hand is plain: see fleeti_next_task */
    uint32_t absent; /* fleeti_is_absent of the task in hand */
    uint32_t vetoed; /* the notify of the plain task before was vetoed */
    fleet_status tile_status;
    /* In the wave that prefetches descriptors: the number of the task at which its next stage is due, and the stop
       word as it was loaded last. */
    uint32_t prefetches, prefetch_at, stop;
    uint32_t may_look_ahead; /* a constant: there is no weight pipeline */
    uint32_t prefetch_stage, prefetch_number, prefetch_offset, polled_at, looked_at;
    uint32_t later;
    fleeti_async_copy inbound;
    uint32_t done;
    void *lds;
    fleeti_pipeline pipeline;
    /* tasks posted, except under STATIC; in the producer: its place in the queue */
    uint32_t begun;
    fleeti_pinned task; /* the descriptor in hand: FLEETI_TASK reads it */
#if defined(FLEET_TRACE)
    fleeti_tracer trace;
#endif
    size_t lds_mark; /* of fleeti_lds_mark: what tiles declare goes after it */
} fleeti_worker;

/* Words of a fleet_task. */
#define FLEETI_WORD(field) ((uint32_t)(offsetof(fleet_task, field) / 4))
#define FLEETI_TASK(w, field) fleeti_pinned_word((w)->task, FLEETI_WORD(field))
/* Whether the task in hand has one of the flags FLEETI_GUARDED, MAPPED, EARLY, FEEDS. */
FLEET_DEVICE uint32_t fleeti_task_has(const fleeti_worker *w, uint32_t flags)
{
    return FLEETI_FLAGS_IN(FLEETI_TASK(w, level)) & flags;
}

FLEET_DEVICE uint32_t fleeti_schedule_of(const fleeti_worker *w)
{
    return w->schedule;
}
/* A word of the shapes. Loaded past the L1, since tasks may set symbols (edge 28). */
FLEET_DEVICE int32_t fleeti_shape_of(const fleeti_state *state, uint32_t grid, uint32_t axis)
{
    return (int32_t)fleet_load_relaxed_device((const uint32_t *)(const void *)state->config.shapes +
                                              FLEETI_SHAPE * grid + axis);
}
/* The context of a tile points to the symbols of its state. */
FLEET_DEVICE fleeti_state *fleeti_state_of_ctx(const fleet_ctx *ctx)
{
    return (fleeti_state *)(uintptr_t)((const char *)ctx->symbols -
                                       offsetof(fleeti_state, symbols));
}
/* Whether the worker walks a queue of its own, so that its next tasks are known ahead. */
FLEET_DEVICE uint32_t fleeti_walks(const fleeti_worker *w)
{
    return fleeti_schedule_of(w) == FLEET_SCHEDULE_STATIC;
}
FLEET_DEVICE fleeti_state *fleeti_state_of(const fleeti_worker *w)
{
    return (fleeti_state *)w->fixed->state;
}
FLEET_DEVICE const fleet_plan *fleeti_plan_of(const fleeti_worker *w)
{
    return (const fleet_plan *)w->fixed->plan;
}
FLEET_DEVICE fleeti_counters fleeti_counters_of(const fleeti_worker *w)
{
    fleeti_counters c;
    c.device = (uint32_t *)w->fixed->counters;
    c.system = &fleeti_state_of(w)->config.links.own;
    return c;
}
FLEET_DEVICE const fleet_task *fleeti_tasks_of(const fleeti_worker *w)
{
    return (const fleet_task *)w->fixed->tasks;
}
FLEET_DEVICE const fleeti_wait *fleeti_waits_of(const fleeti_worker *w)
{
    return (const fleeti_wait *)w->fixed->waits;
}
FLEET_DEVICE const fleeti_notify *fleeti_notifies_of(const fleeti_worker *w)
{
    return (const fleeti_notify *)w->fixed->notifies;
}
FLEET_DEVICE fleeti_mailbox *fleeti_mailbox_of(const fleeti_worker *w)
{
    return (fleeti_mailbox *)w->fixed->mailbox;
}

FLEET_DEVICE uint32_t fleeti_is_scheduler(const fleeti_worker *w)
{
    return w->fixed->role >= FLEETI_ROLE_FIRST && w->fixed->worker == w->fixed->workers;
}

FLEET_DEVICE uint32_t fleeti_batch_limit(const fleeti_worker *w)
{
    const uint32_t waves = fleeti_task_waves(w->self);
    return waves < FLEETI_BATCH_LIMIT ? waves : FLEETI_BATCH_LIMIT;
}

FLEET_DEVICE fleeti_wait fleeti_slot_wait(const fleeti_worker *w, uint32_t number)
{
    fleeti_quad q = fleeti_lds_get4(w->slots, FLEETI_SLOT(number) + FLEETI_SLOT_WAIT);
    fleeti_wait r;
    r.counter = fleeti_uniform(q.word[0]), r.count = fleeti_uniform(q.word[1]);
    r.stride = fleeti_uniform(q.word[2]), r.target = fleeti_uniform(q.word[3]);
    return r;
}
FLEET_DEVICE fleeti_notify fleeti_slot_notify(const fleeti_worker *w, uint32_t number)
{
    fleeti_quad q = fleeti_lds_get4(w->slots, FLEETI_SLOT(number) + FLEETI_SLOT_NOTIFY);
    fleeti_notify r;
    r.counter = fleeti_uniform(q.word[0]), r.sub = fleeti_uniform(q.word[1]);
    r.share = fleeti_uniform(q.word[2]), r.weight = fleeti_uniform(q.word[3]);
    return r;
}

/* Whether the launch has no last step; `steps_left` then passes 0. */
FLEET_DEVICE uint32_t fleeti_is_endless(const fleeti_worker *w)
{
    return w->fixed->steps == FLEET_STEPS_ENDLESS;
}
/* What a test takes from `steps_left` of a launch that has no last step, so that it passes 0 soon. */
FLEET_DEVICE uint32_t fleeti_steps_taken(const fleeti_worker *w)
{
    return fleeti_is_endless(w) ? FLEETI_TEST_START : 0;
}
/* The step of the launch, from 0 on. */
FLEET_DEVICE uint32_t fleeti_step_of(const fleeti_worker *w)
{
    return w->fixed->steps - w->steps_left - fleeti_steps_taken(w);
}
/* Whether a step of the launch follows. */
FLEET_DEVICE uint32_t fleeti_goes_on(const fleeti_worker *w)
{
    return w->steps_left != 1 || fleeti_is_endless(w);
}
/* Advances by a step. Returns whether that was the last step of the launch. */
FLEET_DEVICE uint32_t fleeti_step_ends(fleeti_worker *w)
{
    uint32_t left = w->steps_left - 1;
    w->epoch++;
    w->steps_left = fleeti_uniform(left);
    return left == 0 && !fleeti_is_endless(w);
}

/* 1 + number of the task in hand, which consumers and the producer of the weight pipeline share: its place in the
   worker's queue, counted over all steps; where the worker walks no queue, its place among the tasks that it posts. */
FLEET_DEVICE uint32_t fleeti_pipeline_number(const fleeti_worker *w)
{
    return fleeti_walks(w) ? w->number : w->begun + 1;
}

/* The host's abort word, across the bus, is polled by workers that do not wait after so many of fleeti_cycles: some
   milliseconds. */
#define FLEETI_ABORT_CYCLES (1024u * FLEETI_LOAD_CYCLES)
FLEET_DEVICE uint32_t fleeti_have_passed(uint32_t cycles, uint32_t since, uint32_t now)
{
    return now - since >= cycles;
}
/* Whether a worker that last asked at `since` is to look at that word now: each at another time of such a period, and without
   a time of its last look, which would take a register from every tile. */
FLEET_DEVICE uint32_t fleeti_abort_is_due(const fleeti_worker *w, uint32_t since, uint32_t now)
{
    const uint32_t period = FLEETI_ABORT_CYCLES, shift = w->fixed->id % 64 * (period / 64);
    return period == 0 || (now - shift) / (period | 1) != (since - shift) / (period | 1);
}

/* ---- failure records ---- */

/* Tells the other ranks, once, that this one has ended the run, and the word that it blames. Keeps for the host whom each
   rank waits for. Relaxed: no data follows. Pair: fleeti_check_peers (edge 34). */
FLEET_DEVICE void fleeti_stop_peers(const fleeti_state *state, uint32_t cause)
{
    /* As many turns as there may be ranks, and no more state: each place that may fail has this loop. */
    FLEETI_ROLLED
    for (uint32_t i = 0; i < FLEET_MAX_PEERS; i++) {
        fleet_store_relaxed_system(
            &state->config.host->late[i],
            fleet_load_relaxed_system(state->config.links.own + FLEETI_PEER_LATE + i));
        if (state->config.words[i] && i != state->config.rank)
            fleet_store_relaxed_system(state->config.words[i] + FLEETI_PEER_STOP, cause);
    }
}

/* Records why a thread ends the run, in an epoch of the bucket. The status of the first such record stops all
   workers. */
FLEET_DEVICE void fleeti_record_failure(fleeti_state *state, uint32_t worker, uint32_t task,
                                        uint32_t epoch, fleeti_wait_diagnostics seen,
                                        uint32_t tile_status)
{
    fleeti_host *host = state->config.host;
    uint32_t first = fleet_cas_relaxed_device(&state->stop.word, 0, (uint32_t)seen.status) == 0;
    uint32_t bucket = fleet_load_relaxed_device(&state->bucket.word);
    fleet_failure *f = first ? &host->first : fleeti_failures(host) + worker;
    /* A launch of two states ends as a whole. Relaxed: no data follows (edge 14). */
    if (first && state->config.other)
        fleet_cas_relaxed_device(&state->config.other->stop.word, 0, (uint32_t)seen.status);
    /* Several waves and threads of a worker may fail: the first record stays. */
    if (!first && fleet_load_relaxed_system(&f->status)) return;
    fleet_store_relaxed_system(&f->worker, worker);
    fleet_store_relaxed_system(&f->task, task);
    fleet_store_relaxed_system(&f->counter, seen.counter);
    fleet_store_relaxed_system(&f->seen, seen.found);
    fleet_store_relaxed_system(&f->expected, seen.expected);
    fleet_store_relaxed_system(&f->bucket, bucket);
    fleet_store_relaxed_system(&f->bucket_epoch, epoch);
    fleet_store_relaxed_system(&f->epoch,
                               epoch + fleet_load_relaxed_device(&state->epoch.word) -
                                   fleet_load_relaxed_device(&state->bucket_epoch[bucket]));
    fleet_store_relaxed_system(&f->tile_status, tile_status);
    if (state->config.ranks) {
        /* The cause, as a word that one rank stores to; the host knows which (fleeti_peer_of_word). Mostly it is this rank,
           also where it was waiting for another one. */
        uint32_t cause = FLEETI_SYSTEM | state->config.rank;
        if (seen.status == FLEET_ERROR_PEER_TIMEOUT || seen.status == FLEET_ERROR_PEER_PLAN)
            cause = seen.counter;
        if (seen.status == FLEET_ERROR_PEER_FAILED)
            cause = fleet_load_relaxed_system(state->config.links.own + FLEETI_PEER_STOP);
        fleet_store_relaxed_system(&f->peer, cause);
        if (first) fleeti_stop_peers(state, cause);
    }
    fleeti_publish_system(&f->status, (uint32_t)seen.status);
    /* Publishes the record to the host before the status. Pair: fleet_state_failure (edge 14). */
    if (first) fleeti_publish_system(&host->status, (uint32_t)seen.status);
}

/* Of a failure that is not that of an event. */
FLEET_DEVICE fleeti_wait_diagnostics fleeti_no_event(fleet_status status)
{
    fleeti_wait_diagnostics seen;
    seen.status = status;
    seen.counter = seen.found = seen.expected = 0;
    return seen;
}

/* The tile returned this status. */
FLEET_DEVICE void fleeti_tile_failed(const fleeti_worker *w, uint32_t task,
                                     fleet_status tile_status)
{
    fleeti_wait_diagnostics seen = fleeti_no_event(FLEET_ERROR_TILE);
#if defined(FLEET_HOST) /* no GPU tells that */
    if (tile_status == FLEET_ERROR_BARRIER) {
        const fleeti_trouble trouble = fleeti_host_trouble();
        seen.counter = trouble.line, seen.found = trouble.waiting, seen.expected = trouble.waves;
    }
#endif
    fleeti_record_failure(fleeti_state_of(w), w->fixed->id, task, w->epoch, seen,
                          (uint32_t)tile_status);
}

/* For the report: the task that this worker has in hand. */
FLEET_DEVICE void fleeti_record_running(const fleeti_worker *w, uint32_t group)
{
#if !defined(FLEET_NO_WATCHDOG)
    /* Not by the leader, whose release would wait until the store has arrived. */
    const uint32_t wave = fleeti_thread_wave(w->self);
    if (fleeti_thread_lane(w->self) == 0 &&
        (group == FLEET_WAVE || wave == fleeti_polling_wave(w->self)))
        fleet_store_relaxed_device(fleeti_running(fleeti_state_of(w)) + w->fixed->id,
                                   FLEETI_TASK(w, id) + 1);
#else
    (void)w, (void)group;
#endif
}

/* ---- the task in hand ---- */

FLEET_DEVICE fleet_ctx fleeti_context(const fleeti_worker *w)
{
    fleet_ctx ctx;
    const uint32_t level = FLEETI_TASK(w, level), slices = FLEETI_TASK(w, slices);
    const uint32_t parts = FLEETI_LEVEL_IN(level) >= FLEET_LEVEL_CHIPLET;
    const uint32_t alone = FLEETI_LEVEL_IN(level) == FLEETI_LEVEL_PART;
    const uint32_t in_descriptor = alone || fleeti_schedule_of(w) == FLEET_SCHEDULE_DYNAMIC;
    for (uint32_t i = 0; i < FLEET_MAX_RANK; i++)
        ctx.at[i] = (int32_t)fleeti_pinned_word(w->task, FLEETI_WORD(at) + i);
    ctx.tile_index = !parts ? 0 : in_descriptor ? FLEETI_BATCH_IN(level) : w->fixed->worker;
    ctx.tile_num = alone ? slices >> 16 : parts ? w->fixed->workers : 1;
    ctx.slice = FLEETI_TASK(w, slice);
    ctx.slices = alone ? slices & 0xffff : slices;
    ctx.chiplet = w->fixed->chiplet;
    ctx.chiplets = w->fixed->chiplets;
    ctx.worker = w->fixed->worker;
    ctx.workers = w->fixed->workers;
    ctx.epoch = w->epoch + w->fixed->epoch_offset;
    ctx.symbols = fleeti_state_of(w)->symbols;
    ctx.step = fleeti_step_of(w);
    ctx.task = FLEETI_TASK(w, id);
    ctx.grid = FLEETI_TASK(w, grid);
    ctx.group = w->group;
    ctx.self = w->self;
    ctx.pipeline = w->pipeline;
    ctx.pipeline_tag = fleeti_pipeline_number(w);
    ctx.pipeline_located = ctx.pipeline_stage = ctx.pipeline_use = 0;
    ctx.registers = NULL, ctx.prefetched = 0;
    if (w->group == FLEET_BLOCK) {
        ctx.thread = fleet_thread_id();
        ctx.threads = fleet_thread_count() - w->self.has_producer * fleet_wave_size();
        ctx.lds = w->lds;
        ctx.lds_bytes = w->fixed->lds_bytes;
    } else {
        ctx.thread = fleet_lane();
        ctx.threads = fleet_wave_size();
        ctx.lds_bytes = w->fixed->lds_bytes / fleeti_task_waves(w->self) & ~15u;
        ctx.lds = (char *)w->lds + fleet_wave_id() * ctx.lds_bytes;
        fleeti_wave_lds(&ctx.lds, &ctx.lds_bytes, w->fixed->lds_bytes);
    }
    return ctx;
}

FLEET_DEVICE int32_t fleet_extent(const fleet_ctx *ctx, uint32_t axis)
{
    return fleeti_shape_of(fleeti_state_of_ctx(ctx), ctx->grid, axis);
}

FLEET_DEVICE void fleet_barrier(const fleet_ctx *ctx)
{
    if (ctx->group == FLEET_BLOCK)
        fleeti_barrier(ctx->self);
    else
        fleet_wave_barrier();
}

FLEET_DEVICE void fleet_reduce_add(const fleet_ctx *ctx, float *sum, uint32_t n, float *lds)
{
    if (ctx->group == FLEET_BLOCK) fleeti_reduce_add(ctx->self, sum, n, lds);
}

/* Whether the task is outside its grid's shape in this step. An absent task waits and notifies as others do, so that all
   counts are those of the bucket, but no tile runs. 2: the grid has vanished. */
FLEET_DEVICE uint32_t fleeti_is_absent(const fleeti_worker *w)
{
    const fleeti_state *state = fleeti_state_of(w);
    const uint32_t grid = FLEETI_TASK(w, grid);
    uint32_t vanished = 0, absent = (int32_t)FLEETI_TASK(w, slice) >=
                                    fleeti_shape_of(state, grid, FLEET_MAX_RANK);
    for (uint32_t i = 0; i < FLEET_MAX_RANK; i++) {
        const int32_t extent = fleeti_shape_of(state, grid, i);
        absent |= (int32_t)fleeti_pinned_word(w->task, FLEETI_WORD(at) + i) >= extent;
        vanished |= extent == 0;
    }
    return absent && fleeti_schedule_of(w) != FLEETI_SINGLE_TASK ? 1 + vanished : 0;
}
/* The extent of a grid's first axis in this launch if its shape has a symbol; else `given`. */
FLEET_DEVICE uint32_t fleeti_extent_now(const fleeti_worker *w, uint32_t grid, uint32_t given)
{
    const fleet_plan *plan = fleeti_plan_of(w);
    const fleeti_grid *g = fleeti_plan_grids(plan) + grid;
    if (!g->guarded) return given;
    return (uint32_t)fleeti_shape_of(fleeti_state_of(w), grid, 0);
}
/* The tile to call. */
FLEET_DEVICE uint32_t fleeti_tile_of(const fleeti_worker *w)
{
    return w->absent ? FLEETI_TILE_NONE : FLEETI_TASK(w, tile);
}

/* ---- run-time tensors ---- */

/* A value of a run-time tensor, loaded past the L1 (edge 10): its writer released it before the arrival that this
   wave has observed, by the old value of its own arrival or by an acquire. */
FLEET_DEVICE uint32_t fleeti_tensor_value(const fleeti_worker *w, uint32_t tensor, uint32_t index)
{
    return fleet_load_relaxed_device(fleeti_state_of(w)->config.tensors[tensor] + index);
}

/* The same for an index. A value that was changed after it was checked stays inside the plan. */
FLEET_DEVICE uint32_t fleeti_tensor_within(const fleeti_worker *w, const fleeti_runtime_map *m,
                                           uint32_t index)
{
    const uint32_t value = fleeti_tensor_value(w, m->tensor, index);
    return value < m->bound ? value : m->bound;
}

/* Whether the grid of a task that has FLEETI_MAPPED has run-time maps; else it has a symbol that tasks cut. */
FLEET_DEVICE uint32_t fleeti_has_maps(const fleeti_worker *w)
{
    const fleet_plan *plan = fleeti_plan_of(w);
    const fleeti_grid *grids = fleeti_plan_grids(plan);
    return fleeti_uniform(grids[FLEETI_TASK(w, grid)].n_maps) != 0;
}
/* The same for tasks that a run-time tensor names, once their events are complete: those from the tensor's last
   value on are absent in this step. Where tasks cut a symbol, those outside the shape are absent that are so now: before,
   only an answer that the task is absent was final. */
FLEET_DEVICE uint32_t fleeti_is_missing(const fleeti_worker *w)
{
    const fleet_plan *plan = fleeti_plan_of(w);
    const fleeti_grid *grid = fleeti_plan_grids(plan) + FLEETI_TASK(w, grid);
    const fleeti_runtime_map *maps = fleeti_plan_maps(plan) + grid->first_map;
    uint32_t missing = 0;
    FLEETI_ROLLED
    for (uint32_t k = 0; k < grid->n_maps && fleeti_schedule_of(w) != FLEETI_SINGLE_TASK; k++)
        if (maps[k].kind == FLEETI_MAP_EXISTS)
            missing |= FLEETI_TASK(w, at) >=
                       fleeti_uniform(fleeti_tensor_value(w, maps[k].tensor, maps[k].values - 1));
    if (!grid->n_maps) missing |= fleeti_uniform(fleeti_is_absent(w));
    return missing;
}
/* A run-time tensor holds a value that its map does not allow. index: FLEETI_TENSOR_SUM if the value is the sum of
   all. */
FLEET_DEVICE void fleeti_tensor_failed(const fleeti_worker *w, uint32_t tensor, uint32_t index,
                                       uint32_t value)
{
    fleeti_wait_diagnostics seen;
    seen.status = FLEET_ERROR_TENSOR_VALUE;
    seen.counter = tensor, seen.found = index, seen.expected = value;
    fleeti_record_failure(fleeti_state_of(w), w->fixed->id, FLEETI_TASK(w, id), w->epoch, seen, 0);
    fleeti_drain(); /* publishes the record before this wave makes the remaining arrivals */
}

/* The notifies of gather edges at the event of a COUNTS map in this launch. ~0u: not known yet,
   since run-time tensors tell which of the gathering tasks exist, or which entries name an element.
   */
FLEET_DEVICE uint32_t fleeti_gathered(const fleeti_worker *w, const fleeti_runtime_map *counts)
{
    const fleet_plan *plan = fleeti_plan_of(w);
    const fleeti_runtime_map *maps = fleeti_plan_maps(plan);
    const fleeti_grid *grids = fleeti_plan_grids(plan);
    uint32_t sum = 0;
    FLEETI_ROLLED
    for (uint32_t k = 0; k < plan->n_maps; k++) {
        const fleeti_grid *grid = &grids[maps[k].grid];
        if (maps[k].kind != FLEETI_MAP_GATHER || maps[k].first_element != counts->first_element)
            continue;
        if (maps[k].none) return ~0u;
        for (uint32_t i = 0; i < grid->n_maps; i++)
            if (maps[grid->first_map + i].kind == FLEETI_MAP_EXISTS) return ~0u;
        sum += fleeti_extent_now(w, maps[k].grid, grid->count) * maps[k].values;
    }
    return sum;
}

/* By all threads of the group: checks what the task has left in run-time tensors before other tasks read it. Returns
   1, in the thread that found it, for a value that its map does not allow. Ranges must begin at 0, or the tasks
   below would belong to no element. Counts must add up to the notifies that come, or some element would complete too
   early or never. */
FLEET_DEVICE uint32_t fleeti_tensors_wrong(const fleeti_worker *w)
{
    const fleet_plan *plan = fleeti_plan_of(w);
    const fleeti_grid *grid = fleeti_plan_grids(plan) + FLEETI_TASK(w, grid);
    const fleeti_runtime_map *maps = fleeti_plan_maps(plan) + grid->first_map;
    uint32_t wrong = 0;
    if (!fleeti_has_maps(w)) return 0;
    /* Publishes the stores of each wave to the wave that checks, over the barrier: they are in the L2. Pair: the
       loads past the L1 in fleeti_tensor_value (edge 10). */
    fleeti_drain();
    if (w->group == FLEET_BLOCK)
        fleeti_barrier(w->self);
    else
        fleet_wave_barrier();
    if (w->group == FLEET_BLOCK && fleeti_thread_wave(w->self) != 0) return 0;
    FLEETI_ROLLED
    for (uint32_t k = 0; k < grid->n_maps; k++) {
        const fleeti_runtime_map *m = &maps[k];
        const uint32_t row = m->kind == FLEETI_MAP_GATHER ? FLEETI_TASK(w, at) * m->values : 0;
        const uint32_t none = m->none;
        uint32_t bound = m->bound, sum = 0;
        if (m->kind == FLEETI_MAP_EXISTS) continue;
        if (m->kind == FLEETI_MAP_RANGES) bound = fleeti_extent_now(w, m->grid, bound);
        FLEETI_ROLLED
        for (uint32_t i = fleet_lane(); i < m->values; i += fleet_wave_size()) {
            const uint32_t value = fleeti_tensor_value(w, m->tensor, row + i);
            uint32_t least = 0, most = bound;
            if (m->kind == FLEETI_MAP_RANGES && i == 0) most = 0;
            if (m->kind == FLEETI_MAP_RANGES && i) least = fleeti_tensor_value(w, m->tensor, i - 1);
            sum += value;
            /* The lane that checks the value before this one reports it if that one is above the bound. */
            if (wrong || (value <= most && (value >= least || least > bound))) continue;
            if (none && value == none) continue;
            fleeti_tensor_failed(w, m->tensor, row + i, value);
            wrong = 1;
        }
        if (m->kind != FLEETI_MAP_COUNTS || fleeti_any(wrong)) continue;
        sum = fleeti_wave_sum(sum);
        uint32_t expected = fleeti_gathered(w, m);
        if (expected == ~0u || sum == expected) continue;
        wrong = fleet_lane() == 0;
        if (wrong) fleeti_tensor_failed(w, m->tensor, FLEETI_TENSOR_SUM, sum);
    }
    return wrong;
}

/* ---- tasks handed out by a scheduler or a queue ---- */

/* What tells whether a task may run. */
typedef struct fleeti_pending {
    uint32_t index; /* descriptor; ~0: none */
    uint32_t waits, n_waits;
    uint32_t info;     /* FLEETI_PENDING_... | acquire << 4 | batch << 8 */
    fleeti_wait first; /* kept here: it is mostly the only one, and every poll empties the L1 */
} fleeti_pending;
#define FLEETI_PENDING_WAVE 1u
#define FLEETI_PENDING_CHIPLET 2u
#define FLEETI_PENDING_END 4u

/* From these words of a fleet_task. */
FLEET_DEVICE uint32_t fleeti_pending_info(uint32_t level, uint32_t tile)
{
    return (FLEETI_LEVEL_IN(level) == FLEET_LEVEL_WAVE ? FLEETI_PENDING_WAVE : 0) |
           (FLEETI_LEVEL_IN(level) == FLEET_LEVEL_CHIPLET ? FLEETI_PENDING_CHIPLET : 0) |
           (tile == FLEETI_TILE_NONE ? FLEETI_PENDING_END : 0) | FLEETI_ACQUIRE_IN(level) << 4 |
           FLEETI_BATCH_IN(level) << 8;
}
FLEET_DEVICE void fleeti_pending_load(fleeti_pending *slot, const fleeti_worker *w, uint32_t index)
{
    const fleet_task *t = fleeti_tasks_of(w) + index;
    slot->index = index;
    slot->waits = t->waits;
    slot->n_waits = t->n_waits;
    /* A task without waits gets the first record of all, and does not use it. */
    slot->first = fleeti_waits_of(w)[t->n_waits ? t->waits : 0];
    slot->info =
        fleeti_pending_info(((const fleeti_any4 *)(const void *)t)[FLEETI_WORD(level)], t->tile);
}

/* Polls a task's events once in this epoch, each `step`th counter of each record from `from` on. Does not wait, and
   does not acquire. */
FLEET_DEVICE uint32_t fleeti_pending_ready(const fleeti_pending *slot, const fleeti_worker *w,
                                           uint32_t epoch, uint32_t from, uint32_t step,
                                           fleeti_wait_diagnostics *seen)
{
    fleeti_counters c = fleeti_counters_of(w);
    fleeti_wait r = slot->first;
    FLEETI_ROLLED
    for (uint32_t i = 0; i < slot->n_waits; i++) {
        if (i) r = fleeti_waits_of(w)[slot->waits + i];
        uint32_t want = (r.count & FLEETI_PREVIOUS ? epoch - 1 : epoch) * r.target;
        FLEETI_ROLLED
        for (uint32_t k = from; k < (r.count & ~FLEETI_PREVIOUS); k += step) {
            uint32_t counter = r.counter + k * r.stride;
            uint32_t value = counter & FLEETI_SYSTEM
                                 ? fleeti_poll_system(*c.system + (counter & ~FLEETI_SYSTEM))
                                 : fleeti_poll_device(c.device + counter);
            if ((int32_t)(value - want) >= 0) continue;
            seen->counter = counter, seen->found = value, seen->expected = want;
            return 0;
        }
    }
    return 1;
}

/* Fetches descriptor `index` to LDS, to word `to` of the slots, by all lanes of a wave. */
FLEET_DEVICE void fleeti_fetch_begin(fleeti_worker *w, uint32_t to, uint32_t index)
{
    const fleet_task *task = fleeti_tasks_of(w) + index;
    fleet_wave_barrier(); /* all lanes have read what was there */
    FLEETI_ROLLED
    for (uint32_t q = fleet_lane(); q < 4; q += fleet_wave_size())
        fleeti_async_copy_begin(&w->inbound, w->slots, to + q * 4,
                                (const fleeti_quad *)(const void *)task + q);
}
FLEET_DEVICE void fleeti_fetch_end(fleeti_worker *w, uint32_t to)
{
    FLEETI_ROLLED
    for (uint32_t q = fleet_lane(); q < 4; q += fleet_wave_size())
        fleeti_async_copy_end(&w->inbound, w->slots, to + q * 4);
    fleet_wave_barrier();
}
FLEET_DEVICE void fleeti_fetch_task(fleeti_worker *w, uint32_t to, uint32_t index)
{
    fleeti_fetch_begin(w, to, index);
    fleeti_fetch_end(w, to);
}

/* An address in two words. */
FLEET_DEVICE void fleeti_lds_put_address(fleeti_lds lds, uint32_t word, const void *address)
{
    const uint64_t at = (uint64_t)(uintptr_t)address;
    fleeti_lds_put(lds, word, (uint32_t)at);
    fleeti_lds_put(lds, word + 1, (uint32_t)(at >> 32));
}
FLEET_DEVICE const void *fleeti_lds_get_address(fleeti_lds lds, uint32_t word)
{
    return (const void *)(uintptr_t)((uint64_t)fleeti_lds_get(lds, word + 1) << 32 |
                                     fleeti_lds_get(lds, word));
}
FLEET_DEVICE uint32_t fleeti_fetches_trigger(const fleeti_worker *w)
{
    return fleeti_schedule_of(w) == FLEET_SCHEDULE_DYNAMIC;
}
/* By the first wave, when a descriptor is in the next slot: begins to fetch its first notify record, and the trigger of
   that, which may arrive while the tile runs. */
FLEET_DEVICE void fleeti_slot_fetch_notify(fleeti_worker *w)
{
    const uint32_t slot = FLEETI_SLOT(w->number);
    FLEETI_ROLLED
    for (uint32_t q = fleet_lane(); q < 2; q += fleet_wave_size()) {
        const uint32_t n = fleeti_lds_get(w->slots, slot + FLEETI_WORD(n_waits)) >> 16;
        const uint32_t at = n ? fleeti_lds_get(w->slots, slot + FLEETI_WORD(notifies)) : 0;
        const void *from = fleeti_notifies_of(w) + at;
        if (q && !fleeti_fetches_trigger(w)) continue;
        if (q)
            from =
                (const fleeti_trigger *)fleeti_lds_get_address(w->slots, FLEETI_TRIGGERS_WORD) + at;
        fleeti_async_copy_begin(&w->inbound, w->slots,
                                q ? FLEETI_SLOT_TRIGGER(w->number) : slot + FLEETI_SLOT_NOTIFY,
                                from);
    }
}
/* By a wave: fetches descriptor `index` to the next slot. */
FLEET_DEVICE void fleeti_slot_fetch(fleeti_worker *w, uint32_t index)
{
    fleeti_fetch_task(w, FLEETI_SLOT(w->number), index);
    if (fleet_lane() == 0) fleeti_lds_put(w->slots, FLEETI_SLOT_INDEX(w->number), index);
}
/* Completes the fetch, by the first wave, whose lanes began it. */
FLEET_DEVICE void fleeti_slot_notify_fetched(fleeti_worker *w)
{
    if (fleeti_thread_wave(w->self) != 0) return;
    FLEETI_ROLLED
    for (uint32_t q = fleet_lane(); q < 2; q += fleet_wave_size()) {
        if (q && !fleeti_fetches_trigger(w)) continue;
        fleeti_async_copy_end(&w->inbound, w->slots,
                              q ? FLEETI_SLOT_TRIGGER(w->number - 1)
                                : FLEETI_SLOT(w->number - 1) + FLEETI_SLOT_NOTIFY);
    }
    fleet_wave_barrier();
}

/* ==== >>residency: before the first tile, and after the last ==== */

/* Before the first tile every workgroup is counted on the chiplet where it runs. When all of them are counted, one
   checks that each chiplet has as many as the plan needs. No worker runs a task before that. The wait has a limit,
   so a launch whose workgroups cannot all be resident ends with a status.

   Launches of one state may overlap, and replays of one captured launch have the same arguments, so that nothing
   tells their workgroups apart. Therefore the state counts them. Each launch, a refused one included, adds its
   workgroups to `due` when it claims the state, and each workgroup subtracts itself as the last thing that it does.
   A claim that finds 0 opens a run: it sets everything that the run needs. Any other claim is
   refused, and waits until the one that opens has done so, which `due` says, too: no workgroup
   looks at a state that is being claimed. A workgroup counts itself on its chiplet, and waits for a
   result. The first one of the first chiplet decides, when as many are counted as a launch has: the
   run begins if and only if no others are due then. For a workgroup that was counted since the run
   was opened has not left, since there is no result; so those counted are all that are due, and
   those of the launch that opened the run are among them. Of workgroups that come later the result
   says that they do not belong to the run, since it has the counts, and they leave. If others are
   due, launches have met before all workgroups of the first one were there: none of them runs, and
   all end with FLEET_ERROR_BUSY.

   A launch that guarantees that all its workgroups are resident together needs no check, if the
   plan's chiplets are virtual, so that each has as many as it needs. Then the claim stores the
   results itself, with the key of its fleet_run, and workgroups of this key begin as soon as they
   are counted. Those of another key leave, and so do those that are too many: of a launch of the
   same fleet_run, such as another executable of one captured graph, whose claim waits until all
   workgroups of the run have begun.
   tests/model/claim.pml models this protocol. */

/* Stores the result for the workgroups of all chiplets: a status, or if it has `passed`, a constant, FLEETI_RESIDENT with
   the counts that fleeti_residency_decide has found. */
FLEET_DEVICE void fleeti_residency_tell(fleeti_state *state, uint32_t result, const uint32_t passed,
                                        fleeti_lds counts)
{
    uint32_t chiplet = state->config.chiplet_of ? 0 : state->config.first_chiplet;
    FLEETI_ROLLED
    for (uint32_t raw = 0; raw < FLEET_MAX_CHIPLETS; raw++) {
        if (passed) {
            const uint32_t count = fleeti_lds_get(counts, raw);
            result = FLEETI_RESIDENT + (chiplet << 24) + count;
            chiplet += state->config.chiplet_of || count;
        }
        fleet_store_relaxed_device(&state->result[raw].word, result);
    }
}
/* Ends the residency check, unless it has ended already: 0. */
FLEET_DEVICE uint32_t fleeti_residency_end(fleeti_state *state, uint32_t result,
                                           const uint32_t passed, fleeti_lds counts)
{
    uint32_t from = FLEETI_PENDING, was;
    /* bounded by its values: it changes twice at most */
    while ((was = fleet_cas_relaxed_device(&state->residency.word, from, result)) != from) {
        if (was != FLEETI_PENDING && was != FLEETI_OPEN) return 0;
        from = was;
    }
    fleeti_residency_tell(state, result, passed, counts);
    return 1;
}

/* Ends a run before its first step. */
FLEET_DEVICE void fleeti_run_cannot_begin(fleeti_state *state, fleeti_wait_diagnostics seen)
{
    const uint32_t bucket = fleet_load_relaxed_device(&state->bucket.word);
    fleeti_record_failure(state, state->config.plan->worker_base[state->config.first_chiplet], ~0u,
                          fleet_load_relaxed_device(&state->bucket_epoch[bucket]) + 1, seen, 0);
}
/* The residency check fails, unless it has a result already. The first workgroup that says so reports it, to the other
   ranks too: this launch will not run, so that they would wait for it in vain. */
FLEET_DEVICE void fleeti_residency_fail(fleeti_state *state, fleeti_wait_diagnostics seen)
{
    fleeti_host *host = state->config.host;
    if (!fleeti_residency_end(state, (uint32_t)seen.status, 0, (fleeti_lds)0)) return;
    if (seen.status == FLEET_ERROR_BUSY || seen.status == FLEET_ERROR_RESIDENCY) {
        if (state->config.ranks) fleeti_stop_peers(state, FLEETI_SYSTEM | state->config.rank);
        /* Publishes what fleet_state_report says of the failure before its count. Pair: fleet_state_status. */
        fleeti_drain();
        const uint32_t met = seen.status == FLEET_ERROR_BUSY;
        fleet_add_relaxed_device(met ? &state->due.met : &state->due.nonresident, 1);
        fleet_add_relaxed_system(met ? &host->busy : &host->nonresident, 1);
    } else { /* an abort, or another rank */
        fleeti_run_cannot_begin(state, seen);
    }
}

/* What ranks compare of their plans; 0: not there. */
FLEET_DEVICE uint32_t fleeti_plan_sum(const fleet_run *run)
{
    const uint64_t checksum = run->plan->checksum;
    const uint32_t sum = (uint32_t)(checksum ^ checksum >> 32);
    return sum + (sum == 0);
}
/* A rank that finds another plan stops all others. One of these that has not come to look at the plans looks now, so that it
   can name the rank, too. */
FLEET_DEVICE fleeti_wait_diagnostics fleeti_other_plan(const fleet_run *run)
{
    const fleeti_config *peers = &run->state->config;
    const uint32_t sum = fleeti_plan_sum(run);
    fleeti_wait_diagnostics seen = fleeti_no_event(FLEET_ERROR_PEER_FAILED);
    for (uint32_t i = 0; i < peers->ranks; i++) {
        const uint32_t found = fleet_load_relaxed_system(
            peers->words[peers->rank] + FLEETI_PEER_PLAN + i); /* as below (edge 33) */
        if (i == peers->rank || !found || found == sum) continue;
        seen.status = FLEET_ERROR_PEER_PLAN, seen.expected = sum, seen.found = found;
        seen.counter = FLEETI_SYSTEM | (FLEETI_PEER_PLAN + i);
    }
    return seen;
}
/* Before the first step of a state: waits until all ranks have started, and checks that they have the same plan. Each
   stores the sum of its plan to all others. */
FLEET_DEVICE fleeti_wait_diagnostics fleeti_meet_peers(const fleet_run *run)
{
    fleeti_state *state = run->state;
    const fleeti_config *peers = &state->config;
    const uint32_t sum = fleeti_plan_sum(run);
    fleeti_wait_diagnostics seen = fleeti_no_event(FLEET_OK);
    if (!peers->ranks || fleet_load_relaxed_device(&state->met.word)) return seen;
    /* The state is ready: this rank has cleared its words, which the barrier of the program publishes to the others. No
       data follows (edge 33). */
    for (uint32_t i = 0; i < peers->ranks; i++)
        if (i != peers->rank)
            fleet_store_relaxed_system(state->config.words[i] + FLEETI_PEER_PLAN + peers->rank,
                                       sum);
    for (uint32_t i = 0; i < peers->ranks; i++) {
        const uint32_t *at = state->config.words[peers->rank] + FLEETI_PEER_PLAN + i;
        uint32_t tries = 0;
        uint64_t since = 0;
        seen.expected = sum, seen.found = 0;
        seen.counter = FLEETI_SYSTEM | (FLEETI_PEER_PLAN + i);
        /* loop 12 */
        while (i != peers->rank && !seen.status) {
            seen.found = fleet_load_relaxed_system(at); /* no data follows (edge 33) */
            if (seen.found && seen.found != sum) seen.status = FLEET_ERROR_PEER_PLAN;
            if (seen.found) break;
            seen.status = fleeti_back_off(at, &state->config.watch, &tries, &since);
        }
        if (seen.status) return seen;
    }
    fleet_store_relaxed_device(&state->met.word, 1);
    return seen;
}

/* Counts the workgroups of each chiplet in counts; stops where there are as many as a launch has. */
FLEET_DEVICE uint32_t fleeti_residency_count(const fleet_run *run, fleeti_lds counts)
{
    uint32_t counted = 0;
    FLEETI_ROLLED
    for (uint32_t raw = 0; raw < FLEET_MAX_CHIPLETS && counted < run->blocks; raw += 8) {
        uint32_t have[8]; /* eight loads in flight at once */
        for (uint32_t k = 0; k < 8; k++)
            have[k] = fleeti_spin_load_device(&run->state->resident[raw + k].word);
        for (uint32_t k = 0; k < 8; k++) {
            fleeti_lds_put(counts, raw + k, have[k]);
            counted += have[k];
        }
    }
    return counted;
}

/* Looks for a chiplet with too few workgroups, and tells the host. */
FLEET_DEVICE fleet_status fleeti_residency_suffices(const fleet_run *run, fleeti_lds counts)
{
    fleeti_state *state = run->state;
    fleeti_host *host = state->config.host;
    const fleeti_state *other = state->config.other;
    const uint32_t own = state->config.end_chiplet,
                   all = own + (other ? other->config.end_chiplet : 0);
    uint32_t chiplet = state->config.chiplet_of ? 0 : state->config.first_chiplet, raw = 0;
    FLEETI_ROLLED
    while (chiplet < all) { /* bounded by the chiplets */
        const uint32_t have = raw < FLEET_MAX_CHIPLETS ? fleeti_lds_get(counts, raw) : 0;
        if (have || state->config.chiplet_of || raw >= FLEET_MAX_CHIPLETS) {
            const uint32_t need =
                chiplet < own ? fleeti_blocks_of(run->plan, chiplet) * state->config.ranks_here
                              : fleeti_blocks_of(other->config.plan, chiplet - own);
            if (have < need && chiplet >= state->config.first_chiplet) {
                fleet_store_relaxed_system(&host->resident_chiplet, chiplet);
                fleet_store_relaxed_system(&host->resident_found, have);
                fleet_store_relaxed_system(&host->resident_needed, need);
                return FLEET_ERROR_RESIDENCY;
            }
            chiplet++;
        }
        raw++;
    }
    return FLEET_OK;
}

/* Decides the residency check. FLEET_OK: there is a result; else why the check fails. counts: [FLEET_MAX_CHIPLETS], for
   the workgroups of each chiplet. */
FLEET_DEVICE fleeti_wait_diagnostics fleeti_residency_decide(const fleet_run *run,
                                                             fleeti_lds counts)
{
    fleeti_state *state = run->state;
    uint32_t counted, tries = 0;
    uint64_t since = 0;
    fleet_status status;
    for (uint32_t raw = 0; raw < FLEET_MAX_CHIPLETS; raw++) fleeti_lds_put(counts, raw, 0);
    while ((counted = fleeti_residency_count(run, counts)) < run->blocks) { /* loop 13 */
        if (fleet_load_relaxed_device(&state->residency.word) != FLEETI_PENDING)
            return fleeti_no_event(FLEET_OK);
        status = fleeti_back_off(NULL, &state->config.watch, &tries, &since);
        if (status) return fleeti_no_event(status);
    }
    /* `due` is loaded after the counts: those of other launches that were counted are due. Pair: the RMWs in
       fleeti_residency_check (edge 12). */
    fleeti_spin_acquire();
    if (counted != run->blocks || fleeti_poll_device(&state->due.word) != run->blocks)
        return fleeti_no_event(FLEET_ERROR_BUSY);
    status = fleeti_residency_suffices(run, counts);
    if (status) return fleeti_no_event(status);
    fleeti_wait_diagnostics seen = fleeti_meet_peers(run);
    if (seen.status) return seen;
    /* The result has all that workgroups need to know. Pair: the poll in fleeti_residency_check (edge 12). The check may have
       failed by the time-out of a workgroup: then it stays failed. */
    fleeti_residency_end(state, FLEETI_RESIDENT, 1, counts);
    return seen;
}

/* The line of the workgroup among those of its chiplet. */
FLEET_DEVICE uint32_t fleeti_chiplet_line(const fleeti_state *state)
{
    const uint8_t *table = state->config.chiplet_of;
    return table ? table[fleet_block_id()] : fleet_chiplet_id();
}

/* A workgroup that is not part of the run is no longer due. */
FLEET_DEVICE uint32_t fleeti_leave_refused(fleeti_state *state)
{
    /* Publishes the failure to the launch that claims the free state next. Pair: the RMW of `due`
       in fleeti_claim (edge 11). */
    fleeti_drain();
    fleeti_rmw_device(&state->due.word, 0xffffffffu);
    return FLEETI_ROLE_NONE;
}

/* As fleeti_residency_check, where the claim has stored the result. */
FLEET_DEVICE uint32_t fleeti_begin_at_once(const fleet_run *run, uint32_t raw,
                                           const fleeti_run_line *began, uint32_t *place)
{
    fleeti_state *state = run->state;
    const uint32_t count = FLEETI_RESULT_COUNT(began->word);
    if (began->key != run->key) return fleeti_leave_refused(state);
    const uint32_t rank = fleet_add_relaxed_device(&state->result[raw].begun, 1);
    if (rank >= count) return fleeti_leave_refused(state);
    *place |= FLEETI_PLACE_OF(raw, count);
    return FLEETI_ROLE_FIRST + (FLEETI_RESULT_CHIPLET(began->word) << 16 | rank);
}

/* The role of the workgroup, whose line is `raw`, as `began` has found it. Runs in thread 0.
   counts: as fleeti_residency_decide takes them. place: receives FLEETI_PLACE_OF, if the workgroup
   belongs to the run. */
FLEET_DEVICE uint32_t fleeti_residency_check(const fleet_run *run, uint32_t raw, fleeti_lds counts,
                                             const fleeti_run_line *began, uint32_t *place)
{
    fleeti_state *state = run->state;
    fleeti_host *host = state->config.host;
    uint32_t result, tries = 0;
    uint64_t since = 0;
    fleeti_wait_diagnostics seen = fleeti_no_event(FLEET_OK);
    fleeti_workgroup_on(raw);
    if (FLEETI_RESULT_KIND(began->word) == FLEETI_AT_ONCE)
        return fleeti_begin_at_once(run, raw, began, place);
    /* Releases the count to the workgroup that decides. Pair: the loads in fleeti_residency_decide
       (edge 12). */
    uint32_t rank = fleeti_rmw_device(&state->resident[raw].word, 1);
    if (rank == 0 && fleet_cas_relaxed_device(&state->residency.word, FLEETI_OPEN,
                                              FLEETI_PENDING) == FLEETI_OPEN)
        seen = fleeti_residency_decide(run, counts);
    /* loop 14 */
    for (;;) {
        if (seen.status == FLEET_ERROR_TIMEOUT) { /* some workgroup is not resident */
            uint32_t found = 0;
            FLEETI_ROLLED
            for (uint32_t i = 0; i < FLEET_MAX_CHIPLETS; i++)
                found += fleet_load_relaxed_device(&state->resident[i].word);
            fleet_store_relaxed_system(&host->resident_found, found);
            fleet_store_relaxed_system(&host->resident_needed, run->blocks);
            fleeti_publish_system(&host->resident_chiplet, FLEETI_ANY_CHIPLET);
            seen.status = FLEET_ERROR_RESIDENCY;
        }
        if (seen.status == FLEET_ERROR_PEER_FAILED) seen = fleeti_other_plan(run);
        if (seen.status) fleeti_residency_fail(state, seen);
        result = fleeti_poll_device(&state->result[raw].word);
        if (result != FLEETI_PENDING) break;
        seen = fleeti_no_event(
            fleeti_back_off(&state->result[raw].word, &state->config.watch, &tries, &since));
    }
    if (!(result & FLEETI_RESIDENT) || rank >= FLEETI_RESULT_COUNT(result))
        return fleeti_leave_refused(state);
    uint32_t chiplet = FLEETI_RESULT_CHIPLET(result);
    *place |= FLEETI_PLACE_OF(raw, FLEETI_RESULT_COUNT(result));
    if (chiplet >= state->config.end_chiplet) {
        const fleeti_state *other = state->config.other;
        chiplet -= state->config.end_chiplet;
        if (!other || chiplet >= other->config.end_chiplet ||
            rank >= fleeti_blocks_of(other->config.plan, chiplet))
            return FLEETI_ROLE_IDLE;
        return FLEETI_ROLE_BESIDE + FLEETI_ROLE_FIRST + (chiplet << 16 | rank);
    }
    if (state->config.ranks_here > 1) { /* one rank after the other on each chiplet */
        const uint32_t each = fleeti_blocks_of(run->plan, chiplet), here = rank / each;
        if (here >= state->config.ranks_here) return FLEETI_ROLE_IDLE;
        chiplet += here * state->config.end_chiplet;
        rank -= here * each;
    }
    if (rank >= fleeti_blocks_of(run->plan, chiplet)) return FLEETI_ROLE_IDLE;
    return FLEETI_ROLE_FIRST + (chiplet << 16 | rank);
}

/* By one thread, when all workers of this rank have left: waits until the run's last step has ended on the other ranks.
   Then what they wrote to this rank is there, and they read nothing of it any more. */
FLEET_DEVICE void fleeti_await_peers(fleeti_state *state, uint32_t steps)
{
    const uint32_t bucket = fleet_load_relaxed_device(&state->bucket.word);
    const uint32_t rank = state->config.rank;
    const uint32_t epoch = fleet_load_relaxed_device(&state->bucket_epoch[bucket]) + steps;
    const fleet_plan *plan = fleeti_plan_at(state->config.plan, bucket);
    fleeti_counters c;
    fleeti_wait_diagnostics seen;
    const fleeti_wait *waits = fleeti_plan_waits(plan) + plan->step_waits[rank];
    c.device = state->config.counters;
    c.system = &state->config.links.own;
    for (uint32_t i = 0; i < plan->n_step_waits[rank]; i++)
        if (fleeti_poll_until(c, waits[i].counter, epoch * waits[i].target, &state->config.watch,
                              &seen)) {
            fleeti_record_failure(state, plan->worker_base[state->config.first_chiplet], ~0u, epoch,
                                  seen, 0);
            return;
        }
    /* Acquires what the other ranks wrote (edge 32), for what follows in the stream. */
    fleeti_invalidate_system();
}

/* Closes the run of a state: advances the epoch unless the run failed, and tells the host. */
FLEET_DEVICE void fleeti_close_run(fleeti_state *state, uint32_t steps, uint32_t bucket)
{
    fleeti_host *host = state->config.host;
    uint32_t *of_bucket = &state->bucket_epoch[bucket];
    /* in flight together */
    uint32_t epoch = fleet_load_relaxed_device(&state->epoch.word);
    const uint32_t bucket_epoch = fleet_load_relaxed_device(of_bucket);
    const uint32_t finished = fleet_load_relaxed_device(&state->finished.word) + 1;
    uint32_t stop = fleet_load_relaxed_device(&state->stop.word);
    const uint64_t finish = fleeti_poll64_device(&state->finish.word);
    const uint32_t ran = finish ? (uint32_t)(finish >> 32) - epoch : steps;
    fleet_store_relaxed_device(&state->finished.word, finished);
    if (state->config.ranks && !stop) {
        fleeti_await_peers(state, steps);
        stop = fleet_load_relaxed_device(&state->stop.word);
    }
    if (!stop) {
        epoch += ran;
        fleet_store_relaxed_device(&state->epoch.word, epoch);
        fleet_store_relaxed_device(of_bucket, bucket_epoch + ran);
    }
    fleet_store_relaxed_system(&host->epoch, epoch); /* the end of the kernel publishes both */
    fleet_store_relaxed_system(&host->finished, finished);
}

/* The last workgroup that leaves a launch closes its run, or those of both its states, and subtracts all workgroups from
   `due`, which frees the state. */
FLEET_DEVICE void fleeti_leave(fleeti_worker *w)
{
    const uint32_t steps = w->fixed->steps;
    const uint32_t role = w->fixed->role;
    fleeti_state *state = fleeti_state_of(w);
    if (role == FLEETI_ROLE_NONE) return;
    /* Where a wait has failed, the last store of a wave (fleeti_record_running) may still be in flight. It must not
       follow the one below, or fleet_state_report names a task that has ended. Publishes each wave's stores to the first
       wave, over the barrier, and through it to the workgroup that closes the run (edge 13). */
    fleeti_drain();
    fleet_block_barrier();
    if (fleeti_thread_index(w->self) != 0) return;
    if (role >= FLEETI_ROLE_FIRST && !fleeti_is_scheduler(w))
        fleet_store_relaxed_device(fleeti_running(state) + w->fixed->id, 0);
    if (role & FLEETI_ROLE_BESIDE) state = state->config.other;
    {
        const uint32_t place = w->fixed->place, count = FLEETI_PLACE_COUNT(place);
        /* Publishes what this thread stored to the last workgroup of the chiplet, and through it to the one that closes
           the run. Pairs: the RMWs of those (edge 13, both ends). */
        fleeti_drain();
        if (fleeti_rmw_device(&state->left[FLEETI_PLACE_LINE(place)].word, 1) + 1 != count) return;
        if (count != w->fixed->blocks && /* else there is no other chiplet */
            fleeti_rmw_device(&state->exited.word, count) + count != w->fixed->blocks)
            return;
        fleeti_close_run(state, steps, FLEETI_PLACE_BUCKET(place));
    }
    if (state->config.other)
        fleeti_close_run(state->config.other, steps,
                         fleet_load_relaxed_device(&state->config.other->bucket.word));
    /* Publishes the epoch to the launch that claims the free state next. Pair: the RMW of `due` in fleeti_claim (edge
       11). */
    fleeti_drain();
    fleeti_rmw_device(&state->due.word, 0u - w->fixed->blocks);
}

/* ==== >>symbols: what a tile may do to the run ==== */

/* ---- early end of the run ---- */

/* A tile stores the epoch of its step before it notifies. A wave that has seen the step event complete in an epoch knows
   whether the run ends there, and no task of the next step begins before: all workers agree on the last step. */
FLEET_DEVICE fleet_status fleet_finish(const fleet_ctx *ctx)
{
    fleeti_state *state = fleeti_state_of_ctx(ctx);
    if (!state->config.finish) return FLEET_ERROR_UNSUPPORTED;
    /* Published to all workers by the notify of the task. Pairs: fleeti_finishes, fleeti_last_epoch (edge 25). */
    fleeti_post64_device(&state->finish.word, 1 + ((uint64_t)ctx->epoch << 32));
    return FLEET_OK;
}

/* What the end of a step decides about the run. */
#define FLEETI_STEP_GOES_ON 0u
#define FLEETI_STEP_IS_LAST 1u
#define FLEETI_STEP_FAILED 2u /* the wait for it has failed */

/* By all lanes of a wave, where a launch may end early, and before the next step: waits until all workers have ended
   this one. worker: of a failure. */
FLEET_DEVICE uint32_t fleeti_finishes(const fleeti_worker *w, uint32_t worker)
{
    const fleet_plan *plan = fleeti_plan_of(w);
    fleeti_state *state = fleeti_state_of(w);
    const fleeti_event *step = fleeti_plan_events(plan) + plan->step_event;
    const uint32_t target = fleeti_plan_targets(plan)[step->first_target];
    fleeti_wait_diagnostics seen;
    uint32_t tries = 0;
    uint64_t since = 0;
    seen.counter = step->counter, seen.expected = w->epoch * target;
    for (;;) { /* loop 9 */
        seen.found = fleeti_poll_device(fleeti_counters_of(w).device + step->counter);
        if (!fleeti_any((int32_t)(seen.found - seen.expected) < 0)) break;
        seen.status = fleeti_back_off(NULL, &state->config.watch, &tries, &since);
        if (!fleeti_any((uint32_t)seen.status)) continue;
        if (seen.status) fleeti_record_failure(state, worker, ~0u, w->epoch, seen, 0);
        return FLEETI_STEP_FAILED;
    }
    /* Acquires what the tiles of the step have stored. Pair: fleet_finish (edge 25). */
    fleeti_invalidate_device();
    return fleeti_any(fleeti_poll64_device(&state->finish.word) ==
                      1 + ((uint64_t)(w->epoch + w->fixed->epoch_offset) << 32))
               ? FLEETI_STEP_IS_LAST
               : FLEETI_STEP_GOES_ON;
}

/* ---- symbols that the run sets ---- */

FLEET_HOST_DEVICE int32_t fleeti_extent_of(fleeti_extent d, int32_t value)
{
    int64_t v = d.add + (d.symbol ? d.mul * value : 0);
    return v < 0 ? 0 : (int32_t)(v / d.div);
}

/* By all threads of the group: sets a symbol, and the extents that have it, in place. No task that looks at them runs
   at the same time (fleet.h, >>symbols). Published to all workers by the notify of the task. Pairs: fleeti_finishes,
   fleeti_last_epoch or, after a cut, the wait of the task that looks, or of an earlier one where the grid is settled; then
   fleeti_shape_of (edge 28). */
FLEET_DEVICE void fleeti_set_symbol_now(const fleet_ctx *ctx, uint32_t symbol, int32_t value)
{
    fleeti_state *state = fleeti_state_of_ctx(ctx);
    const fleet_plan *plan = state->config.plan;
    const fleeti_guard *guards = fleeti_plan_guards(plan);
    int32_t *shapes = state->config.shapes;
    if (ctx->thread == 0)
        fleet_store_relaxed_device((uint32_t *)(void *)&state->symbols[symbol], (uint32_t)value);
    FLEETI_ROLLED
    for (uint32_t i = ctx->thread; i < plan->n_grids * (FLEET_MAX_RANK + 1); i += ctx->threads) {
        const uint32_t g = i / (FLEET_MAX_RANK + 1), k = i % (FLEET_MAX_RANK + 1);
        const fleeti_extent *d = k < FLEET_MAX_RANK ? &guards[g].extent[k] : &guards[g].slices;
        if (d->symbol == symbol + 1)
            fleet_store_relaxed_device((uint32_t *)(void *)&shapes[FLEETI_SHAPE * g + k],
                                       (uint32_t)fleeti_extent_of(*d, value));
    }
    /* For all threads of the task, over the barrier: this wave's stores are where fleet_symbol_now loads. */
    fleeti_drain();
}

/* The task of a worker ends the run with the status of `seen`. epoch: of the state. */
FLEET_DEVICE void fleeti_task_ends_run(fleeti_state *state, uint32_t worker, uint32_t task,
                                       uint32_t epoch, fleeti_wait_diagnostics seen)
{
    const uint32_t bucket = fleet_load_relaxed_device(&state->bucket.word);
    epoch += fleet_load_relaxed_device(&state->bucket_epoch[bucket]) -
             fleet_load_relaxed_device(&state->epoch.word);
    fleeti_record_failure(state, worker, task, epoch, seen, 0);
}
FLEET_DEVICE uint32_t fleeti_worker_of_ctx(const fleet_ctx *ctx)
{
    return fleeti_state_of_ctx(ctx)->config.plan->worker_base[ctx->chiplet] + ctx->worker;
}
FLEET_DEVICE void fleeti_tile_ends_run(const fleet_ctx *ctx, fleeti_wait_diagnostics seen)
{
    fleeti_task_ends_run(fleeti_state_of_ctx(ctx), fleeti_worker_of_ctx(ctx), ctx->task, ctx->epoch,
                         seen);
}

FLEET_DEVICE int32_t fleet_symbol_now(const fleet_ctx *ctx, uint32_t symbol)
{
    return (int32_t)fleet_load_relaxed_device(
        (const uint32_t *)(const void *)(ctx->symbols + symbol));
}

/* cuts: for the rest of the step. */
FLEET_DEVICE fleet_status fleeti_set_symbol_in(const fleet_ctx *ctx, uint32_t symbol, int32_t value,
                                               uint32_t cuts)
{
    fleeti_state *state = fleeti_state_of_ctx(ctx);
    const fleet_plan *plan = state->config.plan;
    const fleeti_grid *grid = fleeti_plan_grids(plan) + ctx->grid;
    const fleeti_symbol *s = fleeti_plan_symbols(plan) + symbol;
    if (symbol >= plan->n_symbols || !((cuts ? grid->cuts : grid->writes) >> symbol & 1))
        return FLEET_ERROR_ARGUMENT;
    int32_t before = fleet_symbol_now(ctx, symbol);
    if (value < s->min || value > s->max || (cuts && value > before)) {
        fleeti_wait_diagnostics seen = fleeti_no_event(FLEET_ERROR_SYMBOL_RANGE);
        seen.counter = symbol, seen.found = (uint32_t)value, seen.expected = (uint32_t)before;
        if (ctx->thread == 0) fleeti_tile_ends_run(ctx, seen);
        fleet_barrier(ctx); /* the first record stays, so no other thread may fail before */
        return FLEET_ERROR_SYMBOL_RANGE;
    }
    fleet_barrier(ctx); /* all threads have read `before` */
    if (value != before) fleeti_set_symbol_now(ctx, symbol, value);
    fleet_barrier(ctx);
    return FLEET_OK;
}
FLEET_DEVICE fleet_status fleet_next_symbol(const fleet_ctx *ctx, uint32_t symbol, int32_t value)
{
    return fleeti_set_symbol_in(ctx, symbol, value, 0);
}
FLEET_DEVICE fleet_status fleet_cut_symbol(const fleet_ctx *ctx, uint32_t symbol, int32_t value)
{
    return fleeti_set_symbol_in(ctx, symbol, value, 1);
}

/* ---- waits in tiles ---- */

/* fleet_idle, also until *near is not near_seen: a word of device memory, or null. */
FLEET_DEVICE fleet_status fleeti_idle_until(const fleet_ctx *ctx, const uint32_t *word,
                                            uint32_t seen, const uint32_t *near, uint32_t near_seen)
{
    fleeti_state *state = fleeti_state_of_ctx(ctx);
    uint32_t status = FLEET_OK;
    fleet_barrier(ctx); /* all threads have read the result of the last broadcast */
    if (ctx->thread < fleet_wave_size()) {
        fleet_watch watch = state->config.watch;
        uint32_t tries = 0, idles = 0;
        uint64_t since = 0;
        watch.limit_ticks = 0;
        /* A look at first, too: the word may have changed each time that the caller comes here. */
        status = fleeti_first((uint32_t)fleeti_check_watch(&watch, NULL, tries, &since));
        /* loop 10 */
        while (!status && fleeti_first(fleeti_poll_system(word)) == seen &&
               !(near && fleeti_first(fleeti_poll_device(near)) != near_seen)) {
            if (!idles && ctx->thread == 0)
                fleeti_post64_device(&state->idle.word, FLEETI_IDLE_NOW);
            idles = 1;
            fleeti_pause_outside(&tries);
            if (tries % 64 == 0)
                status = fleeti_first((uint32_t)fleeti_check_watch(&watch, NULL, tries, &since));
        }
        /* Before any wait of the run is late again. Pair: fleeti_check_watch (edge 30). */
        since = 0;
        if (idles && ctx->thread == 0)
            fleeti_post64_device(&state->idle.word, fleeti_limit_clock(&since));
        /* Acquires what the host wrote before it changed the word, for all lanes: lane 0's poll decides. Pair: fleet_wake
           (edge 29). */
        fleeti_invalidate_system();
        fleet_wave_barrier();
        if (status == FLEET_ERROR_ABORTED && ctx->thread == 0)
            fleeti_tile_ends_run(ctx, fleeti_no_event(FLEET_ERROR_ABORTED));
    }
    if (ctx->group == FLEET_BLOCK) return (fleet_status)fleeti_broadcast(ctx->self, status, 1);
    return (fleet_status)fleeti_first(status);
}
FLEET_DEVICE fleet_status fleet_idle(const fleet_ctx *ctx, const uint32_t *word, uint32_t seen)
{
    return fleeti_idle_until(ctx, word, seen, NULL, 0);
}

FLEET_DEVICE fleet_status fleet_await_flagged(const fleet_ctx *ctx, const fleet_quad *from,
                                              uint32_t flag, uint32_t peer, fleet_quad *words)
{
    fleeti_state *state = fleeti_state_of_ctx(ctx);
    fleeti_wait_diagnostics seen;
    uint32_t tries = 0;
    uint64_t since = 0;
    for (;;) { /* loop 11 */
        /* Pair: fleet_store_flagged_system of that rank (edge 35). */
        *words = fleet_load_flagged_system(from);
        if (words->word[3] == flag) return FLEET_OK;
        seen.status = fleeti_pause(from, &tries);
        if (!seen.status && tries % 64 == 0)
            seen.status = fleeti_check_watch(&state->config.watch,
                                             state->config.links.own + FLEETI_PEER_STOP + peer,
                                             tries, &since);
        if (!seen.status) continue;
        seen.counter = FLEETI_SYSTEM | (FLEETI_PEER_STOP + peer);
        seen.found = words->word[3], seen.expected = flag;
        fleeti_tile_ends_run(ctx, seen);
        return seen.status;
    }
}

/* ==== >>pipeline: weights, copied ahead ==== */

/* ---- weight pipeline: consumer side ---- */

/* Whether the producer has begun the task's stages, and where. Pair: the store in fleeti_producer_begin_task (edge
   20). */
FLEET_DEVICE uint32_t fleeti_pipeline_begins(const fleeti_pipeline *stream, uint32_t tag,
                                             uint32_t *slot, uint32_t *use)
{
    const uint32_t entry = FLEETI_PIPELINE_ENTRY(tag - 1);
    if (fleeti_lds_acquire(stream->words, entry) != tag) return 0;
    *slot = fleeti_uniform(fleeti_lds_get(stream->words, entry + 1));
    *use = fleeti_uniform(fleeti_lds_get(stream->words, entry + 2));
    return 1;
}
FLEET_DEVICE fleet_consumer fleeti_consumer_of(const fleet_ctx *ctx)
{
    fleet_consumer s;
    s.ring = ctx->pipeline;
    s.waves = fleeti_task_waves(ctx->self);
    s.at = ctx->pipeline_stage, s.use = ctx->pipeline_use;
    s.skipped = 0;
    s.end = FLEETI_PIPELINE_ENTRY(fleeti_uniform(ctx->pipeline_tag) - 1) + 3;
    return s;
}
FLEET_DEVICE fleet_consumer fleet_consumer_open(const fleet_ctx *ctx)
{
    fleet_consumer s = fleeti_consumer_of(ctx);
    uint32_t met = ctx->pipeline_located, tries = 0;
    uint64_t since = 0;
    while (!met) { /* loop 15 */
        met = fleeti_pipeline_begins(&s.ring, fleeti_uniform(ctx->pipeline_tag), &s.at, &s.use);
        if (!met && fleeti_pipeline_back_off(&s.ring, &tries, &since)) {
            /* so that no stage of another task passes for one of this task */
            s.end = FLEETI_PIPELINE_CLOSED;
            break;
        }
    }
    return s;
}
FLEET_DEVICE uint32_t fleet_consumer_try_open(const fleet_ctx *ctx, fleet_consumer *s)
{
    *s = fleeti_consumer_of(ctx);
    return !fleeti_any(!ctx->pipeline_located);
}

/* Before the wait: the producer has mostly begun the task's stages by then, so that the tile need not ask. */
FLEET_DEVICE void fleeti_pipeline_locate(const fleeti_worker *w, fleet_ctx *ctx)
{
    if (w->group == FLEET_BLOCK && fleeti_walks(w))
        ctx->pipeline_located = fleeti_pipeline_begins(&ctx->pipeline, ctx->pipeline_tag,
                                                       &ctx->pipeline_stage, &ctx->pipeline_use);
}
/* The task in hand begins, its events are complete: the stages of earlier tasks are free. */
FLEET_DEVICE void fleeti_pipeline_begun(fleeti_worker *w)
{
    const uint32_t walked = fleeti_walks(w), number = fleeti_pipeline_number(w);
    if (w->group != FLEET_BLOCK || (w->absent && !walked)) return;
    if (!walked) w->begun = fleeti_uniform(number);
    if (fleeti_thread_wave(w->self) != 0) return;
    if (!walked) { /* the producer cannot know the next task: post it */
        fleeti_lds_release(w->pipeline.words, FLEETI_PIPELINE_POST, number ^ 0x80000000u);
        /* Orders this before the words of the task, for the producer. Pair: fleeti_lds_order in fleeti_produce_posted
           (edge 24). */
        fleeti_lds_order();
        fleeti_pinned_put(w->task, w->pipeline.words, FLEETI_PIPELINE_POSTED);
        fleeti_lds_put(w->pipeline.words, FLEETI_PIPELINE_STEP, w->epoch);
        fleeti_lds_put(w->pipeline.words, FLEETI_PIPELINE_STEP + 1, w->steps_left);
        fleet_wave_barrier();
        fleeti_lds_release(w->pipeline.words, FLEETI_PIPELINE_POST, number);
    }
    /* Releases to the producer that all waves have read the stages of the task before: the barrier that ended it is
       past; and what this task's events published, which its wait has acquired. Pairs: fleeti_producer_task_ended,
       fleet_producer_await_task (edge 21). */
    if (fleeti_thread_lane(w->self) == 0)
        fleeti_lds_release(w->pipeline.words, FLEETI_PIPELINE_BEGUN, number);
}
/* The status of the tile in hand. If a wait for a stage has failed the tile may have had no weights: the task fails
   whatever its tile returned, and publishes nothing. */
FLEET_DEVICE fleet_status fleeti_pipeline_status(const fleeti_worker *w, fleet_status tile_status)
{
    const uint32_t quit =
        w->group == FLEET_BLOCK ? fleeti_lds_get(w->pipeline.words, FLEETI_PIPELINE_QUIT) : 0;
    return tile_status ? tile_status : (fleet_status)fleeti_uniform(quit);
}
/* This workgroup runs no further task. */
FLEET_DEVICE void fleeti_pipeline_stop(fleeti_worker *w)
{
    if (w->fixed->launch_error) return;
    /* A single task has no notify, and so no barrier at its end: other waves may still be acquiring stages. */
    if (fleeti_schedule_of(w) == FLEETI_SINGLE_TASK) fleeti_barrier(w->self);
    fleeti_lds_release(w->pipeline.words, FLEETI_PIPELINE_QUIT, FLEET_ERROR_ABORTED);
}

/* ---- weight pipeline: producer ---- */

FLEET_DEVICE uint32_t fleeti_is_producer(const fleeti_worker *w)
{
    return fleeti_thread_wave(w->self) + 1 == fleet_wave_count();
}
/* A step begins, for fleet_producer_await_step. In plans whose steps must not overlap, the first wait record is the one
   for the step before; of several ranks each has as many of them as there are ranks, one for itself. */
FLEET_DEVICE void fleeti_produce_step(const fleeti_worker *w, fleet_producer *p)
{
    const fleet_plan *plan = fleeti_plan_of(w);
    const uint32_t rank = w->fixed->chiplet * plan->ranks / plan->chiplets;
    const fleeti_wait *before = fleeti_waits_of(w) + plan->step_waits[rank] + rank;
    if (!plan->n_waits || !(before->count & FLEETI_PREVIOUS)) return;
    p->step = fleeti_counters_of(w).device + before->counter;
    p->step_want = (w->epoch - 1) * before->target;
    p->step_known = 0;
}
/* Fetches the chunk of descriptors with task `number`, at `at` in the queue, which is walked round and round. Begun
   long before it is completed, so that copies to the ring never wait for it. */
FLEET_DEVICE void fleeti_produce_fetch(fleeti_worker *w, const fleet_producer *p, uint32_t number,
                                       uint32_t at)
{
    const fleet_task *tasks = fleeti_tasks_of(w) + w->fixed->first;
    const uint32_t count = w->fixed->count;
    fleet_wave_barrier(); /* all lanes have read what was there */
    for (uint32_t q = fleet_lane(); q < 4 * FLEETI_PIPELINE_CHUNK; q += fleet_wave_size()) {
        const void *task = tasks + (at + q / 4) % count;
        fleeti_async_copy_begin(&w->inbound, p->ring.words, FLEETI_PIPELINE_DESC(number) + 4 * q,
                                (const fleeti_quad *)task + q % 4);
    }
}
FLEET_DEVICE void fleeti_produce_fetched(const fleeti_worker *w, const fleet_producer *p,
                                         uint32_t number)
{
    for (uint32_t q = fleet_lane(); q < 4 * FLEETI_PIPELINE_CHUNK; q += fleet_wave_size())
        fleeti_async_copy_end(&w->inbound, p->ring.words, FLEETI_PIPELINE_DESC(number) + 4 * q);
    fleet_wave_barrier();
}
FLEET_DEVICE void fleeti_produce(fleeti_worker *w, fleet_producer *p)
{
    const uint32_t walks = fleeti_walks(w) && !w->done;
    __builtin_memset(p, 0, sizeof *p);
    p->ring = w->pipeline;
    p->waves = fleeti_task_waves(w->self);
    p->task = p->use = w->number = FLEETI_TEST_START;
    w->begun = 0;
    if (!walks) return;
    fleeti_produce_step(w, p);
    fleeti_produce_fetch(w, p, w->number, 0);
    fleeti_produce_fetched(w, p, w->number);
}

/* Brings the next descriptor of the worker's queue into w->task. */
FLEET_DEVICE void fleeti_produce_walk(fleeti_worker *w, const fleet_producer *p)
{
    const uint32_t number = w->number, count = w->fixed->count;
    const uint32_t at = w->begun, ahead = at + FLEETI_PIPELINE_CHUNK;
    const uint32_t next = number + FLEETI_PIPELINE_CHUNK;
    if (number % FLEETI_PIPELINE_CHUNK == 0) fleeti_produce_fetch(w, p, next, ahead);
    if (next % FLEETI_PIPELINE_CHUNK == FLEETI_PIPELINE_CHUNK - 1)
        fleeti_produce_fetched(w, p, next & ~(FLEETI_PIPELINE_CHUNK - 1));
    w->task = fleeti_pinned_from_lds(p->ring.words, FLEETI_PIPELINE_DESC(number));
    w->number = number + 1;
    w->begun = fleeti_uniform(at + 1 == count ? 0 : at + 1);
}
/* Waits for a task that the consumers have begun; 0: the run ends. */
FLEET_DEVICE uint32_t fleeti_produce_posted(fleeti_worker *w, fleet_producer *p)
{
    uint32_t tries = 0;
    for (;;) { /* loop 16 */
        const uint32_t found = fleeti_lds_acquire(p->ring.words, FLEETI_PIPELINE_POST);
        const uint32_t post = fleeti_first(found);
        /* each lane acquires for itself */
        if ((int32_t)(post - w->number) > 0 && !fleeti_any(found != post)) {
            w->task = fleeti_pinned_from_lds(p->ring.words, FLEETI_PIPELINE_POSTED);
            w->epoch = fleeti_uniform(fleeti_lds_get(p->ring.words, FLEETI_PIPELINE_STEP));
            w->steps_left = fleeti_uniform(fleeti_lds_get(p->ring.words, FLEETI_PIPELINE_STEP + 1));
            /* If the next task was begun meanwhile, the words may be those of that task: they are loaded before the
               number is checked again, which then differs. Pair: fleeti_lds_order in fleeti_pipeline_begun (edge
               24). */
            fleeti_lds_order();
            if (!fleeti_any(fleeti_lds_acquire(p->ring.words, FLEETI_PIPELINE_POST) != post)) {
                w->number = post;
                return 1;
            }
        }
        fleeti_copies_progress(&p->ring, &p->copies);
        if (!fleeti_producer_back_off(p, &tries)) return 0;
    }
}

/* Waits until the symbols are those of the step of the task; 0: the run ends. A producer that lags may find those of a later
   step, where its workgroup has passed the task over already: then its copies are abandoned. */
FLEET_DEVICE uint32_t fleeti_produce_await_symbols(fleet_producer *p, uint32_t task)
{
    p->task = task, p->over = 0; /* both are about the task before, which may be long ago */
    return fleet_producer_await_step(p);
}

/* Waits until the worker has begun the task in hand; 0: the run ends. */
FLEET_DEVICE uint32_t fleeti_produce_await_worker(const fleeti_worker *w, fleet_producer *p)
{
    p->over = 0; /* as above */
    fleeti_producer_await_begun(p, w->number);
    return !p->over;
}

/* Brings the next task that has a producer function into w->task; 0: there is none left. */
FLEET_DEVICE uint32_t fleeti_produce_next(fleeti_worker *w, fleet_producer *p)
{
    const uint32_t walks = fleeti_walks(w);
    uint32_t idle_step = 0;
    if (p->status) {
        if (fleeti_thread_lane(w->self) == 0) fleeti_tile_failed(w, FLEETI_TASK(w, id), p->status);
        fleeti_pipeline_failed(&p->ring, p->status);
        return 0;
    }
    if (w->done) return 0;
    for (;;) { /* loop 17 */
        if (!walks && !fleeti_produce_posted(w, p)) return 0;
        if (walks) {
            fleeti_produce_walk(w, p);
            if (FLEETI_TASK(w, tile) == FLEETI_TILE_NONE) {
                /* In a step without a task that has stages nothing else holds the producer back. */
                if (idle_step && !fleeti_produce_await_worker(w, p)) return 0;
                idle_step = 1;
                if (fleeti_step_ends(w)) return 0;
                fleeti_produce_step(w, p);
                continue;
            }
            if (FLEETI_LEVEL_IN(FLEETI_TASK(w, level)) == FLEET_LEVEL_WAVE) continue;
            if (fleeti_task_has(w, FLEETI_GUARDED)) {
                if (fleeti_plan_of(w)->rebinds && !fleeti_produce_await_symbols(p, w->number - 1))
                    return 0;
                if (fleeti_uniform(fleeti_is_absent(w))) continue;
            }
        }
        if (!fleeti_producer_begin_task(p, w->number - 1)) return 0;
        if (walks && fleeti_task_has(w, FLEETI_MAPPED) && fleeti_has_maps(w) &&
            (!fleet_producer_await_task(p) || fleeti_uniform(fleeti_is_missing(w))))
            continue;
        return 1;
    }
}

/* The producer leaves. Where the launch has no room for its ring there is none, and no copy to wait for. */
FLEET_DEVICE void fleeti_produce_end(fleeti_worker *w, fleet_producer *p)
{
    const fleet_status status = w->fixed->launch_error ? FLEET_OK : fleeti_producer_end(p);
    if (status && fleeti_thread_lane(w->self) == 0)
        fleeti_tile_failed(w, FLEETI_TASK(w, id), status);
}

/* ==== >>static: each worker walks its own queue ==== */

/* A schedule is a section of verbs, all inlined, so that the loop of a STATIC plan drops the verbs of the others.
   The worker loop calls them. A schedule has only those verbs for which it has something to do.
       start   after the worker has entered the run
       next    brings the descriptor of the next task into the next slot; 0: the run is over for this worker
       batch   of wavefront-tasks: the first descriptor of this wave, and the end of the descriptors that the waves
               share
       wait    returns the number of wait records that the group must poll before the tile
       finish  STATIC: the work between two tasks; DYNAMIC: the notify, which pushes the tasks that it makes ready
   Stopping early is the same under each schedule: fleeti_stop. */

/* By all lanes of the prefetching wave, when the descriptors of a chunk are in their slots: those of tasks outside
   their shapes in this launch get a tile that does nothing, and no task needs a look when it is taken. Not where tasks
   set symbols, so that shapes may change before, nor where more than the shape tells whether a task exists. Nor beside a
   weight pipeline: there tiles take long, and their kernels have no registers to spare. */
FLEET_DEVICE void fleeti_static_look_ahead(fleeti_worker *w, uint32_t number)
{
    const uint32_t guarded = (uint32_t)FLEETI_GUARDED << 10, mapped = (uint32_t)FLEETI_MAPPED << 10;
    if (!w->may_look_ahead || !w->fixed->looks_ahead) return;
    FLEETI_ROLLED
    for (uint32_t q = fleeti_thread_lane(w->self); q < FLEETI_CHUNK; q += fleet_wave_size()) {
        const uint32_t slot = FLEETI_SLOT(number + q);
        const uint32_t level = fleeti_lds_get(w->slots, slot + FLEETI_WORD(level));
        const uint32_t grid = fleeti_lds_get(w->slots, slot + FLEETI_WORD(grid));
        const uint32_t tile = fleeti_lds_get(w->slots, slot + FLEETI_WORD(tile));
        uint32_t inside = ~0u; /* negative: each coordinate is less than its extent */
        if ((level & (guarded | mapped)) != guarded) continue;
        for (uint32_t i = 0; i <= FLEET_MAX_RANK; i++) {
            const uint32_t at = i < FLEET_MAX_RANK ? FLEETI_WORD(at) + i : FLEETI_WORD(slice);
            inside &= fleeti_lds_get(w->slots, slot + at) -
                      (uint32_t)fleeti_shape_of(fleeti_state_of(w), grid, i);
        }
        fleeti_lds_put(w->slots, slot + FLEETI_WORD(level), level & ~guarded);
        fleeti_lds_put(w->slots, slot + FLEETI_WORD(tile), tile | (~inside & FLEETI_TILE_ABSENT));
    }
}

/* One stage of the prefetch of a chunk, by all lanes of the prefetching wave between two tasks: (0) begin to fetch
   its descriptors; (1) put them into their slots and begin to fetch their first records; (2) put these into the
   slots, and look at the shapes of the tasks. The stages are two and three tasks apart, so that even short tiles hide
   the latency of memory, and follow the notify, whose drain would wait for the loads. Stage 0 comes one task after the
   last one of the half that it overwrites, when all waves have left that. */
FLEET_DEVICE void fleeti_static_prefetch(fleeti_worker *w)
{
    const uint32_t lane = fleeti_thread_lane(w->self), lanes = fleet_wave_size();
    const uint32_t stage = w->prefetch_stage, number = w->prefetch_number;
    const uint32_t first = w->fixed->first, count = w->fixed->count;
    uint32_t offset = w->prefetch_offset;
    w->prefetch_stage = fleeti_uniform((stage + 1) % 3);
    w->prefetch_at += stage == 0 ? 2 : 3;
    if (stage == 0) {
        FLEETI_ROLLED
        for (uint32_t q = lane; q < 4 * FLEETI_CHUNK; q += lanes) {
            uint32_t at = offset + q / 4; /* a queue is walked round and round */
            if (at >= count) at = count < FLEETI_CHUNK ? at % count : at - count;
            const fleet_task *task = fleeti_tasks_of(w) + first + at;
            fleeti_async_copy_begin(&w->inbound, w->slots, FLEETI_SLOT(number + q / 4) + q % 4 * 4,
                                    (const fleeti_quad *)(const void *)task + q % 4);
        }
    } else if (stage == 1) {
        FLEETI_ROLLED
        for (uint32_t q = lane; q < 4 * FLEETI_CHUNK; q += lanes)
            fleeti_async_copy_end(&w->inbound, w->slots, FLEETI_SLOT(number + q / 4) + q % 4 * 4);
        fleet_wave_barrier();
        FLEETI_ROLLED
        for (uint32_t q = lane; q < 2 * FLEETI_CHUNK; q += lanes) {
            /* A task without waits or notifies gets the first record of all, and does not use it. */
            uint32_t slot = FLEETI_SLOT(number + q / 2);
            uint32_t counts = fleeti_lds_get(w->slots, slot + FLEETI_WORD(n_waits));
            uint32_t n = q % 2 ? counts >> 16 : counts & 0xffff;
            uint32_t at = fleeti_lds_get(
                w->slots, slot + (q % 2 ? FLEETI_WORD(notifies) : FLEETI_WORD(waits)));
            const void *notifies = fleeti_notifies_of(w), *waits = fleeti_waits_of(w);
            const void *records = q % 2 ? notifies : waits;
            fleeti_async_copy_begin(&w->inbound, w->slots, slot + FLEETI_SLOT_WAIT + q % 2 * 4,
                                    (const fleeti_quad *)records + (n ? at : 0));
        }
    } else {
        FLEETI_ROLLED
        for (uint32_t q = lane; q < 2 * FLEETI_CHUNK; q += lanes)
            fleeti_async_copy_end(&w->inbound, w->slots,
                                  FLEETI_SLOT(number + q / 2) + FLEETI_SLOT_WAIT + q % 2 * 4);
        fleeti_static_look_ahead(w, number);
        offset += FLEETI_CHUNK;
        if (offset >= count) offset = count < FLEETI_CHUNK ? offset % count : offset - count;
        w->prefetch_number = fleeti_uniform(number + FLEETI_CHUNK);
        w->prefetch_offset = fleeti_uniform(offset);
    }
}
FLEET_DEVICE uint32_t fleeti_static_prefetch_due(const fleeti_worker *w)
{
    return (int32_t)(w->number - w->prefetch_at) >= 0;
}
/* Continues until the next task's slot is full: at the start, and after a batch, which may have been longer than the
   chunks. */
FLEET_DEVICE void fleeti_static_prefetch_all(fleeti_worker *w)
{
    while (fleeti_static_prefetch_due(w)) { /* bounded by the batch that has passed */
        const uint32_t number = w->prefetch_number;
        const int32_t passed = (int32_t)(w->number - number);
        if (w->prefetch_stage == 0 && passed >= (int32_t)FLEETI_CHUNK) {
            uint32_t skip = (uint32_t)passed / FLEETI_CHUNK * FLEETI_CHUNK;
            w->prefetch_at += skip;
            w->prefetch_number = fleeti_uniform(number + skip);
            w->prefetch_offset = fleeti_uniform((w->prefetch_offset + skip) % w->fixed->count);
        }
        fleeti_static_prefetch(w);
    }
}

FLEET_DEVICE void fleeti_static_start(fleeti_worker *w)
{
    w->prefetch_at -= FLEETI_CHUNK - 1;
    if (w->prefetches) fleeti_static_prefetch_all(w);
    fleet_block_barrier();
}

/* After a batch, whose waves have met again: it may have been longer than the chunks that are fetched ahead. */
FLEET_DEVICE uint32_t fleeti_static_next(fleeti_worker *w)
{
    w->slow = 0;
    if (w->prefetches) fleeti_static_prefetch_all(w);
    fleeti_barrier(w->self);
    return 1;
}

/* The index of the descriptor in the last slot. */
FLEET_DEVICE uint32_t fleeti_static_desc(const fleeti_worker *w)
{
    return w->fixed->first + (w->number - 1 - w->head);
}

/* All consecutive wavefront-tasks of the queue. */
FLEET_DEVICE uint32_t fleeti_static_batch(fleeti_worker *w, uint32_t *end)
{
    const uint32_t index = fleeti_static_desc(w), count = FLEETI_BATCH_IN(FLEETI_TASK(w, level));
    w->number += count - 1;
    *end = index + count;
    return index + fleet_wave_id();
}

FLEET_DEVICE uint32_t fleeti_static_wait(const fleeti_worker *w)
{
    return FLEETI_TASK(w, n_waits) & 0xffff;
}
/* The first of these records, which was fetched with the descriptor. */
FLEET_DEVICE fleeti_wait fleeti_static_first_wait(const fleeti_worker *w)
{
    if (w->group == FLEET_BLOCK) return fleeti_slot_wait(w, w->number - 1);
    return fleeti_waits_of(w)[FLEETI_TASK(w, waits)];
}

/* By the prefetching wave, between two tasks: fetches descriptors, and checks whether the run was stopped. The load
   of the stop word is used only after enough cycles for it to have arrived, so that short tasks do not wait for it.
   The host's abort word, across the bus, is polled seldom, by each worker at another time. */
FLEET_DEVICE void fleeti_static_finish(fleeti_worker *w)
{
    const uint32_t now = fleeti_cycles(), since = w->polled_at;
    if (fleeti_have_passed(FLEETI_LOAD_CYCLES, since, now)) {
        w->stop = fleeti_deferred_end(w->self, &w->later);
        fleeti_deferred_begin(w->self, &w->later, &fleeti_state_of(w)->stop.word);
        w->polled_at = fleeti_uniform(now);
#if !defined(FLEET_NO_WATCHDOG)
        if (fleeti_abort_is_due(w, since, now) && fleeti_thread_lane(w->self) == 0 &&
            fleet_load_relaxed_system(fleeti_state_of(w)->config.watch.host_abort))
            fleeti_record_failure(fleeti_state_of(w), w->fixed->id, FLEETI_TASK(w, id), w->epoch,
                                  fleeti_no_event(FLEET_ERROR_ABORTED), 0);
#endif
    }
    if (fleeti_static_prefetch_due(w)) fleeti_static_prefetch(w);
}

/* ==== >>chiplet: one scheduler per chiplet posts to mailboxes ==== */

/* ---- worker side ---- */

FLEET_DEVICE void fleeti_chiplet_start(fleeti_worker *w)
{
    w->predicted = w->fixed->first;
}

/* Takes the next mailbox entry and brings its descriptor into the next slot; `batch_count` becomes the number of
   wavefront-tasks from it on. While there is no entry, the descriptor after the last one is fetched: in a row of
   chiplet-tasks it is the next one. Returns 0 when the run ends. */
FLEET_DEVICE uint32_t fleeti_chiplet_next(fleeti_worker *w)
{
    uint32_t batch = 0;
    if (fleet_wave_id() == 0) {
        fleeti_mailbox *box = fleeti_mailbox_of(w);
        const uint64_t *slot = &box->slot[w->number % FLEETI_MAILBOX];
        fleet_watch patient = fleeti_state_of(w)->config.watch;
        uint32_t tries = 0, predicted = w->predicted, first, end;
        uint64_t since = 0, mail = 0;
        fleet_status status = FLEET_OK;
        /* The scheduler knows which event it waits for, so let it time out first. */
        patient.limit_ticks *= 2;
        /* loop 18 */
        while (!status) {
            mail = fleeti_first64(fleeti_poll64_device(slot)); /* one load for all lanes */
            if (mail >> 48 == ((w->number + 1) & 0xffff)) break;
            if (tries == 0) {
                fleeti_slot_fetch(w, predicted);
                fleeti_slot_fetch_notify(w);
            }
            status = (fleet_status)fleeti_first(
                (uint32_t)fleeti_back_off(slot, &patient, &tries, &since));
        }
        if (!status) {
            /* The scheduler's polls published nothing to this CU, so the worker acquires, before data is read.
               Pairs: fleeti_post_order in fleeti_scheduler (edge 7), and the release or drain of the producers in
               fleeti_notify_all. */
            fleeti_invalidate((fleet_scope)(mail >> 46 & 3));
            batch = (uint32_t)(mail >> 32) & 0x3fff;
            if (tries == 0 || predicted != (uint32_t)mail) {
                fleeti_slot_fetch(w, (uint32_t)mail);
                fleeti_slot_fetch_notify(w);
            }
            first = w->fixed->first, end = first + w->fixed->count;
            predicted = (uint32_t)mail + batch;
            w->predicted = fleeti_uniform(predicted == end ? first : predicted);
            /* Tells the scheduler that the slot may be written again: its load has returned. Pair: the poll in
               fleeti_post (edge 8). */
            if (fleet_lane() == 0) fleet_store_relaxed_device(&box->taken.word, w->number + 1);
        } else if (fleet_lane() == 0 && status == FLEET_ERROR_TIMEOUT) {
            /* That a worker is idle explains nothing; only its own time-out is reported. */
            fleeti_record_failure(fleeti_state_of(w), w->fixed->id, FLEETI_TASK(w, id), w->epoch,
                                  fleeti_no_event(status), 0);
        }
    }
    batch = fleeti_broadcast(w->self, batch, 0);
    w->batch_count = fleeti_uniform(batch);
    return batch != 0;
}

/* The wavefront-tasks that the mailbox entry names, consecutive ones. */
FLEET_DEVICE uint32_t fleeti_chiplet_batch(const fleeti_worker *w, uint32_t *end)
{
    const uint32_t index =
        fleeti_uniform(fleeti_lds_get(w->slots, FLEETI_SLOT_INDEX(w->number - 1)));
    *end = index + w->batch_count;
    return index + fleet_wave_id();
}

/* ---- scheduler ---- */

/* The scheduler walks its chiplet's descriptors in plan order, at most FLEETI_WINDOW ahead of the first one that is
   not posted yet. It posts those whose events are complete: a chiplet-task to every worker, others to the workers in
   turn. Lane v handles the descriptors with index % FLEETI_WINDOW == v. */
#define FLEETI_WINDOW 32u
#define FLEETI_PENDING_PER_LANE (FLEETI_WINDOW / FLEETI_LEAST_LANES)

/* Posts to worker j of the chiplet as its entry number `entry`, after there is room in its mailbox. Lane j mod wave
   size handles worker j; *taken is the least that the workers of this lane had taken when it last polled. The store
   publishes no data, and the worker acquires for itself. fleeti_post_order, once before the posts, orders it after
   the polls of the events. */
FLEET_DEVICE fleet_status fleeti_post(const fleeti_worker *w, uint32_t j, uint32_t entry,
                                      uint32_t index, uint32_t acquire, uint32_t batch,
                                      uint32_t *taken)
{
    fleeti_mailbox *box = fleeti_mailbox_of(w) + j;
    if (entry - *taken >= FLEETI_MAILBOX) {
        uint32_t tries = 0, least = entry;
        uint64_t since = 0;
        /* Waits until the worker has read the entry that stands there. Pair: its store of `taken` (edge 8). */
        FLEETI_ROLLED
        while (entry - fleeti_poll_device(&box->taken.word) >= FLEETI_MAILBOX) { /* loop 19 */
            fleet_status status = fleeti_back_off(
                &box->taken.word, &fleeti_state_of(w)->config.watch, &tries, &since);
            if (status) return status;
        }
        FLEETI_ROLLED
        for (uint32_t i = fleet_lane(); i < w->fixed->workers; i += fleet_wave_size()) {
            uint32_t n = fleet_load_relaxed_device(&fleeti_mailbox_of(w)[i].taken.word);
            if ((int32_t)(n - least) < 0) least = n; /* another worker may have taken fewer */
        }
        *taken = least;
    }
    fleeti_post64_device(&box->slot[entry % FLEETI_MAILBOX],
                         (uint64_t)((entry + 1) & 0xffff) << 48 | (uint64_t)acquire << 46 |
                             (uint64_t)batch << 32 | index);
    return FLEET_OK;
}

/* Where a scheduler is in the descriptors of its chiplet, and in the mailboxes. */
typedef struct fleeti_schedule_window {
    uint32_t number;     /* of the scheduler, for failures */
    uint32_t first, end; /* descriptors of the chiplet */
    uint32_t base;       /* the first one that is not posted */
    uint32_t posted;     /* bit o: descriptor base + o is posted */
    uint32_t turn;       /* the worker that gets the next task */
    uint32_t sent,
        taken; /* entries posted to the workers from `turn` on, one more to those before; see fleeti_post */
    fleeti_pending pending[FLEETI_PENDING_PER_LANE];
} fleeti_schedule_window;

FLEET_DEVICE void fleeti_scheduler_failed(const fleeti_worker *w, const fleeti_schedule_window *s,
                                          uint32_t index, fleeti_wait_diagnostics seen)
{
    fleeti_record_failure(fleeti_state_of(w), s->number, fleeti_tasks_of(w)[index].id, w->epoch,
                          seen, 0);
}

/* The descriptors whose events are complete: bit o is descriptor base + o. */
FLEET_DEVICE uint32_t fleeti_scheduler_poll(const fleeti_worker *w, fleeti_schedule_window *s,
                                            fleeti_wait_diagnostics *seen)
{
    const uint32_t turned = s->base % FLEETI_WINDOW;
    uint32_t lanes = 0;
    for (uint32_t k = 0; k < FLEETI_PENDING_PER_LANE; k++) {
        fleeti_pending *task = &s->pending[k];
        uint32_t v = k + fleet_lane(), offset = (v - s->base) % FLEETI_WINDOW,
                 index = s->base + offset;
        uint32_t here = v < FLEETI_WINDOW && index < s->end && !(s->posted >> offset & 1);
        if (here && task->index != index) fleeti_pending_load(task, w, index);
        here = here && (!(task->info & FLEETI_PENDING_END) || offset == 0) &&
               fleeti_pending_ready(task, w, w->epoch, 0, 1, seen);
        lanes |= fleeti_ballot(here) << k;
    }
    /* From the order of lanes to that of the plan. */
    return turned ? lanes >> turned | lanes << (FLEETI_WINDOW - turned) : lanes;
}

/* Posts descriptor base + offset, and with a wavefront-task the ready ones that follow it, for the waves of one worker.
   Returns their number; *ends: it is the end of the step. */
FLEET_DEVICE uint32_t fleeti_scheduler_post(const fleeti_worker *w, fleeti_schedule_window *s,
                                            uint32_t ready, uint32_t offset, uint32_t *ends,
                                            fleet_status *status)
{
    const uint32_t workers = w->fixed->workers;
    const uint32_t index = s->base + offset, v = index % FLEETI_WINDOW;
    const uint32_t info = fleeti_shuffle(s->pending[v % FLEETI_PENDING_PER_LANE].info, v);
    uint32_t acquire = info >> 4 & 3, count = 1;
    *ends = info & FLEETI_PENDING_END;
    if (info & FLEETI_PENDING_WAVE) {
        /* bounded by the waves */
        while (count < fleeti_task_waves(w->self) && count < info >> 8 &&
               offset + count < FLEETI_WINDOW && ready >> (offset + count) & 1) {
            uint32_t next = (index + count) % FLEETI_WINDOW;
            uint32_t other =
                fleeti_shuffle(s->pending[next % FLEETI_PENDING_PER_LANE].info, next) >> 4 & 3;
            acquire = other > acquire ? other : acquire;
            count++;
        }
    }
    if (info & FLEETI_PENDING_CHIPLET) {
        for (uint32_t j = fleet_lane(); j < workers && !*status; j += fleet_wave_size())
            *status = fleeti_post(w, j, s->sent + (j < s->turn), index, acquire, 1, &s->taken);
        s->sent++;
    } else {
        if (fleet_lane() == s->turn % fleet_wave_size())
            *status = fleeti_post(w, s->turn, s->sent, index, acquire, count, &s->taken);
        if (++s->turn == workers) s->turn = 0, s->sent++;
    }
    for (uint32_t c = 0; c < count; c++) s->posted |= 1u << (offset + c);
    return count;
}

/* By the first wave of the scheduler's workgroup. */
FLEET_DEVICE void fleeti_scheduler(fleeti_worker *w)
{
    fleeti_schedule_window s;
    fleeti_wait_diagnostics seen;
    uint32_t tries = 0;
#if !defined(FLEET_NO_WATCHDOG)
    uint32_t looked_at = w->looked_at;
#endif
    uint64_t since = 0;
    s.number = fleeti_plan_of(w)->total_workers + w->fixed->chiplet;
    s.first = s.base = w->fixed->first;
    s.end = s.first + w->fixed->count;
    s.posted = s.turn = 0;
    s.sent = s.taken = FLEETI_TEST_START;
    for (uint32_t k = 0; k < FLEETI_PENDING_PER_LANE; k++) s.pending[k].index = ~0u;
    seen.status = FLEET_OK;
    while (!w->done) { /* loop 20 */
        const uint32_t ready = fleeti_scheduler_poll(w, &s, &seen);
        uint32_t offset = 0;
        if (!ready) {
            fleet_status status =
                fleeti_back_off(NULL, &fleeti_state_of(w)->config.watch, &tries, &since);
            if (fleeti_any((uint32_t)status)) {
                /* The lane of the first descriptor that waits reports for which event. */
                uint32_t blocked = s.base;
                while (s.posted >> (blocked - s.base) & 1) blocked++; /* bounded by the window */
                seen.status = status ? status : FLEET_ERROR_ABORTED;
                if (FLEETI_PENDING_PER_LANE > 1 || fleet_lane() == blocked % FLEETI_WINDOW)
                    fleeti_scheduler_failed(w, &s, blocked, seen);
                return;
            }
            continue;
        }
        tries = 0, since = 0;
#if !defined(FLEET_NO_WATCHDOG)
        /* Where no wait is ever long, the host's abort word is polled here, and the stop word, which the other state of the
           launch may have set. */
        if (fleeti_have_passed(FLEETI_ABORT_CYCLES, looked_at, fleeti_cycles())) {
            const fleet_watch *watch = &fleeti_state_of(w)->config.watch;
            uint32_t stop = 0;
            looked_at = fleeti_cycles();
            if (fleet_lane() == 0) {
                stop = fleet_load_relaxed_device(watch->stop);
                if (!stop && fleet_load_relaxed_system(watch->host_abort))
                    stop = FLEET_ERROR_ABORTED;
            }
            if (stop) fleeti_scheduler_failed(w, &s, s.base, fleeti_no_event((fleet_status)stop));
            if (fleeti_any(stop)) return;
        }
#endif
        /* Publishes what the lanes saw complete to the workers, before the posts. Pair: the acquire in
           fleeti_chiplet_next (edge 7). */
        fleeti_post_order();
        while (offset < FLEETI_WINDOW && ready >> offset) { /* bounded by the window */
            const uint32_t index = s.base + offset;
            fleet_status status = FLEET_OK;
            uint32_t ends = 0;
            if (!(ready >> offset & 1)) {
                offset++;
                continue;
            }
            offset += fleeti_scheduler_post(w, &s, ready, offset, &ends, &status);
            if (status) fleeti_scheduler_failed(w, &s, index, fleeti_no_event(status));
            if (fleeti_any((uint32_t)status)) return;
            if (ends) {
                const uint32_t decides = fleeti_goes_on(w) && fleeti_state_of(w)->config.finish;
                const uint32_t last = decides ? fleeti_finishes(w, s.number) : 0;
                if (last == FLEETI_STEP_FAILED) return;
                w->done = fleeti_uniform(fleeti_step_ends(w) | last);
            }
        }
        while (s.posted & 1) { /* bounded by the window */
            s.posted >>= 1;
            s.base++;
        }
        if (s.base == s.end) s.base = s.first;
    }
}

/* ==== >>dynamic: ready rings ==== */

/* ---- ready ring ---- */

FLEET_HOST_DEVICE uint64_t *fleeti_ring_slots(fleeti_ring *ring)
{
    return (uint64_t *)(void *)(ring + 1);
}

/* Pushes an entry for each lane with `has`, by lanes 0..31 of one wave alone. Publishes what the wave has observed.
   mask: capacity - 1, capacity a power of two. */
FLEET_DEVICE void fleeti_ring_push(fleeti_ring *ring, uint32_t mask, uint32_t has, uint32_t value)
{
    const uint32_t all = fleeti_ballot(has), count = fleeti_popcount32(all);
    const uint32_t rank = fleeti_popcount32(all & ((1u << fleet_lane() % 32) - 1));
    uint32_t ticket = 0;
    if (fleet_lane() == 0) ticket = fleet_add_relaxed_device(&ring->tail.word, count);
    ticket = fleeti_first(ticket) + rank;
    /* Orders the slots after the arrivals that made the entries ready, for the worker that pops. Pair: the poll and
       the acquire in fleeti_dynamic_take (edge 6). */
    fleeti_post_order();
    if (has)
        fleeti_post64_device(&fleeti_ring_slots(ring)[ticket & mask],
                             (uint64_t)(ticket + 1) << 32 | value);
    if (fleet_lane() == 0) fleet_add_relaxed_device(&ring->available.word, count);
}

/* The same for the descriptors of `count` consecutive consumers, all of this ring, with one reservation. */
FLEET_DEVICE void fleeti_ring_push_run(fleeti_ring *ring, uint32_t mask,
                                       const fleeti_consumer *consumers, uint32_t count)
{
    uint32_t ticket = 0;
    if (fleet_lane() == 0) ticket = fleet_add_relaxed_device(&ring->tail.word, count);
    ticket = fleeti_first(ticket);
    fleeti_post_order(); /* as in fleeti_ring_push */
    FLEETI_ROLLED
    for (uint32_t i = fleet_lane(); i < count; i += 4 * fleet_wave_size()) {
        uint32_t desc[4]; /* four loads in flight at once */
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t at = i + k * fleet_wave_size();
            desc[k] = consumers[at < count ? at : i].desc;
        }
        FLEETI_ROLLED
        for (uint32_t at = i; at < count && at < i + 4 * fleet_wave_size();
             at += fleet_wave_size()) {
            fleeti_post64_device(&fleeti_ring_slots(ring)[(ticket + at) & mask],
                                 (uint64_t)(ticket + at + 1) << 32 | desc[0]);
            desc[0] = desc[1], desc[1] = desc[2], desc[2] = desc[3];
        }
    }
    fleet_wave_barrier();
    if (fleet_lane() == 0) fleet_add_relaxed_device(&ring->available.word, count);
}

/* Reserves up to `want` entries, by one thread. Returns how many, with the ticket of the first. eager: do not load
   `available` first, since there were entries a moment ago. */
FLEET_DEVICE uint32_t fleeti_ring_reserve(fleeti_ring *ring, uint32_t want, uint32_t eager,
                                          uint32_t *ticket)
{
    if (!eager && (int32_t)fleet_load_relaxed_device(&ring->available.word) <= 0) return 0;
    int32_t available = (int32_t)fleet_add_relaxed_device(&ring->available.word, 0u - want);
    uint32_t got = available <= 0 ? 0 : (uint32_t)available < want ? (uint32_t)available : want;
    if (got < want) fleet_add_relaxed_device(&ring->available.word, want - got);
    if (got) *ticket = fleet_add_relaxed_device(&ring->head.word, got);
    return got;
}
/* The entry of a reserved ticket. Its push has begun, and may have to be waited for (edge 6). Does not acquire: the
   caller does, before data is read. */
FLEET_DEVICE fleet_status fleeti_ring_take(fleeti_ring *ring, uint32_t mask, uint32_t ticket,
                                           const fleet_watch *watch, uint32_t *value)
{
    const uint64_t *slot = &fleeti_ring_slots(ring)[ticket & mask];
    uint64_t since = 0;
    uint32_t tries = 0;
    for (;;) { /* loop 21 */
        uint64_t entry = fleeti_poll64_device(slot);
        *value = (uint32_t)entry;
        if ((uint32_t)(entry >> 32) == ticket + 1) return FLEET_OK;
        fleet_status status = fleeti_back_off(slot, watch, &tries, &since);
        if (status) return status;
    }
}

/* ---- pushing ready tasks ---- */

/* A ready ring, as the waves that pop and push need it. */
typedef struct fleeti_pop_ring {
    fleeti_ring *ring;
    uint32_t mask, entries; /* of a step at most; 0: the ring is not used */
} fleeti_pop_ring;

FLEET_DEVICE fleeti_pop_ring fleeti_pop_ring_of(const fleeti_worker *w, uint32_t which)
{
    const fleeti_ready_ring *ready = &fleeti_state_of(w)->config.ready[which];
    fleeti_pop_ring source;
    source.ring = ready->ring;
    source.mask = ready->mask;
    source.entries = fleeti_plan_of(w)->ring_entries[which];
    return source;
}
/* A worker keeps the rings of its own chiplet, the step event, and what pushes read of the plan in LDS: every acquire
   empties the L1. */
FLEET_DEVICE void fleeti_cache_pop_rings(const fleeti_worker *w)
{
    const fleet_plan *plan = fleeti_plan_of(w);
    const fleeti_event *step = fleeti_plan_events(plan) + plan->step_event;
    if (fleet_thread_id() == 0) {
        FLEETI_ROLLED
        for (uint32_t kind = 0; kind < FLEETI_RINGS; kind++) {
            const fleeti_pop_ring s =
                fleeti_pop_ring_of(w, FLEETI_RINGS * w->fixed->chiplet + kind);
            fleeti_lds_put_address(w->slots, FLEETI_HOME_WORD(kind), s.ring);
            fleeti_lds_put(w->slots, FLEETI_HOME_WORD(kind) + 2, s.mask);
            fleeti_lds_put(w->slots, FLEETI_HOME_WORD(kind) + 3, s.entries);
        }
        fleeti_lds_put(w->slots, FLEETI_STEP_WORD, step->counter);
        fleeti_lds_put(w->slots, FLEETI_STEP_WORD + 1,
                       fleeti_plan_targets(plan)[plan->n_elements - 1]);
        fleeti_lds_put(w->slots, FLEETI_STEP_WORD + 2, plan->n_descs);
        fleeti_lds_put(w->slots, FLEETI_BEGUN_WORD, w->epoch);
        fleeti_lds_put(w->slots, FLEETI_OWN_INDEX, ~0u);
        fleeti_lds_put(w->slots, FLEETI_FIRST_EPOCH_WORD, w->epoch);
        fleeti_lds_put_address(w->slots, FLEETI_TRIGGERS_WORD, (const char *)plan + plan->triggers);
        fleeti_lds_put_address(w->slots, FLEETI_CONSUMERS_WORD,
                               (const char *)plan + plan->consumers);
        fleeti_lds_put(w->slots, FLEETI_HOT_WORD, 0);
        fleeti_lds_put(w->slots, FLEETI_GUARDED_WORD, plan->guarded);
        fleeti_lds_put(w->slots, FLEETI_EARLY_WORD, plan->early);
    }
    fleet_wave_barrier(); /* this wave pushes the sources; the one that pops comes after a barrier */
}
FLEET_DEVICE fleeti_pop_ring fleeti_pop_ring_home(const fleeti_worker *w, uint32_t kind)
{
    fleeti_quad q = fleeti_lds_get4(w->slots, FLEETI_HOME_WORD(kind));
    fleeti_pop_ring source;
    source.ring = (fleeti_ring *)(uintptr_t)((uint64_t)q.word[1] << 32 | q.word[0]);
    source.mask = q.word[2];
    source.entries = q.word[3];
    return source;
}

/* A ring to push to. */
FLEET_DEVICE fleeti_pop_ring fleeti_push_ring(const fleeti_worker *w, uint32_t which)
{
    const uint32_t kind = which - FLEETI_RINGS * w->fixed->chiplet;
    return kind < FLEETI_RINGS ? fleeti_pop_ring_home(w, kind) : fleeti_pop_ring_of(w, which);
}

/* Elements that absent tasks have completed: one in each lane below `count`, with its epoch. */
typedef struct fleeti_worklist {
    uint32_t element, epoch, count;
} fleeti_worklist;

/* Whether the task of a descriptor is outside its grid's shape in this launch. */
FLEET_DEVICE uint32_t fleeti_desc_absent(const fleeti_worker *w, uint32_t desc)
{
    const fleet_task *task = fleeti_tasks_of(w) + desc;
    const fleeti_state *state = fleeti_state_of(w);
    uint32_t absent = (int32_t)task->slice >= fleeti_shape_of(state, task->grid, FLEET_MAX_RANK);
    for (uint32_t i = 0; i < FLEET_MAX_RANK; i++)
        absent |= task->at[i] >= fleeti_shape_of(state, task->grid, i);
    return absent && task->flags & FLEETI_GUARDED;
}

/* By all lanes of a wave: makes the arrivals of an absent task whose events are complete, so that no worker need run
   it. Returns 0 where a worker must: when it has too many arrivals, when they are counted on its chiplet, where the
   last one releases, or when run-time maps add some. The absent task published nothing, and a task that waits for it
   and for others has their releases. The elements that its arrivals complete go to *worklist. */
FLEET_DEVICE uint32_t fleeti_complete_absent(const fleeti_worker *w, uint32_t desc, uint32_t epoch,
                                             fleeti_worklist *worklist)
{
    const fleet_plan *plan = fleeti_plan_of(w);
    const fleet_task *task = fleeti_tasks_of(w) + desc;
    const fleeti_trigger *triggers = fleeti_plan_triggers(plan) + task->notifies;
    const uint32_t lanes = fleet_wave_size() < 32 ? fleet_wave_size() : 32, lane = fleet_lane();
    const uint32_t n = fleeti_uniform(task->n_notifies), here = lane < lanes && lane < n;
    fleeti_notify r;
    uint32_t completed = 0, e = 0;
    /* The arrivals of all lanes publish what the lane whose arrival made the task ready has observed. */
    fleet_wave_barrier();
    if (task->flags & FLEETI_MAPPED || plan->early || n > lanes - worklist->count) return 0;
    r.sub = 0;
    if (here) r = fleeti_notifies_of(w)[task->notifies + lane];
    if (fleeti_any(here && (r.sub || r.counter & FLEETI_SYSTEM))) return 0;
    if (here) {
        e = triggers[lane].element;
        completed =
            fleeti_rmw_device(fleeti_counters_of(w).device + r.counter, r.weight) + r.weight ==
            epoch * triggers[lane].target;
    }
    FLEETI_ROLLED
    for (uint32_t mask = fleeti_ballot(completed); mask; mask &= mask - 1) {
        const uint32_t next = fleeti_shuffle(e, fleeti_popcount32((mask & (0u - mask)) - 1));
        if (lane == worklist->count) worklist->element = next, worklist->epoch = epoch;
        worklist->count++;
    }
    return 1;
}

/* By all lanes of a wave: one more event of the consumers [from, end) is complete in this epoch. Those for which it
   was the last go to their rings, unless they are absent in this launch. */
FLEET_DEVICE void fleeti_push_consumers(const fleeti_worker *w, uint32_t from, uint32_t end,
                                        uint32_t epoch, fleeti_worklist *worklist)
{
    const fleeti_consumer *consumers =
        (const fleeti_consumer *)fleeti_lds_get_address(w->slots, FLEETI_CONSUMERS_WORD);
    const uint32_t guarded = fleeti_uniform(fleeti_lds_get(w->slots, FLEETI_GUARDED_WORD));
    const uint32_t lanes = fleet_wave_size() < 32 ? fleet_wave_size() : 32;
    /* A run of consumers at the front that are for one ring and wait for no other event is pushed at once: above all
       the sources of a step. */
    FLEETI_ROLLED
    while (from < end && !guarded) { /* bounded by the consumers */
        const uint32_t need = fleeti_uniform(consumers[from].need);
        const fleeti_pop_ring to = fleeti_push_ring(w, FLEETI_CONSUMER_RING(need));
        uint32_t count = 0, same = 4 * lanes;
        if ((need & FLEETI_CONSUMER_NEED) != 1) break;
        /* the loads of a round are all in flight at once */
        FLEETI_ROLLED
        while (same == 4 * lanes) { /* bounded by the consumers */
            uint32_t here[4];
            for (uint32_t k = 0; k < 4; k++) {
                const uint32_t i = from + count + k * lanes + fleet_lane();
                here[k] = consumers[i < end ? i : from].need;
            }
            same = 0;
            FLEETI_ROLLED
            for (uint32_t k = 0; k < 4; k++) {
                const uint32_t i = from + count + k * lanes + fleet_lane();
                const uint32_t others =
                    ~fleeti_ballot(fleet_lane() < lanes && i < end && here[0] == need);
                uint32_t ones = others ? fleeti_popcount32((others & (0u - others)) - 1) : 32;
                if (ones > lanes) ones = lanes;
                if (same == k * lanes) same += ones;
                here[0] = here[1], here[1] = here[2], here[2] = here[3];
            }
            count += same;
        }
        fleeti_ring_push_run(to.ring, to.mask, consumers + from, count);
        from += count;
    }
    FLEETI_ROLLED
    for (; from < end; from += lanes) {
        const uint32_t i = from + fleet_lane();
        uint32_t ready = fleet_lane() < lanes && i < end, waiting, desc = 0, ring = 0;
        if (ready) {
            const uint32_t need = consumers[i].need & FLEETI_CONSUMER_NEED;
            desc = consumers[i].desc;
            ring = FLEETI_CONSUMER_RING(consumers[i].need);
            /* Acquire and release: the last arrival pushes what all of them published (edge 5, both ends). Exact,
               since no event of the next step completes before this step has ended. */
            if (need > 1)
                ready = fleeti_rmw_device(
                            fleeti_counters_of(w).device + fleeti_plan_of(w)->joins + desc, 1) +
                            1 ==
                        epoch * need;
        }
        if (guarded) {
            uint32_t absent = fleeti_ballot(ready && fleeti_desc_absent(w, desc));
            FLEETI_ROLLED
            for (; absent; absent &= absent - 1) {
                const uint32_t lane = fleeti_popcount32((absent & (0u - absent)) - 1);
                if (fleeti_complete_absent(w, fleeti_shuffle(desc, lane), epoch, worklist) &&
                    fleet_lane() == lane)
                    ready = 0;
            }
        }
        /* one ring after another; mostly there is one */
        /* bounded by the rings */
        FLEETI_ROLLED
        while ((waiting = fleeti_ballot(ready)) != 0) {
            const uint32_t which =
                fleeti_shuffle(ring, fleeti_popcount32((waiting & (0u - waiting)) - 1));
            const fleeti_pop_ring to = fleeti_push_ring(w, which);
            const uint32_t here = ready && ring == which;
            fleeti_ring_push(to.ring, to.mask, here, desc);
            if (here) ready = 0;
        }
    }
}

/* DYNAMIC: the launch's first epoch, and its last one as far as steps were asked for. */
FLEET_DEVICE uint32_t fleeti_first_epoch(const fleeti_worker *w)
{
    return fleeti_uniform(fleeti_lds_get(w->slots, FLEETI_FIRST_EPOCH_WORD));
}
FLEET_DEVICE uint32_t fleeti_planned_epoch(const fleeti_worker *w)
{
    return fleeti_first_epoch(w) - 1 + w->fixed->steps;
}

/* Whether the run has a last epoch, *last: that of the launch, unless a tile has ended the run in an earlier one. The
   answer is final for an epoch whose step event this wave has seen complete. */
FLEET_DEVICE uint32_t fleeti_last_epoch(const fleeti_worker *w, uint32_t *last)
{
    fleeti_state *state = fleeti_state_of(w);
    *last = fleeti_planned_epoch(w);
    if (!state->config.finish) return 1;
    /* Acquires what the tiles of that step have stored. Pair: fleet_finish (edge 25). */
    fleeti_invalidate_device();
    uint64_t finish = fleeti_poll64_device(&state->finish.word);
    if (!finish) return !fleeti_is_endless(w);
    *last = (uint32_t)(finish >> 32) - w->fixed->epoch_offset;
    return 1;
}

/* By all lanes of a wave that has begun `steps` steps in a row, the last one of this epoch: whether the run ends. */
FLEET_DEVICE uint32_t fleeti_steps_are_over(const fleeti_worker *w, uint32_t epoch, uint32_t steps)
{
    uint64_t since = 0;
    const fleet_status status =
        fleeti_check_watch(&fleeti_state_of(w)->config.watch, NULL, steps, &since);
    if (status && fleet_lane() == 0)
        fleeti_record_failure(fleeti_state_of(w), w->fixed->id, ~0u, epoch, fleeti_no_event(status),
                              0);
    return fleeti_any((uint32_t)status);
}

/* What arrivals made ready: the consumers [from, end), and those of complete elements, each a bit in `mask`: bit k
   is the element of triggers[k], or, if that is null, the element that lane k holds. */
typedef struct fleeti_completions {
    const fleeti_trigger *triggers;
    uint32_t mask, element, from, end;
} fleeti_completions;

/* By all lanes of a wave: pushes it. The consumers of an element are those of its own, and the tasks that a range
   names. The step event begins the next step. */
FLEET_DEVICE void fleeti_make_ready(const fleeti_worker *w, fleeti_completions completions,
                                    uint32_t epoch)
{
    const fleet_plan *plan = fleeti_plan_of(w);
    const uint32_t *first = fleeti_plan_first_consumers(plan);
    const fleeti_runtime_map *maps = fleeti_plan_maps(plan);
    uint32_t e = 0, map = plan->n_maps, then = epoch, from = completions.from,
             end = completions.end, last = 0;
    fleeti_worklist worklist;
    worklist.element = worklist.epoch = worklist.count = 0;
    FLEETI_ROLLED
    for (;;) { /* loop 22 */
        /* All lanes may now read and publish what the arrival of one lane has observed, such as run-time tensors: a
           ballot hands over the completions, but orders no memory. */
        fleet_wave_barrier();
        fleeti_push_consumers(w, from, end, then, &worklist);
        from = end = 0;
        if (map < plan->n_maps) {
            const fleeti_runtime_map *m = &maps[map++];
            const uint32_t i = e - m->first_element;
            if (m->kind != FLEETI_MAP_RANGES || !m->target || i >= m->elements) continue;
            from = fleeti_uniform(fleeti_tensor_within(w, m, i));
            end = fleeti_uniform(fleeti_tensor_within(w, m, i + 1));
            from = m->first + from * m->inner, end = m->first + end * m->inner;
            continue;
        }
        if (completions.mask) {
            const uint32_t bit =
                fleeti_popcount32((completions.mask & (0u - completions.mask)) - 1);
            e = completions.triggers ? fleeti_uniform(completions.triggers[bit].element)
                                     : fleeti_shuffle(completions.element, bit);
            completions.mask &= completions.mask - 1;
            then = epoch;
        } else if (worklist.count) {
            worklist.count--;
            e = fleeti_shuffle(worklist.element, worklist.count);
            then = fleeti_shuffle(worklist.epoch, worklist.count);
        } else {
            return;
        }
        if (e == plan->n_elements - 1) {
            if (fleeti_first(fleeti_last_epoch(w, &last) && then == last)) continue;
            then++;
            /* Steps in which no task exists end here as soon as they have begun, and the wave comes to no other look at
               the end of the run. */
            if ((then - epoch) % 64 == 0 && fleeti_steps_are_over(w, then, then - epoch)) return;
        }
        from = fleeti_uniform(first[e]), end = fleeti_uniform(first[e + 1]);
        map = 0;
    }
}

FLEET_DEVICE fleeti_completions fleeti_step_ended(const fleet_plan *plan)
{
    fleeti_completions completions;
    completions.triggers = NULL;
    completions.mask = 1, completions.element = plan->n_elements - 1;
    completions.from = completions.end = 0;
    return completions;
}

/* A position among the arrivals that run-time maps add to a task. */
typedef struct fleeti_cursor {
    uint32_t map, base, ends;
} fleeti_cursor;

/* An element has more arrivals than its target, so that it completed too early: its count is too small or, where all
   elements have the same count, the gather names it too often. The arrival was that of map m, value number i. */
FLEET_DEVICE void fleeti_count_mismatch(const fleeti_worker *w, const fleeti_runtime_map *m,
                                        uint32_t element, uint32_t i)
{
    const fleet_plan *plan = fleeti_plan_of(w);
    const fleeti_runtime_map *maps = fleeti_plan_maps(plan);
    uint32_t tensor = m->tensor, at = i;
    if (m->kind == FLEETI_MAP_GATHER) at += FLEETI_TASK(w, at) * m->values;
    FLEETI_ROLLED
    for (uint32_t k = 0; k < plan->n_maps; k++)
        if (maps[k].kind == FLEETI_MAP_COUNTS && maps[k].first_element == m->first_element)
            tensor = maps[k].tensor, at = element;
    fleeti_tensor_failed(w, tensor, at, fleeti_tensor_value(w, tensor, at));
}

/* By all lanes of a wave, after the release: the next arrivals of the task in hand by its run-time maps, and finally
   the one at its step's event. Returns 1 with completions, 0 when there are no more. */
FLEET_DEVICE uint32_t fleeti_next_arrivals(const fleeti_worker *w, fleeti_cursor *at,
                                           fleeti_completions *completions)
{
    const fleet_plan *plan = fleeti_plan_of(w);
    const fleeti_grid *grid = fleeti_plan_grids(plan) + FLEETI_TASK(w, grid);
    const fleeti_runtime_map *maps = fleeti_plan_maps(plan) + grid->first_map;
    const uint32_t lanes = fleet_wave_size() < 32 ? fleet_wave_size() : 32, lane = fleet_lane();
    uint32_t *counters = fleeti_counters_of(w).device;
    completions->triggers = NULL;
    completions->mask = completions->from = completions->end = 0;
    /* orders the arrivals of this call after those of all lanes in the last one */
    fleet_wave_barrier();
    FLEETI_ROLLED
    while (at->map < grid->n_maps) { /* bounded by the maps */
        const fleeti_runtime_map *m = &maps[at->map];
        const uint32_t i = at->base + lane, by_row = m->kind == FLEETI_MAP_GATHER;
        uint32_t here = lane < lanes && i < m->values, old = 0;
        at->ends |= m->kind != FLEETI_MAP_EXISTS && m->target;
        at->base += lanes;
        if (at->base >= m->values || m->kind >= FLEETI_MAP_RANGES) at->map++, at->base = 0;
        if (m->kind == FLEETI_MAP_EXISTS || !m->target || (by_row && w->absent)) continue;
        if (m->kind == FLEETI_MAP_RANGES) { /* the tasks after the last range are absent */
            const uint32_t last = fleeti_uniform(fleeti_tensor_within(w, m, m->values - 1));
            completions->from = m->first + last * m->inner;
            completions->end = m->first + m->bound * m->inner;
            return 1;
        }
        const uint32_t row = by_row ? FLEETI_TASK(w, at) * m->values : 0;
        uint32_t value = here ? fleeti_tensor_value(w, m->tensor, row + i) : 0, add;
        /* Over the bound is what names no element, or was changed after it was checked. */
        const uint32_t within = value <= m->bound;
        if (!within) value = m->bound;
        add = by_row ? within : m->target - value;
        value = by_row ? value : i;
        here = here && add;
        /* Published by the release of fleeti_arrive, too. Pair: the acquire in fleeti_dynamic_take (edges 6, 10). */
        if (here) old = fleeti_rmw_device(counters + m->counter + value * m->stride, add);
        completions->element = m->first_element + value;
        if (here && (int32_t)(old + add - w->epoch * m->target) > 0)
            fleeti_count_mismatch(w, m, value, i);
        completions->mask = fleeti_ballot(here && old + add == w->epoch * m->target);
        if (completions->mask) return 1;
    }
    if (at->ends) {
        const fleeti_event *step = fleeti_plan_events(plan) + plan->step_event;
        const uint32_t target = fleeti_plan_targets(plan)[plan->n_elements - 1];
        uint32_t old = 0;
        at->ends = 0;
        if (lane == 0) old = fleeti_rmw_device(counters + step->counter, 1);
        completions->element = plan->n_elements - 1;
        completions->mask = fleeti_ballot(lane == 0 && old + 1 == w->epoch * target);
        return completions->mask != 0;
    }
    return 0;
}

/* Of the notify records of the task in hand. */
FLEET_DEVICE const fleeti_trigger *fleeti_triggers_of(const fleeti_worker *w)
{
    const fleet_plan *plan = fleeti_plan_of(w);
    return fleeti_plan_triggers(plan) + FLEETI_TASK(w, notifies);
}

/* Early pushes, by all threads of the group: the task in hand has been acquired (edge 23, both ends). Pushes the
   tasks that wait for its events and for no other producer that is still to be acquired; they will wait for the
   events. Publishes nothing. */
FLEET_DEVICE void fleeti_push_early(const fleeti_worker *w)
{
    const fleet_plan *plan = fleeti_plan_of(w);
    const fleeti_trigger *triggers = fleeti_triggers_of(w);
    const uint32_t *targets = fleeti_plan_taken_targets(plan);
    const uint32_t lanes = fleet_wave_size() < 32 ? fleet_wave_size() : 32, lane = fleet_lane();
    const uint32_t n = FLEETI_TASK(w, n_waits) >> 16;
    if (w->group == FLEET_BLOCK && fleeti_thread_wave(w->self) != 0) return;
    FLEETI_ROLLED
    for (uint32_t from = 0; from < n; from += lanes) {
        const uint32_t here = lane < lanes && from + lane < n;
        uint32_t e = 0, last = 0;
        fleeti_completions completions;
        if (here) {
            e = triggers[from + lane].element;
            last =
                fleet_add_relaxed_device(fleeti_counters_of(w).device + plan->taken + e, 1) + 1 ==
                w->epoch * targets[e];
        }
        completions.triggers = NULL;
        completions.mask = fleeti_ballot(last);
        completions.element = plan->n_elements + e;
        completions.from = completions.end = 0;
        if (completions.mask) fleeti_make_ready(w, completions, w->epoch);
    }
}

/* By all threads of the group: the notify of the task in hand, and the pushes of the tasks that it makes ready.
   Returns FLEETI_VETOED or 0. */
FLEET_DEVICE uint32_t fleeti_dynamic_finish(fleeti_worker *w, fleeti_notify first,
                                            const fleeti_notify *notifies, uint32_t n,
                                            uint32_t mapped, uint32_t veto)
{
    FLEETI_ROLLED
    for (uint32_t from = 0; from == 0 || from < n; from += 32) { /* mostly once */
        const uint32_t some = n - from < 32 ? n - from : 32, last = from + 32 >= n;
        const fleeti_trigger *triggers =
            (const fleeti_trigger *)fleeti_lds_get_address(w->slots, FLEETI_TRIGGERS_WORD) +
            FLEETI_TASK(w, notifies) + from;
        uint32_t target = 0;
        if (from) first = notifies[from], w->turn ^= w->group == FLEET_BLOCK;
        /* The first trigger of a block lies in LDS. */
        if (from == 0 && w->group == FLEET_BLOCK)
            target = fleeti_lds_get(w->slots, FLEETI_SLOT_TRIGGER(w->number - 1) + 1);
        else if (n)
            target = triggers[0].target;
        fleeti_notify_result result = fleeti_notify_all(
            w->self, w->group, fleeti_counters_of(w), first, notifies + from, some, w->epoch,
            triggers, target, mapped && last, NULL, 1, veto, w->turn);
        if (result.flags & FLEETI_VETOED) return FLEETI_VETOED;
        if (w->group == FLEET_WAVE || fleeti_thread_wave(w->self) == 0) {
            fleeti_completions completions;
            fleeti_cursor at;
            at.map = at.base = at.ends = 0;
            completions.triggers = triggers;
            completions.mask = fleeti_first(result.completed);
            completions.element = completions.from = completions.end = 0;
            if (completions.mask & 1 && w->group == FLEET_BLOCK && from < 32) {
                const uint32_t trigger = FLEETI_SLOT_TRIGGER(w->number - 1);
                const uint32_t begin = fleeti_uniform(fleeti_lds_get(w->slots, trigger + 2));
                if (begin != FLEETI_APART) {
                    completions.mask &= ~1u;
                    completions.from = begin;
                    completions.end = fleeti_uniform(fleeti_lds_get(w->slots, trigger + 3));
                }
            }
            FLEETI_ROLLED
            do { /* bounded by the arrivals */
                if (completions.mask || completions.from != completions.end)
                    fleeti_make_ready(w, completions, w->epoch);
            } while (mapped && last && fleeti_next_arrivals(w, &at, &completions));
        }
    }
    return 0;
}

/* ---- popping ready tasks ---- */

/* Tries once, by one thread: reserves from the rings of this chiplet, first those of tasks that must run on it, then
   from those of the others; of wavefront-tasks as many as there are waves. Returns the number of entries, with the
   ticket of the first. */
FLEET_DEVICE uint32_t fleeti_pop(const fleeti_worker *w, fleeti_pop_ring *from, uint32_t *ticket,
                                 fleet_status *status)
{
    const uint32_t chiplets = w->fixed->chiplets;
    fleeti_pop_ring home[FLEETI_RINGS];
    int32_t available[FLEETI_RINGS];
    uint32_t got = 0, kinds = 0;
    /* All loads at once, which take as long as one. */
    uint32_t stop = fleet_load_relaxed_device(&fleeti_state_of(w)->stop.word);
    for (uint32_t kind = 0; kind < FLEETI_RINGS; kind++) {
        home[kind] = fleeti_pop_ring_home(w, kind);
        kinds += home[kind].entries != 0;
    }
    /* Where the last pop found a task of the chiplet's only ring, there is mostly another one: without a look. */
    if (kinds == 1 && fleeti_lds_get(w->slots, FLEETI_HOT_WORD)) {
        const uint32_t kind = home[0].entries ? 0 : 1;
        *from = home[kind];
        got = fleeti_ring_reserve(from->ring, kind == FLEETI_RING_WAVE ? fleeti_batch_limit(w) : 1,
                                  1, ticket);
        *status = (fleet_status)stop;
        if (got) return stop ? 0 : got;
    }
    for (uint32_t kind = 0; kind < FLEETI_RINGS; kind++) {
        available[kind] = home[kind].entries
                              ? (int32_t)fleet_load_relaxed_device(&home[kind].ring->available.word)
                              : 0;
    }
    *status = (fleet_status)stop;
    if (stop) return 0;
    for (uint32_t kind = 0; kind < FLEETI_RINGS; kind++) {
        if (got || available[kind] <= 0) continue;
        *from = home[kind];
        got = fleeti_ring_reserve(from->ring, kind == FLEETI_RING_WAVE ? fleeti_batch_limit(w) : 1,
                                  1, ticket);
    }
    fleeti_lds_put(w->slots, FLEETI_HOT_WORD, got != 0);
    FLEETI_ROLLED
    for (uint32_t i = 0; i < 2 * (chiplets - 1) && !got; i++) {
        const uint32_t k = (w->fixed->chiplet + 1 + i / 2) % chiplets;
        const uint32_t kind = i % 2 ? FLEETI_RING_WAVE : FLEETI_RING_CU;
        *from = fleeti_pop_ring_of(w, FLEETI_RINGS * k + kind);
        if (from->entries)
            got = fleeti_ring_reserve(from->ring, i % 2 ? fleeti_batch_limit(w) : 1, 0, ticket);
    }
    return got;
}

/* Fetches the head of the worker's own queue to LDS, by all lanes of a wave. */
FLEET_DEVICE void fleeti_own_fetch(fleeti_worker *w, uint32_t index)
{
    fleeti_fetch_task(w, FLEETI_OWN_WORD, index);
    if (fleet_lane() == 0) {
        uint32_t n = fleeti_lds_get(w->slots, FLEETI_OWN_WORD + FLEETI_WORD(n_waits)) & 0xffff;
        uint32_t at = fleeti_lds_get(w->slots, FLEETI_OWN_WORD + FLEETI_WORD(waits));
        fleeti_async_copy_begin(&w->inbound, w->slots, FLEETI_OWN_WORD + FLEETI_SLOT_WAIT,
                                (const fleeti_quad *)(const void *)fleeti_waits_of(w) +
                                    (n ? at : 0));
        fleeti_async_copy_end(&w->inbound, w->slots, FLEETI_OWN_WORD + FLEETI_SLOT_WAIT);
        fleeti_lds_put(w->slots, FLEETI_OWN_INDEX, index);
    }
    fleet_wave_barrier();
}

/* By all lanes of a wave: how many tasks at the head of the worker's own queue may run now: one, or several
   consecutive wavefront-tasks. *scope: what they must acquire. */
FLEET_DEVICE uint32_t fleeti_own_ready(fleeti_worker *w, uint32_t *scope,
                                       fleeti_wait_diagnostics *seen)
{
    const uint32_t lane = fleet_lane(), lanes = fleet_wave_size() < 32 ? fleet_wave_size() : 32;
    const uint32_t index = w->fixed->first + w->own;
    const uint32_t epoch = w->own_epoch;
    const uint32_t stop = lane == 0 ? fleet_load_relaxed_device(&fleeti_state_of(w)->stop.word) : 0;
    fleeti_pending slot;
    if (fleeti_uniform(fleeti_lds_get(w->slots, FLEETI_OWN_INDEX)) != index)
        fleeti_own_fetch(w, index); /* once for each task */
    fleeti_quad wait = fleeti_lds_get4(w->slots, FLEETI_OWN_WORD + FLEETI_SLOT_WAIT);
    slot.index = index;
    slot.waits = fleeti_lds_get(w->slots, FLEETI_OWN_WORD + FLEETI_WORD(waits));
    slot.n_waits = fleeti_lds_get(w->slots, FLEETI_OWN_WORD + FLEETI_WORD(n_waits)) & 0xffff;
    slot.info =
        fleeti_pending_info(fleeti_lds_get(w->slots, FLEETI_OWN_WORD + FLEETI_WORD(level)), 0);
    slot.first.counter = wait.word[0], slot.first.count = wait.word[1];
    slot.first.stride = wait.word[2], slot.first.target = wait.word[3];
    uint32_t count = slot.info & FLEETI_PENDING_WAVE ? fleeti_uniform(slot.info >> 8) : 1;
    if (count > fleeti_batch_limit(w)) count = fleeti_batch_limit(w);
    if (count > lanes) count = lanes;
    /* One task: all lanes share its counters. Several: each lane polls for one. */
    if (count > 1 && lane && lane < count) fleeti_pending_load(&slot, w, index + lane);
    uint32_t bad = fleeti_ballot(lane < (count > 1 ? count : lanes) &&
                                 (!fleeti_pending_ready(&slot, w, epoch, count > 1 ? 0 : lane,
                                                        count > 1 ? 1 : lanes, seen) ||
                                  stop));
    if (bad) count = count > 1 ? fleeti_popcount32((bad & (0u - bad)) - 1) : 0;
    for (*scope = FLEET_SCOPE_SYSTEM; /* bounded by the scopes */
         *scope && !fleeti_any(lane < count && (slot.info >> 4 & 3) >= *scope);)
        --*scope;
    return count;
}

/* By the wave that pops: takes `count` tasks, whose events it has seen complete, from the head of the worker's own
   queue, and brings the first one into the next slot. Acquires what they published. Pair: the releases of the
   producers (edge 1). */
FLEET_DEVICE void fleeti_own_take(fleeti_worker *w, uint32_t count, uint32_t scope)
{
    const uint32_t own = w->own, next = own + count;
    const uint32_t ends = next == w->fixed->count;
    FLEETI_ROLLED
    for (uint32_t i = fleet_lane(); i < count; i += fleet_wave_size())
        fleeti_lds_put(w->slots, FLEETI_BATCH_WORD(i), w->fixed->first + own + i);
    FLEETI_ROLLED
    for (uint32_t i = fleet_lane(); i < FLEETI_SLOT_WAIT; i += fleet_wave_size())
        fleeti_lds_put(w->slots, FLEETI_SLOT(w->number) + i,
                       fleeti_lds_get(w->slots, FLEETI_OWN_WORD + i));
    if (fleet_lane() == 0)
        fleeti_lds_put(w->slots, FLEETI_SLOT_INDEX(w->number), w->fixed->first + own);
    fleet_wave_barrier();
    w->own = fleeti_uniform(ends ? 0 : next);
    w->own_epoch = fleeti_uniform(w->own_epoch + ends);
    fleeti_invalidate((fleet_scope)scope);
}

/* What a worker has found to run, and why it stopped looking. */
typedef struct fleeti_ready_tasks {
    uint32_t own, scope; /* tasks at the head of its own queue, and what they must acquire */
    uint32_t popped, ticket;
    fleeti_pop_ring from;
    fleet_status status;
    fleeti_wait_diagnostics step; /* the step event */
    fleeti_wait_diagnostics
        blocked; /* the event for which the head of its queue waits; counter 0: none */
} fleeti_ready_tasks;

/* Whether the worker's own queue has tasks left in this launch. */
FLEET_DEVICE uint32_t fleeti_own_left(const fleeti_worker *w)
{
    return w->fixed->count &&
           ((int32_t)(fleeti_planned_epoch(w) - w->own_epoch) >= 0 || fleeti_is_endless(w));
}
/* By all lanes of a wave, when the events of its head are complete: whether its step runs. */
FLEET_DEVICE uint32_t fleeti_own_runs(const fleeti_worker *w)
{
    uint32_t last = 0;
    /* Lane 0 may now see what another lane's poll has acquired: a vote hands over that the events are complete, but
       orders no memory. */
    fleet_wave_barrier();
    uint32_t known = fleeti_last_epoch(w, &last);
    return fleeti_first(!known || (int32_t)(last - w->own_epoch) >= 0);
}

/* The epoch of the step that is running when the step event has `found` arrivals. */
FLEET_DEVICE uint32_t fleeti_epoch_at(const fleeti_worker *w, uint32_t found, uint32_t target)
{
    const uint32_t begun = fleeti_lds_get(w->slots, FLEETI_BEGUN_WORD);
    const uint32_t passed = found - (begun - 1) * target;
    return begun + ((int32_t)passed < 0 ? 0 : passed / target);
}

/* By the wave that pops: polls the own queue and the rings until there is a task, the run ends, or the wait fails. */
FLEET_DEVICE void fleeti_dynamic_poll(fleeti_worker *w, fleeti_ready_tasks *r, uint32_t target)
{
    const uint32_t has_own = fleeti_own_left(w);
    uint32_t last = 0, tries = 0, over = 0, polled_at = w->looked_at;
    uint64_t since = 0;
    do { /* loop 23 */
        r->blocked.counter = 0;
#if !defined(FLEET_NO_WATCHDOG)
        /* Where no wave is ever idle, the host's abort word is polled here, before the worker's own queue, whose head may
           be ready every time. */
        if (fleet_lane() == 0) {
            const uint32_t now = fleeti_cycles();
            if (fleeti_have_passed(FLEETI_ABORT_CYCLES, polled_at, now)) {
                polled_at = now;
                if (fleet_load_relaxed_system(fleeti_state_of(w)->config.watch.host_abort))
                    r->status = FLEET_ERROR_ABORTED;
            }
        }
#endif
        if (has_own && !fleeti_any((uint32_t)r->status))
            r->own = fleeti_own_ready(w, &r->scope, &r->blocked);
        /* The events of a head may be complete although its step does not run. */
        if (r->own && fleeti_own_runs(w)) break;
        r->own = 0;
        if (fleet_lane() == 0) {
            const uint32_t *step = fleeti_counters_of(w).device + r->step.counter;
            /* In flight with the loads of the rings. It decides nothing but that the run may be over. */
            const uint32_t passed = fleet_load_relaxed_device(step);
            if (!r->status) r->popped = fleeti_pop(w, &r->from, &r->ticket, &r->status);
            if (!r->popped && !r->status) {
                const uint32_t known = fleeti_last_epoch(w, &last);
                r->step.found = passed;
                over = known && (int32_t)(r->step.found - last * target) >= 0 &&
                       (int32_t)(fleeti_poll_device(step) - last * target) >= 0; /* edge 9 */
                /* A worker may stay idle for any number of steps. */
                fleeti_lds_put(w->slots, FLEETI_BEGUN_WORD,
                               fleeti_epoch_at(w, r->step.found, target));
                if (!over)
                    r->status =
                        fleeti_back_off(NULL, &fleeti_state_of(w)->config.watch, &tries, &since);
            }
        }
        r->popped = fleeti_first(r->popped);
        over = fleeti_first(over | (uint32_t)r->status);
    } while (!r->popped && !over);
    w->looked_at = fleeti_uniform(fleeti_first(polled_at));
}

/* By the wave that pops: reads the popped entries to the batch words, acquires, and brings the first descriptor into
   the next slot. Returns the count of the step event. */
FLEET_DEVICE uint32_t fleeti_dynamic_take(fleeti_worker *w, fleeti_ready_tasks *r)
{
    const uint32_t mask = fleeti_first(r->from.mask), first = fleeti_first(r->ticket);
    fleeti_ring *ring = (fleeti_ring *)(uintptr_t)fleeti_first64((uint64_t)(uintptr_t)r->from.ring);
    uint32_t index = 0, head = 0;
    FLEETI_ROLLED
    for (uint32_t i = fleet_lane(); i < r->popped && !r->status; i += fleet_wave_size()) {
        r->status =
            fleeti_ring_take(ring, mask, first + i, &fleeti_state_of(w)->config.watch, &index);
        /* Left by a step of another bucket that ended too early, which only a wrong plan or a wrong run-time tensor can
           cause. */
        if (index >= fleeti_lds_get(w->slots, FLEETI_STEP_WORD + 2) && !r->status)
            r->status = FLEET_ERROR_IMAGE_INDEX;
        fleeti_lds_put(w->slots, FLEETI_BATCH_WORD(i), index);
    }
    if (fleeti_any((uint32_t)r->status)) r->popped = 0;
    /* Acquires what made the task ready. Pair: fleeti_post_order before the push (edge 6), and the releases of the
       producers. */
    if (r->popped) fleeti_invalidate(FLEET_SCOPE_DEVICE);
    fleet_wave_barrier();
    head = r->popped ? fleeti_uniform(fleeti_lds_get(w->slots, FLEETI_BATCH_WORD(0))) : 0;
    fleeti_fetch_begin(w, FLEETI_SLOT(w->number), head);
    /* The step began when the one before had ended, and does not end without this task. After the acquire this load
       sees the count that began the step. It takes no longer than the descriptor. */
    uint32_t found = fleet_load_relaxed_device(fleeti_counters_of(w).device + r->step.counter);
    fleeti_fetch_end(w, FLEETI_SLOT(w->number));
    if (fleet_lane() == 0) fleeti_lds_put(w->slots, FLEETI_SLOT_INDEX(w->number), head);
    return found;
}

/* By all lanes of the wave that pops: a lane whose status is not FLEET_OK records it. */
FLEET_DEVICE void fleeti_dynamic_failed(fleeti_worker *w, fleeti_ready_tasks *r, uint32_t target)
{
    const uint32_t worker = w->fixed->id;
    if (fleeti_any((uint32_t)r->status) && fleeti_any(fleeti_own_left(w) && r->blocked.counter)) {
        /* The lane that polled it reports the event for which the head of the own queue waits. */
        const uint32_t head = w->fixed->first + w->own;
        r->blocked.status = (fleet_status)fleeti_first((uint32_t)r->status);
        if (r->blocked.counter)
            fleeti_record_failure(fleeti_state_of(w), worker, fleeti_tasks_of(w)[head].id,
                                  w->own_epoch, r->blocked, 0);
    } else if (r->status) { /* reports the step that has not ended */
        const uint32_t epoch = fleeti_epoch_at(w, r->step.found, target);
        r->step.status = r->status;
        r->step.expected = epoch * target;
        fleeti_record_failure(fleeti_state_of(w), worker, ~0u, epoch, r->step, 0);
    }
}

/* Brings a task that may run into the next slot: the head of the worker's own queue, or one that is popped. The
   descriptors of wavefront-tasks go to the batch words. The step event counts the tasks for which no other task
   waits; it tells to which step the task belongs, and when the run ends: then this returns 0. One wave pops while the
   first one may still be pushing what the task before has made ready. */
FLEET_DEVICE uint32_t fleeti_dynamic_next(fleeti_worker *w)
{
    const uint32_t pops = fleeti_polling_wave(w->self);
    uint32_t got = 0, epoch = 0;
    if (fleeti_thread_wave(w->self) == pops) {
        const uint32_t target = fleeti_lds_get(w->slots, FLEETI_STEP_WORD + 1);
        fleeti_ready_tasks r;
        /* Field by field: cleared as a whole it stays whole in registers of AMD, and 07_linear_layer spills. */
        r.own = r.scope = r.popped = r.ticket = 0;
        r.status = FLEET_OK;
        __builtin_memset(&r.from, 0, sizeof r.from);
        r.step.counter = fleeti_lds_get(w->slots, FLEETI_STEP_WORD);
        r.step.found = (fleeti_first_epoch(w) - 1) * target;
        fleeti_dynamic_poll(w, &r, target);
        got = r.own;
        if (r.own) {
            epoch = w->own_epoch;
            fleeti_own_take(w, r.own, r.scope);
        } else if (r.popped) {
            epoch = fleeti_epoch_at(w, fleeti_dynamic_take(w, &r), target);
            got = r.popped;
        }
        fleeti_dynamic_failed(w, &r, target);
        fleet_wave_barrier();
        if (got && fleet_lane() == 0) {
            fleeti_lds_put(w->slots, FLEETI_SLOT_EPOCH(w->number), epoch);
            fleeti_lds_put(w->slots, FLEETI_BEGUN_WORD, epoch);
        }
    }
    /* The wait of a task that was pushed early is the next to use word 0. */
    got = fleeti_broadcast_from(w->self, pops, got, 1);
    if (!got) return 0;
    if (fleeti_thread_wave(w->self) == 0) fleeti_slot_fetch_notify(w);
    epoch = fleeti_uniform(fleeti_lds_get(w->slots, FLEETI_SLOT_EPOCH(w->number)));
    w->batch_count = fleeti_uniform(got);
    w->epoch = epoch;
    w->steps_left = fleeti_uniform(fleeti_planned_epoch(w) - w->epoch + 1 - fleeti_steps_taken(w));
    return 1;
}

FLEET_DEVICE void fleeti_dynamic_start(fleeti_worker *w)
{
    w->own_epoch = fleeti_uniform(w->epoch);
    fleeti_cache_pop_rings(w);
    /* The sources of the first step are ready. */
    if (w->fixed->id == 0 && !w->done && fleeti_thread_wave(w->self) == 0)
        fleeti_make_ready(w, fleeti_step_ended(fleeti_plan_of(w)), w->epoch - 1);
    fleet_block_barrier(); /* before word 1 is used again */
}

/* One for each of the first waves; their descriptors need not be consecutive. */
FLEET_DEVICE uint32_t fleeti_dynamic_batch(const fleeti_worker *w, uint32_t *end)
{
    const uint32_t wave = fleet_wave_id(), has = wave < w->batch_count;
    const uint32_t index =
        has ? fleeti_uniform(fleeti_lds_get(w->slots, FLEETI_BATCH_WORD(wave))) : 0;
    *end = index + has;
    return index;
}

/* The events of a popped task are complete, unless it was pushed early. */
FLEET_DEVICE uint32_t fleeti_dynamic_wait(const fleeti_worker *w)
{
    return fleeti_task_has(w, FLEETI_EARLY) ? FLEETI_TASK(w, n_waits) & 0xffff : 0;
}

/* ==== >>record: when each task ran ==== */

/* The wave that leads a task times it at four points, by a clock that all chiplets share. One lane stores the record
   after the notify, so that no other task waits for it. Each worker has a part of the trace of its own, and its
   waves count tasks alike, so that no index is ever shared. */

#if defined(FLEET_TRACE)

/* The worker has its number, so the launch was not refused: it clears its part before it stores records. */
FLEET_DEVICE void fleeti_trace_enter(fleeti_worker *w)
{
    fleeti_trace *trace = fleeti_state_of(w)->config.trace;
    fleeti_trace_row *rows = (fleeti_trace_row *)(void *)(trace + 1);
    const uint32_t in_line = FLEET_CACHE_LINE_BYTES / (uint32_t)sizeof(fleeti_trace_row);
    const uint32_t id = w->fixed->id;
    fleeti_trace_record *records;
    fleet_quad zero;
    if (!trace || fleeti_is_scheduler(w)) return;
    uint32_t room = fleeti_uniform(trace->records);
    records =
        (fleeti_trace_record *)(void *)(rows + (trace->workers + in_line - 1) / in_line * in_line) +
        (size_t)id * room;
    __builtin_memset(&zero, 0, sizeof zero);
    if (fleet_thread_id() == 0) fleet_store_nt16(rows + id, zero);
    for (uint32_t i = fleet_thread_id(); i < room; i += fleet_thread_count()) {
        fleet_store_nt16(records + i, zero);
        fleet_store_nt16(&records[i].notified, zero);
    }
    /* Orders the zeros before the first record, which another wave may store. */
    fleeti_drain();
    fleet_block_barrier();
    w->trace.records = (FLEETI_GLOBAL_POINTER(fleeti_trace_record))fleeti_uniform_address(records);
    w->trace.room = fleeti_uniform(room);
    w->trace.lead = fleeti_uniform(fleeti_thread_wave(w->self) == 0 ? room : 0);
    w->trace.first_step = fleeti_uniform(trace->first_step);
}

/* By all waves, with the next task in hand that is not plain, or with the first one of a batch: counts its records.
   Plain tasks have one each. Steps before the first one that is recorded have none. */
FLEET_DEVICE void fleeti_trace_count(fleeti_worker *w)
{
    const uint32_t walks = fleeti_walks(w);
    const uint32_t waves = FLEETI_LEVEL_IN(FLEETI_TASK(w, level)) == FLEET_LEVEL_WAVE;
    const uint32_t record = w->number - 1 - w->trace.skip;
    uint32_t records = FLEETI_TASK(w, tile) != FLEETI_TILE_NONE, taken = w->number;
    if (!w->trace.room) return;
    if (waves) records = walks ? FLEETI_BATCH_IN(FLEETI_TASK(w, level)) : w->batch_count;
    if (waves && walks) taken += records - 1;
    w->trace.batch = fleeti_uniform(record + fleet_wave_id());
    if (fleeti_step_of(w) < w->trace.first_step) {
        w->trace.skip = fleeti_uniform(taken);
        return;
    }
    /* In a launch that does not end, numbers of steps and of records wrap: steps do not become early ones again, nor
       records that have no room the first ones. */
    w->trace.first_step = 0;
    records += record;
    w->trace.skip = fleeti_uniform(taken - (records >> 30 == 3 ? records - (1u << 30) : records));
}

FLEET_DEVICE uint32_t fleeti_trace_leads(const fleeti_worker *w)
{
    return w->group == FLEET_WAVE ? w->trace.room : w->trace.lead;
}
/* The compiler moves no access to memory across it. */
FLEET_DEVICE uint64_t fleeti_trace_now(void)
{
    __asm__ volatile("" ::: "memory");
    uint64_t now = fleet_clock_ticks();
    __asm__ volatile("" ::: "memory");
    return now;
}

/* The task in hand has been acquired. */
FLEET_DEVICE void fleeti_trace_taken(fleeti_worker *w)
{
    if (!fleeti_trace_leads(w)) return;
    if (w->group == FLEET_WAVE)
        w->trace.desc = fleeti_uniform(w->batch_at - fleeti_task_waves(w->self));
    uint64_t now = fleeti_trace_now();
    w->trace.low = fleeti_uniform((uint32_t)now);
    w->trace.high = fleeti_uniform((uint32_t)(now >> 32));
}
/* Its events are complete: the tile begins. */
FLEET_DEVICE void fleeti_trace_begun(fleeti_worker *w)
{
    if (fleeti_trace_leads(w)) w->trace.begun = fleeti_uniform((uint32_t)fleeti_trace_now());
}
/* The tile has returned. */
FLEET_DEVICE void fleeti_trace_ended(fleeti_worker *w)
{
    if (fleeti_trace_leads(w)) w->trace.ended = fleeti_uniform((uint32_t)fleeti_trace_now());
}

/* The descriptor of the workgroup's task in hand. */
FLEET_DEVICE uint32_t fleeti_trace_desc(const fleeti_worker *w)
{
    if (fleeti_walks(w)) return fleeti_static_desc(w);
    return fleeti_uniform(fleeti_lds_get(w->slots, FLEETI_SLOT_INDEX(w->number - 1)));
}
/* The task has notified. */
FLEET_DEVICE void fleeti_trace_notified(fleeti_worker *w)
{
    fleeti_tracer *t = &w->trace;
    const uint32_t step = fleeti_step_of(w);
    const uint32_t absent = w->absent || FLEETI_TASK(w, tile) >= FLEETI_TILE_ABSENT;
    uint32_t number, desc, flags = FLEETI_TRACE_VALID | (absent ? FLEETI_TRACE_ABSENT : 0);
    fleet_quad first, second;
    if (!fleeti_trace_leads(w) || FLEETI_TASK(w, tile) == FLEETI_TILE_NONE) return;
    if (w->group == FLEET_WAVE) {
        number = t->batch;
        t->batch = fleeti_uniform(number + fleeti_task_waves(w->self));
        desc = t->desc;
        flags |= fleet_wave_id() << 8;
    } else {
        number = w->number - 1 - t->skip;
        desc = fleeti_trace_desc(w);
    }
    if (number >= t->room || step < t->first_step) return;
    fleeti_trace_record *record = (fleeti_trace_record *)t->records + number;
    first.word[0] = t->low, first.word[1] = t->high;
    first.word[2] = t->begun, first.word[3] = t->ended;
    second.word[0] = (uint32_t)fleeti_trace_now();
    second.word[1] = desc, second.word[2] = step, second.word[3] = flags;
    /* The end of the kernel publishes the record to the host. Pair: the copy to the host (edge 17). */
    if (fleet_lane() == 0) {
        fleet_store_nt16(record, first);
        fleet_store_nt16(&record->notified, second);
    }
}

/* The worker runs no further task. */
FLEET_DEVICE void fleeti_trace_leave(const fleeti_worker *w)
{
    fleeti_trace *trace = fleeti_state_of(w)->config.trace;
    fleet_quad row;
    if (!w->trace.lead || fleet_lane() != 0) return;
    row.word[0] = w->number - w->trace.skip;
    row.word[1] = 1 + fleet_load_relaxed_device(&fleeti_state_of(w)->bucket.word);
    row.word[2] = fleeti_task_waves(w->self);
    row.word[3] = 0;
    fleet_store_nt16((fleeti_trace_row *)(void *)(trace + 1) + w->fixed->id, row);
}

#else

#define fleeti_trace_enter(w) ((void)(w))
#define fleeti_trace_count(w) ((void)(w))
#define fleeti_trace_taken(w) ((void)(w))
#define fleeti_trace_begun(w) ((void)(w))
#define fleeti_trace_ended(w) ((void)(w))
#define fleeti_trace_notified(w) ((void)(w))
#define fleeti_trace_leave(w) ((void)(w))

#endif /* FLEET_TRACE */

/* ==== >>loop: the worker loop ==== */

/* ---- verbs of the worker's schedule ---- */

FLEET_DEVICE void fleeti_start(fleeti_worker *w)
{
    if (!w->slow) fleeti_static_start(w);
    if (fleeti_schedule_of(w) == FLEET_SCHEDULE_CHIPLET) fleeti_chiplet_start(w);
    if (fleeti_schedule_of(w) == FLEET_SCHEDULE_DYNAMIC) fleeti_dynamic_start(w);
}

FLEET_DEVICE uint32_t fleeti_next(fleeti_worker *w)
{
    if (fleeti_schedule_of(w) == FLEET_SCHEDULE_STATIC) return fleeti_static_next(w);
    if (fleeti_schedule_of(w) == FLEET_SCHEDULE_CHIPLET) return fleeti_chiplet_next(w);
    return fleeti_dynamic_next(w);
}

/* The wavefront-tasks of a batch whose first descriptor is in the last slot: returns the first descriptor of this
   wave; *end: of all of them. */
FLEET_DEVICE uint32_t fleeti_batch(fleeti_worker *w, uint32_t *end)
{
    if (fleeti_schedule_of(w) == FLEET_SCHEDULE_STATIC) return fleeti_static_batch(w, end);
    if (fleeti_schedule_of(w) == FLEET_SCHEDULE_CHIPLET) return fleeti_chiplet_batch(w, end);
    return fleeti_dynamic_batch(w, end);
}

/* How many wait records of the task in hand its group must poll. None under CHIPLET, whose scheduler saw its events
   complete, and for a single task. */
FLEET_DEVICE uint32_t fleeti_wait_count(const fleeti_worker *w)
{
    if (fleeti_schedule_of(w) == FLEET_SCHEDULE_STATIC) return fleeti_static_wait(w);
    if (fleeti_schedule_of(w) == FLEET_SCHEDULE_DYNAMIC) return fleeti_dynamic_wait(w);
    return 0;
}

/* ---- worker start ---- */

FLEET_DEVICE void fleeti_use_plan(fleeti_fixed *f, const fleet_plan *plan)
{
    const char *block = (const char *)plan;
    f->plan = (FLEETI_GLOBAL_POINTER(const fleet_plan))fleeti_uniform_address(plan);
    f->tasks = (FLEETI_GLOBAL_POINTER(const fleet_task))fleeti_uniform_address(block + plan->tasks);
    f->waits =
        (FLEETI_GLOBAL_POINTER(const fleeti_wait))fleeti_uniform_address(block + plan->waits);
    f->notifies =
        (FLEETI_GLOBAL_POINTER(const fleeti_notify))fleeti_uniform_address(block + plan->notifies);
}
/* The workgroup's role, in all threads. counts: LDS that is free until the first task. began: what the claim has left for
   the run, if there is a role. place: see FLEETI_PLACE_OF. */
FLEET_DEVICE uint32_t fleeti_enter_run(fleeti_thread self, const fleet_run *run, uint32_t raw,
                                       fleeti_lds counts, fleeti_run_line *began, uint32_t *place)
{
    uint32_t role = 0;
    __builtin_memset(began, 0, sizeof *began);
    if (fleet_thread_id() == 0) {
        /* In flight together. They belong to this launch if the workgroup gets a role. */
        const fleeti_run_line *line = &run->state->result[raw];
        began->word = fleet_load_relaxed_device(&line->word);
        began->key = fleet_load_relaxed_device(&line->key);
        began->bucket = fleet_load_relaxed_device(&line->bucket);
        began->bucket_epoch = fleet_load_relaxed_device(&line->bucket_epoch);
        began->epoch = fleet_load_relaxed_device(&line->epoch);
        *place = FLEETI_PLACE_OF_BUCKET(began->bucket);
        role = fleeti_residency_check(run, raw, counts, began, place);
    }
    /* The two words by turns, and word 0 is that of the broadcast that follows (fleeti_chiplet_next). */
    began->bucket = run->plan->n_buckets == 1 ? 0 : fleeti_broadcast(self, began->bucket, 0);
    role = fleeti_broadcast(self, role, 1);
    began->bucket_epoch = fleeti_broadcast(self, began->bucket_epoch, 0);
    began->epoch = fleeti_broadcast(self, began->epoch, 1);
    return role;
}
typedef char counts_fit_the_slots[4 * FLEETI_LOOP_QUADS >= FLEET_MAX_CHIPLETS ? 1 : -1];

/* The weight pipeline takes the first part of the LDS; tiles get the rest. */
FLEET_DEVICE void fleeti_enter_pipeline(fleeti_worker *w, fleeti_fixed *f, const fleet_run *run,
                                        uint32_t stages, uint32_t stage_bytes, void **lds,
                                        uint32_t *lds_bytes)
{
    const uint32_t ring = FLEETI_PIPELINE_BYTES(stages, stage_bytes);
    const uint32_t misfit = *lds_bytes < ring || fleet_wave_count() < 2;
    w->pipeline = fleeti_pipeline_of(*lds, stages, stage_bytes);
    w->pipeline.words = fleeti_lds_kept(w->pipeline.words);
    f->launch_error = fleeti_uniform(misfit ? FLEET_ERROR_LAUNCH : FLEET_OK);
    if (!misfit)
        fleeti_pipeline_init(&w->pipeline, run->limit_ticks, &run->state->stop.word,
                             fleet_wave_count() - 1);
    *lds = (char *)*lds + ring;
    *lds_bytes = misfit ? 0 : *lds_bytes - ring;
}

/* fleet_launch_task: no residency check, no schedule, and no record in the state. */
FLEET_DEVICE void fleeti_enter_single_task(fleeti_worker *w, fleeti_fixed *f, const fleet_run *run,
                                           uint32_t only_static)
{
    const fleet_plan *plan = run->plan;
    fleeti_use_plan(f, plan);
    fleet_block_barrier();
    w->schedule = FLEETI_SINGLE_TASK;
    w->slow = 1;
    f->first = fleeti_uniform(run->single_task - 1);
    w->epoch = 1;
    f->chiplet = fleeti_uniform(run->single_chiplet);
    f->workers = fleeti_uniform(plan->workers[run->single_chiplet]);
    f->worker = fleeti_uniform(fleet_block_id());
    f->id = fleeti_uniform(plan->total_workers);
    f->role = FLEETI_ROLE_NONE;
    if (only_static) f->launch_error = FLEET_ERROR_UNSUPPORTED;
    if (w->fixed->launch_error) {
        if (fleet_thread_id() == 0)
            fleeti_publish_system(&run->state->config.host->task_status, w->fixed->launch_error);
        w->done = 1;
    }
}

/* The numbers of tasks begin with this one, those of a test instead of 0. */
FLEET_DEVICE void fleeti_begin_numbers(fleeti_worker *w)
{
    if (FLEETI_TEST_START == 0) return;
    w->number = w->prefetch_at = FLEETI_TEST_START;
    w->head = w->prefetch_number = w->begun = FLEETI_TEST_START;
    w->steps_left -= fleeti_steps_taken(w);
#if defined(FLEET_TRACE)
    w->trace.skip = FLEETI_TEST_START;
#endif
}

/* Runs the residency check and prepares the worker, whose constant part is `f`. The whole workgroup calls it. */
FLEET_DEVICE void fleeti_enter(fleeti_worker *w, fleeti_fixed *f, const fleet_run *run, void *lds,
                               uint32_t lds_bytes, uint32_t stages, uint32_t stage_bytes,
                               uint32_t only_static)
{
    const fleet_plan *plan = run->plan;
    fleeti_state *state = run->state;
    fleeti_run_line began;
    FLEET_LDS(fleeti_quad, slots, FLEETI_LOOP_QUADS);
    __builtin_memset(w, 0, sizeof *w);
    __builtin_memset(f, 0, sizeof *f);
    w->fixed = f;
    f->state = (FLEETI_GLOBAL_POINTER(fleeti_state))fleeti_uniform_address(run->state);
    f->counters =
        (FLEETI_GLOBAL_POINTER(uint32_t))fleeti_uniform_address(run->state->config.counters);
    f->steps = w->steps_left = fleeti_uniform(run->steps);
    f->blocks = fleeti_uniform(fleet_block_count());
    w->schedule = fleeti_uniform(plan->schedule);
    f->chiplets = fleeti_uniform(plan->chiplets);
    w->group = FLEET_BLOCK;
    if (stages) fleeti_enter_pipeline(w, f, run, stages, stage_bytes, &lds, &lds_bytes);
    w->lds = lds;
    f->lds_bytes = fleeti_uniform(lds_bytes);
    w->lds_mark = fleeti_lds_mark();
    w->self = fleeti_thread_kept();
    w->slots = fleeti_lds_kept(fleeti_lds_of(slots));
    if (fleet_thread_id() == 0) {
        fleeti_lds_put(w->self.lds, FLEETI_LDS_VOTE(0), 0);
        fleeti_lds_put(w->self.lds, FLEETI_LDS_VOTE(1), 0);
        fleeti_lds_put(w->self.lds, FLEETI_LDS_DEFERRED, 0);
        fleeti_lds_put(w->self.lds, FLEETI_LDS_BARRIER, 0);
        fleeti_lds_put(w->self.lds, FLEETI_LDS_BARRIER + 1, FLEETI_TEST_START);
    }
    fleeti_begin_numbers(w);
    if (run->single_task) {
        fleeti_enter_single_task(w, f, run, only_static);
        return;
    }
    uint32_t line = fleeti_uniform(fleeti_chiplet_line(run->state)), place = 0;
    fleeti_let_kernel_begin(); /* the claim of the next launch */
    fleeti_await_kernel();     /* that of this one, whose stores are read from here on */
    uint32_t role = fleeti_enter_run(w->self, run, line, w->slots, &began, &place);
    f->place = fleeti_uniform(place);
    f->role = fleeti_uniform(role);
    if (role < FLEETI_ROLE_FIRST) {
        w->done = 1;
        w->slow = 1;
        return;
    }
    if (role & FLEETI_ROLE_BESIDE) {
        fleeti_workgroup_beside();
        state = state->config.other;
        plan = state->config.plan;
        f->state = (FLEETI_GLOBAL_POINTER(fleeti_state))fleeti_uniform_address(state);
        f->counters =
            (FLEETI_GLOBAL_POINTER(uint32_t))fleeti_uniform_address(state->config.counters);
        f->chiplets = fleeti_uniform(plan->chiplets);
        began.bucket = fleet_load_relaxed_device(&state->result[0].bucket);
        began.bucket_epoch = fleet_load_relaxed_device(&state->result[0].bucket_epoch);
        began.epoch = fleet_load_relaxed_device(&state->result[0].epoch);
        role -= FLEETI_ROLE_BESIDE;
    }
    plan = fleeti_plan_at(plan, began.bucket);
    fleeti_use_plan(f, plan);
    w->schedule = fleeti_uniform(plan->schedule); /* buckets may differ */
    w->epoch = began.bucket_epoch + 1;
    f->epoch_offset = fleeti_uniform(began.epoch - began.bucket_epoch);
    uint32_t chiplet = (role - FLEETI_ROLE_FIRST) >> 16;
    uint32_t rank = (role - FLEETI_ROLE_FIRST) & 0xffff;
    f->chiplet = fleeti_uniform(chiplet);
    f->workers = fleeti_uniform(plan->workers[chiplet]);
    f->worker = fleeti_uniform(rank);
    f->id = fleeti_uniform(plan->worker_base[chiplet] + rank);
    fleeti_trace_enter(w);
    f->mailbox = (FLEETI_GLOBAL_POINTER(fleeti_mailbox))fleeti_uniform_address(
        state->config.mailboxes + plan->worker_base[chiplet] +
        (rank < plan->workers[chiplet] ? rank : 0));
    const fleeti_queue *queue =
        fleeti_plan_queues(plan) +
        (fleeti_schedule_of(w) == FLEET_SCHEDULE_CHIPLET ? chiplet : w->fixed->id);
    if (only_static) { /* a constant: the compiler drops the code for other schedules */
        if (plan->schedule != FLEET_SCHEDULE_STATIC) f->launch_error = FLEET_ERROR_UNSUPPORTED;
        w->schedule = FLEET_SCHEDULE_STATIC;
    }
    f->first = fleeti_uniform(queue->first);
    f->count = fleeti_uniform(queue->count);
    f->looks_ahead = fleeti_uniform(plan->guarded && !plan->rebinds);
    /* A chiplet without tasks has no end of a step to wait for. */
    uint32_t done =
        run->steps == 0 ||
        (fleeti_schedule_of(w) == FLEET_SCHEDULE_DYNAMIC ? plan->n_tasks : queue->count) == 0;
    if (w->fixed->launch_error) {
        fleeti_wait_diagnostics seen;
        seen.status = (fleet_status)w->fixed->launch_error, seen.counter = 0;
        seen.found = run->lds_bytes, seen.expected = FLEETI_PIPELINE_BYTES(stages, stage_bytes);
        if (fleet_thread_id() == 0)
            fleeti_record_failure(state, w->fixed->id, 0, w->epoch, seen, 0);
        done = 1;
    }
    w->done = fleeti_uniform(done);
    w->slow = done || fleeti_schedule_of(w) != FLEET_SCHEDULE_STATIC;
    w->polled_at = fleeti_uniform(fleeti_cycles());
    /* so that workers do not poll the host's word at the same time */
    w->looked_at = fleeti_uniform(fleeti_cycles() - w->fixed->id % 64 * (FLEETI_ABORT_CYCLES / 64));
    w->prefetches = fleeti_thread_wave(w->self) + 1 + (stages != 0) == fleet_wave_count();
    w->may_look_ahead = stages == 0;
    fleeti_start(w);
}

/* ---- next task ---- */

/* The next task where it is not in the next slot already: the next one of a batch, from a mailbox or a ready ring, a
   single task, or none. Returns 1 with a task in hand, 2 with one in the next slot, 0 when the run is over for this
   worker. */
FLEET_DEVICE uint32_t fleeti_next_of_schedule(fleeti_worker *w)
{
    const uint32_t next = w->batch_at;
    if (next < w->batch_end) { /* each wave has its own */
        w->task = fleeti_pinned_from_memory(fleeti_tasks_of(w) + next);
        w->batch_at = fleeti_uniform(next + fleeti_task_waves(w->self));
        return 1;
    }
    if (fleeti_schedule_of(w) == FLEETI_SINGLE_TASK && w->done)
        return 0;                 /* the other waves have left */
    if (w->group == FLEET_WAVE) { /* the batch is over: the waves meet again, and stop together */
        w->group = FLEET_BLOCK;
        w->turn ^= 1;
        w->done = fleeti_uniform(fleeti_block_vote(w->self, w->veto, w->turn));
    }
    if (w->done) return 0;
    if (fleeti_schedule_of(w) != FLEETI_SINGLE_TASK) return 2 * fleeti_next(w);
    w->done = 1;
    w->task = fleeti_pinned_from_memory(fleeti_tasks_of(w) + w->fixed->first);
    if (FLEETI_LEVEL_IN(FLEETI_TASK(w, level)) != FLEET_LEVEL_WAVE) return 1;
    w->group = FLEET_WAVE;
    return fleet_wave_id() == 0;
}

/* The rest of fleeti_next_task, for tasks that are not plain. */
FLEET_DEVICE uint32_t fleeti_next_task_slow(fleeti_worker *w)
{
    if (w->vetoed) { /* the notify of the plain task before this one was vetoed */
        if (w->tile_status)
            fleeti_tile_failed(
                w, fleeti_lds_get(w->slots, FLEETI_SLOT(w->number - 1) + FLEETI_WORD(id)),
                w->tile_status);
        return 0;
    }
    for (;;) { /* loop 26 */
        uint32_t how = w->slow ? fleeti_next_of_schedule(w) : 2;
        if (how == 0) return 0;
        if (how == 2) {
            w->task = fleeti_pinned_from_lds(w->slots, FLEETI_SLOT(w->number));
            w->number++;
            fleeti_trace_count(w);
            if (FLEETI_LEVEL_IN(FLEETI_TASK(w, level)) == FLEET_LEVEL_WAVE) {
                uint32_t end = 0;
                w->batch_at = fleeti_uniform(fleeti_batch(w, &end));
                w->batch_end = fleeti_uniform(end);
                w->group = FLEET_WAVE;
                w->slow = 1;
                continue;
            }
        }
        w->absent = fleeti_task_has(w, FLEETI_GUARDED) ? fleeti_is_absent(w) : 0;
        fleeti_trace_taken(w);
        return 1;
    }
}

/* Brings the next task of this group into w->task; 0: the run is over for this worker. A plain task is in the next
   slot, is not absent, uses the whole workgroup and notifies at most one event, as most tasks do. The end of a step
   is not plain. */
FLEET_DEVICE uint32_t fleeti_next_task(fleeti_worker *w)
{
    fleeti_lds_reset(w->lds_mark);
    w->plain = 0;
    if (w->slow) {
        /* The first wave may be filling the slot, and the descriptor of the task before must not stay in registers. */
        __builtin_memset(&w->task, 0, sizeof w->task);
    } else {
        w->task = fleeti_pinned_from_lds(w->slots, FLEETI_SLOT(w->number));
        /* The upper half of n_waits is the number of notify records: at most one. */
        w->plain = (w->vetoed | FLEETI_TASK(w, n_waits) >> 17 |
                    fleeti_task_has(w, FLEETI_GUARDED | FLEETI_MAPPED)) == 0 &&
                   FLEETI_LEVEL_IN(FLEETI_TASK(w, level)) != FLEET_LEVEL_WAVE &&
                   FLEETI_TASK(w, tile) != FLEETI_TILE_NONE;
    }
    w->absent = 0;
    if (!w->plain) return fleeti_next_task_slow(w);
    w->number++;
    fleeti_trace_taken(w);
    return 1;
}

/* ---- wait and notify ---- */

/* This worker acquires no further task; in a batch, once its waves have met: a wavefront-task that did not run
   published nothing, so the end of the step must not follow it. */
FLEET_DEVICE void fleeti_stop(fleeti_worker *w)
{
    if (w->group == FLEET_BLOCK) {
        w->done = 1;
        w->slow = 1;
    } else {
        w->batch_at = w->batch_end;
        w->veto = 1;
    }
}

/* Whether a prefetch may run: the task will wait, and is known to exist. Run-time tensors tell that only after the
   wait. */
FLEET_DEVICE uint32_t fleeti_may_prefetch(const fleeti_worker *w)
{
    return fleeti_wait_count(w) && !w->absent && !fleeti_task_has(w, FLEETI_MAPPED);
}

/* Waits for the events of the task in hand; 0: the run ends, and the tile must not run. */
FLEET_DEVICE uint32_t fleeti_wait_events(fleeti_worker *w, uint32_t n)
{
    const fleeti_wait *waits = fleeti_waits_of(w) + FLEETI_TASK(w, waits);
    fleeti_wait_diagnostics seen;
    seen.status = FLEET_OK;
    fleeti_wait first = fleeti_walks(w) ? fleeti_static_first_wait(w) : waits[0];
    fleet_status status =
        fleeti_wait_all(w->self, w->group, fleeti_counters_of(w), first, waits, n, w->epoch,
                        (fleet_scope)FLEETI_ACQUIRE_IN(FLEETI_TASK(w, level)),
                        &fleeti_state_of(w)->config.watch, &seen);
    if (!status) return 1;
    if (seen.status) /* in the lane whose event it was */
        fleeti_record_failure(fleeti_state_of(w), w->fixed->id, FLEETI_TASK(w, id), w->epoch, seen,
                              0);
    fleeti_stop(w);
    return 0;
}

/* Makes the task in hand ready to run; 0: it must not run. Its events are complete already where a scheduler or the
   last arrival saw them complete, and the worker has acquired. */
FLEET_DEVICE uint32_t fleeti_wait_task(fleeti_worker *w)
{
    fleeti_record_running(w, w->group);
    if (fleeti_schedule_of(w) == FLEET_SCHEDULE_DYNAMIC &&
        fleeti_uniform(fleeti_lds_get(w->slots, FLEETI_EARLY_WORD)))
        fleeti_push_early(w);
    uint32_t n = fleeti_wait_count(w);
    /* Of a settled grid that has vanished; fleet.h, fleeti_find_settled, says why no task misses this wait. */
    if (w->absent == 2 && fleeti_task_has(w, FLEETI_SETTLED)) n = 0;
    if (n && !fleeti_wait_events(w, n)) return 0;
    if (!w->plain && fleeti_task_has(w, FLEETI_MAPPED) && !w->absent)
        w->absent = fleeti_is_missing(w);
    return 1;
}

/* The rest of fleeti_finish_task, for tasks that are not plain. */
FLEET_DEVICE uint32_t fleeti_finish_task_slow(fleeti_worker *w, fleet_status tile_status)
{
    const fleeti_notify *notifies = fleeti_notifies_of(w) + FLEETI_TASK(w, notifies);
    fleeti_notify first;
    uint32_t n = FLEETI_TASK(w, n_waits) >> 16, veto = 0;
    const uint32_t mapped = fleeti_task_has(w, FLEETI_MAPPED);
    if (fleeti_schedule_of(w) == FLEETI_SINGLE_TASK) {
        if (tile_status)
            fleeti_publish_system(&fleeti_state_of(w)->config.host->task_status,
                                  (uint32_t)tile_status);
        return 0;
    }
    if (tile_status) fleeti_tile_failed(w, FLEETI_TASK(w, id), tile_status);
    if (mapped && !w->absent) veto = fleeti_tensors_wrong(w);
    __builtin_memset(&first, 0, sizeof first);
    if (w->group == FLEET_WAVE) {
        if (n) first = notifies[0];
    } else {
        w->turn ^= 1;
        if (w->slow) fleeti_slot_notify_fetched(w);
        if (n && fleeti_is_leader(w->self, FLEET_BLOCK))
            first = fleeti_slot_notify(w, w->number - 1);
    }
    veto |= w->stop || tile_status != FLEET_OK;
    if (fleeti_schedule_of(w) == FLEET_SCHEDULE_DYNAMIC && fleeti_task_has(w, FLEETI_FEEDS))
        return fleeti_dynamic_finish(w, first, notifies, n, mapped, veto);
    return fleeti_notify_all(w->self, w->group, fleeti_counters_of(w), first, notifies, n, w->epoch,
                             NULL, 0, 0, NULL, 1, veto, w->turn)
        .flags;
}

/* fleeti_finishes, by all threads of the workgroup. No other broadcast of word 1 is near. */
FLEET_DEVICE uint32_t fleeti_finishes_block(const fleeti_worker *w)
{
    uint32_t last = 0;
    if (fleeti_thread_wave(w->self) == 0) last = fleeti_finishes(w, w->fixed->id);
    return fleeti_broadcast(w->self, last, 1);
}

/* After the tile: publishes its data, counts steps, and fetches descriptors ahead. */
FLEET_DEVICE void fleeti_finish_task(fleeti_worker *w, fleet_status tile_status)
{
    fleeti_trace_ended(w);
    if (w->plain) { /* a veto is checked together with the next task */
        /* tells the compiler that it is at most 1 */
        const uint32_t n = FLEETI_TASK(w, n_waits) >> 16 != 0;
        fleeti_notify first;
        __builtin_memset(&first, 0, sizeof first);
        if (n && fleeti_is_leader(w->self, FLEET_BLOCK))
            first = fleeti_slot_notify(w, w->number - 1);
        w->turn ^= 1;
        w->tile_status = tile_status;
        w->vetoed =
            fleeti_notify_all(w->self, FLEET_BLOCK, fleeti_counters_of(w), first, NULL, n, w->epoch,
                              NULL, 0, 0, NULL, 1, w->stop | (uint32_t)tile_status, w->turn)
                .flags &
            FLEETI_VETOED;
        if (w->prefetches) fleeti_static_finish(w);
    } else if (fleeti_finish_task_slow(w, tile_status) & FLEETI_VETOED) {
        fleeti_stop(w);
    } else {
        if (w->prefetches && !w->slow) fleeti_static_finish(w);
        if (FLEETI_TASK(w, tile) == FLEETI_TILE_NONE) {
            uint32_t last = 0;
            w->head = fleeti_uniform(w->number);
            if (fleeti_goes_on(w) && fleeti_state_of(w)->config.finish)
                last = fleeti_finishes_block(w);
            if (fleeti_step_ends(w) | last) {
                w->done = 1;
                w->slow = 1;
            }
        }
    }
    fleeti_trace_notified(w);
}

/* ---- loop macros ---- */

/* Private parts of the macros above. */
/* An entry of a list is (set, name) or (set, name, member), and name may be that of a macro, which
   only pasting leaves alone: x##__VA_ARGS__ is xname, or xname and member. */
#define FLEETI_FIRST(first, ...) first
#define FLEETI_TILE_ENUM(set, ...) FLEETI_FIRST(set##_##__VA_ARGS__, ~),
#define FLEETI_PICK(number, a, b, c, chosen, ...) chosen
#define FLEETI_WHOLE_ARGS(number, function) fleeti_a
#define FLEETI_MEMBER_ARGS(number, member, function, again) &fleeti_a->member
/* What a function of the tile gets. */
#define FLEETI_ARGS_FOR(...)                                                                       \
    FLEETI_PICK(__VA_ARGS__, FLEETI_MEMBER_ARGS, ~, FLEETI_WHOLE_ARGS, ~)(__VA_ARGS__)
#define FLEETI_NUMBER_FOR(...) FLEETI_FIRST(__VA_ARGS__, ~)
#define FLEETI_FUNCTION_FOR(...)                                                                   \
    FLEETI_PICK(__VA_ARGS__, FLEETI_THIRD, ~, FLEETI_SECOND, ~)(__VA_ARGS__)
#define FLEETI_SECOND(number, function) function
#define FLEETI_THIRD(number, member, function, again) function
#if defined(__cplusplus)
#define FLEETI_CHECK_ARGS(...) /* a wrong type is an error in any case */
#else
#define FLEETI_CHECK_ARGS(...) FLEETI_CHECK_ARGS_OF(__VA_ARGS__)
#define FLEETI_CHECK_ARGS_OF(type, ...)                                                            \
    _Static_assert(_Generic((__VA_ARGS__), type : 1, default : 0),                                 \
                   #type ": the struct of this FLEET_TILE is neither the set's nor that of the "   \
                         "member that the list names");
#endif
#define FLEETI_TILE_CASE(set, ...)                                                                 \
    case FLEETI_NUMBER_FOR(set##_##__VA_ARGS__): {                                                 \
        FLEETI_CHECK_ARGS(FLEETI_FIRST(fleeti_args_named_##__VA_ARGS__, ~),                        \
                          FLEETI_ARGS_FOR(set##_##__VA_ARGS__, fleeti_tile_named_##__VA_ARGS__))   \
        return FLEETI_FUNCTION_FOR(set##_##__VA_ARGS__, fleeti_tile_named_##__VA_ARGS__)(          \
            fleeti_c, FLEETI_ARGS_FOR(set##_##__VA_ARGS__, fleeti_tile_named_##__VA_ARGS__));      \
    }
#define FLEETI_DISPATCH(set, LIST)                                                                 \
    enum { LIST(FLEETI_TILE_ENUM, set) fleeti_set_##set##_tiles };                                 \
    FLEET_DEVICE fleet_status fleeti_set_##set##_dispatch(                                         \
        uint32_t fleeti_t, const fleet_ctx fleeti_c, const set *fleeti_a)                          \
    {                                                                                              \
        switch (fleeti_t) {                                                                        \
            LIST(FLEETI_TILE_CASE, set)                                                            \
        }                                                                                          \
        return fleeti_t >= FLEETI_TILE_ABSENT ? FLEET_OK : FLEET_ERROR_ARGUMENT;                   \
    }                                                                                              \
    FLEETI_HOST_TILE(set)
/* Calls the tile of the task in hand. */
#if defined(FLEET_HOST) /* the engine does, which can end it */
#define FLEETI_HOST_TILE(set)                                                                      \
    static __attribute__((unused)) fleet_status fleeti_set_##set##_tile(                           \
        uint32_t fleeti_t, const void *fleeti_c, const void *fleeti_a)                             \
    {                                                                                              \
        return fleeti_set_##set##_dispatch(fleeti_t, *(const fleet_ctx *)fleeti_c,                 \
                                           (const set *)fleeti_a);                                 \
    }
#define FLEETI_CALL_TILE(set, w, ctx, args)                                                        \
    fleeti_host_tile(fleeti_set_##set##_tile, fleeti_tile_of(w), &(ctx), args, fleeti_plan_of(w),  \
                     (ctx).task, fleeti_state_of(w)->config.watch.limit_ticks)
#else
#define FLEETI_HOST_TILE(set)
#define FLEETI_CALL_TILE(set, w, ctx, args)                                                        \
    fleeti_set_##set##_dispatch(fleeti_tile_of(w), ctx, args)
#endif
#define FLEETI_NO_PREFETCH(set)                                                                    \
    enum { fleeti_set_##set##_prefetches = 0 };                                                    \
    typedef uint32_t fleeti_set_##set##_registers;                                                 \
    FLEET_DEVICE uint32_t fleeti_set_##set##_prefetch(uint32_t fleeti_t, const fleet_ctx fleeti_c, \
                                                      const set *fleeti_a)                         \
    {                                                                                              \
        (void)fleeti_t, (void)fleeti_c, (void)fleeti_a;                                            \
        return 0;                                                                                  \
    }
#define FLEETI_PREFETCHES(set, PREFETCHES, registers)                                              \
    enum { fleeti_set_##set##_prefetches = 1 };                                                    \
    typedef registers fleeti_set_##set##_registers;                                                \
    FLEET_DEVICE uint32_t fleeti_set_##set##_prefetch(uint32_t fleeti_t, const fleet_ctx fleeti_c, \
                                                      const set *fleeti_a)                         \
    {                                                                                              \
        switch (fleeti_t) {                                                                        \
            PREFETCHES(FLEETI_PREFETCH_CASE, set)                                                  \
        }                                                                                          \
        return 0;                                                                                  \
    }
#define FLEETI_NO_PIPELINE(set)                                                                    \
    enum { fleeti_set_##set##_stages = 0, fleeti_set_##set##_stage_bytes = 16 };                   \
    FLEET_DEVICE void fleeti_set_##set##_produce(uint32_t fleeti_t, const fleet_ctx fleeti_c,      \
                                                 const set *fleeti_a, fleet_producer *fleeti_s)    \
    {                                                                                              \
        (void)fleeti_t, (void)fleeti_c, (void)fleeti_a, (void)fleeti_s;                            \
    }

#define FLEETI_PIPELINE(set, PRODUCERS, stages, stage_bytes)                                       \
    typedef char                                                                                   \
        fleeti_set_##set##_stage_bytes_must_be_a_multiple_of_1024[(stage_bytes) % 1024 ? -1 : 1];  \
    enum { fleeti_set_##set##_stages = (stages), fleeti_set_##set##_stage_bytes = (stage_bytes) }; \
    FLEET_DEVICE void fleeti_set_##set##_produce(uint32_t fleeti_t, const fleet_ctx fleeti_c,      \
                                                 const set *fleeti_a, fleet_producer *fleeti_s)    \
    {                                                                                              \
        switch (fleeti_t) {                                                                        \
            PRODUCERS(FLEETI_PIPELINE_CASE, set)                                                   \
        }                                                                                          \
    }

#define FLEETI_PREFETCH_CASE(set, ...)                                                             \
    case FLEETI_NUMBER_FOR(set##_##__VA_ARGS__):                                                   \
        FLEETI_FUNCTION_FOR(set##_##__VA_ARGS__, fleeti_prefetch_named_##__VA_ARGS__)              \
        (fleeti_c, FLEETI_ARGS_FOR(set##_##__VA_ARGS__, fleeti_prefetch_named_##__VA_ARGS__),      \
         fleeti_c.at);                                                                             \
        return 1;

#define FLEETI_PIPELINE_CASE(set, ...)                                                             \
    case FLEETI_NUMBER_FOR(set##_##__VA_ARGS__):                                                   \
        FLEETI_FUNCTION_FOR(set##_##__VA_ARGS__, fleeti_producer_named_##__VA_ARGS__)              \
        (fleeti_c, FLEETI_ARGS_FOR(set##_##__VA_ARGS__, fleeti_producer_named_##__VA_ARGS__),      \
         fleeti_c.at, fleeti_s);                                                                   \
        break;

/* The arguments of the task in hand. */
#define FLEETI_ARGS(set, w) ((const set *)(w)->fixed->args + FLEETI_TASK(w, args))
#define FLEETI_LOOP(set, fleet_run_, set_args, lds, lds_bytes, only_static)                        \
    do {                                                                                           \
        fleeti_worker fleeti_w;                                                                    \
        fleeti_fixed fleeti_f;                                                                     \
        const fleet_run fleeti_r = (fleet_run_);                                                   \
        fleeti_enter(&fleeti_w, &fleeti_f, &fleeti_r, (lds), (lds_bytes),                          \
                     fleeti_set_##set##_stages, fleeti_set_##set##_stage_bytes, only_static);      \
        fleeti_f.args = (FLEETI_GLOBAL_POINTER(const void))fleeti_uniform_address(set_args);       \
        fleeti_w.fixed = fleeti_fixed_in_lds(&fleeti_f);                                           \
        fleeti_w.self.has_producer =                                                               \
            fleeti_set_##set##_stages != 0;                         /* from here on; a constant */ \
        fleeti_w.may_look_ahead = fleeti_set_##set##_stages == 0;   /* likewise */                 \
        if (only_static) fleeti_w.schedule = FLEET_SCHEDULE_STATIC; /* likewise */                 \
        if (!(only_static) && fleeti_is_scheduler(&fleeti_w)) {                                    \
            if (fleet_wave_id() == 0) fleeti_scheduler(&fleeti_w);                                 \
        } else if (fleeti_set_##set##_stages > 0 && fleeti_is_producer(&fleeti_w)) {               \
            fleet_producer fleeti_s;                                                               \
            fleeti_produce(&fleeti_w, &fleeti_s);                                                  \
            /* loop 24 */                                                                          \
            while (fleeti_produce_next(&fleeti_w, &fleeti_s)) {                                    \
                fleeti_set_##set##_produce(FLEETI_TASK(&fleeti_w, tile),                           \
                                           fleeti_context(&fleeti_w), FLEETI_ARGS(set, &fleeti_w), \
                                           &fleeti_s);                                             \
                fleeti_producer_end_task(&fleeti_s);                                               \
            }                                                                                      \
            fleeti_produce_end(&fleeti_w, &fleeti_s);                                              \
        } else {                                                                                   \
            fleeti_set_##set##_registers fleeti_held;                                              \
            __builtin_memset(&fleeti_held, 0, sizeof fleeti_held);                                 \
            /* loop 25 */                                                                          \
            while (fleeti_next_task(&fleeti_w)) {                                                  \
                /* Computed before the wait, so that the tile begins right after it. */            \
                fleet_ctx fleeti_here = fleeti_context(&fleeti_w);                                 \
                if (fleeti_set_##set##_stages > 0)                                                 \
                    fleeti_pipeline_locate(&fleeti_w, &fleeti_here);                               \
                const set *fleeti_mine = FLEETI_ARGS(set, &fleeti_w);                              \
                set fleeti_copy;                                                                   \
                if (sizeof(set) <= FLEETI_ARGS_PRELOAD_BYTES) {                                    \
                    /* Loaded before the wait, too, to registers. */                               \
                    __builtin_memset(&fleeti_copy, 0, sizeof(set));                                \
                    if (fleeti_w.fixed->args)                                                      \
                        __builtin_memcpy(&fleeti_copy, fleeti_mine, sizeof(set));                  \
                    fleeti_mine = &fleeti_copy;                                                    \
                }                                                                                  \
                if (fleeti_set_##set##_prefetches) {                                               \
                    fleeti_here.registers = &fleeti_held;                                          \
                    if (fleeti_may_prefetch(&fleeti_w) &&                                          \
                        (fleeti_set_##set##_stages == 0 || fleeti_walks(&fleeti_w)))               \
                        fleeti_here.prefetched = fleeti_set_##set##_prefetch(                      \
                            FLEETI_TASK(&fleeti_w, tile), fleeti_here, fleeti_mine);               \
                }                                                                                  \
                if (fleeti_wait_task(&fleeti_w)) {                                                 \
                    if (fleeti_set_##set##_stages > 0) fleeti_pipeline_begun(&fleeti_w);           \
                    fleeti_trace_begun(&fleeti_w);                                                 \
                    fleet_status fleeti_ended =                                                    \
                        FLEETI_CALL_TILE(set, &fleeti_w, fleeti_here, fleeti_mine);                \
                    if (fleeti_set_##set##_stages > 0)                                             \
                        fleeti_ended = fleeti_pipeline_status(&fleeti_w, fleeti_ended);            \
                    fleeti_finish_task(&fleeti_w, fleeti_ended);                                   \
                }                                                                                  \
            }                                                                                      \
            if (fleeti_set_##set##_stages > 0) fleeti_pipeline_stop(&fleeti_w);                    \
            fleeti_trace_leave(&fleeti_w);                                                         \
        }                                                                                          \
        fleeti_leave(&fleeti_w);                                                                   \
    } while (0)

#if defined(FLEET_HOST) /* for the report of a barrier that some threads do not reach */
#define fleet_barrier(ctx) (fleeti_host_line(__LINE__), fleet_barrier(ctx))
#define fleet_reduce_add(ctx, sum, n, lds)                                                         \
    (fleeti_host_line(__LINE__), fleet_reduce_add(ctx, sum, n, lds))
#endif

#endif /* FLEET_SCHED_H */

/* ==== >>implementation: host code ==== */

#if defined(FLEET_IMPLEMENTATION) && !defined(FLEETI_SCHED_IMPLEMENTED)
#define FLEETI_SCHED_IMPLEMENTED

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- helper kernels ---- */

/* The smallest bucket that holds these values. */
FLEET_DEVICE uint32_t fleeti_smallest_bucket(const fleet_plan *plan, const int32_t *values)
{
    const uint64_t *offset = fleeti_plan_buckets(plan);
    uint32_t bucket = 0;
    for (; bucket + 1 < plan->n_buckets; bucket++) {
        const fleet_plan *p = (const fleet_plan *)((const char *)plan + offset[bucket]);
        uint32_t fits = 1;
        for (uint32_t i = 0; i < plan->n_symbols; i++) fits &= values[i] <= p->bound[i];
        if (fits) break;
    }
    return bucket;
}
/* Sets what the launch runs with: its symbols, and the shapes that they give its grids. */
FLEET_DEVICE void fleeti_set_shapes(fleeti_state *state, const fleet_plan *plan)
{
    const fleeti_guard *guards = fleeti_plan_guards(plan);
    const fleeti_symbol *symbols = fleeti_plan_symbols(plan);
    uint32_t guarded = 0;
    for (uint32_t i = 0; i < plan->n_symbols; i++) guarded |= symbols[i].at_launch;
    for (uint32_t i = fleet_thread_id(); i < plan->n_symbols; i += fleet_thread_count())
        fleet_store_relaxed_device((uint32_t *)(void *)&state->symbols[i],
                                   (uint32_t)state->config.symbol_values[i]);
    for (uint32_t g = fleet_thread_id(); guarded && g < plan->n_grids; g += fleet_thread_count())
        for (uint32_t k = 0; k <= FLEET_MAX_RANK; k++) {
            const fleeti_extent d = k < FLEET_MAX_RANK ? guards[g].extent[k] : guards[g].slices;
            fleet_store_relaxed_device(
                (uint32_t *)(void *)state->config.shapes + FLEETI_SHAPE * g + k,
                (uint32_t)fleeti_extent_of(d, d.symbol ? state->config.symbol_values[d.symbol - 1]
                                                       : 0));
        }
}

/* How a claim finds the state, for the log: before others may change it. By one thread. */
FLEET_DEVICE fleeti_log_entry fleeti_log_find(const fleeti_state *state, uint32_t claim,
                                              uint32_t number, fleet_status status)
{
    fleeti_log_entry e;
    e.claim = claim + 1, e.number = number, e.status = (uint32_t)status;
    e.other = fleet_load_relaxed_device(&state->due.open);
    e.finished = fleet_load_relaxed_device(&state->finished.word);
    e.nonresident = fleet_load_relaxed_device(&state->due.nonresident);
    e.met = fleet_load_relaxed_device(&state->due.met);
    e.epoch = fleet_load_relaxed_device(&state->epoch.word);
    return e;
}
/* Writes it down; the end of the kernel publishes it. */
FLEET_DEVICE void fleeti_log_claim(fleeti_state *state, const fleeti_log_entry *e)
{
    fleeti_log_entry *to = &state->config.log->entries[(e->claim - 1) % FLEETI_LOG_ENTRIES];
    fleet_store_relaxed_system(&to->claim, 0);
    fleet_store_relaxed_system(&to->number, e->number);
    fleet_store_relaxed_system(&to->status, e->status);
    fleet_store_relaxed_system(&to->other, e->other);
    fleet_store_relaxed_system(&to->finished, e->finished);
    fleet_store_relaxed_system(&to->nonresident, e->nonresident);
    fleet_store_relaxed_system(&to->met, e->met);
    fleet_store_relaxed_system(&to->epoch, e->epoch);
    fleet_store_relaxed_system(&to->claim, e->claim);
}

/* Makes one of the launch's states ready for the run. began: what the results are to have. at_once:
   the workgroups of a chiplet need no check; or 0. */
FLEET_DEVICE void fleeti_claim_state(const fleet_run *run, fleeti_state *state,
                                     const fleet_plan *plan, fleeti_trace *trace,
                                     const fleeti_run_line *began, uint32_t at_once)
{
    fleeti_set_shapes(state, plan);
    for (uint32_t i = fleet_thread_id(); i < FLEET_MAX_CHIPLETS; i += fleet_thread_count()) {
        fleeti_run_line *result = &state->result[i];
        fleet_store_relaxed_device(&result->word,
                                   at_once && i < plan->chiplets
                                       ? FLEETI_AT_ONCE + (i << 24) + fleeti_blocks_of(plan, i)
                                       : began->word);
        fleet_store_relaxed_device(&result->key, run->key);
        fleet_store_relaxed_device(&result->begun, 0);
        fleet_store_relaxed_device(&result->bucket, began->bucket);
        fleet_store_relaxed_device(&result->bucket_epoch, began->bucket_epoch);
        fleet_store_relaxed_device(&result->epoch, began->epoch);
        fleet_store_relaxed_device(&state->left[i].word, 0);
        fleet_store_relaxed_device(&state->resident[i].word, 0);
    }
    for (uint32_t i = fleet_thread_id();
         fleeti_schedulers(plan) && i < plan->total_workers * FLEETI_MAILBOX;
         i += fleet_thread_count()) {
        fleeti_mailbox *box = &state->config.mailboxes[i / FLEETI_MAILBOX];
        /* The sequence of the entry before the first one. */
        fleeti_post64_device(&box->slot[i % FLEETI_MAILBOX], (uint64_t)(FLEETI_TEST_START & 0xffff)
                                                                 << 48);
        fleet_store_relaxed_device(&box->taken.word, FLEETI_TEST_START);
    }
    if (fleet_thread_id() != 0) return;
    fleet_store_relaxed_device(&state->exited.word, 0);
    state->config.watch.limit_ticks = run->limit_ticks;
    state->config.trace = trace;
    state->config.finish = run->finish;
    fleeti_post64_device(&state->finish.word, 0);
    fleeti_post64_device(&state->idle.word, 0);
}
/* FLEET_OK: the run may begin; else the state is poisoned or aborted. By one thread. */
FLEET_DEVICE fleet_status fleeti_claim_status(fleeti_state *state, uint32_t stop, uint32_t aborted)
{
    if (stop) {
        fleet_add_relaxed_system(&state->config.host->poisoned, 1);
        return FLEET_ERROR_POISONED;
    }
    if (!aborted) return FLEET_OK;
    fleeti_run_cannot_begin(state, fleeti_no_event(FLEET_ERROR_ABORTED)); /* and later ones */
    return FLEET_ERROR_ABORTED;
}
/* Chooses the bucket of the next run. Returns it with the steps that it and the state have
   completed. */
FLEET_DEVICE fleeti_run_line fleeti_claim_bucket(fleeti_state *state, const fleet_plan *plan)
{
    fleeti_run_line began;
    __builtin_memset(&began, 0, sizeof began);
    began.bucket = fleeti_smallest_bucket(plan, state->config.symbol_values);
    began.bucket_epoch = fleet_load_relaxed_device(&state->bucket_epoch[began.bucket]);
    began.epoch = fleet_load_relaxed_device(&state->epoch.word);
    if (fleet_thread_id() == 0) fleet_store_relaxed_device(&state->bucket.word, began.bucket);
    return began;
}

/* After a claim that was refused: until the one that opens a run has set the state, and, where its
   workgroups begin at once and cannot be told from those of this launch, until they have begun.
   Then this launch's may look at the state, and take no place in the run. By one thread. */
FLEET_DEVICE void fleeti_claim_yield(const fleet_run *run)
{
    fleeti_state *state = run->state;
    uint32_t tries = 0, begun = 0;
    uint64_t since = 0;
    /* Acquires what that claim has set. Pair: the RMW at its end (edge 12). loop 30 */
    while (fleeti_poll_device(&state->due.word) >= FLEETI_CLAIMING)
        if (fleeti_pause(&state->due.word, &tries)) return;
    /* loop 31 */
    for (tries = 0;;) {
        for (uint32_t i = begun = 0; i < run->plan->chiplets; i++) {
            const fleeti_run_line *line = &state->result[i];
            begun += FLEETI_RESULT_KIND(fleet_load_relaxed_device(&line->word)) == FLEETI_AT_ONCE &&
                             fleet_load_relaxed_device(&line->key) == run->key
                         ? fleet_load_relaxed_device(&line->begun)
                         : fleeti_blocks_of(run->plan, i); /* none begins there any more */
        }
        if (begun >= run->blocks || fleeti_back_off(NULL, &state->config.watch, &tries, &since))
            return;
    }
}

/* One workgroup, before the run in stream order: counts the launch's workgroups as due and, if no
   others were, opens the run for them (see >>residency). trace: for the records; null: none.
   number: of the launch. at_once: 1, its workgroups need no check. The end of this kernel publishes
   its stores to the next one. */
FLEET_GLOBAL(256)
void fleeti_claim(fleet_run run, fleeti_trace *trace, uint32_t number, uint32_t at_once)
{
    const fleeti_thread self = fleeti_thread_now();
    const uint32_t last = fleet_wave_count() - 1;
    fleeti_state *state = run.state, *other = state->config.other;
    fleeti_log_entry entry;
    fleeti_run_line began, its;
    uint32_t mine = 0, claim = 0, aborted = 0, stop = 0;
    fleeti_await_kernel(); /* whatever is before this launch in its stream */
    __builtin_memset(&began, 0, sizeof began);
    if (fleet_wave_id() == last && fleet_lane() == 0) { /* across the bus: used at the end */
        aborted = fleet_load_relaxed_system(&state->config.host->abort.word) != 0;
        if (other && fleet_load_relaxed_system(&other->config.host->abort.word)) aborted |= 2;
    }
    if (fleet_thread_id() == 0) {
        claim = fleet_add_relaxed_device(&state->due.claims, 1);
        /* Acquires all that earlier launches left in the state. Pair: the RMW that closes a run, in fleeti_leave
           (edge 11). */
        mine = fleeti_rmw_device(&state->due.word, run.blocks + FLEETI_CLAIMING) == 0;
        stop = fleet_load_relaxed_device(&state->stop.word);
        entry = fleeti_log_find(state, claim, number, FLEET_ERROR_BUSY);
        if (mine) {
            began = fleeti_claim_bucket(state, run.plan);
        } else {
            fleeti_rmw_device(&state->due.word, 0u - FLEETI_CLAIMING);
            fleeti_log_claim(state, &entry);
            fleet_add_relaxed_system(&state->config.log->busy.word, 1);
            fleet_add_relaxed_system(&state->config.host->busy, 1);
            fleeti_claim_yield(&run);
        }
    }
    mine = fleeti_broadcast(self, mine, 0);
    /* The launch's workgroups may wait where this kernel ends (fleeti_enter), but must not keep
       others from their CUs or SMs that this one waits for. */
    fleeti_let_kernel_begin();
    if (!mine) return;
    if (other) its = fleeti_claim_bucket(other, other->config.plan);
    aborted = fleeti_broadcast_from(self, last, aborted, 1);
    if (fleet_thread_id() == 0) {
        entry.status = (uint32_t)fleeti_claim_status(state, stop, aborted & 1);
        if (other) {
            const fleet_status status = fleeti_claim_status(
                other, fleet_load_relaxed_device(&other->stop.word), aborted & 2);
            if (!entry.status) entry.status = (uint32_t)status;
        }
        began.word = entry.status ? (uint32_t)FLEET_ERROR_ABORTED : FLEETI_PENDING;
        fleet_store_relaxed_device(&state->residency.word, entry.status
                                                               ? (uint32_t)FLEET_ERROR_ABORTED
                                                           : at_once ? FLEETI_AT_ONCE
                                                                     : FLEETI_OPEN);
        if (!entry.status) fleet_store_relaxed_device(&state->due.open, number);
    }
    began.word = fleeti_broadcast(self, began.word, 0);
    began.bucket = fleeti_broadcast(self, began.bucket, 1);
    began.bucket_epoch = fleeti_broadcast(self, began.bucket_epoch, 0);
    began.epoch = fleeti_broadcast(self, began.epoch, 1);
    fleeti_claim_state(&run, state, run.plan, trace, &began,
                       at_once && began.word == FLEETI_PENDING);
    if (other) {
        its.word = began.word;
        fleeti_claim_state(&run, other, other->config.plan, NULL, &its, 0);
    }
    /* Publishes, over the barrier, what all threads have set, to claims that are refused meanwhile,
       and through these to their workgroups. Pair: the poll in fleeti_claim_yield (edge 12). */
    fleeti_drain();
    fleet_block_barrier();
    if (fleet_thread_id() != 0) return;
    fleeti_rmw_device(&state->due.word, 0u - FLEETI_CLAIMING);
    fleeti_log_claim(state, &entry);
}
FLEET_THUNK4(fleeti_claim, fleet_run, fleeti_trace *, uint32_t, uint32_t)

/* fleet_bind: the value for all later launches in stream order. */
FLEET_GLOBAL(64) void fleeti_set_symbol(fleeti_state *state, uint32_t symbol, int32_t value)
{
    if (fleet_thread_id() == 0) state->config.symbol_values[symbol] = value;
}
FLEET_THUNK3(fleeti_set_symbol, fleeti_state *, uint32_t, int32_t)
FLEET_GLOBAL(64)
void fleeti_set_tensor(fleeti_state *state, uint32_t tensor, const uint32_t *memory)
{
    if (fleet_thread_id() == 0) state->config.tensors[tensor] = memory;
}
FLEET_THUNK3(fleeti_set_tensor, fleeti_state *, uint32_t, const uint32_t *)

/* After a launch that failed on the host: its workgroups will not come, and others may wait for a result. The state stays
   claimed until there is one. */
FLEET_GLOBAL(64) void fleeti_unclaim(fleet_run run, uint32_t number)
{
    if (fleet_thread_id() != 0) return;
    fleeti_log *log = run.state->config.log;
    FLEETI_ROLLED
    for (uint32_t i = 0; i < FLEETI_LOG_ENTRIES; i++)
        if (fleet_load_relaxed_system(&log->entries[i].number) == number)
            fleet_store_relaxed_system(&log->entries[i].status, FLEET_ERROR_LAUNCH);
    uint32_t due = fleeti_poll_device(&run.state->due.word);
    /* If all workgroups of the run have begun, none of them looks any more. */
    for (uint32_t i = 0; i < FLEET_MAX_CHIPLETS; i++) {
        fleeti_run_line *line = &run.state->result[i];
        if (FLEETI_RESULT_KIND(fleet_load_relaxed_device(&line->word)) == FLEETI_AT_ONCE &&
            fleet_load_relaxed_device(&line->key) == run.key)
            fleet_store_relaxed_device(&line->word, FLEET_ERROR_BUSY);
    }
    if (fleeti_residency_end(run.state, FLEET_ERROR_BUSY, 0, (fleeti_lds)0) && due != run.blocks) {
        fleet_add_relaxed_device(&run.state->due.met, 1);
        fleet_add_relaxed_system(&run.state->config.host->busy, 1);
    }
    /* Publishes the result to the launch that claims the free state next. Pair: the RMW of `due` in fleeti_claim
       (edge 11). */
    fleeti_drain();
    fleeti_rmw_device(&run.state->due.word, 0u - run.blocks);
}
FLEET_THUNK2(fleeti_unclaim, fleet_run, uint32_t)

/* fleet_state_recover: clears counters, epoch, stop word and the host's copies. words: of the state without its shapes, from
   which the config and the table of virtual chiplets, at [table, counters), are left out: fleet_state_init set them. */
FLEET_GLOBAL(256)
void fleeti_reset(fleet_run run, uint32_t table, uint32_t counters, uint32_t words,
                  uint32_t system_words)
{
    uint32_t *state = (uint32_t *)run.state;
    const uint32_t config = (uint32_t)(offsetof(fleeti_state, config) / 4);
    uint32_t *host = (uint32_t *)run.state->config.host;
    for (uint32_t i = fleet_thread_id(); i < words; i += fleet_thread_count())
        if ((i < config || i >= config + sizeof(fleeti_config) / 4) && (i < table || i >= counters))
            fleet_store_relaxed_device(state + i, 0);
    for (uint32_t i = fleet_thread_id(); i < system_words; i += fleet_thread_count())
        fleet_store_relaxed_system(host + i, 0);
}
FLEET_THUNK5(fleeti_reset, fleet_run, uint32_t, uint32_t, uint32_t, uint32_t)

/* fleet_topology_query: counts the workgroups on each chiplet. */
FLEET_GLOBAL(64) void fleeti_count_chiplets(uint32_t *found)
{
    if (fleet_thread_id() == 0) fleet_add_relaxed_device(found + fleet_chiplet_id(), 1);
}
FLEET_THUNK1(fleeti_count_chiplets, uint32_t *)

FLEET_C_BEGIN

/* ---- host: topology ---- */

/* Every chiplet gets workgroups when there are many more of them than CUs. */
static fleet_status fleeti_query_chiplets(uint32_t units, uint32_t *chiplets)
{
    uint32_t found[FLEET_MAX_CHIPLETS];
    void *memory = NULL;
    void *args[1];
    fleet_kernel_desc d = fleet_kernel_desc_default();
    fleet_status status = fleet_device_alloc(&memory, sizeof found);
    if (status) return status;
    args[0] = &memory;
    d.blocks = units * 4;
    d.threads = 64;
    status = fleet_device_clear(memory, sizeof found, d.stream);
    if (!status) status = fleet_kernel_launch(FLEET_KERNEL_OF(fleeti_count_chiplets), args, &d);
    if (!status) status = fleet_to_host(found, memory, sizeof found, d.stream);
    fleet_device_free(memory);
    *chiplets = 0;
    for (uint32_t i = 0; i < FLEET_MAX_CHIPLETS && !status; i++) *chiplets += found[i] != 0;
    return status;
}

fleet_status fleet_topology_query(fleet_topology *t)
{
    return fleet_topology_query_stream(t, NULL);
}

fleet_status fleet_topology_query_stream(fleet_topology *t, fleet_stream stream)
{
    uint32_t units = 0;
    if (!t) return FLEET_ERROR_NULL;
    memset(t, 0, sizeof *t);
    fleet_status status = fleeti_query_device(t, stream, &units);
    if (!status && t->units[0]) return FLEET_OK;
    if (!status && !t->chiplets) status = fleeti_query_chiplets(units, &t->chiplets);
    if (!status && (!t->chiplets || t->chiplets > FLEET_MAX_CHIPLETS))
        status = FLEET_ERROR_UNSUPPORTED;
    if (status) {
        memset(t, 0, sizeof *t);
        return status;
    }
    for (uint32_t k = 0; k < t->chiplets; k++) t->units[k] = units / t->chiplets;
    t->private_l2 = t->chiplets > 1;
    t->llc_bytes = t->chiplets > 1 ? fleet_topology_preset(FLEET_MI300X).llc_bytes : 0;
    return FLEET_OK;
}

/* ---- host: images ---- */

fleet_status fleet_image_init(fleet_image *image, const fleet_plan *plan, void *device_memory,
                              fleet_stream stream)
{
    fleet_status status;
    if (!image) return FLEET_ERROR_NULL;
    memset(image, 0, sizeof *image);
    if (!plan || !device_memory) return FLEET_ERROR_NULL;
    if ((status = fleet_plan_check(plan, (size_t)plan->bytes))) return status;
    if ((status = fleet_to_device(device_memory, plan, (size_t)plan->bytes, stream))) return status;
    image->plan = plan;
    image->device = device_memory;
    return FLEET_OK;
}

fleet_status fleet_upload(fleet_image *image, const fleet_plan *plan, fleet_stream stream)
{
    void *memory = NULL;
    fleet_status status;
    if (!image) return FLEET_ERROR_NULL;
    memset(image, 0, sizeof *image);
    if (!plan) return FLEET_ERROR_NULL;
    if ((status = fleet_device_alloc(&memory, (size_t)plan->bytes))) return status;
    if ((status = fleet_image_init(image, plan, memory, stream)))
        fleet_device_free(memory);
    else
        image->owned = 1;
    return status;
}

void fleet_image_free(fleet_image *image)
{
    if (!image) return;
    if (image->owned) fleet_device_free(image->device);
    memset(image, 0, sizeof *image);
}

/* ---- host: memory of a state ---- */

static size_t fleeti_lines(size_t bytes)
{
    return (bytes + FLEET_CACHE_LINE_BYTES - 1) / FLEET_CACHE_LINE_BYTES * FLEET_CACHE_LINE_BYTES;
}

/* The power of two that holds the entries of a step, in any bucket. */
static uint32_t fleeti_ring_capacity(const fleet_plan *plan, uint32_t ring)
{
    uint32_t capacity = 1;
    for (uint32_t i = 0; i < plan->n_buckets; i++)
        while (capacity < fleet_plan_bucket(plan, i)->ring_entries[ring]) capacity *= 2;
    return capacity;
}
/* Each slot has the ticket of an entry before the first one. */
static void fleeti_begin_ring(fleeti_ring *ring, uint32_t mask)
{
    ring->head.word = ring->tail.word = FLEETI_TEST_START;
    for (uint32_t i = 0; i <= mask; i++)
        fleeti_ring_slots(ring)[i] = (uint64_t)FLEETI_TEST_START << 32;
}
/* Whether the schedule of some bucket is DYNAMIC. */
static uint32_t fleeti_has_rings(const fleet_plan *plan)
{
    uint32_t has = 0;
    for (uint32_t i = 0; i < plan->n_buckets; i++)
        has |= fleet_plan_bucket(plan, i)->schedule == FLEET_SCHEDULE_DYNAMIC;
    return has;
}
static size_t fleeti_ring_bytes(const fleet_plan *plan, uint32_t ring)
{
    return sizeof(fleeti_ring) + fleeti_lines((size_t)fleeti_ring_capacity(plan, ring) * 8);
}
static uint32_t fleeti_all_blocks_of(const fleet_plan *plan)
{
    uint32_t blocks = 0;
    for (uint32_t k = 0; k < plan->chiplets; k++) blocks += fleeti_blocks_of(plan, k);
    return blocks;
}
/* Computes the offsets of the parts; returns the bytes of device memory. beside: workgroups of the state beside. */
static size_t fleeti_layout(fleet_state *s, const fleet_plan *plan, uint32_t beside)
{
    const size_t blocks = (size_t)fleeti_all_blocks_of(plan) + beside;
    size_t at = sizeof(fleeti_state);
    s->running = at;
    at += fleeti_lines((plan->total_workers + 1u) * sizeof(uint32_t));
    s->mailboxes = at;
    if (fleeti_schedulers(plan)) at += plan->total_workers * sizeof(fleeti_mailbox);
    s->chiplet_of = at;
    at += fleeti_lines(blocks);
    s->counters = at;
    at += fleeti_lines((size_t)plan->counter_words * 4);
    s->rings = at;
    if (fleeti_has_rings(plan))
        for (uint32_t i = 0; i < FLEETI_RINGS * plan->chiplets; i++)
            at += fleeti_ring_bytes(plan, i);
    s->shapes = at;
    at += fleeti_lines((size_t)plan->n_grids * FLEETI_SHAPE * 4);
    s->failures = sizeof(fleeti_host);
    s->system =
        s->failures + fleeti_lines((plan->total_workers + plan->chiplets) * sizeof(fleet_failure));
    s->log = s->system + (plan->ranks > 1 ? 0 : fleeti_lines((size_t)plan->system_words * 4));
    return at;
}

size_t fleet_state_bytes(const fleet_plan *plan)
{
    fleet_state s;
    return plan ? fleeti_layout(&s, plan, 0) : 0;
}
size_t fleet_state_host_bytes(const fleet_plan *plan)
{
    fleet_state s;
    if (!plan) return 0;
    fleeti_layout(&s, plan, 0);
    return s.log + fleeti_lines(sizeof(fleeti_log));
}

/* ---- host: ranks ---- */

size_t fleet_peers_bytes(const fleet_plan *plan)
{
    return plan && plan->ranks > 1 ? fleeti_lines((size_t)plan->system_words * 4) : 0;
}

fleet_status fleet_peers_check(const fleet_peers *peers, const fleet_plan *plan, char *text,
                               size_t bytes)
{
    fleeti_text out = fleeti_text_at(text, text ? bytes : 0);
    if (text && bytes) text[0] = 0;
    if (!plan) return FLEET_ERROR_NULL;
    if (!peers) {
        if (plan->ranks == 1) return FLEET_OK;
        fleeti_put(&out, "the plan is for %u ranks, but fleet_state_desc.peers is null",
                   plan->ranks);
        return FLEET_ERROR_NULL;
    }
    if (peers->ranks != plan->ranks) {
        fleeti_put(&out, "fleet_peers.ranks is %u, but the plan is for %u", peers->ranks,
                   plan->ranks);
        return FLEET_ERROR_ARGUMENT;
    }
    if (peers->rank >= peers->ranks && peers->rank != FLEET_ALL_RANKS) {
        fleeti_put(&out, "fleet_peers.rank is %u of %u", peers->rank, peers->ranks);
        return FLEET_ERROR_ARGUMENT;
    }
    for (uint32_t i = 0; i < peers->ranks && plan->ranks > 1; i++) {
        if (!peers->bases[i]) {
            fleeti_put(&out, "fleet_peers.bases[%u] is null", i);
            return FLEET_ERROR_NULL;
        }
        if ((uintptr_t)peers->bases[i] % FLEET_CACHE_LINE_BYTES) {
            fleeti_put(&out, "fleet_peers.bases[%u] is not %u-byte aligned", i,
                       FLEET_CACHE_LINE_BYTES);
            return FLEET_ERROR_ARGUMENT;
        }
    }
    return FLEET_OK;
}

/* The chiplets of the ranks that a state runs: [*first, *end). */
static void fleeti_own_chiplets(const fleet_plan *plan, const fleet_peers *peers, uint32_t *first,
                                uint32_t *end)
{
    const uint32_t each = plan->chiplets / plan->ranks;
    *first = 0, *end = plan->chiplets;
    if (plan->ranks == 1 || peers->rank == FLEET_ALL_RANKS) return;
    *first = peers->rank * each, *end = *first + each;
}

/* Gives the state's own system counters their first values: those that its epoch says. */
static fleet_status fleeti_clear_peer_words(const fleet_state *s, uint32_t epoch,
                                            fleet_stream stream)
{
    const fleet_plan *plan = s->image.plan;
    const size_t bytes = fleet_peers_bytes(plan);
    uint32_t *words = (uint32_t *)calloc(1, bytes + 1);
    fleet_status status = words ? FLEET_OK : FLEET_ERROR_MEMORY;
    for (uint32_t k = 0; words && epoch && k < plan->n_buckets; k++) {
        const fleet_plan *bucket = fleet_plan_bucket(plan, k);
        const fleeti_forward *f = fleeti_plan_forwards(bucket);
        for (uint32_t i = 0; i < bucket->n_forwards; i++) words[f[i].word] = epoch;
    }
    for (uint32_t i = 0; i < plan->ranks && !status; i++)
        if (s->peers.rank == i || s->peers.rank == FLEET_ALL_RANKS)
            status = fleet_to_device(s->peers.bases[i], words, bytes, stream);
    free(words);
    return status;
}

/* ---- host: states ---- */

fleet_state_desc fleet_state_desc_default(void)
{
    fleet_state_desc d;
    memset(&d, 0, sizeof d);
    d.seed = 1;
    d.first_epoch = FLEETI_TEST_START;
    return d;
}

/* Keeps the reason of a refused call for the report. */
static fleet_status fleeti_refuse(fleet_state *s, fleet_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(s->message, sizeof s->message, format, list);
    va_end(list);
    return status;
}

/* Assigns workgroups to virtual chiplets, of which chiplet k needs need[k]. */
static void fleeti_place_blocks(const fleet_state_desc *d, uint32_t chiplets, const uint32_t *need,
                                uint8_t *chiplet_of, uint32_t blocks)
{
    uint32_t left[FLEET_MAX_CHIPLETS];
    uint32_t k = d->placement == FLEET_PLACEMENT_ROTATED ? (uint32_t)(d->seed % chiplets) : 0;
    uint64_t rng = d->seed;
    memcpy(left, need, chiplets * sizeof *left);
    for (uint32_t b = 0; b < blocks; b++) {
        while (!left[k]) k = (k + 1) % chiplets;
        left[k]--;
        chiplet_of[b] = (uint8_t)k;
        k = (k + 1) % chiplets;
    }
    for (uint32_t b = blocks; b > 1 && d->placement == FLEET_PLACEMENT_RANDOM; b--) {
        uint8_t t = chiplet_of[b - 1];
        rng = rng * 6364136223846793005ull + 1442695040888963407ull;
        uint32_t other = (uint32_t)((rng >> 33) % b);
        chiplet_of[b - 1] = chiplet_of[other];
        chiplet_of[other] = t;
    }
}

/* The grids' shapes, which launches change only if symbols are bound at launch, and their largest tile number. */
static void fleeti_init_grids(fleet_state *s, const fleet_plan *plan, int32_t *shapes)
{
    const fleeti_grid *grids = fleeti_plan_grids(plan);
    for (uint32_t g = 0; g < plan->n_grids; g++) {
        memcpy(shapes + FLEETI_SHAPE * g, grids[g].extent, sizeof grids[g].extent);
        shapes[FLEETI_SHAPE * g + FLEET_MAX_RANK] = (int32_t)grids[g].slices;
        if (grids[g].tile < s->tiles || grids[g].tile == FLEETI_TILE_EMPTY) continue;
        s->tiles = grids[g].tile + 1;
        s->tiles_grid = g;
    }
}

/* Sets the counters as `epoch` steps would have left them. */
static void fleeti_advance_counters(const fleet_plan *plan, uint32_t *counters, uint32_t *system,
                                    uint32_t epoch)
{
    const fleeti_event *events = fleeti_plan_events(plan);
    const uint32_t *targets = fleeti_plan_targets(plan);
    const fleeti_notify *notifies = fleeti_plan_notifies(plan);
    for (uint32_t e = 0; e < plan->n_events; e++)
        for (uint32_t i = 0; i < events[e].elements; i++) {
            uint32_t word = events[e].counter + i * events[e].stride;
            uint32_t value = epoch * targets[events[e].first_target + i];
            if (word & FLEETI_SYSTEM)
                system[word & ~FLEETI_SYSTEM] = value;
            else
                counters[word] = value;
        }
    if (plan->schedule == FLEET_SCHEDULE_DYNAMIC) {
        const fleeti_consumer *consumers = fleeti_plan_consumers(plan);
        for (uint32_t i = 0; i < plan->n_consumers; i++)
            counters[plan->joins + consumers[i].desc] =
                epoch * (consumers[i].need & FLEETI_CONSUMER_NEED);
        for (uint32_t i = 0; plan->early && i < plan->n_elements; i++)
            counters[plan->taken + i] = epoch * fleeti_plan_taken_targets(plan)[i];
    }
    for (uint32_t i = 0; i < plan->n_notifies; i++)
        if (notifies[i].sub && !(notifies[i].sub & FLEETI_LOCAL))
            counters[notifies[i].sub] = epoch * notifies[i].share;
}

/* Whether a debugger traces this process, which Linux tells. */
static uint32_t fleeti_debugged(void)
{
    char line[128];
    uint32_t traced = 0;
    FILE *f = fopen("/proc/self/status", "r");
    if (!f) return 0;
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "TracerPid:", 10) == 0) traced = strtoul(line + 10, NULL, 10) != 0;
    fclose(f);
    return traced;
}

/* Whether a state with this plan may have the other one beside it. */
static fleet_status fleeti_check_beside(fleet_state *s, const fleet_plan *plan,
                                        const fleet_state *beside)
{
    const char *wrong = NULL;
    if (!beside) return FLEET_OK;
    if (!beside->image.plan)
        wrong = "is not a state";
    else if (beside->is_beside)
        wrong = "is beside another state already";
    else if (beside->beside)
        wrong = "has a state beside it";
    else if (plan->ranks > 1 || beside->image.plan->ranks > 1)
        wrong = "cannot be used with a plan for several ranks";
    else if (plan->chiplets + beside->image.plan->chiplets > FLEET_MAX_CHIPLETS)
        wrong = "makes more than FLEET_MAX_CHIPLETS chiplets in all";
    return wrong ? fleeti_refuse(s, FLEET_ERROR_ARGUMENT, "fleet_state_desc.beside %s", wrong)
                 : FLEET_OK;
}

static fleet_status fleeti_state_start(fleet_state *s, const fleet_image *image, fleet_state_desc d,
                                       void *device_memory, void *pinned, void *pinned_device,
                                       fleet_stream stream)
{
    const fleet_plan *plan = image->plan;
    fleet_status status;
    uint32_t own_ids = fleeti_has_chiplet_ids(), most = 0, ranks_here = 1, first, end;
    uint32_t need[FLEET_MAX_CHIPLETS] = {0};
    if ((status = fleeti_check_beside(s, plan, d.beside))) return status;
    size_t bytes =
        fleeti_layout(s, plan, d.beside ? fleeti_all_blocks_of(d.beside->image.plan) : 0);
    /* With virtual chiplets, workgroups of different hardware chiplets would share a chiplet, and chiplet scope
       would be too narrow. */
    if (own_ids && d.placement != FLEET_PLACEMENT_DEFAULT)
        return fleeti_refuse(s, FLEET_ERROR_UNSUPPORTED,
                             "fleet_state_desc.placement makes virtual chiplets, but this device "
                             "has private L2s");
    if ((uint32_t)d.placement > FLEET_PLACEMENT_RANDOM)
        return fleeti_refuse(s, FLEET_ERROR_ARGUMENT,
                             "fleet_state_desc.placement %u does not exist", (uint32_t)d.placement);
    if (d.spare > FLEETI_MAX_INDEX)
        return fleeti_refuse(s, FLEET_ERROR_ARGUMENT, "fleet_state_desc.spare is %u: at most %d",
                             d.spare, FLEETI_MAX_INDEX);
    if ((status = fleet_peers_check(d.peers, plan, s->message, sizeof s->message))) return status;
    if (d.peers) s->peers = *d.peers;
    fleeti_own_chiplets(plan, &s->peers, &first, &end);
    /* Chiplets by the hardware's ids are those of one device, which all ranks share. */
    if (own_ids && s->peers.rank == FLEET_ALL_RANKS) ranks_here = plan->ranks;
    end /= ranks_here;
    s->image = *image;
    s->image.owned = 0;
    s->device = (char *)device_memory;
    s->host = (fleeti_host *)pinned;
    s->host_device = (fleeti_host *)pinned_device;
    s->virtual_chiplets = !own_ids;
    s->first_epoch = d.first_epoch;
    s->debugged = fleeti_debugged();
    uint32_t chiplets = plan->chiplets + (d.beside ? d.beside->image.plan->chiplets : 0);
    for (uint32_t k = first; k < end; k++) need[k] = fleeti_blocks_of(plan, k);
    for (uint32_t k = plan->chiplets; k < chiplets; k++)
        need[k] = fleeti_blocks_of(d.beside->image.plan, k - plan->chiplets);
    for (uint32_t k = 0; k < chiplets; k++) {
        if (need[k] > most) most = need[k];
        s->blocks += need[k];
    }
    /* The hardware gives each chiplet the same number of workgroups: as many as the chiplet that needs most. The
       others leave. */
    if (own_ids)
        s->blocks = most * (end - first + chiplets - plan->chiplets) * ranks_here + d.spare;
    char *initial = (char *)calloc(1, bytes);
    if (!initial) return FLEET_ERROR_MEMORY;
    memset(pinned, 0, fleet_state_host_bytes(plan));
    if (!own_ids)
        fleeti_place_blocks(&d, chiplets, need, (uint8_t *)initial + s->chiplet_of, s->blocks);
    fleeti_state *header = (fleeti_state *)(void *)initial;
    header->epoch.word = d.first_epoch;
    header->config.counters = (uint32_t *)(void *)(s->device + s->counters);
    header->config.first_chiplet = first;
    header->config.end_chiplet = end;
    header->config.ranks_here = ranks_here;
    header->config.links.own = (uint32_t *)(void *)((char *)s->host_device + s->system);
    if (plan->ranks > 1) {
        const uint32_t all = s->peers.rank == FLEET_ALL_RANKS, own = all ? 0 : s->peers.rank;
        /* Ranks on one device share a region: a word has one writer, and the same value for all. */
        for (uint32_t i = 0; i < plan->ranks; i++)
            header->config.words[i] = (uint32_t *)s->peers.bases[all ? 0 : i];
        header->config.links.own = header->config.words[own];
        header->config.links.words = ((fleeti_state *)(void *)s->device)->config.words;
        header->config.links.forwards =
            (const fleeti_forward *)(const void *)((const char *)image->device + plan->forwards);
    }
    if (plan->ranks > 1 && s->peers.rank != FLEET_ALL_RANKS) {
        header->config.watch.peers = &((fleeti_state *)(void *)s->device)->config.links;
        header->config.links.rank = s->peers.rank;
        header->config.links.bytes = (uint32_t)fleet_peers_bytes(plan);
        header->config.rank = s->peers.rank;
        header->config.ranks = plan->ranks;
    }
    header->config.host = s->host_device;
    header->config.log = (fleeti_log *)(void *)((char *)s->host_device + s->log);
    header->config.mailboxes = (fleeti_mailbox *)(void *)(s->device + s->mailboxes);
    header->config.shapes = (int32_t *)(void *)(s->device + s->shapes);
    header->config.plan = (const fleet_plan *)image->device;
    fleeti_init_grids(s, plan, (int32_t *)(void *)(initial + s->shapes));
    for (uint32_t i = 0; i < plan->n_symbols; i++) {
        const uint32_t set = plan->rebinds >> i & 1; /* by the run: it begins with the least */
        if (fleeti_plan_symbols(plan)[i].at_launch && !set) continue;
        header->config.symbol_values[i] = set ? fleeti_plan_symbols(plan)[i].min : plan->bound[i];
        s->bound_symbols |= 1u << i;
    }
    if (fleeti_has_rings(plan)) {
        size_t at = s->rings;
        for (uint32_t i = 0; i < FLEETI_RINGS * plan->chiplets; i++) {
            header->config.ready[i].ring = (fleeti_ring *)(void *)(s->device + at);
            header->config.ready[i].mask = fleeti_ring_capacity(plan, i) - 1;
            fleeti_begin_ring((fleeti_ring *)(void *)(initial + at), header->config.ready[i].mask);
            at += fleeti_ring_bytes(plan, i);
        }
    }
    header->config.chiplet_of =
        s->virtual_chiplets ? (const uint8_t *)s->device + s->chiplet_of : NULL;
    header->config.watch.stop = &((fleeti_state *)(void *)s->device)->stop.word;
    header->config.watch.host_abort = &s->host_device->abort.word;
    header->config.watch.idle = &((fleeti_state *)(void *)s->device)->idle.word;
    s->host->epoch = d.first_epoch;
    for (uint32_t i = 0; d.first_epoch && i < plan->n_buckets; i++) {
        header->bucket_epoch[i] = d.first_epoch;
        fleeti_advance_counters(fleet_plan_bucket(plan, i),
                                (uint32_t *)(void *)(initial + s->counters),
                                (uint32_t *)(void *)((char *)pinned + s->system), d.first_epoch);
    }
    if (d.beside) header->config.other = (fleeti_state *)(void *)d.beside->device;
    status = fleet_to_device(device_memory, initial, bytes, stream);
    if (!status && plan->ranks > 1) status = fleeti_clear_peer_words(s, d.first_epoch, stream);
    if (!status && d.beside) {
        fleeti_state *own = (fleeti_state *)(void *)s->device;
        status = fleet_to_device(d.beside->device + offsetof(fleeti_state, config.other), &own,
                                 sizeof own, stream);
    }
    free(initial);
    if (status || !d.beside) return status;
    s->beside = d.beside;
    d.beside->is_beside = 1;
    return status;
}

/* Leaves nothing of a state but why it was refused. */
static void fleeti_state_clear(fleet_state *s)
{
    char message[sizeof s->message];
    memcpy(message, s->message, sizeof message);
    memset(s, 0, sizeof *s);
    memcpy(s->message, message, sizeof message);
}

fleet_status fleet_state_init(fleet_state *s, const fleet_image *image,
                              const fleet_state_desc *desc, void *device_memory, void *pinned,
                              void *pinned_device, fleet_stream stream)
{
    if (!s) return FLEET_ERROR_NULL;
    memset(s, 0, sizeof *s);
    if (!image || !image->plan || !device_memory || !pinned || !pinned_device)
        return FLEET_ERROR_NULL;
    fleet_status status = fleeti_state_start(s, image, desc ? *desc : fleet_state_desc_default(),
                                             device_memory, pinned, pinned_device, stream);
    if (status) fleeti_state_clear(s);
    return status;
}

/* The memory of an object that owns it; on an error there is none. */
static fleet_status fleeti_memory_alloc(size_t device_bytes, size_t host_bytes, void **device,
                                        void **pinned, void **pinned_device)
{
    fleet_status status = fleet_device_alloc(device, device_bytes);
    if (status) return status;
    status = fleet_pinned_alloc(pinned, pinned_device, host_bytes);
    if (status) fleet_device_free(*device);
    return status;
}
static void fleeti_memory_free(void *device, void *pinned)
{
    fleet_device_free(device);
    fleet_pinned_free(pinned);
}

fleet_status fleet_state_create(fleet_state *s, const fleet_image *image,
                                const fleet_state_desc *desc, fleet_stream stream)
{
    void *device = NULL, *pinned = NULL, *pinned_device = NULL;
    fleet_status status;
    if (!s) return FLEET_ERROR_NULL;
    memset(s, 0, sizeof *s);
    if (!image || !image->plan) return FLEET_ERROR_NULL;
    size_t more = desc && desc->beside ? fleet_state_bytes(desc->beside->image.plan) : 0;
    status =
        fleeti_memory_alloc(fleet_state_bytes(image->plan) + more,
                            fleet_state_host_bytes(image->plan), &device, &pinned, &pinned_device);
    if (status) return status;
    if ((status = fleet_state_init(s, image, desc, device, pinned, pinned_device, stream)))
        fleeti_memory_free(device, pinned);
    else
        s->owned = 1;
    return status;
}

void fleet_state_free(fleet_state *s)
{
    if (!s) return;
    if (s->beside) s->beside->is_beside = 0;
    if (s->owned) fleeti_memory_free(s->device, s->host);
    memset(s, 0, sizeof *s);
}

/* ---- host: symbols and tensors ---- */

static const char *fleeti_symbol_name(const fleet_plan *plan, uint32_t symbol)
{
    return (const char *)plan + fleeti_plan_symbols(plan)[symbol].name;
}

static const char *fleeti_tensor_name(const fleet_plan *plan, uint32_t tensor)
{
    return (const char *)plan + fleeti_plan_tensors(plan)[tensor].name;
}

static fleet_status fleeti_check_bound(fleet_state *s)
{
    if (!s || !s->image.plan) return FLEET_ERROR_NULL;
    const fleet_plan *plan = s->image.plan;
    for (uint32_t i = 0; i < plan->n_symbols; i++)
        if (!(s->bound_symbols >> i & 1))
            return fleeti_refuse(s, FLEET_ERROR_SYMBOL_UNBOUND,
                                 "symbol %s has no value: fleet_bind before the first launch",
                                 fleeti_symbol_name(plan, i));
    for (uint32_t i = 0; i < plan->n_tensors; i++)
        if (!(s->bound_tensors[i / 32] >> i % 32 & 1))
            return fleeti_refuse(s, FLEET_ERROR_TENSOR_UNBOUND,
                                 "run-time tensor %s has no memory: fleet_bind_tensor before the "
                                 "first launch",
                                 fleeti_tensor_name(plan, i));
    return FLEET_OK;
}

fleet_status fleet_bind_tensor(fleet_state *s, const char *tensor, int32_t *memory,
                               fleet_stream stream)
{
    fleet_kernel_desc k = fleet_kernel_desc_default();
    uint32_t i = 0;
    void *args[3];
    if (!s || !s->image.plan || !tensor || !memory) return FLEET_ERROR_NULL;
    const fleet_plan *plan = s->image.plan;
    while (i < plan->n_tensors && strcmp(fleeti_tensor_name(plan, i), tensor) != 0) i++;
    if (i == plan->n_tensors)
        return fleeti_refuse(s, FLEET_ERROR_NAME, "run-time tensor %s is not one of the plan",
                             tensor);
    s->bound_tensors[i / 32] |= 1u << i % 32;
    s->message[0] = 0;
    fleeti_state *device = (fleeti_state *)(void *)s->device;
    if (fleeti_stream_store(&device->config.tensors[i], (uintptr_t)memory, sizeof memory, stream))
        return FLEET_OK;
    args[0] = &device, args[1] = &i, args[2] = &memory;
    k.threads = 64;
    k.stream = stream;
    return fleet_kernel_launch(FLEET_KERNEL_OF(fleeti_set_tensor), args, &k);
}

fleet_status fleet_bind(fleet_state *s, const char *symbol, int64_t value, fleet_stream stream)
{
    fleet_kernel_desc k = fleet_kernel_desc_default();
    uint32_t i = 0;
    int32_t word = (int32_t)value;
    void *args[3];
    if (!s || !s->image.plan || !symbol) return FLEET_ERROR_NULL;
    const fleet_plan *plan = s->image.plan;
    while (i < plan->n_symbols && strcmp(fleeti_symbol_name(plan, i), symbol) != 0) i++;
    const fleeti_symbol *found = fleeti_plan_symbols(plan) + i;
    if (i == plan->n_symbols || !found->at_launch)
        return fleeti_refuse(s, FLEET_ERROR_NAME, "symbol %s %s", symbol,
                             i < plan->n_symbols ? "was bound when the plan was built"
                                                 : "is not one of the plan");
    if (value < found->min || value > found->max)
        return fleeti_refuse(s, FLEET_ERROR_SYMBOL_RANGE, "symbol %s is %lld, outside [%d, %d]",
                             symbol, (long long)value, (int)found->min, (int)found->max);
    s->bound_symbols |= 1u << i;
    s->message[0] = 0;
    fleeti_state *device = (fleeti_state *)(void *)s->device;
    if (fleeti_stream_store(&device->config.symbol_values[i], (uint32_t)word, sizeof word, stream))
        return FLEET_OK;
    args[0] = &device, args[1] = &i, args[2] = &word;
    k.threads = 64;
    k.stream = stream;
    return fleet_kernel_launch(FLEET_KERNEL_OF(fleeti_set_symbol), args, &k);
}

/* ---- host: launches ---- */

static fleeti_log *fleeti_log_of(const fleet_state *s)
{
    return (fleeti_log *)(void *)((char *)s->host + s->log);
}

#define FLEETI_DEFAULT_LIMIT_NS 10000000000ull
#define FLEETI_DEFAULT_PEER_LIMIT_NS 600000000000ull
#define FLEETI_MOST_THREADS 1024u /* of a workgroup, on any GPU */

fleet_launch_desc fleet_launch_desc_default(void)
{
    fleet_launch_desc d;
    memset(&d, 0, sizeof d);
    d.steps = 1;
    return d;
}

static fleet_kernel_desc fleeti_kernel_desc(const fleet_launch_desc *d, uint32_t blocks,
                                            uint32_t threads)
{
    fleet_kernel_desc k = fleet_kernel_desc_default();
    k.blocks = blocks;
    k.threads = threads;
    k.stream = d->stream;
    return k;
}

/* For workgroups that run tasks. */
static fleet_kernel_desc fleeti_worker_desc(const fleet_launch_desc *d, uint32_t blocks)
{
    fleet_kernel_desc k = fleeti_kernel_desc(d, blocks, d->threads);
    const uint32_t waves = d->host.waves;
    k.lds_bytes = d->lds_bytes + d->pipeline_bytes;
    k.host = d->host;
    if (d->pipeline_bytes) {
        k.threads += FLEET_PRODUCER_THREADS;
        k.host.waves = waves && waves < UINT32_MAX ? waves + 1 : waves;
    }
    return k;
}

#define FLEETI_DEFAULT_THREADS 256u

/* What the descriptor leaves to the kernel. */
static fleet_launch_desc fleeti_complete_desc(const fleet_launch_desc *d,
                                              const fleeti_kernel_traits *traits)
{
    fleet_launch_desc complete = *d;
    const uint32_t declared = traits->threads & ~FLEETI_ANY_THREADS;
    if (!d->threads) complete.threads = declared ? declared : FLEETI_DEFAULT_THREADS;
    if (!d->host.waves && (!declared || traits->threads & FLEETI_ANY_THREADS))
        complete.host.waves = 1;
    if (!d->pipeline_bytes) complete.pipeline_bytes = traits->pipeline_bytes;
    return complete;
}

/* Checks that the kernel can run the launch; d is complete. */
static fleet_status fleeti_check_kernel(fleet_state *s, const fleet_launch_desc *d,
                                        const fleeti_kernel_traits *traits)
{
    const uint32_t declared = traits->threads & ~FLEETI_ANY_THREADS;
    if (declared && d->threads > declared)
        return fleeti_refuse(s, FLEET_ERROR_ARGUMENT,
                             "fleet_launch_desc.threads is %u, but FLEET_KERNEL declares %u",
                             d->threads, declared);
    if (traits->tiles && s->tiles > traits->tiles) {
        const fleet_plan *plan = s->image.plan;
        const fleeti_grid *grids = fleeti_plan_grids(plan);
        return fleeti_refuse(
            s, FLEET_ERROR_ARGUMENT, "grid %s has tile %u, but the kernel's set has %u tiles",
            (const char *)plan + grids[s->tiles_grid].name, s->tiles - 1, traits->tiles);
    }
    return FLEET_OK;
}

/* Checks that each field is in its range. threads: 0 is the kernel's. */
static fleet_status fleeti_check_launch(fleet_state *s, const fleet_launch_desc *d)
{
    const fleet_kernel_desc worker = fleeti_worker_desc(d, s->blocks);
    const char *host = fleeti_bad_host_desc(&worker.host);
    const uint32_t wave = fleeti_launch_wave(s->image.plan->topology.wave_size);
    const uint32_t most = FLEETI_MOST_THREADS - (d->pipeline_bytes ? FLEET_PRODUCER_THREADS : 0);
    if (host) return fleeti_refuse(s, FLEET_ERROR_ARGUMENT, "fleet_launch_desc.host: %s", host);
    if (d->threads % wave)
        return fleeti_refuse(s, FLEET_ERROR_ARGUMENT,
                             "fleet_launch_desc.threads is %u, not a multiple of the wave size %u",
                             d->threads, wave);
    if (d->threads > most)
        return fleeti_refuse(s, FLEET_ERROR_ARGUMENT,
                             "fleet_launch_desc.threads is %u: at most %u%s", d->threads, most,
                             d->pipeline_bytes ? " beside the producer" : "");
    if ((uint64_t)d->lds_bytes + d->pipeline_bytes > INT32_MAX)
        return fleeti_refuse(s, FLEET_ERROR_ARGUMENT,
                             "fleet_launch_desc.lds_bytes and pipeline_bytes are %llu in all",
                             (unsigned long long)d->lds_bytes + d->pipeline_bytes);
    if (d->limit_ns > INT64_MAX && d->limit_ns != FLEET_LIMIT_NONE)
        return fleeti_refuse(
            s, FLEET_ERROR_ARGUMENT,
            "fleet_launch_desc.limit_ns is negative: %lld (FLEET_LIMIT_NONE: none)",
            (long long)d->limit_ns);
    if (d->peer_limit_ns > INT64_MAX && d->peer_limit_ns != FLEET_LIMIT_NONE)
        return fleeti_refuse(
            s, FLEET_ERROR_ARGUMENT,
            "fleet_launch_desc.peer_limit_ns is negative: %lld (FLEET_LIMIT_NONE: none)",
            (long long)d->peer_limit_ns);
    if (d->finish && s->image.plan->ranks > 1)
        return fleeti_refuse(s, FLEET_ERROR_UNSUPPORTED,
                             "fleet_launch_desc.finish is set, but the plan is for %u ranks, which "
                             "would not learn of it",
                             s->image.plan->ranks);
    if (d->steps == FLEET_STEPS_ENDLESS) {
        if (d->finish || s->image.plan->rebinds) return FLEET_OK;
        return fleeti_refuse(s, FLEET_ERROR_ARGUMENT,
                             "fleet_launch_desc.steps is FLEET_STEPS_ENDLESS, but no tile may call "
                             "fleet_finish: set fleet_launch_desc.finish");
    }
    /* Under DYNAMIC a worker finds the end of the run in the count of arrivals at the step event. */
    for (uint32_t i = 0; i < s->image.plan->n_buckets; i++) {
        const fleet_plan *plan = fleet_plan_bucket(s->image.plan, i);
        const uint32_t *targets = fleeti_plan_targets(plan);
        const uint32_t target = plan->n_elements ? targets[plan->n_elements - 1] : 0;
        if (plan->schedule == FLEET_SCHEDULE_DYNAMIC && (uint64_t)d->steps * target > INT32_MAX)
            return fleeti_refuse(
                s, FLEET_ERROR_ARGUMENT,
                "fleet_launch_desc.steps is %u: under DYNAMIC a launch of this plan "
                "has at most %u steps",
                d->steps, INT32_MAX / target);
    }
    return FLEET_OK;
}

/* What the state beside has refused. */
static fleet_status fleeti_refuse_beside(fleet_state *s, fleet_status status)
{
    return fleeti_refuse(s, status, "pool 1: %.180s", s->beside->message);
}

fleet_status fleet_run_prepare(fleet_state *s, const fleet_launch_desc *d, fleet_run *run)
{
    fleet_status status;
    if (!run) return FLEET_ERROR_NULL;
    memset(run, 0, sizeof *run);
    if (!s || !d || !s->image.plan) return FLEET_ERROR_NULL;
    if ((status = fleeti_check_launch(s, d))) return status;
    if (s->beside && (status = fleeti_check_launch(s->beside, d)))
        return fleeti_refuse_beside(s, status);
    run->plan = (const fleet_plan *)s->image.device;
    run->state = (fleeti_state *)(void *)s->device;
    uint64_t limit = d->limit_ns   ? d->limit_ns
                     : s->debugged ? FLEET_LIMIT_NONE
                                   : FLEETI_DEFAULT_LIMIT_NS;
    if (s->image.plan->ranks > 1 && s->peers.rank != FLEET_ALL_RANKS)
        limit = d->peer_limit_ns ? d->peer_limit_ns
                : s->debugged    ? FLEET_LIMIT_NONE
                                 : FLEETI_DEFAULT_PEER_LIMIT_NS;
    run->limit_ticks = limit == FLEET_LIMIT_NONE ? 0 : limit / FLEETI_CLOCK_NS + 1;
    run->blocks = s->blocks;
    run->key = __atomic_add_fetch(&s->runs, 1, __ATOMIC_RELAXED);
    if (!run->key) run->key = __atomic_add_fetch(&s->runs, 1, __ATOMIC_RELAXED);
    run->steps = d->steps;
    run->lds_bytes = d->lds_bytes + d->pipeline_bytes;
    run->finish =
        d->finish || s->image.plan->rebinds || (s->beside && s->beside->image.plan->rebinds);
    return FLEET_OK;
}

static fleet_status fleeti_check_trace(fleet_state *s, const fleet_launch_desc *d)
{
    if (!d->trace) return FLEET_OK;
#if !defined(FLEET_TRACE)
    return fleeti_refuse(s, FLEET_ERROR_UNSUPPORTED,
                         "fleet_launch_desc.trace needs FLEET_TRACE, defined where the kernels are "
                         "and where FLEET_IMPLEMENTATION is");
#else
    if (d->trace->plan == s->image.plan) return FLEET_OK;
    return fleeti_refuse(s, FLEET_ERROR_ARGUMENT,
                         "fleet_launch_desc.trace was made for another plan");
#endif
}

/* A launch that cannot go on has failed, whichever of its workgroups have left: its steps do not
   count. Only where the CPU simulates the device, whose memory is the host's. */
static void fleeti_note_deadlock(fleet_state *s)
{
    fleeti_state *state = (fleeti_state *)(void *)s->device;
    const fleeti_log_entry *entry =
        fleeti_log_of(s)->entries + (state->due.claims - 1) % FLEETI_LOG_ENTRIES;
    if (!state->stop.word) state->stop.word = FLEET_ERROR_DEADLOCK;
    if (!s->host->status) s->host->status = FLEET_ERROR_DEADLOCK;
    s->host->epoch = state->epoch.word = entry->epoch;
    state->due.word = 0; /* none of them will come back */
}

fleet_status fleet_launch_args(fleet_state *s, const fleet_launch_desc *d, const fleet_run *run,
                               fleet_kernel kernel, void **args)
{
    void *claim_args[4], *unclaim_args[2];
    fleeti_room room;
    fleeti_trace *trace = NULL;
    fleet_status status = fleeti_check_bound(s);
    if (status) return status;
    if (!s || !d || !run || !kernel.address || !args || !s->image.plan) return FLEET_ERROR_NULL;
    if (s->is_beside)
        return fleeti_refuse(s, FLEET_ERROR_UNSUPPORTED,
                             "it runs in the launches of the state that it is beside");
    fleet_launch_desc complete = fleeti_complete_desc(d, kernel.traits);
    complete.pipeline_bytes = d->pipeline_bytes; /* as fleet_run_prepare counted it */
    d = &complete;
    if ((status = fleeti_check_launch(s, d))) return status;
    if ((status = fleeti_check_kernel(s, d, kernel.traits))) return status;
    if ((status = fleeti_check_trace(s, d))) return status;
    if (s->beside &&
        ((status = fleeti_check_bound(s->beside)) || (status = fleeti_check_launch(s->beside, d)) ||
         (status = fleeti_check_kernel(s->beside, d, kernel.traits))))
        return fleeti_refuse_beside(s, status);
    if (run->state != (fleeti_state *)(void *)s->device)
        return fleeti_refuse(s, FLEET_ERROR_ARGUMENT, "fleet_run was prepared for another state");
    if (run->steps != d->steps)
        return fleeti_refuse(s, FLEET_ERROR_ARGUMENT,
                             "fleet_run.steps is %u, but fleet_launch_desc.steps is %u", run->steps,
                             d->steps);
    if (run->lds_bytes != d->lds_bytes + d->pipeline_bytes)
        return fleeti_refuse(s, FLEET_ERROR_ARGUMENT,
                             "fleet_run.lds_bytes is %u, but fleet_launch_desc has %u in all",
                             run->lds_bytes, d->lds_bytes + d->pipeline_bytes);
    fleet_run copy = *run;
    uint32_t number = __atomic_add_fetch(&s->launches, 1, __ATOMIC_RELAXED);
    if (d->number) *d->number = number;
    uint32_t at_once = 0;
    claim_args[0] = &copy, claim_args[1] = &trace, claim_args[2] = &number;
    claim_args[3] = &at_once;
    unclaim_args[0] = &copy, unclaim_args[1] = &number;
    fleet_kernel_desc claim = fleeti_kernel_desc(d, 1, 256);
    claim.early = 1;
    fleet_kernel_desc main = fleeti_worker_desc(d, s->blocks);
    if ((status = fleeti_room_of(kernel, &main, &room))) return status;
    uint32_t fits = (uint64_t)room.per_unit * room.units >= main.blocks;
    if (!fits && !d->ignore_occupancy)
        return fleeti_refuse(s, FLEET_ERROR_TOO_MANY_WORKERS,
                             "%u workgroups are more than %u on each of %u CUs or SMs (the device "
                             "has %u): set workers_per_chiplet of the plan, or ignore_occupancy of "
                             "the launch",
                             main.blocks, room.per_unit, room.units, room.all_units);
    main.cooperative = !d->ordinary && fits && room.cooperative &&
                       !(FLEETI_STAYS_ORDINARY && d->steps == FLEET_STEPS_ENDLESS);
    main.early = 1;
    /* Hardware chiplets may get too few workgroups, and other ranks may not have started. */
    at_once = main.cooperative && s->virtual_chiplets && s->image.plan->ranks == 1 && !s->beside;
    if (d->trace) trace = (fleeti_trace *)d->trace->device;
    if ((status = fleet_kernel_launch(FLEET_KERNEL_OF(fleeti_claim), claim_args, &claim)))
        return status;
    status = fleet_kernel_launch(kernel, args, &main);
    if (status == FLEET_ERROR_DEADLOCK) { /* known at once where the CPU simulates the device */
        fleeti_note_deadlock(s);
        status = FLEET_OK;
    }
    if (status) (void)fleet_kernel_launch(FLEET_KERNEL_OF(fleeti_unclaim), unclaim_args, &claim);
    return status;
}

fleet_status fleet_launch(fleet_state *s, const fleet_launch_desc *d, fleet_kernel kernel,
                          const void *args)
{
    fleet_run run;
    void *kernel_args[2];
    fleet_status status;
    if (!d || !kernel.address) return FLEET_ERROR_NULL;
    fleet_launch_desc complete = fleeti_complete_desc(d, kernel.traits);
    if ((status = fleet_run_prepare(s, &complete, &run))) return status;
    kernel_args[0] = &run;
    kernel_args[1] = &args;
    return fleet_launch_args(s, &complete, &run, kernel, kernel_args);
}

fleet_status fleet_launch_task(fleet_state *s, const fleet_launch_desc *d, fleet_kernel kernel,
                               const void *args, uint32_t task, uint32_t slice)
{
    fleet_run run;
    fleet_kernel_desc k;
    void *kernel_args[2];
    fleet_status status;
    if (!d || !kernel.address) return FLEET_ERROR_NULL;
    fleet_launch_desc complete = fleeti_complete_desc(d, kernel.traits);
    d = &complete;
    if ((status = fleet_run_prepare(s, d, &run))) return status;
    if ((status = fleeti_check_kernel(s, d, kernel.traits))) return status;
    /* For fleet_finish, whose word the next run clears: no claim sets it here. */
    if ((status = fleet_to_device(s->device + offsetof(fleeti_state, config.finish), &run.finish,
                                  sizeof run.finish, d->stream)))
        return status;
    const fleet_plan *plan = s->image.plan;
    const fleeti_queue *queues = fleeti_plan_queues(plan);
    const fleet_task *tasks = fleeti_plan_tasks(plan);
    kernel_args[0] = &run;
    kernel_args[1] = &args;
    for (uint32_t q = 0; q < plan->n_queues; q++)
        for (uint32_t i = queues[q].first; i < queues[q].first + queues[q].count; i++) {
            const uint32_t workers =
                plan->schedule == FLEET_SCHEDULE_CHIPLET ? 0 : plan->total_workers;
            uint32_t chiplet = q - workers;
            if (tasks[i].tile == FLEETI_TILE_NONE || tasks[i].id != task || tasks[i].slice != slice)
                continue;
            if (q < workers)
                for (chiplet = 0; q >= plan->worker_base[chiplet] + plan->workers[chiplet];)
                    chiplet++;
            run.single_task = i + 1;
            run.single_chiplet = chiplet;
            k = fleeti_worker_desc(d, tasks[i].level == FLEET_LEVEL_CHIPLET ? plan->workers[chiplet]
                                                                            : 1);
            __atomic_store_n(&s->host->task_status, 0, __ATOMIC_RELAXED);
            if ((status = fleet_kernel_launch(kernel, kernel_args, &k))) return status;
            if ((status = fleet_stream_wait(d->stream))) return status;
            status = (fleet_status)__atomic_load_n(&s->host->task_status, __ATOMIC_ACQUIRE);
            /* The other descriptors of a chiplet-task are copies of this one. */
            if (status || tasks[i].level != FLEETI_LEVEL_PART) return status;
        }
    return run.single_task ? FLEET_OK : FLEET_ERROR_ARGUMENT;
}

/* ---- host: failures ---- */

static uint32_t fleeti_host_word(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* Whether a count is more than what has been told of it. */
static uint32_t fleeti_tell(const uint32_t *word, uint32_t *told)
{
    const uint32_t n = fleeti_host_word(word);
    return __atomic_exchange_n(told, n, __ATOMIC_RELAXED) != n;
}

static fleet_status fleeti_failed(const fleet_state *s)
{
    const uint32_t status = fleeti_host_word(&s->host->status);
    return (fleet_status)(status || !s->beside ? status
                                               : fleeti_host_word(&s->beside->host->status));
}

fleet_status fleet_state_status(fleet_state *s)
{
    if (!s || !s->host) return FLEET_ERROR_NULL;
    fleeti_log *log = fleeti_log_of(s);
    const fleet_status failed = fleeti_failed(s);
    const uint32_t busy = fleeti_tell(&s->host->busy, &log->told_busy);
    const uint32_t nonresident = fleeti_tell(&s->host->nonresident, &log->told_nonresident);
    const uint32_t poisoned = fleeti_tell(&s->host->poisoned, &log->told_poisoned);
    return failed        ? failed /* the first failure says more */
           : busy        ? FLEET_ERROR_BUSY
           : nonresident ? FLEET_ERROR_RESIDENCY
           : poisoned    ? FLEET_ERROR_POISONED
                         : FLEET_OK;
}

/* The log's entry of a claim; 0: it has been overwritten, or is being written. */
static uint32_t fleeti_read_log(const fleet_state *s, uint32_t claim, fleeti_log_entry *entry)
{
    const fleeti_log_entry *from = fleeti_log_of(s)->entries + claim % FLEETI_LOG_ENTRIES;
    entry->claim = fleeti_host_word(&from->claim);
    entry->number = fleeti_host_word(&from->number);
    entry->status = fleeti_host_word(&from->status);
    entry->other = fleeti_host_word(&from->other);
    entry->finished = fleeti_host_word(&from->finished);
    entry->nonresident = fleeti_host_word(&from->nonresident);
    entry->met = fleeti_host_word(&from->met);
    entry->epoch = fleeti_host_word(&from->epoch);
    return entry->claim == claim + 1 && fleeti_host_word(&from->claim) == claim + 1;
}

/* Launches so far that the log knows of, refused ones and replays included. */
static uint32_t fleeti_claims(const fleet_state *s)
{
    uint32_t claims = 0;
    for (uint32_t i = 0; i < FLEETI_LOG_ENTRIES; i++) {
        const uint32_t claim = fleeti_host_word(&fleeti_log_of(s)->entries[i].claim);
        if ((int32_t)(claim - claims) > 0) claims = claim;
    }
    return claims;
}

/* What has become of the launch of a claim. */
static uint32_t fleeti_outcome_of(const fleet_state *s, uint32_t claim, uint32_t claims,
                                  fleet_outcome *o)
{
    fleeti_log_entry entry, next;
    memset(o, 0, sizeof *o);
    if (!fleeti_read_log(s, claim, &entry)) return 0;
    o->number = entry.number, o->run = claim + 1, o->other = entry.other;
    o->status = (fleet_status)entry.status;
    o->refused = o->ended = entry.status != FLEET_OK;
    if (o->refused) return 1;
    memset(&next, 0, sizeof next);
    for (uint32_t i = claim + 1; i != claims; i++)
        if (fleeti_read_log(s, i, &next) && next.status == FLEET_OK) break;
    const uint32_t last = !next.claim || next.status != FLEET_OK;
    if (last) {
        next.finished = fleeti_host_word(&s->host->finished);
        next.nonresident = fleeti_host_word(&s->host->nonresident);
        next.met = fleeti_host_word(&s->host->busy);
        next.met -= fleeti_host_word(&fleeti_log_of(s)->busy.word);
        next.epoch = fleet_state_epoch(s);
    }
    o->steps = next.epoch - entry.epoch;
    o->ended = next.finished != entry.finished;
    if (last && !o->steps && (o->status = fleeti_failed(s))) {
        uint32_t due = 1; /* its workgroups may have left before it began, or still run */
        if (!o->ended &&
            !fleeti_snapshot(&due, s->device + offsetof(fleeti_state, due.word), sizeof due))
            o->ended = !due;
        return 1;
    }
    if (o->ended) return 1;
    o->refused = o->ended = 1;
    if (next.nonresident != entry.nonresident)
        o->status = FLEET_ERROR_RESIDENCY;
    else if (!last || (int32_t)(next.met - entry.met) > 0)
        o->status = FLEET_ERROR_BUSY, o->other = entry.number;
    else
        o->refused = o->ended = 0;
    return 1;
}

uint32_t fleet_state_outcome(const fleet_state *s, uint32_t number, fleet_outcome *outcome)
{
    if (!outcome) return 0;
    memset(outcome, 0, sizeof *outcome);
    if (!s || !s->host) return 0;
    const uint32_t claims = fleeti_claims(s);
    for (uint32_t i = 1; i <= FLEETI_LOG_ENTRIES && i <= claims; i++)
        if (fleeti_outcome_of(s, claims - i, claims, outcome) && outcome->number == number)
            return 1;
    memset(outcome, 0, sizeof *outcome);
    return 0;
}

fleet_status fleet_state_wait(fleet_state *s, fleet_stream stream)
{
    if (!s) return FLEET_ERROR_NULL;
    fleet_status status = fleet_stream_wait(stream);
    return status ? status : fleet_state_status(s);
}

uint32_t fleet_state_epoch(const fleet_state *s)
{
    return s && s->host ? __atomic_load_n(&s->host->epoch, __ATOMIC_ACQUIRE) : 0;
}

void fleet_state_abort(fleet_state *s)
{
    /* Polled by fleeti_check_watch, and by workers that never wait (edge 15). */
    if (s && s->host) __atomic_store_n(&s->host->abort.word, 1, __ATOMIC_RELEASE);
    if (s && s->beside) fleet_state_abort(s->beside);
}

fleet_status fleet_state_recover(fleet_state *s, fleet_stream stream)
{
    fleet_launch_desc d = fleet_launch_desc_default();
    fleet_run run;
    void *args[5];
    fleet_status status;
    d.stream = stream;
    if ((status = fleet_run_prepare(s, &d, &run))) return status;
    if (s->beside && (status = fleet_state_recover(s->beside, stream))) return status;
    uint32_t table = (uint32_t)(s->chiplet_of / 4);
    uint32_t counters = (uint32_t)(s->counters / 4);
    uint32_t words = (uint32_t)(s->shapes / 4); /* the shapes come last, and stay */
    uint32_t system_words = (uint32_t)(fleet_state_host_bytes(s->image.plan) / 4);
    args[0] = &run, args[1] = &table, args[2] = &counters, args[3] = &words,
    args[4] = &system_words;
    fleet_kernel_desc k = fleeti_kernel_desc(&d, 1, 256);
    if (s->image.plan->ranks > 1 && (status = fleeti_clear_peer_words(s, 0, stream))) return status;
    return fleet_kernel_launch(FLEET_KERNEL_OF(fleeti_reset), args, &k);
}

/* ---- host: report ---- */

/* The target of the element whose counter this is; 0: it is no counter of the plan. */
static uint32_t fleeti_target_of(const fleet_plan *plan, uint32_t counter)
{
    const fleeti_event *events = fleeti_plan_events(plan);
    const uint32_t *targets = fleeti_plan_targets(plan);
    for (uint32_t e = 0; e < plan->n_events; e++) {
        const fleeti_event *v = &events[e];
        if (plan->ranks > 1 && counter & FLEETI_SYSTEM) return 1; /* the epoch, by one store */
        if (counter < v->counter || (counter ^ v->counter) & FLEETI_SYSTEM) continue;
        if (!v->elements || !v->stride || (counter - v->counter) / v->stride >= v->elements)
            continue;
        return targets[v->first_target + (counter - v->counter) / v->stride];
    }
    return 0;
}

/* The rank that stores to a word of the system counters of a plan for several ranks. Buckets have words of their own. */
static uint32_t fleeti_peer_of_word(const fleet_plan *plan, uint32_t word)
{
    if ((word & ~FLEETI_SYSTEM) < FLEETI_PEER_LINES * FLEETI_EVENT_LINE)
        return word % FLEETI_EVENT_LINE;
    for (uint32_t k = plan->n_buckets; k-- > 0;) {
        const fleet_plan *bucket = fleet_plan_bucket(plan, k);
        const fleeti_event *events = fleeti_plan_events(bucket);
        for (uint32_t i = bucket->n_events; i-- > 0;)
            if (events[i].words && word >= events[i].words)
                return (word - events[i].words) / events[i].stride /
                       (events[i].elements / plan->ranks);
    }
    return 0;
}

/* The rank that a failure is about: the one that stores to the word that is blamed, or the one for which that one waits,
   and so on. */
static uint32_t fleeti_peer_of_failure(const fleet_state *s, uint32_t word)
{
    const fleet_plan *plan = s->image.plan;
    uint32_t rank = fleeti_peer_of_word(plan, word);
    for (uint32_t i = 1; i < plan->ranks && rank < FLEET_MAX_PEERS; i++) {
        const uint32_t late = fleeti_host_word(&s->host->late[rank]);
        if (late) rank = fleeti_peer_of_word(plan, late);
    }
    return rank;
}

#define FLEETI_FIRST_FAILURE 0xffffffffu
static fleet_failure fleeti_read_failure(const fleet_state *s, uint32_t index)
{
    const fleet_failure *from =
        index == FLEETI_FIRST_FAILURE
            ? &s->host->first
            : (const fleet_failure *)(const void *)((const char *)s->host + s->failures) + index;
    fleet_failure f;
    f.status = fleeti_host_word(&from->status); /* stored last */
    f.worker = fleeti_host_word(&from->worker);
    f.task = fleeti_host_word(&from->task);
    f.counter = fleeti_host_word(&from->counter);
    f.seen = fleeti_host_word(&from->seen);
    f.expected = fleeti_host_word(&from->expected);
    f.epoch = fleeti_host_word(&from->epoch);
    f.tile_status = fleeti_host_word(&from->tile_status);
    f.bucket = fleeti_host_word(&from->bucket);
    f.bucket_epoch = fleeti_host_word(&from->bucket_epoch);
    f.peer = fleeti_peer_of_failure(s, fleeti_host_word(&from->peer));
    /* From the counter's value to arrivals in this step. */
    if (f.counter && f.status != FLEET_ERROR_TENSOR_VALUE && f.status != FLEET_ERROR_SYMBOL_RANGE &&
        f.status != FLEET_ERROR_PEER_PLAN) {
        uint32_t target = fleeti_target_of(fleet_plan_bucket(s->image.plan, f.bucket), f.counter);
        uint32_t base = (f.bucket_epoch - 1) * target;
        if ((int32_t)(f.expected - base) <= 0) base -= target; /* it waits for the step before */
        f.seen -= base;
        f.expected -= base;
    }
    return f;
}

uint32_t fleet_state_failure(const fleet_state *s, fleet_failure *failure)
{
    if (!failure) return 0;
    memset(failure, 0, sizeof *failure);
    if (!s || !s->host) return 0;
    /* Acquires the record. Pair: fleeti_publish_system in fleeti_record_failure (edge 14). */
    if (!fleeti_host_word(&s->host->status)) return 0;
    *failure = fleeti_read_failure(s, FLEETI_FIRST_FAILURE);
    failure->status = fleeti_host_word(&s->host->status);
    return 1;
}

static void fleeti_put_worker(fleeti_text *t, const fleet_plan *plan, uint32_t worker)
{
    uint32_t k = 0;
    if (worker >= plan->total_workers) {
        fleeti_put(t, "scheduler of chiplet %u", worker - plan->total_workers);
        return;
    }
    while (k + 1 < plan->chiplets && worker >= plan->worker_base[k + 1]) k++;
    fleeti_put(t, "worker %u (chiplet %u, its number %u)", worker, k,
               worker - plan->worker_base[k]);
}

/* Why a launch did not run all its steps, and what to do. */
static void fleeti_put_outcome(fleeti_text *t, const fleet_outcome *o)
{
    const char *recover = "call fleet_state_recover (a session: fleet_session_recover), then "
                          "launch it anew";
    fleeti_put(t, "launch %u", o->number);
    if (o->run != o->number) fleeti_put(t, " (run %u of the state)", o->run);
    fleeti_put(t, ": %s, ", fleet_status_name(o->status));
    if (!o->refused)
        fleeti_put(t, "it %s, and none of its steps count: %s\n",
                   o->ended ? "failed" : "is failing", recover);
    else if (o->status == FLEET_ERROR_BUSY && o->other != o->number)
        fleeti_put(
            t,
            "refused: launch %u had not ended. Launch it after that one, in the same stream, "
            "or on a state of its own\n",
            o->other);
    else if (o->status == FLEET_ERROR_BUSY)
        fleeti_put(t, "refused: another one came before all its workgroups were there. Launch one "
                      "after the other, in one stream, or on a state each\n");
    else if (o->status == FLEET_ERROR_RESIDENCY)
        fleeti_put(t, "refused: its workgroups were not resident together. Plan fewer workers, or "
                      "launch it when the device has room\n");
    else if (o->status == FLEET_ERROR_POISONED)
        fleeti_put(t, "refused: launch %u had failed: %s\n", o->other, recover);
    else if (o->status == FLEET_ERROR_ABORTED)
        fleeti_put(t, "refused: fleet_state_abort was called before it began: %s\n", recover);
    else
        fleeti_put(t, "it was not begun: its call returned an error\n");
}

/* The first line says what holds for all launches together: FLEET_OK is every step that was asked
   for. */
static void fleeti_put_launches(fleeti_text *t, const fleet_state *s)
{
    fleet_outcome o;
    const uint32_t claims = fleeti_claims(s);
    const uint32_t first = claims > FLEETI_LOG_ENTRIES ? claims - FLEETI_LOG_ENTRIES : 0;
    const uint32_t busy = fleeti_host_word(&s->host->busy);
    const uint32_t nonresident = fleeti_host_word(&s->host->nonresident);
    const uint32_t refused = busy + nonresident + fleeti_host_word(&s->host->poisoned);
    uint32_t status = fleeti_host_word(&s->host->status), running = 0, by_host = 0;
    for (uint32_t i = first; i < claims; i++) {
        if (!fleeti_outcome_of(s, i, claims, &o)) continue;
        if (!o.ended && !o.status) running = o.number;
        by_host += o.status == FLEET_ERROR_ABORTED && o.refused;
    }
    if (!status)
        status = busy          ? FLEET_ERROR_BUSY
                 : nonresident ? FLEET_ERROR_RESIDENCY
                 : refused     ? FLEET_ERROR_POISONED
                               : FLEET_OK;
    if (running && !status)
        fleeti_put(t, "launch %u is running", running);
    else
        fleeti_put(t, "%s: %s", fleet_status_name((fleet_status)status),
                   fleet_status_text((fleet_status)status));
    if (running && status) fleeti_put(t, "; launch %u is running", running);
    fleeti_put(t, "; %u launches finished, ", fleeti_host_word(&s->host->finished));
    if (refused + by_host) fleeti_put(t, "%u refused, ", refused + by_host);
    fleeti_put(t, "%u steps done\n", fleet_state_epoch(s));
    for (uint32_t i = first; i < claims; i++)
        if (fleeti_outcome_of(s, i, claims, &o) && o.status) fleeti_put_outcome(t, &o);
}

size_t fleet_state_report(const fleet_state *s, char *text, size_t bytes)
{
    char name[160];
    uint32_t bucket = 0;
    fleeti_text t = fleeti_text_at(text, bytes);
    if (!s || !s->host || !s->image.plan) return 0;
    const fleet_plan *plan = s->image.plan;
    if (s->beside) fleeti_put(&t, "pool 0: ");
    fleeti_put_launches(&t, s);
    if (plan->ranks > 1 && s->peers.rank != FLEET_ALL_RANKS)
        fleeti_put(&t, "this is rank %u of %u\n", s->peers.rank, plan->ranks);
    if (s->message[0]) fleeti_put(&t, "refused: %s\n", s->message);
    if (fleeti_host_word(&s->host->resident_needed)) {
        uint32_t k = fleeti_host_word(&s->host->resident_chiplet);
        if (k == FLEETI_ANY_CHIPLET)
            fleeti_put(&t,
                       "a launch was refused: %u of its %u workgroups became resident in time\n",
                       fleeti_host_word(&s->host->resident_found),
                       fleeti_host_word(&s->host->resident_needed));
        else
            fleeti_put(
                &t, "a launch was refused: chiplet %u had %u workgroups, but the plan needs %u\n",
                k, fleeti_host_word(&s->host->resident_found),
                fleeti_host_word(&s->host->resident_needed));
    }
    fleet_failure first = fleeti_read_failure(s, FLEETI_FIRST_FAILURE);
    for (uint32_t w = 0; w < plan->total_workers + plan->chiplets + 1; w++) {
        fleet_failure f = w ? fleeti_read_failure(s, w - 1) : first;
        if (!f.status) continue;
        if (w && f.worker == first.worker && f.task == first.task && f.counter == first.counter)
            continue;
        fleeti_put(&t, w ? "also:  " : "first: ");
        fleeti_put_worker(&t, plan, f.worker);
        fleet_plan_task_name(fleet_plan_bucket(plan, f.bucket), f.task, name, sizeof name);
        fleeti_put(&t, ", task %s, step %u: ", name, f.epoch);
        if (f.status == FLEET_ERROR_TENSOR_VALUE && f.counter < plan->n_tensors) {
            if (f.seen == FLEETI_TENSOR_SUM)
                fleeti_put(&t,
                           "its values in run-time tensor %s add up to %u, not to the notifies of "
                           "the gather edges\n",
                           fleeti_tensor_name(plan, f.counter), f.expected);
            else
                fleeti_put(
                    &t, "run-time tensor %s holds %d at index %u, which its map does not allow\n",
                    fleeti_tensor_name(plan, f.counter), (int)f.expected, f.seen);
        } else if (f.status == FLEET_ERROR_SYMBOL_RANGE && f.counter < plan->n_symbols) {
            const fleeti_symbol *symbol = fleeti_plan_symbols(plan) + f.counter;
            fleeti_put(&t,
                       "it sets symbol %s from %d to %d, outside [%d, %d] or, for a cut, above\n",
                       fleeti_symbol_name(plan, f.counter), (int)f.expected, (int)f.seen,
                       (int)symbol->min, (int)symbol->max);
        } else if (f.status == FLEET_ERROR_PEER_PLAN) {
            fleeti_put(&t, "rank %u has another plan: all ranks build theirs from the same graph\n",
                       f.peer);
        } else if (f.status == FLEET_ERROR_PEER_FAILED) {
            fleeti_put(&t, "rank %u has failed, see its own report\n", f.peer);
        } else if (f.status == FLEET_ERROR_PEER_TIMEOUT &&
                   (f.counter & ~FLEETI_SYSTEM) < FLEETI_PEER_LINES * FLEETI_EVENT_LINE) {
            fleeti_put(&t, "rank %u has not %s in time\n", f.peer,
                       (f.counter & ~FLEETI_SYSTEM) < FLEETI_PEER_PLAN ? "sent flagged data"
                                                                       : "started");
        } else if (f.status == FLEET_ERROR_PEER_TIMEOUT) {
            fleet_plan_counter_name(fleet_plan_bucket(plan, f.bucket), f.counter, name,
                                    sizeof name);
            fleeti_put(&t, "waits for %s: rank %u has not notified in time\n", name, f.peer);
        } else if (f.status == FLEET_ERROR_TILE && f.tile_status == FLEET_ERROR_BARRIER) {
            fleeti_put(&t, "%u of %u threads wait at a barrier", f.seen, f.expected);
            if (f.counter) fleeti_put(&t, " in line %u", f.counter);
            fleeti_put(&t, ", which the others do not reach (%s)\n",
                       fleet_status_name((fleet_status)f.tile_status));
        } else if (f.status == FLEET_ERROR_TILE && f.tile_status == FLEET_ERROR_LDS) {
            fleeti_put(&t, "%s\n", fleet_status_text((fleet_status)f.tile_status));
        } else if (f.counter) {
            fleet_plan_counter_name(fleet_plan_bucket(plan, f.bucket), f.counter, name,
                                    sizeof name);
            fleeti_put(&t, "waits for %s, which has %u of %u arrivals (%s)\n", name, f.seen,
                       f.expected, fleet_status_name((fleet_status)f.status));
        } else if (f.status == FLEET_ERROR_TILE) {
            fleeti_put(&t, "the tile returned %u (%s%s)\n", f.tile_status,
                       fleet_status_name((fleet_status)f.tile_status),
                       f.tile_status == FLEET_ERROR_UNSUPPORTED
                           ? ", as fleet_finish does where fleet_launch_desc.finish is 0"
                           : "");
        } else if (f.status == FLEET_ERROR_UNSUPPORTED) {
            fleeti_put(&t, "its kernel has a FLEET_STATIC_WORKER_LOOP, which runs STATIC plans "
                           "only: build the "
                           "plan with FLEET_SCHEDULE_STATIC, or give the kernel a "
                           "FLEET_WORKER_LOOP\n");
        } else if (f.status == FLEET_ERROR_LAUNCH) {
            fleeti_put(&t,
                       "no room for the weight pipeline: its ring needs %u bytes of LDS, of "
                       "which there are %u, and its producer needs a wave; set "
                       "fleet_launch_desc.pipeline_bytes = FLEET_PIPELINE_BYTES(set)\n",
                       f.expected, f.seen);
        } else {
            fleeti_put(&t, "%s\n", fleet_status_text((fleet_status)f.status));
        }
    }
    uint32_t *running = (uint32_t *)calloc(plan->total_workers + 1u, 4);
    if (running &&
        !fleeti_snapshot(&bucket, s->device + offsetof(fleeti_state, bucket), sizeof bucket) &&
        !fleeti_snapshot(running, s->device + s->running, (size_t)plan->total_workers * 4))
        for (uint32_t w = 0; w < plan->total_workers; w++) {
            if (!running[w] || fleeti_read_failure(s, w).status ||
                (first.status && first.worker == w))
                continue;
            fleet_plan_task_name(fleet_plan_bucket(plan, bucket), running[w] - 1, name,
                                 sizeof name);
            fleeti_put(&t, "now:   ");
            fleeti_put_worker(&t, plan, w);
            fleeti_put(&t, " still runs %s\n", name);
        }
    free(running);
    if (s->beside) {
        fleeti_put(&t, "pool 1: ");
        if (t.length >= bytes) text = NULL;
        t.length += fleet_state_report(s->beside, text ? text + t.length : NULL,
                                       text ? bytes - t.length : 0);
    }
    return t.length;
}

/* ---- host: sessions ---- */

/* Before memory that fleet_session_alloc has returned. */
struct fleeti_session_memory {
    fleeti_session_memory *next;
    void *device, *pinned;
};

fleet_session_desc fleet_session_desc_default(void)
{
    fleet_session_desc d;
    memset(&d, 0, sizeof d);
    d.plan = fleet_plan_desc_default();
    memset(&d.plan.topology, 0, sizeof d.plan.topology);
    d.state = fleet_state_desc_default();
    d.launch = fleet_launch_desc_default();
    return d;
}

/* Keeps the first failure, and why. */
static fleet_status fleeti_session_fail(fleet_session *s, fleet_status status, const char *format,
                                        ...)
{
    va_list list;
    if (s->failure || !status) return s->failure;
    fleeti_text t = fleeti_text_at(s->message, sizeof s->message);
    fleeti_put(&t, "%s: ", fleet_status_name(status));
    va_start(list, format);
    fleeti_put_list(&t, format, list);
    va_end(list);
    return s->failure = status;
}

fleet_status fleet_session_open(fleet_session *s, fleet_graph *g, const fleet_session_desc *desc,
                                fleet_kernel kernel)
{
    fleet_session_desc d = desc ? *desc : fleet_session_desc_default();
    const fleet_stream stream = d.launch.stream;
    fleet_status status = FLEET_OK;
    if (!s) return FLEET_ERROR_NULL;
    memset(s, 0, sizeof *s);
    s->kernel = kernel;
    s->launch = d.launch;
    if (!g || !kernel.address)
        return fleeti_session_fail(s, FLEET_ERROR_NULL, "the graph or the kernel is null");
    if (!kernel.traits->args_bytes)
        return fleeti_session_fail(s, FLEET_ERROR_ARGUMENT,
                                   "the kernel was not defined by FLEET_KERNEL");
    if (!d.plan.topology.chiplets) status = fleet_topology_query_stream(&d.plan.topology, stream);
    if (status) return fleeti_session_fail(s, status, "the device cannot be described");
    status = fleet_plan_build(g, &d.plan, &s->plan);
    if (status) return fleeti_session_fail(s, status, "%s", fleet_graph_error(g));
    uint64_t args_bytes = fleet_plan_args(s->plan);
    if (d.state.beside && fleet_plan_args(d.state.beside->image.plan) > args_bytes)
        args_bytes = fleet_plan_args(d.state.beside->image.plan);
    args_bytes *= kernel.traits->args_bytes;
    if (args_bytes > UINT32_MAX)
        return fleeti_session_fail(s, FLEET_ERROR_ARGUMENT, "the arguments take %llu bytes",
                                   (unsigned long long)args_bytes);
    s->args_bytes = (uint32_t)args_bytes;
    status = fleet_device_alloc(&s->args, s->args_bytes);
    if (!status) status = fleet_upload(&s->image, s->plan, stream);
    if (!status) status = fleet_state_create(&s->state, &s->image, &d.state, stream);
    return fleeti_session_fail(s, status, "image and state cannot be made%s%s",
                               s->state.message[0] ? ": " : "", s->state.message);
}

void *fleet_session_alloc(fleet_session *s, size_t bytes)
{
    fleeti_session_memory *memory;
    if (!s || s->failure || !s->plan) return NULL;
    memory = (fleeti_session_memory *)FLEET_MALLOC(sizeof *memory);
    fleet_status status = memory ? fleet_device_alloc(&memory->device, bytes) : FLEET_ERROR_MEMORY;
    if (status) {
        if (memory) FLEET_FREE(memory);
        fleeti_session_fail(s, status, "%llu bytes of device memory", (unsigned long long)bytes);
        return NULL;
    }
    memory->next = s->memory;
    memory->pinned = NULL;
    s->memory = memory;
    return memory->device;
}

fleet_status fleet_session_args(fleet_session *s, const void *args, size_t bytes)
{
    if (!s) return FLEET_ERROR_NULL;
    if (s->failure) return s->failure;
    if (!s->plan) return FLEET_ERROR_NULL;
    const uint32_t each = s->kernel.traits->args_bytes;
    s->message[0] = 0;
    /* A set whose struct holds nothing has one byte of arguments. */
    if (!args && !bytes && each == 1) return FLEET_OK;
    if (!args || bytes != s->args_bytes)
        return fleeti_session_fail(s, FLEET_ERROR_ARGUMENT,
                                   "args is %s%llu bytes, but must be %u: %u of the set's structs, "
                                   "which have %u each (1 + "
                                   "the largest args index of a grid)",
                                   args ? "" : "null and has ", (unsigned long long)bytes,
                                   s->args_bytes, s->args_bytes / each, each);
    s->has_args = 1;
    const fleet_status status = fleet_to_device(s->args, args, s->args_bytes, s->launch.stream);
    return fleeti_session_fail(s, status, "%s", fleet_status_text(status));
}

fleet_status fleet_session_launch(fleet_session *s)
{
    if (!s) return FLEET_ERROR_NULL;
    if (s->failure) return s->failure;
    if (!s->plan) return FLEET_ERROR_NULL;
    s->message[0] = 0;
    if (!s->has_args && s->kernel.traits->args_bytes > 1)
        return fleeti_session_fail(s, FLEET_ERROR_ARGUMENT,
                                   "the tiles have no arguments yet: call fleet_session_args");
    if (fleeti_failed(&s->state)) { /* or a recovery is enqueued */
        fleet_stream_wait(s->launch.stream);
        const fleet_status failed = fleeti_failed(&s->state);
        if (failed)
            return fleeti_session_fail(
                s, FLEET_ERROR_POISONED,
                "an earlier launch failed (%s, below) and has poisoned the state: call "
                "fleet_session_recover, then launch anew",
                fleet_status_name(failed));
    }
    const fleet_status status = fleet_launch(&s->state, &s->launch, s->kernel, s->args);
    return fleeti_session_fail(s, status, "%s", fleet_status_text(status));
}

fleet_status fleet_session_run(fleet_session *s, const void *args, size_t bytes)
{
    const fleet_status status = fleet_session_args(s, args, bytes);
    return status ? status : fleet_session_launch(s);
}

fleet_status fleet_session_recover(fleet_session *s)
{
    if (!s) return FLEET_ERROR_NULL;
    if (!s->state.host) return s->failure ? s->failure : FLEET_ERROR_NULL;
    fleet_status status = fleet_state_recover(&s->state, s->launch.stream);
    if (!status) status = fleet_stream_wait(s->launch.stream);
    s->failure = FLEET_OK;
    s->message[0] = 0;
    return fleeti_session_fail(s, status, "%s", fleet_status_text(status));
}

fleet_status fleet_session_wait(fleet_session *s)
{
    if (!s) return FLEET_ERROR_NULL;
    if (!s->state.host) return s->failure ? s->failure : FLEET_ERROR_NULL;
    fleet_status status = s->failure;
    s->failure = FLEET_OK;
    if (status) {
        fleet_stream_wait(s->launch.stream);
        return status;
    }
    return fleet_state_wait(&s->state, s->launch.stream);
}

size_t fleet_session_report(const fleet_session *s, char *text, size_t bytes)
{
    fleeti_text t = fleeti_text_at(text, bytes);
    if (s && s->message[0]) fleeti_put(&t, "%s\n", s->message);
    if (!s || !s->state.host) return t.length;
    if (t.length >= bytes) text = NULL;
    return t.length + fleet_state_report(&s->state, text ? text + t.length : NULL,
                                         text ? bytes - t.length : 0);
}

void fleet_session_close(fleet_session *s)
{
    if (!s) return;
    if (s->state.host) fleet_stream_wait(s->launch.stream);
    fleet_state_free(&s->state);
    fleet_image_free(&s->image);
    fleet_device_free(s->args);
    while (s->memory) {
        fleeti_session_memory *memory = s->memory;
        s->memory = memory->next;
        fleeti_memory_free(memory->device, memory->pinned);
        FLEET_FREE(memory);
    }
    fleet_plan_free(s->plan);
    memset(s, 0, sizeof *s);
}

fleet_status fleet_session_leave(fleet_session *s, fleet_session *to)
{
    fleeti_session_memory *memory[3], **end;
    if (!s || !to) return FLEET_ERROR_NULL;
    if (s == to || !to->plan) return FLEET_ERROR_ARGUMENT;
    for (uint32_t i = 0; i < 3; i++) {
        memory[i] = (fleeti_session_memory *)FLEET_MALLOC(sizeof *memory[i]);
        if (memory[i]) continue;
        while (i-- > 0) FLEET_FREE(memory[i]);
        return FLEET_ERROR_MEMORY;
    }
    if (s->state.host) fleet_stream_wait(s->launch.stream);
    memory[0]->device = s->state.device, memory[0]->pinned = s->state.host;
    memory[1]->device = s->image.device, memory[1]->pinned = NULL;
    memory[2]->device = s->args, memory[2]->pinned = NULL;
    s->state.owned = s->image.owned = 0, s->args = NULL;
    for (end = &to->memory; *end; end = &(*end)->next) {
    }
    for (uint32_t i = 0; i < 3; i++, end = &(*end)->next) *end = memory[i], memory[i]->next = NULL;
    *end = s->memory;
    s->memory = NULL;
    fleet_session_close(s);
    return FLEET_OK;
}

/* ---- host: events ---- */

static uint64_t fleeti_now_ns(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static fleet_status fleeti_external(const fleet_state *s, int32_t event, uint32_t element,
                                    uint32_t *word, uint32_t *target)
{
    if (!s || !s->image.plan) return FLEET_ERROR_NULL;
    if (event < 0 || (uint32_t)event >= s->image.plan->n_events) return FLEET_ERROR_HANDLE;
    const fleeti_event *v = fleeti_plan_events(s->image.plan) + event;
    if (element >= v->elements) return FLEET_ERROR_ARGUMENT;
    *word = v->counter + element * v->stride;
    *target = fleeti_plan_targets(s->image.plan)[v->first_target + element];
    return FLEET_OK;
}

/* The counter in host memory, for events of system scope. */
static fleet_status fleeti_external_host(const fleet_state *s, int32_t event, uint32_t element,
                                         uint32_t **at, uint32_t *target)
{
    uint32_t word = 0;
    fleet_status status = fleeti_external(s, event, element, &word, target);
    if (status) return status;
    if (!(word & FLEETI_SYSTEM)) return FLEET_ERROR_SCOPE;
    *at = (uint32_t *)(void *)((char *)s->host + s->system) + (word & ~FLEETI_SYSTEM);
    return FLEET_OK;
}

fleet_status fleet_event_notify(fleet_state *s, int32_t event, uint32_t element, uint32_t epoch)
{
    uint32_t *at = NULL, target = 0;
    fleet_status status = fleeti_external_host(s, event, element, &at, &target);
    if (!status && (int32_t)(__atomic_load_n(at, __ATOMIC_RELAXED) - (epoch - 1) * target) < 0)
        return FLEET_ERROR_EPOCH;
    /* Publishes what this thread wrote to the workgroup that waits. Pair: fleeti_invalidate_system (edge 16). */
    if (!status) __atomic_fetch_add(at, 1, __ATOMIC_ACQ_REL);
    return status;
}

fleet_status fleet_event_test(const fleet_state *s, int32_t event, uint32_t element, uint32_t epoch,
                              uint32_t *done)
{
    uint32_t *at = NULL, target = 0;
    if (!done) return FLEET_ERROR_NULL;
    *done = 0;
    fleet_status status = fleeti_external_host(s, event, element, &at, &target);
    /* Acquires what the notifying workgroup published. Pair: fleeti_write_back_system before its arrival (edge 16). */
    if (!status) *done = (int32_t)(__atomic_load_n(at, __ATOMIC_ACQUIRE) - epoch * target) >= 0;
    return status;
}

fleet_status fleet_event_wait(const fleet_state *s, int32_t event, uint32_t element, uint32_t epoch,
                              uint64_t limit_ns)
{
    uint64_t waited = 0, last = fleeti_now_ns();
    if (limit_ns > INT64_MAX && limit_ns != FLEET_LIMIT_NONE) return FLEET_ERROR_ARGUMENT;
    for (;;) {
        const uint64_t now = fleeti_now_ns();
        uint32_t done = 0;
        fleet_status status = fleet_event_test(s, event, element, epoch, &done);
        if (status || done) return status;
        if ((status = (fleet_status)fleeti_host_word(&s->host->status))) return status;
        /* After a longer time the process, or this thread, has not run meanwhile. */
        waited += now - last < FLEETI_LONGEST_LOOK_NS ? now - last : FLEETI_LONGEST_LOOK_NS;
        last = now;
        if (limit_ns != FLEET_LIMIT_NONE && waited > limit_ns) return FLEET_ERROR_TIMEOUT;
        sched_yield(); /* a wave may need the processor */
    }
}

fleet_status fleet_event_handle(const fleet_state *s, int32_t event, uint32_t element,
                                fleet_event *out)
{
    uint32_t word = 0, target = 0;
    fleet_status status;
    if (!out) return FLEET_ERROR_NULL;
    memset(out, 0, sizeof *out);
    if ((status = fleeti_external(s, event, element, &word, &target))) return status;
    out->words = word & FLEETI_SYSTEM ? (uint32_t *)(void *)((char *)s->host_device + s->system)
                                      : (uint32_t *)(void *)(s->device + s->counters);
    out->counter = word & ~FLEETI_SYSTEM;
    out->target = target;
    out->watch.stop = &((const fleeti_state *)(const void *)s->device)->stop.word;
    out->watch.host_abort = &s->host_device->abort.word;
    out->watch.limit_ticks = FLEETI_DEFAULT_LIMIT_NS / FLEETI_CLOCK_NS;
    return FLEET_OK;
}

void fleet_wake(uint32_t *word)
{
    /* Publishes what this thread wrote to the task that waits. Pair: fleet_idle (edge 29). */
    __atomic_fetch_add(word, 1, __ATOMIC_RELEASE);
}

/* ---- host: traces ---- */

fleet_trace_desc fleet_trace_desc_default(void)
{
    fleet_trace_desc d;
    memset(&d, 0, sizeof d);
    d.records = 1024;
    return d;
}

/* The offset of the records. */
static size_t fleeti_trace_records_at(const fleet_plan *plan)
{
    return sizeof(fleeti_trace) + fleeti_lines(plan->total_workers * sizeof(fleeti_trace_row));
}
static size_t fleeti_trace_size(const fleet_trace *trace)
{
    return fleeti_trace_records_at(trace->plan) +
           (size_t)trace->plan->total_workers * trace->records * sizeof(fleeti_trace_record);
}

static uint32_t fleeti_may_trace(uint32_t records)
{
    return records && records <= FLEETI_MAX_INDEX;
}

size_t fleet_trace_bytes(const fleet_plan *plan, const fleet_trace_desc *desc)
{
    fleet_trace trace;
    trace.plan = plan;
    trace.records = desc ? desc->records : fleet_trace_desc_default().records;
    return plan && fleeti_may_trace(trace.records) ? fleeti_trace_size(&trace) : 0;
}

fleet_status fleet_trace_init(fleet_trace *trace, const fleet_plan *plan,
                              const fleet_trace_desc *desc, void *device_memory,
                              fleet_stream stream)
{
    const fleet_trace_desc d = desc ? *desc : fleet_trace_desc_default();
    fleeti_trace header;
    if (!trace) return FLEET_ERROR_NULL;
    memset(trace, 0, sizeof *trace);
    if (!plan || !device_memory) return FLEET_ERROR_NULL;
    if (!fleeti_may_trace(d.records)) return FLEET_ERROR_ARGUMENT;
    memset(&header, 0, sizeof header);
    trace->plan = plan;
    trace->device = device_memory;
    trace->records = header.records = d.records;
    header.first_step = d.first_step;
    header.workers = plan->total_workers;
    fleet_status status = fleet_device_clear(device_memory, fleeti_trace_size(trace), stream);
    if (!status) status = fleet_to_device(device_memory, &header, sizeof header, stream);
    if (status) memset(trace, 0, sizeof *trace);
    return status;
}

fleet_status fleet_trace_create(fleet_trace *trace, const fleet_plan *plan,
                                const fleet_trace_desc *desc, fleet_stream stream)
{
    void *memory = NULL;
    fleet_status status;
    if (!trace) return FLEET_ERROR_NULL;
    memset(trace, 0, sizeof *trace);
    if (!plan) return FLEET_ERROR_NULL;
    if (desc && !fleeti_may_trace(desc->records)) return FLEET_ERROR_ARGUMENT;
    if ((status = fleet_device_alloc(&memory, fleet_trace_bytes(plan, desc)))) return status;
    if ((status = fleet_trace_init(trace, plan, desc, memory, stream)))
        fleet_device_free(memory);
    else
        trace->owned = 1;
    return status;
}

void fleet_trace_free(fleet_trace *trace)
{
    if (!trace) return;
    if (trace->owned) fleet_device_free(trace->device);
    memset(trace, 0, sizeof *trace);
}

FLEET_C_END

#endif /* FLEET_IMPLEMENTATION */
