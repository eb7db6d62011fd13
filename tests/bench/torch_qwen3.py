"""The baseline of examples/qwen3: a decode step of Qwen3-8B in PyTorch, random bf16 weights.

    python3 torch_qwen3.py [BATCH,...]        default: 1,2,4,8,16,32,64

cuBLAS products, pointwise operators fused by torch.compile, scaled_dot_product_attention over 1,024 tokens, the whole
step in one CUDA graph. Prints a line for each batch: milliseconds of a step (median of 30 replays), the bytes that it
must read, and how long these take at the bandwidth of a plain read on the same GPU.
"""
import sys
import torch
import torch.nn.functional as F

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, DIM, VOCAB, CONTEXT = 36, 4096, 12288, 32, 8, 128, 151936, 1024
EPS = 1e-6


def weights(*shape):
    return (torch.randn(*shape, device="cuda") * 0.02).bfloat16()


def median_ms(run, times):
    run()
    torch.cuda.synchronize()
    taken = []
    for _ in range(times):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        end.synchronize()
        taken.append(begin.elapsed_time(end))
    return sorted(taken)[times // 2]


def norm(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, EPS)


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


@torch.compile(dynamic=False)
def split_qkv(qkv, q_norm, k_norm, cos, sin):
    q, k, v = qkv.split([HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM], -1)
    q, k, v = (x.unflatten(-1, (-1, DIM)) for x in (q, k, v))
    return rope(norm(q, q_norm), cos, sin), rope(norm(k, k_norm), cos, sin), v


@torch.compile(dynamic=False)
def add_norm(x, y, weight):
    x = x + y
    return x, norm(x, weight)


@torch.compile(dynamic=False)
def swiglu(gate_up):
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


class Layer:
    def __init__(self):
        self.q_norm, self.k_norm = weights(DIM), weights(DIM)
        self.input_norm, self.post_norm = weights(HIDDEN), weights(HIDDEN)
        self.qkv = weights((HEADS + 2 * KV_HEADS) * DIM, HIDDEN)
        self.o = weights(HIDDEN, HEADS * DIM)
        self.gate_up = weights(2 * FFN, HIDDEN)
        self.down = weights(HIDDEN, FFN)


def main():
    batches = [int(b) for b in (sys.argv[1] if len(sys.argv) > 1 else "1,2,4,8,16,32,64").split(",")]
    torch.manual_seed(0)
    big = torch.empty(1 << 29, device="cuda", dtype=torch.int64)
    read = big.numel() * 8 / median_ms(big.sum, 20) / 1e6
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}: a plain read reaches {read:.0f} GB/s")
    del big

    layers = [Layer() for _ in range(LAYERS)]
    final_norm, embedding, head = weights(HIDDEN), weights(VOCAB, HIDDEN), weights(VOCAB, HIDDEN)
    cos, sin = weights(DIM // 2), weights(DIM // 2)
    weight_bytes = 2 * (head.numel() + sum(t.numel() for l in layers for t in vars(l).values()))

    for batch in batches:
        torch._dynamo.reset()
        keys = torch.randn(LAYERS, batch, KV_HEADS, CONTEXT, DIM, device="cuda").bfloat16()
        values = torch.randn_like(keys)
        token = torch.randint(0, VOCAB, (batch,), device="cuda")

        def step():
            x = F.embedding(token, embedding)
            h = norm(x, layers[0].input_norm)
            for i, layer in enumerate(layers):
                q, k, v = split_qkv(F.linear(h, layer.qkv), layer.q_norm, layer.k_norm, cos, sin)
                keys[i, :, :, -1], values[i, :, :, -1] = k, v
                y = F.scaled_dot_product_attention(q.unsqueeze(2), keys[i], values[i], enable_gqa=True)
                x, h = add_norm(x, F.linear(y.reshape(batch, -1), layer.o), layer.post_norm)
                after = layers[i + 1].input_norm if i + 1 < LAYERS else final_norm
                x, h = add_norm(x, F.linear(swiglu(F.linear(h, layer.gate_up)), layer.down), after)
            return F.linear(h, head).argmax(-1)

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        moved = weight_bytes + 4 * keys.numel()
        print(f"batch {batch}: {median_ms(graph.replay, 30):.3f} ms; {moved / 1e9:.2f} GB, "
              f"at least {moved / read / 1e6:.3f} ms", flush=True)


if __name__ == "__main__":
    main()
