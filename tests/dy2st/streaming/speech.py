"""Small forms of published models of speech and audio, on whole sequences."""

import paddle
import paddle.nn.functional as F
from paddle import nn


class Causal(nn.Layer):
    """A convolution of which frame t ends at frame t of its input."""

    def __init__(self, channels, filters, taps, stride=1, dilation=1, groups=1):
        super().__init__()
        self.before = (taps - 1) * dilation - (stride - 1)
        self.conv = nn.Conv1D(channels, filters, taps, stride, 0, dilation, groups)

    def forward(self, x):
        return self.conv(F.pad(x, [self.before, 0], data_format="NCL"))


class CumulativeNorm(nn.Layer):
    """By the mean and variance of all channels and frames so far."""

    def __init__(self, channels):
        super().__init__()
        self.gain = nn.Conv1D(channels, channels, 1, groups=channels)

    def forward(self, x):
        count = paddle.arange(1, x.shape[2] + 1, dtype="float32") * x.shape[1]
        mean = paddle.cumsum(x.sum(1), -1) / count
        power = paddle.cumsum((x**2).sum(1), -1) / count
        spread = paddle.sqrt(power - mean**2 + 1e-6)
        return self.gain((x - mean.unsqueeze(1)) / spread.unsqueeze(1))


class TasBlock(nn.Layer):
    def __init__(self, channels, hidden, dilation):
        super().__init__()
        self.inner = nn.Conv1D(channels, hidden, 1)
        self.slopes, self.norm = nn.PReLU(hidden), CumulativeNorm(hidden)
        self.depth = Causal(hidden, hidden, 3, dilation=dilation, groups=hidden)
        self.outer = nn.Conv1D(hidden, 2 * channels, 1)

    def forward(self, x):
        rest, skip = self.outer(self.depth(self.norm(self.slopes(self.inner(x))))).chunk(2, axis=1)
        return x + rest, skip


class ConvTasNet(nn.Layer):
    """Two voices of one sound: [B, 1, T] to [B, 2, T]."""

    def __init__(self, channels=8):
        super().__init__()
        self.encoder = nn.Conv1D(1, channels, 8, stride=4)
        self.blocks = nn.LayerList(TasBlock(channels, 12, 2**k) for k in range(3))
        self.masks = nn.Conv1D(channels, 2 * channels, 1)
        self.decoder = nn.Conv1DTranspose(channels, 1, 8, stride=4)

    def forward(self, x):
        sound = F.relu(self.encoder(x))
        y, total = sound, 0.0
        for block in self.blocks:
            y, skip = block(y)
            total = total + skip
        n, c, t = sound.shape
        masks = F.sigmoid(self.masks(total)).reshape([n, 2, c, t])
        voices = (sound.unsqueeze(1) * masks).reshape([2 * n, c, t])
        return self.decoder(voices).reshape([n, 2, -1])


class Codec(nn.Layer):
    """Strided causal convolutions to codes and back: [1, 1, T] to [1, 1, T] and the codes."""

    def __init__(self, channels=4, codes=32):
        super().__init__()
        self.down = nn.Sequential(
            Causal(1, channels, 7),
            nn.ELU(),
            Causal(channels, 2 * channels, 4, stride=2),
            nn.ELU(),
            Causal(2 * channels, 6, 8, stride=4),
        )
        self.lstm = nn.LSTM(6, 6)
        self.book = self.create_parameter([codes, 6])
        self.up = nn.LayerList(
            (
                nn.Conv1DTranspose(6, 2 * channels, 8, stride=4),
                nn.Conv1DTranspose(2 * channels, channels, 4, stride=2),
            )
        )
        self.out = Causal(channels, 1, 7)

    def forward(self, x):
        z = self.down(x).transpose([0, 2, 1])
        z = z + self.lstm(z)[0]
        far = (self.book**2).sum(1) - 2 * paddle.einsum("btd,cd->btc", z, self.book)
        codes = paddle.argmin(far, -1)
        y = F.embedding(codes, self.book).transpose([0, 2, 1])
        for layer in self.up:
            wide = layer(F.elu(y))
            y = wide[:, :, : wide.shape[2] - layer._stride[0]]
        return self.out(y), codes


