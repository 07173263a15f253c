"""Networks: vision, graphs, experts, memory, spiking and generative models."""

from __future__ import annotations

import collections
from typing import NamedTuple

import paddle
import paddle.nn.functional as F
from paddle import nn

from tests.parity.everyday import floats, integers, model


class ConvLSTMCell(nn.Layer):
    def __init__(self, c_in, hidden):
        super().__init__()
        self.hidden = hidden
        self.conv = nn.Conv2D(c_in + hidden, 4 * hidden, 3, padding=1)

    def init_state(self, x):
        shape = [x.shape[0], self.hidden, *x.shape[-2:]]
        return paddle.zeros(shape), paddle.zeros(shape)

    def forward(self, x, state):
        h, c = state
        i, f, o, g = self.conv(paddle.concat([x, h], axis=1)).chunk(4, axis=1)
        c = F.sigmoid(f) * c + F.sigmoid(i) * paddle.tanh(g)
        h = F.sigmoid(o) * paddle.tanh(c)
        return h, c


@model(floats(1, 3, 1, 4, 4))
class ConvLSTM(nn.Layer):
    def __init__(self, layers=2):
        super().__init__()
        cells = [ConvLSTMCell(1 if i == 0 else 2, 2) for i in range(layers)]
        self.cells = nn.LayerList(cells)

    def forward(self, x):
        current, last_states = x, []
        for cell in self.cells:
            state, outputs = cell.init_state(current[:, 0]), []
            for t in range(current.shape[1]):
                state = cell(current[:, t], state)
                outputs.append(state[0])
            current = paddle.stack(outputs, axis=1)
            last_states.append(state)
        return current, last_states


class LIF(nn.Layer):
    def __init__(self, tau=2.0, threshold=1.0):
        super().__init__()
        self.tau, self.threshold, self.v = tau, threshold, None

    def reset(self):
        self.v = None

    def forward(self, x):
        if self.v is None:
            self.v = paddle.zeros_like(x)
        self.v = self.v + (x - self.v) / self.tau
        spike = (self.v >= self.threshold).astype("float32")
        self.v = self.v * (1.0 - spike)
        return spike


@model(floats(2, 4), trained=False)
class SpikingNet(nn.Layer):
    def __init__(self, steps=4):
        super().__init__()
        self.steps = steps
        self.net = nn.Sequential(nn.Linear(4, 6), LIF(), nn.Linear(6, 3), LIF())

    def forward(self, x):
        for m in self.net:
            if isinstance(m, LIF):
                m.reset()
        counts = 0.0
        for _ in range(self.steps):
            counts = counts + self.net(x * 3)
        return counts / self.steps


@model(floats(2, 6, 4))
class CapsuleRouting(nn.Layer):
    def __init__(self, capsules=3, dim=5):
        super().__init__()
        self.w = self.create_parameter([6, capsules, 4, dim])

    @staticmethod
    def squash(s):
        norm = (s**2).sum(-1, keepdim=True)
        return norm / (1 + norm) * s / (norm + 1e-8).sqrt()

    def forward(self, u, iterations=3):
        u_hat = paddle.einsum("bid,icde->bice", u, self.w)
        b = paddle.zeros(u_hat.shape[:3])
        for r in range(iterations):
            c = F.softmax(b, axis=2)
            v = self.squash((c.unsqueeze(-1) * u_hat).sum(1))
            if r < iterations - 1:
                b = b + (u_hat * v.unsqueeze(1)).sum(-1)
        return v


class NTMState(NamedTuple):
    memory: paddle.Tensor
    read: paddle.Tensor
    weight: paddle.Tensor


@model(floats(2, 4, 3))
class NeuralTuringMachine(nn.Layer):
    def __init__(self, slots=4, width=3):
        super().__init__()
        self.controller = nn.Linear(3 + width, 8)
        self.key, self.erase, self.add = (nn.Linear(8, width) for _ in range(3))
        self.slots, self.width = slots, width

    def initial(self, batch):
        weight = paddle.full([batch, self.slots], 1.0 / self.slots)
        memory = paddle.full([batch, self.slots, self.width], 1e-2)
        return NTMState(memory, paddle.zeros([batch, self.width]), weight)

    def step(self, x, state):
        h = paddle.tanh(self.controller(paddle.concat([x, state.read], -1)))
        score = F.cosine_similarity(state.memory, self.key(h).unsqueeze(1), axis=-1)
        weight = 0.5 * F.softmax(score) + 0.5 * state.weight
        w = weight.unsqueeze(-1)
        memory = state.memory * (1 - w * F.sigmoid(self.erase(h)).unsqueeze(1))
        memory = memory + w * self.add(h).unsqueeze(1)
        return h, state._replace(memory=memory, weight=weight, read=(w * memory).sum(1))

    def forward(self, xs):
        state, outputs = self.initial(xs.shape[0]), []
        for t in range(xs.shape[1]):
            h, state = self.step(xs[:, t], state)
            outputs.append(h)
        return paddle.stack(outputs, 1), state.memory


