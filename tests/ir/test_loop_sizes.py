"""The index of a loop as a size in its body: text, scope, meaning, passes and gradients.

scan t < T {                                 %t is the index, `t` the same number in types
  const %x1 = %x
  body
    %p = slice(%x1, axis=0, start=0, length=t+1) : f32[t+1,8]
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ir import Op, Scan, VerifyError, evaluate, parse, verify
from ir.analysis.affine import counted, polynomial
from ir.analysis.conditions import unproven
from ir.analysis.ranges import in_range
from ir.passes import hoist_from_scan, hoist_invariants, run
from ir.rewrite import Block
from ir.uses import loop_sizes
from tests.ir.autodiff.differences import check as check_gradients
from tests.ir.autodiff.differences import gradient
from tests.ir.test_ir_random import check, program

PREFIXES = """program prefixes(%x: f64[T,3] arg "x") {
  %z = full(value=0.0, shape=[3], dtype=f64)     : f64[3]
  scan t < T {
    const %x1 = %x                               : f64[T,3]
    carry %h = %z then %h2 last %hT              : f64[3]
    stack %ys = %s axis 0                        : f64[T,3]
    body
      %p = slice(%x1, axis=0, start=0, length=t+1) : f64[t+1,3]
      %q = tanh(%p)                              : f64[t+1,3]
      %s = sum(%q, axes=[0])                     : f64[3]
      %h2 = add(%h, %s)                          : f64[3]
  }
  return %hT, %ys
}"""

ATTENTION = """program attention(%x: f64[T,3] arg "x", %w: f64[3,3] arg "w", %k: f64[T,3] arg "k") {
  %z = full(value=0.0, shape=[3], dtype=f64)     : f64[3]
  scan t < T {
    seq   %xt = %x[t]                            : f64[3]
    const %w1 = %w                               : f64[3,3]
    carry %h = %z then %h2 last %hT              : f64[3]
    carry %c = %k then %c2 last %cT              : f64[T,3]
    body
      %r = add(%xt, %h)                          : f64[3]
      %k1 = matmul(%r, %w1)                      : f64[3]
      %c2 = set_dynamic_index(%c, %k1, %t, axis=0) : f64[T,3]
      %p = slice(%c2, axis=0, start=0, length=t+1) : f64[t+1,3]
      %a = matmul(%p, %r)                        : f64[t+1]
      %b = softmax(%a)                           : f64[t+1]
      %h2 = matmul(%b, %p)                       : f64[3]
  }
  return %hT, %cT
}"""

TRIANGLE = """program triangle(%x: f64[T,3] arg "x") {
  %z = full(value=0.0, shape=[3], dtype=f64)     : f64[3]
  scan i < T {
    seq   %xi = %x[i]                            : f64[3]
    const %x1 = %x                               : f64[T,3]
    carry %h = %z then %h2 last %hT              : f64[3]
    body
      scan j < i {
        const %x2 = %x1                          : f64[T,3]
        const %xi1 = %xi                         : f64[3]
        carry %g = %h then %g2 last %h1          : f64[3]
        stack %ys = %y axis 0                    : f64[i,3]
        body
          %p = slice(%x2, axis=0, start=j, length=i-j) : f64[i-j,3]
          %s = sum(%p, axes=[0])                 : f64[3]
          %y = multiply(%s, %xi1)                : f64[3]
          %g2 = add(%g, %y)                      : f64[3]
      }
      %u = sin(%ys)                              : f64[i,3]
      %v = sum(%u, axes=[0])                     : f64[3]
      %h2 = add(%h1, %v)                         : f64[3]
  }
  return %hT
}"""

PROGRAMS = {"prefixes": PREFIXES, "attention": ATTENTION, "triangle": TRIANGLE}
LENGTHS = (0, 1, 2, 7)


def arguments(p, t: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=i.value.type.concrete({"T": t})) * 0.5 for i in p.inputs]


# ---------------------------------------------------------------- text and scope
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_text_is_read_back(name):
    p = program(PROGRAMS[name])
    assert str(parse(str(p))) == str(p)


def test_other_values_do_not_take_the_name_of_the_size():
    """The index of the inner loop is called like the outer one's size; it is printed otherwise."""
    p = program(TRIANGLE)
    (loop,) = (n for n in p.ops if isinstance(n, Scan))
    (first,) = (n for n in loop.body if not isinstance(n, Scan) and n.name == "sin")
    object.__setattr__(first.result, "name", "i")
    assert str(parse(str(p))) == str(p)


