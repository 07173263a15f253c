"""The file format of a saved program.

The file is a zip: `manifest.json` (inputs and outputs), `program.txt` (the text of the program) and
`weights.safetensors`. It holds no code and no pickles.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from dy2st.export.atomic import replaced
from dy2st.export.limits import LIMITS, FileError, require
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
    with replaced(Path(path)) as f, zipfile.ZipFile(f, "w", zipfile.ZIP_STORED) as z:
        z.writestr(MANIFEST, json.dumps(whole, indent=1))
        z.writestr(PROGRAM, str(program))
        z.writestr(WEIGHTS, save_tensors(dict(weights)))


def read(path: str | os.PathLike[str]) -> tuple[dict[str, object], str, dict[str, np.ndarray]]:
    """The manifest, the text of the program and the weights.

    Members are stored as they are, so that none is larger than the file. Raises OSError for a file
    that cannot be read, FileError or another exception for one that `write` has not written.
    """
    require(os.stat(path).st_size, LIMITS.file, "bytes")
    with open(path, "rb") as f, zipfile.ZipFile(f) as z:
        found = z.infolist()
        if sorted(i.filename for i in found) != sorted((MANIFEST, PROGRAM, WEIGHTS)):
            raise FileError(f"it does not hold {MANIFEST}, {PROGRAM} and {WEIGHTS}, each once")
        if any(i.compress_type != zipfile.ZIP_STORED for i in found):
            raise FileError("it is compressed")
        for name, most in ((MANIFEST, LIMITS.manifest), (PROGRAM, LIMITS.text)):
            require(z.getinfo(name).file_size, most, f"bytes of {name}")
        manifest = json.loads(z.read(MANIFEST).decode())
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise FileError(f"its manifest is not one of {FORMAT}")
        absent = {"result", "stores"} - manifest.keys()
        if absent:
            raise FileError(f"its manifest has no {min(absent)!r}")
        if manifest.get("version") != VERSION:
            older = f"it has version {manifest.get('version')!r:.80}"
            raise FileError(f"{older}, this version of dy2st reads {VERSION}: save it again")
        return manifest, z.read(PROGRAM).decode(), load_tensors(z.read(WEIGHTS))


__all__ = ["FORMAT", "MANIFEST", "PROGRAM", "VERSION", "WEIGHTS", "read", "write"]
