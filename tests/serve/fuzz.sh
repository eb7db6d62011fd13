#!/usr/bin/env bash
# Fuzzes the parser of examples/serve (fuzz.c):
#
#   tests/serve/fuzz.sh [RUNS]       RUNS inputs (default: a million), beginning with tests/serve/corpus
#
# What a run finds stays in tests/build/fuzz_serve: new inputs in found/, and one that breaks something as crash-*.
# Environment:
#   OUT            another folder than tests/build/fuzz_serve
#   FUZZ_SECONDS   stop after so long, however many inputs are left (default: never)
#   FUZZ_SEED      of the random numbers (default: 1)
#
# To add to the corpus what was found, and keep only what adds to the coverage:
#
#   tests/build/fuzz_serve/fuzz -merge=1 NEW tests/serve/corpus tests/build/fuzz_serve/found
set -eu
cd "$(dirname "$0")/../.."
# shellcheck source=tests/setup.sh
. tests/setup.sh
setup_packages gcc:gcc
setup_qwen3
setup_fuzzer

runs=${1:-1000000}
out=${OUT:-tests/build/fuzz_serve}
mkdir -p "$out/found"
clang -std=c11 -O1 -g -Wall -Wextra -Wpedantic -Wconversion -Wno-unused-function -Werror -fno-omit-frame-pointer \
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all tests/serve/fuzz.c -o "$out/fuzz" "${qwen3_libraries[@]}"
"$out/fuzz" -runs="$runs" -seed="${FUZZ_SEED:-1}" -max_total_time="${FUZZ_SECONDS:-0}" -max_len=1024 -timeout=10 \
    -dict=tests/serve/fuzz.dict -print_final_stats=1 -artifact_prefix="$out/" "$out/found" tests/serve/corpus
