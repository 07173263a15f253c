"""Which calls share memory, return the same object or copy: measured on eager Paddle, case by case.

Every case runs on an argument, on a tensor of the program and on a buffer. What a write through the
result does to the base, and back, is looked at inside of the program and by the caller.
"""

from __future__ import annotations

import copy

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn

import dy2st
from dy2st.capture.detached_writes import AliasWarning
from tests import check

pytestmark = pytest.mark.sampled


def base():
    return paddle.arange(24, dtype="float32").reshape([2, 3, 4]).clone()


def square():
    return paddle.arange(16, dtype="float32").reshape([4, 4]).clone()


def row():
    return base()[:1].clone()


def t(*values):
    return paddle.to_tensor(*values)


#: what eager Paddle does with each call: shares memory, the same object, or copies
SHARES = {
    "x[0]": (base, lambda x: x[0]),
    "x[0,1]": (base, lambda x: x[0, 1]),
    "x[0,1,2]": (base, lambda x: x[0, 1, 2]),
    "x[:,1:2]": (base, lambda x: x[:, 1:2]),
    "x[:,::2]": (base, lambda x: x[:, ::2]),
    "x[::-1]": (base, lambda x: x[::-1]),
    "x[:]": (base, lambda x: x[:]),
    "x[...]": (base, lambda x: x[...]),
    "x[None]": (base, lambda x: x[None]),
    "x[0,None]": (base, lambda x: x[0, None]),
    "x[...,0]": (base, lambda x: x[..., 0]),
    "x[0-d tensor]": (base, lambda x: x[t(0)]),
    "x[argmax]": (base, lambda x: x[paddle.argmax(x[:, 0, 0])]),
    "x[t0:t1]": (base, lambda x: x[t(0) : t(1)]),
    "next(iter(x))": (base, lambda x: next(iter(x))),
    "reshape": (base, lambda x: x.reshape([6, 4])),
    "reshape of a slice": (base, lambda x: x[1].reshape([12])),
    "view": (base, lambda x: x.view([6, 4])),
    "view_as": (base, lambda x: x.view_as(paddle.zeros([6, 4]))),
    "flatten": (base, lambda x: x.flatten()),
    "ravel": (base, lambda x: paddle.ravel(x)),
    "unflatten": (base, lambda x: x.unflatten(2, [2, 2])),
    "transpose": (base, lambda x: x.transpose([2, 0, 1])),
    "transpose, identity": (base, lambda x: x.transpose([0, 1, 2])),
    ".T": (square, lambda x: x.T),
    ".mT": (square, lambda x: x.mT),
    "t()": (square, lambda x: x.t()),
    "permute": (base, lambda x: x.permute(2, 0, 1)),
    "swapaxes": (base, lambda x: paddle.swapaxes(x, 0, 1)),
    "moveaxis": (base, lambda x: x.moveaxis(0, 2)),
    "squeeze": (lambda: base().reshape([2, 3, 1, 4]).clone(), lambda x: x.squeeze(2)),
    "squeeze, no-op": (base, lambda x: x.squeeze(0)),
    "unsqueeze": (base, lambda x: x.unsqueeze(0)),
    "unbind": (base, lambda x: x.unbind(0)),
    "unbind, axis 1": (base, lambda x: paddle.unbind(x, 1)),
    "diagonal": (square, lambda x: x.diagonal()),
    "diagonal of some axes": (base, lambda x: x.diagonal(1, 2, 0)),
    "diagonal of a transposed slice": (base, lambda x: x[:, 1:].transpose([2, 0, 1]).diagonal()),
    "diagonal of an element": (base, lambda x: x[t(1)].diagonal(-1)),
    "diagonal of a column": (base, lambda x: x[:, t(1)].diagonal(1)),
    "as_strided": (base, lambda x: paddle.as_strided(x, [2, 2], [2, 1])),
    "as_strided, offset": (base, lambda x: paddle.as_strided(x[1], [3], [4], 20)),
    "unfold": (base, lambda x: x.unfold(2, 2, 2)),
    "unfold of a view": (base, lambda x: x.transpose([2, 1, 0]).unfold(0, 2, 2)),
    "paddle.slice": (base, lambda x: paddle.slice(x, [0], [0], [1])),
    "strided_slice": (base, lambda x: paddle.strided_slice(x, [2], [0], [4], [2])),
    "strided_slice, back": (base, lambda x: paddle.strided_slice(x, [2], [3], [0], [-2])),
    "narrow": (base, lambda x: x.narrow(0, 0, 1)),
    "narrow of a view": (base, lambda x: x[:, 1:].narrow(2, 1, 2)),
    "atleast_3d": (square, lambda x: paddle.atleast_3d(x)),
    "nn.Flatten": (base, lambda x: nn.Flatten()(x)),
    "detach": (base, lambda x: x.detach()),
    ".data": (base, lambda x: x.data),
}  # fmt: skip
SAME = {
    "view of its own dtype": (base, lambda x: x.view("float32")),
    "reshape, same shape": (base, lambda x: x.reshape([2, 3, 4])),
    "atleast_1d": (base, lambda x: paddle.atleast_1d(x)),
    "rot90(k=0)": (square, lambda x: x.rot90(0)),
    "astype, same dtype": (base, lambda x: x.astype("float32")),
    ".cpu()": (base, lambda x: x.cpu()),
    "contiguous()": (base, lambda x: x.contiguous()),
    "+x": (base, lambda x: +x),
    "dropout p=0, train": (base, lambda x: F.dropout(x, 0.0, training=True)),
    "nn.Identity": (base, lambda x: nn.Identity()(x)),
    ".value()": (base, lambda x: x.value()),
}
COPIES = {
    "split": (base, lambda x: x.split(2, axis=2)),
    "split, sections": (base, lambda x: paddle.split(x, [1, 3], axis=2)),
    "chunk": (base, lambda x: x.chunk(2, axis=2)),
    "tensor_split": (base, lambda x: paddle.tensor_split(x, 2, axis=2)),
    "hsplit": (base, lambda x: x.hsplit(3)),
    "vsplit": (base, lambda x: paddle.vsplit(x, 2)),
    "unstack": (base, lambda x: paddle.unstack(x, 0)),
    "expand": (row, lambda x: x.expand([2, 3, 4])),
    "expand, same shape": (base, lambda x: x.expand([2, 3, 4])),
    "expand_as": (row, lambda x: x.expand_as(base())),
    "broadcast_to": (row, lambda x: x.broadcast_to([2, 3, 4])),
    "broadcast_tensors": (base, lambda x: paddle.broadcast_tensors([x, paddle.zeros([1])])),
    "tile": (base, lambda x: x.tile([1, 1, 1])),
    "meshgrid": (lambda: paddle.arange(3.0), lambda x: paddle.meshgrid(x, paddle.zeros([2]))),
    "index_select": (base, lambda x: x.index_select(t([0]))),
    "index_select, all": (base, lambda x: x.index_select(t([0, 1]))),
    "gather": (base, lambda x: x.gather(t([0]))),
    "take_along_axis": (base, lambda x: x.take_along_axis(paddle.zeros([2, 3, 4], "int64"), 0)),
    "crop, full": (base, lambda x: paddle.crop(x, [2, 3, 4], [0, 0, 0])),
    "flip": (base, lambda x: x.flip(0)),
    "roll": (base, lambda x: x.roll(0)),
    "x[list]": (base, lambda x: x[[0]]),
    "x[1-d tensor]": (base, lambda x: x[t([0])]),
    "reshape, not contiguous": (base, lambda x: x.transpose([2, 1, 0]).reshape([12, 2])),
    "flatten, not contiguous": (base, lambda x: x[:, 1:].flatten()),
    "contiguous() of a view": (base, lambda x: x.transpose([2, 1, 0]).contiguous()),
    "clone": (base, lambda x: x.clone()),
    "assign": (base, lambda x: paddle.assign(x)),
    "to_tensor": (base, lambda x: paddle.to_tensor(x)),
    "cast, same dtype": (base, lambda x: x.cast("float32")),
    "to, same dtype": (base, lambda x: x.to("float32")),
    "dropout, eval": (base, lambda x: F.dropout(x, 0.5, training=False)),
    "concat of one": (base, lambda x: paddle.concat([x])),
    "add_n of one": (base, lambda x: paddle.add_n([x])),
    "pad 0": (base, lambda x: F.pad(x, [0, 0])),
    "x + 0": (base, lambda x: x + 0),
    "scale(1)": (base, lambda x: x.scale(1.0)),
    "relu": (base, lambda x: F.relu(x)),
    "diag": (square, lambda x: paddle.diag(x)),
    "tril": (square, lambda x: x.tril()),
    "where(c, x, x)": (base, lambda x: paddle.where(x >= 0, x, x)),
    "clip, wide": (base, lambda x: x.clip(-100, 100)),
}
TABLE = {**SHARES, **SAME, **COPIES}


