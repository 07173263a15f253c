"""Matrix products: every tile, tails, strides, batches, packing outside of loops, dynamic sizes."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from executor import cpu
from executor.cpu.kernels.gemm import heights
from executor.cpu.launches import Pack, PackedGemm
from executor.launches import Gemm, Loop, Map
from executor.lowering.program import lower
from tests.executor.test_executor import on_target

pytestmark = pytest.mark.sampled

__all__ = ["on_target"]


def close(got, want):
    eps = np.finfo(want.dtype).eps
    np.testing.assert_allclose(got, want, rtol=32 * eps, atol=256 * eps)


def product_of(x, y, types, attrs=""):
    """x @ y by a program whose operand types are `types`."""
    a, b, c = types
    text = (
        f'program p(%x: {a} arg "x", %y: {b} arg "y") {{\n'
        f"  %z = matmul(%x, %y{attrs}) : {c}\n  return %z\n}}"
    )
    return executor.compile(ir.parse(text))


def operands(rng, dtype, *shapes):
    return [rng.uniform(-1, 1, s).astype(dtype) for s in shapes]


@pytest.mark.quick("1-float32", "13-float32")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m", [1, 2, 3, 4, 5, 6, 7, 13, 16])
def test_static_shapes(m, dtype, on_target):
    rng = np.random.default_rng(m)
    d = "f32" if dtype == np.float32 else "f64"
    for k, n in ((1, 1), (5, 3), (33, 70), (8, 16)):
        x, y = operands(rng, dtype, (m, k), (k, n))
        run = product_of(x, y, (f"{d}[{m},{k}]", f"{d}[{k},{n}]", f"{d}[{m},{n}]"))
        close(run(x, y)[0], (x.astype(np.float64) @ y).astype(dtype))


def test_one_function_for_all_sizes(on_target):
    run = product_of(0, 0, ("f32[M,K]", "f32[K,N]", "f32[M,N]"))
    rng = np.random.default_rng(0)
    for m, k, n in [(0, 3, 4), (3, 0, 4), (3, 4, 0), (1, 1, 1), (19, 40, 101), (64, 7, 64)]:
        x, y = operands(rng, np.float32, (m, k), (k, n))
        close(run(x, y)[0], (x.astype(np.float64) @ y).astype(np.float32))


@pytest.mark.quick("False-True")
@pytest.mark.parametrize("tx", [False, True])
@pytest.mark.parametrize("ty", [False, True])
def test_transposed_and_batched(tx, ty, on_target):
    rng = np.random.default_rng(1)
    for m, k, n in ((3, 20, 21), (8, 9, 40)):
        a, b = ((k, m) if tx else (m, k)), ((n, k) if ty else (k, n))
        for left, right, batch in (((), (), ()), ((2,), (), (2,)), ((2, 1), (3,), (2, 3))):
            x, y = operands(rng, np.float32, left + a, right + b)
            types = [f"f32[{','.join(map(str, s))}]" for s in (x.shape, y.shape, (*batch, m, n))]
            run = product_of(x, y, types, f", trans_x={tx}, trans_y={ty}")
            want = np.matmul(
                np.swapaxes(x, -1, -2) if tx else x, np.swapaxes(y, -1, -2) if ty else y
            )
            close(run(x, y)[0], want)


VIEWS = """
program p(%x: f32[9,6,8] arg "x", %w: f32[12,40] arg "w") {
  %a = slice(%x, axis=2, start=7, length=4, step=-2) : f32[9,6,4]
  %b = transpose(%a, perm=[1, 2, 0])             : f32[6,4,9]
  %c = slice(%w, axis=1, start=39, length=20, step=-2) : f32[12,20]
  %d = slice(%c, axis=0, start=1, length=4, step=3) : f32[4,20]
  %e = matmul(%b, %d, trans_x=True)              : f32[6,9,20]
  %f = transpose(%e, perm=[2, 0, 1])             : f32[20,6,9]
  %g = index(%f, axis=0, index=3)                 : f32[6,9]
  %h = tanh(%g)                                  : f32[6,9]
  return %e, %h
}
"""


def test_strided_views_need_no_copy(on_target):
    program = ir.verify(ir.parse(VIEWS))
    rng = np.random.default_rng(2)
    xs = operands(rng, np.float32, (9, 6, 8), (12, 40))
    want, _ = ir.evaluate(program, xs)
    for g, w in zip(executor.compile(program)(*xs), want):
        close(g, w)


NESTED = """
program p(%x: f32[S,T,B,9] arg "x", %w: f32[7,9] param "w", %v: f32[B,7] arg "v") {
  scan %s < S {
    seq   %xs = %x[s]                            : f32[T,B,9]
    const %ws = %w                               : f32[7,9]
    carry %v1 = %v then %v2 last %vs             : f32[B,7]
    body
      %u = tanh(%xs)                             : f32[T,B,9]
      scan %t < T {
        seq   %xt = %u[t]                        : f32[B,9]
        const %wt = %ws                          : f32[7,9]
        carry %h = %v1 then %h2 last %v2         : f32[B,7]
        stack %ys = %g axis 0                    : f32[T,B,7]
        body
          %f = matmul(%xt, %wt, trans_y=True)    : f32[B,7]
          %g = add(%h, %f)                       : f32[B,7]
          %h2 = tanh(%g)                         : f32[B,7]
      }
  }
  return %vs
}
"""


def test_loop_invariant_weights_are_packed_once():
    program = ir.verify(ir.parse(NESTED))
    low = cpu.machine().legalize(lower(program, cpu.machine()))
    assert [type(q) for q in low.launches].count(Pack) == 1
    (outer,) = (q for q in low.launches if isinstance(q, Loop))
    (inner,) = (q for q in outer.body if isinstance(q, Loop))
    assert [type(q) for q in inner.body].count(PackedGemm) == 1
    assert not any(isinstance(q, Pack) for q in (*outer.body, *inner.body))
    run, rng = executor.compile(program), np.random.default_rng(3)
    for s, t, b in ((2, 3, 4), (1, 0, 2), (0, 2, 2), (3, 1, 17)):
        xs = operands(rng, np.float32, (s, t, b, 9), (7, 9), (b, 7))
        close(run(*xs)[0], ir.evaluate(program, xs)[0][0])


@pytest.mark.parametrize("shapes", [("37,1", "1,40"), ("3,M,1", "1,1,5"), ("1,1", "1,M")])
def test_a_product_of_one_summand_each_is_a_product_of_elements(shapes):
    left, right = (f"f32[{s}]" for s in shapes)
    out = left.replace("1]", right.split(",")[-1])
    program = ir.parse(
        f'program p(%x: {left} arg "x", %y: {right} arg "y") {{\n'
        f"  %z = matmul(%x, %y) : {out}\n  return %z\n}}"
    )
    (only,) = cpu.machine().legalize(lower(program, cpu.machine())).launches
    assert isinstance(only, Map)
    run, rng = executor.compile(program), np.random.default_rng(3)
    for m in (0, 1, 33):
        xs = operands(rng, np.float32, *(eval(f"({s},)", {"M": m}) for s in shapes))
        np.testing.assert_array_equal(run(*xs)[0], xs[0] * xs[1])


def test_heights_are_nearly_equal():
    assert heights(16) == [(6, 1), (5, 2)]
    for m in range(1, 100):
        assert sum(h * n for h, n in heights(m)) == m
        assert max(h for h, _ in heights(m)) <= 6
    assert heights(0) == []


LINEAR = """
program p(%x: f32[T,B,9] arg "x", %w: f32[9,21] param "w", %b: f32[21] param "b", %d: f32[9,21] arg "d") {
  %y = matmul(%x, %w)                            : f32[T,B,21]
  %z = add(%y, %b)                               : f32[T,B,21]
  scan %t < T {
    seq   %xt = %x[t]                            : f32[B,9]
    seq   %zt = %z[t]                            : f32[B,21]
    carry %g = %d then %g2 last %gT              : f32[9,21]
    body
      %u = matmul(%xt, %zt, trans_x=True)        : f32[9,21]
      %g2 = add(%g, %u)                          : f32[9,21]
  }
  return %z, %gT
}
"""  # noqa: E501


@pytest.mark.quick
def test_a_product_starts_from_what_it_is_added_to(on_target):
    program = ir.verify(ir.parse(LINEAR))
    low = lower(program, cpu.machine())
    (loop,) = (q for q in low.launches if isinstance(q, Loop))
    (gemm,) = loop.body
    assert isinstance(gemm, Gemm) and gemm.initial == gemm.c, "the gradient is summed in place"
    run, rng = executor.compile(program), np.random.default_rng(4)
    for t, b in ((3, 5), (0, 2), (2, 0), (1, 1)):
        xs = operands(rng, np.float32, (t, b, 9), (9, 21), (21,), (9, 21))
        for g, w in zip(run(*xs), ir.evaluate(program, xs)[0]):
            close(g, w)


@pytest.mark.quick("False-4", "True-3")
@pytest.mark.parametrize("m", [1, 2, 3, 4, 20])
@pytest.mark.parametrize("ty", [False, True])
def test_small_products_with_a_bias(m, ty, on_target):
    shape = "[11,37]" if ty else "[37,11]"
    text = f"""
