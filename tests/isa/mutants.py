"""The mutants: each takes one wait, fence or invalidate out of the AMD section of the headers, or weakens it.

A mutant is (name, header, function, old, new): `old` stands exactly once in the body of `function`, of which
there is exactly one for hipcc; otherwise this fails, so that no mutant silently stops to apply.
  sim, first, seeds   the litmus program (litmus.c) and its words, whose result turns wrong on the simulated
                      MI300X; a setting that shows it (or several), to be tried first; how many seeds to try
  why                 without sim: why the simulator cannot see it. check.py has to
  isa                 False: the machine code does not show it, only its result does. "ir": nor does the machine
                      code depend on it with this compiler, but the compiler is told
"""
import os
import re
import sys

GRAPH, DEVICE, SCHED = "fleet.h", "fleet_device.h", "fleet_sched.h"
# Not what hipcc compiles.
OTHERS = [("/* ---- fleet device: backend NVIDIA", "#endif /* FLEET_CUDA */"), ("/* ---- fleet device: backend host", "#endif /* FLEET_HOST */"),
          ("#if !defined(FLEET_HIP)\nFLEET_DEVICE void fleet_load_streaming64", "#endif /* !FLEET_HIP */")]

# Why the simulator cannot see some of them.
OWN_WAIT = "clang 21 still writes its own wait after the fence's buffer_wbl2"
INV_AT_ONCE = "it lets buffer_inv act at once"
OLDER_STORES = "it lets buffer_wbl2 cover the workgroup's older stores, in flight or not"
ENDS_ANYWAY = "what the wait orders is stored by a wave that ends next, and nobody looks between"
COMPILER = "it is for the compiler alone, and clang 21 takes the builtin after it for a fence too"
LOADS_WAIT = "the loads between the stores are waited for, and the stores with them"
LONG_WAY = "from the stores to the look it is longer than its stores are in flight"
FEWER_LOADS = "it lets no wave have more than 48 loads on their way, and this waits for all but 56"
LDS_IN_ORDER = "LDS operations act in order and at once there"
SAME_L2 = "both sides share one L2"
HINT = "it answers alike whatever the hint"
OTHER_TEST = "tests/gpu/linear.c is its test there"

FENCE_RELEASE = '__builtin_amdgcn_fence(__ATOMIC_RELEASE, "%s");'
FENCE_ACQUIRE = '__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "%s");'
PLAIN_LOAD = """uint%d_t v;
    __asm__ volatile("global_load_dword%s %%0, %%1, off\\n\\ts_waitcnt vmcnt(0)" : "=&v"(v) : "v"(at) : "memory");
    return v;"""


class Mutant:
    others = OTHERS

    def __init__(self, name, header, function, old, new="", isa=None, sim=None, why=None, flags=(), first=None, seeds=4):
        self.name, self.header, self.function = name, header, function
        self.old, self.new = old, new
        self.isa, self.sim, self.why, self.flags = isa, sim, why, list(flags)
        self.first, self.seeds = first, seeds
        self.loop = header == SCHED or (name or "").startswith(("mailbox", "stream:"))  # seen in the worker loop alone

    def label(self):
        """The name, as tests print theirs."""
        return re.sub(r"\W+", "_", self.name).strip("_")

    def apply(self, text):
        """The mutated text of the header."""
        definition = re.compile(r"^FLEET_(?:DEVICE|BOTH|GLOBAL\(\d+\))[^;{}]*?\b%s\([^;{}]*\)\n\{\n" % self.function, re.M)
        found = list(definition.finditer(text))
        for first, last in self.others if self.header == DEVICE else []:
            begin = text.index(first)
            end = text.index(last, begin)
            found = [m for m in found if not begin < m.start() < end]
        if len(found) != 1:
            sys.exit("mutant %s: %d definitions of %s in %s" % (self.name, len(found), self.function, self.header))
        begin = found[0].end()
        end = text.index("\n}\n", begin)
        body = text[begin:end]
        if body.count(self.old) != 1:
            sys.exit("mutant %s: %s holds %d times: %s" % (self.name, self.function, body.count(self.old), self.old))
        return text[:begin] + body.replace(self.old, self.new) + text[end:]


