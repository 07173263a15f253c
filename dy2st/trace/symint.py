"""Symbolic integers: named sizes and loop indices as Python integers.

A `SymInt` is a polynomial over named sizes and loop indices (an `ir.Size`; the index of a loop is a
name like `t3`). It is no subclass of `int`, because C code would read the value of one, yet it
answers `isinstance(n, int)` as the eager value does. Comparisons are decided from the range of the
indices; a comparison of named sizes is decided by typical sizes and becomes a condition of the
program. Values that are no polynomial, and comparisons that differ between iterations, are
`RuntimeScalar`s.
"""

from __future__ import annotations

import itertools
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn, TypeGuard

from dy2st.trace import scalar
from dy2st.trace.frames import TracedLoop
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.trace_state import TraceInterface
from dy2st.trace.user_stack import perform
from ir import Require, Value
from ir.analysis.affine import emitted
from ir.analysis.ranges import interval
from ir.program import ENDLESS
from ir.types import (
    LARGEST_DIVISOR,
    Dim,
    LongSize,
    Size,
    divide,
    floor_divide,
    line,
    names_in,
)

#: iterations that may run before a loop so that a comparison is the same in all others
MOST_SETTLED = 16


class SymInt:
    """An integer of the program. `dim` is its polynomial, `home` the trace that knows its names;
    `shape` is that of the tensor whose size it is, for Paddle's `x.size(0)`."""

    __slots__ = ("dim", "home", "shape")

    def __init__(
        self, dim: Size, home: TraceInterface, shape: Sequence[object] | None = None
    ) -> None:
        self.dim, self.home, self.shape = dim, home, shape

    __class__ = property(lambda self: int)  # type: ignore[assignment]

    @property
    def loops(self) -> frozenset[TracedLoop]:
        """The loops whose index this number depends on."""
        return frozenset(
            self.home.sizes.loops[n] for n in self.dim.names if n in self.home.sizes.loops
        )

    @property
    def data(self) -> bool:
        """Whether a while loop's count has a part in it."""
        return any(n in self.home.sizes.counts for n in self.dim.names)

    def __repr__(self) -> str:
        return str(self.home.sizes.text_of(self.dim))

    def __neg__(self) -> Any:
        return make(-self.dim, self.home)

    def __pos__(self) -> SymInt:
        return self

    def __invert__(self) -> object:
        return -self - 1

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __abs__(self) -> object:
        negative: object = self < 0  # type: ignore[operator]
        if scalar.is_runtime_scalar(negative):
            value = self.home.emit("abs", [self.home.index_value(self)], {})
            return scalar.make(self.home, value, self)
        return -self if negative else self

    def __divmod__(self, other: object) -> tuple[object, object]:
        return self // other, self % other

    __add__: scalar.Operator
    __sub__: scalar.Operator
    __mul__: scalar.Operator
    __floordiv__: scalar.Operator
    __mod__: scalar.Operator
    __rfloordiv__: scalar.Operator
    __rmod__: scalar.Operator
    __lt__: scalar.Operator
    __le__: scalar.Operator
    __gt__: scalar.Operator
    __ge__: scalar.Operator

    def __getattr__(self, name: str) -> NoReturn:
        raise scalar.attribute(self, name)

    def __call__(self, dim: int | None = None) -> object:
        if self.shape is None:
            raise TypeError("'int' object is not callable")
        return self.shape if dim is None else self.shape[dim]


SymInt.__name__ = SymInt.__qualname__ = "int"


def is_symint(x: object) -> TypeGuard[SymInt]:
    return type(x) is SymInt


def dim_of(x: object) -> Dim:
    """The polynomial of an int or a `SymInt`."""
    return x.dim if is_symint(x) else int(x)  # type: ignore[call-overload]


def make(dim: Dim, home: TraceInterface | None) -> Any:
    """A `SymInt`, or the plain int when no name is left. Without a home it can be printed only."""
    return SymInt(dim, home) if isinstance(dim, Size) else dim  # type: ignore[arg-type]


def _stop(name: str) -> Callable[..., NoReturn]:
    def method(self: SymInt, *args: object) -> NoReturn:
        reason, own = f"{self!r} is needed as a number ({name})", name == "hash"
        raise NeedsConcrete(reason, self.loops, own=own)

    return method


for _name in ("index", "int", "float", "hash", "str", "format", "round", "trunc", "array"):
    setattr(SymInt, f"__{_name}__", _stop(_name))