class GTCRN(nn.Layer):
    """Enhancement: convolutions, a GRU over the bands in both directions, one over time."""

    def __init__(self, channels=4, bands=6):
        super().__init__()
        self.conv = nn.Conv2D(6, channels, 3, padding=(0, 1))
        self.norm, self.slope = nn.BatchNorm2D(channels), nn.PReLU()
        self.attend = nn.GRU(channels, channels)
        self.within = nn.GRU(channels, 2, direction="bidirect")
        self.between = nn.GRU(channels, channels)
        self.layer_norm = nn.LayerNorm([bands, channels])
        self.out = nn.Conv2D(channels, 2, 1)

    def forward(self, x):  # [B, 2, T, F]: real and imaginary parts
        b, _, t, f = x.shape
        wide = F.pad(x, [1, 1, 0, 0])
        y = paddle.concat([wide[:, :, :, k : k + f] for k in range(3)], 1)
        y = self.slope(self.norm(self.conv(F.pad(y, [0, 0, 2, 0]))))
        gate = F.sigmoid(self.attend((y**2).mean(-1).transpose([0, 2, 1]))[0])
        y = (y * gate.transpose([0, 2, 1]).unsqueeze(-1)).transpose([0, 2, 3, 1])
        within = self.within(y.reshape([b * t, f, -1]))[0].reshape([b, t, f, -1])
        y = y + self.layer_norm(within)
        between = self.between(y.transpose([0, 2, 1, 3]).reshape([b * f, t, -1]))[0]
        y = y + between.reshape([b, f, t, -1]).transpose([0, 2, 1, 3])
        mask = paddle.tanh(self.out(y.transpose([0, 3, 1, 2])))
        angle = paddle.atan2(x[:, 1:], x[:, :1] + 1e-3)
        size = F.normalize(x, axis=1) * mask
        return paddle.concat([size[:, :1] * paddle.cos(angle), size[:, 1:] * paddle.sin(angle)], 1)


class Conformer(nn.Layer):
    """Convolutional subsampling, attention with a band mask, a causal convolution module."""

    def __init__(self, width=8, left=6, right=1):
        super().__init__()
        self.left, self.right = left, right
        self.sub1, self.sub2 = nn.Conv2D(1, 4, 3, 2), nn.Conv2D(4, 4, 3, 2)
        self.project = nn.Linear(12, width)
        self.attention = nn.LayerList(nn.MultiHeadAttention(width, 2) for _ in range(2))
        self.norms = nn.LayerList(nn.LayerNorm(width) for _ in range(2))
        self.gates = nn.LayerList(nn.Conv1D(width, 2 * width, 1) for _ in range(2))
        self.depths = nn.LayerList(Causal(width, width, 5, groups=width) for _ in range(2))

    def forward(self, x):  # [B, T, 16]
        y = F.relu(self.sub2(F.relu(self.sub1(x.unsqueeze(1)))))
        b, c, t, f = y.shape
        y = self.project(y.transpose([0, 2, 1, 3]).reshape([b, t, c * f]))
        i, j = paddle.arange(t).unsqueeze(1), paddle.arange(t)
        mask = ((i - j <= self.left) & (j - i <= self.right)).unsqueeze([0, 1])
        at = i.astype("float32") * paddle.to_tensor([1.0, 0.3, 0.1, 0.03])
        y = y + paddle.concat([paddle.sin(at), paddle.cos(at)], -1)
        for attend, norm, gate, depth in zip(self.attention, self.norms, self.gates, self.depths):
            z = norm(y)
            y = y + attend(z, z, z, mask)
            z = depth(F.glu(gate(y.transpose([0, 2, 1])), 1))
            y = y + F.swish(z).transpose([0, 2, 1])
        return y
