"""`dy2st.while_loop` and `dy2st.cond`: behaviours that tests of JAX and PyTensor ask for."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests.check import agree, data, parity, same
from tests.dy2st.functional.plain import Function, check, kinds, mapped

pytestmark = pytest.mark.sampled(every=12)

W = data(3, 3, seed=9, trained=False)


def plain_while(test, body, init):
    carry = mapped(paddle.clone, init)
    while bool(test(carry)):
        carry = mapped(paddle.clone, body(carry))
    return carry


# ---------------------------------------------------------------- while_loop
def halves(h):
    return lambda c: c.abs().max() > 0.1, lambda c: c * 0.5, h


def counted(h):
    def body(c):
        return {"k": c["k"] + 1, "h": paddle.tanh(c["h"] @ W)}

    return lambda c: c["k"] < 5, body, {"k": paddle.zeros([], "int64"), "h": h}


def until_a_state_repeats(h):
    """PyTensor's `until`: a flag that the body gives ends the loop after its step."""

    def body(c):
        h, done, k = c
        new = h * 0.5
        return new, (new.sum().abs() < 0.05), k + 1

    init = h, paddle.to_tensor(False), paddle.zeros([], "int32")
    return lambda c: c[1].logical_not(), body, init


def at_most(h):
    def body(c):
        return c[0] * 0.9, c[1] + 1

    return lambda c: (c[0].sum() > 1e-3).logical_and(c[1] < 4), body, (h, paddle.zeros([], "int64"))


def never(h):
    return lambda c: c.sum() > 1e9, lambda c: c * 2, h


def forwarded(h):
    return lambda c: c[1] < 3, lambda c: (c[0], c[1] + 1), (h, paddle.zeros([], "int64"))


def exchanged(h):
    def body(c):
        return c[1] * 0.5, c[0], c[2] + 1

    return lambda c: c[2] < 4, body, (h, h * 3, paddle.zeros([], "int64"))


def one_element(h):
    return lambda c: c[:1].abs() > 0.01, lambda c: c * 0.5, h


def writes(h):
    def body(c):
        c[0].multiply_(c[1])
        return c[0], c[1] * 0.5, c[2] + 1

    return lambda c: c[2] < 3, body, (h, h + 1, paddle.zeros([], "int64"))


def nested_while(h):
    def inner(c):
        return dy2st.while_loop(lambda q: q.max() > 1, lambda q: q * 0.5, c + 2)

    return lambda c: c[1] < 3, lambda c: (inner(c[0]), c[1] + 1), (h, paddle.zeros([], "int64"))


def scan_inside(h):
    def body(c):
        last, ys = dy2st.scan(lambda s, x: (s * 0.5 + x, s), c[0], length=None, xs=c[0] + W)
        return last + ys.sum(0) * 0.01, c[1] + 1

    return lambda c: c[1] < 3, body, (h, paddle.zeros([], "int64"))


def branch_inside(h):
    def body(c):
        h = c[0] - 1 if c[0].sum() > 0 else c[0] + 2
        return h, c[1] + 1

    return lambda c: c[1] < 5, body, (h, paddle.zeros([], "int64"))


LOOPS = [
    halves, counted, until_a_state_repeats, at_most, never, forwarded, exchanged, one_element,
    writes, nested_while, scan_inside, branch_inside,
]  # fmt: skip


@pytest.mark.parametrize("make", LOOPS, ids=lambda q: q.__name__)
def test_while_loop(make):
    def of(loop):
        return lambda h: loop(*make(h))

    static = check(of(dy2st.while_loop), of(plain_while), data(3, seed=4))
    found = kinds(static, data(3, seed=4))
    assert found and found[0] in ("while", "scan") and not any("unrolled" in q for q in found)


def test_numbers_in_the_carry_are_tensors():
    def f(h):
        return dy2st.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * 2, c[1] + 1), (h, 0))

    last, count = f(data(3))
    assert count.dtype == paddle.int64 and int(count) == 3
    agree(f, data(3))


def test_the_condition_may_be_a_number_of_python():
    def f(h):
        return dy2st.while_loop(lambda c: False, lambda c: c * 2, h)

    same(f(data(3)), data(3))
    agree(f, data(3))


def test_the_number_of_steps_follows_the_data():
    static = dy2st.to_static(lambda h: dy2st.while_loop(*halves(h)))
    for scale in (0.01, 1.0, 100.0):
        h = data(3, trained=False) * scale
        same(static(h), dy2st.while_loop(*halves(h)))
    assert "1 program" in str(dy2st.explain(static))


