"""Index expressions that are affine in a loop's index, and the range that they stay in.

`start + step * t` with `start` a polynomial of named sizes and `step` a number is what a seq port
can read. Expressions are made of full, size, add, subtract, multiply and neg on i64[]; what const
ports bring in is followed outwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir.program import Op, Program, Scan, Value
from ir.rewrite import Block
from ir.types import I64, Dim, Type, is_natural

LARGEST_FACTOR = 4


@dataclass(frozen=True)
class Affine:
    """`start + step * index`; `index` is None when step is 0."""

    start: Dim
    step: int = 0
    index: Value | None = None


def affine(b: Block, v: Value) -> Affine | None:
    """`v` of block `b` as an affine expression in the index of one enclosing loop, or None."""
    block, v = b.resolve(v)
    if v.type != Type(I64):
        return None
    if block.scan is not None and v is block.scan.index:
        return Affine(0, 1, v)
    node = block.producer.get(v)
    if not isinstance(node, Op):
        return None
    if node.name == "full" and isinstance(node.attrs["value"], int):
        return Affine(int(node.attrs["value"]))
    if node.name == "size":
        return Affine(node.attrs["n"])
    if node.name not in ("add", "subtract", "multiply", "neg", "assign"):
        return None
    parts = [affine(block, o) for o in node.operands]
    known = [p for p in parts if p is not None]
    return _combine(node.name, known) if len(known) == len(parts) else None


def _combine(name: str, parts: list[Affine]) -> Affine | None:
    x, y = parts[0], parts[-1]
    if name == "assign":
        return x
    if name == "neg":
        return Affine(-x.start, -x.step, x.index)
    if name == "multiply":
        x, y = (y, x) if y.step else (x, y)
        if y.step or (x.step and not isinstance(y.start, int)):
            return None
        step = x.step * y.start if isinstance(y.start, int) else 0
        return Affine(x.start * y.start, step, x.index if step else None)
    if x.index is not None and y.index is not None and x.index is not y.index:
        return None
    sign = 1 if name == "add" else -1
    step = x.step + sign * y.step
    return Affine(x.start + y.start * sign, step, (x.index or y.index) if step else None)


def facts_of(program: Program) -> tuple[Dim, ...]:
    """Dims that are >= 0 because a call that breaks them is refused."""
    return tuple(r.left - r.right for r in program.requires if r.relation == ">=")


def never_negative(d: Dim, facts: tuple[Dim, ...]) -> bool:
    """Whether `d >= 0` follows from `sizes >= 0` and a multiple of one of the facts."""
    if is_natural(d):
        return True
    return any(is_natural(d - f * k) for f in facts for k in range(1, LARGEST_FACTOR + 1))


def stays_inside(at: Affine, trip: Dim, n: Dim, facts: tuple[Dim, ...]) -> bool:
    """Whether `0 <= start + step * i < n` for every i in [0, trip)."""
    facts = (*facts, trip - 1)
    ends = (at.start, at.start + (trip - 1) * at.step)
    return all(never_negative(e, facts) and never_negative(n - 1 - e, facts) for e in ends)


def in_range(b: Block, select: Op, facts: tuple[Dim, ...]) -> bool:
    """Whether the index of a select is inside of its axis whenever its loops run."""
    at = affine(b, select.operands[1])
    if at is None:
        return False
    x = select.operands[0].type
    n = x.shape[select.attrs["axis"] % x.ndim]
    if at.index is None:
        return never_negative(at.start, facts) and never_negative(n - 1 - at.start, facts)
    scan = scan_of(b, at.index)
    return scan is not None and stays_inside(at, scan.trip, n, facts)


def scan_of(b: Block, index: Value) -> Scan | None:
    """The loop around `b` (or of `b` itself) with this index."""
    block: Block | None = b
    while block is not None:
        if block.scan is not None and block.scan.index is index:
            return block.scan
        block = block.outer
    return None


__all__ = ["Affine", "affine", "facts_of", "in_range", "never_negative", "stays_inside"]