def rejects(match: str, text: str) -> None:
    with pytest.raises(VerifyError, match=match):
        verify(parse(text))


def test_the_size_is_known_in_the_body_only():
    leaving = PREFIXES.replace("stack %ys = %s axis 0 ", "last  %ys = %q ").replace(
        "f64[T,3]\n    body", "f64[t+1,3]\n    body"
    )
    rejects("a size that is not known there", leaving)
    behind = PREFIXES.replace("  return", "  %n = size(n=t) : i64[]\n  return")
    rejects("a size that is not known there", behind)
    rejects("a size that is not known there", PREFIXES.replace("scan t < T", "scan t < t+1"))
    rejects("a size that is not known there", PREFIXES.replace("scan t <", "scan %t <"))


def test_the_size_is_unique():
    p = program(TRIANGLE)
    (loop,) = (n for n in p.ops if isinstance(n, Scan))
    (inner,) = (n for n in loop.body if isinstance(n, Scan))
    body = tuple(replace(n, size="i") if n is inner else n for n in loop.body)
    twice = replace(p, ops=(*p.ops[:1], replace(loop, body=body)))
    with pytest.raises(VerifyError, match="the index i of a loop names another"):
        verify(twice)
    rejects("the index T of a loop names another", PREFIXES.replace("scan t <", "scan T <"))


def test_an_endless_loop_has_no_such_size():
    rejects("an endless loop", """program p(%f: bool[] arg "f") {
  while t as n {
    go    %f then %g
    body
      %g = full(value=True, dtype=bool)  : bool[]
      %n1 = size(n=t)  : i64[]
  }
  return
}""")  # fmt: skip


def test_loops_tell_their_sizes():
    assert list(loop_sizes(program(TRIANGLE).ops)) == ["i", "j"]


# ---------------------------------------------------------------- meaning
@pytest.mark.parametrize("t", LENGTHS)
def test_prefixes(t):
    p = program(PREFIXES)
    (x,) = given = arguments(p, t)
    total, rows = evaluate(p, given)[0]
    want = np.cumsum(np.tanh(x), 0)
    np.testing.assert_allclose(rows, want)
    np.testing.assert_allclose(total, want.sum(0))


@pytest.mark.parametrize("t", LENGTHS)
def test_triangle(t):
    p = program(TRIANGLE)
    (x,) = given = arguments(p, t)
    want = np.zeros(3)
    for i in range(t):
        for j in range(i):
            y = x[j:i].sum(0) * x[i]
            want = want + y + np.sin(y)
    np.testing.assert_allclose(evaluate(p, given)[0][0], want, rtol=1e-12)


# ---------------------------------------------------------------- conditions
def test_conditions_follow_from_the_range_or_are_left():
    """x[:t+1] + y[:t+1] needs nothing, x[:t+1] + y needs t + 1 == T in every iteration."""
    assert not unproven(program(PREFIXES))
    wide = PREFIXES.replace("%q = tanh(%p) ", "%q = multiply(%p, %x1) ").replace(
        "f64[t+1,3]\n      %s", "f64[T,3]\n      %s"
    )
    (found,) = unproven(program(wide)).values()
    assert [str(r) for r in found] == ["t+1 == T"]


