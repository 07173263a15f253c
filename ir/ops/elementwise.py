"""Declaring elementwise rows: one scalar kernel per row, and the type rules they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ir.opdef import ShapeError, broadcast, op
from ir.types import BOOL, DType, Type


def same_dtype(name: str, *types: Type) -> DType:
    for t in types[1:]:
        if t.dtype != types[0].dtype:
            raise ShapeError(f"{name} of {types[0].dtype} and {t.dtype}")
    return types[0].dtype


def require_kind(name: str, t: Type, kinds: str) -> None:
    if t.dtype.kind not in kinds or t.dtype.widened:
        raise ShapeError(f"{name} has no kernel for {t.dtype}")


def elementwise(
    signature: str, kinds: str, kernel: Callable[..., Any], ref: Callable[..., Any], **row: Any
) -> None:
    """A row whose result has the operands' dtype, or bool with `to_bool`."""
    to_bool = row.pop("to_bool", False)
    name = signature.split("(")[0]

    def types(*operands: Type, **attrs: Any) -> Type:
        dtype = same_dtype(name, *operands)
        require_kind(name, operands[0], kinds)
        return Type(BOOL if to_bool else dtype, broadcast(*(t.shape for t in operands)))

    def quiet(*arrays: Any, **attrs: Any) -> np.ndarray:
        with np.errstate(all="ignore"):
            out = np.asarray(ref(*arrays, **attrs))
            return out.astype(np.bool_ if to_bool else arrays[0].dtype, copy=False)

    op(signature, types=types, kernel=kernel, ref=quiet, **row)
