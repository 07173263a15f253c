"""What a cached call costs and touches: no Paddle kernel, no Python per step, one program."""

from __future__ import annotations

import sys

import numpy as np
import paddle
import paddle._C_ops as ops
import pytest
from paddle.static import InputSpec

import dy2st
from executor.cpu import kernel_cache
from tests import check
from tests.parity.models import recurrent as zoo

#: entries that make a tensor object without computing anything
ALLOWED = {"empty"}


def tokens(batch, steps):
    return paddle.to_tensor(np.random.default_rng(0).integers(0, 50, [batch, steps]))


def calls_of(f, *args):
    """How many Python and C functions a call enters."""
    count = [0]

    def note(frame, event, arg):
        count[0] += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        f(*args)
    finally:
        sys.setprofile(None)
    return count[0]


class Kernels:
    """Makes every entry that computes raise, in `_C_ops` and in the operators of Tensor."""

    def __enter__(self):
        tensor = paddle.base.core.eager.Tensor
        self.saved = [(ops, n, getattr(ops, n)) for n in vars(ops) if not n.startswith("_")]
        self.saved += [
            (tensor, n, f)
            for n, f in vars(tensor).items()
            if n.startswith("__") and n.strip("_") in "add mul sub matmul getitem lt"
        ]

        def refuse(*args, **kwargs):
            raise AssertionError("a Paddle kernel ran")

        for owner, n, f in self.saved:
            if callable(f) and n not in ALLOWED:
                setattr(owner, n, refuse)

    def __exit__(self, *error):
        for owner, n, f in self.saved:
            setattr(owner, n, f)


@pytest.mark.sampled
@pytest.mark.quick("LIF-<lambda>", "SSM-<lambda>")
@pytest.mark.parametrize(
    "make, x",
    [
        (zoo.CharLSTM, lambda: tokens(2, 6)),
        (zoo.LIF, lambda: paddle.rand([6, 2, 11])),
        (zoo.SSM, lambda: paddle.rand([2, 6, 6])),
        (lambda: zoo.Encoder(0.0), lambda: paddle.rand([2, 6, 8])),
    ],
)
def test_no_paddle_kernel_runs(make, x):
    static, x = dy2st.to_static(make()), x()
    with paddle.no_grad():
        want = static(x)
        assert dy2st.report(static, x).foreign == ()
        with Kernels():
            with pytest.raises(AssertionError, match="a Paddle kernel ran"):
                paddle.add(paddle.zeros([1]), paddle.zeros([1]))
            have = static(x)
    check.same(have, want, 0, 0)


def test_python_calls_do_not_depend_on_the_length():
    static = dy2st.to_static(zoo.CharLSTM())
    with paddle.no_grad():
        counts = []
        for steps in (3, 50, 400):
            x = tokens(2, steps)
            static(x)
            static(x)
            counts.append(calls_of(static, x))
    assert len(set(counts)) == 1, counts


@pytest.mark.slow
def test_translation_does_not_depend_on_the_length():
    counts = []
    for steps in (50, 50, 2000):
        kernel_cache.clear()
        layer, x = zoo.CharLSTM(), tokens(2, steps)
        counts.append(calls_of(dy2st.to_static(layer).forward.entry, x))
    assert abs(counts[2] - counts[1]) < 0.02 * counts[1], counts


def test_one_program_for_every_length_and_batch():
    layer = zoo.CharLSTM()
    static = dy2st.to_static(layer, input_spec=[InputSpec([None, None], "int64", "tokens")])
    entries = {id(static.forward.entry(tokens(b, s))) for b, s in [(1, 1), (3, 7), (2, 128)]}
    assert len(entries) == 1
    text = str(dy2st.program(static, tokens(2, 5)))
    assert text.count("scan ") == 1 and text.count("write ") == 1
    assert "f32[tokens_0,tokens_1,16]" in text


def test_program_code_and_report_of_a_layer():
    layer = zoo.CharLSTM()
    static = dy2st.to_static(layer)
    assert static is layer
    x = tokens(2, 5)
    assert str(dy2st.program(static, x)) == str(dy2st.program(static.forward, x))
    assert "__dy2st__.for_" in dy2st.code(static)
    assert "scan" in str(dy2st.report(static, x)) and layer.steps.item() == 0


def test_foreign_ops_are_counted_and_run():
    def f(x):
        ys = []
        for t in range(x.shape[0]):
            ys.append(paddle.lgamma(x[t] + 1.0) * 2)
        return paddle.stack(ys), paddle.nn.functional.dropout(x, 0.5)

    x = paddle.rand([4, 3])
    static = dy2st.to_static(f)
    for _ in range(2):
        paddle.seed(5)
        want = f(x)
        after = check.random_state()
        paddle.seed(5)
        check.same(static(x), want)
        assert check.random_state() == after
    assert dy2st.report(static, x).foreign_counts == {"lgamma": 1, "dropout": 1}


@pytest.mark.parametrize(
    "how",
    [
        lambda n: {"full_graph": True},
        lambda n: {"backend": None, "build_strategy": None},
    ],
)
def test_options_of_paddle_are_accepted(how):
    check.same(dy2st.to_static(lambda x: x + 1, **how(1))(paddle.ones([2])), paddle.ones([2]) + 1)


def test_unknown_options_are_refused():
    with pytest.raises(TypeError, match="no option 'fast'"):
        dy2st.to_static(lambda x: x, fast=True)
    with pytest.raises(TypeError, match="a function, a method or a Layer"):
        dy2st.to_static(3)


def results(x, c):
    """The same objects in several places, inputs, constants, containers in containers."""
    y, xs = x + 1.0, [x * 2.0]
    return y, (y, x, c), {"a": xs, 2: xs, "b": None}, [1.5, "text", True, -0.0], xs, ()


def state(x, c):
    c["last"] = x + 1.0
    return {"y": [c["last"], x], "c": c}


@pytest.mark.parametrize("mode", [True, False])
def test_results_of_every_form(mode):
    """Those that need no more than Python's displays are made by the call itself."""
    x = paddle.ones([2, 3])
    x.stop_gradient = False
    pair = lambda x, c: (x * 2.0, [x + 1.0, c, x])  # noqa: E731
    for f in (results, pair):
        static = dy2st.to_static(f)
        with paddle.set_grad_enabled(mode):
            for _ in range(2):
                have, want = static(x, 3), f(x, 3)
                check.same(have, want)
        assert type(static(x, 3)[1]) is type(want[1])
    y, (again, given, c), shared, _, xs, _ = dy2st.to_static(results)(x, 3)
    assert again is y and given is x and c == 3 and shared["a"] is xs is shared[2]
    have, want = {}, {}
    static = dy2st.to_static(state)
    for _ in range(2):
        found, _ = static(x, have), state(x, want)
        check.same(have, want)
        assert found["c"] is have and found["y"][0] is have["last"] and found["y"][1] is x
