"""Integers of a block as polynomials of sizes and of the indices of the loops around.

Expressions are made of full, size, add, subtract, multiply, neg and scale on one number; what const
ports bring in is followed outwards. A carry that iterations move by a number is an induction
variable:

    carry %i = %0 then %i2        %i2 = scale(%i, bias=1.0):  %i is t, %i2 is t + 1

The name of an index is that of the size that it is. Where it is none, it is `#` and the depth of
the loop, and no type or attribute may name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ir.analysis.ranges import Ranges, is_inside, names_in
from ir.program import Carry, Node, Op, Program, Scan, Value
from ir.rewrite import REGIONS, Block
from ir.types import I64, Dim, Size, Type

OPS = ("add", "subtract", "multiply", "neg", "scale", "assign")
#: the value of a carry before an iteration
STATE = "#state"
#: a number that is not below this may wrap around
LARGEST = 1 << 62
#: longer chains of ops are not followed
DEEPEST = 100


def index_name(b: Block) -> str:
    """The name of the index of the loop of whose body `b` is the block."""
    assert b.scan is not None
    return b.scan.size or f"#{sum(1 for _ in _around(b))}"


def ranges_around(b: Block) -> Ranges:
    """The ranges of the indices of the loops around, the outermost first."""
    loops = [(index_name(q), q.scan) for q in _around(b)]
    return {name: (0, s.trip - 1) for name, s in reversed(loops) if s is not None}


def _around(b: Block) -> Iterator[Block]:
    """The bodies of loops around, `b` among them, the innermost first."""
    block: Block | None = b
    while block is not None:
        if block.scan is not None:
            yield block
        block = block.outer


def is_size(d: Dim) -> bool:
    """Whether every name in it is that of a size."""
    return not any(name.startswith("#") for name in names_in(d))


def polynomial(b: Block, v: Value) -> Dim | None:
    """The i64 `v` of block `b`, or None."""
    return _Polynomials().of(b, v) if v.type.dtype == I64 else None


def counted(b: Block, v: Value) -> Dim | None:
    """As `polynomial`, of one number of any type, as if it did not round."""
    return _Polynomials().of(b, v)


class _Polynomials:
    """`found`: those of one question, for it may reach a value by many ways. `state`: a carry, with
    its block, and no other value of an iteration but the index may be in an expression of it."""

    def __init__(self, state: tuple[Block, Value] | None = None) -> None:
        self.state, self.depth = state, 0
        self.found: dict[tuple[Block, Value], Dim | None] = {}

    def of(self, b: Block, v: Value) -> Dim | None:
        if (b, v) not in self.found:
            self.depth += 1
            able = self.depth <= DEEPEST and all(n == 1 for n in v.type.shape)
            d = self.computed(b, v) if able else None
            self.depth -= 1
            self.found[b, v] = None if d is None or _is_large(d) else d
        return self.found[b, v]

    def computed(self, b: Block, v: Value) -> Dim | None:
        if self.state is not None and self.state == (b, v):
            return Size.named(STATE)
        b, v = b.resolve(v)
        if b.scan is not None and v in b.scan.inner:
            return self.entering(b, b.scan, v)
        node = b.producer.get(v)
        if not isinstance(node, Op) or any(o.type.dtype != v.type.dtype for o in node.operands):
            return None
        if node.name == "full":
            return _whole(node.attrs["value"])
        if node.name == "size":
            return node.attrs["n"]  # type: ignore[no-any-return]
        if node.name not in OPS and not (node.row.views and len(node.operands) == 1):
            return None
        parts = [self.of(b, o) for o in node.operands]
        known = [d for d in parts if d is not None]
        return _result(node, known) if len(known) == len(parts) else None

    def entering(self, b: Block, s: Scan, v: Value) -> Dim | None:
        """Return the polynomial of a value that enters the body of `s`: its index, or a carry with
        a constant step."""
        if v is s.index:
            return Size.named(index_name(b))
        p = next((p for p in s.carries if p.inner is v), None)
        if p is None or b.outer is None or (self.state is not None and self.state[0] is b):
            return None
        step, first = step_of(b, p), _Polynomials().of(b.outer, p.init)
        if step is None or first is None:
            return None
        return first + Size.named(index_name(b)) * step


def in_range(b: Block, select: Op, facts: Sequence[Dim]) -> bool:
    """Whether the index of a `dynamic_index`, or of a `set_dynamic_index`, is inside of its axis
    where the loops around run."""
    x, at = select.operands[0].type, polynomial(b, select.operands[-1])
    n = x.shape[select.attrs["axis"] % x.ndim]
    return at is not None and is_inside(at, n, facts, ranges_around(b))


def step_of(body: Block, p: Carry) -> int | None:
    """By how much each iteration moves a carry, where that is a number."""
    after = _Polynomials((body, p.inner)).of(body, p.next)
    step = None if after is None else after - Size.named(STATE)
    return step if isinstance(step, int) else None


def steps(program: Program) -> dict[Value, int]:
    """The steps of all i64 carries that have one, by their values in the body."""
    out: dict[Value, int] = {}

    def visit(b: Block, node: Node) -> None:
        for body in Block.inside(node, b) if isinstance(node, REGIONS) else ():
            carries = node.carries if isinstance(node, Scan) else ()
            known = ((p.inner, step_of(body, p)) for p in carries if p.inner.type == Type(I64))
            out.update((v, step) for v, step in known if step is not None)
            for inner in body.ops:
                visit(body, inner)

    top = Block()
    for node in program.ops:
        top.append(node)
        visit(top, node)
    return out


def _whole(number: object) -> int | None:
    whole = isinstance(number, (int, float)) and float(number).is_integer()
    return int(number) if whole else None  # type: ignore[call-overload]


def _is_large(d: Dim) -> bool:
    return any(abs(k) >= LARGEST for k in ([d] if isinstance(d, int) else (k for _, k in d.terms)))


def _result(op: Op, parts: list[Dim]) -> Dim | None:
    """Of an op on these; of products, those that are linear in what is not a size."""
    x, y = parts[0], parts[-1]
    if op.name == "add":
        return x + y
    if op.name == "subtract":
        return x - y
    if op.name == "neg":
        return 0 - x
    if op.name == "multiply":
        return x * y if is_size(x) or is_size(y) else None
    if op.name == "scale":
        more = _whole(op.attrs["bias"])
        return x + more if op.attrs["scale"] == 1 and more is not None else None
    return x


__all__ = ["counted", "in_range", "index_name", "is_size", "polynomial", "steps"]
