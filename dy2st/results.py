"""What a program gives back: new tensors, input objects, views of either, sizes and constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import paddle

from dy2st.capture.emitter import lift
from dy2st.capture.fake import FakeTensor, Shape, Tensor
from dy2st.capture.trace import Trace
from dy2st.guards import is_constant
from dy2st.journal import MISSING, Place
from dy2st.stops import Refused
from dy2st.symbols import dim_of, is_sym
from dy2st.views import Recipe, chain_of, replay
from ir import SourceError, Value
from ir.types import evaluate_dim


@dataclass(frozen=True)
class OutputPlan:
    """`result` and `stores` are trees whose leaves say where a value comes from."""

    values: tuple[Value, ...]
    flags: tuple[bool, ...]
    result: Any
    stores: tuple[tuple[Place, Any], ...]


@dataclass(frozen=True)
class Out:
    """Output `index` of the program, looked at through `recipe`; `key` is the user's object."""

    index: int
    recipe: Recipe
    stop_gradient: bool
    key: int


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
class ShapeOf:
    """The shape of a tensor, as Paddle gives it."""

    dims: tuple[Any, ...]


def output_plan(trace: Trace, result: Any, stores: Sequence[tuple[Place, Any]]) -> OutputPlan:
    """Decide what the program returns; raises Refused for results that it cannot give back."""
    planner = _Planner(trace, [result, *(v for _, v in stores)])
    tree = planner.tree(result, "the result")
    kept = tuple((place, planner.tree(v, str(place))) for place, v in stores)
    return OutputPlan(tuple(planner.values), tuple(planner.flags), tree, kept)


class _Planner:
    def __init__(self, trace: Trace, roots: Sequence[Any]) -> None:
        self.trace = trace
        self.keep: list[FakeTensor] = []
        self.containers: dict[int, tuple[Any, Any]] = {}
        self.values: list[Value] = []
        self.flags: list[bool] = []
        self.lifted = {q.value: (i, q) for i, q in enumerate(trace.lifted.values())}
        self.objects = {id(q.fake): i for i, q in enumerate(trace.lifted.values())}
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
        elif isinstance(x, (list, tuple)):
            for q in x:
                self.collect(q, found)

    def tree(self, x: Any, what: str) -> Any:
        if isinstance(x, Tensor):
            return self.tensor(lift(self.trace, x))
        if isinstance(x, (Shape, paddle.Size)):
            return ShapeOf(tuple(dim_of(d) for d in x))
        if isinstance(x, list) or type(x) is dict:
            return self.container(x, what)
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return type(x)(*(self.tree(q, what) for q in x))
        if type(x) is tuple:
            return tuple(self.tree(q, what) for q in x)
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
        root = trace.root(fake._value)
        if root in self.lifted and self.lifted[root][1].kind != "const":
            recipe = self.recipe(fake, root)
            return Same(self.lifted[root][0], recipe, fake.stop_gradient, id(fake))
        if self.shared.get(root, 0) > 1:
            return self.out(fake, root, self.recipe(fake, root))
        return self.out(fake, fake._value, ())

    def recipe(self, fake: FakeTensor, root: Value) -> Recipe:
        found = chain_of(self.trace, fake._value, root)
        if found is None:
            raise Refused(
                SourceError(
                    "a result shares memory with another tensor at an index from data.",
                    self.trace.where(),
                    remedy="Return a copy: `.clone()`.",
                )
            )
        return found

    def out(self, fake: FakeTensor, value: Value, recipe: Recipe) -> Out:
        if value not in self.values:
            self.values.append(value)
            self.flags.append(True)
            recipe = () if fake._value is value else recipe
        index = self.values.index(value)
        self.flags[index] = self.flags[index] and fake.stop_gradient
        return Out(index, recipe, fake.stop_gradient, id(fake))


# ---------------------------------------------------------------- giving it back
class Filler:
    """Fills the trees of one call. `inputs(k)` is the tensor of lifted input k."""

    def __init__(
        self, plan: OutputPlan, inputs: Any, outputs: Sequence[Any], sizes: Mapping[str, int]
    ) -> None:
        self.plan, self.inputs, self.outputs, self.sizes = plan, inputs, outputs, sizes
        self.made: dict[int, Any] = {}

    def result(self) -> Any:
        """Store what the trace stored, and the call's result."""
        out = self.fill(self.plan.result)
        stores = [(place, self.fill(tree)) for place, tree in self.plan.stores]
        for place, value in stores:
            place.put(value)
        return out

    def fill(self, tree: Any) -> Any:
        kind = type(tree)
        if kind is Out:
            tensor = self.outputs[tree.index]
            return self.view(tensor, tree) if tree.recipe else tensor
        if kind is Same:
            tensor = self.inputs(tree.index)
            return tensor if tree.itself else self.view(tensor, tree)
        if kind is Number:
            return evaluate_dim(tree.dim, self.sizes)
        if kind is ShapeOf:
            return paddle.Size([evaluate_dim(d, self.sizes) for d in tree.dims])
        if kind is list or kind is dict:
            return self.container(tree)
        if isinstance(tree, tuple):
            new = [self.fill(q) for q in tree]
            return kind(*new) if hasattr(tree, "_fields") else tuple(new)
        return tree

    def container(self, tree: Any) -> Any:
        if id(tree) not in self.made:
            if isinstance(tree, dict):
                self.made[id(tree)] = {k: self.fill(q) for k, q in tree.items()}
            else:
                self.made[id(tree)] = [self.fill(q) for q in tree]
        return self.made[id(tree)]

    def view(self, tensor: Any, leaf: Out | Same) -> Any:
        if leaf.key not in self.made:
            self.made[leaf.key] = replay(tensor, leaf.recipe, self.sizes, leaf.stop_gradient)
        return self.made[leaf.key]
