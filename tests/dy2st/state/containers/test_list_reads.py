"""Lists that a loop reads at its index, at a distance from their end, or at another number."""

from __future__ import annotations

import sys
from itertools import pairwise

import numpy as np
import paddle
import pytest

import dy2st
from ir import Scan
from ir.uses import walk
from tests import check

pytestmark = pytest.mark.sampled(every=96)

LENGTHS = (0, 1, 2, 3, 7)


def rolls(f, *shape, lengths=LENGTHS, least=0, inner=""):
    """`f` of a tensor with T rows is eager's for every length, with its gradients, and its program
    does not grow with T. `inner`: why an inner loop may be unrolled."""
    static = dy2st.to_static(f)
    for n in lengths:
        if n >= least:
            check.agree(static, check.data(n, *(shape or (3,)), seed=n))
    check.agree(static, check.data(12, *(shape or (3,)), seed=12), calls=1)
    sizes = []
    for n in (12, 40):
        x = check.data(n, *(shape or (3,)), seed=n)
        with check.without_code():
            longer = static if n == 12 else dy2st.to_static(f)
            report, program = str(dy2st.report(longer, x)), dy2st.program(longer, x)
        unrolled = [q for q in report.splitlines() if "unrolled" in q]
        assert not [q for q in unrolled if not inner or inner not in q]
        sizes.append(sum(1 for _ in walk(program.ops)))
        assert any(isinstance(q, Scan) for q in program.ops)
    assert sizes[0] == sizes[1]
    return static


# ---------------------------------------------------------------- elements of a growing list
def step_before(x):
    ys = [x[0]]
    for t in range(1, x.shape[0]):
        ys.append(ys[t - 1] * 0.5 + x[t])
    return paddle.stack(ys)


def two_steps_before(x):
    ys = [x[0], x[1]]
    for t in range(2, x.shape[0]):
        ys.append(ys[t - 2] * 0.5 + ys[t - 1] + x[t])
    return paddle.stack(ys)


def counted_from_the_end(x):
    ys = [x[0], x[1] * 2, x[0] + x[1]]
    for t in range(x.shape[0]):
        ys.append(ys[-1] * 0.5 + ys[-3] + x[t])
        ys.append(ys[-2] * 0.1 - ys[-1])
    return paddle.stack(ys), ys[-1], ys[2]


def only_far_away(x):
    ys = [x[0], x[1], x[2]]
    for row in x:
        ys.append(paddle.tanh(ys[-3] + row))
    return paddle.stack(ys, axis=1)


def wraps_in_the_first_iteration(x):
    ys = [x[0]]
    for t in range(1, x.shape[0]):
        ys.append(ys[t - 2] * 0.5 + x[t])
    return paddle.stack(ys)


def pairs(x):
    hs = [(x[0], x[0] * 0)]
    for t in range(1, x.shape[0]):
        h, c = hs[t - 1]
        c = c * 0.5 + x[t]
        hs.append((paddle.tanh(c + h), c))
    return paddle.stack([h for h, _ in hs])


def numbers_that_grow(x):
    scale = [1.0, 1.0]
    out = paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        scale.append(scale[-1] * 0.5 + scale[-2] * 0.25)
        out = out + x[t] * scale[t]
    return out


def with_the_last_window(x):
    ys = [x[0], x[1], x[2]]
    for t in range(3, x.shape[0]):
        a, b, c = ys[-3:]
        ys.append((a + b * 2 + c * 3) / 6 + x[t])
    return paddle.stack(ys)


def with_a_moving_window(x):
    ys = [x[0], x[1], x[2]]
    for t in range(3, x.shape[0]):
        ys.append(sum(ys[t - 3 : t]) / 3 + paddle.stack(ys[t - 2 : t]).mean(0) + x[t])
    return paddle.stack(ys)


def windows_that_fill(x):
    ys, out = [], []
    for row in x:
        ys.append(row * 2)
        out.append(sum(ys[-4:]))
    return paddle.stack(out)


def read_in_an_inner_loop(x):
    ys = [x[0]]
    for t in range(1, x.shape[0]):
        h = x[t]
        for _ in range(12):
            h = paddle.tanh(h + ys[-1])
        ys.append(h)
    return paddle.stack(ys)


