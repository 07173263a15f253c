"""Induction variables: integers as polynomials of sizes and of the indices of enclosing loops.

Expressions are made of full, size, add, subtract, multiply, neg and scale on one number; what const
ports bring in is followed outwards. A carry that iterations move by a number is an induction
variable:

    carry %i = %0 then %i2        %i2 = scale(%i, bias=1.0):  %i is t, %i2 is t + 1

The name of an index is that of the size that it is. Where it is none, it is `#` and the depth of
the loop, and no type or attribute may name it.

What the ops of such expressions make of their operands is said once, for every algebra of linear
forms (`combined`), and so is how a polynomial becomes ops again (`emitted`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from fractions import Fraction
from typing import Any, Protocol, TypeVar

from ir.program import Carry, Const, Node, Op, Program, Scan, Value
from ir.rewrite import REGIONS, Block
from ir.types import I64, Dim, Size, Type, divide, names_in, substitute_dim

#: the ops of linear forms
LINEAR = ("add", "subtract", "multiply", "neg", "scale", "assign")
#: the value of a carry before an iteration
STATE = "#state"
#: a number that is not below this may wrap around
LARGEST = 1 << 62
#: longer chains of ops are not followed
DEEPEST = 100

F = TypeVar("F")


# ---------------------------------------------------------------- ops on linear forms
class Forms(Protocol[F]):
    """An algebra of linear forms; None is what it cannot say."""

    def number(self, k: Fraction) -> F | None: ...

    def plus(self, x: F, y: F) -> F | None: ...

    def times(self, x: F, y: F) -> F | None: ...


def combined(op: Op, parts: Sequence[F], forms: Forms[F]) -> F | None:
    """The form of an op's result, given those of its operands; None if it is not `LINEAR`."""
    if op.name == "assign":
        return parts[0]
    if op.name == "scale":
        factor, bias = _constants(op)
        number = None if factor is None else forms.number(factor)
        more = None if bias is None else forms.number(bias)
        if number is None or more is None:
            return None
        if op.attrs["bias_after_scale"]:
            return _both(forms.times(parts[0], number), more, forms.plus)
        return _both(forms.plus(parts[0], more), number, forms.times)
    if op.name in ("neg", "subtract"):
        minus = forms.number(Fraction(-1))
        taken = None if minus is None else forms.times(parts[-1], minus)
        return taken if op.name == "neg" else _both(taken, parts[0], forms.plus)
    if op.name == "add":
        return forms.plus(parts[0], parts[1])
    return forms.times(parts[0], parts[1]) if op.name == "multiply" else None


def _both(x: F | None, y: F, by: Callable[[F, F], F | None]) -> F | None:
    return None if x is None else by(x, y)


def _constants(op: Op) -> tuple[Fraction | None, ...]:
    """The two numbers of `scale`, which cuts those that an integer type does not hold."""
    numbers = [op.attrs["scale"], op.attrs["bias"]]
    whole = op.result.type.dtype.kind != "f"
    fit = (math.isfinite(k) and not (whole and k % 1) for k in numbers)
    return tuple(Fraction(k) if fits else None for k, fits in zip(numbers, fit))


class Dims:
    """Polynomials: products of those that are linear in what is not a size."""

    def number(self, k: Fraction) -> Dim | None:
        return _whole(k)

    def plus(self, x: Dim, y: Dim) -> Dim | None:
        return x + y

    def times(self, x: Dim, y: Dim) -> Dim | None:
        return x * y if is_size(x) or is_size(y) else None


DIMS = Dims()


def _whole(number: object) -> int | None:
    whole = isinstance(number, (int, float, Fraction)) and number == number // 1
    return int(number) if whole else None  # type: ignore[call-overload]


