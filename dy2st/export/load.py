"""Running a saved program (`dy2st.export.manifest`) where Paddle is not installed.

Buffers keep their state between calls of a loaded program; `reset` restores them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import executor
from dy2st.compiled.garbage_collection import collector_waits
from dy2st.export.complex_arrays import complex_of, pairs_of, read_complex
from dy2st.export.limits import FileError, check_program, check_text
from dy2st.export.manifest import read
from dy2st.export.results import CallArrays, Reader
from dy2st.streaming.file import restored
from executor.executable import empty
from executor.gpu.arrays import device_array, uploaded
from ir import Input, Program, SourceError, parse, verify
from ir.analysis.conditions import with_requires
from ir.passes import run as run_passes
from ir.types import multiple_of_name

#: what no check of a file raises
DEFECTS = (AssertionError, LookupError, TypeError, AttributeError, NameError, ArithmeticError)


def load(
    path: str | os.PathLike[str], device: str = "cpu", matmul_precision: str | None = None
) -> Any:
    """Load a saved program and compile it for this machine; Paddle is not needed.

    Returns a `LoadedProgram`, or the `StreamingProgram` that was saved, at the start of a sequence.

    device: "cpu", or "gpu": it runs on the first GPU, where its weights and buffers are. Arrays on
        the GPU (`__cuda_array_interface__` or DLPack) are taken as they are, and the results are
        `executor.gpu.DeviceArray`s then; arrays on the host are copied in each call.
    matmul_precision: as for `dy2st.to_static`.

    Nothing in the file is trusted: what it holds is checked, and bounded by
    `dy2st.export.limits.Limits`.

    Raises:
        FileError: the file is damaged, or of another version; or loading has a defect, which the
            text says.
        OSError: the file cannot be read.
        ValueError: a device that is neither "cpu" nor "gpu", or a precision that there is not.
        executor.gpu.DriverError: a GPU is asked for, and it, its driver or NVRTC is missing.
        MemoryError: the GPU has no room for the weights.
    """
    executor.require_device(device, matmul_precision)
    with open(path, "rb"):
        pass
    try:
        with collector_waits():
            loaded = _loaded(path, device, matmul_precision)
    except executor.gpu.DriverError:
        raise
    except executor.Unsupported as e:
        raise SourceError(f"{e.text}.", e.loc) from None
    except FileError as e:
        raise FileError(f"{path} is not a saved program: {e}") from e
    except DEFECTS as e:
        raise FileError(
            f"{path} cannot be loaded ({type(e).__name__}: {e!s:.300}). If `dy2st.save` has "
            "written it, this is a defect of dy2st."
        ) from e
    except Exception as e:
        raise FileError(f"{path} is not a saved program: {str(e) or type(e).__name__:.500}") from e
    if isinstance(loaded, LoadedProgram):
        loaded.reset()
    return loaded


def _loaded(path: str | os.PathLike[str], device: str, matmul_precision: str | None) -> Any:
    manifest, text, weights = read(path)
    check_text(text)
    program = verify(parse(text))
    check_program(program)
    if "stream" in manifest:
        if device != "cpu":
            raise executor.Unsupported(
                "streaming programs run on the CPU: load it without `device`"
            )
        return restored(program, manifest, weights)
    return LoadedProgram(program, manifest, weights, device, matmul_precision)


class LoadedProgram:
    """A saved program, compiled; `reset` comes before the first call. Call it with NumPy arrays in
    the order of the saved arguments or, on a GPU, with arrays that are there.

    Attributes:
        program: the program (`print` shows its text).
        arguments: names of the tensor arguments, in order.
        buffers: the current values of buffers and parameters by name; change them in place (by
            `assign` on a GPU).
    """

    def __init__(
        self,
        program: Program,
        manifest: Mapping[str, Any],
        weights: Mapping[str, np.ndarray],
        device: str = "cpu",
        matmul_precision: str | None = None,
    ) -> None:
        self.arguments = tuple(i.name for i in program.inputs if i.kind == "arg")
        if len(set(self.arguments)) < len(self.arguments):
            raise FileError("two arguments have one name")
        self._arrays = read_complex(program, manifest)
        reader = Reader(program, self._arrays)
        self._result = reader.read(manifest["result"])
        self._stores = [(k, reader.read(tree)) for k, tree in manifest["stores"]]
        program = with_requires(replace(program, requires=(*program.requires, *reader.requires)))
        self.program = program
        self._inputs = program.inputs
        self._initial = {
            k: self._seen(k, self._weight(k, i, weights))
            for k, i in enumerate(program.inputs)
            if i.kind != "arg"
        }
        for target, part in self._stores:
            if type(target) is not int or target not in self._initial:
                raise FileError(f"it stores to input {target!r:.80}, which is not a buffer")
            if part.type != self._arrays.input_type(target):
                what = part.type or "a Python value"
                raise FileError(f"it stores {what} to {program.inputs[target].name}")
        self._fixed: dict[int, Any] = {}
        self._on_gpu = device == "gpu"
        ready = run_passes(program, start_at="expand")
        self._run = executor.compile(ready, backend=device, matmul_precision=matmul_precision)

    @staticmethod
    def _weight(k: int, i: Input, weights: Mapping[str, np.ndarray]) -> np.ndarray:
        if str(k) not in weights:
            raise FileError(f"it has no weight for {i.name}")
        array = np.asarray(weights[str(k)], order="C")
        if array.dtype != i.value.type.dtype.numpy or array.shape != i.value.type.shape:
            have = f"{array.dtype}{list(array.shape)}"
            raise FileError(f"the weight {i.name} is {have}, the program has {i.value.type}")
        return array

    def _seen(self, k: int, a: np.ndarray) -> np.ndarray:
        """Input k as the caller sees it."""
        return complex_of(a) if k in self._arrays.inputs else a

    @property
    def buffers(self) -> dict[str, object]:
        return {self._inputs[k].name: a for k, a in self._fixed.items()}

    def reset(self) -> None:
        """Restore the buffers to their values in the file."""
        for k, a in self._initial.items():
            self._fixed[k] = self._copied(a)

    def _copied(self, a: Any) -> Any:
        """A copy of an array where the program runs."""
        on_host = isinstance(a, np.ndarray)
        return uploaded(a) if self._on_gpu and on_host else np.array(a) if on_host else a.copy()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """The saved function's result, with NumPy arrays for tensors, or those of the GPU if an
        argument is there.

        Args:
            args, kwargs: arrays (or nested tuples, lists, dicts of them) in the order of
                `arguments`, or by name. Anything `np.asarray` takes without changing its dtype.

        Raises:
            TypeError: a missing argument, or an array of another dtype.
            ValueError: a shape that the program does not take; IndexError: an index from data.
        """
        arrays = self._bind(args, kwargs)
        free = (a for k, a in enumerate(arrays) if k not in self._fixed)
        there = next((a for a in free if not isinstance(a, np.ndarray)), None)
        given = [pairs_of(a) if k in self._arrays.inputs else a for k, a in enumerate(arrays)]
        outputs = self._run(*given, make=empty if there is None else there.beside)
        for k in self._arrays.outputs:
            outputs[k] = complex_of(outputs[k])
        call = CallArrays(outputs, arrays, self._sizes(arrays), there is None)
        result = self._result.fill(call)
        self._fixed.update({k: self._copied(part.fill(call)) for k, part in self._stores})
        return result

    def _bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> list[Any]:
        given = dict(zip(self.arguments, _leaves(args)))
        extra = len(list(_leaves(args))) - len(given)
        unknown = set(kwargs) - set(self.arguments) or set(kwargs) & set(given)
        given.update(kwargs)
        missing = [n for n in self.arguments if n not in given]
        if missing or unknown or extra > 0:
            raise TypeError(f"the program takes {', '.join(self.arguments) or 'no arguments'}")
        out = []
        for k, i in enumerate(self._inputs):
            array = self._fixed[k] if k in self._fixed else self._array(given[i.name])
            want = self._arrays.input_type(k).dtype.numpy
            if array.dtype != want:
                raise TypeError(f"{i.name} is {array.dtype}, the program takes {want}")
            on_host = isinstance(array, np.ndarray)
            if k in self._arrays.inputs and on_host and not array.flags.c_contiguous:
                if i.value in {target for target, _ in self.program.writes}:
                    raise ValueError(f"{i.name} is written, but the array is not contiguous")
                array = np.ascontiguousarray(array).reshape(array.shape)
            out.append(array)
        return out

    def _array(self, x: object) -> Any:
        there = device_array(x) if self._on_gpu else None
        return np.asarray(x) if there is None else there

    def _sizes(self, arrays: Sequence[Any]) -> dict[str, int]:
        sizes: dict[str, int] = {}
        for i, a in zip(self._inputs, arrays):
            for d, n in zip(i.value.type.shape, a.shape):
                if (found := multiple_of_name(d)) is not None:
                    sizes[found[0]] = n // found[1]
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


__all__ = ["FileError", "LoadedProgram", "load"]
