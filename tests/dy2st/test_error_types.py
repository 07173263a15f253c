"""Errors have eager's type, come from the user's line, and hide the frames of dy2st."""

from __future__ import annotations

import pickle
import traceback

import paddle
import pytest

import dy2st
from tests import check

X = paddle.ones([4, 3])


class BadShape(Exception):
    def __init__(self, shape):
        super().__init__(f"bad shape {list(shape)}")
        self.shape = list(shape)


class TooLarge(ValueError):
    pass


def checks_shape(x):
    if x.shape[-1] != 8:
        raise BadShape(x.shape)
    return x


def checks_values(x):
    if x.sum() > 3:
        raise TooLarge("too large")
    return x


def asserts_rank(x):
    assert x.ndim == 3, f"expected 3 dims, got {x.ndim} of {x.shape}"


def does_not_multiply(x):
    return paddle.matmul(x, x)


def does_not_broadcast(x):
    return x + paddle.ones([4, 5])


def does_not_reshape(x):
    return x.reshape([5, 5])


def does_not_stack(x):
    return paddle.stack([x, paddle.ones([4, 4])])


def item_of_many(x):
    return x.item()


def float_of_many(x):
    return float(x)


def condition_of_many(x):
    return x if x > 0 else -x


def list_index(x):
    return [x, x][5]


def tensor_index(x):
    return x[7]


def missing_key(x):
    return {"a": x}["b"]


def missing_attribute(x):
    return x.nothing


def missing_name(x):
    return x + nothing  # noqa: F821


