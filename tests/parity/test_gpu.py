"""Functions and Layers on the emulated GPU: results, writes, gradients and saved files are those of
eager Paddle, and what it cannot run is refused before anything has changed."""

from __future__ import annotations

import copy
import random
import warnings

import numpy as np
import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from executor.gpu import DeviceArray, DriverError, HostCopyWarning
from executor.gpu.arrays import uploaded
from tests import check
from tests.dy2st.capture.test_divided_sizes import IMAGES, Upsampled
from tests.executor.gpu import emulator
from tests.parity.programs import PROGRAMS
from tests.parity.test_programs import compare, length, rows, sizes_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::executor.gpu.HostCopyWarning"),
    pytest.mark.skipif(emulator.compiler() is None, reason="no C++ compiler"),
]


@pytest.fixture(autouse=True)
def gpu(request):
    emulator.library()


class Cell(paddle.nn.Layer):
    """A recurrent cell with a buffer that counts calls."""

    def __init__(self):
        super().__init__()
        self.ih, self.hh = paddle.nn.Linear(3, 5), paddle.nn.Linear(5, 5)
        self.register_buffer("calls", paddle.zeros([], "int64"))

    def forward(self, x):
        h, ys = paddle.zeros([x.shape[1], 5]), []
        for t in range(x.shape[0]):
            h = paddle.tanh(self.ih(x[t]) + self.hh(h))
            ys.append(h)
        self.calls.add_(paddle.to_tensor(1))
        return paddle.stack(ys), h


class Until(paddle.nn.Layer):
    def forward(self, h, w, limit):
        steps = 0
        while h.abs().max() > limit:
            h = paddle.tanh(paddle.matmul(h, w))
            if h.sum() > 1:
                h = h - 0.5
            steps += 1
        return h, steps


class InPlace(paddle.nn.Layer):
    def forward(self, x, i):
        for t in range(x.shape[0]):
            x[t] = x[t] * 2 + x[i]
        return x.sum()


class Rows(paddle.nn.Layer):
    def forward(self, x, at):
        rows, h = [x[0] * k for k in range(8)], x[0]
        for t in range(x.shape[0]):
            rows[int(at[t])] = h + x[t]
            h = h * 0.5 + rows[int(at[t]) - 1]
        for _ in range(x.shape[0]):
            h = h * 0.5 + rows.pop()
        return h, rows


# ---------------------------------------------------------------- results, writes, gradients
def test_a_recurrent_layer_and_its_buffer():
    cell = Cell()
    with paddle.no_grad():
        check.parity(cell, lambda: [paddle.randn([4, 2, 3])], device="gpu")


@pytest.mark.slow
def test_gradients_of_a_recurrent_layer():
    eager = Cell()
    static = dy2st.to_static(copy.deepcopy(eager), device="gpu")
    for _ in range(2):
        x = paddle.randn([4, 2, 3])
        for layer in (eager, static):
            ys, h = layer(x)
            (ys.sum() + (h * h).sum()).backward()
    for a, b in zip(eager.parameters(), static.parameters()):
        np.testing.assert_allclose(b.grad.numpy(), a.grad.numpy(), rtol=1e-4, atol=1e-5)


class Gated(paddle.nn.Layer):
    """A linear recurrence, and a running sum of it."""

    def __init__(self):
        super().__init__()
        self.decay = self.create_parameter([6])

    def forward(self, g, x):
        h, total, ys = paddle.zeros([2, 6]), paddle.zeros([2, 6]), []
        keep = paddle.nn.functional.sigmoid(self.decay)
        for t in range(x.shape[0]):
            h = keep * h * paddle.nn.functional.sigmoid(g[t]) + x[t]
            total = total + h * 0.1
            ys.append(h + total)
        return paddle.stack(ys), h


@pytest.mark.slow
def test_a_linear_recurrence_and_its_gradient():
    eager = Gated()
    static = dy2st.to_static(copy.deepcopy(eager), device="gpu")
    for _ in range(2):
        given = [paddle.randn([100, 2, 6]) for _ in range(2)]
        found = []
        for layer in (eager, static):
            own = [q.clone() for q in given]
            for q in own:
                q.stop_gradient = False
            ys, h = layer(*own)
            (ys.sin().sum() + (h * h).sum()).backward()
            found.append([ys, h, layer.decay.grad, *(q.grad for q in own)])
        for a, b in zip(*found):
            np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-4, atol=1e-4)
    assert "linearscan" in str(dy2st.report(static, *given))


def test_a_while_on_data_and_a_branch():
    check.parity(
        Until(),
        lambda: [paddle.randn([2, 4]) * 2, paddle.randn([4, 4]) / 2, paddle.to_tensor(0.9)],
        device="gpu",
    )


def test_writes_to_an_argument():
    check.parity(InPlace(), lambda: [paddle.randn([4, 3]), paddle.to_tensor(1)], device="gpu")


