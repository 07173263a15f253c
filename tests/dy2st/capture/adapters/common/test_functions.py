"""Elementwise functions, reductions and linear algebra: as in eager."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
import pytest

from tests.dy2st.capture.adapters.common.cases import compare, fl, it, lab, p34, u34, x34, x234, y34

pytestmark = pytest.mark.sampled


CASES = {
    "cumsum": (
        lambda x: (x.cumsum(), x.cumsum(0), x.cumsum(-1), paddle.cumsum(x, 1, dtype="float64")),
        x34,
    ),
    "cumprod": (lambda x: (paddle.cumprod(x, 0), x.cumprod(-1)), x34),
    "cummax": (lambda x: (*paddle.cummax(x, 1), *paddle.cummin(x, 0)), x34),
    "logcumsumexp": (lambda x: paddle.logcumsumexp(x, 1), x34),
    "logsumexp": (
        lambda x: (
            x.logsumexp(),
            paddle.logsumexp(x, 1),
            paddle.logsumexp(x, [0, 1], keepdim=True),
        ),
        x34,
    ),
    "logaddexp": (lambda x, y: paddle.logaddexp(x, y), x34, y34),
    "einsum": (
        lambda x, y: (
            paddle.einsum("ij,kj->ik", x, y),
            paddle.einsum("ij,ij->i", x, y),
            paddle.einsum("ij->ji", x),
        ),
        x34,
        y34,
    ),
    "einsum b": (lambda x: paddle.einsum("bij,bkj->bik", x, x), x234),
    "einsum tr": (lambda x: paddle.einsum("ii->", x), lambda: fl([4, 4])),
    "einsum ell": (lambda x, y: paddle.einsum("...j,kj->...k", x, y), x234, x34),
    "clip": (lambda x: (x.clip(-1.0, 1.0), paddle.clip(x, min=0.0), x.clip(max=0.5)), x34),
    "lerp": (lambda x, y: (paddle.lerp(x, y, 0.3), x.lerp(y, x)), x34, y34),
    "outer": (lambda x, y: paddle.outer(x, y), lambda: fl([3]), lambda: fl([4])),
    "inner": (lambda x, y: paddle.inner(x, y), x34, y34),
    "dot": (lambda x, y: (paddle.dot(x, y), paddle.dot(x[0], y[0])), x34, y34),
    "cross": (lambda x, y: paddle.cross(x, y, axis=0), x34, y34),
    "kron": (lambda x, y: paddle.kron(x, y), x34, y34),
    "dist": (lambda x, y: (paddle.dist(x, y), paddle.dist(x, y, 1)), x34, y34),
    "cdist": (lambda x, y: paddle.cdist(x, y), x34, y34),
    "pairwise": (lambda x, y: F.pairwise_distance(x, y), x34, y34),
    "allclose": (
        lambda x, y: (
            paddle.allclose(x, y),
            paddle.allclose(x, x),
            x.equal_all(x),
            paddle.equal_all(x, y),
            paddle.isclose(x, y),
        ),
        x34,
        y34,
    ),
    "allclose if": (lambda x, y: x * 2 if paddle.allclose(x, y) else x, x34, y34),
    "mm": (
        lambda x, y: (
            paddle.mm(x, y.t()),
            x @ y.T,
            paddle.matmul(x, y, transpose_y=True),
            paddle.mv(x, y[0]),
        ),
        x34,
        y34,
    ),
    "bmm": (lambda x: paddle.bmm(x, x.transpose([0, 2, 1])), x234),
    "addmm": (
        lambda x, y: paddle.addmm(paddle.zeros([3, 3]), x, y.t(), beta=0.5, alpha=2.0),
        x34,
        y34,
    ),
    "bilinear": (lambda x, y, w: F.bilinear(x, y, w), x34, y34, lambda: fl([2, 4, 4])),
    "linear": (lambda x, w, b: F.linear(x, w, b), x34, lambda: fl([4, 5]), lambda: fl([5])),
    "tensordot": (
        lambda x, y: (paddle.tensordot(x, y, [[1], [1]]), paddle.tensordot(x, y, 2)),
        x34,
        y34,
    ),
    "minmax": (
        lambda x, y: (
            paddle.maximum(x, y),
            paddle.minimum(x, y),
            paddle.fmax(x, y),
            x.amax(1),
            x.amin(0),
        ),
        x34,
        y34,
    ),
    "reduce": (
        lambda x: (
            x.sum(),
            x.mean(1),
            x.prod(0),
            x.sum([0, 1], keepdim=True),
            paddle.nansum(x),
            x.nanmean(1),
        ),
        x34,
    ),
    "sum dtype": (
        lambda x: (x.sum(dtype="float64"), (x > 0).sum(), (x > 0).astype("float32").mean()),
        x34,
    ),
    "count_nonzero": (lambda x: paddle.count_nonzero(x, 1), x34),
    "allany": (
        lambda x: (
            (x > 0).all(),
            (x > 0).any(1),
            paddle.logical_and(x > 0, x < 1),
            paddle.logical_not(x > 0),
            paddle.logical_xor(x > 0, x < 1),
        ),
        x34,
    ),
    "bitw": (
        lambda i: (
            paddle.bitwise_and(i, i + 1),
            paddle.bitwise_or(i, i),
            paddle.bitwise_xor(i, i + 1),
            paddle.bitwise_not(i),
        ),
        lambda: it([3]),
    ),
    "elem": (
        lambda x: (
            x.exp(),
            x.sin(),
            x.cos(),
            x.tanh(),
            x.abs(),
            x.square(),
            x.sigmoid(),
            x.erf(),
            x.expm1(),
            x.atan(),
            x.neg(),
        ),
        x34,
    ),
    "elem pos": (
        lambda x: (
            x.log(),
            x.sqrt(),
            x.rsqrt(),
            x.log1p(),
            x.log2(),
            x.log10(),
            x.reciprocal(),
            x.digamma(),
            x.lgamma(),
        ),
        p34,
    ),
    "elem3": (
        lambda x: (
            paddle.deg2rad(x),
            paddle.rad2deg(x),
            paddle.heaviside(x, x),
            paddle.nan_to_num(x),
            paddle.frac(x),
            paddle.i0(x),
            paddle.sinc(x),
            paddle.signbit(x),
            paddle.ldexp(x, paddle.to_tensor([2, 1, 0, 1])),
        ),
        x34,
    ),
    "polygamma": (lambda x: (paddle.polygamma(x, 1), paddle.gammaln(x)), p34),
    "multiply etc": (
        lambda x, y: (
            paddle.add(x, y),
            paddle.subtract(x, y),
            paddle.multiply(x, y),
            paddle.divide(x, y),
            paddle.add_n([x, y]),
            paddle.scale(x, 2.0, 1.0),
            paddle.sgn(x),
        ),
        x34,
        p34,
    ),
    "increment": (lambda x: paddle.increment(x.detach()[0, :1] * 1, 2.0), x34),
    "stanh": (lambda x: (paddle.stanh(x), F.hardsigmoid(x), F.thresholded_relu(x)), x34),
    "diff": (lambda x: (paddle.diff(x), paddle.diff(x, axis=0)), x34),
    "trapz": (lambda x: (paddle.trapezoid(x), paddle.cumulative_trapezoid(x)), x34),
    "vander": (lambda x: paddle.vander(x[0], 3), x34),
    "cov": (lambda x: (paddle.linalg.cov(x), paddle.linalg.corrcoef(x)), x34),
    "multi_dot": (lambda x, y: paddle.linalg.multi_dot([x, y.t(), x]), x34, y34),
    "matrix_power": (lambda x: paddle.linalg.matrix_power(x, 3), lambda: fl([3, 3])),
    "inv": (
        lambda x: (
            paddle.linalg.inv(x + paddle.eye(3) * 4),
            paddle.linalg.det(x),
            paddle.linalg.slogdet(x),
        ),
        lambda: fl([3, 3]),
    ),
    "chol": (lambda x: paddle.linalg.cholesky(x @ x.t() + paddle.eye(3)), lambda: fl([3, 3])),
    "solve": (
        lambda x, y: (
            paddle.linalg.solve(x + paddle.eye(3) * 4, y),
            paddle.linalg.triangular_solve(x + paddle.eye(3) * 4, y),
        ),
        lambda: fl([3, 3]),
        x34,
    ),
    "svd": (lambda x: paddle.linalg.svd(x)[1], x34),
    "qr": (lambda x: paddle.linalg.qr(x), lambda: fl([4, 3])),
    "eigh": (lambda x: paddle.linalg.eigh(x + x.t())[0], lambda: fl([3, 3])),
    "eigvalsh": (lambda x: paddle.linalg.eigvalsh(x + x.t()), lambda: fl([3, 3])),
    "pinv": (lambda x: paddle.linalg.pinv(x), x34),
    "lstsq": (lambda x, y: paddle.linalg.lstsq(x, y)[0], lambda: fl([4, 3]), lambda: fl([4, 2])),
    "matrix_rank": (lambda x: paddle.linalg.matrix_rank(x), x34),
    "sequence_mask": (lambda i: F.sequence_mask(i, 5), lambda: it([3], 1, 5)),
    "cast methods": (
        lambda x: (x.astype("float64"), x.cast("int32"), x.to("float64"), x.double(), x.float()),
        x34,
    ),
    "type_as": (lambda x, i: x.type_as(i), x34, lab),
    "contig": (lambda x: (x.t().contiguous(), x.is_contiguous(), x.clone(), x.detach()), x34),
    "fns": (
        lambda x: (
            paddle.rank(x),
            paddle.numel(x),
            paddle.is_tensor(x),
            paddle.is_floating_point(x),
            paddle.is_integer(x),
            paddle.is_complex(x),
        ),
        x34,
    ),
    "renorm": (lambda x: paddle.renorm(x, 2.0, 0, 1.0), x34),
    "cumulative": (lambda x: paddle.cumsum(x.flatten()), x34),
    "logit": (lambda x: paddle.logit(x, 1e-06), u34),
    "bool": (lambda x: bool((x > 0).any()), x34),
    "zero_": (lambda x: ((x * 1).zero_(), (x * 1).fill_(2.0)), x34),
    "vecdot": (lambda x, y: paddle.vecdot(x, y), x34, y34),
    "std_mean": (lambda x: (x.std(), x.mean(), x.var(1)), x34),
    "stop": (lambda x: (x.detach() * 2, x * 2), x34),
    "mean int": (
        lambda i: (i.astype("float32").mean(), i.sum(), i.max(), i.prod(), i.cumsum(0)),
        lambda: it([3, 4]),
    ),
    "adaptive lsm": (lambda x: F.softmax(x).log(), x34),
    "rnnt": (lambda x: x.abs().sum().sqrt(), x34),
    "class_center": (lambda x: x.reshape([2, -1]).mean(-1), x34),
    "bitwise shift": (lambda i: (i << 1, i >> 1), lab),
}


@pytest.mark.quick("cumsum")
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name):
    compare(CASES[name])
