#!/usr/bin/env bash
# Builds and runs the tests; the last line is "N passed, N failed[, N skipped]". tests/README.md says
# what each group holds and how a test file is written.
#
#   ./tests/run.sh [deep] [strict] [GROUP...]
#
#   deep     also what takes longer (FLEET_DEEP=1 for the programs)
#   strict   a skip counts as a failure unless it needs a GPU or nvcc (.ci/run)
#
# Missing packages are installed (root or sudo) or named. Environment:
#   FLEET_HIP_RUNTIME   folder of a libamdhip64.so.6, first in the loader's path of HIP programs; without it they
#                       run on the AMD GPU that is here, or on the simulated MI300X (tests/amdsim)
#   FLEET_HIP_ROOT      where the Debian testing root with hipcc is kept, when no hipcc is on PATH
#   JOBS                programs at a time (default: one more than there are processors)
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=tests/setup.sh
. tests/setup.sh

groups="format plan model host examples qwen3 serve compile hip cuda isa amalgamated readme"
warnings=(-Wall -Wextra -Wpedantic -Wconversion -Werror)
jobs=${JOBS:-$(($(nproc) + 1))} # some of them wait
passed=0 failed=0 skipped=0 strict=

# ---- jobs: commands in the background, then their verdicts -------------------------------------
#
# The jobs of a group begin while the last of the group before it still run, so that no processor waits. A group's
# verdicts come when all of its jobs have ended.

# start NAME COMMAND...: runs it in the background; output and status go to $out/NAME.log and .rc, a line with its
# seconds, those of the clock and those of processors, to $out/times.
start() {
    local name=$1 log=$out/$1.log
    shift
    mkdir -p "$(dirname "$log")"
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
    (
        rc=0 begun=$SECONDS
        "$@" >"$log" 2>&1 </dev/null || rc=$?
        times >"${log%.log}.cpu" # of this shell and of its children
        echo "$((SECONDS - begun)) $(processor_seconds <"${log%.log}.cpu") $name" >>"$out/times"
        echo "$rc" >"${log%.log}.rc" # last, for it says that the job has ended
    ) &
}

# The seconds that the children of a shell have taken of processors, from what `times` printed there.
processor_seconds() {
    awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); sum += t[1] * 60 + t[2] } printf "%.0f", sum }'
}

# check NAME COMMAND...: a test that passes when the command succeeds.
check() {
    echo "check $1" >>"$out/list"
    start "$@"
}

# program NAME COMMAND...: a command that prints "pass NAME" and "FAIL NAME: why" lines.
program() {
    echo "program $1" >>"$out/list"
    start "$@"
}

# skip NAME WHY: a test that cannot run here.
skip() { echo "skip $*" >>"$out/list"; }

# ended NAME...: waits for these jobs of the group.
ended() {
    local name
    for name; do
        until [ -e "$out/$name.rc" ]; do
            wait -n || [ $? != 127 ] || die "$name ended without a status"
        done
    done
}

# succeeded NAME: waits for a job of the group, and tells whether it succeeded.
succeeded() {
    ended "$1"
    [ "$(cat "$out/$1.rc")" = 0 ]
}

begin() { # GROUP
    while finish "${unfinished%% *}"; do unfinished=${unfinished#* }; done
    unfinished="$unfinished$1 "
    out=tests/build/$1
    rm -rf "$out"
    mkdir -p "$out"
    touch "$out/list" "$out/times"
}

# finish GROUP: the verdicts of a group; fails when one of its jobs still runs.
finish() {
    local kind name rest group=$1 out=tests/build/$1 shown=0 before="$passed $failed $skipped"
    local group_passed=$passed group_failed=$failed
    [ -n "$group" ] || return
    while read -r kind name rest; do
        [ "$kind" = skip ] || [ -e "$out/$name.rc" ] || return
    done <"$out/list"
    while read -r kind name rest; do
        case $kind in
        check) if [ "$(cat "$out/$name.rc")" = 0 ]; then pass; else fail "$name" "the command failed" "$out/$name.log"; fi ;;
        program)
            verdicts "$name" "$out/$name" >"$out/$name.verdicts"
            count "$name" "$out/$name.verdicts" "$out/$name.log"
            sed -n 's/^| /    | /p' "$out/$name.log" # tables
            ;;
        skip) skipped "$name" "$rest" ;;
        esac
    done <"$out/list"
    [ "$passed $failed $skipped" != "$before" ] || fail "$group" "holds no test"
    printf '%-12s %5d pass %5d FAIL %5d s\n' "$group" $((passed - group_passed)) \
        $((failed - group_failed)) "$(awk '{ sum += $2 } END { print sum + 0 }' "$out/times")"
}

pass() { passed=$((passed + 1)); }

fail() { # NAME WHY [LOG]
    failed=$((failed + 1))
    printf 'FAIL %s/%s: %s\n' "$group" "$1" "$2"
    [ $# -lt 3 ] || show "$3"
}

# The end of a log. Where one mistake breaks a hundred compilations, the first few tell.
show() {
    if [ $((shown += 1)) -le 5 ]; then tail -n 25 "$1" | sed 's/^/    /'; else echo "    $1"; fi
}

skipped() { # NAME WHY
    case $strict:$2 in
    strict:*GPU* | strict:*nvcc* | :*)
        skipped=$((skipped + 1))
        printf 'skip %s/%s: %s\n' "$group" "$1" "$2"
        ;;
    *) fail "$1" "skipped: $2" ;;
    esac
}

# verdicts NAME BASE: the pass and FAIL lines of one run, with a FAIL line of its own for what the
# program could not say itself.
verdicts() {
    local rc why=
    rc=$(cat "$2.rc")
    grep -aE '^(pass|FAIL|skip) ' "$2.log" || true
    if grep -qaE 'ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|runtime error: ' "$2.log"; then
        why="a sanitizer reported"
    elif [ "$rc" = 124 ] || [ "$rc" = 137 ]; then
        why="timed out"
    elif [ "$rc" -gt 124 ]; then
        why="ended with status $rc"
    elif [ "$rc" != 0 ] && ! grep -qa '^FAIL ' "$2.log"; then
        why="ended with status $rc"
    elif ! grep -qaE '^(pass|FAIL|skip) ' "$2.log"; then
        why="printed no test"
    fi
    [ -z "$why" ] || printf 'FAIL %s: %s\n' "$1" "$why"
}

count() { # NAME VERDICTS LOG
    local word rest test
    while read -r word rest; do
        case $word in
        pass) pass ;;
        skip) skipped "$1/${rest%%:*}" "${rest#*: }" ;;
        FAIL)
            test=${rest%%:*}
            [ "$test" = "$1" ] || test=$1/$test
            fail "$test" "${rest#*: }"
            ;;
        esac
    done <"$2"
    if grep -q '^FAIL ' "$2"; then show "$3"; fi
}

# build_run EXE COMPILER...: compiles, then runs.
build_run() {
    local exe=$1
    shift
    "$@" -o "$exe" || {
        echo "FAIL build: does not compile"
        return 1
    }
    # Each launch has new threads and frees its memory: with small stacks glibc keeps those for the next launch, and its heap
    # what is freed, where otherwise the kernel clears their pages again.
    (
        ulimit -Ss 1024
        export GLIBC_TUNABLES=glibc.pthread.stack_cache_size=1073741824
        GLIBC_TUNABLES+=:glibc.malloc.trim_threshold=1073741824:glibc.malloc.mmap_threshold=1073741824
        timeout -k 5 "$(limit)" ${fixed_addresses:+setarch -R} "$exe"
    )
}

# Deep runs do more, and are given more time.
stretched() { if [ -n "${FLEET_DEEP:-}" ]; then echo $(($1 * 20)); else echo "$1"; fi; }
# The seconds that one program may run: on a loaded machine it takes many times as long as on another.
limit() { stretched 600; }

# ThreadSanitizer of older compilers cannot place its shadow where addresses are much randomised.
fixed_addresses=
if setarch -R true 2>/dev/null; then fixed_addresses=yes; fi

# in_turn N: whether this run has the N-th of some jobs of which each run has a third; deep runs have all.
in_turn() { ! by_turns || [ $(($1 % 3)) = "$FLEET_TEST_THIRD" ]; }
by_turns() { [ -z "${FLEET_DEEP:-}" ] && [ -n "$FLEET_TEST_THIRD" ]; }

c_files() { find "$@" -name '*.c' 2>/dev/null | sort; }

stem() { basename "${1%.*}"; }

