/* fleet_server.h - takes requests into a launch that stays - MIT licence

   Host threads submit requests to a launch that is running already. One iteration of the graph is a
   step, and a task of it composes the batch of the next one on the device. The server knows no
   model: a request has a prompt and yields tokens, all of them words, and a page is room for the
   state of page_tokens tokens of a sequence (keys and values, say).

   CONTENTS (search for the tag)
       >>manual           this comment
       >>public           requests and batches, prediction, the server on the host, boundaries on
                          the device, two pools; of use alone, too: rings of messages, a page
                          allocator; policies of your own
       >>layout           what lies in device memory and in pinned memory
       >>rings            the device's end of a ring
       >>pages            the allocator
       >>requests         the request table, and the life of a request
       >>policies         which requests run: fifo, agent
       >>pools            what two pools tell each other
       >>boundaries       between iterations, and between layers of one
       >>implementation   host code

   RECIPE
       Needs fleet_sched.h of the same version, whose private functions it uses. In exactly one
       source file, which the GPU compiler compiles, define FLEET_IMPLEMENTATION before the include:
           #define FLEET_IMPLEMENTATION
           #include "fleet_server.h"
       examples/10_requests.c is a whole program without a model; examples/qwen3/serving.h serves a
       decoder.

   ON THE HOST
       Tiles get server.table among their arguments. One thread launches, waits for the end of the
       launch, and calls fleet_server_ended. All others are called by any thread:
           fleet_server_create(&server, &desc, stream);
           launch.steps = FLEET_STEPS_ENDLESS;
           fleet_server_submit(&server, &request, &ticket);
           while (fleet_server_poll(&server, &event)) {
               ... event.id, event.kind, event.token ...
               fleet_server_release(&server, &event);
           }
           fleet_server_stop(&server, 1);

   ON THE DEVICE
       The writer of the symbols is the boundary between two iterations, and tasks before layers are
       their cutters (fleet_sched.h, >>launches):
           FLEET_TILE(boundary, serving) {
               const fleet_batch *b = fleet_table_batch(args->table, 0, ctx.epoch + 1);
               const fleet_status status = fleet_server_next(&ctx, args->table, 0);
               if (status) return status;
               return fleet_next_symbol(&ctx, ROWS, (int32_t)(b->decode_rows + b->chunk_rows));
           }
           FLEET_TILE(gate, serving) {
               const fleet_batch *b = fleet_table_batch(args->table, 0, ctx.epoch);
               if (!fleet_server_between(&ctx, args->table, 0, args->layer)) return FLEET_OK;
               return fleet_cut_symbol(&ctx, ROWS, (int32_t)b->decode_rows);
           }
       Other tiles read the batch through fleet_table_batch and fleet_batch_row, and the one that
       chooses tokens calls fleet_row_result.

   TERMS
       request table   an entry for each request, with its prompt and page table; in device memory
       queues          requests to the device, and events to the host; rings in pinned memory
       batch           what an iteration works on: decode rows, each of which yields a token of
                       another request, and after them the rows of a chunk, a part of one prompt
       boundaries      between iterations, and between layers of one: there a task lets the
                       scheduler decide
       policy          how it decides: `agent`, `fifo`, or functions of yours
       What the scheduler does depends on the table, on arrivals and on its ticks alone.

   EDGES
       As in fleet_device.h, whose table has the other numbers.

       26 message of a ring, host to device or back, system scope. What the pusher wrote, messages
          included -> the popper
          release  fleet_ring_push: store; fleet_ring_try_push: drain, barrier of the wave, system
                   write-back, fleeti_publish_system
          carrier  the slot's sequence: number of the message + 1
          acquire  fleet_ring_try_pop: fleeti_poll_system, system invalidate, barrier of the wave;
                   fleeti_message_next: load
          red      A ring of messages; M ring of messages; N ring of messages; tests/gpu/messages.c
                   under TSan; S request_ring
       27 room in such a ring. The reads of a message -> the push that overwrites its slot
          release  fleet_ring_try_pop: barrier of the wave, fleeti_publish_system;
                   fleeti_message_move: RMW
          carrier  the number of the next message to be popped, in front of the slots
          acquire  fleeti_message_next: load; fleeti_messages_room: fleeti_poll_system, only stores
                   follow
          red      A ring of messages: room; N ring of messages; tests/gpu/messages.c under TSan; S
                   request_ring
       31 news of a server. Requests, cancels, stops and released events of host threads -> the
          boundary
          release  fleeti_desk_changed: RMW     carrier  changes, cancels
          acquire  fleeti_take_in: loads, barrier of the wave
          red      S server; N news of a server
       36 turn of a pool's boundary, device scope. The table of requests, and what all tiles of that
          pool have stored -> the other pool's next boundary, and its tiles
          release  fleeti_turn_end: drain, write-back, fleeti_publish_device     carrier  turn
          acquire  fleeti_await_pool: poll, invalidate, barrier of the wave
          red      N pools; tests/host/pools_model.sh; serving_pools.c under TSan
       37 lent layer, device scope. Its number and batch, and all that its tiles read -> tasks of
          either pool that take tiles
          release  fleet_server_share: drain, write-back, fleeti_publish_device
          carrier  handed_out
          acquire  fleet_share_next: poll, invalidate, barriers
          red      N pools; tests/host/pools_model.sh; serving_pools.c under TSan
       38 end of a lent layer, device scope. What its tiles have stored, and their reads -> pool 0's
          next boundary or layer
          release  fleet_share_next: each wave drains, barrier; write-back, an arrival
          carrier  run
          acquire  fleeti_await_pool: poll, invalidate, barriers
          red      N pools; tests/host/pools_model.sh; serving_pools.c under TSan

   LOOPS
       As in fleet_device.h, which has the other numbers, too.

       27 fleeti_await_pool: the turn of a pool, tiles of a layer that is lent
          ends  watch
          test  tests/host/serving_pools.c, abort_ends_both_pools_and_they_serve_again
       28 fleet_share_next: a tile of the next layer that is lent
          ends  the loan, loop 27
          test  tests/host/serving_pools.c, abort_ends_both_pools_and_they_serve_again
       29 FLEETI_POLICY: a boundary without work
          ends  a stop of the server, loops 10 and 27
          test  tests/gpu/endings.c, no_boundary_waits_for_a_full_ring

   ERRORS
       As in fleet_sched.h. A function that fails leaves zeros in its results, apart from what says
       why (fleet_server.field, fleet_ticket.field).
*/

/* Outside the guard: the second inclusion brings the implementations of the headers below. */
#include "fleet_sched.h"
#if FLEET_VERSION != 300
#error "fleet_server.h is of fleet 0.3, fleet.h is not: copy all headers from one version"
#endif

#ifndef FLEET_SERVER_H
#define FLEET_SERVER_H

/* ==== >>public: what programs use ==== */

/* ---- requests and batches ---- */

#define FLEET_NONE 0xffffffffu /* no slot of the request table */

typedef enum fleet_class {
    FLEET_REACTIVE, /* someone waits for the tokens */
    FLEET_PROACTIVE /* background work without a deadline */
} fleet_class;

typedef enum fleet_row_kind {
    FLEET_ROW_NONE,
    FLEET_ROW_DECODE, /* its token is the request's last one; its result is the next one */
    FLEET_ROW_CHUNK,  /* its token is in the prompt */
    FLEET_ROW_LAST    /* the same, at the end of it: its result is the request's first token */
} fleet_row_kind;

typedef struct fleet_row {
    uint32_t slot, generation; /* whose it is */
    uint32_t position;         /* of its token in the sequence */
    uint32_t kind;             /* fleet_row_kind */
} fleet_row;

typedef struct fleet_batch {
    /* Decode rows run in layers decode_begin..decode_end - 1, rows of the chunk in
       chunk_begin..chunk_end - 1: in all layers, unless a layer boundary has suspended them in this
       iteration or in an earlier one. */
    uint32_t decode_rows, decode_begin, decode_end;
    uint32_t chunk_rows, chunk_begin, chunk_end;
    uint32_t chunk_class; /* fleet_class: the chunk of each has an activation buffer of its own */
    uint32_t lent;   /* 1: pool 1 helps with this layer; of pool 1: it does in this iteration */
    fleet_row chunk; /* its first row */
    uint64_t begun;  /* tick */
    uint32_t predicted_ns, pad; /* predicted_ns 0: not known */
} fleet_batch;                  /* then: fleet_row[decode_rows of the server] */

/* ---- prediction ---- */

typedef struct fleet_work {
    float operations, bytes;
} fleet_work;

/* A device, by two measured points. At intensity I, in operations for a byte, work took the share u
   of the bandwidth: u_m where memory limits it, u_c at i_c where arithmetic does. */
typedef struct fleet_roofline {
    float peak_bytes_per_ns, peak_operations_per_ns;
    float u_m, i_c, u_c;
} fleet_roofline;

/* max(W / P_eff, Q / B_eff) with B_eff = u_m B_pk and P_eff = min(P_pk, u_c B_pk I_c); 0 without a
   roofline. */
FLEET_HOST_DEVICE float fleet_roofline_ns(const fleet_roofline *r, fleet_work work);
/* The share of the bandwidth that the work takes: min(u_m, u_c I_c / I). */
FLEET_HOST_DEVICE float fleet_roofline_share(const fleet_roofline *r, fleet_work work);

/* ---- the server, on the host ---- */

typedef enum fleet_policy_kind {
    FLEET_POLICY_AGENT, /* reactive requests before proactive ones */
    FLEET_POLICY_FIFO   /* in order of arrival, without classes */
} fleet_policy_kind;

typedef struct fleet_server_desc {
    uint32_t requests;          /* submitted, and their last event not read; default 64 */
    uint32_t reactive_requests; /* of these, for reactive ones alone; default a quarter; fifo: 0 */
    uint32_t events;            /* tokens of a request that the host has not released; default 32 */
    uint32_t pages, page_tokens;      /* defaults 1024, 16 */
    uint32_t reactive_pages;          /* of these, for reactive requests alone; default a quarter */
    uint32_t prompt_tokens;           /* of a request, at most; default 4096 */
    uint32_t sequence_tokens;         /* prompt and yielded tokens, at most; default 8192 */
    uint32_t words;                   /* of a request, for the tiles; default 0 */
    uint32_t decode_rows, chunk_rows; /* of an iteration, at most; defaults 64, 256 */
    /* Of a chunk in an iteration that has decode rows too, at most: these wait for it. Default 0:
       chunk_rows */
    uint32_t beside_rows;
    /* `agent`: 1: prompts of a class one after the other, in order of arrival. Default 0: chunk by
       chunk, by turns of the oldest prompt and of that with the least left */
    uint32_t serial;
    uint32_t layers; /* of an iteration; default 1 */
    /* `agent`: rows of a decode batch of both classes, at most. Default 0: as many as keep the
       predicted time of an iteration within 1.1 of that with the reactive rows alone, and 3 without
       a roofline */
    uint32_t mixed_rows;
    uint64_t age_ticks; /* a proactive request that has waited so long is aged; default 30 s */
    float tick_ns;      /* default: of fleet_clock_ticks */
    /* 2: pool 0 works on prompts, pool 1 decodes, each in its own iterations (below). Default 1: a
       pool for both */
    uint32_t pools;
    /* 1: an iteration of the only pool has a chunk or decode rows, and the chunk goes first.
       Default 0 */
    uint32_t one_stage;
    /* 1: layer boundaries suspend decode rows too, where all of them may give way. Default 0:
       iterations do */
    uint32_t suspend_decode;
    fleet_policy_kind policy;      /* default FLEET_POLICY_AGENT */
    fleet_roofline roofline;       /* default: none */
    fleet_work pass, row, context; /* of an iteration, a row, an earlier token that it reads */
} fleet_server_desc;

FLEET_C_BEGIN
FLEET_API fleet_server_desc fleet_server_desc_default(void);
typedef struct fleet_table fleet_table; /* device memory */
typedef struct fleeti_desk fleeti_desk; /* pinned memory */

/* A handle, which may be moved. Any number of host threads may use the server. */
typedef struct fleet_server {
    fleet_server_desc desc;
    fleet_table *table;              /* device address: for the tiles' arguments */
    fleeti_desk *desk, *desk_device; /* and the device address */
    const char *field;    /* of a refused descriptor: the field out of its range; else null */
    uint32_t fits, owned; /* fits: the nearest value that this field may have */
} fleet_server;

/* Memory for a server; 0: the descriptor is refused (fleet_server_init). */
FLEET_API size_t fleet_server_bytes(const fleet_server_desc *desc);
FLEET_API size_t fleet_server_host_bytes(const fleet_server_desc *desc);
/* Makes a server in the caller's memory, which must outlive it: device memory of
   fleet_server_bytes, 256-byte aligned, and pinned memory of fleet_server_host_bytes with its
   device address. It is complete on return. FLEET_ERROR_ARGUMENT: the descriptor is refused, and
   server->field and server->fits say why. */
FLEET_API fleet_status fleet_server_init(fleet_server *server, const fleet_server_desc *desc,
                                         void *device_memory, void *pinned, void *pinned_device,
                                         fleet_stream stream);
/* The same with memory of its own, which fleet_server_free frees. */
FLEET_API fleet_status fleet_server_create(fleet_server *server, const fleet_server_desc *desc,
                                           fleet_stream stream);
FLEET_API void fleet_server_free(fleet_server *server);
/* Device address of the page tables: that of slot i begins i * *stride pages further on. */
FLEET_API const uint32_t *fleet_server_page_tables(const fleet_server *server, uint32_t *stride);

typedef struct fleet_request {
    fleet_class priority;
    const uint32_t *prompt;             /* copied */
    uint32_t prompt_tokens, max_tokens; /* max_tokens: it yields at most so many. Both at least 1 */
    const uint32_t *words;              /* desc.words of them, copied; e.g. how it chooses tokens */
} fleet_request;

/* An id, never 0, of one request of one server; or the field that was refused, and the largest
   value that fits. */
typedef struct fleet_ticket {
    uint64_t id;
    const char *field; /* null: none */
    uint32_t fits;
} fleet_ticket;

/* FLEET_ERROR_ARGUMENT: the request would never fit. FLEET_ERROR_BUSY: not now, all entries for its
   class are taken. FLEET_ERROR_ABORTED: the server was told to stop, or the launch has ended.
   *ticket is set in any case. */
FLEET_API fleet_status fleet_server_submit(fleet_server *server, const fleet_request *request,
                                           fleet_ticket *ticket);

typedef enum fleet_event_kind {
    FLEET_EVENT_TOKEN,
    FLEET_EVENT_FINISHED, /* this one and the next two are a request's last event */
    FLEET_EVENT_FAILED,
    FLEET_EVENT_CANCELLED
} fleet_event_kind;

typedef struct fleet_server_event {
    uint64_t id, tick, begun; /* tick of the boundary that sent it; of its first batch, or 0 */
    fleet_event_kind kind;
    uint32_t token;
    uint32_t index;      /* of the token; of a last event the number of tokens */
    fleet_status status; /* of a failed one */
    /* Of a token: tokens of the prompt whose pages were those of an earlier one that begins alike.
       Its rows were not computed again. */
    uint32_t reused;
} fleet_server_event;

/* The next event; 0: there is none. Those of a request come in order, and one thread gets the last
   one. A thread that is suspended, or ends, in this call keeps back its own event alone. */
FLEET_API uint32_t fleet_server_poll(fleet_server *server, fleet_server_event *event);
/* Gives an event's room back. A request with desc.events tokens that were not released pauses; no
   other one does. FLEET_ERROR_ARGUMENT: all that was read has been released. FLEET_ERROR_GONE:
   as below. */
FLEET_API fleet_status fleet_server_release(fleet_server *server, const fleet_server_event *event);
/* Asks for a request's end. FLEET_ERROR_GONE: it has ended, or is another server's. */
FLEET_API fleet_status fleet_server_cancel(fleet_server *server, uint64_t id);
/* Ends the launch: when all requests have ended (drain 1), or now, and then they are cancelled. */
FLEET_API void fleet_server_stop(fleet_server *server, uint32_t drain);
/* When the launch has ended: fleet_server_poll gives what it has sent, and then a last event for
   each request that has not ended: FLEET_EVENT_FAILED with this status, or FLEET_EVENT_CANCELLED if
   it is FLEET_OK. */
FLEET_API void fleet_server_ended(fleet_server *server, fleet_status status);
/* Makes a server ready for the next launch. FLEET_ERROR_BUSY: a request has not ended, or a thread
   is in a call above. */
FLEET_API fleet_status fleet_server_reset(fleet_server *server, fleet_stream stream);

/* A snapshot of the last boundary; may be read at any time. */
typedef struct fleet_server_stats {
    uint32_t iterations, layers_cut; /* with a batch; layer boundaries that suspended rows */
    uint32_t queued[2], prefill[2], decode[2]; /* requests by fleet_class */
    uint32_t decode_rows, chunk_rows;          /* of the last batch */
    uint32_t pages_available;
    /* Of predicted iterations, not suspended: number; |predicted - measured| / measured in
       thousandths: mean, largest. */
    uint32_t predicted, error_mean, error_max;
} fleet_server_stats;
FLEET_API void fleet_server_stats_read(const fleet_server *server, fleet_server_stats *stats);

FLEET_C_END

/* ---- boundaries, on the device ---- */

/* In the task between two iterations of a pool (0, unless there are two), by all its threads: sends
   the tokens of the batch that has run, takes in what has arrived, and composes the batch of the
   pool's next step (ctx->epoch + 1), which all threads may read then. While there is nothing to do
   it waits for the host (fleet_idle). After a stop it calls fleet_finish, and the batch is empty.
   Not FLEET_OK: the run ends. */
FLEET_DEVICE fleet_status fleet_server_next(const fleet_ctx *ctx, fleet_table *t, uint32_t pool);
/* In a task after all those of layer - 1 and before those of `layer`, by all its threads. 1: it has
   suspended rows of this step's batch; chunk_end and decode_end say which. */
FLEET_DEVICE uint32_t fleet_server_between(const fleet_ctx *ctx, fleet_table *t, uint32_t pool,
                                           uint32_t layer);
/* The host's word that changes with all that arrives. While it is *seen, fleet_server_between of
   the only pool does nothing. */
FLEET_DEVICE const uint32_t *fleet_table_news(const fleet_table *t, uint32_t *seen);

#define FLEET_SERVING_IDLE 0u /* there is nothing to run */
#define FLEET_SERVING_BATCH 1u
#define FLEET_SERVING_STOPPED 2u

/* The same without a graph, by all lanes of one wave; of either pool, one at a time. `step` counts
   the pool's iterations. fleet_server_boundary returns FLEET_SERVING_..., fleet_server_layer what
   fleet_server_between does. */
FLEET_DEVICE uint32_t fleet_server_boundary(fleet_table *t, uint32_t pool, uint32_t step,
                                            uint64_t now);
FLEET_DEVICE uint32_t fleet_server_layer(fleet_table *t, uint32_t pool, uint32_t step,
                                         uint32_t layer, uint64_t now);

/* The batch of a step, for every task of it. */
FLEET_DEVICE const fleet_batch *fleet_table_batch(const fleet_table *t, uint32_t pool,
                                                  uint32_t step);
/* Row i: decode rows first, then those of the chunk. kind is FLEET_ROW_NONE if it does not run in
   this layer. */
FLEET_DEVICE fleet_row fleet_batch_row(const fleet_batch *b, uint32_t i, uint32_t layer);
FLEET_DEVICE uint32_t fleet_row_token(const fleet_table *t, fleet_row row);
/* The page table of the row's request, and its words. */
FLEET_DEVICE const uint32_t *fleet_row_pages(const fleet_table *t, fleet_row row);
FLEET_DEVICE const uint32_t *fleet_row_words(const fleet_table *t, fleet_row row);

#define FLEET_RESULT_MORE 1u /* the request goes on, unless it has its max_tokens */
#define FLEET_RESULT_END 2u  /* this is its last token */
#define FLEET_RESULT_FAIL 3u /* it fails alone; token: a fleet_status */

/* Stores the result of row i of a batch, by one thread: of each decode row and of the last one of a
   prompt. A row without a result fails its request with FLEET_ERROR_TILE. */
FLEET_DEVICE void fleet_row_result(const fleet_table *t, uint32_t pool, uint32_t step, uint32_t i,
                                   uint32_t result, uint32_t token);

/* ---- two pools ---- */

/* A server with two pools (fleet_server_desc.pools): pool 0 works on prompts, pool 1 decodes. Each
   has a boundary of its own, which passes the pool's number to fleet_server_next, and tasks pass it
   to fleet_table_batch and fleet_row_result. The boundaries of the two pools have the table in turn
   (edge 36): what a request has left in one pool is seen in the other. A pool that has nothing to
   do waits for the host and for the other one. fleet_server_next returns FLEET_ERROR_ARGUMENT where
   the server has no such pool, and FLEET_ERROR_UNSUPPORTED in a launch of one state: pool 1 would
   have no boundaries.

   Elastic: while pool 1 has nothing to decode, its chiplets help with the chunk, layer by layer. So
   a layer of pool 0 does not have a task for each row, but tiles that its tasks take one after
   another:
       gate of each layer, a task of pool 0:  fleet_server_share(&ctx, table, layer, tiles)
       layer, a task for each worker of pool 0, and help, a task for each worker of pool 1:
           fleet_share share = fleet_share_open(pool);
           while (fleet_share_next(&ctx, table, &share))
               ... tile share.tile of layer share.layer, for
                   fleet_table_batch(table, 0, share.step) ...
           return share.status;
   The boundary of pool 1 lets its help tasks run in steps whose batch is `lent`. They end at the
   first layer that is not lent any more: the next one after a request could decode again. Tiles of
   a layer may run in any order and anywhere. */
