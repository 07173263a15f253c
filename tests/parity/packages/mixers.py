"""Sequence mixers with a recurrent form, after public packages: Llama with a cache, Mamba, RWKV,
xLSTM, retention; and the decoders of WaveRNN and SAR."""

from __future__ import annotations

import math

import paddle
import paddle.nn.functional as F
from paddle import nn


# ---------------------------------------------------------------- Llama
def rotated(x, cos, sin):
    low, high = x.chunk(2, axis=-1)
    return x * cos + paddle.concat([-high, low], axis=-1) * sin


class LlamaLayer(nn.Layer):
    """Grouped queries, rotary positions and the cache of the steps before, if there is one."""

    def __init__(self, size: int, heads: int = 2, places: int = 4096) -> None:
        super().__init__()
        self.heads, self.head = heads, size // heads
        self.q, self.o = nn.Linear(size, size), nn.Linear(size, size)
        self.k, self.v = nn.Linear(size, self.head), nn.Linear(size, self.head)
        self.gate, self.up, self.down = (nn.Linear(size, size) for _ in range(3))
        self.scale = self.create_parameter([size])
        steps = 1.0 / 100 ** (paddle.arange(0, self.head, 2, dtype="float32") / self.head)
        angles = paddle.einsum("i,j->ij", paddle.arange(places, dtype="float32"), steps)
        angles = paddle.concat([angles, angles], axis=-1)
        self.cos, self.sin = angles.cos(), angles.sin()

    def normal(self, x):
        variance = x.astype("float32").pow(2).mean(-1, keepdim=True)
        return paddle.rsqrt(variance + 1e-6) * x * self.scale

    def forward(self, x, past=None, use_cache=False):
        n = x.shape[1]
        h = self.normal(x)
        q = self.q(h).reshape([0, 0, self.heads, self.head])
        k, v = (f(h).unsqueeze(2) for f in (self.k, self.v))
        start = past[0].shape[1] if past is not None else 0
        cos, sin = (table[start : start + n].unsqueeze(1) for table in (self.cos, self.sin))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        if past is not None:
            k, v = (paddle.concat(pair, axis=1) for pair in zip(past, (k, v)))
        cache = (k, v) if use_cache else None
        q, k, v = (a.expand([-1, -1, self.heads, -1]).transpose([0, 2, 1, 3]) for a in (q, k, v))
        scores = q @ k.transpose([0, 1, 3, 2]) / math.sqrt(self.head)
        if n > 1:
            seen = paddle.tril(paddle.ones([n, n], dtype="bool"))
            scores = scores + paddle.where(seen, 0.0, paddle.finfo(x.dtype).min)
        seen = (F.softmax(scores, axis=-1) @ v).transpose([0, 2, 1, 3])
        x = x + self.o(seen.reshape([0, n, -1]))
        h = self.normal(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h)), cache


class Llama(nn.Layer):
    """Greedy generation: the keywords of a step get the caches behind the `break`."""

    def __init__(self, length: int, vocab: int = 9, size: int = 8, layers: int = 2) -> None:
        super().__init__()
        self.length, self.eos_token_id = length, 2
        self.embed = nn.Embedding(vocab, size)
        self.layers = nn.LayerList([LlamaLayer(size) for _ in range(layers)])
        self.out = nn.Linear(size, vocab)

    def step(self, input_ids, past_key_values=None, use_cache=False):
        if past_key_values:
            input_ids = input_ids[:, -1:]
        if past_key_values is None:
            past_key_values = tuple([None] * len(self.layers))
        x, caches = self.embed(input_ids), ()
        for layer, past in zip(self.layers, past_key_values):
            x, cache = layer(x, past, use_cache)
            if use_cache:
                caches += (cache,)
        return {"logits": self.out(x), "past_key_values": caches}

    def generate(self, input_ids, **model_kwargs):
        start = input_ids.shape[1]
        unfinished = paddle.full([input_ids.shape[0], 1], True, dtype="bool")
        while input_ids.shape[1] < start + self.length:
            outputs = self.step(input_ids, use_cache=True, **model_kwargs)
            tokens = outputs["logits"][:, -1].argmax(-1, keepdim=True)
            tokens = paddle.where(unfinished, tokens, paddle.zeros_like(tokens))
            input_ids = paddle.concat([input_ids, tokens], axis=1)
            unfinished = paddle.logical_and(unfinished, tokens != self.eos_token_id)
            if not paddle.any(unfinished):
                break
            model_kwargs["past_key_values"] = outputs["past_key_values"]
        return input_ids[:, start:]

    def forward(self, input_ids, labels=None):
        if labels is None:
            return self.generate(input_ids)
        logits = self.step(input_ids)["logits"]
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


