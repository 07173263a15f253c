"""What a loop carries: variables, attributes, slots of lists and dicts, counters, floats."""

from __future__ import annotations

import paddle
from paddle import nn

from tests.parity.programs import by_call, program


@program(x="f32[B,T,4]")
def none_before_the_loop(x):
    h = None
    for t in range(x.shape[1]):
        h = x[:, t] if h is None else paddle.tanh(h + x[:, t])
    return h


@program(x="f32[B,T,4]")
def number_before_the_loop(x):
    s = 0
    for t in range(x.shape[1]):
        s = s + x[:, t]
    return s


@program(x="f32[B,T,4]")
def float_before_the_loop(x):
    s = 0.0
    for t in range(x.shape[1]):
        s += x[:, t].mean() * 0.5
    return s


@program(x="f32[B,T,4]")
def first_defined_in_the_body(x):
    for t in range(x.shape[1]):
        y = x[:, t] * 2
        z = y + t
    return y, z


@program(x="f32[B,T,4]")
def swapped_variables(x):
    a, b = paddle.zeros([x.shape[0], 4]), paddle.ones([x.shape[0], 4])
    for t in range(x.shape[1]):
        a, b = b, paddle.tanh(a + x[:, t])
    return a, b


@program(x="f32[B,T,4]", quick=True)
def previous_value(x):
    previous, s = paddle.zeros([x.shape[0], 4]), paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        s = s + (x[:, t] - previous).abs()
        previous = x[:, t]
    return s, previous


@program(x="f32[B,T,4]")
def counters(x):
    i, j, k = 0, 10, x.shape[1]
    s = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        s = s + x[:, t] * i - j + k
        i += 1
        j -= 2
        k = k + 3
    return s, i, j, k


@program(x="f32[B,T,4]")
def float_that_decays(x):
    rate, s = 1.0, paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        s = s + rate * x[:, t]
        rate = rate * 0.9
    return s, rate


@program(x="f32[B,T,4]")
def float_that_grows(x):
    time, s = 0.0, paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        s = s + x[:, t] * time
        time += 0.1
    return s, time


@program(x="f32[4]")
def euler_steps(x):
    dt, time = 0.1, 0.0
    while time < 1.0:
        x = x + dt * (-x + time)
        time += dt
    return x, time


@program(x="f32[B,T,4]")
def number_that_flips(x):
    sign, s = 1, paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        s = s + sign * x[:, t]
        sign = -sign
    return s, sign


@program(x="f32[B,T,4]")
def pair_of_states(x):
    state = (paddle.zeros([x.shape[0], 4]), paddle.zeros([x.shape[0], 4]))
    for t in range(x.shape[1]):
        h, c = state
        c = 0.5 * c + x[:, t]
        h = paddle.tanh(c + h)
        state = (h, c)
    return state


@program(x="f32[B,T,4]")
def nested_states(x):
    zero = paddle.zeros([x.shape[0], 4])
    state = {"a": (zero, zero), "b": [zero]}
    for t in range(x.shape[1]):
        h, c = state["a"]
        state["a"] = (paddle.tanh(h + x[:, t]), c + h)
        state["b"] = [state["b"][0] * 0.5 + c]
    return state


@program(x="f32[B,T,4]")
def list_of_pairs_of_states(x):
    states = [(paddle.zeros([x.shape[0], 4]), paddle.zeros([x.shape[0], 4])) for _ in range(2)]
    for t in range(x.shape[1]):
        y = x[:, t]
        for k, (h, c) in enumerate(states):
            c = c * 0.5 + y
            h = paddle.tanh(h + c)
            states[k] = (h, c)
            y = h
    return states


@program(x="f32[B,T,4]")
def slots_of_a_dict(x):
    d = {"h": paddle.zeros([x.shape[0], 4]), "n": 0}
    for t in range(x.shape[1]):
        d["h"] = paddle.tanh(d["h"] + x[:, t])
        d["n"] += 1
    return d


@program(x="f32[B,T,4]", states=["f32[B,4]", "f32[B,4]"])
def slots_of_an_argument(x, states):
    new = list(states)
    for t in range(x.shape[1]):
        new[0] = paddle.tanh(new[0] + x[:, t])
        new[1] = new[1] * 0.5 + new[0]
    return new


