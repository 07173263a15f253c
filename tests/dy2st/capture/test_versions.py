"""What eager Paddle keeps about a tensor: version counters, leaves, shapes that change in place."""

from __future__ import annotations

import paddle
import pytest
from paddle import nn

import dy2st
from tests import check

pytestmark = pytest.mark.sampled


def t(*values, **options):
    return paddle.to_tensor(*values, **options)


# ---------------------------------------------------------------- version counters
def once(x, n):
    x.add_(t(1.0))


def thrice(x, n):
    x.add_(t(1.0))
    x[0] = 2.0
    x[1].scale_(3.0)


def not_at_all(x, n):
    x.set_value(x * 2)
    x.copy_(x + 1, True)


def mixed(x, n):
    x.set_value(x * 2)
    x.zero_()
    x.exponential_()


def loop(x, n):
    for k in range(5):
        x[k % 2].add_(t(1.0))
        x.scale_(1.5)


def nested_loops(x, n):
    for _ in range(3):
        for _ in range(4):
            x[0].add_(t(1.0))
        x.scale_(0.5)


def triangle(x, n):
    for k in range(4):
        for _ in range(k):
            x.add_(t(1.0))


def branch(x, n):
    if n > 2:
        x.add_(t(1.0))
        x.add_(t(1.0))
    else:
        x[0] = 1.0


def branch_in_a_loop(x, n):
    for _ in range(6):
        if x.sum() > n:
            x.scale_(-0.5)


def loop_in_a_branch(x, n):
    if n > 2:
        for _ in range(7):
            x.add_(t(1.0))


def while_loop(x, n):
    while x.sum() < 30 + n:
        x.add_(t(1.0))
        x[0].scale_(1.0)


def while_in_a_loop(x, n):
    for k in range(3):
        while x.sum() < 30 * (k + n):
            x.add_(t(1.0))
        x.scale_(0.5)


def ended_by_break(x, n):
    for _ in range(10):
        x.add_(t(1.0))
        if x.sum() > 20 + n:
            break


def through_views(x, n):
    v = x.t()
    v.add_(t(1.0))
    v[0].zero_()
    x.detach().exp_()
    x.diagonal().scale_(2.0)


def through_names(x, n):
    y = x
    y.add_(t(1.0))
    paddle.assign(x * 2, output=x)
    paddle.increment(n)


def composites(x, n):
    x.lerp_(x * 2, 0.5)
    x.clip_(0.0, 5.0)
    x.nan_to_num_()
    x.index_fill_(t([0]), 0, 1.0)
    x.hypot_(x * 1.0)
    x.sinc_()
    x.ldexp_(t([1]))


def random_fills(x, n):
    x.uniform_()
    x.normal_()
    x.bernoulli_()
    x.geometric_(0.5)
    x.log_normal_()
    x.cauchy_()
    x.exponential_()


def advanced_indices(x, n):
    x[x > 1] = 0.0
    x[[0]] = 1.0
    x[:, 1:] = 2.0
    x[t([0])] += 1.0


WRITERS = (
    once, thrice, not_at_all, mixed, loop, nested_loops, triangle, branch, branch_in_a_loop,
    loop_in_a_branch, while_loop, while_in_a_loop, ended_by_break, through_views, through_names,
    composites, random_fills, advanced_indices,
)  # fmt: skip


#: by how much a call moves the versions of x and n
MOVES = {not_at_all: [0, 0], through_names: [1, 1]}


@pytest.mark.quick("once", "triangle", "ended_by_break")
@pytest.mark.parametrize("f", WRITERS, ids=lambda f: f.__name__)
def test_a_call_moves_the_version_of_what_it_writes_once(f):
    """Where eager moves it, the program does, too; also in a branch or loop that does not run."""
    g, x, y = dy2st.to_static(f), paddle.ones([2, 2]), paddle.ones([2, 2])
    for k in range(4):
        eager, static = [x, t(float(k + 1))], [y, t(float(k + 1))]
        before, old = check.versions(eager), check.versions(static)
        f(*eager)
        g(*static)
        assert [a - b for a, b in zip(check.versions(static), old)] == MOVES.get(f, [1, 0]), k
        assert check.moved(static, old) >= check.moved(eager, before), k


def test_versions_with_a_named_size():
    def f(x):
        for k in range(x.shape[0]):
            x[k].add_(t(1.0))
            if x.sum() > 6:
                x[k].scale_(0.5)

    g = dy2st.to_static(f, [paddle.static.InputSpec([None, 2], "float32", "x")])
    for n in (1, 4, 0, 7):
        x, y = paddle.ones([n, 2]), paddle.ones([n, 2])
        f(x)
        g(y)
        check.same(y, x)
        assert y.inplace_version == 1
    assert len(dy2st.explain(g).reasons) == 1


