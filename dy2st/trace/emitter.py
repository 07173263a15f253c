"""Emitting ops of the table on fake tensors, and lifting real tensors to inputs of the program.

`e.add(x, y)` appends the op to the current frame of the trace and returns the fake tensor of its
result, with the `stop_gradient` that eager Paddle would give it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paddle.base import framework

from dy2st.trace.fake_tensor import FakeTensor, Tensor, type_of
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.signals import Refused
from dy2st.trace.symint import dim_of, is_symint
from dy2st.trace.trace import Trace
from ir import OPS, SourceError, Value
from ir.autodiff.activity import passing
from ir.opdef import OpDef, no_gradient
from ir.types import BF16, I64, DType, Size

#: in-place entries of Paddle that leave the version of the tensor as it was
QUIET = frozenset(("exponential_",))


class NoRow(Exception):
    """No row covers this call."""


def grad_enabled() -> bool:
    tracer = framework._dygraph_tracer()
    return bool(tracer is None or tracer._has_grad)


def lift(trace: Trace, tensor: Tensor) -> FakeTensor:
    """The fake tensor of a real one, which becomes an input of the program, once per object."""
    if isinstance(tensor, FakeTensor):
        return tensor
    known = trace.inputs.by_id.get(id(tensor))
    if known is not None:
        return known.fake
    kind, name = trace.inputs.names.get(id(tensor), ("buffer", ""))
    if not name:
        place = trace.place_of(tensor)
        name = str(place) if place is not None else f"tensor_{len(trace.inputs.by_id)}"
    try:
        if not tensor._is_initialized() and 0 not in tensor.shape:
            raise TypeError("a tensor without storage")
        type = type_of(tensor)
        if type.dtype == BF16:
            raise TypeError("bfloat16 tensors are not covered yet")
    except TypeError as e:
        raise Refused(SourceError(f"{name} cannot become an input: {e}.", trace.where())) from None
    return trace.add_input(tensor, kind, name, type)


def detached(trace: Trace, value: Value) -> Value:
    """A value of the same storage that carries no gradient."""
    if value.type.dtype.kind != "f" and value not in trace.autograd.trained:
        return value
    out: Value = trace.emit("detach", [value], {})
    trace.aliasing.detached[out] = value
    return out


class Emitter:
    """Emits ops. `e.add(x, y)` takes and returns fake tensors."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.stop_gradient = True
        self.trained: set[Value] = set()

    def value(self, x: Any) -> Value:
        """The value of an operand: a tensor, a runtime scalar, or an index."""
        if isinstance(x, Tensor):
            fake = lift(self.trace, x)
            if fake.stop_gradient:
                return fake._value
            if not grad_enabled():
                return detached(self.trace, fake._value)
            self.trained.add(fake._value)
            return fake._value
        if is_runtime_scalar(x):
            return x.value
        if is_symint(x) or type(x) is int:
            return self.trace.index_value(x)
        raise NoRow(f"an operand of type {type(x).__name__}")

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*operands: Any, **attrs: Any) -> Any:
            values = [self.value(x) for x in operands]
            out = self.trace.emit(name, values, attrs)
            results = out if isinstance(out, tuple) else (out,)
            stop = not self.passes(OPS[name], values, results)
            made = tuple(self.wrap(q, stop) for q in results)
            return made if isinstance(out, tuple) else made[0]

        return call

    def passes(self, row: OpDef, values: Sequence[Value], results: Sequence[Value]) -> bool:
        """Whether the results of an op require a gradient. Floats do if something did that this
        call has read so far."""
        given = self.trained.intersection(passing(row, values, results))
        self.stop_gradient = self.stop_gradient and not given
        floating = all(v.type.dtype.kind == "f" for v in results)
        return not self.stop_gradient if floating and row.grad is not no_gradient else bool(given)

    def wrap(self, value: Value, stop: bool = True) -> FakeTensor:
        made: FakeTensor = self.trace.fake(value, stop or not grad_enabled())
        return made

    def check_leaf(self, fake: FakeTensor, root: bool = False) -> None:
        """Refuse an in-place call on a leaf that requires a gradient; with `root` also a call
        through a view of such a leaf, because eager Paddle would give the leaf the gradient of its
        new values.
        """
        if not grad_enabled() or fake.stop_gradient and not root:
            return
        base = self.trace.root(fake._value) if root else None
        for q in self.trace.inputs.by_id.values():
            if not (q.fake is fake or q.value is base):
                continue
            if not q.tensor.stop_gradient and q.tensor.is_leaf:
                raise Refused(
                    SourceError(
                        f"{q.name} requires a gradient and is written in place.",
                        self.trace.where(),
                        reason="Eager Paddle refuses this for leaf tensors, too."
                        if q.fake is fake
                        else "It is a leaf; through a view its gradient would be that of other "
                        "values.",
                        remedy="Write under `paddle.no_grad()`.",
                    )
                )

    # ------------------------------------------------------------ conveniences for adapters
    def type(self, x: Tensor) -> Any:
        return lift(self.trace, x)._value.type

    def full(self, value: Any, dtype: DType, shape: Sequence[Any] = ()) -> FakeTensor:
        dims = tuple(d if isinstance(d, Size) else dim_of(d) for d in shape)
        attrs = {"value": value, "shape": dims, "dtype": dtype}
        out = self.wrap(self.trace.emit("full", [], attrs))
        if dims in ((), (1,)):
            self.trace.values.literals[out._value] = value
        return out

    def literal(self, x: Any) -> Any:
        """The constant value of a one-element tensor as a Python number; None if it is not
        constant."""
        if not isinstance(x, Tensor):
            return x
        return self.trace.values.literals.get(x._value) if isinstance(x, FakeTensor) else None

    def cast_to(self, x: Any, dtype: DType) -> Any:
        return x if self.type(x).dtype == dtype else self.cast(x, dtype=dtype)

    def scalar(self, n: Any, dtype: DType) -> FakeTensor:
        """A Python number, or a Sym, as a 0-d tensor."""
        if is_runtime_scalar(n):
            return (
                self.wrap(self.trace.emit("cast", [n.value], {"dtype": dtype}))
                if n.value.type.dtype != dtype
                else self.trace.fake(n.value)
            )
        if is_symint(n):
            index = self.wrap(self.trace.index_value(n))
            return index if dtype == I64 else self.cast(index, dtype=dtype)
        return self.full(n, dtype)
