"""Counters that an iteration moves on behind a `break`: they follow the index of the loop."""

from __future__ import annotations

import re

import paddle
import pytest

import dy2st
from tests import check


def greedy_symbols(x):
    """As a transducer: symbols of a frame until a blank, at most three."""
    hyp, h = [], paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        n, more = 0, True
        while more and n < 3:
            h = paddle.tanh(h * 0.7 + x[t])
            if h.argmax() == 0:
                more = False
            else:
                hyp.append(int(h.argmax()))
                n += 1
    return hyp, h


def symbols_until_a_break(x):
    hyp, h = [], paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        n = 0
        while n < 3:
            h = paddle.tanh(h * 0.7 + x[t])
            if h.argmax() == 0:
                break
            hyp.append(h.max() * 2)
            n += 1
    return paddle.stack([*hyp, h.min()]), h


def counted_behind(x):
    t, h, ys = 0, paddle.zeros([3], x.dtype), []
    while t < x.shape[0]:
        h = paddle.tanh(h + x[t])
        if h.sum() > 1.5:
            break
        ys.append(h * 1)
        t += 1
    return h, t, ys


def two_exits(x):
    t, n, h, seen = 0, 0, paddle.zeros([3], x.dtype), {"k": 0}
    while t < x.shape[0]:
        h = paddle.tanh(h + x[t])
        if h.max() > 0.45:
            n += 2
            if h.min() > -0.3:
                break
            n += 1
        else:
            n += 3
        t += 1
        seen["k"] += 1
        if t == 6 and h.sum() > 0:
            break
        h = h + x[t - 1] * n
    return h, t, n, seen


def in_front_of_all(x):
    i, k, h = 0, 1, paddle.zeros([3], x.dtype)
    while True:
        if i >= x.shape[0]:
            break
        h = paddle.tanh(h + x[i])
        if h.sum() > 1.0:
            k = 2 * k
            break
        i, k = i + 1, k + 2
    return h * k, i, k


def patience(x):
    """The test of the counter alone bounds the loop, and is no reason to go on."""
    h, best, bad, e = paddle.zeros([3], x.dtype), -1e9, 0, 0
    while e < x.shape[0]:
        h = paddle.tanh(h * 1.5 + x[e])
        v = float(h.sum())
        if v > best:
            best, bad = v, 0
        else:
            bad += 1
            if bad >= 2:
                break
        e += 1
    return h, e, bad


def one_more_at_most(x):
    """Behind the exit, the test of the counter is known to hold."""
    h, a, i = x.sum(0), 0, 0
    while i < 2 and not x[:, 1].sum() > 0.5:
        h = h * 0.5 + x[i : i + 1].sum(0)
        if h.sum() > 0.3 or i != 0:
            break
        i += 1
        a += 2
    return h, a, i


FUNCTIONS = (
    greedy_symbols, symbols_until_a_break, counted_behind, two_exits, in_front_of_all, patience,
    one_more_at_most,
)  # fmt: skip


@pytest.mark.sampled(every=3)
@pytest.mark.filterwarnings("ignore::dy2st.CopyWarning")
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_counter_behind_an_exit_follows_the_index(f):
    static, ends = dy2st.to_static(f), set()
    for n, seed in [(0, 0), (1, 1), *((7, s) for s in range(2, 12))]:
        x = check.data(n, 3, seed=seed)
        (want, wanted), (have, had) = (
            check.step(q, (own := [check.detached(x)]), own) for q in (f, static)
        )
        check.same(have, want, rtol=1e-9, atol=1e-9)
        check.close(had[0], wanted[0], 1e-9, "gradient")
        ends.add(str([q.shape if hasattr(q, "shape") else q for q in check.leaves(want)]))
    assert len(ends) > 1
    assert "unrolled" not in str(dy2st.report(static, x))
    assert re.search(r"while %\w+ < \d", str(dy2st.program(static, x))), "the loop has no bound"
