"""Programs on the emulated GPU: every row, loops, branches, failures, launches that are counted."""

from __future__ import annotations

import ctypes
import threading
import warnings

import numpy as np
import pytest

import executor
import ir
from executor.gpu import DriverError, HostCopyWarning
from executor.gpu.driver import Driver, driver
from executor.gpu.kernel_builder import Kernel
from executor.memory import Buffer, View
from ir.passes import run as run_passes
from ir.program import Builder, Input, Program, Value
from ir.types import DTYPES, F32, Type
from tests.executor import test_capacity as rooms
from tests.executor import test_random_programs as random_programs
from tests.executor.foreign import called
from tests.executor.gpu import emulator
from tests.executor.gpu.compiled import on_gpu
from tests.executor.segmented import test_while_loops as control
from tests.executor.test_executor import BAD_DATA, PICKED, ROWS, agree, bad_data, examples_program
from tests.ir.test_quotients import CONV, SHAPES

#: rows whose examples are one program, so that their kernels are compiled together
TOGETHER = 12


def floats(*shape, seed=0):
    return np.asarray(np.random.default_rng(seed).normal(size=shape)).astype("f4")


def parsed(text):
    return ir.verify(ir.parse(text))


def same(program, *arrays, rtol=1e-5):
    """The results and the written inputs are those of the interpreter."""
    run = on_gpu(program)
    want, after = ir.evaluate(program, [a.copy() for a in arrays])
    own = [a.copy() for a in arrays]
    for got, w in zip(run(*own), want, strict=True):
        np.testing.assert_allclose(got, w, rtol=rtol, atol=1e-6)
    targets = [[i.value for i in program.inputs].index(t) for t, _ in program.writes]
    for k, w in zip(targets, after, strict=True):
        np.testing.assert_allclose(own[k], w, rtol=rtol, atol=1e-6)
    return run


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, len(ROWS), TOGETHER), ids=lambda k: ROWS[k])
def test_examples_of_rows(first):
    names = ROWS[first : first + TOGETHER]
    programs = [examples_program(n) for n in names]
    b = Builder()
    b.ops += [op for p, _ in programs for op in p.ops]
    values = [i.value for p, _ in programs for i in p.inputs]
    inputs = tuple(Input(v, "arg", f"x{k}") for k, v in enumerate(values))
    outputs = tuple(v for p, _ in programs for v in p.outputs)
    every = executor.compile(Program("rows", inputs, tuple(b.ops), outputs), backend="gpu")
    results = iter(every(*(a for _, arrays in programs for a in arrays)))
    for name, (p, arrays) in zip(names, programs):
        for w in ir.evaluate(p, arrays)[0]:
            agree(name, next(results), w)


@pytest.mark.slow
def test_casts_between_all_types():
    """As the CPU's, where the number fits the type."""
    kinds = [d for n, d in DTYPES.items() if n not in ("bf16", "f16")]
    b, inputs, outs = Builder(), [], []
    for d in kinds:
        x = Value(Type(d, (4,)))
        inputs.append(Input(x, "arg", f"x_{d}"))
        outs += [b.emit("cast", [x], {"dtype": to})[0] for to in kinds if to != d]
    program = Program("casts", tuple(inputs), tuple(b.ops), tuple(outs))
    arrays = [np.array([0, 1, 2, 100]).astype(d.numpy) for d in kinds]
    for got, want in zip(
        executor.compile(program, backend="gpu")(*arrays), ir.evaluate(program, arrays)[0]
    ):
        np.testing.assert_array_equal(got, want)


def test_offsets_beyond_32_bits_are_computed_in_64():
    buffer = Buffer("input", 0, 1 << 44)
    for step, kind in ((1 << 20, "i32"), (1 << 30, "i64")):
        kernel = Kernel()
        x = View(buffer, F32, 0, (4, 4), (step, 1 << 10))
        with kernel.each(x.shape, [x.strides]):
            assert f"const {kind} " in kernel.text("f")


