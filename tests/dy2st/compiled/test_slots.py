"""Slots: what the backward reads is the tensor that eager keeps, not one that has the same values.

The caller overwrites a tensor between forward and backward. Where eager kept that tensor, backward
must raise as eager does, or give the gradient of the values that there were; where eager kept
another one, overwriting must not matter.
"""

from __future__ import annotations

import copy
import linecache
import random
import textwrap

import numpy as np
import paddle
import pytest

import dy2st
import executor
from executor.segmented.interpreter import Interpreted
from ir import Slot, VerifyError, evaluate, parse, verify
from ir.autodiff import differentiate
from ir.autodiff.partial_backward import inputs_read, with_arrived
from ir.passes import run, simplify, simplify_apart
from tests.conftest import mostly_slow
from tests.ir.analysis.test_chains import by_value

pytestmark = pytest.mark.sampled

W0 = [2.0, -1.0, 0.5]


def from_source(body: str, arguments: str = "self, x"):
    """A method with this body; a file that inspect can read."""
    name = f"<forward {abs(hash(body))}>"
    source = f"def forward({arguments}):\n" + textwrap.indent(textwrap.dedent(body), "    ")
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    scope: dict = {"paddle": paddle}
    exec(compile(source, name, "exec"), scope)
    return scope["forward"]


def layer(body: str):
    class Net(paddle.nn.Layer):
        forward = from_source(body)

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("buf", paddle.to_tensor([[0.3, 0.1, -0.2], [0.5, 0.7, 0.2]]))
            self.register_buffer("row", paddle.to_tensor([0.4, -0.6, 0.8]))
            start = paddle.nn.initializer.Assign(np.array(W0, "float32"))
            self.w = self.create_parameter([3], default_initializer=start)

    return Net()


#: the loss is the first result; `y` is what multiplies `w`, so eager keeps it
KEPT = {
    "a clone of a buffer": "y = self.row.clone()\nreturn (y * self.w).sum()",
    "a buffer times one": "y = self.row * 1.0\nreturn (y * self.w).sum()",
    "a buffer plus nothing": "y = self.row + 0.0\nreturn (y * self.w).sum()",
    "a clone of an argument": "y = x.clone()\nreturn (y * self.w).sum()",
    "a buffer itself": "return (self.row * self.w).sum()",
    "a view of a buffer": "return (self.buf[1] * self.w).sum()",
    "a copy by reshape": "return (self.buf.t().reshape([6])[:3] * self.w).sum()",
    "negated twice": "y = -(-self.row)\nreturn (y * self.w).sum()",
    "rows put together again": """
        ys = []
        for t in range(2):
            ys.append(self.buf[t])
        y = paddle.stack(ys)
        return (y * self.w).sum()""",
    "a piece of a concat": "y = paddle.concat([self.row, x])[:3]\nreturn (y * self.w).sum()",
    "what set_value wrote": "y = paddle.tanh(x)\nself.row.set_value(y)\nreturn (y * self.w).sum()",
    "what an item was set to": "y = paddle.tanh(x)\nself.buf[0] = y\nreturn (y * self.w).sum()",
    "what everything was set to": "y = x * 3\nself.row[:] = y\nreturn (y * self.w).sum()",
    "what assign wrote": """
        y = x * 3
        paddle.assign(y, output=self.row)
        return (y * self.w).sum()""",
    "the row that was set": """
        self.buf[0] = paddle.tanh(x)
        return (self.buf[0] * self.w).sum()""",
    "a clone of what was written": """
        self.row.add_(x)
        y = self.row.clone()
        return (y * self.w).sum()""",
    "what add_ wrote": "self.row.add_(x)\nreturn (self.row * self.w).sum()",
    "what two calls wrote": """
        self.row.add_(x)
        self.row.scale_(0.5)
        return (self.row * self.w).sum()""",
    "what set_value wrote, read back": """
        self.row.set_value(paddle.tanh(x))
        return (self.row * self.w).sum()""",
    "what copy_ wrote, read back": """
        self.row.copy_(paddle.tanh(x), True)
        return (self.row * self.w).sum()""",
    "a row of what add_ wrote": "self.buf.add_(x)\nreturn (self.buf[1] * self.w).sum()",
    "a local copy with an item set": """
        c = self.buf.clone()
        c[0] = x
        self.buf[0] = x
        return (c[0] * self.w).sum()""",
    "a local copied from a buffer": """
        self.row.add_(x)
        z = paddle.zeros([3])
        z.copy_(self.row, True)
        return (z * self.w).sum()""",
    "an argument that is written": "x.add_(self.row)\nreturn (x * self.w).sum()",
    "what a loop wrote": """
        for t in range(3):
            self.row.add_(x * t)
        return (self.row * self.w).sum()""",
    "a list beside the buffer that it fills": """
        ys = []
        for t in range(2):
            y = x * (t + 1)
            self.buf[t] = y
            ys.append(y)
        return (paddle.stack(ys) * self.w).sum()""",
    "what a branch wrote": """
        if x.sum() > 0:
            self.row.add_(x)
        return (self.row * self.w).sum()""",
    "a result": "y = paddle.tanh(x)\nreturn (y * self.w).sum(), y",
    "the clone of a result": "y = paddle.tanh(x)\nz = y.clone()\nreturn (y * self.w).sum(), z",
    "what a result was cloned from": """
        y = paddle.tanh(x)
        z = y.clone()
        return (z * self.w).sum(), y""",
    "computed twice": """
        y, z = paddle.tanh(x * 2), paddle.tanh(x * 2)
        return (y * self.w).sum(), z""",
    "two lists of the same": """
        ys, zs = [], []
        for t in range(2):
            y = paddle.tanh(x * t)
            ys.append(y)
            zs.append(y)
        return (paddle.stack(ys) * self.w).sum(), paddle.stack(zs)""",
    "the output of an in-place activation": """
        h = self.w * 2
        self.row.add_(h)
        self.row.tanh_()
        return self.row.sum()""",
    "the output of an activation, stored": """
        y = paddle.tanh(self.w * 2)
        self.row[:] = y.detach()
        return y.sum()""",
    "parameter written without gradients": """
        with paddle.no_grad():
            self.w.scale_(0.5)
        return (self.w * x * self.w).sum()""",
    "another result that is not used": "y = paddle.exp(self.w)\nreturn (self.w * x).sum(), y",
}
TARGETS = ("x", "row", "buf", "w", "out")


