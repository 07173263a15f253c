"""What a user reads when a function cannot be translated: golden texts."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from tests.models import wrong

X = paddle.to_tensor(np.linspace(-1, 1, 24).reshape(2, 3, 4).astype("float32"))
M = paddle.ones([5, 3])
NAMED = [InputSpec([None, None, 4], "float32", "x")]

CASES = {
    "shapes_do_not_fit": ((X, M), None),
    "broadcast_does_not_fit": ((X, M), None),
    "changes_type": ((X,), NAMED),
    "half_named_loop": ((X,), NAMED),
    "asks_for_numpy": ((X,), None),
    "tensor_condition": ((X,), None),
    "tensor_while": ((X,), None),
    "tensor_and": ((X,), None),
    "prints": ((X,), None),
    "coroutine_inside": ((X,), None),
    "assigns_a_global": ((X,), None),
    "appends_to_a_list_from_outside": ((X,), None),
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
    assert wrong.history == [] and wrong.total == 0


def test_every_wrong_function_has_a_golden_message():
    import inspect

    functions = {n for n, f in vars(wrong).items() if inspect.isfunction(f)}
    assert functions == set(CASES)


def test_growing_tensor_is_unrolled_with_numbers():
    static = dy2st.to_static(wrong.changes_type)
    np.testing.assert_array_equal(static(X).numpy(), wrong.changes_type(X).numpy())
    (loop,) = static.report(X).loops
    assert loop.kind == "unrolled" and "h is f32" in loop.reason


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


def test_mixed_precision_is_refused():
    """auto_cast has no effect on this CPU, so its level is set by hand."""
    tracer = paddle.base.framework._dygraph_tracer()
    static = dy2st.to_static(lambda x: paddle.matmul(x, x))
    tracer._amp_level = paddle.base.core.AmpLevel.O1
    try:
        with pytest.raises(dy2st.SourceError, match="mixed precision"):
            static(paddle.ones([2, 2]))
    finally:
        tracer._amp_level = paddle.base.core.AmpLevel.O0
    static(paddle.ones([2, 2]))
