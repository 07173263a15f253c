"""Models of speech and audio, as their users write them: on whole sequences."""

import paddle
import paddle.nn.functional as F
from paddle import nn


class DeepSpeech2(nn.Layer):
    """Convolutions over time and frequency, stride 2 in time, forward GRUs, letters."""

    def __init__(self, features=16, hidden=24, letters=12):
        super().__init__()
        self.conv1 = nn.Conv2D(1, 4, (11, 5), stride=(2, 2), padding=(5, 2))
        self.bn1 = nn.BatchNorm2D(4)
        self.conv2 = nn.Conv2D(4, 4, (5, 5), stride=(2, 2), padding=(2, 2))
        self.bn2 = nn.BatchNorm2D(4)
        self.rnn = nn.GRU(4 * features // 4, hidden, num_layers=2)
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, letters)

    def forward(self, x):  # [B, T, F]
        y = x.unsqueeze(1)
        y = F.hardtanh(self.bn1(self.conv1(y)), 0, 20)
        y = F.hardtanh(self.bn2(self.conv2(y)), 0, 20)
        b, c, t, f = y.shape
        y = y.transpose([0, 2, 1, 3]).reshape([b, t, c * f])
        y, _ = self.rnn(y)
        return F.log_softmax(self.out(self.norm(y)))


class CausalBlock(nn.Layer):
    def __init__(self, channels, kernel, dilation):
        super().__init__()
        self.left = (kernel - 1) * dilation
        self.depth = nn.Conv1D(channels, channels, kernel, dilation=dilation, groups=channels)
        self.norm = nn.BatchNorm1D(channels)
        self.point = nn.Conv1D(channels, channels, 1)

    def forward(self, x):
        y = F.pad(x, [self.left, 0], data_format="NCL")
        y = self.point(F.relu(self.norm(self.depth(y))))
        return F.relu(y + x)


class MDTC(nn.Layer):
    """Keyword spotting: stacks of dilated causal convolutions, whose outputs are summed."""

    def __init__(self, features=10, channels=16, stacks=2, depth=3, words=2):
        super().__init__()
        self.start = nn.Conv1D(features, channels, 1)
        self.stacks = nn.LayerList(
            nn.LayerList(CausalBlock(channels, 5, 2**k) for k in range(depth))
            for _ in range(stacks)
        )
        self.out = nn.Linear(channels, words)

    def forward(self, x):  # [B, T, F]
        y = F.relu(self.start(x.transpose([0, 2, 1])))
        total = 0.0
        for stack in self.stacks:
            for block in stack:
                y = block(y)
            total = total + y
        return F.sigmoid(self.out(total.transpose([0, 2, 1])))


