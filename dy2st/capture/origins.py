"""Which of several tensors a value is, where data or the end of a loop decides.

The program carries the answer along: beside a value that a branch or a loop decides there is an
i64 vector, its code. It holds the number of a candidate (-1: a tensor of its own) and the indices
of views that the candidate's views need. With it a call gives back the caller's own tensor, or a
view of it, as eager does. Codes of input objects are always there; those of views and of other
tensors cost more, and are there only in a trace that knows that a result needs them (`exact`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from dy2st.trace.signals import Decided
from ir import Op, Size, Type, Value
from ir.types import I64, Dim

if TYPE_CHECKING:
    from dy2st.trace.trace import Trace

Recipe: TypeAlias = tuple[tuple[str, tuple[tuple[str, Any], ...]], ...]


@dataclass(frozen=True)
class Candidate:
    """The object `fake`, or a view of it; `recipe` is None where the view cannot be repeated.

    passing: `fake` is what one iteration has made, and the indices say which one.
    """

    fake: Any
    recipe: Recipe | None
    stop_gradient: bool
    passing: bool = False


@dataclass(frozen=True)
class Known:
    """Candidate `number`, with the indices of its views."""

    number: int
    at: tuple[Dim | Value, ...] = ()


#: of a new tensor, of one that is known, and the code of one that the program knows
Origin: TypeAlias = "Known | Value | None"


class Origins:
    """`room`: for how many indices there is a place in a code; None: only input objects count."""

    def __init__(self, trace: Trace, room: int | None = None) -> None:
        self.trace, self.room = trace, room
        self.objects: dict[int, tuple[Any, Value]] = {}
        self.codes: dict[Value, Value] = {}
        self.vague: dict[Value, list[Value]] = {}
        self.candidates: list[Candidate] = []
        self.numbers: dict[tuple[str, int], tuple[Any, Known]] = {}
        self.shown: dict[Value, Value] = {}
        self.last: dict[int, list[tuple[Any, Known]]] = {}
        self.reach: dict[Value, list[Known | Value]] = {}

    @property
    def exact(self) -> bool:
        return self.room is not None

    @property
    def type(self) -> Type:
        return Type(I64, (1 + (self.room or 0),))

    # ------------------------------------------------------------ of a tensor
    def of(self, fake: Any) -> Origin:
        """What a tensor is; its indices are known in the frame where it was made."""
        if ("", id(fake)) not in self.numbers:
            for q in self.trace.inputs.by_id.values():
                if q.fake is fake:
                    return None if q.kind == "const" else self.add(fake, Candidate(fake, (), True))
            code = self.code(fake)
            if code is not None or not self.exact:
                return code
            found = self.view(fake)
            return None if found is None else self.add(fake, *found)
        return self.numbers["", id(fake)][1]

    def add(
        self, fake: Any, candidate: Candidate, at: tuple[Dim | Value, ...] = (), how: str = ""
    ) -> Known:
        if self.exact and len(at) > (self.room or 0):
            raise Decided(len(at))
        self.candidates.append(candidate)
        known = Known(len(self.candidates) - 1, at)
        self.numbers[how, id(fake)] = (fake, known)
        return known

    def view(self, fake: Any) -> tuple[Candidate, tuple[Dim | Value, ...]] | None:
        """A tensor of the outermost frame, or a view that an inner frame has made of one, or of one
        that a frame around it has made; None for what a frame that has ended has made."""
        trace, value = self.trace, fake._value
        if trace.values.frame_of[value] is trace.frames[0]:
            return Candidate(fake, (), fake.stop_gradient), ()
        while trace.values.frame_of[value] is not trace.frames[0] and value in trace.values.parent:
            value = trace.values.parent[value]
        inner = trace.values.frame_of[value] is not trace.frames[0]
        if trace.values.frame_of[value] not in trace.frames:
            return None
        if inner and value in trace.values.sources:
            return Candidate(fake, None, True), ()
        recipe, at = self.path(fake._value, value)
        if recipe == () and not inner:
            recipe = (("alias", ()),)
        return Candidate(trace.fake(value, fake.stop_gradient), recipe, fake.stop_gradient), at

    def through(self, fake: Any, root: Value, shown: Any) -> Known:
        """A view of `root`, which leaves its frame as `shown`; or `root` itself."""
        if ("shown", id(fake)) not in self.numbers:
            recipe, at = self.path(fake._value, root)
            self.add(fake, Candidate(shown, recipe, fake.stop_gradient), at, "shown")
        return self.numbers["shown", id(fake)][1]

    def is_last(self, number: int, frame: Any, old: Known) -> None:
        """A candidate is what the last iteration of this loop has made, in codes that leave it; in
        those that stay in it, what an earlier one has made is `old`."""
        self.last.setdefault(number, []).append((frame, old))

    def before(self, number: int, frame: Any) -> Known | None:
        """What stands for a candidate of this loop in its next iteration."""
        return next((old for f, old in self.last.get(number, ()) if f is frame), None)

    def unknown(self, fake: Any, of: int | None = None) -> Known:
        """A tensor that an iteration has made, or candidate `of`, which looks at it, to the
        iterations after it: it is gone, but names for it are names of one tensor."""
        how = "unknown" if of is None else f"unknown {of}"
        if (how, id(fake)) not in self.numbers:
            loops = [f.loop for f in self.trace.frames if f.loop is not None]
            at = tuple(Size.named(q.name) for q in loops)
            self.add(fake, Candidate(fake, None, True, True), at, how)
        return self.numbers[how, id(fake)][1]

    def alone(self, number: int) -> bool:
        """Whether only this candidate is what an iteration has made; not a view of it, too."""
        root = self.trace.root(self.candidates[number].fake._value)
        same = [q for q in self.candidates if self.trace.root(q.fake._value) is root]
        return self.candidates[number].passing and sum(q.passing for q in same) == 1

    def made_in(self, frame: Any, code: Value) -> list[int]:
        """The candidates of a code that look at what this frame has made."""
        found = [(k, self.candidates[k]) for k in self.reachable(code)]
        roots = [(k, self.trace.root(q.fake._value)) for k, q in found if q.recipe is not None]
        return [
            k for k, root in roots
            if self.trace.values.frame_of[root] is frame or self.before(k, frame) is not None
        ]  # fmt: skip

    def show(self, number: int, shown: Callable[[Value, bool], Any]) -> None:
        """A candidate looks at what leaves its frame instead."""
        q = self.candidates[number]
        fake = shown(self.trace.root(q.fake._value), q.fake.stop_gradient)
        self.candidates[number] = Candidate(fake, q.recipe, q.stop_gradient)

    def instead(self, code: Value, number: int, other: Known) -> Value:
        """The code with another candidate in the place of one."""
        trace = self.trace
        first = trace.emit("index", [trace.read_value(code)], {"axis": 0, "index": 0})
        same = trace.emit("equal", [first, trace.dim_value(number)], {})
        made = trace.emit("where", [same, self.value(other), trace.read_value(code)], {})
        self.follow(made, other, code)
        return made

    def path(self, value: Value, root: Value) -> tuple[Recipe | None, tuple[Dim | Value, ...]]:
        """The views from `root` to `value`, and their indices."""
        trace = self.trace
        steps: list[Any] = []
        at: list[Dim | Value] = []
        while value is not root:
            op = trace.values.makers.get(value)
            if op is not None:
                steps.append(self.step(op, at))
            value = trace.values.parent[value]
        return None if None in steps else tuple(reversed(steps)), tuple(at)

    def step(self, op: Op, at: list[Dim | Value]) -> Any:
        """One view of a recipe; indices that only its frame knows go to `at`. None: no recipe."""
        attrs, name = dict(op.attrs), op.name
        inner = {k for k, q in attrs.items() if any(map(self.moves, _dims(q)))}
        if any(self.hidden(d) for q in attrs.values() for d in _dims(q)):
            return None
        if op.operands[1:]:
            rewritten = self.trace.root(op.operands[1]) in self.trace.values.written
            if inner or rewritten or len(op.operands) > 2:
                return None
            at.append(op.operands[1])
        elif inner:
            if name == "index":
                name, place = "dynamic_index", "index"
            elif name == "slice" and attrs.pop("step") == 1:
                name, place = "dynamic_slice", "start"
            else:
                return None
            if inner != {place}:
                return None
            at.append(attrs.pop(place))
        else:
            return name, tuple(sorted(attrs.items()))
        return name, tuple(sorted([*attrs.items(), ("output", len(at) - 1)]))

    def moves(self, dim: Dim) -> bool:
        """Whether a size follows the index of a loop."""
        return isinstance(dim, Size) and any(n in self.trace.sizes.loops for n in dim.names)

    def hidden(self, dim: Dim) -> bool:
        """Whether a size is known only in an inner frame: how often a loop in it ran."""
        homes, outer = self.trace.sizes.count_homes, self.trace.frames[0]
        names = dim.names if isinstance(dim, Size) else ()
        return any(homes.get(n, outer) is not outer for n in names)

    # ------------------------------------------------------------ codes
    def code(self, fake: Any) -> Value | None:
        """The code of an object; another one with the same value is a view of it."""
        return self.objects[id(fake)][1] if id(fake) in self.objects else None

    def value(self, origin: Origin) -> Value:
        """The code in the present frame."""
        trace = self.trace
        if isinstance(origin, Value):
            return trace.read_value(origin)
        number, at = (-1, ()) if origin is None else (origin.number, origin.at)
        if not self.room:
            return trace.emit("full", [], {"value": number, "shape": (1,), "dtype": I64})
        dims = [number, *at, *[0] * (self.room - len(at))]
        parts = [d if isinstance(d, Value) else trace.dim_value(d) for d in dims]
        return trace.emit("stack", parts, {"axis": 0})

    def note(self, fake: Any, code: Value, *sources: Origin) -> None:
        """`fake` is what `code` says, which comes from `sources`."""
        self.objects.setdefault(id(fake), (fake, code))
        self.codes.setdefault(fake._value, code)
        self.follow(code, *sources)

    def doubt(self, value: Value, source: Any) -> None:
        """`source` may be what `value` is, and no code says so: it is new, or a view."""
        if not self.exact:
            self.vague.setdefault(value, []).append(source._value)

    def follow(self, code: Value, *sources: Origin) -> None:
        self.reach.setdefault(code, []).extend(q for q in sources if q is not None)

    def reachable(self, code: Value) -> list[int]:
        """The candidates that a code may name."""
        found: dict[int, None] = {}
        seen, todo = {code}, [code]
        while todo:
            for q in self.reach.get(todo.pop(), ()):
                if isinstance(q, Known):
                    found[q.number] = None
                elif q not in seen:
                    seen.add(q)
                    todo.append(q)
        return sorted(found)


def _dims(x: Any) -> Sequence[Any]:
    return x if isinstance(x, tuple) else (x,)


__all__ = ["Candidate", "Known", "Origin", "Origins", "Recipe"]
