#!/usr/bin/env python3
"""Checks of the machine code that hipcc makes of the headers' AMD section. Run by check.sh where hipcc is.

Reads the compiler's listing (hipcc -S), which is compared with the disassembly of the code object: they differ
in that the listing tells which instructions the kit wrote itself (inline assembly) and which the compiler
added. Properties are checked over all paths of each kernel's control flow graph. With a folder as argument it leaves the
listings there, for wait_states.py.

Prints "pass NAME" or "FAIL NAME: why".
"""
import bisect
import concurrent.futures
import functools
import heapq
import os
import re
import shutil
import subprocess
import sys
import tempfile

import mutants
import wait_states

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
FLAGS = ["-x", "hip", "-std=c++17", "-O2", "-gline-tables-only", "--offload-device-only", "-S"]
DEEP = bool(os.environ.get("FLEET_DEEP"))
CLAIM = "-DCLAIM"  # the kernels of the implementation, and the beginning of a trace

# ---- kernels ---------------------------------------------------------------------------------------


class Instruction:
    def __init__(self, text, own, functions):
        self.text, self.own = text, own  # own: inline assembly of the kit
        self.functions = functions  # the kit's functions that it came from, inlined into one another
        self.op, _, rest = text.partition(" ")
        self.operands = [o.strip() for o in rest.split(",")] if rest else []
        # Modifiers (off, sc0, sc1, offset:16) stand after the last operand, without a comma.
        self.modifiers = self.operands[-1].split()[1:] if self.operands else []
        self.successors = []

    def has(self, *modifiers):
        words = set(self.modifiers + self.operands)
        return all((m.strip("!") in words) != m.startswith("!") for m in modifiers)

    wait = property(lambda i: i.op == "s_waitcnt" and "vmcnt(0)" in i.text)
    jump = property(lambda i: i.op == "s_branch" or i.op.startswith("s_setpc"))
    own_wait = property(lambda i: i.wait and i.own)
    barrier = property(lambda i: i.op == "s_barrier")
    writeback = property(lambda i: i.op == "buffer_wbl2")
    invalidate = property(lambda i: i.op == "buffer_inv")
    load = property(lambda i: re.match(r"(global|flat|buffer|scratch)_load", i.op) is not None)
    # But for what a wait that is late tells other ranks, which publishes nothing.
    store = property(lambda i: re.match(r"(global|flat|buffer|scratch)_store", i.op) is not None and not i.inside("fleeti_check_peers"))
    atomic = property(lambda i: re.match(r"(global|flat|buffer)_atomic", i.op) is not None)
    add = property(lambda i: i.op in ("global_atomic_add", "flat_atomic_add"))
    returning = property(lambda i: i.atomic and i.has("sc0"))
    scalar_load = property(lambda i: i.op.startswith(("s_load_", "s_buffer_load")))
    sleep = property(lambda i: i.op == "s_sleep")

    def inside(self, prefix):
        return any(f.startswith(prefix) for f in self.functions)

    def scope(self):
        """Of a load, write-back or invalidate: "", "sc0", "sc1" or "sc0 sc1"."""
        words = self.modifiers + self.text.split()[1:]
        return " ".join(s for s in ("sc0", "sc1") if s in words)


class Sources:
    """Which function of the headers a line belongs to."""

    def __init__(self, folder):
        self.starts = {}
        for header in (mutants.DEVICE, mutants.SCHED, mutants.SERVER):
            with open(os.path.join(folder, header), encoding="utf-8") as f:
                found = [(n, re.match(r"FLEET_\w+ .*?\b(\w+)\(", line)) for n, line in enumerate(f, 1)]
            self.starts[os.path.basename(header)] = [(n, m.group(1)) for n, m in found if m]

    def functions(self, location):
        """Of a comment "fleet_device.h:12:3 @[ fleet_sched.h:34:5 ]", which lists calls from the inside."""
        names = set()
        for path, line in re.findall(r"([^\s/]+\.h):(\d+):", location):
            starts = self.starts.get(path, [])
            k = bisect.bisect_right(starts, (int(line), "~"))
            names |= {starts[k - 1][1]} if k else set()
        return names


class Kernel:
    def __init__(self, name, lines, sources):
        self.name, self.code, self.numbers = name, [], {}
        labels, own, functions = {}, False, set()
        for line in lines:
            if line.strip().startswith(".loc"):
                functions = sources.functions(line)
            if "ASMSTART" in line or "ASMEND" in line:
                own = "ASMSTART" in line
                continue
            line = line.split(";")[0].rstrip()
            label = re.match(r"(\.\w+):", line)
            if label:
                labels[label.group(1)] = len(self.code)
            elif re.match(r"\s+[a-z]", line):
                self.code.append(Instruction(" ".join(line.split()), own, functions))
        for n, i in enumerate(self.code):
            if i.op.startswith("s_cbranch") or i.op == "s_branch":
                i.successors.append(labels[i.operands[0]])
            elif i.op.startswith("s_setpc"):  # a branch that is too far for one instruction: s_getpc, s_add, s_addc, s_setpc
                far = re.search(r"\((\.\w+)-\.Lpost_getpc", self.code[n - 2].text)
                if not far:
                    sys.exit("%s: an indirect branch" % name)
                i.successors.append(labels[far.group(1)])
            elif i.op.startswith("s_swappc"):
                sys.exit("%s: a call" % name)
            if not i.jump and i.op != "s_endpgm":
                i.successors.append(n + 1)
        self._loops = None

    def find(self, what):
        return [n for n, i in enumerate(self.code) if what(i)]

    def reach(self, starts, avoid=lambda i: False):
        """Instructions that run after one of `starts` on some path; the path ends at what `avoid` names."""
        seen, todo = set(), [s for n in starts for s in self.code[n].successors]
        while todo:
            n = todo.pop()
            if n in seen:
                continue
            seen.add(n)
            if not avoid(self.code[n]):
                todo += self.code[n].successors
        return seen

    def walk(self, step, starts, state):
        """Runs an automaton along all paths. step(state, instruction): the next state; None ends this path;
        a string that begins with "!" is a violation, which is returned."""
        todo = [(n, state) for n in starts]
        seen = set(todo)
        while todo:
            n, q = todo.pop()
            q = step(q, self.code[n])
            if q is None:
                continue
            if isinstance(q, str) and q.startswith("!"):
                return "%s (at %s)" % (q[1:].strip(), self.code[n].text)
            for s in self.code[n].successors:
                if (s, q) not in seen:
                    seen.add((s, q))
                    todo.append((s, q))
        return None

    def loops(self):
        """Natural loops, as sets of instructions."""
        if self._loops is not None:
            return self._loops
        leaders = sorted({0} | {s for i in self.code if len(i.successors) != 1 or i.jump for s in i.successors}
                         | {n + 1 for n, i in enumerate(self.code[:-1]) if i.jump or i.op.startswith(("s_cbranch", "s_endpgm"))})
        block_of, blocks = {}, []
        for k, first in enumerate(leaders):
            last = (leaders[k + 1] if k + 1 < len(leaders) else len(self.code)) - 1
            blocks.append((first, last))
            block_of[first] = k
        follow = [[block_of[s] for s in self.code[last].successors] for _, last in blocks]
        before = [[] for _ in blocks]
        for k, fs in enumerate(follow):
            for f in fs:
                before[f].append(k)
        order, seen = [], set()

        def visit(k):
            stack = [(k, iter(follow[k]))]
            seen.add(k)
            while stack:
                node, rest = stack[-1]
                for f in rest:
                    if f not in seen:
                        seen.add(f)
                        stack.append((f, iter(follow[f])))
                        break
                else:
                    order.append(node)
                    stack.pop()
        visit(0)
        order.reverse()
        dominators = {k: None for k in order}
        dominators[0] = {0}
        changed = True
        while changed:
            changed = False
            for k in order[1:]:
                sets = [dominators[b] for b in before[k] if dominators.get(b) is not None]
                new = set.intersection(*sets) | {k}
                if new != dominators[k]:
                    dominators[k], changed = new, True
        found = {}
        for k in order:
            for f in follow[k]:
                if f in dominators[k]:
                    body, todo = {f}, [k]
                    while todo:
                        b = todo.pop()
                        if b not in body:
                            body.add(b)
                            todo += before[b]
                    found.setdefault(f, set()).update(body)
        self._loops = [{n for k in body for n in range(blocks[k][0], blocks[k][1] + 1)} for body in found.values()]
        return self._loops

    def poll_loops(self):
        """Innermost loops with an s_sleep."""
        loops = [l for l in self.loops() if any(self.code[n].sleep for n in l)]
        return [l for l in loops if not any(m < l for m in self.loops())]

    # -- registers

    def flow(self, seeds, where, transfer=None):
        """Where values go: maps each instruction that where(instruction) names, and that a path leads to, to {register:
        set of marks} before it. seeds: instruction -> mark of what it writes, or a function of the register's
        position. transfer(instruction, marks of its sources) -> marks of what a load brings."""
        effects = [registers(i) for i in self.code]
        leaders = {0} | {s for n, i in enumerate(self.code) if i.successors != [n + 1] for s in i.successors}
        found = {}

        def through(n, state):
            """From a leader to the end of its block, whose successors are returned; state becomes what it is there."""
            while True:
                i, (written, read) = self.code[n], effects[n]
                if where(i):
                    found[n] = dict(state)
                marks = frozenset().union(*[state[r] for r in read if r in state])
                if transfer and (i.load or i.scalar_load):
                    marks = transfer(i, marks)
                for k, r in enumerate(written):
                    value = marks | seeds[n](k) if n in seeds else marks
                    if value:
                        state[r] = value
                    elif r != "exec" or not read:
                        state.pop(r, None)
                n += 1
                if i.successors != [n] or n in leaders:
                    return i.successors
        before = {0: {}}  # at the leaders
        todo, waiting = [0], {0}
        while todo:
            first = heapq.heappop(todo)  # the first: what its successors get is then mostly complete
            waiting.remove(first)
            state = dict(before[first])
            for s in through(first, state):
                if s >= len(self.code):
                    continue
                grown = s not in before
                old = before.setdefault(s, {})
                for r, value in state.items():
                    if not value <= old.get(r, frozenset()):
                        old[r] = old.get(r, frozenset()) | value
                        grown = True
                if grown and s not in waiting:
                    waiting.add(s)
                    heapq.heappush(todo, s)
        return found


