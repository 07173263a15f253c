"""Adapters of losses, with the boundary values and gradients of Paddle's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from dy2st.capture.adapters.gather_scatter import take_along_axis
from dy2st.capture.adapters.table import adapter, int_of
from dy2st.capture.custom import Backward, custom
from dy2st.trace.emitter import Emitter, NoRow, detached, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import check
from ir import Require
from ir.messages import HOLE
from ir.types import F32, F64, I64, Dim, product


def floats(e: Emitter, *xs: object) -> None:
    if any(e.type(x) != e.type(xs[0]) for x in xs) or e.type(xs[0]).dtype not in (F32, F64):
        raise NoRow("operands of these types")


def fixed(e: Emitter, x: object) -> FakeTensor:
    """An operand to which the kernel gives no gradient."""
    made: FakeTensor = e.trace.fake(detached(e.trace, e.value(x)), True)
    return made


def number(e: Emitter, value: float, like: object) -> FakeTensor:
    return e.full(value, e.type(like).dtype)


def with_gradient(e: Emitter, x: object, out: FakeTensor, backward: Backward) -> FakeTensor:
    """The result of a kernel whose gradient is not that of the steps to it."""
    if not e.trains(x):
        return out
    name = "the gradient of a loss"
    return custom(e.trace, [lift(e.trace, x)], [out], backward, name)[0]


@adapter("cross_entropy_with_softmax")
def cross_entropy(
    e: Emitter,
    x: object,
    label: object,
    soft_label: bool,
    use_softmax: bool,
    numeric_stable: bool,
    ignore_index: int,
    axis: int,
) -> tuple[FakeTensor, FakeTensor]:
    """The softmax, and the loss of each element; the label's axis has one element, or is soft."""
    at = int_of(axis) % max(e.type(x).ndim, 1)
    if not use_softmax or e.type(x).dtype not in (F32, F64):
        raise NoRow("a loss of probabilities")
    logs, weights = e.log_softmax(x, axis=at), e.softmax(x, axis=at)
    if soft_label:
        floats(e, x, label)
        truth = fixed(e, label)
        loss = e.neg(e.sum(e.multiply(logs, truth), axes=(at,), keepdim=True))

        def backward(g: Tensor) -> FakeTensor:
            """Compute the gradient as if the labels of an element had the sum 1."""
            return e.multiply(g, e.subtract(weights, truth))

        return weights, with_gradient(e, x, loss, backward)
    _same_sizes(e, x, label, at)
    return weights, e.neg(_picked(e, logs, label, ignore_index, at, "IndexError"))


def _same_sizes(e: Emitter, x: object, label: object, axis: int) -> None:
    """Labels have the sizes of the logits but for `axis`: a condition of the program where sizes
    are named."""
    given, wanted = (list(e.type(q).shape) for q in (label, x))
    wanted[axis] = 1
    pairs = [(a, b) for a, b in zip(given, wanted) if a != b]
    if len(given) != len(wanted) or any(isinstance(a - b, int) for a, b in pairs):
        raise NoRow("labels of other sizes")
    for a, b in pairs:
        name, where = "cross_entropy_with_softmax", e.trace.where()
        e.trace.add_require(Require(a, "==", b, name, where))


def _picked(
    e: Emitter, x: object, label: object, ignore_index: int, axis: int, error: str
) -> FakeTensor:
    """The elements of the labels, which are checked, and zeros for the label that is ignored."""
    t = e.type(label)
    ignored = e.equal(label, e.full(ignore_index, t.dtype))
    label = e.where(ignored, e.full(0, t.dtype), label)
    _check_labels(e, label, e.type(x).shape[axis], error)
    return e.where(ignored, number(e, 0.0, x), take_along_axis(e, x, label, axis))


def _check_labels(e: Emitter, label: object, n: Dim, error: str) -> None:
    """Labels are classes. The message has the least and the greatest one, and zero, which always
    is a class."""
    t = e.type(label)
    zero, flat = e.full(0, t.dtype, (1,)), e.reshape(label, shape=(product(t.shape),))
    some = e.concat(zero, flat, axis=0)
    least, most = e.min(some, axes=()), e.max(some, axes=())
    classes = e.cast_to(e.scalar(e.trace.sym(n), I64), t.dtype)
    inside = e.logical_and(e.greater_equal(least, e.full(0, t.dtype)), e.less_than(most, classes))
    where = e.trace.where()
    message = f"a label is not one of {n} classes: they are from {HOLE} to {HOLE} ({where})"
    shown = [(q._value, ("str", "")) for q in (least, most)]
    check(e.trace, inside._value, error, message, caught=False, shown=shown)


