#!/usr/bin/env bash
# What jobs do that is more than one command: tests/jobs.sh FUNCTION ARGUMENT... calls a function of this file or of setup.sh.
# Run by tests/run.py, which sets `out`, the folder of the job's group, WARNINGS, and TESTS, the tests that are wanted (default:
# all of a program).
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=tests/setup.sh
. tests/setup.sh
hip_found=tests/build/found # where hip_begin writes what it has found
# shellcheck source=/dev/null
[ ! -e "$hip_found" ] || . "$hip_found"
read -ra warnings <<<"${WARNINGS:-}"
read -ra wanted_tests <<<"${TESTS:-}"
[ -z "${STB_DS:-}" ] || stb_flags=("-I$(cd "$(dirname "$STB_DS")" && pwd)")
out=${out:-tests/build/by_hand}
objects=tests/build/objects

stem() { basename "${1%.*}"; }

# set_up WORD...: finds or installs what jobs need: stb, qwen3, serve, mpi, fuzzer, or a package whose command has its name.
set_up() {
    local word
    for word; do
        case $word in
        stb | qwen3 | serve | mpi | fuzzer) "setup_$word" ;;
        *) setup_packages "$word:$word" ;;
        esac
    done
}

# ---- programs on the CPU --------------------------------------------------------------------------

