"""Elements of a sequence at an index known only at run time: `sigmas[t]`, `frames[order[t]]`.

Numbers become a constant tensor, tensors of one type an array of tensors in front of the loop,
tuples are taken part by part; the element is a row. One Layer stands for Layers of one structure.
Other elements are Python's own, and so is the index.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NoReturn, TypeGuard

import numpy as np
import paddle
from paddle.base.framework import EagerParamBase

from dy2st.state.containers.layers import (
    LayerTable,
    SelectedLayer,
    class_of,
    difference,
    differs,
    equal,
    is_each_once,
    is_updated,
    kind_of_part,
)
from dy2st.state.containers.records import regrouped
from dy2st.state.stacked_run import mapped
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import (
    DTYPES,
    RuntimeScalar,
    arithmetic,
    check,
    compare,
    is_runtime_scalar,
    kind_of,
    stop,
    value_in,
)
from dy2st.trace.signals import NeedsConcrete, Refused
from dy2st.trace.symint import SymInt, bounds, is_symint
from dy2st.trace.trace import Frame, Trace, TracedLoop
from dy2st.trace.trace_state import Lookup
from ir import Size, Type, Value
from ir.types import I64, line, names_in

#: NumPy's scalars that are numbers of Python to a program
NUMPY: dict[type, type] = {np.float64: float, np.int64: int, np.bool_: bool}
PICKED = "A list that holds it is read at an index of the program."
#: numbers of the program in one table
MOST_COMPUTED = 256
#: elements of which one can be called that data chooses
CALLED = (
    paddle.nn.Layer, types.FunctionType, types.BuiltinFunctionType, types.MethodType,
    functools.partial,
)  # fmt: skip
#: Layers that are read like lists
LISTS = (paddle.nn.LayerList, paddle.nn.Sequential, paddle.nn.ParameterList)
#: a loop over so few elements is unrolled: an inner one, which makes one body of it, and one over
#: Layers or parameters, or over a list itself
MOST_UNROLLED = 8
#: the layers of a model: so many iterations are translated in a few seconds
MOST_WRITTEN_OUT = 64
#: bytes of a tensor that a loop over layers copies, if it writes it
MOST_COPIED = 1 << 14


def is_later(i: object) -> TypeGuard[SymInt | RuntimeScalar]:
    return is_symint(i) or is_runtime_scalar(i) and i.kind is not float


def is_sequence(x: Any) -> bool:
    """A list, tuple, range, or array of numbers, of which a program can read any element."""
    if issubclass(type(x), np.ndarray):
        return x.ndim == 1 and x.dtype in (np.float64, np.int64, np.bool_)  # type: ignore[no-any-return]
    return type(x) in (list, tuple, range) or isinstance(x, tuple) and hasattr(x, "_fields")


def is_holder(x: object) -> TypeGuard[paddle.nn.Layer]:
    """Whether `x` is a Layer that is read like a list."""
    if not isinstance(x, LISTS):
        return False
    cls: type = class_of(x)
    base = next(c for c in cls.__mro__ if c in LISTS)
    return all(getattr(cls, n) is getattr(base, n) for n in ("__getitem__", "__len__", "__iter__"))


def one_kind(items: Sequence[object]) -> bool:
    """Whether all are numbers, and of one kind."""
    kinds = {NUMPY.get(type(q)) or kind_of(q) for q in items}
    return len(kinds) == 1 and None not in kinds


def are_alike(items: Sequence[object]) -> bool:
    """Whether all are numbers of one kind, or tensors or Layers of one structure, or tuples of
    such."""
    if isinstance(items, np.ndarray) or one_kind(items):
        return True
    first = items[0]
    if isinstance(first, tuple):
        same = all(type(q) is type(first) and len(q) == len(first) for q in items)
        return same and all(are_alike(column) for column in zip(*items))
    if isinstance(first, paddle.nn.Layer):
        return all(isinstance(q, paddle.nn.Layer) for q in items) and not difference(items)
    tensors = all(isinstance(q, Tensor) and not hasattr(q, "part_of") for q in items)
    return tensors and len(set(map(kind_of_part, items))) == 1


def element(
    trace: Trace, owner: object, items: Sequence[Any], i: RuntimeScalar | SymInt, kind: str
) -> Any:
    """`items[i]`, which are the elements of `owner` now; raises NeedsConcrete where they cannot be
    one tensor."""
    refuse_short(trace, i.loops)
    if len(items) and type(items) is not range and all(q is None for q in items):
        row(trace, i, len(items), kind)
        return None
    items, i, which = picked_only(trace, items, i)
    found = trace.objects.lookups.get((id(owner), which))
    same = found is not None and found.holds(items, trace.frames, trace.values.writes)
    if found is None or not (same and all(q.holds(i.loops) for q in tables_of(found.table))):
        try:
            found = looked_up(trace, owner, items, i.loops)
            trace.objects.lookups[id(owner), which] = found
        except NeedsConcrete as e:
            if is_runtime_scalar(i) and i.data and len(items) and all(map(is_called, items)):
                at = row(trace, i, len(items), kind)._value
                return SelectedObject(tuple(items), RuntimeScalar(at, trace))
            raise stop(i, "a list index") if is_runtime_scalar(i) and i.data else e from None
    at = row(trace, i, len(items), kind)
    inner = trace.frames[trace.frames.index(found.home) + 1 :]

    def pick(table: LookupTable | LayerTable) -> object:
        if isinstance(table, LayerTable):
            note_layers(i.loops)
        return table.item(trace, at, i, inner)

    return mapped(pick, found.table)


def picked_only(trace: Trace, items: Any, i: object) -> tuple[Any, Any, range | None]:
    """Return the elements that iterations of loops pick, the index among these, and their range,
    None if they pick all. Elements that are not picked get no gradient, as in eager."""
    if not is_symint(i) or not isinstance(items, (list, tuple)):
        return items, i, None
    which, at = reached(trace, i)
    if not 0 < len(which) < len(items) or min(which) < 0 or max(which) >= len(items):
        return items, i, None
    return [items[k] for k in which], at, which


def reached(trace: Trace, i: Any) -> tuple[range, Any]:
    """The numbers that an index may be, and where among them it is; none if that is not known."""
    loop = next(iter(i.loops)) if len(i.loops) == 1 else None
    if loop is not None and isinstance(loop.trip, int) and names_in(i.dim) == {loop.name}:
        first, step = line(i.dim, loop.name) or (None, None)
        if isinstance(first, int) and isinstance(step, int):
            at = trace.sym(Size.named(loop.name))
            return range(first, first + step * loop.trip, step), at
    least, most = bounds(i.dim, trace) or (None, None)
    if isinstance(least, int) and isinstance(most, int):
        return range(least, most + 1), i - least
    return range(0), i


def is_called(x: object) -> bool:
    return isinstance(x, CALLED)


class SelectedObject:
    """One of several Layers or functions, of which the program knows the index. It can be called,
    and nothing else."""

    __slots__ = ("at", "items")

    def __init__(self, items: tuple[object, ...], at: RuntimeScalar) -> None:
        self.items, self.at = items, at

    def refused(self, what: str) -> Refused:
        return Refused(
            f"{what} a Layer or function that data chooses.",
            self.at.home.where(),
            reason="Which one it is, is known only when the program runs.",
            remedy="Call it, `layers[i](x)`, and compute with what it returns.",
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self.refused(f"the attribute {name} is read of")

    def __eq__(self, other: object) -> NoReturn:
        raise self.refused("a comparison with")

    def __hash__(self) -> NoReturn:
        raise self.refused("a dict or set is asked for")

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise self.refused("code that is not translated calls")


SelectedObject.__name__ = SelectedObject.__qualname__ = "function that data chooses"


def looked_up(
    trace: Trace, owner: object, items: Sequence[object], loops: frozenset[TracedLoop]
) -> Lookup:
    """The tables of a sequence, in the outermost frame that knows all of its elements."""
    kept = items.copy() if isinstance(items, np.ndarray) else tuple(items)
    values = [q.value if is_runtime_scalar(q) else lift(trace, q)._value for q in flat(items)]
    homes = [trace.values.frame_of[v] for v in values]
    if any(f not in trace.frames for f in homes):
        raise NeedsConcrete("a tensor of an earlier iteration is in a list")
    home = max(map(trace.frames.index, homes), default=0)
    with at_frame(trace, home):
        tables = table(trace, items, loops)
    written = {root: trace.values.writes.get(root, 0) for root in map(trace.root, values)}
    return Lookup(owner, kept, tables, trace.frames[home], written)


def refuse_short(trace: Trace, loops: frozenset[TracedLoop]) -> None:
    """A short loop in another one is unrolled."""
    bodies = [f.loop for f in trace.frames if f.loop is not None]
    if len(bodies) > 1 and bodies[-1] in loops and is_short(bodies[-1]):
        raise NeedsConcrete("is in a short inner loop", [bodies[-1]], subject="an index", few=True)


def is_short(loop: TracedLoop) -> bool:
    return isinstance(loop.trip, int) and loop.trip <= MOST_UNROLLED


def note_layers(loops: frozenset[TracedLoop]) -> None:
    for loop in loops:
        loop.layers = True


def refuse_few(loops: frozenset[TracedLoop], kind: str) -> None:
    """A short loop over Layers or parameters is unrolled."""
    if loops and all(map(is_short, loops)):
        raise NeedsConcrete(f"picks {kind}", loops, subject="an index", few=True)


# ---------------------------------------------------------------- tables
class LookupTable:
    """Rows along the first axis of `fake`: numbers, or copies of the `members`.

    `key`: which tensors the members are, if a loop may write them. `written`: the members, in a
    table that a loop writes: the rows are theirs until it ends.
    """

    def __init__(
        self,
        fake: FakeTensor,
        number: bool,
        members: Sequence[Value] = (),
        key: tuple[int, ...] = (),
        written: Sequence[FakeTensor] = (),
    ) -> None:
        self.fake, self.number, self.members = fake, number, members
        self.key, self.written = key, written

    def holds(self, loops: frozenset[Any]) -> bool:
        """Whether the loops write the members no more than the table is made for."""
        return bool(self.written) or not self.key or not is_updated(loops, self.key)

    def item(
        self, trace: Trace, at: object, i: RuntimeScalar | SymInt, inner: Sequence[Frame]
    ) -> object:
        """The row `at`; `inner`: the frames in the one of the table."""
        one = self.fake[at]
        if self.number:
            return RuntimeScalar(one._value, trace, i.loops, i.data)
        loop = next((f.loop for f in inner if f.loop in i.loops), None)
        trace.values.copies[one._value] = tuple(self.members)
        whole = trace.root(self.fake._value)
        if loop is not None:
            once = is_each_once(trace, i, len(self.members), inner)
            inner[0].tables[whole] = (self.members, self.key if once else ())
            if once and self.written:
                inner[0].updates[whole] = self
                return one
        for root in map(trace.root, (self.fake._value, *self.members)):
            if any(root in f.written for f in inner):
                raise NeedsConcrete("a tensor of a list that an index reads is written", i.loops)
            trace.freeze(root, PICKED, loop)
        return one


def tables_of(tree: object) -> Iterator[LookupTable]:
    if isinstance(tree, tuple):
        for part in tree:
            yield from tables_of(part)
    elif isinstance(tree, LookupTable):
        yield tree


def forget(trace: Trace, loop: TracedLoop) -> None:
    """The loop is not rolled this time: it has no copies of elements."""
    frozen = trace.values.frozen
    for root in [q for q, why in frozen.items() if why == (PICKED, loop)]:
        del frozen[root]


def flat(items: Sequence[object]) -> Iterator[object]:
    """The tensors and numbers of the program among elements."""
    if isinstance(items, (range, np.ndarray)):
        return
    for q in items:
        if isinstance(q, tuple):
            yield from flat(q)
        elif isinstance(q, Tensor) or is_runtime_scalar(q):
            yield q


def table(trace: Trace, items: Sequence[Any], loops: frozenset[TracedLoop]) -> object:
    if not len(items):
        raise IndexError("list index out of range")
    first = items[0]
    if isinstance(first, tuple):
        if not all(type(q) is type(first) and len(q) == len(first) for q in items):
            raise unlike("picks tuples of different structure", loops)
        parts = [table(trace, [q[k] for q in items], loops) for k in range(len(first))]
        return regrouped(first, parts)
    if isinstance(first, Tensor) and not hasattr(first, "part_of"):
        return of_tensors(trace, items, loops)
    if all(isinstance(q, paddle.nn.Layer) for q in items):
        return of_layers(items, loops)
    return of_numbers(trace, items, loops)


def unlike(reason: str, loops: frozenset[TracedLoop]) -> NeedsConcrete:
    """The elements are Python's own."""
    return NeedsConcrete(reason, loops, subject="an index", own=True)


