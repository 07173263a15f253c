"""Dicts and objects that a loop changes in place and replaces by others: states of decoders."""

from __future__ import annotations

import types

import paddle
import pytest

import dy2st
from tests import check
from tests.dy2st.state.containers.test_list_reads import rolls

pytestmark = pytest.mark.sampled(every=16)


def begun(*keys):
    return {k: paddle.zeros([3], "float64") for k in keys}


# ---------------------------------------------------------------- states
def step(x, state):
    state["h"] = paddle.tanh(state["h"] + x)
    return state["h"], {k: v * 0.9 for k, v in state.items()}


def stored_then_stepped(x):
    state, ys = begun("h", "c"), []
    for t in range(x.shape[0]):
        y, state = step(x[t], state)
        ys.append(y)
    return ys, state


def copied_and_stored(x):
    state = begun("h", "c")
    for t in range(x.shape[0]):
        state = {**state, "h": paddle.tanh(state["h"] + x[t])}
        state["c"] = state["c"] * 0.5 + state["h"]
    return state


def updated_and_copied(x):
    state = begun("h", "c")
    for t in range(x.shape[0]):
        old = state.copy()
        state.update(h=state["h"] + x[t])
        state = dict(h=state["h"] + old["c"], c=old["h"])
    return state


def layers_of_states(x):
    state = {name: begun("k", "v") for name in ("a", "b")}
    for t in range(x.shape[0]):
        h = x[t]
        for name in ("a", "b"):
            state[name]["k"] = state[name]["k"] * 0.5 + h
            h = paddle.tanh(h + state[name]["v"])
            state[name]["v"] = h
        state = {name: {"k": s["v"], "v": s["k"]} for name, s in state.items()}
    return state["a"]["k"], state["b"]["v"]


def in_an_attribute(x):
    model = types.SimpleNamespace(state=begun("h", "c"))
    for t in range(x.shape[0]):
        model.state["h"] = model.state["h"] * 0.5 + x[t]
        model.state = {**model.state, "c": model.state["c"] + model.state["h"]}
    return model.state["h"], model.state["c"]


def object_with_fields(x):
    s = types.SimpleNamespace(h=x.sum(0), c=x.sum(0) * 2)
    for t in range(x.shape[0]):
        s.c = s.c * 0.5 + x[t]
        s = types.SimpleNamespace(h=paddle.tanh(s.c + s.h), c=s.c)
    return s.h, s.c


def in_some_iterations(x):
    state = begun("h", "n")
    for t in range(x.shape[0]):
        state["h"] = state["h"] + x[t]
        if x[t].sum() > 0:
            state = {"h": state["h"] * 0.5, "n": state["n"] + 1}
    return state["h"], state["n"]


def until_large(x):
    state = begun("h", "n")
    for t in range(x.shape[0]):
        state["h"] = state["h"] + x[t]
        if state["h"].sum() > 3:
            break
        state = {"h": state["h"] * 0.5, "n": state["n"] + 1}
    return state["h"], state["n"]


def in_an_inner_loop(x):
    state = begun("h", "n")
    for t in range(x.shape[0]):
        for k in range(9):
            state["h"] = state["h"] * 0.9 + x[t] * k
            state = {"h": state["h"] * 0.5, "n": state["n"] + 1}
        state["h"] = state["h"] + 1
    return state


def the_one_before(x):
    state, prev = begun("h"), begun("h")
    for t in range(x.shape[0]):
        prev["h"] = prev["h"] * 2 + state["h"]
        new = {"h": prev["h"] * 0.5 + x[t]}
        prev, state = state, new
        state["h"] = state["h"] + 1
        prev["h"] = prev["h"] * 0.3
    return prev["h"], state["h"]


def beams(x):
    caches = [[paddle.zeros([2, 0, 3], "float64") for _ in "kv"] for _ in range(2)]
    h = paddle.ones([2, 3], "float64")
    for t in range(x.shape[0]):
        for cache in caches:
            cache[0] = paddle.concat([cache[0], h.unsqueeze(1)], 1)
            cache[1] = paddle.concat([cache[1], h.unsqueeze(1) * 2], 1)
            h = paddle.tanh(h + cache[0].mean(1) + cache[1].sum(1) * 0.1 + x[t])
        order = paddle.argsort(h.sum(-1))
        caches = [[paddle.gather(k, order), paddle.gather(v, order)] for k, v in caches]
        h = paddle.gather(h, order)
    return h


