"""Lists that loops have filled, taken apart afterwards; objects of local classes in loops."""

from __future__ import annotations

import collections

import numpy as np
import paddle
import pytest

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=12)


def matrix(seed=0):
    return paddle.to_tensor(np.random.default_rng(seed).normal(size=[8, 3]).astype("float32"))


def until_large(x):
    h, ys = paddle.zeros([3]), []
    for t in range(8):
        h = h + x[t]
        ys.append(h)
        if h.sum() > 2.0:
            break
    return ys


def elements(x):
    ys = until_large(x)
    return ys[0], ys[-1], len(ys)


def slices(x):
    ys = until_large(x)
    return len(ys[1:3]), len(ys[-2:]), len(ys[:-1]), ys[:1][0], ys[-1:][0]


def stacked_slice(x):
    ys = until_large(x)
    return paddle.stack(ys[:2]), sum(ys[1:], paddle.zeros([3]))


def mean_of_losses(x):
    losses = [q.mean() for q in until_large(x)]
    return sum(losses) / len(losses), losses[0]


def reads_what_it_grows(x):
    ys = [x[0]]
    while ys[-1].sum() < 10 and len(ys) < 6:
        ys.append(ys[-1].abs() + 1)
    return paddle.stack(ys), len(ys), ys[1:][0], ys[1]


def changed_afterwards(x):
    ys = []
    for i in range(4):
        ys.append(x[i] * 2)
    ys.insert(1, x[0])
    del ys[0]
    ys[0] = ys[0] + 1
    a, b, *rest = ys
    return paddle.stack(ys), a, b, len(rest)


def sorted_afterwards(x):
    pairs = []
    for i in range(4):
        pairs.append((i % 2, x[i]))
    pairs.sort(key=lambda p: p[0])
    return [q for _, q in pairs]


def groups_read_by_two_loops(x):
    ys, h = [], x[0]
    for t in range(4):
        ys.append(h * 0.5)
        ys.append(h + x[t])
    return [q for q in ys if q is not None], [q * 2 for q in ys]


def keyed_by_numbers_of_the_index(x):
    groups, counts = collections.defaultdict(list), collections.Counter()
    for i in range(4):
        groups[i % 2].append(x[i])
        counts[i // 3] += 1
    return {k: paddle.stack(v) for k, v in groups.items()}, dict(counts)


def local_accumulator(x):
    class Accumulator:
        scale = 2

        def __init__(self):
            self.total = 0

        def add(self, row):
            if row.sum() > 0:
                self.total = self.total + row * self.scale
            else:
                self.total = self.total - row
            return self

    found = Accumulator()
    for row in x:
        found.add(row)
    return found.total, found.add(x[0]).total


@pytest.mark.sampled
@pytest.mark.quick("elements", "changed_afterwards", "keyed_by_numbers_of_the_index")
@pytest.mark.parametrize(
    "f",
    [elements, slices, stacked_slice, mean_of_losses, reads_what_it_grows, changed_afterwards,
     groups_read_by_two_loops, sorted_afterwards, keyed_by_numbers_of_the_index, local_accumulator],
)  # fmt: skip
def test_values_of_eager(f):
    static = dy2st.to_static(f)
    for seed in range(5):
        check.same(static(matrix(seed)), f(matrix(seed)), 1e-5, 1e-5, f"seed {seed}")


def test_elements_of_groups_have_gradients():
    def f(x):
        ys, h = [], x[0] * 0.5
        for t in range(3):
            ys.append(h * x[t])
            ys.append(h * 0.5)
        return [q for q in ys]  # noqa: C416

    check.agree(f, check.data(3, 3))


def beyond_the_end(x):
    return until_large(x)[7]


def test_an_index_beyond_the_end():
    static = dy2st.to_static(beyond_the_end)
    for seed in range(5):
        want, have = (check.outcome(f, [matrix(seed)]) for f in (beyond_the_end, static))
        assert type(have) is type(want)


def by_data(x):
    return {0: x, 1: x * 2}[int(x.sum() > 0)]


def test_a_key_that_data_decides_is_refused():
    with pytest.raises(dy2st.SourceError, match="key of a dict"):
        dy2st.to_static(by_data)(matrix())


# ---------------------------------------------------------------- lists whose length data decides
def doubled(x, limit, start=()):
    ys = list(start)
    while x.sum() < limit:
        x = x * 2
        ys.append(x)
    return ys


def last_ones(x, limit):
    ys = doubled(x, limit)
    return ys[-1] + 0, ys[-2] + 0, ys[0] + 0


def last_of_one_more(x, limit):
    ys = doubled(x, limit, [x])
    return ys[-1] + ys[-2] + ys[1]


def between_others(x, limit):
    ys = doubled(x, limit, [x])
    ys.append(x * 0)
    return ys[-2] + 0, ys[2] + 0, ys[int(x.max())] + 0


def last_number(x, limit):
    ys = [float(q.sum()) for q in doubled(x, limit)]
    last = ys.pop()
    return last, ys[-1], len(ys)


def largest(x, limit):
    ys = [float(q.sum()) for q in doubled(x, limit)]
    return max(ys), min(ys), max(doubled(x, limit), key=lambda q: float(-q.sum())) + 0


@pytest.mark.parametrize(
    "f", [last_ones, last_of_one_more, between_others, last_number, largest],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_elements_of_a_list_whose_length_data_decides(f):
    static = dy2st.to_static(f)
    for limit in (100.0, 30.0, 1000.0, 5.0, 0.0):
        args = [paddle.ones([4]), paddle.to_tensor(limit)]
        want, have = (check.observe(g, args) for g in (f, static))
        assert type(have.error) is type(want.error), limit
        if want.error is None:
            check.equal(have, want, str(limit))
        else:
            kinds = "out of range", "empty sequence", "iterable argument is empty", "empty list"
            assert any(q in str(have.error) for q in kinds)


def most_or_zero(x):
    return max([float(q.sum()) for q in doubled(x, 5.0)], default=0.0)


def test_a_default_for_a_list_whose_length_data_decides_is_refused():
    with pytest.raises(dy2st.SourceError, match=r"max\(\) with a default"):
        dy2st.to_static(most_or_zero)(paddle.ones([4]))


def test_a_list_of_a_filled_list_is_not_taken_apart():
    def returns(x):
        total, out = x[0] * 0, []
        for t in range(x.shape[0] - 1, -1, -1):
            total = 0.9 * total + x[t]
            out.append(total)
        forwards, kept = list(reversed(out)), list(out)
        kept.append(x[0])
        return paddle.stack(forwards), paddle.stack(kept), len(out)

    lines = []
    for n in (3, 30):
        static = check.agree(returns, check.data(n, 2))
        lines.append(len(str(dy2st.program(static, check.data(n, 2))).splitlines()))
    assert lines[0] == lines[1]
