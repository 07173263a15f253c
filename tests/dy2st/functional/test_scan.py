"""`dy2st.scan`: behaviours that the tests of JAX and PyTorch ask of a scan, written anew.

Each case is compared with a plain Python loop in eager code, and translated with eager; the
translated one is a single loop whatever its length.
"""

from __future__ import annotations

import collections
import functools

import numpy as np
import paddle
import pytest

import dy2st
from ir import passes
from tests.check import agree, data, default_dtype, parity, same, trains
from tests.dy2st.functional import plain
from tests.dy2st.functional.plain import check, kinds

pytestmark = pytest.mark.sampled(every=36)

Pair = collections.namedtuple("Pair", "left right")
W = data(3, 3, seed=9, trained=False)


def leak(c, x):
    c = c * 0.5 + x
    return c, c * c


# ---------------------------------------------------------------- bodies over xs [T, 3], h [3]
def forwarded(c, x):
    return c, x * 2


def only_carry(c, x):
    return c + x, None


def only_outputs(c, x):
    return None, x.exp()


def carry_is_x(c, x):
    return x, c


def output_is_carry(c, x):
    c = paddle.tanh(c + x)
    return c, c


def output_is_x(c, x):
    return c * x, x


def output_before(c, x):
    return c + x, c


def same_output_twice(c, x):
    y = c * x
    return c + x, (y, y)


def constant_output(c, x):
    return c + x, paddle.ones([2])


def scalar_output(c, x):
    return c + x, (c * x).sum()


def integer_output(c, x):
    return c + x, x > 0


def number_output(c, x):
    return c + x, 1.5


def captured(c, x):
    c = paddle.tanh(c @ W + x)
    return c, c @ W


def matrix_output(c, x):
    return c + x, paddle.outer(c, x)


def branches(c, x):
    if c.sum() > 0:
        c = c * 0.5
    else:
        c = c - x
    return c, c


def inner_loop(c, x):
    for k in range(3):
        c = c * 0.7 + x[k]
    return c, c


def inner_while(c, x):
    while c.abs().max() > 1:
        c = c / 2
    return c + x, c


def inner_scan(c, x):
    last, ys = dy2st.scan(lambda d, y: (d * 0.5 + y, d), c, paddle.stack([x, c, x]))
    return last, ys


def inner_cond(c, x):
    c = dy2st.cond(x.sum() > 0, lambda q: q + x, lambda q: q * 0.5, c)
    return c, c


def writes_carry(c, x):
    c.multiply_(x)
    return c + 1, c


def writes_x(c, x):
    x.add_(c)
    return x, x * 2


def writes_item(c, x):
    c[0] = x[1]
    return c, c[1:]


def writes_output(c, x):
    y = c * x
    y[1:] = x[:2]
    return c + y, y


def detaches(c, x):
    return c.detach() * 0.5 + x, c


def default_argument(c, x, scale=2.0):
    return c * 0.5 + x, c * scale


def any_arguments(*args):
    return leak(*args)


def keyword_default(c, x, *, scale=3.0):
    return c * 0.5 + x, c * scale


BODIES = [
    leak, forwarded, only_carry, carry_is_x, output_is_carry, output_is_x, output_before,
    same_output_twice, constant_output, scalar_output, integer_output, number_output, captured,
    matrix_output, branches, inner_loop, inner_while, inner_scan, inner_cond, writes_carry,
    writes_x, writes_item, writes_output, detaches, default_argument, any_arguments,
    keyword_default,
]  # fmt: skip
#: bodies whose outputs a plain loop does not have as tensors
NO_TENSORS = {number_output}


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("body", BODIES, ids=lambda q: q.__name__)
def test_a_body_over_sequences(body, reverse):
    def of(scan):
        return lambda h, x: scan(body, h, x, reverse=reverse)

    args = data(3, seed=1), data(5, 3)
    if body in NO_TENSORS:
        static = agree(of(dy2st.scan), *args)
    else:
        static = check(of(dy2st.scan), of(plain.scan), *args)
    found = kinds(static, *args)
    assert found.count("scan") >= 1 and not any("unrolled" in q for q in found), found


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("body", [leak, captured, writes_x], ids=lambda q: q.__name__)
def test_lengths(body, steps):
    def of(scan):
        return lambda h, x: scan(body, h, x)

    check(of(dy2st.scan), of(plain.scan), data(3, seed=1), data(steps, 3))


