"""The leaves of an output plan: the parts of a call's results, and the source of each.

A result is a tree of tuples, lists, dicts and constants with these leaves. A leaf knows the inputs
that it shows (`inputs`), makes its object for one call (`fill`), and says what stands for it in a
file (`save`). Two places with one leaf get one object.
"""

from __future__ import annotations

import array
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, TypeVar

import numpy as np
import paddle
from paddle import Tensor

from dy2st.results.replay import replay
from dy2st.state.containers.records import Record, like_of, regrouped
from dy2st.trace.memory import Recipe
from dy2st.trace.trace import TracedInput
from dy2st.trace.undo import Location, kind_of
from ir import OPS, Dy2stError, Value
from ir.literal import print_attr
from ir.types import Dim, evaluate_dim

T = TypeVar("T")


@dataclass(frozen=True)
class OutputPlan:
    """`values` are the outputs of the program; `result` and `stores` are trees of leaves.

    leaf: a result is a tensor that the function made to require a gradient of its own.
    moved: lifted inputs that `contiguous()` gives other memory.
    replayed: lifted inputs of which a result may be a copy, if they are not contiguous.
    trained: results that require a gradient.
    complex: outputs that are complex tensors, and pairs of floats in the program.
    """

    values: tuple[Value, ...]
    flags: tuple[bool, ...]
    result: object
    stores: tuple[tuple[Location, object], ...]
    leaf: bool = False
    moved: tuple[int, ...] = ()
    replayed: frozenset[int] = frozenset()
    trained: tuple[Value, ...] = ()
    complex: frozenset[int] = frozenset()


@dataclass
class CallValues:
    """One call: `inputs(k)` is the tensor of lifted input k, `outputs` those of the program,
    `containers()` the lists and dicts of the call's arguments; `made` the objects so far."""

    inputs: Callable[[int], Tensor]
    outputs: Sequence[Tensor]
    sizes: Mapping[str, int]
    containers: Callable[[], list[object]] = list
    made: dict[object, object] = field(default_factory=dict)

    def once(self, key: object, make: Callable[[], T]) -> T:
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]  # type: ignore[return-value]

    def number(self, dim: Dim) -> int:
        return evaluate_dim(dim, self.sizes)


@dataclass
class SaveContext:
    """The context of a file: the tensors that a trace met, and those that the program takes."""

    traced: Sequence[TracedInput]
    bound: Sequence[TracedInput]


@dataclass(frozen=True, eq=False)
class ResultLeaf:
    """`about`: what it is, where a file cannot hold it."""

    about: ClassVar[str] = "an object of the caller"

    def inputs(self) -> Iterator[int]:
        """The lifted inputs whose memory it shows, or may show."""
        return iter(())

    def fill(self, call: CallValues) -> object:
        raise NotImplementedError

    def save(self, file: SaveContext) -> list[object]:
        cannot_save(self.about)


# ---------------------------------------------------------------- tensors
@dataclass(frozen=True, eq=False)
class TensorOutput(ResultLeaf):
    """Output `index` of the program: a new tensor."""

    index: int

    def fill(self, call: CallValues) -> object:
        return call.outputs[self.index]

    def save(self, file: SaveContext) -> list[object]:
        return ["out", self.index, []]


@dataclass(frozen=True, eq=False)
class InputOutput(ResultLeaf):
    """Lifted input `index` itself."""

    index: int

    def inputs(self) -> Iterator[int]:
        yield self.index

    def fill(self, call: CallValues) -> object:
        return call.inputs(self.index)

    def save(self, file: SaveContext) -> list[object]:
        wanted = file.traced[self.index]
        index = next((k for k, q in enumerate(file.bound) if q is wanted), None)
        if index is None:
            raise Dy2stError(
                f"the program cannot be saved: it returns {wanted.name} as it is, and reads it "
                "nowhere. Return a copy (`.clone()`), or leave it out."
            )
        return ["same", index, []]


@dataclass(frozen=True, eq=False)
class ViewOutput(ResultLeaf):
    """`of`, looked at through `recipe`."""

    about = "a view at an index from data"

    of: ResultLeaf
    recipe: Recipe
    stop_gradient: bool

    def inputs(self) -> Iterator[int]:
        return self.of.inputs()

    def fill(self, call: CallValues) -> object:
        of = self.of.fill(call)
        return call.once(
            self,
            lambda: replay(of, self.recipe, call.sizes, self.stop_gradient, call.outputs),
        )

    def save(self, file: SaveContext) -> list[object]:
        if any(OPS[name].operands[1:] for name, _ in self.recipe):
            return super().save(file)
        kind, index, steps = self.of.save(file)
        assert isinstance(steps, list)
        return [kind, index, [*steps, *map(step_text, self.recipe)]]


