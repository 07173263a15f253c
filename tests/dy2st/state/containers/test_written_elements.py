"""Views that a loop collects and that are written later: the loop is unrolled, exact as eager."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from tests import check


def matrix():
    return paddle.to_tensor(np.random.default_rng(0).normal(size=[5, 3]).astype("float32"))


def running_sum(x):
    prev = paddle.zeros([3])
    for t in range(5):
        x[t] += prev
        prev = x[t]
    return prev


def views_in_a_comprehension(x):
    views = [x[i] for i in range(2)]
    [v.add_(paddle.ones([3])) for v in views]
    for v in [x[3], x[4]]:
        v.add_(paddle.ones([3]) * 2)


def views_by_number(x):
    for i, v in enumerate([x[i] for i in range(5)]):
        v.add_(paddle.ones([3]) * i)


def base_written_later(x):
    rows = [x[i] for i in range(5)]
    x.add_(paddle.ones([3]))
    return paddle.stack(rows)


def views_of_a_loop(x):
    rows = []
    for i in range(4):
        rows.append(x[i + 1])
    for r in rows:
        r.scale_(2.0)
    return rows[0], rows[-1]


def in_a_called_function(x):
    def halves(t):
        return [t[:2], t[3:]]

    for _ in range(2):
        for part in halves(x):
            part.multiply_(paddle.full([3], 0.5))


@pytest.mark.sampled
@pytest.mark.quick("views_in_a_comprehension", "views_by_number", "base_written_later")
@pytest.mark.parametrize(
    "f",
    [running_sum, views_in_a_comprehension, views_by_number, base_written_later, views_of_a_loop,
     in_a_called_function],
)  # fmt: skip
def test_writes_reach_the_tensor(f):
    static = dy2st.to_static(f)
    one, two = matrix(), matrix()
    for call in range(3):
        want = check.observe(f, [one])
        have = check.observe(static, [two])
        assert not check.both_raise(have, want)
        check.equal(have, want, f"call {call}", memory=True)


def all_rows(x):
    rows = [x[i] for i in range(x.shape[0])]
    for r in rows:
        r.add_(paddle.ones([3]))
    return x


def test_over_a_named_size_it_is_refused():
    with pytest.raises(dy2st.SourceError, match="written in place"):
        dy2st.to_static(all_rows, [InputSpec([None, 3], "float32")])(matrix())


def windows(x):
    out = []
    for t in range(5):
        s = paddle.zeros([3])
        for k in range(t, min(t + 2, 5)):
            s = s + x[k]
        for k in range(max(0, t - 1), t + 1):
            s = s * x[k]
        for k in range(5 - t):
            s = s - x[k] * k
        out.append(s)
    return paddle.stack(out)


def pyramid(x):
    total = paddle.zeros([3])
    for i in range(1, 4):
        for j in range(0, 5, i):
            for k in range(j, min(j + i, 5)):
                total = total + x[k] * (i + j)
    return total


def backwards(x):
    total = paddle.zeros([3])
    for i in range(5):
        for j in range(i, max(i - 3, -1), -1):
            total = total * 0.5 + x[j]
    return total


@pytest.mark.sampled
@pytest.mark.quick("pyramid")
@pytest.mark.parametrize("f", [windows, pyramid, backwards])
def test_inner_ranges_that_follow_from_the_outer_index(f):
    check.agree(f, check.data(5, 3))


def collected_by_an_inner_loop(x):
    p, rows = paddle.zeros([3], x.dtype), []
    for t in range(3):
        p.add_(x[t])
        for k in range(2):
            rows.append((x[t] * k, p))
    return paddle.stack([a + b for a, b in rows])


def in_a_list_of_an_inner_loop(x):
    p, rows = paddle.zeros([3], x.dtype), []
    for t in range(3):
        row = []
        for _ in range(2):
            row.append(p)
        rows.append(row)
        p.add_(x[t])
    return paddle.stack([paddle.stack(q) for q in rows])


@pytest.mark.parametrize("f", [collected_by_an_inner_loop, in_a_list_of_an_inner_loop])
def test_an_inner_loop_collects_the_tensor_that_the_loop_around_it_writes(f):
    x = check.data(3, 3)
    with paddle.no_grad():
        check.same(dy2st.to_static(f)(x), f(x))
