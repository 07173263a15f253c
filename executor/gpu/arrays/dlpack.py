"""DLPack by ctypes: import and export of tensors of other libraries."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

#: the number of CUDA's memory among devices
CUDA = 2
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
NAME, USED = b"dltensor", b"used_dltensor"


class _Device(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("number", ctypes.c_int)]


class _Type(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

_python, _Object, _Name = ctypes.pythonapi, ctypes.py_object, ctypes.c_char_p
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new = ctypes.PYFUNCTYPE(_Object, ctypes.c_void_p, _Name, _Destructor)(("PyCapsule_New", _python))
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, _Object, _Name)(("PyCapsule_SetName", _python))
_get = "PyCapsule_GetPointer", _python
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, _Object, _Name)(_get)
#: of a capsule that goes away: no reference to it may be made
_last_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, _Name)(_get)
_is_named = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _Name)(("PyCapsule_IsValid", _python))

#: by address: what tensors that others have taken need
_GIVEN: dict[int, tuple[object, ...]] = {}


def _delete(managed: Any) -> None:
    _GIVEN.pop(ctypes.addressof(managed.contents), None)


def _forget(capsule: int) -> None:
    """Nobody has taken the tensor."""
    if _is_named(capsule, NAME):
        _GIVEN.pop(_last_pointer(capsule, NAME), None)


_DELETE, _FORGET = _Deleter(_delete), _Destructor(_forget)


def capsule(
    address: int, shape: Sequence[int], strides: Sequence[int], dtype: np.dtype, owner: object
) -> Any:
    """A tensor of the first GPU for another library; `owner` lives until that has done with it."""
    if dtype.kind not in _CODES:
        raise BufferError(f"DLPack has no type for {dtype}")
    axes = ctypes.c_int64 * len(shape)
    dims, steps = axes(*shape), axes(*strides)
    kind = _Type(_CODES[dtype.kind], 8 * dtype.itemsize, 1)
    tensor = _Tensor(address, _Device(CUDA, 0), len(shape), kind, dims, steps, 0)
    managed = _Managed(tensor, None, _DELETE)
    at = ctypes.addressof(managed)
    _GIVEN[at] = managed, dims, steps, owner
    return _new(at, NAME, _FORGET)


class _ImportedTensor:
    """A tensor of another library, which hears when it is not needed any more."""

    def __init__(self, managed: Any) -> None:
        self.managed = managed

    def __del__(self) -> None:
        if self.managed.contents.deleter:
            self.managed.contents.deleter(self.managed)


def taken(given: Any) -> tuple[int, list[int], list[int] | None, np.dtype, object]:
    """The address, shape, strides in elements, type and owner of the tensor in a capsule. Raises
    ValueError for one that a program cannot take."""
    managed = ctypes.cast(_pointer(given, NAME), ctypes.POINTER(_Managed))
    tensor = managed.contents.tensor
    kinds = {code: kind for kind, code in _CODES.items()}
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    if tensor.device.number or code not in kinds or lanes != 1 or bits % 8:
        where = f"GPU {tensor.device.number}, type {code} of {bits} bits and {lanes} lanes"
        raise ValueError(f"a program takes plain numbers on the first GPU, this is on {where}")
    _rename(given, USED)
    owner, n = _ImportedTensor(managed), tensor.ndim
    strides = list(tensor.strides[:n]) if tensor.strides else None
    dtype = np.dtype(f"{kinds[code]}{bits // 8}")
    return (tensor.data or 0) + tensor.offset, list(tensor.shape[:n]), strides, dtype, owner
