"""Lists that a branch may have replaced, and that are changed behind it."""

from __future__ import annotations

import paddle
import pytest
from paddle import nn

import dy2st
from tests import check
from tests.dy2st.state.containers.test_list_reads import rolls

pytestmark = pytest.mark.sampled(every=16)


def zeros(n):
    return [paddle.zeros([3], "float64") for _ in range(n)]


# ---------------------------------------------------------------- truncated gradients
def detached_every_third_step(x):
    hs, ys = zeros(2), []
    for t in range(x.shape[0]):
        if t % 3 == 0:
            hs = [h.detach() for h in hs]
        inp = x[t]
        for k in range(2):
            hs[k] = paddle.tanh(hs[k] * 0.5 + inp)
            inp = hs[k]
        ys.append(inp)
    return ys, hs


def of_many_layers(x):
    hs = zeros(12)
    for t in range(x.shape[0]):
        if t % 3 == 0:
            hs = [h.detach() for h in hs]
        inp = x[t]
        for k in range(12):
            hs[k] = paddle.tanh(hs[k] * 0.5 + inp)
            inp = hs[k]
    return hs


def pairs_in_lists(x):
    hs = [zeros(2) for _ in range(2)]
    for t in range(x.shape[0]):
        if t % 3 == 0:
            hs = [[h.detach(), c.detach()] for h, c in hs]
        for k in range(2):
            hs[k][1] = hs[k][1] * 0.5 + x[t]
            hs[k][0] = paddle.tanh(hs[k][1] + hs[k][0])
    return hs


def in_epochs(x):
    hs = zeros(2)
    for _ in range(9):
        for t in range(x.shape[0]):
            if t % 3 == 0:
                hs = [h.detach() for h in hs]
            hs[0] = hs[0] + x[t]
            hs[1] = paddle.tanh(hs[1] + hs[0])
        hs[0] = hs[0] * 0.5
    hs[1] = hs[1] + 1
    return hs


def of_data(x):
    hs = zeros(2)
    for t in range(x.shape[0]):
        if x[t].sum() > 1:
            hs = [h * 0.5 for h in hs]
        elif x[t].sum() < -1:
            hs = [h - 1 for h in hs]
        hs[0] = hs[0] + x[t]
        hs[1] = paddle.tanh(hs[1] + hs[0])
    return hs


@pytest.mark.quick("detached_every_third_step")
@pytest.mark.parametrize(
    "f", [detached_every_third_step, of_many_layers, pairs_in_lists, in_epochs, of_data]
)
def test_the_list_is_carried(f):
    rolls(f)


class Stateful(nn.Layer):
    def forward(self, x):
        self.hs = [paddle.zeros([3], "float64") for _ in range(2)]
        for t in range(x.shape[0]):
            if t % 3 == 0:
                self.hs = [h.detach() for h in self.hs]
            self.hs[0] = self.hs[0] * 0.5 + x[t]
            self.hs[1] = self.hs[1] + self.hs[0]
        return self.hs[0] + 0, self.hs[1] + 0


def test_a_list_in_an_attribute():
    static = check.agree(Stateful(), check.data(7, 3))
    assert "unrolled" not in str(dy2st.report(static, check.data(7, 3)))


# ---------------------------------------------------------------- lists with other names
def read_before_the_change(x):
    hs = [x.sum(0), x.sum(0) * 2]
    old = hs
    if x.sum() > 0:
        hs = [h * 2 for h in hs]
    y = old[0]
    hs[0] = hs[0] + 1
    return hs, y


def read_by_iterations(x):
    hs, ys = zeros(2), []
    first = hs
    for t in range(x.shape[0]):
        if t % 3 == 2:
            hs = [h.detach() for h in hs]
        hs[0] = hs[0] + x[t]
        ys.append(first[0])
    return hs, ys


def read_as_the_one_before(x):
    hs, ys = zeros(2), []
    previous = hs
    for t in range(x.shape[0]):
        ys.append(previous[0] + 0)
        if t % 3 == 2:
            hs = [h.detach() for h in hs]
        previous = hs
        hs[0] = hs[0] + x[t]
    return hs, ys


def read_by_an_inner_loop(x):
    hs = zeros(12)
    for t in range(x.shape[0]):
        old = hs
        if t % 2 == 0:
            hs = [h * 2 for h in hs]
        for k in range(12):
            y = old[k - 1]
            hs[k] = hs[k] + x[t] + y
    return hs