def first(r):
    return r[0] if isinstance(r, (list, tuple)) else r


def on_argument(call):
    def f(x):
        r = first(call(x))
        r.fill_(77)
        a = x + 0
        x.fill_(55)
        return r, a, r + 0, r is x

    return f


def on_local(call):
    def f(x):
        y = x * 2
        r = first(call(y))
        r.fill_(77)
        a = y + 0
        y.fill_(55)
        return r, a, r + 0, r is y, y

    return f


class OnBuffer(nn.Layer):
    def __init__(self, make, call):
        super().__init__()
        self.register_buffer("b", make())
        self.call = call

    def forward(self, x):
        r = first(self.call(self.b))
        r.fill_(77)
        a = self.b + x.sum()
        self.b.fill_(55)
        return r, a, r + 0, r is self.b


def shares(x, r):
    """How the caller sees that two tensors are related: writes reach the other one or not."""
    if r is x:
        return "same object"
    before = x.numpy().copy()
    with paddle.no_grad():
        r.fill_(3)
        there = not np.array_equal(before, x.numpy())
        before = r.numpy().copy()
        x.fill_(4)
        back = not np.array_equal(before, r.numpy())
    return there, back


@pytest.mark.quick("x[0]", ".T", "atleast_3d", "expand_as", "add_n of one")
@pytest.mark.parametrize("name", TABLE)
def test_the_measured_table(name):
    make, call = TABLE[name]
    want_kind = "copies" if name in COPIES else "same object" if name in SAME else "shares"
    x = make()
    kind = shares(x, first(call(x)))
    assert kind == {"shares": (True, True), "copies": (False, False)}.get(want_kind, kind)
    f = on_argument(call)
    g = dy2st.to_static(f)
    x, y = make(), make()
    for k in range(2):
        want, have = f(x), g(y)
        check.same(have, want, what=f"argument, call {k}")
        check.same(y, x, what=f"argument, call {k}")
        assert shares(y, have[0]) == shares(x, want[0])


