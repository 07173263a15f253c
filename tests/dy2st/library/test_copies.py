"""`copy.copy` and `copy.deepcopy` of states in translated functions."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import types

import numpy as np
import paddle
import pytest

import dy2st
from tests import check

X = paddle.linspace(-1.0, 2.0, 12).reshape([4, 3])


class Kind(enum.Enum):
    A = 1
    B = 2


@dataclasses.dataclass
class Record:
    h: paddle.Tensor
    sizes: list = dataclasses.field(default_factory=lambda: [1, 2])


class Model:
    """A state that calls replace and that the caller changes."""

    def __init__(self):
        shared = [paddle.zeros([3])]
        self.state = {
            "h": paddle.zeros([3]), "n": [0], "pair": (paddle.ones([3]), 1.5), "kind": Kind.A,
            "one": shared, "two": shared, "last": collections.deque([1, 2], maxlen=2),
            "table": collections.defaultdict(list, a=[1]), "f": abs, "names": {"a", "b"},
            "array": np.arange(3.0), "record": Record(paddle.ones([3])),
        }  # fmt: skip
        self.best = None

    def snapshot(self, x):
        self.best = copy.deepcopy(self.state)
        self.state["h"] = self.state["h"] + x.sum(0)
        self.state["h"] *= 2
        self.state["n"].append(len(self.best["n"]))
        return self.best["h"] + 0, self.best["n"], self.best["record"].h * self.best["array"].sum()

    def restored(self, x):
        before = copy.deepcopy(self.state)
        self.state["h"].add_(x.sum(0))
        self.state["one"][0] += 1
        self.state["last"].append(7)
        worse = self.state["h"] * 2
        self.state = before
        return worse, before["one"] is before["two"], list(before["last"])

    def of_a_loop(self, x):
        best, h = None, {"h": x[0], "steps": 0}
        for t in range(4):
            h = {"h": h["h"] + x[t], "steps": h["steps"] + 1}
            if t == 2:
                best = copy.deepcopy(h)
        return best["h"], best["steps"], h["h"]

    def shallow(self, x):
        new = copy.copy(self.state)
        new["h"] = new["h"] + x.sum(0)
        new["n"].append(1)
        self.state = new
        return new["h"] + 0, len(new["n"]), new["one"] is new["two"]

    def kinds(self, x):
        made = copy.deepcopy(self.state)
        return x * made["kind"].value, made["f"] is abs, sorted(made["names"]), made["table"]["b"]


def change(model, k):
    """What the caller does between two calls."""
    state = model.state
    if k == 1:
        state["kind"], state["array"][1], state["f"] = Kind.B, 5.0, abs
    if k == 2:
        state["record"].h = paddle.full([3], 3.0)
        state["h"] = paddle.ones([3])
    if k == 3:
        state["names"].add("c")
        state["last"].append(9)


@pytest.mark.parametrize("name", ["snapshot", "restored", "of_a_loop", "shallow", "kinds"])
def test_copies_are_those_of_eager(name):
    eager, other = Model(), Model()
    static = dy2st.to_static(getattr(other, name))
    for k in range(5):
        change(eager, k)
        change(other, k)
        check.same(static(X + k), getattr(eager, name)(X + k), what=f"call {k}")
        for key in ("h", "n", "pair"):
            check.same(other.state[key], eager.state[key], what=f"call {k}: {key}")
        assert other.state["last"] == eager.state["last"]
        check.same(other.state["one"], eager.state["one"])
        if eager.best is not None:
            assert other.best["h"] is not other.state["h"]
            check.same(other.best["h"], eager.best["h"], what=f"call {k}: best")


LINEAR = paddle.nn.Linear(3, 3)


@pytest.mark.parametrize(
    "given", [LINEAR, LINEAR.weight, {"layers": [LINEAR]}], ids=["0", "1", "2"]
)
def test_copies_of_layers_and_parameters_are_refused(given):
    with pytest.raises(dy2st.SourceError, match="copy of a"):
        dy2st.to_static(lambda x: (x, copy.deepcopy(given)))(X)


def test_a_copy_has_the_attributes_of_its_call():
    """Also those that the object has got since the program was made."""

    def keep(x, state):
        state.before = copy.copy(state)
        state.last = x * 2
        return x

    static, eager, other = dy2st.to_static(keep), Record(X), Record(X)
    for k in range(3):
        keep(X + k, eager)
        static(X + k, other)
        assert sorted(vars(other)) == sorted(vars(eager))
        assert sorted(vars(other.before)) == sorted(vars(eager.before)), k


def test_a_deep_copy_of_a_namespace_that_the_function_has_changed():
    def keep(x, space):
        space.h = space.h + x.sum(0)
        made = copy.deepcopy(space)
        space.h *= 2
        return made.h + 0, made.n

    spaces = [types.SimpleNamespace(h=paddle.zeros([3]), n=k) for k in (3, 3)]
    static = dy2st.to_static(keep)
    for k in range(3):
        check.same(static(X + k, spaces[0]), keep(X + k, spaces[1]), what=f"call {k}")
        check.same(spaces[0].h, spaces[1].h)
