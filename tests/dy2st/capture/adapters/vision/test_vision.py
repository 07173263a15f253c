"""Images of another size and with channels last: eager's results and gradients, no foreign op."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

import dy2st
from tests import check
from tests.check import agree, data

pytestmark = pytest.mark.sampled


def native(f, *args, dtype="float32"):
    """As eager, gradients too, and nothing is left to Paddle."""
    static = agree(f, *args, dtype=dtype)
    assert not dy2st.report(static, *args).foreign_counts


# ---------------------------------------------------------------- another size
SIZES = {
    "twice": ("bilinear", {"scale_factor": 2}),
    "larger": ("bilinear", {"size": [11, 9]}),
    "smaller": ("bilinear", {"size": [3, 2]}),
    "one way": ("bilinear", {"size": [3, 9]}),
    "one axis": ("bilinear", {"size": [3, 7]}),
    "one pixel": ("bilinear", {"size": [1, 2]}),
    "the same": ("bilinear", {"size": [5, 7]}),
    "factors": ("bilinear", {"scale_factor": [1.7, 0.6]}),
    "corners": ("bilinear", {"size": [11, 4], "align_corners": True}),
    "one corner": ("bilinear", {"size": [1, 4], "align_corners": True}),
    "from the first pixel": ("bilinear", {"size": [8, 9], "align_mode": 1}),
    "channels last": ("bilinear", {"size": [8, 9], "data_format": "NHWC"}),
    "cubic": ("bicubic", {"size": [9, 4]}),
    "cubic, corners": ("bicubic", {"scale_factor": 2, "align_corners": True}),
    "cubic, one axis": ("bicubic", {"size": [5, 4]}),
    "nearest, smaller": ("nearest", {"size": [3, 4]}),
    "nearest, factors": ("nearest", {"scale_factor": [1.7, 0.6]}),
    "nearest, channels last": ("nearest", {"scale_factor": 2, "data_format": "NHWC"}),
}


@pytest.mark.quick("larger", "cubic", "nearest, smaller", "channels last")
@pytest.mark.parametrize("name", SIZES)
def test_images_of_another_size(name):
    mode, how = SIZES[name]
    native(lambda x: F.interpolate(x, mode=mode, **how), data(2, 3, 5, 7, dtype="float32"))


def test_signals_and_volumes_of_another_size():
    native(lambda x: F.interpolate(x, size=[9], mode="linear", data_format="NCW"), data(2, 3, 7))
    native(
        lambda x: F.interpolate(x, size=[1, 5, 3], mode="trilinear", data_format="NCDHW"),
        data(1, 2, 3, 4, 5),
    )
    native(
        lambda x: F.interpolate(x, size=[2, 6, 7], mode="nearest", data_format="NDHWC"),
        data(1, 3, 4, 5, 2),
    )


def test_images_of_another_size_in_double_precision():
    """The gradient is that of the forward pass; eager's has weights of its own, 1e-7 apart."""

    def f(x):
        return F.interpolate(x, size=[9, 4], mode="bilinear", align_corners=True)

    x = data(2, 3, 5, 7)
    check.same(dy2st.to_static(f)(x), f(x), 1e-14, 1e-14)
    native(lambda x: F.interpolate(x, size=[4, 5], mode="bicubic"), data(1, 2, 8, 5))


def test_images_of_another_size_that_are_not_finite():
    image = np.ones([1, 1, 4, 4], "float32")
    image[0, 0, 1, 2], image[0, 0, 3, 0] = np.inf, np.nan
    for mode in ("bilinear", "nearest"):
        f = lambda x, mode=mode: F.interpolate(x, size=[7, 3], mode=mode)  # noqa: E731
        check.same(dy2st.to_static(f)(paddle.to_tensor(image)), f(paddle.to_tensor(image)))


def test_images_of_integers_of_another_size():
    x = paddle.arange(24).reshape([1, 2, 3, 4])
    native(lambda x: F.interpolate(x, size=[5, 3], mode="nearest"), x)