@pytest.mark.quick("reshape", "as_strided", "split", "flatten, not contiguous")
@pytest.mark.parametrize("name", TABLE)
def test_the_measured_table_on_tensors_of_the_program(name):
    make, call = TABLE[name]
    f = on_local(call)
    g = dy2st.to_static(f)
    want, have = f(make()), g(make())
    check.same(have, want)
    assert shares(have[-1], have[0]) == shares(want[-1], want[0])


@pytest.mark.quick("x[:]", "squeeze", "atleast_1d", "index_select, all", "tril")
@pytest.mark.parametrize("name", TABLE)
def test_the_measured_table_on_buffers(name):
    make, call = TABLE[name]
    eager, static = OnBuffer(make, call), dy2st.to_static(OnBuffer(make, call))
    x = paddle.zeros([2])
    for k in range(2):
        want, have = eager(x), static(x)
        check.same(have, want, what=f"call {k}")
        check.same(static.b, eager.b, what=f"call {k}")
        assert shares(static.b, have[0]) == shares(eager.b, want[0])


REFUSED = {
    "another dtype": (base, lambda x: x.view("int32"), "another dtype"),
    "another width": (base, lambda x: x.view("int64"), "another dtype"),
    "view of strides": (base, lambda x: x.transpose([2, 1, 0]).view([12, 2]), "strides"),
    "outside": (base, lambda x: paddle.as_strided(x, [4, 24], [24, 1]), "as_strided"),
    "odd offset": (base, lambda x: paddle.as_strided(x, [2], [1], 2), "as_strided"),
    "overlapping": (base, lambda x: x.unfold(2, 2, 1).add_(t(1.0)), "the same memory"),
    "part of it": (base, lambda x: x.unfold(2, 2, 1)[0, 0, 0].zero_(), "the same memory"),
    "set_": (base, lambda x: x.set_(paddle.zeros([2, 3, 4])), "given the memory"),
    "resize_": (base, lambda x: x.resize_([3, 8]), "given the memory"),
    "address": (base, lambda x: x.data_ptr(), "data_ptr"),
    "version": (base, lambda x: x.inplace_version, "inplace_version"),
    "shared buffer": (base, lambda x: x._is_shared_buffer_with(x.detach()), "shared_buffer"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    make, call, message = REFUSED[name]
    x = make()
    with pytest.raises(dy2st.SourceError, match=message):
        dy2st.to_static(lambda x: call(x))(x)
    check.same(x, make())
    assert x.inplace_version == 0


def test_replacing_the_data_of_a_tensor_is_refused():
    def f(x):
        y = x * 1
        y.data = paddle.zeros([2, 3, 4])
        return y

    with pytest.raises(dy2st.SourceError, match="x.data = y"):
        dy2st.to_static(f)(base())


OVERLAPPING = {
    "as_strided": lambda x: paddle.as_strided(x, [3, 3], [4, 1]),
    "unfold": lambda x: x.unfold(1, 2, 1),
    "unfold both": lambda x: x.unfold(0, 2, 1).unfold(1, 3, 1),
}


@pytest.mark.parametrize("name", OVERLAPPING)
def test_overlapping_views_are_read_and_returned(name):
    def f(x):
        y = x * 2
        v = OVERLAPPING[name](y)
        y[1].zero_()
        return v * 1, OVERLAPPING[name](x)

    g = dy2st.to_static(f)
    x, y = square(), square()
    for _ in range(3):
        want, have = f(x), g(y)
        check.same(have, want)
        have[1][0, 0].fill_(9)
        want[1][0, 0].fill_(9)
        check.same(y, x)


GRADIENTS = {
    "diagonal": lambda y: (y.diagonal() * paddle.arange(1.0, 5.0)).sum(),
    "diagonal of a view": lambda y: (y.t()[1:].diagonal(1) ** 2).sum(),
    "unfold": lambda y: (y.unfold(1, 2, 2) ** 2).sum(),
    "as_strided": lambda y: (paddle.as_strided(y, [3, 3], [4, 1], 4) ** 2).sum(),
    "strided_slice": lambda y: (paddle.strided_slice(y, [0], [3], [0], [-1]) ** 2).sum(),
    "narrow": lambda y: (y.narrow(1, 1, 2) ** 2).sum(),
    "reshape that copies": lambda y: (y.t().reshape([2, 8])[0] ** 2).sum(),
}  # fmt: skip


@pytest.mark.quick("as_strided")
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_views(name):
    def f(x):
        return GRADIENTS[name](x * 2)

    grads = []
    for g in (f, dy2st.to_static(f)):
        x = square() / 8
        x.stop_gradient = False
        for _ in range(2):
            g(x).backward()
        grads.append(x.grad)
    check.same(grads[1], grads[0])


def test_gradients_of_overlapping_windows_add_up():
    """Eager Paddle keeps one of the contributions."""

    def f(x):
        y = x * 2
        return (y.unfold(0, 2, 1).unfold(1, 3, 1) ** 3).sum()

    x = square() / 8
    x.stop_gradient = False
    dy2st.to_static(f)(x).backward()
    windows = np.outer([1, 2, 2, 1], [1, 2, 2, 1])
    np.testing.assert_allclose(x.grad.numpy(), windows * 24 * x.numpy() ** 2, rtol=1e-6)


WINDOWS = [(axis, size, step) for axis in (0, 1, 2, -1) for size in (1, 2, 3) for step in (1, 2, 4)]


@pytest.mark.parametrize("axis, size, step", WINDOWS)
def test_windows_along_an_axis(axis, size, step):
    """Read before and after a write to the base, written through where they do not overlap, and
    returned as views of an argument; also of a view that is not contiguous."""

    def f(x):
        y = x * 2
        v, w = y.unfold(axis, size, step), y.transpose([2, 0, 1]).unfold(axis, size, step)
        before = v * 1
        y[1].add_(t(1.0))
        if size <= step:
            v.scale_(3.0)
            w[0].add_(t(0.5))
        return before, v, w, y, x[:, 1:].unfold(axis, min(size, 2), step)

    x = paddle.randn([3, 3, 4])
    check.same(dy2st.to_static(f)(x.clone()), f(x.clone()))
    y, z = x.clone(), x.clone()
    for have, q in ((dy2st.to_static(f), y), (f, z)):
        have(q)[-1][0, 0].fill_(7.0)
    check.same(y, z)


@pytest.mark.parametrize("axis, size, step", [(0, 1, 1), (1, 2, 2), (2, 1, 3), (-1, 2, 4)])
def test_gradients_of_windows_that_are_written(axis, size, step):
    def f(x):
        y = x * x
        y.unfold(axis, size, step).scale_(3.0)
        return (y.unfold(axis, size, step) ** 2).sum() + (y * x).sum()

    inside = np.zeros([3, 3, 4])
    for start in range(0, inside.shape[axis] - size + 1, step):
        np.moveaxis(inside, axis, 0)[start : start + size] = 1
    x = paddle.randn([3, 3, 4], "float64")
    x.stop_gradient = False
    with pytest.warns(AliasWarning):
        dy2st.to_static(f)(x).backward()
    v, scale = x.numpy(), 1 + 2 * inside
    want = inside * 4 * scale**2 * v**3 + 3 * scale * v**2
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-10)


@pytest.mark.parametrize("shape, step", [([3, 2], 1), ([0, 4], 1), ([0, 4], 3)])
def test_windows_that_cannot_overlap_are_written(shape, step):
    """There is one of them, or they are empty."""

    def f(x):
        y = x * 2
        y.unfold(1, 2, step).add_(t(1.0))
        return y

    x = paddle.ones(shape)
    check.same(dy2st.to_static(f)(x), f(x))


def test_windows_of_a_named_size():
    def f(x):
        y = x * 2
        v = y.unfold(0, 3, 1)
        y[1] = 7.0
        return y, v, (v * 1).sum(-1)

    g = dy2st.to_static(f, [paddle.static.InputSpec([None, 3], "float32", "x")])
    for n in (3, 4, 7):
        x = paddle.randn([n, 3])
        check.same(g(x), f(x))
    for call in (f, g):
        with pytest.raises((ValueError, dy2st.SourceError), match=r"size\(3\) must be less"):
            call(paddle.randn([2, 3]))


def test_windows_of_a_row_that_data_chooses():
    def f(x, i):
        y = x * 2
        for k in range(3):
            y[i].unfold(0, 2, 2)[k % 2].add_(x[k, :2])
            i = (i + 1) % 4
        return y, y[i].unfold(0, 3, 1)

    x = square()
    for k in range(4):
        check.same(dy2st.to_static(f)(x, t(k)), f(x, t(k)))


@pytest.mark.parametrize("axes", [[0, 1], [1, 0]], ids=["rows", "columns"])
def test_windows_of_a_buffer_are_written_in_place(axes):
    class Sums(nn.Layer):
        def __init__(self):
            super().__init__()
            self.register_buffer("b", square())

        def forward(self, x):
            self.b.transpose(axes).unfold(1, 2, 2).add_(x)
            return x * 2

    eager, static = Sums(), dy2st.to_static(Sums())
    for _ in range(3):
        x = paddle.randn([4, 2, 2])
        check.same(static(x), eager(x))
        check.same(static.b, eager.b)
    (chain,) = (q for q in dy2st.report(static, x).chains if q.written)
    assert chain.in_place and ".unfold" in chain.links[-1].through


def test_the_gradient_through_a_written_diagonal_is_the_true_one():
    def f(x):
        y = x * x
        y.diagonal().scale_(3.0)
        return (y * paddle.arange(16.0).reshape([4, 4])).sum()

    x = square() / 8
    x.stop_gradient = False
    with pytest.warns(AliasWarning):
        dy2st.to_static(f)(x).backward()
    factor = np.where(np.eye(4) > 0, 3.0, 1.0)
    want = 2 * x.numpy() * np.arange(16.0).reshape(4, 4) * factor
    np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-6)


