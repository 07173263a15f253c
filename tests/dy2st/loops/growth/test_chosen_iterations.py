"""Lists to which only some iterations append, where the index alone says which."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests import check
from tests.dy2st.state.containers.test_list_reads import rolls

pytestmark = pytest.mark.sampled(every=48)


def every_third(x):
    ys, h = [], paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = h * 0.5 + x[t]
        if t % 3 == 0:
            ys.append(h)
    return ys[0], ys[-1], paddle.stack(ys), len(ys)


def in_a_list(x):
    keep, ys, h = [1, 3, 4, 5, 11], [], paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = h * 0.5 + x[t]
        if t in keep:
            ys.append((h, t * 0.5))
    return [y * s for y, s in ys], len(ys)


def both_branches(x):
    even, odd, h = [x[0] * 2], [], paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = h * 0.5 + x[t]
        if t % 2 == 0:
            even.append(h)
        else:
            odd.append(h * 2)
    return sum(even), sum(odd) + h


def by_a_table(x):
    flags, ys, h = [False, True, True, False, True] * 20, [], paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = h * 0.5 + x[t]
        if flags[t] and not t == 7 or t == 0:
            ys.append(h)
    return paddle.stack(ys).sum(0)


def by_nested_conditions(x):
    ys, h = [], paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = h * 0.5 + x[t]
        if t % 2 == 0:
            if t > 3:
                ys.append(h)
            h = h + 1
    return sum(ys) + h


def never(x):
    ys, h = [], paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = h * 0.5 + x[t]
        if t % 3 == 5:
            ys.append(h)
    return h, len(ys)


CHOSEN = [(every_third, 1), (in_a_list, 0), (both_branches, 1), (by_a_table, 1),
          (by_nested_conditions, 0), (never, 0)]  # fmt: skip


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize(("f", "least"), CHOSEN)
def test_the_iterations_that_append_are_known(f, least):
    rolls(f, least=least)


# ---------------------------------------------------------------- also with a break on data
def until_large(x):
    ys, h = [], paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = h + x[t]
        if t % 2 == 0:
            ys.append(h)
        if h.sum() > 4:
            break
    return paddle.stack(ys) if ys else h


def behind_the_break(x):
    ys, h = [], paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = h + x[t]
        if h.sum() > 9:
            break
        if t >= 3 and t % 3 == 0:
            ys.append((h, h * 2))
        if h.max() > 4:
            break
    return sum([a * b for a, b in ys], h)


def dicts(x):
    ys, h = [], paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = h + x[t]
        if t % 4 == 0:
            ys.append({"h": h, "s": h.sum(), "t": t})
        if h.sum() > 9:
            break
    return (ys[0]["h"], sum([q["s"] * q["t"] for q in ys])) if ys else h


@pytest.mark.slow
@pytest.mark.parametrize("f", [until_large, behind_the_break, dicts], ids=lambda f: f.__name__)
def test_a_loop_that_data_ends(f):
    rolls(f)


def dicts_of_some_iterations(x):
    ys, h = [], paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = paddle.tanh(h + x[t])
        if t % 2 == 0:
            ys.append({"h": h, "t": t})
    return ys


@pytest.mark.slow
def test_dicts_of_some_iterations():
    rolls(dicts_of_some_iterations)


def changed_by_another_name(x):
    ys, s = [], {"h": paddle.zeros([3], x.dtype)}
    for t in range(x.shape[0]):
        if t % 2 == 0:
            s = {"h": s["h"] + x[t]}
            ys.append(s)
        s["h"] = s["h"] * 0.5
    return [q["h"] for q in ys], s["h"]


def twice_in_a_list(x):
    ys, zs = [], []
    for t in range(x.shape[0]):
        if t % 2 == 0:
            s = {"h": x[t] * 2}
            ys.append(s)
            zs.append(s)
    for q in zs[:1]:
        q["h"] = q["h"] + 1
    return [q["h"] for q in ys]


@pytest.mark.parametrize("f", [changed_by_another_name, twice_in_a_list])
def test_a_dict_of_some_iterations_stays_what_it_is(f):
    static = dy2st.to_static(f)
    for n in (1, 2, 7):
        check.agree(static, check.data(n, 3, seed=n))


def reads_the_length(x):
    ys, h = [x[0]], paddle.zeros([3])
    for t in range(x.shape[0]):
        if t % 2 == 0:
            ys.append(x[t])
        h = h * len(ys) + ys[-1]
    return h


def reads_the_length_alone(x):
    ys, h = [x[0], x[1]], paddle.zeros([3])
    for t in range(x.shape[0]):
        if t < 3:
            ys.append(h)
        h = h + len(ys) * 0.1
    return h, ys


def strings(x):
    names, h = [], paddle.zeros([3])
    for t in range(x.shape[0]):
        h = h + x[t]
        if t % 2 == 0:
            names.append("even")
    return h, len(names)


@pytest.mark.parametrize("f", [reads_the_length, reads_the_length_alone, strings])
def test_other_lists_are_those_of_eager(f):
    static, x = dy2st.to_static(f), check.data(6, 3, dtype="float32", trained=False)
    check.same(static(x), f(x))


def put_on_both_ends(x):
    """Two iterations run apart before the comparison is seen to settle: it does no more then."""
    ys = [x[0]]
    for t in range(x.shape[0]):
        ys.append(x[t] * 2)
        if t > 1:
            ys.append(x[t])
        ys.insert(0, x[0] * 3)
    return ys


@pytest.mark.parametrize("n", [3, 4, 7])
def test_a_loop_is_split_where_the_iterations_that_are_left_turn(n):
    check.agree(put_on_both_ends, check.data(n, 2))
