"""Band structure of tensors with time along two axes, such as the masks of attention.

Element (i, j) of such a tensor is about the query at frame i and the key at frame j, which is
`i - j` frames before it. A band mask hides all keys but those at `-ahead <= i - j <= back`. This is
found from the ops that make the mask, which compare the frames' numbers:

    i = iota(n=T) as [T, 1], j = iota(n=T)   affine in i and j, with a range where divided
    i - j <= 30                              False for i - j > 30
    where(mask, scores, -1e9)                -1e9 there
    exp(maximum(scores - max, -64))          0 there, for what is exp(-64) beside 1
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from ir.analysis.affine import LINEAR, combined
from ir.ops.binary import EXCHANGED
from ir.program import Op, Value
from ir.streaming.chunks import refuse
from ir.streaming.facts import mentions
from ir.types import Dim, Type, product

#: scores from here on down have no weight beside others
LOWEST_SCORE = -5000.0
#: from here on down the weight of a score counts for none: softmax raises low scores to this
LEAST_SCORE = -64.0
#: what is not a number: a score that is low enough, the same or the least of a softmax; any score
#: that is not; anything
LOW, LEAST, SCORE, ANY = "low", "least", "score", "any"
Known: TypeAlias = "float | bool | str"


@dataclass(frozen=True)
class Affine:
    """Numbers in `sum of coefs[axis] * index[axis] + [low, high]`, or the absolute values."""

    coefs: dict[int, Fraction]
    low: Fraction
    high: Fraction
    absolute: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether these are surely integers."""
        return all(q.denominator == 1 for q in (*self.coefs.values(), self.low, self.high))


@dataclass(frozen=True)
class MaskBand:
    """`past`: the value wherever i - j > the number with it; `future`: wherever j - i > the number;
    `here`: where i = j."""

    past: tuple[float, Known]
    future: tuple[float, Known]
    here: Known


MaskFact: TypeAlias = "Affine | MaskBand"


def everywhere(value: Known) -> MaskBand:
    return MaskBand((-math.inf, value), (-math.inf, value), value)


def square(t: Type) -> tuple[int, int] | None:
    """The axes of queries and keys: two that follow each other, of one length."""
    axes = [k for k, d in enumerate(t.shape) if mentions(d)]
    if len(axes) != 2 or axes[0] + 1 != axes[1] or t.shape[axes[0]] != t.shape[axes[1]]:
        return None
    return axes[0], axes[1]


class MaskAnalysis:
    """The facts of values, and how far the windows of keys reach: `windows` has the frames back and
    ahead for the length of each square that is reduced."""

    def __init__(self) -> None:
        self.facts: dict[Value, MaskFact] = {}
        self.windows: dict[Dim, tuple[int, int]] = {}

    def of(self, v: Value) -> MaskFact:
        return self.facts.get(v, everywhere(ANY if v.type.dtype.kind == "b" else SCORE))

    def visit(self, op: Op) -> None:
        xs = [self.of(v) for v in op.operands]
        for v, x in zip(op.operands, xs):
            if square(v.type) is not None:
                self._demand(op, v, x)
        if op.name == "full":
            value = op.attrs["value"]
            made: MaskFact | None = everywhere(value)
        elif op.name == "iota":
            start = Fraction(op.attrs["start"])
            made = Affine({0: Fraction(op.attrs["step"])}, start, start)
        elif op.row.may_alias:
            made = _moved(op, xs[0])
        elif op.row.kernel is not None:
            made = _elementwise(op, xs)
        else:
            made = None
        if made is not None:
            self.facts[op.results[0]] = made

    def _demand(self, op: Op, v: Value, x: MaskFact) -> None:
        """That the keys outside of a window do not matter to what sums over keys."""
        axes = square(v.type)
        assert axes is not None
        sums = op.name == "matmul" and v is op.operands[0]
        if not sums and op.name not in ("max", "sum"):
            return
        if not sums and axes[1] not in {a % v.type.ndim for a in op.attrs["axes"]}:
            return
        x = x if isinstance(x, MaskBand) else everywhere(ANY)
        for (far, value), which in ((x.past, "before"), (x.future, "behind")):
            fits = is_low(value) if op.name == "max" else value == 0 and value is not False
            if not fits or far == math.inf:
                refuse(
                    op.loc,
                    "attention to all frames",
                    f"No mask hides what is far {which} a frame.",
                    "Mask scores by the distance of frames, from `paddle.arange`, on both sides: "
                    "`paddle.where((i - j >= 0) & (i - j <= 30), scores, -1e9)`.",
                )
        if op.name == "max" and (is_low(x.here) or x.here == ANY):
            refuse(
                op.loc,
                "attention with a mask that may hide a frame from itself",
                "Where it hides all frames, eager Paddle takes the mean of the whole sequence.",
                "Let the mask of the band show each frame to itself; mask data in another way.",
            )
        back, ahead = (int(max(0, far)) for far, _ in (x.past, x.future))
        length = v.type.shape[axes[0]]
        known = self.windows.get(length, (0, 0))
        self.windows[length] = max(back, known[0]), max(ahead, known[1])


