"""Index expressions that are affine in a loop's index, and the range that they stay in.

`start + step * t` with `start` a polynomial of named sizes and `step` a number is what a seq port
can read. Expressions are made of full, size, add, subtract, multiply, neg and scale on one i64;
what const ports bring in is followed outwards. A carry that iterations move by a number is one:

    carry %i = %0 then %i2        %i2 = scale(%i, bias=1.0):  %i is t, %i2 is t + 1
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ir.program import Op, Program, Scan, Value
from ir.rewrite import Block
from ir.types import I64, Dim, Size, is_natural

LARGEST_FACTOR = 4
OPS = ("add", "subtract", "multiply", "neg", "scale", "assign")


@dataclass(frozen=True)
class Affine:
    """`start + step * index`; `index` is None when step is 0."""

    start: Dim
    step: int = 0
    index: Value | None = None


def affine(b: Block, v: Value) -> Affine | None:
    """`v` of block `b` as an affine expression in the index of one enclosing loop, or None."""
    return _affine(b, v, None) if v.type.dtype == I64 else None


def counted(b: Block, v: Value) -> Affine | None:
    """As `affine`, of one number of any type, as if it had no largest value and no rounding."""
    return _affine(b, v, None)


def _affine(b: Block, v: Value, state: Value | None) -> Affine | None:
    """`state`: a carry of `b` in which, and in nothing else of an iteration, `v` is affine."""
    block, v = (b, v) if state is not None and v is state else b.resolve(v)
    if any(d != 1 for d in v.type.shape):
        return None
    if v is state:
        return Affine(0, 1, v)
    if block.scan is not None and v in block.scan.inner:
        return _port(block, block.scan, v) if state is None or block is not b else None
    node = block.producer.get(v)
    if not isinstance(node, Op) or any(o.type.dtype != v.type.dtype for o in node.operands):
        return None
    if node.name == "full":
        number = node.attrs["value"]
        return Affine(int(number)) if _is_integer(number) else None
    if node.name == "size":
        return Affine(node.attrs["n"])
    if node.row.views and len(node.operands) == 1:
        return _affine(block, node.operands[0], state if block is b else None)
    if node.name not in OPS:
        return None
    parts = [_affine(block, o, state if block is b else None) for o in node.operands]
    known = [p for p in parts if p is not None]
    return _combine(node, known) if len(known) == len(parts) else None


def _port(b: Block, s: Scan, v: Value) -> Affine | None:
    """What enters the body of `s`: its index, or a carry that moves by a number."""
    if v is s.index:
        return Affine(0, 1, v)
    p = next((p for p in s.carries if p.inner is v), None)
    if p is None or b.outer is None:
        return None
    after = _affine(b, p.next, v)
    if after is None or after.index is not v or after.step != 1 or isinstance(after.start, Size):
        return None
    first = _affine(b.outer, p.init, None)
    if first is None or first.step:
        return None
    return Affine(first.start, after.start, s.index)


def _is_integer(number: object) -> bool:
    return isinstance(number, (int, float)) and float(number).is_integer()


def _combine(op: Op, parts: list[Affine]) -> Affine | None:
    x, y = parts[0], parts[-1]
    if op.name == "assign":
        return x
    if op.name == "neg":
        return Affine(-x.start, -x.step, x.index)
    if op.name == "scale":
        factor, more = op.attrs["scale"], op.attrs["bias"]
        if factor != 1 or not _is_integer(more):
            return None
        return replace(x, start=x.start + int(more))
    if op.name == "multiply":
        x, y = (y, x) if y.step else (x, y)
        if y.step or (x.step and not isinstance(y.start, int)):
            return None
        step = x.step * y.start if isinstance(y.start, int) else 0
        return Affine(x.start * y.start, step, x.index if step else None)
    if x.index is not None and y.index is not None and x.index is not y.index:
        return None
    sign = 1 if op.name == "add" else -1
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


__all__ = ["Affine", "affine", "counted", "facts_of", "in_range", "never_negative", "stays_inside"]
