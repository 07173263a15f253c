"""Tensors that lie on the GPU: taken without a copy, and given."""

from __future__ import annotations

import gc
import warnings

import numpy as np
import pytest

import executor
from executor.gpu import DeviceArray, DriverError
from executor.gpu.arrays import device_array, dlpack, uploaded
from tests.executor.gpu import emulator
from tests.executor.gpu.test_programs import ADDED, RNN, floats, parsed

pytestmark = pytest.mark.sampled(every=12)


class Interface:
    """An array of a library that has `__cuda_array_interface__` only."""

    def __init__(self, array: DeviceArray, **changed) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__cuda_array_interface__, **changed}


class Capsules:
    """An array of a library that has DLPack only."""

    def __init__(self, array: DeviceArray) -> None:
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __dlpack__(self, *, stream):
        assert type(stream) is int, "the stream that is going to read it"
        return self.array.__dlpack__(stream=stream)


ARRAYS = [floats(4, 3, 7), floats(7, 7, seed=1) / 3, floats(3, 7, seed=2)]


@pytest.mark.parametrize("library", [Interface, Capsules, lambda a: a])
def test_arrays_on_the_gpu_are_not_copied(library):
    run = executor.compile(parsed(RNN), backend="gpu")
    given = [device_array(library(uploaded(a))) for a in ARRAYS]
    want = executor.compile(parsed(RNN))(*ARRAYS)
    run(*given)
    before = emulator.counted()[emulator.COPIES]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = run(*given)
    assert emulator.counted()[emulator.COPIES] - before == 1, "the table of the call"
    assert all(isinstance(g, DeviceArray) for g in got)
    for g, w in zip(got, want):
        np.testing.assert_allclose(np.asarray(g), w, rtol=1e-5)
        np.testing.assert_array_equal(device_array(library(g)).numpy(), g.numpy())


def test_an_argument_on_the_gpu_is_written_there():
    run = executor.compile(parsed(ADDED), backend="gpu")
    x, index, w, on = floats(5, 3), np.arange(9) % 5, floats(9, 3, seed=1), np.array(True)
    there = [uploaded(a) for a in (x, index, w, on)]
    run(*there)
    np.testing.assert_array_equal(there[2].numpy(), w + x[index])
    there[1].assign(index + 1)
    with pytest.raises(IndexError, match="embedding"):
        run(*there)
    np.testing.assert_array_equal(there[2].numpy(), w + x[index])


def test_some_arrays_may_lie_on_the_host():
    run = executor.compile(parsed(RNN), backend="gpu")
    got = run(uploaded(ARRAYS[0]), *ARRAYS[1:])
    want = executor.compile(parsed(RNN))(*ARRAYS)
    np.testing.assert_allclose(got[0].numpy(), want[0], rtol=1e-5)
    empty = run(uploaded(floats(0, 3, 7)), *ARRAYS[1:])
    assert empty[0].numpy().shape == (0, 3, 7)


def test_a_tensor_that_others_have_is_freed_when_they_have_done_with_it(young):
    gc.collect()
    before = len(dlpack._GIVEN)
    array = uploaded(floats(3))
    capsule = array.__dlpack__()
    assert len(dlpack._GIVEN) == before + 1
    del capsule
    assert len(dlpack._GIVEN) == before, "nobody has taken it"
    taken = device_array(Capsules(array))
    del array
    np.testing.assert_array_equal(taken.numpy(), floats(3))
    assert len(dlpack._GIVEN) == before + 1
    del taken
    assert len(dlpack._GIVEN) == before


def test_views_are_of_the_same_memory():
    x = floats(4, 5, 6)
    array = uploaded(x)
    for view in (
        lambda a: a.transpose(2, 0, 1),
        lambda a: a[1:3, ::-2],
        lambda a: a[:, 3],
        lambda a: np.broadcast_to(a[:, :1], (4, 3, 6)),
        lambda a: a[2:2],
    ):
        found = array.viewed(view)
        np.testing.assert_array_equal(found.numpy(), view(x))
        np.testing.assert_array_equal(found.copy().numpy(), view(x))
        np.testing.assert_array_equal(device_array(Interface(found)).numpy(), view(x))
        np.testing.assert_array_equal(device_array(Capsules(found)).numpy(), view(x))
    with pytest.raises(ValueError, match="takes a copy"):
        array.viewed(lambda a: a.transpose(2, 0, 1).reshape(-1))
    assert int(uploaded(np.array(3))) == 3 and float(uploaded(np.array(2.5))) == 2.5


def test_what_cannot_be_taken_is_refused(monkeypatch):
    run = executor.compile(parsed(ADDED), backend="gpu")
    x, index, w, on = (
        uploaded(a) for a in (floats(5, 3), np.arange(9) % 5, floats(9, 3), np.array(True))
    )
    with pytest.raises(ValueError, match="array x on the device is not contiguous: give a"):
        run(uploaded(floats(3, 5)).viewed(np.transpose), index, w, on)
    read_only = device_array(Interface(w, data=(w.address, True)))
    with pytest.raises(ValueError, match="array w on the device is read-only"):
        run(x, index, read_only, on)
    with pytest.raises(ValueError, match="w is written, but shares memory with input x"):
        run(w.viewed(lambda a: a[:5]), index, w, on)
    with pytest.raises(ValueError, match="mask"):
        device_array(Interface(w, mask=x))
    with pytest.raises(ValueError, match="strides"):
        device_array(Interface(w, strides=(6, 3)))
    host = floats(3)
    with pytest.raises(ValueError, match=r"an array of \[3\] does not lie on the GPU"):
        DeviceArray(host.ctypes.data, (3,), host.dtype, host)
    monkeypatch.setenv("EMULATOR_ORDINAL", "1")
    with pytest.raises(DriverError, match="lies on GPU 1"):
        device_array(Interface(w))
