"""`x[mask] op= value`: the elements that a mask selects, changed, against eager Paddle."""

from __future__ import annotations

import linecache

import numpy as np
import paddle
import pytest

import dy2st
from tests import check

pytestmark = pytest.mark.sampled

t = paddle.to_tensor
ALL, ROWS = [[True, False, True], [False, False, True]], [True, False]
COLUMNS, NOTHING = [True, False, True], [[False] * 3] * 2
EVERY = slice(None)
OPS = ["+=", "-=", "*=", "/=", "//=", "%=", "**="]


def update(op):
    """x[i] op= v, as the user would write it."""
    text = f"def f(x, i, v):\n    y = x\n    x[i] {op} v\n    return y * 1, x\n"
    name, space = f"<masked {op}>", {}
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), space)
    return space["f"]


def numbers(*shape, dtype="float32"):
    return (paddle.arange(float(np.prod(shape))) + 1.0).reshape(shape).astype(dtype)


def agrees(f, make, calls=3):
    """What the calls return, what they leave in their arguments, and whose version moves."""
    static = dy2st.to_static(f)
    for _ in range(calls):
        one, two = make(), make()
        want, have = f(*one), static(*two)
        check.same(have, want)
        for a, b in zip(two, one):
            if isinstance(b, paddle.Tensor):
                check.same(a, b)
                assert check.moved([a], [0]) == check.moved([b], [0])
    return static


def case(op, x, index, value):
    def make():
        where = tuple(t(q) if isinstance(q, list) else q for q in index)
        given = value() if callable(value) else value
        return x(), where if len(where) > 1 else where[0], given

    return make


FLOATS, INTS = (lambda: numbers(2, 3)), (lambda: numbers(2, 3, dtype="int64"))
CUBE = lambda: numbers(2, 3, 4)  # noqa: E731
CASES = {
    **{f"{op} number": (op, FLOATS, (ALL,), 2.5) for op in OPS},
    **{f"{op} values": (op, FLOATS, (ALL,), lambda: numbers(3)) for op in OPS},
    **{f"{op} integers": (op, INTS, (ALL,), lambda: numbers(3, dtype="int64")) for op in OPS},
    "shift": ("<<=", INTS, (ALL,), 2),
    "flags": ("|=", lambda: t(NOTHING), (ALL,), lambda: t([True, False, True])),
    "float to integers": ("+=", INTS, (ALL,), 2.5),
    "double": ("+=", FLOATS, (ALL,), lambda: t(2.5, "float64")),
    "0-d": ("*=", FLOATS, (ALL,), lambda: t(3.0)),
    "one": ("*=", FLOATS, (ALL,), lambda: t([3.0])),
    "NumPy number": ("+=", FLOATS, (ALL,), np.float32(3)),
    "array": ("*=", FLOATS, (ALL,), np.arange(3, dtype="float32")),
    "row": ("*=", FLOATS, (ROWS,), lambda: numbers(3)),
    "row of one": ("-=", FLOATS, (ROWS,), lambda: numbers(1, 3)),
    "column": ("**=", FLOATS, (ROWS,), lambda: t([[2.0]])),
    "rows": ("/=", FLOATS, ([True, True],), lambda: numbers(2, 3)),
    "columns": ("*=", FLOATS, (EVERY, COLUMNS), lambda: numbers(2, 2)),
    "one for a row": ("*=", FLOATS, (EVERY, COLUMNS), lambda: numbers(2, 1)),
    "rows and a number": ("+=", FLOATS, (ROWS, 0), 5.0),
    "number and columns": ("-=", FLOATS, (0, COLUMNS), lambda: numbers(2)),
    "rows and a slice": ("+=", FLOATS, (ROWS, slice(0, 2)), lambda: numbers(2)),
    "behind two axes": ("*=", CUBE, (ALL,), lambda: numbers(4)),
    "rows behind two axes": ("*=", CUBE, (ALL,), lambda: numbers(3, 4)),
    "numbers behind two axes": ("/=", CUBE, (ALL,), lambda: numbers(3, 1)),
    "two inner axes": ("-=", lambda: numbers(4, 2, 3), (EVERY, ALL), lambda: numbers(4, 3)),
    "0-d mask": ("*=", lambda: t(3.0), (True,), 2.0),
}  # fmt: skip


