"""The rows of the op table, by family. Importing this package fills the table."""

from ir.ops import (
    activations,
    binary,
    cumulative,
    elementwise,
    gather_scatter,
    images,
    linalg,
    normalize,
    reduce,
    strided,
    tensor,
    unary,
    views,
)

__all__ = [
    "activations",
    "binary",
    "cumulative",
    "elementwise",
    "gather_scatter",
    "images",
    "linalg",
    "normalize",
    "reduce",
    "strided",
    "tensor",
    "unary",
    "views",
]
