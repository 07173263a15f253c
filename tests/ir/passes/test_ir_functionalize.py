# ruff: noqa: E501
"""Writes and views become values: by value on every program, by text (golden) on all of them."""

from __future__ import annotations

import numpy as np
import pytest

from ir import Op, Scan, Size, verify
from ir.analysis.alias import AliasError, analyse
from ir.layout import reshape_strides
from ir.passes import functionalize, run
from ir.passes.functionalization import _writes
from tests.ir.test_ir_random import assert_same_bits, check, observed, program, random_inputs

PROGRAMS = {
    "argument": """
program p(%x: f32[T,3] arg "x") {
  %y = neg(%x)  : f32[T,3]
  copy_(%x, %y)
  return %y
}""",
    "parameter_buffer_constant": """
program p(%a: f32[3] param "a", %b: f32[3] buffer "b", %c: f32[3] const "c", %r: i64[2] rng "r") {
  %s = add(%a, %b)  : f32[3]
  copy_(%a, %s)
  copy_(%b, %c)
  copy_(%c, %a)
  %n = add(%r, %r)  : i64[2]
  copy_(%r, %n)
  return %c
}""",
    "output_is_a_view_of_a_written_base": """
program p(%x: f32[T,3] arg "x", %y: f32[T] arg "y") {
  %v = index(%x, axis=1, index=1)  : f32[T]
  %w = transpose(%x, perm=[1, 0])  : f32[3,T]
  copy_(%v, %y)
  return %x, %v, %w
}""",
    "two_views_of_one_base": """
program p(%x: f32[4,T] arg "x", %y: f32[2,T] arg "y") {
  %a = slice(%x, axis=0, start=0, length=2)  : f32[2,T]
  %b = slice(%x, axis=0, start=1, length=2)  : f32[2,T]
  copy_(%a, %y)
  %c = add(%b, %y)  : f32[2,T]
  copy_(%b, %c)
  return %a, %b
}""",
    "stale_view_is_read": """
program p(%x: f32[T,3] arg "x", %y: f32[T,3] arg "y") {
  %v = index(%x, axis=1, index=2)  : f32[T]
  %before = neg(%v)  : f32[T]
  copy_(%x, %y)
  %after = neg(%v)  : f32[T]
  return %before, %after
}""",
    "views_of_views": """
program p(%x: f32[T,12] buffer "x", %y: f32[2,T] arg "y") {
  %a = reshape(%x, shape=[T, 3, 4])  : f32[T,3,4]
  %b = transpose(%a, perm=[2, 0, 1])  : f32[4,T,3]
  %c = index(%b, axis=2, index=1)  : f32[4,T]
  %d = slice(%c, axis=0, start=3, length=2, step=-2)  : f32[2,T]
  copy_(%d, %y)
  %e = index(%d, axis=0, index=1)  : f32[T]
  %f = index(%d, axis=0, index=0)  : f32[T]
  copy_(%e, %f)
  return %d, %a
}""",
    "write_through_transposed_slice_of_reshaped_base": """
program p(%x: f32[T,6] arg "x", %y: f32[3,T] arg "y") {
  %a = reshape(%x, shape=[T, 2, 3])  : f32[T,2,3]
  %b = index(%a, axis=1, index=1)  : f32[T,3]
  %c = transpose(%b, perm=[1, 0])  : f32[3,T]
  copy_(%c, %y)
  return %x
}""",
    "a_fresh_tensor": """
program p(%x: f32[T,3] arg "x") {
  %y = neg(%x)  : f32[T,3]
  %z = assign(%y)  : f32[T,3]
  copy_(%y, %x)
  return %y, %z
}""",
    "index_of_a_view_is_written_later": """
program p(%x: f32[4,T] arg "x", %i: i64[] arg "i", %y: f32[T] arg "y") {
  %v = dynamic_index(%x, %i, axis=0)  : f32[T]
  %one = full(value=1, dtype=i64)  : i64[]
  copy_(%i, %one)
  copy_(%v, %y)
  %w = neg(%v)  : f32[T]
  return %w
}""",
    "overlapping_copy": """
program p(%x: f32[4,T] arg "x") {
  %a = slice(%x, axis=0, start=0, length=3)  : f32[3,T]
  %b = slice(%x, axis=0, start=1, length=3)  : f32[3,T]
  copy_(%a, %b)
  return %x
}""",
    "counter_in_a_loop": """
program p(%n: i64[] buffer "n", %x: f32[T] arg "x") {
  scan %t < T {
    const %n1 = %n  : i64[]
    body
      %one = full(value=1, dtype=i64)  : i64[]
      %n2 = add(%n1, %one)  : i64[]
      copy_(%n1, %n2)
  }
  return %n
}""",
    "buffer_filled_in_a_loop": """
program p(%x: f32[B,T,3] arg "x", %h0: f32[B,3] arg "h") {
  %ys = full(value=0.0, shape=[B, T, 3], dtype=f32)  : f32[B,T,3]
  scan %t < T {
    const %x1 = %x  : f32[B,T,3]
    const %ys1 = %ys  : f32[B,T,3]
    carry %h = %h0 then %h2 last %hT  : f32[B,3]
    body
      %xt = dynamic_index(%x1, %t, axis=1)  : f32[B,3]
      %h2 = add(%h, %xt)  : f32[B,3]
      %row = dynamic_index(%ys1, %t, axis=1)  : f32[B,3]
      copy_(%row, %h2)
  }
  return %ys, %hT
}""",
    "view_of_the_base_beside_the_base": """
program p(%x: f32[T,3] arg "x", %i: i64[] arg "i") {
  %zero = full(value=0, dtype=i64)  : i64[]
  %zeros = full(value=0.0, shape=[T], dtype=f32)  : f32[T]
  %v = transpose(%x, perm=[1, 0])  : f32[3,T]
  %r = dynamic_index(%v, %zero, axis=0)  : f32[T]
  scan %t < T {
    const %x1 = %x  : f32[T,3]
    const %r1 = %r  : f32[T]
    const %v1 = %v  : f32[3,T]
    carry %s = %zeros then %s2 last %sT  : f32[T]
    stack %seen = %a axis 0  : f32[T,T]
    body
      %a = add(%r1, %r1)  : f32[T]
      %w = index(%v1, axis=0, index=1)  : f32[T]
      copy_(%w, %a)
      %row = dynamic_index(%x1, %t, axis=0)  : f32[3]
      %b = neg(%row)  : f32[3]
      copy_(%row, %b)
      %s2 = add(%a, %w)  : f32[T]
  }
  return %x, %r, %sT, %seen
}""",
    "nested_loops": """
program p(%x: f32[T,4] buffer "x", %y: f32[4] param "y") {
  scan %t < T {
    const %x1 = %x  : f32[T,4]
    const %y1 = %y  : f32[4]
    stack %ys = %r axis 0  : f32[T,4]
    body
      %r = dynamic_index(%x1, %t, axis=0)  : f32[4]
      scan %s < 3 {
        const %r2 = %r  : f32[4]
        const %y2 = %y1  : f32[4]
        const %x2 = %x1  : f32[T,4]
        body
          %q = dynamic_index(%r2, %s, axis=0)  : f32[]
          %u = dynamic_index(%y2, %s, axis=0)  : f32[]
          %z = add(%q, %u)  : f32[]
          copy_(%q, %z)
          %first = index(%x2, axis=1, index=0)  : f32[T]
          %n = neg(%first)  : f32[T]
          copy_(%first, %n)
      }
      scan %s2 < T {
        const %y3 = %y1  : f32[4]
        const %x3 = %x1  : f32[T,4]
        const %t3 = %t  : i64[]
        body
          %row = dynamic_index(%x3, %t3, axis=0)  : f32[4]
          %k = maximum(%row, %y3)  : f32[4]
          copy_(%y3, %k)
      }
  }
  return %ys, %y
}""",
    "written_through_a_seq_port": """
program p(%x: f32[3,T] arg "x") {
  scan %t < T {
    seq   %a = %x[:, T-1-t]  : f32[3]
    seq   %b = %x[:, t]  : f32[3]
    body
      %c = add(%a, %b)  : f32[3]
      copy_(%a, %c)
  }
  return %x
}""",
    "carry_that_starts_at_a_written_buffer": """
program p(%state: f32[3] buffer "state", %x: f32[T,3] arg "x") {
  scan %t < T {
    const %state1 = %state  : f32[3]
    seq   %xt = %x[t]  : f32[3]
    carry %h = %state then %h2 last %hT  : f32[3]
    body
      %h2 = add(%h, %xt)  : f32[3]
      copy_(%state1, %h2)
  }
  %k = neg(%state)  : f32[3]
  return %k, %state
}""",
    "next_is_written_after_it_was_made": """
program p(%x: f32[T,3] arg "x", %h0: f32[3] arg "h", %m: f32[3] arg "m") {
  scan %t < T {
    seq   %xt = %x[t]  : f32[3]
    const %m1 = %m  : f32[3]
    carry %h = %h0 then %h2 last %hT  : f32[3]
    stack %ys = %h2 axis 0  : f32[T,3]
    body
      %h2 = add(%h, %xt)  : f32[3]
      %masked = multiply(%h2, %m1)  : f32[3]
      copy_(%h2, %masked)
      %v = index(%h2, axis=0, index=0)  : f32[]
      %n = neg(%v)  : f32[]
      copy_(%v, %n)
  }
  return %ys, %hT
}""",
    "loop_without_writes_beside_writes": """
program p(%x: f32[T,3] arg "x", %h0: f32[3] arg "h") {
  %n = neg(%x)  : f32[T,3]
  copy_(%x, %n)
  scan %t < T {
    const %x1 = %x  : f32[T,3]
    carry %h = %h0 then %h2 last %hT  : f32[3]
    body
      %xt = dynamic_index(%x1, %t, axis=0)  : f32[3]
      %h2 = add(%h, %xt)  : f32[3]
  }
  copy_(%x, %x)
  return %hT
}""",
}