# build_run EXE COMPILER...: compiles, then runs, with the words of $ARGUMENTS.
build_run() {
    local exe=$1 fixed_addresses='' arguments
    shift
    read -ra arguments <<<"${ARGUMENTS:-}"
    "$@" -o "$exe" || {
        echo "FAIL build: does not compile"
        return 1
    }
    # ThreadSanitizer of older compilers cannot place its shadow where addresses are much randomised.
    if setarch -R true 2>/dev/null; then fixed_addresses=yes; fi
    # Each launch has new threads and frees its memory: with small stacks glibc keeps those for the next launch, and its heap
    # what is freed, where otherwise the kernel clears their pages again.
    ulimit -Ss 1024
    export GLIBC_TUNABLES=glibc.pthread.stack_cache_size=1073741824
    GLIBC_TUNABLES+=:glibc.malloc.trim_threshold=1073741824:glibc.malloc.mmap_threshold=1073741824
    ${fixed_addresses:+setarch -R} "$exe" ${arguments[@]+"${arguments[@]}"} ${wanted_tests[@]+"${wanted_tests[@]}"}
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

# over_processes FILE: the example with a process for each rank, 2 to 4 of them; they leave nothing in shared memory.
over_processes() {
    local exe=$out/processes.exe mpi=$repo/$out/mpi n
    mkdir -p "$mpi"
    mpicc -std=c11 -O1 "${warnings[@]}" -DFLEET_MPI -I. "${stb_flags[@]}" "$1" -o "$exe" -pthread -lm || return
    for n in 2 3 4; do
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$mpi \
            OMPI_MCA_btl_vader_backing_directory=$mpi mpirun --oversubscribe -n "$n" "$exe" || return
    done
    [ -z "$(find "$mpi" -type f)" ] || {
        echo "wrong: left in shared memory: $(find "$mpi" -type f)"
        return 1
    }
}

# ---- headers --------------------------------------------------------------------------------------

# edges FILE...: each edge of their tables (EDGES) is named at both of its ends in the code. No two have the same number.
edges() {
    local edge last='' n=0 ends
    ends=$(sed -s '/^   EDGES$/,/^   ERRORS$/d' "$@" | tr -s '\n *' ' ' |
        grep -oE 'edges? [0-9]+((, | and )[0-9]+)*(, both ends)?' | sed -E 's/edge ([0-9]+), both ends/\1 \1/' | grep -oE '[0-9]+')
    # shellcheck disable=SC2013
    for edge in $(sed -nsE '/^   EDGES$/,/^   LOOPS$/s/^ {7,8}([0-9]+) .*/\1/p' "$@" | sort -n); do
        [ "$edge" != "$last" ] || {
            echo "there are two edges $edge"
            return 1
        }
        last=$edge n=$((n + 1))
        [ "$(grep -cx "$edge" <<<"$ends")" -ge 2 ] || {
            echo "edge $edge has less than two ends in the code"
            return 1
        }
    done
    [ $n -ge 20 ] # else the table was not found
}

# The subjects of the last commits, since a tag where there is one, have at most 72 characters, but for one that stands.
subjects() {
    local since long
    since=$(git describe --tags --abbrev=0 2>/dev/null) || since=
    long=$(git log -n 50 --format='%h %s' ${since:+"$since.."} | grep -v '^1a12af6' | grep -E '^[^ ]+ .{73}') || return 0
    echo "longer than 72 characters: $long"
    return 1
}

# stb_copy FILE COMPILER...: compiles with a stb_ds.h that is no system header.
stb_copy() {
    local dir=$out/stb_$BASHPID
    mkdir -p "$dir"
    cp "${STB_DS:-/usr/include/stb/stb_ds.h}" "$dir/stb_ds.h"
    "${@:2}" -I. "-I$dir" -c "$1" -o "$dir/implementation.o"
}

# two_units NAME COMPILER COMPILER: one file holds the implementation, another uses it.
two_units() {
    local dir=$out/two_units_$1 one=(-std=c11) two=(-std=c11)
    [ "$2" != g++ ] || one=(-x c++ -std=c++17)
    [ "$3" != g++ ] || two=(-x c++ -std=c++17)
    mkdir -p "$dir"
    "$2" "${one[@]}" "${warnings[@]}" -I. "${stb_flags[@]}" -c "$out/impl_fleet_sched.c" -o "$dir/implementation.o" &&
        "$3" "${two[@]}" "${warnings[@]}" -I. "${stb_flags[@]}" -c "$out/user.c" -o "$dir/user.o" &&
        g++ "$dir/implementation.o" "$dir/user.o" -pthread -lm -o "$dir/program" && "$dir/program"
}

# Twice the same bytes, in a file that all users may read and that includes nothing that is inside; at last with parts.
amalgamate_twice() {
    local words
    umask 022
    for words in "" "--with server,trace"; do
        rm -f "$out/fleet_all.h"
        # shellcheck disable=SC2086
        [ "$(./amalgamate.sh $words "$out/fleet_all.h")" = "$out/fleet_all.h" ] &&
            [ "$(stat -c %a "$out/fleet_all.h")" = 644 ] && ./amalgamate.sh $words "$out/again.h" &&
            cmp "$out/fleet_all.h" "$out/again.h" &&
            ! grep -E '^#include "fleet|^#.*__has_include.*stb_ds' "$out/fleet_all.h" || return
    done
}

amalgamate_nothing() { # unknown parts
    local text
    ! text=$(./amalgamate.sh --with server,unknown "$out/none.h" 2>&1) &&
        grep -q "no part is called 'unknown'; there are: .*server .*trace" <<<"$text" && [ ! -e "$out/none.h" ]
}

# Whether a program is built for all architectures, and not only for the one on which it runs: those that go through
# the parts of the headers which differ.
everywhere() { # FILE
    case ${FLEET_DEEP:+deep}:$1 in deep:* | */events.c | */linear.c | */stream.c) ;; *) return 1 ;; esac
}

