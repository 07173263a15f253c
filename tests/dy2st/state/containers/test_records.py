"""Dicts, lists and objects that every iteration makes and puts into a list."""

from __future__ import annotations

import collections
import dataclasses

import numpy as np
import paddle
import pytest

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=12)


@dataclasses.dataclass
class State:
    h: paddle.Tensor
    steps: int


def rollout(x):
    """As a world model collects its states."""
    s, states = {"h": paddle.zeros([3], x.dtype), "z": x[0] * 0, "name": "s"}, []
    for row in x:
        h = paddle.tanh(s["h"] + row)
        s = {"h": h, "z": h * row, "name": "s"}
        states.append(s)
    return states, s


def stacked(x):
    states, last = rollout(x)
    return {k: paddle.stack([s[k] for s in states]) for k in ("h", "z")}, last


def returned(x):
    states, _ = rollout(x)
    return states, states[1:], states[-1]["h"]


def backwards(x):
    states, _ = rollout(x)
    total, out = x[0] * 0, []
    for t in range(len(states) - 1, -1, -1):
        s = states[t]
        total = 0.5 * total + s["h"] - s["z"]
        out.append(total)
    return paddle.stack(out[::-1])


def neighbours(x):
    states, _ = rollout(x)
    return sum([((p["h"] - q["z"]) ** 2).sum() for p, q in zip(states[:-1], states[1:])], x.sum())


def previous(x):
    states = [{"h": x[0]}, {"h": x[1]}]
    for t in range(2, x.shape[0]):
        states.append({"h": 0.5 * states[t - 1]["h"] + states[-2]["h"] + x[t]})
    return paddle.stack([s["h"] for s in states]), states


def objects(x):
    states = []
    for t in range(x.shape[0]):
        s = State(x[t], t)
        states.append(s)
        s.h = s.h * 2
    return paddle.stack([s.h * s.steps for s in states]), states[-1].h


def deep(x):
    out = []
    for row in x:
        out.append({"pair": (row, [row + 1, {"h": row * 2}])})
    return out, paddle.stack([q["pair"][1][1]["h"] for q in out])


def filled(x):
    out = [None] * x.shape[0]
    for t in range(x.shape[0]):
        out[t] = {"h": x[t]}
    return out


def by_key(x):
    out = collections.defaultdict(list)
    for row in x:
        out["h"].append(row)
        out["z"].append(row * 2)
    return {k: paddle.stack(v) for k, v in out.items()}


def first_of_a_key(x):
    out = {}
    for row in x:
        for k, v in {"h": row, "z": row * 2}.items():
            if k not in out:
                out[k] = []
            out[k].append(v)
    return {k: paddle.stack(v) for k, v in out.items()}


def rows_of_an_inner_loop(x):
    rows, h = [], x.sum(0)
    for t in range(x.shape[0]):
        row = []
        for k in range(3):
            h = paddle.tanh(h + x[t] * k)
            row.append(h)
        rows.append(row)
    return rows


def numbers_or_tensors(x):
    losses = []
    for t in range(x.shape[0]):
        loss = 0.0
        if x[t].sum() > 0:
            loss = x[t].sum()
        losses.append({"loss": loss, "all": [loss, x[t].max()]})
    return sum([q["loss"] * q["all"][1] for q in losses])


def numbers_or_tensors_so_far(x):
    losses, loss = [], 0.0
    for t in range(x.shape[0]):
        if x[t].max() > 0.5:
            loss = loss + (x[t] ** 2).mean()
        losses.append(loss)
    return sum(losses), losses[-1] if losses else 0.0


