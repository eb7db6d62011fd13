/* fleet_device.h - v0.3 - scoped notify and wait for kernels on chiplet GPUs - MIT licence

   How one workgroup tells others that data is ready, on AMD (gfx90a, gfx942, gfx950; others through agent scope), NVIDIA
   (sm_80 and later) and the CPU: one notify and one wait, event tensors, the chiplet's id, scoped atomics, and the few
   block and wave primitives that make tile code portable. Also loads and stores by cache policy, and the stages of a
   weight pipeline. It knows no queue, no graph and no plan, so it is useful alone, in any kernel.

   STABILITY: as the first page of fleet.h says; so for the functions and types of >>public, and for
   nothing with fleeti_.

   CONTENTS
       >>manual          this comment: options, memory model, edges, errors
       >>platform        what each compiler brings
       >>public          what kernels and hosts call
       >>layout          LDS words and types that the backends and the core share
       >>contract        what each backend defines, and what it may
       >>amd             the backends: whole sections, weight pipeline included
       >>nvidia
       >>host
       >>defaults        what backends have alike
       >>core            notify, wait, weight pipeline, events: the same on every backend
       >>implementation  GPU runtimes and CPU engines, where FLEET_IMPLEMENTATION is defined

   RECIPE
       One source builds in three ways: hipcc -x hip, nvcc -x cu, cc -x c (C11) or c++ (C++17). In exactly one file, define
       FLEET_IMPLEMENTATION before the include. Your GPU compiler must compile that file (on the CPU: any compiler; link
       with -pthread).

   THE SMALLEST KERNEL
           FLEET_EVENT_TENSOR1(rows_done, rows)
           FLEET_GLOBAL(256) void half(rows_done done, const float *x, float *y, uint32_t epoch)
           {
               ... every thread of the workgroup writes its part of row i ...
               fleet_notify_device(FLEET_BLOCK, rows_done_at(&done, i), epoch);
               if (fleet_wait_device(FLEET_BLOCK, rows_done_at(&done, k), epoch)) return;
               ... row k, written by other workgroups, may now be read ...
           }
           FLEET_THUNK4(half, rows_done, const float *, float *, uint32_t)

   WHAT IT DOES NOT DO
       It does not queue, schedule or balance (fleet_sched.h does), and brings no tile code.

   OPTIONS (scope: every file that has device code, the same everywhere)
       FLEET_NO_WATCHDOG          waits check no clock and no abort word; that code is not compiled
       FLEET_MEMORY_MODEL         the CPU: fleet_host_desc.memory_model works. examples/tools/memory_model.sh compiles a
                                  program with it and links the instrument

   MEMORY MODEL (the whole argument; each backend section says which instruction does what)
       notify, by all threads of a group:
         1. drain: every wave waits until its own stores are in the L2 of its chiplet;
         2. barrier of the group, so that the leader comes after all drains;
         3. the leader arrives. At block and chiplet scope this is one RMW and nothing else, since the readers share that
            L2. At device scope, where several producers of the element run on one chiplet, it is an RMW on the chiplet's
            sub-counter; the arrival that completes the chiplet's share releases once, for all of them, and adds the share
            to the element's counter. A lone producer releases and adds.
       wait, by all threads of a group: lanes of the leading wave poll one counter each with loads of the counter's scope;
         then comes one acquire at the widest scope; then the barrier of the group.
       The release of (3) pairs with that acquire; the RMW and the poll carry it.
       Counters only grow. Epoch e is complete when counter - e * target >= 0 in 32-bit arithmetic that wraps. Counters are
       never reset.

   EDGES
       What one worker tells another, the host, or another wave of its workgroup. The number of an edge stands at both of
       its ends in the code ("edge 4"). On AMD orders are fences around relaxed atomics: a write-back before, an invalidate
       after, each with its own wait. On NVIDIA and the CPU orders are part of the operations: acq_rel RMWs, release stores
       and acquire loads; write-back and invalidate do nothing there. Names that both kinds share say what a step does
       (drain, write back, invalidate, poll, add an arrival), not an order that only one of them has.
       Headers of examples/parts have tables of their own, with the numbers that are missing here.
       The last line of an edge lists what fails without it. A: tests/isa/mutants.py, by the name of the mutant. M: the bugs
       of tests/host/memory_model.sh. N: tests/isa/nvidia.py. S: the broken twins of tests/model.

        1 event, device or system scope. The group's stores -> every group that waits
          release  fleeti_notify_all: each wave drains, barrier; fleeti_arrive: AMD write-back; NVIDIA, CPU: the add
          carrier  the element's counter
          acquire  fleeti_wait_all: polls, invalidate (NVIDIA: fence after relaxed polls), barrier; fleeti_event_test
          red      A drain, barrier between drain and arrival, device release, acquire in the wait; M all; N; S two_level
        2 share of a chiplet. Stores of the chiplet's other producers -> the last to arrive, which writes back for all
          release  fleeti_arrive: the drain (one L2 holds all stores); NVIDIA, CPU: acq_rel RMW of each
          carrier  the chiplet's sub-counter; exact: old + 1 == epoch * share
          acquire  the last arrival's RMW; its write-back comes after
          red      A last of the chiplet; M release before the sub-counter; S two_level
        3 event, block or chiplet scope. As 1, for readers that share the producers' L2
          release  fleeti_notify_all: drain, barrier; NVIDIA, CPU: the add
          carrier  the element's counter
          acquire  fleeti_wait_all: AMD fleeti_invalidate_chiplet
          red      A chiplet acquire; M no acquire at chiplet scope; N
        4 previous epoch, of an event by hand. All arrivals of epoch e - 1 -> an arrival of epoch e
          release  edge 1 or 3     carrier  the element's counter
          acquire  fleeti_arrive: fleeti_await_previous_epoch, by the leader, before any counter of epoch e changes
          red      tests/gpu/events.c, producers_run_ahead
        5 join, DYNAMIC. What the producers of a task with several events published -> the worker that pushes it
          release  edge 1, then fleeti_push_consumers: RMW     carrier  the join counter; exact: old + 1 == epoch * need
          acquire  the RMW that completes the count
          red      A join: one too early; S ring
        6 ready ring, DYNAMIC. What made the task ready -> the worker that pops it
          release  fleeti_ring_push, fleeti_ring_push_run: fleeti_post_order (AMD: the RMW's value has come back)
          carrier  the slot, with its ticket; `available` promises it
          acquire  fleeti_dynamic_take: fleeti_ring_take polls the slot, then invalidate at device scope
          red      A ready ring: acquire, a ticket without an entry; N; S ring
        7 mailbox, CHIPLET. What the scheduler observed complete -> the worker that it posts to
          release  fleeti_scheduler: fleeti_post_order, once before the posts
          carrier  the mailbox's slot: sequence, scope, batch and descriptor in one 64-bit store
          acquire  fleeti_chiplet_next: poll, invalidate at the scope that the mail names
          red      A mailbox: acquire, a plain store, poll; M no acquire after the mailbox; N
        8 room in a mailbox. The worker's read of the slot -> the scheduler, which overwrites it
          release  fleeti_chiplet_next: the slot's load has returned     carrier  taken     acquire  fleeti_post: poll
          red      A mailbox: room (a slot is overwritten: tasks are lost)
        9 end of a step. All of step s -> sources of step s + 1, and the end of the run
          release  edge 1, at the step event     carrier  its counter
          acquire  edge 1, in the first source of a queue; DYNAMIC edges 5 and 6; fleeti_dynamic_poll: over
          red      tests/plan/check.h, each plan; tests/gpu/random.c; S end
       10 run-time tensor. The writer's values -> the workers that read its map
          release  fleeti_tensors_wrong: drain, barrier (to the wave that checks); edge 1 to others
          carrier  the counters of its events     acquire  loads past the L1: fleeti_tensor_value
          red      A tensors: drain before the look, run-time maps: release
       11 claim. What earlier launches left -> the launch that opens a run
          release  fleeti_leave, fleeti_residency_check: drain, RMW     carrier  due     acquire  fleeti_claim: RMW of due
          red      A claim, exit, leave: drain before the state is free, residency: drain before leaving; N claim, claim
                   withdrawn, leave; tests/host/claims.c under TSan; S claim
       12 residency. What a claim has set -> launches that were refused meanwhile; each workgroup's
          place -> the one that decides; its result -> all workgroups, in one word for each chiplet
          release  fleeti_claim: drain, barrier, RMW of due; fleeti_residency_check: RMW of the count
          carrier  due; resident; residency; result; for the claim's own launch its kernel's end
          acquire  fleeti_claim_yield: poll of due; fleeti_residency_check: poll;
                   fleeti_residency_decide: polls; fleeti_enter: fleeti_await_kernel
          red      A claim: drain, barrier before others may look; word for other workgroups: drain;
                   N; tests/host/claim_orders.c; S claim
       13 exit. What each workgroup stored -> the workgroup that closes the run
          release  fleeti_leave: each wave drains, barrier; drain, RMW     carrier  left of its chiplet, then exited
          acquire  the last one's RMWs     red  A leave: drain before the barrier, the count; N; S claim, end
       14 stop. A failure's report, and the end of the run -> all waits, and the host
          release  fleeti_record_failure: fleeti_publish_system     carrier  stop (device), status (host memory)
          acquire  fleeti_check_watch and workers between tasks: relaxed, no data follows; the host: fleet_state_failure
          red      A word for the host: drain, residency: drain before it has failed; tests/gpu/failures.c, faults.c; S end
       15 abort. The host's request -> the workers     carrier  abort, relaxed both ways: no data follows
          ends     fleet_state_abort; fleeti_check_watch, fleeti_static_finish, fleeti_dynamic_poll, fleeti_scheduler
          red      tests/gpu/failures.c, faults.c; S end
       16 host to device and back, system scope. As 1, with a host thread at one end
          release  fleet_event_notify: RMW; fleeti_arrive: system write-back     carrier  the counter in host memory
          acquire  fleeti_wait_all: system invalidate; fleet_event_test: load
          red      A system release, system acquire, system poll; N
       17 trace. Records -> the host     release  the end of the kernel     carrier  stream order
          ends     fleeti_trace_notified; the copy to the host     red  tests/gpu/trace.c
          before   a worker's places are clear: fleeti_trace_enter: drain, barrier     red  A trace; N trace
       18 a stage is full. The copy -> the consumer waves     carrier  full (AMD, CPU: the use itself; NVIDIA: mbarrier)
          release  fleeti_copies_progress (AMD: wait for the copies); NVIDIA complete_tx, and fleeti_stage_fill: `turn`
          acquire  fleeti_stage_is_full; NVIDIA fleeti_stage_turn_reached: the turn     red  A stage; N; S stages
       19 a stage is free. The consumers' reads -> the producer, which fills it again     carrier  released
          release  fleeti_stage_release: waits for the reads     acquire  fleeti_stage_is_free     red  A stage; S stages
       20 a task's place in the ring. The producer -> the consumers     carrier  the entry's tag
          release  fleeti_producer_begin_task: store     acquire  fleeti_pipeline_begins     red  tests/gpu/stream.c
       21 the current task has begun, or the one before has ended. What its events published; the tile's reads -> the producer
          release  fleeti_pipeline_begun, after the wait for the events and the barrier that ended the task before
          carrier  begun     acquire  fleet_producer_await_task, _await_previous, then fleeti_copies_order; fleeti_producer_task_ended
          red      N stage: proxy fence after the task's events; tests/gpu/stream.c, stages_left_unread; S stages
       22 flagged data: results with the task's tag in the same 16-byte store, which is read as a whole. It orders nothing;
          the reader polls until the tag is its own. By the kit's stores and loads (edge 35), in examples/qwen3:
          store_kv_partial, store_split_k, share_scales -> combine_kv_splits, add_partials, load_scales
          red      N the kit's flagged store and load, KV partial, KV splits, split-K sums, scales, tag (tags by emulated.c)
       23 early push. All producers of an element have started -> the worker that pushes its consumers: publishes no data,
          since the consumer waits for its events (edge 1)     carrier  taken; exact     ends  fleeti_push_early, twice
       24 posted task, CHIPLET and DYNAMIC. Its words -> the producer; the waves do not wait for it
          release  fleeti_pipeline_begun: 0, order, the words, then the number     carrier  post, a sequence lock
          acquire  fleeti_produce_posted: the number, the words, order, the same number
          red      A posted task: order; N posted task; S post
       25 early end of a run. A tile's decision -> all workers, before the next step
          release  fleet_finish: store, then edges 1 and 9 of its step     carrier  finish; epochs only grow
          acquire  fleeti_finishes, fleeti_last_epoch: after the step event, invalidate, load
          red      A early end; N early end; S finish; tests/gpu/finish.c
       28 symbol that a task sets. Its value and the shapes -> tasks of the next step; after a cut, of the grids after it
          release  fleeti_set_symbol_now: stores, then edges 1 and 9 of its task     carrier  the counters of its events
          acquire  fleeti_finishes, fleeti_last_epoch, or edge 1; then loads past the L1: fleeti_shape_of
          red      tests/gpu/symbols.c, tests/gpu/random.c
       29 news from the host. What a host thread wrote -> the task that waits in fleet_idle
          release  fleet_wake: RMW     carrier  the host's word
          acquire  fleet_idle: fleeti_poll_system, system invalidate, barriers     red  A idle wait; N idle wait
       30 idle wait. That the boundary waits for the host -> waits that would time out; relaxed both ways: no data follows
          ends     fleet_idle; fleeti_check_watch     red  tests/gpu/symbols.c
       32 event over ranks, system scope. Stores of one device's producers, to its own and to other memory -> every group on
          other devices that waits
          release  edges 1 and 2 up to the device's counter, at system scope; fleeti_arrive_for_peers: RMW; the last arrival
                   of the device: fleeti_publish_system to each rank that waits
          carrier  the element's word in the region of that rank: the epoch, stored by one rank
          acquire  fleeti_wait_all: polls, system invalidate; fleeti_await_peers, at the end of a launch
          red      A event over ranks, system release: for the device only, system acquire: from the device only; M each of a
                   rank stores, release and acquire at system scope; tests/host/ranks.c, devices.c under TSan
       33 meeting of the ranks, before the first step. That each runs, and its plan; relaxed: no data follows
          ends     fleeti_meet_peers, twice     carrier  a word for each rank     red  tests/host/devices.c
       34 stop over ranks. That a rank ended the run, and whom each has waited for too long -> waits and failure records of
          the others; relaxed: no data follows
          ends     fleeti_stop_peers; fleeti_check_peers, to each other and to fleeti_record_failure
          carrier  FLEETI_PEER_STOP, FLEETI_PEER_LATE of each region     red  tests/host/devices.c
       35 flagged data of the kit. The other words of a quad -> the reader that sees its flag; nothing else
          release  fleet_store_flagged_device, _system: one store (AMD: a wait before the flag's; CPU: that releases); in
                   examples/qwen3 between ranks: push_sums -> add_summands
          carrier  word[3]     acquire  fleet_load_flagged_device, _system; fleet_await_flagged
          red      A flagged data over ranks; tests/host/ranks.c, flagged_words_are_whole

   LOOPS
       The loops of device code that may turn for any time: they wait for others, or walk what has no end of its own. The
       number of a loop stands at it ("loop 3"); every other one counts, or says what it is bounded by. All end by one path: who
       ends a run calls fleeti_record_failure, which sets the stop word of the state and of the state beside it, and tells the
       host and the other ranks (edges 14, 34). Loops see it by
         watch  fleeti_check_watch, every so many polls: the stop word, the host's abort, the limit, the other ranks
         quit   the word of a workgroup's pipeline, which its waves set when they leave or have seen the stop word; or that
       With FLEET_NO_WATCHDOG only what is waited for ends a loop. "test" ends the run inside of it.

        1 fleeti_task_barrier: waves of a workgroup; on the CPU fleeti_host_barrier
          ends  all waves arrive: each wait before it ends              test  tests/gpu/endings.c, endless_without_work
        2 fleeti_poll_until: a wait for an event; the previous epoch; other ranks at the end of a launch
          ends  watch                                                   test  tests/gpu/endings.c, waits
        3 fleeti_stages_wait: a tile's wait for a stage
          ends  quit, limit                                             test  tests/gpu/endings.c, pipelines
        4 fleeti_producer_await_copy: a copy lands, also after the end of a run, since its LDS may get another owner
          ends  the copy, limit                                         test  tests/gpu/endings.c, pipelines
        5 fleeti_producer_await_stage: the producer's wait for a free stage
          ends  quit                                                    test  tests/gpu/endings.c, pipelines
        6 fleeti_producer_begin_task: the producer's wait for a free entry of its ring of tasks
          ends  quit                                                    test  tests/gpu/endings.c, pipelines
        7 fleeti_producer_await_begun: the producer's wait for its workgroup
          ends  quit                                                    test  tests/gpu/endings.c, pipelines
        8 fleet_producer_await_step: the producer's wait for the end of the step before
          ends  quit                                                    test  tests/gpu/endings.c, pipelines
        9 fleeti_finishes: the end of a step that may be the last one
          ends  watch                                                   test  tests/gpu/endings.c, schedules
       10 fleeti_idle_until: a tile that waits for the host, or for the other pool
          ends  stop, abort; it has no limit                            test  tests/gpu/endings.c, idle_tiles
       11 fleet_await_flagged: a tile that waits for data of another rank
          ends  watch                                                   test  tests/gpu/endings.c, idle_tiles
       12 fleeti_meet_peers: the first launches of all ranks
          ends  watch                     test  tests/host/devices.c, an_abort_while_ranks_meet_travels
       13 fleeti_residency_decide: the workgroups of the launch are counted
          ends  watch, another's result                                 test  tests/gpu/endings.c, residency
       14 fleeti_residency_check: the result
          ends  watch                                                   test  tests/gpu/endings.c, residency
       15 fleet_consumer_open: the producer begins the tile's stages
          ends  quit, limit                                             test  tests/gpu/endings.c, pipelines
       16 fleeti_produce_posted: the producer's wait for the next task
          ends  quit                                                    test  tests/gpu/endings.c, schedules
       17 fleeti_produce_next: the producer walks its worker's queue, a step after the other
          ends  last step, quit           test  tests/gpu/endings.c, endless_without_work
       18 fleeti_chiplet_next: a worker's wait for its mailbox
          ends  watch, with twice the limit                             test  tests/gpu/endings.c, schedules
       19 fleeti_post: a scheduler's wait for room in a mailbox
          ends  watch                                                   test  tests/gpu/endings.c, room_in_a_mailbox
       20 fleeti_scheduler: a scheduler walks its chiplet's tasks, a step after the other
          ends  last step, watch          test  tests/gpu/endings.c, endless_without_work
       21 fleeti_ring_take: an entry that is being pushed
          ends  watch                                                   test  tests/gpu/endings.c, waits
       22 fleeti_make_ready: tasks become ready, and what absent ones complete, a step after the other
          ends  last step, watch          test  tests/gpu/endings.c, endless_without_work
       23 fleeti_dynamic_poll: a worker's wait for a task
          ends  last step, watch                                        test  tests/gpu/endings.c, schedules
       24 FLEETI_LOOP: the producer's tasks
          ends  loops 16 and 17           test  tests/gpu/endings.c, endless_without_work
       25 FLEETI_LOOP: the worker's tasks
          ends  last step; STATIC: fleeti_static_finish looks between two tasks; loops 18, 23
                                          test  tests/gpu/endings.c, endless_without_work
       26 fleeti_next_task_slow: a wave that has no task in many batches of wavefront-tasks
          ends  as loop 25                test  tests/gpu/endings.c, endless_without_work
       30 fleeti_claim_yield: a refused claim's wait for the one that opens a run
          ends  that claim, which waits for nothing         test  tests/host/claim_orders.c
       31 fleeti_claim_yield: and for the workgroups of that run to begin
          ends  watch                                                   test  tests/host/claims.c

   ERRORS
       wait and test return a fleet_status to every thread of the group. Host functions return one.
*/
/* Outside the guard: the implementation below it comes with the second inclusion. */
#include "fleet.h"
#if FLEET_VERSION != 300
#error "fleet_device.h is of fleet 0.3, fleet.h is not: copy all headers from one version"
#endif

#ifndef FLEET_DEVICE_H
#define FLEET_DEVICE_H
#define FLEETI_DEVICE_VERSION 300

/* ==== >>platform: what each compiler brings ==== */

/* FLEET_DEVICE             a function that device code calls
   FLEETI_OUTLINED          the same, called where that is cheap: long functions of schedulers
   FLEET_GLOBAL(threads)    a kernel of at most that many threads per workgroup, one workgroup per CU or SM: the
                            compiler may use all registers
   FLEET_LDS(type, name, n) an uninitialised array of the workgroup
   FLEET_KERNEL_OF(kernel)  what the launch functions take
   FLEET_PRODUCER_THREADS   threads of the weight pipeline's producer, on top of those that run tasks */

#if defined(__HIPCC__) || defined(__HIP__)

#define FLEET_HIP 1
#include <hip/hip_runtime.h>
#if !defined(__HIP_PLATFORM_AMD__)
#error "fleet: hipcc targets AMD here; for NVIDIA compile the same file with nvcc -x cu"
#endif
#define FLEET_DEVICE static __device__ __forceinline__ __attribute__((unused))
#if defined(__OPTIMIZE__)
#define FLEETI_OUTLINED FLEET_DEVICE /* calls would need scratch memory */
#else
/* All is in scratch memory then, and what is inlined counts towards one stack frame, whose size is limited. */
#define FLEETI_OUTLINED static __device__ __noinline__ __attribute__((unused))
#endif
#define FLEET_GLOBAL(threads)                                                                      \
    static __global__ __launch_bounds__(threads, 1) __attribute__((unused))
#define FLEET_LDS(type, name, count) __shared__ type name[count]
#define FLEET_PRODUCER_THREADS 64
typedef const void *fleeti_kernel_address;
#define FLEETI_ADDRESS_OF(kernel) ((fleeti_kernel_address)(kernel))
#define FLEETI_UNPACK(kernel, call)
typedef hipStream_t fleet_stream;
typedef uint32_t *fleeti_lds;

#elif defined(__CUDACC__)

#define FLEET_CUDA 1
#include <cuda_runtime.h>
#define FLEET_DEVICE static __device__ __forceinline__ __attribute__((unused))
#define FLEETI_OUTLINED static __device__ __noinline__ __attribute__((unused))
#define FLEET_GLOBAL(threads)                                                                      \
    static __global__ __launch_bounds__(threads, 1) __attribute__((unused))
#define FLEET_LDS(type, name, count) __shared__ type name[count]
#define FLEET_PRODUCER_THREADS 32
typedef const void *fleeti_kernel_address;
#define FLEETI_ADDRESS_OF(kernel) ((fleeti_kernel_address)(kernel))
#define FLEETI_UNPACK(kernel, call)
typedef cudaStream_t fleet_stream;
typedef uint32_t fleeti_lds; /* an address in shared memory */

#else

#define FLEET_HOST 1
#define FLEET_DEVICE static inline __attribute__((unused))
#define FLEETI_OUTLINED FLEET_DEVICE
#define FLEET_GLOBAL(threads) static __attribute__((unused))
#define FLEET_LDS(type, name, count)                                                               \
    type *name = (type *)fleeti_host_lds(sizeof(type) * (size_t)(count))
#define FLEET_PRODUCER_THREADS 1
typedef void (*fleeti_kernel_address)(void **args);
#define FLEETI_ADDRESS_OF(kernel) kernel##_thunk
#define FLEETI_UNPACK(kernel, call)                                                                \
    static __attribute__((unused)) void kernel##_thunk(void **a)                                   \
    {                                                                                              \
        kernel call;                                                                               \
    }
typedef void *fleet_stream; /* null: a kernel on the CPU has finished when its launch returns */
typedef uint32_t *fleeti_lds;

#endif

/* Where all numbers that wrap begin: of tasks, uses of stages, entries of mailboxes and rings, by default of epochs, and
   those of examples/parts. A test begins them shortly before they wrap, and sets this in all files alike; a multiple of
   16. */
#if !defined(FLEETI_TEST_START)
#define FLEETI_TEST_START 0u
#endif

/* ==== >>public: what kernels and hosts call ==== */

/* ---- kernels and launches, from the host ---- */

/* What a kernel's declaration says of it. FLEET_KERNEL of fleet_sched.h knows all of it; else 0. */
typedef struct fleeti_kernel_traits {
    uint32_t threads;        /* of a workgroup, without the producer; and FLEETI_ANY_THREADS */
    uint32_t pipeline_bytes; /* LDS of its weight pipeline */
    uint32_t args_bytes;     /* of an element of its arguments */
    uint32_t tiles;          /* tile functions of its set */
} fleeti_kernel_traits;

#define FLEETI_ANY_THREADS 0x80000000u

/* A kernel, as the launch functions take it. FLEET_KERNEL_OF(kernel) makes one; the name alone does not compile. */
typedef struct fleet_kernel {
    fleeti_kernel_address address;
    const fleeti_kernel_traits *traits;
} fleet_kernel;
static inline __attribute__((unused)) fleet_kernel
fleeti_kernel_of(fleeti_kernel_address address, const fleeti_kernel_traits *traits)
{
    fleet_kernel kernel;
    kernel.address = address;
    kernel.traits = traits;
    return kernel;
}
#define FLEET_KERNEL_OF(kernel) fleeti_kernel_of(FLEETI_ADDRESS_OF(kernel), &kernel##_traits)

/* Each kernel needs one FLEET_THUNKn line with its n parameter types, for FLEET_KERNEL_OF. On the CPU it also unpacks
   the argument array. */
#define FLEETI_ARG(type, i) *(type *)a[i]
#define FLEETI_TRAITS(kernel, ...)                                                                 \
    static const fleeti_kernel_traits kernel##_traits __attribute__((unused)) = {__VA_ARGS__};
#define FLEETI_THUNK(kernel, call) FLEETI_UNPACK(kernel, call) FLEETI_TRAITS(kernel, 0, 0, 0, 0)
#define FLEET_THUNK1(k, A) FLEETI_THUNK(k, (FLEETI_ARG(A, 0)))
#define FLEET_THUNK2(k, A, B) FLEETI_THUNK(k, (FLEETI_ARG(A, 0), FLEETI_ARG(B, 1)))
#define FLEET_THUNK3(k, A, B, C)                                                                   \
    FLEETI_THUNK(k, (FLEETI_ARG(A, 0), FLEETI_ARG(B, 1), FLEETI_ARG(C, 2)))
#define FLEET_THUNK4(k, A, B, C, D)                                                                \
    FLEETI_THUNK(k, (FLEETI_ARG(A, 0), FLEETI_ARG(B, 1), FLEETI_ARG(C, 2), FLEETI_ARG(D, 3)))
#define FLEET_THUNK5(k, A, B, C, D, E)                                                             \
    FLEETI_THUNK(k, (FLEETI_ARG(A, 0), FLEETI_ARG(B, 1), FLEETI_ARG(C, 2), FLEETI_ARG(D, 3),       \
                     FLEETI_ARG(E, 4)))

/* Bytes of static LDS that this header adds to a kernel; fleet_sched.h adds FLEET_LOOP_LDS_BYTES. */
#define FLEET_LDS_BYTES (4 * FLEETI_LDS_WORDS)

FLEET_C_BEGIN

/* Thin and optional: a program with its own allocator and launches needs none of these. Each returns
   FLEET_ERROR_DEVICE where the GPU runtime fails. */

/* Memory of the current device; 256-byte aligned, contents undefined. */
FLEET_API fleet_status fleet_device_alloc(void **memory, size_t bytes);
FLEET_API void fleet_device_free(void *memory);
/* Host memory that the device reads and writes coherently; *device is its address there. */
FLEET_API fleet_status fleet_pinned_alloc(void **memory, void **device, size_t bytes);
FLEET_API void fleet_pinned_free(void *memory);
/* Stream-ordered; the caller may reuse `from` on return. */
FLEET_API fleet_status fleet_to_device(void *to, const void *from, size_t bytes,
                                       fleet_stream stream);
/* Waits for the stream, then copies. */
FLEET_API fleet_status fleet_to_host(void *to, const void *from, size_t bytes, fleet_stream stream);
FLEET_API fleet_status fleet_device_clear(void *memory, size_t bytes, fleet_stream stream);
FLEET_API fleet_status fleet_stream_wait(fleet_stream stream);

/* What this process may use of the machine that it runs on. */
typedef struct fleet_machine {
    uint32_t processors; /* online, and in its affinity mask */
    uint32_t
        workers; /* the same, or the CPU quota of its cgroups in whole processors; at least 1 */
    uint64_t memory_bytes; /* free: of the system, its cgroups and RLIMIT_AS; UINT64_MAX: unknown */
} fleet_machine;
FLEET_API fleet_machine fleet_host_machine(void);

/* How the CPU runs kernels; GPUs ignore it. */
typedef enum fleet_host_engine {
    /* An OS thread per workgroup, whose threads are coroutines that switch at barriers and where
       they wait, in an order drawn from the seed; or, by fleet_host_desc.waves, one for each of
       them: real concurrency, for sanitizers. */
    FLEET_ENGINE_THREADS,
    /* All threads are coroutines, which switch at the kit's synchronisation points only, in an
       order drawn from the seed; it detects a deadlock at once. */
    FLEET_ENGINE_DETERMINISTIC
} fleet_host_engine;

typedef struct fleet_host_stats {
    uint64_t rmws;        /* atomic read-modify-writes of the kit */
    uint64_t releases;    /* at device or system scope: L2 write-backs where L2s are private */
    uint64_t fingerprint; /* of the order in which waves ran: equal runs have equal fingerprints */
    uint64_t findings;    /* reports of the memory model */
} fleet_host_stats;

typedef struct fleet_host_desc {
    fleet_host_engine engine; /* default: FLEET_ENGINE_THREADS */
    uint64_t seed;            /* of the order of coroutines; default 1 */
    /* Per workgroup, at most 64; a wave has one lane. The threads engine runs each in a thread
       of the system. Default 0: as many as FLEET_KERNEL declares threads (fleet_sched.h), which
       take turns in one thread of the system; 1 where it declares FLEET_ANY_THREADS, and of other
       kernels */
    uint32_t waves;
    /* Of an ordinary kernel: workgroup k runs on chiplet k mod this; default 0: 1. */
    uint32_t chiplets;
    /* Of a coroutine, at least 16 KB, beyond a guard page; default 0: 256 KB. */
    uint32_t stack_bytes;
    /* 1: device memory has modelled caches, and accesses that lack a wait, a drain, a release or an acquire are
       reported (examples/tools/memory_model.c). It needs the deterministic engine and a FLEET_MEMORY_MODEL build.
       Default 0. */
    uint32_t memory_model;
    fleet_host_stats *stats; /* filled at the end of a launch; default: none */
} fleet_host_desc;

/* A launch of an ordinary kernel; args as for cudaLaunchKernel. */
typedef struct fleet_kernel_desc {
    uint32_t blocks;      /* workgroups; on the CPU at most 16384 waves in all */
    uint32_t threads;     /* per workgroup; on the CPU see host.waves */
    uint32_t lds_bytes;   /* dynamic LDS; default 0 */
    uint32_t cooperative; /* 1: fail unless all workgroups are resident at once; default 0 */
    /* For the kit's kernels, 1: where the device can, workgroups begin before the kernel before it
       in the stream has ended, and wait for that themselves; default 0 */
    uint32_t early;
    fleet_stream stream; /* default: the default stream */
    fleet_host_desc host;
} fleet_kernel_desc;

FLEET_API fleet_kernel_desc fleet_kernel_desc_default(void);
FLEET_API fleet_status fleet_kernel_launch(fleet_kernel kernel, void **args,
                                           const fleet_kernel_desc *desc)
    FLEETI_SYMBOL("fleet_kernel_launch");

FLEET_C_END

/* ---- groups and identity ---- */

/* The group that notifies or waits together. */
#define FLEET_WAVE 0u
#define FLEET_BLOCK 1u

FLEET_DEVICE uint32_t fleet_thread_id(void); /* in its workgroup */
FLEET_DEVICE uint32_t fleet_thread_count(void);
FLEET_DEVICE uint32_t fleet_block_id(void);
FLEET_DEVICE uint32_t fleet_block_count(void);
FLEET_DEVICE uint32_t fleet_lane(void); /* in its wave */
FLEET_DEVICE uint32_t fleet_wave_size(void);
FLEET_DEVICE uint32_t fleet_wave_id(void); /* in its workgroup */
FLEET_DEVICE uint32_t fleet_wave_count(void);
/* The chiplet that this workgroup runs on: XCC_ID on gfx942 and gfx950, a virtual one on the CPU, else 0. */
FLEET_DEVICE uint32_t fleet_chiplet_id(void);

/* Barriers order LDS. They do not wait until stores to device memory have arrived; notify does. */
FLEET_DEVICE void fleet_block_barrier(void);
FLEET_DEVICE void fleet_wave_barrier(void);

/* ---- atomics with their order in the name, time ---- */

/* Relaxed operations are atomic at the scope in the name and order nothing. add and cas return the old value; cas
   stores `value` if the old value was `expected`. */
FLEET_DEVICE uint32_t fleet_load_relaxed_device(const uint32_t *at);
FLEET_DEVICE uint32_t fleet_load_relaxed_system(const uint32_t *at);
FLEET_DEVICE void fleet_store_relaxed_device(uint32_t *at, uint32_t value);
FLEET_DEVICE void fleet_store_relaxed_system(uint32_t *at, uint32_t value);
FLEET_DEVICE uint32_t fleet_add_relaxed_device(uint32_t *at, uint32_t value);
FLEET_DEVICE uint32_t fleet_add_relaxed_system(uint32_t *at, uint32_t value);
FLEET_DEVICE uint32_t fleet_cas_relaxed_device(uint32_t *at, uint32_t expected, uint32_t value);

/* A release publishes everything that this thread wrote before it, and what its workgroup drained before a barrier.
   After an acquire, a thread may read what the paired release published. */
FLEET_DEVICE uint32_t fleet_load_acquire_device(const uint32_t *at);
FLEET_DEVICE uint32_t fleet_load_acquire_system(const uint32_t *at);
FLEET_DEVICE uint32_t fleet_add_acq_rel_device(uint32_t *at, uint32_t value);
FLEET_DEVICE uint32_t fleet_add_acq_rel_system(uint32_t *at, uint32_t value);

/* One step of a spin loop of your own, on a word that others change through this header; *tries begins at 0. Returns
   FLEET_ERROR_DEADLOCK when the deterministic engine finds that no wave can continue, else FLEET_OK. */
FLEET_DEVICE fleet_status fleet_pause(uint32_t *tries);

/* A clock that all CUs or SMs share. It counts at 100 MHz on AMD and in nanoseconds elsewhere. */
FLEET_DEVICE uint64_t fleet_clock_ticks(void);

/* ---- cache policy ---- */

/* Sixteen bytes that are read or written as one access. */
typedef struct __attribute__((aligned(16))) fleet_quad {
    uint32_t word[4];
} fleet_quad;

/* Memory that the lanes of a wave read at offsets from one base. */
typedef struct fleet_view {
    const void *base;
} fleet_view;

/* Loads and stores that tell the caches how the data is used. They take 4, 8 or 16 bytes (uint32_t, uint64_t,
   fleet_quad) at an address of the same alignment in device memory, which may hold any type.

     function              for                     gfx942, gfx950  gfx90a   NVIDIA                     CPU
     fleet_load_streaming  weights: once per step  nt              glc slc  ld no_allocate,evict_first  plain
     fleet_store_nt        results: read once      nt              glc slc  st.cs                      plain
     fleet_load_coherent   words that change       sc1             glc      ld.relaxed.gpu             relaxed atomic

   Streaming: the line stays in the L2 for the other workers of the chiplet that read it at about the same time, and is
   the first to be evicted. For data that this launch writes, it is no better than a plain load.
   Coherent: neither an L1 nor an L2 copy of data that another chiplet wrote answers the load (LLVM's AMDGPU memory model:
   a monotonic load of agent scope; PTX: a strong load of gpu scope). It orders nothing: only a wait tells that the data
   has been written. After a wait plain loads are right as well, since its acquire drops stale copies; coherent loads
   are for words that change while the task runs. 16 bytes are read in parts, each of them atomic.
   Stores are ordered like plain stores: notify publishes them.

   Where few waves run, bandwidth needs several loads in flight: the compiler counts them like plain
   ones, and waits where it must. Two help it to:
     fleet_load_streaming64  four quads: quads[i] = sixteen bytes at `at` + i * stride_bytes
     fleet_view              a base address, the same in all lanes of a wave, and an offset in bytes
                             per lane, below 4 GB */
FLEET_DEVICE uint32_t fleet_load_streaming4(const void *at);
FLEET_DEVICE uint64_t fleet_load_streaming8(const void *at);
FLEET_DEVICE fleet_quad fleet_load_streaming16(const void *at);
FLEET_DEVICE void fleet_load_streaming64(fleet_quad quads[4], const void *at, size_t stride_bytes);
FLEET_DEVICE void fleet_store_nt4(void *at, uint32_t value);
FLEET_DEVICE void fleet_store_nt8(void *at, uint64_t value);
FLEET_DEVICE void fleet_store_nt16(void *at, fleet_quad value);
FLEET_DEVICE uint32_t fleet_load_coherent4(const void *at);
FLEET_DEVICE uint64_t fleet_load_coherent8(const void *at);
FLEET_DEVICE fleet_quad fleet_load_coherent16(const void *at);
FLEET_DEVICE fleet_view fleet_view_of(const void *base);
FLEET_DEVICE uint32_t fleet_view_load_streaming4(fleet_view view, uint32_t offset_bytes);
FLEET_DEVICE uint64_t fleet_view_load_streaming8(fleet_view view, uint32_t offset_bytes);
FLEET_DEVICE fleet_quad fleet_view_load_streaming16(fleet_view view, uint32_t offset_bytes);

/* fleet_copy_to_lds starts to copy `bytes` bytes, a multiple of 16, from global memory to LDS, both 16-byte aligned,
   without registers in between and with the policy of streaming loads. The `threads` threads of a group call it; the
   caller is number `thread`. It is meant for prefetches: the copy runs while the task waits for its events, so the
   source must not change while the launch runs. After fleet_copy_wait the calling thread's copies have landed; after
   a barrier of the group that follows, all copies have. */
