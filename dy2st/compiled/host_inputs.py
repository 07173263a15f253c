"""Hoisted host calls: they are made before the program runs, and their results are inputs.

    scan %t < T {                                    scan %t < T {
      %p = foreign(call="host", ...)     becomes       seq %p = %drawn[t]
      ...                                              ...

A call whose arguments are known, and whose number of calls follows from the sizes of the program,
is made in front of it, in loops of Python like those of the program, so that all calls keep their
order. Calls that must stay in the program keep all calls of the same owner there. A clock stays
where it is, unless nothing is computed before it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import paddle

from dy2st.capture.foreign.host_ops import Callee, rebuilt, sizes_in
from dy2st.compiled.recompilation import GuardChecks
from dy2st.state.containers.guard_expressions import GuardExpressions
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.frames import TracedInput
from dy2st.trace.trace import Trace
from dy2st.trace.undo import Location
from ir import Input, Loc, Op, Program, Scan, SourceError, Type, Value
from ir.analysis.alias import analyse
from ir.loc import acts_for_user
from ir.program import Node, Seq
from ir.types import Dim, evaluate_dim
from ir.uses import walk

Sizes = Mapping[str, int]


# ---------------------------------------------------------------- calls before the program
@dataclass(frozen=True, eq=False)
class HoistedCall:
    """One call; `index` is its number."""

    index: int
    callee: Callee
    literal: Any


@dataclass(frozen=True, eq=False)
class HoistedLoop:
    """The calls of a loop's body, `trip` times."""

    trip: Dim
    steps: tuple[HoistedCall | HoistedLoop, ...]


@dataclass(frozen=True, eq=False)
class HoistedCalls:
    """The calls that are made in front of a program, in order. `make(sizes)` makes them and gives
    the results of each one: a Python number, or an array whose first dims are the trips of the
    loops around the call; None for calls without results."""

    steps: tuple[HoistedCall | HoistedLoop, ...]
    calls: tuple[HoistedCall, ...]
    types: tuple[Type | None, ...]
    make: Callable[[Sizes], Sequence[Any]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "make", HoistedCallWriter(self).compile())


class HoistedCallWriter:
    """Writes the Python that makes the calls."""

    def __init__(self, calls: HoistedCalls) -> None:
        self.calls = calls
        self.names: dict[str, Any] = {"arguments": rebuilt, "length": evaluate_dim}
        self.lines: list[str] = []

    def compile(self) -> Callable[[Sizes], Sequence[object]]:
        for call in self.calls.calls:
            self.prepare(call)
        self.steps(self.calls.steps, 1)
        found = "".join(map(self.result, self.calls.calls))
        source = "\n".join(["def make(sizes):", *self.lines, f"    return ({found})"])
        exec(compile(source, "<dy2st host calls>", "exec"), self.names)
        made: Callable[[Sizes], Sequence[object]] = self.names["make"]
        return acts_for_user(made)

    def prepare(self, call: HoistedCall) -> None:
        """The arguments of all calls, and a list for the results."""
        k = call.index
        self.names.update({f"f{k}": call.callee.function, f"l{k}": call.literal})
        self.names[f"result{k}"] = call.callee.result
        if any(call.literal):
            self.lines.append(f"    p{k}, n{k} = arguments(l{k}, (), sizes)")
        self.lines.append(f"    r{k} = []")

    def steps(self, steps: Sequence[HoistedCall | HoistedLoop], depth: int) -> None:
        for q in steps:
            if isinstance(q, HoistedLoop):
                name = f"trip{len(self.names)}"
                self.names[name] = q.trip
                pad = "    " * depth
                self.lines.append(f"{pad}for _ in range(length({name}, sizes)):")
                self.steps(q.steps, depth + 1)
            else:
                given = f"*p{q.index}, **n{q.index}" if any(q.literal) else ""
                self.lines.append("    " * depth + f"r{q.index}.append(f{q.index}({given}))")

    def result(self, call: HoistedCall) -> str:
        k, whole = call.index, self.calls.types[call.index]
        if whole is None:
            return "None, "
        if whole != call.callee.result.type:
            self.names[f"t{k}"] = whole
            return f"result{k}.stacked(r{k}, t{k}.concrete(sizes), sizes), "
        exact = call.callee.result.kind == "number"
        return f"result{k}.{'number' if exact else 'made'}(r{k}[0], sizes), "