@model(integers(9, 2, 4, 3), integers(9, 2, 3, seed=1))
class MemoryNetwork(nn.Layer):
    def __init__(self, vocab=9, dim=5, hops=3):
        super().__init__()
        self.hops = hops
        for h in range(hops + 1):
            self.add_sublayer(f"C_{h}", nn.Embedding(vocab, dim))

    def forward(self, story, query):
        u = [self.C_0(query).sum(1)]
        for hop in range(self.hops):
            m = getattr(self, f"C_{hop}")(story).sum(2)
            p = F.softmax((m * u[-1].unsqueeze(1)).sum(-1))
            c = getattr(self, f"C_{hop + 1}")(story).sum(2)
            u.append(u[-1] + (c * p.unsqueeze(-1)).sum(1))
        return u[-1] @ getattr(self, f"C_{self.hops}").weight.t()


@model(floats(5, 4))
class MixtureOfExperts(nn.Layer):
    def __init__(self, experts=3, k=2):
        super().__init__()
        self.experts = nn.LayerList([nn.Linear(4, 4) for _ in range(experts)])
        self.gate = nn.Linear(4, experts)
        self.k = k

    def forward(self, x):
        logits = self.gate(x)
        value, _ = logits.topk(self.k, axis=-1)
        logits = paddle.where(logits < value[:, -1:], paddle.full_like(logits, -1e9), logits)
        weights = F.softmax(logits, axis=-1)
        y = sum(weights[:, i : i + 1] * e(x) for i, e in enumerate(self.experts))
        load = {f"expert_{i}": weights[:, i].sum() for i in range(len(self.experts))}
        return y, load


@model(floats(3, 4), trained=False)
class EarlyExit(nn.Layer):
    def __init__(self):
        super().__init__()
        self.blocks = nn.LayerList([nn.Linear(4, 4) for _ in range(4)])
        self.heads = nn.LayerList([nn.Linear(4, 2) for _ in range(4)])
        self.threshold = 0.7

    def forward(self, x):
        for i, (block, head) in enumerate(zip(self.blocks, self.heads)):
            x = F.relu(block(x))
            p = F.softmax(head(x), axis=-1)
            if p.max(axis=-1).min() > self.threshold:
                return p, i
        return p, len(self.blocks)


@model(floats(2, 4))
class AdaptiveComputationTime(nn.Layer):
    def __init__(self, limit=5):
        super().__init__()
        self.cell, self.halt = nn.GRUCell(4, 4), nn.Linear(4, 1)
        self.limit = limit

    def forward(self, x):
        h = out = paddle.zeros_like(x)
        remaining = paddle.ones([x.shape[0], 1])
        n = 0
        while n < self.limit and remaining.max() > 0.05:
            _, h = self.cell(x, h)
            p = F.sigmoid(self.halt(h))
            out = out + remaining * p * h
            remaining = remaining * (1 - p)
            n += 1
        return out + remaining * h, n


@model(floats(4, 3), integers(2, 4, 4))
class GraphConvolution(nn.Layer):
    def __init__(self, layers=2):
        super().__init__()
        self.weights = nn.ParameterList([self.create_parameter([3, 3]) for _ in range(layers)])

    def forward(self, x, adjacency):
        a = adjacency.astype("float32") + paddle.eye(x.shape[0])
        norm = a / a.sum(axis=1, keepdim=True)
        for i, w in enumerate(self.weights):
            x = norm @ x @ w
            if i + 1 < len(self.weights):
                x = F.relu(x)
        return x


@model(floats(5, 4))
def tree_lstm_like(leaves):
    """Bottom up over a list of nodes, two at a time."""
    nodes = [leaves[i] for i in range(leaves.shape[0])]
    while len(nodes) > 1:
        merged = [paddle.tanh(a + 0.5 * b) for a, b in zip(nodes[::2], nodes[1::2])]
        if len(nodes) % 2:
            merged.append(nodes[-1])
        nodes = merged
    return nodes[0]


@model(floats(2, 8))
class VAE(nn.Layer):
    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.logvar = nn.Linear(8, 6), nn.Linear(6, 2), nn.Linear(6, 2)
        self.dec = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 8))

    def encode(self, x):
        h = F.relu(self.enc(x))
        return self.mu(h), self.logvar(h)

    def reparameterize(self, mu, logvar):
        if not self.training:
            return mu
        std = paddle.exp(0.5 * logvar)
        return mu + paddle.randn(std.shape) * std

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = self.reparameterize(mu, logvar)
        recon = self.dec(z)
        kld = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum()
        return {"recon": recon, "loss": F.mse_loss(recon, x, reduction="sum") + kld, "mu": mu}


