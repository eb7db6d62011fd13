#!/usr/bin/env bash
# The decoder of examples/qwen3 on an MI300X: a few layers with the dimensions of Qwen3-8B and a small vocabulary, planned
# with chiplets and without. Where hipcc and an AMD GPU are, the times are measured. Elsewhere they are SIMULATED
# (tests/amdsim in timing mode), which takes up to half an hour on two processors, or with FLEET_LAYERS=1 ten minutes. Prints a
# table in Markdown, and the time of a launch with one empty task.
#
#   tests/bench/on_amd.sh [BATCH...]      default: 1 8 16 32 64
#
# The plans: `static` gives each chiplet a run of columns of each linear layer, and its workers whole columns; they signal
# chiplet by chiplet. `unaware` is the same graph as it is planned for a device whose workgroups are all alike: a flat grid of
# tiles of 16 rows and 16 columns, row tiles of a column one after the other; workgroup i of n takes tiles i, i + n, ..., and
# signals for itself. Neighbouring workgroups are on different chiplets. `unaware+64` has tiles of 64 rows instead,
# `static+16` tiles of 16 rows in each chiplet's run of columns.
#
# On an MI300X: run this and send back the file tests/build/bench/on_amd.txt. It holds the table and what would calibrate
# the simulator's model of time: latencies, hand-overs between workgroups, barriers, streams (tests/amdsim/tests/timed). On
# the simulator the file holds the statistics of each launch and the instructions at which waves wait.
#
# Environment:
#   FLEET_LAYERS    layers of the model (default: 3)
#   FLEET_PLANS     schedules of the decoder, with "+N": tiles of N rows (default: static unaware)
#   AMDSIM_TIMING   changes constants of the simulator's model: name=value,... (tests/amdsim/README.md)
#   FLEET_TIMINGS   changes of that kind, to run the decoder with each in turn, separated by spaces; `default` is none.
#                   Shows whether an order of plans depends on a constant: "default coherent=200 coherent=800"
#   LIMIT           seconds that a run may take (default: 900)
set -eu
# shellcheck source=tests/setup.sh
. "$(dirname "$0")/../setup.sh"
[ $# -gt 0 ] || set -- 1 8 16 32 64
trap hip_leave EXIT
out=tests/build/bench
here=$repo/$out
mkdir -p "$here"
hip_setup
hip_device
hip_install "${qwen3_packages[@]}"
hip_run mkdir -p "$out/on_amd"
report=$here/on_amd.txt
: >"$report"

if [ -n "$hip_runtime" ]; then
    device="simulated MI300X (timing mode${AMDSIM_TIMING:+, $AMDSIM_TIMING})" arch=gfx942 steps=2
    timed=(env "LD_LIBRARY_PATH=$hip_runtime" AMDSIM_MODE=timed AMDSIM_STATS=1)
else
    device=$(rocminfo | sed -n 's/^ *Marketing Name: *\(.*Instinct.*\)/\1/p' | head -n 1) arch=native steps=24
    timed=()
fi
build() { # FILE PROGRAM [OPTION...]
    local file=$1 program=$2
    shift 2
    if ! quietly hip_run hipcc --offload-arch=$arch -O3 -w -I. "$@" -c "$file" -o "$program.o" ||
        ! quietly hip_run hipcc --offload-arch=$arch "$program.o" -o "$program" "${qwen3_libraries[@]}"; then
        die "$file does not build"
    fi
}
build examples/qwen3/qwen3.c "$out/on_amd/qwen3" -x hip -DHAS_ROW_TILES=1u "${stb_flags[@]}"
build tests/bench/launch.c "$out/on_amd/launch" -x hip
build tests/amdsim/tests/timed/timed.hip "$out/on_amd/timed" -std=c++17
# shellcheck source=tests/bench/model.sh
. "$repo/tests/bench/model.sh"
VOCABULARY=1024 config "${FLEET_LAYERS:-3}" 4096 12288 32 8 | hip_run tee "$out/on_amd/config.json" >/dev/null

# A run's output goes to the report under a heading, and to $log.
log=$here/on_amd.log
run() { # HEADING COMMAND...
    local heading=$1 rc=0
    shift
    hip_run timeout "${LIMIT:-900}" "${timed[@]}" "$@" >"$log" 2>&1 || rc=$?
    {
        printf '\n==== %s (status %s)\n' "$heading" $rc
        cat "$log"
    } >>"$report"
    return $rc
}

# The simulator's statistics of the decoder's launch, as cells of the table.
simulated_cells() { # STEPS PLAIN_READ_TBS
    awk -v steps="$1" -v plain="$2" '
        /^amdsim: / { mine = / grid .* block / && /decode/ }
        !mine { next }
        /^ *timed: / { us = $2 }
        / read: HBM / { hbm = $3; mall = $0; sub(/.*MALL /, "", mall); sub(/ .*/, "", mall); l2 = $0; sub(/.*L2 hits /, "", l2); sub(/ .*/, "", l2) }
        /buffer_wbl2/ { a = $0; sub(/.*narrower /, "", a); sub(/,.*/, "", a); w = $0; sub(/.*wbl2 /, "", w); sub(/,.*/, "", w) }
        /^ *wave time \(/ { t = $0; sub(/^[^)]*\): /, "", t); split(t, part, "; "); waits = part[1] "; " part[2] "; " part[3] }
        END {
            if (!us) exit 1
            rate = hbm / us
            share = plain ? sprintf("%.0f%%", 100 * rate / plain) : "?"
            printf "%.0f us | %.0f MB | %.2f TB/s | %s | %.0f MB | %.0f MB | %d | %d | %s", us / steps, hbm / steps, rate,
                share, (hbm + mall) / steps, l2 / steps, w / steps, a / steps, waits
        }' "$log"
}

