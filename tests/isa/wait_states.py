#!/usr/bin/env python3
"""Wait states that gfx942 and gfx950 do not insert themselves (../amdsim/src/hazards.inc), in machine code.

The compiler keeps them between its own instructions, but not around inline assembly. All paths are followed, and a place
where some path has fewer is reported.

    wait_states.py             compiles kernels.c, example 01, the decoder and its server for both, and checks them
    wait_states.py FOLDER      checks the listings NAME.ARCH.s that check.py left there, and the server, by turns

and the rules themselves. Prints "pass NAME" or "FAIL NAME: why". Needs clang and llvm-objdump, to compile also hipcc.
"""
import collections
import concurrent.futures
import functools
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

import mutants

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
ARCHS = ("gfx942", "gfx950")
FARTHEST = 20  # wait states, of any rule

Rule = collections.namedtuple("Rule", "name states first second examples")


def read_rules():
    with open(os.path.join(TOP, "tests", "amdsim", "src", "hazards.inc"), encoding="utf-8") as f:
        rows = re.findall(r'^HAZARD\((\w+), (?:PASSES ([+-]) )?(\d+), "(.*?)", "(.*?)", "(.*?)", "(.*?)", \w+\)$', f.read(), re.M)
    return {name: Rule(name, (int(sign + number) if sign else int(number), bool(sign)), first, second, examples)
            for name, sign, number, first, second, *examples in rows}


RULES = read_rules()

# ---- instructions ------------------------------------------------------------------------------------


@functools.lru_cache(None)
def registers(operand):
    """Those that an operand names: v1, a2, s3, vcc (as s106 and s107), exec, m0."""
    found = set()
    for kind, first, last in re.findall(r"\b([sva])\[(\d+):(\d+)\]", operand):
        found |= {kind + str(k) for k in range(int(first), int(last) + 1)}
    found |= set(re.findall(r"\b[sva]\d+\b|\bm0\b", operand))
    for name, low in (("vcc", "s106"), ("exec", "exec")):
        if re.search(r"\b%s(_lo|_hi)?\b" % name, operand):
            found |= {low, "s107"} if name == "vcc" else {low}
    return frozenset(found)


NOTHING = frozenset()
TWO_RESULTS = re.compile(r"v_(add|sub|subrev|addc|subb|subbrev)_co_|v_div_scale|v_mad_[ui]64_[ui]32")
ACCUMULATES = re.compile(r"v_(pk_)?(fmac|mac)_|v_dot\d+c_|v_smfmac")
TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_(f16|f32|f64|bf16|legacy_f32)")
MEMORY = re.compile(r"(global|flat|scratch|buffer|ds)_(?!wbl2|inv|gws|nop)")
BY_M0 = re.compile(r"global_load_lds|scratch_load_lds|ds_(read|write)_addtid|ds_gws|s_sendmsg|s_movrel|v_movrel|ds_ordered")


def passes(op):
    """Of a matrix instruction."""
    shape = re.match(r"v_s?mfmac?_[a-z]\d+_(\d+)x\d+x\d+_?(\d+b)?", op)
    if not shape or "f64" in op or "f8f6f4" in op or "scale" in op:
        raise ValueError("%s: a matrix instruction without a rule" % op)
    rows, blocks = int(shape.group(1)), shape.group(2)
    long = blocks or is_f32(op)
    return 2 if rows == 4 else rows // 2 if long else rows // 4


def is_f32(op):
    return op.endswith("_f32")