def is_low(value: Known) -> bool:
    return value == LOW or not isinstance(value, (str, bool)) and value <= LOWEST_SCORE


# ---------------------------------------------------------------- axes
def _moved(op: Op, x: MaskFact) -> MaskFact | None:
    old, new = op.operands[0].type.shape, op.results[0].type.shape
    if op.name == "transpose":
        perm = [p % len(old) for p in op.attrs["perm"]]
        if isinstance(x, Affine):
            turned_to = {perm.index(a): c for a, c in x.coefs.items()}
            return Affine(turned_to, x.low, x.high, x.absolute)
        before, after = square(op.operands[0].type), square(op.results[0].type)
        turned = before is not None and after is not None and perm[after[0]] == before[1]
        return MaskBand(x.future, x.past, x.here) if turned else x
    if op.name not in ("reshape", "expand"):
        return None
    if isinstance(x, MaskBand):
        return x
    places = {a: a + len(new) - len(old) for a in x.coefs}
    if op.name == "reshape":
        places = {a: k for a in x.coefs if (k := _place(old, new, a)) is not None}
    if len(places) < len(x.coefs):
        return None
    return Affine({places[a]: c for a, c in x.coefs.items()}, x.low, x.high, x.absolute)


def _place(old: Sequence[Dim], new: Sequence[Dim], axis: int) -> int | None:
    """Return the position of an axis after a reshape."""
    before, behind = product(old[:axis]), product(old[axis + 1 :])
    for k, d in enumerate(new):
        if d == old[axis] and product(new[:k]) == before and product(new[k + 1 :]) == behind:
            return k
    return None


# ---------------------------------------------------------------- elements
def _elementwise(op: Op, xs: Sequence[MaskFact]) -> MaskFact | None:
    ndim = op.results[0].type.ndim
    shifted = [
        Affine({a + ndim - v.type.ndim: c for a, c in x.coefs.items()}, x.low, x.high, x.absolute)
        if isinstance(x, Affine)
        else x
        for v, x in zip(op.operands, xs)
    ]
    affine = _affine(op, shifted)
    if affine is not None:
        return affine
    if op.name in COMPARED and any(isinstance(x, Affine) for x in shifted):
        return _comparison(op, shifted)
    pair = square(op.results[0].type)
    tails = [x if isinstance(x, MaskBand) else _on_diagonal(x, pair) for x in shifted]
    return MaskBand(
        _side(op, [x.past for x in tails]),
        _side(op, [x.future for x in tails]),
        value_of(op, [x.here for x in tails]),
    )


def _on_diagonal(x: Affine, pair: tuple[int, int] | None) -> MaskBand:
    """Return the facts of frame numbers of which only the value at i = j is known."""
    apart = sum(x.coefs.values()) or x.low != x.high or pair is None or set(x.coefs) - set(pair)
    here: Known = ANY if apart else float(abs(x.low) if x.absolute else x.low)
    return MaskBand((math.inf, ANY), (math.inf, ANY), here)


