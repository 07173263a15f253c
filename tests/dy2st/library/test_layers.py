"""Paddle's recurrent layers: each direction of each layer is one scan, with eager's results."""

import copy

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.static import InputSpec

import dy2st
from tests import check

LAYERS = [nn.LSTM, nn.GRU, nn.SimpleRNN]
CELLS = [nn.LSTMCell, nn.GRUCell, nn.SimpleRNNCell]
X = InputSpec([None, None, 4], "float32", "x")
LENGTHS = InputSpec([None], "int64", "lengths")

pytestmark = [
    pytest.mark.sampled,
    pytest.mark.filterwarnings("ignore:.*sequence_mask.*is deprecated"),
]


def by_name(q):
    return str(getattr(q, "__name__", q))


def loops(static, *args):
    """Kind and reason of each loop; no op but dropout is left to Paddle."""
    report = dy2st.report(static, *args)
    assert set(report.foreign_counts) <= {"dropout"}, report
    return [(q.kind, q.reason) for q in report.loops]


def scans(static, count, *args):
    assert loops(static, *args) == [("scan", "")] * count


def x(batch=3, steps=5):
    return paddle.randn([batch, steps, 4])


# ---------------------------------------------------------------- LSTM, GRU, SimpleRNN
@pytest.mark.paired
@pytest.mark.quick("1-LSTM-forward", "2-LSTM-forward", "7-LSTM-forward")
@pytest.mark.parametrize("direction", ["forward", "bidirect"])
@pytest.mark.parametrize("kind", LAYERS, ids=by_name)
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_layers_are_scans(kind, direction, steps):
    net = kind(4, 8, num_layers=2, direction=direction)
    static = check.parity(net, lambda: [x(3, steps)])
    scans(static, 2 * (1 + (direction == "bidirect")), x(3, steps))


@pytest.mark.slow
@pytest.mark.quick("LSTM")
@pytest.mark.parametrize("kind", LAYERS, ids=by_name)
def test_layers_with_named_batch_length_and_sequence_length(kind):
    net = kind(4, 8, num_layers=2, direction="bidirect")
    sizes = iter([(2, 3), (5, 7), (1, 1)])

    def args():
        batch, steps = next(sizes)
        return [x(batch, steps), None, paddle.randint(0, steps + 1, [batch])]

    static = check.parity(net, args, [X, LENGTHS])
    assert len(dy2st.explain(static.forward).reasons) == 1
    scans(static, 4, x(4, 9), None, paddle.to_tensor([9, 0, 3, 1]))


@pytest.mark.paired
@pytest.mark.quick("LSTM-True-int64", "SimpleRNN-False-int64")
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("kind", LAYERS, ids=by_name)
def test_padded_steps_give_zero_and_keep_the_states(kind, time_major, dtype: str):
    net = kind(4, 8, direction="bidirect", time_major=time_major)
    lengths = paddle.to_tensor([2, 5, 0], dtype=dtype)
    shape = [5, 3, 4] if time_major else [3, 5, 4]
    static = check.parity(net, lambda: [paddle.randn(shape), None, lengths])
    out = static(paddle.randn(shape), None, lengths)[0]
    out = out.transpose([1, 0, 2]) if time_major else out
    assert out[0, 2:].abs().max() == 0 and out[2].abs().max() == 0 and out[0, 1].abs().min() > 0


def test_initial_states_with_names_of_their_own_are_carried():
    net = nn.LSTM(4, 8, num_layers=2)
    states = [InputSpec([2, None, 8], "float32")] * 2
    make = lambda: [x(3), (paddle.randn([2, 3, 8]), paddle.randn([2, 3, 8]))]  # noqa: E731
    scans(check.parity(net, make, [X, *states]), 2, *make())
    net = nn.GRU(4, 8, direction="bidirect")
    check.parity(net, lambda: [x(3), paddle.randn([2, 3, 8])])


