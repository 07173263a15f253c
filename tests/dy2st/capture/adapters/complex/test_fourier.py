"""Fourier transforms and what everyday programs make of them, against eager."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.fft as fft
import paddle.nn.functional as F
import pytest
from paddle import nn, signal

import dy2st
from tests import check
from tests.dy2st.capture.adapters.complex.test_complex import C, R, agrees

pytestmark = pytest.mark.sampled(every=20)

#: one product, a prime, two and three factors, a large prime factor
LENGTHS = (1, 2, 5, 64, 67, 96, 400, 2 * 67, 4096)


def all_kinds(n):
    def f(z, x, half):
        return fft.fft(z), fft.rfft(x), fft.irfft(half, n=n)

    return f


@pytest.mark.parametrize("n", LENGTHS)
def test_lengths(n):
    agrees(all_kinds(n), C(1, n), R(1, n), C(1, n // 2 + 1))


@pytest.mark.parametrize(
    ("rows", "n"), [(2, 64), (3, 67), (7, 4096), (16, 32), (17, 30), (33, 400), (40, 1001)]
)
def test_many_sequences(rows, n):
    agrees(all_kinds(n), C(rows, n), R(rows, n), C(rows, n // 2 + 1))


def test_sequences_across_the_rows():
    def f(z, x):
        return fft.fft(z, axis=1), fft.rfft2(x), fft.irfft(z, axis=0, n=33), fft.rfft(x, axis=0)

    agrees(f, C(17, 20, 35), R(18, 24, 19))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_transforms_of_transforms(dtype):
    def f(x, w):
        z = fft.rfft(x.t(), n=36) * w
        return fft.irfft2(z), fft.ifft(fft.fft(fft.irfft(z, n=45), norm="ortho") ** 2)

    bound = 2e-5 if dtype == "float32" else 1e-12
    agrees(f, R(36, 21, dtype=dtype), R(21, 19, dtype=dtype), bound=bound)


def test_the_number_of_sequences_may_vary():
    f = dy2st.to_static(
        lambda x: fft.irfft(fft.rfft(x)) + fft.fft(x, axis=1).abs(),
        input_spec=[paddle.static.InputSpec([None, 48], "float32")],
    )
    for rows in (1, 3, 16, 50):
        x = paddle.to_tensor(R(rows, 48))
        want = fft.irfft(fft.rfft(x)) + fft.fft(x, axis=1).abs()
        np.testing.assert_allclose(f(x).numpy(), want.numpy(), rtol=1e-4, atol=1e-4)


def axes(z, x):
    yield from (fft.fft(z, axis=0), fft.ifft(z, axis=1, norm="ortho"), fft.rfft(x, axis=1))
    yield from (fft.irfft(z, axis=0), fft.fft2(z), fft.ifft2(z, norm="forward"), fft.fftn(z))
    yield from (fft.rfft2(x), fft.irfft2(z), fft.irfft2(z, s=(6, 9)), fft.rfftn(x, axes=(0, 2)))
    yield from (fft.rfft2(x, axes=(0, 1), norm="ortho"), fft.ifftn(z), fft.irfftn(z, axes=[0, 1]))


def options(z, x):
    yield from (fft.fft(z, n=5), fft.fft(z, n=9), fft.fft(x), fft.ifft(x), fft.fft2(x))
    yield from (fft.hfft(z), fft.ihfft(x), fft.hfft2(z), fft.rfft(x, n=7, norm="forward"))
    yield from (fft.fftshift(z), fft.ifftshift(z, axes=-1), fft.fftshift(x, axes=(0, 1)))
    yield from (fft.fftfreq(5, 0.3) * z, fft.rfftfreq(8, 0.3) * x, fft.fft(z, norm="ortho"))


@pytest.mark.slow
@pytest.mark.parametrize("calls", [axes, options], ids=lambda f: f.__name__)
def test_axes_and_options(calls):
    def f(z, x):
        return list(calls(z, x))

    agrees(f, C(3, 6, 5), R(3, 6, 5))


@pytest.mark.slow
def test_float64():
    agrees(lambda x: fft.irfft(fft.rfft(x) ** 2), R(2, 300, dtype="float64"), bound=1e-12)


@pytest.mark.slow
def test_short_time_transforms():
    def f(x, window):
        whole = signal.stft(x, 64, 16, window=window)
        short = signal.stft(x, 64, 16, win_length=50, window=window[7:57], normalized=True)
        two = signal.stft(x[0], 32, onesided=False, center=False)
        return whole, short.abs(), two, signal.istft(whole, 64, 16, window=window, length=390)

    agrees(f, R(2, 400), np.hanning(66)[1:65].astype("float32"))


def test_istft_checks_its_window():
    spectrum, window = paddle.to_tensor(C(1, 9, 4)), paddle.zeros([16])
    for f in (signal.istft, dy2st.to_static(lambda *q: signal.istft(*q))):
        with pytest.raises(ValueError, match="NOLA"):
            f(spectrum, 16, 4, 16, window)


def test_phases_of_a_magnitude():
    """The algorithm of Griffin and Lim."""

    def f(size, phase, window):
        for _ in range(3):
            y = signal.istft(paddle.polar(size, phase), 64, 16, window=window)
            phase = paddle.angle(signal.stft(y, 64, 16, window=window))
        return y

    size, phase = (R(1, 33, 9, dtype="float64") for _ in range(2))
    with paddle.no_grad():
        agrees(f, np.abs(size) + 0.1, phase, np.hanning(66)[1:65])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LogMelSpectrogram", "MFCC"])
def test_features_of_sound(name):
    layer = getattr(paddle.audio.features, name)(n_fft=400, n_mels=40, **MORE.get(name, {}))
    agrees(lambda x: layer(x), R(1, 2000))


MORE = {"MFCC": {"n_mfcc": 13}}


def burgers(u, steps=6):
    n, nu, dt = u.shape[-1], 0.01, 1e-3
    k = fft.rfftfreq(n, 1.0 / n) * 2 * np.pi
    uh = fft.rfft(u)
    for _ in range(steps):
        ux, v = fft.irfft(1j * k * uh, n=n), fft.irfft(uh, n=n)
        uh = (uh - dt * fft.rfft(v * ux)) / (1 + nu * dt * k * k)
    return fft.irfft(uh, n=n)


def test_a_spectral_solver():
    agrees(burgers, R(2, 16))


def test_a_saved_solver_runs_without_paddle(tmp_path):
    dy2st.save(burgers, tmp_path / "f", [paddle.static.InputSpec([2, 128], "float32", "u")])
    u = R(2, 128)
    want = burgers(paddle.to_tensor(u)).numpy()
    np.testing.assert_allclose(dy2st.load(tmp_path / "f")(u), want, rtol=1e-4, atol=1e-4)


class Spectral(nn.Layer):
    """A block of a Fourier neural operator."""

    def __init__(self, width=4, modes=3):
        super().__init__()
        self.modes, shape = modes, [width, width, modes, modes, 2]
        self.low, self.high = (self.create_parameter(shape) for _ in range(2))
        self.point = nn.Conv2D(width, width, 1)

    def forward(self, x):
        m, xf = self.modes, fft.rfft2(x)
        out = paddle.zeros(xf.shape, "complex64")
        for rows, w in ((slice(0, m), self.low), (slice(-m, None), self.high)):
            part = paddle.einsum("bixy,ioxy->boxy", xf[:, :, rows, :m], paddle.as_complex(w))
            out[:, :, rows, :m] = part
        return F.gelu(fft.irfft2(out, s=x.shape[-2:]) + self.point(x))


@pytest.mark.slow
def test_a_fourier_neural_operator_trains():
    paddle.seed(1)
    eager = nn.Sequential(Spectral(), Spectral())
    static = nn.Sequential(Spectral(), Spectral())
    static.set_state_dict(eager.state_dict())
    step = dy2st.to_static(lambda x: (static(x) ** 2).mean())
    optimizers = [paddle.optimizer.Adam(1e-2, parameters=q.parameters()) for q in (eager, static)]
    for _ in range(3):
        x = paddle.to_tensor(R(2, 4, 8, 9))
        losses = [(eager(x) ** 2).mean(), step(x)]
        for loss, optimizer in zip(losses, optimizers):
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
        check.same(losses[1], losses[0], rtol=1e-4)
    for a, b in zip(static.parameters(), eager.parameters()):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-4)
