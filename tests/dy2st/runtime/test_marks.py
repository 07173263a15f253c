"""Functions and modules left as they are, hooks, and translated functions inside others."""

import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from dy2st.convert.marks import IGNORED
from tests import check
from tests.parity.models import aside


@pytest.fixture
def ignored():
    """`tests.parity.models.aside` is ignored during the test."""
    before = set(IGNORED)
    dy2st.ignore_module([aside])
    yield
    IGNORED.clear()
    IGNORED.update(before)


def same_calls(f, *rows):
    """`f` translated gives what `f` gives for each of the rows; returns the translated function."""
    static = dy2st.to_static(f)
    for row in rows:
        x = paddle.to_tensor(row)
        check.same(static(x.clone()), f(x.clone()))
    return static


ROWS = [1.0, 2.0], [-1.0, -2.0], [3.0, 0.5]


# ---------------------------------------------------------------- not_to_static
@dy2st.not_to_static
def smooth(x, steps):
    for k in range(steps):
        x = x * 0.5 + k
    return x


@dy2st.not_to_static()
def clipped(x):
    if x.sum() > 0:
        return x
    return -x


@paddle.jit.not_to_static
def marked_by_paddle(x):
    for row in x:
        x = x + row
    return x


@dy2st.not_to_static
def endless(x):
    while x.sum() < 5:
        x = x + 1
    return x


@dy2st.not_to_static
def connected(x):
    return x if x.max() > 0 and x.min() > 0 else -x


def test_loops_of_a_marked_function_are_unrolled():
    static = same_calls(lambda x: smooth(x, 3) + marked_by_paddle(x), *ROWS)
    notes = dy2st.report(static, paddle.ones([2])).loops
    assert [q.kind for q in notes] == ["unrolled"] * 2
    assert all("not_to_static" in q.reason for q in notes)


@pytest.mark.parametrize("f", [clipped, endless, connected])
def test_a_condition_on_data_in_a_marked_function_is_refused(f):
    with pytest.raises(dy2st.SourceError, match="not_to_static") as e:
        dy2st.to_static(lambda x: f(x))(paddle.ones([2]))
    assert "test_marks.py" in str(e.value)
    check.same(f(-paddle.ones([2])), f(-paddle.ones([2])))


def test_a_named_size_in_a_marked_function_is_refused():
    def f(x):
        return smooth(x, x.shape[0])

    static = dy2st.to_static(f, input_spec=[InputSpec([None], "float32")])
    with pytest.raises(dy2st.SourceError, match="named size"):
        static(paddle.ones([3]))


class Counted(paddle.nn.Layer):
    """What a marked method stores and reads is followed as elsewhere."""

    def __init__(self):
        super().__init__()
        self.scale, self.seen = 2.0, None

    @dy2st.not_to_static
    def prepare(self, x):
        for _ in range(2):
            x = x * self.scale
        self.seen = x
        return x

    def forward(self, x):
        return self.prepare(x) + 1


def test_stores_and_reads_of_a_marked_method_are_followed():
    eager, static = Counted(), dy2st.to_static(Counted())
    for k in range(4):
        x = paddle.full([2], float(k))
        eager.scale = static.scale = 2.0 + k // 2
        check.same(static(x), eager(x))
        check.same(static.seen, eager.seen)


def test_functions_called_by_a_marked_one_are_translated():
    def rolled(x):
        for _ in range(4):
            x = x * 0.5
        return x

    @dy2st.not_to_static
    def marked(x):
        return rolled(x)

    static = same_calls(lambda x: marked(x), *ROWS)
    assert [q.kind for q in dy2st.report(static, paddle.ones([2])).loops] == ["scan"]


def test_marks_take_functions_only():
    with pytest.raises(TypeError, match="not_to_static"):
        dy2st.not_to_static(3)


# ---------------------------------------------------------------- ignore_module
def test_functions_of_an_ignored_module_are_not_converted(ignored):
    def f(x):
        return aside.rescale(x, 4)

    static = same_calls(f, *ROWS)
    assert not dy2st.report(static, paddle.ones([2])).loops


