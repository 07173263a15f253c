"""Paddle's tensors on the GPU: taken, written and given where they lie, as work of its stream.

Paddle is built for the CPU here. The stand-ins say of its tensors that they lie on the GPU, and the
emulator has all memory of the process; so whatever Paddle computes on the host stands for what it
computes on the GPU.
"""

from __future__ import annotations

import copy
import ctypes
import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from dy2st.compiled import entry, foreign_kernels
from dy2st.compiled.training import BufferPool
from executor.gpu import DriverError, HostCopyWarning
from executor.gpu.driver import Pointer, driver
from tests import check
from tests.executor.gpu import emulator
from tests.parity.test_gpu import Cell, Gated, InPlace, Rows, Until

pytestmark = pytest.mark.skipif(emulator.compiler() is None, reason="no C++ compiler")


@dataclass
class Counts:
    """What the emulator has done since: graphs on Paddle's stream and on others, waits of the host,
    copies."""

    here: int
    elsewhere: int
    waits: int
    copies: int


class Paddle:
    """Paddle with a GPU; `host` are tensors that it has on the host."""

    def __init__(self) -> None:
        stream = Pointer()
        driver().call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(1))
        self.stream, self.host = stream.value or 0, list[paddle.Tensor]()
        self.before = self.now()

    def is_on_gpu(self, tensor: paddle.Tensor) -> bool:
        return all(tensor.data_ptr() != q.data_ptr() for q in self.host)

    def put_on_host(self, tensor: paddle.Tensor) -> None:
        self.host.append(tensor)
        low = tensor.data_ptr()
        emulator.library().emu_on_host(ctypes.c_uint64(low), ctypes.c_uint64(low + 4 * tensor.size))

    def now(self) -> Counts:
        library, found = emulator.library(), emulator.counted()
        library.emu_launched.restype = ctypes.c_uint64
        here = library.emu_launched(ctypes.c_void_p(self.stream))
        waits = found[emulator.SYNCHRONISATIONS] + library.emu_settled()
        return Counts(here, found[emulator.GRAPHS] - here, waits, found[emulator.COPIES])

    def since(self) -> Counts:
        now, then = self.now(), self.before
        pairs = zip(vars(now).values(), vars(then).values())
        self.before = now
        return Counts(*(a - b for a, b in pairs))


@pytest.fixture
def gpu(monkeypatch):
    emulator.library()
    monkeypatch.setenv("EMULATOR_UNIFIED", "1")
    found = Paddle()
    monkeypatch.setattr(foreign_kernels, "is_on_gpu", found.is_on_gpu)
    monkeypatch.setattr(foreign_kernels, "makes_on_gpu", lambda: True)
    monkeypatch.setattr(foreign_kernels, "gpu_place", paddle.CPUPlace)
    monkeypatch.setattr(foreign_kernels, "current_stream", lambda: found.stream)
    yield found
    emulator.library().emu_on_host(ctypes.c_uint64(0), ctypes.c_uint64(0))


# ---------------------------------------------------------------- where things lie
def test_inference_copies_nothing_and_waits_for_nothing(gpu):
    cell = dy2st.to_static(Cell(), device="gpu")
    with paddle.no_grad():
        check.parity(Cell(), lambda: [paddle.randn([4, 2, 3])], device="gpu")
        gpu.since()
        for _ in range(3):
            cell(paddle.randn([4, 2, 3]))
    assert gpu.since() == Counts(here=3, elsewhere=0, waits=0, copies=3), "the tables"


@pytest.mark.slow
def test_gradients_stay_there(gpu):
    """Of parameters and arguments, over several steps of training, with an optimiser."""
    for make, given in ((Cell, [[4, 2, 3]]), (Gated, [[70, 2, 6]] * 2)):
        eager = make()
        static = dy2st.to_static(copy.deepcopy(eager), device="gpu")
        optimisers = [paddle.optimizer.SGD(0.1, q.parameters()) for q in (eager, static)]
        gpu.since()
        for _ in range(3):
            own, found = [paddle.randn(s) for s in given], []
            for layer, optimiser in zip((eager, static), optimisers):
                x = [q.clone().detach() for q in own]
                for q in x:
                    q.stop_gradient = False
                ys, h = layer(*x)
                (ys.sum() + (h * h).sum()).backward()
                found.append([ys, h, *(q.grad for q in (*x, *layer.parameters()))])
                optimiser.step()
                optimiser.clear_grad()
            for a, b in zip(*found):
                np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-4, atol=1e-4)
        assert gpu.since() == Counts(here=6, elsewhere=0, waits=0, copies=6), make


