"""Loops that end when something has converged, or that fill a cache, as their models write them."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn


class DeepEquilibrium(nn.Layer):
    """A fixed point by iteration, until the step is small or the iterations are used up."""

    def __init__(self, max_iter: int, features: int = 6, tol: float = 1e-2) -> None:
        super().__init__()
        self.inject, self.inner = nn.Linear(features, features), nn.Linear(features, features)
        self.max_iter, self.tol = max_iter, tol

    def forward(self, x):
        z = paddle.zeros_like(x)
        u = self.inject(x)
        steps = 0
        for _ in range(self.max_iter):
            z_next = paddle.tanh(0.3 * self.inner(z) + u)
            residual = (z_next - z).abs().max().item()
            z = z_next
            steps += 1
            if residual < self.tol:
                break
        return z, steps


class AdaptiveComputation(nn.Layer):
    """Every position thinks until it halts, at most `max_hops` times (Universal Transformer)."""

    def __init__(self, max_hops: int, features: int = 6, threshold: float = 0.9) -> None:
        super().__init__()
        self.p, self.fn = nn.Linear(features, 1), nn.Linear(features, features)
        self.max_hops, self.threshold = max_hops, threshold

    def forward(self, state):
        halting_probability = paddle.zeros(state.shape[:2])
        remainders = paddle.zeros(state.shape[:2])
        n_updates = paddle.zeros(state.shape[:2])
        previous_state = paddle.zeros_like(state)
        step = 0
        while ((halting_probability < self.threshold) & (n_updates < self.max_hops)).any():
            p = F.sigmoid(self.p(state)).squeeze(-1)
            still_running = (halting_probability < 1.0).astype("float32")
            total = halting_probability + p * still_running
            new_halted = (total > self.threshold).astype("float32") * still_running
            still_running = (total <= self.threshold).astype("float32") * still_running
            halting_probability = halting_probability + p * still_running
            remainders = remainders + new_halted * (1 - halting_probability)
            halting_probability = halting_probability + new_halted * remainders
            n_updates = n_updates + still_running + new_halted
            update_weights = p * still_running + new_halted * remainders
            state = paddle.tanh(self.fn(state))
            weight = update_weights.unsqueeze(-1)
            previous_state = state * weight + previous_state * (1 - weight)
            step += 1
        return previous_state, remainders, n_updates, step


class CachedDecoder(nn.Layer):
    """A transformer layer that generates with a cache of its final length, until all rows end."""

    def __init__(self, max_len: int, vocab: int = 7, size: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, size)
        self.position = nn.Embedding(max(max_len, 1), size)
        self.qkv, self.proj = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.norm, self.out = nn.LayerNorm(size), nn.Linear(size, vocab)
        self.max_len, self.heads, self.size, self.eos = max_len, heads, size, 2

    def attend(self, x, k_cache, v_cache, t):
        batch, d_head = x.shape[0], self.size // self.heads
        q, k, v = self.qkv(self.norm(x)).chunk(3, axis=-1)
        k_cache[:, t] = k.reshape([batch, self.heads, d_head])
        v_cache[:, t] = v.reshape([batch, self.heads, d_head])
        q = q.reshape([batch, 1, self.heads, d_head])
        scores = (q * k_cache).sum(axis=-1) / d_head**0.5
        visible = (paddle.arange(self.max_len) <= t).reshape([1, -1, 1])
        scores = paddle.where(visible, scores, paddle.full_like(scores, -1e9))
        weights = F.softmax(scores, axis=1).unsqueeze(-1)
        return self.proj((weights * v_cache).sum(axis=1).reshape([batch, self.size]))

    def forward(self, tokens):
        batch = tokens.shape[0]
        shape = [batch, self.max_len, self.heads, self.size // self.heads]
        k_cache, v_cache = paddle.zeros(shape), paddle.zeros(shape)
        generated = paddle.full([batch, self.max_len], self.eos, dtype="int64")
        finished = paddle.zeros([batch], dtype="bool")
        for t in range(self.max_len):
            x = self.embed(tokens) + self.position(paddle.full([batch], t, dtype="int64"))
            x = x + self.attend(x, k_cache, v_cache, t)
            tokens = self.out(x).argmax(axis=-1)
            tokens = paddle.where(finished, paddle.full_like(tokens, self.eos), tokens)
            generated[:, t] = tokens
            finished = finished | (tokens == self.eos)
            if finished.all():
                break
        return generated, k_cache
