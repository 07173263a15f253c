"""The op table: one row per op, and everything about the op in its row.

`op("matmul(x, y, *, trans_x=False)", types=..., ref=..., ...)` declares a row. Operands come before
the star, attributes after it. A variadic operand is written `*xs`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ir.types import Dim, Size, Type

T = TypeVar("T")

OPS: dict[str, OpDef] = {}


class ShapeError(ValueError):
    """Operands that do not fit an op: the bare fact; a boundary adds where."""


class NotForComplex(ShapeError):
    """An op that takes real numbers only: its name."""


@dataclass(frozen=True)
class Reduction:
    """A reduction: `combine(acc, x)` from `init(dtype)`; `lift` prepares an element."""

    init: Callable[..., Any]
    combine: Callable[..., Any]
    lift: Callable[..., Any] | None = None


@dataclass(frozen=True)
class Example:
    """Operand types and attributes for the tests that are derived from a row."""

    types: tuple[str, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    low: float = -2.0
    high: float = 2.0


def _refuse(b: Any, base: Any, new: Any, *at: Any, **attrs: Any) -> Any:
    raise TypeError("the row has neither `unview` nor `inverse`")


@dataclass(frozen=True)
class ViewRule:
    """The view semantics of an op: the elements of its first operand that it shows. `at` are its
    other operands: indices.

    layout: `layout(x, *at, **attrs)` is the layout of the result, from that of the operand
        (`ir.layout`); None where the result may be a copy, which `copies` says can be.
    python: `python(x, *at, **attrs)` makes the view of an array-like `x`: by indexing, or by a
        method that is spelled as Paddle's tensors spell it.
    unview: `unview(b, base, new, *at, **attrs)` is the base after `new` was written through the
        view, mostly `stored_by` an op.
    inverse: of a view of all elements, `inverse(x, **attrs)` are the attributes of the same op that
        make the operand, of type `x`, of the result; `unview` follows from it.
    overlaps: `overlaps(y, **attrs)`: whether two elements of the result may be one in memory,
        though no two of the operand are.
    static: `static(*at, **attrs)`: the name and the attributes of the view with these numbers as
        indices.
    """

    layout: Callable[..., Any]
    python: Callable[..., Any]
    unview: Callable[..., Any] = _refuse
    inverse: Callable[..., dict[str, Any]] | None = None
    overlaps: Callable[..., bool] = lambda y, **attrs: False
    static: Callable[..., tuple[str, dict[str, Any]]] | None = None
    copies: bool = False


@dataclass(frozen=True)
class Part:
    """The view of operand 0 through which operand 1 is stored, an indexed one with the operands
    that follow. `attrs(attrs, shape)`: its attributes, from those of the row and the shape of
    operand 1."""

    view: str
    attrs: Callable[[dict[str, Any], Sequence[Dim]], dict[str, Any]]


def stored_by(name: str) -> Callable[..., Any]:
    """The `unview` of a view through which the op of this name stores."""

    def unview(b: Any, base: Any, new: Any, *at: Any, **attrs: Any) -> Any:
        own = {k: v for k, v in attrs.items() if k in OPS[name].attrs}
        return b.emit(name, (base, new, *at), own)[0]

    return unview


def undone_by(name: str, inverse: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """The `unview` of a view of all elements: the view of the other direction."""

    def unview(b: Any, base: Any, new: Any, **attrs: Any) -> Any:
        return b.emit(name, (new,), inverse(base.type, **attrs))[0]

    return unview


def example(*types: str, low: float = -2.0, high: float = 2.0, **attrs: Any) -> Example:
    return Example(types, attrs, low, high)


@dataclass(frozen=True)
class OpDef:
    """One row.

    name, operands, variadic, attrs: the signature; `attrs` maps a name to its default.
    types: operand types and attributes -> the result type, or a tuple of them.
    ref: the same on NumPy arrays.
    kernel: the op on scalars (`ir.scalar.language`): elementwise with broadcasting.
    reduce: a reduction over the attribute `axes`.
    expand: the op in terms of smaller ops, on a builder.
    grad: `grad(b, g, y, *operands, **attrs)` emits the gradient of each operand from that of the
        result, `g`, and may read the result `y`; `g` and `y` are tuples if there are several
        results. A gradient is a Value, None, or something with `add_to` (`ir.ops.gradients`).
        `no_gradient`: to autograd results are constants. `zero_gradient` (`ir.ops.gradients`):
        they are constant almost everywhere, and their operands have a gradient, of zeros.
        A row without it is differentiated through `expand`, or refused.
    view: the result shares the storage of operand 0.
    shares: it may do so once nothing writes any more, and the results of `split` likewise.
    writes: operand 0's storage is overwritten.
    updates: the operand whose storage the result may take over: it differs in some elements only.
    through: the part of operand 0 that operand 1 is stored into.
    joins: the result consists of the operands, one after the other.
    selects: the operands of which every element of the result is one, where none of the above
        says so.
    checks: it may raise when it runs: its operands hold indices or conditions.
    divides: it may raise for integers: operand 1 holds divisors.
    effect: runs in program order and is never dropped, merged or moved.
    pairs: `pairs(x, y, **attrs)`: the attributes of the op on pairs of floats along a last axis,
        from those on complex numbers; `x` and `y` are the types of operand 0, if there is one, and
        of the result (`ir.pairs`). A row without it refuses complex numbers.
    paddle: the `_C_ops` entry with the same operands and attributes, if there is one.
    examples: operand types and attributes for derived tests.
    """

    name: str
    operands: tuple[str, ...]
    variadic: bool
    attrs: dict[str, Any]
    types: Callable[..., Type | tuple[Type, ...]]
    ref: Callable[..., Any] | None = None
    kernel: Callable[..., Any] | None = None
    reduce: Reduction | None = None
    expand: Callable[..., Any] | None = None
    grad: Callable[..., Sequence[Any]] | None = None
    view: ViewRule | None = None
    shares: bool = False
    writes: bool = False
    updates: str = ""
    through: Part | None = None
    joins: bool = False
    selects: tuple[str, ...] = ()
    checks: bool = False
    divides: bool = False
    effect: bool = False
    pairs: Callable[..., dict[str, Any]] | None = None
    paddle: str | None = None
    examples: tuple[Example, ...] = ()

    def result_types(self, types: Sequence[Type], attrs: dict[str, Any]) -> tuple[Type, ...]:
        """Raises ShapeError when the operands do not fit."""
        fixed = len(self.operands) - self.variadic
        if len(types) < fixed or len(types) > fixed and not self.variadic:
            raise ShapeError(f"{self.name} takes {fixed} operands, not {len(types)}")
        if self.pairs is None and any(t.dtype.kind == "c" for t in types):
            raise NotForComplex(attrs.get("call", self.name))
        out = self.types(*types, **attrs)
        results = out if isinstance(out, tuple) else (out,)
        if any(t.dtype.kind == "c" for t in (*types, *results)):
            self.paired(types, results, attrs)
        return results

    def paired(
        self, types: Sequence[Type], results: Sequence[Type], attrs: dict[str, Any]
    ) -> dict[str, Any]:
        """The attributes on pairs of floats; raises NotForComplex for a row without `pairs`."""
        if self.pairs is None:
            raise NotForComplex(attrs.get("call", self.name))
        return self.pairs((*types, *results)[0], results[0] if results else None, **attrs)

    @property
    def views(self) -> bool:
        return self.view is not None

    @property
    def shows_all(self) -> bool:
        """Whether it is a view of all elements of its operand, in another order or shape."""
        return self.view is not None and self.view.inverse is not None

    @property
    def is_address(self) -> bool:
        """Whether it only says where elements lie: a view that is never a copy."""
        return self.view is not None and not self.view.copies

    @property
    def moves_only(self) -> bool:
        """Whether each element of a result is one of an operand, and attributes say which."""
        return self.joins or len(self.operands) == 1 and bool(self.sources(self.operands))

    @property
    def is_constant(self) -> bool:
        """Whether attributes alone say what it makes."""
        return not self.operands and not self.effect

    @property
    def may_alias(self) -> bool:
        """Whether results may be strided views of operand 0 once nothing writes any more."""
        return self.views or self.shares

    def may_raise(self, results: Sequence[Type]) -> bool:
        """Whether it may raise on its data when it runs."""
        return self.checks or (self.divides and any(t.dtype.kind != "f" for t in results))

    def sources(self, operands: Sequence[T]) -> Sequence[T]:
        """The operands of which every element of the results is one; empty if it computes."""
        if self.joins:
            return operands
        if self.through:
            return operands[:2]
        if self.may_alias:
            return operands[:1]
        return [q for n, q in zip(self.operands, operands) if n in self.selects]


def view_rule(name: str) -> ViewRule:
    """Return the view rule of a row; raises TypeError for a row that is not a view."""
    rule = OPS[name].view
    if rule is None:
        raise TypeError(f"{name} is not a view")
    return rule


def no_gradient(b: Any, g: Any, y: Any, *operands: Any, **attrs: Any) -> list[None]:
    """The `grad` of a row whose results are constants to autograd."""
    return [None] * len(operands)


# ---------------------------------------------------------------- complex numbers as pairs
def unchanged(x: Type, y: Type | None, **attrs: Any) -> dict[str, Any]:
    """The `pairs` of a row whose attributes name no axis."""
    return attrs


def same_axis(x: Type, y: Type | None, *, axis: int, **attrs: Any) -> dict[str, Any]:
    """The `pairs` of a row with an axis of its operand."""
    return {**attrs, "axis": axis_in(axis, x.ndim)}


def with_pair(x: Type, y: Type, *, shape: Any) -> dict[str, Any]:
    """The `pairs` of a row with the shape of its result."""
    return {"shape": (*y.shape, 2)}


_REQUIRED = inspect.Parameter.empty


def op(signature: str, **row: Any) -> OpDef:
    """Declare a row of the table; raises ValueError for a second row of one name."""
    scope: dict[str, Any] = {}
    exec(f"def {signature}: pass", scope)  # noqa: S102  a literal of this package
    name = signature.split("(")[0]
    parameters = list(inspect.signature(scope[name]).parameters.values())
    kinds = inspect.Parameter
    positional = (kinds.POSITIONAL_OR_KEYWORD, kinds.VAR_POSITIONAL)
    operands = [p for p in parameters if p.kind in positional]
    attrs = {p.name: p.default for p in parameters if p.kind == kinds.KEYWORD_ONLY}
    if name in OPS:
        raise ValueError(f"op {name} is declared twice")
    view = row.get("view")
    if view is not None and view.inverse is not None:
        row["view"] = replace(view, unview=undone_by(name, view.inverse))
    examples = tuple(q if isinstance(q, Example) else example(*q) for q in row.pop("examples", ()))
    OPS[name] = OpDef(
        name,
        tuple(p.name for p in operands),
        any(p.kind == kinds.VAR_POSITIONAL for p in operands),
        attrs,
        examples=examples,
        **row,
    )
    return OPS[name]


def complete_attrs(row: OpDef, attrs: dict[str, Any]) -> dict[str, Any]:
    """Defaults filled in, in the row's order; raises ShapeError for unknown or missing ones."""
    full = {**row.attrs, **attrs}
    if len(full) > len(row.attrs):
        unknown = set(attrs) - set(row.attrs)
        raise ShapeError(f"{row.name} has no attribute {sorted(unknown)[0]!r}")
    for k, v in full.items():
        if v is _REQUIRED:
            raise ShapeError(f"{row.name} needs the attribute {k!r}")
    return full


