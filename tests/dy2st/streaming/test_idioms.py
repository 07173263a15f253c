"""Functions on whole sequences as users write them: streamed they equal eager, or are refused."""

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn
from paddle.static import InputSpec

import dy2st
from dy2st.streaming.check import fed
from ir.uses import walk

pytestmark = pytest.mark.sampled(every=12)

paddle.seed(1)
LSTM, CELL, BOTH = nn.LSTM(3, 4), nn.RNN(nn.GRUCell(3, 4)), nn.GRU(3, 4, direction="bidirect")
ATTENTION = nn.MultiHeadAttention(4, 2)


def no_first_state(x):
    h, ys = None, []
    for t in range(x.shape[1]):
        h = x[:, t] if h is None else 0.5 * h + x[:, t]
        ys.append(h)
    return paddle.stack(ys, 1)


def written_in_place(x):
    out, h = paddle.zeros_like(x), paddle.zeros([x.shape[0], x.shape[2]])
    for t in range(x.shape[1]):
        h = paddle.tanh(h + x[:, t])
        out[:, t] = h
    return out


def frame_before(x):
    return paddle.stack([x[:, t] - x[:, t - 1] for t in range(1, x.shape[1])], 1)


def decided_by_data(x):
    ys, h = [], paddle.zeros([1, 3])
    for t in range(x.shape[1]):
        if x[0, t, 0] > 0:
            h = h + x[:, t]
        else:
            h = h * 0.5
        ys.append(h)
    return paddle.stack(ys, 1)


def three_frames(x):
    p = paddle.concat([paddle.zeros_like(x[:, :2]), x], 1)
    return paddle.concat([p[:, :-2], p[:, 1:-1], p[:, 2:]], -1)


def sines(x):
    at = paddle.arange(0, x.shape[1], dtype="float32").unsqueeze(1)
    return x + paddle.sin(at * paddle.ones([1, 3]))


def running_mean(x):
    n = paddle.arange(1, x.shape[1] + 1, dtype="float32").reshape([1, -1, 1])
    return x - paddle.cumsum(x, 1) / n


def shifted_by_a_write(x):
    y = paddle.zeros_like(x)
    y[:, 1:] = x[:, :-1]
    y[:, 0] = x[:, 3]
    return y


def smoothed_inside(x):
    """Channels from the frame before, and means of neighbours between the first frame and the
    last."""
    y = x.clone()
    y[:, 1:-1] = (x[:, :-2] + x[:, 2:]) / 2
    y[:, 2:, 1] = x[:, :-2, 1]
    y[:, 1:3] = 5.0
    return y


def as_long_as_the_input(x):
    """Padded on both sides, and cut; without a stride this is so for every length."""
    wide = paddle.concat([x[:, :1] * 0, x, x[:, :1] * 0], 1)
    return (wide[:, 1:] - wide[:, :-1])[:, : x.shape[1]]


def channels_first(f):
    return lambda x: f(x.transpose([0, 2, 1])).transpose([0, 2, 1])


def padded(mode):
    return channels_first(lambda x: F.pad(x, [2, 0], mode=mode, data_format="NCL"))


