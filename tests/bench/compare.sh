#!/usr/bin/env bash
# Compares two versions on one machine in one run: builds both, runs them by turns, and prints for each figure the two
# medians, their ratio with its spread over the rounds, and which are worse by more than 1.5%.
#
#   tests/bench/compare.sh [OPTION...] OLD [NEW]
#
# OLD and NEW are commits or folders with the sources; NEW is this tree by default. Each version builds its own sources;
# what is run, and how its output is read, is this script's, so a figure that an old version does not have is left empty.
#
#   --parts "NAME..."   of the parts below (default: all that run on this platform, but `layers`)
#   --rounds N          runs of each version (default 3): old, new; new, old; old, new ...
#   --build             builds and runs nothing
#
#   decode    8B's dimensions: a token of 1, 8, 32, 64, 128, 256 sequences with prompts of 1,000 tokens, and the first token
#             after 1,000
#   prompts   8B's dimensions: the first token after 64, 300, 4,000 tokens
#   experts   30B-A3B's dimensions: a token of 1 and 32 sequences with prompts of 250 tokens
#   small     0.6B's dimensions: a token of 1 sequence; on the CPU of 1 and 4, and the first token
#   server    8B's dimensions: a server's step of 1 and more requests, and its first token
#   kit       launch, barriers, empty tasks, dispatch, symbols (tests/bench/launch.c, sync.c, symbols.c)
#   queues    ready queues and unlike tasks (tests/bench/ring.c, balance.c)
#   layers    a layer's time on the simulated MI300X, by the difference of three layers and one; deterministic, one round
#
# Ends with 0, with 3 where a figure is worse, with 1 where a run of NEW failed. Environment: FLEET_PLATFORM, FLEET_ARCH,
# LIBRARIES and STB_DS as for tests/bench/qwen3.sh; BATCHES (decode), LENGTHS (prompts), LIMIT (seconds of a run,
# default 300).
set -eu
export -n LIBRARIES # nvcc would take it for options of its own
top=$(cd "$(dirname "$0")/../.." && pwd)
out=$top/tests/build/compare

usage() {
    sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

parts='' rounds=3 only_build=
while [ $# -gt 0 ]; do
    case $1 in
    --parts) parts=$2 && shift 2 ;;
    --rounds) rounds=$2 && shift 2 ;;
    --build) only_build=yes && shift ;;
    -*) usage ;;
    *) break ;;
    esac
done
[ $# = 1 ] || [ $# = 2 ] || usage

# shellcheck source=tests/bench/model.sh
. "$top/tests/bench/model.sh"
case $platform in
cuda)
    name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) || name=
    # Of compute capability 9.0 the decoder uses instructions that no other one has.
    case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null) in 9.0*) arch=sm_90a ;; *) arch=native ;; esac
    compile=(nvcc -x cu "-arch=${FLEET_ARCH:-$arch}" -std=c++17 -O3 -w) link=(nvcc "-arch=${FLEET_ARCH:-$arch}")
    ;;
hip)
    name=$(rocminfo | sed -n 's/^ *Marketing Name: *\(.*Instinct.*\)/\1/p' | head -n 1)
    compile=(hipcc -x hip "--offload-arch=${FLEET_ARCH:-native}" -std=c++17 -O3 -w)
    link=(hipcc "--offload-arch=${FLEET_ARCH:-native}")
    ;;
host)
    name=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)", $(nproc) processors"
    compile=("${CC:-cc}" -std=c11 -O3 -march=native -ffp-contract=fast -w) link=("${CC:-cc}")
    ;;
*) usage ;;
esac
if [ -z "$parts" ]; then
    parts="decode prompts experts small server kit queues"
    [ "$platform" != host ] || parts="small kit queues"
