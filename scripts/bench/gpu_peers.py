"""The same computations by other libraries, as far as they are installed: milliseconds of a call on
the device, with its inputs there, if its results are right."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: iterations of a loop that is unrolled by a compiler
MOST_UNROLLED = 64


#: the share of elements that may be apart by more than this, relative to the largest number: where
#: a threshold decides, another order of sums may turn an element over
SHARE, APART = 1e-3, 1e-3


@dataclass(frozen=True)
class Peer:
    """A call that computes a program, and what takes its time: milliseconds of the median."""

    name: str
    call: Callable[[], Any]
    time: Callable[[Callable[[], Any], int], float]


def peers(
    name: str, arrays: Sequence[np.ndarray], want: np.ndarray, precision: str, repeat: int
) -> Iterator[tuple[str, float | str]]:
    """The name of each peer, and its time, or why it has none: `want` is not among its results."""
    made = (("torch", torch_peers), ("triton", triton_peers), ("jax", jax_peers))
    for library, make in made:
        if importlib.util.find_spec(library) is None:
            continue
        try:
            for peer in make(name, arrays, precision):
                yield peer.name, found(peer, want, precision, repeat)
        except Exception as e:
            yield library, in_words(e)


def found(peer: Peer, want: np.ndarray, precision: str, repeat: int) -> float | str:
    try:
        wrong = apart(peer.call(), want, 10 * APART if precision != "float32" else APART)
        right = wrong <= SHARE
        return peer.time(peer.call, repeat) if right else f"wrong: {wrong:.1%} of the elements"
    except Exception as e:
        return in_words(e)


def in_words(e: Exception) -> str:
    return f"{type(e).__name__}: {str(e)[:80]}"


def apart(results: Any, want: np.ndarray, limit: float) -> float:
    """The share of elements of the result of this shape that are not those of `want`."""
    found = [a for a in _arrays(results) if a.shape == want.shape]
    size = max(float(np.abs(want).max(initial=0)), 1e-30)
    shares = [float((~(np.abs(a - want) <= limit * size)).mean()) for a in found]
    return min(shares, default=1.0)


def _arrays(results: Any) -> Iterator[np.ndarray]:
    if isinstance(results, (tuple, list)):
        for r in results:
            yield from _arrays(r)
    else:
        yield np.asarray(results.cpu() if hasattr(results, "cpu") else results)


# ---------------------------------------------------------------- PyTorch
def torch_peers(name: str, arrays: Sequence[np.ndarray], precision: str) -> Iterator[Peer]:
    import torch

    if not torch.cuda.is_available():
        return
    words = {"float32": "highest", "tensorfloat32": "high", "bfloat16": "medium"}
    torch.set_float32_matmul_precision(words[precision])
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    given = [torch.from_numpy(a).cuda() for a in arrays]
    f = torch_functions()[name]
    calls = {"torch eager": f}
    if name in ("lstm", "recurrent"):
        calls[f"cuDNN {name}"] = cudnn(name, given)
    if name not in LOOPS or given[0].shape[0] <= MOST_UNROLLED:
        calls["torch.compile"] = torch.compile(f)
    for label, g in calls.items():

        def call(g: Callable[..., Any] = g) -> Any:
            with torch.no_grad():
                return g(*given)

        yield Peer(label, call, torch_time)


LOOPS = ("neuron", "recurrent", "lstm", "gated", "decode", "steps")


def torch_functions() -> dict[str, Callable[..., Any]]:
    import torch
    from torch.nn import functional

    return {
        "neuron": torch_neuron,
        "recurrent": torch_recurrent,
        "lstm": torch_lstm,
        "gated": torch_gated,
        "decode": torch_decode,
        "softmax": lambda x: torch.softmax(x, 1),
        "product": torch.matmul,
        "convolution": lambda x, w: functional.conv2d(x, w, padding=1),
        "attention": torch_attention,
        "cache": torch_attention,
        "layer": torch.matmul,
        "steps": torch_steps,
    }


def torch_attention(q: Any, k: Any, v: Any) -> Any:
    from torch.nn import functional

    return functional.scaled_dot_product_attention(q, k, v, scale=0.125)


def torch_steps(x: Any, w: Any, h: Any) -> Any:
    import torch
    from torch.nn import functional

    out = []
    for row in x:
        h = torch.tanh(functional.conv2d(h, w, padding=1) + row)
        out.append(h)
    return torch.stack(out), h


def cudnn(name: str, given: Sequence[Any]) -> Callable[..., Any]:
    """The layer with the same weights. An LSTM multiplies its input, too; a simple recurrence
    has been given the product."""
    import torch

    x, h = given[0], given[3 if name == "lstm" else 2]
    kind = torch.nn.LSTM if name == "lstm" else torch.nn.RNN
    layer = kind(x.shape[-1], h.shape[-1], bias=False).cuda()
    inner = given[1].T if name == "lstm" else torch.eye(x.shape[-1])
    outer = given[2].T if name == "lstm" else given[1].T
    with torch.no_grad():
        layer.weight_ih_l0.copy_(inner)
        layer.weight_hh_l0.copy_(outer)
    state = (h[None], given[4][None]) if name == "lstm" else h[None]
    return lambda *_: layer(x, state)


def torch_decode(q: Any, k: Any, v: Any, keys: Any, values: Any) -> Any:
    import torch

    out, keys, values = [], keys.clone(), values.clone()
    for t in range(q.shape[0]):
        keys[:, :, t], values[:, :, t] = k[t], v[t]
        scores = q[t][:, :, None] @ keys[:, :, : t + 1].transpose(2, 3)
        out.append(torch.softmax(scores * 0.125, -1) @ values[:, :, : t + 1])
    return torch.stack(out)


def torch_time(call: Callable[[], Any], repeat: int) -> float:
    import torch

    for _ in range(2):
        call()
    taken = []
    for _ in range(repeat):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        stop.record()
        stop.synchronize()
        taken.append(start.elapsed_time(stop))
    return float(np.median(taken))


def torch_neuron(x: Any, v: Any) -> Any:
    import torch

    out = []
    for row in x:
        u = v + (row - v) * 0.5
        z = (u >= 1).to(x.dtype)
        v = u * (1 - z)
        out.append(z)
    return torch.stack(out), v


def torch_recurrent(x: Any, w: Any, h: Any) -> Any:
    import torch

    out = []
    for row in x:
        h = torch.tanh(h @ w + row)
        out.append(h)
    return torch.stack(out), h


def torch_gated(g: Any, x: Any, h: Any) -> Any:
    import torch

    out = []
    for gate, row in zip(torch.sigmoid(g), x):
        h = gate * h + row
        out.append(h)
    return torch.stack(out), h


def torch_lstm(x: Any, wx: Any, wh: Any, h: Any, c: Any) -> Any:
    import torch

    out = []
    for row in x @ wx:
        i, f, m, o = (h @ wh + row).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(m)
        h = torch.sigmoid(o) * torch.tanh(c)
        out.append(h)
    return torch.stack(out), h, c


# ---------------------------------------------------------------- Triton
def triton_peers(name: str, arrays: Sequence[np.ndarray], precision: str) -> Iterator[Peer]:
    """Needs PyTorch for its tensors."""
    import torch

    if not torch.cuda.is_available():
        return
    from scripts.bench import gpu_triton

    if name in gpu_triton.CALLS:
        given = [torch.from_numpy(a).cuda() for a in arrays]
        yield Peer("Triton", lambda: gpu_triton.CALLS[name](*given), torch_time)


# ---------------------------------------------------------------- JAX
def jax_peers(name: str, arrays: Sequence[np.ndarray], precision: str) -> Iterator[Peer]:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others have memory, too
    import jax
    import jax.numpy as jnp

    if jax.default_backend() != "gpu":
        return
    given = [jnp.asarray(a) for a in arrays]
    with jax.default_matmul_precision(precision):
        f = jax.jit(jax_functions()[name])
        yield Peer("jax.jit", lambda: f(*given), jax_time)


def jax_time(call: Callable[[], Any], repeat: int) -> float:
    """With what the host needs: JAX has no events."""
    import jax

    jax.block_until_ready(call())
    taken = []
    for _ in range(repeat):
        start = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(1e3 * (time.perf_counter() - start))
    return float(np.median(taken))


def jax_functions() -> dict[str, Callable[..., Any]]:
    import jax
    import jax.numpy as jnp

    def neuron(x: Any, v: Any) -> Any:
        def step(v: Any, row: Any) -> Any:
            u = v + (row - v) * 0.5
            z = (u >= 1).astype(x.dtype)
            return u * (1 - z), z

        return jax.lax.scan(step, v, x)

    def recurrent(x: Any, w: Any, h: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = jnp.tanh(h @ w + row)
            return h, h

        return jax.lax.scan(step, h, x)

    def lstm(x: Any, wx: Any, wh: Any, h: Any, c: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            h, c = state
            i, f, m, o = jnp.split(h @ wh + row, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(m)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        return jax.lax.scan(step, (h, c), x @ wx)

    def gated(g: Any, x: Any, h: Any) -> Any:
        def after(a: Any, b: Any) -> Any:
            return a[0] * b[0], a[1] * b[0] + b[1]

        slopes, offsets = jax.lax.associative_scan(after, (jax.nn.sigmoid(g), x))
        ys = slopes * h + offsets
        return ys, ys[-1]

    def attention(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.softmax(q @ k.swapaxes(2, 3) * 0.125, -1) @ v

    def decode(q: Any, k: Any, v: Any, keys: Any, values: Any) -> Any:
        """Of a fixed size in all steps: what is not there yet is masked."""
        places = jnp.arange(q.shape[0])

        def step(caches: Any, given: Any) -> Any:
            t, qt, kt, vt = given
            ks, vs = caches[0].at[:, :, t].set(kt), caches[1].at[:, :, t].set(vt)
            scores = qt[:, :, None] @ ks.swapaxes(2, 3) * 0.125
            p = jax.nn.softmax(jnp.where(places <= t, scores, -jnp.inf), -1)
            return (ks, vs), p @ vs

        return jax.lax.scan(step, (keys, values), (places, q, k, v))[1]

    def steps(x: Any, w: Any, h: Any) -> Any:
        def step(h: Any, row: Any) -> Any:
            h = jnp.tanh(jax.lax.conv(h, w, (1, 1), "SAME") + row)
            return h, h

        return jax.lax.scan(step, h, x)

    return {
        "neuron": neuron,
        "gated": gated,
        "attention": attention,
        "cache": attention,
        "layer": jnp.matmul,
        "steps": steps,
        "decode": decode,
        "convolution": lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"),
        "recurrent": recurrent,
        "lstm": lstm,
        "softmax": lambda x: jax.nn.softmax(x, 1),
        "product": jnp.matmul,
    }
