"""`dynamic_decode` of `paddle.nn` and `viterbi_decode` of `paddle.text`, as in eager."""

import paddle
import pytest
from paddle import nn
from paddle.static import InputSpec

import dy2st
from tests import check

pytestmark = pytest.mark.sampled


class BeamSearch(nn.Layer):
    def __init__(self, cell, steps, end_bias=0.0, **how):
        super().__init__()
        paddle.seed(11)
        self.embed, self.out, self.cell = nn.Embedding(13, 6), nn.Linear(8, 13), cell(6, 8)
        with paddle.no_grad():
            self.out.bias[1] = end_bias
        self.decoder = nn.BeamSearchDecoder(self.cell, 0, 1, 3, self.embed, self.out)
        self.steps, self.how = steps, how

    def forward(self, states):
        return nn.dynamic_decode(self.decoder, states, max_step_num=self.steps, **self.how)


def state(batch=2):
    return paddle.randn([batch, 8])


def states(batch=2):
    return state(batch), state(batch)


def loop_kinds(static, *args):
    """The kinds of loops; what follows the loop is Paddle's own."""
    report = dy2st.report(static, *args)
    assert set(report.foreign_counts) <= {"gather_tree"}, report
    kinds = {q.kind for q in report.loops}
    assert "while" in kinds and not kinds & {"scan", "unrolled"}, report
    return [q.kind for q in report.loops].count("while")


@pytest.mark.parametrize("steps", [0, 1, 6])
@pytest.mark.parametrize("cell", [nn.GRUCell, nn.LSTMCell])
def test_beam_search_is_one_loop(cell, steps):
    make = states if cell is nn.LSTMCell else state
    net = BeamSearch(cell, steps, return_length=True)
    static = check.parity(net, lambda: [make()])
    assert loop_kinds(static, make()) == 1


@pytest.mark.parametrize("steps", [None, 20])
def test_beam_search_ends_when_all_beams_have_ended(steps):
    net = BeamSearch(nn.GRUCell, steps, end_bias=3.0, output_time_major=True, return_length=True)
    static = check.parity(net, lambda: [state()])
    assert loop_kinds(static, state()) == 1
    assert static(state())[0].shape[0] < 20


@pytest.mark.slow
@pytest.mark.quick
def test_beam_search_with_a_named_batch():
    sizes = iter([2, 5, 1])
    spec = [InputSpec([None, 8], "float32")]
    static = check.parity(BeamSearch(nn.GRUCell, 4), lambda: [state(next(sizes))], spec)
    assert len(dy2st.explain(static.forward).reasons) == 1
    assert loop_kinds(static, state(3)) == 1


class Greedy(nn.decode.Decoder):
    """A user's decoder: states in a dict, a row is finished when its token is the last."""

    def __init__(self, net):
        self.net = net

    def initialize(self, inits):
        batch = inits.shape[0]
        return (
            paddle.zeros([batch], "int64"),
            {"h": inits, "mass": paddle.zeros([batch, 1])},
            paddle.zeros([batch], "bool"),
        )

    def step(self, time, inputs, states, scale=1.0):
        out, h = self.net.cell(self.net.embed(inputs) * scale, states["h"])
        token = self.net.out(out).argmax(-1)
        mass = states["mass"] + out.sum(-1, keepdim=True) + time.astype("float32")
        return (token, out), {"h": h, "mass": mass}, token, token == 1

    def finalize(self, outputs, final_states, lengths):
        return (outputs[0] + 1, outputs[1]), final_states


class Unfinished(Greedy):
    def finalize(self, outputs, final_states, lengths):
        raise NotImplementedError


class GreedySearch(BeamSearch):
    def __init__(self, decoder, steps, end_bias=0.0, **how):
        super().__init__(nn.GRUCell, steps, end_bias, **how)
        self.decoder = decoder(self)


@pytest.mark.parametrize("impute", [False, True])
@pytest.mark.parametrize("decoder", [Greedy, Unfinished])
def test_a_users_decoder_is_one_loop(decoder, impute):
    how = {"impute_finished": impute, "return_length": True, "scale": 2.0}
    for bias, steps in ((0.0, 5), (0.6, 9), (9.0, None)):
        net = GreedySearch(decoder, steps, bias, **how)
        static = check.parity(net, lambda: [paddle.randn([3, 8])])
        assert loop_kinds(static, paddle.randn([3, 8])) == 1


class Done(Greedy):
    def initialize(self, inits):
        inputs, states, finished = super().initialize(inits)
        return inputs, states, paddle.logical_not(finished)


def test_nothing_to_decode_raises():
    """Eager meets `None` where it expects its outputs."""
    with pytest.raises(AttributeError):
        GreedySearch(Done, 3)(state())
    with pytest.raises((AssertionError, dy2st.SourceError)):
        dy2st.to_static(GreedySearch(Done, 3))(state())


@pytest.mark.parametrize("tagged", [True, False])
def test_the_best_path_of_a_crf(tagged):
    """`paddle.text.ViterbiDecoder`; the path has the data-dependent length of the longest
    sequence."""
    decoder = paddle.text.ViterbiDecoder(check.data(4, 4, dtype="float32", trained=False), tagged)
    spec = [InputSpec([None, None, 4], "float32"), InputSpec([None], "int64")]
    static = dy2st.to_static(lambda x, n: decoder(x, n), input_spec=spec)
    for steps, lengths in ((5, [3, 2, 4]), (5, [0, 5, 1]), (1, [1, 1]), (2, [1, 2])):
        scores = check.data(len(lengths), steps, 4, seed=steps, dtype="float32", trained=False)
        given = scores, paddle.to_tensor(lengths)
        check.same(static(*given), decoder(*given))
    report = dy2st.report(static, *given)
    assert [q.kind for q in report.loops] == ["scan", "scan"] and not report.foreign_counts