def test_memory_of_residuals_stays_with_its_stream():
    """Work of another one may still read it."""
    spare, place = BufferPool(), paddle.CPUPlace()
    tensor, dtype = paddle.empty([1 << 16]), paddle.float32
    for stream, taken in ((7, True), (8, False)):
        spare.give(0, tensor, foreign_kernels.Placement(place, stream))
        found = spare.take(0, tensor.shape, dtype, foreign_kernels.Placement(place, 7))
        assert (found is tensor) == taken and not spare.held


@pytest.mark.parametrize(
    ("make", "given"),
    [
        (InPlace, lambda: [paddle.randn([4, 3]), paddle.to_tensor(1)]),
        (Rows, lambda: [paddle.randn([6, 3]), paddle.to_tensor([3, 0, -7, 7, 3, 1])]),
        (Until, lambda: [paddle.randn([2, 4]), paddle.randn([4, 4]) / 2, paddle.to_tensor(0.9)]),
    ],
)
def test_writes_and_lengths_that_data_decides(gpu, make, given):
    """The host waits for the end of a call that can fail, or that tells a length."""
    check.parity(make(), given, device="gpu")
    found = gpu.since()
    assert found.here and not found.elsewhere and found.waits == found.here
    assert found.copies == 2 * found.here


def test_an_index_out_of_range_is_an_error_and_writes_nothing(gpu):
    static, x = dy2st.to_static(InPlace(), device="gpu"), paddle.randn([4, 3])
    before = x.numpy()
    with pytest.raises(IndexError, match="index 9"):
        static(x, paddle.to_tensor(9))
    np.testing.assert_array_equal(x.numpy(), before)


def mixed(x, w, k):
    y = paddle.matmul(x.t(), w) * k
    w.add_(y[:1])
    return y


@pytest.mark.slow
def test_a_tensor_on_the_host_is_copied_and_a_number_is_not(gpu):
    """The other ones are taken where they lie, views among them, and so is the result."""
    static = dy2st.to_static(mixed, device="gpu")
    for step, k in enumerate((2.0, 3.0, 4.0, 5.0)):
        x, w = paddle.randn([8, 6])[2:5], paddle.randn([3, 5])
        mine, own = w.clone(), w.clone()
        if step == 3:
            gpu.put_on_host(own)
            with pytest.warns(HostCopyWarning, match="mixed: .* 1 to the GPU and 1 back"):
                got = static(x, own, k)
            assert gpu.since().copies == 3, "the table, the tensor and back"
        else:
            gpu.since()
            with warnings.catch_warnings():
                warnings.simplefilter("error", HostCopyWarning)
                got = static(x, own, k)
            assert gpu.since() == Counts(1, 0, 0, 1)
        want = mixed(x, mine, k)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(own.numpy(), mine.numpy(), rtol=1e-5, atol=1e-5)
        if step == 3:
            assert gpu.is_on_gpu(got)


def makes():
    return paddle.ones([3]) * 2


def test_what_has_no_tensors_is_made_where_paddle_makes_them(gpu, monkeypatch):
    static = dy2st.to_static(makes, device="gpu")
    np.testing.assert_array_equal(static().numpy(), [2, 2, 2])
    assert gpu.since().here == 1
    monkeypatch.setattr(foreign_kernels, "makes_on_gpu", lambda: False)
    np.testing.assert_array_equal(static().numpy(), [2, 2, 2])
    assert gpu.since().elsewhere == 1


