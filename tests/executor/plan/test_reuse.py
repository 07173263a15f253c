"""Reuse of memory: plans checked by a machine of their own, poison, and what plans cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import executor
import ir
from executor import cpu
from executor.launches import Index, Loop, Map, blocks, results
from executor.lowering.program import lower
from executor.plan import arena as plan
from executor.plan.arena import layout
from executor.poison import poisoned
from ir.types import F32
from tests.conftest import mostly_slow
from tests.executor.launch_machine import CHECKED_CPU, PlanError
from tests.executor.plan.test_arena import native_program
from tests.executor.test_executor import examples_program, floats, run_text
from tests.executor.test_random_programs import agree, arrays


def launches_of(text):
    return lower(ir.verify(ir.parse(text)), cpu.machine())


def every(launches):
    for x in launches:
        yield x
        for body in blocks(x):
            yield from every(body)


# ---------------------------------------------------------------- a machine that checks
FAILURES = (IndexError, OverflowError, ValueError, ZeroDivisionError)


def check_plan(program, sizes, seed, donated=(), backend="checked-cpu"):
    """The launches, run with NumPy on memory that knows its owners, do what the program does."""
    run = executor.compile(program, donated=donated, backend=backend)
    xs = arrays(program, sizes, np.random.default_rng(seed))
    own = [x.copy() for x in xs]
    try:
        outputs, written = ir.evaluate(program, xs)
    except FAILURES:
        with pytest.raises(FAILURES):
            run(*own)
        kept = [(a, x) for k, (a, x) in enumerate(zip(own, xs)) if k not in donated]
        assert all(np.array_equal(a, x, True) for a, x in kept)
        return
    text = str(program)
    for a, b in zip(run(*own), outputs, strict=True):
        agree(a, b, text)
    new = dict(zip((target for target, _ in program.writes), written))
    for k, (i, x, a) in enumerate(zip(program.inputs, xs, own)):
        if k not in donated or i.value in new:
            agree(a, new.get(i.value, x), text)


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("seed", mostly_slow(range(8), 0, nightly=range(8, 16)))
def test_no_value_is_lost(seed, control):
    program = native_program(seed, control)
    for b, t in ((2, 3), (1, 1), (3, 0)):
        check_plan(program, {"B": b, "T": t}, seed)
    check_plan(program, {"B": 2, "T": 3}, seed, backend="checked")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("gather_nd", "scatter_nd", "gather", "embedding", "set_dynamic_slice", "concat", "conv"),
        *("max_pool", "max_unpool", "sum_pool", "spread_pool"),
    ],
)
def test_no_value_is_lost_in_the_examples_of_a_row(name):
    program, xs = examples_program(name)
    for backend in ("checked-cpu", "checked"):
        got = executor.compile(program, backend=backend)(*xs)
        for a, b in zip(got, ir.evaluate(program, xs)[0], strict=True):
            agree(a, b, name)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60, 68))
def test_no_value_is_lost_where_every_input_is_donated(seed):
    program = native_program(seed, seed % 2 == 0)
    every_input = range(len(program.inputs))
    for b, t in ((2, 3), (1, 1)):
        check_plan(program, {"B": b, "T": t}, seed, every_input)


def with_plan(lowered, plan_, backend=CHECKED_CPU):
    code = backend.build(lowered, plan_)
    return executor.Executable(lowered.program, code, plan_, lowered.failures)


@pytest.mark.slow
def test_the_machine_finds_buffers_that_overlap():
    """With every buffer at the start of the arena, some value of a random program is lost, as
    every one of these has buffers that live at the same time."""
    found = 0
    for seed in (0, 1, 3):
        program, sizes = native_program(seed, True), {"B": 2, "T": 3}
        lowered = CHECKED_CPU.legalize(lower(program, CHECKED_CPU))
        good = layout(lowered.launches)
        bad = replace(good, offsets=dict.fromkeys(good.offsets, 0))
        xs = arrays(program, sizes, np.random.default_rng(seed))
        with_plan(lowered, good)(*xs)
        try:
            with_plan(lowered, bad)(*xs)
        except PlanError:
            found += 1
    assert found == 3


# ---------------------------------------------------------------- poison
@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("seed", mostly_slow(range(200, 208), nightly=range(208, 216)))
def test_poison_changes_nothing(seed, control):
    program, sizes = native_program(seed, control), {"B": 2, "T": 3}
    xs = arrays(program, sizes, np.random.default_rng(seed))
    runs = [executor.compile(program, poison=p) for p in (False, True)]
    both = []
    for run in runs:
        own = [x.copy() for x in xs]
        try:
            both.append((run(*own), own))
        except (IndexError, OverflowError, ValueError, ZeroDivisionError) as e:
            both.append(([np.asarray(str(e))], own))
    for plain, dead in zip(*both):
        assert all(np.array_equal(a, b, a.dtype.kind == "f") for a, b in zip(plain, dead))


def test_poison_finds_a_buffer_that_is_read_after_its_death():
    """A plan in which an early buffer lies where a later one does."""
    text = """
