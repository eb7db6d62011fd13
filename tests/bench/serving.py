#!/usr/bin/env python3
"""Tables in Markdown and plots in SVG of what tests/bench/serving.c has measured.

    serving.py NAME FIGURES.tsv PLOTS       writes PLOTS-load.svg and PLOTS-growth.svg, and the tables to stdout
"""
import sys

FIELDS = ("kind policy x reactive proactive n_reactive n_proactive cut_reactive cut_proactive seconds "
          "tokens_reactive tokens_proactive "
          "pending pending_p99 first first_p99 latency latency_p99 "
          "proactive_pending proactive_pending_p99 proactive_first proactive_first_p99 "
          "proactive_latency proactive_latency_p99").split()
COLOURS = {"agent": "#2f81f7", "fifo": "#e5534b"}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 420, 300, 64, 44, 44
DARK = "@media (prefers-color-scheme: dark){.page{fill:#0d1117}text{fill:#e6edf3}.grid{stroke:#30363d}}"


def read(path):
    """Runs by kind; idle and rate lines apart."""
    runs, others = [], []
    with open(path, encoding="utf-8") as file:
        for line in file:
            cells = line.split()
            if cells and cells[0] in ("load", "growth", "paper"):
                runs.append({k: v if k in ("kind", "policy") else float(v) for k, v in zip(FIELDS, cells)})
            elif cells:
                others.append(cells)
    return runs, others


def table(title, x, runs):
    print(f"\n**{title}**\n")
    print(f"| {x} | policy | requests: reactive, proactive | reactive pending: mean, p99 | first token: mean, p99 | "
          "latency: mean, p99 | proactive latency: mean, p99 | proactive tokens a second | not finished |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for r in sorted(runs, key=lambda r: (r["x"], r["policy"])):
        print(f"| {r['x']:g} | {r['policy']} | {r['n_reactive']:.0f}, {r['n_proactive']:.0f} | "
              f"{r['pending']:.3g}, {r['pending_p99']:.3g} | {r['first']:.3g}, {r['first_p99']:.3g} | "
              f"{r['latency']:.4g}, {r['latency_p99']:.4g} | {r['proactive_latency']:.4g}, {r['proactive_latency_p99']:.4g} | "
              f"{r['tokens_proactive']:.0f} | {r['cut_reactive'] + r['cut_proactive']:.0f} |")


def nice(most):
    """A round number that is not less."""
    power = 1.0
    while power < most:
        power *= 10
    while power / 10 > most:
        power /= 10
    return next(power * f / 10 for f in (1, 2, 3, 4, 5, 6, 8, 10) if power * f / 10 >= most)


def panel(left, title, x_name, runs, field):
    """One plot: a line for each policy."""
    xs = sorted({r["x"] for r in runs})
    top = nice(max(r[field] for r in runs) or 1)
    right, bottom = left + WIDTH - 20, HEIGHT - BOTTOM

    def at(x, y):
        span = xs[-1] - xs[0] or 1
        return left + LEFT + (x - xs[0]) / span * (right - left - LEFT - 10), bottom - y / top * (bottom - TOP)
    print(f'<text x="{left + 16}" y="24" font-weight="bold">{title}</text>')
    for i in range(5):
        y = at(xs[0], top * i / 4)[1]
        print(f'<path class="grid" d="M{left + LEFT} {y:.1f}H{right}"/>'
              f'<text class="e" x="{left + LEFT - 8}" y="{y + 4:.1f}">{top * i / 4:g}</text>')
    for x in xs:
        print(f'<text class="n" x="{at(x, 0)[0]:.1f}" y="{bottom + 18}">{x:g}</text>')
    print(f'<text class="n" x="{(left + LEFT + right) / 2:.0f}" y="{HEIGHT - 8}">{x_name}</text>')
    for policy, colour in COLOURS.items():
        points = [at(r["x"], r[field]) for r in sorted(runs, key=lambda r: r["x"]) if r["policy"] == policy]
        print(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
              + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>')
        for x, y in points:
            print(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')


def plot(path, x_name, runs):
    panels = [("Reactive latency, mean, ms", "latency"), ("Reactive pending time, p99, ms", "pending_p99"),
              ("Proactive tokens a second", "tokens_proactive")]
    out, sys.stdout = sys.stdout, open(path, "w", encoding="utf-8")
    width = WIDTH * len(panels)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT + 20}" '
          f'viewBox="0 -20 {width} {HEIGHT + 20}" role="img" font-family="sans-serif" font-size="13">')
    print(f"<title>{', '.join(name for name, _ in panels)}: agent and fifo</title>")
    print(f"<style>text{{fill:#1f2328}}.grid{{stroke:#d0d7de}}.n{{text-anchor:middle}}.e{{text-anchor:end}}{DARK}</style>")
    print(f'<rect class="page" y="-20" width="{width}" height="{HEIGHT + 20}" fill="#ffffff"/>')
    for i, (policy, colour) in enumerate(COLOURS.items()):
        print(f'<rect x="{width - 150 + 70 * i}" y="-12" width="10" height="10" fill="{colour}"/>'
              f'<text x="{width - 135 + 70 * i}" y="-3">{policy}</text>')
    for i, (name, field) in enumerate(panels):
        panel(i * WIDTH, name, x_name, runs, field)
    print("</svg>")
    sys.stdout.close()
    sys.stdout = out


def main():
    name, figures, plots = sys.argv[1:]
    runs, others = read(figures)
    print(f"{name}. Milliseconds, unless a column says otherwise.")
    for cells in others:
        if cells[0] == "rate":
            print(f"\nService rate with all requests there at once: {cells[1]} requests a second.")
        if cells[0] == "idle":
            print(f"\n{cells[1]}, idle: from submission to the first batch {cells[2]} us (p99 {cells[3]}), from the boundary "
                  f"to the host {cells[4]} us (p99 {cells[5]}); clocks aligned to {cells[6]} us.")
        if cells[0] == "decode":
            print(f"\n{cells[1]} decoded together, after prompts of {cells[3]} tokens: {cells[2]} ms a step.")
        if cells[0] == "pending":
            print(f"\n{cells[1]}: pending time of {cells[2]} reactive requests, one at a time, under proactive load: mean {cells[3]} us, "
                  f"p99 {cells[4]} us, longest {cells[5]} us.")
        if cells[0] == "stops":
            print(f"\n{cells[1]}: {cells[2]} iterations, rows stopped between layers {cells[3]} times.")
    for kind, title, x in (("load", "1 reactive request for 2 proactive ones", "utilisation"),
                           ("growth", "A fixed reactive load beside more proactive requests", "proactive requests"),
                           ("paper", "Beside 6 proactive requests a minute, shortened", "reactive requests a minute")):
        some = [r for r in runs if r["kind"] == kind]
        if some:
            table(title, x, some)
        if some and kind != "paper":
            plot(f"{plots}-{kind}.svg", x, some)


main()
