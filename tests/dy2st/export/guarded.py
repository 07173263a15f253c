"""Loading and calling files in processes of their own, in memory between pages that none may touch.

Every input, output and arena begins behind a page that cannot be read or written, or ends before
one: an access outside kills the process, and the case that did it is known.
"""

from __future__ import annotations

import builtins
import ctypes
import faulthandler
import math
import mmap
import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import executor.executable
from dy2st.export.limits import FileError
from dy2st.export.load import LoadedProgram, load
from dy2st.export.results import ArrayPart, ItemsPart, ListPart, ResultPart
from executor.allocation import HOST
from ir import Op, Size
from ir.uses import walk

PAGE = mmap.PAGESIZE
#: the most bytes of one buffer; more is a MemoryError
MOST = 1 << 27
#: seconds of the processor for loading, and for a call, which may be a long one
LOADING, CALLING = 2.0, 4.0
CLEAN = (ValueError, TypeError, IndexError, MemoryError, ZeroDivisionError)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


class _Block:
    def __init__(self, address: int) -> None:
        self.address = address


class Pages:
    """Memory in which every buffer is next to a guard page: behind it, or before it if `low`."""

    def __init__(self, low: bool) -> None:
        self.low = low
        self.mapped: list[tuple[int, int]] = []

    def allocate(self, size: int, alignment: int = 64) -> _Block:
        if size > MOST:
            raise MemoryError(f"{size} bytes")
        room = -(-max(size, 1) // PAGE) * PAGE
        start = _libc.mmap(None, room + 2 * PAGE, 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        for guard in (start, start + PAGE + room):
            _libc.mprotect(guard, PAGE, 0)
        self.mapped.append((start, room + 2 * PAGE))
        return _Block(start + PAGE + (0 if self.low else room - -(-size // alignment) * alignment))

    def empty(self, count: int, dtype: Any) -> np.ndarray:
        dtype = np.dtype(dtype)
        size = count * dtype.itemsize
        address = self.allocate(size, dtype.itemsize).address
        memory = (ctypes.c_uint8 * size).from_address(address)
        return np.frombuffer(memory, dtype)

    def copy(self, array: np.ndarray) -> np.ndarray:
        new = self.empty(array.size, array.dtype).reshape(array.shape)
        new[...] = array
        return new

    def release(self) -> None:
        for start, size in self.mapped:
            _libc.munmap(start, size)
        self.mapped.clear()


# ---------------------------------------------------------------- one file
def sizes_of(rng: random.Random, run: LoadedProgram) -> dict[str, int]:
    equal = rng.choice((1, 2, 3, 4, 5))
    return {
        n: equal if rng.random() < 0.5 else rng.choice((0, 1, 2, 3, 7, 16, 65, 1000))
        for n in run.program.sizes
    }


def argument(rng: random.Random, i: Any, sizes: dict[str, int]) -> np.ndarray:
    shape = [max(0, d.evaluate(sizes)) if isinstance(d, Size) else d for d in i.value.type.shape]
    if rng.random() < 0.05:
        shape = [rng.choice((0, 1, 5, d)) for d in shape]
    if math.prod(shape) > 1 << 22:
        raise MemoryError("an argument of the test")
    source = np.random.default_rng(rng.randrange(1 << 30))
    dtype = i.value.type.dtype.numpy
    if dtype.kind == "f":
        return np.asarray(source.normal(size=shape), dtype)
    high = rng.choice((1, 2, 5, 100))
    out = np.asarray(source.integers(0 if dtype.kind in "bu" else -1, high, shape), dtype)
    if dtype == np.int64 and out.size and rng.random() < 0.15:
        out.flat[rng.randrange(out.size)] = rng.choice((-(1 << 63), (1 << 63) - 1, 1 << 40))
    return out


def check(part: ResultPart, value: Any, sizes: dict[str, int]) -> None:
    """A result is of the type that the file declares."""
    if isinstance(part, ArrayPart):
        assert isinstance(value, np.ndarray), type(value)
        assert value.dtype == part.type.dtype.numpy, (value.dtype, part.type)
        if part.type.names <= sizes.keys():
            assert value.shape == part.type.concrete(sizes), (value.shape, part.type)
        np.array(value)
    elif isinstance(part, ItemsPart):
        assert type(value) is part.kind and len(value) == len(part.parts)
        for q, v in zip(part.parts, value.values() if part.kind is dict else value):
            check(q, v, sizes)
    elif isinstance(part, ListPart):
        assert type(value) is list


def call(rng: random.Random, run: LoadedProgram, pages: Pages) -> str:
    sizes = sizes_of(rng, run)
    names = {n.attrs["error"] for n in walk(run.program.ops) if _checks(n)}
    raised = tuple(getattr(builtins, n) for n in names)
    try:
        args = [argument(rng, i, sizes) for i in run.program.inputs if i.kind == "arg"]
        result = run(*map(pages.copy, args))
    except (*CLEAN, *raised, FileError):
        return "error of the call"
    check(run._result, result, {} if run._fixed else run._sizes(args))
    for k, i in enumerate(run.program.inputs):
        if k in run._fixed:
            assert run._fixed[k].shape == i.value.type.shape
            run._fixed[k] = pages.copy(run._fixed[k])
    return "result"


def _checks(node: Any) -> bool:
    return isinstance(node, Op) and node.name == "check"


def attempt(path: Path, seed: int, stage: Callable[[str], None]) -> str:
    """What becomes of a file: refused, an error of the call, or a result."""
    rng = random.Random(seed)
    pages = Pages(rng.random() < 0.25)
    HOST.allocate = pages.allocate  # type: ignore[method-assign, assignment]
    executor.executable.empty = pages.empty
    stage("load")
    start = time.process_time()
    try:
        run = load(path)
    except FileError:
        run = None
    took = time.process_time() - start
    assert took < LOADING, f"loading took {took:.1f} s"
    if run is None:
        return "refused"
    run._fixed = {k: pages.copy(a) for k, a in run._fixed.items()}
    stage("call")
    kinds = [call(rng, run, pages) for _ in range(3)]
    del run
    pages.release()
    return "result" if "result" in kinds else kinds[0]


# ---------------------------------------------------------------- many files
def run_cases(
    make: Callable[[int], bytes], seeds: range, folder: Path, batch: int = 100
) -> Iterator[tuple[int, str]]:
    """The outcome of each seed: see `attempt`, "unfinished" for a long call, or what went wrong
    in capitals."""
    at = seeds.start
    while at < seeds.stop:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(read)
            _work(make, range(at, min(seeds.stop, at + batch)), folder, write)
        os.close(write)
        stage = ""
        with os.fdopen(read) as lines:
            for line in lines:
                kind, text = line.rstrip("\n").split(" ", 1)
                if kind == "stage":
                    stage = text
                    continue
                yield at, text
                at += 1
        _, status = os.waitpid(pid, 0)
        if status:
            yield at, _death(status, stage)
            at += 1


def _death(status: int, stage: str) -> str:
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGPROF:
        return "unfinished" if stage == "call" else f"SLOW {stage}"
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)
    return f"DEATH by {number} in {stage}"


def _work(make: Callable[[int], bytes], seeds: range, folder: Path, write: int) -> None:
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))
    path = folder / f"{os.getpid()}.dy2st"

    def say(kind: str, text: str) -> None:
        os.write(write, f"{kind} {text}\n".encode())

    def stage(name: str) -> None:
        signal.setitimer(signal.ITIMER_PROF, 3 * LOADING if name == "load" else CALLING)
        say("stage", name)

    for seed in seeds:
        stage("make")
        path.write_bytes(make(seed))
        try:
            say("done", attempt(path, seed, stage))
        except BaseException as e:
            text = " ".join(str(e).split())
            say("done", f"WRONG {type(e).__name__}: {text:.300}")
    path.unlink()
    os._exit(0)


def summary(outcomes: Counter[str]) -> str:
    return ", ".join(f"{n} {kind}" for kind, n in outcomes.most_common())


__all__ = ["Pages", "attempt", "run_cases", "summary"]
