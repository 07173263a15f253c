"""What a program gives back: new tensors, input objects, views of either, sizes and constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import paddle

from dy2st.capture import aliases
from dy2st.capture.emitter import lift
from dy2st.capture.fake import FakeTensor, Shape, Tensor
from dy2st.capture.reshaping import Call, changes
from dy2st.capture.trace import Lifted, Trace
from dy2st.capture.versions import Moves
from dy2st.changed import from_outside
from dy2st.containers import TraceList
from dy2st.guards import is_constant
from dy2st.journal import MISSING, Place
from dy2st.number import is_mixed, is_number, settled
from dy2st.segments import Leaf, Segment
from dy2st.stops import Refused
from dy2st.symbols import dim_of, is_sym
from dy2st.text import Text
from dy2st.views import Recipe, chain_in_loop, chain_of, in_iteration
from ir import SourceError, Value
from ir.types import Dim


@dataclass(frozen=True)
class Reshaped:
    """`calls` are made on lifted input `index`; then it is filled with output `output`, if any."""

    index: int
    calls: tuple[Call, ...]
    output: int | None


@dataclass(frozen=True)
class OutputPlan:
    """`result` and `stores` are trees whose leaves say where a value comes from.

    leaf: a result is a tensor that the function made to require a gradient of its own.
    moves: (input, n, output): the input's version is raised by n, and by an output.
    reshaped: arguments that look in another way when the program has run.
    replayed: lifted inputs of which a result may be a copy, if they are not contiguous.
    """

    values: tuple[Value, ...]
    flags: tuple[bool, ...]
    result: Any
    stores: tuple[tuple[Place, Any], ...]
    leaf: bool = False
    moves: tuple[tuple[Value, Dim, int | None], ...] = ()
    reshaped: tuple[Reshaped, ...] = ()
    replayed: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Out:
    """Output `index` of the program, looked at through `recipe`; `key` is the user's object.

    Output `origin`, if there is one, says which lifted input it is, or -1.
    """

    index: int
    recipe: Recipe
    stop_gradient: bool
    key: int
    origin: int | None = None


@dataclass(frozen=True)
class Same:
    """Lifted input `index`: the object `itself`, or another one that looks through `recipe`."""

    index: int
    recipe: Recipe
    stop_gradient: bool
    key: int
    itself: bool = False


@dataclass(frozen=True)
class Number:
    """A size of the program as a Python int."""

    dim: Any


@dataclass(frozen=True)
class Scalar:
    """Output `index` of the program as a Python bool, int or float."""

    index: int


@dataclass(frozen=True)
class Outside:
    """A list, dict or set that was there before the call."""

    obj: Any


@dataclass(frozen=True)
class Given:
    """The list or dict that is number `index` of those in the call's arguments."""

    index: int


@dataclass(frozen=True)
class Elements:
    """A list with the slices of tensors along their first axis; the leaves of `tree` are Rows."""

    tree: Any


@dataclass(frozen=True)
class Rows:
    """Output `index`, taken apart into tensors or into Python numbers."""

    index: int
    number: bool
    stop_gradient: bool


@dataclass(frozen=True)
class Views:
    """A list with a view of tensor `of` for every iteration `loop`, of which there are `trip`."""

    of: Same | Out
    recipe: Recipe
    loop: str
    trip: Dim


@dataclass(frozen=True)
class Final:
    """The view of tensor `of` that the last of `trip` iterations of `loop` has made; `other` where
    there is none."""

    of: Same | Out
    recipe: Recipe
    loop: str
    trip: Dim
    key: int
    other: Out


@dataclass(frozen=True)
class Joined:
    """A list of the elements of `parts`: Views, and trees of single elements in lists."""

    parts: tuple[Any, ...]


@dataclass(frozen=True)
class ShapeOf:
    """The shape of a tensor, as Paddle gives it."""

    dims: tuple[Any, ...]


