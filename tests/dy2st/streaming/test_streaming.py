"""Paddle models by chunks against eager on the whole sequence."""

import re

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn
from paddle.static import InputSpec

import dy2st
from dy2st.streaming.check import fed
from ir.streaming import QUANTUM
from ir.uses import size_names, walk
from tests.dy2st.streaming import models, speech

pytestmark = pytest.mark.sampled(every=24)

#: model, shape of its argument, axis of time, chunk, frames of sequences
MODELS = {
    "DeepSpeech2": ([2, None, 16], 1, 16, (64, 61, 33)),
    "MDTC": ([1, None, 10], 1, 10, (60, 7)),
    "CRN": ([1, None, 16], 1, 4, (20, 23)),
    "DPRNN": ([1, None, 6], 1, 16, (64, 8)),
    "WaveNet": ([1, 1, None], 2, 20, (80, 61)),
    "Vocoder": ([1, 8, None], 2, 5, (20, 23)),
    "U2": ([1, None, 8], 1, 16, (64, 16)),
}


#: of `speech.py`: those whose ops the others do not have
SPEECH = {
    "ConvTasNet": ([2, 1, None], 2, 32, (160, 100)),
    "Codec": ([1, 1, None], 2, 16, (80, 64)),
    "GTCRN": ([1, 2, None, 6], 2, 4, (16, 9)),
    "Conformer": ([1, None, 16], 1, 8, (64, 47)),
}


def spec(shape):
    return [InputSpec(shape, "float32", "x")]


def sequence(shape, axis, frames, seed=0):
    shape = [*shape[:axis], frames, *shape[axis + 1 :]]
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def model(name):
    paddle.seed(0)
    layer = getattr(models, name)()
    layer.eval()
    return layer


