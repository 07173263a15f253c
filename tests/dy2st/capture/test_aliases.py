"""Tensors that share memory with tensors of the caller: arguments, buffers, globals, results."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle import nn

import dy2st
from tests import check

pytestmark = pytest.mark.sampled

TABLE = paddle.zeros([4, 4])


def one():
    return paddle.to_tensor(1.0)


def square():
    return paddle.arange(16, dtype="float32").reshape([4, 4]).clone()


# ---------------------------------------------------------------- arguments
def adds(x, y):
    x.add_(one())
    return y * 2


def both(x, y):
    x.scale_(2.0)
    y[0].add_(one())
    return x + 0, y + 0


def returns(x, y):
    x[0] = 7.0
    return x, y, y[0], x.detach()


def loops(x, y):
    for _ in range(3):
        x[0].add_(y[0].sum())
        y.scale_(0.5)
    return x.sum(), y


def branches(x, y):
    if y.sum() > 60:
        x.zero_()
    else:
        x.add_(one())
    return y + 0


def reads(x, y):
    return x + y.sum(), x.t() * 2


FUNCTIONS = (adds, both, returns, loops, branches, reads)
RELATIONS = {
    "a row": lambda x: (x, x[1:2]),
    "the whole of a part": lambda x: (x[1:2], x),
    "transposed": lambda x: (x, x.t()),
    "first transposed": lambda x: (x.t(), x),
    "detached": lambda x: (x, x.detach()),
    "reshaped": lambda x: (x, x.reshape([2, 8])),
    "the same": lambda x: (x, x),
    "partly": lambda x: (x[0:3], x[2:4]),
    "reversed": lambda x: (x[::-1], x[1:]),
    "columns": lambda x: (x[:, 0:2], x[:, 1:4]),
    "interleaved": lambda x: (x[:, 0:1], x[:, 1:2]),
    "apart": lambda x: (x[0:2], x[2:4]),
    "every other": lambda x: (x[::2], x[1::2]),
    "strangers": lambda x: (x, x.clone()),
}


@pytest.mark.quick(
    "adds-a row", "both-detached", "returns-reversed", "loops-first transposed", "branches-partly",
    "reads-apart",
)  # fmt: skip
@pytest.mark.parametrize("name", RELATIONS)
@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_arguments_that_share_memory(f, name):
    make, g = RELATIONS[name], dy2st.to_static(f)
    x, y = square(), square()
    mine, theirs = make(x), make(y)
    for k in range(3):
        before, old = check.versions(mine), check.versions(theirs)
        want, have = f(*mine), g(*theirs)
        check.same(have, want, what=f"call {k}")
        check.same(y, x, what=f"call {k}")
        assert check.moved(theirs, old) == check.moved(mine, before)
        assert related([y, *theirs, *leaves(have)]) == related([x, *mine, *leaves(want)])
    assert len(dy2st.explain(g).reasons) == 1


def test_one_function_for_every_relation():
    """The cached program of one relation is not taken for another one."""
    g = dy2st.to_static(adds)
    for _ in range(2):
        for make in RELATIONS.values():
            x, y = square(), square()
            check.same(g(*make(y)), adds(*make(x)))
            check.same(y, x)


def leaves(x):
    return [q for q in check.leaves(x) if isinstance(q, paddle.Tensor)]


@paddle.no_grad()
def related(tensors):
    """Which tensors see a write to which; the values are put back."""
    out = []
    for t in tensors:
        saved = [q.clone() for q in tensors]
        t.fill_(1234.0)
        out.append([not np.array_equal(q.numpy(), s.numpy()) for q, s in zip(tensors, saved)])
        for q, s in zip(tensors, saved):
            q.copy_(s, True)
    return out


@pytest.mark.parametrize("make", [lambda x: x.t(), lambda x: x[:, 1:3], lambda x: x[::-2]])
def test_a_written_argument_that_is_not_contiguous(make):
    def f(x):
        y = x.reshape([-1])
        y.add_(one())
        x.scale_(3.0)
        return x, y, x[0]

    g, x, z = dy2st.to_static(f), square(), square()
    for _ in range(3):
        want, have = f(make(x)), g(make(z))
        check.same(have, want)
        check.same(z, x)
        assert related([z, *have]) == related([x, *want])


def test_what_is_asked_of_the_memory_of_an_argument_is_a_condition_of_the_call():
    def f(x):
        return (x.contiguous() is x, x.is_contiguous(), x.strides, x.t().is_contiguous()), x * 1

    def offset(x):
        return x.offset, paddle.as_strided(x, [2], [1], x.offset + 4) * 1

    x, g, h = square(), dy2st.to_static(f), dy2st.to_static(offset)
    for _ in range(2):
        for view in (lambda: x, lambda: x[1:], lambda: x.t(), lambda: x[:, 1:], lambda: x[1:2]):
            mine, theirs = view(), view()
            check.same(g(theirs), f(mine))
            assert shares_with(theirs, x) == shares_with(mine, x)
        for q in (x, x[1:], x[2:]):
            check.same(h(q), offset(q))


def shares_with(t, x):
    return x.data_ptr() <= t.data_ptr() < x.data_ptr() + 4 * x.size


def test_a_read_argument_that_is_not_contiguous_keeps_its_memory():
    x = square()
    v = x.t()
    g = dy2st.to_static(lambda a, b: a @ b)
    check.same(g(v, v), v @ v)
    assert not v.is_contiguous()
    assert related([x, v]) == [[True, True], [True, True]]
    v.stop_gradient = False
    g(v, x).sum().backward()
    assert not v.is_contiguous()


@pytest.mark.quick
def test_contiguous_of_a_view_changes_the_object_as_in_eager():
    def f(x):
        y = x.t()
        z = y.contiguous()
        z.add_(one())
        return y is z, x + 0, y, z

    x, y = square(), square()
    want, have = f(x), dy2st.to_static(f)(y)
    check.same(have, want)
    assert related([y, *leaves(have)]) == related([x, *leaves(want)])


def test_two_dtypes_of_one_memory_are_refused():
    x = square()
    g = dy2st.to_static(lambda x, y: x.add_(y.cast("float32")))
    with pytest.raises(dy2st.SourceError, match="x and y: a tensor that shares memory"):
        g(x, x.view("int32"))
    check.same(x, square())


def test_gradients_of_parts_that_share_written_memory_are_refused():
    def f(x, y):
        with paddle.no_grad():
            x.add_(one())
        return (x[:2] * y[:2]).sum()

    base = square()
    base.stop_gradient = False
    h = base * 2
    with pytest.raises(dy2st.SourceError, match="requires a gradient"):
        dy2st.to_static(f)(h[0:2], h)
    check.same(h, base * 2)


def test_a_gradient_beside_a_detached_alias():
    def f(x, y):
        y.scale_(3.0)
        return (x * x).sum(), x + 0

    grads = []
    for g in (f, dy2st.to_static(f)):
        a = square()
        a.stop_gradient = False
        h = a * 2
        z, after = g(h, h.detach())
        z.backward()
        grads.append((after.detach(), a.grad))
    check.same(grads[1], grads[0])


# ---------------------------------------------------------------- buffers, globals, closures
class Counts(nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", paddle.zeros([4, 4]))

    def forward(self, v):
        self.b.add_(paddle.ones([4, 4]))
        v.scale_(2.0)
        self.b[0] += v.sum()
        return v + 0, self.b[1]


VIEWS = {
    "row": lambda b: b[1],
    "rows": lambda b: b[0:2],
    "transposed": lambda b: b.t(),
    "detached": lambda b: b.detach(),
    "flat": lambda b: b.reshape([16]),
    "itself": lambda b: b,
    "a stranger": lambda b: paddle.ones([3]),
}


@pytest.mark.quick("itself")
@pytest.mark.parametrize("name", VIEWS)
def test_an_argument_that_is_a_view_of_a_buffer(name):
    eager, static = Counts(), dy2st.to_static(Counts())
    for k in range(3):
        v, w = VIEWS[name](eager.b), VIEWS[name](static.b)
        want, have = eager(v), static(w)
        check.same(have, want, what=f"call {k}")
        check.same(static.b, eager.b, what=f"call {k}")
        assert related([static.b, w, *have]) == related([eager.b, v, *want])
        assert check.moved([static.b], [k]) == check.moved([eager.b], [2 * k]) == [True]


def test_a_rebound_buffer_is_followed():
    eager, static = Counts(), dy2st.to_static(Counts())
    for k in range(4):
        if k % 2:
            eager.b, static.b = paddle.ones([4, 4]) * k, paddle.ones([4, 4]) * k
        check.same(static(static.b[1]), eager(eager.b[1]))
        check.same(static.b, eager.b)


@pytest.mark.parametrize("make", [lambda: TABLE, lambda: TABLE[0:1], lambda: TABLE.t()])
def test_an_argument_that_shares_memory_with_a_global(make):
    def f(y):
        TABLE.add_(y * 1)
        y[0].scale_(2.0)
        return TABLE.sum() + y

    results = []
    for g in (f, dy2st.to_static(f)):
        TABLE.set_value(square())
        results.append([(g(make()), TABLE.clone()) for _ in range(3)])
    check.same(results[1], results[0])


def test_closure_tensors_and_containers_of_the_caller():
    state = {"h": paddle.zeros([4]), "rows": [square()]}
    state["rows"].append(state["rows"][0][1])

    def f(x, held):
        state["h"].add_(x[0])
        held["rows"][1].scale_(2.0)
        held["last"] = held["rows"][0][2]
        return state["h"], held["rows"][0] + 0

    seen = []
    for g in (f, dy2st.to_static(f)):
        state["h"].zero_()
        rows = [square()]
        held = {"rows": [rows[0], rows[0][1]]}
        for _ in range(3):
            out = g(rows[0], held)
            seen.append((out[0] + 0, out[1], held["last"] + 0, rows[0] + 0))
            assert out[0] is state["h"]
            assert related([rows[0], held["last"]])[0] == [True, True]
    check.same(seen[3:], seen[:3])


# ---------------------------------------------------------------- results
RESULTS = {
    "at an index from data": lambda x, i: x[i],
    "of a local at an index from data": lambda x, i: (lambda y: (y, y[i]))(x * 2),
    "views of views": lambda x, i: (x[i][1:], x[:, i], x.t()[1].unsqueeze(0), x[:, 1:][i]),
    "argmax": lambda x, i: (x[paddle.argmax(x.sum(1))], x),
    "in containers": lambda x, i: ([x[i], {"a": x[0].detach(), "b": x.t()}], (x[0], x)),
    "unbound": lambda x, i: (list(x.unbind(0)), paddle.unbind(x * 1, 1)),
    "unbound twice": lambda x, i: (lambda y: (y, list(y), y[0], y[1:]))(x.unbind(1)),
    "a comprehension": lambda x, i: [r for r in x],
    "a comprehension of windows": lambda x, i: [x[k : k + 2].t() for k in range(3)],
    "names of one tensor": lambda x, i: (x.t().t(), x[None], x[...], x.detach(), x.data, x),
    "strides": lambda x, i: (x.diagonal(), x.unfold(0, 2, 2), x.unflatten(1, [2, 2])),
    "of a new tensor": lambda x, i: (lambda y: [y, y[0], y.t(), y[0][1:], y.diagonal()])(x + 1),
    "copies": lambda x, i: (x.chunk(2, 1), x.expand([4, 4]), x.t().reshape([16]), x),
    "slices": lambda x, i: (x[1:3, ::2], x[::-1], x[:0], x[2:2, 1]),
}


@pytest.mark.quick("views of views", "copies")
@pytest.mark.parametrize("name", RESULTS)
def test_results_share_memory_as_in_eager(name):
    f = RESULTS[name]
    g = dy2st.to_static(lambda x, i: f(x, i))
    x, y = square(), square()
    for k in (1, 3, 0):
        want, have = f(x, paddle.to_tensor(k)), g(y, paddle.to_tensor(k))
        check.same(have, want)
        assert related([y, *leaves(have)]) == related([x, *leaves(want)])
        assert [q is y for q in leaves(have)] == [q is x for q in leaves(want)]


def test_strided_views_of_an_argument_that_is_not_contiguous():
    def f(x):
        return x.diagonal(), x.unfold(0, 2, 2), x.diagonal().reshape([2, 2])

    g, x, z = dy2st.to_static(f), square(), square()
    for view in (lambda x: x[::-1], lambda x: x.t(), lambda x: x, lambda x: x[::-1]):
        y, v = view(x), view(z)
        want, have = f(y), g(v)
        check.same(have, want)
        assert related([z, v, *have]) == related([x, y, *want])


def test_a_reshape_that_copies_comes_before_a_later_write():
    """Also where the program itself does not read the argument that is reshaped."""

    def f(x, y):
        r = y.reshape([-1])
        x[0] = 8.0
        return r, y

    g = dy2st.to_static(f)
    for view in (lambda x: x.clone(), lambda x: x[:, 1:], lambda x: x.t(), lambda x: x):
        x, z = square(), square()
        y, v = view(x), view(z)
        want, have = f(x, y), g(z, v)
        check.same(have, want)
        assert related([z, v, *have]) == related([x, y, *want])


def test_a_0d_tensor_is_copied_by_reshape():
    def f(x):
        y, z, u, v = x[1, 1].reshape([1]), x[2, 2].unsqueeze(0), x[0, 0].flatten(), x[3, 3][None]
        y.add_(one())
        z.add_(one())
        u.add_(one())
        v.add_(one())
        return x + 0, y, z, u, v

    x, y = square(), square()
    want, have = f(x), dy2st.to_static(f)(y)
    check.same(have, want)
    assert check.moved([y], [0]) == check.moved([x], [0])
    assert related([y, *have]) == related([x, *want])


def test_views_that_a_loop_collects():
    def f(x, n):
        rows, y = [x[0]], x * 1
        for k in range(x.shape[0]):
            rows.append(x[k, 1:])
        parts = []
        for k in range(n):
            parts.append(y[k])
        return rows, parts, y

    g = dy2st.to_static(f)
    x, z = square(), square()
    for _ in range(3):
        want, have = f(x, 3), g(z, 3)
        check.same(have, want)
        assert related([z, *leaves(have)]) == related([x, *leaves(want)])


WINDOWS = {
    "read": lambda x, i: x[i : i + 2] * 1,
    "returned": lambda x, i: x[:, i : i + 2],
    "with a number": lambda x, i: (lambda k: x[k - 1 : k + 1])(int(i)),
    "inside": lambda x, i: x[i - 1 : i + 1, 1:],
}


@pytest.mark.quick("inside")
@pytest.mark.parametrize("name", WINDOWS)
def test_slices_between_bounds_from_data(name):
    window = WINDOWS[name]

    def f(x, i):
        window(x, i).add_(one())
        before = window(x, i) * 2
        i.add_(paddle.to_tensor(1))
        return before, window(x, i) * 3

    for h in (f, lambda x, i: (window(x, i), x[1])):
        g = dy2st.to_static(h)
        x, y, i, j = square(), square(), paddle.to_tensor(1), paddle.to_tensor(1)
        want, have = h(x, i), g(y, j)
        check.same(have, want)
        check.same(y, x)
        assert related([y, *leaves(have)]) == related([x, *leaves(want)])


def test_a_slice_from_data_that_leaves_the_axis_raises():
    g = dy2st.to_static(lambda x, i: x[i : i + 2] * 1)
    with pytest.raises(IndexError):
        g(square(), paddle.to_tensor(3))


def test_the_view_that_the_last_iteration_made():
    def f(x):
        previous = paddle.zeros([4])
        s = previous
        for t in range(x.shape[0]):
            s = s + (x[t] - previous).abs()
            previous = x[t]
            column = x[t : t + 1, 0]
        return s, previous, column

    spec = [paddle.static.InputSpec([None, 4], "float32", "x")]
    for g in (dy2st.to_static(f), dy2st.to_static(f, spec)):
        for n in (4, 2):
            x, y = square()[:n], square()[:n]
            want, have = f(x), g(y)
            check.same(have, want)
            assert related([y, *have]) == related([x, *want])


def test_a_view_at_an_index_that_is_written_later_is_refused():
    def f(x, i):
        r = x[i]
        i.add_(paddle.to_tensor(1))
        return r

    i = paddle.to_tensor(1)
    with pytest.raises(dy2st.SourceError, match="an index that is written later"):
        dy2st.to_static(f)(square(), i)
    assert int(i) == 1


def test_views_of_an_argument_with_a_named_size():
    def f(x, i):
        x[-1].add_(one())
        return x[i], x[1:], x.t(), x[:, 0]

    spec = [
        paddle.static.InputSpec([None, 4], "float32", "x"),
        paddle.static.InputSpec([], "int64", "i"),
    ]
    g = dy2st.to_static(f, spec)
    for n in (3, 5, 2):
        x, y = paddle.ones([n, 4]), paddle.ones([n, 4])
        want, have = f(x, paddle.to_tensor(1)), g(y, paddle.to_tensor(1))
        check.same(have, want)
        check.same(y, x)
        assert related([y, *have]) == related([x, *want])
    assert len(dy2st.explain(g).reasons) == 1


# ---------------------------------------------------------------- attributes
class Holds(nn.Layer):
    """Attributes that are rebound to views, and to None and back."""

    def __init__(self):
        super().__init__()
        self.h = None
        self.old = None
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.h is None:
            self.h = paddle.zeros([4])
            self.register = self.h
        self.old = self.h
        self.h = x[0]
        self.h.add_(one())
        if self.calls % 3 == 0:
            self.h = None
        return self.old + 0, x


def test_attributes_rebound_to_views_and_to_none():
    eager, static = Holds(), dy2st.to_static(Holds())
    x, y = square(), square()
    for k in range(7):
        want, have = eager(x), static(y)
        check.same(have, want, what=f"call {k}")
        check.same(static.old, eager.old, what=f"call {k}")
        assert (static.h is None) == (eager.h is None)
        held = [[q for q in (m.old, m.h, m.register) if q is not None] for m in (static, eager)]
        assert related([y, *held[0]]) == related([x, *held[1]])


class Ring(nn.Layer):
    """A buffer made in the first call, and an old alias of a rebound one."""

    def __init__(self):
        super().__init__()
        self.ring = None

    def forward(self, x):
        if self.ring is None:
            self.ring = x * 0
            self.view = self.ring[0]
        before = self.ring
        self.ring[1].add_(x[0])
        self.view.add_(one())
        self.ring = self.ring * 1
        self.ring.add_(one())
        return before, self.ring


def test_an_old_alias_of_a_rebound_buffer_is_left_alone():
    eager, static = Ring(), dy2st.to_static(Ring())
    for k in range(4):
        want, have = eager(square()), static(square())
        check.same(have, want, what=f"call {k}")
        check.same(static.view, eager.view, what=f"call {k}")
        assert have[1] is static.ring
        mine, theirs = [static.view, *have], [eager.view, *want]
        assert related(mine) == related(theirs)
