"""Models with state that is written in place: three calls and three steps as in eager Paddle."""

from __future__ import annotations

import re

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

import dy2st
from tests import check
from tests.check import trains

pytestmark = pytest.mark.sampled


class Block(nn.Layer):
    """A residual block; the activations are in place."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2D(inside, outside, 3, stride, 1, bias_attr=False)
        self.bn1 = nn.BatchNorm2D(outside)
        self.conv2 = nn.Conv2D(outside, outside, 3, 1, 1, bias_attr=False)
        self.bn2 = nn.BatchNorm2D(outside)
        self.short = nn.Sequential(
            nn.Conv2D(inside, outside, 1, stride, bias_attr=False), nn.BatchNorm2D(outside)
        )

    def forward(self, x):
        y = F.relu_(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y.add_(self.short(x))
        return F.relu_(y)


class SmallResNet(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2D(2, 4, 3, 1, 1, bias_attr=False), nn.BatchNorm2D(4))
        self.blocks = nn.Sequential(Block(4, 4, 1), Block(4, 6, 2))
        self.head = nn.Linear(6, 3)
        self.register_buffer("seen", paddle.zeros([1], "int64"))

    def forward(self, x):
        self.seen.add_(paddle.to_tensor([x.shape[0]]))
        y = self.blocks(F.relu_(self.stem(x)))
        return self.head(y.mean([2, 3]))


class Inverted(nn.Layer):
    """A block of MobileNet: expand, depthwise, squeeze and excite, project."""

    def __init__(self, channels, wide):
        super().__init__()
        self.expand = nn.Conv2D(channels, wide, 1, bias_attr=False)
        self.depthwise = nn.Conv2D(wide, wide, 3, 1, 1, groups=wide, bias_attr=False)
        self.project = nn.Conv2D(wide, channels, 1, bias_attr=False)
        self.norms = nn.LayerList([nn.BatchNorm2D(q) for q in (wide, wide, channels)])
        self.squeeze, self.excite = nn.Linear(wide, 2), nn.Linear(2, wide)

    def forward(self, x):
        y = F.hardswish(self.norms[0](self.expand(x)))
        y = F.relu6(self.norms[1](self.depthwise(y)))
        gate = F.hardsigmoid(self.excite(F.relu_(self.squeeze(y.mean([2, 3])))))
        y = self.norms[2](self.project(y * gate.unsqueeze([2, 3])))
        y.add_(x)
        return y


class SmallMobileNet(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2D(2, 4, 3, 2, 1), nn.BatchNorm2D(4)
        self.blocks = nn.LayerList([Inverted(4, 6), Inverted(4, 8)])
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        y = F.hardswish(self.norm(self.stem(x)))
        for block in self.blocks:
            y = block(y)
        return self.head(y.flatten(2).mean(-1))


class PersistentLstm(nn.Layer):
    """The state lives in buffers that every call writes (`copy_`)."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)
        self.register_buffer("h", paddle.zeros([2, 4]))
        self.register_buffer("c", paddle.zeros([2, 4]))

    def forward(self, x):
        h, c, ys = self.h * 1.0, self.c * 1.0, []
        for t in range(x.shape[1]):
            y, (h, c) = self.cell(x[:, t], (h, c))
            ys.append(y)
        self.h.copy_(h.detach())
        self.c.copy_(c.detach())
        return paddle.stack(ys, 1)


