"""Common functions with a named first size for each argument, equal where they must be."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle.static import InputSpec

import dy2st
from tests import check
from tests.dy2st.capture.adapters.common import (
    test_functions,
    test_indices,
    test_layers,
    test_losses,
    test_shapes,
)
from tests.dy2st.capture.adapters.common.cases import fl

pytestmark = pytest.mark.sampled

MODULES = (test_functions, test_indices, test_layers, test_losses, test_shapes)
CASES = {n: c for m in MODULES for n, c in m.CASES.items()}
#: what a size that is not known takes apart, or what needs a square or a certain length
FIXED = frozenset(
    "chunk hsplit unstack iter svd qr pinv inv solve matrix_power kron cross segment "
    "temporal_shift fill_diag_t strided_slice layer_norm batch_norm prelu conv2dT conv1dT ctc "
    "elem3 isin diag".split()
) | {"einsum tr", "cos sim", "norm fro", "emb pad neg"}


def spec_of(t):
    shape = list(t.shape)
    if shape:
        shape[0] = None
    return InputSpec(shape, str(t.dtype).split(".")[-1], stop_gradient=t.stop_gradient)


@pytest.mark.quick("ce ignore", "kl", "topk", "sdpa", "take_along")
@pytest.mark.parametrize("name", [n for n in CASES if n not in FIXED])
def test_as_eager(name):
    f, *make = CASES[name]
    args = [m() for m in make]
    static = dy2st.to_static(f, input_spec=[spec_of(q) for q in args])
    one, two = check.detached(args), check.detached(args)
    paddle.seed(1)
    want, wanted = check.step(f, one, one)
    paddle.seed(1)
    have, had = check.step(static, two, two)
    check.same(have, want, rtol=1e-4, atol=1e-5)
    for a, b in zip(had, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)


def test_two_sizes_of_a_kernel_are_found_equal():
    """One program for every batch; a call whose labels are of another length is an error."""
    spec = [InputSpec([None, 4], "float32"), InputSpec([None], "int64")]
    static = dy2st.to_static(lambda x, y: F.cross_entropy(x, y), input_spec=spec)
    for n in (3, 5, 1):
        x, y = fl([n, 4], trained=False), paddle.zeros([n], "int64")
        check.same(static(x, y), F.cross_entropy(x, y))
    assert "y_0 == x_0" in [str(q) for q in static.program(x, y).requires]
    for n in (1, 2, 4):
        with pytest.raises(ValueError, match="same shape"):
            static(fl([3, 4]), paddle.zeros([n], "int64"))


def test_a_shape_that_is_no_polynomial_is_refused():
    spec = [InputSpec([None, 4], "float32")]
    with pytest.raises(dy2st.SourceError, match="named sizes"):
        dy2st.to_static(lambda x: paddle.linalg.svd(x)[1], input_spec=spec)(fl([3, 4]))


def test_every_second_row_of_a_named_size():
    spec = [InputSpec([None, 4], "float32")]
    static = dy2st.to_static(lambda x: x[::2], input_spec=spec)
    for n in (3, 4, 1):
        x = fl([n, 4], trained=False)
        y = static(x)
        check.same(y, x[::2])
        y.add_(paddle.ones_like(y))
        check.same(y, x[::2])


def sizes_by_calls(x):
    flat = x.reshape([x.size(0), -1])
    return flat, x.reshape(x.size()), x.size(), x.size(-1), x * x.size


def test_the_size_of_an_axis_by_a_call():
    static = dy2st.to_static(sizes_by_calls, [InputSpec([None, None, 4], "float32", "x")])
    for shape in ([2, 3, 4], [5, 1, 4], [3, 7, 4]):
        x = paddle.ones(shape)
        check.same(static(x), sizes_by_calls(x))
    with pytest.raises(TypeError, match="not callable"):
        dy2st.to_static(lambda x: x.shape[0](1), [InputSpec([None, 4], "float32")])(x[0])
