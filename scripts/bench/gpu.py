"""Checks and times programs on the first GPU; needs no Paddle.

    python -m scripts.bench.gpu --json FILE [--seconds 540] [--only check] [SAVED PROGRAM ...]

Every part runs in a process of its own, with a time limit: a kernel that crashes or does not end
costs its own part. The file is written anew after each part, and is whole at any time. Parts come
in the order of their weight, and none begins after `--seconds`: what the device does (copies,
launches, barriers); each program, checked at a small size, timed on tensors that lie on the GPU,
and compared with the interpreter; the same computations by PyTorch, cuDNN, Triton and JAX where
they are installed and right; lower precisions of products; the examples of every op; how many of a
million barriers leave a word stale; checks under compute-sanitizer.

Needs NumPy, the CUDA driver and NVRTC. Exit code 1 if anything differs or does not end. With the
stand-ins of the tests in the environment (`tests/executor/gpu/emulator`) the times mean nothing.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from unittest import mock

if importlib.util.find_spec("llvmlite") is None:  # the CPU's backend is imported, and not used
    sys.modules["llvmlite"] = sys.modules["llvmlite.binding"] = mock.MagicMock()

from executor.gpu.backend import precision  # noqa: E402
from scripts.bench import gpu_measure, gpu_programs  # noqa: E402
from scripts.bench.gpu_measure import TOOLS, Record, Scale  # noqa: E402

#: programs whose peers come before everything that matters less
FIRST = ("neuron", "lstm", "decode")
#: programs with products that tensor cores may take
PRODUCTS = ("lstm", "recurrent", "product", "convolution", "steps")
#: seconds that are not worth the start of a process
LEAST = 3.0
REPEAT, ELEMENTS, ROUNDS, SOAKED = 20, 1 << 28, 10_000, 1_000_000


@dataclass(frozen=True)
class Part:
    """`limit`: its seconds. `alone`: whether what it measures needs the device for itself."""

    name: str
    limit: float
    alone: bool = True


def parts(files: Sequence[str], own: str, timed: bool) -> list[Part]:
    """In the order of their weight."""
    programs = [Part(f"program {n} {own}", 60) for n in gpu_programs.NAMES]
    programs += [Part(f"saved {f} {own}", 60) for f in files]
    count = len(gpu_programs.rows())
    ops = [Part(f"ops {k}", 60, alone=False) for k in range(count)]
    if not timed:
        return [Part("device", 60), *programs, *ops]
    others = [n for n in gpu_programs.NAMES if n not in FIRST]
    lower = [p for p in gpu_measure.PROGRAMS if p not in ("float32", own)]
    return [
        Part("device", 60),
        *programs,
        *(Part(f"peers {n} {own}", 60) for n in FIRST),
        *ops,
        *(Part(f"program {n} {p}", 60) for p in lower for n in PRODUCTS),
        Part("soak", 30),
        *(Part(f"peers {n} {own}", 60) for n in others),
        *(Part(f"sanitize {t}", 90) for t in TOOLS),
    ]


# ---------------------------------------------------------------- processes
def command(part: str, rest: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "scripts.bench.gpu", "--part", part, *rest]


def outcome(command: Sequence[str], limit: float) -> Record:
    """Return the JSON lines that a process prints; `failed` says why it has not come to its end."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)
        why = ""
        try:
            if code := process.wait(limit):
                why = f"exit code {code}"
        except subprocess.TimeoutExpired:
            why = f"no end after {limit:.0f} s"
        finally:
            end(process)
        found: Record = {}
        for line in read_back(out).splitlines():
            try:
                found = merged(found, json.loads(line))
            except (ValueError, TypeError, AttributeError):
                continue  # a part that was killed while it wrote, or what a library prints
        if why:
            found["failed"] = f"{why}: {read_back(err).strip()[-400:]}"
        return found


def merged(found: Record, new: Record) -> Record:
    """`right` is what all say."""
    both = [q["right"] for q in (found, new) if "right" in q]
    return {**found, **new, **({"right": all(both)} if both else {})}


def read_back(file: Any) -> str:
    file.seek(0)
    return str(file.read(), errors="replace")


