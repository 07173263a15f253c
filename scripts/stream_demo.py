"""Speech enhancement by chunks: `python scripts/stream_demo.py [--plot build/stream.svg]`.

Sound is made here: voices (tones with harmonics that glide and pause) in noise. A small model, a
short-time Fourier transform as windows, a causal convolution and a GRU that make a mask, and an
overlap-add, learns to take the noise away. It then runs on the whole sound and by chunks of 10 ms.
Prints how much better the sound is, the delay, the largest difference between the two, and the
real-time factor; `--plot` draws the sound, and the difference over time, as an SVG file.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.static import InputSpec

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import dy2st  # noqa: E402

RATE, WINDOW, HOP = 16_000, 320, 160


def sound(seconds: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A clean and a noisy sound, float32[1, samples]."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(seconds * RATE)) / RATE
    pitch = 120 + 60 * np.sin(2 * np.pi * (0.4 + 0.3 * rng.random()) * t + rng.random())
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    voice = sum(np.sin(k * phase) / k for k in range(1, 9))
    loud = np.clip(np.sin(2 * np.pi * 1.3 * t + 6 * rng.random()), 0, 1)
    clean = 0.2 * voice * loud
    noisy = clean + 0.05 * rng.standard_normal(t.shape)
    return clean[None].astype("float32"), noisy[None].astype("float32")


class Enhancer(nn.Layer):
    def __init__(self, hidden: int = 48) -> None:
        super().__init__()
        bins = WINDOW // 2 + 1
        angle = 2 * np.pi * np.outer(np.arange(WINDOW), np.arange(bins)) / WINDOW
        window = np.sqrt(np.hanning(WINDOW + 1)[:-1])[:, None]
        scale = np.full(bins, 2 / WINDOW)
        scale[[0, -1]] = 1 / WINDOW
        bases = {"cos": window * np.cos(angle), "sin": -window * np.sin(angle)}
        for name, a in bases.items():
            self.register_buffer(name, paddle.to_tensor(a.astype("float32")))
            back = (a * scale).T[:, None]  # [bins, 1, WINDOW]
            self.register_buffer(f"back_{name}", paddle.to_tensor(back.astype("float32")))
        self.conv = nn.Conv1D(bins, hidden, 3)
        self.gru = nn.GRU(hidden, hidden)
        self.mask = nn.Linear(hidden, bins)

    def forward(self, x):  # [1, samples] -> [1, samples]
        x = F.pad(x.unsqueeze(1), [WINDOW - HOP, 0], data_format="NCL").squeeze(1)
        frames = x.unfold(1, WINDOW, HOP)
        real, imag = frames @ self.cos, frames @ self.sin
        level = paddle.log(real * real + imag * imag + 1e-4).transpose([0, 2, 1])
        y = F.relu(self.conv(F.pad(level, [2, 0], data_format="NCL"))).transpose([0, 2, 1])
        mask = F.sigmoid(self.mask(self.gru(y)[0]))
        real, imag = ((mask * q).transpose([0, 2, 1]) for q in (real, imag))
        out = F.conv1d_transpose(real, self.back_cos, stride=HOP)
        out = out + F.conv1d_transpose(imag, self.back_sin, stride=HOP)
        return out.squeeze(1)[:, WINDOW - HOP :]


def trained(steps: int) -> Enhancer:
    paddle.seed(0)
    model = Enhancer()
    static = dy2st.to_static(model)
    adam = paddle.optimizer.Adam(3e-3, parameters=model.parameters())
    for k in range(steps):
        clean, noisy = map(paddle.to_tensor, sound(1.0, k))
        loss = (static(noisy) - clean).square().mean()
        loss.backward()
        adam.step()
        adam.clear_grad()
    model.eval()
    return model


def decibels(clean: np.ndarray, x: np.ndarray) -> float:
    """Signal to noise."""
    return float(10 * np.log10((clean**2).sum() / ((x - clean) ** 2).sum()))


def main() -> int:
    parser = argparse.ArgumentParser(description="Enhance sound by chunks.")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    model = trained(options.steps)
    clean, noisy = sound(options.seconds, 1000)
    with paddle.no_grad():
        whole = model(paddle.to_tensor(noisy)).numpy()
    stream = dy2st.stream(model, {"x": 1}, HOP, [InputSpec([1, None], "float32", "x")])
    chunks = [np.ascontiguousarray(noisy[:, t : t + HOP]) for t in range(0, noisy.shape[1], HOP)]
    start = time.perf_counter()
    parts = [stream(c) for c in chunks if c.shape[1] == HOP]
    took = time.perf_counter() - start
    tail = stream.flush(chunks[-1]) if chunks[-1].shape[1] < HOP else stream.flush()
    streamed = np.concatenate([*parts, tail], 1)[:, stream.delay :]
    error = np.abs(streamed - whole)
    clean = clean[:, : whole.shape[1]]
    print(
        f"noisy {decibels(clean, noisy[:, : whole.shape[1]]):.1f} dB, whole "
        f"{decibels(clean, whole):.1f} dB, by chunks {decibels(clean, streamed):.1f} dB"
    )
    print(f"delay {stream.delay} samples ({1e3 * stream.delay / RATE:.0f} ms) besides the chunk")
    print(f"largest difference between whole and chunks {error.max():.1e}")
    print(
        f"real-time factor {took / options.seconds:.4f}: {1e6 * took / len(parts):.0f} us a chunk"
    )
    if options.plot:
        options.plot.parent.mkdir(parents=True, exist_ok=True)
        options.plot.write_text(plot(noisy[0], streamed[0], error[0], stream.delay))
    return int(error.max() > 1e-5)


# ---------------------------------------------------------------- the plot
def plot(noisy: np.ndarray, out: np.ndarray, error: np.ndarray, delay: int) -> str:
    """The sound as it comes in and as it comes out, `delay` later, and the difference over time."""
    seconds, width = len(noisy) / RATE, 900
    late = np.concatenate([np.zeros(delay, "float32"), out])[: len(noisy)]
    log = np.log10(np.maximum(np.concatenate([np.zeros(delay), error]), 1e-9))[: len(noisy)]
    rows = [
        ("noisy sound", noisy, -0.6, 0.6, "#888"),
        (f"enhanced by chunks, {1e3 * delay / RATE:.0f} ms later", late, -0.6, 0.6, "#1668a8"),
        ("log10 of the difference from the whole", log, -9, -4, "#b03020"),
    ]
    text = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + 20}" height="480">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for k, (name, values, low, high, color) in enumerate(rows):
        top = 20 + 150 * k
        points = [envelope(values, p, width) for p in range(width)]
        ends = [f"{p + 10},{y(v, low, high, top):.1f}" for p, q in enumerate(points) for v in q]
        text.append(f'<polyline fill="none" stroke="{color}" points="{" ".join(ends)}"/>')
        name = f"{name} (from {low:g} to {high:g})"
        text.append(
            f'<text x="14" y="{top + 12}" font-family="sans-serif" font-size="13">{name}</text>'
        )
    text.append(
        f'<text x="{width - 60}" y="470" font-family="sans-serif" font-size="12">'
        f"{seconds:.1f} s</text></svg>"
    )
    return "\n".join(text)


def envelope(values: np.ndarray, p: int, width: int) -> tuple[float, float]:
    part = values[p * len(values) // width : max(1, (p + 1) * len(values) // width)]
    return float(part.min()), float(part.max())


def y(value: float, low: float, high: float, top: int) -> float:
    return top + 120 * (1 - (min(max(value, low), high) - low) / (high - low))


if __name__ == "__main__":
    sys.exit(main())
