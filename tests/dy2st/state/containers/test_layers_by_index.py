"""Layers and parameters that a loop picks by its index: one loop over Layers of one structure."""

from __future__ import annotations

import sys

import paddle
import pytest
from paddle import nn
from paddle.nn import functional as F

import dy2st
from tests import check

pytestmark = pytest.mark.sampled(every=48)

N = 10


def report_of(static, *args):
    return [q.kind for q in dy2st.report(static, *args).loops]


# ---------------------------------------------------------------- rolled
class Weights(nn.Layer):
    """Lists of parameters at the index of the loop."""

    def __init__(self, n=N):
        super().__init__()
        self.ws = nn.ParameterList([self.create_parameter([6, 6]) for _ in range(n)])
        self.bs = nn.ParameterList([self.create_parameter([6], is_bias=True) for _ in range(n)])
        self.n = n

    def forward(self, x):
        for t in range(self.n):
            x = paddle.tanh(x @ self.ws[t] + self.bs[self.n - 1 - t])
        return x


class Pairs(Weights):
    def forward(self, x):
        for w, b in zip(self.ws, self.bs):
            x = paddle.tanh(x @ w + b)
        return x


class Steps(nn.Layer):
    """One parameter per step, in a Python list: a learned schedule."""

    def __init__(self, n=N):
        super().__init__()
        self.w = self.create_parameter([6, 6])
        self.steps = [self.create_parameter([1]) for _ in range(n)]
        for k, step in enumerate(self.steps):
            self.add_parameter(f"step{k}", step)

    def forward(self, x):
        y = x
        for t in range(len(self.steps)):
            y = y - self.steps[t] * (y @ self.w - x)
        return y


class Linears(nn.Layer):
    def __init__(self, n=N):
        super().__init__()
        self.layers = nn.LayerList([nn.Linear(6, 6) for _ in range(n)])
        self.n = n

    def forward(self, x):
        for t in range(self.n):
            x = paddle.tanh(self.layers[t](x))
        return x


class Numbered(Linears):
    def forward(self, x):
        for k, layer in enumerate(self.layers):
            x = x + layer(x) / (k + 1)
        return x


class Backwards(Linears):
    def forward(self, x):
        for layer in reversed(self.layers):
            x = paddle.tanh(layer(x))
        return x


class Tied(Linears):
    """All Layers have one weight; their biases are different ones."""

    def __init__(self):
        super().__init__()
        for layer in self.layers:
            layer.weight = self.layers[0].weight

    def forward(self, x):
        for layer in self.layers:
            x = paddle.tanh(layer(x))
        return x


class Block(nn.Layer):
    """`scale` is equal in all blocks, `number` moves with the index, `gain` is a number of its own
    in each."""

    def __init__(self, k):
        super().__init__()
        self.norm = nn.LayerNorm(6)
        self.parts = nn.LayerList([nn.Linear(6, 12), nn.Linear(12, 6)])
        self.act, self.plain = nn.GELU(), F.sigmoid
        self.scale, self.number, self.gain = 0.5, 3 + 2 * k, 1.0 / (1 + k * k)

    @property
    def half(self):
        return self.gain / 2

    def mix(self, x):
        for part in self.parts:
            x = self.act(part(x))
        return x

    def forward(self, x):
        y = self.mix(self.norm(x)) * self.scale + self.plain(x) * self.half
        return x + y / self.number


