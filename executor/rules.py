"""How the ops without a scalar kernel become launches: views, copies into views, indexing."""

from __future__ import annotations

from executor.launches import ArgMax, Gather, Index, Iota, Map, Number64
from executor.lower import Lowerer, rule
from executor.views import View
from ir import Op, Value
from ir import kernel as k
from ir.types import Dim, Size


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
    low.bind(v, one.expand(v.type.shape), level=0)


@rule("size")
def size(low: Lowerer, op: Op) -> None:
    low.known[op.result] = op.attrs["n"]
    low.emit(Number64(op.attrs["n"], low.fresh(op.result)))


@rule("iota")
def iota(low: Lowerer, op: Op) -> None:
    low.emit(Iota(low.fresh(op.result), op.attrs["start"], op.attrs["step"]))


# ---------------------------------------------------------------- views
def view(low: Lowerer, op: Op, out: View) -> None:
    low.bind(op.result, out, low.level[op.operands[0]])


@rule("reshape")
def reshape(low: Lowerer, op: Op) -> None:
    x, shape = low.env[op.operands[0]], op.result.type.shape
    low.natural(shape, op.result.name)
    out = x.reshape(shape)
    if out is not None:
        view(low, op, out)
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


def keep_constant(low: Lowerer, op: Op) -> None:
    if op.operands[0] in low.constants:
        low.constants[op.result] = low.constants[op.operands[0]]


@rule("transpose")
def transpose(low: Lowerer, op: Op) -> None:
    x = low.env[op.operands[0]]
    view(low, op, x.transpose([p % x.ndim for p in op.attrs["perm"]]))
    keep_constant(low, op)


@rule("expand")
def expand(low: Lowerer, op: Op) -> None:
    low.natural(op.result.type.shape, op.result.name)
    view(low, op, low.env[op.operands[0]].expand(op.result.type.shape))
    keep_constant(low, op)


def check_slice(low: Lowerer, op: Op, x: View, axis: int, start: Dim, length: Dim) -> None:
    """A slice with symbolic bounds must lie inside, unless it is empty."""
    if length == 0:
        return
    text, n = f"{op.name}: outside of axis {axis}", x.shape[axis]
    final = start + (length - 1) * op.attrs.get("step", 1)
    low.check(length, text, op.loc)
    for at in (start, final):
        if isinstance(length, int):
            low.check(at, text, op.loc)
            low.check(n - 1 - at, text, op.loc)
        else:
            low.check(at + 1, text, op.loc)
            low.check(n - at, text, op.loc)


@rule("slice")
def slice_(low: Lowerer, op: Op) -> None:
    x, a = low.env[op.operands[0]], op.attrs
    axis = a["axis"] % x.ndim
    check_slice(low, op, x, axis, a["start"], a["length"])
    view(low, op, x.slice(axis, a["start"], a["length"], a["step"]))
    keep_constant(low, op)


@rule("pick")
def pick(low: Lowerer, op: Op) -> None:
    x, index = low.env[op.operands[0]], op.attrs["index"]
    axis = op.attrs["axis"] % x.ndim
    check_slice(low, op, x, axis, index, 1)
    view(low, op, x.pick(axis, index))
    keep_constant(low, op)


@rule("split")
def split(low: Lowerer, op: Op) -> None:
    x = low.env[op.operands[0]]
    axis, start = op.attrs["axis"] % x.ndim, 0
    for v, n in zip(op.results, op.attrs["sections"]):
        check_slice(low, op, x, axis, start, n)
        low.bind(v, x.slice(axis, start, n), low.level[op.operands[0]])
        start = start + n


def index_symbol(low: Lowerer, op: Op, index: Value, n: Dim, wrap: bool = True) -> Dim:
    """A checked index from data, as a symbol that offsets may use."""
    at = low.known.get(index)
    if isinstance(at, int) and isinstance(n, int) and (-n if wrap else 0) <= at < n:
        return at % n
    name = low.symbol("s")
    error = low.failure(IndexError, f"{op.name}: the index is out of range", op.loc)
    low.emit(Index(name, low.env[index] if at is None else at, n, error, wrap))
    return Size.named(name)


@rule("select")
def select(low: Lowerer, op: Op) -> None:
    x, index = op.operands
    axis = op.attrs["axis"] % x.type.ndim
    at = index_symbol(low, op, index, x.type.shape[axis])
    low.bind(op.result, low.env[x].pick(axis, at))
    keep_constant(low, op)


