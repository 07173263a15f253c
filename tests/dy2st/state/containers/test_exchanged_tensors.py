"""Tensors that a loop writes in place and binds to other names: double buffers."""

from __future__ import annotations

import types

import paddle
import pytest

import dy2st
from ir.uses import walk
from tests import check
from tests.dy2st.state.containers.test_list_reads import rolls

pytestmark = pytest.mark.sampled(every=16)


def ones_and_zeros():
    return paddle.ones([3], "float64"), paddle.zeros([3], "float64")


def two(x):
    a, b = ones_and_zeros()
    for t in range(x.shape[0]):
        b[:] = paddle.tanh(a) + x[t]
        a, b = b, a
    return a, b


def stencil(x):
    a, b = ones_and_zeros()
    for t in range(x.shape[0]):
        b[1:-1] = (a[:-2] + a[2:]) * 0.5 + x[t, 1:-1]
        other = a
        a = b
        b = other
    return a


def three(x):
    (p, q), r = ones_and_zeros(), paddle.full([3], 2.0, "float64")
    for t in range(x.shape[0]):
        r[:] = 2 * q - p + x[t] * 0.1
        p, q, r = q, r, p
    return p, q, r


def until_large(x):
    a, b = ones_and_zeros()
    for t in range(x.shape[0]):
        b[:] = paddle.tanh(a) + x[t] + b * 0.5
        a, b = b, a
        if a.sum() > 5:
            break
    return a * 1 + b * 2


def while_small(x):
    a, b = x.sum(0) * 0 + 0.1, x.sum(0) * 0 + 0.2
    while a.sum() < 9:
        b.add_(a * 0.5 + 0.1)
        a, b = b, a
    return a, b


def in_an_inner_loop(x):
    total = x.sum(0)
    for t in range(x.shape[0]):
        a, b = x[t] * 1, paddle.zeros_like(x[t])
        for k in range(9):
            b[:] = paddle.tanh(a) + k
            a, b = b, a
        total = total * 0.5 + a + b
    return total


def collected(x):
    a, b = ones_and_zeros()
    ys = []
    for t in range(x.shape[0]):
        b[:] = paddle.tanh(a) + x[t]
        ys.append(b.clone())
        a, b = b, a
    return a, ys


def written_and_made_anew(x):
    h = x.sum(0)
    for t in range(x.shape[0]):
        h[0:1] = x[t, 0:1]
        h = h * 0.5 + x[t]
    return h


def caches_of_beams(x):
    n = x.shape[0]
    caches = [[paddle.zeros([2, n, 3], "float64")] for _ in range(2)]
    h = paddle.ones([2, 3], "float64")
    for t in range(n):
        for k in range(2):
            caches[k][0][:, t] = h
            h = paddle.tanh(h + caches[k][0][:, : t + 1].mean(1) + x[t])
        order = paddle.argsort(h.sum(-1))
        caches = [[paddle.gather(q, order)] for (q,) in caches]
    return h


BUFFERS = [
    two, stencil, three, until_large, while_small, in_an_inner_loop, collected,
    written_and_made_anew,
]  # fmt: skip


@pytest.mark.parametrize("f", BUFFERS, ids=lambda f: f.__name__)
def test_one_loop(f):
    rolls(f)


@pytest.mark.slow
def test_caches_that_a_beam_search_reorders():
    static = dy2st.to_static(caches_of_beams)
    for n in (1, 3, 5):
        check.agree(static, check.data(n, 3, seed=n))
    programs = [dy2st.program(static, check.data(n, 3)) for n in (12, 24)]
    assert len({sum(1 for _ in walk(q.ops)) for q in programs}) == 1


# ---------------------------------------------------------------- tensors with other names
def first_behind_the_loop(x):
    a, b = ones_and_zeros()
    first = b
    for t in range(x.shape[0]):
        b[:] = paddle.tanh(a) + x[t]
        a, b = b, a
    return a * 1, b * 1, first * 1


def first_as_a_result(x):
    a, b = ones_and_zeros()
    one, other = a, b
    for t in range(x.shape[0]):
        b[:] = paddle.tanh(a) + x[t]
        a, b = b, a
    return one, other


def first_in_the_body(x):
    a, b = ones_and_zeros()
    first, total = b, x.sum(0)
    for t in range(x.shape[0]):
        b[:] = paddle.tanh(a) + x[t]
        a, b = b, a
        total = total + first
    return total


def view_behind_the_loop(x):
    a, b = ones_and_zeros()
    view = b[1:]
    for t in range(x.shape[0]):
        b[:] = paddle.tanh(a) + x[t]
        a, b = b, a
    return view * 2


def in_a_list(x):
    a, b = ones_and_zeros()
    ys = []
    for t in range(x.shape[0]):
        b[:] = paddle.tanh(a) + x[t]
        ys.append(b)
        a, b = b, a
    return [y * 1 for y in ys]


def in_an_attribute(x):
    a, b = ones_and_zeros()
    model = types.SimpleNamespace(last=a)
    for t in range(x.shape[0]):
        b[:] = paddle.tanh(a) + x[t] + model.last
        model.last = b
        a, b = b, a
    return model.last * 1


def one_name_for_both(x):
    a = b = x.sum(0) * 0
    for t in range(x.shape[0]):
        b[:] = paddle.tanh(a) + x[t]
        a, b = b, a
    return a * 1, b * 1


def becomes_one_tensor(x):
    a, b = ones_and_zeros()
    for t in range(x.shape[0]):
        b[:] = paddle.tanh(a) + x[t]
        a = b
    return a * 1, b * 1


def becomes_a_row(x):
    h, y = x.sum(0), x * 2
    for t in range(x.shape[0]):
        h[0:1] = h[0:1] + 1
        h = x[t] * 1 if t % 2 else y[t]
    return h * 1, y


def inner_loop_around_a_name(x):
    a, b = ones_and_zeros()
    total = x.sum(0)
    for t in range(x.shape[0]):
        kept = b
        for k in range(9):
            b[:] = paddle.tanh(a) + x[t] * k
            a, b = b, a
        total = total + kept
    return total


NAMES = [
    first_behind_the_loop, first_as_a_result, first_in_the_body, view_behind_the_loop, in_a_list,
    in_an_attribute, one_name_for_both, becomes_one_tensor, becomes_a_row,
    inner_loop_around_a_name,
]  # fmt: skip


@pytest.mark.parametrize("f", NAMES, ids=lambda f: f.__name__)
def test_tensors_with_other_names(f):
    static = dy2st.to_static(f)
    with paddle.no_grad():
        for n in (1, 2, 5):
            x = check.data(n, 3, seed=n, trained=False)
            check.same(static(x), f(x), 1e-9, 1e-9)


def test_buffers_of_the_caller():
    def f(x, a, b):
        for t in range(x.shape[0]):
            b[:] = paddle.tanh(a) + x[t]
            a, b = b, a
        return a * 1, b * 1

    static = dy2st.to_static(f)
    for n in (0, 1, 4):
        pairs = [[check.data(3, seed=k, trained=False) for k in range(2)] for _ in "ab"]
        x = check.data(n, 3, seed=n, trained=False)
        check.same(static(x, *pairs[0]), f(x, *pairs[1]), 1e-9, 1e-9)
        check.same(*pairs, 1e-9, 1e-9)
