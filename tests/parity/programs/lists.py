"""Lists that a loop fills: stacked, joined, indexed, sliced, iterated; `pop`, `extend`, tuples."""

from __future__ import annotations

from collections import namedtuple

import paddle
from paddle import nn

from tests.parity.programs import program

Step = namedtuple("Step", "output score")


@program(x="f32[B,T,4]")
def append_then_stack(x):
    ys = []
    for t in range(x.shape[1]):
        ys.append(paddle.tanh(x[:, t]))
    return paddle.stack(ys, axis=1)


@program(x="f32[B,T,4]", quick=True)
def append_then_concat(x):
    ys = []
    for t in range(x.shape[1]):
        ys.append(x[:, t : t + 1] * 2)
    return paddle.concat(ys, axis=1)


@program(x="f32[B,T,4]")
def append_with_an_initial_element(x):
    ys = [paddle.zeros([x.shape[0], 4])]
    for t in range(x.shape[1]):
        ys.append(ys[-1] * 0.5 + x[:, t])
    return paddle.stack(ys, axis=1)


@program(x="f32[B,T,4]")
def plus_equals(x):
    ys = []
    for t in range(x.shape[1]):
        ys += [x[:, t] * 2]
    return paddle.stack(ys, axis=-1)


@program(x="f32[B,T,4]")
def two_appends_per_iteration(x):
    ys = []
    for t in range(x.shape[1]):
        ys.append(x[:, t])
        ys.append(-x[:, t])
    return paddle.stack(ys, axis=1)


@program(x="f32[B,T,4]")
def extend_by_a_pair(x):
    ys = []
    for t in range(x.shape[1]):
        ys.extend([x[:, t], x[:, t] * 2])
    return paddle.concat(ys, axis=-1)


@program(x="f32[B,T,4]")
def extend_a_list_by_a_list(x):
    front, back = [], []
    for t in range(x.shape[1]):
        front.append(x[:, t] * 2)
    for t in range(x.shape[1]):
        back.append(x[:, t] * 3)
    front.extend(back)
    return paddle.stack(front, axis=1), len(front)


@program(x="f32[B,T,4]")
def index_a_filled_list(x):
    ys = []
    for t in range(x.shape[1]):
        ys.append(x[:, t] * t)
    return ys[0] + ys[-1]


@program(x="f32[B,T,4]")
def slice_a_filled_list(x):
    ys = []
    for t in range(x.shape[1]):
        ys.append(x[:, t] + t)
    return paddle.stack(ys[::2], 1), len(ys[1:])


@program(x="f32[B,T,4]")
def second_half_of_a_filled_list(x):
    ys = []
    for t in range(x.shape[1]):
        ys.append(x[:, t] + t)
    return paddle.stack(ys[1:], 1), paddle.concat(ys[:-1], 1)


@program(x="f32[B,T,4]")
def reversed_filled_list(x):
    ys = []
    for t in range(x.shape[1]):
        ys.append(x[:, t] + t)
    ys = ys[::-1]
    return paddle.stack(ys, axis=1)


@program(x="f32[B,T,4]")
def iterate_a_filled_list(x):
    ys = []
    for t in range(x.shape[1]):
        ys.append(paddle.tanh(x[:, t]))
    s = paddle.zeros([x.shape[0], 4])
    for y in ys:
        s = s * 0.5 + y
    for k, y in enumerate(reversed(ys)):
        s = s - y * k
    return s


@program(x="f32[B,T,4]")
def fill_then_index_in_a_loop(x):
    ys, out = [], []
    for t in range(x.shape[1]):
        ys.append(x[:, t] * 2)
    for t in range(x.shape[1]):
        out.append(ys[t] - ys[len(ys) - 1 - t])
    return paddle.stack(out, 1)


@program(x="f32[B,T,4]", quick=True)
def length_of_a_filled_list(x):
    ys = []
    for t in range(x.shape[1]):
        ys.append(x[:, t])
    return sum_of(ys) / len(ys) if ys else paddle.zeros([1])


def sum_of(ys):
    total = ys[0]
    for y in ys[1:]:
        total = total + y
    return total


@program(x="f32[B,T,4]")
def sum_of_a_filled_list(x):
    ys = []
    for t in range(x.shape[1]):
        ys.append(x[:, t] * 2)
    return sum(ys)


@program(x="f32[B,T,4]")
def comprehension_over_a_range(x):
    return paddle.stack([paddle.tanh(x[:, t]) for t in range(x.shape[1])], axis=1)


@program(x="f32[T,4]")
def comprehension_over_rows(x):
    ys = [row * 2 for row in x]
    return ys, paddle.stack([y.sum() for y in ys])