typedef struct fleet_share {
    uint32_t tile, layer, step; /* in hand; step: of pool 0, for its batch */
    fleet_status status;        /* not FLEET_OK: the run ends */
    uint32_t pool;
    uint32_t ran; /* private, in the first wave */
} fleet_share;

/* In a task of pool 0 before those of `layer`, after those of the layer before, by all its threads:
   waits until all tiles of that one have run, wherever they do, and hands out tiles 0..tiles - 1 of
   `layer`. The tasks after it take them all: they call fleet_share_next until it returns 0. */
FLEET_DEVICE fleet_status fleet_server_share(const fleet_ctx *ctx, fleet_table *t, uint32_t layer,
                                             uint32_t tiles);
FLEET_DEVICE fleet_share fleet_share_open(uint32_t pool);
/* By all threads of the task, which is a chiplet's or workgroup's and no wavefront-task: the next
   tile. 0: there is none for this task. In pool 1 it waits for further layers while they are lent.
   Between two calls the tile runs: the call publishes what it has stored to the task after the
   layer (edges 37 and 38). */
FLEET_DEVICE uint32_t fleet_share_next(const fleet_ctx *ctx, fleet_table *t, fleet_share *share);

/* ---- rings: messages between host threads and one worker ---- */

/* A bounded queue of messages of one size in pinned memory. It has two ends, each with a fleet_ring
   of its own, and one direction: either host threads push with fleet_ring_push and one wave of the
   device pops with fleet_ring_try_pop, or that wave pushes with fleet_ring_try_push and host
   threads pop with fleet_ring_pop.

   Message n lies in slot n mod slots, which has a sequence number: n + 1 when the slot holds the
   message. In front of the slots stands the number of the next message that the popping end reads.
   All arithmetic wraps at 2^32.
     edge 26  A push releases at system scope when it stores n + 1; the pop that reads n + 1
              acquires at system scope. So the popping thread sees the message, and all else that
              the pushing thread had written to pinned memory (a prompt, say) or had seen before.
              Like any release of the device, it covers other waves of the workgroup once they have
              drained and passed a barrier (fleet_device.h).
     edge 27  A pop sets the number in front to n + 1 after it has read the message; a push reads
              that before it overwrites the slot.
   A host thread pops by one compare-and-swap of that number, after it has read the message. So
   popping a message and giving its slot back are one step, and a thread that is suspended, or ends,
   in a pop holds up no other.

   No call waits for the other end: a full ring and an empty one are results. Messages come out in
   the order in which pushes began. A host thread that is suspended in a push holds up the messages
   after its own, never the caller. */
typedef struct fleet_ring {
    uint32_t *slots;   /* memory of the caller, as this end addresses it */
    uint64_t position; /* number of the next message at this end, unless host threads pop here */
    uint32_t mask;     /* number of slots - 1 */
    uint32_t words;    /* of a message */
    uint32_t stride;   /* words from a slot to the next one */
    uint32_t popped;   /* of a worker that pushes: the number in front when it last looked */
} fleet_ring;

#define FLEET_RING_MESSAGE_BYTES 256 /* of a message, at most */

FLEET_C_BEGIN

/* Bytes of pinned memory. slots: a power of two from 2 to 2^20; message_bytes: a multiple of 4 from
   4 to FLEET_RING_MESSAGE_BYTES. 0: one of them is not. */
FLEET_API size_t fleet_ring_bytes(uint32_t slots, uint32_t message_bytes);
/* Makes an empty ring in fleet_ring_bytes of pinned memory, 128-byte aligned; device_memory is its
   address on the device (fleet_pinned_alloc). Host threads share *host. Copy *device to device
   memory (fleet_to_device), for the worker that uses it: there it stays valid from launch to
   launch. */
FLEET_API fleet_status fleet_ring_init(fleet_ring *host, fleet_ring *device, void *memory,
                                       void *device_memory, uint32_t slots, uint32_t message_bytes);
/* Any host thread, on a ring to the device. FLEET_ERROR_BUSY: the ring is full. */
FLEET_API fleet_status fleet_ring_push(fleet_ring *host, const void *message);
/* Any host thread, on a ring from the device. Returns 1 with the next message, or 0: there is none,
   and *message is undefined. */
FLEET_API uint32_t fleet_ring_pop(fleet_ring *host, void *message);

FLEET_C_END

/* Device code. All lanes of one wave call these, with equal arguments; the results are the same in
   all lanes. Only one wave at a time uses an end, and what orders its uses (barriers, the events of
   tasks) orders *ring too. `messages` is 4-byte aligned memory of any kind for that many messages
   without gaps; what a lane writes to it, other lanes see. */

/* Pushes up to n messages with one release, and returns how many: fewer than n when the ring is
   full. */
FLEET_DEVICE uint32_t fleet_ring_try_push(fleet_ring *ring, const void *messages, uint32_t n);
/* Pops up to `most` messages with one acquire, and returns how many; 0: there is none. When this
   wave passes a barrier, other waves of the workgroup may read them and what the pushing threads
   published. A poll that finds the ring empty costs one load of host memory. */
FLEET_DEVICE uint32_t fleet_ring_try_pop(fleet_ring *ring, void *messages, uint32_t most);
/* How many of `most` messages a push would take now. The next pushes take at least as many. */
FLEET_DEVICE uint32_t fleet_ring_room(const fleet_ring *ring, uint32_t most);

/* ---- pages: a page allocator with reservations and prefix reuse ---- */

/* Hands out pages 0..pages - 1 of memory that the caller keeps elsewhere, such as keys and values
   of page_tokens tokens each. One thread at a time uses it: the boundary's worker, which owns it.
   It has no atomics.

   A request reserves at its admission as many pages as it can ever need, so that it never runs out
   half-way. Pages have reference counts. A page that holds page_tokens tokens may be inserted into
   the cache, and never changes afterwards; a later request whose tokens begin alike gets the same
   page, with one more reference. A page that is not referenced is free, or cached: cached pages are
   evicted, least recently used first, when other pages are needed.
     free + cached and unreferenced >= reserved
   always, so that an allocation within a reservation succeeds.
   A page is found by its tokens and the key of the page before it, which both are compared in full.
   Keys count insertions and are never used twice, so that a page is never taken for another one. */
typedef struct fleet_pages fleet_pages;

#define FLEET_PAGES_NONE 0xffffffffu /* no page */

/* What a request holds beside the pages of its page table. */
typedef struct fleet_admission {
    uint32_t reserved; /* pages that it may still allocate */
    /* Pages at the begin of its table that held its first tokens already when it was admitted; an
       ended request still has the number. */
    uint32_t reused;
    uint64_t key; /* of its last cached page; 0: none */
} fleet_admission;

/* Bytes of memory for `pages` pages, 0 if a number is 0 or they are too many. init: p is that long,
   8-byte aligned. It holds no pointer: a host may initialise a copy and send it to the device. */
FLEET_HOST_DEVICE size_t fleet_pages_bytes(uint32_t pages, uint32_t page_tokens);
FLEET_HOST_DEVICE fleet_status fleet_pages_init(fleet_pages *p, uint32_t pages,
                                                uint32_t page_tokens);
/* How many pages could be reserved now, and how many there are. */
FLEET_HOST_DEVICE uint32_t fleet_pages_available(const fleet_pages *p);
FLEET_HOST_DEVICE uint32_t fleet_pages_total(const fleet_pages *p);

/* Admits a request that holds at most `need` pages in all. The cached pages that hold the begin of
   its n tokens, whole pages only, become the first ones of `table` (room for n / page_tokens pages,
   or for `need` if that is less), with a reference each; the others are reserved. To compute at
   least the last token of a prompt anew, pass n less by one. FLEET_ERROR_BUSY: not now, and nothing
   has changed; fleet_pages_available tells how many would fit. FLEET_ERROR_ARGUMENT: never. */
FLEET_HOST_DEVICE fleet_status fleet_pages_admit(fleet_pages *p, const uint32_t *tokens, uint32_t n,
                                                 uint32_t need, uint32_t *table,
                                                 fleet_admission *a);
/* A page of the reservation, with one reference and undefined contents; FLEET_PAGES_NONE if none is
   left of it. */
FLEET_HOST_DEVICE uint32_t fleet_pages_allocate(fleet_pages *p, fleet_admission *a);
/* One more reference to a page that has one, for a request that shares it. */
FLEET_HOST_DEVICE fleet_status fleet_pages_share(fleet_pages *p, uint32_t page);
/* The request's next page after those that it reused or inserted is complete: it holds these
   page_tokens tokens and will not change. Call it when its contents are written and ordered before
   later readers. If the cache has such a page already, or no room for it, this one stays the
   request's own. */
FLEET_HOST_DEVICE fleet_status fleet_pages_insert(fleet_pages *p, fleet_admission *a, uint32_t page,
                                                  const uint32_t *tokens);
/* One reference less; without any the page is free, or stays in the cache. */
FLEET_HOST_DEVICE fleet_status fleet_pages_release(fleet_pages *p, uint32_t page);
/* The end of a request: releases the n pages of its table, last one first, and returns what is left
   of its reservation. Errors of fleet_pages_release: FLEET_ERROR_ARGUMENT for a page without a
   reference. */
FLEET_HOST_DEVICE fleet_status fleet_pages_finish(fleet_pages *p, fleet_admission *a,
                                                  const uint32_t *table, uint32_t n);

FLEET_C_BEGIN

/* For tests and debuggers, on the host: null if every page is in exactly one place and all counts
   agree, else what is wrong. */
FLEET_API const char *fleet_pages_check(const fleet_pages *p);

FLEET_C_END

/* ---- policies of your own ---- */

typedef enum fleet_phase {
    FLEET_PHASE_FREE,
    FLEET_PHASE_QUEUED,  /* it has no pages yet */
    FLEET_PHASE_PREFILL, /* part of the prompt has not passed all layers */
    FLEET_PHASE_DECODE,  /* it has yielded a token, and will yield more */
    FLEET_PHASE_ENDED    /* it has no pages; its last token waits until the host releases events */
} fleet_phase;

#define FLEET_SLOT_JOINED 1u    /* in the decode batch; else evicted, or not in it yet */
#define FLEET_SLOT_AGED 2u      /* a proactive one that has waited for age_ticks */
#define FLEET_SLOT_RUNNING 4u   /* in a batch that has not ended */
#define FLEET_SLOT_CANCELLED 8u /* ends as soon as it is not running */
#define FLEET_SLOT_UNSENT 16u   /* it waits: its last token has no room until events are released */

/* An entry of the request table, called its slot. Policies read it, and change it by the calls
   below. */
typedef struct fleet_slot {
    uint32_t generation; /* another one for each request in this slot */
    uint32_t phase;      /* fleet_phase */
    uint32_t flags;      /* FLEET_SLOT_... */
    uint32_t priority;   /* fleet_class */
    uint32_t order;      /* of arrival; wraps */
    uint32_t prompt_tokens, max_tokens;
    uint32_t prefilled; /* tokens of the prompt that have passed all layers */
    uint32_t chunk;     /* tokens after these that have passed layers 0..layer - 1; 0: none */
    uint32_t layer;
    uint32_t generated;    /* tokens */
    uint32_t token;        /* the last one */
    uint32_t pages;        /* that it needs at most */
    uint32_t allocated;    /* of these, in its page table */
    uint32_t room;         /* tokens that may be sent before the host has to be asked */
    uint32_t status;       /* fleet_status, of an ended one */
    uint64_t since, begun; /* ticks: of its arrival, in decode of its last token; first batch */
    fleet_admission admission;
} fleet_slot;

/* FLEET_POLICY(name) makes a policy of five functions of yours. One lane calls them, between layers
   only when there is news:
     void name_admit(fleet_table *t, uint64_t now)
         gives queued requests their pages, by fleet_table_admit
     uint32_t name_prefill(fleet_table *t, uint32_t pool)
         slot whose prompt goes on; one not in prefill, or FLEET_NONE: none
     void name_decode(fleet_table *t, uint32_t pool, uint32_t chunk)
         fleet_table_join, fleet_table_evict; chunk: that slot
     uint32_t name_preempts(const fleet_table *t, uint32_t pool, uint32_t slot)
         1: its rows give way, between layers
     uint32_t name_lends(const fleet_table *t)
         1: the chunk may run on the decode pool's chiplets
   News: something was submitted, cancelled or stopped, or the other pool had a boundary. It defines
   name_next, name_between, name_boundary and name_layer, which are called like fleet_server_next
   and so on: these have the descriptor's policy. */
#define FLEET_POLICY(name) FLEETI_POLICY(name, name)

FLEET_DEVICE fleet_slot *fleet_table_slot(const fleet_table *t, uint32_t slot);
/* Reserves the pages of a queued request, which is in its prefill from then on. 0: there are too
   few now. */
FLEET_DEVICE uint32_t fleet_table_admit(fleet_table *t, uint32_t slot);
/* Puts a request into the decode batch. 0: it is full, or the request has no token yet. An evicted
   one keeps its pages. */
FLEET_DEVICE uint32_t fleet_table_join(fleet_table *t, uint32_t slot);
FLEET_DEVICE void fleet_table_evict(fleet_table *t, uint32_t slot);

/* ==== >>layout: what lies in device memory and in pinned memory ==== */

/* ---- layout: pages ---- */

/* A page that has references, or is in one of two lists: the free pages, or the cached ones without
   references in the order of their last release. */
typedef struct fleeti_page {
    uint32_t references;
    uint32_t next, previous; /* in its list; the free list has no previous */
    uint32_t chain;          /* the next page of the same bucket */
    uint64_t key;            /* 0: not cached */
    uint64_t parent;         /* the key of the page before it; 0: it is a first page */
} fleeti_page;

struct fleet_pages {
    uint32_t pages, page_tokens, buckets; /* buckets: a power of two */
    uint32_t reserved;
    uint32_t free, cached; /* lengths of the two lists */
    uint32_t first_free, oldest, newest;
    uint32_t pad;
    uint64_t key; /* of the last insertion */
    /* Then: a fleeti_page each, the first page of each bucket, page_tokens tokens each. */
};

/* A page after one that is in no cache cannot be found, so it is not inserted. */
#define FLEETI_PAGES_NO_KEY UINT64_MAX
/* Of one bucket, at most: tokens that were chosen to share a bucket do not make the worker slow. */
#define FLEETI_PAGES_CHAIN 16u

/* ---- layout: a server ---- */

/* Messages. */
typedef struct fleeti_submission {
    uint32_t slot, generation, priority;
    uint32_t prompt_tokens, max_tokens;
} fleeti_submission;
typedef struct fleeti_notice {
    uint32_t slot, generation;
    uint32_t kind; /* fleet_event_kind */
    uint32_t token, index;
    uint32_t detail; /* of a token: pages of the prompt that were reused; else fleet_status */
    uint32_t tick[2], begun[2]; /* low word first */
} fleeti_notice;

#define FLEETI_INBOX 8u /* submissions that are popped at once */

#define FLEETI_STOP_DRAIN 1u
#define FLEETI_STOP_NOW 2u

typedef struct fleeti_result {
    uint32_t result, token; /* FLEET_RESULT_..., or 0: none */
} fleeti_result;

/* What one pool does. */
typedef struct fleeti_pool {
    /* 1 + the half in which its running batch is; 0: none */
    uint32_t open;
    /* the layer in which its suspended decode rows resume, and their number; 0, 0: none */
    uint32_t resume, suspended;
    uint32_t seen; /* fleet_table.news at its last decision */
    /* fleet_table.changes and the bell at its last boundary, for the wait after it */
    uint32_t changes, bell;
} fleeti_pool;

#define FLEETI_POOLS 2u

/* What two pools tell each other. Counts wrap. */
typedef struct fleeti_between_pools {
    fleeti_line turns, turn; /* boundaries that want the table, and the one that has it */
    /* of the boundary that has it: its number, and fleeti_pool_runs before it */
    uint32_t turn_number, ran;
    uint32_t pad_of_turn[FLEETI_EVENT_LINE - 2];
    fleeti_line bell; /* times that one pool has changed what the other one waits for */
    fleeti_line lent; /* 1: the decode pool's chiplets work for the prefill pool */
    /* Tiles of all layers so far: handed out, taken, and run; the last word is stored to by RMWs of
       both pools. */
    fleeti_line handed_out, taken, run;
    /* of the layer in hand: its first tile in these counts, itself, and the step of pool 0 */
    uint32_t first, layer, step;
    uint32_t pad[FLEETI_EVENT_LINE - 3];
} fleeti_between_pools;

/* The request table and all that the scheduler knows. The boundary's worker owns it, or those of
   two pools in turn; other tasks read batches, prompts and page tables, which events of the graph
   publish to them. */
struct fleet_table {
    fleeti_between_pools pools;
    fleet_server_desc desc;
    fleet_slot *slots;
    uint32_t *prompts;     /* [requests][words, prompt_tokens] */
    uint32_t *page_tables; /* [requests][pages_of_slot] */
    uint32_t pages_of_slot;
    fleet_pages *pages;
    fleet_batch *batches; /* [pools][2], batch_bytes apart */
    size_t batch_bytes;
    fleet_row *suspended;   /* [pools][decode_rows] */
    fleeti_result *results; /* [pools][decode_rows + 1]: the last one is that of the chunk */
    fleet_ring submissions, events;
    const fleeti_desk *desk;      /* device address */
    const uint32_t *host_prompts; /* as prompts, in pinned memory */
    uint32_t *host_stats;
    fleeti_notice *outbox;   /* two for each slot */
    uint32_t outgoing, sent; /* notices in it; of these, those that the host has got */
    uint32_t is_full;        /* there are others since the last boundary: the ring had no room */
    fleeti_submission inbox[FLEETI_INBOX];
    fleeti_pool pool[FLEETI_POOLS];
    uint32_t order;            /* of the next arrival */
    uint32_t changes, cancels; /* of the desk, that have been seen */
    /* boundaries, and times that something was taken in: what a decision may depend on */
    uint32_t news;
    uint32_t stop;       /* FLEETI_STOP_... */
    uint32_t slots_used; /* slots from here on are free */
    uint32_t joined;     /* slots with FLEET_SLOT_JOINED */
    /* requests by phase and class; not kept for free slots */
    uint32_t in_phase[FLEET_PHASE_ENDED][2];
    uint32_t pages_used[2]; /* reserved by requests of a class */
    /* 1: the next prompt of an aged request goes before those of reactive ones */
    uint32_t aged_turn;
    uint32_t oldest_turn[2]; /* 1: of that class the prompt with the least left has had its chunk */
    float error_sum;
    uint32_t stats_changed; /* since the host got them */
    fleet_server_stats stats;
};

/* What the host knows of a slot: generation << 32 | FLEETI_DESK_... << 28 | tokens that have been
   read. It changes by compare-and-swap of the whole word: a thread that was suspended since it read
   the word changes nothing. */
#define FLEETI_DESK_FREE 0u
#define FLEETI_DESK_HELD 1u      /* free, while a thread resets the server */
#define FLEETI_DESK_TAKEN 2u     /* a thread fills it in and submits it */
#define FLEETI_DESK_SUBMITTED 3u /* the request may be running */
#define FLEETI_DESK_ENDED 4u     /* its last event is in the ring, or was popped */
#define FLEETI_DESK_LEFT 5u      /* the launch has ended before it */

/* The host's words for the device, and for itself. After it: rings, prompts. */
typedef struct fleeti_desk_slot {
    uint64_t state;
    uint64_t released;  /* generation << 32 | events of it that the host has released */
    uint32_t cancelled; /* the generation of the request to be cancelled; an older one: none */
    uint32_t line[FLEETI_EVENT_LINE - 5];
} fleeti_desk_slot;

struct fleeti_desk {
    fleeti_line changes; /* counts all that a host thread does for the boundary to see */
    fleeti_line cancels; /* counts cancels and stops */
    fleeti_line stop;    /* FLEETI_STOP_... */
    fleeti_line stats[(sizeof(fleet_server_stats) + sizeof(fleeti_line) - 1) / sizeof(fleeti_line)];
    /* of the host alone */
    fleet_ring submissions, events;
    uint32_t ended;  /* 1 + the status with which the launch has ended */
    uint32_t ending; /* threads in fleet_server_ended */
};

/* ==== >>rings: the device's end ==== */

/* The slot of message n: its sequence number, then the message. */
FLEET_HOST_DEVICE uint32_t *fleeti_message_slot(const fleet_ring *ring, uint32_t n)
{
    return ring->slots + (size_t)(n & ring->mask) * ring->stride;
}
/* The number of the next message that the popping end reads, in a line of its own. Host threads
   have 64 bits of it. */
FLEET_HOST_DEVICE uint32_t *fleeti_message_popped(const fleet_ring *ring)
{
    return ring->slots - FLEETI_EVENT_LINE;
}
/* An empty ring whose next message has this number. By the host, which addresses the ring's memory
   by *host. */
FLEET_HOST_DEVICE void fleeti_ring_begin(fleet_ring *host, fleet_ring *device, uint32_t first)
{
    *(uint64_t *)(void *)fleeti_message_popped(host) = first;
    for (uint32_t i = 0; i <= host->mask; i++) *fleeti_message_slot(host, first + i) = first + i;
    host->position = device->position = first;
    host->popped = device->popped = first;
}

