"""Python numbers that the program computes: bits, bools that may be tensors, lines of errors."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from tests import check

X = paddle.to_tensor([5.0, -2.0, 9.0])
NAMED = [InputSpec([None], "float32", "x")]


# ---------------------------------------------------------------- bits
def bits_of_integers(x):
    n = int(x.sum())
    n ^= 1
    return n & 3, 5 & n, n | 4, 6 | n, n ^ 9, n << 2, 3 << (n & 3), n >> 1, -100 >> (n & 3), ~n


def bits_of_bools(x):
    n, p = int(x.sum()), not x.sum() > 0
    q = not x.min() > 0
    return p & q, p | q, p ^ q, p & True, False | p, p & n, n ^ p, p << 1, ~p


def bits_of_an_index(x):
    ys = []
    for t in range(x.shape[0]):
        ys.append(x[t] * (t & 1) + (t | 2) * (t ^ 3) - ~t)
    return paddle.stack(ys)


def a_branch_on_a_bit(x):
    for t in range(x.shape[0]):
        x = x + 1 if t & 1 else x * 2
    return x


@pytest.mark.parametrize("spec", [None, NAMED], ids=["fixed", "named"])
@pytest.mark.filterwarnings("ignore:Bitwise inversion '~' on bool:DeprecationWarning")
@pytest.mark.parametrize(
    "f", [bits_of_integers, bits_of_bools, bits_of_an_index, a_branch_on_a_bit]
)
def test_bit_operators_are_those_of_python(f, spec):
    static = dy2st.to_static(f, input_spec=spec)
    for x in (X, -X, X * 0, X * 1e6):
        check.same(static(x), f(x))
    assert all(q.kind == "scan" for q in dy2st.report(static, X).loops)


@pytest.mark.parametrize("f", [lambda a, b: a // b, lambda a, b: a % b, lambda a, b: a / b])
def test_a_division_by_zero_is_an_error_in_the_words_of_python(f):
    static = dy2st.to_static(f)
    for a, b in ((7, 2), (9, 4), (7, 0), (7.5, 2.0), (8.5, 3.0), (3.5, 0.0)):
        have, want = check.outcome(static, (a, b)), check.outcome(f, (a, b))
        assert (type(have), str(have)) == (type(want), str(want))


def test_an_element_of_a_range_whose_end_changes():
    def f(x, n):
        return x * range(1, n, 2)[-1] + len(range(n)) + (5 in range(n))

    static, x = dy2st.to_static(f), paddle.ones([2])
    for n in (4, 5, 6, 7):
        check.same(static(x, n), f(x, n))


def test_a_shift_by_a_negative_number_is_an_error():
    def f(x):
        return x, 1 << int(x.sum())

    static = dy2st.to_static(f)
    check.same(static(X), f(X))
    with pytest.raises(ValueError, match="negative shift count"):
        static(-X)


def test_bits_of_a_float_are_a_type_error_as_in_python():
    def f(x):
        return float(x.sum()) & 1

    with pytest.raises(TypeError, match="unsupported operand"):
        dy2st.to_static(f)(X)


# ---------------------------------------------------------------- a bool, or a tensor
def set_in_a_branch(x):
    done = False
    if x.sum() > 0:
        done = x.mean() > 3
    return done


def set_in_a_loop(x):
    done = False
    for t in range(x.shape[0]):
        if x[t] > 0:
            done = x[t] > 7
        if done:
            x = x * 2
    return x, done


def set_in_a_while(x):
    done = False
    while not done:
        x = x + 1
        if x.sum() > 0:
            done = x.mean() > 3
    return x, done


def the_condition_itself(x):
    done = x.sum() > 0
    if done:
        y = 1
    else:
        done, y = False, 2
    return done, y


def the_last_of_or(x):
    return x.sum() > 0 or x.min() > 0 or False


def a_size_decides(x):
    ok = x.sum() > 0
    if ok and x.shape[0] > 3:
        return x[3]
    if not (x.shape[0] > 3 or ok or x.shape[0] == 3):
        return x[4]
    return ok and x.shape[0] > 3 and ok


def computed_with(x):
    done = True
    if x.sum() > 0:
        done = x.mean() > 3
    return done + 1, 2 - done, done == True, x * done, done * 0.5  # noqa: E712


def made_python_again(x):
    done = False
    if x.sum() > 0:
        done = x.mean() > 3
    return not done, bool(done), int(done), float(done), 1 if done else 2


def as_tensors(x):
    """Where eager has a Python bool, or what it computes with one, the program has a tensor."""
    if isinstance(x, tuple):
        return tuple(as_tensors(q) for q in x)
    return x if isinstance(x, paddle.Tensor) else paddle.to_tensor(x)


MIXED = [
    a_size_decides,
    set_in_a_branch,
    set_in_a_loop,
    set_in_a_while,
    the_condition_itself,
    the_last_of_or,
]


@pytest.mark.parametrize("f", MIXED, ids=lambda f: f.__name__)
def test_what_may_be_a_bool_tensor_is_one(f):
    static = dy2st.to_static(f)
    for x in (X, -X, X - 3):
        want, have = f(x.clone()), static(x.clone())
        done = have if isinstance(have, paddle.Tensor) else have[f is not the_condition_itself]
        assert isinstance(done, paddle.Tensor) and done.dtype == paddle.bool
        want = as_tensors(want) if f is not the_condition_itself else (as_tensors(want[0]), want[1])
        check.same(have, want)


def test_computing_with_it_gives_tensors():
    static = dy2st.to_static(computed_with)
    check.same(static(X), computed_with(X))
    for a, b in zip(static(-X), computed_with(-X)):
        assert isinstance(a, paddle.Tensor)
        np.testing.assert_array_equal(a.numpy(), np.asarray(b))


def test_it_has_the_methods_of_a_tensor():
    def f(x):
        done = True
        if x.sum() > 0:
            done = x.mean() > 3
        return done.astype("float32") + x, done.shape

    check.same(dy2st.to_static(f)(X), f(X))


def test_its_truth_is_a_python_bool():
    static = dy2st.to_static(made_python_again)
    for x in (X, -X):
        check.same(static(x), made_python_again(x))


def test_a_loop_may_set_a_number_of_the_program_to_a_constant():
    def f(x):
        a = b = x.sum().item()
        for t in range(x.shape[0]):
            a, b = 0.5, t
        return a, b

    static = dy2st.to_static(f, input_spec=[InputSpec([None, 3], "float32")])
    for n in (3, 0, 2, 0):
        x = paddle.ones([n, 3])
        check.same(static(x), f(x))


def test_the_truth_of_operands_of_two_types_decides():
    def f(x, n):
        if x.sum() > 0 and n:
            x = x + 1
        for t in range(3):
            if x.mean() > 0 and t:
                continue
            x = x * 2 if x.sum() > 9 or n else x - 1
        return x

    static = dy2st.to_static(f)
    for x in (X, -X):
        for n in (0, 3):
            check.same(static(x, n), f(x, n))


def test_an_attribute_that_may_be_a_bool_tensor():
    class Net(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.found = False

        def forward(self, x):
            if x.sum() > 0:
                self.found = x.mean() > 3
            return x + 1

    eager, static = Net(), dy2st.to_static(Net())
    for x in (X, -X, X - 3):
        check.same(static(x), eager(x))
        assert isinstance(static.found, paddle.Tensor)
        assert bool(static.found) is bool(eager.found)


# ---------------------------------------------------------------- errors
def set_where_positive(x):
    if x.sum() > 0:
        y = x * 2
    return y + 1  # noqa: F821


def checked(x):
    assert x.sum() > 0, "not positive"
    return x


def raised_in_a_loop(x):
    for t in range(x.shape[0]):
        if x[t] < -7:
            raise ValueError("too small")
    return x


@pytest.mark.parametrize(
    "f, kind, text, line",
    [
        (set_where_positive, UnboundLocalError, "'y' is set in only one branch", 3),
        (checked, AssertionError, "not positive", 1),
        (raised_in_a_loop, ValueError, "too small", 2),
    ],
)
def test_an_error_of_the_program_says_where(f, kind, text, line):
    """The user's own message is as in eager: the line is a note, before Python 3.11 a suffix."""
    static = dy2st.to_static(f)
    check.same(static(X), f(X))
    with pytest.raises(kind, match=text) as caught:
        static(-X)
    notes = getattr(caught.value, "__notes__", [])
    where = f"test_numbers.py:{f.__code__.co_firstlineno + line}"
    assert where in "\n".join([str(caught.value), *notes])
    assert str(caught.value).startswith(text) and (not notes or where not in str(caught.value))


