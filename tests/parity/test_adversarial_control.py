"""Control flow on data that once broke parity, or is likely to: each program in many calls.

A program is a function of `x` f32[T,3] and `s`, a number as a 0-d tensor; a Layer keeps its state
from call to call. The numbers are multiples of 1/4, so sums are exact and conditions certain.
"""

from __future__ import annotations

import collections
import contextlib
import inspect

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.static import InputSpec

import dy2st
from tests import check

pytestmark = pytest.mark.sampled

NAMED = [InputSpec([None, 3], "float32", "x"), InputSpec([], "float32", "s")]
LIMITS = (-1.5, 4.0, 0.0, 2.25, 0.5)
CALLS = [(5, 0), (5, 1), (2, 2), (0, 3), (1, 4), (5, 4)]
PROGRAMS = []
REFUSED = []


def program(f):
    PROGRAMS.append(f)
    return f


def refused(f):
    """Right, or refused by name."""
    REFUSED.append(f)
    return f


def data(steps, seed):
    a = np.random.default_rng(1000 * steps + seed).integers(-8, 9, size=[steps, 3]) / 4
    return paddle.to_tensor(a.astype("float32")), paddle.to_tensor(np.float32(LIMITS[seed]))


def state(x):
    """The attributes that a Layer's forward may change."""
    own = {k: v for k, v in vars(x).items() if isinstance(v, (bool, int, float, list, dict))}
    fields = {k: v for k, v in own.items() if not k.startswith("_") and k != "training"}
    return [(k, fields[k]) for k in sorted(fields)] + sorted(check.buffers(x).items())


def agree(f, spec, calls):
    """Results, arguments, attributes; where eager raises, so does the translation."""
    stateful = inspect.isclass(f)
    eager, static = (f(), dy2st.to_static(f(), spec)) if stateful else (f, dy2st.to_static(f, spec))
    for steps, seed in calls:
        one, two = data(steps, seed), data(steps, seed)
        want, have = check.outcome(eager, one), check.outcome(static, two)
        if isinstance(have, dy2st.SourceError):
            raise have
        if isinstance(want, Exception):
            assert type(have) is type(want), (steps, seed, want, have)
            continue
        if isinstance(have, Exception):
            raise have
        check.same(have, want, what=f"T = {steps}, call {seed}")
        check.same(two, one, what=f"T = {steps}, call {seed}: arguments")
        if stateful:
            check.same(state(static), state(eager), what=f"T = {steps}, call {seed}: attributes")


def announced(f):
    """A warning is expected where a result is a row of the argument that data chooses."""
    if f not in (AStepThatReturnsEarly, a_shift_register_in_a_branch):
        return contextlib.nullcontext()
    return pytest.warns(dy2st.CopyWarning, match="which memory a result shows")


# ---------------------------------------------------------------- attributes and branches
@program
class ARateThatOnlyOneBranchChanges(nn.Layer):
    def __init__(self):
        super().__init__()
        self.rate = 1.0

    def forward(self, x, s):
        if x.sum() > s:
            self.rate = self.rate * 0.5
        return x * self.rate


@program
class AFlagThatIsOnlyRaised(nn.Layer):
    def __init__(self):
        super().__init__()
        self.flag = False

    def forward(self, x, s):
        if s > 0:
            self.flag = True
        if self.flag:
            return x + 1
        return x * 2


@program
class ANumberThatAWhileStores(nn.Layer):
    def __init__(self):
        super().__init__()
        self.seen = 1.5

    def forward(self, x, s):
        while s > 0:
            self.seen = float(s)
            s = s - 1
        return x + 1


@program
class FlagsThatFlip(nn.Layer):
    def __init__(self):
        super().__init__()
        self.up, self.count = True, 0

    def forward(self, x, s):
        for row in x:
            if row.sum() > s:
                self.up = not self.up
            else:
                self.count = -self.count + 1
        return x * self.count


@program
class ALogOfItsOwnLength(nn.Layer):
    def __init__(self):
        super().__init__()
        self.log = []

    def forward(self, x, s):
        self.log.append(len(self.log))
        return x + len(self.log)