def of_tensors(trace: Trace, items: Sequence[object], loops: frozenset[TracedLoop]) -> LookupTable:
    if not all(isinstance(q, Tensor) and not hasattr(q, "part_of") for q in items):
        raise unlike("picks tensors or other objects", loops)
    fakes = [lift(trace, q) for q in items]
    if len({(q._value.type, q.stop_gradient) for q in fakes}) > 1:
        raise unlike("picks tensors of different types", loops)
    if any(isinstance(q, EagerParamBase) for q in items):
        note_layers(loops)
        refuse_few(loops, "a parameter")
    values = [q._value for q in fakes]
    alone = fakes[0].stop_gradient and len(set(map(trace.root, values))) == len(values)
    alone = alone and all(trace.root(v) is v for v in values) and is_copied(values[0].type, loops)
    key = tuple(map(id, items)) if alone else ()
    written = is_updated(loops, key)
    attrs = {"axis": 0} if written else {}
    whole = trace.emit("stack" if written else "tensor_array", values, attrs)
    fake = trace.fake(whole, fakes[0].stop_gradient)
    return LookupTable(fake, False, values, key, fakes if written else ())


def is_copied(t: Type, loops: frozenset[TracedLoop]) -> bool:
    """Whether a loop that writes such tensors has copies of them: what is large, a cache, costs
    more to copy in every call than a loop over layers saves."""
    dims = [d for d in t.shape if isinstance(d, int)]
    small = len(dims) == t.ndim and math.prod(dims) * t.dtype.bits <= MOST_COPIED * 8
    return small or any(not isinstance(q.trip, int) or q.trip > MOST_WRITTEN_OUT for q in loops)


