"""Results that are views: the chain of views from a storage to a result, and its replay.

Paddle's own view calls make the view on the real tensor, so it shares memory exactly as in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import paddle

from dy2st.trace.trace import Frame, Trace
from ir import Size, Value
from ir.opdef import view_rule
from ir.types import Dim, evaluate_dim, substitute_dim

Recipe: TypeAlias = tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]


def chain_of(
    trace: Trace, value: Value, root: Value, output: Callable[[Value], int]
) -> Recipe | None:
    """The views from `root` to `value`; None when one of them has an index that is written later.

    `output` gives the number of the output that an index from data becomes.
    """
    steps: list[Any] = []
    while value is not root:
        op = trace.values.makers.get(value)
        if op is None or any(trace.root(v) in trace.values.written for v in op.operands[1:]):
            return None
        found = [("output", output(v)) for v in op.operands[1:]]
        steps.append((op.name, tuple(sorted([*op.attrs.items(), *found]))))
        value = op.operands[0]
    return tuple(reversed(steps)) or (("alias", ()),)


def chain_in_loop(trace: Trace, value: Value, root: Value, frame: Frame) -> Recipe | None:
    """As `chain_of`, of a value in a loop's body: indices are expressions of the iteration. Empty
    for the object `root` itself."""
    known = {v: dim for dim, v in frame.indices.items()}
    if frame.loop is not None:
        known[frame.loop.index] = Size.named(frame.loop.name)
    steps: list[Any] = []
    for v in trace.chain(value):
        op = trace.values.makers.get(v)
        if v is root:
            return tuple(reversed(steps))
        if op is None:
            continue
        name, attrs, found = op.name, dict(op.attrs), [known.get(q) for q in op.operands[1:]]
        if None in found:
            return None
        if name == "dynamic_index":
            name, attrs = "index", {**attrs, "index": found[0]}
        elif name == "dynamic_slice":
            name, attrs = "slice", {**attrs, "start": found[0], "step": 1}
        steps.append((name, tuple(sorted(attrs.items()))))
    return None


def dims_of(x: Any) -> Sequence[Any]:
    """The sizes in an attribute."""
    return x if isinstance(x, tuple) else (x,)


def in_iteration(recipe: Recipe, loop: str, index: Dim) -> Recipe:
    """A chain in a loop's body, in iteration `index`."""

    def fixed(a: Any) -> Any:
        if isinstance(a, tuple):
            return tuple(map(fixed, a))
        return substitute_dim(a, {loop: index}) if isinstance(a, Size) else a

    return tuple((name, tuple((k, fixed(a)) for k, a in attrs)) for name, attrs in recipe)


def replay(
    tensor: Any,
    recipe: Recipe,
    sizes: Mapping[str, int],
    stop_gradient: bool,
    outputs: Sequence[Any] = (),
) -> Any:
    """The view of a real tensor; `outputs` are those of the program."""
    with paddle.no_grad() if stop_gradient else paddle.enable_grad():
        for name, attrs in recipe:
            if name == "alias" and not stop_gradient:
                tensor = again(tensor)
            elif name == "alias":
                tensor = tensor.detach()
            else:
                tensor = _one(tensor, name, dict(attrs), sizes, outputs)
    return tensor


def again(x: Any) -> Any:
    """Another object on the storage, through which gradients pass; `view` refuses empty ones."""
    return x[...] if 0 in x.shape else x.view(x.shape)


def _one(
    x: Any, name: str, attrs: dict[str, Any], sizes: Mapping[str, int], outputs: Sequence[Any]
) -> Any:
    """One view, as its row writes it in Python; an index from data is an output."""
    at = [int(outputs[attrs.pop("output")])] if "output" in attrs else []
    known = {k: _concrete(q, sizes) for k, q in attrs.items()}
    return view_rule(name).python(_Real(x), *at, **known)


def _concrete(q: Any, sizes: Mapping[str, int]) -> Any:
    if isinstance(q, (tuple, list)):
        return [_concrete(d, sizes) for d in q]
    return evaluate_dim(q, sizes) if isinstance(q, Size) else q


class _Real:
    """A real tensor, where views are always views and offsets are counted in its elements."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __getitem__(self, at: Any) -> Any:
        return self.tensor[at]

    def __getattr__(self, method: str) -> Any:
        return getattr(self.tensor, method)

    def reshape(self, shape: Sequence[int]) -> Any:
        x = self.tensor
        if not x.shape and shape:
            return x.unsqueeze(list(range(len(shape))))
        if list(x.shape) != shape:
            return x.reshape(shape)
        return again(x) if paddle.is_grad_enabled() else x.detach()

    def as_strided(self, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
        """Paddle counts offsets in bytes from the beginning of the memory."""
        x = self.tensor
        (unit,) = x.strides
        begin = x.offset + offset * unit * x.element_size()
        return paddle.as_strided(x, list(shape), [s * unit for s in strides], begin)
