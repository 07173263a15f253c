"""Loops that take elements out of a list that was full before."""

import paddle
import pytest

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=12)


def u_net(x):
    skips, h = [], x[0]
    for t in range(x.shape[0]):
        h = paddle.tanh(h + x[t])
        skips.append(h)
    for t in range(x.shape[0]):
        h = h * 0.5 + skips.pop() * t
    return h, skips, len(skips)


def until_empty(x):
    skips, h, ys = [(x[0], x[0])], x[0], []
    for t in range(x.shape[0]):
        h = paddle.tanh(h + x[t])
        skips.append((h, x[t]))
    while len(skips) > 1:
        q, t = skips.pop()
        h = h * 0.5 + q * t + skips[-1][0]
    while skips:
        ys.append(skips.pop(0)[0] * h)
    return h, ys, skips


def from_both_ends(x):
    q, h = [x[0] * k for k in range(30)], x[0]
    r = q
    for _ in range(x.shape[0]):
        a, b = q.pop(), q.pop(0)
        h = h * 0.5 + a * b + r[0] - r[-1] + q[2]
    q.append(h)
    return h, q, r


def filled_again(x):
    state = {"s": []}
    s, h = state["s"], x[0]
    for t in range(x.shape[0]):
        s.append(h * t)
    for _ in range(x.shape[0]):
        h = h * 0.5 + state["s"].pop()
    for t in range(x.shape[0]):
        s.append(h * t)
    for _ in range(x.shape[0]):
        h = h * 0.5 + s.pop(0)
    return h, state


def in_branches(x):
    s, h = [x[0] * k for k in range(12)], x[0]
    if x.sum() > 0:
        for _ in range(x.shape[0]):
            h = h * 0.5 + s.pop()
    else:
        for _ in range(x.shape[0]):
            h = h * 0.4 + s.pop(0)
    return h, s


def stack_machine(x):
    st = [x[0], x[0] * 2]
    for t in range(x.shape[0]):
        b = st.pop()
        a = st.pop()
        st.append(a + x[t])
        st.append(a * b)
    return st


@pytest.mark.sampled(every=12)
@pytest.mark.filterwarnings("ignore::dy2st.CopyWarning")
@pytest.mark.parametrize("n", [1, 2, 9])
@pytest.mark.parametrize(
    "f",
    [u_net, until_empty, from_both_ends, filled_again, in_branches, stack_machine],
    ids=lambda f: f.__name__,
)
def test_loops_that_empty_a_list_are_one_loop(f, n):
    x = check.data(n, 3, seed=n)
    static = check.agree(f, x)
    assert n < 9 or "unrolled" not in str(dy2st.report(static, x))


def also_read(x):
    s, h = [x[0] * k for k in range(12)], x[0]
    for _ in range(x.shape[0]):
        h = h * 0.5 + s.pop() + sum(s) * 0.1
    for t in range(x.shape[0]):
        s.insert(0, h * t)
        h = h * 0.5 + s.pop()
    return h, s


def beside_a_table(x):
    """A queue that looks like an emptied list at first, beside a list of places."""
    ys, qs, h = [x[k % 2] for k in range(5)], [x[0] * k for k in range(10)], x[0]
    for t in range(3):
        ys[t + 1] = h + x[0]
        h = h * 0.5 + qs.pop(0)
        qs.append(h + ys[-1])
    return h, ys, qs


def put_in_front(x):
    ys, h = [x[0], x[1], x[0] * 2], x[0]
    for t in range(1, x.shape[0]):
        h = h * 0.5 + ys[(t * 5) % (t + 1)]
        ys.insert(0, h * 2)
    return h, ys


def cut_short(x):
    """A slice of what is left: at the end it has no element."""
    ys, h = [x[k % 2] * k for k in range(5)], x[0]
    for t in range(2, x.shape[0]):
        ys.pop()
        h = h * 0.5 + sum(ys[t - 1 : t])
    return h, ys


READ = [also_read, beside_a_table, put_in_front, cut_short]


@pytest.mark.filterwarnings("ignore::dy2st.CopyWarning")
@pytest.mark.parametrize("f", READ, ids=lambda f: f.__name__)
def test_a_list_that_is_also_read_or_changed(f):
    check.agree(f, check.data(6 if f is cut_short else 4, 3))


def test_too_few_elements():
    def f(x):
        s = [x[0] * k for k in range(3)]
        for _ in range(x.shape[0]):
            x = x + s.pop()
        return x

    static = dy2st.to_static(f)
    check.same(static(paddle.ones([3, 2])), f(paddle.ones([3, 2])))
    with pytest.raises(IndexError, match="pop from empty list"):
        static(paddle.ones([4, 2]))


@pytest.mark.slow
def test_an_index_that_has_been_taken_away():
    def f(x, n):
        s, h = [x[0] * k for k in range(6)], x[0]
        for t in range(n):
            h = h * 0.5 + s[t + 1]
            s.pop()
        return h, s

    static, x = dy2st.to_static(f), check.data(1, 3)
    for n in (2, 3):
        check.same(static(x, n), f(x, n), 1e-9, 1e-9)
    with pytest.raises(IndexError, match="list index out of range"):
        static(x, 4)


@pytest.mark.slow
def test_loops_that_empty_one_list_in_turn():
    """The inner loop of a loop that is unrolled finds the list as the one before has left it."""

    def f(x):
        q, h = [x[t] * 2 for t in range(x.shape[0])], x[0]
        for _ in range(x.shape[0] // 3):
            for _ in range(3):
                h = paddle.tanh(h + q.pop(0))
        return h, q

    static = dy2st.to_static(f)
    for n in (3, 7, 9):
        check.agree(static, check.data(n, 3, seed=n))


# ---------------------------------------------------------------- lists that have no element
def best_paths(scores, lengths):
    """Each sample goes back along its own steps (`torchcrf`)."""
    best, history = scores[0], []
    for t in range(1, scores.shape[0]):
        pairs = best.unsqueeze(2) + scores[t].unsqueeze(1)
        best = pairs.max(1)
        history.append(pairs.argmax(1))
    paths = []
    for b in range(scores.shape[1]):
        path = [best[b].argmax(0).item()]
        for steps in reversed(history[: lengths[b] - 1]):
            path.append(steps[b][path[-1]].item())
        path.reverse()
        paths.append(path)
    return paths


@pytest.mark.parametrize("steps", [1, 2, 7])
def test_paths_as_long_as_data_says(steps):
    static = dy2st.to_static(best_paths)
    for seed in range(2):
        scores = check.data(steps, 2, 4, seed=seed, trained=False)
        lengths = paddle.to_tensor([steps, 1])
        assert static(scores, lengths) == best_paths(scores, lengths)


def total(ys):
    return sum(ys)


def total_of_the_last(ys):
    return sum(ys[-2:])


def total_in_a_loop(ys):
    found = 0
    for y in ys:
        found = found + y * y
    return found


@pytest.mark.parametrize("total", [total, total_of_the_last, total_in_a_loop])
def test_sum_of_a_list_that_data_may_leave_empty(total):
    def until_positive(x):
        ys = []
        while x.sum() < 0:
            x = x + 1
            ys.append(x)
        return total(ys)

    static = dy2st.to_static(until_positive)
    for least in (-3.0, 0.0, -1.0):
        x = paddle.full([2], least)
        check.same(static(x), until_positive(x))
