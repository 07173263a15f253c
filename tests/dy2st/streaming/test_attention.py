"""Attention by scores of all pairs of frames, of which a mask leaves a band."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn
from paddle.static import InputSpec

import dy2st
from dy2st.streaming.check import fed

pytestmark = pytest.mark.sampled(every=12)

INF = float("inf")
WEIGHT = paddle.to_tensor(np.random.default_rng(0).standard_normal((6, 18)).astype("float32"))
TABLE = paddle.to_tensor(np.linspace(-1, 1, 9).astype("float32"))
paddle.seed(0)
HEADS = nn.MultiHeadAttention(6, 2)
ENCODER = nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 12, 0.0), 2)
SUBSAMPLED = nn.Conv1D(6, 6, 4, stride=2, padding=1)


def frames(x):
    """The numbers of queries and keys."""
    return paddle.arange(x.shape[1]).unsqueeze(1), paddle.arange(x.shape[1]).unsqueeze(0)


def attention(x, mask, fill=-1e9):
    q, k, v = paddle.split(x @ WEIGHT, 3, -1)
    scores = paddle.matmul(q, k, transpose_y=True) / 6**0.5
    return F.softmax(paddle.where(mask, scores, paddle.full_like(scores, fill)), -1) @ v


def band(x):
    i, j = frames(x)
    return attention(x, (i >= j) & (i - j <= 5))


def around(x):
    i, j = frames(x)
    return attention(x, (i - j).abs() <= 2, -INF)


def blocks(x):
    """U2: all frames of this block of 3 and of the 2 before it."""
    i, j = frames(x)
    return attention(x, (j // 3 <= i // 3) & (j // 3 >= i // 3 - 2))


def every_second(x):
    i, j = frames(x)
    return attention(x, (i >= j) & (i - j < 7) & ((i - j) % 2 == 0), -1e4)


def triangles(x):
    t = x.shape[1]
    mask = paddle.tril(paddle.ones([t, t])) - paddle.tril(paddle.ones([t, t]), -3)
    return F.softmax(x @ x.transpose([0, 2, 1]) + (1 - mask) * -1e9, -1) @ x


def biased(x):
    """With a bias for each distance, and weights of hidden frames set to 0 again."""
    i, j = frames(x)
    hidden = (i < j) | (i - j > 4)
    scores = x @ x.mT + TABLE[paddle.clip(i - j, -4, 4) + 4]
    weights = F.softmax(paddle.masked_fill(scores, hidden, -INF), -1)
    return paddle.masked_fill(weights, hidden, 0.0) @ x


def written_as_sums(x):
    i, j = frames(x)
    q = x.reshape([x.shape[0], -1, 2, 3])
    scores = paddle.einsum("bqhd,bkhd->bhqk", q, q)
    scores = paddle.where((i >= j) & (i - j < 5), scores, paddle.full([], -1e9))
    return paddle.einsum("bhqk,bkhd->bqhd", F.softmax(scores, -1), q).flatten(2)


def heads(x):
    i, j = frames(x)
    return HEADS(x, x, x, ((i >= j) & (i - j < 5)).unsqueeze([0, 1]))


def encoder(x):
    y = SUBSAMPLED(x.mT).mT
    i, j = frames(y)
    t = y.shape[1]
    return ENCODER(y, paddle.where((i - j).abs() < 3, paddle.zeros([t, t]), paddle.full([], -INF)))


def scaled_dot_product(x):
    i, j = frames(x)
    q = x.reshape([2, -1, 2, 3])
    mask = ((i >= j) & (i - j < 4)).unsqueeze([0, 1])
    return F.scaled_dot_product_attention(q, q, q, mask).flatten(2)


#: function, and its look-ahead in frames of the result
STREAMED = {
    band: 0,
    around: 2,
    blocks: 2,
    every_second: 0,
    triangles: 0,
    biased: 0,
    written_as_sums: 0,
    heads: 0,
    encoder: 5,
    scaled_dot_product: 0,
}


@pytest.mark.parametrize("f", STREAMED, ids=lambda f: f.__name__)
def test_a_band_of_scores_is_a_window_of_frames(f):
    HEADS.eval()
    ENCODER.eval()
    for chunk in (4, None) if f in (band, encoder) else (4,):
        s = dy2st.stream(f, {0: 1}, chunk, [InputSpec([2, None, 6], "float32", "x")])
        assert s.delay == STREAMED[f]
        for count in (23, 8, 2):
            x = np.random.default_rng(count).standard_normal((2, count, 6)).astype("float32")
            with paddle.no_grad():
                want = f(paddle.to_tensor(x)).numpy()
            (have,) = fed(s, {s.arguments[0]: x}, [4] * (count // 4))
            assert have == pytest.approx(want, abs=1e-5)


def in_blocks(x):
    """Attention within blocks of 4, which lie behind each other for all sequences."""
    b, t, d = x.shape
    q = x.reshape([b * (t // 4), 4, d])
    scores = paddle.where(q.sum(2, keepdim=True) > 0, q @ q.mT, paddle.full([], -1e9))
    return (F.softmax(scores, 1).mT @ q).reshape([b, t, d])


@pytest.mark.parametrize("chunk", [8, None])
def test_blocks_of_a_batch_in_one_axis(chunk):
    s = dy2st.stream(in_blocks, {0: 1}, chunk, [InputSpec([3, None, 6], "float32", "x")])
    assert s.check_stream(np.random.default_rng(0).standard_normal((3, 32, 6)).astype("float32"))


def causal(x):
    i, j = frames(x)
    return attention(x, i >= j)


def onwards(x):
    i, j = frames(x)
    return attention(x, i - j <= 5)


def weak(x):
    i, j = frames(x)
    return attention(x, (i >= j) & (i - j <= 5), -100.0)


def others_only(x):
    i, j = frames(x)
    return attention(x, (i > j) & (i - j <= 5))


def decided_by_data(x):
    i, j = frames(x)
    return attention(x, ((i - j).abs() <= 5) & (x[:, :, :1] > 0))


def all_scores(x):
    return x @ x.mT


#: what is refused, and why
REFUSED = {
    causal: ("attention to all frames", "far before a frame"),
    onwards: ("attention to all frames", "far behind a frame"),
    weak: ("attention to all frames", "far before a frame"),
    others_only: ("may hide a frame from itself", "mean of the whole sequence"),
    decided_by_data: ("may hide a frame from itself", ""),
    all_scores: ("a result of type", "square"),
}


@pytest.mark.parametrize("f", REFUSED, ids=lambda f: f.__name__)
def test_a_mask_that_is_no_band_is_refused(f):
    with pytest.raises(dy2st.SourceError) as e:
        dy2st.stream(f, {0: 1}, 4, [InputSpec([1, None, 6], "float32", "x")])
    message, reason = REFUSED[f]
    assert message in e.value.message
    assert reason in e.value.reason
    assert e.value.loc.file == __file__
