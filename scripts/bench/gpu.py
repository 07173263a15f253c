"""Checks and times programs on the first GPU; needs no Paddle.

    python -m scripts.bench.gpu [--json FILE] [--sizes T=64,B=16] [--only check] [SAVED PROGRAM ...]

First what the device does: copies, launches, barriers, and how many of a million barriers leave a
word stale. Then the examples of every op, and each program, compared with the interpreter; each
program timed on tensors that lie on the GPU, next to PyTorch, cuDNN, Triton and JAX where they are
installed and their results are right; last
the checks under compute-sanitizer. Needs NumPy, llvmlite, the CUDA driver and NVRTC. Exit code 1 if
anything differs. With the stand-ins of the tests in the environment (`tests/executor/gpu/emulator`)
the times mean nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

import dy2st
import executor
import ir
from executor.gpu.backend import precision
from executor.gpu.driver import DeviceBlock, driver
from executor.gpu.nvrtc import compiler
from ir import Program, Slot
from ir.types import evaluate_dim
from scripts.bench import gpu_programs
from scripts.bench.gpu_device import Ceilings, Events, Probe
from scripts.bench.gpu_peers import peers

REPEAT, ELEMENTS, ROUNDS, SOAKED = 20, 1 << 28, 10_000, 1_000_000
#: the largest error of an op, relative to the largest number of a result
ROWS = 2e-5
#: of a program, by the precision of products
PROGRAMS = {"float32": 1e-4, "tensorfloat32": 1e-2, "bfloat16": 1e-1}
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")


@dataclass(frozen=True)
class Row:
    """One program: the largest error, relative to the largest number of a result, or the share of
    wrong elements where it must be exact; milliseconds of a call with the host, and of the device
    alone; the peers' times."""

    name: str
    sizes: dict[str, int]
    error: float
    call: float
    device: float
    kernels: int
    waiting: int
    peers: dict[str, float | str] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        return self.error <= (0 if self.name in gpu_programs.EXACT else PROGRAMS[precision()])

    def __str__(self) -> str:
        sizes = ", ".join(f"{n} = {k}" for n, k in self.sizes.items())
        found = "; ".join(
            f"{n} {t}" if isinstance(t, str) else f"{n} {t:.3f} ({t / self.device:.2f} x)"
            for n, t in self.peers.items()
        )
        return (
            f"| {self.name} | {sizes} | {self.error:.1e} | {self.device:.3f} | {self.call:.3f} | "
            f"{self.kernels} | {self.waiting} | {found} |"
        )


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

    def device_time(self, repeat: int) -> float:
        """Milliseconds of the kernels of a call."""
        (run,), events = self.run.native.runs, Events(self.gpu)
        launch, taken = run.graph.launch, []
        run.graph.launch = lambda q: taken.append(events.milliseconds(lambda: launch(q)))
        for _ in range(repeat):
            self()
        run.graph.launch = launch
        return statistics.median(taken)


def error(got: Sequence[np.ndarray | None], want: Sequence[np.ndarray], exact: bool) -> float:
    pairs = [(g, w) for g, w in zip(got, want, strict=True) if g is not None and g.size]
    if exact:
        return max((float((g != w).mean()) for g, w in pairs), default=0.0)
    return max((_error(g, w) for g, w in pairs), default=0.0)


def _error(g: np.ndarray, w: np.ndarray) -> float:
    if w.dtype.kind != "f":
        return float((g != w).any())
    same = (g == w) | (np.isnan(g) & np.isnan(w))
    size = max(float(np.abs(w[np.isfinite(w)]).max(initial=0)), 1e-30)
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0, np.abs(g - w)) / size
    return float(np.nan_to_num(apart, nan=np.inf).max())


def measured(program: Program, sizes: Mapping[str, int], time_it: bool) -> Row:
    arrays = gpu_programs.inputs(program, sizes)
    call = OnDevice(program, arrays, sizes)
    call()
    want, exact = gpu_programs.reference(program, arrays), program.name in gpu_programs.EXACT
    apart = error(call.results(sizes), want, exact)
    took, device, others = 0.0, 0.0, {}
    if time_it:
        took, device = median(call), call.device_time(REPEAT)
        own = any(f"program {program.name}(" in t for t in gpu_programs.TEXTS)
        others = dict(peers(program.name, arrays, want[0], precision(), REPEAT)) if own else {}
    stages = [q for q in call.run.native.report.splitlines() if not q.startswith(" ")]
    waiting = sum("stays on the device" in q for q in stages)
    named = {n: sizes[n] for n in program.sizes}
    return Row(program.name, named, apart, took, device, len(stages), waiting, others)