# ---- the groups ---------------------------------------------------------------------------------

group_format() {
    local tool file
    # Versions differ in what they call well formatted: the one of Debian 12 decides.
    setup_packages clang-format-14:clang-format-14
    tool=clang-format-14
    for file in $(find . -name build -prune -o -name fixtures -prune -o \
        \( -name '*.h' -o -name '*.c' -o -name '*.cu' -o -name '*.cpp' -o -name '*.hip' \) -print | sort); do
        check "${file#./}" "$tool" --dry-run -Werror "$file"
    done
    check edges edges_have_two_ends
    setup_packages python3:python3
    check house tests/house.sh sections public platform contract loops words # how the headers are arranged
}

# Each edge of the table in fleet_device.h (EDGES) is named at both of its ends in the code.
edges_have_two_ends() {
    local edge n=0 ends
    ends=$(sed '/^   EDGES$/,/^   ERRORS$/d' fleet_device.h | cat - fleet.h fleet_sched.h examples/qwen3/*.h examples/qwen3/*/*.h | tr -s '\n *' ' ' |
        grep -oE 'edges? [0-9]+((, | and )[0-9]+)*(, both ends)?' | sed -E 's/edge ([0-9]+), both ends/\1 \1/' | grep -oE '[0-9]+')
    for edge in $(sed -nE '/^   EDGES$/,/^   LOOPS$/s/^ {7,8}([0-9]+) .*/\1/p' fleet_device.h); do
        n=$((n + 1))
        [ "$(grep -cx "$edge" <<<"$ends")" -ge 2 ] || {
            echo "edge $edge has less than two ends in the code"
            return 1
        }
    done
    [ $n -ge 20 ] # else the table was not found
}

# Writes the translation units of the matrix: each header alone and all of them in every order, as
# declarations and with the implementation, and the implementation after the declarations.
matrix_units() {
    local a b c define
    for define in "" "#define FLEET_IMPLEMENTATION"; do
        for a in fleet fleet_device fleet_sched; do
            printf '%s\n#include "%s.h"\n' "$define" "$a" >"$out/${define:+impl_}$a.c"
            for b in fleet fleet_device fleet_sched; do
                for c in fleet fleet_device fleet_sched; do
                    case $c in "$a" | "$b") continue ;; esac
                    [ "$a" != "$b" ] || continue
                    printf '%s\n#include "%s.h"\n#include "%s.h"\n#include "%s.h"\n' \
                        "$define" $a $b $c >"$out/${define:+impl_}$a-$b-$c.c"
                done
            done
        done
    done
    printf '#include "fleet_sched.h"\n#define FLEET_IMPLEMENTATION\n#include "fleet_sched.h"\n' \
        >"$out/impl_late.c"
    printf '#include "fleet_sched.h"\nint main(void) { return !fleet_status_name(FLEET_OK); }\n' \
        >"$out/user.c"
}

group_compile() {
    local file unit compiler flags
    setup_packages gcc:gcc g++:g++ clang:clang clang-19:clang-19
    setup_stb
    setup_qwen3
    matrix_units
    for file in "$out"/*.c; do
        unit=$(stem "$file")
        for compiler in gcc clang g++ clang++; do
            # In which order headers come is the language's affair: for that one compiler of each will do.
            case $unit:$compiler in *-*-*:clang | *-*-*:g++) continue ;; esac
            case $compiler in *++) flags="-x c++ -std=c++17" ;; *) flags="-std=c11" ;; esac
            # gcc warns of some things only while it optimises; clang of none, so that one of its files will do.
            case $unit:$compiler in
            *-*-*) flags="$flags -fsyntax-only" ;;
            impl_fleet_sched:* | *:gcc | *:g++) flags="$flags -O1" ;;
            *) flags="$flags -fsyntax-only" ;;
            esac
            # shellcheck disable=SC2086
            check "$compiler/$unit" "$compiler" $flags "${warnings[@]}" -I. "${stb_flags[@]}" -c "$file" -o /dev/null
        done
    done
    stb_own_copy
    check two_units_c two_units gcc -std=c11 gcc -std=c11
    check two_units_cpp two_units g++ "-x c++ -std=c++17" g++ "-x c++ -std=c++17"
    check two_units_mixed two_units gcc -std=c11 g++ "-x c++ -std=c++17"
    compile_hip
    compile_clang19
    compile_cuda
    compile_otherwise
}

# The user's own copy of stb_ds.h is no system header: its warnings must not become the user's.
stb_own_copy() {
    mkdir -p "$out/stb"
    cp "${STB_DS:-/usr/include/stb/stb_ds.h}" "$out/stb/stb_ds.h"
    check gcc/stb_copy gcc -std=c11 -O1 "${warnings[@]}" -I. "-I$out/stb" -c "$out/impl_fleet.c" -o /dev/null
    check clang++/stb_copy clang++ -x c++ -std=c++17 -O1 "${warnings[@]}" -I. "-I$out/stb" -c "$out/impl_fleet.c" -o /dev/null
}

# two_units COMPILER FLAGS COMPILER FLAGS: one file holds the implementation, another uses it.
two_units() {
    local dir=$out/two_$1_$3
    mkdir -p "$dir"
    # shellcheck disable=SC2086
    $1 $2 "${warnings[@]}" -I. "${stb_flags[@]}" -c "$out/impl_fleet_sched.c" -o "$dir/implementation.o" &&
        $3 $4 "${warnings[@]}" -I. -c "$out/user.c" -o "$dir/user.o" &&
        g++ "$dir/implementation.o" "$dir/user.o" -pthread -lm -o "$dir/program" && "$dir/program"
}

hip_flags=(-x hip -std=c++17 -O2)
hip_archs=(--offload-arch=gfx90a --offload-arch=gfx942 --offload-arch=gfx950)

# Finds hipcc and what HIP programs run on. To install them takes minutes, mostly of waiting, so hip_early begins with it
# when the run does, while the groups before need neither.
hip_early() {
    setup_packages debootstrap:debootstrap # the rest is installed in the root alone
    mkdir -p tests/build/hip_early
    (
        hip_setup
        hip_simulator
        hip_install python3 "${qwen3_packages[@]}"
    ) >tests/build/hip_early/log 2>&1 </dev/null 9>&- &
    hip_installer=$!
}
hip_installer=
hip_begin() {
    [ -z "$hip_installer" ] || wait "$hip_installer" || cat tests/build/hip_early/log # below it is tried once more
    hip_installer=
    hip_setup
    hip_device
}

compile_hip() {
    local unit arch
    hip_begin
    hip_run mkdir -p "$out"
    hip_implementation
    # fleet_sched has the others in it: of these it is whether they can do without.
    for unit in fleet fleet_device; do
        printf '#define FLEET_IMPLEMENTATION\n#include "%s.h"\n' "$unit" |
            hip_run tee "$out/hip_$unit.c" >/dev/null
        for arch in gfx90a gfx942 gfx950; do
            check "hipcc/$arch/$unit" hip_cc --offload-arch=$arch "${hip_flags[@]}" "${warnings[@]}" \
                "$out/hip_$unit.c" -fsyntax-only -Wno-unused-command-line-argument # hipcc adds arguments for a linker
        done
    done
    # The group isa makes the decoder's machine code for the other two, and in deep runs for this one.
    hip_install "${qwen3_packages[@]}"
    check hipcc/gfx90a/qwen3 hip_cc --offload-arch=gfx90a "${hip_flags[@]}" "${warnings[@]}" \
        examples/qwen3/qwen3.c -fsyntax-only -Wno-unused-command-line-argument
}

# The implementation for all architectures, which the programs of the group hip share, compiled by the first group that
# wants it: the object is $hip_implemented/implementation.o.
hip_implemented=
hip_implementation() {
    [ -z "$hip_implemented" ] || return 0
    hip_implemented=$out
    printf '#define FLEET_IMPLEMENTATION\n#include "fleet_sched.h"\n' | hip_run tee "$out/implementation.c" >/dev/null
    check hipcc/implementation hip_cc "${hip_flags[@]}" "${warnings[@]}" "${hip_archs[@]}" -c "$out/implementation.c" -o "$out/implementation.o"
}

# hipcc, at the top of the sources where it is; a root has a stb_ds.h of its own.
hip_cc() {
    local own=()
    [ "$hip_mode" = root ] || own=("${stb_flags[@]}")
    hip_run hipcc -I. "${own[@]}" "$@"
}

# Another compiler for the same headers, and for what users copy. Its device libraries are not packaged, so it
# stops before the link; the HIP headers are hipcc's. Of the host's side it says what it thinks of the source.
compile_clang19() {
    local file n=0 rocm=tests/build/rocm
    rm -rf "$rocm"
    mkdir -p "$rocm/include" "$rocm/share/hip"
    ln -s "$(hip_headers)/hip" "$rocm/include/hip"
    printf 'HIP_VERSION_MAJOR=6\nHIP_VERSION_MINOR=4\nHIP_VERSION_PATCH=0\n' >"$rocm/share/hip/version"
    for file in "$out"/impl_fleet*.c $(c_files examples | grep -v /tools/); do # the tools are for the CPU
        case $file in *-*-*) continue ;; esac
        n=$((n + 1))
        in_turn $n || continue
        check "clang-19/gfx942/$(stem "$file")" clang19 "$file"
    done
}

hip_headers() {
    local path
    for path in "$hip_root/usr/include" /opt/rocm/include /usr/include; do
        if [ -e "$path/hip/hip_runtime.h" ]; then
            echo "$path"
            return
        fi
    done
}

clang19() {
    local side
    for side in "--offload-device-only -S -o /dev/null" "--offload-host-only -fsyntax-only"; do
        case ${FLEET_DEEP:+deep}:$1:$side in
        *:*/engine_qwen3.c:--offload-device*) continue ;; # its kernels are those of qwen3.c
        :*/impl_*:* | :*/05_*:* | :*/06_*:* | :*/11_*:*) ;; # machine code: of these, in which all that differs is
        :*:--offload-device*) side="--offload-device-only -fsyntax-only" ;;
        esac
        # shellcheck disable=SC2086
        clang-19 "${hip_flags[@]}" "${warnings[@]}" --offload-arch=gfx942 --rocm-path=tests/build/rocm -nogpulib \
            -I. -Itests "${stb_flags[@]}" $side "$1" || return
    done
}

