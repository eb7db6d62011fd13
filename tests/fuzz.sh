#!/usr/bin/env bash
# Fuzzes the parsers of an example (fuzz.c of its folder):
#
#   tests/fuzz.sh qwen3|serve [RUNS]       RUNS inputs (default: a million), beginning with the folder's corpus
#
# What a run finds stays in tests/build/fuzz_NAME: new inputs in found/, and one that breaks something as crash-*.
# Environment:
#   OUT            another folder than tests/build/fuzz_NAME
#   FUZZ_SECONDS   stop after so long, however many inputs are left (default: never)
#   FUZZ_SEED      of the random numbers (default: 1)
#
# To add to the corpus what was found, and keep only what adds to the coverage:
#
#   tests/build/fuzz_NAME/fuzz -merge=1 NEW tests/NAME/corpus tests/build/fuzz_NAME/found
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=tests/setup.sh
. tests/setup.sh
setup_packages gcc:gcc
setup_qwen3
setup_fuzzer

name=${1:-} runs=${2:-1000000}
case $name in
qwen3) longest=2048 ;;
serve) longest=1024 ;;
*) die "say whose parsers: tests/fuzz.sh qwen3|serve [RUNS]" ;;
esac
out=${OUT:-tests/build/fuzz_$name}
mkdir -p "$out/found"
# A parser's header has functions that its target does not call.
clang -std=c11 -O1 -g -Wall -Wextra -Wpedantic -Wconversion -Wno-unused-function -Werror -fno-omit-frame-pointer \
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all "tests/$name/fuzz.c" -o "$out/fuzz" "${qwen3_libraries[@]}"
"$out/fuzz" -runs="$runs" -seed="${FUZZ_SEED:-1}" -max_total_time="${FUZZ_SECONDS:-0}" -max_len=$longest -timeout=10 \
    -dict="tests/$name/fuzz.dict" -print_final_stats=1 -artifact_prefix="$out/" "$out/found" "tests/$name/corpus"
