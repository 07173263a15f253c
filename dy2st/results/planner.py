"""The plan of a call's results: new tensors, input objects, views of either, sizes, constants.

`ResultPlanner` maps the nested Python result of a trace to outputs of the program. A leaf that is
an input comes back as the caller's own object, a view of an input or of another result is replayed
on the real tensor, and every other tensor is an output of its own.
"""

from __future__ import annotations

import copy
import enum
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle

from dy2st.branches.chosen_containers import watch_of
from dy2st.results.elements import FilledList, FilledTuple, LastElement
from dy2st.results.filled_lists import FilledLists, parts_of, values_of
from dy2st.results.leaves import (
    ArgumentContainer,
    ArrayOutput,
    CapturedContainer,
    InputOutput,
    NewContainer,
    NumberOrTensor,
    OutputPlan,
    RebuiltObject,
    ResultLeaf,
    RowOutput,
    ScalarOutput,
    SelectedOutput,
    ShapeOf,
    SizeNumber,
    TensorOutput,
    ViewOutput,
    row_of,
)
from dy2st.results.rebuild import ARRAYS, is_fresh
from dy2st.results.refusals import (
    holds_stand_in,
    moved_memory,
    no_result,
    no_text,
    no_view,
)
from dy2st.state.arrays import is_array
from dy2st.state.container_writes import from_outside
from dy2st.state.containers.dynamic_lookup import SelectedObject
from dy2st.state.containers.rebound_containers import ExtendedTuple
from dy2st.state.containers.records import attributes, like_of, loops_of
from dy2st.state.containers.tagged_union import TaggedUnion
from dy2st.state.guards import is_constant
from dy2st.state.ownership import is_users_object
from dy2st.state.stacked_run import StackedLeaf as Collected
from dy2st.state.stacked_run import StackedRun
from dy2st.state.strings import LazyText
from dy2st.state.traced_list import TraceList
from dy2st.state.tree import elements, is_container
from dy2st.state.tree import parts as parts_in
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Shape, Tensor
from dy2st.trace.memory import Recipe, chain_of
from dy2st.trace.scalar import is_mixed, is_runtime_scalar, settled
from dy2st.trace.signals import Refused
from dy2st.trace.symint import dim_of, is_symint
from dy2st.trace.trace import Trace
from dy2st.trace.undo import MISSING, Location, kind_of
from ir import Carry, Loc, Program, Scan, Type, Value
from ir.passes.provenance import Provenance, select
from ir.types import I64

#: why a result is a copy
MEMORY = "data or a loop decides here which memory a result shows"
LENGTH = (
    "data, or a number that changes from call to call, decides here how large a part of a tensor "
    "a result shows"
)


class CopyWarning(UserWarning):
    """A result is a tensor of its own that in eager Paddle shares memory in some runs."""

    __module__ = "dy2st"  # its public name, which tracebacks show