# ---------------------------------------------------------------- what calls must not change
class StateWatch:
    """The Python state that a program has read for the time after its host calls, and the tensors:
    after each host call they must be what they were when the program was called. What no host call
    comes to is not looked at.

    `inputs`: names of the inputs, what gives them for the arguments of a call, and whether one that
    is changed in place counts.
    """

    def __init__(
        self, checks: GuardChecks, inputs: Sequence[tuple[str, Callable[[object], object], bool]]
    ) -> None:
        self.checks, self.inputs = checks, inputs
        tests = " and ".join(checks.terms.values()) or "True"
        self.holds = eval(f"lambda _L: {tests}", dict(checks.names))
        self.running = threading.local()

    @staticmethod
    def of(
        checks: GuardChecks,
        terms: GuardExpressions,
        find: Callable[[int, Any], object],
        traced: Sequence[TracedInput],
        written: Container[Value],
        early: Container[int],
    ) -> StateWatch | None:
        """`find(k, leaves)` is input k of a call; `written` are those that the program writes,
        `early`, by `id`, those that it has read before its host calls."""
        if not terms.called:
            return None
        inputs: list[tuple[str, Callable[[Any], object], bool]] = []
        for k, q in enumerate(traced):
            if not is_open(terms, q):
                continue
            if q.number is not None and q.place is not None:
                inputs.append((q.name, partial(value_at, q.place), True))
            elif q.number is None and q.drawn is None and q.memory is None:
                exact = q.value not in written or id(q.tensor) in terms.reached
                exact = exact and id(q) not in early
                inputs.append((q.name, partial(find, k), exact))
        late = {k: test for k, test in terms.items() if is_late(terms, k) or ":=" in test}
        watch = StateWatch(replace(checks, terms=late), inputs)
        terms.after = watch.after
        return watch

    def begin(self, leaves: object, front: bool) -> None:
        """The host calls of a call with these arguments begin; `front`: those in front of the
        program, which may write to the memory of its inputs."""
        inputs = [get(leaves) for _, get, _ in self.inputs]
        self.running.call = leaves, inputs, front, self.state(leaves, inputs, front)

    def state(self, leaves: object, inputs: Sequence[object], front: bool) -> list[object]:
        found = [state_of(x, exact, front) for x, (_, _, exact) in zip(inputs, self.inputs)]
        containers: list[Any] = getattr(leaves, "containers", list)()
        return [*found, *([*map(id, q.values() if type(q) is dict else q)] for q in containers)]

    def after(self, name: str, loc: Loc) -> None:
        """A host call has been made; raises SourceError for a change that it must not make."""
        leaves, _, front, before = self.running.call
        now = self.state(leaves, [get(leaves) for _, get, _ in self.inputs], front)
        titles = [
            *(name for name, _, _ in self.inputs),
            *["a list or dict of the arguments"] * len(now),
        ]
        found = [title for title, a, b in zip(titles, before, now) if a != b]
        if not found and not self.holding(leaves):
            space = {**self.checks.names, "_L": leaves}
            failed = self.checks.failed(space)
            found = [str(c) for key in failed for c in self.checks.described(key, space)]
        if found:
            raise SourceError(
                f"{name}() has changed what the translated function reads later: {found[0]}.",
                loc,
                reason="A program reads objects and tensors of the caller when its own call "
                "begins: it has the value from before this call.",
                remedy="Return the new value from the function that is called "
                "(`dy2st.host(f, result=float)`) and use that, or make the call at the end.",
            )

    def holding(self, leaves: object) -> bool:
        try:
            return bool(self.holds(leaves))
        except (AttributeError, KeyError, IndexError, NameError, TypeError):
            return False


def is_late(terms: GuardExpressions, key: tuple[object, ...]) -> bool:
    """Whether a host call may change what the function reads after it. Variables are checked when
    a function begins that reads them."""
    late = key in terms.late or key[0] in ("global", "cell")
    return late and key[0] != "items" and terms.may_change(key)


def is_open(terms: GuardExpressions, q: TracedInput) -> bool:
    """Like `is_late`, for an input."""
    if q.number is not None:
        return is_late(terms, q.number[0])
    place = q.place is not None and terms.may_change(q.place.key)
    return place or id(q.tensor) in terms.reached or id(q.fake) in terms.reached


def read_early(program: Program, inputs: Sequence[TracedInput]) -> set[int]:
    """The inputs, by `id`, whose memory a program reads before its first host call only."""
    acts = (k for k, n in enumerate(program.ops) if any(map(is_call, foreign_ops([n]))))
    first = next(acts, None)
    if first is None:
        return set()
    base = analyse(program).base
    later = {v for n in program.ops[first:] for v in n.operands}
    read = {base[v] for v in later.union(v for v in program.outputs if isinstance(v, Value))}
    return {id(q) for q in inputs if q.value in base and base[q.value] not in read}


def value_at(place: Location, leaves: object) -> object:
    return place.get()


def state_of(x: object, exact: bool, front: bool) -> object:
    """Return a key that changes if an input is replaced; `exact`: also if it is changed in place,
    unless it is copied before the calls in `front`. Version counters do not tell: `set_value`
    and `copy_` leave them."""
    if isinstance(x, np.ndarray):
        return None if front else x.tobytes()
    if isinstance(x, Tensor):
        kept = not exact or front and x.is_contiguous()
        return id(x), None if kept else (x.inplace_version, x.numpy().tobytes())
    return repr(x)