def test_a_write_to_a_copy_that_reshape_makes_does_not_count():
    """Eager moves the version of the argument, too, although nothing in it has changed."""

    def f(x, y):
        x[:, 1:].flatten().scale_(2.0)
        y.t().reshape([16]).clip_(0.0, 1.0)
        return x.sum()

    g = dy2st.to_static(f)
    for view in (lambda x: x, lambda x: x.t(), lambda x: x[:, ::-1]):
        mine, theirs = [[paddle.ones([4, 4]) for _ in range(2)] for _ in range(2)]
        f(*map(view, mine))
        g(*map(view, theirs))
        check.same(theirs, mine)
        assert check.versions(theirs) == [0, 0]


class Norm(nn.Layer):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1D(4)
        self.register_buffer("seen", paddle.zeros([], "int64"))

    def forward(self, x):
        self.seen.add_(paddle.ones([], "int64"))
        return self.norm(x)


def test_versions_of_buffers():
    eager, static = Norm(), dy2st.to_static(Norm())
    with paddle.no_grad():
        for _ in range(3):
            eager(paddle.ones([3, 4]))
            static(paddle.ones([3, 4]))
    assert static.seen.inplace_version == eager.seen.inplace_version


SAVED = {
    "in place": lambda h: h.zero_(),
    "an element": lambda h: h.__setitem__(0, 1.0),
    "a view": lambda h: h[0:2].scale_(2.0),
    "detached": lambda h: h.detach().add_(t(1.0)),
    "in a loop": lambda h: [h.detach().scale_(2.0) for _ in range(3)],
}


@pytest.mark.quick("an element")
@pytest.mark.parametrize("name", SAVED)
def test_eager_autograd_notices_that_a_saved_tensor_was_overwritten(name):
    write = dy2st.to_static(lambda h: SAVED[name](h))
    for _ in range(2):
        a = t([1.0, 2.0, 3.0])
        a.stop_gradient = False
        h = a * 2
        q = h * h
        with paddle.no_grad():
            write(h)
        with pytest.raises(RuntimeError, match="version"):
            q.sum().backward()


@pytest.mark.parametrize("runs", [True, False])
def test_a_write_in_a_branch_counts_also_where_the_branch_does_not_run(runs):
    """Backward raises, and says what to do; eager's runs where the branch has not run."""

    @dy2st.to_static
    def write(h, c):
        if c.sum() > 0:
            h.zero_()

    a = t([1.0, 2.0, 3.0])
    a.stop_gradient = False
    h = a * 2
    q = h * h
    with paddle.no_grad():
        write(h, t([1.0 if runs else -1.0]))
    with pytest.raises(RuntimeError, match="version"):
        q.sum().backward()


# ---------------------------------------------------------------- leaves
def leaf(*shape):
    x = paddle.ones(list(shape))
    x.stop_gradient = False
    return x


LEAF_WRITES = {
    "add_": lambda x: x.add_(t(1.0)),
    "setitem": lambda x: x.__setitem__(0, 1.0),
    "setitem, advanced": lambda x: x.__setitem__([0], 1.0),
    "zero_": lambda x: x.zero_(),
    "fill_diagonal_": lambda x: x.fill_diagonal_(1.0),
    "relu_": lambda x: nn.functional.relu_(x),
    "uniform_": lambda x: x.uniform_(),
    "reshape_": lambda x: x.reshape_([6]),
    "t_": lambda x: x.t_(),
    "cast_": lambda x: x.cast_("float64"),
}


@pytest.mark.quick("add_", "uniform_")
@pytest.mark.parametrize("name", LEAF_WRITES)
def test_in_place_on_a_leaf_raises_before_anything_changes(name):
    write, x = LEAF_WRITES[name], leaf(2, 3)
    with pytest.raises(ValueError, match="Leaf"):
        write(leaf(2, 3))
    g = dy2st.to_static(lambda x: write(x))
    with pytest.raises(dy2st.SourceError, match="requires a gradient and is written in place"):
        g(x)
    check.same(x, leaf(2, 3))
    assert (x.inplace_version, x.is_leaf) == (0, True)


@pytest.mark.quick("setitem, advanced")
@pytest.mark.parametrize("name", [n for n in LEAF_WRITES if n not in ("reshape_", "t_", "cast_")])
def test_in_place_on_a_leaf_is_allowed_without_gradients(name):
    write = LEAF_WRITES[name]
    x, y = leaf(2, 3), leaf(2, 3)

    def f(x):
        with paddle.no_grad():
            write(x)

    paddle.seed(3)
    f(x)
    paddle.seed(3)
    dy2st.to_static(f)(y)
    check.same(y, x)
    assert (y.is_leaf, y.inplace_version) == (x.is_leaf, x.inplace_version)


def test_writes_that_eager_allows_on_a_leaf():
    def f(x):
        x.set_value(x.detach() * 2)
        x.copy_(x.detach() * 3, True)
        x.detach().add_(t(1.0))
        return (x * x).sum()

    results = []
    for g in (f, dy2st.to_static(f)):
        x = leaf(2, 3)
        for _ in range(2):
            g(x).backward()
        results.append((x, x.grad, x.is_leaf))
    check.same(results[1], results[0])


