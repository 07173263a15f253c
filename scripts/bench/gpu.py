"""Checks and times programs on the first GPU; needs NumPy, the CUDA driver and NVRTC, no Paddle.

    python -m scripts.bench.gpu [--json FILE] [--sizes T=64,B=16] [SAVED PROGRAM ...]

Each program is compared with itself in float64 on the host, then timed on tensors that lie on the
GPU; the peers and targets that a table of results needs are not here yet. With the stand-ins of the
tests in the environment (`tests/executor/gpu/emulator`) the times mean nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

import dy2st
import executor
import ir
from executor.gpu.driver import DeviceBlock, driver
from executor.gpu.nvrtc import compiler
from ir import Program, Slot
from ir.types import evaluate_dim

REPEAT = 20
NEURON = """
program neuron(%x: f32[T,N] arg "x", %v0: f32[N] arg "v") {
  scan %t < T {
    seq %xt = %x[t]                              : f32[N]
    carry %v = %v0 then %v3 last %vT             : f32[N]
    stack %ys = %s axis 0                        : f32[T,N]
    body
      %a = subtract(%xt, %v)                     : f32[N]
      %u = add(%v, %a)                           : f32[N]
      %s = sigmoid(%u)                           : f32[N]
      %v3 = multiply(%u, %s)                     : f32[N]
  }
  return %ys, %vT
}
"""
RECURRENT = """
program recurrent(%x: f32[T,B,H] arg "x", %w: f32[H,H] param "w", %h0: f32[B,H] arg "h") {
  scan %t < T {
    seq %xt = %x[t]                              : f32[B,H]
    const %wc = %w                               : f32[H,H]
    carry %h = %h0 then %h2 last %hT             : f32[B,H]
    stack %ys = %h2 axis 0                       : f32[T,B,H]
    body
      %a = matmul(%h, %wc)                       : f32[B,H]
      %b = add(%a, %xt)                          : f32[B,H]
      %h2 = tanh(%b)                             : f32[B,H]
  }
  return %ys, %hT
}
"""
SOFTMAX = """
program softmax(%x: f32[N,H] arg "x") {
  %y = softmax(%x, axis=1)                       : f32[N,H]
  return %y
}
"""
PRODUCT = """
program product(%x: f32[N,H] arg "x", %w: f32[H,H] param "w") {
  %y = matmul(%x, %w)                            : f32[N,H]
  return %y
}
"""


@dataclass(frozen=True)
class Row:
    """One program: the largest error against float64, relative to the largest number of a result,
    and the milliseconds of a call."""

    name: str
    sizes: dict[str, int]
    error: float
    milliseconds: float
    kernels: int
    waiting: int


def inputs(program: Program, sizes: Mapping[str, int]) -> list[np.ndarray]:
    """Random floats, so small that products of matrices stay about 1; zeros for the rest."""
    rng, out = np.random.default_rng(0), []
    for i in program.inputs:
        shape, dtype = i.value.type.concrete(sizes), i.value.type.dtype
        scale = 1 / np.sqrt(shape[0]) if i.kind == "param" and len(shape) > 1 else 1.0
        floats = rng.normal(size=shape) * scale if dtype.kind == "f" else np.zeros(shape)
        out.append(np.asarray(floats).astype(dtype.numpy))
    return out


def in_float64(program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the program computes with f64 in the place of f32."""
    wide = ir.verify(ir.parse(str(program).replace("f32", "f64")))
    given = [a.astype("f8") if a.dtype == np.float32 else a for a in arrays]
    return list(ir.evaluate(wide, given)[0])


class OnDevice:
    """A program with its tensors on the GPU."""

    def __init__(
        self, program: Program, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]
    ) -> None:
        found = executor.compile(program, backend="gpu")
        assert isinstance(found, executor.Executable), "a program in segments"
        self.run, self.gpu = found, driver()
        self.given = [sizes[n] for n in found.sizes]
        self.inputs = [self.block(a.nbytes) for a in arrays]
        for block, a in zip(self.inputs, arrays):
            self.gpu.upload(block.address, a.ctypes.data, a.nbytes)
        bounds = found.bounds(self.given)
        types = [v.type.dtype for v in program.outputs]
        self.outputs = [self.block((n or 0) * t.size) for n, t in zip(bounds, types)]

    def block(self, size: int) -> DeviceBlock:
        return self.gpu.allocate(size)

    def __call__(self) -> None:
        inputs, outputs = ([b.address for b in q] for q in (self.inputs, self.outputs))
        self.run.run(self.given, inputs, outputs)

    def results(self, sizes: Mapping[str, int]) -> list[np.ndarray | None]:
        """A result that is an input's memory is None."""
        out: list[np.ndarray | None] = []
        for v, block in zip(self.run.program.outputs, self.outputs):
            if isinstance(v, Slot):
                out.append(None)
                continue
            a = np.empty([evaluate_dim(d, sizes) for d in v.type.shape], v.type.dtype.numpy)
            self.gpu.download(a.ctypes.data, block.address, a.nbytes)
            out.append(a)
        self.gpu.synchronize()
        return out


def measured(program: Program, sizes: Mapping[str, int]) -> Row:
    arrays = inputs(program, sizes)
    want = in_float64(program, arrays)
    call = OnDevice(program, arrays, sizes)
    call()
    pairs = [(g, w) for g, w in zip(call.results(sizes), want) if g is not None and g.size]
    errors = [float(abs(g - w).max() / max(abs(w).max(), 1e-30)) for g, w in pairs]
    times = []
    for _ in range(REPEAT):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    stages = call.run.native.report.splitlines()
    kernels = [q for q in stages if not q.startswith(" ")]
    waiting = sum("stays on the device" in q for q in kernels)
    own = {n: sizes[n] for n in program.sizes}
    return Row(
        program.name, own, max(errors, default=0.0), statistics.median(times), len(kernels), waiting
    )


def programs(files: Sequence[str]) -> list[Program]:
    own = [ir.verify(ir.parse(t)) for t in (NEURON, RECURRENT, SOFTMAX, PRODUCT)]
    return [*own, *(dy2st.load(f).program for f in files)]


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--json")
    parser.add_argument("--sizes", default="T=256,N=65536,B=64,H=256")
    given = parser.parse_args(arguments)
    sizes = {n: int(k) for n, _, k in (q.partition("=") for q in given.sizes.split(","))}
    gpu = driver()
    device = f"{gpu.name}, {gpu.architecture}, {gpu.multiprocessors} multiprocessors"
    print(f"{device}, NVRTC {compiler().version}, {datetime.date.today()}\n")
    print("| program | sizes | error against float64 | ms | kernels | that wait |")
    print("|---|---|---:|---:|---:|---:|")
    rows = []
    for program in programs(given.files):
        row = measured(program, {**dict.fromkeys(program.sizes, 8), **sizes})
        rows.append(row)
        text = ", ".join(f"{n} = {k}" for n, k in row.sizes.items())
        print(
            f"| {row.name} | {text} | {row.error:.1e} | {row.milliseconds:.3f} | {row.kernels} | "
            f"{row.waiting} |",
            flush=True,
        )
    if given.json:
        with open(given.json, "w") as f:
            json.dump({"device": device, "rows": [asdict(r) for r in rows]}, f, indent=1)
    return rows


if __name__ == "__main__":
    main()