# ---------------------------------------------------------------- passes
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_pipeline(name, golden):
    """Nothing that names the index leaves its loop; what does not leaves it."""
    p = program(PROGRAMS[name])
    q = run(p, check=True)
    for t in LENGTHS:
        for a, b in zip(evaluate(q, arguments(p, t))[0], evaluate(p, arguments(p, t))[0]):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    assert str(q) == golden


def test_invariants_that_name_the_index_stay(golden):
    """`size`, `full` and slices of a constant: the same operands, another result per iteration."""
    check(hoist_invariants, program("""program p(%x: f32[T,3] arg "x") {
  scan t < T {
    const %x1 = %x  : f32[T,3]
    stack %ys = %y axis 0  : f32[T,3]
    body
      %p = slice(%x1, axis=0, start=0, length=t+1)  : f32[t+1,3]
      %o = full(value=1.0, shape=[t+1, 3], dtype=f32)  : f32[t+1,3]
      %n = size(n=t+1)  : i64[]
      %e = exp(%x1)  : f32[T,3]
      %e1 = sum(%e, axes=[0])  : f32[3]
      %m = multiply(%p, %o)  : f32[t+1,3]
      %s = sum(%m, axes=[0])  : f32[3]
      %f = cast(%n, dtype=f32)  : f32[]
      %d = divide(%s, %f)  : f32[3]
      %y = add(%d, %e1)  : f32[3]
  }
  return %ys
}"""), golden)  # fmt: skip


def test_products_of_moving_sizes_stay(golden):
    """A product whose result is only collected runs after the loop, but not over t + 1."""
    check(hoist_from_scan, program("""program p(%x: f32[T,3] arg "x", %w: f32[3,3] arg "w") {
  scan t < T {
    const %x1 = %x  : f32[T,3]
    const %w1 = %w  : f32[3,3]
    seq   %xt = %x[t]  : f32[3]
    stack %ys = %y axis 0  : f32[T,1,3]
    stack %zs = %z axis 0  : f32[T,1,3]
    body
      %p = slice(%x1, axis=0, start=0, length=t+1)  : f32[t+1,3]
      %a = matmul(%p, %xt)  : f32[t+1]
      %b = reshape(%a, shape=[1, t+1])  : f32[1,t+1]
      %y = matmul(%b, %p)  : f32[1,3]
      %r = reshape(%xt, shape=[1, 3])  : f32[1,3]
      %z = matmul(%r, %w1)  : f32[1,3]
  }
  return %ys, %zs
}"""), golden, exact=False)  # fmt: skip


