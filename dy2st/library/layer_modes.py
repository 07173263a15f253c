"""`Layer.train()`, `Layer.eval()`, `rnn.flatten_parameters()`, hooks in converted code; training
mode.

The mode of a Layer is an attribute like any other: the trace stores it in every Layer below, and a
cached call repeats the stores. Which Layers there are is guarded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import paddle
from paddle.base import core
from paddle.nn import Layer

from dy2st.capture.tensor_methods import refuse_training
from dy2st.state.ownership import refuse
from dy2st.trace.signals import Refused
from dy2st.trace.trace import Trace, current
from dy2st.trace.undo import AttributeLocation
from dy2st.trace.user_stack import user_loc
from ir import SourceError


def train(layer: Layer, mode: bool = True) -> Layer:
    trace = current()
    if trace is None:
        return Layer.train(layer, mode)
    if not isinstance(mode, bool):
        raise ValueError("training mode is expected to be boolean")
    return set_mode(trace, layer, mode)


def eval_(layer: Layer) -> Layer:
    trace = current()
    return Layer.eval(layer) if trace is None else set_mode(trace, layer, False)


def set_mode(trace: Trace, layer: Layer, mode: bool) -> Layer:
    for q in layer.sublayers(include_self=True):
        trace.guards.children(q)
        trace.store(AttributeLocation(q, "training"), mode)
    return layer


def flatten_parameters(layer: paddle.nn.Layer) -> None:
    """It moves the parameters' memory for cuDNN and changes no value: nothing to do while a
    function is traced."""
    if current() is None:
        layer.flatten_parameters()


#: whether Paddle has devices on which `auto_cast` does anything: on a CPU it has no effect
MAY_BE_MIXED = core.is_compiled_with_cuda() or core.is_compiled_with_xpu()


def mixed_precision() -> SourceError | None:
    """The error where Paddle's calls would cast their operands to 16 bits."""
    tracer = paddle.base.framework._dygraph_tracer()
    if tracer is None or tracer._amp_level == core.AmpLevel.O0:
        return None
    return SourceError(
        "automatic mixed precision is on.",
        user_loc(),
        reason="The casts of auto_cast, which Paddle makes on a GPU, are not translated.",
        remedy="Call the translated function outside of paddle.amp.auto_cast, or write "
        "`enable=False`.",
    )


def within_paddles_program() -> SourceError | None:
    """The error where Paddle is making a program of its own (`paddle.jit.save`)."""
    if paddle.in_dynamic_mode():
        return None
    return SourceError(
        "a translated function is called while Paddle makes a program of its own.",
        user_loc(),
        reason="paddle.jit.save, paddle.jit.to_static and Model.save(training=False) call it with "
        "variables of that program.",
        remedy="Save it by dy2st.save; or give Paddle a Layer that has not been translated.",
    )


@contextlib.contextmanager
def auto_cast(*args: object, **kwargs: object) -> Iterator[None]:
    """`paddle.amp.auto_cast` in a function that is traced."""
    with paddle.amp.auto_cast(*args, **kwargs):
        error = mixed_precision()
        if error is not None:
            raise Refused(error)
        yield


#: methods of Layers, by the `id` of their functions
METHODS: dict[int, Callable[..., object]] = {
    id(Layer.train): train,
    id(Layer.eval): eval_,
    id(paddle.nn.layer.rnn.RNNBase.flatten_parameters): flatten_parameters,
}


def check_hooks(layer: paddle.nn.Layer) -> None:
    if layer._forward_post_hooks_always_called:
        raise refuse(
            f"a hook of {type(layer).__name__} is registered with always_call=True.",
            "It would also have to run where the program fails.",
            "Register it without always_call.",
        )


# ---------------------------------------------------------------- whole training steps
def backward(*args: object, **kwargs: object) -> object:
    raise refuse_training("paddle.autograd.backward()")


TRAINING_STEPS: dict[int, Callable[..., object]] = {
    id(paddle.autograd.backward): backward,
    id(paddle.amp.auto_cast): auto_cast,
}
