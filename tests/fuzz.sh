#!/usr/bin/env bash
# Fuzzes the parsers of an example (fuzz.c of its folder):
#
#   tests/fuzz.sh qwen3|serve [RUNS]            RUNS inputs (default: a million), beginning with the folder's corpus.tar.gz
#   tests/fuzz.sh qwen3|serve add [FILE...]     adds files to the corpus, and of what was found what adds to the coverage
#
# What a run finds stays in tests/build/fuzz_NAME: new inputs in found/, and one that breaks something as crash-*; the corpus is
# unpacked beside them. Environment:
#   OUT            another folder than tests/build/fuzz_NAME
#   FUZZ_SECONDS   stop after so long, however many inputs are left (default: never)
#   FUZZ_SEED      of the random numbers (default: 1)
set -eu
from=$PWD
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
*) die "say whose parsers: tests/fuzz.sh qwen3|serve [RUNS | add FILE...]" ;;
esac
[[ $runs =~ ^(add|[0-9]+)$ ]] || die "$runs: a number, or add"
out=${OUT:-tests/build/fuzz_$name} archive=tests/$name/corpus.tar.gz
rm -rf "$out/corpus"
mkdir -p "$out/found"
tar -C "$out" -xzf "$archive"
# A parser's header has functions that its target does not call.
clang -std=c11 -O1 -g -Wall -Wextra -Wpedantic -Wconversion -Wno-unused-function -Werror -fno-omit-frame-pointer \
    -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all "tests/$name/fuzz.c" -o "$out/fuzz" "${qwen3_libraries[@]}"
if [ "$runs" = add ]; then
    for file in "${@:3}"; do
        [[ $file == /* ]] || file=$from/$file
        if [ "$(stat -c %s "$file")" -gt $longest ]; then die "$file: more than $longest bytes"; fi
        cp "$file" "$out/corpus/$(sha1sum <"$file" | cut -d' ' -f1)"
    done
    "$out/fuzz" -merge=1 "$out/corpus" "$out/found"
    tar -C "$out" --sort=name --mode=u=rwX,go=rX --mtime=@0 --owner=0 --group=0 --numeric-owner -cf - corpus | gzip -9n >"$archive"
    exit
fi
"$out/fuzz" -runs="$runs" -seed="${FUZZ_SEED:-1}" -max_total_time="${FUZZ_SECONDS:-0}" -max_len=$longest -timeout=10 \
    -dict="tests/$name/fuzz.dict" -print_final_stats=1 -artifact_prefix="$out/" "$out/found" "$out/corpus"