# ---------------------------------------------------------------- polynomials to ops
def emitted(
    d: Dim,
    indices: Mapping[str, Value],
    emit: Callable[[str, Sequence[Value], dict[str, Any]], Value],
    found: MutableMapping[Dim, Value] | None = None,
) -> Value:
    """The i64[] value of a polynomial, by Horner's rule for names that are values: the `indices`.
    `found`: the values that are there, and those made here."""
    found = {} if found is None else found
    if d in found:
        return found[d]
    moving = names_in(d) & indices.keys()
    quotients = d.quotients if moving and isinstance(d, Size) else ()
    q = next((q for q in quotients if moving & q.numerator.names), None)
    if q is not None:
        parts = [emitted(e, indices, emit, found) for e in (q.numerator, q.divisor)]
        alone, value = str(q), emit("floor_divide", parts, {})
        rest = substitute_dim(d, {q: Size.named(alone)})
        return emitted(rest, {**indices, alone: value}, emit, found)
    name = min(moving, default=None)
    if name is not None and d == Size.named(name):
        return indices[name]
    if name is not None:
        rest = substitute_dim(d, {name: 0})
        factor, value = divide(d - rest, Size.named(name)), indices[name]
        assert factor is not None, "each term of the rest has the index as a factor"
        if factor != 1:
            value = emit("multiply", [value, emitted(factor, indices, emit, found)], {})
        if rest != 0:
            value = emit("add", [value, emitted(rest, indices, emit, found)], {})
    elif isinstance(d, Size):
        value = emit("size", [], {"n": d})
    else:
        value = emit("full", [], {"value": d, "dtype": I64})
    found[d] = value
    return value


# ---------------------------------------------------------------- loops
def index_name(b: Block) -> str:
    """The name of the index of the loop of whose body `b` is the block."""
    assert b.scan is not None
    return b.scan.size or f"#{sum(1 for _ in loops_around(b))}"


def loops_around(b: Block) -> Iterator[tuple[Block, Scan]]:
    """The loops around, with their bodies, `b` among them, the innermost first."""
    block: Block | None = b
    while block is not None:
        if block.scan is not None:
            yield block, block.scan
        block = block.outer


def is_size(d: Dim) -> bool:
    """Whether every name in it is that of a size."""
    return not any(name.startswith("#") for name in names_in(d))


# ---------------------------------------------------------------- ops to polynomials
def polynomial(b: Block, v: Value) -> Dim | None:
    """The i64 `v` of block `b`, or None."""
    return _Polynomials().of(b, v) if v.type.dtype == I64 else None


def counted(b: Block, v: Value) -> Dim | None:
    """Like `polynomial`, for one number of any type, as if it did not round."""
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
        moves = node.row.views and len(node.operands) == 1
        if not moves and node.name not in LINEAR:
            return None
        parts = [self.of(b, o) for o in node.operands]
        known = [d for d in parts if d is not None]
        if len(known) < len(parts):
            return None
        return known[0] if moves else combined(node, known, DIMS)

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


def limit_of(s: Scan, is_one: Callable[[Value], bool]) -> Value | None:
    """The number that a `while` loop counts to, and does nothing else; None for other loops."""
    outer = {p.inner: p.outer for p in s.ports if isinstance(p, Const)}
    if s.go is None or len(s.body) != 2 or len(outer) != len(s.ports) - 1:
        return None
    after, test = s.body
    if not isinstance(after, Op) or not isinstance(test, Op) or s.go.next is not test.result:
        return None
    (i, *one), (n, *limit) = after.operands, test.operands
    counts = after.name == "add" and test.name == "less_than" and i is s.index
    if not counts or n is not after.result or one[0] not in outer or limit[0] not in outer:
        return None
    return outer[limit[0]] if is_one(outer[one[0]]) else None


def _is_large(d: Dim) -> bool:
    return any(abs(k) >= LARGEST for k in ([d] if isinstance(d, int) else (k for _, k in d.terms)))


__all__ = [
    "DIMS",
    "LINEAR",
    "Forms",
    "combined",
    "counted",
    "emitted",
    "index_name",
    "is_size",
    "limit_of",
    "loops_around",
    "polynomial",
    "steps",
]