fi
include=(${STB_DS:+-I"$(dirname "$STB_DS")"} ${LIBRARIES:+-I"$LIBRARIES"})
libraries=(-ljansson -lpcre2-8 -lunistring)
[ -z "${LIBRARIES:-}" ] || libraries=("$LIBRARIES"/libjansson.a "$LIBRARIES"/libpcre2-8.a "$LIBRARIES"/libunistring.a)
mkdir -p "$out/models"

# ---- the two versions

# sources SIDE VERSION: $out/SIDE leads to the sources, $out/SIDE.name is what the table calls them.
sources() {
    rm -rf "${out:?}/$1" "$out/$1.bin"
    mkdir -p "$out/$1.bin"
    if [ -d "$2" ]; then
        ln -s "$(cd "$2" && pwd)" "$out/$1"
    else
        mkdir "$out/$1"
        git -C "$top" archive "$2" | tar -C "$out/$1" -xf -
    fi
    git -C "$top" rev-parse --short "$2" >"$out/$1.name" 2>/dev/null || basename "$(cd "$2" && pwd)" >"$out/$1.name"
}
sources old "$1"
sources new "${2:-$top}"

# build SIDE FILE: an executable in $out/SIDE.bin. A version without that file has none.
build() {
    local program
    program=$out/$1.bin/$(basename "${2%.c}")
    [ -e "$out/$1/$2" ] || return 0
    (cd "$out/$1" && "${compile[@]}" -I. "${include[@]}" -c "$2" -o "$program.o" &&
        "${link[@]}" "$program.o" -o "$program" "${libraries[@]}" -lpthread -lm) >"$program.log" 2>&1 ||
        {
            echo "$(cat "$out/$1.name"): $2 does not build:" && tail -n 5 "$program.log"
            [ "$1" = old ]
        } >&2
}

files=
for part in $parts; do
    case $part in
    decode | prompts | experts | small) files="$files examples/qwen3/qwen3.c" ;;
    server) files="$files tests/bench/serving.c" ;;
    kit) files="$files tests/bench/launch.c tests/bench/sync.c tests/bench/symbols.c" ;;
    queues) files="$files tests/bench/ring.c tests/bench/balance.c" ;;
    layers) ;;
    *) usage ;;
    esac
done
builders=()
for file in $(printf '%s\n' $files | sort -u); do
    for side in old new; do
        while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
        build $side "$file" &
        builders+=($!)
    done
done
failed=0
for pid in ${builders[@]+"${builders[@]}"}; do wait "$pid" || failed=1; done
[ $failed = 0 ] || exit 1
[ -z "$only_build" ] || exit 0

# ---- measurements: each prints lines "NAME<tab>VALUE<tab>UNIT"

# model NAME SIZE...: the folder of a config without weights.
model() {
    mkdir -p "$out/models/$1"
    config "${@:2}" >"$out/models/$1/config.json"
}
model 8b 36 4096 12288 32 8
model 30b-a3b 48 2048 768 32 4 128 8
model 0.6b 28 1024 3072 16 8

# run SIDE PROGRAM [ARGUMENT...]: its output, both streams.
run() {
    local side=$1 program=$2
    shift 2
    (cd "$out/$side" && timeout "${LIMIT:-300}" "$out/$side.bin/$program" "$@" 2>&1)
}

# qwen3 SIDE MODEL PROMPT SEQUENCES [first]: milliseconds of a token, and of the first one. Each sequence has a prompt of
# its own, so that rows choose different experts and share no pages.
qwen3() {
    local side=$1 model=$2 prompt=$3 sequences=$4 i ids=
    for ((i = 0; i < sequences; i++)); do ids="$ids;$prompt*$((7 + i))"; done
    run "$side" qwen3 "$out/models/$model" --random-weights --steps 24 --prompt-ids "${ids#;}" |
        sed -nE "s/^.*launch to first token ([0-9.]+) ms.*/${5:+$model, first token after $prompt\t\1\tms}/p
                 s/^TPOT ([0-9.]+) ms .*/$model, token of $sequences\t\1\tms/p" | sed '/^$/d'
}

