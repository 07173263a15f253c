"""Functions that draw random numbers: as in eager."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
import pytest

from tests.dy2st.capture.adapters.common.cases import compare, img, p34, u34, x34, y34

pytestmark = pytest.mark.sampled


CASES = {
    "poisson nll": (lambda x, y: F.poisson_nll_loss(x, y.detach().abs()), x34, y34),
    "multinomial": (
        lambda x: (paddle.multinomial(x, 2), paddle.multinomial(x, 5, replacement=True)),
        p34,
    ),
    "bernoulli": (lambda x: paddle.bernoulli(x), u34),
    "normal_": (lambda x: (x.detach() * 1).normal_(), x34),
    "uniform_": (lambda x: (x.detach() * 1).uniform_(-1.0, 2.0), x34),
    "exponential_": (lambda x: (x.detach() * 1).exponential_(2.0), x34),
    "rand": (lambda x: (paddle.rand([2, 3]), paddle.uniform([2, 3]), x), x34),
    "randn": (
        lambda x: (
            paddle.randn([2, 3]),
            paddle.standard_normal([2]),
            paddle.normal(1.0, 2.0, [3]),
            x,
        ),
        x34,
    ),
    "randint": (lambda x: (paddle.randint(0, 5, [2, 3]), paddle.randint_like(x, 0, 5), x), x34),
    "randperm": (lambda x: (paddle.randperm(5), x), x34),
    "rand_like": (lambda x: (paddle.rand_like(x), paddle.randn_like(x)), x34),
    "gumbel": (lambda x: F.gumbel_softmax(x), x34),
    "gumbel hard": (lambda x: F.gumbel_softmax(x, hard=True), x34),
    "dropout": (lambda x: F.dropout(x, 0.3), x34),
    "dropout2d": (lambda x: F.dropout2d(x, 0.3), img),
    "dropout axis": (lambda x: F.dropout(x, 0.3, axis=0), x34),
    "alpha_dropout": (lambda x: F.alpha_dropout(x, 0.3), x34),
    "feature_ad": (lambda x: F.feature_alpha_dropout(x, 0.3), img),
    "log_normal": (lambda x: paddle.log_normal(0.0, 1.0, [3]), x34),
    "cauchy_": (lambda x: (x.detach() * 1).cauchy_(), x34),
    "geometric_": (lambda x: (x.detach() * 1).geometric_(0.3), x34),
    "standard_gamma": (lambda x: paddle.standard_gamma(x), p34),
    "binomial": (lambda x: paddle.binomial(paddle.full([3, 4], 5, "int32"), x.detach()), u34),
}


@pytest.mark.quick("multinomial", "gumbel")
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name):
    compare(CASES[name])
