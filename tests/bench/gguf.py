"""Writes a GGUF file for llama.cpp: a Qwen3 decoder in BF16 with random weights and no vocabulary.

    gguf.py FILE LAYERS HIDDEN FFN HEADS KV_HEADS [VOCAB]

The head is the embedding, as in Qwen3-0.6B."""

import random
import struct
import sys

UINT32, FLOAT32, STRING = 4, 6, 8
F32, BF16 = 0, 30
ALIGNMENT = 32
HEAD_DIM = 128


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def entry(key, kind, value):
    packed = text(value) if kind == STRING else struct.pack({UINT32: "<I", FLOAT32: "<f"}[kind], value)
    return text(key) + struct.pack("<I", kind) + packed


def tensors(layers, hidden, ffn, heads, kv_heads, vocab):
    """Name, type and shape, the shape as GGUF has it: the length of a row first."""
    q, kv = heads * HEAD_DIM, kv_heads * HEAD_DIM
    yield "token_embd.weight", BF16, (hidden, vocab)
    yield "output_norm.weight", F32, (hidden,)
    for i in range(layers):
        for name, shape in (
            ("attn_norm", (hidden,)),
            ("attn_q", (hidden, q)),
            ("attn_k", (hidden, kv)),
            ("attn_v", (hidden, kv)),
            ("attn_output", (q, hidden)),
            ("attn_q_norm", (HEAD_DIM,)),
            ("attn_k_norm", (HEAD_DIM,)),
            ("ffn_norm", (hidden,)),
            ("ffn_gate", (hidden, ffn)),
            ("ffn_up", (hidden, ffn)),
            ("ffn_down", (ffn, hidden)),
        ):
            yield f"blk.{i}.{name}.weight", F32 if len(shape) == 1 else BF16, shape


# The upper byte of a weight: either sign, and an exponent that makes it 2^-7 to 2^-5.
UPPER = bytes(0x3C | (byte & 0x80) for byte in range(256))


def data(kind, n):
    if kind == F32:
        return struct.pack("<f", 1.0) * n
    weights = bytearray(2 * n)
    weights[0::2] = random.randbytes(n)
    weights[1::2] = random.randbytes(n).translate(UPPER)
    return weights


def main():
    path, (layers, hidden, ffn, heads, kv_heads, *rest) = sys.argv[1], map(int, sys.argv[2:])
    vocab = rest[0] if rest else 151936
    random.seed(1)
    settings = [
        entry("general.architecture", STRING, "qwen3"),
        entry("qwen3.block_count", UINT32, layers),
        entry("qwen3.context_length", UINT32, 40960),
        entry("qwen3.embedding_length", UINT32, hidden),
        entry("qwen3.feed_forward_length", UINT32, ffn),
        entry("qwen3.attention.head_count", UINT32, heads),
        entry("qwen3.attention.head_count_kv", UINT32, kv_heads),
        entry("qwen3.attention.key_length", UINT32, HEAD_DIM),
        entry("qwen3.attention.value_length", UINT32, HEAD_DIM),
        entry("qwen3.attention.layer_norm_rms_epsilon", FLOAT32, 1e-6),
        entry("qwen3.rope.freq_base", FLOAT32, 1e6),
        entry("qwen3.vocab_size", UINT32, vocab),
        entry("tokenizer.ggml.model", STRING, "no_vocab"),
    ]
    all_tensors = list(tensors(layers, hidden, ffn, heads, kv_heads, vocab))
    infos, offset, sizes = [], 0, []
    for name, kind, shape in all_tensors:
        infos.append(text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset))
        n = 1
        for length in shape:
            n *= length
        sizes.append(n)
        offset += -(-n * (4 if kind == F32 else 2) // ALIGNMENT) * ALIGNMENT
    with open(path, "wb") as out:
        out.write(b"GGUF" + struct.pack("<IQQ", 3, len(all_tensors), len(settings)))
        out.write(b"".join(settings + infos))
        for (_, kind, _), n in zip(all_tensors, sizes):
            out.write(b"\0" * (-out.tell() % ALIGNMENT))
            out.write(data(kind, n))


main()
