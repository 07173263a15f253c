"""Norms, convolutions, pooling, images and activations: as in eager."""

from __future__ import annotations

import paddle
import paddle.nn as nn
import paddle.nn.functional as F
import pytest

from tests.dy2st.capture.adapters.common.cases import compare, fl, img, x34, x234

pytestmark = pytest.mark.sampled


CASES = {
    "pad const": (
        lambda x: (F.pad(x, [1, 2]), F.pad(x, [1, 1, 2, 2]), F.pad(x, [0, 1, 1, 0], value=3.0)),
        x34,
    ),
    "pad4 const": (lambda x: F.pad(x, [1, 1, 2, 0], value=1.5), img),
    "pad4 reflect": (lambda x: F.pad(x, [1, 1, 2, 0], mode="reflect"), img),
    "pad4 replicate": (lambda x: F.pad(x, [1, 1, 2, 0], mode="replicate"), img),
    "pad4 circular": (lambda x: F.pad(x, [1, 1, 2, 0], mode="circular"), img),
    "pad3": (
        lambda x: (
            F.pad(x, [1, 2], data_format="NCL"),
            F.pad(x, [1, 2], mode="replicate", data_format="NCL"),
        ),
        x234,
    ),
    "zeropad": (lambda x: nn.ZeroPad2D(1)(x), img),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), lambda: fl([2, 4, 3, 3])),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), lambda: fl([2, 1, 4, 4])),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), lambda: fl([2, 4, 3, 3])),
    "unfold": (lambda x: F.unfold(x, 2), img),
    "fold": (lambda x: F.fold(x, [4, 4], 2, strides=2), lambda: fl([2, 12, 4])),
    "grid_sample": (lambda x, g: F.grid_sample(x, g), img, lambda: fl([2, 3, 3, 2], -1.0, 1.0)),
    "grid_sample near": (
        lambda x, g: F.grid_sample(x, g, mode="nearest", padding_mode="border"),
        img,
        lambda: fl([2, 3, 3, 2], -1.0, 1.0),
    ),
    "affine_grid": (lambda t: F.affine_grid(t, [2, 3, 4, 4]), lambda: fl([2, 2, 3])),
    "group_norm": (lambda x: (F.group_norm(x, 3), F.group_norm(x, 1)), img),
    "instance_norm": (lambda x: F.instance_norm(x), img),
    "layer_norm": (
        lambda x, w, b: F.layer_norm(x, [4], w, b),
        x234,
        lambda: fl([4]),
        lambda: fl([4]),
    ),
    "local resp": (lambda x: F.local_response_norm(x, 3), img),
    "normalize": (lambda x: (F.normalize(x), F.normalize(x, p=1, axis=0)), x34),
    "batch_norm": (
        lambda x, m, v: F.batch_norm(x, m, v, training=True),
        img,
        lambda: paddle.zeros([3]),
        lambda: paddle.ones([3]),
    ),
    "norm": (
        lambda x: (x.norm(), paddle.norm(x, 2, 1), paddle.norm(x, 1, 0), x.norm(p=float("inf"))),
        x34,
    ),
    "norm fro": (
        lambda x: (
            paddle.norm(x, "fro"),
            paddle.linalg.norm(x, axis=[0, 1]),
            paddle.linalg.vector_norm(x, 3.0),
        ),
        x34,
    ),
    "norm neg": (lambda x: (x.norm(p=0), x.norm(p=-float("inf"), axis=1)), x34),
    "normal t": (lambda x: paddle.normal(x.detach(), 1.0), x34),
    "interp": (
        lambda x: (
            F.interpolate(x, scale_factor=2),
            F.interpolate(x, size=[8, 8], mode="bilinear"),
            F.upsample(x, scale_factor=2),
        ),
        img,
    ),
    "interp bicubic": (lambda x: F.interpolate(x, size=[8, 8], mode="bicubic"), img),
    "interp area": (lambda x: F.interpolate(x, size=[2, 3], mode="area"), img),
    "interp linear": (lambda x: F.interpolate(x, size=[8], mode="linear", data_format="NCW"), x234),
    "conv": (
        lambda x, w: (F.conv2d(x, w), F.conv2d(x, w, padding=1, stride=2)),
        img,
        lambda: fl([4, 3, 2, 2]),
    ),
    "conv1d": (lambda x, w: F.conv1d(x, w, padding=1), x234, lambda: fl([2, 3, 3])),
    "conv2dT": (lambda x, w: F.conv2d_transpose(x, w, stride=2), img, lambda: fl([3, 2, 2, 2])),
    "conv1dT": (lambda x, w: F.conv1d_transpose(x, w, stride=2), x234, lambda: fl([3, 2, 2])),
    "conv3d": (
        lambda x, w: F.conv3d(x, w),
        lambda: fl([1, 2, 3, 4, 4]),
        lambda: fl([2, 2, 2, 2, 2]),
    ),
    "maxpool": (
        lambda x: (
            F.max_pool2d(x, 2),
            F.avg_pool2d(x, 2),
            F.adaptive_avg_pool2d(x, 1),
            F.adaptive_max_pool2d(x, 2),
        ),
        img,
    ),
    "maxpool mask": (lambda x: F.max_pool2d(x, 2, return_mask=True)[0], img),
    "maxpool1d": (
        lambda x: (F.max_pool1d(x, 2), F.avg_pool1d(x, 2), F.adaptive_avg_pool1d(x, 2)),
        x234,
    ),
    "lp_pool": (lambda x: F.lp_pool2d(x, 2.0, 2), img),
    "maxunpool": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_mask=True), 2), img),
    "acts": (
        lambda x: (
            F.gelu(x),
            F.silu(x),
            F.mish(x),
            F.elu(x),
            F.selu(x),
            F.softplus(x),
            F.hardswish(x),
            F.leaky_relu(x),
            F.log_sigmoid(x),
            F.tanhshrink(x),
            F.softsign(x),
        ),
        x34,
    ),
    "acts2": (
        lambda x: (
            F.glu(x),
            F.relu6(x),
            F.hardtanh(x),
            F.celu(x),
            F.maxout(x.unsqueeze(0).unsqueeze(-1).transpose([0, 2, 1, 3]), 2),
            F.swish(x),
            F.hardshrink(x),
        ),
        x34,
    ),
    "prelu": (lambda x, w: F.prelu(x, w), x34, lambda: fl([1])),
    "swiglu": (lambda x: F.swiglu(x), x34),
    "softmax": (lambda x: (F.softmax(x, 0), F.log_softmax(x), F.softmax(x, dtype="float64")), x34),
    "softmax_": (lambda x: F.softmax_(x * 1), x34),
    "maxmin grad": (lambda x: (x.max(), x.min(1), x.max(0)), x34),
    "temporal_shift": (lambda x: F.temporal_shift(x, 2), lambda: fl([4, 4, 2, 2])),
    "clip norm": (
        lambda x: x * paddle.minimum(paddle.to_tensor(1.0), 1.0 / (x.norm() + 1e-06)),
        x34,
    ),
}


@pytest.mark.quick("group_norm")
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name):
    compare(CASES[name])
