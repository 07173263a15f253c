"""Elementwise ops: one scalar kernel each, broadcasting as NumPy does.

Operands have one dtype (capture inserts the casts that Paddle's promotion makes).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import ir.functions as fn
import ir.kernel as k
from ir.opdef import Example, ShapeError, broadcast, example, op
from ir.types import BOOL, F32, F64, DType, Type


def same_dtype(name: str, *types: Type) -> DType:
    for t in types[1:]:
        if t.dtype != types[0].dtype:
            raise ShapeError(f"{name} of {types[0].dtype} and {t.dtype}")
    return types[0].dtype


def require_kind(name: str, t: Type, kinds: str) -> None:
    if t.dtype.kind not in kinds or t.dtype.name in ("f16", "bf16"):
        raise ShapeError(f"{name} has no kernel for {t.dtype}")


def elementwise(
    signature: str, kinds: str, kernel: Callable[..., Any], ref: Callable[..., Any], **row: Any
) -> None:
    """A row whose result has the operands' dtype, or bool with `to_bool`."""
    to_bool = row.pop("to_bool", False)
    name = signature.split("(")[0]

    def types(*operands: Type, **attrs: Any) -> Type:
        dtype = same_dtype(name, *operands)
        require_kind(name, operands[0], kinds)
        return Type(BOOL if to_bool else dtype, broadcast(*(t.shape for t in operands)))

    def quiet(*arrays: Any, **attrs: Any) -> np.ndarray:
        with np.errstate(all="ignore"):
            out = np.asarray(ref(*arrays, **attrs))
        return out.astype(np.bool_ if to_bool else arrays[0].dtype, copy=False)

    op(signature, types=types, kernel=kernel, ref=quiet, **row)


def unary_examples(kinds: str, low: float = -2.0, high: float = 2.0) -> tuple[Example, ...]:
    dtypes = [d for d in ("f32", "f64", "i64", "i32", "bool") if d[0] in kinds]
    shapes = ("[3,4]", "[0,4]", "[]", "[37]")
    return tuple(example(d + s, low=low, high=high) for d in dtypes for s in shapes)


def unary(
    name: str, kinds: str, kernel: Callable[..., Any], ref: Callable[..., Any], **row: Any
) -> None:
    low, high = row.pop("low", -2.0), row.pop("high", 2.0)
    examples = unary_examples(kinds, low, high)
    elementwise(f"{name}(x)", kinds, kernel, ref, paddle=name, examples=examples, **row)


def wide(f: Callable[..., Any]) -> Callable[..., Any]:
    """Evaluate a reference in extended precision; the caller rounds."""
    return lambda x: f(x.astype(np.longdouble))


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def _erfc(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erfc, otypes=[np.float64])(x)


unary("exp", "f", fn.exp, wide(np.exp))
unary("expm1", "f", fn.expm1, wide(np.expm1))
unary("log", "f", fn.log, wide(np.log), low=0.1, high=9.0)
unary("log2", "f", fn.log2, wide(np.log2), low=0.1, high=9.0)
unary("log10", "f", fn.log10, wide(np.log10), low=0.1, high=9.0)
unary("log1p", "f", fn.log1p, wide(np.log1p), low=-0.9, high=9.0)
unary("tanh", "f", fn.tanh, wide(np.tanh))
unary("sigmoid", "f", fn.sigmoid, wide(lambda x: 1 / (1 + np.exp(-x))))
unary("erf", "f", fn.erf, _erf)
unary("sin", "f", fn.sin, wide(np.sin))
unary("cos", "f", fn.cos, wide(np.cos))
unary("sqrt", "f", k.sqrt, np.sqrt, low=0.0, high=9.0)
unary("rsqrt", "f", fn.rsqrt, wide(lambda x: 1 / np.sqrt(x)), low=0.1, high=9.0)
unary("reciprocal", "f", lambda x: 1 / x, lambda x: 1 / x, low=0.1, high=9.0)
unary("square", "fi", lambda x: x * x, lambda x: x * x)
unary("abs", "fi", k.abs_, np.abs)
unary("floor", "f", k.floor, np.floor)
unary("ceil", "f", k.ceil, np.ceil)
unary("trunc", "f", k.trunc, np.trunc)
unary("relu", "fi", lambda x: k.maximum(x, 0), lambda x: np.maximum(x, 0))
unary("silu", "f", lambda x: x / (1 + fn.exp(-x)), wide(lambda x: x / (1 + np.exp(-x))))
unary("softsign", "f", lambda x: x / (1 + k.abs_(x)), lambda x: x / (1 + np.abs(x)))
unary(
    "sign",
    "fi",
    lambda x: k.select(x > 0, k.const(1, x.dtype), k.select(x < 0, k.const(-1, x.dtype), x)),
    np.sign,
)
unary("logical_not", "bfi", lambda x: ~k.cast(x, BOOL), np.logical_not, to_bool=True)
unary("isnan", "f", k.isnan, np.isnan, to_bool=True)
unary("isfinite", "f", lambda x: k.eq(x - x, 0), np.isfinite, to_bool=True)
elementwise("neg(x)", "fi", lambda x: -x, np.negative, examples=unary_examples("fi"))


# ---------------------------------------------------------------- with attributes
def scale_kernel(x: k.Scalar, scale: float, bias: float, bias_after_scale: bool) -> k.Scalar:
    if bias_after_scale:
        return x * k.const(scale, x.dtype) + k.const(bias, x.dtype)
    return (x + k.const(bias, x.dtype)) * k.const(scale, x.dtype)


