"""Renders random conversations by each template, with jinja2 as Hugging Face's transformers sets it
up, and with a program that has the templates compiled in.

    chat_templates.py CONVERSATIONS PROGRAM TEMPLATE...
"""
import json
import pathlib
import random
import subprocess
import sys

import jinja2.sandbox

PIECES = ["Hi", "two words", "\n", "\n\n", " ", "\t", "<think>", "</think>", "<think>\n", "\n</think>\n\n", "<tool_response>",
          "</tool_response>", "<tool_call>", "<|im_end|>", "<|eot_id|>", "\u20ac", "\U0001f600", "\u00a0", "\u3000", "\x1c", "\u200b",
          "\"quoted\"", "\\", "{{ x }}", "a < b", "5"]


def text(draw: random.Random) -> str:
    kind = draw.random()
    if kind < 0.1:
        return ""
    if kind < 0.2:
        return "<tool_response>" + draw.choice(PIECES) + "</tool_response>"
    if kind < 0.35:
        return "<think>\n" + draw.choice(PIECES) + "\n</think>\n\n" + draw.choice(PIECES)
    return "".join(draw.choice(PIECES) for _ in range(draw.randint(1, 6)))


def value(draw: random.Random, depth: int = 0):
    kind = draw.randint(0, 6 if depth < 2 else 4)
    if kind == 5:
        return {draw.choice("abcxyz"): value(draw, depth + 1) for _ in range(draw.randint(0, 3))}
    if kind == 6:
        return [value(draw, depth + 1) for _ in range(draw.randint(0, 3))]
    return [text(draw), draw.randint(-9, 9), 0.5, True, None][kind]


def dumps(given) -> str:
    return json.dumps(given, ensure_ascii=False)


def message(draw: random.Random, first: bool) -> dict:
    role = draw.choice(["user", "user", "assistant", "assistant", "tool", "system"] + ["system"] * 4 * first)
    m = {"role": role, "content": text(draw)}
    if role == "assistant" and draw.random() < 0.3:
        m["reasoning_content"] = text(draw)
    if role == "assistant" and draw.random() < 0.4:
        m["tool_calls"] = [{"type": "function",
                            "function": {"name": draw.choice(["f", "sum"]), "arguments": {"a": value(draw), "b": value(draw)}}}
                           for _ in range(draw.randint(1, 3))]
    return m


def conversation(draw: random.Random, tools: bool) -> dict:
    one = {"messages": [message(draw, i == 0) for i in range(draw.randint(1, 8))], "thinking": draw.random() < 0.5, "tools": []}
    if tools and draw.random() < 0.4:
        one["tools"] = [{"type": "function", "function": {"name": "f", "description": text(draw), "parameters": value(draw)}}
                        for _ in range(draw.randint(1, 3))]
    return one


def for_program(one: dict) -> str:
    """With calls and tools as the server hands them on: JSON."""
    messages = []
    for m in one["messages"]:
        m = dict(m)
        calls = m.pop("tool_calls", [])
        m["calls"] = [[c["function"]["name"], dumps(c["function"]["arguments"])] for c in calls]
        messages.append(m)
    return json.dumps({**one, "messages": messages, "tools": [dumps(t) for t in one["tools"]]})


def main(n: int, program: str, *templates: str) -> int:
    failed = 0
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = dumps
    for path in map(pathlib.Path, templates):
        draw = random.Random(path.stem)
        all_of = [conversation(draw, path.stem != "llama3") for _ in range(n)]
        got = subprocess.run([program, str(path)], input="\n".join(map(for_program, all_of)) + "\n",
                             capture_output=True, text=True, check=False)
        template = environment.from_string(path.read_text(encoding="utf-8"))
        lines = got.stdout.split("\n")
        wrong = "" if got.stderr == path.stem and len(lines) == n + 1 else f"ended with {got.returncode}: {got.stderr[:300]}"
        for one, line in zip(all_of, lines):
            wanted = template.render(messages=one["messages"], tools=one["tools"] or None, add_generation_prompt=True,
                                     enable_thinking=one["thinking"], bos_token="<|begin_of_text|>")
            if not wrong and json.dumps(json.loads(line)) != json.dumps(wanted):
                wrong = f"{json.dumps(one)}: {line}, expected {json.dumps(wanted)}"[:1500]
        failed += bool(wrong)
        print(f"FAIL {path.stem}: {wrong}" if wrong else f"pass {path.stem}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
