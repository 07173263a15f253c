"""What a step of a loop that fills a cache costs: the bytes that it writes, however long the cache.

The plan tells: no launch of the loop writes more for a longer cache, and none copies it.
"""

from __future__ import annotations

import numpy as np
import paddle
import pytest

import dy2st
import executor
import ir.passes
from executor import cpu
from executor.launches import Loop, ScatterNd, blocks, results
from executor.lowering.program import lower
from ir.types import product
from tests import check
from tests.executor import launch_machine  # noqa: F401  registers the backend `checked-cpu`
from tests.executor.test_random_programs import agree
from tests.ir.random_parts import Parts

pytestmark = pytest.mark.sampled

WIDTH, SLOTS = 4, 3


def zeros(*shape):
    return paddle.zeros(shape)


def rows(*shape):
    return paddle.arange(float(np.prod(shape))).reshape(shape) + 1.0


# ---------------------------------------------------------------- the forms
def at_data_and_step(c, v, i):
    for t in range(v.shape[0]):
        c[i[t], t] = v[t]


def at_data_and_step_in_all(c, v, i):
    for t in range(v.shape[0]):
        c[i[t], t, :] = v[t]


def at_number_and_step(c, v, i):
    for t in range(v.shape[0]):
        c[1, t] = v[t]


def in_two_loops(c, v, i):
    for t in range(v.shape[0]):
        for k in range(2):
            c[k, t] = v[t] * 2.0


def at_data_twice(c, v, i):
    for t in range(v.shape[0]):
        c[i[t], i[t]] = v[t]


def added_to(c, v, i):
    for t in range(v.shape[0]):
        c[i[t], t] += v[t]


def read_and_written(c, v, i):
    s = paddle.zeros([v.shape[1]])
    for t in range(v.shape[0]):
        c[i[t], t] = v[t] + s
        s = c[i[t], t] * 0.5
    return s


def through_a_name(c, v, i):
    for t in range(v.shape[0]):
        row = c[i[t]]
        row[t] = v[t]


def through_two_brackets(c, v, i):
    for t in range(v.shape[0]):
        c[i[t]][t].add_(v[t])


def window_in_data(c, v, i):
    for t in range(v.shape[0] - 1):
        c[i[t], t : t + 2] = v[t]


def in_a_branch(c, v, i):
    for t in range(v.shape[0]):
        if i[t] > 0:
            c[i[t], t] = v[t]


def of_its_own(c, v, i):
    c = paddle.zeros([3, v.shape[0], v.shape[1]])
    for t in range(v.shape[0]):
        c[i[t], t] = v[t]
    return c


def all_slots(c, v, i):
    for t in range(v.shape[0]):
        c[:, t] = v[t] + c[:, t - 1]


def some_slots(c, v, i):
    for t in range(v.shape[0]):
        c[i[:2] * 0 + paddle.arange(2), t] = v[t]


def slots_of_a_list(c, v, i):
    for t in range(v.shape[0]):
        c[[2, 0], t] = v[t]


def a_slice_of_one(c, v, i):
    for t in range(v.shape[0]):
        c[:, t : t + 1] = v[t] + c[:, t : t + 1]


def transposed(c, v, i):
    q = c.transpose([1, 0, 2])
    for t in range(v.shape[0]):
        q[t] = v[t]


def transposed_at_data(c, v, i):
    q = c.transpose([2, 1, 0])
    for t in range(v.shape[0]):
        q[:, t, i[t]] = v[t] + q[:, t - 1, i[t]]


def pages(c, v, i):
    for t in range(v.shape[0]):
        c.reshape([-1, 4])[i[t] * v.shape[0] + t] = v[t]


def scattered_pages(c, v, i):
    q = c.flatten(0, 1)
    for t in range(v.shape[0]):
        q.scatter_(i[t : t + 1], v[t : t + 1])


def unsqueezed(c, v, i):
    q = c.unsqueeze(0)
    for t in range(v.shape[0]):
        q[0, i[t], t] = v[t]


def heads(c, v, i):
    for t in range(v.shape[0]):
        c.reshape([3, -1, 2, 2])[i[t], t] = v[t].reshape([2, 2])


FORMS = [
    at_data_and_step,
    at_data_and_step_in_all,
    at_number_and_step,
    in_two_loops,
    at_data_twice,
    added_to,
    read_and_written,
    through_a_name,
    through_two_brackets,
    window_in_data,
    in_a_branch,
    of_its_own,
    all_slots,
    some_slots,
    slots_of_a_list,
    a_slice_of_one,
    transposed,
    transposed_at_data,
    pages,
    scattered_pages,
    unsqueezed,
    heads,
]


def arguments(steps):
    at = paddle.to_tensor([k * k % SLOTS for k in range(steps)])
    return [zeros(SLOTS, steps, WIDTH), rows(steps, WIDTH), at]


