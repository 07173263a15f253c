"""`check.equal` sees each way in which two calls can differ; samples of products cover them."""

from __future__ import annotations

import itertools

import paddle
import pytest

from tests import check
from tests.conftest import covering

EVERYTHING = {"objects": True, "memory": True, "versions": True}


def written(x, held):
    held.add_(x)
    return x[0], held


def another_value(x, held):
    held.add_(x)
    return x[0] + 1, held


def another_type(x, held):
    held.add_(x)
    return x[0].astype("float64"), held


def another_gradient(x, held):
    held.add_(x)
    first = x[0].clone()
    first.stop_gradient = False
    return first, held


def a_list(x, held):
    held.add_(x)
    return [x[0], held]


def an_argument_is_written(x, held):
    held.add_(x)
    x[1] = 7.0
    return x[0], held


def the_state_is_another(x, held):
    held.add_(x * 2)
    return x[0], held


def a_copy_of_the_state(x, held):
    held.add_(x)
    return x[0], held.clone()


def a_copy_of_a_view(x, held):
    held.add_(x)
    return x[0].clone(), held


def not_written(x, held):
    return x[0], held.set_value(held + x) or held


def draws(x, held):
    held.add_(x)
    paddle.rand([1])
    return x[0], held


def prints(x, held):
    held.add_(x)
    print("here")
    return x[0], held


DIFFERENT = {
    another_value: "result",
    another_type: "result",
    another_gradient: "stop_gradient",
    a_list: "result",
    an_argument_is_written: "arguments and state",
    the_state_is_another: r"result\[1\]",
    a_copy_of_the_state: "objects",
    a_copy_of_a_view: "aliases",
    not_written: "versions",
    draws: "generator",
    prints: "printed",
}


def observed(f):
    held = paddle.ones([3])
    return check.observe(lambda x: f(x, held), [paddle.arange(3.0)], lambda: [held], seed=3)


def test_equal_calls_are_equal():
    check.equal(observed(written), observed(written), **EVERYTHING)


@pytest.mark.parametrize("f", DIFFERENT, ids=lambda f: f.__name__)
def test_a_difference_is_seen(f):
    with pytest.raises(AssertionError, match=DIFFERENT[f]):
        check.equal(observed(f), observed(written), **EVERYTHING)


def raises(x, held):
    raise ValueError("no")


def test_one_that_raises_alone():
    assert check.both_raise(observed(raises), observed(raises))
    assert not check.both_raise(observed(written), observed(written))
    with pytest.raises(AssertionError, match="dy2st does not"):
        check.both_raise(observed(written), observed(raises))
    with pytest.raises(ValueError, match="no"):
        check.both_raise(observed(raises), observed(written))


def test_a_covering_sample_has_every_pair_of_values():
    rows = list(itertools.product(range(5), range(5, 8), range(8, 10)))
    taken = covering(rows, [(4, 7, 9)])
    assert (4, 7, 9) in taken and len(taken) <= 17
    for one, two in itertools.combinations(range(3), 2):
        assert {(r[one], r[two]) for r in taken} == {(r[one], r[two]) for r in rows}


def test_a_covering_sample_of_two_parameters_has_every_value():
    rows = list(itertools.product(range(6), range(6, 8)))
    taken = covering(rows)
    assert len(taken) == 6 and {r[0] for r in taken} == set(range(6))
    assert sorted(r[1] for r in taken) == [6, 6, 6, 7, 7, 7]