on_gpu() { # FILE NAME COMMAND...
    case $1 in examples/*) example "${@:2}" ;; *) "${@:3}" ${wanted_tests[@]+"${wanted_tests[@]}"} ;; esac
}

decoder_verdict() { # NAME COMMAND...
    local name=$1 log
    shift
    if log=$("$@" 2>&1); then echo "pass $name"; else echo "FAIL $name: ${log//$'\n'/ }"; fi
}

# ---- hipcc ----------------------------------------------------------------------------------------

hip_flags=(-x hip -std=c++17 -O2)
hip_archs=(--offload-arch=gfx90a --offload-arch=gfx942 --offload-arch=gfx950)

# Finds hipcc and what HIP programs run on, or installs them, which takes minutes, mostly of waiting.
hip_begin() {
    hip_setup
    hip_device
    hip_install python3 "${qwen3_packages[@]}"
    hip_run mkdir -p $objects tests/build/compile tests/build/hip
    # What clang 19 takes for ROCm: the HIP headers are hipcc's, and its device libraries are not packaged.
    rm -rf tests/build/rocm
    mkdir -p tests/build/rocm/include tests/build/rocm/share/hip
    local path
    for path in "$hip_root/usr/include" /opt/rocm/include /usr/include; do
        [ ! -e "$path/hip/hip_runtime.h" ] || break
    done
    ln -s "$path/hip" tests/build/rocm/include/hip
    printf 'HIP_VERSION_MAJOR=6\nHIP_VERSION_MINOR=4\nHIP_VERSION_PATCH=0\n' >tests/build/rocm/share/hip/version
    declare -p hip_mode hip_root hip_tree hip_runtime hip_llvm hip_enter >"$hip_found"
}

# hipcc, at the top of the sources where it is; a root has a stb_ds.h of its own.
hip_cc() {
    local own=()
    [ "$hip_mode" = root ] || own=("${stb_flags[@]}")
    hip_run hipcc -I. "${own[@]}" "$@"
}

hip_write() { hip_run tee "$1" >/dev/null; } # FILE: from standard input, where hipcc is

# The implementation for all architectures, which the programs of the group hip share.
hip_implementation() { # PART...
    { echo '#define FLEET_IMPLEMENTATION' && printf '#include "%s"\n' fleet_sched.h "$@"; } | hip_write $objects/hip.c
    hip_cc "${hip_flags[@]}" "${warnings[@]}" "${hip_archs[@]}" -c $objects/hip.c -o $objects/hip.o
}

hip_header() { # HEADER ARCHITECTURE: compiles the header alone, with the implementation
    local source=$out/hip_${1##*/}_$2.c
    printf '#define FLEET_IMPLEMENTATION\n#include "%s.h"\n' "$1" | hip_write "$source"
    hip_syntax "$source" "$2"
}

hip_syntax() { # FILE ARCHITECTURE
    hip_cc "--offload-arch=$2" "${hip_flags[@]}" "${warnings[@]}" "$1" -fsyntax-only -Wno-unused-command-line-argument # for a linker
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
    hip_program AMDSIM_XCDS=2 AMDSIM_CUS=16 "$exe"
}

