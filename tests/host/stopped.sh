#!/usr/bin/env bash
# Programs that are stopped for longer than the limit of a wait, at random moments: they go on, and their results are right.
#
#   tests/host/stopped.sh [SEED]     the default is 1; deep runs: more examples and the decoder, for 15 s, at more moments
#
# OUT: a folder for what it builds.
set -eu
cd "$(dirname "$0")/../.."
out=${OUT:-tests/build/host/stopped}
RANDOM=${1:-1}
mkdir -p "$out"
stb=()
[ ! -d /usr/include/stb ] || stb=(-I/usr/include/stb)
seconds=11 moments=3
[ -z "${FLEET_DEEP:-}" ] || seconds=15 moments=10

# stopped NAME MILLISECONDS COMMAND...: prints a line of the test.
stopped() {
    local name=$1 after=$2 log=$out/$1.$2.log pid status=0
    shift 2
    "$@" >"$log" 2>&1 &
    pid=$!
    sleep "$(printf '0.%03d' "$after")"
    if kill -STOP $pid 2>/dev/null; then
        sleep $seconds
        kill -CONT $pid
    fi
    wait $pid || status=$?
    if [ $status = 0 ] && grep -q '^\(ok:\|tokens:\)' "$log"; then
        echo "pass $name, stopped after $after ms"
    else
        echo "FAIL $name, stopped after $after ms: status $status, $(tail -n 1 "$log")"
    fi
}

files=(examples/02_*.c examples/06_*.c examples/10_*.c)
[ -z "${FLEET_DEEP:-}" ] || files=(examples/0[1-6]_*.c examples/10_*.c)
for file in "${files[@]}"; do
    name=$(basename "$file" .c)
    gcc -std=c11 -O0 -I. "${stb[@]}" "$file" -o "$out/$name" -pthread -lm
    for ((i = 0; i < moments; i++)); do
        stopped "$name" $((RANDOM % 200)) "$out/$name" &
    done
done
if [ -n "${FLEET_DEEP:-}" ]; then
    gcc -std=c11 -O2 -I. "${stb[@]}" examples/qwen3/qwen3.c -o "$out/qwen3" -ljansson -lpcre2-8 -lunistring -pthread -lm
    for ((i = 0; i < moments; i++)); do
        stopped qwen3 $((RANDOM % 1000)) "$out/qwen3" tests/fixtures/qwen3-tiny --prompt-ids 460,191,256 \
            --steps 400 --ignore-eos --batch 8 --workers $((8 * $(nproc))) &
    done
fi
wait
