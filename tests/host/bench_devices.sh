#!/usr/bin/env bash
# The benchmark over several devices on the CPU, as ranks in one launch. It checks what it computes, here also for sizes that
# are no multiple of a tile, and fewer rows than a tile has; and it draws what it traces.
#
#   OUT=FOLDER [MODEL_FLAGS="FLAGS"] tests/host/bench_devices.sh
#
# MODEL_FLAGS: see memory_model.sh.
set -eu
mkdir -p "$OUT"
flags=()
for flag in ${MODEL_FLAGS:-}; do
    case $flag in *.o) ;; *) flags+=("$flag") ;; esac
done
gcc -std=c11 "${flags[@]}" -Og -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -DFLEET_TRACE -I. tests/bench/devices.c \
    -o "$OUT/devices" -pthread -lm
check() { # RANKS TOKENS COLUMNS DEPTH
    local name="$1 ranks, $2 x $3 x $4"
    if "$OUT/devices" --ranks "$1" --tokens "$2" --columns "$3" --depth "$4" --trace "$OUT/$1.svg" >"$OUT/log" 2>&1 &&
        grep -q "</svg>" "$OUT/$1.svg"; then
        echo "pass $name"
    else
        echo "FAIL $name: $(tail -n 1 "$OUT/log")"
    fi
}
check 1 130 136 8
check 2 256 128 32
check 2 600 8 144
check 3 399 136 40
check 4 44 264 136
