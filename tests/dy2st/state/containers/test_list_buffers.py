"""Lists that a loop fills and reads at places that only the program knows, or as a whole."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

import dy2st
from tests import check
from tests.dy2st.state.containers.test_list_reads import rolls

pytestmark = pytest.mark.sampled(every=80)


# ---------------------------------------------------------------- one element
def half_way(x):
    ys = [x[0]]
    for t in range(x.shape[0]):
        ys.append(paddle.tanh(ys[t // 2] * 0.5 + x[t]))
    return paddle.stack(ys)


def tree_of_a_python_list(x):
    parents = [k * 7 % (k + 1) for k in range(x.shape[0])]
    hs = [x[0]]
    for t in range(1, x.shape[0]):
        hs.append(paddle.tanh(hs[parents[t - 1]] + x[t]))
    return paddle.stack(hs, axis=1), hs[-1]


def graph_by_levels(x):
    left = [k // 2 for k in range(x.shape[0])]
    right = [-1 - k // 3 for k in range(x.shape[0])]
    hs = [x[0], x[1] * 2]
    for t in range(x.shape[0]):
        hs.append(paddle.tanh(hs[left[t]] * hs[right[t]] + x[t]))
    return paddle.concat(hs)


def number_of_the_program(x):
    ys = [x[0], x[0] * 2]
    for t in range(x.shape[0]):
        i = int(paddle.argmax(x[t])) % 2
        ys.append(ys[i + t // 2] * 0.5 + ys[-1])
    return paddle.stack(ys)


def best_of_widths(x):
    d = [x[0]]
    for t in range(1, x.shape[0]):
        best = x[t]
        for w in range(1, 4):
            if t - w >= 0:
                best = paddle.maximum(best, d[t - w] * (0.1 * w))
        d.append(best)
    return paddle.stack(d)


def read_after_its_append(x):
    ys = []
    for t in range(x.shape[0]):
        ys.append(x[t] * 2)
        ys[t // 2].sum()
        ys.append(ys[t] + ys[2 * t])
    return paddle.stack(ys)


def pairs(x):
    hs = [(x[0], x[0] * 0)]
    for t in range(x.shape[0]):
        h, c = hs[t // 3]
        hs.append((paddle.tanh(h + x[t]), c * 0.5 + h))
    return paddle.stack([h for h, c in hs]), hs[-1][1]


def dict_of_lists(x):
    d = {"h": [x[0]], "c": [x[0] * 2]}
    for t in range(x.shape[0]):
        d["h"].append(paddle.tanh(d["h"][t // 2] + d["c"][-1]))
        d["c"].append(d["h"][-1] * 0.5 + d["c"][t // 3] + x[t])
    return paddle.stack(d["h"]), paddle.stack(d["c"])


def far_from_the_end(x):
    ys = [x[0] * k for k in range(20)]
    for t in range(x.shape[0]):
        ys.append(ys[-20] * 0.5 + ys[t + 3] + x[t])
    return paddle.stack(ys)


def numbers(x):
    fs = [1.0, 0.5]
    y = x[0]
    for t in range(x.shape[0]):
        fs.append(fs[t // 2] * 0.5 + 0.25)
        y = y * fs[t // 3] + x[t]
    return y, fs[-1]


def numbers_of_data(x):
    losses = []
    y = x[0]
    for t in range(x.shape[0]):
        losses.append(float(y.mean()))
        if losses[t // 2] < 0.1:
            y = y + 1
        y = y * 0.5 + x[t]
    return y


def appended_in_an_inner_loop(x):
    ys = [x[0]]
    for t in range(x.shape[0]):
        for k in range(9):
            ys.append(ys[t] * 0.5 + ys[t * 9 + k] * 0.1 + x[t])
    return paddle.stack(ys)


def appended_by_both_branches(x):
    ys = [x[0]]
    for t in range(x.shape[0]):
        if x[t].sum() > 0:
            ys.append(ys[t // 2] + x[t])
        else:
            ys.append(ys[t] * 0.5)
    return paddle.stack(ys)


def elements_after_the_loop(x):
    ys = [x[0]]
    for t in range(x.shape[0]):
        ys.append(ys[t // 2] * 0.5 + x[t])
    zs = ys[1:]
    total = x[0] * 0
    for k, y in enumerate(ys):
        total = total * 0.9 + y * k
    return total, ys[0], ys[-1], len(ys), paddle.stack(zs)


def two_loops_one_list(x):
    ys = [x[0]]
    for t in range(x.shape[0]):
        ys.append(ys[t // 2] * 0.5 + x[t])
    for t in range(x.shape[0]):
        ys.append(ys[t // 2] + ys[-1] * 0.1)
    return paddle.stack(ys)


# ---------------------------------------------------------------- the whole list
def all_earlier_states(x):
    hs = [x[0]]
    for t in range(1, x.shape[0]):
        s = paddle.zeros([3], x.dtype)
        for j in range(t):
            s = s + hs[j] * 0.1
        hs.append(paddle.tanh(s + x[t]))
    return paddle.stack(hs)


def sum_of_all(x):
    ys = [x[0]]
    for t in range(x.shape[0]):
        ys.append(paddle.tanh(sum(ys) * 0.1 + x[t]))
    return ys[-1]


def sum_of_a_part(x):
    ys = [x[0]]
    for t in range(1, x.shape[0]):
        ys.append(paddle.tanh(sum(ys[:t]) * 0.1 + x[t]))
    return paddle.stack(ys)


def attention(x):
    hs = [x[0]]
    for t in range(x.shape[0]):
        m = paddle.stack(hs)
        a = F.softmax(paddle.matmul(m, hs[-1]), 0)
        hs.append(paddle.matmul(a, m) + x[t])
    return paddle.stack(hs)


def concatenated(x):
    ys = [x[0]]
    for t in range(x.shape[0]):
        ys.append(paddle.concat(ys).sum() * 0.01 + x[t])
    return paddle.concat(ys)


def run_through(x):
    ys = [x[0]]
    for t in range(x.shape[0]):
        total = x[t]
        for y in ys:
            total = total * 0.5 + y
        for k, y in enumerate(ys):
            total = total + y * (0.01 * k)
        ys.append(total)
    return paddle.stack(ys)


READS = [
    half_way, tree_of_a_python_list, graph_by_levels, number_of_the_program, read_after_its_append,
    pairs, dict_of_lists, far_from_the_end, numbers, appended_in_an_inner_loop,
    appended_by_both_branches, elements_after_the_loop, two_loops_one_list, all_earlier_states,
    sum_of_all, sum_of_a_part, attention, concatenated, run_through,
]  # fmt: skip
#: the least number of rows that eager takes
LEAST = {read_after_its_append: 1, numbers_of_data: 1, graph_by_levels: 2, concatenated: 1}


@pytest.mark.slow
@pytest.mark.parametrize("f", READS, ids=lambda f: f.__name__)
def test_any_element(f):
    rolls(f, least=LEAST.get(f, 1))


@pytest.mark.slow
@pytest.mark.parametrize("f", [best_of_widths, numbers_of_data], ids=lambda f: f.__name__)
def test_after_the_first_iterations(f):
    rolls(f, least=1)


# ---------------------------------------------------------------- errors
@pytest.mark.parametrize("place", [0, -1, 3, 5, -3, -4, -9])
def test_index_outside(place):
    """As eager: an index may count from the end, and raises outside."""

    def f(x, places):
        ys = [x]
        for t in range(places.shape[0]):
            ys.append(ys[int(places[t])] + 1)
        return paddle.stack(ys)

    static, x = dy2st.to_static(f), paddle.ones([2])
    places = paddle.to_tensor([0, 0, place])
    try:
        want = f(x, places)
    except IndexError as e:
        with pytest.raises(IndexError, match=str(e)):
            static(x, places)
    else:
        check.same(static(x, places), want)


def test_index_surely_outside():
    def f(x):
        ys = [x[0]]
        for t in range(x.shape[0]):
            ys.append(ys[t + 1])
        return ys[-1]

    with pytest.raises(IndexError, match="list index out of range"):
        dy2st.to_static(f)(check.data(4, 3))


# ---------------------------------------------------------------- writes and identities
def test_written_elements_are_eagers():
    """An element that is written in place is one tensor under all its names."""

    def f(x):
        ys = [x[0] * 1]
        for t in range(x.shape[0]):
            y = ys[t // 2] + x[t]
            ys.append(y)
            if t > 2:
                ys[t // 2].add_(x[0])
        return paddle.stack(ys)

    static = dy2st.to_static(f)
    for n in (1, 3, 6):
        x = paddle.ones([n, 3])
        check.same(static(x), f(x))


def test_elements_of_the_caller():
    """The first elements stay the caller's own tensors."""

    def f(x, y):
        ys = [x, y]
        for t in range(5):
            ys.append(ys[t // 2] * 2)
        return ys[0], ys[1], ys[4]

    x, y = check.data(3), check.data(3, seed=1)
    a, b, c = dy2st.to_static(f)(x, y)
    assert a is x and b is y
    check.same(c, f(x, y)[2])


def test_while_loop():
    def f(x, n):
        ys, t = [x], 0
        while t < n:
            ys.append(ys[t // 2] * 0.5 + t)
            t += 1
        return paddle.stack(ys)

    static, x = dy2st.to_static(f), check.data(3)
    for n in (1, 2, 9):
        check.same(static(x, n), f(x, n))
    assert "unrolled" not in str(dy2st.report(static, x, 9))


def test_early_exit():
    def f(x, limit):
        ys = [x[0]]
        for t in range(x.shape[0]):
            y = ys[t // 2] + x[t]
            if y.sum() > limit:
                break
            ys.append(y)
        return paddle.stack(ys), len(ys)

    static, x = dy2st.to_static(f), paddle.ones([9, 3])
    for limit in (2.0, 7.0, 10.0, 100.0):
        limit = paddle.to_tensor(limit)
        (ys, n), (want, m) = static(x, limit), f(x, limit)
        assert n == m
        np.testing.assert_allclose(ys.numpy(), want.numpy(), rtol=1e-6)
    assert "unrolled" not in str(dy2st.report(static, x, limit))


def test_any_length():
    """Over a named size: one program for every length."""
    spec = [paddle.static.InputSpec([None, 3], "float32", "x")]
    static = dy2st.to_static(half_way, input_spec=spec)
    for n in (1, 2, 5, 12):
        x = check.data(n, 3)
        x = x.astype("float32")
        check.same(static(x), half_way(x))


def written_after_its_append(x):
    ys, h = [x[0] * 1], x[0]
    for t in range(x.shape[0]):
        h = ys[t // 2] + h
        ys.append(h)
        h.add_(x[t])
    return paddle.stack(ys), h


def written_behind_the_loop(x):
    ys, h = [x[0] * 1], x[0]
    for t in range(x.shape[0]):
        h = ys[t // 2] + x[t]
        ys.append(h)
    h.add_(x[0])
    return paddle.stack(ys), h


def last_one_written_behind_the_loop(x):
    ys, h = [x[0] * 1], x[0]
    for t in range(x.shape[0]):
        h = ys[t // 2] + x[t]
        ys.append(h)
    ys[-1].add_(x[0])
    return paddle.stack(ys), h


def in_two_lists(x):
    ys, zs = [x[0] * 1], []
    for t in range(x.shape[0]):
        h = ys[t // 2] + x[t]
        ys.append(h)
        zs.append(h)
    zs[0].add_(x[0])
    return paddle.stack(ys), paddle.stack(zs)


def element_kept_and_written(x):
    ys = [x[0] * 1]
    for t in range(x.shape[0]):
        ys.append(ys[t // 2] + x[t])
        z = ys[t // 3]
    z.add_(x[0])
    return paddle.stack(ys), z


def first_one_written(x):
    first = x[0] * 1
    ys = [first]
    for t in range(x.shape[0]):
        ys.append(ys[t // 2] + x[t])
    first.add_(x[0])
    return paddle.stack(ys), first


def whole_list_that_another_loop_has_begun(x):
    ys = [row * 2 for row in x]
    h = x[0]
    for t in range(x.shape[0]):
        h = h * 0.5 + paddle.stack(ys).mean(0) + paddle.concat(ys).mean()
        ys.append(h + x[t])
    return h, ys[-1]


@pytest.mark.quick
@pytest.mark.parametrize(
    "f",
    [
        written_after_its_append, written_behind_the_loop, last_one_written_behind_the_loop,
        in_two_lists, element_kept_and_written, first_one_written,
        whole_list_that_another_loop_has_begun,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_an_element_is_one_tensor(f):
    static = dy2st.to_static(f)
    for n in (1, 2, 6):
        x = check.data(n, 3, seed=n, trained=False)
        check.same(static(x), f(x))
