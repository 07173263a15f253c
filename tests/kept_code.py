"""Machine code that earlier runs have made, and the other workers of this one.

Three tenths of a run are LLVM's. The code of a text is in a file that is named after the text and
all else that it depends on; `pytest --cache-clear` removes them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from executor.cpu import jit
from executor.cpu.target import Target

MOST_BYTES = 256 << 20


def digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=20).digest()


class KeptCode:
    """`jit.machine_code`, with the files of `folder` for what has been made before."""

    def __init__(self, folder: Path, make: Callable[[str, Target, int], bytes]) -> None:
        self.folder, self.make = folder, make
        compiler = Path(jit.__file__).read_text()
        self.versions = f"{llvmlite.__version__} {llvm.llvm_version_info} {compiler}"

    def __call__(self, text: str, target: Target, level: int) -> bytes:
        key = "\0".join([text, repr(target), str(level), self.versions])
        path = self.folder / digest(key.encode()).hex()
        return self.read(path) or self.write(path, self.make(text, target, level))

    def read(self, path: Path) -> bytes | None:
        """None, too, for a file that is not as it was written."""
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        return data[20:] if digest(data[20:]) == data[:20] else None

    def write(self, path: Path, code: bytes) -> bytes:
        """In one step, for other threads and workers."""
        new = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
        new.write_bytes(digest(code) + code)
        new.replace(path)
        return code


def shrink(folder: Path, most: int = MOST_BYTES) -> None:
    """Remove what has not been used for the longest time."""
    files = [(q.stat().st_mtime, q.stat().st_size, q) for q in folder.iterdir() if not q.suffix]
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= most:
            return
        path.unlink(missing_ok=True)
        total -= size
