"""Convolutions, pooling and batch norm are rows: eager's results and gradients, no foreign op."""

from __future__ import annotations

import copy

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import nn
from paddle.static import InputSpec
from paddle.vision.models import resnet18

import dy2st
import executor
import ir
from executor import cpu
from executor.cpu.codegen import source
from executor.cpu.target import current
from executor.launches import blocks
from executor.lowering.program import lower
from executor.plan.arena import layout
from ir.autodiff import differentiate
from ir.opdef import ShapeError
from ir.passes import run
from ir.program import Builder, Input, Program, Value
from ir.types import F32, F64, Type, product
from tests import check
from tests.check import BOUNDS, agree, data, default_dtype, trains
from tests.conftest import mostly_slow

pytestmark = pytest.mark.sampled


def native(f, *args, dtype="float64", calls=1):
    """As eager, gradients too, and nothing is left to Paddle."""
    static = agree(f, *args, dtype=dtype, calls=calls)
    assert not dy2st.report(static, *args).foreign_counts
    return static


# ---------------------------------------------------------------- convolutions
CONVS = {
    "padding": ((2, 3, 9, 10), (4, 3, 3, 3), {"padding": 1}),
    "same": ((2, 3, 9, 10), (4, 3, 3, 3), {"padding": "SAME", "stride": 2}),
    "same, dilation": (
        (2, 3, 9, 10),
        (4, 3, 2, 3),
        {"padding": "SAME", "stride": (1, 2), "dilation": 2},
    ),
    "valid": ((2, 3, 9, 10), (4, 3, 3, 3), {"padding": "VALID", "stride": 2, "dilation": 2}),
    "one side": ((2, 3, 9, 10), (4, 3, 3, 3), {"padding": [1, 2, 0, 1]}),
    "pairs": ((2, 3, 9, 10), (4, 3, 3, 3), {"padding": [[0, 0], [0, 0], [1, 2], [0, 1]]}),
    "depthwise": ((2, 3, 9, 10), (6, 1, 3, 3), {"groups": 3, "padding": 1, "stride": 2}),
    "depthwise, windows without a pixel": (
        (2, 3, 9, 6),
        (6, 1, 1, 1),
        {"groups": 3, "padding": 2, "stride": 2},
    ),
    "depthwise, one image": ((1, 3, 17, 33), (3, 1, 3, 3), {"groups": 3, "padding": 1}),
    "depthwise, one image, stride": (
        (1, 3, 15, 13),
        (6, 1, 3, 3),
        {"groups": 3, "padding": 1, "stride": 2},
    ),
    "depthwise, dilation": (
        (2, 3, 11, 19),
        (3, 1, 3, 5),
        {"groups": 3, "padding": (2, 1), "dilation": (2, 3)},
    ),
    "depthwise, no padding": ((2, 3, 7, 21), (3, 1, 2, 3), {"groups": 3}),
    "depthwise, 7x7": ((1, 2, 9, 20), (2, 1, 7, 7), {"groups": 2, "padding": 3}),
    "depthwise, 9x9": ((2, 2, 9, 18), (2, 1, 9, 9), {"groups": 2, "padding": 4}),
    "groups": ((2, 4, 9, 10), (6, 2, 3, 3), {"groups": 2, "padding": 1, "stride": 2}),
    "groups, one filter": ((1, 6, 9, 17), (2, 3, 3, 3), {"groups": 2, "padding": 1}),
    "groups, one image": ((1, 4, 33, 7), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
    "1x1": ((2, 4, 9, 10), (20, 4, 1, 1), {}),
    "1x1, groups": ((2, 4, 9, 10), (20, 2, 1, 1), {"groups": 2}),
    "1x1, stride": ((2, 4, 9, 10), (20, 4, 1, 1), {"stride": 2}),
    "1x1, one pixel": ((3, 4, 1, 1), (20, 4, 1, 1), {}),
    "7x7": ((2, 4, 30, 31), (8, 4, 7, 7), {"padding": 3, "stride": 2}),
    "parts": ((2, 150, 5, 4), (7, 150, 3, 3), {"padding": 1}),
}


@pytest.mark.paired
@pytest.mark.quick("padding-float64")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", CONVS)
def test_convolutions(name, dtype):
    x, w, options = CONVS[name]
    bias = data(w[0], seed=2, dtype=dtype)

    def f(x, w, b):
        return F.conv2d(x, w, b, **options)

    native(f, data(*x, dtype=dtype), data(*w, seed=1, dtype=dtype) / 8, bias, dtype=dtype)


def test_convolution_along_one_axis():
    def f(x, w, b):
        return F.conv1d(x, w, b, padding=2, stride=2, dilation=2)

    native(f, data(2, 3, 20), data(4, 3, 3, seed=1), data(4, seed=2))


def random_conv(rng, depthwise=False):
    """A program of one convolution, and its operands."""
    while True:
        groups, c, o = int(rng.choice([1, 1, 1, 2, 3])), *(int(q) for q in rng.integers(1, 16, 2))
        if depthwise:
            groups, c, o = groups + 1, 1, 1 + o % 2
        n, h, w, *taps = (int(q) for q in (*rng.integers(1, 4, 1), *rng.integers(1, 36, 2),
                                           *rng.integers(1, 6, 2)))  # fmt: skip
        attrs = {
            "stride": tuple(int(q) for q in rng.integers(1, 4, 2)),
            "padding": tuple((int(a), int(b)) for a, b in rng.integers(-1, 4, (2, 2))),
            "dilation": tuple(int(q) for q in rng.choice([1, 1, 1, 2, 3], 2)),
            "groups": groups,
        }
        dtype, b = rng.choice([F32, F64]), Builder()
        shapes = (n, c * groups, h, w), (o * groups, c, *taps)
        values = [Value(Type(dtype, shape)) for shape in shapes]
        try:
            out = b.conv(*values, **attrs)
        except ShapeError:
            continue
        inputs = tuple(Input(v, "arg", f"x{k}") for k, v in enumerate(values))
        return Program("conv", inputs, tuple(b.ops), (out,)), [
            rng.standard_normal(v.type.shape).astype(dtype.numpy) for v in values
        ]


@pytest.mark.parametrize("seed", mostly_slow(range(8)))
def test_random_convolutions(seed):
    """Against NumPy in double precision, also where memory that is dead holds NaN."""
    rng = np.random.default_rng(seed)
    for k in range(6):
        agrees(*random_conv(rng), poison=k % 2 == 0)


def agrees(program, arrays, poison, scale=0.1):
    found = executor.compile(run(program, start_at="expand"), poison=poison)(*arrays)
    for got, want in zip(found, ir.evaluate(program, arrays)[0], strict=True):
        bound = scale * BOUNDS[str(want.dtype)]
        np.testing.assert_allclose(got, want, rtol=bound, atol=bound, err_msg=str(program))


@pytest.mark.parametrize("seed", mostly_slow(range(8)))
def test_random_convolutions_of_every_channel(seed):
    """Forward and both gradients, also of planes with more pixels than a vector."""
    rng = np.random.default_rng(seed)
    for k in range(3):
        program, arrays = random_conv(rng, depthwise=True)
        agrees(program, arrays, k % 2 == 0)
        backward = differentiate(program, [0], [0, 1]).backward
        seeds = [rng.standard_normal(v.value.type.shape) for v in backward.inputs]
        seeds = [q.astype(v.value.type.dtype.numpy) for q, v in zip(seeds, backward.inputs)]
        agrees(backward, seeds, k % 2 == 0, scale=1.0)


@pytest.mark.parametrize("rows, columns", [(8, 8), (None, 8), (None, None)])
def test_convolution_of_a_named_batch(rows, columns):
    """One program for every batch, an empty one too, and for every size that has a name."""
    spec = InputSpec([None, 3, rows, columns], "float64", "x")

    def f(x):
        return F.relu(conv(x))

    with default_dtype("float64"):
        conv = nn.Conv2D(3, 4, 3, padding=1)
    static = dy2st.to_static(f, input_spec=[spec])
    for n, h, w in ((2, 8, 8), (5, 8, 8), (1, rows or 11, columns or 21)):
        found = []
        for g in (static, f):
            x = data(n, 3, h, w)
            y = g(x)
            (y * y).sum().backward()
            found.append((y.numpy(), x.grad.numpy(), conv.weight.grad.numpy()))
            conv.clear_gradients()
        for a, b in zip(*found):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    shapes = ((2, 3, 8, 8), (7, 3, rows or 9, columns or 5))
    assert len({id(static.entry(data(*shape))) for shape in shapes}) == 1
    with paddle.no_grad():
        assert static(paddle.zeros([0, 3, 8, 8], "float64")).shape == [0, 4, 8, 8]


# ---------------------------------------------------------------- pooling
POOLS = {
    "max": lambda x: F.max_pool2d(x, 3, 2, 1),
    "max, same": lambda x: F.max_pool2d(x, (2, 3), (2, 1), "SAME"),
    "max, overlapping": lambda x: F.max_pool2d(x, 5, 1, 2),
    "max, one axis": lambda x: F.max_pool1d(x[:, :, 0], 3, 2, 1),
    "average": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "average, inclusive": lambda x: F.avg_pool2d(x, 3, 2, 1, exclusive=False),
    "average, pairs": lambda x: F.avg_pool2d(x, (2, 3), (1, 2), [[0, 0], [0, 0], [0, 1], [2, 0]]),
    "average, divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=3),
    "average, valid": lambda x: F.avg_pool2d(x, 4, 3, "VALID"),
    "max, ceil": lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True),
    "average, ceil": lambda x: F.avg_pool2d(x, 3, (2, 3), 1, ceil_mode=True),
    "average, ceil, inclusive": lambda x: F.avg_pool2d(x, 3, 2, 0, ceil_mode=True, exclusive=False),
    "adaptive, unequal": lambda x: F.adaptive_avg_pool2d(x, (3, 12)),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (4, 2)),
    "global": lambda x: F.adaptive_avg_pool2d(x, 1),
    "large, max": lambda x: F.max_pool2d(x, (8, 9)),
    "large, max, padding": lambda x: F.max_pool2d(x, 9, (2, 3), 4),
    "large, max, ceil": lambda x: F.max_pool2d(x, (7, 10), 3, (1, 2), ceil_mode=True),
    "large, average": lambda x: F.avg_pool2d(x, (8, 10)),
    "large, average, padding": lambda x: F.avg_pool2d(x, (7, 11), (2, 1), (3, 5)),
    "large, average, apart": lambda x: F.avg_pool2d(x, (8, 9), (8, 10), (4, 0)),
}


