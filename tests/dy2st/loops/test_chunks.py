"""Loops over chunks of a tensor, of which the last one may be shorter."""

from __future__ import annotations

import paddle
import pytest
from paddle.static import InputSpec

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


def while_with_context(x):
    """Frames before and behind each chunk, and an `if` instead of `min`."""
    n, cur, out = x.shape[0], 0, []
    while cur < n:
        end = cur + 4
        if end > n:
            end = n
        start, last = max(0, cur - 6), min(end + 2, n)
        window = paddle.tanh(x[start:last])
        out.append(window[cur - start : end - start] + window.mean(0) * cur)
        cur = end
    return paddle.concat(out), cur


def until_all_are_read(x):
    n, cur, out = x.shape[0], 0, []
    while True:
        out.append(paddle.tanh(x[cur : cur + 4]))
        cur += 4
        if cur >= n:
            break
    return paddle.concat(out)


def shorter_and_shorter(x):
    n, h, cur, k = x.shape[0], paddle.zeros([3], x.dtype), 0, 5
    while cur < n:
        end = min(cur + k, n)
        h = paddle.tanh(h + x[cur:end].sum(0))
        cur = end
        if k > 2:
            k -= 1
    return h, cur, k


def until_the_end_is_read(x):
    n, h, cur, out = x.shape[0], paddle.zeros([3], x.dtype), 0, []
    while True:
        end = min(cur + 4, n)
        h = paddle.tanh(h + x[cur:end].sum(0))
        out.append(h)
        if end == n:
            break
        cur = end
    return out, cur


def sliding_windows(x):
    """Windows of 6 every 3 steps, until one of them comes to the end."""
    n, start = x.shape[0], 0
    out, seen = paddle.zeros_like(x), paddle.zeros([n], x.dtype)
    while start < n:
        end = min(start + 6, n)
        out[start:end] += paddle.tanh(x[start:end]).mean(0)
        seen[start:end] += 1
        if end == n:
            break
        start += 3
    return out / seen.unsqueeze(1)


CHUNKS = [
    with_min, clipped, windows_with_context, weighted_by_length, while_chunks, while_with_context,
    until_all_are_read, shorter_and_shorter, until_the_end_is_read, sliding_windows,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.sampled(every=20)
@pytest.mark.parametrize("f", CHUNKS)
def test_chunks_are_those_of_eager(f):
    static = dy2st.to_static(f)
    for n in (3, 4, 5, 8, 9, 10, 15):
        check.agree(static, check.data(n, 3, seed=n))


@pytest.mark.parametrize("f", CHUNKS)
def test_the_last_chunk_runs_behind_one_loop(f):
    sizes = []
    for n in (62, 102):
        static, x = dy2st.to_static(f), check.data(n, 3, seed=n)
        check.agree(static, x)
        assert "unrolled" not in str(dy2st.report(static, x))
        program = dy2st.program(static, x)
        assert any(isinstance(q, Scan) for q in program.ops)
        sizes.append(sum(1 for _ in walk(program.ops)))
    assert sizes[0] == sizes[1]


ANY = {"input_spec": [InputSpec([None, 3], "float64")]}


OF_KNOWN_LENGTH = (shorter_and_shorter, until_the_end_is_read)


@pytest.mark.parametrize("f", [q for q in CHUNKS if q not in OF_KNOWN_LENGTH])
def test_one_program_for_all_lengths(f):
    static = dy2st.to_static(f, **ANY)
    lengths = (30, 33, 40, 27)
    for n in lengths:
        check.agree(static, check.data(n, 3, seed=n), calls=1)
        assert "unrolled" not in str(dy2st.report(static, check.data(n, 3)))
    assert len({str(dy2st.program(static, check.data(n, 3))) for n in lengths}) == 1


@pytest.mark.slow
@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("f", [q for q in CHUNKS if q is not shorter_and_shorter])
def test_short_sequences_of_any_length(f):
    static = dy2st.to_static(f, **ANY)
    for n in (30, 3, 5, 4, 8, 9, 30):
        check.agree(static, check.data(n, 3, seed=n))


def test_no_chunk_at_all():
    static = dy2st.to_static(while_chunks, **ANY)
    for n in (0, 5, 0):
        check.agree(static, check.data(n, 3, seed=n))


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


def while_with_break(x):
    n, h, cur = x.shape[0], paddle.zeros([3], x.dtype), 0
    while cur < n:
        end = min(cur + 4, n)
        h = h * 0.5 + x[cur:end].sum(0).abs()
        if h.sum() > 4:
            break
        cur = end
    return h, cur


def until_the_end_or_data(x):
    n, h, cur, out = x.shape[0], paddle.zeros([3], x.dtype), 0, []
    while True:
        end = min(cur + 4, n)
        h = h * 0.5 + x[cur:end].sum(0).abs()
        out.append(h)
        if end == n or h.sum() > 4:
            break
        cur = end
    return out[-1], len(out), cur


def until_the_end_or_a_count(x):
    """The count ends it first for many steps: a part behind the first comparisons leads as well."""
    n, h, cur, k = x.shape[0], paddle.zeros([3], x.dtype), 0, 0
    while k < 40:
        end = min(cur + 2, n)
        h = paddle.tanh(h + x[cur:end].sum(0))
        k += 1
        if k == 14 or end == n:
            break
        if k == 6:
            h = h + 1
        cur += 1
    return h, cur, end, k


def while_on_data(x):
    n, h, cur = x.shape[0], paddle.zeros([3], x.dtype), 0
    while cur < n and h.sum() < 4:
        end = min(cur + 4, n)
        h = h * 0.5 + x[cur:end].sum(0).abs()
        cur = end
    return h, cur


BOUNDED = [
    clamped,
    with_break,
    while_with_break,
    until_the_end_or_data,
    until_the_end_or_a_count,
    while_on_data,
]


@pytest.mark.parametrize("f", BOUNDED)
def test_bounds_of_other_loops(f):
    static = dy2st.to_static(f)
    for n in (4, 7, 9, 30):
        for scale in (0.01, 1):
            x = check.data(n, 3, seed=n, dtype="float32", trained=False) * scale
            check.same(static(x), f(x), rtol=1e-5)
