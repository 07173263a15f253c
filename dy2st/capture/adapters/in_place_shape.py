"""In-place calls that change the shape or type of an object: `reshape_`, `transpose_`, `cast_`, ...

The object gets another view of its storage, or another storage (`cast_`, and `reshape_` where the
strides forbid a view). Other names of the old storage stay as they are. For an argument the call is
repeated on the caller's tensor after the program has run; a buffer or a global is refused, since
Python sees its real shape while the function is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import paddle
from paddle.base import core

from dy2st.capture import detached_writes
from dy2st.capture.adapters import ADAPTERS
from dy2st.capture.adapters.table import dtype_of
from dy2st.trace.emitter import Emitter, NoRow, grad_enabled, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.memory import fix
from dy2st.trace.signals import NeedsConcrete, Refused
from dy2st.trace.symint import dim_of, is_symint
from dy2st.trace.trace import Trace, TracedInput
from ir import Size, SourceError
from ir.types import evaluate_dim

#: the entries, each with an underscore behind it
SHAPES = ("reshape", "transpose", "squeeze", "unsqueeze", "flatten", "cast")


@dataclass(frozen=True)
class Call:
    """An entry that is called on an argument after the program, with these arguments; `recorded`:
    autograd sees it."""

    entry: str
    args: tuple[object, ...]
    recorded: bool

    def make(self, tensor: Tensor, sizes: Mapping[str, int]) -> None:
        args = [_with_sizes(a, sizes) for a in self.args]
        with paddle.enable_grad() if self.recorded else paddle.no_grad():
            if self.entry == "contiguous":
                tensor.contiguous()
            else:
                getattr(core.eager.ops, self.entry)(tensor, *args)


def in_place(name: str) -> Callable[..., object]:
    """The adapter of `name_`: the object becomes what `name` makes of it."""
    base = ADAPTERS[name]

    def call(e: Emitter, x: Tensor, *args: object, **kwargs: object) -> object:
        fake = lift(e.trace, x)
        e.check_leaf(fake)
        if name == "cast" and dtype_of(*args, **kwargs) == fake._value.type.dtype:
            return detached_writes.write(e, x, e.assign(x))
        made = Call(f"{name}_", tuple(map(_plain, (*args, *kwargs.values()))), grad_enabled())
        return become(e, x, made, lambda fake: base(e, fake, *args, **kwargs))

    return call


def contiguous(e: Emitter, x: Tensor) -> object:
    """Eager Paddle returns the tensor itself: it gets other memory, if it is not contiguous."""
    return become(e, x, Call("contiguous", (), grad_enabled()), e.assign)


def become(e: Emitter, x: Tensor, call: Call, make: Callable[[Tensor], FakeTensor]) -> object:
    """The object `x` becomes what `make` gives; `call` is how an argument becomes it."""
    trace, fake = e.trace, lift(e.trace, x)
    given = next((q for q in trace.inputs.by_id.values() if q.fake is fake), None)
    if given is not None:
        note(e, given, x, call)
    elif call.entry != "contiguous" and detached_writes.has_twin(fake):
        raise refused(e, call.entry, "a tensor that another name holds, too (`x[:]`, `x.detach()`)")
    elif trace.values.frame_of[fake._value] is not trace.frame:
        if trace.frame.branch:
            what = "a tensor from outside of a branch on data, in the branch"
            raise refused(e, call.entry, what)
        raise NeedsConcrete(f"{call.entry} of a tensor from outside of the block")
    old, stops, state = fake._value, fake._stop_gradient, fake.__dict__
    made = make(fake)
    trace.undo_log.note(lambda: state.update(_value=old, _stop_gradient=stops))
    state.update(_value=made._value, _stop_gradient=made.stop_gradient)
    trace.become(old, made._value)
    root = trace.root(made._value)
    if given is not None and root is not trace.root(given.value):
        trace.values.heirs[root] = given.value
    return x


def note(e: Emitter, given: TracedInput, x: Tensor, call: Call) -> None:
    """The caller's tensor will be given the new shape."""
    trace = e.trace
    if given.kind != "arg" or not isinstance(x, FakeTensor):
        raise refused(e, call.entry, f"{given.name}, which is no argument of the call")
    if any(f.branch for f in trace.frames):
        raise refused(e, call.entry, f"the argument {given.name} in a branch on data")
    if trace.frame is not trace.frames[0]:
        raise NeedsConcrete(f"{call.entry} of an argument")
    fix(trace, trace.root(given.value))
    calls = trace.objects.reshaped.setdefault(id(given.tensor), [])
    calls.append(call)
    trace.undo_log.note(calls.pop)


def refused(e: Emitter, entry: str, what: str) -> Refused:
    return Refused(
        SourceError(
            f"{entry} of {what}.",
            e.trace.where(),
            reason="It would change the shape of a tensor that other code sees.",
            remedy=f"Bind a new one: `y = x.{entry.rstrip('_')}(...)`.",
        )
    )


def _plain(a: Any) -> object:
    """An argument for the call on the caller's tensor."""
    if isinstance(a, Tensor):
        raise NoRow("a shape that is a tensor")
    if isinstance(a, (list, tuple)):
        return tuple(map(_plain, a))
    return dim_of(a) if is_symint(a) else a


def _with_sizes(a: Any, sizes: Mapping[str, int]) -> object:
    if isinstance(a, tuple):
        return [_with_sizes(q, sizes) for q in a]
    return evaluate_dim(a, sizes) if isinstance(a, Size) else a


def changes(trace: Trace) -> Sequence[tuple[TracedInput, tuple[Call, ...]]]:
    """What is called on which arguments."""
    return [
        (trace.inputs.by_id[k], tuple(calls))
        for k, calls in trace.objects.reshaped.items()
        if calls
    ]


__all__ = ["SHAPES", "Call", "changes", "contiguous", "in_place"]
