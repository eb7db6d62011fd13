#!/usr/bin/env python3
"""Checks the pages of the repository. Prints a line for each finding; the status is 0 when there is none.

Each relative link of a page leads to a file and, where it has one, to a heading. README.md is short enough to be read in one
sitting. The pictures in .pages are well-formed, have colours for dark themes, no scripts and no fonts, and those of the
decoder and of serving are what tests/bench/plot.py and serving.py make of the tables in tests/bench/RESULTS.md.
"""
import os
import re
import subprocess
import sys
import xml.dom.minidom

WORDS = 3000  # of README.md
os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
findings = []


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def prose_of(path):
    return re.sub(r"^```.*?^```", "", text_of(path), flags=re.S | re.M)


def headings_of(path):
    """The anchors that GitHub gives to a page's headings."""
    return {re.sub(r"[^\w\- ]", "", m.group(1)).strip().lower().replace(" ", "-")
            for m in re.finditer(r"^#+ (.*)$", prose_of(path), re.M)}


pages = subprocess.run(["find", "README.md", ".github", "examples", "tests", "-name", "build", "-prune", "-o", "-name", "*.md", "-print"],
                       capture_output=True, text=True, check=True).stdout.split()
links = 0
for page in pages:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if re.match(r"\w+:", target):
            continue
        links += 1
        path, _, heading = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(path):
            findings.append(f"{page}: {target}: no such file")
        elif heading and heading not in headings_of(path):
            findings.append(f"{page}: {target}: no such heading")
if links < 20:
    findings.append(f"only {links} links were found")

if (words := len(text_of("README.md").split())) > WORDS:
    findings.append(f"README.md has {words} words, more than {WORDS}")

for name in sorted(os.listdir(".pages")):
    if not name.endswith(".svg"):
        continue
    picture = text_of(f".pages/{name}")
    xml.dom.minidom.parseString(picture)
    if "prefers-color-scheme: dark" not in picture or re.search(r"<script|@font-face|@import|href=", picture):
        findings.append(f".pages/{name}: no colours for dark themes, or a script or font")
    if not any(f".pages/{name}" in text_of(page) for page in ("README.md", "tests/bench/RESULTS.md")):
        findings.append(f".pages/{name} is on no page")
for name, command in (("decoder", ["tests/bench/plot.py"]),
                      ("serving", ["tests/bench/serving.py", "picture", "tests/bench/RESULTS.md"])):
    drawn = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True).stdout
    if drawn != text_of(f".pages/{name}.svg"):
        findings.append(f".pages/{name}.svg is not that of RESULTS.md's tables: run .pages/draw {name}")

print("\n".join(findings) or f"{len(pages)} pages with {links} links")
sys.exit(1 if findings else 0)