def test_views_of_named_sizes():
    spec = [paddle.static.InputSpec([None, 4], "float32", "x")]

    def f(x):
        y = x * 2
        y[-1].add_(t(1.0))
        v = y.t()
        v[1].zero_()
        return y.unsqueeze(0), v, v.is_contiguous(), y.is_contiguous()

    g = dy2st.to_static(f, spec)
    for n in (1, 3, 5):
        check.same(g(paddle.ones([n, 4])), f(paddle.ones([n, 4])))


def test_views_in_loops():
    def f(x):
        y = x * 1
        for k in range(3):
            y[k].diagonal().add_(t(1.0))
            y[k].unfold(1, 2, 2)[0].scale_(2.0)
            y.transpose([2, 1, 0])[k].add_(y[k])
        return y

    x = paddle.arange(48.0).reshape([3, 4, 4])[:, :3, :3].contiguous()
    want = f(copy.deepcopy(x))
    check.same(dy2st.to_static(f)(x), want)


def test_strided_views_in_a_file(tmp_path):
    def f(x):
        y = x * 2
        y.diagonal().add_(t(1.0))
        paddle.as_strided(y, [2, 2], [8, 2], 4).scale_(3.0)
        return y, y.unfold(1, 2, 1), x.diagonal(1)

    path = tmp_path / "views.dy2st"
    dy2st.save(f, path, input_spec=[paddle.static.InputSpec([4, 4], "float32", "x")])
    have, want = dy2st.load(path)(square().numpy()), f(square())
    for a, b in zip(have, want):
        np.testing.assert_array_equal(a, b.numpy())