@program
class ListsAndDictsOfNumbers(nn.Layer):
    def __init__(self):
        super().__init__()
        self.a, self.d = [0, 0], {"k": 1.5}

    def forward(self, x, s):
        self.a[0] += 1
        if s > 0:
            self.a[1] = self.a[1] + self.a[0]
        self.d["k"] = self.d["k"] * 1.5 if s > 0 else 1.0
        return x * self.a[1] + self.d["k"]


@program
class AStepThatReturnsEarly(nn.Layer):
    def __init__(self):
        super().__init__()
        self.n = 0

    def step(self, row, s):
        if row.sum() > s:
            self.n = self.n + 1
            return row
        self.n -= 2
        return row * 2

    def forward(self, x, s):
        return [self.step(row, s) for row in x]


# ---------------------------------------------------------------- jumps
@program
def an_exit_on_two_levels(x, s):
    c = 0
    for t in range(x.shape[0]):
        for k in range(3):
            if x[t, k] > s:
                continue
            if k == 2 and x[t, 0] < 0:
                break
            c += k
        if t > 2 and c > 3:
            return c
        c += 1
    else:
        c = -c
    return c


@program
def else_continue_break(x, s):
    c = 0
    for t in range(x.shape[0]):
        for k in range(3):
            if x[t, k] > s:
                break
            c += 1
        else:
            continue
        break
    return c


@program
def a_walrus_in_a_while(x, s):
    h, n = x.sum(), 0
    while (w := h + s) < 8 and n < 10:
        h = w + 1
        n += 1
    return h, w, n


@program
def chained_comparison_as_test(x, s):
    h, n = x.sum(), 0
    while -3 < h < 8:
        n += 1
        h = h + 1.5
    return h, n


@program
def a_search_from_both_ends(x, s):
    i, j = 0, x.shape[0] - 1
    while i < j:
        if x[i].sum() > x[j].sum():
            j -= 1
        else:
            i += 1
    return i, j


@program
def the_best_row(x, s):
    best, where = -1e9, -1
    for t, row in enumerate(x):
        v = float(row.sum())
        if v > best:
            best, where = v, t
    return best, where


@program
def an_error_in_a_loop(x, s):
    for row in x:
        if row.sum() > s:
            raise ValueError("too big")
    return x + 1


@program
def a_finally_around_a_continue(x, s):
    for row in x:
        try:
            if row.sum() > s:
                continue
            x = x + 1
        finally:
            x = x + 0.5
    return x


@program
def a_condition_that_a_size_decides(x, s):
    ok = s > 0
    if ok and x.shape[0] > 2:
        return x[2] * 2
    return x.sum(0)


# ---------------------------------------------------------------- lists
@program
def the_first_of_a_growing_list(x, s):
    ys = []
    for row in x:
        ys.append(row * 2)
        ys.append(ys[-1] + ys[0])
    return ys


@program
def a_list_times_two(x, s):
    ys = [[]] * 2
    for row in x:
        ys[0].append(row)
    return ys, ys[0] is ys[1]


@program
def copies_of_a_list(x, s):
    ys = [x, x + 1]
    zs, us = ys.copy(), ys + [x]
    if s > 0:
        zs[0], us[2] = x + 2, x * 3
    zs.append(x)
    return ys[0] * 1, zs[0] * 1, us[2] * 1, len(zs)


@program
def a_starred_target(x, s):
    a, *b = [x, x + 1, x + 2]
    if s > 0:
        a, *b = b + [a]
    return a - b[0] * 2 + b[1]


@program
def a_shift_register_in_a_branch(x, s):
    h = [x.sum(0), x.sum(0) + 1]
    for row in x:
        if row.sum() > s:
            h = [h[1], row]
        else:
            h = [h[0] + row, h[1]]
    return h


# ---------------------------------------------------------------- writes and growing tensors
@program
def bubble_sort(x, s):
    y = x.clone()
    for _ in range(3):
        for j in range(2):
            if y[:, j].sum() > y[:, j + 1].sum():
                keep = y[:, j].clone()
                y[:, j] = y[:, j + 1]
                y[:, j + 1] = keep
    return y


