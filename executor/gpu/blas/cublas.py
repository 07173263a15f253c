"""cuBLASLt by ctypes; `DY2ST_CUBLASLT_LIBRARY` names the library, and is empty for none. Else that
of a package is taken (`nvidia-cublas-cu12`), or the system's.

It has matrices by columns: a product of rows is the one of the transposed operands, the other way
round.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from executor.gpu.driver import Driver, DriverError, Pointer, Size
from ir.types import F32, F64, DType

PACKAGES = ("nvidia/cu13/lib/libcublasLt.so.1?", "nvidia/cublas/lib/libcublasLt.so.1?")
SYSTEM = ("libcublasLt.so.13", "libcublasLt.so.12")
#: numbers of the library: types; how sums are computed, by the precision of products of float32
TYPES = {F32: 0, F64: 1}
OF_PRECISION = {"float32": 68, "tensorfloat32": 77, "bfloat16": 75}
IN_DOUBLE = 70
TRANS_A, TRANS_B, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8
WITH_BIAS = 4
BATCHES, BATCH_STRIDE = 5, 6
WORKSPACE, REDUCTIONS, ALIGNED_A = 1, 3, 5
#: parts of a sum are kept in the type that it is computed in
IN_COMPUTE_TYPE = 2
#: bytes of memory beside the operands; operations that are remembered
ROOM, MOST = 32 << 20, 256


@dataclass(frozen=True)
class Matrix:
    """`ld` is the distance of its rows, or of its columns if it is `turned`."""

    address: int
    batches: int
    rows: int
    columns: int
    ld: int
    stride: int
    turned: bool

    @property
    def alignment(self) -> int:
        return min(256, self.address & -self.address) or 256


@dataclass(frozen=True)
class MatmulOperation:
    """`c` = `x` @ `y` + `initial`."""

    x: Matrix
    y: Matrix
    c: Matrix
    initial: Matrix | None
    is_bias: bool
    dtype: DType
    precision: str


class _Algorithm(ctypes.Structure):
    """The algorithm of an operation."""

    _fields_ = [
        ("algorithm", ctypes.c_uint64 * 8),
        ("room", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


@dataclass
class _MatmulPlan:
    """The library's plan of an operation, whatever the addresses of its operands."""

    description: ctypes.c_void_p
    layouts: list[ctypes.c_void_p]
    found: _Algorithm


