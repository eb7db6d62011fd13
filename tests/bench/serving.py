#!/usr/bin/env python3
"""Tables in Markdown of what tests/bench/serving.c has measured, and a picture of such tables.

    serving.py tables NAME FIGURES.tsv      the tables, to stdout
    serving.py picture PAGE.md              the picture of the first ones in a page, as SVG, to stdout

The picture has a row for each of two tables: latency, pending time and throughput against the load, and against the number
of proactive requests beside the same reactive ones. Each has a line for each policy.
"""
import sys

FIELDS = ("kind policy x reactive proactive n_reactive n_proactive cut_reactive cut_proactive seconds "
          "tokens_reactive tokens_proactive "
          "pending pending_p99 first first_p99 latency latency_p99 "
          "proactive_pending proactive_pending_p99 proactive_first proactive_first_p99 "
          "proactive_latency proactive_latency_p99").split()
TABLES = (("load", "1 reactive request for 2 proactive ones", "utilisation"),
          ("growth", "A fixed reactive load beside more proactive requests", "proactive requests"),
          ("paper", "Beside 6 proactive requests a minute, shortened", "reactive requests a minute"))
HEADER = ("| {} | policy | requests: reactive, proactive | reactive pending: mean, p99 | first token: mean, p99 | "
          "latency: mean, p99 | proactive latency: mean, p99 | proactive tokens a second | not finished |")
COLOURS = {"agent": "#2f81f7", "fifo": "#e5534b"}
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 420, 300, 64, 44, 44
DARK = "@media (prefers-color-scheme: dark){.page{fill:#0d1117}text{fill:#e6edf3}.grid{stroke:#30363d}}"


# ---- tables

def read(path):
    """Runs by kind; other lines apart."""
    runs, others = [], []
    with open(path, encoding="utf-8") as file:
        for line in file:
            cells = line.split()
            if cells and cells[0] in ("load", "growth", "paper"):
                runs.append({k: v if k in ("kind", "policy") else float(v) for k, v in zip(FIELDS, cells)})
            elif cells:
                others.append(cells)
    return runs, others


def ms(mean, p99):
    """Three digits, or whole milliseconds."""
    return ", ".join(f"{v:.0f}" if v >= 1000 else f"{v:.3g}" for v in (mean, p99))


def table(title, x, runs):
    print(f"\n**{title}**\n")
    print(HEADER.format(x))
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for r in sorted(runs, key=lambda r: (r["x"], r["policy"])):
        print(f"| {r['x']:g} | {r['policy']} | {r['n_reactive']:.0f}, {r['n_proactive']:.0f} | "
              f"{ms(r['pending'], r['pending_p99'])} | {ms(r['first'], r['first_p99'])} | {ms(r['latency'], r['latency_p99'])} | "
              f"{ms(r['proactive_latency'], r['proactive_latency_p99'])} | "
              f"{r['tokens_proactive']:.0f} | {r['cut_reactive'] + r['cut_proactive']:.0f} |")


def tables(name, figures):
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
        if cells[0] == "first":
            print(f"\nFirst token of {cells[1]} tokens, one such request at a time: mean {cells[2]} ms, longest {cells[3]} ms.")
        if cells[0] == "clients":
            print(f"\n{cells[1]} clients, prompts of {cells[2]} and answers of {cells[3]} tokens: {cells[4]} tokens a second; "
                  f"first token {cells[5]} ms (p99 {cells[6]}), per token {cells[7]} ms (p99 {cells[8]}).")
        if cells[0] == "pending":
            print(f"\n{cells[1]}: pending time of {cells[2]} reactive requests, one at a time, under proactive load: mean {cells[3]} us, "
                  f"p99 {cells[4]} us, longest {cells[5]} us.")
        if cells[0] == "predicted":
            print(f"\n{cells[1]}: {cells[2]} iterations were predicted from the least and the most of these steps, with a mean error of "
                  f"{cells[3]}% of the measured time, at most {cells[4]}%.")
        if cells[0] == "stops":
            print(f"\n{cells[1]}: {cells[2]} iterations, rows stopped between layers {cells[3]} times.")
    for kind, title, x in TABLES:
        some = [r for r in runs if r["kind"] == kind]
        if some:
            table(title, x, some)


