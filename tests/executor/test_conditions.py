"""Conditions on sizes that types rest on: proven, or checked before memory is touched.

The programs come from texts without `require` lines; each read or wrote outside of its memory once.
"""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

import executor
from executor.allocation import HOST
from ir import OPS, VerifyError, parse, verify
from ir.analysis.conditions import unproven, with_requires
from ir.analysis.overflow import LARGEST, extents, too_large
from ir.analysis.ranges import bounds_of_elements
from ir.interpreter import bind_sizes
from ir.literal import parse_type, print_attr
from ir.opdef import complete_attrs
from ir.passes import run as run_passes

TWO = "%x: f32[N], %y: f32[M]"
PROGRAMS = {
    "reshape": (TWO, "%1 = reshape(%x, shape=[M]) : f32[M]", [(1,), (10**7,)]),
    "expand": (TWO, "%1 = expand(%x, shape=[M]) : f32[M]", [(2,), (10**7,)]),
    "add": (TWO, "%1 = add(%x, %y) : f32[M]", [(2,), (10**7,)]),
    "strided": (TWO, "%1 = strided(%x, shape=[M], strides=[1000]) : f32[M]", [(2,), (10**5,)]),
    "strided, backwards": (
        TWO,
        "%1 = strided(%x, shape=[2], strides=[-M-1], offset=1) : f32[2]",
        [(4,), (10**6,)],
    ),
    "strided, either way": (
        TWO,
        "%1 = strided(%x, shape=[2], strides=[M-N], offset=1) : f32[2]",
        [(4,), (1,)],
    ),
    "set_strided": (TWO, "%1 = set_strided(%x, %y, strides=[1000]) : f32[N]", [(2,), (10**5,)]),
    "concat": (
        "%x: f32[N,A], %y: f32[M,B]",
        "%1 = concat(%x, %y, axis=0) : f32[N+M,B]",
        [(2, 1), (3, 10**6)],
    ),
    "matmul": (
        "%x: f32[A,N], %y: f32[M,B]",
        "%1 = matmul(%x, %y) : f32[A,B]",
        [(2, 10**6), (3, 4)],
    ),
    "gather_nd": (
        "%x: f32[4,4], %i: i64[N], %j: i64[M]",
        "%1 = gather_nd(%x, %i, %j, axis=0) : f32[M]",
        [(4, 4), (1,), (10**6,)],
    ),
    "unfold": (TWO, "%1 = unfold(%x, axis=0, size=5, step=1) : f32[N-4,5]", [(3,), (1,)]),
}


def program(inputs: str, ops: str):
    head = ", ".join(f'{q} arg "{q.split(":")[0][1:]}"' for q in inputs.split(", "))
    result = ops.split(" = ")[0].strip()
    return verify(parse(f"program p({head}) {{\n  {ops}\n  return {result}\n}}"))


def compiled(p):
    return executor.compile(run_passes(p, start_at="expand"))


