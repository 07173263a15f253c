"""Lists that the two branches of a condition on data change in different ways."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests import check


def kept(u, x):
    pass


def stored(u, x):
    u[1] = x[0] * 2


def stored_at_the_end(u, x):
    u[-1] = u[0] + x[1]


def each_stored(u, x):
    for i in range(len(u)):
        u[i] = u[i] * 0.5 + x[0]


def turned(u, x):
    u.reverse()


def turned_and_stored(u, x):
    u.reverse()
    u[0] = x[2]


def turned_by_data(u, x):
    if x[1].sum() > 0:
        u[0] = x[1]
    else:
        u.reverse()


def moved_on(u, x):
    u.append(x[2])
    u[2] = u[2] + u[0]
    u.pop(0)


CHANGES = [
    kept, stored, stored_at_the_end, each_stored, turned, turned_and_stored, turned_by_data,
    moved_on,
]  # fmt: skip


def in_branches(one, other, outside):
    """A function whose list, that of the caller or its own, is changed in one of two ways."""

    def f(x, given):
        u = given if outside else [x[0], x[1]]
        if x[0].sum() > 0:
            one(u, x)
        else:
            other(u, x)
        return u[0] * 2, u[1] - u[0]

    return f


@pytest.mark.sampled(every=8)
@pytest.mark.parametrize("one", CHANGES[:-1], ids=lambda f: f.__name__)
def test_two_changes(one):
    """What one branch stores stays where the other one gives the list other elements."""
    for k, other in enumerate(CHANGES[CHANGES.index(one) + 1 :]):
        f = in_branches(one, other, k % 2 == 1)
        static = dy2st.to_static(f)
        for sign in (1, -1):
            x = check.data(3, 2, seed=3, dtype="float32", trained=False) * sign
            ours, eager = ([paddle.ones([2]), paddle.zeros([2])] for _ in range(2))
            what = f"{other.__name__}, {sign}"
            check.same(static(x, ours), f(x, eager), what=what)
            check.same(ours, eager, what=what)


def test_an_element_that_both_branches_append_and_store():
    def f(x):
        u = [x[0]]
        if x[0].sum() > 0:
            u.append(x[1])
            u[1] = u[1] * 2
        else:
            u.append(x[2])
            u[1] = u[1] * 3
        return u

    for sign in (1, -1):
        check.agree(f, check.data(3, 2, seed=3) * sign)
