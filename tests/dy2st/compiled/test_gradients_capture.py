"""What eager's autograd does not see, and gradients that the user wrote."""

from __future__ import annotations

import paddle
import pytest
from paddle import nn
from paddle.autograd import PyLayer
from paddle.distributed.fleet.utils import recompute

import dy2st
from dy2st import AliasWarning
from tests.check import agree, data, detached, trains

pytestmark = pytest.mark.sampled(every=24)

X, Y = data(3, 4), data(3, 4, seed=1)


# ---------------------------------------------------------------- outside of autograd
def test_detach_in_a_loop():
    def f(x):
        h = paddle.zeros([4], "float64")
        total = paddle.zeros([4], "float64")
        for t in range(x.shape[0]):
            h = paddle.tanh(x[t] + h.detach())
            total = total + h * x[t].detach()
        return h, total

    agree(f, X)


def test_no_grad_in_a_loop():
    def f(x):
        h = paddle.ones([4], "float64")
        for t in range(x.shape[0]):
            with paddle.no_grad():
                scale = 1.0 / (1.0 + paddle.abs(h))
            h = h * scale + x[t]
        return h, scale

    agree(f, X)


def test_stop_gradient_in_a_loop_and_a_branch():
    def f(x):
        h = paddle.ones([4], "float64")
        for t in range(x.shape[0]):
            a = paddle.tanh(x[t])
            a.stop_gradient = True
            if x[t].sum() > 0:
                b = (x[t] * 2.0).detach()
            else:
                b = x[t] * 3.0
            h = h * 0.5 + a * x[t] + b
        return h

    agree(f, X)


def test_a_number_taken_from_a_tensor_is_a_constant():
    def f(x):
        n = float(x.mean())
        return x * n + x.sum().item()

    agree(f, X)


def test_a_cut_at_every_second_step():
    def f(x):
        h = x[0]
        for t in range(x.shape[0]):
            if t % 2 == 0:
                h = h.detach()
            h = paddle.tanh(h * 1.5 + x[t])
        return h

    agree(f, data(5, 4))


def test_set_value_and_copy_do_not_touch_the_graph():
    def f(x, y):
        h, k = x * 2.0, x * 3.0
        h.set_value(y)
        k.copy_(y, True)
        return h * 1.0, k.sum()

    agree(f, X, Y)


def test_writes_under_no_grad():
    def f(x):
        h, k, u = x * 2.0, x * 3.0, x * 4.0
        with paddle.no_grad():
            h.scale_(3.0)
            k[1] = 7.0
        u.detach()[0] = 5.0
        return h.sum(), k * k.detach(), u * 2.0

    agree(f, X)


def test_a_detached_tensor_written_with_a_trained_value():
    def f(x, y):
        h, k = (x * 2.0).detach(), (x * 3.0).detach()
        h.add_(y)
        k[1] = y[0] * 2.0
        return h * h.detach(), k * 2.0

    agree(f, X, Y)


def test_a_tensor_made_inside_with_a_gradient_of_its_own():
    def f(x):
        h = x.detach() * 2.0
        h.stop_gradient = False
        return h, h * x

    h, y = dy2st.to_static(f)(detached(X))
    assert not h.stop_gradient and not y.stop_gradient
    with pytest.raises(dy2st.Dy2stError, match="requires a gradient of its own"):
        y.sum().backward()
    agree(lambda x: f(x)[1], X)


def test_stop_gradient_of_an_argument_is_refused():
    def f(x):
        x.stop_gradient = True
        return x * 2.0

    with pytest.raises(dy2st.SourceError, match="stop_gradient of a tensor from outside"):
        dy2st.to_static(f)(detached(X))


# ---------------------------------------------------------------- shared memory
def true_gradients(f, x, want, line):
    """The gradient is the true one, and a warning names the line of the write."""
    static = dy2st.to_static(f)
    q = detached(x)
    with pytest.warns(AliasWarning, match=f"test_gradients_capture.py:{line}") as caught:
        out = static(q)
    assert len(caught) == 1
    out.sum().backward()
    assert q.grad.tolist() == want
    second = detached(x)
    static(second).sum().backward()
    assert second.grad.tolist() == want


THREE = paddle.to_tensor([1.0, 2.0, 3.0], "float64", stop_gradient=False)


def lineno(f, offset):
    return f.__code__.co_firstlineno + offset


def test_a_write_through_a_view_reaches_the_base():
    def f(a):
        h = a * 2.0
        w = h[0:2]
        w.scale_(3.0)
        return h

    true_gradients(f, THREE, [6.0, 6.0, 2.0], lineno(f, 3))


def test_a_write_to_the_base_reaches_an_older_view():
    def f(a):
        h = a * 2.0
        w = h[0:2]
        h.scale_(3.0)
        return w

    true_gradients(f, THREE, [6.0, 6.0, 0.0], lineno(f, 3))


def test_an_assignment_through_a_view():
    def f(a):
        h = a * 2.0
        v = h[0:2]
        v[0] = 5.0
        return h * 1.0

    true_gradients(f, THREE, [0.0, 2.0, 2.0], lineno(f, 3))


