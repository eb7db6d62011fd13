"""The mutants: each takes one wait, fence or invalidate out of the AMD section of the headers, or weakens it.

A mutant is (name, header, function, old, new): `old` stands exactly once in the body of `function`, of which
there is exactly one for hipcc, or one with `old`; otherwise this fails, so that no mutant silently stops to apply.
  sim, first, seeds   the litmus program (litmus.c) and its words, whose result turns wrong on the simulated
                      MI300X; a setting that shows it (or several), to be tried first; how many seeds to try
  why                 without sim: why the simulator cannot see it. check.py has to
  isa                 False: the machine code does not show it, only its result does. "ir": nor does the machine
                      code depend on it with this compiler, but the compiler is told. "waits": wait_states.py shows it
  shared              whether a run chooses it, in one build with others (mutate.py): `old` and `new` are whole
                      statements, or whole expressions where `old` has no semicolon. Default: where `old` is a
                      call, a return or an assembly statement
"""
import os
import re
import sys

DEEP = bool(os.environ.get("FLEET_DEEP"))
GRAPH, DEVICE, SCHED = "fleet.h", "fleet_device.h", "fleet_sched.h"
LINEAR, SERVER = (os.path.join("examples", "parts", "fleet_%s.h" % part) for part in ("linear", "server"))
HEADERS = GRAPH, DEVICE, SCHED, LINEAR, SERVER
# Not what hipcc compiles.
OTHERS = [("/* ==== >>nvidia", "#endif /* FLEET_CUDA */"), ("/* ==== >>host", "#endif /* FLEET_HOST */")]

# Why the simulator cannot see some of them.
OWN_WAIT = "clang 21 still writes its own wait after the fence's buffer_wbl2"
ENDS_ANYWAY = "what the wait orders is stored by a wave that ends next, and no other wave looks in between"
COMPILER = "it is for the compiler alone, and clang 21 takes the builtin after it for a fence too"
LOADS_WAIT = "the loads between the stores are waited for, and the stores with them"
LONG_WAY = "from the stores to the look it is longer than its stores are in flight"
FEWER_LOADS = "the stream of the litmus program has 16 copies in flight, and this waits for all but 56"
LDS_IN_ORDER = "LDS operations act in order and at once there"
SAME_L2 = "both sides share one L2"
HINT = "it answers alike whatever the hint"
ONE_LAUNCH = "no litmus program has two launches of a state at once"
PAST_CACHES = "the word is stored and loaded past the caches"
NO_TRACE = "no litmus program has a trace"
NO_BOUNDARY = "no litmus program has a boundary"
OTHER_TEST = "tests/gpu/linear.c is its test there"
STALE_FILLS = "its own tests have such a relay (tests/fences.hip), no litmus program has one"
SEEN_ALONE = "its own tests have such copies (tests/hazards.hip)"

FENCE_RELEASE = '__builtin_amdgcn_fence(__ATOMIC_RELEASE, "%s");'
FENCE_ACQUIRE = '__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "%s");'
PLAIN_LOAD = """uint%d_t v;
    __asm__ volatile("global_load_dword%s %%0, %%1, off\\n\\ts_waitcnt vmcnt(0)" : "=&v"(v) : "v"(at) : "memory");
    return v;"""


