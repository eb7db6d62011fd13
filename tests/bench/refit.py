"""Finds the constants of the simulator's model of time with which it has the figures of a report.

    refit.py REPORT TIMING_H PROGRAM...     by tests/bench/refit.sh

REPORT has lines "figure NAME VALUE UNIT ..." (tests/bench/on_amd.sh). PROGRAM runs the benchmarks of these figures on the
simulator, given the names of sections, with AMDSIM_TIMING in its environment. Each constant follows one figure; rounds go on
until all are within 2%, or to the sixth. Prints a table and the line for AMDSIM_TIMING, and what no constant follows.
"""
import os
import re
import subprocess
import sys

CYCLES, RATE = "cycles", "rate"
# constant, its figure, section, how the figure follows: so many cycles for a cycle of the constant, or as a rate, inversely.
FOLLOWS = (
    ("l1_hit", "latency.l1", "latency", 1), ("l2_hit", "latency.l2", "latency", 1), ("mall_hit", "latency.mall", "latency", 1),
    ("hbm", "latency.hbm", "latency", 1), ("iod_hop", "latency.hbm_far - latency.hbm_near", "latency", 2),
    ("fabric_line", "read.mall", "read", RATE), ("hbm_line", "read.hbm", "read", RATE),
    ("icache_miss", "code.96k", "instructions", 1 / 32),
    ("wbl2", "fence.release", "flags", 1), ("inv", "fence.acquire", "flags", 1), ("owned", "atomic.owned", "flags", 1),
    ("atomic", "handover.across", "flags", 0.5), ("atomic_late", "handover.released", "flags", 0.5),
    ("coherent", "event.idle", "flags", 1), ("line_load", "pollers.736_of_1", "flags", 736),
    ("line_atomic", "pop.512", "queues", RATE),
    ("launch_us", "launch.ordinary", "launches", "us"), ("launch_coop_us", "launch.cooperative", "launches", "us"))
ROUNDS, CLOSE = 6, 0.02


def figures(text):
    """Values by name; those of times in cycles of the clock that the text names, or that of the model."""
    found = {m[1]: (float(m[2]), m[3]) for m in re.finditer(r"^figure (\S+) +([0-9.e+-]+) (\S*)", text, re.M)}
    return {name: value for name, (value, _) in found.items()}, {name: unit for name, (_, unit) in found.items()}


def value_of(found, expression):
    parts = expression.split(" - ")
    if any(p not in found for p in parts):
        return None
    return found[parts[0]] - sum(found[p] for p in parts[1:])


def main():
    report, header, program = sys.argv[1], sys.argv[2], sys.argv[3:]
    with open(report, encoding="utf-8", errors="replace") as f:
        measured, units = figures(f.read())
    with open(header, encoding="utf-8") as f:
        constants = {m[1]: float(m[2]) for m in re.finditer(r"^ *X\((\w+), ([0-9.]+),", f.read(), re.M)}
    before = dict(constants)
    if "machine.clock_mhz" in measured:
        constants["clock_mhz"] = measured["machine.clock_mhz"]
    wanted = [(c, f, s, how) for c, f, s, how in FOLLOWS if value_of(measured, f) is not None]
    if not wanted:
        sys.exit(f"{report} has none of the figures that constants follow, such as latency.l2: is it a report of tests/bench/on_amd.sh?")
    sections = sorted({s for _, _, s, _ in wanted})
    simulated = {}
    for _ in range(ROUNDS):
        line = ",".join(f"{name}={value:.6g}" for name, value in constants.items() if value != before[name])
        done = subprocess.run(program + sections, env=dict(os.environ, AMDSIM_MODE="timed", AMDSIM_TIMING=line),
                              capture_output=True, text=True, check=False)
        simulated = figures(done.stdout)[0]
        apart = 0
        for constant, figure, _, how in wanted:
            want, got = value_of(measured, figure), value_of(simulated, figure)
            if got is None:
                sys.exit(f"the simulator has no figure {figure}: {done.stdout[-500:]}{done.stderr[-500:]}")
            if abs(got - want) <= CLOSE * abs(want):
                continue
            apart += 1
            if how == RATE:
                constants[constant] *= got / want
            else:
                unit = units.get(figure.split(" - ", maxsplit=1)[0])
                cycles = {"ns": constants["clock_mhz"] / 1e3, "us": constants["clock_mhz"]}.get(unit, 1)
                change = want - got if how == "us" else (want - got) * cycles / how
                constants[constant] = max(constants[constant] + change, 0)
        if not apart:
            break
    print("| constant | was | is | figure | measured | simulated |")
    print("| --- | --- | --- | --- | --- | --- |")
    for constant, figure, _, _ in wanted:
        want, got = value_of(measured, figure), value_of(simulated, figure)
        far = "" if abs(got - want) <= CLOSE * abs(want) else " **apart**"
        print(f"| {constant} | {before[constant]:g} | {constants[constant]:.4g} | {figure} | {want:.4g} | {got:.4g}{far} |")
    for name in sorted(set(measured) & set(simulated) - {f for _, e, _, _ in wanted for f in e.split(" - ")}):
        print(f"| | | | {name} | {measured[name]:.4g} | {simulated[name]:.4g} |")
    print("\nAMDSIM_TIMING=" + ",".join(f"{name}={value:.4g}" for name, value in constants.items() if value != before[name]))


main()
