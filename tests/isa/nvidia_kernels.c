/* What tests/isa/nvidia.py looks at: each path of the headers that orders memory on NVIDIA GPUs, as a kernel of its own.
   With -DSCHED those of fleet_sched.h, with a trace, and the implementation's own kernels. */
#if defined(SCHED)
#define FLEET_TRACE
#define FLEET_IMPLEMENTATION
#include "examples/parts/fleet_server.h"
#else
#include "fleet_device.h"
#endif

#define PATH(name) extern "C" __global__ void name

#if !defined(SCHED)
FLEET_EVENT_TENSOR1(done, rows)

PATH(notify_block)(done e, float *x, uint32_t epoch)
{
    x[threadIdx.x] = 1;
    fleet_notify_device(FLEET_BLOCK, done_at(&e, 0), epoch);
}
PATH(notify_wave)(done e, float *x, uint32_t epoch)
{
    x[threadIdx.x] = 1;
    fleet_notify_device(FLEET_WAVE, done_at(&e, 0), epoch);
}
PATH(notify_streaming)(fleeti_counters c, const fleeti_notify *records, float *x, uint32_t epoch)
{
    fleeti_thread self = fleeti_thread_now();
    self.has_producer = 1;
    x[threadIdx.x] = 1;
    fleeti_notify_all(self, FLEET_BLOCK, c, records[0], records, 1, epoch, NULL, 0, 0, NULL, 0, 0,
                      0);
}
PATH(notify_system)(done e, float *x, uint32_t epoch)
{
    x[threadIdx.x] = 1;
    fleet_notify_system(FLEET_BLOCK, done_at(&e, 0), epoch);
}
PATH(trigger)(done e, float *x, uint32_t *told, uint32_t epoch)
{
    x[threadIdx.x] = 1;
    *told = fleet_trigger_device(FLEET_BLOCK, done_at(&e, 0), epoch);
}
PATH(trigger_system)(done e, float *x, uint32_t *told, uint32_t epoch)
{
    x[threadIdx.x] = 1;
    *told = fleet_trigger_system(FLEET_BLOCK, done_at(&e, 0), epoch);
}
PATH(wait_block)(done e, float *x, uint32_t epoch)
{
    if (fleet_wait_device(FLEET_BLOCK, done_at(&e, 0), epoch)) return;
    x[threadIdx.x] = x[threadIdx.x + 1024];
}
PATH(wait_wave)(done e, float *x, uint32_t epoch)
{
    if (fleet_wait_device(FLEET_WAVE, done_at(&e, 0), epoch)) return;
    x[threadIdx.x] = x[threadIdx.x + 1024];
}
PATH(wait_system)(done e, float *x, uint32_t epoch)
{
    if (fleet_wait_system(FLEET_BLOCK, done_at(&e, 0), epoch)) return;
    x[threadIdx.x] = x[threadIdx.x + 1024];
}
PATH(wait_streaming)(fleeti_counters c, const fleeti_wait *records, float *x, fleet_watch watch)
{
    fleeti_thread self = fleeti_thread_now();
    fleeti_wait_diagnostics seen;
    self.has_producer = 1;
    if (fleeti_wait_all(self, FLEET_BLOCK, c, records[0], records, 1, 1, FLEET_SCOPE_DEVICE, &watch,
                        &seen))
        return;
    x[threadIdx.x] = x[threadIdx.x + 1024];
}
PATH(test_wave)(done e, float *x, uint32_t epoch)
{
    if (!fleet_test_device(FLEET_WAVE, done_at(&e, 0), epoch)) return;
    x[threadIdx.x] = x[threadIdx.x + 1024];
}
PATH(vote)(uint32_t *told)
{
    told[threadIdx.x] = fleeti_block_vote(fleeti_thread_now(), told[threadIdx.x], 0);
}
PATH(broadcast)(uint32_t *told)
{
    told[threadIdx.x] = fleeti_broadcast(fleeti_thread_now(), told[threadIdx.x], 0);
}
PATH(post_order)(uint64_t *at, uint64_t value)
{
    fleeti_post_order();
    fleeti_post64_device(at + threadIdx.x, value);
}
PATH(poll64)(const uint64_t *at, float *x)
{
    while (!fleeti_poll64_device(at)) {
    }
    x[0] = x[1];
}
PATH(flagged)(fleet_quad *at, fleet_quad *x)
{
    fleet_store_flagged_device(at, x[0]);
    fleet_store_flagged_system(at + 1, x[1]);
    x[2] = fleet_load_flagged_device(at + 2);
    x[3] = fleet_load_flagged_system(at + 3);
}
PATH(arrive_for_peers)(fleeti_counters c, uint32_t epoch)
{
    fleeti_arrive_for_peers(c, 0, 1, epoch);
}
PATH(publish)(uint32_t *at, float *x)
{
    x[0] = 1;
    fleeti_publish_device(at + 1, 1);
    fleeti_publish_system(at, 1);
}
PATH(order)(uint32_t *at)
{
    at[0] = 1;
    fleeti_lds_order();
    at[1] = 1;
}
PATH(later)(uint32_t *at, uint32_t *x)
{
    uint32_t later = 0;
    x[threadIdx.x] = fleeti_deferred_end(fleeti_thread_now(), &later);
    fleeti_deferred_begin(fleeti_thread_now(), &later, at);
}
PATH(copy)(const void *from, float *x)
{
    __shared__ float lds[1024];
    fleet_copy_to_lds(lds, from, 4096, threadIdx.x, blockDim.x);
    fleet_copy_wait();
    fleet_block_barrier();
    x[threadIdx.x] = lds[1023 - threadIdx.x];
}
PATH(loads_fresh)(const void *at, fleet_quad *to)
{
    to[0] = fleet_load_coherent16(at);
    to[1].word[0] = fleet_load_coherent4(at);
    *(uint64_t *)to[2].word = fleet_load_coherent8(at);
}

