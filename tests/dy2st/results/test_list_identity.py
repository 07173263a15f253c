"""Elements of lists that loops have filled are one tensor in every list and result, or a warning
says that they are copies: those of a second list that has them."""

from __future__ import annotations

import collections
import itertools
import warnings

import paddle
import pytest

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=12)


def appended(x):
    return [row * 2 for row in x]


def stored(x):
    u = [x[0] * 1, x[1] * 1, x[2] * 1, x[3] * 1]
    for i in range(len(u)):
        u[i] = u[i] * 0.5 + x[0]
    return u


def partly_stored(x):
    u = [row * 1 for row in x]
    for i in range(2):
        u[i] = u[i] * 0.5 + x[0]
    return u


def replaced(x):
    u = [x[k] * 1 for k in range(4)]
    for row in x:
        u.append(u[0] * 0.5 + row)
        u.pop(0)
    return u


def ended_by_a_break(x):
    u = []
    for row in x:
        u.append(row * 2)
        if row.sum() > 12:
            break
    return u


def ended_by_data(x):
    u = []
    while x.sum() > 2:
        x = x * 0.5
        u.append(x * 2)
    return u


def of_states(x):
    u, h = [], x[0]
    for row in x:
        h = h + row
        u.append(h)
    return u


def of_views(x):
    return [row for row in x]


def popped(u):
    v = list(u)
    return [[v.pop()], [v.pop(0)], v]


def grown(u):
    v = u[1:]
    v.append(u[0] + 1)
    v.insert(0, u[0] + 2)
    return [v, v[1:3]]


def rotated(u):
    first, v = u[0], u[1:]
    v.append(first)
    return [v, [first]]


def collected(u):
    v = []
    for q in u:
        v.append(q)
    return [v, [q for q in u], [*u], v[:2]]


def written(u):
    v = u[:]
    v[0].add_(paddle.ones([2]))
    u[1].zero_()
    return [v]


def joined(u):
    v = [u[0] + 1] + u
    return [u + [u[1] * 2], v, v[1:]]


def backwards(u):
    v = u.copy()
    v.reverse()
    return [v, u[::-1], [q for q in reversed(u)]]


TAKES = {
    "slice": lambda u: [u[:]],
    "windows": lambda u: [u[1:], u[-2:], u[:2], u[::2], u[1:][1:]],
    "elements": lambda u: [[u[0]], [u[-1]], [u[1]], [u[:][0]]],
    "copies": lambda u: [list(u), u.copy(), list(tuple(u)), list(collections.deque(u))],
    "other containers": lambda u: [[u[1:2][0]], list({"a": u[0], "b": u[1]}.values())],
    "views of elements": lambda u: [[u[0][1:]], [u[1].reshape([1, -1])]],
    "popped": popped, "grown": grown, "rotated": rotated, "collected": collected,
    "written": written, "joined": joined, "backwards": backwards,
}  # fmt: skip
#: refused by name: the number of elements, or the memory that a write reaches, depends on data
REFUSED = {("ended_by_a_break", "copies"), ("ended_by_data", "copies"), ("replaced", "written")}
FILLS = [appended, stored, partly_stored, replaced, ended_by_a_break, ended_by_data, of_states,
         of_views]  # fmt: skip


def same_objects(lists):
    """Which tensors of two lists are one object."""
    pairs = itertools.product(lists, repeat=2)
    return [[[p is q for q in b] for p in a] for a, b in pairs]


def outcome(f, x):
    """The lists, which of their tensors are one, and all values after a write to each."""
    lists = f(x)
    before = [[q.numpy() for q in u] for u in lists]
    for k, u in enumerate(lists):
        if u:
            u[0].add_(paddle.full([], 10.0 * (k + 1)))
    return same_objects(lists), before, lists, x


@pytest.mark.paired
@pytest.mark.parametrize("take", TAKES)
@pytest.mark.parametrize("fill", FILLS, ids=lambda f: f.__name__)
def test_an_element_is_one_tensor_wherever_it_is(fill, take):
    def f(x):
        u = fill(x)
        return [u, *TAKES[take](u)]

    static = dy2st.to_static(f)
    for seed in (1, 2):
        paddle.seed(seed)
        x = paddle.rand([4, 2]) * 4 + 1
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            have = check.outcome(lambda x: outcome(static, x), [x.clone()])
        copied = any(q.category is dy2st.CopyWarning for q in told)
        want = check.outcome(lambda x: outcome(f, x), [x.clone()])
        if (fill.__name__, take) in REFUSED:
            assert isinstance(have, dy2st.SourceError)
            continue
        assert type(have) is type(want)
        if isinstance(want, Exception):
            continue
        check.same(have[1], want[1])
        if copied:
            return
        assert have[0] == want[0]
        check.same(have[2:], want[2:])


def test_tuples_of_tensors_keep_their_parts():
    def f(x):
        u = [(row * 2, row + 1) for row in x]
        return [q[0] for q in u], [b for _, b in u], [u[0][1]], [q for p in u[1:] for q in p]

    x = paddle.rand([4, 2])
    with pytest.warns(dy2st.CopyWarning):
        check.same(dy2st.to_static(f)(x), f(x))


