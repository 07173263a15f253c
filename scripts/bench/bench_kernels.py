"""Times of the CPU kernels: products beside NumPy, functions, a call, and an LSTM scan.

Run:  python scripts/bench/bench_kernels.py      (pin it: taskset -c 1 ...)

Every pair is timed in turns, and the best of the rounds is printed, so that a busy machine spoils
both sides alike. The practical floor of a product is the arithmetic at the peak measured here, or
reading its weights at the rate measured here for their size, whichever is larger.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import time
from collections.abc import Callable

import numpy as np

import executor
import ir

ROUNDS = 15

LSTM = """
program lstm(%x: f32[B,T,I] arg "x", %wi: f32[I,4*H] param "wi", %wh: f32[H,4*H] param "wh", %b: f32[4*H] param "b", %h0: f32[B,H] arg "h0", %c0: f32[B,H] arg "c0") {
  %p = matmul(%x, %wi)                           : f32[B,T,4*H]
  %q = add(%p, %b)                               : f32[B,T,4*H]
  scan %t < T {
    seq   %xt = %q[:, t]                         : f32[B,4*H]
    const %w = %wh                               : f32[H,4*H]
    carry %h = %h0 then %h2 last %hT             : f32[B,H]
    carry %c = %c0 then %c2 last %cT             : f32[B,H]
    stack %ys = %h2 axis 1                       : f32[B,T,H]
    body
      %r = matmul(%h, %w)                        : f32[B,4*H]
      fused [B, H] {
        %%ports%%
      }
  }
  return %ys, %hT, %cT
}
"""  # noqa: E501


def lstm(b: int, t: int, i: int, h: int) -> ir.Program:
    """The scan with its gates in one kernel, as the passes leave it."""
    gates = [f"%z{k}" for k in range(4)] + [f"%x{k}" for k in range(4)]
    text = LSTM.replace(
        """      fused [B, H] {
        %%ports%%
      }
