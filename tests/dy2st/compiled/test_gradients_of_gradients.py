"""Models whose losses contain gradients, trained as in eager; files of functions that take them."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.static import InputSpec

import dy2st
from tests.check import data, default_dtype, same, trains

pytestmark = pytest.mark.sampled

ROOT = Path(__file__).parents[3]


def perceptron(*width: int, act=nn.Tanh) -> nn.Sequential:
    layers = [q for a, b in zip(width, width[1:]) for q in (nn.Linear(a, b), act())]
    return nn.Sequential(*layers[:-1])


def leaf(x):
    x = x.detach()
    x.stop_gradient = False
    return x


class Burgers(nn.Layer):
    def __init__(self):
        super().__init__()
        self.net = perceptron(2, 8, 8, 1)

    def forward(self, x, t):
        x, t = leaf(x), leaf(t)
        u = self.net(paddle.concat([x, t], 1))
        u_x, u_t = paddle.grad(u, [x, t], create_graph=True)
        u_xx = paddle.grad(u_x, x, create_graph=True)[0]
        return ((u_t + u * u_x - 0.01 * u_xx) ** 2).mean()


class Heat(nn.Layer):
    """Coordinates as columns of one tensor; a boundary; a coefficient to be found."""

    def __init__(self):
        super().__init__()
        self.net = perceptron(2, 8, 1, act=nn.Silu)
        self.k = self.create_parameter([1])

    def forward(self, x, t):
        z = leaf(paddle.concat([x, t], 1))
        u = self.net(z)
        g = paddle.grad(u.sum(), z, create_graph=True)[0]
        second = paddle.grad(g[:, 0].sum(), z, create_graph=True)[0]
        boundary = self.net(paddle.concat([x, paddle.zeros_like(t)], 1)) - paddle.sin(x)
        return ((g[:, 1] - self.k * second[:, 0]) ** 2).mean() + (boundary**2).mean()


class Critic(nn.Layer):
    """WGAN-GP."""

    def __init__(self):
        super().__init__()
        self.net = perceptron(1, 8, 1, act=nn.LeakyReLU)

    def forward(self, real, fake):
        x = 0.3 * real + 0.7 * fake
        x.stop_gradient = False
        d = self.net(x)
        ones = paddle.ones_like(d)
        g = paddle.grad(d, x, ones, create_graph=True, retain_graph=True, only_inputs=True)[0]
        penalty = ((g.norm(2, axis=1) - 1) ** 2).mean()
        return self.net(fake).mean() - self.net(real).mean() + 10 * penalty


class Hamiltonian(nn.Layer):
    def __init__(self):
        super().__init__()
        self.net = perceptron(2, 8, 1)

    def derivatives(self, q, p):
        h = self.net(paddle.concat([q, p], 1)).sum()
        dq, dp = paddle.grad(h, [q, p], create_graph=True)
        return dp, -dq

    def forward(self, q, p):
        q, p = leaf(q), leaf(p)
        path = []
        for _ in range(5):
            dq, dp = self.derivatives(q, p)
            q, p = q + 0.1 * dq, p + 0.1 * dp
            path.append(q)
        return paddle.stack(path)


class Maml(nn.Layer):
    def __init__(self):
        super().__init__()
        self.w = self.create_parameter([1, 6])
        self.v = self.create_parameter([6, 1])

    def loss(self, ws, x, y):
        return ((paddle.tanh(x @ ws[0]) @ ws[1] - y) ** 2).mean()

    def forward(self, x, y):
        ws = [self.w, self.v]
        for _ in range(3):
            gs = paddle.grad(self.loss(ws, x, y), ws, create_graph=True)
            ws = [w - 0.1 * g for w, g in zip(ws, gs)]
        return self.loss(ws, y, x)


class Score(nn.Layer):
    """Score matching: the trace of a Jacobian, row by row."""

    def __init__(self):
        super().__init__()
        self.net = perceptron(3, 8, 3)

    def forward(self, x, t):
        x = leaf(paddle.concat([x, t, x * t], 1))
        s = self.net(x)
        loss = 0.5 * (s * s).sum(1)
        for i in range(3):
            g = paddle.grad(s[:, i].sum(), x, create_graph=True, retain_graph=True)[0]
            loss = loss + g[:, i]
        return loss.mean()


class Energy(nn.Layer):
    """An energy-based model: negative samples by Langevin dynamics."""

    def __init__(self):
        super().__init__()
        self.net = perceptron(1, 8, 1)

    def forward(self, x, z):
        for _ in range(5):
            z = leaf(z)
            g = paddle.grad(self.net(z).sum(), z)[0]
            z = z - 0.1 * g
        return self.net(x).mean() - self.net(z.detach()).mean()


class Molecules(nn.Layer):
    """Energies and forces."""

    def __init__(self):
        super().__init__()
        self.net = perceptron(1, 8, 1)

    def forward(self, r, f):
        r.stop_gradient = False
        d = (r - r.T) ** 2 + paddle.eye(r.shape[0])
        e = self.net(d.reshape([-1, 1])).sum()
        forces = -paddle.grad(e, r, create_graph=True)[0]
        return e * 0.01 + ((forces - f) ** 2).mean()


class OfParameters(nn.Layer):
    """A penalty on the gradient of the loss with respect to all parameters."""

    def __init__(self):
        super().__init__()
        self.layers = nn.LayerList([nn.Linear(4, 4) for _ in range(3)])
        self.first = nn.Linear(1, 4)

    def forward(self, x, y):
        h = self.first(x)
        for layer in self.layers:
            h = paddle.tanh(layer(h))
        loss = ((h.sum(1, keepdim=True) - y) ** 2).mean()
        total = loss
        for g in paddle.grad(loss, self.parameters(), create_graph=True):
            total = total + 0.1 * (g * g).sum()
        return total


MODELS = [Burgers, Heat, Critic, Hamiltonian, Maml, Score, Energy, Molecules, OfParameters]


@pytest.mark.quick("Hamiltonian", "Heat")
@pytest.mark.parametrize("model", MODELS, ids=lambda q: q.__name__)
def test_trains_as_eager(model):
    trains(model, lambda: (data(6, 1, trained=False), data(6, 1, seed=1, trained=False)))


@pytest.mark.quick
def test_burgers_with_adam():
    with default_dtype("float64"):
        x, t = data(20, 1, trained=False), data(20, 1, seed=1, trained=False)
        paddle.seed(5)
        eager, losses = Burgers(), []
        for model in (eager, dy2st.to_static(copy.deepcopy(eager))):
            adam = paddle.optimizer.Adam(0.01, parameters=model.parameters())
            losses.append([])
            for _ in range(5):
                loss = model(x, t)
                loss.backward()
                adam.step()
                adam.clear_grad()
                losses[-1].append(float(loss))
        np.testing.assert_allclose(losses[1], losses[0], rtol=1e-9)


# ---------------------------------------------------------------- from outside
def residual(f, net, x, t):
    """A translated network in an eager residual."""
    x, t = leaf(x), leaf(t)
    u, more = f(x, t)
    u_x, u_t = (paddle.grad(u, q, create_graph=True)[0] for q in (x, t))
    u_xx = paddle.grad(u_x, x, create_graph=True)[0]
    loss = ((u_t + u * u_x - 0.1 * u_xx) ** 2).mean() + more.mean()
    loss.backward()
    found = [loss.detach(), x.grad, t.grad, *(p.grad for p in net.parameters())]
    for p in net.parameters():
        p.clear_gradient(False)
    return found


@pytest.mark.slow
@pytest.mark.quick
def test_create_graph_outside():
    with default_dtype("float64"):
        net = perceptron(2, 8, 1)

        def f(x, t):
            u = net(paddle.concat([x, t], 1))
            return u, u * x

        static = dy2st.to_static(f)
        for k in range(3):
            given = data(5, 1, seed=k, trained=False), data(5, 1, seed=9, trained=False)
            same(residual(static, net, *given), residual(f, net, *given), 1e-9, 1e-9)


def test_create_graph_outside_of_a_loop():
    with default_dtype("float64"):
        cell = nn.GRUCell(3, 4)

        def f(x):
            h = paddle.zeros([2, 4])
            for t in range(5):
                h, _ = cell(x[:, t], h)
            return h, h.sum()

        found = []
        for g in (f, dy2st.to_static(f)):
            x, v = data(2, 5, 3), data(2, 4, seed=1)
            h, s = g(x)
            d = paddle.grad([h * h, s], x, [v, None], create_graph=True)[0]
            (d * d).sum().backward()
            found.append([d, x.grad, v.grad, *(p.grad for p in cell.parameters())])
            for p in cell.parameters():
                p.clear_gradient(False)
        same(found[1], found[0], 1e-9, 1e-9)


def test_third_derivatives_outside():
    f, x = dy2st.to_static(lambda x: (x**4).sum()), data(3)
    y = f(x)
    for want in (4 * x**3, 12 * x**2, 24 * x):
        y = paddle.grad(y.sum(), x, create_graph=True)[0]
        same(y.detach(), want.detach(), 1e-9, 1e-9)


def test_create_graph_outside_after_a_write_raises():
    x = data(3)
    y = x * 1.0
    z = dy2st.to_static(lambda y: y * y)(y)
    with paddle.no_grad():
        y.add_(paddle.ones([3], "float64"))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        paddle.grad(z.sum(), x, create_graph=True)


# ---------------------------------------------------------------- files
class Potential(nn.Layer):
    def __init__(self):
        super().__init__()
        self.net = perceptron(3, 8, 1)

    def forward(self, r):
        r.stop_gradient = False
        return -paddle.grad(self.net(r).sum(), r)[0]


def test_forces_run_without_paddle(tmp_path):
    layer, file = Potential(), tmp_path / "forces.dy2st"
    dy2st.save(layer, file, input_spec=[InputSpec([None, 3], "float32", "r")])
    r = data(5, 3, dtype="float32", trained=False)
    np.save(tmp_path / "r.npy", r.numpy())
    script = f"""
import sys
sys.modules["paddle"] = None
import numpy as np, dy2st
run = dy2st.load({str(file)!r})
np.save({str(tmp_path)!r} + "/f.npy", run(np.load({str(tmp_path)!r} + "/r.npy")))
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, timeout=120)
    same(paddle.to_tensor(np.load(tmp_path / "f.npy")), layer(r))


@pytest.mark.quick
def test_a_file_is_made_as_its_caller_would_call(tmp_path):
    """Where no gradients are recorded, `allow_unused` gives None."""

    def f(x):
        x = leaf(x)
        g = paddle.grad((x * x).sum(), x, allow_unused=True)[0]
        return x - 1.0 if g is None else g

    spec, x = [InputSpec([3], "float32", "x")], np.float32([1, 2, 3])
    dy2st.save(f, tmp_path / "f.dy2st", input_spec=spec)
    np.testing.assert_array_equal(dy2st.load(tmp_path / "f.dy2st")(x), 2 * x)
    with paddle.no_grad():
        dy2st.save(f, tmp_path / "g.dy2st", input_spec=spec)
    np.testing.assert_array_equal(dy2st.load(tmp_path / "g.dy2st")(x), x - 1)
