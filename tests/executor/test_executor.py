"""The CPU executor: every row on every target, storage, errors, threads, foreign calls, plans."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

import executor
import ir
from executor import cpu
from executor.cpu import target as targets
from executor.cpu.codegen import source
from executor.cpu.jit import assembly
from executor.launches import Loop, views
from executor.lowering.program import lower
from executor.plan import arena
from ir.literal import parse_type
from ir.opdef import OPS
from ir.program import Builder, Input, Program, Value
from ir.scalar import evaluate as kernel_numpy
from ir.scalar import language as k
from ir.types import DTYPES, Type
from tests.executor.foreign import called
from tests.executor.test_random_programs import Generator
from tests.executor.test_random_programs import arrays as arrays_for

pytestmark = pytest.mark.sampled

WIDE = targets.supported("avx512")  # then `wide` has nothing to add
TARGETS = [n for n in targets.NAMES if targets.supported(n) and not (n == "wide" and WIDE)]
FUNCTIONS = """exp expm1 log log2 log10 log1p tanh sigmoid erf sin cos rsqrt silu elu softplus gelu
pow tan sinh cosh asin acos atan asinh acosh atanh erfinv logit""".split()
SUMS = """sum prod matmul conv mean softmax log_softmax layer_norm
batch_norm sum_pool spread_pool max_unpool fourier""".split()


@pytest.fixture(params=TARGETS)
def on_target(request, monkeypatch):
    monkeypatch.setenv("DY2ST_CPU", request.param)
    return request.param


def inputs_for(example, rng):
    out = []
    for t in map(parse_type, example.types):
        if t.dtype.kind == "f":
            a = rng.uniform(example.low, example.high, t.shape)
        elif t.dtype.kind == "b":
            a = rng.integers(0, 2, t.shape)
        else:
            a = rng.integers(int(example.low), int(example.high) + 1, t.shape)
        out.append(np.asarray(a).astype(t.dtype.numpy))
    return out


def examples_program(name):
    """All examples of a row in one program."""
    b, values, arrays, outs = Builder(), [], [], []
    rng = np.random.default_rng(len(name))
    for example in OPS[name].examples:
        own = [Value(parse_type(t)) for t in example.types]
        outs += b.emit(name, own, dict(example.attrs))
        values += own
        arrays += inputs_for(example, rng)
    inputs = tuple(Input(v, "arg", f"x{k}") for k, v in enumerate(values))
    return Program("rows", inputs, tuple(b.ops), tuple(outs)), arrays


def agree(name, got, want):
    assert got.dtype == want.dtype and got.shape == want.shape
    if name in FUNCTIONS and want.dtype.kind == "f":
        unit = np.spacing(np.maximum(np.abs(want), np.finfo(want.dtype).tiny))
        assert (np.abs(got.astype(np.longdouble) - want) <= 8 * unit).all()
    elif name in SUMS and want.dtype.kind == "f":
        eps = 64 * np.finfo(want.dtype).eps
        np.testing.assert_allclose(got, want, rtol=eps, atol=eps * 16)
    else:
        np.testing.assert_array_equal(got, want)


ROWS = [n for n, row in OPS.items() if row.ref is not None and row.examples]


def on_targets():
    """Each row on the widest target and on one of the others; the rest is left to the night."""
    for (i, name), (j, target) in itertools.product(enumerate(ROWS), enumerate(TARGETS)):
        rare = j > 0 and (i + j) % (len(TARGETS) - 1) != 0
        yield pytest.param(name, target, marks=[pytest.mark.nightly] * rare)


@pytest.mark.quick("exp", "tanh", "sin", "floor_divide", "cast", "sum")
@pytest.mark.parametrize(("name", "on_target"), list(on_targets()), indirect=["on_target"])
def test_examples_of_a_row(name, on_target):
    program, arrays = examples_program(name)
    want, _ = ir.evaluate(program, arrays)
    for got, w in zip(executor.compile(program)(*arrays), want):
        agree(name, got, w)


@pytest.mark.slow
@pytest.mark.quick("generic")
@pytest.mark.parametrize("name", targets.NAMES)
def test_code_of_every_target_needs_no_library(name):
    """Compiled, not run: this shows what a host without AVX-512 cannot."""
    t = targets.named(name)
    machine = cpu.machine_for(t)
    for op in ("exp", "tanh", "gelu", "softmax", "floor", "embedding", "conv"):
        program, _ = examples_program(op)
        low = machine.legalize(lower(program, machine))
        made = source(low, arena.layout(low.launches), t)
        text = assembly(made, t)
        called = {q.split()[1].split("@")[0] for q in text.splitlines() if "\tcall" in q}
        allowed = {"fma"} if name == "generic" else set()
        assert {c for c in called if c[0] != "*"} <= {*allowed, *made.functions}, called
        if name == "avx512" and op == "exp":
            assert "vscalefps" in text and "zmm" in text


SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -30.0, 30.0, 1e4, -1e4, 2.0**100]
UNARY = [n for n in ROWS if OPS[n].kernel and OPS[n].operands == ("x",) and n != "cast"]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_special_values(dtype, on_target):
    b, x, names = Builder(), Value(parse_type(f"{dtype}[13]")), []
    for name in UNARY:
        example = next((e for e in OPS[name].examples if e.types[0].startswith(dtype)), None)
        if example is not None and name not in ("sin", "cos"):
            names.append(name)
            b.emit(name, [x], dict(example.attrs))
    outs = tuple(op.results[0] for op in b.ops)
    array = np.array(SPECIAL, x.type.dtype.numpy)
    program = Program("p", (Input(x, "arg", "x"),), tuple(b.ops), outs)
    for name, got, op in zip(names, executor.compile(program)(array), b.ops):
        root = OPS[name].kernel(k.input_(0, x.type.dtype), **op.attrs)
        want = kernel_numpy.evaluate(root, [array])
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-30, err_msg=name)
        assert (np.signbit(got) == np.signbit(want))[3:].all() if got.dtype != bool else True, name


@pytest.mark.skipif(not WIDE, reason="no AVX-512 here: its code runs as `wide`, by AVX2")
def test_this_host_runs_every_target():
    assert TARGETS == ["avx512", "avx2", "generic"]


@pytest.mark.quick("avx2")
def test_casts_between_all_types(on_target):
    rng, b, values, arrays = np.random.default_rng(5), Builder(), [], []
    dtypes = [DTYPES[n] for n in ("bool", "u8", "i8", "i16", "i32", "i64", "f32", "f64")]
    for d in dtypes:
        values.append(Value(Type(d, (3, 37))))
        whole = rng.integers(0 if d.kind in "bu" else -90, 2 if d.kind == "b" else 120, (3, 37))
        arrays.append(whole.astype(d.numpy))
        for to in dtypes:
            b.cast(values[-1], dtype=to)
    flipped = [b.cast(b.transpose(v, perm=(1, 0)), dtype=dtypes[0]) for v in values]
    inputs = tuple(Input(v, "arg", f"x{k}") for k, v in enumerate(values))
    outs = tuple(op.results[0] for op in b.ops if op.name == "cast")
    program = Program("p", inputs, tuple(b.ops), outs)
    want, _ = ir.evaluate(program, arrays)
    for op, g, w in zip(outs, executor.compile(program)(*arrays), want):
        np.testing.assert_array_equal(g, w, str(op))
    assert len(flipped) == len(dtypes)


@pytest.mark.quick("i8", "i32")
@pytest.mark.parametrize("dtype", ["u8", "i8", "i16", "i32"])
def test_narrow_integers(dtype, on_target):
    b, n = Builder(), Value(parse_type(f"{dtype}[45]"))
    x = Value(parse_type(f"{dtype}[45]"))
    for name in ("add", "multiply", "maximum", "less_than", "bitwise_xor", "floor_divide"):
        if dtype != "u8":
            b.emit(name, [x, n])
    b.concat(x, n, axis=0)
    b.slice(x, axis=0, start=44, length=15, step=-3)
    b.assign(b.slice(x, axis=0, start=44, length=15, step=-3))
    inputs = Input(x, "arg", "x"), Input(n, "arg", "n")
    program = Program("p", inputs, tuple(b.ops), tuple(op.results[0] for op in b.ops))
    rng = np.random.default_rng(6)
    arrays = [rng.integers(0, 100, 45).astype(x.type.dtype.numpy), np.ones(45, x.type.dtype.numpy)]
    arrays[1] *= 7
    want, _ = ir.evaluate(program, arrays)
    for g, w in zip(executor.compile(program)(*arrays), want):
        np.testing.assert_array_equal(g, w)


# ---------------------------------------------------------------- storage
def run_text(text, *arrays):
    program = ir.verify(ir.parse(text))
    run = executor.compile(program)
    own = [np.array(a) for a in arrays]
    got = run(*own)
    want, written = ir.evaluate(program, arrays)
    for g, w in zip(got, want):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
    for (target, _), w in zip(program.writes, written):
        at = [i.value for i in program.inputs].index(target)
        np.testing.assert_allclose(own[at], w, rtol=1e-5)
    return got


def floats(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(37, 53), (16, 16), (8, 17)])
def test_functions_of_what_lies_across_the_lines_of_memory(on_target, shape):
    m, n = shape
    run_text(
        f"""program p(%x: f32[{m},{n}] arg "x") {{
  %a = transpose(%x, perm=[1, 0])                : f32[{n},{m}]
  %b = exp(%a)                                   : f32[{n},{m}]
  %c = cast(%a, dtype=i32)                       : i32[{n},{m}]
  %d = cast(%a, dtype=f64)                       : f64[{n},{m}]
  %e = isnan(%a)                                 : bool[{n},{m}]
  return %b, %c, %d, %e
}}""",
        floats(m, n),
    )


VIEWS = """
program p(%x: f32[5,7,9] arg "x", %y: f32[9] arg "y") {
  %a = transpose(%x, perm=[2, 0, 1])             : f32[9,5,7]
  %b = slice(%a, axis=0, start=8, length=5, step=-2) : f32[5,5,7]
  %c = slice(%b, axis=2, start=1, length=3, step=2) : f32[5,5,3]
  %d = index(%c, axis=1, index=3)                 : f32[5,3]
  %e = transpose(%d, perm=[1, 0])                : f32[3,5]
  %f = tanh(%e)                                  : f32[3,5]
  %g = reshape(%c, shape=[25, 3])                : f32[25,3]
  %h = reshape(%b, shape=[35, 5])                : f32[35,5]
  %i = sum(%c, axes=[0])                         : f32[5,3]
  %j = max(%a, axes=[1])                         : f32[9,7]
  %k = matmul(%d, %e)                            : f32[5,5]
  %l = expand(%y, shape=[7, 9])                  : f32[7,9]
  %m = multiply(%l, %x)                          : f32[5,7,9]
  %n = add(%a, %a)                               : f32[9,5,7]
  %o = slice(%m, axis=2, start=6, length=4, step=-1) : f32[5,7,4]
  %q = square(%o)                                : f32[5,7,4]
  return %f, %g, %h, %i, %j, %k, %m, %n, %q, %d
}
"""


@pytest.mark.quick
def test_views_of_views(on_target):
    run_text(VIEWS, floats(5, 7, 9), floats(9))


FILL = """
program p(%x: f32[T,4] arg "x", %n: f32[4] buffer "n") {
  %y0 = full(value=0.0, shape=[T, 4], dtype=f32) : f32[T,4]
  scan %t < T {
    seq   %xt = %x[t]                            : f32[4]
    carry %y = %y0 then %y2 last %yT             : f32[T,4]
    carry %s = %n then %s2 last %sT              : f32[4]
    body
      %s2 = add(%s, %xt)                         : f32[4]
      %y2 = set_dynamic_index(%y, %s2, %t, axis=0)      : f32[T,4]
  }
  return %yT
  write %n = %sT
}
"""


def test_a_loop_fills_its_result_in_place():
    program = ir.parse(FILL)
    low = lower(program, cpu.machine())
    loops = [q for q in low.launches if isinstance(q, Loop)]
    written = {v.buffer.kind for q in loops[0].body for v in views(q)}
    assert "output" in written, "the tensor that the loop fills is the output itself"
    for t in (0, 1, 5):
        run_text(FILL, floats(t, 4), floats(4))


def test_writes_need_a_writable_array():
    run = executor.compile(ir.parse(FILL))
    x, n = floats(3, 4), floats(4)
    n.flags.writeable = False
    with pytest.raises(ValueError, match="n is written"):
        run(x, n)
    with pytest.raises(ValueError, match="n is written"):
        run(x, floats(8)[::2])


SWAP = """
program p(%a: f32[3] param "a", %b: f32[3] param "b") {
  return %a
  write %a = %b
  write %b = %a
}
"""


@pytest.mark.quick
def test_writes_may_swap():
    a, b = floats(3), floats(3, seed=1)
    got = run_text(SWAP, a, b)
    np.testing.assert_array_equal(got[0], a)


def test_arrays_that_do_not_fit():
    run = executor.compile(ir.parse(FILL))
    with pytest.raises(ValueError, match="x is f32"):
        run(floats(3, 5), floats(4))
    with pytest.raises(ValueError, match="not of float64"):
        run(np.zeros((3, 4)), floats(4))
    with pytest.raises(ValueError, match="takes 2 inputs"):
        run(floats(3, 4))


# ---------------------------------------------------------------- errors
PICKED = """
program p(%w: f32[5,3] param "w", %ids: i64[B] arg "ids", %n: i64[] arg "n", %s: f32[2] arg "s") {
  %e = embedding(%ids, %w)                       : f32[B,3]            @ model.py:7
  %g = gather(%w, %ids, axis=0)                  : f32[B,3]
  %v = dynamic_index(%w, %n, axis=0)                    : f32[3]              @ model.py:9
  %d = full(value=6, dtype=i64)                  : i64[]
  %q = floor_divide(%d, %n)                      : i64[]               @ model.py:11
  %s2 = add(%s, %s)                              : f32[2]
  return %e, %g, %v, %q
  write %s = %s2
}
"""


BAD_DATA = [
    ([0, 5], 1, IndexError, r"embedding.*model.py:7"),
    ([-1], 1, IndexError, "embedding"),
    ([2**40], 1, IndexError, "embedding"),
    ([1], 5, IndexError, r"dynamic_index.*model.py:9"),
    ([1], -6, IndexError, "dynamic_index"),
    ([1], 0, ZeroDivisionError, r"integer division by zero.*model.py:11"),
]


@pytest.mark.quick("IndexError-embedding")
@pytest.mark.parametrize("ids, n, error, words", BAD_DATA)
def test_bad_data_is_an_error_and_writes_nothing(ids, n, error, words, on_target):
    bad_data(executor.compile(ir.parse(PICKED)), ids, n, error, words)


def bad_data(run, ids, n, error, words):
    """A call with them raises and writes nothing; the next one is right."""
    s = np.ones(2, np.float32)
    arguments = floats(5, 3), np.array(ids), np.asarray(n)
    with pytest.raises(error, match=words):
        run(*arguments, s)
    assert (s == 1).all()
    good = run(arguments[0], np.array([4, 0]), np.asarray(-5), s)
    np.testing.assert_array_equal(good[2], arguments[0][0])
    assert (s == 2).all() and good[3] == -2


def test_smallest_integer_by_minus_one():
    text = """
