"""Elements by index tensors, and running sums: values and gradients against eager Paddle."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

import dy2st
from tests import check

pytestmark = pytest.mark.sampled

RNG = np.random.default_rng(11)


def t(shape, dtype="float32", low=-2.0, high=2.0):
    return paddle.to_tensor(RNG.uniform(low, high, shape).astype(dtype))


def ints(values, dtype="int64"):
    return paddle.to_tensor(np.asarray(values, dtype))


X, U, Q = t([3, 4]), t([3, 4]), t([2, 3, 4])
INT = ints([[5, -3, 2, 9], [0, 1, -7, 4], [3, 3, 8, -2]])
MASK = X > 0
ROWS, PAIRS = ints([2, 0, -2]), ints([[0, 1], [2, -1], [0, 1]])
ALONG = ints([[0, 2, 1, 2], [1, 1, 0, 0]])
V = t([2, 4])
TIED = paddle.to_tensor(np.array([[3.0, 1, 3, 5, 5, 2], [0, -1, -1, 0, 4, 4]], "float32"))
NAN = paddle.to_tensor(np.array([1.0, np.nan, 3, np.nan, 0], "float32"))


def along(reduce, include_self):
    return lambda x, i, v: paddle.put_along_axis(
        x, i, v, 0, reduce=reduce, include_self=include_self, broadcast=False
    )


def places(f, *args, **kwargs):
    """Values and places; in eager, these integers are marked as having a gradient."""

    def g(x):
        values, index = f(x, *args, **kwargs)
        return values, index.detach()

    return g


#: operands follow; the first one and floating values are differentiated
CASES = {
    "gather_nd": (paddle.gather_nd, X, PAIRS),
    "gather_nd rows": (paddle.gather_nd, Q, ints([[1], [0], [-1]])),
    "gather_nd of rank 3": (paddle.gather_nd, Q, ints([[[1, 2]], [[0, -1]]])),
    "gather_nd int32": (paddle.gather_nd, X, ints([[1, 2]], "int32")),
    "gather_nd of ints": (paddle.gather_nd, INT, PAIRS),
    "gather column": (lambda x, i: paddle.gather(x, i), X, ints([[1], [0]])),
    "take_along_axis": (lambda x, i: paddle.take_along_axis(x, i, 0), X, ALONG[:1]),
    "take_along_axis short": (
        lambda x, i: paddle.take_along_axis(x, i, 1, broadcast=False), X, ints([[1, 1], [-1, 0]])),
    "index_sample": (paddle.index_sample, X, ints([[0, 1], [2, 3], [1, 1]])),
    "take": (lambda x, i: paddle.take(x, i), X, ints([[0, -1], [5, 3]])),
    "scatter": (paddle.scatter, X, ints([2, 0]), U[:2]),
    "scatter more rows": (paddle.scatter, X, ints([2, 0]), U),
    "scatter column": (paddle.scatter, X, ints([[2], [0], [1]]), U),
    "scatter one": (paddle.scatter, X, ints(1), U[0]),
    "scatter add": (
        lambda x, i, u: paddle.scatter(x, i, u, overwrite=False), X, ints([1, 1, 0]), U),
    "scatter_nd_add": (paddle.scatter_nd_add, X, PAIRS, t([3])),
    "scatter_nd_add rows": (paddle.scatter_nd_add, X, ints([[1], [1]]), U[:2]),
    "scatter_nd": (lambda i, u: paddle.scatter_nd(i, u, [3, 4]), PAIRS, t([3])),
    "index_add": (lambda x, i, u: paddle.index_add(x, i, 0, u), X, ROWS, U),
    "index_add columns": (lambda x, i, u: paddle.index_add(x, i, 1, u), X, ints([0, 0]), t([3, 2])),
    "index_put": (lambda x, v: paddle.index_put(x, (ints([0, -1]), ints([1, 1])), v), X, t([2])),
    "index_put rows": (lambda x, v: paddle.index_put(x, (ints([0, -1]),), v), X, t([4])),
    "index_put add": (
        lambda x, v: paddle.index_put(x, (ints([0, 0]), ints([1, 1])), v, accumulate=True),
        X, t([2])),
    "index_put grid": (
        lambda x, v: paddle.index_put(x, (ints([[0], [1]]), ints([1, 2])), v), X, t([])),
    "index_put mask": (lambda x, m, v: paddle.index_put(x, (m,), v), X, MASK, t([1])),
    "index_fill": (lambda x, i: paddle.index_fill(x, i, 1, 7.0), X, ints([0, -1])),
    "index_fill tensor": (lambda x, i, v: paddle.index_fill(x, i, 0, v), X, ints([0, 2]), t([])),
    "put_along_axis": (lambda x, i, v: paddle.put_along_axis(x, i, v, 0), X, ALONG[1:], t([1, 4])),
    "put_along_axis number": (lambda x, i: paddle.put_along_axis(x, i, 2.0, 1), X, ints([[1]] * 3)),
    "put add": (along("add", True), X, ALONG, V),
    "put add alone": (along("add", False), X, ALONG, V),
    "put multiply": (along("mul", True), X, ALONG, V),
    "put amax": (along("amax", True), X, ALONG, V),
    "put amin": (along("amin", True), X, ALONG, V),
    "put mean": (along("mean", True), X, ALONG, V),
    "put mean alone": (along("mean", False), X, ALONG, V),
    "select_scatter": (lambda x, v: paddle.select_scatter(x, v, 1, 2), X, t([3])),
    "slice_scatter": (
        lambda x, v: paddle.slice_scatter(x, v, [1], [0], [4], [2]), X, t([3, 2])),
    "diagonal_scatter": (lambda x, v: paddle.diagonal_scatter(x, v.detach()), X, t([3])),
    "masked_fill": (lambda x, m: paddle.masked_fill(x, m, 7.0), X, MASK),
    "masked_fill row": (paddle.masked_fill, X, MASK[0], t([])),
    "masked_scatter": (lambda x, m, u: paddle.masked_scatter(x, m, u), X, MASK, U),
    "masked_scatter row": (lambda x, m, u: x.masked_scatter(m, u), X, MASK[0], U),
    "fill_diagonal_tensor": (lambda x, y: x.fill_diagonal_tensor(y), X, t([3])),
    "fill_diagonal_tensor above": (lambda x, y: x.fill_diagonal_tensor(y, offset=1), X, t([3])),
    "fill_diagonal_tensor below": (lambda x, y: x.fill_diagonal_tensor(y, offset=-1), X, t([2])),
    "fill_diagonal_tensor of rank 3": (
        lambda x, y: x.fill_diagonal_tensor(y, dim1=0, dim2=2), Q, t([3, 2])),
    "cumsum": (lambda x: (x.cumsum(), x.cumsum(0), x.cumsum(-1)), X),
    "cumsum of ints": (lambda x: (x.cumsum(), x.cumsum(0), x.astype("int32").cumsum(1)), INT),
    "cumsum of one": (lambda x: x.cumsum(), t([])),
    "cumsum f64": (lambda x: x.cumsum(0, dtype="float64"), X),
    "cumsum of none": (lambda x: x.cumsum(0), t([0, 3])),
    "cumprod": (lambda x: (x.cumprod(0), x.cumprod(1)), X),
    "cumprod of zeros": (lambda x: (x * paddle.to_tensor([1.0, 0.0, 1.0, 1.0])).cumprod(1), X),
    "cumprod of ints": (lambda x: (x.cumprod(0), x.astype("int32").cumprod(1)), INT),
    "cummax": (places(paddle.cummax, 1), TIED),
    "cummin": (places(paddle.cummin, 1), TIED),
    "cummax of ints": (places(paddle.cummax, 0, dtype="int32"), INT),
    "cummax of NaN": (places(paddle.cummax), NAN),
    "cummin of NaN": (places(paddle.cummin), NAN),
    "logcumsumexp": (lambda x: (paddle.logcumsumexp(x), paddle.logcumsumexp(x * 5, 0)), X),
    "roll": (lambda x: (x.roll(1), x.roll([1, -6], [0, 1]), x.roll(0, 1), x.roll(5, -1)), X),
}  # fmt: skip


def copies(args, name):
    def fixed(a):
        return name in VALUES_ONLY or not a.is_floating_point()

    return [paddle.to_tensor(a.numpy(), stop_gradient=fixed(a)) for a in args]


def gradients(f, args):
    out = f(*args)
    floats = [q for q in check.leaves(out) if q.is_floating_point() and not q.stop_gradient]
    weights = np.random.default_rng(3)
    losses = [
        (q * paddle.to_tensor(weights.uniform(0.5, 2, q.shape).astype(q.numpy().dtype))).sum()
        for q in floats
    ]
    if losses:
        sum(losses[1:], losses[0]).backward()
    return out, [a.grad for a in args if isinstance(a, paddle.Tensor) and not a.stop_gradient]


#: run on Paddle's kernel
FOREIGN = ("cummax", "cummin", "logcumsumexp")
#: eager Paddle's gradients write or read outside of their tensors
VALUES_ONLY = {"scatter more rows", "put multiply", "put amax", "put amin", "put mean",
               "put mean alone", "masked_fill row"}  # fmt: skip


@pytest.mark.quick(
    "gather_nd", "take", "index_add", "select_scatter", "fill_diagonal_tensor below",
    "cumprod of ints",
)  # fmt: skip
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    f, *args = CASES[name]
    static = dy2st.to_static(f)
    for _ in range(2):
        one, two = copies(args, name), copies(args, name)
        want, grads = gradients(f, one)
        have, got = gradients(static, two)
        check.same(
            list(have) if isinstance(have, tuple) else have,
            list(want) if isinstance(want, tuple) else want,
        )
        check.same(got, grads)
    assert bool(dy2st.report(static, *two).foreign) == name.startswith(FOREIGN)
