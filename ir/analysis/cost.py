"""The cost of the steps of a program, used to choose between two ways to compute the same.

One measure for every pass that moves work, and for the choice of residuals: the bytes of values,
the scalar operations of an element, and what a cache keeps from step to step. Named sizes count as
64: costs are compared, nothing is planned by them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ir.program import Const, Node, Op, Scan, Value
from ir.scalar import language as k
from ir.types import Dim, evaluate_dim, product
from ir.uses import walk

#: bytes that a cache keeps from step to step
CACHED = 1 << 18
#: scalar operations that computing one value again may take, all that it depends on included
MOST_WORK = 16
#: ops that read much for one result: one of all steps costs less than one in each
PRODUCTS = ("matmul", "conv", "embedding")


def number(d: Dim) -> int:
    return evaluate_dim(d, defaultdict(lambda: 64))


def bytes_of(*values: Value) -> int:
    return sum(number(product(v.type.shape)) * v.type.dtype.size for v in values)


def is_free(node: Node) -> bool:
    """Whether nothing is computed: a view, or a constant."""
    return isinstance(node, Op) and (node.row.may_alias or node.row.is_constant)


def is_product(node: Node) -> bool:
    return node.name in PRODUCTS


def work_of(node: Node) -> int | None:
    """Scalar operations per element of the result; None for a node that is not computed twice."""
    if not isinstance(node, Op) or node.row.effect or node.row.writes:
        return None
    if node.row.shares:
        return 1 if len(node.results) == 1 else None
    if is_free(node) or node.name == "tensor_array":
        return 0
    if node.row.kernel is None:
        return None
    inputs = [k.input_(i, v.type.dtype) for i, v in enumerate(node.operands)]
    parts = k.nodes([node.row.kernel(*inputs, **node.attrs)])
    return max(1, sum(p.op not in ("const", "input") for p in parts))


def weights_of(s: Scan) -> int:
    """The bytes of what every iteration multiplies with."""
    read = {v for n in walk(s.body) if n.name == "matmul" for v in n.operands}
    return bytes_of(*(p.outer for p in s.ports if isinstance(p, Const) and p.inner in read))


def stays_cached(weights: int) -> bool:
    """Whether a cache keeps so many bytes of weights from step to step."""
    return weights < CACHED


def pays(moved: Iterable[Value], weights: Iterable[Value]) -> bool:
    """Whether values of a step are written to memory and read again so that the step need not read
    its weights."""
    saved = bytes_of(*weights)
    return not stays_cached(saved) and 2 * bytes_of(*moved) <= saved


__all__ = [
    "MOST_WORK",
    "bytes_of",
    "is_free",
    "is_product",
    "number",
    "pays",
    "stays_cached",
    "weights_of",
    "work_of",
]
