"""Builtins that run through an iterable: the answers of eager, and one loop where there can be."""

from __future__ import annotations

import functools

import numpy as np
import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from tests import check


def rows(seed=0):
    return paddle.to_tensor(np.random.default_rng(seed).normal(size=[6, 3]).astype("float32"))


def sum_with_if(x):
    return sum(r * i for i, r in enumerate(x, 1) if i % 2 == 0)


def list_with_if(x):
    return paddle.stack(list(r * 2 for i, r in enumerate(x) if i != 3))


def tuple_of_zip(x):
    a = tuple(p * q for p, q in zip(x, x + 1))
    return paddle.stack(a), len(a)


def largest_of_generator(x):
    return max(float(r.sum()) for r in x), min(int(r.argmax()) for r in x)


def largest_by_key(x):
    best = max([x[0], x[1], x[2]], key=lambda r: float(r.sum()))
    return best, min(x, key=lambda r: r.abs().sum())


def index_of_the_largest(x):
    return max(range(6), key=lambda i: float(x[i].sum()))


def any_and_all(x):
    low = any(float(r.sum()) > 100 for r in x)
    high = all([float(r.sum()) > -100 for r in x])
    some = any(r.sum() > 0 for r in x if r[0] > 0)
    return x + 1 if high and not low else x, some


