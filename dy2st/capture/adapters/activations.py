"""Adapters of activations, of composites, and of entries with numbers as operands."""

from __future__ import annotations

import numpy as np

from dy2st.capture.adapters.elementwise import arithmetic, scale
from dy2st.capture.adapters.nn import matmul
from dy2st.capture.adapters.table import adapter
from dy2st.trace.emitter import Emitter, NoRow, detached
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import is_runtime
from ir.types import divide


def plain(*values: float | Tensor) -> list[float]:
    """Python numbers that the trace knows, as Paddle's kernels get them: they have 32 bits."""
    if any(isinstance(v, Tensor) or is_runtime(v) for v in values):
        raise NoRow("a number that is known only when the program runs")
    return [float(np.float32(v)) for v in values]


def floats(e: Emitter, x: object) -> None:
    """Paddle has no kernel for other tensors, and says so."""
    if e.type(x).dtype.kind != "f":
        raise NoRow(str(e.type(x).dtype))


# ---------------------------------------------------------------- activations
@adapter("hardtanh")
def hardtanh(e: Emitter, x: object, min: object = -1.0, max: object = 1.0) -> FakeTensor:
    low, high = plain(min, max)
    return e.hardtanh(x, min=low, max=high)


@adapter("thresholded_relu")
def thresholded_relu(
    e: Emitter, x: object, threshold: object = 1.0, value: object = 0.0
) -> FakeTensor:
    at, below = plain(threshold, value)
    return e.thresholded_relu(x, threshold=at, value=below)


@adapter("hardsigmoid")
def hardsigmoid(e: Emitter, x: object, slope: object = 0.2, offset: object = 0.5) -> FakeTensor:
    by, start = plain(slope, offset)
    return e.hardsigmoid(x, slope=by, offset=start)


@adapter("selu")
def selu(e: Emitter, x: object, factor: object, alpha: object) -> FakeTensor:
    by, to = plain(factor, alpha)
    return e.scale(e.elu(x, alpha=to), scale=by)


@adapter("celu")
def celu(e: Emitter, x: object, alpha: object = 1.0) -> FakeTensor:
    (to,) = plain(alpha)
    below = e.scale(e.expm1(e.scale(x, scale=1 / to)), scale=to)
    return e.where(e.greater_than(x, e.full(0.0, e.type(x).dtype)), x, below)


@adapter("logsigmoid")
def logsigmoid(e: Emitter, x: object) -> FakeTensor:
    return e.neg(e.softplus(e.neg(x), threshold=1e30))


@adapter("stanh")
def stanh(e: Emitter, x: object, scale_a: object = 0.67, scale_b: object = 1.7159) -> FakeTensor:
    inner, outer = plain(scale_a, scale_b)
    return e.scale(e.tanh(e.scale(x, scale=inner)), scale=outer)


@adapter("mish")
def mish(e: Emitter, x: object, threshold: object = 20.0) -> FakeTensor:
    return e.multiply(x, e.tanh(e.softplus(x, threshold=plain(threshold)[0])))


@adapter("tanh_shrink")
def tanh_shrink(e: Emitter, x: object) -> FakeTensor:
    return e.subtract(x, e.tanh(x))


@adapter("hardshrink")
def hardshrink(e: Emitter, x: object, threshold: object = 0.5) -> FakeTensor:
    (at,) = plain(threshold)
    d = e.type(x).dtype
    far = e.logical_or(e.less_equal(x, e.full(-at, d)), e.greater_equal(x, e.full(at, d)))
    return e.multiply(x, e.cast(far, dtype=d))


@adapter("softshrink")
def softshrink(e: Emitter, x: object, threshold: object = 0.5) -> FakeTensor:
    """NaN where it is infinite, as from Paddle's kernel."""
    (at,) = plain(threshold)
    d = e.type(x).dtype
    above = e.cast(e.greater_than(x, e.full(at, d)), dtype=d)
    below = e.cast(e.less_than(x, e.full(-at, d)), dtype=d)
    high, low = e.scale(x, bias=-at), e.scale(x, bias=at)
    return e.add(e.multiply(above, high), e.multiply(below, low))


