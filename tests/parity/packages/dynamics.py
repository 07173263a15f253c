"""Simulation, estimation and control: integrators, waves, filters, optimisers, planning."""

from __future__ import annotations

import math

import paddle
import paddle.nn.functional as F
from paddle import nn


class NeuralODE(nn.Layer):
    """RK4 with steps of its own lengths; the trajectory is collected."""

    def __init__(self, steps: int, size: int = 4) -> None:
        super().__init__()
        self.f1, self.f2 = nn.Linear(size + 1, 8), nn.Linear(8, size)

    def f(self, t, y):
        when = paddle.full([y.shape[0], 1], 1.0) * t
        return self.f2(paddle.tanh(self.f1(paddle.concat([y, when], axis=-1))))

    def forward(self, y0, ts):
        ys, y = [y0], y0
        for i in range(ts.shape[0] - 1):
            t, h = ts[i], ts[i + 1] - ts[i]
            k1 = self.f(t, y)
            k2 = self.f(t + h / 2, y + h * k1 / 2)
            k3 = self.f(t + h / 2, y + h * k2 / 2)
            k4 = self.f(t + h, y + h * k3)
            y = y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6
            ys.append(y)
        return paddle.stack(ys)


class AdaptiveODE(nn.Layer):
    """Heun's method with an error estimate: the number of steps follows from the data."""

    def __init__(self, most: int, size: int = 4, tol: float = 1e-2) -> None:
        super().__init__()
        self.f, self.most, self.tol = nn.Linear(size, size), most, tol

    def forward(self, y):
        t, h, steps = paddle.zeros([]), paddle.full([], 0.3), 0
        while t < 1.0 and steps < self.most:
            h = paddle.minimum(h, 1.0 - t)
            k1 = paddle.tanh(self.f(y))
            k2 = paddle.tanh(self.f(y + h * k1))
            error = (h * (k2 - k1) / 2).abs().max()
            if error < self.tol:
                y = y + h * (k1 + k2) / 2
                t = t + h
            factor = 0.9 * paddle.sqrt(self.tol / (error + 1e-9))
            h = h * paddle.clip(factor, 0.2, 5.0)
            steps += 1
        return y, t, steps


class WaveEquation(nn.Layer):
    """Leapfrog on a grid, written into slices; a source, sponges at the edges, receivers."""

    def __init__(self, steps: int, n: int = 9) -> None:
        super().__init__()
        self.velocity, self.n = self.create_parameter([n, n]), n

    def forward(self, source):
        n, dt = self.n, 0.3
        u, u_prev = paddle.zeros([n, n]), paddle.zeros([n, n])
        lap = paddle.zeros([n, n])
        c2 = (0.5 + F.sigmoid(self.velocity)) * dt**2
        records = []
        for t in range(source.shape[0]):
            lap[1:-1, 1:-1] = (
                u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
            )
            u_next = 2 * u - u_prev + c2 * lap
            u_next[n // 2, n // 2] += source[t] * dt**2
            u_next[0, :], u_next[-1, :] = 0.0, 0.0
            u_next[:, 0] = u_next[:, 1] * 0.9
            u_prev, u = u, u_next
            records.append(u[2, 1:-1])
        return paddle.stack(records), u


class HeatInPlace(nn.Layer):
    """Red-black Gauss-Seidel in one grid that is overwritten, until it has settled."""

    def __init__(self, most: int, n: int = 8) -> None:
        super().__init__()
        self.most = most

    def forward(self, grid, tol):
        x = grid.clone()
        steps = 0
        for _ in range(self.most):
            old = x.clone()
            for colour in range(2):
                rows = x[1:-1, 1:-1]
                near = x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2]
                i = paddle.arange(rows.shape[0]).unsqueeze(1) + paddle.arange(rows.shape[1])
                x[1:-1, 1:-1] = paddle.where(i % 2 == colour, near / 4, rows)
            steps += 1
            if (x - old).abs().max() < tol:
                break
        return x, steps


class KalmanFilter(nn.Layer):
    """Predict and update with matrices; some measurements are missing; smoothed backwards."""

    def __init__(self, steps: int, d: int = 3, m: int = 2) -> None:
        super().__init__()
        self.A = self.create_parameter([d, d])
        self.H, self.d = self.create_parameter([m, d]), d
        self.log_q, self.log_r = self.create_parameter([d]), self.create_parameter([m])

    def forward(self, zs, seen):
        x, P, eye = paddle.zeros([self.d, 1]), paddle.eye(self.d), paddle.eye(self.d)
        Q, R = paddle.diag(paddle.exp(self.log_q)), paddle.diag(paddle.exp(self.log_r))
        A = self.A * 0.3 + eye * 0.5
        means, covariances, predicted = [], [], []
        loglik = paddle.zeros([])
        for k in range(zs.shape[0]):
            x, P = A @ x, A @ P @ A.T + Q
            predicted.append((x, P))
            if seen[k]:
                y = zs[k].unsqueeze(-1) - self.H @ x
                S = self.H @ P @ self.H.T + R
                det = S[0, 0] * S[1, 1] - S[0, 1] * S[1, 0]
                inv = paddle.stack([S[1, 1], -S[0, 1], -S[1, 0], S[0, 0]]).reshape([2, 2]) / det
                K = P @ self.H.T @ inv
                x, P = x + K @ y, (eye - K @ self.H) @ P
                loglik = loglik - 0.5 * ((y.T @ inv @ y).squeeze() + paddle.log(paddle.abs(det)))
            means.append(x)
            covariances.append(P)
        smoothed = [means[-1]]
        for k in range(zs.shape[0] - 2, -1, -1):
            x_pred, P_pred = predicted[k + 1]
            G = covariances[k] @ A.T / (paddle.diagonal(P_pred).sum() + 1.0)
            smoothed.append(means[k] + G @ (smoothed[-1] - x_pred))
        return paddle.stack(means), paddle.stack(smoothed[::-1]), loglik


