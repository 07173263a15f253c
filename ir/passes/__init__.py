"""The pass pipeline: the passes over a captured program, in order, with a reason for each.

A pass is a function Program -> Program. A contributor adds one function and one line here.
`DUMP=<pass>` (or `all`) in the environment prints the program after that pass to stderr;
`DY2ST_CHECK=1` verifies it after every pass, as the tests do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from typing import TypeAlias

from ir.loc import VerifyError
from ir.passes.expansion import expand
from ir.passes.functionalization import functionalize
from ir.passes.fusion import fuse
from ir.passes.if_conversion import select_cond
from ir.passes.interchange import interchange_loops
from ir.passes.loops.fission import split_loops
from ir.passes.loops.inner_invariants import hoist_from_inner_loops
from ir.passes.loops.invariant_ports import invariant_ports
from ir.passes.loops.joined_carries import join_carries
from ir.passes.loops.known_trips import known_trips
from ir.passes.loops.loop_batching import hoist_from_scan
from ir.passes.loops.loop_fusion import fuse_loops
from ir.passes.loops.loop_invariants import hoist_invariants
from ir.passes.loops.ports import drop_unused_ports
from ir.passes.loops.read_stacks import last_k_steps, last_steps, sums_in_loops
from ir.passes.loops.slices_to_ports import known_addresses, to_seq, to_stack
from ir.passes.simplification import simplify, simplify_apart
from ir.passes.slots import inplace_source, unmarked
from ir.passes.unrolling import unroll_loops
from ir.program import Program
from ir.verifier import verify

Pass: TypeAlias = Callable[[Program], Program]

PIPELINE: list[tuple[Pass, str]] = [
    (functionalize, "after this no op writes; what goes back is listed on the program"),
    (simplify_apart, "views derived twice and dead ones go before anything looks at loops"),
    (known_trips, "loops that count to a number are scans: what follows knows how long they run"),
    (drop_unused_ports, "carries that never change become const ports, which to_seq looks for"),
    (hoist_invariants, "indices and views that are the same in every iteration become visible"),
    (to_seq, "slices by the index become seq ports: now it shows what an iteration reads"),
    (to_stack, "buffers filled slice by slice become stack ports: no carry of size T is copied"),
    (join_carries, "states of layers that an inner loop reads and makes are one tensor"),
    (hoist_from_inner_loops, "products of each layer that all steps share leave both loops"),
    (last_steps, "results of which only the last step is read are no residuals of a gradient"),
    (drop_unused_ports, "buffers and indices that nothing reads any more go before gradients"),
    (inplace_source, "outputs that are the storage of an input: no copy, and one name for it"),
    (expand, "primitive ops only from here: hoisting and fusion see inside of composites"),
    (simplify, "what expansion made twice is made once"),
    (invariant_ports, "what every iteration reads alike, gradients of sums above all, is known"),
    (hoist_invariants, "parts of composites that read only weights leave the loop"),
    (select_cond, "branches of a few elementwise ops become ops that fuse with those around them"),
    (sums_in_loops, "sums over time need no memory for the steps; gradients are behind us"),
    (last_k_steps, "of what a loop collects, only the steps that are read have memory"),
    (
        interchange_loops,
        "weights of layers are read by one step after the other, not by each again",
    ),
    (split_loops, "products with weights that no state needs become products of all steps"),
    (hoist_from_scan, "matmuls of sequences become one large matmul"),
    (fuse_loops, "loops that are left and could be one share their steps, and what they read"),
    (unroll_loops, "steps that share an iteration, where the user says so, fuse with each other"),
    (known_addresses, "indices that loops decide are parts of addresses, so nothing computes them"),
    (drop_unused_ports, "slices that hoisting left unread go, loops that became empty too"),
    (simplify, "reshapes that hoisting added meet those that were there"),
    (fuse, "last: what elementwise work is left becomes kernels"),
]
REQUIRED = ("functionalize", "expand")


def run(
    program: Program,
    *,
    start_at: str | None = None,
    stop_before: str | None = None,
    disabled: Collection[str] = frozenset(),
    check: bool = False,
) -> Program:
    """The program after the pipeline, or after a part of it.

    Args:
        start_at, stop_before: names of passes; the part begins with, and ends before, the first
            pass of that name (`stop_before`: the first one behind the start).
        disabled: names of passes to leave out; functionalize and expand cannot be.
        check: verify the program after every pass.

    Raises ValueError for a name that is no pass, AliasError (`ir.analysis.alias`) for a write that
    cannot be followed, VerifyError naming the pass for a defect of a pass.
    """
    names = [name_of(f) for f, _ in PIPELINE]
    for name in (start_at, stop_before, *disabled):
        if name is not None and name not in names:
            raise ValueError(f"no pass is called {name!r}; there are {', '.join(names)}")
    refused = set(disabled) & set(REQUIRED)
    if refused:
        raise ValueError(f"{refused.pop()} cannot be disabled: what follows relies on it")
    begin = names.index(start_at) if start_at is not None else 0
    end = names.index(stop_before, begin) if stop_before is not None else len(names)
    check = check or os.environ.get("DY2ST_CHECK", "") == "1"
    for f, _ in PIPELINE[begin:end]:
        if name_of(f) not in disabled:
            program = _applied(f, program, check)
    return program


def undistinguished(program: Program) -> Program:
    """A program of which no gradient is taken: tensors that hold the same are one."""
    return simplify(unmarked(program, ()))


def name_of(f: Pass) -> str:
    return f.__name__


def _applied(f: Pass, program: Program, check: bool) -> Program:
    out = f(program)
    if os.environ.get("DUMP") in ("all", name_of(f)):
        print(f"---- after {name_of(f)}\n{out}", file=sys.stderr)
    if check:
        try:
            verify(out)
        except VerifyError as e:
            raise VerifyError(f"after {name_of(f)}: {e}") from e
    return out


__all__ = [
    "PIPELINE",
    "Pass",
    "drop_unused_ports",
    "expand",
    "functionalize",
    "fuse",
    "fuse_loops",
    "hoist_from_inner_loops",
    "hoist_from_scan",
    "hoist_invariants",
    "inplace_source",
    "interchange_loops",
    "invariant_ports",
    "known_trips",
    "last_k_steps",
    "join_carries",
    "known_addresses",
    "last_steps",
    "name_of",
    "run",
    "select_cond",
    "simplify",
    "simplify_apart",
    "split_loops",
    "sums_in_loops",
    "to_seq",
    "to_stack",
    "undistinguished",
    "unroll_loops",
]