@pytest.mark.slow
@pytest.mark.paired
@pytest.mark.quick("LSTM-0.4-train", "GRU-0.4-train")
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("p", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("kind", LAYERS, ids=by_name)
def test_dropout_between_layers_draws_what_eager_draws(kind, p, mode):
    """The eager kernel draws one mask for all layers; `F.dropout` draws it for the program."""
    net = kind(4, 8, num_layers=3, direction="bidirect", dropout=p)
    getattr(net, mode)()
    static = check.parity(net, lambda: [x()])
    scans(static, 6, x())
    drawn = mode == "train" and p == 0.4
    assert dy2st.report(static, x()).foreign_counts == ({"dropout": 1} if drawn else {})


def test_projection_runs_paddles_own_loop_over_layers():
    net = nn.LSTM(4, 8, num_layers=2, proj_size=3, dropout=0.5)
    make = lambda: [x(), (paddle.randn([2, 3, 3]), paddle.randn([2, 3, 8]))]  # noqa: E731
    scans(check.parity(net, make), 2, *make())
    check.parity(net, lambda: [x(), None, paddle.to_tensor([1, 5, 2])])


def test_relu_and_fixed_weights():
    scans(check.parity(nn.SimpleRNN(4, 8, activation="relu"), lambda: [x()]), 1, x())
    check.parity(nn.GRU(4, 8, weight_ih_attr=False), lambda: [x(1, 1)])


@pytest.mark.slow
@pytest.mark.quick("LSTM")
@pytest.mark.parametrize("kind", LAYERS, ids=by_name)
def test_values_are_eagers_to_the_last_digits(kind):
    make = lambda: [paddle.randn([3, 40, 64]).astype(paddle.get_default_dtype())]  # noqa: E731
    check.parity(kind(64, 96), make, calls=1, rtol=1e-6, atol=1e-6)
    paddle.set_default_dtype("float64")
    try:
        net = kind(64, 96, direction="bidirect")
        check.parity(net, make, calls=1, rtol=1e-12, atol=1e-13)
    finally:
        paddle.set_default_dtype("float32")


class Tagger(nn.Layer):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 4)
        self.rnn = nn.LSTM(4, 8, direction="bidirect")
        self.out = nn.Linear(16, 3)

    def forward(self, words, lengths):
        y, (h, c) = self.rnn(self.embed(words), sequence_length=lengths)
        return self.out(y), h[-1] + c[0]


def test_inputs_are_parameters_by_name_and_switching_modes_is_followed():
    net = Tagger()
    make = lambda: [paddle.randint(0, 11, [2, 6]), paddle.to_tensor([6, 2])]  # noqa: E731
    static = check.parity(net, make)
    names = {q.name for q in dy2st.program(static, *make()).inputs if q.kind == "param"}
    assert {"rnn.weight_ih_l0", "rnn.weight_hh_l0_reverse", "out.weight"} <= names
    net = nn.GRU(4, 8, num_layers=2, dropout=0.5)
    static, args = dy2st.to_static(copy.deepcopy(net)), x()
    for mode in ("train", "eval", "train"):
        getattr(net, mode)()
        getattr(static, mode)()
        paddle.seed(3)
        want = net(args)
        paddle.seed(3)
        check.same(static(args), want)


def test_a_weight_set_in_place_is_followed():
    net, args = nn.LSTM(4, 8), x()
    static = dy2st.to_static(copy.deepcopy(net))
    static(args)
    for layer in (net, static):
        layer.weight_hh_l0.set_value(paddle.full([32, 8], 0.25))
    check.same(static(args), net(args))


def test_a_layer_inside_of_a_loop():
    class Rollout(nn.Layer):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(4, 4)

        def forward(self, q, h):
            outs = []
            for _ in range(5):
                q, h = self.rnn(q, h)
                outs.append(q[:, -1])
            return paddle.stack(outs, 1), h

    make = lambda: [x(2, 3), paddle.randn([1, 2, 4])]  # noqa: E731
    scans(check.parity(Rollout(), make), 2, *make())


@pytest.mark.quick
def test_a_subclass_that_calls_the_forward_of_its_base():
    class Scaled(nn.LSTM):
        def forward(self, inputs, scale):
            out, state = super().forward(inputs * scale)
            return out, state

    make = lambda: [x(), paddle.randn([4])]  # noqa: E731
    scans(check.parity(Scaled(4, 8), make), 1, *make())


@pytest.mark.quick
@pytest.mark.parametrize(
    ("args", "what"),
    [
        (lambda: [x(3, 0)], "without a time step"),
        (lambda: [paddle.randn([3, 5, 6])], "size 4 in its last axis"),
        (lambda: [paddle.randn([3, 4])], "three axes"),
        (lambda: [x(), (paddle.randn([1, 1, 8]), paddle.randn([1, 3, 8]))], "initial state"),
        (lambda: [x(), None, paddle.to_tensor([1, 2])], "one entry per row"),
        (lambda: [x(), None, paddle.to_tensor([1.0, 2, 3])], "int32 or int64"),
    ],
)
def test_wrong_input_is_named(args, what):
    """Eager raises, reads past the end of a tensor, or divides by zero for these."""
    with pytest.raises(ValueError, match=what):
        dy2st.to_static(nn.LSTM(4, 8))(*args())