def previous(ys, k):
    return ys[len(ys) - k]


def in_a_helper(x):
    ys = [x[0], x[1]]
    for t in range(2, x.shape[0]):
        ys.append(previous(ys, 1) + previous(ys, 2) * 0.5 + x[t])
    return paddle.stack(ys)


GROWING = [
    (step_before, 1), (two_steps_before, 2), (counted_from_the_end, 2), (only_far_away, 3),
    (wraps_in_the_first_iteration, 1), (pairs, 1), (numbers_that_grow, 0),
    (with_the_last_window, 3), (with_a_moving_window, 3), (windows_that_fill, 1),
    (read_in_an_inner_loop, 1), (in_a_helper, 2),
]  # fmt: skip


@pytest.mark.parametrize(("f", "least"), GROWING)
def test_elements_of_a_growing_list_are_carried(f, least):
    rolls(f, least=least)


# ---------------------------------------------------------------- lists that grow in front
def smoothed(x):
    """As the smoother of Rauch, Tung and Striebel: backwards over what a filter has left."""
    mean, means, predicted = paddle.zeros([3], x.dtype), [], []
    for t in range(x.shape[0]):
        predicted.append(mean * 0.9)
        mean = predicted[-1] + 0.3 * (x[t] - predicted[-1])
        means.append(mean)
    out = [means[-1]]
    for t in range(x.shape[0] - 2, -1, -1):
        out.insert(0, means[t] + 0.5 * (out[0] - predicted[t + 1]))
    return paddle.stack(out)