@rule("window")
def window(low: Lowerer, op: Op) -> None:
    x, index = op.operands
    low.bind(op.result, low.env[x].slice(*window_place(low, op, x, index, op.result)))


def window_place(low: Lowerer, op: Op, x: Value, index: Value, y: Value) -> tuple[int, Dim, Dim]:
    """Axis, start and length; the start is checked."""
    axis = op.attrs["axis"] % x.type.ndim
    length = y.type.shape[axis]
    room = x.type.shape[axis] - length + 1
    low.natural((length,), "a window")
    low.check(room - 1, f"{op.name}: longer than axis {axis}", op.loc)
    return axis, index_symbol(low, op, index, room, wrap=False), length


# ---------------------------------------------------------------- writes into a part
def updated(low: Lowerer, op: Op) -> View:
    """Storage of the result with the old value in it."""
    x = op.operands[0]
    out = low.overwrite(op, op.result)
    if out is None:
        out = low.fresh(op.result)
        if out != low.env[x]:
            low.copy(low.env[x], out)
    return out


def put(low: Lowerer, y: Value, part: View) -> None:
    source = low.env[y]
    if source.buffer is part.buffer and source != part:
        saved = low.temporary(y.type)
        low.copy(source, saved)
        source = saved
    low.copy(source, part)


@rule("set_slice")
def set_slice(low: Lowerer, op: Op) -> None:
    (x, y), a = op.operands, op.attrs
    axis = a["axis"] % x.type.ndim
    length = y.type.shape[axis]
    check_slice(low, op, low.env[x], axis, a["start"], length)
    put(low, y, updated(low, op).slice(axis, a["start"], length, a["step"]))


@rule("set_pick")
def set_pick(low: Lowerer, op: Op) -> None:
    (x, y), axis = op.operands, op.attrs["axis"] % op.result.type.ndim
    check_slice(low, op, low.env[x], axis, op.attrs["index"], 1)
    put(low, y, updated(low, op).pick(axis, op.attrs["index"]))


@rule("set_select")
def set_select(low: Lowerer, op: Op) -> None:
    x, y, index = op.operands
    axis = op.attrs["axis"] % x.type.ndim
    at = index_symbol(low, op, index, x.type.shape[axis])
    put(low, y, updated(low, op).pick(axis, at))


@rule("set_window")
def set_window(low: Lowerer, op: Op) -> None:
    x, y, index = op.operands
    place = window_place(low, op, x, index, y)
    put(low, y, updated(low, op).slice(*place))


@rule("concat")
def concat(low: Lowerer, op: Op) -> None:
    out = low.fresh(op.result)
    axis = op.attrs["axis"] % out.ndim
    start: Dim = 0
    for x in op.operands:
        n = x.type.shape[axis]
        low.copy(low.env[x], out.slice(axis, start, n))
        start = start + n


@rule("stack")
def stack(low: Lowerer, op: Op) -> None:
    out = low.fresh(op.result)
    axis = op.attrs["axis"] % out.ndim
    for n, x in enumerate(op.operands):
        low.copy(low.env[x], out.pick(axis, n))


# ---------------------------------------------------------------- indexing
@rule("gather")
def gather(low: Lowerer, op: Op) -> None:
    (x, index), axis = op.operands, op.attrs["axis"] % op.operands[0].type.ndim
    error = low.failure(IndexError, f"{op.name}: an index is out of range", op.loc)
    out = low.fresh(op.result)
    low.emit(Gather(low.env[x], low.env[index], axis, True, -1, out, error))


@rule("embedding")
def embedding(low: Lowerer, op: Op) -> None:
    ids, weight = op.operands
    error = low.failure(IndexError, f"{op.name}: an index is out of range", op.loc)
    out = low.fresh(op.result)
    padding = op.attrs["padding_idx"]
    low.emit(Gather(low.env[weight], low.env[ids], 0, False, padding, out, error))


@rule("argmax")
def argmax(low: Lowerer, op: Op) -> None:
    x, axis = low.env[op.operands[0]], op.attrs["axis"] % op.operands[0].type.ndim
    low.natural((x.shape[axis] - 1,), "argmax: a tensor")
    out = low.fresh(op.result)
    low.emit(ArgMax(x, axis, out.pick(axis, 0) if op.attrs["keepdim"] else out))