def scale_ref(x: np.ndarray, scale: float, bias: float, bias_after_scale: bool) -> np.ndarray:
    s, b = x.dtype.type(scale), x.dtype.type(bias)
    return x * s + b if bias_after_scale else (x + b) * s


elementwise(
    "scale(x, *, scale=1.0, bias=0.0, bias_after_scale=True)",
    "fi",
    scale_kernel,
    scale_ref,
    examples=(
        example("f32[3,4]", scale=3.3, bias=1.1),
        example("f64[37]", scale=-0.5, bias=2.0, bias_after_scale=False),
        example("i64[5]", scale=3.0, bias=-1.0),
        example("f32[0,4]", scale=2.0),
    ),
)
elementwise(
    "leaky_relu(x, *, negative_slope=0.01)",
    "f",
    lambda x, negative_slope: k.select(x > 0, x, x * negative_slope),
    lambda x, negative_slope: np.where(x > 0, x, x * x.dtype.type(negative_slope)),
    paddle="leaky_relu",
    examples=(example("f32[3,4]", negative_slope=0.1), example("f64[7]")),
)
elementwise(
    "elu(x, *, alpha=1.0)",
    "f",
    lambda x, alpha: k.select(x > 0, x, fn.expm1(x) * alpha),
    lambda x, alpha: np.where(x > 0, x, np.expm1(x.astype(np.longdouble)) * alpha),
    paddle="elu",
    examples=(example("f32[3,4]", alpha=0.7), example("f64[7]")),
)


def _softplus_ref(x: np.ndarray, beta: float, threshold: float) -> np.ndarray:
    z = x.astype(np.longdouble) * beta
    return np.where(z > threshold, x, np.log1p(np.exp(np.minimum(z, threshold))) / beta)


elementwise(
    "softplus(x, *, beta=1.0, threshold=20.0)",
    "f",
    lambda x, beta, threshold: k.select(
        x * beta > threshold, x, fn.log1p(fn.exp(x * beta)) / k.const(beta, x.dtype)
    ),
    _softplus_ref,
    paddle="softplus",
    examples=(example("f32[3,4]", low=-30, high=30), example("f64[7]", beta=2.0)),
)


def gelu_kernel(x: k.Scalar, approximate: bool) -> k.Scalar:
    if not approximate:
        return fn.gelu(x)
    inner = k.fma(x * x * x, 0.044715, x) * math.sqrt(2 / math.pi)
    return x * 0.5 * (1 + fn.tanh(inner))


def gelu_ref(x: np.ndarray, approximate: bool) -> np.ndarray:
    w = x.astype(np.longdouble)
    if approximate:
        return 0.5 * w * (1 + np.tanh(math.sqrt(2 / math.pi) * (w + 0.044715 * w**3)))
    return 0.5 * w * _erfc(-x.astype(np.float64) / math.sqrt(2))


elementwise(
    "gelu(x, *, approximate=False)",
    "f",
    gelu_kernel,
    gelu_ref,
    paddle="gelu",
    examples=(example("f32[3,4]"), example("f64[7]"), example("f32[9]", approximate=True)),
)


def clip_kernel(x: k.Scalar, min: float, max: float) -> k.Scalar:
    low, high = k.const(min, x.dtype), k.const(max, x.dtype)
    return k.select(x < low, low, k.select(x > high, high, x))


elementwise(
    "clip(x, *, min, max)",
    "fi",
    clip_kernel,
    lambda x, min, max: np.clip(x, x.dtype.type(min), x.dtype.type(max)),
    examples=(example("f32[3,4]", min=-0.5, max=0.7), example("i64[7]", min=0, max=1)),
)


# ---------------------------------------------------------------- two operands
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


def _floor_div_ref(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.floor(x / y) if x.dtype.kind == "f" else x // y


pair("add", "fib", lambda x, y: x + y if x.dtype != BOOL else x | y, np.add)
pair("subtract", "fi", lambda x, y: x - y, np.subtract)
pair("multiply", "fib", lambda x, y: x * y if x.dtype != BOOL else x & y, np.multiply)
pair("divide", "f", lambda x, y: x / y, np.divide, low=0.5)
pair("floor_divide", "fi", floor_div, _floor_div_ref, low=1.0, high=9.0)
pair("remainder", "fi", floor_mod, np.mod, low=1.0, high=9.0)
pair("maximum", "fi", k.maximum, np.maximum)
pair("minimum", "fi", k.minimum, np.minimum)
pair(
    "pow",
    "f",
    fn.pow_,
    lambda x, y: np.power(x.astype(np.longdouble), y.astype(np.longdouble)),
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


# ---------------------------------------------------------------- where, cast
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
    paddle="where",
    examples=[
        ("bool[3,4]", "f32[3,4]", "f32[3,4]"),
        ("bool[3,1]", "i64[4]", "i64[]"),
        ("bool[]", "f64[0,2]", "f64[2]"),
    ],
)


def _cast_types(x: Type, dtype: DType) -> Type:
    require_kind("cast", x, "fibu")
    require_kind("cast", Type(dtype), "fibu")
    return x.with_dtype(dtype)


def _cast_ref(x: np.ndarray, dtype: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        return x.astype(dtype.numpy)


op(
    "cast(x, *, dtype)",
    types=_cast_types,
    kernel=lambda x, dtype: k.cast(x, dtype),
    ref=_cast_ref,
    examples=(
        example("f32[3,4]", dtype=F64),
        example("bool[5]", dtype=F32),
        example("i64[5]", dtype=F32),
        example("f64[5]", dtype=BOOL),
        example("f32[5]", dtype=DType("i64", "i", 64)),
    ),
)
