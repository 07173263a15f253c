"""Backends: found by name, asked by lowering through one door, and kernels chosen in order."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from executor import backend, cpu
from executor.cpu import kernel_table
from executor.cpu.launches import Pack, PackedGemm, PanelConv, PanelGemm
from executor.cpu.target import current
from executor.launches import BackendLaunch, Contract, Conv, Gemm, Loop, blocks
from executor.lowering.program import lower
from tests.executor.foreign import called
from tests.executor.launch_machine import CHECKED, Checked
from tests.executor.test_executor import examples_program, floats

MLP = """
program p(%x: f32[B,5] arg "x", %w: f32[5,7] param "w", %n: f32[B,7] buffer "n") {
  %y = matmul(%x, %w)                            : f32[B,7]
  %z = tanh(%y)                                  : f32[B,7]
  %m = add(%n, %z)                               : f32[B,7]
  return %z
  write %n = %m
}
"""


def every(launches):
    for x in launches:
        yield x
        for body in blocks(x):
            yield from every(body)


@pytest.mark.parametrize("name", ["cpu", "checked", "checked-cpu"])
def test_a_backend_is_chosen_by_name(name):
    program = ir.verify(ir.parse(MLP))
    run = executor.compile(program, backend=name)
    x, w, n = floats(3, 5), floats(5, 7, seed=1), floats(3, 7, seed=2)
    (want,), (after,) = ir.evaluate(program, [x, w, n])
    np.testing.assert_allclose(run(x, w, n)[0], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(n, after, rtol=1e-5, atol=1e-6)


def test_an_unknown_backend_is_refused_with_the_names_that_there_are():
    with pytest.raises(ValueError, match="no backend 'tpu'; .* checked, checked-cpu, cpu, gpu"):
        executor.compile(ir.parse(MLP), backend="tpu")


def test_foreign_ops_are_called_by_the_code_of_the_backend(monkeypatch):
    """A program with calls of Python is built in one piece."""
    built = []
    original = Checked.build

    def build(self, lowered, layout):
        built.append(lowered.program.name)
        return original(self, lowered, layout)

    monkeypatch.setattr(Checked, "build", build)
    program = ir.parse("""
