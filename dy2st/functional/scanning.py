"""`scan`: a loop over time whose body is a function."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import paddle

from dy2st.capture.foreign import shape_by_value
from dy2st.functional import structure
from dy2st.functional.arguments import ScanState, Sequences, call, check_function, number
from dy2st.functional.errors import fault
from dy2st.functional.loops import key_of, repeat
from dy2st.functional.probe import traced
from dy2st.functional.structure import Structure, spelled, type_of
from dy2st.functional.templates import OutputTemplate, OutputTemplates, templates_of
from dy2st.library.builtins import SUBSTITUTES
from dy2st.library.recurrent import columns
from dy2st.state.ownership import refuse
from dy2st.state.stacked_run import StackedRun
from dy2st.state.traced_list import TraceList
from dy2st.trace.scalar import is_runtime_scalar
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import current


def scan(
    body: Callable[..., object],
    init: object,
    xs: object = None,
    *,
    length: int | None = None,
    reverse: bool = False,
    axis: int = 0,
    unroll: int | bool = 1,
    checkpoint: str | int | None = None,
    truncate_gradient: int | None = None,
    output_templates: object = None,
) -> tuple[Any, Any]:
    """A loop over time: `carry, y = body(carry, x)` for each step x of `xs`.

    As `jax.lax.scan`, in eager code a Python loop, in translated code one `scan` of the program.
    `init`, `xs` and what the body returns are tensors in nested tuples, lists, dicts and None. The
    body may use tensors and Layers from outside; gradients go to all of them. A step has tensors of
    its own: the body may write to them in place, and neither `init` nor `xs` changes.

    Args:
        body: a function or Layer of `(carry, x)` that returns the pair `(carry, y)`; the carry it
            returns has the structure, shapes and element types of `init`.
        init: the first carry. Numbers are tensors without axes. A leaf may be `dy2st.taps(...)`.
        xs: the sequences, of one length along `axis`; None if there are none.
        length: the number of steps T; needed without `xs`.
        reverse: from the last step to the first; the ys stay in the order of `xs`.
        axis: the axis of time in `xs` and in the ys, counted in each tensor from its end if it is
            negative.
        unroll: how many steps become one iteration of the program; True for all. It changes no
            result; eager code ignores it, and so does a loop whose length is not a number.
        checkpoint: which states the backward of this loop keeps, in place of what `to_static` says:
            "none" for all, "sqrt", or a number k for each k-th. Eager code keeps all, and so do
            loops inside of loops.
        truncate_gradient: the backward goes through the last k steps only. Earlier steps are
            computed without gradients: none reaches their `xs` and ys or `init`.
        output_templates: the ys as a structure of `(shape, dtype)` or `(shape, dtype, device)` for
            each tensor of one step. Without them, the ys of no steps have the types that the body
            gives when it is translated; it does not run.

    Returns:
        The last carry, in new tensors, and the ys: in place of each tensor y [...] of a step
        one of all steps [..., T, ...] with time in `axis`.

    Raises:
        TypeError: a leaf that is not a tensor; a body that cannot be called with two arguments,
        that
            returns no pair, or whose carry or ys change their type.
        ValueError: sequences of different lengths, neither sequences nor a length, an option out of
            its range, or templates that are not those of the ys.

    Example:
        >>> def step(h, x):
        ...     h = 0.5 * h + x
        ...     return h, h
        >>> last, ys = dy2st.scan(step, paddle.zeros([2]), paddle.ones([3, 2]))
        >>> ys[:, 0].tolist()
        [1.0, 1.5, 1.75]
    """
    options = ScanOptions("scan", reverse, unroll, checkpoint, truncate_gradient, output_templates)
    check_function(body, 2, "scan: body")
    options.key = key_of(body)
    return run(functools.partial(call, body), init, xs, length, axis, options)


@dataclass
class ScanOptions:
    """The options of a loop; the user's names for the function and for `init` and `xs`; what
    identifies the body."""

    api: str
    reverse: bool = False
    unroll: int | bool = 1
    checkpoint: str | int | None = None
    truncate_gradient: int | None = None
    output_templates: object = None
    key: object = None
    init: str = "init"
    xs: str = "xs"

    def __post_init__(self) -> None:
        if type(self.reverse) is not bool:
            text = f"{self.api}: reverse must be a bool, it is {structure.described(self.reverse)}"
            raise fault(TypeError, text)
        if self.unroll is False:
            self.unroll = 1
        if self.unroll is not True:
            self.unroll = number(self.unroll, f"{self.api}: unroll", 1)
        if self.truncate_gradient is not None:
            name = f"{self.api}: truncate_gradient"
            self.truncate_gradient = number(self.truncate_gradient, name, 1)
        policy = self.checkpoint
        if policy not in (None, "none", "sqrt") and not (type(policy) is int and policy > 0):
            text = f'checkpoint must be "none", "sqrt" or a positive int, it is {policy!r}'
            raise fault(ValueError, f"{self.api}: {text}")


def run(
    body: Callable[..., object],
    init: object,
    xs: object,
    length: object,
    axis: object,
    options: ScanOptions,
) -> tuple[Any, Any]:
    """A scan of a `body` that is called as it is, once its options have been checked."""
    templates = templates_of(options.api, options.output_templates)
    inputs = Sequences(options.api, xs, length, axis, options.xs)
    steps = ScanSteps(body, ScanState(options.api, init, options.init), inputs, options)
    steps.run()
    return steps.carry.final(), steps.outputs(templates)


class ScanSteps:
    """One scan while it runs. `rows` has a tuple of the leaves y for each step, which all have the
    structure `like` and the `types`."""

    def __init__(
        self, body: Callable[..., object], carry: ScanState, inputs: Sequences, options: ScanOptions
    ) -> None:
        self.body, self.carry, self.inputs, self.options = body, carry, inputs, options
        self.api = options.api
        self.rows: list[object] = TraceList() if current() is not None else []
        self.like: Structure | None = None
        self.types: list[object] | None = None
        self.found: tuple[OutputTemplate, ...] = ()

    def run(self) -> None:
        """The steps; those that no gradient goes to come first."""
        length, last = self.inputs.length, self.options.truncate_gradient
        if last is not None and is_runtime_scalar(length):
            raise refuse(
                f"{self.api}: truncate_gradient in a loop whose length depends on data.",
                "The steps that no gradient goes to are not known.",
                "Run a loop of known length.",
            )
        if last is None or length <= last:
            return self.part(0, length)
        with paddle.no_grad():
            self.part(0, length - last)
        self.carry.detach()
        self.inputs.rows = None
        return self.part(length - last, last)

    def part(self, first: Any, count: Any) -> None:
        """`count` steps in the order of the loop."""
        trace, key = current(), (self.options.key, repr(first))
        if trace is not None and self.options.checkpoint is not None:
            trace.checkpoints[trace.where()] = self.options.checkpoint
        group = count if self.options.unroll is True else self.options.unroll
        known = type(group) is int and type(count) is int
        unroll = max(group, 1) if known else 1
        repeat(count, lambda i: self.step(first + i), self.carry, key, unroll)

    def step(self, i: Any) -> None:
        t = self.inputs.length - 1 - i if self.options.reverse else i
        self.rows.append(self.stepped(self.inputs.at(t)))

    def stepped(self, x: object) -> tuple[object, ...]:
        """The outputs of the step `x`, copied: what the body returns may be written later."""
        new, y = self.pair(self.body(self.carry.given(), x))
        out = self.flat(y)
        self.carry.advance(new, "the carry that the body returns")
        return tuple([q.clone() for q in out])

    def pair(self, out: object) -> tuple[object, object]:
        if isinstance(out, (tuple, list)) and len(out) == 2:
            return out[0], out[1]
        found = f"a {type(out).__name__} of {len(out)}" if isinstance(out, (tuple, list)) else None
        text = found or f"a {type(out).__name__}"
        raise fault(TypeError, f"{self.api}: the body must return (carry, y), it returns {text}")

    def flat(self, y: object) -> list[paddle.Tensor]:
        if self.like is None:
            self.like = structure.structure_of(y)
        raw = structure.leaves(y, self.like, "y", self.changed)
        names = structure.names(self.like, "y")
        out = [structure.tensor(x, f"{self.api}: {n}") for x, n in zip(raw, names)]
        types = list(map(type_of, out))
        if types == self.types:
            return out
        if self.types is not None:
            k = next(k for k, (a, b) in enumerate(zip(types, self.types)) if a != b)
            raise self.changed(f"{names[k]} is {spelled(out[k])}, before {self.found[k]}")
        for x, n in zip(out, names):
            self.check_axis(x, n)
        self.types = types
        self.found = tuple([OutputTemplate(tuple(x.shape), x.dtype) for x in out])
        return out

    def check_axis(self, y: paddle.Tensor, name: str) -> None:
        if not -y.ndim - 1 <= self.inputs.axis <= y.ndim:
            text = f"{name} is {spelled(y)}, so the steps cannot be along axis {self.inputs.axis}"
            raise fault(ValueError, f"{self.api}: {text}")

    def changed(self, text: str) -> BaseException:
        return fault(TypeError, f"{self.api}: the ys must have one type in all steps: {text}")

    # ------------------------------------------------------------ results
    def outputs(self, templates: OutputTemplates | None) -> object:
        """The ys of all steps."""
        if self.like is None:
            return self.nothing(self.probed() if templates is None else templates)
        if templates is not None:
            self.check(templates)
        whole = [self.joined(q, one) for q, one in zip(columns(self.rows), self.found)]
        return structure.filled(self.like, iter(whole))

    def joined(self, steps: object, one: OutputTemplate) -> paddle.Tensor:
        axis = self.inputs.axis % (len(one.shape) + 1)
        out = stacked(steps, axis)
        return paddle.flip(out, [axis]) if self.options.reverse else out

    def nothing(self, found: OutputTemplates) -> object:
        empty = [q.empty(self.inputs.axis) for q in found.leaves]
        return structure.filled(found.like, iter(empty))

    def probed(self) -> OutputTemplates:
        """The outputs of a step, from the types of the carry and of the sequences."""
        state = self.carry.state
        return traced(self.types_of, (*state, *self.inputs.probes()))  # type: ignore[no-any-return]

    def types_of(self, *tensors: object) -> OutputTemplates:
        state = tensors[: len(self.carry.state)]
        carry = self.carry.at(state)
        one = ScanSteps(self.body, carry, self.inputs, self.options)
        one.stepped(structure.filled(self.inputs.like, iter(tensors[len(state) :])))
        assert one.like is not None
        self.check_shapes(one.found)
        return OutputTemplates(one.like, one.found)

    def check_shapes(self, found: Sequence[OutputTemplate]) -> None:
        """No step says how long an output is whose length a step finds out."""
        trace = current()
        assert trace is not None
        names = {n for q in found for d in q.shape if is_symint(d) for n in d.dim.names}
        if names & trace.sizes.counts.keys():
            raise shape_by_value(trace, "an output")

    def check(self, given: OutputTemplates) -> None:
        """The templates of the user are those of the outputs."""
        many, outputs = len(given.leaves), len(self.found)
        if many != outputs:
            text = f"has {many} template{'s' * (many != 1)}, the body gives {outputs} output"
            raise fault(ValueError, f"{self.api}: output_templates {text}{'s' * (outputs != 1)}")
        for k, (want, have) in enumerate(zip(given.leaves, self.found)):
            if str(want) != str(have):
                text = f"template {k} of output_templates is {want}, the body gives {have}"
                raise fault(ValueError, f"{self.api}: {text}")


def stacked(steps: Any, axis: int) -> paddle.Tensor:
    """The tensors of all steps along a new axis; a loop of the program has them stacked."""
    trace = current()
    if trace is None:
        return paddle.stack(steps, axis)
    pieces: list[object] = []
    for is_run, group in itertools.groupby(steps.parts(), lambda q: isinstance(q, StackedRun)):
        if is_run:
            pieces += [q.stacked(trace, axis).clone() for q in group]
        else:
            pieces.append(paddle.stack(list(group), axis))
    return pieces[0] if len(pieces) == 1 else paddle.concat(pieces, axis)


SUBSTITUTES[id(scan)] = scan

__all__ = ["ScanOptions", "ScanSteps", "run", "scan"]