program p(%x: i64[3] arg "x", %y: i64[3] arg "y") {
  %q = floor_divide(%x, %y)                      : i64[3]
  %r = remainder(%x, %y)                         : i64[3]
  return %q, %r
}
"""
    least = np.iinfo(np.int64).min
    q, r = executor.compile(ir.parse(text))(np.array([least, 7, -7]), np.array([-1, -1, 2]))
    assert list(q) == [least, -7, -4] and list(r) == [0, 0, 1]


@pytest.mark.quick("T-1-3")
@pytest.mark.parametrize("start, t", [("T-1", 3), ("0", 3)])
def test_a_slice_outside_of_its_tensor(start, t):
    text = f"""
program p(%x: f32[T] arg "x") {{
  %y = slice(%x, axis=0, start={start}, length=2) : f32[2]
  return %y
}}
"""
    run = executor.compile(ir.parse(text))
    if start == "0":
        run(floats(t))
        t = 1
    with pytest.raises(IndexError, match="slice"):
        run(floats(t))


WINDOW = """
program p(%x: f32[T] arg "x", %k: i64[] arg "k", %y: f32[B] arg "y") {
  %w = dynamic_slice(%x, %k, axis=0, length=2)          : f32[2]
  %z = set_dynamic_slice(%x, %y, %k, axis=0)            : f32[T]
  return %w, %z
}
"""


def test_a_window_longer_than_its_axis():
    """Then there is no good index, not every one."""
    run = executor.compile(ir.parse(WINDOW))
    run_text(WINDOW, floats(4), np.asarray(2), floats(2))
    run_text(WINDOW, floats(3), np.asarray(0), floats(3))
    for t, at, b in ((1, 0, 1), (3, 2, 1), (3, -1, 1), (1, 1000, 1), (3, 0, 4), (3, 1000, 4)):
        with pytest.raises(IndexError, match="dynamic_slice"):
            run(floats(t), np.asarray(at), floats(b))


@pytest.mark.quick
def test_last_of_no_iteration():
    text = """