@adapter("swiglu")
def swiglu(e: Emitter, x: object, y: object = None) -> FakeTensor:
    """Without `y`, the last axis holds both."""
    if y is None:
        t = e.type(x)
        half = divide(t.shape[-1], 2)
        if half is None:
            raise NoRow(f"swiglu of {t}")
        x, y = e.split(x, axis=t.ndim - 1, sections=(half, half))
    return e.multiply(e.silu(x), y)


@adapter("prelu")
def prelu(
    e: Emitter, x: object, alpha: object, data_format: str = "NCHW", mode: str = "all"
) -> FakeTensor:
    """`alpha` has one slope, or one for each channel."""
    t, slopes = e.type(x), e.type(alpha)
    if mode not in ("all", "channel") or slopes.dtype != t.dtype or t.dtype.kind != "f":
        raise NoRow(f"prelu with slopes {slopes}")
    channels = t.ndim - 1 if data_format.endswith("C") else 1
    shape = [slopes.shape[0] if k == channels else 1 for k in range(t.ndim)]
    slope = e.reshape(alpha, shape=tuple(shape if mode == "channel" else ()))
    return e.where(e.greater_than(x, e.full(0.0, t.dtype)), x, e.multiply(x, slope))


# ---------------------------------------------------------------- rounding, logit, bits
@adapter("round")
def round_(e: Emitter, x: Tensor, decimals: int = 0) -> FakeTensor:
    floats(e, x)
    if not decimals:
        return e.round(x)
    ten = e.full(10.0 ** abs(int(decimals)), e.type(x).dtype)
    up, down = (e.multiply, e.divide) if decimals > 0 else (e.divide, e.multiply)
    return down(e.round(up(x, ten)), ten)


@adapter("logit")
def logit(e: Emitter, x: Tensor, eps: float = 0.0) -> FakeTensor:
    if isinstance(eps, Tensor) or is_runtime(eps):
        raise NoRow("a margin that is known only when the program runs")
    return e.logit(e.clip(x, min=float(eps), max=1 - float(eps)) if eps else x)


@adapter("bitwise_left_shift")
def left_shift(e: Emitter, x: object, y: object, is_arithmetic: bool = True) -> FakeTensor:
    return _shift(e, "bitwise_left_shift", x, y)


@adapter("bitwise_right_shift")
def right_shift(e: Emitter, x: object, y: object, is_arithmetic: bool = True) -> FakeTensor:
    if not is_arithmetic:
        raise NoRow("a logical shift to the right")
    return _shift(e, "bitwise_right_shift", x, y)


def _shift(e: Emitter, row: str, x: object, y: object) -> FakeTensor:
    if e.type(x).dtype.kind != "i":
        raise NoRow(f"{row} of {e.type(x).dtype}")
    return arithmetic(e, row, x, y)


# ---------------------------------------------------------------- several rows
@adapter("lerp")
def lerp(e: Emitter, x: object, y: object, weight: object) -> FakeTensor:
    """The weight gets no gradient, as from Paddle."""
    floats(e, x)
    fixed = e.trace.fake(detached(e.trace, e.value(weight)), True)
    return e.add(x, e.multiply(fixed, e.subtract(y, x)))


@adapter("addmm", "baddbmm")
def addmm(
    e: Emitter, x: object, a: object, b: object, beta: object = 1.0, alpha: object = 1.0
) -> FakeTensor:
    floats(e, x)
    keep, by = plain(beta, alpha)
    return e.add(e.scale(x, scale=keep), e.scale(matmul(e, a, b), scale=by))


@adapter("increment")
def increment(e: Emitter, x: object, value: object = 1.0) -> FakeTensor:
    return scale(e, x, 1.0, plain(value)[0])


@adapter("renorm")
def renorm(e: Emitter, x: object, p: object, axis: int, max_norm: object) -> FakeTensor:
    """Slices along `axis` whose p-norm is larger than `max_norm` get that norm."""
    power, most = plain(p, max_norm)
    t = e.type(x)
    others = tuple(k for k in range(t.ndim) if k != int(axis) % t.ndim)
    by, root = e.full(power, t.dtype), e.full(1 / power, t.dtype)
    limit, one = e.full(most, t.dtype), e.full(1.0, t.dtype)
    total = e.sum(e.pow(e.abs(x), by), axes=others, keepdim=True)
    far = e.greater_than(e.pow(total, root), limit)
    norm = e.pow(e.where(far, total, one), root)
    factor = e.where(far, e.divide(limit, norm), one)
    return e.multiply(x, factor)
