"""Hugging Face's tokenizers (Debian: python3-tokenizers) beside examples/qwen3/tokenizer.h.

    huggingface.py train SIZE [strings] <CORPUS >tokenizer.json    a byte-level BPE as Qwen3's, of SIZE tokens
    huggingface.py compare <INPUT                                  prints pass and FAIL lines

CORPUS is text, or what `tokenizer dump` writes. strings: merges are "a b", as older files spell them, and not pairs; and
some tokens are looked for in the normalized text. INPUT is a tokenizer.json in one line, and what tests/qwen3/tokenizer.c
writes when it is called with `dump`:

    encode TEXT IDS           TEXT: UTF-8 as hexadecimal digits; IDS: numbers with commas between
    decode SKIP IDS TEXT      SKIP: 1: without special tokens
"""
import json
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# A few letters and at most one other character before them, one digit, other characters with the line feeds after them,
# and white space of which the last one belongs to the next word.
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
OTHERS = ["<think>", "</think>", "<tool_call>"]


def train(size, spelling):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    corpus = (bytes.fromhex(line.split(" ")[1]).decode() if line.startswith("encode ") else line for line in sys.stdin)
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=size - len(SPECIAL) - len(OTHERS), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in OTHERS])
    if spelling:
        tokenizer.add_tokens(["caf\u00e9", "cafe\u0301s", "\u212b"])
    saved = json.loads(tokenizer.to_str())
    if spelling:
        saved["model"]["merges"] = [" ".join(m) for m in saved["model"]["merges"]]
    json.dump(saved, sys.stdout, ensure_ascii=False, separators=(",", ":"))
    print()


def numbers(text):
    return [int(n) for n in text.split(",") if n]


def compare():
    tokenizer = Tokenizer.from_str(sys.stdin.readline())
    counts, wrong = {"encode": 0, "decode": 0}, {}
    for line in sys.stdin:
        kind, *fields = line.rstrip("\n").split(" ")
        counts[kind] += 1
        if kind == "encode":
            text = bytes.fromhex(fields[0]).decode()
            expected, got = tokenizer.encode(text).ids, numbers(fields[1])
        else:
            text = numbers(fields[1])
            expected = tokenizer.decode(text, skip_special_tokens=fields[0] == "1")
            got = bytes.fromhex(fields[2]).decode()
        if got != expected:
            wrong.setdefault(kind, f"{text!r}: {got!r}, expected {expected!r}".encode("ascii", "backslashreplace").decode())
    for kind, count in counts.items():
        if kind in wrong or count < 10000:
            print(f"FAIL {kind}: of {count}: {wrong.get(kind, 'too few')}")
        else:
            print(f"pass {kind}")


if sys.argv[1] == "train":
    train(int(sys.argv[2]), sys.argv[3:] == ["strings"])
else:
    compare()
