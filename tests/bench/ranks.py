#!/usr/bin/env python3
"""Draws two layers of a decoder's step over several ranks, one below the other, as SVG on standard output.

    qwen3 ... --ranks 2 --trace step.json     leaves step.json and step.1.json (built with -DFLEET_TRACE)
    tests/bench/ranks.py step.json step.1.json >ranks.svg

The clocks of two devices differ: each rank's time counts from the beginning of its first layer shown. Every eleventh worker is
drawn.
"""
import json
import sys

LAYERS = 10, 11
EVERY = 11
KINDS = {"qkv": "#4e79a7", "attend": "#f28e2b", "o": "#59a14f", "gate_up": "#b07aa1", "down": "#e15759"}
LEFT, WIDTH, ROW, GAP = 56, 900, 7, 34


def layer_of(event):
    """Kind and layer of a task such as "gate_up.10(1)"; None for others."""
    kind, _, rest = event["name"].partition(".")
    number = rest.split("(")[0]
    return (kind, int(number)) if kind in KINDS and number.isdigit() else None


def read(path):
    """Tasks of the layers as (worker, kind, begin, end), in us from the first one's begin."""
    with open(path, encoding="utf-8") as file:
        events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X" and e["cat"] == "task"]
    tasks = [(e["tid"], layer_of(e), e["ts"], e["ts"] + e["dur"]) for e in events if layer_of(e)]
    tasks = [t for t in tasks if t[1][1] in LAYERS]
    start = min(t[2] for t in tasks)
    return [(worker, of[0], begin - start, end - start) for worker, of, begin, end in tasks]


def main():
    ranks = [read(path) for path in sys.argv[1:]]
    scale = WIDTH / max(end for tasks in ranks for _, _, _, end in tasks)
    drawn = [sorted({t[0] for t in tasks})[::EVERY] for tasks in ranks]
    height = 44 + sum(len(workers) * ROW + GAP for workers in drawn)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{height}" role="img" '
          'font-family="sans-serif" font-size="12" fill="#222">')
    print(f"<title>Layers {LAYERS[0]} and {LAYERS[-1]} of a step over {len(ranks)} ranks</title>")
    print("<style>@media (prefers-color-scheme: dark){svg{fill:#e6edf3}.b{fill:#161b22}}.b{fill:#f0f0f0}</style>")
    x = LEFT
    for kind, colour in KINDS.items():
        print(f'<rect x="{x}" y="8" width="12" height="12" fill="{colour}"/><text x="{x + 17}" y="18">{kind}</text>')
        x += 95
    top = 34
    for rank, (tasks, workers) in enumerate(zip(ranks, drawn)):
        rows = {worker: top + i * ROW for i, worker in enumerate(workers)}
        print(f'<text x="4" y="{top + 12}">rank {rank}</text>')
        print(f'<rect class="b" x="{LEFT}" y="{top}" width="{WIDTH}" height="{len(workers) * ROW}"/>')
        for kind, colour in KINDS.items():
            path = "".join(
                f"M{LEFT + begin * scale:.1f} {rows[worker]}h{(end - begin) * scale:.1f}v{ROW - 1}h-{(end - begin) * scale:.1f}z"
                for worker, of, begin, end in tasks if of == kind and worker in rows)
            print(f'<path fill="{colour}" d="{path}"/>')
        top += len(workers) * ROW + GAP
    top -= GAP - 14
    us = 0
    while LEFT + us * scale <= LEFT + WIDTH:
        print(f'<text x="{LEFT + us * scale:.0f}" y="{top}" text-anchor="middle">{us}</text>')
        us += 20
    print(f'<text x="{LEFT + WIDTH}" y="{top + 16}" text-anchor="end">us</text></svg>')


main()