def _arithmetic(name: str, swap: bool) -> Callable[[SymInt, object], object]:
    def method(self: SymInt, other: object) -> object:
        if isinstance(other, bool) or not (is_symint(other) or type(other) is int):
            x, y = (other, self) if swap else (self, other)
            return scalar.arithmetic(self.home, scalar.ROWS[name], x, y)
        a, b = dim_of(self), dim_of(other)
        return make(getattr(operator, name)(*((b, a) if swap else (a, b))), self.home)

    return method


for _name in ("add", "sub", "mul"):
    setattr(SymInt, f"__{_name}__", _arithmetic(_name, False))
    setattr(SymInt, f"__r{_name}__", _arithmetic(_name, True))


def _division(name: str) -> Callable[[SymInt, object], object]:
    def method(self: SymInt, other: object) -> object:
        exact = divide(self.dim, dim_of(other)) if is_symint(other) or type(other) is int else None
        if exact is not None and self.home.sizes.streamed and name != "truediv":
            self.home.sizes.divided.append((self.dim, dim_of(other), self.home.where()))
        if exact is not None and name == "floordiv":
            return make(exact, self.home)
        if exact is not None and name == "mod":
            return 0
        whole = None if type(other) is not int else floored(self.home, self.dim, other)
        if whole is not None and name != "truediv":
            n = whole if name == "floordiv" else self.dim - whole * other  # type: ignore[operator]
            return make(n, self.home)
        return scalar.arithmetic(self.home, scalar.ROWS[name], self, other)

    return method


def floored(home: TraceInterface, dim: Dim, by: int) -> Dim | None:
    """`dim // by` as a size, if that is one: of sizes of the arguments by a positive number."""
    given = names_in(dim) <= home.sizes.hints.keys() and not home.sizes.streamed
    if not given or not 0 < by < LARGEST_DIVISOR:
        return None
    try:
        return floor_divide(dim, by)
    except LongSize:
        return None


def _reversed(name: str) -> Callable[[SymInt, object], object]:
    return lambda self, other: scalar.arithmetic(self.home, scalar.ROWS[name], other, self)


def _power(self: SymInt, other: object) -> object:
    if type(other) is int and 0 <= other <= 4:
        out: Any = 1
        for _ in range(other):
            out = self * out
        return out
    return scalar.arithmetic(self.home, "pow", self, other)


def _bits(name: str) -> Callable[[SymInt, object], object]:
    return lambda self, other: scalar.bits(self.home, name, self, other)


def _no_operator(name: str) -> Callable[[SymInt, object], NoReturn]:
    def method(self: SymInt, other: object) -> NoReturn:
        raise NeedsConcrete(f"{self!r} is needed as a number ({name})", self.loops)

    return method


for _name in ("floordiv", "mod", "truediv"):
    setattr(SymInt, f"__{_name}__", _division(_name))
for _name in ("floordiv", "mod", "truediv", "pow"):
    setattr(SymInt, f"__r{_name}__", _reversed(_name))
for _name, _method in (("pow", _power),):
    setattr(SymInt, f"__{_name}__", _method)
for _name in ("and", "or", "xor"):
    setattr(SymInt, f"__{_name}__", _bits(_name))
    setattr(SymInt, f"__r{_name}__", _bits(_name))
for _name in ("lshift", "rshift", "rlshift", "rrshift"):
    setattr(SymInt, f"__{_name}__", _no_operator(_name))


# ---------------------------------------------------------------- comparisons
def bounds(dim: Dim, home: TraceInterface, skip: int = 0) -> tuple[Dim, Dim] | None:
    """The smallest and the largest value over all iterations (from `skip` on) of the loops, and
    over all counts of the while loops that ended.

    Under path conditions, only where these hold. None when it is not known.
    """
    return interval(dim, lambda name: home.sizes.range_of(name, skip), home.path_conditions())


def decided(op: str, low: Dim, high: Dim, home: TraceInterface) -> bool | None:
    """`n op 0` for every n in [low, high]; named sizes are taken as typical, capacities as any."""
    (a, _), (_, b) = home.sizes.spread(low), home.sizes.spread(high)
    if op in ("eq", "ne"):
        known = True if a == b == 0 else False if not a <= 0 <= b else None
        return known if op == "eq" or known is None else not known
    f = getattr(operator, op)
    return bool(f(a, 0)) if f(a, 0) == f(b, 0) else None