def test_layers_of_an_ignored_module_keep_their_settings_guarded(ignored):
    class Net(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.gain = aside.Gain(2.0)

        def forward(self, x):
            return self.gain(x) + 1

    net = Net()
    static = check.parity(net, lambda: [paddle.randn([3, 4])])
    assert not dy2st.report(static, paddle.ones([3, 4])).loops
    net.gain.factor = static.gain.factor = 3.0
    check.same(static(paddle.ones([3, 4])), net(paddle.ones([3, 4])))


def test_a_condition_on_data_in_an_ignored_module_is_refused(ignored):
    with pytest.raises(dy2st.SourceError):
        dy2st.to_static(lambda x: aside.pick(x))(paddle.ones([2]))


def test_other_modules_are_converted_still():
    def f(x):
        return aside.rescale(x, 4)

    assert ["scan"] == [q.kind for q in same_calls(f, *ROWS).report(paddle.ones([2])).loops]


@pytest.mark.parametrize("wrong", [3, [None], "no.such.module"])
def test_ignore_module_takes_modules_and_names(wrong):
    with pytest.raises(TypeError, match="ignore_module"):
        dy2st.ignore_module(wrong)


# ---------------------------------------------------------------- hooks
class Inner(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.linear = paddle.nn.Linear(4, 4)

    def forward(self, x):
        for _ in range(3):
            x = paddle.tanh(self.linear(x))
        return x


class Hooked(paddle.nn.Layer):
    """Hooks with loops and branches of their own, on the layer itself and inside of it."""

    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.calls = 0
        self.inner.register_forward_pre_hook(halve)
        self.inner.register_forward_post_hook(accumulate)
        self.inner.linear.register_forward_post_hook(lambda layer, args, out: out + args[0])

    def forward(self, x):
        return self.inner(x) * 2


def halve(layer, args):
    (x,) = args
    for _ in range(2):
        x = x * 0.5
    return (x,)


def accumulate(layer, args, out):
    return out + 1 if out.sum() > 0 else out - args[0]


def test_hooks_are_translated():
    static = check.parity(Hooked(), lambda: [paddle.randn([2, 4])])
    report = dy2st.report(static, paddle.randn([2, 4]))
    assert [q.kind for q in report.loops] == ["scan", "scan"] and report.conds


def test_hooks_of_the_translated_layer_itself_run():
    net = Inner()
    net.register_forward_pre_hook(halve)
    net.register_forward_post_hook(lambda layer, args, out: (out, out * 2))
    check.parity(net, lambda: [paddle.randn([2, 4])])


def test_a_hook_that_comes_later_is_followed():
    net = Inner()
    outer = dy2st.to_static(lambda x: net(x) * 1)
    x = paddle.randn([2, 4])
    for _ in range(2):
        check.same(outer(x), net(x) * 1)
    handle = net.register_forward_post_hook(lambda layer, args, out: out + 5)
    check.same(outer(x), net(x) * 1)
    handle.remove()
    assert not net._forward_post_hooks
    check.same(outer(x), net(x) * 1)


def test_hooks_with_keywords():
    def before(layer, args, kwargs):
        return args, {"scale": kwargs["scale"] * 2}

    def after(layer, args, kwargs, out):
        return out + kwargs["scale"]

    class Scale(paddle.nn.Layer):
        def forward(self, x, scale=1.0):
            return x * scale

    class Net(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.scale = Scale()
            self.scale.register_forward_pre_hook(before, with_kwargs=True)
            self.scale.register_forward_post_hook(after, with_kwargs=True)

        def forward(self, x):
            return self.scale(x, scale=3.0)

    check.parity(Net(), lambda: [paddle.randn([2, 4])])


def test_a_hook_that_always_runs_is_refused():
    net = Inner()
    net.register_forward_post_hook(lambda layer, args, out: None, always_call=True)
    with pytest.raises(dy2st.SourceError, match="always_call"):
        dy2st.to_static(lambda x: net(x))(paddle.randn([2, 4]))


# ---------------------------------------------------------------- translated inside of translated
@dy2st.to_static
def rolled(x):
    for _ in range(5):
        x = x * 0.5 + 1
    return x


@paddle.jit.to_static
def paddles(x):
    for _ in range(5):
        x = x * 0.5 + 1
    return x


def test_a_translated_function_calls_another():
    static = same_calls(lambda x: rolled(x) * 2, *ROWS)
    assert [q.kind for q in dy2st.report(static, paddle.ones([2])).loops] == ["scan"]


def test_one_translated_by_paddle_is_translated_anew():
    static = dy2st.to_static(lambda x: paddles(x) * 2)
    x = paddle.ones([2])
    check.same(static(x), rolled(x) * 2)
    assert [q.kind for q in dy2st.report(static, x).loops] == ["scan"]
    check.same(dy2st.to_static(paddles)(x), rolled(x))


class Outer(paddle.nn.Layer):
    """Layers and methods that are translated already, by dy2st and by Paddle."""

    def __init__(self, how):
        super().__init__()
        self.one, self.two = how(Inner()), Inner()

    @dy2st.to_static
    def helper(self, x):
        return self.two(x) + 1

    def forward(self, x):
        return self.helper(self.one(x))


@pytest.mark.parametrize("how", [dy2st.to_static, paddle.jit.to_static, lambda layer: layer])
def test_layers_and_methods_that_are_translated_already(how):
    paddle.seed(5)
    net = Outer(lambda layer: layer)
    paddle.seed(5)
    static = dy2st.to_static(Outer(how))
    static.set_state_dict(net.state_dict())
    for _ in range(3):
        x = paddle.randn([2, 4])
        check.same(static(x), net(x))
    assert [q.kind for q in dy2st.report(static, x).loops] == ["scan", "scan"]


def test_a_layer_translated_by_paddle_before():
    net = Inner()
    x = paddle.randn([2, 4])
    want = net(x)
    check.same(dy2st.to_static(paddle.jit.to_static(net))(x), want)
