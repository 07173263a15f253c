"""Lowering of data movement: views, copies into views, indexing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from executor.launches import ArgMax, First, Fourier, Gather, Index, Iota, Map, Number64, Order
from executor.lowering.lowerer import Lowerer, axis_of, rule
from executor.memory import View
from ir import OPS, Op, Value
from ir.loc import OutOfRange
from ir.opdef import view_rule
from ir.ops.views import Place, place_of
from ir.scalar import language as k
from ir.types import Dim, Size, Type


# ---------------------------------------------------------------- making
@rule("full")
def full(low: Lowerer, op: Op) -> None:
    v = op.result
    root = k.const(op.attrs["value"], v.type.dtype)
    low.constants[v] = root
    low.natural(v.type.shape, v.name)
    if v in low.uses[-1].updates:
        out = low.fresh(v)
        low.emit(Map(out.shape, (), (root,), (out,)))
        return
    one = low.temporary(v.type.with_shape(()))
    low.scopes[0].launches.append(Map((), (), (root,), (one,)))
    low.bind(v, one.expand(v.type.shape))


@rule("size")
def size(low: Lowerer, op: Op) -> None:
    low.known[op.result] = op.attrs["n"]
    low.emit(Number64(op.attrs["n"], low.fresh(op.result)))


@rule("iota", direct=True)
def iota(low: Lowerer, op: Op) -> None:
    low.emit(Iota(low.fresh(op.result), op.attrs["start"], op.attrs["step"]))


# ---------------------------------------------------------------- views
Indices: TypeAlias = Callable[[Lowerer, Op, Place], tuple[Dim, ...]]
INDICES: dict[str, Indices] = {}


def indices(name: str) -> Callable[[Indices], Indices]:
    """Declare what checks that the view of this name lies within its operand, and returns what its
    indices from data are. A view without it has no such index, and lies within its operand if no
    dim is negative."""

    def declare(f: Indices) -> Indices:
        INDICES[name] = f
        return f

    return declare


def part_of(low: Lowerer, op: Op) -> Callable[[View], View]:
    """The part of its operand that a view shows, or that an op stores into, checked here: its row
    says how it lies."""
    place = place_of(op)
    at = INDICES[place.name](low, op, place) if place.name in INDICES else ()

    def part(v: View) -> View:
        out = view_rule(place.name).layout(v, *at, **place.attrs)
        assert isinstance(out, View)
        return out

    return part


@rule(*(n for n, row in OPS.items() if row.views))
def view(low: Lowerer, op: Op) -> None:
    x = op.operands[0]
    if op.name not in INDICES:
        low.natural(op.result.type.shape, op.result.name)
    low.bind(op.result, part_of(low, op)(low.env[x]))
    keep_constant(low, op)


def keep_constant(low: Lowerer, op: Op) -> None:
    if op.operands[0] in low.constants:
        low.constants[op.result] = low.constants[op.operands[0]]


@rule("reshape")
def reshape(low: Lowerer, op: Op) -> None:
    x, shape = low.env[op.operands[0]], op.result.type.shape
    low.natural(shape, op.result.name)
    out = x.reshape(shape)
    if out is not None:
        low.bind(op.result, out)
        keep_constant(low, op)
        return
    flat = low.fresh(op.result)
    across = flat.reshape(x.shape)
    if across is None:
        own = low.temporary(op.result.type)
        low.bind(op.result, own)
        across = own.reshape(x.shape)
    assert across is not None
    low.copy(x, across)
    low.keep(op.operands[0], across, "its strides do not allow to reshape it")


@rule("expand")
def expand(low: Lowerer, op: Op) -> None:
    low.natural(op.result.type.shape, op.result.name)
    low.bind(op.result, low.env[op.operands[0]].expand(op.result.type.shape))
    keep_constant(low, op)


def check_slice(low: Lowerer, op: Op, axis: int, start: Dim, length: Dim, step: int = 1) -> None:
    """A slice with symbolic bounds must lie inside, unless it is empty."""
    if length == 0:
        return
    text, n = f"{op.name}: outside of axis {axis}", op.operands[0].type.shape[axis]
    final = start + (length - 1) * step
    low.check(length, text, op.loc)
    low.check_if(length, [q for at in (start, final) for q in (at, n - 1 - at)], text, op.loc)


@indices("slice")
def sliced(low: Lowerer, op: Op, place: Place) -> tuple[Dim, ...]:
    a = place.attrs
    check_slice(low, op, a["axis"], a["start"], a["length"], a["step"])
    return ()


@indices("index")
def indexed(low: Lowerer, op: Op, place: Place) -> tuple[Dim, ...]:
    """That it is on its axis is a condition of its row's."""
    return ()


