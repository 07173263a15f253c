"""`output_templates`: the types of one step's outputs, given by the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import paddle

from dy2st.functional import structure
from dy2st.functional.errors import fault
from dy2st.functional.structure import Structure
from dy2st.trace.symint import is_symint

ARGUMENT = "output_templates"


@dataclass(frozen=True)
class OutputTemplate:
    """One output of one step."""

    shape: tuple[object, ...]
    dtype: Any

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('paddle.')}{list(self.shape)}"

    def empty(self, axis: int) -> Any:
        """The output of no steps, with time in `axis`."""
        at = axis % (len(self.shape) + 1)
        return paddle.zeros([*self.shape[:at], 0, *self.shape[at:]], self.dtype)


@dataclass(frozen=True)
class OutputTemplates:
    """The structure of the outputs and the templates of its leaves."""

    like: Structure
    leaves: tuple[OutputTemplate, ...]


def templates_of(api: str, given: object) -> OutputTemplates | None:
    """Check and return the user's templates; None if there are none."""
    if given is None:
        return None
    like, found = _taken_apart(api, given, ARGUMENT)
    return OutputTemplates(like, tuple(found))


def _taken_apart(api: str, x: Any, name: str) -> tuple[Structure, list[OutputTemplate]]:
    if _is_template(x):
        return structure.LEAF, [_template(api, x, name)]
    like = structure.structure_of(x)
    if like.kind is None or isinstance(x, (tuple, list)) and any(map(_is_number, x)):
        raise fault(TypeError, f"{api}: {name} must be (shape, dtype), it is {x!r}")
    pairs = [_taken_apart(api, x[key], f"{name}[{key!r}]") for key in like.keys]
    parts = tuple(part for part, _ in pairs)
    return Structure(like.kind, like.keys, parts), [q for _, found in pairs for q in found]


def _is_number(x: object) -> bool:
    return type(x) is int or is_symint(x)


def _is_template(x: object) -> bool:
    if not isinstance(x, (tuple, list)) or len(x) not in (2, 3):
        return False
    shape = x[0]
    return isinstance(shape, (tuple, list)) and all(map(_is_number, shape)) and _named(x[1]) != ""


def _named(dtype: object) -> str:
    """The name of an element type, or ""."""
    if isinstance(dtype, (tuple, list, dict)) or dtype is None:
        return ""
    name = getattr(dtype, "name", None) or getattr(dtype, "__name__", None) or str(dtype)
    return str(name).rpartition(".")[2].lower()


def _template(api: str, x: Any, name: str) -> OutputTemplate:
    dtype = getattr(paddle, _named(x[1]), None)
    if not isinstance(dtype, paddle.dtype):
        raise fault(TypeError, f"{api}: {name} has no element type of Paddle: {x[1]!r}")
    if any(type(d) is int and d < 0 for d in x[0]):
        raise fault(ValueError, f"{api}: {name} has a negative size: {list(x[0])}")
    if len(x) == 3 and "cpu" not in str(x[2]).lower():
        raise fault(ValueError, f"{api}: {name} must be on the CPU, not on {x[2]}")
    return OutputTemplate(tuple(x[0]), dtype)


__all__ = ["OutputTemplate", "OutputTemplates", "templates_of"]
