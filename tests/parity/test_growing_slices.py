"""Sizes that move with the index of a loop: slices up to a step, inner loops over the index.

Each function gives what eager gives, with its gradient, for several lengths by one translation, and
its loops stay loops: the program is the same for 20 and for 400 iterations.
"""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle.static import InputSpec

import dy2st
from tests import check
from tests.parity.models.idioms_decoding import GPT

pytestmark = pytest.mark.sampled(every=48)

LENGTHS = (5, 2, 1, 8, 0, 5)
WIDTH = 4


# ---------------------------------------------------------------- slices
def prefix_sums(x):
    out = paddle.zeros([x.shape[1]], x.dtype)
    for t in range(x.shape[0]):
        out = out * 0.5 + paddle.tanh(x[: t + 1]).sum(0)
    return out


def suffixes_and_prefixes(x):
    rows = []
    for t in range(x.shape[0]):
        rows.append(x[t:].mean(0) * x[:t].sum(0) + x[t + 1 :].sum())
    return rows


def from_the_end(x):
    out, n = paddle.zeros([x.shape[1]], x.dtype), x.shape[0]
    for t in range(n):
        out = out + x[n - 1 - t :].sum(0) * x[: n - t].sum(0)
    return out


def sizes_in_python(x):
    out = paddle.zeros([x.shape[1]], x.dtype)
    for t in range(x.shape[0]):
        y = x[: t + 1]
        n = y.shape[0]
        out = out + y.sum(0) / n + (paddle.ones([n, 1], x.dtype) * y).sum(0) * (n - 1)
        if n == t + 1:
            out = out * 0.5
    return out


def shapes(x):
    """reshape, transpose, concat, stack, an index and a slice of such values."""
    out = paddle.zeros([x.shape[1]], x.dtype)
    for t in range(x.shape[0]):
        y = paddle.concat([x[:t], x[t : t + 1] * 2], 0)
        z = paddle.stack([y, y.reshape([-1, 2]).reshape([t + 1, WIDTH])], 1)
        w = z.transpose([2, 0, 1]).reshape([WIDTH, -1])
        out = out + w.sum(1) * y[0] + y[-1] + y[t] + y.T[0, : t + 1].sum()
    return out


def written(x):
    k = paddle.zeros_like(x)
    for t in range(x.shape[0]):
        k[: t + 1] = k[: t + 1] * 0.5 + x[: t + 1]
        k[t:] *= 0.9
        row = k[: t + 1, 1]
        row += 1.0
    return k


def softmax_over_the_past(x):
    scores = x @ x.T
    rows = []
    for t in range(x.shape[0]):
        a = F.softmax(scores[t, : t + 1] / 2, axis=-1)
        rows.append(a @ x[: t + 1])
    return rows


def normalised(x):
    out = paddle.zeros([x.shape[1]], x.dtype)
    for t in range(x.shape[0]):
        y = F.gelu(F.layer_norm(x[: t + 1], WIDTH))
        out = out + y.mean(0) + y.max(0) + y.cumsum(0)[-1] + paddle.where(y > 0, y, -y).sum(0)
    return out


def batched_attention(x):
    """Two heads over [B, T, D] with the past of each row."""
    b, n, _ = x.shape
    rows = []
    for t in range(n):
        q = x[:, t : t + 1].reshape([b, 1, 2, 2]).transpose([0, 2, 1, 3])
        k = x[:, : t + 1].reshape([b, t + 1, 2, 2]).transpose([0, 2, 1, 3])
        a = F.softmax(paddle.matmul(q, k, transpose_y=True), -1)
        rows.append(paddle.matmul(a, k).transpose([0, 2, 1, 3]).reshape([b, 4]))
    return rows


def cache_in_place(x):
    """`K[p:p+1] = k`, read up to p, with the result fed back."""
    keys = paddle.zeros([x.shape[0], x.shape[1]], x.dtype)
    h = x.mean(0) * 0
    for p in range(x.shape[0]):
        keys[p : p + 1] = (x[p] + h * 0.5).unsqueeze(0)
        a = F.softmax(x[p] @ keys[: p + 1].T, -1)
        h = a @ keys[: p + 1]
    return h, keys


def cache_in_lists(x):
    """`cache_in_place`, as eager differentiates it."""
    keys, h = [], x.mean(0) * 0
    for p in range(x.shape[0]):
        keys.append(x[p] + h * 0.5)
        past = paddle.stack(keys)
        h = F.softmax(x[p] @ past.T, -1) @ past
    return h, paddle.stack(keys)


def branch_on_data(x):
    out = paddle.zeros([x.shape[1]], x.dtype)
    for t in range(x.shape[0]):
        y = x[: t + 1]
        if y.sum() > 0:
            out = out + y.sum(0)
        else:
            out = out - y.mean(0) * t
    return out


