"""Several loops at one line: what a trace learns of one of them does not hold for the next."""

from __future__ import annotations

import paddle
import pytest

from tests.check import data, parity

pytestmark = pytest.mark.sampled(every=12)


class Function(paddle.nn.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def breaks_at_a_number(h, n):
    for limit in (3, 100):
        for t in range(8):
            if t >= limit:
                break
            h = h * 0.5 + t
    return h


def breaks_at_a_number_or_data(h, n):
    for limit in (3, n, 100):
        for t in range(8):
            if t >= limit:
                break
            h = h * 0.5 + t
    return h


def counts_to_a_number_or_data(h, n):
    for limit in (5, n):
        k = 0
        while k < limit:
            h = h * 0.5
            k += 1
    return h


def counts_down_from_several(h, n):
    for limit in (n, 5, n + 1, 2):
        k = limit
        while k > 0:
            h = h * 0.5 + k
            k -= 1
    return h


def ends_at_a_number_or_a_value(h, n):
    for by_number in (True, False, True):
        k = 0
        while k < 3 if by_number else h.abs().max() > 0.01:
            h = h * 0.7
            k += 1
    return h


def ends_at_an_equal_number(h, n):
    for limit in (4, 6, n):
        k = 0
        while k != limit:
            h = h * 0.5
            k += 1 if limit is n else 2
    return h


def steps_differ(h, n):
    for step in (1, 0, 3):
        k = 0
        for _ in range(6):
            h = h + k
            k += step
        h = h * 0.5 + k
    return h


def lengths_differ(h, n):
    for steps in (3, 5, 1, 0, 4):
        for t in range(steps):
            h = h * 0.5 + t
    return h


def types_differ(h, n):
    for first in (None, h, None):
        b = first
        for t in range(4):
            b = h * t if b is None else b + h
        h = b * 0.1
    return h


LOOPS = [
    breaks_at_a_number, breaks_at_a_number_or_data, counts_to_a_number_or_data,
    counts_down_from_several, ends_at_a_number_or_a_value, ends_at_an_equal_number, steps_differ,
    lengths_differ, types_differ,
]  # fmt: skip


@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_each_loop_runs_its_own_iterations(f):
    parity(Function(f), lambda: [data(3, trained=False), paddle.to_tensor(8)])
