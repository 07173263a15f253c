"""The rows of the op table, by family. Importing this package fills the table."""

from ir.ops import elementwise, index, linalg, nn, pairs, tensor

__all__ = ["elementwise", "index", "linalg", "nn", "pairs", "tensor"]