program p(%x: f32[T,2] arg "x") {
  scan %t < T {
    seq   %xt = %x[t]                            : f32[2]
    last  %y = %z                                : f32[2]
    body
      %z = tanh(%xt)                             : f32[2]
  }
  return %y
}
"""
    run_text(text, floats(3, 2))
    with pytest.raises(ValueError, match="last value"):
        executor.compile(ir.parse(text))(floats(0, 2))


# ---------------------------------------------------------------- calls
def test_denormals_are_flushed_and_the_mode_restored():
    text = 'program p(%x: f32[1] arg "x") {\n  %y = add(%x, %x) : f32[1]\n  return %y\n}'
    run = executor.compile(ir.parse(text))
    tiny = np.array([1e-40], np.float32)
    assert run(tiny)[0] == 0
    assert (tiny + tiny) > 0


def test_threads_may_call_at_once():
    program = Generator(4).program()
    program = Program("p", program.inputs, program.ops, program.outputs)
    run = executor.compile(program)
    jobs = [arrays_for(program, {"B": b, "T": 3}, np.random.default_rng(b)) for b in (2, 5)]
    want = [run(*xs) for xs in jobs]
    wrong = []

    def work(k):
        for _ in range(100):
            got = run(*jobs[k])
            wrong.extend(g for g, w in zip(got, want[k]) if not np.array_equal(g, w, True))

    threads = [threading.Thread(target=work, args=(k,)) for k in (0, 1)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---------------------------------------------------------------- foreign
FOREIGN = """
program p(%x: f32[T,B] arg "x", %h0: f32[B] arg "h0") {
  %a = tanh(%x)                                  : f32[T,B]
  %s = foreign(%a, call="double", args=[], types=[f32[T,B]]) : f32[T,B]
  %z = full(value=0.5, shape=[B], dtype=f32)     : f32[B]
  scan %t < T {
    seq   %xt = %s[-t+T-1]                       : f32[B]
    const %w = %z                                : f32[B]
    carry %h = %h0 then %h2 last %hT             : f32[B]
    carry %g = %h0 then %h last %gT              : f32[B]
    stack %ys = %k axis 1                        : f32[B,T]
    body
      %i = add(%h, %xt)                          : f32[B]
      %k = foreign(%i, call="double", args=[], types=[f32[B]]) : f32[B]
      %h2 = multiply(%k, %w)                     : f32[B]
  }
  return %ys, %hT, %gT, %a
  write %h0 = %hT
}
"""


@pytest.mark.quick
def test_foreign_calls_inside_of_loops():
    def double(op, arrays, sizes):
        names = {n for v in op.results for n in v.type.names}
        assert op.attrs["call"] == "double" and names <= set(sizes) <= {"B", "T"}
        return [arrays[0] * np.float32(2)]

    program = ir.verify(ir.parse(FOREIGN))
    with pytest.raises(ValueError, match="foreign"):
        executor.compile(program)
    run = executor.compile(program, called(double))
    for t, b in ((3, 2), (0, 2), (1, 0), (4, 5)):
        x, h = floats(t, b), floats(b, seed=1)
        want, written = ir.evaluate(program, [x, h], double)
        for g, w in zip(run(x, h), want):
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(h, written[0], rtol=1e-5, atol=1e-6)