# -O1 is for the host's side; the device's is optimised whatever stands here.
cuda_flags=(-x cu -std=c++17 -O1 -Werror all-warnings -Xcompiler "-Wall,-Wextra,-Wconversion")
cuda_archs=("-gencode=arch=compute_80,code=sm_80" "-gencode=arch=compute_90,code=sm_90")

have_nvcc() {
    command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
    command -v nvcc >/dev/null
}

compile_cuda() {
    local unit
    have_nvcc || {
        skip nvcc "needs nvcc"
        return 0
    }
    cuda_implementation
    for unit in fleet fleet_device; do # fleet_sched has them in it: it is whether they can do without
        check "nvcc/$unit" nvcc "${cuda_flags[@]}" "${cuda_archs[@]}" -I. "${stb_flags[@]}" -c "$out/impl_$unit.c" -o "$out/nvcc_$unit.o"
    done
    cuda_engine ipc FLEET_IPC
    if nvshmem_headers; then
        cuda_engine nvshmem FLEET_NVSHMEM -rdc=true "-I$nvshmem"
    else
        skip nvcc/nvshmem "needs nvcc and NVSHMEM's headers (NVSHMEM_HOME, or the wheel that torch brings)"
    fi
    check nvcc/stb_copy nvcc "${cuda_flags[@]}" "${cuda_archs[1]}" -I. "-I$out/stb" -c "$out/impl_fleet.c" -o "$out/nvcc_stb.o"
}

# An engine of examples/tools; in deep runs with example 11, which takes nvcc a quarter of a minute.
cuda_engine() { # NAME MACRO OPTION...
    local file=$out/engine_$1.c
    if [ -n "${FLEET_DEEP:-}" ]; then
        file=examples/11_several_devices.c
    else
        printf '#include "fleet_device.h"\n#include "examples/tools/%s_peers.h"\n' "$1" >"$file"
    fi
    check "nvcc/$1" nvcc "${cuda_flags[@]}" "${cuda_archs[1]}" "-D$2" "${@:3}" -I. "${stb_flags[@]}" -c "$file" -o "$out/nvcc_$1.o"
}

# Finds NVSHMEM's headers: sets nvshmem.
nvshmem=
nvshmem_headers() {
    local wheels
    wheels=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null) || wheels=
    for nvshmem in "${NVSHMEM_HOME:-/usr/local/nvshmem}/include" "$wheels/nvidia/nvshmem/include" /usr/include/nvshmem /usr/include; do
        [ ! -e "$nvshmem/nvshmem.h" ] || return 0
    done
    return 1
}

# As hip_implementation.
cuda_implemented=
cuda_implementation() {
    [ -z "$cuda_implemented" ] || return 0
    cuda_implemented=$out
    printf '#define FLEET_IMPLEMENTATION\n#include "fleet_sched.h"\n' >"$out/implementation.c"
    check nvcc/implementation nvcc "${cuda_flags[@]}" "${cuda_archs[@]}" -I. "${stb_flags[@]}" -c "$out/implementation.c" -o "$out/implementation.o"
}

# The optimisations and options with which a debugger or another build system comes. Without optimisation, operands of
# inline assembly come from memory, in vector registers, and a value is uniform only where the code says so. What
# runs quickly is run. In deep runs: every example in every way.
compile_otherwise() {
    local file name n=0
    for file in $(example_files); do
        name=$(stem "$file") n=$((n + 1))
        case ${FLEET_DEEP:+deep}:$name in
        deep:* | :01_* | :02_*) ! in_turn $n || check "hipcc/O0/$name" hip_otherwise "$file" O0 -O0 -g ;;
        *) ! in_turn $n || check "hipcc/O0/$name" hip_device_only "$file" -O0 -g ;;
        esac
        case ${FLEET_DEEP:+deep}:$name in deep:* | :02_*) ! in_turn 1 || check "hipcc/rdc/$name" hip_otherwise "$file" rdc -fgpu-rdc ;; esac
        case ${FLEET_DEEP:+deep}:$name in deep:* | :04_*) ! in_turn 0 || check "hipcc/O1/$name" hip_device_only "$file" -O1 -g ;; esac
        case ${FLEET_DEEP:+deep}:$name in deep:* | :06_*) ! in_turn 0 || check "hipcc/Og/$name" hip_device_only "$file" -Og -g ;; esac
        # In other runs the group examples does.
        case ${FLEET_DEEP:+deep}:$name in
        deep:*) check "gcc/O0/$name" build_run "$out/$name.O0" gcc -std=c11 -O0 -g "${warnings[@]}" -I. "${stb_flags[@]}" "$file" -pthread -lm ;;
        esac
        case ${FLEET_DEEP:+deep}:$name in deep:* | :01_* | :02_*) ! have_nvcc || ! in_turn $((n + 1)) || check "nvcc/G/$name" cuda_debug "$file" ;; esac
    done
    # Copies to LDS, and in deep runs the weight pipeline, which takes half a minute.
    for file in ${FLEET_DEEP:+tests/gpu/stream.c} tests/gpu/prefetch.c; do
        in_turn 0 || continue
        check "hipcc/O0/$(stem "$file")" hip_device_only "$file" -O0 -g -DFLEET_TEST_LINKED
    done
}

hip_device_only() { # FILE OPTION...
    hip_cc -x hip -std=c++17 "${@:2}" "${warnings[@]}" -Wno-unused-command-line-argument --offload-arch=gfx942 \
        --offload-device-only -Itests -c "$1" -o /dev/null
}

# Builds an example, and runs it where that can be.
hip_otherwise() { # FILE NAME OPTION...
    local exe
    exe=$out/$(stem "$1").$2
    hip_cc -x hip -std=c++17 "${@:3}" "${warnings[@]}" --offload-arch=gfx942 "$1" -o "$exe" || return
    # One workgroup per CU: without optimisation, kernels take many registers.
    hip_run env AMDSIM_XCDS=2 AMDSIM_CUS=16 ${hip_runtime:+"LD_LIBRARY_PATH=$hip_runtime"} timeout -k 5 "$(limit)" "$exe"
}

# Without a GPU, the kernels of the loop of tasks only become PTX: to assemble them for a debugger takes ptxas 25 s.
cuda_debug() { # FILE
    local exe gpu=
    exe=$out/$(stem "$1").G
    ! nvidia-smi -L >/dev/null 2>&1 || gpu=yes
    case ${FLEET_DEEP:+deep}$gpu:$1 in
    :*/02_*.c | *?:*) nvcc -G -g "${cuda_flags[@]}" "${cuda_archs[1]}" -I. "${stb_flags[@]}" "$1" -o "$exe" || return ;;
    *)
        nvcc -G -g "${cuda_flags[@]}" "${cuda_archs[1]}" -I. "${stb_flags[@]}" -ptx "$1" -o "$exe.ptx"
        return
        ;;
    esac
    [ -z "$gpu" ] || timeout -k 5 "$(limit)" "$exe"
}

