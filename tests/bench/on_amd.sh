#!/usr/bin/env bash
# First contact with an AMD GPU: what it is, whether the kit is right on it, and what it takes; in one file, from which
# tests/bench/refit.sh finds the constants of the simulator.
#
#   tests/bench/on_amd.sh [PART...]               all parts, in this order, in at most 30 minutes
#   tests/bench/on_amd.sh --simulated [PART...]   on the simulated MI300X (tests/amdsim), in its model of time
#
# On a chip: send back the file tests/build/bench/on_amd.txt. Needs ROCm 6.2 or later (ROCM_PATH, PATH, /opt/rocm), bash and
# the usual commands; no other package, no root, and nothing is installed. What a part lacks is named, and the part goes
# without. Never simulates unless it is told to.
#
#   machine    driver, ROCm, compiler, partition and memory modes, clocks, which XCC has which workgroups
#   hazards    wait states between instructions: wrong results by their number (tests/amdsim/tests/hazards.hip)
#   litmus     programs that expose each wait, fence and invalidate (tests/isa/litmus.c)
#   suite      the tests for GPUs (tests/gpu) and the examples
#   chip       latencies, bandwidth by cache policy, atomics, events, flags by home, pollers, barriers, launches
#              (tests/amdsim/tests/timed)
#   beside     launches, frees, copies and polls of the host beside a kernel that stays
#   decoder    examples/qwen3: its checks, then the dimensions of Qwen3-8B with random weights, `static` and `unaware`
#   prompts    the same, a prompt of 1,000 tokens
#   server     the decoder as a server (tests/bench/serving.c): steps and first tokens
#   counters   L2 hits, misses and lines from memory of `static` and `unaware`, by rocprofv3 or rocprof
#
# The plans: `static` gives each chiplet a run of columns of each linear layer, and its workers whole columns; they signal
# chiplet by chiplet. `unaware` is the same graph as it is planned for a device whose workgroups are all alike: a flat grid of
# tiles of 16 rows and 16 columns, row tiles of a column one after the other; workgroup i of n takes tiles i, i + n, ..., and
# signals for itself. Neighbouring workgroups are on different chiplets. `unaware+64` has tiles of 64 rows instead,
# `static+16` tiles of 16 rows in each chiplet's run of columns.
#
# Environment:
#   FLEET_LIMIT     seconds in all (default: 1800; simulated: 7200)
#   FLEET_LAYERS    layers of the model (default: 36; simulated: 3)
#   FLEET_BATCHES   sequences of the decoder (default: 1 8 16 32 64)
#   FLEET_PLANS     schedules of the decoder, with "+N": tiles of N rows (default: static unaware)
#   FLEET_TIMINGS   simulated: changes of the model's constants (AMDSIM_TIMING), to run the decoder with each in turn, separated
#                   by spaces; `default` is none. Shows whether an order of plans depends on a constant
#   STB_DS          the user's own stb_ds.h; CPATH and LIBRARY_PATH: folders of other libraries
#   JOBS            programs compiled at a time (default: processors, at most 16)
set -eu
cd "$(dirname "$0")/../.."
# shellcheck source=tests/setup.sh
. tests/setup.sh
# shellcheck source=tests/bench/model.sh
. tests/bench/model.sh
out=tests/build/bench
work=$out/on_amd
report=$out/on_amd.txt

simulated=
if [ "${1:-}" = --simulated ]; then simulated=yes && shift; fi
all_parts="machine hazards litmus suite chip beside decoder prompts server counters"
for word; do
    case " $all_parts " in *" $word "*) ;; *) die "$word is no part; there are: $all_parts" ;; esac
done

