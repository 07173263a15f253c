"""Peephole rewrites of single ops, by op name, each exact to the last bit and with an example.

A rule gets the block and the op, its operands already simplified, and returns the value that
stands for the result, or None. Not exact, hence not here: `x + 0` and `scale(x, scale=1, bias=0)`
turn -0.0 into 0.0; `x * 0` loses NaN; `x - x` likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ir.opdef import OPS
from ir.ops.views import STORES, place_of, span_of, starting_at, view_name
from ir.passes.stores import axis_of, behind
from ir.program import ENDLESS, Fused, Node, Op, Scan, Value
from ir.rewrite import Block
from ir.types import BOOL, I64, Dim, DType, Size, Type, is_natural
from ir.uses import blocks

RewriteRule: TypeAlias = Callable[[Block, Op], "Value | None"]
RULES: dict[str, list[RewriteRule]] = {}


def rule_for(*names: str) -> Callable[[RewriteRule], RewriteRule]:
    def add(rule: RewriteRule) -> RewriteRule:
        for n in names:
            RULES.setdefault(n, []).append(rule)
        return rule

    return add


def may_raise(op: Op) -> bool:
    """Whether the op checks its data when it runs: an index, or a divisor that is an integer."""
    return op.row.may_raise([r.type for r in op.results])


def can_fail(node: Node) -> bool:
    """Whether a node, or one inside of it, may raise or may never end."""
    if isinstance(node, Op):
        return may_raise(node)
    if isinstance(node, Fused):
        return any(map(may_raise, node.body))
    endless = isinstance(node, Scan) and node.trip == ENDLESS
    return endless or any(can_fail(n) for ops, _ in blocks(node) for n in ops)


def full_value(b: Block, v: Value) -> Any:
    """The number that fills `v`, or None."""
    op = b.op_of(v, "full")
    return op.attrs["value"] if op is not None else None


def is_number(b: Block, v: Value, number: float) -> bool:
    """Whether `v` is filled with `number`; the sign of a zero counts for floats."""
    value = full_value(b, v)
    if value is None or value != number:
        return False
    return v.type.dtype.kind != "f" or np.signbit(float(value)) == np.signbit(float(number))


def full(b: Block, value: Any, t: Type) -> Value:
    new: Value = b.full(value=value, shape=t.shape, dtype=t.dtype)
    return new


# ---------------------------------------------------------------- constants
def fold(b: Block, op: Op) -> Value | None:
    """add(full(2), full(3)) => full(5): elementwise ops on filled tensors, by the row's `ref`."""
    row = op.row
    if row.kernel is None or row.ref is None or row.effect or may_raise(op):
        return None
    values = [full_value(b, v) for v in op.operands]
    if not values or any(v is None for v in values):
        return None
    arrays = [np.full((1,), x, v.type.dtype.numpy) for x, v in zip(values, op.operands)]
    with np.errstate(all="ignore"):
        out = np.asarray(row.ref(*arrays, **op.attrs))
    return full(b, out.reshape(()).item(), op.result.type)


@rule_for("size")
def size_of_number(b: Block, op: Op) -> Value | None:
    """size(n=5) => full(value=5, dtype=i64)"""
    n = op.attrs["n"]
    return None if isinstance(n, Size) else b.full(value=n, dtype=I64)


@rule_for("expand", *(n for n, row in OPS.items() if row.views and len(row.operands) == 1))
def view_of_full(b: Block, op: Op) -> Value | None:
    """transpose(full(0, shape=[2, 3]), perm=[1, 0]) => full(0, shape=[3, 2])"""
    value = full_value(b, op.operands[0])
    return None if value is None else full(b, value, op.result.type)


@rule_for("where")
def where_of_constant(b: Block, op: Op) -> Value | None:
    """where(full(True), x, y) => x"""
    test, x, y = op.operands
    value = full_value(b, test)
    if value is None:
        return None
    chosen = x if value else y
    return chosen if chosen.type == op.result.type else None