def overwrite(tensor, how: str) -> None:
    with paddle.no_grad():
        if how == "zero_":
            tensor.zero_()
        else:
            tensor.set_value(paddle.full_like(tensor, 9.0))


def outcome(net, static, target: str, how: str, late: bool = False):
    """The gradients of w after two calls; "raises" where backward raises.

    late: overwrite behind the backward, when nothing can go wrong.
    """
    f = dy2st.to_static(net) if static else net
    found = []
    for k in range(2):
        x = paddle.to_tensor([0.1, 0.2, 0.3]) * (k + 1)
        out = f(x)
        loss, rest = (out[0], out[1]) if isinstance(out, tuple) else (out, None)
        where = {"x": x, "row": net.row, "buf": net.buf, "w": net.w, "out": rest}[target]
        if not late:
            overwrite(where, how)
        try:
            loss.backward()
            found.append(net.w.grad.numpy())
        except (RuntimeError, OSError, ValueError):
            found.append("raises")
        if late:
            overwrite(where, how)
        net.clear_gradients()
        net.row, net.buf = net.row.detach(), net.buf.detach()
    return found


def close(a, b) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str)
    return bool(np.allclose(a, b, rtol=1e-4, atol=1e-5))


def check(body: str, target: str, how: str) -> None:
    """Where eager is right so are we; where it raises, we raise or are right."""
    want = outcome(layer(body), False, target, how)
    have = outcome(layer(body), True, target, how)
    if all(map(close, have, want)):
        return
    late = outcome(layer(body), False, target, how, late=True)
    for ours, eager, true in zip(have, want, late):
        silent = isinstance(true, str) or not (isinstance(eager, str) or close(eager, true))
        what = f"{target}.{how}: {ours}, eager {eager}, true {true}\n{body}"
        assert silent or close(ours, true) or close(ours, eager), what


@pytest.mark.slow
@pytest.mark.quick(
    "a clone of a buffer", "what set_value wrote", "a row of what add_ wrote", "computed twice",
)  # fmt: skip
@pytest.mark.parametrize("name", KEPT)
def test_the_backward_reads_the_tensor_that_eager_keeps(name):
    for target in TARGETS:
        if target == "out" and "sum()," not in KEPT[name]:
            continue
        for how in ("zero_", "set_value"):
            check(KEPT[name], target, how)


@pytest.mark.parametrize(
    "name", ["a clone of a buffer", "what everything was set to", "the clone of a result"]
)
def test_the_backward_would_be_wrong_if_equal_values_were_one_tensor(name, monkeypatch):
    by_value(monkeypatch)
    with pytest.raises(AssertionError):
        test_the_backward_reads_the_tensor_that_eager_keeps(name)


