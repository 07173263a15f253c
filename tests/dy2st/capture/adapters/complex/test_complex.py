"""Complex tensors against eager: values, gradients, arguments; in loops, branches and views."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest

import dy2st
from dy2st.capture import dispatch
from dy2st.capture.adapters import ADAPTERS
from dy2st.capture.adapters.complex import COMPLEX
from dy2st.trace.signals import Refused
from tests import check

pytestmark = pytest.mark.sampled(every=10)

RNG = np.random.default_rng(3)


def C(*shape, dtype="complex64"):
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(dtype)


def R(*shape, dtype="float32"):
    return RNG.normal(size=shape).astype(dtype)


def called(f, arrays):
    """Results, gradients of a real loss of them, and the arguments after the call."""
    xs = [paddle.to_tensor(a) for a in arrays]
    for x in xs:
        x.stop_gradient = x.dtype in (paddle.int64, paddle.bool)
    results = check.tensors([f(*xs)])
    total = 0.0
    for k, y in enumerate(q for q in results if not q.stop_gradient):
        rng = np.random.default_rng(k)
        if y.is_complex():
            w = rng.normal(size=y.shape) + 1j * rng.normal(size=y.shape)
            y = y * paddle.to_tensor(w.astype(y.numpy().dtype))
            y = y.real() + 0.5 * y.imag()
            total = total + y.astype("float64").sum()
        else:
            w = paddle.to_tensor(rng.normal(size=y.shape)).astype(y.dtype)
            total = total + (y * w).astype("float64").sum()
    if not isinstance(total, float):
        total.backward()
    return results, [x.grad for x in xs], xs


def agrees(f, *arrays, bound=2e-5):
    static = dy2st.to_static(f)
    want = called(f, arrays)
    for _ in range(2):
        have = called(static, arrays)
        assert [q.stop_gradient for q in have[0]] == [q.stop_gradient for q in want[0]]
        for a, b in zip(check.leaves(list(have)), check.leaves(list(want)), strict=True):
            assert (a is None) == (b is None)
            if b is None:
                continue
            assert a.dtype == b.dtype and a.shape == b.shape
            x, y = a.numpy(), b.numpy()
            if y.dtype == np.bool_:
                np.testing.assert_array_equal(x, y)
            elif y.size:
                assert np.abs(x - y).max() <= bound * max(1.0, np.abs(y).max())


# ---------------------------------------------------------------- calls
def arithmetic(x, y, r):
    yield from (x + y, x - y, x * y, x / y, x + r, r - x, x * r, r * x, x / r, r / x, -x)
    yield from (x == y, x != x, x**2, paddle.pow(x, 3), paddle.square(x), paddle.reciprocal(x))


def numbers(x, r):
    yield from (x * 2.0, 1.5 + x, 2 - x, x / 3, 1 / x, x * 1j, 1j - x, x / (1 - 2j), (1 + 1j) / x)
    yield from (r * 1j, 1j + r, (1 - 1j) / (r * r + 1), paddle.scale(x, 2.0, 1.0), x == 1j)
    yield from (paddle.arange(4) * 1j + x, x * paddle.arange(4))


def functions(x, r):
    yield from (x.abs(), abs(x), paddle.angle(x), x.conj(), paddle.exp(x), paddle.log(x))
    yield from (x.real() * x.imag(), paddle.as_real(x) * 2, paddle.as_complex(r) * 1j)
    yield from (paddle.complex(r, r[0]), paddle.polar(r * r, r), x.is_complex() and x)
    yield from (x.sum(), x.sum(axis=-1, keepdim=True), x.mean(), x.mean([0]), paddle.cumsum(x, 0))


def products(x, y, r, v):
    yield from (x @ y, x @ r, r.T @ y.T, x @ v, v @ y, v @ v, paddle.dot(v, v))
    yield from (paddle.matmul(x, y, transpose_x=False), paddle.matmul(y, x, transpose_x=True))
    yield from (F.linear(x, y, y[0]), paddle.outer(v, v), paddle.add_n([x, x]))
    yield paddle.einsum("ij,jk->ik", x, y)
    yield paddle.einsum("ij,ij->i", x, x)
    yield paddle.einsum("ij,jk->ki", x, r)


def batched(x, y, z, w):
    yield from (x @ z, paddle.matmul(x, x, transpose_y=True), x @ y)
    yield paddle.einsum("bix,iox->box", x, w)


def movement(x, y):
    yield from (x.reshape([-1, 2]) * 1j, x.T, paddle.transpose(x, [1, 0]) + 0, x[1] + x[-1, ...])
    yield from (x[:, 1:3] * x[::-1, :2], paddle.concat([x, y], -1), paddle.stack([x, x], -1))
    yield from (paddle.stack([x, x.real()], 1), paddle.expand(x[:, :1], [2, 3, 4]), x.unbind(0))
    yield from (paddle.tile(x, [2, 1]), x.unsqueeze(0).squeeze(0), paddle.flip(x, [0]))
    yield from (paddle.roll(x, 1, 0), paddle.roll(x, [1, 2], [0, 1]), paddle.diff(x, axis=1))
    yield from (F.pad(x, [1, 2]), F.pad(x.reshape([1, 1, 3, 4]), [1, 0, 2, 1]), x[:, [1, 0]])
    yield from (paddle.gather(x, paddle.to_tensor([2, 0, 2])), x[paddle.to_tensor([1, 0])])
    yield from (paddle.index_select(x, paddle.to_tensor([2, 0]), 1), paddle.meshgrid(x[0], x[1]))
    yield from (paddle.where(x.real() > 0, x, x * 2), paddle.fft.fftshift(x), x.clone(), x.detach())


def made(x, r):
    yield from (paddle.zeros([2, 4], "complex64") + x, paddle.ones_like(x) * x)
    yield from (paddle.full([4], 1 + 2j, "complex64") * x, paddle.to_tensor([1j, 2.0, 3.0, 0]) * x)
    yield from (paddle.eye(4, dtype="complex64") @ x, paddle.zeros_like(x), r.astype("complex64"))
    yield from (x.astype("complex128") * 1j, x.astype("float32"), paddle.to_tensor(2j) * x)
    yield x * paddle.to_tensor(np.array([1, 2j, 3, 4], "complex64"))


CALLS = {
    "arithmetic": (arithmetic, C(3, 4), C(4), R(3, 1)),
    "empty": (arithmetic, C(0, 4), C(4), R(4)),
    "no axes": (arithmetic, C(), C(), R()),
    "wide": (arithmetic, C(3, dtype="complex128"), C(3), R(3, dtype="float64")),
    "numbers": (numbers, C(3, 4), R(4)),
    "functions": (functions, C(3, 2), R(3, 2)),
    "products": (products, C(4, 4), C(4, 4), R(4, 3), C(4)),
    "batched": (batched, C(2, 4, 3), C(2, 3, 4), C(3, 2), C(4, 2, 3)),
    "movement": (movement, C(3, 4), C(3, 1)),
    "made": (made, C(4), R(4)),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    f, *arrays = CALLS[name]

    def every(*xs):
        return list(f(*xs))

    agrees(every, *arrays)


def test_magnitudes_that_have_no_square():
    tiny = np.array([3e-30 + 4e-30j, 3e30 + 4e30j, 0, complex(0, np.inf), np.nan], np.complex64)
    f = dy2st.to_static(lambda x: (x.abs(), x / x))
    size, one = f(paddle.to_tensor(tiny))
    np.testing.assert_allclose(size.numpy(), np.abs(tiny), rtol=1e-6)
    np.testing.assert_allclose(one.numpy()[:2], [1, 1], rtol=1e-6)


def test_the_gradient_at_zero_is_zero():
    agrees(lambda x: (x.abs(), paddle.angle(x)), np.array([0, 1j, -1], np.complex64))


# ---------------------------------------------------------------- loops, branches, writes
def recurrence(x, nu, theta, b, c):
    """A linear recurrent unit with a complex diagonal."""
    decay = paddle.exp(paddle.complex(-paddle.exp(nu), theta))
    drive = x.astype("complex64") @ b
    h, ys = paddle.zeros([x.shape[0], decay.shape[0]], "complex64"), []
    for t in range(x.shape[1]):
        h = decay * h + drive[:, t]
        ys.append((h @ c).real())
    return paddle.stack(ys, 1), h


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 5])
def test_a_diagonal_recurrence(steps):
    agrees(recurrence, R(2, steps, 3), R(4), R(4), C(3, 4), C(4, 2))


def test_a_recurrence_of_no_steps():
    def last(x, a):
        h = paddle.zeros([2, 3], "complex64")
        for t in range(x.shape[0]):
            h = a * h + x[t]
        return h

    agrees(last, C(0, 2, 3), C(3))


def test_a_loop_is_one_loop():
    f = dy2st.to_static(recurrence)
    args = [paddle.to_tensor(q) for q in (R(2, 64, 3), R(4), R(4), C(3, 4), C(4, 2))]
    assert [n.kind for n in dy2st.report(f, *args).loops] == ["scan"]


def test_named_sizes():
    spec = [paddle.static.InputSpec([None, 3], "complex64", "x")]

    def f(x):
        h = x[0] * 0
        for t in range(x.shape[0]):
            h = h * 1j + x[t]
        return h, (x * x).reshape([-1])

    static = dy2st.to_static(f, input_spec=spec)
    for n in (1, 2, 5):
        x = paddle.to_tensor(C(n, 3))
        for a, b in zip(static(x), f(x)):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-5, atol=1e-5)


def written(x, y):
    """Writes into parts, in a loop and through views."""
    out = paddle.zeros([5, *x.shape], "complex64")
    for t in range(5):
        out[t] = x * (t + 1.0) + y
        x = x * 1j
    out[0, 1:] = 2.0
    out[1, 0] = 1 + 1j
    out[2].real()[0] = 7.0
    mask = out[3].real() > 0
    out[4][:2] = paddle.where(mask, out[3], 1j)[:2]
    return out, out[2].imag(), x


def test_writes():
    with paddle.no_grad():
        agrees(written, C(3), C(3))


def test_writes_with_gradients():
    def f(x, w):
        out = paddle.zeros([2, 4, 5], "complex64")
        out[:, :2, :3] = x[:, :2, :3] * w
        out[:, -1:, :3] = x[:, -1:, :3] @ w[0].reshape([3, 1])
        return out

    agrees(f, C(2, 4, 5), C(2, 3))


def test_arguments_and_buffers_are_written_where_they_lie():
    def f(x, y):
        x[0] = y * 1j
        y.add_(x[1])
        return x

    static = dy2st.to_static(f)
    a, b = ([paddle.to_tensor(q) for q in (np.ones([2, 3], "complex64"), C(3))] for _ in range(2))
    b = [q.clone() for q in a]
    for _ in range(3):
        assert static(*a) is a[0]
        f(*b)
        for q, r in zip(a, b):
            np.testing.assert_allclose(q.numpy(), r.numpy(), rtol=1e-6)


def test_results_share_memory_as_in_eager():
    def f(x, r):
        return x[0], x.real(), paddle.as_real(x), paddle.as_complex(r), x

    x, r = paddle.to_tensor(C(2, 3)), paddle.to_tensor(R(3, 2))
    have = dy2st.to_static(f)(x, r)
    x[0] = 1j
    r[0] = 5.0
    for a, b in zip(have, f(x, r)):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
        assert a.data_ptr() == b.data_ptr()


@pytest.mark.slow
def test_branches_and_whiles():
    def f(x, y):
        z = x * y if x.abs().sum() > 3 else x + y
        while z.abs().sum() < 10.0:
            z = z * (1.5 + 0.5j) + y
        return z

    for scale in (0.1, 3.0):
        agrees(f, C(3) * np.complex64(scale), C(3))


def test_lists_and_states_that_begin_without_a_value():
    def f(x):
        h, total, ys = None, 0.0, []
        for t in range(x.shape[0]):
            h = x[t] if h is None else h * (0.5 + 0.1j) + x[t]
            total = total + h * 1j
            ys.append(h * h.conj())
        return paddle.stack(ys, -1), total, ys

    agrees(f, C(4, 3))


def test_a_rotary_embedding():
    def f(q, angles):
        turns = paddle.polar(paddle.ones_like(angles), angles)
        pairs = paddle.as_complex(q.reshape([*q.shape[:-1], -1, 2]))
        return paddle.as_real(pairs * turns).flatten(-2)

    agrees(f, R(2, 5, 6), R(5, 3))


# ---------------------------------------------------------------- files
def test_a_saved_program_takes_and_gives_complex_arrays(tmp_path):
    def f(x, y):
        return x * y + 1j, {"real": x.real(), "row": x[0], "pairs": paddle.as_real(y)}

    spec = [paddle.static.InputSpec([None, 4], "complex64", n) for n in "xy"]
    dy2st.save(f, tmp_path / "f", spec)
    loaded = dy2st.load(tmp_path / "f")
    x, y = C(4, 3).T, C(3, 4)
    want = f(paddle.to_tensor(x), paddle.to_tensor(y))
    have = loaded(x, y)
    for a, b in zip(check.leaves(list(have)), check.leaves(list(want)), strict=True):
        assert a.dtype == b.numpy().dtype
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-6)
    with pytest.raises(TypeError, match="x is float32, the program takes complex64"):
        loaded(x.real, y)


def test_a_saved_state_is_complex(tmp_path):
    class Filter(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.register_buffer("w", paddle.to_tensor(np.array([1j, 2, 3], "complex64")))
            self.register_buffer("h", paddle.zeros([3], "complex64"))

        def forward(self, x):
            self.h.set_value(self.h * self.w + x.sum(0))
            return self.h * 1j

    layer, x = Filter(), C(2, 3)
    dy2st.save(layer, tmp_path / "f", [paddle.static.InputSpec([None, 3], "complex64", "x")])
    loaded = dy2st.load(tmp_path / "f")
    for _ in range(3):
        np.testing.assert_allclose(loaded(x), layer(paddle.to_tensor(x)).numpy(), rtol=1e-6)
    assert loaded.buffers["h"].dtype == np.complex64


# ---------------------------------------------------------------- what is refused
REFUSED = {
    "tanh": lambda x: paddle.tanh(x),
    "prod": lambda x: x.prod(),
    "order": lambda x: x < x,
    "float16": lambda x: x * x.real().astype("float16"),
    "power": lambda x: x**0.5,
    "triangle": lambda x: paddle.tril(x.unsqueeze(0)),
    "random numbers": lambda x: x + paddle.randn([3], "complex64"),
    "einsum": lambda x: paddle.einsum("i->", x),
    "integers": lambda x: x.astype("int64"),
    "number": lambda x: x[0].item(),
    "array": lambda x: x.numpy(),
    "truth": lambda x: 1 if x[0] else 2,
    "prime": lambda x: paddle.fft.fft(paddle.tile(x, [199])[:521]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    x = paddle.to_tensor(C(3))
    x.stop_gradient = False
    with pytest.raises(dy2st.SourceError, match="complex"):
        dy2st.to_static(lambda x: REFUSED[name](x))(x)


def test_no_adapter_of_real_numbers_sees_a_complex_one(monkeypatch):
    """Every entry, with a complex operand alone, in a list, and by name."""
    seen = []

    def sweep(e, x):
        for name in sorted(ADAPTERS.keys() - COMPLEX.keys()):
            for args, kwargs in (((x,), {}), (([x, x],), {}), ((), {"x": x})):
                with pytest.raises(Refused, match="complex"):
                    dispatch.record(name, args, kwargs)
                seen.append(name)
        return e.alias(x)

    def fails(*args, **kwargs):
        raise AssertionError("an adapter of real numbers has been called")

    for name in ADAPTERS:
        monkeypatch.setitem(ADAPTERS, name, fails)
    monkeypatch.setitem(COMPLEX, "conj", sweep)
    dy2st.to_static(lambda x: x.conj())(paddle.to_tensor(C(3)))
    assert len(seen) > 500


def test_what_is_no_call_is_refused_by_name():
    def shared(x, y):
        x[0] = y[0] * 2
        return x

    def told(x):
        if x.abs().sum() > 0:
            raise ValueError(f"too large: {x}")
        return x

    x = paddle.to_tensor(C(4, 3))
    with pytest.raises(dy2st.SourceError, match="shared memory.*complex"):
        dy2st.to_static(shared)(x[:3], x[1:])
    with pytest.raises(dy2st.SourceError, match="text of an error.*complex"):
        dy2st.to_static(told)(x)
    with pytest.raises(dy2st.SourceError, match="print of complex"):
        dy2st.to_static(lambda x: print(x))(x)


def test_loops_whose_length_data_decides():
    def f(x, n):
        ys, h = [], x[:1]
        for t in range(int(n)):
            x = x * 1j
            ys.append(x * t)
            h = paddle.concat([h, h[-1:] * 1j])
        return x, ys, h

    static, x = dy2st.to_static(f), paddle.to_tensor(C(2, 3))
    for n in (0, 1, 5):
        for a, b in zip(check.leaves(list(static(x, paddle.to_tensor(n)))), check.leaves(f(x, n))):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


def test_a_gradient_that_the_user_wrote():
    class Square(paddle.autograd.PyLayer):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensor()
            return g * x.conj() * 2

    agrees(lambda x: Square.apply(x) * 1j, C(3))
    agrees(lambda x, a: dy2st.scan(lambda c, q: (a * c + q, a * c), x[0] * 0, x)[1], C(5, 3), C(3))
