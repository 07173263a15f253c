"""Control flow that the user asks Paddle for: cond, while_loop, case, switch_case."""

import paddle
import pytest
from paddle.static import InputSpec
from paddle.static.nn import case, cond, switch_case, while_loop

import dy2st
from tests import check

pytestmark = pytest.mark.sampled


def kinds(static, *args):
    report = dy2st.report(static, *args)
    assert not report.foreign, report
    return [q.kind for q in report.loops] + ["cond"] * bool(report.conds)


def vectors(*rows):
    """Each call gets the next of the rows."""
    items = iter(rows)
    return lambda: [paddle.to_tensor(next(items))]


def parity(f, make_args, *how, **more):
    """`check.parity` of a plain function."""

    class Call(paddle.nn.Layer):
        def forward(self, *args):
            return f(*args)

    return check.parity(Call(), make_args, *how, **more)


# ---------------------------------------------------------------- cond
def both_ways(x):
    return cond(x.sum() > 0, lambda: x * 2, lambda: x - 1)


def nested_structure(x):
    return cond(
        x[0] > 0,
        lambda: (x + 1, {"a": x * 2, "b": [x, x.sum()]}),
        lambda: (x - 1, {"a": x, "b": [x * 3, x.max()]}),
    )


def without_result(x):
    y = x * 1

    def double():
        y.add_(x)

    assert cond(x[0] > 0, double, lambda: None) is None
    assert cond(x[0] > 0, double) is None
    assert cond(x[1] > 5) is None
    return y


def one_element(x):
    return cond(x[:1] > 0, lambda: x * 2, lambda: x / 2)


def a_number_is_a_condition(x):
    return cond(x[:1].astype("int64"), lambda: x * 2, lambda: x / 2)


def inside_of_a_loop(x):
    h = x * 0
    for t in range(x.shape[0]):
        h = cond(x[t] > 0, lambda: h + x, lambda: h - x[t])  # noqa: B023
    return h


def cond_in_cond(x):
    def positive():
        return cond(x[1] > 0, lambda: x * 2, lambda: x * 3)

    return cond(x[0] > 0, positive, lambda: x * 4)


@pytest.mark.quick("both_ways", "a_number_is_a_condition")
@pytest.mark.parametrize(
    "f", [both_ways, nested_structure, without_result, one_element, a_number_is_a_condition,
          inside_of_a_loop, cond_in_cond],
)  # fmt: skip
def test_cond(f):
    rows = [1.0, 2.0, 3.0], [-1.0, 2.0, -3.0], [1.5, -1.0, -4.0]
    static = parity(f, vectors(*rows))
    have = kinds(static, paddle.to_tensor(rows[0]))
    assert "cond" in have and "unrolled" not in have
    assert len(dy2st.explain(static.forward).reasons) == 1


def test_cond_of_a_python_value_and_of_many_raises_as_eager_does():
    for test in (True, lambda x: x > 0):

        def f(x):
            return cond(test(x) if callable(test) else test, lambda: x, lambda: x)  # noqa: B023

        for g in (f, dy2st.to_static(f)):
            with pytest.raises(AssertionError, match="cond"):
                g(paddle.ones([3]))


@pytest.mark.quick
def test_cond_names_a_side_that_gives_nothing():
    def f(x):
        y = cond(x.sum() > 0, lambda: x * 2)
        return y

    with pytest.raises(dy2st.SourceError, match="the returned value depends") as e:
        dy2st.to_static(f)(paddle.ones([3]))
    assert "y = cond(" in str(e.value)


# ---------------------------------------------------------------- case, switch_case
def three_cases(x):
    pairs = [(x[0] > 2, lambda: x + 1), (x[0] > 1, lambda: x * 2)]
    return case(pairs, default=lambda: x * 0)


def the_last_case_is_the_default(x):
    return case([(x[0] > 2, lambda: x + 1), (x[0] > 1, lambda: x * 2), (x[0] > 0, lambda: x / 3)])


def switch_by_list(x):
    return switch_case(x[0].astype("int32"), [lambda: x, lambda: x + 1, lambda: x * 2])


def switch_by_dict(x):
    fns = {3: lambda: x, 1: lambda: x + 1}
    return switch_case(x[:1].astype("int64"), fns, default=lambda: x * 9)