VALUES = (
    "{a}.clone()|{a} * 1.0|{a} + {b}|paddle.tanh({a})|{a}|paddle.exp({a} * 0.3)|-(-{a})|"
    "paddle.concat([{a}, {b}])[:3]|paddle.stack([{a}, {b}])[0]|{a} * self.w|{a}.detach()|"
    "{a}.reshape([3])"
).split("|")
WRITES = (
    "{a}.scale_(0.5)|{a}.add_({b})|{a}.set_value({b})|{a}[:] = {b}|{a}[1] = {b}[0]|"
    "{a}.copy_({b}, True)|paddle.assign({b}, output={a})|{a}.tanh_()|{a}.exp_()"
).split("|")


def random_body(seed: int) -> str:
    """Values with names, and writes through them, without gradients: eager follows aliases then."""
    r = random.Random(seed)
    names, lines = ["x", "self.row", "self.buf[0]", "self.buf[1]"], []
    for k in range(r.randint(3, 9)):
        a, b = r.choice(names), r.choice(names)
        kind = r.randrange(12)
        if kind < 5:
            lines.append(f"v{k} = {r.choice(VALUES).format(a=a, b=b)}")
            names.append(f"v{k}")
        elif kind < 10:
            write = r.choice(WRITES).format(a=a, b=f"{b}.detach()")
            lines += ["with paddle.no_grad():", f"    {write}"]
        elif kind == 10:
            lines += ["for t in range(2):", f"    {a}.detach().add_({b}.detach() * t)"]
        else:
            lines += [f"if {a}.sum() > 0:", f"    {a}.detach().add_({b}.detach())"]
    used = " + ".join(f"({u} * self.w).sum()" for u in r.sample(names, 3))
    return "\n".join([*lines, f"return {used}, {r.choice(names)}"])


@pytest.mark.parametrize("seed", mostly_slow(range(24)))
def test_random_bodies(seed):
    """Seed s is a failure's name; bodies that eager refuses are left out."""
    body, r = random_body(seed), random.Random(seed)
    try:
        outcome(layer(body), False, "x", "zero_")
    except (RuntimeError, ValueError):
        return
    for target, how in r.sample([(t, h) for t in TARGETS for h in ("zero_", "set_value")], 2):
        check(body, target, how)


# ---------------------------------------------------------------- in programs
WRITTEN = """program p(%x: f64[T,3] arg "x", %n: f64[3] buffer "n") {
  %a = add(%n, %n)                               : f64[3]
  copy_(%n, %a, own=True)
  %y = multiply(%x, %n)                          : f64[T,3]
  return %n, %y, %n
}"""


def test_a_slot_in_text():
    program = run(parse(WRITTEN), stop_before="expand", check=True)
    text = str(program)
    assert "return slot %n, %y, slot %n" in text and "write %n = " in text
    assert str(parse(text)) == text
    assert [isinstance(v, Slot) for v in program.outputs] == [True, False, True]


def test_a_slot_that_is_not_written_is_refused():
    text = 'program p(%x: f64[3] arg "x") {\n  return slot %x\n}'
    with pytest.raises(VerifyError, match="not written back"):
        verify(parse(text))
    missing = 'program p(%x: f64[3] arg "x") {\n  return slot %y\n}'
    with pytest.raises(VerifyError, match="%y is not defined"):
        parse(missing)


@pytest.mark.parametrize("native", [True, False], ids=["native", "interpreted"])
def test_a_slot_is_the_array_itself(native):
    program = run(parse(WRITTEN), check=True)
    x, n = np.arange(6.0).reshape(2, 3), np.array([1.0, 2.0, 3.0])
    want, _ = evaluate(program, [x, n])
    executable = executor.compile(program) if native else Interpreted(program, executor.compile)
    outputs = executable(x, n)
    assert outputs[0] is n and outputs[2] is n and outputs[1] is not n
    for a, b in zip(outputs, want):
        np.testing.assert_array_equal(a, b)


def test_a_slot_needs_no_memory():
    """Without the pass the program has two more outputs of the size of n."""
    program = parse(WRITTEN)
    slots = run(program).outputs
    plain = run(program, disabled={"inplace_source"}).outputs
    assert sum(not isinstance(v, Slot) for v in slots) == 1
    assert sum(not isinstance(v, Slot) for v in plain) == 3


APART = {
    "a copy of an input": "%y = assign(%x)  : f64[3]\n  return %y",
    "a piece of a concat": (
        "%c = concat(%x, %w, axis=0)  : f64[6]\n"
        "  %y = slice(%c, axis=0, start=0, length=3)  : f64[3]\n  return %y"
    ),
    "a result computed twice": (
        "%a = exp(%x)  : f64[3]\n  %b = exp(%x)  : f64[3]\n"
        "  %c = neg(%b)  : f64[3]\n  return %a, %c"
    ),
    "a copy of a result": (
        "%a = exp(%x)  : f64[3]\n  %b = assign(%a)  : f64[3]\n"
        "  %c = neg(%b)  : f64[3]\n  return %a, %c"
    ),
}


