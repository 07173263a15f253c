"""Simulation, filtering, optimisation: loops over tensors without Layers, or with few."""

from __future__ import annotations

import math

import paddle
import paddle.nn.functional as F
from paddle import nn

from tests.parity.everyday import const, floats, integers, model


@model(floats(3))
class ODESolver(nn.Layer):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))

    def f(self, t, y):
        return self.net(y) - 0.1 * t * y

    def step(self, t, y, dt):
        k1 = self.f(t, y)
        k2 = self.f(t + dt / 2, y + dt / 2 * k1)
        k3 = self.f(t + dt / 2, y + dt / 2 * k2)
        k4 = self.f(t + dt, y + dt * k3)
        return y + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def forward(self, y0, t0=0.0, t1=1.0, steps=5):
        dt = (t1 - t0) / steps
        t, y, trajectory = t0, y0, [y0]
        while t < t1 - 1e-9:
            y = self.step(t, y, dt)
            t += dt
            trajectory.append(y)
        return paddle.stack(trajectory)


@model(floats(2), trained=False)
def adaptive_step_ode(y, tolerance=1e-3):
    """The step follows from the error, so data decides how many there are."""
    t, dt, steps = 0.0, 0.1, 0
    while t < 1.0 and steps < 50:
        whole = y - dt * y
        half = y - dt / 2 * y
        half = half - dt / 2 * half
        error = float((whole - half).abs().max())
        if error < tolerance:
            y, t = half, t + dt
            dt = min(dt * 1.5, 1.0 - t + 1e-6)
        else:
            dt = dt / 2
        steps += 1
    return y, steps


@model(floats(6, 2))
class KalmanFilter(nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("A", paddle.to_tensor([[1.0, 0.1], [0.0, 1.0]]))
        self.register_buffer("Q", paddle.eye(2) * 0.01)
        self.r = self.create_parameter([1], default_initializer=nn.initializer.Constant(0.5))

    def forward(self, zs):
        x, P = paddle.zeros([2, 1]), paddle.eye(2)
        eye, xs = paddle.eye(2), []
        for z in zs:
            x = self.A @ x
            P = self.A @ P @ self.A.t() + self.Q
            S = P + eye * self.r
            K = P @ eye / S.diagonal().unsqueeze(0)
            x = x + K @ (z.unsqueeze(-1) - x)
            P = (eye - K) @ P
            xs.append(x.squeeze(-1))
        return paddle.stack(xs), P


@model(integers(2, 6, 6), trained=False)
def game_of_life(board, generations=4):
    kernel = paddle.ones([1, 1, 3, 3])
    kernel[0, 0, 1, 1] = 0
    x = board.astype("float32").unsqueeze([0, 1])
    history = []
    for _ in range(generations):
        n = F.conv2d(F.pad(x, [1, 1, 1, 1]), kernel)
        born = (x == 0) & (n == 3)
        survives = (x == 1) & ((n == 2) | (n == 3))
        x = (born | survives).astype("float32")
        history.append(int(x.sum()))
    return x[0, 0], history


@model(floats(4, 2), floats(4, 2, seed=1))
def n_body(pos, vel, steps=3, dt=0.01):
    n = pos.shape[0]
    for _ in range(steps):
        acc = []
        for i in range(n):
            a = paddle.zeros([2])
            for j in range(n):
                if i == j:
                    continue
                d = pos[j] - pos[i]
                a = a + d / ((d**2).sum() + 0.1) ** 1.5
            acc.append(a)
        vel = vel + dt * paddle.stack(acc)
        pos = pos + dt * vel
    return pos, vel


@model(floats(8))
def heat_equation(u, steps=6, alpha=0.1):
    u = u.clone()
    for _ in range(steps):
        new = u.clone()
        new[1:-1] = u[1:-1] + alpha * (u[2:] - 2 * u[1:-1] + u[:-2])
        u = new
    return u


@model(floats(5, 5), trained=False)
def jacobi(a, tol=1e-3, max_iter=60):
    a = a @ a.t() + 10 * paddle.eye(5)
    b, x = paddle.ones([5]), paddle.zeros([5])
    d = a.diagonal()
    for it in range(max_iter):  # noqa: B007
        new = (b - (a @ x - d * x)) / d
        if paddle.norm(new - x) < tol:
            break
        x = new
    return x, it


@model(floats(4, 4), trained=False)
def power_iteration(a, eps=1e-4):
    a = a + a.t()
    v, value, steps = paddle.ones([4]) / 2, 0.0, 0
    while True:
        w = a @ v
        new = float(w @ v)
        v = w / w.norm()
        steps += 1
        if abs(new - value) < eps or steps >= 100:
            break
        value = new
    return v.abs(), steps


@model(floats(3, 3))
def newton_schulz(a):
    x = a.t() / (a.abs().sum() ** 2)
    for _ in range(8):
        x = 2 * x - x @ a @ x
    return x @ a


@model(floats(4, 4))
def gram_schmidt(a):
    basis = []
    for i in range(a.shape[1]):
        v = a[:, i]
        for q in basis:
            v = v - (q @ v) * q
        basis.append(v / v.norm())
    return paddle.stack(basis, axis=1)


@model(floats(4, 4), trained=False)
def cholesky_by_hand(m):
    a = m @ m.t() + 4 * paddle.eye(4)
    n = a.shape[0]
    low = paddle.zeros([n, n])
    for i in range(n):
        for j in range(i + 1):
            s = (low[i, :j] * low[j, :j]).sum()
            if i == j:
                low[i, j] = (a[i, i] - s).sqrt()
            else:
                low[i, j] = (a[i, j] - s) / low[j, j]
    return low


@model(floats(7), trained=False)
def cumulative_product_by_hand(x):
    out = x.clone()
    for i in range(1, len(x)):
        out[i] = out[i - 1] * out[i]
    return out


@model(floats(3, 8))
def fast_fourier_like(x):
    """Recursion with a Python depth."""
    n = x.shape[-1]
    if n == 1:
        return x
    even = fast_fourier_like(x[:, ::2])
    odd = fast_fourier_like(x[:, 1::2])
    w = paddle.to_tensor([math.cos(2 * math.pi * k / n) for k in range(n // 2)])
    return paddle.concat([even + w * odd, even - w * odd], axis=-1)


@model(floats(6, 3), trained=False)
def k_means(points, k=2, iterations=4):
    centers = points[:k]
    for _ in range(iterations):
        distance = ((points.unsqueeze(1) - centers.unsqueeze(0)) ** 2).sum(-1)
        label = distance.argmin(1)
        new = []
        for c in range(k):
            m = (label == c).astype("float32").unsqueeze(-1)
            count = m.sum()
            new.append((points * m).sum(0) / count if count > 0 else centers[c])
        centers = paddle.stack(new)
    return centers, label


@model(floats(5), trained=False)
def bubble_sort(x):
    x = x.clone()
    n = len(x)
    for i in range(n):
        for j in range(0, n - i - 1):
            if x[j] > x[j + 1]:
                x[j], x[j + 1] = x[j + 1].clone(), x[j].clone()
    return x


@model(floats(9), const(0.3), trained=False)
def binary_search(x, target):
    x = paddle.sort(x)
    low, high = 0, len(x)
    while low < high:
        mid = (low + high) // 2
        if x[mid] < target:
            low = mid + 1
        else:
            high = mid
    return low


@model(floats(4, 3), trained=False)
def collatz_lengths(x):
    counts = []
    for n in (x.abs().sum(1) * 3).cast("int64").tolist():
        steps = 0
        while n > 1 and steps < 30:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        counts.append(steps)
    return counts