M = Mutant
L1 = ["-DFLEET_CHIPLET_ACQUIRE_L1"]
MUTANTS = [
    # notify
    M("drain: s_waitcnt of every wave", DEVICE, "fleeti_notify_all", "fleeti_drain();", sim="device2"),
    M("drain: the instruction itself", DEVICE, "fleeti_drain", '__asm__ volatile("s_waitcnt vmcnt(0)" ::: "memory");', sim="device2"),
    M("barrier between drain and arrival", DEVICE, "fleeti_notify_all", "fleeti_barrier(me);", ";", sim="device1"),
    M("barrier of the vote", DEVICE, "fleeti_block_vote", "fleeti_barrier(me);", sim="dealt", isa=False),
    M("s_barrier itself", DEVICE, "fleet_block_barrier", "__syncthreads();", sim="device1"),
    M("last of the chiplet: one too early", DEVICE, "fleeti_arrive", "+ 1 != epoch * r.share", "+ 2 != epoch * r.share", sim="device2", isa=False),
    M("last of the chiplet: nobody waits for it", DEVICE, "fleeti_arrive", "+ 1 != epoch * r.share", "== ~0u", sim="device2", isa=False),
    # release
    M("device release: buffer_wbl2", DEVICE, "fleeti_write_back_device", FENCE_RELEASE % "agent", sim="device1"),
    M("device release: of workgroup scope", DEVICE, "fleeti_write_back_device", '"agent"', '"workgroup"', sim="device1"),
    M("device release: wait after the write-back", DEVICE, "fleeti_write_back_device", "fleeti_drain();", sim=None, why=OWN_WAIT),
    M("device release: no wait at all after it", DEVICE, "fleeti_write_back_device", FENCE_RELEASE % "agent" + "\n    fleeti_drain();",
      '__asm__ volatile("buffer_wbl2 sc1" ::: "memory");', sim="device1"),
    M("system release: buffer_wbl2", DEVICE, "fleeti_write_back_system", FENCE_RELEASE % "", sim="system"),
    M("system release: wait after the write-back", DEVICE, "fleeti_write_back_system", "fleeti_drain();", sim=None, why=OWN_WAIT),
    M("system release: no wait at all after it", DEVICE, "fleeti_write_back_system", FENCE_RELEASE % "" + "\n    fleeti_drain();",
      '__asm__ volatile("buffer_wbl2 sc0 sc1" ::: "memory");', sim="system", seeds=12),
    # poll
    M("device poll: a plain load", DEVICE, "fleeti_poll_device", "return fleet_load_relaxed_device(at);", PLAIN_LOAD % (32, ""), sim="device1"),
    M("system poll: a plain load", DEVICE, "fleeti_poll_system", "return fleet_load_relaxed_system(at);", PLAIN_LOAD % (32, ""), sim="system"),
    M("mailbox poll: a plain load", DEVICE, "fleeti_poll64_device", "return __hip_atomic_load(FLEETI_GLOBAL(at), __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);",
      PLAIN_LOAD % (64, "x2"), sim="dealt"),
    # acquire
    M("acquire in the wait", DEVICE, "fleeti_wait_all", "fleeti_invalidate(scope);", ";", sim="device1"),
    M("acquire in the test", DEVICE, "fleeti_event_test", "fleeti_invalidate(scope);", ";", sim="test"),
    M("device acquire: buffer_inv", DEVICE, "fleeti_invalidate_device", FENCE_ACQUIRE % "agent", sim="device1"),
    M("device acquire: of workgroup scope", DEVICE, "fleeti_invalidate_device", '"agent"', '"workgroup"', sim="device1"),
    M("device acquire: wait after the invalidate", DEVICE, "fleeti_invalidate_device", "fleeti_drain();", sim=None, why=INV_AT_ONCE),
    M("system acquire: buffer_inv", DEVICE, "fleeti_invalidate_system", FENCE_ACQUIRE % "", sim="system"),
    M("system acquire: wait after the invalidate", DEVICE, "fleeti_invalidate_system", "fleeti_drain();", sim=None, why=INV_AT_ONCE),
    M("chiplet acquire", DEVICE, "fleeti_invalidate_chiplet", "fleeti_invalidate_device();", sim="chiplet"),
    M("chiplet acquire of L1: buffer_inv sc0", DEVICE, "fleeti_invalidate_chiplet", "buffer_inv sc0\\n\\t", sim="chiplet", flags=L1),
    M("chiplet acquire of L1: wait after it", DEVICE, "fleeti_invalidate_chiplet", "\\n\\ts_waitcnt vmcnt(0)", sim=None, why=INV_AT_ONCE, flags=L1),
    M("barrier after the acquire", DEVICE, "fleeti_broadcast", "fleeti_barrier(me);", sim="device1"),
    M("barrier before a wait", DEVICE, "fleeti_event_wait", "fleeti_block_any_again();", ";", sim="wait"),
    M("barrier before a test", DEVICE, "fleeti_event_test", "fleeti_block_any_again();", ";", sim="test"),
    # cache policy, walks, sums over waves
    M("streaming load of 4: a plain one", DEVICE, "fleet_load_streaming4", 'FLEETI_LOAD_STREAMING(v, at, "dword");', "v = *(const uint32_t *)at;", sim=None, why=HINT),
    M("streaming load of 16: the width", DEVICE, "fleet_load_streaming16", "dwordx4", "dwordx3", sim=None, why=OTHER_TEST),
    M("four streaming loads: one without nt", DEVICE, "fleet_load_streaming64", "%2, %6, off sc1 nt", "%2, %6, off sc1", sim=None, why=HINT),
    M("four streaming loads: their wait", DEVICE, "fleet_load_streaming64", '"s_waitcnt vmcnt(0)"', '""', sim=None, why=OTHER_TEST),
    M("streaming view: without the policy", DEVICE, "fleet_view_load_streaming16", "FLEETI_SC1_NT", "0", sim=None, why=HINT),
    M("streaming store: a plain one", DEVICE, "fleet_store_nt16", "__builtin_nontemporal_store(v, FLEETI_AT(fleeti_vector, at));",
      "*FLEETI_AT(fleeti_vector, at) = v;", sim=None, why=HINT),
    M("fresh load: of workgroup scope", DEVICE, "fleet_load_fresh8", "__HIP_MEMORY_SCOPE_AGENT", "__HIP_MEMORY_SCOPE_WORKGROUP", sim=None, why=OTHER_TEST),
    M("walk: a division for each tile", GRAPH, "fleet_walk_next", "if (w->before < w->across && w->across - w->before < w->width)", "if (1)", sim=None, why=OTHER_TEST),
    M("sums over waves: the barriers", DEVICE, "fleeti_barrier", "fleet_block_barrier();", ";", sim=None, why=OTHER_TEST),
    M("fence of the wave barrier", DEVICE, "fleet_wave_barrier", '__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");', sim=None, why=COMPILER, isa="ir"),
    # atomics with their order in the name
    M("add_acq_rel_device: drain", DEVICE, "fleet_add_acq_rel_device", "fleeti_drain();", sim=None, why=OLDER_STORES),
    M("add_acq_rel_device: release", DEVICE, "fleet_add_acq_rel_device", "fleeti_write_back_device();", sim="order"),
    M("add_acq_rel_device: acquire", DEVICE, "fleet_add_acq_rel_device", "fleeti_invalidate_device();", sim="order"),
    M("load_acquire_device: acquire", DEVICE, "fleet_load_acquire_device", "fleeti_invalidate_device();", sim="order"),
    M("add_acq_rel_system: drain", DEVICE, "fleet_add_acq_rel_system", "fleeti_drain();", sim=None, why=OLDER_STORES),
    M("add_acq_rel_system: release", DEVICE, "fleet_add_acq_rel_system", "fleeti_write_back_system();", sim="order_system"),
    M("add_acq_rel_system: acquire", DEVICE, "fleet_add_acq_rel_system", "fleeti_invalidate_system();", sim="order_system"),
    M("load_acquire_system: acquire", DEVICE, "fleet_load_acquire_system", "fleeti_invalidate_system();", sim="order_system"),
    M("word for the host: drain", DEVICE, "fleeti_publish_system", "fleeti_drain();", sim="publish 100", first="AMDSIM_DELAY=3 AMDSIM_XCDS=1 AMDSIM_CUS=2 AMDSIM_SEED=5", seeds=10),
    # weight stream
    M("stream: the wait for a slot's copies", DEVICE, "fleeti_stream_wait_ahead", '__asm__ volatile(FLEETI_AHEAD_WAIT ::: "memory");', sim=None, why=FEWER_LOADS),
    M("stream: the wait before a release", DEVICE, "fleeti_lds_drain", '__asm__ volatile("s_waitcnt lgkmcnt(0)" ::: "memory");', sim=None, why=LDS_IN_ORDER),
    # worker loop and scheduler
    M("judge: drain before the verdict", SCHED, "fleeti_judge", "fleeti_drain();", sim=None, why=LOADS_WAIT),
    M("judge: plain stores", DEVICE, "fleet_store_relaxed_device",
      "__hip_atomic_store(FLEETI_GLOBAL(at), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);", "*at = value;", sim="static"),
    M("mailbox: acquire", SCHED, "fleeti_take_mail", "fleeti_invalidate((fleet_scope)(mail >> 46 & 3));", sim="dealt"),
    M("mailbox: a plain store", DEVICE, "fleeti_post64_device", "__hip_atomic_store(FLEETI_GLOBAL(at), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);",
      "*at = value;", sim=None, why=SAME_L2),
    M("ready ring: acquire", SCHED, "fleeti_take_ready", "fleeti_invalidate(FLEET_SCOPE_DEVICE);", ";", sim="ready"),
    M("own queue: acquire", SCHED, "fleeti_take_own", "fleeti_invalidate((fleet_scope)scope);", ";", sim="some"),
    M("ready ring: a ticket without an entry", SCHED, "fleeti_ring_win", "if (got) *ticket", "got = want; *ticket", sim="ready", isa=False),
    M("join: one too early", SCHED, "fleeti_push_consumers", "epoch * need;", "epoch * need - 1;", sim="ready", isa=False),
    M("tensors: drain before the look", SCHED, "fleeti_tensors_wrong", "fleeti_drain();", sim=None, why=LONG_WAY),
    M("run-time maps: release", SCHED, "fleeti_notify_ready", "+ from, mapped && last,", "+ from, 0,", sim="routed", isa=False),
    M("census: drain before leaving", SCHED, "fleeti_census", "fleeti_drain();\n        fleeti_rmw_device(&state->due", "fleeti_rmw_device(&state->due", sim=None, why=ENDS_ANYWAY),
    M("leave: drain before the count", SCHED, "fleeti_leave", "fleeti_drain();\n    if (fleeti_rmw_device(&state->exited", "if (fleeti_rmw_device(&state->exited", sim=None, why=ENDS_ANYWAY),
    M("leave: drain before the state is free", SCHED, "fleeti_leave", "fleeti_drain();\n        fleeti_rmw_device(&state->due", "fleeti_rmw_device(&state->due", sim=None, why=ENDS_ANYWAY),
]


def first_error(text):
    return next((l for l in text.split("\n") if "error" in l), text[-200:])


def write(m, top, folder):
    """Copies of the headers, one of them mutated."""
    for header in (GRAPH, DEVICE, SCHED):
        with open(os.path.join(top, header), encoding="utf-8") as f:
            text = f.read()
        with open(os.path.join(folder, header), "w", encoding="utf-8") as f:
            f.write(m.apply(text) if m.header == header else text)
