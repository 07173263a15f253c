"""`einsum` of one or two operands, as products of matrices.

"bij,bkj->bik"    both     b, in the result         a batch of products
                  both     j, not in the result     summed over
                  one      i, k                     rows and columns
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence

from dy2st.capture.adapters.table import adapter
from dy2st.trace.emitter import Emitter, NoRow
from dy2st.trace.fake_tensor import FakeTensor
from ir.types import FLOATS, Dim, product


@adapter("einsum")
def einsum(e: Emitter, operands: Sequence[object], equation: str) -> tuple[FakeTensor, None, None]:
    """The result is the first of three; the others are Paddle's caches."""
    kinds = {e.type(x).dtype for x in operands}
    if len(kinds) > 1 or not kinds <= set(FLOATS):
        raise NoRow("einsum of these operands")
    return contracted(e, operands, equation), None, None


def contracted(e: Emitter, operands: Sequence[object], equation: str) -> FakeTensor:
    """Contract one or two operands of one type."""
    if len(operands) > 2:
        raise NoRow("einsum of these operands")
    terms, result = _terms(e, operands, equation)
    dims: dict[str, Dim] = {}
    for x, term in zip(operands, terms):
        for q, d in zip(term, e.type(x).shape, strict=True):
            if dims.setdefault(q, d) != d:
                raise NoRow("einsum of axes of different sizes")
    parts = []
    for k, (x, term) in enumerate(zip(operands, terms)):
        kept = {*result, *(q for j, other in enumerate(terms) if j != k for q in other)}
        alone = tuple(at for at, q in enumerate(term) if q not in kept)
        found = e.sum(x, axes=alone) if alone else x
        parts.append((found, [q for q in term if q in kept]))
    if len(parts) == 1:
        found, labels = parts[0]
        return e.assign(_arranged(e, found, labels, result))  # type: ignore[no-any-return]
    (x, a), (y, b) = parts
    if len(set(b) - set(a)) > len(set(a) - set(b)):
        (x, a), (y, b) = (y, b), (x, a)
    return _product(e, x, a, y, b, dims, result)


def _terms(e: Emitter, operands: Sequence[object], equation: str) -> tuple[list[str], str]:
    """A letter for each axis of each operand, and of the result."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or len(terms) != len(operands):
        raise NoRow("einsum without a result")
    free = [q for q in string.ascii_letters if q not in equation]
    ranks = [e.type(x).ndim - len(t.replace("...", "")) for x, t in zip(operands, terms)]
    most = max((n for n, t in zip(ranks, terms) if "..." in t), default=0)
    around = "".join(free[:most])
    terms = [t.replace("...", around[most - n :]) for n, t in zip(ranks, terms) if n >= 0]
    result = result.replace("...", around)
    once = all(len(set(t)) == len(t) for t in (*terms, result))
    if len(terms) != len(operands) or not once or not set(result) <= set("".join(terms)):
        raise NoRow("einsum with a diagonal or a new axis")
    if any(len(t) != e.type(x).ndim for x, t in zip(operands, terms)):
        raise NoRow("einsum with another number of axes")
    return terms, result


def _arranged(e: Emitter, x: object, labels: Sequence[str], order: Iterable[str]) -> object:
    perm = tuple(labels.index(q) for q in order)
    return x if perm == tuple(range(len(perm))) else e.transpose(x, perm=perm)


def _product(
    e: Emitter,
    x: object,
    a: Sequence[str],
    y: object,
    b: Sequence[str],
    dims: dict[str, Dim],
    result: str,
) -> FakeTensor:
    both = [q for q in a if q in b]
    batch, summed = ([q for q in both if (q in result) is kept] for kept in (True, False))
    rows, columns = [q for q in a if q not in b], [q for q in b if q not in a]
    order = [*batch, *rows, *columns]
    outer, wide = [dims[q] for q in batch], [dims[q] for q in columns]
    x = _arranged(e, x, a, [*batch, *rows, *summed])
    if not summed:
        y = _arranged(e, y, b, [*batch, *columns])
        x = e.reshape(x, shape=(*outer, *(dims[q] for q in rows), *(1 for _ in columns)))
        y = e.reshape(y, shape=(*outer, *(1 for _ in rows), *wide))
        return e.assign(_arranged(e, e.multiply(x, y), order, result))
    count, last = product(dims[q] for q in summed), product(wide)
    high = [dims[q] for q in rows] or [1]
    x = e.reshape(x, shape=(*outer, *high, count))
    y = _arranged(e, y, b, [*batch, *summed, *columns])
    between = [1] * (len(high) - 1) if outer else []
    y = e.reshape(y, shape=(*outer, *between, count, last))
    found = e.reshape(e.matmul(x, y), shape=tuple(dims[q] for q in order))
    return e.assign(_arranged(e, found, order, result))


__all__ = ["einsum"]
