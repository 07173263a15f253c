"""Tensors that a loop makes longer by `concat` and reads as a whole in every step.

They are parts of a buffer with room for all steps: the loop is one `scan` or `while`, whatever its
length, with results and gradients as in eager.
"""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle.static import InputSpec

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=36)

paddle.seed(0)
with check.default_dtype("float64"):
    ATTENTION = paddle.nn.MultiHeadAttention(4, 2)
LENGTHS = (5, 2, 1, 8, 5)
WIDTH = 4


def read_after(x):
    cache, out = x[:1], x[0] * 0
    for t in range(1, x.shape[0]):
        cache = paddle.concat([cache, x[t : t + 1]], 0)
        out = out + paddle.tanh(cache).mean(0)
    return out, cache


def read_before(x):
    """The result of a step is a part of what the next one reads."""
    cache, out = x[:1], x[0] * 0
    for t in range(1, x.shape[0]):
        out = out + F.softmax(cache @ x[t], 0) @ cache
        cache = paddle.concat([cache, x[t : t + 1] + out], 0)
    return out, cache


def in_front(x):
    cache, out = x[:1], x[0] * 0
    for t in range(1, x.shape[0]):
        cache = paddle.concat([x[t : t + 1] + out * 0.1, cache], 0)
        out = out + F.softmax(cache @ x[t], 0) @ cache + cache[-1] + cache[0] * 2 + cache[1:].sum(0)
    return out, cache


def penalties_of_repetition(x):
    """There are fewer tokens than there are scores at first, and more later."""
    ids, out = x[:1].argmax(-1, keepdim=True), x[0] * 0
    for t in range(1, x.shape[0]):
        logits = x[t : t + 1] + out * 0.1
        seen = paddle.take_along_axis(logits, ids, 1)
        logits = paddle.put_along_axis(logits, ids, seen.mean() * 0.1, 1, "add")
        ids = paddle.concat([ids, logits.argmax(-1, keepdim=True)], 1)
        out = out + logits[0] + seen.sum()
    return out, ids


def pieces_of_two(x):
    cache, out = paddle.zeros([1, x.shape[1]], x.dtype), x[0] * 0
    for t in range(x.shape[0]):
        pair = paddle.stack([x[t], x[t] * 2])
        cache = paddle.concat([cache, pair], 0)
        out = out + cache.sum(0) * cache.shape[0] + cache[:, 1:3].sum() + cache[2 * t]
    return out, cache


def twice_in_a_step(x):
    cache, out = x[:1], x[0] * 0
    for t in range(1, x.shape[0]):
        longer = paddle.concat([cache, x[t : t + 1]], 0)
        out = out + longer.mean(0) - cache.mean(0)
        cache = paddle.concat([longer, out.unsqueeze(0)], 0)
    return out, cache


def begins_as_none(x):
    cache, out = None, x[0] * 0
    for t in range(x.shape[0]):
        k = x[t : t + 1] + out * 0.1
        cache = k if cache is None else paddle.concat([cache, k], 0)
        out = out + F.softmax(cache @ x[t], 0) @ cache
    return out, cache


def in_a_dict(x):
    state, out = {"k": None, "v": None}, x[0] * 0
    for t in range(x.shape[0]):
        k, v = x[t : t + 1] + out * 0.1, x[t : t + 1] * 0.5
        if state["k"] is not None:
            k, v = paddle.concat([state["k"], k], 0), paddle.concat([state["v"], v], 0)
        state["k"], state["v"] = k, v
        out = out + F.softmax(k @ x[t], 0) @ v
    return out, state["k"]


def per_layer(x):
    """Two layers in Python, each with a pair of caches of [1, heads, length, size]."""
    caches = [(paddle.zeros([1, 2, 0, 2], x.dtype),) * 2 for _ in range(2)]
    out = x[0] * 0
    for t in range(x.shape[0]):
        h = (x[t] + out * 0.1).reshape([1, 1, 2, 2]).transpose([0, 2, 1, 3])
        for n in range(2):
            k = paddle.concat([caches[n][0], h * (n + 1)], 2)
            v = paddle.concat([caches[n][1], h], 2)
            caches[n] = (k, v)
            a = F.softmax(paddle.matmul(h, k, transpose_y=True), -1)
            h = paddle.matmul(a, v)
        out = out + h.reshape([WIDTH])
    return out, caches[0][0], caches[1][1]


