"""Errors that data decides about, inside of branches that end in an error: the first is raised."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests import check


class Mixed(ValueError):
    pass


def assertion_before_an_error(x):
    if x.sum() < 0:
        assert x.min() > -5, "very negative"
        raise ValueError("negative")
    return x * 2


def error_before_an_error(x):
    if x.sum() < 0:
        if x.min() < -5:
            raise TypeError("low")
        raise ValueError("negative")
    return x * 2


def one_of_three(x):
    if x.sum() < 0:
        if x.min() < -5:
            raise TypeError("low")
        elif x.max() > 0:
            raise Mixed("mixed")
        else:
            raise ValueError("negative")
    return x * 2


def require_finite(x, name):
    if not paddle.isfinite(x).all():
        if paddle.isnan(x).any():
            raise FloatingPointError(f"{name} has NaN")
        raise OverflowError(f"{name} has infinities: {float(x.max())}")


def checked_by_a_helper(x):
    require_finite(x, "x")
    return x * 2


def in_a_loop(x):
    y = paddle.zeros([])
    for t in range(4):
        if x[t] < 0:
            if x[t] < -5:
                raise TypeError(f"low at {t}")
            raise ValueError(f"negative at {t}")
        y = y + x[t]
    return y


def prints_before_an_error(x):
    if x.sum() < 0:
        print("sum", x.sum())
        raise ValueError("negative")
    return x * 2


def writes_before_an_error(x):
    if x.sum() < 0:
        x.add_(paddle.ones([4]))
        if x.min() < -5:
            raise TypeError("low")
        raise ValueError("negative")
    return x * 2


INPUTS = (
    [1.0, 1, 1, 1], [-1.0, -1, -1, -1], [-9.0, -1, -1, -1], [-9.0, 9, -9, -9], [-3.0, 1, 1, -4],
    [float("nan"), 1, 1, 1], [float("inf"), 1, 1, 1],
)  # fmt: skip
PROGRAMS = [
    assertion_before_an_error, error_before_an_error, one_of_three, checked_by_a_helper, in_a_loop,
    prints_before_an_error, writes_before_an_error,
]  # fmt: skip


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_the_first_error_is_raised(f):
    static = dy2st.to_static(f)
    for values in INPUTS:
        want, have = (check.observe(g, [paddle.to_tensor(values)]) for g in (f, static))
        assert type(have.error) is type(want.error), values
        first = [str(q.error).split("\n")[0] for q in (have, want)]
        assert first[0] == first[1]
        assert have.printed == want.printed
        if want.error is None:
            check.equal(have, want, str(values))


def both_raise(x):
    if x.sum() > 0:
        raise ValueError("positive")
    else:
        raise Mixed("not positive")


def test_a_function_that_only_raises_is_refused_with_their_class():
    with pytest.raises(dy2st.SourceError, match="both branches") as e:
        dy2st.to_static(both_raise)(paddle.ones([4]))
    assert isinstance(e.value, ValueError)


def test_a_call_that_eager_refuses_is_reached_behind_what_is_printed():
    def f(x):
        if x.sum() < 0:
            print("sum", x.sum())
            x[1:] = x.reshape([2, 2])
        return x * 2

    static = dy2st.to_static(f)
    check.same(static(paddle.ones([4])), f(paddle.ones([4])))
    want, have = (check.observe(g, [-paddle.ones([4])]) for g in (f, static))
    assert isinstance(want.error, ValueError) and isinstance(have.error, ValueError)
    assert have.printed == want.printed
