#!/usr/bin/env python3
"""Runs the mutants of mutants.py on the simulated MI300X until each gives a wrong result, and prints the table.
The headers as they are pass all of the same runs. Run by mutate.sh where hipcc is.

Prints "pass NAME" or "FAIL NAME: why", and the table in lines that begin with "|". FLEET_DEEP=1: more tries,
more runs of the headers as they are, and the mutants that the simulator is said not to see.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

import mutants

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
RUNTIME = os.environ.get("FLEET_HIP_RUNTIME", "")
BY_HAND = ["device1", "device2", "lone", "chiplet", "system", "order", "order_system", "test", "wait", "publish", "lanes", "ring", "messages"]
TESTS = BY_HAND + ["static", "dealt", "replays", "ready", "some", "routed", "residency", "carry", "passed", "early", "fails", "fails_dealt", "ends", "ends_dealt", "ends_ready", "aborts", "flow", "ranks", "ranks_dealt"]
NOISE = " AMDSIM_EVICT=200 AMDSIM_STALL=20 AMDSIM_SKEW=20"


def settings(seeds):
    """Delay, XCDs and noise by turns."""
    for seed in range(1, seeds + 1):
        for k, xcds in enumerate(("8 AMDSIM_CUS=2", "2 AMDSIM_CUS=3", "1 AMDSIM_CUS=4")):
            for delay in (3, 20):
                if mutants.DEEP or (seed + k) % 2 == (delay == 20):
                    yield "AMDSIM_XCDS=%s AMDSIM_DELAY=%d AMDSIM_SEED=%d AMDSIM_XCD_MAP=rotate:%d%s" % (
                        xcds, delay, seed, seed % 8, NOISE if seed % 3 == 0 else "")


# A launch that comes to no end is ended after this many wave instructions. The longest that ends takes 4 million;
# more where the device spins until the host, which may have to wait for a processor, has answered. Launches over ranks
# take half a million each.
LIMIT, LIMIT_WITH_HOST, LIMIT_OF_RANK = "12000000", "80000000", "2000000"
WITH_HOST = ("system", "publish", "static", "dealt", "some", "aborts")


def hipcc(*words):
    done = subprocess.run(["hipcc", "--offload-arch=gfx942", *words], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else "does not compile: " + mutants.first_error(done.stderr)


LANGUAGE = ("-x", "hip", "-std=c++17", "-O2", "-c")


def build(folder, m, implementation):
    """Compiles the litmus programs, those that m needs, with mutated headers, and links them."""
    mutants.write(m, TOP, folder)
    program = os.path.join(folder, "litmus")
    only = ["-DBY_HAND"] if m.sim and m.sim.split()[0] in BY_HAND else ["-DNO_STREAM"] if m.name else []
    return (hipcc(*LANGUAGE, "-I" + folder, *only, os.path.join(HERE, "litmus.c"), "-o", program + ".o") or
            hipcc(program + ".o", implementation, "-o", program))


def build_implementation(headers, work):
    source, target = os.path.join(work, "implementation.c"), os.path.join(work, "implementation.o")
    with open(source, "w", encoding="utf-8") as f:
        f.write('#define FLEET_IMPLEMENTATION\n#include "%s"\n' % mutants.SERVER)
    return hipcc(*LANGUAGE, "-I" + headers, source, "-o", target), target


def build_shared(folder):
    """One program of which each run chooses its mutant (LITMUS_MUTANT): what is wrong; the mutants by number."""
    numbers = mutants.write_shared(TOP, folder)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        other = pool.submit(build_implementation, folder, folder)
        program = os.path.join(folder, "litmus")
        why = hipcc(*LANGUAGE, "-I" + folder, os.path.join(HERE, "litmus.c"), "-o", program + ".o")
        other_why, implementation = other.result()
    return why or other_why or hipcc(program + ".o", implementation, "-o", program), numbers


def run(folder, words, setting, extra=(), patience=None):
    """What was wrong; None when the program passed. And its output. A mutant is given 60 s: one that hangs is caught."""
    ranks = words.startswith("ranks")
    limit = LIMIT_WITH_HOST if words.split()[0] in WITH_HOST else LIMIT_OF_RANK if ranks else LIMIT
    env = dict(os.environ, LD_LIBRARY_PATH=RUNTIME, AMDSIM_MAX_INSTS=limit, AMDSIM_STRICT="1")
    if ranks:
        env["AMDSIM_DEVICES"] = "2"
    env.update(pair.split("=", 1) for pair in [*setting.split(), *extra])
    try:
        done = subprocess.run([os.path.join(folder, "litmus"), *words.split()], env=env, timeout=patience, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired:
        return "time-out", ""
    if done.returncode == 0:
        return None, done.stdout + done.stderr
    lines = [l for l in done.stdout.split("\n") if l.startswith("wrong")]
    return (lines or ["status %d" % done.returncode])[0].replace("wrong: ", ""), done.stderr


def attempt(m, work, implementation):
    """Builds a mutant and runs it until it is caught: (mutant, words, setting, tries, what)."""
    folder = tempfile.mkdtemp(dir=work)
    try:
        why = build(folder, m, implementation)
        return (m, None, None, 0, why) if why else attempt_runs(m, folder)
    finally:
        shutil.rmtree(folder)


def attempt_runs(m, folder, extra=()):
    tries = 0
    first = [m.first] if isinstance(m.first, str) else list(m.first or [])
    for setting in first + list(settings(40 if mutants.DEEP else m.seeds)):
        for words in [m.sim] if m.sim else TESTS:
            tries += 1
            what, _ = run(folder, words, setting, extra, patience=60)
            if what:
                return m, words, setting, tries, what
    return m, None, None, tries, None


def short(setting):
    return " ".join(p.replace("AMDSIM_", "").lower() for p in setting.split())


def invariant5(folder):
    """L2 write-backs per step of a device-task: as many as chiplets have work; none where all share one L2."""
    for xcds, slices, want in (("1", "0", 0), ("2", "0", 2), ("8", "0", 8), ("8", "3", 3), ("8", "16", 8)):
        for words, what in (("small", "CHIPLET"), ("residency", "STATIC")):
            count = []
            for steps in (3, 4):
                wrong, text = run(folder, "%s %d %s" % (words, steps, slices),
                                  "AMDSIM_XCDS=%s AMDSIM_CUS=4 AMDSIM_DELAY=20 AMDSIM_SEED=1" % xcds, ["AMDSIM_STATS=1"])
                found = re.search(r"run_tiles.*?buffer_wbl2 (\d+)", text, re.S)
                count.append(None if wrong or not found else int(found.group(1)))
            got = None if None in count else count[1] - count[0]
            name = "invariant_5/%s_%s_chiplets_%s_slices" % (what, xcds, slices if slices != "0" else xcds)
            print("pass " + name if got == want else "FAIL %s: %s write-backs per step, not %d" % (name, got, want))
            print("| write-backs per step of a device-task | %s | %s XCDs, %s slices | | %s |" % (what, xcds, slices if slices != "0" else xcds, got))


def main():
    library = os.path.join(RUNTIME, "libamdhip64.so.6")
    try:
        with open(library, "rb") as f:
            simulated = b"AMDSIM_DELAY" in f.read()
    except OSError:
        simulated = False
    if not simulated:
        print("skip mutants: needs a simulated GPU (FLEET_HIP_RUNTIME)")
        return
    for m in mutants.MUTANTS:
        if not m.sim and m.isa is False:
            sys.exit("mutant %s: no check at all" % m.name)
    mutants.all_apply(TOP, mutants.MUTANTS)
    work = tempfile.mkdtemp()
    shared = tempfile.mkdtemp(dir=work)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        together = pool.submit(build_shared, shared)
        why, implementation = build_implementation(TOP, work)
        shared_why, numbers = together.result()
    if why or shared_why:
        print("FAIL implementation: %s" % (why or shared_why))
        return
    chosen = {m.name: n for n, m in numbers.items()}

    def caught(m):
        if m.name in chosen:
            return attempt_runs(m, shared, ["LITMUS_MUTANT=%d" % chosen[m.name]])
        return attempt(m, work, implementation)
    runs, rows = set(), []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        clean = tempfile.mkdtemp(dir=work)
        built = pool.submit(build, clean, mutants.Mutant(None, None, "", ""), implementation)
        for job in [pool.submit(caught, m) for m in mutants.of_this_run(mutants.MUTANTS) if m.sim or mutants.DEEP]:
            m, words, setting, tries, what = job.result()
            if words:
                runs.add((words, setting))
                rows.append("| %s | %s | %s | %d | %s |" % (m.name, words, short(setting), tries, what))
                print("pass mutant %s" % m.label())
            elif not m.sim:
                rows.append("| %s | all | covered by the ISA check: %s | %d | not seen |" % (m.name, m.why, tries))
            else:
                print("FAIL mutant %s: %s" % (m.label(), what or "survived %d runs of %s" % (tries, m.sim)))
        if not mutants.DEEP:
            rows += ["| %s | - | covered by the ISA check: %s | | |" % (m.name, m.why) for m in mutants.MUTANTS if not m.sim]
        wide = settings(20 if mutants.DEEP else 1)
        runs |= {(words, setting) for setting in wide for words in TESTS}
        why = built.result()
        if why:
            print("FAIL unmutated: %s" % why)
        jobs = [] if why else [(words, setting, pool.submit(run, clean, words, setting)) for words, setting in sorted(runs)]
        failed = 0
        for words, setting, job in jobs:
            what, _ = job.result()
            if what:
                failed += 1
                print("FAIL unmutated/%s: %s [%s]" % (words, what, setting))
        if jobs and not failed:
            print("pass unmutated")
        rows.append("| none | all | %d runs | | none wrong |" % len(jobs) if not failed else "| none | | | | %d wrong |" % failed)
        print("| mutant | litmus | caught with | tries | what |")
        print("\n".join(rows))
        if not why:
            invariant5(clean)
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