@rule_for("where")
def where_of_flags(b: Block, op: Op) -> Value | None:
    """where(p, full(True), full(False)) => p for bool; the other way round, logical_not(p)"""
    test, x, y = op.operands
    if x.type.dtype != BOOL or test.type != op.result.type:
        return None
    if is_number(b, x, True) and is_number(b, y, False):
        return test
    return b.logical_not(test) if is_number(b, x, False) and is_number(b, y, True) else None


@rule_for("logical_and", "logical_or")
def flag_and_constant(b: Block, op: Op) -> Value | None:
    """logical_and(x, full(True)) => x; logical_and(x, full(False)) => full(False); or likewise"""
    for x, other in (op.operands, op.operands[::-1]):
        value = full_value(b, other)
        if value is None or x.type != op.result.type:
            continue
        if bool(value) == (op.name == "logical_and"):
            return x
        return full(b, bool(value), op.result.type)
    return None


# ---------------------------------------------------------------- algebra
@rule_for("assign")
def assign_is_its_operand(b: Block, op: Op) -> Value | None:
    """assign(x) => x"""
    return op.operands[0]


@rule_for("multiply", "divide")
def times_one(b: Block, op: Op) -> Value | None:
    """multiply(x, full(1.0)) => x; divide(x, full(1.0)) => x. Only if x has the result's type."""
    x, y = op.operands
    if op.name == "multiply" and is_number(b, x, 1) and y.type == op.result.type:
        return y
    return x if is_number(b, y, 1) and x.type == op.result.type else None


@rule_for("add")
def plus_nothing(b: Block, op: Op) -> Value | None:
    """add(x, full(0)) => x for integers, add(x, full(-0.0)) => x for floats; 0.0 changes -0.0."""
    x, y = op.operands
    nothing = -0.0 if x.type.dtype.kind == "f" else 0
    if is_number(b, x, nothing) and y.type == op.result.type:
        return y
    return x if is_number(b, y, nothing) and x.type == op.result.type else None


@rule_for("subtract")
def minus_nothing(b: Block, op: Op) -> Value | None:
    """subtract(x, full(0)) => x: -0.0 - 0.0 is -0.0."""
    x, y = op.operands
    return x if is_number(b, y, 0) and x.type == op.result.type else None


@rule_for("scale")
def scale_of_integers(b: Block, op: Op) -> Value | None:
    """scale(x, scale=1, bias=0) => x for integers only."""
    x = op.operands[0]
    same = op.attrs["scale"] == 1 and op.attrs["bias"] == 0
    return x if same and x.type.dtype.kind != "f" else None


@rule_for("neg", "logical_not")
def twice_negated(b: Block, op: Op) -> Value | None:
    """neg(neg(x)) => x; logical_not(logical_not(x)) => x for bool"""
    inner = b.op_of(op.operands[0], op.name)
    return inner.operands[0] if inner and inner.operands[0].type == op.result.type else None


# ---------------------------------------------------------------- casts
@rule_for("cast")
def cast_to_itself(b: Block, op: Op) -> Value | None:
    """cast(x, dtype=f32) => x if x is f32"""
    return op.operands[0] if op.operands[0].type == op.result.type else None


@rule_for("cast")
def cast_of_cast(b: Block, op: Op) -> Value | None:
    """cast(cast(x, dtype=f64), dtype=f32) => x for x in f32: the first cast loses nothing."""
    inner = b.op_of(op.operands[0], "cast")
    if inner is None:
        return None
    x = inner.operands[0]
    exact = loses_nothing(x.type.dtype, inner.result.type.dtype)
    return b.cast(x, dtype=op.attrs["dtype"]) if exact else None


def loses_nothing(a: DType, b: DType) -> bool:
    """Whether every value of `a` is a value of `b`."""
    if a == b or (a == BOOL and b.kind != "b"):
        return True
    if a.kind == b.kind:
        return a.bits <= b.bits and a.kind in "iuf" and "bf16" not in (a.name, b.name)
    mantissa = {16: 11, 32: 24, 64: 53}
    if b.kind == "f" and a.kind in "iu" and b.name != "bf16":
        return a.bits - (a.kind == "i") <= mantissa[b.bits]
    return a.kind == "u" and b.kind == "i" and a.bits < b.bits


