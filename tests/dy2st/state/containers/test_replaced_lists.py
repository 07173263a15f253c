"""Lists that a loop changes in place and replaces by another one: windows of a history."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests import check
from tests.dy2st.state.containers.test_list_reads import rolls

pytestmark = pytest.mark.sampled(every=36)


# ---------------------------------------------------------------- windows
def cut_after_the_append(x):
    ys = [x[0], x[0] * 2, x[0] * 3]
    for t in range(x.shape[0]):
        ys.append(paddle.tanh(ys[0] + ys[-1] + x[t]))
        ys = ys[-3:]
    return paddle.stack(ys)


def fills_itself(x):
    ys, h = [], x[0]
    for t in range(x.shape[0]):
        h = paddle.tanh(h + sum(ys) + x[t])
        ys.append(h)
        ys = ys[-3:]
    return h, ys


def in_one_expression(x):
    hist, h = [], x[0]
    for t in range(x.shape[0]):
        h = h * 0.5 + x[t]
        hist = (hist + [h])[-4:]
        if len(hist) == 4:
            h = h + hist[0]
    return h, paddle.stack(hist)


def cut_in_front_by_its_length(x):
    ys, h = [], x[0]
    for t in range(x.shape[0]):
        h = h * 0.5 + x[t]
        ys.append(h)
        if len(ys) > 3:
            ys = ys[1:]
        h = h + ys[0]
    return h, paddle.stack(ys)


def adams_bashforth(x):
    ets, y = [], x[0]
    for t in range(x.shape[0]):
        e = paddle.tanh(y) * 0.1 + x[t]
        ets = ets[-3:]
        ets.append(e)
        if len(ets) == 1:
            y = y + ets[-1]
        elif len(ets) == 2:
            y = y + (3 * ets[-1] - ets[-2]) / 2
        elif len(ets) == 3:
            y = y + (23 * ets[-1] - 16 * ets[-2] + 5 * ets[-3]) / 12
        else:
            y = y + (55 * ets[-1] - 59 * ets[-2] + 37 * ets[-3] - 9 * ets[-4]) / 24
    return y, len(ets)


def stacked_frames(x):
    frames = [x[0]] * 4
    total = x[0]
    for t in range(x.shape[0]):
        frames.append(x[t] + total * 0.1)
        frames = frames[-4:]
        total = paddle.stack(frames).mean(0)
    return total, frames[0]


def of_pairs(x):
    hs = [(x[0], x[0] * 0)] * 2
    for t in range(x.shape[0]):
        h, c = hs[0]
        hs.append((h * 0.5 + x[t], c + h))
        hs = hs[-2:]
    return hs


def numbers(x):
    last, y = [0.0, 0.0], x[0]
    for t in range(x.shape[0]):
        y = y * 0.5 + x[t] * last[0]
        last.append(t * 0.5)
        last = last[-2:]
    return y, last


def previous_and_current(x):
    prev, cur = [x[0], x[0] + 1], []
    for t in range(x.shape[0]):
        for k in range(2):
            cur.append(prev[k] * 0.5 + x[t])
        prev, cur = cur, []
    return prev, cur


def rows_of_a_table(x):
    prev = [x[0] * k for k in range(12)]
    for t in range(x.shape[0]):
        cur = [x[t]]
        for k in range(1, 12):
            cur.append(paddle.minimum(prev[k], cur[k - 1]) + prev[k - 1] * 0.1)
        prev = cur
    return paddle.stack(prev)


def keeps_the_one_before(x):
    ys = [x[0], x[0] + 1]
    before = ys
    for t in range(x.shape[0]):
        ys.append(ys[0] * 0.5 + x[t])
        before, ys = ys, ys[-2:]
    return before, ys


WINDOWS = [
    cut_after_the_append, fills_itself, in_one_expression, cut_in_front_by_its_length,
    adams_bashforth, stacked_frames, of_pairs, numbers, previous_and_current,
    rows_of_a_table, keeps_the_one_before,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("f", WINDOWS, ids=lambda f: f.__name__)
def test_windows(f):
    inner = "short inner loop" if f is previous_and_current else ""
    rolls(f, least=1, inner=inner)


class Solver(paddle.nn.Layer):
    """A multistep solver: its history is an attribute, begun anew by each call."""

    def __init__(self):
        super().__init__()
        self.lin = paddle.nn.Linear(3, 3)
        self.ets = []

    def forward(self, x, n):
        self.ets = []
        for _ in range(n):
            self.ets = self.ets[-3:]
            self.ets.append(self.lin(x) * 0.1)
            x = x - sum(self.ets)
        return x


class Shift(paddle.nn.Layer):
    """A multistep solver that shifts the outputs of its model, and counts those that there are."""

    def __init__(self):
        super().__init__()
        self.lin = paddle.nn.Linear(3, 3)
        self.outputs = [None] * 3

    def forward(self, x, n):
        self.outputs = [None] * 3
        there = 0
        for _ in range(n):
            for i in range(2):
                self.outputs[i] = self.outputs[i + 1]
            self.outputs[-1] = self.lin(x)
            x = x - 0.1 * self.outputs[-1]
            if there >= 1:
                x = x - 0.05 * self.outputs[-2]
            if there >= 2:
                x = x + 0.01 * self.outputs[-3]
            if there < 3:
                there += 1
        return x


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Solver, Shift])
def test_solvers(kind):
    model, x = kind(), paddle.ones([2, 3])
    static = dy2st.to_static(model)
    for n in (0, 1, 2, 3, 4, 9, 30, 60):
        want = kind.forward(model, x, n)
        check.same(static(x, n), want, check.BOUNDS["float32"], check.BOUNDS["float32"])
    sizes = [len(str(dy2st.program(static, x, n)).splitlines()) for n in (30, 60)]
    assert sizes[0] == sizes[1]


# ---------------------------------------------------------------- other names
def kept_before(x):
    ys = [x[0], x[0] * 2]
    keep = ys
    for t in range(x.shape[0]):
        ys.append(ys[0] + x[t])
        ys = ys[-2:]
    return paddle.stack(keep), len(keep), ys


def read_in_the_body(x):
    ys = [x[0], x[0] * 2]
    keep, total = ys, x[0]
    for t in range(x.shape[0]):
        total = total + len(keep) + keep[-1] + x[t]
        ys.append(total)
        ys = ys[-2:]
    return total, keep


def returned(x):
    ys = [x[0], x[0] * 2]
    keep = {"ys": ys}
    for t in range(x.shape[0]):
        ys.append(ys[0] + x[t])
        ys = ys[-2:]
    return keep, ys


def two_names_of_the_new_one(x):
    ys = [x[0], x[0] * 2]
    zs = ys
    for t in range(x.shape[0]):
        ys.append(ys[0] + x[t] + len(zs))
        ys = ys[-2:]
        zs = ys
    return ys, zs


def changed_by_the_other_name(x):
    ys = [x[0], x[0] * 2]
    zs = [x[0]]
    for t in range(x.shape[0]):
        zs.append(x[t])
        ys = ys[1:] + [ys[0] * 0.5 + len(zs)]
        zs = ys
    return ys, zs


def some_iterations(x):
    ys = [x[0], x[0] * 2]
    for t in range(x.shape[0]):
        ys[0] = ys[0] * 0.5 + x[t]
        if t % 2 == 0:
            ys = [ys[1], ys[0]]
    return ys


@pytest.mark.slow
@pytest.mark.parametrize(
    "f",
    [
        kept_before, read_in_the_body, returned, two_names_of_the_new_one,
        changed_by_the_other_name, some_iterations,
    ],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_a_list_under_two_names(f):
    static = dy2st.to_static(f)
    for n in (1, 2, 3, 8):
        check.agree(static, check.data(n, 3, seed=n))


def newest_in_front(x):
    h, u = x[0], [x[0]] * 2
    for row in x:
        u.insert(0, h)
        u = u[:2]
        h = h * 0.5 + u[1] + row
    return h, u


def newest_in_front_of_an_inner_loop(x):
    h, u = x[0], [x[0]] * 2
    for _ in range(x.shape[0]):
        for k in range(4):
            u.insert(0, h)
            u = u[:2]
            h = h * 0.5 + u[1] * k
    return h, u


def oldest_taken(x):
    h, u = x[0], [x[0], x[0] * 2, x[0] * 3]
    for row in x:
        first = u.pop(0)
        h = h * 0.5 + first + row
        u = [*u, h]
    return h, u


def copied_in_an_inner_loop(x):
    h, ys = x[0], [x[0], x[0] * 2]
    for _ in range(x.shape[0]):
        for k in range(3):
            ys[1] = h
            h = h * 0.5 + x[0] * k
            ys = ys.copy()
            ys[0] = ys[0] * 0.5 + x[0]
    return h, ys


MOVED = [
    newest_in_front, newest_in_front_of_an_inner_loop, oldest_taken, copied_in_an_inner_loop,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("f", MOVED, ids=lambda f: f.__name__)
def test_elements_that_change_their_place(f):
    """The elements that an iteration begins with are those before it changes the list."""
    for n in (1, 2, 3, 5):
        check.agree(f, check.data(n, 3, seed=n))


def two_rows(x):
    old, new = [x[0] * k for k in range(10)], [x[0] for _ in range(10)]
    first = new
    for t in range(x.shape[0]):
        new[0] = old[0] + 1
        for k in range(1, 10):
            new[k] = paddle.minimum(old[k] + x[t], new[k - 1]) + old[k - 1] * 0.1
        old, new = new, old
    old.append(x[0])
    return old, new, [q is first for q in (old, new)]


def three_states(x):
    a, b, c = [x[0], x[0] * 2], [x[0] * 3, x[0]], [x[0] * 4, x[0] * 5]
    held = [a, b, c]
    for t in range(x.shape[0]):
        c[0] = a[0] + b[1] * 0.5
        c[1] = x[t]
        a, b, c = b, c, a
    return held, [[p is q for q in held] for p in (a, b, c)]


def until_large(x):
    a, b = [abs(x[0]) + 0.1, x[0] * 2], [x[0] * 3, x[0] * 4]
    while a[0].sum() < 30:
        b[0] = a[0] * 2
        b[1] = a[1] + 1
        a, b = b, a
    return a[0], a[1], b[0], b[1]


def also_by_another_name(x):
    a, b = [x[0], x[0] * 2], [x[0] * 3, x[0] * 4]
    c = a
    for t in range(x.shape[0]):
        b[0] = a[0] + c[0] * x[t]
        a, b = b, a
    return a, b, c


EXCHANGED = [two_rows, three_states, until_large]


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("f", [*EXCHANGED, also_by_another_name], ids=lambda f: f.__name__)
def test_lists_that_change_places(f, n):
    x = check.data(n, 3, seed=n)
    static = check.agree(f, x)
    if f in EXCHANGED and n == 5:
        assert "unrolled" not in str(dy2st.report(static, x))


def test_lists_of_the_caller_that_change_places():
    def f(x, a, b):
        for t in range(x.shape[0]):
            b[0] = a[0] + x[t]
            a, b = b, a
        return a[0]

    static = dy2st.to_static(f)
    for n in (3, 4, 3):
        one, two = ([[check.data(3, seed=k)] for k in range(2)] for _ in "ab")
        x = check.data(n, 3, seed=n)
        check.same(static(x, *two), f(x, *one), 1e-9, 1e-9)
        check.same(two, one, 1e-9, 1e-9)


def one_that_the_loop_stores(x, given):
    own = [x[0], x[0] * 2]
    for t in range(x.shape[0]):
        own[0] = own[0] * 0.5 + x[t]
        given, own = own, given
    return given[0], own[0]


def one_in_an_inner_loop(x, given):
    own = [x[0], x[0] * 2]
    for t in range(x.shape[0]):
        for i in range(len(own)):
            own[i] = own[i] * 0.5 + x[t]
        given, own = own, given
    return given, own


def three_that_change_places(x, given):
    own, third = [x[0], x[0] * 2], [x[0] * 3, x[0]]
    for t in range(x.shape[0]):
        third[0] = own[0] * 0.5 + x[t]
        own, given, third = given, third, own
    return own[0]


def one_that_gets_the_other(x, given):
    own = [x[0], x[0] * 2]
    for t in range(x.shape[0]):
        own[0] = own[0] * 0.5 + x[t]
        own, given = given, [x[t], x[0]]
    return own[0]


WITH_THE_CALLERS = [
    one_that_the_loop_stores, one_in_an_inner_loop, three_that_change_places,
    one_that_gets_the_other,
]  # fmt: skip


@pytest.mark.parametrize("f", WITH_THE_CALLERS, ids=lambda f: f.__name__)
def test_a_list_of_the_caller_that_changes_places_with_another(f):
    static = dy2st.to_static(f)
    for n in (1, 3, 4):
        one, two = ([check.data(3, seed=k) for k in range(2)] for _ in "ab")
        x = check.data(n, 3, seed=n)
        check.same(static(x, two), f(x, one), 1e-9, 1e-9)
        check.same(two, one, 1e-9, 1e-9)
