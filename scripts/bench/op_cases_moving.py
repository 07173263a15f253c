"""More cases of `bench_ops`: elements that move, products, images, transforms, blocks."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812

from scripts.bench.op_cases import (
    CASES,
    IMAGE,
    ROWS,
    below,
    case,
    floats,
    layer,
    mask,
    plain,
)

# ---------------------------------------------------------------- movement
case("transpose", lambda x: x.t() + 0, *ROWS)
case(
    "transpose heads",
    lambda x: x.transpose([0, 2, 1, 3]) + 0,
    floats(2, 16, 4, 8),
    floats(8, 128, 12, 64),
)
case("NCHW to NHWC", lambda x: x.transpose([0, 2, 3, 1]) + 0, *IMAGE)
case(
    "transpose reversed",
    lambda x: x.transpose([2, 1, 0]) + 0,
    floats(8, 16, 8),
    floats(64, 128, 128),
)
case("contiguous", lambda x: x.t().contiguous(), *ROWS)
case("reshape", lambda x: x.reshape([-1]) * 2, *ROWS)
case("concat first", lambda x, y: paddle.concat([x, y], 0), (ROWS[0], ROWS[0]), (ROWS[1], ROWS[1]))
case("concat last", lambda x, y: paddle.concat([x, y], -1), (ROWS[0], ROWS[0]), (ROWS[1], ROWS[1]))
case("stack", lambda x, y: paddle.stack([x, y], -1), (ROWS[0], ROWS[0]), (ROWS[1], ROWS[1]))
case("split and add", lambda x: sum(x.split(4, -1)), *ROWS)
case("flip", lambda x: x.flip(-1), *ROWS)
case("roll", lambda x: x.roll(5, -1), *ROWS)
case("roll 2d", lambda x: x.roll([3, 3], [2, 3]), *IMAGE)
case("tile", lambda x: x.tile([4, 1]), *ROWS)
case("expand", lambda x: x.unsqueeze(1).expand([-1, 8, -1]).sum(1), *ROWS)
case("repeat_interleave", lambda x: x.repeat_interleave(3, 0), *ROWS)
case("pad", lambda x: F.pad(x, [1, 1, 1, 1]), *IMAGE)
case("pad reflect", lambda x: F.pad(x, [2, 2, 2, 2], mode="reflect"), *IMAGE)
case("pad replicate", lambda x: F.pad(x, [2, 2, 2, 2], mode="replicate"), *IMAGE)
case("pad circular", lambda x: F.pad(x, [2, 2, 2, 2], mode="circular"), *IMAGE)
case("unfold", lambda x: F.unfold(x, 3, 1, 1), floats(1, 8, 16, 16), floats(4, 32, 56, 56))
case("fold", lambda x: F.fold(x, [16, 16], 3, 1, 1), floats(1, 72, 256), floats(16, 288, 256))
case("frame", lambda x: paddle.signal.frame(x, 64, 16), floats(2, 512), floats(8, 32000))
case("tril", paddle.tril, *ROWS)
case("diagonal", lambda x: paddle.diagonal(x) * 2, *ROWS)
case("diag_embed", F.diag_embed, plain(4, 16), plain(64, 128), trained=False)
case(
    "meshgrid",
    lambda x, y: operator.mul(*paddle.meshgrid(x, y)),  # with one gradient Paddle crashes
    (floats(16), floats(16)),
    (floats(1024), floats(1024)),
)
case("one_hot", lambda i: F.one_hot(i, 64), below(64, 32), below(64, 32768), trained=False)
case(
    "gather",
    lambda x, i: paddle.gather(x, i),
    (ROWS[0], below(32, 16)),
    (ROWS[1], below(1024, 2048)),
)
case(
    "gather_nd",
    lambda x, i: paddle.gather_nd(x, i),
    (ROWS[0], below(32, 100, 2)),
    (ROWS[1], below(1024, 100000, 2)),
)
case(
    "index_select last",
    lambda x, i: x.index_select(i, -1),
    (ROWS[0], below(64, 16)),
    (ROWS[1], below(1024, 512)),
)
case(
    "index_sample",
    paddle.index_sample,
    (ROWS[0], below(64, 32, 8)),
    (ROWS[1], below(1024, 1024, 64)),
)
case("x[i]", lambda x, i: x[i], (ROWS[0], below(32, 16)), (ROWS[1], below(1024, 2048)))
case("x[:, i]", lambda x, i: x[:, i], (ROWS[0], below(64, 16)), (ROWS[1], below(1024, 512)))
case(
    "x[i, j]",
    lambda x, i, j: x[i, j],
    (ROWS[0], below(32, 100), below(64, 100)),
    (ROWS[1], below(1024, 100000), below(1024, 100000)),
)
case("x[::2]", lambda x: x[::2] * 2, *ROWS)
case("x[:, ::2]", lambda x: x[:, ::2] * 2, *ROWS)
case(
    "take_along_axis",
    lambda x, i: paddle.take_along_axis(x, i, 1),
    (ROWS[0], below(64, 32, 8)),
    (ROWS[1], below(1024, 1024, 512)),
)
case(
    "put_along_axis",
    lambda x, i, y: paddle.put_along_axis(x, i, y, 1),
    (ROWS[0], below(64, 32, 8), floats(32, 8)),
    (ROWS[1], below(1024, 1024, 512), floats(1024, 512)),
)
case(
    "put_along_axis add",
    lambda x, i, y: paddle.put_along_axis(x, i, y, 1, "add"),
    (ROWS[0], below(64, 32, 8), floats(32, 8)),
    (ROWS[1], below(1024, 1024, 512), floats(1024, 512)),
)
case(
    "scatter",
    lambda x, i, y: paddle.scatter(x, i, y, overwrite=False),
    (ROWS[0], below(32, 16), floats(16, 64)),
    (ROWS[1], below(1024, 2048), floats(2048, 1024)),
)
case(
    "scatter_nd_add",
    paddle.scatter_nd_add,
    (ROWS[0], below(32, 16, 1), floats(16, 64)),
    (ROWS[1], below(1024, 2048, 1), floats(2048, 1024)),
)
case(
    "index_add",
    lambda x, i, y: paddle.index_add(x, i, 0, y),
    (ROWS[0], below(32, 16), floats(16, 64)),
    (ROWS[1], below(1024, 2048), floats(2048, 1024)),
)
case(
    "index_put",
    lambda x, i, y: paddle.index_put(x, (i,), y),
    (ROWS[0], below(32, 16), floats(16, 64)),
    (ROWS[1], below(1024, 2048), floats(2048, 1024)),
)
case(
    "masked_fill",
    lambda x, m: paddle.masked_fill(x, m, 0.0),
    (ROWS[0], mask(32, 64)),
    (ROWS[1], mask(1024, 1024)),
)
case(
    "masked_select",
    lambda x, m: paddle.masked_select(x, m),
    (ROWS[0], mask(32, 64)),
    (ROWS[1], mask(1024, 1024)),
)
case("x[mask]", lambda x, m: x[m], (ROWS[0], mask(32, 64)), (ROWS[1], mask(1024, 1024)))
case("x[mask of rows]", lambda x, m: x[m], (ROWS[0], mask(32)), (ROWS[1], mask(1024)))
case("nonzero", paddle.nonzero, mask(32, 64), mask(1024, 1024), trained=False)
case("where(c)", lambda c: paddle.where(c)[0], mask(32, 64), mask(1024, 1024), trained=False)
layer(
    "Embedding",
    lambda n, d: nn.Embedding(n, d),
    (100, 32, below(100, 4, 16)),
    (10000, 256, below(10000, 16, 128)),
)
case(
    "segment_sum",
    lambda x, i: paddle.geometric.segment_sum(x, i.sort()),
    (ROWS[0], below(8, 32)),
    (ROWS[1], below(128, 1024)),
)
case(
    "send_u_recv",
    lambda x, s, d: paddle.geometric.send_u_recv(x, s, d),
    (floats(50, 16), below(50, 200), below(50, 200)),
    (floats(2000, 64), below(2000, 20000), below(2000, 20000)),
)

# ---------------------------------------------------------------- products
case(
    "matmul", paddle.matmul, (floats(16, 64), floats(64, 32)), (floats(512, 512), floats(512, 512))
)
case(
    "matmul transposed",
    lambda x, y: paddle.matmul(x, y, transpose_y=True),
    (floats(16, 64), floats(32, 64)),
    (floats(512, 512), floats(512, 512)),
)
case(
    "dot",
    lambda x, y: paddle.dot(x, y),
    (floats(64), floats(64)),
    (floats(1000000), floats(1000000)),
)
case("mv", paddle.mv, (floats(32, 64), floats(64)), (floats(1024, 1024), floats(1024)))
case(
    "bmm",
    paddle.bmm,
    (floats(4, 8, 16), floats(4, 16, 8)),
    (floats(64, 128, 64), floats(64, 64, 128)),
)
case(
    "einsum bij,bjk",
    lambda x, y: paddle.einsum("bij,bjk->bik", x, y),
    (floats(4, 8, 16), floats(4, 16, 8)),
    (floats(64, 128, 64), floats(64, 64, 128)),
)
case(
    "einsum bhid,bhjd",
    lambda x, y: paddle.einsum("bhid,bhjd->bhij", x, y),
    [floats(1, 2, 8, 16)] * 2,
    [floats(4, 12, 128, 64)] * 2,
)
case(
    "einsum outer",
    lambda x, y: paddle.einsum("bi,bj->bij", x, y),
    [floats(4, 16)] * 2,
    [floats(64, 128)] * 2,
)
case(
    "einsum bilinear",
    lambda x, w, y: paddle.einsum("bi,oij,bj->bo", x, w, y),
    (floats(4, 8), floats(4, 8, 8), floats(4, 8)),
    (floats(64, 64), floats(32, 64, 64), floats(64, 64)),
)
case("cdist", paddle.cdist, (floats(16, 3), floats(16, 3)), (floats(512, 64), floats(512, 64)))
case("outer", paddle.outer, (floats(32), floats(32)), (floats(1024), floats(1024)))
layer("Linear", nn.Linear, (64, 32, floats(4, 64)), (1024, 1024, floats(64, 1024)))
layer("Linear, one row", nn.Linear, (64, 32, floats(1, 64)), (1024, 1024, floats(1, 1024)))
layer("Linear, eight rows", nn.Linear, (64, 32, floats(8, 64)), (1024, 4096, floats(8, 1024)))
layer(
    "Bilinear",
    nn.Bilinear,
    (8, 8, 4, floats(4, 8), floats(4, 8)),
    (64, 64, 32, floats(64, 64), floats(64, 64)),
)


# ---------------------------------------------------------------- images
def conv(dims: int, **options: Any) -> Callable[..., Any]:
    return lambda i, o, k: getattr(nn, f"Conv{dims}D")(i, o, k, **options)


layer("Conv1D", conv(1, padding=1), (8, 8, 3, floats(2, 8, 32)), (128, 128, 3, floats(8, 128, 512)))
layer(
    "Conv1D strided",
    conv(1, padding=2, stride=2),
    (8, 8, 5, floats(2, 8, 32)),
    (64, 128, 5, floats(8, 64, 1024)),
)
layer(
    "Conv1D dilated",
    conv(1, padding=4, dilation=4),
    (8, 8, 3, floats(2, 8, 32)),
    (64, 64, 3, floats(8, 64, 1024)),
)
layer(
    "Conv1D depthwise",
    lambda c, k: nn.Conv1D(c, c, k, padding=k // 2, groups=c),
    (8, 7, floats(2, 8, 32)),
    (256, 7, floats(8, 256, 512)),
)
layer("Conv2D 1x1", conv(2), (8, 8, 1, IMAGE[0]), (64, 128, 1, IMAGE[1]))
layer("Conv2D 3x3", conv(2, padding=1), (8, 8, 3, IMAGE[0]), (64, 64, 3, IMAGE[1]))
layer(
    "Conv2D 3x3 strided", conv(2, padding=1, stride=2), (8, 8, 3, IMAGE[0]), (64, 64, 3, IMAGE[1])
)
layer(
    "Conv2D 7x7 stem",
    conv(2, padding=3, stride=2),
    (3, 8, 7, floats(1, 3, 32, 32)),
    (3, 64, 7, floats(4, 3, 224, 224)),
)
layer(
    "Conv2D patches",
    lambda o, k: nn.Conv2D(3, o, k, k),
    (16, 8, floats(1, 3, 32, 32)),
    (384, 16, floats(4, 3, 224, 224)),
)
layer("Conv2D dilated", conv(2, padding=2, dilation=2), (8, 8, 3, IMAGE[0]), (64, 64, 3, IMAGE[1]))
layer("Conv2D grouped", conv(2, padding=1, groups=4), (8, 8, 3, IMAGE[0]), (64, 64, 3, IMAGE[1]))
layer(
    "Conv2D depthwise",
    lambda c, k: nn.Conv2D(c, c, k, padding=k // 2, groups=c),
    (8, 3, IMAGE[0]),
    (64, 3, IMAGE[1]),
)
layer(
    "Conv2D depthwise 7x7",
    lambda c, k: nn.Conv2D(c, c, k, padding=k // 2, groups=c),
    (8, 7, IMAGE[0]),
    (64, 7, IMAGE[1]),
)
layer(
    "Conv2DTranspose",
    lambda i, o, k: nn.Conv2DTranspose(i, o, k, stride=2, padding=1),
    (8, 8, 4, IMAGE[0]),
    (64, 32, 4, floats(4, 64, 28, 28)),
)
layer(
    "Conv1DTranspose",
    lambda i, o, k: nn.Conv1DTranspose(i, o, k, stride=2, padding=1),
    (8, 8, 4, floats(2, 8, 32)),
    (128, 64, 4, floats(4, 128, 256)),
)
layer(
    "Conv3D",
    conv(3, padding=1),
    (4, 4, 3, floats(1, 4, 8, 8, 8)),
    (16, 16, 3, floats(2, 16, 16, 32, 32)),
)
case("max_pool2d", lambda x: F.max_pool2d(x, 2), *IMAGE)
case("max_pool2d 3 strided", lambda x: F.max_pool2d(x, 3, 2, 1), *IMAGE)
case("max_pool1d", lambda x: F.max_pool1d(x, 2), floats(2, 8, 32), floats(16, 128, 512))
case("avg_pool2d", lambda x: F.avg_pool2d(x, 2), *IMAGE)
case("avg_pool2d 3", lambda x: F.avg_pool2d(x, 3, 1, 1), *IMAGE)
case("adaptive_avg_pool2d 1", lambda x: F.adaptive_avg_pool2d(x, 1), *IMAGE)
case("adaptive_avg_pool2d 7", lambda x: F.adaptive_avg_pool2d(x, 7), *IMAGE)
case("adaptive_max_pool2d 1", lambda x: F.adaptive_max_pool2d(x, 1), *IMAGE)
case(
    "nearest twice",
    lambda x: F.interpolate(x, scale_factor=2),
    floats(1, 8, 16, 16),
    floats(4, 32, 56, 56),
)
case(
    "bilinear twice",
    lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    floats(1, 8, 16, 16),
    floats(4, 32, 56, 56),
)
case("bilinear down", lambda x: F.interpolate(x, size=[8, 8], mode="bilinear"), *IMAGE)
case(
    "bicubic",
    lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    floats(1, 3, 16, 16),
    floats(4, 3, 112, 112),
)
case(
    "linear",
    lambda x: F.interpolate(x, scale_factor=2, mode="linear", data_format="NCW"),
    floats(2, 8, 32),
    floats(8, 64, 512),
)
case("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), *IMAGE)
case("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), *IMAGE)
case("channel_shuffle", lambda x: F.channel_shuffle(x, 2), *IMAGE)
case(
    "grid_sample 3",
    lambda x, g: F.grid_sample(x, g),
    (floats(1, 3, 16, 16), floats(1, 16, 16, 2)),
    (floats(4, 3, 128, 128), floats(4, 128, 128, 2)),
)
case(
    "grid_sample 2, image only",
    lambda x, g: F.grid_sample(x, g),
    (floats(1, 2, 16, 16), plain(1, 16, 16, 2)),
    (floats(4, 2, 128, 128), plain(4, 128, 128, 2)),
)
case(
    "grid_sample 32",
    lambda x, g: F.grid_sample(x, g),
    (floats(1, 32, 16, 16), floats(1, 16, 16, 2)),
    (floats(2, 32, 64, 64), floats(2, 64, 64, 2)),
)
case(
    "affine_grid",
    lambda t: F.affine_grid(t, [t.shape[0], 3, 64, 64]),
    floats(1, 2, 3),
    floats(16, 2, 3),
)
case("local response norm", lambda x: F.local_response_norm(x, 5), *IMAGE)

# ---------------------------------------------------------------- transforms
for _n, _rows in ((256, 64), (400, 500), (512, 200), (1024, 64)):
    _small, _large = floats(1, _n), floats(_rows, _n)
    case(f"rfft {_n}", lambda x: paddle.fft.rfft(x).abs(), _small, _large)
    case(f"rfft irfft {_n}", lambda x: paddle.fft.irfft(paddle.fft.rfft(x)), _small, _large)
case(
    "fft ifft 256",
    lambda x: paddle.fft.ifft(paddle.fft.fft(x)).real(),
    floats(1, 256),
    floats(256, 256),
)
case(
    "rfft2", lambda x: paddle.fft.irfft2(paddle.fft.rfft2(x)), floats(1, 16, 16), floats(32, 64, 64)
)
case("stft", lambda x: paddle.signal.stft(x, 512, 128).abs(), floats(1, 2048), floats(4, 32000))


# ---------------------------------------------------------------- blocks
class Attention(nn.Layer):
    def __init__(self, d: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.qkv, self.out, self.heads, self.causal = (
            nn.Linear(d, 3 * d),
            nn.Linear(d, d),
            heads,
            causal,
        )

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).reshape([b, t, 3, self.heads, -1]).transpose([2, 0, 3, 1, 4])
        s = paddle.matmul(q, k, transpose_y=True) * (d // self.heads) ** -0.5
        if self.causal:
            s = s + paddle.triu(paddle.full([t, t], -1e9), 1)
        y = paddle.matmul(F.softmax(s), v).transpose([0, 2, 1, 3]).reshape([b, t, d])
        return self.out(y)


class Feedforward(nn.Layer):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


layer("attention", Attention, (32, 2, floats(2, 8, 32)), (256, 8, floats(4, 128, 256)))
layer(
    "attention, causal",
    lambda d, h: Attention(d, h, True),
    (32, 2, floats(2, 8, 32)),
    (256, 8, floats(4, 128, 256)),
)
case(
    "scaled_dot_product_attention",
    lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
    [floats(2, 8, 2, 16)] * 3,
    [floats(4, 128, 8, 32)] * 3,
)
layer(
    "MultiHeadAttention",
    nn.MultiHeadAttention,
    (32, 2, floats(2, 8, 32)),
    (256, 8, floats(4, 128, 256)),
)
layer("LayerNorm, MLP", Feedforward, (32, floats(2, 8, 32)), (256, floats(4, 128, 256)))
layer(
    "TransformerEncoderLayer",
    lambda d, h: nn.TransformerEncoderLayer(d, h, 4 * d, dropout=0.0),
    (32, 2, floats(2, 8, 32)),
    (256, 8, floats(4, 128, 256)),
)
layer("LSTM", nn.LSTM, (16, 16, floats(2, 8, 16)), (128, 128, floats(8, 64, 128)))
layer("GRU", nn.GRU, (16, 16, floats(2, 8, 16)), (128, 128, floats(8, 64, 128)))
layer(
    "LSTMCell", lambda i, h: nn.LSTMCell(i, h), (16, 16, floats(2, 16)), (256, 256, floats(64, 256))
)
layer(
    "MLP",
    lambda d: nn.Sequential(
        nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, 10)
    ),
    (32, floats(8, 32)),
    (512, floats(128, 512)),
)
layer(
    "residual block",
    lambda c: nn.Sequential(
        nn.Conv2D(c, c, 3, padding=1),
        nn.BatchNorm2D(c),
        nn.ReLU(),
        nn.Conv2D(c, c, 3, padding=1),
        nn.BatchNorm2D(c),
    ),
    (8, IMAGE[0]),
    (64, floats(4, 64, 28, 28)),
)


__all__ = ["CASES"]
