"""The intermediate representation of dy2st: types, ops, programs, text and reference evaluation.

Knows neither Paddle nor a device.
"""

from ir import ops as ops  # fills the op table
from ir.interpreter import evaluate
from ir.loc import Dy2stError, Loc, SourceError, VerifyError
from ir.opdef import OPS, OpDef, ShapeError
from ir.program import (
    ENDLESS,
    MIN_CAPACITY,
    Builder,
    CapacityExceeded,
    Carry,
    Cond,
    Const,
    Custom,
    Fused,
    Input,
    Join,
    Last,
    LoopCondition,
    Op,
    Program,
    Require,
    Scan,
    Seq,
    Slot,
    Stack,
    Value,
)
from ir.text import parse, print_program
from ir.types import DType, Size, Type
from ir.verifier import verify

Program.printer = print_program

__all__ = [
    "ENDLESS",
    "OPS",
    "MIN_CAPACITY",
    "Builder",
    "Carry",
    "Cond",
    "Const",
    "Custom",
    "DType",
    "Dy2stError",
    "Fused",
    "LoopCondition",
    "Input",
    "Join",
    "Last",
    "Loc",
    "CapacityExceeded",
    "Op",
    "OpDef",
    "Program",
    "Require",
    "Scan",
    "Seq",
    "ShapeError",
    "Size",
    "Slot",
    "SourceError",
    "Stack",
    "Type",
    "Value",
    "VerifyError",
    "evaluate",
    "ops",
    "parse",
    "verify",
]