@pytest.mark.paired
@pytest.mark.quick(
    "max-float64", "max, one axis-float32", "average, divisor-float64", "global-float64"
)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", POOLS)
def test_pooling(name, dtype, monkeypatch):
    """Eager rounds one by the number of pixels to float32 in the gradient of an average."""
    if "max" not in name:
        monkeypatch.setitem(BOUNDS, "float64", 1e-7)
    native(POOLS[name], data(2, 3, 8, 10, dtype=dtype), dtype=dtype)


@pytest.mark.parametrize("name", ["max", "max, overlapping", "large, max, padding"])
def test_the_first_of_equal_pixels_has_the_gradient(name):
    """As Paddle's kernel, also for NaN, infinities and numbers below the smallest float32."""
    rng = np.random.default_rng(3)
    values = [0.0, -0.0, 1.0, 1.0, np.nan, -np.inf, np.inf, -1e300]
    x = paddle.to_tensor(rng.choice(values, (2, 2, 9, 9)), stop_gradient=False)
    x.stop_gradient = False
    native(POOLS[name], x)


def test_pooling_of_a_named_batch():
    def f(x):
        return F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1)

    spec = InputSpec([None, 2, 6, 6], "float64", "x")
    static = dy2st.to_static(f, input_spec=[spec])
    for n in (3, 1, 0):
        check.same(static(data(n, 2, 6, 6, trained=False)), f(data(n, 2, 6, 6, trained=False)))
    assert len({id(static.entry(data(n, 2, 6, 6))) for n in (2, 7)}) == 1