@program(x="f32[T,4]", y="f32[T,4]")
def comprehension_over_zip(x, y):
    return paddle.stack([a @ b for a, b in zip(x, y)])


@program(x="f32[B,T,4]")
def list_of_pairs(x):
    steps, h = [], paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = paddle.tanh(h + x[:, t])
        steps.append((h, h.sum(-1)))
    states, scores = zip(*steps)
    return paddle.stack(states, 1), paddle.stack(scores, 1)


@program(x="f32[B,T,4]")
def list_of_pairs_taken_apart(x):
    steps = []
    for t in range(x.shape[1]):
        steps.append((x[:, t] * 2, x[:, t].max()))
    s = paddle.zeros([x.shape[0], 4])
    for y, m in steps:
        s = s + y * m
    return s, paddle.stack([m for _, m in steps])


@program(x="f32[B,T,4]")
def list_of_named_tuples(x):
    steps = []
    for t in range(x.shape[1]):
        steps.append(Step(x[:, t] * 2, x[:, t].sum()))
    return paddle.stack([q.output for q in steps], 1), steps[-1].score


@program(x="f32[B,T,4]")
def two_lists(x):
    ys, scores = [], []
    for t in range(x.shape[1]):
        y = x[:, t] * 2
        ys.append(y)
        scores.append(y.sum(-1))
    return {"ys": paddle.stack(ys, 1), "scores": scores}


@program(x="f32[B,T,4]")
def dict_of_lists(x):
    log = {"h": [], "norm": []}
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = paddle.tanh(h + x[:, t])
        log["h"].append(h)
        log["norm"].append((h * h).sum())
    return paddle.stack(log["h"], 1), paddle.stack(log["norm"])


@program(x="f32[2,T,4]")
def list_of_lists(x):
    rows = []
    for b in range(2):
        row = []
        for t in range(x.shape[1]):
            row.append(x[b, t] * (b + 1))
        rows.append(paddle.stack(row))
    return paddle.stack(rows)


@program(x="f32[B,T,4]")
def append_in_both_loops(x):
    ys = []
    for t in range(x.shape[1]):
        for k in range(3):
            ys.append(x[:, t] * k)
    return paddle.stack(ys, 1)


@program(x="f32[B,T,4]", quick=True)
def append_before_and_after(x):
    ys = [x.sum(1)]
    for t in range(x.shape[1]):
        ys.append(x[:, t])
    ys.append(ys[0] * 2)
    return paddle.stack(ys, 1)


@program(x="f32[B,T,4]")
def pop_the_last(x):
    ys = [paddle.zeros([x.shape[0], 4])]
    for t in range(x.shape[1]):
        ys.append(x[:, t])
    last = ys.pop()
    return last, paddle.stack(ys, 1) if ys else last


@program(x="f32[B,T,4]")
def queue_of_two(x):
    queue = [paddle.zeros([x.shape[0], 4]), paddle.ones([x.shape[0], 4])]
    out = []
    for t in range(x.shape[1]):
        out.append(queue.pop(0) + x[:, t])
        queue.append(x[:, t])
    return out, queue


@program(x="f32[B,T,4]")
def inserted_in_front(x):
    ys = []
    for t in range(x.shape[1] - 1, -1, -1):
        ys.insert(0, x[:, t] * 2)
    return ys


@program(x="f32[B,T,4]", fixed="a list of None as long as the size")
def preallocated_list(x):
    ys = [None] * x.shape[1]
    for t in range(x.shape[1]):
        ys[t] = x[:, t] * 2
    return paddle.stack(ys, 1)


@program(x="f32[B,T,4]")
def append_numbers_and_tensors(x):
    ys, marks = [], []
    for t in range(x.shape[1]):
        ys.append(x[:, t])
        marks.append(t)
    return paddle.stack(ys, 1), marks


@program(x="f32[T,4]", least=1)
def append_in_one_branch_only(x):
    kept = []
    for t in range(x.shape[0]):
        if t % 2 == 0:
            kept.append(x[t])
    return paddle.stack(kept)


@program(x="f32[B,T,4]")
class BidirectionalByHand(nn.Layer):
    def __init__(self):
        super().__init__()
        self.forth, self.back = nn.SimpleRNNCell(4, 3), nn.SimpleRNNCell(4, 3)

    def forward(self, x):
        h = paddle.zeros([x.shape[0], 3])
        left, right = [], []
        for t in range(x.shape[1]):
            _, h = self.forth(x[:, t], h)
            left.append(h)
        h = paddle.zeros([x.shape[0], 3])
        for t in reversed(range(x.shape[1])):
            _, h = self.back(x[:, t], h)
            right.append(h)
        right.reverse()
        both = [paddle.concat([a, b], -1) for a, b in zip(left, right)]
        return paddle.stack(both, 1)
