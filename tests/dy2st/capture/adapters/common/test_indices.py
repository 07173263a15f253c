"""Functions that pick, place, sort and search: as in eager."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
import pytest

from tests.dy2st.capture.adapters.common.cases import compare, fl, it, lab, x34, x234, y34

pytestmark = pytest.mark.sampled


CASES = {
    "emb": (lambda i, w: F.embedding(i, w), lambda: it([2, 3], 0, 5), lambda: fl([5, 4])),
    "emb pad": (
        lambda i, w: F.embedding(i, w, padding_idx=2),
        lambda: it([2, 3], 0, 5),
        lambda: fl([5, 4]),
    ),
    "emb pad neg": (
        lambda i, w: F.embedding(i, w, padding_idx=-1),
        lambda: it([2, 3], 0, 5),
        lambda: fl([5, 4]),
    ),
    "gather": (
        lambda x, i: (paddle.gather(x, i), paddle.gather(x, i, axis=1)),
        x34,
        lambda: it([2], 0, 3),
    ),
    "gather 0d": (lambda x, i: paddle.gather(x, i), x34, lambda: it([], 0, 3)),
    "gather_nd": (lambda x, i: paddle.gather_nd(x, i), x234, lambda: it([2, 2], 0, 2)),
    "gather_nd full": (lambda x, i: paddle.gather_nd(x, i), x234, lambda: it([2, 3], 0, 2)),
    "index_select": (
        lambda x, i: (paddle.index_select(x, i), x.index_select(i, 1)),
        x34,
        lambda: it([2], 0, 3),
    ),
    "index_sample": (lambda x, i: paddle.index_sample(x, i), x34, lambda: it([3, 2], 0, 3)),
    "index_add": (
        lambda x, i, v: paddle.index_add(x, i, 0, v),
        x34,
        lambda: it([2], 0, 3),
        lambda: fl([2, 4]),
    ),
    "index_put": (
        lambda x, i, v: paddle.index_put(x, (i,), v),
        x34,
        lambda: paddle.to_tensor([0, 2]),
        lambda: fl([2, 4]),
    ),
    "index_put acc": (
        lambda x, i, v: paddle.index_put(x, (i,), v, accumulate=True),
        x34,
        lambda: paddle.to_tensor([0, 0]),
        lambda: fl([2, 4]),
    ),
    "index_fill": (lambda x, i: paddle.index_fill(x, i, 0, 2.0), x34, lambda: it([2], 0, 3)),
    "take_along": (
        lambda x, i: (paddle.take_along_axis(x, i, 1), x.take_along_axis(i, 0)),
        x34,
        lambda: it([3, 4], 0, 3),
    ),
    "take_along bcast": (
        lambda x, i: paddle.take_along_axis(x, i, 1),
        x34,
        lambda: it([1, 2], 0, 3),
    ),
    "put_along": (
        lambda x, i, v: paddle.put_along_axis(x, i, v, 1),
        x34,
        lambda: paddle.to_tensor([[0], [1], [2]]),
        lambda: fl([3, 1]),
    ),
    "put_along num": (
        lambda x, i: paddle.put_along_axis(x, i, 2.0, 1),
        x34,
        lambda: paddle.to_tensor([[0], [1], [2]]),
    ),
    "put_along add": (
        lambda x, i, v: paddle.put_along_axis(x, i, v, 1, reduce="add"),
        x34,
        lambda: paddle.to_tensor([[0], [1], [2]]),
        lambda: fl([3, 1]),
    ),
    "put_along mul": (
        lambda x, i, v: paddle.put_along_axis(x, i, v, 1, reduce="mul"),
        x34,
        lambda: paddle.to_tensor([[0], [1], [2]]),
        lambda: fl([3, 1]),
    ),
    "put_along amax": (
        lambda x, i, v: paddle.put_along_axis(x, i, v, 1, reduce="amax"),
        x34,
        lambda: paddle.to_tensor([[0], [1], [2]]),
        lambda: fl([3, 1]),
    ),
    "scatter": (
        lambda x, i, v: paddle.scatter(x, i, v),
        x34,
        lambda: paddle.to_tensor([0, 2]),
        lambda: fl([2, 4]),
    ),
    "scatter add": (
        lambda x, i, v: paddle.scatter(x, i, v, overwrite=False),
        x34,
        lambda: paddle.to_tensor([0, 2]),
        lambda: fl([2, 4]),
    ),
    "scatter_nd": (lambda i, v: paddle.scatter_nd(i, v, [5, 4]), lambda: it([3, 1], 0, 5), x34),
    "scatter_nd_add": (
        lambda x, i, v: paddle.scatter_nd_add(x, i, v),
        lambda: fl([5, 4]),
        lambda: it([3, 1], 0, 5),
        x34,
    ),
    "masked_fill": (
        lambda x, m: (
            x.masked_fill(m, -1000000000.0),
            paddle.masked_fill(x, m, paddle.to_tensor(2.0)),
        ),
        x34,
        lambda: it([3, 4], 0, 2).astype("bool"),
    ),
    "masked_scatter": (
        lambda x, m, v: paddle.masked_scatter(x, m, v),
        x34,
        lambda: it([3, 4], 0, 2).astype("bool"),
        lambda: fl([12]),
    ),
    "topk": (lambda x: (*x.topk(2), *paddle.topk(x, 2, axis=0), *x.topk(2, largest=False)), x34),
    "topk t": (lambda x: (*paddle.topk(x, paddle.to_tensor(2)),), x34),
    "sort": (
        lambda x: (
            x.sort(-1),
            x.argsort(0),
            x.sort(0, descending=True),
            x.argsort(-1, descending=True),
        ),
        x34,
    ),
    "kthvalue": (lambda x: (*paddle.kthvalue(x, 2),), x34),
    "mode": (lambda x: (*paddle.mode(x),), x34),
    "median": (lambda x: (paddle.median(x), x.median(axis=1)), x34),
    "median min": (lambda x: paddle.median(x, axis=1, mode="min"), x34),
    "nanmedian": (lambda x: x.nanmedian(axis=1), x34),
    "quantile": (lambda x: (paddle.quantile(x, 0.3), paddle.quantile(x, [0.2, 0.8], axis=1)), x34),
    "where": (
        lambda x, y: (
            paddle.where(x > 0, x, y),
            paddle.where(x > 0, x, 0.0),
            paddle.where(x > 0, 1.0, y),
        ),
        x34,
        y34,
    ),
    "shard": (lambda x: paddle.slice(x, [0, 1], [0, 1], [2, 3]), x34),
    "argm": (
        lambda x: (x.argmax(), x.argmin(1), x.argmax(0, keepdim=True), x.argmax(1, dtype="int32")),
        x34,
    ),
    "isin": (
        lambda i: (
            paddle.isin(i, paddle.to_tensor([1, 2])),
            paddle.isnan(i.astype("float32")),
            paddle.isinf(i.astype("float32")),
        ),
        lambda: it([3, 4]),
    ),
    "bucketize": (
        lambda x: (
            paddle.bucketize(x, paddle.to_tensor([-1.0, 0.0, 1.0])),
            paddle.searchsorted(paddle.to_tensor([-1.0, 0.0, 1.0]), x),
        ),
        x34,
    ),
    "fill_diag": (lambda x: (x * 1).fill_diagonal_(0.0), x34),
    "fill_diag_t": (lambda x, y: x.fill_diagonal_tensor(y), lambda: fl([3, 3]), lambda: fl([3])),
    "take": (lambda x: paddle.take(x, paddle.to_tensor([0, 5, -1])), x34),
    "select_scatter": (
        lambda x, y: (
            paddle.select_scatter(x, y[0], 0, 1),
            paddle.slice_scatter(x, y[:1], [0], [0], [1], [1]),
        ),
        x34,
        y34,
    ),
    "nanquantile": (lambda x: paddle.nanquantile(x, 0.5, 1), x34),
    "graph": (lambda x, i: paddle.geometric.send_u_recv(x, i, i), x34, lambda: it([3], 0, 3)),
    "segment": (
        lambda x: (
            paddle.geometric.segment_sum(x, paddle.to_tensor([0, 0, 1])),
            paddle.geometric.segment_mean(x, paddle.to_tensor([0, 0, 1])),
        ),
        x34,
    ),
    "shard_index": (lambda i: paddle.shard_index(i.unsqueeze(-1), 20, 2, 0), lab),
    "getitem": (
        lambda x, i: (x[i], x[i, 1], x[:, i], x[::2], x[-1], x[..., 1:], x[1:, None]),
        x34,
        lambda: it([2], 0, 3),
    ),
    "getitem neg step": (lambda x: (x[::-1], x[:, ::-2]), x34),
    "masked_select": (
        lambda x, m: x.masked_select(m),
        x34,
        lambda: it([3, 4], 0, 2).astype("bool"),
    ),
    "unique": (lambda x: paddle.unique(x), x34),
    "unique_consec": (lambda x: paddle.unique_consecutive(x), x34),
    "nonzero": (lambda x: paddle.nonzero(x), x34),
    "where1": (lambda x: paddle.where(x > 0), x34),
    "repeat t": (lambda x: paddle.repeat_interleave(x, paddle.to_tensor([1, 2, 1]), 0), x34),
    "bincount": (lambda i: paddle.bincount(i), lambda: it([5])),
    "combinations": (lambda x: paddle.combinations(x[0], 2), x34),
}


@pytest.mark.quick("emb pad", "put_along add", "topk")
@pytest.mark.parametrize("name", CASES)
def test_as_eager(name):
    compare(CASES[name])