# Another compiler. It stops before the link; of the host's side it says what it thinks of the source.
clang19() { # FILE
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

# ---- programs on gfx942 ---------------------------------------------------------------------------

# hip_program [SETTING=VALUE...] PROGRAM [ARGUMENT...]
hip_program() { hip_run env ${hip_runtime:+"LD_LIBRARY_PATH=$hip_runtime"} "$@"; }

hip_simulator_test() { hip_run make -s -C tests/amdsim OUT="$hip_runtime" "$1"; } # TARGET

isa() { # COMMAND...: with the simulator, whatever GPU is here
    [ -n "$hip_runtime" ] || hip_simulator
    hip_run "$@"
}

wait_states() { # LISTINGS: those that the check leaves; without them it compiles what it checks
    local listings=()
    ! hip_run test -d "$1" || listings=("$1")
    isa python3 -B tests/isa/wait_states.py ${listings[@]+"${listings[@]}"}
}

hip_build() { # FILE BINARY
    local archs=("${hip_archs[@]}") build
    if [ -n "$hip_runtime" ] && [ -z "${FLEET_DEEP:-}" ]; then
        case $1 in
        */stream.c) archs=("${hip_archs[@]:1}") ;; # group isa compiles the pipeline for gfx90a, of its own kernels
        *) everywhere "$1" || archs=(--offload-arch=gfx942) ;;
        esac
    fi
    # What the host does for a small checkpoint or an example takes less time than a compiler that optimises it.
    build=("${hip_flags[@]}" -Xarch_host -O0 "${warnings[@]}" "${archs[@]}")
    case $1:$WHOLE in
    examples/qwen3/*) hip_cc "${build[@]}" "$1" -o "$2" "${qwen3_libraries[@]}" ;;
    # Machine code, which is mostly the decoder's again, in deep runs only.
    examples/serve/*)
        local what=(-fsyntax-only -Wno-unused-command-line-argument) # hipcc adds arguments for a linker
        [ -z "${FLEET_DEEP:-}" ] || what=(-c -o "$2.o")
        hip_cc "${hip_flags[@]}" "${warnings[@]}" "${archs[@]}" "$1" "${what[@]}"
        ;;
    *:yes) hip_cc "${build[@]}" -Itests "$1" -o "$2" ;;
    *) hip_cc "${build[@]}" -DFLEET_TEST_LINKED -Itests -c "$1" -o "$2.o" && hip_cc "${archs[@]}" "$2.o" $objects/hip.o -o "$2" ;;
    esac
}

# The decoder on a small checkpoint, in the N-th setting of the simulator.
hip_decoder() { # CHECKPOINT N SCHEDULE
    local settings
    settings=$(hip_settings "$1" | sed -n "${2}p")
    # shellcheck disable=SC2086
    hip_program $settings "$out/qwen3" "$1" --check "$1/expected.json" --schedule "$3"
}
# Prompts in chunks of so many rows, by the kernel that takes them.
hip_prompts() { # CHECKPOINT N ROWS
    local settings
    settings=$(hip_settings "$1" | sed -n "${2}p")
    # shellcheck disable=SC2086
    hip_prompts_taken "$1" hip_program $settings AMDSIM_STATS=1 "$out/qwen3" "$1" --check "$1/expected.json" --prefill-rows "$3"
}
# A model whose KV heads and columns can be divided among the chiplets has the same tokens as when all share the work.
hip_prompts_of_chiplets() {
    local folder=$out/chiplets prompts schedule tokens=()
    prompts=$(seq -s, 1 70 | tr -d '\n')\;$(seq -s, 3 3 390)
    hip_run mkdir -p "$folder"
    hip_write "$folder/config.json" <<'END'
{ "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 1024,
  "intermediate_size": 512, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 512,
  "max_position_embeddings": 4096, "rope_theta": 1000000.0, "rms_norm_eps": 1e-06, "hidden_act": "silu",
  "attention_bias": false, "tie_word_embeddings": false }
END
    for schedule in static unaware; do
        tokens+=("$(hip_program "$out/qwen3" "$folder" --random-weights --prompt-ids "$prompts" --steps 3 --ignore-eos \
            --temperature 0.7 --seed 5 --schedule "$schedule" | grep '^tokens: ')")
    done
    if [ -n "${tokens[0]}" ] && [ "${tokens[0]}" = "${tokens[1]}" ]; then
        echo "pass tokens"
    else
        echo "FAIL tokens: ${tokens[0]//$'\n'/ }, and on all chiplets ${tokens[1]//$'\n'/ }"
    fi
}
hip_build_served() {
    hip_cc "${hip_flags[@]}" -Xarch_host -O0 "${warnings[@]}" --offload-arch=gfx942 ${hip_runtime:+-DQUICK} -Itests \
        tests/qwen3/serving.c -o "$out/serving" "${qwen3_libraries[@]}"
}
# One of the decoder's servers.
hip_served() { # N TEST
    local settings
    settings=$(RUNS=6 hip_settings tests/qwen3/serving.c | sed -n "${1}p")
    # shellcheck disable=SC2086
    hip_program $settings AMDSIM_XCDS=2 AMDSIM_CUS=3 "$out/serving" "$2"
}
# More sequences than steps of the other kernel have rows: the same tokens as when they decode in rounds.
hip_many_sequences() {
    local prompts="1,2,3,4,5,6,7,8,9,10,11;7,8;$(seq -s, 9 30);5;100,101,102" schedule log tokens=()
    for schedule in static unaware; do
        log=$(hip_program AMDSIM_XCDS=2 AMDSIM_CUS=4 AMDSIM_STATS=1 "$out/qwen3" tests/fixtures/qwen3-tiny --batch 70 \
            --prompt-ids "$prompts" --steps 4 --ignore-eos --schedule "$schedule" 2>&1)
        tokens+=("$(grep '^tokens: ' <<<"$log")")
        case $hip_runtime:$schedule in :* | *:unaware) continue ;; esac
        ! grep -q '^amdsim: .*_ZL6decode' <<<"$log" || echo "FAIL kernel: they decoded in rounds"
    done
    if [ "$(grep -c '^tokens: ' <<<"${tokens[0]}")" = 70 ] && [ "${tokens[0]}" = "${tokens[1]}" ]; then
        echo "pass tokens"
    else
        echo "FAIL tokens: ${tokens[0]//$'\n'/ }, and in rounds ${tokens[1]//$'\n'/ }"
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

# Runs a program under many settings of the emulator, up to the first that fails, and prints the lines of the last run. A real
# GPU ignores them and takes three runs.
hip_seeds() { # FILE NAME
    local settings base=$out/$2.run
    hip_settings "$1" | while read -r settings; do
        rc=0
        # shellcheck disable=SC2086
        on_gpu "$1" "$2" hip_program $settings "$out/$2" >"$base.log" 2>&1 </dev/null || rc=$?
        if [ $rc = 0 ] && grep -qaE '^(pass|skip) ' "$base.log" && ! grep -qa '^FAIL ' "$base.log"; then continue; fi
        sed "/^FAIL /s/\$/ [$settings]/" "$base.log"
        [ $rc -lt 124 ] && grep -qa '^FAIL ' "$base.log" || echo "FAIL $2: ended with status $rc after $(grep -c '^pass ' "$base.log") tests [$settings]"
        exit 1
    done && cat "$base.log"
}

# Seeds 1 to 20, each with stores that stay in flight for a long and for a short time; by turns (in
# deep runs: each) with 1, 2 and 8 XCDs, in another placement, and every fourth seed with early
# evictions, stalls and late starts. Each seed runs one half of a program's settings with the one delay
# and the other half with the other (deep runs: all with both). Every fifth seed runs programs that are built
# for gfx950 too as such. Only s_waitcnt orders cache operations (AMDSIM_STRICT). Programs of which a run takes a second have
# six runs ($RUNS): each number of XCDs with each delay once, and with each half. Those that take longer have three: each number
# of XCDs, both delays, both halves.
hip_settings() { # FILE
    local seed delay n xcds more part seeds short=
    case ${FLEET_DEEP:+deep}:${RUNS:-40} in
    :6) seeds=$(seq 6) short=yes ;;
    :3) seeds="2 4 5" short=yes ;;
    *) seeds=$(seq 20) ;;
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

# ---- nvcc -----------------------------------------------------------------------------------------

# -O1 is for the host's side; the device's is optimised whatever stands here.
cuda_flags=(-x cu -std=c++17 -O1 -Werror all-warnings -Xcompiler "-Wall,-Wextra,-Wconversion")
cuda_archs=("-gencode=arch=compute_80,code=sm_80" "-gencode=arch=compute_90,code=sm_90")
sm_90a=-gencode=arch=compute_90a,code=sm_90a

has_gpu() { nvidia-smi -L >/dev/null 2>&1; }
has_sm_90() { case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null) in 9.0*) ;; *) return 1 ;; esac }

# The architecture that the decoder is built for: wgmma is there for 9.0a only.
decoder_arch() {
    if [ -n "${DECODER_ARCH:-}" ]; then
        echo "$DECODER_ARCH"
    elif ! has_gpu || has_sm_90; then
        echo $sm_90a
    else
        echo -arch=native
    fi
}

# Whether a program only becomes PTX: to assemble what cannot run, and to compile its host's side once more, takes as long again.
is_ptx() { # FILE
    ! everywhere "$1" || return 1
    case $1 in examples/0[12]_* | examples/qwen3/* | examples/serve/*) return 1 ;; esac
    ! has_gpu
}

cuda_build() { # FILE BINARY [OPTION...]
    local archs=("${cuda_archs[@]}") build
    if ! has_gpu && everywhere "$1"; then
        # The older architecture's PTX is not assembled.
        [ -n "${FLEET_DEEP:-}" ] || archs=("${cuda_archs[0]/code=sm/code=compute}" "${cuda_archs[1]}")
    elif ! has_gpu; then
        archs=("${cuda_archs[1]}")
    fi
    build=(nvcc "${cuda_flags[@]}" -I. "${stb_flags[@]}" "${@:3}")
    if is_ptx "$1"; then
        "${build[@]}" "${archs[@]}" -DFLEET_TEST_LINKED -Itests -ptx "$1" -o "$2.ptx"
        return
    fi
    case $1:$WHOLE in
    # For one architecture alone, whose ring it has (nvidia/pipeline.h); -arch=sm_90a would compile it for compute_90 too.
    examples/qwen3/*) "${build[@]}" "$(decoder_arch)" --resource-usage "$1" -o "$2" "${qwen3_libraries[@]}" ;;
    examples/serve/*) "${build[@]}" "$(decoder_arch)" "$1" examples/serve/engine_qwen3.c -o "$2" "${serve_libraries[@]}" ;;
    *:yes) "${build[@]}" "${archs[@]}" -Itests "$1" -o "$2" ;;
    *)
        "${build[@]}" "${archs[@]}" -DFLEET_TEST_LINKED -Itests -c "$1" -o "$2.o" &&
            nvcc "${archs[@]}" "$2.o" $objects/nvcc.o -o "$2"
        ;;
    esac
}

# Without a GPU, the kernels of the loop of tasks only become PTX: to assemble them for a debugger takes ptxas 25 s.
cuda_debug() { # FILE
    local exe gpu='' build=(nvcc -G -g "${cuda_flags[@]}" "${cuda_archs[1]}" -I. "${stb_flags[@]}" "$1")
    exe=$out/$(stem "$1").G
    ! has_gpu || gpu=yes
    case ${FLEET_DEEP:+deep}$gpu:$1 in
    :*/02_*.c | *?:*) "${build[@]}" -o "$exe" && ${gpu:+"$exe"} ;;
    *) "${build[@]}" -ptx -o "$exe.ptx" ;;
    esac
}

