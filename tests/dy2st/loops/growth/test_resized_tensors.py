"""Tensors of loops and branches of which data decides the size, step by step."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle.static import InputSpec

import dy2st
from tests.check import of_one_program, same, with_gradient

pytestmark = pytest.mark.sampled(every=5)

PROGRAMS = {}


def program(f):
    PROGRAMS[f.__name__] = f
    return f


def overlaps(box, boxes):
    low, high = paddle.maximum(box[:2], boxes[:, :2]), paddle.minimum(box[2:], boxes[:, 2:])
    inner = (high - low).clip(min=0).prod(1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    return inner / ((box[2:] - box[:2]).prod() + areas - inner)


def boxes_of(x):
    return paddle.concat([x[:, :2], x[:, :2] + x[:, 2:4].abs() + 0.5], 1), x[:, 4]


# ---------------------------------------------------------------- selections get shorter
@program
def suppressed(x):
    """As the `nms` of Fast R-CNN's `py_cpu_nms.py`."""
    boxes, scores = boxes_of(x)
    order, keep = paddle.argsort(scores, descending=True), []
    while order.shape[0] > 0:
        i = order[0]
        keep.append(i)
        overlap = overlaps(boxes[i], boxes[order[1:]])
        chosen = paddle.nonzero(overlap <= 0.3).flatten()
        order = paddle.gather(order, chosen + 1)
    return boxes[paddle.stack(keep)], len(keep)


@program
def suppressed_with_a_break(x):
    boxes, scores = boxes_of(x)
    order, keep = paddle.argsort(scores, descending=True), []
    while order.size > 0:
        keep.append(order[0])
        if order.shape[0] == 1:
            break
        rest = order[1:]
        order = rest[overlaps(boxes[keep[-1]], boxes[rest]) <= 0.3]
    return paddle.stack(keep)


@program
def softly_suppressed(x):
    """Soft-NMS: scores decay, and boxes go below a threshold."""
    boxes, scores = boxes_of(x)
    scores, found = F.sigmoid(scores), []
    while len(scores) > 0:
        i = paddle.argmax(scores)
        found.append(paddle.concat([boxes[i], scores[i : i + 1]]))
        decayed = scores * paddle.exp(-(overlaps(boxes[i], boxes) ** 2) / 0.5)
        keep = paddle.logical_and(decayed > 0.3, paddle.arange(scores.shape[0]) != i)
        boxes, scores = boxes[keep], decayed[keep]
    return paddle.stack(found)


@program
def classes_suppressed(x):
    boxes, scores = boxes_of(x)
    out = [boxes[:1]]
    for c in range(2):
        some = paddle.abs(scores - c) < 0.8
        order = paddle.argsort(scores[some], descending=True)
        own, keep = boxes[some], []
        while order.shape[0] > 0:
            keep.append(order[0])
            order = order[1:][overlaps(own[order[0]], own[order[1:]]) <= 0.3]
        if len(keep) > 0:
            out.append(own[paddle.stack(keep)])
    return paddle.concat(out)


@program
def slices_of_a_length_from_data(x):
    x, total = x.flatten(), paddle.zeros([])
    while x.shape[0] > 0:
        k = int(x[0].abs() * 3) + 1
        total = total * 0.5 + x[:k].sum() * x.shape[0]
        x = x[k:]
    return total, x


@program
def clipped_by_deviations(x):
    x = x.flatten()
    while True:
        inside = (x - x.mean()).abs() < 1.2 * x.std() + 0.5
        if bool(inside.all()):
            break
        x = x[inside]
    return x, x.mean()


@program
def quickly_selected(x):
    x, k = x.flatten(), 4
    while True:
        low, high = x[x < x[0]], x[x > x[0]]
        if k < low.shape[0]:
            x = low
        elif k >= x.shape[0] - high.shape[0]:
            k, x = k - (x.shape[0] - high.shape[0]), high
        else:
            return x[0]


@program
def beams_that_finish(x):
    alive, total = x, paddle.zeros([])
    for _ in range(8):
        if alive.shape[0] == 0:
            break
        alive = paddle.tanh(alive) * 1.3
        done = alive.sum(1) > 1
        total, alive = total + alive[done].sum(), alive[~done]
    return total, alive


