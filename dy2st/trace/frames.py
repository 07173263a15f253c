"""Frames of ops, the loops around them, and real tensors as inputs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from paddle import Tensor

from dy2st.trace.undo import Location
from ir import Builder, Const, Loc, Op, Require, Type, Value
from ir.types import Dim, complex_type


@dataclass(eq=False)
class TracedLoop:
    """One loop that is being traced. `name` stands for its iteration number in polynomials; an
    `open` one may end before `trip`, the first iteration of a `peelable` one may run apart, and the
    last `cuttable` ones. `settles`: the number of iterations after which its comparisons of the
    index are constant. `turns`: the iterations at which one of them changes; `compared`: those that
    are no bool of Python. `limit` is (step, most): `step` times the number stays below or at
    `most`. `calls`: the calls that led to it, which are the same in another trace. `fits`: slices
    up to the index are taken to lie on their axes, while a bound is looked for. `layers`: its index
    picks Layers or parameters. `leads`: other iterations follow behind its last one. `inner`: it
    runs in an iteration of another loop."""

    name: str
    trip: Dim
    index: Value
    frame: Frame | None = None
    open: bool = False
    peelable: bool = True
    cuttable: int = 0
    settles: int = 0
    turns: set[int] = field(default_factory=set)
    compared: set[tuple[str, Dim]] = field(default_factory=set)
    limit: tuple[int, Dim] | None = None
    calls: object = None
    fits: bool = False
    layers: bool = False
    leads: bool = False
    inner: bool = False


@dataclass(eq=False)
class Frame:
    """The ops of the program, of one loop body, or of one branch.

    `growth`: how many elements each iteration of the loop appends to a list from outside, by `id`;
    `asked` are the lists whose length the body has read, `queues` those whose elements it shifts,
    `picked` those that it reads at an index of the program, `guessed` those of them that may be too
    short for it; `taken` those that it reads at a number of Python, `fronts` those at 0, `ends`
    those that it stores to from the end; `fills` those whose elements it stores at its index.
    `wants`: how far from their ends lists are read that it may turn out to append to, None for no
    constant distance. `rows`: its lists for rows of lists of lists, by
    `id` and index. `shrunk`: lists out of which it has taken elements, with how many from the
    front and back. `learned`: what earlier traces of the loop have found. `tails`: carried
    elements, by the list's `id` and the distance from the end. `facts` hold in a branch. `relied`:
    storages from outside of the block whose known elements it has read as Python numbers.
    `columns`: attributes of Layers that the loop stores
    (`dy2st.state.containers.layer_attributes`). `paths`: the places of the tensors that the loop
    carries. `tables`: of storages in front of the loop of which an index picks rows, the tensors
    that the rows stand for, and a key of these where each iteration has one of them; `updates`: the
    tables that it writes. `decisions`: how many conditions on data it has come to; `decision`: of a
    branch, which of those of the frame around it, and whether it holds. `stale`: the body has shown
    what the next trace has to know from its beginning; this one goes on to find all of it.
    `unresolved`: places that a branch in the loop has left with several types. `predicates`: what
    of the numbers of the call the ops belong to (`dy2st.branches.predicates`). `derived`: what the
    trace has made of values, by what these are (`dy2st.capture.data_sizes`); `makers`: the ops of
    the first `made` nodes, by their results. `differentiated`: carried tensors with respect to
    which the body takes a gradient, each with another one that its outputs read.
    """

    builder: Builder = field(default_factory=Builder)
    loop: TracedLoop | None = None
    branch: bool = False
    stale: bool = False
    growth: dict[int, Dim] = field(default_factory=dict)
    fills: dict[int, Any] = field(default_factory=dict)
    columns: dict[Any, Any] = field(default_factory=dict)
    asked: set[int] = field(default_factory=set)
    queues: set[int] = field(default_factory=set)
    learned: Any = None
    wants: dict[int, list[Dim | None]] = field(default_factory=dict)
    rows: dict[tuple[int, Dim], object] = field(default_factory=dict)
    shrunk: dict[int, tuple[Any, int, int]] = field(default_factory=dict)
    facts: frozenset[Any] = frozenset()
    paths: dict[Value, tuple[object, ...]] = field(default_factory=dict)
    tables: dict[Value, tuple[Sequence[Value], tuple[int, ...]]] = field(default_factory=dict)
    updates: dict[Value, Any] = field(default_factory=dict)
    decisions: int = 0
    decision: tuple[int, bool] | None = None
    consts: dict[Value, Const] = field(default_factory=dict)
    stores: dict[tuple[object, ...], Location] = field(default_factory=dict)
    appends: dict[int, tuple[Any, list[Any]]] = field(default_factory=dict)
    tails: dict[tuple[int, int], Any] = field(default_factory=dict)
    picked: dict[int, Any] = field(default_factory=dict)
    guessed: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    fronts: set[int] = field(default_factory=set)
    ends: set[int] = field(default_factory=set)
    observed: dict[int, Any] = field(default_factory=dict)
    changed: dict[int, Any] = field(default_factory=dict)
    written: dict[Value, Loc] = field(default_factory=dict)
    relied: set[Value] = field(default_factory=set)
    unresolved: dict[tuple[object, ...], Location] = field(default_factory=dict)
    differentiated: list[tuple[Value, Value]] = field(default_factory=list)
    indices: dict[Dim, Value] = field(default_factory=dict)
    derived: dict[Hashable, Any] = field(default_factory=dict)
    makers: dict[Value, Op] = field(default_factory=dict)
    made: int = 0
    notes: list[tuple[str, Loc, str]] = field(default_factory=list)
    requires: dict[str, Require] = field(default_factory=dict)
    predicates: dict[Hashable, Any] = field(default_factory=dict)

    @contextmanager
    def emits_into(self, builder: Builder) -> Iterator[None]:
        """The ops of the frame go there for now."""
        before = self.builder, self.made
        self.builder, self.made = builder, 0
        try:
            yield
        finally:
            self.builder, self.made = before

    def maker(self, value: Value) -> Op | None:
        """The op of this frame that makes a value."""
        for node in self.builder.ops[self.made :]:
            if isinstance(node, Op):
                self.makers.update(dict.fromkeys(node.results, node))
        self.made = len(self.builder.ops)
        return self.makers.get(value)

    def learn_write(self, placeholder: Value) -> bool:
        """The next trace of the body has a tensor of its own in this place; False if this one was
        to have it."""
        path = self.paths.get(placeholder)
        if path is None or path in self.learned.written and not self.stale:
            return False
        self.learned.written.add(path)
        self.stale = True
        return True

    def learn_update(self, storage: Value) -> bool:
        """The next trace of the body has a storage of its own for the tensors that this one only
        reads; False where it cannot."""
        key = self.tables[storage][1] if storage in self.tables else ()
        if not key:
            return False
        self.learned.updated.add(key)
        self.stale = True
        return True


@dataclass(eq=False)
class TracedInput:
    """A real tensor that became an input. `place` says where it was found, for the next call.

    `number` is given for a Python number: the key of its place or argument, and its type. One with
    a `share` is no input itself but a view of another one; one with a `memory` is memory around a
    tensor (`dy2st.state.shared_inputs`). `fixed`: that it is contiguous is a condition of
    the call, and so is where it begins in its memory, if `offset` says so. `drawn`: the number of
    the host call that gives its values on every call; `tensor` has none of them. `leaf`: the
    argument of the call, a NumPy array, whose memory the tensor has; `array` stands for it in the
    trace. `pairs`: the tensor is complex, and its value in the program has pairs of floats.
    `flagged`: each call makes the argument one that requires a gradient. `cleared`: each call ends
    with these calls of `clear_gradient`.
    """

    tensor: Tensor
    fake: Tensor
    value: Value
    kind: str
    name: str
    place: Location | None = None
    number: tuple[Any, type] | None = None
    share: Any = None
    memory: Any = None
    fixed: bool = False
    offset: int | None = None
    drawn: int | None = None
    leaf: int | None = None
    array: object = None
    pairs: bool = False
    flagged: bool = False
    cleared: tuple[bool, ...] = ()

    @property
    def type(self) -> Type:
        """The type of the tensor."""
        return complex_type(self.value.type) if self.pairs else self.value.type