class Blocks(nn.Layer):
    def __init__(self, n=N):
        super().__init__()
        self.blocks = nn.LayerList([Block(k) for k in range(n)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Methods(Blocks):
    """Methods and parts of the Layers, called from outside of them."""

    def forward(self, x):
        for k in range(len(self.blocks)):
            block = self.blocks[k]
            x = x + block.mix(block.norm(x)) * block.parts[0].bias.sum()
        return x


class Listed(nn.Layer):
    """A Python list of Layers that an outer Layer does not know."""

    def __init__(self):
        super().__init__()
        self.hidden = [nn.Linear(6, 6) for _ in range(N)]
        for k, layer in enumerate(self.hidden):
            self.add_sublayer(f"hidden{k}", layer)

    def forward(self, x):
        for layer in self.hidden:
            x = F.relu(layer(x)) + x
        return x


class Chain(nn.Layer):
    def __init__(self):
        super().__init__()
        self.chain = nn.Sequential(*(nn.Linear(6, 6) for _ in range(N)))

    def forward(self, x):
        return self.chain(x)


class Encoder(nn.Layer):
    """Paddle's own stack of layers."""

    def __init__(self, n=N):
        super().__init__()
        layer = nn.TransformerEncoderLayer(6, 2, 12, dropout=0.0, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, n)

    def forward(self, x):
        return self.encoder(x.unsqueeze(0))


class Decoder(nn.Layer):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerDecoderLayer(6, 2, 12, dropout=0.0)
        self.decoder = nn.TransformerDecoder(layer, N)

    def forward(self, x):
        y = x.unsqueeze(0)
        return self.decoder(y, y * 2)


class OverTime(nn.Layer):
    """Layers in a loop over time."""

    def __init__(self):
        super().__init__()
        self.cells = nn.LayerList([nn.GRUCell(6, 6) for _ in range(N)])

    def forward(self, x):
        h = paddle.zeros([1, 6], x.dtype)
        for t in range(x.shape[0]):
            y = x[t : t + 1]
            for cell in self.cells:
                y, _ = cell(y, h)
            h = y
        return h


class Normalised(nn.Layer):
    """Running statistics that are only read."""

    def __init__(self):
        super().__init__()
        self.norms = nn.LayerList([nn.BatchNorm1D(6) for _ in range(N)])
        for k, norm in enumerate(self.norms):
            norm._mean.set_value(norm._mean + 0.1 * k)
        self.eval()

    def forward(self, x):
        for norm in self.norms:
            x = paddle.tanh(norm(x))
        return x


ROLLED = (
    Weights, Pairs, Steps, Linears, Numbered, Backwards, Tied, Blocks, Methods, Listed, Chain,
    Encoder, Decoder, Normalised,
)  # fmt: skip


def inputs():
    return [check.data(4, 6, trained=True)]


@pytest.mark.sampled(every=20)
@pytest.mark.parametrize("kind", (*ROLLED, OverTime))
def test_one_loop_over_layers(kind):
    """Results, gradients of all parameters and steps of SGD are those of eager."""
    static = check.trains(kind, inputs)
    assert set(report_of(static, *inputs())) == {"scan"}


@pytest.mark.sampled(every=16)
@pytest.mark.parametrize("kind", [Weights, Linears, Blocks, Encoder])
def test_the_program_is_as_long_for_more_layers(kind):
    lengths = set()
    for n in (12, 24):
        with check.default_dtype("float64"):
            static = dy2st.to_static(kind(n))
        lengths.add(str(dy2st.program(static, *inputs())).count("\n"))
    assert len(lengths) == 1


def test_a_few_layers_are_written_out():
    static = check.trains(lambda: Linears(8), inputs)
    assert report_of(static, *inputs()) == ["written out"]


# ---------------------------------------------------------------- calls after changes
def changed(change, kind=Blocks):
    """`change` is made between two calls of the eager and of the translated Layer."""
    with check.default_dtype("float64"):
        paddle.seed(1)
        layer = kind()
        static = dy2st.to_static(kind())
        static.set_state_dict(layer.state_dict())
        for _ in range(2):
            check.same(static(*inputs()), layer(*inputs()), rtol=1e-9, atol=1e-9)
            for model in (layer, static):
                change(model)
        for _ in range(2):
            check.same(static(*inputs()), layer(*inputs()), rtol=1e-9, atol=1e-9)


def sets_a_scale(model):
    model.blocks[3].scale += 0.25


def sets_all_scales(model):
    for block in model.blocks:
        block.scale += 0.25


def sets_a_gain(model):
    model.blocks[9].gain = 0.75


def sets_a_number(model):
    model.blocks[5].number += 1


def replaces_a_function(model):
    model.blocks[2].plain = paddle.tanh


def replaces_a_part(model):
    model.blocks[4].act = nn.ReLU()


def replaces_a_parameter(model):
    part = model.blocks[6].parts[1]
    part.weight = part.create_parameter(part.weight.shape, default_initializer=F_ONES)


def replaces_a_layer(model):
    paddle.seed(5)
    model.blocks[7] = Block(20)


def adds_a_layer(model):
    paddle.seed(6)
    model.blocks.append(Block(30))


def adds_a_hook(model):
    model.blocks[1].register_forward_post_hook(lambda layer, args, out: out * 2)


def sets_a_paddle_setting(model):
    model.blocks[8].norm._epsilon = 0.001


def defines_a_method(model):
    model.blocks[0].mix = lambda x: x * 3


def writes_a_parameter(model):
    model.blocks[3].parts[0].weight.set_value(model.blocks[3].parts[0].weight * 2)


F_ONES = nn.initializer.Constant(0.1)
CHANGES = (
    sets_a_scale, sets_all_scales, sets_a_gain, sets_a_number, replaces_a_function,
    replaces_a_part, replaces_a_parameter, replaces_a_layer, adds_a_layer, adds_a_hook,
    sets_a_paddle_setting, defines_a_method, writes_a_parameter,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.sampled(every=20)
@pytest.mark.parametrize("change", CHANGES)
def test_changes_between_calls_are_seen(change):
    changed(change)


# ---------------------------------------------------------------- not one loop
class Dilated(nn.Layer):
    """As in WaveNet: the dilation of a layer is a setting of its own."""

    def __init__(self):
        super().__init__()
        self.convs = nn.LayerList(
            [nn.Conv1D(1, 1, 2, dilation=1 + k % 3, padding="same") for k in range(N)]
        )

    def forward(self, x):
        y = x.unsqueeze(1)
        for k in range(N):
            y = y + self.convs[k](y)
        return y


class Widths(nn.Layer):
    def __init__(self):
        super().__init__()
        self.layers = nn.LayerList([nn.Linear(6, 7 if k == 4 else 6) for k in range(N)])

    def forward(self, x):
        for k in range(N):
            x = x + self.layers[k](x)[:, :6]
        return x


class Kinds(Widths):
    def __init__(self):
        super().__init__()
        self.layers = nn.LayerList([nn.Linear(6, 6), *(nn.ReLU() for _ in range(N - 1))])


class Hooked(Linears):
    def __init__(self):
        super().__init__()
        self.layers[3].register_forward_post_hook(lambda layer, args, out: out + 1)


class Named(nn.Layer):
    """Each block has a text of its own."""

    class Part(nn.Layer):
        def __init__(self, k):
            super().__init__()
            self.kind = "tanh" if k % 2 else "relu"
            self.inner = nn.Linear(6, 6)

        def forward(self, x):
            return getattr(F, self.kind)(self.inner(x))

    def __init__(self):
        super().__init__()
        self.layers = nn.LayerList([Named.Part(k) for k in range(N)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Remembers(nn.Layer):
    """A Layer keeps what it has computed, and a list of its own grows."""

    class Part(nn.Layer):
        def __init__(self):
            super().__init__()
            self.inner, self.last, self.log = nn.Linear(6, 6), None, []

        def forward(self, x):
            y = self.inner(x)
            if self.last is not None:
                y = y + self.last
            self.last = y.detach()
            self.log.append(len(self.log))
            return paddle.tanh(y)

    def __init__(self):
        super().__init__()
        self.layers = nn.LayerList([Remembers.Part() for _ in range(N)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x, [len(layer.log) for layer in self.layers]


class Compared(Linears):
    """Which of the Layers it is, decides."""

    def forward(self, x):
        last = self.layers[-1]
        for layer in self.layers:
            x = layer(x)
            if layer is not last:
                x = paddle.tanh(x)
        return x


class Equal(Linears):
    def forward(self, x):
        for layer in self.layers:
            x = layer(x) if layer == self.layers[2] else layer(x) * 2
        return x


class Keys(Linears):
    def forward(self, x):
        scales = {layer: 1.0 + k for k, layer in enumerate(self.layers)}
        for layer in self.layers:
            x = layer(x) / scales[layer]
        return x


class Chosen(Linears):
    """The last Layer has a name after the loop."""

    def forward(self, x):
        for layer in self.layers:
            x = paddle.tanh(layer(x))
        return x + layer.weight.sum() + (layer is self.layers[-1])


class Kept(Linears):
    def forward(self, x):
        kept = []
        for layer in self.layers:
            x = paddle.tanh(layer(x))
            kept.append(layer)
        return x + kept[1].bias


class Updated(Linears):
    """The parameters are written in the loop that reads them."""

    def forward(self, x):
        with paddle.no_grad():
            for layer in self.layers:
                x = paddle.tanh(layer(x))
                layer.weight.scale_(0.5)
        return x


class Descent(nn.Layer):
    """The parameters of several stacks are written after the loops that read them."""

    def __init__(self):
        super().__init__()
        self.stacks = nn.LayerList([Linears() for _ in range(3)])

    def forward(self, x):
        with paddle.no_grad():
            for layer in self.stacks[0].layers:
                x = paddle.tanh(layer(x))
            for layer in self.stacks[1].layers:
                x = paddle.tanh(layer(x))
            for layer in self.stacks[2].layers:
                x = paddle.tanh(layer(x))
            for p in self.parameters():
                p.scale_(0.9)
        return x


class Described(Linears):
    """Names, settings of Paddle and listings."""

    def forward(self, x):
        for layer in self.layers:
            total = len(layer.parameters())
            x = layer(x) * total + len(layer.full_name()[:3]) + layer.training
        return x


class Fallback(nn.Layer):
    """`__getattr__` is not asked for what each Layer has."""

    class Part(nn.Layer):
        def __init__(self, k):
            super().__init__()
            self.inner = nn.Linear(6, 6)
            self.kind = "tanh" if k % 2 else "sigmoid"

        def __getattr__(self, name):
            return "relu" if name == "kind" else super().__getattr__(name)

        def forward(self, x):
            return getattr(F, self.kind)(self.inner(x)) + (self.full_name()[-1] == "7")

    def __init__(self):
        super().__init__()
        self.layers = nn.LayerList([Fallback.Part(k) for k in range(N)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Cached(nn.Layer):
    """A cache for each layer, which grows with every step."""

    class Part(nn.Layer):
        def __init__(self):
            super().__init__()
            self.k, self.v = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x, cache):
            k, v = self.k(x), self.v(x)
            k, v = paddle.concat([cache[0], k]), paddle.concat([cache[1], v])
            return x + F.softmax(x @ k.T) @ v, (k, v)

    def __init__(self):
        super().__init__()
        self.layers = nn.LayerList([Cached.Part() for _ in range(N)])

    def forward(self, x):
        caches = [(x, x) for _ in range(N)]
        for _ in range(3):
            for k, layer in enumerate(self.layers):
                x, caches[k] = layer(x, caches[k])
        return x


WRITTEN_OUT = (
    Dilated, Widths, Kinds, Hooked, Named, Compared, Equal, Keys, Chosen, Kept,
    Updated, Descent, Described, Fallback, Cached,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.sampled(every=24)
@pytest.mark.parametrize("kind", WRITTEN_OUT)
def test_layers_that_differ_or_are_told_apart(kind):
    """They are written out, and do what eager does."""
    with check.default_dtype("float64"):
        paddle.seed(3)
        static = check.parity(kind(), inputs, rtol=1e-9, atol=1e-9)
    assert "written out" in report_of(static, *inputs())


@pytest.mark.slow
def test_state_of_python_in_each_layer():
    with check.default_dtype("float64"):
        paddle.seed(3)
        static = check.parity(Remembers(), inputs, rtol=1e-9, atol=1e-9)
        eager = Remembers()
        eager.set_state_dict(static.state_dict())
        want = [eager(*inputs()) for _ in range(4)]
        check.same(static(*inputs()), want[3], rtol=1e-9, atol=1e-9)
    assert [layer.log for layer in static.layers] == [[0, 1, 2, 3]] * N


REASONS = {
    Dilated: "`self.convs[k]` picks Layers whose _dilation differs",
    Widths: "`self.layers[k]` picks Layers of which weight has different types",
    Kinds: "`self.layers[k]` picks Layers of different classes",
    Hooked: "`self.layers[t]` picks Layers with hooks",
    Named: "picks Layers whose kind differs: `self.kind`",
    Updated: "a tensor is written of which the loop takes a copy: `layer.weight.scale_(0.5)`",
}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 keeps no columns")
@pytest.mark.parametrize("kind", REASONS)
def test_the_report_says_how_layers_differ(kind):
    with check.default_dtype("float64"):
        static = dy2st.to_static(kind())
    want = f"{N} iterations: {REASONS[kind]}"
    assert [q.reason for q in dy2st.report(static, *inputs()).loops] == [want]


class Registered(nn.Layer):
    """A class that counts its subclasses gets no other one."""

    known: list[str] = []

    def __init_subclass__(cls):
        Registered.known.append(cls.__name__)


class RegisteredPart(Registered):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x):
        return paddle.tanh(self.inner(x))


class WithRegistered(nn.Layer):
    def __init__(self):
        super().__init__()
        self.layers = nn.LayerList([RegisteredPart() for _ in range(N)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_no_class_is_derived_where_the_user_would_see_it():
    check.trains(WithRegistered, inputs)
    assert Registered.known == ["RegisteredPart"]


def test_types_are_those_of_the_layers():
    seen = []

    class Asks(Linears):
        def forward(self, x):
            for layer in self.layers:
                known = type(layer) is nn.Linear and isinstance(layer, nn.Linear)
                x = layer(x) if known and layer.__class__ is nn.Linear else x * 0
                seen.append(type(layer).__name__)
            return x

    with check.default_dtype("float64"):
        layer = Asks()
        static = dy2st.to_static(layer)
        got = static(*inputs())
        want = inputs()[0]
        for part in layer.layers:
            want = part(want)
        check.same(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_a_saved_program_holds_the_layers(tmp_path):
    with check.default_dtype("float64"):
        layer = Blocks().eval()
    path = tmp_path / "blocks.dy2st"
    spec = [paddle.static.InputSpec([None, 6], "float64", "x")]
    want = layer(*inputs()).numpy()
    dy2st.save(dy2st.to_static(layer, spec), path, input_spec=spec)
    run = dy2st.load(path)
    got = run(inputs()[0].numpy())
    assert abs(got - want).max() < 1e-9


# ---------------------------------------------------------------- lists of tensors
def test_a_list_of_tensors_is_one_loop():
    def total(x):
        parts = paddle.split(x, 12)
        y = paddle.zeros([6], x.dtype)
        for part in parts:
            y = paddle.tanh(y + part[0])
        return y

    x = check.data(12, 6)
    static = check.agree(total, x)
    assert report_of(static, x) == ["scan"]


def test_tensors_of_a_list_are_kept_and_written():
    def keeps(xs):
        kept = []
        for x in xs:
            kept.append(x)
        return kept

    def writes(xs):
        for x in xs:
            x.add_(paddle.ones([2], x.dtype))
        return xs[3] * 2

    for f in (keeps, writes):
        make = lambda: [[check.data(2, seed=k, trained=False) for k in range(12)]]  # noqa: E731
        static = dy2st.to_static(f)
        for k in range(2):
            one, two = make(), make()
            want = check.observe(f, one, seed=k)
            have = check.observe(static, two, seed=k)
            check.equal(have, want, f.__name__, objects=True, memory=True)


class Weighted(paddle.nn.Layer):
    def __init__(self, weight: int) -> None:
        super().__init__()
        self.linear, self.weight = paddle.nn.Linear(3, 3), weight

    def forward(self, x):
        return paddle.tanh(x + self.linear(x) * self.weight)


@pytest.mark.parametrize("weights", [[1, 1, 2] * 3, [2] * 8 + [3], list(range(9, 0, -1))])
def test_integers_that_begin_with_equal_ones(weights):
    stack = paddle.nn.Sequential(*map(Weighted, weights))
    x = check.data(2, 3, dtype="float32").detach()
    static = dy2st.to_static(stack)
    eager = x
    for layer in stack:
        eager = layer(eager)
    check.same(static(x), eager, rtol=1e-5)
    assert "unrolled" not in str(dy2st.report(static, x))


def test_the_report_says_why_many_layers_are_no_loop():
    class Stack(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            kinds = [paddle.nn.Linear(3, 3), paddle.nn.Tanh()]
            self.layers = paddle.nn.LayerList([kinds[k % 2] for k in range(10)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    report = dy2st.report(dy2st.to_static(Stack()), check.data(2, 3, dtype="float32"))
    why = "10 iterations: its index picks Layers of different classes"
    assert [q.reason for q in report.loops] == [why]