class Instruction:
    """text: as llvm-objdump prints it. What it reads and writes, by the kinds of the rules."""

    def __init__(self, text):
        self.text = text
        self.op, _, rest = text.partition(" ")
        self.op = re.sub(r"_e(32|64)$", "", self.op)
        op = self.op
        self.states = int(rest, 0) + 1 if op == "s_nop" else 1
        self.valu, self.mfma = op.startswith("v_") and op != "v_nop", op.startswith(("v_mfma", "v_smfmac"))
        self.memory = bool(MEMORY.match(op))
        operands = [o.strip() for o in re.split(r",\s*(?![^\[\(]*[\]\)])", rest)] if rest else []
        self.operands = operands
        words = " ".join(operands[-1:]).split()[1:]
        self.to_lds = op.endswith("_lds") or "_load_lds_" in op or self.memory and "lds" in words
        self.dpp = "_dpp" in op or "row_mask:" in rest
        self.writes, self.reads = NOTHING, NOTHING
        results = 0
        if self.valu or op.startswith("s_") and not op.startswith(("s_cmp", "s_bitcmp", "s_setreg", "s_waitcnt", "s_nop", "s_cbranch")):
            results = 2 if TWO_RESULTS.match(op) or op.startswith(("v_swap", "v_permlane16_swap", "v_permlane32_swap")) else 1
        elif self.memory and ("load" in op and not self.to_lds or re.match(r"ds_(read|bpermute|permute|swizzle|consume|append)|ds_\w+_rtn", op) or
                              "atomic" in op and "sc0" in words):
            results = 1
        if operands:
            self.writes = frozenset().union(*map(registers, operands[:results]))
            self.reads = frozenset().union(*map(registers, operands[results:])) if operands[results:] else NOTHING
        if op.startswith("v_cmpx"):
            self.writes |= {"exec"}
        if ACCUMULATES.match(op) or "UNUSED_PRESERVE" in rest or op.startswith(("v_swap", "v_permlane")):
            self.reads |= self.writes
        if op.startswith("v_div_fmas"):
            self.reads |= {"s106", "s107"}
        self.vectors = frozenset(r for r in self.writes if r[0] in "va")
        self.scalars = frozenset(r for r in self.writes if r[0] == "s")
        self.successors = []
        self.address = None

    def setreg(self):
        match = re.match(r"hwreg\((\w+)", next((o for o in self.operands if "hwreg" in o), ""))
        return match.group(1) if match else None


def starts(i):
    """Rows of which the instruction may be the first: pairs of a name and the registers concerned."""
    rows = []
    if i.valu and i.scalars:
        rows += [(n, i.scalars) for n in ("SGPR_VALU", "SGPR_LANE", "SGPR_VMEM")]
        if "s106" in i.scalars or "s107" in i.scalars:
            rows += [("VCC_FMAS", i.scalars), ("ZERO_FLAG", frozenset(["vccz"]))]
    if i.valu and "exec" in i.writes:
        rows += [(n, i.writes) for n in ("EXEC_LANE", "EXEC_DPP", "EXEC_SWAP")] + [("ZERO_FLAG", frozenset(["execz"]))]
        rows += [] if i.mfma else [("EXEC_MFMA", i.writes)]
    if i.valu and i.vectors:
        rows += [(n, i.vectors) for n in ("VGPR_READLANE", "VGPR_DPP", "VGPR_SWAP")]
        dot = i.op.startswith("v_dot")
        rows += [("VGPR_MFMA", i.vectors)] if not i.mfma and not dot else []
        rows += [("DOT_VALU", i.vectors)] if dot else []
        rows += [("TRANS_VALU", i.vectors)] if TRANSCENDENTAL.match(i.op) else []
        moved = re.search(r"dst_sel:(?!DWORD)", i.text) or re.search(r"op_sel:\[(\d,)*1\]", i.text) and not re.match(r"v_pk_|v_mfma|v_fma_mix|v_mad_mix|v_dot", i.op)
        rows += [("PART_VALU", i.vectors)] if moved else []
    if i.memory and not i.op.startswith("ds_") and ("store" in i.op or "atomic" in i.op):
        data = registers(i.operands[0 if i.op.startswith("buffer") else 2 if "sc0" in i.text.split() and "atomic" in i.op else 1]) if len(i.operands) > 1 else NOTHING
        data = frozenset(r for r in data if r[0] in "va")
        by_register = i.op.startswith("buffer") and len(i.operands) > 3 and registers(i.operands[3].split()[0])
        rows += [("STORE_VALU", data)] if len(data) > 2 and not by_register else []
    if "m0" in i.writes and i.op.startswith("s_"):
        rows += [("M0_COPY", i.writes)]
    if i.op.startswith("s_setreg"):
        rows += [("SETREG_GETREG", frozenset([i.setreg()]))]
    if i.mfma:
        rows += [(n, i.vectors) for n in ("MFMA_C", "MFMA_AB", "MFMA_READ", "MFMA_WRITE")]
        if not is_f32(i.op):
            rows += [("MFMA_ADDEND", registers(i.operands[0 if i.op.startswith("v_smfmac") else 3]))]
    return [(n, r) for n, r in rows if r]