FLEET_DEVICE void fleet_copy_to_lds(void *lds, const void *from, uint32_t bytes, uint32_t thread,
                                    uint32_t threads);
FLEET_DEVICE void fleet_copy_wait(void);

/* ---- flagged data ---- */

/* A small result that is its own event: the words carry a flag, such as the epoch, and the reader polls them until the
   flag is the one it waits for. No counter, no fence, and a reader that sees the flag in word[3] has the other words
   that were stored with it. It publishes nothing else. The flag differs from those that the place held before, and the
   place is overwritten only when its readers are through, which an event has to tell: in turns, the event of a step.
   device: to groups of this device; system: to other devices too, in memory that they share. In a tile,
   fleet_await_flagged (fleet_sched.h) polls for another rank's. One store of 16 bytes on NVIDIA; elsewhere the flag's
   store follows the others. */
FLEET_DEVICE void fleet_store_flagged_device(fleet_quad *to, fleet_quad words);
FLEET_DEVICE void fleet_store_flagged_system(fleet_quad *to, fleet_quad words);
FLEET_DEVICE fleet_quad fleet_load_flagged_device(const fleet_quad *from);
FLEET_DEVICE fleet_quad fleet_load_flagged_system(const fleet_quad *from);

/* ---- sums over the waves of a workgroup ---- */

/* Adds n sums per lane over the waves of the workgroup: sum[i] of lane l in wave 0 becomes the sum of sum[i] of lane
   l in all waves. It adds in the order of the waves, so every run gives the same bits; the other waves' sums do not
   change. sum is in registers and n a constant. `lds`, n floats for each thread of the workgroup, is used between the
   first and the last barrier of the call. All threads call it; in tiles use fleet_reduce_add (fleet_sched.h). */
FLEET_DEVICE void fleet_block_reduce_add(float *sum, uint32_t n, float *lds);

/* ---- weight pipeline ---- */

/* Weights need no event, so their copies should never pause. The last wave of each workgroup, the producer, copies
   them into a ring of stages in LDS, ahead of the tasks that use them; the other waves acquire the stages in order.
   fleet_sched.h runs the producer, which calls a task's producer function: it declares the spans of weights that the
   task's tile is going to read. Each span is cut into parts of a stage's size. Section >>layout describes the
   protocol. */
typedef struct fleet_consumer fleet_consumer; /* the tile's side */
typedef struct fleet_producer fleet_producer; /* the producer function's side */

/* In a tile. */

/* Acquires the task's next stage for this wave. It holds a whole stage's bytes, or what is left at the end of a
   span. All lanes of the wave call it, and may read the stage until they release it. It returns null when the run
   ends, or when the task declared no more; then return what fleet_consumer_status says, but not past a barrier, since
   other waves may have acquired the stage and wait there. */
FLEET_DEVICE const void *fleet_stage_acquire(fleet_consumer *s);
/* The same if the stage is there; else it returns null at once. */
FLEET_DEVICE const void *fleet_stage_try_acquire(fleet_consumer *s);
/* Acquires the next n stages at once, n from 1 to the number of stages, and returns the address of the first. On
   GPUs the others follow at intervals of a stage's size; after the last stage of the ring comes its first. It
   returns null as above, and then has acquired none. */
FLEET_DEVICE const void *fleet_stages_acquire(fleet_consumer *s, uint32_t n);
/* The index of the stage that is acquired next. */
FLEET_DEVICE uint32_t fleet_stage_index(const fleet_consumer *s);
/* Why there was no next stage: FLEET_ERROR_ARGUMENT where the task acquires more than it declared. */
FLEET_DEVICE fleet_status fleet_consumer_status(const fleet_consumer *s);
/* One step of a spin loop of a tile that waits for data of another part of the same task, which must be running.
   tries and since begin at 0. Not FLEET_OK: the run ends, or the wait took longer than the launch allows. */
FLEET_DEVICE fleet_status fleet_consumer_pause(const fleet_consumer *s, uint32_t *tries,
                                               uint64_t *since);
/* Skips n stages, which other waves acquire. The stage after them may be any number of stages ahead of those that
   other waves have yet to release; it is filled when the ring has room. */
FLEET_DEVICE void fleet_stages_skip(fleet_consumer *s, uint32_t n);
/* Releases the stage that fleet_stage_acquire returned last. `sharers` is the number of the task's waves that acquire
   this stage: 1, all, or a divisor of their number. Each of them calls this once. The stages that a task declared
   but did not acquire or release are free when the next task begins. */
FLEET_DEVICE void fleet_stage_release(const fleet_consumer *s, uint32_t sharers);
/* Releases the last n stages, which fleet_stages_acquire acquired at once. */
FLEET_DEVICE void fleet_stages_release(const fleet_consumer *s, uint32_t n, uint32_t sharers);

/* In a producer function. */

/* Declares the next span that the current task reads: `bytes` bytes from `at`, both multiples of 16. The memory must
   not change while the launch runs, unless fleet_producer_await_step has made it safe to read. All lanes that run a
   producer function call it. */
FLEET_DEVICE void fleet_producer_copy(fleet_producer *p, const void *at, uint32_t bytes);
/* Throttles the producer from here on, for the tasks that follow as well: the workgroup's copies start at least
   `cycles` cycles of the GPU's clock apart, 0 (the default: as soon as a stage is free) to 65,535. Where all
   workgroups copy in bursts, some get their data late, and all wait for these at the next event. The best interval
   is longer than a workgroup's share of the bandwidth would ask for, and has to be measured: on an H200 at 1.98 GHz
   the decoder of examples/qwen3 gains 4 to 6% with 310 cycles for 8 KB, and nothing with 280. It works on
   NVIDIA only: on AMD the counter of loads limits the copies, and the CPU makes none. */
FLEET_DEVICE void fleet_producer_throttle(fleet_producer *p, uint32_t cycles);
/* Declares spans of 16 bytes from `at`, which must be readable, until the index of the next stage is a multiple of `stages`:
   for tiles that need adjacent stages in LDS. Waves acquire or skip them while fleet_stage_index is not such a multiple. */
FLEET_DEVICE void fleet_producer_align(fleet_producer *p, uint32_t stages, const void *at);
/* Waits until the current task's events are complete, so that the producer function may read, and the producer may
   copy, what other tasks of this launch wrote, such as run-time tensors. Returns 0 when the task does not need its spans any more. */
FLEET_DEVICE uint32_t fleet_producer_await_task(fleet_producer *p);
/* The same for the worker's task before this one, which covers what that one's events published, so that the copies are in
   flight while it runs. In STATIC plans the queue tells which task that is. */
FLEET_DEVICE uint32_t fleet_producer_await_previous(fleet_producer *p);
/* Waits until all tasks of the previous step have ended on all workers, of several ranks on those of this one, so that
   the producer function may read, and the producer may copy, what they and tasks of earlier steps of this launch
   wrote. It does not cover what the task's own step writes. It does not wait in a launch's first step. Where the
   producer gets only tasks that may run, and where declared buffers let steps run ahead, it waits for the task's own
   events instead, which cover the step. A task may end before its producer function has read, unless it acquires a
   stage that was declared after the read: only then may later steps overwrite what it read. Returns 0 when the task
   does not need its spans any more. */
FLEET_DEVICE uint32_t fleet_producer_await_step(fleet_producer *p);

/* ---- several devices ---- */

/* A symmetric region: memory of the same size on each of several devices, which all of them read and write. The program
   makes it, with what it has for that: windows of MPI, handles of cudaIpc or hipIpc, the heap of NVSHMEM or rocSHMEM
   (examples/parts has some of these). This table is all that the kit needs to know of it. AMD's GPUs see each
   other's stores before a kernel ends in fine-grained memory alone: hipExtMallocWithFlags, hipDeviceMallocFinegrained. */
typedef struct fleet_peers {
    uint32_t rank;  /* of this device; FLEET_ALL_RANKS: see fleet_state_desc */
    uint32_t ranks; /* how many there are */
    /* The region of each rank, as this device addresses it; aligned to 128 bytes. */
    void *bases[FLEET_MAX_PEERS];
} fleet_peers;
#define FLEET_ALL_RANKS 0xffffffffu

/* Where rank `rank` has what this rank has at `mine`, in its own region. */
FLEET_HOST_DEVICE void *fleet_peer_address(const fleet_peers *peers, const void *mine,
                                           uint32_t rank)
{
    return (char *)peers->bases[rank] +
           ((const char *)mine - (const char *)peers->bases[peers->rank]);
}

/* ---- event tensors by hand ---- */

/* What ends a wait early. */
typedef struct fleet_watch {
    const uint32_t *stop; /* device word: a fleet_status other than 0 ends the wait; null: none */
    const uint32_t *host_abort; /* host word, seldom read: not 0 aborts; null: none */
    uint64_t limit_ticks;       /* of fleet_clock_ticks, on the CPU without progress; 0: none */
    /* Device word of 64 bits: no wait times out before limit_ticks have passed since this time of the clock, and none at
       all while it is UINT64_MAX. null: none */
    const uint64_t *idle;
    const struct fleeti_links *peers; /* in a plan for several ranks. null: none */
} fleet_watch;

/* One element of an event tensor, as the function ..._at of FLEET_EVENT_TENSORn returns it. */
typedef struct fleet_event {
    uint32_t *words;   /* the tensor's memory */
    uint32_t counter;  /* index of the word of the element's counter */
    uint32_t chiplets; /* sub-counters per element, 0: none */
    uint32_t target;   /* arrivals per epoch, of groups, or of `share` groups at once */
    uint32_t share;    /* arrivals per chiplet and epoch, where each chiplet counts first */
    fleet_watch watch;
} fleet_event;

/* The memory of an event tensor and how it counts; FLEET_EVENT_TENSORn adds the named extents. */
typedef struct fleet_events {
    uint32_t *words; /* caller's device memory, ..._bytes() long, zeroed once */
    uint32_t target; /* arrivals that complete an element, per epoch */
    /* 0: every arrival at device scope goes to the element's counter. Else the number of chiplets: each counts `share`
       arrivals, then adds them at once. */
    uint32_t chiplets;
    uint32_t share;
    fleet_watch watch; /* default: no stop word, no limit */
} fleet_events;

/* FLEET_EVENT_TENSOR2(tile_done, rows, cols) declares, for an event tensor with extents rows and cols:
     the type          tile_done, { fleet_events events; uint32_t rows, cols; }, passed to kernels by value
     size_t            tile_done_bytes(const tile_done *)         memory it needs
     fleet_event       tile_done_at(const tile_done *, row, col)  one element, in device code */
#define FLEET_EVENT_TENSOR1(name, a)                                                               \
    FLEETI_EVENT_TENSOR(name, a, t->a, (const name *t, uint32_t i), i)
#define FLEET_EVENT_TENSOR2(name, a, b)                                                            \
    FLEETI_EVENT_TENSOR(name, a FLEETI_COMMA b, t->a * t->b,                                       \
                        (const name *t, uint32_t i, uint32_t j), i * t->b + j)
#define FLEET_EVENT_TENSOR3(name, a, b, c)                                                         \
    FLEETI_EVENT_TENSOR(name, a FLEETI_COMMA b FLEETI_COMMA c, t->a * t->b * t->c,                 \
                        (const name *t, uint32_t i, uint32_t j, uint32_t k),                       \
                        (i * t->b + j) * t->c + k)

/* For each scope (block, chiplet, device, system):
     notify   One arrival of the group at the element in this epoch. Epochs count from 1 and may wrap. All threads of the
              group call it. If the element is not complete in the previous epoch, because the group is ahead of others,
              the arrival waits until it is. Returns, in the leader alone, 1 if this arrival released for its chiplet
              (an L2 write-back on AMD), 0 if not, or -status, without an arrival, where the element's watch ended the
              wait.
     wait     Returns to all threads when the element is complete in this epoch: FLEET_OK, with an acquire; or what its
              watch says.
     test     Returns 1, with an acquire, if the element is complete, else 0; does not block.
     trigger  notify, which returns 1 to all threads of exactly one group per epoch: the group whose arrival completed
              the element, and which so makes the consumers ready. It does not acquire: test or wait before reading.
              Returns 0 as well where the watch ended the wait for the previous epoch.
   Block scope: producers and waiters are waves of one workgroup. Chiplet scope: they are workgroups of one chiplet
   (fleet_chiplet_id). System scope: memory and counters must be visible to the host (fleet_pinned_alloc). */

FLEET_DEVICE int32_t fleet_notify_block(uint32_t group, fleet_event e, uint32_t epoch);
FLEET_DEVICE int32_t fleet_notify_chiplet(uint32_t group, fleet_event e, uint32_t epoch);
FLEET_DEVICE int32_t fleet_notify_device(uint32_t group, fleet_event e, uint32_t epoch);
FLEET_DEVICE int32_t fleet_notify_system(uint32_t group, fleet_event e, uint32_t epoch);

FLEET_DEVICE fleet_status fleet_wait_block(uint32_t group, fleet_event e, uint32_t epoch);
FLEET_DEVICE fleet_status fleet_wait_chiplet(uint32_t group, fleet_event e, uint32_t epoch);
FLEET_DEVICE fleet_status fleet_wait_device(uint32_t group, fleet_event e, uint32_t epoch);
FLEET_DEVICE fleet_status fleet_wait_system(uint32_t group, fleet_event e, uint32_t epoch);

FLEET_DEVICE uint32_t fleet_test_block(uint32_t group, fleet_event e, uint32_t epoch);
FLEET_DEVICE uint32_t fleet_test_chiplet(uint32_t group, fleet_event e, uint32_t epoch);
FLEET_DEVICE uint32_t fleet_test_device(uint32_t group, fleet_event e, uint32_t epoch);
FLEET_DEVICE uint32_t fleet_test_system(uint32_t group, fleet_event e, uint32_t epoch);

FLEET_DEVICE uint32_t fleet_trigger_block(uint32_t group, fleet_event e, uint32_t epoch);
FLEET_DEVICE uint32_t fleet_trigger_chiplet(uint32_t group, fleet_event e, uint32_t epoch);
FLEET_DEVICE uint32_t fleet_trigger_device(uint32_t group, fleet_event e, uint32_t epoch);
FLEET_DEVICE uint32_t fleet_trigger_system(uint32_t group, fleet_event e, uint32_t epoch);

/* ==== >>layout: LDS words and types that the backends and the core share ==== */

/* Words of memory that may hold any type. */
typedef uint32_t __attribute__((may_alias)) fleeti_any4;
typedef uint64_t __attribute__((may_alias)) fleeti_any8;
typedef fleet_quad fleeti_quad;
FLEET_DEVICE fleet_quad fleeti_quad_of_halves(uint64_t low, uint64_t high)
{
    fleet_quad quad;
    quad.word[0] = (uint32_t)low, quad.word[1] = (uint32_t)(low >> 32);
    quad.word[2] = (uint32_t)high, quad.word[3] = (uint32_t)(high >> 32);
    return quad;
}

/* The words of LDS that the kit itself uses. */
#define FLEETI_LDS_WORDS 12u
#define FLEETI_LDS_VOTE(turn) (turn)       /* turn: 0, 1 */
#define FLEETI_LDS_BROADCAST(n) (2u + (n)) /* n: 0, 1 */
#define FLEETI_LDS_DEFERRED 4u             /* four words */
#define FLEETI_LDS_BARRIER 8u              /* two words */

/* Words of a fleeti_pinned: from LDS of the workgroup, or from memory that does not change. */
#define FLEETI_PINNED_WORDS 16u

/* ---- a workgroup's ring of stages ---- */

/* The protocol of the weight pipeline. The producer fills stages in order, over and over; each round is a use of a stage,
   and uses count from 0. Number n of the stages that a worker has filled in all is use n / stages of stage n % stages.
   Numbers of tasks and uses wrap, so that no value of them means "none": a worker begins as if the task and the use before
   the first ones had ended.
   Per stage:
     full      which use of the stage has landed (NVIDIA: two mbarriers, which count the bytes themselves, one for even
               uses and one for odd uses)
     released  which waves of the task have released it in each use (NVIDIA: an mbarrier; else a count that grows by
               the number of waves with each use)
     at        the CPU: the address of the data, since nothing is copied there
   Per workgroup:
     begun     1 + number of the current task: all stages of the tasks before it are free, whatever they acquired. At
               first the number of the first task
     quit      not 0: there are no more tasks
     turn      NVIDIA: the use that the producer has begun last in stage 0
     entry     of task n, at n mod FLEETI_PIPELINE_TASKS: 1 + n, its tag; stage and use of its first stage; and 1 + its
               end: the first stage of the next task, plus the ring's stages for each use after that of its own first
               stage. The end is written before a stage of the next task is filled: a task that acquires more than it
               declared does not get the next task's stages. An entry that was never written has a tag that none of its
               tasks has. Tasks without stages have no entry
     closed    1: the end of a task that gets no stages

   Order. The producer fills a stage and then sets its full flag with a release, which pairs with the consumer's acquire
   (edge 18); on NVIDIA the copy itself completes the mbarrier (complete_tx), and the wait for it acquires. A consumer
   reads and then releases the stage, which pairs with the producer's acquire before it fills the stage again (edge 19).
   The leader releases `begun` after the barrier that ends the previous task: no wave reads that task's stages any more
   (edge 21).

   An mbarrier tells only whether its current phase is even or odd. With one mbarrier for all uses of a stage, a test for use
   u would also pass while use u - 1 is still landing: after a task that left stages unconsumed, or for a wave that skipped
   a whole ring. With one mbarrier for even uses and one for odd uses, a test for use u is exact once use u - 2 has landed.
   The producer fills stages in order, and a stage only after it has observed that its previous use has landed. So a wave
   that has acquired a stage, or has begun a task, knows that all stages a ring before it have landed, and its test of a
   stage up to a ring after it is exact. A wave that skips further also needs the word `turn`, which the producer sets to
   u when all stages have begun use u - 1: it acquires turn >= u before it tests the mbarrier.
   AMD and the CPU keep the whole number of the use in `full` and compare it. */
typedef struct fleeti_pipeline {
    char *ring;
    fleeti_lds words;             /* after the stages */
    uint32_t stages, stage_bytes; /* constants of a set of tiles */
} fleeti_pipeline;

#define FLEETI_PIPELINE_TASKS 16u /* tasks that the producer may be ahead */
#define FLEETI_PIPELINE_CHUNK 8u  /* descriptors that it loads at once */
#define FLEETI_PIPELINE_BEGUN 0u
#define FLEETI_PIPELINE_QUIT 1u
#define FLEETI_PIPELINE_LIMIT 2u /* two words: ticks that a consumer waits at most; 0: no limit */
/* 1 + number of the task whose descriptor was posted last; while it is written, a number that is 2^31 away. */
#define FLEETI_PIPELINE_POST 4u
#define FLEETI_PIPELINE_STEP 5u /* two words: epoch and steps left of that task */
#define FLEETI_PIPELINE_TURN 7u
#define FLEETI_PIPELINE_STOP 8u /* two words: address of the state's stop word */
#define FLEETI_PIPELINE_CLOSED 10u
#define FLEETI_PIPELINE_POSTED 12u
#define FLEETI_PIPELINE_QUEUE (FLEETI_PIPELINE_POSTED + 16u) /* two chunks of descriptors */
#define FLEETI_PIPELINE_DESC(task)                                                                 \
    (FLEETI_PIPELINE_QUEUE + 16u * ((task) % (2u * FLEETI_PIPELINE_CHUNK)))
#define FLEETI_PIPELINE_ENTRY(task)                                                                \
    (FLEETI_PIPELINE_QUEUE + 32u * FLEETI_PIPELINE_CHUNK + 4u * ((task) % FLEETI_PIPELINE_TASKS))
#define FLEETI_PIPELINE_NO_TAG FLEETI_PIPELINE_ENTRY(FLEETI_PIPELINE_TASKS - 1) /* 0 may be one */
#define FLEETI_PIPELINE_STAGE(stage)                                                               \
    (FLEETI_PIPELINE_ENTRY(0) + 4u * FLEETI_PIPELINE_TASKS + 6u * (stage))
#define FLEETI_PIPELINE_FULL(stage) FLEETI_PIPELINE_STAGE(stage)            /* NVIDIA: four words */
#define FLEETI_PIPELINE_AT(stage) (FLEETI_PIPELINE_STAGE(stage) + 2u)       /* the CPU: two words */
#define FLEETI_PIPELINE_RELEASED(stage) (FLEETI_PIPELINE_STAGE(stage) + 4u) /* two words */
#define FLEETI_PIPELINE_BYTES(stages, stage_bytes)                                                 \
    ((stages) * (stage_bytes) + (4u * FLEETI_PIPELINE_STAGE(stages) + 15u) / 16u * 16u)

/* ---- types that each backend defines, and what it may use of the core ---- */

typedef struct fleeti_thread fleeti_thread;
typedef struct fleeti_pinned fleeti_pinned;
typedef struct fleeti_async_copy fleeti_async_copy;
typedef struct fleeti_copies fleeti_copies;

FLEET_DEVICE void fleeti_barrier(fleeti_thread self);
FLEET_DEVICE uint32_t fleeti_broadcast(fleeti_thread self, uint32_t value, uint32_t word);

/* ==== >>contract: what each backend defines, and what it may ==== */

/* Nothing else stands between the core and the hardware: a new backend is a branch of >>platform
   and a section that defines the following. It may define more, which is listed at the end of this
   section, or take that from >>defaults. Constants:
     FLEETI_CLOCK_NS            nanoseconds per tick of fleet_clock_ticks
     FLEETI_ARGS_PRELOAD_BYTES  arguments of up to this size are loaded before the task waits
     FLEETI_SPIN                polls in a row before a wait backs off
     FLEETI_POLL_ALL_LANES      1: all lanes poll a lone counter; 0: one lane does
     FLEETI_ROLLED              before a loop that mostly runs once: keeps its code small
     FLEETI_UNROLLED            before a loop over registers
     FLEETI_LOAD_CYCLES         a load has returned after so many of fleeti_cycles
     FLEETI_LEAST_LANES         the smallest wave
   Types:
     fleeti_thread              the calling thread in its workgroup, passed from function to function. `has_producer`, a
                                constant, is 1 where the last wave is a weight pipeline's producer and in no group
     fleeti_async_copy          a copy of 16 bytes to LDS in flight
   Public functions (declared above):
     fleet_lane
     fleet_wave_size
     fleet_wave_id
     fleet_wave_count
     fleet_chiplet_id
     fleet_wave_barrier
     fleet_load_relaxed_device
     fleet_load_relaxed_system
     fleet_store_relaxed_device
     fleet_store_relaxed_system
     fleet_add_relaxed_device
     fleet_add_relaxed_system
     fleet_cas_relaxed_device
     fleet_clock_ticks
     fleet_load_streaming4
     fleet_load_streaming8
     fleet_load_streaming16
     fleet_store_nt4
     fleet_store_nt8
     fleet_store_nt16
     fleet_load_coherent4
     fleet_load_coherent8
     fleet_copy_to_lds
     fleet_copy_wait
     fleet_store_flagged_device
     fleet_store_flagged_system
     fleet_load_flagged_device
     fleet_load_flagged_system
   And the following. */

/* ---- lanes of a wave ---- */

/* Lane 0's value. */
FLEET_DEVICE uint32_t fleeti_first(uint32_t value);
/* 1 if the value is not 0 in any lane. */
FLEET_DEVICE uint32_t fleeti_any(uint32_t value);
/* A bit for each of the first 32 lanes whose value is not 0. */
FLEET_DEVICE uint32_t fleeti_ballot(uint32_t value);
FLEET_DEVICE uint32_t fleeti_shuffle(uint32_t value, uint32_t lane);

/* ---- the calling thread ---- */

FLEET_DEVICE uint32_t fleeti_thread_wave(fleeti_thread self);
FLEET_DEVICE uint32_t fleeti_thread_lane(fleeti_thread self);
/* The barrier of all waves but the last one, where the last one is a producer. */
FLEET_DEVICE void fleeti_task_barrier(fleeti_thread self);

/* ---- LDS ---- */

FLEET_DEVICE fleeti_lds fleeti_lds_of(fleeti_quad *quads);
/* Words of LDS, one or four at a time. */
FLEET_DEVICE uint32_t fleeti_lds_get(fleeti_lds lds, uint32_t word);
FLEET_DEVICE void fleeti_lds_put(fleeti_lds lds, uint32_t word, uint32_t value);
FLEET_DEVICE fleeti_quad fleeti_lds_get4(fleeti_lds lds, uint32_t word);
/* Synchronisation within a workgroup, without a barrier: a release by one wave pairs with an
   acquire by another, at block scope. order: every wave of the workgroup sees what this wave does
   to LDS before it and after it in that order. pause: one step of a spin on such a word. */
FLEET_DEVICE uint32_t fleeti_lds_acquire(fleeti_lds lds, uint32_t word);
FLEET_DEVICE void fleeti_lds_release(fleeti_lds lds, uint32_t word, uint32_t value);
FLEET_DEVICE void fleeti_lds_order(void);
FLEET_DEVICE fleet_status fleeti_lds_pause(uint32_t *tries);
/* A copy of 16 bytes from global memory to LDS, by one lane, between aligned addresses. It has
   landed when the same lane has called end. */
FLEET_DEVICE void fleeti_async_copy_begin(fleeti_async_copy *copy, fleeti_lds lds, uint32_t word,
                                          const void *from);
FLEET_DEVICE void fleeti_async_copy_end(const fleeti_async_copy *copy, fleeti_lds lds,
                                        uint32_t word);

/* ---- order and counters ---- */

/* Waits until this wave's stores are in the L2 of its chiplet. */
/* Two kernels in a row, of which the second is launched early (fleet_kernel_desc): the first lets
   it begin, and the second waits for the end of the first, whose stores are visible then. */
FLEET_DEVICE void fleeti_let_kernel_begin(void);
FLEET_DEVICE void fleeti_await_kernel(void);
FLEET_DEVICE void fleeti_drain(void);
/* Publishes what is in this chiplet's L2. */
FLEET_DEVICE void fleeti_write_back_device(void);
FLEET_DEVICE void fleeti_write_back_system(void);
/* Drops what this CU and, from device scope on, its L2 may hold stale. */
FLEET_DEVICE void fleeti_invalidate_chiplet(void);
FLEET_DEVICE void fleeti_invalidate_device(void);
FLEET_DEVICE void fleeti_invalidate_system(void);
/* Loads that poll. */
FLEET_DEVICE uint32_t fleeti_poll_device(const uint32_t *at);
FLEET_DEVICE uint32_t fleeti_poll_system(const uint32_t *at);
FLEET_DEVICE uint64_t fleeti_poll64_device(const uint64_t *at);
/* An arrival: with the old value returned, or without. */
FLEET_DEVICE uint32_t fleeti_rmw_device(uint32_t *at, uint32_t value);
FLEET_DEVICE uint32_t fleeti_rmw_system(uint32_t *at, uint32_t value);
FLEET_DEVICE void fleeti_add_arrival_device(uint32_t *at, uint32_t value);
FLEET_DEVICE void fleeti_add_arrival_system(uint32_t *at, uint32_t value);
/* Stores a word for other workgroups, or for the host, after everything that this thread stored for
   them with fleet_store_relaxed_device or _system. */
FLEET_DEVICE void fleeti_publish_device(uint32_t *at, uint32_t value);
FLEET_DEVICE void fleeti_publish_system(uint32_t *at, uint32_t value);
FLEET_DEVICE void fleeti_post64_device(uint64_t *at, uint64_t value);
FLEET_DEVICE uint32_t fleeti_cycles(void);
/* After a failed poll of `at` (null: of anything). */
FLEET_DEVICE fleet_status fleeti_pause(const void *at, uint32_t *tries);
/* After a failed poll of a word that the host changes. It wakes after a microsecond or so, and
   leaves the bus to others meanwhile. */
FLEET_DEVICE void fleeti_pause_outside(uint32_t *tries);

/* ---- weight pipeline: copies and stages ---- */

/* Starts to copy `bytes` bytes to the stage; the producer calls it. Copies are 16-byte aligned, in
   multiples of 16 bytes. The data is read once, so it is the first to be evicted. */
FLEET_DEVICE void fleeti_stage_fill(const fleeti_pipeline *s, fleeti_copies *copies, uint32_t stage,
                                    uint32_t use, const char *from, uint32_t bytes);
/* The stage's address for a consumer if `there`; else null. */
FLEET_DEVICE const char *fleeti_stage_address(const fleeti_pipeline *s, uint32_t stage,
                                              uint32_t there);

/* ---- what a backend may define ---- */

/* In groups, each of which begins with its name below. >>defaults, which come after the backends,
   have them for a backend that lacks them. One that has its own defines the name of the group as a
   macro, and all that is in it. */

/* FLEETI_PARK(type, name): defines const type *name(const type *), which the whole workgroup calls
   with equal values; it keeps them where they take no registers. FLEETI_PARKED_BYTES(type): the
   bytes of static LDS that this takes. Default: none
     FLEETI_PARK
     FLEETI_PARKED_BYTES */

/* FLEETI_GLOBAL_POINTER(type): a pointer to what lies in global memory. Default: an ordinary one
     FLEETI_GLOBAL_POINTER */

/* FLEETI_OWN_IDS. Default: the names that HIP and CUDA share
     fleet_thread_id
     fleet_thread_count
     fleet_block_id
     fleet_block_count
     fleet_block_barrier */
/* The dynamic LDS of the launch, aligned to FLEETI_DYNAMIC_ALIGN, and the kit's own words. */
FLEET_DEVICE void *fleeti_dynamic_lds(void);
FLEET_DEVICE fleeti_lds fleeti_lds_begin(void);

/* FLEETI_OWN_ENGINE: software runs the workgroups. Default: hardware does */
/* The workgroup belongs to this chiplet from now on. */
FLEET_DEVICE void fleeti_workgroup_on(uint32_t chiplet);
/* The workgroup runs the plan of the state beside the launch's from now on. The limits of its waits
   do not count what the other plan's waves publish (fleeti_limit_clock). */
FLEET_DEVICE void fleeti_workgroup_beside(void);
/* For loops over code that declares FLEET_LDS, where that allocates at run time: reset frees what
   was allocated after mark. */
FLEET_DEVICE size_t fleeti_lds_mark(void);
FLEET_DEVICE void fleeti_lds_reset(size_t mark);
/* The calling wave's share of the tiles' LDS, `all` bytes, where it is not one for each wave. */
FLEET_DEVICE void fleeti_wave_lds(void **lds, uint32_t *bytes, uint32_t all);
/* The clock of a wait's limit, in ticks of fleet_clock_ticks, and in *since, which is 0 at first,
   when the wait began. On the CPU it stands still while the process does not run, or a wave of this
   plan makes progress (>>host). */
FLEET_DEVICE uint64_t fleeti_limit_clock(uint64_t *since);
/* An ordinary store of a word that a host thread may load meanwhile: it drops what it has loaded. */
FLEET_DEVICE void fleeti_store_racing(uint32_t *at, uint32_t value);

/* FLEETI_OWN_UNIFORM: tells the compiler that a value, or an address, is the same in all lanes. */
FLEET_DEVICE uint32_t fleeti_uniform(uint32_t value);
FLEET_DEVICE uintptr_t fleeti_uniform_address(const void *at);

/* FLEETI_OWN_THREAD. Default: fleeti_thread has lds, thread (its number in the workgroup) and
   has_producer */
FLEET_DEVICE fleeti_thread fleeti_thread_now(void);
FLEET_DEVICE uint32_t fleeti_thread_index(fleeti_thread self);
/* The number of waves that run tasks. */
FLEET_DEVICE uint32_t fleeti_task_waves(fleeti_thread self);

/* FLEETI_OWN_KEPT: the same, for a value that is kept for a long time. All lanes call it. */
FLEET_DEVICE fleeti_thread fleeti_thread_kept(void);
FLEET_DEVICE fleeti_lds fleeti_lds_kept(fleeti_lds lds);

/* FLEETI_OWN_LEADER: how the work of a workgroup is dealt to its waves. Default: wave 0 does it */
/* An offset added to the leader's counter addresses; 0 in every leader. */
FLEET_DEVICE uint32_t fleeti_leader_offset(fleeti_thread self);
/* The wave that polls for its workgroup. */
FLEET_DEVICE uint32_t fleeti_polling_wave(fleeti_thread self);

/* FLEETI_OWN_POPCOUNT: the number of bits that are set. */
FLEET_DEVICE uint32_t fleeti_popcount32(uint32_t bits);

/* FLEETI_OWN_ANY: a barrier of the waves that run tasks, which returns whether `value` was not 0 in
   any lane of the polling wave. Between two of these stands another barrier, or
   fleeti_block_any_rearm. */
FLEET_DEVICE uint32_t fleeti_block_any(fleeti_thread self, uint32_t value);
FLEET_DEVICE void fleeti_block_any_rearm(void);

/* FLEETI_OWN_POLLS: a wait polls with spin_load, and calls spin_acquire after the last one. */
FLEET_DEVICE uint32_t fleeti_spin_load_device(const uint32_t *at);
FLEET_DEVICE void fleeti_spin_acquire(void);
/* Orders what a scheduler observed before what it posts next. */
FLEET_DEVICE void fleeti_post_order(void);

/* FLEETI_OWN_VIEWS: many loads in flight. Default: fleet_load_streaming
     fleet_view_load_streaming4
     fleet_view_load_streaming8
     fleet_view_load_streaming16 */

/* FLEETI_OWN_COHERENT16. Default: two loads of eight bytes
     fleet_load_coherent16 */

/* FLEETI_OWN_DEFERRED: a load of a word of device memory whose value is needed much later, by all
   lanes of a wave, each time the same word. The word is the first of sixteen aligned bytes. */
FLEET_DEVICE void fleeti_deferred_begin(fleeti_thread self, uint32_t *deferred, const uint32_t *at);
FLEET_DEVICE uint32_t fleeti_deferred_end(fleeti_thread self, const uint32_t *deferred);

/* FLEETI_OWN_PINNED: sixteen words that a whole group holds, from LDS of the workgroup or from
   memory that does not change. put: by one wave.
     fleeti_pinned */
FLEET_DEVICE fleeti_pinned fleeti_pinned_from_lds(fleeti_lds lds, uint32_t word);
FLEET_DEVICE fleeti_pinned fleeti_pinned_from_memory(const void *from);
FLEET_DEVICE uint32_t fleeti_pinned_word(fleeti_pinned pinned, uint32_t i);
FLEET_DEVICE void fleeti_pinned_put(fleeti_pinned pinned, fleeti_lds lds, uint32_t word);

/* FLEETI_OWN_COPIES: what the producer has to know of its copies in flight. Default: nothing
     fleeti_copies */
/* Tells the compiler that all lanes of the producer agree on them. */
FLEET_DEVICE void fleeti_copies_uniform(fleeti_copies *copies);
/* One step of a producer that waits: sets the full flags of copies that have landed, in order. */
FLEET_DEVICE void fleeti_copies_progress(const fleeti_pipeline *s, fleeti_copies *copies);

/* FLEETI_OWN_BULK: copies are not the loads of a wave. Default: they are, or there are none */
/* After an acquire: the copies that start next read what the acquire made visible. */
FLEET_DEVICE void fleeti_copies_order(void);
/* Waits until so many cycles have passed since the previous stage was filled. */
FLEET_DEVICE void fleeti_copies_throttle(uint32_t *begun, uint32_t cycles);

/* FLEETI_OWN_STAGES: how waves learn that a stage is full or free. By default they count its uses
   in LDS; then the backend defines fleeti_lds_add_release, an addition that releases. */
/* Prepares a stage before its first use, by one thread, before a barrier. */
FLEET_DEVICE void fleeti_stage_init(const fleeti_pipeline *s, uint32_t stage, uint32_t waves);
/* Whether all stages have landed in the uses up to use - 2, so that a test for `use` is exact. */
FLEET_DEVICE uint32_t fleeti_stage_turn_reached(const fleeti_pipeline *s, uint32_t use);
/* Whether this very use of the stage has landed. Exact up to a ring of stages after the last one
   that the wave has acquired, or after its task's beginning; further on, once
   fleeti_stage_turn_reached. */
FLEET_DEVICE uint32_t fleeti_stage_is_full(const fleeti_pipeline *s, uint32_t stage, uint32_t use);
/* Whether n stages have landed, from stage `at` on, which counts from a stage in use `use`. */
FLEET_DEVICE uint32_t fleeti_stages_are_full(const fleeti_pipeline *s, uint32_t at, uint32_t use,
                                             uint32_t n);
/* So many of the task's waves release the stage. */
FLEET_DEVICE void fleeti_stage_release(const fleeti_pipeline *s, uint32_t stage, uint32_t waves);
/* Whether all waves have released the previous use; does not block. */
FLEET_DEVICE uint32_t fleeti_stage_is_free(const fleeti_pipeline *s, uint32_t stage, uint32_t use,
                                           uint32_t waves);
/* The same, but it may block for a while. */
FLEET_DEVICE uint32_t fleeti_stage_try_wait_free(const fleeti_pipeline *s, uint32_t stage,
                                                 uint32_t use, uint32_t waves);
/* Marks it as released, where the consumers have ended without it: no wave reads the stage any
   more. */
FLEET_DEVICE void fleeti_stage_reclaim(const fleeti_pipeline *s, uint32_t stage, uint32_t use,
                                       uint32_t waves);

/* ==== >>amd: gfx90a, gfx942, gfx950 ==== */

#if defined(FLEET_HIP)

#if defined(__gfx942__) || defined(__gfx950__) || defined(__gfx940__) || defined(__gfx941__)
#define FLEETI_GFX_CHIPLETS 1 /* XCDs with private L2s, XCC_ID */
#define FLEETI_GFX9 1
#elif defined(__gfx90a__)
#define FLEETI_GFX9 1
#define FLEETI_REALTIME_TICKS 4u /* a count of s_memrealtime: 25 MHz (CDNA 2 ISA, 8.2.5) */
#endif
#if !defined(FLEETI_REALTIME_TICKS)
#define FLEETI_REALTIME_TICKS 1u /* 100 MHz */
#endif