def test_a_call_with_tensors_on_the_host_only_runs_on_a_stream_of_its_own(gpu, monkeypatch):
    monkeypatch.setattr(foreign_kernels, "is_on_gpu", lambda t: False)
    static = dy2st.to_static(makes_of, device="gpu")
    x = paddle.ones([3])
    gpu.put_on_host(x)
    with pytest.warns(HostCopyWarning):
        static(x)
    assert gpu.since().elsewhere == 1


def makes_of(x):
    return x * 2


@pytest.mark.parametrize("trained", [False, True])
def test_code_of_the_cpu_is_given_nothing_on_the_gpu(monkeypatch, trained):
    """Nor when a later call has tensors there; no host call is made then."""
    monkeypatch.setattr(foreign_kernels, "is_on_gpu", lambda t: t is there)
    monkeypatch.setattr(entry, "has_gpus", lambda: True)
    cell, here, there = Cell(), paddle.ones([4, 2, 3]), paddle.ones([4, 2, 3])
    static = dy2st.to_static(cell)
    with paddle.set_grad_enabled(trained):
        assert static(here)[1].shape == [2, 5]
        with pytest.raises(dy2st.SourceError, match="x lies on the GPU, and this .*for the CPU"):
            static(there)
        there = cell.hh.weight
        with pytest.raises(dy2st.SourceError, match="hh.weight lies on the GPU") as caught:
            static(here)
        there = None
        assert static(here)[1].shape == [2, 5] and int(cell.calls) == 2
    assert 'device="gpu"' in str(caught.value)


def test_memory_of_another_gpu_is_refused_by_name(gpu, monkeypatch):
    static = dy2st.to_static(makes_of, device="gpu")
    static(paddle.ones([3]))
    monkeypatch.setenv("EMULATOR_ORDINAL", "1")
    with pytest.raises(DriverError, match="^x lies on GPU 1, programs run on the first"):
        static(paddle.ones([3]))


# ---------------------------------------------------------------- precision of products
def product(x, w):
    return paddle.matmul(x, w)


@pytest.fixture
def wide(monkeypatch):
    emulator.library()
    monkeypatch.setitem(driver().__dict__, "threads", 32)
    monkeypatch.setenv("EMULATOR_THREADS", "32")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::executor.gpu.HostCopyWarning")
def test_the_precision_of_products_is_an_option(wide, tmp_path, monkeypatch):
    """Of a function, and of the copies that are made of it; a variable is its default."""
    x = paddle.to_tensor(np.float32([[1 + 2**-9] * 16] * 64))
    w, exact = paddle.eye(16, 64), 1 + 2**-9
    spec = [InputSpec(s, "float32", n) for n, s in (("x", [64, 16]), ("w", [16, 64]))]
    dy2st.save(dy2st.to_static(product), tmp_path / "product", input_spec=spec)
    for precision, want in (("highest", exact), ("high", exact), ("bfloat16", 1), (None, 1)):
        monkeypatch.setenv("DY2ST_MATMUL_PRECISION", "medium")
        static = dy2st.to_static(device="gpu", matmul_precision=precision)(product)
        loaded = dy2st.load(tmp_path / "product", device="gpu", matmul_precision=precision)
        for f in (static, copy.deepcopy(static), pickle.loads(pickle.dumps(static))):
            assert float(f(x, w)[0, 0]) == want, precision
        assert loaded(x.numpy(), w.numpy())[0, 0] == want
    again = dy2st.to_static(static, device="gpu", matmul_precision="highest")
    assert again is not static and float(again(x, w)[0, 0]) == exact
    assert dy2st.to_static(again, device="gpu", matmul_precision="highest") is again
    assert float(dy2st.to_static(product, matmul_precision="medium")(x, w)[0, 0]) == exact


def test_a_precision_that_there_is_not_is_refused(tmp_path):
    known = "'tf32'; there is 'float32', 'tensorfloat32', 'bfloat16', 'highest', 'high', 'medium'"
    for device in ("cpu", "gpu"):
        with pytest.raises(ValueError, match=f"matmul_precision is {known}"):
            dy2st.to_static(product, device=device, matmul_precision="tf32")
        with pytest.raises(ValueError, match="matmul_precision is 'tf32'"):
            dy2st.load(tmp_path / "nothing", device=device, matmul_precision="tf32")
