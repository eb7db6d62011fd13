"""PyTorch + NCCL on the shapes of tests/bench/devices.c, one process for each GPU; the products are cuBLAS's.

    NCCL_NVLS_ENABLE=0 torchrun --nproc-per-node 2 tests/bench/devices.py [--rows N] [--tokens N] [--columns N] [--depth N]

Prints microseconds: of an all-reduce of rows x 4096 bf16, alone and in a CUDA graph; of a product and of reduce-scatter
after it; of all-gather and of a product after it.
"""
import argparse
import os

import torch
import torch.distributed as dist


def median_us(work, repeats=20):
    """The median of several runs of `work`, which enqueues on the current stream."""
    times = []
    for i in range(repeats + 3):
        dist.barrier()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        if i >= 3:
            times.append(begin.elapsed_time(end) * 1e3)
    return sorted(times)[len(times) // 2]


def in_graph(work, times):
    """Microseconds of one of `times` in a CUDA graph."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()
    return median_us(graph.replay) / times


def main():
    parser = argparse.ArgumentParser()
    for name, value in (("rows", 1), ("tokens", 2048), ("columns", 2048), ("depth", 2048)):
        parser.add_argument("--" + name, type=int, default=value)
    args = parser.parse_args()
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    ranks = dist.get_world_size()

    def new(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    rows = new(args.rows, 4096)
    alone = median_us(lambda: dist.all_reduce(rows))
    graphed = in_graph(lambda: dist.all_reduce(rows), 50)
    x, w = new(args.tokens, args.depth), new(args.depth, args.columns)
    y, owned = new(args.tokens, args.columns), new(args.tokens // ranks, args.columns)

    def product():
        torch.matmul(x, w, out=y)

    def product_and_scatter():
        torch.matmul(x, w, out=y)
        dist.reduce_scatter_tensor(owned, y)

    part, whole = new(args.tokens // ranks, args.columns), new(args.tokens, args.columns)
    v, z = new(args.columns, args.depth), new(args.tokens, args.depth)

    def gather_and_product():
        dist.all_gather_into_tensor(whole, part)
        torch.matmul(whole, v, out=z)

    numbers = [median_us(work) for work in (product, product_and_scatter, gather_and_product)]
    if dist.get_rank() == 0:
        print(f"{ranks} GPUs, PyTorch {torch.__version__}, NCCL {torch.cuda.nccl.version()}")
        print(f"all-reduce of {args.rows} x 4096 bf16: {alone:.2f} us, in a CUDA graph {graphed:.2f}")
        print(f"{args.tokens} x {args.columns} x {args.depth}: product {numbers[0]:.1f} us, with reduce-scatter {numbers[1]:.1f}, "
              f"all-gather with the product back {numbers[2]:.1f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
