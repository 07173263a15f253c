"""The cases of `bench_ops`: a call, and its operands at two sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import paddle
from paddle import nn
from paddle.nn import functional as F  # noqa: N812


@dataclass(frozen=True)
class Some:
    """An operand: floats with a gradient, positive ones, truths, or integers below `below`."""

    shape: tuple[int, ...]
    below: int = 0
    positive: bool = False
    mask: bool = False
    plain: bool = False

    def made(self) -> paddle.Tensor:
        if self.mask:
            return paddle.rand(self.shape) > 0.5
        if self.below:
            return paddle.randint(0, self.below, self.shape)
        x = paddle.rand(self.shape) * 0.9 + 0.05 if self.positive else paddle.randn(self.shape)
        x.stop_gradient = self.plain
        return x


def floats(*shape: int) -> Some:
    return Some(shape)


def positive(*shape: int) -> Some:
    return Some(shape, positive=True)


def plain(*shape: int) -> Some:
    """Without a gradient."""
    return Some(shape, plain=True)


def mask(*shape: int) -> Some:
    return Some(shape, mask=True)


def below(n: int, *shape: int) -> Some:
    return Some(shape, below=n)


@dataclass(frozen=True)
class Case:
    """`f` is called with operands; of a `layer`, it makes one of the numbers in front of them."""

    name: str
    f: Callable[..., Any]
    small: Sequence[Any]
    large: Sequence[Any]
    trained: bool = True
    layer: bool = False

    def made(self, items: Sequence[Any]) -> tuple[Any, list[Any]]:
        operands = [q.made() for q in items if isinstance(q, Some)]
        if not self.layer:
            return self.f, operands
        return self.f(*(q for q in items if not isinstance(q, Some))), operands

    def call(self, f: Any) -> Callable[..., Any]:
        return f if not self.layer else lambda *xs: f(*xs)


CASES: list[Case] = []


def case(name: str, f: Callable[..., Any], small: Any, large: Any, trained: bool = True) -> None:
    items = [q if isinstance(q, (list, tuple)) else [q] for q in (small, large)]
    CASES.append(Case(name, f, *items, trained=trained))


def layer(name: str, make: Callable[..., Any], small: Sequence[Any], large: Sequence[Any]) -> None:
    CASES.append(Case(name, make, small, large, layer=True))


# ---------------------------------------------------------------- elementwise
ROWS = floats(32, 64), floats(1024, 1024)
LAST = floats(8, 128), floats(512, 2048)
IMAGE = floats(1, 8, 16, 16), floats(8, 64, 56, 56)

for _name in (
    "relu relu6 gelu silu elu selu celu leaky_relu softplus softsign mish hardswish hardsigmoid "
    "hardtanh tanhshrink softshrink log_sigmoid swish"
).split():
    case(_name, getattr(F, _name), *ROWS)
for _name in "exp tanh sigmoid erf sin cos abs square floor sign expm1 atan".split():
    case(_name, getattr(paddle, _name), *ROWS)
for _name in "log sqrt rsqrt log1p reciprocal".split():
    case(_name, getattr(paddle, _name), positive(32, 64), positive(1024, 1024))
case("gelu tanh", lambda x: F.gelu(x, approximate=True), *ROWS)
case("glu", F.glu, *LAST)
case("prelu", lambda x, w: F.prelu(x, w), (IMAGE[0], floats(8)), (IMAGE[1], floats(64)))
case("pow 3", lambda x: x**3, *ROWS)
case("pow 2.5", lambda x: x**2.5, positive(32, 64), positive(1024, 1024))
case("clip", lambda x: paddle.clip(x, -1.0, 1.0), *ROWS)
case("add", lambda x, y: x + y, (ROWS[0], ROWS[0]), (ROWS[1], ROWS[1]))
case("add row", lambda x, y: x + y, (ROWS[0], floats(64)), (ROWS[1], floats(1024)))
case("add column", lambda x, y: x + y, (ROWS[0], floats(32, 1)), (ROWS[1], floats(1024, 1)))
case("add channel", lambda x, y: x + y, (IMAGE[0], floats(8, 1, 1)), (IMAGE[1], floats(64, 1, 1)))
case("multiply", lambda x, y: x * y, (ROWS[0], ROWS[0]), (ROWS[1], ROWS[1]))
case("divide", lambda x, y: x / y, (ROWS[0], positive(32, 64)), (ROWS[1], positive(1024, 1024)))
case("maximum", paddle.maximum, (ROWS[0], ROWS[0]), (ROWS[1], ROWS[1]))
case("outer sum", lambda x, y: x + y, (floats(32, 1), floats(64)), (floats(1024, 1), floats(1024)))
case("where", paddle.where, (mask(32, 64), *[ROWS[0]] * 2), (mask(1024, 1024), *[ROWS[1]] * 2))
case("compare", lambda x, y: x > y, (ROWS[0], ROWS[0]), (ROWS[1], ROWS[1]), trained=False)
case("lerp", lambda x, y: paddle.lerp(x, y, 0.3), (ROWS[0], ROWS[0]), (ROWS[1], ROWS[1]))
case("addcmul", lambda x, y, z: x + 0.5 * y * z, [ROWS[0]] * 3, [ROWS[1]] * 3)
case("cast", lambda x: x.astype("float64"), *ROWS)
case("to float16 and back", lambda x: x.astype("float16").astype("float32"), *ROWS)
case("isnan any", lambda x: paddle.isnan(x).any(), *ROWS, trained=False)

# ---------------------------------------------------------------- reductions
for _name in "sum mean max min prod logsumexp std var norm".split():
    _call = getattr(paddle, _name)
    for _axis in (0, 1):
        case(f"{_name} axis {_axis}", lambda x, g=_call, a=_axis: g(x, axis=a), *ROWS)
    if _name != "prod":  # eager's gradient of an extreme of all elements takes minutes
        case(f"{_name} all", lambda x, g=_call: g(x), *ROWS, trained=_name not in ("max", "min"))
case("sum axes 0 2 3", lambda x: x.sum(axis=[0, 2, 3]), *IMAGE)
case("mean axes 2 3", lambda x: x.mean(axis=[2, 3]), *IMAGE)
case("sum middle", lambda x: x.sum(1), floats(4, 16, 8), floats(64, 128, 128))
case("all", lambda x: x.all(axis=-1), mask(32, 64), mask(1024, 1024), trained=False)
case("argmax last", lambda x: x.argmax(-1), *ROWS, trained=False)
case("argmax first", lambda x: x.argmax(0), *ROWS, trained=False)
case("argmin", lambda x: x.argmin(-1), *ROWS, trained=False)
case("cumsum last", lambda x: x.cumsum(-1), *ROWS)
case("cumsum first", lambda x: x.cumsum(0), *ROWS)
case("cumprod", lambda x: x.cumprod(-1), positive(32, 64), positive(1024, 32))
case("cummax", lambda x: x.cummax(-1)[0], *ROWS)
case("logcumsumexp", lambda x: paddle.logcumsumexp(x, -1), *ROWS)
case("sort", lambda x: x.sort(-1), *ROWS)
case("argsort", lambda x: x.argsort(-1), *ROWS, trained=False)
case("topk 5", lambda x: x.topk(5)[0], *ROWS)
case("topk 50 of vocabulary", lambda x: x.topk(50)[0], floats(2, 1000), floats(16, 50257))
case("median", lambda x: paddle.median(x, axis=-1), floats(32, 63), floats(256, 1023))
case("kthvalue", lambda x: paddle.kthvalue(x, 7)[0], *ROWS)
case("unique", paddle.unique, below(50, 200), below(5000, 100000), trained=False)
case("bincount", lambda x: paddle.bincount(x), below(50, 200), below(5000, 1000000), trained=False)
case(
    "searchsorted",
    lambda a, x: paddle.searchsorted(a, x),
    (plain(64), plain(256)),
    (plain(4096), plain(100000)),
    trained=False,
)
case("histogram", lambda x: paddle.histogram(x, 64), plain(1000), plain(1000000), trained=False)

# ---------------------------------------------------------------- norms, softmax, losses
for _name in ("softmax", "log_softmax"):
    _call = getattr(F, _name)
    case(f"{_name} last", _call, *LAST)
    case(f"{_name} first", lambda x, g=_call: g(x, axis=0), *LAST)
    case(f"{_name} channels", lambda x, g=_call: g(x, axis=1), *IMAGE)
case("softmax short rows", F.softmax, floats(64, 10), floats(100000, 10))
case(
    "gumbel-free straight through",
    lambda x: (F.one_hot(x.argmax(-1), x.shape[-1]) - F.softmax(x)).detach() + F.softmax(x),
    *LAST,
)
layer("LayerNorm", nn.LayerNorm, (128, floats(8, 128)), (768, floats(2048, 768)))
layer("BatchNorm2D", nn.BatchNorm2D, (8, IMAGE[0]), (64, IMAGE[1]))
layer("GroupNorm", lambda c: nn.GroupNorm(4, c), (8, IMAGE[0]), (64, IMAGE[1]))
layer("InstanceNorm2D", nn.InstanceNorm2D, (8, IMAGE[0]), (64, IMAGE[1]))
layer("BatchNorm1D", nn.BatchNorm1D, (64, ROWS[0]), (1024, ROWS[1]))
case(
    "rms norm",
    lambda x, w: x * paddle.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w,
    (LAST[0], floats(128)),
    (LAST[1], floats(2048)),
)
case("normalize", F.normalize, *LAST)
case("cosine_similarity", F.cosine_similarity, (LAST[0], LAST[0]), (LAST[1], LAST[1]))
case(
    "cross_entropy",
    F.cross_entropy,
    (floats(32, 10), below(10, 32)),
    (floats(256, 10000), below(10000, 256)),
)
case(
    "cross_entropy pixels",
    lambda x, y: F.cross_entropy(x, y, axis=1),
    (floats(1, 4, 16, 16), below(4, 1, 16, 16)),
    (floats(4, 21, 128, 128), below(21, 4, 128, 128)),
)
case("mse_loss", F.mse_loss, (ROWS[0], ROWS[0]), (ROWS[1], ROWS[1]))
case("l1_loss", F.l1_loss, (ROWS[0], ROWS[0]), (ROWS[1], ROWS[1]))
case("smooth_l1_loss", F.smooth_l1_loss, (ROWS[0], ROWS[0]), (ROWS[1], ROWS[1]))
case(
    "bce with logits",
    F.binary_cross_entropy_with_logits,
    (ROWS[0], positive(32, 64)),
    (ROWS[1], positive(1024, 1024)),
)
case(
    "bce",
    F.binary_cross_entropy,
    (positive(32, 64), Some((32, 64), positive=True, plain=True)),
    (positive(1024, 1024), Some((1024, 1024), positive=True, plain=True)),
)
case("kl_div", F.kl_div, (ROWS[0], positive(32, 64)), (ROWS[1], positive(1024, 1024)))
case("nll_loss", F.nll_loss, (floats(32, 10), below(10, 32)), (floats(4096, 256), below(256, 4096)))
case(
    "ctc_loss",
    lambda x, y: F.ctc_loss(
        x,
        y.astype("int32"),
        paddle.full([x.shape[1]], x.shape[0], "int64"),
        paddle.full([x.shape[1]], y.shape[1], "int64"),
    ),
    (floats(20, 2, 10), below(9, 2, 5)),
    (floats(200, 16, 64), below(63, 16, 30)),
)
case(
    "dice",
    lambda x, y: 1 - 2 * (F.sigmoid(x) * y).sum() / (F.sigmoid(x) + y).sum(),
    (ROWS[0], plain(32, 64)),
    (ROWS[1], plain(1024, 1024)),
)
case("dropout", lambda x: F.dropout(x, 0.1), *ROWS)
case("dropout2d", lambda x: F.dropout2d(x, 0.1), *IMAGE)
case("rand_like", lambda x: paddle.rand(x.shape), *ROWS, trained=False)
case("randn_like", lambda x: paddle.randn(x.shape), *ROWS, trained=False)
case(
    "multinomial",
    lambda x: paddle.multinomial(x, 1),
    positive(4, 50),
    positive(64, 10000),
    trained=False,
)
