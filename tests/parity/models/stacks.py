"""Stacks of layers in a loop over time, with a cache or a state for each layer, as models of
Hugging Face, nanoGPT, PaddleNLP and snnTorch keep them. Each is a subclass of `Decoder` or `Stack`
that differs in where its caches are."""

from __future__ import annotations

import paddle
from paddle import nn
from paddle.nn import functional as F

WIDTH = 4


class Part(nn.Layer):
    """One layer of attention."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))

    def keys(self, x):
        return self.k(x), self.v(x)

    def attend(self, x, k, v):
        return x + paddle.tanh(F.softmax(self.q(x) @ k.transpose([0, 2, 1])) @ v)


class Decoder(nn.Layer):
    """A step takes the output of the one before it."""

    def __init__(self, depth: int = 9, width: int = WIDTH) -> None:
        super().__init__()
        self.depth, self.width = depth, width
        self.layers = nn.LayerList([Part(width) for _ in range(depth)])

    def none(self, x):
        return paddle.zeros([x.shape[0], 0, self.width], x.dtype)


class WrittenBuffers(Decoder):
    """Buffers as long as the answer, written at the step."""

    def forward(self, x, n):
        ks = [paddle.zeros([x.shape[0], n + 1, self.width], x.dtype) for _ in range(self.depth)]
        vs = [paddle.zeros([x.shape[0], n + 1, self.width], x.dtype) for _ in range(self.depth)]
        for p in range(n):
            for i, layer in enumerate(self.layers):
                ks[i][:, p : p + 1], vs[i][:, p : p + 1] = layer.keys(x)
                x = layer.attend(x, ks[i][:, : p + 1], vs[i][:, : p + 1])
        return x


class WrittenPairs(Decoder):
    """The same in pairs, which `zip` gives."""

    def forward(self, x, n):
        shape = [x.shape[0], n + 1, self.width]
        caches = [(paddle.zeros(shape, x.dtype), paddle.zeros(shape, x.dtype)) for _ in self.layers]
        for p in range(n):
            for layer, (k, v) in zip(self.layers, caches):
                k[:, p : p + 1], v[:, p : p + 1] = layer.keys(x)
                x = layer.attend(x, k[:, : p + 1], v[:, : p + 1])
        return x


class Longer(Decoder):
    """Two lists of caches that get longer."""

    def forward(self, x, n):
        ks = [self.none(x) for _ in range(self.depth)]
        vs = [self.none(x) for _ in range(self.depth)]
        for _ in range(n):
            for i in range(self.depth):
                k, v = self.layers[i].keys(x)
                ks[i], vs[i] = paddle.concat([ks[i], k], 1), paddle.concat([vs[i], v], 1)
                x = self.layers[i].attend(x, ks[i], vs[i])
        return x, ks[0], vs[-1]


class Pairs(Decoder):
    def forward(self, x, n):
        caches = [(self.none(x), self.none(x)) for _ in range(self.depth)]
        for _ in range(n):
            for i, layer in enumerate(self.layers):
                k, v = layer.keys(x)
                k, v = paddle.concat([caches[i][0], k], 1), paddle.concat([caches[i][1], v], 1)
                x, caches[i] = layer.attend(x, k, v), (k, v)
        return x, caches[-1]


class Nones(Decoder):
    """Lists that begin with None."""

    def forward(self, x, n):
        ks, vs = [None] * self.depth, [None] * self.depth
        for _ in range(n):
            for i, layer in enumerate(self.layers):
                k, v = layer.keys(x)
                ks[i] = k if ks[i] is None else paddle.concat([ks[i], k], 1)
                vs[i] = v if vs[i] is None else paddle.concat([vs[i], v], 1)
                x = layer.attend(x, ks[i], vs[i])
        return x, ks[1]


class NonesInADict(Decoder):
    """A dict of such lists."""

    def forward(self, x, n):
        cache = {"k": [None] * self.depth, "v": [None] * self.depth}
        for _ in range(n):
            for i, layer in enumerate(self.layers):
                k, v = layer.keys(x)
                if cache["k"][i] is not None:
                    k = paddle.concat([cache["k"][i], k], 1)
                    v = paddle.concat([cache["v"][i], v], 1)
                cache["k"][i], cache["v"][i] = k, v
                x = layer.attend(x, k, v)
        return x, cache["v"]


class Dicts(Decoder):
    """A list of dicts."""

    def forward(self, x, n):
        states = [{"k": self.none(x), "v": self.none(x)} for _ in range(self.depth)]
        for _ in range(n):
            for i, layer in enumerate(self.layers):
                k, v = layer.keys(x)
                states[i]["k"] = paddle.concat([states[i]["k"], k], 1)
                states[i]["v"] = paddle.concat([states[i]["v"], v], 1)
                x = layer.attend(x, states[i]["k"], states[i]["v"])
        return x, [s["k"] for s in states]


class ByNumber(Decoder):
    """Dicts whose keys are the numbers of layers."""

    def forward(self, x, n):
        ks, vs = {i: self.none(x) for i in range(self.depth)}, {}
        for _ in range(n):
            for i, layer in enumerate(self.layers):
                k, v = layer.keys(x)
                ks[i] = paddle.concat([ks[i], k], 1)
                vs[i] = paddle.concat([vs[i], v], 1) if i in vs else v
                x = layer.attend(x, ks[i], vs[i])
        return x, ks[0]


class Appended(Decoder):
    """A list of steps for each layer."""

    def forward(self, x, n):
        ks, vs = [[] for _ in self.layers], [[] for _ in self.layers]
        for _ in range(n):
            for i, layer in enumerate(self.layers):
                k, v = layer.keys(x)
                ks[i].append(k)
                vs[i].append(v)
                x = layer.attend(x, paddle.concat(ks[i], 1), paddle.concat(vs[i], 1))
        return x


class Replaced(Decoder):
    """A step makes a new list, from the layers and caches that `zip` gives."""

    def forward(self, x, n):
        caches = [(self.none(x), self.none(x))] * self.depth
        for _ in range(n):
            new = []
            for layer, cache in zip(self.layers, caches):
                k, v = layer.keys(x)
                k, v = paddle.concat([cache[0], k], 1), paddle.concat([cache[1], v], 1)
                new.append((k, v))
                x = layer.attend(x, k, v)
            caches = new
        return x, caches[0]


class PastKeyValues(Decoder):
    """A tuple of pairs, None in the first step."""

    def step(self, x, past):
        present = ()
        for i, layer in enumerate(self.layers):
            k, v = layer.keys(x)
            if past is not None:
                k, v = paddle.concat([past[i][0], k], 1), paddle.concat([past[i][1], v], 1)
            present += ((k, v),)
            x = layer.attend(x, k, v)
        return x, present

    def forward(self, x, n):
        past = None
        for _ in range(n):
            x, past = self.step(x, past)
        return x


class AtTheLayers(Decoder):
    """Each layer keeps its cache."""

    def forward(self, x, n):
        for layer in self.layers:
            layer.cache = None
        for _ in range(n):
            for layer in self.layers:
                k, v = layer.keys(x)
                if layer.cache is not None:
                    k = paddle.concat([layer.cache[0], k], 1)
                    v = paddle.concat([layer.cache[1], v], 1)
                layer.cache = (k, v)
                x = layer.attend(x, k, v)
        for layer in self.layers:
            layer.cache = None
        return x


# ---------------------------------------------------------------- states of one size
class Stack(nn.Layer):
    """A cell for each layer; `x` is [T, B, width]."""

    def __init__(self, depth: int = 9, width: int = WIDTH) -> None:
        super().__init__()
        self.depth = depth
        self.cells = nn.LayerList([self.cell(width) for _ in range(depth)])

    def cell(self, width: int):
        return nn.LSTMCell(width, width)


class NewStates(Stack):
    """None in the first step."""

    def forward(self, x):
        states, ys = [None] * self.depth, [x[:0]]
        for t in range(x.shape[0]):
            y = x[t]
            for i, cell in enumerate(self.cells):
                y, states[i] = cell(y, states[i])
            ys.append(y.unsqueeze(0))
        return paddle.concat(ys)


class StatesByNumber(Stack):
    def forward(self, x):
        states, y = {}, x.sum(0)
        for t in range(x.shape[0]):
            y = x[t]
            for i, cell in enumerate(self.cells):
                y, states[i] = cell(y, states.get(i))
        return y


class LayerByLayer(Stack):
    """The loop over layers is around the one over time."""

    def forward(self, x):
        seq = [x[t] for t in range(x.shape[0])]
        for cell in self.cells:
            state, out = None, []
            for y in seq:
                y, state = cell(y, state)
                out.append(y)
            seq = out
        return seq[-1:]


class ByName(Stack):
    """Layers that have names, and the states of these."""

    def __init__(self, depth: int = 9, width: int = WIDTH) -> None:
        super().__init__(depth, width)
        for i, cell in enumerate(self.cells):
            setattr(self, f"cell{i}", cell)

    def forward(self, x):
        states = {f"h{i}": x.sum(0) for i in range(self.depth)}
        for t in range(x.shape[0]):
            y = x[t]
            for i in range(self.depth):
                y, (states[f"h{i}"], _) = getattr(self, f"cell{i}")(y, (states[f"h{i}"], y))
        for i in range(self.depth):
            _, (y, _) = getattr(self, f"cell{i}")(states[f"h{i}"])
        return y


class Residual(nn.Layer):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.BatchNorm1D(width)

    def forward(self, x):
        return paddle.tanh(x + self.norm(self.linear(x)))


class Normalised(Stack):
    """Running statistics, in training."""

    def cell(self, width: int):
        return Residual(width)

    def forward(self, x):
        h = x.sum(0)
        for t in range(x.shape[0]):
            h = h + x[t]
            for block in self.cells:
                h = block(h)
        return h


class Spiking(Normalised):
    """Potentials in a list that begins with numbers."""

    def forward(self, x):
        v, out = [0.0] * self.depth, x.sum(0)
        for t in range(x.shape[0]):
            s = x[t]
            for i in range(self.depth):
                v[i] = 0.9 * v[i] + self.cells[i](s)
                s = F.sigmoid(4 * (v[i] - 0.5))
                v[i] = v[i] * (1 - s)
            out = out + s
        return out


#: eager has no gradient of what is written after it has been read
WRITTEN = (WrittenBuffers, WrittenPairs)
DECODERS = (
    Longer, Pairs, Nones, NonesInADict, Dicts, ByNumber, Appended, Replaced, PastKeyValues,
    AtTheLayers,
)  # fmt: skip
STACKS = (NewStates, StatesByNumber, LayerByLayer, ByName, Normalised, Spiking)