def median(call: Callable[[], None]) -> float:
    times = []
    for _ in range(REPEAT):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def wrong_rows() -> dict[str, float]:
    """The errors of the examples of ops, those that are too large."""
    found = {}
    for program, arrays in gpu_programs.rows():
        got = executor.compile(program, backend="gpu")(*[a.copy() for a in arrays])
        apart = error(got, ir.evaluate(program, arrays)[0], False)
        if not apart <= ROWS:
            found[program.name] = apart
    return found


def sanitized() -> dict[str, str]:
    """What each tool of compute-sanitizer says of the checks at small sizes."""
    path, found = shutil.which("compute-sanitizer"), {}
    again = [sys.executable, "-m", "scripts.bench.gpu", "--only", "check"]
    for tool in TOOLS if path else ():
        command = [str(path), "--tool", tool, "--error-exitcode", "9", *again]
        done = subprocess.run(command, capture_output=True, text=True)
        last = (done.stdout.strip().splitlines() or [""])[-1]
        found[tool] = "clean" if done.returncode == 0 else f"code {done.returncode}: {last}"
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--json")
    parser.add_argument("--sizes", default="")
    parser.add_argument("--only", choices=["check"], help="small sizes, without times")
    given = parser.parse_args(arguments)
    sizes = read(gpu_programs.SMALL if given.only else gpu_programs.SIZES) | read(given.sizes)
    gpu = driver()
    device = f"{gpu.name}, {gpu.architecture}, {gpu.multiprocessors} multiprocessors"
    print(f"{device}, NVRTC {compiler().version}, products of {precision()}, "
          f"{datetime.date.today()}\n", flush=True)  # fmt: skip
    ceilings = None if given.only else ceiling()
    rows = wrong_rows()
    print(f"ops with a large error: {rows or 'none'}\n", flush=True)
    print("| program | sizes | error | ms | ms with the host | kernels | that wait | peers, ms |")
    print("|---|---|---:|---:|---:|---:|---:|---|", flush=True)
    table = []
    for program in [
        *gpu_programs.programs(sizes),
        *(dy2st.load(f).program for f in given.files),
    ]:
        own = {**dict.fromkeys(program.sizes, 8), **sizes}
        table.append(measured(program, own, not given.only))
        print(table[-1], flush=True)
    tools = {} if given.only else sanitized()
    print("\n".join(f"compute-sanitizer {n}: {t}" for n, t in tools.items()))
    if given.json:
        save(given.json, device, ceilings, rows, table, tools)
    bad = rows or any(not r.is_right for r in table) or (ceilings and ceilings.stale)
    return int(bool(bad) or any(t != "clean" for t in tools.values()))


def read(text: str) -> dict[str, int]:
    return {n: int(k) for n, _, k in (q.partition("=") for q in text.split(",") if q)}


def ceiling() -> Ceilings:
    found = Probe(driver()).ceilings(ELEMENTS, ROUNDS, SOAKED)
    print(
        f"copy {found.copy / 1e12:.2f} TB/s, launch in a graph {found.launch:.2f} us, barrier "
        f"{found.barrier:.2f} us, {found.stale} stale words in {found.soaked} barriers\n",
        flush=True,
    )
    return found


def save(
    path: str, device: str, ceilings: Ceilings | None, rows: Mapping[str, float],
    table: Sequence[Row], tools: Mapping[str, str],
) -> None:  # fmt: skip
    record = {
        "device": device,
        "date": str(datetime.date.today()),
        "nvrtc": compiler().version,
        "precision": precision(),
        "ceilings": None if ceilings is None else asdict(ceilings),
        "ops with a large error": dict(rows),
        "programs": [asdict(r) for r in table],
        "compute-sanitizer": dict(tools),
    }
    Path(path).write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    sys.exit(main())