""",
        f"""      {", ".join(gates[:4])} = split(%r, axis=1, sections=[H, H, H, H]) : {TYPE4}
      {", ".join(gates[4:])} = split(%xt, axis=1, sections=[H, H, H, H]) : {TYPE4}
      fused [B, H] {{
"""
        + "".join(f"        const %p{g[1:]} = {g} : f32[B,H]\n" for g in gates)
        + BODY,
    )
    for name, n in (("4*H", 4 * h), ("B", b), ("T", t), ("I", i), ("H", h)):
        for left in "[,":
            for right in ",]":
                for _ in range(4):
                    text = text.replace(f"{left}{name}{right}", f"{left}{n}{right}")
                    text = text.replace(f"{left} {name}{right}", f"{left} {n}{right}")
    return ir.verify(ir.parse(text.replace("%t < T", f"%t < {t}")))


TYPE4 = "f32[B,H], f32[B,H], f32[B,H], f32[B,H]"
BODY = """        const %pc = %c : f32[B,H]
        out   %c2 = %qc : f32[B,H]
        out   %h2 = %qh : f32[B,H]
        body
          %s0 = add(%pz0, %px0) : f32[B,H]
          %s1 = add(%pz1, %px1) : f32[B,H]
          %s2 = add(%pz2, %px2) : f32[B,H]
          %s3 = add(%pz3, %px3) : f32[B,H]
          %gi = sigmoid(%s0) : f32[B,H]
          %gf = sigmoid(%s1) : f32[B,H]
          %gg = tanh(%s2) : f32[B,H]
          %go = sigmoid(%s3) : f32[B,H]
          %fc = multiply(%gf, %pc) : f32[B,H]
          %ig = multiply(%gi, %gg) : f32[B,H]
          %qc = add(%fc, %ig) : f32[B,H]
          %tc = tanh(%qc) : f32[B,H]
          %qh = multiply(%go, %tc) : f32[B,H]
      }
"""


def in_turns(*calls: Callable[[], object], seconds: float = 0.05) -> list[float]:
    """Best seconds of each call."""
    counts = []
    for f in calls:
        f()
        start = time.perf_counter()
        f()
        counts.append(max(1, int(seconds / ROUNDS / max(time.perf_counter() - start, 1e-7))))
    best = [np.inf] * len(calls)
    for _ in range(ROUNDS):
        for k, f in enumerate(calls):
            start = time.thread_time()
            for _ in range(counts[k]):
                f()
            best[k] = min(best[k], (time.thread_time() - start) / counts[k])
    return best


def bound(program: ir.Program, *arrays: np.ndarray) -> Callable[[], None]:
    """A call of `run` on fixed memory."""
    run = executor.compile(program)
    sizes = ir.walk.bind_sizes(program, [a.shape for a in arrays])
    outs = [np.zeros(v.type.concrete(sizes), v.type.dtype.numpy) for v in program.outputs]
    arguments = (
        [sizes[n] for n in run.sizes],
        [a.ctypes.data for a in arrays],
        [a.ctypes.data for a in outs],
    )
    keep = (arrays, outs)
    return lambda: run.run(*arguments) if keep else None


def one_op(line: str, *types: str) -> ir.Program:
    names = ", ".join(f'%x{k}: {t} arg "x{k}"' for k, t in enumerate(types))
    return ir.parse(f"program p({names}) {{\n  %y = {line}\n  return %y\n}}")


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def product(m: int, k: int, n: int) -> tuple[Callable[[], None], Callable[[], object]]:
    x, y, out = values(m, k), values(k, n), np.zeros((m, n), np.float32)
    p = one_op(f"matmul(%x0, %x1) : f32[{m},{n}]", f"f32[{m},{k}]", f"f32[{k},{n}]")
    return bound(p, x, y), lambda: np.matmul(x, y, out=out)


def repeated(m: int, k: int, n: int) -> float:
    """Seconds of a product whose weights are packed once: a loop of 64."""
    p = ir.parse(f"""
program p(%x: f32[64,{m},{k}] arg "x", %w: f32[{k},{n}] param "w") {{
  scan %t < 64 {{
    seq   %xt = %x[t]                            : f32[{m},{k}]
    const %v = %w                                : f32[{k},{n}]
    last  %y = %z                                : f32[{m},{n}]
    body
      %z = matmul(%xt, %v)                       : f32[{m},{n}]
  }}
  return %y
}}
""")
    return in_turns(bound(p, values(64, m, k), values(k, n)), seconds=0.2)[0] / 64


def products() -> None:
    peak = 0.0
    for m, k, n in ((1, 256, 1024), (16, 256, 1024), (64, 256, 1024), (512, 512, 512)):
        ours, theirs = in_turns(*product(m, k, n), seconds=0.2)
        packed = repeated(m, k, n) if m < 512 else ours
        rate = 2e-9 * m * k * n
        peak = max(peak, rate / packed)
        print(
            f"matmul {m:4d} {k:4d} {n:4d}: {rate / ours:6.1f} GFLOP/s, packed before a loop "
            f"{rate / packed:6.1f}, NumPy {rate / theirs:6.1f}"
        )


def functions() -> None:
    x = values(4096)
    for name in ("exp", "tanh", "sigmoid", "erf", "gelu", "log1p", "neg"):
        program = one_op(f"{name}(%x0) : f32[4096]", "f32[4096]")
        empty = one_op(f"{name}(%x0) : f32[1]", "f32[1]")
        many, one = in_turns(bound(program, x), bound(empty, x[:1]))
        print(
            f"{name:8s} {(many - one) / 4096 * 1e9:.3f} ns per element; a call {one * 1e6:.2f} us"
        )


def loops() -> None:
    for b, t, i, h in ((1, 128, 256, 256), (16, 128, 256, 256), (1, 128, 32, 32)):
        program = lstm(b, t, i, h)
        start = time.perf_counter()
        executor.compile(program)
        compiled = time.perf_counter() - start
        xs = values(b, t, i), values(i, 4 * h) / 16, values(h, 4 * h) / 16
        xs += values(4 * h), values(b, h), values(b, h)
        (seconds,) = in_turns(bound(program, *xs), seconds=0.5)
        step = repeated(b, h, 4 * h)
        print(
            f"lstm B={b} T={t} I={i} H={h}: {seconds * 1e3:.3f} ms, {seconds / t * 1e6:.2f} us per "
            f"step (recurrent product alone {step * 1e6:.2f}); compiled in {compiled * 1e3:.0f} ms"
        )


if __name__ == "__main__":
    products()
    functions()
    loops()