def test_a_leaf_that_is_written_through_a_view_is_refused():
    x = leaf(2, 3)
    g = dy2st.to_static(lambda x: x[0].add_(t(1.0)))
    with pytest.raises(dy2st.SourceError, match="x requires a gradient"):
        g(x)
    check.same(x, leaf(2, 3))


def test_stop_gradient_set_late_acts_from_there_on():
    def f(x):
        y = x * 2
        z = y * 3
        y.stop_gradient = True
        w = y * x
        v = (x * 5).detach_()
        return z.sum() + w.sum() + (v * x).sum(), y, v

    results = []
    for g in (f, dy2st.to_static(f)):
        x = leaf(3)
        loss, y, v = g(x)
        loss.backward()
        results.append((x.grad, y.stop_gradient, v.stop_gradient, v.is_leaf))
    check.same(results[1], results[0])


def test_what_is_leaf_says():
    def f(x, w):
        y = x * w
        z = y.detach()
        u = paddle.zeros([2])
        u.requires_grad_()
        return [q.is_leaf for q in (x, w, y, z, u, z.detach_(), x.detach_())]

    w, x = leaf(2), paddle.ones([2])
    assert dy2st.to_static(f)(x, w) == f(x, w)


# ---------------------------------------------------------------- shapes that change in place
SHAPES = {
    "reshape_": lambda x: x.reshape_([6, 4]),
    "transpose_": lambda x: x.transpose_([1, 0, 2]),
    "squeeze_": lambda x: x.squeeze_(0),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "flatten_": lambda x: x.flatten_(),
    "cast_": lambda x: x.cast_("float64"),
}


@pytest.mark.quick("unsqueeze_")
@pytest.mark.parametrize("name", SHAPES)
def test_the_shape_of_an_argument_is_not_changed_in_place(name):
    def f(x):
        for _ in range(2):
            SHAPES[name](x)
        return x + 1

    x = paddle.ones([2, 3, 4])
    with pytest.raises(dy2st.SourceError, match=f"{name} of x, which comes from outside"):
        dy2st.to_static(f)(x)
    assert (x.shape, x.dtype, x.inplace_version) == ([2, 3, 4], paddle.float32, 0)


def contiguous(x):
    y = x.contiguous()
    return y.is_contiguous(), y.reshape([12, 2])[1] + x[0, 0, 0], y


def test_an_argument_becomes_contiguous():
    x, y = (paddle.arange(24.0).reshape([2, 3, 4]).transpose([2, 1, 0]) for _ in range(2))
    g = dy2st.to_static(contiguous)
    for _ in range(2):
        have, want = g(x), contiguous(y)
        check.same(have, want)
        assert have[2] is x and want[2] is y
        assert x.is_contiguous() and y.is_contiguous()


def written_after_contiguous(x):
    y = x.contiguous()
    y.add_(t(1.0))
    return y


def view_after_contiguous(x):
    return x.contiguous()[0]


@pytest.mark.parametrize(
    "f, text",
    [(written_after_contiguous, "written in place"), (view_after_contiguous, "other memory")],
)
def test_a_copy_of_an_argument_does_not_pass_for_it(f, text):
    x = paddle.arange(6.0).reshape([2, 3])
    y = x.t()
    with pytest.raises(dy2st.SourceError, match=text):
        dy2st.to_static(f)(y)
    check.same(x, paddle.arange(6.0).reshape([2, 3]))
    g, z = dy2st.to_static(f), x.clone()
    check.same(g(x), f(z))
    check.same(x, z)


def of_views_and_locals(x):
    v = x[1]
    v.t_()
    v.add_(t(1.0))
    w = x[0].reshape_([12])
    w.zero_()
    y = x * 2
    y.cast_("int32")
    z = y.reshape_([24])
    z.add_(t(1, dtype="int32"))
    return v + 0, y, z


def test_shapes_of_views_and_locals_change_in_place():
    g = dy2st.to_static(of_views_and_locals)
    x = paddle.arange(24, dtype="float32").reshape([2, 3, 4]).clone()
    y = x.clone()
    for k in range(3):
        check.same(g(y), of_views_and_locals(x), what=f"call {k}")
        check.same(y, x, what=f"call {k}")


class Reshapes(nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", paddle.zeros([2, 3]))

    def forward(self, x):
        self.b.reshape_([6])
        return x


def test_the_shape_of_a_buffer_is_not_changed_in_place():
    layer = dy2st.to_static(Reshapes())
    with pytest.raises(dy2st.SourceError, match="reshape_ of b, which comes from outside"):
        layer(paddle.ones([1]))
    check.same(layer.b, paddle.zeros([2, 3]))


def test_the_shape_of_a_local_is_not_changed_in_a_branch():
    def f(x):
        y = x * 1
        if x.sum() > 0:
            y.unsqueeze_(0).squeeze_(0)
        return y

    with pytest.raises(dy2st.SourceError, match="unsqueeze_ of a tensor from outside of a branch"):
        dy2st.to_static(f)(paddle.ones([2, 3]))
