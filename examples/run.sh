#!/usr/bin/env bash
# Builds the examples for the platform found here, and runs them:
#
#   ./examples/run.sh [NAME...]      all of them, or those whose names contain one of the words
#
# hip: hipcc and an AMD GPU; cuda: nvcc and an NVIDIA GPU; host: any C compiler, on the CPU.
# FLEET_PLATFORM=hip|cuda|host chooses one, FLEET_ARCH the GPU to compile for (default: the one here), CC and CFLAGS the
# compiler for the CPU (default: cc) and more options for it.
# On a Debian-like machine what is missing is installed (root or sudo); elsewhere it is named.
set -eu
cd "$(dirname "$0")"
PATH=$PATH:/usr/local/cuda/bin
# shellcheck source=examples/tools/rocm.sh
. tools/rocm.sh

have() { command -v "$1" >/dev/null; }

stop() {
    echo "$1" >&2
    exit 1
}

install() {
    local sudo='' log
    [ "$(id -u)" = 0 ] || sudo=sudo
    if ! have apt-get || ! have ${sudo:-true}; then
        stop "please install $* (Debian's name), then run this again"
    fi
    echo "installing $*"
    $sudo apt-get -qq update >/dev/null 2>&1 || true
    log=$($sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@" 2>&1) ||
        stop "$log"
}

platform() {
    if [ -z "$no_rocm" ] && rocm_gpu; then
        echo hip
    elif have nvcc && nvidia-smi -L >/dev/null 2>&1; then
        echo cuda
    else
        echo host
    fi
}

# wanted NAME [WORD...]: whether the name contains one of the words; any does if there are none.
wanted() {
    local name=$1 word
    shift
    [ $# -gt 0 ] || return 0
    for word; do
        case $name in *"$word"*) return 0 ;; esac
    done
    return 1
}

# Of compute capability 9.0 the decoder uses instructions that no other one has.
cuda_arch() {
    case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader) in 9.0*) echo sm_90a ;; *) echo native ;; esac
}

# The three commands that any project would use: the headers are in the folder above.
compile() { # FILE PROGRAM [OPTION...]
    local file=$1 program=$2
    shift 2
    # shellcheck disable=SC2086
    case $platform in
    hip) hipcc -x hip -O2 --offload-arch="${FLEET_ARCH:-native}" -I.. "$file" -o "$program" "$@" ;;
    cuda) nvcc -x cu -O2 -arch="${FLEET_ARCH:-$(cuda_arch)}" -I.. "$file" -o "$program" "$@" ;;
    host) "${CC:-cc}" -std=c11 -O2 ${CFLAGS:-} -I.. "$file" -o "$program" "$@" -pthread -lm ;;
    esac
}

# One example runs on the CPU whatever the platform: in the memory model, which says what a kernel lacks.
compile_modelled() { # FILE PROGRAM
    have addr2line || install binutils
    # shellcheck disable=SC2086
    tools/memory_model.sh -std=c11 ${CFLAGS:-} -I.. "$1" -o "$2"
}

rocm_find || true
no_rocm=$rocm_missing
have "${CC:-cc}" || [ -z "$rocm_llvm" ] || CC=$rocm_llvm/clang
have "${CC:-cc}" || install gcc libc6-dev
# The planner's hash tables and arrays: a copy beside fleet.h does as well.
if [ ! -e ../stb_ds.h ] && ! echo '#include <stb/stb_ds.h>' | "${CC:-cc}" -E -x c - >/dev/null 2>&1; then
    install libstb-dev
fi
platform=${FLEET_PLATFORM:-$(platform)}
case $platform in
hip) [ -z "$no_rocm" ] || stop "$no_rocm" ;;
cuda) have nvcc || stop "nvcc is not on PATH: install the CUDA toolkit" ;;
host)
    # An AMD GPU that is left alone is worth a word, unless the CPU was asked for.
    if [ -z "${FLEET_PLATFORM:-}" ] && [ -e "${ROCM_KFD:-/dev/kfd}" ]; then
        ! rocm_gpu || rocm_missing="there is an AMD GPU, but $no_rocm"
        echo "on the CPU: $rocm_missing"
    fi
    ;;
*) stop "FLEET_PLATFORM is hip, cuda or host, not $platform" ;;
esac

# On the CPU the compiler makes the vectors of this machine, at -O3 unless CFLAGS has another level.
decoder_options=()
if [ "$platform" = host ]; then
    decoder_options=(-march=native -ffp-contract=fast)
    case ${CFLAGS:-} in *-O*) ;; *) decoder_options+=(-O3) ;; esac
fi

has_header() {
    printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <%s>\n' "$1" | "${CC:-cc}" -E -x c - >/dev/null 2>&1
}

