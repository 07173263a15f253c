"""Variables of which data decides whether they are a Python number or a tensor."""

import numpy as np
import paddle
import pytest

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=12)


def total(x):
    total = 0.0
    if x.sum() > 0:
        total = total + x.sum()
    return total


def loss_of_terms(x):
    loss = 0
    if x.sum() > 0:
        loss += x.mean()
    if x.max() > 1:
        loss = loss + x.max()
    return x.sum() + loss, [loss], {"loss": loss * 2}


def operators(x):
    n = 3
    if x.sum() > 0:
        n = n + x.sum()
    return -n, abs(n), n**2, 2**n, n // 2, n % 3, 1 / n, n - 1, 1 - n, n * x, x / n, x @ (n * x.T)


def functions(x):
    n = 2.5
    if x.sum() > 0:
        n = x.sum()
    y = paddle.zeros([4], x.dtype)
    y[1:] = n * x.mean()
    return max(n, 1.0), sum([n, x.mean()]), float(n), paddle.stack([x.mean(), n + x.mean()]), y


def types_of(x):
    n = 2.5
    if x.sum() > 0:
        n = x.sum()
    h = x * 2 if isinstance(n, float) else x
    h = h + 1 if n > 3 else h
    return h, x if n else h, n is None


def promoted(x):
    x, n, i = x.astype("float32"), 0.1, paddle.to_tensor([1, 2, 3])
    if x.sum() > 0:
        n = n + x.mean()
    return x * n, i * n, n * 3


def either_way(x):
    a, b = 0.0, x.sum()
    if x.sum() > 0:
        a, b = b, a
    return a - b, a, b


def returned(x):
    if x.sum() > 0:
        return 0.0
    return x.sum()


def same_tensor(x):
    n = 0.0
    if x.sum() > 0:
        n = x
    return n


def in_a_loop(x):
    out = 0
    for t in range(x.shape[0]):
        if x[t].sum() > 0:
            out = out + x[t]
    return out, out + x.sum(0)


def largest(x):
    best, at = float("-inf"), -1
    for t in range(x.shape[0]):
        if x[t].sum() > best:
            best, at = x[t].sum(), t
    return best, at


def nested(x):
    loss = 0.0
    for t in range(x.shape[0]):
        part = 0.0
        for k in range(x.shape[1]):
            if x[t, k] > 0:
                part = part + x[t, k]
        loss = loss + part
    return loss * x.sum()


def until(x):
    n, h = 0.0, x
    while h.sum() > 0.1:
        n = n + h.sum()
        h = h - 0.5
    return n, h


def left_early(x):
    n = 0.0
    for t in range(x.shape[0]):
        if x[t, 0] > 0:
            n = n + x[t]
        if x[t].sum() > 1.0:
            return n
    return n * 2


def again_a_number(x):
    a = [0.0, 0]
    for t in range(x.shape[0]):
        if x[t].sum() > 0:
            a[0] = a[0] + 1.5 * x[t]
            a[1] += 1
        elif x[t, 0] > 0:
            a[0] = 0.0
    return a


def in_a_list(x):
    losses = []
    for t in range(x.shape[0]):
        loss = 0.0
        if x[t].sum() > 0:
            loss = x[t].sum()
        losses.append(loss)
    return sum(losses), losses, losses[-1] if losses else None


def in_dicts_of_a_list(x):
    found = []
    for t in range(x.shape[0]):
        loss = 0
        if x[t].sum() > 0:
            loss = x[t] * 2
        found.append({"loss": loss, "t": t})
    return found


def in_one_expression(x):  # the numbers of examples of a detector's loss
    positive = int((x > 0).sum())
    n = int(min((x <= 0).astype("float32").sum(), positive * 3))
    return x.flatten().sort(descending=True)[:n].sum() / (positive + n + 1)


PLAIN = [
    total, loss_of_terms, operators, functions, types_of, either_way, returned, same_tensor,
    in_one_expression,
]  # fmt: skip
LOOPS = [in_a_loop, largest, nested, until, left_early, again_a_number]
LISTS = [in_a_list, in_dicts_of_a_list]


@pytest.mark.parametrize("f", PLAIN, ids=lambda f: f.__name__)
def test_each_use_is_eagers_for_the_number_and_for_the_tensor(f):
    x = abs(check.data(4, 3, trained=False))
    static = dy2st.to_static(f)
    for sign in (1.0, -1.0, 1.0):
        one, two = (check.detached([x * sign])[0] for _ in "ab")
        one.stop_gradient = two.stop_gradient = False
        (want, wanted), (have, had) = check.step(f, [one], [one]), check.step(static, [two], [two])
        check.same(have, want, 1e-9, 1e-9)
        check.close(had[0], wanted[0], 1e-9, "the gradient")
        assert [q is two for q in check.leaves(have)] == [q is one for q in check.leaves(want)]


@pytest.mark.sampled(every=16)
@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("f", [*LOOPS, *LISTS], ids=lambda f: f.__name__)
def test_loops(f, n):
    x = check.data(n, 3, seed=n)
    static = check.agree(f, x)
    if n == 7:
        assert "unrolled" not in str(dy2st.report(static, x))


def test_element_types_are_those_of_each_case():
    static = dy2st.to_static(promoted)
    for sign in (1.0, -1.0):
        x = abs(check.data(4, 3, trained=False)) * sign
        check.same(static(x), promoted(x))


class Meter(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.total = 0.0

    def forward(self, x):
        if x.sum() > 0:
            self.total = self.total + x.sum()
        return x * self.total


def test_an_attribute_is_stored_as_what_it_is():
    eager, static = Meter(), dy2st.to_static(Meter())
    x = abs(check.data(4, 3, trained=False))
    for sign in (-1.0, -1.0, 1.0, -1.0):
        check.same(static(x * sign), eager(x * sign), 1e-9, 1e-9)
        check.same(static.total, eager.total, 1e-9, 1e-9)


def test_what_only_a_tensor_has():
    def detached(x):
        return total(x).detach() + x

    static, x = dy2st.to_static(detached), paddle.ones([2])
    assert np.array_equal(static(x), detached(x))
    with pytest.raises(AttributeError, match="'float' object has no attribute 'detach'"):
        static(-x)


@pytest.mark.parametrize(
    "use",
    [lambda x: type(total(x)), lambda x: f"{total(x)}", lambda x: {total(x): 1}],
    ids=["type", "text", "key"],
)
def test_what_needs_to_be_known_is_refused(use):
    with pytest.raises(
        dy2st.SourceError, match="a value that is a number or a tensor, depending on data"
    ):
        dy2st.to_static(use)(paddle.ones([2]))
