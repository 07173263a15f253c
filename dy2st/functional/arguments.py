"""Arguments of the functional loops: functions that they call, carries, sequences and options."""

from __future__ import annotations

import copy
import inspect
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import paddle
from paddle import Tensor

from dy2st.capture.indexing.items import getitem
from dy2st.functional import structure
from dy2st.functional.errors import fault
from dy2st.functional.structure import LEAF, Structure, spelled, type_of
from dy2st.library.builtins import stack_
from dy2st.trace.scalar import RuntimeScalar, check, is_runtime_scalar
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import current

Layer = paddle.nn.Layer


# ---------------------------------------------------------------- functions
def check_function(f: Any, count: int, name: str) -> None:
    """`f` can be called with `count` positional arguments."""
    if not callable(f):
        raise fault(TypeError, f"{name} must be callable, it is {structure.described(f)}")
    own = isinstance(f, Layer) and type(f).__call__ is Layer.__call__
    if own and f._forward_pre_hooks:
        return
    try:
        signature = inspect.signature(f.forward if own else f)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*range(count))
    except TypeError as e:
        text = f"{name} is called with {count} positional argument{'s' * (count != 1)}: {e}"
        raise fault(TypeError, text) from None


def call(f: Any, *args: object) -> Any:
    """`f(*args)`, translated where the caller is."""
    trace = current()
    return f(*args) if trace is None else trace.hooks.call(f)(*args)


def number(x: object, name: str, least: int) -> int:
    """An int that is at least `least`; also a size of the program."""
    if is_symint(x):
        return x  # type: ignore[return-value]
    if isinstance(x, (bool, paddle.Tensor)) or is_runtime_scalar(x) or not hasattr(x, "__index__"):
        raise fault(TypeError, f"{name} must be an int, it is {structure.described(x)}")
    n = operator.index(x)
    if n < least:
        raise fault(ValueError, f"{name} must be {least} or more, it is {n}")
    return n


# ---------------------------------------------------------------- carries
@dataclass(frozen=True)
class Taps:
    """A state that is read at several earlier steps (`taps`)."""

    initial: Tensor
    steps: tuple[int, ...]


def taps(initial: object, steps: object = (-1,)) -> Taps:
    """A state of `scan` whose body reads it at several earlier steps.

    In the place of such a leaf of `init` the body gets a tuple of tensors, one for each of `steps`
    in their order, and returns one tensor: the new step. After the loop the leaf is the tensor of
    the last steps, with the shape of `initial`, from which another scan may go on.

    Args:
        initial: a tensor [k, ...] of the steps before the first one, the oldest first; k is the
            distance of the farthest of `steps`.
        steps: distances as negative ints: -1 is the step before.

    Raises:
        TypeError: `initial` is not a tensor, or `steps` are no ints.
        ValueError: a step that is not negative or given twice, none at all, or an `initial` whose
            first axis is not k long.

    Example:
        >>> start = dy2st.taps(paddle.ones([2]), (-2, -1))
        >>> last, ys = dy2st.scan(lambda s, x: (s[0] + s[1], s[1]), start, length=5)
        >>> ys.tolist()
        [1.0, 2.0, 3.0, 5.0, 8.0]
    """
    if not isinstance(initial, paddle.Tensor):
        raise fault(TypeError, f"taps: initial is {structure.described(initial)}, not a tensor")
    if not isinstance(steps, (tuple, list)) or any(type(k) is not int for k in steps):
        raise fault(TypeError, "taps: steps must be a tuple of ints")
    if not steps or any(k >= 0 for k in steps) or len(set(steps)) < len(steps):
        raise fault(ValueError, f"taps: steps must be different negative ints: {tuple(steps)}")
    depth, shape = -min(steps), initial.shape
    if not shape or shape[0] != depth:
        text = f"taps: initial must have the {depth} steps that {tuple(steps)} reads in its first"
        raise fault(ValueError, f"{text} axis, it is {spelled(initial)}")
    return Taps(initial, tuple(steps))