/* This end's fields, in registers. */
FLEET_DEVICE fleet_ring fleeti_message_ring(const fleet_ring *ring)
{
    fleet_ring here = *ring;
    here.position = fleeti_uniform64(here.position);
    here.mask = fleeti_uniform(here.mask);
    here.words = fleeti_uniform(here.words);
    here.stride = fleeti_uniform(here.stride);
    here.popped = fleeti_uniform(here.popped);
    return here;
}

/* How many of the next `most` slots from message n on hold their message, as far as the lanes
   reach. */
FLEET_DEVICE uint32_t fleeti_messages_ready(const fleet_ring *here, uint32_t n, uint32_t most)
{
    const uint32_t lane = fleet_lane();
    uint32_t ready = 0;
    if (lane < most && lane < 32)
        ready = fleeti_poll_system(fleeti_message_slot(here, n + lane)) == n + lane + 1;
    ready = fleeti_ballot(ready);
    return fleeti_popcount32(ready & ~(ready + 1));
}

/* As many as hold their message, of `most`; `found` are known to. */
FLEET_DEVICE uint32_t fleeti_messages_count(const fleet_ring *here, uint32_t found, uint32_t most)
{
    const uint32_t n = (uint32_t)here->position;
    uint32_t more = 1;
    while (more && found < most) { /* bounded by `most` */
        more = fleeti_messages_ready(here, n + found, most - found);
        found += more;
    }
    return found;
}

/* How many of `most` messages there is room for. Looks at the other end only where there may be too
   little. The load acquires no data: only stores follow it (edge 27). */
FLEET_DEVICE uint32_t fleeti_messages_room(fleet_ring *here, uint32_t most)
{
    const uint32_t end = (uint32_t)here->position - here->mask - 1; /* popped before: it is free */
    if (here->popped - end < most)
        here->popped = fleeti_first(fleeti_poll_system(fleeti_message_popped(here)));
    return here->popped - end < most ? here->popped - end : most;
}

FLEET_DEVICE uint32_t fleet_ring_room(const fleet_ring *ring, uint32_t most)
{
    fleet_ring here = fleeti_message_ring(ring);
    return fleeti_messages_room(&here, most);
}

FLEET_DEVICE uint32_t fleet_ring_try_push(fleet_ring *ring, const void *messages, uint32_t n)
{
    fleet_ring here = fleeti_message_ring(ring);
    const uint32_t lane = fleet_lane(), lanes = fleet_wave_size();
    const uint32_t first = (uint32_t)here.position;
    const uint32_t room = fleeti_messages_room(&here, n);
    const fleeti_any4 *from = (const fleeti_any4 *)messages;
    if (!room) return 0;
    fleet_wave_barrier(); /* the messages may be of other lanes */
    for (uint32_t i = lane; i < room * here.words; i += lanes)
        fleeti_store_racing(fleeti_message_slot(&here, first + i / here.words) + 1 + i % here.words,
                            from[i]);
    /* Edge 26: publishes the messages, which all lanes stored, to the host threads that pop them.
       Pair: the load of the sequence in fleeti_message_next. */
    fleeti_drain();
    fleet_wave_barrier();
    fleeti_write_back_system();
    for (uint32_t i = lane; i < room; i += lanes)
        fleeti_publish_system(fleeti_message_slot(&here, first + i), first + i + 1);
    if (lane == 0) ring->position = here.position + room, ring->popped = here.popped;
    fleet_wave_barrier();
    return room;
}

FLEET_DEVICE uint32_t fleet_ring_try_pop(fleet_ring *ring, void *messages, uint32_t most)
{
    const fleet_ring here = fleeti_message_ring(ring);
    const uint32_t lane = fleet_lane(), lanes = fleet_wave_size();
    const uint32_t first = (uint32_t)here.position;
    fleeti_any4 *to = (fleeti_any4 *)messages;
    /* One slot first: while the ring is empty, no other is looked at. */
    uint32_t found = fleeti_messages_ready(&here, first, most ? 1 : 0);
    if (!found) return 0;
    found = fleeti_messages_count(&here, found, most);
    /* Edge 26: acquires what the pushing threads published, for all lanes. Pair: the store of the
       sequence in fleet_ring_push. */
    fleeti_invalidate_system();
    fleet_wave_barrier();
    for (uint32_t i = lane; i < found * here.words; i += lanes)
        to[i] = fleeti_message_slot(&here, first + i / here.words)[1 + i % here.words];
    /* Edge 27: the loads of all lanes have returned before their slots are free. Pair: the load of
       this word in fleeti_message_next. */
    fleet_wave_barrier();
    if (lane == 0) {
        fleeti_publish_system(fleeti_message_popped(&here), first + found);
        ring->position = here.position + found;
    }
    fleet_wave_barrier();
    return found;
}

/* ==== >>pages: the allocator ==== */

FLEET_HOST_DEVICE uint32_t fleeti_pages_buckets(uint32_t pages)
{
    uint32_t buckets = 1;
    while (buckets < pages) buckets *= 2; /* bounded by the bits */
    return buckets;
}
FLEET_HOST_DEVICE size_t fleet_pages_bytes(uint32_t pages, uint32_t page_tokens)
{
    if (!pages || !page_tokens || pages > 1u << 30 || page_tokens > 1u << 20) return 0;
    return sizeof(fleet_pages) + (size_t)pages * (sizeof(fleeti_page) + (size_t)page_tokens * 4) +
           (size_t)fleeti_pages_buckets(pages) * 4;
}
FLEET_HOST_DEVICE fleeti_page *fleeti_pages_at(const fleet_pages *p, uint32_t page)
{
    return (fleeti_page *)(uintptr_t)(p + 1) + page;
}
FLEET_HOST_DEVICE uint32_t *fleeti_pages_bucket(const fleet_pages *p, uint32_t bucket)
{
    return (uint32_t *)fleeti_pages_at(p, p->pages) + bucket;
}
FLEET_HOST_DEVICE uint32_t *fleeti_pages_tokens(const fleet_pages *p, uint32_t page)
{
    return fleeti_pages_bucket(p, p->buckets) + (size_t)page * p->page_tokens;
}

FLEET_HOST_DEVICE fleet_status fleet_pages_init(fleet_pages *p, uint32_t pages,
                                                uint32_t page_tokens)
{
    if (!p) return FLEET_ERROR_NULL;
    if (!fleet_pages_bytes(pages, page_tokens)) return FLEET_ERROR_ARGUMENT;
    p->pages = pages, p->page_tokens = page_tokens, p->buckets = fleeti_pages_buckets(pages);
    p->reserved = 0, p->free = pages, p->cached = 0;
    p->first_free = 0, p->oldest = p->newest = FLEET_PAGES_NONE;
    p->pad = 0, p->key = 0;
    for (uint32_t i = 0; i < pages; i++) {
        fleeti_page *page = fleeti_pages_at(p, i);
        page->references = 0, page->key = page->parent = 0;
        page->next = i + 1 < pages ? i + 1 : FLEET_PAGES_NONE;
        page->previous = page->chain = FLEET_PAGES_NONE;
    }
    for (uint32_t i = 0; i < p->buckets; i++) *fleeti_pages_bucket(p, i) = FLEET_PAGES_NONE;
    return FLEET_OK;
}

FLEET_HOST_DEVICE uint32_t fleet_pages_available(const fleet_pages *p)
{
    return p->free + p->cached - p->reserved;
}
FLEET_HOST_DEVICE uint32_t fleet_pages_total(const fleet_pages *p)
{
    return p->pages;
}

FLEET_HOST_DEVICE uint32_t fleeti_pages_hash(const fleet_pages *p, uint64_t parent,
                                             const uint32_t *tokens)
{
    uint32_t hash = (uint32_t)parent * 0x9e3779b1u ^ (uint32_t)(parent >> 32);
    for (uint32_t i = 0; i < p->page_tokens; i++) {
        hash = (hash ^ tokens[i]) * 0x85ebca6bu;
        hash ^= hash >> 15;
    }
    return hash & (p->buckets - 1);
}

/* The cached page with these tokens after the page `parent`, and in *length, how many pages its
   bucket has before it. */
FLEET_HOST_DEVICE uint32_t fleeti_pages_find(const fleet_pages *p, uint64_t parent,
                                             const uint32_t *tokens, uint32_t bucket,
                                             uint32_t *length)
{
    uint32_t page = *fleeti_pages_bucket(p, bucket);
    for (*length = 0; page != FLEET_PAGES_NONE; page = fleeti_pages_at(p, page)->chain, ++*length) {
        const uint32_t *its = fleeti_pages_tokens(p, page);
        uint32_t differ = 0; /* without a branch for each token: the loads overlap */
        if (fleeti_pages_at(p, page)->parent != parent) continue;
        for (uint32_t i = 0; i < p->page_tokens; i++) differ |= its[i] ^ tokens[i];
        if (!differ) break;
    }
    return page;
}

/* Takes a cached page out of the list of those without references. */
FLEET_HOST_DEVICE void fleeti_pages_unlist(fleet_pages *p, uint32_t page)
{
    const fleeti_page *it = fleeti_pages_at(p, page);
    *(it->previous == FLEET_PAGES_NONE ? &p->oldest : &fleeti_pages_at(p, it->previous)->next) =
        it->next;
    *(it->next == FLEET_PAGES_NONE ? &p->newest : &fleeti_pages_at(p, it->next)->previous) =
        it->previous;
    p->cached--;
}

FLEET_HOST_DEVICE fleet_status fleet_pages_admit(fleet_pages *p, const uint32_t *tokens, uint32_t n,
                                                 uint32_t need, uint32_t *table, fleet_admission *a)
{
    const uint32_t whole = n / p->page_tokens < need ? n / p->page_tokens : need;
    uint32_t idle = 0, reused = 0; /* idle: those of the reused pages that nothing references yet */
    uint64_t key = 0;
    if (!a) return FLEET_ERROR_NULL;
    a->reserved = a->reused = 0, a->key = 0;
    if (whole && (!tokens || !table)) return FLEET_ERROR_NULL;
    if (need > p->pages) return FLEET_ERROR_ARGUMENT;
    for (; reused < whole; reused++) {
        const uint32_t *its = tokens + (size_t)reused * p->page_tokens;
        uint32_t length;
        uint32_t page = fleeti_pages_find(p, key, its, fleeti_pages_hash(p, key, its), &length);
        if (page == FLEET_PAGES_NONE) break;
        idle += !fleeti_pages_at(p, page)->references;
        key = fleeti_pages_at(p, page)->key;
        table[reused] = page;
    }
    /* An idle page that is referenced cannot be evicted for a reservation any more. */
    if (need - reused + idle > fleet_pages_available(p)) return FLEET_ERROR_BUSY;
    for (uint32_t i = 0; i < reused; i++) {
        fleeti_page *page = fleeti_pages_at(p, table[i]);
        if (!page->references++) fleeti_pages_unlist(p, table[i]);
    }
    a->reserved = need - reused, a->reused = reused, a->key = key;
    p->reserved += a->reserved;
    return FLEET_OK;
}

/* Takes the least recently used page out of the cache. */
FLEET_HOST_DEVICE uint32_t fleeti_pages_evict(fleet_pages *p)
{
    const uint32_t page = p->oldest;
    fleeti_page *it = fleeti_pages_at(p, page);
    uint32_t *link =
        fleeti_pages_bucket(p, fleeti_pages_hash(p, it->parent, fleeti_pages_tokens(p, page)));
    /* bounded by FLEETI_PAGES_CHAIN */
    while (*link != page) link = &fleeti_pages_at(p, *link)->chain;
    *link = it->chain;
    fleeti_pages_unlist(p, page);
    it->key = 0;
    return page;
}

FLEET_HOST_DEVICE uint32_t fleet_pages_allocate(fleet_pages *p, fleet_admission *a)
{
    uint32_t page;
    if (!a->reserved) return FLEET_PAGES_NONE;
    a->reserved--, p->reserved--;
    if (p->free) {
        page = p->first_free;
        p->first_free = fleeti_pages_at(p, page)->next;
        p->free--;
    } else {
        page = fleeti_pages_evict(p);
    }
    fleeti_pages_at(p, page)->references = 1;
    return page;
}

FLEET_HOST_DEVICE fleet_status fleet_pages_share(fleet_pages *p, uint32_t page)
{
    if (page >= p->pages || !fleeti_pages_at(p, page)->references) return FLEET_ERROR_ARGUMENT;
    fleeti_pages_at(p, page)->references++;
    return FLEET_OK;
}

FLEET_HOST_DEVICE fleet_status fleet_pages_insert(fleet_pages *p, fleet_admission *a, uint32_t page,
                                                  const uint32_t *tokens)
{
    fleeti_page *it = fleeti_pages_at(p, page);
    uint32_t length;
    if (page >= p->pages || !it->references || it->key) return FLEET_ERROR_ARGUMENT;
    if (a->key == FLEETI_PAGES_NO_KEY) return FLEET_OK;
    uint32_t bucket = fleeti_pages_hash(p, a->key, tokens);
    uint32_t same = fleeti_pages_find(p, a->key, tokens, bucket, &length);
    if (same != FLEET_PAGES_NONE) {
        a->key = fleeti_pages_at(p, same)->key;
    } else if (length >= FLEETI_PAGES_CHAIN) {
        a->key = FLEETI_PAGES_NO_KEY;
    } else {
        for (uint32_t i = 0; i < p->page_tokens; i++) fleeti_pages_tokens(p, page)[i] = tokens[i];
        it->parent = a->key, it->key = a->key = ++p->key;
        it->chain = *fleeti_pages_bucket(p, bucket);
        *fleeti_pages_bucket(p, bucket) = page;
    }
    return FLEET_OK;
}

FLEET_HOST_DEVICE fleet_status fleet_pages_release(fleet_pages *p, uint32_t page)
{
    fleeti_page *it = fleeti_pages_at(p, page);
    if (page >= p->pages || !it->references) return FLEET_ERROR_ARGUMENT;
    if (--it->references) return FLEET_OK;
    if (it->key) {
        it->next = FLEET_PAGES_NONE, it->previous = p->newest;
        *(p->newest == FLEET_PAGES_NONE ? &p->oldest : &fleeti_pages_at(p, p->newest)->next) = page;
        p->newest = page;
        p->cached++;
    } else {
        it->next = p->first_free;
        p->first_free = page;
        p->free++;
    }
    return FLEET_OK;
}

FLEET_HOST_DEVICE fleet_status fleet_pages_finish(fleet_pages *p, fleet_admission *a,
                                                  const uint32_t *table, uint32_t n)
{
    fleet_status status = FLEET_OK;
    /* Pages at the end of a prefix are evicted before those at its begin, without which they are of
       no use. */
    while (n--) { /* bounded by n */
        const fleet_status released = fleet_pages_release(p, table[n]);
        if (released) status = released;
    }
    p->reserved -= a->reserved;
    a->reserved = 0, a->key = 0;
    return status;
}

/* ==== >>requests: the table, and the life of a request ==== */

/* ---- table: what tasks read ---- */

FLEET_DEVICE fleet_slot *fleet_table_slot(const fleet_table *t, uint32_t slot)
{
    return t->slots + slot;
}
FLEET_HOST_DEVICE uint32_t fleeti_prompt_stride(const fleet_server_desc *d)
{
    return d->words + d->prompt_tokens;
}
FLEET_DEVICE const uint32_t *fleeti_words(const fleet_table *t, uint32_t slot)
{
    return t->prompts + (size_t)slot * fleeti_prompt_stride(&t->desc);
}
FLEET_DEVICE const uint32_t *fleeti_prompt(const fleet_table *t, uint32_t slot)
{
    return fleeti_words(t, slot) + t->desc.words;
}
FLEET_DEVICE uint32_t *fleeti_page_table(const fleet_table *t, uint32_t slot)
{
    return t->page_tables + (size_t)slot * t->pages_of_slot;
}
FLEET_DEVICE fleet_batch *fleeti_batch_of(const fleet_table *t, uint32_t pool, uint32_t half)
{
    char *batches = (char *)(void *)t->batches;
    return (fleet_batch *)(void *)(batches + (2 * pool + half) * t->batch_bytes);
}
FLEET_DEVICE fleeti_result *fleeti_result_of(const fleet_table *t, uint32_t pool, uint32_t i)
{
    return t->results + pool * (t->desc.decode_rows + 1) + i;
}
FLEET_DEVICE fleet_row *fleeti_suspended(const fleet_table *t, uint32_t pool)
{
    return t->suspended + pool * t->desc.decode_rows;
}
FLEET_DEVICE fleet_row *fleeti_decode_rows(fleet_batch *b)
{
    return (fleet_row *)(void *)(b + 1);
}

FLEET_DEVICE const fleet_batch *fleet_table_batch(const fleet_table *t, uint32_t pool,
                                                  uint32_t step)
{
    return fleeti_batch_of(t, pool, step % 2);
}

FLEET_DEVICE fleet_row fleet_batch_row(const fleet_batch *b, uint32_t i, uint32_t layer)
{
    const uint32_t chunk = i - b->decode_rows;
    fleet_row row;
    row.slot = row.generation = row.position = 0;
    row.kind = FLEET_ROW_NONE;
    if (i < b->decode_rows) {
        if (layer >= b->decode_begin && layer < b->decode_end)
            row = ((const fleet_row *)(const void *)(b + 1))[i];
    } else if (chunk < b->chunk_rows && layer >= b->chunk_begin && layer < b->chunk_end) {
        row = b->chunk;
        row.position += chunk;
        if (chunk + 1 < b->chunk_rows) row.kind = FLEET_ROW_CHUNK;
    }
    return row;
}

FLEET_DEVICE uint32_t fleet_row_token(const fleet_table *t, fleet_row row)
{
    return row.kind == FLEET_ROW_DECODE ? t->slots[row.slot].token
                                        : fleeti_prompt(t, row.slot)[row.position];
}

FLEET_DEVICE const uint32_t *fleet_row_pages(const fleet_table *t, fleet_row row)
{
    return fleeti_page_table(t, row.slot);
}

FLEET_DEVICE const uint32_t *fleet_row_words(const fleet_table *t, fleet_row row)
{
    return fleeti_words(t, row.slot);
}

FLEET_DEVICE void fleet_row_result(const fleet_table *t, uint32_t pool, uint32_t step, uint32_t i,
                                   uint32_t result, uint32_t token)
{
    const uint32_t decode_rows = fleeti_batch_of(t, pool, step % 2)->decode_rows;
    fleeti_result *r = fleeti_result_of(t, pool, i < decode_rows ? i : t->desc.decode_rows);
    r->result = result, r->token = token;
}

/* ---- table: the life of a request ---- */

/* Functions of this section and of >>policies and >>boundaries run in one lane, unless they say
   otherwise.

   A boundary holds up all workers, so the lanes of its wave share what is done for each request: a
   lane has a slot, or FLEET_NONE. What changes more than its own slot is done by one lane at a time
   (FLEETI_ONE_BY_ONE). Barriers of the wave order both. */

/* Lanes that share: a vote has a bit for each of them. */
FLEET_DEVICE uint32_t fleeti_sharers(void)
{
    return fleet_wave_size() < 32 ? fleet_wave_size() : 32;
}
/* The slot that the lane has of those from `first` on. */
FLEET_DEVICE uint32_t fleeti_own_slot(const fleet_table *t, uint32_t first)
{
    const uint32_t slot = first + fleet_lane();
    return fleet_lane() < fleeti_sharers() && slot < t->slots_used ? slot : FLEET_NONE;
}
FLEET_DEVICE uint32_t fleeti_votes_before(uint32_t votes)
{
    return fleeti_popcount32(votes & ((1u << fleet_lane() % 32) - 1));
}
/* FLEETI_ONE_BY_ONE(turns, vote) runs its body in each lane that votes for it, one after the other;
   all lanes of the wave come here. */
#define FLEETI_ONE_BY_ONE(turns, vote)                                                             \
    FLEETI_ROLLED                                                                                  \
    for (uint32_t turns = fleeti_ballot(vote); turns; fleet_wave_barrier(), turns &= turns - 1)    \
        if (fleeti_popcount32((turns & (0u - turns)) - 1) == fleet_lane())

FLEET_DEVICE void fleeti_enter_phase(fleet_table *t, fleet_slot *s, fleet_phase phase)
{
    t->in_phase[s->phase][s->priority]--;
    if (phase != FLEET_PHASE_ENDED) t->in_phase[phase][s->priority]++;
    s->phase = phase;
}
/* Requests in a phase, of the classes in the bit mask `classes`. */
FLEET_DEVICE uint32_t fleeti_count_in(const fleet_table *t, fleet_phase phase, uint32_t classes)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < 2; k++) n += classes >> k & 1 ? t->in_phase[phase][k] : 0;
    return n;
}
#define FLEETI_BOTH 3u
#define FLEETI_REACTIVE (1u << FLEET_REACTIVE)
#define FLEETI_PROACTIVE (1u << FLEET_PROACTIVE)

FLEET_DEVICE uint32_t fleeti_in_use(const fleet_slot *s)
{
    return s->phase != FLEET_PHASE_FREE && s->phase != FLEET_PHASE_ENDED;
}
/* It may yield its next token now. */
FLEET_DEVICE uint32_t fleeti_ready(const fleet_slot *s)
{
    return s->phase == FLEET_PHASE_DECODE &&
           !(s->flags & (FLEET_SLOT_RUNNING | FLEET_SLOT_CANCELLED | FLEET_SLOT_UNSENT));
}
FLEET_DEVICE uint32_t fleeti_length(const fleet_slot *s)
{
    return s->prompt_tokens + s->generated;
}

