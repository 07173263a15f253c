"""Losses and attention: as in eager."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F
import pytest

import dy2st
from tests import check
from tests.dy2st.capture.adapters.common.cases import compare, fl, it, lab, q4, x34, x234, y34

pytestmark = pytest.mark.sampled


def ends(values):
    """Where a kernel cuts its argument, or has a gradient of its own."""
    return paddle.to_tensor(values, stop_gradient=False)


CASES = {
    "sdpa": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        q4,
        q4,
        lambda: fl([2, 5, 2, 4], seed=4),
    ),
    "sdpa causal": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), q4),
    "sdpa mask": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
        q4,
        lambda: fl([2, 1, 5, 5], trained=False),
    ),
    "sdpa boolmask": (
        lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m > 0),
        q4,
        lambda: fl([2, 1, 5, 5], trained=False),
    ),
    "ce": (lambda x, labels: F.cross_entropy(x, labels), x34, lab),
    "ce none": (lambda x, labels: F.cross_entropy(x, labels, reduction="none"), x34, lab),
    "ce sum": (lambda x, labels: F.cross_entropy(x, labels, reduction="sum"), x34, lab),
    "ce ignore": (lambda x, labels: F.cross_entropy(x, labels, ignore_index=1), x34, lab),
    "ce weight": (
        lambda x, labels, w: F.cross_entropy(x, labels, weight=w),
        x34,
        lab,
        lambda: fl([4], 0.1, 1.0, trained=False),
    ),
    "ce weight ign": (
        lambda x, labels, w: F.cross_entropy(x, labels, weight=w, ignore_index=1),
        x34,
        lab,
        lambda: fl([4], 0.1, 1.0, trained=False),
    ),
    "ce soft": (lambda x, labels: F.cross_entropy(x, F.softmax(labels), soft_label=True), x34, y34),
    "ce smooth": (lambda x, labels: F.cross_entropy(x, labels, label_smoothing=0.1), x34, lab),
    "ce axis": (
        lambda x, labels: F.cross_entropy(x, labels, axis=1),
        x234,
        lambda: it([2, 4], 0, 3),
    ),
    "ce 3d": (lambda x, labels: F.cross_entropy(x, labels), x234, lambda: it([2, 3], 0, 4)),
    "ce 3d1": (lambda x, labels: F.cross_entropy(x, labels), x234, lambda: it([2, 3, 1], 0, 4)),
    "ce nosoftmax": (
        lambda x, labels: F.cross_entropy(F.softmax(x), labels, use_softmax=False),
        x34,
        lab,
    ),
    "nll": (lambda x, labels: F.nll_loss(F.log_softmax(x), labels), x34, lab),
    "nll ign": (lambda x, labels: F.nll_loss(F.log_softmax(x), labels, ignore_index=2), x34, lab),
    "mse": (lambda x, y: (F.mse_loss(x, y), F.mse_loss(x, y, reduction="none")), x34, y34),
    "l1": (lambda x, y: (F.l1_loss(x, y), F.l1_loss(x, y, reduction="sum")), x34, y34),
    "smooth_l1": (
        lambda x, y: (F.smooth_l1_loss(x, y), F.smooth_l1_loss(x, y, delta=0.5, reduction="none")),
        x34,
        y34,
    ),
    "huber": (lambda x, y: nn.HuberLoss()(x, y), x34, y34),
    "kl": (
        lambda x, y: (
            F.kl_div(F.log_softmax(x), F.softmax(y)),
            F.kl_div(F.log_softmax(x), F.softmax(y), reduction="batchmean"),
        ),
        x34,
        y34,
    ),
    "kl logtarget": (
        lambda x, y: F.kl_div(F.log_softmax(x), F.log_softmax(y), log_target=True),
        x34,
        y34,
    ),
    "margin rank": (lambda x, y: F.margin_ranking_loss(x, y, paddle.ones_like(x)), x34, y34),
    "hinge emb": (lambda x, y: F.hinge_embedding_loss(x, paddle.sign(y)), x34, y34),
    "cos emb": (
        lambda x, y, labels: F.cosine_embedding_loss(x, y, labels),
        x34,
        y34,
        lambda: paddle.to_tensor([1, -1, 1]),
    ),
    "triplet": (lambda x, y: F.triplet_margin_loss(x, y, x * 2), x34, y34),
    "soft margin": (lambda x, y: F.soft_margin_loss(x, paddle.sign(y.detach())), x34, y34),
    "ml soft margin": (
        lambda x, y: F.multi_label_soft_margin_loss(x, (y.detach() > 0).astype("float32")),
        x34,
        y34,
    ),
    "focal": (lambda x, y: F.sigmoid_focal_loss(x, (y.detach() > 0).astype("float32")), x34, y34),
    "dice": (lambda x, labels: F.dice_loss(F.softmax(x), labels.unsqueeze(-1)), x34, lab),
    "log_loss": (
        lambda x, labels: F.log_loss(x, (labels.unsqueeze(-1) > 1).astype("float32")),
        lambda: fl([3, 1], 0.1, 0.9),
        lab,
    ),
    "ctc": (
        lambda x, labels: F.ctc_loss(x, labels, paddle.to_tensor([5, 5]), paddle.to_tensor([2, 2])),
        lambda: fl([5, 2, 4]),
        lambda: it([2, 2], 1, 4, "int32"),
    ),
    "square_error": (lambda x, y: F.square_error_cost(x, y), x34, y34),
    "cos sim": (
        lambda x, y: (F.cosine_similarity(x, y), F.cosine_similarity(x, y, axis=0)),
        x34,
        y34,
    ),
    "ce far": (
        lambda x, labels: F.cross_entropy(x * 60, labels, reduction="none"),
        x34,
        lab,
    ),
    "bce": (
        lambda x, y: (F.binary_cross_entropy(x, y), F.binary_cross_entropy(x, y, reduction="none")),
        lambda: ends([0.0, 1.0, 0.5, 1e-20, 0.25]),
        lambda: ends([0.3, 0.3, 0.0, 1.0, 1.0]),
    ),
    "bce logits": (
        lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
        lambda: ends([0.0, -0.0, 40.0, -40.0, 0.7, 200.0]),
        lambda: ends([0.3, 1.0, 0.0, 0.5, -100.0, 1.0]),
    ),
    "huber ends": (
        lambda x, y: F.smooth_l1_loss(x, y, delta=0.5, reduction="none"),
        lambda: ends([0.0, 0.5, -0.5, 0.75, float("inf")]),
        lambda: paddle.zeros([5]),
    ),
    "kl ends": (
        lambda x, y: F.kl_div(x, y, reduction="none"),
        lambda: ends([0.0, -0.5, 2.0]),
        lambda: ends([0.0, -1.0, 0.5]),
    ),
    "logsumexp": (
        lambda x: (paddle.logsumexp(x, 1), paddle.logsumexp(x, keepdim=True)),
        lambda: paddle.concat([x34() * 200, fl([1, 4], -1e9, 1e9)]),
    ),
    "norms": (
        lambda x: (x.norm(axis=1), paddle.norm(x), x.norm(p=1, axis=0, keepdim=True)),
        lambda: x34() * paddle.to_tensor([[1.0], [0.0], [-2.0]]),
    ),
    "label_smooth": (lambda labels: F.label_smooth(F.one_hot(labels, 4)), lab),
    "npair": (
        lambda x, y, labels: F.npair_loss(x, y, labels),
        x34,
        y34,
        lambda: paddle.to_tensor([0.0, 1.0, 2.0]),
    ),
    "flash": (lambda q: F.flash_attention.flash_attention(q, q, q)[0], q4),
}


#: on Paddle's kernels, at least their gradients
FOREIGN = {"ce nosoftmax", "ctc"} | {
    "log_loss",
}


@pytest.mark.quick("ce ignore", "bce logits", "kl", "smooth_l1", "sdpa causal")
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name):
    report = compare(CASES[name])
    assert bool(report.foreign) is (name in FOREIGN), str(report)


# ---------------------------------------------------------------- a loss of each step
def loss_of_steps(x, labels, w):
    h, loss = paddle.zeros([2, 160], "float64"), 0.0
    for t in range(x.shape[1]):
        h = paddle.tanh(h * 0.5 + x[:, t])
        loss = loss + F.cross_entropy(h @ w, labels[:, t])
    return loss


def test_labels_of_all_steps_are_checked_before_one_product():
    static, w = dy2st.to_static(loss_of_steps), check.data(160, 210, seed=1)
    labels = paddle.to_tensor(np.random.default_rng(0).integers(0, 210, [2, 9]))
    for n in (0, 1, 2, 9):
        x = check.data(2, n, 160, seed=n)
        if n == 0:
            assert static(x, labels, w) == loss_of_steps(x, labels, w)
        else:
            check.agree(static, x, labels, w)
    labels[1, 4] = 210
    with pytest.raises(IndexError, match="210"):
        loss_of_steps(x, labels, w)
    with pytest.raises(
        IndexError, match="a label is not one of 210 classes: they are from 0 to 210"
    ):
        static(x, labels, w)
