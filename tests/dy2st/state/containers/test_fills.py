"""Lists of fixed length whose elements a loop stores at its index."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests import check
from tests.dy2st.state.containers.test_list_reads import rolls

pytestmark = pytest.mark.sampled(every=12)


def forwards(x):
    ys, h = [None] * x.shape[0], paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = h * 0.5 + x[t]
        ys[t] = h
    return paddle.stack(ys), ys[-1], len(ys)


def backwards(x):
    n, h = x.shape[0], paddle.zeros([3], x.dtype)
    ys = [None] * n
    for t in reversed(range(n)):
        h = h * 0.5 + x[t]
        ys[t] = (h, h * 2)
    return paddle.stack([a + b for a, b in ys]), ys[0][1]


def reads_the_one_before(x):
    n = x.shape[0]
    hs = [paddle.ones([3], x.dtype)] + [None] * n
    for t in range(n):
        hs[t + 1] = paddle.tanh(hs[t] + x[t])
    return paddle.stack(hs), paddle.stack(hs[1:]) if n else hs[0]


def reads_the_one_behind(x):
    n = x.shape[0]
    beta = [None] * n
    beta[n - 1] = x[n - 1] * 2
    for t in range(n - 2, -1, -1):
        beta[t] = paddle.tanh(beta[t + 1] * 0.5 + x[t])
    return beta


def two_steps(x):
    n = x.shape[0]
    u = [None] * n
    u[0], u[1] = x[0], x[1]
    for t in range(2, n):
        u[t] = 2 * u[t - 1] - u[t - 2] + 0.1 * x[t] * u[t - 1]
    return paddle.stack(u)


def in_place(x):
    ys, h = [row * 2 for row in x], paddle.zeros([3], x.dtype)
    for t in range(len(ys)):
        ys[t] = ys[t] * 0.5 + h
        h = ys[t] * 0.1
    return paddle.stack(ys)


def numbers(x):
    scale, h = [0.5] * (x.shape[0] + 1), paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        scale[t + 1] = scale[t] * 0.9 + 0.1
        h = h * scale[t] + x[t]
    return h, scale[-1]


def read_back(x):
    n, h = x.shape[0], paddle.zeros([3], x.dtype)
    ys = [None] * n
    for t in range(n):
        h = h * 0.5 + x[t]
        ys[t] = h
        h = h + ys[t].mean()
    return ys[n - 1] + h


def in_front(x):
    returns, r = [x[0] * 3], paddle.zeros([3], x.dtype)
    for t in reversed(range(x.shape[0])):
        r = x[t] + 0.9 * r
        returns.insert(0, r)
    return paddle.stack(returns), returns[0], returns[-1], len(returns)


FILLS = [
    (in_front, 1),
    (forwards, 1), (backwards, 1), (reads_the_one_before, 0), (reads_the_one_behind, 1),
    (two_steps, 2), (in_place, 1), (numbers, 0), (read_back, 1),
]  # fmt: skip


@pytest.mark.sampled(every=10)
@pytest.mark.parametrize(("f", "least"), FILLS)
def test_a_list_that_is_stored_at_the_index_is_stacked(f, least):
    rolls(f, least=least)


def every_other(x):
    ys = [x[0]] * 8
    for t in range(4):
        ys[2 * t] = x[t]
    return ys


def in_a_branch(x):
    ys = [x[0]] * 4
    for t in range(4):
        if t % 2 == 0:
            ys[t] = x[t]
    return ys


def reads_the_ends(x):
    ys, h = [x[0], x[1], x[2], x[3]], paddle.zeros([3])
    for t in range(4):
        h = h + ys[0] + ys[-1]
        ys[t] = x[t] + h
    return ys, h


def stores_twice(x):
    ys = [x[0]] * 4
    for t in range(4):
        ys[t] = x[t]
        ys[t] = ys[t] * 2
    return ys


def beyond_the_end(x):
    ys = [x[0]] * 3
    for t in range(4):
        ys[t] = x[t]
    return ys


def negative(x):
    ys = [x[0]] * 4
    for t in range(4):
        ys[t - 2] = x[t] + ys[t - 1]
    return ys


def rotates(x):
    ys = [x[0], x[1], x[2]]
    for t in range(4):
        ys[t % 3] = ys[(t + 1) % 3] + x[t]
    return ys


def until(x):
    ys, h = [x[0]] * 4, x[0].abs()
    for t in range(4):
        ys[t] = h
        h = h + x[t].abs()
        if h.sum() > 2:
            break
    return h


def also_appended(x):
    ys = [x[0]] * 4
    for t in range(4):
        ys[t] = x[t]
        ys.append(x[t] * 2)
    return ys


def alias_of_the_list(x):
    ys = [x[0]] * 4
    zs, pair = ys, (ys, 1)
    for t in range(4):
        zs[t] = x[t] * 2
    return ys[3] + pair[0][1], zs


def grows_in_front_and_is_read(x):
    ys, n = [x[0]], 0
    for t in range(4):
        ys.insert(0, x[t] + ys[0])
        n += len(ys)
    return ys, n


def grows_in_front_twice(x):
    ys = []
    for t in range(4):
        ys.insert(0, x[t])
        ys.insert(0, x[t] * 2)
    return ys


def inserted_elsewhere(x):
    ys = [x[0], x[1]]
    for t in range(4):
        ys.insert(1, x[t])
    return ys


def reads_a_fixed_element(x):
    ys, h = [x[0], x[1], x[2]], x[0] * 0.5
    for t in range(1, 3):
        ys[t - 1] = h + x[0]
        h = h * 0.5 + ys[1] + ys[0]
    return h, ys


def sets_the_end_and_appends(x):
    ys, h = [x[0], x[1]], x[0]
    for t in range(4):
        ys[-1] = h * 2
        h = h * 0.5 + x[t]
        ys.append(h)
    return ys


def sets_the_end_and_appends_at_times(x):
    ys, h = [x[0], x[1]], x[0]
    for t in range(4):
        ys[-1] = h * 2
        h = h * 0.5 + x[t]
        if t % 2 == 0:
            ys.append(h)
    return ys


def equal_elements_around(x):
    ys = [x[0], None, None]
    for t in range(2):
        ys[t + 1] = x[t] * 2
    ys += [x[0], None]
    return ys[1], ys[2], ys[3], [q for q in ys if q is not None]


def an_element_in_front_and_behind(x):
    first = x[0] * 1
    ys = [first]
    for t in range(3):
        ys.append(x[t] * 2)
    ys.append(first)
    return ys[1], ys[3], ys[4]


def read_by_an_inner_loop(x):
    ys, h = [row * 1 for row in x], x[0] * 0.5
    for t in range(3):
        ys[t + 1] = h + x[0]
        for k in range(2):
            h = h * 0.9 + ys[k]
    return h, ys


def read_by_an_inner_loop_before(x):
    ys, h = [x[0], x[1], x[2], x[3]], x[0] * 0.5
    for t in range(3):
        for k in range(4):
            h = h * 0.9 + ys[k]
        ys[t] = h + x[0]
    return h, ys


OTHERS = [
    read_by_an_inner_loop, read_by_an_inner_loop_before,
    reads_a_fixed_element, sets_the_end_and_appends, sets_the_end_and_appends_at_times,
    equal_elements_around, an_element_in_front_and_behind,
    grows_in_front_and_is_read, grows_in_front_twice, inserted_elsewhere,
    every_other, in_a_branch, reads_the_ends, stores_twice, beyond_the_end, negative, rotates,
    until, also_appended, alias_of_the_list,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::dy2st.CopyWarning")
@pytest.mark.parametrize("f", OTHERS)
def test_other_stores_are_those_of_eager(f):
    static, x = dy2st.to_static(f), check.data(4, 3, dtype="float32", trained=False)
    for k in range(2):
        want, have = check.outcome(f, [x + k]), check.outcome(static, [x + k])
        if isinstance(want, Exception):
            assert type(have) is type(want) and str(have).startswith(str(want))
        else:
            check.same(have, want)


# ---------------------------------------------------------------- read before they are stored
def the_one_before_or_none(x):
    ys = [None] * 12
    for t in range(12):
        before = ys[t - 1]
        ys[t] = x[t] if before is None else before * 0.5 + x[t]
    return paddle.stack(ys)


def before_and_after_the_store(x):
    ys = [None] * 12
    for t in range(12):
        ys[t] = x[t] if ys[t] is None else ys[t] + 1
        ys[t] = ys[t] * 2 if ys[t] is not None else x[t]
    return paddle.stack(ys)


def not_stored_yet(x):
    ys = [None] * 13
    for t in range(12):
        ys[t] = x[t] if ys[t + 1] is None else ys[t + 1] + 1
    return paddle.stack(ys[:12])


def from_the_other_end(x):
    ys = [None] * 12
    for t in range(12):
        q = ys[11 - t]
        ys[t] = x[t] if q is None else q + x[t]
    return paddle.stack(ys)


def in_three_rounds(x):
    ys = [None] * 12
    for r in range(3):
        for t in range(12):
            ys[t] = x[t] if ys[t] is None else ys[t] * 0.5 + x[r]
    return paddle.stack(ys)


def as_a_truth(x):
    ys, s = [None] * 12, x[0]
    for t in range(12):
        s = s * 2 if ys[t] else s + t
        ys[t] = s
    return s, ys[3]


NONES = {
    the_one_before_or_none: 1, before_and_after_the_store: 1, not_stored_yet: 1,
    from_the_other_end: 0, in_three_rounds: 3, as_a_truth: 1,
}  # fmt: skip


@pytest.mark.parametrize("f", NONES)
def test_none_is_read_before_it_is_replaced(f):
    x = check.data(12, 3)
    static = check.agree(f, x)
    assert [q.kind for q in dy2st.report(static, x).loops].count("scan") == NONES[f]
