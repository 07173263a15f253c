"""Elementwise ops of several operands: arithmetic, comparisons, logic, selection.

Operands broadcast as NumPy does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ir.scalar.exponential as fn
import ir.scalar.language as k
from ir.opdef import Example, ShapeError, broadcast, example, no_gradient, op
from ir.ops.elementwise import elementwise, require_kind, same_dtype
from ir.ops.gradients import broadcasting, fitted, masked, number
from ir.program import Builder, Value
from ir.types import BOOL, Type


def pair_examples(kinds: str, low: float = -2.0, high: float = 2.0) -> tuple[Example, ...]:
    dtypes = [d for d in ("f32", "f64", "i64", "i32", "bool") if d[0] in kinds]
    shapes = (("[3,4]", "[3,4]"), ("[3,1]", "[4]"), ("[]", "[5]"), ("[0,4]", "[4]"))
    return tuple(example(d + a, d + b, low=low, high=high) for d in dtypes for a, b in shapes)


def pair(
    name: str, kinds: str, kernel: Callable[..., Any], ref: Callable[..., Any], **row: Any
) -> None:
    low, high = row.pop("low", -2.0), row.pop("high", 2.0)
    paddle = row.pop("paddle", name)
    examples = pair_examples(kinds, low, high)
    if row.get("grad") is not None:
        row["grad"] = broadcasting(row["grad"])
    elementwise(f"{name}(x, y)", kinds, kernel, ref, paddle=paddle, examples=examples, **row)


def _logical(x: k.Scalar) -> k.Scalar:
    return k.cast(x, BOOL)


def floor_mod(x: k.Scalar, y: k.Scalar) -> k.Scalar:
    """The remainder with the sign of y, as Python's %."""
    r = x % y
    zero = k.const(0, x.dtype)
    return k.select(k.ne(r, zero) & ((r < zero) ^ (y < zero)), r + y, r)


def floor_div(x: k.Scalar, y: k.Scalar) -> k.Scalar:
    """Floats: floor(x / y), as Paddle's kernel. Integers round towards minus infinity."""
    if x.dtype.kind == "f":
        return k.floor(x / y)
    q, r = x / y, x % y
    down = k.ne(r, 0) & ((r < 0) ^ (y < 0))
    return k.select(down, q - 1, q)


def _check_divisor(x: np.ndarray, y: np.ndarray) -> None:
    """Integers cannot be divided by zero; where there is no element, nothing is divided."""
    if x.dtype.kind != "f" and not np.broadcast_arrays(x, y)[1].all():
        raise ZeroDivisionError("integer division by zero")


