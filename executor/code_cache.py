"""Machine code on disk, shared with earlier and concurrent processes.

The code of a text is in a file of a private folder. The file is named after the text and all else
that the code depends on, and begins with a digest of the code.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

#: bytes of the folder, beyond which the files that were not used for the longest time go
MOST_BYTES = 256 << 20
#: one of so many files leads to a look at the whole folder
INTERVAL = 64

_DIGEST_BYTES = 20


def machine_code(key: tuple[str, ...], compile: Callable[[], bytes]) -> bytes:
    """Return the machine code for `key`, from the cache or by `compile`, whose result depends on
    `key` alone."""
    folder = _private(cache_folder())
    if folder is None:
        return compile()
    name = _digest("\0".join(key).encode()).hex()
    path = folder / f"{name}.code"
    code = _read(path)
    if code is None:
        code = compile()
        _write(path, code)
    return code


def cache_folder() -> Path | None:
    """`DY2ST_CACHE`, or a folder of the user; None where the variable is empty."""
    named = os.environ.get("DY2ST_CACHE")
    if named is not None:
        return Path(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # a user without a home
        return (Path(base) if base else Path.home() / ".cache") / "dy2st"
    return None


def _private(folder: Path | None) -> Path | None:
    """The folder, if it is there and nobody else can write it."""
    if folder is None:
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except OSError:
        return None
    return folder if about.st_uid == os.getuid() and not about.st_mode & 0o022 else None


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _read(path: Path) -> bytes | None:
    """None, too, for a file that is not as it was written."""
    try:
        data = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    code = data[_DIGEST_BYTES:]
    return code if _digest(code) == data[:_DIGEST_BYTES] else None


def _write(path: Path, code: bytes) -> None:
    """In one step, for other processes; a full disk is no error."""
    new = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    try:
        new.write_bytes(_digest(code) + code)
        new.replace(path)
        if _digest(code)[0] % INTERVAL == 0:
            _shrink(path.parent)
    except OSError:
        new.unlink(missing_ok=True)


def _shrink(folder: Path) -> None:
    with os.scandir(folder) as entries:
        files = [(about.st_mtime, about.st_size, f.path) for f in entries if (about := f.stat())]
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= MOST_BYTES:
            return
        os.unlink(path)
        total -= size
