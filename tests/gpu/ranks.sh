#!/usr/bin/env bash
# One graph over several simulated MI300X, which are incoherent as HIP documents it: example 11, or with the word "decoder" the
# decoder of examples/qwen3, with a process for each, which share memory by hipIpc; and in deep runs tests/bench/devices.c, which
# has a thread for each. All check what they compute. Run by tests/run.sh where hipcc is; by hand:
#   tests/with_hip.sh bash tests/gpu/ranks.sh [decoder]
set -eu
cd "$(dirname "$0")/../.."

if [ -z "${FLEET_HIP_RUNTIME:-}" ]; then
    echo "skip ranks: needs a simulated GPU (FLEET_HIP_RUNTIME)"
    exit
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LD_LIBRARY_PATH=$FLEET_HIP_RUNTIME
build=(hipcc --offload-arch=gfx942 -x hip -std=c++17 -O2 -I.)

# A test of the name NAME that passes when the command succeeds.
try() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$folder/log" 2>&1; then
        echo "pass $name"
    else
        echo "FAIL $name: status $?: $(tail -n 1 "$folder/log")"
        cat "$folder/log" >&2
    fi
}
# The setting of a seed: delays, dies and noise by turns, as tests/isa/mutate.py has them.
settings() { # SEED
    local xcds=("8 AMDSIM_CUS=2" "2 AMDSIM_CUS=4") noise=
    [ $(($1 % 3)) != 0 ] || noise="AMDSIM_EVICT=200 AMDSIM_STALL=20 AMDSIM_SKEW=20"
    echo "AMDSIM_SEED=$1 AMDSIM_DELAY=$(($1 % 4 < 2 ? 20 : 3)) AMDSIM_STRICT=1 AMDSIM_XCDS=${xcds[$1 % 2]} $noise"
}
program=() # with its arguments
over_processes() { # RANKS SETTING...
    local n=$1 rank pid pids=() rc=0
    shift
    for ((rank = 0; rank < n; rank++)); do
        env "$@" "AMDSIM_DEVICES=$n" FLEET_RANK=$rank "FLEET_RANKS=$n" "FLEET_PEERS_FILE=$folder/peers" "${program[@]}" &
        pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || rc=$?; done
    rm -f "$folder/peers"
    return $rc
}

if [ "${1:-}" = decoder ]; then
    try decoder/build "${build[@]}" -Xarch_host -O0 -w -DFLEET_IPC examples/qwen3/qwen3.c -o "$folder/qwen3" -ljansson -lpcre2-8 -lunistring
    checks() { # RANKS MODEL SEED [ARGUMENT...]
        program=("$folder/qwen3" "tests/fixtures/$2" --check "tests/fixtures/$2/expected.json" --ranks "$1" "${@:4}")
        # shellcheck disable=SC2046
        try "decoder/$2/$1/seed_$3${4:-}" over_processes "$1" $(settings "$3")
    }
    checks 2 qwen3-tiny 1 --prefill-rows 20
    checks 2 qwen3-moe-tiny 2
    [ -n "${FLEET_DEEP:-}" ] || exit 0
    for ((seed = 3; seed <= 6; seed++)); do
        for n in 3 4; do
            checks $n qwen3-tiny $seed
            checks $n qwen3-tiny $seed --prefill-rows $((7 * seed))
            checks $n qwen3-moe-tiny $seed
        done
    done
    exit
fi
try processes/build "${build[@]}" -Wall -Wextra -Wpedantic -Wconversion -Werror -DFLEET_IPC examples/11_several_devices.c -o "$folder/example"
program=("$folder/example")
seeds=2
[ -z "${FLEET_DEEP:-}" ] || seeds=20
for ((seed = 1; seed <= seeds; seed++)); do
    # shellcheck disable=SC2046
    for n in 2 4; do try "processes/$n/seed_$seed" over_processes $n $(settings $seed); done
done
[ -n "${FLEET_DEEP:-}" ] || exit 0
try threads/build "${build[@]}" -w tests/bench/devices.c -o "$folder/devices"
for ((seed = 1; seed <= seeds; seed++)); do
    # shellcheck disable=SC2046
    for n in 2 4; do
        try "threads/$n/seed_$seed" env $(settings $seed) AMDSIM_DEVICES=$n "$folder/devices" --small 1 --ranks $n --tokens $((128 * n))
    done
done