ONES = paddle.ones([3, 3, 5])
STREAMED = {
    "no first state": no_first_state,
    "written in place": written_in_place,
    "the frame before": frame_before,
    "a branch on data": decided_by_data,
    "three frames": three_frames,
    "sines": sines,
    "running mean": running_mean,
    "differences": lambda x: x[:, 1:] - x[:, :-1],
    "without the last": lambda x: x[:, :-3] * 2,
    "LSTM": lambda x: LSTM(x)[0],
    "RNN of a cell": lambda x: CELL(x)[0],
    "average pooling": channels_first(lambda x: F.avg_pool1d(x, 3, 1, 1)),
    "largest of three": channels_first(lambda x: F.max_pool1d(x, 3, 1, 1)),
    "windows": lambda x: x[:, :, 0].unfold(1, 4, 2) @ paddle.ones([4, 5]),
    "reflected": padded("reflect"),
    "replicated": padded("replicate"),
    "as long as the input": as_long_as_the_input,
    "shifted by a write": shifted_by_a_write,
    "smoothed inside": smoothed_inside,
    "bands by a loop": lambda x: paddle.concat([x[:, :, k : k + 2] * k for k in range(2)], -1),
    "angles and codes": lambda x: (
        paddle.atan2(x, x + 1) * paddle.argmin(x.abs(), -1, keepdim=True).astype("float32")
    ),
    "nearest frames": channels_first(
        lambda x: F.interpolate(x.unsqueeze(3), scale_factor=[1, 2])[:, :, :, 1]
    ),
    "einsum": lambda x: paddle.einsum("btf,gf->bgt", x, paddle.ones([5, 3])).transpose([0, 2, 1]),
    "each frame twice": lambda x: paddle.repeat_interleave(x, 2, 1).tile([1, 1, 2]),
    "slopes of channels": channels_first(lambda x: F.prelu(x, paddle.full([3], 0.3))),
    "frames of unit length": lambda x: F.normalize(F.group_norm(x[0], 3), axis=-1).unsqueeze(0),
    "counts by channels": lambda x: (
        paddle.cumsum(x, 1)
        / paddle.arange(3, 3 * (x.shape[1] + 1), 3, dtype="float32").unsqueeze(1)
    ),
    "overlapping windows": lambda x: paddle.signal.overlap_add(x.transpose([0, 2, 1]), 2).unsqueeze(
        2
    ),
    "batch and time in one axis": lambda x: (x.reshape([-1, 3]) @ paddle.ones([3, 3])).reshape(
        [1, -1, 3]
    ),
}


