"""NumPy arrays as arguments are inputs: their elements are those of the call, in one program."""

from __future__ import annotations

import copy

import numpy as np
import paddle
import pytest

import dy2st
from tests import check

X = paddle.to_tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
USES = {}


def array(k=0, dtype="float32"):
    return (np.arange(6).reshape(2, 3) * 0.5 + k).astype(dtype)


def use(f):
    USES[f.__name__] = f
    return f


@use
def to_tensor(x, a):
    return x + paddle.to_tensor(a), paddle.to_tensor(a, dtype="float64")


@use
def operators(x, a):
    return x * a, a * x, a - x, x / (a + 1), x > a, a[0] * x, x + a[1, 2]


@use
def shapes(x, a):
    y = paddle.zeros(a.shape) + a.shape[0] * a.ndim + len(a) + a.size
    return y + (1 if a.dtype == np.float32 else 2)


@use
def a_loop(x, a):
    y = x[0] * 0
    for row in a:
        y = y + paddle.to_tensor(row) * x[0]
    return y


@use
def a_branch(x, a):
    return x * 2 if paddle.to_tensor(a).sum() > 10 else -x


@use
def an_array_back(x, a):
    return x.sum(), a * 2 + 1


@pytest.mark.sampled
@pytest.mark.quick(
    "to_tensor-float64",
    "to_tensor-int64",
    "operators-int64",
    "shapes-float32",
    "shapes-float64",
    "shapes-int64",
    "a_loop-float64",
    "a_loop-int64",
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("name", USES)
def test_arrays_are_inputs(name, dtype):
    f = USES[name]
    static = dy2st.to_static(f)
    a = array(0, dtype)
    for k in range(4):
        want, have = check.outcome(f, (X, a)), check.outcome(static, (X, a))
        if isinstance(want, Exception):
            assert isinstance(have, Exception)
            return
        check.same(have, want, what=f"call {k}")
        if k % 2:
            a = array(k + 3, dtype)
        else:
            a += 2
    assert dy2st.explain(static).made == 1


def nested(x, batch, *, scale):
    return x * batch["a"] + batch["more"][0] * scale["s"], batch["more"][1]


def test_arrays_in_containers_and_named_arguments():
    static = dy2st.to_static(nested)
    for k in range(3):
        make = lambda k=k: ({"a": array(k), "more": [array(k + 1), 7]}, {"s": array(k + 2)})  # noqa: E731
        (one, scale), (two, scale2) = make(), make()
        check.same(static(X, one, scale=scale), nested(X, two, scale=scale2))
    assert dy2st.explain(static).made == 1


def test_another_shape_or_element_type_is_another_program():
    static = dy2st.to_static(operators)
    for a in (array(), array(1, "float64"), array()[:1].repeat(2, 0), array(2)):
        check.same(static(X, a), operators(X, a))
    assert dy2st.explain(static).made == 2


@pytest.mark.parametrize("how", ["transposed", "strided", "reversed", "fortran", "read-only"])
def test_how_an_array_lies_in_memory(how):
    big = np.arange(24, dtype="float32").reshape(4, 6)
    a = {
        "transposed": np.ascontiguousarray(array().T).T,
        "strided": big[::2, ::2],
        "reversed": array()[::-1],
        "fortran": np.asfortranarray(array()),
        "read-only": array(),
    }[how]
    a.flags.writeable = how != "read-only"
    static = dy2st.to_static(operators)
    for _ in range(2):
        check.same(static(X, a), operators(X, a))


# ---------------------------------------------------------------- NumPy functions
ELEMENTS = {
    "mean": lambda x, a: x * float(np.mean(a)),
    "sorted": lambda x, a: x + paddle.to_tensor(np.sort(a, axis=0)),
    "tolist": lambda x, a: x * sum(a.tolist()[0]),
    "if": lambda x, a: x * 2 if a.any() else x,
    "range": lambda x, a: sum(x * k for k in range(int(a.sum()))),
    "text": lambda x, a: x * len(str(a.max())),
    "fancy": lambda x, a: x * paddle.to_tensor(a[a > 1].sum()),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_that_numpy_needs_are_followed(name):
    f = ELEMENTS[name]
    static = dy2st.to_static(f)
    a = array()
    for k in range(4):
        check.same(static(X, a), f(X, a), what=f"call {k}")
        a[0, 1] += k % 2 * 2


def test_explain_names_the_array():
    static = dy2st.to_static(ELEMENTS["sorted"])
    a = array()
    for _ in range(2):
        static(X, a)
        a += 1
    assert "the elements of a" in str(dy2st.explain(static))
    reasons = ("arrays among the arguments are constants: their elements are needed",)
    assert dy2st.report(static, X, a).retraced == reasons


# ---------------------------------------------------------------- writes
def written(x, a):
    a += 1
    a[0] = 5
    a[1, 2] *= 2
    return x * a


def written_in_a_loop(x, a):
    for k in range(2):
        a[k] = a[k] * 2
    return x + a


@pytest.mark.parametrize("f", [written, written_in_a_loop])
def test_an_array_is_written_where_it_lies(f):
    static = dy2st.to_static(f)
    one, two = array(), array()
    for k in range(3):
        check.same(static(X, one), f(X, two), what=f"call {k}")
        check.same(one, two, what=f"array after call {k}")
    assert dy2st.explain(static).made == 1


@pytest.mark.parametrize("how", ["strided", "read-only", "trained", "shared", "view"])
def test_writes_that_are_refused(how):
    w = paddle.to_tensor([1.0, 2.0, 3.0], stop_gradient=False)
    a = np.arange(12, dtype="float32").reshape(2, 6)[:, ::2] if how == "strided" else array()
    a.flags.writeable = how != "read-only"
    before = a.copy()
    f = {
        "trained": lambda x, a: written(x * w, a),
        "shared": lambda x, a, b: written(x, a) + b,
    }.get(how, written)
    args = (X, a, a[:]) if how == "shared" else (X, a)
    if how == "view":
        f = lambda x, a: a[0]  # noqa: E731
    message = "view of an array" if how == "view" else "is written"
    with pytest.raises(dy2st.SourceError, match=message):
        dy2st.to_static(f)(*args)
    np.testing.assert_array_equal(a, before)


def test_one_array_twice():
    def f(x, a, b):
        b += 1
        return x * a, a is b

    static = dy2st.to_static(f)
    for make in (lambda: [array()] * 2, lambda: [array(), array(3)]):
        one, two = make(), make()
        check.same(static(X, *one), f(X, *two))
        check.same(one, two)


# ---------------------------------------------------------------- results, state, gradients
def test_an_array_that_comes_back_is_the_same():
    static = dy2st.to_static(lambda x, a: (x * a, a, {"a": a}))
    a = array()
    for _ in range(2):
        _, same, held = static(X, a)
        assert same is a and held["a"] is a


class Keeps(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.last, self.table = None, np.ones([2, 3], "float32")

    def forward(self, x, a):
        y = x * self.table + (0 if self.last is None else 1)
        self.last = a
        return y


def test_an_array_on_self():
    static = dy2st.to_static(Keeps())
    eager = Keeps()
    for k in range(4):
        a = array(k)
        check.same(static(X, a), eager(X, a), what=f"call {k}")
        assert static.last is a
        eager.table[0, 1] += k
        static.table[0, 1] += k


def test_gradients_keep_the_array_of_the_call():
    results = []
    for f in (operators, dy2st.to_static(operators)):
        x, a = copy.deepcopy(X), array(1)
        x.stop_gradient = False
        loss = sum(q.sum() for q in f(x, a)[:4])
        a[:] = 100
        loss.backward()
        results.append(x.grad)
    check.same(results[1], results[0])


def test_results_are_not_the_memory_of_the_array():
    static = dy2st.to_static(lambda a: paddle.to_tensor(a))
    a = array()
    y = static(a)
    a[:] = 9
    check.same(y, paddle.to_tensor(array()))


def test_scalars_of_numpy():
    def f(x, n):
        return x * n + (1 if isinstance(n, np.float64) else 2)

    static = dy2st.to_static(f)
    for n in (np.float32(1.5), np.float32(1.5), np.float64(1.5), np.int64(3), np.float64(2.5)):
        check.same(static(X, n), f(X, n))
    assert dy2st.explain(static).made == 4


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: np.array([1.0]).view(np.recarray), "is a recarray"),
        (lambda: np.ma.masked_array([1.0, 2.0]), "is a MaskedArray"),
        (lambda: np.array([None, 1]), "an array of Python objects"),
    ],
)
def test_other_kinds_of_arrays(make, message):
    with pytest.raises(dy2st.SourceError, match=message):
        dy2st.to_static(lambda a: X * float(a[0]))(make())


