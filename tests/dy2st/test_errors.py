"""What a user reads when a function cannot be translated: golden texts."""

from __future__ import annotations

import contextlib
import inspect
import re

import numpy as np
import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from dy2st.library import layer_modes
from dy2st.trace import user_stack
from tests import check
from tests.parity.models import wrong, wrong_data

X = paddle.to_tensor(np.linspace(-1, 1, 24).reshape(2, 3, 4).astype("float32"))
M = paddle.ones([5, 3])
NAMED = [InputSpec([None, None, 4], "float32", "x")]

CASES = {
    "shapes_do_not_fit": ((X, M), None),
    "broadcast_does_not_fit": ((X, M), None),
    "changes_type": ((X,), NAMED),
    "half_named_loop": ((X,), NAMED),
    "asks_for_numpy": ((X,), None),
    "coroutine_inside": ((X,), None),
    "index_out_of_range": ((X,), None),
    "data_dependent_shape": ((X,), None),
    "index_from_data_in_python": ((X,), None),
    "returns_an_object": ((X,), None),
}


@pytest.mark.parametrize("name", CASES)
def test_message(name, golden):
    args, spec = CASES[name]
    before = [a.numpy() for a in args]
    static = dy2st.to_static(getattr(wrong, name), input_spec=spec)
    with pytest.raises(dy2st.SourceError) as caught:
        static(*args)
    assert str(caught.value) == golden
    for a, old in zip(args, before):
        np.testing.assert_array_equal(a.numpy(), old)


def test_every_wrong_function_has_a_golden_message():
    functions = {n for n, f in vars(wrong).items() if inspect.isfunction(f)}
    assert functions == set(CASES)


def state():
    """What the functions of `wrong_data` could have changed."""
    w = wrong_data
    tensors = [p.numpy().tolist() for p in w.layers.parameters()]
    return vars(w.box).copy(), w.history[:], w.table.copy(), w.seen.copy(), w.mode, tensors


@pytest.fixture(autouse=True)
def fresh_box(monkeypatch):
    """Errors leave what the functions have stored before them, also those of other tests."""
    monkeypatch.setattr(wrong_data, "box", wrong_data.Box())


DATA = [n for n, f in vars(wrong_data).items() if inspect.isfunction(f)]


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("name", [n for n in DATA if n not in wrong_data.RUNTIME])
def test_data_message(name, golden):
    """Refused by name before anything is changed, twice in the same words."""
    x, counts = X + 0.25, {}
    args = (x, counts) if name == "counts_in_an_argument" else (x,)
    before, old, random = state(), x.numpy(), check.random_state()
    static = dy2st.to_static(getattr(wrong_data, name))
    texts = []
    for _ in range(2):
        with pytest.raises(dy2st.SourceError) as caught:
            static(*args)
        texts.append(str(caught.value))
    assert texts[0] == golden
    assert texts[1] == texts[0]
    assert state() == before and counts == {} and check.random_state() == random
    np.testing.assert_array_equal(x.numpy(), old)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", wrong_data.RUNTIME)
def test_an_error_that_depends_on_data_is_raised_when_it_is_met(name, sign):
    """Eager's exception, of its type, after what eager has written before."""
    function, static = getattr(wrong_data, name), dy2st.to_static(getattr(wrong_data, name))
    for _ in range(2):
        x, before = paddle.full([2, 3], sign * 4), wrong_data.box.best
        written = x.clone()
        want = check.outcome(function, [written])
        best, wrong_data.box.best = wrong_data.box.best, before
        have = check.outcome(static, [x])
        assert type(have) is type(want)
        if isinstance(want, Exception):
            check.same(wrong_data.box.best, best)
            np.testing.assert_array_equal(x.numpy(), written.numpy())
        else:
            check.same(have, want)


def test_growing_tensor_is_unrolled_with_numbers():
    static = dy2st.to_static(wrong.changes_type)
    np.testing.assert_array_equal(static(X).numpy(), wrong.changes_type(X).numpy())
    (loop,) = dy2st.report(static, X).loops
    assert loop.kind == "unrolled" and "'h' is f32" in loop.reason