@adapter("sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy(
    e: Emitter,
    x: object,
    label: object,
    pos_weight: object = None,
    normalize: bool = False,
    ignore_index: int = -100,
) -> FakeTensor:
    """The kernel's gradient at 0 has -0.5 in place of the sigmoid."""
    if pos_weight is not None or normalize:
        raise NoRow("weights of positive labels")
    floats(e, x, label)
    truth = fixed(e, label)
    ignored = e.equal(truth, number(e, float(ignore_index), x))
    rest = e.log1p(e.exp(e.neg(e.abs(x))))
    loss = e.add(e.subtract(e.relu(x), e.multiply(x, truth)), rest)

    def backward(g: Tensor) -> FakeTensor:
        at_0 = e.equal(x, number(e, 0.0, x))
        rise = e.where(at_0, number(e, -0.5, x), e.sigmoid(x))
        slope = e.multiply(g, e.subtract(rise, truth))
        return e.where(ignored, number(e, 0.0, x), slope)

    return with_gradient(e, x, e.where(ignored, number(e, 0.0, x), loss), backward)


@adapter("bce_loss")
def bce_loss(e: Emitter, x: object, label: object) -> FakeTensor:
    floats(e, x, label)
    truth, one, least = fixed(e, label), number(e, 1.0, x), number(e, -100.0, x)
    yes, no = (e.maximum(e.log(q), least) for q in (x, e.subtract(one, x)))
    loss = e.subtract(e.multiply(e.subtract(truth, one), no), e.multiply(truth, yes))

    def backward(g: Tensor) -> FakeTensor:
        below = e.maximum(e.multiply(e.subtract(one, x), x), number(e, 1e-12, x))
        return e.divide(e.multiply(g, e.subtract(x, truth)), below)

    return with_gradient(e, x, loss, backward)


@adapter("huber_loss")
def huber_loss(e: Emitter, x: object, label: object, delta: float) -> FakeTensor:
    floats(e, x, label)
    gap = e.subtract(label, x)
    size, bound, half = e.abs(gap), number(e, float(delta), x), number(e, 0.5, x)
    within = e.less_equal(size, bound)
    short = e.where(within, size, bound)
    near = e.multiply(half, e.multiply(short, short))
    far = e.multiply(bound, e.subtract(size, e.multiply(half, bound)))
    return e.where(within, near, far)


@adapter("kldiv_loss")
def kldiv_loss(
    e: Emitter, x: object, target: object, reduction: str = "mean", log_target: bool = False
) -> FakeTensor:
    floats(e, x, target)
    if reduction != "none":
        raise NoRow("a reduced divergence")
    truth, zero = fixed(e, target), number(e, 0.0, x)
    if log_target:
        return e.multiply(e.exp(truth), e.subtract(truth, x))
    there = e.greater_than(truth, zero)
    logs = e.log(e.where(there, truth, number(e, 1.0, x)))
    return e.where(there, e.multiply(truth, e.subtract(logs, x)), zero)


@adapter("nll_loss")
def nll_loss(
    e: Emitter,
    x: object,
    label: object,
    weight: object = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> tuple[FakeTensor, FakeTensor]:
    """The loss, and the sum of the weights of the labels that are not ignored."""
    t = e.type(x)
    if t.dtype not in (F32, F64) or t.ndim < 2 or weight is not None and e.trains(weight):
        raise NoRow(f"nll_loss of {t}")
    shape = e.type(label).shape
    alone = e.reshape(label, shape=(shape[0], 1, *shape[1:]))
    _same_sizes(e, x, alone, 1)
    found = _picked(e, x, alone, ignore_index, 1, "ValueError")
    picked = e.neg(e.reshape(found, shape=shape))
    kind = e.type(label).dtype
    counted = e.not_equal(label, e.full(ignore_index, kind))
    share = number(e, 1.0, x)
    if weight is not None:
        share = e.gather(weight, e.cast_to(e.where(counted, label, e.full(0, kind)), I64), axis=0)
    share = e.where(counted, share, number(e, 0.0, x))
    losses, total = e.multiply(picked, share), e.sum(share)
    if reduction == "none":
        return losses, total
    whole = e.sum(losses)
    if reduction == "sum":
        return whole, total
    some = e.not_equal(total, number(e, 0.0, x))
    return e.divide(whole, e.where(some, total, number(e, 1.0, x))), total


@adapter("label_smooth")
def label_smooth(e: Emitter, label: object, prior: object = None, epsilon: float = 0.0) -> Any:
    t = e.type(label)
    if t.dtype != F32:
        raise NoRow(f"label_smooth of {t}")
    by = float(np.float32(epsilon))
    kept = e.scale(label, scale=float(np.float32(1 - np.float32(by))))
    if prior is not None:
        return e.add(kept, e.scale(fixed(e, prior), scale=by))
    if not isinstance(t.shape[-1], int):
        raise NoRow("label_smooth of a named size")
    return e.scale(kept, bias=float(np.float32(by) / np.float32(t.shape[-1])))
