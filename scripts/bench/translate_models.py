"""The first translation of a model, in a process of its own: what `bench_translate --against` runs.

`python scripts/bench/translate_models.py NAME` prints seconds: of the translation, and of one more
in the same process, of a fresh copy of the model. It needs nothing of a tree but the public
functions of `dy2st`, so that `PYTHONPATH` chooses among trees of any age.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable
from typing import Any

import paddle
import paddle.nn.functional as F

import dy2st


class CharLSTM(paddle.nn.Layer):
    """The model of README."""

    def __init__(self, vocab: int, hidden: int) -> None:
        super().__init__()
        self.embed = paddle.nn.Embedding(vocab, hidden)
        self.ih = paddle.nn.Linear(hidden, 4 * hidden)
        self.hh = paddle.nn.Linear(hidden, 4 * hidden)
        self.out = paddle.nn.Linear(hidden, vocab)
        self.hidden = hidden
        self.register_buffer("steps", paddle.zeros([], "int64"))

    def forward(self, tokens: Any) -> Any:
        x = self.embed(tokens)
        h = c = paddle.zeros([tokens.shape[0], self.hidden])
        ys = []
        for t in range(tokens.shape[1]):
            i, f, g, o = paddle.split(self.ih(x[:, t]) + self.hh(h), 4, axis=-1)
            c = F.sigmoid(f) * c + F.sigmoid(i) * paddle.tanh(g)
            h = F.sigmoid(o) * paddle.tanh(c)
            ys.append(h)
        self.steps.add_(paddle.to_tensor(1))
        return self.out(paddle.stack(ys, axis=1))


def char_lstm() -> tuple[Any, Any]:
    return CharLSTM(96, 256), paddle.randint(0, 96, [4, 128])


def resnet18() -> tuple[Any, Any]:
    net = paddle.vision.models.resnet18()
    net.eval()
    return net, paddle.randn([8, 3, 224, 224])


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {"CharLSTM": char_lstm, "ResNet-18": resnet18}


def main(name: str) -> None:
    net, x = MODELS[name]()
    program = getattr(dy2st, "program", lambda f, x: f.program(x))  # in older versions a method
    seconds = []
    for model in (net, copy.deepcopy(net)):
        static = dy2st.to_static(model)
        start = time.process_time()
        with paddle.no_grad():
            program(static, x)
        seconds.append(time.process_time() - start)
    print(*seconds)


if __name__ == "__main__":
    main(*sys.argv[1:])
