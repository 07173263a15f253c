"""Lists to which an iteration appends a data-dependent number of elements."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests import check
from tests.dy2st.state.containers.test_list_reads import rolls

pytestmark = pytest.mark.sampled(every=18)


def some_rows(x):
    ys, zs, h = [], [x.sum(0)], x.sum(0)
    for t, row in enumerate(x):
        h = paddle.tanh(h * 0.5 + row)
        if h.sum() > 0:
            ys.append((h, t))
            continue
        zs += [h, row * 2]
    s = x.sum(0)
    for y, k in reversed(ys):
        s = s * 0.5 + y * k
    return s, [y for y, _ in ys], paddle.stack(zs), zs[-1], len(ys)


def collapsed(x):
    """The labels of a greedy search of CTC."""
    labels, times, previous = [], [], None
    for t, row in enumerate(x):
        k = row.argmax().item()
        if k != 0 and (t == 0 or k != previous):
            labels.append(k)
            times.append(t)
        previous = k
    labels.append(7)
    return labels, times, len(times), paddle.to_tensor(labels), paddle.to_tensor([times + [1]])


def transducer(x):
    """Up to three symbols for each frame."""
    symbols, scores, h = [0], [], x.sum(0)
    for row in x:
        for _ in range(3):
            logits = paddle.tanh(row + h)
            k = logits.argmax()
            if k == 0:
                break
            symbols.append(int(k))
            scores.append(logits[k])
            h = paddle.tanh(h + logits * 0.7)
        scores.append(row.sum())
    return symbols, scores


def transducer_by_while(x):
    symbols, h, t, n = [], x.sum(0), 0, 0
    while t < x.shape[0]:
        k = (row := paddle.tanh(x[t] + h)).argmax()
        if int(k) == 0 or n >= 3:
            t, n = t + 1, 0
        else:
            n += 1
            symbols.append(int(k))
            h = paddle.tanh(h + row)
    return symbols, h


def until_a_limit(x):
    ys = []
    for row in x:
        if row[0] > 1.2:
            break
        if row[1] > 0:
            ys.append(row)
        elif row[2] > 0:
            ys.append(row * 2)
        if row[2] < -1:
            continue
        ys.append(row + 1)
    return ys, len(ys)


def in_loops_of_two_levels(x):
    ys = []
    for i in range(x.shape[0]):
        for j in range(3):
            if x[i, j] > 0.5:
                ys = ys + [x[i] * j]
    return sum(ys, x.sum(0))


def unless_repeated(x):
    """The list's last element decides, is read behind the branch, and begins the next one."""
    ys, h = [x.sum(0)], x.sum(0)
    for row in x:
        if (paddle.tanh(row + ys[-1] * 0.3) - ys[-1]).sum() > 0:
            ys.append(ys[-1] * 0.5 + row * h)
        h = ys[-1] * 0.7
    return paddle.stack(ys), h, len(ys)


def rising_numbers(x):
    ys = []
    for t, row in enumerate(x):
        if t == 0 or float(row.sum()) > ys[-1]:
            ys.append(float(row.sum()))
    return ys, ys[-1] if ys else None


def until_large(x):
    ys = [x.sum(0)]
    for row in x:
        y = ys[-1] * 0.5 + row
        if y.sum() > 4:
            break
        if y.sum() > 0:
            ys.append(y)
    return paddle.stack(ys), ys[-1]


LOOPS = (
    some_rows, collapsed, transducer, transducer_by_while, until_a_limit,
    in_loops_of_two_levels, unless_repeated, rising_numbers, until_large,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dy2st.CopyWarning")
@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_it_is_one_loop(f):
    rolls(f, lengths=(0, 1, 2, 5))


@pytest.mark.slow
def test_pairs():
    """How many there are is known."""

    def pairs(x):
        ys, zs = [], []
        for i in range(x.shape[0]):
            for j in range(i):
                ys.append((x[i] * x[j]).sum())
            for j in range(i + 1, x.shape[0]):
                zs.append((x[i] - x[j], i + 2 * j, 7))
        return [z * (k - i) for z, k, i in zs], len(zs), paddle.stack(ys) if ys else x

    for n in (6, 0, 1, 2):
        check.agree(static := dy2st.to_static(pairs), x := check.data(n, 3))
        assert "unrolled" not in str(dy2st.report(static, x))


def losses(x, bound):
    """No loop."""
    found, h = [x.square().sum()], x.sum(0)
    if found[0] > bound:
        found.append(paddle.tanh(found[0]))
    if h.sum() > 0:
        found.append(h.max())
    return sum(found), len(found), paddle.stack(found)


def test_behind_a_branch():
    static, counts = dy2st.to_static(losses), set()
    for seed in range(6):
        x, bound = check.data(3, 3, seed=seed), paddle.to_tensor(9.0, "float64")
        check.agree(static, x, bound)
        counts.add(losses(x, bound)[1])
    assert counts == {1, 2, 3}


@pytest.mark.slow
def test_lengths_that_data_and_sizes_give():
    def of_sizes(x):
        ys = []
        for t in range(x.shape[0]):
            for u in range(x.shape[1]):
                if x[t, u] > 0.9:
                    break
                if x[t, u] > 0:
                    ys.append(x[t, u] * 2)
        return ys

    def of_data(x, n):
        ys = []
        for t in range(int(n)):
            if x[t, 0] > 0:
                ys.append(x[t] * 2)
        return ys

    sizes = dy2st.to_static(of_sizes, [paddle.static.InputSpec([None, None], "float64")])
    numbers = dy2st.to_static(of_data)
    for n, m in ((3, 4), (0, 2), (5, 0), (7, 3)):
        check.agree(sizes, x := check.data(n, m, seed=n))
        if m:
            check.agree(numbers, x, paddle.to_tensor(n))


def test_a_piece_whose_size_the_branch_finds_is_refused():
    def f(x, n):
        pieces = [x]
        if x.sum() > 0:
            pieces.append(x[: int(n)] * 2)
        return paddle.concat(pieces)

    with pytest.raises(dy2st.SourceError, match="length of a list depends on data"):
        dy2st.to_static(f)(paddle.ones([4, 3]), paddle.to_tensor(2))
