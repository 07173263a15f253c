"""Iterators that the function makes give each item once, whatever runs through them."""

import paddle
import pytest

import dy2st
from tests.check import data, same


def rows():
    return data(40, 3, trained=False)


def total(s, items):
    for q in items:
        s = s * 0.5 + q
    return s


def twice(make):
    def f(x):
        items = make(x)
        s = total(x[0], items)
        return s, total(s, items), list(items)

    return f


def pairs_twice(make):
    def f(x):
        items, s = make(x), x[0]
        for a, b in items:
            s = s * 0.5 + a * b
        for _ in items:
            s = s + 100
        return s, list(items)

    return f


def by_next(x):
    items, s = zip(x, x * 2), x[0]
    first = next(items)
    for a, b in items:
        s = s * 0.5 + a * b
    return s, first, next(items, 7)


def broken_off(x):
    items, s = enumerate([x[0], x[1], x[2], x[3]]), x[0]
    for i, a in items:
        s = s * 0.5 + a * i
        if i == 1:
            break
    for i, a in items:
        s = s * 3 + a * i
    return s, list(items)


def found(items, n):
    for q in items:
        if q == n:
            return q
    return -1


def searched(x):
    items = iter(range(10))
    return x[0] * found(items, 3) + found(items, 6), any(q > 7 for q in items), list(items)


def two_of_one(x):
    items, s = enumerate(x), x[0]
    for (i, a), (j, b) in zip(items, items):
        s = s * 0.5 + a * b + i - j
    return s


def ended_by_data(x):
    s = x[0]
    for a in (q * 2 for q in [x[0], x[1], x[2]]):
        s = s * 0.5 + a
        if s.sum() > 0:
            break
    return s


def in_a_branch(x):
    items, s = zip(x, x * 2), x[0]
    if x.sum() > 0:
        for p, q in items:
            s = s * 0.5 + p * q
    return s


def data_range(x):
    steps, s = reversed(range(int(x[0].abs().sum() * 3) + 2)), x[0]
    return total(s, steps), total(s, steps)


def extended(x):
    items, out = zip(x, x * 2), []
    out.extend(items)
    out.extend(items)
    return out


CASES = {
    "reversed": twice(lambda x: reversed([x[0], x[1], x[2]])),
    "reversed range": twice(lambda x: reversed(range(x.shape[0]))),
    "map": twice(lambda x: map(lambda q: q * 2, x)),
    "filter": twice(lambda x: filter(lambda n: n % 2, range(40))),
    "generator": twice(lambda x: (q * 2 for q in x)),
    "zip": pairs_twice(lambda x: zip(x, x * 2)),
    "enumerate": pairs_twice(enumerate),
    **{f.__name__: f for f in (by_next, broken_off, searched, two_of_one, ended_by_data,
                               in_a_branch, data_range, extended)},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_each_item_is_given_once(name):
    static = dy2st.to_static(CASES[name])
    for x in (rows(), -rows()):
        same(static(x), CASES[name](x), rtol=1e-9)


def break_then_rest(x):
    items, s = iter([x[0], x[1], x[2]]), x[0]
    for a in zip(items, [1, 2, 3]):
        s = s + a[0]
        if s.sum() > 0:
            break
    return s, list(items)


def next_in_loop(x):
    items, s = enumerate(x), x[0]
    for _, a in items:
        s = s * 0.5 + a * next(items)[1]
    return s


def inner_of_another(x):
    items, s = enumerate(x), x[0]
    for _, (_, b) in zip(range(3), items):
        s = s + b
    return s, list(items)


def after_a_branch(x):
    items, s = zip(x, x * 2), x[0]
    if x.sum() > 0:
        s = s + sum(p + q for p, q in items)
    return s, list(items)


@pytest.mark.parametrize("f", [break_then_rest, next_in_loop, inner_of_another, after_a_branch])
def test_an_iterator_of_which_an_unknown_part_is_left_is_refused(f):
    with pytest.raises(dy2st.SourceError, match="how much is left of it is not known"):
        dy2st.to_static(f)(rows())


def test_one_iterator_is_not_reversed():
    with pytest.raises(TypeError, match="not reversible"):
        dy2st.to_static(lambda x: list(reversed(enumerate(x))))(paddle.ones([3]))


@pytest.mark.parametrize("marked", [False, True])
def test_a_generator_makes_as_many_items_as_data_or_a_number_that_moves_says(marked):
    """A loop with a `yield`, or of a function marked `not_to_static`, is run by Python."""

    def first(x, n):
        for k in range(n):
            yield x * k

    def summed(x, n):
        for k in range(n):
            x = x + k
        return x

    def f(x, n):
        if marked:
            return helper(x, n)
        items, s = first(x, n), x
        try:
            while True:
                s = s + next(items)
        except StopIteration:
            return s

    helper = paddle.jit.not_to_static(summed)
    static, x = dy2st.to_static(f), rows()
    for n in (1, 2, 3):
        same(static(x, n), f(x, n), rtol=1e-9)
    with pytest.raises(dy2st.SourceError, match="of a length that data decides"):
        dy2st.to_static(f)(x, paddle.to_tensor(2))
