"""What a loop does before it ends, and lengths of loops that constants say."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=10)


def stacked_before_the_break(x):
    ys, h, t = [], x[0], 0
    while True:
        h = paddle.tanh(h * 1.1 + x[1] * 0.3)
        ys.append(h)
        t += 1
        if h.sum() > 2.0 or t >= 8:
            ys = paddle.stack(ys)
            ys = ys * 2
            break
    return ys, t


def returned(x):
    ys, h, t = [], x[0], 0
    while True:
        h = paddle.tanh(h * 1.1 + x[1] * 0.3)
        ys += [h]
        t += 1
        if h.sum() > 2.0 or t >= 8:
            if t > 20:
                h = h * 2
            return paddle.concat(ys), h, t


def not_before_the_least_length(x):
    ys, h, t = [], x[0], 0
    while True:
        h = paddle.tanh(h * 1.1 + x[1] * 0.3)
        ys.append(h)
        t += 1
        if h.sum() > 0.5 or t >= 8:
            if t < 4:
                continue
            ys = paddle.stack(ys, axis=1)
            break
    return ys


def of_two_steps(x):
    """The first step differs where the test of the last one does, and `x` is of another shape at
    the `break`."""
    ys, x = [], x[:, :3]
    while True:
        x = paddle.concat([x, x[:, :1]], 1)
        y = paddle.tanh(x[:, :3] + 0.5)
        ys.append(y)
        if y.sum() > 1.5:
            break
        elif len(ys) == 2:
            break
        x = y
    return paddle.stack(ys)


EXITS = (stacked_before_the_break, returned, not_before_the_least_length, of_two_steps)


@pytest.mark.parametrize("f", EXITS, ids=lambda f: f.__name__)
def test_work_at_the_exit(f):
    static, lengths = dy2st.to_static(f), set()
    for seed in range(12):
        x = check.data(2, 4, seed=seed)
        (want, wanted), (have, had) = (
            check.step(q, (own := [check.detached(x)]), own) for q in (f, static)
        )
        check.same(have, want, rtol=1e-9, atol=1e-9)
        check.close(had[0], wanted[0], 1e-9, "gradient")
        lengths.add(check.leaves(want)[0].size)
    assert len(lengths) > 1
    assert "unrolled" not in str(dy2st.report(static, x))


def of_ones(x):
    steps, h = paddle.ones([1], "int32") * 5, x[0]
    for t in range(1, steps):
        h = paddle.tanh(h + x[t])
    return h


def of_to_tensor(x):
    most, h = paddle.to_tensor(4), x[0]
    for t in range(most + 1):
        h = paddle.tanh(h + x[t])
    return h


def written_meanwhile(x):
    n, h = paddle.full([1], 3, "int64"), x[0]
    for _ in range(2):
        for t in range(n):
            h = paddle.tanh(h + x[t])
        n.add_(paddle.ones([1], "int64"))
    return h


@pytest.mark.parametrize("f", [of_ones, of_to_tensor], ids=lambda f: f.__name__)
def test_a_constant_length_is_a_length(f):
    static = check.agree(f, check.data(5, 4))
    kinds = {q.kind for q in dy2st.report(static, check.data(5, 4)).loops}
    assert kinds == {"scan"}


def test_a_constant_that_is_written_is_read_again():
    check.agree(written_meanwhile, check.data(5, 4))


def begins_with_none(x, n):
    h, ys = None, []
    for t in range(int(n)):
        row = x[t : t + 1]
        h = row if h is None else paddle.tanh(h * 0.5 + row)
        ys.append(h)
        if h.sum() > 3:
            break
    return paddle.concat(ys), h


def test_a_state_that_is_none_before_a_loop_that_data_bounds():
    static = dy2st.to_static(begins_with_none)
    for n in (4, 1, 7, 2):
        x, y = check.data(7, 3), check.data(7, 3)
        have, want = static(x, paddle.to_tensor(n)), begins_with_none(y, paddle.to_tensor(n))
        check.same(have, want)
        for q in (*have, *want):
            q.sum().backward(retain_graph=True)
        check.close(x.grad.numpy(), y.grad.numpy(), 1e-9, "the gradient")


def chunks_until_empty(x):
    t, ys = 0, []
    while True:
        chunk = x[t : t + 4]
        if chunk.shape[0] == 0:
            break
        ys.append(chunk.mean(0))
        t += 4
    return paddle.stack(ys)


def chunks_until_enough(x):
    t, total = 0, x[0] * 0
    while total.sum() < 12:
        total = total + x[t : t + 4].sum(0)
        t += 4
        if t >= x.shape[0]:
            break
    return total


@pytest.mark.parametrize("f", [chunks_until_empty, chunks_until_enough])
def test_the_last_chunk_of_a_sequence_may_be_shorter(f):
    for n in (1, 3, 4, 6, 8, 10):
        check.same(dy2st.to_static(f)(paddle.ones([n, 2])), f(paddle.ones([n, 2])))


@pytest.mark.parametrize("n, error", [(0, ValueError), (8, IndexError)])
def test_a_loop_that_data_bounds_leaves_what_is_known(n, error):
    """Without an iteration nothing has a type, and behind the end eager has shorter slices."""
    with pytest.raises(error, match=r"'h' is None before it|a slice ends at 8, and its axis has 7"):
        dy2st.to_static(begins_with_none)(check.data(7, 3) * 0, paddle.to_tensor(n))