class Mutant:
    others = OTHERS

    def __init__(self, name, header, function, old, new="", isa=None, sim=None, why=None, first=None, seeds=4, shared=None):
        self.name, self.header, self.function = name, header, function
        self.old, self.new = old, new
        self.isa, self.sim, self.why = isa, sim, why
        self.first, self.seeds = first, seeds
        self.shared = bool(sim and re.match(r"(return |__asm__ |\w+\()[^;]*;$", old)) if shared is None else shared
        self.loop = header in (SCHED, SERVER) or (name or "").startswith(("mailbox", "stage:"))  # seen in the worker loop alone
        self.messages = (function or "").startswith(("fleet_ring", "fleeti_idle_until", "fleeti_set_symbol"))  # seen in rings of messages and boundaries alone

    def label(self):
        """The name, as tests print theirs."""
        return re.sub(r"\W+", "_", self.name).strip("_")

    def place(self, text):
        """Where `old` begins in the header."""
        definition = re.compile(r"^(?:FLEETI_OUTLINED|FLEET_(?:DEVICE|HOST_DEVICE|GLOBAL\(\d+\))|static)\s[^;{}]*?\b%s\([^;{}]*\)\n\{\n" % self.function, re.M)
        found = list(definition.finditer(text))
        for first, last in self.others if self.header == DEVICE else []:
            begin = text.index(first)
            end = text.index(last, begin)
            found = [m for m in found if not begin < m.start() < end]
        bodies = [(m.end(), text.index("\n}\n", m.end())) for m in found]
        bodies = [(begin, end) for begin, end in bodies if self.old in text[begin:end]] if len(bodies) > 1 else bodies
        if len(bodies) != 1:
            sys.exit("mutant %s: %d definitions of %s in %s" % (self.name, len(bodies), self.function, self.header))
        begin, end = bodies[0]
        body = text[begin:end]
        if body.count(self.old) != 1:
            sys.exit("mutant %s: %s holds %d times: %s" % (self.name, self.function, body.count(self.old), self.old))
        return begin + body.index(self.old)

    def apply(self, text):
        """The mutated text of the header."""
        at = self.place(text)
        return text[:at] + self.new + text[at + len(self.old):]

    def chosen(self, number):
        """What stands in place of `old` where a run chooses the mutant."""
        if self.old.endswith(";"):
            return "{ if (LITMUS_IS(%du)) { %s } else { %s } }" % (number, self.new, self.old)
        return "(LITMUS_IS(%du) ? (%s) : (%s))" % (number, self.new, self.old)


M = Mutant


def L(name, header, function, old, new, sim, **more):
    """Of logic: the machine code does not show it, and a run of the shared build chooses it."""
    return Mutant(name, header, function, old, new, isa=False, sim=sim, shared=True, **more)