# ---------------------------------------------------------------- conditions on named sizes
@dataclass(frozen=True)
class Assumption:
    """A condition on named sizes that a row assumed: `left == right` or `left >= right`."""

    left: Dim
    relation: str
    right: Dim


_WANTED: ContextVar[list[Assumption] | None] = ContextVar("wanted", default=None)


class collecting:
    """Collect the conditions that rows assume about named sizes."""

    def __enter__(self) -> list[Assumption]:
        out: list[Assumption] = []
        self.token = _WANTED.set(out)
        return out

    def __exit__(self, *error: object) -> None:
        _WANTED.reset(self.token)


def assume(left: Dim, relation: str, right: Dim) -> None:
    """Assume a condition: decided now for numbers (ShapeError when false), else recorded."""
    gap = left - right
    if not isinstance(gap, Size):
        if not (gap == 0 if relation == "==" else gap >= 0):
            raise ShapeError(f"{left} {relation} {right} does not hold")
        return
    wanted = _WANTED.get()
    if wanted is None:
        raise ShapeError(f"{left} {relation} {right} cannot be decided")
    wanted.append(Assumption(left, relation, right))


def same_dim(a: Dim, b: Dim) -> Dim:
    """One dim for two that must be equal; the more concrete one is kept."""
    if a == b:
        return a
    assume(a, "==", b)
    return a if isinstance(a, int) else b


def broadcast_dim(a: Dim, b: Dim) -> Dim:
    """NumPy's rule; a named size against another size must be equal to it."""
    if a == 1:
        return b
    if b == 1:
        return a
    return same_dim(a, b)


def broadcast(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape that these shapes broadcast to; raises ShapeError."""
    ndim = max(map(len, shapes), default=0)
    out: list[Dim] = [1] * ndim
    for s in shapes:
        for i, d in enumerate(s, ndim - len(s)):
            try:
                out[i] = broadcast_dim(out[i], d)
            except ShapeError:
                text = " and ".join("[" + ", ".join(map(str, q)) + "]" for q in shapes)
                raise ShapeError(f"shapes {text} do not broadcast") from None
    return tuple(out)


def axis_in(axis: int, ndim: int, name: str = "axis") -> int:
    """A non-negative axis; raises ShapeError outside [-ndim, ndim)."""
    if not -ndim <= axis < ndim:
        raise ShapeError(f"{name} {axis} is out of range for {ndim} dimensions")
    return axis % ndim