class ResultPlanner:
    """Plans what a traced function returns: the tree of the result, and those of its stores.

    Results that may show one memory are told apart by the storages that they reach in the captured
    program. `shared`: how many results show a storage; `owners`: how many of them are the elements
    of a list.
    """

    def __init__(
        self, trace: Trace, result: object, stores: Sequence[tuple[Location, object]]
    ) -> None:
        self.trace, self.stores, self.result = trace, stores, result
        self.keep: list[FakeTensor] = []
        self.values: list[Value] = []
        self.flags: list[bool] = []
        self.replayed: set[int] = set()
        self.leaves: dict[Value, ResultLeaf] = {}
        self.containers: dict[int, tuple[object, object]] = {}
        self.lists = FilledLists(self)
        self.rows: dict[ResultLeaf, set[int]] = {}
        self.selectors: dict[Value, Value] = {}
        self.numbers: dict[Value, int] = {}
        self.fixed: set[Value] = set()
        self.arrays: dict[int, ArrayOutput] = {}
        self.warned: set[Loc] = set()
        self.list_inputs()
        self.provenance = Provenance(self.captured())
        self.ends: dict[Value, tuple[TraceList, tuple[int, ...]]] = {}
        self.shared: Counter[Value] = Counter()
        self.listed: dict[Value, set[Value]] = {}
        found: dict[Value, bool] = {}
        self.returned: dict[int, object] = {}
        self.planned: set[int] = set()
        for x in (result, *(v for _, v in stores)):
            self.collect(x, found)
        self.check_doubts()
        for value, listed in found.items():
            for s in self.provenance.storages(value):
                self.shared[s] += 1
                if listed:
                    self.listed.setdefault(s, set()).add(value)
        objects = {q for value in found for q in (value, *self.provenance.objects(value))}
        self.shared.update({s for q in objects for s in self.copied(q)})

    def captured(self) -> Program:
        frame = self.trace.frames[0]
        requires = tuple(frame.requires.values())
        return Program("", (), tuple(frame.builder.ops), (), (), requires)

    def plan(self) -> OutputPlan:
        """Raises Refused for results that a program cannot give back."""
        tree = self.tree(self.result, "the result")
        stores = tuple((place, self.tree(v, str(place))) for place, v in self.stores)
        own = {id(q) for q in self.trace.aliasing.leaves if not q.stop_gradient}
        leaf = any(id(q) in own for q in self.keep)
        moved = tuple(self.traced[v][0] for v in dict.fromkeys(self.trace.values.heirs.values()))
        trained = tuple(q._value for q in self.keep if not q.stop_gradient)
        return OutputPlan(
            tuple(self.values), tuple(self.flags), tree, stores, leaf, moved,
            frozenset(self.replayed), trained,
        )  # fmt: skip

    def with_selectors(self, program: Program) -> Program:
        """The captured program, which also says which tensor a result is."""
        return select(program, self.selectors, self.numbers, self.fixed)

    # ------------------------------------------------------------ aliases of results
    def check_doubts(self) -> None:
        """Refuse a container that may be another one that the caller can see."""
        for key, x in self.returned.items():
            doubt = self.trace.objects.doubts.get(key)
            if doubt is not None and any(self.may_be_held(q, x) for q in doubt.among):
                self.trace.check_certain(x)

    def may_be_held(self, q: object, x: object) -> bool:
        """Whether the caller knows a container `q`, or may find it beside `x`."""
        if id(q) in self.trace.inputs.containers or from_outside(self.trace, q):
            return True
        doubts = [self.trace.objects.doubts.get(k) for k in self.returned if k != id(x)]
        again = any(d is not None and any(p is q for p in d.among) for d in doubts)
        return again or id(q) in self.returned and q is not x

    def collect(self, x: Any, found: dict[Value, bool]) -> None:
        """The tensors in a result, and whether they are elements of a list that a loop fills."""
        if isinstance(x, (dict, list)) or is_container(x):
            if id(x) in self.returned:
                return
            self.returned[id(x)] = x
            if (watch := watch_of(self.trace, x)) is not None:
                watch.touched(x, False)
        if isinstance(x, FakeTensor):
            self.trace.read_value(x._value)
            found.setdefault(x._value, False)
            self.lists.note_tensor(x._value)
        elif type(x) is TaggedUnion:
            self.collect(x.tensor, found)
        elif isinstance(x, dict):
            for q in x.values():
                self.collect(q, found)
        elif isinstance(x, TraceList) and x.segmented:
            for part in x.parts():
                if isinstance(part, StackedRun):
                    self.returned.update((id(q), q) for q in loops_of(part.tree))
                    leaves = parts_of(part.tree)
                    found.update((v, True) for leaf in leaves for v in values_of(leaf))
                    self.lists.note(part, self.lists.lists)
                else:
                    self.collect(part, found)
            self.collect_ends(x)
        elif isinstance(x, (list, tuple)) or is_container(x):
            for q in parts_in(x) if type(x) in (list, tuple) or is_container(x) else x:
                self.collect(q, found)

    def collect_ends(self, x: TraceList) -> None:
        """Note that the tensors of a loop's last iteration are the last element of the list it
        fills."""
        last = x.parts()[-1]
        if isinstance(last, StackedRun):
            self.collect_last(x, last.tree, ())

    def collect_last(self, x: TraceList, tree: object, path: tuple[int, ...]) -> None:
        if isinstance(tree, tuple):
            for k, q in enumerate(tree):
                self.collect_last(x, q, (*path, k))
        elif isinstance(tree, Collected) and tree.group == 0 and not tree.number:
            self.ends.setdefault(tree.inner, (x, path))

    def list_inputs(self) -> None:
        inputs = list(self.trace.inputs.by_id.values())
        self.traced = {q.value: (i, q) for i, q in enumerate(inputs)}
        self.objects = {q.fake._value: i for i, q in enumerate(inputs)}
        self.objects.update((q.value, i) for i, q in enumerate(inputs))

    def copied(self, value: Value) -> set[Value]:
        """The memory that a result shows in eager, while it is a copy here: an element that is
        taken from a list."""
        found = () if self.lists.is_element(value) else self.trace.values.copies.get(value, ())
        return {s for v in found for s in self.provenance.storages(v)}

    def visible(self, storage: Value) -> bool:
        """Whether a storage is visible outside of this result: it is an input, or results share
        it."""
        return self.known(storage) or self.shared[storage] > 1

    def known(self, value: Value) -> bool:
        return value in self.traced and self.traced[value][1].kind != "const"

    def home(self, value: Value) -> Value:
        """The nearest input that `value` views, or its storage."""
        return next((v for v in self.trace.chain(value) if v in self.traced), None) or (
            self.trace.root(value)
        )

    # ------------------------------------------------------------ trees
    def tree(self, x: Any, what: str) -> Any:
        if isinstance(x, Tensor):
            return self.tensor(lift(self.trace, x))
        if type(x) is TaggedUnion:
            parts = self.tree(x.number, what), self.tree(x.tensor, what)
            return NumberOrTensor(self.output(x.test.value), *parts, x.__describe__())
        if type(x) is LazyText:
            raise no_text(what)
        if isinstance(x, (Shape, paddle.Size)):
            return ShapeOf(tuple(dim_of(d) for d in x))
        if id(x) in self.trace.inputs.containers:
            return ArgumentContainer(list(self.trace.inputs.containers).index(id(x)))
        if from_outside(self.trace, x) or id(x) in self.trace.guards.records:
            home = self.trace.guards.homes.get(id(x))
            return CapturedContainer(x if home is None else None, home)
        if isinstance(x, TraceList) or type(x) in (list, dict):
            found = self.container(x, what)
            return FilledTuple(found) if isinstance(x, ExtendedTuple) else found
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return type(x)(*(self.tree(q, what) for q in x))
        if type(x) is tuple:
            return tuple(self.tree(q, what) for q in x)
        if is_mixed(x):
            return self.tensor(settled(x))
        if is_runtime_scalar(x) or is_symint(x) and x.data:
            value = x.value if is_runtime_scalar(x) else self.trace.index_value(x)
            return ScalarOutput(self.output(value))
        if is_symint(x):
            return SizeNumber(x.dim)
        if type(x) is SelectedObject:
            raise no_result(what, x)
        if is_array(x):
            given = next((k for k, q in self.traced.values() if q.array is x), None)
            if given is not None:
                return InputOutput(given)
            home = self.home(x.fake._value)
            if home in self.traced and self.traced[home][1].array is not None:
                raise no_view(what)
            return self.arrays.setdefault(id(x), ArrayOutput(self.output(x.fake._value)))
        own = id(x) in self.trace.objects.made and is_fresh(x, what != "the result")
        own |= type(x) is np.ndarray and x.base is None and not self.is_known(x)
        if own and not is_container(x):
            return self.rebuilt(x, what)
        if is_container(x) or holds_stand_in(self.trace, x):
            return self.made(x, what)
        if (
            isinstance(x, paddle.dtype)
            or x is MISSING
            or is_constant(x)
            or what != "the result"
            or callable(x)
            or isinstance(x, (enum.Enum, np.generic))
            or is_users_object(x)
            and self.is_outside(x)
        ):
            return x
        raise no_result(what, x)

    def is_outside(self, x: object) -> bool:
        """Whether an object was there before: the program belongs to this very one."""
        return id(x) not in self.trace.objects.made and self.is_known(x)

    def is_known(self, x: object) -> bool:
        guards = self.trace.guards
        return any(id(x) in q for q in (guards.ids, guards.named, guards.arrays))

    def container(self, x: Any, what: str) -> object:
        """A list or dict; one that stands in two places stays one."""
        if id(x) not in self.containers:
            self.planned.add(id(x))
            if isinstance(x, TraceList) and x.segmented:
                tree: object = self.lists.elements(x, what)
            elif type(x) is dict:
                tree = {k: self.tree(q, what) for k, q in x.items()}
            else:
                tree = [self.tree(q, what) for q in x]
            self.containers[id(x)] = (x, tree)
        return self.containers[id(x)][1]

    def made(self, x: object, what: str) -> object:
        """An object that is neither a list nor a plain dict."""
        if id(x) not in self.containers:
            found = elements(x)
            if found is None:
                raise no_result(what, x)
            self.containers[id(x)] = (x, no_result(what, x))
            like = like_of(x, [None] * len(found))
            parts = tuple(self.tree(q, what) for q in found.values())
            self.containers[id(x)] = (x, NewContainer(like, parts))
        tree = self.containers[id(x)][1]
        if isinstance(tree, Refused):
            raise tree
        return tree

    def rebuilt(self, x: object, what: str) -> object:
        """An object that each call has to make anew."""
        if id(x) not in self.containers:
            self.containers[id(x)] = (x, no_result(what, x))
            like, kind = copy.copy(x) if isinstance(x, ARRAYS) else x, kind_of(x)
            elements = () if kind is None else kind.contents(x)
            found = attributes(x) if is_users_object(x) else {}
            fields = {n: self.tree(q, what) for n, q in found.items()}
            made = RebuiltObject(like, fields, tuple(self.tree(q, what) for q in elements))
            self.containers[id(x)] = (x, made)
        tree = self.containers[id(x)][1]
        if isinstance(tree, Refused):
            raise tree
        return tree

    # ------------------------------------------------------------ tensors
    def tensor(self, fake: FakeTensor) -> ResultLeaf:
        self.keep.append(fake)
        if len(self.traced) < len(self.trace.inputs.by_id):
            self.list_inputs()
        return self.leaf(fake._value, fake.stop_gradient)

    def leaf(self, value: Value, stop_gradient: bool | None = None) -> ResultLeaf:
        """The leaf of the object that a value of the outermost block is."""
        if stop_gradient is None:
            stop_gradient = value not in self.trace.autograd.trained
        while value in self.trace.values.became:
            value = self.trace.values.became[value]
        return self.known_leaf(value, stop_gradient)

    def known_leaf(self, value: Value, stop_gradient: bool) -> ResultLeaf:
        if value not in self.leaves:
            self.leaves[value] = self.new_leaf(value, stop_gradient)
        return self.leaves[value]

    def new_leaf(self, value: Value, stop_gradient: bool) -> ResultLeaf:
        if value in self.objects:
            return InputOutput(self.objects[value])
        element = self.lists.element(value, stop_gradient)
        if element is not None:
            return element
        home = self.home(value)
        objects = (q for q in self.provenance.objects(value) if q is not value)
        chosen = {s for q in objects for s in self.copied(q)}
        if any(map(self.visible, self.copied(value) - chosen)):
            self.warn_of_copy(self.line(value))
        if home is value or not self.is_aliased(home):
            return self.new(value, stop_gradient)
        if not value.type.names.isdisjoint(self.trace.sizes.counts):
            self.warn_of_copy(self.line(value), LENGTH)
            return self.new(value, stop_gradient)
        recipe = self.recipe(value, home)
        if self.known(home) and any(name == "reshape" for name, _ in recipe):
            self.replayed.add(self.traced[home][0])
        return self.view(self.known_leaf(home, stop_gradient), recipe, stop_gradient)

    def view(self, of: ResultLeaf, recipe: Recipe, stop_gradient: bool) -> ViewOutput:
        row = row_of(recipe)
        if row is None:
            return ViewOutput(of, recipe, stop_gradient)
        shown = self.rows.setdefault(of, set())
        shown.add(row)
        return RowOutput(of, recipe, stop_gradient, row, shown)

    def is_aliased(self, home: Value) -> bool:
        """Whether the caller, or another result, has the memory of `home`."""
        return any(map(self.visible, self.provenance.storages(home))) or self.shared[home] > 1

    def new(self, value: Value, stop_gradient: bool) -> ResultLeaf:
        """A tensor that the program makes, or one of those that it may be."""
        if self.trace.root(value) in self.trace.values.heirs:
            raise Refused(moved_memory())
        node, port = self.provenance.ports.get(value, (None, None))
        inner = port.next if isinstance(port, Carry) else getattr(port, "inner", None)
        if not isinstance(node, Scan) or inner not in self.ends or inner is value:
            return self.chosen(value, stop_gradient)
        x, path = self.ends[inner]
        if id(x) in self.planned and id(x) not in self.containers:
            elements: object = FilledList((self.lists.part(x.parts()[-1], "the result"),))
        else:
            elements = self.container(x, "the result")
        if not isinstance(elements, FilledList):
            return self.chosen(value, stop_gradient)
        other = self.chosen(value, stop_gradient, [inner])
        return LastElement(elements, path, node.length, other)

    def chosen(self, value: Value, stop_gradient: bool, but: Sequence[Value] = ()) -> ResultLeaf:
        """Return the leaf of a value that is one of several tensors, some visible elsewhere; `but`:
        tensors that it cannot be."""
        p = self.provenance
        other = TensorOutput(self.output(value, stop_gradient))
        options: list[tuple[int, ResultLeaf]] = []
        several = False
        for q in p.objects(value) if value in p.sources else ():
            storages = p.storages(q)
            listed, copied = self.lists.shows(q), any(map(self.visible, self.copied(q)))
            if q in but or not (listed or copied or any(map(self.visible, storages))):
                continue
            if listed and not p.outermost(q) and (element := self.lists.option(q)) is not None:
                self.fixed.add(q)
                options.append((self.number(q), element))
            elif p.outermost(q) and (listed or not copied):
                options.append((self.number(q), self.leaf(q)))
            elif storages == [q] and not copied and q not in self.listed and p.countable(q):
                several = bool(self.number(q))
            else:
                self.warn_of_copy(self.line(value))
        if not options and not several:
            return other
        selector = self.selectors.setdefault(value, Value(Type(I64), "selector"))
        return SelectedOutput(self.output(selector), tuple(options), other)

    def number(self, value: Value) -> int:
        return self.numbers.setdefault(value, len(self.numbers) + 1)

    def line(self, value: Value) -> Loc:
        made = (q.loc for q in self.trace.frames[0].builder.ops if value in q.results)
        return next(made, self.trace.where())

    def warn_of_copy(self, loc: Loc, cause: str = MEMORY) -> None:
        if loc in self.warned:
            return
        self.warned.add(loc)
        warnings.warn(
            f"dy2st: {loc}: {cause}. It is a tensor of its own now; in eager Paddle a write to it "
            "may reach another tensor. Return a copy (`.clone()`) to have the same in both.",
            CopyWarning,
            stacklevel=2,
        )

    def recipe(self, value: Value, root: Value) -> Recipe:
        found = chain_of(self.trace, value, root, self.output)
        if found is None:
            raise Refused(
                "a result shares memory with another tensor, at an index that is written later "
                "or in a way that is not known.",
                self.line(value),
                remedy="Return a copy: `.clone()`.",
            )
        return found

    def output(self, value: Value, stop_gradient: bool = True) -> int:
        """The number of the output that is `value`."""
        self.trace.check_defined([value])
        if value not in self.values:
            self.values.append(value)
            self.flags.append(True)
        index = self.values.index(value)
        self.flags[index] = self.flags[index] and stop_gradient
        return index
