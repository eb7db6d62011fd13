#!/usr/bin/env bash
# Fuzzes the parsers of examples/qwen3 (fuzz.c):
#
#   tests/qwen3/fuzz.sh [RUNS]       RUNS inputs (default: a million), beginning with tests/qwen3/corpus
#
# What a run finds stays in tests/build/fuzz: new inputs in found/, and one that breaks something as crash-*.
# Environment:
#   OUT            another folder than tests/build/fuzz
#   FUZZ_SECONDS   stop after so long, however many inputs are left (default: never)
#   FUZZ_SEED      of the random numbers (default: 1)
#
# To add to the corpus what was found, and keep only what adds to the coverage:
#
#   tests/build/fuzz/fuzz -merge=1 NEW tests/qwen3/corpus tests/build/fuzz/found
set -eu
cd "$(dirname "$0")/../.."
# shellcheck source=tests/setup.sh
. tests/setup.sh
setup_packages gcc:gcc
setup_qwen3
setup_fuzzer

runs=${1:-1000000}
out=${OUT:-tests/build/fuzz}
mkdir -p "$out/found"
clang -std=c11 -O1 -g -Wall -Wextra -Wpedantic -Wconversion -Werror -fno-omit-frame-pointer \
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all tests/qwen3/fuzz.c -o "$out/fuzz" "${qwen3_libraries[@]}"
"$out/fuzz" -runs="$runs" -seed="${FUZZ_SEED:-1}" -max_total_time="${FUZZ_SECONDS:-0}" -max_len=2048 -timeout=10 \
    -dict=tests/qwen3/fuzz.dict -print_final_stats=1 -artifact_prefix="$out/" "$out/found" tests/qwen3/corpus