# ---------------------------------------------------------------- state spaces and recurrences
class MambaSteps(nn.Layer):
    """Token by token, with both states written in place."""

    def __init__(self, steps: int, size: int = 4, states: int = 3, taps: int = 3) -> None:
        super().__init__()
        self.inner, self.states, self.taps = 2 * size, states, taps
        self.into = nn.Linear(size, 2 * self.inner)
        self.conv = self.create_parameter([self.inner, taps])
        self.selects = nn.Linear(self.inner, 1 + 2 * states)
        self.rates, self.skip = (self.create_parameter([self.inner, n]) for n in (states, 1))
        self.out = nn.Linear(self.inner, size)

    def forward(self, xs):
        batch = xs.shape[0]
        window = paddle.zeros([batch, self.inner, self.taps])
        state = paddle.zeros([batch, self.inner, self.states])
        ys = []
        for t in range(xs.shape[1]):
            x, z = self.into(xs[:, t]).chunk(2, axis=-1)
            window.copy_(paddle.roll(window, shifts=-1, axis=-1), True)
            window[:, :, -1] = x
            x = F.silu((window * self.conv).sum(axis=-1))
            dt, b, c = self.selects(x).split([1, self.states, self.states], axis=-1)
            dt = F.softplus(dt)
            decay = paddle.exp(paddle.einsum("bk,dn->bdn", dt, -paddle.exp(self.rates)))
            state.copy_(state * decay + paddle.einsum("bd,bn->bdn", dt * x, b), True)
            y = paddle.einsum("bdn,bn->bd", state, c) + self.skip.squeeze(-1) * x
            ys.append(self.out(y * F.silu(z)))
        return paddle.stack(ys, axis=1), window, state