@pytest.mark.slow
def test_stores_at_any_place_of_a_list_that_a_second_loop_empties():
    at = paddle.to_tensor([3, 0, -7, 7, 3, 1])
    check.parity(Rows(), lambda: [paddle.randn([6, 3]), at], device="gpu")


def test_an_index_from_data_out_of_range_names_the_line_and_writes_nothing():
    static = dy2st.to_static(InPlace(), device="gpu")
    x = paddle.randn([4, 3])
    before = x.numpy()
    with pytest.raises(IndexError, match=r"test_gpu.py|index 9") as caught:
        static(x, paddle.to_tensor(9))
    assert "test_gpu.py" in str(getattr(caught.value, "__notes__", "")) + str(caught.value)
    np.testing.assert_array_equal(x.numpy(), before)


def every_other(params):
    """The others are left to the night: programs of the table differ more in their Python than in
    what a GPU sees of them."""
    night = [pytest.param(*q.values, marks=pytest.mark.nightly, id=q.id) for q in params[1::2]]
    return [*params[::2], *night]


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(rows(lambda p: p.sizes)))
def test_programs_of_the_table(name):
    """The few that a GPU refuses say why."""
    p = PROGRAMS[name]
    new, eager = dy2st.to_static(p.make(), device="gpu"), p.make()
    try:
        for call in range(p.calls):
            eager = compare(new, eager, p, sizes_of(length(p)), call)
    except dy2st.SourceError as e:
        assert "a GPU cannot" in str(e)
        pytest.skip("refused by name")


# ---------------------------------------------------------------- saved files
@pytest.mark.slow
def test_a_saved_program_runs_on_the_gpu(tmp_path):
    cell = dy2st.to_static(Cell())
    dy2st.save(cell, tmp_path / "cell", input_spec=[InputSpec([None, None, 3], "float32", "x")])
    here, there = (dy2st.load(tmp_path / "cell", device=d) for d in ("cpu", "gpu"))
    for t in (1, 5):
        x = np.random.default_rng(t).normal(size=(t, 2, 3)).astype("f4")
        for a, b in zip(here(x), there(x)):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert int(there.buffers["calls"]) == 2