# ---------------------------------------------------------------- from ops to inputs
def lifted(trace: Trace, program: Program) -> tuple[Program, HoistedCalls | None]:
    """The program with inputs for the host calls that can be made in front of it."""
    chosen = choose(program)
    if not chosen:
        return program, None
    lifter = HostCallHoister(chosen)
    ops, steps, taken = lifter.block(program.ops)
    inputs = []
    for index, value in sorted(taken, key=lambda q: q[0]):
        name = str(lifter.calls[index].callee)
        inputs.append(Input(value, "host", name))
        one = paddle.zeros([1])
        trace.inputs.by_id[id(one)] = TracedInput(one, one, value, "host", name, drawn=index)
    types = {index: value.type for index, value in taken}
    calls = HoistedCalls(
        steps, tuple(lifter.calls), tuple(map(types.get, range(len(lifter.calls))))
    )
    return replace(program, ops=ops, inputs=(*program.inputs, *inputs)), calls


@dataclass
class HostCallHoister:
    """Moves the ops of `chosen` out of the program."""

    chosen: set[Op]
    calls: list[HoistedCall] = field(default_factory=list)

    def block(
        self, nodes: Sequence[Node]
    ) -> tuple[tuple[Node, ...], tuple[HoistedCall | HoistedLoop, ...], list[tuple[int, Value]]]:
        """The block without the calls, the calls, and the values that it takes from around it."""
        out: list[Node] = []
        steps: list[HoistedCall | HoistedLoop] = []
        pending: list[tuple[int, Value]] = []
        for node in nodes:
            if isinstance(node, Scan) and self.chosen.intersection(walk(node.body)):
                node = self.loop(node, steps, pending)
            if not isinstance(node, Op) or node not in self.chosen:
                out.append(node)
                continue
            callee, literal = node.attrs["args"]
            call = HoistedCall(len(self.calls), callee, literal)
            self.calls.append(call)
            steps.append(call)
            if node.results:
                value = Value(node.result.type, node.result.name)
                pending.append((call.index, value))
                out.append(Op("assign", (value,), node.results, {}, node.loc))
        return tuple(out), tuple(steps), pending

    def loop(
        self, s: Scan, steps: list[HoistedCall | HoistedLoop], pending: list[tuple[int, Value]]
    ) -> Scan:
        body, inside, taken = self.block(s.body)
        steps.append(HoistedLoop(s.trip, inside))
        ports = []
        for index, inner in taken:
            outer = Value(inner.type.with_shape((s.trip, *inner.type.shape)), inner.name)
            ports.append(Seq(inner, outer, 0))
            pending.append((index, outer))
        return replace(s, ports=(*s.ports, *ports), body=body)


# ---------------------------------------------------------------- which calls
def choose(program: Program) -> set[Op]:
    """The calls that can be made in front of the program.

    A call stays behind a call that stays if the two may not change places; in one loop, each is
    behind the other.
    """
    foreign = [(k, n) for k, top in enumerate(program.ops) for n in foreign_ops([top])]
    free = set(counted(program.ops, set(program.sizes)))
    first = set(leading(program.ops))
    chosen = {n for _, n in foreign if n in free and (not callee(n).still or n in first)}
    while True:
        stay = [(k, n) for k, n in foreign if n not in chosen]
        keep = {
            n
            for k, n in foreign
            if n in chosen and not any(at <= k and conflict(n, q) for at, q in stay)
        }
        if keep == chosen:
            return chosen
        chosen = keep


def foreign_ops(nodes: Iterable[Node]) -> list[Op]:
    return [n for n in walk(nodes) if isinstance(n, Op) and n.name == "foreign"]


def callee(op: Op) -> Callee:
    found = op.attrs["args"][0]
    assert isinstance(found, Callee)
    return found


def is_call(op: Op) -> bool:
    return op.name == "foreign" and bool(op.attrs["call"] == "host")


def counted(nodes: Iterable[Node], sizes: set[str]) -> Iterator[Op]:
    """The calls without operands that run a number of times that the sizes say."""
    for n in nodes:
        if isinstance(n, Op) and is_call(n):
            if not n.operands and sizes_in(n.attrs["args"][1]) <= sizes:
                yield n
        elif isinstance(n, Scan) and n.go is None and not n.count and sizes_in(n.trip) <= sizes:
            yield from counted(n.body, sizes)


def leading(nodes: Iterable[Node]) -> Iterator[Op]:
    """The calls in front of which nothing is computed."""
    for n in nodes:
        if isinstance(n, Op) and is_call(n):
            yield n
        elif n.operands or not isinstance(n, Op):
            return


def conflict(a: Op, b: Op) -> bool:
    """Whether call `a` and the foreign op `b` may not change places."""
    mine = callee(a).owner
    if not is_call(b):
        return mine is None
    return mine is None or callee(b).owner is None or mine is callee(b).owner


__all__ = ["HoistedCalls", "StateWatch", "lifted", "read_early"]