@pytest.mark.sampled(every=12)
@pytest.mark.parametrize("name", STREAMED)
def test_an_idiom_by_chunks_is_that_of_eager(name):
    f = STREAMED[name]
    s = dy2st.stream(f, {0: 1}, 4, [InputSpec([1, None, 3], "float32", "x")])
    for frames in (12, 13, 5):
        x = np.random.default_rng(frames).standard_normal((1, frames, 3)).astype("float32")
        with paddle.no_grad():
            want = f(paddle.to_tensor(x)).numpy()
        (have,) = fed(s, {s.arguments[0]: x}, [4] * (frames // 4))
        assert have.shape == want.shape
        assert have == pytest.approx(want, abs=1e-5)


#: function, and the frames that a call takes a multiple of
STRIDED = {
    "stride of 6": (channels_first(lambda x: F.conv1d(x, ONES, stride=6, padding=2)), 6),
    "pooling": (channels_first(lambda x: F.max_pool1d(F.avg_pool1d(x, 3, 1, 1), 3, 2, 1)), 2),
    "groups of 5": (lambda x: x.reshape([1, -1, 5, 3]).mean(2), 5),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STRIDED)
def test_chunks_of_any_multiple_of_the_strides(name, tmp_path):
    f, frames = STRIDED[name]
    s = dy2st.stream(f, {0: 1}, None, [InputSpec([1, None, 3], "float32", "x")])
    assert s.frames == frames
    x = np.random.default_rng(0).standard_normal((1, 60, 3)).astype("float32")
    assert s.check_stream(x)
    dy2st.save(s, tmp_path / "s.dy2st")
    (have,) = fed(dy2st.load(tmp_path / "s.dy2st"), {s.arguments[0]: x}, [frames, 3 * frames])
    assert have == pytest.approx(f(paddle.to_tensor(x)).numpy(), abs=1e-5)
    with pytest.raises(ValueError, match=f"multiple of {frames} frames, not {frames + 1}"):
        s(x[:, : frames + 1])


def test_a_sequence_that_does_not_fill_its_groups_cannot_end():
    """Eager Paddle refuses the reshape."""
    f = STRIDED["groups of 5"][0]
    s = dy2st.stream(f, {0: 1}, 10, [InputSpec([1, None, 3], "float32", "x")])
    s(np.ones([1, 10, 3], "float32"))
    with pytest.raises(ValueError, match="after 13 frames.*in groups"):
        s.flush(np.ones([1, 3, 3], "float32"))


def cut_to_the_input(x):
    y = F.conv1d(x.mT, ONES, stride=2, padding=2).mT
    return paddle.repeat_interleave(y, 2, 1)[:, : x.shape[1]]


def added_to_the_input(x):
    y = F.conv1d(x.mT, ONES, stride=2, padding=2).mT
    return paddle.repeat_interleave(y, 2, 1) + x


@pytest.mark.parametrize("f", [cut_to_the_input, added_to_the_input])
def test_a_sequence_for_which_lengths_differ_cannot_end(f):
    """Subsampled and each frame twice, 13 frames are 14; nothing says which of them are meant."""
    s = dy2st.stream(f, {0: 1}, 4, [InputSpec([1, None, 3], "float32", "x")])
    assert s.flush(np.ones([1, 14, 3], "float32")).shape == (1, s.delay + 14, 3)
    with pytest.raises(ValueError, match="up to the length of other tensors.* multiple of 4"):
        s.flush(np.ones([1, 13, 3], "float32"))


def test_a_branch_in_the_code_of_paddle_counts_as_one_of_the_user():
    space = {"__name__": "paddle.made_up"}
    exec("def double_of_five(x):\n    return x * 2 if x.shape[1] == 5 else x", space)
    s = dy2st.stream(lambda x: space["double_of_five"](x), {0: 1}, 4, [InputSpec([1, None])])
    assert s.flush(np.ones([1, 6], "float32")).shape == (1, 6)
    with pytest.raises(ValueError, match="after 5 frames"):
        s.flush(np.ones([1, 5], "float32"))


def test_sizes_that_python_computes_are_numbers_inside_and_outside_of_loops():
    """Also one like `1 + S/160 - min(2, S/160 - 1)`, and a tensor [S/160, 4] in a loop's port."""

    def f(x):
        n = x.shape[1] // 160
        z, y = paddle.arange(n * 4, dtype="float32").reshape([n, 4]), x.reshape([n, 160])[:, :4]
        rows = paddle.zeros([1 + n - min(2, n - 1), 4]) + y[: 1 + n - min(2, n - 1)]
        for _ in range(3):
            y = paddle.tanh(y + 0 * z)
        return y, rows

    s = dy2st.stream(f, {"x": 1}, 640, [InputSpec([1, None], "float32", "x")])
    shapes = {str(r.type) for n in walk(s.program.ops) for r in n.results}
    assert all("stream_units" not in q for q in shapes)
    assert s.delay == (0, 1)
    assert s.check_stream(np.random.default_rng(0).standard_normal((1, 3200)).astype("float32"))


def bidirectional(x):
    return BOTH(x)[0]


class Keeps(paddle.nn.Layer):
    """Changes what outlives the call, in one way or another."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", paddle.zeros([], "int64"))
        self.log = []

    def counted(self, x):
        self.count.add_(paddle.to_tensor(1))
        return x * 2

    def stored(self, x):
        self.last = x[:, 0]
        return x * 2

    def logged(self, x):
        self.log.append(x * 3)
        return x * 2


KEEPS = Keeps()


def written(x):
    x[:, :, 0] = 0
    return x * 2


def normalised(x):
    return x - x.mean(1, keepdim=True)


def last_frame(x):
    return x[:, -1] * 2


def attention(x):
    return ATTENTION(paddle.concat([x, x[:, :, :1]], -1))


def turned(x):
    return paddle.flip(x, [1])


def reflected_end(x):
    return F.pad(x.transpose([0, 2, 1]), [0, 2], mode="reflect", data_format="NCL")


def number_of_frames(x):
    return x / (x.shape[1] * 1.0)


def odd_stride(x):
    return F.conv1d(x.transpose([0, 2, 1]), paddle.ones([3, 3, 3]), stride=3)


#: function -> what is said of it, and of the remedy
REFUSED = {
    KEEPS.counted: ("a write to count", "a state that is carried"),
    KEEPS.stored: ("stores keeps.last", "Return it instead"),
    KEEPS.logged: ("stores the list", "Return it instead"),
    written: ("a write to x", "`.clone()`"),
    bidirectional: ("runs backwards over time", "the forward half"),
    normalised: ("`sum` over time", "running statistic"),
    last_frame: ("a frame at the end", "flush"),
    attention: ("attention to all frames", "distance of frames"),
    turned: ("read backwards", "causal model"),
    reflected_end: ("begins at the end", ""),
    number_of_frames: ("the length of the sequence", "counter"),
    odd_stride: ("a chunk of 4 frames", "`chunk=12`"),
}


@pytest.mark.parametrize("f", REFUSED, ids=lambda f: f.__name__)
def test_what_needs_the_end_is_refused_with_its_line(f):
    with pytest.raises(dy2st.SourceError) as e:
        dy2st.stream(f, {"x": 1}, 4, [InputSpec([1, None, 3], "float32", "x")])
    message, remedy = REFUSED[f]
    assert message in e.value.message
    assert remedy in e.value.remedy
    assert e.value.loc.file == __file__
