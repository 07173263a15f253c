"""The signature of a call: tensors and Python values of its arguments, and the key of the cache."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle.base import framework

from dy2st.state.containers.constants import is_open
from dy2st.state.guards import is_constant
from dy2st.trace.fake_tensor import Tensor

Path = tuple[Any, ...]


def grad_enabled() -> bool:
    return bool(framework._dygraph_tracer()._has_grad)


class Signature:
    """The leaves of a call's arguments.

    `key` is what a program with fixed sizes is specialised on: structure, dtypes, shapes, Python
    constants, gradient mode. `general` leaves the shapes out.
    """

    __slots__ = ("args", "kwargs", "leaves", "structure", "key")

    def __init__(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        self.args, self.kwargs = args, kwargs
        self.leaves = Leaves(args, kwargs)
        structure: list[object] = [grad_enabled()]
        for a in args:
            if type(a) is Tensor:
                structure.append(0)
                self.leaves.append(a)
            else:
                self._walk(a, structure)
        for k in sorted(kwargs):
            structure.append(k)
            self._walk(kwargs[k], structure)
        self.structure = tuple(structure)
        self.key = (self.structure, *[_key(q, True) for q in self.leaves])
        if len(self.leaves) > 1:
            self.structure = (*self.structure, *_twins(self.leaves), *self.twin_containers())
            self.key = (self.structure, *self.key[1:])

    @property
    def general(self) -> tuple[object, ...]:
        return (self.structure, *[_key(q, False) for q in self.leaves])

    def test(self, key: Sequence[Any], checked: Container[int | None]) -> ArgumentTest | None:
        """Return the test whether a call with positional arguments only has this key, one of this
        signature; None where that takes more than a look at each leaf. The types and shapes of the
        `checked` leaves are compared elsewhere."""
        grad, parts = key[0][0], key[1:]
        form = _Form([grad])
        form.unpack("args", self.args)
        if self.kwargs or tuple(form.structure) != key[0]:
            return None
        names: dict[str, object] = {"_Tensor": Tensor, "_paddle": framework.global_var}
        names["_key"] = _key
        terms = []
        for k, (leaf, part) in enumerate(zip(form.leaves, parts)):
            text, names[f"{leaf}k"] = _test(leaf, part, self.leaves[k], k in checked)
            terms.append(text)
        own = [n for n, known in zip(form.leaves, self.leaves) if _has_twins(known)]
        terms += [_apart(q) for q in (own, form.lists) if len(q) > 1]
        terms.append(f"_paddle._dygraph_tracer_._has_grad is {grad}")
        names["_leaves"] = nested_leaves if len(form.lines) > 1 else FlatLeaves
        found = ", ".join(form.leaves)
        leaves = f"_leaves(args, [{found}])" if len(form.lines) > 1 else "_leaves(args)"
        return ArgumentTest(form.lines, " and ".join(terms), leaves, names)

    def _walk(self, a: Any, structure: list[object]) -> None:
        kind = type(a)
        if is_sequence(a):
            structure.append((kind, len(a)))
            for q in a:
                self._walk(q, structure)
        elif kind is dict:
            structure.append((dict, _keys(a)))
            for q in a.values():
                self._walk(q, structure)
        else:
            structure.append(0)
            self.leaves.append(a)

    def twin_containers(self) -> list[tuple[int, int]]:
        """Return the pairs of lists and dicts that are one object."""
        if not any(isinstance(a, (list, tuple, dict)) for a in (*self.args, *self.kwargs.values())):
            return []
        found = [q for a in (*self.args, *self.kwargs.values()) for q in _containers(a)]
        first: dict[int, int] = {}
        pairs = [(first.setdefault(id(q), k), k) for k, q in enumerate(found)]
        return [(a, b) for a, b in pairs if a != b]

    @property
    def paths(self) -> list[Path]:
        """Return the path of each leaf: the number or name of the argument, then keys and
        indices."""
        out: list[Path] = []
        for i, a in enumerate(self.args):
            out += _paths(a, (i,))
        for k in sorted(self.kwargs):
            out += _paths(self.kwargs[k], (k,))
        return out

    def rebuild(
        self,
        leaves: Sequence[object],
        made: list[object],
        use: Callable[[Any, Any], object] = lambda old, new: new,
    ) -> tuple[list[object], dict[str, object]]:
        """The arguments with other leaves; lists and dicts are new ones, added to `made`.
        `use(old, new)` may give `old` the elements of `new`, and stay with it."""
        new, known = iter(leaves), dict[int, Any]()
        args = [_fill(a, new, known, use) for a in self.args]
        named = {k: _fill(self.kwargs[k], new, known, use) for k in sorted(self.kwargs)}
        made.extend(known.values())
        return args, {k: named[k] for k in self.kwargs}


class Leaves(list):
    """The leaves of a call's arguments, which know the containers around them."""

    __slots__ = ("args", "kwargs")

    def __init__(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        super().__init__()
        self.args, self.kwargs = args, kwargs

    def containers(self) -> list[Any]:
        """The lists and dicts of the arguments, in the order in which `rebuild` makes theirs."""
        every = (*self.args, *(self.kwargs[k] for k in sorted(self.kwargs)))
        return list({id(q): q for a in every for q in _containers(a)}.values())


class ArgumentTest(NamedTuple):
    """`lines` that unpack `args` (ValueError: they have another structure), an expression over what
    they bind, that of the leaves, and what the other names in these stand for."""

    lines: Sequence[str]
    text: str
    leaves: str
    names: Mapping[str, object]


@dataclass
class _Form:
    """The unpacking of tuples and lists: the `structure` that it sees, as `Signature` has it, the
    names of leaves and of lists, and the lines. Only tuples and lists are unpacked: an iterator
    would not be the same afterwards."""

    structure: list[object]
    leaves: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def unpack(self, name: str, elements: Sequence[object]) -> None:
        own = [f"{name.removeprefix('args')}_{k}" for k in range(len(elements))]
        self.lines.append(f"[{''.join(f'{n}, ' for n in own)}] = {name}")
        for n, q in zip(own, elements):
            if type(q) is not tuple and type(q) is not list:
                self.structure.append(0)
                self.leaves.append(n)
                continue
            self.structure.append((type(q), len(q)))
            self.lists += [n] * (type(q) is list)
            self.lines.append(f"if type({n}) is not {type(q).__name__}: return _MISS")
            self.unpack(n, q)


def _apart(names: Sequence[str]) -> str:
    """These are different objects."""
    ids = ", ".join(f"id({n})" for n in names)
    return f"len({{{ids}}}) == {len(names)}" if names[2:] else " is not ".join(names)


class FlatLeaves(tuple[object, ...]):
    """The leaves of a call without containers around them: its positional arguments."""

    __slots__ = ()

    def containers(self) -> list[Any]:
        return []


def nested_leaves(args: Sequence[object], found: Sequence[object]) -> Leaves:
    """The leaves of positional arguments with containers."""
    leaves = Leaves(args, {})
    leaves.extend(found)
    return leaves


def _test(name: str, part: Any, leaf: Any, checked: bool) -> tuple[str, object]:
    """What `_key` asks of a leaf of this name, as Python, where it is `part` for `leaf`; and what
    the name with a "k" behind it stands for."""
    if isinstance(leaf, Tensor):
        _, stops, shape = part
        text = f"isinstance({name}, _Tensor) and {name}.stop_gradient is {stops}"
        if not checked:
            dims = f"len({name}.shape) == {shape}"
            dims = dims if type(shape) is int else f"{name}.shape == {list(shape)}"
            text = f"{text} and {name}.dtype is {name}k and {dims}"
        return text, leaf.dtype
    if part is type(leaf):
        return f"type({name}) is {name}k", part
    if type(leaf) in (int, bool, str, type(None)):
        return f"type({name}) is type({name}k) and {name} == {name}k", leaf
    if part == id(leaf):
        return f"{name} is {name}k", leaf
    return f"_key({name}, True) == {name}k", part


def _has_twins(leaf: object) -> bool:
    """Whether it matters that two leaves are one object."""
    return isinstance(leaf, (Tensor, np.ndarray)) or is_open(leaf)


def _twins(leaves: Sequence[object]) -> list[tuple[int, int]]:
    """Return the pairs of leaves that are one object: an in-place call on one is seen through the
    other."""
    first: dict[int, int] = {}
    found = [(first.setdefault(id(q), k), k) for k, q in enumerate(leaves)]
    return [(a, b) for a, b in found if a != b and _has_twins(leaves[a])]


def _key(leaf: object, shapes: bool) -> object:
    """Paddle has one object for each dtype, and hashing one is slow."""
    if isinstance(leaf, Tensor):
        shape = leaf.shape
        return (id(leaf.dtype), leaf.stop_gradient, tuple(shape) if shapes else len(shape))
    if isinstance(leaf, np.ndarray):
        return (type(leaf), leaf.dtype, leaf.shape)
    if is_constant(leaf):
        return (type(leaf), repr(leaf))
    return type(leaf) if is_open(leaf) else id(leaf)


def _keys(a: dict[object, object]) -> tuple[object, ...]:
    """The keys of a dict; True is not 1, and 0.0 is not -0.0."""
    if {str}.issuperset(map(type, a)):
        return tuple(a)
    return tuple((type(k), repr(k)) if is_constant(k) else k for k in a)


def is_sequence(a: object) -> bool:
    """Whether the elements are leaves; an instance of another subclass of list is one itself."""
    return type(a) in (list, tuple) or isinstance(a, tuple) and hasattr(a, "_fields")


def _paths(a: Any, path: Path) -> list[Path]:
    if is_sequence(a):
        return [p for i, q in enumerate(a) for p in _paths(q, (*path, i))]
    if type(a) is dict:
        return [p for k, q in a.items() for p in _paths(q, (*path, k))]
    return [path]


def _containers(a: Any) -> Iterator[object]:
    """Lists and dicts, inner ones first."""
    if is_sequence(a) or type(a) is dict:
        for q in a.values() if isinstance(a, dict) else a:
            yield from _containers(q)
    if type(a) in (list, dict):
        yield a


def _fill(
    a: Any, new: Iterator[object], known: dict[int, object], use: Callable[[Any, Any], object]
) -> object:
    """`a` with the next leaves; `known` are the new lists and dicts by the id of the old ones."""
    kind = type(a)
    if kind is tuple:
        return tuple(_fill(q, new, known, use) for q in a)
    if isinstance(a, tuple) and hasattr(a, "_fields"):
        return kind(*(_fill(q, new, known, use) for q in a))
    if kind is not dict and kind is not list:
        return next(new)
    filled: object = (
        {k: _fill(q, new, known, use) for k, q in a.items()}
        if kind is dict
        else [_fill(q, new, known, use) for q in a]
    )
    if id(a) not in known:
        known[id(a)] = use(a, filled)
    return known[id(a)]


#: pixels and frames, which stride after stride divides
LARGE = 96


def spec_signatures(spec: Sequence[Any]) -> Iterator[Signature]:
    """Calls made up from an input_spec: zeros, with a number for each dim that is open.

    First all numbers differ, so that nothing is taken for equal that need not be; then those of one
    axis are equal; then all are. Then they are large, but for the first axis, as images and sounds
    may have to be. Sizes that a program needs to be equal are its `requires`.
    """
    most = max((len(s.shape) for s in spec), default=0)
    number = itertools.count(2)
    by_axis = list(range(2, 2 + most))
    made = set()
    choices: Sequence[Callable[[int], int]] = (
        lambda axis: next(number),
        lambda axis: by_axis[axis],
        lambda axis: 2,
        lambda axis: next(number) + LARGE * (axis > 0),
        lambda axis: by_axis[axis] + LARGE * (axis > 0),
    )
    for choose in choices:
        shapes = tuple(
            tuple(choose(k) if d is None or int(d) < 0 else int(d) for k, d in enumerate(s.shape))
            for s in spec
        )
        if shapes not in made:
            made.add(shapes)
            yield Signature([paddle.zeros(q, s.dtype) for q, s in zip(shapes, spec)], {})