@model(floats(2, 3))
class GANGenerator(nn.Layer):
    """Noise is injected at every resolution."""

    def __init__(self):
        super().__init__()
        self.start = nn.Linear(3, 2 * 2 * 2)
        self.blocks = nn.LayerList([nn.Conv2D(2, 2, 3, padding=1) for _ in range(2)])
        self.noise = nn.ParameterList([self.create_parameter([1]) for _ in range(2)])

    def forward(self, z):
        x = self.start(z).reshape([-1, 2, 2, 2])
        for block, strength in zip(self.blocks, self.noise):
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            noise = paddle.randn([x.shape[0], 1, x.shape[2], x.shape[3]])
            x = F.leaky_relu(block(x) + strength * noise, 0.2)
        return paddle.tanh(x)


@model(floats(2, 4), trained=False)
class DiffusionSampler(nn.Layer):
    def __init__(self, steps=5):
        super().__init__()
        betas = paddle.linspace(1e-2, 0.2, steps)
        alphas = 1.0 - betas
        self.register_buffer("betas", betas)
        self.register_buffer("alphas_bar", paddle.cumprod(alphas, 0))
        self.eps = nn.Linear(5, 4)
        self.steps = steps

    def forward(self, x):
        for t in reversed(range(self.steps)):
            time = paddle.full([x.shape[0], 1], t / self.steps)
            eps = self.eps(paddle.concat([x, time], -1))
            beta, bar = self.betas[t], self.alphas_bar[t]
            x = (x - beta / (1 - bar).sqrt() * eps) / (1 - beta).sqrt()
            if t > 0:
                x = x + beta.sqrt() * paddle.randn(x.shape)
        return x


@model(floats(2, 6))
class NormalizingFlow(nn.Layer):
    def __init__(self, layers=3):
        super().__init__()
        self.nets = nn.LayerList([nn.Linear(3, 6) for _ in range(layers)])

    def forward(self, x):
        log_det = paddle.zeros([x.shape[0]])
        for i, net in enumerate(self.nets):
            a, b = x.chunk(2, axis=-1)
            if i % 2:
                a, b = b, a
            s, t = net(a).chunk(2, axis=-1)
            s = paddle.tanh(s)
            b = b * s.exp() + t
            log_det += s.sum(-1)
            x = paddle.concat([b, a] if i % 2 else [a, b], axis=-1)
        return x, log_det


@model(floats(1, 2, 6, 6))
class FeaturePyramid(nn.Layer):
    def __init__(self):
        super().__init__()
        self.stages = nn.LayerList([nn.Conv2D(2, 2, 3, stride=2, padding=1) for _ in range(2)])
        self.lateral = nn.LayerDict({f"l{i}": nn.Conv2D(2, 2, 1) for i in range(3)})

    def forward(self, x):
        features = collections.OrderedDict(s0=x)
        for i, stage in enumerate(self.stages, start=1):
            features[f"s{i}"] = F.relu(stage(features[f"s{i - 1}"]))
        out = {}
        last = None
        for i in range(2, -1, -1):
            p = self.lateral[f"l{i}"](features[f"s{i}"])
            if last is not None:
                p = p + F.interpolate(last, size=p.shape[-2:], mode="nearest")
            out[f"p{i}"] = last = p
        return out


@model(floats(2, 3, 4, 4))
class DenseBlock(nn.Layer):
    def __init__(self, growth=2, layers=3):
        super().__init__()
        self.convs = nn.LayerList(
            [nn.Conv2D(3 + i * growth, growth, 3, padding=1) for i in range(layers)]
        )
        self.bns = nn.LayerList([nn.BatchNorm2D(3 + i * growth) for i in range(layers)])

    def forward(self, x):
        features = [x]
        for conv, bn in zip(self.convs, self.bns):
            inputs = paddle.concat(features, axis=1)
            features.append(conv(F.relu(bn(inputs))))
        return paddle.concat(features, axis=1)


@model(floats(2, 4, 8))
class StochasticDepth(nn.Layer):
    """Layers are skipped by a flag of the constructor; the mode decides about dropout."""

    def __init__(self):
        super().__init__()
        layer = dict(d_model=8, nhead=2, dim_feedforward=16, dropout=0.0)
        self.layers = nn.LayerList([nn.TransformerEncoderLayer(**layer) for _ in range(3)])
        self.skip = [False, True, False]

    def forward(self, x, mask=None):
        hidden_states = ()
        for layer, skip in zip(self.layers, self.skip):
            hidden_states += (x,)
            if skip and self.training:
                continue
            x = layer(x, src_mask=mask)
        return x, hidden_states