# The simulator needs a hipcc and its own library: where they are (tests/setup.sh) this script runs again.
if [ -n "$simulated" ] && { [ -z "${FLEET_HIP_RUNTIME:-}" ] || ! rocm_find; }; then
    trap hip_leave EXIT
    mkdir -p "$out"
    hip_setup
    hip_simulator
    if [ "$hip_mode" = root ]; then hip_install "${qwen3_packages[@]}"; fi
    FLEET_COMMIT=$(git rev-parse --short HEAD 2>/dev/null) || FLEET_COMMIT=unknown
    export FLEET_COMMIT
    rc=0
    hip_run bash tests/bench/on_amd.sh --simulated "$@" || rc=$?
    [ "$hip_mode" = native ] || hip_run cat $report >"$report"
    exit $rc
fi
rocm_find || die "$rocm_missing"
if [ -z "$simulated" ]; then
    rocm_gpu || die "$rocm_missing.
tests/bench/on_amd.sh --simulated runs on a simulated MI300X instead."
fi
limit=${FLEET_LIMIT:-$([ -n "$simulated" ] && echo 7200 || echo 1800)}
if [ -n "$simulated" ]; then
    timed=(env "LD_LIBRARY_PATH=$FLEET_HIP_RUNTIME" AMDSIM_MODE=timed AMDSIM_STATS=1)
    checked=(env "LD_LIBRARY_PATH=$FLEET_HIP_RUNTIME" AMDSIM_XCDS=2 AMDSIM_CUS=4)
else
    timed=() checked=()
fi
arch=${FLEET_ARCH:-}
[ -n "$arch" ] || [ -z "$simulated" ] || arch=gfx942
[ -n "$arch" ] || arch=$(rocminfo 2>/dev/null | grep -oE 'gfx[0-9a-f]+' | head -n 1)
[ -n "$arch" ] || arch=native

# ---- what there is to build with

stb=()
[ -z "${STB_DS:-}" ] || stb=("-I$(cd "$(dirname "$STB_DS")" && pwd)")
has_header() { # LINE...
    local file=$work/header.c
    printf '#define PCRE2_CODE_UNIT_WIDTH 8\n' >"$file"
    printf '#include <%s>\n' "$@" >>"$file"
    hipcc -x c -fsyntax-only -I. "${stb[@]}" "$file" >/dev/null 2>&1
}

# ---- programs

# Where a program's source is, and how it is compiled; the list in the order in which they are needed.
programs="hazards timed implementation qwen3 litmus serving meanwhile"
for file in tests/gpu/*.c examples/[01][0-9]_*.c; do
    case $file in *meanwhile.c | */02_* | */08_*) ;; *) programs="$programs $(basename "$file" .c)" ;; esac
done
quick=(-x hip -std=c++17 -O2 -w -I. -Itests)

compile_linked() { # FILE, within compile: the implementation is an object that such programs share
    hipcc "--offload-arch=$arch" "${quick[@]}" "${stb[@]}" -DFLEET_TEST_LINKED -c "$1" -o "$object" &&
        built implementation && hipcc "--offload-arch=$arch" "$object" "$work/implementation" -o "$exe"
}
compile() { # PROGRAM
    local exe=$work/$1.new object=$work/$1.o file
    case $1 in
    hazards) hipcc "--offload-arch=$arch" -O2 -std=c++17 -w tests/amdsim/tests/hazards.hip -o "$exe" ;;
    timed) hipcc "--offload-arch=$arch" -O2 -std=c++17 -w tests/amdsim/tests/timed/timed.hip -o "$exe" -pthread ;;
    litmus) compile_linked tests/isa/litmus.c ;;
    implementation)
        { echo '#define FLEET_IMPLEMENTATION' && printf '#include "%s"\n' fleet_sched.h examples/parts/fleet_{calibrate,linear,server,trace}.h; } >"$work/$1.c"
        hipcc "--offload-arch=$arch" "${quick[@]}" "${stb[@]}" -c "$work/$1.c" -o "$exe"
        ;;
    qwen3 | serving)
        case $1 in qwen3) file=examples/qwen3/qwen3.c ;; *) file=tests/bench/serving.c ;; esac
        # Compiled apart: a library by its name would be taken for source.
        hipcc "--offload-arch=$arch" -x hip -O3 -w -I. "${stb[@]}" -DHAS_ROW_TILES=1u -c "$file" -o "$object" &&
            hipcc "--offload-arch=$arch" "$object" -o "$exe" "${qwen3_libraries[@]}" -lpthread
        ;;
    [01]*) hipcc "--offload-arch=$arch" "${quick[@]}" "${stb[@]}" "examples/$1.c" -o "$exe" ;;
    *)
        if grep -q '^// run:.*whole' "tests/gpu/$1.c"; then
            hipcc "--offload-arch=$arch" "${quick[@]}" "${stb[@]}" "tests/gpu/$1.c" -o "$exe"
        else
            compile_linked "tests/gpu/$1.c"
        fi
        ;;
    esac
}
build() { # PROGRAM: leaves the program, or PROGRAM.failed
    if compile "$1" >"$work/$1.log" 2>&1; then
        mv "$work/$1.new" "$work/$1"
    else
        touch "$work/$1.failed"
    fi
}
# built PROGRAM: waits for a program; 1 if it does not build, whose reason is in its log.
built() {
    while [ ! -e "$work/$1" ] && [ ! -e "$work/$1.failed" ]; do
        [ $SECONDS -lt "$limit" ] || return 1
        sleep 0.1
    done
    [ -e "$work/$1" ]
}