@pytest.mark.parametrize(
    "f",
    [
        lambda x: F.max_pool2d(x, 1, 4, 3, ceil_mode=True),
        lambda x: F.adaptive_max_pool2d(x, 3),
    ],
)
def test_pooling_without_a_row_is_left_to_paddle(f):
    static = agree(f, data(2, 3, 8, 10))
    assert dy2st.report(static, data(2, 3, 8, 10)).foreign_counts


# ---------------------------------------------------------------- large images
def lowered(program):
    low = cpu.machine().legalize(lower(run(program, start_at="expand"), cpu.machine()))
    text = source(low, layout(low.launches), current()).text()
    return sum(1 for _ in every(low.launches)), text.count("\n")


def every(launches):
    for x in launches:
        yield x
        for block in blocks(x):
            yield from every(block)


def sizes_of_code(name, shapes, **attrs):
    """(launches, lines of LLVM text) of the forward and of the backward program of one op."""
    b = Builder()
    inputs = [Value(Type(F32, shape)) for shape in shapes]
    out = getattr(b, name)(*inputs, **attrs)
    program = Program(
        name,
        tuple(Input(v, "arg", f"x{k}") for k, v in enumerate(inputs)),
        tuple(b.ops),
        (out,),
    )
    g = differentiate(program, [0], range(len(inputs)))
    return [lowered(p) for p in (g.forward, g.backward)]


