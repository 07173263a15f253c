"""Sizes that data decides: what masks select, lengths from tensors, numbers that occur."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle.static import InputSpec

import dy2st
from tests.check import leaves, of_one_program, same

pytestmark = pytest.mark.sampled(every=10)

PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def lengths(x):
    return (x > 0).astype("int64").sum(1) + 1


# ---------------------------------------------------------------- masks
@program
def elements(x):
    p = x[x > 0]
    return p, p * 2 + 1, p.sum(), p.shape[0] * x, p * paddle.arange(p.shape[0], dtype="float32")


@program
def empty_or_mean(x):
    p = x[x > 0]
    if p.shape[0] == 0:
        return x.sum() * 0
    return p.mean()


@program
def logsumexp_of_none(x):
    """Negative infinity, where the largest is an error."""
    return paddle.logsumexp(x[x > 0]), paddle.logsumexp(x[x.sum(1) > 0], 0, keepdim=True)


@program
def rows(x):
    m = x[:, 0] > 0
    y = x[m]
    z = y.reshape([-1, 2, 3]).transpose([0, 2, 1]).flatten(1)
    return y, (y @ paddle.ones([6, 3])).sum(0), (y @ y.T).sum(), z, paddle.stack([y, y * 2], 1)


@program
def places_of_masks(x):
    y = x.reshape([2, 2, 6])
    row = x[0] > 0
    return x[:, row], x[..., row].sum(0), x[0, row], y[y[:, :, 0] > 0], x[x.sum() > 0]


@program
def masks_made_alike(x):
    return F.l1_loss(x[x > 0], (x * 2)[x > 0], "sum"), paddle.concat([x[x > 0], x[x < 0], x[0]])


@program
def a_tensor_written_between(x):
    y = x.clone()
    a = y[y > 0]
    y.add_(paddle.ones([]) * 0.5)
    return a.sum() + y[y > 0].sum() * 2


@program
def losses_of_known_labels(x):
    labels = paddle.to_tensor([0, -100, 2, 3])
    m = labels != -100
    wide, many = paddle.concat([x] * 8), paddle.concat([labels] * 8)
    k = many != -100
    return F.cross_entropy(x[m], labels[m]), F.cross_entropy(wide[k], many[k])


@program
def losses_of_rows(x):
    labels, m = lengths(x).clip(0, 5), x[:, 1] > 0
    a = F.cross_entropy(x[m], labels[m], reduction="sum")
    b = F.binary_cross_entropy_with_logits(x[m], (x[m] > 0.3).astype("float32"), reduction="sum")
    return a, b, F.smooth_l1_loss(x[m][:, 1:5], x[m][:, 2:6], reduction="sum")


@program
def in_loops(x):
    total, out = paddle.zeros([]), []
    for i in range(4):
        p = x[i][x[i] > 0]
        if p.shape[0] > 0:
            total = total + p.mean()
        out.append(p.sum())
    return total, paddle.stack(out)


@program
def a_mask_that_a_loop_writes(x):
    s, m = paddle.zeros([6]), (x[:, 0] > 0).astype("int64")
    for i in range(3):
        s = s + x[m > 0].sum(0)
        m[i] = 0
    return s


@program
def assigned(x):
    m, k = x[:, 0] > 0, x < 0
    y, z, w, v = x.clone(), x.clone(), x.clone(), paddle.zeros_like(x)
    y[k] = -x[k]
    z[m] = F.softmax(x[m], -1)
    w[m] = paddle.flip(x, 0)[paddle.flip(m, 0)]
    v[m] = paddle.tanh(x[m])
    return y, z, w, v


@program
def indices(x):
    i, j = paddle.nonzero(x > 0, as_tuple=True)
    k = paddle.where(x[:, 0] > 0)[0].flatten()
    picked = x[i.flatten(), j.flatten()].sum()
    written = paddle.scatter(paddle.zeros_like(x), k, x[x[:, 0] > 0] * 2)
    return i, j, paddle.nonzero(x), paddle.index_select(x, k, axis=0), picked, written


@program
def selected_by_a_call(x):
    return paddle.masked_select(x, x > 0), paddle.masked_select(x, (x[:1] > 0).expand_as(x)).sum()


@program
def statistics(x):
    p = x[x > -100]
    return p.std(), paddle.median(p), paddle.sort(x[x > 0]), F.layer_norm(x[x[:, 0] > 0], [6])


# ---------------------------------------------------------------- lengths
@program
def made_with_a_length(x):
    n = int(lengths(x).max())
    a = paddle.zeros([n, 3]), paddle.ones([4, lengths(x).max()]), paddle.full([n], 2.0)
    b = paddle.arange(n), paddle.eye(n), paddle.linspace(0, 1, n), paddle.tril(paddle.ones([n, n]))
    return *a, *b, x[:1].expand([n, 6]), x[:1].tile([n, 1]), F.pad(x, [0, 0, 0, n])


@program
def padding_masks(x):
    many = lengths(x)
    a = paddle.arange(many.max()) < many.unsqueeze(1)
    b = paddle.arange(many.max().item()).unsqueeze(0) < many.unsqueeze(1)
    return a, b, F.sequence_mask(many), F.sequence_mask(many, maxlen=int(many.max()))


@program
def where_of_a_padding_mask(x):
    many = lengths(x[:2, :3])
    n = paddle.maximum(many.max(), paddle.to_tensor(6))
    mask = paddle.arange(n).unsqueeze(0).expand([2, n]) >= many.unsqueeze(-1)
    y = paddle.where(mask, 0.0, x[:2])
    return y, paddle.where(mask, paddle.zeros_like(x[:2]), y=x[:2]), paddle.where(mask, 1.0, 2.0)


@program
def numbers_in_lists_as_long_as_data_says(x):
    many, out = lengths(x), []
    for b in range(2):
        path = [x[b, 0].item()]
        for t in range(int(many[b])):
            path.append(x[b, t % 6].item())
        path.reverse()
        ids = [0, 1]
        for t in range(int(many[b]) - 1):
            ids.append(int(x[b, t] * 10))
        out += [path, ids[::-1], ids[1:], [sum(ids)]]
    return tuple([paddle.to_tensor(q) for q in out])


@program
def segments(x):
    ids, reduced = lengths(x).sort(), paddle.geometric
    a = reduced.segment_sum(x, ids), reduced.segment_mean(x[:, 0], ids.astype("int32"))
    return *a, reduced.segment_max(x.round(), ids), reduced.segment_min(x, ids)


@program
def a_padded_batch(x):
    many = lengths(x).clip(max=6)
    n = int(many.max())
    y = paddle.zeros([4, n])
    for i in range(4):
        k = int(many[i])
        y[i, :k] = x[i, :k]
    parts = [x[i, : int(many[i])] for i in range(4)]
    z = paddle.stack([paddle.concat([p, paddle.zeros([n - p.shape[0]])]) for p in parts])
    return y, z


@program
def split_by_a_length(x):
    n = int(lengths(x)[0].clip(max=5))
    a, b = paddle.split(x, [n, 6 - n], axis=1)
    return a.sum() + b.sum() * 2


@program
def length_regulator(x):
    d = (x[:, 0] * 13).abs().astype("int64")
    y = paddle.repeat_interleave(x, d, axis=0)
    return y, paddle.tanh(y @ paddle.ones([6, 2])).sum(0), y.shape[0] * x


@program
def a_loop_over_repeated_frames(x):
    y = paddle.repeat_interleave(x, (x[:, 0] * 3).abs().astype("int64") + 1, axis=0)
    h, hs = paddle.zeros([6]), []
    for t in range(y.shape[0]):
        h = paddle.tanh(h + y[t])
        hs.append(h)
    return paddle.stack(hs)


@program
def compared(x):
    n, k = int((x[:, 0] * 13).abs().astype("int64").sum()), 0
    z = paddle.zeros([n])
    if z.shape[0] < 40:
        k += 1
    if z.shape[0] >= 0:
        k += 2
    if z.shape[0] > 5:
        k += 4
    return x * k


@program
def rows_padded_to_the_longest(x):
    d = (x[:, :3] * 2).abs().round().astype("int64") + 1
    parts = [paddle.repeat_interleave(x[b, :3], d[b], axis=0) for b in range(4)]
    n = max([p.shape[0] for p in parts])
    wide = [
        F.pad(p.unsqueeze(0).unsqueeze(0), [0, n - p.shape[0]], data_format="NCL") for p in parts
    ]
    return paddle.stack([p[0, 0] for p in wide])


@program
def experts(x):
    gate, y, z = x[:, :3].argmax(1), paddle.zeros_like(x), paddle.zeros_like(x)
    for e in range(3):
        m = gate == e
        i = paddle.nonzero(m).flatten()
        if i.shape[0] == 0:
            continue
        y = paddle.scatter(y, i, paddle.tanh(x[i] * (e + 1)))
        if m.any():
            z[m] = x[m] * (e + 1.0)
    return y, z


@program
def messages(x):
    edges = paddle.nonzero(x[:, :4] > -100)
    out = paddle.scatter_nd_add(paddle.zeros([4, 6]), edges[:, 1].unsqueeze(1), x[edges[:, 0]])
    return out / paddle.bincount(edges[:, 1], minlength=4)[:4].astype("float32").unsqueeze(1)


@program
def rows_that_stay(x):
    alive, out = x, []
    for t in range(3):
        alive = alive[alive[:, t] > 0] * 1.5
    for i in range(4):
        out.append(x[i][x[i] > 0])
    return alive, paddle.concat(out), *out


@program
def one_length_for_equal_numbers(x):
    d = (x[:, 0] * 3).abs().astype("int64")
    n = x.shape[1] * x.shape[0] // (int((x > 0).sum()) + 1)
    y = paddle.repeat_interleave(x, d, axis=0) + paddle.repeat_interleave(x * 2, d, axis=0)
    return y, paddle.zeros([n]) + paddle.ones([n]), x[paddle.linalg.svd(x)[1] > 0.5]


# ---------------------------------------------------------------- numbers that occur
@program
def counts(x):
    many = lengths(x)
    w = paddle.bincount(many, weights=x[:, 0].detach())
    return paddle.bincount(many), paddle.bincount(many, minlength=8), w


@program
def unique(x):
    many = lengths(x)
    found = paddle.unique(many, return_index=True, return_inverse=True, return_counts=True)
    sums = paddle.scatter_nd_add(paddle.zeros([found[0].shape[0], 6]), found[2].unsqueeze(1), x)
    return *found, sums, paddle.unique(x.round()), paddle.unique(x[x > 1].round())


@program
def ctc_collapse(x):
    ids = paddle.concat([x, x * 0.5, x - 1]).argmax(1)
    kept = paddle.unique_consecutive(ids)
    both = paddle.unique_consecutive(ids, return_inverse=True, return_counts=True)
    return kept[kept != 0], *both


def data(seed):
    """Elements of both signs, none that is positive, only such."""
    shift = {2: -9.0, 3: 9.0}.get(seed, 0.0)
    return paddle.to_tensor(np.random.RandomState(seed).randn(4, 6).astype("float32") + shift)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name):
    of_one_program(PROGRAMS[name], *map(data, range(5)))


@program
def two_masks_that_select_as_many(x):
    """Kernels, in-place calls and checks of Paddle that want two sizes to be equal."""
    a, b = F.sigmoid(x[x > 0]), F.sigmoid(x[-x < 0].detach() * 2)
    losses = F.binary_cross_entropy(a, b), F.smooth_l1_loss(a, b), paddle.dist(a, b)
    c, d = (a * 1).multiply_(b), a * 1
    with paddle.no_grad():
        d.set_value(b)
    return *losses, F.soft_margin_loss(a, paddle.sign(b)), c, (a + 1).add_(c).subtract_(b), d


# ---------------------------------------------------------------- named sizes, files, errors
def selection(x, m):
    return x[m], x[m].sum(0), paddle.nonzero(m)


def repeated(x, d):
    return paddle.repeat_interleave(x, d, axis=0)


@pytest.mark.parametrize("f,dtype", [(selection, "bool"), (repeated, "int64")])
def test_of_named_sizes_and_from_a_file(tmp_path, f, dtype):
    specs = [InputSpec([None, 6], "float32"), InputSpec([None], dtype)]
    static = dy2st.to_static(f, input_spec=specs)
    dy2st.save(f, str(tmp_path / "f"), input_spec=specs)
    loaded = dy2st.load(str(tmp_path / "f"))
    random = np.random.RandomState(0)
    for n in (5, 1, 40, 0):
        args = random.randn(n, 6).astype("float32"), random.randint(0, 9, [n]).astype(dtype)
        want = static(*map(paddle.to_tensor, args))
        if n:
            same(want, f(*map(paddle.to_tensor, args)))
        have = loaded(*args)
        same([np.asarray(q) for q in leaves(have)], [q.numpy() for q in leaves(want)])


def negative_repeats(x):
    return paddle.repeat_interleave(x, x[:, 0].astype("int64") - 1, axis=0)


def negative_length(x):
    return paddle.zeros([int(lengths(x).max()) - 9])


def negative_number(x):
    return paddle.bincount(lengths(x) - 5)


@pytest.mark.parametrize("f", [negative_repeats, negative_length, negative_number])
def test_errors_are_those_of_eager(f):
    static = dy2st.to_static(f)
    for g in (f, static, static):
        with pytest.raises(ValueError):
            g(data(2))


def other_losses(x):
    return F.smooth_l1_loss(x[x > 0], x[x < 0])


def other_products(x):
    return (x[x > 0] * 1).multiply_(x[x < 0])


def other_margins(x):
    return F.soft_margin_loss(x[x > 0], x[x < 0])


@pytest.mark.parametrize("f", [other_losses, other_products, other_margins])
def test_sizes_that_do_not_fit(f):
    """A ValueError, as in eager, without the names that sizes have in the program."""
    static, x = dy2st.to_static(f), paddle.to_tensor([1.0, -2.0, 3.0, -4.0, 5.0])
    for call in (f, static):
        with pytest.raises(ValueError) as raised:
            call(x)
    assert "n0" not in str(raised.value) and "size" in str(raised.value)
    same(static(x[:4]), f(x[:4]), what="as many")


def first_chosen(x, i):
    return x[x > 0][0] * 2


def last_but_one(x, i):
    return x[x > 0][-2]


def first_written(x, i):
    y = x[x > 0]
    y[0] = 5.0
    return y


def written_at_a_number(x, i):
    y = x[x > 0]
    y[i] = 5.0
    return y


@pytest.mark.parametrize("f", [first_chosen, last_but_one, first_written, written_at_a_number])
def test_an_index_behind_the_end(f):
    """As eager's, an IndexError, and without the name that a size has in the program."""
    static, i = dy2st.to_static(f), paddle.to_tensor(0)
    x = paddle.to_tensor([1.0, 2.0, -1.0])
    same(static(x, i), f(x, i), 0, 0, "two elements")
    for call in (f, static):
        with pytest.raises(IndexError) as raised:
            call(-x.abs(), i)
    assert "n0" not in str(raised.value) and "index is out of range" in str(raised.value)