# ---- the report

rm -rf "$work"
mkdir -p "$work"
: >"$report"
say() { printf '%s\n' "$*" | tee -a "$report"; }

# A run's output goes to the report under a heading, and to $log. It takes at most so many seconds, and no more than are left.
log=$work/log
run() { # SECONDS HEADING COMMAND...
    local seconds=$1 heading=$2 left=$((limit - SECONDS)) rc=0
    shift 2
    [ "$left" -gt 0 ] || left=1
    [ "$seconds" -lt "$left" ] || seconds=$left
    timeout -k 5 "$seconds" "$@" >"$log" 2>&1 </dev/null || rc=$?
    [ $rc != 124 ] || echo "(ended after $seconds s)" >>"$log"
    {
        printf '\n==== %s (status %s)\n' "$heading" $rc
        cat "$log"
    } >>"$report"
    return $rc
}

# Parts add to `wrong` what failed, and set `lacks` when they cannot run at all.
wrong='' lacks=''
failed() { wrong="${wrong:+$wrong; }$1"; }
needs() { # PROGRAM
    built "$1" && return
    if [ ! -e "$work/$1.failed" ]; then
        failed "$1 was not built in time"
    else
        { printf '\n==== %s does not build\n' "$1" && cat "$work/$1.log"; } >>"$report"
        failed "$1 does not build: $(grep -m 1 -i error "$work/$1.log" || tail -n 1 "$work/$1.log")"
    fi
    return 1
}

bad=0
part() { # NAME
    local from=$SECONDS
    wrong='' lacks=''
    say ""
    say "== $1"
    if [ $SECONDS -ge "$limit" ]; then
        lacks="the $limit seconds are over"
    else
        "part_$1"
    fi
    if [ -n "$lacks" ]; then
        say "part $1: not run: $lacks"
        bad=1
    elif [ -n "$wrong" ]; then
        say "part $1: FAILED: $wrong"
        bad=1
    else
        say "part $1: ok, $((SECONDS - from)) s"
    fi
}

# ---- the parts

part_machine() {
    local file
    run 30 "system" sh -c 'date -u; uname -a; cat /proc/loadavg; nproc; grep -m 1 "model name" /proc/cpuinfo; cat /sys/module/amdgpu/version /sys/module/amdgpu/srcversion' || true
    run 30 "ROCm in $rocm" sh -c 'cat "$0/.info/version"; hipcc --version; "$1/clang" --version' "$rocm" "$rocm_llvm" || true
    for file in compute_partition memory_partition; do
        run 5 "current_$file" sh -c 'grep -H . /sys/class/drm/card*/device/current_$0' $file || true
    done
    run 5 "clocks" sh -c 'grep -H . /sys/class/drm/card*/device/pp_dpm_[smf]clk /sys/class/drm/card*/device/hwmon/*/power1_cap' || true
    if [ -z "$simulated" ]; then
        for file in rocminfo "amd-smi static" "rocm-smi -a"; do
            # shellcheck disable=SC2086
            run 60 "$file" $file || true # each says more; none is needed
        done
    fi
    ! needs timed || run 60 "XCCs" "${timed[@]}" "$work/timed" map launches || failed "the program that tells of XCCs ended with an error"
    say "$(grep -hE '^(figure machine|fact)' "$log" || true)"
}