@functools.lru_cache(None)
def expand(operand):
    """Names of the registers of one operand."""
    word = operand.split()[0] if operand else ""
    word = word.strip("-|").replace("abs(", "").strip(")")
    m = re.match(r"^([sva])\[(\d+):(\d+)\]$", word)
    if m:
        return [m.group(1) + str(k) for k in range(int(m.group(2)), int(m.group(3)) + 1)]
    if re.match(r"^[sva]\d+$", word) or word in ("scc", "m0"):
        return [word]
    if word.startswith(("vcc", "exec")):
        return [word.split("_")[0]]
    return []


def registers(i):
    """Registers that an instruction writes and reads; a cautious guess."""
    ops = [expand(o) for o in i.operands]
    if i.op.startswith("s_cbranch"):
        return [], ["exec" if "exec" in i.op else "vcc" if "vcc" in i.op else "scc"]
    if i.store or i.writeback or i.invalidate or i.op.startswith(("ds_write", "s_waitcnt", "s_nop", "s_endpgm")):
        return [], sum(ops, [])
    if i.atomic and not i.returning:
        return [], sum(ops, [])
    if i.op.startswith(("s_cmp", "s_bitcmp")):
        return ["scc"], sum(ops, [])
    written, read = list(ops[0]) if ops else [], sum(ops[1:], [])
    if len(ops) > 2 and re.match(r"v_(add|sub|subrev|addc|subb|subbrev)_co|v_mad_[ui]64|v_div_scale", i.op):
        written += ops[1]
    if i.op.startswith("v_cmpx"):
        written += ["exec"]
    if "saveexec" in i.op:
        written, read = written + ["exec"], read + ["exec"]
    # A lane in which the compiler keeps a scalar is a register of its own.
    lane = i.operands[2] if i.op.startswith(("v_writelane", "v_readlane")) else ""
    if i.op.startswith("v_writelane") and lane.isdigit():
        written = [w + "." + lane for w in written]
    elif i.op.startswith("v_writelane"):
        read += written
    elif lane.isdigit():
        read = read + [r + "." + lane for r in read if r[0] in "va"]
    if i.op.startswith("s_") and not i.op.startswith(("s_mov", "s_load", "s_cselect", "s_getreg", "s_mul", "s_mem", "s_buffer")):
        written = written + ["scc"]
    if i.op.startswith(("s_cselect", "s_addc", "s_subb", "s_cmov")):
        read = read + ["scc"]
    if i.op.startswith("s_cbranch"):
        read += ["vcc"]
    return written, read


class Listing:
    def __init__(self, text, include):
        self.kernels, self.facts = {}, {}
        for block in re.split(r"\n  - \.agpr_count:|\n  - \.args:", text)[1:]:
            name = re.search(r"\n    \.name: +(\S+)", block)
            if name:
                facts = dict(re.findall(r"\n    \.(\w+): +(\d+)", block))
                facts["buffers"] = [int(o) for o in re.findall(r"\.offset: +(\d+)\s+\.size: +8\s+\.value_kind: +global_buffer", block)]
                facts["agpr_count"] = (re.match(r" +(\d+)\n", block) or ["", "0"])[1]
                facts["occupancy"] = re.search(r"\n%s:.*?; Occupancy: (\d+)" % re.escape(name.group(1)), text, re.S).group(1)
                facts["values"] = [int(o) for o in re.findall(r"\.offset: +(\d+)\s+\.size: +\d+\s+\.value_kind: +by_value", block)]
                self.facts[name.group(1)] = facts
        sources = Sources(include)
        for name in self.facts:
            body = re.search(r"\n%s:.*?\n(.*?)\n\.Lfunc_end\d+:" % re.escape(name), text, re.S)
            self.kernels[name] = Kernel(name, body.group(1).split("\n"), sources)


# ---- checks ------------------------------------------------------------------------------------------


class Report:
    def __init__(self, prefix):
        self.prefix, self.results = prefix, []

    def check(self, name, ok, why=""):
        """ok: true, or what a walk returned: None."""
        good = ok is None or ok is True
        self.results.append((self.prefix + name, good, "" if good else why or str(ok)))

    def failures(self):
        return [r for r in self.results if not r[1]]


def drain_then_barrier(block):
    """From a store to an arrival: this wave's own wait, then (for a workgroup) the barrier."""
    def step(q, i):
        if i.store:
            return "stored"
        if q == "stored" and i.own_wait:
            return "drained"
        if i.barrier:
            if q == "stored":
                return "! a wave reaches the barrier with stores in flight"
            return "met" if q == "drained" else q
        if i.atomic:
            if q == "stored":
                return "! a wave arrives with stores in flight"
            if q == "drained" and block:
                return "! the leader arrives before the barrier"
        return q
    return step


def released(scope, subs):
    """One write-back of this scope and the kit's own wait before the arrival, nothing before the sub-counter."""
    def step(q, i):
        if i.writeback:
            if i.scope() != scope:
                return "! a write-back of another scope"
            return "! a second write-back" if q != "none" else "writing"
        if q == "writing" and i.own_wait:
            return "written"
        if i in subs:
            return q if q == "none" else "! the sub-counter after the write-back"
        if i.atomic:
            return q if q == "written" else "! the arrival before the write-back has ended"
        return q
    return step