class CRN(nn.Layer):
    """Enhancement: causal convolutions over frames and bands, a GRU, and back, with skips."""

    def __init__(self, bands=16, channels=4):
        super().__init__()
        self.enc1 = nn.Conv2D(1, channels, (2, 3), stride=(1, 2), padding=(0, 1))
        self.enc2 = nn.Conv2D(channels, channels, (2, 3), stride=(1, 2), padding=(0, 1))
        self.rnn = nn.GRU(channels * bands // 4, channels * bands // 4)
        self.dec2 = nn.Conv2DTranspose(
            2 * channels, channels, (1, 4), stride=(1, 2), padding=(0, 1)
        )
        self.dec1 = nn.Conv2DTranspose(2 * channels, 1, (1, 4), stride=(1, 2), padding=(0, 1))

    def forward(self, x):  # [B, T, F] magnitudes
        a = F.elu(self.enc1(F.pad(x.unsqueeze(1), [0, 0, 1, 0])))
        c = F.elu(self.enc2(F.pad(a, [0, 0, 1, 0])))
        b, n, t, f = c.shape
        y, _ = self.rnn(c.transpose([0, 2, 1, 3]).reshape([b, t, n * f]))
        y = y.reshape([b, t, n, f]).transpose([0, 2, 1, 3])
        y = F.elu(self.dec2(paddle.concat([y, c], 1)))
        mask = F.sigmoid(self.dec1(paddle.concat([y, a], 1)))
        return x * mask.squeeze(1)


class DPRNN(nn.Layer):
    """Within each block of frames in both directions, and forward from block to block."""

    def __init__(self, features=6, block=8, hidden=8, depth=2):
        super().__init__()
        self.block = block
        self.inside = nn.LayerList(
            nn.GRU(features, hidden, direction="bidirect") for _ in range(depth)
        )
        self.between = nn.LayerList(nn.GRU(features, hidden) for _ in range(depth))
        self.lin1 = nn.LayerList(nn.Linear(2 * hidden, features) for _ in range(depth))
        self.lin2 = nn.LayerList(nn.Linear(hidden, features) for _ in range(depth))
        self.norms = nn.LayerList(nn.LayerNorm(features) for _ in range(depth))

    def forward(self, x):  # [1, T, F]
        _, t, f = x.shape
        k = self.block
        y = x.reshape([t // k, k, f])  # blocks as a batch
        for inside, between, lin1, lin2, norm in zip(
            self.inside, self.between, self.lin1, self.lin2, self.norms
        ):
            y = y + lin1(inside(y)[0])
            z = norm(y).transpose([1, 0, 2])  # places as a batch, blocks as time
            y = y + lin2(between(z)[0]).transpose([1, 0, 2])
        return y.reshape([1, t, f])


class WaveNet(nn.Layer):
    """Gated dilated causal convolutions with skips."""

    def __init__(self, channels=8, depth=5, classes=16):
        super().__init__()
        self.start = nn.Conv1D(1, channels, 1)
        self.gates = nn.LayerList(
            nn.Conv1D(channels, 2 * channels, 2, dilation=2**k) for k in range(depth)
        )
        self.mixes = nn.LayerList(nn.Conv1D(channels, channels, 1) for _ in range(depth))
        self.skips = nn.LayerList(nn.Conv1D(channels, channels, 1) for _ in range(depth))
        self.out = nn.Conv1D(channels, classes, 1)

    def forward(self, x):  # [B, 1, T]
        y, total = self.start(x), 0.0
        for k, (gate, mix, skip) in enumerate(zip(self.gates, self.mixes, self.skips)):
            a, b = gate(F.pad(y, [2**k, 0], data_format="NCL")).chunk(2, axis=1)
            z = paddle.tanh(a) * F.sigmoid(b)
            total = total + skip(z)
            y = y + mix(z)
        return F.softmax(self.out(F.relu(total)), axis=1)


class Vocoder(nn.Layer):
    """Frames to samples: transposed convolutions and residual blocks of dilated ones."""

    def __init__(self, features=8, channels=8):
        super().__init__()
        self.start = nn.Conv1D(features, channels, 7, padding=3)
        self.up1 = nn.Conv1DTranspose(channels, channels, 8, stride=4, padding=2)
        self.res1 = nn.LayerList(
            nn.Conv1D(channels, channels, 3, dilation=d, padding=d) for d in (1, 3)
        )
        self.up2 = nn.Conv1DTranspose(channels, 4, 4, stride=2, padding=1)
        self.out = nn.Conv1D(4, 1, 7, padding=3)

    def forward(self, x):  # [B, F, T]
        y = self.up1(F.leaky_relu(self.start(x), 0.1))
        for conv in self.res1:
            y = y + conv(F.leaky_relu(y, 0.1))
        return paddle.tanh(self.out(F.leaky_relu(self.up2(y), 0.1)))


class U2(nn.Layer):
    """Subsampling, attention to this block of frames and the `left` ones before it, a causal
    convolution module; `forward_chunk` is its streaming form, written by hand."""

    def __init__(self, features=8, width=12, heads=2, block=4, left=2, kernel=3):
        super().__init__()
        self.heads, self.block, self.left, self.kernel = heads, block, left, kernel
        self.sub = nn.Conv1D(features, width, 4, stride=4)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.o = nn.Linear(width, width)
        self.gate = nn.Linear(width, 2 * width)
        self.depth = nn.Conv1D(width, width, kernel, groups=width)
        self.point = nn.Linear(width, width)

    def split(self, x):  # [N, T, D] -> [N, H, T, D / H]
        n, t, d = x.shape
        return x.reshape([n, t, self.heads, d // self.heads]).transpose([0, 2, 1, 3])

    def attend(self, q, k, v, there):
        """`there` [N, 1, 1, keys]: 1 where a key is a frame."""
        q, k, v = self.split(q), self.split(k), self.split(v)
        scores = paddle.matmul(q, k, transpose_y=True) / q.shape[-1] ** 0.5
        scores = paddle.where(there > 0, scores, paddle.full([], -1e9))
        y = paddle.matmul(F.softmax(scores), v).transpose([0, 2, 1, 3])
        return self.o(y.reshape([y.shape[0], y.shape[1], -1]))

    def around(self, x):
        """[N, C, D] blocks -> [N, (left + 1) * C, D]: each with the ones before it."""
        n, c, d = x.shape
        wide = F.pad(x, [0, 0, 0, 0, self.left, 0], pad_from_left_axis=False)
        parts = wide.unfold(0, self.left + 1, 1)  # [N, C, D, left + 1]
        return parts.transpose([0, 3, 1, 2]).reshape([n, (self.left + 1) * c, d])

    def forward(self, x):  # [1, T, F]
        x = F.relu(self.sub(x.transpose([0, 2, 1]))).transpose([0, 2, 1])
        _, t, d = x.shape
        y = self.norm1(x).reshape([t // self.block, self.block, d])
        there = self.around(paddle.ones([t // self.block, self.block, 1]))
        z = self.attend(
            self.q(y),
            self.around(self.k(y)),
            self.around(self.v(y)),
            there.reshape([t // self.block, 1, 1, -1]),
        )
        x = x + z.reshape([1, t, d])
        a, b = self.gate(self.norm2(x)).chunk(2, axis=-1)
        y = (a * F.sigmoid(b)).transpose([0, 2, 1])
        y = self.depth(F.pad(y, [self.kernel - 1, 0], data_format="NCL"))
        return x + self.point(F.silu(y).transpose([0, 2, 1]))

    def start(self):
        """Caches of keys, values, which of them are frames, and of the convolution."""
        width = self.q.weight.shape[0]
        keys = paddle.zeros([1, self.left * self.block, width])
        return (
            keys,
            keys,
            paddle.zeros([1, self.left * self.block]),
            paddle.zeros([1, width, self.kernel - 1]),
        )

    def forward_chunk(self, x, caches):
        """One block of frames, with caches."""
        keys, values, there, frames = caches
        x = F.relu(self.sub(x.transpose([0, 2, 1]))).transpose([0, 2, 1])
        y = self.norm1(x)
        k = paddle.concat([keys, self.k(y)], 1)
        v = paddle.concat([values, self.v(y)], 1)
        there = paddle.concat([there, paddle.ones([1, self.block])], 1)
        x = x + self.attend(self.q(y), k, v, there.reshape([1, 1, 1, -1]))
        a, b = self.gate(self.norm2(x)).chunk(2, axis=-1)
        y = paddle.concat([frames, (a * F.sigmoid(b)).transpose([0, 2, 1])], 2)
        x = x + self.point(F.silu(self.depth(y)).transpose([0, 2, 1]))
        n = self.block
        return x, (k[:, n:], v[:, n:], there[:, n:], y[:, :, n:])
