"""Foreign ops when a program runs: called by native code, on the program's own memory."""

from __future__ import annotations

import threading

import numpy as np
import paddle
import pytest

import dy2st
from dy2st.compiled import foreign_kernels
from executor.allocation import HostMemory
from executor.host_calls import FEW_PLACES, HostCall
from tests import check


def solved(a, x, steps):
    ys = []
    for t in range(steps):
        x = paddle.linalg.solve(a, x) + x * 0.1
        ys.append(paddle.lgamma(x + 3.0 + t))
    return x, paddle.stack(ys, 1) if ys else x


def matrix(seed, *shape):
    return paddle.to_tensor(np.random.default_rng(seed).uniform(1, 2, shape).astype("float32"))


def agree(f, *args):
    static, want = dy2st.to_static(f), f(*args)
    for _ in range(3):
        check.same(static(*args), want)


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_kernels_in_a_loop(steps):
    agree(solved, paddle.eye(3) * 4 + matrix(0, 3, 3), matrix(1, 3, 2), steps)


def test_calls_that_change_sizes_in_between():
    static = dy2st.to_static(solved)
    for n, steps in ((3, 4), (5, 2), (3, 9), (5, 2), (3, 4)):
        a = paddle.eye(n) * 4 + matrix(n, n, n)
        x = matrix(steps, n, 2)
        check.same(static(a, x, steps), solved(a, x, steps))


def test_gradients_through_kernels():
    def loss(a, x):
        return solved(a, x, 5)[0].sum()

    for _ in range(2):
        want, have = [], []
        for f, out in ((loss, want), (dy2st.to_static(loss), have)):
            a, x = paddle.eye(3) * 4 + matrix(0, 3, 3), matrix(1, 3, 2)
            a.stop_gradient = x.stop_gradient = False
            f(a, x).backward()
            out += [a.grad, x.grad]
        check.same(have, want)


@pytest.mark.parametrize(
    "f",
    [paddle.linalg.solve, paddle.cross, lambda a, x: paddle.linalg.cholesky_solve(x, a)],
    ids=["solve", "cross", "cholesky_solve"],
)
def test_one_operand_alone_may_require_a_gradient(f):
    """Eager's backward ends the process then; that of both operands gives the gradients."""
    both = [(paddle.eye(3) * 4 + matrix(0, 3, 3)), matrix(1, 3, 3)]
    for q in both:
        q.stop_gradient = False
    f(*both).square().sum().backward()
    for k in (0, 1):
        one = [q.detach().clone() for q in both]
        one[k].stop_gradient = False
        dy2st.to_static(f)(*one).square().sum().backward()
        check.same(one[k].grad, both[k].grad, 1e-5, 1e-5)
        assert one[1 - k].grad is None


def test_nothing_is_made_anew_in_a_step(monkeypatch):
    """What a call needs is made by the first one: memory, and tensors on it."""
    static, made, taken = dy2st.to_static(solved), [], []
    a, x = paddle.eye(3) * 4, matrix(1, 3, 2)
    bind, allocate = HostCall.bind, HostMemory.allocate
    monkeypatch.setattr(HostCall, "bind", lambda *q: made.append(q) or bind(*q))
    monkeypatch.setattr(HostMemory, "allocate", lambda *q: taken.append(q) or allocate(*q))
    static(a, x, 50)
    assert 2 <= len(made) <= 2 * 50 and len(taken) == 1
    made.clear()
    static(a, x, 50)
    assert len(taken) == 1 and len(made) <= 2  # the results lie elsewhere


@pytest.mark.parametrize("steps", [1, FEW_PLACES, 3 * FEW_PLACES])
def test_steps_that_lie_elsewhere_are_copied(monkeypatch, steps):
    """What is kept for a gradient lies elsewhere in each step, and in each call."""

    def total(x, y):
        for row in y:
            x = paddle.lgamma(x * 0.5 + row)
        return x.sum()

    made, bind = [], HostCall.bind
    monkeypatch.setattr(HostCall, "bind", lambda *q: made.append(q) or bind(*q))
    static = dy2st.to_static(total)
    for call in range(3):
        args = matrix(call, 4), matrix(7 + call, steps, 4)
        args[0].stop_gradient = False
        pair = []
        for f in (total, static):
            given = check.detached(args)
            pair.append(check.step(f, given, [given[0]]))
        (want, wanted), (have, had) = pair
        check.same(have, want)
        np.testing.assert_allclose(had[0], wanted[0], rtol=1e-5)
    assert len(made) <= 3 * FEW_PLACES  # forward with and without a gradient, and backward


def test_an_error_of_a_kernel_is_raised_and_nothing_is_written():
    class Model(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.register_buffer("steps", paddle.zeros([2]))

        def forward(self, a, x):
            self.steps.add_(paddle.ones([2]))
            return paddle.linalg.cholesky(a) @ x

    model = Model()
    static, x = dy2st.to_static(model), paddle.ones([2, 1])
    good, bad = paddle.eye(2) * 4, -paddle.eye(2)
    np.testing.assert_allclose(static(good, x).numpy(), 2 * x.numpy())
    with pytest.raises(Exception, match="Cholesky|positive"):
        static(bad, x)
    np.testing.assert_array_equal(model.steps.numpy(), [1.0, 1.0])
    np.testing.assert_allclose(static(good, x).numpy(), 2 * x.numpy())
    np.testing.assert_array_equal(model.steps.numpy(), [2.0, 2.0])


def test_a_kernel_that_breaks_its_contract_is_named(monkeypatch):
    static = dy2st.to_static(lambda x: paddle.lgamma(x) * 2)
    static(paddle.ones([3]))
    monkeypatch.setattr(foreign_kernels, "fresh", lambda out, given: [paddle.ones([2])])
    with pytest.raises(dy2st.Dy2stError, match="lgamma gave"):
        static(paddle.ones([3]))


def test_operands_that_are_not_contiguous():
    def f(x):
        ys = []
        for t in range(x.shape[1]):
            ys.append(paddle.lgamma(x[:, t]))
        return paddle.stack(ys, 1), paddle.lgamma(x.t())

    agree(f, matrix(0, 4, 3))


def test_empty_tensors():
    agree(lambda x: paddle.lgamma(x) + 1, paddle.zeros([0, 3]))


@pytest.mark.slow
def test_threads_call_kernels_at_once():
    static = dy2st.to_static(solved)
    a = paddle.eye(3) * 4 + matrix(0, 3, 3)
    want = {k: solved(a, matrix(k, 3, 2), 20) for k in range(8)}
    wrong = []
    static(a, matrix(0, 3, 2), 20)

    def run(k):
        for _ in range(10):
            have = static(a, matrix(k, 3, 2), 20)
            if not all(np.allclose(h, w) for h, w in zip(have, want[k])):
                wrong.append(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in want]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_denormals_are_kept_in_kernels():
    """Native code flushes them; Paddle's kernels do not."""
    x = paddle.full([4], 1e-40)
    have = dy2st.to_static(lambda x: paddle.nextafter(x, x + 1))(x)
    np.testing.assert_array_equal(have.numpy() > 0, [True] * 4)


@pytest.mark.parametrize("shape", [(2, 2), (4, 4), (2, 5, 5), (8, 8)])
def test_kernels_for_positive_definite_matrices(shape):
    """A stand-in that is none was said not to be accepted by eager Paddle either."""

    def f(a):
        low = paddle.linalg.cholesky(a)
        return low, paddle.linalg.cholesky_solve(a, low)

    agree(f, paddle.eye(shape[-1]).expand(shape) * 4 + 0.1)
