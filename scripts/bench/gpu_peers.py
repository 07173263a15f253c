"""The same computations by other libraries, as far as they are installed: milliseconds of a call on
the device, with its inputs there."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

#: iterations of a loop that is unrolled by a compiler
MOST_UNROLLED = 64


def peers(
    name: str, arrays: Sequence[np.ndarray], repeat: int
) -> Iterator[tuple[str, float | str]]:
    """The name of each peer, and its time or why it has none."""
    for library, make in (("torch", torch_peers), ("jax", jax_peers)):
        if importlib.util.find_spec(library) is None:
            continue
        try:
            found = make(name, arrays, repeat)
        except Exception as e:
            yield library, f"{type(e).__name__}: {str(e)[:80]}"
            continue
        yield from found.items()


# ---------------------------------------------------------------- PyTorch
def torch_peers(name: str, arrays: Sequence[np.ndarray], repeat: int) -> Mapping[str, Any]:
    import torch

    if not torch.cuda.is_available():
        return {}
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    given = [torch.from_numpy(a).cuda() for a in arrays]
    f: Callable[..., Any] = {
        "neuron": torch_neuron,
        "recurrent": torch_recurrent,
        "lstm": torch_lstm,
        "gated": torch_gated,
        "softmax": lambda x: torch.softmax(x, 1),
        "product": torch.matmul,
    }[name]
    with torch.no_grad():
        found = {"torch eager": torch_time(f, given, repeat)}
        loops = name in ("neuron", "recurrent", "lstm", "gated")
        if not loops or given[0].shape[0] <= MOST_UNROLLED:
            found["torch.compile"] = torch_time(torch.compile(f), given, repeat)
        if name == "lstm":
            x, h, c = given[0], given[3][None], given[4][None]
            model = torch.nn.LSTM(x.shape[-1], x.shape[-1]).cuda()
            found["cuDNN LSTM"] = torch_time(model, [x, (h, c)], repeat)
        if name == "recurrent":
            model = torch.nn.RNN(given[0].shape[-1], given[0].shape[-1]).cuda()
            found["cuDNN RNN"] = torch_time(model, [given[0], given[2][None]], repeat)
    return found


def torch_time(f: Callable[..., Any], given: Sequence[Any], repeat: int) -> float:
    import torch

    for _ in range(2):
        f(*given)
    taken = []
    for _ in range(repeat):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        f(*given)
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


# ---------------------------------------------------------------- JAX
def jax_peers(name: str, arrays: Sequence[np.ndarray], repeat: int) -> Mapping[str, Any]:
    import jax
    import jax.numpy as jnp

    if jax.default_backend() != "gpu":
        return {}
    f = jax_functions()[name]
    with jax.default_matmul_precision("highest"):
        given = [jnp.asarray(a) for a in arrays]
        return {"jax.jit": jax_time(jax.jit(f), given, repeat)}


def jax_time(f: Callable[..., Any], given: Sequence[Any], repeat: int) -> float:
    """With what the host needs: JAX has no events."""
    import time

    import jax

    jax.block_until_ready(f(*given))
    taken = []
    for _ in range(repeat):
        start = time.perf_counter()
        jax.block_until_ready(f(*given))
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

    return {
        "neuron": neuron,
        "gated": gated,
        "recurrent": recurrent,
        "lstm": lstm,
        "softmax": lambda x: jax.nn.softmax(x, 1),
        "product": jnp.matmul,
    }
