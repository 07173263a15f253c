"""The kinds of attributes by name, and the literals that a text may have for each.

A row's `types` checks how an attribute fits the operands; that it is a number, a size or a pair of
numbers at all is checked here, so that no row, rewrite or kernel has to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ir.messages import is_shown
from ir.opdef import OPS, ShapeError
from ir.types import Dim, DType, Size, Type

Kind = Callable[[Any], bool]
#: the most for what counts pixels, taps or groups
SMALL = 1 << 31


def is_integer(x: object) -> bool:
    return type(x) is int and -(1 << 63) <= x < 1 << 63


def is_number(x: object) -> bool:
    return type(x) in (bool, float) or is_integer(x)


def is_dim(x: object) -> bool:
    """An integer, or a polynomial of sizes with such factors."""
    if not isinstance(x, Size):
        return is_integer(x)
    return all(is_integer(k) for _, k in x.terms) and all(is_dim(q.numerator) for q in x.quotients)


def _is_flag(x: object) -> bool:
    return type(x) is bool


def _is_text(x: object) -> bool:
    return type(x) is str


def _is_dtype(x: object) -> bool:
    return isinstance(x, DType)


def _is_bound(x: object) -> bool:
    return x is None or is_number(x)


def _is_count(x: object) -> bool:
    return type(x) is int and 0 < x < SMALL


def _is_margin(x: Dim) -> bool:
    return is_dim(x) and (isinstance(x, Size) or abs(x) < SMALL)


def _many(kind: Kind, length: int | None = None) -> Kind:
    def test(x: Any) -> bool:
        sized = isinstance(x, (tuple, list)) and (length is None or len(x) == length)
        return sized and all(map(kind, x))

    return test


_PAIR = _many(_is_count, 2)
#: an attribute's kind by its name, or by `op.name` where an op, or the view that it stores through,
#: has another one
KINDS: dict[str, Kind] = {
    **dict.fromkeys(
        ("axis", "axis1", "axis2", "begin_norm_axis", "diagonal", "moves", "padding_idx", "site"),
        is_integer,
    ),
    **dict.fromkeys(("alpha", "beta", "bias", "epsilon", "negative_slope", "offset"), is_number),
    **dict.fromkeys(("factor", "scale", "slope", "start", "step", "threshold", "value"), is_number),
    **dict.fromkeys(("approximate", "bias_after_scale", "doubled", "inverse", "keepdim"), _is_flag),
    **dict.fromkeys(("largest", "own", "stable", "trans_x", "trans_y"), _is_flag),
    **dict.fromkeys(("combine", "error", "into", "kind", "message"), _is_text),
    **dict.fromkeys(("index", "length", "n"), is_dim),
    **dict.fromkeys(("sections", "shape", "strides"), _many(is_dim)),
    **dict.fromkeys(("axes", "perm"), _many(is_integer)),
    **dict.fromkeys(("dilation", "pixels", "stride", "taps"), _PAIR),
    **dict.fromkeys(("count", "groups", "size"), _is_count),
    "order.count": is_integer,
    **dict.fromkeys(("max", "min"), _is_bound),
    "dtype": _is_dtype,
    "shown": _many(is_shown),
    "padding": _many(_many(_is_margin, 2), 2),
    "slice.start": is_dim,
    "slice.step": is_integer,
    "strided.offset": is_dim,
    "diagonal.offset": is_integer,
    "unfold.step": _is_count,
    "foreign.args": lambda x: True,
    "foreign.call": _is_text,
    "foreign.types": _many(lambda x: isinstance(x, Type)),
    "foreign.writes": _many(is_integer),
}


def kind_of(op: str, name: str) -> Kind | None:
    """The kind of an attribute of an op."""
    part = OPS[op].through if op in OPS else None
    return KINDS.get(f"{part.view if part else op}.{name}") or KINDS.get(name)


def check_attrs(op: str, attrs: Mapping[str, Any]) -> None:
    """Raises ShapeError for an attribute that is of another kind than the op takes."""
    for name, value in attrs.items():
        kind = kind_of(op, name)
        if kind is None or not kind(value):
            raise ShapeError(f"{op}: the attribute {name} cannot be {value!r:.80}")
    if op == "full" and not _holds(attrs["dtype"], attrs["value"]):
        raise ShapeError(f"full: {attrs['dtype']} has no number {attrs['value']!r}")


def _holds(dtype: DType, value: float) -> bool:
    if dtype.kind not in "iu":
        return True
    low = 0 if dtype.kind == "u" else -(1 << (dtype.bits - 1))
    return low <= value < low + (1 << dtype.bits)


__all__ = ["KINDS", "check_attrs", "is_dim", "is_integer", "is_number", "kind_of"]