def ends(i):
    """Rows of which it may be the second, likewise."""
    rows = []
    if i.valu:
        scalars = frozenset(r for r in i.reads if r[0] == "s")
        vectors = frozenset(r for r in i.reads if r[0] in "va")
        rows += [("SGPR_VALU", scalars)]
        if i.op.startswith(("v_readlane", "v_writelane")):
            rows += [("SGPR_LANE", registers(i.operands[2]))]
        if i.op.startswith("v_div_fmas"):
            rows += [("VCC_FMAS", frozenset(["s106", "s107"]))]
        if i.op.startswith(("v_readlane", "v_readfirstlane")):
            rows += [("VGPR_READLANE", vectors)]
        if i.op.startswith(("v_readlane", "v_readfirstlane", "v_writelane")):
            rows += [("EXEC_LANE", frozenset(["exec"]))]
        if i.dpp:
            rows += [("EXEC_DPP", frozenset(["exec"])), ("VGPR_DPP", vectors)]
        rows += [("ZERO_FLAG", frozenset(re.findall(r"src_(execz|vccz)", i.text)))]
        rows += [] if TRANSCENDENTAL.match(i.op) else [("TRANS_VALU", vectors)]
        rows += [("PART_VALU", vectors), ("STORE_VALU", i.vectors)]
        if i.op.startswith(("v_permlane16_swap", "v_permlane32_swap")):
            rows += [("VGPR_SWAP", vectors), ("EXEC_SWAP", frozenset(["exec"]))]
        if i.mfma:
            added = registers(i.operands[0 if i.op.startswith("v_smfmac") else 3])
            rows += [("VGPR_MFMA", vectors), ("EXEC_MFMA", frozenset(["exec"])), ("MFMA_C", added)]
            rows += [("MFMA_AB", frozenset().union(*map(registers, i.operands[1:3])))]
    if i.memory and not i.op.startswith("ds_"):
        rows += [("SGPR_VMEM", frozenset(r for r in i.reads if r[0] == "s"))]
    if i.valu or i.memory:
        rows += [("DOT_VALU", i.reads | i.vectors)]
    if (i.valu or i.memory) and not i.mfma:
        rows += [("MFMA_READ", i.reads), ("MFMA_WRITE", i.vectors), ("MFMA_ADDEND", i.vectors)]
    if BY_M0.match(i.op) or i.to_lds:
        rows += [("M0_COPY", frozenset(["m0"]))]
    if i.op.startswith(("s_getreg", "s_setreg")):
        rows += [("SETREG_GETREG", frozenset([i.setreg()]))]
    return [(n, r) for n, r in rows if r]


def needed(name, first, second, arch):
    """Wait states between these two."""
    states, by_passes = RULES[name].states
    if name.endswith("_SWAP") and arch != "gfx950":
        return 0
    if name == "DOT_VALU" and first.op == second.op:  # what it adds to is forwarded
        multiplied = registers(second.operands[1]) | registers(second.operands[2])
        return states if first.vectors & multiplied else 0
    if not by_passes:
        return states
    count, single = passes(first.op), is_f32(first.op)
    if name == "MFMA_C":
        if first.vectors == registers(second.operands[0 if second.op.startswith("v_smfmac") else 3]):
            return 2 if count == 2 else 0  # the sum is forwarded
        if single and not is_f32(second.op):
            return 0
    if name != "MFMA_ADDEND":
        states += (arch == "gfx950" and count != 2 and not single) - single
    return count + states


# ---- paths -------------------------------------------------------------------------------------------