@indices("dynamic_index")
def indexed_by_data(low: Lowerer, op: Op, place: Place) -> tuple[Dim, ...]:
    n = op.operands[0].type.shape[place.attrs["axis"]]
    return (index_symbol(low, op, place.at[0], n),)


@indices("dynamic_slice")
def sliced_by_data(low: Lowerer, op: Op, place: Place) -> tuple[Dim, ...]:
    axis, length = place.attrs["axis"], place.attrs["length"]
    room = op.operands[0].type.shape[axis] - length + 1
    low.natural((length,), "a window")
    low.check(room - 1, f"{op.name}: longer than axis {axis}", op.loc)
    return (index_symbol(low, op, place.at[0], room, wrap=False),)


@rule("index", "dynamic_index")
def element(low: Lowerer, op: Op) -> None:
    """Also of a `tensor_array`, which is no storage."""
    place = place_of(op)
    (at,) = INDICES[op.name](low, op, place) or (place.attrs["index"],)
    low.bind(op.result, low.element(op.operands[0], place.attrs["axis"], at))
    keep_constant(low, op)


@rule("split")
def split(low: Lowerer, op: Op) -> None:
    x = low.env[op.operands[0]]
    axis, start = op.attrs["axis"] % x.ndim, 0
    for v, n in zip(op.results, op.attrs["sections"]):
        check_slice(low, op, axis, start, n)
        low.bind(v, x.slice(axis, start, n))
        start = start + n


def index_symbol(low: Lowerer, op: Op, index: Value, n: Dim, wrap: bool = True) -> Dim:
    """A checked index from data, as a symbol that offsets may use."""
    at = low.known.get(index)
    if isinstance(at, int) and isinstance(n, int) and (-n if wrap else 0) <= at < n:
        return at % n
    if at is not None and _within(low, at, n):
        return at
    key = (low.origin.get(index, index) if at is None else at, n, wrap)
    for scope in low.scopes:
        if key in scope.indices:
            return scope.indices[key]
    name = low.symbol("s")
    error = index_error(low, op, index, n)
    low.emit(Index(name, low.env[index] if at is None else at, n, error, wrap))
    return low.scopes[-1].indices.setdefault(key, Size.named(name))


def _within(low: Lowerer, at: Dim, n: Dim) -> bool:
    """Whether 0 <= at < n, whatever the values of the loop indices in `at`."""
    return low.stays_natural(at) and low.stays_natural(n - 1 - at)


# ---------------------------------------------------------------- writes into a part
def updated(low: Lowerer, op: Op) -> View:
    """Storage of the result with the old value in it."""
    x = op.operands[0]
    out = low.overwrite(op, op.result)
    if out is None:
        out = low.fresh(op.result)
        if out != low.env[x]:
            low.copy(low.env[x], out)
            low.keep(x, out, low.why_kept(x))
    return out


def put(low: Lowerer, y: Value, part: View) -> None:
    source = low.env[y]
    if source.buffer is part.buffer and source != part:
        saved = low.temporary(y.type)
        low.copy(source, saved)
        low.keep(y, saved, "it is stored into the storage that it is a part of")
        source = saved
    if source != part:
        low.copy(source, part)


@rule(*(n for n, row in OPS.items() if row.through))
def store(low: Lowerer, op: Op) -> None:
    part = low.parts.pop(op, None) or part_of(low, op)
    put(low, op.operands[1], part(updated(low, op)))