def end(process: subprocess.Popen[bytes]) -> None:
    """With all that it has started. One that the kernel does not let go is left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        return


def supervise(
    todo: Sequence[Part], start: Callable[[str, float], Record], seconds: float, workers: int
) -> Iterator[tuple[Part, Record]]:
    """Each part with what it has found, until the time is over; those that need no device for
    themselves run beside each other."""
    until = time.monotonic() + seconds

    def one(part: Part) -> Record:
        left = min(part.limit, until - time.monotonic())
        if left < LEAST:
            return {"failed": "no time was left"}
        begun = time.monotonic()
        try:
            found = start(part.name, left)
        except Exception as e:
            found = {"failed": f"{type(e).__name__}: {e}"}
        return {**found, "seconds": round(time.monotonic() - begun, 1)}

    for alone, group in groupby(todo, lambda p: p.alone):
        if alone:
            yield from ((part, one(part)) for part in group)
            continue
        with ThreadPoolExecutor(workers) as pool:
            yield from pool.map(lambda p: (p, one(p)), group)


# ---------------------------------------------------------------- the whole
def save(path: Path, record: Record) -> None:
    """In one step: a reader never sees a half."""
    new = path.with_name(path.name + ".new")
    new.write_text(json.dumps(record, indent=1))
    new.replace(path)


def line(part: Part, found: Record) -> str:
    """A row of the table, or what a part that is none has found."""
    if "error" in found and "call" in found:
        sizes = ", ".join(f"{n} = {k}" for n, k in found["sizes"].items())
        return (
            f"| {found['name']} ({found['precision']}) | {sizes} | {found['error']:.1e} | "
            f"{found['device']:.3f} | {found['call']:.3f} | {found['host']:.3f} | "
            f"{found['kernels']} | {found['waiting']} |"
            + ("" if found["right"] else " WRONG")
            + (f" FAILED, {found['failed']}" if "failed" in found else "")
        )
    text = ", ".join(f"{k} {v}" for k, v in found.items() if k != "failed")
    text = f"{part.name}: {text}" + ("" if found.get("right", True) else " WRONG")
    return text + (f" FAILED, {found['failed']}" if "failed" in found else "")


def ratios(found: dict[str, Record]) -> Iterator[Record]:
    """Of each program: milliseconds, those in which a copy moves the bytes of its inputs and
    results, and how much longer each peer takes."""
    copy = found.get("device", {}).get("copy")
    for q in found.values():
        if "device" not in q or "bytes" not in q:
            continue
        peers = found.get(f"peers {q['name']} {q['precision']}", {}).get("peers", {})
        beside = {n: round(t / q["device"], 2) for n, t in peers.items() if isinstance(t, float)}
        floor = None if copy is None else round(1e3 * q["bytes"] / copy, 4)
        yield {"program": f"{q['name']} ({q['precision']})", "ms": q["device"], "floor": floor,
               "peers": beside}  # fmt: skip


def is_bad(found: Record) -> bool:
    return "failed" in found or not found.get("right", True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--sizes", default="")
    parser.add_argument("--only", choices=["check"], help="small sizes, without times")
    parser.add_argument("--part", help="one part, in this process")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    sizes = gpu_programs.SMALL if given.only else gpu_programs.SIZES
    scale = Scale(
        gpu_programs.read(sizes) | gpu_programs.read(given.sizes),
        REPEAT, ELEMENTS, ROUNDS, SOAKED, not given.only, given.folder,
    )  # fmt: skip
    if given.part is not None:
        right = True
        for found in gpu_measure.records(given.part, scale):
            right &= bool(found.get("right", True))
            print(json.dumps(found), flush=True)
        return 0 if right or given.part != "small" else 1
    rest = ["--sizes", given.sizes, *(["--only", "check"] if given.only else [])]
    with tempfile.TemporaryDirectory() as folder:
        rest += ["--folder", folder]
        workers = min(8, os.cpu_count() or 1)
        todo = parts(given.files, precision(), not given.only)
        start = lambda part, limit: outcome(command(part, rest), limit)  # noqa: E731
        return report(supervise(todo, start, given.seconds, workers), given.json)


def report(found: Iterator[tuple[Part, Record]], path: Path | None) -> int:
    """Print and save what is found as it comes; 1 if anything is wrong."""
    record: Record = {"date": str(datetime.date.today()), "precision": precision(), "parts": {}}
    print("| program | sizes | error | ms | ms with the host | ms of the host alone | kernels | "
          "that wait |\n|---|---|---:|---:|---:|---:|---:|---:|", flush=True)  # fmt: skip
    bad = False
    for part, result in found:
        record["parts"][part.name] = result
        record["ratios"] = list(ratios(record["parts"]))
        bad |= is_bad(result)
        if path is not None:
            save(path, record)
        print(line(part, result), flush=True)
    print("\n| program | ms | floor of its bytes | peers, times as long |\n|---|---:|---:|---|")
    for q in record.get("ratios", []):
        beside = ", ".join(f"{n} {r}" for n, r in q["peers"].items()) or "–"
        print(f"| {q['program']} | {q['ms']:.3f} | {q['floor']} | {beside} |")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
