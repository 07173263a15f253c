"""Schedules: where barriers stand, and that faults planted in them are found, by the proof and by
runs on the emulator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

import ir
from executor.executable import Executable
from executor.gpu import DriverError, backend
from executor.gpu.backend import Gpu
from executor.gpu.schedule import Barrier, Conditional, Repeat, Schedule, Stage, parts
from executor.gpu.schedule_verifier import ScheduleError
from executor.lowering.program import lower
from executor.plan.arena import layout
from tests.executor.gpu.compiled import on_gpu
from tests.executor.gpu.mutants import outcomes
from tests.executor.gpu.test_programs import ADDED, LIF, RNN, floats, on_device, parsed, same

pytestmark = pytest.mark.sampled(every=24)

SEEDS = (1, 2, 3, 4, 5, 6)


@dataclass(frozen=True)
class Planted(Gpu):
    """The GPU with a change in the schedules that it makes."""

    change: Callable[[Schedule], Schedule] = lambda s: s

    def schedule(self, lowered, layout, device):
        return self.change(super().schedule(lowered, layout, device))


def compiled(program, change=lambda s: s):
    machine = Planted(change=change)
    lowered = machine.legalize(lower(program, machine))
    plan = layout(lowered.launches, machine.memory.alignment)
    native = machine.build(lowered, plan)
    return Executable(program, native, plan, lowered.failures, memory=machine.memory)


def schedule_of(program):
    return on_gpu(program).native.schedule


def barriers(schedule: Schedule) -> list[Barrier]:
    return [n for s in schedule.stages for n in parts(s.body) if isinstance(n, Barrier)]


def edited(nodes, old, new) -> Iterator:
    """The nodes with `new` ones in the place of `old`."""
    for n in nodes:
        if n is old:
            yield from new
        elif isinstance(n, Repeat):
            head, body = (tuple(edited(part, old, new)) for part in (n.head, n.body))
            yield replace(n, head=head, body=body)
        elif isinstance(n, Conditional):
            sides = tuple(tuple(edited(s, old, new)) for s in n.sides)
            yield replace(n, head=tuple(edited(n.head, old, new)), sides=sides)
        else:
            yield n


def with_stages(change: Callable[[Stage], Stage]):
    return lambda s: replace(s, stages=tuple(map(change, s.stages)))


def at_barrier(k: int, new: Callable[[Barrier], list]):
    """The k-th barrier replaced."""

    def change(s):
        old = barriers(s)[k]
        return with_stages(lambda q: replace(q, body=tuple(edited(q.body, old, new(old)))))(s)

    return change


# ---------------------------------------------------------------- what is planned
def test_lanes_that_never_meet_need_no_barrier(golden):
    assert str(schedule_of(parsed(LIF))) == golden


def test_a_product_with_the_state_waits_once_in_an_iteration(golden):
    """Before it reads what others have made: they write the other half."""
    assert str(schedule_of(parsed(RNN))) == golden


CHAIN = """
program p(%x: f32[3,7] arg "x", %w: f32[7,7] param "w") {
  scan %t < 4 {
    const %v = %w                                : f32[7,7]
    carry %h = %x then %d last %hT               : f32[3,7]
    body
      %a = matmul(%h, %v)                        : f32[3,7]
      %b = matmul(%a, %v)                        : f32[3,7]
      %c = matmul(%b, %v)                        : f32[3,7]
      %d = tanh(%c)                              : f32[3,7]
  }
  return %hT
}
"""
TWO = """
program p(%x: f32[3,7] arg "x", %y: f32[3,7] arg "y", %w: f32[7,7] param "w") {
  scan %t < 4 {
    const %v = %w                                : f32[7,7]
    const %u = %y                                : f32[3,7]
    stack %as = %a axis 0                        : f32[4,3,7]
    stack %bs = %b axis 0                        : f32[4,3,7]
    const %q = %x                                : f32[3,7]
    body
      %a = matmul(%q, %v)                        : f32[3,7]
      %b = matmul(%u, %v)                        : f32[3,7]
  }
  return %as, %bs
}
"""


@pytest.mark.slow
def test_barriers_stand_where_launches_depend_on_each_other():
    assert len(barriers(schedule_of(parsed(CHAIN)))) == 3
    assert barriers(schedule_of(parsed(TWO))) == []


CHUNKS = """
program chunks(%x: f32[3,4,B] arg "x", %h0: f32[B] arg "h") {
  scan %k < 3 {
    seq %xk = %x[k]                              : f32[4,B]
    carry %g = %h0 then %hT last %gT             : f32[B]
    stack %ys = %last axis 0                     : f32[3,B]
    body
      scan %t < 4 {
        seq %xt = %xk[t]                         : f32[B]
        carry %h = %g then %h2 last %hT          : f32[B]
        stack %hs = %h2 axis 0                   : f32[4,B]
        body
          %a = tanh(%h)                          : f32[B]
          %h2 = add(%a, %xt)                     : f32[B]
      }
      scan %u < 4 {
        seq %ht = %hs[-u+3]                      : f32[B]
        carry %s = %g then %s2 last %last        : f32[B]
        body
          %s2 = add(%s, %ht)                     : f32[B]
      }
  }
  return %ys, %gT
}
"""


@pytest.mark.slow
def test_loops_of_lanes_one_after_the_other_need_no_barrier():
    """The second one reads the states that the first one has stored: each thread its own."""
    run = same(parsed(CHUNKS), floats(3, 4, 30), floats(30, seed=1))
    assert barriers(run.native.schedule) == []


# ---------------------------------------------------------------- planted faults
def chain(seed, monkeypatch, change):
    """Whether a run with the change is wrong; the proof is left out."""
    monkeypatch.setattr(backend, "validate", lambda *_: None)
    monkeypatch.setenv("EMULATOR_SEED", str(seed))
    x, w = floats(3, 7), floats(7, 7, seed=1) / 2
    want = ir.evaluate(parsed(CHAIN), [x, w])[0][0]
    try:
        got = compiled(parsed(CHAIN), change)(x, w)[0]
    except DriverError as e:
        assert "LAUNCH" in str(e) or "3 run together on this GPU" in str(e)
        return True
    return not np.allclose(got, want, rtol=1e-5, atol=1e-6)


FAULTS = {
    "a missing barrier": (at_barrier(1, lambda b: []), "no barrier before: gemm"),
    "too few arrivals": (at_barrier(2, lambda b: [Barrier(2)]), "a barrier of 2, but"),
    "too many arrivals": (at_barrier(0, lambda b: [Barrier(4)]), "a barrier of 4, but"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault, monkeypatch):
    change, words = FAULTS[fault]
    with pytest.raises(ScheduleError, match=words):
        compiled(parsed(CHAIN), change)
    assert all(chain(seed, monkeypatch, change) for seed in SEEDS)
    assert not any(chain(seed, monkeypatch, lambda s: s) for seed in SEEDS)


def all_blocks(schedule: Schedule) -> Schedule:
    """More blocks than run together, that count themselves rightly."""
    for k in range(len(barriers(schedule))):
        schedule = at_barrier(k, lambda b: [Barrier(4)])(schedule)
    return with_stages(lambda s: replace(s, blocks=4) if s.cooperative else s)(schedule)


@pytest.mark.slow
def test_blocks_that_wait_for_each_other_must_fit_the_device(monkeypatch):
    with pytest.raises(ScheduleError, match="has 4 blocks, 3 run together"):
        compiled(parsed(CHAIN), all_blocks)
    assert chain(1, monkeypatch, all_blocks)

    def plain(schedule):
        return with_stages(lambda s: replace(s, cooperative=False))(all_blocks(schedule))

    monkeypatch.undo()
    with pytest.raises(ScheduleError, match="need not run together"):
        compiled(parsed(CHAIN), plain)
    assert chain(1, monkeypatch, plain), "a deadlock"


def test_a_write_after_a_failure_is_found(monkeypatch):
    """Without the barrier an input is written although the call fails."""
    (only,) = barriers(schedule_of(parsed(ADDED)))
    change = at_barrier(0, lambda b: [])
    with pytest.raises(ScheduleError, match="no barrier before: map"):
        compiled(parsed(ADDED), change)
    monkeypatch.setattr(backend, "validate", lambda *_: None)
    run = compiled(parsed(ADDED), change)
    index = np.arange(9) % 5
    index[4] = 5
    x, w = floats(5, 3), floats(9, 3, seed=1)
    before = w.copy()
    with pytest.raises(IndexError):
        on_device(run, (), [x, index, w, np.array(True)], [])
    assert not np.array_equal(before, w)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2127, 2130])
def test_what_runs_wrong_is_refused(seed):
    """Mutants of the schedule of a random program; `scripts/fuzz/schedules.py` runs thousands."""
    seen = outcomes(seed, 20)
    assert seen["wrong, refused"] > 2 and seen["right, refused"]
    assert not seen["wrong, ACCEPTED"] + seen["real, REFUSED"]