def of_layers(items: Sequence[object], loops: frozenset[TracedLoop]) -> LayerTable:
    note_layers(loops)
    refuse_few(loops, "a Layer")
    why = difference(items)
    if why or not loops:
        raise unlike(why or "picks a Layer", loops)
    return LayerTable(items, merged)


def merged(trace: Trace, picked: SelectedLayer, name: str, values: list[Any]) -> Any:
    """The attribute of a stand-in from those of the Layers."""
    if equal(values):
        return values[0]
    kinds = (Tensor, paddle.nn.Layer)
    if not (all(isinstance(q, kinds) for q in values) or one_kind(values)):
        raise picked.stop(differs(name))
    if all(type(q) is int for q in values):
        step = values[1] - values[0]
        if values == [values[0] + step * k for k in range(len(values))]:
            return picked.at * step + values[0]
    owner = picked.owners.setdefault(name, object())
    return element(trace, owner, values, picked.at, "list")


def of_numbers(trace: Trace, items: Sequence[object], loops: frozenset[TracedLoop]) -> LookupTable:
    if not isinstance(items, (range, np.ndarray)):
        if not one_kind(items):
            raise unlike(f"picks {picked(items)}", loops)
        if any(is_symint(q) or is_runtime_scalar(q) for q in items):
            return of_computed(trace, items, loops)
    try:
        array = np.array(items)
        fits = array.dtype in (np.float64, np.int64, np.bool_)
    except OverflowError:
        fits = False
    if not fits:
        raise NeedsConcrete("picks integers of more than 64 bits", loops, subject="an index")
    name = f"numbers_{sum(q.kind == 'const' for q in trace.inputs.by_id.values())}"
    with trace.pause():
        real = paddle.to_tensor(array)
    dtype = DTYPES[{"f": float, "i": int, "b": bool}[array.dtype.kind]]
    return LookupTable(trace.add_input(real, "const", name, Type(dtype, (len(array),))), True)


