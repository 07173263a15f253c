"""Types: an element type and a shape whose dims are integers or sizes.

A `Size` is a polynomial with integer coefficients over named sizes and quotients of them (`B`,
`2*T+1`, `B*T`, `((T+1)//2)`), kept in normal form, so equal sizes are equal objects to Python.
Arithmetic on dims gives an `int` whenever the names cancel. The normal form of quotients is not
unique: that `T//2 + (T+1)//2` is `T`, only a run finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

Monomial: TypeAlias = tuple[str, ...]
#: the most products that a multiplication of sizes may make
MOST_TERMS = 10_000
#: the most characters of a size in a text, and dims of a type or parentheses around a size
LONGEST_TEXT, MOST_DIMS = 512, 32
#: quotients by more than that are not sizes
LARGEST_DIVISOR = 1 << 31


@dataclass(frozen=True)
class DType:
    """An element type. `kind`: b bool, u unsigned, i signed, f float, c complex."""

    name: str
    kind: str
    bits: int

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def numpy(self) -> np.dtype:
        """The NumPy dtype; raises TypeError for types that NumPy lacks (bf16)."""
        names = {"b": "bool", "u": f"uint{self.bits}", "i": f"int{self.bits}"}
        names["c"] = f"complex{self.bits}"
        return np.dtype(
            names.get(self.kind, f"float{self.bits}" if self.name != "bf16" else "bf16")
        )

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return max(1, self.bits // 8)

    @property
    def storage(self) -> DType:
        """The type of what lies in memory: a bool is a byte there."""
        return U8 if self.kind == "b" else self

    @property
    def compute(self) -> DType:
        """The type that kernels compute in: floats of 16 bits are widened when they are loaded and
        rounded when they are stored; complex numbers are pairs of floats (`ir.pairs`)."""
        if self.kind == "c":
            return F32 if self.bits == 64 else F64
        return F32 if self.kind == "f" and self.bits == 16 else self

    @property
    def differentiable(self) -> bool:
        """Whether tensors of this type have gradients."""
        return self.kind in "fc"

    @property
    def widened(self) -> bool:
        """Whether kernels compute in another type; rows and adapters refuse such operands yet."""
        return self.compute != self


BOOL = DType("bool", "b", 8)
U8, I8, I16 = DType("u8", "u", 8), DType("i8", "i", 8), DType("i16", "i", 16)
I32, I64 = DType("i32", "i", 32), DType("i64", "i", 64)
F16, BF16 = DType("f16", "f", 16), DType("bf16", "f", 16)
F32, F64 = DType("f32", "f", 32), DType("f64", "f", 64)
#: complex numbers: only while a function is recorded, never in a program (`ir.pairs`)
C64, C128 = DType("c64", "c", 64), DType("c128", "c", 128)
DTYPES = {d.name: d for d in (BOOL, U8, I8, I16, I32, I64, F16, BF16, F32, F64)}
FLOATS = (F32, F64)


def dtype_of(numpy_dtype: np.dtype | type | str) -> DType:
    """The DType of a NumPy dtype; raises TypeError where there is none."""
    want = np.dtype(numpy_dtype)
    for d in (BOOL, U8, I8, I16, I32, I64, F16, F32, F64):
        if d.numpy == want:
            return d
    raise TypeError(f"no element type for {want}")


class NotANumber(TypeError):
    """A named size where Python needs a number: for an operator that gives no polynomial, an order,
    an index or a conversion."""


class LongSize(ValueError):
    """Arithmetic on sizes whose result has more terms than are written out."""


@dataclass(frozen=True)
class Size:
    """A polynomial over named sizes; `terms` are (monomial, coefficient), sorted."""

    terms: tuple[tuple[Monomial, int], ...]

    @staticmethod
    def named(name: str) -> Size:
        return Size((((name,), 1),))

    @cached_property
    def names(self) -> frozenset[str]:
        """The named sizes that must be known, those in quotients too."""
        if not self.quotients:
            return self.factors
        return frozenset(q for n in self.factors for q in names_of(n))

    @cached_property
    def factors(self) -> frozenset[str]:
        """The named sizes and the quotients that are multiplied and added."""
        return frozenset(n for m, _ in self.terms for n in m)

    @cached_property
    def quotients(self) -> tuple[Quotient, ...]:
        """The quotients among the factors."""
        found = (n for m, _ in self.terms for n in m if isinstance(n, Quotient))
        return tuple(dict.fromkeys(found))

    def __add__(self, other: Dim) -> Dim:
        return _collect([*self.terms, *_terms(other)])

    def __mul__(self, other: Dim) -> Dim:
        if len(self.terms) * len(_terms(other)) > MOST_TERMS:
            raise LongSize("a size is a product of sums with too many terms")
        pairs = [(p, q) for p in self.terms for q in _terms(other)]
        return _collect((tuple(sorted(m + n)), a * b) for (m, a), (n, b) in pairs)

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1

    def __rsub__(self, other: Dim) -> Dim:
        return -self + other

    __radd__, __rmul__ = __add__, __mul__

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        """The value for given named sizes, or quotients; raises KeyError for one that is
        missing."""
        total = 0
        for names, k in self.terms:
            for n in names:
                if isinstance(n, Quotient) and n not in sizes:
                    k *= n.evaluate(sizes)
                else:
                    k *= sizes[n]
            total += k
        return total

    def substitute(self, sizes: Mapping[str, Dim]) -> Dim:
        """Replace names, or whole quotients, by dims; those that are not in `sizes` stay."""
        total: Dim = 0
        for names, k in self.terms:
            part: Dim = k
            for n in names:
                part = part * _replaced(n, sizes)
            total = total + part
        return total

    def __str__(self) -> str:
        parts: list[str] = []
        for names, k in self.terms:
            body = "*".join(names)
            text = str(k) if not names else body if abs(k) == 1 else f"{abs(k)}*{body}"
            sign = ("-" if k < 0 else "+") if parts else ("-" if k < 0 and names else "")
            parts.append(sign + (text if names else str(abs(k)) if parts else str(k)))
        return "".join(parts)

    __repr__ = __str__


def _refuses(name: str) -> Callable[..., object]:
    """A method that raises NotANumber, unless an operand is neither a number nor a size."""

    def refuse(size: Size, *others: object) -> object:
        if not all(isinstance(q, (int, float, Size)) for q in others):
            return NotImplemented
        raise NotANumber(f"{name} of {size}, which is not known before the program runs")

    return refuse


# set here, and not in the class, so that type checkers report their uses
_OPERATORS = "lt le gt ge floordiv rfloordiv truediv rtruediv mod rmod divmod rdivmod pow rpow"
for _name in (*_OPERATORS.split(), "index", "int", "float"):
    setattr(Size, f"__{_name}__", _refuses(_name))


Dim: TypeAlias = int | Size


class Quotient(str):
    """`numerator // divisor` as a name in a polynomial: its text, an expression of Python. Made by
    `floor_divide`: the factors of the numerator are not negative, so neither is its value."""

    numerator: Size
    divisor: int

    def __new__(cls, numerator: Size, divisor: int) -> Quotient:
        """Raises LongSize."""
        text = f"({numerator}//{divisor})" if _is_name(numerator) else f"(({numerator})//{divisor})"
        if len(text) > LONGEST_TEXT:
            raise LongSize("a size is a quotient with too many terms")
        made = super().__new__(cls, text)
        made.numerator, made.divisor = numerator, divisor
        return made

    def __getnewargs__(self) -> tuple[Size, int]:  # type: ignore[override]
        return self.numerator, self.divisor

    def evaluate(self, sizes: Mapping[str, int]) -> int:
        return self.numerator.evaluate(sizes) // self.divisor


def _is_name(d: Size) -> bool:
    return len(d.terms) == 1 and len(d.terms[0][0]) == 1 and d.terms[0][1] == 1


def names_of(factor: str) -> frozenset[str]:
    """The named sizes in a factor of a monomial: the name, or those in the quotient."""
    return factor.numerator.names if isinstance(factor, Quotient) else frozenset((factor,))


def rests_on(m: Monomial, name: str) -> bool:
    """Whether a named size, or a whole quotient, is a factor of a monomial, or in one."""
    return any(name == n or name in names_of(n) for n in m)


def _replaced(factor: str, sizes: Mapping[str, Dim]) -> Dim:
    if factor in sizes:
        return sizes[factor]
    if isinstance(factor, Quotient) and not factor.numerator.names.isdisjoint(sizes):
        return floor_divide(factor.numerator.substitute(sizes), factor.divisor)
    return Size.named(factor)


def _terms(d: Dim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(d, Size):
        return d.terms
    return (((), int(d)),)


def _collect(terms: Iterable[tuple[Monomial, int]]) -> Dim:
    total: dict[Monomial, int] = {}
    for m, k in terms:
        total[m] = total.get(m, 0) + k
    left = sorted(((m, k) for m, k in total.items() if k), key=lambda q: (-len(q[0]), q[0]))
    if not left:
        return 0
    if len(left) == 1 and not left[0][0]:
        return left[0][1]
    return Size(tuple(left))


def evaluate_dim(d: Dim, sizes: Mapping[str, int]) -> int:
    return d.evaluate(sizes) if isinstance(d, Size) else d


def substitute_dim(d: Dim, sizes: Mapping[str, Dim]) -> Dim:
    return d.substitute(sizes) if isinstance(d, Size) else d


def names_in(d: Dim) -> frozenset[str]:
    return d.names if isinstance(d, Size) else frozenset()


def line(d: Dim, name: str) -> tuple[Dim, Dim] | None:
    """`(start, step)` with `d = start + step * name`; None where it is not linear in it."""
    if not isinstance(d, Size) or name not in d.names:
        return d, 0
    if any(names.count(name) > 1 for names, _ in d.terms):
        return None
    if any(name in q.numerator.names for q in d.quotients):
        return None
    start = substitute_dim(d, {name: 0})
    return start, substitute_dim(d, {name: 1}) - start


def slope(d: Dim, name: str) -> Dim | None:
    """By how much `d` grows with `name`; None where it is not linear in it."""
    found = line(d, name)
    return None if found is None else found[1]


def only_terms(d: Dim, keep: Callable[[Monomial, int], bool]) -> Dim:
    """The sum of some terms of `d`, chosen by their names and their factor."""
    return _collect(t for t in _terms(d) if keep(*t))


def product(dims: Iterable[Dim]) -> Dim:
    total: Dim = 1
    for d in dims:
        total = total * d
    return total


def divide(a: Dim, b: Dim) -> Dim | None:
    """The polynomial q with q * b = a and whole coefficients, else None."""
    if b == 0:
        return None
    names, k = _terms(b)[0]
    out: Dim = 0
    while a != 0:
        m, c = _terms(a)[0]
        rest = _without(m, names)
        if rest is None or c % k:
            return None
        part = _collect([(rest, c // k)])
        out, a = out + part, a - part * b
    return out


def multiple_of_name(d: Dim) -> tuple[str, int] | None:
    """`(name, k)` for a dim `k * name` with a positive k: the shape of an input says what the size
    of this name is."""
    if not isinstance(d, Size) or len(d.terms) != 1 or d.quotients:
        return None
    names, k = d.terms[0]
    return (names[0], k) if len(names) == 1 and k > 0 else None


def floor_divide(a: Dim, k: int) -> Dim:
    """`a // k` for a positive k: a polynomial as far as it goes. Raises ValueError for a quotient
    that is too long to be written."""
    if not isinstance(a, Size):
        return a // k
    whole = _collect((m, c // k) for m, c in a.terms)
    rest = _collect((m, c % k) for m, c in a.terms)
    if not isinstance(rest, Size):
        return whole
    common = math.gcd(k, *(c for m, c in rest.terms if m))
    rest, k = _collect((m, c // common) for m, c in rest.terms), k // common
    assert isinstance(rest, Size), "each factor is a multiple of the common one"
    if 2 * rest.terms[0][1] > k:  # of `-n // 4` and `(n + 3) // 4` one is the other's negative
        return whole - floor_divide(k - 1 - rest, k)
    inner = [m for m, c in rest.terms if any(isinstance(n, Quotient) for n in m)]
    if len(inner) == 1 and len(inner[0]) == 1 and dict(rest.terms)[inner[0]] == 1:
        (q,) = rest.quotients  # (n // m + r) // k is (n + r * m) // (m * k)
        if q.divisor * k < LARGEST_DIVISOR:
            flat = q.numerator + (rest - Size.named(q)) * q.divisor
            return whole + floor_divide(flat, q.divisor * k)
    return whole + Size.named(Quotient(rest, k))


def _without(m: Monomial, names: Monomial) -> Monomial | None:
    """m / names, if it is a monomial."""
    rest = list(m)
    for n in names:
        if n not in rest:
            return None
        rest.remove(n)
    return tuple(rest)


def is_natural(d: Dim) -> bool:
    """Whether `d` is 0 or more, whatever the named sizes are; those are not negative."""
    return all(k >= 0 for _, k in _terms(d))


# ---------------------------------------------------------------- types
@dataclass(frozen=True)
class Type:
    """An element type and a shape, printed `f32[B,T,8]`; `f32[]` is 0-d."""

    dtype: DType
    shape: tuple[Dim, ...] = ()

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(n for d in self.shape if isinstance(d, Size) for n in d.names)

    def with_dtype(self, dtype: DType) -> Type:
        return Type(dtype, self.shape)

    def with_shape(self, shape: Iterable[Dim]) -> Type:
        return Type(self.dtype, tuple(shape))

    def concrete(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(evaluate_dim(d, sizes) for d in self.shape)

    @cached_property
    def text(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


#: the complex type with these parts
COMPLEX = {F32: C64, F64: C128}


def pair_type(t: Type) -> Type:
    """The type of the pairs of floats that complex numbers are."""
    return Type(t.dtype.compute, (*t.shape, 2))


def complex_type(t: Type) -> Type:
    """The type of the complex numbers that pairs of floats are."""
    return Type(COMPLEX[t.dtype], t.shape[:-1])