def padding(n):
    return ((n, n), (n, n))


DEPTHWISE = {
    "3x3": ((8, 1, 3, 3), {"padding": padding(1)}),
    "3x3, two filters": ((16, 1, 3, 3), {"padding": padding(1)}),
    "3x3, four filters": ((32, 1, 3, 3), {"padding": padding(1)}),
    "3x3, no padding": ((8, 1, 3, 3), {}),
    "3x3, stride": ((8, 1, 3, 3), {"padding": padding(1), "stride": (2, 2)}),
    "3x3, dilation": ((8, 1, 3, 3), {"padding": padding(2), "dilation": (2, 2)}),
    "7x7": ((8, 1, 7, 7), {"padding": padding(3)}),
    "11x11": ((8, 1, 11, 11), {"padding": padding(5)}),
    "1x1": ((8, 1, 1, 1), {}),
    "groups": ((8, 4, 3, 3), {"padding": padding(1)}),
    "groups, one filter": ((2, 4, 3, 3), {"padding": padding(1)}),
    "groups, stride": ((8, 4, 3, 3), {"padding": padding(1), "stride": (2, 2)}),
    "groups, 1x1": ((8, 4, 1, 1), {}),
    "plain": ((8, 8, 3, 3), {"padding": padding(1)}),
    "plain, stride": ((8, 8, 3, 3), {"padding": padding(1), "stride": (2, 2)}),
    "plain, 1x1, stride": ((8, 8, 1, 1), {"stride": (2, 2)}),
}


def check_same_code(found):
    """As many launches for all sizes. A kernel has as many lines whatever the size is, but for code
    of vectors, which is there where a line of results has that many."""
    for small, middle, large in zip(*found, strict=True):
        assert small[0] == middle[0] == large[0], found
        assert large[1] <= 1.25 * middle[1], found


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("name", DEPTHWISE)
def test_code_of_a_convolution_does_not_grow_with_the_image(name, images):
    w, attrs = DEPTHWISE[name]
    groups = 8 // w[1]
    check_same_code(
        [
            sizes_of_code("conv", [(images, 8, s, s), w], groups=groups, **attrs)
            for s in (32, 64, 256)
        ]
    )


@pytest.mark.parametrize("name", ["max_pool", "sum_pool"])
@pytest.mark.parametrize("taps, stride, around", [(2, 2, 0), (3, 2, 1), (5, 1, 2), (9, 1, 4)])
def test_code_of_pooling_does_not_grow_with_the_image(name, taps, stride, around):
    attrs = {"taps": (taps, taps), "stride": (stride, stride), "padding": padding(around)}
    check_same_code([sizes_of_code(name, [(2, 4, s, s)], **attrs) for s in (64, 128, 256)])