program p(%x: f32[64] arg "x") {
  %a = sum(%x, axes=[0], keepdim=True)           : f32[1]
  %b = tanh(%a)                                  : f32[1]
  %c = max(%x, axes=[0], keepdim=True)           : f32[1]
  %d = add(%c, %b)                               : f32[1]
  return %d
}"""
    lowered = launches_of(text)
    fills = [x for x in poisoned(lowered) if isinstance(x, Map) and not x.ins]
    assert {v.buffer.kind for x in fills for v in x.outs} == {"arena", "output"}
    good = layout(lowered.launches)
    bad = replace(good, offsets=dict.fromkeys(good.offsets, 0))
    x = floats(64)
    (got,) = with_plan(replace(lowered, launches=poisoned(lowered)), bad, cpu.machine())(x)
    assert not np.isfinite(got).all() or not np.allclose(got, x.max() + np.tanh(x.sum()))


def test_the_test_of_a_branch_is_dead_inside_of_it():
    """Its byte may lie where a result of the branch does, and is not poisoned after the branch."""
    text = """
program p(%x: f32[64] arg "x") {
  %s = sum(%x)                                   : f32[]
  %z = full(value=0.0, dtype=f32)                : f32[]
  %go = greater_than(%s, %z)                     : bool[]
  cond %go {
    const %a = %x                                : f32[64]
    join  %y = %a else %b                        : f32[64]
    then
    else
      %b = exp(%a)                               : f32[64]
  }
  %m = max(%y, axes=[0], keepdim=True)           : f32[1]
  %r = subtract(%y, %m)                          : f32[64]
  return %r
}"""
    lowered = launches_of(text)
    plan_, x = layout(lowered.launches), floats(64)
    dead = replace(lowered, launches=poisoned(lowered))
    (got,) = with_plan(dead, plan_)(x)
    (want,), _ = ir.evaluate(lowered.program, [x])
    np.testing.assert_allclose(got, want, rtol=1e-6)


# ---------------------------------------------------------------- in place
ATTENTION = """
program p(%cache: f32[C,D] buffer "cache", %x: f32[T,D] arg "x", %pos: i64[] buffer "pos") {
  scan %t < T {
    seq   %row = %x[t]                           : f32[D]
    carry %at = %pos then %at2 last %at3         : i64[]
    carry %c1 = %cache then %c2 last %c3         : f32[C,D]
    stack %ys = %y axis 0                        : f32[T,D]
    body
      %c2 = set_dynamic_index(%c1, %row, %at, axis=0)   : f32[C,D]
      %s = matmul(%c2, %row)                     : f32[C]
      %y = matmul(%s, %c2)                       : f32[D]
      %at2 = scale(%at, bias=1.0)                : i64[]
  }
  return %ys
  write %cache = %c3
  write %pos = %at3
}"""


def test_a_cache_at_a_position_from_data_costs_what_is_written():
    """No copy of the cache; the arena holds scores, not caches; the index is checked before."""
    run = executor.compile(ir.verify(ir.parse(ATTENTION)))
    assert run.copies == ()
    sizes = dict(zip(run.sizes, (4096, 512, 4096)))
    assert run.layout.bytes(sizes) == 4 * 4096
    cache, x = floats(9, 4), floats(5, 4, seed=1)
    for start in (0, 4, -3):
        run_text(ATTENTION, cache, x, np.asarray(start))
    for start in (5, -10):
        own = cache.copy(), x, np.asarray(start)
        with pytest.raises(IndexError):
            run(*own)
        np.testing.assert_array_equal(own[0], cache)


def test_a_loop_that_asks_its_data_for_the_index_is_checked_first():
    low = launches_of(ATTENTION)
    first, second = (x for x in low.launches if isinstance(x, Loop))
    assert [x.error for x in every([first]) if isinstance(x, Index)] != [0]
    assert all(x.error == 0 for x in every([second]) if isinstance(x, Index))
    assert not any(v.buffer.kind == "input" for x in every([first]) for v in results(x))


PORT = "    const %k = %one                          : i64[]\n    body\n"
STEPS = {
    "outside": ("  %one = full(value=2, dtype=i64) : i64[]\n", PORT, "add(%at, %k)"),
    "inside": ("", "    body\n      %k = full(value=3, dtype=i64) : i64[]\n", "add(%k, %at)"),
    "down": ("", "    body\n      %k = full(value=1, dtype=i64) : i64[]\n", "subtract(%at, %k)"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_position_moves_by_a_tensor_that_is_a_number(step):
    before, body, moved = STEPS[step]
    text = ATTENTION.replace("  scan", f"{before}  scan", 1)
    text = text.replace("    body\n", body, 1).replace("scale(%at, bias=1.0)", moved)
    assert executor.compile(ir.verify(ir.parse(text))).copies == ()
    for start in (0, -4):
        run_text(text, floats(14, 4), floats(5, 4, seed=1), np.asarray(start))


def test_a_position_that_moves_by_data_is_not_known_before():
    text = ATTENTION.replace("    body\n", "    const %k = %pos : i64[]\n    body\n", 1)
    text = text.replace("scale(%at, bias=1.0)", "add(%at, %k)")
    run_text(text, floats(14, 4), floats(3, 4, seed=1), np.asarray(1))
    own = floats(14, 4), floats(3, 4, seed=1), np.asarray(6)
    with pytest.raises(IndexError):
        executor.compile(ir.verify(ir.parse(text)))(*own)
    np.testing.assert_array_equal(own[0], floats(14, 4))


def test_a_part_is_not_made_in_its_place_while_the_whole_is_read():
    """The chain of %b begins before %d reads %h, its last op comes after."""
    text = """program f(%h: f64[4] buffer "h") {
      %a = slice(%h, axis=0, start=0, length=2)      : f64[2]
      %m = mean(%a)                                  : f64[]
      %b = scale(%a, scale=0.5)                      : f64[2]
      %c = subtract(%h, %m)                          : f64[4]
      %d = tanh(%c)                                  : f64[4]
      %z = full(value=0.0, dtype=f64)                : f64[]
      %e = set_index(%b, %z, axis=0, index=1)         : f64[2]
      %h2 = set_slice(%h, %e, axis=0, start=0)       : f64[4]
      return %d
      write %h = %h2
    }"""
    run_text(text, np.array([0.1, 0.2, 0.4, 0.7]))


@pytest.mark.parametrize("step", [1, -1])
def test_a_part_is_not_made_by_the_op_that_makes_the_whole(step):
    text = f"""program f(%x: f64[5,2] arg "x") {{
      fused [5, 2] {{
        const %x1 = %x                               : f64[5,2]
        out   %p = %q                                : f64[5,2]
        out   %r = %s                                : f64[5,2]
        body
          %q = scale(%x1, scale=0.5)                 : f64[5,2]
          %s = scale(%q, scale=0.5)                  : f64[5,2]
      }}
      %y = set_slice(%p, %r, axis=0, start={4 if step < 0 else 0}, step={step}) : f64[5,2]
      return %y
    }}"""
    run_text(text, np.arange(10.0).reshape(5, 2))


GREEDY = """
program p(%cache: f32[9,4] buffer "cache", %embed: f32[6,4] param "embed", %w: f32[4,6] param "w") {
  %bos = full(value=2, shape=[1], dtype=i64)     : i64[1]
  scan %t < 5 {
    const %e = %embed                            : f32[6,4]
    const %v = %w                                : f32[4,6]
    carry %tok = %bos then %tok2                 : i64[1]
    carry %c1 = %cache then %c2 last %c3         : f32[9,4]
    stack %toks = %tok2 axis 0                   : i64[5,1]
    body
      %rows = embedding(%tok, %e)                : f32[1,4]
      %row = reshape(%rows, shape=[4])           : f32[4]
      %c2 = set_dynamic_index(%c1, %row, %t, axis=0)    : f32[9,4]
      %m = sum(%c2, axes=[0], keepdim=True)      : f32[1,4]
      %s = matmul(%m, %v)                        : f32[1,6]
      %tok2 = argmax(%s, axis=1, dtype=i64)      : i64[1]
  }
  return %toks
  write %cache = %c3
}"""


@pytest.mark.parametrize("rows, start, left", [(6, 2, 0), (5, 2, 2), (6, 6, 2), (6, -1, 2)])
def test_what_argmax_gives_is_an_index(rows, start, left):
    """Tokens that the loop chooses itself need no copy of the cache, if all of them are in range:
    with a row too few, or another first token, a call may fail and then changes nothing."""
    text = GREEDY.replace("embed: f32[6,4]", f"embed: f32[{rows},4]")
    text = text.replace(
        "%e = %embed                            : f32[6,4]", f"%e = %embed : f32[{rows},4]"
    )
    text = text.replace("value=2", f"value={start}")
    run = executor.compile(ir.verify(ir.parse(text)))
    assert len([c for c in run.copies if c.input is not None]) == left
    xs = floats(9, 4), floats(rows, 4, seed=1), floats(4, 6, seed=2)
    try:
        ir.evaluate(run.program, xs)
    except IndexError:
        own = [x.copy() for x in xs]
        with pytest.raises(IndexError):
            run(*own)
        assert np.array_equal(own[0], xs[0])
        return
    run_text(text, *xs)


ROWS = """
program p(%x: f32[6,3] arg "x", %y: f32[6,3] arg "y", %d: f32[] arg "d") {
  scan %t < 6 {
    const %e = %d                                : f32[]
    seq   %v = %y[t]                             : f32[3]
    carry %a = %x then %b last %xT               : f32[6,3]
    body
      %old = dynamic_index(%a, %t, axis=0)              : f32[3]
      %p = multiply(%old, %e)                    : f32[3]
      %new = add(%p, %v)                         : f32[3]
      %b = set_dynamic_index(%a, %new, %t, axis=0)      : f32[6,3]
  }
  return
  write %x = %xT
}"""


def test_only_the_slice_is_written():
    """The new row is made in the row of the argument: no buffer but for what is in between."""
    low = launches_of(ROWS)
    maps = [x for x in every(low.launches) if isinstance(x, Map)]
    stored = [v for x in maps for v in x.outs if v.buffer.kind == "input"]
    assert len(stored) == 1 and stored[0].shape == (3,)
    assert layout(low.launches).bytes({}) <= 2 * 64
    run_text(ROWS, floats(6, 3), floats(6, 3, seed=1), np.asarray(0.5, np.float32))


def test_an_elementwise_op_takes_the_storage_of_what_dies():
    text = """