def arrivals(k, r, name, scope, block, two_levels, system):
    stores = k.find(lambda i: i.store)
    r.check(name + "/stores", len(stores) >= 1, "no store to publish")
    r.check(name + "/drain", k.walk(drain_then_barrier(block), [0], "nothing"))
    writebacks = k.find(lambda i: i.writeback)
    atomics = k.find(lambda i: i.atomic)
    wanted = 2 if two_levels else 1
    r.check(name + "/arrivals", len(atomics) == wanted, "%d atomics, not %d" % (len(atomics), wanted))
    r.check(name + "/arrival_scope", all(k.code[n].has("sc1") == system for n in atomics), "an atomic of another scope")
    r.check(name + "/order", not k.find(lambda i: i.invalidate), "an acquire in a notify")
    if scope is None:
        r.check(name + "/no_release", not writebacks, "a write-back where all share one L2")
        return
    r.check(name + "/one_release", len(writebacks) == 1, "%d write-backs, not 1" % len(writebacks))
    # The sub-counter is what comes before the write-back.
    subs = [n for n in atomics if k.reach([n]) & set(writebacks)]
    r.check(name + "/levels", len(subs) == (1 if two_levels else 0), "%d atomics before the write-back" % len(subs))
    r.check(name + "/release", k.walk(released(scope, [k.code[n] for n in subs]), [0], "none"))
    if two_levels:
        r.check(name + "/last_of_chiplet", guarded(k, subs))
        r.check(name + "/chiplet_id", bool(k.find(is_chiplet_id)), "no read of XCC_ID")


def guarded(k, subs):
    """A branch that depends on what the sub-counter's atomic returned decides whether the write-back runs: on its
    other side none can run."""
    writebacks = set(k.find(lambda i: i.writeback))
    if len(subs) != 1:
        return "%d sub-counter atomics" % len(subs)
    before = k.flow({subs[0]: lambda _: frozenset(["count"])}, lambda i: i.op.startswith("s_cbranch"))
    for n in k.reach(subs):
        i = k.code[n]
        if not i.op.startswith("s_cbranch"):
            continue
        flag = registers(i)[1][0]
        if "count" not in before.get(n, {}).get(flag, ()):
            continue
        sides = [({s} | k.reach([s])) & writebacks for s in i.successors]
        if any(sides) and not all(sides):
            # Nothing but this branch leads from the atomic to the write-back.
            if not (k.reach(subs, avoid=lambda j, b=i: j is b) & writebacks):
                return None
    return "the write-back does not depend on the sub-counter"


def is_chiplet_id(i):
    return i.op == "s_getreg_b32" and re.search(r"hwreg\((HW_REG_XCC_ID|20)(, 0, 4)\)", i.text)


def acquired(k, r, name, scope, block, loop, payload=2):
    """A wait or test: polls past both caches, then one acquire, then the barrier, then loads of the data."""
    polls = k.poll_loops()
    system = scope == "sc0 sc1"
    if loop:
        r.check(name + "/poll_loop", len(polls) == 1, "%d polling loops with s_sleep" % len(polls))
    inside = set().union(*polls) if polls else set()
    # Where other ranks' words are is looked up by plain loads.
    loads = [n for n in (inside if loop else k.find(lambda i: i.load and i.scope())) if k.code[n].load and not k.code[n].inside("fleeti_check_peers")]
    r.check(name + "/poll_scope", bool(loads) and all(k.code[n].has("sc1") for n in loads)
            and (not system or any(k.code[n].has("sc0", "sc1") for n in loads)), "a poll that a cache may answer")
    first_poll = min(loads) if loads else 0
    r.check(name + "/poll_own_scope", bool(loads) and k.code[first_poll].scope() == ("sc0 sc1" if system else "sc1"), "the counter's poll has another scope")
    invalidates = k.find(lambda i: i.invalidate)
    if scope is None:
        r.check(name + "/no_acquire", not invalidates, "an invalidate where all share one L1")
    else:
        r.check(name + "/acquire", len(invalidates) == 1 and k.code[invalidates[0]].scope() == scope,
                "invalidates %s, not one %s" % ([k.code[n].text for n in invalidates], scope))
        r.check(name + "/acquire_after_poll", bool(invalidates) and all(n in k.reach(loads) for n in invalidates)
                and not (k.reach(invalidates) & set(loads)), "the acquire does not come after the poll")
        r.check(name + "/acquire_outside_loop", not any(n in l for n in invalidates for l in k.loops()), "the acquire is in a loop")

        def step(q, i):
            if i.own_wait:
                return None
            return "! before the acquire has ended" if i.barrier or i.load or i.op == "s_endpgm" else q
        r.check(name + "/acquire_ends", k.walk(step, [s for n in invalidates for s in k.code[n].successors], "acquiring"))
    payloads = [n for n in k.reach(loads) if k.code[n].load and not k.code[n].scope() and n not in inside]
    r.check(name + "/data", len(payloads) >= payload, "%d vector loads of data, not %d" % (len(payloads), payload))
    if block:
        early = k.reach([0], avoid=lambda i: i.barrier and not_first(k, i, loads))
        r.check(name + "/data_after_barrier", not (early & set(payloads)), "data is read before the barrier")
    after = k.reach(loads)
    scalar = [k.code[n].text for n in after if k.code[n].scalar_load and not k.code[n].operands[1].startswith("s[0:1]")]
    r.check(name + "/no_scalar_data", not scalar, "scalar loads after the wait: %s" % scalar)


def not_first(k, i, loads):
    """Is this a barrier that comes after a poll?"""
    return any(k.code[n] is i for n in k.reach(loads))


def sequence(*steps, between=None):
    """An automaton: each of `steps` (name, test) is passed, in this order, before the next may come. between: (test,
    n) of what may come after n of them only."""
    def step(q, i):
        if between and between[0](i) and q != between[1]:
            return "! %s after %d steps" % (i.op, q)
        for n, (_, test) in enumerate(steps):
            if not test(i):
                continue
            if n == q:
                return q + 1
            if n > q:
                return "! %s before %s" % (steps[n][0], steps[q][0])
        return q
    return step


def plain_load(i):
    return i.load and not i.scope()


def check_messages(k, r):
    """A ring of messages: the messages, all in memory, then their sequences; and sequences, acquire, messages."""
    system = "sc0 sc1"
    kernel = k["messages_push"]
    writebacks = kernel.find(lambda i: i.writeback)
    stores = [n for n in kernel.find(lambda i: i.store and not i.scope()) if kernel.reach([n]) & set(writebacks)]
    r.check("messages_push/stores", bool(stores) and len(writebacks) == 1, "%d stores, %d write-backs" % (len(stores), len(writebacks)))
    r.check("messages_push/order", kernel.walk(sequence(
        ("the drain", lambda i: i.own_wait), ("the write-back", lambda i: i.writeback and i.scope() == system),
        ("the wait after it", lambda i: i.own_wait), ("the sequence", lambda i: i.store and i.scope() == system)),
        [s for n in stores for s in kernel.code[n].successors], 0))
    kernel = k["messages_pop"]
    polls = kernel.find(lambda i: i.load and i.scope())
    r.check("messages_pop/polls", bool(polls) and all(kernel.code[n].scope() == system for n in polls), "a poll of another scope")
    acquires = kernel.find(lambda i: i.invalidate)
    loads = [n for n in kernel.reach(acquires) if plain_load(kernel.code[n])]
    r.check("messages_pop/loads", bool(loads) and len(acquires) == 1 and not any(plain_load(kernel.code[n]) for n in kernel.reach(polls, avoid=lambda i: i.invalidate)),
            "the messages are not read after one acquire")
    r.check("messages_pop/acquire", kernel.walk(sequence(
        ("the acquire", lambda i: i.invalidate and i.scope() == system), ("the wait after it", lambda i: i.own_wait),
        between=(plain_load, 2)), [s for n in polls for s in kernel.code[n].successors], 0))
    r.check("messages_pop/free", kernel.walk(sequence(("the wait for them", lambda i: i.own_wait), ("the sequence", lambda i: i.store and i.scope() == system)),
                                             [s for n in loads for s in kernel.code[n].successors], 0))