def by_while(x):
    out, t = paddle.zeros([x.shape[1]], x.dtype), 0
    while t < x.shape[0]:
        out = out + x[: t + 1].sum(0)
        t += 1
    return out


def while_on_data(x):
    out, t = paddle.zeros([x.shape[1]], x.dtype), 0
    while t < x.shape[0] and out.abs().sum() < 9.0:
        out = out + paddle.tanh(x[: t + 1]).sum(0)
        t += 1
    return out


def left_by_break(x):
    out = paddle.zeros([x.shape[1]], x.dtype)
    for t in range(x.shape[0]):
        out = out + paddle.tanh(x[: t + 1]).sum(0)
        if (out.abs() > 3.0).any():
            break
    return out


def last_prefix(x):
    """The variable is used behind the loop: it is the slice of the last iteration."""
    y = x
    for t in range(x.shape[0]):
        y = x[: t + 1]
    return y.sum(0) * 2


# ---------------------------------------------------------------- inner loops
def triangle(x):
    out = paddle.zeros([x.shape[1]], x.dtype)
    for i in range(x.shape[0]):
        for j in range(i):
            out = out + x[i] * x[j] * (j + 1)
    return out


def upper_triangle(x):
    out, n = paddle.zeros([x.shape[1]], x.dtype), x.shape[0]
    for i in range(n):
        for j in range(i, n):
            out = out + x[i] * x[j] * (j - i)
    return out


def band(x):
    out, n = paddle.zeros([x.shape[1]], x.dtype), x.shape[0]
    for i in range(n):
        for j in range(i, min(i + 2, n)):
            out = out + x[i] * x[j]
    return out


def three_deep(x):
    out = paddle.zeros([x.shape[1]], x.dtype)
    for i in range(x.shape[0]):
        for j in range(i):
            for k in range(j + 1):
                out = out + x[i] * x[j] * x[k : j + 1].sum(0)
    return out


def slices_of_slices(x):
    out = paddle.zeros([x.shape[1]], x.dtype)
    for t in range(x.shape[0]):
        y = x[: t + 1]
        for j in range(t + 1):
            out = out + y[j] * y[j : t + 1].sum(0)
    return out


def inner_lists(x):
    """A list that lives in one iteration has as many elements as that says."""
    out = paddle.zeros([x.shape[1]], x.dtype)
    for t in range(x.shape[0]):
        products = []
        for j in range(t + 1):
            products.append(x[j] * x[t])
        out = out + paddle.tanh(paddle.stack(products)).sum(0)
    return out


def enumerated(x):
    out = paddle.zeros([x.shape[1]], x.dtype)
    for t, row in enumerate(x):
        for j, other in enumerate(x[:t]):
            out = out + row * other * j
    return out


def forward_substitution(x):
    """A triangular system, row by row, in place."""
    n = x.shape[0]
    a, y = x @ x.T + n * paddle.eye(n, dtype=x.dtype), paddle.zeros_like(x)
    for i in range(n):
        s = x[i]
        for j in range(i):
            s = s - a[i, j] * y[j]
        y[i] = s / a[i, i]
    return y


VECTORS = (
    prefix_sums, suffixes_and_prefixes, from_the_end, sizes_in_python, shapes, written,
    softmax_over_the_past, normalised, cache_in_place, branch_on_data, by_while, while_on_data,
    left_by_break, last_prefix, triangle, upper_triangle, band, three_deep, slices_of_slices,
    inner_lists, enumerated, forward_substitution,
)  # fmt: skip
FUNCTIONS = (*VECTORS, batched_attention)
#: eager refuses to differentiate them: a tensor that an op has kept is written in place
IN_PLACE = (cache_in_place, forward_substitution)
names = {"ids": lambda f: getattr(f, "__name__", None)}


def shape_of(f, n):
    return (2, n, WIDTH) if f is batched_attention else (n, WIDTH)


def spec(f):
    return [InputSpec([d if d != 0 else None for d in shape_of(f, 0)], "float64")]


def values(f, n, seed=0):
    return check.data(*shape_of(f, n), seed=seed)


def same_as_eager(f, n):
    """Two calls, with what they do to the generator; returns the translation."""
    static = dy2st.to_static(f)
    for seed in range(2):
        args = [values(f, n, seed).detach()]
        have, want = (check.observe(q, args, seed=seed) for q in (static, f))
        if not check.both_raise(have, want):
            check.equal(have, want, f"call {seed}", rtol=1e-9, atol=1e-9)
    return static


def gradients(f, x):
    x = check.detached(x)
    out = f(x)
    loss = check.weighted(out)
    if loss is not None:
        loss.backward()
    return out, check.gradient_of(x)