def all_ops(ops):
    for n in ops:
        yield n
        if isinstance(n, Scan):
            yield from all_ops(n.body)


@pytest.mark.parametrize("name", PROGRAMS)
def test_functionalize(name, golden):
    after = check(functionalize, program(PROGRAMS[name]), golden)
    assert not any(isinstance(n, Op) and n.row.writes for n in all_ops(after.ops))


@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_pipeline(name):
    check(lambda p: run(p, check=True), program(PROGRAMS[name]))


def test_written_constants_stay_private():
    after = functionalize(program(PROGRAMS["parameter_buffer_constant"]))
    names = {i.value: i.name for i in after.inputs}
    assert [names[target] for target, _ in after.writes] == ["a", "b", "r"]


def test_a_program_without_writes_is_kept():
    p = program('program p(%x: f32[3] arg "x") {\n  %y = neg(%x)  : f32[3]\n  return %y\n}')
    assert functionalize(p) is p and not _writes(p.ops)


def test_writes_of_the_program_win():
    p = program("""
program p(%x: f32[3] buffer "x") {
  %y = neg(%x)  : f32[3]
  copy_(%x, %y)
  %z = add(%y, %y)  : f32[3]
  return %x
  write %x = %z
}""")
    x = np.arange(3, dtype=np.float32)
    for a, b in zip(observed(p, [x]), observed(functionalize(p), [x])):
        assert_same_bits(a, b)


