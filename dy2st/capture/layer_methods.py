"""Replacements of methods of Layers, and of other classes of Paddle, while functions are traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from paddle.nn import Layer

from dy2st.state.containers.layers import class_of, originals
from dy2st.state.guards import HOLDERS
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.trace import current
from dy2st.trace.undo import AttributeLocation

#: layers of Paddle that bring the name of their data format into one form at every call
BATCH_NORMS = tuple(
    getattr(paddle.nn, n) for n in ("BatchNorm1D", "BatchNorm2D", "BatchNorm3D", "SyncBatchNorm")
)


def layer_getattr(original: Callable[..., object]) -> Callable[..., object]:
    """Parameters and buffers are remembered with the place where they were found."""

    def call(layer: object, name: str) -> object:
        found = original(layer, name)
        trace = current()
        watched = isinstance(found, (Tensor, *HOLDERS)) and not isinstance(found, FakeTensor)
        if trace is not None and watched and id(layer) not in trace.objects.picked:
            if (
                trace.guards is not None
                and AttributeLocation(layer, name).key not in trace.objects.stored
            ):
                trace.guards.attr(layer, name, found)
        return found

    return call


def layer_call(original: Callable[..., object]) -> Callable[..., object]:
    """A Layer that Paddle's own code calls (in a Sequential, say) is converted, too."""

    def call(layer: object, *args: object, **kwargs: object) -> object:
        trace = current()
        if trace is None:
            return original(layer, *args, **kwargs)
        return trace.hooks.call_layer(layer, *args, **kwargs)

    return call


def default_dtype(original: Any) -> object:
    """The program depends on the element type of tensors for which none is given."""

    def call(kind: object) -> object:
        found, trace = original.__func__(kind), current()
        if trace is not None and trace.guards is not None:
            trace.guards.default_dtype(kind, found)
        return found

    return classmethod(call)


def layer_setattr(original: Callable[..., object]) -> Callable[..., object]:
    """Stores by code that is not converted go through the undo log, too. A Layer that has no
    attributes is one that the function makes: nobody outside knows it."""

    def call(layer: object, name: str, value: object) -> None:
        trace = current()
        if trace is not None and not vars(layer) and trace.home(layer) is None:
            trace.make(layer)
        if trace is None:
            original(layer, name, value)
        elif name == "_data_format" and class_of(layer) in BATCH_NORMS:
            original(layer, name, value)
            for q in originals(trace, layer):
                original(q, name, value)
                if trace.guards is not None:
                    trace.guards.again(q)
        else:
            trace.store(AttributeLocation(layer, name), value)

    return call


def register_buffer(original: Callable[..., object]) -> Callable[..., object]:
    """A Layer that the function makes may have buffers that the program computes."""

    def call(layer: Layer, name: str, tensor: object, persistable: bool = True) -> None:
        fake = isinstance(tensor, FakeTensor)
        original(layer, name, None if fake else tensor, persistable)
        if fake:
            layer._buffers[name] = tensor

    return call


def parameters_of(original: Callable[..., tuple[object, ...]]) -> Callable[..., object]:
    """Numbers and arrays that a distribution is given; Paddle assigns them to empty tensors."""

    def call(self: object, *args: object) -> tuple[object, ...]:
        if current() is None or any(isinstance(q, Tensor) for q in args):
            return original(self, *args)
        arrays = np.broadcast_arrays(*(np.asarray(q, "float32") for q in args))
        return tuple(paddle.to_tensor(np.array(q)) for q in arrays)

    return call


__all__ = ["default_dtype", "layer_call", "layer_getattr", "layer_setattr", "parameters_of",
           "register_buffer"]  # fmt: skip
