"""What a function has changed before it raises is there when the caller has caught the error.

The text of an assert is the user's here: PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import logging
import random
import warnings

import paddle
import pytest

import dy2st
from tests import check

ONES = [paddle.ones([])]


class Rejected(ValueError):
    def __init__(self, message, value):
        super().__init__(message)
        self.value = value


class Scope:
    def __init__(self):
        self.depth, self.seen = 0, []

    def __enter__(self):
        self.depth += 1

    def __exit__(self, kind, *rest):
        self.depth -= 1
        self.seen.append(kind and kind.__name__)


class Net(paddle.nn.Layer):
    def __init__(self, body):
        super().__init__()
        self.body, self.n, self.log, self.found = body, 0, [], {}
        self.scope, self.last = Scope(), None
        self.register_buffer("steps", paddle.zeros([]))

    def forward(self, x):
        return self.body(self, x)

    def state(self):
        scope = self.scope.depth, self.scope.seen
        return self.n, self.log, self.found, self.last, self.steps.clone(), scope


def buffer(net, x):
    net.steps.add_(paddle.ones([]))
    if x.min() < 0:
        raise ValueError("negative")
    return x + net.steps


def buffer_in_the_branch(net, x):
    if x.min() < 0:
        net.steps.add_(x.max().detach())
        raise ValueError(f"negative {x}, {net.steps}")
    return x + net.steps


def counter(net, x):
    net.n += 1
    if x.min() < 0:
        net.n += 10
        raise KeyError("negative", net.n)
    return x * net.n


def containers(net, x):
    net.found["sum"] = x.sum()
    if x.min() < 0:
        net.log.append(x.min())
        net.found["late"] = [x, net.n]
        raise RuntimeError(f"{net.log} {net.found['sum']:.2f}")
    net.last = (x, net.n)
    return x


def printed(net, x):
    print("begin", x.sum())
    net.n += 1
    if x.min() < 0:
        print("negative")
        raise ValueError("negative")
    return x


def argument(net, x):
    x.add_(paddle.ones([]))
    assert x.min() > 0, f"rows {x}"
    return x * 2


def attribute_of_the_error(net, x):
    if x.min() < 0:
        raise Rejected(f"of {x.shape}", x.min())
    return x


def several(net, x):
    net.n += 1
    net.found["a"], net.last = x * net.n, x.sum()
    if x.min() < 0:
        net.last = x.min()
        if x.max() > 2:
            net.steps.add_(x.max().detach())
            raise RuntimeError(f"both {x}")
        elif x.max() > 1:
            raise OverflowError("middle %s" % x.max())  # noqa: UP031
        net.last = x.max()
    assert x.sum() < 40, (x.sum().item(), net.n)
    return x + net.n


def of_one_of_two_kinds(net, x):
    net.n += 1
    if x.min() < 0:
        raise ValueError("early") if net.n < 3 else TypeError(f"late {net.n}")
    return x


def in_a_scope(net, x):
    with net.scope:
        net.scope.seen.append("in")
        if x.min() < 0:
            raise ValueError("negative")
    return x * 2


def after_a_loop(net, x):
    h = x[0]
    for row in x:
        h = h + row
        net.log.append(h)
    net.last = h
    if h.min() < 0:
        raise ValueError(f"{h} of {len(net.log)}")
    return h


def random_numbers(net, x):
    y = paddle.nn.functional.dropout(x, 0.5)
    if x.min() < 0:
        raise ValueError(f"{y}")
    return y


def helper(net, x):
    net.n += 1
    if x.min() < 0:
        raise ValueError(f"negative after {net.n}")
    return x


def in_helpers(net, x):
    y = helper(net, x + 5)
    return helper(net, helper(net, y) - 5)


def of_python(net, x):
    net.n += 1
    net.steps.add_(x.sum().detach())
    if net.n % 2 == 0:
        raise RuntimeError(f"{net.n} is even, sum {x.sum():.2f}")
    return x * net.n


def in_a_loop(net, x):
    for t in range(2):
        net.steps.add_(x[t].sum().detach())
        net.log.append(x[t].max())
        if x[t].min() < 0:
            raise Rejected(f"row {t}: {x[t]}", x[t].min())
        net.n += 1
    return x * net.n


def in_nested_loops(net, x):
    for row in x:
        for t in range(2):
            net.n += 1
            assert row[t] > 0, f"{net.n}: {row}"
    return x


def appended(net, x):
    net.log.append(x.sum())
    if x.min() < 0:
        raise ValueError("negative")
    return x


def in_a_long_loop(net, x):
    for row in paddle.concat([x] * 20):
        net.steps.add_(row.sum().detach())
        net.n += 1
        if row.min() < 0:
            net.last = row
            raise Rejected(f"row {net.n}: {row}", row.min())
    return x


def in_a_loop_that_data_ends(net, x):
    while x.abs().max() < 50:
        x = x * 2
        net.steps.add_(x.sum().detach())
        assert x.min() > -10, f"{x} {net.steps}"
    return x


def random_numbers_after_a_change(net, x):
    net.n += 1
    y = paddle.nn.functional.dropout(x, 0.5)
    if x.min() < 0:
        raise Rejected(f"{net.n}", y)
    return y


def random_numbers_in_a_loop(net, x):
    for row in x:
        net.n += 1
        net.last = row + paddle.rand([2])
        assert net.last.min() > 0, f"{net.last}"
    return x * net.n


BODIES = [buffer, buffer_in_the_branch, counter, containers, printed, argument, several, in_a_scope,
          attribute_of_the_error, of_one_of_two_kinds, after_a_loop, random_numbers, in_helpers,
          of_python, in_a_loop, in_nested_loops, appended, in_a_long_loop, in_a_loop_that_data_ends,
          random_numbers_after_a_change, random_numbers_in_a_loop]  # fmt: skip
VALUES = ([1.0, 2.0, 3.0, 4.0], [-1.0, 2.0, 3.0, -4.0], [-1.0, 1.5, 1.0, 1.0],
          [-1.0, 0.5, 0.5, 0.1], [10.0, 10.0, 10.0, 20.0], [-2.0, 2.0, 3.0, 4.0],
          [1.0, 2.0, 0.5, 4.0])  # fmt: skip


def outcome(f, net, values, gradient):
    """The result or the error of a call with its attributes, and what it has left behind."""
    x = paddle.to_tensor(values, stop_gradient=not gradient).reshape([2, 2])
    result = check.outcome(f, (x,))
    if isinstance(result, Exception):
        result = type(result), str(result), result.args, getattr(result, "value", None)
    return result, x, net.state(), paddle.get_rng_state()[0].current_seed()


@pytest.mark.sampled(every=24)
@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_changes_before_an_error_are_those_of_eager(body, gradient, capsys):
    nets = [Net(body), Net(body)]
    calls = nets[0].forward, dy2st.to_static(nets[1].forward)
    runs = []
    for net, call in zip(nets, calls):
        paddle.seed(1)
        runs.append(([outcome(call, net, values, gradient) for values in VALUES],
                     capsys.readouterr().out, paddle.rand([2])))  # fmt: skip
    want, have = runs
    assert [q[0][:3] for q in have[0] if type(q[0]) is tuple] == [
        q[0][:3] for q in want[0] if type(q[0]) is tuple
    ]
    check.same(have, want)


def test_a_call_that_fails_again_is_translated_once(monkeypatch):
    net = Net(counter)
    static = dy2st.to_static(net.forward)
    made = []
    found = dy2st.compiled.cache.translate
    monkeypatch.setattr(
        dy2st.compiled.cache, "translate", lambda *a, **k: made.append(1) or found(*a, **k)
    )
    for _ in range(6):
        with pytest.raises(KeyError):
            static(-paddle.ones([2, 2]))
    assert net.n == 66 and len(made) <= 5
    with pytest.raises(KeyError):
        static(-paddle.ones([2, 2]))
    assert len(made) <= 5


def host_calls_first(net, x):
    net.n += 1
    x = x * random.random()
    if x.min() < 0:
        raise ValueError("negative")
    return x


def printing_loop(net, x):
    for row in paddle.concat([x] * 20):
        print(net.n)
        net.n += 1
        if row.min() < 0:
            raise ValueError("negative")
    return x


@dy2st.host(result=None)
def told():
    LOG.append("told")


class Told(logging.Handler):
    def emit(self, record):
        LOG.append(record.getMessage())


LOG = []
LOGGER = logging.Logger("of this test")
LOGGER.addHandler(Told())


def of_the_user(net, x):
    net.n += 1
    told()
    if x.min() < 0:
        raise ValueError("negative")
    return x


def logged(net, x):
    net.n += 1
    LOGGER.warning("call %d: %s", net.n, x.min())
    warnings.warn("once", stacklevel=1)
    if x.min() < 0:
        LOGGER.error("negative")
        raise ValueError("negative")
    return x


@pytest.mark.parametrize("body", [host_calls_first, printing_loop, logged, of_the_user])
@pytest.mark.filterwarnings("ignore:once")
def test_an_error_behind_what_acts(body, capsys):
    """Eager makes draws and reads clocks once more, and what it prints and logs is not shown again.
    A limit: a call of the user's function is not made a second time, and all is as it was."""
    nets, drawn, out = [Net(body), Net(body)], [], []
    x = paddle.to_tensor([[1.0, 2.0], [3.0, -4.0]])
    for f in (dy2st.to_static(nets[0].forward), nets[1].forward):
        random.seed(1)
        with pytest.raises(ValueError, match="negative"):
            f(x)
        drawn.append(random.random())
        out.append((capsys.readouterr().out, LOG[:]))
        LOG.clear()
    assert drawn[0] == drawn[1] and out[0] == out[1]
    assert nets[0].n == (0 if body is of_the_user else nets[1].n)