def test_a_list_joined_with_a_tensor_of_another_shape():
    def f(x):
        u = [row * 2 for row in x]
        return u + [x], [x, *u][:2]

    x = paddle.rand([4, 2])
    check.same(dy2st.to_static(f)(x), f(x))


class Before(paddle.nn.Layer):
    """Lists that loops fill, with elements from before."""

    def __init__(self):
        super().__init__()
        self.register_buffer("h", paddle.ones([2]))
        self.kept = [paddle.ones([2]), paddle.zeros([2])]

    def forward(self, x):
        y = x * 2
        states, pairs, numbers = [self.h, x, y], [(y, self.kept[1])], [0, 1]
        for t in range(3):
            states.append(states[-1] * 0.5 + self.h)
            pairs.append((x * t + self.kept[1], y * 0.5))
            numbers.append(t * 3)
        return states, pairs, numbers, y


def test_elements_from_before_a_loop_are_those_of_eager():
    eager, static = Before(), dy2st.to_static(Before())
    for _ in range(3):
        found = []
        for layer in (eager, static):
            x = paddle.to_tensor([1.0, -2.0])
            states, pairs, numbers, y = layer(x)
            assert states[0] is layer.h and states[1] is x and states[2] is y
            assert pairs[0][0] is y and pairs[0][1] is layer.kept[1]
            layer.h.add_(y)
            found.append((states, pairs, numbers))
        check.same(found[1], found[0])


def test_such_lists_are_saved(tmp_path):
    def f(x):
        y = x * 2
        states, pairs = [x, y], [(y, 1)]
        for t in range(3):
            states.append(states[-1] * 0.5 + x)
            pairs.append((x * t, 2))
        return states, pairs

    spec = [paddle.static.InputSpec([2], "float32", "x")]
    dy2st.save(f, tmp_path / "before", input_spec=spec)
    x = paddle.to_tensor([1.0, -2.0])
    results = (dy2st.load(tmp_path / "before")(x.numpy()), f(x))
    check.same(*(paddle.utils.map_structure(paddle.to_tensor, q) for q in results))


def picked_layers(layers, x):
    ys = []
    for layer in layers:
        x = paddle.tanh(layer(x))
        ys.append(layer.weight)
    return x, ys


def picked_tensors(tensors, x):
    ys = []
    for i in range(len(tensors)):
        x = x + tensors[i]
        ys.append((x, tensors[i].reshape([3, 1])))
    return x, ys


@pytest.mark.parametrize(
    "f, items",
    [
        (picked_layers, [paddle.nn.Linear(3, 3) for _ in range(12)]),
        (picked_tensors, [paddle.rand([3]) for _ in range(12)]),
    ],
)
def test_a_loop_collects_tensors_of_the_caller_as_copies(f, items):
    """It had no warning."""
    x = paddle.rand([3])
    static = dy2st.to_static(lambda x: f(items, x))
    with pytest.warns(dy2st.CopyWarning):
        check.same(static(x), f(items, x))


def one_of_two(u, c):
    return u[1] if c > 0 else u[0] * 2


def deeper(u, c):
    if c > 0:
        return u[1] if c > 2 else u[0]
    return u[0] * 2


def in_a_while(u, c):
    y = u[0] * 2
    while c < 1:
        c, y = c + 1, u[1]
    return y


def in_a_while_in_a_branch(u, c):
    if c > 0:
        y, n = u[0] * 2, c * 0
        while n < 2:
            n, y = n + 1, u[1]
    else:
        y = u[0] * 3
    return y


def view_of_one(u, c):
    return u[1][:2] if c > 0 else u[0][:2] * 1


def at_an_index_from_data(u, c):
    return u[(c > 2).astype("int64").item()] if c > 0 else u[0] * 2


@pytest.mark.parametrize("c", [3.0, 1.0, -1.0])
@pytest.mark.parametrize(
    "choose",
    [one_of_two, deeper, in_a_while, in_a_while_in_a_branch, view_of_one, at_an_index_from_data],
)
def test_an_element_that_a_branch_or_a_loop_chooses(choose, c):
    def f(x, c, kept):
        u = stored(x)
        kept[0] = choose(u, c)
        return u

    x, c, seen = paddle.ones([4, 3]), paddle.to_tensor(c), []
    for g in (dy2st.to_static(f), f):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", dy2st.CopyWarning)
            kept = [x]
            u = g(x, c, kept)
        values = [kept[0].tolist(), [q.tolist() for q in u]]
        kept[0].add_(paddle.ones([1]))
        after = [q.tolist() for q in u], [q is kept[0] for q in u]
        seen.append((values, after, any(q.category is dy2st.CopyWarning for q in told)))
    (values, after, told), (wanted, wanted_after, _) = seen
    assert values == wanted and (after == wanted_after or told)
    assert not told or choose in (view_of_one, at_an_index_from_data)


def test_tensors_of_one_loop_and_dicts_of_another():
    def f(x):
        ys = []
        for row in x:
            ys.append(row * 2.0)
        for row in x:
            ys.append({"row": row * 3.0})
        return ys

    x = paddle.arange(6, dtype="float32").reshape([3, 2])
    check.same(dy2st.to_static(f)(x), f(x))