part_hazards() {
    local waves=1216
    [ -z "$simulated" ] || waves=8
    ! needs hazards || run 120 "wrong results by wait states" "${checked[@]}" "$work/hazards" count $waves ||
        failed "$(grep FAILED "$log" | tr -d '\n' || true) (status of the program: not 0)"
}

part_litmus() {
    local name epochs=200
    [ -z "$simulated" ] || epochs=6
    [ -n "$has_stb" ] || { lacks=$no_stb && return; }
    needs litmus || return 0
    for name in device1 device2 lone chiplet system order order_system test wait publish lanes ring messages static dealt ready \
        some replays routed carry passed early fails fails_dealt ends ends_dealt ends_ready aborts flow residency; do
        run 30 "litmus $name" "${checked[@]}" "$work/litmus" $name $epochs || failed "$name"
    done
}

part_suite() {
    local program passed=0
    [ -n "$has_stb" ] || { lacks=$no_stb && return; }
    for program in $programs; do
        case $program in hazards | timed | implementation | litmus | meanwhile | qwen3 | serving) continue ;; esac
        needs "$program" || continue
        if run 60 "$program" "${checked[@]}" "$work/$program" && ! grep -qa '^FAIL ' "$log" && grep -qaE '^(pass |ok:)' "$log"; then
            passed=$((passed + 1))
        else
            failed "$program: $(grep -am 1 '^FAIL ' "$log" || tail -n 1 "$log")"
        fi
    done
    say "$passed programs passed"
}

part_chip() {
    local section
    needs timed || return 0
    for section in launches latency read policies grid l2 compute instructions flags barriers queues; do
        run 120 "$section" "${timed[@]}" "$work/timed" $section || failed "$section"
    done
}