# ---------------------------------------------------------------- loops and branches
LIF = """
program lif(%x: f32[T,6,5] arg "x", %v0: f32[6,5] arg "v") {
  scan %t < T {
    seq %xt = %x[t]                              : f32[6,5]
    carry %v = %v0 then %v3 last %vT             : f32[6,5]
    stack %ys = %s axis 0                        : f32[T,6,5]
    body
      %a = subtract(%xt, %v)                     : f32[6,5]
      %u = add(%v, %a)                           : f32[6,5]
      %s = sigmoid(%u)                           : f32[6,5]
      %v3 = multiply(%u, %s)                     : f32[6,5]
  }
  return %ys, %vT
}
"""
RNN = """
program rnn(%x: f32[T,3,7] arg "x", %w: f32[7,7] param "w", %h0: f32[3,7] arg "h") {
  scan %t < T {
    seq %xt = %x[t]                              : f32[3,7]
    const %wc = %w                               : f32[7,7]
    carry %h = %h0 then %h2 last %hT             : f32[3,7]
    stack %ys = %h2 axis 0                       : f32[T,3,7]
    body
      %a = matmul(%h, %wc)                       : f32[3,7]
      %b = add(%a, %xt)                          : f32[3,7]
      %h2 = tanh(%b)                             : f32[3,7]
  }
  return %ys, %hT
}
"""

ADDED = """
program p(%x: f32[5,3] arg "x", %i: i64[9] arg "i", %w: f32[9,3] param "w", %on: bool[] arg "on") {
  cond %on {
    const %y = %x                                : f32[5,3]
    const %j = %i                                : i64[9]
    const %u = %w                                : f32[9,3]
    join  %r = %b else %u                        : f32[9,3]
    then
      %a = embedding(%j, %y)                     : f32[9,3]            @ model.py:5
      %b = add(%u, %a)                           : f32[9,3]
    else
  }
  return
  write %w = %r
}
"""


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_recurrence_under_any_order_of_threads(seed, monkeypatch):
    monkeypatch.setenv("EMULATOR_SEED", str(seed))
    rnn, lif = parsed(RNN), parsed(LIF)
    for t in (0, 1, 6):
        same(rnn, floats(t, 3, 7), floats(7, 7, seed=1) / 3, floats(3, 7, seed=2))
        same(lif, floats(t, 6, 5), floats(6, 5, seed=1))


def test_a_loop_of_any_length_is_one_launch():
    run = executor.compile(parsed(RNN), backend="gpu")
    counts = []
    for t in (1, 5, 50):
        arrays = floats(t, 3, 7), floats(7, 7) / 3, floats(3, 7)
        run(*arrays)
        before = emulator.counted()
        run(*arrays)
        counts.append([b - a for a, b in zip(before, emulator.counted())])
    assert counts[0] == counts[1] == counts[2]
    kernels, cooperative, graphs, _, allocations, _ = counts[0]
    assert (kernels, cooperative, graphs) == (4, 1, 1) and allocations == 0


def test_a_call_without_loops_is_one_graph():
    run = executor.compile(examples_program("softmax")[0], backend="gpu")
    run(*examples_program("softmax")[1])
    before = emulator.counted()
    run(*examples_program("softmax")[1])
    assert emulator.counted()[emulator.GRAPHS] == before[emulator.GRAPHS] + 1