/* Groups of its own (>>contract). */
#define FLEETI_OWN_UNIFORM
#define FLEETI_OWN_THREAD
#define FLEETI_OWN_VIEWS
#define FLEETI_OWN_PINNED
#define FLEETI_OWN_COPIES

#define FLEETI_CLOCK_NS 10u
#define FLEETI_DYNAMIC_ALIGN 16
#define FLEETI_ARGS_PRELOAD_BYTES 0u
#define FLEETI_SPIN 1u          /* polls in a row before fleeti_back_off */
#define FLEETI_POLL_ALL_LANES 0 /* 1: a lone counter is polled by all lanes at once */
/* Before a loop that mostly runs once: keeps its code small, since the instruction cache is small. */
#define FLEETI_ROLLED _Pragma("unroll 1")
#define FLEETI_UNROLLED _Pragma("unroll") /* before a loop over registers */
#define FLEETI_LOAD_CYCLES 8000u /* a load has returned by then, and the wait costs little */
#define FLEETI_LEAST_LANES 32u
#define FLEETI_GLOBAL_POINTER(type) __attribute__((address_space(1))) type *

/* ---- amd: identity ---- */

FLEET_DEVICE uint32_t fleet_wave_size(void)
{
    return (uint32_t)__builtin_amdgcn_wavefrontsize();
}
/* The thread's index, recomputed at each use: masks of lanes that the compiler would keep cost more scalar registers
   than a comparison costs time. */
FLEET_DEVICE uint32_t fleeti_thread_recomputed(void)
{
    uint32_t thread = threadIdx.x;
    __asm__("" : "+v"(thread));
    return thread;
}
FLEET_DEVICE uint32_t fleet_lane(void)
{
    return fleeti_thread_recomputed() & (fleet_wave_size() - 1);
}

/* A value that is the same in every lane, so that the compiler may keep it in a scalar register. Operands of inline
   assembly use the builtin itself: without optimisation the result of a function comes from memory in a vector
   register, which no scalar operand takes. */
#define FLEETI_SCALAR(value) __builtin_amdgcn_readfirstlane((int)(value))
#define FLEETI_SCALAR64(value)                                                                     \
    ((uint64_t)FLEETI_SCALAR((uint64_t)(value) >> 32) << 32 | (uint32_t)FLEETI_SCALAR(value))
FLEET_DEVICE uint32_t fleeti_uniform(uint32_t value)
{
    return (uint32_t)FLEETI_SCALAR(value);
}
/* Lane 0's value. */
FLEET_DEVICE uint32_t fleeti_first(uint32_t value)
{
    return fleeti_uniform(value);
}
FLEET_DEVICE uintptr_t fleeti_uniform_address(const void *at)
{
    return FLEETI_SCALAR64((uintptr_t)at);
}
FLEET_DEVICE uint32_t fleet_wave_id(void)
{
    return fleeti_uniform(threadIdx.x / fleet_wave_size());
}
FLEET_DEVICE uint32_t fleet_wave_count(void)
{
    return (blockDim.x + fleet_wave_size() - 1) / fleet_wave_size();
}

/* XCC_ID, hardware register 20, bits 3:0. Elsewhere the device is one chiplet. */
FLEET_DEVICE uint32_t fleet_chiplet_id(void)
{
#if defined(FLEETI_GFX_CHIPLETS)
    return (uint32_t)__builtin_amdgcn_s_getreg((3 << 11) | 20);
#else
    return 0;
#endif
}

FLEET_DEVICE void fleet_wave_barrier(void)
{
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
    __builtin_amdgcn_wave_barrier();
}
FLEET_DEVICE uint32_t fleeti_any(uint32_t value)
{
    return __any((int)value) != 0;
}
FLEET_DEVICE uint32_t fleeti_ballot(uint32_t value)
{
    return (uint32_t)__ballot((int)value);
}
FLEET_DEVICE uint32_t fleeti_shuffle(uint32_t value, uint32_t lane)
{
    return (uint32_t)__builtin_amdgcn_readlane((int)value, (int)lane);
}

/* ---- amd: the calling thread ---- */

struct fleeti_thread {
    fleeti_lds lds;
    uint32_t has_producer;
};
FLEET_DEVICE fleeti_thread fleeti_thread_now(void)
{
    fleeti_thread self;
    self.lds = fleeti_lds_begin();
    self.has_producer = 0;
    return self;
}
FLEET_DEVICE uint32_t fleeti_thread_index(fleeti_thread self)
{
    (void)self;
    return fleeti_thread_recomputed();
}
FLEET_DEVICE uint32_t fleeti_thread_wave(fleeti_thread self)
{
    (void)self;
    return fleet_wave_id();
}
FLEET_DEVICE uint32_t fleeti_thread_lane(fleeti_thread self)
{
    (void)self;
    return fleet_lane();
}
FLEET_DEVICE uint32_t fleeti_task_waves(fleeti_thread self)
{
    uint32_t waves = fleeti_uniform(fleet_wave_count() - self.has_producer);
    /* Recomputed, as fleeti_thread_recomputed is. */
    if (self.has_producer) __asm__("" : "=s"(waves) : "0"(FLEETI_SCALAR(waves)));
    return waves;
}

/* ---- amd: order and counters ---- */

/* Neither s_barrier nor a workgroup fence waits for vector stores, so this does. The L1 is write-through: after the
   wait the stores are in the chiplet's L2. */
FLEET_DEVICE void fleeti_let_kernel_begin(void) {} /* kernels begin when those before have ended */
FLEET_DEVICE void fleeti_await_kernel(void) {}
FLEET_DEVICE void fleeti_drain(void)
{
#if defined(FLEETI_GFX9)
    __asm__ volatile("s_waitcnt vmcnt(0)" ::: "memory");
#else
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
#endif
}

/* A write-back publishes what is in this chiplet's L2, which includes every workgroup's drained stores, to all
   chiplets of the device (buffer_wbl2 sc1) or also to the host (sc0 sc1). The wait after it is written out:
   compilers drop theirs when they believe that nothing is outstanding, and then the arrival that follows would be
   seen before the data. Pair: fleeti_invalidate_device or _system in the waiter (edges 1, 2, 16). */
FLEET_DEVICE void fleeti_write_back_device(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent");
    fleeti_drain();
}
FLEET_DEVICE void fleeti_write_back_system(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
    fleeti_drain();
}

/* An invalidate drops the lines of this CU's L1 and, from device scope on, this L2's copies of other chiplets'
   lines. It follows the poll that observed the arrivals (edges 1, 3, 6, 7, 16). The wait after it lets the other
   waves of the workgroup rely on it once they have passed the barrier that follows. */
FLEET_DEVICE void fleeti_invalidate_device(void)
{
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
    fleeti_drain();
}
FLEET_DEVICE void fleeti_invalidate_system(void)
{
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
    fleeti_drain();
}
/* To drop the L1 alone (buffer_inv sc0) is not enough: when the L2 was invalidated by another workgroup, whose acquire
   of device scope the caller learns of by transitivity, a fill that was in flight may since have put an old line back. */
FLEET_DEVICE void fleeti_invalidate_chiplet(void)
{
    fleeti_invalidate_device();
}

/* Counters and flags lie in global memory. A pointer that was itself loaded does not tell the compiler so, and the
   flat instructions that it would use also occupy the LDS. */
#define FLEETI_GLOBAL(at) ((__attribute__((address_space(1))) __typeof__(*(at)) *)(at))

/* Polls are relaxed atomic loads of the counter's scope (sc1: they bypass both caches); the acquire is a separate
   fence, once, after the loop. RMWs are relaxed too: their release is written out before them. */
