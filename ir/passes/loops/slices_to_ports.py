"""Slices at the loop index become seq and stack ports, or reads and writes at a known address.

`dynamic_index` by the index becomes a seq port, `set_dynamic_index` a stack port.

A const port that the body only indexes makes every iteration see the whole tensor; a seq port says
which slice it reads, so that work on it can leave the loop and memory is walked in order. The same
holds for a buffer that is filled slice by slice: as a carry it is rebuilt in every iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ir.analysis.affine import index_name, is_size, polynomial
from ir.analysis.ranges import facts_of, in_range
from ir.ops.views import at_numbers, view_name
from ir.passes.cloning import fresh_size
from ir.program import Carry, Const, Node, Op, Port, Program, Scan, Seq, Stack, Value
from ir.rewrite import Block, in_order, live_ops, rewrite, substitute, with_body
from ir.types import Dim, Size, line, names_in, substitute_dim
from ir.uses import blocks, loop_sizes, size_names, users, walk


def put(b: Block, scan: Scan) -> None:
    """Emit `scan` with its ports in the order of the text."""
    b.append(replace(scan, ports=in_order(scan.ports)))


def is_whole(s: Scan, p: Seq) -> bool:
    """Whether iteration i reads slice i and all slices are read, if all iterations run."""
    return p.start == 0 and p.step == 1 and p.outer.type.shape[p.axis] == s.trip


def is_reversed(s: Scan, p: Seq) -> bool:
    """Whether all slices are read, last one first, if all iterations run."""
    return p.start == s.trip - 1 and p.step == -1 and p.outer.type.shape[p.axis] == s.trip


def moves_axis(perm: Sequence[int], axis: int) -> bool:
    """Whether a transpose moves this axis of its result only: the others keep their order."""
    rest = [p % len(perm) for i, p in enumerate(perm) if i != axis]
    return rest == sorted(rest)


# ---------------------------------------------------------------- seq ports
def to_seq(program: Program) -> Program:
    """A const port read by `dynamic_index(%inner, t, axis=a)` becomes a seq port, one per slice.

        const %x1 = %x                               seq %xt = %x[:, %t]
        body                                   =>    body
          %xt = dynamic_index(%x1, %t, axis=1)

    The index is affine in the loop's own index and provably inside of the axis in every iteration.
    Other reads keep the const port. A seq port of a transpose reads the tensor as it lies.
    """
    facts = facts_of(program)

    def visit(b: Block, node: Node) -> Sequence[Value] | None:
        if not isinstance(node, Scan):
            return None
        s = _as_it_lies(b, _seq_ports(b, node, facts))
        if s is node:
            return None
        put(b, s)
        return s.results

    return rewrite(program, visit)


def _as_it_lies(b: Block, s: Scan) -> Scan:
    """seq %xt = transpose(%x, perm=[1, 0, 2])[%t]  =>  seq %xt = %x[:, %t]"""
    ports: list[Port] = []
    for p in s.ports:
        moved = b.op_of(p.outer, "transpose") if isinstance(p, Seq) else None
        if isinstance(p, Seq) and moved is not None and moves_axis(moved.attrs["perm"], p.axis):
            axis = moved.attrs["perm"][p.axis] % p.outer.type.ndim
            p = replace(p, outer=moved.operands[0], axis=axis)
        ports.append(p)
    return s if tuple(ports) == s.ports else replace(s, ports=tuple(ports))


def _seq_ports(b: Block, s: Scan, facts: tuple[Dim, ...]) -> Scan:
    (body,) = Block.inside(s, b)
    outer = {p.inner: p.outer for p in s.ports if isinstance(p, Const)}
    made: dict[tuple[Value, int, Dim, int], Seq] = {}
    env: dict[Value, Value] = {}
    for node in s.body:
        at = _slice_index(body, node, facts)
        if at is None or not isinstance(node, Op) or node.operands[0] not in outer:
            continue
        source, result = outer[node.operands[0]], node.results[0]
        axis = node.attrs["axis"] % source.type.ndim
        key = (source, axis, *at)
        if key not in made:
            made[key] = Seq(Value(result.type, result.name), source, axis, *at)
        env[result] = made[key].inner
    return _with_seqs(s, list(made.values()), env) if env else s


def _slice_index(body: Block, node: Node, facts: tuple[Dim, ...]) -> tuple[Dim, int] | None:
    """At which slice the first iteration looks, and the distance to that of the next one."""
    if not isinstance(node, Op) or node.name != "dynamic_index":
        return None
    at = polynomial(body, node.operands[1])
    start, step = (None if at is None else line(at, index_name(body))) or (0, 0)
    if not isinstance(step, int) or step == 0:
        return None
    return (start, step) if is_size(start) and in_range(body, node, facts) else None


def _with_seqs(s: Scan, seqs: list[Seq], env: dict[Value, Value]) -> Scan:
    from_body = [n for n in s.body if not any(r in env for r in n.results)]
    s = rename(replace(s, body=tuple(from_body)), env)
    body = live_ops(s.body, s.needed)
    read = users(body)
    kept: list[Port] = []
    for p in s.ports:
        if not isinstance(p, Const) or p.inner in read or p.inner in s.needed:
            kept.append(p)
    return replace(s, ports=(*kept, *seqs), body=body)


def rename(s: Scan, env: dict[Value, Value]) -> Scan:
    """`s` whose body reads `env[v]` for `v`."""
    return with_body(s, substitute(s.body, env), lambda v: env.get(v, v))


# ---------------------------------------------------------------- stack ports
def to_stack(program: Program) -> Program:
    """A carried buffer that iteration t fills at t, and nothing else reads, becomes a stack port.

        carry %b = %b0 then %b2 last %bT             stack %bT = %y axis 1
        body                                   =>    body
          %b2 = set_dynamic_index(%b, %y, %t, axis=1)

    The loop must fill the whole axis: its trip is the axis' size, and it is no while loop, which
    may end before. A stack that is only read by a transpose is collected in that order.
    """
    read = all_users(program)
    collected: set[Value] = set()

    def visit(b: Block, node: Node) -> Sequence[Value] | None:
        if isinstance(node, Op) and node.name == "transpose" and node.operands[0] in collected:
            return node.operands
        if not isinstance(node, Scan):
            return None
        s, results = _in_final_order(_stack_ports(b, node), read)
        if s is node:
            return None
        collected.update(set(results) - set(node.results))
        put(b, s)
        return results

    return rewrite(program, visit)


def all_users(program: Program) -> dict[Value, list[object]]:
    """Map each value to its users in all blocks; outputs and writes are used by the program."""
    out: dict[Value, list[object]] = {}
    for n in walk(program.ops):
        for v in (*n.operands, *(v for _, leaving in blocks(n) for v in leaving)):
            out.setdefault(v, []).append(n)
    for v in program.needed:
        out.setdefault(v, []).append(program)
    return out


def _in_final_order(s: Scan, read: dict[Value, list[object]]) -> tuple[Scan, tuple[Value, ...]]:
    """stack %ys = %y axis 0, then transpose(%ys, perm=[1, 0, 2])  =>  stack %ys = %y axis 1"""
    ports: list[Port] = []
    new: dict[Value, Value] = {}
    for p in s.ports:
        using = read.get(p.outer, []) if isinstance(p, Stack) else []
        if isinstance(p, Stack) and len(using) == 1:
            (t,) = using
            if isinstance(t, Op) and t.name == "transpose":
                axis = [q % len(t.attrs["perm"]) for q in t.attrs["perm"]].index(p.axis)
                if moves_axis(t.attrs["perm"], axis):
                    new[p.outer] = Value(t.result.type, t.result.name)
                    p = Stack(new[p.outer], p.inner, axis)
        ports.append(p)
    if not new:
        return s, s.results
    return replace(s, ports=tuple(ports)), tuple(new.get(r, r) for r in s.results)


def _stack_ports(b: Block, s: Scan) -> Scan:
    (body,) = Block.inside(s, b)
    read = users(s.body)
    ports = tuple(_as_stack(body, s, p, read) or p for p in s.ports)
    if ports == s.ports:
        return s
    s = replace(s, ports=ports)
    return replace(s, body=live_ops(s.body, s.needed))


def _as_stack(body: Block, s: Scan, p: Port, read: dict[Value, list[Node]]) -> Stack | None:
    if not isinstance(p, Carry) or p.last is None or s.needed.count(p.next) != 1 or s.count:
        return None
    write = body.op_of(p.next, "set_dynamic_index")
    if write is None or write.operands[0] is not p.inner or p.inner in write.operands[1:]:
        return None
    if read.get(p.inner) != [write] or p.next in read or p.inner in s.needed:
        return None
    axis = write.attrs["axis"] % p.inner.type.ndim
    if polynomial(body, write.operands[2]) != Size.named(index_name(body)):
        return None
    return Stack(p.last, write.operands[1], axis) if p.last.type.shape[axis] == s.trip else None


# ---------------------------------------------------------------- known addresses
def known_addresses(program: Program) -> Program:
    """An index that follows from those of the loops around, and stays in its axis, is part of the
    address: it is neither computed nor checked.

        %i = add(%t, %one)                           (the index of the loop is the size t)
        %y = dynamic_index(%h, %i, axis=0)    =>     %y = index(%h, axis=0, index=t+1)

    In the body of a loop itself, not in a branch there.
    """
    if not any(map(_is_indexed, walk(program.ops))):
        return program
    facts = facts_of(program)
    taken = {*program.sizes, *loop_sizes(program.ops)}.union(*map(size_names, walk(program.ops)))

    def visit(b: Block, s: Node) -> Sequence[Value] | None:
        if not isinstance(s, Scan):
            return None
        (body,) = Block.inside(s, b)
        known = {n: at for n in s.body if (at := _address(body, n, facts)) is not None}
        if not known:
            return None
        name = index_name(body)
        if not s.size and any(name in names_in(at) for at in known.values()):
            s = replace(s, size=fresh_size(taken, "t"))
        own = {name: Size.named(s.size)} if s.size else {}
        ops = [
            at_numbers(n, substitute_dim(known[n], own)) if isinstance(n, Op) and n in known else n
            for n in s.body
        ]
        put(b, replace(s, body=tuple(ops)))
        return s.results

    return rewrite(program, visit)


def _is_indexed(n: Node) -> bool:
    """Whether it reads or writes at an index from data."""
    return isinstance(n, Op) and view_name(n) == "dynamic_index"


def _address(body: Block, n: Node, facts: tuple[Dim, ...]) -> Dim | None:
    if not isinstance(n, Op) or not _is_indexed(n) or not in_range(body, n, facts):
        return None
    at = polynomial(body, n.operands[-1])
    rest = None if at is None else substitute_dim(at, {index_name(body): 0})
    return at if rest is not None and is_size(rest) else None


__all__ = [
    "all_users",
    "is_reversed",
    "is_whole",
    "known_addresses",
    "put",
    "rename",
    "to_seq",
    "to_stack",
]
