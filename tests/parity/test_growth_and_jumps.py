"""Loops that make a tensor longer and leave by `return` or `break`, around the concat."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests import check

names = {"ids": lambda f: f.__name__}
TABLE = paddle.to_tensor([[(3 * i + j * j) % 7 for j in range(7)] for i in range(7)], "int64")


def following(ids, t):
    """The next tokens, which depend on all so far."""
    return (TABLE[ids].sum([1, 2]).unsqueeze(1) + ids[:, -1:] + t) % 7


def returns_behind_the_concat(ids, end):
    for t in range(9):
        token = following(ids, t)
        ids = paddle.concat([ids, token], 1)
        if (token == end).all():
            return ids
    return ids


def returns_before_the_concat(ids, end):
    for t in range(9):
        token = following(ids, t)
        if (token == end).all():
            return ids
        ids = paddle.concat([ids, token], 1)
    return ids


def returns_more(ids, end):
    count = paddle.zeros([1], "int64")
    for t in range(9):
        token = following(ids, t)
        ids = paddle.concat([ids, token], 1)
        count = count + 1
        if (token == end).all():
            return ids, count
    return ids, count


def returns_without_a_bound(ids, end):
    t = paddle.zeros([], "int64")
    while True:
        token = following(ids, t)
        ids = paddle.concat([ids, token], 1)
        t = t + 1
        if (token == end).all() or t > 8 * (end + 1):
            return ids


def returns_in_two_places(ids, end):
    for t in range(9):
        token = following(ids, t)
        if (token == end).all():
            return ids
        ids = paddle.concat([ids, token], 1)
        if (token == end + 1).all():
            break
    return ids


def breaks_on_both_sides(ids, end):
    done = paddle.zeros([ids.shape[0], 1], "bool")
    for t in range(9):
        token = following(ids, t)
        if done.all():
            break
        ids = paddle.concat([ids, token], 1)
        done = paddle.logical_or(done, token == end)
        if done.all():
            break
    return ids


def returns_from_a_callee(ids, end):
    return returns_behind_the_concat(ids, end) * 2, returns_before_the_concat(ids, end)


def grows_with_its_masks(ids, end):
    """The arguments of a model in a dict, whose cache begins as None."""
    given = {"cache": None, "mask": ids * 0 + 1, "places": paddle.arange(2).unsqueeze(0)}
    done = paddle.zeros([1, 1], "bool")
    for t in range(9):
        new = ids if given["cache"] is None else ids[:, -1:]
        places = given["places"] if given["cache"] is None else given["places"][:, -1:]
        key = (TABLE[new].sum(-1) + places) % 7
        old = given["cache"]
        given["cache"] = key if old is None else paddle.concat([old, key], 1)
        token = ((given["cache"] * given["mask"]).sum(1, keepdim=True) + t) % 7
        ids = paddle.concat([ids, paddle.where(done, token * 0, token)], 1)
        given["mask"] = paddle.concat([given["mask"], ids[:, -1:] * 0 + 1], -1)
        given["places"] = paddle.concat([given["places"], given["places"][:, -1:] + 1], -1)
        done = paddle.logical_or(done, token == end)
        if done.all():
            break
    return ids


FUNCTIONS = (
    returns_behind_the_concat, returns_before_the_concat, returns_more, returns_without_a_bound,
    returns_in_two_places, breaks_on_both_sides, returns_from_a_callee, grows_with_its_masks,
)  # fmt: skip


class Module(paddle.nn.Layer):
    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, *args):
        return self.f(*args)


@pytest.mark.parametrize("f", FUNCTIONS, **names)
def test_values(f):
    ends = iter([0, 1, 2, 3, 4, 5, 6, 1])
    first = [1, 2]
    static = check.parity(
        Module(f), lambda: [paddle.to_tensor([first]), paddle.to_tensor(next(ends))], calls=8
    )
    report = str(dy2st.report(static, paddle.to_tensor([first]), paddle.to_tensor(0)))
    assert "unrolled" not in report and "while" in report


def test_an_earlier_part_of_the_tensor_is_not_the_tensor():
    """Never the wrong length: a loop that returns what the tensor was before is refused."""

    def f(ids, end):
        for t in range(9):
            token, before = following(ids, t), ids
            if (token == end).all():
                break
            ids = paddle.concat([ids, token], 1)
            if (token == 2).all():
                return before
        return ids

    with pytest.raises(dy2st.SourceError):
        dy2st.to_static(f)(paddle.to_tensor([[1, 2]]), paddle.to_tensor(3))