def test_the_size_of_the_program_does_not_depend_on_the_length():
    def f(h, x):
        return dy2st.scan(leak, h, x)

    static = dy2st.to_static(f)
    programs = [dy2st.program(static, data(3), data(n, 3)) for n in (20, 2000)]
    assert len(programs[0].ops) == len(programs[1].ops)


# ---------------------------------------------------------------- structures
def in_tuple(h, x):
    return (h, h * 2), (x, x * 3), lambda c, q: ((c[1], c[0] + q[0]), (c[0], q[1]))


def in_list(h, x):
    return [h, h * 2], [x, x * 3], lambda c, q: ([c[1], c[0] + q[0]], [c[0], q[1]])


def in_dict(h, x):
    def body(c, q):
        return {"a": c["b"] + q["x"], "b": c["a"] * 0.5}, {"y": c["a"], "z": q["x"]}

    return {"a": h, "b": h * 2}, {"x": x}, body


def in_named_tuple(h, x):
    return Pair(h, h * 2), Pair(x, x), lambda c, q: (Pair(c.right, c.left + q.left), c)


def in_nested(h, x):
    def body(c, q):
        (a, [b]), d = c["s"], c["t"]
        return {"s": (a + q[0], [b * 0.5]), "t": d}, [{"k": (a, b)}, d]

    return {"s": (h, [h]), "t": h * 3}, (x,), body


def with_none(h, x):
    return (h, None), (None, x), lambda c, q: ((c[0] + q[1], None), (None, c[0]))


def empty_carry(h, x):
    return (), x, lambda c, q: ((), q * h)


def different_ranks(h, x):
    def body(c, q):
        n, m, v = c
        return (n + 1, m + paddle.outer(q, v), v * 0.5), (n, m[0])

    return (paddle.zeros([], "int64"), paddle.zeros([3, 3], "float64"), h), x, body


def different_types(h, x):
    def body(c, q):
        flag, count, v = c
        return (flag.logical_not(), count + 2, v + q), (flag, count)

    return (paddle.to_tensor(True), paddle.to_tensor(3, "int32"), h), x, body


STRUCTURES = [
    in_tuple, in_list, in_dict, in_named_tuple, in_nested, with_none, empty_carry, different_ranks,
    different_types,
]  # fmt: skip


@pytest.mark.parametrize("make", STRUCTURES, ids=lambda q: q.__name__)
def test_structures(make):
    def of(scan):
        def f(h, x):
            init, xs, body = make(h, x)
            return scan(body, init, xs)

        return f

    args = data(3, seed=1), data(4, 3)
    static = check(of(dy2st.scan), of(plain.scan), *args)
    assert kinds(static, *args) == ["scan"]


def test_a_dict_may_come_back_in_another_order():
    def f(h, x):
        return dy2st.scan(lambda c, q: ({"b": c["b"], "a": c["a"] + q}, c), {"a": h, "b": h}, x)

    last, ys = f(data(3), data(4, 3))
    assert list(last) == ["a", "b"] and list(ys) == ["a", "b"]
    agree(f, data(3), data(4, 3))


@pytest.mark.parametrize("number", [0.0, 2, True])
def test_numbers_in_the_carry_are_tensors(number):
    def f(x):
        return dy2st.scan(lambda c, q: (c, (c, q)), number, x)

    last, (ys, _) = f(data(4, 3))
    kind = {float: paddle.float32, int: paddle.int64, bool: paddle.bool}[type(number)]
    assert last.dtype == ys.dtype == kind and last.shape == [] and ys.shape == [4]
    agree(f, data(4, 3))


# ---------------------------------------------------------------- length, axis
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_length_without_sequences(steps):
    def f(h):
        return dy2st.scan(lambda c, x: (c * 0.9, (c, x)), h, None, length=steps)

    last, (ys, none) = f(data(3))
    assert none is None and ys.shape == [steps, 3]
    agree(f, data(3)) if steps else parity(plain.Function(f), lambda: [data(3, trained=False)])