FLEETI_OUTLINED uint32_t fleeti_admit(fleet_table *t, uint32_t slot)
{
    fleet_slot *s = t->slots + slot;
    if (s->phase != FLEET_PHASE_QUEUED || (s->flags & FLEET_SLOT_CANCELLED)) return 0;
    /* The last token of a prompt is computed anew in any case: it yields the first token. */
    if (fleet_pages_admit(t->pages, fleeti_prompt(t, slot), s->prompt_tokens - 1, s->pages,
                          fleeti_page_table(t, slot), &s->admission))
        return 0;
    t->pages_used[s->priority] += s->pages;
    s->allocated = s->admission.reused;
    s->prefilled = s->admission.reused * t->desc.page_tokens;
    fleeti_enter_phase(t, s, FLEET_PHASE_PREFILL);
    return 1;
}
FLEET_DEVICE uint32_t fleet_table_admit(fleet_table *t, uint32_t slot)
{
    return fleeti_admit(t, slot);
}

FLEET_DEVICE uint32_t fleet_table_join(fleet_table *t, uint32_t slot)
{
    fleet_slot *s = t->slots + slot;
    if (s->flags & FLEET_SLOT_JOINED) return 1;
    if (s->phase != FLEET_PHASE_DECODE) return 0;
    if (t->joined >= t->desc.decode_rows) return 0;
    s->flags |= FLEET_SLOT_JOINED;
    t->joined++;
    return 1;
}

FLEET_DEVICE void fleet_table_evict(fleet_table *t, uint32_t slot)
{
    fleet_slot *s = t->slots + slot;
    t->joined -= s->flags & FLEET_SLOT_JOINED ? 1 : 0;
    s->flags &= ~FLEET_SLOT_JOINED;
}

/* Pages for the first `tokens` tokens of the sequence, out of its reservation. */
FLEET_DEVICE void fleeti_extend(fleet_table *t, uint32_t slot, uint32_t tokens)
{
    fleet_slot *s = t->slots + slot;
    /* bounded by the pages */
    while (s->allocated * t->desc.page_tokens < tokens)
        fleeti_page_table(t, slot)[s->allocated++] = fleet_pages_allocate(t->pages, &s->admission);
}

/* A notice of each lane whose `is` is 1. By all lanes. */
FLEET_DEVICE void fleeti_notify_host(fleet_table *t, uint32_t slot, uint32_t is, uint32_t kind,
                                     uint64_t now)
{
    const uint32_t all = fleeti_ballot(is);
    if (!all) return;
    if (is) {
        const fleet_slot *s = t->slots + slot;
        fleeti_notice *n = t->outbox + t->outgoing + fleeti_votes_before(all);
        n->slot = slot, n->generation = s->generation;
        n->kind = kind;
        n->detail = kind == FLEET_EVENT_TOKEN ? s->admission.reused : s->status;
        n->token = s->token;
        n->index = s->generated - (kind == FLEET_EVENT_TOKEN ? 1 : 0);
        n->tick[0] = (uint32_t)now, n->tick[1] = (uint32_t)(now >> 32);
        n->begun[0] = (uint32_t)s->begun, n->begun[1] = (uint32_t)(s->begun >> 32);
    }
    fleet_wave_barrier(); /* all lanes have read how many there were */
    if (fleet_lane() == 0) t->outgoing += fleeti_popcount32(all);
    fleet_wave_barrier();
}

/* Sends what the host has room for: the last token, and the end. The end needs no room: the ring
   has a place for each request's last event. By all lanes. */
FLEETI_OUTLINED void fleeti_send(fleet_table *t, uint32_t slot, uint64_t now)
{
    fleet_slot *s = t->slots + (slot == FLEET_NONE ? 0 : slot);
    uint32_t token = 0, end = 0, kind = FLEET_EVENT_FINISHED;
    if (t->is_full) return;
    if (slot != FLEET_NONE && (s->flags & FLEET_SLOT_UNSENT)) {
        const fleeti_desk_slot *desk = (const fleeti_desk_slot *)(const void *)(t->desk + 1) + slot;
        const uint32_t sent = s->generated - 1;
        /* Relaxed, and read only when the room that is known is used up: no data follows. Pair:
           fleet_server_release. */
        if (!s->room)
            s->room =
                t->desc.events -
                (sent - fleet_load_relaxed_system((const uint32_t *)(const void *)&desk->released));
        token = s->room != 0;
        if (token) s->room--, s->flags &= ~FLEET_SLOT_UNSENT;
    }
    fleeti_notify_host(t, slot, token, FLEET_EVENT_TOKEN, now);
    end = slot != FLEET_NONE && s->phase == FLEET_PHASE_ENDED && !(s->flags & FLEET_SLOT_UNSENT);
    if (end && (s->flags & FLEET_SLOT_CANCELLED))
        kind = FLEET_EVENT_CANCELLED;
    else if (end && s->status)
        kind = FLEET_EVENT_FAILED;
    fleeti_notify_host(t, slot, end, kind, now);
    if (end) s->phase = FLEET_PHASE_FREE, s->flags = 0;
}

/* Gives all that a request holds back. What it has yielded is still sent. */
FLEETI_OUTLINED void fleeti_end(fleet_table *t, uint32_t slot, fleet_status status)
{
    fleet_slot *s = t->slots + slot;
    if (s->phase != FLEET_PHASE_QUEUED) {
        fleet_pages_finish(t->pages, &s->admission, fleeti_page_table(t, slot), s->allocated);
        t->pages_used[s->priority] -= s->pages;
    }
    fleet_table_evict(t, slot);
    s->allocated = 0;
    s->status = status;
    fleeti_enter_phase(t, s, FLEET_PHASE_ENDED);
}

/* A token, or none, for requests whose rows have run, and which decode. By all lanes. */
FLEETI_OUTLINED void fleeti_yield(fleet_table *t, uint32_t slot, const fleeti_result *result,
                                  uint64_t now)
{
    fleet_slot *s = t->slots + (slot == FLEET_NONE ? 0 : slot);
    fleet_status status = FLEET_OK;
    uint32_t ends = 0;
    if (slot != FLEET_NONE && (s->flags & FLEET_SLOT_CANCELLED)) slot = FLEET_NONE;
    if (slot != FLEET_NONE) {
        const fleeti_result got = *result;
        s->since = now;
        if (got.result == FLEET_RESULT_MORE || got.result == FLEET_RESULT_END) {
            s->token = got.token;
            s->generated++;
            s->flags |= FLEET_SLOT_UNSENT;
            ends = got.result == FLEET_RESULT_END || s->generated == s->max_tokens;
        } else {
            status = got.result && got.token ? (fleet_status)got.token : FLEET_ERROR_TILE;
            ends = 1;
        }
    }
    FLEETI_ONE_BY_ONE(ending, ends) fleeti_end(t, slot, status);
    fleeti_send(t, slot, now);
    /* Where the host does not read, only this request waits, and takes no place in the batch. */
    uint32_t waits = slot != FLEET_NONE && (s->flags & FLEET_SLOT_UNSENT);
    FLEETI_ONE_BY_ONE(waiting, waits) fleet_table_evict(t, slot);
}

/* Ends cancelled requests that are in no batch, and sends what had to wait. By all lanes. */
FLEETI_OUTLINED void fleeti_settle(fleet_table *t, uint64_t now)
{
    for (uint32_t first = 0; first < t->slots_used; first += fleeti_sharers()) {
        const uint32_t slot = fleeti_own_slot(t, first);
        fleet_slot *s = t->slots + (slot == FLEET_NONE ? 0 : slot);
        uint32_t ends = 0, sends = 0;
        if (slot != FLEET_NONE && s->phase != FLEET_PHASE_FREE) {
            if ((s->flags & FLEET_SLOT_CANCELLED) && !(s->flags & FLEET_SLOT_RUNNING)) {
                if (s->flags & FLEET_SLOT_UNSENT) s->generated--; /* the host does not get it */
                s->flags &= ~FLEET_SLOT_UNSENT;
                ends = s->phase != FLEET_PHASE_ENDED;
            }
            sends = ends || s->phase == FLEET_PHASE_ENDED || (s->flags & FLEET_SLOT_UNSENT);
        }
        if (!fleeti_ballot(sends)) continue;
        FLEETI_ONE_BY_ONE(ending, ends) fleeti_end(t, slot, FLEET_ERROR_ABORTED);
        fleeti_send(t, sends ? slot : FLEET_NONE, now);
    }
    fleet_wave_barrier();  /* all lanes have read how many slots there are */
    if (fleet_lane() == 0) /* bounded by the slots */
        while (t->slots_used && t->slots[t->slots_used - 1].phase == FLEET_PHASE_FREE)
            t->slots_used--;
    fleet_wave_barrier();
}

/* ---- table: taking in ---- */

FLEET_DEVICE const uint32_t *fleet_table_news(const fleet_table *t, uint32_t *seen)
{
    *seen = t->changes;
    return &t->desk->changes.word;
}

#define FLEETI_PROMPT_LOADS 8u
/* By all lanes of a wave. */
FLEET_DEVICE void fleeti_receive(fleet_table *t, const fleeti_submission *m, uint64_t now)
{
    const size_t at = (size_t)m->slot * fleeti_prompt_stride(&t->desc);
    const uint32_t *from = t->host_prompts + at, n = t->desc.words + m->prompt_tokens;
    uint32_t *to = t->prompts + at;
    fleet_slot *s = t->slots + m->slot;
    /* Across the bus, so that a lane has several loads in flight. Those past the end repeat the
       last one. */
    for (uint32_t i = fleet_lane(); i < n; i += FLEETI_PROMPT_LOADS * fleet_wave_size()) {
        uint32_t some[FLEETI_PROMPT_LOADS];
        FLEETI_UNROLLED
        for (uint32_t k = 0; k < FLEETI_PROMPT_LOADS; k++) {
            const uint32_t of = i + k * fleet_wave_size();
            some[k] = from[of < n ? of : n - 1];
        }
        FLEETI_UNROLLED
        for (uint32_t k = 0; k < FLEETI_PROMPT_LOADS; k++)
            if (i + k * fleet_wave_size() < n) to[i + k * fleet_wave_size()] = some[k];
    }
    if (fleet_lane() != 0) return;
    if (m->slot >= t->slots_used) t->slots_used = m->slot + 1;
    s->generation = m->generation;
    t->in_phase[FLEET_PHASE_QUEUED][m->priority]++;
    s->phase = FLEET_PHASE_QUEUED;
    s->flags = t->stop == FLEETI_STOP_NOW ? FLEET_SLOT_CANCELLED : 0;
    s->priority = m->priority;
    s->order = t->order++;
    s->prompt_tokens = m->prompt_tokens, s->max_tokens = m->max_tokens;
    s->prefilled = s->chunk = s->layer = s->generated = s->token = 0;
    s->pages = (m->prompt_tokens + m->max_tokens + t->desc.page_tokens - 1) / t->desc.page_tokens;
    s->allocated = s->status = 0;
    s->room = t->desc.events;
    s->since = now, s->begun = 0;
    s->admission.reserved = s->admission.reused = 0, s->admission.key = 0;
}

/* Takes in submissions, cancels and the stop. By all lanes of a wave. */
FLEETI_OUTLINED void fleeti_take_in(fleet_table *t, uint64_t now)
{
    const fleeti_desk *desk = t->desk;
    /* Acquires what host threads did before they counted it. Pair: fleeti_desk_changed (edge 31).
       Cancels are read before the ring: a request whose cancel is counted here was submitted
       before, and is in the ring. */
    const uint32_t changes = fleeti_first(fleet_load_acquire_system(&desk->changes.word));
    uint32_t n;
    if (changes == t->changes) return;
    uint32_t cancels = fleeti_first(fleet_load_acquire_system(&desk->cancels.word));
    /* What lane 0 has acquired comes before what the other lanes load, as in fleeti_await_pool. */
    fleet_wave_barrier();
    /* bounded by the entries of the table: none becomes free meanwhile */
    while ((n = fleet_ring_try_pop(&t->submissions, t->inbox, FLEETI_INBOX))) {
        for (uint32_t i = 0; i < n; i++) fleeti_receive(t, t->inbox + i, now);
        fleet_wave_barrier();
    }
    if (fleet_lane() == 0 && cancels != t->cancels) {
        const fleeti_desk_slot *of = (const fleeti_desk_slot *)(const void *)(desk + 1);
        t->stop = fleet_load_relaxed_system(&desk->stop.word);
        for (uint32_t i = 0; i < t->slots_used; i++) {
            fleet_slot *s = t->slots + i;
            if (!fleeti_in_use(s) && !(s->flags & FLEET_SLOT_UNSENT)) continue;
            if (t->stop == FLEETI_STOP_NOW ||
                fleet_load_relaxed_system(&of[i].cancelled) == s->generation)
                s->flags |= FLEET_SLOT_CANCELLED;
        }
    }
    fleet_wave_barrier();
    if (fleet_lane() == 0) t->changes = changes, t->cancels = cancels, t->news++;
    fleet_wave_barrier();
}

/* ==== >>policies: which requests run ==== */

/* ---- policy: prediction ---- */

FLEET_HOST_DEVICE float fleeti_effective_operations(const fleet_roofline *r)
{
    const float measured = r->u_c * r->peak_bytes_per_ns * r->i_c;
    return measured < r->peak_operations_per_ns ? measured : r->peak_operations_per_ns;
}
FLEET_HOST_DEVICE float fleet_roofline_ns(const fleet_roofline *r, fleet_work work)
{
    const float bandwidth = r->u_m * r->peak_bytes_per_ns;
    const float operations = fleeti_effective_operations(r);
    if (!(bandwidth > 0 && operations > 0)) return 0;
    return work.operations / operations > work.bytes / bandwidth ? work.operations / operations
                                                                 : work.bytes / bandwidth;
}
FLEET_HOST_DEVICE float fleet_roofline_share(const fleet_roofline *r, fleet_work work)
{
    if (!(work.operations > 0) || work.bytes * r->u_c * r->i_c > work.operations * r->u_m)
        return r->u_m;
    return r->u_c * r->i_c * work.bytes / work.operations;
}
/* Whether its intensity is below the knee P_eff / B_eff. */
FLEET_HOST_DEVICE uint32_t fleeti_memory_bound(const fleet_roofline *r, fleet_work work)
{
    return work.operations * r->u_m * r->peak_bytes_per_ns <
           work.bytes * fleeti_effective_operations(r);
}

/* An iteration with so many decode rows, that read `context` earlier tokens in all, and a chunk of
   so many rows from `position` on. Rows of a chunk read earlier tokens together. */
FLEET_HOST_DEVICE fleet_work fleeti_iteration_work(const fleet_server_desc *d, uint32_t rows,
                                                   uint32_t context, uint32_t chunk,
                                                   uint32_t position)
{
    const float all = (float)(rows + chunk), c = (float)chunk, before = (float)position;
    const float pairs = (float)context + c * (before + c / 2);
    fleet_work work;
    work.operations = d->pass.operations + all * d->row.operations + pairs * d->context.operations;
    work.bytes = d->pass.bytes + all * d->row.bytes +
                 ((float)context + (chunk ? before + c : 0)) * d->context.bytes;
    return work;
}

/* ---- policy: fifo ---- */

/* What policies look at in a slot. Several are loaded at once: one after the other they take
   long. */
#define FLEETI_HEADS 4u
typedef struct fleeti_head {
    uint32_t phase, flags, priority, order, length;
} fleeti_head;
/* Of the slots from `first` on; those past the last one are free. */
FLEET_DEVICE void fleeti_heads(const fleet_table *t, uint32_t first, fleeti_head *head)
{
    FLEETI_UNROLLED
    for (uint32_t k = 0; k < FLEETI_HEADS; k++) {
        const fleet_slot *s = t->slots + (first + k < t->slots_used ? first + k : first);
        head[k].phase = s->phase, head[k].flags = s->flags;
        head[k].priority = s->priority, head[k].order = s->order;
        head[k].length = fleeti_length(s);
    }
    FLEETI_UNROLLED
    for (uint32_t k = 0; k < FLEETI_HEADS; k++)
        if (first + k >= t->slots_used) head[k].phase = FLEET_PHASE_FREE, head[k].flags = 0;
}

/* The oldest request in a phase, of the classes in the bit mask `classes`, that has none of the
   flags `without` and all of `with`. */
FLEETI_OUTLINED uint32_t fleeti_oldest(const fleet_table *t, fleet_phase phase, uint32_t classes,
                                       uint32_t with, uint32_t without)
{
    uint32_t oldest = FLEET_NONE, order = 0;
    if (!fleeti_count_in(t, phase, classes)) return FLEET_NONE;
    for (uint32_t i = 0; i < t->slots_used; i += FLEETI_HEADS) {
        fleeti_head head[FLEETI_HEADS];
        fleeti_heads(t, i, head);
        FLEETI_UNROLLED
        for (uint32_t k = 0; k < FLEETI_HEADS; k++) {
            const fleeti_head *h = head + k;
            if (h->phase != (uint32_t)phase || !(classes >> h->priority & 1) ||
                (h->flags & with) != with || (h->flags & without))
                continue;
            if (oldest == FLEET_NONE || (int32_t)(h->order - order) < 0)
                oldest = i + k, order = h->order;
        }
    }
    return oldest;
}

/* The oldest request that could join the decode batch. */
FLEET_DEVICE uint32_t fleeti_joiner(const fleet_table *t, uint32_t classes, uint32_t with)
{
    if (t->joined == fleeti_count_in(t, FLEET_PHASE_DECODE, FLEETI_BOTH)) return FLEET_NONE;
    return fleeti_oldest(t, FLEET_PHASE_DECODE, classes, with,
                         FLEET_SLOT_JOINED | FLEET_SLOT_UNSENT | FLEET_SLOT_CANCELLED);
}

/* In order of arrival. */
FLEET_DEVICE void fleeti_fifo_admit(fleet_table *t, uint64_t now)
{
    uint32_t i;
    (void)now;
    /* bounded by the requests */
    do i = fleeti_oldest(t, FLEET_PHASE_QUEUED, FLEETI_BOTH, 0, FLEET_SLOT_CANCELLED);
    while (i != FLEET_NONE && fleet_table_admit(t, i));
}
FLEET_DEVICE uint32_t fleeti_fifo_prefill(fleet_table *t, uint32_t pool)
{
    (void)pool;
    return fleeti_oldest(t, FLEET_PHASE_PREFILL, FLEETI_BOTH, 0, FLEET_SLOT_CANCELLED);
}
FLEET_DEVICE void fleeti_fifo_decode(fleet_table *t, uint32_t pool, uint32_t chunk)
{
    uint32_t i;
    (void)pool, (void)chunk;
    do i = fleeti_joiner(t, FLEETI_BOTH, 0); /* bounded by the rows */
    while (i != FLEET_NONE && fleet_table_join(t, i));
}
FLEET_DEVICE uint32_t fleeti_fifo_preempts(const fleet_table *t, uint32_t pool, uint32_t slot)
{
    (void)t, (void)pool, (void)slot;
    return 0;
}
FLEET_DEVICE uint32_t fleeti_fifo_lends(const fleet_table *t)
{
    (void)t;
    return 0;
}

/* ---- policy: agent ---- */

/* Ageing: a proactive request that has waited too long is aged from then on. */
FLEET_DEVICE void fleeti_agent_age(fleet_table *t, uint64_t now)
{
    if (!fleeti_count_in(t, FLEET_PHASE_QUEUED, FLEETI_PROACTIVE) &&
        !fleeti_count_in(t, FLEET_PHASE_PREFILL, FLEETI_PROACTIVE) &&
        !fleeti_count_in(t, FLEET_PHASE_DECODE, FLEETI_PROACTIVE))
        return;
    for (uint32_t i = 0; i < t->slots_used; i++) {
        fleet_slot *s = t->slots + i;
        if (fleeti_in_use(s) && s->priority == FLEET_PROACTIVE &&
            now - s->since >= t->desc.age_ticks)
            s->flags |= FLEET_SLOT_AGED;
    }
}

/* Whether a request may reserve its pages while its class has `share` pages. */
FLEET_DEVICE uint32_t fleeti_agent_within(const fleet_table *t, uint32_t slot, uint32_t share)
{
    const fleet_slot *s = t->slots + slot;
    return t->pages_used[s->priority] + s->pages <= share;
}

/* Dual queues: each class is admitted in order of its arrival, reactive requests first. Proactive
   ones leave reactive_pages alone. While an aged one waits for pages, reactive ones are admitted to
   these only, so that the others become free for it. */
FLEET_DEVICE void fleeti_agent_admit(fleet_table *t, uint64_t now)
{
    const uint32_t shared = t->desc.pages - t->desc.reactive_pages;
    uint32_t admitted = 1;
    fleeti_agent_age(t, now);
    while (admitted) { /* bounded by the requests */
        const uint32_t r =
            fleeti_oldest(t, FLEET_PHASE_QUEUED, FLEETI_REACTIVE, 0, FLEET_SLOT_CANCELLED);
        const uint32_t p =
            fleeti_oldest(t, FLEET_PHASE_QUEUED, FLEETI_PROACTIVE, 0, FLEET_SLOT_CANCELLED);
        const uint32_t aged = p != FLEET_NONE && (t->slots[p].flags & FLEET_SLOT_AGED);
        admitted = 0;
        if (r != FLEET_NONE &&
            fleeti_agent_within(t, r, aged ? t->desc.reactive_pages : t->desc.pages))
            admitted = fleet_table_admit(t, r);
        if (!admitted && p != FLEET_NONE && (aged || r == FLEET_NONE) &&
            fleeti_agent_within(t, p, shared))
            admitted = fleet_table_admit(t, p);
    }
}

