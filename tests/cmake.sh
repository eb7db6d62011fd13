#!/usr/bin/env bash
# Configures and builds README.md's CMake project with its smallest program, for the CPU, and runs it; for CUDA where nvcc
# is, and for HIP where a native hipcc is; for the CPU also with the kit from its own tree by FetchContent, and as one file.
# Prints lines as test programs do; products go to $OUT.
#
#   OUT=FOLDER tests/cmake.sh [C] [CUDA] [HIP]      all three without words
set -eu
cd "$(dirname "$0")/.."
out=${OUT:?}
top=$PWD

# block LANGUAGE WORD: the first block of that language which contains the word.
block() {
    awk -v open="\`\`\`$1" -v word="$2" '
        $0 == open { inside = 1; text = ""; next }
        /^```/ { if (inside && index(text, word)) { printf "%s", text; exit } inside = 0 }
        inside { text = text $0 "\n" }' README.md
}

rm -rf "$out/app"
mkdir -p "$out/app/src" "$out/app/third_party/fleet"
block cmake add_executable >"$out/app/CMakeLists.txt"
block c 'int main(' >"$out/app/src/megakernel.c"
[ -s "$out/app/CMakeLists.txt" ] && [ -s "$out/app/src/megakernel.c" ]
cp fleet.h fleet_device.h fleet_sched.h examples/cmake/fleet.cmake "$out/app/third_party/fleet"
[ -z "${STB_DS:-}" ] || cp "$STB_DS" "$out/app/third_party/fleet"

# The same project with the kit from its tree, and with the one file that amalgamate.sh writes.
rm -rf "$out/fetched" "$out/single"
cp -r "$out/app" "$out/fetched"
rm -r "$out/fetched/third_party"
sed -i 's|^include(third_party.*|include(FetchContent)\nFetchContent_Declare(fleet GIT_REPOSITORY none)\nFetchContent_MakeAvailable(fleet)\ninclude(${fleet_SOURCE_DIR}/examples/cmake/fleet.cmake)|' \
    "$out/fetched/CMakeLists.txt"
cp -r "$out/app" "$out/single"
rm "$out/single/third_party/fleet/"*.h
sed -i 's/fleet_sched.h/fleet_all.h/' "$out/single/src/megakernel.c"
./amalgamate.sh "$out/single/third_party/fleet/fleet_all.h" >/dev/null

built() { # NAME [PROJECT [LANGUAGE [TYPE]]]
    rm -rf "${out:?}/$1"
    if (cd "$out" && cmake -S "${2:-app}" -B "$1" "-DCMAKE_BUILD_TYPE=${4:-Release}" "-DFLEET_LANGUAGE=${3:-$1}" "-DFETCHCONTENT_SOURCE_DIR_FLEET=$top" \
        ${STB_DS:+"-DFLEET_STB_DS=$(dirname "$STB_DS")"} && cmake --build "$1") >"$out/$1.log" 2>&1; then
        return 0
    fi
    tail -n 20 "$out/$1.log"
    echo "FAIL $1: does not build ($top/$out/$1.log)"
    return 1
}
run() { # NAME
    if "$out/$1/app"; then echo "pass $1"; else echo "FAIL $1: ended with status $?"; fi
}

wanted() { case " $words " in *" $1 "*) ;; *) return 1 ;; esac }
words=${*:-C CUDA HIP}
if wanted C; then
    ! built C || run C
    ! built C_fetched fetched C Debug || run C_fetched
    ! built C_single single C Debug || run C_single
fi
PATH=$PATH:/usr/local/cuda/bin
# shellcheck source=examples/tools/rocm.sh
. examples/tools/rocm.sh
if ! wanted CUDA; then
    :
elif ! command -v nvcc >/dev/null; then
    echo "skip CUDA: needs nvcc"
elif built CUDA; then
    if nvidia-smi -L >/dev/null 2>&1; then run CUDA; else echo "pass CUDA"; fi
fi
# CMake asks for the ROCm installation of a native hipcc; that of the tests' own root is not one.
if ! wanted HIP; then
    :
elif ! rocm_find; then
    echo "skip HIP: needs a native hipcc, as on a machine with an AMD GPU"
elif built HIP; then
    if rocm_gpu; then run HIP; else echo "pass HIP"; fi
fi