def zeros(p, shapes):
    return [np.zeros(s, i.value.type.dtype.numpy) for s, i in zip(shapes, p.inputs)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_condition_of_a_type_is_checked(name):
    inputs, ops, shapes = PROGRAMS[name]
    p = program(inputs, ops)
    with pytest.raises(ValueError, match="does not hold"):
        compiled(p)(*zeros(p, shapes))


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_becomes_a_require_that_names_the_inputs(name):
    inputs, ops, shapes = PROGRAMS[name]
    p = with_requires(program(inputs, ops))
    assert p.requires and not unproven(p) and with_requires(p) is p
    with pytest.raises(ValueError, match=r"does not hold .*: \w+ is [fi]\d+\[.*\] of shape \["):
        bind_sizes(p, shapes)


def test_a_size_is_found_from_a_multiple_of_it():
    text = """program p(%x: f32[2*N] arg "x") {
  %y = reshape(%x, shape=[N, 2])              : f32[N,2]
  return %y
}"""
    run = compiled(verify(parse(text)))
    assert run(np.zeros(6, "float32"))[0].shape == (3, 2)
    with pytest.raises(ValueError, match=r"f32\[2\*N\]"):
        run(np.zeros(5, "float32"))


def test_what_follows_from_requires_is_not_checked_again():
    p = verify(
        parse(
            'program p(%x: f32[N,4] arg "x", %y: f32[M,4] arg "y", %z: f32[K,4] arg "z") {\n'
            '  require N == M ""\n  require 2*K == N+M ""\n'
            "  %1 = add(%x, %y) : f32[M,4]\n"
            "  %2 = reshape(%1, shape=[4*N]) : f32[4*N]\n"
            "  %3 = add(%x, %z) : f32[K,4]\n"
            "  return %2, %3\n}"
        )
    )
    assert [str(r) for q in unproven(p).values() for r in q] == ["N == K"]


WHILE = """program p(%x: f32[N] arg "x", %ok: bool[] arg "ok") {
  while %i < 100 as c {
    go    %ok then %ok1
    const %ok1 = %ok                           : bool[]
    stack %s = %i axis 0                       : i64[c]
    body
  }
  %r = reshape(%x, shape=[c])                  : f32[c]
  %q = add(%r, %r)                             : f32[c]
  return %q
}"""


def test_a_condition_on_the_count_of_a_loop_is_checked_behind_it():
    run = compiled(verify(parse(WHILE)))
    (found,) = run(np.ones(100, "f"), np.array(True))
    np.testing.assert_array_equal(found, np.full(100, 2.0))
    for n in (2, 1000):
        with pytest.raises(ValueError, match="data decides do not fit"):
            run(np.ones(n, "f"), np.array(True))
    with pytest.raises(ValueError, match="data decides do not fit"):
        run(np.ones(2, "f"), np.array(False))


@pytest.mark.parametrize("op", ["slice(%x, axis=0, length=M, ", "set_slice(%x, %y, axis=0, "])
def test_a_backward_slice_begins_inside(op):
    """`start=M` was allowed for any length, because it is for a slice without elements."""
    result = "f32[M]" if op.startswith("slice") else "f32[N]"
    p = program(TWO, f"%1 = {op}start=M, step=-1) : {result}")
    run = compiled(p)
    for n, m in ((4, 4), (3, 3), (2, 10**6)):
        with pytest.raises(IndexError, match="outside of axis"):
            run(*zeros(p, [(n,), (m,)]))
    run(*zeros(p, [(4,), (0,)]))


LARGE = {
    "a product wraps around": ("[N*N]", (1 << 40, 0)),
    "to a small number": ("[N*N*N*N]", (1 << 16, 0)),
    "a sum over no memory": ("[N,N,N]", (1 << 21, 0)),
}


@pytest.mark.parametrize("name", LARGE)
def test_sizes_that_leave_64_bits_are_refused(name):
    shape, size = LARGE[name]
    axes = list(range(shape.count(",") + 1))
    p = program(
        "%x: f32[N,0]",
        f"%1 = full(value=1.0, shape={shape}, dtype=f32) : f32{shape}\n"
        f"  %2 = sum(%1, axes={axes}) : f32[]",
    )
    with pytest.raises(MemoryError):
        compiled(p)(np.zeros(size, "f"))


@pytest.mark.parametrize(
    "op",
    [
        "full(value=1.0, shape=[1099511627776, 1099511627776], dtype=f32)"
        " : f32[1099511627776,1099511627776]",
        "strided(%x, shape=[1], strides=[4611686018427387904]) : f32[1]",
        "iota(n=4611686018427387904, dtype=i64) : i64[4611686018427387904]",
    ],
)
def test_numbers_that_leave_64_bits_are_refused(op):
    with pytest.raises(MemoryError):
        compiled(program("%x: f32[4]", f"%1 = {op}"))


def test_extents_bound_every_size():
    p = program(TWO, "%1 = strided(%x, shape=[M], strides=[3], offset=N-1) : f32[M]")
    known = extents(p)
    assert not too_large(known, {"N": 1 << 20, "M": 1 << 20})
    assert too_large(known, {"N": LARGEST // 2, "M": 1})


def test_an_index_that_its_type_does_not_hold_has_no_bound():
    """argmax gave 200 as i8, which is -56, and the check of the index counted as needless."""
    p = verify(
        parse(
            'program p(%x: f32[200] arg "x", %y: f32[300] arg "y") {\n'
            "  %i = argmax(%x, axis=0, keepdim=True, dtype=i8) : i8[1]\n"
            "  %1 = gather(%y, %i) : f32[1]\n"
            "  return %1\n}"
        )
    )
    x = np.arange(200, dtype="f")
    (found,) = compiled(p)(x, np.arange(300, dtype="f"))
    assert found == [300 - 57]


ELEMENTS = {
    "%r = argmax(%x, axis=0, dtype=i64) : i64[]": 200,
    "%r = full(value=6, shape=[3], dtype=i32) : i32[3]": 7,
    "%r = full(value=-1, dtype=i64) : i64[]": None,
    "%d = full(value=7, dtype=i64) : i64[]\n%r = remainder(%i, %d) : i64[3]": 7,
    "%d = full(value=-7, dtype=i64) : i64[]\n%r = remainder(%i, %d) : i64[3]": None,
    "%d = argmax(%x, axis=0, dtype=i64) : i64[]\n%r = remainder(%i, %d) : i64[3]": 199,
    "%d = full(value=7, dtype=i64) : i64[]\n%q = remainder(%i, %d) : i64[3]\n"
    "%r = reshape(%q, shape=[3, 1]) : i64[3,1]": 7,
    "%q = argmax(%x, axis=0, dtype=i64) : i64[]\n%r = cast(%q, dtype=i32) : i32[]": None,
    "%r = add(%i, %i) : i64[3]": None,
}


@pytest.mark.parametrize("ops", ELEMENTS)
def test_bounds_of_elements(ops):
    p = parse(f'program p(%x: f32[200] arg "x", %i: i64[3] arg "i") {{\n{ops}\n  return %r\n}}')
    assert bounds_of_elements(verify(p)).below(p.outputs[0]) == ELEMENTS[ops]


def test_the_results_of_a_kernel_have_its_shape():
    """The kernel ran over the shape of its first result and wrote behind the second."""
    text = """program p(%x: f32[1000] arg "x", %y: f32[1] arg "y") {
  fused [1] {
    const %a = %x                              : f32[1000]
    const %b = %y                              : f32[1]
    out   %1 = %c                              : f32[1000]
    out   %2 = %d                              : f32[1]
    body
      %c = add(%a, %a)                         : f32[1000]
      %d = add(%b, %b)                         : f32[1]
  }
  return %1, %2
}"""
    with pytest.raises(VerifyError, match="fused result"):
        verify(parse(text))


@pytest.mark.parametrize("at", ["Q", "c", "t*t", "N*t", "u"])
def test_a_seq_port_reads_at_known_places(at):
    text = f"""program p(%x: f32[N] arg "x") {{
  scan %u < 2 {{
    body
  }}
  scan %t < 2 {{
    seq   %a = %x[{at}]                        : f32[]
    stack %s = %a axis 0                       : f32[2]
    body
  }}
  return %s
}}"""
    with pytest.raises(VerifyError):
        verify(parse(text))


def test_argmax_reads_no_element_where_there_is_none():
    with pytest.raises(VerifyError, match="no elements"):
        program("%x: f32[3,0]", "%1 = argmax(%x, axis=1, dtype=i64) : i64[3]")
    run = compiled(program("%x: f32[3,N]", "%1 = argmax(%x, axis=1, dtype=i64) : i64[3]"))
    with pytest.raises(IndexError, match="N-1 elements"):
        run(np.ones((3, 0), "f"))


INDEXED = [
    (name, k)
    for name, row in OPS.items()
    if row.checks
    for k, e in enumerate(row.examples)
    if all(math.prod(parse_type(t).shape) for t in e.types)
]


@pytest.mark.sampled
@pytest.mark.quick(
    "1099511627776-embedding-3",
    "1099511627776-gather-1",
    "9223372036854775807-set_dynamic_index-1",
    "-9223372036854775808-gather_nd-4",
    "-9223372036854775808-embedding-3",
    "-9223372036854775808-gather-0",
    "-50-embedding-3",
    "-50-gather-0",
)
@pytest.mark.parametrize(("name", "k"), INDEXED)
@pytest.mark.parametrize("bad", [50, -50, 1 << 40, (1 << 63) - 1, -(1 << 63)])
def test_every_index_from_data_is_checked(name, k, bad):
    row, e = OPS[name], OPS[name].examples[k]
    types = [parse_type(t) for t in e.types]
    inputs = ", ".join(f"%x{n}: {t}" for n, t in enumerate(types))
    operands = ", ".join(f"%x{n}" for n in range(len(types)))
    attrs = "".join(f", {a}={print_attr(v)}" for a, v in e.attrs.items())
    (result,) = row.result_types(types, complete_attrs(row, dict(e.attrs)))
    run = compiled(program(inputs, f"%1 = {name}({operands}{attrs}) : {result}"))
    arrays = [np.zeros(t.shape, t.dtype.numpy) for t in types]
    run(*arrays)
    at = [n for n, q in enumerate(row.operands) if q in ("index", "ids")]
    for n in (*at, len(types) - 1) if row.variadic else at:
        wrong = [a.copy() for a in arrays]
        wrong[n].flat[-1] = bad
        with pytest.raises(IndexError, match="out of range"):
            run(*wrong)


ENDLESS = """program p(%x: f32[N] arg "x", %ok: bool[] arg "ok") {
  while %i as c {
    go    %ok then %ok1
    const %ok1 = %ok                           : bool[]
    const %x1 = %x                             : f32[N]
    stack %s = %x1 axis 0                      : f32[c,N]
    body
  }
  return %s
}"""


def test_a_loop_that_collects_without_an_end_stops_before_the_memory_is_full(monkeypatch):
    monkeypatch.setitem(vars(HOST), "most", 1 << 24)
    with pytest.raises(MemoryError, match="the machine has"):
        compiled(verify(parse(ENDLESS)))(np.ones(1000, "f"), np.array(True))


def test_an_output_is_not_larger_than_the_memory_of_the_machine(monkeypatch):
    run = compiled(program("%x: f32[N]", "%1 = full(value=1.0, shape=[N*N], dtype=f32) : f32[N*N]"))
    run(np.ones(10, "f"))
    monkeypatch.setitem(vars(HOST), "most", 1 << 20)
    with pytest.raises(MemoryError, match="the machine has"):
        run(np.ones(1000, "f"))


@pytest.mark.slow
def test_many_conditions_are_proven_in_linear_time():
    """Each proof looks at the latest facts only."""
    ops = "".join(
        f"  %v{k} = strided(%x, shape=[2], strides=[{k}]) : f32[2]\n" for k in range(1, 500)
    )
    p = parse(f'program p(%x: f32[N] arg "x") {{\n{ops}  return %v1\n}}')
    start = time.process_time()
    assert len(unproven(p)) == 499
    assert time.process_time() - start < 4
