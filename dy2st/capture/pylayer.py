"""User-defined gradients: `paddle.autograd.PyLayer` and tensor hooks.

The forward of a PyLayer is traced where it stands, outside of autograd; a `Custom` node hands its
results on and holds what its backward does (`dy2st.capture.custom`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import paddle

from dy2st.capture.custom import ScratchObject, custom, floating, owner
from dy2st.state.ownership import refuse
from dy2st.trace.emitter import Emitter, grad_enabled, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.signals import Refused
from dy2st.trace.trace import Trace, current
from ir.uses import walk


class PyLayerContext(ScratchObject):
    """The `ctx` of a PyLayer that is traced."""

    def __init__(self) -> None:
        self.container: Any = ()
        self.constant: tuple[object, ...] = ()

    def save_for_backward(self, *tensors: Tensor) -> None:
        self.container = tensors

    def saved_tensor(self) -> object:
        return self.container

    def mark_not_inplace(self, *tensors: Tensor) -> None:
        pass

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        self.constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """The gradient of a result that nothing uses is always zeros here."""

    def set_grad_in_dtype_consistent(self, value: bool) -> None:
        pass


# ---------------------------------------------------------------- PyLayer
def apply(kind: type[paddle.autograd.PyLayer], /, *args: object, **kwargs: object) -> object:
    """`MyFunction.apply(...)`."""
    trace = current()
    assert trace is not None
    context = PyLayerContext()
    trace.objects.made[id(context)] = context
    given = [lift(trace, q) for q in tensors((*args, *kwargs.values()))]
    with paddle.no_grad():
        out = trace.hooks.call(kind.forward)(context, *args, **kwargs)
    if not grad_enabled() or all(q.stop_gradient for q in given):
        forget(trace, context)
        return out
    results = [lift(trace, q) for q in tensors(out)]
    constant = {id(q) for q in context.constant}
    chosen = [q for q in results if floating(q) and id(q) not in constant]
    if not chosen:
        forget(trace, context)
        return out
    what = f"{kind.__name__}.backward"

    def backward(*gradients: Tensor) -> object:
        known = dict(zip(map(id, chosen), gradients))
        every = [known[id(q)] if id(q) in known else zeros(trace, q) for q in results]
        return trace.hooks.call(kind.backward)(context, *every)

    made = custom(trace, given, chosen, backward, what)
    forget(trace, context)
    return replaced(out, dict(zip(map(id, chosen), made)))


def forget(trace: Trace, context: PyLayerContext) -> None:
    """Attributes of a context are no places that outlive the call: a loop carries none of them."""
    stores = trace.frame.stores
    for key in [k for k, place in stores.items() if owner(place) is context]:
        stores.pop(key)


def tensors(x: object) -> Iterator[Tensor]:
    """The tensors in arguments or results, also in lists and tuples."""
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for q in x:
            yield from tensors(q)


def zeros(trace: Trace, fake: FakeTensor) -> FakeTensor:
    t = fake._value.type
    return Emitter(trace).full(0, t.dtype, t.shape)


def replaced(x: object, new: dict[int, Tensor]) -> Any:
    if isinstance(x, (list, tuple)):
        parts = [replaced(q, new) for q in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return new.get(id(x), x)


# ---------------------------------------------------------------- hooks
class HookHandle:
    """The handle that `register_hook` returns; hooks cannot be removed."""

    def remove(self) -> None:
        trace = current()
        raise Refused(
            "a tensor hook is removed in a translated function.",
            trace.where() if trace else None,
            reason="The hook is part of the program.",
            remedy="Register it only in the calls that need it.",
        )


def register_hook(self: Tensor, hook: Callable[[Tensor], Tensor | None]) -> HookHandle:
    """`x.register_hook(f)`: `f` sees the gradient of `x`, and may replace it."""
    trace = current()
    assert trace is not None
    fake = lift(trace, self)
    if fake.stop_gradient:
        raise RuntimeError("Cannot register hook on a tensor that stop gradient.")
    check_unread(trace, fake)

    def backward(gradient: Tensor) -> object:
        new = trace.hooks.call(hook)(gradient)
        return gradient if new is None else new

    (made,) = custom(trace, [fake], [fake], backward, "a tensor hook", saves=False)
    old = fake._value
    trace.undo_log.note(lambda: fake.__dict__.__setitem__("_value", old))
    fake.__dict__["_value"] = made._value
    return HookHandle()


def check_unread(trace: Trace, fake: FakeTensor) -> None:
    """A hook acts on the whole gradient, so it comes before everything that reads the tensor."""
    value = fake._value
    outside = trace.inputs.by_fake(fake) is not None
    nodes = walk(trace.frame.builder.ops)
    read = any(value in node.operands for node in nodes)
    if (
        not outside
        and not read
        and value not in trace.values.parent
        and trace.values.frame_of[value] is trace.frame
    ):
        return
    raise refuse(
        "register_hook in a translated function comes after its tensor has been used.",
        "A hook acts on the whole gradient of a tensor; for parameters, arguments and "
        "views that is known outside only.",
        "Register it in the line after the one that makes the tensor, on a result "
        "of its own (`h = h.clone()`), or outside of the translated function.",
    )


__all__ = ["PyLayerContext", "apply", "register_hook"]
