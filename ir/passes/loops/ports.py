"""Removal of redundant ports: unused ones, duplicates, carries that never change.
The joins and operands of branches are ports, too (`ir.passes.simplify_cond`).

`drop_unused_ports` first replaces ports by simpler ones, then removes what nobody reads
(`ir.passes.loops.liveness`). A rule is a function with its example; it changes all ports of a loop
that it fits, so that its time is that of a walk over the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from ir.analysis.alias import at_least_once
from ir.passes.loops.congruence import equal_values
from ir.passes.loops.liveness import only_live
from ir.passes.loops.slices_to_ports import is_reversed, is_whole, put, rename
from ir.passes.simplify_cond import fewer_ports
from ir.program import Carry, Cond, Const, Last, Node, Op, Port, Program, Scan, Seq, Stack, Value
from ir.rewrite import Block, live_ops, rewrite

PortValues: TypeAlias = dict[Value, Value]
MOST_ROUNDS = 20


def drop_unused_ports(program: Program) -> Program:
    """Every port that is left is read, and no two say the same."""
    changed = True

    def visit(b: Block, node: Node) -> Sequence[Value] | None:
        nonlocal changed
        out = None
        if isinstance(node, Cond):
            out = fewer_ports(b, node)
        elif isinstance(node, Scan):
            out = _simpler(b, node, program)
        changed |= out is not None
        return out

    for _ in range(MOST_ROUNDS):
        program, changed = only_live(program), False
        program = rewrite(program, visit)
        if not changed:
            break
    return program


# ---------------------------------------------------------------- simpler ports
PortRule: TypeAlias = Callable[[Block, Scan, Program], "tuple[Scan, PortValues] | None"]


def _simpler(b: Block, s: Scan, program: Program) -> Sequence[Value] | None:
    before, results = s, {r: r for r in s.results}
    while (step := _first(b, s, program)) is not None:
        s, env = step
        results = {r: env.get(v, v) for r, v in results.items()}
    if s is before:
        return None
    put(b, s)
    return list(results.values())


def _first(b: Block, s: Scan, program: Program) -> tuple[Scan, PortValues] | None:
    found = (rule(b, s, program) for rule in RULES)
    return next((f for f in found if f is not None), None)


def with_ports(s: Scan, instead: Mapping[Port, Port | None]) -> Scan:
    """`s` with other ports, or none, in the place of some."""
    found = (instead.get(p, p) for p in s.ports)
    return replace(s, ports=tuple(p for p in found if p is not None))


def carry_that_stays(b: Block, s: Scan, program: Program) -> tuple[Scan, PortValues] | None:
    """carry %h = %h0 then %h last %hT  =>  const %h = %h0, and %hT is %h0.

    carry %h = %h0 then %h2, with %h0 = full(...) and %h2 = full(...) of one number: likewise.
    """
    consts = {p.inner: p.outer for p in s.ports if isinstance(p, Const)}
    stay = [p for p in s.carries if p.next is p.inner or consts.get(p.next) is p.init]
    stay = stay or _filled_alike(b, s, consts, program)
    if not stay:
        return None
    env = {p.last: p.init for p in stay if p.last is not None}
    return with_ports(s, {p: Const(p.inner, p.init) for p in stay}), env


def _filled_alike(b: Block, s: Scan, consts: PortValues, program: Program) -> list[Carry]:
    """The carries filled with one number at first and later, which the caller does not get."""
    shown = set(program.outputs)
    able = {p: b.constant(p.init) for p in s.carries if p.last not in shown}
    if all(number is None for number in able.values()):
        return []
    filled = {n.result: n.attrs["value"] for n in s.body if isinstance(n, Op) and n.name == "full"}
    filled |= {inner: b.constant(outer) for inner, outer in consts.items()}
    alike = {p: (repr(number), repr(filled.get(p.next))) for p, number in able.items()}
    return [p for p, (first, then) in alike.items() if able[p] is not None and first == then]


def equal_states(b: Block, s: Scan, program: Program) -> tuple[Scan, PortValues] | None:
    """const %a = %x and const %b = %x  =>  one of them; likewise for seqs.

    carry %a = %h then %a2 and carry %b = %h then %b2, with %a2 = add(%a, %x), %b2 = add(%b, %x)
    =>  one of them. Values of the body that are found equal on the way are one, too.
    Carries of which the program returns the last value stay apart, as the caller's tensors do.
    """
    classes = equal_values(s, set(program.outputs))
    if not classes:
        return None
    ports = {p.inner: p for p in s.ins}
    instead: dict[Port, Port | None] = {}
    inner: PortValues = {}
    outer: PortValues = {}
    for found in classes:
        first = next((v for v in found if isinstance(ports.get(v), Const)), found[0])
        inner.update((v, first) for v in found if v is not first)
        merged = [ports[v] for v in found if v in ports]
        instead |= {p: None for p in merged if p.inner is not first}
        lasts = [p.last for p in merged if isinstance(p, Carry) and p.last is not None]
        kept = ports.get(first)
        if isinstance(kept, Const):
            outer.update((v, kept.outer) for v in lasts)
        elif isinstance(kept, Carry) and lasts:
            instead[kept] = replace(kept, last=lasts[0])
            outer.update((v, lasts[0]) for v in lasts[1:])
    s = rename(with_ports(s, instead), inner)
    return replace(s, body=live_ops(s.body, s.needed)), outer


def same_result_twice(b: Block, s: Scan, program: Program) -> tuple[Scan, PortValues] | None:
    """stack %ys = %y axis 0 and stack %zs = %y axis 0  =>  one of them; likewise for last ports.

    A stack that is a result of the program stays a tensor of its own: the caller may overwrite it.
    """
    shown = set(program.outputs)
    seen: dict[object, Stack | Last] = {}
    gone: dict[Port, Port | None] = {}
    env: PortValues = {}
    for p in s.ports:
        if not isinstance(p, (Stack, Last)) or (isinstance(p, Stack) and p.outer in shown):
            continue
        first = seen.setdefault((p.inner, p.axis if isinstance(p, Stack) else None), p)
        if first is not p:
            gone[p], env[p.outer] = None, first.outer
    return (with_ports(s, gone), env) if gone else None


def last_of_const(b: Block, s: Scan, program: Program) -> tuple[Scan, PortValues] | None:
    """last %y = %w1 of const %w1 = %w  =>  %y is %w. A last port says that the loop runs."""
    return _without_last(s, {p.inner: p.outer for p in s.ports if isinstance(p, Const)})


def last_of_carried(b: Block, s: Scan, program: Program) -> tuple[Scan, PortValues] | None:
    """last %y = %h2 beside carry %h = %h0 then %h2 last %hT  =>  %y is %hT, or is that last."""
    lasts = {p.next: p.last for p in s.carries if p.last is not None}
    shown = {p.inner: p for p in s.ports if isinstance(p, Last) and p.inner not in lasts}
    instead: dict[Port, Port | None] = {}
    for p in s.carries:
        if p.next in shown:
            lasts[p.next] = (last := shown.pop(p.next)).outer
            instead |= {p: replace(p, last=last.outer), last: None}
    found = _without_last(with_ports(s, instead), lasts)
    return found if found is not None or not instead else (with_ports(s, instead), {})


def _without_last(s: Scan, known: PortValues) -> tuple[Scan, PortValues] | None:
    """Without the last ports of values that are `known` outside."""
    gone = [p for p in s.ports if isinstance(p, Last) and p.inner in known]
    if not gone:
        return None
    return with_ports(s, dict.fromkeys(gone)), {p.outer: known[p.inner] for p in gone}


def carry_that_nobody_reads(b: Block, s: Scan, program: Program) -> tuple[Scan, PortValues] | None:
    """carry %h = %h0 then %h2 last %hT, %h unread  =>  last %hT = %h2, if the loop surely runs."""
    starts = s.go is not None and b.constant(s.go.init)
    if not at_least_once(s, program, bool(starts)):
        return None
    read = {v for n in s.body for v in n.operands} | set(s.needed)
    unread: dict[Port, Port | None] = {}
    for p in s.carries:
        if p.last is not None and p.inner not in read:
            unread[p] = Last(p.last, p.next)
    return (with_ports(s, unread), {}) if unread else None


def stack_of_whole_seq(b: Block, s: Scan, program: Program) -> tuple[Scan, PortValues] | None:
    """stack %ys = %xt axis 0 of seq %xt = %x[:, %t]  =>  %ys is a copy of transpose(%x).

    It is a tensor of its own: `%x` may be overwritten. The last slice may come first. Not in a
    while loop, which may end before it has read all of %x.
    """
    if s.count or s.trip == 0:
        return None
    seqs = {p.inner: p for p in s.ports if isinstance(p, Seq)}
    env: PortValues = {}
    gone: dict[Port, Port | None] = {}
    for p in s.ports:
        q = seqs.get(p.inner) if isinstance(p, Stack) else None
        if isinstance(p, Stack) and q is not None and (is_whole(s, q) or is_reversed(s, q)):
            gone[p], env[p.outer] = None, _collected(b, s, q, p)
    return (with_ports(s, gone), env) if gone else None


def _collected(b: Block, s: Scan, q: Seq, p: Stack) -> Value:
    """The slices of `q` along the axis of `p`."""
    x = q.outer
    if q.step < 0:
        x = b.slice(x, axis=q.axis, start=q.start, length=s.trip, step=q.step, hint=p.outer.name)
    perm = [i for i in range(x.type.ndim) if i != q.axis]
    perm.insert(p.axis, q.axis)
    if perm != sorted(perm):
        x = b.transpose(x, perm=tuple(perm), hint=p.outer.name)
    new: Value = b.assign(x, hint=p.outer.name)
    return new


RULES: tuple[PortRule, ...] = (
    carry_that_stays,
    equal_states,
    same_result_twice,
    last_of_const,
    last_of_carried,
    carry_that_nobody_reads,
    stack_of_whole_seq,
)

__all__ = ["drop_unused_ports", "with_ports"]
