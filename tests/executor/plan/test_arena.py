"""Where values lie: no two live buffers overlap, and written inputs are updated in place."""

from __future__ import annotations

import numpy as np
import pytest

import executor
import ir
from executor import cpu
from executor.launches import Map, results
from executor.lowering.program import lower
from executor.memory import Buffer, whole
from executor.plan import arena
from executor.plan.reuse import body, carried, next_values
from executor.segmented.partition import growing
from ir.scalar.language import const
from ir.types import F32, Type
from ir.uses import walk
from tests.executor.test_executor import floats, run_text
from tests.executor.test_random_programs import Generator


def native_program(seed, control):
    """A random program that native code can run in one piece."""
    while True:
        program = Generator(seed, control).program()
        calls = any(n.name == "foreign" for n in walk(program.ops))
        if not calls and not growing(program.ops):
            return program
        seed += 1000


@pytest.mark.sampled
@pytest.mark.quick(
    "0-False", "4-True", "8-True", "15-True", "23-False", "27-False", "30-True", "34-False"
)
@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("seed", range(40))
def test_no_two_live_buffers_overlap(seed, control):
    layout = arena.layout(lower(native_program(seed, control), cpu.machine()).launches)
    for sizes in ({"B": 0, "T": 0}, {"B": 3, "T": 7}):
        assert layout.bytes(sizes) >= layout.fixed
    fixed = [(b, at, at + max(b.size, 1)) for b, at in layout.offsets.items()]
    for n, (b, low, high) in enumerate(fixed):
        assert high <= layout.fixed
        for c, start, end in fixed[:n]:
            if arena.overlap(layout.lives[b], layout.lives[c]):
                assert high <= start or end <= low
    for slot in layout.slots:
        lives = sorted(layout.lives[b] for b in slot.buffers)
        assert all(a[1] < b[0] for a, b in zip(lives, lives[1:]))
        assert all(b.size == slot.size for b in slot.buffers)


STEP = """
program p(%w: f32[N] param "w", %g: f32[N] arg "g", %k: i64[1] arg "k", %c: f32[4,3] buffer "c", %y: f32[3] arg "y", %n: i64[] arg "n") {
  %d = scale(%g, scale=0.1)                      : f32[N]
  %v = subtract(%w, %d)                          : f32[N]
  %c2 = set_dynamic_index(%c, %y, %n, axis=0)           : f32[4,3]
  %s = sum(%v)                                   : f32[]
  return %s
  write %w = %v
  write %c = %c2
}
"""  # noqa: E501


def test_written_inputs_are_updated_in_place_if_nothing_can_fail_later():
    early = STEP.splitlines(keepends=True)
    early.insert(2, early.pop(4))
    for text, direct in (("".join(early), True), (STEP, False)):
        program = ir.verify(ir.parse(text))
        low = lower(program, cpu.machine())
        copies = [q for q in low.launches if results(q) and results(q)[0].buffer is low.inputs[0]]
        assert len(copies) == 1 and bool(len(copies[0].ins) == 2) == direct
        w, c = floats(5), floats(4, 3)
        arrays = w, floats(5, seed=1), np.zeros(1, np.int64), c, floats(3), np.asarray(2)
        run_text(text, *arrays)
        bad = (*arrays[:5], np.asarray(9))
        before = w.copy(), c.copy()
        with pytest.raises(IndexError):
            executor.compile(program)(*bad)
        assert np.array_equal(w, before[0]) and np.array_equal(c, before[1])


STACKED = """program p(%i: i64[5] arg "i", %x: f32[4,3] arg "x") {
  scan %t < 5 {
    seq   %k = %i[t]                             : i64[]
    carry %b = %x then %b2 last %bT              : f32[4,3]
    stack %rows = %row axis 0                    : f32[5,3]
    body
      %row = dynamic_index(%b, %k, axis=0)              : f32[3]
      %new = tanh(%row)                          : f32[3]
      %b2 = set_dynamic_index(%b, %new, %k, axis=0)     : f32[4,3]
  }
  return %bT, %rows
}"""


def test_a_view_that_is_stacked_does_not_stop_updates_in_place():
    """It is copied into the stack before the buffer is written, and the buffer is not copied."""
    program = ir.parse(STACKED)
    (scan,) = program.ops
    assert all(carried(next_values(scan.carries), body(scan, {})).values())
    run_text(STACKED, np.array([1, 1, 3, 0, 1]), floats(4, 3))


def test_buffers_that_live_alike_lie_in_the_order_of_the_program():
    """Not in that of a set, which is another one in each process: a later one would not find the
    code of this one."""
    t = Type(F32, (16,))
    buffers = [Buffer("arena", n, 64) for n in range(12)]
    outs = tuple(whole(b, t) for b in buffers)
    layout = arena.layout([Map((16,), (), (const(0.0, F32),) * 12, outs)])
    assert sorted(layout.offsets, key=layout.offsets.__getitem__) == buffers
