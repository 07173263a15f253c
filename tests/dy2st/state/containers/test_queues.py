"""Long queues in a loop: a carry for each element."""

from __future__ import annotations

import collections

import paddle
import pytest

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=36)


def queue_of_zeros(x, k):
    q = collections.deque([paddle.zeros_like(x[0])] * k, maxlen=k)
    h = x[0]
    for row in x:
        y = q[0]
        h = paddle.tanh(h + y + row)
        q.append(h)
    return h, list(q)


def taken_from_the_left(x, k):
    q = collections.deque([x[0] * i for i in range(k)])
    ys = []
    for row in x:
        y = q.popleft()
        q.append(y * 0.5 + row)
        ys.append(y + q[-1] + q[2])
    return paddle.stack(ys), q[0], q[-1]


def list_popped_in_front(x, k):
    q = [x[0] * i for i in range(k)]
    h = x[0]
    for row in x:
        h = h * 0.5 + q.pop(0) + row
        q.append(h)
    return paddle.stack(q)


def made_anew(x, k):
    q = [x[0] * i for i in range(k)]
    for row in x:
        q = q[1:] + [q[0] * 0.5 + q[k // 2] + row]
    return q[0], q[-1], paddle.concat(q)


def inserted_in_front(x, k):
    q = [x[0] * i for i in range(k)]
    for row in x:
        q.insert(0, q[-1] * 0.5 + row)
        q.pop()
    return q


def two_at_once(x, k):
    q = collections.deque([x[0]] * k, maxlen=k)
    for row in x:
        y = q[0] + q[1]
        q.append(y * 0.5 + row)
        q.append(y * 0.1 - row)
    return list(q)


def whole_queue(x, k):
    q = collections.deque([x[0] * i for i in range(k)], maxlen=k)
    h = x[0]
    for row in x:
        q.append(h * 0.1 + row)
        h = paddle.stack(list(q)).mean(0)
    return h


def numbers(x, k):
    q = [0.5 * i for i in range(k)]
    y = x[0]
    for t in range(x.shape[0]):
        f = q.pop(0)
        q.append(f * 0.5 + t)
        y = y * 0.5 + x[t] * f
    return y, q


def shifted_in_some_iterations(x, k):
    q = [x[0]] * k
    for row in x:
        if row.sum() > 0:
            q = q[1:] + [q[0] * 0.5 + row]
    return q


QUEUES = [
    queue_of_zeros, taken_from_the_left, list_popped_in_front, made_anew, inserted_in_front,
    two_at_once, whole_queue, numbers, shifted_in_some_iterations,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("f", QUEUES, ids=lambda f: f.__name__)
def test_queues(f):
    """For more and for fewer iterations than there are elements."""

    def g(x):
        return f(x, 12)

    for n in (1, 2, 5, 12, 13, 25, 40):
        static = check.agree(g, check.data(n, 3, seed=n))
    report = str(dy2st.report(static, check.data(40, 3))).splitlines()
    assert not [q for q in report if "unrolled" in q and "taken apart" not in q]


def test_any_number_of_iterations():
    spec = [paddle.static.InputSpec([None, 3], "float64", "x")]
    static = dy2st.to_static(lambda x: queue_of_zeros(x, 12), input_spec=spec)
    for n in (1, 5, 12, 13, 30):
        x = check.data(n, 3, seed=n)
        x.stop_gradient = True
        check.same(static(x), queue_of_zeros(x, 12))


def test_as_many_iterations_as_data_says():
    def f(x, limit):
        q = collections.deque([x * i for i in range(10)], maxlen=10)
        h = x
        while h.sum() < limit:
            h = h + q[0] * 0.1 + 1
            q.append(h)
        return h, list(q)

    static, x = dy2st.to_static(f), paddle.ones([2])
    for limit in (1.0, 3.0, 40.0, 100.0):
        limit = paddle.to_tensor(limit)
        check.same(static(x, limit), f(x, limit))


def first_element_written_behind(x):
    z = x[0] * 1.0
    q = collections.deque([z] * 10, maxlen=10)
    for row in x:
        q.append(row * 2)
    z.add_(x[0])
    return paddle.stack(list(q)), z


def element_written_behind(x):
    z = x[0] * 1.0
    q = collections.deque([z] * 10, maxlen=10)
    for row in x:
        q.append(row * 2)
    q[0].add_(x[0])
    return paddle.stack(list(q)), z


WRITTEN = [first_element_written_behind, element_written_behind]


@pytest.mark.parametrize("f", WRITTEN, ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", [3, 12])
def test_a_write_to_an_element_is_refused(f, n):
    """After a short loop the queue still has its first elements, which are all one tensor here."""
    with pytest.raises(dy2st.SourceError, match="a write that cannot be followed"):
        dy2st.to_static(f)(check.data(n, 3))


class Layers(paddle.nn.Layer):
    """Two layers with queues of their own, kept between the calls."""

    def __init__(self):
        super().__init__()
        self.convs = paddle.nn.LayerList([paddle.nn.Linear(6, 3) for _ in range(2)])
        self.queues = [collections.deque([paddle.zeros([3])] * k, maxlen=k) for k in (9, 18)]

    def forward(self, x):
        out = []
        h = x[0]
        for t in range(x.shape[0]):
            h = h + x[t]
            for conv, queue in zip(self.convs, self.queues):
                y = queue[0]
                queue.append(h)
                h = paddle.tanh(conv(paddle.concat([y, h], -1)))
            out.append(h)
        return paddle.stack(out)


@pytest.mark.slow
def test_queues_of_layers_stay_between_calls():
    eager, model = Layers(), Layers()
    model.set_state_dict(eager.state_dict())
    static = dy2st.to_static(model)
    with paddle.no_grad():
        for n in (1, 7, 30, 11):
            x = paddle.rand([n, 3])
            check.same(static(x), eager(x), 1e-5, 1e-5)
            for have, want in zip(model.queues, eager.queues):
                check.same(list(have), list(want), 1e-5, 1e-5)
        assert "unrolled" not in str(dy2st.report(static, x))
