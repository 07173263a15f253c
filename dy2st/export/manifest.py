"""The file of a saved program.

The file is a zip: `manifest.json` (inputs and outputs), `program.txt` (the text of the program) and
`weights.safetensors`. It holds no code and no pickles.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping

import numpy as np
from safetensors.numpy import save as save_tensors

from ir import Program

FORMAT, VERSION = "dy2st", 2
MANIFEST, PROGRAM, WEIGHTS = "manifest.json", "program.txt", "weights.safetensors"


def write(
    path: str | os.PathLike[str],
    program: Program,
    manifest: Mapping[str, object],
    weights: Mapping[str, np.ndarray],
) -> None:
    """Write the file; it appears whole or not at all."""
    whole = {"format": FORMAT, "version": VERSION, **manifest}
    temporary = f"{os.fspath(path)}.{os.getpid()}.part"
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as z:
            z.writestr(MANIFEST, json.dumps(whole, indent=1))
            z.writestr(PROGRAM, str(program))
            z.writestr(WEIGHTS, save_tensors(dict(weights)))
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


__all__ = ["FORMAT", "MANIFEST", "PROGRAM", "VERSION", "WEIGHTS", "write"]