failed=0
plain=
if [ -n "$hip_runtime" ]; then
    run "plain read" "$out/on_amd/timed" streaming || failed=1
    plain=$(sed -n 's/^read 1 GB,.*each *\([0-9.]*\) *TB.*/\1/p' "$log")
else
    { rocminfo || true; } >>"$report" 2>&1
    run "latencies, hand-overs, barriers, streams" "$out/on_amd/timed" || true # out of range is a finding
fi

launch="? us"
if run "launches with one empty task" "$out/on_amd/launch"; then launch=$(sed -n 's/ launch: */ /p' "$log" | paste -sd, | sed 's/,/, /g'); else failed=1; fi

{
    echo "$device, $(date -u +%F), commit $(git -C "$repo" rev-parse --short HEAD 2>/dev/null || echo unknown):" \
        "${FLEET_LAYERS:-3} layers of Qwen3-8B, means over $steps steps${plain:+; a plain read reaches $plain TB/s}; a launch with one empty task: $launch"
    echo
    if [ -n "$hip_runtime" ]; then
        echo "| batch | plan | a step | from HBM | rate | of a plain read | past L2 | L2 hits | write-backs | atomics | wave time |"
        echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    else
        echo "| batch | plan | TPOT | read | of a plain read |"
        echo "| --- | --- | --- | --- | --- |"
    fi
} | tee "$here/on_amd.md"
decoder() { # BATCH PLAN [TIMING]: a row of the table, with AMDSIM_TIMING as it stands
    local batch=$1 plan=$2 label=$2 cells="failed, see $report"
    local options=(--random-weights --prompt-ids 1 --steps "$steps" --ignore-eos --batch "$batch" --schedule "${plan%+*}")
    [ "${plan%+*}" = "$plan" ] || options+=(--tile-rows "${plan#*+}")
    [ -n "$hip_runtime" ] || options+=(--bench)
    [ $# = 2 ] || label="$plan, $3"
    if run "batch $batch, $label" "$out/on_amd/qwen3" "$out/on_amd" "${options[@]}"; then
        if [ -n "$hip_runtime" ]; then
            cells=$(simulated_cells $steps "$plain") || failed=1
        else
            cells=$(sed -n "s,^TPOT \([0-9.]*\) ms .*: \([0-9.]*\) GB/s\, \([0-9]*\)% of the \([0-9.]*\) GB/s.*,\1 ms | \2 GB/s | \3% of \4 GB/s,p" "$log")
        fi
    else
        failed=1
    fi
    echo "| $batch | $label | $cells |" | tee -a "$here/on_amd.md"
}

base=${AMDSIM_TIMING:-}
[ -n "$hip_runtime" ] || FLEET_TIMINGS= # a chip has no such constants
for batch; do for timing in ${FLEET_TIMINGS:-default}; do for plan in ${FLEET_PLANS:-static unaware}; do
    if [ "$timing" = default ]; then
        AMDSIM_TIMING=$base decoder "$batch" "$plan"
    else
        AMDSIM_TIMING=${base:+$base,}$timing decoder "$batch" "$plan" "$timing"
    fi
done; done; done
cat "$here/on_amd.md" >>"$report"
rm -f "$log" "$here/on_amd.md"
echo "details: $report" >&2
exit $failed