def test_no_warning_where_eager_agrees():
    def f(x):
        h = x * 2.0
        v = h[0:2]
        v[0] = 5.0
        first, second = h[2], v * v
        h[1] = x[0]
        y = paddle.zeros([3, 4], "float64")
        for t in range(3):
            y[t] = x[t] * 2.0
            y[t] = y[t] * y[t]
        return second, y, first.detach()

    static = dy2st.to_static(f)
    static(detached(X))


# ---------------------------------------------------------------- PyLayer
class Scale(PyLayer):
    """Several inputs and results, attributes, gradients that are None or not what they seem."""

    @staticmethod
    def forward(ctx, x, n, y, kind=None):
        ctx.save_for_backward(x, y)
        ctx.n, ctx.kind = n, kind
        ctx.mask = x > 0
        index = paddle.argmax(x, axis=-1)
        ctx.mark_non_differentiable(index)
        return x * n, y + x, index

    @staticmethod
    def backward(ctx, gx, gy, gindex):
        x, y = ctx.saved_tensor()
        gx = paddle.where(ctx.mask, gx, gx * 0.5) * ctx.n
        return gx + gy, None if ctx.kind == "none" else gy * y.tanh()


@pytest.mark.parametrize("kind", ["none", "both"])
def test_pylayer(kind):
    def f(x, y):
        a, b, index = Scale.apply(x * 1.5, 3.0, y, kind=kind)
        return a * b, index

    agree(f, X, Y)


def test_pylayer_in_a_loop_with_a_parameter():
    class Clip(PyLayer):
        @staticmethod
        def forward(ctx, w, x):
            ctx.save_for_backward(w, x)
            return paddle.clip(w * x, -0.5, 0.5)

        @staticmethod
        def backward(ctx, gradient):
            w, x = ctx.saved_tensor()
            total = gradient * 0.0
            for k in range(3):
                total = total + gradient * x * (k + 1.0)
            return total.sum(0), gradient * w

    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.w = self.create_parameter([4])

        def forward(self, x):
            h = x
            for _ in range(3):
                h = Clip.apply(self.w, h) + x
            return h

    trains(Net, lambda: [data(3, 4)])


@pytest.mark.parametrize("inside", [True, False])
def test_recompute_of_tensors_without_a_gradient_gives_none_to_parameters(inside):
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            h = recompute(lambda q: self.one(q[0]), (self.two(x) if inside else x,))
            return self.two(h)

    trains(Net, lambda: [data(3, 4)])


def test_a_flag_that_stays_may_be_set():
    class Teacher(nn.Layer):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = nn.Linear(4, 4), nn.Linear(4, 4)
            for p in self.teacher.parameters():
                p.stop_gradient = True

        def forward(self, x):
            with paddle.no_grad():
                for p, q in zip(self.student.parameters(), self.teacher.parameters()):
                    q.set_value(q * 0.9 + p * 0.1)
                    q.stop_gradient = True
            return self.student(x) - self.teacher(x)

    trains(Teacher, lambda: [data(3, 4)])
    teacher = dy2st.to_static(Teacher())
    teacher(paddle.ones([3, 4]))
    teacher.teacher.bias.stop_gradient = False
    with pytest.raises(dy2st.SourceError, match="stop_gradient of a tensor is set"):
        teacher(paddle.ones([3, 4]))


def test_pylayer_without_gradients_is_its_forward():
    def f(x, y):
        with paddle.no_grad():
            a, _, _ = Scale.apply(x, 3.0, y)
        return a * y

    agree(f, X, Y)


def test_pylayer_whose_backward_has_effects_is_refused():
    seen = []

    class Noisy(PyLayer):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, gradient):
            seen.append(gradient)
            return gradient

    with pytest.raises(dy2st.SourceError, match="Noisy.backward changes something outside"):
        dy2st.to_static(lambda x: Noisy.apply(x))(detached(X))
    assert seen == []


def test_pylayer_with_a_gradient_of_another_shape_is_refused():
    class Wrong(PyLayer):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, gradient):
            return gradient.sum()

    with pytest.raises(dy2st.SourceError, match="Wrong.backward returns"):
        dy2st.to_static(lambda x: Wrong.apply(x))(detached(X))


# ---------------------------------------------------------------- hooks and wrappers
def test_hooks_registered_inside():
    def f(x, y):
        h = paddle.tanh(x)
        h.register_hook(lambda g: g * y)
        total = paddle.zeros([4], "float64")
        for t in range(x.shape[0]):
            row = h[t] * 2.0
            row.register_hook(lambda g: paddle.clip(g, -0.5, 0.5))
            total = total * row + row
        return total

    def eager(x, y):
        return f(x, y.detach())

    agree(eager, X, Y)


def test_a_hook_behind_a_use_is_refused():
    def f(x):
        h = paddle.tanh(x)
        y = h * 2.0
        h.register_hook(lambda g: g * 3.0)
        return y

    with pytest.raises(dy2st.SourceError, match="register_hook"):
        dy2st.to_static(f)(detached(X))


def test_recompute_is_a_call():
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            for layer in (self.one, self.two):
                x = recompute(layer, x, use_reentrant=False)
            return paddle.tanh(x)

    trains(Net, lambda: [data(3, 4)])
