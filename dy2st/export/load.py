"""Running a saved program (`dy2st.export.manifest`) where Paddle is not installed.

Buffers keep their state between calls of a loaded program; `reset` restores them.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load as load_tensors

import executor
from dy2st.export.manifest import FORMAT, MANIFEST, PROGRAM, VERSION, WEIGHTS
from ir import OPS, Dy2stError, Input, Program, Size, Type, parse, verify
from ir.literal import parse_attr
from ir.passes import run as run_passes
from ir.types import evaluate_dim

#: what reading a damaged file raises somewhere below
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, KeyError, AttributeError,
    TypeError, IndexError, NotImplementedError, RuntimeError,
)  # fmt: skip


class FileError(Dy2stError):
    """The file is not a saved program, or not of a version that can be read."""


def load(path: str | os.PathLike[str]) -> LoadedProgram:
    """Load a saved program and compile it for this machine; Paddle is not needed.

    Raises:
        FileError: the file is damaged, or of another version.
        OSError: the file cannot be read.
    """
    data = io.BytesIO(Path(path).read_bytes())
    try:
        with zipfile.ZipFile(data) as z:
            manifest = json.loads(z.read(MANIFEST))
            text = z.read(PROGRAM).decode()
            weights = load_tensors(z.read(WEIGHTS))
        if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
            found = manifest.get("version")
            text = f"{path} has format {found!r}, this version of dy2st reads {VERSION}"
            raise FileError(f"{text}: save the function again")
        return LoadedProgram(verify(parse(text)), manifest, weights)
    except _DAMAGE as e:
        raise FileError(f"{path} is no saved program: {e}") from e
    except FileError:
        raise
    except Dy2stError as e:
        raise FileError(f"{path} holds a program that is not valid: {e}") from e
    except Exception as e:
        if type(e).__name__ != "SafetensorError":
            raise
        raise FileError(f"{path} has damaged weights: {e}") from e


class LoadedProgram:
    """A saved program, compiled. Call it with NumPy arrays in the order of the saved arguments.

    Attributes:
        program: the program (`print` shows its text).
        arguments: names of the tensor arguments, in order.
        buffers: the current values of buffers and parameters by name; change them in place.
    """

    def __init__(
        self, program: Program, manifest: Mapping[str, Any], weights: Mapping[str, np.ndarray]
    ) -> None:
        self.program = program
        self._result = manifest["result"]
        self._stores = [tuple(q) for q in manifest["stores"]]
        self._inputs = program.inputs
        self.arguments = tuple(i.name for i in program.inputs if i.kind == "arg")
        self._fixed = {
            k: self._weight(k, i, weights) for k, i in enumerate(program.inputs) if i.kind != "arg"
        }
        _check_tree(self._result, len(program.outputs), len(program.inputs))
        for target, tree in self._stores:
            if target not in self._fixed:
                raise ValueError(f"a store to input {target}")
            _check_tree(tree, len(program.outputs), len(program.inputs))
        self._initial = {k: a.copy() for k, a in self._fixed.items()}
        self._run = executor.compile(run_passes(program, start_at="expand"))

    @staticmethod
    def _weight(k: int, i: Input, weights: Mapping[str, np.ndarray]) -> np.ndarray:
        array = np.ascontiguousarray(weights[str(k)]).reshape(weights[str(k)].shape).copy()
        if Type(i.value.type.dtype, array.shape) != i.value.type:
            raise ValueError(f"the weight {i.name} is {array.dtype}{list(array.shape)}")
        return array

    @property
    def buffers(self) -> dict[str, np.ndarray]:
        return {self._inputs[k].name: a for k, a in self._fixed.items()}

    def reset(self) -> None:
        """Restore the buffers to their values in the file."""
        for k, a in self._initial.items():
            self._fixed[k] = a.copy()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """The saved function's result, with NumPy arrays for tensors.

        Args:
            args, kwargs: arrays (or nested tuples, lists, dicts of them) in the order of
                `arguments`, or by name. Anything `np.asarray` takes without changing its dtype.

        Raises:
            TypeError: a missing argument, or an array of another dtype.
            ValueError: a shape that the program does not take; IndexError: an index from data.
        """
        arrays = self._bind(args, kwargs)
        outputs = self._run(*arrays)
        sizes = self._sizes(arrays)
        result = _fill(self._result, outputs, arrays, sizes)
        for k, tree in self._stores:
            self._fixed[k] = np.array(_fill(tree, outputs, arrays, sizes))
        return result

    def _bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> list[np.ndarray]:
        given = dict(zip(self.arguments, _leaves(args)))
        extra = len(list(_leaves(args))) - len(given)
        unknown = set(kwargs) - set(self.arguments) or set(kwargs) & set(given)
        given.update(kwargs)
        missing = [n for n in self.arguments if n not in given]
        if missing or unknown or extra > 0:
            raise TypeError(f"the program takes {', '.join(self.arguments) or 'no arguments'}")
        out = []
        for k, i in enumerate(self._inputs):
            array = self._fixed[k] if k in self._fixed else np.asarray(given[i.name])
            if array.dtype != i.value.type.dtype.numpy:
                want = i.value.type.dtype.numpy
                raise TypeError(f"{i.name} is {array.dtype}, the program takes {want}")
            out.append(array)
        return out

    def _sizes(self, arrays: Sequence[np.ndarray]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for i, a in zip(self._inputs, arrays):
            for d, n in zip(i.value.type.shape, a.shape):
                if isinstance(d, Size) and d == Size.named(str(d)):
                    sizes[str(d)] = n
        return sizes


def _leaves(x: object) -> Iterator[object]:
    if isinstance(x, dict):
        for q in x.values():
            yield from _leaves(q)
    elif isinstance(x, (list, tuple)):
        for q in x:
            yield from _leaves(q)
    else:
        yield x


# ---------------------------------------------------------------- the tree of a result
def _check_tree(tree: Any, outputs: int, inputs: int) -> None:
    kind = tree[0]
    if kind in ("list", "tuple"):
        for q in tree[1]:
            _check_tree(q, outputs, inputs)
    elif kind == "dict":
        for _, q in tree[1]:
            _check_tree(q, outputs, inputs)
    elif kind == "elements":
        if not list(_rows(tree[1])):
            raise ValueError("a list without elements to take apart")
        _check_tree(tree[1], outputs, inputs)
    elif kind in ("number", "rows"):
        if not 0 <= tree[1] < outputs:
            raise ValueError(f"the result names output {tree[1]}")
    elif kind in ("out", "same"):
        if not 0 <= tree[1] < (outputs if kind == "out" else inputs):
            raise ValueError(f"the result names {kind} {tree[1]}")
        for name, _ in tree[2]:
            if name != "alias" and not OPS[name].views:
                raise ValueError(f"{name} is no view")
    elif kind not in ("constant", "size"):
        raise ValueError(f"an unknown part of the result: {kind!r}")


def _fill(
    tree: Any, outputs: Sequence[np.ndarray], inputs: Sequence[np.ndarray], sizes: Any
) -> object:
    kind, body = tree[0], tree[1]
    if kind == "list":
        return [_fill(q, outputs, inputs, sizes) for q in body]
    if kind == "tuple":
        return tuple(_fill(q, outputs, inputs, sizes) for q in body)
    if kind == "dict":
        return {parse_attr(k): _fill(q, outputs, inputs, sizes) for k, q in body}
    if kind == "constant":
        return parse_attr(body)
    if kind == "size":
        return evaluate_dim(parse_attr(body), sizes)
    if kind == "number":
        return outputs[body].item()
    if kind == "elements":
        length = len(outputs[next(_rows(body))])
        return [_fill(_row(body, k), outputs, inputs, sizes) for k in range(length)]
    if kind == "row":
        row = outputs[body][tree[2], ...]
        return row.item() if tree[3] else row
    array = (outputs if kind == "out" else inputs)[body]
    for name, attrs in tree[2]:
        if name != "alias":
            array = _view(array, name, attrs, sizes)
    return array


def _rows(tree: Any) -> Iterator[int]:
    """The stacked outputs of which the elements of a list are rows."""
    if tree[0] == "rows":
        yield tree[1]
    elif tree[0] in ("list", "tuple"):
        for q in tree[1]:
            yield from _rows(q)


def _row(tree: Any, k: int) -> object:
    """The tree of element k."""
    if tree[0] == "rows":
        return ["row", tree[1], k, tree[2]]
    return [tree[0], [_row(q, k) for q in tree[1]]] if tree[0] in ("list", "tuple") else tree


def _view(x: np.ndarray, name: str, attrs: Sequence[Any], sizes: Mapping[str, int]) -> np.ndarray:
    def plain(v: object) -> Any:
        if isinstance(v, tuple):
            return tuple(plain(q) for q in v)
        return evaluate_dim(v, sizes) if isinstance(v, Size) else v

    ref = OPS[name].ref
    assert ref is not None
    return ref(x, **{k: plain(parse_attr(v)) for k, v in attrs})


__all__ = ["FileError", "LoadedProgram", "load"]
