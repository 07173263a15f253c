"""Loops over lists, deques and tables of numbers, as their models write them."""

from __future__ import annotations

from collections import deque

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn


class DDPM(nn.Layer):
    """Ancestral sampling: the schedule is a NumPy array, Python's numbers and a list of steps."""

    def __init__(self, steps: int, size: int = 4) -> None:
        super().__init__()
        self.net, self.time = nn.Linear(size, size), nn.Linear(1, size)
        self.betas = np.linspace(1e-4, 0.02, steps)
        self.alphas = [1.0 - float(b) for b in self.betas]
        self.alpha_bars = np.cumprod(self.alphas).tolist()
        self.steps = list(range(steps))[::-1]

    def forward(self, x, noise):
        for i, t in enumerate(self.steps):
            when = paddle.full([1, 1], t / 1000.0)
            eps = self.net(paddle.tanh(x + self.time(when)))
            coefficient = (1 - self.alphas[t]) / (1 - self.alpha_bars[t]) ** 0.5
            x = (x - coefficient * eps) / self.alphas[t] ** 0.5
            if t > 0:
                x = x + self.betas[t] ** 0.5 * noise[i]
        return x


class DDIM(nn.Layer):
    """Deterministic sampling over pairs of steps; some of the images are kept."""

    def __init__(self, steps: int, size: int = 4) -> None:
        super().__init__()
        self.net = nn.Linear(size, size)
        self.sigmas = [0.02 + 0.9 * (1 - k / (steps + 1)) for k in range(steps + 1)]
        self.keep = {0, 3, 5, 18}

    def forward(self, x):
        kept = []
        for step in range(len(self.sigmas) - 1):
            now, later = self.sigmas[step], self.sigmas[step + 1]
            eps = self.net(x / (now**2 + 1) ** 0.5)
            x = x + (later - now) * eps
            if step in self.keep:
                kept.append(x)
        return x, kept


class DPMSolver(nn.Layer):
    """Multistep: the predictions of the last steps are shifted in a list of the scheduler."""

    def __init__(self, steps: int, size: int = 4) -> None:
        super().__init__()
        self.net = nn.Linear(size, size)
        self.lambdas = [0.3 * k for k in range(steps + 1)]

    def forward(self, x):
        outputs = [paddle.zeros_like(x), paddle.zeros_like(x)]
        for i in range(len(self.lambdas) - 1):
            outputs[0] = outputs[1]
            outputs[1] = paddle.tanh(self.net(x))
            h = self.lambdas[i + 1] - self.lambdas[i]
            x = (1 - 0.1 * h) * x + 0.1 * h * (1.5 * outputs[1] - 0.5 * outputs[0])
        return x


class AdamsBashforth(nn.Layer):
    """A two-step integrator: all derivatives are in a list, the last two are read."""

    def __init__(self, size: int = 4) -> None:
        super().__init__()
        self.net = nn.Linear(size, size)

    def forward(self, x, drive):
        fs, xs = [paddle.tanh(self.net(x))], [x]
        for t in range(drive.shape[0]):
            x = xs[t] + 0.1 * (1.5 * fs[-1] - 0.5 * fs[-2] if t > 0 else fs[-1]) + drive[t]
            xs.append(x)
            fs.append(paddle.tanh(self.net(x)))
        return paddle.stack(xs)


class WaveNet(nn.Layer):
    """Fast generation: each dilated convolution has a queue of its past inputs."""

    def __init__(self, size: int = 4, dilations: tuple[int, ...] = (1, 2, 4)) -> None:
        super().__init__()
        self.past = nn.LayerList([nn.Linear(size, 2 * size) for _ in dilations])
        self.now = nn.LayerList([nn.Linear(size, 2 * size) for _ in dilations])
        self.dilations = dilations

    def forward(self, x, conditions):
        queues = [deque([paddle.zeros_like(x)] * d, maxlen=d) for d in self.dilations]
        out = []
        for t in range(conditions.shape[1]):
            x = x + conditions[:, t]
            for queue, past, now in zip(queues, self.past, self.now):
                a, b = (past(queue[0]) + now(x)).chunk(2, axis=-1)
                queue.append(x)
                x = x + paddle.tanh(a) * F.sigmoid(b)
            out.append(x)
        return paddle.stack(out, axis=1)


class ConvLSTMRollout(nn.Layer):
    """Layers of cells with lists of states; the prediction is the next input."""

    def __init__(self, layers: int = 2, channels: int = 3) -> None:
        super().__init__()
        self.cells = nn.LayerList(
            [nn.Conv2D(2 * channels, 4 * channels, 3, padding=1) for _ in range(layers)]
        )
        self.head = nn.Conv2D(channels, channels, 1)

    def forward(self, frames):
        hs = [paddle.zeros_like(frames[:, 0]) for _ in self.cells]
        cs = [paddle.zeros_like(frames[:, 0]) for _ in self.cells]
        predictions = []
        for t in range(frames.shape[1]):
            x = frames[:, t] if t < 2 else predictions[-1]
            for i, cell in enumerate(self.cells):
                i_, f, o, g = cell(paddle.concat([x, hs[i]], axis=1)).chunk(4, axis=1)
                cs[i] = F.sigmoid(f) * cs[i] + F.sigmoid(i_) * paddle.tanh(g)
                hs[i] = F.sigmoid(o) * paddle.tanh(cs[i])
                x = hs[i]
            predictions.append(self.head(x))
        return paddle.stack(predictions, axis=1)


class ChunkEncoder(nn.Layer):
    """U2's forward_chunk_by_chunk: windows that overlap, the last of which is shorter."""

    def __init__(self, size: int = 4, chunk: int = 2, context: int = 3) -> None:
        super().__init__()
        self.proj, self.chunk, self.context = nn.Linear(size, size), chunk, context

    def forward(self, xs):
        frames, state, outputs = xs.shape[1], paddle.zeros_like(xs[:, 0]), []
        for cur in range(0, frames, self.chunk):
            end = min(cur + self.context, frames)
            window = xs[:, cur:end, :]
            state = paddle.tanh(self.proj(window).mean(1) + state)
            outputs.append(state)
        return paddle.stack(outputs, axis=1)


class Smoother(nn.Layer):
    """A moving average and a difference over the last frames, as streaming front ends have them."""

    def __init__(self, size: int = 4, width: int = 5) -> None:
        super().__init__()
        self.proj, self.width = nn.Linear(size, size), width

    def forward(self, x):
        window, out = [], []
        for t in range(x.shape[1]):
            window.append(self.proj(x[:, t]))
            if len(window) > self.width:
                window.pop(0)
            out.append(sum(window) / len(window) + window[-1] - window[0])
        return paddle.stack(out, axis=1)