def zero(x):
    return x * (1 // 0)


def called(x):
    return x()


def unpacked(x):
    a, b = x
    return a + b


def inner(x):
    def table(key):
        return {}[key]

    return x * table("k")


def zero_from_data(x):
    return x * (1 // int(x.sum() * 0))


RAISES = [checks_shape, checks_values, asserts_rank, does_not_multiply, does_not_broadcast,
          does_not_reshape, does_not_stack, item_of_many, float_of_many, condition_of_many,
          list_index, tensor_index, missing_key, missing_attribute, missing_name, zero, called,
          unpacked, inner, zero_from_data]  # fmt: skip


@pytest.mark.parametrize("f", RAISES)
def test_the_type_is_that_of_eager(f):
    want, static = check.outcome(f, [X]), dy2st.to_static(f)
    for _ in range(2):
        with pytest.raises(type(want)) as caught:
            static(X)
        assert vars(caught.value).get("shape") == vars(want).get("shape")
        names = ("FakeTensor", "TraceList", "RuntimeScalar", "SymInt", "stand-in")
        assert not any(name in str(caught.value) for name in names)


RATE = 1.0


class Coded(Exception):
    def __init__(self, text, code):
        super().__init__(text, code)
        self.code = code * RATE


def one_of_two(x):
    if x.sum() > 3:
        raise Coded("large", 1)
    if x.sum() < 0:
        raise Coded("small", 2)
    if x.sum() == 0:
        raise ValueError("zero", 3)
    return x


def test_each_error_of_a_class_has_its_own_arguments_and_attributes(monkeypatch):
    static = dy2st.to_static(one_of_two)
    for rate in (1.0, 2.0, 3.0):
        monkeypatch.setattr("tests.dy2st.test_error_types.RATE", rate)
        for scale in (0.1, 1.0, -1.0, 0.0):
            want, have = check.outcome(one_of_two, [X * scale]), check.outcome(static, [X * scale])
            if scale != 0.1:
                assert type(have) is type(want) and have.args == want.args
                assert getattr(have, "code", None) == getattr(want, "code", None)


def key_of_a_loop(x):
    for row in x:
        if row.sum() > 1:
            raise KeyError("too large")
    return x


def key_of_a_branch(x):
    if x.sum() > 1:
        raise KeyError(float(x.sum()), "too large")
    return x


@pytest.mark.parametrize("f", [key_of_a_loop, key_of_a_branch])
def test_a_key_error_has_the_key_of_eager(f):
    static = dy2st.to_static(f)
    for k in range(3):
        with pytest.raises(KeyError) as caught:
            static(X + 3 + k)
        assert caught.value.args == check.outcome(f, [X + 3 + k]).args
        check.same(static(X - 3), X - 3)


class Leave(BaseException):
    pass


@pytest.mark.parametrize("kind", [Leave, SystemExit, KeyboardInterrupt])
def test_data_does_not_decide_about_what_is_no_exception(kind):
    def f(x):
        if x.sum() > 100:
            raise kind
        return x

    with pytest.raises(dy2st.SourceError, match=f"data decides whether a {kind.__name__} is"):
        dy2st.to_static(f)(X)


@pytest.mark.parametrize("f", [checks_shape, list_index, missing_attribute, called, inner])
def test_messages_are_those_of_eager(f):
    want, have = check.outcome(f, [X]), check.outcome(dy2st.to_static(f), [X])
    assert str(have) == str(want)


def handled(x):
    try:
        return paddle.matmul(x, x)
    except ValueError:
        return x * 2


def test_a_handler_inside_catches_what_eager_raises():
    static = dy2st.to_static(handled)
    check.same(static(X), handled(X))


def refused(x):
    y = x * 2
    return paddle.unique(y, axis=0)


def last_frame(error):
    return traceback.extract_tb(error.__traceback__)[-1]


@pytest.mark.parametrize("f", [checks_shape, does_not_multiply, refused, missing_key])
def test_tracebacks_end_in_the_function(f):
    error = check.outcome(dy2st.to_static(f), [X])
    frames = traceback.extract_tb(error.__traceback__)
    assert frames[-1].filename == __file__ and frames[-1].name == f.__name__
    ours = [q for q in frames if "/dy2st/" in q.filename and "/tests/" not in q.filename]
    assert len(ours) <= 1, "the frame of the call itself"


def test_the_traceback_of_an_inner_function_has_both():
    names = [q.name for q in traceback.extract_tb(
        check.outcome(dy2st.to_static(inner), [X]).__traceback__)]  # fmt: skip
    assert names[-2:] == ["inner", "table"]


def test_debugging_shows_all_frames(monkeypatch):
    monkeypatch.setenv("DY2ST_DEBUG", "1")
    error = check.outcome(dy2st.to_static(refused), [X])
    assert any("/dy2st/" in q.filename for q in traceback.extract_tb(error.__traceback__)[2:])


def test_a_refusal_is_no_error_of_eager():
    error = check.outcome(dy2st.to_static(refused), [X])
    assert isinstance(error, dy2st.SourceError)
    assert not isinstance(error, (ValueError, TypeError, RuntimeError))


def test_errors_of_both_kinds_can_be_pickled():
    error = check.outcome(dy2st.to_static(does_not_multiply), [X])
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) and isinstance(again, ValueError)


# ---------------------------------------------------------------- backward
def exponential(x):
    return (x * 2).exp()


def test_backward_after_a_write_raises_what_eager_raises():
    for f in (exponential, dy2st.to_static(exponential)):
        x = paddle.ones([3])
        x.stop_gradient = False
        y = f(x)
        y.add_(paddle.ones([3]))
        with pytest.raises(RuntimeError, match="modified by"):
            y.sum().backward()


def test_errors_of_backward_are_raised_as_they_are():
    static = dy2st.to_static(lambda x: exponential(x) + paddle.zeros([3]).normal_())
    x = paddle.ones([3])
    x.stop_gradient = False
    with pytest.raises(dy2st.Dy2stError, match="create_graph=True"):
        paddle.grad(static(x).sum(), x, create_graph=True)
    static(x).sum().backward()
    assert x.grad is not None


def test_hooks_of_the_user_raise_as_in_eager():
    def broken(g):
        raise KeyError("a hook")

    kinds = []
    for f in (exponential, dy2st.to_static(exponential)):
        x = paddle.ones([3])
        x.stop_gradient = False
        y = f(x * 1)
        y.register_hook(broken)
        with pytest.raises(Exception, match="a hook") as caught:
            y.sum().backward()
        kinds.append(caught.type)
    assert kinds[0] is kinds[1]


def below(x, most):
    n = 0
    for t in range(x.shape[0]):
        n = n + int(x[t] > 0)
        assert n < most, f"{n} of {t + 1} above 0, mean {x.mean():.2f}, last {x[t]}, {most!r}"
    return x * n


@pytest.mark.parametrize("named", [False, True])
def test_a_failed_assert_shows_its_values(named):
    spec = [paddle.static.InputSpec([None], "float32", "x")] if named else None
    static = dy2st.to_static(below, input_spec=spec)
    for values in ([1.0, -2.0], [1.0, 2.0, -3.5, 4.25], [0.5, 0.5, 0.5], []):
        x = paddle.to_tensor(values, dtype="float32")
        have, want = check.outcome(static, [x, 3]), check.outcome(below, [x, 3])
        assert type(have) is type(want)
        if isinstance(want, AssertionError):
            assert str(have) == str(want).splitlines()[0]  # pytest adds the values compared
        else:
            check.same(have, want)


class Rejected(Exception):
    pass


def of_a_tensor(x):
    if x.sum() > 3:
        raise ValueError(f"sum is {x.sum()}, mean {float(x.mean()):.3f} of {x.shape}")
    return x


def of_the_other_branch(x):
    if x.sum() < 3:
        x = x + 1
    else:
        raise Rejected("%d of %s" % (x.sum(), [x.min().item(), "words"]))  # noqa: UP031
    return x


def in_a_loop(x):
    for t in range(x.shape[0]):
        y = x[t] * 2
        if y > 4:
            raise IndexError(f"{t} is {y.item()!r}")
        x = x + 1e-3
    return x


def in_a_loop_on_data(x):
    steps = 0
    while x.sum() > 0:
        if x.max() > 3:
            if steps > 1:
                raise RuntimeError("late", steps)
            raise Rejected("at {} after {}".format(x.max().item(), steps))  # noqa: UP032
        x, steps = x - 1, steps + 1
    return x


def of_a_key(x):
    if x.max() > 2:
        raise KeyError("a key")
    if x.sum() > 3:
        raise KeyError(f"key {int(x.sum())}")
    return x


def of_tensors(x):
    rows = {"rows": (x * 2, x.numpy())}
    for t in range(x.shape[0]):
        if x[t] > 3:
            raise Rejected(f"{t}: {x}, {rows}, {x[t]}, {x > 1!r}, {str(x.numpy())}")
    return x


def of_a_condition(x):
    return x if x.sum() < 3 else fails(x.max())


def fails(value):
    raise OverflowError(f"{value:.2e}")


RAISED = [of_a_tensor, of_the_other_branch, in_a_loop, in_a_loop_on_data, of_a_key, of_a_condition,
          of_tensors]  # fmt: skip


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("f", RAISED)
def test_a_raise_on_data_shows_its_values(f, gradient):
    static = dy2st.to_static(f)
    for values in ([0.5, 1.0, 0.25], [1.5, 1.5, 0.5], [0.5, 2.5, 3.5], [2.0, 4.25, 9.0]):
        x = paddle.to_tensor(values, stop_gradient=not gradient)
        have, want = check.outcome(static, [x]), check.outcome(f, [x])
        assert type(have) is type(want)
        if isinstance(want, Exception):
            assert str(have) == str(want)
        else:
            check.same(have, want)


SHOWN = [
    paddle.zeros([0, 3]), paddle.to_tensor([[[True], [False]]]), paddle.randn([9, 200]) * 1e3,
    paddle.to_tensor([float("nan"), float("inf"), -1.5]), paddle.arange(-3, 40), paddle.ones([]),
    paddle.randn([2, 3, 4, 2]), paddle.randn([30, 2, 20]).astype("float16"), paddle.ones([3, 2, 2]),
]  # fmt: skip


@pytest.mark.parametrize("x", SHOWN, ids=lambda x: str(list(x.shape)))
def test_tensors_are_shown_as_paddle_shows_them(x):
    def fails(x, ok):
        assert ok, f"{x!s}"

    static = dy2st.to_static(fails)
    assert str(check.outcome(static, [x, paddle.to_tensor(False)])) == f"{x!s}"


@pytest.mark.parametrize("other", ["text", paddle.float32], ids=str)
def test_a_tensor_compared_with_what_is_no_number_is_as_eager(other):
    def f(x):
        return x == other, x != other, x.astype("int64") == other

    check.same(dy2st.to_static(f)(X), f(X))


INDICES = [[0, 7], [0, -7]]
GATHERS = {
    "gather": lambda x, i: paddle.gather(x, i),
    "index_select": lambda x, i: paddle.index_select(x, i),
    "gather_nd": lambda x, i: paddle.gather_nd(x, i.unsqueeze(-1)),
    "take_along_axis": lambda x, i: paddle.take_along_axis(x, i.unsqueeze(-1), 0),
}


@pytest.mark.parametrize("indices", INDICES, ids=str)
@pytest.mark.parametrize("name", GATHERS)
def test_an_index_out_of_range_is_what_eager_raises(name, indices):
    f, i = GATHERS[name], paddle.to_tensor(indices)
    static, want = dy2st.to_static(f), check.outcome(f, [X, i])
    assert isinstance(want, (IndexError, ValueError))
    for _ in range(2):
        with pytest.raises(type(want), match="out of range") as caught:
            static(X, i)
        assert isinstance(pickle.loads(pickle.dumps(caught.value)), type(want))


def test_an_index_outside_of_an_embedding_is_what_eager_raises():
    f, i = paddle.nn.functional.embedding, paddle.to_tensor([0, 7])
    with pytest.raises(type(check.outcome(f, [i, X])), match="out of range"):
        dy2st.to_static(lambda i, x: f(i, x))(i, X)


def leaf_written(x):
    x.add_(paddle.ones([4, 3]))
    return x


def strides_that_do_not_allow_it(x):
    return x.t().view([12])


def index_of_floats(x):
    return x[paddle.to_tensor([0.0, 1.0])]


def value_of_another_shape(x):
    y = x * 1
    y.set_value(paddle.ones([2, 2]))
    return y


def length_of_a_number(x):
    return x * len(x.sum())


def unpacks_a_number(x):
    a, b = x.sum()
    return a + b


def loses_a_variable(x):
    return paddle.static.nn.while_loop(lambda p, q: p.sum() < 90, lambda p, q: [p + 1], [x, x])


def stacks_texts(x):
    names = []
    for _ in range(x.shape[0]):
        names.append("step")
    return paddle.stack(names)


CLASSES = [leaf_written, strides_that_do_not_allow_it, index_of_floats, value_of_another_shape,
           length_of_a_number, unpacks_a_number, loses_a_variable, stacks_texts]  # fmt: skip


@pytest.mark.parametrize("f", CLASSES)
def test_handlers_of_the_user_catch_what_eager_raises(f):
    x = X * 1
    x.stop_gradient = f is not leaf_written
    want = check.outcome(f, [x])
    with pytest.raises(type(want)):
        dy2st.to_static(f)(x)


def test_a_tensor_without_axes_has_no_elements_in_a_loop():
    def f(x):
        total = x * 1
        for row in x.sum():
            total = total + row
        return total, [q for q in x.mean()]

    check.same(dy2st.to_static(f)(X), f(X))


def adds_another_shape(x):
    if x.sum() > 100:
        x = x + paddle.ones([5])
    return x


def joins_other_ranks(x):
    if x.sum() > 100:
        if x.min() > 0:
            x = paddle.concat([x, x[0]])
        else:
            x = x * 2
    return x


def index_behind_the_end(x):
    return x if x.sum() < 100 else x + x[7]


def element_behind_the_end(x):
    if x.sum() > 100:
        x = x * [1.0, 2.0][5]
    return x


def key_that_is_missing(x):
    if x.sum() > 100 and {"a": x}["b"].sum() > 0:
        x = -x
    return x


def attribute_that_is_missing(x):
    if x.sum() > 100:
        x = x.nothing
    return x


def length_of_a_number_in_a_branch(x):
    if x.sum() > 100:
        x = x * len(x.sum())
    return x


def element_in_an_unrolled_loop(x):
    rows = []
    for t in range(2):
        if x[t].sum() > 100:
            x = x + rows[-1]
        rows.append(x)
    return x


FAILS = [adds_another_shape, joins_other_ranks, index_behind_the_end, element_behind_the_end,
         key_that_is_missing, attribute_that_is_missing, length_of_a_number_in_a_branch,
         element_in_an_unrolled_loop]  # fmt: skip


@pytest.mark.parametrize("f", FAILS)
def test_an_error_in_a_branch_is_raised_where_the_branch_runs(f):
    static = dy2st.to_static(f)
    for x in (X, X * 100, X):
        have, want = check.outcome(static, [x]), check.outcome(f, [x])
        if isinstance(want, Exception):
            assert isinstance(
                have, next(k for k in type(want).__mro__ if k.__module__ == "builtins")
            )
        else:
            check.same(have, want)
