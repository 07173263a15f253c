"""Filling the results of one call: real tensors in the leaves of the pytrees of an `OutputPlan`.

New tensors wrap the program's outputs, inputs come back as the caller's objects, and views are
replayed by Paddle's own view calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import paddle

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
from dy2st.results.replay import replay
from dy2st.state.container_writes import Argument, Contents
from ir.types import evaluate_dim


class Filler:
    """Fills the pytrees of one call. `inputs(k)` is the real tensor of input k, `containers()` are
    the lists and dicts among the call's arguments."""

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
        self.made: dict[Any, Any] = {}

    def result(self) -> Any:
        """Repeat the attribute and item stores of the trace, and return the call's result."""
        out = self.fill(self.plan.result)
        stores = [(place, self.fill(tree)) for place, tree in self.plan.stores]
        for place, value in stores:
            if isinstance(place, Argument):
                place = Contents(self.containers()[place.index])
            place.put(value)
        for change in self.plan.reshaped:
            self.reshape(change)
        return out

    def reshape(self, change: Reshaped) -> None:
        tensor = self.inputs(change.index)
        for call in change.calls:
            call.make(tensor, self.sizes)
        if change.output is not None:
            with paddle.no_grad():
                tensor.copy_(self.outputs[change.output], True)

    def fill(self, tree: Any) -> Any:
        kind = type(tree)
        if kind is Out:
            tensor = self.outputs[tree.index]
            return self.view(tensor, tree) if tree.recipe else tensor
        if kind is Same:
            tensor = self.inputs(tree.index)
            return tensor if tree.itself else self.view(tensor, tree)
        if kind is Final:
            return self.final(tree)
        if kind is Element:
            return self.element(tree)
        if kind is Choice:
            return self.choice(tree)
        if kind is Elements or kind is Joined:
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

    def elements(self, tree: Elements | Joined) -> Any:
        if id(tree) not in self.made:
            if isinstance(tree, Joined):
                self.made[id(tree)] = self.parts(tree)
            else:
                self.made[id(tree)] = self.rows(tree.tree)
        return self.made[id(tree)]

    def parts(self, tree: Joined) -> list[Any]:
        out: list[Any] = []
        for part in tree.parts:
            out += self.rows(part.tree) if isinstance(part, Elements) else map(self.fill, part)
        return out

    def choices(self, part: Choices) -> list[Any]:
        options, rows = dict(part.options), self.rows(part.rows)
        codes = self.outputs[part.codes].tolist()
        return [
            self.seen(options[number], at) if number in options else row
            for row, (number, *at) in zip(rows, codes)
        ]

    def final(self, tree: Final) -> Any:
        if tree.key not in self.made:
            sizes = {**self.sizes, tree.loop: evaluate_dim(tree.trip, self.sizes) - 1}
            if sizes[tree.loop] < 0:
                return self.fill(tree.other)
            of = self.fill(tree.of)
            self.made[tree.key] = replay(of, tree.recipe, sizes, tree.of.stop_gradient)
        return self.made[tree.key]

    def element(self, tree: Element) -> Any:
        if evaluate_dim(tree.trip, self.sizes) < 1:
            return self.fill(tree.other)
        found = self.fill(tree.of)[-1]
        for k in tree.path:
            found = found[k]
        return found

    def choice(self, tree: Choice) -> Any:
        if tree.key not in self.made:
            number, *at = self.outputs[tree.code].tolist()
            option = dict(tree.options).get(number)
            if option is not None:
                found = self.option(option, number, at)
            elif number in tree.passing:
                found = self.made.setdefault((number, *at), self.fill(tree.other))
            else:
                found = self.fill(tree.other)
            self.made[tree.key] = replay(
                found, tree.recipe, self.sizes, tree.stop_gradient, self.outputs
            )
        return self.made[tree.key]

    def option(self, option: Option, number: int, at: Sequence[int]) -> Any:
        """The view of a candidate; one object for each view, however often it is returned."""
        key = (number, *at)
        if key not in self.made:
            self.made[key] = self.seen(option, at)
        return self.made[key]

    def seen(self, option: Option, at: Sequence[int]) -> Any:
        of = self.fill(option.of)
        return replay(of, option.recipe, self.sizes, option.stop_gradient, at)

    def views(self, part: Views) -> list[Any]:
        of, stop = self.fill(part.of), part.of.stop_gradient
        steps = range(evaluate_dim(part.trip, self.sizes))
        sizes = [{**self.sizes, part.loop: i} for i in steps]
        return [replay(of, part.recipe, s, stop) for s in sizes]

    def rows(self, tree: Any) -> list[Any]:
        if isinstance(tree, tuple):
            columns = [self.rows(q) for q in tree]
            named = hasattr(tree, "_fields")
            return [type(tree)(*row) if named else tuple(row) for row in zip(*columns)]
        if isinstance(tree, Views):
            return self.views(tree)
        if isinstance(tree, Choices):
            return self.choices(tree)
        if tree not in self.made:
            self.made[tree] = self.taken_apart(tree)
        return list(self.made[tree])

    def taken_apart(self, tree: Rows) -> list[Any]:
        tensor = self.outputs[tree.index]
        if tree.number:
            return list(tensor.tolist())
        rows = paddle.unbind(tensor, 0) if tensor.shape[0] else []
        return [row.detach() for row in rows] if tree.stop_gradient else list(rows)

    def container(self, tree: Any) -> Any:
        if id(tree) not in self.made:
            if isinstance(tree, dict):
                self.made[id(tree)] = {k: self.fill(q) for k, q in tree.items()}
            else:
                self.made[id(tree)] = [self.fill(q) for q in tree]
        return self.made[id(tree)]

    def view(self, tensor: Any, leaf: Out | Same) -> Any:
        if leaf.key not in self.made:
            self.made[leaf.key] = replay(
                tensor, leaf.recipe, self.sizes, leaf.stop_gradient, self.outputs
            )
        return self.made[leaf.key]