# ---- programs on the CPU

# -Og compiles a test in half the time of -O1, which programs with more to compute ask for.
asan=(-Og -g1 -fno-omit-frame-pointer "-fsanitize=address,undefined" -fno-sanitize-recover=all)
tsan=(-O1 -g1 -fsanitize=thread)
plain=(-O2)

# The lines "// run: WORDS" at a file's top, each one build and run of it (tests/README.md).
marks() { sed -n '1,12s|^// run: *||p' "$1" | grep . || echo asan; }

# Whether a program has the implementation in itself, since it needs another one than most.
is_whole() { marks "$1" | grep -qw whole; }

libraries=(-pthread -lm)

# Most programs share one implementation for each way of building them, whatever their group: to compile it takes longer
# than they do.
implementations=
host_implementations() {
    setup_packages gcc:gcc g++:g++
    setup_stb
    [ -z "$implementations" ] || return 0
    implementations=$out
    printf '#include "tests/implementation.h"\n#include "fleet_sched.h"\n' >"$out/implementation.c"
    host_implementation asan "${asan[@]/-Og/-O1}"
    host_implementation tsan "${tsan[@]}"
    host_implementation plain "${plain[@]}"
    check memory_model gcc -O3 -g -c -I. examples/tools/memory_model.c -o "$out/memory_model.o"
    check implementation.model examples/tools/memory_model.sh -c -std=c11 "${warnings[@]}" -I. "${stb_flags[@]}" \
        "$out/implementation.c" -o "$out/implementation.model.o"
    ended implementation.asan implementation.tsan implementation.plain implementation.model memory_model
}
host_implementation() { # NAME FLAGS...
    local name=implementation.$1
    shift
    check "$name" gcc -std=c11 "${warnings[@]}" "$@" -I. "${stb_flags[@]}" -c "$out/implementation.c" -o "$out/$name.o"
}

host_programs() { # reads the names of files
    local file line word n compiler flags engine name linked part
    while read -r file <&3; do
        n=0
        while read -r line; do
            compiler=gcc flags=("${asan[@]}") engine=threads linked=asan part='' name=''
            for word in $line; do
                case $word in
                asan) ;;
                tsan) flags=("${tsan[@]}") name=.tsan linked=tsan part=0 ;;
                plain) flags=("${plain[@]}") name=.plain linked=plain ;;
                model) compiler=examples/tools/memory_model.sh flags=("$implementations/memory_model.o") name=.model linked=model ;;
                whole) linked='' ;;
                engine=*) engine=${word#*=} name=$name.$engine ;;
                -*) flags+=("$word") ;;
                *) die "$file: unknown word in its run line: $word" ;;
                esac
            done
            n=$((n + 1)) name=$(stem "$file")$name
            if grep -qx "program $name" "$out/list"; then name=$name.$n; fi
            [ -z "$linked" ] || flags+=(-DFLEET_TEST_LINKED "$implementations/implementation.$linked.o")
            program "$name" in_part "$part" with_engine "$engine" build_run "$out/$name.exe" \
                "$compiler" -std=c11 "${warnings[@]}" ${flags[@]+"${flags[@]}"} -I. -Itests "${stb_flags[@]}" "$file" "${libraries[@]}"
        done <<<"$(marks "$file")"
    done 3<&0
}

# in_part PART COMMAND...: an empty part is the whole, as every part is in deep runs.
in_part() {
    if [ -n "$1" ] && [ -z "${FLEET_DEEP:-}" ]; then export FLEET_TEST_PART=$1; fi
    shift
    "$@"
}

with_engine() {
    export FLEET_TEST_ENGINE=$1
    shift
    "$@"
}

group_plan() {
    host_implementations
    host_programs < <(c_files tests/plan)
}
group_host() {
    local file
    host_implementations
    for file in $(find tests/host -name '*.sh' | sort); do # first, for they are long
        program "$(stem "$file").sh" env OUT="$out/$(stem "$file")" MODEL_FLAGS="${warnings[*]} ${stb_flags[*]-} $implementations/memory_model.o" \
            timeout -k 5 "$(stretched 900)" bash "$file"
    done
    host_programs < <(c_files tests/host tests/gpu)
}

# Searches by spin, longest first.
group_model() {
    local name long="claim end ring two_level stages"
    setup_packages spin:spin gcc:gcc
    for name in $long $(cd tests/model && printf '%s\n' *.pml | sed 's/\.pml$//' | grep -vwE "${long// /|}"); do
        program "$name" env OUT="$out" timeout -k 5 "$(stretched 600)" bash tests/model/run.sh "tests/model/$name.pml"
    done
}

example_files() { find examples -name '[0-9][0-9]_*.c' | sort; }

group_examples() {
    local file name flags
    setup_packages gcc:gcc g++:g++
    setup_stb
    flags="${warnings[*]} ${stb_flags[*]-}"
    if [ -n "${FLEET_DEEP:-}" ]; then
        check c11 env FLEET_PLATFORM=host CC=gcc CFLAGS="$flags" examples/run.sh
    else
        # In place of the script's -O2 and the decoder's -O3: to optimise takes more time than to run, but for example 07.
        check c11 env FLEET_PLATFORM=host CC=gcc CFLAGS="$flags -O0" \
            examples/run.sh $(example_files | sed '/07_/d; s|.*/||; s|\.c$||') 09_ qwen3 serve
        check c11_O1 env FLEET_PLATFORM=host CC=gcc CFLAGS="$flags -O1" examples/run.sh 07_
    fi
    # All of them are compiled as C++17 for GPUs, too (clang-19, hip, cuda); here, those that are quick.
    for file in $(example_files); do
        name=$(stem "$file")
        case ${FLEET_DEEP:+deep}:$name in :0[3578]_*) continue ;; esac
        program "cpp17/$name" example "$name" build_run "$out/$name.cpp17" \
            g++ -x c++ -std=c++17 -O1 "${warnings[@]}" -I. "${stb_flags[@]}" "$file" -pthread -lm
    done
    setup_mpi
    program processes example processes over_processes examples/11_several_devices.c
}

# over_processes FILE: the example with a process for each rank, 2 to 4 of them; they leave nothing in shared memory.
over_processes() {
    local exe=$out/processes.exe mpi=$repo/$out/mpi n
    mkdir -p "$mpi"
    mpicc -std=c11 -O1 "${warnings[@]}" -DFLEET_MPI -I. "${stb_flags[@]}" "$1" -o "$exe" -pthread -lm || return
    for n in 2 3 4; do
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$mpi \
            OMPI_MCA_btl_vader_backing_directory=$mpi timeout -k 5 "$(limit)" \
            mpirun --oversubscribe -n "$n" "$exe" || return
    done
    [ -z "$(find "$mpi" -type f)" ] || {
        echo "wrong: left in shared memory: $(find "$mpi" -type f)"
        return 1
    }
}

# example NAME COMMAND...: an example passes when it exits with 0 and has printed a line "ok: ...".
example() {
    local name=$1 log rc=0
    shift
    log=$("$@") || rc=$?
    printf '%s\n' "$log"
    case $rc:$'\n'$log in
    0:*$'\n'ok:*) echo "pass $name" ;;
    0:*) echo "FAIL $name: ended with 0 but printed no line that begins with ok:" ;;
    *) return $rc ;;
    esac
}