# ---------------------------------------------------------------- what they cost
def written(launches, inside=False):
    """The bytes that the iterations of loops write, each iteration once."""
    total = 0
    for x in launches:
        if inside:
            views = (x.y,) if isinstance(x, ScatterNd) else results(x)
            total += sum(product(v.shape) * v.dtype.size for v in views)
        for body in blocks(x):
            total += written(body, inside or isinstance(x, Loop))
    return total


def plan(f, steps):
    args = arguments(steps)
    static = dy2st.to_static(f)
    with paddle.no_grad():
        static(*args)
        run = static.entry(*args).executable
    return run, written(lower(run.program, cpu.machine()).launches)


@pytest.mark.quick("at_data_and_step", "slots_of_a_list")
@pytest.mark.parametrize("f", FORMS, ids=lambda f: f.__name__)
def test_a_step_costs_what_it_writes(f):
    (short, less), (_, more) = plan(f, 5), plan(f, 200)
    assert less == more, "a step of a longer loop writes more"
    assert less <= 400 and not any(c.loop for c in short.copies)


def agrees(f, make):
    """Three calls do what eager does, arguments included."""
    static = dy2st.to_static(f)
    for _ in range(3):
        one, two = make(), make()
        check.same(static(*two), f(*one))
        check.same(two, one)
    return static


@pytest.mark.quick("read_and_written", "unsqueezed")
@pytest.mark.parametrize("f", FORMS, ids=lambda f: f.__name__)
def test_the_cache_holds_what_eager_writes(f):
    agrees(f, lambda: arguments(5))


def one_page(c, v, i):
    c.reshape([-1, 4])[i] = v


def one_row(c, v, i):
    c.transpose([1, 0, 2])[i[0]][i[1]] = v[0]


@pytest.mark.parametrize("f", [one_page, one_row], ids=lambda f: f.__name__)
def test_one_step_a_call_copies_nothing(f):
    """No loop: a decoder that is called for every token."""
    run = agrees(f, lambda: arguments(3)).entry(*arguments(3)).executable
    assert run.copies == () and run.layout.bytes({}) <= 512


def turned(c, v, n):
    for t in range(n):
        c = c.t()
        c[t] = v
    return c


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_square_that_turns_is_not_what_it_was(n):
    """Types agree, but the rows have become columns."""
    agrees(lambda c, v: turned(c.clone(), v, n), lambda: [rows(4, 4), zeros(4)])
    agrees(lambda c, v: turned(c, v, n), lambda: [rows(4, 4), zeros(4)])


# ---------------------------------------------------------------- parts of parts
@pytest.mark.quick("3-True", "17-True", "24-True", "38-True", "45-True", "59-True")
@pytest.mark.parametrize("optimised", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_no_part_of_a_part_is_lost(seed, optimised):
    """Against the reference, on memory that knows its owners, with indices in range and not."""
    program = Parts(seed).program()
    program = ir.passes.run(program) if optimised else program
    run = executor.compile(program, backend="checked-cpu")
    numbers = np.random.default_rng(seed)
    shape = program.inputs[0].value.type.shape
    for at in (0, 2, 3):
        xs = [numbers.standard_normal(s).astype("float32") for s in (shape, (3,))]
        xs.append(np.asarray(at))
        own = [x.copy() for x in xs]
        try:
            outputs, new = ir.evaluate(program, [x.copy() for x in xs])
        except IndexError:
            with pytest.raises(IndexError):
                run(*own)
            new = []
        else:
            for a, b in zip(run(*own), outputs, strict=True):
                agree(a, b, str(program))
        values = dict(zip((t for t, _ in program.writes), new))
        for i, x, a in zip(program.inputs, xs, own):
            agree(a, values.get(i.value, x), str(program))


TURNED = """
program p(%c: f32[3,5] buffer "c", %v: f32[5,3] arg "v") {
  scan %t < 5 {
    seq   %row = %v[t]                           : f32[3]
    carry %c1 = %c then %c2 last %c3             : f32[3,5]
    body
      %q = transpose(%c1, perm=[1, 0])           : f32[5,3]
      %r = reshape(%q, shape=[5,3,1])            : f32[5,3,1]
      %one = reshape(%row, shape=[3,1])          : f32[3,1]
      %w = set_dynamic_index(%r, %one, %t, axis=0)      : f32[5,3,1]
      %u = reshape(%w, shape=[5,3])              : f32[5,3]
      %c2 = transpose(%u, perm=[1, 0])           : f32[3,5]
  }
  return
  write %c = %c3
}"""


def test_a_carry_is_updated_through_turned_and_reshaped_views():
    run = executor.compile(ir.verify(ir.parse(TURNED)))
    assert run.copies == () and run.layout.bytes({}) <= 64
    c, v = np.zeros([3, 5], "float32"), np.arange(15, dtype="float32").reshape(5, 3)
    run(c, v)
    np.testing.assert_array_equal(c, v.T)
