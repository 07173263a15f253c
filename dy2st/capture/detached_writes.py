"""Gradients through tensors that share memory.

A program follows the storage: what is written through one name is differentiated through every
other name. Eager Paddle follows the object that was written. Where the two differ the program has
the true gradient, and a warning names the line, once.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from dy2st.trace.frames import Read, Write
from dy2st.trace.signals import Refused
from dy2st.trace.trace import Trace
from ir import Loc, Op, SourceError, Value
from ir.analysis.alias import shown
from ir.opdef import view_rule


class AliasWarning(UserWarning):
    """Eager Paddle would compute another gradient here."""


class CopyWarning(UserWarning):
    """A result is a tensor of its own that in eager Paddle shares memory in some runs."""


def twins(one: Any, two: Any) -> None:
    """To eager Paddle `x`, `x[:]` and `x.detach()` are one tensor: what gives one of them another
    shape in place gives it to the others."""
    for a, b in ((one, two), (two, one)):
        a.__dict__.setdefault("_twins", []).append(weakref.ref(b))


def has_twin(fake: Any) -> bool:
    return any(q() is not None for q in fake.__dict__.get("_twins", ()))


def chain(trace: Trace, value: Value) -> Iterator[Value]:
    """`value`, and what it views, to the storage."""
    yield value
    while value in trace.values.parent:
        value = trace.values.parent[value]
        yield value


def attach(trace: Trace, fake: Any) -> None:
    """`fake`, which requires no gradient, is about to be written with a value that does.

    Where it is `h.detach()`, the storage lets go of the gradient of `h` first.
    """
    cut = [v for v in chain(trace, fake._value) if v in trace.aliasing.detached]
    if not cut:
        return
    value = fake._value
    if cut != [value] or trace.values.frame_of[value] is not trace.frame:
        raise Refused(
            SourceError(
                "a detached tensor is written in place with a value that requires a gradient.",
                trace.where(),
                reason="It shares its memory with the tensor that it was detached from, which has "
                "another gradient.",
                remedy="Write to a copy: `x.detach().clone()`.",
            )
        )
    source = trace.aliasing.detached[value]
    trace.write(trace.fake(source), trace.emit("assign", [value], {}))
    trace.undo_log.note(lambda: fake.__dict__.__setitem__("_value", value))
    fake.__dict__["_value"] = source


def check_overlap(trace: Trace, fake: Any) -> None:
    """A view of which two elements are one is not written: which of them counts is not defined."""
    for v in chain(trace, fake._value):
        op = trace.values.makers.get(v)
        if op is not None and view_rule(op.name).overlaps(v.type, **op.attrs):
            raise Refused(
                SourceError(
                    "a view is written in place, and some of its elements are the same memory.",
                    trace.where(),
                    reason="The value that stays there would depend on the order of the writes.",
                    remedy="Write to the tensor itself, or to a copy: `view.clone()`.",
                )
            )


def note(trace: Trace, fake: Any, whole: Any, ignored: bool) -> None:
    """A write that autograd sees went through the object `fake`, and replaced all of it.

    whole: the object of which `fake` is the assigned part, or `fake`.
    ignored: eager's gradient of other objects is another one.
    """
    root = trace.root(fake._value)
    trace.aliasing.attached.setdefault(root, trace.where())
    trace.aliasing.epoch += 1
    fake.__dict__["_epoch"] = trace.aliasing.epoch
    if whole is not fake:
        own: frozenset[int] = whole.__dict__.get("_own", frozenset())
        whole.__dict__["_own"] = own | {trace.aliasing.epoch}
    if ignored:
        write = Write(trace.aliasing.epoch, fake._value, trace.where())
        trace.aliasing.overwritten.setdefault(root, []).append(write)
        warn_of_next_iteration(trace, write, root)


def inherit(trace: Trace, made: Any, fake: Any) -> None:
    """A view knows the writes that its object knows."""
    made.__dict__["_epoch"] = age(fake)
    made.__dict__["_of"] = origin(trace, fake)
    for name in ("_own", "_stale"):
        if name in fake.__dict__:
            made.__dict__[name] = fake.__dict__[name]


def origin(trace: Trace, fake: Any) -> Any:
    """A reference to the object from outside of the running loop that `fake` is a view of."""
    inside = trace.values.frame_of.get(fake._value) is trace.frame
    return fake.__dict__["_of"] if inside and "_of" in fake.__dict__ else weakref.ref(fake)


def read(trace: Trace, fake: Any) -> None:
    """`fake` is read, in loops again in the next iteration."""
    loops = frozenset(f for f in trace.frames if f.loop is not None)
    if loops:
        seen = Read(loops, origin(trace, fake), fake._value)
        trace.aliasing.reads.setdefault(trace.root(fake._value), []).append(seen)


def warn_of_next_iteration(trace: Trace, write: Write, root: Value) -> None:
    """A tensor from outside of the loop has been read in it, and is written through another one."""
    for seen in trace.aliasing.reads.get(root, ()):
        fake = seen.origin()
        loops = [f for f in trace.frames if f in seen.loops]
        if fake is None or not loops or not ignores(trace, fake, write, seen.value, root):
            continue
        inside = trace.frames[trace.frames.index(loops[-1]) :]
        if trace.values.frame_of.get(fake._value) not in inside:
            warn(trace, [write.loc])


def age(fake: Any) -> int:
    return int(fake.__dict__.get("_epoch", 0))


def ignores(trace: Trace, fake: Any, write: Write, value: Value, root: Value) -> bool:
    """Whether `fake` does not follow a write to what `value`, it or a view of it, shows."""
    known = write.epoch <= age(fake) or write.epoch in fake.__dict__.get("_own", ())
    return not known and not apart(trace, write.value, value, root)


def unseen(trace: Trace, fake: Any) -> list[Loc]:
    """The writes to the storage of `fake` that it does not follow in eager Paddle."""
    root = trace.root(fake._value)
    writes = trace.aliasing.overwritten.get(root, ())
    return [w.loc for w in writes if ignores(trace, fake, w, fake._value, root)]


def check(trace: Trace, fake: Any) -> None:
    """Warn where a write to the storage of `fake` went through another object since."""
    if trace.aliasing.overwritten:
        warn(trace, unseen(trace, fake))


def warn(trace: Trace, lines: Iterable[Loc]) -> None:
    for loc in lines:
        if loc in trace.aliasing.warned:
            continue
        trace.aliasing.warned.add(loc)
        warnings.warn(
            f"dy2st: {loc}: this in-place write is differentiated through every tensor that shares "
            "the memory; eager Paddle ignores it in the gradient of the others "
            f"(one of them is read at {trace.where()}).",
            AliasWarning,
            stacklevel=2,
        )


def stale(trace: Trace, fake: Any) -> frozenset[Loc]:
    """The writes that a tensor without a gradient depends on: the program differentiates them."""
    found: frozenset[Loc] = fake.__dict__.get("_stale", frozenset())
    if not trace.aliasing.overwritten or any(
        v in trace.aliasing.detached for v in chain(trace, fake._value)
    ):
        return found
    return found | set(unseen(trace, fake))


def warn_of_copy(trace: Trace, value: Value) -> None:
    """A result that only some runs share with another tensor is a tensor of its own in all."""
    made = (q.loc for q in trace.frames[0].builder.ops if value in q.results)
    loc = next(made, trace.where())
    if loc in trace.aliasing.warned:
        return
    trace.aliasing.warned.add(loc)
    warnings.warn(
        f"dy2st: {loc}: data decides here whether a result shares memory with another tensor. It "
        "is a tensor of its own now; in eager Paddle a write to one would reach the other now and "
        "then. Return a copy (`.clone()`) to have the same in both.",
        CopyWarning,
        stacklevel=2,
    )


def apart(trace: Trace, a: Value, b: Value, root: Value) -> bool:
    """Whether two views of one storage have no element in common, or data says if they do."""
    one, two = (first_step(trace, v, root) for v in (a, b))
    if one is None or two is None:
        return False
    if one.operands[1:] and two.operands[1:]:
        places = one.name == two.name and one.result.type.ndim < root.type.ndim
        return places and one.operands[1] is not two.operands[1]
    return any(_disjoint(shown(one, k), shown(two, k)) for k in range(root.type.ndim))


def _disjoint(a: range | None, b: range | None) -> bool:
    if a is None or b is None:
        return False
    few, many = sorted((a, b), key=len)
    return not any(k in many for k in few)


def first_step(trace: Trace, value: Value, root: Value) -> Op | None:
    """The view op that is applied to the storage itself."""
    steps = [v for v in chain(trace, value) if trace.values.parent.get(v) is root]
    return trace.values.makers.get(steps[0]) if steps else None
