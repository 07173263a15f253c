"""Floats of 16 bits: kernels compute in f32, and only loads and stores convert."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from executor import cpu
from executor.cpu import target as targets
from executor.cpu.codegen import source
from executor.cpu.jit import assembly
from executor.cpu.launches import PackedGemm
from executor.launches import Loop, Map
from executor.lowering.program import lower
from executor.plan.arena import layout
from ir.opdef import OPS, ShapeError
from ir.scalar import evaluate as kernel_numpy
from ir.scalar import half
from ir.scalar import language as k
from ir.types import BF16, BOOL, DTYPES, F16, F32, I16, U8
from tests.executor.launch_machine import CHECKED, CHECKED_CPU
from tests.executor.test_executor import on_target

__all__ = ["on_target"]

EVERY = np.arange(1 << 16, dtype=np.uint16)


def test_types_know_what_lies_in_memory_and_what_they_compute_in():
    assert {d.name for d in DTYPES.values() if d.widened} == {"f16", "bf16"}
    assert F16.compute == BF16.compute == F32 and BOOL.compute == BOOL
    assert {d.name for d in DTYPES.values() if d.storage != d} == {"bool"} and BOOL.storage == U8


def halves(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def run(text, *arrays, backend="cpu"):
    return executor.compile(ir.parse(text), backend=backend)(*arrays)


def cast(x, to):
    """By a program."""
    source = {"float16": "f16", "float32": "f32", "int64": "i64"}[str(x.dtype)]
    head = f'program p(%x: {source}[N] arg "x") {{\n'
    return run(head + f"  %y = cast(%x, dtype={to}) : {to}[N]\n  return %y\n}}", x)[0]


# ---------------------------------------------------------------- conversions
def edges():
    """f32 around every f16 and around the middle of every two, of all sizes, and any bits."""
    numbers = np.random.default_rng(0)
    exact = EVERY.view(np.float16).astype(np.float32)
    with np.errstate(all="ignore"):
        middle = (exact[:-1] + exact[1:]) / 2
        near = [np.nextafter(q, np.float32(s)) for q in (exact, middle) for s in (1e9, -1e9)]
    anything = numbers.integers(0, 1 << 32, 1 << 16, dtype=np.uint32).view(np.float32)
    return np.concatenate([exact, middle, *near, anything])


def agree(got, want):
    np.testing.assert_array_equal(got, want)
    there = ~np.isnan(want)
    assert (np.signbit(got) == np.signbit(want))[there].all()


def test_every_half_is_widened_and_every_float_is_rounded_once(on_target):
    x, wide = EVERY.view(np.float16), edges()
    agree(cast(x, "f32"), x.astype(np.float32))
    with np.errstate(all="ignore"):
        agree(cast(wide, "f16"), wide.astype(np.float16))
    whole = np.arange(-70000, 70000)
    with np.errstate(all="ignore"):
        agree(cast(whole, "f16"), whole.astype(np.float16))
    assert np.array_equal(cast(np.arange(-9, 9).astype(np.float16), "i64"), np.arange(-9, 9))


def test_the_scalar_functions_are_the_conversions_of_the_hardware():
    """On NumPy, so for every backend: also those of bfloat16, which NumPy lacks."""
    bits, wide = EVERY.view(np.int16), edges()
    widened = kernel_numpy.evaluate(half.from_f16(k.input_(0, I16)), [bits])
    agree(widened, EVERY.view(np.float16).astype(np.float32))
    narrow = kernel_numpy.evaluate(half.to_f16(k.input_(0, F32)), [wide])
    with np.errstate(all="ignore"):
        agree(narrow.view(np.float16), wide.astype(np.float16))
    brain = kernel_numpy.evaluate(half.from_bf16(k.input_(0, I16)), [bits])
    agree(brain, (EVERY.astype(np.uint32) << 16).view(np.float32))
    back = kernel_numpy.evaluate(half.to_bf16(k.input_(0, F32)), [wide])
    near = (back.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    with np.errstate(all="ignore"):
        below = (wide.view(np.uint32) & 0xFFFF0000).view(np.float32)
        above = (below.view(np.uint32) + 0x10000).view(np.float32)
        exact, small = wide.astype(np.float64), np.isfinite(wide) & np.isfinite(above)
        gap = abs(near - exact)
        assert (gap <= np.minimum(abs(below - exact), abs(above - exact)))[small].all()
    assert np.array_equal(np.isnan(near), np.isnan(wide))
    tie = np.array([0x3F808000, 0x3F818000], np.uint32).view(np.float32)
    even = kernel_numpy.evaluate(half.to_bf16(k.input_(0, F32)), [tie])
    assert even.tolist() == [0x3F80, 0x3F82]


def test_what_would_be_rounded_twice_is_refused():
    text = 'program p(%x: f64[2] arg "x") {\n %y = cast(%x, dtype=f16) : f16[2]\n return %y\n}'
    with pytest.raises(NotImplementedError, match="f64 to f16"):
        executor.compile(ir.parse(text))


# ---------------------------------------------------------------- programs
FUSED = """
program p(%x: f16[B,37] arg "x", %y: f16[37] arg "y") {
  %c = full(value=0.1, dtype=f16)                : f16[]
  fused [B, 37] {
    const %a = %x : f16[B,37]
    const %b = %y : f16[37]
    const %d = %c : f16[]
    out   %z = %w : f16[B,37]
    out   %m = %l : bool[B,37]
    body
      %s = add(%a, %b) : f16[B,37]
      %t = multiply(%s, %d) : f16[B,37]
      %w = tanh(%t) : f16[B,37]
      %l = less_than(%w, %a) : bool[B,37]
  }
  return %z, %m
}
"""


def test_a_kernel_computes_in_f32_from_its_loads_to_its_stores(on_target):
    x, y = halves(5, 37), halves(37, seed=1)
    got, mask = run(FUSED, x, y)
    exact = np.tanh((x.astype(np.float32) + y) * np.float32(np.float16(0.1)))
    want = exact.astype(np.float16)
    assert got.dtype == np.float16 and (got != want).mean() < 0.01
    np.testing.assert_allclose(got.astype(np.float32), exact, rtol=2.0**-11, atol=2.0**-24)
    assert np.array_equal(mask, exact < x.astype(np.float32))
    other = run(FUSED, x, y, backend=CHECKED.name)
    np.testing.assert_allclose(other[0], got, rtol=1e-3)
    program = ir.parse(FUSED)
    (kernel,) = (q for q in lower(program, cpu.machine()).launches if isinstance(q, Map) and q.ins)
    inside = [s for s in k.nodes(list(kernel.roots)) if s.dtype == F16]
    assert {s.op for s in inside} == {"input", "cast"}, "nothing is computed in f16"


def test_a_copy_keeps_the_bits(on_target):
    x = EVERY.view(np.float16)
    text = 'program p(%x: f16[N] arg "x") {\n %y = reshape(%x, shape=[256,256]) : f16[256,256]\n'
    (got,) = run(text + " return %y\n}", x)
    assert np.array_equal(got.ravel().view(np.uint16), EVERY)


def ones_summed(axes, backend="cpu"):
    """In f16 the sum of 3,000 ones and more would stop at 2,048."""
    x = np.full([3001, 70], 0.25, np.float16)
    shape = ",".join(str(x.shape[a]) for a in (0, 1) if a not in axes)
    head = f'program p(%x: f16[3001,70] arg "x") {{\n  %y = sum(%x, axes={list(axes)}) : '
    (got,) = run(head + f"f16[{shape}]\n  return %y\n}}", x, backend=backend)
    assert np.array_equal(got, x.sum(axes, dtype=np.float32).astype(np.float16))


@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_a_sum_is_rounded_once(axes, on_target):
    ones_summed(axes)


def test_a_sum_on_another_backend_is_rounded_once():
    ones_summed((0,), CHECKED.name)


def test_the_largest_element_is_found(on_target):
    x = halves(40, 9)
    x[3, 4] = np.nan
    text = 'program p(%x: f16[40,9] arg "x") {\n %y = argmax(%x, axis=1) : i64[40]\n return %y\n}'
    assert np.array_equal(run(text, x)[0], np.nanargmax(x, 1))  # as Paddle compares


def multiplied(m, trans, backend="cpu"):
    """A product, and one that starts from another matrix."""
    y = "70,600" if trans else "600,70"
    text = (
        f'program p(%x: f16[{m},600] arg "x", %y: f16[{y}] arg "y", %b: f16[{m},70] arg "b") {{\n'
        f"  %z = matmul(%x, %y, trans_y={trans}) : f16[{m},70]\n"
        f"  %v = matmul(%x, %y, trans_y={trans}) : f16[{m},70]\n"
        f"  %s = add(%v, %b) : f16[{m},70]\n  return %z, %s\n}}"
    )
    x, w, b = halves(m, 600), halves(*map(int, y.split(",")), seed=1), halves(m, 70, seed=2)
    exact = x.astype(np.float32) @ (w.T if trans else w).astype(np.float32)
    got, total = run(text, x, w, b, backend=backend)
    np.testing.assert_allclose(got.astype(np.float32), exact, rtol=2.0**-10, atol=1e-3)
    np.testing.assert_allclose(total.astype(np.float32), exact + b, rtol=2.0**-10, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("m", [1, 2, 5, 40])
@pytest.mark.parametrize("trans", [False, True])
def test_a_product_is_rounded_once(m, trans, on_target):
    """In every way in which the CPU multiplies."""
    multiplied(m, trans)


@pytest.mark.slow
@pytest.mark.parametrize("backend", [CHECKED.name, CHECKED_CPU.name])
def test_a_product_on_another_backend_is_rounded_once(backend):
    multiplied(5, True, backend)


LOOP = """
program p(%x: f16[T,4,60] arg "x", %w: f16[60,60] param "w", %h0: f16[4,60] arg "h") {
  scan %t < T {
    seq   %xt = %x[t]                            : f16[4,60]
    const %u = %w                                : f16[60,60]
    carry %h = %h0 then %h2 last %hT             : f16[4,60]
    stack %ys = %h2 axis 0                       : f16[T,4,60]
    body
      %a = matmul(%h, %u)                        : f16[4,60]
      %b = add(%a, %xt)                          : f16[4,60]
      %h2 = tanh(%b)                             : f16[4,60]
  }
  return %ys, %hT
}
"""


@pytest.mark.parametrize("backend", ["cpu", CHECKED_CPU.name])
def test_a_loop_over_packed_weights(backend):
    legal = cpu.machine().legalize(lower(ir.parse(LOOP), cpu.machine()))
    (loop,) = (q for q in legal.launches if isinstance(q, Loop))
    assert any(isinstance(q, PackedGemm) for q in loop.body)
    x, w, h = halves(5, 4, 60), halves(60, 60, seed=1) / np.float16(8), halves(4, 60, seed=2)
    ys, last = run(LOOP, x, w, h, backend=backend)
    for t in range(5):
        h = np.tanh(h.astype(np.float32) @ w.astype(np.float32) + x[t]).astype(np.float16)
        np.testing.assert_allclose(ys[t].astype(np.float32), h.astype(np.float32), atol=4e-3)
    assert np.array_equal(ys[-1], last)


def test_bfloat16_goes_through_the_same_door(on_target):
    """NumPy has no such arrays, so the program runs on addresses."""
    text = """
