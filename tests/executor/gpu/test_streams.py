"""Calls as work of the caller's stream: in its order, and nobody waits for what nobody asks for.

The emulator leaves work in its stream until somebody waits for it.
"""

from __future__ import annotations

import ctypes
import gc

import numpy as np
import pytest

import executor
from executor.gpu import DriverError
from executor.gpu.arrays import uploaded
from executor.gpu.driver import Pointer, driver
from executor.gpu.runtime import MOST_RUNS, on_stream
from tests.executor.gpu import emulator
from tests.executor.gpu.test_programs import ADDED, LIF, RNN, floats, parsed


@pytest.fixture
def lazy(monkeypatch):
    monkeypatch.setenv("EMULATOR_LAZY", "1")


def new_stream() -> int:
    stream = Pointer()
    driver().call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(1))
    return stream.value or 0


def given(run, arrays) -> tuple:
    """The arguments of `run.run`, and the arrays on the device that they are of."""
    bounds = run.bounds([len(arrays[0])])
    there = [uploaded(a) for a in arrays]
    out = [uploaded(np.full(n, np.nan, np.float32)) for n in bounds]
    places = ([q.address for q in there], [q.address for q in out])
    return ([len(arrays[0])], *places), there, out


@pytest.mark.parametrize("ours", [False, True])
def test_calls_one_after_the_other_wait_for_nothing(lazy, ours):
    """More than are under way at once, on two streams that share the arena and the result that the
    next call reads; one stream is that of the driver itself, or the one without a handle."""
    run, on_cpu = (executor.compile(parsed(RNN), backend=b) for b in ("gpu", "cpu"))
    w, h = floats(7, 7, seed=1) / 3, floats(3, 7, seed=2)
    streams = [new_stream(), driver().stream.value if ours else 0]
    calls = [given(run, (floats(2 + k % 2, 3, 7, seed=k), w, h)) for k in range(MOST_RUNS + 5)]
    before = emulator.counted(), emulator.library().emu_settled()
    for k, (call, *_) in enumerate(calls):
        if k:
            call[1][2] = calls[k - 1][0][2][1]  # the last state of the call before
        with on_stream(streams[k // 3 % 2]):
            run.run(*call)
    after = emulator.counted(), emulator.library().emu_settled()
    assert after[0][emulator.SYNCHRONISATIONS] == before[0][emulator.SYNCHRONISATIONS]
    assert after[1] == before[1]
    assert len(run.native.runs) == MOST_RUNS
    for _, there, out in calls:
        want = on_cpu(there[0].numpy(), w, h)
        for a, b in zip(out, want):
            np.testing.assert_allclose(a.numpy(), b.reshape(-1), rtol=1e-5, atol=1e-6)
        h = want[1]


def test_a_program_goes_away_while_its_work_is_under_way(lazy, young):
    run = executor.compile(parsed(LIF), backend="gpu")
    arrays = floats(3, 6, 5), floats(6, 5)
    call, _, out = given(run, arrays)
    want = executor.compile(parsed(LIF))(*arrays)
    with on_stream(new_stream()):
        run.run(*call)
    del run
    gc.collect()
    np.testing.assert_allclose(out[1].numpy(), want[1].reshape(-1), rtol=1e-5, atol=1e-6)


def test_a_call_that_can_fail_ends_with_its_error(lazy):
    run = executor.compile(parsed(ADDED), backend="gpu")
    x, w, stream = floats(5, 3), floats(9, 3, seed=1), new_stream()
    index, on = np.arange(9) % 5, np.array(True)
    there = [uploaded(a) for a in (x, index, w)]
    addresses = [*(q.address for q in there), on.ctypes.data]
    with on_stream(stream):
        run.run((), addresses, [])
        np.testing.assert_array_equal(there[2].numpy(), w + x[index])
        there[1].assign(index + 1)
        with pytest.raises(IndexError, match="embedding.*model.py:5"):
            run.run((), addresses, [])
    np.testing.assert_array_equal(there[2].numpy(), w + x[index])


def test_a_number_on_the_host_goes_with_the_table(lazy):
    text = 'program p(%x: f32[N] arg "x", %k: f32[] arg "k") {\n  %y = multiply(%x, %k) : f32[N]\n'
    run = executor.compile(parsed(text + "  return %y\n}\n"), backend="gpu")
    x, found = uploaded(floats(6)), []
    waited = emulator.counted()[emulator.SYNCHRONISATIONS]
    with on_stream(new_stream()):
        for k in (2.0, 3.0, -1.0):
            number, y = np.array(k, np.float32), uploaded(np.zeros(6, np.float32))
            run.run((6,), [x.address, number.ctypes.data], [y.address])
            number[...] = np.nan
            found.append((y, k))
    uploads = 1 + len(found)
    assert emulator.counted()[emulator.SYNCHRONISATIONS] - waited == uploads - 1, "of `uploaded`"
    for y, k in found:
        np.testing.assert_array_equal(y.numpy(), floats(6) * np.float32(k))


def test_what_a_stream_cannot_take_is_refused(monkeypatch):
    run = executor.compile(parsed(LIF), backend="gpu")
    call, *alive = given(run, (floats(3, 6, 5), floats(6, 5)))
    stream, graph = new_stream(), Pointer()
    driver().call("cuStreamBeginCapture_v2", Pointer(stream), ctypes.c_int(2))
    with on_stream(stream), pytest.raises(DriverError, match="lif: a call cannot be recorded in a"):
        run.run(*call)
    driver().call("cuStreamEndCapture", Pointer(stream), ctypes.byref(graph))
    monkeypatch.setenv("EMULATOR_ORDINAL", "1")
    with on_stream(stream), pytest.raises(DriverError, match="^x lies on GPU 1, programs run on"):
        run.run(*call)
    assert len(alive) == 2