def check_boundary(k, r):
    """What a boundary does: shapes in memory before its waves meet; news of the host, then an acquire, before they do."""
    kernel = k["set_symbol"]

    def met(q, i):
        if i.store and i.inside("fleeti_set_symbol_now"):
            return "stored"
        if i.own_wait:
            return "drained"
        return "! a wave reaches the barrier with stores in flight" if i.barrier and q == "stored" else q
    r.check("set_symbol/drain", kernel.walk(met, [0], "nothing"))
    r.check("set_symbol/stores", len(kernel.find(lambda i: i.store and i.scope() == "sc1" and i.inside("fleeti_set_symbol_now"))) >= 2, "no stores of device scope")
    kernel = k["idle_wait"]

    def acquired(q, i):
        if i.load and i.scope() == "sc0 sc1" and not i.inside("fleeti_check_watch") and not i.inside("fleeti_record_failure"):
            return "polled"
        if i.invalidate and i.scope() == "sc0 sc1":
            return "acquired"
        return "! the waves meet before the acquire" if i.barrier and q == "polled" else q
    r.check("idle_wait/acquire", kernel.walk(acquired, [0], "nothing"))
    r.check("idle_wait/polls", any(any(kernel.code[n].load and kernel.code[n].scope() == "sc0 sc1" for n in l) for l in kernel.loops()), "no loop with a poll of system scope")


def check_by_hand(listing, r):
    k = listing.kernels
    for name, scope, block, two, system in (
            ("notify_block", None, True, False, False), ("notify_chiplet", None, True, False, False),
            ("notify_device_one", "sc1", True, False, False), ("notify_device_two", "sc1", True, True, False),
            ("notify_system", "sc0 sc1", True, False, True),
            ("notify_wave_chiplet", None, False, False, False), ("notify_wave_device_two", "sc1", False, True, False)):
        arrivals(k[name], r, name, scope, block, two, system)
    for name, scope in (("block", None), ("chiplet", "sc1"), ("device", "sc1"), ("system", "sc0 sc1")):
        acquired(k["wait_" + name], r, "wait_" + name, scope, True, True)
        acquired(k["wait_wave_" + name], r, "wait_wave_" + name, scope, False, True)
        acquired(k["test_" + name], r, "test_" + name, scope, True, False)
        for kind in ("wait_", "test_"):
            # No wave overwrites the answer of the wait before while a slow wave has not read it yet.
            kernel = k[kind + name]
            polls = set(kernel.find(lambda i: i.load and i.scope()))
            r.check(kind + name + "/barrier_before", not (({0} | kernel.reach([0], avoid=lambda i: i.barrier)) & polls), "a poll before the barrier")
    for name, scope in (("device", "sc1"), ("system", "sc0 sc1")):
        kernel = k["acq_rel_" + name]
        met = kernel.find(lambda i: i.barrier)
        r.check("acq_rel_%s/order" % name, kernel.walk(sequence(
            ("the drain", lambda i: i.own_wait), ("the write-back", lambda i, s=scope: i.writeback and i.scope() == s),
            ("the wait after it", lambda i: i.own_wait),
            ("the acquire", lambda i, s=scope: i.invalidate and i.scope() == s), ("the wait after it", lambda i: i.own_wait),
            ("the data", plain_load), between=(lambda i: i.atomic, 3)), [s for n in met for s in kernel.code[n].successors], 0))
        r.check("acq_rel_%s/once" % name, [len(kernel.find(t)) for t in (lambda i: i.writeback, lambda i: i.atomic, lambda i: i.invalidate)] == [1, 1, 1],
                "not one write-back, atomic and invalidate")
        kernel = k["load_acquire_" + name]
        r.check("load_acquire_%s/order" % name, kernel.walk(sequence(
            ("the poll", lambda i, s=scope: i.load and i.scope() == s), ("the acquire", lambda i, s=scope: i.invalidate and i.scope() == s),
            ("the wait after it", lambda i: i.own_wait), ("the data", plain_load)), [0], 0))
    kernel = k["publish"]
    stores = kernel.find(lambda i: i.store)
    r.check("publish/stores", len(stores) == 2 and all(kernel.code[n].scope() == "sc0 sc1" for n in stores), "not two stores of system scope")

    def step(q, i):
        return None if i.own_wait else "! the word before the record" if i.store else q
    r.check("publish/drain", kernel.walk(step, [s for n in stores[:1] for s in kernel.code[n].successors], "stored"))
    kernel = k["publish_device"]
    stores = kernel.find(lambda i: i.store)
    r.check("publish_device/stores", len(stores) == 2 and all(kernel.code[n].scope() == "sc1" for n in stores), "not two stores of device scope")
    r.check("publish_device/drain", kernel.walk(step, [s for n in stores[:1] for s in kernel.code[n].successors], "stored"))
    kernel = k["lds_order"]
    stores = kernel.find(lambda i: i.op.startswith(("ds_write", "ds_store")))
    r.check("lds_order/stores", len(stores) == 2 and not any("write2" in kernel.code[n].op or "store_2" in kernel.code[n].op for n in stores),
            "%s, not one store before and one after" % [kernel.code[n].text for n in stores])
    r.check("chiplet_id/read", len(k["chiplet_id"].find(is_chiplet_id)) == 1, "no read of XCC_ID")
    kernel = k["store_device"]
    r.check("store_device/scope", [kernel.code[n].scope() for n in kernel.find(lambda i: i.store)] == ["sc1"], "not one store of device scope")
    check_wave_barrier(k["wave_barrier"], r)


def check_policies(kernels, r, arch):
    """What each load and store of a cache policy says, its width, and how many are in flight at once."""
    chiplets = arch != "gfx90a"
    streaming, fresh = (("nt", "!sc0", "!sc1"), ("sc1", "!sc0", "!nt")) if chiplets else (("glc", "slc"), ("glc", "!slc"))
    stored = ("nt", "!sc0", "!sc1") if chiplets else ("glc", "slc")
    widths = {"4": "dword", "8": "dwordx2", "16": "dwordx4", "64": "dwordx4"}
    for name, policy, count, width in (
            *(("streaming" + n, streaming, 4 if n == "64" else 1, w) for n, w in widths.items()),
            *(("view" + n, streaming, 2, w) for n, w in widths.items() if n != "64"),
            *(("fresh" + n, fresh, 2 if n == "16" else 1, "dwordx2" if n == "16" else w) for n, w in widths.items() if n != "64")):
        k = kernels[name]
        loads, stores = k.find(lambda i: i.load), k.find(lambda i: i.store)
        r.check(name + "/loads", len(loads) == count and all(k.code[n].op.endswith("load_" + width) and k.code[n].has(*policy) for n in loads),
                "%s" % [k.code[n].text for n in loads])
        r.check(name + "/stores", bool(stores) and all(k.code[n].has(*stored) for n in stores), "%s" % [k.code[n].text for n in stores])
        # The compiler waits where it must.
        own = k.find(lambda i: i.own_wait)
        r.check(name + "/waits", not own, "%d waits of the kit's" % len(own))
        between = k.code[loads[0]:loads[-1]] if loads else []
        r.check(name + "/together", not [i for i in between if i.op == "s_waitcnt"], "a wait between the loads")


def check_clock(kernels, r, arch):
    """A tick is 10 ns: where the counter has 25 MHz it is multiplied by four."""
    k = kernels["clock_ticks"]
    reads = k.find(lambda i: i.op == "s_memrealtime")
    shifts = [i.text for i in k.code[reads[0]:] if "lshl" in i.op] if reads else []
    wanted = ["2"] if arch == "gfx90a" else []
    r.check("clock_ticks/unit", len(reads) == 1 and [re.split(r"[ ,]+", s)[-1] for s in shifts] == wanted, "%s" % shifts)


def check_tile_iterator(listing, r):
    """On the way from tile to tile nothing is divided, but on the branch into a last, narrower window."""
    k = listing.kernels["tile_iterator"]
    check_registers(listing, "tile_iterator", r)
    stores = k.find(lambda i: i.store)
    around = k.reach(stores, avoid=lambda i: i.op.startswith("v_rcp"))
    r.check("tile_iterator/divisions", bool(stores) and set(stores) <= around, "a division on every way to the next tile")


