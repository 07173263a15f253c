"""Results that share memory with another tensor in some runs only: a copy, with a warning."""

from __future__ import annotations

import warnings

import pytest

paddle = pytest.importorskip("paddle")

import dy2st  # noqa: E402


def of_two_views_of_a_result(x):
    y = x * 2
    h = y[0] if x.sum() > 0 else y[1]
    return h, y


def changed_in_a_branch(x):
    y = x[1]
    if x.sum() > 0:
        y = y * 2
    return y


def one_object_or_two(x):
    y = x * 2
    other = y
    if x.sum() < 0:
        y = y + 1
    return y, other


def of_a_loop_that_may_not_run(x):
    h, y = x[0], x * 1
    while h.sum() < 0:
        h = h + 1
    return h, y


def picked_in_a_loop(x):
    y = x * 2
    h = y[0]
    for t in range(3):
        if x.sum() > t:
            h = y[t]
    return h, y


SOMETIMES = [
    of_two_views_of_a_result,
    changed_in_a_branch,
    one_object_or_two,
    of_a_loop_that_may_not_run,
    picked_in_a_loop,
]


def copied_in_a_branch(x):
    y = x[1].clone()
    if x.sum() > 0:
        y = y * 2
    return y


def new_on_both_sides(x):
    y = x[0]
    if x.sum() > 0:
        y = x * 2
    else:
        y = x * 3
    return y, x


def the_argument_or_a_new_one(x):
    y = x
    if x.sum() > 0:
        y = x * 2
    return y


def carried_through_a_loop(x):
    h = x[0]
    for t in range(3):
        h = h * 0.5 + x[t]
    return h


NEVER = [copied_in_a_branch, new_on_both_sides, the_argument_or_a_new_one, carried_through_a_loop]


def calls(f):
    for scale in (1.0, -1.0):
        yield f(paddle.arange(1.0, 7.0).reshape([3, 2]) * scale)


def numbers(result):
    return [r.tolist() for r in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize("f", SOMETIMES, ids=lambda f: f.__name__)
def test_a_result_that_shares_memory_now_and_then_is_a_copy_and_said_so(f):
    static = dy2st.to_static(f)
    with pytest.warns(dy2st.CopyWarning, match="data decides here whether a result shares") as seen:
        got = [numbers(r) for r in calls(static)]
    assert got == [numbers(r) for r in calls(f)]
    assert len(seen) == 1 and "test_decided_views.py" in str(seen[0].message)


@pytest.mark.parametrize("f", NEVER, ids=lambda f: f.__name__)
def test_no_warning_where_all_runs_are_alike(f):
    static = dy2st.to_static(f)
    with warnings.catch_warnings():
        warnings.simplefilter("error", dy2st.CopyWarning)
        got = [numbers(r) for r in calls(static)]
    assert got == [numbers(r) for r in calls(f)]


def test_views_of_an_argument_on_every_path_are_refused():
    @dy2st.to_static
    def chosen(x):
        return x[0] if x.sum() > 0 else x[1]

    with pytest.raises(dy2st.SourceError, match="a view of a tensor from outside"):
        chosen(paddle.ones([3, 2]))