# ---------------------------------------------------------------- refusals
LOOP = """
program p(%x: f32[T,3] arg "x", %h0: f32[3] arg "h", %b: f32[3] buffer "b") {{
  scan %t < {trip} {{
    const %b1 = %b  : f32[3]
    carry %h = %h0 then {next} last %hT  : f32[3]
    stack %ys = %y axis 0  : f32[{trip},3]
    body
      %h2 = neg(%h)  : f32[3]
      {write}
      %y = add(%h, %b1)  : f32[3]
  }}
  {after}
  return {outputs}
}}"""


def loop(
    trip="T",
    next="%h2",
    write="%q = neg(%h)  : f32[3]",
    after="%e = neg(%b)  : f32[3]",
    outputs="%ys",
):
    lines = {"next": next, "write": write, "after": after}
    return program(LOOP.format(trip=trip, outputs=outputs, **lines))


REFUSED = {
    "the carry itself": loop(write="copy_(%h, %h2)  @ model.py:7"),
    "a view of the carry": loop(
        write="%v = index(%h, axis=0, index=0)  : f32[]\n      copy_(%v, %v)  @ model.py:7"
    ),
    "the next is a buffer that is written": loop(next="%b1", write="copy_(%b1, %h2)  @ model.py:7"),
    "the last value, if no iteration ran": loop(after="copy_(%hT, %b)  @ model.py:7"),
    "the buffer that the last value is": loop(
        trip="2", next="%b1", after="copy_(%b, %h0)  @ model.py:7", outputs="%hT"
    ),
    "the initial value": loop(after="copy_(%h0, %b)  @ model.py:7", outputs="%hT"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_storage_that_depends_on_the_run_is_refused(name):
    with pytest.raises(AliasError, match="model.py:7") as e:
        functionalize(REFUSED[name])
    assert e.value.loc.line == 7


ACCEPTED = {
    "last value of a loop that runs": loop(trip="2", after="copy_(%hT, %b)", outputs="%hT, %ys"),
    "last value of a loop over a fresh tensor": program("""
program p(%x: f32[T,3] arg "x", %b: f32[3] buffer "b") {
  %h0 = full(value=0.0, shape=[3], dtype=f32)  : f32[3]
  scan %t < T {
    const %x1 = %x  : f32[T,3]
    carry %h = %h0 then %h2 last %hT  : f32[3]
    body
      %r = dynamic_index(%x1, %t, axis=0)  : f32[3]
      %h2 = add(%h, %r)  : f32[3]
  }
  copy_(%hT, %b)
  %y = neg(%hT)  : f32[3]
  return %y
}"""),
    "a buffer written after the carry was read": loop(
        write="%k = neg(%b1)  : f32[3]\n      copy_(%b1, %k)", after="copy_(%b, %hT)"
    ),
    "a required size": verify(program(
        'program p(%x: f32[T,3] arg "x", %h0: f32[3] arg "h") {\n'
        '  require T >= 1 "max of an empty tensor"\n'
        "  scan %t < T {\n    seq   %r = %x[t]  : f32[3]\n"
        "    carry %h = %h0 then %h2 last %hT  : f32[3]\n    body\n"
        "      %h2 = add(%h, %r)  : f32[3]\n  }\n  copy_(%hT, %h0)\n  return %hT\n}"
    )),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_known_storage_is_written(name):
    p = ACCEPTED[name]
    after = verify(functionalize(p))
    for length in (1, 2, 7) if p.requires else (0, 1, 2, 7):
        inputs = random_inputs(p, {"T": length})
        for a, b in zip(observed(p, inputs), observed(after, inputs)):
            assert_same_bits(a, b)


# ---------------------------------------------------------------- reshapes that copy
COPYING = """
program p(%x: f32[4,3] arg "x", %y: f32[12] arg "y") {{
  %a = transpose(%x, perm=[1, 0])  : f32[3,4]
  %b = reshape(%a, shape=[12])  : f32[12]
  {}
}}"""


def test_a_reshape_that_may_copy_is_a_value_of_its_own():
    read = program(COPYING.format("return %b"))
    assert functionalize(read) is read
    for text in ("copy_(%b, %y)\n  return %x", "copy_(%x, %x)\n  return %b"):
        with pytest.raises(AliasError):
            functionalize(program(COPYING.format(text)))


@pytest.mark.parametrize(
    "shape, perm, new",
    [((4, 3), (1, 0), (12,)), ((4, 3), (0, 1), (2, 6)), ((2, 3, 4), (1, 0, 2), (3, 2, 2, 2)),
     ((2, 3, 4), (2, 0, 1), (4, 6)), ((2, 3, 4), (2, 1, 0), (4, 6)), ((1, 3), (1, 0), (3,)),
     ((2, 3, 4), (1, 2, 0), (12, 1, 2)), ((2, 3), (1, 0), (3, 1, 2, 1))],
)  # fmt: skip
def test_strides_are_those_of_numpy(shape, perm, new):
    x = np.zeros(shape).transpose(perm)
    y = x.reshape(new)
    found = reshape_strides(x.shape, tuple(s // 8 for s in x.strides), new)
    assert (found is not None) == np.shares_memory(x, y)
    if found is not None:
        assert [s for s, n in zip(found, new) if n > 1] == [
            s // 8 for s, n in zip(y.strides, new) if n > 1
        ]


B, T = Size.named("B"), Size.named("T")


@pytest.mark.parametrize(
    "old, strides, new, want",
    [((3, B, 2 * T), (4 * B * T, 4 * T, 1), (3 * B, 2 * T), (4 * T, 1)),
     ((B, T), (T, 1), (B * T,), (1,)), ((T, B), (1, T), (B * T,), None),
     ((B, 1, 6), (6, 0, 1), (B, 2, 3), (6, 3, 1)), ((0, 3), (1, 5), (3, 0), (0, 1)),
     ((4, 3), (0, 0), (12,), (0,)), ((4, 3), (0, 1), (12,), None)],
)  # fmt: skip
def test_strides_of_reshapes_of_named_sizes_and_of_nothing(old, strides, new, want):
    assert reshape_strides(old, strides, new) == want


def test_written_storages_of_a_scan():
    p = program(PROGRAMS["nested_loops"])
    aliases = analyse(p)
    (scan,) = p.ops
    assert [v.name for v in aliases.written[scan]] == ["x", "y"]
    inner, second = (n for n in scan.body if isinstance(n, Scan))
    assert [v.name for v in aliases.written[inner]] == ["x"]
    assert [v.name for v in aliases.written[second]] == ["y"]