def check_reduce_add(listing, r):
    """Between the barriers: the first before any LDS is written, the second before it is read, the last after that."""
    k = listing.kernels["reduce_add"]
    check_registers(listing, "reduce_add", r)

    def step(q, i):
        if i.barrier:
            return q + 1
        if i.op.startswith("ds_write"):
            return q if q == 1 else "! LDS is written after %d barriers" % q
        if i.op.startswith("ds_read"):
            return q if q == 2 else "! LDS is read after %d barriers" % q
        return "! %d barriers" % q if i.op == "s_endpgm" and q != 3 else q
    r.check("reduce_add/barriers", k.walk(step, [0], 0))
    r.check("reduce_add/lds", bool(k.find(lambda i: i.op.startswith("ds_write"))) and bool(k.find(lambda i: i.op.startswith("ds_read"))), "no LDS")


def check_wave_barrier(k, r):
    """The neighbour's word is read before and after: the compiler may not take the first answer for the second."""
    reads = k.find(lambda i: i.op.startswith("ds_read") or i.op.startswith("ds_load"))
    writes = k.find(lambda i: i.op.startswith("ds_write") or i.op.startswith("ds_store"))
    r.check("wave_barrier/order", len(writes) == 1 and any(n < writes[0] for n in reads) and any(n > writes[0] for n in reads),
            "LDS is not read on both sides of the write")


def is_first_test(k, n, loop):
    """Is this a poll, rather than a look at the stop words, which comes after a sleep?"""
    return not any(k.code[m].sleep for m in loop if m < n)


def check_loop(listing, name, r):
    """A worker loop: everything at once."""
    k = listing.kernels[name]
    check_registers(listing, name, r, SCALARS_IN_LANES)
    count = {}
    for n in k.find(lambda i: i.writeback):
        count[k.code[n].scope()] = count.get(k.code[n].scope(), 0) + 1
    # The notify stands there three times: with triggers for DYNAMIC, without for the others, and for plain tasks. A task
    # passes one of them.
    r.check("one_release", count == {"sc1": 3, "sc0 sc1": 3}, "write-backs: %s" % count)

    def ended(q, i):
        return None if i.own_wait else "! before the write-back has ended" if i.atomic or i.store or i.barrier else q
    r.check("release_ends", k.walk(ended, [s for n in k.find(lambda i: i.writeback) for s in k.code[n].successors], "writing"))

    # A ring publishes nothing but its slots, each of which carries all its news, and whose readers poll it; a join
    # counts events whose arrivals were released; that a task has been taken tells of no data.
    def drained(q, i):
        if i.inside("fleeti_ring_") or i.inside("fleeti_make_ready") or i.inside("fleeti_push_early"):
            return q
        if i.store:
            return "stored"
        if i.own_wait:
            return "drained"
        return "! stores in flight" if i.add and q == "stored" else q
    r.check("drain", k.walk(drained, [0], "nothing"))

    def looked(q, i):
        if i.store and not i.inside("fleeti_ring_") and not i.inside("fleeti_record_failure"):
            return "stored"
        if i.own_wait:
            return "drained"
        if i.load and i.scope() == "sc1" and i.inside("fleeti_tensors_wrong"):
            return "! a tensor is looked at with stores in flight" if q == "stored" else q
        return q
    r.check("tensors_drain", k.walk(looked, [0], "nothing"))
    r.check("tensors_look", bool(k.find(lambda i: i.load and i.scope() == "sc1" and i.inside("fleeti_tensors_wrong"))), "no look of device scope")

    # Each wave's word for the report is in memory before the first wave, after the barrier, clears it.
    def left(q, i):
        if i.barrier and i.inside("fleeti_leave"):
            return "! a worker leaves with stores in flight" if q == "stored" else None
        return "stored" if i.store else "drained" if i.own_wait else q
    r.check("leave_drain", k.walk(left, [0], "nothing"))
    r.check("leave_barrier", bool(k.find(lambda i: i.barrier and i.inside("fleeti_leave"))), "no barrier of workers that leave")

    polls = k.poll_loops()
    r.check("poll_loops", len(polls) >= 4, "%d polling loops" % len(polls))
    # They also look up constants of the launch, such as where the stop word lies, by plain loads.
    r.check("poll_scope", all(any(k.code[n].load and k.code[n].has("sc1") for n in l) for l in polls), "a loop without a poll")
    waits = [l for l in polls if {"sc1", "sc0 sc1"} <= {k.code[n].scope() for n in l if k.code[n].load and is_first_test(k, n, l)}]
    r.check("acquire_outside_loop", not any(k.code[n].invalidate for l in polls for n in l), "an acquire in a polling loop")
    # The mailbox and a ring's slots are polled by 64-bit loads, events by 32-bit ones; after the polls of mailbox
    # and events there are acquires of every scope, after a slot's that of device scope.
    wide = re.compile(r"(global|flat)_(load|store)_dwordx2$")
    others = ("fleeti_check_watch", "fleeti_finishes", "fleeti_last_epoch")  # idle waits, and the end of the run
    mail = [l for l in polls if any(k.code[n].load and k.code[n].scope() == "sc1" and wide.match(k.code[n].op) and not any(k.code[n].inside(f) for f in others) for n in l)]
    ring = [l for l in mail if any(k.code[n].inside("fleeti_ring_take") for n in l)]
    mail = [l for l in mail if l not in ring]
    r.check("mailbox_poll", len(mail) == 1, "%d loops that poll a mailbox" % len(mail))
    r.check("ring_poll", len(ring) == 1, "%d loops that poll a ring" % len(ring))
    r.check("mailbox_post", bool(k.find(lambda i: i.store and i.scope() == "sc1" and wide.match(i.op))), "no post of device scope")
    r.check("event_poll", len(waits) >= 1, "no loop that polls events of either scope")
    for what, loops in (("mailbox", mail), ("ring", ring), ("wait", waits)):
        found = [{k.code[n].scope() for n in k.reach(l, avoid=lambda i: i.barrier) if k.code[n].invalidate} for l in loops]
        wanted = {"sc1"} if what == "ring" else {"sc1", "sc0 sc1"}
        r.check(what + "_acquire", wanted in found, "after the poll: %s" % [sorted(f) for f in found])

    own = {i.scope() for i in k.code if i.invalidate and i.inside("fleeti_own_take")}
    r.check("own_acquire", own == {"sc1", "sc0 sc1"}, "before a task of the own queue: %s" % sorted(own))

    # Whether a tile has ended the run is looked at after an acquire of device scope.
    for function in ("fleeti_finishes", "fleeti_last_epoch"):
        def is_look(i, function=function):
            others = ("fleeti_poll_device", "fleeti_back_off", "fleeti_check_watch", "fleeti_record_failure")
            return i.load and i.scope() == "sc1" and i.inside(function) and not any(i.inside(f) for f in others)

        def decided(q, i, function=function, is_look=is_look):
            if i.invalidate and i.scope() == "sc1" and i.inside(function):
                return "acquired"
            return ("early" if q == "acquired" else "! before the acquire") if is_look(i) else q
        r.check("early_end/" + function, k.walk(decided, [0], "early"))
        r.check("early_end/%s/looks" % function, bool(k.find(is_look)), "no look of device scope")

    def ends(q, i):
        return None if i.own_wait else "! before the acquire has ended" if i.barrier or i.load or i.op.startswith("ds_write") else q
    r.check("acquire_ends", k.walk(ends, [s for n in k.find(lambda i: i.invalidate) for s in k.code[n].successors], "acquiring"))
    r.check("chiplet_id", len(k.find(is_chiplet_id)) >= 1, "no read of XCC_ID")
    check_scalar_loads(listing, name, r)


