"""Translated models give what eager Paddle gives."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from tests import check
from tests.parity.models import recurrent as zoo

pytestmark = pytest.mark.sampled

STEPS = [0, 1, 7, 128]


def floats(*shape):
    return lambda: [paddle.to_tensor(np.random.default_rng(3).normal(size=shape).astype("float32"))]


def tokens(*shape):
    return lambda: [paddle.to_tensor(np.random.default_rng(3).integers(0, 50, shape))]


CASES = {
    "char_lstm": (zoo.CharLSTM, lambda t: tokens(3, t), [InputSpec([None, None], "int64")]),
    "gru": (zoo.GRU, lambda t: floats(3, t, 5), [InputSpec([None, None, 5], "float32")]),
    "rnn": (zoo.VanillaRNN, lambda t: floats(t, 3, 5), [InputSpec([None, None, 5], "float32")]),
    "lif": (zoo.LIF, lambda t: floats(t, 3, 11), [InputSpec([None, None, 11], "float32")]),
    "ssm": (zoo.SSM, lambda t: floats(2, t, 6), [InputSpec([None, None, 6], "float32")]),
    "stacked": (zoo.Stacked, lambda t: floats(3, t, 5), [InputSpec([None, None, 5], "float32")]),
    "nested": (zoo.Nested, lambda t: floats(3, t, 4), [InputSpec([None, None, 4], "float32")]),
}


@pytest.mark.paired
@pytest.mark.quick("char_lstm-0-eval", "gru-1-eval", "rnn-7-eval")
@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", CASES)
def test_fixed_sizes(name, steps, train):
    make, args, _ = CASES[name]
    paddle.seed(1)
    layer = make()
    layer.train() if train else layer.eval()
    check.parity(layer, args(steps))


@pytest.mark.quick("ssm")
@pytest.mark.parametrize("name", CASES)
def test_named_sizes(name):
    make, args, spec = CASES[name]
    paddle.seed(1)
    layer = make()
    for steps in (7, 1, 0, 20):
        check.parity(layer, args(steps), input_spec=spec, calls=2)


@pytest.mark.quick("rnn")
@pytest.mark.parametrize("name", [n for n in CASES])
def test_loops_stay_loops(name):
    make, args, _ = CASES[name]
    static = check.parity(make(), args(40), calls=1)
    report = dy2st.report(static, *args(40)())
    assert {q.kind for q in report.loops} == {"scan"}, str(report)
    assert report.foreign == ()


@pytest.mark.quick("Encoder-<lambda>-train")
@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize(
    "make, args",
    [
        (zoo.MLP, floats(4, 5)),
        (zoo.MLP, floats(0, 5)),
        (zoo.Encoder, floats(2, 6, 8)),
        (lambda: zoo.Encoder(0.0), floats(1, 1, 8)),
    ],
)
def test_without_a_loop(make, args, train):
    paddle.seed(1)
    layer = make()
    layer.train() if train else layer.eval()
    check.parity(layer, args)