class Looked(paddle.nn.Layer):
    """Results that are views, an argument, a number, a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", paddle.zeros([3]))

    def forward(self, x):
        y = x * 2
        self.mean = self.mean * 0.5 + y.mean(0)
        return y.t(), x, y[1], [y.sum().item(), y[:, :2]], self.mean


def test_results_of_a_saved_program_lie_where_its_arguments_do(tmp_path):
    paddle.seed(0)
    dy2st.save(
        dy2st.to_static(Looked()),
        tmp_path / "looked",
        input_spec=[InputSpec([None, 3], "float32", "x")],
    )
    here, host, there = (dy2st.load(tmp_path / "looked", device=d) for d in ("cpu", "gpu", "gpu"))
    for t in (2, 5):
        x = np.random.default_rng(t).normal(size=(t, 3)).astype("f4")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            results = there(uploaded(x))
        for a, b, c in zip(*map(paddle.utils.flatten, (here(x), host(x), results))):
            assert type(a) is type(b) and isinstance(c, (float, DeviceArray))
            np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(c, a, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(there.buffers["mean"].numpy(), here.buffers["mean"], rtol=1e-5)
    there.reset()
    assert not there.buffers["mean"].numpy().any()
    there.buffers["mean"].assign(np.ones(3, np.float32))
    np.testing.assert_allclose(there(uploaded(x))[4].numpy(), 0.5 + 2 * x.mean(0), rtol=1e-5)


class Turned(paddle.nn.Layer):
    """Complex arguments, weights, state and results, and a view of one."""

    def __init__(self):
        super().__init__()
        self.register_buffer("w", paddle.to_tensor(np.array([1j, 2, 3], "complex64")))
        self.register_buffer("h", paddle.zeros([3], "complex64"))

    def forward(self, x):
        self.h.set_value(self.h * self.w + x.sum(0))
        return self.h * 1j, x[0], x.real()


def test_complex_arrays_of_a_saved_program_lie_where_its_arguments_do(tmp_path):
    dy2st.save(Turned(), tmp_path / "f", [InputSpec([None, 3], "complex64", "x")])
    here, host, there = (dy2st.load(tmp_path / "f", device=d) for d in ("cpu", "gpu", "gpu"))
    for t in (1, 3):
        parts = np.random.default_rng(t).normal(size=(2, t, 3)).astype("f4")
        x = parts[0] + 1j * parts[1]
        there_x = uploaded(np.stack([x, x], 1)).viewed(lambda a: a[:, 0])
        with pytest.raises(ValueError, match="not contiguous: give a contiguous copy"):
            there(there_x.viewed(lambda a: a[:, ::-1]))
        for a, b, c in zip(here(x), host(x), there(there_x.copy()), strict=True):
            assert isinstance(c, DeviceArray) and a.dtype == b.dtype == c.dtype
            np.testing.assert_allclose(b, a, rtol=1e-5)
            np.testing.assert_allclose(c, a, rtol=1e-5)
    np.testing.assert_allclose(there.buffers["h"].numpy(), here.buffers["h"], rtol=1e-5)


# ---------------------------------------------------------------- what is said, and refused
def test_the_report_has_the_schedule():
    static = dy2st.to_static(Cell(), device="gpu")
    with paddle.no_grad():
        text = str(dy2st.report(static, paddle.randn([4, 2, 3])))
    assert "schedule:" in text and "loop #i1 < 4" in text and "barrier of" in text
    assert "schedule" not in str(dy2st.report(dy2st.to_static(Cell()), paddle.randn([4, 2, 3])))


def test_tensors_on_the_host_are_counted():
    static = dy2st.to_static(Until(), device="gpu")
    given = paddle.ones([2, 4]), paddle.eye(4), paddle.to_tensor(0.9)
    with pytest.warns(HostCopyWarning, match="forward: .* to the GPU and"):
        static(*given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        static(*given)


def svd(x):
    y = x + 1
    return paddle.linalg.svd(y)[1]


def draws(x):
    while x.sum() < 20:
        x = x * (2 + random.random())
    return x


def collects(x):
    ys = []
    while x.sum() < 20:
        x = x * 2
        ys.append(x)
    return paddle.stack(ys)


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (draws, "a GPU cannot run a function of Python, which is called on the host"),
        (collects, "a GPU cannot collect results of a loop without a bound"),
    ],
)
def test_calls_of_python_and_growth_without_a_bound_are_refused(f, text):
    state = random.getstate()
    with pytest.raises(dy2st.SourceError, match=text):
        dy2st.to_static(f, device="gpu")(paddle.ones([3]))
    assert random.getstate() == state


def test_a_kernel_of_paddle_is_refused_with_its_line():
    static = dy2st.to_static(svd, device="gpu")
    with pytest.raises(dy2st.SourceError, match="a GPU cannot run 'svd'") as caught:
        static(paddle.ones([3, 3]))
    assert 'Translate this function with device="cpu"' in str(caught.value)
    assert "return paddle.linalg.svd(y)[1]" in str(caught.value)


def test_a_missing_driver_is_named_before_anything_is_translated(monkeypatch, tmp_path):
    cell = dy2st.to_static(Cell())
    dy2st.save(cell, tmp_path / "cell", input_spec=[InputSpec([2, 2, 3], "float32", "x")])
    monkeypatch.setenv("DY2ST_CUDA_LIBRARY", "libnothing.so")
    with pytest.raises(DriverError, match="needs the CUDA driver"):
        dy2st.to_static(Cell(), device="gpu")
    with pytest.raises(DriverError, match="needs the CUDA driver"):
        dy2st.load(tmp_path / "cell", device="gpu")
    with pytest.raises(ValueError, match='device is "cpu" or "gpu", not \'tpu\''):
        dy2st.to_static(Cell(), device="tpu")
    assert cell(paddle.ones([2, 2, 3]))[1].shape == [2, 5]


# ---------------------------------------------------------------- texts with values
def shows(x, limit):
    y = x * 2
    if not (y < limit).all():
        raise ValueError(f"too large: {y}, {y[1:, ::2]} of {y.sum()}")
    return y


def stops_in_a_loop(x, limit):
    for t in range(x.shape[0]):
        row = x[t] * 2
        if row.max() > limit:
            raise ValueError(f"row {t}: {row} of {x.t()}")
    return x


@pytest.mark.parametrize("f", [shows, stops_in_a_loop], ids=lambda f: f.__name__)
def test_tensors_in_the_text_of_an_error_are_those_of_eager(f):
    """Also of other values in the next call."""
    static = dy2st.to_static(f, device="gpu")
    for scale in (1.0, 3.0):
        x, limit = paddle.arange(12, dtype="float32").reshape([3, 4]) * scale, paddle.to_tensor(5.0)
        found, eager = (check.outcome(q, (x, limit)) for q in (static, f))
        assert type(found) is type(eager) is ValueError
        assert str(found) == str(eager)
    np.testing.assert_array_equal(static(x * 0, limit), f(x * 0, limit))


def test_a_streaming_program_is_refused(tmp_path):
    spec = [InputSpec([1, None, 3], "float32", "x")]
    dy2st.save(dy2st.stream(lambda x: x * 2, {"x": 1}, 4, spec), tmp_path / "double")
    with pytest.raises(dy2st.SourceError, match="streaming programs run on the CPU"):
        dy2st.load(tmp_path / "double", device="gpu")


def test_strides_of_open_sizes():
    """Sizes that are quotients, in training."""
    shapes, spec = IMAGES[Upsampled]
    args = iter([check.data(*shape) for shape in shapes])
    options = {"input_spec": [InputSpec(spec, "float64")], "device": "gpu"}
    check.trains(Upsampled, lambda: [next(args)], steps=len(shapes), **options)
