"""Atomic creation of a file: it appears whole or not at all, whatever stops the process.

It is written without a name where the system can do that (`O_TMPFILE`), so that a process that is
killed leaves nothing, unless that is in the microseconds in which it takes the place of another
file. There and elsewhere it may leave a hidden file `.<name>.<random>.part`.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A new file, which takes the place of `path` when the block ends without an error."""
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}.part")
    nameless = _nameless(path.parent)
    try:
        with nameless or open(temporary, "xb") as f:
            yield f
            f.flush()
            os.fsync(f.fileno())
            if nameless is not None:
                _name(nameless, path, temporary)
        if nameless is None:
            os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _nameless(folder: Path) -> BinaryIO | None:
    """A file in `folder` without a name, or None where the system has none."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        return open(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o666), "w+b")
    except OSError:
        return None


def _name(f: BinaryIO, path: Path, temporary: Path) -> None:
    """Give a nameless file the name `path`, or that to a copy of it where it cannot be done."""
    folder = os.open(path.parent, os.O_RDONLY)
    nameless = f"/proc/self/fd/{f.fileno()}"
    try:  # the argument makes Python follow the link in /proc
        try:
            os.link(nameless, path, src_dir_fd=folder)
        except FileExistsError:
            os.link(nameless, temporary, src_dir_fd=folder)
            os.replace(temporary, path)
    except OSError:
        f.seek(0)
        with open(temporary, "xb") as copy:
            shutil.copyfileobj(f, copy)
            copy.flush()
            os.fsync(copy.fileno())
        os.replace(temporary, path)
    finally:
        os.close(folder)


__all__ = ["replaced"]