def settles(op: str, gap: Dim, home: TraceInterface) -> int:
    """Return the number of iterations after which a comparison with zero is constant; 0 if there is
    none, or it is large."""
    loops = [home.sizes.loops[n] for n in names_in(gap) if n in home.sizes.loops]
    if len(loops) != 1:
        return 0
    most = home.sizes.settle(loops[0].trip) // 2 if isinstance(loops[0].trip, Size) else ENDLESS
    for k in range(1, min(MOST_SETTLED, most) + 1):
        ends = bounds(gap, home, skip=k)
        if ends is None:
            return 0
        if decided(op, *ends, home) is not None:
            return k
    return 0


def turns(op: str, gap: Size, loop: TracedLoop) -> set[int]:
    """The first iteration in which a comparison with zero is another, if only the index of `loop`
    decides it."""
    start, step = line(gap, loop.name) or (0, 0)
    if gap.names != {loop.name} or not isinstance(loop.trip, int) or step == 0:
        return set()

    def holds(i: int) -> bool:
        return bool(getattr(operator, op)(start + step * i, 0))

    zero = -start // step  # type: ignore[operator]
    near = (i for i in (zero, zero + 1) if 0 < i < loop.trip and holds(i) is not holds(0))
    return set(itertools.islice(near, 1))


def settled_after(test: scalar.RuntimeScalar) -> int:
    """`settles` for a condition that is an affine comparison."""
    facts = test.implies & test.implied
    return max((settles(op, gap, test.home) for op, gap in facts), default=0)


def _comparison(op: str) -> Callable[[SymInt, object], object]:
    def method(self: SymInt, other: object) -> object:
        if not (is_symint(other) or type(other) in (int, bool)):
            return scalar.compare(self.home, op, self, other)
        gap = self.dim - dim_of(other)
        if not isinstance(gap, Size):
            return bool(getattr(operator, op)(gap, 0))
        home = self.home
        ends = bounds(gap, home)
        known = None if ends is None else decided(op, *ends, home)
        if known is not None and ends is not None:
            if not (home.sizes.streamed and _is_shortcut(op, known, sys._getframe(1))):
                home.require_branch(op, *ends, known)
            return known
        place = _place(sys._getframe(1))
        if place in BROADCAST and op in ("lt", "gt"):
            return False
        if ends is not None and home.sizes.settle(ends[1]) < home.sizes.settle(ends[0]):
            reason = "a loop inside of this one runs no iteration for the sizes of this call"
            raise NeedsConcrete(reason, make(gap, home).loops, peel=True)
        later = bounds(gap, home, skip=1)
        peelable = any(loop.peelable for loop in make(gap, home).loops)
        if peelable and later is not None and decided(op, *later, home) is not None:
            sign = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}[op]
            reason = f"{self!r} {sign} {other!r} depends on the iteration"
            raise NeedsConcrete(reason, make(gap, home).loops, peel=True)
        if op in ("eq", "ne") and (place in EQUAL or _computes_the_same(other, place)):
            if place in EQUAL:
                right = dim_of(other)
                home.add_require(Require(self.dim, "==", right, place[1], home.where()))
            return (op == "eq") is (place in EQUAL)
        return affine_comparison(home, op, gap, self, other)

    return method


def note_measured(home: TraceInterface, ends: Iterable[object], n: Dim) -> None:
    """A slice of a stream whose end is a size: that of another tensor, perhaps, which is not as
    long for every sequence."""
    sizes = home.sizes
    named = [q for q in ends if is_symint(q)]
    if sizes.streamed and isinstance(n, Size) and any(not q.loops for q in named):  # type: ignore[attr-defined]
        sizes.measured.append(home.where())


#: functions of Paddle that ask if a size is some number and compute the same if it is:
#: `if new_shape == x.shape: out = x`
SAME_IF_EQUAL = frozenset(
    (
        ("paddle.tensor.manipulation", "reshape"),
        ("paddle.nn.functional.sdpa", "scaled_dot_product_attention"),
    )
)
#: those that compare sizes, and use what they find for tensors without elements only
SAME = frozenset((("paddle.nn.functional.common", "_interpolate_wrapper"),))
#: those that ask if there is no element, and compute the same if there is none
SAME_IF_EMPTY = frozenset(
    (
        ("paddle.nn.functional.loss", "cross_entropy"),
        ("paddle.tensor.manipulation", "scatter_nd_add"),
        ("paddle.tensor.manipulation", "take_along_axis"),
        ("paddle.tensor.manipulation", "unique"),
        ("paddle.tensor.manipulation", "unique_consecutive"),
        ("paddle.tensor.math", "outer"),
        ("paddle.tensor.stat", "var"),
    )
)
#: those that ask which of two sizes is the larger one along each axis, and need it only where a
#: tensor is expanded to it, which fails for a size that is not equal to the other one or 1
BROADCAST = frozenset(
    ("paddle.tensor.manipulation", name) for name in ("take_along_axis", "infer_broadcast_shape")
)
#: those that raise unless two sizes are equal
EQUAL = frozenset(
    ("paddle.nn.functional.loss", name)
    for name in "cosine_embedding_loss multi_label_soft_margin_loss poisson_nll_loss "
    "soft_margin_loss triplet_margin_loss triplet_margin_with_distance_loss".split()
)


