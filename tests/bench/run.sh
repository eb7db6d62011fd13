#!/usr/bin/env bash
# The benchmarks, one command: builds them for the platform found and runs them. Each line: name, value,
# unit, the baseline measured in the same run, its value, the ratio. FLEET_PLATFORM=hip|cuda|host forces a
# platform, as for examples/run.sh.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
build=$top/tests/build/bench
mkdir -p "$build"

platform=${FLEET_PLATFORM:-}
if [ -z "$platform" ]; then
    if [ -e /dev/kfd ] && command -v hipcc >/dev/null; then
        platform=hip
    elif command -v nvcc >/dev/null && command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1; then
        platform=cuda
    else
        platform=host
    fi
fi

stb=(${STB_DS:+-I"$(dirname "$STB_DS")"})
cc -std=c11 -O2 -I"$top" "${stb[@]}" "$here/plan_build.c" -o "$build/plan_build"
cc -std=c11 -O2 -pthread -I"$top" "${stb[@]}" "$here/locality.c" -o "$build/locality"
# The tiles of moe.c for tensor cores are those of compute capability 9.0; elsewhere, and on the CPU, it has plain loops.
moe=(-arch=native -DMOE_PORTABLE)
capability=0
[ "$platform" != cuda ] || capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1)
[ "$capability" != 9.0 ] || moe=(-gencode=arch=compute_90a,code=sm_90a)
for name in sync ring balance symbols; do
    case $platform in
    hip) hipcc -x hip --offload-arch=native -O3 -I"$top" "${stb[@]}" "$here/$name.c" -o "$build/$name" ;;
    cuda) nvcc -x cu -arch=native -std=c++17 -O3 -w -I"$top" "${stb[@]}" "$here/$name.c" -o "$build/$name" ;;
    host) cc -std=c11 -O2 -I"$top" "${stb[@]}" "$here/$name.c" -o "$build/$name" -pthread ;;
    esac
done
case $platform in
hip) hipcc -x hip --offload-arch=native -O3 -I"$top" "${stb[@]}" "$here/moe.c" -o "$build/moe" ;;
cuda) nvcc -x cu "${moe[@]}" -std=c++17 -O3 -w -I"$top" "${stb[@]}" "$here/moe.c" -o "$build/moe" ;;
host) cc -std=c11 -O2 -I"$top" "${stb[@]}" "$here/moe.c" -o "$build/moe" -pthread -lm ;;
esac
# The chain by hand copies in bulk, as GPUs from 9.0 on can.
if [ "${capability%.*}" -ge 9 ]; then
    nvcc -x cu -arch=native -std=c++17 -O3 -w -I"$top" "${stb[@]}" "$here/stream.c" -o "$build/stream"
fi
"$build/plan_build"
"$build/locality"
"$build/sync"
"$build/ring"
"$build/balance"
"$build/symbols"
"$build/moe"
[ "${capability%.*}" -lt 9 ] || "$build/stream"