# ---------------------------------------------------------------- shapes
@rule_for("reshape", "expand")
def same_shape(b: Block, op: Op) -> Value | None:
    """reshape(x, shape=[3, 4]) => x if x has this shape"""
    return op.operands[0] if op.operands[0].type == op.result.type else None


@rule_for("reshape", "expand")
def twice_reshaped(b: Block, op: Op) -> Value | None:
    """reshape(reshape(x, shape=a), shape=b) => reshape(x, shape=b); likewise expand"""
    inner = b.op_of(op.operands[0], op.name)
    if inner is None:
        return None
    return b.emit(op.name, inner.operands, {"shape": op.result.type.shape})[0]


@rule_for("alias")
def same_tensor(b: Block, op: Op) -> Value | None:
    """alias(x) => x"""
    return op.operands[0]


@rule_for("transpose")
def same_order(b: Block, op: Op) -> Value | None:
    """transpose(x, perm=[0, 1]) => x"""
    ndim = op.result.type.ndim
    straight = [p % ndim for p in op.attrs["perm"]] == list(range(ndim))
    return op.operands[0] if straight else None


@rule_for("transpose")
def twice_transposed(b: Block, op: Op) -> Value | None:
    """transpose(transpose(x, perm=p), perm=q) => transpose(x, perm=[p[i] for i in q])"""
    inner = b.op_of(op.operands[0], "transpose")
    if inner is None:
        return None
    ndim = op.result.type.ndim
    perm = tuple(inner.attrs["perm"][q % ndim] % ndim for q in op.attrs["perm"])
    new: Value = b.transpose(inner.operands[0], perm=perm)
    return new


@rule_for("matmul")
def matmul_of_transpose(b: Block, op: Op) -> Value | None:
    """matmul(transpose(x), y) => matmul(x, y, trans_x=True). Only a swap of the last two axes."""
    operands, attrs, found = list(op.operands), dict(op.attrs), False
    for i, flag in enumerate(("trans_x", "trans_y")):
        inner = b.op_of(operands[i], "transpose")
        if inner is None or not swaps_last_two(inner.attrs["perm"]):
            continue
        operands[i], attrs[flag], found = inner.operands[0], not attrs[flag], True
    return b.emit("matmul", operands, attrs)[0] if found else None


def swaps_last_two(perm: tuple[int, ...]) -> bool:
    n = len(perm)
    return n >= 2 and [p % n for p in perm] == [*range(n - 2), n - 1, n - 2]


# ---------------------------------------------------------------- slices
@rule_for("slice")
def whole_slice(b: Block, op: Op) -> Value | None:
    """slice(x, axis=0, start=0, length=4) => x if the axis has 4 elements"""
    x = op.operands[0]
    whole = op.attrs["start"] == 0 and op.attrs["step"] == 1
    return x if whole and x.type == op.result.type else None


@rule_for("slice", "index")
def slice_of_slice(b: Block, op: Op) -> Value | None:
    """slice(slice(x, start=2, length=6), start=1, length=3) => slice(x, start=3, length=3)"""
    inner = b.op_of(op.operands[0], "slice")
    outside, inside = span_of(op), span_of(inner)
    if inner is None or inside is None or outside is None or inside.axis != outside.axis:
        return None
    new = starting_at(op, inside.start + inside.step * outside.start)
    if "step" in new:
        new["step"] = inside.step * outside.step
    return b.emit(op.name, inner.operands, {**new, "axis": outside.axis})[0]


@rule_for("slice", "index")
def slice_of_concat(b: Block, op: Op) -> Value | None:
    """slice(concat(x, y), start=len(x), length=len(y)) => y. Only what lies within one part."""
    inner, span = b.op_of(op.operands[0], "concat"), span_of(op)
    if inner is None or span is None or axis_of(inner) != span.axis or span.step != 1:
        return None
    start = span.start
    for part in inner.operands:
        n = part.type.shape[span.axis]
        if _within(start, span.length, n):
            return b.emit(op.name, [part], {**starting_at(op, start), "axis": span.axis})[0]
        start = start - n
        if isinstance(start, int) and start < 0:
            return None
    return None