# The decoder on the CPU; its loader, and what a fuzzer makes of that (deep runs: a million inputs).
group_qwen3() {
    local libraries=(-pthread -lm "${qwen3_libraries[@]}") runs=20000 compiler language made file
    setup_packages gcc:gcc g++:g++ clang:clang python3:python3
    setup_stb
    setup_qwen3
    setup_mpi
    setup_fuzzer
    host_programs < <(c_files tests/qwen3 | grep -v '/fuzz\.c$')
    for compiler in clang g++ clang++; do
        case $compiler in *++) language="-x c++ -std=c++17" ;; *) language="-std=c11" ;; esac
        # As in the group compile: clang warns of nothing only while it optimises.
        case $compiler in g++) made="-O1 -c -o /dev/null" ;; *) made=-fsyntax-only ;; esac
        # shellcheck disable=SC2086
        for file in tests/qwen3/checkpoint.c examples/qwen3/qwen3.c; do
            check "$compiler/$(stem "$file")" $compiler $language $made "${warnings[@]}" -I. -Itests "${stb_flags[@]}" \
                "$file"
        done
    done
    # Each header alone; those of the GPUs' backends are their compilers' affair.
    for file in examples/qwen3/*.h examples/qwen3/host/*.h examples/qwen3/tasks/*.h; do
        case $file in */backend_amd.h | */backend_nvidia.h | */tasks/attention.h | */tasks/prefill.h) continue ;; esac # of GPUs
        check "alone/$(stem "$file")" gcc -std=c11 "${warnings[@]}" -I. "${stb_flags[@]}" -fsyntax-only -x c "$file"
    done
    program program env OUT="$out/program" FLAGS="${warnings[*]} ${stb_flags[*]-}" LIBRARIES="${qwen3_libraries[*]}" \
        timeout -k 5 "$(limit)" bash tests/qwen3/program.sh
    program ranks env OUT="$out/ranks" FLAGS="${warnings[*]} ${stb_flags[*]-}" LIBRARIES="${qwen3_libraries[*]}" \
        timeout -k 5 "$(limit)" bash tests/qwen3/ranks.sh
    [ -z "${FLEET_DEEP:-}" ] || runs=1000000
    [ -z "${FLEET_DEEP:-}" ] || program huggingface env OUT="$out/huggingface" timeout -k 5 "$(limit)" tests/qwen3/huggingface.sh
    check fuzz env OUT="$out/fuzz" FUZZ_SECONDS="$(stretched 15)" timeout -k 5 "$(limit)" tests/fuzz.sh qwen3 $runs
}

# The HTTP server, with an engine that has no model; and the decoder's engine. Deep runs: both together, and for longer.
group_serve() {
    local libraries=(-pthread -lm "${serve_libraries[@]}") load="200 1" runs=20000 compiler language file flags
    setup_packages gcc:gcc g++:g++ clang:clang python3:python3 curl:curl wrk:wrk
    setup_stb
    setup_serve
    setup_fuzzer
    [ -z "${FLEET_DEEP:-}" ] || load="2000 20" runs=1000000
    # shellcheck disable=SC2086
    program load serve_load load tests/serve/engine_test.c $load
    program program env OUT="$out/program" FLAGS="${warnings[*]} ${stb_flags[*]-}" LIBRARIES="${libraries[*]}" \
        timeout -k 5 "$(limit)" tests/serve/program.sh
    host_programs < <(c_files tests/serve | grep -vE '/(engine_test|fuzz)\.c$')
    for compiler in clang g++ clang++; do
        case $compiler in *++) language="-x c++ -std=c++17" ;; *) language="-std=c11" ;; esac
        # shellcheck disable=SC2086
        check "$compiler/serve" $compiler $language -O1 "${warnings[@]}" -c examples/serve/serve.c -o /dev/null
    done
    check g++/engine_qwen3 g++ -x c++ -std=c++17 "${warnings[@]}" -I. "${stb_flags[@]}" -fsyntax-only examples/serve/engine_qwen3.c
    [ -n "${FLEET_DEEP:-}" ] || program engine_qwen3 engine_qwen3 plain
    for file in examples/serve/*.h; do
        check "alone/$(stem "$file")" gcc -std=c11 -D_GNU_SOURCE "${warnings[@]}" -fsyntax-only -x c "$file"
    done
    check fuzz env OUT="$out/fuzz" FUZZ_SECONDS="$(stretched 15)" timeout -k 5 "$(limit)" tests/fuzz.sh serve $runs
    [ -n "${FLEET_DEEP:-}" ] || return 0
    program load_qwen3 serve_load load_qwen3 examples/serve/engine_qwen3.c 200 5
    SANITIZE=thread program load.tsan serve_load load.tsan tests/serve/engine_test.c 500 20
    for flags in asan tsan; do program "engine_qwen3.$flags" engine_qwen3 $flags; done
}
engine_qwen3() { # asan, tsan or plain
    local -n options=$1
    build_run "$out/engine_qwen3.$1.exe" gcc -std=c11 "${warnings[@]}" "${options[@]}" \
        -DENGINE_QWEN3 -I. -Itests "${stb_flags[@]}" tests/serve/engine.c "${libraries[@]}"
}

serve_load() { # NAME ENGINE CONNECTIONS SECONDS
    env OUT="$out/$1" ENGINE="$2" MODEL=tests/fixtures/qwen3-tiny FLAGS="${warnings[*]} ${stb_flags[*]-}" \
        LIBRARIES="${libraries[*]}" timeout -k 5 "$(limit)" tests/serve/load.sh "$3" "$4"
}

# ---- HIP: examples and tests/gpu, run on gfx942

gpu_files() {
    example_files
    c_files tests/gpu
}

# Whether a program is built for all architectures, and not only for the one on which it runs: those that go through
# the parts of the headers which differ.
everywhere() { # FILE
    case ${FLEET_DEEP:+deep}:$1 in deep:* | */events.c | */linear.c | */stream.c) ;; *) return 1 ;; esac
}

group_hip() {
    local file name
    hip_begin
    hip_run mkdir -p "$out"
    [ -n "${FLEET_HIP_RUNTIME:-}" ] || [ -z "$hip_runtime" ] || simulator_tests
    hip_implementation
    hip_install "${qwen3_packages[@]}"
    out=$hip_implemented ended hipcc/implementation
    for file in examples/qwen3/qwen3.c examples/serve/engine_qwen3.c $(gpu_files); do
        check "build/$(stem "$file")" hip_build "$file" "$out/$(stem "$file")"
    done
    for name in $(checkpoints); do
        ! succeeded build/qwen3 || program "$name" hip_decoder "$name"
        ! succeeded build/qwen3 || program "$name-prompts" hip_prompts "$name"
    done
    ! succeeded build/qwen3 || program prompts-of-chiplets hip_prompts_of_chiplets
    for file in $(gpu_files); do
        name=$(stem "$file")
        ! succeeded "build/$name" || program "$name" hip_seeds "$file" "$name"
    done
    for file in $(find tests/gpu -name '*.sh' 2>/dev/null | sort); do
        program "$(stem "$file")" hip_run timeout -k 5 "$(stretched 600)" bash "$file"
    done
}

# The simulator's own tests; in deep runs also its times, against published ones.
simulator_tests() {
    local target
    for target in check ${FLEET_DEEP:+check-timed}; do
        program "amdsim/$target" hip_run timeout -k 5 "$(stretched 600)" make -s -C tests/amdsim OUT="$hip_runtime" "$target"
    done
}