program p(%x: f32[{m},37] arg "x", %w: f32{shape} param "w", %b: f32[11] param "b") {{
  %y = matmul(%x, %w, trans_y={ty})              : f32[{m},11]
  %z = add(%b, %y)                               : f32[{m},11]
  return %z
}}
"""
    program = ir.verify(ir.parse(text))
    xs = operands(np.random.default_rng(m), np.float32, (m, 37), eval(shape), (11,))
    close(executor.compile(program)(*xs)[0], ir.evaluate(program, xs)[0][0])


@pytest.mark.quick("1-17")
@pytest.mark.parametrize("m", [1, 2, 5, 17])
@pytest.mark.parametrize("bias", ["1", "{m},1"])
def test_one_column_with_a_bias(m, bias, on_target):
    """The product is computed as a row: a bias that is the same in all rows is not contiguous."""
    bias = bias.format(m=m)
    text = f"""
program p(%x: f32[{m},37] arg "x", %w: f32[37,1] param "w", %b: f32[{bias}] param "b") {{
  %y = matmul(%x, %w)                            : f32[{m},1]
  %z = add(%y, %b)                               : f32[{m},1]
  return %z
}}
"""
    program = ir.verify(ir.parse(text))
    shape = tuple(map(int, bias.split(",")))
    xs = operands(np.random.default_rng(m), np.float32, (m, 37), (37, 1), shape)
    close(executor.compile(program)(*xs)[0], ir.evaluate(program, xs)[0][0])