def test_xs_may_be_left_out():
    def f(h):
        return dy2st.scan(lambda c, _: (c * 0.9, c), h, length=3)

    check(f, lambda h: plain.scan(lambda c, _: (c * 0.9, c), h, None, length=3), data(3))


def test_a_length_beside_sequences():
    check(
        lambda h, x: dy2st.scan(leak, h, x, length=4),
        lambda h, x: plain.scan(leak, h, x),
        data(3), data(4, 3),
    )  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_axes(axis):
    shape = [2, 3, 5]
    shape.insert(axis % 3, 4)
    shape = shape[: axis % 3 + 1] + shape[axis % 3 + 1 :]
    x = data(*[4 if k == axis % 3 else n for k, n in enumerate((2, 3, 5))])
    h = data(*[n for k, n in enumerate((2, 3, 5)) if k != axis % 3], seed=1)

    def of(scan, at):
        return lambda h, x: scan(leak, h, x, axis=at)

    static = check(of(dy2st.scan, axis), of(plain.scan, axis % 3), h, x)
    assert kinds(static, h, x) == ["scan"]


@pytest.mark.parametrize("rank", range(1, 6))
def test_sequences_that_are_not_contiguous(rank):
    shape = [2, 3, 2, 3, 2][:rank]
    perm = [*range(1, rank), 0]

    def of(scan):
        return lambda x: scan(leak, x.transpose(perm)[0] * 0, x.transpose(perm)[::-1])

    x = data(*shape)
    static = check(of(dy2st.scan), of(plain.scan), x)
    assert kinds(static, x) == ["scan"]


def test_a_strided_argument():
    def f(h, x):
        return dy2st.scan(leak, h, x)

    whole = data(3, 8, trained=False)
    parity(plain.Function(f), lambda: [data(3, trained=False), whole[:, ::2].t()])