program p(%x: f32[3] arg "x") {
  %a = exp(%x)                                   : f32[3]
  %b = foreign(%a, call="double", args=[], types=[f32[3]]) : f32[3]
  %c = tanh(%b)                                  : f32[3]
  return %c
}""")
    run = executor.compile(program, called(lambda op, xs, sizes: [xs[0] * 2]), backend="checked")
    np.testing.assert_allclose(run(floats(3))[0], np.tanh(2 * np.exp(floats(3))), rtol=1e-6)
    assert built == ["p"]


def test_a_launch_without_a_kernel_is_refused_by_name():
    class NoProducts(Checked):
        @property
        def families(self):
            return [q for q in super().families if q is not Gemm]

    with pytest.raises(NotImplementedError, match="backend checked: no kernel for Gemm"):
        backend.require_kernels(NoProducts("checked"), lower(ir.parse(MLP), CHECKED).launches)


# ---------------------------------------------------------------- launches say what
@pytest.mark.parametrize("name", ["matmul", "conv"])
def test_what_is_lowered_has_no_launch_of_a_backend(name):
    program, _ = examples_program(name)
    low = lower(program, cpu.machine())
    legal = cpu.machine().legalize(low)
    assert not any(isinstance(x, BackendLaunch) for x in every(low.launches))
    kinds = {type(x) for x in every(legal.launches)}
    assert not kinds & {Conv, Contract} and kinds & {PanelGemm, PanelConv}
    backend.require_kernels(cpu.machine(), legal.launches)


WRITTEN = """
program p(%x: f32[20,20] arg "x", %w: f32[20,20] param "w", %T: f32[T] arg "t") {
  scan %t < T {
    const %u = %x                                : f32[20,20]
    const %v = %w                                : f32[20,20]
    carry %h = %x then %h2 last %hT              : f32[20,20]
    body
      %a = matmul(%u, %v)                        : f32[20,20]
      %b = matmul(%u, %h)                        : f32[20,20]
      %h2 = add(%a, %b)                          : f32[20,20]
  }
  %w2 = add(%w, %hT)                             : f32[20,20]
  %y = matmul(%x, %w2)                           : f32[20,20]
  scan %s < T {
    const %p = %x                                : f32[20,20]
    const %q = %w2                               : f32[20,20]
    carry %k = %y then %k2 last %kT              : f32[20,20]
    body
      %c = matmul(%p, %q)                        : f32[20,20]
      %k2 = add(%k, %c)                          : f32[20,20]
  }
  return %kT
  write %w = %w2
}
"""


@pytest.mark.parametrize("name", ["cpu", "checked-cpu"])
def test_panels_are_packed_again_when_the_matrix_has_been_written(name):
    """The weights are updated in place between two loops: the same memory, another matrix."""
    program = ir.verify(ir.parse(WRITTEN))
    legal = cpu.machine().legalize(lower(program, cpu.machine()))
    assert [type(x) for x in legal.launches].count(Pack) == 2
    loops = [x for x in legal.launches if isinstance(x, Loop)]
    assert [[type(q) for q in x.body].count(PackedGemm) for x in loops] == [1, 1]
    run = executor.compile(program, backend=name)
    for t in (0, 1, 2):
        xs = [floats(20, 20) / 8, floats(20, 20, seed=1) / 8, floats(t)]
        (want,), (after,) = ir.evaluate(program, xs)
        own = [x.copy() for x in xs]
        np.testing.assert_allclose(run(*own)[0], want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(own[1], after, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- kernels
@pytest.mark.parametrize("dtype", ["f32", "f64", "i64"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "recurrence"])
def test_running_rows_are_summed_in_the_order_of_their_elements(name, dtype):
    """Blocks of rows and the rest, from either end: to the last bit."""
    if (name, dtype) == ("recurrence", "i64"):
        return
    rng, names = np.random.default_rng(5), ["a", "x"] if name == "recurrence" else ["x"]
    operands = ", ".join(f"%{q}" for q in names)
    for n in (1, 16, 35):
        t = f"{dtype}[M,2,{n}]"
        given = ", ".join(f'%{q}: {t} arg "{q}"' for q in names)
        program = ir.parse(
            f"program p({given}) {{\n"
            f"  %y = {name}({operands}, axis=2) : {t}\n"
            f"  %r = slice(%x, axis=2, start={n - 1}, length={n}, step=-1) : {t}\n"
            f"  %z = {name}({operands.replace('%x', '%r')}, axis=2) : {t}\n  return %y, %z\n}}"
        )
        run = executor.compile(program)
        for m in (0, 1, 15):
            xs = [4 * rng.standard_normal((m, 2, n)) for _ in names]
            xs = [x.astype(program.inputs[0].value.type.dtype.numpy) for x in xs]
            for q, w in zip(run(*xs), ir.evaluate(program, xs)[0], strict=True):
                np.testing.assert_array_equal(q, w)


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32"])
def test_the_first_of_equal_elements_is_the_largest_whatever_lane_it_is_in(dtype):
    for n in (64, 65, 100):
        program = ir.parse(
            f'program p(%x: {dtype}[M,{n}] arg "x") {{\n'
            "  %y = argmax(%x, axis=1, dtype=i64) : i64[M]\n  return %y\n}"
        )
        x = np.random.default_rng(n).integers(-3, 4, (8, n))
        x = x.astype(program.inputs[0].value.type.dtype.numpy)
        x[0], x[1, 1:] = 2, x[1, 0]
        if dtype != "i32":
            lowest = np.finfo(x.dtype).min
            x[2], x[3], x[4], x[5, ::2], x[6], x[6, -1] = lowest, np.nan, -np.inf, np.nan, lowest, 0
        run = executor.compile(program)
        for rows in (x, x[:0]):
            np.testing.assert_array_equal(run(rows)[0], ir.evaluate(program, [rows])[0][0])


def test_the_first_kernel_whose_condition_holds_wins():
    names = {}
    for rows in (1, 3, 7, 40):
        for trans in (False, True):
            program = ir.parse(
                f'program p(%x: f32[{rows},9] arg "x", %y: f32[9,9] arg "y") {{\n'
                f"  %z = matmul(%x, %y, trans_y={trans}) : f32[{rows},9]\n  return %z\n}}"
            )
            legal = cpu.machine().legalize(lower(program, cpu.machine()))
            (x,) = legal.launches
            names[rows, trans] = kernel_table.matching(current(), x).make.__name__
    few = {(m, q): ("strips", "dots")[q] for m in (1, 3) for q in (False, True)}
    large = {(40, False): "panel_by_panel", (40, True): "panel_by_panel"}
    assert names == {**few, (7, False): "in_place", (7, True): "panel_by_panel", **large}


def test_kernels_of_a_kind_stand_in_one_module_and_all_can_be_reached():
    def other(target, module, x): ...

    with pytest.raises(AssertionError, match="kernels of Gemm in executor.cpu.kernels.gemm, tests"):
        kernel_table.kernel_for(Gemm)(other)
    other.__module__ = "executor.cpu.kernels.gemm"
    with pytest.raises(AssertionError, match="other is never reached"):
        kernel_table.kernel_for(PackedGemm)(other)
