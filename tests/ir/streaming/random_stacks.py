"""Random stacks of ops over time, on whole sequences and streamed, for the tests and the fuzzing.

A stack is a list of layers, each a function of a builder and a value `[B, C, T]`. It is built
twice: for a number of frames, and for `chunk * stream_units` frames, which is streamed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ir import (
    Builder,
    Carry,
    Const,
    Input,
    Program,
    Scan,
    Seq,
    ShapeError,
    Stack,
    Type,
    Value,
)
from ir.streaming import QUANTUM
from ir.types import F32, I64, Dim, Size, floor_divide

BATCH = 2


@dataclass
class Stack_:
    """The layers of a seed. `unit`: the frames that a chunk is a multiple of."""

    seed: int
    depth: int
    unit: int = 1
    layers: list[tuple[Any, ...]] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        for _ in range(self.depth):
            name = rng.choice(sorted(KINDS))
            draw, factor = KINDS[name]
            a = draw(rng)
            f = factor(a)
            if self.unit * f > 24:
                continue
            self.unit *= f
            self.layers.append((name, a))

    def build(self, frames: Dim) -> tuple[Program, list[np.ndarray]]:
        b = Built(
            np.random.default_rng(self.seed), [] if isinstance(frames, Size) else [*self.cuts]
        )
        x = Value(Type(F32, (BATCH, 3, frames)), "x")
        y = x
        for name, a in self.layers:
            y = LAYERS[name](b, y, a)
        self.cuts = b.cuts if isinstance(frames, Size) else self.cuts
        inputs = (
            Input(x, "arg", "x"),
            *(Input(v, "param", f"w{k}") for k, (v, _) in enumerate(b.weights)),
        )
        return Program("stack", inputs, tuple(b.ops), (y,)), [w for _, w in b.weights]

    def __str__(self) -> str:
        return f"seed {self.seed}: " + ", ".join(f"{n}{a}" for n, a in self.layers)


class Built(Builder):
    def __init__(self, rng: np.random.Generator, cuts: list[int]) -> None:
        super().__init__()
        self.rng, self.weights, self.cuts = rng, [], cuts

    def weight(self, *shape: int) -> Value:
        v = Value(Type(F32, shape), "w")
        self.weights.append((v, (self.rng.standard_normal(shape) * 0.5).astype("float32")))
        return v


# ---------------------------------------------------------------- layers
def image(b, x):
    n, c, t = x.type.shape
    return b.reshape(x, shape=(n, c, 1, t))


def plane(b, y):
    n, c, _, t = y.type.shape
    return b.reshape(y, shape=(n, c, t))


def conv(b, x, a):
    k, stride, dilation, pads = a
    c = x.type.shape[1]
    y = b.conv(
        image(b, x),
        b.weight(3, c, 1, k),
        stride=(1, stride),
        dilation=(1, dilation),
        padding=((0, 0), pads),
    )
    return b.add(plane(b, y), b.weight(3, 1))


def deep_conv(b, x, a):
    """A loop over layers with a causal convolution in each."""
    k, trip = a
    c = x.type.shape[1]
    ws = b.weight(trip, c, c, 1, k)
    inner, w = Value(x.type, "h"), Value(Type(F32, (c, c, 1, k)), "w")
    body = Builder()
    y = body.conv(image(body, inner), w, padding=((0, 0), (k - 1, 0)))
    y = body.tanh(body.add(plane(body, y), body.full(value=0.3, dtype=F32)))
    last = Value(x.type, "last")
    b.append(
        Scan(
            Value(Type(I64), "i"), trip, (Seq(w, ws, 0), Carry(inner, x, y, last)), tuple(body.ops)
        )
    )
    return last


def pool(b, x, a):
    how, k, stride, pads = a
    return plane(
        b,
        b.emit(
            how, [image(b, x)], {"taps": (1, k), "stride": (1, stride), "padding": ((0, 0), pads)}
        )[0],
    )


def pad(b, x, a):
    low, high, value = a
    n, c, _ = x.type.shape
    parts = [b.full(value=value, shape=(n, c, low), dtype=F32)] if low else []
    behind = [b.full(value=value, shape=(n, c, high), dtype=F32)] if high else []
    return b.concat(*parts, x, *behind, axis=2)


def edge(b, x, a):
    n, c, _ = x.type.shape
    first = b.slice(x, axis=2, start=0, length=1)
    return b.concat(b.expand(first, shape=(n, c, a)), x, axis=2)


def reflect(b, x, a):
    return b.concat(b.slice(x, axis=2, start=a, length=a, step=-1), x, axis=2)


def join(b, x, a):
    """With frames of data before and behind it."""
    n, c, _ = x.type.shape
    low, high = a
    parts = [b.weight(n, c, low)] if low else []
    behind = [b.weight(n, c, high)] if high else []
    return b.concat(*parts, x, *behind, axis=2)


def cut(b, x, a):
    start, end, step = a
    n = x.type.shape[2] - start - end
    if step > 1:
        n = floor_divide(n - 1, step)
        if n is None:
            raise ShapeError("a step")
        n = n + 1
    if isinstance(n, int) and n < 0:
        raise ShapeError("short")
    return b.slice(x, axis=2, start=start, length=n, step=step)


def elementwise(b, x, a):
    if a == "scale":
        return b.scale(x, scale=0.7, bias=0.4)
    return b.emit(a, [x])[0]


def running(b, x, a):
    if a == "recurrence":
        return b.recurrence(b.sigmoid(x), x, axis=2)
    return b.emit(a, [b.scale(x, scale=0.1)], {"axis": 2})[0]


def gru(b, x, a):
    """A state that starts at numbers, a weight or zeros."""
    n, c, t = x.type.shape
    h0 = b.full(value=0.0, shape=(n, 4), dtype=F32) if a[0] == "zeros" else b.weight(n, 4)
    w, u = b.weight(c, 4), b.weight(4, 4)
    start = a[1]
    if isinstance(t - start, int) and t - start < 0:
        raise ShapeError("short")
    ports = [Value(v.type, "q") for v in (w, u)]
    xt, h = Value(Type(F32, (n, c)), "xt"), Value(h0.type, "h")
    i = Value(Type(I64), "i")
    body = Builder()
    z = body.tanh(body.add(body.matmul(xt, ports[0]), body.matmul(h, ports[1])))
    if a[2]:
        z = body.add(z, body.scale(body.cast(i, dtype=F32), scale=0.01))
    h2 = body.scale(body.add(h, z), scale=0.5)
    outer = Value(Type(F32, (n, 4, t - start)), "ys")
    b.append(
        Scan(
            i,
            t - start,
            (
                Const(ports[0], w),
                Const(ports[1], u),
                Seq(xt, x, 2, start),
                Carry(h, h0, h2),
                Stack(outer, h2, 2),
            ),
            tuple(body.ops),
        )
    )
    return b.slice(outer, axis=1, start=0, length=3)


def across(b, x, a):
    """A loop over channels, whose state is as long as the sequence."""
    n, c, t = x.type.shape
    h0 = b.full(value=0.0, shape=(n, t), dtype=F32)
    xc, h = Value(h0.type, "xc"), Value(h0.type, "h")
    body = Builder()
    h2 = body.tanh(body.add(body.scale(h, scale=0.5), xc))
    outer = Value(Type(F32, (n, t, 3)), "ys")
    b.append(
        Scan(
            Value(Type(I64), "i"),
            3,
            (Seq(xc, x, 1), Carry(h, h0, h2), Stack(outer, h2, 2)),
            tuple(body.ops),
        )
    )
    return b.transpose(outer, perm=(0, 2, 1))


def mix(b, x, a):
    y = b.transpose(x, perm=(0, 2, 1))
    y = b.add(b.matmul(y, b.weight(x.type.shape[1], 3)), b.weight(3))
    return b.transpose(y, perm=(0, 2, 1))


def groups(b, x, a):
    """Frames in groups, and apart again if `back`."""
    k, back = a
    n, c, t = x.type.shape
    if isinstance(t, Size):
        b.cuts.append(t.substitute({QUANTUM: 0}) % k)
    start = b.cuts.pop(0) if not isinstance(t, Size) else b.cuts[-1]
    y, t = cut(b, x, (start, 0, 1)), t - start
    y = b.transpose(y, perm=(0, 2, 1))
    m = floor_divide(t, k)
    y = b.reshape(y, shape=(n, m, k * c))
    y = b.tanh(y)
    if back:
        y = b.reshape(y, shape=(n, t, c))
    else:
        y = b.slice(y, axis=2, start=0, length=3)
    return b.transpose(y, perm=(0, 2, 1))


def repeat(b, x, a):
    n, c, t = x.type.shape
    y = b.expand(b.reshape(x, shape=(n, c, t, 1)), shape=(n, c, t, a))
    return b.reshape(y, shape=(n, c, t * a))


def residual(b, x, a):
    """Two ways with different delays, cut to one length at both ends."""
    pads, k, late = a
    y = conv(b, x, (k, 1, 1, pads))
    gap = y.type.shape[2] - x.type.shape[2]
    low = min(late, abs(gap))
    if gap > 0:
        y = cut(b, y, (low, gap - low, 1))
    elif gap < 0:
        x = cut(b, x, (low, -gap - low, 1))
    return b.add(b.relu(y), x)


def channels(b, x, a):
    y = b.concat(x, b.tanh(cut(b, pad(b, x, (a, 0, 0.5)), (0, a, 1))), axis=1)
    return b.slice(y, axis=1, start=1, length=3)


def first(b, x, a):
    n, c, _ = x.type.shape
    return b.subtract(x, b.reshape(b.index(x, axis=2, index=a), shape=(n, c, 1)))


def places(b, x, a):
    t = x.type.shape[2]
    if isinstance(t, int) and t > 400:
        raise ShapeError("long")
    if a == "table":
        return b.add(x, b.slice(b.weight(3, 400), axis=1, start=0, length=t))
    return b.add(x, b.scale(b.iota(n=t, dtype=F32), scale=0.01))


def masked(b, x, a):
    """Lengths as a tensor of ones that a pool counts: what average pooling does."""
    t = x.type.shape[2]
    ones = b.full(value=1.0, shape=(1, 1, 1, t), dtype=F32)
    attrs = {"taps": (1, a), "stride": (1, 1), "padding": ((0, 0), (a // 2, a - 1 - a // 2))}
    return plane(b, b.divide(b.sum_pool(image(b, x), **attrs), b.sum_pool(ones, **attrs)))


def deconv(b, x, a):
    """A transposed convolution: phases as channels, interleaved and cut."""
    taps, s, low, high = a
    n, c, _ = x.type.shape
    y = b.conv(image(b, x), b.weight(s * 3, c, 1, taps), padding=((0, 0), (taps - 1, taps - 1)))
    t = y.type.shape[3]
    y = b.transpose(b.reshape(y, shape=(n, s, 3, t)), perm=(0, 2, 3, 1))
    y = b.add(b.reshape(y, shape=(n, 3, t * s)), b.weight(3, 1))
    return cut(b, y, (low, high, 1))


def frames(b, x, a):
    """Windows of frames, as of a short-time Fourier transform, and a product over each."""
    size, step = a
    y = b.unfold(x, axis=2, size=size, step=step)
    return b.reshape(b.matmul(y, b.weight(size, 1)), shape=y.type.shape[:3])


def attend(b, x, a):
    """Attention of each frame to the ones just before it."""
    y = b.transpose(x, perm=(0, 2, 1))
    n, t, c = y.type.shape
    keys = b.unfold(
        b.concat(b.full(value=0.0, shape=(n, a - 1, c), dtype=F32), y, axis=1),
        axis=1,
        size=a,
        step=1,
    )
    scores = b.matmul(b.reshape(y, shape=(n, t, 1, c)), keys)
    weights = b.divide(b.sigmoid(scores), b.sum(b.sigmoid(scores), axes=(3,), keepdim=True))
    return b.transpose(
        b.reshape(b.matmul(weights, keys, trans_y=True), shape=(n, t, c)), perm=(0, 2, 1)
    )


def _pads(r, extent):
    return (r.randint(0, extent), r.randint(0, extent))


def _conv(r):
    k, dilation = r.randint(1, 5), r.choice([1, 1, 2, 3])
    return k, r.choice([1, 1, 1, 2, 3]), dilation, _pads(r, (k - 1) * dilation + 1)


def _pool(r):
    k = r.randint(1, 4)
    return r.choice(["max_pool", "sum_pool"]), k, r.choice([1, 1, 2, 3]), _pads(r, k - 1)


LAYERS = {
    f.__name__: f
    for f in (
        conv,
        deep_conv,
        pool,
        pad,
        edge,
        reflect,
        join,
        cut,
        elementwise,
        running,
        gru,
        across,
        mix,
        groups,
        repeat,
        residual,
        channels,
        first,
        places,
        masked,
        deconv,
        frames,
        attend,
    )
}
ONE = lambda a: 1  # noqa: E731
#: how a layer draws its attributes, and by how much it divides the rate
KINDS = {
    "conv": (_conv, lambda a: a[1]),
    "deep_conv": (lambda r: (r.randint(1, 3), r.randint(1, 3)), ONE),
    "pool": (_pool, lambda a: a[2]),
    "pad": (lambda r: (r.randint(0, 5), r.randint(0, 5), r.choice([0.0, 0.7])), ONE),
    "edge": (lambda r: r.randint(1, 4), ONE),
    "reflect": (lambda r: r.randint(1, 4), ONE),
    "join": (lambda r: (r.randint(0, 4), r.randint(0, 4)), ONE),
    "cut": (
        lambda r: (
            (r.randint(0, 4), r.randint(0, 3), 1)
            if r.random() < 0.7
            else (r.randint(0, 4), 0, r.randint(2, 3))
        ),
        lambda a: a[2],
    ),
    "elementwise": (lambda r: r.choice(["tanh", "relu", "sigmoid", "scale", "sin"]), ONE),
    "running": (
        lambda r: r.choice(["cumsum", "cumprod", "recurrence"]),
        ONE,
    ),
    "gru": (lambda r: (r.choice(["zeros", "weight"]), r.choice([0, 0, 2]), r.random() < 0.3), ONE),
    "across": (lambda r: (), ONE),
    "mix": (lambda r: (), ONE),
    "groups": (lambda r: (r.randint(2, 3), r.random() < 0.5), lambda a: a[0]),
    "repeat": (lambda r: r.randint(2, 3), ONE),
    "residual": (
        lambda r: ((r.randint(0, 3), r.randint(0, 3)), r.randint(1, 5), r.randint(0, 3)),
        ONE,
    ),
    "channels": (lambda r: r.randint(1, 3), ONE),
    "first": (lambda r: r.randint(0, 3), ONE),
    "places": (lambda r: r.choice(["table", "iota"]), ONE),
    "masked": (lambda r: r.randint(1, 4), ONE),
    "deconv": (lambda r: (r.randint(1, 3), r.randint(2, 3), r.randint(0, 2), r.randint(0, 2)), ONE),
    "frames": (lambda r: (r.randint(1, 6), r.choice([1, 2, 3])), lambda a: a[1]),
    "attend": (lambda r: r.randint(1, 4), ONE),
}