# ---------------------------------------------------------------- RNN, BiRNN
@pytest.mark.paired
@pytest.mark.quick("GRUCell-False-True", "SimpleRNNCell-True-True")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("cell", CELLS, ids=by_name)
def test_cells_are_scans(cell, time_major, reverse):
    net = nn.RNN(cell(4, 8), is_reverse=reverse, time_major=time_major)
    args = [paddle.randn([3, 3, 4]), None, paddle.to_tensor([1, 3, 0])]
    scans(check.parity(net, lambda: [x(2, 1)]), 1, x(2, 1))
    scans(check.parity(net, lambda: args, [X, LENGTHS]), 1, *args)


def test_cells_with_named_sizes_use_one_program():
    sizes = iter([(2, 2), (3, 7), (1, 1)])
    static = check.parity(nn.RNN(nn.LSTMCell(4, 8)), lambda: [x(*next(sizes))], [X])
    assert len(dy2st.explain(static.forward).reasons) == 1
    static = check.parity(
        nn.RNN(nn.LSTMCell(4, 8)),
        lambda: [x(3, 4), (paddle.randn([3, 8]), paddle.randn([3, 8]))],
        [X, *[InputSpec([None, 8], "float32")] * 2],
    )
    scans(static, 1, x(3, 4), (paddle.randn([3, 8]), paddle.randn([3, 8])))


def test_no_time_step_raises_as_eager_does():
    static = dy2st.to_static(nn.RNN(nn.GRUCell(4, 8)), [X])
    with pytest.raises(UnboundLocalError):
        nn.RNN(nn.GRUCell(4, 8))(x(2, 0))
    for args in (x(2, 3), x(2, 0), x(2, 0)):
        if args.shape[1]:
            static(args)
        else:
            with pytest.raises(Exception, match=r"."):
                static(args)


@pytest.mark.parametrize("time_major", [False, True])
def test_both_directions(time_major):
    net = nn.BiRNN(nn.LSTMCell(4, 8), nn.LSTMCell(4, 8), time_major=time_major)
    args = [paddle.randn([3, 3, 4]), None, paddle.to_tensor([1, 3, 2])]
    scans(check.parity(net, lambda: [x(2, 7)], [X]), 2, x(2, 7))
    scans(check.parity(net, lambda: args), 2, *args)
    states = [tuple(paddle.randn([3, 8]) for _ in range(2)) for _ in range(2)]
    check.parity(net, lambda: [paddle.randn([3, 3, 4]), tuple(states)])


class Zoneout(nn.Layer):
    """A cell with nested states, nested outputs, Python control flow and a keyword."""

    def __init__(self):
        super().__init__()
        self.x, self.h = nn.Linear(4, 6), nn.Linear(6, 6)

    def forward(self, x, states, scale=1.0):
        h, (c, old) = states
        new = paddle.tanh(self.x(x) + self.h(h) * scale)
        if scale > 0.5:
            c = c + new
        return (new, {"c": c, "mean": new.mean(-1)}), (new, (c, old * 0.5))


@pytest.mark.quick("1-True")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_a_users_cell_with_nested_states_and_outputs(steps, reverse):
    net = nn.RNN(Zoneout(), is_reverse=reverse)

    def make():
        parts = [paddle.randn([3, 6]) for _ in range(3)]
        return [x(3, steps), (parts[0], (parts[1], parts[2])), paddle.to_tensor([1, 0, 1])]

    scans(check.parity(net, make), 1, *make())


class Stacked(nn.Layer):
    """Cells in a list, as seq2seq models stack them."""

    def __init__(self):
        super().__init__()
        self.cells = nn.LayerList([nn.LSTMCell(4, 8), nn.LSTMCell(8, 8)])
        self.drop = nn.Dropout(0.0)

    def forward(self, step, states):
        new = []
        for i, cell in enumerate(self.cells):
            step, state = cell(step, states[i])
            step = self.drop(step)
            new.append(state)
        return step, new

    @property
    def state_shape(self):
        return [cell.state_shape for cell in self.cells]