# ---------------------------------------------------------------- gradients
@pytest.mark.sampled(every=6)
@pytest.mark.parametrize("t", LENGTHS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name, t):
    """Finite differences, by the interpreter and natively."""
    check_gradients(PROGRAMS[name], arguments(program(PROGRAMS[name]), t), native=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_backward_program(name, golden):
    """Its index is r, and t is T - r - 1; values whose size moves are computed again."""
    p = program(PROGRAMS[name])
    found = gradient(PROGRAMS[name], of=range(len(p.outputs)), wrt=range(len(p.inputs)))
    assert str(found.backward) == golden


@pytest.mark.parametrize("checkpoint", ["sqrt", 2, 3])
def test_checkpoints(checkpoint):
    """Segments and what is left of them have indices of their own."""
    text = PREFIXES.replace("T", "7")
    check_gradients(text, [np.random.default_rng(0).normal(size=(7, 3))], checkpoint=checkpoint)


# ---------------------------------------------------------------- integers that follow the indices
COUNTERS = """program counters(%x: f64[20] arg "x", %h: f64[] arg "h") {{
  %zero = full(value=0, dtype=i64)               : i64[]
  scan i < 6 {{
    const %x1 = %x                               : f64[20]
    carry %g = %h then %g2 last %gT              : f64[]
    carry %k = %zero then %k2                    : i64[]
    body
      scan %j < 3 {{
        const %x2 = %x1                          : f64[20]
        const %n = %k                            : i64[]
        const %i1 = %i                           : i64[]
        carry %f = %g then %f2 last %g2          : f64[]
        carry %m = %k then %m2                   : i64[]
        body
          %m2 = scale(%m, bias=-2.0)             : i64[]
          {op}
          %y = dynamic_index(%x2, %at, axis=0)   : f64[]
          %f2 = add(%f, %y)                      : f64[]
      }}
      %k2 = scale(%k, bias=3.0)                  : i64[]
  }}
  return %gT
}}"""
#: the index, as a polynomial of the indices of two loops, and whether it is in range of 20
POLYNOMIALS = {
    "%at = add(%m, %j) : i64[]": ("-#2+3*i", False),
    "%at = add(%m2, %j) : i64[]": ("-#2+3*i-2", False),
    "%at = subtract(%n, %i1) : i64[]": ("2*i", True),
    "%at = scale(%j, bias=17.0) : i64[]": ("#2+17", True),
    "%at = scale(%j, bias=18.0) : i64[]": ("#2+18", False),
    "%a = multiply(%i1, %n) : i64[]\n %at = add(%a, %j) : i64[]": ("3*i*i+#2", False),
    "%at = multiply(%j, %j) : i64[]": ("None", False),
    "%at = multiply(%i1, %j) : i64[]": ("#2*i", True),
}


def inner_body(op: str) -> tuple[Block, Op]:
    """The body of the inner loop, and the op that reads at the index."""
    body = Block()
    nodes = parse(COUNTERS.format(op=op)).ops
    for _ in range(2):
        for n in nodes:
            body.append(n)
        (loop,) = (n for n in nodes if isinstance(n, Scan))
        (body,), nodes = Block.inside(loop, body), loop.body
    return body, next(n for n in nodes if isinstance(n, Op) and n.name == "dynamic_index")


@pytest.mark.parametrize("op", POLYNOMIALS)
def test_integers_as_polynomials_of_indices(op):
    """`i` is a size, the inner index is none: `#2`."""
    body, select = inner_body(op)
    dim = polynomial(body, select.operands[1])
    assert (str(dim), in_range(body, select, ())) == POLYNOMIALS[op]


#: by what %j, or the number 3.0, is scaled, and what it is then
SCALED = {
    "i64": {"scale=3.0": "3*#2", "scale=2.0, bias=5.0": "2*#2+5", "scale=0.5": "None",
            "scale=2.0, bias=1.0, bias_after_scale=False": "2*#2+2"},
    "f64": {"scale=4.0, bias=-1.0": "11", "scale=0.25": "None", "bias=inf": "None",
            "scale=nan": "None", "scale=1e300": "None"},
}  # fmt: skip


@pytest.mark.parametrize("dtype, attrs", [(d, a) for d in SCALED for a in SCALED[d]])
def test_multiples(dtype, attrs):
    """Numbers that integers do not hold, and those that are none."""
    made = "assign(%j)" if dtype == "i64" else "full(value=3.0, dtype=f64)"
    op = f"""%c = {made} : {dtype}[]
      %d = scale(%c, {attrs}) : {dtype}[]
      %at = assign(%j) : i64[]"""
    body, _ = inner_body(op)
    scaled = [n for n in body.ops if isinstance(n, Op) and n.name == "scale"][-1]
    assert str(counted(body, scaled.result)) == SCALED[dtype][attrs]


def test_long_chains_of_integers_are_left_alone():
    """The doubling of a number a hundred times, and sums as long, take no time and no stack."""
    more = "".join(f"%a{n + 1} = add(%a{n}, %a{n}) : i64[]\n" for n in range(600))
    op = f"%a0 = assign(%j) : i64[]\n{more}%at = assign(%a{{}}) : i64[]"
    for last, found in ((20, "1048576*#2"), (90, "None"), (600, "None")):
        body, select = inner_body(op.format(last))
        assert str(polynomial(body, select.operands[1])) == found