def _number(x: MaskFact) -> Fraction | None:
    """The number that a tensor consists of."""
    if not isinstance(x, MaskBand) or isinstance(x.here, (str, bool)) or not math.isfinite(x.here):
        return None
    same = x.past == x.future == (-math.inf, x.here)
    return Fraction(x.here) if same else None


def _line(x: MaskFact) -> Affine | None:
    if isinstance(x, Affine):
        return None if x.absolute else x
    number = _number(x)
    return None if number is None else Affine({}, number, number)


def _affine(op: Op, xs: Sequence[MaskFact]) -> Affine | None:
    """Sums, multiples and quotients of numbers of frames."""
    if not any(isinstance(x, Affine) for x in xs):
        return None
    if op.name in ("assign", "cast", "abs") and isinstance(xs[0], Affine):
        return _converted(op, xs[0])
    lines = [_line(x) for x in xs]
    known = [q for q in lines if q is not None]
    if len(known) < len(lines):
        return None
    if op.name in LINEAR:
        return combined(op, known, Lines())
    whole, by = op.results[0].type.dtype.kind == "i", known[-1]
    if op.name == "floor_divide" and whole and not by.coefs and by.low > 0:
        part = _times(known[0], 1 / by.low)
        return Affine(part.coefs, part.low - 1 + 1 / by.low, part.high)
    return None


def _converted(op: Op, x: Affine) -> Affine | None:
    """An integer is what is left of a number without its fraction."""
    old, new = op.operands[0].type.dtype.kind, op.results[0].type.dtype.kind
    if new == "b":
        return None
    cut = int(old == "f" and new != "f" and not x.is_whole)
    return Affine(x.coefs, x.low - cut, x.high + cut, x.absolute or op.name == "abs")


class Lines:
    """The algebra of these forms, of which a product has one factor that is a number."""

    def number(self, k: Fraction) -> Affine | None:
        return Affine({}, k, k)

    def plus(self, x: Affine, y: Affine) -> Affine:
        axes = x.coefs.keys() | y.coefs.keys()
        coefs = {a: x.coefs.get(a, Fraction(0)) + y.coefs.get(a, Fraction(0)) for a in axes}
        return Affine({a: c for a, c in coefs.items() if c}, x.low + y.low, x.high + y.high)

    def times(self, x: Affine, y: Affine) -> Affine | None:
        line, number = (y, x) if y.coefs else (x, y)
        return None if number.coefs or number.low != number.high else _times(line, number.low)


def _times(x: Affine, k: Fraction) -> Affine:
    low, high = sorted((x.low * k, x.high * k))
    return Affine({a: c * k for a, c in x.coefs.items()}, low, high)


#: whether a comparison with 0 holds for what is surely below it, and above it
COMPARED = {
    "less_than": (True, False),
    "less_equal": (True, False),
    "greater_than": (False, True),
    "greater_equal": (False, True),
    "equal": (False, False),
    "not_equal": (True, True),
}


def _comparison(op: Op, xs: Sequence[MaskFact]) -> MaskBand | None:
    axes, name = square(op.results[0].type), op.name
    x, y = xs
    if isinstance(y, Affine) and y.absolute:
        x, y, name = y, x, EXCHANGED[name]
    number = _number(y)
    absolute = isinstance(x, Affine) and x.absolute
    if absolute:
        assert isinstance(x, Affine)
        x = Affine(x.coefs, x.low, x.high)
        if number is None or number < 0:
            return everywhere(ANY)
    lines = _line(x), _line(y)
    if axes is None or lines[0] is None or lines[1] is None:
        return everywhere(ANY)
    gap = lines[0] if absolute else Lines().plus(lines[0], _times(lines[1], Fraction(-1)))
    c = gap.coefs.get(axes[0], Fraction(0))
    if not c or gap.coefs != {axes[0]: c, axes[1]: -c}:
        return everywhere(ANY)
    below, above = COMPARED[name]
    bound = number if absolute and number is not None else Fraction(0)
    at_0 = name in ("equal", "less_equal", "greater_equal")
    rises = _beyond((bound - gap.low) / abs(c), above, at_0)
    falls = _beyond((gap.high + bound) / abs(c), above if absolute else below, at_0)
    past, future = (rises, falls) if c > 0 else (falls, rises)
    low, high = gap.low, gap.high
    if op.operands[0].type.dtype.kind == "i":
        low, high = Fraction(math.ceil(low)), Fraction(math.floor(high))
    here: Known = ANY
    if low == high:
        value = (abs(low) if absolute else low) - bound
        here = at_0 if value == 0 else below if value < 0 else above
    return MaskBand(past, future, here)


