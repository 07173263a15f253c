"""Losses, wrappers and loops of training code, and what else stands in a forward."""

from __future__ import annotations

import copy
import enum
import functools
import itertools
from dataclasses import dataclass, field
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import nn

from tests.parity.everyday import const, floats, integers, model


@model(floats(4, 3))
class MeanTeacher(nn.Layer):
    def __init__(self, decay=0.9):
        super().__init__()
        self.student = nn.Linear(3, 2)
        self.teacher = copy.deepcopy(self.student)
        for p in self.teacher.parameters():
            p.stop_gradient = True
        self.decay = decay

    @paddle.no_grad()
    def update(self):
        for s, t in zip(self.student.parameters(), self.teacher.parameters()):
            t.set_value(self.decay * t + (1 - self.decay) * s)

    def forward(self, x):
        loss = F.mse_loss(self.student(x), self.teacher(x))
        self.update()
        return loss


@model(floats(3, 4), floats(3, 4, seed=1))
class MomentumContrast(nn.Layer):
    def __init__(self, size=6):
        super().__init__()
        self.q, self.k = nn.Linear(4, 3), nn.Linear(4, 3)
        self.register_buffer("queue", F.normalize(paddle.ones([size, 3])))
        self.ptr, self.size = 0, size

    def enqueue(self, keys):
        n = keys.shape[0]
        assert self.size % n == 0
        self.queue[self.ptr : self.ptr + n] = keys
        self.ptr = (self.ptr + n) % self.size

    def forward(self, im_q, im_k):
        q = F.normalize(self.q(im_q), axis=1)
        with paddle.no_grad():
            k = F.normalize(self.k(im_k), axis=1)
        l_pos = (q * k).sum(1, keepdim=True)
        l_neg = q @ self.queue.clone().detach().t()
        logits = paddle.concat([l_pos, l_neg], axis=1) / 0.07
        loss = F.cross_entropy(logits, paddle.zeros([logits.shape[0]], "int64"))
        self.enqueue(k.detach())
        return loss


@model(floats(6, 4), const((2, 1, 3)))
def bucketed_loss(x, sizes):
    start, losses = 0, {}
    for i, n in enumerate(sizes):
        part = x[start : start + n]
        losses.setdefault(f"bucket_{n}", []).append(part.square().mean() * (i + 1))
        start += n
    return {k: sum(v) / len(v) for k, v in losses.items()}, sum(itertools.chain(*losses.values()))


@model(floats(4, 5), integers(5, 4))
class LabelSmoothing(nn.Layer):
    REDUCTIONS = {"mean": paddle.mean, "sum": paddle.sum}

    def __init__(self, smoothing=0.1, reduction="mean"):
        super().__init__()
        if reduction not in self.REDUCTIONS:
            raise ValueError(f"unknown reduction {reduction}")
        self.smoothing, self.reduction = smoothing, reduction

    def forward(self, logits, target):
        if logits.ndim != 2:
            raise ValueError(f"expected 2-D logits, got {logits.shape}")
        log_p = F.log_softmax(logits)
        nll = -paddle.take_along_axis(log_p, target.unsqueeze(1), 1).squeeze(1)
        loss = (1 - self.smoothing) * nll - self.smoothing * log_p.mean(-1)
        return self.REDUCTIONS[self.reduction](loss)


@model(floats(5), floats(5, seed=1), const(0.9))
def generalized_advantage(rewards, values, gamma, lam=0.95):
    advantages = paddle.zeros_like(rewards)
    last = 0
    for t in reversed(range(len(rewards))):
        following = values[t + 1] if t + 1 < len(rewards) else 0.0
        delta = rewards[t] + gamma * following - values[t]
        advantages[t] = last = delta + gamma * lam * last
    return advantages, advantages + values


@model(floats(2, 4))
class PolicyRollout(nn.Layer):
    def __init__(self, horizon=4):
        super().__init__()
        self.policy, self.dynamics = nn.Linear(4, 2), nn.Linear(6, 4)
        self.horizon = horizon

    def forward(self, state):
        log_probs, rewards = [], []
        for step in range(self.horizon):
            probs = F.softmax(self.policy(state))
            action = F.one_hot(probs.argmax(-1), 2)
            log_probs.append(paddle.log((probs * action).sum(-1)))
            state = paddle.tanh(self.dynamics(paddle.concat([state, action], -1)))
            rewards.append(-(state**2).sum(-1) * 0.9**step)
        returns, total = [], 0.0
        for r in rewards[::-1]:
            total = r + 0.9 * total
            returns.insert(0, total)
        return -(paddle.stack(log_probs) * paddle.stack(returns).detach()).mean()


class Pooling(enum.Enum):
    MEAN = "mean"
    MAX = "max"
    CLS = "cls"


@dataclass
class Output:
    logits: paddle.Tensor
    loss: Any = None
    hidden: list = field(default_factory=list)


@model(floats(2, 3, 4), integers(2, 2))
class Classifier(nn.Layer):
    def __init__(self, pooling=Pooling.MEAN):
        super().__init__()
        self.pooling = pooling
        self.layers = nn.LayerList([nn.Linear(4, 4) for _ in range(2)])
        self.head = nn.Linear(4, 2)

    def pool(self, x):
        if self.pooling is Pooling.CLS:
            return x[:, 0]
        match self.pooling.value:
            case "mean":
                return x.mean(1)
            case "max":
                return x.max(1)
        raise NotImplementedError(self.pooling)

    def encode(self, x):
        out = Output(logits=x)
        for layer in self.layers:
            x = F.gelu(layer(x))
            out.hidden.append(x)
        out.logits = self.head(self.pool(x))
        return out

    def forward(self, x, labels=None):
        out = self.encode(x)
        if labels is not None:
            out.loss = F.cross_entropy(out.logits, labels)
        return out.loss, out.logits, tuple(out.hidden)