# A program of the decoder for GPUs with rings of different sizes is refused, and one for sm_90 and sm_90a is not.
one_ring() {
    local ring=(nvcc -x cu -std=c++17 "$sm_90a" -I. "${stb_flags[@]}" -fatbin examples/qwen3/nvidia/pipeline.h -o /dev/null)
    "${ring[@]}" -gencode "arch=compute_90,code=sm_90" || return 1
    "${ring[@]}" -gencode "arch=compute_80,code=sm_80" 2>&1 | grep 'error "The rings differ in size'
}

spills_at_most() { # BYTES LOG MANGLED_NAME: stores and loads together, as ptxas says in the log
    local bytes
    bytes=$(grep -A2 "_Z$3.* for 'sm_90a'" "$2" |
        sed -n 's/.* \([0-9]*\) bytes spill stores, \([0-9]*\) bytes spill loads.*/\1 + \2/p')
    echo "$3 spills ${bytes:-an unknown number of} bytes"
    [ -n "$bytes" ] && [ $((bytes)) -le "$1" ]
}

# The decoder's kernels for STATIC plans keep everything in registers, and ptxas makes no wgmma wait for the one before. The
# kernel of the other schedules, whose loop has more state beside the same tiles, spills at most 256 bytes, stores and loads
# together; those that take prompts some 1,600 for each kind of product, of which the one of models with experts has two. None
# has more static LDS than kernels_fit_in_lds (kernels.h) leaves to it.
cuda_registers() {
    local kernel bytes log=$out/build/qwen3.log
    for kernel in 13decode_static:0 14decode_large_m:0 14decode_experts:0 6decode:256 7prefill:1600 15prefill_experts:3410; do
        spills_at_most "${kernel#*:}" "$log" "${kernel%:*}9" || return
    done
    bytes=$(sed -n 's/.* \([0-9]*\) bytes smem.*/\1/p' "$log" | sort -n | tail -n 1)
    echo "at most $bytes bytes of static LDS"
    [ "$bytes" -le 2048 ] && ! grep -E "wgmma.*serialized" "$log"
}

