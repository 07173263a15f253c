"""Lists, dicts and objects are values with an identity, wherever a function reaches them.

Each program equals eager for three calls in its result, in what it leaves of its arguments, and in
which containers and tensors are one object. Programs whose containers data chooses are refused, and
leave everything as it was.
"""

from __future__ import annotations

import collections

import numpy as np
import paddle
import pytest

import dy2st
from tests import check
from tests.parity.containers import CASES, arguments, branches, loops, nested, v
from tests.portrait import difference, portrait

MODULES = (arguments, branches, loops, nested)


def rows(seed):
    return paddle.to_tensor(np.random.default_rng(seed).normal(size=[4, 2]).astype("float32"))


def calls(f, makers, keep):
    """Portraits of three calls; with `keep` all calls get the same containers."""
    args, out = [m() for m in makers], []
    for k in range(3):
        args = args if keep else [m() for m in makers]
        out.append(portrait([f(rows(k), *args), args]))
    return tuple(out)


@pytest.mark.sampled
@pytest.mark.quick(
    "for_states",
    "arg_list_mixed",
    "br_obj",
    "brk_fresh",
    "fresh_local",
    "in_list_rebind",
    "del_keys",
    "list_alias_write",
)
@pytest.mark.parametrize("name", [n for n, (_, kind, _) in CASES.items() if kind != "refused"])
def test_containers_are_those_of_eager(name):
    f, kind, makers = CASES[name]
    static = dy2st.to_static(f)
    for keep in (False, True) if makers else (False,):
        want, have = calls(f, makers, keep), calls(static, makers, keep)
        assert not difference(have, want), (name, keep)
    report = static.report(rows(0), *(m() for m in makers))
    check.few_traces(report)
    loops = report.loops
    assert (loops[0].kind if loops else "") == kind


@pytest.mark.parametrize("name", [n for n, (_, kind, _) in CASES.items() if kind == "refused"])
def test_what_data_chooses_is_refused(name):
    f, _, makers = CASES[name]
    args = [m() for m in makers]
    before = portrait(args)
    with pytest.raises(dy2st.SourceError, match="data|branch") as error:
        dy2st.to_static(f)(rows(0), *args)
    assert not difference(portrait(args), before)
    assert error.value.loc.file in [m.__file__ for m in MODULES]


class Keeps(paddle.nn.Layer):
    """Writes its own state and one that it is given, which may be the same."""

    def __init__(self):
        super().__init__()
        self.s = {"h": paddle.full([2], 1.0), "n": [1]}

    def forward(self, x, d):
        d["h"] = d["h"] + x
        self.s["h"] = self.s["h"] * 2
        self.s["n"][0] += 1
        return d["h"] + self.s["n"][0]


class Exchanges(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.s = [paddle.full([2], 1.0)]

    def forward(self, x, d):
        d, self.s = self.s, d
        d.append(x)
        return d[0] + x


@pytest.mark.sampled
@pytest.mark.quick("soso-Exchanges", "osos-Exchanges")
@pytest.mark.parametrize("make", [Keeps, Exchanges])
@pytest.mark.parametrize("order", ["soso", "osos"])
def test_an_argument_that_is_also_an_attribute(make, order):
    """`s`: the caller passes the Layer's own state; `o`: another one."""
    eager, static = make(), dy2st.to_static(make())
    others = [{"h": v(5)} if make is Keeps else [v(5)] for _ in range(2)]
    for k, letter in enumerate(order):
        drawn = []
        for layer, other in zip((static, eager), others):
            result = layer(rows(k)[0], layer.s if letter == "s" else other)
            drawn.append(portrait([result, layer.s, other]))
        assert not difference(*drawn), k


def kept_with_constants(x, given):
    ys = []
    for t in range(4):
        ys.append(given[0])
        given = list(given)
        if x[t].sum() > 1.5:
            break
    return ys, given[0]


def kept_in_turns(x, given):
    a, b, ys = given[0][0], given[0][2], []
    for _ in range(2):
        ys.append((a, 1))
        a = b
    return ys, a, b


@pytest.mark.parametrize("f", [kept_with_constants, kept_in_turns])
def test_collected_tensors_that_are_copies_are_named(f):
    given = [(v(1), 3, v(2))]
    with pytest.warns(dy2st.CopyWarning, match="test_containers.py"):
        have = dy2st.to_static(f)(rows(0), given)
    want = f(rows(0), given)
    assert not difference(portrait(have, tensors=False), portrait(want, tensors=False))


class Item:
    def __init__(self, h):
        self.h = h


def test_an_object_in_a_message_has_no_address():
    given = Item(v(1))

    def f(x, item):
        if x.sum() > 0:
            item = 3
        return item.h

    with pytest.raises(dy2st.SourceError, match="an object of class Item where it does not"):
        dy2st.to_static(f)(rows(0), given)


class ReadInLoop(paddle.nn.Layer):
    """Appends to its list before a loop, which reads it first."""

    def __init__(self, make):
        super().__init__()
        self.s = make([v(1), v(2)])

    def forward(self, x):
        self.s.append(x[0])
        for _ in range(3):
            self.s = self.s.copy()
        return self.s[0], self.s[-1], len(self.s)


@pytest.mark.parametrize("maxlen", [2, 5])
def test_a_deque_that_is_first_read_in_a_loop(maxlen):
    layers = [ReadInLoop(lambda q: collections.deque(q, maxlen)) for _ in range(2)]
    static = dy2st.to_static(layers[0])
    for k in range(3):
        have, want = static(rows(k)), layers[1](rows(k))
        assert not difference(portrait([have, layers[0].s]), portrait([want, layers[1].s])), k


def test_a_list_that_is_first_read_in_a_loop():
    layers = [ReadInLoop(list), ReadInLoop(list)]
    static = dy2st.to_static(layers[0])
    for k in range(3):
        have, want = static(rows(k)), layers[1](rows(k))
        assert not difference(portrait([have, layers[0].s]), portrait([want, layers[1].s])), k
