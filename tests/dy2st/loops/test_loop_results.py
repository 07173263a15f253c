"""Results of loops that are written in place: the loop's tensor, or the one from before it."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests import check


def halved(v, k):
    i = 0
    while i < 3 and k.sum() > i:
        v = v * 0.5
        i += 1
    return v


def written_whole(x, k):
    v = halved(x * 2.0, k)
    v.add_(x)
    return v


def written_by_element(x, k):
    v = x * 1.0
    while k.sum() > 0.5:
        v = v[:] + 1.0
        k = k - 1.0
    v[0] = 7.0
    v = v[1]
    v.add_(x[0])
    return v


def written_in_a_branch(x, k):
    v = halved(x * 2.0, k)
    if x.sum() > 0:
        v.scale_(3.0)
    return v


def written_in_a_loop(x, k):
    v = halved(x * 2.0, k)
    for t in range(3):
        v.scale_(3.0)
        v[0] = v[1] * t
    return v


def written_after_a_break(x, k):
    v = x * 1.0
    for t in range(3):
        if k.sum() <= t:
            break
        v = v * 0.5
    v.scale_(3.0)
    return v


def written_twice(x, k):
    v = halved(x * 2.0, k)
    v.tanh_()
    v = halved(v, k - 1.0)
    v[1:].exp_()
    return v


@pytest.mark.parametrize(
    "f",
    [
        written_whole, written_by_element, written_in_a_branch, written_in_a_loop,
        written_after_a_break, written_twice,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_a_result_is_written_if_the_loop_runs_or_not(f):
    static = dy2st.to_static(f)
    for k in (0.0, 2.0, 1.0):
        sides = [g(ramp(), paddle.to_tensor([k])) for g in (static, f)]
        check.same(*sides, what=f"k = {k}")


def ramp():
    return paddle.arange(1.0, 7.0).reshape([3, 2]) * 0.25


def read_before(x, k):
    p = x * 2.0
    v = halved(p, k)
    v.add_(x)
    return v, p


def of_an_argument(x, k):
    v = halved(x, k)
    v.add_(x * 2.0)
    return v


def of_a_row(x, k):
    p = x * 1.0
    v = halved(p[0], k)
    v.scale_(3.0)
    return v, p.sum()


def the_other_is_written(x, k):
    p = x * 1.0
    v = halved(p, k)
    p.scale_(3.0)
    return v


@pytest.mark.parametrize(
    "f", [read_before, of_an_argument, of_a_row, the_other_is_written], ids=lambda f: f.__name__
)
def test_what_was_before_the_loop_is_read_after_the_write(f):
    """It has been written as well, if the loop did not run."""
    with pytest.raises(dy2st.SourceError, match="may share (its storage|memory) with"):
        dy2st.to_static(f)(ramp(), paddle.zeros([1]))


def same_pair(x, n):
    """A tuple with a number in it: its tensor is one tensor, however often it is appended."""
    pair, ys = (x * 0.5, 1), []
    for _ in range(n):
        ys.append(pair)
    return ys


def two_runs_of_pairs(x, n):
    pair, ys = (x * 0.5, 1), []
    for t in range(n):
        ys.append((x * t, 2.5))
    for _ in range(n):
        ys.append(pair)
    return ys


@pytest.mark.parametrize("n", [0, 1, 2, 5])
@pytest.mark.parametrize("f", [same_pair, two_runs_of_pairs])
def test_a_tensor_that_is_appended_again_is_the_same_object(f, n):
    x = paddle.ones([2])
    have, want = dy2st.to_static(f)(x, n), f(x, n)
    check.same(have, want)
    first = [[id(q) for q, _ in ys] for ys in (have, want)]
    assert [first[0].index(i) for i in first[0]] == [first[1].index(i) for i in first[1]]


def filled(x):
    ys, h = [], x[0]
    for _ in range(6):
        h = h * 0.5 + 1.0
        ys.append(h)
    return ys


def element_read_twice(x):
    ys = filled(x)
    a, b = ys[1], ys[1]
    return a, b, ys[2]


def element_written_before_the_list_is_stacked(x):
    ys = filled(x)
    ys[1].add_(paddle.ones([2]))
    return paddle.stack(ys), ys[1]


def element_written_after_the_list_is_stacked(x):
    ys = filled(x)
    whole = paddle.stack(ys)
    ys[1].add_(paddle.ones([2]))
    return whole, ys[1], ys[1]


def slots_stored_by_a_loop(x):
    u = [x[0] * 1.0 for _ in range(12)]
    for i in range(len(u)):
        u[i] = u[i] * 0.5 + x[0]
    return u[1], u[1], u[0]


ELEMENTS = (
    element_read_twice, element_written_before_the_list_is_stacked,
    element_written_after_the_list_is_stacked, slots_stored_by_a_loop,
)  # fmt: skip


@pytest.mark.parametrize("f", ELEMENTS)
def test_an_element_of_a_list_is_one_object(f):
    x = paddle.ones([3, 2])
    have, want = dy2st.to_static(f)(x), f(x)
    check.same(have, want)
    places = [[[id(q) for q in out].index(id(q)) for q in out] for out in (have, want)]
    assert places[0] == places[1]


def test_numbers_of_a_loop_over_a_named_size_are_a_list():
    def f(x):
        steps = []
        for t in range(x.shape[1]):
            steps.append(t)
        return x * 2, steps

    static = dy2st.to_static(f, input_spec=[paddle.static.InputSpec([None, None])])
    for n in (2, 5, 1):
        assert static(paddle.ones([3, n]))[1] == list(range(n))


def last_of_list(x):
    y, ys = x[0], []
    for row in x:
        y = paddle.tanh(y + row)
        ys.append(y)
    return ys[-1] is y, ys[0] is y, ys[0] is ys[-1], ys[1:][-1] is y if len(ys) > 1 else None


def test_which_object_an_element_is():
    """Where it is asked, the loop keeps its elements apart."""
    for n in (1, 4):
        x = check.data(n, 3)
        assert dy2st.to_static(last_of_list)(x) == last_of_list(x)


def states_of_layers(x):
    hs, y = [x[0] * 0 for _ in range(12)], x[0]
    for y in x:
        for layer in range(12):
            y = paddle.tanh(y + hs[layer])
            hs[layer] = y
    return y, hs


def test_a_state_that_is_also_the_result():
    """It is a tensor of its own in the list, which a warning says, unless `is` asks."""
    with pytest.warns(dy2st.CopyWarning):
        check.agree(states_of_layers, check.data(3, 4))

    def compared(x):
        y, hs = states_of_layers(x)
        return y is hs[-1], y is hs[-2]

    assert dy2st.to_static(compared)(check.data(3, 4)) == (True, False)
