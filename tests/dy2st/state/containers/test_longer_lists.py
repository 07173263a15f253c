"""Lists and tuples that every iteration of a loop replaces by longer ones."""

from __future__ import annotations

import copy
import itertools
import warnings

import paddle
import pytest

import dy2st
from tests import check
from tests.dy2st.state.containers.test_list_reads import rolls

pytestmark = pytest.mark.sampled(every=48)


def a_sum(x):
    ys, h = [], x.sum(0)
    for row in x:
        h = paddle.tanh(h * 0.5 + row)
        ys = ys + [h]
    return ys, h


def a_display(x):
    ys, h = [], x.sum(0)
    for row in x:
        h = paddle.tanh(h * 0.5 + row)
        ys = [*ys, h, h * 2]
    return ys


def a_tuple(x):
    states, h = (), x.sum(0)
    for row in x:
        states = states + (h,)
        h = paddle.tanh(h * 0.5 + row)
    return h, (*states, h)


def a_tuple_in_place(x):
    pairs, h = (), x.sum(0)
    for row in x:
        h = paddle.tanh(h * 0.5 + row)
        pairs += ((h, h * 2),)
    return pairs, isinstance(pairs, tuple), type(pairs) is tuple, len(pairs)


def in_front(x):
    ys, zs, h = [], (), x.sum(0)
    for row in x:
        h = paddle.tanh(h * 0.5 + row)
        ys, zs = [h] + ys, (h * 2, *zs)
    return ys, zs


def in_a_dict(x):
    d = {"ys": [], "h": x.sum(0)}
    for row in x:
        h = paddle.tanh(d["h"] * 0.5 + row)
        d = {**d, "ys": d["ys"] + [h], "h": h}
    return d


def one_for_each_key(x):
    out, h = {"h": [], "s": []}, x.sum(0)
    for row in x:
        h = paddle.tanh(h * 0.5 + row)
        step = {"h": h, "s": h.sum()}
        out = {k: out[k] + [step[k]] for k in out}
    return out


def a_copy_that_is_appended_to(x):
    ys, zs, h = [], [], x.sum(0)
    for row in x:
        h = paddle.tanh(h * 0.5 + row)
        new, other = list(ys), zs.copy()
        new.append(h)
        other.append(h * 2)
        ys, zs = new, other
    return ys, zs


def read_before(x):
    ys, acc = (x.sum(0), x.sum(0) * 2), x.sum(0)
    for t in range(x.shape[0]):
        acc = acc * 0.5 + ys[t] + ys[-1] + ys[0] * len(ys) + paddle.stack(ys).mean(0)
        ys = (*ys, paddle.tanh(acc + x[t]))
    return acc, ys


def read_after(x):
    ys, acc = [x.sum(0), x.sum(0) * 2], x.sum(0)
    for t in range(x.shape[0]):
        old = ys
        ys = ys + [paddle.tanh(acc + x[t])]
        acc = acc * 0.5 + ys[t] - ys[-2] + old[-1] * len(ys) + paddle.stack(ys).mean(0)
        for y in ys[-2:]:
            acc = acc * 0.5 + y
    return acc, ys


def filled_by_an_inner_loop(x):
    ys, rows, h = [], (), x.sum(0)
    for row in x:
        inner = ()
        for k in range(9):
            h = paddle.tanh(h * 0.5 + row * k)
            ys, inner = ys + [h], inner + (h,)
        rows += (paddle.stack(inner),)
    return ys, rows


def in_two_loops(x):
    ys, h = (), x.sum(0)
    for row in x:
        h = paddle.tanh(h * 0.5 + row)
        ys = ys + (h,)
    for row in x:
        h = paddle.tanh(h * 0.5 - row)
        ys = ys + (h,)
    return ys


def in_some_iterations(x):
    ys, zs, h = [], (), x.sum(0)
    for t in range(x.shape[0]):
        h = paddle.tanh(h * 0.5 + x[t])
        if t % 2 == 0:
            ys = ys + [h]
        if h.sum() > 0:
            zs = zs + (h,)
        else:
            zs = zs + (-h,)
    return ys, zs


def until_data_ends_it(x):
    ys, zs, h = (), [], x.sum(0)
    for row in x:
        h = paddle.tanh(h * 0.5 + row)
        ys = ys + (h,)
        if h.sum() > 1.5:
            break
        zs = zs + [h]
    return ys, zs


def under_two_names(x):
    ys, h = [x.sum(0)], x.sum(0)
    old = ys
    for row in x:
        h = paddle.tanh(h * 0.5 + row)
        zs = ys = ys + [h]
    return old, ys, old is ys, x.shape[0] == 0 or zs is ys


def by_a_function(x):
    def cell(row, state):
        h, seen = state
        h = paddle.tanh(h * 0.5 + row)
        return h, (h, seen + (h,))

    state, outs = (x.sum(0), ()), []
    for row in x:
        out, state = cell(row, state)
        outs += [out]
    return outs, state


def window_of_a_sum(x):
    win, outs = [], []
    for row in x:
        win = win[-2:] + [row * 2]
        outs = outs + [sum(win) / len(win)]
    return outs


