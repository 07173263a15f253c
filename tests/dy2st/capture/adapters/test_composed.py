"""Calls that are made of several rows: eager's results and gradients, no foreign op."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import geometric

import dy2st
from tests.check import agree, data

pytestmark = pytest.mark.sampled

INF, NAN = float("inf"), float("nan")
ODD = [-INF, -1.0, -0.5, -0.3, -0.0, 0.0, 0.2, 0.5, 0.7, INF, NAN]
SOURCE, TARGET = (paddle.to_tensor(q) for q in ([0, 1, 2, 2, 0, 3], [1, 2, 1, 0, 1, 1]))
LABELS, WEIGHTS = paddle.to_tensor([1, 0, 4, 1]), paddle.to_tensor([0.1, 0.2, 0.3, 0.4, 0.7])
PLANES = paddle.to_tensor(np.random.default_rng(0).integers(0, 5, (4, 2, 3)))
EDGES = paddle.to_tensor([-1.0, -0.5, 0.0, 0.0, 0.5])


def odd():
    return paddle.to_tensor(ODD, stop_gradient=False)


def f32(*shape, **named):
    return data(*shape, dtype="float32", **named)


def soft(*shape):
    return F.softmax(f32(*shape, seed=1), axis=1).detach()


SOFT, SOFT_PLANES = soft(4, 5), soft(4, 5, 3)


CALLS = {
    "unfold": (lambda x: F.unfold(x, [3, 2], [1, 2], [1, 0, 2, 3], 2), lambda: f32(2, 3, 7, 8)),
    "patches": (lambda x: F.unfold(x, [2, 3], [2, 3]), lambda: f32(2, 3, 7, 8)),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), lambda: f32(2, 3, 4, 6)),
    "channel_shuffle": (
        lambda x: (F.channel_shuffle(x, 3), F.channel_shuffle(x, 2, "NHWC")),
        lambda: f32(2, 6, 4, 6),
    ),
    "roll by numbers from data": (
        lambda x: (
            paddle.roll(x, -int(x[0].argmax()), 1),
            paddle.roll(x, [1, int(x[1].argmax()) + 9], [0, 1]),
            paddle.roll(x, x[2].argmax()),
        ),
        lambda: f32(4, 5),
    ),
    "a number written as a text": (
        lambda x: (x + paddle.full([4, 1], "-inf"), paddle.full([5], "3", "int32") * 2),
        lambda: f32(4, 5),
    ),
    "broadcast_tensors": (
        lambda x: paddle.broadcast_tensors([x, x[0], x[:, :1]]), lambda: f32(4, 5)
    ),
    "temporal_shift": (lambda x: F.temporal_shift(x, 3, 0.2), lambda: f32(6, 10, 2, 2)),
    "shrinks": (
        lambda x: (F.tanhshrink(x), F.hardshrink(x), F.hardshrink(x, 0.3), F.softshrink(x)), odd
    ),
    "swiglu": (F.swiglu, lambda: f32(3, 8)),
    "nll_loss": (lambda x: F.nll_loss(F.log_softmax(x), LABELS), lambda: f32(4, 5)),
    "nll_loss, ignored": (lambda x: F.nll_loss(x, LABELS, ignore_index=1), lambda: f32(4, 5)),
    "nll_loss, all ignored": (
        lambda x: F.nll_loss(x, LABELS * 0 + 1, ignore_index=1), lambda: f32(4, 5)
    ),
    "nll_loss, weights": (
        lambda x: (
            F.nll_loss(x, LABELS, WEIGHTS),
            F.nll_loss(x, LABELS, WEIGHTS, 0, "none"),
            F.nll_loss(x, LABELS, WEIGHTS, reduction="sum"),
        ),
        lambda: f32(4, 5),
    ),
    "nll_loss of images": (
        lambda x: (F.nll_loss(x, PLANES), F.nll_loss(x[..., 0], PLANES[..., 0], reduction="none")),
        lambda: f32(4, 5, 2, 3),
    ),
    "label_smooth": (
        lambda x: (F.label_smooth(x), F.label_smooth(x, WEIGHTS.reshape([1, 5]), 0.2)),
        lambda: f32(4, 5),
    ),
    "soft labels": (
        lambda x: F.cross_entropy(x, SOFT, soft_label=True, weight=WEIGHTS),
        lambda: f32(4, 5),
    ),
    "soft labels of images": (
        lambda x: F.cross_entropy(x, SOFT_PLANES, soft_label=True, axis=1), lambda: f32(4, 5, 3)
    ),
    "smoothed labels": (
        lambda x: F.cross_entropy(x, LABELS, label_smoothing=0.1), lambda: f32(4, 5)
    ),
    "mv": (lambda x: paddle.mv(x, x[0]), lambda: f32(3, 4)),
    "dot": (lambda x: (paddle.dot(x[0], x[1]), paddle.dot(x, x * 2)), lambda: f32(3, 4)),
    "eye": (
        lambda x: x @ paddle.eye(4)[:, :2] + paddle.eye(3, 2, dtype="float32"), lambda: f32(3, 4)
    ),
    "diag": (
        lambda x: (
            *(paddle.diag(x, k) for k in (0, 1, -2)),
            *(paddle.diag(x[0], k, padding_value=3.0) for k in (0, 2, -1)),
            paddle.diagflat(x, 1),
            paddle.trace(x, 1),
        ),
        lambda: f32(3, 4),
    ),
    "diag_embed": (
        lambda x: (
            paddle.diag_embed(x), paddle.diag_embed(x, 1, 0, 2), paddle.diag_embed(x, -1, 1, 0)
        ),
        lambda: f32(2, 3),
    ),
    "kron": (lambda x: (paddle.kron(x, x[:2]), paddle.kron(x[0], x)), lambda: f32(3, 4)),
    "cross": (
        lambda x: (paddle.cross(x, x * x), paddle.cross(x, x[::-1], axis=1)), lambda: f32(3, 3)
    ),
    "add_n": (lambda x: (paddle.add_n([x, x * x, x]), paddle.add_n(x)), odd),
    "searchsorted": (
        lambda x: (
            paddle.searchsorted(EDGES, x),
            paddle.searchsorted(EDGES, x, right=True),
            paddle.bucketize(x, EDGES, out_int32=True),
        ),
        odd,
    ),
    **{
        f"{reduce} of messages": (
            lambda x, reduce=reduce: (
                geometric.send_u_recv(x, SOURCE, TARGET, reduce),
                geometric.send_u_recv(x.round(), SOURCE, TARGET, reduce, 6),
                geometric.send_u_recv(x[:, 0], SOURCE, TARGET, reduce),
            ),
            lambda: f32(4, 3),
        )
        for reduce in ("sum", "mean", "max", "min")
    },
    **{
        f"messages that {message}": (
            lambda x, message=message: (
                geometric.send_ue_recv(x, (x * x)[[0, 1, 2, 3, 0, 1]], SOURCE, TARGET, message),
                geometric.send_uv(x, x * x, SOURCE, TARGET, message),
            ),
            lambda: f32(4, 3),
        )
        for message in ("add", "sub", "mul", "div")
    },
}  # fmt: skip


@pytest.mark.quick("unfold", "nll_loss, weights", "soft labels", "diag", "max of messages")
@pytest.mark.parametrize("name", CALLS)
def test_made_of_rows(name):
    f, make = CALLS[name]
    static = agree(f, make(), dtype="float32")
    assert not dy2st.report(static, make()).foreign_counts


TAKEN = {
    "rows": ((3, 400), -1, 5),
    "columns": ((700, 2), 0, 7),
    "inner": ((2, 300, 3), 1, 1),
    "line": ((1000,), 0, 15),
}


@pytest.mark.quick("rows-float32")
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("name", TAKEN)
def test_few_of_many_with_ties(name, dtype):
    """Of equal elements those that Paddle's kernel takes, in its order."""
    shape, axis, count = TAKEN[name]
    array = np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)
    if dtype != "int64":
        array.reshape(-1)[::17], array.reshape(-1)[5::90] = NAN, -INF

    def f(x):
        return *paddle.topk(x, count, axis), *paddle.topk(x, count, axis, largest=False)

    x = paddle.to_tensor(array, stop_gradient=dtype == "int64")
    static = agree(f, x)
    assert not dy2st.report(static, x).foreign_counts


