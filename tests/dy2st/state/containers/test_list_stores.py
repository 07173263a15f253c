"""Loops that store elements of a list at places that only the program knows."""

import numpy as np
import paddle
import pytest

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=48)


def in_order(x, at):
    n = x.shape[0]
    order, h = [(t * 5 + 3) % n for t in range(n)], x[0] * 0.5
    d = [x[0] * 0] * n
    for t in range(n):
        h = paddle.tanh(h + x[t])
        d[order[t]] = h
    return paddle.stack(d)


def ring(x, at):
    d = [x[0] * k for k in range(3)]
    h = x[0] * 0.5
    for t in range(x.shape[0]):
        h = paddle.tanh(h + d[t % 3] + x[t])
        d[t % 3] = h
    return h, d


def from_data(x, at):
    d = [x[0] * k for k in range(12)]
    h = x[0]
    for t in range(x.shape[0]):
        i = int(at[t])
        h = paddle.tanh(h + d[i] + d[-1] + x[t])
        d[i] = h * 2
        if x[t].sum() > 0:
            d[-1 - (t * 5) % 12] = h
    return d, h


def swapped(x, at):
    d = [x[0] * k for k in range(12)]
    for t in range(x.shape[0]):
        i, j = int(at[t]), (t * 5) % 12
        d[i], d[j] = d[j], d[i]
    return d


def numbers(x, at):
    counts, sums = [0] * 12, [0.0] * 12
    for t in range(x.shape[0]):
        counts[int(at[t])] += 1
        sums[(t * 5) % 12] = sums[(t * 7) % 12] + 0.5
    return counts, sums, x * max(counts)


def copies_and_slices(x, at):
    d = [x[0] * k for k in range(10)]
    e, ys = d, []
    for t in range(x.shape[0]):
        s, c = d[2:5], list(d)
        d[(t * 3) % 10] = x[t]
        ys.append(sum(s) + c[(t * 3) % 10] + sum(e) + paddle.stack(d).sum(0))
    return d, ys


def inner_loops(x, at):
    d = [x[0] * k for k in range(12)]
    for t in range(x.shape[0]):
        for k in range(9):
            d[(t * 3 + k) % 12] = x[t] * k + d[(t + k) % 12]
    return d