# ---- the picture

def rows_of(path, x):
    """Rows of the first table in a page whose first column has that name."""
    rows = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip() == HEADER.format(x):
                rows.append(None)
            elif rows and not line.startswith("|"):
                break
            elif rows and "---" not in line:
                cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
                both = [[float(v) for v in cells[i].split(",")] for i in (3, 5)]
                rows.append({"x": float(cells[0]), "policy": cells[1], "pending_p99": both[0][1],
                             "latency": both[1][0], "tokens": float(cells[7])})
    return rows[1:]


def nice(most):
    """A round number that is not less."""
    power = 1.0
    while power < most:
        power *= 10
    while power / 10 > most:
        power /= 10
    return next(power * f / 10 for f in (1, 2, 3, 4, 5, 6, 8, 10) if power * f / 10 >= most)


def panel(left, up, title, x_name, rows, field):
    """One plot: a line for each policy."""
    xs = sorted({r["x"] for r in rows})
    top = nice(max(r[field] for r in rows) or 1)
    right, bottom = left + WIDTH - 20, up + HEIGHT - BOTTOM

    def at(x, y):
        span = xs[-1] - xs[0] or 1
        return left + LEFT + (x - xs[0]) / span * (right - left - LEFT - 10), bottom - y / top * (bottom - up - TOP)
    print(f'<text x="{left + 16}" y="{up + 24}" font-weight="bold">{title}</text>')
    for i in range(5):
        y = at(xs[0], top * i / 4)[1]
        print(f'<path class="grid" d="M{left + LEFT} {y:.1f}H{right}"/>'
              f'<text class="e" x="{left + LEFT - 8}" y="{y + 4:.1f}">{top * i / 4:g}</text>')
    for x in xs:
        print(f'<text class="n" x="{at(x, 0)[0]:.1f}" y="{bottom + 18}">{x:g}</text>')
    print(f'<text class="n" x="{(left + LEFT + right) / 2:.0f}" y="{up + HEIGHT - 8}">{x_name}</text>')
    for policy, colour in COLOURS.items():
        points = [at(r["x"], r[field]) for r in sorted(rows, key=lambda r: r["x"]) if r["policy"] == policy]
        print(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
              + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>')
        for x, y in points:  # round and square: not by colour alone
            print(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' if policy == "agent" else
                  f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"/>')


def picture(page):
    panels = [("Reactive latency, mean, ms", "latency"), ("Reactive pending time, p99, ms", "pending_p99"),
              ("Proactive tokens a second", "tokens")]
    kinds = [(x, rows_of(page, x)) for kind, _, x in TABLES if kind != "paper"]
    kinds = [(x, rows) for x, rows in kinds if rows]
    width, height = WIDTH * len(panels), HEIGHT * len(kinds)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + 20}" '
          f'viewBox="0 -20 {width} {height + 20}" role="img" font-family="sans-serif" font-size="13">')
    print(f"<title>{', '.join(name for name, _ in panels)}: agent and fifo</title>")
    print(f"<style>text{{fill:#1f2328}}.grid{{stroke:#d0d7de}}.n{{text-anchor:middle}}.e{{text-anchor:end}}{DARK}</style>")
    print(f'<rect class="page" y="-20" width="{width}" height="{height + 20}" fill="#ffffff"/>')
    for i, (policy, colour) in enumerate(COLOURS.items()):
        x = width - 150 + 70 * i
        print((f'<circle cx="{x + 5}" cy="-7" r="5" fill="{colour}"/>' if policy == "agent" else
               f'<rect x="{x}" y="-12" width="10" height="10" fill="{colour}"/>') + f'<text x="{x + 15}" y="-3">{policy}</text>')
    for k, (x, rows) in enumerate(kinds):
        for i, (name, field) in enumerate(panels):
            panel(i * WIDTH, k * HEIGHT, name, x, rows, field)
    print("</svg>")


if __name__ == "__main__":
    {"tables": tables, "picture": picture}[sys.argv[1]](*sys.argv[2:])
