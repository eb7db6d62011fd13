#!/usr/bin/env python3
"""The order of memory on NVIDIA GPUs: what nvcc makes of each path of nvidia_kernels.c, in PTX, whose memory model is what
the headers are written to, and likewise of the tiles of examples/qwen3 (nvidia_decoder.c, emulated.c); and that each fence,
acquire, release and barrier that is taken out turns one of these checks red. Needs nvcc and gcc, no GPU: tests/isa/nvidia.py

Prints "pass NAME" or "FAIL NAME: why", and a table in lines that begin with "|".
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

import mutants
from mutants import DEVICE, GRAPH, SCHED, SERVER

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))

STORE, LOAD = r"st\.global\.[uf]32", r"ld\.global\.[uf]32"
BAR, WARP, NAMED = r"bar\.sync\s+0", r"bar\.warp\.sync", r"barrier\.cta\.sync 1,"
BAR_OR, NAMED_OR = r"bar\.red\.or\.pred\s+%p\d+, 0", r"barrier\.cta\.red\.or\.pred q,1,"
LOOK, ACQUIRE = r"ld\.relaxed\.gpu\.global\.u32", r"fence\.acquire\.gpu"
RMW, RMW_SYSTEM = r"atom\.add\.acq_rel\.gpu", r"atom\.add\.acq_rel\.sys"
RED, RED_SYSTEM = r"red\.release\.gpu", r"red\.release\.sys"
POST, ORDER = r"st\.relaxed\.gpu\.global\.u64", r"fence\.acq_rel\.gpu"
LDS_ACQUIRE, LDS_RELEASE = r"ld\.acquire\.cta\.shared", r"st\.release\.cta\.shared"
LDS_ORDER = r"fence\.acq_rel\.cta"
LDS_PUT, LDS_GET = r"st\.shared\.(u32|u64|v2)", r"ld\.shared\.[uf]32"
COPY, COPIED = r"cp\.async\.cg\.shared", r"cp\.async\.wait_all"
ARRIVE, PROXY, VOTE = r"mbarrier\.arrive\.shared", r"fence\.proxy\.async\.global", r"vote\.sync\.ballot"
# Of rings of messages.
SYSTEM_LOOK, SYSTEM_PUBLISH = r"ld\.acquire\.sys\.global\.u32", r"st\.release\.sys\.global\.u32"
WORD_GET, WORD_PUT, POSITION = r"ld\.(global\.)?u32", r"st\.(global\.)?u32", r"st\.global\.u64"
FLAGGED_SYSTEM, FLAGGED_SYSTEM_LOAD = r"st\.relaxed\.sys\.global\.b128", r"ld\.relaxed\.sys\.global\.b128"
# Those of examples/qwen3.
FLAGGED, FLAGGED_LOAD, ANY = r"st\.relaxed\.gpu\.global\.b128", r"ld\.relaxed\.gpu\.global\.b128", r"vote\.sync\.any"
ANY_STORE = r"\n\s*(@%p\d+ )?st\.(?!shared)"
PROXIES, FULL, COUNTED = r"fence\.proxy\.async;", r"mbarrier\.try_wait\.parity", r"@q mbarrier\.arrive\.shared"
EXPECT, BULK = r"mbarrier\.arrive\.expect_tx", r"cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx"
TURNS, TURNS_PASSED = r"barrier\.cta\.sync [56],256", r"barrier\.cta\.arrive [56],256"
CONSUMERS = r"barrier\.cta\.red\.or\.pred q,2,128"
PRODUCTS = [r"wgmma\.fence\.sync", r"wgmma\.mma_async", r"wgmma\.commit_group", r"wgmma\.wait_group\.sync\.aligned\s+1"]
ALL_PRODUCTS = r"wgmma\.wait_group\.sync\.aligned\s+0"
SUMS_PUT = r"st\.shared\.v2\.[uf]32"
LDS_GET4, STORE_ACTS = r"ld\.shared\.v4", r"st\.(global\.)?v[24]\.[uf]"

# What comes after what in each path: data, what publishes it, what carries that; or how often it is there at least, where
# the compiler's order of the branches is not that of the path.
PATHS = {
    "notify_block": [STORE, BAR, RMW, RMW],
    "notify_wave": [STORE, WARP, RMW, RMW],
    "notify_streaming": [STORE, NAMED, RMW, RED, RED_SYSTEM],
    "notify_system": [STORE, BAR, RMW, RMW_SYSTEM],
    "trigger": [STORE, BAR, RMW, RMW],
    "trigger_system": [STORE, BAR, RMW, RMW_SYSTEM],
    "wait_block": [LOOK, ACQUIRE, BAR_OR, LOAD],
    "wait_wave": [LOOK, ACQUIRE, WARP, LOAD],
    "wait_system": [r"ld\.acquire\.sys\.global\.u32", BAR_OR, LOAD],
    "wait_streaming": [LOOK, ACQUIRE, LOOK, ACQUIRE, NAMED_OR, LOAD],
    "test_wave": [r"ld\.acquire\.gpu\.global\.u32", WARP, LOAD],
    "vote": [LDS_PUT, BAR, LDS_GET],
    "broadcast": [LDS_PUT, BAR, LDS_GET],
    "post_order": [WARP, ORDER, POST],
    "poll64": [r"ld\.acquire\.gpu\.global\.u64", LOAD],
    "publish": [STORE, r"st\.release\.gpu\.global\.u32", r"st\.release\.sys\.global\.u32"],
    "flagged": [FLAGGED, FLAGGED_SYSTEM, FLAGGED_LOAD, FLAGGED_SYSTEM_LOAD],
    "arrive_for_peers": [RMW, SYSTEM_PUBLISH],
    "order": [LDS_ORDER],
    "later": [COPIED, WARP, LDS_GET, WARP, COPY],
    "copy": [COPY, COPIED, BAR, LDS_GET],
    "loads_fresh": [r"ld\.relaxed\.gpu\.global\.v4", LOOK, r"ld\.relaxed\.gpu\.global\.u64"],
    "stream_open": [LDS_PUT, r"mbarrier\.init", r"mbarrier\.init", r"mbarrier\.init", r"fence\.mbarrier_init\.release\.cluster", BAR],
    "stream_fill": [LDS_RELEASE, r"mbarrier\.arrive\.expect_tx", r"cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx"],
    "stream_is_full": [FULL, LDS_GET],
    "stream_is_far": [LDS_ACQUIRE, LDS_ACQUIRE, LDS_ACQUIRE, FULL, LDS_GET],
    "stream_release": [LDS_GET, WARP, ARRIVE],
    "stream_give_back": [LDS_GET, WARP, ARRIVE],
    "stream_begins": [LDS_ACQUIRE, LDS_PUT, LDS_PUT, LDS_PUT, LDS_RELEASE],
    "stream_awaits_step": [r"ld\.acquire\.gpu\.global\.u32", PROXY, LDS_ACQUIRE, PROXY, r"cp\.async\.bulk"],
    "stream_awaits_task": [LDS_ACQUIRE, LOOK, STORE],
    "stream_quits": [STORE, LDS_RELEASE],
    "fix": [LDS_PUT, BAR, LDS_GET],
    "ring_push": [VOTE, WARP, ORDER, POST],
    "ring_push_run": [WARP, ORDER, POST, WARP, r"atom\.add\.relaxed\.gpu"],
    "ring_take": [r"ld\.acquire\.gpu\.global\.u64", LOAD],
    "messages_push": [SYSTEM_LOOK, WARP, WORD_GET, WORD_PUT, WARP, SYSTEM_PUBLISH, POSITION, WARP],
    "messages_pop": [SYSTEM_LOOK, VOTE, SYSTEM_LOOK, VOTE, WARP, WORD_GET, WORD_PUT, WARP, SYSTEM_PUBLISH, POSITION, WARP],
    "pass_over": [WARP, RMW, VOTE],
    "make_ready": [WARP, VOTE, WARP, ORDER, POST, WARP, r"atom\.add\.relaxed", RMW, VOTE, WARP, RMW, VOTE, WARP, ORDER, POST, LOOK],
    "next_arrivals": [WARP, RMW, VOTE, RMW, VOTE],
    "scheduler": [r"ld\.acquire\.gpu\.global\.u32", r"ld\.acquire\.sys\.global\.u32", VOTE, WARP, ORDER, POST],
    "residency": {RMW: 2, r"ld\.acquire\.gpu\.global\.u32": 2, ACQUIRE: 1},
    "enter": {r"griddepcontrol\.wait": (1, 1), r"griddepcontrol\.launch_dependents": (1, 1)},
    "leave": {BAR: 1, RMW: 3},
    "finish": [r"st\.relaxed\.gpu\.global\.u64"],
    "step_ends": {r"ld\.acquire\.gpu\.global\.u32": (1, 1), r"ld\.acquire\.gpu\.global\.u64": 1},
    "own_runs": [WARP, r"ld\.acquire\.gpu\.global\.u64"],
    "set_symbol": [BAR, r"st\.relaxed\.gpu\.global\.u32", r"st\.relaxed\.gpu\.global\.u32", BAR],
    "idle_wait": [BAR, SYSTEM_LOOK, WARP, BAR],
    "fleeti_await_pool": [r"ld\.acquire\.gpu\.global\.u32", WARP],
    "fleeti_take_in": [SYSTEM_LOOK, SYSTEM_LOOK + "[^$]*" + WARP, SYSTEM_LOOK, VOTE],
    "share_next": [r"ld\.acquire\.gpu\.global\.u32", r"ld\.acquire\.gpu\.global\.u32", WARP, r"atom\.cas", BAR],
    "fleeti_claim": {r"griddepcontrol\.wait": (1, 1), r"griddepcontrol\.launch_dependents": (1, 1), RMW: 3, BAR: 7, r"ld\.acquire\.gpu\.global\.u32": 2},
    "fleeti_unclaim": [r"ld\.acquire\.gpu\.global\.u32", r"atom\.cas", RMW],
    "trace_enter": [r"st\.global\.cs\.v4", r"st\.global\.cs\.v4", BAR],
    "fetch_task": [WARP, COPY, COPIED, WARP, LDS_GET],
    "stream_posted": [LDS_ACQUIRE, LDS_ORDER, LDS_ACQUIRE],
    "stream_begun": [LDS_RELEASE, LDS_ORDER, LDS_PUT, WARP, LDS_RELEASE, LDS_RELEASE],
    "stream_quit": [NAMED, LDS_RELEASE],
    "produce_fetch": [WARP, COPY, COPIED, WARP, LDS_GET],
    # Of examples/qwen3. A pair of numbers: at least and at most so often.
    "store_kv_partial_path": {FLAGGED: (1, 1), ANY_STORE: (1, 1)},
    "is_last_split_path": [WARP, r"atom\.add\.relaxed\.gpu"],
    "combine_kv_splits_path": {FLAGGED_LOAD: (8, 8), r"ld\.relaxed": (8, 8), ANY: (1, 1)},
    "store_split_k_path": {FLAGGED: (24, 24), ANY_STORE: (24, 24)},
    "add_partials_path": {FLAGGED_LOAD: (10, 10), ANY: (1, 1)},
    "share_scales_path": [r"st\.shared\.f32", WARP, LDS_GET, FLAGGED],
    "load_scales_path": [FLAGGED_LOAD, ANY, LDS_PUT],
    "reduce_partials_path": [COPY, COPIED, BAR, r"st\.shared\.v4", BAR, r"ld\.shared"],
    "own_args_path": {WARP: 7, BAR: 4, r"st\.shared\.v4": 1, ARRIVE: 1},
    "open_rows_path": [r"mbarrier\.init", r"mbarrier\.init", r"fence\.mbarrier_init\.release\.cluster"],
    "produce_rows_path": [FULL, EXPECT, WARP, BULK, BULK],
    "zero_missing_rows_path": [r"st\.shared\.v4", PROXIES],
    "consume_chunks_path": [CONSUMERS, FULL, *PRODUCTS, COUNTED, ALL_PRODUCTS, COUNTED],
    "prefill_product_path": {r"mbarrier\.init": 2, r"fence\.mbarrier_init\.release\.cluster": 1, PROXIES: 1, BAR: 2, FULL: 3, EXPECT: 2, PRODUCTS[0]: 1,
                             PRODUCTS[3]: 1, ALL_PRODUCTS: 1, COUNTED: 2},
    "term_tile_path": {FULL: 2, EXPECT: 1, PRODUCTS[0]: 1, PRODUCTS[3]: 1, ALL_PRODUCTS: 1, COUNTED: 2},
    "flash_queries_path": [r"barrier\.cta\.sync 3,128", r"st\.shared", PROXIES, r"barrier\.cta\.sync 3,128"],
    "flash_copy_path": [FULL, EXPECT, WARP, BULK, FULL, EXPECT, WARP, BULK],
    "flash_block_path": {FULL: 8, COUNTED: 4, PRODUCTS[0]: 3, ALL_PRODUCTS: 4, TURNS: 6, TURNS_PASSED: 6},
    "wide_copy_path": [WARP, EXPECT, BULK],
    "wide_heads_path": {WARP: 2},
    "wide_attend_item_path": {FULL: 1, PROXIES: 1, WARP: 4, EXPECT: 1},
    # With a tile's k's of its own, then with shared ones.
    "multiply_large_m_path": [PROXIES, CONSUMERS, *PRODUCTS, ALL_PRODUCTS, PROXIES, BULK, BAR, SUMS_PUT, BAR, LDS_GET, CONSUMERS, SUMS_PUT, FLAGGED,
                       FLAGGED_LOAD, BAR, COPY, FLAGGED_LOAD, COPIED, BAR, LDS_GET, BAR],
    "attend_split_path": [BAR, r"st\.shared\.u32", BAR, r"ld\.shared\.v4", ARRIVE, BAR, r"st\.shared\.v4", BAR, r"ld\.shared\.f32", FLAGGED],
}


class M(mutants.Mutant):
    """As for AMD, in the NVIDIA section; function None: `old` stands once in the whole header. by: the path that notices, which alone is compiled (None: all
    of the header's). sim: the test of tests/qwen3/emulated.c that notices, instead of a path."""
    others = [("/* ==== >>amd", "#endif /* FLEET_HIP */"), ("/* ==== >>host", "#endif /* FLEET_HOST */")]

    def __init__(self, *args, by=None, **more):
        super().__init__(*args, **more)
        self.of_decoder = self.header.startswith(QWEN3)
        self.by = USED_IN.get(self.function, self.function) + "_path" if self.of_decoder else by

    def apply(self, text):
        if self.function:
            return super().apply(text)
        if text.count(self.old) != 1:
            sys.exit("mutant %s: %s holds %d times: %s" % (self.name, self.header, text.count(self.old), self.old))
        return text.replace(self.old, self.new)


QWEN3, PARTS = os.path.join("examples", "qwen3"), os.path.join("examples", "parts")
ATTENTION, LARGE_M, SMALL_M, PIPELINE, INSTRUCTIONS, PREFILL, WIDE, PREFILL_EXPERTS = (
    os.path.join(QWEN3, "nvidia", n + ".h") for n in ("attention", "wgmma", "mma", "pipeline", "ptx", "prefill", "wide", "prefill_experts"))
OPERANDS = os.path.join(QWEN3, "tasks", "operands.h")
# Files with paths, and nvcc's options.
UNITS = {
    DEVICE: ("nvidia_kernels.c", ["-arch=sm_90"]),
    SCHED: ("nvidia_kernels.c", ["-arch=sm_90", "-DSCHED"]),
    QWEN3: ("nvidia_decoder.c", ["-arch=sm_90a"]),
}
# Where the functions of ptx.h are, or one that has no path of its own.
USED_IN = {
    "copy_args": "own_args", "mbar_fence_init": "open_rows",
    "rings_open": "prefill_product", "ring_await_free": "flash_copy", "flash_keys_read": "flash_block", "flash_values_read": "flash_block",
    "await_turn": "flash_block", "pass_turn": "flash_block",
    "wgmma_fence": "consume_chunks", "wgmma_wait_but_last": "consume_chunks", "any_consumer": "consume_chunks",
}


def weaker(name, function, op, to, by=None):
    return M(name, DEVICE, None, '(%s, "%s' % (function, op), '(%s, "%s' % (function, to), by=by)


PARKED = "        if (fleet_thread_id() == 0) parked = *value;".ljust(99) + "\\\n        fleet_block_barrier();"
MUTANTS = [
    # barriers
    M("block barrier", DEVICE, "fleet_block_barrier", "__syncthreads();", by="notify_block"),
    M("wave barrier", DEVICE, "fleet_wave_barrier", "__syncwarp();", by="wait_wave"),
    M("barrier of the waves that run tasks", DEVICE, None, '__asm__ volatile("barrier.cta.sync 1,%0;" ::"r"(blockDim.x - 32u) : "memory");', "(void)0;", by="notify_streaming"),
    M("its vote", DEVICE, "fleeti_task_barrier_or", "barrier.cta.red.or.pred q,1,%2,p;", "mov.pred q,p;", by="wait_streaming"),
    M("vote of the block: barrier", DEVICE, "fleeti_block_vote", "fleeti_barrier(self);", by="vote"),
    M("broadcast: barrier", DEVICE, "fleeti_broadcast_from", "fleeti_barrier(self);", by="broadcast"),
    # notify
    M("notify of a block: barrier", DEVICE, "fleeti_notify_all", "fleeti_barrier(self);", ";", by="notify_block"),
    M("notify of a wave: barrier", DEVICE, "fleeti_notify_all", "fleet_wave_barrier();", by="notify_wave"),
    weaker("arrival: acquire and release", "fleeti_rmw_device", "atom.add.acq_rel", "atom.add.relaxed", by="notify_block"),
    weaker("arrival: acquire", "fleeti_rmw_device", "atom.add.acq_rel", "atom.add.release", by="notify_block"),
    weaker("arrival: release", "fleeti_rmw_device", "atom.add.acq_rel", "atom.add.acquire", by="notify_block"),
    weaker("arrival: of the device", "fleeti_rmw_device", "atom.add.acq_rel.gpu", "atom.add.acq_rel.cta", by="notify_block"),
    weaker("system arrival: acquire and release", "fleeti_rmw_system", "atom.add.acq_rel", "atom.add.relaxed", by="notify_system"),
    weaker("system arrival: of the system", "fleeti_rmw_system", "atom.add.acq_rel.sys", "atom.add.acq_rel.gpu", by="notify_system"),
    weaker("lone arrival: release", "fleeti_add_arrival_device", "red.release", "red.relaxed", by="notify_streaming"),
    weaker("lone system arrival: release", "fleeti_add_arrival_system", "red.release", "red.relaxed", by="notify_streaming"),
    weaker("lone system arrival: of the system", "fleeti_add_arrival_system", "red.release.sys", "red.release.gpu", by="notify_streaming"),
    weaker("word for the host: release", "fleeti_publish_system", "st.release", "st.relaxed", by="publish"),
    # wait
    M("wait: fence after the last look", DEVICE, None, '"fence.acquire.gpu;"', '""', by="wait_block"),
    M("wait: fence is asked for", DEVICE, "fleeti_poll_until", "fleeti_spin_acquire();", by="wait_block"),
    M("wait of a block: vote", DEVICE, "fleeti_wait_all", "failed = fleeti_block_any(self, failed);", "failed = fleeti_any(failed);", by="wait_block"),
    M("wait of a wave: barrier", DEVICE, "fleeti_wait_all", "fleet_wave_barrier();", by="wait_wave"),
    M("test of a wave: barrier", DEVICE, "fleeti_event_test", "fleet_wave_barrier();", by="test_wave"),
    weaker("poll: acquire", "fleeti_poll_device", "ld.acquire", "ld.relaxed", by="test_wave"),
    weaker("system poll: acquire", "fleeti_poll_system", "ld.acquire", "ld.relaxed", by="wait_system"),
    weaker("system poll: of the system", "fleeti_poll_system", "ld.acquire.sys", "ld.acquire.gpu", by="wait_system"),
    M("poll of 8 bytes: acquire", DEVICE, None, '"ld.acquire.gpu.global.u64 %0,[%1];"', '"ld.relaxed.gpu.global.u64 %0,[%1];"', by="poll64"),
    weaker("look: a plain load", "fleet_load_relaxed_device", "ld.relaxed.gpu", "ld", by="loads_fresh"),
    M("fresh load of 16: a plain one", DEVICE, None, '"ld.relaxed.gpu.global.v4.u32', '"ld.global.v4.u32', by="loads_fresh"),
    # posts
    M("posts: fence", DEVICE, None, '"fence.acq_rel.gpu;"', '""', by="post_order"),
    M("posts: lanes", DEVICE, None, "    __syncwarp();\n    __asm__ volatile(\"fence.acq_rel.gpu;\"", "    __asm__ volatile(\"fence.acq_rel.gpu;\"", by="post_order"),
    # copies to LDS
    M("later word: lanes have read", DEVICE, None, "    fleet_wave_barrier(); /* all lanes have read the word that was there */\n", "", by="later"),
    M("later word: barrier", DEVICE, None, "    fleeti_async_copy_end(&none, self.lds, FLEETI_LDS_DEFERRED);\n    fleet_wave_barrier();\n", "    fleeti_async_copy_end(&none, self.lds, FLEETI_LDS_DEFERRED);\n", by="later"),
    M("inbound copy: wait", DEVICE, None, '    (void)copy, (void)lds, (void)word;\n    __asm__ volatile("cp.async.wait_all;" ::: "memory");', "    (void)copy, (void)lds, (void)word;", by="later"),
    M("copy to LDS: wait", DEVICE, None, 'fleet_copy_wait(void)\n{\n    __asm__ volatile("cp.async.wait_all;" ::: "memory");', "fleet_copy_wait(void)\n{", by="copy"),
    # weight pipeline
    M("words of LDS: acquire", DEVICE, None, '"ld.acquire.cta.shared.u32 %0,[%1];"', '"ld.relaxed.cta.shared.u32 %0,[%1];"', by="stream_is_far"),
    M("words of LDS: release", DEVICE, None, '"st.release.cta.shared.u32 [%0],%1;"', '"st.relaxed.cta.shared.u32 [%0],%1;"', by="stream_fill"),
    M("words of LDS: order", DEVICE, None, '"fence.acq_rel.cta;"', '""', by="order"),
    M("posted task: order of the post", SCHED, "fleeti_pipeline_begun", "fleeti_lds_order();", by="stream_begun"),
    M("posted task: order of the look", SCHED, "fleeti_produce_posted", "fleeti_lds_order();", by="stream_posted"),
    weaker("word for other workers: release", "fleeti_publish_device", "st.release", "st.relaxed", by="publish"),
    M("stage: fence of new barriers", DEVICE, None, '"fence.mbarrier_init.release.cluster;"', '""', by="stream_open"),
    M("stage: turn", DEVICE, None, "    if (lead && stage == 0) fleeti_lds_release(s->words, FLEETI_PIPELINE_TURN, use);\n", "", by="stream_fill"),
    M("stage: turn released", DEVICE, None, "if (lead && stage == 0) fleeti_lds_release(", "if (lead && stage == 0) fleeti_lds_put(", by="stream_fill"),
    M("stage: turn acquired", DEVICE, None, "(int32_t)(fleeti_lds_acquire(s->words, FLEETI_PIPELINE_TURN)", "(int32_t)(fleeti_lds_get(s->words, FLEETI_PIPELINE_TURN)", by="stream_is_far"),
    M("stage: turn compared", DEVICE, "fleeti_stages_wait", "fleeti_stage_turn_reached(&s->ring, use)", "1", by="stream_is_far"),
    M("stage: proxy fence", DEVICE, None, '"fence.proxy.async.global;"', '""', by="stream_awaits_step"),
    M("stage: proxy fence after the task's events", DEVICE, "fleet_producer_await_task", "fleeti_copies_order();\n    return !p->over;", "return !p->over;", by="stream_awaits_step"),
    M("stage: proxy fence after the step", DEVICE, "fleet_producer_await_step", "fleeti_invalidate_device();\n            fleeti_copies_order();", "fleeti_invalidate_device();", by="stream_awaits_step"),
    M("stage: lanes have read", DEVICE, "fleet_stage_release", "fleet_wave_barrier();", by="stream_release"),
    M("stages: lanes have read", DEVICE, "fleet_stages_release", "fleet_wave_barrier();", by="stream_give_back"),
    M("entry of a task: release", DEVICE, "fleeti_producer_begin_task", "fleeti_lds_release(", "fleeti_lds_put(", by="stream_begins"),
    M("failed stream: release", DEVICE, "fleeti_pipeline_failed", "fleeti_lds_release(", "fleeti_lds_put(", by="stream_quits"),
    # several devices
    M("arrival for other ranks: acquire and release", DEVICE, "fleeti_arrive_for_peers", "fleeti_rmw_device(", "fleet_add_relaxed_device(", by="arrive_for_peers"),
    M("arrival for other ranks: release", DEVICE, "fleeti_arrive_for_peers", "fleeti_publish_system(", "fleet_store_relaxed_system(", by="arrive_for_peers"),
    M("the kit's flagged store: in two halves", DEVICE, None, '".global.b128 [%0],all;', '".global.v2.u64 [%0],{%1,%2};', by="flagged"),
    M("the kit's flagged store: of the system", DEVICE, None, 'fleet_store_flagged_system, "sys"', 'fleet_store_flagged_system, "gpu"', by="flagged"),
    M("the kit's flagged load: in two halves", DEVICE, None, r'.global.b128 all,[%2];\nmov.b128 {%0,%1},all;', '.global.v2.u64 {%0,%1},[%2];', by="flagged"),
    M("the kit's flagged load: of the system", DEVICE, None, 'fleet_load_flagged_system, "sys"', 'fleet_load_flagged_system, "gpu"', by="flagged"),
    # scheduling
    M("what a worker keeps: barrier", DEVICE, None, PARKED, PARKED.replace("fleet_block_barrier();", ""), by="fix"),
    M("ring of messages: lanes have written", SERVER, "fleet_ring_try_push", "fleet_wave_barrier(); /* the messages may be of other lanes */", by="messages_push"),
    M("ring of messages: lanes have stored", SERVER, "fleet_ring_try_push", "fleeti_drain();\n    fleet_wave_barrier();", "fleeti_drain();", by="messages_push"),
    M("ring of messages: release", SERVER, "fleet_ring_try_push", "fleeti_publish_system(", "fleet_store_relaxed_system(", by="messages_push"),
    M("ring of messages: look", SERVER, "fleeti_messages_room", "fleeti_poll_system(", "fleet_load_relaxed_system(", by="messages_push"),
    M("ring of messages: poll", SERVER, "fleeti_messages_ready", "fleeti_poll_system(", "fleet_load_relaxed_system(", by="messages_pop"),
    M("ring of messages: lanes have polled", SERVER, "fleet_ring_try_pop", "fleeti_invalidate_system();\n    fleet_wave_barrier();", "fleeti_invalidate_system();", by="messages_pop"),
    M("ring of messages: lanes have read", SERVER, "fleet_ring_try_pop", "fleeti_message_next. */\n    fleet_wave_barrier();", "fleeti_message_next. */", by="messages_pop"),
    M("ring of messages: slots are free", SERVER, "fleet_ring_try_pop", "fleeti_publish_system(", "fleet_store_relaxed_system(", by="messages_pop"),
    M("ring: order before a post", SCHED, "fleeti_ring_push", "fleeti_post_order();", by="ring_push"),
    M("ring: order before a run of posts", SCHED, "fleeti_ring_push_run", "fleeti_post_order(); /* as in fleeti_ring_push */", by="ring_push_run"),
    M("ring: posts before their count", SCHED, "fleeti_ring_push_run", "fleet_wave_barrier();", by="ring_push_run"),
    M("scheduler: order before the mail", SCHED, "fleeti_scheduler", "fleeti_post_order();", by="scheduler"),
    M("absent task: lanes", SCHED, "fleeti_complete_absent", "fleet_wave_barrier();", by="pass_over"),
    M("news: lanes", SCHED, "fleeti_make_ready", "fleet_wave_barrier();", by="make_ready"),
    M("arrivals by map: lanes", SCHED, "fleeti_next_arrivals", "fleet_wave_barrier();", by="next_arrivals"),
    M("enter: wait for the claim", SCHED, "fleeti_enter", "fleeti_await_kernel();", by="enter"),
    M("claim: wait for what is before the launch", SCHED, "fleeti_claim", "fleeti_await_kernel();", by="fleeti_claim"),
    M("residency: count", SCHED, "fleeti_residency_check", "fleeti_rmw_device(&state->resident[raw].word,", "fleet_add_relaxed_device(&state->resident[raw].word,", by="residency"),
    M("residency: leaves", SCHED, "fleeti_leave_refused", "fleeti_rmw_device(&state->due.word,", "fleet_add_relaxed_device(&state->due.word,", by="residency"),
    M("residency: acquire of the counts", SCHED, "fleeti_residency_decide", "fleeti_spin_acquire();", by="residency"),
    M("residency: workgroups that are due", SCHED, "fleeti_residency_decide", "fleeti_poll_device(&state->due.word)", "fleet_load_relaxed_device(&state->due.word)", by="residency"),
    M("residency: poll", SCHED, "fleeti_residency_check", "fleeti_poll_device(&state->result[raw].word)", "fleet_load_relaxed_device(&state->result[raw].word)", by="residency"),
    M("leave: the last of a chiplet", SCHED, "fleeti_leave", "fleeti_rmw_device(&state->left[FLEETI_PLACE_LINE(place)].word,", "fleet_add_relaxed_device(&state->left[FLEETI_PLACE_LINE(place)].word,", by="leave"),
    M("claim: acquire of what launches before left", SCHED, "fleeti_claim", "fleeti_rmw_device(&state->due.word, run.blocks", "fleet_add_relaxed_device(&state->due.word, run.blocks", by="fleeti_claim"),
    M("claim: barrier before others may look", SCHED, "fleeti_claim", "fleet_block_barrier();\n    if", "if", by="fleeti_claim"),
    M("claim: release of what it has set", SCHED, "fleeti_claim", "fleeti_rmw_device(&state->due.word, 0u - FLEETI_CLAIMING);\n    fleeti_log", "fleet_add_relaxed_device(&state->due.word, 0u - FLEETI_CLAIMING);\n    fleeti_log", by="fleeti_claim"),
    M("claim: acquire of what another has set", SCHED, "fleeti_claim_yield", "fleeti_poll_device(&state->due.word)", "fleet_load_relaxed_device(&state->due.word)", by="fleeti_claim"),
    M("claim withdrawn: workgroups that are due", SCHED, "fleeti_unclaim", "fleeti_rmw_device(&run.state->due.word,", "fleet_add_relaxed_device(&run.state->due.word,", by="fleeti_unclaim"),
    M("early end: an ordinary store", SCHED, "fleet_finish", "fleeti_post64_device(&state->finish.word, 1 + ((uint64_t)ctx->epoch << 32));",
      "state->finish.word = 1 + ((uint64_t)ctx->epoch << 32);", by="finish"),
    M("early end: acquire of the step", SCHED, "fleeti_finishes", "fleeti_poll_device(", "fleet_load_relaxed_device(", by="step_ends"),
    M("early end: lanes of the own queue", SCHED, "fleeti_own_runs", "fleet_wave_barrier();", by="own_runs"),
    M("symbol: an ordinary store", SCHED, "fleeti_set_symbol_now", "fleet_store_relaxed_device((uint32_t *)(void *)&shapes[FLEETI_SHAPE * g + k],", "*(&shapes[FLEETI_SHAPE * g + k]) = (int32_t)(0,", by="set_symbol"),
    M("symbol: the old value has been read", SCHED, "fleeti_set_symbol_in", "fleet_barrier(ctx); /* all threads have read `before` */", by="set_symbol"),
    M("idle wait: acquire", SCHED, "fleeti_idle_until", "fleeti_poll_system(word)", "fleet_load_relaxed_system(word)", by="idle_wait"),
    M("idle wait: lanes have acquired", SCHED, "fleeti_idle_until", "fleeti_invalidate_system();\n        fleet_wave_barrier();", "fleeti_invalidate_system();", by="idle_wait"),
    M("pools: lanes have acquired", SERVER, "fleeti_await_pool", "fleet_wave_barrier();", by="await_pool"),
    M("pools: lanes have acquired a layer", SERVER, "fleet_share_next", "fleet_wave_barrier();", by="share_next"),
    M("news of a server: lanes have acquired", SERVER, "fleeti_take_in", "as in fleeti_await_pool. */\n    fleet_wave_barrier();", "as in fleeti_await_pool. */", by="take_in"),
    M("news of a server: acquire", SERVER, "fleeti_take_in", "fleet_load_acquire_system(&desk->cancels.word)", "fleet_load_relaxed_system(&desk->cancels.word)", by="take_in"),
    M("trace: clear before there are records", SCHED, "fleeti_trace_enter", "fleet_block_barrier();", by="trace_enter"),
    M("leave: barrier", SCHED, "fleeti_leave", "fleet_block_barrier();", by="leave"),
    M("leave: count", SCHED, "fleeti_leave", "fleeti_rmw_device(&state->left[FLEETI_PLACE_LINE(place)].word, 1)", "fleet_add_relaxed_device(&state->left[FLEETI_PLACE_LINE(place)].word, 1)", by="leave"),
    M("leave: chiplets", SCHED, "fleeti_leave", "fleeti_rmw_device(&state->exited.word, count)", "fleet_add_relaxed_device(&state->exited.word, count)", by="leave"),
    M("leave: state is free", SCHED, "fleeti_leave", "fleeti_rmw_device(&state->due.word,", "fleet_add_relaxed_device(&state->due.word,", by="leave"),
    M("descriptor: lanes have read", SCHED, "fleeti_fetch_begin", "fleet_wave_barrier(); /* all lanes have read what was there */", by="fetch_task"),
    M("producer's descriptors: lanes have read", SCHED, "fleeti_produce_fetch", "fleet_wave_barrier(); /* all lanes have read what was there */", by="produce_fetch"),
    M("producer's descriptors: barrier", SCHED, "fleeti_produce_fetched", "fleet_wave_barrier();", by="produce_fetch"),
    M("task begun: words before the post", SCHED, "fleeti_pipeline_begun", "fleet_wave_barrier();", by="stream_begun"),
    M("task begun: release", SCHED, "fleeti_pipeline_begun", "fleeti_lds_release(w->pipeline.words, FLEETI_PIPELINE_BEGUN,", "fleeti_lds_put(w->pipeline.words, FLEETI_PIPELINE_BEGUN,", by="stream_begun"),
    M("last task: release", SCHED, "fleeti_pipeline_stop", "fleeti_lds_release(", "fleeti_lds_put(", by="stream_quit"),
    M("task alone: its waves", SCHED, "fleeti_pipeline_stop", "fleeti_barrier(w->self);", ";", by="stream_quit"),
    # examples/qwen3: flagged data
    M("KV partial: its tag in a store of its own", ATTENTION, "store_kv_partial", "quad.word[3] = tag;\n    fleet_store_flagged_device(kv_partial_at(d, p, query, p->split), quad);",
      "quad.word[3] = 0;\n    fleet_store_flagged_device(kv_partial_at(d, p, query, p->split), quad);\n    kv_partial_at(d, p, query, p->split)->word[3] = tag;"),
    M("KV partial: an ordinary store", ATTENTION, "store_kv_partial", "fleet_store_flagged_device(kv_partial_at(d, p, query, p->split), quad);", "*kv_partial_at(d, p, query, p->split) = quad;"),
    M("KV splits: counted before all lanes have stored", ATTENTION, "is_last_split", "fleet_wave_barrier();"),
    M("KV splits: ordinary loads", ATTENTION, "combine_kv_splits", "fleet_load_flagged_device(from + (first + (i < last ? i : last)) *\n" + 66 * " " + "KV_PARTIAL_QUADS)", "from[(first + (i < last ? i : last)) * KV_PARTIAL_QUADS]"),
    M("KV splits: one look alone", ATTENTION, "combine_kv_splits", "while (any_lane(late != 0));", "while (0);"),
    M("split-K sums: ordinary stores", LARGE_M, "store_split_k", "fleet_store_flagged_device(to + (i * TILE_QUADS + w) * CONSUMER_THREADS,\n" + 39 * " " + "pack_sums(sum + i * TILE_SUMS + w * 4, tag));",
      "to[(i * TILE_QUADS + w) * CONSUMER_THREADS] = pack_sums(sum + i * TILE_SUMS + w * 4, tag);"),
    M("split-K sums: ordinary loads", LARGE_M, "add_partials", "fleet_load_flagged_device(from + (size_t)k_split * SPLIT_K_QUADS +\n" + 59 * " " + "w * CONSUMER_THREADS)", "from[(size_t)k_split * SPLIT_K_QUADS + w * CONSUMER_THREADS]"),
    M("split-K sums: one look alone", LARGE_M, "add_partials", "if (!any_lane(late && !source->status)) break;", "break;"),
    M("scales: lanes have left theirs", LARGE_M, "share_scales", "fleet_wave_barrier();"),
    M("scales: an ordinary store", LARGE_M, "share_scales", "fleet_store_flagged_device(split_k_scale(task, ctx, s, rows, r), word);", "*split_k_scale(task, ctx, s, rows, r) = word;"),
    M("scales: an ordinary load", LARGE_M, "load_scales", "fleet_load_flagged_device(from)", "*from"),
    M("scales: one look alone", LARGE_M, "load_scales", "if (!any_lane(word.word[3] != tag && !source->status)) break;", "break;"),
    M("KV splits: any tag", ATTENTION, "combine_kv_splits", "late |= partial[i].word[3] ^ tag;", "late |= 0;", sim="attention"),
    M("KV splits: the first one's tag", ATTENTION, "combine_kv_splits", "partial[i].word[3] ^ tag", "partial[0].word[3] ^ tag", sim="attention"),
    M("split-K sums: any tag", LARGE_M, "add_partials", "late |= tag_differs(&word[p][w], tag);", "late |= 0;", sim="layers"),
    M("split-K sums: the tag of half of the words", LARGE_M, "add_partials", "tag_differs(&word[p][w], tag)", "tag_differs(&word[p][0], tag)", sim="layers"),
    M("split-K sums: a quarter of the tag", LARGE_M, "tag_differs", "word->word[i] ^ tag >> i * TAG_BITS", "word->word[0] ^ tag", sim="sums"),
    M("split-K sums: bits of the tag that are lost", LARGE_M, "pack_sums", "tag >> i * TAG_BITS & TAG_MASK", "tag & TAG_MASK", sim="sums"),
    M("scales: any tag", LARGE_M, "load_scales", "word.word[3] != tag && !source->status", "0", sim="layers"),
    M("tag: not of the task", OPERANDS, "task_tag", "task->number", "0", sim="attention"),
    M("tag: not of the step", OPERANDS, "task_tag", "ctx->epoch * task->step_tasks", "0", sim="attention"),
    # examples/qwen3: copies to LDS
    M("residual: wait", SMALL_M, "reduce_partials", "copy_async_wait();"),
    M("residual: barrier", SMALL_M, "reduce_partials", "copy_async_wait(); /* those of prefetch_residual */\n    fleet_barrier(ctx);", "copy_async_wait();"),
    M("sums of a tile: barrier", SMALL_M, "reduce_partials", "    else\n        fleet_barrier(ctx);"),
    M("arguments: lanes have read those before", PIPELINE, "copy_args", "fleet_wave_barrier(); /* all lanes have read what is overwritten now */"),
    M("arguments: before the rows", PIPELINE, "copy_args", "    fleet_wave_barrier();\n    if (fleet_lane() == 0)", "    if (fleet_lane() == 0)"),
    M("arguments: barrier", PIPELINE, "own_args", "if (!early) fleet_barrier(ctx);", ";"),
    # examples/qwen3: wgmma
    M("counts: fence of new ones", INSTRUCTIONS, "mbar_fence_init", '__asm__ volatile("fence.mbarrier_init.release.cluster;" ::: "memory");'),
    M("rows: buffer is free", LARGE_M, "produce_rows", "if (u->use) mbar_wait(row_free(u), u->use - 1);"),
    M("rows: expected before they are copied", LARGE_M, "produce_rows", "fleet_wave_barrier();"),
    M("rows: bytes expected", LARGE_M, "produce_rows", "if (lane == 0) mbar_expect(row_full(u), u->groups * ROW_GROUP_BYTES);"),
    M("rows: proxy fence after the padding", LARGE_M, "zero_missing_rows", "fence_proxy_async();"),
    M("rows: proxy fence before the copies", LARGE_M, "multiply_large_m", "fence_proxy_async();"),
    M("products: barrier of the consumers", LARGE_M, "consume_chunks", "any_consumer(!first)", "!first"),
    M("products: rows are there", LARGE_M, "consume_chunks", "mbar_wait(row_full(u), u->use);"),
    M("products: wgmma.fence", INSTRUCTIONS, "wgmma_fence", '__asm__ volatile("wgmma.fence.sync.aligned;" ::: "memory");'),
    M("products: commit", LARGE_M, "consume_chunks", "wgmma_commit();"),
    M("products: wait but for the last", LARGE_M, "consume_chunks", "wgmma_wait_but_last();"),
    M("products: wait for one less", INSTRUCTIONS, "wgmma_wait_but_last", "wait_group.sync.aligned 1", "wait_group.sync.aligned 2"),
    M("products: buffer given back", LARGE_M, "consume_chunks", "mbar_arrive_if(used, used != 0);"),
    M("products: wait for all", LARGE_M, "consume_chunks", "wgmma_wait_all();"),
    M("products: last buffer given back", LARGE_M, "consume_chunks", "mbar_arrive_if(used, 1);"),
    M("products: the vote of the consumers", INSTRUCTIONS, "any_consumer", "barrier.cta.red.or.pred q,2,128,p;", "mov.pred q,p;"),
    # examples/qwen3: barriers of whole tiles
    M("tile: the sums were rows", LARGE_M, "multiply_large_m", "fleet_barrier(ctx); /* the place of the sums held rows, or other sums */"),
    M("tile: sums are there", LARGE_M, "multiply_large_m", "store_tiles(l, sum, first, n, wave, rows);\n                fleet_barrier(ctx);", "store_tiles(l, sum, first, n, wave, rows);"),
    M("tile: consumers are through", LARGE_M, "multiply_large_m", "any_consumer(0);"),
    M("tile: sums before others add to them", LARGE_M, "multiply_large_m", "fleet_barrier(ctx); /* the prefetched residual replaces rows; all warps read the sums */"),
    M("tile: wait for the residual", LARGE_M, "multiply_large_m", "copy_async_wait();"),
    M("tile: residual is all waves'", LARGE_M, "multiply_large_m", "copy_async_wait(); /* those of prefetch_residual */\n            fleet_barrier(ctx);", "copy_async_wait();"),
    M("tile: its end", LARGE_M, "multiply_large_m", "fleet_barrier(ctx); /* rows replace the sums again */"),
    M("attention: sums before are read", ATTENTION, "attend_split", "if (!l.q_is_separate) fleet_barrier(ctx); /* the sums of the previous queries were read */"),
    M("attention: heads are there", ATTENTION, "attend_split", "fleet_barrier(ctx);\n        attend_blocks(", "attend_blocks("),
    M("attention: heads are read", ATTENTION, "attend_split", "if (!l.q_is_separate) fleet_barrier(ctx);\n        if (kv_group", "if (kv_group"),
    M("attention: sums are there", ATTENTION, "attend_split", "fleet_barrier(ctx);\n        combine_waves(", "combine_waves("),
    # examples/qwen3: prompts
    M("prompts: proxy fence before the copies", PREFILL, "rings_open", "fence_proxy_async();"),
    M("prompts: stage is free", PREFILL, "ring_await_free", "if (to.use) mbar_wait(ring_free(r, to), to.use - 1);"),
    M("prompts: stage is there", PREFILL, "prefill_product", "mbar_wait(ring_full(&ring, at), at.use);"),
    M("prompts: wait but for the last", PREFILL, "prefill_product", "wgmma_wait_but_last();"),
    M("prompts: stage given back", PREFILL, "prefill_product", "mbar_arrive_if(used, used != 0);"),
    M("prompts: wait for all", PREFILL, "prefill_product", "wgmma_wait_all();"),
    M("prompts: stage of two terms is there", PREFILL_EXPERTS, "term_tile", "mbar_wait(ring_full(&w->ring, w->at), w->at.use);"),
    M("prompts: two terms, wait but for the last", PREFILL_EXPERTS, "term_tile", "wgmma_wait_but_last();"),
    M("prompts: stage of two terms given back", PREFILL_EXPERTS, "term_tile", "mbar_arrive_if(used, used != 0);"),
    M("prompts: two terms, wait for all", PREFILL_EXPERTS, "term_tile", "wgmma_wait_all();"),
    M("prompts: queries before were read", PREFILL, "flash_queries", "warpgroup_barrier(first / FLASH_QUERIES); /* all warps have multiplied the queries before */"),
    M("prompts: queries for wgmma", PREFILL, "flash_queries", "fence_proxy_async();"),
    M("prompts: queries are there", PREFILL, "flash_queries", "warpgroup_barrier(first / FLASH_QUERIES); /* the other warps' queries are in LDS */"),
    M("prompts: keys are there", PREFILL, "flash_block", "mbar_wait(ring_full(&c->keys, at->keys), at->keys.use);       /* pair: as above */"),
    M("prompts: last values are there", PREFILL, "flash_block", "mbar_wait(ring_full(&c->values, at->values), at->values.use); /* pair: as above */\n    await_turn(", "await_turn("),
    M("prompts: keys given back", PREFILL, "flash_keys_read", "mbar_arrive_if(ring_free(&c->keys, at->keys), 1);"),
    M("prompts: values given back", PREFILL, "flash_values_read", "mbar_arrive_if(ring_free(&c->values, at->values), 1);"),
    # examples/qwen3: many sequences
    M("wide: page before was read", WIDE, "wide_copy", "fleet_wave_barrier(); /* all lanes have read what was in the stage */"),
    M("wide: queries before were read", WIDE, "wide_heads", "fleet_wave_barrier(); /* all lanes have read the queries before */"),
    M("wide: queries are there", WIDE, "wide_heads", "fleet_wave_barrier(); /* the queries of all lanes are in LDS */"),
    M("wide: page is there", WIDE, "wide_attend_item", "mbar_wait(c->mbars + stage * 8, c->read / WIDE_STAGES);"),
    M("wide: copies after the key", WIDE, "wide_attend_item", "fence_proxy_async();"),
    M("wide: key is there", WIDE, "wide_attend_item", "fleet_wave_barrier(); /* the key and the value are in LDS */"),
    M("prompts: a turn", INSTRUCTIONS, "await_turn", '__asm__ volatile("barrier.cta.sync 5,256;" ::: "memory");', ";"),
]


def compile_paths(headers, work, file, options, only=None):
    """The PTX of each path of a file, or of one of them; or what nvcc says."""
    folder = tempfile.mkdtemp(dir=work)
    source, out = os.path.join(folder, "paths.c"), os.path.join(folder, "paths.ptx")
    with open(os.path.join(HERE, file), encoding="utf-8") as f:
        text = f.read()
    with open(source, "w", encoding="utf-8") as f:  # the others take time
        f.write(re.sub(r"^PATH\((\w+)\).*?^}\n", lambda m: m.group(0) if only in (None, m.group(1), m.group(1) + "_path") else "", text, flags=re.M | re.S))
    done = subprocess.run(["nvcc", "-x", "cu", "-ptx", "-std=c++17", *options, "-I" + headers, "-I" + TOP, source, "-o", out],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        return "does not compile: " + mutants.first_error(done.stderr)
    with open(out, encoding="utf-8") as f:
        parts = re.split(r"\.(?:entry|func) (?:\s*\(.*?\) )?", f.read())[1:]
    found = [re.match(r"(?:_Z(?:N\w+?_INTERNAL_\w*?(?=\d\dfleet))?(\d+))?(\w+)\s*\((.*)", part, re.S).groups() for part in parts]
    return {name[:int(length)] if length else name: body for length, name, body in found}


def red(paths, wanted):
    """The paths in which something is missing, with what."""
    found = {}
    for name in wanted:
        at = 0
        if isinstance(PATHS[name], dict):
            for part, n in PATHS[name].items():
                least, most = n if isinstance(n, tuple) else (n, 1000)
                if not least <= len(re.findall(part, paths.get(name, ""))) <= most:
                    found[name] = "not as often as it should be: " + part.replace("\\", "")
            continue
        for i, part in enumerate(PATHS[name]):
            m = re.compile(part).search(paths[name], at) if name in paths else None
            if not m:
                found[name] = "no %s as number %d" % (part.replace("\\", ""), i + 1)
                break
            at = m.end()
    return found


def write_decoder(folder, change):
    """Copies of the headers of examples/qwen3: change(header, text)."""
    for at, _, names in os.walk(os.path.join(TOP, QWEN3)):
        inside = os.path.relpath(at, TOP)
        os.makedirs(os.path.join(folder, inside))
        for header in (os.path.join(inside, name) for name in names if name.endswith(".h")):
            with open(os.path.join(TOP, header), encoding="utf-8") as f, open(os.path.join(folder, header), "w", encoding="utf-8") as to:
                to.write(change(header, f.read()))
    shutil.copytree(os.path.join(TOP, PARTS), os.path.join(folder, PARTS))


def attempt(m, work):
    folder = tempfile.mkdtemp(dir=work)
    if m.of_decoder:
        write_decoder(folder, lambda header, text: m.apply(text) if header == m.header else text)
    else:
        mutants.write(m, TOP, folder)
    unit = QWEN3 if m.of_decoder else SCHED if m.old == PARKED or m.header == SERVER else m.header  # whose paths show it
    paths = compile_paths(folder, work, *UNITS[unit], m.by)
    if isinstance(paths, str):
        return m, {}, paths
    return m, red(paths, [n for n in PATHS if n in paths]), "no check notices"


# Included before tests/qwen3/emulated.c: which mutant a run is.
CHOICE = """#include <stdint.h>
#include <stdlib.h>
static uint32_t mutant;
#define LITMUS_IS(number) (mutant == (number))
__attribute__((constructor)) static void choose(void)
{
    mutant = (uint32_t)atoi(getenv("LITMUS_MUTANT"));
}
"""


def emulate(chosen, work):
    """The tests of tests/qwen3/emulated.c, in one build of which each run chooses its mutant: (mutant, red tests, what)."""
    folder = tempfile.mkdtemp(dir=work)

    def change(header, text):
        for number, m in enumerate(chosen):
            if m.header == header:
                at = m.place(text)
                text = text[:at] + m.chosen(number) + text[at + len(m.old):]
        return text
    write_decoder(folder, change)
    program, choice = os.path.join(folder, "emulated"), os.path.join(folder, "choice.h")
    with open(choice, "w", encoding="utf-8") as f:
        f.write(CHOICE)
    done = subprocess.run(["gcc", "-std=c11", "-O1", "-D_POSIX_C_SOURCE=200809L", "-include", choice, "-I" + folder, "-I" + TOP, "-I" + os.path.join(TOP, "tests"), os.path.join(TOP, "tests", "qwen3", "emulated.c"),
                           "-o", program, "-lm", "-pthread"], capture_output=True, text=True, check=False)
    if done.returncode:
        return "does not compile: " + mutants.first_error(done.stderr)

    def run(number, test, seed=1):
        """The tests that are red."""
        env = dict(os.environ, LITMUS_MUTANT=str(number), FLEET_TEST_SEED=str(seed), FLEET_TEST_TURN="")
        try:
            patience = 60 if number < len(chosen) else None  # a mutant that hangs is caught
            lines = subprocess.run([program, test], env=env, timeout=patience, capture_output=True, text=True, check=False).stdout
        except subprocess.TimeoutExpired:
            return ["time-out"]
        return [] if lines.startswith("pass ") and "FAIL" not in lines else re.findall(r"FAIL (\w+)", lines) or ["crash"]
    found = []
    for number, m in enumerate(chosen):
        tries = (run(number, m.sim, seed) for seed in range(1, 6))  # which lane is late depends on it
        found.append((m, dict.fromkeys(next(filter(None, tries), [])), "survives emulated.c, " + m.sim))
    wrong = [test for test in sorted({m.sim for m in chosen}) if run(len(chosen), test)]
    return "wrong without a mutant: %s" % wrong if wrong else found


def main():
    work = tempfile.mkdtemp()
    rows = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        mutants.all_apply(TOP, MUTANTS)
        chosen = mutants.of_this_run(MUTANTS)
        emulated = [m for m in chosen if m.sim]
        emulation = pool.submit(emulate, emulated, work)
        jobs = [pool.submit(attempt, m, work) for m in chosen if not m.sim]
        seen = {}
        for unit in UNITS.values():
            paths = compile_paths(TOP, work, *unit)
            if isinstance(paths, str):
                print("FAIL compile: %s" % paths)
                return
            seen.update(paths)
        wrong = red(seen, PATHS)
        for name in PATHS:
            print("FAIL path %s: %s" % (name, wrong[name]) if name in wrong else "pass path %s" % name)
        runs = emulation.result()
        if isinstance(runs, str):
            print("FAIL emulated: %s" % runs)
            runs = []
        for m, found, why in [*(job.result() for job in jobs), *runs]:
            found = [name for name in found if name not in wrong]
            print("pass mutant %s" % m.label() if found else "FAIL mutant %s: %s" % (m.label(), why))
            rows.append("| %s | %s |" % (m.name, "%d: %s" % (len(found), ", ".join(found[:4])) if found else why))
    print("| mutant | red paths, or tests |")
    print("\n".join(rows))
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