@pytest.mark.quick("a result computed twice")
@pytest.mark.parametrize("name", APART)
def test_tensors_that_the_caller_sees_stay_apart(name):
    """Longer than what `simplify` leaves; local copies go in both."""
    head = 'program p(%x: f64[3] arg "x", %w: f64[3] param "w") {\n  '
    program = verify(parse(head + APART[name] + "\n}"))
    assert len(verify(simplify_apart(program)).ops) > len(simplify(program).ops)
    local = "%a = exp(%x)  : f64[3]\n  %b = assign(%a)  : f64[3]\n  %c = neg(%b)  : f64[3]"
    program = verify(parse(f"{head}{local}\n  return %c\n}}"))
    assert len(simplify_apart(program).ops) == 2


def test_marks_are_gone_after_expand():
    program = run(parse(WRITTEN), stop_before="expand")
    assert "stored" in str(program) and "stored" not in str(run(program, start_at="expand"))
    idle = WRITTEN.replace("return %n, %y, %n", "return %y").replace("%x, %n)", "%x, %a)")
    assert "stored" not in str(run(parse(idle), stop_before="expand"))


# ---------------------------------------------------------------- results without a gradient
def test_what_an_unused_result_needs_may_be_overwritten():
    """Eager does not run the node of a result that no gradient reaches."""
    body = KEPT["another result that is not used"]
    for net in (layer(body), dy2st.to_static(layer(body))):
        loss, y = net(paddle.to_tensor([0.1, 0.2, 0.3]))
        y.detach().zero_()
        loss.backward()
        np.testing.assert_allclose(net.w.grad.numpy(), [0.1, 0.2, 0.3], rtol=1e-6)


def test_an_unused_result_adds_no_nan():
    """1 / 0 times the gradient that did not arrive."""

    def f(x):
        return paddle.log(x), x * 2.0

    for g in (f, dy2st.to_static(f)):
        x = paddle.to_tensor([0.0, 1.0], stop_gradient=False)
        g(x)[1].sum().backward()
        assert x.grad.tolist() == [2.0, 2.0]


def test_the_backward_of_some_results(golden):
    text = """program p(%x: f64[3] arg "x", %w: f64[3] param "w") {
  %a = multiply(%x, %w)                          : f64[3]
  %b = exp(%w)                                   : f64[3]
  return %a, %b
}"""
    g = differentiate(parse(text), [0, 1], [1])
    parts = [with_arrived(g.backward, 2, arrived) for arrived in ((0, 1), (0,), (1,))]
    assert "\n\n".join(str(verify(p)) for p in parts) == golden
    assert [sorted(inputs_read(p)) for p in parts] == [[0, 1, 2, 3], [0, 2], [1, 3]]


def test_a_written_buffer_becomes_a_result_without_a_copy():
    """Its memory and its object stay; backward goes through it."""
    net = layer("self.row.add_(self.w * x)\nreturn (self.row * self.w).sum()")
    before, address = net.row, net.row.data_ptr()
    static = dy2st.to_static(net)
    static(paddle.to_tensor([0.1, 0.2, 0.3]))
    assert net.row is before and net.row.data_ptr() == address
    assert not net.row.stop_gradient and not net.row.is_leaf
    net.row.sum().backward()
    np.testing.assert_allclose(net.w.grad.numpy(), [0.1, 0.2, 0.3], rtol=1e-6)


class Heads(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = paddle.nn.Linear(3, 2), paddle.nn.Linear(3, 2)

    def forward(self, x):
        return self.one(x).sum(), self.two(x).sum()


def test_parameters_that_no_gradient_reaches_have_none():
    """AdamW lets weights without a gradient alone; those with zeros decay."""
    paddle.seed(5)
    eager = Heads()
    nets = eager, dy2st.to_static(copy.deepcopy(eager))
    found = []
    for net in nets:
        adam = paddle.optimizer.AdamW(0.1, parameters=net.parameters(), weight_decay=0.5)
        for used in ((0,), (0,), (0, 1), (1,)):
            out = net(paddle.to_tensor([[0.1, 0.2, 0.3]]))
            sum(out[k] for k in used).backward()
            found.append([p.grad is None for p in net.parameters()])
            adam.step()
            adam.clear_grad()
    assert found[:4] == found[4:] and found[0] == [False, False, True, True]
    for a, b in zip(*(net.parameters() for net in nets)):
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-5)
