"""Adapters of products, reductions and the entries behind network layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dy2st.capture import foreign
from dy2st.capture.adapters.elementwise import arithmetic
from dy2st.capture.adapters.gather_scatter import take_along_axis
from dy2st.capture.adapters.table import (
    adapter,
    axes_of,
    dtype_of,
    given,
    int_of,
    is_number,
    number_of,
)
from dy2st.capture.custom import custom
from dy2st.capture.data_sizes import as_size
from dy2st.capture.promotion import result_dtype
from dy2st.trace.emitter import Emitter, NoRow, detached, grad_enabled, lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import check, is_runtime
from dy2st.trace.symint import dim_of
from ir.types import BOOL, F32, F64, I32, I64, Dim, product


@adapter("matmul")
def matmul(
    e: Emitter, x: object, y: object, transpose_x: bool = False, transpose_y: bool = False
) -> FakeTensor:
    dtype = result_dtype(e.trace, "matmul", e.type(x), e.type(y))
    x, y = e.cast_to(x, dtype), e.cast_to(y, dtype)
    return e.matmul(x, y, trans_x=bool(transpose_x), trans_y=bool(transpose_y))


@adapter("bmm")
def bmm(e: Emitter, x: object, y: object) -> FakeTensor:
    if e.type(x).ndim != 3 or e.type(y).ndim != 3:
        raise NoRow("bmm takes tensors of rank 3")
    return matmul(e, x, y)


@adapter("mv")
def mv(e: Emitter, x: object, y: object) -> FakeTensor:
    return matmul(e, x, y)


@adapter("dot")
def dot(e: Emitter, x: object, y: object) -> FakeTensor:
    """Compute the dot product of vectors, or of the rows of matrices."""
    if e.type(x) != e.type(y) or not 1 <= e.type(x).ndim <= 2:
        raise NoRow("dot of different vectors")
    return e.sum(e.multiply(x, y), axes=(-1,))


@adapter("linear_v2", "linear")
def linear(
    e: Emitter, x: object, weight: object, bias: object = None, transpose: bool = False
) -> object:
    out = matmul(e, x, weight, False, transpose)
    return out if bias is None else arithmetic(e, "add", out, bias)


@adapter("sum")
def sum_(
    e: Emitter, x: object, axis: object = (), dtype: object = None, keepdim: bool = False
) -> object:
    have = e.type(x).dtype
    want = dtype_of(dtype) if given(dtype) else I64 if have.name in ("bool", "i32") else have
    return e.sum(e.cast_to(x, want), axes=axes_of(axis), keepdim=bool(keepdim))


@adapter("mean")
def mean(e: Emitter, x: object, axis: object = (), keepdim: bool = False) -> FakeTensor:
    return e.mean(x, axes=axes_of(axis), keepdim=bool(keepdim))


@adapter("mean_all")
def mean_all(e: Emitter, x: object) -> FakeTensor:
    return e.mean(x)


@adapter("p_norm")
def p_norm(
    e: Emitter,
    x: object,
    porder: float = 2.0,
    axis: int = -1,
    epsilon: float = 1e-12,
    keepdim: bool = False,
    asvector: bool = False,
) -> FakeTensor:
    """Sums of absolute values, and Euclidean lengths, whose gradient at 0 is 0."""
    if float(porder) not in (1.0, 2.0) or e.type(x).dtype not in (F32, F64):
        raise NoRow("another norm")
    axes = () if asvector else (int_of(axis),)
    if float(porder) == 1.0:
        return e.sum(e.abs(x), axes=axes, keepdim=bool(keepdim))
    long = e.sqrt(e.sum(e.square(x), axes=axes, keepdim=True))
    own = e.type(e.sum(x, axes=axes, keepdim=bool(keepdim))).shape
    out = e.reshape(long, shape=own)
    if not e.trains(x):
        return out
    zero = e.full(0.0, e.type(x).dtype)

    def backward(g: Tensor) -> FakeTensor:
        row = e.reshape(g, shape=e.type(long).shape)
        return e.multiply(x, e.where(e.equal(long, zero), zero, e.divide(row, long)))

    return custom(e.trace, [lift(e.trace, x)], [out], backward, "p_norm")[0]


@adapter("logsumexp")
def logsumexp(
    e: Emitter, x: object, axis: object = (), keepdim: bool = False, reduce_all: bool = False
) -> FakeTensor:
    axes = () if reduce_all else axes_of(axis)
    if e.type(x).dtype not in (F32, F64) or e.type(x).ndim == 0:
        raise NoRow("logsumexp of these types")
    most = e.value(e.max(x, axes=axes, keepdim=True))
    most = e.trace.fake(detached(e.trace, most), True)
    total = e.log(e.sum(e.exp(e.subtract(x, most)), axes=axes, keepdim=True))
    shape = e.type(e.max(x, axes=axes, keepdim=bool(keepdim))).shape
    return e.reshape(e.add(total, most), shape=shape)


def not_empty(e: Emitter, x: object, axes: tuple[int, ...]) -> object:
    """Eager raises for the largest of nothing."""
    shape = e.type(x).shape
    for a in axes or range(len(shape)):
        if shape[a] == 0:
            raise NoRow("the largest of nothing")
        e.trace.require(shape[a], 1, "the largest or smallest of an axis")
    return x


for _name, _to in (("max", "max"), ("min", "min"), ("amax", "max"), ("amin", "min")):
    adapter(_name)(
        lambda e, x, axis=(), keepdim=False, _to=_to: getattr(e, _to)(
            not_empty(e, x, axes_of(axis)), axes=axes_of(axis), keepdim=bool(keepdim)
        )
    )


def _truth(e: Emitter, row: str, x: object, axis: object, keepdim: bool) -> FakeTensor:
    return getattr(e, row)(e.cast_to(x, BOOL), axes=axes_of(axis), keepdim=bool(keepdim))


adapter("all")(lambda e, x, axis=(), keepdim=False: _truth(e, "all", x, axis, keepdim))
adapter("any")(lambda e, x, axis=(), keepdim=False: _truth(e, "any", x, axis, keepdim))


@adapter("prod")
def prod(
    e: Emitter, x: object, axis: object, keepdim: bool, reduce_all: bool = False
) -> FakeTensor:
    return e.prod(x, axes=() if reduce_all else axes_of(axis), keepdim=bool(keepdim))


@adapter("argmax")
def argmax(
    e: Emitter,
    x: object,
    axis: object = None,
    keepdim: object = False,
    *rest: object,
    dtype: object = "int64",
) -> FakeTensor:
    """Also reached straight from `paddle.argmax`: (x, axis, keepdim, dtype)."""
    for q in rest:
        if q is True:
            axis = None
        elif q is not False and given(q):
            dtype = q
    want, ndim = dtype_of(dtype), e.type(x).ndim
    not_empty(e, x, () if axis is None else (int_of(axis),))
    if axis is not None:
        return e.argmax(x, axis=int_of(axis), keepdim=bool(keepdim), dtype=want)
    out = e.argmax(e.reshape(x, shape=(-1,)), axis=0, dtype=want)
    return e.reshape(out, shape=(1,) * ndim) if keepdim else out


@adapter("argmin")
def argmin(e: Emitter, x: object, *rest: object, **named: object) -> FakeTensor:
    """The largest of what has the other sign; of integers the smallest has none."""
    if e.type(x).dtype not in (F32, F64):
        raise NoRow("argmin of integers")
    return argmax(e, e.neg(x), *rest, **named)


#: elements for each one that is taken, from which on Paddle's kernel keeps a heap of them
HEAPED = 64


@adapter("topk")
def topk(
    e: Emitter,
    x: object,
    k: object,
    axis: object = -1,
    largest: bool = True,
    sorted: bool = True,
) -> tuple[FakeTensor, FakeTensor]:
    """Equal elements are in the order in which Paddle's kernel leaves them."""
    t, count, at = e.type(x), number_of(k), int_of(axis)
    if t.dtype not in (F32, F64, I32, I64) or not t.ndim:
        raise NoRow(f"topk of {t}")
    n, at = t.shape[at % t.ndim], at % t.ndim
    if type(count) is not int or not isinstance(n, int) or not 0 < count <= n:
        raise NoRow(f"{count} of {n} elements")
    if count * HEAPED < n:
        index = e.first(x, axis=at, count=count, largest=bool(largest))
    elif sorted:
        index = e.order(x, axis=at, count=count, largest=bool(largest))
        index = index if count == n else e.slice(index, axis=at, start=0, length=count)
    else:
        raise NoRow("elements in any order")
    return take_along_axis(e, x, index, at), index


