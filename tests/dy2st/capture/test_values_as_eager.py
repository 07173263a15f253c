"""Numbers, NaN, checks and small functions whose values are those of eager Paddle and of Python."""

from __future__ import annotations

import math

import numpy as np
import paddle
import paddle.nn as nn
import paddle.nn.functional as F
import pytest
from paddle import to_tensor

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=24)

NAN = float("nan")


def call(f, *args):
    try:
        return f(*args)
    except Exception as e:
        return e


def compare(f, *args):
    """Twice: the same results, or errors in both; returns the last one of the translated call."""
    static = dy2st.to_static(f)
    for _ in range(2):
        want, have = (call(g, *check.detached(args)) for g in (f, static))
        assert isinstance(have, Exception) == isinstance(want, Exception), (have, want)
        if not isinstance(want, Exception):
            check.same(have, want)
    return have


# ---------------------------------------------------------------- division and powers
SEVEN, ZERO = [7, -7, 3], [0, 0, 0]
DIVISIONS = {
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "// in place": lambda a, b: a.floor_divide_(b),
    "% in place": lambda a, b: a.remainder_(b),
    "// 0": lambda a, b: a // 0,
    "% 0": lambda a, b: a % 0,
    "7 //": lambda a, b: 7 // b,
    "7 %": lambda a, b: 7 % b,
    "int //": lambda a, b: int(a[0]) // int(b[0]),
    "int %": lambda a, b: int(a[0]) % int(b[0]),
    "int /": lambda a, b: int(a[0]) / int(b[0]),
    "float /": lambda a, b: float(a[0]) / float(b[0]),
    "float / 0.0": lambda a, b: float(a[0]) / 0.0,
    "divmod": lambda a, b: divmod(int(a[0]), int(b[0])),
}


@pytest.mark.sampled
@pytest.mark.quick(
    "// 0-int32",
    "// 0-int64",
    "7 //-int32",
    "7 //-int64",
    "int //-int32",
    "int //-int64",
    "int /-int32",
    "int /-int64",
)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", DIVISIONS)
def test_division_by_zero_raises(name, dtype):
    a, b = to_tensor(SEVEN, dtype=dtype), to_tensor(ZERO, dtype=dtype)
    assert isinstance(compare(DIVISIONS[name], a, b), ZeroDivisionError)
    if name not in ("// 0", "% 0", "float / 0.0"):
        compare(DIVISIONS[name], a, to_tensor([2, -2, 3], dtype=dtype))


POWERS = {
    "x ** -1": (lambda x: float(x) ** -1, [0.0, 2.0]),
    "x ** -0.5": (lambda x: float(x) ** -0.5, [0.0, 4.0]),
    "2 ** x": (lambda x: 2.0 ** float(x), [-1.0, 0.5]),
    "x ** x": (lambda x: float(x) ** float(x), [0.5, 2.0]),
    "sqrt": (lambda x: math.sqrt(float(x)), [-1.0, 4.0, math.inf]),
    "log": (lambda x: math.log(float(x)), [0.0, -1.0, 2.0, math.inf]),
    "exp": (lambda x: math.exp(float(x)), [1000.0, 1.0, -math.inf, math.inf]),
    "sin": (lambda x: math.sin(float(x)), [math.inf, 1.0]),
    "fabs": (lambda x: math.fabs(float(x)), [-math.inf, -1.0]),
}


@pytest.mark.sampled
@pytest.mark.quick("x ** -1", "2 ** x", "x ** x", "sqrt", "sin")
@pytest.mark.parametrize("name", POWERS)
def test_functions_of_numbers_have_the_domain_of_python(name):
    f, values = POWERS[name]
    for value in values:
        have, want = call(dy2st.to_static(f), to_tensor(value)), call(f, to_tensor(value))
        assert type(have) is type(want)
        if not isinstance(want, Exception):
            assert have == pytest.approx(want, rel=1e-12)


def test_a_complex_power_is_an_error():
    with pytest.raises(ValueError, match="complex"):
        dy2st.to_static(lambda x: float(x) ** 0.5)(to_tensor(-2.0))


# ---------------------------------------------------------------- indices
def test_one_hot_checks_its_index():
    f = lambda i: F.one_hot(i, 4)  # noqa: E731
    compare(f, to_tensor([0, 3]))
    for bad in ([0, 4], [-1, 2]):
        assert isinstance(compare(f, to_tensor(bad)), ValueError)


def test_a_view_checks_its_index():
    for f in (lambda x: x[5], lambda x: x[-4], lambda x: x[:, 4]):
        with pytest.raises((IndexError, dy2st.SourceError), match="out of"):
            dy2st.to_static(f)(paddle.ones([3, 4]))

    def rows(x):
        for i in range(4):
            y = x[i]
        return y

    for f in (rows, lambda x: x[int(x.sum())]):
        with pytest.raises(IndexError):
            dy2st.to_static(f)(paddle.ones([3, 4]))


