"""What a program gives back: new tensors, input objects, views of either, sizes and constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import paddle

from dy2st.capture import aliases
from dy2st.capture.emitter import lift
from dy2st.capture.fake import FakeTensor, Shape, Tensor
from dy2st.capture.trace import Trace
from dy2st.changed import Argument, Contents, from_outside
from dy2st.containers import TraceList
from dy2st.guards import is_constant
from dy2st.journal import MISSING, Place
from dy2st.number import is_number
from dy2st.stops import Refused
from dy2st.symbols import dim_of, is_sym
from dy2st.text import Text
from dy2st.views import Recipe, chain_of, replay
from ir import SourceError, Value
from ir.types import evaluate_dim


@dataclass(frozen=True)
class OutputPlan:
    """`result` and `stores` are trees whose leaves say where a value comes from.

    leaf: a result is a tensor that the function made to require a gradient of its own.
    """

    values: tuple[Value, ...]
    flags: tuple[bool, ...]
    result: Any
    stores: tuple[tuple[Place, Any], ...]
    leaf: bool = False


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
class ShapeOf:
    """The shape of a tensor, as Paddle gives it."""

    dims: tuple[Any, ...]


def output_plan(trace: Trace, result: Any, stores: Sequence[tuple[Place, Any]]) -> OutputPlan:
    """Decide what the program returns; raises Refused for results that it cannot give back."""
    planner = _Planner(trace, [result, *(v for _, v in stores)])
    tree = planner.tree(result, "the result")
    kept = tuple((place, planner.tree(v, str(place))) for place, v in stores)
    own = {id(q) for q in trace.leaves if not q.stop_gradient}
    leaf = any(id(q) in own for q in planner.keep)
    return OutputPlan(tuple(planner.values), tuple(planner.flags), tree, kept, leaf)


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
        elif isinstance(x, (list, tuple)) and not getattr(x, "segmented", False):
            for q in x:
                self.collect(q, found)

    def tree(self, x: Any, what: str) -> Any:
        if isinstance(x, Tensor):
            return self.tensor(lift(self.trace, x))
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

    def output(self, value: Value) -> int:
        """The number of the output that is `value`."""
        self.trace.check_defined([value])
        if value not in self.values:
            self.values.append(value)
            self.flags.append(True)
        return self.values.index(value)

    def out(self, fake: FakeTensor, value: Value, recipe: Recipe) -> Out:
        if value not in self.values:
            recipe = () if fake._value is value else recipe
        index = self.output(value)
        self.flags[index] = self.flags[index] and fake.stop_gradient
        origin = self.trace.origins.get(fake._value)
        at = None if origin is None else self.output(origin)
        return Out(index, recipe, fake.stop_gradient, id(fake), at)


def no_text(what: str) -> Refused:
    return Refused(
        SourceError(
            f"{what} contains a text with a tensor's value in it.",
            reason="The value is known only when the program runs.",
            remedy="Return the tensor, and format it outside.",
        )
    )


# ---------------------------------------------------------------- giving it back
class Filler:
    """Fills the trees of one call. `inputs(k)` is the tensor of lifted input k, `containers()` are
    the lists and dicts of the call's arguments."""

    def __init__(
        self,
        plan: OutputPlan,
        inputs: Any,
        outputs: Sequence[Any],
        sizes: Mapping[str, int],
        containers: Callable[[], list[Any]] = list,
    ) -> None:
        self.plan, self.inputs, self.outputs, self.sizes = plan, inputs, outputs, sizes
        self.containers = containers
        self.made: dict[int, Any] = {}

    def result(self) -> Any:
        """Store what the trace stored, and the call's result."""
        out = self.fill(self.plan.result)
        stores = [(place, self.fill(tree)) for place, tree in self.plan.stores]
        for place, value in stores:
            if isinstance(place, Argument):
                place = Contents(self.containers()[place.index])
            place.put(value)
        return out

    def fill(self, tree: Any) -> Any:
        kind = type(tree)
        if kind is Out:
            input_ = -1 if tree.origin is None else int(self.outputs[tree.origin])
            if input_ >= 0:
                return self.inputs(input_)
            tensor = self.outputs[tree.index]
            return self.view(tensor, tree) if tree.recipe else tensor
        if kind is Same:
            tensor = self.inputs(tree.index)
            return tensor if tree.itself else self.view(tensor, tree)
        if kind is Elements:
            return self.elements(tree)
        if kind is Scalar:
            return self.outputs[tree.index].item()
        if kind is Outside:
            return tree.obj
        if kind is Given:
            return self.containers()[tree.index]
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

    def elements(self, tree: Elements) -> Any:
        if id(tree) not in self.made:
            self.made[id(tree)] = self.rows(tree.tree)
        return self.made[id(tree)]

    def rows(self, tree: Any) -> list[Any]:
        if isinstance(tree, tuple):
            columns = [self.rows(q) for q in tree]
            named = hasattr(tree, "_fields")
            return [type(tree)(*row) if named else tuple(row) for row in zip(*columns)]
        tensor = self.outputs[tree.index]
        if tree.number:
            return list(tensor.tolist())
        rows = paddle.unbind(tensor, 0) if tensor.shape[0] else []
        if tree.stop_gradient:
            rows = [row.detach() for row in rows]
        return list(rows)

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
