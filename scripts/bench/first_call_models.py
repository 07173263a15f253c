"""Models of real size, and the first calls of one in a process of its own: what `bench_first_call`
runs.

`python scripts/bench/first_call_models.py NAME inference|training|load FILE` prints JSON: seconds
of the first call, in all and by stage, and those of a later call, the least of some. It needs
nothing of a tree but the public functions of `dy2st`, so that `PYTHONPATH` chooses among trees; a
stage that a tree does not have is not counted.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn

import dy2st

#: module, function, stage; what one of them spends in another is counted there only
STAGES = (
    ("dy2st.compiled.translate", "_captured", "trace"),
    ("dy2st.compiled.translate", "run_passes", "passes"),
    ("dy2st.compiled.translate", "functionalize", "passes"),
    ("dy2st.compiled.translate", "undistinguished", "passes"),
    ("dy2st.compiled.training", "run_passes", "passes"),
    ("dy2st.compiled.training", "differentiate", "gradient"),
    ("dy2st.export.load", "run_passes", "passes"),
    ("dy2st.export.load", "read", "read"),
    ("dy2st.export.load", "parse", "read"),
    ("dy2st.export.load", "verify", "read"),
    ("dy2st.export.load", "check_program", "read"),
    ("executor", "lower", "lowering"),
    ("executor", "layout", "lowering"),
    ("executor.cpu.backend", "legalize", "lowering"),
    ("executor.cpu.backend", "source", "code"),
    ("executor.cpu.backend", "Native", "LLVM"),
)
#: calls of which the least time counts
CALLS = 5
SPENT: dict[str, float] = defaultdict(float)
_INSIDE: list[float] = []


def timed(module: str, name: str, stage: str) -> None:
    """Count the time of a function, without that of others that are counted, as `stage`."""
    owner = importlib.import_module(module)
    original = getattr(owner, name, None)
    if original is None:
        return

    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.process_time()
        _INSIDE.append(0.0)
        try:
            return original(*args, **kwargs)
        finally:
            took = time.process_time() - start
            SPENT[stage] += took - _INSIDE.pop()
            if _INSIDE:
                _INSIDE[-1] += took

    setattr(owner, name, call)


# ---------------------------------------------------------------- models
class Bert(nn.Layer):
    """An encoder of BERT's base size."""

    def __init__(self, vocab: int = 30522, width: int = 768, layers: int = 12) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab, width)
        self.places = nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(width, 12, 4 * width, dropout=0.1, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, layers)
        self.pooler = nn.Linear(width, width)
        self.classes = nn.Linear(width, 2)

    def forward(self, ids: Any) -> Any:
        mask = (ids == 0).astype("float32").unsqueeze([1, 2]) * -1e4
        x = self.norm(self.words(ids) + self.places(paddle.arange(ids.shape[1])))
        x = self.encoder(x, mask)
        return self.classes(paddle.tanh(self.pooler(x[:, 0])))


class Block(nn.Layer):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any, past: Any) -> Any:
        b, n, width = x.shape
        q, k, v = self.qkv(self.before(x)).chunk(3, axis=-1)
        q, k, v = (t.reshape([b, n, self.heads, -1]).transpose([0, 2, 1, 3]) for t in (q, k, v))
        if past is not None:
            k, v = paddle.concat([past[0], k], axis=2), paddle.concat([past[1], v], axis=2)
        scores = paddle.matmul(q, k, transpose_y=True) / (width / self.heads) ** 0.5
        if n > 1:
            scores = scores + paddle.triu(paddle.full([n, n], -1e9), 1)
        y = paddle.matmul(F.softmax(scores), v).transpose([0, 2, 1, 3]).reshape([b, n, width])
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.after(x)))), (k, v)


