#!/usr/bin/env bash
# The decoder of examples/qwen3: whether it passes its checks, and what a token takes with random weights. On an NVIDIA or
# AMD GPU with the dimensions of Qwen3-8B, 1,000 tokens of prompt and 24 more; on the CPU with those of Qwen3-0.6B, 64 and
# 24. Each sequence has a prompt of its own, so that rows choose different experts. Prints a table in Markdown: TPOT, what it reads in a second, and the share of what a plain read reaches on the same
# device, in the same run. Ends with 0 if all of them succeed. RESULTS.md has the last ones.
#
#   tests/bench/qwen3.sh [BATCH...]       default: 1 2 4 8 16 32 64; on the CPU 1 2 4 8
#
# Needs libjansson, libpcre2-8 and libunistring. Environment:
#   FLEET_PLATFORM  hip, cuda or host (default: what is here)
#   FLEET_ARCH      the GPU to compile for, such as sm_90 (default: the one here)
#   LIBRARIES       a folder with their headers and libNAME.a, where the system has none
#   PROGRAM         an executable that is built already
#   SCHEDULES       default: static unfused
#   RANKS           numbers of GPUs over which the decoder is tensor-parallel, a process for each (default: 1). A rank's
#                   random weights are its own, so that only the checks compare tokens
#   MODEL           0.6b, 8b, 32b, 30b-a3b, or "LAYERS HIDDEN FFN HEADS KV_HEADS [EXPERTS EXPERTS_PER_TOKEN]", where FFN is
#                   an expert's
#   PROMPT          tokens of each prompt
#   LIMIT           seconds that a run may take (default: 300)
set -eu
cd "$(dirname "$0")/../.."
export -n LIBRARIES # nvcc would take it for options of its own
out=tests/build/bench
mkdir -p "$out/model"

# shellcheck source=tests/bench/model.sh
. tests/bench/model.sh

# prompts BATCH: those of its sequences, as --prompt-ids takes them.
prompts() {
    local i ids=
    for ((i = 0; i < $1; i++)); do ids="$ids;$prompt*$((7 + i))"; done
    echo "${ids#;}"
}

# over_ranks RANKS COMMAND...: a process for each rank. Those that wait for one that has failed end after it.
over_ranks() {
    local n=$1 rank pid pids=() rc=0 peers
    shift
    if [ "$n" = 1 ]; then
        timeout "${LIMIT:-300}" "$@"
        return
    fi
    peers=$(mktemp -u "$out/peers.XXXXXX")
    for ((rank = 0; rank < n; rank++)); do
        FLEET_RANK=$rank FLEET_RANKS=$n FLEET_PEERS_FILE=$peers timeout "${LIMIT:-300}" "$@" --ranks "$n" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || rc=$?; done
    rm -f "$peers"
    return $rc
}

ranks=${RANKS:-1}
program=${PROGRAM:-$out/qwen3}
include=(-I. ${STB_DS:+-I"$(dirname "$STB_DS")"} ${LIBRARIES:+-I"$LIBRARIES"})
libraries=(-ljansson -lpcre2-8 -lunistring)
if [ -n "${LIBRARIES:-}" ]; then libraries=("$LIBRARIES"/libjansson.a "$LIBRARIES"/libpcre2-8.a "$LIBRARIES"/libunistring.a); fi
case $platform in
host)
    name=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)", $(nproc) processors"
    model=${MODEL:-0.6b} prompt=${PROMPT:-64}
    [ $# -gt 0 ] || set -- 1 2 4 8
    build=("${CC:-cc}" -std=c11 -O3 -march=native -ffp-contract=fast)
    ;;
cuda | hip)
    model=${MODEL:-8b} prompt=${PROMPT:-1000}
    [ $# -gt 0 ] || set -- 1 2 4 8 16 32 64
    if [ "$platform" = cuda ]; then
        name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
        # Of compute capability 9.0 it uses instructions that no other one has.
        case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader) in 9.0*) arch=sm_90a ;; *) arch=native ;; esac
        build=(nvcc -x cu -arch="${FLEET_ARCH:-$arch}" -std=c++17 -O3 -w)
    else
        name=$(rocminfo | sed -n 's/^ *Marketing Name: *\(.*Instinct.*\)/\1/p' | head -n 1)
        build=(hipcc -x hip --offload-arch="${FLEET_ARCH:-native}" -O3 -w)
    fi
    ;;
*)
    echo "FLEET_PLATFORM is hip, cuda or host, not $platform" >&2
    exit 2
    ;;
esac
case $model in
0.6b) sizes="28 1024 3072 16 8" ;;
8b) sizes="36 4096 12288 32 8" ;;
32b) sizes="64 5120 25600 64 8" ;;
30b-a3b) sizes="48 2048 768 32 4 128 8" ;;
*) sizes=$model ;;
esac
# shellcheck disable=SC2086
config $sizes >"$out/model/config.json"
run=(--random-weights --bench --steps 24)
if [ "$ranks" != 1 ]; then build+=(-DFLEET_IPC); fi
if [ -z "${PROGRAM:-}" ]; then
    # Compiled apart: a library by its name would be taken for source.
    "${build[@]}" "${include[@]}" -c examples/qwen3/qwen3.c -o "$program.o"
    case $platform in
    host) "${build[0]}" "$program.o" -o "$program" "${libraries[@]}" -lpthread -lm ;;
    cuda) nvcc -arch="${FLEET_ARCH:-$arch}" "$program.o" -o "$program" "${libraries[@]}" -lpthread ;;
    hip) hipcc --offload-arch="${FLEET_ARCH:-native}" "$program.o" -o "$program" "${libraries[@]}" -lpthread ;;
    esac
fi

failed=0
for fixture in qwen3-tiny qwen3-moe-tiny; do
    for n in $ranks; do
        over_ranks "$n" "$program" "tests/fixtures/$fixture" --check "tests/fixtures/$fixture/expected.json" || failed=1
    done
done

echo
echo "$name, $(date -u +%F)," \
    "\`qwen3 $out/model ${run[*]} --prompt-ids \"$(prompts 2);...\" --schedule SCHEDULE\` (\`MODEL=\"$model\" tests/bench/qwen3.sh\`)"
echo
echo "| batch | schedule | GPUs | TPOT | read by each | of a plain read |"
echo "| --- | --- | --- | --- | --- | --- |"
for batch; do
    for schedule in ${SCHEDULES:-static unfused}; do
        for n in $ranks; do
            log=$out/qwen3-$batch-$schedule-$n.log
            line=
            if over_ranks "$n" "$program" "$out/model" "${run[@]}" --prompt-ids "$(prompts "$batch")" --schedule "$schedule" \
                >/dev/null 2>"$log"; then
                line=$(sed -n "s,^TPOT \([0-9.]*\) ms .*: \([0-9.]*\) GB/s\, \([0-9]*\)% of the \([0-9.]*\) GB/s.*,\1 ms | \2 GB/s | \3% of \4 GB/s,p" "$log")
            fi
            echo "| $batch | $schedule | $n | ${line:-failed, $log | |} |"
            [ -n "$line" ] || failed=1
        done
    done
done
exit $failed
