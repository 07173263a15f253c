"""Loops over chunks of a tensor, of which the last one may be shorter."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from ir import Scan
from ir.uses import walk
from tests import check

pytestmark = pytest.mark.sampled(every=24)


def with_min(x):
    n, h = x.shape[0], paddle.zeros([3], x.dtype)
    for s in range(0, n, 4):
        h = h * 0.5 + x[s : min(s + 4, n)].sum(0)
    return h


def clipped(x):
    h, out = paddle.zeros([3], x.dtype), []
    for s in range(0, x.shape[0], 4):
        h = h * 0.5 + x[s : s + 4].mean(0)
        out.append(h)
    return paddle.stack(out), h


def windows_with_context(x):
    """U2's forward_chunk_by_chunk: a window of 7 every 4 steps."""
    n, h, out = x.shape[0], paddle.zeros([3], x.dtype), []
    for cur in range(0, n - 2, 4):
        end = min(cur + 7, n)
        chunk = x[cur:end]
        h = paddle.tanh(h + chunk.mean(0))
        out.append(h * chunk[-1])
    return out, h


def weighted_by_length(x):
    n, h = x.shape[0], paddle.zeros([3], x.dtype)
    for s in range(0, n, 4):
        end = min(s + 4, n)
        h = h * 0.5 + x[s:end].sum(0) / (end - s)
        if end == n:
            h = h + 1
    return h


def while_chunks(x):
    n, h, cur = x.shape[0], paddle.zeros([3], x.dtype), 0
    while cur < n:
        end = min(cur + 4, n)
        h = h * 0.5 + x[cur:end].sum(0)
        cur = end
    return h


CHUNKS = [with_min, clipped, windows_with_context, weighted_by_length, while_chunks]


@pytest.mark.slow
@pytest.mark.sampled(every=20)
@pytest.mark.parametrize("f", CHUNKS)
def test_chunks_are_those_of_eager(f):
    static = dy2st.to_static(f)
    for n in (3, 4, 5, 8, 9, 10, 15):
        check.agree(static, check.data(n, 3, seed=n))


@pytest.mark.parametrize("f", CHUNKS[:4])
def test_the_last_chunk_runs_behind_one_loop(f):
    sizes = []
    for n in (42, 102):
        static, x = dy2st.to_static(f), check.data(n, 3, seed=n)
        check.agree(static, x)
        assert "unrolled" not in str(dy2st.report(static, x))
        program = dy2st.program(static, x)
        assert any(isinstance(q, Scan) for q in program.ops)
        sizes.append(sum(1 for _ in walk(program.ops)))
    assert sizes[0] == sizes[1]


def clamped(x):
    h = paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = h * 0.5 + x[min(t + 1, x.shape[0] - 1)] * min(t, 3) + max(t - 2, 0)
    return h


def with_break(x):
    n, h = x.shape[0], paddle.zeros([3], x.dtype)
    for s in range(0, n, 4):
        h = h * 0.5 + x[s : min(s + 4, n)].sum(0).abs()
        if h.sum() > 4:
            break
    return h


@pytest.mark.parametrize("f", [clamped, with_break])
def test_bounds_of_other_loops(f):
    static = dy2st.to_static(f)
    for n in (4, 7, 9):
        x = check.data(n, 3, seed=n, dtype="float32", trained=False)
        check.same(static(x), f(x), rtol=1e-5)