class Gpt(nn.Layer):
    """A greedy decoder with caches; in training all places at once."""

    def __init__(self, vocab: int = 8000, width: int = 512, layers: int = 8) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocab, width), nn.Embedding(256, width)
        self.blocks = nn.LayerList([Block(width, 8) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab)

    def logits(self, tokens: Any, first: int, pasts: Any) -> tuple[Any, list[Any]]:
        x = self.words(tokens) + self.places(paddle.arange(first, first + tokens.shape[1]))
        new = []
        for block, past in zip(self.blocks, pasts):
            x, kept = block(x, past)
            new.append(kept)
        return self.head(self.norm(x)), new

    def forward(self, tokens: Any) -> Any:
        logits, pasts = self.logits(tokens, 0, [None] * len(self.blocks))
        if self.training:
            return logits
        out, n = [logits[:, -1:].argmax(-1)], tokens.shape[1]
        for k in range(16):
            logits, pasts = self.logits(out[-1], n + k, pasts)
            out.append(logits.argmax(-1))
        return paddle.concat(out, axis=1)


class Seq2Seq(nn.Layer):
    """An LSTM encoder, and a decoder of LSTM cells with attention."""

    def __init__(self, vocab: int = 8000, width: int = 256) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(vocab, width), nn.Embedding(vocab, width)
        self.encoder = nn.LSTM(width, width, num_layers=2, direction="bidirect")
        self.cells = nn.LayerList([nn.LSTMCell(3 * width, width), nn.LSTMCell(width, width)])
        self.query, self.out = nn.Linear(width, 2 * width), nn.Linear(3 * width, vocab)

    def forward(self, source: Any, target: Any) -> Any:
        memory, _ = self.encoder(self.source(source))
        states: list[Any] = [None, None]
        b, _, width = memory.shape
        context = paddle.zeros([b, width])
        ys = []
        for t in range(target.shape[1]):
            x = paddle.concat([self.target(target[:, t]), context], axis=-1)
            for k in range(2):
                x, states[k] = self.cells[k](x, states[k])
            weights = F.softmax(paddle.matmul(memory, self.query(x).unsqueeze(-1)), axis=1)
            context = (weights * memory).sum(axis=1)
            ys.append(self.out(paddle.concat([x, context], axis=-1)))
        return paddle.stack(ys, axis=1)


def double(inputs: int, outputs: int) -> Any:
    layers: list[Any] = []
    for n in (inputs, outputs):
        layers += [nn.Conv2D(n, outputs, 3, padding=1), nn.BatchNorm2D(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Layer):
    def __init__(self, width: int = 32, depth: int = 4) -> None:
        super().__init__()
        sizes = [width << k for k in range(depth + 1)]
        self.first = double(3, width)
        self.downs = nn.LayerList([double(a, 2 * a) for a in sizes[:-1]])
        self.ups = nn.LayerList([nn.Conv2DTranspose(2 * a, a, 2, 2) for a in sizes[-2::-1]])
        self.merges = nn.LayerList([double(2 * a, a) for a in sizes[-2::-1]])
        self.last = nn.Conv2D(width, 2, 1)

    def forward(self, x: Any) -> Any:
        x, skips = self.first(x), []
        for down in self.downs:
            skips.append(x)
            x = down(F.max_pool2d(x, 2))
        for up, merge in zip(self.ups, self.merges):
            x = merge(paddle.concat([skips.pop(), up(x)], axis=1))
        return self.last(x)


class ConformerBlock(nn.Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Silu(),
                nn.Dropout(0.1), nn.Linear(4 * width, width), nn.Dropout(0.1),
            ) for _ in range(2)
        )  # fmt: skip
        self.before, self.attention = nn.LayerNorm(width), nn.MultiHeadAttention(width, 4)
        self.between = nn.LayerNorm(width)
        self.wide, self.narrow = nn.Conv1D(width, 2 * width, 1), nn.Conv1D(width, width, 1)
        self.deep = nn.Conv1D(width, width, 15, padding=7, groups=width)
        self.batch, self.after = nn.BatchNorm1D(width), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        x = x + 0.5 * self.first(x)
        x = x + self.attention(self.before(x))
        y = F.glu(self.wide(self.between(x).transpose([0, 2, 1])), axis=1)
        x = x + self.narrow(F.silu(self.batch(self.deep(y)))).transpose([0, 2, 1])
        return self.after(x + 0.5 * self.second(x))


class Spiking(nn.Layer):
    """Convolutions and leaky neurons that fire, over T steps."""

    def __init__(self, steps: int = 16) -> None:
        super().__init__()
        self.steps, sizes = steps, (2, 32, 64, 64)
        self.convs = nn.LayerList(
            [nn.Conv2D(a, b, 3, stride=2, padding=1) for a, b in zip(sizes, sizes[1:])]
        )
        self.norms = nn.LayerList([nn.BatchNorm2D(b) for b in sizes[1:]])
        self.out = nn.Linear(64 * 16, 10)

    def forward(self, x: Any) -> Any:  # [T, B, 2, 32, 32]
        states: list[Any] = [0.0, 0.0, 0.0]
        total = 0.0
        for t in range(self.steps):
            y = x[t]
            for k in range(3):
                v = states[k] + (self.norms[k](self.convs[k](y)) - states[k]) / 2.0
                spike = (v >= 1.0).astype("float32")
                soft = F.sigmoid(4.0 * (v - 1.0))
                y = soft + (spike - soft).detach()
                states[k] = v * (1.0 - spike)
            total = total + self.out(y.flatten(1))
        return total / self.steps


class Decoder(nn.Layer):
    """An LSTM that reads texts by its index, so that its loop is unrolled: a long program."""

    def __init__(self, steps: int = 189, width: int = 16) -> None:
        super().__init__()
        self.ih, self.hh = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)
        self.out = nn.Linear(width, width)
        self.names = ["tanh" if k % 7 else "sigmoid" for k in range(steps)]

    def forward(self, x: Any) -> Any:
        h = c = paddle.zeros_like(x)
        ys = []
        for t in range(len(self.names)):
            i, f, g, o = paddle.split(self.ih(x) + self.hh(h), 4, axis=-1)
            c = F.sigmoid(f) * c + F.sigmoid(i) * paddle.tanh(g)
            h = F.sigmoid(o) * paddle.tanh(c)
            x = getattr(F, self.names[t])(self.out(h))
            ys.append(x)
        return paddle.stack(ys, axis=1)