FLEET_DEVICE uint32_t fleet_load_relaxed_device(const uint32_t *at)
{
    return __hip_atomic_load(FLEETI_GLOBAL(at), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
FLEET_DEVICE uint32_t fleet_load_relaxed_system(const uint32_t *at)
{
    return __hip_atomic_load(FLEETI_GLOBAL(at), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
FLEET_DEVICE void fleet_store_relaxed_device(uint32_t *at, uint32_t value)
{
    __hip_atomic_store(FLEETI_GLOBAL(at), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
FLEET_DEVICE void fleet_store_relaxed_system(uint32_t *at, uint32_t value)
{
    __hip_atomic_store(FLEETI_GLOBAL(at), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
FLEET_DEVICE uint32_t fleet_add_relaxed_device(uint32_t *at, uint32_t value)
{
    return __hip_atomic_fetch_add(FLEETI_GLOBAL(at), value, __ATOMIC_RELAXED,
                                  __HIP_MEMORY_SCOPE_AGENT);
}
FLEET_DEVICE uint32_t fleet_add_relaxed_system(uint32_t *at, uint32_t value)
{
    return __hip_atomic_fetch_add(FLEETI_GLOBAL(at), value, __ATOMIC_RELAXED,
                                  __HIP_MEMORY_SCOPE_SYSTEM);
}
FLEET_DEVICE uint32_t fleet_cas_relaxed_device(uint32_t *at, uint32_t expected, uint32_t value)
{
    /* Hides a constant, which the compiler would otherwise keep in two registers for the whole worker loop. */
    __asm__("" : "+v"(value));
    __hip_atomic_compare_exchange_strong(FLEETI_GLOBAL(at), &expected, value, __ATOMIC_RELAXED,
                                         __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    return expected;
}
FLEET_DEVICE void fleeti_publish_device(uint32_t *at, uint32_t value)
{
    fleeti_drain();
    fleet_store_relaxed_device(at, value);
}
FLEET_DEVICE void fleeti_publish_system(uint32_t *at, uint32_t value)
{
    fleeti_drain();
    fleet_store_relaxed_system(at, value);
}
FLEET_DEVICE uint32_t fleeti_poll_device(const uint32_t *at)
{
    return fleet_load_relaxed_device(at);
}
FLEET_DEVICE uint32_t fleeti_poll_system(const uint32_t *at)
{
    return fleet_load_relaxed_system(at);
}
FLEET_DEVICE uint32_t fleeti_rmw_device(uint32_t *at, uint32_t value)
{
    return fleet_add_relaxed_device(at, value);
}
FLEET_DEVICE uint32_t fleeti_rmw_system(uint32_t *at, uint32_t value)
{
    return fleet_add_relaxed_system(at, value);
}
/* An arrival whose old value is not needed. The write-back came before it. */
FLEET_DEVICE void fleeti_add_arrival_device(uint32_t *at, uint32_t value)
{
    fleet_add_relaxed_device(at, value);
}
FLEET_DEVICE void fleeti_add_arrival_system(uint32_t *at, uint32_t value)
{
    fleet_add_relaxed_system(at, value);
}
FLEET_DEVICE uint64_t fleeti_poll64_device(const uint64_t *at)
{
    return __hip_atomic_load(FLEETI_GLOBAL(at), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
FLEET_DEVICE void fleeti_post64_device(uint64_t *at, uint64_t value)
{
    __hip_atomic_store(FLEETI_GLOBAL(at), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

FLEET_DEVICE uint64_t fleet_clock_ticks(void)
{
    return __builtin_amdgcn_s_memrealtime() * FLEETI_REALTIME_TICKS;
}
FLEET_DEVICE uint32_t fleeti_cycles(void)
{
    return (uint32_t)__builtin_readcyclecounter();
}

/* s_sleep counts in units of 64 clocks. */
FLEET_DEVICE fleet_status fleeti_pause(const void *at, uint32_t *tries)
{
    (void)at;
    if (*tries < 64)
        __builtin_amdgcn_s_sleep(1);
    else
        __builtin_amdgcn_s_sleep(8);
    *tries += 1;
    return FLEET_OK;
}
FLEET_DEVICE void fleeti_pause_outside(uint32_t *tries)
{
    __builtin_amdgcn_s_sleep(32); /* 2048 cycles, a microsecond */
    *tries += 1;
}

/* ---- amd: cache policy ---- */

typedef uint32_t fleeti_vector __attribute__((ext_vector_type(4), may_alias));
#define FLEETI_AT(type, at) ((__attribute__((address_space(1))) type *)(at))

FLEET_DEVICE fleet_quad fleeti_quad_of(fleeti_vector v)
{
    fleet_quad quad = {{v.x, v.y, v.z, v.w}};
    return quad;
}

/* gfx942 and gfx950: nt, gfx90a: glc slc. */
FLEET_DEVICE uint32_t fleet_load_streaming4(const void *at)
{
    return __builtin_nontemporal_load(FLEETI_AT(const fleeti_any4, at));
}
FLEET_DEVICE uint64_t fleet_load_streaming8(const void *at)
{
    return __builtin_nontemporal_load(FLEETI_AT(const fleeti_any8, at));
}
FLEET_DEVICE fleet_quad fleet_load_streaming16(const void *at)
{
    return fleeti_quad_of(__builtin_nontemporal_load(FLEETI_AT(const fleeti_vector, at)));
}

FLEET_DEVICE void fleet_store_nt4(void *at, uint32_t value)
{
    __builtin_nontemporal_store(value, FLEETI_AT(fleeti_any4, at));
}
FLEET_DEVICE void fleet_store_nt8(void *at, uint64_t value)
{
    __builtin_nontemporal_store(value, FLEETI_AT(fleeti_any8, at));
}
FLEET_DEVICE void fleet_store_nt16(void *at, fleet_quad value)
{
    fleeti_vector v = {value.word[0], value.word[1], value.word[2], value.word[3]};
    __builtin_nontemporal_store(v, FLEETI_AT(fleeti_vector, at));
}

FLEET_DEVICE uint32_t fleet_load_coherent4(const void *at)
{
    return __hip_atomic_load(FLEETI_AT(const fleeti_any4, at), __ATOMIC_RELAXED,
                             __HIP_MEMORY_SCOPE_AGENT);
}
FLEET_DEVICE uint64_t fleet_load_coherent8(const void *at)
{
    return __hip_atomic_load(FLEETI_AT(const fleeti_any8, at), __ATOMIC_RELAXED,
                             __HIP_MEMORY_SCOPE_AGENT);
}

/* The policy of what streams through a view or to LDS: nt, or with 1 here sc1 nt. A line must stay
   in the L2 for workers of the chiplet that read it too. nt does that. By the ISA's tables (and in
   tests/amdsim) sc1 reads past the L2 of a device that has several; FLEET's authors have counted L2
   hits with it. No load needs it, since weights do not change during a launch.
   tests/bench/on_amd.sh decides for weights that are read once: 1 only where own.sc1_nt beats
   own.nt, and chiplet.sc1_nt is no worse than chiplet.nt. */
#define FLEETI_STREAMING_SC1 0

/* Buffer instructions take one address for the wave and an offset per lane; their builtin takes the
   policy: bit 1 is nt, bit 4 is sc1 (LLVM, CPol). Compilers before LLVM 19 (ROCm 6.2) have no such
   builtin, and load from global memory, by nt. */
#if defined(FLEETI_GFX_CHIPLETS)
#if __has_builtin(__builtin_amdgcn_raw_buffer_load_b128)
#define FLEETI_BUFFER_LOADS 1
#endif
#endif
/* A raw buffer without a stride, of up to 4 GB (CDNA3 ISA, buffer resource). */
#define FLEETI_BUFFER_AT(at)                                                                       \
    __builtin_amdgcn_make_buffer_rsrc((void *)(uintptr_t)(at), 0, -1, 0x00027000)
#define FLEETI_BUFFER(view) FLEETI_BUFFER_AT((view).base)
#define FLEETI_STREAMING_BITS (FLEETI_STREAMING_SC1 << 4 | 1 << 1)
FLEET_DEVICE uint32_t fleet_view_load_streaming4(fleet_view view, uint32_t offset_bytes)
{
#if defined(FLEETI_BUFFER_LOADS)
    return __builtin_amdgcn_raw_buffer_load_b32(FLEETI_BUFFER(view), (int)offset_bytes, 0,
                                                FLEETI_STREAMING_BITS);
#else
    return fleet_load_streaming4((const char *)view.base + offset_bytes);
#endif
}
FLEET_DEVICE uint64_t fleet_view_load_streaming8(fleet_view view, uint32_t offset_bytes)
{
#if defined(FLEETI_BUFFER_LOADS)
    typedef uint32_t two __attribute__((ext_vector_type(2)));
    const two v = __builtin_amdgcn_raw_buffer_load_b64(FLEETI_BUFFER(view), (int)offset_bytes, 0,
                                                       FLEETI_STREAMING_BITS);
    return (uint64_t)v.y << 32 | v.x;
#else
    return fleet_load_streaming8((const char *)view.base + offset_bytes);
#endif
}
FLEET_DEVICE fleet_quad fleet_view_load_streaming16(fleet_view view, uint32_t offset_bytes)
{
#if defined(FLEETI_BUFFER_LOADS)
    return fleeti_quad_of(__builtin_amdgcn_raw_buffer_load_b128(
        FLEETI_BUFFER(view), (int)offset_bytes, 0, FLEETI_STREAMING_BITS));
#else
    return fleet_load_streaming16((const char *)view.base + offset_bytes);
#endif
}

/* ---- amd: flagged data ---- */

/* No store of 16 bytes is documented as one access, so the flag follows the words, and the words follow the flag. Relaxed
   accesses of that scope go to memory that all readers share; the waits order them (edge 35). */
#define FLEETI_STORE_FLAGGED(name, scope)                                                          \
    FLEET_DEVICE void name(fleet_quad *to, fleet_quad words)                                       \
    {                                                                                              \
        fleeti_any4 *at = (fleeti_any4 *)to->word;                                                 \
        for (uint32_t i = 0; i < 3; i++)                                                           \
            __hip_atomic_store(FLEETI_AT(fleeti_any4, at + i), words.word[i], __ATOMIC_RELAXED,    \
                               scope);                                                             \
        fleeti_drain();                                                                            \
        __hip_atomic_store(FLEETI_AT(fleeti_any4, at + 3), words.word[3], __ATOMIC_RELAXED,        \
                           scope);                                                                 \
    }
#define FLEETI_LOAD_FLAGGED(name, scope)                                                           \
    FLEET_DEVICE fleet_quad name(const fleet_quad *from)                                           \
    {                                                                                              \
        const fleeti_any4 *at = (const fleeti_any4 *)from->word;                                   \
        fleet_quad words;                                                                          \
        words.word[3] =                                                                            \
            __hip_atomic_load(FLEETI_AT(const fleeti_any4, at + 3), __ATOMIC_RELAXED, scope);      \
        fleeti_drain();                                                                            \
        for (uint32_t i = 0; i < 3; i++)                                                           \
            words.word[i] =                                                                        \
                __hip_atomic_load(FLEETI_AT(const fleeti_any4, at + i), __ATOMIC_RELAXED, scope);  \
        return words;                                                                              \
    }
FLEETI_STORE_FLAGGED(fleet_store_flagged_device, __HIP_MEMORY_SCOPE_AGENT)
FLEETI_STORE_FLAGGED(fleet_store_flagged_system, __HIP_MEMORY_SCOPE_SYSTEM)
FLEETI_LOAD_FLAGGED(fleet_load_flagged_device, __HIP_MEMORY_SCOPE_AGENT)
FLEETI_LOAD_FLAGGED(fleet_load_flagged_system, __HIP_MEMORY_SCOPE_SYSTEM)

/* ---- amd: LDS ---- */

FLEET_DEVICE fleeti_lds fleeti_lds_of(fleeti_quad *quads)
{
    return (uint32_t *)quads;
}
FLEET_DEVICE uint32_t fleeti_lds_get(fleeti_lds lds, uint32_t word)
{
    return lds[word];
}
FLEET_DEVICE void fleeti_lds_put(fleeti_lds lds, uint32_t word, uint32_t value)
{
    lds[word] = value;
}
FLEET_DEVICE fleeti_quad fleeti_lds_get4(fleeti_lds lds, uint32_t word)
{
    return *(const fleeti_quad *)(lds + word);
}
/* The bytes pass through registers. */
struct fleeti_async_copy {
    fleeti_vector words;
};
FLEET_DEVICE void fleeti_async_copy_begin(fleeti_async_copy *copy, fleeti_lds lds, uint32_t word,
                                          const void *from)
{
    (void)lds, (void)word;
    copy->words = ((const fleeti_async_copy *)from)->words;
}
FLEET_DEVICE void fleeti_async_copy_end(const fleeti_async_copy *copy, fleeti_lds lds,
                                        uint32_t word)
{
    ((fleeti_async_copy *)(lds + word))->words = copy->words;
}
/* One vector register per wave: lane l holds word l mod 16, and a word becomes a scalar where it is used. Sixteen
   scalar registers would be too many to hold for long. */
struct fleeti_pinned {
    uint32_t word;
};
FLEET_DEVICE fleeti_pinned fleeti_pinned_from_lds(fleeti_lds lds, uint32_t word)
{
    fleeti_pinned pinned;
    pinned.word = fleeti_lds_get(lds, word + fleet_lane() % FLEETI_PINNED_WORDS);
    return pinned;
}
FLEET_DEVICE fleeti_pinned fleeti_pinned_from_memory(const void *from)
{
    fleeti_pinned pinned;
    pinned.word = ((const uint32_t *)from)[fleet_lane() % FLEETI_PINNED_WORDS];
    return pinned;
}
FLEET_DEVICE uint32_t fleeti_pinned_word(fleeti_pinned pinned, uint32_t i)
{
    return fleeti_shuffle(pinned.word, i);
}
FLEET_DEVICE void fleeti_pinned_put(fleeti_pinned pinned, fleeti_lds lds, uint32_t word)
{
    if (fleet_lane() < FLEETI_PINNED_WORDS) fleeti_lds_put(lds, word + fleet_lane(), pinned.word);
}

/* ---- amd: order within a workgroup ---- */

#define FLEETI_LDS_AT(lds, word) ((__attribute__((address_space(3))) uint32_t *)((lds) + (word)))
/* Waits until this wave's reads of LDS have returned and its writes are done; written out before a relaxed atomic,
   as all releases are. Pair: fleeti_lds_acquire in another wave of the workgroup. */
FLEET_DEVICE void fleeti_lds_drain(void)
{
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
#if defined(FLEETI_GFX9)
    __asm__ volatile("s_waitcnt lgkmcnt(0)" ::: "memory");
#endif
}
FLEET_DEVICE uint32_t fleeti_lds_acquire(fleeti_lds lds, uint32_t word)
{
    const uint32_t value = fleeti_uniform(__hip_atomic_load(
        FLEETI_LDS_AT(lds, word), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP));
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
    return value;
}
FLEET_DEVICE void fleeti_lds_release(fleeti_lds lds, uint32_t word, uint32_t value)
{
    fleeti_lds_drain();
    __hip_atomic_store(FLEETI_LDS_AT(lds, word), value, __ATOMIC_RELAXED,
                       __HIP_MEMORY_SCOPE_WORKGROUP);
}
FLEET_DEVICE void fleeti_lds_order(void)
{
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup");
}
FLEET_DEVICE uint32_t fleeti_lds_add_release(fleeti_lds lds, uint32_t word, uint32_t value)
{
    fleeti_lds_drain();
    return __hip_atomic_fetch_add(FLEETI_LDS_AT(lds, word), value, __ATOMIC_RELAXED,
                                  __HIP_MEMORY_SCOPE_WORKGROUP);
}
FLEET_DEVICE fleet_status fleeti_lds_pause(uint32_t *tries)
{
    __builtin_amdgcn_s_sleep(1);
    *tries += 1;
    return FLEET_OK;
}
/* s_barrier counts every wave of the workgroup, so the waves other than the producer count their arrivals in LDS;
   the last one opens the next round. Like a barrier, it orders what waves do to LDS. */
FLEET_DEVICE void fleeti_task_barrier(fleeti_thread self)
{
    const uint32_t round = fleeti_lds_acquire(self.lds, FLEETI_LDS_BARRIER + 1);
    uint32_t before = 0;
    if (fleet_lane() == 0) before = fleeti_lds_add_release(self.lds, FLEETI_LDS_BARRIER, 1);
    before = fleeti_uniform(before);
    /* Acquires, for the last wave, what the others wrote before they arrived. Pair: fleeti_lds_drain in their add. */
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
    if (before + 2 == fleet_wave_count()) {
        if (fleet_lane() == 0) {
            fleeti_lds_put(self.lds, FLEETI_LDS_BARRIER, 0);
            fleeti_lds_release(self.lds, FLEETI_LDS_BARRIER + 1, round + 1);
        }
    } else {
        while (fleeti_lds_acquire(self.lds, FLEETI_LDS_BARRIER + 1) == round) { /* loop 1 */
        }
    }
    fleet_wave_barrier();
}

/* ---- amd: copies to LDS, weight pipeline ---- */

/* Copies go to LDS without registers in between, FLEETI_COPY_UNIT bytes at a time: by four instructions that move a word
   per lane, or one that moves four (gfx950). M0 holds the address in LDS; the offset of an instruction counts on both sides.
   Inline assembly hides from the compiler that LDS is written; else it would wait for all copies before each access to a
   word of LDS. The waits that matter are those before a stage's full flag. A count is enough there, since copies land in
   the order in which they started.
   Prediction. MI300X: 5.3 TB/s over 304 CUs at 800 ns of latency need 14 KB in flight in each CU. The producer waits for
   a stage when it has started 14 units after it: 56 instructions or 14 KB stay in flight, of 63 that the counter holds.
   A unit takes the producer some ten instructions, 50 cycles, or 20 bytes per cycle: twice a CU's share of the bandwidth.
   MI355X: 8 TB/s over 256 CUs, 25 KB; 32 units, 32 KB. MI250X: 1.6 TB/s over 110 CUs, 12 KB; 14 units. */
#define FLEETI_COPY_UNIT 1024u
#if defined(__gfx950__)
#define FLEETI_LANE_BYTES 16u
#define FLEETI_LANE_COPY "global_load_lds_dwordx4 %1, %2"
#define FLEETI_COPY_UNITS_AHEAD 32u
#define FLEETI_COPY_WAIT "s_waitcnt vmcnt(32)"
#else
#define FLEETI_LANE_BYTES 4u
#if defined(__gfx90a__) /* has the instruction for buffers only */
#define FLEETI_LANE_COPY "buffer_load_dword %1, %2, 0 offen"
#else
#define FLEETI_LANE_COPY "global_load_lds_dword %1, %2"
#endif
#define FLEETI_COPY_UNITS_AHEAD                                                                    \
    14u /* units that start after a stage before the producer waits for it */
#define FLEETI_COPY_WAIT "s_waitcnt vmcnt(56)"
#endif
#if defined(__gfx90a__)
#define FLEETI_LANE_POLICY " glc slc lds"
#define FLEETI_LANE_SOURCE(from) FLEETI_BUFFER_AT(FLEETI_SCALAR64((uintptr_t)(from)))
#else
#if FLEETI_STREAMING_SC1
#define FLEETI_LANE_POLICY " sc1 nt"
#else
#define FLEETI_LANE_POLICY " nt"
#endif
#define FLEETI_LANE_SOURCE(from) FLEETI_SCALAR64((uintptr_t)(from))
#endif
/* No wait states are inserted before inline assembly: five after a vector instruction that wrote a scalar operand, one after a
   write of M0. */
#define FLEETI_LANE_STATES "s_nop 4\n\t"
#define FLEETI_COPY_UNIT_LOADS (FLEETI_COPY_UNIT / (64 * FLEETI_LANE_BYTES))
/* The waves take turns; each copies as many bytes as one instruction does. */
FLEET_DEVICE void fleet_copy_to_lds(void *lds, const void *from, uint32_t bytes, uint32_t thread,
                                    uint32_t threads)
{
    const uint32_t run = fleet_wave_size() * FLEETI_LANE_BYTES;
    const uint32_t mine = fleet_lane() * FLEETI_LANE_BYTES;
    const uint32_t to = (uint32_t)(uintptr_t)((__attribute__((address_space(3))) char *)lds);
    for (uint32_t i = thread / fleet_wave_size() * run; i < bytes;
         i += threads / fleet_wave_size() * run) {
        if (i + mine < bytes)
            __asm__ volatile(FLEETI_LANE_STATES FLEETI_LANE_COPY FLEETI_LANE_POLICY ::"{m0}"(
                                 FLEETI_SCALAR(to + i)),
                             "v"(mine), "s"(FLEETI_LANE_SOURCE((const char *)from + i))
                             : "memory");
    }
}
FLEET_DEVICE void fleet_copy_wait(void)
{
    __asm__ volatile("s_waitcnt vmcnt(0)" ::: "memory");
}

struct fleeti_copies {
    uint32_t stage, use, pending; /* the first of `pending` stages whose full flags are not set */
    uint32_t units_after;         /* units started after those of the first stage */
};
FLEET_DEVICE void fleeti_copies_uniform(fleeti_copies *copies)
{
    copies->stage = fleeti_uniform(copies->stage);
    copies->use = fleeti_uniform(copies->use);
    copies->pending = fleeti_uniform(copies->pending);
    copies->units_after = fleeti_uniform(copies->units_after);
}
/* The first stage's copies have landed: sets its full flag. Pair: fleeti_stage_is_full in the consumers (edge 18). */
FLEET_DEVICE void fleeti_stage_landed(const fleeti_pipeline *s, fleeti_copies *copies)
{
    fleeti_lds_release(s->words, FLEETI_PIPELINE_FULL(copies->stage), copies->use + 1);
    copies->pending--;
    copies->units_after =
        copies->pending ? copies->units_after - s->stage_bytes / FLEETI_COPY_UNIT : 0;
    if (++copies->stage == s->stages) copies->stage = 0, copies->use++;
}
/* Waits until no more copies are in flight than were started after the first stage's: then these have landed. */
FLEET_DEVICE void fleeti_copies_wait_oldest(void)
{
    __asm__ volatile(FLEETI_COPY_WAIT ::: "memory");
}
/* Waits for the first stage only, or a little longer: the other copies stay in flight while the caller does
   something else. */
FLEET_DEVICE void fleeti_copies_progress(const fleeti_pipeline *s, fleeti_copies *copies)
{
    const uint32_t loads = copies->units_after * FLEETI_COPY_UNIT_LOADS;
    if (!copies->pending) return;
    __asm__ volatile("s_waitcnt vmcnt(32)" ::: "memory");
    if (loads < 32) __asm__ volatile("s_waitcnt vmcnt(16)" ::: "memory");
    if (loads < 16) __asm__ volatile("s_waitcnt vmcnt(8)" ::: "memory");
    if (loads < 8) __asm__ volatile("s_waitcnt vmcnt(4)" ::: "memory");
    if (loads < 4) __asm__ volatile("s_waitcnt vmcnt(0)" ::: "memory");
    fleeti_stage_landed(s, copies);
}
/* Each stage is the same number of units; where it is not full, the last bytes are copied again. */
FLEET_DEVICE void fleeti_stage_fill(const fleeti_pipeline *s, fleeti_copies *copies, uint32_t stage,
                                    uint32_t use, const char *from, uint32_t bytes)
{
    const uint32_t mine = fleet_lane() * FLEETI_LANE_BYTES;
    uint32_t to = (uint32_t)(uintptr_t)((__attribute__((address_space(3))) char *)s->ring);
    to = fleeti_uniform(to + stage * s->stage_bytes);
    FLEETI_ROLLED
    for (uint32_t i = 0; i < s->stage_bytes; i += FLEETI_COPY_UNIT) {
        if (i + FLEETI_COPY_UNIT <= bytes) {
            __asm__ volatile(FLEETI_LANE_STATES FLEETI_LANE_COPY FLEETI_LANE_POLICY
#if !defined(__gfx950__)
                             "\n\t" FLEETI_LANE_COPY " offset:256" FLEETI_LANE_POLICY
                             "\n\t" FLEETI_LANE_COPY " offset:512" FLEETI_LANE_POLICY
                             "\n\t" FLEETI_LANE_COPY " offset:768" FLEETI_LANE_POLICY
#endif
                             ::"{m0}"(FLEETI_SCALAR(to + i)),
                             "v"(mine), "s"(FLEETI_LANE_SOURCE(from + i))
                             : "memory");
        } else {
            FLEETI_ROLLED
            for (uint32_t k = i; k < i + FLEETI_COPY_UNIT;
                 k += FLEETI_COPY_UNIT / FLEETI_COPY_UNIT_LOADS) {
                const uint32_t at =
                    k + mine < bytes ? k + mine : bytes - (uint32_t)FLEETI_LANE_BYTES;
                __asm__ volatile(FLEETI_LANE_STATES FLEETI_LANE_COPY FLEETI_LANE_POLICY ::"{m0}"(
                                     FLEETI_SCALAR(to + k)),
                                 "v"(at), "s"(FLEETI_LANE_SOURCE(from))
                                 : "memory");
            }
        }
        if (copies->pending && ++copies->units_after == FLEETI_COPY_UNITS_AHEAD) {
            fleeti_copies_wait_oldest();
            fleeti_stage_landed(s, copies);
        }
    }
    if (!copies->pending++) copies->stage = stage, copies->use = use, copies->units_after = 0;
}
/* A choice between two LDS pointers, so that the compiler knows the consumer's pointer to be one: flat loads would
   take longer. The LDS pointer -1 converts to null. */
FLEET_DEVICE const char *fleeti_stage_address(const fleeti_pipeline *s, uint32_t stage,
                                              uint32_t there)
{
    typedef __attribute__((address_space(3))) const char *in_lds;
    const in_lds none = (in_lds)(uintptr_t)0xffffffffu;
    return (const char *)(there ? (in_lds)s->ring + stage * s->stage_bytes : none);
}

/* ---- amd: the runtime's names, for the implementation ---- */

#define FLEETI_RT(name) hip##name
#define FLEETI_RT_ERROR hipError_t
#define FLEETI_RT_OK hipSuccess
#define FLEETI_RT_PROPERTIES hipDeviceProp_t
#define FLEETI_RT_ATTRIBUTES hipFuncAttributes
#define FLEETI_RT_UNITS hipDeviceAttributeMultiprocessorCount
#define FLEETI_RT_COOPERATIVE hipDeviceAttributeCooperativeLaunch
#define FLEETI_RT_CAPTURES_COOPERATIVE 0
/* ROCm runs all cooperative launches of a device on one queue, which copies use too; earlier versions wait there for the
   end of each. */
#define FLEETI_STAYS_ORDINARY 1
#define FLEETI_RT_LDS_BYTES(properties) (properties).sharedMemPerBlock
/* The null stream is never captured, and must not be asked. */
#define FLEETI_RT_MAY_CAPTURE(stream) ((stream) != NULL)
/* gfx94x and gfx950 have XCDs with private L2s and an id register. */
#define FLEETI_RT_HAS_CHIPLET_IDS(properties)                                                      \
    (strncmp((properties).gcnArchName, "gfx94", 5) == 0 ||                                         \
     strncmp((properties).gcnArchName, "gfx950", 6) == 0)
/* How many chiplets the runtime says there are; 0: it does not say. */
#if HIP_VERSION_MAJOR >= 7
#define FLEETI_RT_CHIPLETS(count, device)                                                          \
    hipDeviceGetAttribute(count, hipDeviceAttributeNumberOfXccs, device)
#else
#define FLEETI_RT_CHIPLETS(count, device) ((void)(device), *(count) = 0, hipSuccess)
#endif
/* Coherent means fine-grained: system-scope atomics and polls see each other at once. */
#define FLEETI_RT_PINNED(memory, bytes)                                                            \
    hipHostMalloc(memory, bytes, hipHostMallocMapped | hipHostMallocCoherent)
#define FLEETI_RT_PINNED_FREE(memory) hipHostFree(memory)

#endif /* FLEET_HIP */

/* ==== >>nvidia: sm_80 and later ==== */

#if defined(FLEET_CUDA)

/* Groups of its own (>>contract). */
#define FLEETI_OWN_KEPT
#define FLEETI_OWN_LEADER
#define FLEETI_OWN_POPCOUNT
#define FLEETI_OWN_ANY
#define FLEETI_OWN_POLLS
#define FLEETI_OWN_COHERENT16
#define FLEETI_OWN_DEFERRED
#define FLEETI_OWN_BULK
#define FLEETI_OWN_STAGES

/* For operands of tensor cores that swizzle 128 bytes; stages are aligned alike. */
#define FLEETI_DYNAMIC_ALIGN 1024
#define FLEETI_CLOCK_NS 1u /* %globaltimer counts nanoseconds */
/* Saves a trip to the L2 after the wait. */
#define FLEETI_ARGS_PRELOAD_BYTES 64u
#define FLEETI_SPIN 8u /* polls in a row before fleeti_back_off */
/* One request for the wave, which does not diverge; divergence would cost more than the rest of a poll. */
#define FLEETI_POLL_ALL_LANES 1
#define FLEETI_ROLLED _Pragma("unroll 1")
#define FLEETI_UNROLLED _Pragma("unroll") /* before a loop over registers */
#define FLEETI_LOAD_CYCLES 8000u /* a load has returned by then, and the wait costs little */
#define FLEETI_LEAST_LANES 32u
/* Each thread would keep it in its own registers. */
#define FLEETI_PARK(type, name)                                                                    \
    FLEET_DEVICE const type *name(const type *value)                                               \
    {                                                                                              \
        __shared__ type parked;                                                                    \
        if (fleet_thread_id() == 0) parked = *value;                                               \
        fleet_block_barrier();                                                                     \
        return (const type *)__cvta_shared_to_generic(                                             \
            fleeti_lds_kept((uint32_t)__cvta_generic_to_shared(&parked)));                         \
    }
#define FLEETI_PARKED_BYTES(type) sizeof(type)

/* ---- nvidia: identity ---- */

FLEET_DEVICE uint32_t fleet_wave_size(void)
{
    return 32;
}
FLEET_DEVICE uint32_t fleet_lane(void)
{
    return threadIdx.x & 31;
}
FLEET_DEVICE uint32_t fleeti_first(uint32_t value)
{
    return __shfl_sync(0xffffffffu, value, 0);
}
FLEET_DEVICE uint32_t fleeti_popcount32(uint32_t bits)
{
    return (uint32_t)__popc(bits);
}
FLEET_DEVICE uint32_t fleet_wave_id(void)
{
    return threadIdx.x >> 5;
}
FLEET_DEVICE uint32_t fleet_wave_count(void)
{
    return (blockDim.x + 31) >> 5;
}
FLEET_DEVICE uint32_t fleet_chiplet_id(void)
{
    return 0;
} /* dies share a coherent L2 */

FLEET_DEVICE void fleet_wave_barrier(void)
{
    __syncwarp();
}
FLEET_DEVICE uint32_t fleeti_any(uint32_t value)
{
    return __any_sync(0xffffffffu, (int)value) != 0;
}
FLEET_DEVICE uint32_t fleeti_ballot(uint32_t value)
{
    return __ballot_sync(0xffffffffu, (int)value);
}
FLEET_DEVICE uint32_t fleeti_shuffle(uint32_t value, uint32_t lane)
{
    return __shfl_sync(0xffffffffu, value, (int)lane);
}

/* ---- nvidia: order and counters ---- */

/* Order is in the RMWs (acq_rel) and in the polls (acquire; those of a wait: fleeti_spin_acquire). Both are
   cumulative over the barrier of the group (PTX memory model, causality order), so these functions do nothing. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
FLEET_DEVICE void fleeti_let_kernel_begin(void) {}
FLEET_DEVICE void fleeti_await_kernel(void) {}
#else
FLEET_DEVICE void fleeti_let_kernel_begin(void)
{
    __asm__ volatile("griddepcontrol.launch_dependents;");
}
FLEET_DEVICE void fleeti_await_kernel(void)
{
    __asm__ volatile("griddepcontrol.wait;" ::: "memory");
}
#endif
FLEET_DEVICE void fleeti_drain(void) {}
FLEET_DEVICE void fleeti_write_back_device(void) {}
FLEET_DEVICE void fleeti_write_back_system(void) {}
FLEET_DEVICE void fleeti_invalidate_chiplet(void) {}
FLEET_DEVICE void fleeti_invalidate_device(void) {}
FLEET_DEVICE void fleeti_invalidate_system(void) {}

#define FLEETI_PTX_LOAD(name, op)                                                                  \
    FLEET_DEVICE uint32_t name(const uint32_t *at)                                                 \
    {                                                                                              \
        uint32_t v;                                                                                \
        __asm__ volatile(op " %0,[%1];" : "=r"(v) : "l"(__cvta_generic_to_global(at)) : "memory"); \
        return v;                                                                                  \
    }
#define FLEETI_PTX_STORE(name, op)                                                                 \
    FLEET_DEVICE void name(uint32_t *at, uint32_t value)                                           \
    {                                                                                              \
        __asm__ volatile(op " [%0],%1;" ::"l"(__cvta_generic_to_global(at)), "r"(value)            \
                         : "memory");                                                              \
    }
#define FLEETI_PTX_ADD(name, op)                                                                   \
    FLEET_DEVICE uint32_t name(uint32_t *at, uint32_t value)                                       \
    {                                                                                              \
        uint32_t v;                                                                                \
        __asm__ volatile(op " %0,[%1],%2;"                                                         \
                         : "=r"(v)                                                                 \
                         : "l"(__cvta_generic_to_global(at)), "r"(value)                           \
                         : "memory");                                                              \
        return v;                                                                                  \
    }
FLEETI_PTX_LOAD(fleet_load_relaxed_device, "ld.relaxed.gpu.global.u32")
FLEETI_PTX_LOAD(fleet_load_relaxed_system, "ld.relaxed.sys.global.u32")
FLEETI_PTX_STORE(fleet_store_relaxed_device, "st.relaxed.gpu.global.u32")
FLEETI_PTX_STORE(fleet_store_relaxed_system, "st.relaxed.sys.global.u32")
FLEETI_PTX_STORE(fleeti_publish_device, "st.release.gpu.global.u32")
FLEETI_PTX_STORE(fleeti_publish_system, "st.release.sys.global.u32")
FLEETI_PTX_ADD(fleet_add_relaxed_device, "atom.add.relaxed.gpu.global.u32")
FLEETI_PTX_ADD(fleet_add_relaxed_system, "atom.add.relaxed.sys.global.u32")
FLEETI_PTX_LOAD(fleeti_poll_device, "ld.acquire.gpu.global.u32")
FLEETI_PTX_LOAD(fleeti_poll_system, "ld.acquire.sys.global.u32")
FLEETI_PTX_ADD(fleeti_rmw_device, "atom.add.acq_rel.gpu.global.u32")
FLEETI_PTX_ADD(fleeti_rmw_system, "atom.add.acq_rel.sys.global.u32")
/* Without the old value the thread does not wait for the operation. */
FLEETI_PTX_STORE(fleeti_add_arrival_device, "red.release.gpu.global.add.u32")
FLEETI_PTX_STORE(fleeti_add_arrival_system, "red.release.sys.global.add.u32")

FLEET_DEVICE uint32_t fleet_cas_relaxed_device(uint32_t *at, uint32_t expected, uint32_t value)
{
    uint32_t v;
    __asm__ volatile("atom.cas.relaxed.gpu.global.b32 %0,[%1],%2,%3;"
                     : "=r"(v)
                     : "l"(__cvta_generic_to_global(at)), "r"(expected), "r"(value)
                     : "memory");
    return v;
}
FLEET_DEVICE uint64_t fleeti_poll64_device(const uint64_t *at)
{
    uint64_t v;
    __asm__ volatile("ld.acquire.gpu.global.u64 %0,[%1];"
                     : "=l"(v)
                     : "l"(__cvta_generic_to_global(at))
                     : "memory");
    return v;
}
/* All lanes of a wave call it. What one lane has observed is published by what another lane posts. A ballot or a
   shuffle passes the value on but orders no memory, so the lanes first synchronise, and then each executes the
   fence. */
FLEET_DEVICE void fleeti_post_order(void)
{
    __syncwarp();
    __asm__ volatile("fence.acq_rel.gpu;" ::: "memory");
}
/* A wait polls with relaxed loads and acquires once after the last one, since each acquire empties the L1. The fence
   acquires what the arrivals published. Pair: the release in fleeti_arrive (edges 1, 3). Older compilers have no
   acquire fence, and an acq_rel fence would also wait for this thread's stores, so there each poll acquires. */
#if __CUDACC_VER_MAJOR__ >= 13
FLEETI_PTX_LOAD(fleeti_spin_load_device, "ld.relaxed.gpu.global.u32")
FLEET_DEVICE void fleeti_spin_acquire(void)
{
    __asm__ volatile("fence.acquire.gpu;" ::: "memory");
}
#else
FLEETI_PTX_LOAD(fleeti_spin_load_device, "ld.acquire.gpu.global.u32")
FLEET_DEVICE void fleeti_spin_acquire(void) {}
#endif
FLEET_DEVICE void fleeti_post64_device(uint64_t *at, uint64_t value)
{
    __asm__ volatile("st.relaxed.gpu.global.u64 [%0],%1;" ::"l"(__cvta_generic_to_global(at)),
                     "l"(value)
                     : "memory");
}

FLEET_DEVICE uint64_t fleet_clock_ticks(void)
{
    uint64_t t;
    __asm__ volatile("mov.u64 %0,%%globaltimer;" : "=l"(t));
    return t;
}
FLEET_DEVICE uint32_t fleeti_cycles(void)
{
    uint32_t t;
    __asm__ volatile("mov.u32 %0,%%clock;" : "=r"(t));
    return t;
}
FLEET_DEVICE fleet_status fleeti_pause(const void *at, uint32_t *tries)
{
    (void)at;
    if (*tries >= 1024) __nanosleep(100); /* until then an idle SM's polls do no harm */
    *tries += 1;
    return FLEET_OK;
}
FLEET_DEVICE void fleeti_pause_outside(uint32_t *tries)
{
    __nanosleep(500);
    *tries += 1;
}

/* ---- nvidia: cache policy ---- */

/* ptxas counts these loads, so many can be in flight. PTX takes .L2::evict_first in the instruction for 32 bytes
   only; other widths name a policy, which ptxas makes a constant. */
FLEET_DEVICE uint64_t fleeti_evict_first(void)
{
    uint64_t policy;
    __asm__("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(policy));
    return policy;
}
#define FLEETI_PTX_STREAMING "ld.global.L1::no_allocate.L2::cache_hint"
FLEET_DEVICE uint32_t fleet_load_streaming4(const void *at)
{
    uint32_t v;
    __asm__ volatile(FLEETI_PTX_STREAMING ".u32 %0,[%1],%2;"
                     : "=r"(v)
                     : "l"(__cvta_generic_to_global(at)), "l"(fleeti_evict_first())
                     : "memory");
    return v;
}
FLEET_DEVICE uint64_t fleet_load_streaming8(const void *at)
{
    uint64_t v;
    __asm__ volatile(FLEETI_PTX_STREAMING ".u64 %0,[%1],%2;"
                     : "=l"(v)
                     : "l"(__cvta_generic_to_global(at)), "l"(fleeti_evict_first())
                     : "memory");
    return v;
}
FLEET_DEVICE fleet_quad fleet_load_streaming16(const void *at)
{
    fleet_quad v;
    __asm__ volatile(FLEETI_PTX_STREAMING ".v4.u32 {%0,%1,%2,%3},[%4],%5;"
                     : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                     : "l"(__cvta_generic_to_global(at)), "l"(fleeti_evict_first())
                     : "memory");
    return v;
}
FLEET_DEVICE void fleet_store_nt4(void *at, uint32_t value)
{
    __asm__ volatile("st.global.cs.u32 [%0],%1;" ::"l"(__cvta_generic_to_global(at)), "r"(value)
                     : "memory");
}
FLEET_DEVICE void fleet_store_nt8(void *at, uint64_t value)
{
    __asm__ volatile("st.global.cs.u64 [%0],%1;" ::"l"(__cvta_generic_to_global(at)), "l"(value)
                     : "memory");
}
FLEET_DEVICE void fleet_store_nt16(void *at, fleet_quad value)
{
    __asm__ volatile("st.global.cs.v4.u32 [%0],{%1,%2,%3,%4};" ::"l"(__cvta_generic_to_global(at)),
                     "r"(value.word[0]), "r"(value.word[1]), "r"(value.word[2]), "r"(value.word[3])
                     : "memory");
}
/* Strong loads of device scope; .cg and .cv are hints without a meaning in the PTX memory model. */
FLEET_DEVICE uint32_t fleet_load_coherent4(const void *at)
{
    return fleet_load_relaxed_device((const uint32_t *)at);
}
FLEET_DEVICE uint64_t fleet_load_coherent8(const void *at)
{
    uint64_t v;
    __asm__ volatile("ld.relaxed.gpu.global.u64 %0,[%1];"
                     : "=l"(v)
                     : "l"(__cvta_generic_to_global(at))
                     : "memory");
    return v;
}
FLEET_DEVICE fleet_quad fleet_load_coherent16(const void *at)
{
    fleet_quad v;
    __asm__ volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3},[%4];"
                     : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                     : "l"(__cvta_generic_to_global(at))
                     : "memory");
    return v;
}

/* ---- nvidia: flagged data ---- */

/* One 16-byte access, aligned, that is not torn: a reader that sees a part of a store sees all of it (PTX ISA, .b128). It
   orders nothing else (edge 35). */
#define FLEETI_PTX_STORE_FLAGGED(name, scope)                                                      \
    FLEET_DEVICE void name(fleet_quad *to, fleet_quad words)                                       \
    {                                                                                              \
        const uint64_t low = words.word[0] | (uint64_t)words.word[1] << 32,                        \
                       high = words.word[2] | (uint64_t)words.word[3] << 32;                       \
        __asm__ volatile("{\n.reg .b128 all;\nmov.b128 all,{%1,%2};\nst.relaxed." scope            \
                         ".global.b128 [%0],all;\n}" ::"l"(__cvta_generic_to_global(to)),          \
                         "l"(low), "l"(high)                                                       \
                         : "memory");                                                              \
    }
#define FLEETI_PTX_LOAD_FLAGGED(name, scope)                                                       \
    FLEET_DEVICE fleet_quad name(const fleet_quad *from)                                           \
    {                                                                                              \
        uint64_t low, high;                                                                        \
        __asm__ volatile("{\n.reg .b128 all;\nld.relaxed." scope                                   \
                         ".global.b128 all,[%2];\nmov.b128 {%0,%1},all;\n}"                        \
                         : "=l"(low), "=l"(high)                                                   \
                         : "l"(__cvta_generic_to_global(from))                                     \
                         : "memory");                                                              \
        return fleeti_quad_of_halves(low, high);                                                   \
    }
FLEETI_PTX_STORE_FLAGGED(fleet_store_flagged_device, "gpu")
FLEETI_PTX_STORE_FLAGGED(fleet_store_flagged_system, "sys")
FLEETI_PTX_LOAD_FLAGGED(fleet_load_flagged_device, "gpu")
FLEETI_PTX_LOAD_FLAGGED(fleet_load_flagged_system, "sys")

/* ---- nvidia: LDS ---- */

FLEET_DEVICE fleeti_lds fleeti_lds_of(fleeti_quad *quads)
{
    return (uint32_t)__cvta_generic_to_shared(quads);
}
FLEET_DEVICE uint32_t fleeti_lds_get(fleeti_lds lds, uint32_t word)
{
    uint32_t v;
    __asm__ volatile("ld.shared.u32 %0,[%1];" : "=r"(v) : "r"(lds + word * 4) : "memory");
    return v;
}
FLEET_DEVICE void fleeti_lds_put(fleeti_lds lds, uint32_t word, uint32_t value)
{
    __asm__ volatile("st.shared.u32 [%0],%1;" ::"r"(lds + word * 4), "r"(value) : "memory");
}
/* Plain loads: the compiler drops words that the caller does not use. */
FLEET_DEVICE fleeti_quad fleeti_lds_get4(fleeti_lds lds, uint32_t word)
{
    return *(const fleeti_quad *)__cvta_shared_to_generic(lds + word * 4);
}
/* The bytes do not pass through registers. */
struct fleeti_async_copy {
    uint32_t unused;
};
FLEET_DEVICE void fleeti_async_copy_begin(fleeti_async_copy *copy, fleeti_lds lds, uint32_t word,
                                          const void *from)
{
    (void)copy;
    __asm__ volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(lds + word * 4),
                     "l"(__cvta_generic_to_global(from))
                     : "memory");
}
FLEET_DEVICE void fleeti_async_copy_end(const fleeti_async_copy *copy, fleeti_lds lds,
                                        uint32_t word)
{
    (void)copy, (void)lds, (void)word;
    __asm__ volatile("cp.async.wait_all;" ::: "memory");
}

/* ---- nvidia: the calling thread ---- */

struct fleeti_thread {
    fleeti_lds lds;
    uint32_t thread;
    uint32_t has_producer;
};
/* A shuffle keeps the value in a register: else the compiler reads the special registers at every use, which takes
   longer than most of what the worker loop does. The lanes' values differ on purpose, since the compiler sees
   through a shuffle of a uniform value. All lanes call it. */
FLEET_DEVICE fleeti_lds fleeti_lds_kept(fleeti_lds lds)
{
    return __shfl_sync(0xffffffffu, lds + (threadIdx.x & 31), 0);
}
FLEET_DEVICE fleeti_thread fleeti_thread_kept(void)
{
    fleeti_thread self = fleeti_thread_now();
    self.lds = fleeti_lds_kept(self.lds);
    self.thread = __shfl_sync(0xffffffffu, self.thread, (int)(self.thread & 31));
    return self;
}
FLEET_DEVICE uint32_t fleeti_thread_wave(fleeti_thread self)
{
    return self.thread >> 5;
}
FLEET_DEVICE uint32_t fleeti_thread_lane(fleeti_thread self)
{
    return self.thread & 31;
}
/* ptxas cannot know that only one lane arrives; it would sum over the lanes if it saw that all have the same
   address. */
FLEET_DEVICE uint32_t fleeti_leader_offset(fleeti_thread self)
{
    return self.thread & 31;
}
/* Thread 0 is busy with a release for almost a microsecond; meanwhile another wave can start the next wait. */
FLEET_DEVICE uint32_t fleeti_polling_wave(fleeti_thread self)
{
    return fleeti_task_waves(self) > 1;
}

/* Through LDS and past the L1: the compiler would move a register that waits for its load at the joins of the
   caller's loop, and so wait for the load there. */
FLEET_DEVICE void fleeti_deferred_begin(fleeti_thread self, uint32_t *deferred, const uint32_t *at)
{
    fleeti_async_copy none;
    (void)deferred;
    fleet_wave_barrier(); /* all lanes have read the word that was there */
    if (fleeti_thread_lane(self) == 0)
        fleeti_async_copy_begin(&none, self.lds, FLEETI_LDS_DEFERRED, at);
}
FLEET_DEVICE uint32_t fleeti_deferred_end(fleeti_thread self, const uint32_t *deferred)
{
    fleeti_async_copy none;
    (void)deferred;
    fleeti_async_copy_end(&none, self.lds, FLEETI_LDS_DEFERRED);
    fleet_wave_barrier();
    return fleeti_lds_get(self.lds, FLEETI_LDS_DEFERRED);
}

/* ---- nvidia: order within a workgroup ---- */

FLEET_DEVICE uint32_t fleeti_lds_acquire(fleeti_lds lds, uint32_t word)
{
    uint32_t v;
    __asm__ volatile("ld.acquire.cta.shared.u32 %0,[%1];"
                     : "=r"(v)
                     : "r"(lds + word * 4)
                     : "memory");
    return v;
}
FLEET_DEVICE void fleeti_lds_release(fleeti_lds lds, uint32_t word, uint32_t value)
{
    __asm__ volatile("st.release.cta.shared.u32 [%0],%1;" ::"r"(lds + word * 4), "r"(value)
                     : "memory");
}
FLEET_DEVICE void fleeti_lds_order(void)
{
    __asm__ volatile("fence.acq_rel.cta;" ::: "memory");
}
FLEET_DEVICE fleet_status fleeti_lds_pause(uint32_t *tries)
{
    *tries += 1;
    return FLEET_OK;
}
/* Barrier 1; barrier 0 is that of the whole workgroup. */
FLEET_DEVICE void fleeti_task_barrier(fleeti_thread self)
{
    (void)self;
    __asm__ volatile("barrier.cta.sync 1,%0;" ::"r"(blockDim.x - 32u) : "memory");
}
FLEET_DEVICE uint32_t fleeti_task_barrier_or(uint32_t value)
{
    uint32_t any;
    __asm__ volatile("{\n.reg .pred p,q;\nsetp.ne.u32 p,%1,0;\nbarrier.cta.red.or.pred q,1,%2,p;\n"
                     "selp.u32 %0,1,0,q;\n}"
                     : "=r"(any)
                     : "r"(value), "r"(blockDim.x - 32u)
                     : "memory");
    return any;
}
/* The lanes agree already; the vote tells the compiler so, which then emits no code for divergence in the caller's
   loop. */
FLEET_DEVICE uint32_t fleeti_block_any(fleeti_thread self, uint32_t value)
{
    return fleeti_any(self.has_producer ? fleeti_task_barrier_or(value)
                                        : (uint32_t)__syncthreads_or((int)value));
}
FLEET_DEVICE void fleeti_block_any_rearm(void) {}

/* ---- nvidia: copies to LDS, weight pipeline ---- */

FLEET_DEVICE void fleet_copy_to_lds(void *lds, const void *from, uint32_t bytes, uint32_t thread,
                                    uint32_t threads)
{
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(lds);
    for (uint32_t i = thread * 16; i < bytes; i += threads * 16)
        __asm__ volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(to + i),
                         "l"(__cvta_generic_to_global((const char *)from + i))
                         : "memory");
}
FLEET_DEVICE void fleet_copy_wait(void)
{
    __asm__ volatile("cp.async.wait_all;" ::: "memory");
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define FLEETI_BULK 1
#else
#define FLEETI_BULK 0
#endif
/* The mbarrier of a use, in bytes of LDS. Its phases are every other use. */
FLEET_DEVICE uint32_t fleeti_stage_full(const fleeti_pipeline *s, uint32_t stage, uint32_t use)
{
    return s->words + 4 * FLEETI_PIPELINE_FULL(stage) + (use & 1) * 8;
}
FLEET_DEVICE void fleeti_stage_init(const fleeti_pipeline *s, uint32_t stage, uint32_t waves)
{
    __asm__ volatile("mbarrier.init.shared.b64 [%0],%2;\nmbarrier.init.shared.b64 [%1],%2;\n"
                     "mbarrier.init.shared.b64 [%3],%4;" ::"r"(fleeti_stage_full(s, stage, 0)),
                     "r"(fleeti_stage_full(s, stage, 1)), "r"(FLEETI_BULK ? 1u : 32u),
                     "r"(s->words + 4 * FLEETI_PIPELINE_RELEASED(stage)), "r"(waves)
                     : "memory");
#if FLEETI_BULK
    /* Publishes the new mbarriers to the copies, which complete them from the async proxy. The caller's barrier
       publishes them to the waves that wait. */
    __asm__ volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
FLEET_DEVICE void fleeti_stage_fill(const fleeti_pipeline *s, fleeti_copies *copies, uint32_t stage,
                                    uint32_t use, const char *from, uint32_t bytes)
{
    const uint32_t full = fleeti_stage_full(s, stage, use);
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(s->ring) + stage * s->stage_bytes;
#if FLEETI_BULK
    uint32_t lead; /* one lane, elected by an instruction that tells the compiler so */
    __asm__ volatile("{\n.reg .pred p;\nelect.sync _|p,0xffffffff;\nselp.u32 %0,1,0,p;\n}"
                     : "=r"(lead));
#else
    const uint32_t lead = fleet_lane() == 0;
#endif
    (void)copies;
    /* The turn publishes to consumers of this use that all stages have landed their uses up to use - 2, as every lane of
       the producer has observed. Pair: the acquire in fleeti_stage_turn_reached (edge 18). */
    if (lead && stage == 0) fleeti_lds_release(s->words, FLEETI_PIPELINE_TURN, use);
#if FLEETI_BULK
    if (!lead) return;
    __asm__ volatile("mbarrier.arrive.expect_tx.shared.b64 _,[%0],%1;" ::"r"(full), "r"(bytes)
                     : "memory");
    /* The last operand is the policy evict_first, as createpolicy.fractional encodes it. */
    __asm__ volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0],[%1],%2,[%3],%4;" ::"r"(to),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(full), "l"(0x12f0000000000000ull)
        : "memory");
#else
    for (uint32_t i = (threadIdx.x & 31) * 16; i < bytes; i += 512)
        __asm__ volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(to + i),
                         "l"(__cvta_generic_to_global(from + i))
                         : "memory");
    __asm__ volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(full) : "memory");
#endif
}
FLEET_DEVICE void fleeti_copies_order(void)
{
#if FLEETI_BULK
    /* The async proxy reads what other threads wrote through the generic proxy. Orders those writes, which this
       thread has acquired, before the copies that it starts next. */
    __asm__ volatile("fence.proxy.async.global;" ::: "memory");
#endif
}
#if FLEETI_BULK
#define FLEETI_PTX_WAIT "mbarrier.try_wait.parity.shared.b64" /* may block for a while */
#else
#define FLEETI_PTX_WAIT "mbarrier.test_wait.parity.shared.b64"
#endif
/* Pair: the release in fleeti_stage_fill (edge 18). */
FLEET_DEVICE uint32_t fleeti_stage_turn_reached(const fleeti_pipeline *s, uint32_t use)
{
    return (int32_t)(fleeti_lds_acquire(s->words, FLEETI_PIPELINE_TURN) - use) >= 0;
}
/* Pair: complete_tx of the stage's copy (edge 18). */
FLEET_DEVICE uint32_t fleeti_stage_is_full(const fleeti_pipeline *s, uint32_t stage, uint32_t use)
{
    uint32_t full;
    __asm__ volatile("{\n.reg .pred p;\n" FLEETI_PTX_WAIT " p,[%1],%2;\nselp.u32 %0,1,0,p;\n}"
                     : "=r"(full)
                     : "r"(fleeti_stage_full(s, stage, use)), "r"(use >> 1 & 1)
                     : "memory");
    return full;
}
/* Accesses to different mbarriers take turns, and the producer's are among them: so all lanes test the same one. They begin
   with the last stage, which mostly lands last. Of many stages each lane then tests one. */
FLEET_DEVICE uint32_t fleeti_stages_are_full(const fleeti_pipeline *s, uint32_t at, uint32_t use,
                                             uint32_t n)
{
    const uint32_t few = n <= 3, lane = fleet_lane(), mine = at + (lane < n ? lane : 0),
                   last = at + n - 1;
    uint32_t full = fleeti_stage_is_full(s, last % s->stages, use + last / s->stages);
    for (uint32_t i = at; few && i < last; i++)
        full &= fleeti_stage_is_full(s, i % s->stages, use + i / s->stages);
    if (fleeti_any(!full)) return 0;
    return few || !fleeti_any(!fleeti_stage_is_full(s, mine % s->stages, use + mine / s->stages));
}
FLEET_DEVICE void fleeti_copies_throttle(uint32_t *begun, uint32_t cycles)
{
    if (!cycles) return;
    uint32_t now = (uint32_t)clock();
    /* Sleeps, since a loop would take issue slots from the waves that compute. A sleep lasts up to twice the
       requested time; at clocks of up to 2 GHz a quarter of the remaining cycles, in ns, never lasts too long. */
    while (now - *begun < cycles) { /* bounded by the cycles, at most 65535 */
        __nanosleep((cycles - (now - *begun)) / 4);
        now = (uint32_t)clock();
    }
    *begun = now;
}
/* Comes after the wave's reads of the stage. Pair: the acquire in fleeti_stage_is_free (edge 19). */
FLEET_DEVICE void fleeti_stage_release(const fleeti_pipeline *s, uint32_t stage, uint32_t waves)
{
    const uint32_t released = s->words + 4 * FLEETI_PIPELINE_RELEASED(stage);
#if FLEETI_BULK
    __asm__ volatile("mbarrier.arrive.shared.b64 _,[%0],%1;" ::"r"(released), "r"(waves)
                     : "memory");
#else
    for (uint32_t i = 0; i < waves; i++)
        __asm__ volatile(
            "{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state,[%0];\n}" ::"r"(released)
            : "memory");
#endif
}
/* Tests for the phase of the previous use, which has the parity of the next one; a new mbarrier counts as past the
   phase before its first. Only the producer tests, and it has seen all earlier phases end, so the parity is exact. */
#define FLEETI_PTX_FREE(name, op)                                                                  \
    FLEET_DEVICE uint32_t name(const fleeti_pipeline *s, uint32_t stage, uint32_t use,             \
                               uint32_t waves)                                                     \
    {                                                                                              \
        uint32_t passed;                                                                           \
        (void)waves;                                                                               \
        __asm__ volatile("{\n.reg .pred p;\n" op " p,[%1],%2;\nselp.u32 %0,1,0,p;\n}"              \
                         : "=r"(passed)                                                            \
                         : "r"(s->words + 4 * FLEETI_PIPELINE_RELEASED(stage)), "r"((use + 1) & 1) \
                         : "memory");                                                              \
        return passed;                                                                             \
    }
FLEETI_PTX_FREE(fleeti_stage_is_free, "mbarrier.test_wait.parity.shared.b64")
FLEETI_PTX_FREE(fleeti_stage_try_wait_free, FLEETI_PTX_WAIT)
FLEET_DEVICE void fleeti_stage_reclaim(const fleeti_pipeline *s, uint32_t stage, uint32_t use,
                                       uint32_t waves)
{
    const uint32_t released = s->words + 4 * FLEETI_PIPELINE_RELEASED(stage);
    uint32_t missing;
    (void)use, (void)waves;
    if (threadIdx.x & 31) return;
    __asm__ volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state,[%1];\n"
                     "mbarrier.pending_count.b64 %0,state;\n}"
                     : "=r"(missing)
                     : "r"(released)
                     : "memory");
    if (missing > 1) fleeti_stage_release(s, stage, missing - 1);
}
FLEET_DEVICE const char *fleeti_stage_address(const fleeti_pipeline *s, uint32_t stage,
                                              uint32_t there)
{
    return there ? s->ring + stage * s->stage_bytes : NULL;
}

/* ---- nvidia: the runtime's names, for the implementation ---- */

#define FLEETI_RT(name) cuda##name
#define FLEETI_RT_ERROR cudaError_t
#define FLEETI_RT_OK cudaSuccess
#define FLEETI_RT_PROPERTIES struct cudaDeviceProp
#define FLEETI_RT_ATTRIBUTES struct cudaFuncAttributes
#define FLEETI_RT_UNITS cudaDevAttrMultiProcessorCount
#define FLEETI_RT_COOPERATIVE cudaDevAttrCooperativeLaunch
#define FLEETI_RT_CAPTURES_COOPERATIVE 1
#define FLEETI_STAYS_ORDINARY 0 /* a launch that stays may be cooperative */
#define FLEETI_RT_LDS_BYTES(properties) (properties).sharedMemPerBlockOptin
#define FLEETI_RT_MAY_CAPTURE(stream) 1
#define FLEETI_RT_HAS_CHIPLET_IDS(properties) ((void)(properties), 0)
#define FLEETI_RT_CHIPLETS(count, device) ((void)(device), *(count) = 0, cudaSuccess)
#define FLEETI_RT_PINNED(memory, bytes) cudaHostAlloc(memory, bytes, cudaHostAllocMapped)
#define FLEETI_RT_PINNED_FREE(memory) cudaFreeHost(memory)

#endif /* FLEET_CUDA */

/* ==== >>host: the CPU ==== */

#if defined(FLEET_HOST)

FLEET_C_BEGIN

/* ---- host: an instrument of the deterministic engine ---- */

/* What the engine reports to it, on the thread of the launch. examples/tools/memory_model.c is one. */
typedef struct fleet_host_instrument {
    void (*allocated)(void *memory, size_t bytes); /* device memory */
    void (*freed)(void *memory);
    fleet_status (*begin)(const fleet_kernel_desc *desc,
                          uint32_t waves);                /* not FLEET_OK: no launch */
    uint64_t (*end)(void);                                /* returns its findings */
    void (*placed)(uint32_t block, uint32_t chiplet);     /* the workgroup runs there from now on */
    void (*lds)(uint32_t block, void *lds, size_t bytes); /* its dynamic LDS */
    void (*runs)(uint32_t block, uint32_t wave);          /* this wave runs from now on */
    /* The running wave begins this task's tile; null: it has ended it. */
    void (*task)(const fleet_plan *plan, uint32_t task);
    void (*publish)(
        const void *
            object); /* by the running wave; a wave that observes the object later is ordered after it */
    void (*observe)(const void *object);
    void (*drain)(void); /* by the running wave, as are the next two */
    void (*release)(fleet_scope scope);
    void (*acquire)(fleet_scope scope);
} fleet_host_instrument;

#if defined(FLEET_MEMORY_MODEL)
extern const fleet_host_instrument fleet_memory_model;
#endif

/* ---- host: what the engines of the implementation do for it ---- */

FLEET_API uint32_t fleeti_host_thread(void);  /* wave of the calling agent in its workgroup */
FLEET_API uint32_t fleeti_host_threads(void); /* waves per workgroup */
FLEET_API uint32_t fleeti_host_block(void);
FLEET_API uint32_t fleeti_host_blocks(void);
FLEET_API uint32_t fleeti_host_chiplet(void);
FLEET_API void
fleeti_host_set_chiplet(uint32_t chiplet); /* the workgroup runs on this one from now on */
FLEET_API void *
fleeti_host_lds(size_t bytes); /* the same address for all waves that allocate in the same order */
FLEET_API size_t fleeti_host_lds_mark(void);
FLEET_API void fleeti_host_lds_reset(size_t mark);
FLEET_API void *fleeti_host_dynamic_lds(void);
FLEET_API void fleeti_host_wave_lds(void **lds, uint32_t *bytes, uint32_t all);
FLEET_API void
fleeti_host_barrier(uint32_t waves);         /* of the first so many waves of the workgroup */
FLEET_API uint32_t *fleeti_host_words(void); /* the kit's own LDS, FLEETI_LDS_WORDS */
FLEET_API void fleeti_host_yield(void);      /* another agent may run here */
FLEET_API void
fleeti_host_wake(const void *at); /* a counter or flag has changed: wakes the agents that poll it */
/* After a failed poll of `at` (null: of any word). Returns when the word may have changed, or FLEET_ERROR_DEADLOCK. */
FLEET_API fleet_status fleeti_host_park(const void *at, uint32_t *tries);
/* After a failed poll of a word that another thread of the process changes: the agent can always go on. */
FLEET_API void fleeti_host_pause(uint32_t *tries);
FLEET_API uint64_t fleeti_host_clock(void);
/* The calling agent has published something, by so many RMWs: it makes progress. */
FLEET_API void fleeti_host_progress(uint32_t rmws);
/* The plan that the calling agent runs: 0, or 1 for that of the state beside the launch's. */
FLEET_API void fleeti_host_set_pool(uint32_t pool);
/* 1 + how long no agent of this plan has made progress although it could. */
FLEET_API uint64_t fleeti_host_stalled(void);
FLEET_API void fleeti_host_drain(void);
FLEET_API void fleeti_host_release(fleet_scope scope);
FLEET_API void fleeti_host_acquire(fleet_scope scope);
FLEET_API void fleeti_host_order(void); /* a fence for all loads and stores of the agent */

/* Why a tile ended before it returned. */
typedef struct fleeti_trouble {
    uint32_t line; /* of its last barrier; 0: unknown */
    uint32_t waiting,
        waves; /* so many waves waited there, of those of the workgroup that run tasks */
} fleeti_trouble;
typedef fleet_status (*fleeti_host_tile_function)(uint32_t number, const void *ctx,
                                                  const void *args);
/* Calls a tile, and ends it with FLEET_ERROR_BARRIER where it waits at a barrier that other
   waves do not reach. limit_ns: of such a wait; 0: none */
FLEET_API fleet_status fleeti_host_tile(fleeti_host_tile_function tile, uint32_t number,
                                        const void *ctx, const void *args, const fleet_plan *plan,
                                        uint32_t task, uint64_t limit_ns);
FLEET_API void fleeti_host_line(uint32_t line);     /* of the barrier that comes next */
FLEET_API fleeti_trouble fleeti_host_trouble(void); /* of the calling agent's last tile */

FLEET_C_END

/* Groups of its own (>>contract). */
#define FLEETI_OWN_IDS
#define FLEETI_OWN_ENGINE

#define FLEETI_ARGS_PRELOAD_BYTES 0u
#define FLEETI_CLOCK_NS 1u
#define FLEETI_SPIN 1u
#define FLEETI_POLL_ALL_LANES 0 /* 1: a lone counter is polled by all lanes at once */
#define FLEETI_ROLLED
#define FLEETI_UNROLLED
#define FLEETI_LOAD_CYCLES 0u
#define FLEETI_LEAST_LANES 1u

/* ---- host: identity ---- */

FLEET_DEVICE uint32_t fleet_thread_id(void)
{
    return fleeti_host_thread();
}
FLEET_DEVICE uint32_t fleet_thread_count(void)
{
    return fleeti_host_threads();
}
FLEET_DEVICE uint32_t fleet_block_id(void)
{
    return fleeti_host_block();
}
FLEET_DEVICE uint32_t fleet_block_count(void)
{
    return fleeti_host_blocks();
}
FLEET_DEVICE uint32_t fleet_wave_size(void)
{
    return 1;
}
FLEET_DEVICE uint32_t fleet_lane(void)
{
    return 0;
}
FLEET_DEVICE uint32_t fleeti_first(uint32_t value)
{
    return value;
}
FLEET_DEVICE uint32_t fleet_wave_id(void)
{
    return fleeti_host_thread();
}
FLEET_DEVICE uint32_t fleet_wave_count(void)
{
    return fleeti_host_threads();
}
FLEET_DEVICE uint32_t fleet_chiplet_id(void)
{
    return fleeti_host_chiplet();
}

FLEET_DEVICE void fleet_block_barrier(void)
{
    fleeti_host_barrier(fleeti_host_threads());
}
FLEET_DEVICE void fleet_wave_barrier(void) {}
FLEET_DEVICE uint32_t fleeti_any(uint32_t value)
{
    return value != 0;
}
FLEET_DEVICE uint32_t fleeti_ballot(uint32_t value)
{
    return value != 0;
}
FLEET_DEVICE uint32_t fleeti_shuffle(uint32_t value, uint32_t lane)
{
    (void)lane;
    return value;
}

/* ---- host: the calling thread ---- */

struct fleeti_thread {
    fleeti_lds lds;
    uint32_t thread;
    uint32_t has_producer;
};
FLEET_DEVICE uint32_t fleeti_thread_wave(fleeti_thread self)
{
    return self.thread;
}
FLEET_DEVICE uint32_t fleeti_thread_lane(fleeti_thread self)
{
    (void)self;
    return 0;
}

/* ---- host: order and counters ---- */

/* Order is in acquire-release RMWs and acquire polls, which thread sanitizers understand. These functions drive the
   memory model and the counts. */
FLEET_DEVICE void fleeti_let_kernel_begin(void) {} /* kernels begin when those before have ended */
FLEET_DEVICE void fleeti_await_kernel(void) {}
FLEET_DEVICE void fleeti_drain(void)
{
    fleeti_host_drain();
}
FLEET_DEVICE void fleeti_write_back_device(void)
{
    fleeti_host_release(FLEET_SCOPE_DEVICE);
}
FLEET_DEVICE void fleeti_write_back_system(void)
{
    fleeti_host_release(FLEET_SCOPE_SYSTEM);
}
FLEET_DEVICE void fleeti_invalidate_chiplet(void)
{
    fleeti_host_acquire(FLEET_SCOPE_CHIPLET);
}
FLEET_DEVICE void fleeti_invalidate_device(void)
{
    fleeti_host_acquire(FLEET_SCOPE_DEVICE);
}
FLEET_DEVICE void fleeti_invalidate_system(void)
{
    fleeti_host_acquire(FLEET_SCOPE_SYSTEM);
}

FLEET_DEVICE uint32_t fleet_load_relaxed_device(const uint32_t *at)
{
    fleeti_host_yield();
    return __atomic_load_n(at, __ATOMIC_RELAXED);
}
FLEET_DEVICE uint32_t fleet_load_relaxed_system(const uint32_t *at)
{
    return fleet_load_relaxed_device(at);
}
FLEET_DEVICE void fleet_store_relaxed_device(uint32_t *at, uint32_t value)
{
    fleeti_host_yield();
    __atomic_store_n(at, value, __ATOMIC_RELAXED);
    fleeti_host_wake(at);
}
FLEET_DEVICE void fleet_store_relaxed_system(uint32_t *at, uint32_t value)
{
    fleet_store_relaxed_device(at, value);
}
FLEET_DEVICE void fleeti_publish_device(uint32_t *at, uint32_t value)
{
    fleeti_host_yield();
    fleeti_host_progress(0);
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
    fleeti_host_wake(at);
}
FLEET_DEVICE void fleeti_publish_system(uint32_t *at, uint32_t value)
{
    fleeti_publish_device(at, value);
}
FLEET_DEVICE void fleeti_store_racing(uint32_t *at, uint32_t value)
{
    __atomic_store_n(at, value, __ATOMIC_RELAXED);
}
/* What an RMW adds, hidden from the compiler: gcc 12 at -O2 lets the old value take the register of `value`, and then makes
   twice the old value of old + value, where several such sums meet. */
FLEET_DEVICE uint32_t fleeti_host_addend(uint32_t value)
{
    __asm__("" : "+r"(value));
    return value;
}
FLEET_DEVICE uint32_t fleeti_rmw_device(uint32_t *at, uint32_t value)
{
    fleeti_host_yield();
    fleeti_host_progress(1);
    uint32_t old = __atomic_fetch_add(at, fleeti_host_addend(value), __ATOMIC_ACQ_REL);
    fleeti_host_wake(at);
    return old;
}
FLEET_DEVICE uint32_t fleeti_rmw_system(uint32_t *at, uint32_t value)
{
    return fleeti_rmw_device(at, value);
}
FLEET_DEVICE uint32_t fleet_add_relaxed_device(uint32_t *at, uint32_t value)
{
    fleeti_host_yield();
    uint32_t old = __atomic_fetch_add(at, fleeti_host_addend(value), __ATOMIC_RELAXED);
    fleeti_host_wake(at);
    return old;
}
FLEET_DEVICE uint32_t fleet_add_relaxed_system(uint32_t *at, uint32_t value)
{
    return fleet_add_relaxed_device(at, value);
}
FLEET_DEVICE uint32_t fleet_cas_relaxed_device(uint32_t *at, uint32_t expected, uint32_t value)
{
    fleeti_host_yield();
    __atomic_compare_exchange_n(at, &expected, value, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    fleeti_host_wake(at);
    return expected;
}
FLEET_DEVICE uint32_t fleeti_poll_device(const uint32_t *at)
{
    fleeti_host_yield();
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
FLEET_DEVICE uint32_t fleeti_poll_system(const uint32_t *at)
{
    return fleeti_poll_device(at);
}
FLEET_DEVICE void fleeti_add_arrival_device(uint32_t *at, uint32_t value)
{
    fleeti_rmw_device(at, value);
}
FLEET_DEVICE void fleeti_add_arrival_system(uint32_t *at, uint32_t value)
{
    fleeti_rmw_device(at, value);
}
FLEET_DEVICE uint64_t fleeti_poll64_device(const uint64_t *at)
{
    fleeti_host_yield();
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}
FLEET_DEVICE void fleeti_post64_device(uint64_t *at, uint64_t value)
{
    fleeti_host_yield();
    fleeti_host_progress(0);
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
    fleeti_host_wake(at);
}
FLEET_DEVICE uint64_t fleet_clock_ticks(void)
{
    return fleeti_host_clock();
}
FLEET_DEVICE uint64_t fleeti_limit_clock(uint64_t *since)
{
    const uint64_t now = fleeti_host_stalled();
    if (*since == 0 || now < *since) *since = now; /* after progress the wait begins anew */
    return now;
}
FLEET_DEVICE uint32_t fleeti_cycles(void)
{
    return 0;
}
FLEET_DEVICE fleet_status fleeti_pause(const void *at, uint32_t *tries)
{
    return fleeti_host_park(at, tries);
}
FLEET_DEVICE void fleeti_pause_outside(uint32_t *tries)
{
    fleeti_host_pause(tries);
}

/* ---- host: cache policy ---- */

/* Plain accesses, except that coherent loads are atomic. */
FLEET_DEVICE uint32_t fleet_load_streaming4(const void *at)
{
    return *(const fleeti_any4 *)at;
}
FLEET_DEVICE uint64_t fleet_load_streaming8(const void *at)
{
    return *(const fleeti_any8 *)at;
}
FLEET_DEVICE fleet_quad fleet_load_streaming16(const void *at)
{
    const fleeti_any8 *half = (const fleeti_any8 *)at;
    return fleeti_quad_of_halves(half[0], half[1]);
}
FLEET_DEVICE void fleet_store_nt4(void *at, uint32_t value)
{
    *(fleeti_any4 *)at = value;
}
FLEET_DEVICE void fleet_store_nt8(void *at, uint64_t value)
{
    *(fleeti_any8 *)at = value;
}
FLEET_DEVICE void fleet_store_nt16(void *at, fleet_quad value)
{
    fleeti_any8 *half = (fleeti_any8 *)at;
    half[0] = (uint64_t)value.word[1] << 32 | value.word[0];
    half[1] = (uint64_t)value.word[3] << 32 | value.word[2];
}
FLEET_DEVICE uint32_t fleet_load_coherent4(const void *at)
{
    return __atomic_load_n((const fleeti_any4 *)at, __ATOMIC_RELAXED);
}
FLEET_DEVICE uint64_t fleet_load_coherent8(const void *at)
{
    return __atomic_load_n((const fleeti_any8 *)at, __ATOMIC_RELAXED);
}

/* ---- host: flagged data ---- */

/* The flag's release store publishes the words to its acquire load (edge 35). */
FLEET_DEVICE void fleet_store_flagged_device(fleet_quad *to, fleet_quad words)
{
    fleeti_host_yield();
    for (uint32_t i = 0; i < 3; i++)
        __atomic_store_n(&to->word[i], words.word[i], __ATOMIC_RELAXED);
    fleeti_host_yield();
    __atomic_store_n(&to->word[3], words.word[3], __ATOMIC_RELEASE);
    fleeti_host_wake(to);
}
FLEET_DEVICE void fleet_store_flagged_system(fleet_quad *to, fleet_quad words)
{
    fleet_store_flagged_device(to, words);
}
FLEET_DEVICE fleet_quad fleet_load_flagged_device(const fleet_quad *from)
{
    fleet_quad words;
    fleeti_host_yield();
    words.word[3] = __atomic_load_n(&from->word[3], __ATOMIC_ACQUIRE);
    fleeti_host_yield();
    for (uint32_t i = 0; i < 3; i++)
        words.word[i] = __atomic_load_n(&from->word[i], __ATOMIC_RELAXED);
    return words;
}
FLEET_DEVICE fleet_quad fleet_load_flagged_system(const fleet_quad *from)
{
    return fleet_load_flagged_device(from);
}

/* ---- host: LDS ---- */

FLEET_DEVICE void *fleeti_dynamic_lds(void)
{
    return fleeti_host_dynamic_lds();
}
FLEET_DEVICE void fleeti_workgroup_on(uint32_t chiplet)
{
    fleeti_host_set_chiplet(chiplet);
}
FLEET_DEVICE void fleeti_workgroup_beside(void)
{
    fleeti_host_set_pool(1);
}
FLEET_DEVICE size_t fleeti_lds_mark(void)
{
    return fleeti_host_lds_mark();
}
FLEET_DEVICE void fleeti_lds_reset(size_t mark)
{
    fleeti_host_lds_reset(mark);
}
FLEET_DEVICE void fleeti_wave_lds(void **lds, uint32_t *bytes, uint32_t all)
{
    fleeti_host_wave_lds(lds, bytes, all);
}
FLEET_DEVICE fleeti_lds fleeti_lds_of(fleeti_quad *quads)
{
    return quads->word;
}
FLEET_DEVICE fleeti_lds fleeti_lds_begin(void)
{
    return fleeti_host_words();
}
/* Relaxed atomics, since several waves may write the same value to one word at once. */
FLEET_DEVICE uint32_t fleeti_lds_get(fleeti_lds lds, uint32_t word)
{
    return __atomic_load_n(lds + word, __ATOMIC_RELAXED);
}
FLEET_DEVICE void fleeti_lds_put(fleeti_lds lds, uint32_t word, uint32_t value)
{
    __atomic_store_n(lds + word, value, __ATOMIC_RELAXED);
}
FLEET_DEVICE fleeti_quad fleeti_lds_get4(fleeti_lds lds, uint32_t word)
{
    fleeti_quad quad;
    for (uint32_t i = 0; i < 4; i++) quad.word[i] = fleeti_lds_get(lds, word + i);
    return quad;
}
/* The copy is complete when begin returns. */
struct fleeti_async_copy {
    uint32_t unused;
};
FLEET_DEVICE void fleeti_async_copy_begin(fleeti_async_copy *copy, fleeti_lds lds, uint32_t word,
                                          const void *from)
{
    (void)copy;
    for (uint32_t i = 0; i < 4; i++) fleeti_lds_put(lds, word + i, ((const uint32_t *)from)[i]);
}
FLEET_DEVICE void fleeti_async_copy_end(const fleeti_async_copy *copy, fleeti_lds lds,
                                        uint32_t word)
{
    (void)copy, (void)lds, (void)word;
}

/* ---- host: order within a workgroup ---- */

FLEET_DEVICE uint32_t fleeti_lds_acquire(fleeti_lds lds, uint32_t word)
{
    fleeti_host_yield();
    return __atomic_load_n(lds + word, __ATOMIC_ACQUIRE);
}
FLEET_DEVICE void fleeti_lds_release(fleeti_lds lds, uint32_t word, uint32_t value)
{
    fleeti_host_yield();
    fleeti_host_progress(0);
    __atomic_store_n(lds + word, value, __ATOMIC_RELEASE);
    fleeti_host_wake(lds + word);
}
FLEET_DEVICE void fleeti_lds_order(void)
{
    fleeti_host_order();
}
FLEET_DEVICE void fleeti_lds_add_release(fleeti_lds lds, uint32_t word, uint32_t value)
{
    fleeti_host_yield();
    fleeti_host_progress(0);
    __atomic_fetch_add(lds + word, value, __ATOMIC_RELEASE);
    fleeti_host_wake(lds + word);
}
FLEET_DEVICE fleet_status fleeti_lds_pause(uint32_t *tries)
{
    return fleeti_host_park(NULL, tries);
}
FLEET_DEVICE void fleeti_task_barrier(fleeti_thread self)
{
    (void)self;
    fleeti_host_barrier(fleeti_host_threads() - 1);
}

/* ---- host: copies to LDS, weight pipeline ---- */

FLEET_DEVICE void fleet_copy_to_lds(void *lds, const void *from, uint32_t bytes, uint32_t thread,
                                    uint32_t threads)
{
    for (uint32_t i = thread * 16; i < bytes; i += threads * 16)
        __builtin_memcpy((char *)lds + i, (const char *)from + i, 16);
}
FLEET_DEVICE void fleet_copy_wait(void) {}

FLEET_DEVICE void fleeti_stage_fill(const fleeti_pipeline *s, fleeti_copies *copies, uint32_t stage,
                                    uint32_t use, const char *from, uint32_t bytes)
{
    (void)copies, (void)bytes;
    fleeti_lds_put(s->words, FLEETI_PIPELINE_AT(stage), (uint32_t)(uintptr_t)from);
    fleeti_lds_put(s->words, FLEETI_PIPELINE_AT(stage) + 1,
                   (uint32_t)((uint64_t)(uintptr_t)from >> 32));
    fleeti_lds_release(s->words, FLEETI_PIPELINE_FULL(stage), use + 1);
}
FLEET_DEVICE const char *fleeti_stage_address(const fleeti_pipeline *s, uint32_t stage,
                                              uint32_t there)
{
    if (!there) return NULL;
    uint64_t high = fleeti_lds_get(s->words, FLEETI_PIPELINE_AT(stage) + 1);
    return (const char *)(uintptr_t)(high << 32 |
                                     fleeti_lds_get(s->words, FLEETI_PIPELINE_AT(stage)));
}

#endif /* FLEET_HOST */

/* ==== >>defaults: what backends have alike ==== */

/* For the backend above, but for groups that it has of its own (>>contract). */

#if !defined(FLEETI_PARK)
/* Scalar registers or the stack have room for it. */
#define FLEETI_PARK(type, name)                                                                    \
    FLEET_DEVICE const type *name(const type *value)                                               \
    {                                                                                              \
        return value;                                                                              \
    }
#define FLEETI_PARKED_BYTES(type) 0u
#endif

#if !defined(FLEETI_GLOBAL_POINTER)
#define FLEETI_GLOBAL_POINTER(type) type *
#endif

#if !defined(FLEETI_OWN_IDS)
FLEET_DEVICE uint32_t fleet_thread_id(void)
{
    return threadIdx.x;
}
FLEET_DEVICE uint32_t fleet_thread_count(void)
{
    return blockDim.x;
}
FLEET_DEVICE uint32_t fleet_block_id(void)
{
    return blockIdx.x;
}
FLEET_DEVICE uint32_t fleet_block_count(void)
{
    return gridDim.x;
}
FLEET_DEVICE void fleet_block_barrier(void)
{
    __syncthreads();
}
FLEET_DEVICE void *fleeti_dynamic_lds(void)
{
    extern __shared__ __attribute__((aligned(FLEETI_DYNAMIC_ALIGN))) uint4 fleeti_dynamic[];
    return fleeti_dynamic;
}
FLEET_DEVICE fleeti_lds fleeti_lds_begin(void)
{
    FLEET_LDS(fleeti_quad, quads, FLEETI_LDS_WORDS / 4);
    return fleeti_lds_of(quads);
}
#endif

#if !defined(FLEETI_OWN_ENGINE)
FLEET_DEVICE void fleeti_workgroup_on(uint32_t chiplet)
{
    (void)chiplet;
}
FLEET_DEVICE void fleeti_workgroup_beside(void) {}
FLEET_DEVICE size_t fleeti_lds_mark(void)
{
    return 0;
}
FLEET_DEVICE void fleeti_lds_reset(size_t mark)
{
    (void)mark;
}
FLEET_DEVICE void fleeti_wave_lds(void **lds, uint32_t *bytes, uint32_t all)
{
    (void)lds, (void)bytes, (void)all;
}
FLEET_DEVICE uint64_t fleeti_limit_clock(uint64_t *since)
{
    const uint64_t now = fleet_clock_ticks();
    if (*since == 0) *since = now;
    return now;
}
FLEET_DEVICE void fleeti_store_racing(uint32_t *at, uint32_t value)
{
    *at = value;
}
#endif

#if !defined(FLEETI_OWN_UNIFORM)
FLEET_DEVICE uint32_t fleeti_uniform(uint32_t value)
{
    return value;
}
FLEET_DEVICE uintptr_t fleeti_uniform_address(const void *at)
{
    return (uintptr_t)at;
}
#endif

#if !defined(FLEETI_OWN_THREAD)
FLEET_DEVICE fleeti_thread fleeti_thread_now(void)
{
    fleeti_thread self;
    self.lds = fleeti_lds_begin();
    self.thread = fleet_thread_id();
    self.has_producer = 0;
    return self;
}
FLEET_DEVICE uint32_t fleeti_thread_index(fleeti_thread self)
{
    return self.thread;
}
FLEET_DEVICE uint32_t fleeti_task_waves(fleeti_thread self)
{
    return fleet_wave_count() - self.has_producer;
}
#endif

#if !defined(FLEETI_OWN_KEPT)
FLEET_DEVICE fleeti_thread fleeti_thread_kept(void)
{
    return fleeti_thread_now();
}
FLEET_DEVICE fleeti_lds fleeti_lds_kept(fleeti_lds lds)
{
    return lds;
}
#endif

#if !defined(FLEETI_OWN_LEADER)
FLEET_DEVICE uint32_t fleeti_leader_offset(fleeti_thread self)
{
    (void)self;
    return 0;
}
FLEET_DEVICE uint32_t fleeti_polling_wave(fleeti_thread self)
{
    (void)self;
    return 0;
}
#endif

#if !defined(FLEETI_OWN_POPCOUNT)
FLEET_DEVICE uint32_t fleeti_popcount32(uint32_t bits)
{
    return (uint32_t)__builtin_popcount(bits);
}
#endif

#if !defined(FLEETI_OWN_ANY)
FLEET_DEVICE uint32_t fleeti_block_any(fleeti_thread self, uint32_t value)
{
    if (fleeti_thread_wave(self) == 0) value = fleeti_any(value);
    return fleeti_broadcast(self, value, 0);
}
FLEET_DEVICE void fleeti_block_any_rearm(void)
{
    fleet_block_barrier();
}
#endif

#if !defined(FLEETI_OWN_POLLS)
/* Either a poll acquires, or fleeti_invalidate follows; what was observed has returned when it is
   posted. */
FLEET_DEVICE uint32_t fleeti_spin_load_device(const uint32_t *at)
{
    return fleeti_poll_device(at);
}
FLEET_DEVICE void fleeti_spin_acquire(void) {}
FLEET_DEVICE void fleeti_post_order(void) {}
#endif

FLEET_DEVICE void fleet_load_streaming64(fleet_quad quads[4], const void *at, size_t stride_bytes)
{
    for (uint32_t i = 0; i < 4; i++)
        quads[i] = fleet_load_streaming16((const char *)at + i * stride_bytes);
}

#if !defined(FLEETI_OWN_VIEWS)
FLEET_DEVICE uint32_t fleet_view_load_streaming4(fleet_view view, uint32_t offset_bytes)
{
    return fleet_load_streaming4((const char *)view.base + offset_bytes);
}
FLEET_DEVICE uint64_t fleet_view_load_streaming8(fleet_view view, uint32_t offset_bytes)
{
    return fleet_load_streaming8((const char *)view.base + offset_bytes);
}
FLEET_DEVICE fleet_quad fleet_view_load_streaming16(fleet_view view, uint32_t offset_bytes)
{
    return fleet_load_streaming16((const char *)view.base + offset_bytes);
}
#endif

#if !defined(FLEETI_OWN_COHERENT16)
FLEET_DEVICE fleet_quad fleet_load_coherent16(const void *at)
{
    const uint64_t low = fleet_load_coherent8(at);
    return fleeti_quad_of_halves(low, fleet_load_coherent8((const char *)at + 8));
}
#endif

#if !defined(FLEETI_OWN_DEFERRED)
FLEET_DEVICE void fleeti_deferred_begin(fleeti_thread self, uint32_t *deferred, const uint32_t *at)
{
    (void)self;
    *deferred = fleet_load_relaxed_device(at);
}
FLEET_DEVICE uint32_t fleeti_deferred_end(fleeti_thread self, const uint32_t *deferred)
{
    (void)self;
    return fleeti_uniform(*deferred);
}
#endif

#if !defined(FLEETI_OWN_PINNED)
struct fleeti_pinned {
    fleeti_quad quad[FLEETI_PINNED_WORDS / 4];
};
FLEET_DEVICE fleeti_pinned fleeti_pinned_from_lds(fleeti_lds lds, uint32_t word)
{
    fleeti_pinned pinned;
    for (uint32_t i = 0; i < FLEETI_PINNED_WORDS / 4; i++)
        pinned.quad[i] = fleeti_lds_get4(lds, word + 4 * i);
    return pinned;
}
FLEET_DEVICE fleeti_pinned fleeti_pinned_from_memory(const void *from)
{
    return *(const fleeti_pinned *)from;
}
FLEET_DEVICE uint32_t fleeti_pinned_word(fleeti_pinned pinned, uint32_t i)
{
    return pinned.quad[i / 4].word[i % 4];
}
FLEET_DEVICE void fleeti_pinned_put(fleeti_pinned pinned, fleeti_lds lds, uint32_t word)
{
    for (uint32_t i = 0; i < FLEETI_PINNED_WORDS; i++)
        if (fleet_lane() == 0) fleeti_lds_put(lds, word + i, pinned.quad[i / 4].word[i % 4]);
}
#endif

#if !defined(FLEETI_OWN_COPIES)
/* Copies say by themselves when they have landed. */
struct fleeti_copies {
    uint32_t unused;
};
FLEET_DEVICE void fleeti_copies_uniform(fleeti_copies *copies)
{
    (void)copies;
}
FLEET_DEVICE void fleeti_copies_progress(const fleeti_pipeline *s, fleeti_copies *copies)
{
    (void)s, (void)copies;
}
#endif

#if !defined(FLEETI_OWN_BULK)
/* An acquire is enough for loads, and their counter limits them. */
FLEET_DEVICE void fleeti_copies_order(void) {}
FLEET_DEVICE void fleeti_copies_throttle(uint32_t *begun, uint32_t cycles)
{
    (void)begun, (void)cycles;
}
#endif

#if !defined(FLEETI_OWN_STAGES)
FLEET_DEVICE void fleeti_stage_init(const fleeti_pipeline *s, uint32_t stage, uint32_t waves)
{
    fleeti_lds_put(s->words, FLEETI_PIPELINE_FULL(stage), FLEETI_TEST_START);
    fleeti_lds_put(s->words, FLEETI_PIPELINE_RELEASED(stage), FLEETI_TEST_START * waves);
}
FLEET_DEVICE uint32_t fleeti_stage_turn_reached(const fleeti_pipeline *s, uint32_t use)
{
    (void)s, (void)use;
    return 1; /* full flags hold the whole number of the use: every test is exact */
}
FLEET_DEVICE uint32_t fleeti_stage_is_full(const fleeti_pipeline *s, uint32_t stage, uint32_t use)
{
    return fleeti_lds_acquire(s->words, FLEETI_PIPELINE_FULL(stage)) == use + 1;
}
FLEET_DEVICE uint32_t fleeti_stages_are_full(const fleeti_pipeline *s, uint32_t at, uint32_t use,
                                             uint32_t n)
{
    uint32_t full = 1;
    for (uint32_t i = at; i < at + n && full; i++)
        full = fleeti_stage_is_full(s, i % s->stages, use + i / s->stages);
    return full;
}
/* Comes after the wave's reads of the stage. Pair: the acquire in fleeti_stage_is_free (edge 19).
   */
FLEET_DEVICE void fleeti_stage_release(const fleeti_pipeline *s, uint32_t stage, uint32_t waves)
{
    fleeti_lds_add_release(s->words, FLEETI_PIPELINE_RELEASED(stage), waves);
}
FLEET_DEVICE uint32_t fleeti_stage_is_free(const fleeti_pipeline *s, uint32_t stage, uint32_t use,
                                           uint32_t waves)
{
    return fleeti_lds_acquire(s->words, FLEETI_PIPELINE_RELEASED(stage)) == use * waves;
}
FLEET_DEVICE uint32_t fleeti_stage_try_wait_free(const fleeti_pipeline *s, uint32_t stage,
                                                 uint32_t use, uint32_t waves)
{
    return fleeti_stage_is_free(s, stage, use, waves);
}
FLEET_DEVICE void fleeti_stage_reclaim(const fleeti_pipeline *s, uint32_t stage, uint32_t use,
                                       uint32_t waves)
{
    fleeti_lds_put(s->words, FLEETI_PIPELINE_RELEASED(stage), use * waves);
}
#endif

/* ==== >>core: notify, wait, pipeline, events, the same on every backend ==== */

FLEET_DEVICE uint64_t fleeti_uniform64(uint64_t value)
{
    const uint64_t high = fleeti_uniform((uint32_t)(value >> 32));
    return high << 32 | fleeti_uniform((uint32_t)value);
}
FLEET_DEVICE uint64_t fleeti_first64(uint64_t value)
{
    return (uint64_t)fleeti_first((uint32_t)(value >> 32)) << 32 | fleeti_first((uint32_t)value);
}

/* The sum of the lanes' values, in every lane. */
FLEET_DEVICE uint32_t fleeti_wave_sum(uint32_t value)
{
    uint32_t sum = 0;
    FLEETI_ROLLED
    for (uint32_t lane = 0; lane < fleet_wave_size(); lane++) sum += fleeti_shuffle(value, lane);
    return sum;
}

FLEET_DEVICE fleet_view fleet_view_of(const void *base)
{
    const uint64_t at = (uint64_t)(uintptr_t)base;
    const uint64_t high = fleeti_uniform((uint32_t)(at >> 32));
    fleet_view view;
    view.base = (const void *)(uintptr_t)(high << 32 | fleeti_uniform((uint32_t)at));
    return view;
}

/* ---- a workgroup's barrier, broadcast and vote ---- */

/* The barrier of the waves that run tasks. */
FLEET_DEVICE void fleeti_barrier(fleeti_thread self)
{
    if (self.has_producer)
        fleeti_task_barrier(self);
    else
        fleet_block_barrier();
}

/* Passes the value of a wave's first thread to all threads of the workgroup, with a barrier. The caller has another
   barrier between two broadcasts of the same word. */
FLEET_DEVICE uint32_t fleeti_broadcast_from(fleeti_thread self, uint32_t wave, uint32_t value,
                                            uint32_t word)
{
    if (fleeti_thread_wave(self) == wave && fleeti_thread_lane(self) == 0)
        fleeti_lds_put(self.lds, FLEETI_LDS_BROADCAST(word), value);
    fleeti_barrier(self);
    return fleeti_uniform(fleeti_lds_get(self.lds, FLEETI_LDS_BROADCAST(word)));
}
FLEET_DEVICE uint32_t fleeti_broadcast(fleeti_thread self, uint32_t value, uint32_t word)
{
    return fleeti_broadcast_from(self, 0, value, word);
}

/* A barrier that returns to every thread whether any thread vetoes. Callers alternate between turns 0 and 1. A veto
   stays set: no vote follows it. */
FLEET_DEVICE uint32_t fleeti_block_vote(fleeti_thread self, uint32_t veto, uint32_t turn)
{
    if (veto) fleeti_lds_put(self.lds, FLEETI_LDS_VOTE(turn), 1);
    fleeti_barrier(self);
    return fleeti_uniform(fleeti_lds_get(self.lds, FLEETI_LDS_VOTE(turn)));
}

/* ---- atomics ---- */

FLEET_DEVICE uint32_t fleet_load_acquire_device(const uint32_t *at)
{
    uint32_t value = fleeti_poll_device(at);
    fleeti_invalidate_device();
    return value;
}
FLEET_DEVICE uint32_t fleet_load_acquire_system(const uint32_t *at)
{
    uint32_t value = fleeti_poll_system(at);
    fleeti_invalidate_system();
    return value;
}
FLEET_DEVICE uint32_t fleet_add_acq_rel_device(uint32_t *at, uint32_t value)
{
    fleeti_drain();
    fleeti_write_back_device();
    uint32_t old = fleeti_rmw_device(at, value);
    fleeti_invalidate_device();
    return old;
}
FLEET_DEVICE uint32_t fleet_add_acq_rel_system(uint32_t *at, uint32_t value)
{
    fleeti_drain();
    fleeti_write_back_system();
    uint32_t old = fleeti_rmw_system(at, value);
    fleeti_invalidate_system();
    return old;
}
FLEET_DEVICE fleet_status fleet_pause(uint32_t *tries)
{
    return fleeti_pause(NULL, tries);
}

/* ---- sums over the waves ---- */

FLEET_DEVICE void fleeti_reduce_add(fleeti_thread self, float *sum, uint32_t n, float *lds)
{
    const uint32_t wave = fleet_wave_id(), waves = fleeti_task_waves(self),
                   size = fleet_wave_size();
    fleeti_barrier(self);
    if (wave > 0) {
        FLEETI_UNROLLED
        for (uint32_t i = 0; i < n; i++) lds[(wave * n + i) * size + fleet_lane()] = sum[i];
    }
    fleeti_barrier(self);
    if (wave == 0)
        for (uint32_t v = 1; v < waves; v++) {
            FLEETI_UNROLLED
            for (uint32_t i = 0; i < n; i++) sum[i] += lds[(v * n + i) * size + fleet_lane()];
        }
    fleeti_barrier(self);
}

FLEET_DEVICE void fleet_block_reduce_add(float *sum, uint32_t n, float *lds)
{
    fleeti_reduce_add(fleeti_thread_now(), sum, n, lds);
}

/* ---- polls ---- */

/* The bases of the word indices in wait and notify records. */
typedef struct fleeti_counters {
    uint32_t *device;
    /* Address of the base of the system counters, in fine-grained memory: seldom read. In a plan for several ranks it is
       the first member of a fleeti_links. */
    uint32_t *const *system;
} fleeti_counters;

/* The system counters of a rank, and of all ranks as this device addresses them. */
typedef struct fleeti_links {
    uint32_t *own;
    uint32_t *const *words;         /* [FLEET_MAX_PEERS]; null: there is no such rank */
    const fleeti_forward *forwards; /* of the plan that the launch runs; null: it is for one rank */
    uint32_t rank, bytes;           /* of own */
} fleeti_links;

/* Why a wait failed: which counter, its value, and the value that it waited for. */
typedef struct fleeti_wait_diagnostics {
    fleet_status status;
    uint32_t counter, found, expected;
} fleeti_wait_diagnostics;

#define FLEETI_IDLE_NOW UINT64_MAX /* *idle of a fleet_watch */

/* Whether a wait for `at` that has lasted `waited` ticks has to end because of other ranks. Relaxed: no data follows (edge
   34). */
FLEET_DEVICE fleet_status fleeti_check_peers(const fleet_watch *watch, const void *at,
                                             uint32_t tries, uint64_t waited)
{
    const fleeti_links *links = watch->peers;
    const uint64_t offset = (uint64_t)((uintptr_t)at - (uintptr_t)links->own);
    const uint64_t limit = watch->limit_ticks;
    if (fleet_load_relaxed_system(links->own + FLEETI_PEER_STOP)) return FLEET_ERROR_PEER_FAILED;
    if (!limit || waited <= limit) return FLEET_OK;
    /* A task of this rank may wait for one that waits for another rank: let that one say so. */
    if (offset >= links->bytes) return waited > 2 * limit ? FLEET_ERROR_TIMEOUT : FLEET_OK;
    uint32_t *to = links->words[tries / 64 % FLEET_MAX_PEERS]; /* one rank in each call */
    if (to)
        fleet_store_relaxed_system(to + FLEETI_PEER_LATE + links->rank,
                                   FLEETI_SYSTEM | (uint32_t)(offset / 4));
    /* The rank that this one waits for may itself wait for a third one, and gets time to say so. */
    return waited > limit + limit / 8 ? FLEET_ERROR_PEER_TIMEOUT : FLEET_OK;
}

/* Whether the wait for `at` has to end: the status to return, or FLEET_OK. Called after every 64 failed polls. */
FLEET_DEVICE fleet_status fleeti_check_watch(const fleet_watch *watch, const void *at,
                                             uint32_t tries, uint64_t *since)
{
#if defined(FLEET_NO_WATCHDOG)
    (void)watch, (void)at, (void)tries, (void)since;
#else
    if (watch->stop) {       /* relaxed: no data follows (edge 14) */
        uint32_t stop = fleet_load_relaxed_device(watch->stop);
        if (stop) return (fleet_status)stop;
    }
    uint64_t now = fleeti_limit_clock(since);
    uint32_t late = watch->limit_ticks && now - *since > watch->limit_ticks;
    if (watch->peers) {
        const fleet_status status = fleeti_check_peers(watch, at, tries, now - *since);
        if (status) return status;
        late = 0;
    }
    if (late && watch->idle) { /* relaxed: no data follows (edge 30) */
        const uint64_t until = fleeti_poll64_device(watch->idle);
        if (until == FLEETI_IDLE_NOW ||
            (until && (int64_t)(now - until) <= (int64_t)watch->limit_ticks))
            late = 0;
    }
    /* The host's word is across a bus, so it is read every 4096 polls, and before a time-out is reported. Pair:
       fleet_state_abort (edge 15). */
    if ((late || tries % 4096 == 0) && watch->host_abort &&
        fleet_load_relaxed_system(watch->host_abort))
        return FLEET_ERROR_ABORTED;
    if (late) return FLEET_ERROR_TIMEOUT;
#endif
    return FLEET_OK;
}

/* After a failed poll of `at`: backs off, and now and then checks the watch. */
FLEET_DEVICE fleet_status fleeti_back_off(const void *at, const fleet_watch *watch, uint32_t *tries,
                                          uint64_t *since)
{
    fleet_status status = fleeti_pause(at, tries);
    if (!status && *tries % 64 == 0) status = fleeti_check_watch(watch, at, *tries, since);
    return status;
}

/* Polls one counter until it reaches `want`. */
FLEET_DEVICE fleet_status fleeti_poll_until(fleeti_counters c, uint32_t counter, uint32_t want,
                                            const fleet_watch *watch,
                                            fleeti_wait_diagnostics *diagnostics)
{
    const uint32_t *at =
        counter & FLEETI_SYSTEM ? *c.system + (counter & ~FLEETI_SYSTEM) : c.device + counter;
    uint32_t tries = 0;
    uint64_t since = 0;
    for (;;) { /* loop 2 */
        uint32_t value = 0;
        for (uint32_t spin = 0; spin < FLEETI_SPIN; spin++) {
            value = counter & FLEETI_SYSTEM ? fleeti_poll_system(at) : fleeti_spin_load_device(at);
            if ((int32_t)(value - want) >= 0) {
                fleeti_spin_acquire();
                return FLEET_OK;
            }
        }
        fleet_status status = fleeti_back_off(at, watch, &tries, &since);
        if (status) {
            diagnostics->status = status, diagnostics->counter = counter,
            diagnostics->found = value, diagnostics->expected = want;
            return status;
        }
    }
}

/* ---- notify ---- */

FLEET_DEVICE uint32_t fleeti_is_leader(fleeti_thread self, uint32_t group)
{
    return (group == FLEET_BLOCK ? fleeti_thread_index(self)
                                 : fleeti_thread_index(self) % fleet_wave_size()) == 0;
}

#define FLEETI_RELEASED 1u /* this arrival released for its chiplet */
#define FLEETI_VETOED 2u   /* vetoed: the group did not arrive */

/* What a notify returns: FLEETI_... flags; a bit for each record whose arrival completed its element, where the
   caller asked for it; and the status of the wait for the previous epoch, without which there is no arrival. Threads
   other than the leader get the veto alone. */
typedef struct fleeti_notify_result {
    uint32_t flags, completed;
    fleet_status status;
} fleeti_notify_result;

/* Counters are sums over all epochs. What completes epoch e, and which arrival completes it (== epoch * target, ==
   epoch * share below), can be told from them only if no arrival for epoch e + 1 comes before epoch e is complete.
   In a plan that holds: sources of a step wait for the previous step, and where they may run ahead the builder has
   proved it for every element with several arrivals (fleet.h, pass "overlap"). Events by hand have no such proof, so
   their notify waits for the previous epoch (edge 4), with the values below. Null: an arrival of a plan. */
typedef struct fleeti_previous_epoch {
    uint32_t value; /* of the counter, when the notify began */
    uint32_t want;  /* its value when that epoch is complete */
    const fleet_watch *watch;
} fleeti_previous_epoch;

FLEET_DEVICE fleet_status fleeti_await_previous_epoch(fleeti_counters c, uint32_t counter,
                                                      const fleeti_previous_epoch *before)
{
    fleeti_wait_diagnostics diagnostics;
    if ((int32_t)(before->value - before->want) >= 0) return FLEET_OK;
    return fleeti_poll_until(c, counter, before->want, before->watch, &diagnostics);
}

/* Arrives at an element for which other ranks wait. The write-back at system scope came before. The RMW acquires what the
   device's other producers released by theirs; the last of them stores the epoch to each of these ranks, and so
   publishes for all. The words have one writer, and a step's store comes before that of the next, which follows from the
   step event or its proof. Pair: the polls and the system invalidate in fleeti_wait_all (edge 32). */
FLEET_DEVICE void fleeti_arrive_for_peers(fleeti_counters c, uint32_t forward, uint32_t weight,
                                          uint32_t epoch)
{
    const fleeti_links *links = (const fleeti_links *)(const void *)c.system;
    const fleeti_forward *f = links->forwards + forward;
    uint32_t *const *words = links->words;
    if (fleeti_rmw_device(c.device + f->counter, weight) + weight != epoch * f->target) return;
    FLEETI_ROLLED
    for (uint32_t rank = 0; rank < FLEET_MAX_PEERS; rank++)
        if (f->ranks >> rank & 1) fleeti_publish_system(words[rank] + f->word, epoch);
    fleeti_drain(); /* as before any other arrival of this wave */
}

/* The leader's part of a notify: arrives at n events in this epoch. It adds to all sub-counters first, then releases
   at most once, so that the release comes after every RMW that observed other workgroups' arrivals, and then adds to
   the counters. The first record, and the target of its trigger, are passed by value, since there is mostly only one.
   triggers: for each record the target that completes its element, n at most 32; or null. also: release in any case,
   for arrivals that the caller makes next. before: with one record, or null. */
FLEET_DEVICE fleeti_notify_result fleeti_arrive(fleeti_counters c, fleeti_notify first,
                                                const fleeti_notify *records, uint32_t n,
                                                uint32_t epoch, const fleeti_trigger *triggers,
                                                uint32_t target, uint32_t also,
                                                const fleeti_previous_epoch *before)
{
    fleeti_notify_result result;
    result.flags = result.completed = 0;
    result.status = FLEET_OK;
    /* Before any counter changes. A lone arrival checks after its release: until then its load is in flight. */
    if (before && first.sub) {
        result.status = fleeti_await_previous_epoch(c, first.counter, before);
        if (result.status) return result;
        /* Acquires, before the sub-counter's RMW, the RMW of the last arrival in the previous epoch. Pair: the
           release below (edge 4). Where the load and the RMW are of one counter, coherence orders them. */
        if (!(first.sub & FLEETI_LOCAL)) fleeti_spin_acquire();
    }
    FLEETI_ROLLED
    for (uint32_t from = 0; from < n || (also && !from); from += 32) {
        uint32_t due = 0, system = 0;
        uint32_t end = n - from < 32 ? n - from : 32;
        FLEETI_ROLLED
        for (uint32_t i = 0; i < end; i++) {
            fleeti_notify r = from + i ? records[from + i] : first;
            if (r.sub & FLEETI_LOCAL) {
                /* Block and chiplet scope: the readers share the L2 that holds the producers' drained stores (edge
                   3). */
                if (!triggers)
                    fleeti_add_arrival_device(c.device + r.counter, r.weight);
                else if (fleeti_rmw_device(c.device + r.counter, r.weight) + r.weight ==
                         epoch * (i ? triggers[i].target : target))
                    result.completed |= 1u << i;
                continue;
            }
            /* Unless this is the last arrival of its chiplet (edge 2): the last one releases for this workgroup too,
               since its drained stores are in the L2 that the write-back covers. The count is exact, as
               said at fleeti_previous_epoch. */
            if (r.sub && fleeti_rmw_device(c.device + r.sub, 1) + 1 != epoch * r.share) continue;
            due |= 1u << i;
            system |= r.counter & FLEETI_SYSTEM;
        }
        if (!due && !also) continue;
        result.flags = FLEETI_RELEASED;
        /* Publishes the drained stores of this chiplet's producers to every waiter. Pair: the acquire in
           fleeti_wait_all (edges 1, 2, 16). */
        if (system)
            fleeti_write_back_system();
        else
            fleeti_write_back_device();
        if (before && !first.sub)
            result.status = fleeti_await_previous_epoch(c, first.counter, before);
        if (result.status) return result;
        FLEETI_ROLLED
        for (uint32_t i = 0; i < end; i++) {
            fleeti_notify r = from + i ? records[from + i] : first;
            uint32_t old = 0;
            if (!(due >> i & 1)) continue;
            if (r.counter & FLEETI_SYSTEM && !before &&
                ((const fleeti_links *)(const void *)c.system)->forwards) {
                fleeti_arrive_for_peers(c, r.counter & ~FLEETI_SYSTEM, r.weight, epoch);
            } else if (r.counter & FLEETI_SYSTEM) {
                uint32_t *at = *c.system + (r.counter & ~FLEETI_SYSTEM);
                if (triggers)
                    old = fleeti_rmw_system(at, r.weight);
                else
                    fleeti_add_arrival_system(at, r.weight);
            } else {
                if (triggers)
                    old = fleeti_rmw_device(c.device + r.counter, r.weight);
                else
                    fleeti_add_arrival_device(c.device + r.counter, r.weight);
            }
            if (triggers && old + r.weight == epoch * (i ? triggers[i].target : target))
                result.completed |= 1u << i;
        }
    }
    return result;
}

/* The one notify. Every thread of the group calls it; it publishes the group's stores to the groups that wait for
   these events. Where may_veto (a constant) is 1, a veto in any thread of the group means that there is nothing to
   publish: the group does not arrive, and all threads get FLEETI_VETOED; blocks alternate between turns 0 and 1.
   Records, triggers, target, also and before are those of fleeti_arrive. Only the leader reads them, and only the
   leader gets the rest of the result. */
FLEET_DEVICE fleeti_notify_result fleeti_notify_all(fleeti_thread self, uint32_t group,
                                                    fleeti_counters c, fleeti_notify first,
                                                    const fleeti_notify *records, uint32_t n,
                                                    uint32_t epoch, const fleeti_trigger *triggers,
                                                    uint32_t target, uint32_t also,
                                                    const fleeti_previous_epoch *before,
                                                    uint32_t may_veto, uint32_t veto, uint32_t turn)
{
    fleeti_notify_result result;
    result.flags = result.completed = 0;
    result.status = FLEET_OK;
    fleeti_drain(); /* every wave: its own stores are in the chiplet's L2, and all waves pass a barrier ... */
    if (group == FLEET_BLOCK) {
        if (may_veto)
            veto = fleeti_block_vote(self, veto, turn);
        else
            fleeti_barrier(self);
    } else {
        if (may_veto) veto = fleeti_any(veto);
        fleet_wave_barrier();
    }
    if (may_veto && veto) result.flags = FLEETI_VETOED;
    if ((may_veto && veto) || (n == 0 && !also) || !fleeti_is_leader(self, group)) return result;
    /* ... before the leader arrives for all of them. */
    c.device += fleeti_leader_offset(self);
    return fleeti_arrive(c, first, records, n, epoch, triggers, target, also, before);
}

/* ---- wait ---- */

/* The value that the counters of a record reach when its events are complete. */
FLEET_DEVICE uint32_t fleeti_wait_target(fleeti_wait r, uint32_t epoch)
{
    return (r.count & FLEETI_PREVIOUS ? epoch - 1 : epoch) * r.target;
}
/* The polling part of a wait, by the lanes of one wave: each lane polls some of the counters, or all lanes a lone
   one. The first record is passed by value, since there is mostly only one. */
FLEET_DEVICE fleet_status fleeti_poll_all(fleeti_counters c, fleeti_wait first,
                                          const fleeti_wait *records, uint32_t n, uint32_t epoch,
                                          const fleet_watch *watch,
                                          fleeti_wait_diagnostics *diagnostics)
{
    uint32_t k = fleet_lane();
    if (FLEETI_POLL_ALL_LANES && n == 1 && (first.count & ~FLEETI_PREVIOUS) == 1)
        return fleeti_poll_until(c, first.counter, fleeti_wait_target(first, epoch), watch,
                                 diagnostics);
    FLEETI_ROLLED
    for (uint32_t i = 0; i < n; i++) {
        fleeti_wait r = i ? records[i] : first;
        uint32_t count = r.count & ~FLEETI_PREVIOUS;
        uint32_t want = fleeti_wait_target(r, epoch);
        if (k < count) do { /* bounded by the counters */
                fleet_status status =
                    fleeti_poll_until(c, r.counter + k * r.stride, want, watch, diagnostics);
                if (status) return status;
                k += fleet_wave_size();
            } while (k < count);
        k -= count;
    }
    return FLEET_OK;
}

/* One acquire for the group, at the widest scope of its events: after it, and the barrier that follows, the group's
   loads see what the arrivals published. Pair: the release (device, system: edges 1, 9, 16) or the drain (block,
   chiplet: edge 3) in fleeti_notify_all. On NVIDIA the polls have acquired already. */
FLEET_DEVICE void fleeti_invalidate(fleet_scope scope)
{
    if (scope == FLEET_SCOPE_DEVICE)
        fleeti_invalidate_device();
    else if (scope == FLEET_SCOPE_CHIPLET)
        fleeti_invalidate_chiplet();
    else if (scope == FLEET_SCOPE_SYSTEM)
        fleeti_invalidate_system();
}

/* The one wait. Every thread of the group calls it and gets the same status, FLEET_OK or FLEET_ERROR_ABORTED. The
   lane that failed finds the reason in `diagnostics`. Records are those of fleeti_poll_all; only the waiting wave
   reads them. Between two waits of a block stands a barrier (a notify is one). */
FLEET_DEVICE fleet_status fleeti_wait_all(fleeti_thread self, uint32_t group, fleeti_counters c,
                                          fleeti_wait first, const fleeti_wait *records, uint32_t n,
                                          uint32_t epoch, fleet_scope scope,
                                          const fleet_watch *watch,
                                          fleeti_wait_diagnostics *diagnostics)
{
    uint32_t failed = 0;
    if (group == FLEET_WAVE || fleeti_thread_wave(self) == fleeti_polling_wave(self)) {
        failed = (uint32_t)fleeti_poll_all(c, first, records, n, epoch, watch, diagnostics);
        fleeti_invalidate(scope);
    }
    /* Any lane's failure is the group's; the reason is in that lane's `diagnostics`. */
    if (group == FLEET_BLOCK) {
        failed = fleeti_block_any(self, failed);
    } else {
        failed = fleeti_any(failed);
        fleet_wave_barrier();
    }
    return failed ? FLEET_ERROR_ABORTED : FLEET_OK;
}

/* ---- weight pipeline: ring ---- */

FLEET_DEVICE fleeti_pipeline fleeti_pipeline_of(void *ring, uint32_t stages, uint32_t stage_bytes)
{
    fleeti_pipeline s;
    s.ring = (char *)ring;
    s.words = fleeti_lds_of((fleeti_quad *)(void *)(s.ring + (size_t)stages * stage_bytes));
    s.stages = stages;
    s.stage_bytes = stage_bytes;
    return s;
}
/* All threads of the workgroup call it, before a barrier. */
FLEET_DEVICE void fleeti_pipeline_init(const fleeti_pipeline *s, uint64_t limit_ticks,
                                       const uint32_t *stop, uint32_t waves)
{
    const uint32_t threads = fleet_thread_count();
    const uint64_t stop_at = (uint64_t)(uintptr_t)stop;
    for (uint32_t i = fleet_thread_id(); i < FLEETI_PIPELINE_STAGE(0); i += threads)
        fleeti_lds_put(s->words, i,
                       i == FLEETI_PIPELINE_LIMIT       ? (uint32_t)limit_ticks
                       : i == FLEETI_PIPELINE_LIMIT + 1 ? (uint32_t)(limit_ticks >> 32)
                       : i == FLEETI_PIPELINE_STOP      ? (uint32_t)stop_at
                       : i == FLEETI_PIPELINE_STOP + 1  ? (uint32_t)(stop_at >> 32)
                       : i == FLEETI_PIPELINE_CLOSED    ? 1
                       : i == FLEETI_PIPELINE_NO_TAG    ? 1
                       : i == FLEETI_PIPELINE_BEGUN || i == FLEETI_PIPELINE_POST ||
                               i == FLEETI_PIPELINE_TURN
                           ? FLEETI_TEST_START
                           : 0);
    for (uint32_t i = fleet_thread_id(); i < s->stages; i += threads)
        fleeti_stage_init(s, i, waves);
}

/* Ends the pipeline: no wave may acquire a stage any more. Pair: the acquires of `quit`. */
FLEET_DEVICE fleet_status fleeti_pipeline_failed(const fleeti_pipeline *s, fleet_status status)
{
    fleeti_lds_release(s->words, FLEETI_PIPELINE_QUIT, (uint32_t)status);
    return status;
}
FLEET_DEVICE uint64_t fleeti_pipeline_word64(const fleeti_pipeline *s, uint32_t at)
{
    const uint64_t high = fleeti_lds_get(s->words, at + 1);
    return high << 32 | fleeti_lds_get(s->words, at);
}
/* The launch's stop word. */
FLEET_DEVICE uint32_t fleeti_pipeline_stopped(const fleeti_pipeline *s)
{
#if defined(FLEET_NO_WATCHDOG)
    (void)s;
    return 0;
#else
    return fleet_load_relaxed_device(
        (const uint32_t *)(uintptr_t)fleeti_pipeline_word64(s, FLEETI_PIPELINE_STOP));
#endif
}
/* Whether a wait that began at *since (0 at first) has exceeded the launch's limit. */
FLEET_DEVICE uint32_t fleeti_pipeline_timed_out(const fleeti_pipeline *s, uint64_t *since)
{
#if defined(FLEET_NO_WATCHDOG)
    (void)s, (void)since;
    return 0;
#else
    const uint64_t limit = fleeti_pipeline_word64(s, FLEETI_PIPELINE_LIMIT),
                   now = fleeti_limit_clock(since);
    return limit && now - *since > limit;
#endif
}
/* One step of a consumer's spin; not FLEET_OK: the run ends. */
FLEET_DEVICE fleet_status fleeti_pipeline_back_off(const fleeti_pipeline *s, uint32_t *tries,
                                                   uint64_t *since)
{
    fleet_status status = fleeti_lds_pause(tries);
    if (status) return fleeti_pipeline_failed(s, status);
    if (*tries % 64 == 0) {
        const uint32_t quit = fleeti_lds_acquire(s->words, FLEETI_PIPELINE_QUIT);
        if (quit) return (fleet_status)quit;
        uint32_t stop = fleeti_pipeline_stopped(s);
        if (stop) return fleeti_pipeline_failed(s, (fleet_status)stop);
        if (fleeti_pipeline_timed_out(s, since))
            return fleeti_pipeline_failed(s, FLEET_ERROR_TIMEOUT);
    }
    return FLEET_OK;
}

/* ---- weight pipeline: in a tile ---- */

/* Where one wave is in its task's stages. */
struct fleet_consumer {
    fleeti_pipeline ring;
    uint32_t at;      /* the task's next stage, plus the ring's stages for each use after `use` */
    uint32_t use;     /* of the task's first stage */
    uint32_t skipped; /* stages since the last one that the wave has acquired, or since the first */
    uint32_t end; /* word with 1 + the task's end, counted as `at`; it holds 0 until it is known */
    uint32_t waves; /* of the task */
};

/* Whether a test of the next n stages is exact by what the wave has acquired. */
FLEET_DEVICE uint32_t fleeti_stages_are_near(const fleet_consumer *s, uint32_t n)
{
    return s->skipped + n <= s->ring.stages;
}
/* Whether the next stage has landed and is the task's own, if that test is exact. Both words are loaded together. */
FLEET_DEVICE uint32_t fleeti_stage_is_ready(const fleet_consumer *s, uint32_t stage, uint32_t use)
{
    const uint32_t full = fleeti_stage_is_full(&s->ring, stage, use);
    const uint32_t end = fleeti_lds_get(s->ring.words, s->end);
    return full && s->at < fleeti_uniform(end) - 1; /* not known yet: 0 - 1 */
}
/* The same for the next n stages. */
FLEET_DEVICE uint32_t fleeti_stages_are_ready(const fleet_consumer *s, uint32_t n)
{
    const uint32_t full = fleeti_stages_are_full(&s->ring, s->at, s->use, n);
    const uint32_t end = fleeti_lds_get(s->ring.words, s->end);
    return full && s->at + n - 1 < fleeti_uniform(end) - 1;
}
/* Waits for them; not FLEET_OK: they will not be filled. */
FLEET_DEVICE fleet_status fleeti_stages_wait(const fleet_consumer *s, uint32_t n)
{
    const uint32_t last = s->at + n - 1, use = s->use + last / s->ring.stages;
    uint32_t tries = 0;
    uint64_t since = 0;
    do { /* loop 3 */
        fleet_status status = fleeti_pipeline_back_off(&s->ring, &tries, &since);
        if (last >= fleeti_lds_acquire(s->ring.words, s->end) - 1) status = FLEET_ERROR_ARGUMENT;
        if (status) return status;
    } while (!(fleeti_stages_are_near(s, n) || fleeti_stage_turn_reached(&s->ring, use)) ||
             !fleeti_stages_are_ready(s, n));
    return FLEET_OK;
}

FLEET_DEVICE const void *fleet_stage_acquire(fleet_consumer *s)
{
    uint32_t stage, use;
    s->at = fleeti_uniform(s->at); /* after whatever branches the wave took */
    stage = s->at % s->ring.stages, use = s->use + s->at / s->ring.stages;
    uint32_t there = (fleeti_stage_is_ready(s, stage, use) && fleeti_stages_are_near(s, 1)) ||
                     !fleeti_stages_wait(s, 1);
    s->at += there;
    s->skipped =
        0; /* without a stage, too: the run ends, or the task has no more, and no test follows */
    return fleeti_stage_address(&s->ring, stage, there);
}
FLEET_DEVICE const void *fleet_stage_try_acquire(fleet_consumer *s)
{
    uint32_t stage, use;
    s->at = fleeti_uniform(s->at);
    stage = s->at % s->ring.stages, use = s->use + s->at / s->ring.stages;
    uint32_t there =
        fleeti_stages_are_near(s, 1) && !fleeti_any(!fleeti_stage_is_ready(s, stage, use));
    s->at += there;
    if (there) s->skipped = 0;
    return fleeti_stage_address(&s->ring, stage, there);
}
FLEET_DEVICE const void *fleet_stages_acquire(fleet_consumer *s, uint32_t n)
{
    s->at = fleeti_uniform(s->at);
    uint32_t stage = s->at % s->ring.stages;
    uint32_t there = (fleeti_stages_are_ready(s, n) && fleeti_stages_are_near(s, n)) ||
                     !fleeti_stages_wait(s, n);
    if (there) s->at += n;
    s->skipped = 0; /* as above */
    return fleeti_stage_address(&s->ring, stage, there);
}

FLEET_DEVICE uint32_t fleet_stage_index(const fleet_consumer *s)
{
    return fleeti_uniform(s->at) % s->ring.stages;
}

FLEET_DEVICE fleet_status fleet_consumer_status(const fleet_consumer *s)
{
    const uint32_t quit = fleeti_lds_acquire(s->ring.words, FLEETI_PIPELINE_QUIT);
    return quit ? (fleet_status)quit : FLEET_ERROR_ARGUMENT;
}

FLEET_DEVICE fleet_status fleet_consumer_pause(const fleet_consumer *s, uint32_t *tries,
                                               uint64_t *since)
{
    return fleeti_pipeline_back_off(&s->ring, tries, since);
}

FLEET_DEVICE void fleet_stages_skip(fleet_consumer *s, uint32_t n)
{
    s->at += n;
    s->skipped += n;
}

FLEET_DEVICE void fleet_stage_release(const fleet_consumer *s, uint32_t sharers)
{
    const uint32_t stage = (fleeti_uniform(s->at) - 1) % s->ring.stages;
    fleet_wave_barrier(); /* all lanes have read */
    if (fleet_lane() == 0) fleeti_stage_release(&s->ring, stage, s->waves / sharers);
}

FLEET_DEVICE void fleet_stages_release(const fleet_consumer *s, uint32_t n, uint32_t sharers)
{
    const uint32_t first = fleeti_uniform(s->at) - n;
    fleet_wave_barrier(); /* all lanes have read */
    for (uint32_t i = fleet_lane(); i < n; i += fleet_wave_size())
        fleeti_stage_release(&s->ring, (first + i) % s->ring.stages, s->waves / sharers);
}

/* ---- weight pipeline: in a producer function ---- */

/* The producer's side. */
struct fleet_producer {
    fleeti_pipeline ring;
    fleeti_copies copies;
    uint32_t stage, use;  /* of the next stage to fill */
    uint32_t first_use;   /* of the task's first stage */
    uint32_t task;        /* number of the current task */
    uint32_t waves;       /* that run tasks */
    uint32_t over;        /* the current task acquires no more, or the run ends */
    uint32_t pace, begun; /* cycles between two stages, and when the last one was started */
    const uint32_t *step; /* counter of the step event; null: fleet_producer_await_task is enough */
    uint32_t step_want;   /* its value when the previous step has ended */
    uint32_t step_known;  /* the producer has observed that in this step */
    fleet_status status;  /* an error in the task's spans */
};

/* The producer's lanes stay together: they read the same values, and any() tells the compiler so. What a stream
   function declares is made uniform as well; this tells the compiler again, where a producer function has made it lose
   that. */
FLEET_DEVICE void fleeti_producer_uniform(fleet_producer *p)
{
    p->stage = fleeti_uniform(p->stage), p->use = fleeti_uniform(p->use);
    p->over = fleeti_uniform(p->over);
    p->step_known = fleeti_uniform(p->step_known);
    fleeti_copies_uniform(&p->copies);
}

/* Whether the current task has ended without the stages that are still to come. Pair: the release in
   fleeti_pipeline_begun (edge 21). Every lane has to observe it, as everything that the producer acts on: a vote
   passes the answer on, but orders nothing. */
FLEET_DEVICE uint32_t fleeti_producer_task_ended(const fleet_producer *p)
{
    const uint32_t begun = fleeti_lds_acquire(p->ring.words, FLEETI_PIPELINE_BEGUN);
    return !fleeti_any((int32_t)(begun - (p->task + 1)) <= 0);
}
/* Whether no wave reads the next stage any more, since the current task of the other waves began after it. An entry of
   another task says nothing: the current one has no stages, or the producer has not come to it. */
FLEET_DEVICE uint32_t fleeti_producer_stage_abandoned(const fleet_producer *p)
{
    const uint32_t begun = fleeti_lds_acquire(p->ring.words, FLEETI_PIPELINE_BEGUN);
    const uint32_t entry = FLEETI_PIPELINE_ENTRY(begun - 1);
    const uint32_t tag = fleeti_lds_get(p->ring.words, entry);
    const uint32_t stage = fleeti_lds_get(p->ring.words, entry + 1);
    const uint32_t use = fleeti_lds_get(p->ring.words, entry + 2);
    if (fleeti_producer_task_ended(p)) return 1;
    return !fleeti_any(tag != begun || (int32_t)(use * p->ring.stages + stage -
                                                 ((p->use - 1) * p->ring.stages + p->stage)) <= 0);
}
/* One step of the producer's spin on other waves of its workgroup; 0: the run ends. It looks at no clock: these
   waves run tiles, which may take any time, or wait within the launch's limit and set `quit` when they fail. */
FLEET_DEVICE uint32_t fleeti_producer_back_off(const fleet_producer *p, uint32_t *tries)
{
    /* A producer whose consumers have left must not pause: nothing would wake it on the CPU. */
    uint32_t ends =
        fleeti_lds_acquire(p->ring.words, FLEETI_PIPELINE_QUIT) || fleeti_lds_pause(tries);
    if (*tries % 64 == 0) ends |= fleeti_pipeline_stopped(&p->ring);
    return !fleeti_any(ends);
}
/* Waits until the copy of a stage's last use has landed, even if the run ends: else it could land in LDS that
   already has another owner. Only the launch's limit ends this wait early. */
FLEET_DEVICE void fleeti_producer_await_copy(fleet_producer *p, uint32_t stage, uint32_t use)
{
    uint64_t since = 0;
    while (!p->status && fleeti_any(!fleeti_stage_is_full(&p->ring, stage, use))) { /* loop 4 */
        fleeti_copies_progress(&p->ring, &p->copies);
        if (fleeti_any(fleeti_pipeline_timed_out(&p->ring, &since)))
            p->status = FLEET_ERROR_TIMEOUT;
    }
}

/* Whether the next stage may be filled. It is on the path of every stage, so it has to be short. Every lane has to
   observe it, since one of them fills the stage. */
FLEET_DEVICE uint32_t fleeti_producer_stage_is_free(const fleet_producer *p)
{
    return !fleeti_any(!fleeti_stage_is_free(&p->ring, p->stage, p->use, p->waves));
}
/* Waits until it may; 0: the copy is not needed any more. An abandoned stage is reclaimed at once: no wave releases
   it, and a wait for that would take its full time, some microseconds each. */
FLEET_DEVICE uint32_t fleeti_producer_await_stage(fleet_producer *p)
{
    const fleeti_pipeline *s = &p->ring;
    uint32_t tries = 0;
    do { /* loop 5 */
        fleeti_copies_progress(s, &p->copies);
        if (fleeti_producer_stage_abandoned(p)) {
            fleeti_producer_await_copy(p, p->stage,
                                       p->use - 1); /* no wave has waited for the copy */
            if (p->status) return 0;
            if (!fleeti_producer_stage_is_free(p))
                fleeti_stage_reclaim(s, p->stage, p->use, p->waves);
        } else if (!fleeti_producer_back_off(p, &tries)) {
            return 0;
        }
        if (fleeti_producer_task_ended(p)) return 0;
    } while (fleeti_any(!fleeti_stage_try_wait_free(s, p->stage, p->use, p->waves)));
    return 1;
}

FLEET_DEVICE void fleet_producer_copy(fleet_producer *p, const void *at, uint32_t bytes)
{
    const char *from = (const char *)(uintptr_t)fleeti_uniform64((uintptr_t)at);
    bytes = fleeti_uniform(bytes);
    fleeti_producer_uniform(p);
    if (((uint32_t)(uintptr_t)from | bytes) % 16) p->status = FLEET_ERROR_ARGUMENT, p->over = 1;
    if (p->over) return;
    FLEETI_ROLLED
    while (bytes) { /* bounded by the bytes */
        const uint32_t part = bytes < p->ring.stage_bytes ? bytes : p->ring.stage_bytes;
        if (!fleeti_producer_stage_is_free(p) && !fleeti_producer_await_stage(p)) {
            p->over = 1;
            return;
        }
        fleeti_copies_throttle(&p->begun, p->pace);
        fleeti_stage_fill(&p->ring, &p->copies, p->stage, p->use, from, part);
        from += part, bytes -= part;
        if (++p->stage == p->ring.stages) p->stage = 0, p->use++;
    }
}

FLEET_DEVICE void fleet_producer_throttle(fleet_producer *p, uint32_t cycles)
{
    p->pace = fleeti_uniform(cycles < 65535 ? cycles : 65535);
}

FLEET_DEVICE void fleet_producer_align(fleet_producer *p, uint32_t stages, const void *at)
{
    fleeti_producer_uniform(p);
    while (p->stage % stages && !p->over) fleet_producer_copy(p, at, 16); /* bounded by the ring */
}

/* Begins a task's stages; 0: the run ends. */
FLEET_DEVICE uint32_t fleeti_producer_begin_task(fleet_producer *p, uint32_t task)
{
    const fleeti_pipeline *s = &p->ring;
    uint32_t tries = 0;
    fleeti_producer_uniform(p);
    /* The entry belongs to an earlier task until that has ended. */
    /* loop 6 */
    while (fleeti_any((int32_t)(task - fleeti_lds_acquire(s->words, FLEETI_PIPELINE_BEGUN)) >=
                      (int32_t)FLEETI_PIPELINE_TASKS - 1)) {
        fleeti_copies_progress(s, &p->copies);
        if (!fleeti_producer_back_off(p, &tries)) return 0;
    }
    p->task = task;
    p->over = 0;
    p->first_use = p->use;
    fleeti_lds_put(s->words, FLEETI_PIPELINE_ENTRY(task) + 1, p->stage);
    fleeti_lds_put(s->words, FLEETI_PIPELINE_ENTRY(task) + 2, p->use);
    fleeti_lds_put(s->words, FLEETI_PIPELINE_ENTRY(task) + 3, 0);
    /* Publishes stage and use, with the tag. Pair: the acquire in fleeti_pipeline_begins (edge 20). */
    fleeti_lds_release(s->words, FLEETI_PIPELINE_ENTRY(task), task + 1);
    return 1;
}

/* The current task has declared all of its spans. */
FLEET_DEVICE void fleeti_producer_end_task(const fleet_producer *p)
{
    fleeti_lds_put(p->ring.words, FLEETI_PIPELINE_ENTRY(p->task) + 3,
                   (p->use - p->first_use) * p->ring.stages + p->stage + 1);
}

/* Waits until the worker has begun so many tasks. */
FLEET_DEVICE void fleeti_producer_await_begun(fleet_producer *p, uint32_t tasks)
{
    uint32_t tries = 0;
    fleeti_producer_uniform(p);
    /* loop 7 */
    while (fleeti_any((int32_t)(fleeti_lds_acquire(p->ring.words, FLEETI_PIPELINE_BEGUN) - tasks) <
                      0)) {
        fleeti_copies_progress(&p->ring, &p->copies);
        if (!fleeti_producer_back_off(p, &tries)) {
            p->over = 1;
            break;
        }
    }
}
FLEET_DEVICE uint32_t fleet_producer_await_task(fleet_producer *p)
{
    fleeti_producer_await_begun(p, p->task + 1);
    /* What the task's events have published is there for the copies that follow, too. Pair: the release in
       fleeti_pipeline_begun (edge 21). */
    fleeti_copies_order();
    return !p->over;
}

FLEET_DEVICE uint32_t fleet_producer_await_previous(fleet_producer *p)
{
    fleeti_producer_await_begun(p, p->task);
    /* The same for the events of the task before. Pair: the release in fleeti_pipeline_begun (edge 21). */
    fleeti_copies_order();
    return !p->over;
}
FLEET_DEVICE uint32_t fleet_producer_await_step(fleet_producer *p)
{
    uint32_t tries = 0;
    fleeti_producer_uniform(p);
    if (!p->step) return fleet_producer_await_task(p);
    while (!p->step_known && !p->over) { /* loop 8 */
        if (!fleeti_any((int32_t)(fleeti_poll_device(p->step) - p->step_want) < 0)) {
            /* Acquires what all tasks of the previous step published. Pair: the release in fleeti_notify_all at
               their ends (edge 9). */
            fleeti_invalidate_device();
            fleeti_copies_order();
            p->step_known = 1;
        } else {
            fleeti_copies_progress(&p->ring, &p->copies);
            p->over = !fleeti_producer_back_off(p, &tries);
        }
    }
    return !p->over;
}

/* Before the producer ends; not FLEET_OK: copies did not land in time. */
FLEET_DEVICE fleet_status fleeti_producer_end(fleet_producer *p)
{
    p->status = FLEET_OK;
    for (uint32_t i = 0; i < p->ring.stages; i++) {
        const uint32_t next = i < p->stage ? p->use + 1 : p->use;
        fleeti_producer_await_copy(p, i, next - 1);
    }
    return p->status;
}

/* ---- events by hand ---- */

#define FLEETI_EVENT_LINE (FLEET_CACHE_LINE_BYTES / 4u) /* words */

/* Each counter has a cache line of its own: the element's, then one per chiplet. */
#define FLEETI_EVENT_LINES(events) (1u + (events).chiplets)
static inline __attribute__((unused)) size_t fleeti_events_bytes(const fleet_events *events,
                                                                 size_t elements)
{
    return elements * FLEETI_EVENT_LINES(*events) * FLEET_CACHE_LINE_BYTES;
}
FLEET_DEVICE fleet_event fleeti_event_ref(const fleet_events *events, uint32_t element)
{
    fleet_event e;
    e.words = events->words;
    e.counter = element * FLEETI_EVENT_LINES(*events) * FLEETI_EVENT_LINE;
    e.chiplets = events->chiplets;
    e.target = events->target;
    e.share = events->share;
    e.watch = events->watch;
    return e;
}

#define FLEETI_EVENT_TENSOR(name, fields, elements, params, index)                                 \
    typedef struct name {                                                                          \
        fleet_events events;                                                                       \
        uint32_t fields;                                                                           \
    } name;                                                                                        \
    static inline __attribute__((unused)) size_t name##_bytes(const name *t)                       \
    {                                                                                              \
        return fleeti_events_bytes(&t->events, (size_t)(elements));                                \
    }                                                                                              \
    FLEET_DEVICE fleet_event name##_at params                                                      \
    {                                                                                              \
        return fleeti_event_ref(&t->events, index);                                                \
    }
#define FLEETI_COMMA ,

/* The mask changes nothing, but it tells the compiler the scope's bit, so that it drops the other branch. */
FLEET_DEVICE uint32_t fleeti_event_word(fleet_event e, fleet_scope scope)
{
    return (e.counter & ~FLEETI_SYSTEM) | (scope == FLEET_SCOPE_SYSTEM ? FLEETI_SYSTEM : 0);
}
FLEET_DEVICE fleeti_notify_result fleeti_event_notify(uint32_t group, fleet_event e, uint32_t epoch,
                                                      fleet_scope scope)
{
    const fleeti_thread self = fleeti_thread_now();
    fleeti_counters c;
    fleeti_notify r;
    fleeti_trigger trigger;
    fleeti_previous_epoch before;
    c.device = e.words;
    c.system = &e.words;
    r.counter = fleeti_event_word(e, scope);
    r.sub = 0, r.share = 0, r.weight = 1;
    if (scope <= FLEET_SCOPE_CHIPLET)
        r.sub = FLEETI_LOCAL;
    else if (fleet_chiplet_id() <
             e.chiplets) { /* on other chiplets each group releases and arrives for itself */
        r.sub = (e.counter + (1 + fleet_chiplet_id()) * FLEETI_EVENT_LINE) &
                ~FLEETI_LOCAL; /* masked as in fleeti_event_word */
        r.share = e.share;
        r.weight = e.share;
    }
    /* Asks for the old value even if no caller needs it: a caller that waits at once then polls only after its own
       arrival is through, which leaves the counter to the others. */
    __builtin_memset(&trigger, 0, sizeof trigger);
    before.watch = &e.watch;
    before.value = before.want = (epoch - 1) * e.target;
    /* An element with one arrival per epoch cannot confuse two epochs. The load is in flight during the drain. */
    if (e.target != 1 && fleeti_is_leader(self, group))
        before.value = scope == FLEET_SCOPE_SYSTEM ? fleeti_poll_system(e.words + e.counter)
                                                   : fleeti_spin_load_device(e.words + e.counter);
    return fleeti_notify_all(self, group, c, r, NULL, 1, epoch, &trigger, e.target, 0, &before, 0,
                             0, 0);
}
FLEET_DEVICE fleet_status fleeti_event_wait(uint32_t group, fleet_event e, uint32_t epoch,
                                            fleet_scope scope)
{
    fleeti_counters c;
    fleeti_wait r;
    fleeti_wait_diagnostics diagnostics;
    c.device = e.words;
    c.system = &e.words;
    r.counter = fleeti_event_word(e, scope);
    r.count = 1, r.stride = 0, r.target = e.target;
    if (group == FLEET_BLOCK) fleeti_block_any_rearm();
    return fleeti_wait_all(fleeti_thread_now(), group, c, r, NULL, 1, epoch, scope, &e.watch,
                           &diagnostics);
}
FLEET_DEVICE uint32_t fleeti_event_test(uint32_t group, fleet_event e, uint32_t epoch,
                                        fleet_scope scope)
{
    uint32_t done = 0;
    if (group == FLEET_BLOCK) fleeti_block_any_rearm();
    if (group == FLEET_WAVE || fleet_wave_id() == 0) {
        const uint32_t *at = e.words + e.counter;
        uint32_t value =
            scope == FLEET_SCOPE_SYSTEM ? fleeti_poll_system(at) : fleeti_poll_device(at);
        done = fleeti_first((int32_t)(value - epoch * e.target) >= 0);
        /* As in a wait: what the arrivals published may be read now. Pair: the release in fleeti_arrive (edge 1). */
        if (done) fleeti_invalidate(scope);
        fleet_wave_barrier();
    }
    return group == FLEET_BLOCK ? fleeti_block_any(fleeti_thread_now(), done) : done;
}
FLEET_DEVICE uint32_t fleeti_event_trigger(uint32_t group, fleet_event e, uint32_t epoch,
                                           fleet_scope scope)
{
    uint32_t completed = fleeti_event_notify(group, e, epoch, scope).completed;
    return group == FLEET_BLOCK ? fleeti_broadcast(fleeti_thread_now(), completed, 1)
                                : fleeti_first(completed);
}

#define FLEETI_BY_HAND(name, scope)                                                                \
    FLEET_DEVICE int32_t fleet_notify_##name(uint32_t group, fleet_event e, uint32_t epoch)        \
    {                                                                                              \
        const fleeti_notify_result result = fleeti_event_notify(group, e, epoch, scope);           \
        return result.status ? -(int32_t)result.status                                             \
                             : (int32_t)(result.flags & FLEETI_RELEASED);                          \
    }                                                                                              \
    FLEET_DEVICE fleet_status fleet_wait_##name(uint32_t group, fleet_event e, uint32_t epoch)     \
    {                                                                                              \
        return fleeti_event_wait(group, e, epoch, scope);                                          \
    }                                                                                              \
    FLEET_DEVICE uint32_t fleet_test_##name(uint32_t group, fleet_event e, uint32_t epoch)         \
    {                                                                                              \
        return fleeti_event_test(group, e, epoch, scope);                                          \
    }                                                                                              \
    FLEET_DEVICE uint32_t fleet_trigger_##name(uint32_t group, fleet_event e, uint32_t epoch)      \
    {                                                                                              \
        return fleeti_event_trigger(group, e, epoch, scope) != 0;                                  \
    }
FLEETI_BY_HAND(block, FLEET_SCOPE_BLOCK)
FLEETI_BY_HAND(chiplet, FLEET_SCOPE_CHIPLET)
FLEETI_BY_HAND(device, FLEET_SCOPE_DEVICE)
FLEETI_BY_HAND(system, FLEET_SCOPE_SYSTEM)

#endif /* FLEET_DEVICE_H */

/* ==== >>implementation: GPU runtimes, CPU engines ==== */

#if defined(FLEET_IMPLEMENTATION) && !defined(FLEETI_DEVICE_IMPLEMENTED)
#define FLEETI_DEVICE_IMPLEMENTED

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* Types of the driver, for green contexts; its functions come through the runtime. */
#if defined(FLEET_CUDA) && CUDART_VERSION >= 12050
#include <cuda.h>
#endif

FLEET_C_BEGIN

fleet_kernel_desc fleet_kernel_desc_default(void)
{
    fleet_kernel_desc d;
    memset(&d, 0, sizeof d);
    d.blocks = 1;
    d.threads = 256;
    return d;
}

/* A wait with a limit counts so much of the time between two looks, at most: the process may have been stopped. */
#define FLEETI_LONGEST_LOOK_NS 40000000u

/* ---- the machine ---- */

#include <sched.h>
#include <sys/resource.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#include <unistd.h>

#if defined(__linux__) && !defined(__cplusplus)
extern long syscall(long number, ...); /* in strict C11 the headers do not declare it */
#endif

/* Processors that the calling thread may run on. */
static uint32_t fleeti_affinity(void)
{
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
#if defined(__linux__) && defined(SYS_sched_getaffinity)
    unsigned long mask[1024]; /* the kernel asks for as many bits as it has processors */
    const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask);
    uint32_t n = 0;
    for (long i = 0; i < bytes / (long)sizeof *mask; i++)
        n += (uint32_t)__builtin_popcountl(mask[i]);
    if (n) return n;
#endif
    return online > 0 ? (uint32_t)online : 1;
}

/* The numbers that follow `key` at the beginning of a line of a file, in n; how many there are, at most 2. */
static uint32_t fleeti_numbers_in(const char *folder, const char *name, const char *key,
                                  uint64_t n[2])
{
    char path[1024], line[256];
    uint32_t found = 0;
    FILE *file;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return 0;
    file = fopen(path, "r");
    while (file && !found && fgets(line, sizeof line, file)) {
        const char *at = line + strlen(key);
        if (strncmp(line, key, strlen(key))) continue;
        for (; found < 2; found++) { /* "max" and "-1" are none */
            char *end;
            at += strspn(at, " \t");
            if (*at < '0' || *at > '9') break;
            n[found] = strtoull(at, &end, 10);
            at = end;
        }
        if (!found) break;
    }
    if (file) fclose(file);
    return found;
}

/* Lowers m to what a cgroup allows. v1 or v2: by the names of the files. */
static void fleeti_cgroup(const char *folder, fleet_machine *m)
{
    uint64_t n[2] = {0, 0}, period[2], limit = UINT64_MAX, used = 0, cached[2] = {0, 0};
    if (fleeti_numbers_in(folder, "cpu.max", "", n) < 2) { /* v1 has a file for each */
        const uint32_t is_limited = fleeti_numbers_in(folder, "cpu.cfs_quota_us", "", n) &&
                                    fleeti_numbers_in(folder, "cpu.cfs_period_us", "", period);
        n[1] = is_limited ? period[0] : 0;
    }
    if (n[1]) { /* a part of a processor would end in the middle of each period: all wait then */
        const uint64_t whole = n[0] > n[1] ? n[0] / n[1] : 1;
        if (whole < m->workers) m->workers = (uint32_t)whole;
    }
    if (fleeti_numbers_in(folder, "memory.max", "", n) ||
        fleeti_numbers_in(folder, "memory.limit_in_bytes", "", n))
        limit = n[0];
    if (limit >= UINT64_MAX / 4) return; /* none */
    if (fleeti_numbers_in(folder, "memory.current", "", n) ||
        fleeti_numbers_in(folder, "memory.usage_in_bytes", "", n))
        used = n[0];
    for (uint32_t i = 0; i < 2; i++) { /* of files: the system would release it */
        static const char *const keys[2][2] = {{"total_inactive_file ", "inactive_file "},
                                               {"total_active_file ", "active_file "}};
        if (fleeti_numbers_in(folder, "memory.stat", keys[i][0], n) ||
            fleeti_numbers_in(folder, "memory.stat", keys[i][1], n))
            cached[i] = n[0];
    }
    used -= cached[0] + cached[1] < used ? cached[0] + cached[1] : used;
    limit = limit > used ? limit - used : 0;
    if (limit < m->memory_bytes) m->memory_bytes = limit;
}
/* The same for a cgroup and its ancestors in the hierarchy of that name. In a container paths may begin above what is mounted
   there: folders that do not exist say nothing. */
static void fleeti_cgroups(const char *root, const char *hierarchy, const char *group,
                           fleet_machine *m)
{
    char folder[1024];
    const int top = snprintf(folder, sizeof folder, "%s/sys/fs/cgroup/%s", root, hierarchy);
    if (snprintf(folder, sizeof folder, "%s/sys/fs/cgroup/%s%s", root, hierarchy, group) >=
        (int)sizeof folder)
        return;
    do {
        fleeti_cgroup(folder, m);
        *strrchr(folder, '/') = 0;
    } while (strlen(folder) >= (size_t)top);
}
/* A line of /proc/self/cgroup: ID:CONTROLLERS:PATH. v2 names no controllers. */
static void fleeti_cgroup_line(const char *root, char *line, fleet_machine *m)
{
    char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
    if (!group) return;
    *group++ = 0, names++;
    group[strcspn(group, "\n")] = 0;
    if (!*names) { /* v2 alone, or beside v1 */
        fleeti_cgroups(root, ".", group, m);
        fleeti_cgroups(root, "unified", group, m);
        return;
    }
    fleeti_cgroups(root, names, group, m);
    while (*names) { /* "cpuacct,cpu" may be mounted as "cpu,cpuacct", with a link for each */
        char *end = names + strcspn(names, ",");
        const uint32_t more = *end != 0;
        *end = 0;
        fleeti_cgroups(root, names, group, m);
        names = end + more;
    }
}

/* root: of the files in which the system describes itself. */
static fleet_machine fleeti_machine_under(const char *root)
{
    fleet_machine m;
    char path[512], line[1024];
    uint64_t n[2];
    struct rlimit space;
    FILE *file;
    m.processors = m.workers = fleeti_affinity();
    m.memory_bytes = UINT64_MAX;
    if (snprintf(path, sizeof path, "%s/proc", root) >= (int)sizeof path) return m;
    if (fleeti_numbers_in(path, "meminfo", "MemAvailable:", n)) m.memory_bytes = n[0] * 1024;
    if (!getrlimit(RLIMIT_AS, &space) && space.rlim_cur != RLIM_INFINITY) {
        uint64_t left = space.rlim_cur;
        if (fleeti_numbers_in(path, "self/status", "VmSize:", n))
            left -= n[0] * 1024 < left ? n[0] * 1024 : left;
        if (left < m.memory_bytes) m.memory_bytes = left;
    }
    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= (int)sizeof path) return m;
    file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) fleeti_cgroup_line(root, line, &m);
    if (file) fclose(file);
    return m;
}
fleet_machine fleet_host_machine(void)
{
    return fleeti_machine_under("");
}

/* ---- GPU runtimes ---- */

/* The room of a stream for workgroups of a kernel. */
typedef struct fleeti_room {
    uint32_t per_unit;         /* at once on each CU or SM */
    uint32_t units, all_units; /* that the stream may use; of the device */
    uint32_t cooperative;      /* 1: the launch can be a cooperative one */
} fleeti_room;

/* Either the runtime of a GPU, or the engines that run kernels on the CPU. */
#if !defined(FLEET_HOST)

static fleet_status fleeti_rt(FLEETI_RT_ERROR error)
{
    if (error == FLEETI_RT_OK) return FLEET_OK;
    (void)FLEETI_RT(
        GetLastError)(); /* the caller has it: a later, innocent call must not return it again */
    return FLEET_ERROR_DEVICE;
}

fleet_status fleet_device_alloc(void **memory, size_t bytes)
{
    if (!memory) return FLEET_ERROR_NULL;
    *memory = NULL;
    return fleeti_rt(FLEETI_RT(Malloc)(memory, bytes ? bytes : 1)) ? FLEET_ERROR_MEMORY : FLEET_OK;
}
void fleet_device_free(void *memory)
{
    if (memory) (void)FLEETI_RT(Free)(memory); /* which may wait for the device */
}

fleet_status fleet_pinned_alloc(void **memory, void **device, size_t bytes)
{
    if (memory) *memory = NULL;
    if (device) *device = NULL;
    if (!memory || !device) return FLEET_ERROR_NULL;
    if (fleeti_rt(FLEETI_RT_PINNED(memory, bytes ? bytes : 1))) return FLEET_ERROR_MEMORY;
    fleet_status status = fleeti_rt(FLEETI_RT(HostGetDevicePointer)(device, *memory, 0));
    if (status) {
        fleet_pinned_free(*memory);
        *memory = *device = NULL;
    }
    return status;
}
void fleet_pinned_free(void *memory)
{
    if (memory) (void)FLEETI_RT_PINNED_FREE(memory);
}

fleet_status fleet_to_device(void *to, const void *from, size_t bytes, fleet_stream stream)
{
    fleet_status status;
    if (bytes && (!to || !from)) return FLEET_ERROR_NULL;
    status =
        fleeti_rt(FLEETI_RT(MemcpyAsync)(to, from, bytes, FLEETI_RT(MemcpyHostToDevice), stream));
    return status ? status : fleet_stream_wait(stream);
}
fleet_status fleet_to_host(void *to, const void *from, size_t bytes, fleet_stream stream)
{
    fleet_status status;
    if (bytes && (!to || !from)) return FLEET_ERROR_NULL;
    status =
        fleeti_rt(FLEETI_RT(MemcpyAsync)(to, from, bytes, FLEETI_RT(MemcpyDeviceToHost), stream));
    return status ? status : fleet_stream_wait(stream);
}
fleet_status fleet_device_clear(void *memory, size_t bytes, fleet_stream stream)
{
    if (bytes && !memory) return FLEET_ERROR_NULL;
    return fleeti_rt(FLEETI_RT(MemsetAsync)(memory, 0, bytes, stream));
}
/* Names a field that is out of range; null: none. A GPU ignores the description. */
static __attribute__((unused)) const char *fleeti_bad_host_desc(const fleet_host_desc *d)
{
    (void)d;
    return NULL;
}
fleet_status fleet_stream_wait(fleet_stream stream)
{
    return fleeti_rt(FLEETI_RT(StreamSynchronize)(stream));
}

static __attribute__((unused)) uint32_t fleeti_capturing(fleet_stream stream)
{
    FLEETI_RT(StreamCaptureStatus) status = FLEETI_RT(StreamCaptureStatusNone);
    return FLEETI_RT_MAY_CAPTURE(stream) &&
           FLEETI_RT(StreamIsCapturing)(stream, &status) == FLEETI_RT_OK &&
           status != FLEETI_RT(StreamCaptureStatusNone);
}
/* What runtimes and drivers have or have not:
   fleeti_units_of       CUs or SMs that kernels on the stream may use, of `all`: fewer in a green
                         context, or with a CU mask
   fleeti_stream_store   stores 4 or 8 bytes in stream order, which takes the host a quarter of a
                         kernel's launch. 0: it cannot, or the stream is being captured
   fleeti_launch_early   the kernel begins while the one before it ends, where
                         fleeti_may_begin_early says so: not code for older devices, which would
                         not wait (fleeti_await_kernel) */
#if defined(FLEET_HIP)
static uint32_t fleeti_units_of(fleet_stream stream, uint32_t all)
{
    uint32_t mask[32], units = 0;
    memset(mask, 0, sizeof mask);
    if (fleeti_rt(hipExtStreamGetCUMask(stream, 32, mask))) return all;
    for (uint32_t i = 0; i < 32 * 32; i++) units += mask[i / 32] >> i % 32 & 1;
    return units && units < all ? units : all;
}
#elif CUDART_VERSION < 12050
static uint32_t fleeti_units_of(fleet_stream stream, uint32_t all)
{
    (void)stream;
    return all;
}
#else
#define FLEETI_HAS_DRIVER
/* A function of the driver; null: it is older. A program need not link the driver. */
static void *fleeti_driver(const char *name)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *function = NULL;
    return fleeti_rt(cudaGetDriverEntryPointByVersion(name, &function, 12040, cudaEnableDefault,
                                                      &found)) ||
                   found != cudaDriverEntryPointSuccess
               ? NULL
               : function;
}
static uint32_t fleeti_units_of(fleet_stream stream, uint32_t all)
{
    CUresult (*green_of)(CUstream, CUgreenCtx *) =
        (CUresult(*)(CUstream, CUgreenCtx *))fleeti_driver("cuStreamGetGreenCtx");
    CUresult (*in_green)(CUgreenCtx, CUdevResource *, CUdevResourceType) = (CUresult(*)(
        CUgreenCtx, CUdevResource *, CUdevResourceType))fleeti_driver("cuGreenCtxGetDevResource");
    CUresult (*current)(CUcontext *) = (CUresult(*)(CUcontext *))fleeti_driver("cuCtxGetCurrent");
    CUresult (*in_context)(CUcontext, CUdevResource *, CUdevResourceType) = (CUresult(*)(
        CUcontext, CUdevResource *, CUdevResourceType))fleeti_driver("cuCtxGetDevResource");
    CUdevResource found;
    CUcontext context = NULL;
    CUgreenCtx green = NULL;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    memset(&found, 0, sizeof found);
    if (stream && green_of && in_green && green_of(stream, &green) == CUDA_SUCCESS && green)
        result = in_green(green, &found, CU_DEV_RESOURCE_TYPE_SM);
    else if (current && in_context && current(&context) == CUDA_SUCCESS && context)
        result = in_context(context, &found, CU_DEV_RESOURCE_TYPE_SM);
    return result == CUDA_SUCCESS && found.sm.smCount && found.sm.smCount < all ? found.sm.smCount
                                                                                : all;
}
static __attribute__((unused)) uint32_t fleeti_stream_store(void *to, uint64_t value,
                                                            uint32_t bytes, fleet_stream stream)
{
    static void *functions[2]; /* looked up once, which takes longer */
    void **kept = &functions[bytes == 8], *function = __atomic_load_n(kept, __ATOMIC_RELAXED);
    const CUdeviceptr at = (CUdeviceptr)(uintptr_t)to;
    if (fleeti_capturing(stream)) return 0;
    if (!function) {
        function = fleeti_driver(bytes == 8 ? "cuStreamWriteValue64" : "cuStreamWriteValue32");
        __atomic_store_n(kept, function, __ATOMIC_RELAXED);
    }
    if (!function) return 0;
    return CUDA_SUCCESS ==
           (bytes == 8 ? ((CUresult(*)(CUstream, CUdeviceptr, cuuint64_t, unsigned))function)(
                             stream, at, value, 0)
                       : ((CUresult(*)(CUstream, CUdeviceptr, cuuint32_t, unsigned))function)(
                             stream, at, (cuuint32_t)value, 0));
}
static int fleeti_may_begin_early(const void *kernel)
{
    struct cudaFuncAttributes a;
    return !fleeti_rt(cudaFuncGetAttributes(&a, kernel)) && a.ptxVersion >= 90 &&
           a.binaryVersion >= 90;
}
static cudaError_t fleeti_launch_early(const void *kernel, dim3 blocks, dim3 threads, void **args,
                                       const fleet_kernel_desc *d)
{
    cudaLaunchAttribute attributes[2];
    cudaLaunchConfig_t config = cudaLaunchConfig_t();
    memset(attributes, 0, sizeof attributes);
    config.gridDim = blocks, config.blockDim = threads;
    config.dynamicSmemBytes = d->lds_bytes, config.stream = d->stream;
    config.attrs = attributes, config.numAttrs = 1 + (d->cooperative != 0);
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = 1;
    return cudaLaunchKernelExC(&config, kernel, args);
}
#endif
#if !defined(FLEETI_HAS_DRIVER)
static __attribute__((unused)) uint32_t fleeti_stream_store(void *to, uint64_t value,
                                                            uint32_t bytes, fleet_stream stream)
{
    (void)to, (void)value, (void)bytes, (void)stream;
    return 0;
}
static int fleeti_may_begin_early(const void *kernel)
{
    (void)kernel;
    return 0;
}
static FLEETI_RT_ERROR fleeti_launch_early(const void *kernel, dim3 blocks, dim3 threads,
                                           void **args, const fleet_kernel_desc *d)
{
    (void)kernel, (void)blocks, (void)threads, (void)args, (void)d;
    return FLEETI_RT_OK; /* never called */
}
#endif

fleet_status fleet_kernel_launch(fleet_kernel kernel, void **args, const fleet_kernel_desc *d)
{
    dim3 blocks, threads;
    if (!kernel.address || !args || !d) return FLEET_ERROR_NULL;
    if (!d->blocks || !d->threads) return FLEET_ERROR_ARGUMENT;
    blocks.x = d->blocks, blocks.y = 1, blocks.z = 1;
    threads.x = d->threads, threads.y = 1, threads.z = 1;
    if (d->lds_bytes && /* with static LDS it may exceed the default limit, whatever its size */
        fleeti_rt(FLEETI_RT(FuncSetAttribute)(
            kernel.address, FLEETI_RT(FuncAttributeMaxDynamicSharedMemorySize), (int)d->lds_bytes)))
        return FLEET_ERROR_LAUNCH;
    return fleeti_rt(d->early && fleeti_may_begin_early(kernel.address)
                         ? fleeti_launch_early(kernel.address, blocks, threads, args, d)
                     : d->cooperative
                         ? FLEETI_RT(LaunchCooperativeKernel)(kernel.address, blocks, threads, args,
                                                              d->lds_bytes, d->stream)
                         : FLEETI_RT(LaunchKernel)(kernel.address, blocks, threads, args,
                                                   d->lds_bytes, d->stream))
               ? FLEET_ERROR_LAUNCH
               : FLEET_OK;
}

/* What a launch asks of the device; fleet_sched.h uses these. */
/* 1: chiplets have hardware ids, so virtual ones are not possible */
static __attribute__((unused)) uint32_t fleeti_has_chiplet_ids(void)
{
    int device = 0;
    FLEETI_RT_PROPERTIES p;
    if (fleeti_rt(FLEETI_RT(GetDevice)(&device)) ||
        fleeti_rt(FLEETI_RT(GetDeviceProperties)(&p, device)))
        return 0;
    return FLEETI_RT_HAS_CHIPLET_IDS(p);
}
/* A workgroup's threads are a multiple of this. The producer is one wave. */
static __attribute__((unused)) uint32_t fleeti_launch_wave(uint32_t planned)
{
    (void)planned;
    return FLEET_PRODUCER_THREADS;
}
/* Whether the kernel's attributes say that a workgroup can run. */
static uint32_t fleeti_may_run(fleet_kernel kernel, const fleet_kernel_desc *d, int device)
{
    FLEETI_RT_ATTRIBUTES a;
    FLEETI_RT_PROPERTIES p;
    return !fleeti_rt(FLEETI_RT(FuncGetAttributes)(&a, kernel.address)) &&
           !fleeti_rt(FLEETI_RT(GetDeviceProperties)(&p, device)) &&
           d->threads <= (uint32_t)a.maxThreadsPerBlock &&
           a.sharedSizeBytes + d->lds_bytes <= (size_t)FLEETI_RT_LDS_BYTES(p);
}
/* What the stream has room for. ROCm has been seen to answer 0 for kernels that run: then one workgroup for each CU is
   taken for certain, and the residency check decides. */
static __attribute__((unused)) fleet_status
fleeti_room_of(fleet_kernel kernel, const fleet_kernel_desc *d, fleeti_room *room)
{
    int per_unit = 0, device = 0, units = 0, cooperative = 0;
    memset(room, 0, sizeof *room);
    if (d->lds_bytes && /* together with static LDS it may exceed the default limit, whatever its size */
        fleeti_rt(FLEETI_RT(FuncSetAttribute)(
            kernel.address, FLEETI_RT(FuncAttributeMaxDynamicSharedMemorySize), (int)d->lds_bytes)))
        return FLEET_ERROR_LAUNCH;
    if (fleeti_rt(FLEETI_RT(OccupancyMaxActiveBlocksPerMultiprocessor)(
            &per_unit, kernel.address, (int)d->threads, d->lds_bytes)))
        return FLEET_ERROR_LAUNCH;
    if (fleeti_rt(FLEETI_RT(GetDevice)(&device)) ||
        fleeti_rt(FLEETI_RT(DeviceGetAttribute)(&units, FLEETI_RT_UNITS, device)))
        units = 0;
    if (fleeti_rt(FLEETI_RT(DeviceGetAttribute)(&cooperative, FLEETI_RT_COOPERATIVE, device)))
        cooperative = 0;
    room->cooperative = cooperative && per_unit > 0 &&
                        (FLEETI_RT_CAPTURES_COOPERATIVE || !fleeti_capturing(d->stream));
    if (per_unit <= 0) per_unit = (int)fleeti_may_run(kernel, d, device);
    room->all_units = (uint32_t)units;
    room->units =
        fleeti_capturing(d->stream) ? (uint32_t)units : fleeti_units_of(d->stream, (uint32_t)units);
    room->per_unit = (uint32_t)per_unit;
    return FLEET_OK;
}
/* Reads device memory while a kernel runs, on a stream that waits for no other. */
static __attribute__((unused)) fleet_status fleeti_snapshot(void *to, const void *from,
                                                            size_t bytes)
{
    fleet_stream stream;
    fleet_status status =
        fleeti_rt(FLEETI_RT(StreamCreateWithFlags)(&stream, FLEETI_RT(StreamNonBlocking)));
    if (status) return status;
    status = fleet_to_host(to, from, bytes, stream);
    (void)FLEETI_RT(StreamDestroy)(stream);
    return status;
}
/* The device without its units per chiplet; *units: of all. Chiplets 0: the runtime does not tell how many. */
static __attribute__((unused)) fleet_status
fleeti_query_device(fleet_topology *t, fleet_stream stream, uint32_t *units)
{
    int device = 0, chiplets = 0;
    FLEETI_RT_PROPERTIES p;
    fleet_status status;
    if ((status = fleeti_rt(FLEETI_RT(GetDevice)(&device)))) return status;
    if ((status = fleeti_rt(FLEETI_RT(GetDeviceProperties)(&p, device)))) return status;
    *units = fleeti_units_of(stream, (uint32_t)p.multiProcessorCount);
    if (*units == 0) return FLEET_ERROR_DEVICE;
    if (!fleeti_rt(FLEETI_RT_CHIPLETS(&chiplets, device)) && chiplets > 0)
        t->chiplets = (uint32_t)chiplets;
    snprintf(t->name, sizeof t->name, "%.*s", (int)sizeof t->name - 1, p.name);
    t->wave_size = (uint32_t)p.warpSize;
    t->lds_bytes = (uint32_t)FLEETI_RT_LDS_BYTES(p);
    t->l2_bytes = (uint64_t)p.l2CacheSize;
    return FLEET_OK;
}

#else

/* ---- the CPU as a device ---- */

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FLEETI_HOOKED 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define FLEETI_HOOKED 1
#endif
#if defined(FLEET_MEMORY_MODEL) && !defined(FLEETI_HOOKED)
#error "fleet: FLEET_MEMORY_MODEL needs -fsanitize=thread, for its hooks; see OPTIONS"
#endif
#if defined(FLEETI_HOOKED) && !defined(FLEET_MEMORY_MODEL)
#define FLEETI_SANITIZED_THREADS 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define FLEETI_SANITIZED_ADDRESSES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FLEETI_SANITIZED_ADDRESSES 1
#endif
#endif
/* Functions of the engine, whose own data agents of one thread share without order. */
#if defined(FLEETI_HOOKED)
#define FLEETI_UNWATCHED __attribute__((no_sanitize("thread")))
#else
#define FLEETI_UNWATCHED
#endif
/* The C library's swapcontext makes a system call for the signal mask, which takes most of the
   time of a switch. */
#if defined(__linux__) && defined(__x86_64__) && defined(__LP64__)
#define FLEETI_OWN_SWAP 1
#else
#include <ucontext.h>
#endif

#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <time.h>

#define FLEETI_STAYS_ORDINARY 0

/* What a launch asks of the device, as on a GPU. */
static __attribute__((unused)) uint32_t fleeti_has_chiplet_ids(void)
{
    return 0;
}
static __attribute__((unused)) uint32_t fleeti_stream_store(void *to, uint64_t value,
                                                            uint32_t bytes, fleet_stream stream)
{
    (void)to, (void)value, (void)bytes, (void)stream;
    return 0;
}
/* Those of the plan's GPU: the CPU refuses what that one would refuse. */
static __attribute__((unused)) uint32_t fleeti_launch_wave(uint32_t planned)
{
    return planned;
}
static __attribute__((unused)) uint32_t fleeti_capturing(fleet_stream stream)
{
    (void)stream;
    return 0;
}
/* The most workgroups of a launch. The stack of a wave takes two of the 65530 mappings that Linux
   gives a process. */
#define FLEETI_ALL_WAVES 16384u
#define FLEETI_ALL_THREADS 262144u /* that take turns: of 256 workgroups of any size */
static uint32_t fleeti_host_waves(fleet_kernel kernel, const fleet_kernel_desc *d)
{
    if (d->host.waves) return d->host.waves;
    return kernel.traits && kernel.traits->threads && d->threads ? d->threads : 1;
}
static uint32_t fleeti_room_for(fleet_kernel kernel, const fleet_kernel_desc *d)
{
    const uint32_t waves = fleeti_host_waves(kernel, d);
    return (d->host.waves || waves == 1 ? FLEETI_ALL_WAVES : FLEETI_ALL_THREADS) / waves;
}
static __attribute__((unused)) fleet_status
fleeti_room_of(fleet_kernel kernel, const fleet_kernel_desc *d, fleeti_room *room)
{
    room->per_unit = fleeti_room_for(kernel, d);
    room->units = room->all_units = room->cooperative = 1;
    return FLEET_OK;
}
static __attribute__((unused)) fleet_status fleeti_snapshot(void *to, const void *from,
                                                            size_t bytes)
{
    for (size_t i = 0; i < bytes / 4; i++)
        ((uint32_t *)to)[i] = __atomic_load_n((const uint32_t *)from + i, __ATOMIC_RELAXED);
    return FLEET_OK;
}
static __attribute__((unused)) fleet_status
fleeti_query_device(fleet_topology *t, fleet_stream stream, uint32_t *units)
{
    /* At least five, so that a chiplet has a worker beside a scheduler, and its size is not the other one's. */
    const uint32_t here = fleet_host_machine().workers, n = here < 5 ? 5 : here;
    *t = fleet_topology_make(2, n / 2 + 1);
    t->units[1] = n - t->units[0];
    (void)stream;
    t->wave_size = 1;
    t->private_l2 = 0;
    *units = n;
    return FLEET_OK;
}

/* In strict C11 the headers do not declare it. */
#if defined(__linux__) && !defined(MADV_HUGEPAGE)
#define MADV_HUGEPAGE 14
extern int madvise(void *memory, size_t bytes, int advice);
#endif
#define FLEETI_HUGE_PAGE ((size_t)2 << 20)

/* Large blocks are in huge pages, if the system has any: their first use and their TLB misses cost less. */
static fleet_status fleeti_host_alloc(void **memory, size_t bytes)
{
    const size_t align = bytes < 2 * FLEETI_HUGE_PAGE ? 256 : FLEETI_HUGE_PAGE;
    if (!memory) return FLEET_ERROR_NULL;
    *memory = NULL;
    if (bytes > SIZE_MAX / 2) return FLEET_ERROR_MEMORY;
    *memory = aligned_alloc(align, (bytes + align) / align * align);
    if (!*memory) return FLEET_ERROR_MEMORY;
#if defined(__linux__)
    if (align == FLEETI_HUGE_PAGE) (void)madvise(*memory, bytes, MADV_HUGEPAGE);
#endif
    return FLEET_OK;
}
/* Null: none. */
#if defined(FLEET_MEMORY_MODEL)
static const fleet_host_instrument *const fleeti_instrument = &fleet_memory_model;
#else
static const fleet_host_instrument *const fleeti_instrument = NULL;
#endif

fleet_status fleet_device_alloc(void **memory, size_t bytes)
{
    const fleet_status status = fleeti_host_alloc(memory, bytes);
    if (!status && fleeti_instrument)
        fleeti_instrument->allocated(*memory, (bytes + 256) / 256 * 256);
    return status;
}
void fleet_device_free(void *memory)
{
    if (fleeti_instrument) fleeti_instrument->freed(memory);
    free(memory);
}
fleet_status fleet_pinned_alloc(void **memory, void **device, size_t bytes)
{
    if (memory) *memory = NULL;
    if (device) *device = NULL;
    fleet_status status = device ? fleeti_host_alloc(memory, bytes) : FLEET_ERROR_NULL;
    if (!status) *device = *memory;
    return status;
}
void fleet_pinned_free(void *memory)
{
    free(memory);
}
fleet_status fleet_to_device(void *to, const void *from, size_t bytes, fleet_stream stream)
{
    (void)stream;
    if (bytes && (!to || !from)) return FLEET_ERROR_NULL;
    if (bytes) memcpy(to, from, bytes);
    return FLEET_OK;
}
fleet_status fleet_to_host(void *to, const void *from, size_t bytes, fleet_stream stream)
{
    return fleet_to_device(to, from, bytes, stream);
}
fleet_status fleet_device_clear(void *memory, size_t bytes, fleet_stream stream)
{
    (void)stream;
    if (bytes && !memory) return FLEET_ERROR_NULL;
    if (bytes) memset(memory, 0, bytes);
    return FLEET_OK;
}
fleet_status fleet_stream_wait(fleet_stream stream)
{
    (void)stream;
    return FLEET_OK;
}

#define FLEETI_STATIC_LDS 65536u
#define FLEETI_STACK_BYTES 262144u
#define FLEETI_STACK_MIN_BYTES 16384u /* for the kit's own frames */
#define FLEETI_MAX_WAVES 64u

static const char *fleeti_bad_host_desc(const fleet_host_desc *d)
{
    if (d->engine != FLEET_ENGINE_THREADS && d->engine != FLEET_ENGINE_DETERMINISTIC)
        return "engine is no fleet_host_engine";
    if (d->waves > FLEETI_MAX_WAVES) return "waves is over 64, with the producer's";
    if (d->memory_model && d->engine != FLEET_ENGINE_DETERMINISTIC)
        return "memory_model needs the deterministic engine";
    if (d->memory_model && !fleeti_instrument) return "memory_model needs FLEET_MEMORY_MODEL";
    if (d->stack_bytes && d->stack_bytes < FLEETI_STACK_MIN_BYTES)
        return "stack_bytes is under 16384";
    return NULL;
}

typedef struct fleeti_engine fleeti_engine;
typedef struct fleeti_carrier fleeti_carrier;
typedef struct fleeti_agent fleeti_agent;

typedef struct fleeti_barrier_state { /* a barrier of the first waves of a workgroup */
    uint32_t arrived, in_tiles;       /* in this round; those of them that run a tile */
    uint32_t generation;              /* rounds that are over */
    fleeti_agent *waiting;            /* of waves that take turns: a list */
} fleeti_barrier_state;

typedef struct fleeti_workgroup {
    pthread_mutex_t lock;
    pthread_cond_t all_here;
    fleeti_barrier_state meeting[2]; /* of all its waves, and of those that run tasks */
    uint32_t chiplet;
    uint32_t words[FLEETI_LDS_WORDS]; /* the kit's own LDS */
    char *lds;                        /* FLEETI_STATIC_LDS bytes for FLEET_LDS */
    char *shares;                     /* of its waves; null: they share `dynamic` */
    char *dynamic;                    /* null: none. A zone of FLEETI_LDS_ZONE bytes follows it */
    uint32_t damaged;                 /* 1: a tile has written past its end, and its task says so */
    fleeti_agent *agents;
} fleeti_workgroup;

/* Where a coroutine, or the thread that runs coroutines, goes on. */
typedef struct fleeti_fiber {
#if defined(FLEETI_OWN_SWAP)
    void *stack_pointer, *frame, *resume;
#else
    ucontext_t library;
#endif
    /* for sanitizers */
    const void *stack;
    size_t stack_bytes;
    void *fake_stack, *fiber;
} fleeti_fiber;

/* A wave: what the engines run. */
#define FLEETI_HOST_POOLS 2u /* plans of a launch */
struct fleeti_agent {
    fleeti_engine *engine;
    fleeti_carrier *carrier;
    fleeti_workgroup *group;
    uint32_t block, wave;
    size_t lds_used;
    fleeti_fiber context;
    const void *parked_at;      /* the word that it polls; null: any change */
    fleeti_agent *next_waiting; /* at the same barrier */
    uint32_t position;          /* in carrier->runnable or carrier->parked */
    uint32_t woken_to_look;     /* no other agent can run: it should check its watch */
    uint32_t idle_parks;        /* parks since the deadlock was detected */
    /* Only it writes these. */
    uint64_t rmws, releases, polls;
    uint64_t progress; /* what it has published */
    uint32_t pool;     /* fleeti_host_set_pool */
    fleeti_barrier_state
        *barrier; /* it waits there while that has this generation; null: nowhere */
    uint32_t generation, ended;
    uint64_t seen_polls, seen_progress; /* by the last look (fleeti_look) */
    /* The tile that it runs; tile is null: none. */
    jmp_buf *tile;     /* goes to its end */
    uint64_t limit_ns; /* of a wait at its barriers; 0: none */
    uint32_t line;     /* of its last barrier */
    uint32_t thrown;   /* 1: it must leave the tile, since its barrier is divergent */
    fleeti_trouble trouble;
};

/* A thread of the system, and the agents that it carries. Several of them are coroutines. */
struct fleeti_carrier {
    fleeti_engine *engine;
    fleeti_agent *agents;
    uint32_t n_agents, n_ended;
    pthread_t thread;
    fleeti_fiber home;
    char *stacks; /* of its coroutines */
    size_t stacks_bytes;
    uint64_t rng;
    fleeti_agent **runnable, **parked;
    uint32_t n_runnable, n_parked;
    /* deterministic: all parked agents were woken to check their watches, and nothing has
       changed since. */
    uint32_t looked;
    uint32_t deadlock;     /* detected */
    uint32_t tries, turns; /* threads engine: rests in a row; steps since the last switch */
    uint64_t since;        /* threads engine: when it began to rest, by fleeti_host_stalled */
};

struct fleeti_engine {
    const fleet_kernel_desc *desc;
    fleeti_kernel_address kernel;
    void **args;
    uint32_t waves, n_agents, n_carriers;
    uint32_t coroutines; /* 1: agents of a carrier take turns; 0: each has one of its own */
    fleeti_agent *agents;
    fleeti_carrier *carriers;
    fleeti_workgroup *groups;
    fleeti_agent **lists;
    char *lds; /* of all workgroups: the dynamic ones */
    size_t share_bytes, lds_mapped;
    fleet_host_stats stats;
    /* threads engine */
    pthread_mutex_t start;               /* held until all threads exist */
    uint32_t spins;                      /* failed polls of a wave before it yields its processor */
    uint32_t longest_us;                 /* it sleeps so long at once, at most */
    uint32_t asked;                      /* 1: for the quota of processors */
    pthread_mutex_t look;                /* of these: */
    uint64_t looked_at, ran;             /* ns: last look, time of processors then */
    uint64_t stalled[FLEETI_HOST_POOLS]; /* ns without progress */
    uint32_t cancelled; /* not all threads could be created: none of them runs the kernel */
    /* deterministic engine */
    uint64_t clock;
    uint64_t progressed[FLEETI_HOST_POOLS];  /* the clock at the last progress */
    const fleet_host_instrument *instrument; /* null: none */
};

/* Takes the place of the registers in which hardware keeps a wave's identity. */
static __thread fleeti_agent *fleeti_self_;
FLEETI_UNWATCHED static fleeti_agent *fleeti_self(void)
{
    return fleeti_self_;
}

/* In strict C11 the headers do not declare its name. */
#if defined(MAP_ANONYMOUS)
#define FLEETI_MAP_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS)
#elif defined(__linux__)
#define FLEETI_MAP_FLAGS (MAP_PRIVATE | 0x20)
#endif

/* Waves of a GPU's workgroup, of the most lanes that there are. */
static uint32_t fleeti_lds_shares(const fleeti_engine *e)
{
    return (e->waves + 63) / 64;
}
static uint32_t fleeti_deterministic(const fleeti_engine *e)
{
    return e->desc->host.engine == FLEET_ENGINE_DETERMINISTIC;
}

uint32_t fleeti_host_thread(void)
{
    return fleeti_self()->wave;
}
uint32_t fleeti_host_threads(void)
{
    return fleeti_self()->engine->waves;
}
uint32_t fleeti_host_block(void)
{
    return fleeti_self()->block;
}
uint32_t fleeti_host_blocks(void)
{
    return fleeti_self()->engine->desc->blocks;
}
uint32_t fleeti_host_chiplet(void)
{
    return __atomic_load_n(&fleeti_self()->group->chiplet, __ATOMIC_RELAXED);
}
void fleeti_host_set_chiplet(uint32_t chiplet)
{
    fleeti_agent *a = fleeti_self();
    __atomic_store_n(&a->group->chiplet, chiplet, __ATOMIC_RELAXED);
    if (a->engine->instrument) a->engine->instrument->placed(a->block, chiplet);
}
void *fleeti_host_lds(size_t bytes)
{
    fleeti_agent *a = fleeti_self();
    void *at = a->group->lds + a->lds_used;
    a->lds_used += (bytes + 63) / 64 * 64;
    if (a->lds_used > FLEETI_STATIC_LDS) abort(); /* a GPU compiler refuses such a kernel */
    return at;
}
size_t fleeti_host_lds_mark(void)
{
    return fleeti_self()->lds_used;
}
void fleeti_host_lds_reset(size_t mark)
{
    fleeti_self()->lds_used = mark;
}
void *fleeti_host_dynamic_lds(void)
{
    return fleeti_self()->group->dynamic;
}
/* A wave that is one of the declared threads gets what 64 of them share on a GPU: a launch asks for
   as much LDS as that one's waves need. */
void fleeti_host_wave_lds(void **lds, uint32_t *bytes, uint32_t all)
{
    const fleeti_agent *a = fleeti_self();
    if (!a->group->shares) return;
    *bytes = all / fleeti_lds_shares(a->engine) & ~15u;
    *lds = a->group->shares + a->wave * a->engine->share_bytes;
}

/* Counters that one agent writes, and others may read. */
static void fleeti_count(uint64_t *counter, uint64_t n)
{
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
}
FLEETI_UNWATCHED void fleeti_host_progress(uint32_t rmws)
{
    fleeti_agent *a = fleeti_self();
    fleeti_count(&a->rmws, rmws);
    fleeti_count(&a->progress, 1);
    if (fleeti_deterministic(a->engine)) a->engine->progressed[a->pool] = a->engine->clock;
}

/* ---- coroutines: one goes on where it stopped ---- */

#if defined(FLEETI_SANITIZED_ADDRESSES)
#include <sanitizer/asan_interface.h>
#endif
#if defined(FLEETI_SANITIZED_THREADS)
#include <sanitizer/tsan_interface.h>
#endif

/* For thread sanitizers, which know no barrier of coroutines: what an agent did before it
   publishes an object comes before what another one does that has observed the object. The memory
   model is told as well. */
static void fleeti_publish(const fleeti_engine *e, const void *object)
{
    if (e->instrument) e->instrument->publish(object);
#if defined(FLEETI_SANITIZED_THREADS)
    __tsan_release((void *)(uintptr_t)object);
#endif
}
static void fleeti_observe(const fleeti_engine *e, const void *object)
{
    if (e->instrument) e->instrument->observe(object);
#if defined(FLEETI_SANITIZED_THREADS)
    __tsan_acquire((void *)(uintptr_t)object);
#endif
}

/* By a context that has just gone on. began: it is a coroutine that has not run before. home:
   that of its carrier. */
static void fleeti_fiber_goes_on(fleeti_fiber *c, uint32_t began, fleeti_fiber *home)
{
#if defined(FLEETI_SANITIZED_ADDRESSES)
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(began ? NULL : c->fake_stack, &stack, &bytes);
    /* The first coroutine comes from there. */
    if (began && !home->stack) home->stack = stack, home->stack_bytes = bytes;
#else
    (void)c, (void)began, (void)home;
#endif
}

/* ends: `from` never goes on. No order comes with it: what coroutines may rely on are barriers
   and atomics. */
FLEETI_UNWATCHED __attribute__((noinline)) static void
fleeti_swap(fleeti_fiber *from, fleeti_fiber *to, uint32_t ends, fleeti_fiber *home)
{
#if defined(FLEETI_SANITIZED_ADDRESSES)
    __sanitizer_start_switch_fiber(ends ? NULL : &from->fake_stack, to->stack, to->stack_bytes);
#else
    (void)ends;
#endif
#if defined(FLEETI_SANITIZED_THREADS)
    __tsan_switch_to_fiber(to->fiber, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(FLEETI_OWN_SWAP)
    /* The function's caller expects these registers unchanged, and no others. */
    __asm__ volatile("leaq 1f(%%rip), %%rax\n\t"
                     "movq %%rsp, 0(%0)\n\t"
                     "movq %%rbp, 8(%0)\n\t"
                     "movq %%rax, 16(%0)\n\t"
                     "movq 0(%1), %%rsp\n\t"
                     "movq 8(%1), %%rbp\n\t"
                     "jmpq *16(%1)\n"
                     "1:"
                     : "+D"(from), "+S"(to)
                     :
                     : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
                       "r15", "cc", "memory");
#else
    swapcontext(&from->library, &to->library);
#endif
    fleeti_fiber_goes_on(from, 0, home);
}

/* Makes a context that begins with `entry`, which does not return. */
static fleet_status fleeti_fiber_make(fleeti_fiber *c, char *stack, size_t bytes,
                                      void (*entry)(void))
{
    c->stack = stack;
    c->stack_bytes = bytes;
#if defined(FLEETI_OWN_SWAP)
    void **top = (void **)(void *)(stack + bytes) - 1; /* aligned as after a call */
    *top = NULL;
    c->stack_pointer = top, c->frame = NULL;
    memcpy(&c->resume, &entry, sizeof c->resume);
    return FLEET_OK;
#else
    if (getcontext(&c->library)) return FLEET_ERROR_MEMORY;
    c->library.uc_stack.ss_sp = stack;
    c->library.uc_stack.ss_size = bytes;
    c->library.uc_link = NULL;
    makecontext(&c->library, entry, 0);
    return FLEET_OK;
#endif
}

/* ---- agents that take turns ---- */

FLEETI_UNWATCHED static uint64_t fleeti_random(uint64_t *rng)
{
    uint64_t z = (*rng += 0x9e3779b97f4a7c15ull); /* splitmix64, Steele, Lea, Flood 2014 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

FLEETI_UNWATCHED static void fleeti_list_add(fleeti_agent **list, uint32_t *n, fleeti_agent *a)
{
    a->position = *n;
    list[(*n)++] = a;
}
FLEETI_UNWATCHED static void fleeti_list_remove(fleeti_agent **list, uint32_t *n, fleeti_agent *a)
{
    list[a->position] = list[--*n];
    list[a->position]->position = a->position;
}
FLEETI_UNWATCHED static void fleeti_runs_again(fleeti_carrier *c, fleeti_agent *a)
{
    fleeti_list_add(c->runnable, &c->n_runnable, a);
}
FLEETI_UNWATCHED static void fleeti_wake(fleeti_carrier *c, fleeti_agent *a)
{
    fleeti_list_remove(c->parked, &c->n_parked, a);
    fleeti_runs_again(c, a);
}
FLEETI_UNWATCHED static void fleeti_wake_to_look(fleeti_carrier *c)
{
    while (c->n_parked) {
        c->parked[c->n_parked - 1]->woken_to_look = 1;
        fleeti_wake(c, c->parked[c->n_parked - 1]);
    }
}

static void fleeti_rest(fleeti_engine *e, uint32_t *tries);
static void fleeti_break_barriers(fleeti_carrier *c, uint32_t late);

/* Chooses the agent that runs next; null: none can, ever. In the deterministic engine, when none
   can run, each parked agent gets one chance to check its watch, since an abort may have come from
   outside. If that changes nothing it is a deadlock, and every wait returns it. In the threads
   engine they look again after a rest. Agents at a barrier are not parked: the last one to arrive
   lets them go on. */
FLEETI_UNWATCHED static fleeti_agent *fleeti_next_agent(fleeti_carrier *c)
{
    fleeti_engine *e = c->engine;
    if (!c->n_runnable) {
        if (fleeti_deterministic(e)) {
            if (c->looked) c->deadlock = 1;
            c->looked = 1;
        } else if (c->n_parked) {
            if (!c->tries++) c->since = 0;
            fleeti_rest(e, &c->tries);
            fleeti_break_barriers(c, 1);
        }
        fleeti_wake_to_look(c);
        if (!c->n_runnable) fleeti_break_barriers(c, 0);
    }
    if (!c->n_runnable) {
        c->deadlock |= c->n_ended < c->n_agents;
        return NULL;
    }
    fleeti_agent *next = c->runnable[fleeti_random(&c->rng) % c->n_runnable];
    if (e->instrument) e->instrument->runs(next->block, next->wave);
    if (fleeti_deterministic(e))
        e->stats.fingerprint =
            (e->stats.fingerprint ^ (uint64_t)(next - e->agents)) * 0x100000001b3ull;
    return next;
}

FLEETI_UNWATCHED static void fleeti_switch(fleeti_agent *from)
{
    fleeti_carrier *c = from->carrier;
    fleeti_agent *next = fleeti_next_agent(c);
    c->turns = 0;
    c->engine->clock += fleeti_deterministic(c->engine) ? 100 : 0;
    if (next == from) return;
    fleeti_self_ = next;
    fleeti_swap(&from->context, next ? &next->context : &c->home, 0, &c->home);
}

/* A wave of the threads engine that takes turns keeps its turn for a while, unless it waits. It
   may not keep it for ever: it may poll a word of its own. */
#define FLEETI_TURNS 256u
FLEETI_UNWATCHED void fleeti_host_yield(void)
{
    fleeti_agent *a = fleeti_self();
    if (fleeti_deterministic(a->engine)) {
        fleeti_switch(a);
    } else if (a->engine->coroutines && ++a->carrier->turns == FLEETI_TURNS) {
        fleeti_wake_to_look(a->carrier);
        fleeti_switch(a);
    }
}

FLEETI_UNWATCHED void fleeti_host_wake(const void *at)
{
    fleeti_carrier *c = fleeti_self()->carrier;
    if (!c->engine->coroutines) return;
    c->looked = 0;
    for (uint32_t i = c->n_parked; i-- > 0;)
        if (!c->parked[i]->parked_at || c->parked[i]->parked_at == at) {
            c->tries = 0;
            fleeti_wake(c, c->parked[i]);
        }
}

#define FLEETI_WATCH_INTERVAL 4096u /* a multiple of every interval in fleeti_check_watch */

/* Tells the core that a loop polls. */
#if defined(__x86_64__) || defined(__i386__)
#define FLEETI_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define FLEETI_RELAX() __asm__ volatile("yield")
#else
#define FLEETI_RELAX() ((void)0)
#endif
/* Some 3 ms, the slice that another process gets when a processor is yielded. */
#define FLEETI_SPINS 65536u
#define FLEETI_YIELDS 256u /* after the spins; each is cheaper than to sleep and be woken */
#define FLEETI_SLEEP_US                                                                            \
    20u /* first; after each 16 sleeps twice as long: a sixteenth of the wait at most */
#define FLEETI_LONGEST_US 250u

static void fleeti_sleep_us(uint32_t us)
{
    struct timeval pause;
    pause.tv_sec = 0, pause.tv_usec = (int)us;
    select(0, NULL, NULL, NULL, &pause);
}

/* How carriers wait where so many of them can run at once. With more of them than processors one
   that spins keeps another one from its work, and many sleepers take turns: they wake so seldom
   that together they cost a processor little. */
static void fleeti_set_patience(fleeti_engine *e, uint32_t workers)
{
    const uint32_t each = (e->n_carriers + workers - 1) / workers;
    __atomic_store_n(&e->spins, e->n_carriers <= workers ? FLEETI_SPINS : 0, __ATOMIC_RELAXED);
    __atomic_store_n(&e->longest_us, FLEETI_LONGEST_US * (each < 16 ? each : 16), __ATOMIC_RELAXED);
}

/* A carrier of the threads engine has polled in vain, *tries times. */
FLEETI_UNWATCHED static void fleeti_rest(fleeti_engine *e, uint32_t *tries)
{
    const uint32_t spins = __atomic_load_n(&e->spins, __ATOMIC_RELAXED), more = *tries - spins;
    if (*tries <= spins) {
        FLEETI_RELAX();
        return;
    }
    if (more <= FLEETI_YIELDS) {
        sched_yield();
        return;
    }
    /* A launch whose waits are short need not know. */
    if (!__atomic_exchange_n(&e->asked, 1, __ATOMIC_RELAXED))
        fleeti_set_patience(e, fleet_host_machine().workers);
    uint32_t doublings = more / 64u / 16;
    uint32_t us = FLEETI_SLEEP_US << (doublings < 8 ? doublings : 8);
    uint32_t longest = __atomic_load_n(&e->longest_us, __ATOMIC_RELAXED);
    fleeti_sleep_us(us < longest ? us : longest);
    /* Each sleep ends with a look at what ends the wait. */
    *tries = (*tries / 64u + 1) * 64u;
}

FLEETI_UNWATCHED fleet_status fleeti_host_park(const void *at, uint32_t *tries)
{
    fleeti_agent *a = fleeti_self();
    fleeti_carrier *c = a->carrier;
    fleeti_count(&a->polls, 1);
    *tries += 1;
    if (!a->engine->coroutines) {
        fleeti_rest(a->engine, tries);
        return FLEET_OK;
    }
    if (c->deadlock) {
        /* A spin loop that ignores the status: leave the coroutine where it is. */
        if (++a->idle_parks > 1000) fleeti_list_remove(c->runnable, &c->n_runnable, a);
        fleeti_switch(a);
        return FLEET_ERROR_DEADLOCK;
    }
    a->parked_at = at;
    fleeti_list_remove(c->runnable, &c->n_runnable, a);
    fleeti_list_add(c->parked, &c->n_parked, a);
    fleeti_switch(a);
    if (a->woken_to_look) {
        const uint32_t often = fleeti_deterministic(a->engine) ? FLEETI_WATCH_INTERVAL : 64u;
        a->woken_to_look = 0;
        *tries = (*tries / often + 1) * often;
    }
    return c->deadlock ? FLEET_ERROR_DEADLOCK : FLEET_OK;
}

FLEETI_UNWATCHED void fleeti_host_pause(uint32_t *tries)
{
    fleeti_agent *a = fleeti_self();
    fleeti_carrier *c = a->carrier;
    fleeti_host_progress(0); /* the host may take any time */
    if (!fleeti_deterministic(a->engine)) {
        (void)fleeti_host_park(NULL, tries);
        return;
    }
    if (c->n_runnable == 1) {
        fleeti_sleep_us(20);
        /* A word may have changed between an agent's poll and its parking, which fleeti_next_agent finds where no agent can
           run: this one always can. */
        while (c->n_parked) fleeti_wake(c, c->parked[c->n_parked - 1]);
    }
    *tries += 1;
    fleeti_switch(a);
}

FLEETI_UNWATCHED static void fleeti_coroutine_ends(fleeti_agent *a)
{
    fleeti_carrier *c = a->carrier;
    __atomic_store_n(&a->ended, 1, __ATOMIC_RELAXED);
    c->n_ended++;
    c->looked = 0;
    fleeti_list_remove(c->runnable, &c->n_runnable, a);
    fleeti_agent *next = fleeti_next_agent(c);
    fleeti_publish(c->engine, &c->home);
    fleeti_self_ = next;
    fleeti_swap(&a->context, next ? &next->context : &c->home, 1, &c->home);
}
static void fleeti_coroutine(void)
{
    fleeti_agent *a = fleeti_self();
    fleeti_fiber_goes_on(&a->context, 1, &a->carrier->home);
    a->engine->kernel(a->engine->args);
    fleeti_coroutine_ends(a);
}

/* A stack grows down. Below it lies a guard page, so that an overflow ends the program there and does not overwrite
   other memory. */
static fleet_status fleeti_make_coroutines(fleeti_carrier *c)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t asked = c->engine->desc->host.stack_bytes;
    const size_t stack = ((asked ? asked : FLEETI_STACK_BYTES) + page - 1) / page * page;
    const size_t bytes = (page + stack) * c->n_agents;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, FLEETI_MAP_FLAGS, -1, 0);
    if (memory == MAP_FAILED) return FLEET_ERROR_MEMORY;
    c->stacks = (char *)memory, c->stacks_bytes = bytes;
    for (uint32_t i = 0; i < c->n_agents; i++) {
        char *guard = c->stacks + i * (page + stack);
        /* Of too many stacks only the lowest one of each carrier can be guarded. */
        if ((i == 0 || c->engine->n_agents <= FLEETI_ALL_WAVES) && mprotect(guard, page, PROT_NONE))
            return FLEET_ERROR_MEMORY;
        fleet_status status =
            fleeti_fiber_make(&c->agents[i].context, guard + page, stack, fleeti_coroutine);
        if (status) return status;
        fleeti_runs_again(c, &c->agents[i]);
    }
    return FLEET_OK;
}
static void fleeti_end_coroutines(fleeti_carrier *c)
{
#if defined(FLEETI_SANITIZED_THREADS)
    for (uint32_t i = 0; i < c->n_agents; i++)
        if (c->agents[i].context.fiber) __tsan_destroy_fiber(c->agents[i].context.fiber);
#endif
#if defined(FLEETI_SANITIZED_ADDRESSES)
    /* The last frames have not returned. */
    if (c->stacks) __asan_unpoison_memory_region(c->stacks, c->stacks_bytes);
#endif
    if (c->stacks) munmap(c->stacks, c->stacks_bytes);
}

/* Runs the carrier's agents, on the calling thread. */
static void fleeti_carry(fleeti_carrier *c)
{
    fleeti_engine *e = c->engine;
    fleeti_agent *outside = fleeti_self();
    if (e->coroutines) {
#if defined(FLEETI_SANITIZED_THREADS)
        c->home.fiber = __tsan_get_current_fiber();
        for (uint32_t i = 0; i < c->n_agents; i++)
            c->agents[i].context.fiber = __tsan_create_fiber(0);
#endif
        fleeti_self_ = fleeti_next_agent(c);
        fleeti_swap(&c->home, &fleeti_self_->context, 0, &c->home);
        fleeti_observe(e, &c->home);
    } else {
        fleeti_self_ = c->agents;
        e->kernel(e->args);
        __atomic_store_n(&c->agents->ended, 1, __ATOMIC_RELAXED);
    }
    fleeti_self_ = outside;
}

/* ---- the threads engine: the clock of limits ---- */

/* A limit ends waits that nothing will end. Time alone does not tell: the process may have been stopped, and on a busy machine
   the wave that is waited for may not have run. So waves that wait look at all waves, now and then, and count the time since
   the last look only
     - up to FLEETI_LONGEST_LOOK_NS: beyond it the process, or this wave, has not run;
     - if no wave of the same plan has published anything, which would begin the count anew;
     - as a whole if each wave has polled since, waits at a barrier or has ended, and else the time
       that each carrier of others can have had a processor, but not less than a sixteenth: a tile
       may also sleep for ever. */
#define FLEETI_LOOK_NS 10000000u
#define FLEETI_LEAST_SHARE 16u

static uint64_t fleeti_time_ns(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
/* What all threads of the process have had of the processors. */
static uint64_t fleeti_process_ns(void)
{
    return (uint64_t)clock() * (uint64_t)(1000000000 / CLOCKS_PER_SEC);
}

/* Whether it polls in vain, or waits for waves that have not arrived yet, or has ended. */
FLEETI_UNWATCHED static uint32_t fleeti_only_waits(const fleeti_agent *a, uint64_t polls)
{
    const fleeti_barrier_state *m = __atomic_load_n(&a->barrier, __ATOMIC_RELAXED);
    return polls != a->seen_polls || __atomic_load_n(&a->ended, __ATOMIC_RELAXED) ||
           (m && __atomic_load_n(&m->generation, __ATOMIC_RELAXED) ==
                     __atomic_load_n(&a->generation, __ATOMIC_RELAXED));
}

FLEETI_UNWATCHED static void fleeti_look(fleeti_engine *e, uint64_t now)
{
    const uint64_t ran = fleeti_process_ns(), since = now - e->looked_at;
    uint64_t counts = since < FLEETI_LONGEST_LOOK_NS ? since : FLEETI_LONGEST_LOOK_NS;
    uint64_t busy = 0, progress[FLEETI_HOST_POOLS] = {0};
    for (uint32_t i = 0; i < e->n_carriers; i++) {
        fleeti_carrier *c = &e->carriers[i];
        uint32_t works = 0;
        for (uint32_t k = 0; k < c->n_agents; k++) {
            fleeti_agent *a = &c->agents[k];
            const uint64_t polls = __atomic_load_n(&a->polls, __ATOMIC_RELAXED),
                           published = __atomic_load_n(&a->progress, __ATOMIC_RELAXED);
            works |= !fleeti_only_waits(a, polls);
            progress[__atomic_load_n(&a->pool, __ATOMIC_RELAXED)] += published - a->seen_progress;
            a->seen_polls = polls, a->seen_progress = published;
        }
        busy += works;
    }
    if (busy) {
        const uint64_t each = (ran - e->ran) / busy, least = counts / FLEETI_LEAST_SHARE;
        if (each < counts) counts = each > least ? each : least;
    }
    for (uint32_t pool = 0; pool < FLEETI_HOST_POOLS; pool++)
        __atomic_store_n(&e->stalled[pool], progress[pool] ? 0 : e->stalled[pool] + counts,
                         __ATOMIC_RELAXED);
    __atomic_store_n(&e->looked_at, now, __ATOMIC_RELAXED);
    e->ran = ran;
}

FLEETI_UNWATCHED static uint64_t fleeti_stalled(fleeti_engine *e, uint32_t pool)
{
    if (fleeti_deterministic(e)) return 1 + (e->clock += 100) - e->progressed[pool];
    uint64_t now = fleeti_time_ns();
    if (now - __atomic_load_n(&e->looked_at, __ATOMIC_RELAXED) >= FLEETI_LOOK_NS &&
        !pthread_mutex_trylock(&e->look)) {
        fleeti_look(e, now);
        pthread_mutex_unlock(&e->look);
    }
    return 1 + __atomic_load_n(&e->stalled[pool], __ATOMIC_RELAXED);
}

/* ---- the threads engine ---- */

/* Sets the calling thread's time slice, and returns the one that it had; 0: leaves it, and that is what it returns where
   slices cannot be set. A wave computes for microseconds between waits. Beside other processes it would get a core only
   after their slices of some 3 ms, at each wait; the scheduler of Linux 6.12 and later lets threads with shorter slices
   run sooner, for the same share of the cores. */
#if defined(__linux__) && defined(SYS_sched_setattr)
#define FLEETI_SLICE_NS 100000u /* the shortest that there is */
static uint64_t fleeti_set_slice(uint64_t ns)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t slice, deadline, period; /* a slice only under SCHED_OTHER, which is policy 0 */
    } a;
    memset(&a, 0, sizeof a);
    if (!ns || syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) || a.policy != SCHED_OTHER) return 0;
    uint64_t before = a.slice;
    a.size = sizeof a, a.slice = ns;
    return syscall(SYS_sched_setattr, 0, &a, 0) ? 0 : before;
}
#else
#define FLEETI_SLICE_NS 0u
static uint64_t fleeti_set_slice(uint64_t ns)
{
    (void)ns;
    return 0;
}
#endif

static void *fleeti_thread_main(void *carrier)
{
    fleeti_carrier *c = (fleeti_carrier *)carrier;
    fleeti_engine *e = c->engine;
    (void)fleeti_set_slice(FLEETI_SLICE_NS);
    pthread_mutex_lock(&e->start);
    pthread_mutex_unlock(&e->start);
    if (!e->cancelled) fleeti_carry(c);
    return NULL;
}

/* The calling thread is the first carrier, so that a kernel that needs one can always run. The
   others begin when all of them exist: with fewer workgroups than it was launched with, a kernel
   could wait for ever. */
static fleet_status fleeti_run_threads(fleeti_engine *e)
{
    uint64_t slice;
    uint32_t n = 1;
    fleeti_set_patience(e, fleeti_affinity());
    e->looked_at = fleeti_time_ns(), e->ran = fleeti_process_ns();
    pthread_mutex_init(&e->look, NULL);
    pthread_mutex_init(&e->start, NULL);
    pthread_mutex_lock(&e->start);
    while (n < e->n_carriers &&
           !pthread_create(&e->carriers[n].thread, NULL, fleeti_thread_main, &e->carriers[n]))
        n++;
    e->cancelled = n < e->n_carriers;
    pthread_mutex_unlock(&e->start);
    if (!e->cancelled) {
        slice = fleeti_set_slice(FLEETI_SLICE_NS);
        fleeti_carry(e->carriers);
        (void)fleeti_set_slice(slice);
    }
    for (uint32_t i = 1; i < n; i++) pthread_join(e->carriers[i].thread, NULL);
    pthread_mutex_destroy(&e->start);
    pthread_mutex_destroy(&e->look);
    return e->cancelled ? FLEET_ERROR_TOO_MANY_WORKERS : FLEET_OK;
}

/* ---- barriers ---- */

FLEETI_UNWATCHED static uint32_t fleeti_waits_at(const fleeti_agent *a,
                                                 const fleeti_barrier_state *m)
{
    return __atomic_load_n(&a->barrier, __ATOMIC_RELAXED) == m && a->generation == m->generation;
}

/* Lets all waves of the round go on. */
FLEETI_UNWATCHED static void fleeti_open_barrier(fleeti_agent *a, fleeti_barrier_state *m)
{
    m->arrived = m->in_tiles = 0;
    __atomic_store_n(&m->generation, m->generation + 1, __ATOMIC_RELAXED);
    fleeti_count(&a->progress, 1);
    if (!a->engine->coroutines) {
        pthread_cond_broadcast(&a->group->all_here);
        return;
    }
    a->carrier->tries = a->carrier->looked = 0;
    for (; m->waiting; m->waiting = m->waiting->next_waiting)
        fleeti_runs_again(m->waiting->carrier, m->waiting);
}

/* Waves wait in a tile for others that will not come: these have returned from it, and wait at
   the end of the task; or the limit has passed. Those in the tile leave it with
   FLEET_ERROR_BARRIER. On a GPU they would hang, or go on when the others meet at another barrier.
   */
FLEETI_UNWATCHED static void fleeti_break_barrier(fleeti_workgroup *g, fleeti_barrier_state *m,
                                                  uint32_t waves)
{
    fleeti_agent **link = &m->waiting;
    const uint32_t waiting = m->in_tiles;
    for (uint32_t i = 0; i < g->agents->engine->waves; i++) {
        fleeti_agent *a = &g->agents[i];
        if (!fleeti_waits_at(a, m) || !a->tile) continue;
        a->trouble.line = a->line, a->trouble.waiting = waiting, a->trouble.waves = waves;
        a->thrown = 1;
    }
    m->arrived -= waiting, m->in_tiles = 0;
    while (*link) {
        fleeti_agent *a = *link;
        if (a->thrown) {
            *link = a->next_waiting;
            fleeti_runs_again(a->carrier, a);
        } else {
            link = &a->next_waiting;
        }
    }
    if (!g->agents->engine->coroutines) pthread_cond_broadcast(&g->all_here);
}

/* Of waves that take turns, where none of them can run. late: only waits that have taken longer
   than their limits. */
FLEETI_UNWATCHED static void fleeti_break_barriers(fleeti_carrier *c, uint32_t late)
{
    fleeti_engine *e = c->engine;
    for (uint32_t i = 0; i < c->n_agents; i++) {
        fleeti_agent *a = &c->agents[i];
        fleeti_barrier_state *m = a->barrier;
        if (!m || !a->tile || a->thrown || (late && !a->limit_ns)) continue;
        if (late) {
            const uint64_t now = fleeti_stalled(e, a->pool);
            if (!c->since || now < c->since) c->since = now;
            if (now - c->since <= a->limit_ns) continue;
        }
        fleeti_break_barrier(a->group, m, m == a->group->meeting ? e->waves : e->waves - 1);
    }
}

/* Waits in a thread of its own, which holds the lock. */
FLEETI_UNWATCHED static void fleeti_await_round(fleeti_agent *a, fleeti_barrier_state *m,
                                                uint32_t generation, uint32_t waves)
{
    fleeti_workgroup *g = a->group;
    uint64_t since = 0;
    /* Mostly the others arrive soon: to sleep and be woken takes longer than to yield a few times. */
    pthread_mutex_unlock(&g->lock);
    for (uint32_t looks = 0; looks < 8; looks++) {
        if (__atomic_load_n(&m->generation, __ATOMIC_RELAXED) != generation) break;
        sched_yield();
    }
    pthread_mutex_lock(&g->lock);
    while (m->generation == generation && !a->thrown) {
        struct timespec until;
        if (!a->tile || !a->limit_ns) {
            pthread_cond_wait(&g->all_here, &g->lock);
            continue;
        }
        timespec_get(&until, TIME_UTC);
        until.tv_nsec += FLEETI_LOOK_NS;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&g->all_here, &g->lock, &until);
        const uint64_t now = fleeti_stalled(a->engine, a->pool);
        if (!since || now < since) since = now;
        if (m->generation == generation && !a->thrown && now - since > a->limit_ns)
            fleeti_break_barrier(g, m, waves);
    }
}

FLEETI_UNWATCHED void fleeti_host_barrier(uint32_t waves)
{
    fleeti_agent *a = fleeti_self();
    fleeti_engine *e = a->engine;
    fleeti_workgroup *g = a->group;
    fleeti_barrier_state *m = &g->meeting[waves != e->waves];
    if (fleeti_deterministic(e)) fleeti_switch(a);
    if (waves == 1) return;
    if (!e->coroutines) pthread_mutex_lock(&g->lock);
    const uint32_t generation = m->generation;
    /* This round of the barrier: the next one may begin before all waves have left it. */
    const void *round = (const char *)m + (generation & 1);
    fleeti_publish(e, round);
    __atomic_store_n(&a->generation, generation, __ATOMIC_RELAXED);
    __atomic_store_n(&a->barrier, m, __ATOMIC_RELAXED);
    m->arrived++;
    m->in_tiles += a->tile != NULL;
    if (m->arrived == waves && m->in_tiles % waves == 0) {
        fleeti_open_barrier(a, m);
    } else {
        if (m->arrived == waves) fleeti_break_barrier(g, m, waves);
        if (!e->coroutines) {
            fleeti_await_round(a, m, generation, waves);
        } else if (!a->thrown) {
            fleeti_list_remove(a->carrier->runnable, &a->carrier->n_runnable, a);
            a->next_waiting = m->waiting;
            m->waiting = a;
            fleeti_switch(a);
        }
    }
    __atomic_store_n(&a->barrier, NULL, __ATOMIC_RELAXED);
    if (!e->coroutines) pthread_mutex_unlock(&g->lock);
    if (a->thrown) {
        a->thrown = 0;
        longjmp(*a->tile, 1);
    }
    fleeti_observe(e, round);
}

/* ---- dynamic LDS ---- */

/* Bytes that a tile may overwrite by mistake come after the LDS of each workgroup, and after
   them bytes that end the program: the heap stays whole. */
#define FLEETI_LDS_ZONE 4096u
#define FLEETI_LDS_GUARD 1048576u
#define FLEETI_LDS_LOOK 64u   /* of the zone, after each tile */
#define FLEETI_LDS_FILL 0xa5u /* floats that are too small to be seen: -2.9e-16 */

static fleet_status fleeti_make_lds(fleeti_engine *e)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = e->desc->lds_bytes;
    const size_t used = (bytes + FLEETI_LDS_ZONE + page - 1) / page * page;
    if (!bytes) return FLEET_OK;
    if (!e->desc->host.waves && e->waves > 1)
        e->share_bytes = (bytes / fleeti_lds_shares(e) + 15) / 16 * 16;
    const size_t shares = (e->share_bytes * e->waves + page - 1) / page * page;
    const size_t stride = used + FLEETI_LDS_GUARD + shares + FLEETI_LDS_GUARD;
    void *memory = mmap(NULL, stride * e->desc->blocks, PROT_NONE, FLEETI_MAP_FLAGS, -1, 0);
    if (memory == MAP_FAILED) return FLEET_ERROR_MEMORY;
    e->lds = (char *)memory, e->lds_mapped = stride * e->desc->blocks;
    for (uint32_t b = 0; b < e->desc->blocks; b++) {
        char *lds = e->lds + b * stride;
        if (mprotect(lds, used, PROT_READ | PROT_WRITE)) return FLEET_ERROR_MEMORY;
        memset(lds + bytes, FLEETI_LDS_FILL, used - bytes);
        e->groups[b].dynamic = lds;
        if (shares) {
            char *at = lds + used + FLEETI_LDS_GUARD;
            if (mprotect(at, shares, PROT_READ | PROT_WRITE)) return FLEET_ERROR_MEMORY;
            e->groups[b].shares = at;
        }
#if defined(FLEETI_SANITIZED_ADDRESSES)
        __asan_poison_memory_region(lds + bytes, used - bytes);
#endif
    }
    return FLEET_OK;
}
static void fleeti_end_lds(fleeti_engine *e)
{
#if defined(FLEETI_SANITIZED_ADDRESSES)
    if (e->lds) __asan_unpoison_memory_region(e->lds, e->lds_mapped);
#endif
    if (e->lds) munmap(e->lds, e->lds_mapped);
}

/* Whether the first bytes after the workgroup's LDS are as they were; mostly tiles write on
   where it ends. The address sanitizer has its own report. */
FLEETI_UNWATCHED static uint32_t fleeti_lds_is_whole(const fleeti_workgroup *g, uint32_t bytes)
{
#if !defined(FLEETI_SANITIZED_ADDRESSES)
    const uint8_t *zone = (const uint8_t *)g->dynamic + g->agents->engine->desc->lds_bytes;
    for (uint32_t i = 0; g->dynamic && i < bytes; i++)
        if (zone[i] != FLEETI_LDS_FILL) return 0;
#else
    (void)g, (void)bytes;
#endif
    return 1;
}

/* ---- tiles ---- */

void fleeti_host_line(uint32_t line)
{
    fleeti_self()->line = line;
}
fleeti_trouble fleeti_host_trouble(void)
{
    return fleeti_self()->trouble;
}

fleet_status fleeti_host_tile(fleeti_host_tile_function tile, uint32_t number, const void *ctx,
                              const void *args, const fleet_plan *plan, uint32_t task,
                              uint64_t limit_ns)
{
    fleeti_agent *a = fleeti_self();
    const fleet_host_instrument *instrument = a->engine->instrument;
    fleet_status status;
    jmp_buf leave;
    if (instrument) instrument->task(plan, task);
    if (a->engine->waves == 1) {
        status = tile(number, ctx, args);
    } else {
        a->limit_ns = limit_ns;
        a->line = 0;
        a->tile = &leave;
        status = setjmp(leave) ? FLEET_ERROR_BARRIER : tile(number, ctx, args);
        a->tile = NULL;
    }
    if (instrument) instrument->task(NULL, 0);
    if (fleeti_lds_is_whole(a->group, FLEETI_LDS_LOOK)) return status;
    __atomic_store_n(&a->group->damaged, 1, __ATOMIC_RELAXED);
    return FLEET_ERROR_LDS;
}

/* ---- both engines ---- */

uint32_t *fleeti_host_words(void)
{
    return fleeti_self()->group->words;
}

uint64_t fleeti_host_clock(void)
{
    fleeti_engine *e = fleeti_self()->engine;
    return fleeti_deterministic(e) ? e->clock += 100 : fleeti_time_ns();
}
void fleeti_host_set_pool(uint32_t pool)
{
    __atomic_store_n(&fleeti_self()->pool, pool, __ATOMIC_RELAXED);
}
uint64_t fleeti_host_stalled(void)
{
    return fleeti_stalled(fleeti_self()->engine, fleeti_self()->pool);
}

void fleeti_host_drain(void)
{
    fleeti_host_yield();
    if (fleeti_self()->engine->instrument) fleeti_self()->engine->instrument->drain();
}
/* Thread sanitizers do not know fences; in their builds the atomics that it orders do without. */
void fleeti_host_order(void)
{
    fleeti_host_yield();
#if !defined(FLEETI_HOOKED)
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
#endif
}
void fleeti_host_release(fleet_scope scope)
{
    fleeti_host_yield();
    if (fleeti_self()->engine->instrument) fleeti_self()->engine->instrument->release(scope);
    fleeti_count(&fleeti_self()->releases, 1);
}
void fleeti_host_acquire(fleet_scope scope)
{
    fleeti_host_yield();
    if (fleeti_self()->engine->instrument) fleeti_self()->engine->instrument->acquire(scope);
}

/* Each workgroup, agent and carrier in its place; memory for all of them. */
static fleet_status fleeti_engine_make(fleeti_engine *e, fleet_kernel kernel,
                                       const fleet_kernel_desc *d)
{
    const uint32_t blocks = d->blocks, deterministic = fleeti_deterministic(e);
    e->waves = fleeti_host_waves(kernel, d);
    e->coroutines = deterministic || (!d->host.waves && e->waves > 1);
    e->n_agents = blocks * e->waves;
    e->n_carriers = deterministic ? 1 : e->coroutines ? blocks : e->n_agents;
    const uint32_t each = e->n_agents / e->n_carriers;
    e->agents = (fleeti_agent *)calloc(e->n_agents, sizeof *e->agents);
    e->carriers = (fleeti_carrier *)calloc(e->n_carriers, sizeof *e->carriers);
    e->groups = (fleeti_workgroup *)calloc(blocks, sizeof *e->groups);
    if (e->coroutines)
        e->lists = (fleeti_agent **)calloc(2 * (size_t)e->n_agents, sizeof *e->lists);
    if (!e->agents || !e->carriers || !e->groups || (e->coroutines && !e->lists))
        return FLEET_ERROR_MEMORY;
    for (uint32_t b = 0; b < blocks; b++) {
        fleeti_workgroup *g = &e->groups[b];
        g->chiplet = d->host.chiplets ? b % d->host.chiplets : 0;
        g->agents = &e->agents[b * e->waves];
        pthread_mutex_init(&g->lock, NULL);
        pthread_cond_init(&g->all_here, NULL);
        g->lds = (char *)aligned_alloc(256, FLEETI_STATIC_LDS);
        if (!g->lds) return FLEET_ERROR_MEMORY;
    }
    fleet_status status = fleeti_make_lds(e);
    for (uint32_t i = 0; i < e->n_agents; i++) {
        fleeti_agent *a = &e->agents[i];
        a->engine = e;
        a->carrier = &e->carriers[i / each];
        a->block = i / e->waves;
        a->wave = i % e->waves;
        a->group = &e->groups[a->block];
    }
    for (uint32_t i = 0; i < e->n_carriers; i++) {
        fleeti_carrier *c = &e->carriers[i];
        c->engine = e;
        c->agents = &e->agents[i * each];
        c->n_agents = each;
        c->rng = (d->host.seed ? d->host.seed : 1) + i;
        if (!e->coroutines) continue;
        c->runnable = e->lists + i * each;
        c->parked = e->lists + e->n_agents + i * each;
        if (!status) status = fleeti_make_coroutines(c);
    }
    return status;
}
static void fleeti_engine_end(fleeti_engine *e)
{
    for (uint32_t i = 0; e->carriers && i < e->n_carriers; i++)
        fleeti_end_coroutines(&e->carriers[i]);
    for (uint32_t b = 0; e->groups && b < e->desc->blocks && e->groups[b].agents; b++) {
        pthread_mutex_destroy(&e->groups[b].lock);
        pthread_cond_destroy(&e->groups[b].all_here);
        free(e->groups[b].lds);
    }
    fleeti_end_lds(e);
    free(e->agents);
    free(e->carriers);
    free(e->groups);
    free(e->lists);
}

fleet_status fleet_kernel_launch(fleet_kernel kernel, void **args, const fleet_kernel_desc *d)
{
    fleeti_engine e;
    if (!kernel.address || !args || !d) return FLEET_ERROR_NULL;
    if (!d->blocks || fleeti_bad_host_desc(&d->host)) return FLEET_ERROR_ARGUMENT;
    if (d->blocks > fleeti_room_for(kernel, d)) return FLEET_ERROR_TOO_MANY_WORKERS;
    memset(&e, 0, sizeof e);
    e.desc = d;
    e.kernel = kernel.address;
    e.args = args;
    fleet_status status = fleeti_engine_make(&e, kernel, d);
    if (!status && d->host.memory_model) status = fleeti_instrument->begin(d, e.waves);
    if (!status && d->host.memory_model) {
        e.instrument = fleeti_instrument;
        for (uint32_t b = 0; b < d->blocks; b++) {
            e.instrument->placed(b, e.groups[b].chiplet);
            if (e.groups[b].dynamic) e.instrument->lds(b, e.groups[b].dynamic, d->lds_bytes);
            if (e.groups[b].shares)
                e.instrument->lds(b, e.groups[b].shares, e.share_bytes * e.waves);
        }
    }
    if (!status && fleeti_deterministic(&e)) {
        e.stats.fingerprint = 0xcbf29ce484222325ull;
        fleeti_carry(e.carriers);
    } else if (!status) {
        status = fleeti_run_threads(&e);
    }
    if (e.instrument) e.stats.findings = e.instrument->end();
    for (uint32_t i = 0; e.agents && i < e.n_agents; i++) {
        e.stats.rmws += e.agents[i].rmws;
        e.stats.releases += e.agents[i].releases;
    }
    for (uint32_t i = 0; !status && i < e.n_carriers; i++)
        if (e.carriers[i].deadlock) status = FLEET_ERROR_DEADLOCK;
    for (uint32_t b = 0; !status && b < d->blocks; b++)
        if (!e.groups[b].damaged && !fleeti_lds_is_whole(&e.groups[b], FLEETI_LDS_ZONE))
            status = FLEET_ERROR_LDS;
    fleeti_engine_end(&e);
    if (d->host.stats) *d->host.stats = e.stats;
    return status;
}

#endif /* FLEET_HOST */

FLEET_C_END

#endif /* FLEET_IMPLEMENTATION */