def check_residency(k, r):
    """What the host is told of a residency check that failed, before it is counted."""
    def step(q, i):
        if i.atomic and "cmpswap" in i.op:
            return "failed"
        if i.own_wait and q == "failed":
            return "drained"
        if i.add and i.has("sc1"):
            return "! counted before what the host reads of it" if q == "failed" else q
        return q
    r.check("fail_residency/drain", k.walk(step, [0], "nothing"))
    r.check("fail_residency/counts", bool(k.find(lambda i: i.add and i.has("sc1"))), "no count of system scope")


def cleared(stores, last):
    """What all threads store is in the L2, and they have met, before what `last` names."""
    ids = {id(i) for i in stores}

    def step(q, i):
        if id(i) in ids:
            return "stored"
        if i.own_wait and q == "stored":
            return "drained"
        if i.barrier:
            return "! a wave reaches the barrier with stores in flight" if q == "stored" else "met"
        return "! before all threads have cleared and met" if last(i) and q in ("stored", "drained") else q
    return step


def check_claim(listing, r):
    """What a claim sets, before others may look at it: its stores are in loops, those of thread 0 are not. The clearing of
    a worker's trace."""
    k = next(k for name, k in listing.kernels.items() if "fleeti_claim" in name)
    counts = k.find(lambda i: i.atomic and i.inside("fleeti_rmw_device"))
    clears = [k.code[n] for n in set().union(*k.loops()) if k.code[n].store]
    r.check("claim/clears", len(clears) >= 4, "%d stores in loops" % len(clears))
    r.check("claim/counts", len(counts) == 3, "%d counts of what is due" % len(counts))
    r.check("claim/order", k.walk(cleared(clears, lambda i: i is k.code[counts[-1]]), [0], "nothing"))
    k = listing.kernels["trace_enter"]
    clears = [i for i in k.code if i.store]
    r.check("trace/clears", len(clears) >= 3, "%d stores" % len(clears))
    r.check("trace/order", k.walk(cleared(clears, lambda i: i.op == "s_endpgm"), [0], "nothing"))


def check_stream(listing, arch, r):
    """A weight pipeline: the copies' policy, how many stay in flight, what is waited for before a stage's full flag and
    before it is given back, and no barrier of the workgroup while tasks run."""
    k = listing.kernels["stream_loop"]
    check_registers(listing, "stream_loop", r, SCALARS_IN_LANES)
    copies = k.find(lambda i: i.op.startswith("global_load_lds") or i.has("lds"))
    policy, op = (("glc", "slc"), "buffer_load_dword") if arch == "gfx90a" else (("nt", "!sc1"), "global_load_lds_dword")
    if arch == "gfx950":
        op = "global_load_lds_dwordx4"
    r.check("copies", len(copies) >= 2 and all(k.code[n].op == op for n in copies), "copies: %s" % {k.code[n].op for n in copies})
    r.check("copy_policy", all(k.code[n].has(*policy) for n in copies), "a copy of another policy")
    ahead = 32 if arch == "gfx950" else 56

    # While copies flow, nothing but the counted wait holds them up, until the producer waits for something itself.
    def counted(n):
        i = k.code[n]
        return i.op == "s_waitcnt" and "vmcnt(%d)" % ahead in i.text and i.own
    inner = [l for l in k.loops() if any(n in l for n in copies) and any(counted(n) for n in l) and not any(k.code[n].sleep for n in l)]
    r.check("copies_ahead", bool(inner), "no loop of copies that waits for all but %d" % ahead)
    waits = [k.code[n].text for l in inner for n in l if k.code[n].op == "s_waitcnt" and "vmcnt" in k.code[n].text and not counted(n)]
    r.check("copies_flow", not waits, "waits among the copies: %s" % waits[:2])

    # A stage's full flag comes after a wait for copies of the kit's own.
    def landed(q, i):
        if i.op == "s_waitcnt" and "vmcnt" in i.text and i.own:
            return None
        return "! a full flag without a wait for the copies" if i.op.startswith("ds_write") and i.inside("fleeti_stage_landed") else q
    r.check("full_after_copies", k.walk(landed, [s for n in copies for s in k.code[n].successors], "copying"))
    r.check("full_flags", bool(k.find(lambda i: i.op.startswith("ds_write") and i.inside("fleeti_stage_landed"))), "no full flag")

    def read(q, i):
        if i.op.startswith("ds_read"):
            return "reading"
        if i.op == "s_waitcnt" and "lgkmcnt(0)" in i.text and i.own:
            return "read"
        return "! a slot is given back while it is read" if i.op.startswith("ds_add") and q == "reading" else q
    r.check("release_after_reads", k.walk(read, [0], "read"))
    r.check("releases", bool(k.find(lambda i: i.op.startswith("ds_add") and i.inside("fleet_stage_release"))), "no release")
    flat = [i.text for i in k.code if i.op.startswith("flat_") and any(i.inside(f) for f in ("fleeti_stage", "fleeti_producer_", "fleet_stage", "fleet_producer_", "fleeti_lds_"))]
    r.check("no_flat_lds", not flat, "flat access to LDS: %s" % flat[:2])
    r.check("no_s_barrier", not any(k.code[n].barrier for l in k.loops() for n in l if any(m in l for m in copies)), "a barrier among the copies")


# Scalars that the compiler keeps in vector lanes at most, not in memory: most are the worker loop's, which it needs between
# tasks. The loops of products in qwen3 have none (no_lanes). On gfx90a a kernel has 96 scalar registers: VCC, FLAT_SCRATCH and
# XNACK_MASK take six of the 102 that it has on gfx942.
# qwen3 has experts, too, and all schedules, sessions and servers, whose kernels on NVIDIA are apart; it also keeps vectors in accumulation
# registers, as weights are held during attention. What requests ask of their logits costs it 20 scalars on gfx950.
SCALARS_IN_LANES = 128
LANES = {"07_linear_layer": 176, "10_requests": 192, "qwen3": 212}
ACCUMULATORS = {"qwen3/gfx90a": 21, "qwen3/gfx942": 27, "qwen3/gfx950": 33}
# Likewise of the kernels with the tiles of prompts, between the loops of their products; shapes of tiles of logits.
PROMPTS = {"prefill": {"lanes": 26, "accumulators": 116, "heads": 0}, "decode_wide": {"lanes": 192, "accumulators": 124, "heads": 1}}


def check_registers(listing, name, r, lanes=0, accumulators=0):
    f = listing.facts[name]
    for fact, most in (("private_segment_fixed_size", 0), ("sgpr_spill_count", lanes), ("vgpr_spill_count", accumulators)):
        r.check(fact, int(f.get(fact, most + 1)) <= most, "%s" % f.get(fact))
    r.check("no_scratch", not listing.kernels[name].find(lambda i: i.op.startswith("scratch_") or
                                                         i.op.startswith("buffer_") and "s[0:3]" in i.text and not i.has("lds")), "scratch memory is used")


def check_scalar_loads(listing, name, r):
    """What a tile reaches through its arguments is never read by scalar loads, whose cache no acquire drops: they
    may read the kernel's arguments, the plan, and the argument structs themselves, which no task writes."""
    k, facts = listing.kernels[name], listing.facts[name]
    seeds = {}
    for n in k.find(lambda i: i.scalar_load and i.operands[1].startswith("s[0:1]")):
        at = k.code[n].operands[2].split()[0]
        if not re.match(r"^(0x[0-9a-f]+|\d+)$", at):
            continue
        base = int(at, 0)
        seeds[n] = lambda j, base=base: frozenset(["args"]) if any(b <= base + 4 * j < b + 8 for b in facts["buffers"]) else frozenset()

    def transfer(i, marks):
        return frozenset({"args": "pointer", "pointer": "data", "data": "data"}[m] for m in marks)
    before = k.flow(seeds, lambda i: i.scalar_load, transfer)
    bad = []
    for n in k.find(lambda i: i.scalar_load):
        base = expand(k.code[n].operands[1])
        if any(m in ("pointer", "data") for b in base for m in before.get(n, {}).get(b, ())):
            bad.append(k.code[n].text)
    r.check("no_scalar_data", not bad, "scalar loads of data: %s" % bad[:4])


