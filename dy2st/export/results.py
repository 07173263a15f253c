"""The result of a saved program: the tree in the manifest, checked, and filled for a call.

A tree is JSON, `[kind, ...]`. `read` makes parts of it, whose indices, types and views are those of
the program: a view is typed by its row, as an op is, and what its type rests on is required.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from dy2st.export.complex_arrays import ComplexArrays
from dy2st.export.limits import LIMITS, FileError, require
from ir import OPS, Builder, Program, Require, Size, Type, Value
from ir.attributes import check_attrs, is_dim
from ir.literal import is_key, parse_attr
from ir.opdef import complete_attrs
from ir.types import Dim, evaluate_dim, is_natural
from ir.uses import dim_names


@dataclass(frozen=True)
class CallArrays:
    """The arrays of one call, as its caller has them, and its named sizes; `on_host`: whether its
    results are there."""

    outputs: Sequence[Any]
    inputs: Sequence[Any]
    sizes: Mapping[str, int]
    on_host: bool = True

    def array(self, output: bool, index: int) -> Any:
        """An output or an input, where the results are."""
        array = (self.outputs if output else self.inputs)[index]
        remote = self.on_host and not isinstance(array, np.ndarray)
        return array.numpy() if remote else array


@dataclass(frozen=True)
class ResultPart:
    """A part of a result. `type` is that of its array, None if it is none."""

    @property
    def type(self) -> Type | None:
        return None

    def fill(self, call: CallArrays) -> object:
        raise NotImplementedError

    def row(self, k: int, call: CallArrays) -> object:
        """Return element `k` of a list of such parts."""
        return self.fill(call)

    def rows(self) -> Iterator[Type]:
        """The types of the arrays of which the elements of a list are rows."""
        return iter(())

    def length(self, call: CallArrays) -> int:
        raise NotImplementedError


@dataclass(frozen=True)
class ItemsPart(ResultPart):
    kind: type
    parts: tuple[ResultPart, ...]

    def made(self, parts: Iterator[object]) -> object:
        return self.kind(parts)

    def fill(self, call: CallArrays) -> object:
        return self.made(q.fill(call) for q in self.parts)

    def row(self, k: int, call: CallArrays) -> object:
        return self.made(q.row(k, call) for q in self.parts)

    def rows(self) -> Iterator[Type]:
        for q in self.parts:
            yield from q.rows()

    def length(self, call: CallArrays) -> int:
        return next(q.length(call) for q in self.parts if any(q.rows()))


@dataclass(frozen=True)
class EntriesPart(ItemsPart):
    keys: tuple[object, ...]

    def made(self, parts: Iterator[object]) -> object:
        return self.kind(zip(self.keys, parts))


@dataclass(frozen=True)
class ConstantPart(ResultPart):
    value: object

    def fill(self, call: CallArrays) -> object:
        return self.value


@dataclass(frozen=True)
class SizePart(ResultPart):
    dim: Dim

    def fill(self, call: CallArrays) -> object:
        return evaluate_dim(self.dim, call.sizes)


@dataclass(frozen=True)
class NumberPart(ResultPart):
    """Output `index`, 0-d, as a Python number."""

    index: int

    def fill(self, call: CallArrays) -> object:
        return call.outputs[self.index].item()


@dataclass(frozen=True)
class ArrayPart(ResultPart):
    """Output or input `index`, looked at through views: names, attributes and types of them."""

    output: bool
    index: int
    own: Type
    views: tuple[tuple[str, Mapping[str, object], Type], ...] = ()

    @property
    def type(self) -> Type:
        return self.views[-1][2] if self.views else self.own

    def fill(self, call: CallArrays) -> object:
        array = call.array(self.output, self.index)
        for name, attrs, made in self.views:
            ref = OPS[name].ref
            assert ref is not None
            view = partial(ref, **{k: _plain(v, call.sizes) for k, v in attrs.items()})
            array = _viewed(array, view)
            known = made.names <= call.sizes.keys()
            if known and array.shape != made.concrete(call.sizes):
                raise ValueError(f"a result is {made}, its {name} has shape {list(array.shape)}")
        return array


@dataclass(frozen=True)
class ListPart(ResultPart):
    """A list with an element for each row of the arrays in `of`."""

    of: ResultPart

    def fill(self, call: CallArrays) -> object:
        return [self.of.row(k, call) for k in range(self.of.length(call))]


@dataclass(frozen=True)
class JoinedListPart(ResultPart):
    """A list of the elements of several lists."""

    parts: tuple[Any, ...]

    def fill(self, call: CallArrays) -> object:
        return [q for part in self.parts for q in part.fill(call)]


@dataclass(frozen=True)
class TuplePart(ResultPart):
    """A tuple of the elements of a list."""

    of: ResultPart

    def fill(self, call: CallArrays) -> tuple[object, ...]:
        items = self.of.fill(call)
        assert isinstance(items, list)
        return tuple(items)


@dataclass(frozen=True)
class RowsPart(ResultPart):
    """Output `index`, taken apart into arrays or Python numbers: elements of a list."""

    index: int
    own: Type
    number: bool

    def row(self, k: int, call: CallArrays) -> object:
        row = _viewed(call.array(True, self.index), lambda rows: rows[k, ...])
        return row.item() if self.number else row

    def rows(self) -> Iterator[Type]:
        yield self.own

    def length(self, call: CallArrays) -> int:
        return len(call.outputs[self.index])


def _viewed(array: Any, view: Callable[[np.ndarray], np.ndarray]) -> Any:
    return view(array) if isinstance(array, np.ndarray) else array.viewed(view)


def _plain(v: object, sizes: Mapping[str, int]) -> object:
    if isinstance(v, tuple):
        return tuple(_plain(q, sizes) for q in v)
    return evaluate_dim(v, sizes) if isinstance(v, Size) else v


# ---------------------------------------------------------------- reading
@dataclass
class Reader:
    """Reads trees of a program; `requires` gains the conditions that views rest on. `depth` and
    `inside` say how many lists are around a part, and whether one of them has an element per row.

    Raises FileError for a tree that is not one of this program.
    """

    program: Program
    arrays: ComplexArrays
    requires: list[Require] = field(default_factory=list)
    depth: int = 0
    inside: bool = False

    def read(self, tree: object) -> ResultPart:
        kind, *body = _list(tree, "a part of the result") or [None]
        require(self.depth, LIMITS.nesting, "lists inside of each other")
        read = getattr(self, f"_{kind}", None) if isinstance(kind, str) and kind in _KINDS else None
        if read is None or len(body) != _KINDS[kind]:
            raise FileError(f"an unknown part of the result: {kind!r:.80}")
        self.depth += 1
        part: ResultPart = read(*body)
        self.depth -= 1
        return part

    def _list(self, parts: object) -> ResultPart:
        return ItemsPart(list, tuple(map(self.read, _list(parts, "a list"))))

    def _tuple(self, parts: object) -> ResultPart:
        return ItemsPart(tuple, tuple(map(self.read, _list(parts, "a tuple"))))

    def _dict(self, entries: object) -> ResultPart:
        pairs = [_list(q, "an entry of a dict", 2) for q in _list(entries, "a dict")]
        keys = tuple(parse_attr(_text(k)) for k, _ in pairs)
        if not is_key(keys) or len(set(keys)) != len(keys):
            raise FileError("a dict of the result has a key twice, or a dict for a key")
        return EntriesPart(dict, tuple(self.read(q) for _, q in pairs), keys)

    def _constant(self, text: object) -> ResultPart:
        return ConstantPart(parse_attr(_text(text)))

    def _size(self, text: object) -> ResultPart:
        dim = parse_attr(_text(text))
        if not is_dim(dim):
            raise FileError(f"{text!r:.80} is not a size")
        self.known(dim)
        return SizePart(dim)

    def _number(self, index: object) -> ResultPart:
        return NumberPart(self.output(index, 0))

    def _out(self, index: object, steps: object) -> ResultPart:
        at = self.output(index)
        return self.viewed(True, at, self.arrays.output_type(at), steps)

    def _same(self, index: object, steps: object) -> ResultPart:
        at = _index(index, len(self.program.inputs))
        return self.viewed(False, at, self.arrays.input_type(at), steps)

    def _elements(self, tree: object) -> ResultPart:
        outside, self.inside = self.inside, True
        of = self.read(tree)
        self.inside = outside
        lengths = {t.shape[0] for t in of.rows()}
        if len(lengths) != 1:
            raise FileError("a list with elements of several lengths, or of none")
        return ListPart(of)

    def _joined(self, trees: object) -> ResultPart:
        return JoinedListPart(tuple(map(self._of_list, _list(trees, "lists"))))

    def _tuple_of(self, tree: object) -> ResultPart:
        return TuplePart(self._of_list(tree))

    def _of_list(self, tree: object) -> ResultPart:
        part = self.read(tree)
        if not isinstance(part, (ListPart, JoinedListPart)):
            if type(part) is not ItemsPart or part.kind is not list:
                raise FileError("a part of a joined list, or of a tuple, is not a list")
        return part

    def _rows(self, index: object, number: object) -> ResultPart:
        if not self.inside or type(number) is not bool:
            raise FileError("rows are numbers or arrays, and stand in a list of elements")
        at = self.output(index, 1 if number else None)
        own = self.arrays.output_type(at)
        if own.ndim == 0:
            raise FileError(f"output {at} has no rows")
        return RowsPart(at, own, number)

    def output(self, index: object, ndim: int | None = None) -> int:
        at = _index(index, len(self.program.outputs))
        if ndim is not None and self.arrays.output_type(at).ndim != ndim:
            have = self.arrays.output_type(at).ndim
            raise FileError(f"output {at} has {have} axes, not {ndim}")
        return at

    def known(self, value: object) -> None:
        """Raises FileError for sizes that no input of the program has."""
        unknown = dim_names(value) - set(self.program.sizes)
        if unknown:
            raise FileError(f"the result names the size {min(unknown)}, which no input has")

    # ------------------------------------------------------------ views
    def viewed(self, output: bool, index: int, own: Type, steps: object) -> ResultPart:
        views, now = [], own
        for step in _list(steps, "a list of views"):
            name, entries = _list(step, "a view", 2)
            if name == "alias":
                continue
            if name not in _VIEWS:
                raise FileError(f"{name!r:.80} is not a view")
            pairs = [_list(q, "an attribute", 2) for q in _list(entries, "a list of attributes")]
            given = {_text(k): parse_attr(_text(v)) for k, v in pairs}
            attrs = complete_attrs(OPS[name], given)
            now = self.view(name, now, attrs)
            views.append((name, attrs, now))
        return ArrayPart(output, index, own, tuple(views))

    def view(self, name: str, x: Type, attrs: dict[str, object]) -> Type:
        """The type of a view, checked as that of an op is."""
        check_attrs(name, attrs)
        b, reason = Builder(), f"{name} of a result"
        (made,) = b.emit(name, [Value(x)], attrs)
        found = [Require(r.left, r.relation, r.right, reason) for r in b.requires]
        for d in made.type.shape:
            if isinstance(d, int) and d < 0:
                raise FileError(f"{reason} gives {made.type}")
            if not is_natural(d):
                found.append(Require(d, ">=", 0, reason))
        self.known((*attrs.values(), *(d for r in found for d in (r.left, r.right))))
        self.requires += found
        return made.type


#: how many entries follow the name of a part
_KINDS = {"list": 1, "tuple": 1, "dict": 1, "constant": 1, "size": 1, "number": 1, "out": 2}
_KINDS |= {"same": 2, "elements": 1, "joined": 1, "rows": 2, "tuple_of": 1}
#: views whose places are known from sizes
_VIEWS = {n for n, row in OPS.items() if row.views and len(row.operands) == 1 and row.ref}


def _list(x: object, what: str, length: int | None = None) -> list[Any]:
    if not isinstance(x, list) or length not in (None, len(x)):
        raise FileError(f"its manifest has {x!r:.80} in the place of {what}")
    return x


def _text(x: object) -> str:
    if not isinstance(x, str):
        raise FileError(f"its manifest has {x!r:.80} in the place of a text")
    return x


def _index(x: object, n: int) -> int:
    if type(x) is not int or not 0 <= x < n:
        raise FileError(f"the result names number {x!r:.80} of {n}")
    return x


__all__ = ["CallArrays", "ResultPart", "Reader"]