def ends_early(x):
    """The last element would divide by zero."""
    numbers = [int(x[0, 0] > -100), int(x[0, 0] < -100)]
    return any(1 // n == 1 for n in numbers), all(n != 1 or 1 // n < 1 for n in numbers)


def sorted_numbers(x):
    v = sorted(float(q) for q in x[0])
    w = sorted([float(x[1, 0]), 0.25, float(x[1, 1])], reverse=True)
    return v[0] * x, v, w, sorted([3, 1, 2], key=lambda i: -i)


def sorted_pairs(x):
    pairs = [("b", x[0]), ("a", x[1]), ("c", x[2])]
    return sorted(pairs, key=lambda p: p[0])[0][1], max(pairs, key=lambda p: p[0])[1]


def comprehensions(x):
    table = {f"k{i}": r * i for i, r in enumerate(x)}
    kept = {k: v for k, v in table.items() if k != "k0"}
    return table, sum(kept.values()), len({i % 2 for i in range(4)})


def nested(x):
    return sum(sum(a * b for b in x) for a in x), [[p * 2 for p in q] for q in zip(x, x)]


def windows(x):
    total = paddle.zeros([3])
    for t in range(4):
        total = total + sum(x[j] * j for j in range(t, t + 3))
    return total


def with_start_and_default(x):
    return sum((r for r in x), x[0]), max((float(r[0]) for r in x if False), default=7.0)


def tuples_by_data(x):
    pairs = [(float(r[0]), k) for k, r in enumerate(x)]
    best, least = max(pairs), min(pairs, key=lambda p: (-p[0], p[1]))
    return x * best[0] * best[1], least, sorted(pairs), sorted(pairs, reverse=True)[:2]


def ties_between_tuples(x):
    signs = [(int(r[0] > 0), int(r[1] > 0), k) for k, r in enumerate(x[:4])]
    return max(signs), min(signs), sorted(signs)


def ordered_by_a_number(x):
    """The beams of a search: stable, also backwards."""
    beams = [(r, round_of(r)) for r in x[:4]]
    best = sorted(beams, key=lambda b: b[1], reverse=True)
    return [r for r, _ in best], [s for _, s in best], sorted(x[:3], key=lambda r: float(r[2]))


def round_of(r):
    return int(r.sum() > 0)


def python_values(x):
    """Numbers that follow from the index are as good as written out."""
    return x * max((i % 3, i) for i in range(5))[1], sorted((i % 2, i) for i in range(4))


def listed_numbers(x):
    parts = [i // 2 for i in range(5)]
    return x[parts[3]], x * {0: 1, 1: 2, 2: 3}[parts[4]], [x[k] for k in sorted(set(parts))]


CASES = [python_values, listed_numbers, sum_with_if, list_with_if, tuple_of_zip,
         largest_of_generator, largest_by_key, index_of_the_largest, any_and_all, ends_early,
         sorted_numbers, sorted_pairs, comprehensions, nested, windows,
         with_start_and_default, tuples_by_data, ties_between_tuples,
         ordered_by_a_number]  # fmt: skip


@pytest.mark.sampled
@pytest.mark.quick("listed_numbers", "tuple_of_zip", "sorted_pairs")
@pytest.mark.parametrize("f", CASES)
def test_values_of_eager(f):
    static = dy2st.to_static(f)
    for seed in range(4):
        check.same(static(rows(seed)), f(rows(seed)), what=f"seed {seed}")


def lazily(x):
    made = (r * 2 for r in x)
    first = next(made)
    return first, sum(made)


def test_a_generator_that_has_begun():
    static = dy2st.to_static(lazily)
    check.same(static(rows()), lazily(rows()))


def counts(x):
    positive = sum(1 for r in x if r.sum() > 0)
    return positive, sum((r for r in x if r[0] > 0), paddle.zeros([3]))


@pytest.mark.parametrize("f", [counts, largest_of_generator, any_and_all])
def test_any_length(f):
    static = dy2st.to_static(f, [InputSpec([None, 3], "float32")])
    for n in (6, 2, 1):
        check.same(static(rows()[:n]), f(rows()[:n]), what=f"T = {n}")


def test_a_sum_is_one_loop():
    def total(x):
        return sum(r * r for r in x)

    report = dy2st.to_static(total).report(rows())
    assert "unrolled" not in str(report)


# ---------------------------------------------------------------- map and reduce
def loop_over_map(x):
    h = paddle.zeros([3])
    for k, q in enumerate(map(lambda a, b: a * b, x, x + 1)):
        h = h * 0.5 + q * k
    return h


def changes_a_list(x):
    """The function is called once for each row."""
    seen = []

    def f(r):
        seen.append(r * 2)
        return r.sum()

    return max(map(f, x)), paddle.stack(seen), len(seen)


def stops_early(x):
    count = [0]

    def f(r):
        count[0] += 1
        return r.sum() > 0

    return any(map(f, x)), count[0]


def taken_apart(x):
    made = map(paddle.tanh, x)
    return next(made), paddle.stack(list(made)), list(made)


def reduced(x):
    doubled = [r * 2 for r in x]
    last = functools.reduce(paddle.maximum, map(paddle.tanh, x))
    return last, functools.reduce(lambda a, p: a * p[0] - p[1], enumerate(doubled), x[0])


MAPS = [loop_over_map, changes_a_list, stops_early, taken_apart, reduced]


@pytest.mark.parametrize("f", MAPS)
def test_map_and_reduce_are_one_loop(f):
    static = check.agree(f, check.data(9, 3))
    x = check.data(9, 3)
    assert "unrolled" not in str(static.report(x))
    sizes = [len(str(dy2st.program(static, check.data(n, 3))).splitlines()) for n in (20, 40)]
    assert sizes[0] == sizes[1]


def test_reduce_of_nothing():
    for f in (reduced, dy2st.to_static(reduced)):
        with pytest.raises(TypeError, match="empty iterable with no initial value"):
            f(check.data(0, 3))


def test_numbers_that_are_not_a_number_are_not_sorted():
    x = rows()
    x[0, 0] = float("nan")
    with pytest.raises(ValueError, match="NaN"):
        dy2st.to_static(sorted_numbers)(x)


def by_sums(x):
    return sorted([x[0], x[1]], key=lambda r: float(r.sum()))


def by_tensors(x):
    return paddle.stack(sorted(x, key=lambda r: r.sum()))


def test_an_order_by_tensors_is_refused():
    check.same(dy2st.to_static(by_sums)(rows()), by_sums(rows()))
    with pytest.raises(dy2st.SourceError, match="argsort"):
        dy2st.to_static(by_tensors)(rows())
