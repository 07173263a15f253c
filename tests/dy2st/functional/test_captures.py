"""What the functional loops take from outside, and what of their results the program keeps."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests.check import data, parity, trains
from tests.dy2st.functional.plain import Function, kinds

H, X, W = (data(*q, seed=k, trained=False) for k, q in enumerate([(3,), (5, 3), (2, 3)]))
STATES, NAMED = [H, X], {"a": H}

GLOBALS = {
    "scan": lambda k: dy2st.scan(lambda c, q: (c * k + q, c), H, X),
    "taps": lambda k: dy2st.scan(
        lambda s, q: (s[0] * k + q, s[1]), dy2st.taps(W, (-2, -1)), X, reverse=True
    ),
    "list": lambda k: dy2st.scan(lambda c, q: ([c[0] * k, c[1]], q[0]), STATES, [X]),
    "dict": lambda k: dy2st.scan(lambda c, q: ({"a": c["a"] * k}, q[0]), NAMED, [X]),
    "while_loop": lambda k: dy2st.while_loop(
        lambda c: c.abs().max() > 0.1, lambda c: c * 0.5 + k * 0, H
    ),
    "cond": lambda k: dy2st.cond(H.sum() > 0, lambda a: a * k, lambda a: a, X),
    "flex_scan": lambda k: dy2st.flex_scan(lambda x, v: (x * k, v + x), 1, 1, 1, X, H),
}


@pytest.mark.parametrize("name", GLOBALS)
def test_arguments_from_outside_of_the_function(name):
    parity(Function(GLOBALS[name]), lambda: [data(3, trained=False)])


def test_a_container_from_outside_is_read_on_every_call():
    states = [H, H]
    f = dy2st.to_static(lambda k: dy2st.scan(lambda c, q: (c, c[1] * k), states, X)[1])
    assert f(data(3)).shape == [5, 3]
    states[1] = data(2, 3, trained=False)
    assert f(data(3)).shape == [5, 2, 3]


class Learned(paddle.nn.Layer):
    """The first state is a parameter."""

    def __init__(self):
        super().__init__()
        self.h0, self.w = self.create_parameter([3]), self.create_parameter([3, 3])

    def forward(self, x):
        return dy2st.scan(lambda c, q: (paddle.tanh(c @ self.w + q), c), self.h0, x)


def test_a_parameter_as_the_first_state_trains():
    static = trains(Learned, lambda: [data(4, 3)])
    assert kinds(static, data(4, 3)) == ["scan"]


def test_unused_outputs_are_not_collected():
    f = dy2st.to_static(lambda h, x: dy2st.scan(lambda c, q: (c + q, (c, q)), h, x)[0])
    assert "stack " not in str(dy2st.program(f, H, X))


def test_unused_states_are_not_computed():
    def body(c, q):
        return (c[0] + q, c[1] * c[1]), (c[0], c[1])

    f = dy2st.to_static(lambda h, x: dy2st.scan(body, (h, h), x)[1][0])
    program = str(dy2st.program(f, H, X))
    assert "multiply" not in program and program.count("    carry %") == 1


def test_copies_of_steps_cost_nothing():
    f = dy2st.to_static(lambda h, x: dy2st.scan(lambda c, q: (c * q, c), h, x))
    assert "assign" not in str(dy2st.program(f, H, X))


def test_a_carry_that_never_changes_is_no_state():
    f = dy2st.to_static(lambda h, x: dy2st.scan(lambda c, q: (c, c * q), h, x)[1])
    assert kinds(f, H, X) == ["scan"]
    parity(Function(lambda h, x: dy2st.scan(lambda c, q: (c, c * q), h, x)),
           lambda: [data(3, trained=False), data(4, 3, trained=False)])  # fmt: skip