MUTANTS = [
    # notify
    M("drain: s_waitcnt of every wave", DEVICE, "fleeti_notify_all", "fleeti_drain();", sim="device2"),
    M("drain: the instruction itself", DEVICE, "fleeti_drain", '__asm__ volatile("s_waitcnt vmcnt(0)" ::: "memory");', sim="device2"),
    M("barrier between drain and arrival", DEVICE, "fleeti_notify_all", "fleeti_barrier(self);", ";", sim="device1"),
    M("barrier of the vote", DEVICE, "fleeti_block_vote", "fleeti_barrier(self);", sim="dealt", isa=False),
    M("s_barrier itself", DEVICE, "fleet_block_barrier", "__syncthreads();", sim="device1"),
    M("last of the chiplet: one too early", DEVICE, "fleeti_arrive", "fleeti_rmw_device(c.device + r.sub, 1) + 1 != epoch * r.share",
      "fleeti_rmw_device(c.device + r.sub, 1) + 2 != epoch * r.share", sim="device2", isa=False, shared=True),
    M("last of the chiplet: no arrival is the last", DEVICE, "fleeti_arrive", "+ 1 != epoch * r.share", "== ~0u", sim="device2", isa=False),
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
    M("system release: for the device only", DEVICE, "fleeti_arrive", "system |= r.counter & FLEETI_SYSTEM;", sim="ranks", shared=True),
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
    M("device acquire: wait after the invalidate", DEVICE, "fleeti_invalidate_device", "fleeti_drain();", sim="order", shared=False),
    M("system acquire: buffer_inv", DEVICE, "fleeti_invalidate_system", FENCE_ACQUIRE % "", sim="system"),
    M("system acquire: from the device only", DEVICE, "fleeti_invalidate", "fleeti_invalidate_system();", "fleeti_invalidate_device();", sim="ranks"),
    M("system acquire: wait after the invalidate", DEVICE, "fleeti_invalidate_system", "fleeti_drain();", sim="system"),
    M("chiplet acquire", DEVICE, "fleeti_invalidate_chiplet", "fleeti_invalidate_device();", sim="chiplet"),
    M("chiplet acquire: of the L1 alone", DEVICE, "fleeti_invalidate_chiplet", "fleeti_invalidate_device();",
      '__asm__ volatile("buffer_inv sc0\\n\\ts_waitcnt vmcnt(0)" ::: "memory");', sim=None, why=STALE_FILLS),
    M("barrier after the acquire", DEVICE, "fleeti_broadcast_from", "fleeti_barrier(self);", sim="device1"),
    M("barrier before a wait", DEVICE, "fleeti_event_wait", "fleeti_block_any_rearm();", ";", sim="wait"),
    M("barrier before a test", DEVICE, "fleeti_event_test", "fleeti_block_any_rearm();", ";", sim="test"),
    # wait states
    M("uniform value: copied by assembly", DEVICE, "fleeti_uniform", "return (uint32_t)FLEETI_SCALAR(value);",
      'uint32_t copy;\n    __asm__("v_mov_b32_e32 %0, %1" : "=v"(copy) : "s"(FLEETI_SCALAR(value)));\n    return (uint32_t)FLEETI_SCALAR(copy);',
      isa="waits", sim=None, why=SEEN_ALONE),
    # cache policy, tile iterators, sums over waves
    M("streaming load of 4: a plain one", DEVICE, "fleet_load_streaming4", "__builtin_nontemporal_load(FLEETI_AT(const fleeti_any4, at))",
      "*FLEETI_AT(const fleeti_any4, at)", sim=None, why=HINT),
    M("four streaming loads: a plain one", DEVICE, "fleet_load_streaming16", "__builtin_nontemporal_load(FLEETI_AT(const fleeti_vector, at))",
      "*FLEETI_AT(const fleeti_vector, at)", sim=None, why=HINT),
    M("streaming view: without the policy", DEVICE, "fleet_view_load_streaming16", "FLEETI_STREAMING_BITS", "0", sim=None, why=HINT),
    M("streaming store: a plain one", DEVICE, "fleet_store_nt16", "__builtin_nontemporal_store(v, FLEETI_AT(fleeti_vector, at));",
      "*FLEETI_AT(fleeti_vector, at) = v;", sim=None, why=HINT),
    M("fresh load: of workgroup scope", DEVICE, "fleet_load_coherent8", "__HIP_MEMORY_SCOPE_AGENT", "__HIP_MEMORY_SCOPE_WORKGROUP", sim=None, why=OTHER_TEST),
    M("tile iterator: a division for each tile", LINEAR, "fleet_tile_next", "if (w->before < w->across && w->across - w->before < w->width)", "if (1)", sim=None, why=OTHER_TEST),
    M("sums over waves: the barriers", DEVICE, "fleeti_barrier", "fleet_block_barrier();", ";", sim=None, why=OTHER_TEST),
    M("fence of the wave barrier", DEVICE, "fleet_wave_barrier", '__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");', sim=None, why=COMPILER, isa="ir"),
    # atomics with their order in the name
    M("add_acq_rel_device: drain", DEVICE, "fleet_add_acq_rel_device", "fleeti_drain();", sim="order"),
    M("add_acq_rel_device: release", DEVICE, "fleet_add_acq_rel_device", "fleeti_write_back_device();", sim="order"),
    M("add_acq_rel_device: acquire", DEVICE, "fleet_add_acq_rel_device", "fleeti_invalidate_device();", sim="order"),
    M("load_acquire_device: acquire", DEVICE, "fleet_load_acquire_device", "fleeti_invalidate_device();", sim="order"),
    M("add_acq_rel_system: drain", DEVICE, "fleet_add_acq_rel_system", "fleeti_drain();", sim="order_system"),
    M("add_acq_rel_system: release", DEVICE, "fleet_add_acq_rel_system", "fleeti_write_back_system();", sim="order_system"),
    M("add_acq_rel_system: acquire", DEVICE, "fleet_add_acq_rel_system", "fleeti_invalidate_system();", sim="order_system"),
    M("load_acquire_system: acquire", DEVICE, "fleet_load_acquire_system", "fleeti_invalidate_system();", sim="order_system"),
    M("word for the host: drain", DEVICE, "fleeti_publish_system", "fleeti_drain();", sim="publish 100", first="AMDSIM_DELAY=3 AMDSIM_XCDS=1 AMDSIM_CUS=2 AMDSIM_SEED=5", seeds=10),
    M("word for other workgroups: drain", DEVICE, "fleeti_publish_device", "fleeti_drain();", sim=None, why=ONE_LAUNCH),
    # ranks
    L("event over ranks: told at device scope", DEVICE, "fleeti_arrive_for_peers", "fleeti_publish_system(words[rank] + f->word, epoch);",
      "fleeti_publish_device(words[rank] + f->word, epoch);", "ranks"),
    L("event over ranks: told by each arrival", DEVICE, "fleeti_arrive_for_peers", "fleeti_rmw_device(c.device + f->counter, weight) + weight != epoch * f->target",
      "fleeti_rmw_device(c.device + f->counter, weight) * 0u != 0", "ranks"),
    L("flagged data over ranks: polled at device scope", SCHED, "fleet_await_flagged", "fleet_load_flagged_system(from)", "fleet_load_flagged_device(from)", "ranks"),
    # weight pipeline
    M("posted task: order", DEVICE, "fleeti_lds_order", '__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup");', sim=None, why=LDS_IN_ORDER),
    M("stage: the wait for its copies", DEVICE, "fleeti_copies_wait_oldest", '__asm__ volatile(FLEETI_COPY_WAIT ::: "memory");', sim=None, why=FEWER_LOADS),
    M("stage: the wait before a release", DEVICE, "fleeti_lds_drain", '__asm__ volatile("s_waitcnt lgkmcnt(0)" ::: "memory");', sim=None, why=LDS_IN_ORDER),
    # worker loop and scheduler
    M("judge: plain stores", DEVICE, "fleet_store_relaxed_device",
      "__hip_atomic_store(FLEETI_GLOBAL(at), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);", "*at = value;", sim="routed"),
    M("mailbox: acquire", SCHED, "fleeti_chiplet_next", "fleeti_invalidate((fleet_scope)(mail >> 46 & 3));", sim="dealt"),
    M("mailbox: a plain store", DEVICE, "fleeti_post64_device", "__hip_atomic_store(FLEETI_GLOBAL(at), value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);",
      "*at = value;", sim=None, why=SAME_L2),
    M("ready ring: acquire", SCHED, "fleeti_dynamic_take", "fleeti_invalidate(FLEET_SCOPE_DEVICE);", ";", sim="ready"),
    M("own queue: acquire", SCHED, "fleeti_own_take", "fleeti_invalidate((fleet_scope)scope);", ";", sim="some"),
    M("ready ring: a ticket without an entry", SCHED, "fleeti_ring_reserve", "if (got) *ticket = fleet_add_relaxed_device(&ring->head.word, got);",
      "got = want; *ticket = fleet_add_relaxed_device(&ring->head.word, got);", sim="ready", isa=False, shared=True),
    M("join: one too early", SCHED, "fleeti_push_consumers", "epoch * need", "epoch * need - 1", sim="ready", isa=False, shared=True),
    M("tensors: drain before the look", SCHED, "fleeti_tensors_wrong", "fleeti_drain();", sim=None, why=LONG_WAY),
    M("run-time maps: release", SCHED, "fleeti_dynamic_finish", "target, mapped && last,", "target, 0,", sim="routed", isa=False),
    M("claim: drain before others may look", SCHED, "fleeti_claim", "fleeti_drain();\n    fleet_block_barrier();\n    if", "fleet_block_barrier();\n    if",
      sim=None, why=ONE_LAUNCH),
    M("claim: barrier before others may look", SCHED, "fleeti_claim", "fleet_block_barrier();\n    if", "if", sim=None, why=ONE_LAUNCH),
    M("early end: acquire", SCHED, "fleeti_finishes", "fleeti_invalidate_device();", sim=None, why=PAST_CACHES),
    M("early end: acquire under DYNAMIC", SCHED, "fleeti_last_epoch", "fleeti_invalidate_device();", sim=None, why=PAST_CACHES),
    M("trace: drain before there are records", SCHED, "fleeti_trace_enter", "fleeti_drain();", sim=None, why=NO_TRACE),
    M("trace: barrier before there are records", SCHED, "fleeti_trace_enter", "fleet_block_barrier();", sim=None, why=NO_TRACE),
    M("residency: drain before it has failed", SCHED, "fleeti_residency_fail", "fleeti_drain();", sim=None, why=LOADS_WAIT),
    M("residency: drain before leaving", SCHED, "fleeti_leave_refused", "fleeti_drain();\n    fleeti_rmw_device(&state->due", "fleeti_rmw_device(&state->due", sim=None, why=ENDS_ANYWAY),
    M("leave: drain before the barrier", SCHED, "fleeti_leave", "fleeti_drain();\n    fleet_block_barrier();", "fleet_block_barrier();", sim=None, why=ENDS_ANYWAY),
    M("leave: drain before the count", SCHED, "fleeti_leave", "fleeti_drain();\n        if (fleeti_rmw_device(&state->left", "if (fleeti_rmw_device(&state->left", sim=None, why=ENDS_ANYWAY),
    M("leave: drain before the state is free", SCHED, "fleeti_leave", "fleeti_drain();\n    fleeti_rmw_device(&state->due", "fleeti_rmw_device(&state->due", sim=None, why=ENDS_ANYWAY),
    M("symbol: drain before the barrier", SCHED, "fleeti_set_symbol_now", "fleeti_drain();", sim=None, why=NO_BOUNDARY),
    M("idle wait: acquire", SCHED, "fleeti_idle_until", "fleeti_invalidate_system();", sim=None, why=NO_BOUNDARY),
    M("ring of messages: drain", SERVER, "fleet_ring_try_push", "fleeti_drain();", sim="messages"),
    M("ring of messages: release", SERVER, "fleet_ring_try_push", "fleeti_write_back_system();", sim="messages"),
    M("ring of messages: acquire", SERVER, "fleet_ring_try_pop", "fleeti_invalidate_system();", sim="messages"),
    # counts, comparisons, bounds: a run of the shared build each
    L("ring of messages: room", SERVER, "fleet_ring_try_push", "fleeti_messages_room(&here, n)", "n", "messages"),
    L("sub-counter: one for all chiplets", DEVICE, "fleeti_event_notify", "r.sub = (e.counter + (1 + fleet_chiplet_id()) * FLEETI_EVENT_LINE) &\n                ~FLEETI_LOCAL;",
      "r.sub = (e.counter + FLEETI_EVENT_LINE) & ~FLEETI_LOCAL;", "device2"),
    L("sub-counter: the last one arrives for itself alone", DEVICE, "fleeti_event_notify", "r.weight = e.share;", "r.weight = 1;", "device2"),
    L("poll: one arrival too early", DEVICE, "fleeti_poll_until", "(int32_t)(value - want) >= 0", "(int32_t)(value - want) >= -1", "device1"),
    L("wait: the records after the first", DEVICE, "fleeti_poll_all", "k -= count;", "", "static"),
    L("step before: the one before that", DEVICE, "fleeti_wait_target", "epoch - 1", "epoch - 2", "carry"),
    L("step before: no acquire where a symbol is bound at launch", GRAPH, "fleeti_wait_for_step", "scope > task->acquire",
      "scope > (task->acquire | (uint32_t)task->flags << 2)", "carry"),
    L("step end: the epoch stays", SCHED, "fleeti_step_ends", "w->epoch++;", "", "carry"),
    L("task: acquires at block scope", SCHED, "fleeti_wait_events", "(fleet_scope)FLEETI_ACQUIRE_IN(FLEETI_TASK(w, level))", "FLEET_SCOPE_BLOCK", "static"),
    L("residency: decided before all are counted", SCHED, "fleeti_residency_decide", "fleeti_residency_count(run, counts)", "run->blocks", "residency"),
    L("residency: a run where others are due", SCHED, "fleeti_residency_decide", "fleeti_poll_device(&state->due.word) != run->blocks",
      "fleeti_poll_device(&state->due.word) == run->blocks", "static"),
    L("exit: a chiplet closes the run", SCHED, "fleeti_leave", "fleeti_rmw_device(&state->exited.word, count) + count != w->fixed->blocks", "0", "carry"),
    L("exit: the bucket's epoch stays", SCHED, "fleeti_close_run", "bucket_epoch + ran", "bucket_epoch", "carry"),
    L("exit: the state's epoch stays", SCHED, "fleeti_close_run", "epoch += ran;", "", "static"),
    L("exit: the state stays claimed", SCHED, "fleeti_leave", "0u - w->fixed->blocks", "0u", "carry"),
    L("claim: places counted in the launch before stay", SCHED, "fleeti_claim_state", "fleet_store_relaxed_device(&state->resident[i].word, 0);", "", "replays"),
    L("claim: the result stays", SCHED, "fleeti_claim_state",
      "fleet_store_relaxed_device(&result->word,\n                                   at_once && i < plan->chiplets\n                                       ? FLEETI_AT_ONCE + (i << 24) + fleeti_blocks_of(plan, i)\n                                       : began->word);", "", "replays"),
    L("claim: those that have left their chiplet stay counted", SCHED, "fleeti_claim_state", "fleet_store_relaxed_device(&state->left[i].word, 0);", "", "replays"),
    L("claim: those that have left stay counted", SCHED, "fleeti_claim_state", "fleet_store_relaxed_device(&state->exited.word, 0);", "", "replays"),
    L("claim: mail of the launch before stays", SCHED, "fleeti_claim_state", "i < plan->total_workers * FLEETI_MAILBOX", "0", "replays 1"),
    L("guard: tasks outside their shape run", SCHED, "fleeti_is_absent", "absent && fleeti_schedule_of(w) != FLEETI_SINGLE_TASK", "0u", "early"),
    L("guard: tasks outside their shape run, STATIC", SCHED, "fleeti_static_look_ahead", "FLEETI_TILE_ABSENT", "0u", "carry"),
    L("guard: what an absent task completes", SCHED, "fleeti_complete_absent",
      "fleeti_rmw_device(fleeti_counters_of(w).device + r.counter, r.weight) + r.weight ==\n            epoch * triggers[lane].target",
      "fleeti_rmw_device(fleeti_counters_of(w).device + r.counter, r.weight) * 0u != 0", "passed"),
    L("mailbox: the tag of the entry before", SCHED, "fleeti_post", "(uint64_t)((entry + 1) & 0xffff) << 48", "(uint64_t)(entry & 0xffff) << 48", "fails_dealt"),
    L("mailbox: posts into a full one", SCHED, "fleeti_post", "entry - *taken >= FLEETI_MAILBOX", "0", "fails_dealt"),
    L("mailbox: no scope to acquire", SCHED, "fleeti_post", "(uint64_t)acquire << 46", "(uint64_t)0", "dealt"),
    L("mailbox: takes the entry before", SCHED, "fleeti_chiplet_next", "((w->number + 1) & 0xffff)", "(w->number & 0xffff)", "fails_dealt"),
    L("ready ring: the tag of the ticket before", SCHED, "fleeti_ring_push", "(uint64_t)(ticket + 1) << 32", "(uint64_t)ticket << 32", "ready"),
    L("ready ring: entries that were not won stay taken", SCHED, "fleeti_ring_reserve",
      "if (got < want) fleet_add_relaxed_device(&ring->available.word, want - got);", "", "ready"),
    L("ready ring: takes whatever stands there", SCHED, "fleeti_ring_take", "(uint32_t)(entry >> 32) == ticket + 1", "1", "ring"),
    L("join: one counter for all", SCHED, "fleeti_push_consumers", "fleeti_plan_of(w)->joins + desc", "fleeti_plan_of(w)->joins", "ready"),
    L("join: none", SCHED, "fleeti_push_consumers", "need > 1", "0", "ready"),
    L("run-time ranges: tasks that do not exist run", SCHED, "fleeti_is_missing", "maps[k].kind == FLEETI_MAP_EXISTS", "0", "routed"),
    L("early push: no wait", SCHED, "fleeti_dynamic_wait", "fleeti_task_has(w, FLEETI_EARLY)", "0", "early"),
    L("early push: of the first step only", SCHED, "fleeti_push_early", "w->epoch * targets[e]", "targets[e]", "early"),
    L("own queue: the epoch stays", SCHED, "fleeti_own_take", "w->own_epoch + ends", "w->own_epoch", "some"),
    L("ready tasks: ends a step early", SCHED, "fleeti_dynamic_poll", "fleeti_last_epoch(w, &last)", "(fleeti_last_epoch(w, &last), last-- != 0)", "ready"),
    L("early end: asked for before the step has ended", SCHED, "fleeti_finishes", "(int32_t)(seen.found - seen.expected) < 0", "0", "ends"),
    L("early end: of the step before", SCHED, "fleeti_finishes", "w->epoch + w->fixed->epoch_offset",
      "w->epoch + w->fixed->epoch_offset - 1", "ends_dealt"),
    L("early end: the scheduler goes on", SCHED, "fleeti_scheduler", "fleeti_step_ends(w) | last", "fleeti_step_ends(w)", "ends_dealt"),
    L("early end: the first step begins another", SCHED, "fleeti_last_epoch", "*last = (uint32_t)(finish >> 32) - w->fixed->epoch_offset;", "", "ends_ready"),
    L("early end: what a task alone asked for", SCHED, "fleeti_claim_state",
      "fleeti_post64_device(&state->finish.word, 0);", "", "ends"),
    L("early end: the epoch counts all steps", SCHED, "fleeti_close_run", "finish ? (uint32_t)(finish >> 32) - epoch : steps", "steps", "ends"),
    L("failure: a failed tile arrives", SCHED, "fleeti_finish_task_slow", "veto |= w->stop || tile_status != FLEET_OK;", "veto |= w->stop;", "fails_dealt"),
    L("failure: a failed tile of a plain task arrives", SCHED, "fleeti_finish_task", "w->stop | (uint32_t)tile_status", "w->stop", "fails"),
    L("failure: others are not stopped", SCHED, "fleeti_record_failure", "fleet_cas_relaxed_device(&state->stop.word, 0, (uint32_t)seen.status) == 0", "1u", "fails"),
    L("failure: a wait does not look at the stop word", DEVICE, "fleeti_check_watch", "if (stop) return (fleet_status)stop;", "", "fails"),
    L("failure: a tile runs after a wait that was ended", SCHED, "fleeti_wait_events", "if (!status) return 1;", "return 1;", "fails"),
    L("abort: a wait does not look at the host's word", DEVICE, "fleeti_check_watch", "fleet_load_relaxed_system(watch->host_abort)", "0", "aborts"),
    L("stage: acquired before it is full", DEVICE, "fleeti_stage_is_ready", "fleeti_stage_is_full(&s->ring, stage, use)", "1", "flow"),
    L("stage: filled while it is read", DEVICE, "fleeti_producer_stage_is_free", "!fleeti_any(!fleeti_stage_is_free(&p->ring, p->stage, p->use, p->waves))", "1", "flow"),
    L("stage: releases count for one wave", DEVICE, "fleet_stage_release", "s->waves / sharers", "s->waves", "flow"),
]



