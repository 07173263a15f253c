"""Slices whose bounds are tensors: one value plus numbers are windows of known length."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests.check import same


def by_more(x, i, j):
    return x[i : i + 3] * 1


def by_less(x, i, j):
    return x[i - 2 : i] * 1


def of_other_types(x, i, j):
    k = (i - j).cast("int32").reshape([1])
    return x[k : k + 4] * 1


def known_in_part(x, i, j):
    k = i + paddle.to_tensor(3)
    return x[i:k] * 1


def in_a_branch(x, i, j):
    if x.sum() > 0:
        y = x[i - 1 : i + 1].sum()
    else:
        y = x[i : i + 3].sum()
    return y


def in_a_loop(x, i, j):
    for _ in range(3):
        x = x * 1.5
        x[i : i + 2] += x[i + 1 : i + 3]
        i = i + j
    return x


WINDOWS = [by_more, by_less, of_other_types, known_in_part, in_a_branch, in_a_loop]


def sums(x, i, j):
    return x[i + j : i + j + 3].sum()


def multiples(x, i, j):
    """The last one is cut."""
    return x[2 * i : 2 * i + 2].sum() + x[i * 4 : (i + 1) * 4].sum()


def later_end(x, i, j):
    end = i + 3
    end.add_(j)
    return x[i:end] * 1


def later_start(x, i, j):
    start = i * 1
    end = start + 3
    start.add_(j)
    return x[start:end] * 1


def later_view(x, i, j):
    end = (i + 3).reshape([1])
    last = end.reshape([])
    end.add_(j.reshape([1]))
    return x[i:last] * 1


def later_in_a_branch(x, i, j):
    start = i * 1
    end, y = start + 3, x.sum() * 0
    if x.sum() > -100:
        start.add_(j)
        y = x[start:end].sum()
    return y


def start_in_a_loop(x, i, j):
    i = i * 1
    end, y = i + 3, x.sum() * 0
    for _ in range(3):
        y = y + x[i:end].sum()
        i.add_(j)
    return y


def both_in_a_loop(x, i, j):
    i, y = i * 1, x.sum() * 0
    for _ in range(3):
        end = i + 3
        y = y + x[i:end].sum()
        i.add_(j)
        y = y * 2 + x[i:end].sum()
    return y


def elements_of_a_tensor(x, i, j):
    places = paddle.stack([i, i + 4])
    end = places[0] + 3
    places.add_(j)
    return x[places[0] : end].sum()


def end_in_a_branch(x, i, j):
    i = i * 1
    end = i + 3
    if x.sum() > 0:
        end.add_(j)
    return x[i:end].sum()


def other_products(x, i, j):
    return x[i * j : i * i + 1].sum()


LONGER = [
    later_end, later_start, later_view, later_in_a_branch, start_in_a_loop, both_in_a_loop,
    elements_of_a_tensor, end_in_a_branch, sums, multiples, other_products,
]  # fmt: skip


@pytest.mark.parametrize("f", [*WINDOWS, *LONGER])
def test_as_eager(f):
    """Bounds that are written in place later, too."""
    x, static = paddle.arange(22, dtype="float32"), dy2st.to_static(f)
    for i, j in ((2, 1), (3, 2), (5, 3)):
        given = x.clone(), paddle.to_tensor(i), paddle.to_tensor(j)
        same(static(*given), f(*given), what=f"{i}, {j}")


@pytest.mark.parametrize("f", WINDOWS)
def test_windows_have_a_known_length(f):
    """No size of them is left for the program to find out."""
    static, x = dy2st.to_static(f), paddle.arange(20, dtype="float32")
    text = str(dy2st.program(static, x, paddle.to_tensor(3), paddle.to_tensor(2)))
    assert "dynamic_slice" in text and "while" not in text