LOOPS = (
    a_sum, a_display, a_tuple, a_tuple_in_place, in_front, in_a_dict, one_for_each_key,
    a_copy_that_is_appended_to, read_before, read_after, filled_by_an_inner_loop, in_two_loops,
    in_some_iterations, until_data_ends_it, under_two_names, by_a_function, window_of_a_sum,
)  # fmt: skip


@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_it_is_one_loop(f):
    rolls(f, lengths=(0, 1, 5))


# ---------------------------------------------------------------- other loops
def changed_under_its_first_name(x):
    ys, h = [x.sum(0), x.sum(0)], x.sum(0)
    zs = ys
    for row in x:
        ys[0] = h * 0.5
        zs = zs + [h]
        h = h * 0.5 + row
    return ys, zs


def read_under_two_names(x):
    ys, h = [x.sum(0)], x.sum(0)
    zs = ys
    for row in x:
        h = h * 0.5 + row + zs[-1]
        zs = ys = ys + [h]
    return ys, zs


def kept_history(x):
    ys, kept, h = [], [], x.sum(0)
    for row in x:
        h = h * 0.5 + row
        ys = ys + [h]
        kept.append(ys)
    return kept


def list_of_the_iteration_before(x):
    ys, h = [], x.sum(0)
    before = ys
    for row in x:
        h = h * 0.5 + row
        before = ys
        ys = ys + [h]
    return before, ys


def changed_in_place_too(x):
    ys, h = [x.sum(0)], x.sum(0)
    old = ys
    for row in x:
        h = h * 0.5 + row
        ys.append(h * 2)
        ys = ys + [h]
    return old, ys


def of_another_list(x):
    ys, zs, h = [], [], x.sum(0)
    for row in x:
        h = h * 0.5 + row
        ys, zs = zs + [h], ys
    return ys, zs


@pytest.mark.parametrize(
    "f",
    [
        kept_history,
        list_of_the_iteration_before,
        changed_in_place_too,
        of_another_list,
        changed_under_its_first_name,
        read_under_two_names,
    ],  # fmt: skip
)
def test_unrolled_it_is_that_of_eager(f):
    static = dy2st.to_static(f)
    for n in (0, 1, 4):
        x = check.data(n, 3, seed=n)
        check.agree(static, x)
        assert check.identities(static(x)) == check.identities(f(x))


def test_a_tuple_has_the_methods_of_a_tuple():
    def f(x):
        ys = ()
        for row in x:
            ys = ys + (row * 2,)
        try:
            ys.append(x)  # type: ignore[attr-defined]
        except AttributeError as error:
            text = str(error)
        try:
            ys = ys + [x]  # type: ignore[operator]
        except TypeError as error:
            text += str(error)
        return text, ys[1:], list(ys), tuple(ys), ys == (), bool(ys)

    static, x = dy2st.to_static(f), check.data(4, 3)
    check.same(static(x), f(x))


def test_the_number_of_iterations_may_be_data(tmp_path):
    def f(x, n):
        ys, h = (), x.sum(0)
        for t in range(int(n)):
            h = h * 0.5 + x[t]
            ys = ys + (h,)
        return ys

    static = dy2st.to_static(f)
    x = check.data(5, 3)
    for n in (3, 0, 5):
        check.same(static(x, paddle.to_tensor(n)), f(x, paddle.to_tensor(n)))


def test_a_tuple_is_saved(tmp_path):
    spec = [paddle.static.InputSpec([None, 3], "float64", "x")]
    path = str(tmp_path / "tuple.dy2st")
    static = dy2st.to_static(a_tuple)
    dy2st.save(static, path, input_spec=spec)
    for n in (1, 6):
        x = check.data(n, 3, seed=n)
        have, want = dy2st.load(path)(x.numpy()), a_tuple(x)
        assert type(have[1]) is tuple
        check.close(have[1][-1], want[1][-1].numpy(), 1e-9, "the last state")
        assert len(have[1]) == n + 1


def test_a_list_of_a_named_length_is_spread():
    def spread(x):
        zs = []
        for t in range(x.shape[1]):
            zs.append(x[:, t])
        return paddle.stack([x[:, 0], *zs])

    static = dy2st.to_static(spread, [paddle.static.InputSpec([None, None, 4], "float64", "x")])
    for n in (3, 1, 12):
        x = paddle.rand([2, n, 4], "float64")
        check.same(static(x), spread(x))


def backwards(ys):
    return list(reversed(ys)), tuple(reversed(ys)), [*reversed(ys)], ys[::-1], list(ys[::-1])


def duplicates(ys):
    return copy.copy(ys), copy.deepcopy(ys), list(ys).copy(), copy.copy(list(ys)), tuple(list(ys))


def chained(ys):
    return list(itertools.chain(ys, ys)), [*ys, *ys], (*ys, *ys), ys * 2, ys[1:], list(ys)[1:]


@pytest.mark.parametrize("use", [backwards, duplicates, chained])
def test_what_is_made_of_a_filled_tuple_has_the_type_of_eager(use):
    """`list(reversed(ys))` was a tuple, and `copy.copy(ys)` a list."""

    def f(x):
        ys = ()
        for row in x:
            ys = ys + (row * 2,)
        return use(ys)

    x = check.data(12, 3).detach()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dy2st.CopyWarning)
        check.same(dy2st.to_static(f)(x), f(x))
