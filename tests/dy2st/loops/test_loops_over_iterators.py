"""Generator expressions, iterators of `itertools` and backward slices are one loop each."""

from __future__ import annotations

import itertools
from itertools import accumulate, chain, islice, pairwise, product, zip_longest

import numpy as np
import paddle
import pytest

import dy2st
from tests import check
from tests.dy2st.state.containers.test_list_reads import rolls

pytestmark = pytest.mark.sampled(every=40)


def generator_expressions(x):
    r = x.sum(0)
    for q in (r * 2 for r in x):
        r = paddle.tanh(q + r)
    for k, (a, b) in enumerate((q, q + r) for q in (row * 2 for row in x)):
        r = paddle.tanh(a * k - b + r)
        if k > 30:
            break
    return r


def with_effects(x):
    seen, h = [], x.sum(0)

    def f(row):
        seen.append(row * h)
        return row * 2

    for q in (f(row) for row in x):
        h = h * 0.5 + q + len(seen)
    return h, seen


def some_items(x):
    h, ys = x.sum(0), [row * 2 for row in x]
    for row in islice(x, 1, None, 2):
        h = paddle.tanh(row + h * 0.5)
    return h, [y * 2 for y in islice(ys, 3)]


def one_after_the_other(x):
    h, ys, n = x.sum(0), [row * 2 for row in x], 0
    for row in chain(ys, [x.sum(0)], reversed(ys)):
        h = paddle.tanh(row + h * 0.5)
        if h.sum() > 1.5:
            break
        n += 1
    return h, n


def neighbours(x):
    h = x.sum(0)
    for a, b in pairwise(x):
        h = paddle.tanh(a - b + h * 0.5)
    for a, b, c in zip_longest(x, x[1:], x[2:], fillvalue=1.0):
        h = paddle.tanh(a - b * c + h * 0.5)
    return h


def totals(x):
    h = x.sum(0)
    for q in accumulate(x):
        h = paddle.tanh(h * 0.5 + q)
    return h, list(accumulate(x, paddle.maximum, initial=h))


def displays(x):
    return [*map(lambda row: row * 2, x), x.sum(0)], (*(row * 3 for row in x),), [*zip(x, x * 2)]


def backward_windows(x):
    ys, acc = [x.sum(0)] * 3, x.sum(0)
    for t in range(x.shape[0]):
        ys.append(paddle.tanh(x[t] + ys[-1] * 0.5))
        a, b, c = ys[-1:-4:-1]
        d, e = ys[t + 3 : t + 1 : -1]
        acc = acc * 0.5 + a - b * c + d * e
    return acc, ys


def backward_from_the_index(x):
    ys, zs, acc = [x.sum(0)], (x.sum(0),), x.sum(0)
    for t in range(x.shape[0]):
        acc = acc * 0.5 + paddle.stack(ys[t::-1]).cumsum(0).mean(0) + sum(zs[-1:-3:-1])
        ys.append(paddle.tanh(x[t] + acc))
        zs = (*zs, acc)
    return ys, zs[::-1]


def pairs(x):
    h, ys, n = x.sum(0), [], 0
    for i, j in product(range(x.shape[0]), repeat=2):
        h = paddle.tanh(h * 0.5 + x[i] * (i - j))
        ys.append(h)
    for a, b, k in product(x, reversed(ys), range(2)):
        h = h * 0.5 + a * b * k
        n += 1
        if h.sum() > 4:
            break
    return h, ys, n


def aligned(x):
    """Dynamic time warping."""
    n, big = x.shape[0], x.sum() * 0 + 1e3
    cost = big.expand([n + 1, n + 1]).clone()
    cost[0, 0] = 0.0
    for i, j in np.ndindex(n, n):
        before = paddle.stack([cost[i, j], cost[i, j + 1], cost[i + 1, j]])
        cost[i + 1, j + 1] = before.min() + (x[i] - x[j] * 2).square().sum()
    return cost[n, n]


LOOPS = (
    generator_expressions, with_effects, some_items, one_after_the_other, neighbours, totals,
    displays, backward_windows, backward_from_the_index, pairs, aligned,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_it_is_one_loop(f):
    rolls(f, lengths=(0, 1, 2, 5))


# ---------------------------------------------------------------- advanced by hand
def by_next(x):
    items, joined = (row * 2 for row in x), chain(x, x * 3)
    h = next(items) + next(joined)
    for q in items:
        h = paddle.tanh(h * 0.5 + q)
    for q in joined:
        h = paddle.tanh(h * 0.5 - q)
    return h, list(items), next(joined, 7)


def of_an_iterator(x):
    items = zip(x, x * 2)
    first = list(islice(items, 2))
    return first, list(items)


@pytest.mark.parametrize("f", [by_next, of_an_iterator])
def test_each_item_is_given_once(f):
    static, x = dy2st.to_static(f), check.data(5, 3)
    check.same(static(x), f(x), 1e-9, 1e-9)


def test_the_report_names_an_iterator_that_is_unrolled():
    def f(x):
        h = x.sum(0)
        for row, k in itertools.product(iter([x[0], x[1]]), range(5)):
            h = paddle.tanh(h + row * k)
        return h

    x = check.data(6, 3)
    check.agree(static := dy2st.to_static(f), x)
    assert "unrolled (iterates over product(), whose items are made one by one)" in str(
        static.report(x)
    )


def appends_at_the_end(x, pairs):
    todo = []
    for t in range(6):
        todo.append(x[t] * 2)
    y = x[0]
    for i, p in pairs(todo):
        y = y + p * i
        if i == 5:
            todo.append(y)
    return y


@pytest.mark.parametrize(
    "pairs",
    [
        lambda todo: ((i, p[0]) for i, p in enumerate(zip_longest(todo, range(3)))),
        lambda todo: enumerate(islice(todo, 9)),
    ],
)
def test_a_list_that_the_last_iteration_makes_longer(pairs):
    """Eager runs on over the new element."""
    static = dy2st.to_static(appends_at_the_end)
    with pytest.raises(dy2st.SourceError, match="a list changes its length while a loop runs over"):
        static(paddle.arange(12, dtype="float32").reshape([6, 2]), pairs)