class Blas:
    """The lock of the driver is held in all calls."""

    def __init__(self, path: str, driver: Driver) -> None:
        self.library, self.driver = ctypes.CDLL(path), driver
        self.handle = Pointer()
        with driver.current():
            self.call("cublasLtCreate", ctypes.byref(self.handle))
        self.plans: dict[object, _MatmulPlan] = {}
        self.rooms: dict[int | None, Any] = {}

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        if code:
            raise DriverError(f"{name}: error {code} of cuBLAS")

    def multiply(self, x: MatmulOperation, stream: ctypes.c_void_p) -> None:
        """Enqueue a product in a stream; the context must be current."""
        if not x.c.batches * x.c.rows * x.c.columns:
            return
        if not x.x.columns:
            return self._start(x, stream)
        plan = self._plan(x)
        if x.is_bias and x.initial is not None:
            self._describe(plan, BIAS_POINTER, ctypes.c_uint64(x.initial.address))
        number = ctypes.c_double if x.dtype == F64 else ctypes.c_float
        added = x.initial is not None and not x.is_bias
        alpha, beta = number(1), number(1 if added else 0)
        room = self._room(plan.found.room, stream)
        a, b, c, d = plan.layouts
        start = x.initial.address if added and x.initial is not None else x.c.address
        self.call(
            "cublasLtMatmul", self.handle, plan.description, ctypes.byref(alpha),
            Pointer(x.y.address), a, Pointer(x.x.address), b, ctypes.byref(beta),
            Pointer(start), c, Pointer(x.c.address), d, ctypes.byref(plan.found.algorithm),
            Pointer(room), Size(plan.found.room), stream,
        )  # fmt: skip

    def _start(self, x: MatmulOperation, stream: ctypes.c_void_p) -> None:
        """Fill the contiguous result of a product without terms: with `initial`, or zeros."""
        size = Size(x.c.batches * x.c.rows * x.c.columns * x.dtype.size)
        to = ctypes.c_uint64(x.c.address)
        if x.initial is None:
            self.driver.call("cuMemsetD8Async", to, ctypes.c_ubyte(0), size, stream)
        elif x.initial.address != x.c.address:
            source = ctypes.c_uint64(x.initial.address)
            self.driver.call("cuMemcpyDtoDAsync_v2", to, source, size, stream)

    def _room(self, size: int, stream: ctypes.c_void_p) -> int:
        """Memory beside the operands: that of another stream may be in use."""
        have = self.rooms.get(stream.value)
        if size and (have is None or have.size < size):
            have = self.rooms[stream.value] = self.driver.allocate(size)
        return have.address if size and have is not None else 0

    # ------------------------------------------------------------ plans
    def _plan(self, x: MatmulOperation) -> _MatmulPlan:
        matrices = (x.y, x.x, x.c, x.initial or x.c)
        lies = tuple(replace(m, address=m.alignment) for m in matrices)
        key = lies, x.initial is None, x.is_bias, x.dtype, x.precision
        if key not in self.plans:
            if len(self.plans) == MOST:
                for plan in self.plans.values():
                    self._forget(plan)
                self.plans.clear()
            self.plans[key] = self._planned(x)
        return self.plans[key]

    def _planned(self, x: MatmulOperation) -> _MatmulPlan:
        how = IN_DOUBLE if x.dtype == F64 else OF_PRECISION[x.precision]
        scale = TYPES[x.dtype]
        description = Pointer()
        given = ctypes.byref(description), ctypes.c_int(how), ctypes.c_int(scale)
        self.call("cublasLtMatmulDescCreate", *given)
        added = x.initial if x.initial is not None and not x.is_bias else x.c
        layouts = [self._layout(m, x.dtype) for m in (x.y, x.x, added, x.c)]
        plan = _MatmulPlan(description, layouts, _Algorithm())
        self._describe(plan, TRANS_A, ctypes.c_int32(x.y.turned))
        self._describe(plan, TRANS_B, ctypes.c_int32(x.x.turned))
        if x.is_bias and x.initial is not None:
            self._describe(plan, EPILOGUE, ctypes.c_uint32(WITH_BIAS))
            self._describe(plan, BIAS_POINTER, ctypes.c_uint64(x.initial.address))
        self._choose(plan, [m.alignment for m in (x.y, x.x, added, x.c)])
        return plan

    def _describe(self, plan: _MatmulPlan, what: int, value: Any) -> None:
        given = plan.description, ctypes.c_int(what), ctypes.byref(value)
        self.call("cublasLtMatmulDescSetAttribute", *given, Size(ctypes.sizeof(value)))

    def _layout(self, m: Matrix, dtype: DType) -> ctypes.c_void_p:
        """Return the column-major layout of a matrix: its rows are columns, unless it is turned."""
        layout = Pointer()
        sides = (m.rows, m.columns) if m.turned else (m.columns, m.rows)
        given = [ctypes.c_uint64(n) for n in sides]
        kind = ctypes.c_int(TYPES[dtype])
        ld = ctypes.c_int64(max(m.ld, 1))
        self.call("cublasLtMatrixLayoutCreate", ctypes.byref(layout), kind, *given, ld)
        if m.batches > 1:
            for what, value in (
                (BATCHES, ctypes.c_int32(m.batches)),
                (BATCH_STRIDE, ctypes.c_int64(m.stride)),
            ):
                size = Size(ctypes.sizeof(value))
                given_ = layout, ctypes.c_int(what), ctypes.byref(value), size
                self.call("cublasLtMatrixLayoutSetAttribute", *given_)
        return layout

    def _choose(self, plan: _MatmulPlan, alignments: list[int]) -> None:
        preference, count = Pointer(), ctypes.c_int()
        self.call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        wishes: list[tuple[int, Any]] = [(WORKSPACE, ctypes.c_uint64(ROOM))]
        wishes.append((REDUCTIONS, ctypes.c_uint32(IN_COMPUTE_TYPE)))
        wishes += [(ALIGNED_A + k, ctypes.c_uint32(n)) for k, n in enumerate(alignments)]
        for what, value in wishes:
            size = Size(ctypes.sizeof(value))
            given = preference, ctypes.c_int(what), ctypes.byref(value), size
            self.call("cublasLtMatmulPreferenceSetAttribute", *given)
        self.call(
            "cublasLtMatmulAlgoGetHeuristic", self.handle, plan.description, *plan.layouts,
            preference, ctypes.c_int(1), ctypes.byref(plan.found), ctypes.byref(count),
        )  # fmt: skip
        self.call("cublasLtMatmulPreferenceDestroy", preference)
        if not count.value:
            raise DriverError("cuBLAS has no way to take a product")

    def _forget(self, plan: _MatmulPlan) -> None:
        self.call("cublasLtMatmulDescDestroy", plan.description)
        for layout in plan.layouts:
            self.call("cublasLtMatrixLayoutDestroy", layout)


_LIBRARIES: dict[tuple[str, int], Blas] = {}


def blas(driver: Driver) -> Blas | None:
    """None where there is no library. Raises DriverError where the one that is named cannot be
    opened."""
    named = os.environ.get("DY2ST_CUBLASLT_LIBRARY")
    for path in _installed() if named is None else filter(None, [named]):
        with driver.lock, contextlib.suppress(OSError):
            key = path, id(driver)
            if key not in _LIBRARIES:
                _LIBRARIES[key] = Blas(path, driver)
            return _LIBRARIES[key]
    if named:
        raise DriverError(f"DY2ST_CUBLASLT_LIBRARY: {named} cannot be opened")
    return None


def _installed() -> Iterator[str]:
    for folder in sys.path:
        for pattern in PACKAGES:
            yield from sorted(glob.glob(os.path.join(folder, pattern)), reverse=True)
    yield from SYSTEM
