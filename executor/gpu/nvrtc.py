"""NVRTC by ctypes: compilation of CUDA C++ text.

`DY2ST_NVRTC_LIBRARY` names the library; else that of a package is taken (`pip install
nvidia-cuda-nvrtc-cu12`), or the system's.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from executor import code_cache
from executor.gpu.driver import DriverError

OPTIONS = ("--std=c++17", "--fmad=false", "--prec-div=true", "--prec-sqrt=true", "--ftz=false")
PACKAGES = ("nvidia/cu13/lib/libnvrtc.so.1?", "nvidia/cuda_nvrtc/lib/libnvrtc.so.1?")
SYSTEM = ("libnvrtc.so.13", "libnvrtc.so.12")


class Compiler:
    def __init__(self, path: str) -> None:
        for builtins in sorted(glob.glob(os.path.join(os.path.dirname(path), "libnvrtc-b*.so.*"))):
            ctypes.CDLL(builtins, mode=ctypes.RTLD_GLOBAL)  # NVRTC 13.0 does not find it itself
        self.library = ctypes.CDLL(path)
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        if code:
            text = self.library.nvrtcGetErrorString(code) or b""
            raise DriverError(f"{name}: {text.decode()}")

    @cached_property
    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def compile(self, text: str, architecture: str, options: tuple[str, ...] = OPTIONS) -> bytes:
        """Machine code for `architecture`. Raises DriverError with the compiler's words."""
        return self.compiled(text, architecture, options)[0]

    def compiled(
        self, text: str, architecture: str, options: tuple[str, ...] = OPTIONS
    ) -> tuple[bytes, str]:
        """Machine code, and what the compiler says."""
        program = ctypes.c_void_p()
        name = b"program.cu"
        create = (ctypes.byref(program), text.encode(), name, 0, None, None)
        self.call("nvrtcCreateProgram", *create)
        flags = [f.encode() for f in (f"--gpu-architecture={architecture}", *options)]
        try:
            given = (ctypes.c_char_p * len(flags))(*flags)
            failed = self.library.nvrtcCompileProgram(program, len(flags), given)
            log = self._part(program, "ProgramLog").rstrip(b"\0").decode()
            if failed and "gpu-architecture" in log:
                text = f"NVRTC {self.version} knows no {architecture}, which this GPU is"
                raise DriverError(f'device="gpu": {text}: install a newer NVRTC')
            if failed:
                raise DriverError(f"a kernel cannot be compiled: {log}")
            return self._part(program, "CUBIN"), log
        finally:
            self.call("nvrtcDestroyProgram", ctypes.byref(program))

    def _part(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        out = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, out)
        return out.raw


_COMPILERS: dict[str, Compiler] = {}
_LOCK = threading.Lock()


def compiler() -> Compiler:
    """Raises DriverError where there is no NVRTC."""
    named = os.environ.get("DY2ST_NVRTC_LIBRARY")
    found = first_of([named]) if named else first_of(installed())
    if found is None:
        what = f"{named} cannot be opened" if named else "pip install nvidia-cuda-nvrtc-cu12"
        raise DriverError(f'device="gpu" needs the library NVRTC: {what}')
    return found


def first_of(paths: Iterable[str]) -> Compiler | None:
    """The first library that can be opened."""
    with _LOCK:
        for path in paths:
            with contextlib.suppress(OSError):
                if path not in _COMPILERS:
                    _COMPILERS[path] = Compiler(path)
                return _COMPILERS[path]
    return None


def installed() -> Iterator[str]:
    """Yield the paths where NVRTC may be: in a package, or the system's."""
    for folder in sys.path:
        for pattern in PACKAGES:
            yield from sorted(glob.glob(os.path.join(folder, pattern)), reverse=True)
    yield from SYSTEM


# ---------------------------------------------------------------- of the cache
def machine_code(text: str, architecture: str) -> bytes:
    """Like `Compiler.compile`, with a cache of compiled texts."""
    made = compiler()
    key = (text, architecture, made.version, *OPTIONS)
    return code_cache.machine_code(key, lambda: made.compile(text, architecture))