def test_source_that_cannot_be_had():
    space: dict = {}
    exec("def f(x):\n    return x + 1", space)
    with pytest.raises(dy2st.SourceError, match="source"):
        dy2st.to_static(space["f"])(X)


def test_argument_that_does_not_fit_its_spec():
    static = dy2st.to_static(lambda x: x + 1, input_spec=NAMED)
    with pytest.raises(dy2st.SourceError, match="does not fit its input_spec"):
        static(paddle.ones([2, 3, 5]))


def test_index_from_data_is_checked():
    def f(i, w):
        return paddle.nn.functional.embedding(i, w)

    static = dy2st.to_static(f)
    table = paddle.ones([3, 2])
    static(paddle.to_tensor([0, 2]), table)
    for bad in ([0, 3], [-1, 0]):
        with pytest.raises(IndexError):
            static(paddle.to_tensor(bad), table)


def test_mixed_precision_that_has_an_effect_is_refused(monkeypatch):
    """auto_cast has none on this CPU, so its level is set by hand."""
    tracer, levels = paddle.base.framework._dygraph_tracer(), paddle.base.core.AmpLevel
    static = dy2st.to_static(lambda x: paddle.matmul(x, x))
    static(paddle.ones([2, 2]))
    monkeypatch.setattr(layer_modes, "MAY_BE_MIXED", True)
    tracer._amp_level = levels.O1
    try:
        with pytest.raises(dy2st.SourceError, match="mixed precision"):
            static(paddle.ones([2, 2]))  # a call that has a program
    finally:
        tracer._amp_level = levels.O0
    static(paddle.ones([2, 2]))

    @contextlib.contextmanager
    def as_on_a_gpu(**options):
        tracer._amp_level = levels.O1
        yield
        tracer._amp_level = levels.O0

    monkeypatch.setattr(paddle.amp, "auto_cast", as_on_a_gpu)
    try:
        with pytest.raises(dy2st.SourceError, match="mixed precision"):
            dy2st.to_static(under_auto_cast)(paddle.ones([2, 2]))
    finally:
        tracer._amp_level = levels.O0


AUTO_CAST = paddle.amp.auto_cast


def under_auto_cast(x):
    with AUTO_CAST(level="O1", dtype="bfloat16"):
        return paddle.matmul(x, x)


@pytest.mark.filterwarnings("ignore:.*makes no effect")
def test_mixed_precision_has_no_effect_on_a_cpu():
    class Net(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.inner = paddle.nn.Linear(4, 4)

        def forward(self, x):
            with paddle.amp.auto_cast(level="O1", dtype="bfloat16"):
                return paddle.tanh(self.inner(x)).mean()

    losses = []
    for translate in (lambda f: f, dy2st.to_static):
        paddle.seed(0)
        net = Net()
        sgd = paddle.optimizer.SGD(0.1, parameters=net.parameters())
        net, sgd = paddle.amp.decorate(net, sgd, level="O2", dtype="bfloat16")
        scaler, call = paddle.amp.GradScaler(), translate(net)
        for _ in range(3):
            with paddle.amp.auto_cast(level="O2"):
                loss = call(paddle.ones([2, 4]))
            scaler.scale(loss).backward()
            scaler.step(sgd)
            scaler.update()
            sgd.clear_grad()
            losses.append(float(loss))
    np.testing.assert_allclose(losses[:3], losses[3:], rtol=1e-6)


def test_without_columns_an_error_marks_the_start_of_its_line(monkeypatch):
    """As on Python 3.10, whose code objects have no `co_positions`."""
    monkeypatch.setattr(user_stack, "_positions", user_stack._lines)
    with pytest.raises(dy2st.SourceError) as caught:
        dy2st.to_static(wrong.index_out_of_range)(X)
    lines = str(caught.value).splitlines()
    mark = next(k for k, line in enumerate(lines) if line.strip() == "^")
    text = lines[mark - 1].split(" | ")[1]
    assert lines[mark].index("^") == lines[mark - 1].index(text.strip())
    assert re.match(rf"  wrong\.py:{lines[mark - 1].split()[0]}, ", lines[2])
