"""The rows of the op table, by family. Importing this package fills the table."""

from ir.ops import (
    activations,
    batch_norm,
    conv,
    curves,
    elementwise,
    index,
    linalg,
    nn,
    pairs,
    pool,
    running,
    scatter,
    strided,
    tensor,
)

__all__ = [
    "activations",
    "batch_norm",
    "conv",
    "curves",
    "elementwise",
    "index",
    "linalg",
    "nn",
    "pairs",
    "pool",
    "running",
    "scatter",
    "strided",
    "tensor",
]
