"""Streaming programs.

What `dy2st.stream` and the programs that it makes refuse. `stream` makes a program of chunks of 4
frames; `changed` replaces a text in one of the members of a file.
"""

import random

import paddle
import paddle.nn.functional as F

import dy2st
from tests.docs.errors import script
from tests.docs.errors.files import changed

OPEN = [paddle.static.InputSpec([1, None, 3], "float32", "x")]
BOTH = [*OPEN, paddle.static.InputSpec([1, None, 3], "float32", "y")]
FRAMES = paddle.ones([1, 4, 3])


def stream(function, spec=OPEN, chunk=4):
    return dy2st.stream(function, {s.name: 1 for s in spec}, chunk, spec)


def smooth(x):
    state, rows = paddle.zeros([1, 3]), []
    for t in range(x.shape[1]):
        state = 0.5 * state + x[:, t]
        rows.append(state)
    return paddle.stack(rows, 1)


def saved(function=smooth):
    dy2st.save(stream(function), "saved.dy2st")
    return "saved.dy2st"


# ---------------------------------------------------------------- making a program
@script
def streamed_complex_result():
    stream(lambda x: x * 1j)


@script
def chunk_of_no_frames():
    stream(smooth, chunk=0)


@script
def streamed_argument_that_does_not_exist():
    dy2st.stream(smooth, {"signal": 1}, 4, OPEN)


@script
def axis_of_time_that_does_not_exist():
    dy2st.stream(smooth, {"x": 3}, 4, OPEN)


@script
def two_open_axes():
    spec = paddle.static.InputSpec([None, None, 3], "float32", "x")
    dy2st.stream(smooth, {"x": 1}, 4, [spec])


@script
def streaming_program_that_is_not_made_yet():
    lazy = dy2st.stream(smooth, {"x": 1}, 4)
    lazy.reset()


@script
def chunk_that_is_no_multiple_of_a_stride():
    def every_third(x):
        return F.conv1d(x.transpose([0, 2, 1]), paddle.ones([3, 3, 3]), stride=3)

    stream(every_third)


@script
def streamed_random_numbers():
    def noisy(x):
        return x + paddle.randn([3])

    stream(noisy)


@script
def streamed_random_numbers_of_python():
    def noisy(x):
        return x + random.random()

    stream(noisy)


gain = paddle.ones([3, 4]).t()[0:1]


@script
def streamed_weight_whose_strides_are_read():
    def scaled(x):
        return x @ gain if gain.is_contiguous() else x * gain[0, 0]

    stream(scaled)


@script
def streamed_function_that_returns_a_number_of_data():
    gain = paddle.to_tensor([0.5])

    def scaled(x):
        return x * gain, float(gain)

    stream(scaled)


@script
def streamed_function_that_returns_a_type():
    def typed(x):
        return x * 2, x.dtype

    stream(typed)


class Meter:
    def level(self, x):
        self.last = x * 2
        return x


@script
def streamed_function_that_stores_a_result():
    stream(Meter().level)


@script
def streamed_function_that_takes_one_length():
    def joined(x):
        return x + paddle.ones([1, 8, 3])

    stream(joined)


@script
def streamed_function_that_divides_lengths():
    def ratio(x, y):
        return x * (x.shape[1] // y.shape[1])

    stream(ratio, BOTH)


@script
def streamed_function_that_decides_on_a_square():
    def small(x):
        return x * 2 if x.shape[1] * x.shape[1] > 100 else x

    stream(small)


@script
def streamed_count_in_steps():
    def halves(x):
        return x[0, 0, 0] * paddle.arange(0, x.shape[1], 0.5)

    stream(halves)


# ---------------------------------------------------------------- calls
@script
def chunk_of_another_type():
    stream(smooth)(FRAMES.astype("float64"))


@script
def chunk_of_another_size():
    stream(smooth)(FRAMES[:, :3])


@script
def chunk_without_frames():
    stream(smooth, chunk=None)(FRAMES[:, :0])


@script
def chunk_that_does_not_fill_the_strides():
    def pairs(x):
        return x.reshape([1, -1, 2, 3]).sum(2)

    stream(pairs, chunk=None)(FRAMES[:, :3])


@script
def missing_chunk():
    stream(lambda x, y: x + y, BOTH)(FRAMES)


@script
def missing_chunk_at_the_end():
    stream(lambda x, y: x + y, BOTH).flush(FRAMES)


@script
def too_many_chunks():
    stream(smooth)(FRAMES, FRAMES)


@script
def chunks_of_several_sizes():
    stream(lambda x, y: x + y, BOTH).flush(FRAMES, FRAMES[:, :3])


@script
def sequence_that_is_too_short():
    def late(x):
        if x.shape[1] > 2:
            return x[:, 2:]
        return x

    stream(late).flush(FRAMES[:, :2])


@script
def sequence_that_ends_at_an_odd_frame():
    def halves(x):
        columns = x.transpose([0, 2, 1])
        first, both = F.avg_pool1d(columns, 1, 2), F.avg_pool1d(columns, 2, 2)
        return first + paddle.zeros(first.shape), both

    stream(halves).flush(FRAMES[:, :3])


@script
def snapshot_of_another_program():
    snapshot = stream(smooth).snapshot()
    stream(lambda x: x[:, 1:] - x[:, :-1]).restore(snapshot)


@script
def output_array_of_another_size():
    stream(smooth)(FRAMES.numpy(), out=[FRAMES[:, :3].numpy()])


@script
def output_array_that_is_the_argument():
    x = FRAMES.numpy()
    stream(smooth)(x, out=[x])


@script
def batch_of_another_size():
    streams = stream(smooth).batch(2)
    streams(paddle.ones([3, 4, 3]))


@script
def batch_along_the_time():
    stream(lambda x: x.transpose([1, 0, 2])).batch(2)


# ---------------------------------------------------------------- files
@script
def saved_without_an_input_spec():
    dy2st.save(smooth, "saved.dy2st")


@script
def axis_of_time_in_a_file():
    dy2st.load(changed(saved(), "manifest.json", '"x": 1', '"x": 7'))


@script
def state_of_another_type():
    path = changed(saved(), "program.txt", "%state1: i64[] buffer", "%state1: i64[1] buffer")
    dy2st.load(path)


@script
def state_that_is_not_in_the_list():
    dy2st.load(changed(saved(), "manifest.json", '"units"\n', '"unit"\n'))


@script
def frames_that_are_no_number():
    dy2st.load(changed(saved(), "manifest.json", '"frames": 4', '"frames": "4"'))


@script
def result_without_its_axis_of_time():
    dy2st.load(changed(saved(), "manifest.json", "1,\n    4,", "5,\n    4,"))


@script
def length_that_is_divided_by_nothing():
    dy2st.load(changed(saved(), "manifest.json", "[],\n    false", "[[1, 0, 1]],\n    false"))


@script
def result_of_a_stream_that_is_not_computed():
    dy2st.load(changed(saved(), "manifest.json", '"out",\n   0', '"out",\n   7'))


@script
def constant_that_is_a_list():
    dy2st.load(changed(saved(), "manifest.json", '"out",\n   0', '"constant",\n   [0]'))


@script
def unknown_kind_of_result_of_a_stream():
    dy2st.load(changed(saved(), "manifest.json", '"out"', '"pickle"'))