def test_an_attribute_of_an_error_that_nothing_computes_again_is_refused():
    def f(x):
        for row in x:
            if row.min() < 0:
                raise Rejected("negative", row.min())
        told()
        return x

    with pytest.raises(dy2st.SourceError, match="the attribute value of a Rejected"):
        dy2st.to_static(f)(paddle.ones([2, 2]))


class Swallows(Scope):
    def __exit__(self, kind, *rest):
        super().__exit__(kind, *rest)
        return kind is ValueError


def test_an_error_that_a_with_statement_may_catch():
    """A number that moves is no reason to raise what eager catches; data is refused."""

    def counted(net, x):
        with net.scope:
            x = x * 2
            net.n += 1
            if net.n % 2 == 0:
                raise ValueError("even")
            x = x + 5
        return x * net.scope.depth + x

    def decided(net, x):
        with net.scope:
            if x.min() < 0:
                raise ValueError("negative")
        return x

    one, two = Net(counted), Net(counted)
    one.scope, two.scope = Swallows(), Swallows()
    static, x = dy2st.to_static(one), paddle.ones([3])
    for _ in range(4):
        check.same(static(x), two(x))
        check.same(one.state(), two.state())
    refused = Net(decided)
    refused.scope = Swallows()
    with pytest.raises(dy2st.SourceError, match="raised inside of a `try`"):
        dy2st.to_static(refused)(x)
