"""Arguments of the cases, and how a case is compared with eager Paddle."""

from __future__ import annotations

import numpy as np
import paddle

import dy2st
from tests import check


def fl(shape, low=-2.0, high=2.0, trained=True, seed=0):
    """Floats; others for each rank, sum of sizes and seed."""
    rng = np.random.default_rng(seed + 17 * len(shape) + sum(shape))
    values = rng.uniform(low, high, shape).astype("float32")
    return paddle.to_tensor(values, stop_gradient=not trained)


def it(shape, low=0, high=4, dtype="int64", seed=0):
    """Integers from `low` to below `high`."""
    rng = np.random.default_rng(seed + sum(shape))
    return paddle.to_tensor(rng.integers(low, high, shape).astype(dtype))


def x34():
    return fl([3, 4])


def y34():
    return fl([3, 4], seed=9)


def x234():
    return fl([2, 3, 4])


def img():
    return fl([2, 3, 4, 6])


def p34():
    return fl([3, 4], 0.1, 3.0)


def u34():
    return fl([3, 4], 0.05, 0.95)


def q4():
    return fl([2, 5, 2, 4])


def lab():
    return it([3], 0, 4)


def compare(case):
    """Results, gradients and the generator of two calls; no gradient where eager has none. Returns
    the report."""
    f, *make = case
    args = [m() for m in make]
    static = dy2st.to_static(f)
    for k in range(2):
        one, two = check.detached(args), check.detached(args)
        paddle.seed(k)
        want, wanted = check.step(f, one, one)
        state = check.random_state()
        paddle.seed(k)
        have, had = check.step(static, two, two)
        assert check.random_state() == state
        check.same(have, want, rtol=1e-4, atol=1e-5)
        for a, b in zip(had, wanted, strict=True):
            assert (a is None) == (b is None), "a gradient that only one of them has"
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-5)
    return dy2st.report(static, *args)