@program
def pruned_particles(x):
    weights = x.abs().sum(1)
    for t in range(5):
        chosen = weights > 0.8 * t
        x, weights = paddle.tanh(x[chosen]) * 1.1, weights[chosen]
    return x, weights, x.shape[0]


@program
def moved_in_place(x):
    """A filter whose particles move in place, before those of small weight go."""
    particles, weights = x * 1, paddle.ones([x.shape[0]])
    for _ in range(4):
        particles[:, 0] += particles[:, 1] * 0.1
        weights *= paddle.exp(-(particles[:, 0] ** 2))
        chosen = weights > 0.3
        particles, weights = particles[chosen], weights[chosen]
    return particles, weights


@program
def halting(x):
    """Adaptive computation time: rows leave when their halting units sum up to one."""
    out, halts, active = paddle.zeros_like(x), paddle.zeros([x.shape[0]]), paddle.arange(x.shape[0])
    steps = 0
    while active.shape[0] > 0 and steps < 6:
        h = paddle.tanh(x[active] * (steps + 1))
        out = paddle.scatter_nd_add(out, active.unsqueeze(1), h)
        halts = paddle.scatter_nd_add(halts, active.unsqueeze(1), F.sigmoid(h.sum(1)))
        active = active[halts[active] < 1.5]
        steps += 1
    return out, halts, steps


@program
def active_set(x):
    x = x.flatten().abs() + 0.1
    active, rounds = paddle.nonzero(x > 0).flatten(), 0
    while active.shape[0] > 0 and rounds < 40:
        new = 0.5 * (x[active] + 2.0 / x[active])
        moved = (new - x[active]).abs()
        x = paddle.scatter(x, active, new)
        active = active[moved > 1e-2]
        rounds += 1
    return x, rounds


# ---------------------------------------------------------------- and longer
@program
def breadth_first(x):
    n = x.shape[0]
    near = paddle.abs(x[:, :1] - x[:, 0]) < 0.5
    distance, front, d = paddle.full([n], -1, "int64"), paddle.zeros([1], "int64"), 0
    while front.shape[0] > 0:
        fresh = paddle.logical_and(near[front].any(0), distance < 0)
        d += 1
        distance = paddle.where(fresh, paddle.full_like(distance, d), distance)
        front = paddle.nonzero(fresh).flatten()
    return distance


@program
def a_queue(x):
    n = x.shape[0]
    near = paddle.abs(x[:, :1] - x[:, 0]) < 0.5
    distance, queue = paddle.full([n], -1, "int64"), paddle.zeros([1], "int64")
    while queue.shape[0] > 0:
        v, queue = queue[0], queue[1:]
        fresh = paddle.logical_and(near[v], distance < 0)
        distance = paddle.where(fresh, distance[v] + 2, distance)
        queue = paddle.concat([queue, paddle.nonzero(fresh).flatten()])
    return distance


@program
def events(x):
    queue, steps, total = x[:, 0], 0, paddle.zeros([])
    while queue.shape[0] > 0 and steps < 20:
        first = queue.min()
        total, queue = total * 0.9 + first, queue[queue > first]
        if first < 1.0:
            queue = paddle.concat([queue, (first + 0.8).reshape([1])])
        steps += 1
    return total, steps, queue


@program
def speculative_decoding(x):
    table = paddle.argsort(x.flatten())
    ids, steps = table[:2], 0
    while ids.shape[0] < 20:
        token, draft = ids[-1], []
        for _ in range(4):
            token = table[token]
            draft.append(token)
        draft = paddle.stack(draft)
        target = (draft * 3 + ids.shape[0]) % table.shape[0]
        right = (draft % 3 == target % 3).astype("int64")
        n = int(paddle.cumprod(right, 0).sum())
        ids = paddle.concat([ids, draft[:n], target[n : n + 1]])
        steps += 1
    return ids[:20], steps


# ---------------------------------------------------------------- where they leave a loop
@program
def returned_from_a_loop(x):
    y = x.flatten()
    for t in range(6):
        y = y[y > -1 + 0.4 * t]
        if y.sum() > 6:
            return y * 2, t
        if y.shape[0] < 3:
            return y, t + 10
    return y, 100


