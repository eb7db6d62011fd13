#!/usr/bin/env bash
# The decoder as a server: reactive requests beside proactive ones, the policy agent against fifo in the same run
# (tests/bench/serving.c says what is measured). On an NVIDIA or AMD GPU with the dimensions of Qwen3-8B and random weights,
# on the CPU with the small model of the tests. Prints tables in Markdown, and leaves them, the figures and a picture in
# tests/build/bench/serving.md, .tsv and .svg. RESULTS.md has the last ones.
#
#   tests/bench/serving.sh [OPTION...]      options of the program: --seconds N of each run (default 15; CPU 5),
#                                           --shorten N of the 15-minute traces (30; CPU 180), --batch N, --context N, --seed N,
#                                           --mixed N rows of a decode batch of both classes (default: by prediction);
#                                           --chunk N rows of a prompt in a step, --beside N beside requests that decode;
#                                           --clients N, --prompt N, --answer N of the runs of clients; --only KIND: of
#                                           runs (decode, first, clients, idle, pending, load, growth or paper)
#
# Needs libjansson and python3. Environment:
#   FLEET_PLATFORM  hip, cuda or host (default: what is here)
#   FLEET_ARCH      the GPU to compile for, such as sm_90a (default: the one here)
#   LIBRARIES       a folder with libjansson's header and libjansson.a, where the system has none
#   PROGRAM         an executable that is built already
set -eu
cd "$(dirname "$0")/../.."
export -n LIBRARIES # nvcc would take it for options of its own
out=tests/build/bench
mkdir -p "$out/model"

# shellcheck source=tests/bench/model.sh
. tests/bench/model.sh
program=${PROGRAM:-$out/serving}
include=(-I. ${STB_DS:+-I"$(dirname "$STB_DS")"} ${LIBRARIES:+-I"$LIBRARIES"})
libraries=(-ljansson)
if [ -n "${LIBRARIES:-}" ]; then libraries=("$LIBRARIES/libjansson.a"); fi
config 36 4096 12288 32 8 >"$out/model/config.json"
case $platform in
host)
    name=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)", $(nproc) processors, small model of the tests"
    run=(tests/fixtures/qwen3-tiny --batch 8 --seconds 5 --shorten 180)
    build=("${CC:-cc}" -std=c11 -O3 -march=native -ffp-contract=fast) link=("${CC:-cc}")
    ;;
cuda)
    name="$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1), dimensions of Qwen3-8B, random weights"
    run=("$out/model" --random-weights)
    build=(nvcc -x cu -std=c++17 -O3 "-arch=${FLEET_ARCH:-sm_90a}") link=(nvcc "-arch=${FLEET_ARCH:-sm_90a}")
    ;;
hip)
    name="AMD GPU, dimensions of Qwen3-8B, random weights"
    run=("$out/model" --random-weights)
    build=(hipcc -x hip -std=c++17 -O3 "--offload-arch=${FLEET_ARCH:-native}") link=(hipcc "--offload-arch=${FLEET_ARCH:-native}")
    ;;
*)
    echo "FLEET_PLATFORM is hip, cuda or host" >&2
    exit 2
    ;;
esac
if [ -z "${PROGRAM:-}" ]; then
    # Compiled apart: a library by its name would be taken for source.
    "${build[@]}" "${include[@]}" -c tests/bench/serving.c -o "$program.o"
    "${link[@]}" "$program.o" -o "$program" "${libraries[@]}" -lpthread -lm
fi
"$program" "${run[@]}" "$@" >"$out/serving.tsv"
python3 tests/bench/serving.py tables "$name" "$out/serving.tsv" | tee "$out/serving.md"
python3 tests/bench/serving.py picture "$out/serving.md" >"$out/serving.svg"
