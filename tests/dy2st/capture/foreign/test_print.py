"""`print` at run time, and texts with values of the program in them."""

# ruff: noqa: UP031, UP032

from __future__ import annotations

import sys

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.static import InputSpec

import dy2st
from tests import check

#: multiples of 1/8, and a power of two of them: sums and means are exact in every order
X = paddle.to_tensor(np.random.default_rng(0).integers(-12, 13, [4, 4]).astype("float32") / 8)
N = paddle.to_tensor([2, 3])
CASES = []


def case(*loops):
    def register(f):
        CASES.append(pytest.param(f, loops, id=f.__name__))
        return f

    return register


@pytest.mark.sampled
@pytest.mark.quick(
    "constants_and_tensors", "containers_of_tensors", "f_strings", "format_and_percent"
)
@pytest.mark.parametrize(("f", "loops"), CASES)
def test_prints_what_eager_prints(f, loops, capsys):
    eager, static = f() if f.__name__[0].isupper() else f, None
    static = dy2st.to_static(f() if eager is not f else f)
    for k in range(3):
        want = eager(X + k)
        out, err = capsys.readouterr()
        assert out + err
        have = static(X + k)
        assert capsys.readouterr() == (out, err)
        check.same(have, want)
    assert tuple(q.kind for q in dy2st.report(static, X).loops) == loops


@case()
def constants_and_tensors(x):
    print("shape", x.shape, x.dtype, None, 1.5, True)
    print(x.mean(), x.sum(0), sep="\n|", end="!\n")
    print()
    print(x > 0, (x * 10).astype("int64"), x[0:0])
    print("to stderr", x[0], file=sys.stderr)
    print("flushed", file=sys.stdout, flush=True)
    return x


@case()
def containers_of_tensors(x):
    print([x[0, 0], 1], (x[0, 1],), {"a": x[0], 2: [x[1]]}, ("a", 'b"'))
    return x


@case()
def f_strings(x):
    m, name = x.mean(), "mean"
    print(f"{name}: {m:.3f} {m} {x[0]} {m!r:} {name!r:>8} {name=}")
    print(f"{m:>{8}.2f}|{[m]}|{3:03d}|{{}}tail")
    print("a " + str(m) + f" b {m}", str(x.shape), repr(m), format(m, ".1f"))
    return x


@case()
def format_and_percent(x):
    m, n = x.mean(), N.sum()
    print("{} {:.2f} {k[0]:>4} {{}}".format(x[0], m, k=["z"]))
    print("{1} {0:.3e} {1!r} {2}".format(m, n, "t"))
    print("%s %5.2f%% %d %r" % (x[0], m, n, "s"))
    print("%(a).1f %(b)s" % {"a": m, "b": 3})
    print(", ".join([f"{m:.1f}", "plain"]), "-".join("ab"))
    return x


@case("scan")
def in_a_loop(x):
    h = paddle.zeros([4])
    for t in range(x.shape[0]):
        print("step", t, f"{t + 1}/{x.shape[0]}", f"{h.sum():.4f}")
        h = paddle.tanh(h + x[t])
    print("done")
    return h


@case("scan", "scan")
def in_nested_loops(x):
    s = x.sum()
    for i in range(2):
        print("outer", i)
        for j in range(3):
            print(i, j, s, end=";")
            s = s * 0.5
    return s


@case()
def in_branches(x):
    print("before")
    if x.mean() > 0.5:
        y = x * 2
        print("large", y.mean())
    else:
        y = -x
        print("small")
    print("after")
    return y


@case("while")
def in_a_while_loop(x):
    s, n = x.abs().sum(), 0
    while s > 1:
        s, n = s / 2, n + 1
        print(n, s)
    return s


@case()
def numbers_of_the_program(x):
    a, b = float(x.mean()), int((x * 100).sum())
    print(a, b, b % 7, f"{a:.3f} {b:+d} {a > 0}", bool(x.sum() > 0))
    return x


@case()
class Parameters(nn.Layer):
    def __init__(self):
        super().__init__()
        self.w = self.create_parameter([2], default_initializer=nn.initializer.Constant(0.5))

    def __repr__(self):
        return f"Net({self.w.shape})"

    def forward(self, x):
        print(self.w, self.w * 2, f"{self.w}", self)
        return x * self.w.sum()


def test_named_sizes(capsys):
    def f(x):
        print("batch", x.shape[0], x.shape, f"{x.shape[0] * 2:>4}")
        for t in range(x.shape[0]):
            print(t, x[t].sum())
        return x

    static = dy2st.to_static(f, input_spec=[InputSpec([None, 4], "float32", "x")])
    for n in (3, 2, 1):
        f(X[:n])
        want = capsys.readouterr().out
        static(X[:n])
        assert capsys.readouterr().out == want
    assert [q.kind for q in dy2st.report(static, X).loops] == ["scan"]


def test_a_failed_translation_prints_nothing(capsys):
    def f(x):
        print("never")
        return paddle.unique(x, axis=0)

    with pytest.raises(dy2st.SourceError):
        dy2st.to_static(f)(X)
    assert capsys.readouterr().out == ""


def text_of(x):
    return f"m={x.mean():.2f}"


REFUSED = {
    "compared": lambda x: x if text_of(x) == "m=0" else -x,
    "used as a key": lambda x: {text_of(x): x},
    "measured": lambda x: x * len(text_of(x)),
    "taken apart": lambda x: text_of(x)[0],
    "needed by .upper": lambda x: print(text_of(x).upper()),
    "formatted again": lambda x: print(f"{text_of(x):>20}"),
    "the result contains a string": text_of,
}


@pytest.mark.parametrize("what", REFUSED)
def test_other_uses_of_a_text_are_refused(what, capsys):
    with pytest.raises(dy2st.SourceError, match=what):
        dy2st.to_static(REFUSED[what])(X)
    assert capsys.readouterr().out == ""


def test_a_text_is_not_kept_in_an_attribute():
    class Net(nn.Layer):
        def forward(self, x):
            self.note = f"{x.mean()}"
            return x

    net = dy2st.to_static(Net())
    with pytest.raises(dy2st.SourceError, match=r"net.note contains a string"):
        net(X)
    assert not hasattr(net, "note")


def test_print_to_a_file_is_refused(tmp_path):
    with open(tmp_path / "log", "w") as log, pytest.raises(dy2st.SourceError, match="print to a"):
        dy2st.to_static(lambda x: print(x, file=log))(X)


def test_errors_carry_texts():
    def always(x):
        raise ValueError(f"mean {x.mean()} of {x.shape[0]}")

    with pytest.raises(ValueError, match=r"mean 0\.01\d* of 4"):
        dy2st.to_static(always)(X)

    def some(x):
        if x.mean() > 100:
            raise ValueError(f"mean {x.mean()}")
        assert x.sum() < 1000, f"sum {x.sum()}"
        return x * 2

    static = dy2st.to_static(some)
    check.same(static(X), some(X))
    with pytest.raises(ValueError, match="mean 200.0156"):
        static(X + 200)
    with pytest.raises(AssertionError, match="sum 1440.25"):
        static(X + 90)