def in_turn(n):
    """Whether this run has the n-th of some jobs that go by turns (FLEET_TEST_TURN=K/N); all of them by hand and in deep runs."""
    turn = os.environ.get("FLEET_TEST_TURN")
    if DEEP or not turn:
        return True
    k, turns = map(int, turn.split("/"))
    return n % turns == k


def of_this_run(all_of_them):
    """Those that this run builds and runs. That the others still apply to the headers is looked at in every run."""
    return [m for n, m in enumerate(all_of_them) if in_turn(n)]


def all_apply(top, all_of_them):
    """Ends the run if one of them no longer applies to its header."""
    for header in {m.header for m in all_of_them}:
        with open(os.path.join(top, header), encoding="utf-8") as f:
            text = f.read()
        for m in all_of_them:
            if m.header == header:
                m.apply(text)


def first_error(text):
    return next((l for l in text.split("\n") if "error" in l), text[-200:])


def copies(top, folder, change):
    """Copies of the headers: change(header, text)."""
    for header in HEADERS:
        os.makedirs(os.path.dirname(os.path.join(folder, header)), exist_ok=True)
        with open(os.path.join(top, header), encoding="utf-8") as f:
            text = change(header, f.read())
        with open(os.path.join(folder, header), "w", encoding="utf-8") as f:
            f.write(text)