def check_products(listing, name, arch, r):
    """The loops of examples/qwen3 over a wave's k: weights are streamed and rows of x loaded sixteen bytes at a time, on
    their way while others are multiplied, and no wait in the loop is for all of them."""
    k = listing.kernels[name]
    policy = ("glc", "slc") if arch == "gfx90a" else ("nt", "!sc1")
    op = {"gfx90a": "v_mfma_f32_16x16x16bf16_1k", "gfx942": "v_mfma_f32_16x16x16_bf16", "gfx950": "v_mfma_f32_16x16x32_bf16"}[arch]
    multiplied = set(k.find(lambda i: i.op.startswith("v_mfma") and "bf16" in i.op))  # attention multiplies f16
    r.check("mfma", bool(multiplied) and all(k.code[n].op == op for n in multiplied), "%s" % {k.code[n].op for n in multiplied})
    loops = [l for l in k.loops() if l & multiplied]
    loops = [[k.code[n] for n in l] for l in loops if not any(m < l for m in loops)]
    shapes = []
    for code in loops:
        loads = [i for i in code if i.load]
        weights = [i for i in loads if i.has(*policy)]
        r.check("loads", all(re.match(r"(global|buffer)_load_dwordx4$", i.op) for i in loads), "%s" % {i.op for i in loads})
        shapes.append((len(weights), (len(loads) - len(weights)) / max(len(weights), 1), sum(i.op == op for i in code)))
        waits = [int(n) for i in code if i.op == "s_waitcnt" for n in re.findall(r"vmcnt\((\d+)\)", i.text)]
        block = len(loads) // max(len(weights), 1)
        r.check("ahead", bool(waits) and min(waits) >= len(loads) - block, "of %d loads, waits for all but %s" % (len(loads), sorted(set(waits))))
        r.check("only_loads", not [i for i in code if i.store or i.barrier or i.op.startswith("ds_") or "lgkmcnt" in i.text], "other memory in the loop")
        r.check("no_lanes", not [i for i in code if re.match(r"v_(read|write)lane|v_accvgpr", i.op)], "registers are moved in the loop")
    # Weights that are held: two groups of eight loads without a wait or a branch, before the task waits, at the beginning of a
    # tile whose prefetch did not run, after a product for the tile after it, and at the beginning of an expert's.
    groups, n = [], 0
    for i in k.code:
        if i.load and i.has(*policy):
            n += 1
        elif i.jump or i.op.startswith("s_cbranch") or i.op == "s_waitcnt" and "vmcnt" in i.text:
            groups.append(n)
            n = 0
    r.check("held", sum(n == 8 for n in groups) >= 8, "groups of %s loads" % sorted(set(groups)))
    # Blocks in flight, loads of rows for each, MFMAs; in a layer's product and in an expert's.
    each = 1 if arch == "gfx950" else 2
    wanted = [(a, t, a * t * each) for a, t in ((2, 8), (4, 4), (8, 1), (8, 2)) for _ in range(2)]
    r.check("loops", sorted(shapes) == wanted, "%s" % sorted(shapes))


def check_prompts(listing, name, arch, r, heads):
    """The loops of amd/prefill.h over k: instructions of 32 rows and columns, eight shapes of tiles, and with a head two more, four steps
    each. No wait is for all loads, and no access may be to LDS or to memory as it turns out."""
    k = listing.kernels[name]
    op = {"gfx90a": "v_mfma_f32_32x32x8bf16_1k", "gfx942": "v_mfma_f32_32x32x8_bf16", "gfx950": "v_mfma_f32_32x32x16_bf16"}[arch]
    multiplied = set(k.find(lambda i: i.op.startswith("v_mfma") and "bf16" in i.op))
    r.check("mfma", bool(multiplied) and all(k.code[n].op == op for n in multiplied), "%s" % {k.code[n].op for n in multiplied})
    loops = [l for l in k.loops() if l & multiplied]
    loops = [[k.code[n] for n in l] for l in loops if not any(m < l for m in loops)]
    for code in loops:
        waits = [int(n) for i in code if i.op == "s_waitcnt" for n in re.findall(r"vmcnt\((\d+)\)", i.text)]
        r.check("ahead", bool(waits) and min(waits) > 0, "waits for all but %s" % sorted(set(waits)))
        r.check("no_flat", not [i for i in code if i.op.startswith("flat_")], "flat access in the loop")
        r.check("barriers", sum(i.barrier for i in code) == 4, "%d barriers" % sum(i.barrier for i in code))
    each = 1 if arch == "gfx950" else 2
    wanted = sorted(4 * 2 * each * rows * columns for rows in (1, 2) for columns in (2, 3, 4, 4) + (4,) * heads)
    r.check("loops", sorted(sum(i.op == op for i in code) for code in loops) == wanted, "%d loops" % len(loops))


def lds_of_qwen3(name):
    """LDS_BYTES or PREFILL_LDS_BYTES of examples/qwen3 on AMD."""
    text = ""
    for header in ("platform.h", os.path.join("tasks", "operands.h"), "backend_in_place.h", "backend_amd.h", os.path.join("amd", "prefill.h")):
        with open(os.path.join(TOP, "examples", "qwen3", header), encoding="utf-8") as f:
            text += f.read()
    text = re.sub(r"/\*.*", "", text)
    macros = dict(re.findall(r"#define (\w+) ([^\n]+)", text))  # of two in one header the other platforms' is the last

    def value(expression):
        return eval(re.sub(r"[A-Z_]{2,}", lambda m: str(value(macros[m.group(0)])), expression.replace("u", "").replace("/", "//")), {"__builtins__": {}})

    return value(name)


# ---- compiling ---------------------------------------------------------------------------------------


def compile_text(source, arch, out, include, flags=()):
    command = ["hipcc", *FLAGS, "--offload-arch=" + arch, "-I" + include, *flags, source, "-o", out]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError("does not compile: " + mutants.first_error(done.stderr))


def compile_listing(source, arch, out, include, flags=()):
    compile_text(source, arch, out, include, flags)
    with open(out, encoding="utf-8") as f:
        return Listing(f.read(), include)


def disassembles(listing, arch, path, r):
    """The code object holds the instructions of the listing, no more and no less."""
    subprocess.run(["clang", "-x", "assembler", "-target", "amdgcn-amd-amdhsa", "-mcpu=" + arch, "-c", path, "-o", path + ".o"], check=True)
    text = subprocess.run(["llvm-objdump", "-d", path + ".o"], capture_output=True, text=True, check=True).stdout
    bodies = {}
    for line in text.split("\n"):
        head = re.match(r"[0-9a-f]+ <(\S+)>:", line)
        if head:
            name = head.group(1)
            bodies[name] = []
        elif line.startswith("\t"):
            bodies[name].append(line.split("//")[0].split()[0])
    for name, k in listing.kernels.items():
        want, have = [i.op for i in k.code], bodies.get(name, [])
        rest = have[len(want):]
        same = [a for a, b in zip(want, have) if a != b]
        r.check("disassembly/" + name, not same and len(have) >= len(want) and all(o in ("s_nop", "s_code_end") for o in rest),
                "differs from the listing: %s" % same[:3])


def intermediate(arch, include, work, flags=()):
    """The wave barrier tells the compiler that memory is ordered, whether or not that changes what it makes."""
    r = Report(arch + "/")
    path = os.path.join(work, "kernels.%s.ll" % arch)
    compile_text(os.path.join(HERE, "kernels.c"), arch, path, include, ["-emit-llvm", *flags])
    with open(path, encoding="utf-8") as f:
        body = re.search(r"\ndefine [^\n]*@wave_barrier\(.*?\n}", f.read(), re.S)
    fences = len(re.findall(r'fence syncscope\("wavefront"\) acq_rel', body.group(0)))
    r.check("wave_barrier/fence", fences == 2, "%d fences of wavefront scope, not 2" % fences)
    return r.results