def functions(text):
    """Of what llvm-objdump -d printed: names, and their instructions with successors."""
    for body in re.split(r"\n(?=[0-9a-f]+ <)", text):
        head = re.match(r"([0-9a-f]+) <(.+)>:\n", body)
        if not head:
            continue
        base, name, code, numbers = int(head.group(1), 16), head.group(2), [], {}
        targets = []
        for line in body.split("\n")[1:]:
            m = re.match(r"\t(.*?)\s*// ([0-9A-F]+):(?: [0-9A-F]{8})+\s*(?:<.*?(?:\+0x([0-9a-f]+))?>)?$", line)
            if not m:
                continue
            i = Instruction(" ".join(m.group(1).split()))
            i.address = int(m.group(2), 16)
            numbers[i.address] = len(code)
            code.append(i)
            targets.append(base + int(m.group(3) or "0", 16))
        for n, i in enumerate(code):
            if i.op.startswith("s_cbranch") or i.op == "s_branch":
                i.successors.append(numbers[targets[n]])
            elif i.op.startswith("s_setpc"):
                i.successors.append(numbers[far_target(name, code, n)])
            elif i.op.startswith(("s_swappc", "s_call", "s_cbranch_g", "s_cbranch_i")):
                raise ValueError("%s: %s is not followed" % (name, i.text))
            if i.op not in ("s_branch", "s_endpgm") and not i.op.startswith("s_setpc") and n + 1 < len(code):
                i.successors.append(n + 1)
        yield name, code


def far_target(name, code, n):
    """Of a branch that is too far for one instruction: s_getpc, s_add, s_addc, s_setpc."""
    get, low, high = code[n - 3:n]
    if (get.op, low.op, high.op) != ("s_getpc_b64", "s_add_u32", "s_addc_u32"):
        raise ValueError("%s: an indirect branch" % name)
    number = (int(low.operands[2], 0) & 0xffffffff) | (int(high.operands[2], 0) & 0xffffffff) << 32
    return (low.address + number) & (1 << 64) - 1


def places(code, arch):
    """Where wait states are missing: triples of a row's name, the first and the second instruction, with what there is."""
    first = [starts(i) for i in code]
    before = [[] for _ in code]
    for n, i in enumerate(code):
        for s in i.successors:
            before[s].append(n)
    # A matrix instruction is looked for that far back, other rows end after five.
    near, todo = set(), [(n, 0) for n, i in enumerate(code) if i.mfma]
    reached = {}
    while todo:
        n, far = todo.pop()
        for s in code[n].successors:
            if far < FARTHEST and reached.get(s, FARTHEST + 1) > far:
                reached[s] = far
                near.add(s)
                todo.append((s, far + code[s].states))
    found = []
    for n, i in enumerate(code):
        wanted = dict(ends(i))
        if not wanted:
            continue
        limit = FARTHEST if n in near else 5
        # A register that is written once more in between is another one; of vectors by a matrix instruction, which writes all lanes.
        seen, todo = {}, [(b, 0, frozenset().union(*wanted.values())) for b in before[n]]
        while todo:
            b, states, same = todo.pop()
            if states >= limit or seen.get((b, same), limit) <= states:
                continue
            seen[b, same] = states
            for name, written in first[b]:
                meet = written & wanted.get(name, NOTHING)
                if meet & same and states < needed(name, code[b], i, arch):
                    found.append((name, code[b], i, states))
            same -= code[b].scalars | (code[b].vectors if code[b].mfma else NOTHING)
            todo += [(p, states + code[b].states, same) for p in before[b]]
    return found


def disassemble(listing, arch):
    made = listing + ".o"
    subprocess.run(["clang", "-x", "assembler", "-target", "amdgcn-amd-amdhsa", "-mcpu=" + arch, "-c", listing, "-o", made], check=True)
    return subprocess.run(["llvm-objdump", "-d", made], capture_output=True, text=True, check=True).stdout


def check(listing, arch):
    """Results of all functions of a compiler's listing: triples of a name, whether it is right, and why not."""
    results, done = [], 0
    for name, code in functions(disassemble(listing, arch)):
        done += len(code)
        found = places(code, arch)
        first = found[:1] and "%d places; %s: '%s', then '%s' after %d" % (
            len(found), found[0][0], found[0][1].text, found[0][2].text, found[0][3])
        results.append((name, not found, first))
    if not done:
        results.append(("instructions", False, "none in %s" % listing))
    return results


# ---- the rules themselves ----------------------------------------------------------------------------


def assembled(programs, arch, work):
    """The instructions of each of several programs, lists of lines, which go through the assembler together."""
    fd, path = tempfile.mkstemp(suffix=".s", dir=work)
    with os.fdopen(fd, "w") as f:
        for n, lines in enumerate(programs):
            f.write("\n".join(["f%d:" % n, *lines, "s_endpgm", ""]).replace(".L", ".L%d" % n))
    return [code for _, code in functions(disassemble(path, arch))]