def write(m, top, folder):
    """Copies of the headers, one of them mutated."""
    copies(top, folder, lambda header, text: m.apply(text) if m.header == header else text)


# Device code reads which mutant it is from constant memory: a load that no vector wait is for.
CHOICE = """#if !defined(LITMUS_MUTANTS)
#define LITMUS_MUTANTS
#include <stdint.h>
#if defined(LITMUS_MAIN)
__constant__ uint32_t litmus_device;
uint32_t litmus_host;
int litmus_choose(void);
#else
#include <hip/hip_runtime.h>
static __constant__ uint32_t litmus_device;
extern uint32_t litmus_host;
int litmus_choose(void); /* for the kernels of the implementation, which have a copy of their own */
int litmus_choose(void)
{
    return hipMemcpyToSymbol(HIP_SYMBOL(litmus_device), &litmus_host, sizeof litmus_host);
}
#endif
#if defined(__HIP_DEVICE_COMPILE__)
#define LITMUS_IS(n) (litmus_device == (n))
#else
#define LITMUS_IS(n) (litmus_host == (n))
#endif
#endif
"""


def write_shared(top, folder):
    """Copies of the headers with all the mutants that a run can choose: {number: mutant}. One that overlaps with
    another is none of them, and gets a build of its own."""
    numbers = {}

    def change(header, text):
        places = sorted((m.place(text), m.place(text) + len(m.old), k) for k, m in enumerate(MUTANTS, 1) if m.shared and m.header == header)
        out, end = CHOICE if header == GRAPH else "", 0
        for first, last, k in places:
            if first >= end:
                out += text[end:first] + MUTANTS[k - 1].chosen(k)
                numbers[k], end = MUTANTS[k - 1], last
        return out + text[end:]
    copies(top, folder, change)
    return numbers