@pytest.mark.quick("+= number", "%= values", "double", "number and columns")
@pytest.mark.parametrize("name", CASES)
def test_what_a_mask_selects_is_changed(name):
    op, x, index, value = CASES[name]
    if name == "0-d mask":
        agrees(update(op), lambda: (x(), t(True), value))
    else:
        agrees(update(op), case(op, x, index, value))


@pytest.mark.parametrize("value", [1.0, t([2.0, 3.0, 4.0])], ids=["number", "row"])
def test_a_mask_that_selects_nothing(value):
    f = update("*=")
    for mask in (t(NOTHING), t([False, False])):
        one, two = numbers(2, 3), numbers(2, 3)
        if mask.ndim == 2 and not isinstance(value, float):
            continue
        check.same(dy2st.to_static(f)(two, mask, value), f(one, mask, value))


# ---------------------------------------------------------------- gradients
@pytest.mark.quick("number-**=", "0-d-**=")
@pytest.mark.parametrize("op", ["+=", "*=", "/=", "**="])
@pytest.mark.parametrize("kind", ["number", "values", "row", "0-d"])
def test_gradients(op, kind):
    """Zeros that are not selected would make a division or a power infinite."""
    value = {"values": numbers(3), "row": numbers(3), "0-d": t(1.5)}.get(kind, 1.5)
    mask = t(ROWS) if kind == "row" else t(ALL)
    f = update(op)

    def run(call):
        x = t([[3.0, 0.0, 2.0], [0.0, 0.0, 5.0]] if kind != "row" else [[3.0, 1.0, 2.0], [0.0] * 3])
        v = value.clone() if isinstance(value, paddle.Tensor) else value
        leaves = [q for q in (x, v) if isinstance(q, paddle.Tensor)]
        for q in leaves:
            q.stop_gradient = False
        out = call(x * 1.0, mask, v)
        check.weighted(out).backward()
        return [*out, *(q.grad for q in leaves)]

    static = dy2st.to_static(f)
    for _ in range(3):
        check.same(run(static), run(f), 1e-5, 1e-6)


# ---------------------------------------------------------------- where it stands
class Counts(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", paddle.zeros([4], "int64"))
        self.register_buffer("total", paddle.zeros([4, 2]))

    def forward(self, x, mask):
        self.seen[mask] += 1
        self.total[mask] += x
        self.total[mask, 0] *= 0.5
        return self.total.sum(-1) / self.seen.astype("float32")


def test_buffers_from_call_to_call():
    def make():
        make.k += 1
        return [numbers(2) * make.k, t([True, bool(make.k % 2), False, True])]

    make.k = 0
    check.parity(Counts(), make, calls=4)


def in_a_loop(x, v):
    for k in range(v.shape[0]):
        x[x > v[k]] -= v[k]
        x[k, x[k] >= 1] *= 3.0
    return x


def in_a_branch(x, v):
    for k in range(v.shape[0]):
        if v[k] > 1.5:
            x[x > v[k]] /= v[k]
    return x


def by_its_own_mask(x, v):
    y = x[1:]
    y[y > v[0]] += y.max() - v[1]
    x[(x > 2) & (x < 5)] **= 2
    return x, y


@pytest.mark.parametrize("f", [in_a_loop, in_a_branch, by_its_own_mask], ids=lambda f: f.__name__)
def test_statements(f):
    agrees(f, lambda: (numbers(3, 4), t([1.0, 2.0, 3.0])))


# ---------------------------------------------------------------- refused
REFUSED = {
    "matrix": ("@=", lambda: numbers(3), "depends on values"),
    "text": ("+=", lambda: "a", "depends on values"),
    "too many axes": ("+=", lambda: numbers(1, 3), "does not accept"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    op, value, text = REFUSED[name]
    x = numbers(2, 3)
    with pytest.raises(dy2st.SourceError, match=text):
        dy2st.to_static(update(op))(x, t(ALL), value())
    check.same(x, numbers(2, 3), 0.0, 0.0)


def test_values_of_another_number():
    x = numbers(2, 3)
    with pytest.raises(ValueError, match="does not select as many"):
        dy2st.to_static(update("+="))(x, t(ALL), numbers(2))
    check.same(x, numbers(2, 3), 0.0, 0.0)