@dataclass(frozen=True, eq=False)
class RowOutput(ViewOutput):
    """Element `index` of the first axis of `of`; `shown`: the elements that results show."""

    index: int
    shown: set[int]

    def fill(self, call: CallValues) -> object:
        of: Any = self.of.fill(call)
        if len(self.shown) < FEWEST_ROWS or 2 * len(self.shown) < of.shape[0]:
            return super().fill(call)
        rows = call.once((self.of, self.stop_gradient), lambda: rows_of(of, self.stop_gradient))
        return rows[self.index]


#: as many elements are taken out of a tensor by one call
FEWEST_ROWS = 4


def row_of(recipe: Recipe) -> int | None:
    """The number of the element of the first axis that a view is, if a program knows it."""
    if len(recipe) != 1 or recipe[0][0] != "index":
        return None
    attrs = dict(recipe[0][1])
    index = attrs.get("index")
    return index if attrs.get("axis") == 0 and type(index) is int else None


def rows_of(x: Tensor, stop_gradient: bool) -> list[Tensor]:
    with paddle.no_grad() if stop_gradient else paddle.enable_grad():
        rows: list[Tensor] = paddle.unbind(x, 0)
    return rows


@dataclass(frozen=True, eq=False)
class SelectedOutput(ResultLeaf):
    """The option whose number output `selector` is; any other number but 0 is one object for all
    leaves that find this number, with the values of `other`; 0 is `other`."""

    selector: int
    options: tuple[tuple[int, ResultLeaf], ...]
    other: TensorOutput

    def inputs(self) -> Iterator[int]:
        for _, leaf in self.options:
            yield from leaf.inputs()

    def fill(self, call: CallValues) -> object:
        number = call.once(("number", self.selector), call.outputs[self.selector].item)
        option = dict(self.options).get(number)
        if option is not None:
            return option.fill(call)
        other = self.other.fill(call)
        return call.once(("object", number), lambda: other) if number else other

    def save(self, file: SaveContext) -> list[object]:
        return self.other.save(file)


@dataclass(frozen=True, eq=False)
class NumberOrTensor(ResultLeaf):
    """`number` where output `test` is true, else `tensor`, which may be a float."""

    test: int
    number: object
    tensor: object
    described: str

    @property
    def about(self) -> str:  # type: ignore[override]
        return self.described

    def inputs(self) -> Iterator[int]:
        return iter(inputs(self.tensor))

    def fill(self, call: CallValues) -> object:
        return fill(self.number if call.outputs[self.test].item() else self.tensor, call)


# ---------------------------------------------------------------- Python objects
@dataclass(frozen=True, eq=False)
class SizeNumber(ResultLeaf):
    """A size of the program as a Python int."""

    about = "a size"

    dim: Dim

    def fill(self, call: CallValues) -> object:
        return call.number(self.dim)

    def save(self, file: SaveContext) -> list[object]:
        return ["size", print_attr(self.dim)]


@dataclass(frozen=True, eq=False)
class ScalarOutput(ResultLeaf):
    """Output `index` of the program as a Python bool, int or float."""

    about = "a Python number that data gives"

    index: int

    def fill(self, call: CallValues) -> object:
        return call.outputs[self.index].item()

    def save(self, file: SaveContext) -> list[object]:
        return ["number", self.index]


@dataclass(frozen=True, eq=False)
class ArrayOutput(ResultLeaf):
    """Output `index` of the program as a NumPy array, or as a scalar if it has no axes."""

    about = "a NumPy array"

    index: int

    def fill(self, call: CallValues) -> object:
        return call.once(self, lambda: call.outputs[self.index].numpy()[()])


@dataclass(frozen=True, eq=False)
class ShapeOf(ResultLeaf):
    """The shape of a tensor, as Paddle gives it."""

    dims: tuple[Dim, ...]

    def fill(self, call: CallValues) -> object:
        return paddle.Size([call.number(d) for d in self.dims])

    def save(self, file: SaveContext) -> list[object]:
        return ["list", [["size", print_attr(d)] for d in self.dims]]


@dataclass(frozen=True, eq=False)
class CapturedContainer(ResultLeaf):
    """A list, dict or set that was there before the call; it is looked up at `home`, if any."""

    obj: object
    home: Location | None = None

    def fill(self, call: CallValues) -> object:
        return self.obj if self.home is None else self.home.get()


