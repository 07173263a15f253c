"""The plan of a call's results: new tensors, input objects, views of either, sizes, constants.

`output_plan` maps the nested Python result of a trace to outputs of the program. A leaf that is an
input comes back as the caller's own object, a view of an input or of another result is replayed on
the real tensor, and every other tensor is an output of its own.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import paddle

from dy2st.capture import detached_writes
from dy2st.capture.adapters.in_place_shape import Call, changes
from dy2st.results.leaves import (
    Choice,
    Choices,
    Element,
    Elements,
    Final,
    Given,
    Joined,
    Number,
    Option,
    Out,
    OutputPlan,
    Outside,
    Reshaped,
    Rows,
    Same,
    Scalar,
    ShapeOf,
    Views,
)
from dy2st.results.replay import Recipe, chain_in_loop, chain_of, in_iteration
from dy2st.state.container_writes import from_outside
from dy2st.state.guards import is_constant
from dy2st.state.stacked_run import Leaf, StackedRun, mapped
from dy2st.state.strings import Text
from dy2st.state.traced_list import TraceList
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Shape, Tensor
from dy2st.trace.scalar import is_mixed, is_runtime_scalar, settled
from dy2st.trace.signals import Decided, Refused
from dy2st.trace.symint import dim_of, is_symint
from dy2st.trace.trace import Trace, TracedInput
from dy2st.trace.undo import MISSING, Location
from ir import SourceError, Value
from ir.types import Dim


def output_plan(trace: Trace, result: Any, stores: Sequence[tuple[Location, Any]]) -> OutputPlan:
    """The plan of the results of a trace; raises Refused for a result that a program cannot
    return."""
    planner = _Planner(trace, [result, *(v for _, v in stores)])
    tree = planner.tree(result, "the result")
    kept = tuple((place, planner.tree(v, str(place))) for place, v in stores)
    own = {id(q) for q in trace.aliasing.leaves if not q.stop_gradient}
    leaf = any(id(q) in own for q in planner.keep)
    reshaped = tuple(planner.reshaped(q, calls) for q, calls in changes(trace))
    flags = tuple(planner.flags)
    trained = tuple(q._value for q in planner.keep if not q.stop_gradient)
    replayed = frozenset(planner.replayed)
    return OutputPlan(tuple(planner.values), flags, tree, kept, leaf, reshaped, replayed, trained)


class _Planner:
    def __init__(self, trace: Trace, roots: Sequence[Any]) -> None:
        self.trace = trace
        self.keep: list[FakeTensor] = []
        self.outs: dict[int, Out] = {}
        self.containers: dict[int, tuple[Any, Any]] = {}
        self.values: list[Value] = []
        self.flags: list[bool] = []
        self.replayed: set[int] = set()
        self.known_rows: dict[Value, Rows] = {}
        self.ends: dict[Value, tuple[TraceList, tuple[int, ...]]] = {}
        self.list_inputs()
        found: dict[int, FakeTensor] = {}
        for r in roots:
            self.collect(r, found)
        self.shared: Counter[Value] = Counter()
        for f in found.values():
            self.shared.update(self.homes(f._value))

    def collect(self, x: Any, found: dict[int, FakeTensor]) -> None:
        if isinstance(x, FakeTensor):
            found[id(x)] = x
        elif isinstance(x, dict):
            for q in x.values():
                self.collect(q, found)
        elif isinstance(x, TraceList) and x.segmented:
            self.collect_ends(x)
        elif isinstance(x, (list, tuple)):
            for q in x:
                self.collect(q, found)

    def collect_ends(self, x: TraceList) -> None:
        """Note that the tensors of a loop's last iteration are the last element of the list it
        fills."""
        last = x.parts()[-1]
        if not isinstance(last, StackedRun):
            return

        def walk(tree: Any, path: tuple[int, ...]) -> None:
            if isinstance(tree, tuple):
                for k, q in enumerate(tree):
                    walk(q, (*path, k))
            elif isinstance(tree, Leaf) and tree.group == 0 and not tree.number:
                self.ends.setdefault(tree.inner, (x, path))

        walk(last.tree, ())

    def list_inputs(self) -> None:
        inputs = list(self.trace.inputs.by_id.values())
        self.lifted = {q.value: (i, q) for i, q in enumerate(inputs)}
        self.objects = {id(q.fake): i for i, q in enumerate(inputs)}

    def tree(self, x: Any, what: str) -> Any:
        if isinstance(x, Tensor):
            fake = lift(self.trace, x)
            if len(self.objects) < len(self.trace.inputs.by_id):
                self.list_inputs()
            return self.tensor(fake)
        if type(x) is Text:
            raise no_text(what)
        if isinstance(x, (Shape, paddle.Size)):
            return ShapeOf(tuple(dim_of(d) for d in x))
        if id(x) in self.trace.inputs.containers:
            return Given(list(self.trace.inputs.containers).index(id(x)))
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
        if is_runtime_scalar(x) or is_symint(x) and x.data:
            value = x.value if is_runtime_scalar(x) else self.trace.index_value(x)
            return Scalar(self.output(value))
        if is_symint(x):
            return Number(x.dim)
        if (
            isinstance(x, paddle.dtype)
            or x is MISSING
            or is_constant(x)
            or what != "the result"
            or callable(x)
        ):
            return x
        raise no_result(what, x)

    def elements(self, x: TraceList, what: str) -> Any:
        """A list whose length only the call knows: its elements are slices of stacked tensors."""
        if id(x) in self.containers:
            return self.containers[id(x)][1]
        parts = x.parts()
        leaves = [q for part in parts if isinstance(part, StackedRun) for q in leaves_of(part.tree)]
        if any(map(self.collected, leaves)):
            self.containers[id(x)] = (x, self.collection(x, parts, what))
            return self.containers[id(x)][1]
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
        self.containers[id(x)] = (x, Elements(mapped(self.rows, whole.tree)))
        return self.containers[id(x)][1]

    def rows(self, q: Any) -> Rows:
        """The stacked tensor of one leaf; two lists that get the same tensor in every iteration
        share it."""
        key = q.inner if isinstance(q, Leaf) and q.group == 0 else None
        if key is not None and key in self.known_rows:
            return self.known_rows[key]
        fake = q.stacked(self.trace, 0)
        index = self.output(fake._value)
        self.flags[index] = self.flags[index] and fake.stop_gradient
        made = Rows(index, q.number, fake.stop_gradient)
        if key is not None:
            self.known_rows[key] = made
        return made

    def column(self, leaf: Any, trip: Dim, what: str) -> Rows | Views | Choices:
        """The values of one leaf of a list's elements, one tensor or number per iteration."""
        if not self.collected(leaf):
            return self.rows(leaf)
        if leaf.group != 0:
            raise Refused(mixed_list(self.trace, what))
        if self.others_know(self.home(leaf.inner)):
            return self.views(leaf, trip, what)
        return self.choices(leaf, what)

    def collected(self, leaf: Any) -> bool:
        """True if the elements of a list may share memory with an input or with another result,
        always or as data decides."""
        if not isinstance(leaf, Leaf) or leaf.number:
            return False
        return any(map(self.others_know, self.homes(leaf.inner)))

    def others_know(self, home: Value) -> bool:
        """True if a second tensor of the caller, an input or a result, may have this storage."""
        return self.known(home) or (self.outermost(home) and self.shared[home] > 0)

    def outermost(self, home: Value) -> bool:
        return self.trace.values.frame_of[home] is self.trace.frames[0]

    def choices(self, leaf: Leaf, what: str) -> Choices:
        trace = self.trace
        if not trace.origins.exact:
            raise Decided(0)
        code, frame = trace.origins.codes.get(leaf.inner), trace.values.frame_of[leaf.inner]
        if code is None or trace.values.frame_of[code] is not frame:
            raise Refused(mixed_list(trace, what))
        found = self.options(leaf.inner, code, 0)
        options = [q for q in found if trace.origins.before(q[0], frame) is None]
        codes = leaf.cell.add_stack(code, 0, trace)
        return Choices(self.output(codes), tuple(options), self.rows(leaf))

    def collection(self, x: TraceList, parts: Sequence[Any], what: str) -> Joined:
        made: list[Any] = []
        for part in parts:
            if not isinstance(part, StackedRun):
                made.append([self.tree(part, what)])
                continue
            column = functools.partial(self.column, trip=part.trip, what=what)
            made.append(Elements(mapped(column, part.tree)))
        return Joined(tuple(made))

    def views(self, leaf: Leaf, trip: Dim, what: str) -> Views:
        inner, stop = leaf.inner, leaf.stop_gradient
        home, frame = self.home(inner), self.trace.values.frame_of[inner]
        recipe = chain_in_loop(self.trace, inner, home, frame)
        if recipe is None or frame.loop is None:
            raise Refused(mixed_list(self.trace, what))
        of = self.tensor(self.trace.fake(home, stop))
        return Views(replace(of, stop_gradient=stop), recipe, frame.loop.name, trip)

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
        if id(fake) in self.objects:
            return Same(self.objects[id(fake)], (), fake.stop_gradient, id(fake), True)
        root = self.home(fake._value)
        if self.known(root):
            recipe = self.recipe(fake, root)
            if any(name == "reshape" for name, _ in recipe):
                self.replayed.add(self.lifted[root][0])
            return Same(self.lifted[root][0], recipe, fake.stop_gradient, id(fake))
        if (found := self.final(fake, root)) is not None:
            return found
        if root in trace.values.heirs:
            raise Refused(moved_memory(trace))
        if root in trace.origins.codes:
            return self.decided(fake, root)
        self.check_sources(root)
        return self.new(fake, root)

    def new(self, fake: FakeTensor, root: Value) -> Out:
        if self.shared[root] > 1:
            return self.out(fake, root, self.recipe(fake, root))
        return self.out(fake, fake._value, ())

    def known(self, home: Value) -> bool:
        """True if the storage is that of an input other than a constant."""
        return home in self.lifted and self.lifted[home][1].kind != "const"

    def final(self, fake: FakeTensor, root: Value) -> Final | Same | Element | None:
        """The plan of a tensor that the last iteration of a loop made and that shares memory with
        an input or is the last element of a list; None for any other tensor."""
        if root not in self.trace.values.finals or fake._value is not root:
            return None
        inner, loop, trip = self.trace.values.finals[root]
        home, frame = self.home(inner), self.trace.values.frame_of[inner]
        if inner in self.ends:
            of, path = self.ends[inner]
            other = self.out(fake, root, ())
            return Element(self.tree(of, "the result"), path, trip, other)
        if root in self.trace.origins.codes or not self.known(home):
            return None
        if frame.loop is None or frame.loop.name != loop:
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

    # ------------------------------------------------------------ what data decides
    def homes(self, value: Value) -> set[Value]:
        """The storages that a value may be a view of, as in eager execution."""
        found: set[Value] = set()
        todo = [value]
        while todo:
            home = self.home(todo.pop())
            if home not in found:
                found.add(home)
                todo += self.trace.values.sources.get(home, ())
                todo += [self.trace.origins.shown[home]] if home in self.trace.origins.shown else []
        return found

    def decided(self, fake: FakeTensor, root: Value) -> Choice | Out:
        """The plan of a result that is one of several tensors, or a view of one, as data
        decides."""
        origins = self.trace.origins
        code = origins.code(fake) or origins.codes[root]
        self.check_sources(root)
        options = tuple(self.options(root, code, 1))
        passing = frozenset(filter(self.passing, origins.reachable(code)))
        if not options and not passing:
            return self.new(fake, root)
        recipe = () if code is origins.code(fake) else self.recipe(fake, root)
        own = self.trace.fake(root, fake.stop_gradient)
        self.keep.append(own)
        other = self.out(own, root, ())
        at, stop = self.output(code), fake.stop_gradient
        return Choice(at, options, passing, other, recipe, stop, id(fake))

    def passing(self, number: int) -> bool:
        """True if several results may be the tensor that one iteration of a loop made."""
        origins = self.trace.origins
        homes = self.homes(origins.candidates[number].fake._value)
        return origins.alone(number) and any(self.shared[h] > 1 for h in homes)

    def options(self, at: Value, code: Value, own: int) -> Iterator[tuple[int, Option]]:
        """The candidates that the caller can see: inputs, and tensors that more than `own` results
        may be views of."""
        origins = self.trace.origins
        for k in origins.reachable(code):
            q = origins.candidates[k]
            homes = self.homes(q.fake._value)
            known = any(map(self.known, homes))
            if not known and all(self.shared[h] <= own for h in homes):
                continue
            if not known and origins.alone(k):
                continue
            if q.recipe is not None and self.outermost(self.trace.root(q.fake._value)):
                yield k, Option(self.tensor(q.fake), q.recipe, q.stop_gradient)
            elif known:
                raise Refused(decided_view(self.trace))
            else:
                detached_writes.warn_of_copy(self.trace, at)

    def check_sources(self, root: Value) -> None:
        """Retrace with selectors if a result may alias a tensor that the caller can see and the
        choice is made at run time."""
        trace = self.trace
        homes = self.homes(root) - {root}
        if not trace.origins.exact:
            if any(map(self.vague, {root, *homes})) or any(self.shared[h] > 1 for h in homes):
                raise Decided(0)
        elif root not in trace.origins.codes:
            if any(self.known(h) for h in homes):
                raise Refused(decided_view(trace))

    def vague(self, at: Value) -> bool:
        """True if the value may be a view of an input and no selector says of which."""
        origins, sources = self.trace.origins, self.trace.values.sources
        found = origins.vague.get(at, ()) if at in origins.codes else sources.get(at, ())
        return any(self.known(h) for v in found for h in self.homes(v))

    def home(self, value: Value) -> Value:
        """The nearest input that `value` views, or its storage."""
        return next((v for v in self.trace.chain(value) if v in self.lifted), None) or (
            self.trace.root(value)
        )

    def reshaped(self, q: TracedInput, calls: tuple[Call, ...]) -> Reshaped:
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
        """The number of the program's output for `value`; a new output if it is none yet."""
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
        return Out(index, recipe, fake.stop_gradient, id(fake))


