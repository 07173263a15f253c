"""A GPU that is not there: stand-ins for the CUDA driver and NVRTC that run kernels on fibers.

`installed` builds them with the C++ compiler of the host (g++, clang++, or the one of the package
ziglang) and names them in the environment, before anything else asks for a GPU.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path

HERE = Path(__file__).parent
SHIM, RUNTIME, BLAS = HERE / "shim.h", HERE / "runtime.cpp", HERE / "blas.h"
FLAGS = ["-std=c++17", "-fPIC", "-shared", "-w", "-ffp-contract=off", "-fwrapv"]
#: what `counted` counts
KERNELS, COOPERATIVE, GRAPHS, SYNCHRONISATIONS, ALLOCATIONS, COPIES = range(6)


@cache
def compiler() -> list[str] | None:
    """The command of a C++ compiler."""
    for name in ("g++", "clang++"):
        if shutil.which(name):
            return [name]
    zig = [sys.executable, "-m", "ziglang", "c++"]
    found = subprocess.run([*zig, "--version"], capture_output=True).returncode == 0
    return zig if found else None


@cache
def folder() -> Path:
    """Compiled code, kept between runs."""
    path = Path(tempfile.gettempdir()) / f"dy2st-emulator-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def version() -> int:
    text = "".join(p.read_text() for p in (SHIM, RUNTIME, BLAS)).encode() + str(compiler()).encode()
    return int.from_bytes(blake2b(text, digest_size=3).digest(), "big")


@cache
def library() -> ctypes.CDLL:
    """The stand-ins, in the environment of this process from here on."""
    command = compiler()
    assert command is not None
    path = folder() / f"runtime-{version()}.so"
    with open(folder() / "lock", "w") as file:  # the workers of a test run begin at once
        fcntl.flock(file, fcntl.LOCK_EX)
        if not path.exists():
            new = path.with_suffix(".new")
            build = [*command, *FLAGS, "-O1", "-o", str(new), str(RUNTIME), "-ldl"]
            subprocess.run(build, check=True)
            new.replace(path)
    # a kernel needs the runtime only; linking the C++ library takes longer than compiling
    bare = ["-O0", "-nostdlib", "-include", str(SHIM), "-Wl,--no-as-needed", str(path)]
    os.environ.update(
        DY2ST_CUDA_LIBRARY=str(path),
        DY2ST_NVRTC_LIBRARY=str(path),
        DY2ST_CUBLASLT_LIBRARY="",
        EMULATOR_COMPILER=" ".join([*command, *FLAGS, *bare]),
        EMULATOR_VERSION=str(version()),
    )
    os.environ.setdefault("DY2ST_CACHE", str(folder()))
    made = ctypes.CDLL(str(path))
    made.emu_count.restype = ctypes.c_uint64
    return made


@contextmanager
def seeded(seed: str) -> Iterator[None]:
    """Another order of the threads."""
    before = os.environ.get("EMULATOR_SEED", "1")
    os.environ["EMULATOR_SEED"] = seed
    try:
        yield
    finally:
        os.environ["EMULATOR_SEED"] = before


def counted() -> list[int]:
    """How many there were in this process of each."""
    return [library().emu_count(k) for k in range(6)]
