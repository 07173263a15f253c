"""The rows of the op table, by family. Importing this package fills the table."""

from ir.ops import (
    activations,
    batch_norm,
    binary,
    cumulative,
    elementwise,
    gather_scatter,
    images,
    linalg,
    pool,
    reduce,
    strided,
    tensor,
    unary,
    views,
)

__all__ = [
    "activations",
    "batch_norm",
    "images",
    "unary",
    "elementwise",
    "views",
    "linalg",
    "reduce",
    "binary",
    "pool",
    "cumulative",
    "gather_scatter",
    "strided",
    "tensor",
]
