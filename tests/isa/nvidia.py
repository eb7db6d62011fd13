#!/usr/bin/env python3
"""The order of memory on NVIDIA GPUs: what nvcc makes of each path of nvidia_kernels.c, in PTX, whose memory model is what
the headers are written to; and that each fence, acquire, release and barrier that is taken out of the headers turns one of
these checks red. Needs nvcc, no GPU: tests/isa/nvidia.py

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
from mutants import DEVICE, GRAPH, SCHED

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
    "order": [LDS_ORDER],
    "later": [COPIED, WARP, LDS_GET, WARP, COPY],
    "copy": [COPY, COPIED, BAR, LDS_GET],
    "loads_fresh": [r"ld\.relaxed\.gpu\.global\.v4", LOOK, r"ld\.relaxed\.gpu\.global\.u64"],
    "stream_open": [r"mbarrier\.init", r"mbarrier\.init", LDS_PUT, r"fence\.mbarrier_init\.release\.cluster", BAR],
    "stream_fill": [LDS_RELEASE, r"mbarrier\.arrive\.expect_tx", r"cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx"],
    "stream_is_full": [LDS_ACQUIRE, r"mbarrier\.try_wait\.parity", r"setp\.eq\.and", LDS_GET],
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
    "pass_over": [WARP, RMW, VOTE],
    "make_ready": [WARP, VOTE, WARP, ORDER, POST, WARP, r"atom\.add\.relaxed", RMW, VOTE, WARP, RMW, VOTE, WARP, ORDER, POST, LOOK],
    "next_arrivals": [WARP, RMW, VOTE, RMW, VOTE],
    "scheduler": [r"ld\.acquire\.gpu\.global\.u32", r"ld\.acquire\.sys\.global\.u32", VOTE, WARP, ORDER, POST],
    "census": {r"atom\.add\.relaxed\.gpu": 1, RMW: 3, r"ld\.acquire\.gpu\.global\.u32": 3},
    "leave": {BAR: 1, RMW: 2},
    "fetch_task": [WARP, COPY, COPIED, WARP, LDS_GET],
    "stream_posted": [LDS_ACQUIRE, LDS_ORDER, LDS_ACQUIRE],
    "stream_begun": [LDS_RELEASE, LDS_ORDER, LDS_PUT, WARP, LDS_RELEASE, LDS_RELEASE],
    "stream_quit": [NAMED, LDS_RELEASE],
    "produce_fetch": [WARP, COPY, COPIED, WARP, LDS_GET],
}


class M(mutants.Mutant):
    """As for AMD, in the NVIDIA section; function None: `old` stands once in the whole header."""
    others = [("/* ---- fleet device: backend AMD", "#endif /* FLEET_HIP */"), ("/* ---- fleet device: backend host", "#endif /* FLEET_HOST */")]

    def apply(self, text):
        if self.function:
            return super().apply(text)
        if text.count(self.old) != 1:
            sys.exit("mutant %s: %s holds %d times: %s" % (self.name, self.header, text.count(self.old), self.old))
        return text.replace(self.old, self.new)


def weaker(name, function, op, to):
    return M(name, DEVICE, None, '(%s, "%s' % (function, op), '(%s, "%s' % (function, to))


MUTANTS = [
    # barriers
    M("block barrier", DEVICE, "fleet_block_barrier", "__syncthreads();"),
    M("wave barrier", DEVICE, "fleet_wave_barrier", "__syncwarp();"),
    M("barrier of the waves that run tasks", DEVICE, None, '__asm__ volatile("barrier.cta.sync 1,%0;" ::"r"(blockDim.x - 32u) : "memory");', "(void)0;"),
    M("its vote", DEVICE, "fleeti_rendezvous_or", "barrier.cta.red.or.pred q,1,%2,p;", "mov.pred q,p;"),
    M("vote of the block: barrier", DEVICE, "fleeti_block_vote", "fleeti_barrier(me);"),
    M("broadcast: barrier", DEVICE, "fleeti_broadcast", "fleeti_barrier(me);"),
    # notify
    M("notify of a block: barrier", DEVICE, "fleeti_notify_all", "fleeti_barrier(me);", ";"),
    M("notify of a wave: barrier", DEVICE, "fleeti_notify_all", "fleet_wave_barrier();"),
    weaker("arrival: acquire and release", "fleeti_rmw_device", "atom.add.acq_rel", "atom.add.relaxed"),
    weaker("arrival: acquire", "fleeti_rmw_device", "atom.add.acq_rel", "atom.add.release"),
    weaker("arrival: release", "fleeti_rmw_device", "atom.add.acq_rel", "atom.add.acquire"),
    weaker("arrival: of the device", "fleeti_rmw_device", "atom.add.acq_rel.gpu", "atom.add.acq_rel.cta"),
    weaker("system arrival: acquire and release", "fleeti_rmw_system", "atom.add.acq_rel", "atom.add.relaxed"),
    weaker("system arrival: of the system", "fleeti_rmw_system", "atom.add.acq_rel.sys", "atom.add.acq_rel.gpu"),
    weaker("lone arrival: release", "fleeti_add_arrival_device", "red.release", "red.relaxed"),
    weaker("lone system arrival: release", "fleeti_add_arrival_system", "red.release", "red.relaxed"),
    weaker("lone system arrival: of the system", "fleeti_add_arrival_system", "red.release.sys", "red.release.gpu"),
    weaker("word for the host: release", "fleeti_publish_system", "st.release", "st.relaxed"),
    # wait
    M("wait: fence after the last look", DEVICE, None, '"fence.acquire.gpu;"', '""'),
    M("wait: fence is asked for", DEVICE, "fleeti_poll_until", "fleeti_look_done();"),
    M("wait of a block: vote", DEVICE, "fleeti_wait_all", "failed = fleeti_block_any(me, failed);", "failed = fleeti_any(failed);"),
    M("wait of a wave: barrier", DEVICE, "fleeti_wait_all", "fleet_wave_barrier();"),
    M("test of a wave: barrier", DEVICE, "fleeti_event_test", "fleet_wave_barrier();"),
    weaker("poll: acquire", "fleeti_poll_device", "ld.acquire", "ld.relaxed"),
    weaker("system poll: acquire", "fleeti_poll_system", "ld.acquire", "ld.relaxed"),
    weaker("system poll: of the system", "fleeti_poll_system", "ld.acquire.sys", "ld.acquire.gpu"),
    M("poll of 8 bytes: acquire", DEVICE, None, '"ld.acquire.gpu.global.u64 %0,[%1];"', '"ld.relaxed.gpu.global.u64 %0,[%1];"'),
    weaker("look: a plain load", "fleet_load_relaxed_device", "ld.relaxed.gpu", "ld"),
    M("fresh load of 16: a plain one", DEVICE, None, '"ld.relaxed.gpu.global.v4.u32', '"ld.global.v4.u32'),
    # posts
    M("posts: fence", DEVICE, None, '"fence.acq_rel.gpu;"', '""'),
    M("posts: lanes", DEVICE, None, "    __syncwarp();\n    __asm__ volatile(\"fence.acq_rel.gpu;\"", "    __asm__ volatile(\"fence.acq_rel.gpu;\""),
    # copies to LDS
    M("later word: lanes have read", DEVICE, None, "    fleet_wave_barrier(); /* all lanes have read the word that was there */\n", ""),
    M("later word: barrier", DEVICE, None, "    fleeti_inbound_end(&none, me.lds, FLEETI_LDS_LATER);\n    fleet_wave_barrier();\n", "    fleeti_inbound_end(&none, me.lds, FLEETI_LDS_LATER);\n"),
    M("inbound copy: wait", DEVICE, None, '    (void)copy, (void)lds, (void)word;\n    __asm__ volatile("cp.async.wait_all;" ::: "memory");', "    (void)copy, (void)lds, (void)word;"),
    M("copy to LDS: wait", DEVICE, None, 'fleet_copy_wait(void)\n{\n    __asm__ volatile("cp.async.wait_all;" ::: "memory");', "fleet_copy_wait(void)\n{"),
    # weight stream
    M("words of LDS: acquire", DEVICE, None, '"ld.acquire.cta.shared.u32 %0,[%1];"', '"ld.relaxed.cta.shared.u32 %0,[%1];"'),
    M("words of LDS: release", DEVICE, None, '"st.release.cta.shared.u32 [%0],%1;"', '"st.relaxed.cta.shared.u32 [%0],%1;"'),
    M("words of LDS: order", DEVICE, None, '"fence.acq_rel.cta;"', '""'),
    M("posted task: order of who posts", SCHED, "fleeti_stream_begun", "fleeti_lds_order();"),
    M("posted task: order of who looks", SCHED, "fleeti_produce_posted", "fleeti_lds_order();"),
    weaker("word for other workers: release", "fleeti_publish_device", "st.release", "st.relaxed"),
    M("stage: fence of new barriers", DEVICE, None, '"fence.mbarrier_init.release.cluster;"', '""'),
    M("stage: its use", DEVICE, None, "    fleeti_lds_release(s->words, FLEETI_STREAM_USE(slot), use + 1);\n    __asm__", "    __asm__"),
    M("stage: its use before the copy", DEVICE, None, "    fleeti_lds_release(s->words, FLEETI_STREAM_USE(slot), use + 1);\n    __asm__",
      "    fleeti_lds_put(s->words, FLEETI_STREAM_USE(slot), use + 1);\n    __asm__"),
    M("stage: use acquired", DEVICE, None, "begun;\\nld.acquire", "begun;\\nld.relaxed"),
    M("stage: use compared", DEVICE, None, "setp.eq.and.u32 p,begun,%2,p;", ""),
    M("stage: proxy fence", DEVICE, None, '"fence.proxy.async.global;"', '""'),
    M("stage: proxy fence after the task's events", DEVICE, "fleet_span_await_step", "if (!fleet_span_await(p)) return 0;\n        fleeti_stream_order();", "if (!fleet_span_await(p)) return 0;"),
    M("stage: proxy fence after the step", DEVICE, "fleet_span_await_step", "fleeti_invalidate_device();\n            fleeti_stream_order();", "fleeti_invalidate_device();"),
    M("stage: lanes have read", DEVICE, "fleet_weights_release", "fleet_wave_barrier();"),
    M("stages: lanes have read", DEVICE, "fleet_weights_give_back", "fleet_wave_barrier();"),
    M("entry of a task: release", DEVICE, "fleeti_spans_begin", "fleeti_lds_release(", "fleeti_lds_put("),
    M("failed stream: release", DEVICE, "fleeti_stream_failed", "fleeti_lds_release(", "fleeti_lds_put("),
    # scheduling
    M("what a worker keeps: barrier", SCHED, None, "    if (fleet_thread_id() == 0) kept = *fixed;\n    fleet_block_barrier();\n", "    if (fleet_thread_id() == 0) kept = *fixed;\n"),
    M("ring: order before a post", SCHED, "fleeti_ring_push", "fleeti_post_order();"),
    M("ring: order before a run of posts", SCHED, "fleeti_ring_push_run", "fleeti_post_order(); /* as in fleeti_ring_push */"),
    M("ring: posts before their count", SCHED, "fleeti_ring_push_run", "fleet_wave_barrier();"),
    M("scheduler: order before the mail", SCHED, "fleeti_scheduler", "fleeti_post_order();"),
    M("absent task: lanes", SCHED, "fleeti_pass_over", "fleet_wave_barrier();"),
    M("news: lanes", SCHED, "fleeti_make_ready", "fleet_wave_barrier();"),
    M("arrivals by map: lanes", SCHED, "fleeti_next_arrivals", "fleet_wave_barrier();"),
    M("census: seat", SCHED, "fleeti_census", "fleeti_rmw_device(&state->seats.word,", "fleet_add_relaxed_device(&state->seats.word,"),
    M("census: leaves", SCHED, "fleeti_census", "fleeti_rmw_device(&state->due.word,", "fleet_add_relaxed_device(&state->due.word,"),
    M("census: who found no seat", SCHED, "fleeti_judge", "fleeti_poll_device(&state->seats.word)", "fleet_load_relaxed_device(&state->seats.word)"),
    M("census: who is due", SCHED, "fleeti_judge", "fleeti_poll_device(&state->due.word)", "fleet_load_relaxed_device(&state->due.word)"),
    M("census: verdict", SCHED, "fleeti_judge", "fleeti_rmw_device(", "fleet_add_relaxed_device("),
    M("census: poll", SCHED, "fleeti_census", "fleeti_poll_device(&state->verdict.word)", "fleet_load_relaxed_device(&state->verdict.word)"),
    M("leave: barrier", SCHED, "fleeti_leave", "fleet_block_barrier();"),
    M("leave: count", SCHED, "fleeti_leave", "fleeti_rmw_device(&state->exited.word, 1)", "fleet_add_relaxed_device(&state->exited.word, 1)"),
    M("leave: state is free", SCHED, "fleeti_leave", "fleeti_rmw_device(&state->due.word,", "fleet_add_relaxed_device(&state->due.word,"),
    M("descriptor: lanes have read", SCHED, "fleeti_fetch_task", "fleet_wave_barrier(); /* all lanes have read what was there */"),
    M("producer's descriptors: lanes have read", SCHED, "fleeti_produce_fetch", "fleet_wave_barrier(); /* all lanes have read what was there */"),
    M("producer's descriptors: barrier", SCHED, "fleeti_produce_fetched", "fleet_wave_barrier();"),
    M("task begun: words before the post", SCHED, "fleeti_stream_begun", "fleet_wave_barrier();"),
    M("task begun: release", SCHED, "fleeti_stream_begun", "fleeti_lds_release(w->stream.words, FLEETI_STREAM_BEGUN,", "fleeti_lds_put(w->stream.words, FLEETI_STREAM_BEGUN,"),
    M("last task: release", SCHED, "fleeti_stream_quit", "fleeti_lds_release(", "fleeti_lds_put("),
    M("task alone: its waves", SCHED, "fleeti_stream_quit", "fleeti_barrier(w->me);", ";"),
]


def compile_paths(headers, sched, work):
    """The PTX of each path; or what nvcc says."""
    out = os.path.join(tempfile.mkdtemp(dir=work), "paths.ptx")
    done = subprocess.run(["nvcc", "-x", "cu", "-ptx", "-std=c++17", "-arch=sm_90", "-I" + headers, *(["-DSCHED"] if sched else []),
                           os.path.join(HERE, "nvidia_kernels.c"), "-o", out], capture_output=True, text=True, check=False)
    if done.returncode:
        return "does not compile: " + mutants.first_error(done.stderr)
    with open(out, encoding="utf-8") as f:
        return dict(re.match(r"(\w+)\((.*)", part, re.S).groups() for part in f.read().split(".entry ")[1:])


def red(paths, wanted):
    """The paths in which something is missing, with what."""
    found = {}
    for name in wanted:
        at = 0
        if isinstance(PATHS[name], dict):
            short = [p for p, n in PATHS[name].items() if len(re.findall(p, paths.get(name, ""))) < n]
            if short:
                found[name] = "too few of " + short[0].replace("\\", "")
            continue
        for i, part in enumerate(PATHS[name]):
            m = re.compile(part).search(paths[name], at) if name in paths else None
            if not m:
                found[name] = "no %s as number %d" % (part.replace("\\", ""), i + 1)
                break
            at = m.end()
    return found


def attempt(m, work, which):
    folder = tempfile.mkdtemp(dir=work)
    mutants.write(m, TOP, folder)
    found = {}
    for sched in which:
        paths = compile_paths(folder, sched, work)
        if isinstance(paths, str):
            return m, {}, paths
        found.update(red(paths, [n for n in PATHS if n in paths]))
    return m, found, "no check notices"


def main():
    work = tempfile.mkdtemp()
    rows = []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        jobs = [pool.submit(attempt, m, work, [m.header == SCHED]) for m in MUTANTS]
        seen = {}
        for sched in (False, True):
            paths = compile_paths(TOP, sched, work)
            if isinstance(paths, str):
                print("FAIL compile: %s" % paths)
                return
            seen.update(paths)
        wrong = red(seen, PATHS)
        for name in PATHS:
            print("FAIL path %s: %s" % (name, wrong[name]) if name in wrong else "pass path %s" % name)
        for job in jobs:
            m, found, why = job.result()
            found = [name for name in found if name not in wrong]
            print("pass mutant %s" % m.label() if found else "FAIL mutant %s: %s" % (m.label(), why))
            rows.append("| %s | %s |" % (m.name, "%d: %s" % (len(found), ", ".join(found[:4])) if found else why))
    print("| mutant | red paths |")
    print("\n".join(rows))
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