@pytest.mark.parametrize("f", FUNCTIONS, **names)
@pytest.mark.parametrize("n", [0, 1, 7])
def test_fixed_length(f, n):
    same_as_eager(f, n)


@pytest.mark.parametrize("f", [f for f in FUNCTIONS if f not in IN_PLACE], **names)
def test_gradients(f):
    check.agree(f, values(f, 6))


def test_the_gradient_of_a_cache_that_is_written_in_place():
    x = values(cache_in_place, 6)
    have, want = gradients(dy2st.to_static(cache_in_place), x), gradients(cache_in_lists, x)
    check.same(have[0], want[0], rtol=1e-9, atol=1e-9)
    check.close(have[1], want[1], 1e-9, "gradient")


@pytest.mark.parametrize("f", FUNCTIONS, **names)
def test_one_translation_for_every_length(f):
    """Results and gradients, with lengths in any order."""
    static = dy2st.to_static(f, spec(f))
    for n in LENGTHS:
        x = values(f, n, seed=n)
        x.stop_gradient = f in IN_PLACE or (f is written and n == 0)
        want = check.outcome(gradients, (f, x))
        have = check.outcome(gradients, (static, x))
        if isinstance(want, Exception):
            assert isinstance(have, Exception), (n, want)
            continue
        if isinstance(have, Exception):
            raise have
        check.same(have[0], want[0], rtol=1e-9, atol=1e-9, what=f"n = {n}")
        check.close(have[1], want[1], 1e-9, f"n = {n}: gradient")


@pytest.mark.parametrize("f", FUNCTIONS, **names)
def test_loops_stay_loops(f):
    """The same program for 20 and 400 steps, forward and backward."""
    static = dy2st.to_static(f)
    lines = []
    for n in (20, 400):
        x = values(f, n)
        report = dy2st.report(static, x)
        assert "unrolled" not in str(report), report
        lines.append(len(str(dy2st.program(static, x)).splitlines()))
    assert lines[0] == lines[1]


# ---------------------------------------------------------------- what leaves the loop
def carried(x):
    y = x[:1]
    for t in range(x.shape[0]):
        y = x[: t + 1] * 2 + y.sum()
    return y


def collected(x):
    ys = []
    for t in range(x.shape[0]):
        ys.append(x[: t + 1] * 2)
    return ys


def cut_short(x):
    out = paddle.zeros([x.shape[1]], x.dtype)
    for t in range(x.shape[0]):
        out = out + x[t - 3 : t].sum(0)
    return out


def test_slices_that_are_collected_unroll_the_loop():
    static = same_as_eager(collected, 6)
    report = str(dy2st.report(static, values(collected, 6)))
    reason = "appended to a list, and its size moves with the index: f64[t+1,4]"
    assert "unrolled" in report and reason in report, report


def test_a_slice_that_is_carried_grows():
    static = same_as_eager(carried, 6)
    report = str(dy2st.report(static, values(carried, 6).detach()))
    assert "scan" in report and "unrolled" not in report, report


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 7, 30])
def test_a_slice_that_python_cuts_short_splits_the_loop(steps):
    static = same_as_eager(cut_short, steps)
    report = str(dy2st.report(static, values(cut_short, steps).detach()))
    assert "unrolled" not in report or steps < 5, report


# ---------------------------------------------------------------- a decoder
def gpt(steps):
    paddle.seed(0)
    return GPT(steps)


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_greedy_decoder(steps):
    check.parity(gpt(steps), lambda: [paddle.to_tensor(np.array([3, 1, 4])[: min(3, steps)])])


@pytest.mark.slow
def test_the_decoder_is_one_loop():
    prompt = paddle.to_tensor([3, 1, 4])
    lines = []
    for steps in (20, 400):
        static = dy2st.to_static(gpt(steps))
        assert "unrolled" not in str(dy2st.report(static, prompt))
        lines.append(len(str(dy2st.program(static, prompt)).splitlines()))
    assert lines[0] == lines[1]


@pytest.mark.parametrize("n", [1, 4])
def test_the_index_is_the_size_of_a_result_of_paddles_kernel(n):
    def f(x):
        total = x.sum()
        for t in range(1, n):
            drawn = x.index_select(paddle.randperm(t + 1), 0)
            total = total + drawn.sum() * paddle.eye(t).sum() + paddle.topk(x[:, 0], k=t)[0].sum()
        return total

    static, x, found = dy2st.to_static(f), check.data(4, 3, trained=False), []
    for g in (f, static):
        paddle.seed(3)
        found.append(check.observe(g, [x]))
    check.equal(found[1], found[0])
    assert n == 1 or "the index gives the size" in str(dy2st.report(static, x))