logged() { "${@:2}" >"$1" 2>&1 || ! cat "$1"; } # LOG COMMAND...: the log is shown when the command fails

# cuda_kernel NAME TILES THREADS [OPTION...]: compiles one kernel of the decoder; what ptxas says is in $out/NAME.log.
cuda_kernel() {
    printf '%s\n' '#include "examples/qwen3/task_sets.h"' "FLEET_KERNEL($1, $2, $3) { FLEET_STATIC_WORKER_LOOP($2); }" >"$out/$1.cu"
    logged "$out/$1.log" nvcc "${cuda_flags[@]}" "$sm_90a" --resource-usage "${@:4}" -I. "${stb_flags[@]}" -cubin "$out/$1.cu" -o "$out/$1.cubin"
}

# Nor does the kernel for many rows spill where it exchanges sums with other ranks.
cuda_registers_of_ranks() {
    cuda_kernel decode_large_m large_m THREADS -DFLEET_IPC && spills_at_most 0 "$out/decode_large_m.log" 14decode_large_m9
}

# The server's kernel for long chunks spills some 2,000 bytes, and that of models with experts what
# the one for their prompts does.
cuda_registers_of_server() {
    cuda_kernel serve_wide served_wide PREFILL_THREADS && spills_at_most 2050 "$out/serve_wide.log" 10serve_wide9 &&
        ! grep -E "wgmma.*serialized" "$out/serve_wide.log"
}