@pytest.mark.parametrize("name", ["max_pool", "sum_pool"])
@pytest.mark.parametrize("parts", [1, 2])
def test_code_of_pooling_does_not_grow_with_the_window(name, parts):
    found = []
    for s in (32, 64, 256):
        taps = (s // parts, s // parts)
        attrs = {"taps": taps, "stride": taps, "padding": padding(0)}
        found.append(sizes_of_code(name, [(2, 4, s, s)], **attrs))
    check_same_code(found)


# ---------------------------------------------------------------- batch norm
NORMS = {
    "NCHW": (nn.BatchNorm2D, (3, 4, 3, 2), {}),
    "NHWC": (nn.BatchNorm2D, (3, 3, 2, 4), {"data_format": "NHWC"}),
    "NCL": (nn.BatchNorm1D, (3, 4, 5), {"momentum": 0.3, "epsilon": 1e-2}),
    "NC": (nn.BatchNorm1D, (5, 4), {}),
    "no weight": (nn.BatchNorm1D, (5, 4), {"weight_attr": False, "bias_attr": False}),
    "global": (nn.BatchNorm2D, (3, 4, 3, 2), {"use_global_stats": True}),
}


@pytest.mark.quick("NC-train")
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("name", NORMS)
def test_batch_norm(name, mode):
    """Results, gradients and running statistics, step after step."""
    kind, shape, options = NORMS[name]

    def make():
        norm = kind(4, **options)
        norm.train() if mode == "train" else norm.eval()
        norm._variance.set_value(norm._variance * 2.0 + 0.25)
        return nn.Sequential(norm, nn.Tanh())

    static = trains(make, lambda: [data(*shape)])
    assert not dy2st.report(static, data(*shape)).foreign_counts


def test_batch_norm_of_a_named_batch():
    with default_dtype("float64"):
        net = nn.Sequential(nn.Conv2D(2, 3, 3), nn.BatchNorm2D(3))
    spec = InputSpec([None, 2, 5, 5], "float64", "x")
    static = check.parity(net, lambda: [data(3, 2, 5, 5, trained=False)], [spec])
    assert not dy2st.report(static, data(3, 2, 5, 5)).foreign_counts


@pytest.mark.quick
def test_a_channel_of_one_element():
    """Paddle takes it as it is."""
    trains(lambda: nn.BatchNorm1D(4), lambda: [data(1, 4)])


# ---------------------------------------------------------------- models
def activations(program):
    """Bytes of the two largest values that some op reads and makes."""
    sizes = [
        sorted(product(v.type.shape) * v.type.dtype.size for v in {*op.operands, *op.results})
        for op in program.ops
        if op.name in ("conv", "max_pool", "sum_pool", "relu", "add")
    ]
    return max(sum(q[-2:]) for q in sizes)


def statistics_of(net, seed=0):
    """Running statistics as if it had been trained."""
    rng = np.random.default_rng(seed)
    for q in net.sublayers():
        if isinstance(q, nn.BatchNorm2D):
            q._mean.set_value(rng.normal(0, 0.1, q._mean.shape).astype("float32"))
            q._variance.set_value(rng.uniform(0.5, 2, q._mean.shape).astype("float32"))
    net.eval()
    return net


def test_what_follows_a_convolution_is_made_in_its_place():
    """Batch norm, activation and residual: two images and the room for a part of a sum."""
    conv, norm = nn.Conv2D(8, 8, 3, padding=1, bias_attr=False), nn.BatchNorm2D(8)
    net = statistics_of(nn.Sequential(conv, norm))

    def f(x):
        return F.relu(net(F.relu(net(x))) + x).sum()

    x = data(2, 8, 40, 40, dtype="float32", trained=False)
    static = dy2st.to_static(f)
    with paddle.no_grad():
        check.same(static(x), f(x), rtol=1e-5)
        run = static.entry(x).executable
    scratch = 4 * (8 * 8 * 9 + 8 * 9 * 64) + 4096
    assert run.layout.bytes({}) <= 2 * 4 * 2 * 8 * 40 * 40 + scratch and not run.copies


@pytest.mark.slow
def test_memory_of_resnet():
    """At most 1.3 times the two largest activations that live at the same time."""
    paddle.seed(0)
    net = statistics_of(resnet18(num_classes=10))
    static = dy2st.to_static(net)
    x = data(4, 3, 64, 64, dtype="float32", trained=False)
    with paddle.no_grad():
        want = copy.deepcopy(net)(x)
        check.same(static(x), want, rtol=1e-4, atol=1e-4)
        program, run = dy2st.program(static.forward, x), static.forward.entry(x).executable
        assert not dy2st.report(static.forward, x).foreign_counts and not run.copies
    assert run.layout.bytes({}) <= 1.3 * activations(program)


def test_a_convolutional_net_in_a_file(tmp_path):
    """A program of rows can be saved."""
    net = statistics_of(nn.Sequential(nn.Conv2D(2, 4, 3, 2, 1), nn.BatchNorm2D(4), nn.MaxPool2D(2)))
    x = data(3, 2, 8, 8, dtype="float32", trained=False)
    want = net(x)
    dy2st.save(net, tmp_path / "net.dy2st", [InputSpec([None, 2, 8, 8], "float32", "x")])
    (got,) = check.leaves(dy2st.load(tmp_path / "net.dy2st")(x.numpy()))
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-5, atol=1e-6)
