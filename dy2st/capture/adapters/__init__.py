"""Paddle's entries as rows: one adapter per `_C_ops` name, with the arguments of that entry.

Some entries are reached straight from user code and take the public argument names too (`input`,
`dim`, `other`); `ALIASES` maps them. A case that the rows do not cover raises `NoRow`.
"""

from dy2st.capture.adapters import (
    activations,
    einsum,
    elementwise,
    gather_scatter,
    images,
    losses,
    nn,
    repeated,
    strided,
    structured,
    tensors,
    transposed,
    vision,
)
from dy2st.capture.adapters.elementwise import COMPARISONS, arithmetic, comparison, exponent
from dy2st.capture.adapters.table import ADAPTERS

__all__ = [
    "ADAPTERS",
    "COMPARISONS",
    "arithmetic",
    "comparison",
    "activations",
    "einsum",
    "elementwise",
    "exponent",
    "images",
    "losses",
    "nn",
    "gather_scatter",
    "repeated",
    "tensors",
    "strided",
    "structured",
    "transposed",
    "vision",
]