@rule("concat", "stack", direct=True)
def join(low: Lowerer, op: Op) -> None:
    for x, part in zip(op.operands, parts_of_join(op, low.fresh(op.result))):
        if low.env[x] != part:
            low.copy(low.env[x], part)


@rule("tensor_array", direct=True)
def tensor_array(low: Lowerer, op: Op) -> None:
    """Addresses of the operands, if it is only read at an index; else a copy of them."""
    if op not in low.addressed:
        return join(low, op)
    views = [low.env[v] for v in op.operands]
    if any(v.strides != views[0].strides for v in views):
        views = [v if v.contiguous else _packed(low, v) for v in views]
    low.address(op.result, views)
    return None


def _packed(low: Lowerer, x: View) -> View:
    own = low.temporary(Type(x.dtype, x.shape))
    low.copy(x, own)
    return own


def parts_of_join(op: Op, out: View) -> list[View]:
    """Return the views of the operands of a `concat` or `stack` in its result."""
    axis = op.attrs.get("axis", 0) % out.ndim
    if op.name != "concat":
        return [out.index(axis, n) for n in range(len(op.operands))]
    parts: list[View] = []
    start: Dim = 0
    for v in op.operands:
        n = v.type.shape[axis]
        parts.append(out.slice(axis, start, n))
        start = start + n
    return parts


# ---------------------------------------------------------------- indexing
def index_error(low: Lowerer, op: Op, index: Value, n: Dim) -> int:
    """The error of an index that is not in range; impossible if it surely is."""
    most = low.elements.below(index) if isinstance(n, int) else None
    text = f"{op.name}: an index is out of range for {axis_of(n)}"
    error = low.failure(OutOfRange, text, op.loc)
    if most is not None and isinstance(n, int) and most <= n:
        low.failures[-1] = replace(low.failures[-1], impossible=True)
    return error


@rule("gather", direct=True)
def gather(low: Lowerer, op: Op) -> None:
    (x, index), axis = op.operands, op.attrs["axis"] % op.operands[0].type.ndim
    error = index_error(low, op, index, x.type.shape[axis])
    out = low.fresh(op.result)
    low.emit(Gather(low.env[x], low.env[index], axis, True, -1, out, error))


@rule("embedding", direct=True)
def embedding(low: Lowerer, op: Op) -> None:
    ids, weight = op.operands
    error = index_error(low, op, ids, weight.type.shape[0])
    out = low.fresh(op.result)
    padding = op.attrs["padding_idx"]
    low.emit(Gather(low.env[weight], low.env[ids], 0, False, padding, out, error))


@rule("argmax", direct=True)
def argmax(low: Lowerer, op: Op) -> None:
    x, axis = low.env[op.operands[0]], op.attrs["axis"] % op.operands[0].type.ndim
    low.natural((x.shape[axis] - 1,), "argmax: a tensor")
    out = low.fresh(op.result)
    low.emit(ArgMax(x, axis, out.index(axis, 0) if op.attrs["keepdim"] else out))


@rule("first", direct=True)
def first(low: Lowerer, op: Op) -> None:
    x, axis = low.env[op.operands[0]], op.attrs["axis"] % op.operands[0].type.ndim
    low.natural((x.shape[axis] - op.attrs["count"],), "first: a tensor")
    low.emit(First(x, axis, op.attrs["largest"], low.fresh(op.result)))


@rule("order", direct=True)
def order(low: Lowerer, op: Op) -> None:
    x, a = low.env[op.operands[0]], op.attrs
    axis = a["axis"] % op.operands[0].type.ndim
    low.natural((x.shape[axis] - a["count"],), "order: a tensor")
    low.emit(Order(x, axis, a["count"], a["largest"], a["stable"], low.fresh(op.result)))


@rule("fourier", direct=True)
def fourier(low: Lowerer, op: Op) -> None:
    x, a = low.env[op.operands[0]], dict(op.attrs)
    axis = a.pop("axis") % (x.ndim - (a["kind"] != "analysis"))
    low.emit(Fourier(x, axis, out=low.fresh(op.result), **a))