@pytest.mark.sampled(every=36)
@pytest.mark.parametrize("control, moving", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("seed", [1, 2, 4])
def test_random_programs(seed, control, moving, monkeypatch):
    monkeypatch.setenv("EMULATOR_SEED", str(seed))
    p = random_programs.Generator(seed, control, moving).program()
    random_programs.check(p, seed, "gpu")


@pytest.mark.slow
def test_many_loops_in_one_kernel():
    """No name of theirs is that of a type, such as i64."""
    loops = "".join(
        f"""
        scan %t{k} < T {{
          const %c{k} = %h                       : f32[3]
          carry %a{k} = %b{k - 1} then %s{k} last %b{k} : f32[3]
          body
            %r{k} = slice(%a{k}, axis=0, start=2, length=3, step=-1) : f32[3]
            %s{k} = add(%r{k}, %c{k})            : f32[3]
        }}"""
        for k in range(1, 20)
    )
    text = f"""
    program many(%x: f32[3] arg "x", %n: f32[T] arg "n") {{
      scan %u < 2 {{
        const %h = %x                            : f32[3]
        carry %b0 = %x then %b19 last %y         : f32[3]
        body {loops}
      }}
      return %y
    }}"""
    same(parsed(text), floats(3) / 9, floats(2))


@pytest.mark.slow
def test_the_device_decides_when_a_while_ends():
    program = control.parsed(control.COLLECT, TRIP="< T", LAST="")
    run = executor.compile(program, backend="gpu")
    for t, k in ((0, 0), (1, 1), (7, 3), (7, 99)):
        control.same(run, program, floats(t, 4), np.asarray(min(k, t)), floats(4, seed=1))
    endless = control.parsed(control.ENDLESS, MORE="", RESULT="%yT, %c")
    run = executor.compile(endless, backend="gpu")
    for b in (0, 1, 40):
        control.same(run, endless, floats(b), np.float32(1e-3))


def test_the_room_of_a_loop_follows_its_length():
    program = control.parsed(rooms.GROWS)
    run = executor.compile(run_passes(program), backend="gpu")
    for k in (0, 1, 17, 3):
        got = control.same(run, program, floats(2, 3), np.array(k), floats(3))
        assert got[0].shape == (k + 2, 3)


# ---------------------------------------------------------------- failures
@pytest.mark.parametrize("case", BAD_DATA, ids=lambda c: f"{c[2].__name__}-{c[3][:5]}")
def test_bad_data_is_an_error_and_writes_nothing(case):
    bad_data(executor.compile(ir.parse(PICKED), backend="gpu"), *case)


def on_device(run, sizes, arrays, outputs):
    """Run on memory of the device; the inputs and outputs afterwards."""
    gpu = driver()
    blocks = [gpu.allocate(a.nbytes) for a in (*arrays, *outputs)]
    for block, a in zip(blocks, arrays):
        gpu.upload(block.address, a.ctypes.data, a.nbytes)
    places = [b.address for b in blocks]
    try:
        run.run(sizes, places[: len(arrays)], places[len(arrays) :])
    finally:
        out = [np.empty_like(a) for a in (*arrays, *outputs)]
        for block, a in zip(blocks, out):
            gpu.download(a.ctypes.data, block.address, a.nbytes)
        for a, b in zip((*arrays, *outputs), out):
            a[...] = b
        gpu.synchronize()


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_a_failure_that_one_thread_finds_stops_the_writes_of_all(seed, monkeypatch):
    monkeypatch.setenv("EMULATOR_SEED", str(seed))
    run = executor.compile(parsed(ADDED), backend="gpu")
    x, w, on = floats(5, 3), floats(9, 3, seed=1), np.array(True)
    before = w.copy()
    for bad in range(0, 9, 4):
        index = np.arange(9) % 5
        index[bad] = 5
        with pytest.raises(IndexError, match="embedding.*model.py:5"):
            on_device(run, (), [x, index, w, on], [])
        np.testing.assert_array_equal(w, before)
    waited = emulator.library().emu_settled()
    on_device(run, (), [x, np.arange(9) % 5, w, on], [])
    assert emulator.library().emu_settled() == waited + 1, "work of other streams is waited for"
    np.testing.assert_array_equal(w, before + x[np.arange(9) % 5])


def test_a_thread_that_works_on_another_gpu_goes_on_there():
    run, library, found = executor.compile(parsed(LIF), backend="gpu"), emulator.library(), []
    other, here = ctypes.c_void_p(2), ctypes.c_void_p()

    def call():
        library.cuCtxSetCurrent(other)
        found.append(run(floats(3, 6, 5), floats(6, 5))[0])
        library.cuCtxGetCurrent(ctypes.byref(here))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert found[0].shape == (3, 6, 5) and here.value == other.value


def test_memory_of_another_gpu_is_refused(monkeypatch):
    run = executor.compile(parsed(ADDED), backend="gpu")
    x, index, w, on = floats(5, 3), np.arange(9) % 5, floats(9, 3), np.array(True)
    before = w.copy()
    monkeypatch.setenv("EMULATOR_ORDINAL", "1")
    with pytest.raises(DriverError, match="x lies on GPU 1, programs run on the first"):
        on_device(run, (), [x, index, w, on], [])
    np.testing.assert_array_equal(w, before)


def test_blocks_that_the_device_does_not_run_together_are_refused(monkeypatch):
    monkeypatch.setenv("EMULATOR_OCCUPANCY", "0")
    with pytest.raises(DriverError, match="rnn: 3 blocks wait for each other, 0 run together"):
        executor.compile(parsed(RNN), backend="gpu")
    assert executor.compile(parsed(LIF), backend="gpu") is not None


def test_tensors_on_the_host_are_counted_once():
    run = executor.compile(parsed(ADDED), backend="gpu")
    arguments = floats(5, 3), np.zeros(9, np.int64), floats(9, 3), np.array(True)
    with pytest.warns(HostCopyWarning, match="p: .* 3 to the GPU and 1 back"):
        run(*arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(*arguments)


def test_threads_may_call_at_once():
    run = executor.compile(parsed(RNN), backend="gpu")
    xs = [floats(5, 3, 7, seed=k) for k in range(6)]
    w, h = floats(7, 7) / 3, floats(3, 7)
    want, got = [run(x, w, h)[0] for x in xs], [None] * len(xs)

    def call(k):
        got[k] = run(xs[k], w, h)[0]

    threads = [threading.Thread(target=call, args=(k,)) for k in range(len(xs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_array_equal(want, got)


# ---------------------------------------------------------------- what is refused
def test_a_missing_driver_is_named_and_the_cpu_goes_on(monkeypatch):
    monkeypatch.setenv("DY2ST_CUDA_LIBRARY", "libnothing.so")
    with pytest.raises(DriverError, match='device="gpu" needs the CUDA driver: libnothing.so'):
        executor.compile(parsed(RNN), backend="gpu")
    assert executor.compile(parsed(RNN))(floats(1, 3, 7), floats(7, 7), floats(3, 7))


@pytest.mark.parametrize(
    ("name", "answer", "text"),
    [
        ("cuInit", lambda *_: 100, "needs a GPU, the CUDA driver finds none"),
        ("cuDeviceGetAttribute", lambda *_: 0, "needs a GPU of compute capability 8.0 or later"),
        ("cuModuleLoadData", lambda *_: 200, "cannot load what NVRTC has compiled .*newer than"),
    ],
)  # fmt: skip
def test_a_gpu_that_cannot_run_programs_is_told_why(monkeypatch, name, answer, text):
    real = driver().library

    class Other:
        def __getattr__(self, other):
            return answer if other == name else getattr(real, other)

    monkeypatch.setattr("executor.gpu.driver.ctypes.CDLL", lambda path: Other())
    with pytest.raises(DriverError, match=text):
        Driver("libother.so").load(b"")


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setenv("DY2ST_NVRTC_LIBRARY", "libnothing.so")
    with pytest.raises(DriverError, match="needs the library NVRTC: libnothing.so cannot be"):
        executor.compile(parsed(RNN), backend="gpu")


def test_too_little_memory_is_an_error_and_the_next_call_runs(monkeypatch):
    run = executor.compile(parsed(LIF), backend="gpu")
    monkeypatch.setenv("EMULATOR_MEGABYTES", "0")
    with pytest.raises(
        MemoryError, match="the GPU has too little memory: .* bytes more are needed"
    ):
        run(floats(400, 6, 5), floats(6, 5))
    monkeypatch.delenv("EMULATOR_MEGABYTES")
    assert run(floats(400, 6, 5), floats(6, 5))[0].shape == (400, 6, 5)


FOREIGN = """
program p(%x: f32[3] arg "x") {
  %y = foreign(%x, call="double", args=[], types=["f32[3]"])   : f32[3]   @ model.py:3
  return %y
}
"""


def test_what_a_gpu_cannot_run_is_refused_before_anything_runs():
    double = called(lambda op, xs, sizes: [2 * xs[0]])
    with pytest.raises(NotImplementedError, match="cannot run 'double', which.*model.py:3"):
        executor.compile(ir.parse(FOREIGN), double, backend="gpu")
    endless = control.parsed(control.COLLECT, TRIP="", LAST="")
    with pytest.raises(
        NotImplementedError, match="a GPU cannot collect results of a loop without.*model.py:3"
    ):
        executor.compile(endless, backend="gpu")


def test_quotients_of_sizes():
    program, rng = parsed(CONV), np.random.default_rng(0)
    for shape in SHAPES:
        same(program, rng.normal(size=shape), rng.normal(size=(3, 2, 3, 3)))
