#!/usr/bin/env bash
# One graph over several devices: devices.c with 2 and 4 virtual devices on one GPU, then with a GPU for each rank where
# there are several, and PyTorch + NCCL on the same shapes where python3 has torch (devices.py). Needs nvcc and a GPU.
# NVLink multicast stays off. FILE.svg as an argument: a picture of GEMM + reduce-scatter, over two GPUs where there are two.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
build=$top/tests/build/bench
mkdir -p "$build"
export NCCL_NVLS_ENABLE=0

# The tile for tensor cores is that of compute capability 9.0 (gemm_tile.h).
arch=(-arch=native -DGEMM_PORTABLE)
case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader) in 9.0*) arch=("-gencode=arch=compute_90a,code=sm_90a") ;; esac
compile=(nvcc -x cu "${arch[@]}" -std=c++17 -O3 -w -I"$top" ${STB_DS:+-I"$(dirname "$STB_DS")"} "$here/devices.c")
"${compile[@]}" -o "$build/devices"
for ranks in 1 2 4; do FLEET_VIRTUAL=1 "$build/devices" --ranks "$ranks"; done
gpus=$(nvidia-smi -L | wc -l)
for ranks in 2 4 8; do
    [ "$ranks" -le "$gpus" ] || break
    small=(--tokens $((128 * ranks)) --columns 128 --depth 32)
    for rows in 1 2 4 8 16 32 64 128; do "$build/devices" --ranks "$ranks" --rows "$rows" "${small[@]}"; done
    # The MLP's second product, of Qwen3-32B and of Llama-70B: each rank has its share of the depth. The first one back.
    down=("--columns 5120 --depth $((25600 / ranks))" "--columns 8192 --depth $((28672 / ranks))")
    for shape in "${down[@]}"; do
        # shellcheck disable=SC2086
        for n in 1 "$ranks"; do "$build/devices" --ranks "$n" --tokens 8192 $shape; done
    done
    "$build/devices" --ranks "$ranks"
    python3 -c 'import torch' 2>/dev/null || continue
    nccl=(python3 -m torch.distributed.run --nproc-per-node "$ranks" "$here/devices.py")
    # shellcheck disable=SC2086
    for rows in 1 8 32 128; do "${nccl[@]}" --rows "$rows" --tokens 8192 ${down[0]}; done
    # shellcheck disable=SC2086
    "${nccl[@]}" --rows 64 --tokens 8192 ${down[1]}
    "${nccl[@]}"
done
[ $# -eq 0 ] || { "${compile[@]}" -DFLEET_TRACE -o "$build/devices_trace" && "$build/devices_trace" --tokens 8192 --columns 5120 --depth 12800 --trace "$1"; }
