"""Spiking networks and agents: surrogate gradients, plasticity, rollouts with stacks of frames."""

from __future__ import annotations

from collections import deque

import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.autograd import PyLayer


class Spike(PyLayer):
    """A step forward, the derivative of an arc tangent backward."""

    @staticmethod
    def forward(ctx, v):
        ctx.save_for_backward(v)
        return (v > 0).astype(v.dtype)

    @staticmethod
    def backward(ctx, grad):
        (v,) = ctx.saved_tensor()
        return grad / (1 + (3.14159 * v) ** 2)


class LIFLayer(nn.Layer):
    def __init__(self, inputs: int, outputs: int, tau: float = 2.0) -> None:
        super().__init__()
        self.fc, self.tau, self.v = nn.Linear(inputs, outputs), tau, None

    def reset(self):
        self.v = None

    def forward(self, x):
        current = self.fc(x)
        if self.v is None:
            self.v = paddle.zeros_like(current)
        self.v = self.v + (current - self.v) / self.tau
        spike = Spike.apply(self.v - 0.3)
        self.v = self.v * (1.0 - spike.detach())
        return spike


class SpikingNet(nn.Layer):
    """Layers of leaky neurons over T steps, counted by class; also voltages and traces."""

    def __init__(self, steps: int, sizes: tuple[int, ...] = (4, 6, 5, 3)) -> None:
        super().__init__()
        self.layers = nn.LayerList([LIFLayer(i, o) for i, o in zip(sizes[:-1], sizes[1:])])

    def forward(self, x):
        for layer in self.layers:
            layer.reset()
        spikes, voltages = 0.0, []
        for t in range(x.shape[0]):
            out = x[t]
            for layer in self.layers:
                out = layer(out)
            spikes += out
            voltages.append(self.layers[-1].v)
        return spikes / x.shape[0], paddle.stack(voltages)


class STDP(nn.Layer):
    """Pair-based plasticity: traces of both sides, weights that a buffer keeps between calls."""

    def __init__(self, steps: int, pre: int = 4, post: int = 3) -> None:
        super().__init__()
        self.register_buffer("weight", paddle.full([pre, post], 0.4))
        self.register_buffer("updates", paddle.zeros([], "int64"))

    @paddle.no_grad()
    def forward(self, spikes_in):
        batch = spikes_in.shape[1]
        v = paddle.zeros([batch, self.weight.shape[1]])
        trace_pre, trace_post = paddle.zeros_like(spikes_in[0]), paddle.zeros_like(v)
        out = []
        for t in range(spikes_in.shape[0]):
            s_in = spikes_in[t]
            v = v * 0.8 + s_in @ self.weight
            s_out = (v > 0.5).astype("float32")
            v = paddle.where(s_out > 0, paddle.zeros_like(v), v)
            trace_pre = trace_pre * 0.9 + s_in
            trace_post = trace_post * 0.9 + s_out
            delta = 0.02 * trace_pre.T @ s_out - 0.025 * s_in.T @ trace_post
            self.weight.add_(delta / batch)
            self.weight.clip_(0.0, 1.0)
            self.updates += 1
            out.append(s_out)
        return paddle.stack(out)


class FrameStack(nn.Layer):
    """An agent that sees the last frames of a simulated world; returns and advantages follow."""

    def __init__(self, steps: int, size: int = 3, k: int = 4) -> None:
        super().__init__()
        self.policy, self.value = nn.Linear(size * k, 2), nn.Linear(size * k, 1)
        self.world, self.k, self.gamma, self.lam = nn.Linear(size + 2, size), k, 0.9, 0.8

    def forward(self, state, noise):
        frames = deque([state] * self.k, maxlen=self.k)
        rewards, values, log_probs, dones = [], [], [], []
        for t in range(noise.shape[0]):
            obs = paddle.concat(list(frames), axis=-1)
            logits = self.policy(obs)
            action = (logits + noise[t]).argmax(-1)
            onehot = F.one_hot(action, 2)
            log_probs.append((F.log_softmax(logits, -1) * onehot).sum(-1))
            values.append(self.value(obs).squeeze(-1))
            state = paddle.tanh(self.world(paddle.concat([state, onehot], -1)))
            done = (state.abs().max(-1) > 0.9).astype("float32")
            rewards.append(state.sum(-1))
            dones.append(done)
            state = state * (1 - done.unsqueeze(-1))
            frames.append(state)
        values.append(self.value(paddle.concat(list(frames), axis=-1)).squeeze(-1))
        gae, advantages = paddle.zeros_like(rewards[0]), []
        for t in reversed(range(len(rewards))):
            delta = rewards[t] + self.gamma * values[t + 1] * (1 - dones[t]) - values[t]
            gae = delta + self.gamma * self.lam * (1 - dones[t]) * gae
            advantages.insert(0, gae)
        advantages = paddle.stack(advantages)
        log_probs = paddle.stack(log_probs)
        return log_probs, advantages, paddle.stack(values)


class WorldModel(nn.Layer):
    """Imagination of a latent model: deterministic and stochastic states in a dict per step."""

    def __init__(self, horizon: int, deter: int = 4, stoch: int = 3) -> None:
        super().__init__()
        self.cell, self.prior = nn.GRUCell(stoch + 2, deter), nn.Linear(deter, 2 * stoch)
        self.actor, self.reward = nn.Linear(deter + stoch, 2), nn.Linear(deter + stoch, 1)
        self.horizon, self.deter, self.stoch = horizon, deter, stoch

    def img_step(self, prev, action, noise):
        x = paddle.concat([prev["stoch"], action], -1)
        _, deter = self.cell(x, prev["deter"])
        mean, std = self.prior(deter).chunk(2, -1)
        std = F.softplus(std) + 0.1
        return {"mean": mean, "std": std, "stoch": mean + std * noise, "deter": deter}

    def forward(self, start, noise):
        batch = start.shape[0]
        empty = paddle.zeros([batch, self.stoch])
        state = {"mean": empty, "std": empty, "stoch": empty, "deter": start}
        states = []
        for t in range(self.horizon):
            feat = paddle.concat([state["stoch"], state["deter"]], -1)
            state = self.img_step(state, paddle.tanh(self.actor(feat)), noise[t])
            states.append(state)
        feats = paddle.stack([paddle.concat([s["stoch"], s["deter"]], -1) for s in states])
        reward = self.reward(feats).squeeze(-1)
        returns, last = [], reward[-1]
        for t in range(self.horizon - 1, -1, -1):
            last = reward[t] + 0.9 * last
            returns.append(last)
        return feats, paddle.stack(list(reversed(returns)))