@program
def rows_that_pass_are_packed(x, s):
    out, k = paddle.zeros([x.shape[0], 3]), 0
    for t in range(x.shape[0]):
        if x[t].sum() > s:
            out[k] = x[t]
            k += 1
    return out, k


@program
def a_row_is_a_view(x, s):
    for t in range(x.shape[0]):
        row = x[t]
        if row.sum() > s:
            row *= 0
    return x.sum()


@program
def grown_until_data_says_so(x, s):
    h = x.sum(0).unsqueeze(0)
    for t in range(x.shape[0]):
        h = paddle.concat([h, x[t : t + 1]])
        if h[-1].sum() > s:
            break
    return h


@pytest.mark.quick("FlagsThatFlip-fixed")
@pytest.mark.parametrize("spec", [None, NAMED], ids=["fixed", "named"])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_agrees_with_eager(f, spec):
    with announced(f):
        agree(f, spec, CALLS)


@pytest.mark.quick("ALogOfItsOwnLength", "chained_comparison_as_test")
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_made_for_no_iteration_first(f):
    with announced(f):
        agree(f, NAMED, [(0, 0), (5, 1), (1, 2)])


# ---------------------------------------------------------------- never silently wrong
@refused
def a_text_of_the_last_iteration(x, s):
    mode = "a"
    for row in x:
        if row.sum() > s:
            mode = "b"
            break
    return mode


@refused
def a_row_or_none(x, s):
    found = None
    for row in x:
        if row.sum() > s:
            found = row
            break
    return x if found is None else found


@refused
def whether_a_row_was_found(x, s):
    found = None
    for row in x:
        if row.sum() > s:
            found = row
            break
    return found is None


@refused
def an_error_text_raised_after_the_loop(x, s):
    error = None
    for row in x:
        if row.sum() > s:
            error = "bad"
            break
    if error:
        raise ValueError(error)
    return x + 1


@refused
def a_float_where_an_int_was(x, s):
    v = 1
    for row in x:
        if row.sum() > s:
            v = 2.5
            break
    return v


@refused
def another_shape_on_the_way_out(x, s):
    v = x.sum()
    for row in x:
        if row.sum() > s:
            v = row
            break
    return v


@refused
def a_tuple_with_none(x, s):
    v = (x.sum(), None)
    for row in x:
        if row.sum() > s:
            v = (x.sum(), row)
            break
    return v[1] is None, v[0]


@refused
def a_function_of_the_last_iteration(x, s):
    f = paddle.tanh
    for row in x:
        if row.sum() > s:
            f = paddle.abs
            break
    return f(x)


@refused
def the_last_but_one_of_a_growing_list(x, s):
    ys = []
    for row in x:
        if len(ys) >= 2:
            ys.append(ys[-1] + ys[-2] + row)
        else:
            ys.append(row)
    return ys


@refused
def an_integer_or_a_truth(x, s):
    return bool(s > 0) and int(s)


@refused
def a_division_in_a_try(x, s):
    try:
        k = 10 // int(s)
    except ZeroDivisionError:
        k = 0
    return k


@refused
def a_deque_that_one_branch_turns(x, s):
    q = collections.deque([x * 2, x + 1])
    if x.sum() > s:
        q.rotate(1)
    return list(q)


@refused
def a_match_of_one_of_two(x, s):
    m = None
    if x.sum() > s:
        m = x
    match m:
        case None:
            return x * 0
        case _:
            return x + 1


@pytest.mark.quick(
    "a_row_or_none-named", "a_float_where_an_int_was-named",
    "a_function_of_the_last_iteration-named", "a_division_in_a_try-named",
)  # fmt: skip
@pytest.mark.parametrize("spec", [None, NAMED], ids=["fixed", "named"])
@pytest.mark.parametrize("f", REFUSED, ids=lambda f: f.__name__)
def test_agrees_or_is_refused(f, spec):
    """Until it is refused, and where it is not, the numbers are eager's."""
    try:
        agree(f, spec, [(5, 0), (5, 1), (2, 2), (1, 4)])
    except dy2st.SourceError as error:
        assert error.remedy or error.reason