def in_an_inner_loop(x):
    cache, out = x[:1], x[0] * 0
    for t in range(1, x.shape[0]):
        cache = paddle.concat([cache, x[t : t + 1]], 0)
        for j in range(t + 1):
            out = out + cache[j] * cache[: j + 1].sum(0)
    return out, cache


def under_a_branch(x):
    cache, out = x[:1], x[0] * 0
    for t in range(1, x.shape[0]):
        if x[t].sum() > 0:
            out = out + cache.mean(0)
        cache = paddle.concat([cache, x[t : t + 1]], 0)
    return out, cache


def reshaped(x):
    """The one size that reshape finds out moves with the index, or all others do."""
    cache, out = x[:1], x[0] * 0
    for t in range(1, x.shape[0]):
        cache = paddle.concat([cache, x[t : t + 1]], 0)
        pairs = cache.reshape([2, -1, cache.shape[0]]).sum([0, 2])
        out = out + cache.reshape([-1, WIDTH]).mean(0) + pairs.sum() + cache.reshape([-1]).max()
    return out, cache


def reordered(x):
    """As the caches of a beam search: an iteration makes all of the tensor."""
    cache, out = x[:1].reshape([2, 1, 2]), x[0] * 0
    for t in range(1, x.shape[0]):
        cache = paddle.concat([cache, (x[t] + out).reshape([2, 1, 2])], 1)
        cache = paddle.index_select(cache, paddle.argsort(cache.sum([1, 2])), 0)
        out = out + cache.mean(1).flatten()
    return out, cache


def in_a_named_tuple(x):
    """The caches of `nn.MultiHeadAttention`, which begin with no element."""
    layer, out = ATTENTION, x[:1].unsqueeze(0)
    cache, outs = layer.gen_cache(out), []
    for t in range(x.shape[0]):
        out, cache = layer(out + x[t], out, out, None, cache)
        outs.append(out)
    return paddle.concat(outs, 1), cache.k


FUNCTIONS = (
    read_after, read_before, in_front, penalties_of_repetition, pieces_of_two, twice_in_a_step,
    begins_as_none, in_a_dict,
    per_layer, in_an_inner_loop, under_a_branch, reshaped, reordered,
    in_a_named_tuple,
)  # fmt: skip
names = {"ids": lambda f: f.__name__}


def values(n, seed=0):
    return check.data(n, WIDTH, seed=seed)


@pytest.mark.parametrize("f", FUNCTIONS, **names)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_results_and_gradients(f, n):
    check.agree(f, values(n))


@pytest.mark.parametrize("f", FUNCTIONS, **names)
def test_named_lengths(f):
    static = dy2st.to_static(f, [InputSpec([None, WIDTH], "float64")])
    for n in LENGTHS:
        x = values(n, n)
        (want, dx), (have, dy) = (check.step(q, [q_x := check.detached(x)], [q_x])
                                  for q in (f, static))  # fmt: skip
        check.same(have, want, rtol=1e-9, atol=1e-9, what=f"n = {n}")
        check.close(dy[0], dx[0], 1e-9, f"n = {n}: gradient")


@pytest.mark.parametrize("f", FUNCTIONS, **names)
def test_loops_stay_loops(f):
    static, lines = dy2st.to_static(f), []
    for n in (20, 400):
        x = values(n)
        report = dy2st.report(static, x)
        check.few_traces(report)
        assert any(q.kind == "scan" for q in report.loops), report
        lines.append(len(str(dy2st.program(static, x)).splitlines()))
    assert lines[0] == lines[1]


def from_the_front_again(x):
    cache, out, n = x[:1], paddle.zeros([WIDTH], x.dtype), x.shape[0]
    for t in range(11):
        cache = paddle.concat([cache, x[t % n : t % n + 1]])
        out = out * 0.5 + cache.mean(0)
    return out, cache


@pytest.mark.parametrize("n", [1, 4])
def test_both_ends_of_a_slice_are_one_remainder(n):
    static = check.agree(from_the_front_again, values(n))
    assert "unrolled" not in str(dy2st.report(static, values(n)))


# ---------------------------------------------------------------- ends that data decides
class Decoder(paddle.nn.Layer):
    """Greedy search over all tokens so far, written as its users write it."""

    def __init__(self, steps, vocab=9, width=6):
        super().__init__()
        self.embed = paddle.nn.Embedding(vocab, width)
        self.out = paddle.nn.Linear(width, vocab)
        self.steps = steps

    def logits(self, ids):
        h = self.embed(ids)
        a = F.softmax(paddle.matmul(h[:, -1:], h, transpose_y=True), -1)
        return self.out(paddle.matmul(a, h).squeeze(1))