part_beside() {
    ! needs timed || run 60 "calls of the host beside a kernel that stays" "${timed[@]}" "$work/timed" host || failed "calls beside a kernel that stays"
    [ -n "$has_stb" ] || { lacks=$no_stb && return; }
    ! needs meanwhile || run 60 "calls that wait" env FLEET_TEST_FACTS=1 "${checked[@]}" "$work/meanwhile" || failed "meanwhile"
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

decoder_row() { # BATCH PLAN [TIMING]: a row of the table, with AMDSIM_TIMING as it stands
    local batch=$1 plan=$2 label=$2 cells=
    local options=(--random-weights --prompt-ids 1 --steps "$steps" --ignore-eos --batch "$batch" --schedule "${plan%+*}")
    [ "${plan%+*}" = "$plan" ] || options+=(--tile-rows "${plan#*+}")
    [ -n "$simulated" ] || options+=(--bench)
    [ $# = 2 ] || label="$plan, $3"
    if run 900 "batch $batch, $label" "${timed[@]}" "$work/qwen3" "$work" "${options[@]}"; then
        if [ -n "$simulated" ]; then
            cells=$(simulated_cells "$steps" "$plain") || cells=
        else
            cells=$(sed -n "s,^TPOT \([0-9.]*\) ms .*: \([0-9.]*\) GB/s\, \([0-9]*\)% of the \([0-9.]*\) GB/s.*,\1 ms | \2 GB/s | \3% of \4 GB/s,p" "$log")
        fi
    fi
    [ -n "$cells" ] || { failed "batch $batch, $label" && cells="failed"; }
    say "| $batch | $label | $cells |"
}

# Each time is one of a program that has just been right.
decoder_is_right() {
    local fixture
    [ -n "$has_stb" ] || { lacks=$no_stb && return 1; }
    [ -n "$has_qwen3" ] || { lacks=$no_qwen3 && return 1; }
    needs qwen3 || return
    [ -z "$decoder_checked" ] || return 0
    for fixture in tests/fixtures/qwen3-tiny tests/fixtures/qwen3-moe-tiny; do
        run 120 "check $fixture" "${checked[@]}" "$work/qwen3" $fixture --check $fixture/expected.json || failed "the check of $fixture"
    done
    [ -z "$wrong" ] || return
    decoder_checked=yes
    VOCABULARY=${simulated:+1024} config "$layers" 4096 12288 32 8 >"$work/config.json"
}
decoder_checked=

part_decoder() {
    local batch plan timing base=${AMDSIM_TIMING:-} steps=24 plain=
    decoder_is_right || return 0
    if [ -n "$simulated" ]; then
        steps=2
        ! needs timed || run 600 "plain read" "${timed[@]}" "$work/timed" read || failed "the plain read"
        plain=$(sed -n 's/^figure read.hbm *\([0-9.]*\) *TB.*/\1/p' "$log")
    fi
    say "$layers layers of Qwen3-8B, means over $steps steps${plain:+; a plain read reaches $plain TB/s}"
    say ""
    if [ -n "$simulated" ]; then
        say "| batch | plan | a step | from HBM | rate | of a plain read | past L2 | L2 hits | write-backs | atomics | wave time |"
        say "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    else
        FLEET_TIMINGS= # a chip has no such constants
        say "| batch | plan | TPOT | read | of a plain read |"
        say "| --- | --- | --- | --- | --- |"
    fi
    for batch in ${FLEET_BATCHES:-1 8 16 32 64}; do for timing in ${FLEET_TIMINGS:-default}; do for plan in ${FLEET_PLANS:-static unaware}; do
        if [ "$timing" = default ]; then
            AMDSIM_TIMING=$base decoder_row "$batch" "$plan"
        else
            AMDSIM_TIMING=${base:+$base,}$timing decoder_row "$batch" "$plan" "$timing"
        fi
    done; done; done
}

part_prompts() {
    local n=1000
    [ -z "$simulated" ] || n=256
    decoder_is_right || return 0
    run 300 "a prompt of $n tokens" "${timed[@]}" "$work/qwen3" "$work" --random-weights --prompt-ids "$n*7" --steps 1 --ignore-eos || failed "a prompt of $n tokens"
    say "$(grep -hE 'first token|timed:' "$log" || true)"
}

part_server() {
    local kind
    decoder_is_right || return 0
    needs serving || return 0
    for kind in first decode; do
        if [ -n "$simulated" ]; then
            [ $kind = first ] || continue
            run 900 "a request alone" "${timed[@]}" "$work/serving" "$work" --random-weights --only alone --context 512 --clients 1 --prompt 64 --answer 5 || failed alone
        else
            run 120 "server, $kind" "$work/serving" "$work" --random-weights --seconds 5 --only $kind || failed $kind
        fi
    done
    say "$(grep -hE '^(decode|first|alone)' "$log" || true)"
}

# What decides the claim of a shared L2: at 32 and 64 sequences `unaware` reads each column of weights once for each run of 16
# rows, `static` once for all. Where the lines of a column are still in the L2 or shared among chiplets by the Infinity Cache at
# little cost, both take the same time.
part_counters() {
    local batch plan words
    [ -z "$simulated" ] || { lacks="the simulator has no such counters; the columns of the part decoder say the same" && return; }
    decoder_is_right || return 0
    if command -v rocprofv3 >/dev/null; then
        words=(rocprofv3 --pmc TCC_HIT_sum TCC_MISS_sum TCC_EA0_RDREQ_sum --output-format csv -d "$work/counters" --)
    elif command -v rocprof >/dev/null; then
        echo "pmc: TCC_HIT_sum TCC_MISS_sum TCC_EA_RDREQ_sum" >"$work/counters.txt"
        words=(rocprof -i "$work/counters.txt" -o "$work/counters.csv")
    else
        lacks="neither rocprofv3 nor rocprof is on PATH (a package of ROCm)" && return
    fi
    for batch in 32 64; do for plan in static unaware; do
        rm -rf "$work"/counters "$work"/counters.csv
        if run 120 "counters, batch $batch, $plan" "${words[@]}" "$work/qwen3" "$work" --random-weights --prompt-ids 1 --steps 4 --ignore-eos --batch "$batch" --schedule "$plan"; then
            find "$work/counters" "$work/counters.csv" -name '*.csv' -exec grep -hE 'Counter_Name|TCC|decode' {} + >>"$report" 2>/dev/null || true
        else
            failed "batch $batch, $plan"
        fi
    done; done
    say "Confirmed if, at 64 sequences, \`unaware\` has twice the misses of \`static\` or more (simulated: 3.7 times the lines past the L2) and takes"
    say "longer; refuted if its misses are the same, or it is as fast with more of them."
}

# ---- all of it

device="simulated MI300X (timing mode${AMDSIM_TIMING:+, $AMDSIM_TIMING})"
if [ -z "$simulated" ]; then
    device=$(rocminfo 2>/dev/null | sed -n 's/^ *Marketing Name: *\(.*Instinct.*\)/\1/p' | head -n 1)
    [ -n "$device" ] || device="AMD GPU ($arch)"
fi
say "$device, $(date -u +%F), commit ${FLEET_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}"
layers=${FLEET_LAYERS:-36}
[ -z "$simulated" ] || layers=${FLEET_LAYERS:-3}
has_stb='' has_qwen3=''
no_stb="stb_ds.h is missing: put that one file of github.com/nothings/stb beside fleet.h, or name it by STB_DS"
no_qwen3="jansson, PCRE2 and libunistring with their headers are missing (libjansson-dev libpcre2-dev libunistring-dev; jansson-devel pcre2-devel libunistring-devel); CPATH and LIBRARY_PATH may name folders of them"
if has_header stb_ds.h || has_header stb/stb_ds.h; then has_stb=yes; fi
if has_header jansson.h pcre2.h uninorm.h; then has_qwen3=yes; fi
if [ -z "$has_stb" ]; then say "goes without litmus, suite, decoder and what needs that: $no_stb"; fi
if [ -z "$has_qwen3" ]; then say "goes without the decoder: $no_qwen3"; fi

# What the wanted parts need is built meanwhile; each part waits for its own programs.
wanted=${*:-$all_parts}
needed=
for word in $wanted; do
    case $word in
    machine | chip) needed="$needed timed" ;;
    hazards) needed="$needed hazards" ;;
    litmus) needed="$needed implementation litmus" ;;
    beside) needed="$needed timed implementation meanwhile" ;;
    decoder | prompts | counters) needed="$needed timed qwen3" ;;
    server) needed="$needed qwen3 serving" ;;
    suite) needed="$needed $programs" ;;
    esac
done
jobs=${JOBS:-$(nproc)}
[ "$jobs" -le 16 ] || jobs=16
build_all() {
    set +m
    local word
    for word in $programs; do
        case " $needed " in *" $word "*) ;; *) continue ;; esac
        case $word in
        hazards | timed) ;;
        qwen3 | serving) [ -n "$has_stb" ] && [ -n "$has_qwen3" ] || continue ;;
        *) [ -n "$has_stb" ] || continue ;;
        esac
        [ "$jobs" -gt 0 ] || wait -n || true
        jobs=$((jobs > 0 ? jobs - 1 : 0))
        build "$word" &
    done
    wait
}
set -m # its processes are a group, which ends with this script
build_all &
builder=$!
set +m
trap 'kill -- -$builder 2>/dev/null || true' EXIT

for name in $all_parts; do
    case " $wanted " in *" $name "*) part "$name" ;; esac
done
grep -h '^part ' "$report" >"$log"
{ echo && echo "== summary" && cat "$log"; } >>"$report"
echo "details: $report" >&2
exit $bad