hip_build() { # FILE BINARY
    local archs=("${hip_archs[@]}")
    # For the others as well in the runs in which it also runs so.
    if [ -n "$hip_runtime" ] && [ -z "${FLEET_DEEP:-}" ]; then
        archs=(--offload-arch=gfx942)
        case $(hip_settings_of_this_run "$1"):$1 in
        *gfx950*:*/stream.c) archs=("${hip_archs[@]:1}") ;; # group isa compiles the pipeline for gfx90a, of its own kernels
        *gfx950*) archs=("${hip_archs[@]}") ;;
        esac
    fi
    case $1 in
    # What the host does for a small checkpoint or an example takes less time than a compiler that optimises it.
    examples/qwen3/*) hip_cc "${hip_flags[@]}" -Xarch_host -O0 "${warnings[@]}" "${archs[@]}" "$1" -o "$2" "${qwen3_libraries[@]}" ;;
    # Machine code, which is mostly the decoder's again, in deep runs only.
    examples/serve/*)
        local what=(-fsyntax-only -Wno-unused-command-line-argument) # hipcc adds arguments for a linker
        [ -z "${FLEET_DEEP:-}" ] || what=(-c -o "$2.o")
        hip_cc "${hip_flags[@]}" "${warnings[@]}" "${archs[@]}" "$1" "${what[@]}"
        ;;
    examples/*) hip_cc "${hip_flags[@]}" -Xarch_host -O0 "${warnings[@]}" "${archs[@]}" "$1" -o "$2" ;;
    *)
        if is_whole "$1"; then
            hip_cc "${hip_flags[@]}" -Xarch_host -O0 "${warnings[@]}" "${archs[@]}" -Itests "$1" -o "$2"
            return
        fi
        # What checks the results on the host takes less time than a compiler that optimises it.
        hip_cc "${hip_flags[@]}" -Xarch_host -O0 "${warnings[@]}" "${archs[@]}" -DFLEET_TEST_LINKED -Itests -c "$1" -o "$2.o" &&
            hip_cc "${archs[@]}" "$2.o" "$hip_implemented/implementation.o" -o "$2"
        ;;
    esac
}

# The decoder on a small checkpoint: schedules of which each has its own kernel or scheduler, by turns (deep runs: all), in
# another setting of the simulator each.
hip_decoder() { # CHECKPOINT
    local schedule settings n=0 some="static chiplet dynamic"
    case $1 in *moe*) some="dynamic static static" ;; esac
    [ -z "${FLEET_DEEP:-}" ] || some=$schedules
    for schedule in $some; do
        n=$((n + 1))
        [ -z "$hip_runtime" ] || in_turn $n || continue
        settings=$(hip_settings "$1" | sed -n "${n}p")
        # shellcheck disable=SC2086
        decoder_verdict "$schedule" hip_run env $settings ${hip_runtime:+"LD_LIBRARY_PATH=$hip_runtime"} \
            timeout -k 5 "$(limit)" "$out/qwen3" "$1" --check "$1/expected.json" --schedule "$schedule"
    done
}
# Prompts in chunks of these sizes, by turns, by the kernel that takes them.
hip_prompts() { # CHECKPOINT
    local rows settings n=0 some="1 7 64 256"
    case $1 in *moe*) some="7 64 256 1" ;; esac
    for rows in $some; do
        n=$((n + 1))
        [ -z "$hip_runtime" ] || in_turn $n || continue
        settings=$(hip_settings "$1" | sed -n "${n}p")
        # shellcheck disable=SC2086
        decoder_verdict "$rows" hip_prompts_taken "$1" hip_run env $settings AMDSIM_STATS=1 \
            ${hip_runtime:+"LD_LIBRARY_PATH=$hip_runtime"} timeout -k 5 "$(limit)" "$out/qwen3" "$1" --check "$1/expected.json" \
            --prefill-rows "$rows"
    done
}
# A model whose KV heads and columns can be divided among the chiplets has the same tokens as when all share the work.
hip_prompts_of_chiplets() {
    local folder=$out/chiplets prompts schedule tokens=()
    prompts=$(seq -s, 1 70 | tr -d '\n')\;$(seq -s, 3 3 390)
    hip_run mkdir -p "$folder"
    hip_run tee "$folder/config.json" >/dev/null <<'END'
{ "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 1024,
  "intermediate_size": 512, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 512,
  "max_position_embeddings": 4096, "rope_theta": 1000000.0, "rms_norm_eps": 1e-06, "hidden_act": "silu",
  "attention_bias": false, "tie_word_embeddings": false }
END
    for schedule in static unaware; do
        tokens+=("$(hip_run env ${hip_runtime:+"LD_LIBRARY_PATH=$hip_runtime"} timeout -k 5 "$(limit)" "$out/qwen3" "$folder" \
            --random-weights --prompt-ids "$prompts" --steps 3 --ignore-eos --temperature 0.7 --seed 5 \
            --schedule "$schedule" | grep '^tokens: ')")
    done
    if [ -n "${tokens[0]}" ] && [ "${tokens[0]}" = "${tokens[1]}" ]; then
        echo "pass tokens"
    else
        echo "FAIL tokens: ${tokens[0]//$'\n'/ }, and on all chiplets ${tokens[1]//$'\n'/ }"
    fi
}
# Runs a command; the simulator must tell of a launch of that kernel, which models with experts do not have.
hip_prompts_taken() { # CHECKPOINT COMMAND...
    local log rc=0
    log=$("${@:2}" 2>&1) || rc=$?
    grep -v '^ \|^amdsim:' <<<"$log" || true
    case $hip_runtime:$1 in :* | *moe*) return $rc ;; esac
    grep -q '^amdsim: .*7prefill' <<<"$log" || { echo "no kernel of its own took the prompts" && return 1; }
    return $rc
}
schedules="static chiplet dynamic auto unfused"
checkpoints() { find tests/fixtures -mindepth 1 -maxdepth 1 | sort; }
decoder_verdict() { # NAME COMMAND...
    local name=$1 log
    shift
    if log=$("$@" 2>&1); then echo "pass $name"; else echo "FAIL $name: ${log//$'\n'/ }"; fi
}

# Runs a program under many settings of the emulator, up to the first that fails. A real GPU ignores
# them and takes three runs.
hip_seeds() { # FILE NAME
    local settings base=$out/$2.run
    hip_settings_of_this_run "$1" | while read -r settings; do
        echo 0 >"$base.rc"
        # shellcheck disable=SC2086
        on_gpu "$1" "$2" hip_run env $settings ${hip_runtime:+"LD_LIBRARY_PATH=$hip_runtime"} \
            timeout -k 5 "$(limit)" "$out/$2" >"$base.log" 2>&1 </dev/null || echo $? >"$base.rc"
        verdicts "$2" "$base" >"$base.verdicts"
        if grep -q '^FAIL ' "$base.verdicts"; then
            sed "/^FAIL /s/\$/ [$settings]/" "$base.verdicts"
            grep -avE '^(pass|FAIL|skip) ' "$base.log"
            exit 1
        fi
    done && cat "$base.verdicts"
}

# Seeds 1 to 20, each with stores that stay in flight for a long and for a short time; by turns (in
# deep runs: each) with 1, 2 and 8 XCDs, in another placement, and every fourth seed with early
# evictions, stalls and late starts. Each seed runs one half of a program's settings with the one delay
# and the other half with the other (deep runs: all with both). Every fifth seed runs programs that are built
# for gfx950 too as such. Only s_waitcnt orders cache operations (AMDSIM_STRICT). Programs of which a run takes a second have
# six runs: each number of XCDs with each delay once, and with each half. Those that take longer have three: each number of
# XCDs, both delays, both halves.
hip_settings() { # FILE
    local seed delay n xcds more part seeds short=
    seeds=$(seq 20)
    case ${FLEET_DEEP:+deep}:$1 in
    deep:*) ;;
    *:examples/0[5-9]_* | *:examples/1*_* | */baseline.c | */endings.c | */events.c | */failures.c | */faults.c | */finish.c | */linear.c | */order.c | */papers.c | */plain.c | */products.c | */random.c | */room.c | */session.c | */shapes.c | */steps.c | */stream.c | */symbols.c | */tensors.c | */trace.c)
        seeds=$(seq 6) short=yes
        ;;
    esac
    case ${FLEET_DEEP:+deep}:$1 in
    deep:*) ;;
    *:examples/07_* | *:examples/10_* | */endings.c | */failures.c | */finish.c | */pools.c | */server.c | */shapes.c | */steps.c | */stream.c | */symbols.c | */tensors.c) seeds="2 4 5" short=yes ;;
    esac
    [ -n "$hip_runtime" ] || seeds="1 2 3"
    for seed in $seeds; do
        more=
        if [ $((seed % 5)) = 0 ] && everywhere "$1"; then more=" AMDSIM_ARCH=gfx950"; fi
        [ $((seed % 4)) != 2 ] || more="$more AMDSIM_EVICT=200 AMDSIM_STALL=20 AMDSIM_SKEW=20"
        for delay in 3 20; do
            [ -z "$short" ] || [ $(((seed + delay) % 2)) = 0 ] || continue
            for n in 0 1 2; do
                [ -n "${FLEET_DEEP:-}" ] || [ $(((seed + delay) % 3)) = $n ] || continue
                case $n in 0) xcds="1 AMDSIM_CUS=7" ;; 1) xcds="2 AMDSIM_CUS=4" ;; 2) xcds="8 AMDSIM_CUS=3" ;; esac
                part=
                [ -n "${FLEET_DEEP:-}" ] || part=" FLEET_TEST_PART=$(((seed / 2 + seed + delay) % 2))"
                echo "AMDSIM_STRICT=1 AMDSIM_SEED=$seed AMDSIM_DELAY=$delay AMDSIM_XCDS=$xcds AMDSIM_XCD_MAP=rotate:$((seed % 8))$more$part"
            done
        done
    done
}

# On a simulator a run has a third of a program's settings, that of the next program another one: successive ones, which have
# both delays and both halves where there are enough of them.
hip_settings_of_this_run() { # FILE
    local turn=0 settings
    settings=$(hip_settings "$1")
    if [ -n "$hip_runtime" ] && by_turns; then
        turn=$(gpu_files | grep -nxF "$1")
        awk -v third=$(((FLEET_TEST_THIRD + ${turn%%:*}) % 3)) '{ line[NR] = $0 }
            END { for (i = int(NR * third / 3) + 1; i <= int(NR * (third + 1) / 3); i++) print line[i] }' <<<"$settings"
    else
        echo "$settings"
    fi
}