def test_taps_in_a_while_loop():
    def f(h):
        init = dy2st.taps(h, (-2, -1)), 0
        return dy2st.while_loop(lambda c: c[1] < 4, lambda c: (sum(c[0]) * 0.5, c[1] + 1), init)

    def by_hand(h):
        a, b = h[0], h[1]
        for _ in range(4):
            a, b = b, (a + b) * 0.5
        return paddle.stack([a, b]), paddle.to_tensor(4)

    check(f, by_hand, data(2, 3))


def test_init_is_not_written():
    h = data(3, trained=False)
    for run in (dy2st.while_loop, dy2st.to_static(lambda *q: dy2st.while_loop(*q))):
        kept = h.clone()
        if run is dy2st.while_loop:
            run(*never(h)).zero_()
        same(h, kept)


def test_a_captured_buffer_is_written():
    def f(h, total):
        def body(c):
            total.add_(c)
            return c * 0.5

        return dy2st.while_loop(lambda c: c.abs().max() > 0.1, body, h)

    parity(Function(f), lambda: [data(3, trained=False), paddle.zeros([3], "float64")])


# ---------------------------------------------------------------- cond
def two_results(h, x):
    return lambda a, b: (a + b, a), lambda a, b: (a * 2, b)


def dicts(h, x):
    return lambda a, b: {"k": [a, None]}, lambda a, b: {"k": [b * 2, None]}


def closures(h, x):
    return lambda a, b: h * x, lambda a, b: a - x


def numbers(h, x):
    return lambda a, b: (1.5, 2, True), lambda a, b: (2.5, 3, False)


def operand_itself(h, x):
    return lambda a, b: a, lambda a, b: b


def nested_cond(h, x):
    def then(a, b):
        return dy2st.cond(b.sum() > 0, lambda: a * 2, lambda: a * 3)

    return then, lambda a, b: dy2st.cond(a.max() > 0, lambda: b, lambda: a + b)


def loops_inside(h, x):
    def then(a, b):
        return dy2st.scan(lambda c, q: (c * 0.5 + q, None), a, paddle.stack([a, b]))[0]

    return then, lambda a, b: dy2st.while_loop(lambda c: c.abs().max() > 0.1, lambda c: c * 0.5, b)


def writes_in_a_branch(h, x):
    def then(a, b):
        c = a.clone()
        c[0] = 7.0
        return c

    return then, lambda a, b: b * 2


BRANCHES = [
    two_results, dicts, closures, numbers, operand_itself, nested_cond, loops_inside,
    writes_in_a_branch,
]  # fmt: skip


@pytest.mark.parametrize("sign", [1, -1], ids=["then", "orelse"])
@pytest.mark.parametrize("make", BRANCHES, ids=lambda q: q.__name__)
def test_cond(make, sign):
    def f(h, x):
        then, orelse = make(h, x)
        return dy2st.cond((h * sign).sum() > 0, then, orelse, h, x)

    h = data(3).abs().detach()
    h.stop_gradient = False
    x = data(3, seed=2)
    chosen = make(h, x)[sign < 0]
    if make is not numbers:
        same(f(h, x), chosen(h, x), rtol=1e-9, atol=1e-9)
    agree(f, h, x)


@pytest.mark.parametrize("test", [True, False, 1, 0, 0.5])
def test_a_test_that_python_knows(test):
    def f(h):
        return dy2st.cond(test, lambda q: q * 2, lambda q: q[:1], h)

    h = data(3)
    assert f(h).shape == ([3] if test else [1])
    assert "cond" not in str(dy2st.program(agree(f, h), h))


@pytest.mark.parametrize("kind", ["bool", "int64", "float32"])
@pytest.mark.parametrize("shape", [[], [1], [1, 1]])
def test_kinds_of_tests(kind, shape):
    def f(t, h):
        return dy2st.cond(t, lambda: h * 2, lambda: h * 3)

    static = dy2st.to_static(f)
    for value in (0, 1):
        t = paddle.full(shape, value, kind)
        h = data(3, trained=False)
        same(f(t, h), h * (2 if value else 3))
        same(static(t, h), h * (2 if value else 3))


def test_layers_as_branches():
    one, two = paddle.nn.Linear(3, 2), paddle.nn.Linear(3, 2)
    for q in (one, two):
        q.to(dtype="float64")

    def f(x):
        return dy2st.cond(x.sum() > 0, one, two, x)

    for sign in (1, -1):
        x = data(4, 3).abs().detach() * sign
        x.stop_gradient = False
        agree(f, x)