@pytest.mark.sampled(every=16)
@pytest.mark.parametrize("name", MODELS)
def test_a_model_by_chunks_is_the_model_on_the_whole(name):
    (shape, axis, chunk, lengths), layer = MODELS[name], model(name)
    s = dy2st.stream(layer, {"x": axis}, chunk, input_spec=spec(shape))
    assert QUANTUM not in set().union(*(size_names(n) for n in walk(s.program.ops)))
    for frames in lengths:
        x = sequence(shape, axis, frames)
        with paddle.no_grad():
            want = layer(paddle.to_tensor(x)).numpy()
        (have,) = fed(s, {"x": x}, [chunk] * (frames // chunk))
        assert have.shape == want.shape
        assert have == pytest.approx(want, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPEECH)
def test_a_published_model_by_chunks(name):
    (shape, axis, chunk, lengths), layer = SPEECH[name], getattr(speech, name)()
    layer.eval()
    for size in (chunk, None):
        s = dy2st.stream(layer, {"x": axis}, size, input_spec=spec(shape))
        for frames in lengths:
            found = s.check_stream(sequence(shape, axis, frames))
            assert found, found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MDTC", "Vocoder"])
def test_chunks_of_any_number_of_frames(name):
    shape, axis, _, _ = MODELS[name]
    s = dy2st.stream(model(name), {"x": axis}, input_spec=spec(shape))
    found = s.check_stream(sequence(shape, axis, 37))
    assert found and len(found.chunks) == 3, found


def test_the_caches_written_by_hand_give_the_same():
    layer = model("U2")
    s = dy2st.stream(layer, {"x": 1}, 16, input_spec=spec([1, None, 8]))
    caches, x = layer.start(), sequence([1, None, 8], 1, 80)
    for k in range(5):
        chunk = paddle.to_tensor(x[:, 16 * k : 16 * k + 16])
        with paddle.no_grad():
            want, caches = layer.forward_chunk(chunk, caches)
        have = s(chunk)
        assert isinstance(have, paddle.Tensor)
        assert have.numpy() == pytest.approx(want.numpy(), abs=1e-5)


# ---------------------------------------------------------------- the interface
class Smooth(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1D(2, 2, 3, padding=1)
        self.rnn = nn.GRU(2, 3)

    def forward(self, x):  # [B, T, 2]
        y = F.relu(self.conv(x.transpose([0, 2, 1]))).transpose([0, 2, 1])
        y, last = self.rnn(y)
        return {"frames": y, "last": last}


def test_the_last_state_is_that_of_the_frames_so_far():
    paddle.seed(0)
    layer, x = Smooth(), sequence([1, None, 2], 1, 10)
    s = dy2st.stream(layer, {"x": 1}, 4, input_spec=spec([1, None, 2]))
    assert s.delay == {"frames": 1, "last": None}
    with paddle.no_grad():
        want = layer(paddle.to_tensor(x))
    first = s(x[:, :4])["frames"]
    second = s(x[:, 4:8])["frames"]
    rest = s.flush(x[:, 8:])
    have = np.concatenate([first, second, rest["frames"]], 1)[:, 1:]
    assert have == pytest.approx(want["frames"].numpy(), abs=1e-6)
    assert rest["last"] == pytest.approx(want["last"].numpy(), abs=1e-6)


def test_a_program_without_a_spec_is_made_by_its_first_call():
    s = dy2st.stream(lambda x: paddle.cumsum(x, 1), axis={"x": 1}, chunk=2)
    with pytest.raises(AttributeError, match="first call"):
        s.delay  # noqa: B018
    assert s(paddle.ones([1, 2])).tolist() == [[1, 2]]
    assert s(paddle.ones([1, 2])).tolist() == [[3, 4]]
    assert s.flush().shape == [1, 0]
    assert s(paddle.ones([1, 2])).tolist() == [[1, 2]]


def test_state_is_looked_at_and_not_written():
    s = dy2st.stream(lambda x: paddle.cumsum(x, 1), {"x": 1}, 2, input_spec=spec([1, None]))
    s(np.ones([1, 2], "float32"))
    (name,) = (n for n in s.state() if n.startswith("cumsum"))
    assert s.state()[name].tolist() == [[2]]
    with pytest.raises(ValueError, match="read-only"):
        s.state()[name][...] = 0
    s.reset()
    assert s.state()[name].tolist() == [[0]]


def test_results_in_arrays_of_the_caller():
    s = dy2st.stream(lambda x: x * 2, {"x": 1}, 2, input_spec=spec([1, None]))
    room, x = np.zeros([1, 2], "float32"), np.ones([1, 2], "float32")
    assert s(x, out=[room]) is room
    assert room.tolist() == [[2, 2]]
    for bad in ([np.zeros([1, 3], "float32")], [np.zeros([1, 2])], [x], []):
        with pytest.raises(ValueError, match="out="):
            s(x, out=bad)


def test_calls_that_do_not_fit():
    s = dy2st.stream(lambda x: x * 2, {"x": 1}, 2, input_spec=spec([1, None]))
    for x in (np.ones([1, 3], "float32"), np.ones([2, 2], "float32"), np.ones([2], "float32")):
        with pytest.raises(ValueError, match="has the shape"):
            s(x)
    with pytest.raises(TypeError, match="float64"):
        s(np.ones([1, 2]))
    with pytest.raises(TypeError, match="takes x"):
        s()
    with pytest.raises(TypeError, match="no argument 'z'"):
        dy2st.stream(lambda x: x, {"z": 1}, 2, input_spec=spec([1, None]))
    odd = dy2st.stream(lambda x: x[:, : x.shape[1] // 2 * 2], {0: 1}, 4, spec([1, None]))
    assert odd.flush(np.ones([1, 6], "float32")).shape == (1, 6)
    with pytest.raises(ValueError, match="7 frames"):
        odd.flush(np.ones([1, 7], "float32"))


@pytest.mark.slow
def test_a_batch_of_independent_streams():
    """Stream 1 begins and ends while stream 0 goes on."""
    layer = model("MDTC")
    s = dy2st.stream(layer, {"x": 1}, 5, input_spec=spec([1, None, 10]))
    streams = s.batch(2)
    a, b = sequence([2, None, 10], 1, 20), sequence([1, None, 10], 1, 8, seed=1)
    outs = [streams(paddle.to_tensor(a[:, :5])), streams(paddle.to_tensor(a[:, 5:10]))]
    streams.reset(1)
    a[1:, 10:15] = b[:, :5]
    outs.append(streams(paddle.to_tensor(a[:, 10:15])))
    tail = streams.flush(1, paddle.to_tensor(b[:, 5:]))
    outs.append(streams(paddle.to_tensor(a[:, 15:])))
    with paddle.no_grad():
        want = layer(paddle.to_tensor(a[:1])).numpy(), layer(paddle.to_tensor(b)).numpy()
    whole = paddle.concat(outs, 1).numpy()
    assert whole[:1] == pytest.approx(want[0], abs=1e-5)
    ended = np.concatenate([outs[2].numpy()[1:], tail.numpy()], 1)
    assert ended == pytest.approx(want[1], abs=1e-5)
    with pytest.raises(ValueError, match="2 streams"):
        streams(paddle.to_tensor(a[:1, :5]))


def test_streams_need_a_first_axis_that_is_not_the_time():
    turned = dy2st.stream(lambda x: x.T, {"x": 1}, 2, input_spec=spec([1, None]))
    for s, name in (
        (turned, "result 0"),
        (dy2st.stream(lambda x: x.T, {"x": 0}, 2, spec([None, 1])), "x"),
    ):
        with pytest.raises(ValueError, match=f"the time in {name}"):
            s.batch(2)


@pytest.mark.parametrize("chunk", [16, None])
def test_independent_streams_of_attention(chunk):
    layer = model("U2")
    streams = dy2st.stream(layer, {"x": 1}, chunk, spec([1, None, 8])).batch(3)
    x = sequence([3, None, 8], 1, 64)
    have = np.concatenate([streams(x[:, t : t + 16]) for t in range(0, 64, 16)], 1)
    with paddle.no_grad():
        want = np.concatenate([layer(paddle.to_tensor(x[k : k + 1])).numpy() for k in range(3)])
    assert have == pytest.approx(want, abs=1e-5)


def test_a_chunk_that_is_itself_a_result():
    s = dy2st.stream(lambda x: (x, x[:, 1:]), {"x": 1}, 2, input_spec=spec([1, None]))
    x = np.array([[1, 2, 3, 4, 5]], "float32")
    one, two = fed(s, {"x": x}, [2, 2])
    assert s.delay == (0, 1)
    assert one.tolist() == [[1, 2, 3, 4, 5]]
    assert two.tolist() == [[2, 3, 4, 5]]


# ---------------------------------------------------------------- files
@pytest.mark.parametrize("chunk", [10, None])
def test_a_saved_program_goes_on_without_paddle(chunk, tmp_path):
    s = dy2st.stream(model("MDTC"), {"x": 1}, chunk, input_spec=spec([1, None, 10]))
    x = sequence([1, None, 10], 1, 27)
    (want,) = fed(s, {"x": x}, [10, 10])
    s(x[:, :10])  # the file has the state of a new sequence
    dy2st.save(s, tmp_path / "spot.dy2st")
    loaded = dy2st.load(tmp_path / "spot.dy2st")
    assert (loaded.delay, loaded.chunk) == (s.delay, chunk)
    (have,) = fed(loaded, {"x": x}, [10, 10])
    assert np.array_equal(have, want)


# ---------------------------------------------------------------- check_stream
def test_a_check_names_the_first_frame_and_op(monkeypatch):
    from ir.streaming import chunks

    plain = chunks.ChunkBuilder.masked
    monkeypatch.setattr(chunks.ChunkBuilder, "masked", lambda self, x, fill, first=0: x)
    s = dy2st.stream(bias_and_conv, {"x": 2}, 4, input_spec=spec([1, 1, None]))
    found = s.check_stream(np.ones([1, 1, 12], "float32"))
    assert not found
    assert (found.op, found.frame) == ("conv", 11)
    assert re.search(r"first op that differs is conv at test_streaming.py:\d+", str(found))
    monkeypatch.setattr(chunks.ChunkBuilder, "masked", plain)
    s = dy2st.stream(bias_and_conv, {"x": 2}, 4, input_spec=spec([1, 1, None]))
    assert s.check_stream(np.ones([1, 1, 12], "float32"))


def bias_and_conv(x):
    return F.conv1d(x + 1, paddle.ones([1, 1, 3]), padding=1)


@pytest.mark.slow
def test_a_check_says_that_the_weights_have_changed():
    layer = model("MDTC")
    s = dy2st.stream(layer, {"x": 1}, 5, input_spec=spec([1, None, 10]))
    layer.out.bias.set_value(layer.out.bias + 1)
    found = s.check_stream(sequence([1, None, 10], 1, 20))
    assert (found.output, found.frame, found.op) == (0, 0, "")
    assert "the function has changed" in str(found)