@pytest.mark.parametrize(
    "f",
    [stacked, returned, backwards, neighbours, previous, objects, deep, filled, by_key,
     first_of_a_key, rows_of_an_inner_loop, numbers_or_tensors, numbers_or_tensors_so_far],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_one_loop(f):
    static = check.agree(f, check.data(9, 3))
    assert "unrolled" not in str(dy2st.report(static, check.data(9, 3)))


def last_changed(x):
    states, s = rollout(x)
    s["h"] = s["h"] * 3
    return [q["h"] for q in states]


def element_changed(x):
    states, s = rollout(x)
    for q in states:
        q["h"] = q["h"] + q["z"]
    return [q["h"] for q in states], s["h"]


def element_kept(x):
    states, _ = rollout(x)
    best = states[0]
    for q in states:
        best = q
    best.update(h=best["z"])
    return states[-1]["h"]


def both_returned(x):
    states, s = rollout(x)
    return states, s, states[0]


def put_twice(x):
    one, two = [], []
    for row in x:
        s = {"h": row}
        one.append(s)
        two.append(s)
    return one, two


def put_again(x):
    s, states = {"h": x[0]}, []
    for row in x:
        s["h"] = s["h"] + row
        states.append(s)
    return states


def previous_changed(x):
    states = [{"h": x[0]}]
    for row in x:
        states[-1]["h"] = states[-1]["h"] * 2 + row
        states.append({"h": states[-1]["h"] + 1})
    return [s["h"] for s in states]


def first_changed(x):
    first = {"h": x[0]}
    states = [first]
    for row in x:
        states.append({"h": states[-1]["h"] + row})
        first["h"] = first["h"] + 1
    return [s["h"] for s in states]


def first_changed_later(x):
    first = {"h": x[0]}
    states = [first]
    for row in x:
        states.append({"h": states[-1]["h"] + row})
    total = paddle.stack([s["h"] for s in states])
    first["h"] = first["h"] + 1
    return total, states[0]["h"]


def identities(x):
    states, s = rollout(x)
    return states[-1] is s, states[0] is s, states[0] is states[0]


def put_behind(x):
    first = {"h": x[0]}
    out = [first]
    for row in x:
        out.append({"h": row * 2})
    out += [first, {"h": out[-1]["h"]}]
    return out, first


def changed_and_copied(x):
    s = {"h": x[0] * 0}
    out = [s]
    for row in x:
        s["h"] = paddle.tanh(s["h"] + row)
        out.append(dict(s))
    return out


@pytest.mark.parametrize("f", [put_behind, changed_and_copied], ids=lambda f: f.__name__)
def test_elements_beside_those_of_the_loop(f):
    """The list holds objects from before the loop, and some of the loop's own tensors again."""
    x = check.data(4, 3)
    have, want = (g(x) for g in (dy2st.to_static(f), f))
    check.same(have, want, rtol=1e-9, atol=1e-9)
    both = [list(check_objects(q)) for q in (have, want)]
    one, two = ([[id(p) for p in q].index(id(p)) for p in q] for q in both)
    assert one == two and check.identities(have) == check.identities(want)


@pytest.mark.parametrize(
    "f",
    [last_changed, element_changed, element_kept, both_returned, put_twice, put_again,
     previous_changed, first_changed, first_changed_later, identities],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_objects_stay_what_they_are(f):
    """What the loop stacks are the elements of containers: where it matters which object an element
    is, the loop is unrolled."""
    x = check.data(5, 3)
    static = check.agree(f, x)
    ids = [[id(q) for q in check_objects(g(x))] for g in (f, static)]
    assert [q.index(k) for q in ids[:1] for k in q] == [q.index(k) for q in ids[1:] for k in q]
    assert "unrolled" in str(dy2st.report(static, x))


def check_objects(x):
    """The containers of a result, in order."""
    if isinstance(x, (tuple, list, dict)):
        yield x
        for q in x.values() if isinstance(x, dict) else x:
            yield from check_objects(q)


def test_a_saved_program_returns_dicts(tmp_path):
    def f(x):
        return rollout(x)[0]

    x = check.data(4, 3, trained=False)
    dy2st.save(dy2st.to_static(f), tmp_path / "f.dy2st", input_spec=[x])
    have = dy2st.load(tmp_path / "f.dy2st")(x.numpy())
    for a, b in zip(have, f(x), strict=True):
        assert list(a) == list(b)
        np.testing.assert_allclose(a["z"], b["z"].numpy(), rtol=1e-6)


@pytest.mark.parametrize("absent", ["key", "attribute"])
def test_a_list_that_the_first_iteration_makes(absent):
    class Box:
        pass

    def f(x):
        box, found = Box(), {}
        for row in x:
            if absent == "key" and "ys" not in found:
                found["ys"] = []
            if absent == "attribute" and not hasattr(box, "ys"):
                box.ys = []
            (found["ys"] if absent == "key" else box.ys).append(row)
        return paddle.stack(found["ys"] if absent == "key" else box.ys)

    check.agree(f, check.data(5, 2))
