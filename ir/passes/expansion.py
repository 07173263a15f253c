"""Expansion of composite rows to primitive ops.

    %y = softmax(%x)   =>   max, subtract, exp, sum, divide

A custom block is replaced by its forward block: gradients have been taken before.
An expansion may itself use composites (mean inside of layer_norm): those are expanded as well.
"""

from __future__ import annotations

from ir.program import Program
from ir.rewrite import expand_composites


def expand(program: Program) -> Program:
    """Afterwards no op has a row with `expand`, and there is no custom block."""
    return expand_composites(program)


__all__ = ["expand"]