FLEET_DEVICE uint32_t fleeti_chunk_rows(const fleet_table *t, const fleet_slot *s)
{
    const fleet_server_desc *d = &t->desc;
    const uint32_t left = s->prompt_tokens - s->prefilled;
    /* Two pools, or stages, have decode rows in other iterations. */
    const uint32_t is_beside = d->beside_rows && t->joined && d->pools == 1 && !d->one_stage,
                   most = is_beside ? d->beside_rows : d->chunk_rows;
    return s->chunk ? s->chunk : left < most ? left : most;
}
/* The iteration of a chunk alone. */
FLEET_DEVICE fleet_work fleeti_chunk_work(const fleet_table *t, uint32_t slot)
{
    const fleet_slot *s = t->slots + slot;
    return fleeti_iteration_work(&t->desc, 0, 0, fleeti_chunk_rows(t, s), s->prefilled);
}
/* The iteration of decode rows alone: of the requests of one class that are in the pool's batch, or
   might be. */
FLEETI_OUTLINED fleet_work fleeti_decode_work(const fleet_table *t, fleet_class priority,
                                              uint32_t *rows)
{
    uint32_t context = 0;
    *rows = 0;
    for (uint32_t i = 0; i < t->slots_used; i++) {
        const fleet_slot *s = t->slots + i;
        if (s->phase != FLEET_PHASE_DECODE || s->priority != (uint32_t)priority ||
            (s->flags & (FLEET_SLOT_UNSENT | FLEET_SLOT_CANCELLED)))
            continue;
        *rows += 1;
        context += fleeti_length(s);
    }
    return fleeti_iteration_work(&t->desc, *rows, context, 0, 0);
}

/* Deferral, where two pools share the bandwidth: memory-bound work of the lower class waits while
   work of the higher class needs what it would take. */
FLEET_DEVICE uint32_t fleeti_agent_defers(const fleet_table *t, fleet_work high, fleet_work low)
{
    const fleet_roofline *r = &t->desc.roofline;
    return fleet_roofline_ns(r, low) > 0 && fleeti_memory_bound(r, low) &&
           fleet_roofline_share(r, high) + fleet_roofline_share(r, low) > 1;
}
FLEET_DEVICE uint32_t fleeti_agent_defers_prefill(const fleet_table *t, uint32_t slot)
{
    uint32_t rows;
    if (t->desc.pools != 2) return 0;
    fleet_work high = fleeti_decode_work(t, FLEET_REACTIVE, &rows);
    return rows && fleeti_agent_defers(t, high, fleeti_chunk_work(t, slot));
}
FLEET_DEVICE uint32_t fleeti_agent_defers_decode(const fleet_table *t)
{
    uint32_t rows;
    const uint32_t open = t->pool[0].open;
    const fleet_batch *b = fleeti_batch_of(t, 0, open ? open - 1 : 0);
    if (t->desc.pools != 2 || !open) return 0;
    fleet_work low = fleeti_decode_work(t, FLEET_PROACTIVE, &rows);
    return rows && b->chunk_rows && b->chunk_class == FLEET_REACTIVE &&
           fleeti_agent_defers(t, fleeti_chunk_work(t, b->chunk.slot), low);
}

/* The prompt of a class that goes on. A short one does not wait for the end of long ones, and these
   have every other chunk, so that they wait for short ones no longer than they take themselves. A
   chunk that has stopped between two layers goes on first: there is place for one of each class.
   *aged: the oldest prompt is an aged one, which goes before shorter ones. */
FLEET_DEVICE uint32_t fleeti_agent_prompt(fleet_table *t, fleet_class priority, uint32_t *aged)
{
    const uint32_t oldest =
        fleeti_oldest(t, FLEET_PHASE_PREFILL, 1u << priority, 0, FLEET_SLOT_CANCELLED);
    uint32_t shortest = oldest, least = UINT32_MAX;
    *aged = oldest != FLEET_NONE && (t->slots[oldest].flags & FLEET_SLOT_AGED);
    if (oldest == FLEET_NONE || t->desc.serial) return oldest;
    for (uint32_t i = 0; i < t->slots_used; i++) {
        const fleet_slot *s = t->slots + i;
        const uint32_t left = s->prompt_tokens - s->prefilled;
        if (s->phase != FLEET_PHASE_PREFILL || s->priority != (uint32_t)priority ||
            (s->flags & FLEET_SLOT_CANCELLED))
            continue;
        if (s->chunk) return i;
        if (left < least || (left == least && (int32_t)(s->order - t->slots[shortest].order) < 0))
            shortest = i, least = left;
    }
    if (shortest == oldest || *aged) return oldest;
    t->oldest_turn[priority] ^= 1;
    return t->oldest_turn[priority] ? shortest : oldest;
}

/* One prompt in each iteration. Piggyback: a proactive prompt runs only while no reactive one
   waits. Ageing: an aged one takes turns with reactive prompts, a chunk of its own for each of
   theirs. */
FLEET_DEVICE uint32_t fleeti_agent_prefill(fleet_table *t, uint32_t pool)
{
    uint32_t aged; /* the oldest proactive one */
    const uint32_t r = fleeti_agent_prompt(t, FLEET_REACTIVE, &aged);
    const uint32_t p = fleeti_agent_prompt(t, FLEET_PROACTIVE, &aged);
    (void)pool;
    if (r != FLEET_NONE) {
        const fleet_slot *s = t->slots + r;
        if (aged && t->aged_turn) {
            t->aged_turn = 0;
            return p;
        }
        if (s->prefilled + fleeti_chunk_rows(t, s) == s->prompt_tokens) t->aged_turn = 1;
        return r;
    }
    return p != FLEET_NONE && !aged && fleeti_agent_defers_prefill(t, p) ? FLEET_NONE : p;
}

/* Preemption at layer boundaries: proactive rows give way to a reactive prompt, aged ones do
   not. */
FLEET_DEVICE uint32_t fleeti_agent_preempts(const fleet_table *t, uint32_t pool, uint32_t slot)
{
    const fleet_slot *s = t->slots + slot;
    (void)pool;
    return s->priority == FLEET_PROACTIVE && !(s->flags & FLEET_SLOT_AGED) &&
           fleeti_oldest(t, FLEET_PHASE_PREFILL, FLEETI_REACTIVE, 0, FLEET_SLOT_CANCELLED) !=
               FLEET_NONE;
}

/* The decode batch by kinds of requests; of each, rows and earlier tokens. */
typedef struct fleeti_crowd {
    uint32_t reactive, aged, proactive;
    uint32_t context, first_context; /* of all; of reactive and aged ones */
} fleeti_crowd;

FLEET_DEVICE void fleeti_crowd_add(fleeti_crowd *c, uint32_t priority, uint32_t flags,
                                   uint32_t length)
{
    const uint32_t aged = flags & FLEET_SLOT_AGED, reactive = priority == FLEET_REACTIVE;
    c->context += length;
    if (reactive)
        c->reactive++;
    else if (aged)
        c->aged++;
    else
        c->proactive++;
    if (reactive || aged) c->first_context += length;
}
FLEETI_OUTLINED fleeti_crowd fleeti_crowd_of(const fleet_table *t)
{
    fleeti_crowd c;
    c.reactive = c.aged = c.proactive = c.context = c.first_context = 0;
    for (uint32_t i = 0; i < t->slots_used; i += FLEETI_HEADS) {
        fleeti_head head[FLEETI_HEADS];
        fleeti_heads(t, i, head);
        FLEETI_UNROLLED
        for (uint32_t k = 0; k < FLEETI_HEADS; k++)
            if (head[k].flags & FLEET_SLOT_JOINED)
                fleeti_crowd_add(&c, head[k].priority, head[k].flags, head[k].length);
    }
    return c;
}

/* Cap of a mixed batch. Batches of one class have none; aged requests do not count. */
FLEETI_OUTLINED uint32_t fleeti_agent_fits(const fleet_table *t, uint32_t chunk,
                                           const fleeti_crowd *c)
{
    const fleet_server_desc *d = &t->desc;
    const uint32_t first = c->reactive + c->aged, mixed_rows = d->mixed_rows ? d->mixed_rows : 3;
    uint32_t rows = 0, position = 0;
    if (chunk != FLEET_NONE) {
        rows = fleeti_chunk_rows(t, t->slots + chunk);
        position = t->slots[chunk].prefilled;
    }
    uint32_t beside = rows && t->slots[chunk].priority == FLEET_REACTIVE;
    float alone = fleet_roofline_ns(
        &d->roofline, fleeti_iteration_work(d, first, c->first_context, rows, position));
    if (d->mixed_rows || !(alone > 0))
        return !c->reactive || !c->proactive || c->reactive + c->proactive <= mixed_rows;
    if (!c->proactive || !(c->reactive || beside)) return 1;
    return fleet_roofline_ns(&d->roofline, fleeti_iteration_work(d, first + c->proactive,
                                                                 c->context, rows, position)) <=
           1.1f * alone;
}

/* Eviction: of the proactive requests in the batch the longest one, and of equal ones the
   newest. */
FLEETI_OUTLINED uint32_t fleeti_agent_victim(const fleet_table *t)
{
    uint32_t victim = FLEET_NONE, length = 0, order = 0;
    for (uint32_t i = 0; i < t->slots_used; i += FLEETI_HEADS) {
        fleeti_head head[FLEETI_HEADS];
        fleeti_heads(t, i, head);
        FLEETI_UNROLLED
        for (uint32_t k = 0; k < FLEETI_HEADS; k++) {
            const fleeti_head *h = head + k;
            if (!(h->flags & FLEET_SLOT_JOINED) || h->priority != FLEET_PROACTIVE ||
                (h->flags & FLEET_SLOT_AGED))
                continue;
            if (victim == FLEET_NONE || h->length > length ||
                (h->length == length && (int32_t)(h->order - order) > 0))
                victim = i + k, length = h->length, order = h->order;
        }
    }
    return victim;
}

/* Decode batch: reactive requests join at the next iteration, aged ones too, past the cap.
   Proactive ones are evicted while there are too many, and fill the batch up to the cap. Evicted
   ones keep their pages. */
FLEET_DEVICE void fleeti_agent_decode(fleet_table *t, uint32_t pool, uint32_t chunk)
{
    uint32_t i;
    (void)pool;
    /* bounded by the requests: each joins, or one gives way to it */
    while ((i = fleeti_joiner(t, FLEETI_REACTIVE, 0)) != FLEET_NONE) {
        if (fleet_table_join(t, i)) continue;
        if ((i = fleeti_agent_victim(t)) == FLEET_NONE) break;
        fleet_table_evict(t, i);
    }
    /* bounded by the requests */
    while ((i = fleeti_joiner(t, FLEETI_PROACTIVE, FLEET_SLOT_AGED)) != FLEET_NONE &&
           fleet_table_join(t, i)) {
    }
    if (fleeti_agent_defers_decode(t)) {
        /* bounded by the rows */
        while ((i = fleeti_agent_victim(t)) != FLEET_NONE) fleet_table_evict(t, i);
        return;
    }
    if (!fleeti_count_in(t, FLEET_PHASE_DECODE, FLEETI_PROACTIVE)) return;
    fleeti_crowd crowd = fleeti_crowd_of(t);
    /* bounded by the rows */
    while (!fleeti_agent_fits(t, chunk, &crowd) && (i = fleeti_agent_victim(t)) != FLEET_NONE) {
        fleet_table_evict(t, i);
        crowd = fleeti_crowd_of(t);
    }
    /* bounded by the requests */
    while ((i = fleeti_joiner(t, FLEETI_PROACTIVE, 0)) != FLEET_NONE) {
        const fleet_slot *s = t->slots + i;
        fleeti_crowd_add(&crowd, s->priority, s->flags, fleeti_length(s));
        if (!fleeti_agent_fits(t, chunk, &crowd) || !fleet_table_join(t, i)) return;
    }
}

/* Elastic: the chiplets of a decode pool that is idle help the prefill pool, until the next layer
   boundary after a request could decode again. */
FLEET_DEVICE uint32_t fleeti_agent_lends(const fleet_table *t)
{
    if (t->desc.pools != 2 || t->pool[1].open || t->pool[1].suspended) return 0;
    for (uint32_t i = 0; i < t->slots_used; i++) {
        const fleet_slot *s = t->slots + i;
        if (fleeti_ready(s) && (s->priority == FLEET_REACTIVE || (s->flags & FLEET_SLOT_AGED) ||
                                !fleeti_agent_defers_decode(t)))
            return 0;
    }
    return 1;
}

/* ==== >>pools: what two pools tell each other ==== */

/* ---- pools: turns at the table ---- */

/* Whether pool 1 helps with the layers that come. Read by its help tasks: relaxed, no data
   follows. */
FLEET_DEVICE uint32_t fleeti_lend(fleet_table *t, uint32_t lent)
{
    fleet_store_relaxed_device(&t->pools.lent.word, lent);
    return lent;
}
FLEET_DEVICE uint32_t fleeti_lent(const fleet_table *t)
{
    return fleet_load_relaxed_device(&t->pools.lent.word);
}

/* The first wave's value, for all threads of the task, which may then read what that wave has
   stored. */
FLEET_DEVICE uint32_t fleeti_server_tell(const fleet_ctx *ctx, uint32_t value, uint32_t word)
{
    fleeti_drain(); /* to the other waves of the workgroup, over the barrier */
    fleet_barrier(ctx);
    return fleeti_broadcast(ctx->self, value, word);
}

/* Where two pools share the table, each has it in turn, from fleeti_turn_begin to
   fleeti_turn_end. */

/* By all lanes of the first wave of a task: waits until *at is `word`, or with `differs` until it
   is not, and acquires what was stored before that. Not FLEET_OK: the run ends. */
FLEETI_OUTLINED uint32_t fleeti_await_pool(fleeti_state *state, uint32_t worker, uint32_t task,
                                           uint32_t epoch, const uint32_t *at, uint32_t word,
                                           uint32_t differs)
{
    uint32_t status = FLEET_OK, tries = 0;
    uint64_t since = 0;
    /* loop 27 */
    while (!status && (fleeti_first(fleeti_poll_device(at)) == word) == differs)
        status = fleeti_first((uint32_t)fleeti_back_off(at, &state->config.watch, &tries, &since));
    /* Pairs: fleeti_turn_end (edge 36), fleet_server_share (edge 37), fleet_share_next (edge 38).
       Lane 0's poll decides, and those of the other lanes may have seen an older value: the barrier
       orders what it acquired before their loads. */
    fleeti_invalidate_device();
    fleet_wave_barrier();
    if (status && fleet_lane() == 0)
        fleeti_task_ends_run(state, worker, task, epoch, fleeti_no_event((fleet_status)status));
    return status;
}
FLEET_DEVICE uint32_t fleeti_tile_awaits(const fleet_ctx *ctx, const uint32_t *at, uint32_t word,
                                         uint32_t differs)
{
    return fleeti_await_pool(fleeti_state_of_ctx(ctx), fleeti_worker_of_ctx(ctx), ctx->task,
                             ctx->epoch, at, word, differs);
}
/* By all lanes of a wave: the other pool looks again at what it waits for. */
FLEET_DEVICE void fleeti_ring_bell(fleeti_between_pools *p)
{
    if (fleet_lane() == 0) fleeti_rmw_device(&p->bell.word, 1);
}
/* Whether the pool has a running batch; and, << 1, the loan. */
FLEET_DEVICE uint32_t fleeti_pool_runs(const fleet_table *t, uint32_t pool)
{
    return (t->pool[pool].open != 0) | fleeti_lent(t) << 1;
}

/* By all lanes of the first wave. */
FLEET_DEVICE uint32_t fleeti_turn_begin(const fleet_ctx *ctx, fleet_table *t, uint32_t pool)
{
    uint32_t turn = 0;
    if (t->desc.pools == 1) return FLEET_OK;
    if (fleet_lane() == 0) turn = fleeti_rmw_device(&t->pools.turns.word, 1);
    turn = fleeti_first(turn);
    /* Acquires all that the other pool's last boundary has left (edge 36). */
    uint32_t status = fleeti_tile_awaits(ctx, &t->pools.turn.word, turn, 0);
    if (!status && fleet_lane() == 0)
        t->pools.turn_number = turn, t->pools.ran = fleeti_pool_runs(t, pool);
    return status;
}
/* iteration: the boundary was one between two iterations. */
FLEETI_OUTLINED void fleeti_turn_end(fleet_table *t, uint32_t pool, uint32_t iteration)
{
    fleeti_between_pools *p = &t->pools;
    if (fleet_lane() == 0) t->pool[pool].changes = t->changes;
    if (t->desc.pools == 1) return;
    if (fleet_lane() == 0) {
        const uint32_t runs = fleeti_pool_runs(t, pool);
        /* A batch of this pool has begun or ended, or the loan has: the other one may have
           something to do now. */
        if (p->ran != runs || (runs & 1 & iteration)) fleeti_ring_bell(p);
        t->pool[pool].bell = fleet_load_relaxed_device(&p->bell.word);
    }
    /* Publishes what this boundary, and through the events of its pool all tiles before it, have
       stored to the other pool's next boundary. Pair: fleeti_await_pool (edge 36). */
    fleeti_drain();
    fleeti_write_back_device();
    if (fleet_lane() == 0) fleeti_publish_device(&p->turn.word, p->turn_number + 1);
}
FLEET_DEVICE fleet_status fleeti_turn_idle(const fleet_ctx *ctx, const fleet_table *t,
                                           uint32_t pool)
{
    const fleeti_pool *own = &t->pool[pool];
    return fleeti_idle_until(ctx, &t->desk->changes.word, own->changes,
                             t->desc.pools == 2 ? &t->pools.bell.word : NULL, own->bell);
}

/* ---- pools: tiles of a layer that is lent ---- */

/* By all threads: waits until all tiles that were handed out have run. */
FLEET_DEVICE fleet_status fleeti_share_ends(const fleet_ctx *ctx, const fleet_table *t)
{
    const fleeti_between_pools *p = &t->pools;
    uint32_t status = FLEET_OK;
    if (ctx->thread < fleet_wave_size()) {
        const uint32_t end = fleeti_first(fleet_load_relaxed_device(&p->handed_out.word));
        /* Acquires what tiles have stored in the other pool (edge 38). */
        status = fleeti_tile_awaits(ctx, &p->run.word, end, 0);
    }
    return (fleet_status)fleeti_server_tell(ctx, status, 0);
}
/* Before a boundary of a pool: whether it may have one; then the tiles before it have ended in the
   other pool too, and read no batch any more. */
FLEET_DEVICE fleet_status fleeti_pool_ends_layer(const fleet_ctx *ctx, const fleet_table *t,
                                                 uint32_t pool)
{
    if (pool >= t->desc.pools) return FLEET_ERROR_ARGUMENT;
    if (t->desc.pools == 1) return FLEET_OK;
    if (!fleeti_state_of_ctx(ctx)->config.other) return FLEET_ERROR_UNSUPPORTED;
    return pool == 0 ? fleeti_share_ends(ctx, t) : FLEET_OK;
}

FLEET_DEVICE fleet_status fleet_server_share(const fleet_ctx *ctx, fleet_table *t, uint32_t layer,
                                             uint32_t tiles)
{
    fleeti_between_pools *p = &t->pools;
    const fleet_status status = fleeti_share_ends(ctx, t);
    if (status || ctx->thread != 0) return status;
    p->first = fleet_load_relaxed_device(&p->handed_out.word);
    p->layer = layer, p->step = ctx->epoch;
    /* Publishes the layer, and all that its tiles read, to the tasks of the other pool. Pair:
       fleet_share_next (edge 37). */
    fleeti_drain();
    fleeti_write_back_device();
    fleeti_publish_device(&p->handed_out.word, p->first + tiles);
    if (fleeti_lent(t)) fleeti_ring_bell(p); /* to fleet_share_next */
    return FLEET_OK;
}

FLEET_DEVICE fleet_share fleet_share_open(uint32_t pool)
{
    fleet_share share;
    __builtin_memset(&share, 0, sizeof share);
    share.pool = pool;
    share.tile = FLEET_NONE;
    return share;
}

/* By the first wave: a tile of a layer whose number is before `end`. */
FLEET_DEVICE uint32_t fleeti_share_take(fleeti_between_pools *p, uint32_t end, uint32_t *number)
{
    for (;;) { /* bounded by the tiles: where a swap fails, another worker took one */
        const uint32_t next = fleeti_first(fleet_load_relaxed_device(&p->taken.word));
        uint32_t got = 0;
        if ((int32_t)(end - next) <= 0) return 0;
        if (fleet_lane() == 0)
            got = fleet_cas_relaxed_device(&p->taken.word, next, next + 1) == next;
        *number = next;
        if (fleeti_first(got)) return 1;
    }
}