program p(%x: bf16[6,40] arg "x", %w: bf16[40,70] arg "w") {
  %y = matmul(%x, %w)                            : bf16[6,70]
  %z = exp(%y)                                   : bf16[6,70]
  %s = sum(%z, axes=[1])                         : bf16[6]
  return %z, %s
}
"""
    compiled = executor.compile(ir.parse(text))

    def wide(bits):
        return (bits.astype(np.uint32) << 16).view(np.float32)

    x, w = (
        (q.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        for q in (halves(6, 40) / 4, halves(40, 70, seed=1) / 4)
    )
    outs = np.zeros([6, 70], np.uint16), np.zeros(6, np.uint16)
    compiled.run([], [q.ctypes.data for q in (x, w)], [q.ctypes.data for q in outs])
    z = np.exp(wide(x) @ wide(w))
    np.testing.assert_allclose(wide(outs[0]), z, rtol=2.0**-6)
    np.testing.assert_allclose(wide(outs[1]), wide(outs[0]).sum(1), rtol=2.0**-8)


@pytest.mark.parametrize(
    "w, groups, out, words",
    [
        ("4,3,3,3", 1, "4,6,6", "sums in parts of f16"),
        ("3,1,6,6", 3, "3,3,3", "sums in parts of f16"),
        ("3,1,3,3", 3, "3,6,6", "mul of f16"),
    ],
)
def test_convolutions_are_refused(w, groups, out, words):
    """They add up parts in their results, which would be rounded every time."""
    plain = "stride=[1,1], padding=[[0,0],[0,0]], dilation=[1,1]"
    text = f"""
program p(%x: f16[1,3,8,8] arg "x", %w: f16[{w}] arg "w") {{
  %y = conv(%x, %w, {plain}, groups={groups}) : f16[1,{out}]
  return %y
}}
"""
    with pytest.raises(NotImplementedError, match=words):
        executor.compile(ir.parse(text))


@pytest.mark.parametrize("name", targets.NAMES)
def test_conversions_need_no_library(name):
    """Compiled, not run."""
    backend = cpu.machine_for(targets.named(name))
    legal = backend.legalize(lower(ir.parse(LOOP), backend))
    made = source(legal, layout(legal.launches), backend.target)
    called = {q.split()[1] for q in assembly(made, backend.target).splitlines() if "\tcall" in q}
    assert {c.split("@")[0] for c in called if c[0] != "*"} <= set(made.functions)


@pytest.mark.parametrize("d", [q for q in DTYPES.values() if q.widened], ids=str)
def test_rows_refuse_types_that_kernels_widen(d):
    with pytest.raises(ShapeError, match=f"exp has no kernel for {d}"):
        OPS["exp"].result_types([ir.Type(d, (3,))], {})
