"""The parts of the benchmark of a GPU: what each checks and measures, in a process of its own.

A part yields what it knows as soon as it knows it, so that a time is there although a later check
does not come to its end.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import dy2st
import executor
import ir
from executor.gpu.driver import DeviceBlock, driver
from executor.gpu.nvrtc import compiler
from executor.gpu.runtime import on_stream
from ir import Program, Slot
from ir.types import evaluate_dim
from scripts.bench import gpu_programs
from scripts.bench.gpu_device import Events, Probe
from scripts.bench.gpu_peers import peers

#: the largest error of an op, relative to the largest number of a result
ROWS = 2e-5
#: of a program, by the precision of products
PROGRAMS = {"float32": 1e-4, "tensorfloat32": 1e-2, "bfloat16": 1e-1}
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")

Record = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """How large everything is; `folder`: where parts leave what a later one needs."""

    sizes: Mapping[str, int]
    repeat: int
    elements: int
    rounds: int
    soaked: int
    timed: bool = True
    folder: Path | None = None


class OnDevice:
    """A program with its tensors on the GPU."""

    def __init__(
        self,
        program: Program,
        arrays: Sequence[np.ndarray],
        sizes: Mapping[str, int],
        precision: str,
    ) -> None:
        found = executor.compile(program, backend="gpu", matmul_precision=precision)
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
        """Milliseconds of the kernels of a call, and of products by a library."""
        native, events = self.run.native, Events(self.gpu)
        launch, taken = native.launch, []
        native.launch = lambda *q: taken.append(events.milliseconds(lambda: launch(*q)))
        for _ in range(repeat):
            self()
        native.launch = launch
        return statistics.median(taken)

    def host_time(self, repeat: int) -> float:
        """Milliseconds of a call that is work of a stream, and is not waited for."""
        taken = []
        with on_stream(self.gpu.stream.value or 0):
            for _ in range(repeat):
                start = time.perf_counter()
                self()
                taken.append(1e3 * (time.perf_counter() - start))
                self.gpu.synchronize()
        return statistics.median(taken)


# ---------------------------------------------------------------- errors
def error(got: Sequence[np.ndarray | None], want: Sequence[np.ndarray], exact: bool) -> float:
    """The largest, relative to the largest number of a result, or the share of wrong elements where
    a result must be exact."""
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


def most(name: str, precision: str) -> float:
    return 0 if name in gpu_programs.EXACT else PROGRAMS[precision]


# ---------------------------------------------------------------- parts
def records(part: str, scale: Scale) -> Iterator[Record]:
    """Yield the results of a part; `right` is False for a wrong one."""
    kind, *words = part.split()
    yield from PARTS[kind](scale, *words)


def device(scale: Scale) -> Iterator[Record]:
    gpu = driver()
    yield {
        "device": f"{gpu.name}, {gpu.architecture}, {gpu.multiprocessors} multiprocessors",
        "nvrtc": compiler().version,
    }
    if scale.timed:
        yield asdict(Probe(gpu).ceilings(scale.elements, scale.rounds))


def soak(scale: Scale) -> Iterator[Record]:
    """Barriers that leave a word stale."""
    stale = Probe(driver()).soak(scale.soaked)
    yield {"rounds": scale.soaked, "stale": stale, "right": stale == 0}


def ops(scale: Scale, number: str) -> Iterator[Record]:
    """The examples of some ops."""
    program, arrays = gpu_programs.rows()[int(number)]
    got = executor.compile(program, backend="gpu")(*[a.copy() for a in arrays])
    apart = error(got, ir.evaluate(program, arrays)[0], False)
    yield {"ops": program.name, "error": apart, "right": apart <= ROWS}


def program(scale: Scale, name: str, precision: str) -> Iterator[Record]:
    small = gpu_programs.read(gpu_programs.SMALL)
    yield from _checked(gpu_programs.named(name, small), small, precision, "small error")
    if scale.timed:
        yield from measured(gpu_programs.named(name, scale.sizes), scale, precision)


def saved(scale: Scale, path: str, precision: str) -> Iterator[Record]:
    """A file: its program takes the sizes of the benchmark, or 8."""
    found = dy2st.load(path, device="gpu").program
    own = {**dict.fromkeys(found.sizes, 8), **scale.sizes}
    if not scale.timed:
        yield from _checked(found, own, precision, "small error")
        return
    yield from measured(found, replace(scale, sizes=own, folder=None), precision)


def _checked(
    program: Program, sizes: Mapping[str, int], precision: str, what: str
) -> Iterator[Record]:
    arrays = gpu_programs.inputs(program, sizes)
    call = OnDevice(program, arrays, sizes, precision)
    call()
    want = gpu_programs.reference(program, arrays)
    apart = error(call.results(sizes), want, program.name in gpu_programs.EXACT)
    yield {what: apart, "right": apart <= most(program.name, precision)}


def measured(program: Program, scale: Scale, precision: str) -> Iterator[Record]:
    sizes = scale.sizes
    arrays = gpu_programs.inputs(program, sizes)
    start = time.perf_counter()
    call = OnDevice(program, arrays, sizes, precision)
    call()
    stages = [q for q in call.run.native.report.splitlines() if not q.startswith(" ")]
    yield {
        "name": program.name,
        "precision": precision,
        "sizes": {n: sizes[n] for n in program.sizes},
        "bytes": sum(b.size for b in (*call.inputs, *call.outputs)),
        "first call": time.perf_counter() - start,
        "kernels": len(stages),
        "waiting": sum("stays on the device" in q for q in stages),
    }
    results = call.results(sizes)
    yield {
        "call": median(call, scale.repeat),
        "device": call.device_time(scale.repeat),
        "host": call.host_time(scale.repeat),
    }
    want = wanted(program, arrays, scale)
    apart = error(results, want, program.name in gpu_programs.EXACT)
    yield {"error": apart, "right": apart <= most(program.name, precision)}


def wanted(program: Program, arrays: Sequence[np.ndarray], scale: Scale) -> list[np.ndarray]:
    """The right results, which one part leaves for the others."""
    path = None if scale.folder is None else scale.folder / f"{program.name}.npz"
    if path is not None and path.exists():
        with np.load(path) as found:
            return [found[name] for name in found.files]
    want = gpu_programs.reference(program, arrays)
    if path is not None:
        new = path.with_suffix(".new.npz")
        np.savez(new, *want)
        new.replace(path)
    return want


def beside(scale: Scale, name: str, precision: str) -> Iterator[Record]:
    """The peers of a program."""
    program = gpu_programs.named(name, scale.sizes)
    arrays = gpu_programs.inputs(program, scale.sizes)
    want = wanted(program, arrays, scale)[0]
    found: dict[str, float | str] = {}
    for peer, took in peers(name, arrays, want, precision, scale.repeat):
        found[peer] = took
        yield {"peers": dict(found)}


def sanitize(scale: Scale, tool: str) -> Iterator[Record]:
    """Run the programs at small sizes under compute-sanitizer; yield its findings."""
    path = shutil.which("compute-sanitizer")
    if path is None:
        yield {"found": "not installed"}
        return
    again = [sys.executable, "-m", "scripts.bench.gpu", "--part", "small", "--only", "check"]
    command = [path, "--tool", tool, "--error-exitcode", "9", *again]
    done = subprocess.run(command, capture_output=True, text=True)
    last = (done.stdout.strip().splitlines() or [""])[-1]
    yield {"found": last[:300], "right": done.returncode == 0}


def small(scale: Scale) -> Iterator[Record]:
    """All programs at small sizes, in one process."""
    for name in gpu_programs.NAMES:
        yield from program(scale, name, "float32")


def median(call: Callable[[], None], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


PARTS: dict[str, Callable[..., Iterator[Record]]] = {
    "device": device,
    "soak": soak,
    "ops": ops,
    "program": program,
    "saved": saved,
    "peers": beside,
    "sanitize": sanitize,
    "small": small,
}