def test_upsampled_images_of_any_number():
    layer = paddle.nn.Upsample(scale_factor=2, mode="bilinear")
    spec = paddle.static.InputSpec([None, 2, 3, 4], "float32", "x")
    static = dy2st.to_static(layer.forward, input_spec=[spec])
    for n in (1, 3, 0):
        x = data(n, 2, 3, 4, dtype="float32", trained=False)
        check.same(static(x), layer(x))


# ---------------------------------------------------------------- channels last
LAST = {
    "stride": lambda x, w: F.conv2d(x, w, padding=1, stride=2, data_format="NHWC"),
    "pairs": lambda x, w: F.conv2d(
        x, w, padding=[[0, 0], [1, 0], [2, 1], [0, 0]], data_format="NHWC"
    ),
    "same": lambda x, w: F.conv2d(x, w, padding="SAME", data_format="NHWC"),
    "each channel": lambda x, w: F.conv2d(x, w[:3, :1], groups=3, data_format="NHWC"),
    "transposed": lambda x, w: F.conv2d_transpose(
        x, w[:3], stride=2, padding=1, output_padding=1, data_format="NHWC"
    ),
    "signal": lambda x, w: F.conv1d(x[0], w[:, :, 0], padding=1, data_format="NLC"),
    "largest": lambda x, w: F.max_pool2d(x, 3, 2, 1, data_format="NHWC"),
    "means": lambda x, w: F.avg_pool2d(x, 2, ceil_mode=True, data_format="NHWC"),
    "windows": lambda x, w: F.adaptive_avg_pool2d(x, [3, 2], data_format="NHWC"),
    "whole images": lambda x, w: F.adaptive_avg_pool2d(x, 1, data_format="NHWC"),
}


@pytest.mark.quick("stride", "largest")
@pytest.mark.parametrize("name", LAST)
def test_images_with_channels_last(name):
    native(LAST[name], data(2, 9, 8, 3, dtype="float32"), data(6, 3, 3, 3, dtype="float32"))


# ---------------------------------------------------------------- places that data gives
def places():
    """On pixels, between them, on edges and beyond."""
    g = np.random.default_rng(1).uniform(-1.6, 1.6, size=(2, 4, 6, 2))
    g[0, 0, :, 0], g[0, 1, :, 1] = [-1, 1, 0, -3, 2.5, -5], [-1, 1, 0, -3, 2.5, 5]
    g[1, 0], g[1, 1] = 0, np.linspace(-1, 1, 6)[:, None]
    return paddle.to_tensor(g, stop_gradient=False)


@pytest.mark.quick("True-zeros", "False-reflection")
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [True, False])
def test_pixels_at_places(padding, corners):
    def f(x, g):
        return F.grid_sample(x, g, padding_mode=padding, align_corners=corners)

    for size in ((5, 7), (1, 4)):
        native(f, data(2, 3, *size), places(), dtype="float64")


def test_nearest_pixels_at_places():
    """Of two pixels that are equally near, the one with the even number."""
    grid = places().detach()
    for padding in ("zeros", "border"):
        native(
            lambda x, g, padding=padding: F.grid_sample(x, g, "nearest", padding, False),
            data(2, 3, 4, 6),
            grid,
            dtype="float64",
        )


def test_places_that_are_no_numbers():
    def f(x, g):
        return F.grid_sample(x, g)

    x, g = data(1, 2, 3, 3, trained=False), np.zeros([1, 2, 2, 2])
    g[0, 0, 0, 0], g[0, 1, 1, 1] = np.nan, np.inf
    y = dy2st.to_static(f)(x, paddle.to_tensor(g)).numpy()
    assert np.isnan(y[0, :, 0, 0]).all()
    np.testing.assert_array_equal(y[0, :, 0, 1], x.numpy()[0, :, 1, 1])