def output_plan(
    trace: Trace, result: Any, stores: Sequence[tuple[Place, Any]], moves: Sequence[Moves] = ()
) -> OutputPlan:
    """Decide what the program returns; raises Refused for results that it cannot give back."""
    planner = _Planner(trace, [result, *(v for _, v in stores)])
    tree = planner.tree(result, "the result")
    kept = tuple((place, planner.tree(v, str(place))) for place, v in stores)
    own = {id(q) for q in trace.leaves if not q.stop_gradient}
    leaf = any(id(q) in own for q in planner.keep)
    counts = [None if m.counted is None else planner.output(m.counted) for m in moves]
    raised = tuple((m.root, m.fixed, n) for m, n in zip(moves, counts))
    reshaped = tuple(planner.reshaped(q, calls) for q, calls in changes(trace))
    flags = tuple(planner.flags)
    replayed = frozenset(planner.replayed)
    return OutputPlan(tuple(planner.values), flags, tree, kept, leaf, raised, reshaped, replayed)


class _Planner:
    def __init__(self, trace: Trace, roots: Sequence[Any]) -> None:
        self.trace = trace
        self.keep: list[FakeTensor] = []
        self.outs: dict[int, Out] = {}
        self.containers: dict[int, tuple[Any, Any]] = {}
        self.values: list[Value] = []
        self.flags: list[bool] = []
        self.replayed: set[int] = set()
        self.list_inputs()
        found: dict[int, FakeTensor] = {}
        for r in roots:
            self.collect(r, found)
        self.shared: dict[Value, int] = {}
        for f in found.values():
            root = trace.root(f._value)
            self.shared[root] = self.shared.get(root, 0) + 1

    def collect(self, x: Any, found: dict[int, FakeTensor]) -> None:
        if isinstance(x, FakeTensor):
            found[id(x)] = x
        elif isinstance(x, dict):
            for q in x.values():
                self.collect(q, found)
        elif isinstance(x, (list, tuple)) and not getattr(x, "segmented", False):
            for q in x:
                self.collect(q, found)

    def list_inputs(self) -> None:
        inputs = list(self.trace.lifted.values())
        self.lifted = {q.value: (i, q) for i, q in enumerate(inputs)}
        self.objects = {id(q.fake): i for i, q in enumerate(inputs)}

    def tree(self, x: Any, what: str) -> Any:
        if isinstance(x, Tensor):
            fake = lift(self.trace, x)
            if len(self.objects) < len(self.trace.lifted):
                self.list_inputs()
            return self.tensor(fake)
        if type(x) is Text:
            raise no_text(what)
        if isinstance(x, (Shape, paddle.Size)):
            return ShapeOf(tuple(dim_of(d) for d in x))
        if id(x) in self.trace.arguments:
            return Given(list(self.trace.arguments).index(id(x)))
        if from_outside(self.trace, x):
            return Outside(x)
        if isinstance(x, TraceList) and x.segmented:
            return self.elements(x, what)
        if isinstance(x, list) or type(x) is dict:
            return self.container(x, what)
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return type(x)(*(self.tree(q, what) for q in x))
        if type(x) is tuple:
            return tuple(self.tree(q, what) for q in x)
        if is_mixed(x):
            return self.tensor(settled(x))
        if is_number(x) or is_sym(x) and x.data:
            value = x.value if is_number(x) else self.trace.index_value(x)
            return Scalar(self.output(value))
        if is_sym(x):
            return Number(x.dim)
        if (
            isinstance(x, paddle.dtype)
            or x is MISSING
            or is_constant(x)
            or what != "the result"
            or callable(x)
        ):
            return x
        raise Refused(
            SourceError(
                f"{what} contains a {type(x).__name__}.",
                reason="A program returns tensors and constants, in tuples, lists and dicts.",
                remedy="Return those, and build the object outside.",
            )
        )

    def elements(self, x: TraceList, what: str) -> Any:
        """A list whose length only the call knows: its elements are slices of stacked tensors."""
        parts = x.parts()
        if any(map(self.collected, parts)):
            return self.collection(x, parts, what)
        whole = x.as_segment(self.trace)
        if whole is None and isinstance(x.size(), int):
            return self.container([x[i] for i in range(len(x))], what)
        if whole is None:
            raise Refused(
                SourceError(
                    f"{what} contains a list of Python values as long as a size of the program.",
                    remedy="Return a tensor, or give the size as a number in input_spec.",
                )
            )

        def leaf(q: Any) -> Any:
            if isinstance(q, tuple):
                parts = [leaf(part) for part in q]
                return type(q)(*parts) if hasattr(q, "_fields") else tuple(parts)
            fake = q.stacked(self.trace, 0)
            index = self.output(fake._value)
            self.flags[index] = self.flags[index] and fake.stop_gradient
            return Rows(index, q.number, fake.stop_gradient)

        if id(x) not in self.containers:
            self.containers[id(x)] = (x, Elements(leaf(whole.tree)))
        return self.containers[id(x)][1]

    def collected(self, part: Any) -> bool:
        """Whether a loop has collected views of a tensor that others know, too."""
        if not isinstance(part, Segment) or not isinstance(part.tree, Leaf) or part.tree.number:
            return False
        home = self.home(part.tree.inner)
        return self.known(home) or self.shared.get(home, 0) > 0

    def collection(self, x: TraceList, parts: Sequence[Any], what: str) -> Any:
        if id(x) in self.containers:
            return self.containers[id(x)][1]
        made: list[Any] = []
        for part in parts:
            if not isinstance(part, Segment):
                made.append([self.tree(part, what)])
            elif self.collected(part) and part.tree.group == 0:
                made.append(self.views(part, what))
            else:
                raise Refused(mixed_list(self.trace, what))
        self.containers[id(x)] = (x, Joined(tuple(made)))
        return self.containers[id(x)][1]

    def views(self, part: Segment, what: str) -> Views:
        inner, stop = part.tree.inner, part.tree.stop_gradient
        home, frame = self.home(inner), self.trace.born[inner]
        recipe = chain_in_loop(self.trace, inner, home, frame)
        if recipe is None or frame.loop is None:
            raise Refused(mixed_list(self.trace, what))
        of = self.tensor(self.trace.fake(home, stop))
        return Views(replace(of, stop_gradient=stop), recipe, frame.loop.name, part.trip)

    def container(self, x: Any, what: str) -> Any:
        """A list or dict; one that stands in two places stays one."""
        if id(x) not in self.containers:
            if type(x) is dict:
                tree: Any = {k: self.tree(q, what) for k, q in x.items()}
            else:
                tree = [self.tree(q, what) for q in x]
            self.containers[id(x)] = (x, tree)
        return self.containers[id(x)][1]

    def tensor(self, fake: FakeTensor) -> Any:
        trace = self.trace
        self.keep.append(fake)
        if trace.overwritten and not fake.stop_gradient:
            aliases.check(trace, fake)
        if id(fake) in self.objects:
            return Same(self.objects[id(fake)], (), fake.stop_gradient, id(fake), True)
        root = self.home(fake._value)
        if self.known(root):
            recipe = self.recipe(fake, root)
            if any(name == "reshape" for name, _ in recipe):
                self.replayed.add(self.lifted[root][0])
            return Same(self.lifted[root][0], recipe, fake.stop_gradient, id(fake))
        if root in self.trace.finals and fake._value is root:
            found = self.final(fake, root)
            if found is not None:
                return found
        self.check_sources(root)
        if root in self.trace.heirs:
            raise Refused(moved_memory(self.trace))
        if self.shared.get(root, 0) > 1:
            return self.out(fake, root, self.recipe(fake, root))
        return self.out(fake, fake._value, ())

    def known(self, home: Value) -> bool:
        """Whether others know this storage: an input, or one of several results."""
        return home in self.lifted and self.lifted[home][1].kind != "const"

    def final(self, fake: FakeTensor, root: Value) -> Final | Same | None:
        """A view that the last iteration of a loop has made of a tensor that others know."""
        inner, loop, trip = self.trace.finals[root]
        home, frame = self.home(inner), self.trace.born[inner]
        if not self.known(home) or frame.loop is None or frame.loop.name != loop:
            return None
        recipe = chain_in_loop(self.trace, inner, home, frame)
        if recipe is None:
            return None
        of = self.tensor(self.trace.fake(home, fake.stop_gradient))
        if isinstance(trip, int):
            recipe = (*of.recipe, *in_iteration(recipe, loop, trip - 1))
            return replace(of, recipe=recipe, key=id(fake))
        stop, other = fake.stop_gradient, self.out(fake, root, ())
        return Final(replace(of, stop_gradient=stop), recipe, loop, trip, id(fake), other)

    def check_sources(self, root: Value) -> None:
        """What data, or the end of a loop, decides is a new tensor here; it must not be surely a
        view in eager execution."""
        if root not in self.trace.sources:
            return
        if self.surely_known(root, {root}):
            raise Refused(decided_view(self.trace))
        if self.perhaps_known(root, {root}):
            aliases.warn_of_copy(self.trace, root)

    def surely_known(self, at: Value, seen: set[Value]) -> bool:
        for v in self.trace.sources[at]:
            home = self.home(v)
            if self.known(home) and not (v is home and at in self.trace.origins):
                continue
            if home in seen or home not in self.trace.sources:
                return False
            if not self.surely_known(home, {*seen, home}):
                return False
        return True

    def perhaps_known(self, at: Value, seen: set[Value]) -> bool:
        """Whether one of the sources is, in eager execution, a tensor that others know."""
        for v in self.trace.sources[at]:
            home = self.home(v)
            if home in seen:
                continue
            if self.known(home) or self.shared.get(home, 0) > 0:
                if not (v is home and at in self.trace.origins):
                    return True
            elif home in self.trace.sources and self.perhaps_known(home, {*seen, home}):
                return True
        return False

    def home(self, value: Value) -> Value:
        """The nearest input that `value` views, or its storage."""
        return next((v for v in aliases.chain(self.trace, value) if v in self.lifted), None) or (
            self.trace.root(value)
        )

    def reshaped(self, q: Lifted, calls: tuple[Call, ...]) -> Reshaped:
        value = q.fake._value
        other = self.trace.root(value) is not self.trace.root(q.value)
        return Reshaped(self.lifted[q.value][0], calls, self.output(value) if other else None)

    def recipe(self, fake: FakeTensor, root: Value) -> Recipe:
        found = chain_of(self.trace, fake._value, root, self.output)
        if found is None:
            raise Refused(
                SourceError(
                    "a result shares memory with another tensor, at an index that is written later "
                    "or in a way that is not known.",
                    self.trace.where(),
                    remedy="Return a copy: `.clone()`.",
                )
            )
        return found

    def output(self, value: Value) -> int:
        """The number of the output that is `value`."""
        self.trace.check_defined([value])
        if value not in self.values:
            self.values.append(value)
            self.flags.append(True)
        return self.values.index(value)

    def out(self, fake: FakeTensor, value: Value, recipe: Recipe) -> Out:
        if id(fake) not in self.outs:
            self.outs[id(fake)] = self.new_out(fake, value, recipe)
        return self.outs[id(fake)]

    def new_out(self, fake: FakeTensor, value: Value, recipe: Recipe) -> Out:
        if value not in self.values:
            recipe = () if fake._value is value else recipe
        index = self.output(value)
        self.flags[index] = self.flags[index] and fake.stop_gradient
        origin = self.trace.origins.get(fake._value)
        at = None if origin is None else self.output(origin)
        return Out(index, recipe, fake.stop_gradient, id(fake), at)


def mixed_list(trace: Trace, what: str) -> SourceError:
    return SourceError(
        f"{what} contains a list with views that a loop has collected.",
        trace.where(),
        reason="They share memory with a tensor outside, in a way that a call cannot repeat.",
        remedy="Collect copies: `ys.append(y.clone())`.",
    )


def decided_view(trace: Trace) -> SourceError:
    return SourceError(
        "a result is a view of a tensor from outside; a condition on data, or a loop, decides "
        "which one.",
        trace.where(),
        reason="The caller could write to it, and a program cannot give back one of several views.",
        remedy="Return a copy: `.clone()`.",
    )


def moved_memory(trace: Trace) -> SourceError:
    return SourceError(
        "a result is a view of an argument that got other memory in this call (`cast_`, or "
        "`reshape_` of a tensor that is not contiguous).",
        trace.where(),
        remedy="Return a copy: `.clone()`.",
    )


def no_text(what: str) -> Refused:
    return Refused(
        SourceError(
            f"{what} contains a text with a tensor's value in it.",
            reason="The value is known only when the program runs.",
            remedy="Return the tensor, and format it outside.",
        )
    )
