"""Arrays of tensors that loops read at their index: addresses, without a copy of an element."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from executor import cpu
from executor.cpu.launches import Pack
from executor.launches import Addresses, Loop, Map, blocks
from executor.lowering.program import lower
from ir.passes import run
from tests.executor import launch_machine
from tests.executor.test_random_programs import agree, arrays
from tests.ir.autodiff.differences import check, gradient

BACKENDS = ("cpu", launch_machine.CHECKED.name, launch_machine.CHECKED_CPU.name)

LAYERS = """program layers(%x: f64[3,8] arg "x", %a: f64[8,8] param "a", %b: f64[8,8] param "b", %c: f64[8,8] param "c", %p: f64[8] param "p", %q: f64[8] param "q", %r: f64[8] param "r") {
  %w = tensor_array(%a, %b, %c)                  : f64[3,8,8]
  %v = tensor_array(%p, %q, %r)                  : f64[3,8]
  scan %l < 3 {
    seq   %wl = %w[l]                            : f64[8,8]
    seq   %vl = %v[-l+2]                         : f64[8]
    carry %h = %x then %h2 last %hn              : f64[3,8]
    body
      %y = matmul(%h, %wl)                       : f64[3,8]
      %z = add(%y, %vl)                          : f64[3,8]
      %h2 = tanh(%z)                             : f64[3,8]
  }
  return %hn
}"""  # noqa: E501

#: every program: name -> text. `%a`, `%b`, `%c` are the elements.
HEAD = '(%x: f64[3,8] arg "x", %a: f64[8,8] arg "a", %b: f64[8,8] arg "b", %c: f64[8,8] arg "c", %k: i64[] arg "k")'  # noqa: E501
LOOP = """
  scan %l < 3 {
    seq   %wl = %w[l]                            : f64[8,8]
    carry %h = %x then %h2 last %hn              : f64[3,8]
    body
      %h2 = matmul(%h, %wl)                      : f64[3,8]
  }"""
BODIES = {
    "layers_in_a_loop_over_time": """
  %w = tensor_array(%a, %b, %c)                  : f64[3,8,8]
  scan %i < 4 {
    const %w1 = %w                               : f64[3,8,8]
    carry %g = %x then %hn last %gn              : f64[3,8]
    body
      scan %l < 3 {
        seq   %wl = %w1[l]                       : f64[8,8]
        carry %h = %g then %h2 last %hn          : f64[3,8]
        body
          %y = matmul(%h, %wl)                   : f64[3,8]
          %h2 = tanh(%y)                         : f64[3,8]
      }
  }
  return %gn""",
    "elements_computed_before": """
  %d = tanh(%a)                                  : f64[8,8]
  %e = transpose(%b, perm=[1, 0])                : f64[8,8]
  %f = full(value=0.5, shape=[8, 8], dtype=f64)  : f64[8,8]
  %w = tensor_array(%d, %e, %f)                  : f64[3,8,8]"""
    + LOOP
    + """
  return %hn""",
    "an_element_is_written_after_the_loop": """
  %w = tensor_array(%a, %b, %c)                  : f64[3,8,8]"""
    + LOOP
    + """
  %b2 = add(%b, %c)                              : f64[8,8]
  return %hn
  write %b = %b2""",
    "elements_are_written_with_elements": """
  %w = tensor_array(%a, %b, %c)                  : f64[3,8,8]"""
    + LOOP
    + """
  %b2 = dynamic_index(%w, %k, axis=0)            : f64[8,8]
  %c2 = tanh(%b)                                 : f64[8,8]
  return %hn
  write %b = %b2
  write %c = %c2""",
    "an_element_is_the_first_state_of_the_loop": """
  %w = tensor_array(%a, %b, %c)                  : f64[3,8,8]
  scan %l < 3 {
    seq   %wl = %w[l]                            : f64[8,8]
    carry %h = %a then %h2 last %hn              : f64[8,8]
    body
      %h2 = add(%h, %wl)                         : f64[8,8]
  }
  return %hn
  write %a = %hn""",
    "an_element_is_updated_with_another_one": """
  %d = tanh(%a)                                  : f64[8,8]
  %w = tensor_array(%d, %b, %c)                  : f64[3,8,8]
  %e = dynamic_index(%w, %k, axis=0)             : f64[8,8]
  %f = add(%d, %e)                               : f64[8,8]
  %g = index(%e, axis=0, index=1)                : f64[8]
  %o = set_index(%d, %g, axis=0, index=0)        : f64[8,8]
  return %f, %o""",
    "an_array_in_a_body": """
  scan %i < 4 {
    const %b1 = %b                               : f64[8,8]
    const %c1 = %c                               : f64[8,8]
    const %k1 = %k                               : i64[]
    carry %s = %a then %s2 last %sn              : f64[8,8]
    body
      %w = tensor_array(%s, %b1, %c1)            : f64[3,8,8]
      %e = dynamic_index(%w, %k1, axis=0)        : f64[8,8]
      %t = tanh(%e)                              : f64[8,8]
      %s2 = add(%s, %t)                          : f64[8,8]
  }
  return %sn""",
    "in_a_branch": """
  %w = tensor_array(%a, %b, %c)                  : f64[3,8,8]
  %z = full(value=1, shape=[], dtype=i64)        : i64[]
  %p = less_than(%k, %z)                         : bool[]
  cond %p {
    const %w1 = %w                               : f64[3,8,8]
    const %k1 = %k                               : i64[]
    join  %o = %e else %f                        : f64[8,8]
    then
      %e = dynamic_index(%w1, %k1, axis=0)       : f64[8,8]
    else
      %d = index(%w1, axis=0, index=2)           : f64[8,8]
      %f = tanh(%d)                              : f64[8,8]
  }
  return %o""",
    "an_array_of_elements_of_another": """
  %w = tensor_array(%a, %b)                      : f64[2,8,8]
  %z = full(value=0, shape=[], dtype=i64)        : i64[]
  %y = maximum(%k, %z)                           : i64[]
  scan %l < 2 {
    seq   %wl = %w[l]                            : f64[8,8]
    const %c1 = %c                               : f64[8,8]
    stack %ys = %e axis 0                        : f64[2,8,8]
    body
      %u = tensor_array(%wl, %c1)                : f64[2,8,8]
      %e = dynamic_index(%u, %l, axis=0)         : f64[8,8]
  }
  return %ys, %y""",
    "a_product_for_all_steps_stays_in_the_loop": """
  %w = tensor_array(%a, %b, %c)                  : f64[3,8,8]
  scan %l < 3 {
    seq   %wl = %w[l]                            : f64[8,8]
    const %c1 = %c                               : f64[8,8]
    carry %h = %a then %h2 last %hn              : f64[8,8]
    body
      %y = matmul(%wl, %c1)                      : f64[8,8]
      %h2 = add(%h, %y)                          : f64[8,8]
  }
  return %hn""",
}


def program(name):
    return ir.verify(ir.parse(f"program {name}{HEAD} {{{BODIES[name]}\n}}"))


def every(launches):
    for x in launches:
        yield x
        for body in blocks(x):
            yield from every(body)


@pytest.mark.sampled(every=32)
@pytest.mark.parametrize("poison", [False, True])
@pytest.mark.parametrize("k", [0, 2, -1])
@pytest.mark.parametrize("name", BODIES)
def test_elements_are_read_where_they_lie(name, k, poison):
    p = run(program(name), start_at="expand", check=True)
    assert sum(isinstance(x, Addresses) for x in every(lower(p, cpu.machine()).launches)) > 0
    xs = [*arrays(p, {}, np.random.default_rng(3))[:4], np.array(k)]
    want, written = ir.evaluate(p, xs)
    for backend in BACKENDS:
        own = [x.copy() for x in xs]
        got = executor.compile(p, backend=backend, poison=poison)(*own)
        for a, b in zip(got, want, strict=True):
            agree(a, b, name)
        at = {i.value: n for n, i in enumerate(p.inputs)}
        for (target, _), b in zip(p.writes, written, strict=True):
            agree(own[at[target]], b, name)


def test_an_index_outside_of_an_array_raises():
    p = program("in_a_branch")
    xs = [*arrays(p, {}, np.random.default_rng(3))[:4], np.array(-4)]
    for backend in BACKENDS:
        with pytest.raises(IndexError, match="axis of size 3"):
            executor.compile(p, backend=backend)(*[x.copy() for x in xs])


def test_no_element_is_copied():
    kinds = [type(x) for x in every(lower(ir.parse(LAYERS), cpu.machine()).launches)]
    assert kinds.count(Addresses) == 2
    assert kinds.count(Map) == 2, "the first state, and tanh"


@pytest.mark.slow
def test_elements_that_a_loop_asks_for_again_are_packed_once():
    """Products with many rows read panels: those of all elements are made before the outer loop."""
    text = BODIES["layers_in_a_loop_over_time"].replace("[3,8]", "[40,8]")
    p = ir.verify(ir.parse(f"program packed{HEAD.replace('[3,8]', '[40,8]')} {{{text}\n}}"))
    launches = cpu.machine().legalize(lower(p, cpu.machine())).launches
    outer = [x for x in launches if isinstance(x, Loop)]
    assert [sum(isinstance(q, Pack) for q in every([x])) for x in outer] == [1, 0]
    xs = arrays(p, {}, np.random.default_rng(1))
    for backend in BACKENDS:
        agree(executor.compile(p, backend=backend)(*xs)[0], ir.evaluate(p, xs)[0][0], text)


@pytest.mark.parametrize(
    "use",
    ["%y = sum(%w, axes=[0])", "%y = index(%w, axis=1, index=0)", "%y = tanh(%w)", ""],
)
def test_an_array_that_is_read_as_a_whole_is_a_copy(use):
    shapes = {"sum": "[8,8]", "index": "[3,8]", "tanh": "[3,8,8]"}
    line = next((f"  {use} : f64{s}\n" for n, s in shapes.items() if n in use), "")
    text = f"""program whole{HEAD} {{
  %w = tensor_array(%a, %b, %c) : f64[3,8,8]
{line}  return {"%y" if use else "%w"}
}}"""
    p = ir.verify(ir.parse(text))
    assert not any(isinstance(x, Addresses) for x in every(lower(p, cpu.machine()).launches))
    xs = arrays(p, {}, np.random.default_rng(0))
    for backend in BACKENDS:
        agree(executor.compile(p, backend=backend)(*xs)[0], ir.evaluate(p, xs)[0][0], text)


@pytest.mark.parametrize("native", [False, True])
def test_gradients_of_elements(native):
    xs = [0.5 * x for x in arrays(ir.parse(LAYERS), {}, np.random.default_rng(0))]
    check(LAYERS, xs, native=native)


def test_gradients_are_collected_by_the_loop(golden):
    """They are slices of what the backward loop stacks; the elements themselves are kept, not an
    array of them."""
    g = gradient(LAYERS, of=[0])
    assert not any(r.source == "kept" and r.type.ndim > 3 for r in g.residuals)
    assert str(g.backward) == golden


@pytest.mark.parametrize("poison", [False, True])
def test_slices_that_are_outputs_are_collected_there(poison):
    """The gradient of each element is written into its output, without a copy."""
    p = run(gradient(LAYERS, of=[0]).backward, start_at="expand", check=True)
    kinds = [type(x) for x in every(lower(p, cpu.machine()).launches)]
    assert kinds.count(Addresses) == 3
    assert kinds.count(Map) == 2, "the first state, and what is fused"
    xs = arrays(p, {}, np.random.default_rng(2))
    want, _ = ir.evaluate(p, xs)
    for backend in BACKENDS:
        got = executor.compile(p, backend=backend, poison=poison)(*xs)
        for a, b in zip(got, want, strict=True):
            agree(a, b, backend)


def test_slices_that_are_read_again_are_collected_together():
    text = LAYERS.replace("last %hn ", "").replace("  return %hn", "  return %y0, %y1, %y2, %u")
    text = text.replace("    body", "    stack %ys = %h2 axis 0 : f64[3,3,8]\n    body", 1)
    picks = [f"  %y{k} = index(%ys, axis=0, index={k}) : f64[3,8]\n" for k in range(3)]
    text = text.replace("  return", "".join(picks) + "  %u = tanh(%y1) : f64[3,8]\n  return")
    p = ir.verify(ir.parse(text))
    xs = arrays(p, {}, np.random.default_rng(2))
    for backend in BACKENDS:
        for a, b in zip(executor.compile(p, backend=backend)(*xs), ir.evaluate(p, xs)[0]):
            agree(a, b, backend)