@adapter("argsort")
def argsort(
    e: Emitter, x: object, axis: object = -1, descending: bool = False, stable: bool = False
) -> tuple[FakeTensor, FakeTensor]:
    """The elements in order, and their numbers."""
    t = e.type(x)
    if t.dtype not in (F32, F64, I32, I64) or not t.ndim:
        raise NoRow(f"argsort of {t}")
    at = int_of(axis) % t.ndim
    index = e.order(x, axis=at, largest=bool(descending), stable=bool(stable))
    return take_along_axis(e, x, index, at), index


@adapter("numel")
def numel(e: Emitter, x: object) -> FakeTensor:
    return e.scalar(e.trace.sym(product(e.type(x).shape)), I64)


@adapter("is_empty")
def is_empty(e: Emitter, x: object) -> FakeTensor:
    count = product(e.type(x).shape)
    if isinstance(count, int):
        return e.full(count == 0, BOOL)
    return e.equal(e.scalar(e.trace.sym(count), I64), e.full(0, I64))


@adapter("sequence_mask")
def sequence_mask(e: Emitter, x: object, maxlen: object, dtype: object) -> FakeTensor:
    """Return a mask of the first `maxlen` positions that come before each of the lengths `x`."""
    maxlen = number_of(maxlen)
    if maxlen is None or type(maxlen) is int and maxlen < 0:
        maxlen = e.max(e.cast_to(x, I64), axes=())
    maxlen = as_size(e.trace, maxlen)
    if not is_number(maxlen):
        raise NoRow("sequence_mask up to a tensor")
    n, kind = dim_of(maxlen), e.type(x).dtype
    places = e.wrap(e.trace.emit("iota", [], {"n": n, "start": 0, "step": 1, "dtype": kind}))
    lengths = e.reshape(x, shape=(*e.type(x).shape, 1))
    return e.cast_to(e.less_than(places, lengths), dtype_of(dtype))


