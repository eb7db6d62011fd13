#!/usr/bin/env python3
"""Draws the figures of a table in RESULTS.md, as SVG on stdout: milliseconds for a token against the number of sequences.

    python3 tests/bench/plot.py >.pages/decoder.svg

The table is the one whose first cell is "sequences". Its other rows become lines, in the order of STYLES.
"""
import math
import os

STYLES = [("#2f81f7", "", "circle"), ("#e5534b", "", "square"), ("#8b949e", "6 5", "")]  # colour, dashes, mark
WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 56, 178, 52, 46
HIGHEST = 8  # ms

DARK = "@media (prefers-color-scheme: dark){.page{fill:#0d1117}text{fill:#e6edf3}.grid{stroke:#30363d}}"


def table():
    """The header's numbers, and (name, numbers) of each row."""
    rows = []
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "RESULTS.md"), encoding="utf-8") as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if cells[0] == "sequences" or rows and line.startswith("|"):
                rows.append(cells)
            elif rows:
                break
    numbers = [(cells[0], [float(cell) for cell in cells[1:]]) for cells in rows if "---" not in cells[1]]
    return numbers[0][1], numbers[1:]


def x_of(sequences, last):
    return LEFT + math.log2(sequences) / math.log2(last) * (WIDTH - LEFT - RIGHT)


def y_of(ms):
    return HEIGHT - BOTTOM - ms / HIGHEST * (HEIGHT - TOP - BOTTOM)


def main():
    sequences, lines = table()
    last = sequences[-1]
    assert len(lines) == len(STYLES) and all(len(ms) == len(sequences) and max(ms) < HIGHEST for _, ms in lines)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
          'role="img" font-family="sans-serif" font-size="13">')
    print("<title>Milliseconds for the next token of all sequences, against their number</title>")
    print(f"<style>text{{fill:#1f2328}}.grid{{stroke:#d0d7de}}.n{{text-anchor:middle}}.e{{text-anchor:end}}{DARK}</style>")
    print(f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>')
    print('<text x="16" y="28" font-size="16" font-weight="bold">Milliseconds for the next token of all sequences</text>')
    for ms in range(0, HIGHEST + 1, 2):
        print(f'<path class="grid" d="M{LEFT} {y_of(ms):.1f}H{WIDTH - RIGHT}"/>'
              f'<text class="e" x="{LEFT - 10}" y="{y_of(ms) + 4:.1f}">{ms}</text>')
    for n in sequences:
        print(f'<text class="n" x="{x_of(n, last):.1f}" y="{HEIGHT - BOTTOM + 20}">{n:g}</text>')
    print(f'<text class="n" x="{(LEFT + WIDTH - RIGHT) / 2:g}" y="{HEIGHT - 8}">sequences</text>')
    names = sorted(range(len(lines)), key=lambda i: -lines[i][1][-1])
    lowest = TOP
    for i in names:  # the highest first, each at least a line below the one before
        name, values = lines[i]
        colour, dashes, mark = STYLES[i]
        points = [(x_of(n, last), y_of(ms)) for n, ms in zip(sequences, values)]
        print(f'<polyline fill="none" stroke="{colour}" stroke-width="2.5"' +
              (f' stroke-dasharray="{dashes}"' if dashes else "") +
              f' points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>')
        for x, y in points:
            if mark == "circle":
                print(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
            elif mark == "square":
                print(f'<rect x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8" fill="{colour}"/>')
        lowest = max(points[-1][1] + 4, lowest + 18)
        print(f'<text x="{WIDTH - RIGHT + 12}" y="{lowest:.1f}" style="fill:{colour}">{name}</text>')
    print("</svg>")


main()