def _floor_div_ref(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    _check_divisor(x, y)
    out: np.ndarray = np.floor(x / y) if x.dtype.kind == "f" else x // y
    return out


def _remainder_ref(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    _check_divisor(x, y)
    out: np.ndarray = np.mod(x, y)
    return out


def _divide_grad(b: Builder, g: Value, out: Value, x: Value, y: Value) -> list[Value]:
    part = b.divide(g, y)
    return [part, b.neg(b.multiply(part, out))]


def _remainder_grad(b: Builder, g: Value, out: Value, x: Value, y: Value) -> list[Value]:
    integral = x.type.dtype.kind != "f"
    quotient = b.floor_divide(x, y) if integral else b.floor(b.divide(x, y))
    return [g, b.neg(b.multiply(g, quotient))]


def _pow_grad(b: Builder, g: Value, out: Value, x: Value, y: Value) -> list[Value]:
    """Like Paddle: x ** 0 is constant in x, and 0 ** y is constant in y where y >= 0."""
    nothing = number(b, 0.0, g)
    dx = b.multiply(g, b.multiply(y, b.pow(x, b.scale(y, bias=-1.0))))
    still = b.logical_and(b.equal(x, nothing), b.greater_equal(y, nothing))
    dy = b.multiply(g, b.multiply(out, b.log(x)))
    return [b.where(b.equal(y, nothing), nothing, dx), b.where(still, nothing, dy)]


def _extremum_grad(b: Builder, g: Value, x: Value, y: Value) -> list[Value]:
    """Gradients of maximum(x, y) and of minimum(y, x); equal operands share them."""
    tie = masked(b, b.equal(x, y), b.scale(g, scale=0.5))
    return [b.where(b.greater_than(x, y), g, tie), b.where(b.less_than(x, y), g, tie)]


pair(
    "add",
    "fib",
    lambda x, y: x + y if x.dtype != BOOL else x | y,
    np.add,
    grad=lambda b, g, out, x, y: [g, g],
)
pair(
    "subtract",
    "fi",
    lambda x, y: x - y,
    np.subtract,
    grad=lambda b, g, out, x, y: [g, b.neg(g)],
)
pair(
    "multiply",
    "fib",
    lambda x, y: x * y if x.dtype != BOOL else x & y,
    np.multiply,
    grad=lambda b, g, out, x, y: [b.multiply(g, y), b.multiply(g, x)],
)
pair("divide", "f", lambda x, y: x / y, np.divide, low=0.5, grad=_divide_grad)
pair(
    "floor_divide",
    "fi",
    floor_div,
    _floor_div_ref,
    low=1.0,
    high=9.0,
    grad=no_gradient,
    divides=True,
)
pair(
    "remainder",
    "fi",
    floor_mod,
    _remainder_ref,
    low=1.0,
    high=9.0,
    grad=_remainder_grad,
    divides=True,
)
pair(
    "maximum",
    "fi",
    k.maximum,
    np.maximum,
    grad=lambda b, g, out, x, y: _extremum_grad(b, g, x, y),
    selects=("x", "y"),
)
pair(
    "minimum",
    "fi",
    k.minimum,
    np.minimum,
    grad=lambda b, g, out, x, y: _extremum_grad(b, g, y, x),
    selects=("x", "y"),
)
pair(
    "pow",
    "f",
    fn.pow_,
    lambda x, y: np.power(x.astype(np.longdouble), y.astype(np.longdouble)),
    grad=_pow_grad,
    paddle="elementwise_pow",
    low=0.1,
    high=3.0,
)
pair("equal", "fib", k.eq, np.equal, to_bool=True)
pair("not_equal", "fib", k.ne, np.not_equal, to_bool=True)
pair("less_than", "fi", lambda x, y: x < y, np.less, to_bool=True)
pair("less_equal", "fi", lambda x, y: x <= y, np.less_equal, to_bool=True)
pair("greater_than", "fi", lambda x, y: x > y, np.greater, to_bool=True)
pair("greater_equal", "fi", lambda x, y: x >= y, np.greater_equal, to_bool=True)
#: a comparison -> the same with its operands exchanged
EXCHANGED = {
    "equal": "equal",
    "not_equal": "not_equal",
    "less_than": "greater_than",
    "less_equal": "greater_equal",
    "greater_than": "less_than",
    "greater_equal": "less_equal",
}
for _name, _op in (("and", "__and__"), ("or", "__or__"), ("xor", "__xor__")):
    pair(
        f"logical_{_name}",
        "bfi",
        lambda x, y, _op=_op: getattr(_logical(x), _op)(_logical(y)),
        getattr(np, f"logical_{_name}"),
        to_bool=True,
    )
    pair(
        f"bitwise_{_name}",
        "bi",
        lambda x, y, _op=_op: getattr(x, _op)(y),
        getattr(np, f"bitwise_{_name}"),
    )


def _copysign_grad(b: Builder, g: Value, out: Value, x: Value, y: Value) -> list[Value | None]:
    """Like Paddle: zero at zero, and nothing for the sign."""
    return [b.multiply(g, b.multiply(b.sign(x), b.copysign(number(b, 1.0, y), y))), None]


def _shift(op: str, outside: Callable[[k.Scalar], k.Scalar]) -> Callable[..., k.Scalar]:
    """A shift by as many bits as the type has, or by a negative number, gives `outside`."""

    def kernel(x: k.Scalar, y: k.Scalar) -> k.Scalar:
        far = (y < 0) | (y >= x.dtype.bits)
        return k.select(far, outside(x), k.shift(op, x, y & (x.dtype.bits - 1)))

    return kernel


def _left_ref(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    bits = x.dtype.itemsize * 8
    return np.where((y < 0) | (y >= bits), 0, x << (y & (bits - 1)))


def _right_ref(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    bits = x.dtype.itemsize * 8
    shifted: np.ndarray = x >> np.where((y < 0) | (y >= bits), bits - 1, y)
    return shifted


pair("copysign", "f", k.copysign, np.copysign, grad=_copysign_grad)
pair(
    "bitwise_left_shift",
    "i",
    _shift("shl", lambda x: k.const(0, x.dtype)),
    _left_ref,
    paddle=None,
    low=-1.0,
    high=70.0,
)
pair(
    "bitwise_right_shift",
    "i",
    _shift("ashr", lambda x: k.select(x < 0, k.const(-1, x.dtype), k.const(0, x.dtype))),
    _right_ref,
    paddle=None,
    low=-1.0,
    high=70.0,
)


# ---------------------------------------------------------------- where
def _where_types(test: Type, x: Type, y: Type) -> Type:
    same_dtype("where", x, y)
    if test.dtype != BOOL:
        raise ShapeError(f"the condition of where is bool, not {test.dtype}")
    require_kind("where", x, "fib")
    return Type(x.dtype, broadcast(test.shape, x.shape, y.shape))


op(
    "where(test, x, y)",
    types=_where_types,
    kernel=k.select,
    ref=np.where,
    grad=lambda b, g, out, test, x, y: [
        None,
        fitted(b, masked(b, test, g), x.type),
        fitted(b, b.where(test, number(b, 0.0, g), g), y.type),
    ],
    selects=("x", "y"),
    paddle="where",
    examples=[
        ("bool[3,4]", "f32[3,4]", "f32[3,4]"),
        ("bool[3,1]", "i64[4]", "i64[]"),
        ("bool[]", "f64[0,2]", "f64[2]"),
    ],
)
