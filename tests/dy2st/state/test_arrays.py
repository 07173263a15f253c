"""The stand-in for a NumPy array computes as NumPy does."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

import dy2st
from dy2st.state.arrays import made_array
from dy2st.trace.emitter import lift
from dy2st.trace.trace import current
from tests import check

X = paddle.arange(12, dtype="float64").reshape([3, 4]) / 8
EXACT = []
REFUSED = []


def as_array(x):
    trace = current()
    return x.numpy() if trace is None else made_array(trace, lift(trace, x).clone())


def plain(x):
    """NumPy's scalars are Python numbers where a program has such numbers."""
    if isinstance(x, (tuple, list)):
        return type(x)(map(plain, x))
    return x.item() if isinstance(x, (np.float64, np.int64, np.bool_)) else x


def case(cases):
    return lambda f: cases.append(pytest.param(f, id=f.__name__)) or f


@pytest.mark.sampled
@pytest.mark.quick("to_tensors", "element_types", "with_arrays", "elements", "shapes", "as_python")
@pytest.mark.parametrize("f", EXACT)
def test_as_numpy(f):
    static = dy2st.to_static(f)
    for k in range(3):
        check.same(static(X + k), plain(f(X + k)))


@pytest.mark.parametrize("f", REFUSED)
def test_refused_by_name(f):
    with pytest.raises(dy2st.SourceError, match=f.__doc__) as caught:
        dy2st.to_static(f)(X)
    assert "FakeArray" not in str(caught.value)


@case(EXACT)
def to_tensors(x):
    a = as_array(x)
    return paddle.to_tensor(a), paddle.to_tensor(a, dtype="float32"), paddle.to_tensor(a[0])


@case(EXACT)
def functions_that_are_methods(x):
    a = as_array(x)
    b = np.transpose(np.reshape(a, [2, 6]))
    return (
        np.mean(a),
        np.sum(a, axis=0),
        np.max(b, 1),
        np.argmin(a),
        np.any(a),
        np.ravel(np.copy(b)),
    )


@case(EXACT)
def whole_quotients(x):
    a = as_array(x).astype("int64") - 2
    with np.errstate(all="ignore"):  # a quotient by zero is zero
        found = 12 // a, a // 5, a % 3, 7 % a, np.floor_divide(a, -2), (a * a + 1) // a
        a //= 2
        return *found, a, x.shape[0] // a[0]


@case(EXACT)
def with_tensors(x):
    a = as_array(x)
    y = x.astype("float32")
    return x * a, a * x, a - x, x / (a + 1), y * a.astype("float32"), a > x, x <= a, x * a[1, 2]


@case(EXACT)
def in_a_list(x):
    a = as_array(x)
    i = (a * 8).astype("int32")
    b = paddle.to_tensor([a, a]), paddle.to_tensor((i, i)), paddle.to_tensor([[a > 0], [a < 1]])
    return b, paddle.to_tensor([a, x]), paddle.to_tensor([a, i], dtype="float64"), [a[0], a[1]]


@case(EXACT)
def with_numbers(x):
    a = as_array(x)
    return a + 1, 2 * a, 1 - a, a / 4, 1 / (a + 1), -a, abs(a - 1), +a, a < 1, a == 0.5, a != 0


@case(EXACT)
def element_types(x):
    a = as_array(x)
    i, f, b = (a * 8).astype("int64"), a.astype("float32"), a > 0.5
    j = i.astype(np.int32)
    return i + 1, i / 2, i * 1.5, f * 2, f + a, j + i, j * 2, b + 1, b * f, i < f, f.astype(int)


@case(EXACT)
def with_arrays(x):
    a = as_array(x)
    real = np.arange(4.0)
    return a + real, real - a, a * a, np.float64(2) * a, np.multiply(a, real), a < real


@case(EXACT)
def elements(x):
    a = as_array(x)
    f = a.astype("float32")
    return float(a[1, 2]), a[1], a[:, 1:3], a[-1][0] + 1, a[1][None], float(f[0, 1]), f[2, 3] * 0.1


@case(EXACT)
def shapes(x):
    a = as_array(x)
    return a.shape, a.ndim, a.size, len(a), a.T, a.reshape(2, -1), a.reshape([12]), a.flatten()


@case(EXACT)
def as_python(x):
    a = as_array(x)
    i = (a * 8).astype("int64")
    first, second, third = i[:, 0]
    return a[0].tolist(), a.item(1, 1), a[0].item(2), first + third, second, [q + 1 for q in a[1]]


@case(EXACT)
def as_an_index(x):
    i = (as_array(x)[0] * 8).astype("int64") % 3 if False else (as_array(x)[0] * 0).astype("int64")
    return x[i], x[:, i], x[i[1]], x[i, i]


@case(EXACT)
def written_in_place(x):
    a = as_array(x * 1)
    b = a
    a += 1
    a[0] = 5
    a[1, 2] = 7.5
    a[2] = a[1]
    view = a[:, 1]
    view *= 2
    return a, b, view


@case(EXACT)
def in_a_loop(x):
    a, total = as_array(x), 0.0
    scaled = a * 0
    for t in range(3):
        scaled = scaled + a[t]
        total += a[t, 0]
    for row in a:
        total += row[1]
    return scaled, total


@case(EXACT)
def in_a_branch(x):
    a = as_array(x)
    if x.sum() > 20:
        a = a + 1
    else:
        a = a * 2
    return a, a[0, 0]


@case(EXACT)
def decided_by_an_element(x):
    a = as_array(x)
    y = x
    if a[0, 1] > 1:
        y = y + 1
    if a.astype("float32")[0, 1] > 1:
        y = y * 2
    while a[0, 0] + y.sum() < 100:
        y = y * 2
    return y


@case(EXACT)
def printed(x):
    a = as_array(x)
    print(a[0], a, f"{a[0, 0]:.3f}")
    return isinstance(a, np.ndarray), type(a) is np.ndarray, a.dtype == np.float64


@case(REFUSED)
def other_functions(x):
    """numpy.sin of an array"""
    return np.sin(as_array(x))


@case(REFUSED)
def other_array_functions(x):
    """numpy.concatenate of an array"""
    return np.concatenate([as_array(x), as_array(x)])


@case(REFUSED)
def other_methods(x):
    """numpy.ndarray.argsort of an array"""
    return as_array(x).argsort()


@case(REFUSED)
def other_operators(x):
    """the operator floordiv with float64 of an array"""
    return as_array(x) // 2


@case(REFUSED)
def other_element_types(x):
    """an array of complex128"""
    return as_array(x).astype(complex)


@case(REFUSED)
def integers_written_with_floats(x):
    """an item of an array of int64"""
    a = as_array(x).astype("int64")
    a[0] = 1.5
    return a