def _is_shortcut(op: str, known: bool, caller: FrameType) -> bool:
    """Whether sizes are compared by code that computes the same either way."""
    place = _place(caller)
    differs = known == (op == "ne") and op in ("eq", "ne")
    return place in SAME or differs and place in SAME_IF_EQUAL


def _computes_the_same(number: object, place: tuple[object, str]) -> bool:
    """Whether a size that data decides is compared by code that does not need the answer."""
    return place in SAME_IF_EQUAL or number == 0 and place in SAME_IF_EMPTY


def _place(caller: FrameType) -> tuple[object, str]:
    """The module and the name of a function that is running."""
    return caller.f_globals.get("__name__"), caller.f_code.co_name


def affine_comparison(
    home: TraceInterface, op: str, gap: Size, x: object, y: object
) -> scalar.RuntimeScalar:
    """A comparison that differs between iterations."""
    n = scalar.compare(home, op, x, y)
    for loop in make(gap, home).loops:
        loop.settles = max(loop.settles, settles(op, gap, home))
        loop.turns |= turns(op, gap, loop)
        loop.compared.add((op, gap))
    known = frozenset([(op, gap)])
    return scalar.RuntimeScalar(n.value, home, n.loops, n.data, known, known)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(SymInt, f"__{_name}__", _comparison(_name))


# ---------------------------------------------------------------- values
def dim_value(home: TraceInterface, dim: Dim) -> Value:
    """The i64[] value of a number, once per frame."""
    frame, loops = home.frame, home.sizes.loops
    if dim not in frame.indices:
        indices = {n: loops[n].index for n in names_in(dim) if n in loops}
        frame.indices[dim] = home.read_value(emitted(dim, indices, home.emit, frame.indices))
    return frame.indices[dim]


class SymRange:
    """`range` over numbers of the program: the step is a plain int."""

    def __init__(self, start: Any, stop: Any, step: int) -> None:
        self.start, self.stop, self.step = start, stop, step

    @property
    def trip(self) -> Dim:
        """Iterations, assuming that the range does not run backwards."""
        found = self._steps()
        if found is None:
            raise NeedsConcrete(f"range with step {self.step}", self.loops)
        return found

    def _steps(self) -> Dim | None:
        gap = (dim_of(self.stop) - dim_of(self.start)) * (1 if self.step > 0 else -1)
        exact = divide(gap, abs(self.step))
        if exact is not None:
            return exact
        (home, *_) = [q.home for q in (self.start, self.stop) if is_symint(q)]
        return floored(home, gap + (abs(self.step) - 1), abs(self.step))

    @property
    def divides(self) -> bool:
        """Whether the number of iterations is a size."""
        return self._steps() is not None

    @property
    def loops(self) -> frozenset[TracedLoop]:
        found = [q.loops for q in (self.start, self.stop) if is_symint(q)]
        return frozenset().union(*found)

    def __iter__(self) -> Iterator[object]:
        n = self.trip
        if isinstance(n, Size):
            raise NeedsConcrete(f"{self!r} is iterated outside of a for statement", self.loops)
        return (self.start + i * self.step for i in range(n))

    def __len__(self) -> NoReturn:
        raise NeedsConcrete(f"the length of {self!r}", self.loops)

    def __getitem__(self, i: object) -> NoReturn:
        raise NeedsConcrete(f"an element of {self!r}", self.loops)

    def __repr__(self) -> str:
        return f"range({self.start!r}, {self.stop!r}, {self.step})"


SymRange.__name__ = SymRange.__qualname__ = "range"


def range_(*args: Any) -> object:
    """`range` for converted code."""
    if not any(is_symint(a) for a in args):
        return perform(range, *args)
    full = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    start, stop, step = full
    if is_symint(step) or type(step) is not int or step == 0:
        raise NeedsConcrete("range with a step that is not a plain number", ())
    return SymRange(start, stop, step)