def switch_by_pairs_without_default(x):
    return switch_case(x[:1].astype("int64"), [(2, lambda: x + 2), (0, lambda: x + 1)])


@pytest.mark.quick("switch_by_dict")
@pytest.mark.parametrize(
    "f",
    [three_cases, the_last_case_is_the_default, switch_by_list, switch_by_dict,
     switch_by_pairs_without_default],
)  # fmt: skip
def test_cases(f):
    rows = [[float(k), 1.0] for k in (3, 2, 1, 0, -7)]
    static = parity(f, vectors(*rows), calls=5)
    assert set(kinds(static, paddle.to_tensor(rows[0]))) == {"cond"}


@pytest.mark.quick("fns2-TypeError")
@pytest.mark.parametrize(
    ("fns", "error"),
    [({1.5: abs}, TypeError), ([(1, abs), (1, abs)], ValueError), ([(1, 2)], TypeError),
     ([3], TypeError)],
)  # fmt: skip
def test_wrong_branches_raise_as_eager_does(fns, error):
    def f(x):
        return switch_case(x, fns)

    for g in (f, dy2st.to_static(f)):
        with pytest.raises(error):
            g(paddle.ones([1], "int64"))


# ---------------------------------------------------------------- while_loop
def count(x):
    """The loop variables are written in place: the argument x is not one of them."""
    i = paddle.zeros([1], "int64")
    i, total = while_loop(lambda i, s: i < 5, lambda i, s: [i + 1, s + x], [i, x * 0])
    return i, total


def until_large(x):
    (y,) = while_loop(lambda y: y.sum() < 100, lambda y: y * 2, [x.abs() + 1])
    return y


def writes_its_argument(x):
    out = while_loop(lambda y: y.sum() < 10, lambda y: [y + 1], [x])
    return out[0] * 1


def nested_variables(x):
    def body(i, state):
        return i + 1, {"h": state["h"] + x, "c": (state["c"][0] * 0.5,)}

    i = paddle.zeros([], "int32")
    _, state = while_loop(lambda i, s: i < 3, body, (i, {"h": x * 1, "c": (x + 1,)}))
    return state["h"], state["c"][0]


def never(x):
    return while_loop(lambda y: y.sum() > 1e9, lambda y: [y + 1], [x * 1])[0]


def loop_in_loop(x):
    def outer(i, y):
        j = paddle.zeros([], "int64")
        _, y = while_loop(lambda j, y: j < i, lambda j, y: [j + 1, y + x], [j, y * 1])
        return [i + 1, y]

    i = paddle.zeros([], "int64")
    return while_loop(lambda i, y: i < 4, outer, [i, x * 0])[1]


@pytest.mark.quick("writes_its_argument")
@pytest.mark.parametrize(
    "f", [count, until_large, writes_its_argument, nested_variables, never, loop_in_loop]
)
def test_while_loop(f):
    rows = [1.0, 2.0, 3.0], [-1.0, 2.0, -3.0], [50.0, 60.0, 70.0]
    static = parity(f, vectors(*rows))
    have = kinds(static, paddle.to_tensor(rows[0]))
    loop = "scan" if f in (count, nested_variables) else "while"
    assert loop in have and "unrolled" not in have
    assert len(dy2st.explain(static.forward).reasons) == 1


@pytest.mark.quick
def test_while_loop_with_a_named_size():
    spec = [InputSpec([None], "float32", "x")]
    parity(count, vectors([1.0], [2.0, 3.0], [1.0] * 7), spec)


def test_wrong_loops_raise_as_eager_does():
    def f(x):
        return while_loop(lambda y: y < 5, lambda y: [y, y], [x])

    def g(x):
        return while_loop(lambda y: y < 5, lambda y: y + 1, [])

    def h(x):
        return while_loop(lambda y: y < 5, lambda y: y + 1, [paddle.ones([2])])

    for q, error, what in ((f, ValueError, "same arity"), (g, ValueError, "empty"),
                           (h, TypeError, "should be")):  # fmt: skip
        with pytest.raises(error, match=what):
            q(paddle.ones([1]))
        with pytest.raises((error, dy2st.SourceError), match=what):
            dy2st.to_static(q)(paddle.ones([1]))