class UntilTheEnd(Decoder):
    def forward(self, ids):
        for _ in range(self.steps):
            token = self.logits(ids).argmax(-1, keepdim=True)
            ids = paddle.concat([ids, token], 1)
            if (token == 2).all():
                break
        return ids


class ByWhile(Decoder):
    def forward(self, ids):
        unfinished = paddle.ones([ids.shape[0], 1], "bool")
        cur = ids.shape[1]
        while cur < self.steps:
            token = self.logits(ids).argmax(-1, keepdim=True)
            token = paddle.where(unfinished, token, paddle.zeros_like(token))
            ids = paddle.concat([ids, token], 1)
            unfinished = paddle.logical_and(unfinished, token != 2)
            cur += 1
            if not paddle.any(unfinished):
                break
        return ids


class ByLength(Decoder):
    def forward(self, ids):
        while ids.shape[1] < self.steps:
            ids = paddle.concat([ids, self.logits(ids).argmax(-1, keepdim=True)], 1)
        return ids


class ByKeywords(Decoder):
    """A step gets the cache as a keyword, which is set behind the `break`, and asks `if cache:`."""

    def step(self, ids, cache=None, last=None):
        h = self.embed(ids if not cache else ids[:, -1:])
        keys, values = (h, h * 0.5)
        if cache:
            assert isinstance(cache, tuple) and len(cache) == 2
            keys, values = (paddle.concat(q, 1) for q in zip(cache, (keys, values)))
        a = F.softmax(paddle.matmul(h[:, -1:], keys, transpose_y=True), -1)
        h = paddle.matmul(a, values).squeeze(1)
        return self.out(h if last is None else h + last), (keys, values), h

    def forward(self, ids, **kwargs):
        held = {}
        for _ in range(self.steps):
            logits, cache, last = self.step(ids, last=held.get("last"), **kwargs)
            token = logits.argmax(-1, keepdim=True)
            ids = paddle.concat([ids, token], 1)
            if (token == 2).all():
                break
            kwargs["cache"] = cache
            held["last"] = last
        return ids


class AfterThePrompt(Decoder):
    """The first step reads the whole prompt, and gives logits of all its tokens; the next step
    comes behind the `break`."""

    def next(self, ids, cache=None):
        h = self.embed(ids)
        keys = h if cache is None else paddle.concat([cache, h], 1)
        a = F.softmax(paddle.matmul(h, keys, transpose_y=True), -1)
        return self.out(paddle.matmul(a, keys)), keys

    def forward(self, ids):
        logits, cache = self.next(ids)
        for _ in range(self.steps):
            token = logits[:, -1].argmax(-1, keepdim=True)
            ids = paddle.concat([ids, token], 1)
            if (token == 2).all():
                break
            logits, cache = self.next(token, cache)
        return ids


DECODERS = [UntilTheEnd, ByWhile, ByLength, ByKeywords, AfterThePrompt]


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS, **names)
@pytest.mark.parametrize("steps", [1, 5, 12])
def test_decoders(decoder, steps):
    for seed in range(3):
        paddle.seed(seed)
        model = decoder(steps)
        static = check.parity(model, lambda: [paddle.to_tensor([[1, 3], [4, 1]])])
        report = dy2st.report(static, paddle.to_tensor([[1, 3], [4, 1]]))
        check.few_traces(report)
        assert "unrolled" not in str(report)


# ---------------------------------------------------------------- a step that ends before it grows
def two_tensors(x, w):
    """Both are made longer behind the break, from values that branches of the break have."""
    ids, probs = x, paddle.full([2, 1], 1.0)
    for _ in range(6):
        p = F.softmax(w[ids].mean(1), -1)
        token = p.argmax(-1)
        if paddle.equal_all(token, paddle.full(token.shape, 3, dtype=token.dtype)):
            break
        best = p.max(-1)
        ids = paddle.concat([ids, token.reshape([-1, 1])], 1)
        probs = paddle.concat([probs, best.reshape([-1, 1])], 1)
    return ids, probs