def picked(items: Sequence[object]) -> str:
    """The elements in words: what they are, if all are of one kind."""
    kinds = set(map(kind_in_words, items))
    return kinds.pop() if len(kinds) == 1 else "objects of different types"


def kind_in_words(x: object) -> str:
    if isinstance(x, paddle.nn.Layer):
        return "a Layer"
    if x is None or hasattr(x, "part_of"):
        return "None" if x is None else "a tensor that gets longer"
    return "a function" if callable(x) else f"a {type(x).__name__}"


def of_computed(trace: Trace, items: Sequence[object], loops: frozenset[TracedLoop]) -> LookupTable:
    """Numbers of which the program computes some."""
    if len(items) > MOST_COMPUTED:
        reason = "picks one of many numbers that the program computes"
        raise NeedsConcrete(reason, loops, subject="an index")
    dtype = DTYPES[kind_of(items[0])]  # type: ignore[index]
    values = [value_in(trace, q, dtype) for q in items]
    rows = [trace.emit("reshape", [v], {"shape": (1,)}) for v in values]
    return LookupTable(trace.fake(trace.emit("concat", rows, {"axis": 0})), True)


@contextmanager
def at_frame(trace: Trace, k: int) -> Iterator[None]:
    """Ops are emitted in frame `k`."""
    inner, trace.frames[k + 1 :] = trace.frames[k + 1 :], []
    try:
        yield
    finally:
        trace.frames[k + 1 :] = inner