@adapter("shape", "shape64")
def shape(e: Emitter, x: object) -> FakeTensor:
    """A tensor of sizes, which are known: it may be used as a shape."""
    dims = [e.trace.sym(d) for d in e.type(x).shape]
    parts = [e.reshape(e.scalar(d, I64), shape=(1,)) for d in dims]
    return e.concat(*parts, axis=0) if parts else e.full(0, I64, (0,))


@adapter("softmax")
def softmax(e: Emitter, x: object, axis: int = -1) -> FakeTensor:
    return e.softmax(x, axis=int(axis))


@adapter("log_softmax")
def log_softmax(e: Emitter, x: object, axis: int = -1) -> FakeTensor:
    return e.log_softmax(x, axis=int(axis))


@adapter("layer_norm")
def layer_norm(
    e: Emitter,
    x: object,
    weight: object = None,
    bias: object = None,
    epsilon: float = 1e-5,
    begin: int = 1,
) -> FakeTensor:
    if not 0 <= epsilon <= 1e-3:
        raise NoRow("an epsilon that Paddle's kernel refuses")
    t = e.type(x)
    size: Dim = 1
    for d in t.shape[begin:]:
        size = size * d
    w = e.full(1.0, t.dtype, (e.trace.sym(size),)) if weight is None else weight
    b = e.full(0.0, t.dtype, (e.trace.sym(size),)) if bias is None else bias
    return e.layer_norm(x, w, b, epsilon=float(epsilon), begin_norm_axis=int(begin))