def test_two_tensors_grow_behind_a_break():
    static, lengths, x = dy2st.to_static(two_tensors), set(), paddle.to_tensor([[1], [2]])
    for seed in range(12):
        w = check.data(4, 4, seed=seed, dtype="float32", trained=False)
        check.same(static(x, w), want := two_tensors(x, w), 1e-5, 1e-5)
        lengths.add(want[0].shape[1])
    assert len(lengths) > 1
    assert "unrolled" not in str(dy2st.report(static, x, w))


class EndNotKept(Decoder):
    """The end token itself is not appended."""

    def forward(self, ids):
        for _ in range(self.steps):
            token = self.logits(ids).argmax(-1, keepdim=True)
            if (token == 2).all():
                break
            ids = paddle.concat([ids, token], 1)
        return ids


class EndNotKeptFromTheLast(Decoder):
    """Only the last token is read: the pieces are collected."""

    def forward(self, ids):
        for _ in range(self.steps):
            token = self.out(paddle.tanh(self.embed(ids[:, -1]))).argmax(-1, keepdim=True)
            if (token == 2).all():
                break
            ids = paddle.concat([ids, token], 1)
        return ids, ids.shape[1]


class InFrontUntilTheEnd(Decoder):
    def forward(self, ids):
        for _ in range(self.steps):
            token = self.logits(ids[:, ::-1]).argmax(-1, keepdim=True)
            if (token == 2).all():
                break
            ids = paddle.concat([token, ids], 1)
        return ids


@pytest.mark.slow
@pytest.mark.parametrize(
    "decoder", [EndNotKept, EndNotKeptFromTheLast, InFrontUntilTheEnd], **names
)
@pytest.mark.parametrize("steps", [1, 6])
def test_the_step_that_ends_the_loop_adds_nothing(decoder, steps):
    lengths = set()
    for seed in range(8):
        paddle.seed(seed)
        model = decoder(steps, vocab=3)
        static = check.parity(model, lambda: [paddle.to_tensor([[1, 0]])])
        result = static(paddle.to_tensor([[1, 0]]))
        lengths.add(check.leaves(result)[0].shape[1])
    assert len(lengths) > 1, "no model ended early, or all did"


def test_the_backward_keeps_a_cache_once():
    """Not once per step; and the caller may write to the cache before backward runs."""

    def f(x, w, cache):
        h = x[0] * 0
        for t in range(x.shape[0]):
            cache[t] = (x[t] @ w + h * 0.1).detach()
            keys = cache[: t + 1].clone()
            h = paddle.tanh(F.softmax(keys @ (h + x[t] @ w), 0) @ keys)
        return h.sum()

    def step(g):
        w, cache = check.data(WIDTH, WIDTH, seed=1), paddle.zeros([6, WIDTH], "float64")
        first = g(values(6).detach(), w, cache)
        second = g(values(6, 2).detach(), w, cache)
        (first + 2 * second).backward()
        return w.grad.numpy(), (values(6).detach(), w, cache)

    static = dy2st.to_static(f)
    (want, _), (have, arguments) = step(f), step(static)
    check.close(have, want, 1e-9, "gradient")
    assert "f64[6,6,4]" not in str(dy2st.report(static, *arguments))


# ---------------------------------------------------------------- two that meet in a branch
def ends_before_it_grows(x):
    h = x[:1]
    for _ in range(6):
        if h.sum() > 3:
            break
        h = paddle.concat([h, x[1:2]])
    return h


def one_of_two(x):
    ys, zs, last = x[:1], x[:1], x[:1]
    for t in range(x.shape[0]):
        ys = paddle.concat([ys, x[t : t + 1]])
        zs = paddle.concat([zs, x[t : t + 1] * 2])
        last = ys if x[t].sum() > 0 else zs
    return ys, zs, last


def one_becomes_the_other(x):
    ys, zs = x[:1], x[:1]
    for t in range(x.shape[0]):
        ys = paddle.concat([ys, x[t : t + 1]])
        zs = paddle.concat([zs, x[t : t + 1] * 2])
        if x[t].sum() > 0:
            ys = zs
    return ys, zs


@pytest.mark.parametrize("f", [ends_before_it_grows, one_of_two, one_becomes_the_other], **names)
def test_growing_tensors_meet_in_a_branch(f):
    static = dy2st.to_static(f)
    for seed in range(4):
        x = paddle.to_tensor(np.random.default_rng(seed).normal(size=[4, 3]).astype("float32"))
        check.same(static(x), f(x))