def test_stacked_cells_of_a_user():
    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.rnn = nn.RNN(Stacked(), time_major=True)

        def forward(self, q):
            zeros = paddle.zeros([q.shape[1], 8])
            y, states = self.rnn(q, [(zeros, zeros), (zeros, zeros)])
            return y, states[1][0], states[0][1]

    net = Net()
    for spec in (None, [X]):
        static = check.parity(net, lambda: [paddle.randn([4, 2, 4])], spec)
        scans(static, 1, paddle.randn([4, 2, 4]))


@pytest.mark.quick
def test_inputs_in_a_structure():
    class Add(nn.Layer):
        def forward(self, inputs, state):
            state = state + inputs["a"] * inputs["b"]
            return state, state

    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            self.rnn = nn.RNN(Add())

        def forward(self, a, b, h):
            return self.rnn({"a": a, "b": b}, h)

    make = lambda: [x(2, 3), x(2, 3), paddle.randn([2, 4])]  # noqa: E731
    scans(check.parity(Net(), make), 1, *make())


class Gated(nn.Layer):
    """A cell whose states are a dict with a list in it."""

    def __init__(self):
        super().__init__()
        self.x = nn.Linear(4, 6)

    def forward(self, x, states):
        h = paddle.tanh(self.x(x) + states["h"])
        return h, {"h": h, "old": [states["h"], states["old"][0] + 1]}


@pytest.mark.parametrize("lengths", [None, [1, 3, 0]])
def test_states_in_a_dict_are_carried(lengths):
    def make():
        first = {"h": paddle.randn([3, 6]), "old": [paddle.zeros([3, 6]), paddle.zeros([3, 6])]}
        return [x(3, 7), first, *([] if lengths is None else [paddle.to_tensor(lengths)])]

    scans(check.parity(nn.RNN(Gated()), make), 1, *make())


class Mapped(nn.Layer):
    def forward(self, x):
        states = {"h": [paddle.zeros([4]), paddle.ones([4])], "c": (paddle.zeros([4]),)}
        for t in range(x.shape[1]):
            new = {"h": [states["h"][0] + x[0, t], states["h"][1] * 0.5], "c": (x[1, t],)}
            states = paddle.utils.map_structure(lambda s, n: s * 0.25 + n, states, new)
        return states


def test_states_that_map_structure_makes_are_carried():
    scans(check.parity(Mapped(), lambda: [x(2, 5)]), 1, x(2, 5))


def test_program_size_does_not_grow_with_time():
    static = dy2st.to_static(nn.RNN(nn.LSTMCell(4, 8)))
    short, long = (str(dy2st.program(static, x(2, n))) for n in (7, 700))
    assert short.replace("700", "7").count("\n") == long.count("\n")
    np.testing.assert_equal(long.count("scan"), 1)


@pytest.mark.parametrize("k", [1, 2])
def test_accuracy(k):
    label = paddle.to_tensor([[0], [2], [1]])

    def f(x):
        return paddle.metric.accuracy(x, label, k), paddle.metric.accuracy(x, label.astype("int32"))

    for seed in range(3):
        x = check.data(3, 4, seed=seed)
        check.same(dy2st.to_static(f)(x), f(x))


# ---------------------------------------------------------------- made inside of a function
def features(x):
    return paddle.audio.features.MelSpectrogram(sr=16000, n_fft=32, n_mels=4)(x)


def test_a_layer_with_buffers_that_the_function_makes():
    check.parity(features, lambda: [paddle.rand([1, 128])])


def priors(x):
    normal, unit = paddle.distribution.Normal(x, x + 1), paddle.distribution.Normal(0.0, 1.0)
    uniform = paddle.distribution.Uniform([0.0, -1.0], 2.0)
    return (
        paddle.distribution.kl_divergence(normal, unit), unit.entropy(), unit.log_prob(x),
        uniform.log_prob(x), uniform.low,
    )  # fmt: skip


def test_distributions_of_numbers():
    check.parity(priors, lambda: [paddle.rand([3, 2])])


def likelihood(x):
    t = paddle.distribution.StudentT(x[0] + 2, x[1], x[2])
    return t.log_prob(x), t.mean, t.entropy()


def test_a_distribution_that_checks_its_parameters():
    static = dy2st.to_static(likelihood)
    x = paddle.rand([3, 2]) + 0.5
    check.same(static(x), likelihood(x), rtol=1e-5)
    for f in (static, likelihood):
        with pytest.raises(ValueError, match="Every element of input parameter `scale`"):
            f(x - 2)