# The decoder, with a trace compiled in and without; on the small checkpoints of the tests, whose tokens are known.
decoder() {
    local models=../tests/fixtures options=("${decoder_options[@]}" -ljansson -lpcre2-8 -lunistring)
    has_header jansson.h || install libjansson-dev
    has_header pcre2.h || install libpcre2-dev
    has_header uninorm.h || install libunistring-dev
    compile qwen3/qwen3.c build/qwen3 "${options[@]}" &&
        compile qwen3/qwen3.c build/qwen3_traced -DFLEET_TRACE "${options[@]/-O3/-O1}" &&
        build/qwen3 $models/qwen3-tiny --check $models/qwen3-tiny/expected.json &&
        build/qwen3 $models/qwen3-moe-tiny --check $models/qwen3-moe-tiny/expected.json &&
        build/qwen3_traced $models/qwen3-tiny --prompt-ids 460,191,256,334,255 --trace build/qwen3.svg &&
        echo "text of a model with 0.9 million weights, which knows no language:" &&
        build/qwen3 $models/qwen3-tiny --prompt "The weights are" --steps 16 --temperature 0.7 --top-k 20 --seed 1 &&
        cat <<END
For a model of yours, a folder with config.json, model.safetensors and tokenizer.json as Hugging Face has them:
    examples/build/qwen3 FOLDER --chat
END
}

# A server on the small checkpoint, and a request of each class, which it decodes at the same time. Both streams are shown,
# line by line as they come.
server() {
    local pid port status=0 body=',"max_tokens":6,"stream":true,"stream_options":{"include_usage":true}}'
    have curl || install curl
    printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <jansson.h>\n#include <microhttpd.h>\n#include <pcre2.h>\n#include <uninorm.h>\n' |
        "${CC:-cc}" -E -x c - >/dev/null 2>&1 || install libjansson-dev libmicrohttpd-dev libpcre2-dev libunistring-dev
    compile serve/serve.c build/serve serve/engine_qwen3.c "${decoder_options[@]}" -lmicrohttpd -ljansson -lpcre2-8 -lunistring || return
    rm -f build/serve.out
    build/serve ../tests/fixtures/qwen3-tiny --port 0 --log build/serve.log --trace build/serve.json >build/serve.out &
    pid=$!
    until grep -qs http: build/serve.out; do
        kill -0 $pid 2>/dev/null || return 1
        sleep 0.05
    done
    cat build/serve.out
    port=$(grep -oE '[0-9]+,' build/serve.out | head -n 1)
    ask "${port%,}/v1/completions" proactive "{\"prompt\":[460,191,256,334,255],\"priority\":\"proactive\"$body" &
    ask "${port%,}/v1/chat/completions" reactive "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"priority\":\"reactive\"$body" ||
        status=1
    wait $! || status=1
    kill $pid
    wait $pid || status=1
    cat build/serve.log
    [ $status = 0 ] && cat <<END
ok: both streams ended; a timeline for https://ui.perfetto.dev is in examples/build/serve.json. For a model of yours:
    examples/build/serve FOLDER --port 8080
END
}

ask() { # PORT/PATH NAME BODY
    curl -sS -N --max-time 60 "http://127.0.0.1:$1" -H 'Content-Type: application/json' -d "$3" |
        sed -n "s/^data: /$2: /p" | tee "build/serve.$2"
    grep -q "$2: .DONE." "build/serve.$2"
}

mkdir -p build
good=0 bad=0 skipped=0
for file in [0-9][0-9]_*.c; do
    name=${file%.c}
    wanted "$name" "$@" || continue
    how=compile on=$platform
    case $name in 08_*) how=compile_modelled on="memory model" ;; esac
    echo "== $name ($on)"
    if $how "$file" "build/$name" && "build/$name"; then good=$((good + 1)); else bad=$((bad + 1)); fi
done
if wanted 09_torch_extension "$@"; then
    if [ "$platform" != host ] && python3 -c 'import torch' 2>/dev/null; then
        echo "== 09_torch_extension ($platform)"
        if python3 09_torch_extension.py; then good=$((good + 1)); else bad=$((bad + 1)); fi
    else
        echo "== 09_torch_extension is skipped: it needs a GPU and a python3 that has torch for it"
        skipped=1
    fi
fi
if wanted qwen3 "$@"; then
    echo "== qwen3 ($platform)"
    if decoder; then good=$((good + 1)); else bad=$((bad + 1)); fi
fi
if wanted serve "$@"; then
    echo "== serve ($platform)"
    if server; then good=$((good + 1)); else bad=$((bad + 1)); fi
fi
echo "$good examples ok, $bad failed"
[ $bad = 0 ] && [ $((good + skipped)) -gt 0 ]