@dataclass(frozen=True, eq=False)
class ArgumentContainer(ResultLeaf):
    """The list or dict that is number `index` of those in the call's arguments."""

    index: int

    def fill(self, call: CallValues) -> object:
        return call.containers()[self.index]


@dataclass(frozen=True, eq=False)
class NewContainer(ResultLeaf):
    """A deque, a dict of another class or a plain object like `like`, with other elements."""

    like: object
    parts: tuple[object, ...]

    @property
    def about(self) -> str:  # type: ignore[override]
        return f"a {type(self.like).__name__}"

    def inputs(self) -> Iterator[int]:
        return (k for q in leaves(self.parts) for k in q.inputs())

    def fill(self, call: CallValues) -> object:
        return call.once(self, lambda: like_of(self.like, [fill(q, call) for q in self.parts]))


@dataclass(frozen=True, eq=False)
class RebuiltObject(ResultLeaf):
    """An object that the function has made, like `like`: with its attributes, and for a container
    with its elements or items."""

    like: object
    attributes: Mapping[str, object]
    elements: tuple[object, ...]

    @property
    def about(self) -> str:  # type: ignore[override]
        return f"a {type(self.like).__name__}"

    def inputs(self) -> Iterator[int]:
        tree = (*self.attributes.values(), *self.elements)
        return (k for q in leaves(tree) for k in q.inputs())

    def fill(self, call: CallValues) -> object:
        return call.once(self, lambda: self.made(call))

    def made(self, call: CallValues) -> object:
        kind: Any = type(self.like)
        if isinstance(self.like, (np.ndarray, array.array)):
            return self.like.__copy__()
        new = object.__new__ if isinstance(kind.__new__, types.FunctionType) else kind.__new__
        out = new(kind)
        for name, value in self.attributes.items():
            object.__setattr__(out, name, fill(value, call))
        if (form := kind_of(out)) is not None:
            form.fill(out, tuple(fill(q, call) for q in self.elements))
        return out


# ---------------------------------------------------------------- trees
def leaves(tree: object) -> Iterator[ResultLeaf]:
    if isinstance(tree, ResultLeaf):
        yield tree
    elif isinstance(tree, (tuple, list, dict)):
        for q in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(q)


def inputs(tree: object) -> set[int]:
    """The lifted inputs that a tree of results shows, or may show."""
    return {k for leaf in leaves(tree) for k in leaf.inputs()}


def fill(tree: object, call: CallValues) -> Any:
    """The object of one call; a list or dict that stands in two places is one."""
    if isinstance(tree, ResultLeaf):
        return tree.fill(call)
    if isinstance(tree, dict):
        return call.once(id(tree), lambda: {k: fill(q, call) for k, q in tree.items()})
    if isinstance(tree, list):
        return call.once(id(tree), lambda: [fill(q, call) for q in tree])
    return again(tree, [fill(q, call) for q in tree]) if isinstance(tree, tuple) else tree


def again(like: object, parts: Sequence[object]) -> object:
    """A tuple, or the container of a record, with other parts; a tuple of a class of the user's
    holds constants, and is itself."""
    if not isinstance(like, Record) and type(like) is not tuple and not hasattr(like, "_fields"):
        return like
    return like.form.made(parts) if isinstance(like, Record) else regrouped(like, parts)


def cannot_save(what: str) -> NoReturn:
    raise Dy2stError(
        f"the program cannot be saved: it returns {what}. Return its tensors in tuples, lists and "
        "dicts, or leave it out."
    ) from None


def save(tree: object, file: SaveContext) -> list[object]:
    """Return the manifest's form of a tree of results."""
    if isinstance(tree, ResultLeaf):
        return tree.save(file)
    if isinstance(tree, Record):
        if tree.form.kind not in (dict, list):
            either = tree.form.kind is tree.form.like
            kind = "value that is a number or a tensor" if either else tree.form.kind.__name__
            cannot_save(f"a list with a {kind} in it")
        return save(tree.form.made(tree), file)
    if isinstance(tree, dict):
        return ["dict", [[print_attr(k), save(q, file)] for k, q in tree.items()]]
    if isinstance(tree, (list, tuple)):
        kind = "list" if isinstance(tree, list) else "tuple"
        return [kind, [save(q, file) for q in tree]]
    try:
        return ["constant", print_attr(tree)]
    except TypeError:
        kind = type(tree).__name__
        cannot_save(f"an object of {kind}")


def step_text(step: tuple[str, tuple[tuple[str, object], ...]]) -> list[object]:
    """A view of a chain in the format of the manifest."""
    name, attrs = step
    return [name, [[k, print_attr(v)] for k, v in attrs]]