FLEET_DEVICE uint32_t fleet_share_next(const fleet_ctx *ctx, fleet_table *t, fleet_share *share)
{
    fleeti_between_pools *p = &t->pools;
    uint32_t found = 0, status = FLEET_OK, number = 0;
    fleeti_drain(); /* to the first wave, over the barrier: the tile in hand has run */
    fleet_barrier(ctx);
    if (ctx->thread < fleet_wave_size()) {
        share->ran += share->tile != FLEET_NONE;
        while (!found && !status) { /* loop 28 */
            const uint32_t bell = fleeti_first(fleeti_poll_device(&p->bell.word));
            const uint32_t end = fleeti_first(fleeti_poll_device(&p->handed_out.word));
            /* After that, for a layer that is not lent is handed out after the loan has ended. */
            const uint32_t lent = share->pool == 0 || fleeti_first(fleeti_lent(t));
            /* Acquires what pool 0 has stored for the layer, for all lanes: lane 0's poll decides.
               Pair: fleet_server_share (edge 37). */
            fleeti_invalidate_device();
            fleet_wave_barrier();
            found = lent && fleeti_share_take(p, end, &number);
            if (found) break;
            if (share->ran) {
                /* Publishes the tiles that have run here to the task after the layer; of pool 0 the
                   events of this task do, too. Pair: fleeti_await_pool (edge 38). */
                fleeti_write_back_device();
                if (fleet_lane() == 0) fleeti_add_arrival_device(&p->run.word, share->ran);
                share->ran = 0;
            }
            if (share->pool == 0 || !lent) break;
            status = fleeti_tile_awaits(ctx, &p->bell.word, bell, 1);
        }
        if (found) number -= p->first;
    }
    found = fleeti_server_tell(ctx, found, 0);
    share->status = (fleet_status)fleeti_server_tell(ctx, status, 1);
    if (!found) return 0;
    share->tile = fleeti_server_tell(ctx, number, 0);
    share->layer = fleeti_server_tell(ctx, p->layer, 1);
    share->step = fleeti_server_tell(ctx, p->step, 0);
    return 1;
}

/* ==== >>boundaries: between iterations, and between layers of one ==== */

/* The prompt's pages up to `prefilled` tokens are complete and may be reused. */
FLEET_DEVICE void fleeti_insert_pages(fleet_table *t, uint32_t slot, uint32_t before)
{
    fleet_slot *s = t->slots + slot;
    const uint32_t tokens = t->desc.page_tokens;
    for (uint32_t i = before / tokens; i < s->prefilled / tokens; i++)
        fleet_pages_insert(t->pages, &s->admission, fleeti_page_table(t, slot)[i],
                           fleeti_prompt(t, slot) + (size_t)i * tokens);
}

/* 1: the prompt has ended, and its request yields its first token. */
FLEET_DEVICE uint32_t fleeti_close_chunk(fleet_table *t, const fleet_batch *b)
{
    const uint32_t slot = b->chunk.slot;
    fleet_slot *s = t->slots + slot;
    s->flags &= ~FLEET_SLOT_RUNNING;
    if (b->chunk_end < t->desc.layers) {
        s->chunk = b->chunk_rows, s->layer = b->chunk_end;
        return 0;
    }
    s->prefilled += b->chunk_rows;
    s->chunk = s->layer = 0;
    fleeti_insert_pages(t, slot, s->prefilled - b->chunk_rows);
    if (s->prefilled < s->prompt_tokens || (s->flags & FLEET_SLOT_CANCELLED)) return 0;
    fleeti_enter_phase(t, s, FLEET_PHASE_DECODE);
    return 1;
}

/* Mean and largest error of the prediction, in thousandths of the measured time. */
FLEET_DEVICE void fleeti_measure(fleet_table *t, const fleet_batch *b, uint64_t now)
{
    const float measured = (float)(now - b->begun) * t->desc.tick_ns;
    float error = (float)b->predicted_ns - measured;
    if (!b->predicted_ns || b->chunk_end < t->desc.layers || b->decode_end < t->desc.layers ||
        !(measured > 0) || t->stats.predicted == UINT32_MAX)
        return;
    error = (error < 0 ? -error : error) / measured * 1000;
    if (error > 1e9f) error = 1e9f;
    t->error_sum += error;
    t->stats.predicted++;
    t->stats.error_mean = (uint32_t)(t->error_sum / (float)t->stats.predicted);
    if (error > (float)t->stats.error_max) t->stats.error_max = (uint32_t)error;
}

/* The pool's batch has ended: its rows' progress, and their tokens. By all lanes. */
FLEETI_OUTLINED void fleeti_close(fleet_table *t, uint32_t pool, uint64_t now)
{
    fleeti_pool *p = &t->pool[pool];
    const uint32_t open = p->open, lane = fleet_lane();
    uint32_t yields = 0;
    if (!open) return;
    const fleet_batch *b = fleeti_batch_of(t, pool, open - 1);
    const fleet_row *rows = fleeti_decode_rows((fleet_batch *)(uintptr_t)b);
    fleet_wave_barrier(); /* all lanes have read `open` */
    if (lane == 0) {
        p->open = 0;
        if (pool == 0) fleeti_lend(t, 0);
        fleeti_measure(t, b, now);
        if (b->chunk_rows) yields = fleeti_close_chunk(t, b);
    }
    fleet_wave_barrier();
    if (fleeti_first(yields))
        fleeti_yield(t, lane == 0 ? b->chunk.slot : FLEET_NONE,
                     fleeti_result_of(t, pool, t->desc.decode_rows), now);
    if (b->decode_end < t->desc.layers) {
        for (uint32_t i = lane; i < b->decode_rows; i += fleet_wave_size())
            fleeti_suspended(t, pool)[i] = rows[i];
        if (lane == 0) p->suspended = b->decode_rows, p->resume = b->decode_end;
        fleet_wave_barrier();
        return;
    }
    for (uint32_t first = 0; first < b->decode_rows; first += fleeti_sharers()) {
        const uint32_t i = first + lane, is = lane < fleeti_sharers() && i < b->decode_rows;
        const uint32_t slot = is ? rows[i].slot : FLEET_NONE;
        if (is) t->slots[slot].flags &= ~FLEET_SLOT_RUNNING;
        fleeti_yield(t, slot, fleeti_result_of(t, pool, is ? i : 0), now);
    }
}

/* Rows that a layer boundary has suspended do not resume after a stop. */
FLEET_DEVICE void fleeti_drop_suspended(fleet_table *t, uint32_t pool)
{
    fleeti_pool *p = &t->pool[pool];
    for (uint32_t i = 0; i < p->suspended; i++)
        t->slots[fleeti_suspended(t, pool)[i].slot].flags &= ~FLEET_SLOT_RUNNING;
    p->suspended = p->resume = 0;
}

FLEET_DEVICE void fleeti_compose_chunk(fleet_table *t, uint32_t slot, fleet_batch *b)
{
    fleet_slot *s = t->slots + slot;
    b->chunk_rows = fleeti_chunk_rows(t, s);
    b->chunk_begin = s->layer;
    b->chunk_class = s->priority;
    b->chunk.slot = slot, b->chunk.generation = s->generation;
    b->chunk.position = s->prefilled;
    b->chunk.kind =
        s->prefilled + b->chunk_rows == s->prompt_tokens ? FLEET_ROW_LAST : FLEET_ROW_CHUNK;
    s->chunk = b->chunk_rows;
    s->flags |= FLEET_SLOT_RUNNING;
    if (!s->begun) s->begun = b->begun;
    fleeti_extend(t, slot, s->prefilled + b->chunk_rows);
}

/* By all lanes. */
FLEET_DEVICE void fleeti_compose_decode(fleet_table *t, uint32_t pool, fleet_batch *b)
{
    fleeti_pool *p = &t->pool[pool];
    const uint32_t suspended = p->suspended, lane = fleet_lane();
    fleet_row *rows = fleeti_decode_rows(b);
    uint32_t n = 0;
    if (suspended) {
        for (uint32_t i = lane; i < suspended; i += fleet_wave_size())
            rows[i] = fleeti_suspended(t, pool)[i];
        fleet_wave_barrier(); /* all lanes have read how many there are */
        if (lane == 0) {
            b->decode_rows = suspended, b->decode_begin = p->resume;
            p->suspended = p->resume = 0;
        }
        return;
    }
    for (uint32_t first = 0; first < t->slots_used; first += fleeti_sharers()) {
        const uint32_t slot = fleeti_own_slot(t, first);
        fleet_slot *s = t->slots + (slot == FLEET_NONE ? 0 : slot);
        const uint32_t is = slot != FLEET_NONE && (s->flags & FLEET_SLOT_JOINED) && fleeti_ready(s);
        const uint32_t all = fleeti_ballot(is);
        uint32_t extends = 0;
        if (is) {
            fleet_row *row = rows + n + fleeti_votes_before(all);
            row->slot = slot, row->generation = s->generation;
            row->position = fleeti_length(s) - 1;
            row->kind = FLEET_ROW_DECODE;
            s->flags |= FLEET_SLOT_RUNNING;
            extends = s->allocated * t->desc.page_tokens < fleeti_length(s);
        }
        FLEETI_ONE_BY_ONE(extending, extends) fleeti_extend(t, slot, fleeti_length(s));
        n += fleeti_popcount32(all);
    }
    if (lane == 0) b->decode_rows = n;
}

/* By all lanes. */
FLEET_DEVICE float fleeti_predict(const fleet_table *t, fleet_batch *b)
{
    uint32_t context = 0;
    if (b->chunk_begin || b->decode_begin) return 0;
    for (uint32_t i = fleet_lane(); i < b->decode_rows; i += fleet_wave_size())
        context += fleeti_decode_rows(b)[i].position + 1;
    context = fleeti_wave_sum(context);
    return fleet_roofline_ns(
        &t->desc.roofline,
        fleeti_iteration_work(&t->desc, b->decode_rows, context, b->chunk_rows, b->chunk.position));
}

/* Sends the events, by all lanes. The ring has room for every token that the host has not released,
   and for each request's last event. If it ever has not, the rest stays here until a later
   boundary, and no request adds to it (fleeti_send): no boundary waits for the host. */
FLEET_DEVICE void fleeti_flush(fleet_table *t)
{
    uint32_t sent = t->sent;
    fleet_wave_barrier();
    if (sent < t->outgoing)
        sent += fleet_ring_try_push(&t->events, t->outbox + sent, t->outgoing - sent);
    fleet_wave_barrier(); /* all lanes have read how many there are */
    if (fleet_lane() == 0) {
        t->stats_changed |= sent - t->sent;
        t->is_full = sent < t->outgoing;
        if (!t->is_full) sent = t->outgoing = 0;
        t->sent = sent;
    }
    fleet_wave_barrier();
}

/* The first part of a boundary, by all lanes of the wave. The host gets its tokens before the next
   batch is composed. */
FLEET_DEVICE void fleeti_boundary_begin(fleet_table *t, uint32_t pool, uint64_t now)
{
    fleeti_close(t, pool, now);
    fleeti_take_in(t, now);
    if (fleet_lane() == 0 && t->stop == FLEETI_STOP_NOW) fleeti_drop_suspended(t, pool);
    fleet_wave_barrier(); /* the slots are as this lane has left them */
    fleeti_settle(t, now);
    fleeti_flush(t);
}

FLEET_DEVICE void fleeti_boundary_clear(const fleet_table *t, fleet_batch *b, uint64_t now)
{
    b->decode_rows = b->decode_begin = b->chunk_rows = b->chunk_begin = 0;
    b->decode_end = b->chunk_end = t->desc.layers;
    b->chunk_class = 0, b->lent = 0;
    b->chunk.slot = b->chunk.generation = b->chunk.position = b->chunk.kind = 0;
    b->begun = now, b->predicted_ns = 0;
}
/* Whether this pool works on prompts now; whether it decodes, beside that chunk. */
FLEET_DEVICE uint32_t fleeti_boundary_prefills(const fleet_table *t, uint32_t pool)
{
    return t->stop != FLEETI_STOP_NOW && pool == 0;
}
/* What a policy of the user's may choose: a slot whose prompt can go on. */
FLEET_DEVICE uint32_t fleeti_boundary_prompt(const fleet_table *t, uint32_t slot)
{
    const fleet_slot *s = t->slots + slot;
    if (slot >= t->desc.requests || s->phase != FLEET_PHASE_PREFILL ||
        (s->flags & (FLEET_SLOT_RUNNING | FLEET_SLOT_CANCELLED)))
        return FLEET_NONE;
    return slot;
}
FLEET_DEVICE uint32_t fleeti_boundary_decodes(const fleet_table *t, uint32_t pool, uint32_t chunk)
{
    if (t->stop == FLEETI_STOP_NOW || pool + 1 != t->desc.pools) return 0;
    if (t->desc.pools == 2) return !fleeti_lent(t);
    return !(t->desc.one_stage && chunk != FLEET_NONE);
}

/* The requests in the batch are chosen: lays it out. By all lanes. */
FLEETI_OUTLINED void fleeti_boundary_compose(fleet_table *t, uint32_t pool, uint32_t chunk,
                                             uint32_t decodes, fleet_batch *b)
{
    fleet_wave_barrier(); /* the slots, and the empty batch, are as the first lane has left them */
    if (fleet_lane() == 0 && chunk != FLEET_NONE) fleeti_compose_chunk(t, chunk, b);
    fleet_wave_barrier();
    if (decodes) fleeti_compose_decode(t, pool, b);
    fleet_wave_barrier(); /* the batch is complete */
    if (!b->chunk_rows && !b->decode_rows) return;
    for (uint32_t i = fleet_lane(); i <= t->desc.decode_rows; i += fleet_wave_size())
        if (i < b->decode_rows || i == t->desc.decode_rows)
            fleeti_result_of(t, pool, i)->result = 0;
    float predicted = fleeti_predict(t, b);
    if (fleet_lane() == 0)
        b->predicted_ns = predicted > 0 && predicted < 4e9f ? (uint32_t)predicted : 0;
}

FLEET_DEVICE void fleeti_count_requests(fleet_table *t, const fleet_batch *b)
{
    fleet_server_stats *c = &t->stats;
    for (uint32_t k = 0; k < 2; k++) {
        c->queued[k] = t->in_phase[FLEET_PHASE_QUEUED][k];
        c->prefill[k] = t->in_phase[FLEET_PHASE_PREFILL][k];
        c->decode[k] = t->in_phase[FLEET_PHASE_DECODE][k];
    }
    c->decode_rows = b->decode_rows, c->chunk_rows = b->chunk_rows;
    c->pages_available = fleet_pages_available(t->pages);
}

/* The last part, by all lanes: says what comes next. */
FLEETI_OUTLINED uint32_t fleeti_boundary_end(fleet_table *t, uint32_t pool, uint32_t step)
{
    const fleet_batch *b = fleeti_batch_of(t, pool, step % 2);
    uint32_t next = FLEET_SERVING_IDLE;
    if (fleet_lane() == 0) {
        if (b->chunk_rows || b->decode_rows) {
            next = FLEET_SERVING_BATCH;
            t->pool[pool].open = 1 + step % 2;
            t->stats.iterations++;
        } else if (t->stop && (!t->slots_used || (t->is_full && t->stop == FLEETI_STOP_NOW))) {
            next = FLEET_SERVING_STOPPED;
        }
        t->stats_changed |= next;
        if (t->stats_changed) fleeti_count_requests(t, b);
    }
    fleet_wave_barrier();
    if (t->stats_changed)
        for (uint32_t i = fleet_lane(); i < sizeof t->stats / 4; i += fleet_wave_size())
            fleet_store_relaxed_system(t->host_stats + i,
                                       ((const uint32_t *)(const void *)&t->stats)[i]);
    fleet_wave_barrier();
    if (fleet_lane() == 0) t->stats_changed = 0;
    return fleeti_first(next);
}

FLEET_DEVICE uint32_t fleeti_layer_suspends(const fleet_table *t, const fleet_batch *b,
                                            uint32_t layer)
{
    return t->desc.suspend_decode && b->decode_rows && layer < b->decode_end;
}
/* Between two layers: the first part, by all lanes. Whether the batch has rows that could give way,
   and there is news since the pool's last decision. Mostly there is none, and the layers wait for
   this. */
FLEET_DEVICE uint32_t fleeti_layer_begin(fleet_table *t, uint32_t pool, const fleet_batch *b,
                                         uint32_t layer, uint64_t now)
{
    if (!(b->chunk_rows && layer < b->chunk_end) && !fleeti_layer_suspends(t, b, layer)) return 0;
    fleeti_take_in(t, now);
    if (!fleeti_first(t->pool[pool].seen != t->news)) return 0;
    /* While its chiplets are lent pool 1 has no boundaries, in which a request could decode again. */
    if (fleeti_first(fleeti_lent(t))) {
        fleeti_settle(t, now);
        fleeti_flush(t);
    }
    return 1;
}

/* The chunk ends before this layer if it gives way, or if its request ends. */
FLEET_DEVICE uint32_t fleeti_layer_chunk(const fleet_table *t, fleet_batch *b, uint32_t layer,
                                         uint32_t gives_way)
{
    if (!gives_way && t->stop != FLEETI_STOP_NOW &&
        !(t->slots[b->chunk.slot].flags & FLEET_SLOT_CANCELLED))
        return 0;
    b->chunk_end = layer > b->chunk_begin ? layer : b->chunk_begin;
    return 1;
}
FLEET_DEVICE uint32_t fleeti_layer_decode(const fleet_table *t, fleet_batch *b, uint32_t layer,
                                          uint32_t gives_way)
{
    if (!gives_way && t->stop != FLEETI_STOP_NOW) return 0;
    b->decode_end = layer > b->decode_begin ? layer : b->decode_begin;
    return 1;
}

