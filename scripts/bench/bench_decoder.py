"""A greedy decoder of a small GPT, its caches and tokens in Python lists: translation and calls.

Prints Markdown. `python -m scripts.bench.bench_decoder [--rounds 5] [--steps 20 80 400]` from the
root. Times of translation are those of the processor; eager and translated calls are made in turns.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import time
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn

import dy2st
from scripts.bench.bench_resnet import in_turns
from scripts.demo import fast_eager, processor

COMMAND = ".venv/bin/python -m scripts.bench.bench_decoder"


class Block(nn.Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)


class Decoder(nn.Layer):
    """The keys and values of each layer are in a list of caches, the tokens in a list that begins
    with the prompt."""

    def __init__(self, vocab: int = 96, width: int = 64, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(1024, width)
        self.blocks = nn.LayerList([Block(width) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab)
        self.width, self.heads = width, heads

    def forward(self, prompt: Any, steps: int) -> Any:
        batch, given = prompt.shape
        size = self.width // self.heads
        shape = [batch, self.heads, steps, size]
        keys = [paddle.zeros(shape) for _ in self.blocks]
        values = [paddle.zeros(shape) for _ in self.blocks]
        tokens = [prompt[:, p] for p in range(given)]
        for p in range(steps):
            x = self.tokens(tokens[p]) + self.places(paddle.full([batch], p, "int64"))
            for layer, block in enumerate(self.blocks):
                qkv = block.qkv(block.norm1(x)).reshape([batch, 3, self.heads, 1, size])
                keys[layer][:, :, p : p + 1] = qkv[:, 1]
                values[layer][:, :, p : p + 1] = qkv[:, 2]
                scores = qkv[:, 0] @ keys[layer][:, :, : p + 1].transpose([0, 1, 3, 2])
                seen = F.softmax(scores / size**0.5, -1) @ values[layer][:, :, : p + 1]
                x = x + block.out(seen.reshape([batch, self.width]))
                x = x + block.down(F.gelu(block.up(block.norm2(x))))
            if p + 1 >= given:
                tokens.append(self.head(self.norm(x)).argmax(-1))
        return paddle.stack(tokens, 1)


def translated(model: Any, prompt: Any, steps: int) -> tuple[Any, float]:
    """The translated model, and the seconds of its first call."""
    static = dy2st.to_static(model.forward)
    start = time.process_time()
    static(prompt, steps)
    return static, time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, nargs="*", default=[20, 80, 400])
    options = parser.parse_args()
    fast_eager()
    print(
        f"{datetime.date.today()}, `{COMMAND} --rounds {options.rounds}`, {processor()}, "
        f"one thread, Python {platform.python_version()}, Paddle {paddle.__version__}."
    )
    print("\n| steps | first call, s | ops | call, ms | eager, ms | ratio |")
    print("|---:|---:|---:|---:|---:|---:|")
    paddle.seed(0)
    model = Decoder()
    model.eval()
    prompt = paddle.randint(0, 96, [1, 8])
    with paddle.no_grad():
        for steps in options.steps:
            static, first = translated(model, prompt, steps)
            assert (static(prompt, steps) == model(prompt, steps)).all()
            assert "unrolled" not in str(dy2st.report(static, prompt, steps))
            ops = len(str(dy2st.program(static, prompt, steps)).splitlines())
            calls = [lambda f=f, n=steps: f(prompt, n) for f in (static, model)]  # type: ignore[misc]
            ours, eager = (statistics.median(q) for q in in_turns(calls, options.rounds))
            row = (f"{first:.2f}", str(ops), f"{ours:.2f}", f"{eager:.0f}", f"{eager / ours:.0f} x")
            print(f"| {steps} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