cuda_registers_of_expert_server() {
    cuda_kernel serve_wide_experts served_wide_experts PREFILL_THREADS && spills_at_most 3410 "$out/serve_wide_experts.log" 18serve_wide_experts9 &&
        ! grep -E "wgmma.*serialized" "$out/serve_wide_experts.log"
}

# Nor does the kernel of the benchmark over several devices, whose tile is for 9.0a. On such a GPU it is run, too.
cuda_registers_of_bench() {
    logged "$out/bench.log" nvcc "${cuda_flags[@]}" "$sm_90a" --resource-usage -I. "${stb_flags[@]}" tests/bench/devices.c -o "$out/devices" &&
        spills_at_most 0 "$out/bench.log" 12bench_kernel && ! grep -E "wgmma.*serialized" "$out/bench.log" || return
    ! has_sm_90 || FLEET_VIRTUAL=1 "$out/devices" --ranks 3 --tokens 399 --columns 136 --depth 72
}

cuda_decoder() { # PROGRAM CHECKPOINT SCHEDULES
    local schedule
    for schedule in $3; do
        decoder_verdict "$1/$schedule" "$out/$1" "$2" --check "$2/expected.json" --schedule "$schedule"
    done
}

# Prompts in chunks of these sizes, by the kernel that takes them.
cuda_prompts() { # PROGRAM CHECKPOINT
    local rows
    for rows in 1 7 64 2048; do
        decoder_verdict "$1/$rows" "$out/$1" "$2" --check "$2/expected.json" --prefill-rows "$rows"
    done
}

"$@" || exit $? # in such a list -e has no effect: functions return at the first failure where it matters