def test_an_array_in_a_file(tmp_path):
    a = np.memmap(tmp_path / "a", "float32", "w+", shape=(2, 3))
    for f in (operators, ELEMENTS["mean"]):
        static = dy2st.to_static(f)
        for k in range(2):
            a[:] = array(k)
            check.same(static(X, a), f(X, np.asarray(a)))


def test_an_array_of_text_is_a_constant():
    f = lambda x, a: x * len(str(a[0]))  # noqa: E731
    static = dy2st.to_static(f)
    for a in (np.array(["ab", "c"]), np.array(["abc", "c"]), np.array(["ab", "c"])):
        check.same(static(X, a), f(X, a))


def test_arrays_of_known_numbers_are_made_by_each_call():
    table = np.arange(3.0)

    def f(x, a):
        b = np.zeros(3)
        b[1] = 7
        c = np.float32(2) * np.ones((2, 2), "float32")
        return x * 2, b, [c, {"again": b}], table + 1, np.float32(2), a

    def seen(g):
        first, second = (g(X, array(k)) for k in range(2))
        assert all(p is not q for p, q in zip(first[1:4], second[1:4]))
        assert first[1] is first[2][1]["again"]
        first[1][:] = 9
        return second, g(X, array(3))

    check.same(seen(dy2st.to_static(f)), seen(f))


def test_views_of_arrays_and_arrays_of_the_caller_are_refused_as_results():
    table = np.arange(3.0)
    for f in (lambda x: (x, table), lambda x: (x, np.zeros(3)[1:])):
        with pytest.raises(dy2st.SourceError, match="contains a view of an array, or an array of"):
            dy2st.to_static(f)(X)