/* ---- the weight pipeline ---- */

FLEET_DEVICE fleeti_pipeline ring(void)
{
    return fleeti_pipeline_of(fleeti_dynamic_lds(), 8, 1024);
}
PATH(stream_open)(const uint32_t *stop)
{
    const fleeti_pipeline s = ring();
    fleeti_pipeline_init(&s, 0, stop, 8);
    fleet_block_barrier();
}
PATH(stream_fill)(const char *from, uint32_t slot, uint32_t use)
{
    const fleeti_pipeline s = ring();
    fleeti_copies none;
    fleeti_stage_fill(&s, &none, slot, use, from, 1024);
}
PATH(stream_is_full)(uint32_t slot, uint32_t use, uint32_t *x)
{
    const fleeti_pipeline s = ring();
    if (fleeti_stage_is_full(&s, slot, use)) *x = *(const uint32_t *)s.ring;
}
PATH(stream_is_far)(uint32_t *x, fleet_consumer consumer)
{
    consumer.ring = ring();
    if (!fleeti_stages_wait(&consumer, 1)) *x = *(const uint32_t *)consumer.ring.ring;
}
PATH(stream_release)(uint32_t *x, fleet_consumer consumer)
{
    consumer.ring = ring();
    *x = *(const uint32_t *)(consumer.ring.ring + threadIdx.x);
    fleet_stage_release(&consumer, 1);
}
PATH(stream_give_back)(uint32_t *x, fleet_consumer consumer)
{
    consumer.ring = ring();
    *x = *(const uint32_t *)(consumer.ring.ring + threadIdx.x);
    fleet_stages_release(&consumer, 4, 1);
}
PATH(stream_begins)(fleet_producer producer, uint32_t task)
{
    producer.ring = ring();
    fleeti_producer_begin_task(&producer, task);
}
PATH(stream_awaits_step)(fleet_producer producer, const char *from)
{
    producer.ring = ring();
    if (fleet_producer_await_step(&producer)) fleet_producer_copy(&producer, from, 1024);
}
PATH(stream_awaits_task)(fleet_producer producer, const uint32_t *from, uint32_t *to)
{
    producer.ring = ring();
    if (fleet_producer_await_task(&producer)) *to = fleet_load_coherent4(from);
}
PATH(stream_quits)(uint32_t *to)
{
    const fleeti_pipeline s = ring();
    *to = 1;
    fleeti_pipeline_failed(&s, FLEET_ERROR_TIMEOUT);
}
#else
typedef struct none {
    uint32_t unused;
} none;