STATES = [
    stored_then_stepped, copied_and_stored, updated_and_copied, layers_of_states, in_an_attribute,
    object_with_fields, in_some_iterations, until_large, in_an_inner_loop, the_one_before,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("f", STATES, ids=lambda f: f.__name__)
def test_states_that_are_stored_and_replaced(f):
    rolls(f)


@pytest.mark.slow
def test_the_caches_of_a_beam_search():
    rolls(beams, lengths=(0, 1, 3), inner="equal containers are put into a short list")


# ---------------------------------------------------------------- places that are exchanged
def two_dicts(x):
    a, b = begun("h"), begun("h")
    first = a
    for t in range(x.shape[0]):
        b["h"] = paddle.tanh(a["h"] + x[t]) + b["h"]
        a, b = b, a
    return a["h"], b["h"], first["h"]


def two_objects(x):
    a, b = types.SimpleNamespace(h=x.sum(0)), types.SimpleNamespace(h=x.sum(0) * 2)
    for t in range(x.shape[0]):
        b.h = a.h * 0.5 + x[t]
        a, b = b, a
    return a.h, b.h


@pytest.mark.slow
@pytest.mark.parametrize("f", [two_dicts, two_objects], ids=lambda f: f.__name__)
def test_dicts_and_objects_that_change_places(f):
    rolls(f)


# ---------------------------------------------------------------- other names
def read_by_another_name(x):
    first = state = begun("h", "c")
    total = x.sum(0)
    for t in range(x.shape[0]):
        total = total + {**first}["h"]
        state["h"] = state["h"] * 0.5 + x[t]
        state = {"h": state["h"] + 1, "c": state["c"] + state["h"]}
    return total, state["c"]


def kept_in_a_list(x):
    state = begun("h", "c")
    states = [state]
    for t in range(x.shape[0]):
        state["h"] = state["h"] * 0.5 + x[t]
        state = {"h": state["h"] + 1, "c": state["c"] + state["h"]}
        states.append(state)
    return states[0], state["c"]


def read_behind_the_loop(x):
    first = state = begun("h", "c")
    for t in range(x.shape[0]):
        state["h"] = state["h"] * 0.5 + x[t]
        state = {"h": state["h"] + 1, "c": state["c"] + state["h"]}
    return list(first.values()), len(first), state


def keys_that_come_and_go(x):
    first = state = begun("h", "c")
    for t in range(x.shape[0]):
        c = state.pop("c")
        state["n"] = x[t]
        state = {"h": state["h"] + state["n"], "c": c + 1}
    return sorted(first), state["h"]


def changed_by_two_names(x):
    a = b = begun("h")
    for t in range(x.shape[0]):
        a["h"] = a["h"] + x[t]
        y = b["h"]
        a, b = {"h": a["h"] * 0.5}, {"h": y}
    return a, b


def is_it_the_one_before(x):
    state = prev = begun("h")
    n = 0
    for t in range(x.shape[0]):
        if prev is state:
            n = n + 1
        state["h"] = state["h"] + x[t]
        prev = state
        if t > 1:
            state = {"h": state["h"] * 0.5}
    return prev["h"], state["h"], n


def kept_in_an_attribute(x):
    model, state = types.SimpleNamespace(), begun("h")
    model.last = state
    for t in range(x.shape[0]):
        state["h"] = state["h"] + x[t]
        state = {"h": state["h"] * 0.5}
        model.last = state
        state["h"] = state["h"] + 1
    return model.last["h"], state["h"]


NAMES = [
    read_by_another_name, kept_in_a_list, read_behind_the_loop, keys_that_come_and_go,
    changed_by_two_names, is_it_the_one_before, kept_in_an_attribute,
]  # fmt: skip


@pytest.mark.parametrize("f", NAMES, ids=lambda f: f.__name__)
def test_a_dict_under_two_names(f):
    static = dy2st.to_static(f)
    for n in (1, 2, 5):
        check.agree(static, check.data(n, 3, seed=n))


def test_the_state_of_the_caller():
    def f(x, state):
        for t in range(x.shape[0]):
            state["h"] = state["h"] + x[t]
            state = {"h": state["h"] * 0.5, "c": state["c"] + state["h"]}
        return state

    static = dy2st.to_static(f)
    for n in (0, 1, 4):
        mine, other = ({"h": check.data(3, seed=1), "c": check.data(3, seed=2)} for _ in "ab")
        x = check.data(n, 3, seed=n)
        check.same(static(x, other), f(x, mine), 1e-9, 1e-9)
        check.same(other, mine, 1e-9, 1e-9)


@pytest.mark.parametrize("changes", [True, False])
def test_a_dict_that_data_chooses_in_each_iteration(changes):
    """Behind the loop it may still be the caller's: it is read, not changed."""
    state = {"h": paddle.ones([3]), "c": paddle.zeros([3])}

    def f(x):
        for row in x:
            chosen = state
            if row.sum() < 0:
                chosen = {k: q * 0.5 for k, q in state.items()}
        if changes:
            chosen["h"] = chosen["c"]
        return chosen["h"] + 1

    static = dy2st.to_static(f)
    if changes:
        with pytest.raises(dy2st.SourceError, match="which list, dict or object a variable is"):
            static(paddle.ones([2, 3]))
    for sign in () if changes else (1.0, -1.0):
        x = paddle.full([2, 3], sign)
        assert static(x).tolist() == f(x).tolist()


# ---------------------------------------------------------------- elements that are changed later
def changed_when_it_is_listed(x):
    u, us = {"c": x[0]}, []
    for t in range(x.shape[0]):
        u["c"] = u["c"] + x[t]
        u = {"c": x[t] * t}
        us.append(u)
    return us


def a_number_changed_when_it_is_listed(x):
    u, us = {"c": 1}, []
    for t in range(x.shape[0]):
        u["c"] += t
        u = {"c": 2}
        us.append((t, [u]))
        x = x + u["c"]
    return x, us


def a_list_in_a_dict_changed_when_it_is_listed(x):
    d, us, total = {"u": [x[0]]}, [], x[0] * 0
    while total.sum() < 40:
        total = total + x.abs().sum(0) + 1
        d["u"][0] = d["u"][0] * 0.5
        d["u"] = [total]
        us.append(d["u"])
    return us


@pytest.mark.parametrize("f", [changed_when_it_is_listed, a_number_changed_when_it_is_listed])
def test_a_container_that_is_changed_after_it_has_been_put_into_a_list(f):
    """The next iteration changes the very element of the list."""
    static = dy2st.to_static(f)
    for k in range(2):
        x = paddle.linspace(-1.0, 2.0, 30).reshape([10, 3]) + k
        check.same(static(x), f(x), what=f"call {k}")


def test_such_a_container_in_a_loop_that_data_ends_is_refused():
    with pytest.raises(dy2st.SourceError, match="changed in place and also rebound"):
        dy2st.to_static(a_list_in_a_dict_changed_when_it_is_listed)(paddle.rand([3, 2]))


def test_a_list_has_another_name_behind_the_inner_loop():
    """That the rebound list cannot be told from the one before was found out when the loop had been
    added to the program: it ran twice."""

    def f(state, x, counts, u):
        for _ in x:
            for _ in x:
                old = state.s
                state.s[0] = x[0]
                state.s = list(u)
                counts[0] = counts[0] * 0.5 + 1

            def first():
                return old[0]  # noqa: B023

        return old[0], state.s

    for n in (1, 2, 3):
        found = []
        for function in (f, dy2st.to_static(f)):
            state = types.SimpleNamespace(s=[paddle.zeros([2]), paddle.ones([2])])
            counts, u = [paddle.zeros([2])], [paddle.full([2], 0.5), paddle.full([2], 0.25)]
            out = function(state, paddle.full([n, 2], 3.0), counts, u)
            found.append([q.tolist() for q in (out[0], *out[1], *state.s, counts[0])])
        assert found[0] == found[1]
