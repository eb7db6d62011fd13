"""PyTorch + NCCL on the shapes of tests/bench/devices.c, one process for each GPU; the products are cuBLAS's.

    NCCL_NVLS_ENABLE=0 torchrun --nproc-per-node 2 tests/bench/devices.py [--rows N] [--tokens N] [--columns N] [--depth N]

Prints microseconds: of an all-reduce of rows x 4096 bf16, alone and in a CUDA graph; of a product and of reduce-scatter
after it; of the product back, and of it after an all-gather. Products are timed four in a row, and the four kinds take
turns, as in devices.c.
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


def in_turn(works, repeats=5, row=4):
    """For each of several works, the median of its time, `row` of them one after the other."""
    times = [[] for _ in works]
    for i in range(repeats + 1):
        for work, own in zip(works, times):
            dist.barrier()
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            for _ in range(row):
                work()
            end.record()
            torch.cuda.synchronize()
            if i:
                own.append(begin.elapsed_time(end) * 1e3 / row)
    return [sorted(own)[repeats // 2] for own in times]


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
        return torch.empty(*shape, device="cuda", dtype=torch.bfloat16).uniform_(-1, 1)

    rows = new(args.rows, 4096)
    alone = median_us(lambda: dist.all_reduce(rows))
    graphed = in_graph(lambda: dist.all_reduce(rows), 50)
    # Weights as linear layers store them: a row for each column of the product.
    x, w = new(args.tokens, args.depth), new(args.columns, args.depth)
    y, owned = new(args.tokens, args.columns), new(args.tokens // ranks, args.columns)
    part, gathered = new(args.tokens // ranks, args.columns), new(args.tokens, args.columns)
    v, z = new(args.depth, args.columns), new(args.tokens, args.depth)

    def product():
        torch.matmul(x, w.t(), out=y)

    def product_and_scatter():
        product()
        dist.reduce_scatter_tensor(owned, y)

    def product_back():
        torch.matmul(gathered, v.t(), out=z)

    def gather_and_product():
        dist.all_gather_into_tensor(gathered, part)
        product_back()

    numbers = in_turn([product, product_and_scatter, product_back, gather_and_product])
    if dist.get_rank() == 0:
        print(f"{ranks} GPUs, PyTorch {torch.__version__}, NCCL {torch.cuda.nccl.version()}")
        print(f"all-reduce of {args.rows} x 4096 bf16: {alone:.2f} us, in a CUDA graph {graphed:.2f}")
        print(f"{args.tokens} x {args.columns} x {args.depth}: product {numbers[0]:.1f} us, with reduce-scatter {numbers[1]:.1f}; "
              f"the product back {numbers[2]:.1f}, with all-gather {numbers[3]:.1f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