program p(%x: f32[64] arg "x", %w: f32[64,64] param "w") {
  %a = matmul(%x, %w)                            : f32[64]
  %b = tanh(%a)                                  : f32[64]
  %c = sum(%b, keepdim=True, axes=[0])           : f32[1]
  %d = multiply(%b, %c)                          : f32[64]
  %e = matmul(%d, %w)                            : f32[64]
  return %e
}"""
    low = launches_of(text)
    arena = {v.buffer for x in low.launches for v in results(x) if v.buffer.size == 256}
    assert len([b for b in arena if b.kind == "arena"]) == 1
    run_text(text, floats(64) / 8, floats(64, 64, seed=1) / 8)


def layers(count, batch, width, activation="relu"):
    """A chain of `count` layers; every other width is twice as large."""
    lines, inputs, x = [], [f'%x: f32[{batch},{width}] arg "x"'], "x"
    for k in range(count):
        n, m = width * (1 + k % 2), width * (2 - k % 2)
        inputs += [f'%w{k}: f32[{n},{m}] param "w{k}"', f'%b{k}: f32[{m}] param "b{k}"']
        t = f"f32[{batch},{m}]"
        lines += [f"  %p{k} = matmul(%{x}, %w{k}) : {t}", f"  %q{k} = add(%p{k}, %b{k}) : {t}"]
        lines += [f"  %r{k} = {activation}(%q{k}) : {t}"]
        x = f"r{k}"
    return f"program mlp({', '.join(inputs)}) {{\n" + "\n".join(lines) + f"\n  return %{x}\n}}"


def test_a_chain_of_layers_holds_two_activations():
    """18 layers, batch 8: no more than 1.3 times the two largest activations that live together."""
    run = executor.compile(ir.parse(layers(18, 8, 1024)))
    two = 4 * 8 * (1024 + 2048)
    assert run.copies == () and run.layout.bytes({}) <= 1.3 * two


# ---------------------------------------------------------------- donation
DONATED = """
program p(%x: f32[300,4] arg "x", %i: i64[7] arg "i", %y: f32[7,4] arg "y") {
  scan %t < 7 {
    seq   %at = %i[t]                            : i64[]
    seq   %v = %y[t]                             : f32[4]
    carry %a = %x then %b last %c                : f32[300,4]
    body
      %b = set_dynamic_index(%a, %v, %at, axis=0)       : f32[300,4]
  }
  %e = exp(%c)                                   : f32[300,4]
  %s = sum(%e, axes=[0])                         : f32[4]
  return %s
}"""


def test_a_donated_argument_lends_its_memory():
    program = ir.verify(ir.parse(DONATED))
    plain, given = executor.compile(program), executor.compile(program, donated=[0])
    assert [c.reason for c in plain.copies] == ["x itself must stay as it is"]
    assert given.copies == () and given.layout.bytes({}) + 4800 <= plain.layout.bytes({})
    xs = floats(300, 4), np.array([0, 5, 299, -1, 3, 3, 7]), floats(7, 4, seed=1)
    own = [x.copy() for x in xs]
    np.testing.assert_array_equal(given(*own)[0], plain(*xs)[0])
    assert not np.array_equal(own[0], xs[0]) and np.array_equal(own[2], xs[2])


def test_a_donated_argument_is_writable_and_apart():
    program = ir.verify(ir.parse(DONATED))
    run = executor.compile(program, donated=[0])
    x, i, y = floats(300, 4), np.zeros(7, np.int64), floats(7, 4)
    with pytest.raises(ValueError, match="shares memory with input"):
        run(x, i, x[:7])
    x.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        run(x, i, y)


def test_slots_of_equal_size_never_live_together():
    """Symbolic sizes: a chain of T steps has as many slots as values that live together."""
    text = """
program p(%x: f32[T,3] arg "x") {
  %a = tanh(%x)                                  : f32[T,3]
  %m = sum(%a, axes=[1], keepdim=True)           : f32[T,1]
  %b = add(%a, %m)                               : f32[T,3]
  %n = sum(%b, axes=[1], keepdim=True)           : f32[T,1]
  %c = add(%b, %n)                               : f32[T,3]
  %s = sum(%c)                                   : f32[]
  return %s
}"""
    run = executor.compile(ir.parse(text))
    size = run.program.ops[0].result.type
    assert size.dtype == F32 and isinstance(run.layout, plan.ArenaLayout)
    assert run.layout.bytes({"T": 640}) <= 640 * 4 * (3 + 2) + 64  # %m is read again for %c
    run_text(text, floats(5, 3))
