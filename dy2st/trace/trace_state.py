"""The state of a trace: one record for each subject."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from paddle import Tensor

from dy2st.trace.frames import Frame, TracedInput, TracedLoop
from dy2st.trace.size_facts import SizeFacts
from ir import Loc, Op, Require, Value
from ir.types import Dim


@dataclass(frozen=True)
class Hooks:
    """Functions of the layers above.

    make_fake: a fake tensor for a value and its `stop_gradient`.
    make_tensor: a 0-d tensor for a Python number and its type.
    call: the converted form of a callable. call_layer: the converted call of a Layer.
    choose: the value of one of two functions, as a bool of the program says.
    known_number: `(value,)` of a number that is needed as it is, where the program is made for the
        value; else ().
    """

    make_fake: Callable[[Value, bool], Tensor]
    make_tensor: Callable[[object, type], Tensor]
    call: Callable[[object], Any]
    call_layer: Callable[..., object]
    choose: Callable[..., object]
    known_number: Callable[[Any], tuple[object, ...]]


@dataclass(eq=False)
class Inputs:
    """Real tensors and Python numbers that are inputs of the program.

    names: kind and name of parameters and buffers, by `id`. by_id: inputs by the `id` of their
    tensor. numbers: inputs that are Python numbers, by the key of their location. containers: the
    lists and dicts among the arguments, by `id`. guarded: the places of the user at which the
    program is made for what follows from numbers, None for all. needed: those at which this trace
    could have done with it. testing: comparisons are of the numbers themselves.
    """

    names: dict[int, tuple[str, str]]
    by_id: dict[int, TracedInput] = field(default_factory=dict)
    numbers: dict[object, Any] = field(default_factory=dict)
    containers: dict[int, Any] = field(default_factory=dict)
    guarded: Collection[Loc | None] = ()
    testing: bool = False
    needed: set[Loc | None] = field(default_factory=set)

    def by_fake(self, fake: object) -> TracedInput | None:
        """The input whose tensor the trace has as `fake`."""
        return next((q for q in self.by_id.values() if q.fake is fake), None)

    def tensor_of(self, tensor: Tensor) -> Tensor | None:
        """The real tensor, None if the program has made it."""
        if not hasattr(tensor, "_value"):
            return tensor
        found = self.by_fake(tensor)
        return None if found is None else found.tensor


@dataclass(eq=False)
class ValueFacts:
    """Facts about values.

    frame_of: the frame that defines a value. parent: the value that a view or the inner side of a
    const port shows. makers: the op of a view. placeholders: what a loop body has in place of a
    variable. frozen: storages that may not be written, with the reason and the loop that took a
    copy where eager has the storage. written: storages that have been written. elements: what the
    trace knows of small tensors, constants and sizes, with the storages that it follows from and
    how often each had been written. uniform: the same for the one number that all elements of a
    larger constant are. writes: how often a storage has been written. results: what a loop
    returns, with its length.
    copies: tensors that the program makes of others, where eager may have one of those themselves.
    picks: elements that are read from a stacked run: the run, the index, and the place in a tuple.
    iterated: elements of lists that loops run over. became: what an object is after its shape or
    flag changed in place. heirs: storages that an input's object has after `contiguous()`, and that
    input. hosted: results of host calls, with the text of the call. lost: storages that a loop has
    overwritten in eager, but not here, with the error of a read.
    """

    frame_of: dict[Value, Frame] = field(default_factory=dict)
    parent: dict[Value, Value] = field(default_factory=dict)
    makers: dict[Value, Op] = field(default_factory=dict)
    placeholders: set[Value] = field(default_factory=set)
    frozen: dict[Value, tuple[str, TracedLoop | None]] = field(default_factory=dict)
    written: set[Value] = field(default_factory=set)
    elements: dict[Value, tuple[tuple[object, ...], dict[Value, int]]] = field(default_factory=dict)
    uniform: dict[Value, tuple[object, dict[Value, int]]] = field(default_factory=dict)
    writes: dict[Value, int] = field(default_factory=dict)
    results: dict[Value, Dim] = field(default_factory=dict)
    copies: dict[Value, tuple[Value, ...]] = field(default_factory=dict)
    picks: dict[Value, tuple[Any, Any, tuple[int, ...]]] = field(default_factory=dict)
    iterated: set[Value] = field(default_factory=set)
    became: dict[Value, Value] = field(default_factory=dict)
    heirs: dict[Value, Value] = field(default_factory=dict)
    hosted: dict[Value, str] = field(default_factory=dict)
    lost: dict[Value, Callable[[], BaseException]] = field(default_factory=dict)


@dataclass(eq=False)
class AmbiguousContainer:
    """A container that is read as one of several, because data or the end of a loop says which.

    obj: the container of the trace. among: those that it may be instead. length: it is itself if
    a loop of that length runs at all. stop: makes the error of a change, where no length helps.
    on_change: told of a change, which is none of these errors. settle: makes it certain.
    """

    obj: object
    among: tuple[object, ...]
    stop: Callable[[], BaseException]
    length: Dim | None = None
    on_change: Callable[[], None] | None = None
    settle: Callable[[], None] | None = None

    def allows_change(self) -> bool:
        """Whether the container may be changed; tells who asked for it."""
        if self.on_change is not None:
            self.on_change()
        return self.on_change is not None

    def known_length(self) -> Dim:
        if self.length is None:
            raise self.stop()
        return self.length


@dataclass(eq=False)
class ErrorExits:
    """errors: those that data may raise, by their number in `paths`, or else by their builtin class
    and their own. paths: of those raised after the function has changed something, the conditions
    that lead to each; None for the rest, if they hold more than a text. ahead: in a trace
    that ends in an error, the conditions on the way there that are still to come."""

    errors: dict[int | tuple[str, str], Exception] = field(default_factory=dict)
    paths: list[Any] = field(default_factory=list)
    ahead: list[tuple[int, bool]] | None = None


@dataclass(frozen=True, eq=False)
class Lookup:
    """The elements of a sequence as rows of tensors of the program.

    owner: the sequence, which is kept alive. items: its elements. table: a tree of tables. home:
    the frame that the tables are in. written: how often storages of the elements had been written.
    """

    owner: object
    items: Any
    table: object
    home: Frame
    written: dict[Value, int]

    def holds(
        self,
        items: Sequence[object] | np.ndarray,
        frames: Sequence[Frame],
        writes: dict[Value, int],
    ) -> bool:
        """Whether these are the same elements, and the tables can be read."""
        if self.home not in frames or len(items) != len(self.items):
            return False
        if any(writes.get(root, 0) != n for root, n in self.written.items()):
            return False
        if isinstance(items, np.ndarray):
            return bool(items.tobytes() == self.items.tobytes())
        return isinstance(items, range) or all(map(operator.is_, items, self.items))


@dataclass(eq=False)
class TracedObjects:
    """Python objects that the function makes or changes.

    made: objects that the function has made, by `id`; homes: the frame in which. doubts: those that
    may be another object when the program runs. watches: what is told of each use of a dict or
    object, by its `id`. stored: keys of the locations that it stores to,
    with their lines if it is made to stream. iterators: iterators it has made, each with its frame,
    or None where data has decided how much is left. drawn: by the `id` of an iterator from outside,
    what each `next` of it expects, by its number, and those so far.
    fields: the objects whose `__dict__` has been read, by its `id`. lookups: sequences that are
    read at an index of the program, by `id`. picked: stand-ins for Layers that an index picks, by
    `id`, with those. undecided: whether there is a value of which data decides if it is a tensor.
    partial: for each running loop, the dicts of which a `break` on data decides the keys.
    """

    made: dict[int, object] = field(default_factory=dict)
    homes: dict[int, Frame] = field(default_factory=dict)
    doubts: dict[int, AmbiguousContainer] = field(default_factory=dict)
    watches: dict[int, Any] = field(default_factory=dict)
    stored: dict[tuple[object, ...], Loc | None] = field(default_factory=dict)
    iterators: dict[int, tuple[object, Frame | None]] = field(default_factory=dict)
    drawn: dict[int, tuple[dict[int, Any], list[object]]] = field(default_factory=dict)
    fields: dict[int, object] = field(default_factory=dict)
    lookups: dict[tuple[int, range | None], Lookup] = field(default_factory=dict)
    picked: dict[int, tuple[object, Any]] = field(default_factory=dict)
    undecided: bool = False
    partial: list[list[dict[object, object]]] = field(default_factory=list)


@dataclass(eq=False)
class Undefined:
    """Variables that only some runs define.

    values: for each such value, the bool that says whether it is defined and the message of the
    error if not. checked: values whose check has been emitted in a frame. names: variables that
    no run has defined, and where they would have been.
    """

    values: dict[Value, tuple[Value, str]] = field(default_factory=dict)
    checked: set[tuple[Value, Frame]] = field(default_factory=set)
    names: dict[str, Loc] = field(default_factory=dict)


@dataclass(eq=False)
class Aliasing:
    """Tensors that share memory while gradients are recorded."""

    detached: dict[Value, Value] = field(default_factory=dict)
    leaves: list[Tensor] = field(default_factory=list)
    attached: dict[Value, Loc] = field(default_factory=dict)


@dataclass(eq=False)
class ConvertedCalls:
    """Functions whose globals and cells have guards, and the code of converted functions. Per
    `warnings.catch_warnings` that is entered, its frame and what sets filters in it."""

    functions: set[object] = field(default_factory=set)
    codes: set[object] = field(default_factory=set)
    filters: list[tuple[Frame, list[Callable[[], object]]]] = field(default_factory=list)


class TraceInterface(Protocol):
    """The interface of a trace for the numbers that belong to it."""

    where: Callable[[], Loc]
    trying: int
    values: ValueFacts
    sizes: SizeFacts
    hooks: Hooks
    inputs: Inputs

    @property
    def frame(self) -> Frame: ...

    def emit(self, name: str, operands: Sequence[Value], attrs: dict[str, object]) -> Any: ...

    def fake(self, value: Value, stop_gradient: bool = True) -> Tensor: ...

    def read_value(self, value: Value) -> Value: ...

    def dim_value(self, dim: Dim) -> Value: ...

    def index_value(self, n: object) -> Value: ...

    def path_conditions(self) -> Iterator[tuple[str, Dim]]: ...

    def facts_here(self) -> frozenset[tuple[str, object]]: ...

    def add_require(self, r: Require) -> None: ...

    def require_branch(self, op: str, low: Dim, high: Dim, known: bool) -> None: ...


@dataclass
class Traced:
    """How often the body of a loop has been traced: `count` times. thrown: in vain, for want of its
    `facts` or for other reasons (`why`). again: those that are made again with the code around
    it."""

    site: Loc
    count: int = 0
    thrown: int = 0
    again: int = 0
    facts: dict[str, None] = field(default_factory=dict)
    why: dict[str, None] = field(default_factory=dict)

    def __str__(self) -> str:
        facts = [f"it {', '.join(self.facts)}"] if self.facts else []
        reasons = [*facts, *self.why] or ["its first trace has failed"]
        around = "the code around it is traced again"
        parts = [
            (self.thrown, f", because {'; '.join(reasons)}"),
            (self.again, f", because {around}"),
        ]
        return "; ".join(f"{times(n)}{text}" for n, text in parts if n)


def times(n: int) -> str:
    return {1: "once", 2: "twice"}.get(n, f"{n} times")


@dataclass
class LoopFacts:
    """The facts that earlier traces of each loop have learned, and the number of traces of it since
    the outermost loop around it began; those that have succeeded, in turn.

    unrolled: the calls that lead to loops that may not be rolled, with the reasons; over_layers:
        those that lead to loops over Layers. tables: the loops that have made or changed the rows
        of a list of lists.
    """

    learned: dict[Hashable, Any] = field(default_factory=dict)
    traced: dict[Hashable, Traced] = field(default_factory=dict)
    done: list[Traced] = field(default_factory=list)
    unrolled: dict[object, str] = field(default_factory=dict)
    over_layers: set[object] = field(default_factory=set)
    tables: list[TracedLoop | None] = field(default_factory=list)

    @contextmanager
    def counted(self, traced: Traced, own: int = 1) -> Iterator[None]:
        """Count a trace of the body that fails (`own`), and those of the loops in it."""
        mark = len(self.done)
        traced.count += own
        try:
            yield
        except BaseException:
            traced.thrown += own
            for q in self.done[mark:]:
                q.again += 1
            del self.done[mark:]
            raise
        self.done.append(traced)

    def notes(self) -> list[tuple[str, Loc, str]]:
        """The lines of the report about an outermost loop and those in it."""
        found = [q for q in self.traced.values() if q.count > 1 and q.thrown + q.again > 0]
        self.traced.clear()
        self.done.clear()
        return [("retraced", q.site, str(q)) for q in found]
