"""`dy2st.flex_scan`: flat sequences and states, as FlexSN's scan has them."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests.check import agree, data
from tests.dy2st.functional.plain import check, kinds

pytestmark = pytest.mark.sampled(every=12)

W = data(3, 3, seed=9, trained=False)


def plain(core, inputs, states, outputs, *tensors, final_state_only=False):
    """A loop over the steps."""
    xs, kept = tensors[:inputs], list(tensors[inputs : inputs + states])
    more, ys, seen = tensors[inputs + states :], [], []
    for t in range(xs[0].shape[0]):
        out = core(*(x[t] for x in xs), *kept, *more)
        out = out if isinstance(out, (tuple, list)) else (out,)
        ys.append(out[:outputs])
        kept = out[outputs : outputs + states]
        seen.append(kept)
    stacked = [paddle.stack(q) for q in zip(*ys)]
    return (*stacked, *(kept if final_state_only else [paddle.stack(q) for q in zip(*seen)]))


def one_each(x, v):
    v = v * 0.5 + x
    return paddle.tanh(v), v


def two_inputs(a, b, v):
    v = v * a + b
    return v * 2, v


def two_states(x, v, u):
    return v + u, v * 0.9 + x, u + v * 0.1


def two_outputs(x, v):
    return x * 2, x.sum(), v + x


def no_output(x, v):
    return v * 0.5 + x


def no_state(x):
    return paddle.exp(x)


def with_intermediates(x, v):
    charge = v * 0.5 + x
    spike = paddle.tanh(charge)
    return spike, charge * (1 - spike), charge, spike * 2


def in_a_list(x, v):
    return [x * v, v + x]


def state_is_input(x, v):
    return v, x


def captures(x, v, w, k):
    return (x @ w) * k, v + x @ w


def closure(x, v):
    return x @ W, paddle.tanh(v @ W + x)


def in_place(x, v):
    v.add_(x)
    return v * 2, v


CORES = {
    "one_each": (one_each, 1, 1, 1), "two_inputs": (two_inputs, 2, 1, 1),
    "two_states": (two_states, 1, 2, 1), "two_outputs": (two_outputs, 1, 1, 2),
    "no_output": (no_output, 1, 1, 0), "no_state": (no_state, 1, 0, 1),
    "with_intermediates": (with_intermediates, 1, 1, 1), "in_a_list": (in_a_list, 1, 1, 1),
    "state_is_input": (state_is_input, 1, 1, 1), "captures": (captures, 1, 1, 1),
    "closure": (closure, 1, 1, 1),
}  # fmt: skip


def tensors_for(name):
    _, inputs, states, _ = CORES[name]
    more = [data(3, 3, seed=20), data(3, seed=21)] if name == "captures" else []
    xs = [data(5, 3, seed=k) for k in range(inputs)]
    return [*xs, *(data(3, seed=10 + k) for k in range(states)), *more]


@pytest.mark.parametrize("final", [False, True], ids=["sequences", "final"])
@pytest.mark.parametrize("name", CORES)
def test_cores(name, final):
    core, *counts = CORES[name]

    def of(scan):
        return lambda *q: scan(core, *counts, *q, final_state_only=final)

    args = tensors_for(name)
    static = check(of(dy2st.flex_scan), of(plain), *args)
    assert kinds(static, *args) == ["scan"]


@pytest.mark.parametrize("shape", [[], [4], [2, 3], [2, 1, 3, 2]], ids=str)
def test_shapes(shape):
    def f(x, v):
        return dy2st.flex_scan(one_each, 1, 1, 1, x, v)

    out, states = f(data(5, *shape), data(*shape, seed=1))
    assert out.shape == states.shape == [5, *shape]
    agree(f, data(5, *shape), data(*shape, seed=1))


def test_states_that_are_written_in_place():
    def f(x, v):
        return dy2st.flex_scan(in_place, 1, 1, 1, x, v)

    agree(f, data(5, 3), data(3, seed=1))


def test_a_layer_as_the_core():
    cell = paddle.nn.GRUCell(3, 3)
    cell.to(dtype="float64")

    def f(x, h):
        return dy2st.flex_scan(lambda x, h: (cell(x, h)[0], cell(x, h)[1]), 1, 1, 1, x, h)

    agree(f, data(5, 2, 3), data(2, 3, seed=1))


@pytest.mark.parametrize("final", [False, True])
def test_final_states_keep_no_sequences(final):
    def f(x, v):
        return dy2st.flex_scan(one_each, 1, 1, 1, x, v, final_state_only=final)

    args = data(5, 3, trained=False), data(3, trained=False)
    program = str(dy2st.program(dy2st.to_static(f), *args))
    assert program.count("stack ") == (1 if final else 2)


def test_templates_are_those_of_the_outputs():
    def f(x, v):
        return dy2st.flex_scan(one_each, 1, 1, 1, x, v, output_templates=[([3], "float64")])

    agree(f, data(5, 3), data(3, seed=1))
