"""Item assignment as `Case`s: every kind of index with every kind of value that it takes.

Eager Paddle forgets the strides of a tensor that it indexes with another tensor, and then reads and
writes other memory: `STRIDED` are the contexts without such an index.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import paddle

from tests.parity.inplace.inplace_contexts import Case, Spec

STRIDES = "eager ignores the strides"
FIRST = "with duplicates, eager's is that of the first write, though the last one stays"
STRIDED = {"steps of an argument": STRIDES, "transposed": STRIDES}

ROWS, COLUMNS = Spec("i64[2]", -3, 2), Spec("i64[2]", -4, 3)
GRID = Spec("i64[2,1]", -3, 2)
ONE = Spec("i64[]", -3, 2)
INTS, BOOLS = Spec("i64[3,4]", -9, 9), Spec("bool[3,4]")
CUBE = Spec("f32[2,3,4]")


def mask(*values):
    return lambda: paddle.to_tensor(np.array(values, bool))


def array(*shape):
    return lambda: np.arange(np.prod(shape), dtype="float64").reshape(shape) / 4


def basic() -> Iterator[Case]:
    """Views: integers, slices, None, `...`, 0-d tensors."""
    yield Case("y[-1] = number", "y[-1] = 2.5")
    yield Case("y[numpy integer] = row", "y[np.int64(1)] = a", operands={"a": Spec("f32[4]")})
    yield Case("y[i, j] = number", "y[1, -2] = True")
    yield Case("y[0-d tensor] = row", "y[k] = a", operands={"k": ONE, "a": Spec("f32[4]")})
    yield Case("y[0-d tensor, :2] += number", "y[k, :2] += 1.5", operands={"k": ONE})
    yield Case("y[-2:, ::-2] = row", "y[-2:, ::-2] = a", operands={"a": Spec("f32[2]")})
    yield Case("y[::2] = doubles", "y[::2] = a", operands={"a": Spec("f64[2,4]")})
    yield Case("y[:] = integers", "y[:] = a", operands={"a": Spec("i64[4]", -9, 9)})
    yield Case("y[None, ..., 1] = column", "y[None, ..., 1] = a", operands={"a": Spec("f32[3]")})
    yield Case("y[5:] = nothing", "y[5:] = 3.0")
    yield Case("y[1:] = y[:-1]", "y[1:] = y[:-1]", no_gradient="eager refuses its own write")
    yield Case("y[:] = y[::-1]", "y[:] = y[::-1]")
    yield Case("y[:, 1:] += y[:, :-1]", "y[:, 1:] += y[:, :-1]")
    yield Case("y[0] = array", "y[0] = a", operands={"a": array(4)})
    yield Case("y[1, :2] of bools", "y[1, :2] = True", BOOLS)
    yield Case("y[1] of integers = float", "y[1] = 2.7", INTS)


def tensors() -> Iterator[Case]:
    """Index tensors: one, several, next to each other and apart; duplicates among them."""
    yield strided("y[i] = number", "y[i] = 2.5", {"i": ROWS})
    yield strided("y[i] = rows", "y[i] = a", {"i": ROWS, "a": Spec("f32[2,4]")})
    yield strided("y[i] = 0-d", "y[i] = a", {"i": ROWS, "a": Spec("f32[]")})
    yield strided("y[i] = integers", "y[i] = a", {"i": ROWS, "a": Spec("i64[4]", -9, 9)})
    yield strided("y[i] = array", "y[i] = a", {"i": ROWS, "a": array(2, 4)})
    yield strided("y[i] += rows", "y[i] += a", {"i": ROWS, "a": Spec("f32[2,4]")})
    yield strided("y[i] = y[j]", "y[i] = y[j] * 2", {"i": ROWS, "j": ROWS})
    yield strided("y[:, j] = column", "y[:, j] = a", {"j": COLUMNS, "a": Spec("f32[3,1]")})
    yield strided("y[i, j] = values", "y[i, j] = a", {"i": ROWS, "j": COLUMNS, "a": Spec("f32[2]")})
    yield strided("y[grid, j] += number", "y[g, j] += 1.0", {"g": GRID, "j": COLUMNS})
    yield strided(
        "y[1, j] = values", "y[1, j] = a", {"j": COLUMNS, "a": Spec("f32[2]")}, no_gradient=FIRST
    )
    yield strided(
        "y[1:, j] = row", "y[1:, j] = a", {"j": COLUMNS, "a": Spec("f32[2]")}, no_gradient=FIRST
    )
    yield strided("y[list] = number", "y[[2, 0, 2]] = 2.5", {})
    yield strided("y[list, list] = number", "y[[0, 2], [1, -1]] = 2.5", {})
    yield strided("y[array] = row", "y[np.array([2, 0])] = a", {"a": Spec("f32[4]")})
    yield strided("y[list of tensors] = number", "y[[k, 0]] = 2.5", {"k": ONE})
    yield strided("y[int32] = number", "y[i] = 2.5", {"i": Spec("i32[2]", -3, 2)})
    yield strided("y[no element] = rows", "y[i] = a", {"i": Spec("i64[0]"), "a": Spec("f32[0,4]")})
    yield strided("y[i] of integers", "y[i] = 3", {"i": ROWS}, INTS)
    yield strided("y[i] of bools", "y[i] = False", {"i": ROWS}, BOOLS)
    yield strided(
        "y[i, :, j] = rows",
        "y[i, :, j] = a",
        {"i": Spec("i64[2]", -2, 1), "j": COLUMNS, "a": Spec("f32[2,3]")},
        CUBE,
        FIRST,
    )
    yield strided(
        "y[:, i, j] += values",
        "y[:, i, j] += a",
        {"i": ROWS, "j": COLUMNS, "a": Spec("f32[2]")},
        CUBE,
    )
    yield strided("y[..., j] = number", "y[..., j] = 0.5", {"j": COLUMNS}, CUBE)


def masks() -> Iterator[Case]:
    yield Case("y[mask] = number", "y[m] = 2.5", operands={"m": BOOLS})
    yield Case(
        "y[mask] = 0-d",
        "y[m] = a",
        operands={"m": BOOLS, "a": Spec("f32[]")},
        no_gradient="eager has none for the value",
    )
    yield Case("y[y > 0] = 0", "y[y > 0] = 0")
    yield strided("y[y > 0] *= number", "y[y > 0.5] = -1.0", {})
    yield strided("y[row mask] = row", "y[m] = a", {"m": Spec("bool[3]"), "a": Spec("f32[4]")})
    yield strided(
        "y[row mask] = rows", "y[m] = a", {"m": mask(True, False, True), "a": Spec("f32[2,4]")}
    )
    yield strided(
        "y[:, column mask] = columns",
        "y[:, m] = a",
        {"m": mask(True, False, True, True), "a": Spec("f32[3,3]")},
    )
    yield strided(
        "y[mask] = values",
        "y[m] = a",
        {"m": mask([0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 1, 0]), "a": Spec("f32[4]")},
    )
    yield strided("y[1, column mask] = number", "y[1, m] = 2.5", {"m": Spec("bool[4]")})
    yield strided("y[list of bools] = number", "y[[True, False, True]] = 2.5", {})
    yield strided(
        "y[array of bools] = rows", "y[np.array([True, False, True])] = a", {"a": Spec("f32[2,4]")}
    )
    yield strided("y[:, list of bools] = number", "y[:, [True, False, True, False]] = 2.5", {})
    yield strided(
        "y[mask of two axes] = row", "y[m] = a", {"m": Spec("bool[2,3]"), "a": Spec("f32[4]")}, CUBE
    )


def strided(name, call, operands, y=None, no_gradient=""):
    y = y or Spec()
    return Case(name, call, y, operands, left_out=STRIDED, no_gradient=no_gradient)


def cases() -> list[Case]:
    return [*basic(), *tensors(), *masks()]
