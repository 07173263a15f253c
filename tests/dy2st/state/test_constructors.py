"""Objects of classes that derive from those of Python and Paddle, made in the function: their
constructors are converted, or checked where they have no source."""

from __future__ import annotations

import collections
import dataclasses
import typing

import paddle
import pytest

import dy2st
from tests import check

X = paddle.to_tensor([0.5, 2.0])
SCALE = 1.0


class Pair(tuple):
    def __new__(cls, *a):
        return super().__new__(cls, (*a, SCALE))


class Number(float):
    def __new__(cls, a):
        made = float.__new__(cls, a * SCALE)
        made.tag = SCALE
        return made


class Name(str):
    def __new__(cls, text):
        return str.__new__(cls, text * int(SCALE))


class Fields(dict):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.__dict__ = self


class Window(collections.deque):
    def __init__(self, n):
        super().__init__(maxlen=n)
        self.append(SCALE)


class Stack(list):
    def __init__(self, *items):
        list.__init__(self, items)
        self.append(SCALE)


class Scaled(paddle.nn.Sequential):
    def __init__(self, n):
        super().__init__(*[paddle.nn.ReLU() for _ in range(n)])
        self.scale = SCALE
        self.register_buffer("shift", paddle.ones([2]) * n)

    def forward(self, x):
        return super().forward(x) * self.scale + self.shift


Named = collections.namedtuple("Named", "a b", defaults=(2.0,))


class Below(Named):
    def __new__(cls, a):
        return super().__new__(cls, a, SCALE)


class Typed(typing.NamedTuple):
    a: object
    b: float = 2.0


@dataclasses.dataclass
class Record:
    a: float = 1.0
    b: list = dataclasses.field(default_factory=list)


def of_fields(x):
    fields = Fields(y=x, z=SCALE)
    fields.w = x + 1
    return fields.y * fields.z + fields["w"] + len(fields)


def of_window(x):
    window = Window(2)
    window.extend([x, x * 2])
    return window[0] + window[1] * Window(1)[0]


def of_stack(x):
    stack = Stack(x, x * 2)
    stack.append(x)
    return stack[0] + stack[1] * stack[2] + len(stack)


def defaults(kind, name="__new__"):
    return lambda scale: setattr(getattr(kind, name), "__defaults__", (scale,))


#: a function, and what changes beside SCALE
CASES = {
    "tuple": (lambda x: Pair(x, x * 2)[1] * Pair(x)[-1],),
    "float": (lambda x: x * Number(2.0) + Number(3.0).tag,),
    "str": (lambda x: x * len(Name("ab")),),
    "dict": (of_fields,),
    "deque": (of_window,),
    "list": (of_stack,),
    "Layer": (lambda x: Scaled(2)(x),),
    "named tuple below": (lambda x: Below(x).a * Below(x).b,),
    "named tuple": (lambda x: x * Named(1.0).b, defaults(Named)),
    "typed tuple": (lambda x: x * Typed(x).b + Typed(x)._replace(b=3.0).b, defaults(Typed)),
    "dataclass": (
        lambda x: x * Record().a,
        lambda scale: setattr(
            Record.__init__, "__defaults__", (scale, Record.__init__.__defaults__[1])
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_constructor_reads_is_followed(name, monkeypatch):
    f, *changes = CASES[name]
    static = dy2st.to_static(f)
    kept = [(k, k.__defaults__) for k in (Named.__new__, Typed.__new__, Record.__init__)]
    try:
        for scale in (1.0, 2.0, 3.0, 2.0):
            monkeypatch.setattr("tests.dy2st.state.test_constructors.SCALE", scale)
            for change in changes:
                change(scale)
            check.same(static(X), f(X), what=f"{scale}")
    finally:
        for function, before in kept:
            function.__defaults__ = before


def helper(x):
    return x * SCALE


def in_a_branch_first(x):
    y = helper(x) if x.sum() > 0 else x
    return y + helper(x)


def in_a_loop_first(x):
    for k in range(6):
        x = helper(x) if x.sum() > k else x
    return x + helper(x)


@pytest.mark.parametrize("f", [in_a_branch_first, in_a_loop_first])
def test_a_number_that_a_function_reads_behind_a_branch_that_calls_it(f, monkeypatch):
    """What stood for the number was taken back with the branch."""
    static = dy2st.to_static(f)
    for scale in (1.0, 2.0, 3.0, 4.0):
        monkeypatch.setattr("tests.dy2st.state.test_constructors.SCALE", scale)
        check.same(static(X), f(X), what=f"{scale}")
    assert len(dy2st.explain(static).reasons) <= 2
