"""The rows of the op table, by family. Importing this package fills the table."""

from ir.ops import (
    activations,
    conv,
    curves,
    elementwise,
    index,
    linalg,
    nn,
    pairs,
    running,
    scatter,
    strided,
    tensor,
)

__all__ = [
    "activations",
    "conv",
    "curves",
    "elementwise",
    "index",
    "linalg",
    "nn",
    "pairs",
    "running",
    "scatter",
    "strided",
    "tensor",
]
