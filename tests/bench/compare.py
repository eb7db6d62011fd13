#!/usr/bin/env python3
"""The table of tests/bench/compare.sh.

    compare.py FILE     lines "SIDE<tab>ROUND<tab>NAME<tab>VALUE<tab>UNIT", SIDE old or new

For each figure: the medians of both versions, the median of new / old over the rounds in which both were measured, and
the smallest and the largest of these ratios. Rates (units that end in /s) are turned over, so that a ratio above 1 is
always worse. Ends with 3 if a figure is worse, with 1 if new lacks a figure that old has.
"""
import statistics
import sys

WORSE = 1.015


def read(lines):
    """{(name, unit): {side: {round: value}}}, in the order of the lines."""
    figures = {}
    for line in lines:
        side, turn, name, value, unit = line.rstrip("\n").split("\t")
        sides = figures.setdefault((name, unit), {"old": {}, "new": {}})
        sides[side][int(turn)] = float(value)
    return figures


def row(name, unit, sides):
    """The cells of a figure, and its verdict: '', 'worse', 'worse?' (not in each round), 'missing'."""
    old, new = sides["old"], sides["new"]
    cells = [name] + [f"{statistics.median(s.values()):.4g} {unit}" if s else "" for s in (old, new)]
    both = sorted(set(old) & set(new))
    ratios = [old[i] / new[i] if unit.endswith("/s") else new[i] / old[i] for i in both if old[i] and new[i]]
    if not ratios:
        return cells + ["", "", ""], "missing" if old and not new else ""
    ratio, least = statistics.median(ratios), min(ratios)
    verdict = "" if ratio <= WORSE else "worse" if least > 1 else "worse?"
    return cells + [f"{ratio:.3f}", f"{least:.3f} to {max(ratios):.3f}", f"**{verdict}**" if verdict else ""], verdict


def main(path):
    with open(path, encoding="utf-8") as file:
        figures = read(line for line in file if line.strip())
    if not figures:
        print("nothing was measured", file=sys.stderr)
        return 1
    verdicts = []
    print("| figure | old | new | new / old | over the rounds | |\n| --- | --- | --- | --- | --- | --- |")
    for (name, unit), sides in figures.items():
        cells, verdict = row(name, unit, sides)
        verdicts.append(verdict)
        print("|" + "".join(f" {cell} |" if cell else " |" for cell in cells))
        if verdict == "missing":
            print(f"new has no figure for: {name}", file=sys.stderr)
    return 1 if "missing" in verdicts else 3 if {"worse", "worse?"} & set(verdicts) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