def leaves_of(tree: Any) -> Iterator[Any]:
    """The leaves of a segment's tree."""
    if isinstance(tree, tuple):
        for q in tree:
            yield from leaves_of(q)
    else:
        yield tree


def mixed_list(trace: Trace, what: str) -> SourceError:
    return SourceError(
        f"{what} contains a list with views that a loop has collected.",
        trace.where(),
        reason="They share memory with an outer tensor in a way that a call cannot repeat.",
        remedy="Collect copies: `ys.append(y.clone())`.",
    )


def decided_view(trace: Trace) -> SourceError:
    return SourceError(
        "a result is a view of a tensor from outside; a condition on data, or a loop, decides "
        "which one.",
        trace.where(),
        reason="The caller could write to it, and a program cannot return one of several views.",
        remedy="Return a copy: `.clone()`.",
    )


def moved_memory(trace: Trace) -> SourceError:
    return SourceError(
        "a result is a view of an argument that got other memory in this call (`cast_`, or "
        "`reshape_` of a tensor that is not contiguous).",
        trace.where(),
        remedy="Return a copy: `.clone()`.",
    )


def no_result(what: str, x: Any) -> Refused:
    return Refused(
        SourceError(
            f"{what} contains a {type(x).__name__}.",
            reason="A program returns tensors and constants, in tuples, lists and dicts.",
            remedy="Return its tensors, and build the object outside.",
        )
    )


def no_text(what: str) -> Refused:
    return Refused(
        SourceError(
            f"{what} contains a string with a tensor's value in it.",
            reason="The value is known only when the program runs.",
            remedy="Return the tensor, and format it outside.",
        )
    )