def grown_too(x, at):
    d = [x[0] * k for k in range(4)]
    for t in range(x.shape[0]):
        d.append(x[t])
        d[(t * 3) % (t + 4)] = x[t] * 2 + d[t // 2]
    return d


WINDOWS = {
    "last": lambda d, t: d[-2:],
    "before_last": lambda d, t: d[-3:-1],
    "first": lambda d, t: d[:2],
    "from_the_second": lambda d, t: d[1:],
    "moving": lambda d, t: d[t : t + 2],
    "elements": lambda d, t: [d[-1], d[-2]],
    "unpacked": lambda d, t: [*d][-2:],
}


@pytest.mark.slow
@pytest.mark.parametrize("grows", [True, False])
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_see_what_is_stored_at_any_place(window, grows):
    take = WINDOWS[window]

    def f(x, at):
        d, h = [x[0] * k for k in range(1, 5)], x[0]
        for t in range(x.shape[0]):
            d[int(at[t]) % 4 - 1] = h + x[t]
            if grows:
                d.append(h * x[t])
            for q in take(d, t % 3):
                h = h * 0.5 + q
        return h, d

    for n in (1, 2, 5):
        check.agree(f, *arguments(n))


def until(x, at):
    d, h, n = [x[0] * k for k in range(10)], abs(x[0]) + 0.1, at[0] % 10
    while h.sum() < 20:
        h = h * 1.5
        d[int(n)] = h
        n = (n * 3 + 1) % 10
    return d, n


def read_elsewhere(x, at):
    d, h = [x[0] * k for k in range(12)], x[0]
    for t in range(12):
        d[t] = h
        h = h * 0.5 + d[t // 2] + d[0]
    for t in range(12):
        d[t] = x[0] * t
        if t % 3 == 0:
            d[t] = d[t] + 1
    return d, h


def pointer(x, at):
    i, d = 0, [x[0] * 0 for _ in range(5)]
    for t in range(x.shape[0]):
        d[i] = x[t] + d[(i + 2) % 5]
        i = (i + 1) % 5
    return d, i


def sorted_by_data(x, at):
    d = [x[0, 0] * k for k in range(12)]
    for _ in range(11):
        for j in range(11):
            if d[j] > d[j + 1]:
                d[j], d[j + 1] = d[j + 1], d[j]
    return d


def slot_of_an_inner_loop(x, at):
    d, h = [x[0] * k for k in range(12)], x[0]
    for t in range(x.shape[0]):
        for k in range(2):
            d[-1] = h * 0.5 + d[int(at[k % x.shape[0]])] * 0.5
        d[11 - t] = h = h + x[t]
    return d


ROLLED = [
    slot_of_an_inner_loop,
    in_order, ring, from_data, swapped, numbers, copies_and_slices, inner_loops, grown_too, until,
    read_elsewhere, pointer, sorted_by_data,
]  # fmt: skip


def arguments(n):
    at = paddle.to_tensor(np.random.default_rng(n).integers(-12, 12, n))
    return check.data(n, 3, seed=n), at


@pytest.mark.sampled(every=32)
@pytest.mark.filterwarnings("ignore::dy2st.CopyWarning")
@pytest.mark.parametrize("n", [1, 4, 11])
@pytest.mark.parametrize("f", ROLLED, ids=lambda f: f.__name__)
def test_stores_at_any_place_are_one_loop(f, n):
    args = arguments(n)
    static = check.agree(f, *args)
    if n == 11:
        assert "unrolled" not in str(dy2st.report(static, *args))


def stored_while_read(x):
    d = [x[0] * k for k in range(10)]
    for i, q in enumerate(d):
        d[(i * 3 + 1) % 10] = q + x[0]
    for q in d:
        d[3] = q + d[3]
    for i, q in enumerate(d):
        if i + 1 < 10:
            d[i + 1] = d[i + 1] + q
    for i, q in zip(range(9, 0, -1), reversed(d)):
        d[i - 1] = q + x[0] * i
    for t in range(3):
        for i, q in enumerate(d):
            d[(i + t) % 10] = q * 0.5 + x[t]
    return d


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dy2st.CopyWarning")
def test_a_loop_over_a_list_sees_what_its_body_stores():
    check.agree(stored_while_read, check.data(3, 3))


def without_a_loop(x, at):
    d = [x[0] * k for k in range(4)]
    if x.sum() > 0:
        d[int(at[0]) % 4] = x[1]
    d[int(at[1]) % 4] = x[2]
    return d, d[int(at[2]) % 4] is None


def filled_in_a_branch(x, at):
    d = [x[0] * k for k in range(10)]
    if x.sum() > 0:
        for t in range(x.shape[0]):
            d[(t * 3) % 10] = x[t]
    return d


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dy2st.CopyWarning")
@pytest.mark.parametrize("f", [without_a_loop, filled_in_a_branch], ids=lambda f: f.__name__)
def test_single_stores_and_branches(f):
    for seed in range(4):
        x, at = check.data(5, 3, seed=seed), paddle.randint(0, 99, [3])
        check.agree(f, x, at)


def test_elements_keep_their_memory():
    """A store at an index from data puts the tensor itself into the list."""

    def chosen(x, y, at):
        d = [x, y]
        d[int(at)] = x
        return d

    static = dy2st.to_static(chosen)
    for at in (0, 1, -1, -2):
        x, y = paddle.ones([2]), paddle.zeros([2])
        found = [[p is q for q in (x, y)] for p in static(x, y, paddle.to_tensor(at))]
        assert found == [[p is q for q in (x, y)] for p in chosen(x, y, at)]


@pytest.mark.parametrize("loop", [True, False])
def test_an_index_out_of_range(loop):
    def store(x, at):
        d = [x[0] * k for k in range(3)]
        for t in range(2) if loop else ():
            d[int(at) + t] = x[0]
        d[int(at)] = x[1]
        return d

    static, x = dy2st.to_static(store), check.data(2, 3)
    check.same(static(x, paddle.to_tensor(-3)), store(x, -3))
    for at in (3, -4):
        with pytest.raises(IndexError, match="list assignment index out of range"):
            static(x, paddle.to_tensor(at))
