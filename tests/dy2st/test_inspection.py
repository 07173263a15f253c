"""Looking at translated functions and Layers, whose names all stay the user's."""

from __future__ import annotations

import inspect

import numpy as np
import paddle
import pytest

import dy2st
from tests import check

X = paddle.ones([2, 3])


class Named(paddle.nn.Layer):
    """Its attributes have the names of dy2st's functions."""

    report = "of the class"

    def __init__(self):
        super().__init__()
        self.code, self.program = 3.0, paddle.nn.Linear(3, 3)
        self.explain = paddle.ones([3])

    def forward(self, x):
        return self.program(x) * self.code + self.explain + len(self.report)


def test_a_translated_layer_keeps_its_own_attributes():
    layer = Named()
    names = set(vars(layer))
    static = check.parity(layer, lambda: [X])
    assert set(vars(static)) == names | {"forward"}
    assert static.code == 3.0 and static.report == "of the class"
    assert "scan" not in str(dy2st.program(static, X))


def test_attributes_of_a_function_stay_those_of_the_user():
    @dy2st.to_static
    def g(x):
        return x * g.program + len(g._cache)

    g.program, g._cache = 2, [1, 2]
    assert g(X).sum().item() == 24.0
    assert "scale" in str(dy2st.program(g, X))


def plain(x):
    return x + 1


class Decorated(paddle.nn.Layer):
    @dy2st.to_static
    def forward(self, x):
        return x * 2

    @classmethod
    @dy2st.to_static
    def of_class(cls, x):
        return x * 3

    @staticmethod
    @dy2st.to_static
    def of_none(x):
        return x * 4


@pytest.mark.parametrize(
    "of, factor",
    [
        (lambda: dy2st.to_static(plain), "bias=1"),
        (lambda: dy2st.to_static(Named()), "matmul"),
        (Decorated, "scale=2"),
        (lambda: Decorated().forward, "scale=2"),
        (lambda: Decorated().of_class, "scale=3"),
        (lambda: Decorated.of_none, "scale=4"),
    ],
)
def test_a_function_a_method_or_a_layer_is_looked_at(of, factor):
    f = of()
    f(X)
    program, report = dy2st.program(f, X), dy2st.report(f, X)
    assert factor in str(program) and report.foreign == ()
    assert "def " in dy2st.code(f)


@pytest.mark.parametrize("look", [dy2st.program, dy2st.report, dy2st.code])
def test_what_is_not_translated_is_refused(look):
    message = rf"dy2st\.{look.__name__} takes a translated .*`plain = dy2st.to_static\(plain\)`"
    with pytest.raises(TypeError, match=message):
        look(plain)
    with pytest.raises(TypeError, match="named = dy2st.to_static"):
        look(Named())


def test_neither_arguments_nor_a_spec():
    with pytest.raises(TypeError, match="give arguments, or an input_spec"):
        dy2st.program(dy2st.to_static(plain))


def test_paddles_model_finds_the_names_of_the_arguments():
    """`inspect.getfullargspec` of a bound method has the object, `inspect.signature` has not."""

    def make():
        paddle.seed(0)
        return paddle.nn.Sequential(paddle.nn.Linear(4, 3))

    layer, static = make(), dy2st.to_static(make())
    assert inspect.getfullargspec(static.forward).args == ["self", "input"]
    assert list(inspect.signature(static.forward).parameters) == ["input"]
    losses = []
    for q in (layer, static):
        model = paddle.Model(q)
        sgd = paddle.optimizer.SGD(0.1, parameters=q.parameters())
        model.prepare(sgd, paddle.nn.CrossEntropyLoss())
        x, labels = np.ones([2, 4], "float32"), np.array([[0], [2]])
        losses.append([model.train_batch([x], [labels]) for _ in range(3)])
    np.testing.assert_allclose(losses[1], losses[0], 1e-5)


def test_explain_names_defaults_and_gradients():
    """A mutable default has the name of its parameter, new defaults that of the function."""
    layer = paddle.nn.Linear(3, 3)

    def f(x, seen=[], scale=2.0):  # noqa: B006
        return layer(x) * scale + len(seen)

    static = dy2st.to_static(f)
    static(X)
    f.__defaults__[0].append(1)
    static(X)
    f.__defaults__ = (f.__defaults__[0], 3.0)
    static(X)
    layer.bias.stop_gradient = True
    static(X)
    lines = str(dy2st.explain(static)).splitlines()
    assert lines[2].endswith("2. len(seen) changed from 0 to 1")
    assert "the code or the defaults of f are new" in lines[3]
    assert "`stop_gradient`" in lines[4]


def test_a_loaded_state_names_the_remedy():
    target = paddle.nn.Linear(3, 3)

    @dy2st.to_static
    def f(x):
        target.set_state_dict({"weight": x})

    with pytest.raises(dy2st.SourceError, match=r"p\.set_value\(q\)"):
        f(X)
