"""Reasons for recompilation: the changes since the earlier translations of a function.

A `Specialization` describes the arguments of a call; `GuardChecks` are the guards of a program with
the user's names for what they read. From both follow the text of `dy2st.explain` and the
`RecompileWarning`, which says which `input_spec` would make one program of many.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dy2st.state.guards import GuardedRead, Guards, described
from dy2st.state.signature import Signature
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.signals import raise_defect
from dy2st.trace.undo import MISSING

#: what entries check by themselves, without a guard
UNSEEN = (
    "a tensor requires a gradient now, or none (`stop_gradient`); tensors share memory in another "
    "way; or a number has another type"
)


@dataclass(frozen=True)
class GuardChange:
    """A value that is no longer what a program was made for; `before` and `after` as text."""

    name: str
    before: str
    after: str

    @property
    def is_truth(self) -> bool:
        """Whether it is that of a condition, as the user has written it."""
        return self.name.startswith("`")

    def __str__(self) -> str:
        if self.is_truth and {self.before, self.after} == {"True", "False"}:
            return f"{self.name} was {self.before.lower()}, is {self.after.lower()}"
        if self.before != self.after:
            return f"{self.name} changed from {self.before} to {self.after}"
        if self.after.startswith("an array "):
            return f"{self.name} has other elements ({self.after})"
        if self.after and self.name.startswith("the "):
            return f"{self.name} are other ones"
        return f"{self.name} is another object ({self.after})" if self.after else self.name


@dataclass(frozen=True)
class GuardChecks:
    """The guards of one program, as its call tests them: `terms` over `names`."""

    terms: Mapping[tuple[object, ...], str]
    names: Mapping[str, object]
    reads: Mapping[tuple[object, ...], GuardedRead]
    settings: Mapping[tuple[object, ...], tuple[str, dict[str, object], dict[str, object]]]

    @staticmethod
    def of(guards: Guards) -> GuardChecks:
        return GuardChecks(guards.terms, guards.names, guards.reads, guards.settings_of)

    def changes(self, leaves: object) -> list[GuardChange]:
        """Return the changes for which the program does not accept a call with these leaves."""
        space = {**self.names, "_L": leaves}
        found = [change for key in self.failed(space) for change in self.described(key, space)]
        rest = [c for c in found if not c.name.endswith(".training")]
        modes = [c for c in found if c.name.endswith(".training")]
        mode = [GuardChange("training", c.before, c.after) for c in modes[:1]]
        return [*mode, *dict.fromkeys(rest)]

    def failed(self, space: dict[str, object]) -> list[tuple[object, ...]]:
        return [key for key, test in self.terms.items() if not self.value(test, space)]

    def value(self, expression: str, space: dict[str, object], default: object = False) -> object:
        """Evaluate a term as the call does, where an error means that the program does not fit."""
        try:
            return eval(expression, space)
        except (AttributeError, LookupError, NameError, TypeError, ArithmeticError, ValueError):
            return default

    def raise_defect(self, leaves: object) -> None:
        """Raise the defect of ours with which a term ends: the call took it for a change."""
        space = {**self.names, "_L": leaves}
        for test in self.terms.values():
            try:
                eval(test, space)
            except Exception as error:
                raise_defect(error)

    def described(self, key: tuple[object, ...], space: dict[str, object]) -> list[GuardChange]:
        if key in self.settings:
            name, fields, before = self.settings[key]
            pairs = [(n, v, fields.get(n, MISSING)) for n, v in before.items()]
            return [
                GuardChange(f"{name}.{n}", described(v), described(now))
                for n, v, now in pairs
                if now is not v
            ] or [GuardChange(f"a hook or a part of {name} is another one", "", "")]
        read = self.reads.get(key)
        if read is None:
            return [GuardChange(f"{key[-1]} has been replaced", "", "")]
        after = described(self.value(read.expression, space, MISSING)) if read.expression else ""
        return [GuardChange(read.name, read.before, after)]


class RecompileWarning(UserWarning):
    """A function has as many programs as are kept: the ones that were used least recently go."""


@dataclass(frozen=True)
class Argument:
    """A leaf of a call's arguments; `shape` and `dtype` of tensors. `moves`: an input of the
    program that is a number of this `kind`."""

    name: str
    text: str
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    kind: type | None = None
    moves: bool = False


@dataclass(frozen=True)
class Specialization:
    """The properties of arguments that a call was specialised on, besides the guarded values."""

    arguments: tuple[Argument, ...]
    gradients: bool

    @staticmethod
    def of(signature: Signature, names: Sequence[str]) -> Specialization:
        arguments = tuple(map(argument, names, signature.leaves))
        return Specialization(arguments, bool(signature.structure[0]))

    def moving(self, leaves: Collection[int]) -> Specialization:
        """The same, with these leaves as inputs."""
        found = [
            replace(q, moves=k in leaves and q.kind in (int, float))
            for k, q in enumerate(self.arguments)
        ]
        return replace(self, arguments=tuple(found))

    def changes(self, other: Specialization) -> list[GuardChange]:
        """From this call to another."""
        mine = {q.name: q.text for q in self.arguments}
        moving = {q.name: q.kind for q in self.arguments if q.moves}
        now = {
            q.name: mine[q.name] if moving.get(q.name, 0) is q.kind else q.text
            for q in other.arguments
        }
        found = [
            GuardChange(n, mine.get(n, "not given"), now.get(n, "not given"))
            for n in dict.fromkeys((*mine, *now))
            if mine.get(n) != now.get(n)
        ]
        if self.gradients != other.gradients:
            modes = ("recorded" if c.gradients else "not recorded" for c in (self, other))
            found.append(GuardChange("gradients", *modes))
        return found


def argument(name: str, leaf: object) -> Argument:
    if isinstance(leaf, np.ndarray):
        return Argument(name, f"an array {leaf.dtype}{list(leaf.shape)}")
    if not isinstance(leaf, Tensor):
        return Argument(name, described(leaf), kind=type(leaf))
    trained = "" if leaf.stop_gradient else " with a gradient"
    dtype = str(leaf.dtype).removeprefix("paddle.")
    return Argument(name, f"{tensor_text(leaf)}{trained}", tuple(leaf.shape), dtype)


def tensor_text(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('paddle.')}{list(tensor.shape)}"


@dataclass(frozen=True)
class RecompileReason:
    """One translation: its number, from 1, the call that made it, and what had changed by then."""

    number: int
    case: Specialization
    changes: tuple[GuardChange, ...]

    def __str__(self) -> str:
        if self.number == 1:
            given = ", ".join(f"{q.name}: {q.text}" for q in self.case.arguments)
            return f"1. first call ({given})" if given else "1. first call"
        changes = "; ".join(map(str, self.changes)) or UNSEEN
        return f"{self.number}. {changes}"


def nearest(
    case: Specialization, made: Iterable[tuple[Specialization, Callable[[], list[GuardChange]]]]
) -> list[GuardChange]:
    """Return the differences to the most similar earlier call, given the newest first: changed
    arguments, or changes of the values that the program of that call has read."""
    calls = [(other.changes(case), reads) for other, reads in made]
    same = [reads() for found, reads in calls if not found]
    truths = [q for q in same if any(c.is_truth for c in q)]
    if same:
        return min(truths, key=len, default=same[0])
    return min((found for found, _ in calls), key=len, default=[])


# ---------------------------------------------------------------- the whole
@dataclass(frozen=True)
class Explanation:
    """The reason for each program of a function, as `dy2st.explain` gives it; `print` shows it.

    Attributes:
        name: the function.
        reasons: one for each program that is kept, oldest first.
        made: how many have been made.
        remedies: what would make one program of several.
    """

    name: str
    reasons: tuple[RecompileReason, ...]
    made: int
    remedies: tuple[str, ...]

    def __str__(self) -> str:
        count = f"{self.made} program{'' if self.made == 1 else 's'}"
        kept = len(self.reasons)
        kept_only = f", of which {kept} are kept" if kept < self.made else ""
        lines = [f"{self.name}: {count}{kept_only}", *(f"  {q}" for q in self.reasons)]
        return "\n".join([*lines, *self.remedies])


def remedies(reasons: Sequence[RecompileReason]) -> list[str]:
    """Return a line for each value that changed between calls, most frequent first, with the way to
    share one program."""
    values: dict[str, dict[str, None]] = {}
    for change in (c for r in reasons for c in r.changes):
        values.setdefault(change.name, {}).update({change.before: None, change.after: None})
    spec = suggested_spec(reasons)
    shapes = {q.name for r in reasons for q in r.case.arguments if q.shape is not None}
    out = []
    for name, texts in sorted(values.items(), key=lambda q: -len(q[1])):
        if len(texts) < (3 if name in shapes else 4):
            continue
        shown = ", ".join(list(texts)[:3]) + (", ..." if len(texts) > 3 else "")
        if name not in shapes:
            out.append(f"{name}: {shown}: one program if it is a tensor, or stays as it is")
        elif spec:
            out.append(f"{name}: {shown}: one program with input_spec={spec}")
    return out


def suggested_spec(reasons: Sequence[RecompileReason]) -> str:
    """The `input_spec` with None for every size that differs between calls; "" if none does."""
    calls = [[q for q in r.case.arguments if q.shape is not None] for r in reasons]
    alike = [c for c in calls if kinds(c) == kinds(calls[-1])] if calls else []
    columns = list(zip(*alike)) if len(alike) > 1 else []
    specs = [common_spec(q) for q in columns]
    return f"[{', '.join(specs)}]" if any("None" in q for q in specs) else ""


def kinds(tensors: Sequence[Argument]) -> list[tuple[str, str, int]]:
    return [(q.name, q.dtype, len(q.shape or ())) for q in tensors]


def common_spec(calls: Sequence[Argument]) -> str:
    dims = [set(sizes) for sizes in zip(*(q.shape or () for q in calls))]
    shape = ", ".join("None" if len(sizes) > 1 else str(*sizes) for sizes in dims)
    return f'InputSpec([{shape}], "{calls[0].dtype}", "{calls[0].name}")'
