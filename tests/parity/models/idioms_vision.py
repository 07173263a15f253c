"""Loops of models of frames: ConvLSTM, and a spiking VGG. Convolutions are Paddle's own kernels."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn


class ConvLSTMCell(nn.Layer):
    def __init__(self, in_channels: int, hidden_channels: int, kernel: int = 3) -> None:
        super().__init__()
        self.hidden_channels = hidden_channels
        self.conv = nn.Conv2D(
            in_channels + hidden_channels, 4 * hidden_channels, kernel, padding=kernel // 2
        )

    def init_hidden(self, batch, height, width):
        shape = [batch, self.hidden_channels, height, width]
        return paddle.zeros(shape), paddle.zeros(shape)

    def forward(self, x, state):
        h, c = state
        gates = self.conv(paddle.concat([x, h], axis=1))
        i, f, o, g = paddle.split(gates, 4, axis=1)
        c = F.sigmoid(f) * c + F.sigmoid(i) * paddle.tanh(g)
        h = F.sigmoid(o) * paddle.tanh(c)
        return h, c


class ConvLSTM(nn.Layer):
    """Encodes the frames, then rolls out as many predictions; states are a list of (h, c)."""

    def __init__(self, channels: int = 2, hidden: tuple[int, ...] = (3, 4)) -> None:
        super().__init__()
        sizes = [channels, *hidden]
        self.cells = nn.LayerList([ConvLSTMCell(i, o) for i, o in zip(sizes[:-1], sizes[1:])])
        self.head = nn.Conv2D(hidden[-1], channels, 1)

    def step(self, x, states):
        for i, cell in enumerate(self.cells):
            states[i] = cell(x, states[i])
            x = states[i][0]
        return x

    def forward(self, frames):
        batch, steps, _, height, width = frames.shape
        states = [cell.init_hidden(batch, height, width) for cell in self.cells]
        for t in range(steps):
            self.step(frames[:, t], states)
        outputs = []
        frame = frames[:, -1]
        for _ in range(steps):
            frame = F.sigmoid(self.head(self.step(frame, states)))
            outputs.append(frame)
        return paddle.stack(outputs, axis=1), states


class LIFNode(nn.Layer):
    """Leaky integrate-and-fire: the membrane potential is an attribute, None at rest."""

    def __init__(self, tau: float = 2.0, v_threshold: float = 0.2, v_reset: float = 0.0) -> None:
        super().__init__()
        self.tau, self.v_threshold, self.v_reset = tau, v_threshold, v_reset
        self.v = None

    def reset(self):
        self.v = None

    def forward(self, x):
        if self.v is None:
            self.v = paddle.full_like(x, self.v_reset)
        self.v = self.v + (x - (self.v - self.v_reset)) / self.tau
        spike = (self.v >= self.v_threshold).astype("float32")
        self.v = (1.0 - spike) * self.v + spike * self.v_reset
        return spike


class SpikingVGG(nn.Layer):
    """T presentations of one image; the answer is the rate of the output neurons' spikes."""

    def __init__(self, steps: int, layout: tuple = (4, "M", 6, "M"), classes: int = 3) -> None:
        super().__init__()
        self.T = steps
        layers: list[nn.Layer] = []
        channels = 2
        for v in layout:
            if v == "M":
                layers.append(nn.MaxPool2D(2, 2))
                continue
            layers += [nn.Conv2D(channels, v, 3, padding=1), nn.BatchNorm2D(v), LIFNode()]
            channels = v
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(channels * 4, 8), LIFNode(), nn.Linear(8, classes)
        )
        self.output = LIFNode(v_threshold=0.05)

    def reset_net(self):
        for m in self.sublayers():
            if isinstance(m, LIFNode):
                m.reset()

    def forward(self, image):
        self.reset_net()
        out_fr = 0.0
        for _ in range(self.T):
            x = self.features(image)
            x = paddle.flatten(x, 1)
            out_fr += self.output(self.classifier(x))
        return out_fr / self.T
