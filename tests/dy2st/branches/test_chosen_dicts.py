"""Dicts and objects that a branch may have replaced, and that are changed behind it."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import paddle
import pytest
from paddle import nn

import dy2st
from tests import check
from tests.dy2st.branches import random_names
from tests.dy2st.state.containers.test_list_reads import rolls

MESSAGE = "data decides here which list, dict or object"


@dataclasses.dataclass
class Record:
    h: Any


KINDS = {
    "dict": dict,
    "dataclass": Record,
    "object": types.SimpleNamespace,
}


# ---------------------------------------------------------------- changed by the variable's name
def set_behind(x, make):
    d = make(h=x.sum(0))
    if x.sum() > 0:
        d = make(h=read(d) * 2)
    store(d, read(d) + x[0])
    return read(d)


def set_by_iterations(x, make):
    d, ys = make(h=paddle.zeros([3], x.dtype)), []
    for t in range(x.shape[0]):
        if t % 3 == 0:
            d = make(h=read(d).detach())
        store(d, paddle.tanh(read(d) * 0.5 + x[t]))
        ys.append(read(d))
    return ys


def set_where_data_says(x, make):
    d = make(h=paddle.zeros([3], x.dtype))
    for t in range(x.shape[0]):
        if x[t].sum() > 1:
            d = make(h=read(d) * 0.5)
        store(d, read(d) + x[t])
    return read(d)


def read(d):
    return d["h"] if isinstance(d, dict) else d.h


def store(d, h):
    if isinstance(d, dict):
        d["h"] = h
    else:
        d.h = h


@pytest.mark.parametrize("kind", ["dict", "object"])
@pytest.mark.parametrize("f", [set_behind, set_by_iterations, set_where_data_says])
def test_the_container_of_the_variable_is_changed(f, kind):
    make = KINDS[kind]
    if f is set_behind:
        for seed in range(3):
            check.agree(lambda x: f(x, make), check.data(2, 3, seed=seed))
    else:
        rolls(lambda x: f(x, make))


# ---------------------------------------------------------------- two names
def by_the_old_name(x, make):
    d = make(h=x[0])
    old = d
    if x.sum() > 0:
        d = make(h=x[1])
    store(old, x[0] * 3)
    return read(d)


def by_the_variable(x, make):
    d = make(h=x[0])
    old = d
    if x.sum() > 0:
        d = make(h=x[1])
    store(d, x[0] * 3)
    return read(old)


def in_a_branch(x, make):
    d = make(h=x[0])
    old = d
    if x.sum() > 0:
        if x[1].sum() > 0:
            d = make(h=x[1])
        store(old, x[0] * 3)
    return read(d)


def in_a_loop(x, make):
    d, ys = make(h=x[0]), []
    old = d
    for t in range(x.shape[0]):
        if x[t].sum() > 2:
            d = make(h=read(d) * 2)
        ys.append(read(d))
        store(old, read(old) + x[t])
    return ys


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("f", [by_the_old_name, by_the_variable, in_a_branch, in_a_loop])
def test_what_may_have_been_changed_is_not_read(f, kind):
    with pytest.raises(dy2st.SourceError, match=MESSAGE):
        dy2st.to_static(lambda x: f(x, KINDS[kind]))(check.data(4, 3))


CHANGES = {
    "update": lambda d, y: d.update(h=y),
    "or": lambda d, y: d.__ior__({"h": y}),
    "pop": lambda d, y: d.pop("h"),
    "setdefault": lambda d, y: d.setdefault("q", y),
    "delete": lambda d, y: d.__delitem__("h"),
}
READS = {
    "get": lambda d: d.get("h"),
    "values": lambda d: sum(d.values()),
    "items": lambda d: [v for _, v in d.items()],
    "display": lambda d: {**d}["h"],
    "copy": lambda d: dict(d)["h"],
    "length": lambda d: paddle.zeros([2]) + len(d),
    "contains": lambda d: paddle.zeros([2]) + ("q" in d),
    "whole": lambda d: d,
}


@pytest.mark.parametrize("how", [*CHANGES, *READS])
def test_any_change_and_any_read_counts(how):
    change, get = CHANGES.get(how, CHANGES["update"]), READS.get(how, READS["values"])

    def f(x):
        d = {"h": x[0], "g": x[1]}
        old = d
        if x.sum() > 0:
            d = {"h": x[1], "g": x[0]}
        change(old, x[0] * 3)
        return get(d)

    with pytest.raises(dy2st.SourceError, match=MESSAGE):
        dy2st.to_static(f)(check.data(2, 3))


class Stateful(nn.Layer):
    def forward(self, x):
        self.state = {"h": x[0] * 1}
        old = [self.state]
        if x.sum() > 0:
            self.state = {"h": x[1] * 1}
        old[0]["h"] = x[0] * 3
        return self.state["h"] + 0


def test_attributes_and_elements_of_lists_are_names():
    with pytest.raises(dy2st.SourceError, match=MESSAGE):
        dy2st.to_static(Stateful())(check.data(2, 3))


# ---------------------------------------------------------------- a name that one branch gives
def kept_in_a_list(x, make):
    ys, d = [], make(h=x[0])
    for t in range(x.shape[0]):
        if t % 2 == 0:
            d = make(h=read(d) + x[t])
            ys.append(d)
        store(d, read(d) * 0.5)
    return [read(q) for q in ys], read(d)


def kept_in_a_list_of_lists(x):
    ys, d = [], [x[0]]
    for t in range(x.shape[0]):
        if t % 2 == 0:
            d = [d[0] + x[t]]
            ys.append(d)
        d[0] = d[0] * 0.5
    return [q[0] for q in ys], d[0]


def test_a_container_that_is_kept_is_changed_there():
    check.agree(lambda x: kept_in_a_list(x, types.SimpleNamespace), check.data(5, 3))
    check.agree(kept_in_a_list_of_lists, check.data(5, 3))


def kept_in_a_variable(x):
    d = [x[0]]
    if x.sum() > 0:
        d = [x[1]]
        new = d
    d[0] = d[0] * 0.5
    return new[0] + 0 if x.sum() > 0 else x[0]


def test_a_list_that_one_branch_keeps_in_a_variable_is_not_changed():
    with pytest.raises(dy2st.SourceError, match=MESSAGE):
        dy2st.to_static(kept_in_a_variable)(check.data(2, 3))


# ---------------------------------------------------------------- what may be read
def read_before_the_change(x):
    d, e = {"h": x[0]}, {"h": x[1]}
    source = d if x.sum() > 0 else e
    y = source["h"]
    d["h"] = y * 2
    return y + d["h"] + e["h"]


def changed_in_the_other_branch(x):
    d = {"h": x[0]}
    old = d
    if x.sum() > 0:
        d = {"h": x[1]}
    else:
        old["h"] = x[1] * 3
    return d["h"] + 0


@pytest.mark.parametrize("f", [read_before_the_change, changed_in_the_other_branch])
def test_a_change_that_nobody_reads_by_the_other_name(f):
    for seed in range(3):
        check.agree(f, check.data(2, 3, seed=seed))


# ---------------------------------------------------------------- random programs
def a_choice_among_choices(x):
    a, b = {"h": x[0]}, {"h": x[1]}
    for t in range(3):
        b["h"] = x[t] * 2
        if t % 2 == 0:
            b = {"h": b["h"] * 0.9}
        else:
            a = a if x[t].sum() > 1 else b
            if t % 2 == 0:
                a = {"h": b["h"] * 0.9}
    return a["h"] + 0, b["h"] + 0


def an_element_of_a_choice(x):
    y, a, c = x[0] * 1, {"g": {"q": x[0]}}, {"g": {"q": x[2]}}
    for t in range(x.shape[0]):
        if y.sum() < 0:
            a = c
            if t % 3 == 1:
                a = {"g": {"q": c["g"]["q"] + 0.1}}
        y = y * 0.5 + x[t]
        c["g"]["q"] = x[t] * 2
    return y, a["g"]["q"] + 0


def one_of_two_behind_a_loop(x):
    b, c = {"h": x[1]}, {"h": x[2]}
    for t in range(3):
        a = {"h": b["h"] * 0.9}
        c = c if x[t].sum() < 0 else a
        b = a
    b["h"] = x[1] * 2
    return c["h"] + 0


def changed_and_given_another(x):
    a, b, c = {"h": x[0]}, {"h": x[1]}, {"h": x[2]}
    for t in range(x.shape[0]):
        c["h"] = b["h"] + x[t]
        c = b if x[t].sum() < 0 else a
    return c["h"] + 0


@pytest.mark.parametrize(
    "f",
    [
        a_choice_among_choices, an_element_of_a_choice, one_of_two_behind_a_loop,
        changed_and_given_another,
    ],
)  # fmt: skip
def test_names_that_random_programs_found(f):
    with pytest.raises(dy2st.SourceError, match=MESSAGE):
        for seed in range(3):
            check.agree(f, check.data(4, 2, seed=seed))


@pytest.mark.parametrize("first", [0, 160])
def test_random_names(first):
    for seed in range(first, first + 8):
        random_names.compare(seed)
