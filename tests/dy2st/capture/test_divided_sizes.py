"""Sizes given as None that are divided: convolutions, pooling and slices in steps, chunks."""

from __future__ import annotations

import math

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn
from paddle.static import InputSpec

import dy2st
from tests import check


def chunks(x):
    n, out = x.shape[1], []
    for i in range((n + 3) // 4):
        out.append(x[:, i * 4 : min(i * 4 + 4, n)].sum(1))
    return paddle.stack(out, 1)


def recurrent_chunks(x):
    h, out = paddle.zeros([x.shape[0]], x.dtype), []
    for i in range(math.ceil(x.shape[1] / 4)):
        h = h * 0.5 + x[:, i * 4 : (i + 1) * 4].mean(1)
        out.append(h)
    return paddle.stack(out, 1)


def steps(x):
    even, odd = x[:, ::2], x[:, 1::2]
    k = min(even.shape[1], odd.shape[1])
    return even, x[:, 1::3].sum(1), even[:, :k] * odd[:, :k], paddle.concat([even, odd], 1) + x


def halves(x):
    n = x.shape[1]
    return x[:, : n // 2].sum(1) + x[:, n // 2 :].sum(1) * 2, x[:, n // 2], x[:, : -(-n // 2)]


def padded_to_fours(x):
    n = x.shape[1]
    zeros = paddle.zeros([x.shape[0], -n % 4], x.dtype)
    y = F.pad(x, [0, 0, 0, (4 - n % 4) % 4]).reshape([x.shape[0], (n + 3) // 4, 4])
    return paddle.concat([x, zeros], 1).reshape([x.shape[0], -1, 4]).sum(1), y.mean(-1)


def floats(x):
    n = x.shape[1]
    q, r = divmod(n, 3)
    lengths = [int(n / 2), int(n * 0.5), math.floor((n + 2 - 3) / 2 + 1), math.ceil(n / 3), q, r]
    steps = paddle.arange(0, n, 2, dtype=x.dtype)
    return [paddle.full([k], 1.0, x.dtype) * x.sum() for k in lengths], steps * x.sum()


def thirds(x):
    n = x.shape[1] // 3
    return x[:, : n * 3].reshape([x.shape[0], n, 3]).mean(-1)


def pools(x):
    y = x.unsqueeze(1)
    found = [F.max_pool1d(y, 3, 2, 1), F.avg_pool1d(y, 3, 2, 1), F.max_pool1d(y, 2, 2, 0)]
    found.append(F.avg_pool1d(y, 2, 2, ceil_mode=True, exclusive=False))
    return [*found, F.max_pool1d(y, 3, 2, 1, ceil_mode=True), F.avg_pool1d(y, 3, 2, ceil_mode=True)]


def compared(static, eager, x):
    """One call, with gradients."""
    one, two = check.detached([x]), check.detached([x])
    want, wanted = check.step(eager, one, one)
    have, had = check.step(static, two, two)
    check.same(have, want, rtol=1e-9, atol=1e-9, what=str(x.shape))
    for a, b in zip(had, wanted, strict=True):
        check.close(a, b, 2e-7, f"gradient at {x.shape}")  # eager: of pooling off by 1e-8


def programs_of(static):
    return sum(map(len, static.__dy2st_cache__.entries.values()))


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("f", "shortest", "one"),
    [(chunks, 1, 1), (recurrent_chunks, 1, 5), (steps, 2, 1), (halves, 1, 1), (floats, 2, 2)]
    + [(padded_to_fours, 1, 1), (thirds, 3, 3), (pools, 3, 3)],
    ids=lambda q: getattr(q, "__name__", str(q)),
)
def test_divided_lengths(f, shortest, one):
    """From length `one` on, there is one program."""
    static = dy2st.to_static(f, input_spec=[InputSpec([None, None], "float64")])
    for n in (11, 8, 5, 4, 3, 2, 1):
        if n >= shortest:
            compared(static, f, check.data(2, n))
        if n >= one:
            assert programs_of(static) == 1, n


def test_a_remainder_that_python_asks_about():
    def parity_of(x):
        return x[: x.shape[0] // 2] * (2 if x.shape[0] % 2 == 0 else 3)

    static = dy2st.to_static(parity_of, input_spec=[InputSpec([None], "float64")])
    for n in (7, 8, 5, 6, 1):
        compared(static, parity_of, check.data(n))
    assert programs_of(static) == 2


def test_an_index_of_a_loop_is_still_a_number():
    def halved(x):
        return sum(x[t // 2] * (t + 1) for t in range(x.shape[0]))

    static = dy2st.to_static(halved, input_spec=[InputSpec([None], "float64")])
    compared(static, halved, check.data(5))


# ---------------------------------------------------------------- images
class Residual(nn.Layer):
    """A stride in a main path and a shortcut, a depthwise convolution, normalised by the batch."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2D(2, 4, 5, stride=2, padding=2)
        self.main = nn.Conv2D(4, 4, 3, stride=2, padding=1, groups=4)
        self.short, self.norm = nn.Conv2D(4, 4, 1, stride=2), nn.BatchNorm2D(4)
        self.pool, self.out = nn.AdaptiveAvgPool2D((2, 1)), nn.Linear(8, 3)

    def forward(self, x):
        y = F.max_pool2d(F.relu(self.first(x)), 3, 2, 1)
        y = F.relu(self.norm(self.main(y)) + self.short(y))
        return self.out(paddle.flatten(self.pool(y), 1))


class Upsampled(nn.Layer):
    """Down by two, up again, and the odd pixel padded, as U-Nets do."""

    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2D(2, 3, 3, padding=1), nn.Conv2DTranspose(3, 3, 2, stride=2)
        self.out = nn.Conv2D(5, 2, 3, padding=1)

    def forward(self, x):
        y = self.up(self.down(F.max_pool2d(x, 2, 2)))
        dy, dx = x.shape[2] - y.shape[2], x.shape[3] - y.shape[3]
        y = F.pad(y, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.out(paddle.concat([x, y], 1))


class Subsampled(nn.Layer):
    """Speech: a quarter of the frames, with positions and a mask of lengths."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2D(1, 4, 3, 2), nn.ReLU(), nn.Conv2D(4, 4, 3, 2))
        self.out, self.pe = nn.Linear(8, 4), self.create_parameter([1, 20, 4])

    def forward(self, x):
        x = self.conv(x)
        b, c, t, d = x.shape
        x = self.out(x.transpose([0, 2, 1, 3]).reshape([b, t, c * d])) + self.pe[:, :t]
        mask = paddle.arange(t) < ((paddle.full([b, 1], 12, "int64") - 1) // 2 - 1) // 2
        return F.softmax(x @ x.transpose([0, 2, 1]) + mask.unsqueeze(1).astype(x.dtype)) @ x


IMAGES = {
    Residual: ([(2, 2, 9, 12), (1, 2, 20, 7), (2, 2, 17, 5), (2, 2, 1, 1)], [None, 2, None, None]),
    Upsampled: ([(1, 2, 6, 8), (2, 2, 7, 5), (1, 2, 2, 3)], [None, 2, None, None]),
    Subsampled: ([(2, 1, 13, 11), (1, 1, 16, 11), (2, 1, 7, 11)], [None, 1, None, 11]),
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("make", IMAGES, ids=lambda q: q.__name__)
def test_images_of_open_sizes(make):
    shapes, spec = IMAGES[make]
    options = {"input_spec": [InputSpec(spec, "float64")]}
    args = iter([check.data(*shape) for shape in shapes])
    static = check.trains(make, lambda: [next(args)], steps=len(shapes), **options)
    assert programs_of(static.forward) == 1


def test_saved_for_all_sizes(tmp_path):
    paddle.seed(0)
    layer = Residual()
    layer.eval()
    dy2st.save(layer, tmp_path / "model", [InputSpec([None, 2, None, None], "float32")])
    loaded = dy2st.load(tmp_path / "model")
    for shape in ((2, 2, 9, 12), (1, 2, 33, 5), (3, 2, 1, 2)):
        x = check.data(*shape, dtype="float32", trained=False)
        np.testing.assert_allclose(loaded(x.numpy()), layer(x).numpy(), atol=2e-5)


def test_a_plane_that_is_too_small():
    """Eager decides: pooling gives nothing, adding raises."""

    def f(x):
        return F.max_pool2d(x, 2, 2)

    static = dy2st.to_static(f, input_spec=[InputSpec([1, 1, None, None], "float64")])
    for shape in ((1, 1, 5, 4), (1, 1, 1, 4)):
        x = check.data(*shape, trained=False)
        check.same(static(x), f(x))


def test_sizes_that_must_be_equal():
    def f(x, y):
        return F.max_pool1d(x, 2, 2) + y

    spec = [InputSpec([1, 1, None], "float64"), InputSpec([1, 1, None], "float64")]
    static = dy2st.to_static(f, input_spec=spec)
    for n in (8, 9):
        x, y = check.data(1, 1, n, trained=False), check.data(1, 1, 4, trained=False)
        check.same(static(x, y), f(x, y))
    assert programs_of(static) == 1
    with pytest.raises(Exception, match="[Bb]roadcast"):
        static(check.data(1, 1, 6, trained=False), check.data(1, 1, 4, trained=False))


def test_kernels_of_paddle_take_and_give_quotients():
    def f(x):
        y = F.interpolate(F.max_pool2d(x, 2, 2), scale_factor=0.5, mode="bilinear")
        return F.interpolate(y, size=x.shape[2:], mode="bilinear", align_corners=True)

    static = dy2st.to_static(f, input_spec=[InputSpec([1, 2, None, None], "float32")])
    for h, w in ((6, 8), (5, 7), (16, 33)):
        x = check.data(1, 2, h, w, dtype="float32", trained=False)
        np.testing.assert_allclose(static(x), f(x), rtol=1e-5, atol=1e-6)
    assert programs_of(static) == 1


def test_windows_of_open_planes():
    weight = check.data(3, 2, 2, 3, 3, trained=False)

    def f(x):
        return F.conv3d(x, weight, stride=2, padding=1), F.unfold(x[:, :, 0], 3, 2, 1)

    static = dy2st.to_static(f, input_spec=[InputSpec([None, 2, None, None, None], "float64")])
    for shape in ((1, 2, 4, 5, 6), (2, 2, 5, 8, 3)):
        compared(static, f, check.data(*shape))
    assert programs_of(static) == 1


def test_random_arrays_of_a_divided_length():
    def f(x):
        return paddle.to_tensor(np.random.rand(x.shape[0] // 16 + x.shape[0])) + x.sum()

    static = dy2st.to_static(f, input_spec=[InputSpec([None], "float64")])
    for n in (40, 7):
        x = check.data(n, trained=False)
        np.random.seed(n)
        want = f(x)
        np.random.seed(n)
        check.same(static(x), want)
    assert programs_of(static) == 1


def test_a_file_for_images_that_must_be_large(tmp_path):
    """Sizes made up from the spec are as large as it takes."""

    def shrunk(x):
        for _ in range(3):
            assert x.shape[-1] > 2, "too small"
            x = F.avg_pool2d(F.max_pool2d(x, 3, 2), 2, 2)
        return x

    spec = [InputSpec([None, 1, None, None], "float64")]
    dy2st.save(shrunk, tmp_path / "model", spec)
    x = check.data(1, 1, 97, 110, trained=False)
    np.testing.assert_allclose(dy2st.load(tmp_path / "model")(x.numpy()), shrunk(x).numpy())
    static = dy2st.to_static(shrunk, spec)
    assert "((" in str(dy2st.program(static))
    with pytest.raises(AssertionError, match="too small"):
        static(check.data(1, 1, 9, 9))