def not_rebound(x):
    hs = zeros(2)
    for t in range(x.shape[0]):
        now = hs
        if t % 2 == 0:
            now = [h * 2 for h in hs]
        now[0] = now[0] + x[t]
    return hs


@pytest.mark.parametrize(
    "f",
    [
        read_before_the_change, read_by_iterations, read_as_the_one_before, read_by_an_inner_loop,
        not_rebound,
    ],
)  # fmt: skip
@pytest.mark.parametrize("n", [1, 6])
def test_other_names_see_what_eager_shows(f, n):
    check.agree(f, check.data(n, 3, seed=n))


def replaced_in_a_nested_branch(x, a, b):
    hs = [x, x * 2]
    old = hs
    if a > 0:
        if b > 0:
            hs = [x * 3, x * 4]
    else:
        hs = [x * 5, x * 6]
    hs[0] = x * 0
    return old[0], hs[0]


def one_list_for_two_names(x, a, b):
    if a > 0:
        hs = other = [x]
    else:
        hs, other = [x + 1], [x + 2]
    hs[0] = hs[0] * b
    return other[0], hs[0]


def replaced_for_two_names(x, a, b):
    hs = [x, x * 2]
    other = hs
    if a > 0:
        hs = [h * 2 for h in hs]
    if b > 0:
        other = [h * 3 for h in other]
    hs[0] = hs[0] + 1
    return other[0], hs[0]


def changed_in_a_branch(x, a, b):
    hs = [x, x * 2]
    old = hs
    if a > 0:
        if b > 0:
            hs = [h * 2 for h in hs]
        hs[0] = hs[0] + 1
    return old[0], hs[0]


def the_old_one_is_returned(x, a, b):
    hs = [x, x * 2]
    old = hs
    if a > b:
        hs = [h * 2 for h in hs]
    hs[0] = hs[0] + 1
    return old


@pytest.mark.parametrize(
    "f",
    [
        replaced_in_a_nested_branch, one_list_for_two_names, replaced_for_two_names,
        changed_in_a_branch, the_old_one_is_returned,
    ],
)  # fmt: skip
def test_what_may_have_been_changed_is_not_read(f):
    args = (paddle.ones([2]), *(paddle.to_tensor(v) for v in (1.0, -1.0)))
    with pytest.raises(dy2st.SourceError, match="data decides here which list"):
        dy2st.to_static(f)(*args)


# ---------------------------------------------------------------- changed by the other name
def changed_by_the_old_name(x, a, b):
    hs = [x, x * 2]
    old = hs
    if a > 0:
        hs = [h * 2 for h in hs]
    old[0] = old[0] + b
    return hs[0] + 0


@pytest.mark.parametrize("how", ["read", "returned"])
def test_a_list_that_may_have_been_changed_by_the_old_name_is_not_read(how):
    args = (paddle.ones([2]), *(paddle.to_tensor(v) for v in (1.0, -1.0)))
    with pytest.raises(dy2st.SourceError, match="data decides here which list"):
        dy2st.to_static(changed_by_the_old_name if how == "read" else old_is_changed)(*args)


def old_is_changed(x, a, b):
    hs = [x, x * 2]
    old = hs
    if a > 0:
        hs = [h * 2 for h in hs]
    old[0] = old[0] + b
    return hs


def exchanged_then_changed(x):
    a, c = [x.sum(0), x.sum(0) * 2], [x.sum(0) * 3]
    b = a
    for t in range(x.shape[0]):
        c[0] = c[0] * 0.5
        if t % 2 == 0:
            c = b
    return a[0] + 0, c[0] + 0


def kept_and_changed(x):
    b, c = [x.sum(0)], [x.sum(0) + 1]
    for t in range(x.shape[0]):
        a = c
        if x[t].sum() > 0:
            c = [h * 0.9 for h in a]
        else:
            b[0] = b[0] + x[t]
        if t % 3 == 1:
            b[0] = a[0] * 0.5
        else:
            a[0] = a[0] + x[t]
    return b[0] + 0, c[0] + 0


@pytest.mark.parametrize("f", [exchanged_then_changed, kept_and_changed])
@pytest.mark.parametrize("n", [1, 4])
def test_a_list_of_two_names_in_iterations(f, n):
    """Equal to eager, or refused."""
    x = check.data(n, 3, seed=n)
    try:
        check.agree(f, x)
    except dy2st.SourceError as e:
        assert "which list" in str(e)
