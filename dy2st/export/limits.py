"""Limits of the resources that a file may ask of the process that loads it.

The limits bound the time and the memory of loading; each is far above what the program of a real
model needs. What a call takes afterwards follows from the types of the program.
"""

from __future__ import annotations

from dataclasses import dataclass

from ir import Dy2stError, Op, Program, Scan
from ir.analysis.overflow import extents, too_large
from ir.uses import walk


class FileError(Dy2stError):
    """The file is not a saved program, or not of a version that can be read."""

    __module__ = "dy2st"  # its public name, which tracebacks show


@dataclass(frozen=True)
class Limits:
    """file: bytes of the file. text: bytes of the program's text. manifest: bytes of the manifest.
    ops: lines of the text. nesting: loops and branches inside of each other. names: named sizes.
    requires: conditions on them. parts: operands and results of an op. taps: of a window of
    pixels. pixels: along an axis of an image.
    """

    file: int = 1 << 36
    text: int = 1 << 26
    manifest: int = 1 << 20
    ops: int = 200_000
    nesting: int = 64
    names: int = 256
    requires: int = 1024
    parts: int = 65_536
    taps: int = 1 << 16
    pixels: int = 1 << 16


LIMITS = Limits()


def require(have: int, most: int, of: str) -> None:
    """Raises FileError for more than a file may have."""
    if have > most:
        raise FileError(f"{have} {of}: a file may have {most}")


def check_text(text: str, limits: Limits = LIMITS) -> None:
    """Limits that are found before the text is read."""
    depth = deepest = 0
    lines = text.split("\n")
    for line in lines:
        depth += line.endswith("{") - (line.strip() == "}")
        deepest = max(deepest, depth)
    require(len(lines), limits.ops, "lines of text")
    require(deepest - 1, limits.nesting, "blocks inside of each other")


def check_program(program: Program, limits: Limits = LIMITS) -> None:
    """Limits of a program that has been verified."""
    require(len(program.sizes), limits.names, "named sizes")
    require(len(program.requires), limits.requires, "conditions on named sizes")
    if too_large(tuple(d for d in extents(program) if isinstance(d, int)), {}):
        raise FileError("the program has a tensor that no memory can hold")
    for node in walk(program.ops):
        values = (*node.operands, *node.results)
        if not isinstance(node, Scan):
            require(len(values), limits.parts, f"operands and results of {node.name}")
        if isinstance(node, Op) and "stride" in node.attrs:
            _check_image(node, limits)


def _check_image(op: Op, limits: Limits) -> None:
    taps = op.attrs.get("taps", op.operands[-1].type.shape[2:])
    known = [d for d in taps if isinstance(d, int)]
    require(known[0] * known[-1] if known else 0, limits.taps, "taps of a window")
    around = [p for pair in op.attrs["padding"] for p in pair]
    for v in (*op.operands, *op.results):
        around += v.type.shape[2:]
    require(max(d for d in (0, *around) if isinstance(d, int)), limits.pixels, "pixels in a row")


__all__ = ["LIMITS", "FileError", "Limits", "check_program", "check_text", "require"]