@dataclass
class StateLeaf:
    """The leaf of a carry called `name`: one tensor, or the last steps of a state with taps."""

    name: str
    steps: tuple[int, ...] | None
    size: int

    def given(self, window: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        """Return the argument of the body. Later steps read the tensors of a window again, so that
        the body gets copies; in translated code always, where carries are not written in place."""
        if self.steps is None:
            return window[0] if current() is None else window[0].clone()
        return tuple([window[k].clone() for k in self.steps])

    def final(self, window: tuple[Tensor, ...]) -> object:
        return window[0] if self.steps is None else stack_(list(window))


class ScanState:
    """The state that goes from one step to the next. Each step has tensors of its own: a write of
    the body in place reaches neither the caller's tensors nor other leaves. `argument`: the name of
    `init`."""

    def __init__(self, api: str, init: object, argument: str = "init") -> None:
        self.api, self.like = api, structure.structure_of(init)
        raw = structure.leaves(init, self.like, argument, RuntimeError)
        self.slots: list[StateLeaf] = []
        self.state: tuple[Tensor, ...] = ()
        for x, name in zip(raw, structure.names(self.like, argument)):
            self.add(x, name)
        self.types = types_of(self.state)

    def add(self, x: object, name: str) -> None:
        if isinstance(x, Taps):
            depth = -min(x.steps)
            window = tuple([x.initial[k].clone() for k in range(depth)])
            self.slots.append(StateLeaf(name, x.steps, depth))
        else:
            window = (structure.tensor(x, f"{self.api}: {name}").clone(),)
            self.slots.append(StateLeaf(name, None, 1))
        self.state += window

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"carry{k or ''}" for k in range(len(self.state)))

    def windows(self) -> Iterator[tuple[StateLeaf, tuple[object, ...]]]:
        at = 0
        for slot in self.slots:
            yield slot, self.state[at : at + slot.size]
            at += slot.size

    def given(self) -> object:
        """The argument of the body."""
        return structure.filled(self.like, iter([s.given(w) for s, w in self.windows()]))

    def final(self) -> Any:
        return structure.filled(self.like, iter([s.final(w) for s, w in self.windows()]))

    def advance(self, new: object, what: str) -> None:
        """Take what the body returns for the next step."""
        raw = structure.leaves(new, self.like, what, self.changed)
        state: tuple[Tensor, ...] = ()
        for (slot, window), x in zip(self.windows(), raw):
            tensor = structure.tensor(x, f"{self.api}: what the body returns for {slot.name}")
            kind, text = self.types[len(state)]
            if type_of(tensor) != kind:
                raise self.changed(f"{slot.name} is {text}, and the body returns {spelled(tensor)}")
            state += (*window[1:], tensor.clone())
        self.state = state

    def changed(self, text: str) -> BaseException:
        return fault(TypeError, f"{self.api}: the carry changes its type: {text}")

    def at(self, state: tuple[Tensor, ...]) -> ScanState:
        """The same carry with other tensors."""
        new = copy.copy(self)
        new.state, new.types = state, types_of(state)
        return new

    def get(self) -> tuple[Tensor, ...]:
        return self.state

    def set(self, state: tuple[Tensor, ...]) -> None:
        self.state = state

    def detach(self) -> None:
        """No gradient goes to the steps before."""
        self.state = tuple([q.detach() for q in self.state])


def types_of(state: tuple[Tensor, ...]) -> list[tuple[object, str]]:
    """The type of each tensor, and its text."""
    return [(type_of(q), spelled(q)) for q in state]


# ---------------------------------------------------------------- sequences
class Sequences:
    """The inputs `xs`, one slice along `axis` for each of `length` steps. `argument`: the name of
    the user's argument."""

    def __init__(
        self, api: str, xs: object, length: object, axis: object, argument: str = "xs"
    ) -> None:
        self.api, self.like = api, structure.structure_of(xs)
        names = structure.names(self.like, argument)
        raw = structure.leaves(xs, self.like, argument, RuntimeError)
        self.axis = operator.index(axis) if type(axis) is int else self.bad_axis(axis)
        self.names, self.tensors = names, [self.checked(x, q) for x, q in zip(raw, names)]
        self.axes = [self.axis_of(x, q) for x, q in zip(self.tensors, names)]
        self.length = self.known_length(length)
        self.rows: list[list[Tensor]] | None = None

    def bad_axis(self, axis: object) -> int:
        text = f"{self.api}: axis must be an int, it is {structure.described(axis)}"
        raise fault(TypeError, text)

    def checked(self, x: object, name: str) -> Tensor:
        if not isinstance(x, paddle.Tensor):
            text = f"{self.api}: {name} is {structure.described(x)}, not a tensor"
            raise fault(TypeError, text)
        return x

    def axis_of(self, x: Tensor, name: str) -> int:
        if not -x.ndim <= self.axis < x.ndim:
            raise fault(ValueError, f"{self.api}: {name} has no axis {self.axis}: {spelled(x)}")
        return self.axis % x.ndim  # type: ignore[no-any-return]

    def known_length(self, length: object) -> Any:
        sizes = [x.shape[a] for x, a in zip(self.tensors, self.axes)]
        if is_runtime_scalar(length) and length.kind is int and not sizes:
            return self.computed(length)
        if length is not None:
            length = number(length, f"{self.api}: length", 0)
        elif not sizes:
            raise fault(ValueError, f"{self.api}: give xs or a length")
        first, whose = (length, "length") if length is not None else (sizes[0], self.names[0])
        for size, name in zip(sizes, self.names):
            if size != first:
                text = f"{name} has {size!r} steps, {whose} {'is' if whose == 'length' else 'has'}"
                raise fault(ValueError, f"{self.api}: {text} {first!r}")
        return first

    def computed(self, length: RuntimeScalar) -> RuntimeScalar:
        """A length that the program computes, checked when it runs."""
        check(
            length.home, (length >= 0).value, "ValueError", f"{self.api}: length must be 0 or more"
        )
        return length

    def at(self, t: Any) -> object:
        """A copy of step `t`, as a structure."""
        trace = current()
        if trace is not None:
            cut = (slice(None),)
            steps = [getitem(trace, x, (*cut * a, t)) for x, a in zip(self.tensors, self.axes)]
        else:
            if self.rows is None:
                self.rows = [paddle.unbind(x, a) for x, a in zip(self.tensors, self.axes)]
            steps = [row[t] for row in self.rows]
        return structure.filled(self.like, iter([q.clone() for q in steps]))

    def probes(self) -> list[object]:
        """Tensors of the types of one step."""
        shapes = [[d for k, d in enumerate(x.shape) if k != a]
                  for x, a in zip(self.tensors, self.axes)]  # fmt: skip
        return [paddle.zeros(s, x.dtype) for s, x in zip(shapes, self.tensors)]


__all__ = [
    "LEAF", "Callable", "ScanState", "Sequences", "Structure", "Taps", "call", "check_function",
    "number", "taps",
]  # fmt: skip