def _beyond(place: Fraction, value: bool, at_place: bool) -> tuple[float, Known]:
    """The last frame before a comparison is surely `value`."""
    return math.ceil(place) - 1 if value is at_place else math.floor(place), value


def _side(op: Op, xs: Sequence[tuple[float, Known]]) -> tuple[float, Known]:
    """The nearest place beyond which the result is known, and its value there."""
    found: tuple[float, Known] = (math.inf, ANY)
    for reach in sorted({at for at, _ in xs}):
        values = [value if at <= reach else ANY for at, value in xs]
        found = reach, value_of(op, values)
        if not isinstance(found[1], str) or found[1] in (LOW, LEAST):
            break
    return found


def value_of(op: Op, xs: Sequence[Known]) -> Known:
    """The result of an op on elements with these known values."""
    if all(not isinstance(x, str) for x in xs):
        return _computed(op, xs)
    name = op.name
    if name == "where":
        if isinstance(xs[0], bool):
            return xs[1] if xs[0] else xs[2]
        return xs[1] if xs[1] == xs[2] else ANY
    if name in ("logical_and", "logical_or", "bitwise_and", "bitwise_or"):
        settled = name.endswith("or")
        return settled if any(x is settled for x in xs) else ANY
    low, moderate = [is_low(x) for x in xs], [_is_moderate(x) for x in xs]
    if name in ("add", "subtract") and xs[1] != ANY and xs[0] != ANY:
        second = is_high(xs[1]) if name == "subtract" else low[1]
        if (low[0] and (moderate[1] or second)) or (second and moderate[0]):
            return LOW
    if name == "maximum" and low[0] and not isinstance(xs[1], str) and xs[1] <= LEAST_SCORE:
        return LEAST
    if name == "exp" and (low[0] or xs[0] == LEAST):
        return 0.0
    if name in ("multiply", "divide") and xs[0] == 0 and xs[1] == SCORE:
        return 0.0
    if name == "multiply" and xs[1] == 0 and xs[0] == SCORE:
        return 0.0
    if name in ("assign", "cast") and low[0]:
        return LOW
    factor = _factor(op, xs)
    if factor is not None and not 1 / 32 <= factor <= 32:
        return ANY
    if factor is not None and low[0]:
        return LOW
    return SCORE if all(moderate) and op.results[0].type.dtype.kind == "f" else ANY


def _factor(op: Op, xs: Sequence[Known]) -> float | None:
    """The number by which the first operand is multiplied."""
    if op.name == "scale":
        return float(op.attrs["scale"]) if abs(op.attrs["bias"]) < 1 else math.inf
    if op.name in ("multiply", "divide") and not isinstance(xs[1], str) and xs[1] != 0:
        return float(xs[1]) if op.name == "multiply" else 1 / xs[1]
    return None


def _is_moderate(x: Known) -> bool:
    return x == SCORE or not isinstance(x, (str, bool)) and abs(x) < -LOWEST_SCORE


def is_high(x: Known) -> bool:
    return not isinstance(x, (str, bool)) and x >= -LOWEST_SCORE


def _computed(op: Op, xs: Sequence[Any]) -> Known:
    """By the reference of the row."""
    ref = op.row.ref
    if ref is None:
        return ANY
    with np.errstate(all="ignore"):
        arrays = [np.array(x, v.type.dtype.numpy) for x, v in zip(xs, op.operands)]
        try:
            found = np.asarray(ref(*arrays, **op.attrs)).item()
        except (ArithmeticError, TypeError):
            return ANY
    return found if isinstance(found, bool) else float(found)


__all__ = ["MaskAnalysis", "MaskBand", "square"]