@adapter("embedding")
def embedding(
    e: Emitter, x: object, weight: object, padding_idx: int = -1, sparse: bool = False
) -> FakeTensor:
    return e.embedding(x, weight, padding_idx=int(padding_idx))


@adapter("one_hot")
def one_hot(e: Emitter, x: object, n: object) -> FakeTensor:
    n = number_of(n)
    if isinstance(n, Tensor):
        raise NoRow("a class count that is a tensor")
    dtype = e.type(x).dtype
    above, below = e.greater_equal(x, e.scalar(0, dtype)), e.less_than(x, e.scalar(n, dtype))
    ok = e.all(e.logical_and(above, below))
    message = f"one_hot of an index outside of [0, {dim_of(n)})"
    check(e.trace, ok._value, "ValueError", message, caught=False)
    return e.one_hot(x, n=dim_of(n))


@adapter("gather")
def gather(e: Emitter, x: object, index: object, axis: object = 0) -> FakeTensor:
    shape = e.type(index).shape
    if len(shape) == 2 and shape[1] == 1:
        index = e.reshape(index, shape=shape[:1])
    elif len(shape) > 1:
        raise NoRow("gather with an index of rank 2")
    return e.gather(x, index, axis=int_of(axis))


@adapter("index_select")
def index_select(e: Emitter, x: object, index: object, axis: int = 0) -> FakeTensor:
    if e.type(index).ndim != 1:
        raise NoRow("index_select with an index that is not 1-d")
    return e.gather(x, index, axis=int(axis))


def drawn(
    e: Emitter, x: object, seed: object, p: float, mode: str, rest: Sequence[object]
) -> FakeTensor:
    """Dropout with a gradient: the kernel draws what is kept, on ones, and `where` applies it."""
    dtype = e.type(x).dtype
    if not grad_enabled() or lift(e.trace, x).stop_gradient or dtype not in (F32, F64) or p == 1:
        raise NoRow("dropout draws random numbers")
    ones = e.full(1.0, dtype, e.type(x).shape)
    ones.__dict__["_stop_gradient"] = True
    args = (ones, seed, p, False, "downscale_in_infer", *rest)
    kept = foreign.record(e.trace, "dropout", args, {}, None)
    zero = e.full(0.0, dtype)
    scaled = x
    if mode == "upscale_in_train":
        scaled = e.divide(x, e.full(float(np.float32(1) - np.float32(p)), dtype))
    return e.where(e.not_equal(kept, zero), scaled, zero)


@adapter("gumbel_softmax")
def gumbel_softmax(
    e: Emitter, x: Tensor, temperature: float = 1.0, hard: bool = False, axis: int = -1
) -> object:
    """The kernel draws; the gradient is that of a softmax with this result, as Paddle's kernel."""
    if not grad_enabled() or lift(e.trace, x).stop_gradient:
        raise NoRow("gumbel_softmax draws random numbers")
    args = (x.detach(), temperature, hard, axis)
    out: Any = foreign.record(e.trace, "gumbel_softmax", args, {}, None)

    def backward(g: Tensor) -> Tensor:
        return (g - (g * out).sum(axis, keepdim=True)) * out

    return custom(e.trace, [lift(e.trace, x)], [out], backward, "gumbel_softmax")[0]


@adapter("dropout")
def dropout(
    e: Emitter,
    x: Tensor,
    seed: object = None,
    p: float | Tensor = 0.5,
    is_test: bool = False,
    mode: str = "downgrade_in_infer",
    *rest: object,
) -> FakeTensor:
    if isinstance(p, Tensor) or is_runtime(p):
        raise NoRow("dropout with a probability that the program computes")
    if not is_test:
        return drawn(e, x, seed, float(p), mode, rest)
    return e.assign(x) if mode == "upscale_in_train" else e.scale(x, scale=1.0 - float(p))