class RebindingLstm(nn.Layer):
    """The state is rebound, and detached between the calls."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)
        self.h = self.c = None

    def forward(self, x):
        if self.h is None:
            self.h = self.c = paddle.zeros([x.shape[0], 4])
        ys = []
        for t in range(x.shape[1]):
            _, (self.h, self.c) = self.cell(x[:, t], (self.h, self.c))
            ys.append(self.h)
        self.h, self.c = self.h.detach(), self.c.detach()
        return paddle.stack(ys, 1)


class Decoder(nn.Layer):
    """Attention over a cache of keys and values, a greedy loop; the cache is a buffer."""

    def __init__(self, length=6, width=4, vocabulary=7):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, vocabulary)
        self.register_buffer("keys", paddle.zeros([2, length, width]))
        self.register_buffer("values", paddle.zeros([2, length, width]))

    def attend(self, x, mask):
        scores = (self.keys * self.q(x).unsqueeze(1)).sum(-1) + mask
        return (F.softmax(scores, -1).unsqueeze(-1) * self.values).sum(1)

    def mask(self, last):
        after = paddle.arange(self.keys.shape[1]) > last
        return paddle.where(after, paddle.full([1], -1e9), paddle.zeros([1]))


class GreedyDecoder(Decoder):
    """Written at `[:, t]`, as long as the cache is."""

    def forward(self, first):
        token, ids = first, []
        for t in range(self.keys.shape[1]):
            x = self.embed(token)
            self.keys[:, t] = self.k(x)
            self.values[:, t] = self.v(x)
            token = self.out(x + self.attend(x, self.mask(t))).argmax(-1)
            ids.append(token)
        return paddle.stack(ids, 1)


class PositionDecoder(Decoder):
    """One step a call: the position is a buffer that every call moves."""

    def __init__(self):
        super().__init__()
        self.register_buffer("at", paddle.zeros([], "int64"))

    def forward(self, token):
        x = self.embed(token)
        self.keys[:, self.at] = self.k(x).detach()
        self.values[:, self.at] = self.v(x).detach()
        y = self.out(x + self.attend(x, self.mask(self.at)))
        self.at.add_(paddle.to_tensor(1))
        return y


def images(call):
    rng = np.random.default_rng(call)
    return [paddle.to_tensor(rng.normal(size=[2, 2, 6, 6]).astype(paddle.get_default_dtype()))]


def sequences(call):
    rng = np.random.default_rng(call)
    return [paddle.to_tensor(rng.normal(size=[2, 5, 3]).astype(paddle.get_default_dtype()))]


def tokens(call):
    return [paddle.to_tensor(np.random.default_rng(call).integers(0, 7, [2]))]


MODELS = {
    SmallResNet: images, SmallMobileNet: images, PersistentLstm: sequences,
    RebindingLstm: sequences, GreedyDecoder: tokens, PositionDecoder: tokens,
}  # fmt: skip
TRAINED = [q for q in MODELS if q is not GreedyDecoder]


def calls_of(make):
    """A function that gives new arguments with every call."""
    at = iter(range(100))
    return lambda: make(next(at))


@pytest.mark.quick("SmallResNet-train")
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("model", MODELS, ids=lambda q: q.__name__)
def test_three_calls(model, mode):
    """Results, buffers and running statistics, without gradients."""
    paddle.seed(0)
    layer = model()
    layer.train() if mode == "train" else layer.eval()
    with paddle.no_grad():
        check.parity(layer, calls_of(MODELS[model]), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("model", TRAINED, ids=lambda q: q.__name__)
def test_three_steps(model):
    """Gradients, parameters, buffers and running statistics after each step of SGD."""
    trains(model, calls_of(MODELS[model]), "float32" if model is SmallMobileNet else "float64")


FAILS = "a call that fails changes nothing, and it may fail at <line>"
#: why a storage that a model writes is copied, without gradients and with them
REASONS = {
    SmallResNet: (set(), set()),
    SmallMobileNet: (set(), set()),
    PersistentLstm: (
        {"its old value is read while the new one is made, at <line>"},
        {f"{q} is one of the two states that the loop at <line> keeps" for q in "hc"},
    ),
    RebindingLstm: (set(), set()),
    GreedyDecoder: ({FAILS}, {FAILS}),
    PositionDecoder: (set(), set()),
}


@pytest.mark.quick("GreedyDecoder-gradients")
@pytest.mark.parametrize("trained", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("model", MODELS, ids=lambda q: q.__name__)
def test_every_copy_has_a_reason(model, trained):
    """Each storage that the model writes stays in place, or the report says why not."""
    static, args = dy2st.to_static(model()), MODELS[model](0)
    with paddle.set_grad_enabled(trained):
        chains = dy2st.report(static, *args).chains
    written = {q.name for q in chains if q.written}
    want = {n for n, _ in static.named_buffers()} if model is not RebindingLstm else set()
    statistics = {n for n, _ in static.named_parameters() if "._" in n}
    assert written == want | statistics
    reasons = [(why, loc) for q in chains if q.written for why, loc in q.broken]
    assert all(why and loc is not None for why, loc in reasons)
    assert {re.sub(r"\S+\.py:\d+", "<line>", why) for why, _ in reasons} == REASONS[model][trained]