def outside(trace: Trace, frame: Frame) -> AbstractContextManager[None]:
    """Ops are emitted in front of the loop of this frame."""
    return at_frame(trace, trace.frames.index(frame) - 1)


# ---------------------------------------------------------------- the index
def is_inside(trace: Trace, i: Any, n: int | SymInt) -> bool:
    """Whether an index is surely at one of `n` elements, not counted from the end."""
    return not is_runtime_scalar(i) and all(is_natural(trace, q) for q in (i, n - 1 - i))


def is_natural(trace: Trace, n: int | SymInt) -> bool:
    """Whether an integer is surely not negative."""
    least = bounds(n.dim, trace) if is_symint(n) else (n, n)
    return least is not None and isinstance(least[0], int) and least[0] >= 0


def row(trace: Trace, i: Any, n: Any, kind: str) -> Any:
    """The index of the row: a symbolic one that is surely inside, or a value that is checked."""
    if is_inside(trace, i, n):
        return i
    if not is_runtime_scalar(i) and is_inside(trace, i + n, n):
        return i + n
    loops = frozenset().union(*(getattr(q, "loops", ()) for q in (i, n)))
    data = any(getattr(q, "data", False) for q in (i, n))
    if trace.trying and not data:
        reason = "may be out of range, inside of a `try` statement"
        raise NeedsConcrete(reason, loops, subject="an index")
    at: Any = RuntimeScalar(value_in(trace, i, I64), trace, loops, data)
    wrapped: Any = arithmetic(trace, "add", at, n)
    values = [compare(trace, "lt", at, 0).value, wrapped.value, at.value]
    at = RuntimeScalar(trace.emit("where", values, {}), trace, loops, data)
    tests = [compare(trace, "ge", at, 0).value, compare(trace, "lt", at, n).value]
    ok = trace.emit("logical_and", tests, {})
    check(trace, ok, "IndexError", f"{kind} index out of range")
    return trace.fake(at.value)


__all__ = [
    "at_frame",
    "element",
    "forget",
    "is_holder",
    "is_inside",
    "is_later",
    "is_sequence",
    "one_kind",
    "outside",
    "picked",
]