def rising_and_falling(n):
    """The median of three is always one of the two smallest."""
    k = np.arange(1, n // 2 + 1)
    first = np.where(k % 2, k, k + n // 2 - 1)
    return np.concatenate([first, 2 * k]).astype("float32")[None]


ROWS = {
    **{f"{n} of few": lambda n=n: ties(n, 3) for n in (1, 2, 3, 4, 5, 16, 17, 33, 300)},
    "many different": lambda: ties(300, 10**6),
    "in order": lambda: np.sort(ties(200, 50)),
    "cut badly": lambda: rising_and_falling(400),
}


def ties(n, high):
    found = np.random.default_rng(n).integers(0, high, (3, n)).astype("float32")
    found[1, ::3], found[2, 1:2] = NAN, INF
    return found


@pytest.mark.quick("17 of few", "cut badly")
@pytest.mark.parametrize("name", ROWS)
def test_elements_in_order_with_ties(name):
    x = paddle.to_tensor(ROWS[name](), stop_gradient=False)
    n = x.shape[1]

    def f(x):
        some = (max(1, n // 3), max(1, n - 1), n)
        return (
            *(paddle.sort(x, descending=q) for q in (False, True)),
            *(paddle.argsort(x, descending=q, stable=q) for q in (False, True)),
            *(q for k in some for q in (*x.topk(k), *x.topk(k, largest=False))),
            paddle.argsort(x, axis=0),
        )

    static = agree(f, x, dtype="float32", calls=1)
    assert not dy2st.report(static, x).foreign_counts


def test_columns_become_an_image():
    def f(x):
        return F.fold(x, [6, 7], [2, 3], 1), F.fold(x, [8, 15], [2, 3], [2, 3], [1, 0, 1, 0])

    x = f32(2, 12, 25)
    static = agree(f, x, dtype="float32")
    assert not dy2st.report(static, x).foreign_counts


@pytest.mark.parametrize(
    "size, taps, stride, padding, dilation, windows",
    [
        ([8, 8], 4, 2, 1, 1, 16),
        ([9, 11], 5, 2, 0, 1, 12),
        ([5, 8], 2, 3, 0, 1, 6),
        ([8, 9], 4, 3, 1, 1, 9),
        ([9, 10], 3, 2, 1, 2, 16),
        ([1, 40], [1, 10], [1, 3], 0, 1, 11),
    ],
)
def test_columns_of_windows_that_overlap(size, taps, stride, padding, dilation, windows):
    across = taps[1] if isinstance(taps, list) else taps * taps

    def f(x):
        return F.fold(x, size, taps, stride, padding, dilation)

    x = f32(2, 3 * across, windows)
    static = agree(f, x, dtype="float32")
    assert not dy2st.report(static, x).foreign_counts


@pytest.mark.parametrize("labels", [[0, 3], [-1, 1]])
@pytest.mark.parametrize("loss", [F.nll_loss, F.cross_entropy])
def test_a_label_that_is_no_class(loss, labels):
    """It named a gather, and -1 was 3."""
    args = f32(2, 3), paddle.to_tensor(labels)
    with pytest.raises((IndexError, ValueError)) as eager:
        loss(*args)
    text = f"one of 3 classes: they are from {min(labels)} to {max(labels)}"
    with pytest.raises(eager.type, match=text):
        dy2st.to_static(lambda x, y: loss(x, y))(*args)
