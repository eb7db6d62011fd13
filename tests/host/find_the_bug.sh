#!/usr/bin/env bash
# Example 08 in the memory model: the report of each bug names the lines that are marked in the source, the chiplets, and
# what is missing.
#
#   OUT=FOLDER [MODEL_FLAGS="FLAGS"] tests/host/find_the_bug.sh
set -eu
mkdir -p "$OUT"
source=examples/08_find_the_bug.c
# shellcheck disable=SC2086
examples/tools/memory_model.sh -std=c11 ${MODEL_FLAGS:-} -I. $source -o "$OUT/find_the_bug"
if "$OUT/find_the_bug" >"$OUT/find_the_bug.log" 2>"$OUT/find_the_bug.reports"; then
    echo "pass runs"
else
    echo "FAIL runs: $(tail -n 1 "$OUT/find_the_bug.log")"
fi

# The same from two sources, one of which has the implementation alone.
sed '/^#define FLEET_IMPLEMENTATION/d' $source >"$OUT/kernels.c"
printf '#define FLEET_IMPLEMENTATION\n#include "fleet_sched.h"\n' >"$OUT/implementation.c"
# shellcheck disable=SC2086
if examples/tools/memory_model.sh -std=c11 ${MODEL_FLAGS:-} -I. "$OUT/kernels.c" "$OUT/implementation.c" -o "$OUT/two_sources" &&
    "$OUT/two_sources" >"$OUT/two_sources.log" 2>&1 && grep -q '^ok:' "$OUT/two_sources.log"; then
    echo "pass two sources"
else
    echo "FAIL two sources: they do not compile or run"
fi

line() { grep -n "/\* $1 \*/" $source | cut -d: -f1; }
# expect KERNEL KIND WHY: the first report of this kernel.
expect() {
    local report where=', by wave [01] of workgroup [0-7] on chiplet [0-3]'
    report=$(sed -n "/^-- $1\$/,/^-- in/p" "$OUT/find_the_bug.reports" | sed -n 2,5p)
    if grep -qx "$2 read: $source:$(line "$1: read")$where" <<<"$report" &&
        grep -qx "    stored: $source:$(line "$1: store")$where" <<<"$report" &&
        grep -q "    why:    .*$3" <<<"$report" && grep -qx "    enough: notify and wait at device scope" <<<"$report"; then
        echo "pass $1"
    else
        echo "FAIL $1: another report: ${report//$'\n'/; }"
    fi
}
expect missing_wait unordered "no wait for an event"
expect narrow_scope stale "no release at device scope"
expect missing_drain stale "not drained"