def image(size: int) -> Callable[[], list[Any]]:
    return lambda: [paddle.randn([1, 3, size, size])]


def ids(*shape: int) -> Any:
    return paddle.randint(1, 8000, list(shape))


vision = paddle.vision.models
MODELS: dict[str, tuple[Callable[[], Any], Callable[[], list[Any]]]] = {
    "ResNet-50": (vision.resnet50, image(224)),
    "MobileNetV3": (vision.mobilenet_v3_large, image(224)),
    "BERT-base": (Bert, lambda: [ids(1, 128)]),
    "GPT, 16 tokens": (Gpt, lambda: [ids(1, 32)]),
    "LSTM seq2seq": (Seq2Seq, lambda: [ids(4, 24), ids(4, 20)]),
    "UNet": (UNet, image(128)),
    "Conformer": (
        lambda: nn.Sequential(*(ConformerBlock(256) for _ in range(8))),
        lambda: [paddle.randn([1, 100, 256])],
    ),
    "Spiking network": (Spiking, lambda: [paddle.rand([16, 4, 2, 32, 32])]),
    "Unrolled decoder": (Decoder, lambda: [paddle.randn([2, 16])]),
}


# ---------------------------------------------------------------- measurements
def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def first_calls(name: str, training: bool) -> dict[str, float]:
    make, arguments = MODELS[name]
    paddle.seed(7)
    model, given = make(), arguments()
    model.train() if training else model.eval()
    static = dy2st.to_static(model)

    def call() -> Any:
        if not training:
            with paddle.no_grad():
                return static(*given)
        out = static(*given)
        out.sum().backward()
        return out

    return measured(call)


def loading(path: str) -> dict[str, float]:
    loaded = []
    found = measured(lambda: loaded.append(dy2st.load(path)), calls=0)
    found["lines"] = len(str(loaded[0].program).splitlines())
    return found


def measured(call: Callable[[], Any], calls: int = CALLS) -> dict[str, float]:
    for stage in STAGES:
        timed(*stage)
    processor = time.process_time()
    first = seconds(call)
    processor = time.process_time() - processor
    stages = dict(SPENT)
    later = min((seconds(call) for _ in range(calls)), default=0.0)
    return {"first": first, "processor": processor, "later": later, **stages}


def saved(name: str, path: str) -> None:
    make, arguments = MODELS[name]
    model = make()
    model.eval()
    kinds = [(list(x.shape), str(x.dtype).split(".")[-1]) for x in arguments()]
    dy2st.save(model, path, [paddle.static.InputSpec(*kind) for kind in kinds])


def main(name: str, what: str, path: str = "") -> None:
    if what == "save":
        saved(name, path)
        return
    found = loading(path) if what == "load" else first_calls(name, what == "training")
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