@pytest.mark.quick("True")
@pytest.mark.parametrize("corners", [True, False])
def test_images_under_an_affine_map(corners):
    def f(theta, x):
        grid = F.affine_grid(theta, [2, 3, 4, 5], align_corners=corners)
        return grid, F.grid_sample(x, grid, align_corners=corners)

    native(f, data(2, 2, 3), data(2, 3, 6, 5), dtype="float64")


@pytest.mark.parametrize("of", ["roi_align", "roi_pool"])
def test_regions_of_images_that_nobody_knows_yet(of):
    """The kernel reads wherever the number of regions in each image says: stand-ins fit."""
    pool = getattr(paddle.vision.ops, of)
    boxes = abs(data(5, 4, seed=1, dtype="float32", trained=False)).sort(-1)
    counts = paddle.to_tensor([2, 3], "int32")
    agree(lambda x, b, n: pool(x, b * 3, n, 2), data(2, 4, 8, 8, dtype="float32"), boxes, counts)


VOLUMES = {
    "plain": (F.conv3d, (2, 3, 5, 6, 4), (4, 3, 3, 3, 2)),
    "steps": (
        lambda x, w: F.conv3d(x, w, stride=(2, 1, 2), padding=(1, 0, 2), dilation=(2, 1, 1)),
        (1, 3, 9, 6, 7),
        (4, 3, 3, 3, 2),
    ),
    "groups, ends": (
        lambda x, w: F.conv3d(x, w, groups=2, padding=[[0, 0], [0, 0], [1, 0], [0, 1], [2, 1]]),
        (2, 4, 3, 5, 4),
        (6, 2, 3, 3, 3),
    ),
    "same": (
        lambda x, w: F.conv3d(x, w, padding="SAME", stride=2), (1, 2, 5, 6, 7), (3, 2, 3, 3, 3)
    ),
    "transposed": (
        lambda x, w: F.conv3d_transpose(x, w, None, (2, 3, 1), (1, 0, 1), [1, 2, 0]),
        (2, 3, 4, 5, 3),
        (3, 4, 3, 4, 3),
    ),
    "transposed, gaps": (
        lambda x, w: F.conv3d_transpose(x, w, stride=3, padding=1), (1, 3, 4, 3, 2), (3, 2, 2, 2, 2)
    ),
    "largest, equal ones": (lambda x: F.max_pool3d(x.round(), 3, 2, 1), (2, 3, 5, 6, 7)),
    "largest, ceil": (lambda x: F.max_pool3d(x, (2, 3, 2), 2, ceil_mode=True), (2, 3, 6, 6, 7)),
    "means": (
        lambda x: (F.avg_pool3d(x, 3, 2, 1), F.avg_pool3d(x, 2, 1, 1, exclusive=False)),
        (1, 3, 5, 6, 7),
    ),
    "so many": (
        lambda x: (F.adaptive_avg_pool3d(x, 1), F.adaptive_avg_pool3d(x, (2, 3, 3))),
        (1, 2, 4, 6, 5),
    ),
    "neighbouring channels": (lambda x: F.local_response_norm(x, 3), (2, 5, 4, 3)),
    "so many largest": (
        lambda x: (F.adaptive_max_pool2d(x.round(), (2, 3)), F.adaptive_max_pool2d(x, 1)),
        (2, 3, 6, 9),
    ),
}  # fmt: skip


@pytest.mark.quick("steps", "transposed", "largest, equal ones")
@pytest.mark.parametrize("name", VOLUMES)
def test_volumes(name):
    f, *shapes = VOLUMES[name]
    native(f, *(data(*shape, seed=k, dtype="float32") for k, shape in enumerate(shapes)))


def test_places_of_the_largest_pixels():
    x = data(2, 3, 7, 6, dtype="float32", trained=False).round()

    def pooled(x):
        return (
            F.max_pool2d(x, 2, return_mask=True),
            F.max_pool2d(x, 3, 2, 1, return_mask=True),
            F.max_pool1d(x[0], 3, 2, 1, return_mask=True),
            F.adaptive_max_pool2d(x, (7, 2), return_mask=True),
        )

    check.same(dy2st.to_static(pooled)(x), pooled(x))