on_gpu() { # FILE NAME COMMAND...
    local file=$1 name=$2
    shift 2
    case $file in examples/*) example "$name" "$@" ;; *) "$@" ;; esac
}

group_cuda() {
    local file name n=0 arch decoder_arch=-gencode=arch=compute_90a,code=sm_90a
    have_nvcc || {
        skip nvcc "needs nvcc"
        return 0
    }
    setup_stb
    cuda_implementation
    setup_serve
    setup_packages python3:python3
    program order timeout -k 5 "$(stretched 600)" python3 -B tests/isa/nvidia.py
    out=$cuda_implemented ended nvcc/implementation
    # wgmma is there for 9.0a only.
    case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null) in 9.0*) ;; [1-9]*) decoder_arch=-arch=native ;; esac
    for file in examples/qwen3/qwen3.c examples/serve/serve.c $(gpu_files); do
        # The server has the decoder's kernels, which take a minute. hipcc checks it in any case.
        case ${FLEET_DEEP:+deep}:$file in :examples/serve/*) nvidia-smi -L >/dev/null 2>&1 || continue ;; esac
        n=$((n + 1))
        cuda_in_turn $n || continue
        check "build/$(stem "$file")" cuda_build "$file" "$out/$(stem "$file")"
    done
    [ -z "${FLEET_DEEP:-}" ] || decoder_arch=-arch=sm_80 check build/qwen3_sm_80 cuda_build examples/qwen3/qwen3.c "$out/qwen3_sm_80"
    [ -z "${FLEET_DEEP:-}" ] || check build/qwen3_ranks cuda_build examples/qwen3/qwen3.c "$out/qwen3_ranks" -DFLEET_IPC
    for file in examples/qwen3/backend_nvidia.h examples/qwen3/nvidia/*.h; do
        n=$((n + 1))
        in_turn $n || continue
        for arch in sm_90a sm_86; do # rings of 24 and of 8 stages
            check "alone/$(stem "$file")/$arch" nvcc -x cu -std=c++17 -arch=$arch -Werror all-warnings -I. "${stb_flags[@]}" -ptx "$file" -o /dev/null
        done
    done
    check one_ring one_ring
    ! cuda_in_turn 1 || ended build/qwen3
    [ $decoder_arch = -arch=native ] || ! cuda_in_turn 1 || check registers cuda_registers "$out/build/qwen3.log"
    ! cuda_in_turn 1 || check registers_of_ranks cuda_registers_of_ranks
    ! cuda_in_turn 2 || check registers_of_server cuda_registers_of_server
    ! cuda_in_turn 1 || check registers_of_bench cuda_registers_of_bench
    nvidia-smi -L >/dev/null 2>&1 || {
        skip run "needs an NVIDIA GPU"
        return 0
    }
    # However few rows there are, with what multiplies many.
    check build/qwen3_large_m cuda_build examples/qwen3/qwen3.c "$out/qwen3_large_m" -DSMALL_M_ROWS=0u
    ended build/qwen3_large_m
    local jobs=1 # two programs that fill the GPU would wait for one another's workgroups
    for name in $(checkpoints); do
        ! succeeded build/qwen3 || program "$name" cuda_decoder qwen3 "$name" "$schedules"
        ! succeeded build/qwen3_large_m || program "$name" cuda_decoder qwen3_large_m "$name" static
        ! succeeded build/qwen3 || program "$name-prompts" cuda_prompts qwen3 "$name"
        ! succeeded build/qwen3_large_m || program "$name-prompts-large-m" cuda_prompts qwen3_large_m "$name"
    done
    for file in $(gpu_files); do
        name=$(stem "$file")
        ! succeeded "build/$name" ||
            program "$name" on_gpu "$file" "$name" timeout -k 5 "$(limit)" "$out/$name"
    done
    command -v compute-sanitizer >/dev/null || {
        skip sanitizer "needs compute-sanitizer, and a GPU that it supports"
        return 0
    }
    for name in memcheck synccheck racecheck; do
        for file in $(gpu_files); do
            case $name:$file in
            *:examples/0*) sanitized "$name" "$(stem "$file")" ;;
            racecheck:*/ring.c | racecheck:*/events.c) sanitized "$name" "$(stem "$file")" ;;
            racecheck:*) ;; # knows barriers alone (tests/README.md)
            *:*/stream.c) sanitized "$name" stream stages_left_unread ;;
            esac
        done
    done
}
sanitized() { # TOOL PROGRAM [TEST]
    ! succeeded "build/$2" ||
        check "$1/$2" timeout -k 5 "$(limit)" compute-sanitizer --tool "$1" --launch-count 400 --error-exitcode 99 "$out/$2" "${@:3}"
}

# A program of the decoder for GPUs with rings of different sizes is refused, and one for sm_90 and sm_90a is not.
one_ring() {
    local ring=(nvcc -x cu -std=c++17 -gencode "arch=compute_90a,code=sm_90a" -I. "${stb_flags[@]}" -fatbin examples/qwen3/nvidia/pipeline.h -o /dev/null)
    "${ring[@]}" -gencode "arch=compute_90,code=sm_90" || return 1
    "${ring[@]}" -gencode "arch=compute_80,code=sm_80" 2>&1 | grep 'error "The rings differ in size'
}

# The decoder's kernels for STATIC plans keep everything in registers, and ptxas makes no wgmma wait for the one before. The
# kernel of the other schedules, whose loop has more state beside the same tiles, spills at most 256 bytes, stores and loads
# together; those that take prompts some 1,600 for each kind of product, of which the one of models with experts has two. None
# has more static LDS than kernels_fit_in_lds (kernels.h) leaves to it.
cuda_registers() { # LOG
    local kernel bytes
    for kernel in 13decode_static:0 14decode_large_m:0 14decode_experts:0 6decode:256 7prefill:1600 15prefill_experts:3410; do
        bytes=$(grep -A2 "_Z${kernel%:*}9.* for 'sm_90a'" "$1" | sed -n 's/.* \([0-9]*\) bytes spill stores, \([0-9]*\) bytes spill loads.*/\1 + \2/p')
        echo "${kernel%:*} spills ${bytes:-an unknown number of} bytes"
        [ -n "$bytes" ] && [ $((bytes)) -le "${kernel#*:}" ] || return 1
    done
    bytes=$(sed -n 's/.* \([0-9]*\) bytes smem.*/\1/p' "$1" | sort -n | tail -n 1)
    echo "at most $bytes bytes of static LDS"
    [ "$bytes" -le 2048 ] && ! grep -E "wgmma.*serialized" "$1"
}

# Nor does the kernel for many rows spill where it exchanges sums with other ranks.
cuda_registers_of_ranks() {
    local source=$out/ranks.cu
    printf '%s\n' '#include "examples/qwen3/task_sets.h"' \
        'FLEET_KERNEL(decode_large_m, large_m, THREADS) { FLEET_STATIC_WORKER_LOOP(large_m); }' >"$source"
    nvcc "${cuda_flags[@]}" -gencode=arch=compute_90a,code=sm_90a --resource-usage -DFLEET_IPC -I. "${stb_flags[@]}" -cubin "$source" \
        -o "$out/ranks.cubin" 2>&1 | grep -A2 "Function properties for _Z14decode_large_m" | tee "$out/ranks.log"
    grep " 0 bytes spill stores, 0 bytes spill loads" "$out/ranks.log"
}

# The server's kernel for long chunks spills some 2,000 bytes.
cuda_registers_of_server() {
    local source=$out/server.cu bytes
    printf '%s\n' '#include "examples/qwen3/task_sets.h"' \
        'FLEET_KERNEL(serve_wide, served_wide, PREFILL_THREADS) { FLEET_STATIC_WORKER_LOOP(served_wide); }' >"$source"
    nvcc "${cuda_flags[@]}" -gencode=arch=compute_90a,code=sm_90a --resource-usage -I. "${stb_flags[@]}" -cubin "$source" \
        -o "$out/server.cubin" >"$out/server.log" 2>&1
    bytes=$(grep -A2 "_Z10serve_wide9.* for 'sm_90a'" "$out/server.log" | sed -n 's/.* \([0-9]*\) bytes spill stores, \([0-9]*\) bytes spill loads.*/\1 + \2/p')
    echo "serve_wide spills ${bytes:-an unknown number of} bytes"
    [ -n "$bytes" ] && [ $((bytes)) -le 2050 ] && ! grep -E "wgmma.*serialized" "$out/server.log"
}