# A benchmark's lines (bench.h) are a name of 58 columns, a value and a unit; an indented name belongs to the one before.
bench() { # SIDE PROGRAM
    run "$1" "$2" | awk -v program="$2" '
        {
            name = substr($0, 1, 58); sub(/ +$/, "", name)
            split(substr($0, 59), word, " ")
            if (word[1] !~ /^[0-9.]+$/ || word[2] !~ /^(us|ns|ms|M\/s)$/) next
            if (name ~ /^  /) name = first "," substr(name, 2); else first = name
            if (seen[name]++) next
            printf "%s: %s\t%s\t%s\n", program, name, word[1], word[2]
        }'
}

measure() { # SIDE PART
    local n
    case $2 in
    decode)
        qwen3 "$1" 8b 1000 1 first
        for n in ${BATCHES:-8 32 64 128 256}; do qwen3 "$1" 8b 1000 "$n"; done
        ;;
    prompts) for n in ${LENGTHS:-64 300 4000}; do qwen3 "$1" 8b "$n" 1 first | grep first; done ;;
    experts) for n in 1 32; do qwen3 "$1" 30b-a3b 250 "$n"; done ;;
    small)
        if [ "$platform" = host ]; then
            qwen3 "$1" 0.6b 64 1 first
            qwen3 "$1" 0.6b 64 4
        else
            qwen3 "$1" 0.6b 1000 1
        fi
        ;;
    server)
        for n in decode first; do
            run "$1" serving "$out/models/8b" --random-weights --only $n |
                sed -nE 's/^decode\t([0-9]+)\t([0-9.]+)\t.*/server, step of \1\t\2\tms/p
                         s/^first\t([0-9]+)\t([0-9.]+)\t.*/server, first token after \1\t\2\tms/p'
        done
        ;;
    kit)
        run "$1" launch | sed -nE 's/^(.*): ([0-9.]+) us$/launch: \1\t\2\tus/p'
        for n in sync symbols; do bench "$1" $n; done
        ;;
    queues) for n in ring balance; do bench "$1" $n; done ;;
    layers)
        # One simulator for both: that of this tree.
        for n in 1 3; do
            FLEET_LAYERS=$n FLEET_PLANS=static FLEET_BATCHES="${BATCHES:-1 8 32 64}" "$out/$1/tests/bench/on_amd.sh" --simulated decoder |
                sed -nE "s/^\| ([0-9]+) \| static \| ([0-9.]+) us \|.*/\1 $n \2/p"
        done | awk '$2 == 1 { one[$1] = $3 } $2 == 3 { printf "MI300X, simulated: a layer, %s rows\t%.1f\tus\n", $1, ($3 - one[$1]) / 2 }'
        ;;
    esac
}

if [[ " $parts " = *" layers "* ]]; then
    # shellcheck source=tests/setup.sh
    (. "$top/tests/setup.sh" && mkdir -p "$top/tests/build" && hip_setup && hip_simulator && hip_leave)
    if [ -z "${FLEET_HIP_RUNTIME:-}" ]; then
        FLEET_HIP_RUNTIME=$(ls -d "$top"/tests/build/amdsim/llvm-* | tail -n 1)
        export FLEET_HIP_RUNTIME
    fi
fi

# ---- by turns

measured=$out/measured.tsv
: >"$measured"
for part in $parts; do
    for ((round = 0; round < rounds; round++)); do
        sides="old new"
        [ $((round % 2)) = 0 ] || sides="new old"
        [ "$part" != layers ] || [ $round = 0 ] || break
        for side in $sides; do
            measure "$side" "$part" | sed "s/^/$side\t$round\t/" >>"$measured"
        done
    done
    echo "measured: $part, $SECONDS s since the start" >&2
done
echo "$name, $(date -u +%F), old $(cat "$out/old.name"), new $(cat "$out/new.name"), $rounds rounds by turns (\`tests/bench/compare.sh\`)"
echo
python3 "$top/tests/bench/compare.py" "$measured"
