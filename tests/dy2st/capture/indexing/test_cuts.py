"""Slices whose bounds data decides: `x[:n]` is as long as the program finds out, as in eager."""

from __future__ import annotations

import warnings

import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=12)


def front(x, n):
    return x[:n] * 2


def rest(x, n):
    return x[n:].sum(0), x[1:n].sum(0)


def middle(x, n):
    return x[n : n * 2 + 1].sum(0)


def another_axis(x, n):
    return (x[:, :n] * 2).sum(1)


def of_an_int(x, n):
    k = int(n)
    return x[k:][:k].sum(0), x[:-k].sum(0)


def both_parts(x, n):
    return paddle.concat([x[:n] * 2, x[n:]])


def written(x, n):
    y = x * 1
    y[:n] = 0.0
    y[n:] = y[n:] * 2
    return y


def steps_of_a_loop(x, n):
    out = x[0] * 0
    for t in range(x.shape[0]):
        k = int(paddle.abs(x[t]).sum() * n.astype("float64") * 0.3)
        out = out + x[:k].sum(0) + x[k:].sum() * 0.1
    return out


def written_in_a_loop(x, n):
    y = x * 1
    for t in range(x.shape[0]):
        k = int(paddle.abs(x[t]).sum() * n.astype("float64") * 0.2)
        y[k:, 1] = y[k:, 1] + x[t, 0]
    return y


def in_a_branch(x, n):
    y = x[0] * 0
    if x.sum() > 0:
        y = y + x[:n].sum(0)
    return y


def looped_over(x, n):
    part, out = x[:n], x[0] * 0
    for row in part:
        out = paddle.tanh(out + row)
    return out


def of_parts(x, n):
    k = int(n)
    y = x[:k]
    return y[1:].sum(0), y[:-1].sum(0), y[1:3].sum(0), y[-2:].sum(0), y[2 : k - 1].sum(0)


def at_the_index_too(x, n):
    k, out = int(n), x[0] * 0
    for t in range(x.shape[0]):
        out = out + x[t:k].sum(0) + x[:k][t:].sum(0) + x[t : k - t].sum(0)
    return out


def in_two_loops(x, n):
    k, out = int(n), x[0] * 0
    for t in range(1, x.shape[0]):
        for j in range(t):
            out = out + x[j:k].sum(0) * j
    return out


def ends_of_a_stack(x, n):
    ys, h = [], x[0]
    while True:
        h = paddle.tanh(h * 0.5)
        ys.append(h)
        if h.abs().sum() < 0.3:
            break
    y = paddle.stack(ys)
    return y[1:].sum(0), y[:-1].sum(0), y[-2:].sum(0), y[:3].sum(0)


FUNCTIONS = (
    front, rest, middle, another_axis, of_an_int, both_parts, written, steps_of_a_loop,
    written_in_a_loop, in_a_branch, looped_over, of_parts, at_the_index_too, in_two_loops,
    ends_of_a_stack,
)  # fmt: skip
#: outside of the axis on either side, too
BOUNDS = (2, 7, 9, -1, -3, -9, 0)


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_results_and_gradients(f, dtype):
    static = dy2st.to_static(f)
    for seed, n in enumerate(BOUNDS):
        if f is front and n in (0, -9):
            continue  # an empty slice requires no gradient in eager
        args = [check.data(7, 4, seed=seed), paddle.to_tensor(n, dtype=dtype)]
        (want, wanted), (have, had) = (
            check.step(q, (own := check.detached(args)), own[:1]) for q in (f, static)
        )
        check.same(have, want, rtol=1e-9, atol=1e-9, what=f"n = {n}")
        check.close(had[0], wanted[0], 1e-9, f"n = {n}: gradient")
    assert "unrolled" not in str(dy2st.report(static, *args))


def test_writes_reach_the_argument():
    def f(x, n):
        x[:n] = 0.0
        x[n:].add_(paddle.ones([]))
        return n + 1

    static = dy2st.to_static(f)
    for n in (0, 3, 7, 9):
        args = [check.data(7, 4, trained=False), paddle.to_tensor(n)]
        one, two = check.detached(args), check.detached(args)
        check.equal(check.observe(static, one), check.observe(f, two), f"n = {n}", versions=True)


def test_a_result_that_eager_shares_is_a_copy_and_says_so():
    static = dy2st.to_static(lambda x, n: x[:n])
    x = check.data(7, 4, trained=False)
    with pytest.warns(dy2st.CopyWarning, match="test_cuts.py"):
        y = static(x, paddle.to_tensor(3))
    check.same(y, x[:3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check.same(dy2st.to_static(front)(x, paddle.to_tensor(3)), x[:3] * 2)


def test_parts_of_different_lengths_do_not_meet():
    static = dy2st.to_static(lambda x, m, n: x[:m] + x[:n])
    x = check.data(7, 4, trained=False)
    with pytest.raises(ValueError, match="do not fit"):
        static(x, paddle.to_tensor(3), paddle.to_tensor(4))
    check.same(static(x, paddle.to_tensor(3), paddle.to_tensor(3)), x[:3] * 2)


def test_a_step_from_data_is_refused():
    with pytest.raises(dy2st.SourceError, match="the bound of a slice"):
        dy2st.to_static(lambda x, n: x[:: int(n)])(check.data(7, 4), paddle.to_tensor(2))


def windows_of_any_length(x):
    """Bounds that Python clamps in some iterations only."""
    out = x[0] * 0
    for t in range(x.shape[0]):
        out = out + x[t - 3 : t].sum(0) + x[max(t - 2, 0) : t + 2].sum(0) * 2 + x[: t + 1].mean(0)
    return out


def test_windows_over_a_named_size():
    static = dy2st.to_static(windows_of_any_length, [InputSpec([None, 4], "float64")])
    for n in (7, 5, 3, 1, 2, 9):
        args = [check.data(n, 4, seed=n)]
        (want, wanted), (have, had) = (
            check.step(q, (own := check.detached(args)), own)
            for q in (windows_of_any_length, static)
        )
        check.same(have, want, rtol=1e-9, atol=1e-9, what=f"n = {n}")
        check.close(had[0], wanted[0], 1e-9, f"n = {n}: gradient")
    assert [q.kind for q in dy2st.report(static, check.data(9, 4)).loops] == ["scan"]