# ---------------------------------------------------------------- NaN
ODD = [[1.0, NAN, 3.0, 3.0], [NAN, 2.0, NAN, -1.0], [NAN] * 4, [-math.inf, NAN, -math.inf, 5.0]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan(dtype):
    def f(x):
        return (F.relu(x), F.relu6(x), x.argmax(-1), x.argmin(-1), x.argmax(), x.argmax(0),
                x.max(-1), x.min(0), x.max(), F.hardtanh(x), x.clip(0.0, 2.0))  # fmt: skip

    compare(f, to_tensor(ODD, dtype=dtype))


def test_the_gradient_of_relu_of_nan():
    check.agree(lambda x: F.relu(x), to_tensor(ODD, stop_gradient=False), dtype="float32")


def mixed(x, y):
    return x * y, y - x, x / y, x < y, y == x


@pytest.mark.parametrize("one", ["float32", "float64", "int64", "int32"])
@pytest.mark.parametrize("other", ["float32", "float64", "int64", "bool"])
def test_a_tensor_without_axes_gives_way_in_promotion(one, other):
    values, number = to_tensor([0.1, 1.0, 2.7]).astype(one), to_tensor(0.1 + (other[0] != "f"))
    number = number.astype(other)
    for args in ((values, number), (values.sum(), number)):
        compare(mixed, *args)
        assert not dy2st.report(dy2st.to_static(mixed), *args).foreign_counts


def masked_entropy(x, axis):
    p, logs = F.softmax(x, axis=axis), F.log_softmax(x, axis=axis)
    return p, logs, (p * paddle.log(p)).sum(axis)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("low", [-63.5, -64.5, -1e9, -math.inf])
def test_the_least_weight_of_softmax(low, axis):
    """Eager's softmax takes what lies further below the largest for 64: a masked element has a
    finite logarithm."""
    x = np.where(np.eye(3, 4, 1) > 0, low, np.cos(np.arange(12.0)).reshape(3, 4))
    compare(lambda x: masked_entropy(x, axis), to_tensor(x, dtype="float32"))
    if low > -math.inf:
        check.agree(lambda x: masked_entropy(x, axis), to_tensor(x, stop_gradient=False))


def test_the_gradient_of_abs_at_zero():
    x = to_tensor([0.0, -0.0, 2.0, -3.0], stop_gradient=False)
    check.agree(lambda x: x.abs().sqrt(), x, dtype="float32")


def test_layer_norm_has_the_epsilons_of_the_kernel():
    x = paddle.ones([2, 4])
    with pytest.raises(ValueError, match="epsilon"):
        F.layer_norm(x, [4], epsilon=0.1)
    with pytest.raises(ValueError, match="epsilon"):
        dy2st.to_static(lambda x: F.layer_norm(x, [4], epsilon=0.1))(x)


def test_the_gradient_of_relu6_at_its_bounds():
    x = to_tensor([-1.0, 0.0, 1.0, 6.0, 7.0], stop_gradient=False)
    check.agree(lambda x: F.relu6(x), x, dtype="float32")


# ---------------------------------------------------------------- small functions
def probabilities(x):
    return F.sigmoid(x)


SMALL = {
    "std": lambda x: (x.std(), x.std(0), x.std(-1, keepdim=True), x.std(0, unbiased=False)),
    "var": lambda x: (x.var(), x.var(1), x.var([0, 1], keepdim=True), paddle.var(x, axis=0)),
    "BCELoss": lambda x: (
        nn.BCELoss()(probabilities(x), (x.detach() > 0).astype("float32")),
        nn.BCELoss(weight=paddle.ones([4]) * 2)(probabilities(x), paddle.ones([3, 4])),
        F.binary_cross_entropy(probabilities(x), paddle.ones([3, 4]), reduction="none"),
    ),
    "sequence_mask": lambda x: (
        F.sequence_mask(to_tensor([1, 3, 2]), 4),
        F.sequence_mask(to_tensor([[1, 3], [2, 0]]), maxlen=5, dtype="float32"),
        F.sequence_mask(to_tensor([2]), x.shape[1], dtype="bool"),
    ),
    "histogram": lambda x: (paddle.histogram(x, bins=4, min=-2, max=2), paddle.histogram(x, 3)),
    "is_empty": lambda x: (paddle.is_empty(x), x[:0].is_empty(), x * 2),
    "to_tensor of tensors": lambda x: (
        to_tensor([x[0], x[1]]), paddle.to_tensor([x[0, 0], 1.5, 2]),
        to_tensor([[x[0, 0], x[0, 1]], [x[1, 0], x[1, 1]]]), to_tensor((x.sum(), x.max())),
        to_tensor([x[0, 0], x[1, 1]], dtype="float64"), to_tensor([1.0, 2.0, 3.0, 4.0]) * x,
        paddle.to_tensor(x), paddle.to_tensor(x, dtype="float64"), to_tensor(2.5),
    ),
    "to_tensor of numbers": lambda x: (
        to_tensor([x[0, 0].item(), float(x[1, 1])]), to_tensor([int(x[0, 0]), 3]),
        to_tensor([x[0, 0], True]), to_tensor([to_tensor(1), 2]),
    ),
    "same shape": lambda x: (x if x.is_same_shape(x * 2) else x * 3, x.rank()),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.quick("var", "sequence_mask", "histogram", "is_empty")
@pytest.mark.parametrize("name", SMALL)
def test_small_functions(name):
    check.agree(SMALL[name], check.data(3, 4, dtype="float32"), dtype="float32")


def empty_or_not(x):
    if paddle.is_empty(x):
        return x
    return x * 2


@pytest.mark.parametrize("shape", [[0, 4], [2, 4]])
def test_is_empty_decides(shape):
    compare(empty_or_not, paddle.ones(shape))


# ---------------------------------------------------------------- the generator
def seeded(x):
    paddle.seed(5)
    return x + paddle.randn([3, 4])


def seeded_between(x):
    a = paddle.rand([2])
    paddle.seed(5)
    b = paddle.rand([2])
    paddle.seed(6)
    return a, b, F.dropout(x, 0.5)


def seeded_in_a_loop(x):
    for i in range(4):
        paddle.seed(i)
        x = x + paddle.rand([3, 4])
    return x


def seeded_in_a_branch(x):
    if x.sum() > 0:
        paddle.seed(7)
    return x + paddle.rand([3, 4])


def seeded_by_data(x):
    paddle.seed(int(x.sum() * 0) + 3)
    return x + paddle.rand([3, 4])


@pytest.mark.parametrize(
    "f", [seeded, seeded_between, seeded_in_a_loop, seeded_in_a_branch, seeded_by_data]
)
def test_seed_acts_on_every_call(f):
    static = dy2st.to_static(f)
    for k, value in enumerate((0.5, 0.5, -0.5)):
        want, have = (check.observe(g, [paddle.full([3, 4], value)], seed=k) for g in (f, static))
        assert not check.both_raise(have, want)
        check.equal(have, want)


# ---------------------------------------------------------------- training steps, internals
STEPS = {
    "backward": lambda x: (x * x).sum().backward(),
    "autograd.backward": lambda x: paddle.autograd.backward([(x * x).sum()]),
    "gradient": lambda x: x.gradient(),
    "grad": lambda x: x.grad,
}


@pytest.mark.parametrize("name", STEPS)
def test_training_steps_are_refused(name):
    x = paddle.ones([3], "float32")
    x.stop_gradient = False
    with pytest.raises(dy2st.SourceError, match="Whole training steps are not translated yet"):
        dy2st.to_static(STEPS[name])(x)
    assert x.grad is None


@pytest.mark.parametrize("name", ["_inplace_assign", "_share_underline_tensor_to"])
def test_calls_that_replace_memory_are_refused(name):
    def f(x):
        y = x * 1
        getattr(y, name)(x * 2)
        return y

    with pytest.raises(dy2st.SourceError, match="replaces the memory"):
        dy2st.to_static(f)(paddle.ones([3]))


class NormInABranch(nn.Layer):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1D(4)

    def forward(self, x):
        if x.sum() > 0:
            return self.norm(x)
        return x


@pytest.mark.parametrize("sign", [1, -1])
def test_batch_norm_first_called_in_a_branch(sign):
    def given():
        x = np.random.default_rng(1).normal(size=[5, 4]) + 2
        return [paddle.to_tensor(x * sign, stop_gradient=False)]

    with check.default_dtype("float64"):
        check.parity(NormInABranch(), given)
    check.trains(NormInABranch, given)


def rows_by_data(x, i):
    s = x[0]
    for t in range(3):
        s = s + x[i[t]]
    return s


def test_an_index_error_has_the_index_and_the_size():
    x = paddle.ones([3, 4])
    for f, i, text in (
        (lambda x, i: x[int(i)] * 2, to_tensor(7), "index 7 .* of size 3"),
        (lambda x, i: x[:, int(i)] * 2, to_tensor(-5), "index -5 .* of size 4"),
        (rows_by_data, to_tensor([0, 1, 9]), "index 9 .* of size 3"),
        (lambda x, i: paddle.gather(x, i) * 2, to_tensor([0, 5]), "index 5 .* of size 3"),
        (lambda x, i: x[i] * 2, to_tensor([[1, -4]], "int32"), "index -4 .* of size 3"),
        (lambda x, i: F.embedding(i, x), to_tensor([2, -1]), "index -1 .* of size 3"),
        (lambda x, i: paddle.gather_nd(x, i) * 2, to_tensor([[0, 4]]), "index 4 .* of size 4"),
    ):
        with pytest.raises(IndexError, match=text):
            dy2st.to_static(f)(x, i)


def test_a_tensor_and_a_text():
    """Paddle takes a text for the number that it begins with, or for 0."""
    texts = ["a", "1.5", " -2e0b", ".5", "inf", "", "0x1"]

    def f(x):
        return [x == text for text in texts] + [x != text for text in texts]

    x = paddle.to_tensor([1.5, 0.0, -2.0, 0.5, float("inf")])
    check.same(dy2st.to_static(f)(x), f(x))
    for g in (lambda x: x + "a", lambda x: "a" + x, lambda x: x < "2"):
        with pytest.raises(TypeError, match="the text '.' are operands of one operator"):
            dy2st.to_static(g)(x)