@program
def of_the_last_iteration(x):
    y, total = x.flatten(), paddle.zeros([])
    while y.shape[0] > 2:
        before, z = y, y[y > 0]
        while z.shape[0] > 1:
            z = z[z < z.max()]
            total = total * 0.9 + z.sum()
        y = y[y > y.min()][:-1]
    return before, z, total, before.shape[0] - y.shape[0]


@program
def collected_slices(x):
    """The test says that there is an element: a slice of one has one."""
    y, found = x.flatten(), []
    while y.shape[0] > 0:
        found.append(y[:1])
        y = y[1:][y[1:] > y[0]]
    return paddle.concat(found)


# ---------------------------------------------------------------- in branches and containers
@program
def in_branches(x):
    y = x.flatten()
    if y.sum() > 0:
        y = y[y > 0.5]
    z = y[y < 1] if y.shape[0] > 3 else y * 2
    return y, z.sum(), z


@program
def in_containers(x):
    state, pair = {"x": x.flatten(), "n": 0}, [x[:, 0], x[:, 1]]
    for t in range(3):
        state["x"] = state["x"][state["x"] < 1.5 - 0.5 * t]
        state["n"] = state["n"] + state["x"].shape[0]
        pair[0] = pair[0][pair[0] > -1.5 + 0.3 * t]
    return state["x"], state["n"], pair[0].sum(), pair[1]


# ---------------------------------------------------------------- as eager
def data(seed, n=6):
    return paddle.to_tensor(np.random.RandomState(seed).randn(n, 5).astype("float32"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name):
    static = of_one_program(PROGRAMS[name], *map(data, range(5)))
    assert "unrolled" not in str(dy2st.report(static, data(0))) or name == "classes_suppressed"


@pytest.mark.parametrize(
    "name", ["suppressed", "slices_of_a_length_from_data", "pruned_particles", "a_queue"]
)
def test_of_named_sizes(name):
    f = PROGRAMS[name]
    static = dy2st.to_static(f, input_spec=[InputSpec([None, 5], "float32")])
    for n in (7, 1, 20):
        same(
            with_gradient(static, data(n, n)), with_gradient(f, data(n, n)), 1e-4, 1e-4, f"{n} rows"
        )


def test_an_order_that_gets_shorter_bounds_its_loop():
    """A list that is filled while a tensor gets shorter has room for the elements of that."""
    for name in ("suppressed", "suppressed_with_a_break"):
        text = str(dy2st.program(dy2st.to_static(PROGRAMS[name]), data(0)))
        assert "capacity" not in text and "while %t < 7" in text


def test_without_elements():
    static = dy2st.to_static(f := PROGRAMS["beams_that_finish"])
    for x in (data(0)[:0], data(0)[:1]):
        same(with_gradient(static, x)[0], with_gradient(f, x)[0])


def test_the_callers_own_tensor_is_copied():
    def f(x):
        y = x
        while y.sum() > 0:
            y = y[y > y.mean()]
        return y

    for x in (data(0)[0], -data(0)[0].abs()):
        with pytest.warns(dy2st.CopyWarning):
            have = dy2st.to_static(f)(x)
        same(have, f(x))


def test_a_tensor_of_a_loop_that_does_not_run_is_not_defined():
    def f(x):
        k = 0
        while x.sum() > k:
            y = x[x > 0.1 * k]
            k += 1
        return y

    static = dy2st.to_static(f)
    same(static(data(0)[0].abs()), f(data(0)[0].abs()))
    with pytest.raises(UnboundLocalError, match="'y' is set only if the loop runs"):
        static(-data(0)[0].abs())


def test_a_tensor_with_two_names_is_not_written():
    def f(x):
        y = x * 1
        z = y
        while y.shape[0] > 1:
            y.add_(paddle.to_tensor(0.5))
            y = y[y > y.min()]
        return y, z

    with pytest.raises(dy2st.SourceError, match="written in place and bound to another name"):
        dy2st.to_static(f)(data(0)[0])


def test_a_size_that_doubles_is_refused():
    def f(x):
        while x.sum() < 100:
            x = paddle.concat([x[x > 0], x[x > 0]])
        return x

    with pytest.raises(dy2st.SourceError, match="nothing bounds the size of x"):
        dy2st.to_static(f)(data(0)[0])