/* name_next and so on, by the rules of rules_admit and so on. */
#define FLEETI_POLICY(name, rules)                                                                 \
    FLEET_DEVICE uint32_t name##_boundary(fleet_table *t, uint32_t pool, uint32_t step,            \
                                          uint64_t now)                                            \
    {                                                                                              \
        uint32_t chunk = FLEET_NONE, decodes = 0;                                                  \
        fleet_batch *b = fleeti_batch_of(t, pool, step % 2);                                       \
        fleeti_boundary_begin(t, pool, now);                                                       \
        if (fleet_lane() == 0) {                                                                   \
            fleeti_boundary_clear(t, b, now);                                                      \
            rules##_admit(t, now);                                                                 \
            if (fleeti_boundary_prefills(t, pool))                                                 \
                chunk = fleeti_boundary_prompt(t, rules##_prefill(t, pool));                       \
            decodes = fleeti_boundary_decodes(t, pool, chunk);                                     \
            if (decodes && !t->pool[pool].suspended) rules##_decode(t, pool, chunk);               \
        }                                                                                          \
        chunk = fleeti_first(chunk);                                                               \
        fleeti_boundary_compose(t, pool, chunk, fleeti_first(decodes), b);                         \
        if (fleet_lane() == 0) {                                                                   \
            if (chunk != FLEET_NONE) b->lent = fleeti_lend(t, rules##_lends(t));                   \
            if (pool == 1) b->lent = fleeti_lent(t);                                               \
            t->pool[pool].seen = ++t->news;                                                        \
        }                                                                                          \
        return fleeti_boundary_end(t, pool, step);                                                 \
    }                                                                                              \
    FLEET_DEVICE uint32_t name##_layer(fleet_table *t, uint32_t pool, uint32_t step,               \
                                       uint32_t layer, uint64_t now)                               \
    {                                                                                              \
        fleet_batch *b = fleeti_batch_of(t, pool, step % 2);                                       \
        uint32_t cut = 0;                                                                          \
        if (!fleeti_layer_begin(t, pool, b, layer, now)) return 0;                                 \
        if (fleet_lane() == 0) {                                                                   \
            uint32_t chunk = b->chunk_rows && layer < b->chunk_end, all = 1;                       \
            rules##_admit(t, now);                                                                 \
            if (chunk) {                                                                           \
                cut = fleeti_layer_chunk(t, b, layer, rules##_preempts(t, pool, b->chunk.slot));   \
                b->lent = fleeti_lend(t, cut ? 0 : rules##_lends(t));                              \
            }                                                                                      \
            if ((!chunk || cut) && fleeti_layer_suspends(t, b, layer)) {                           \
                for (uint32_t i = 0; i < b->decode_rows; i++)                                      \
                    all &= rules##_preempts(t, pool, fleeti_decode_rows(b)[i].slot);               \
                cut |= fleeti_layer_decode(t, b, layer, all);                                      \
            }                                                                                      \
            t->stats.layers_cut += cut;                                                            \
            t->pool[pool].seen = t->news;                                                          \
        }                                                                                          \
        fleet_wave_barrier();                                                                      \
        return fleeti_first(cut);                                                                  \
    }                                                                                              \
    FLEET_DEVICE fleet_status name##_next(const fleet_ctx *ctx, fleet_table *t, uint32_t pool)     \
    {                                                                                              \
        fleet_status status = fleeti_pool_ends_layer(ctx, t, pool);                                \
        /* loop 29 */                                                                              \
        while (!status) {                                                                          \
            uint32_t next = 0, failed = 0;                                                         \
            if (ctx->thread < fleet_wave_size() && !(failed = fleeti_turn_begin(ctx, t, pool))) {  \
                next = name##_boundary(t, pool, ctx->epoch + 1, fleet_clock_ticks());              \
                fleeti_turn_end(t, pool, 1);                                                       \
            }                                                                                      \
            next = fleeti_server_tell(ctx, next, 0);                                               \
            failed = fleeti_server_tell(ctx, failed, 1);                                           \
            if (failed) return (fleet_status)failed;                                               \
            if (next == FLEET_SERVING_STOPPED) return fleet_finish(ctx);                           \
            if (next == FLEET_SERVING_BATCH) break;                                                \
            if (fleet_table_batch(t, pool, ctx->epoch + 1)->lent) break;                           \
            status = fleeti_turn_idle(ctx, t, pool);                                               \
        }                                                                                          \
        return status;                                                                             \
    }                                                                                              \
    FLEET_DEVICE uint32_t name##_between(const fleet_ctx *ctx, fleet_table *t, uint32_t pool,      \
                                         uint32_t layer)                                           \
    {                                                                                              \
        uint32_t cut = 0;                                                                          \
        if (fleeti_pool_ends_layer(ctx, t, pool)) return 0; /* the run ends */                     \
        if (ctx->thread < fleet_wave_size() && !fleeti_turn_begin(ctx, t, pool)) {                 \
            cut = name##_layer(t, pool, ctx->epoch, layer, fleet_clock_ticks());                   \
            fleeti_turn_end(t, pool, 0);                                                           \
        }                                                                                          \
        return fleeti_server_tell(ctx, cut, 0);                                                    \
    }

/* The policy of the descriptor. */
FLEET_DEVICE void fleeti_policy_admit(fleet_table *t, uint64_t now)
{
    if (t->desc.policy == FLEET_POLICY_FIFO)
        fleeti_fifo_admit(t, now);
    else
        fleeti_agent_admit(t, now);
}
FLEET_DEVICE uint32_t fleeti_policy_prefill(fleet_table *t, uint32_t pool)
{
    return t->desc.policy == FLEET_POLICY_FIFO ? fleeti_fifo_prefill(t, pool)
                                               : fleeti_agent_prefill(t, pool);
}
FLEET_DEVICE void fleeti_policy_decode(fleet_table *t, uint32_t pool, uint32_t chunk)
{
    if (t->desc.policy == FLEET_POLICY_FIFO)
        fleeti_fifo_decode(t, pool, chunk);
    else
        fleeti_agent_decode(t, pool, chunk);
}
FLEET_DEVICE uint32_t fleeti_policy_preempts(const fleet_table *t, uint32_t pool, uint32_t slot)
{
    return t->desc.policy == FLEET_POLICY_FIFO ? fleeti_fifo_preempts(t, pool, slot)
                                               : fleeti_agent_preempts(t, pool, slot);
}
FLEET_DEVICE uint32_t fleeti_policy_lends(const fleet_table *t)
{
    return t->desc.policy == FLEET_POLICY_FIFO ? fleeti_fifo_lends(t) : fleeti_agent_lends(t);
}
FLEETI_POLICY(fleet_server, fleeti_policy)

#endif /* FLEET_SERVER_H */

/* ==== >>implementation: host code ==== */

#if defined(FLEET_IMPLEMENTATION) && !defined(FLEETI_SERVER_IMPLEMENTED)
#define FLEETI_SERVER_IMPLEMENTED

#include <stdlib.h>
#include <string.h>

FLEET_C_BEGIN

/* ---- rings: the host's end ---- */

/* Words of a slot: its sequence number and the message, in cache lines of its own. */
static uint32_t fleeti_message_stride(uint32_t message_bytes)
{
    return (uint32_t)(fleeti_lines((size_t)message_bytes + 4) / 4);
}

size_t fleet_ring_bytes(uint32_t slots, uint32_t message_bytes)
{
    if (slots < 2 || slots > 1u << 20 || (slots & (slots - 1))) return 0;
    if (!message_bytes || message_bytes % 4 || message_bytes > FLEET_RING_MESSAGE_BYTES) return 0;
    return ((size_t)slots * fleeti_message_stride(message_bytes) + FLEETI_EVENT_LINE) * 4;
}

fleet_status fleet_ring_init(fleet_ring *host, fleet_ring *device, void *memory,
                             void *device_memory, uint32_t slots, uint32_t message_bytes)
{
    if (host) memset(host, 0, sizeof *host);
    if (device) memset(device, 0, sizeof *device);
    if (!host || !device || !memory || !device_memory) return FLEET_ERROR_NULL;
    if (!fleet_ring_bytes(slots, message_bytes)) return FLEET_ERROR_ARGUMENT;
    if (((uintptr_t)memory | (uintptr_t)device_memory) % FLEET_CACHE_LINE_BYTES)
        return FLEET_ERROR_ARGUMENT;
    host->slots = (uint32_t *)memory + FLEETI_EVENT_LINE;
    host->mask = slots - 1;
    host->words = message_bytes / 4;
    host->stride = fleeti_message_stride(message_bytes);
    *device = *host;
    device->slots = (uint32_t *)device_memory + FLEETI_EVENT_LINE;
    fleeti_ring_begin(host, device, FLEETI_TEST_START);
    return FLEET_OK;
}

/* The number of the next message at this end, which host threads share. state 0: they push; 1: they
   pop. It has 64 bits, so that a thread that was suspended for 2^32 messages does not take one that
   was taken before. */
static uint64_t *fleeti_message_position(fleet_ring *ring, uint32_t state)
{
    return state ? (uint64_t *)(void *)fleeti_message_popped(ring) : &ring->position;
}
/* Its slot, if it is free (state 0), or holds the message (1); null where the device has not got so
   far. */
static uint32_t *fleeti_message_next(fleet_ring *ring, uint32_t state, uint64_t *number)
{
    const uint64_t *position = fleeti_message_position(ring, state);
    for (;;) {
        const uint64_t n = __atomic_load_n(position, __ATOMIC_RELAXED);
        uint32_t *slot = fleeti_message_slot(ring, (uint32_t)n);
        /* Acquires the message, or that the one before it in the slot has been read. Pairs:
           fleeti_publish_system in fleet_ring_try_push (edge 26) and in fleet_ring_try_pop (edge
           27). */
        const uint32_t at =
            __atomic_load_n(state ? slot : fleeti_message_popped(ring), __ATOMIC_ACQUIRE);
        *number = n;
        if (state ? at == (uint32_t)n + 1 : (uint32_t)n - at <= ring->mask) return slot;
        if (__atomic_load_n(position, __ATOMIC_RELAXED) == n) return NULL;
    }
}
/* 1: message n was the next one, and now `next` is. Of pops, edge 27: what was read before is that
   message, and the worker may overwrite it where `next` is another one. Pair: the poll in
   fleeti_messages_room. */
static uint32_t fleeti_message_move(fleet_ring *ring, uint32_t state, uint64_t n, uint64_t next)
{
    return __atomic_compare_exchange_n(fleeti_message_position(ring, state), &n, next, 0,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}
/* Takes the next message's number from the other host threads. Returns the slot, or null as
   fleeti_message_next. */
static uint32_t *fleeti_message_claim(fleet_ring *ring, uint32_t state, uint32_t *number)
{
    uint64_t n;
    uint32_t *slot;
    while ((slot = fleeti_message_next(ring, state, &n)) != NULL &&
           !fleeti_message_move(ring, state, n, n + 1))
        ;
    *number = (uint32_t)n;
    return slot;
}
static void fleeti_message_copy(const fleet_ring *ring, const uint32_t *slot, void *message)
{
    for (uint32_t i = 0; i < ring->words; i++) {
        const uint32_t word = __atomic_load_n(slot + 1 + i, __ATOMIC_RELAXED);
        memcpy((char *)message + (size_t)i * 4, &word, 4);
    }
}
/* Copies the next message, and returns 1; 0: there is none. It is whole if fleeti_message_move
   finds it the next one after that: else other threads have popped it, and the worker may have
   overwritten it meanwhile. */
static uint32_t fleeti_message_read(fleet_ring *ring, uint64_t *number, void *message)
{
    const uint32_t *slot = fleeti_message_next(ring, 1, number);
    if (slot) fleeti_message_copy(ring, slot, message);
    return slot != NULL;
}

fleet_status fleet_ring_push(fleet_ring *host, const void *message)
{
    uint32_t *slot, n = 0;
    if (!host || !message) return FLEET_ERROR_NULL;
    if (!(slot = fleeti_message_claim(host, 0, &n))) return FLEET_ERROR_BUSY;
    memcpy(slot + 1, message, (size_t)host->words * 4);
    /* Edge 26: publishes the message to the worker. Pair: fleeti_invalidate_system in
       fleet_ring_try_pop. */
    __atomic_store_n(slot, n + 1, __ATOMIC_RELEASE);
    return FLEET_OK;
}

uint32_t fleet_ring_pop(fleet_ring *host, void *message)
{
    uint64_t n;
    if (!host || !message) return 0;
    while (fleeti_message_read(host, &n, message))
        if (fleeti_message_move(host, 1, n, n + 1)) return 1;
    memset(message, 0, (size_t)host->words * 4);
    return 0;
}

/* ---- pages: the check ---- */

/* Whether each page of the bucket belongs there and has no equal before it; counts them in
   *found. */
static const char *fleeti_pages_check_bucket(const fleet_pages *p, uint32_t bucket, uint32_t *found)
{
    uint32_t page = *fleeti_pages_bucket(p, bucket), length, n = 0;
    for (; page != FLEET_PAGES_NONE; page = fleeti_pages_at(p, page)->chain, n++) {
        const fleeti_page *it = fleeti_pages_at(p, page);
        const uint32_t *tokens = fleeti_pages_tokens(p, page);
        if (n == FLEETI_PAGES_CHAIN) return "a bucket has too many pages";
        if (!it->key || it->key > p->key) return "a page in a bucket has no key";
        if (it->parent >= it->key) return "a page is older than the one before it";
        if (fleeti_pages_hash(p, it->parent, tokens) != bucket)
            return "a page is in the wrong bucket";
        if (fleeti_pages_find(p, it->parent, tokens, bucket, &length) != page)
            return "two cached pages are equal";
    }
    *found += n;
    return NULL;
}

const char *fleet_pages_check(const fleet_pages *p)
{
    uint32_t idle = 0, keys = 0, found = 0, n = 0, last = FLEET_PAGES_NONE, page;
    const char *wrong = NULL;
    for (uint32_t i = 0; i < p->pages; i++) {
        idle += !fleeti_pages_at(p, i)->references;
        keys += fleeti_pages_at(p, i)->key != 0;
    }
    if (idle != p->free + p->cached) return "a page without references is in no list";
    if (p->reserved > idle) return "more pages are reserved than there are";
    /* A list that ends after as many pages as it counts holds none of them twice. */
    for (page = p->first_free; page != FLEET_PAGES_NONE && n < p->free; n++) {
        if (fleeti_pages_at(p, page)->references) return "a free page has a reference";
        if (fleeti_pages_at(p, page)->key) return "a free page is cached";
        page = fleeti_pages_at(p, page)->next;
    }
    if (n != p->free || (n && page != FLEET_PAGES_NONE)) return "the free list has another length";
    for (n = 0, page = p->oldest; page != FLEET_PAGES_NONE && n < p->cached; n++) {
        const fleeti_page *it = fleeti_pages_at(p, page);
        if (it->references) return "a page that may be evicted has a reference";
        if (!it->key) return "a page that may be evicted is not cached";
        if (it->previous != last) return "the cached pages' list is broken";
        last = page, page = it->next;
    }
    if (n != p->cached || page != FLEET_PAGES_NONE || last != p->newest)
        return "the cached pages' list has another length";
    for (uint32_t b = 0; b < p->buckets && !wrong; b++)
        wrong = fleeti_pages_check_bucket(p, b, &found);
    if (wrong) return wrong;
    return found == keys ? NULL : "a cached page is in no bucket";
}

/* ---- the server: the host's end ---- */

fleet_server_desc fleet_server_desc_default(void)
{
    fleet_server_desc d;
    memset(&d, 0, sizeof d);
    return d;
}

/* From a picosecond to a second. */
static uint32_t fleeti_tick_fits(float tick_ns)
{
    return tick_ns >= 1e-3f && tick_ns <= 1e9f;
}
/* The descriptor with its defaults. */
static fleet_server_desc fleeti_complete_server(const fleet_server_desc *desc)
{
    fleet_server_desc d = desc ? *desc : fleet_server_desc_default();
    const uint32_t classes = d.policy != FLEET_POLICY_FIFO;
    if (!d.requests) d.requests = 64;
    if (!d.reactive_requests) d.reactive_requests = classes ? d.requests / 4 : 0;
    if (!d.events) d.events = 32;
    if (!d.pages) d.pages = 1024;
    if (!d.page_tokens) d.page_tokens = 16;
    if (!d.reactive_pages) d.reactive_pages = classes ? d.pages / 4 : 0;
    if (!d.prompt_tokens) d.prompt_tokens = 4096;
    if (!d.sequence_tokens) d.sequence_tokens = 8192;
    if (!d.decode_rows) d.decode_rows = 64;
    if (!d.chunk_rows) d.chunk_rows = 256;
    if (!d.layers) d.layers = 1;
    if (d.tick_ns == 0) d.tick_ns = (float)FLEETI_CLOCK_NS;
    if (!d.age_ticks && fleeti_tick_fits(d.tick_ns)) d.age_ticks = (uint64_t)(30e9f / d.tick_ns);
    if (!d.pools) d.pools = 1;
    return d;
}

/* Offsets of the parts. */
typedef struct fleeti_server_layout {
    size_t slots, prompts, page_tables, pages, batches, suspended, results, outbox, bytes;
    size_t submissions, events, host_prompts, host_bytes;
    size_t batch_bytes;
    uint32_t submission_slots, event_slots, pages_of_slot;
} fleeti_server_layout;

static size_t fleeti_part(size_t *bytes, size_t more)
{
    const size_t at = *bytes;
    *bytes += fleeti_lines(more);
    return at;
}
static uint32_t fleeti_power_of_two(uint32_t least)
{
    uint32_t n = 2;
    while (n < least) n *= 2;
    return n;
}

/* The first field that is out of its range, and the nearest value that fits; null: there is none.
   Each limit follows from fields before it, which are in their ranges where it is used. */
static const char *fleeti_refused_field(const fleet_server_desc *d, uint32_t *fits)
{
    /* Of all requests, with their last events, at most 2^20. */
    const uint32_t events = (1u << 20) / (d->requests < 65536 ? d->requests : 65536) - 1;
    /* Of each class, a request of one token that yields one fits at some time. */
    const uint32_t pages = d->page_tokens == 1 ? 2 : 1;
    const struct {
        const char *name;
        uint32_t value, least, most;
    } fields[] = {
        {"requests", d->requests, 1, 65536},
        {"reactive_requests", d->reactive_requests, 0, d->requests - 1},
        {"events", d->events, 1, events < 4096 ? events : 4096},
        {"page_tokens", d->page_tokens, 1, 65536},
        {"pages", d->pages, pages, 1u << 24},
        {"reactive_pages", d->reactive_pages, 0, d->pages - pages},
        {"prompt_tokens", d->prompt_tokens, 1, 1u << 24},
        {"sequence_tokens", d->sequence_tokens, 2, 1u << 24},
        {"words", d->words, 0, 65536},
        {"decode_rows", d->decode_rows, 1, 65536},
        {"chunk_rows", d->chunk_rows, 1, 65536},
        {"beside_rows", d->beside_rows, 0, d->chunk_rows},
        {"layers", d->layers, 1, 65536},
        {"pools", d->pools, 1, FLEETI_POOLS},
        {"policy", (uint32_t)d->policy, 0, FLEET_POLICY_FIFO},
        {"tick_ns", fleeti_tick_fits(d->tick_ns), 1, 1},
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        *fits = fields[i].value < fields[i].least ? fields[i].least : fields[i].most;
        if (fields[i].value < fields[i].least || fields[i].value > fields[i].most)
            return fields[i].name;
    }
    *fits = 0;
    return NULL;
}

/* d: complete, and no field is refused. */
static void fleeti_lay_out_server(fleeti_server_layout *l, const fleet_server_desc *d)
{
    const size_t n = d->requests;
    memset(l, 0, sizeof *l);
    l->submission_slots = fleeti_power_of_two(d->requests);
    l->event_slots = fleeti_power_of_two(d->requests * (d->events + 1));
    l->pages_of_slot = (d->sequence_tokens + d->page_tokens - 1) / d->page_tokens;
    l->batch_bytes = fleeti_lines(sizeof(fleet_batch) + d->decode_rows * sizeof(fleet_row));
    fleeti_part(&l->bytes, sizeof(fleet_table));
    l->slots = fleeti_part(&l->bytes, n * sizeof(fleet_slot));
    l->prompts = fleeti_part(&l->bytes, n * fleeti_prompt_stride(d) * 4);
    l->page_tables = fleeti_part(&l->bytes, n * l->pages_of_slot * 4);
    l->pages = fleeti_part(&l->bytes, fleet_pages_bytes(d->pages, d->page_tokens));
    l->batches = fleeti_part(&l->bytes, 2 * d->pools * l->batch_bytes);
    l->suspended = fleeti_part(&l->bytes, d->pools * d->decode_rows * sizeof(fleet_row));
    l->results = fleeti_part(&l->bytes, d->pools * (d->decode_rows + 1u) * sizeof(fleeti_result));
    l->outbox = fleeti_part(&l->bytes, 2 * n * sizeof(fleeti_notice));
    fleeti_part(&l->host_bytes, sizeof(fleeti_desk) + n * sizeof(fleeti_desk_slot));
    l->submissions = fleeti_part(&l->host_bytes,
                                 fleet_ring_bytes(l->submission_slots, sizeof(fleeti_submission)));
    l->events =
        fleeti_part(&l->host_bytes, fleet_ring_bytes(l->event_slots, sizeof(fleeti_notice)));
    l->host_prompts = fleeti_part(&l->host_bytes, n * fleeti_prompt_stride(d) * 4);
}

/* Its bytes; none where a field is refused. */
static fleeti_server_layout fleeti_layout_of(const fleet_server_desc *desc)
{
    const fleet_server_desc d = fleeti_complete_server(desc);
    fleeti_server_layout l;
    uint32_t fits;
    memset(&l, 0, sizeof l);
    if (!fleeti_refused_field(&d, &fits)) fleeti_lay_out_server(&l, &d);
    return l;
}
size_t fleet_server_bytes(const fleet_server_desc *desc)
{
    return fleeti_layout_of(desc).bytes;
}
size_t fleet_server_host_bytes(const fleet_server_desc *desc)
{
    return fleeti_layout_of(desc).host_bytes;
}

static fleeti_desk_slot *fleeti_desk_slots(const fleet_server *s)
{
    return (fleeti_desk_slot *)(void *)(s->desk + 1);
}
/* The words of a request, then its prompt. */
static uint32_t *fleeti_host_prompt(const fleet_server *s, uint32_t slot)
{
    fleeti_server_layout l;
    fleeti_lay_out_server(&l, &s->desc);
    return (uint32_t *)(void *)((char *)s->desk + l.host_prompts) +
           (size_t)slot * fleeti_prompt_stride(&s->desc);
}
const uint32_t *fleet_server_page_tables(const fleet_server *s, uint32_t *stride)
{
    fleeti_server_layout l;
    if (!stride) return NULL;
    *stride = 0;
    if (!s || !s->table) return NULL;
    fleeti_lay_out_server(&l, &s->desc);
    *stride = l.pages_of_slot;
    return (const uint32_t *)(const void *)((const char *)(const void *)s->table + l.page_tables);
}

/* The device's end of a ring of the desk that is empty: its next message has this number. */
static fleet_ring fleeti_device_end(const fleet_server *s, const fleet_ring *host, uint64_t next)
{
    const ptrdiff_t at = (const char *)(const void *)host->slots - (const char *)(void *)s->desk;
    fleet_ring device = *host;
    device.slots = (uint32_t *)(void *)((char *)(void *)s->desk_device + at);
    device.position = next, device.popped = (uint32_t)next;
    return device;
}

/* An empty table. The desk's slots keep their generations, and the rings their numbers, so that no
   thread that was suspended takes a new message or request for an old one. What is left in the
   submissions is passed over. */
static fleet_status fleeti_server_start(fleet_server *s, fleet_stream stream)
{
    fleeti_server_layout l;
    char *table_bytes, *device = (char *)(void *)s->table, *host = (char *)(void *)s->desk_device;
    fleeti_lay_out_server(&l, &s->desc);
    if (!(table_bytes = (char *)calloc(1, l.bytes))) return FLEET_ERROR_MEMORY;
    fleet_table *t = (fleet_table *)(void *)table_bytes;
    t->desc = s->desc;
    t->slots = (fleet_slot *)(void *)(device + l.slots);
    t->prompts = (uint32_t *)(void *)(device + l.prompts);
    t->page_tables = (uint32_t *)(void *)(device + l.page_tables);
    t->pages_of_slot = l.pages_of_slot;
    t->pages = (fleet_pages *)(void *)(device + l.pages);
    t->batches = (fleet_batch *)(void *)(device + l.batches);
    t->batch_bytes = l.batch_bytes;
    t->suspended = (fleet_row *)(void *)(device + l.suspended);
    t->results = (fleeti_result *)(void *)(device + l.results);
    t->outbox = (fleeti_notice *)(void *)(device + l.outbox);
    t->desk = s->desk_device;
    t->host_prompts = (const uint32_t *)(const void *)(host + l.host_prompts);
    t->host_stats = &s->desk_device->stats[0].word;
    t->aged_turn = 1;
    t->order = t->news = t->pool[0].seen = t->pool[1].seen = FLEETI_TEST_START;
    t->pools.turns.word = t->pools.turn.word = t->pools.bell.word = FLEETI_TEST_START;
    t->pools.handed_out.word = t->pools.taken.word = t->pools.run.word = FLEETI_TEST_START;
    t->changes = __atomic_load_n(&s->desk->changes.word, __ATOMIC_RELAXED);
    t->cancels = __atomic_load_n(&s->desk->cancels.word, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < sizeof(fleet_server_stats) / 4; i++)
        __atomic_store_n(&s->desk->stats[0].word + i, 0, __ATOMIC_RELAXED);
    t->submissions = fleeti_device_end(
        s, &s->desk->submissions,
        __atomic_load_n(fleeti_message_position(&s->desk->submissions, 0), __ATOMIC_ACQUIRE));
    __atomic_store_n(fleeti_message_popped(&s->desk->submissions), t->submissions.popped,
                     __ATOMIC_RELEASE);
    t->events = fleeti_device_end(
        s, &s->desk->events,
        __atomic_load_n(fleeti_message_position(&s->desk->events, 1), __ATOMIC_ACQUIRE));
    fleet_status status = fleet_pages_init((fleet_pages *)(void *)(table_bytes + l.pages),
                                           s->desc.pages, s->desc.page_tokens);
    if (!status) status = fleet_to_device(s->table, table_bytes, l.bytes, stream);
    if (!status) status = fleet_stream_wait(stream);
    free(table_bytes);
    return status;
}

static uint64_t fleeti_desk_state(uint32_t generation, uint32_t phase, uint32_t tokens)
{
    return (uint64_t)generation << 32 | phase << 28 | tokens;
}
static uint32_t fleeti_desk_phase(uint64_t state)
{
    return (uint32_t)state >> 28;
}
static uint32_t fleeti_desk_tokens(uint64_t state)
{
    return (uint32_t)state & 0xfffffff;
}

/* Rings, and slots whose generations begin anywhere: an id of another server, or of one that was
   here before, names none. */
static fleet_status fleeti_server_desk(fleet_server *s)
{
    fleeti_server_layout l;
    char *at = (char *)(void *)s->desk;
    uint64_t any = fleeti_now_ns() ^ (uint64_t)(uintptr_t)at << 16;
    fleet_ring device;
    fleeti_lay_out_server(&l, &s->desc);
    memset(at, 0, l.host_bytes);
    s->desk->changes.word = s->desk->cancels.word = FLEETI_TEST_START;
    fleet_status status =
        fleet_ring_init(&s->desk->submissions, &device, at + l.submissions, at + l.submissions,
                        l.submission_slots, sizeof(fleeti_submission));
    if (!status)
        status = fleet_ring_init(&s->desk->events, &device, at + l.events, at + l.events,
                                 l.event_slots, sizeof(fleeti_notice));
    for (uint32_t i = 0; i < s->desc.requests; i++) {
        uint64_t mixed = any += 0x9e3779b97f4a7c15u; /* splitmix64 */
        mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
        mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
        fleeti_desk_slots(s)[i].state = fleeti_desk_state(
            FLEETI_TEST_START ? FLEETI_TEST_START : (uint32_t)(mixed >> 32), FLEETI_DESK_FREE, 0);
    }
    return status;
}

fleet_status fleet_server_init(fleet_server *s, const fleet_server_desc *desc, void *device_memory,
                               void *pinned, void *pinned_device, fleet_stream stream)
{
    const fleet_server_desc d = fleeti_complete_server(desc);
    if (!s) return FLEET_ERROR_NULL;
    memset(s, 0, sizeof *s);
    if (!device_memory || !pinned || !pinned_device) return FLEET_ERROR_NULL;
    if ((s->field = fleeti_refused_field(&d, &s->fits)) != NULL) return FLEET_ERROR_ARGUMENT;
    s->desc = d;
    s->table = (fleet_table *)device_memory;
    s->desk = (fleeti_desk *)pinned;
    s->desk_device = (fleeti_desk *)pinned_device;
    fleet_status status = fleeti_server_desk(s);
    if (!status) status = fleeti_server_start(s, stream);
    if (status) memset(s, 0, sizeof *s);
    return status;
}

fleet_status fleet_server_create(fleet_server *s, const fleet_server_desc *desc,
                                 fleet_stream stream)
{
    const fleet_server_desc d = fleeti_complete_server(desc);
    void *device = NULL, *pinned = NULL, *pinned_device = NULL;
    if (!s) return FLEET_ERROR_NULL;
    memset(s, 0, sizeof *s);
    if ((s->field = fleeti_refused_field(&d, &s->fits)) != NULL) return FLEET_ERROR_ARGUMENT;
    fleet_status status = fleeti_memory_alloc(
        fleet_server_bytes(desc), fleet_server_host_bytes(desc), &device, &pinned, &pinned_device);
    if (status) return status;
    if ((status = fleet_server_init(s, desc, device, pinned, pinned_device, stream)))
        fleeti_memory_free(device, pinned);
    else
        s->owned = 1;
    return status;
}

void fleet_server_free(fleet_server *s)
{
    if (!s) return;
    if (s->owned) fleeti_memory_free(s->table, s->desk);
    memset(s, 0, sizeof *s);
}

static fleet_status fleeti_refuse_request(fleet_ticket *ticket, const char *field, uint32_t fits)
{
    ticket->field = field, ticket->fits = fits;
    return FLEET_ERROR_ARGUMENT;
}
static fleet_status fleeti_check_request(const fleet_server_desc *d, const fleet_request *r,
                                         fleet_ticket *ticket)
{
    /* Pages that requests of this class can have at all. */
    const uint32_t pages = r->priority == FLEET_REACTIVE ? d->pages : d->pages - d->reactive_pages;
    const uint64_t paged = (uint64_t)pages * d->page_tokens;
    const uint32_t tokens = paged < d->sequence_tokens ? (uint32_t)paged : d->sequence_tokens;
    const uint32_t prompt = d->prompt_tokens < tokens ? d->prompt_tokens : tokens - 1;
    if ((uint32_t)r->priority > FLEET_PROACTIVE)
        return fleeti_refuse_request(ticket, "priority", FLEET_PROACTIVE);
    if (!r->prompt_tokens || r->prompt_tokens > prompt)
        return fleeti_refuse_request(ticket, "prompt_tokens", prompt);
    if (!r->max_tokens || r->max_tokens > tokens - r->prompt_tokens)
        return fleeti_refuse_request(ticket, "max_tokens", tokens - r->prompt_tokens);
    return FLEET_OK;
}

/* A free slot for a request of the class, now taken by this thread, with a new generation;
   FLEET_NONE: there is none. */
static uint32_t fleeti_take_slot(fleet_server *s, fleet_class priority, uint32_t *generation)
{
    const uint32_t first = priority == FLEET_REACTIVE ? 0 : s->desc.reactive_requests;
    /* From the first one on: the boundary looks at slots up to the last one in use. */
    for (uint32_t i = first; i < s->desc.requests; i++) {
        uint64_t *state = &fleeti_desk_slots(s)[i].state;
        uint64_t was = __atomic_load_n(state, __ATOMIC_RELAXED);
        *generation = (uint32_t)(was >> 32) + 1;
        /* Acquires what the thread that read the last event has left. Pair: fleeti_free_slot. */
        if (fleeti_desk_phase(was) == FLEETI_DESK_FREE &&
            __atomic_compare_exchange_n(state, &was,
                                        fleeti_desk_state(*generation, FLEETI_DESK_TAKEN, 0), 0,
                                        __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            return i;
    }
    return FLEET_NONE;
}
/* By the thread that alone may: it has submitted nothing, or has popped the last event. */
static void fleeti_free_slot(fleeti_desk_slot *desk, uint32_t generation)
{
    __atomic_store_n(&desk->state, fleeti_desk_state(generation, FLEETI_DESK_FREE, 0),
                     __ATOMIC_RELEASE);
}
/* From one phase to another, if this request is in it. */
static void fleeti_desk_move(fleeti_desk_slot *desk, uint32_t generation, uint32_t from,
                             uint32_t to)
{
    uint64_t was = __atomic_load_n(&desk->state, __ATOMIC_SEQ_CST);
    while (was >> 32 == generation && fleeti_desk_phase(was) == from)
        if (__atomic_compare_exchange_n(&desk->state, &was,
                                        fleeti_desk_state(generation, to, fleeti_desk_tokens(was)),
                                        0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            break;
}
/* What an event says, before any thread pops it: of a request whose last event is in the ring,
   fleet_server_ended leaves none. The thread that pops it may come later. */
static void fleeti_desk_note(fleet_server *s, const fleeti_notice *n)
{
    uint64_t *state = &fleeti_desk_slots(s)[n->slot].state;
    uint64_t was = __atomic_load_n(state, __ATOMIC_SEQ_CST), now = was;
    do {
        uint32_t phase = fleeti_desk_phase(was), tokens = fleeti_desk_tokens(was);
        if (was >> 32 != n->generation || phase < FLEETI_DESK_TAKEN || phase == FLEETI_DESK_ENDED)
            return;
        if (n->kind != FLEET_EVENT_TOKEN)
            phase = FLEETI_DESK_ENDED;
        else if (tokens <= n->index)
            tokens = n->index + 1;
        now = fleeti_desk_state(n->generation, phase, tokens);
    } while (now != was &&
             !__atomic_compare_exchange_n(state, &was, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
}

static uint64_t fleeti_request_id(uint32_t slot, uint32_t generation)
{
    return (uint64_t)generation << 32 | (slot + 1);
}
/* The slot that an id names, if the request in it is this one; else null. */
static fleeti_desk_slot *fleeti_slot_of_id(const fleet_server *s, uint64_t id)
{
    const uint32_t slot = (uint32_t)id - 1;
    if (!s || !s->desk || slot >= s->desc.requests) return NULL;
    fleeti_desk_slot *desk = fleeti_desk_slots(s) + slot;
    uint64_t state = __atomic_load_n(&desk->state, __ATOMIC_ACQUIRE);
    return state >> 32 == id >> 32 && fleeti_desk_phase(state) > FLEETI_DESK_HELD ? desk : NULL;
}

/* Publishes what this thread has pushed, cancelled or released to the boundary. Pair:
   fleeti_take_in (edge 31). */
static void fleeti_desk_changed(fleet_server *s, uint32_t cancels)
{
    if (cancels) __atomic_fetch_add(&s->desk->cancels.word, 1, __ATOMIC_RELEASE);
    fleet_wake(&s->desk->changes.word);
}

fleet_status fleet_server_submit(fleet_server *s, const fleet_request *r, fleet_ticket *ticket)
{
    fleeti_submission m;
    fleet_status status;
    uint32_t generation;
    if (!ticket) return FLEET_ERROR_NULL;
    memset(ticket, 0, sizeof *ticket);
    if (!s || !s->desk || !r || !r->prompt) return FLEET_ERROR_NULL;
    if (s->desc.words && !r->words) {
        ticket->field = "words";
        return FLEET_ERROR_NULL;
    }
    if ((status = fleeti_check_request(&s->desc, r, ticket))) return status;
    if (__atomic_load_n(&s->desk->stop.word, __ATOMIC_RELAXED) ||
        __atomic_load_n(&s->desk->ended, __ATOMIC_RELAXED))
        return FLEET_ERROR_ABORTED;
    m.slot = fleeti_take_slot(s, r->priority, &generation);
    if (m.slot == FLEET_NONE) return FLEET_ERROR_BUSY;
    fleeti_desk_slot *desk = fleeti_desk_slots(s) + m.slot;
    m.generation = generation, m.priority = (uint32_t)r->priority;
    m.prompt_tokens = r->prompt_tokens, m.max_tokens = r->max_tokens;
    if (s->desc.words) memcpy(fleeti_host_prompt(s, m.slot), r->words, (size_t)s->desc.words * 4);
    memcpy(fleeti_host_prompt(s, m.slot) + s->desc.words, r->prompt, (size_t)r->prompt_tokens * 4);
    __atomic_store_n(&desk->released, (uint64_t)generation << 32, __ATOMIC_RELAXED);
    /* So that no cancel in this slot is so old as to seem newer. */
    __atomic_store_n(&desk->cancelled, generation - 1, __ATOMIC_RELAXED);
    /* Publishes the prompt to the boundary (edge 26). The ring has a place for each slot of the
       table, so that it is full only when a launch has ended that left messages there, and
       fleeti_poll_left has freed slots since. */
    if (fleet_ring_push(&s->desk->submissions, &m)) {
        fleeti_free_slot(desk, generation);
        return FLEET_ERROR_ABORTED;
    }
    ticket->id = fleeti_request_id(m.slot, generation);
    /* It may have ended by now. If the launch has, either this thread sees that, or
       fleet_server_ended sees the request. */
    fleeti_desk_move(desk, generation, FLEETI_DESK_TAKEN, FLEETI_DESK_SUBMITTED);
    if (__atomic_load_n(&s->desk->ended, __ATOMIC_SEQ_CST))
        fleeti_desk_move(desk, generation, FLEETI_DESK_SUBMITTED, FLEETI_DESK_LEFT);
    fleeti_desk_changed(s, 0);
    return FLEET_OK;
}

fleet_status fleet_server_cancel(fleet_server *s, uint64_t id)
{
    fleeti_desk_slot *desk = fleeti_slot_of_id(s, id);
    if (!desk) return FLEET_ERROR_GONE;
    uint32_t was = __atomic_load_n(&desk->cancelled, __ATOMIC_RELAXED);
    /* Generations only grow, by steps that wrap: a late cancel does not undo that of a newer
       request. */
    while ((int32_t)(was - (uint32_t)(id >> 32)) < 0)
        if (__atomic_compare_exchange_n(&desk->cancelled, &was, (uint32_t)(id >> 32), 0,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            break;
    fleeti_desk_changed(s, 1);
    return FLEET_OK;
}

void fleet_server_stop(fleet_server *s, uint32_t drain)
{
    uint32_t was = 0;
    if (!s || !s->desk) return;
    /* A drain does not take a stop back. */
    if (drain)
        __atomic_compare_exchange_n(&s->desk->stop.word, &was, FLEETI_STOP_DRAIN, 0,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    else
        __atomic_store_n(&s->desk->stop.word, FLEETI_STOP_NOW, __ATOMIC_RELAXED);
    fleeti_desk_changed(s, 1);
}

void fleet_server_ended(fleet_server *s, fleet_status status)
{
    if (!s || !s->desk) return;
    const fleet_ring *events = &s->desk->events;
    __atomic_fetch_add(&s->desk->ending, 1, __ATOMIC_SEQ_CST); /* no reset until this has ended */
    /* The requests whose last event is in the ring, or was popped before (fleet_server_poll). */
    uint64_t n = __atomic_load_n(fleeti_message_position(&s->desk->events, 1), __ATOMIC_ACQUIRE);
    for (;; n++) {
        const uint32_t *slot = fleeti_message_slot(events, (uint32_t)n);
        fleeti_notice notice;
        if (__atomic_load_n(slot, __ATOMIC_ACQUIRE) != (uint32_t)n + 1) break;
        fleeti_message_copy(events, slot, &notice);
        fleeti_desk_note(s, &notice);
    }
    /* Before the slots are looked at: a request that is submitted now is seen by one of the two
       threads. */
    __atomic_store_n(&s->desk->ended, 1 + (uint32_t)status, __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < s->desc.requests; i++) {
        fleeti_desk_slot *desk = fleeti_desk_slots(s) + i;
        const uint64_t state = __atomic_load_n(&desk->state, __ATOMIC_SEQ_CST);
        fleeti_desk_move(desk, (uint32_t)(state >> 32), FLEETI_DESK_SUBMITTED, FLEETI_DESK_LEFT);
    }
    __atomic_fetch_sub(&s->desk->ending, 1, __ATOMIC_SEQ_CST);
}

/* The last event of a request that the launch has not ended. */
static uint32_t fleeti_poll_left(fleet_server *s, fleet_server_event *event)
{
    for (uint32_t i = 0; i < s->desc.requests; i++) {
        fleeti_desk_slot *desk = fleeti_desk_slots(s) + i;
        uint64_t was = __atomic_load_n(&desk->state, __ATOMIC_ACQUIRE);
        const uint32_t generation = (uint32_t)(was >> 32), tokens = fleeti_desk_tokens(was);
        /* Of the launch that left it, as the server is not reset before the slot is free. */
        const uint32_t ended = __atomic_load_n(&s->desk->ended, __ATOMIC_ACQUIRE);
        uint64_t number;
        if (fleeti_desk_phase(was) != FLEETI_DESK_LEFT) continue;
        /* What its launch has sent comes first. It sends no more, but this thread may have looked
           before it did. */
        if (fleeti_message_next(&s->desk->events, 1, &number)) return fleet_server_poll(s, event);
        if (!__atomic_compare_exchange_n(&desk->state, &was,
                                         fleeti_desk_state(generation, FLEETI_DESK_FREE, 0), 0,
                                         __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            continue;
        event->id = fleeti_request_id(i, generation);
        event->kind = ended > 1 ? FLEET_EVENT_FAILED : FLEET_EVENT_CANCELLED;
        event->index = tokens;
        event->status = (fleet_status)(ended - 1);
        return 1;
    }
    return 0;
}

uint32_t fleet_server_poll(fleet_server *s, fleet_server_event *event)
{
    fleeti_notice n;
    uint64_t number;
    if (!event) return 0;
    memset(event, 0, sizeof *event);
    if (!s || !s->desk) return 0;
    /* Acquires all events of a launch that has ended. */
    uint32_t ended = __atomic_load_n(&s->desk->ended, __ATOMIC_ACQUIRE);
    do {
        if (!fleeti_message_read(&s->desk->events, &number, &n))
            return ended ? fleeti_poll_left(s, event) : 0;
        /* Where it still is the next one it is whole. */
        if (fleeti_message_move(&s->desk->events, 1, number, number)) fleeti_desk_note(s, &n);
    } while (!fleeti_message_move(&s->desk->events, 1, number, number + 1));
    event->id = fleeti_request_id(n.slot, n.generation);
    event->tick = (uint64_t)n.tick[1] << 32 | n.tick[0];
    event->begun = (uint64_t)n.begun[1] << 32 | n.begun[0];
    event->kind = (fleet_event_kind)n.kind;
    event->token = n.token, event->index = n.index;
    if (event->kind == FLEET_EVENT_TOKEN) {
        event->reused = n.detail * s->desc.page_tokens;
    } else {
        event->status = (fleet_status)n.detail;
        fleeti_free_slot(fleeti_desk_slots(s) + n.slot, n.generation);
    }
    return 1;
}

fleet_status fleet_server_release(fleet_server *s, const fleet_server_event *event)
{
    fleeti_desk_slot *desk;
    if (!s || !event) return FLEET_ERROR_NULL;
    if (event->kind != FLEET_EVENT_TOKEN) return FLEET_OK;
    if (!(desk = fleeti_slot_of_id(s, event->id))) return FLEET_ERROR_GONE;
    uint32_t tokens = fleeti_desk_tokens(__atomic_load_n(&desk->state, __ATOMIC_RELAXED));
    uint64_t was = __atomic_load_n(&desk->released, __ATOMIC_RELAXED);
    /* The generation is in the word: a late release gives no room to a newer request. Pair:
       fleeti_send. */
    do {
        if (was >> 32 != event->id >> 32) return FLEET_ERROR_GONE;
        /* The ring has room for what has not been read. */
        if ((uint32_t)was >= tokens) return FLEET_ERROR_ARGUMENT;
    } while (!__atomic_compare_exchange_n(&desk->released, &was, was + 1, 0, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    fleeti_desk_changed(s, 0);
    return FLEET_OK;
}

fleet_status fleet_server_reset(fleet_server *s, fleet_stream stream)
{
    fleet_status status = FLEET_ERROR_BUSY;
    uint32_t held = 0;
    if (!s || !s->desk) return FLEET_ERROR_NULL;
    uint32_t n = __atomic_load_n(&s->desk->ending, __ATOMIC_SEQ_CST) ? 0 : s->desc.requests;
    /* No other thread has a slot, and none gets one meanwhile. */
    for (; held < n; held++) {
        uint64_t *state = &fleeti_desk_slots(s)[held].state;
        uint64_t was = __atomic_load_n(state, __ATOMIC_RELAXED);
        const uint32_t generation = (uint32_t)(was >> 32);
        if (fleeti_desk_phase(was) != FLEETI_DESK_FREE ||
            !__atomic_compare_exchange_n(state, &was,
                                         fleeti_desk_state(generation, FLEETI_DESK_HELD, 0), 0,
                                         __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            break;
    }
    if (held == s->desc.requests) {
        status = fleeti_server_start(s, stream);
        __atomic_store_n(&s->desk->stop.word, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&s->desk->ended, 0, __ATOMIC_RELEASE);
    }
    for (uint32_t i = 0; i < held; i++) {
        fleeti_desk_slot *desk = fleeti_desk_slots(s) + i;
        /* Atomic, since a thread that looked before may only now try to change it, in vain. */
        fleeti_free_slot(desk, (uint32_t)(__atomic_load_n(&desk->state, __ATOMIC_RELAXED) >> 32));
    }
    return status;
}

void fleet_server_stats_read(const fleet_server *s, fleet_server_stats *stats)
{
    if (!stats) return;
    memset(stats, 0, sizeof *stats);
    if (!s || !s->desk) return;
    const uint32_t *words = &s->desk->stats[0].word;
    for (uint32_t i = 0; i < sizeof *stats / 4; i++)
        ((uint32_t *)(void *)stats)[i] = __atomic_load_n(words + i, __ATOMIC_RELAXED);
}

FLEET_C_END

#endif /* FLEET_IMPLEMENTATION */
