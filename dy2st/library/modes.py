"""`Layer.train()`, `Layer.eval()`, `rnn.flatten_parameters()`, hooks in converted code; training.

The mode of a Layer is an attribute like any other: the trace stores it in every Layer below, and a
cached call repeats the stores. Which Layers there are is guarded.
"""

from __future__ import annotations

from collections.abc import Callable

import paddle
from paddle.nn import Layer

from dy2st.capture.tensor_methods import refuse_training
from dy2st.state.ownership import refuse
from dy2st.trace.trace import Trace, current
from dy2st.trace.undo import Attr


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
        trace.store(Attr(q, "training"), mode)
    return layer


def flatten_parameters(layer: paddle.nn.Layer) -> None:
    """It moves the parameters' memory for cuDNN and changes no value: nothing to do while a
    function is traced."""
    if current() is None:
        layer.flatten_parameters()


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


TRAINING_STEPS: dict[int, Callable[..., object]] = {id(paddle.autograd.backward): backward}