PATH(fix)(fleeti_fixed fixed, uint32_t *x)
{
    const fleeti_fixed *kept = fleeti_fixed_in_lds(&fixed);
    x[threadIdx.x] = kept->steps;
}
PATH(ring_push)(fleeti_ring *to, uint32_t mask, const uint32_t *desc)
{
    fleeti_ring_push(to, mask, desc[threadIdx.x] != 0, desc[threadIdx.x]);
}
PATH(ring_push_run)(fleeti_ring *to, uint32_t mask, const fleeti_consumer *consumers)
{
    fleeti_ring_push_run(to, mask, consumers, 100);
}
PATH(ring_take)(fleeti_ring *to, uint32_t mask, fleet_watch watch, uint32_t *x)
{
    uint32_t value = 0;
    if (!fleeti_ring_take(to, mask, 7, &watch, &value)) *x = x[value];
}
PATH(messages_push)(fleet_ring *ring, const uint32_t *messages, uint32_t *pushed)
{
    *pushed = fleet_ring_try_push(ring, messages, 3);
}
PATH(messages_pop)(fleet_ring *ring, uint32_t *messages, uint32_t *popped)
{
    *popped = fleet_ring_try_pop(ring, messages, 3);
}
PATH(pass_over)(fleeti_worker *w, fleeti_worklist *worklist)
{
    fleeti_worklist mine = *worklist;
    fleeti_complete_absent(w, 7, 1, &mine);
    *worklist = mine;
}
PATH(make_ready)(const fleeti_worker *w, fleeti_completions completions)
{
    fleeti_make_ready(w, completions, 1);
}
PATH(next_arrivals)(const fleeti_worker *w, fleeti_cursor *cursor, fleeti_completions *completions)
{
    fleeti_next_arrivals(w, cursor, completions);
}
PATH(scheduler)(fleeti_worker w)
{
    fleeti_scheduler(&w);
}
PATH(residency)(fleet_run run, uint32_t *x)
{
    FLEET_LDS(fleeti_quad, counts, FLEET_MAX_CHIPLETS / 4);
    fleeti_run_line began = {0};
    *x = fleeti_residency_check(&run, fleet_block_id(), fleeti_lds_of(counts), &began, x + 1);
}
PATH(enter)(fleet_run run, uint32_t *x)
{
    fleeti_worker w;
    fleeti_fixed f;
    fleeti_enter(&w, &f, &run, NULL, 0, 0, 16, 1);
    *x = f.role;
}
PATH(finish)(fleet_ctx ctx, uint32_t *x)
{
    *x = (uint32_t)fleet_finish(&ctx);
}
PATH(set_symbol)(fleet_ctx ctx, uint32_t symbol, int32_t value, uint32_t *x)
{
    *x = (uint32_t)fleet_next_symbol(&ctx, symbol, value);
}
PATH(idle_wait)(fleet_ctx ctx, const uint32_t *word, uint32_t seen, uint32_t *x)
{
    *x = (uint32_t)fleet_idle(&ctx, word, seen);
}
PATH(await_pool)(fleeti_state *state, const uint32_t *at, uint32_t *x)
{
    *x = fleeti_await_pool(state, 0, 0, 1, at, 1, 0);
}
PATH(take_in)(fleet_table *t)
{
    fleeti_take_in(t, 0);
}
PATH(share_next)(fleet_ctx ctx, fleet_table *t, fleet_share share, uint32_t *x)
{
    *x = fleet_share_next(&ctx, t, &share) + share.tile;
}
PATH(step_ends)(fleeti_worker w, uint32_t *x)
{
    *x = fleeti_finishes(&w, 0);
}
PATH(own_runs)(fleeti_worker w, uint32_t *x)
{
    *x = fleeti_own_runs(&w);
}
PATH(trace_enter)(fleeti_worker w)
{
    fleeti_trace_enter(&w);
}
PATH(leave)(fleeti_worker w)
{
    fleeti_leave(&w);
}
PATH(fetch_task)(fleeti_worker w, uint32_t *x)
{
    fleeti_fetch_task(&w, 0, 7);
    x[threadIdx.x] = fleeti_lds_get(w.slots, 0);
}
PATH(stream_begun)(fleeti_worker w)
{
    fleeti_pipeline_begun(&w);
}
PATH(stream_posted)(fleeti_worker w, fleet_producer p, uint32_t *to)
{
    *to = fleeti_produce_posted(&w, &p) + FLEETI_TASK(&w, id);
}
PATH(stream_quit)(fleeti_worker w)
{
    fleeti_pipeline_stop(&w);
}
PATH(produce_fetch)(fleeti_worker w, fleet_producer p, uint32_t *x)
{
    fleeti_produce_fetch(&w, &p, 0, 0);
    fleeti_produce_fetched(&w, &p, 0);
    x[threadIdx.x] = fleeti_lds_get(p.ring.words, FLEETI_PIPELINE_DESC(0));
}
#endif