def read_behind_the_insertion(x):
    ys, total = [(x[0], 1.0)], paddle.zeros([3], x.dtype)
    for row in x:
        if row.sum() > 0:
            total = total + ys[0][0]
        ys.insert(0, (ys[0][0] * 0.5 + row, ys[0][1] * 0.9))
        total = total + ys[0][1] * ys[0][0]
    return ys[-1][0], ys[len(ys) // 2][0], total, ys[0][1]


def joined_in_front(x):
    ys = [x[0]]
    for row in x:
        ys = [row + 0.5 * ys[0], *ys]
    return paddle.stack(ys)


@pytest.mark.parametrize("f", [smoothed, read_behind_the_insertion, joined_in_front])
def test_the_first_element_of_a_list_that_grows_in_front_is_carried(f):
    rolls(f, least=2)


# ---------------------------------------------------------------- complete lists
def numbers(x):
    factors = [0.5, 0.25, -0.0, 1.5] * 20
    out = paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        out = out * 0.9 + factors[t] * x[t]
    return out


SEVENTHS = tuple(k / 7 for k in range(100))


def numbers_backwards(x):
    factors = SEVENTHS
    out = paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        out = out * 0.9 + factors[-t] * x[t] + factors[x.shape[0] - 1 - t]
    return out


def integers_as_indices(x):
    order = list(range(x.shape[0]))[::-1]
    h, ys = paddle.zeros([3], x.dtype), []
    for t in range(x.shape[0]):
        h = h * 0.5 + x[order[t]]
        ys.append(h * (order[t] // 2) / (1 + order[t]))
    return ys


def flags(x):
    keep = [True, False, False] * 20
    h = paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        if keep[t]:
            h = h + x[t]
        else:
            h = h * 0.5
    return h


def pairs_of_numbers(x):
    table = [(0.5 * k, k) for k in range(60)]
    h = paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        a, k = table[t]
        h = h * a / (k + 1) + x[t]
    return h


def tensors_of_an_earlier_loop(x):
    us = []
    for row in x:
        us.append(paddle.tanh(row))
    h, out = paddle.zeros([3], x.dtype), []
    for t in range(len(us)):
        h = h * 0.5 + us[t] * us[len(us) - 1 - t]
        out.append(h)
    return out


def tensors_of_a_display(x):
    bases = [x.mean(0), x.sum(0), x.max(0) * 0.5]
    h = paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = h * 0.5 + bases[t % 3] * x[t]
    return h, bases[1]


def numbers_of_a_range(x):
    back = range(100, 0, -1)
    h = paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = h * 0.5 + x[t] / back[t]
    return h


def membership(x):
    keep = {1, 3, 4, 11}
    h = paddle.zeros([3], x.dtype)
    for t in range(x.shape[0]):
        h = h * 0.5 + x[t] if t in keep else h - x[t]
    return h


COMPLETE = [
    (numbers, 0), (numbers_backwards, 0), (integers_as_indices, 0), (flags, 0),
    (pairs_of_numbers, 0), (tensors_of_an_earlier_loop, 0), (tensors_of_a_display, 1),
    (numbers_of_a_range, 0), (membership, 0),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("f", "least"), COMPLETE)
def test_a_complete_list_is_read_by_the_index(f, least):
    rolls(f, least=least)


SIGMAS = [0.9**k for k in range(80)]
STEPS = np.linspace(900, 100, 80)


def over_numbers(x):
    h = paddle.zeros([3], x.dtype)
    for i, s in enumerate(SIGMAS[: x.shape[0]]):
        h = h * s + x[i]
    return h


def over_pairs_of_numbers(x):
    h, n = paddle.zeros([3], x.dtype), x.shape[0]
    for row, now, later in zip(x, SIGMAS[:n], SIGMAS[1:]):
        h = h * (now - later) + row
    return h


def over_numbers_backwards(x):
    h, out = paddle.zeros([3], x.dtype), []
    for i, s in enumerate(reversed(STEPS[: x.shape[0]].tolist())):
        h = h * s / 1000 + x[i]
        out.append(h)
    return out


def over_an_array(x):
    h = paddle.zeros([3], x.dtype)
    for s, row in zip(STEPS[: x.shape[0]], x):
        h = h * (s / 1000.0) + row
    return h


NUMBERS = [over_numbers, over_pairs_of_numbers, over_numbers_backwards, over_an_array]


@pytest.mark.slow
@pytest.mark.parametrize("f", NUMBERS)
def test_a_loop_over_many_numbers_is_one_loop(f):
    rolls(f, lengths=(0, 1, 2, 9, 11))


WIDTHS = [1, 2, 3, 1, 2, 3, 1, 2, 3, 4]


def shapes_of_a_list(x):
    made = [paddle.zeros([n]) for n in WIDTHS]
    doubled = [2 * n for n in WIDTHS]
    return (
        made,
        paddle.zeros(doubled[:2]),
        max(WIDTHS),
        sum(WIDTHS),
        sorted(WIDTHS),
        dict(enumerate(WIDTHS)),
    )


def shapes_in_a_loop(x):
    out = []
    for i, n in enumerate(WIDTHS):
        out.append(x[:1].expand([n, 3]) * i)
    return out


def appends_to_what_it_runs_over(x):
    todo, h = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0], x[0]
    for q in todo:
        h = h * 0.5 + q
        if len(todo) < 12:
            todo.append(0.5)
    return h, todo


def appends_in_the_last_iteration(x):
    todo, h = [1.0] * 9, x[0]
    for i, q in enumerate(todo):
        h = h * 0.5 + q
        if i == 8:
            todo.append(0.5)
    return h, todo


def appends_to_what_a_loop_filled(x):
    ys, h = [], x[0]
    for t in range(x.shape[0]):
        ys.append(x[t] * 2)
    for k, y in zip(range(10), ys):
        h = h * 0.5 + y
        if k == 3:
            ys.append(h)
    return h


def appends_to_what_pairs_are_made_of(x):
    todo, h = [1.0] * 12, x[0]
    for i, (a, b) in enumerate(pairwise(todo)):
        h = h * 0.5 + a * b
        if i == 10:
            todo.append(0.5)
    return h


def appends_and_ends(x):
    todo, h = [1.0] * 9, x[0]
    for i, q in enumerate(todo):
        h = h * 0.5 + q
        if i == 4:
            todo.append(0.5)
            break
    return h, todo


@pytest.mark.parametrize("f", [shapes_of_a_list, shapes_in_a_loop, appends_and_ends])
def test_numbers_of_a_list_are_pythons_where_it_needs_them(f):
    static, x = dy2st.to_static(f), check.data(4, 3, dtype="float32", trained=False)
    check.same(static(x), f(x))


GROWING = [
    appends_to_what_it_runs_over,
    appends_in_the_last_iteration,
    appends_to_what_a_loop_filled,
    appends_to_what_pairs_are_made_of,
]


@pytest.mark.parametrize("f", GROWING)
def test_a_list_that_grows_while_a_loop_runs_over_it_is_refused(f):
    x = check.data(4, 3, dtype="float32", trained=False)
    with pytest.raises(dy2st.SourceError, match="while a loop runs over it"):
        dy2st.to_static(f)(x)


class Sampler(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.net = paddle.nn.Linear(3, 3)
        self.alphas = list(np.linspace(0.1, 1, 80))
        self.betas = np.linspace(0.5, 0.1, 80)
        self.order = np.arange(80)[::-1].copy()

    def coefficient(self, t):
        return self.alphas[t] * SIGMAS[t]

    def forward(self, x, scales):
        h = paddle.zeros([3])
        for t in range(x.shape[0]):
            h = h * self.coefficient(t) + self.net(h) * (1 - self.betas[t])
            h = h + x[t] * scales[t] * (self.order[t] + 1)
        return h


@pytest.mark.slow
def test_lists_and_arrays_from_outside_are_read_by_the_index():
    layer, rng = Sampler(), np.random.default_rng(0)

    def arguments():
        n = int(rng.integers(0, 5))
        return paddle.to_tensor(rng.normal(size=[n, 3]).astype("float32")), rng.normal(
            size=9
        ).tolist()

    static = check.parity(layer, arguments, calls=5)
    x = paddle.ones([30, 3])
    scales = [0.5] * 30
    np.testing.assert_allclose(static(x, scales).numpy(), layer(x, scales).numpy(), rtol=1e-5)
    assert "unrolled" not in str(dy2st.report(static, x, scales))


def test_a_list_that_changes_between_calls_is_read_again():
    factors = [1.0, 2.0, 3.0, 4.0]

    def f(x):
        out = paddle.zeros([3])
        for t in range(x.shape[0]):
            out = out * 0.5 + x[t] * factors[t]
        return out

    static, x = dy2st.to_static(f), paddle.ones([4, 3])
    for k in range(3):
        factors[k] += 10.0 * k
        check.same(static(x), f(x), what=f"call {k}")
        factors.append(0.0)
        check.same(static(x), f(x), what=f"call {k}, longer")
    assert factors == [1.0, 12.0, 23.0, 4.0, 0.0, 0.0, 0.0]


@pytest.mark.slow
def test_a_long_list_of_numbers_is_cheap():
    table = [float(k) for k in range(100_000)]

    def f(x):
        h = paddle.zeros([3])
        for t in range(x.shape[0]):
            h = h + x[t] * table[t * 30]
        return h

    static = dy2st.to_static(f)
    x = paddle.ones([3000, 3])
    check.same(static(x), f(x), rtol=1e-4)
    assert sum(1 for _ in walk(dy2st.program(static, x).ops)) < 20


# ---------------------------------------------------------------- errors and writes
def beyond_the_end(x):
    factors = [1.0, 2.0, 3.0]
    out = paddle.zeros([3])
    for t in range(x.shape[0]):
        out = out + x[t] * factors[t]
    return out


def beyond_the_list_it_fills(x):
    ys = [x[0]]
    for t in range(1, x.shape[0]):
        ys.append(ys[t] + x[t])
    return paddle.stack(ys)


def found_or_zero(x):
    factors, out = [1.0, 2.0, 3.0], paddle.zeros([3])
    for t in range(x.shape[0]):
        try:
            out = out + x[t] * factors[t]
        except IndexError:
            out = out - x[t]
    return out


@pytest.mark.parametrize("f", [beyond_the_end, beyond_the_list_it_fills, found_or_zero])
def test_an_index_beyond_the_end_raises_as_in_eager(f):
    static = dy2st.to_static(f)
    for n in (1, 2, 3, 5):
        x = paddle.ones([n, 3])
        want, have = check.outcome(f, [x]), check.outcome(static, [x])
        if isinstance(want, Exception):
            assert isinstance(have, IndexError), have
            assert "list index out of range" in str(have)
        else:
            check.same(have, want)


def writes_what_it_picks(x):
    ys = [x[0] * 1, x[1] * 1, x[2] * 1]
    for t in range(3):
        ys[t].add_(x[t])
    return ys


def writes_an_element(x):
    ys = [x[0] * 1, x[1] * 1, x[2] * 1]
    out = paddle.zeros([3])
    for t in range(3):
        out = out + ys[t]
        ys[0].add_(x[t])
    return out, ys


def writes_after_the_loop(x):
    ys, held = [x[0] * 1, x[1] * 1, x[2] * 1], []
    for t in range(3):
        held.append(ys[t])
    ys[1].add_(x[2])
    return held, ys


def replaces_an_element(x):
    ys = [x[0], x[1], x[2]]
    out = paddle.zeros([3])
    for t in range(x.shape[0]):
        out = out * 0.5 + ys[t % 3]
        ys[1] = out
    return out, ys


def keeps_what_it_picks(x):
    ys, y = [x[0] * 1, x[1] * 1, x[2] * 1], x[0]
    for t in range(3):
        y = ys[t]
    return y, ys


def same_object(x):
    ys, n = [x[0] * 1, x[1] * 1, x[2] * 1], 0
    for t in range(3):
        n += ys[t] is ys[1]
    return n, ys[n]


def other_kinds(x):
    ys, out = [1, 0.5, 2, 0.25], paddle.zeros([3])
    for t in range(4):
        out = out + x[0] * ys[t] + ys[t] // 1
    return out


def axes_of_a_list(x):
    axes, out = [0, 1, 0], paddle.zeros([3])
    for t in range(3):
        out = out + x[:3].sum(axes[t])
    return out


WRITES = [
    writes_what_it_picks, writes_an_element, writes_after_the_loop, replaces_an_element,
    keeps_what_it_picks, same_object, other_kinds, axes_of_a_list,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::dy2st.CopyWarning")
@pytest.mark.parametrize("f", WRITES)
def test_elements_are_the_tensors_of_the_list(f):
    x = check.data(4, 3, dtype="float32", trained=False)
    static = dy2st.to_static(f)
    for k in range(2):
        check.same(static(x + k), f(x + k), what=f"call {k}")


# ---------------------------------------------------------------- reasons
LAYERS = [paddle.nn.Linear(3, 3) for _ in range(4)]
NAMES = ["tanh", "sigmoid", "tanh", "relu"]
WEIGHTS = [layer.weight for layer in LAYERS]
MIXED = [0.5, "x", None, 1]
BY_NUMBER = {k: 0.5 * k for k in range(4)}


def picks_a_layer(x):
    for t in range(4):
        x = LAYERS[t](x)
    return x


def picks_a_name(x):
    for t in range(4):
        x = getattr(paddle.nn.functional, NAMES[t])(x)
    return x


def picks_a_parameter(x):
    for t in range(4):
        x = x @ WEIGHTS[t]
    return x


def picks_mixed_values(x):
    for t in range(4):
        x = x * 2 if MIXED[t] else x
    return x


def needs_a_key(x):
    for t in range(4):
        x = x * BY_NUMBER[t]
    return x


def needs_an_axis(x):
    axes = [0, 1, 0, 1]
    for t in range(4):
        x = x + x.sum(axes[t], keepdim=True)
    return x


REASONS = {
    picks_a_layer: "`LAYERS[t]` picks a Layer",
    picks_a_name: "`NAMES[t]` picks a str",
    picks_a_parameter: "`WEIGHTS[t]` picks a parameter",
    picks_mixed_values: "`MIXED[t]` picks objects of different types",
    needs_a_key: "t is needed as a number (hash): `BY_NUMBER[t]`",
    needs_an_axis: "a number that the program computes is needed now "
    "(a shape, or an int in code that is not translated): `x.sum(axes[t], keepdim=True)`",
}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 keeps no columns")
@pytest.mark.parametrize(("f", "reason"), REASONS.items())
def test_the_report_says_which_expression_needs_the_index(f, reason):
    static, x = dy2st.to_static(f), check.data(3, 3, dtype="float32")
    check.same(static(x), f(x), rtol=1e-5)
    reasons = [q.reason.removeprefix("4 iterations: ") for q in dy2st.report(static, x).loops]
    assert reasons == [reason]