def residual(f):
    @functools.wraps(f)
    def wrapper(self, x, *args, **kwargs):
        return x + f(self, x, *args, **kwargs)

    return wrapper


@model(floats(2, 4))
class DecoratedBlocks(nn.Layer):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(4, 4), nn.Linear(4, 4)

    @residual
    def attend(self, x, scale=1.0):
        return self.fc1(x) * scale

    @residual
    def mlp(self, x):
        return F.gelu(self.fc2(x))

    def forward(self, x, **kwargs):
        return self.mlp(self.attend(x, **{"scale": 0.5, **kwargs}))


@model(floats(3, 4))
class Composed(nn.Layer):
    """Functions as values: reduce, partial, lambdas by name."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.activations = {"relu": F.relu, "leaky": functools.partial(F.leaky_relu,
                            negative_slope=0.2), "twice": lambda x: x * 2}  # fmt: skip

    def forward(self, x, order=("leaky", "twice", "relu")):
        fs = [self.fc, *(self.activations[k] for k in order)]
        return functools.reduce(lambda y, f: f(y), fs, x)


@model(floats(4, 4))
class SpectralNormByHand(nn.Layer):
    def __init__(self):
        super().__init__()
        self.weight = self.create_parameter([4, 4])
        self.register_buffer("u", F.normalize(paddle.ones([4]), axis=0))

    def compute(self):
        u = self.u
        with paddle.no_grad():
            for _ in range(2):
                v = F.normalize(self.weight.t() @ u, axis=0)
                u = F.normalize(self.weight @ v, axis=0)
            self.u.set_value(u)
        return self.weight / (u @ (self.weight @ v))

    def forward(self, x):
        return x @ self.compute()


@model(floats(4, 3), trained=False)
class RunningNormalizer(nn.Layer):
    """Welford's algorithm in buffers and a counter."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", paddle.zeros([3]))
        self.register_buffer("m2", paddle.zeros([3]))
        self.count = 0

    def forward(self, x):
        for row in x:
            self.count += 1
            delta = row - self.mean
            self.mean += delta / self.count
            self.m2 += delta * (row - self.mean)
        std = (self.m2 / max(self.count - 1, 1)).sqrt()
        return (x - self.mean) / (std + 1e-5), self.count


@model(floats(2, 6))
class FrozenBackbone(nn.Layer):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1D(4), nn.ReLU())
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        was_training = self.backbone.training
        self.backbone.eval()
        try:
            with paddle.no_grad():
                features = self.backbone(x)
        finally:
            if was_training:
                self.backbone.train()
        return self.head(features)


@model(floats(3, 4), floats(3, 4, seed=1), floats(3, 4, seed=2))
def triplet_loss(anchor, positive, negative, margin=1.0, p=2):
    d_ap = (anchor - positive).abs().pow(p).sum(-1).pow(1 / p)
    d_an = (anchor - negative).abs().pow(p).sum(-1).pow(1 / p)
    losses = paddle.clip(d_ap - d_an + margin, min=0)
    hard = losses > 0
    count = max(int(hard.sum()), 1)
    return losses.sum() / count


@model(floats(3, 5))
def sinkhorn(scores, iterations=5, eps=0.5):
    u, v = (paddle.zeros([n]) for n in scores.shape)
    for _ in range(iterations):
        u = -eps * paddle.logsumexp((scores + v) / eps, axis=1)
        v = -eps * paddle.logsumexp((scores + u.unsqueeze(1)) / eps, axis=0)
    return paddle.exp((scores + u.unsqueeze(1) + v) / eps)


@model(floats(6, 4), integers(3, 6), trained=False)
def metrics(logits, labels, classes=3):
    """Numbers for a log, one by one."""
    pred = logits[:, :classes].argmax(-1)
    report = {"accuracy": float((pred == labels).astype("float32").mean())}
    for c in range(classes):
        tp = int(((pred == c) & (labels == c)).sum())
        fp = int(((pred == c) & (labels != c)).sum())
        report[f"precision_{c}"] = tp / (tp + fp) if tp + fp > 0 else 0.0
    report["macro"] = sum(v for k, v in report.items() if k.startswith("precision")) / classes
    report["best"] = max(report["precision_0"], report["precision_1"], report["precision_2"])
    return report


@model(floats(3, 4), trained=False)
def running_best(x, patience=2):
    best, bad, history = float("inf"), 0, []
    for epoch in range(len(x)):
        loss = float(x[epoch].abs().mean())
        history.append(loss)
        if loss < best:
            best, bad = loss, 0
        else:
            bad += 1
        if bad >= patience:
            break
    return best, bad


@model(floats(4, 4))
class LoRALinear(nn.Linear):
    """A library Layer with something added."""

    def __init__(self):
        super().__init__(4, 4)
        self.rank, self.merged = 2, False
        self.lora_a = self.create_parameter([4, self.rank])
        self.lora_b = self.create_parameter([self.rank, 4])

    def forward(self, x):
        out = super().forward(x)
        if self.rank > 0 and not self.merged:
            out += (x @ self.lora_a @ self.lora_b) * (1 / self.rank)
        return out


@model(floats(2, 3, 4))
class MultiTask(nn.Layer):
    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.heads = nn.LayerDict({"a": nn.Linear(4, 1), "b": nn.Linear(4, 2)})
        self.log_vars = self.create_parameter([2])

    def forward(self, x):
        h = paddle.tanh(self.shared(x.mean(1)))
        outs = {name: head(h) for name, head in self.heads.items()}
        losses = [o.square().mean() for o in outs.values()]
        total = sum((-s).exp() * loss + s for loss, s in zip(losses, self.log_vars.unbind()))
        return total, outs
