"""The verifier: every value is defined once and before its use, and types fit.

A size is known from the inputs, or is the `count` of a while loop and known from there to the end
of its block, or is the index of a loop and known in its body. The sizes that loops define are
unique in a program, so that a block can be inlined as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ir.attributes import check_attrs
from ir.loc import VerifyError
from ir.opdef import OPS, ShapeError, broadcast, collecting, complete_attrs
from ir.program import (
    ENDLESS,
    INPUT_KINDS,
    Carry,
    Cond,
    Const,
    Custom,
    Fused,
    Last,
    LoopCondition,
    Node,
    Op,
    Program,
    Scan,
    Seq,
    Slot,
    Stack,
    Value,
)
from ir.types import BOOL, I64, Size, Type, multiple_of_name
from ir.uses import counts, dim_names, loop_sizes


def verify(program: Program) -> Program:
    """Check every rule of the IR and return the program; raises VerifyError."""
    defined: set[Value] = set()
    for i in program.inputs:
        if i.kind not in INPUT_KINDS:
            raise VerifyError(f"input {i.name!r} has the unknown kind {i.kind!r}")
        _define(defined, [i.value], "inputs")
    dims = (multiple_of_name(d) for i in program.inputs for d in i.value.type.shape)
    plain = {found[0] for found in dims if found is not None}
    for n in program.capacities:
        if not n.isidentifier() or n in plain:
            raise VerifyError(f"the capacity {n!r} is not a name of its own")
    own = set(program.sizes) - set(program.capacities)
    for n in own:
        if n not in plain:
            raise VerifyError(f"no input has the size {n} as a dimension")
    for r in program.requires:
        if not dim_names((r.left, r.right)) <= own:
            raise VerifyError(f"require {r}: a size that no input has")
    _verify_loop_sizes(program)
    _verify_block(program.ops, defined, set(program.sizes))
    values = (v for v in program.outputs if isinstance(v, Value))
    _available(defined, values, "return")
    inputs = {i.value for i in program.inputs}
    written: set[Value] = set()
    for target, value in program.writes:
        _available(defined, [target, value], "write")
        if target not in inputs or target in written:
            raise VerifyError(f"{target!r} is written back twice or is not an input")
        if target.type != value.type:
            raise VerifyError(f"write of {value.type} to {target.type}")
        written.add(target)
    for out in program.outputs:
        if isinstance(out, Slot) and out.input not in written:
            raise VerifyError(f"slot of {out.input!r}, which is not written back")
    return program


def _verify_loop_sizes(program: Program) -> None:
    taken = set(program.sizes)
    counted = set(counts(program.ops))
    for name in loop_sizes(program.ops):
        if name in taken:
            what = "count" if name in counted else "index"
            raise VerifyError(f"the {what} {name} of a loop names another size already")
        taken.add(name)


def _define(defined: set[Value], values: Iterable[Value], where: str) -> None:
    for v in values:
        if any(isinstance(d, int) and d < 0 for d in v.type.shape):
            raise VerifyError(f"{v!r} has a negative dim")
        if v in defined:
            raise VerifyError(f"{v!r} is defined twice ({where})")
        defined.add(v)


def _available(defined: set[Value], values: Iterable[Value], where: str) -> None:
    for v in values:
        if v not in defined:
            raise VerifyError(f"{v!r} is used before it is defined ({where})")


def _verify_block(ops: Iterable[Node], defined: set[Value], sizes: set[str]) -> None:
    """`sizes` gains those that the loops of the block define."""
    for node in ops:
        _available(defined, node.operands, node.name)
        if isinstance(node, Scan):
            _verify_scan(node, sizes)
            if node.count:
                sizes.add(node.count)
        elif isinstance(node, Cond):
            _verify_cond(node, sizes)
        elif isinstance(node, Custom):
            _verify_custom(node, sizes)
        elif isinstance(node, Fused):
            _verify_fused(node, sizes)
        else:
            _verify_op(node)
            if not dim_names(tuple(node.attrs.values())) <= sizes:
                raise VerifyError(f"{node.name} uses a size that is not known there")
        for r in node.results:
            if not r.type.names <= sizes:
                raise VerifyError(f"{r!r} uses a size that is not known there")
        _define(defined, node.results, node.name)


def _verify_op(op: Op) -> None:
    if op.name not in OPS:
        raise VerifyError(f"unknown op {op.name!r}")
    try:
        attrs = complete_attrs(op.row, dict(op.attrs))
        check_attrs(op.name, attrs)
        with collecting():
            types = op.row.result_types([v.type for v in op.operands], attrs)
    except ShapeError as e:
        raise VerifyError(f"{op.name}: {e}") from e
    have = tuple(r.type for r in op.results)
    if have != types:
        raise VerifyError(f"{op.name} gives {types}, but its results are {have}")


def _verify_scan(scan: Scan, sizes: set[str]) -> None:
    if scan.index.type != Type(I64):
        raise VerifyError(f"the index of a scan is i64[], not {scan.index.type}")
    if isinstance(scan.trip, Size) and not scan.trip.names <= sizes:
        raise VerifyError(f"scan of {scan.trip}: a size that is not known there")
    if isinstance(scan.trip, int) and scan.trip < 0:
        raise VerifyError(f"scan of {scan.trip} iterations")
    if scan.unroll < 1 or scan.unroll > 1 and scan.count:
        raise VerifyError(f"a {scan.name} loop of {scan.unroll} steps in an iteration")
    if not dim_names(tuple(p.start for p in scan.ports if isinstance(p, Seq))) <= sizes:
        raise VerifyError("a seq port starts at a size that is not known there")
    _verify_go(scan)
    defined: set[Value] = set()
    _define(defined, scan.inner, "ports")
    _verify_block(scan.body, defined, {*sizes, *([scan.size] if scan.size else [])})
    _available(defined, scan.needed, "ports of a scan")
    for p in scan.ports:
        if isinstance(p, LoopCondition):
            continue
        want, have = _port_types(scan, p)
        if want != have:
            raise VerifyError(
                f"{type(p).__name__.lower()} port of {p.inner!r}: {have} is not {want}"
            )


def _verify_go(scan: Scan) -> None:
    ports = [p for p in scan.ports if isinstance(p, LoopCondition)]
    if len(ports) != (scan.count != ""):
        raise VerifyError("a while loop has one go port and a name for its count, a scan neither")
    if any(v.type != Type(BOOL) for p in ports for v in (p.init, p.next)):
        raise VerifyError("a go port is bool[]")
    if scan.trip == ENDLESS and not scan.count:
        raise VerifyError("an endless loop without a go port")
    if scan.trip == ENDLESS and scan.size:
        raise VerifyError("the index of an endless loop is not a size")
    if scan.trip == ENDLESS and any(isinstance(p, Seq) for p in scan.ports):
        raise VerifyError("a seq port in an endless loop")


def _verify_cond(cond: Cond, sizes: set[str]) -> None:
    if cond.test.type != Type(BOOL):
        raise VerifyError(f"the test of a cond is bool[], not {cond.test.type}")
    for p in cond.ins:
        if p.inner.type != p.outer.type:
            raise VerifyError(f"const port of {p.inner!r} is not {p.outer.type}")
    for block, leaving in cond.branches:
        defined: set[Value] = set()
        _define(defined, [p.inner for p in cond.ins], "cond")
        _verify_block(block, defined, set(sizes))
        _available(defined, leaving, "cond")
    for j in cond.outs:
        if not j.outer.type == j.then.type == j.orelse.type:
            raise VerifyError(f"join of {j.then!r} and {j.orelse!r} as {j.outer.type}")


def _verify_custom(custom: Custom, sizes: set[str]) -> None:
    for p in (*custom.ins, *custom.saved):
        if p.inner.type != p.outer.type:
            raise VerifyError(f"const port of {p.inner!r} is not {p.outer.type}")
    entering = [p.inner for p in custom.ins], [*custom.given, *(p.inner for p in custom.saved)]
    for (block, leaving), values in zip(custom.branches, entering):
        defined: set[Value] = set()
        _define(defined, values, "custom")
        _verify_block(block, defined, set(sizes))
        _available(defined, leaving, "custom")
    if len(custom.given) != len(custom.outs) or len(custom.grads) != len(custom.ins):
        raise VerifyError("a custom block has a gradient for each result and each operand")
    for (outer, inner), given in zip(custom.outs, custom.given):
        if not outer.type == inner.type == given.type:
            raise VerifyError(f"result {outer!r} of a custom block is {inner!r}, given {given!r}")
    for p, g in zip(custom.ins, custom.grads):
        if g is not None and g.type != p.outer.type:
            raise VerifyError(f"the gradient {g!r} of a custom block is not {p.outer.type}")


def _port_types(scan: Scan, p: Const | Seq | Carry | Stack | Last) -> tuple[Any, Any]:
    if isinstance(p, Const):
        return p.outer.type, p.inner.type
    if isinstance(p, Seq):
        shape = list(p.outer.type.shape)
        if not 0 <= p.axis < len(shape):
            raise VerifyError(f"seq port of {p.inner!r}: no axis {p.axis}")
        del shape[p.axis]
        return p.outer.type.with_shape(shape), p.inner.type
    if isinstance(p, Carry):
        last = p.last.type if p.last is not None else p.inner.type
        return (p.inner.type,) * 3, (p.init.type, p.next.type, last)
    if isinstance(p, Last):
        return p.inner.type, p.outer.type
    shape = list(p.inner.type.shape)
    if not 0 <= p.axis <= len(shape):
        raise VerifyError(f"stack port of {p.inner!r}: no axis {p.axis}")
    shape.insert(p.axis, scan.length)
    return p.inner.type.with_shape(shape), p.outer.type


def _verify_fused(fused: Fused, sizes: set[str]) -> None:
    defined: set[Value] = set()
    _define(defined, [p.inner for p in fused.ins], "fused")
    _verify_block(fused.body, defined, sizes)
    _available(defined, [v for _, v in fused.outs], "fused")
    for p in fused.ins:
        if p.inner.type != p.outer.type:
            raise VerifyError(f"fused operand {p.inner!r} is not {p.outer.type}")
    for op in fused.body:
        if not isinstance(op, Op) or op.row.kernel is None:
            raise VerifyError(f"{op.name} cannot be fused: it has no kernel")
    for outer, inner in fused.outs:
        try:
            with collecting():
                full = inner.type.with_shape(broadcast(inner.type.shape, fused.shape))
        except ShapeError as e:
            raise VerifyError(f"fused result {outer!r}: {e}") from e
        if outer.type != full or full.shape != fused.shape:
            raise VerifyError(f"fused result {outer!r} is not {full}")


__all__ = ["verify"]