BETAS = np.linspace(1e-3, 0.3, 40)


def noise_levels(x, n):
    """As samplers of diffusion write them."""
    levels, given = np.cumprod(1 - BETAS), paddle.cumprod(1 - paddle.to_tensor(BETAS), 0).numpy()
    for t in reversed(range(n)):
        s = np.sqrt(1 - levels[t]) + np.exp(-0.1 * t) * np.tanh(t) + np.log1p(BETAS[t])
        x = x * np.sqrt(levels[t]) + s + float((1 - given[t]) ** 0.5) - np.floor(t * 0.3)
    return x


@pytest.mark.slow
def test_functions_of_numpy_of_elements_at_the_index():
    static = dy2st.to_static(noise_levels)
    for n in (30, 0, 1, 12):
        check.agree(static, x := check.data(3), n)
    assert "unrolled" not in str(dy2st.report(static, x, 30))


def test_powers_of_arrays():
    def f(x, n):
        a = x.numpy()
        a **= 2
        return paddle.to_tensor(a**n + np.power(a, 0.25) - 1.5**a)

    x = check.data(4, trained=False)
    check.same(dy2st.to_static(f)(x, 3), f(x, 3), 1e-12, 1e-12)
    with pytest.raises(dy2st.SourceError, match="the operator pow with integers"):
        dy2st.to_static(f)(paddle.arange(4), 3)
