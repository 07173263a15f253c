"""Parts and functions of complex tensors, and their sums."""

from __future__ import annotations

from dy2st.capture.adapters.complex.arithmetic import multiply
from dy2st.capture.adapters.complex.table import (
    axes_within,
    complex_adapter,
    dtype_of,
    joined,
    planes,
)
from dy2st.capture.adapters.elementwise import atan2
from dy2st.capture.adapters.table import axes_of, given, int_of
from dy2st.capture.custom import custom
from dy2st.trace.emitter import Emitter, NoRow, detached, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor


@complex_adapter("as_real")
def as_real(e: Emitter, x: object) -> FakeTensor:
    return e.as_real(x)  # type: ignore[no-any-return]


@complex_adapter("real")
def real(e: Emitter, x: object) -> FakeTensor:
    return e.index(e.as_real(x), axis=-1, index=0)  # type: ignore[no-any-return]


@complex_adapter("imag")
def imag(e: Emitter, x: object) -> FakeTensor:
    return e.index(e.as_real(x), axis=-1, index=1)  # type: ignore[no-any-return]


@complex_adapter("conj")
def conj(e: Emitter, x: object) -> FakeTensor:
    re, im = planes(e, x, dtype_of(e, x))
    return joined(e, re, e.neg(im))


@complex_adapter("abs")
def abs_(e: Emitter, x: object) -> FakeTensor:
    """Without squares, which may be out of range; the gradient at 0 is 0."""
    out = magnitude(Emitter(e.trace), apart(e, x))
    if not e.trains(x):
        return out
    zero = e.full(0.0, e.type(out).dtype)

    def backward(g: Tensor) -> FakeTensor:
        unit = e.where(e.equal(out, zero), zero, e.divide(g, out))
        return multiply(e, x, unit)

    return custom(e.trace, [lift(e.trace, x)], [out], backward, "abs")[0]


def magnitude(e: Emitter, x: object) -> FakeTensor:
    a, b = (e.abs(q) for q in planes(e, x, dtype_of(e, x)))
    low, high = e.minimum(a, b), e.maximum(a, b)
    one = e.full(1.0, e.type(a).dtype)
    ratio = e.where(e.equal(low, high), one, e.divide(low, high))
    return e.multiply(high, e.sqrt(e.add(e.square(ratio), one)))  # type: ignore[no-any-return]


def apart(e: Emitter, x: object) -> FakeTensor:
    """The same tensor, without a gradient."""
    made: FakeTensor = e.trace.fake(detached(e.trace, lift(e.trace, x)._value), True)
    return made


@complex_adapter("angle")
def angle(e: Emitter, x: object) -> FakeTensor:
    free, untrained = apart(e, x), Emitter(e.trace)
    re, im = planes(untrained, free, dtype_of(e, x))
    out: FakeTensor = atan2(untrained, im, re)
    if not e.trains(x):
        return out
    size = magnitude(untrained, free)
    zero = e.full(0.0, e.type(out).dtype)

    def backward(g: Tensor) -> FakeTensor:
        unit = e.where(e.equal(size, zero), zero, e.divide(e.divide(g, size), size))
        return joined(e, e.neg(e.multiply(im, unit)), e.multiply(re, unit))

    return custom(e.trace, [lift(e.trace, x)], [out], backward, "angle")[0]


@complex_adapter("exp")
def exp(e: Emitter, x: object) -> FakeTensor:
    re, im = planes(e, x, dtype_of(e, x))
    size = e.exp(re)
    return joined(e, e.multiply(size, e.cos(im)), e.multiply(size, e.sin(im)))


@complex_adapter("log")
def log(e: Emitter, x: object) -> FakeTensor:
    return joined(e, e.log(abs_(e, x)), angle(e, x))


# ---------------------------------------------------------------- reductions
@complex_adapter("sum")
def sum_(
    e: Emitter, x: object, axis: object = (), dtype: object = None, keepdim: bool = False
) -> FakeTensor:
    if given(dtype):
        raise NoRow("a sum of another type")
    return _reduced(e, "sum", x, axis, keepdim)


@complex_adapter("mean")
def mean(e: Emitter, x: object, axis: object = (), keepdim: bool = False) -> FakeTensor:
    return _reduced(e, "mean", x, axis, keepdim)


complex_adapter("mean_all")(lambda e, x: _reduced(e, "mean", x, (), False))


def _reduced(e: Emitter, row: str, x: object, axis: object, keepdim: bool) -> FakeTensor:
    if not e.type(x).ndim:
        return e.assign(x)  # type: ignore[no-any-return]
    axes = axes_within(e, x, axes_of(axis))
    return e.as_complex(getattr(e, row)(e.as_real(x), axes=axes, keepdim=bool(keepdim)))  # type: ignore[no-any-return]


@complex_adapter("cumsum")
def cumsum(e: Emitter, x: object, axis: object = -1, *flags: bool, **named: bool) -> FakeTensor:
    if any(flags) or any(named.values()):
        raise NoRow("another cumulative sum")
    (at,) = axes_within(e, x, (int_of(axis),))
    return e.as_complex(e.cumsum(e.as_real(x), axis=at))  # type: ignore[no-any-return]


__all__ = ["abs_", "angle", "conj", "exp"]
