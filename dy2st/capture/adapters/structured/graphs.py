"""Messages along the edges of graphs: read at one end, reduced at the other."""

from __future__ import annotations

from dy2st.capture.adapters.elementwise import arithmetic
from dy2st.capture.adapters.gather_scatter import filled, neutral
from dy2st.capture.adapters.table import adapter, dims_of
from dy2st.capture.data_sizes import as_size
from dy2st.capture.indexing.advanced import indices
from dy2st.capture.indexing.selection import counting
from dy2st.trace.emitter import Emitter, NoRow
from dy2st.trace.fake_tensor import FakeTensor
from dy2st.trace.item import number
from dy2st.trace.scalar import check
from dy2st.trace.symint import dim_of
from ir.types import I64, Dim

OPERATIONS = {"ADD": "add", "SUB": "subtract", "MUL": "multiply", "DIV": "divide"}
EXTREMES = {"MAX": ("amax", "maximum"), "MIN": ("amin", "minimum")}


def ends(e: Emitter, *index: object) -> list[FakeTensor]:
    found = [indices(e, q) for q in index]
    return [q if e.type(q).ndim == 1 else e.reshape(q, shape=(-1,)) for q in found]


@adapter("send_u_recv")
def send_u_recv(
    e: Emitter, x: object, source: object, target: object, reduce: str = "SUM", size: object = 0
) -> FakeTensor:
    """Reduce the messages of source nodes at their target nodes."""
    at, to = ends(e, source, target)
    return received(e, e.gather(x, at, axis=0), to, reduce, rows_of(e, x, size))


@adapter("send_ue_recv")
def send_ue_recv(
    e: Emitter,
    x: object,
    y: object,
    source: object,
    target: object,
    message: str = "ADD",
    reduce: str = "SUM",
    size: object = 0,
) -> FakeTensor:
    """Like `send_u_recv`; messages are combined with values of the edges."""
    at, to = ends(e, source, target)
    sent = arithmetic(e, OPERATIONS[message], e.gather(x, at, axis=0), y)
    return received(e, sent, to, reduce, rows_of(e, x, size))


@adapter("send_uv")
def send_uv(
    e: Emitter, x: object, y: object, source: object, target: object, message: str = "ADD"
) -> FakeTensor:
    """For each edge, what both ends have, combined."""
    at, to = ends(e, source, target)
    return arithmetic(e, OPERATIONS[message], e.gather(x, at, axis=0), e.gather(y, to, axis=0))


@adapter("segment_pool")
def segment_pool(e: Emitter, x: object, segments: object, reduce: str = "SUM") -> FakeTensor:
    """The sum, mean or extreme of each run of rows with one number; zeros for numbers between."""
    to = ends(e, segments)[0]
    (n,) = e.type(to).shape
    last = e.gather(to, e.subtract(e.scalar(e.trace.sym(n), I64), e.full(1, I64)), axis=0)
    at = counting(e, n)
    before = e.gather(to, e.maximum(e.subtract(at, e.full(1, I64)), e.full(0, I64)), axis=0)
    at_least = e.maximum(before, e.full(0, e.type(to).dtype))
    ok = e.all(e.greater_equal(to, at_least), axes=())
    check(e.trace, ok._value, "ValueError", "segment_ids are negative or not sorted")
    rows = number(e.trace, e.add(last, e.full(1, I64)), "segment_ids")
    return received(e, x, to, reduce, dim_of(as_size(e.trace, rows)))


def rows_of(e: Emitter, x: object, size: object) -> Dim:
    given = dims_of(size) if isinstance(size, (list, tuple)) else dims_of((size,))
    rows = given[0] if given else 0
    positive = not isinstance(rows, int) or rows > 0
    return rows if positive else e.type(x).shape[0]


def received(e: Emitter, sent: object, to: object, reduce: str, rows: Dim) -> FakeTensor:
    """Zeros where nothing arrives."""
    t = e.type(sent)
    shape = (rows, *t.shape[1:])
    zeros = filled(e, 0.0 if t.dtype.kind == "f" else 0, sent, shape)
    if reduce == "SUM":
        return e.scatter_nd(zeros, sent, to, axis=0, combine="add")
    if t.dtype.kind != "f":
        raise NoRow(f"the {reduce} of {t}")
    one = (1,) * (t.ndim - 1)
    none = e.full(0.0, t.dtype, (rows, *one))
    arrived = e.full(1.0, t.dtype, (t.shape[0], *one))
    count = e.scatter_nd(none, arrived, to, axis=0, combine="add")
    if reduce == "MEAN":
        total = e.scatter_nd(zeros, sent, to, axis=0, combine="add")
        return e.divide(total, e.maximum(count, e.full(1.0, t.dtype)))
    first, combine = EXTREMES[reduce]
    start = filled(e, neutral(first, t.dtype), sent, shape)
    found = e.scatter_nd(start, sent, to, axis=0, combine=combine)
    return e.where(e.greater_than(count, e.full(0.0, t.dtype)), found, e.full(0.0, t.dtype))