class LISTA(nn.Layer):
    """Unrolled soft thresholding, its weights shared by the iterations; momentum of FISTA."""

    def __init__(self, iterations: int, m: int = 4, n: int = 6) -> None:
        super().__init__()
        self.W, self.S = nn.Linear(m, n, bias_attr=False), nn.Linear(n, n, bias_attr=False)
        self.theta, self.iterations = self.create_parameter([1]), iterations

    def shrink(self, x):
        return paddle.sign(x) * F.relu(paddle.abs(x) - paddle.abs(self.theta))

    def forward(self, y):
        b = self.W(y)
        x = z = self.shrink(b)
        tk = 1.0
        for _ in range(self.iterations):
            x_new = self.shrink(b + 0.3 * self.S(z))
            t_new = (1 + math.sqrt(1 + 4 * tk**2)) / 2
            z = x_new + ((tk - 1) / t_new) * (x_new - x)
            x, tk = x_new, t_new
        return x


class MPC(nn.Layer):
    """Planning by the cross-entropy method: rollouts of a model inside of iterations, in which
    the best plans are refitted."""

    def __init__(self, horizon: int, size: int = 3, actions: int = 2, samples: int = 6) -> None:
        super().__init__()
        self.model, self.cost = nn.Linear(size + actions, size), nn.Linear(size, 1)
        self.horizon, self.samples, self.actions, self.elites = horizon, samples, actions, 2

    def forward(self, state, noise):
        mean = paddle.zeros([self.horizon, self.actions])
        std = paddle.ones([self.horizon, self.actions])
        for k in range(3):
            plans = mean + std * noise[k]
            s = state.unsqueeze(0).tile([self.samples, 1])
            total = paddle.zeros([self.samples])
            for t in range(self.horizon):
                s = paddle.tanh(self.model(paddle.concat([s, plans[:, t]], -1)))
                total = total + self.cost(s).squeeze(-1) * 0.9**t
            order = paddle.argsort(total)[: self.elites]
            best = paddle.index_select(plans, order, axis=0)
            mean = best.mean(0)
            std = ((best - mean) ** 2).mean(0).sqrt() + 0.05
        return mean, std


class RealNVP(nn.Layer):
    """Coupling layers in both directions, with their masks in a list and the log-determinant."""

    def __init__(self, layers: int, size: int = 4) -> None:
        super().__init__()
        self.s = nn.LayerList([nn.Linear(size, size) for _ in range(4)])
        self.t = nn.LayerList([nn.Linear(size, size) for _ in range(4)])
        masks = [[(i + k) % 2 for i in range(size)] for k in range(4)]
        self.register_buffer("masks", paddle.to_tensor(masks, "float32"))

    def inverse(self, x):
        log_det, z = paddle.zeros([x.shape[0]]), x
        for i in reversed(range(len(self.t))):
            z_ = self.masks[i] * z
            s = paddle.tanh(self.s[i](z_)) * (1 - self.masks[i])
            t = self.t[i](z_) * (1 - self.masks[i])
            z = (1 - self.masks[i]) * (z - t) * paddle.exp(-s) + z_
            log_det -= s.sum(1)
        return z, log_det

    def forward(self, xs):
        total, zs = 0, []
        for t in range(xs.shape[0]):
            z, log_det = self.inverse(xs[t])
            zs.append(z)
            total = total + (log_det - 0.5 * (z**2).sum(1)).mean()
        return paddle.stack(zs), total


class AutoregressiveFlow(nn.Layer):
    """The inverse of a masked flow: one dimension after the other, written in place."""

    def __init__(self, size: int, hidden: int = 5) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(size, hidden), nn.Linear(hidden, 2 * size)

    def forward(self, z):
        x = paddle.zeros_like(z)
        log_det = paddle.zeros([z.shape[0]])
        for i in range(z.shape[1]):
            known = (paddle.arange(z.shape[1]) < i).astype("float32")
            mu, alpha = self.down(paddle.tanh(self.up(x * known))).chunk(2, axis=-1)
            x[:, i] = z[:, i] * paddle.exp(alpha[:, i]) + mu[:, i]
            log_det += alpha[:, i]
        return x, log_det
