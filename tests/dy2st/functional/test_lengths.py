"""Loops whose length is a named size or follows from data, and what bodies do to Python around."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from tests.check import close, data, detached, parity, same, step
from tests.dy2st.functional.plain import Function, kinds

pytestmark = pytest.mark.sampled(every=16)


def leak(c, x):
    c = c * 0.5 + x
    return c, c * c


def core(x, v):
    return x * v, x + v * 0.5


NAMED = {
    "plain": lambda h, x: dy2st.scan(leak, h, x),
    "reverse": lambda h, x: dy2st.scan(leak, h, x, reverse=True),
    "axis": lambda h, x: dy2st.scan(leak, h, x.t(), axis=1),
    "length": lambda h, x: dy2st.scan(lambda c, _: (c * 0.5, c), h, length=x.shape[0]),
    "both": lambda h, x: dy2st.scan(leak, h, x, length=x.shape[0]),
    "unroll": lambda h, x: dy2st.scan(leak, h, x, unroll=2),
    "only_carry": lambda h, x: dy2st.scan(lambda c, q: (c * q, None), h, x),
    "taps": lambda h, x: dy2st.scan(
        lambda s, q: (s[0] * 0.3 + s[1] + q, s[0]), dy2st.taps(paddle.stack([h, h]), (-2, -1)), x
    ),
    "flex": lambda h, x: dy2st.flex_scan(core, 1, 1, 1, x, h),
    "nested": lambda h, x: dy2st.scan(lambda c, q: dy2st.scan(leak, c, x * q), h, x),
}


def as_eager(f, lengths):
    """The translation of f(h, x), which has the results and gradients of eager at these lengths."""
    spec = [InputSpec([3], "float64", "h"), InputSpec([None, 3], "float64", "x")]
    static = dy2st.to_static(f, input_spec=spec)
    for steps in lengths:
        one = [data(3), data(steps, 3, seed=5)]
        two = detached(one)
        (want, wanted), (have, had) = step(f, one, one), step(static, two, two)
        same(have, want, rtol=1e-9, atol=1e-9)
        for a, b in zip(had, wanted, strict=True):
            close(a, b, 1e-9, f"{steps} steps")
    return static


@pytest.mark.parametrize("name", NAMED)
def test_a_named_size_makes_one_program(name):
    static = as_eager(NAMED[name], (6, 1, 4))
    assert "1 program" in str(dy2st.explain(static))
    assert set(kinds(static, data(3), data(4, 3))) == {"scan"}


def test_a_truncated_gradient_over_a_named_size():
    static = as_eager(lambda h, x: dy2st.scan(leak, h, x, truncate_gradient=3), (6, 2, 9, 3))
    assert "2 programs" in str(dy2st.explain(static))


def test_two_named_sizes_must_be_equal():
    spec = [InputSpec([None, 3], "float64", "a"), InputSpec([None, 3], "float64", "b")]

    def f(a, b):
        return dy2st.scan(lambda c, q: (c + q[0].sum() * q[1].sum(), c), 0.0 * a.sum(), (a, b))

    static = dy2st.to_static(f, input_spec=spec)
    for steps in (4, 6):
        a, b = data(steps, 3, trained=False), data(steps, 3, seed=1, trained=False)
        same(static(a, b), f(a, b), rtol=1e-9, atol=1e-9)
    for run in (f, static):
        with pytest.raises(ValueError, match=r"xs\[1\] has .* steps, xs\[0\] has"):
            run(data(4, 3), data(5, 3))


def test_a_saved_scan_runs_at_every_length(tmp_path):
    spec = [InputSpec([3], "float64", "h"), InputSpec([None, 3], "float64", "x")]
    f = NAMED["plain"]
    dy2st.save(f, tmp_path / "f.dy2st", input_spec=spec)
    loaded = dy2st.load(tmp_path / "f.dy2st")
    for steps in (5, 0, 2):
        h, x = data(3, trained=False), data(steps, 3, trained=False)
        for a, b in zip(loaded(h.numpy(), x.numpy()), f(h, x)):
            np.testing.assert_allclose(a, b.numpy(), rtol=1e-9)


COUNTED = {
    "carry": lambda h, n: dy2st.scan(lambda c, _: (c * 0.5, None), h, length=int(n))[0],
    "outputs": lambda h, n: dy2st.scan(lambda c, _: (c * 0.5, c), h, length=int(n)),
    "reverse": lambda h, n: dy2st.scan(lambda c, _: (c * 0.5, c), h, length=int(n), reverse=True),
    "unroll": lambda h, n: dy2st.scan(lambda c, _: (c * 0.5, c), h, length=int(n), unroll=4),
}


@pytest.mark.parametrize("n", [5, 1, 0, -2])
@pytest.mark.parametrize("name", COUNTED)
def test_a_length_that_data_decides(name, n):
    def make_args():
        return [data(3, trained=False), paddle.to_tensor(n)]

    static = parity(Function(COUNTED[name]), make_args)
    if n >= 0:
        assert kinds(static, *make_args()) == ["while"]


def test_a_truncated_gradient_needs_a_length():
    @dy2st.to_static
    def f(h, n):
        return dy2st.scan(lambda c, _: (c * 0.5, None), h, length=int(n), truncate_gradient=2)[0]

    with pytest.raises(dy2st.SourceError, match="truncate_gradient in a loop whose length depends"):
        f(data(3), paddle.to_tensor(3))


# ---------------------------------------------------------------- what bodies do
def writes_captured_sequence(h, x):
    def body(c, q):
        x.add_(paddle.ones([3], "float64"))
        return c + q, q

    return dy2st.scan(body, h, x)


def writes_captured_init(h, x):
    def body(c, q):
        h.add_(q)
        return c + h, c

    return dy2st.scan(body, h, x)


def computes_numbers(h, x):
    def body(c, q):
        return c + float(q.sum()), (float(q.sum()), int(q.max()), bool(q.sum() > 0))

    return dy2st.scan(body, h, x)


def outputs_a_list(h, x):
    def body(c, q):
        ys = []
        for k in range(3):
            ys.append(c * k)
        return c + q, ys

    return dy2st.scan(body, h, x)


def begins_with_a_list(h, x):
    states = [h * k for k in range(3)]
    return dy2st.scan(lambda c, q: ([c[1], c[2], c[0] + q], c[0]), states, x)


def appends_outside(h, x):
    out = []

    def body(c, q):
        out.append(c * 2)
        return c + q, None

    last, _ = dy2st.scan(body, h, x)
    return last, paddle.stack(out)


def keeps_the_best(h, x):
    best = None

    def body(c, q):
        nonlocal best
        best = q if best is None else paddle.maximum(best, q)
        return c + q, None

    last, _ = dy2st.scan(body, h, x)
    return last, best


def is_made_in_a_loop(h, x):
    for k in range(3):

        def body(c, q):
            return c + q * k, c  # noqa: B023

        h, ys = dy2st.scan(body, h, x)
    return h, ys


def handles_the_error(h, x):
    try:
        return dy2st.scan(lambda c, q: (c[:2], c), h, x)
    except TypeError:
        return h


def prints(h, x):
    def body(c, q):
        print("sum", c.sum())
        return c + q, None

    return dy2st.scan(body, h, x)


def asserts(h, x):
    def body(c, q):
        assert q.sum() < 1e9, "too large"
        return c + q, None

    return dy2st.scan(body, h, x)


AROUND = [
    writes_captured_sequence, writes_captured_init, computes_numbers, outputs_a_list,
    begins_with_a_list, appends_outside, keeps_the_best, is_made_in_a_loop, handles_the_error,
    prints, asserts,
]  # fmt: skip


@pytest.mark.parametrize("f", AROUND, ids=lambda q: q.__name__)
def test_what_bodies_do_to_the_code_around(f):
    parity(Function(f), lambda: [data(3, trained=False), data(4, 3, trained=False)])


class Counter(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.calls, self.last = 0, None

    def forward(self, h, x):
        def body(c, q):
            self.calls += 1
            self.last = c
            return c + q, c

        return dy2st.scan(body, h, x)


def test_a_body_stores_attributes():
    static = parity(Counter(), lambda: [data(3, trained=False), data(4, 3, trained=False)])
    assert static.calls == 12 and static.last.shape == [3]