@program(x="f32[B,T,4]")
class AttributeInALoop(nn.Layer):
    def __init__(self):
        super().__init__()
        self.h = paddle.zeros([4])
        self.steps = 0

    def forward(self, x):
        for t in range(x.shape[1]):
            self.h = paddle.tanh(self.h + x[:, t].sum(0))
            self.steps += 1
        return self.h * 2


class Cell(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.h = None

    def reset(self, batch):
        self.h = paddle.zeros([batch, 4])

    def forward(self, x):
        self.h = paddle.tanh(self.linear(x) + self.h)
        return self.h


@program(x="f32[B,T,4]")
class AttributeOfASublayer(nn.Layer):
    def __init__(self):
        super().__init__()
        self.cell = Cell()

    def forward(self, x):
        self.cell.reset(x.shape[0])
        ys = []
        for t in range(x.shape[1]):
            ys.append(self.cell(x[:, t]))
        return paddle.stack(ys, 1)


@program(x="f32[B,T,4]", quick=True)
class DottedAttribute(nn.Layer):
    def __init__(self):
        super().__init__()
        self.cell = Cell()

    def forward(self, x):
        self.cell.h = paddle.zeros([x.shape[0], 4])
        for t in range(x.shape[1]):
            self.cell.h = self.cell.h * 0.5 + self.cell.linear(x[:, t])
        return self.cell.h


@program(x="f32[B,T,4]")
class AttributesThroughHelpers(nn.Layer):
    def __init__(self):
        super().__init__()
        self.h, self.c = paddle.zeros([1, 4]), paddle.zeros([1, 4])

    def gate(self, x):
        self.c = self.c * 0.5 + x.mean(0, keepdim=True)
        return self.c

    def step(self, x):
        self.h = paddle.tanh(self.gate(x) + self.h)

    def forward(self, x):
        for t in range(x.shape[1]):
            self.step(x[:, t])
        return self.h + self.c


@program(x="f32[B,T,4]")
class AttributeSetInTheLoop(nn.Layer):
    def forward(self, x):
        for t in range(x.shape[1]):
            self.last = x[:, t] * 2
        return x.sum()


class Neuron:
    """Leaky integrate and fire; the membrane is a number until the first input."""

    def __init__(self):
        self.v = 0.0

    def __call__(self, x):
        self.v = self.v * 0.5 + x
        spike = (self.v > 0.3).astype("float32")
        self.v = self.v * (1.0 - spike)
        return spike


@program(x="f32[B,T,4]")
class SpikingNeurons(nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.neuron = Neuron()

    def forward(self, x):
        self.neuron.v = 0.0
        count = 0
        for t in range(x.shape[1]):
            count = count + self.neuron(self.linear(x[:, t]))
        return count


@program(x="f32[B,T,4]")
class BufferInALoop(nn.Layer):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", paddle.zeros([4]))
        self.register_buffer("count", paddle.zeros([], "int64"))

    def forward(self, x):
        for t in range(x.shape[1]):
            self.mean.scale_(0.9)
            self.mean.add_(x[:, t].mean(0) * 0.1)
            self.count += 1
        return x - self.mean


@program(x="f32[B,T,4]")
class ListOfStatesOnTheLayer(nn.Layer):
    def __init__(self):
        super().__init__()
        self.states = [paddle.zeros([4]), paddle.ones([4])]

    def forward(self, x):
        for t in range(x.shape[1]):
            self.states[0] = paddle.tanh(self.states[0] + x[:, t].mean(0))
            self.states[1] = self.states[1] * 0.5 + self.states[0]
        return self.states[0] + self.states[1]


@program(x="f32[T,4]", a=by_call(1.0, -1.0, 2.0))
class CountsCalls(nn.Layer):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.rate = 1.0

    def forward(self, x, a):
        self.calls += 1
        self.rate *= 0.5
        for row in x:
            a = a * 0.5 + row.sum() * self.rate
        return a * self.calls


class Memory:
    """A plain object that keeps state."""

    def __init__(self, width):
        self.width = width
        self.slots = paddle.zeros([width])
        self.reads = 0

    def push(self, row):
        self.slots = self.slots * 0.5 + row
        self.reads += 1


@program(x="f32[T,4]")
def plain_object(x):
    memory = Memory(4)
    for row in x:
        memory.push(row)
    return memory.slots, memory.reads