class RWKV(nn.Layer):
    """One table holds the states of all layers, and is written in place."""

    def __init__(self, steps: int, size: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.size, self.depth = size, layers
        self.mixes = self.create_parameter([layers, 5, size])
        self.maps = nn.LayerList([nn.Linear(size, 4 * size) for _ in range(layers)])
        self.outs = nn.LayerList([nn.Linear(size, size) for _ in range(layers)])

    def layer(self, i, x, state):
        last, a, b = state[4 * i], state[4 * i + 1], state[4 * i + 2]
        top, mix = state[4 * i + 3], self.mixes[i, 0]
        decay, first = self.mixes[i, 1], self.mixes[i, 2]
        r, k, v, _ = self.maps[i](x * mix + last * (1 - mix)).chunk(4, axis=-1)
        new = paddle.maximum(top, first + k)
        old, now = paddle.exp(top - new), paddle.exp(first + k - new)
        y = F.sigmoid(r) * (old * a + now * v) / (old * b + now)
        new = paddle.maximum(top + decay, k)
        old, now = paddle.exp(top + decay - new), paddle.exp(k - new)
        state[4 * i], state[4 * i + 1] = x, old * a + now * v
        state[4 * i + 2], state[4 * i + 3] = old * b + now, new
        return x + self.outs[i](y)

    def forward(self, xs):
        state, ys = paddle.zeros([4 * self.depth, self.size]), []
        for i in range(self.depth):
            state[4 * i + 3] = -1e30
        for x in xs:
            for i in range(self.depth):
                x = self.layer(i, x, state)
            ys.append(x)
        return paddle.stack(ys), state


class XLSTM(nn.Layer):
    """A scalar memory feeds a memory of matrices; both keep exponentials below a running top."""

    def __init__(self, steps: int, size: int = 4) -> None:
        super().__init__()
        self.size = size
        self.ih, self.hh = nn.Linear(size, 4 * size), nn.Linear(size, 4 * size)
        self.qkv, self.gates = nn.Linear(size, 3 * size), nn.Linear(size, 2)

    def scalar(self, x, states):
        h, c, n, top = states
        z, i, f, o = (self.ih(x) + self.hh(h)).chunk(4, axis=-1)
        f = F.log_sigmoid(f) + top
        new = paddle.maximum(f, i)
        i, f = paddle.exp(i - new), paddle.exp(f - new)
        c, n = f * c + i * paddle.tanh(z), f * n + i
        h = F.sigmoid(o) * c / n
        return h, (h, c, n, new)

    def forward(self, xs):
        batch, steps, size = xs.shape
        h = paddle.zeros([batch, size])
        states = (h, h, h, h)
        memory, norm = paddle.zeros([batch, size, size]), paddle.zeros([batch, size])
        top, ys = paddle.zeros([batch, 1]), []
        for t in range(steps):
            h, states = self.scalar(xs[:, t], states)
            q, k, v = self.qkv(h).chunk(3, axis=-1)
            i, f = self.gates(h).chunk(2, axis=-1)
            f = F.log_sigmoid(f) + top
            top = paddle.maximum(f, i)
            i, f = paddle.exp(i - top), paddle.exp(f - top)
            memory = f.unsqueeze(-1) * memory + i.unsqueeze(-1) * paddle.einsum("bi,bj->bij", v, k)
            norm = f * norm + i * k
            scale = paddle.maximum((norm * q).sum(-1, keepdim=True).abs(), paddle.to_tensor(1.0))
            ys.append(paddle.einsum("bij,bj->bi", memory, q) / scale)
        return paddle.stack(ys, axis=1), memory


# ---------------------------------------------------------------- decoders
class WaveRNN(nn.Layer):
    """Folds of the features overlap, are computed as a batch and faded into one signal."""

    def __init__(self, steps: int, size: int = 4, target: int = 6, overlap: int = 2) -> None:
        super().__init__()
        self.size, self.target, self.overlap = size, target, overlap
        self.into, self.out = nn.Linear(size + 1, size), nn.Linear(size, 8)
        self.rnn = nn.GRU(size, size)

    def fold(self, x):
        step, over = self.target + self.overlap, self.overlap
        folds = -(-(x.shape[1] - over) // step)
        padded = paddle.zeros([1, folds * step + over, x.shape[-1]])
        padded[:, : x.shape[1], :] = x
        folded = paddle.zeros([folds, step + over, x.shape[-1]])
        for i in range(folds):
            folded[i] = padded[0][i * step : i * step + step + over, :]
        return folded

    def unfold(self, y):
        folds, length = paddle.shape(y)
        t = paddle.linspace(-1, 1, self.overlap, dtype="float32")
        y[:, : self.overlap] *= paddle.sqrt(0.5 * (1 + t))
        y[:, -self.overlap :] *= paddle.sqrt(0.5 * (1 - t))
        step = length - self.overlap
        signal = paddle.zeros([folds * step + self.overlap])
        for i in range(folds):
            signal[i * step : i * step + length] += y[i]
        return signal

    @paddle.no_grad()
    def forward(self, features):
        features = self.fold(features)
        h = paddle.zeros([features.shape[0], self.size])
        x, samples = paddle.zeros([features.shape[0], 1]), []
        for t in range(features.shape[1]):
            x = self.into(paddle.concat([x, features[:, t]], axis=1))
            h, _ = self.rnn[0].cell(x, h)
            sample = 2 * self.out(x + h).argmax(1).cast("float32") / 7.0 - 1.0
            samples.append(sample)
            x = sample.unsqueeze(-1)
        return self.unfold(paddle.stack(samples, axis=1))


class SARDecoder(nn.Layer):
    """Each step runs the whole recurrent decoder; data says how much of an image is valid."""

    def __init__(self, steps: int, channels: int = 4, size: int = 4, classes: int = 7) -> None:
        super().__init__()
        self.steps = steps
        self.rnn = nn.LSTM(size, size, num_layers=2)
        self.query, self.key = nn.Linear(size, size), nn.Conv2D(channels, size, 3, padding=1)
        self.score, self.embedding = nn.Linear(size, 1), nn.Embedding(classes, size)
        self.out = nn.Linear(size + channels, classes)

    def attend(self, tokens, image, valid_ratios):
        y = self.rnn(tokens)[0]
        query = paddle.unsqueeze(self.query(y), axis=[3, 4])
        weights = paddle.tanh(self.key(image).unsqueeze(1) + query)
        weights = self.score(weights.transpose([0, 1, 3, 4, 2]))
        batch, steps, height, width, one = paddle.shape(weights)
        for i in range(valid_ratios.shape[0]):
            valid = paddle.minimum(width, paddle.ceil(valid_ratios[i] * width).astype("int64"))
            if valid < width:
                weights[i, :, :, valid:, :] = float("-inf")
        weights = F.softmax(weights.reshape([batch, steps, -1]), axis=-1)
        weights = weights.reshape([batch, steps, one, height, width])
        seen = paddle.sum(image.unsqueeze(1) * weights, axis=(3, 4))
        return self.out(paddle.concat([y, seen], axis=2))

    def forward(self, image, holistic, valid_ratios):
        start = self.embedding(paddle.zeros([image.shape[0]], "int64")).unsqueeze(1)
        start = start.expand([-1, self.steps, -1])
        tokens = paddle.concat([holistic.unsqueeze(1), start], axis=1)
        outputs = []
        for i in range(1, self.steps + 1):
            scores = F.softmax(self.attend(tokens, image, valid_ratios)[:, i, :], -1)
            outputs.append(scores)
            if i < self.steps:
                tokens[:, i + 1, :] = self.embedding(scores.argmax(axis=1))
        return paddle.stack(outputs, 1)