# ---------------------------------------------------------------- unroll
@pytest.mark.parametrize("unroll", [False, 1, 2, 3, 6, 7, 50, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_unroll_changes_no_result(unroll, reverse):
    args = data(3, seed=1), data(7, 3)
    static = check(
        lambda h, x: dy2st.scan(leak, h, x, unroll=unroll, reverse=reverse),
        lambda h, x: plain.scan(leak, h, x, reverse=reverse),
        *args,
    )
    assert kinds(static, *args) == ["scan"]
    text = str(passes.run(dy2st.program(static, *args)))
    assert text.count("scan ") == (unroll is not True and 2 * unroll <= 7), text


# ---------------------------------------------------------------- aliases
def test_neither_init_nor_xs_is_written():
    def f(h, x):
        def body(c, q):
            c.add_(q)
            q.zero_()
            return c, q

        return dy2st.scan(body, h, x)

    static = dy2st.to_static(f)
    for run in (f, static):
        h, x = data(3, seed=1, trained=False), data(4, 3, trained=False)
        kept = h.clone(), x.clone()
        last, ys = run(h, x)
        same([h, x], list(kept))
        np.testing.assert_allclose(last.numpy(), (h + x.sum(0)).numpy())
        assert not ys.any()


def test_leaves_of_the_carry_are_tensors_of_their_own():
    def body(c, x):
        a, b = c
        a.add_(x)
        return (b, b), a

    def f(h, x):
        return dy2st.scan(body, (h, h), x)

    check(f, lambda h, x: plain.scan(body, (h, h), x), data(3), data(4, 3))


@pytest.mark.parametrize("steps", [0, 3])
def test_the_last_carry_is_no_alias_of_the_first(steps):
    def f(h):
        return dy2st.scan(lambda c, _: (c, None), h, length=steps)[0]

    for run in (f, dy2st.to_static(f)):
        h = data(3, trained=False)
        last = run(h)
        last.zero_()
        assert h.abs().sum() > 0 and last.data_ptr() != h.data_ptr()


def test_outputs_show_a_captured_tensor_as_it_was():
    def f(h, x, total):
        def body(c, q):
            total.add_(q)
            return c + total, total

        return dy2st.scan(body, h, x)

    def args():
        return [data(3, trained=False), data(4, 3, trained=False), paddle.zeros([3], "float64")]

    _, ys = f(*args())
    np.testing.assert_allclose(ys.numpy(), data(4, 3).numpy().cumsum(0))
    parity(plain.Function(f), args)


def test_a_captured_tensor_as_the_carry():
    def f(h, x, total):
        def body(c, q):
            total.add_(q)
            return total, c

        return dy2st.scan(body, h, x)

    def args():
        return [data(3, trained=False), data(4, 3, trained=False), paddle.zeros([3], "float64")]

    parity(plain.Function(f), args)
    total = paddle.zeros([3], "float64")
    last, _ = f(*args()[:2], total)
    last.zero_()
    assert total.abs().sum() > 0


# ---------------------------------------------------------------- captures
class Cell(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(3, 3)
        self.norm = paddle.nn.LayerNorm(3)
        self.register_buffer("calls", paddle.zeros([], "int64"))

    def forward(self, c, x):
        self.calls.add_(paddle.ones([], "int64"))
        c = paddle.tanh(self.norm(self.linear(c)) + x)
        return c, c * 2


class Outer(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.cell = Cell()

    def forward(self, h, x):
        return dy2st.scan(self.cell, h, x)


def test_a_layer_as_the_body_trains():
    static = trains(Outer, lambda: [data(2, 3), data(4, 2, 3)])
    assert int(static.cell.calls) == 12
    assert kinds(static, data(2, 3), data(4, 2, 3)) == ["scan"]


def test_a_translated_layer_as_the_body_in_eager_code():
    with default_dtype("float64"):
        cell = Cell()
    want = dy2st.scan(cell, data(2, 3), data(4, 2, 3))
    have = dy2st.scan(dy2st.to_static(cell), data(2, 3), data(4, 2, 3))
    same(have, want, rtol=1e-9, atol=1e-9)


def test_captured_tensors_have_a_stable_order():
    def f(h, x, a, b, c):
        return dy2st.scan(lambda s, q: (s * c + q @ b, s @ a), h, x)

    args = data(3), data(4, 3), data(3, 3), data(3, 3), data(3)
    texts = {str(dy2st.program(dy2st.to_static(f), *args)) for _ in range(3)}
    assert len(texts) == 1
    agree(f, *args)


def test_methods_partials_and_closures_as_bodies():
    class Model:
        scale = 0.5

        def step(self, c, x):
            return c * self.scale + x, c

    model = Model()

    def f(h, x, w):
        def closure(c, q):
            return paddle.tanh(c @ w + q), c

        one = dy2st.scan(model.step, h, x)
        two = dy2st.scan(functools.partial(lambda k, c, q: (c * k, q), 0.3), h, x)
        return one, two, dy2st.scan(closure, h, x)

    args = data(3), data(4, 3), data(3, 3)
    assert kinds(agree(f, *args), *args) == ["scan"] * 3


def test_random_numbers_in_the_body():
    def f(h, x):
        return dy2st.scan(lambda c, q: (c + paddle.rand([3], "float64") * q, c), h, x)

    parity(plain.Function(f), lambda: [data(3, trained=False), data(4, 3, trained=False)])


def test_dropout_in_the_body():
    drop = paddle.nn.Dropout(0.5)

    def f(h, x):
        return dy2st.scan(lambda c, q: (drop(c + q), c), h, x)

    parity(plain.Function(f), lambda: [data(3, trained=False), data(4, 3, trained=False)])


def test_one_line_with_two_loops():
    layers = paddle.nn.Sequential(
        Over(leak), Over(lambda c, x: (c + x.detach(), c)), Over(captured)
    )

    def f(x):
        return layers(x)

    x = data(4, 3)
    assert kinds(agree(f, x), x) == ["scan"] * 3


class Over(paddle.nn.Layer):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return dy2st.scan(self.body, paddle.zeros([3], "float64"), x)[1]


# ---------------------------------------------------------------- around the loop
def test_inside_of_a_python_loop():
    def f(h, x):
        for k in range(5):
            h, ys = dy2st.scan(leak, h, x * k)
        return h, ys

    args = data(3), data(4, 3)
    assert kinds(agree(f, *args), *args) == ["scan", "scan"]


def test_inside_of_a_branch_on_data():
    def f(h, x):
        if h.sum() > 0:
            h, y = dy2st.scan(leak, h, x)
        else:
            h, y = dy2st.scan(captured, h, x, reverse=True)
        return h, y

    agree(f, data(3), data(4, 3))
    agree(f, -data(3), data(4, 3))


def test_three_levels():
    def f(h, x):
        def inner(c, q):
            return c * 0.5 + q, c

        def middle(c, q):
            return dy2st.scan(inner, c, paddle.stack([q, q * 2]))

        def outer(c, q):
            return dy2st.scan(middle, c, paddle.stack([q, c]), reverse=True)

        return dy2st.scan(outer, h, x)

    args = data(3), data(4, 3)
    assert kinds(agree(f, *args), *args) == ["scan"] * 3


def test_a_scan_over_the_outputs_of_a_scan():
    def f(h, x):
        h, ys = dy2st.scan(leak, h, x)
        return dy2st.scan(captured, h, ys, reverse=True)

    args = data(3), data(4, 3)
    assert kinds(agree(f, *args), *args) == ["scan"] * 2


def test_the_loop_of_results_is_used_by_python():
    def f(h, x):
        _, ys = dy2st.scan(leak, h, x)
        total = 0
        for y in ys:
            total = total + y
        return total, ys[-1], ys[1:].sum()

    agree(f, data(3), data(4, 3))


# ---------------------------------------------------------------- gradients
@pytest.mark.parametrize("which", range(3))
def test_gradients_of_some_arguments_only(which):
    def f(h, x, w):
        return dy2st.scan(lambda c, q: (paddle.tanh(c @ w + q), c), h, x)

    args = [data(3, trained=which == 0), data(4, 3, trained=which == 1)]
    agree(f, *args, data(3, 3, trained=which == 2))


def test_a_gradient_of_the_last_carry_only():
    def f(h, x):
        return dy2st.scan(leak, h, x)[0]

    agree(f, data(3), data(4, 3))


def test_a_gradient_of_the_outputs_only():
    def f(h, x):
        return dy2st.scan(captured, h, x)[1]

    agree(f, data(3), data(4, 3))


def test_no_gradients():
    def f(h, x):
        with paddle.no_grad():
            return dy2st.scan(leak, h, x)

    agree(f, data(3), data(4, 3))


@pytest.mark.slow
def test_gradients_by_finite_differences():
    h, x = data(3), data(4, 3)
    static = dy2st.to_static(lambda h, x: dy2st.scan(captured, h, x)[1].sum())
    static(h, x).backward()
    for k in range(3):
        shift = paddle.to_tensor(np.eye(3)[k] * 1e-6)
        with paddle.no_grad():
            slope = (static(h + shift, x) - static(h - shift, x)) / 2e-6
        np.testing.assert_allclose(float(slope), float(h.grad[k]), rtol=1e-6)


@pytest.mark.parametrize("policy", ["none", "sqrt", 1, 2, 3, 100])
def test_checkpoints_of_one_loop(policy):
    def f(h, x):
        h, ys = dy2st.scan(captured, h, x, checkpoint=policy)
        return h, dy2st.scan(captured, h, ys)[1]

    args = data(3), data(7, 3)
    static = agree(f, *args)
    lines = [q for q in str(dy2st.report(static, *args)).splitlines() if "a checkpoint every" in q]
    assert len(lines) == (0 if policy in ("none", 100) else 1)


def test_a_loop_without_checkpoints_in_a_function_with():
    def f(h, x):
        return dy2st.scan(captured, h, x, checkpoint="none")

    static = dy2st.to_static(f, checkpoint=2)
    args = data(3), data(7, 3)
    static(*args)
    assert "a checkpoint every" not in str(dy2st.report(static, *args))


# ---------------------------------------------------------------- truncated gradients
def truncated(h, x, k, reverse):
    """The last k steps of the loop get gradients."""
    steps = [*range(x.shape[0])][:: -1 if reverse else 1]
    ys = {}
    for n, t in enumerate(steps):
        if n == len(steps) - k > 0:
            h = h.detach()
        with paddle.set_grad_enabled(n >= len(steps) - k):
            h, ys[t] = leak(h, x[t])
    return h, paddle.stack([ys[t] for t in range(len(steps))])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("k", [1, 2, 4, 5, 9])
def test_truncated_gradients(k, reverse):
    args = data(3), data(5, 3)
    static = check(
        lambda h, x: dy2st.scan(leak, h, x, truncate_gradient=k, reverse=reverse),
        lambda h, x: truncated(h, x, k, reverse),
        *args,
    )
    assert kinds(static, *args) == ["scan"] * (1 if k >= 5 else 2)


def test_a_truncated_gradient_through_fewer_steps_than_taps_is_written_out():
    def f(h, x):
        states = dy2st.taps(h, (-3, -1)), dy2st.taps(h[1:], (-2, -1))

        def body(s, q):
            (a, b), (c, d) = s
            return (paddle.tanh(a + b + q + c), paddle.tanh(c * 0.1 + d + a)), b + d

        return dy2st.scan(body, states, x, truncate_gradient=2)

    args = data(3, 3), data(8, 3)
    static = agree(dy2st.to_static(f), *args)
    assert [q.split()[0] for q in kinds(static, *args)] == ["scan", "written"]


@pytest.mark.parametrize("how", [lambda f: f, dy2st.to_static], ids=["eager", "static"])
def test_a_truncated_gradient_reaches_neither_init_nor_earlier_steps(how):
    h, x = data(3), data(5, 3)
    last, ys = how(lambda h, x: dy2st.scan(leak, h, x, truncate_gradient=2))(h, x)
    (last.sum() + ys.sum()).backward()
    assert h.grad is None
    assert not x.grad[:3].any() and bool((x.grad[3:] != 0).all())


# ---------------------------------------------------------------- taps
def with_taps(steps):
    def f(h, x):
        def body(s, q):
            return sum(0.3 * p for p in s) + q, s[-1] * q

        return dy2st.scan(body, dy2st.taps(h, steps), x)

    def by_hand(h, x):
        depth = -min(steps)
        states, ys = [h[k] for k in range(depth)], []
        for q in x:
            s = [states[k] for k in steps]
            ys.append(s[-1] * q)
            states.append(sum(0.3 * p for p in s) + q)
        return paddle.stack(states[-depth:]), paddle.stack(ys)

    return f, by_hand


@pytest.mark.parametrize("steps", [(-1,), (-2,), (-2, -1), (-1, -2), (-3, -1), (-5, -3, -2)])
def test_taps(steps):
    f, by_hand = with_taps(steps)
    args = data(-min(steps), 3, seed=2), data(4, 3)
    assert kinds(check(f, by_hand, *args), *args) == ["scan"]


def test_taps_beside_other_states():
    def f(h, x):
        def body(c, q):
            older, newer = c["t"]
            return {"t": older + newer, "v": c["v"] * 0.5 + newer}, (older, c["v"])

        return dy2st.scan(body, {"v": h[0], "t": dy2st.taps(h, (-2, -1))}, x)

    last, _ = f(data(2, 3), data(4, 3))
    assert last["t"].shape == [2, 3] and last["v"].shape == [3]
    agree(f, data(2, 3), data(4, 3))


def test_a_scan_goes_on_from_taps():
    def body(s, q):
        return s[0] * 0.3 + s[1] + q, s[0]

    h, x = data(3, 3, seed=1), data(8, 3)
    whole, ys = dy2st.scan(body, dy2st.taps(h, (-3, -1)), x)
    half, first = dy2st.scan(body, dy2st.taps(h, (-3, -1)), x[:4])
    last, second = dy2st.scan(body, dy2st.taps(half, (-3, -1)), x[4:])
    same([last, paddle.concat([first, second])], [whole, ys])


def test_what_taps_show_may_be_written():
    def f(h, x):
        def body(s, q):
            s[0].add_(q)
            return s[0] * 0.5 + s[1], s[1]

        return dy2st.scan(body, dy2st.taps(h, (-2, -1)), x)

    def by_hand(h, x):
        a, b, ys = h[0], h[1], []
        for q in x:
            ys.append(b)
            a, b = b, (a + q) * 0.5 + b
        return paddle.stack([a, b]), paddle.stack(ys)

    check(f, by_hand, data(2, 3), data(4, 3))


def test_fibonacci():
    start = paddle.ones([2], "int64")
    last, ys = dy2st.scan(lambda s, _: (s[0] + s[1], s[1]), dy2st.taps(start, (-2, -1)), length=8)
    assert ys.tolist() == [1, 2, 3, 5, 8, 13, 21, 34] and last.tolist() == [34, 55]