# Nor does the kernel of the benchmark over several devices, whose tile is for 9.0a. On such a GPU it is run, too.
cuda_registers_of_bench() {
    nvcc "${cuda_flags[@]}" -gencode=arch=compute_90a,code=sm_90a --resource-usage -I. "${stb_flags[@]}" tests/bench/devices.c \
        -o "$out/devices" 2>&1 | tee "$out/bench.log"
    grep -A1 "Function properties for _Z12bench_kernel" "$out/bench.log" | grep " 0 bytes spill stores, 0 bytes spill loads" &&
        ! grep -E "wgmma.*serialized" "$out/bench.log" || return
    case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null) in 9.0*) ;; *) return 0 ;; esac
    FLEET_VIRTUAL=1 timeout -k 5 "$(limit)" "$out/devices" --ranks 3 --tokens 399 --columns 136 --depth 72
}

cuda_decoder() { # PROGRAM CHECKPOINT SCHEDULES
    local schedule
    for schedule in $3; do
        decoder_verdict "$1/$schedule" timeout -k 5 "$(limit)" "$out/$1" "$2" --check "$2/expected.json" --schedule "$schedule"
    done
}

# Prompts in chunks of these sizes, by the kernel that takes them.
cuda_prompts() { # PROGRAM CHECKPOINT
    local rows
    for rows in 1 7 64 2048; do
        decoder_verdict "$1/$rows" timeout -k 5 "$(limit)" "$out/$1" "$2" --check "$2/expected.json" --prefill-rows "$rows"
    done
}

# Without a GPU, what is compiled alone is so by turns. The decoder is the first.
cuda_in_turn() { in_turn "$1" || nvidia-smi -L >/dev/null 2>&1; }

# Whether a program only becomes PTX: to assemble what cannot run, and to compile its host's side once more, takes as long again.
is_ptx() { # FILE
    ! everywhere "$1" || return 1
    case $1 in examples/0[12]_* | examples/qwen3/* | examples/serve/*) return 1 ;; esac
    ! nvidia-smi -L >/dev/null 2>&1
}

cuda_build() { # FILE BINARY [OPTION...]
    local archs=("${cuda_archs[@]}")
    if ! nvidia-smi -L >/dev/null 2>&1 && everywhere "$1"; then
        # The older architecture's PTX is not assembled.
        [ -n "${FLEET_DEEP:-}" ] || archs=("${cuda_archs[0]/code=sm/code=compute}" "${cuda_archs[1]}")
    elif ! nvidia-smi -L >/dev/null 2>&1; then
        archs=("${cuda_archs[1]}")
    fi
    if is_ptx "$1"; then
        nvcc "${cuda_flags[@]}" "${archs[@]}" -DFLEET_TEST_LINKED -I. -Itests "${stb_flags[@]}" -ptx "$1" -o "$2.ptx"
        return
    fi
    case $1 in
    # For one architecture alone, whose ring it has (nvidia/pipeline.h); -arch=sm_90a would compile it for compute_90 too.
    examples/qwen3/*) nvcc "${cuda_flags[@]}" "$decoder_arch" --resource-usage -I. "${stb_flags[@]}" "$1" -o "$2" "${@:3}" "${qwen3_libraries[@]}" ;;
    examples/serve/*)
        nvcc "${cuda_flags[@]}" "$decoder_arch" -I. "${stb_flags[@]}" "$1" examples/serve/engine_qwen3.c -o "$2" "${serve_libraries[@]}"
        ;;
    examples/*) nvcc "${cuda_flags[@]}" "${archs[@]}" -I. "${stb_flags[@]}" "$1" -o "$2" ;;
    *)
        if is_whole "$1"; then
            nvcc "${cuda_flags[@]}" "${archs[@]}" -I. -Itests "${stb_flags[@]}" "$1" -o "$2"
            return
        fi
        nvcc "${cuda_flags[@]}" "${archs[@]}" -DFLEET_TEST_LINKED -I. -Itests "${stb_flags[@]}" -c "$1" -o "$2.o" &&
            nvcc "${archs[@]}" "$2.o" "$cuda_implemented/implementation.o" -o "$2"
        ;;
    esac
}

group_isa() {
    hip_begin
    hip_simulator
    hip_run sh -c 'command -v python3' >/dev/null || hip_install python3
    hip_install "${qwen3_packages[@]}"
    program check hip_run timeout -k 5 "$(stretched 1200)" bash tests/isa/check.sh "$out/listings"
    program mutants hip_run timeout -k 5 "$(stretched 1200)" bash tests/isa/mutate.sh
    ended check # which leaves the listings; without them wait_states.py compiles what it checks
    program wait_states hip_run timeout -k 5 "$(stretched 1200)" python3 -B tests/isa/wait_states.py "$out/listings"
}

# ---- the single file, and the README

group_amalgamated() {
    setup_packages gcc:gcc g++:g++
    setup_stb
    check deterministic amalgamate_twice
    ended deterministic
    example_files | head -n 1 | while read -r file; do
        sed 's/#include "\(fleet\|fleet_device\|fleet_sched\)\.h"/#include "fleet_all.h"/' "$file"
    done >"$out/first.c"
    program c11 example first build_run "$out/first.c11" \
        gcc -std=c11 -O2 "${warnings[@]}" "-I$out" "$out/first.c" -pthread -lm
    program cpp17 example first build_run "$out/first.cpp17" \
        g++ -x c++ -std=c++17 -O2 "${warnings[@]}" "-I$out" "$out/first.c" -pthread -lm
}

amalgamate_twice() {
    ./amalgamate.sh "$out/fleet_all.h" && ./amalgamate.sh "$out/again.h" &&
        cmp "$out/fleet_all.h" "$out/again.h" && ! grep -E '^#include "fleet|^#.*__has_include.*stb_ds' "$out/fleet_all.h"
}

# Links, pictures and the CMake project of the pages. Each block "```c" of README.md: a program where it has a main,
# which must run and exit with 0; otherwise declarations that must compile after the headers. A block that begins with
# the line "/* fragment */" is neither.
group_readme() {
    local file name
    setup_packages gcc:gcc g++:g++ cmake:cmake make:make python3:python3
    setup_stb
    check pages python3 -B tests/pages.py
    program cmake env OUT="$out/cmake" timeout -k 5 "$(limit)" bash tests/cmake.sh
    awk -v dir="$out" '
        /^```c$/ { n++; file = sprintf("%s/%02d.c", dir, n); next }
        /^```/ { file = "" }
        file { print > file }' README.md
    for file in "$out"/*.c; do
        [ -e "$file" ] || continue
        name=block_$(stem "$file")
        if head -n 1 "$file" | grep -q '^/\* fragment \*/'; then continue; fi
        if grep -q 'int main(' "$file"; then
            check "$name" build_run "$out/$name" gcc -std=c11 -O2 "${warnings[@]}" -I. "${stb_flags[@]}" "$file" -pthread -lm
        else
            check "$name" gcc -std=c11 "${warnings[@]}" -Wno-unused -include fleet_sched.h -I. "${stb_flags[@]}" -c "$file" -o /dev/null
        fi
    done
}

# ---- which of them ------------------------------------------------------------------------------

wanted=
for word; do
    case " $groups " in
    *" $word "*) wanted="$wanted $word" ;;
    *)
        case $word in
        deep) export FLEET_DEEP=1 ;;
        strict) strict=strict ;;
        *) die "unknown group: $word (there are: $groups; and the words deep, strict)" ;;
        esac
        ;;
    esac
done

# Of some jobs a run has a third, by turns from commit to commit, and a deep run has all (tests/README.md).
export FLEET_TEST_THIRD=${FLEET_TEST_THIRD-$(($(git rev-list --count HEAD 2>/dev/null || echo 0) % 3))}

trap hip_leave EXIT
mkdir -p tests/build
exec 9>>tests/build/lock
flock 9 # two runs in one folder take turns
unfinished=
for name in ${wanted:-$groups}; do
    case $name in compile | hip | isa)
        if ! hip_is_native && may_be_root; then hip_early; fi
        break
        ;;
    esac
done
for name in ${wanted:-$groups}; do
    begin "$name"
    "group_$name"
done
wait
for name in $unfinished; do finish "$name"; done
printf '%d passed, %d failed' $passed $failed
[ $skipped = 0 ] || printf ', %d skipped' $skipped
printf '\n'
[ $failed = 0 ]
