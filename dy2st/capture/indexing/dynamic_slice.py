"""Dynamic slices: `x[i : i + k]` with bounds that the program computes, a view of k elements.

The length is known when the program is made where both bounds are one value plus constants. Eager
Paddle cuts such a slice when it leaves the axis; the program fails when it runs. Slices with other
bounds are as long as the program finds out (`dy2st.capture.indexing.slices`).
"""

from __future__ import annotations

from dy2st.trace.emitter import Emitter, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.trace import Trace
from ir import Op, Type, Value
from ir.analysis.affine import DIMS, combined
from ir.types import I64, Dim, Size, product

#: ops that may add a constant
MOVES = ("add", "subtract", "scale")
#: expressions of more values are not followed
MOST_VALUES = 100


def window(e: Emitter, x: object, axis: int, item: slice) -> FakeTensor | None:
    """The view, or None for a slice of another kind."""
    first, end = _computed(e, item.start), _computed(e, item.stop)
    if first is None or end is None or item.step not in (None, 1):
        return None
    n, length = e.type(x).shape[axis], _distance(e.trace, first, end)
    if length is None or length <= 0 or isinstance(n, int) and length > n:
        return None
    start = e.trace.fake(first)
    if start._value.type.shape:
        start = e.reshape(start, shape=())
    return e.dynamic_slice(x, e.cast_to(start, I64), axis=axis, length=length)


def _computed(e: Emitter, q: object) -> Value | None:
    """The value of a bound that the program computes."""
    if is_runtime_scalar(q):
        return q.value  # type: ignore[no-any-return]
    if not isinstance(q, Tensor) or e.literal(q) is not None:
        return None
    value: Value = lift(e.trace, q)._value
    return value if value.type.dtype.kind == "i" and value.type.shape in ((), (1,)) else None


def _distance(trace: Trace, first: Value, end: Value) -> int | None:
    """`end - first` where both are one value and a number, which may be `first` itself. Others may
    leave the axis and are cut there: `x[i * n : (i + 1) * n]`."""
    for base in ((first,), ()):
        places = _BoundPolynomials(trace)
        for v in base:
            places.atom(v)
        low, high = places.of(first), places.of(end)
        gap = high - low
        alone = isinstance(low, Size) and [k for names, k in low.terms if names] == [1]
        short = gap == 1 or not places.remainders  # as `x[t % n : t % n + 1]` stays on its axis
        if alone and isinstance(gap, int) and short and not places.changed():
            return gap
    return None


class _BoundPolynomials:
    """Integers as polynomials of others, which have names here. `ops`: those that expressions are
    made of, by the number of their frame; none from outside of frame `first`, the body of the
    innermost loop, which may still write what these read."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.first = max(k for k, f in enumerate(trace.frames) if k == 0 or not f.branch)
        self.found: dict[Value, Dim] = {}
        self.ops: dict[int, set[Op]] = {}
        self.remainders: dict[tuple[Dim, ...], Dim] = {}

    def atom(self, value: Value) -> Dim:
        return self.found.setdefault(value, Size.named(f"#{len(self.found)}"))

    def of(self, value: Value) -> Dim:
        values = self.trace.values
        for k in reversed(range(len(self.trace.frames))):
            if value in self.found:
                return self.found[value]
            if values.frame_of.get(value) is not self.trace.frames[k]:
                continue
            op = self.trace.frames[k].maker(value)
            follows = op is not None and k >= self.first and len(self.found) < MOST_VALUES
            made = self.made(op) if op is not None and follows else None
            if made is not None and op is not None:
                self.ops.setdefault(k, set()).add(op)
                self.found[value] = made
                return made
            if op is not None or value not in values.parent:
                break
            value = values.parent[value]
        return self.atom(value)

    def made(self, op: Op) -> Dim | None:
        if op.name == "full":
            return op.attrs["value"] if type(op.attrs["value"]) is int else None
        if _hands_on(op):
            return self.of(op.operands[0])
        if op.name == "remainder" and op.result.type == Type(I64):
            key = tuple(map(self.operand, op.operands))
            return self.remainders.setdefault(key, Size.named(f"%{len(self.remainders)}"))
        if op.name not in MOVES:
            return None
        return combined(op, [self.operand(v) for v in op.operands], DIMS)

    def operand(self, value: Value) -> Dim:
        elements = self.trace.known(value)
        if elements is not None and len(elements) == 1 and type(elements[0]) is int:
            return elements[0]
        return self.of(value)

    def changed(self) -> bool:
        """Whether a storage that an expression reads may have been written since then."""
        trace, outermost = self.trace, min(self.ops, default=None)
        roots = {trace.root(v) for v in self.found} & trace.values.written
        if not roots or outermost is None:
            return False
        ops = list(trace.frames[outermost].builder.ops)
        first = next(at for at, op in enumerate(ops) if op in self.ops[outermost])
        later = ops[first:] + [op for f in trace.frames[outermost + 1 :] for op in f.builder.ops]
        return any(
            not isinstance(op, Op) or op.row.writes and trace.root(op.operands[0]) in roots
            for op in later
        )


def _hands_on(op: Op) -> bool:
    """Whether the result is the integer that is the operand."""
    if len(op.operands) != 1 or not (op.row.moves_only or op.name == "cast"):
        return False
    t = op.operands[0].type
    return t.dtype.kind == "i" and product(t.shape) == 1


__all__ = ["window"]