def nops(states):
    return ["s_nop %d" % (min(states - k, 8) - 1) for k in range(0, states, 8)]


def check_rules(work):
    """Each row by its examples: with one wait state less than it asks for it is found, with as many it is not."""
    results = []
    for arch in ARCHS:
        rules = [rule for rule in RULES.values() if "gfx950" not in rule.second or arch == "gfx950"]
        states = [needed(rule.name, *code[:2], arch) for rule, code in zip(rules, assembled([r.examples for r in rules], arch, work))]
        programs = []
        for rule, n in zip(rules, states):
            first, second = rule.examples
            programs += [[first, *nops(n - 1), second], [first, *nops(n), second]]
            # The path around a loop, and the shorter of two.
            programs += [["s_nop 7", ".Lloop: " + second, *nops(7), "s_cbranch_scc0 .Lout", first, "s_branch .Lloop", ".Lout: s_nop 0"],
                         [first, "s_cbranch_scc0 .Lover", *nops(20), ".Lover: " + second]]
        found = [[f[0] for f in places(code, arch)] for code in assembled(programs, arch, work)]
        for k, (rule, n) in enumerate(zip(rules, states)):
            few, enough, around, branch = found[4 * k:4 * k + 4]
            wrong = [what for what, ok in (
                ("not found", rule.name in few), ("found with enough wait states", rule.name not in enough),
                ("not found around a loop", n < 2 or rule.name in around),
                ("not found on the shorter path", n < 2 or rule.name in branch)) if not ok]
            results.append(("rule/%s/%s" % (arch, rule.name), not wrong, ", ".join(wrong)))
        # The last one adds to what the second has written anew, all of it, and not to what the first left there.
        sums = ["v_mfma_f32_16x16x16_bf16 a[%d:%d], v[2:3], v[4:5], %s" % (to, to + 3, add) for to, add in ((0, "0"), (2, "a[0:3]"), (0, "a[2:5]"))]
        again, in_part = assembled([sums, [sums[0], sums[2]]], arch, work)
        for name, code, right in (("again", again, []), ("in_part", in_part, ["MFMA_C"])):
            some = [f[0] for f in places(code, arch)]
            results.append(("rule/%s/written_%s" % (arch, name), some == right, "%s" % some))
    return results


# ---- which machine code ------------------------------------------------------------------------------


def compiled(source, arch, work):
    """What is wrong with a program's machine code, which is compiled for that."""
    path = os.path.join(work, "%s.%s.s" % (os.path.basename(source)[:-2], arch))
    subprocess.run(["hipcc", "-x", "hip", "-std=c++17", "-O2", "--offload-device-only", "-S", "-w", "--offload-arch=" + arch, "-I" + TOP, source, "-o", path], check=True)
    return check(path, arch)


def main():
    work = tempfile.mkdtemp()
    jobs = []
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count() or 2) as pool:
        jobs.append(("", pool.submit(check_rules, work)))
        if sys.argv[1:]:
            for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.s"))):
                name, arch = os.path.basename(path)[:-2].rsplit(".", 1)
                if arch.split("-")[0] in ARCHS:
                    jobs.append(("%s/%s/" % (name, arch), pool.submit(check, path, arch.split("-")[0])))
            if jobs[1:] and mutants.in_turn(1):  # a turn that has no decoder
                jobs.append(("engine_qwen3/gfx942/", pool.submit(compiled, os.path.join(TOP, "examples", "serve", "engine_qwen3.c"), "gfx942", work)))
        else:
            for source in (os.path.join(HERE, "kernels.c"), *(os.path.join(TOP, "examples", *p.split("/")) for p in (
                    "01_split_row_sum.c", "qwen3/qwen3.c", "serve/engine_qwen3.c"))):
                for arch in ARCHS:
                    jobs.append(("%s/%s/" % (os.path.basename(source)[:-2], arch), pool.submit(compiled, source, arch, work)))
        for prefix, job in jobs:
            try:
                results = job.result()
            except (ValueError, subprocess.CalledProcessError) as error:
                results = [("code", False, "%s" % error)]
            for name, ok, why in results:
                print("pass " + prefix + name if ok else "FAIL %s%s: %s" % (prefix, name, why))
    if len(jobs) < 2:
        print("FAIL listings: none")
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