def kernels(arch, include, work, flags=(), dis=False):
    label = arch + ("-claim" if CLAIM in flags else "")
    r = Report(label + "/")
    path = os.path.join(work, "kernels.%s.s" % label)
    listing = compile_listing(os.path.join(HERE, "kernels.c"), arch, path, include, flags)
    if dis:
        disassembles(listing, arch, path, r)
    if CLAIM in flags:
        check_claim(listing, r)
        return r.results
    if arch != "gfx90a" and "-DBY_HAND" not in flags and "-DLOOP" not in flags:
        check_messages(listing.kernels, r)
        check_boundary(listing.kernels, r)
    if "-DMESSAGES" in flags:
        return r.results
    loop = Report(label + "/worker_loop/")
    stream = Report(label + "/stream_loop/")
    if "-DLOOP" not in flags:
        check_policies(listing.kernels, r, arch)
        check_clock(listing.kernels, r, arch)
        check_tile_iterator(listing, r)
        check_reduce_add(listing, r)
        if arch != "gfx90a":
            check_by_hand(listing, r)
    if "-DBY_HAND" not in flags:
        check_stream(listing, arch, stream)
        if arch != "gfx90a":
            check_residency(listing.kernels["fail_residency"], r)
        if arch == "gfx90a":
            check_registers(listing, "worker_loop", loop, SCALARS_IN_LANES)
        else:
            check_loop(listing, "worker_loop", loop)
    return r.results + loop.results + stream.results


def waits(arch, include, work, flags=()):
    r = Report(arch + "/wait_states/")
    path = os.path.join(work, "waits.%s.s" % arch)
    compile_text(os.path.join(HERE, "kernels.c"), arch, path, include, flags)
    for name, ok, why in wait_states.check(path, arch):
        r.check(name, ok, why)
    return r.results


def row_of(kernel, arch, f, lds):
    """Of the table of what a kernel takes. Spills: of vector registers, of scalars to lanes, bytes of memory."""
    spills = "/".join(f[fact] for fact in ("vgpr_spill_count", "sgpr_spill_count", "private_segment_fixed_size"))
    words = (kernel, arch, int(f["vgpr_count"]) - int(f["agpr_count"]), f["agpr_count"], f["sgpr_count"], lds, f["occupancy"], spills)
    return "| " + " | ".join(map(str, words)) + " |"


def example(path, arch, work):
    """The results, and rows of the table of what kernels take."""
    stem = os.path.splitext(os.path.basename(path))[0]
    out = os.path.join(work, "%s.%s.s" % (stem, arch))
    listing = compile_listing(path, arch, out, TOP)
    results, table = [], []
    for name, k in listing.kernels.items():
        r = Report("%s/%s/%s/" % (stem, arch, name))
        if listing.facts[name]["values"][:1] == [0] and len(listing.facts[name]["buffers"]) and k.find(lambda i: i.writeback):
            kind = stem + "/" + arch
            of_prompts = next((PROMPTS[p] for p in PROMPTS if stem == "qwen3" and p in name), None)
            if of_prompts:
                check_registers(listing, name, r, of_prompts["lanes"], of_prompts["accumulators"])
            else:
                check_registers(listing, name, r, LANES.get(stem, SCALARS_IN_LANES), ACCUMULATORS.get(kind, 0))
            lds = int(listing.facts[name]["group_segment_fixed_size"])
            if stem == "qwen3":
                if of_prompts:
                    check_prompts(listing, name, arch, r, of_prompts["heads"])
                else:
                    check_products(listing, name, arch, r)
                lds += lds_of_qwen3("PREFILL_LDS_BYTES" if of_prompts else "LDS_BYTES")
                r.check("lds", lds <= 65536, "%d bytes of LDS" % lds)
            table.append(row_of("%s/%s" % (stem, name), arch, listing.facts[name], lds))
            if arch != "gfx90a":
                check_scalar_loads(listing, name, r)
        results += r.results
    return results, table


def mutant(m, work):
    """The checks that are red."""
    folder = tempfile.mkdtemp(dir=work)
    mutants.write(m, TOP, folder)
    try:
        read = {"ir": intermediate, "waits": waits}.get(m.isa, kernels)
        flags = [CLAIM if m.function in ("fleeti_claim", "fleeti_claim_state", "fleeti_trace_enter") else "-DMESSAGES" if m.messages else "-DLOOP" if m.loop else "-DBY_HAND"]
        red = [name for name, ok, _ in read("gfx942", folder, folder, flags) if not ok]
    except RuntimeError as error:
        return m, [], str(error)
    finally:
        shutil.rmtree(folder)
    return m, red, ""


def source():
    """Orders are written out around relaxed atomics: compilers leave out the wait of a release-ordered one."""
    r = Report("source/")
    for header in (mutants.DEVICE, mutants.SCHED, mutants.SERVER):
        with open(os.path.join(TOP, header), encoding="utf-8") as f:
            calls = re.findall(r"__hip_atomic_\w+\([^;]*;|(?<![\w.])atomic(?:Add|Sub|Exch|CAS|Or|And)\w*\([^;]*;", f.read())
        bad = [c for c in calls if not re.search(r"__ATOMIC_RELAXED", c) or re.search(r"__ATOMIC_(RELEASE|ACQ|SEQ|CONSUME)", c)]
        r.check("relaxed_atomics/" + header, not bad and (bool(calls) or header != mutants.DEVICE), "%s" % bad[:2])
    return r.results


def main():
    work = sys.argv[1] if sys.argv[1:] else tempfile.mkdtemp()
    os.makedirs(work, exist_ok=True)
    jobs, examples, rows, table = [], [], [], []
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count() or 2) as pool:  # the checks take as long as the compiler
        jobs.append(pool.submit(source))
        jobs.append(pool.submit(kernels, "gfx942", TOP, work, (CLAIM,)))
        for arch in ("gfx90a", "gfx942", "gfx950"):
            jobs.append(pool.submit(kernels, arch, TOP, work, (), True))
            if arch != "gfx90a":
                jobs.append(pool.submit(intermediate, arch, TOP, work))
            wanted = "01_|qwen3/" if DEEP or arch == "gfx950" else "01_"
            if arch == "gfx942" or (DEEP and arch == "gfx950"):
                wanted = r"\d\d_.*\.c$|qwen3/"
            # The decoder takes a minute of a processor for each: for gfx942 it is turn 0's, for gfx950 turn 3's.
            decoder = {"gfx942": 0, "gfx950": 3}.get(arch, 1)
            names = [*enumerate(sorted(os.listdir(os.path.join(TOP, "examples")))), (decoder, os.path.join("qwen3", "qwen3.c"))]
            for n, name in names:
                if re.match(wanted, name) and (name.startswith("01_") or mutants.in_turn(n)):
                    examples.append(pool.submit(example, os.path.join(TOP, "examples", name), arch, work))
        # What a litmus program shows too (mutate.py): in deep runs.
        changed = [pool.submit(mutant, m, work) for m in mutants.of_this_run(mutants.MUTANTS) if m.isa is not False and (DEEP or not m.sim)]
        already = set()
        for job in [*jobs, *examples]:
            try:
                results = job.result()
                if job in examples:
                    results, more = results
                    table += more
                for name, ok, why in results:
                    print("pass " + name if ok else "FAIL %s: %s" % (name, why))
                    already |= set() if ok else {name}
            except RuntimeError as error:
                print("FAIL compile: %s" % error)
        for job in changed:
            m, red, why = job.result()
            red = [name for name in red if name not in already]
            print("pass mutant %s" % m.label() if red else "FAIL mutant %s: %s" % (m.label(), why or "no check notices"))
            seen = sorted({n.split("/", 1)[1] for n in red})
            rows.append("| %s | %d: %s |" % (m.name, len(red), ", ".join(seen[:3]) or why))
    print("| kernel | target | VGPRs | AGPRs | SGPRs | LDS | waves per SIMD | spilled VGPRs/SGPRs/bytes |")
    print("\n".join(sorted(table)))
    print("| mutant | red checks |")
    print("\n".join(rows))
    if not sys.argv[1:]:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