def _within(start: Dim, length: Dim, n: Dim) -> bool:
    return is_natural(start) and is_natural(n - length - start)


@rule_for("index")
def pick_of_stack(b: Block, op: Op) -> Value | None:
    """pick(stack(x, y), axis=0, index=1) => y"""
    inner = b.op_of(op.operands[0], "stack", "tensor_array")
    along = 0 if inner is None else inner.attrs.get("axis", 0) % op.operands[0].type.ndim
    same = along == axis_of(op)
    index = op.attrs["index"]
    if inner is None or not same or not isinstance(index, int):
        return None
    return inner.operands[index]


#: of a concat that stands for stores
MOST_PARTS = 16


@rule_for(*STORES)
def read_what_was_set(b: Block, op: Op) -> Value | None:
    """pick(set_pick(x, y, axis=0, index=1), axis=0, index=1) => y"""
    inner = b.op_of(op.operands[0], *STORES.values())
    if inner is None or place_of(op) != place_of(inner):
        return None
    y = inner.operands[1]
    return y if y.type == op.result.type else None


@rule_for(*STORES.values())
def set_again(b: Block, op: Op) -> Value | None:
    """set_pick(set_pick(x, y, axis=0, index=1), z, axis=0, index=1) => set_pick(x, z, ...)"""
    inner = b.op_of(op.operands[0], op.name)
    same = inner is not None and place_of(op) == place_of(inner)
    if inner is None or not same or inner.operands[1].type != op.operands[1].type:
        return None
    return b.emit(op.name, (inner.operands[0], *op.operands[1:]), op.attrs)[0]


@rule_for(*STORES.values())
def set_what_was_read(b: Block, op: Op) -> Value | None:
    """set_pick(x, pick(x, axis=0, index=1), axis=0, index=1) => x"""
    inner = b.op_of(op.operands[1], view_name(op))
    if inner is None or inner.operands[0] is not op.operands[0]:
        return None
    return op.operands[0] if place_of(op) == place_of(inner) else None


@rule_for("set_slice")
def set_everything(b: Block, op: Op) -> Value | None:
    """set_slice(x, y, axis=0, start=0) => y if y has the type of x"""
    whole = op.attrs["start"] == 0 and op.attrs["step"] == 1
    return op.operands[1] if whole and op.operands[1].type == op.result.type else None


@rule_for("set_slice")
def set_in_parts(b: Block, op: Op) -> Value | None:
    """set_slice(set_slice(x, y, axis=0, start=2), z, axis=0, start=0) => concat(z, y)

    If the parts are beside each other and leave nothing of x.
    """
    axis, parts, n = axis_of(op), dict[Dim, Value](), op.result.type.shape[axis_of(op)]
    inner: Op | None = op
    while inner is not None and inner.attrs["step"] == 1 and axis_of(inner) == axis:
        if inner.attrs["start"] in parts or len(parts) == MOST_PARTS:
            return None
        parts[inner.attrs["start"]] = inner.operands[1]
        inner = b.op_of(inner.operands[0], "set_slice")
    at: Dim = 0
    ordered: list[Value] = []
    while at in parts and at != n:
        ordered.append(parts.pop(at))
        at = at + ordered[-1].type.shape[axis]
    whole = at == n and not parts and all(v.type.dtype == op.result.type.dtype for v in ordered)
    return b.concat(*ordered, axis=axis) if whole and len(ordered) > 1 else None


@rule_for("index")
def pick_beside_what_was_set(b: Block, op: Op) -> Value | None:
    """pick(set_pick(x, y, axis=0, index=1), axis=0, index=2) => pick(x, axis=0, index=2)

    All stores beside it are passed at once, as an unrolled loop leaves as many as it has steps.
    """
    source = behind(b, op)
    if source is op.operands[0]:
        return None
    new: Value = b.index(source, **op.attrs)
    return new


__all__ = [
    "RULES",
    "can_fail",
    "fold",
    "full_value",
    "may_raise",
    "rule_for",
    "swaps_last_two",
]
