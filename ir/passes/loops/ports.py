"""Ports that carry nothing new disappear: unused ones, duplicates, carries that never change.
The joins of branches and what they read are ports like the others (`ir.passes.simplify_cond`).

`drop_unused_ports` first replaces ports by simpler ones (a rule a function, each with its example),
then removes what nobody reads. A carry is read when its last value is, or when something that
matters reads it in the body; carries that only feed themselves are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from ir.analysis.alias import at_least_once
from ir.passes.loops.slices_to_ports import is_whole, put, rename
from ir.passes.simplify_cond import fewer_ports, only_read
from ir.program import Carry, Cond, Const, Go, Last, Node, Port, Program, Scan, Seq, Stack, Value
from ir.rewrite import Block, live_ops, map_blocks, rewrite

Env: TypeAlias = dict[Value, Value]


def drop_unused_ports(program: Program) -> Program:
    """Every port that is left is read, and no two say the same."""

    def visit(b: Block, node: Node) -> Sequence[Value] | None:
        if isinstance(node, Cond):
            return fewer_ports(b, node)
        return _simpler(b, node, program) if isinstance(node, Scan) else None

    program = rewrite(program, visit)
    return replace(program, ops=live_ops(program.ops, program.needed, _trim))


# ---------------------------------------------------------------- simpler ports
Rule: TypeAlias = Callable[[Block, Scan, Program], "tuple[Scan, Env] | None"]


def _simpler(b: Block, s: Scan, program: Program) -> Sequence[Value] | None:
    before, results = s, {r: r for r in s.results}
    while (step := _first(b, s, program)) is not None:
        s, env = step
        results = {r: env.get(v, v) for r, v in results.items()}
    if s is before:
        return None
    put(b, s)
    return list(results.values())


def _first(b: Block, s: Scan, program: Program) -> tuple[Scan, Env] | None:
    found = (rule(b, s, program) for rule in RULES)
    return next((f for f in found if f is not None), None)


def without(s: Scan, gone: Port, *instead: Port) -> Scan:
    ports: list[Port] = []
    for p in s.ports:
        ports += instead if p is gone else [p]
    return replace(s, ports=tuple(ports))


def carry_that_stays(b: Block, s: Scan, program: Program) -> tuple[Scan, Env] | None:
    """carry %h = %h0 then %h last %hT  =>  const %h = %h0, and %hT is %h0."""
    consts = {p.inner: p.outer for p in s.ports if isinstance(p, Const)}
    for p in s.carries:
        if p.next is p.inner or consts.get(p.next) is p.init:
            env = {p.last: p.init} if p.last is not None else {}
            return without(s, p, Const(p.inner, p.init)), env
    return None


def same_port_twice(b: Block, s: Scan, program: Program) -> tuple[Scan, Env] | None:
    """const %a = %x and const %b = %x  =>  one of them; likewise for the other kinds.

    Two stacks stay two tensors where one is a result of the program: the caller may overwrite it.
    """
    seen: dict[object, Port] = {}
    for p in s.ports:
        first = seen.setdefault(_identity(p), p)
        if first is p or isinstance(p, Go):
            continue
        if isinstance(p, (Stack, Last)):
            assert isinstance(first, (Stack, Last))
            if isinstance(p, Stack) and {p.outer, first.outer} & set(program.outputs):
                continue
            return without(s, p), {p.outer: first.outer}
        if not isinstance(p, Carry):
            assert isinstance(first, (Const, Seq))
            return rename(without(s, p), {p.inner: first.inner}), {}
        assert isinstance(first, Carry)
        last = first.last if first.last is not None else p.last
        env = {p.last: last} if p.last is not None and last is not None else {}
        merged = without(without(s, p), first, replace(first, last=last))
        return rename(merged, {p.inner: first.inner}), env
    return None


def _identity(p: Port) -> object:
    if isinstance(p, Const):
        return (Const, p.outer)
    if isinstance(p, Seq):
        return (Seq, p.outer, p.axis, p.start, p.step)
    if isinstance(p, Carry):
        return (Carry, p.init, p.next)
    if isinstance(p, Go):
        return Go
    return (Stack, p.inner, p.axis) if isinstance(p, Stack) else (Last, p.inner)


def last_of_const(b: Block, s: Scan, program: Program) -> tuple[Scan, Env] | None:
    """last %y = %w1 of const %w1 = %w  =>  %y is %w. A last port says that the loop runs."""
    consts = {p.inner: p.outer for p in s.ports if isinstance(p, Const)}
    for p in s.ports:
        if isinstance(p, Last) and p.inner in consts:
            return without(s, p), {p.outer: consts[p.inner]}
    return None


def last_of_carried(b: Block, s: Scan, program: Program) -> tuple[Scan, Env] | None:
    """last %y = %h2 beside carry %h = %h0 then %h2 last %hT  =>  %y is %hT."""
    lasts = {p.next: p.last for p in s.carries if p.last is not None}
    for p in s.ports:
        if isinstance(p, Last) and p.inner in lasts:
            return without(s, p), {p.outer: lasts[p.inner]}
    return None


def carry_that_nobody_reads(b: Block, s: Scan, program: Program) -> tuple[Scan, Env] | None:
    """carry %h = %h0 then %h2 last %hT, %h unread  =>  last %hT = %h2, if the loop surely runs."""
    starts = s.go is not None and b.constant(s.go.init)
    if not at_least_once(s, program, bool(starts)):
        return None
    read = {v for n in s.body for v in n.operands} | set(s.needed)
    for p in s.carries:
        if p.last is not None and p.inner not in read:
            return without(s, p, Last(p.last, p.next)), {}
    return None


def stack_of_whole_seq(b: Block, s: Scan, program: Program) -> tuple[Scan, Env] | None:
    """stack %ys = %xt axis 0 of seq %xt = %x[:, %t]  =>  %ys is a copy of transpose(%x).

    It is a tensor of its own: `%x` may be overwritten. Not in a while loop, which may end before it
    has read all of %x.
    """
    if s.count:
        return None
    seqs = {p.inner: p for p in s.ports if isinstance(p, Seq)}
    for p in s.ports:
        q = seqs.get(p.inner) if isinstance(p, Stack) else None
        if not isinstance(p, Stack) or q is None or not is_whole(s, q):
            continue
        perm = [i for i in range(q.outer.type.ndim) if i != q.axis]
        perm.insert(p.axis, q.axis)
        same = perm == sorted(perm)
        whole = q.outer if same else b.transpose(q.outer, perm=tuple(perm), hint=p.outer.name)
        return without(s, p), {p.outer: b.assign(whole, hint=p.outer.name)}
    return None


RULES: tuple[Rule, ...] = (
    carry_that_stays,
    same_port_twice,
    last_of_const,
    last_of_carried,
    carry_that_nobody_reads,
    stack_of_whole_seq,
)


# ---------------------------------------------------------------- unused ports
def _trim(node: Node, live: set[Value | str]) -> Node:
    if isinstance(node, Cond):
        outs = tuple(j for j in node.outs if j.outer in live)
        return only_read(map_blocks(replace(node, outs=outs), _used))
    return _trim_loop(node, live) if isinstance(node, Scan) else node


def _used(ops: Sequence[Node], needed: Iterable[Value]) -> tuple[Node, ...]:
    return live_ops(ops, needed, _trim)


def _trim_loop(s: Scan, live: set[Value | str]) -> Scan:
    """`s` with the ports that give `live` values or feed something that does."""
    needed = {p.inner for p in s.ports if isinstance(p, (Stack, Last)) and p.outer in live}
    needed |= {p.next for p in s.carries if p.last in live}
    needed |= {s.go.next} if s.go is not None else set()
    while True:
        body = _used(s.body, needed)
        read = {v for n in body for v in n.operands} | needed
        more = {p.next for p in s.carries if p.inner in read} - needed
        if not more:
            break
        needed |= more
    ports: list[Port] = []
    for p in s.ports:
        if isinstance(p, Carry) and (p.last in live or p.inner in read):
            ports.append(p if p.last in live else replace(p, last=None))
        elif isinstance(p, (Const, Seq)) and p.inner in read:
            ports.append(p)
        elif isinstance(p, (Stack, Last)) and p.outer in live:
            ports.append(p)
        elif isinstance(p, Go):
            ports.append(p)
    return replace(s, ports=tuple(ports), body=body)


__all__ = ["drop_unused_ports", "without"]
