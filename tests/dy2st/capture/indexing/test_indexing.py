"""Indices in loops and with named sizes, indices out of range, and what is refused."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from paddle.static import InputSpec

import dy2st
from dy2st.capture import intercept
from executor import compile as compile_program
from executor import cpu
from executor.lowering.program import lower
from ir import parse
from tests import check

pytestmark = pytest.mark.sampled

RNG = np.random.default_rng(17)


def t(shape, dtype="float32"):
    return paddle.to_tensor(RNG.uniform(-2, 2, shape).astype(dtype))


X, AT = t([4, 5]), paddle.to_tensor([2, 0])


# ---------------------------------------------------------------- loops
def rows_by_step(x, i):
    y = paddle.zeros([4, 5])
    for k in range(x.shape[0]):
        y[k, i] = x[k, :2]
    return y


def columns_by_step(x, i):
    y = paddle.zeros([4, 5])
    for k in range(x.shape[0]):
        y[i, k] += x[k, 0]
    return y


def list_of_steps(x, i):
    y = x * 1
    for k in range(3):
        y[[k, k + 1]] += 1.0
    return y


def index_from_data(x, i):
    y = x * 1
    for k in i:
        y[k, [0, 1]] = y[k, [1, 2]] + 1
    return y


def step_from_data(x, i):
    k, y = paddle.to_tensor(0), x * 1
    while k < 3:
        y[i, k] = y[i, k] * 2 + 1
        y[y > 3] = 0.0
        k = k + 1
    return y


def read_in_a_loop(x, i):
    out = []
    for k in range(x.shape[0]):
        out.append(x[k][i])
    return paddle.stack(out)


def written_in_a_branch(x, i):
    y = x.clone()
    for k in range(3):
        if x[k, 0] > 0:
            y[i] = x[k]
        else:
            y[:, i] = 1.0
    return y


def scattered_in_a_loop(x, i):
    y = x * 1
    for k in range(3):
        y = paddle.scatter(y, i, x[k : k + 1].expand([2, 5]) * 2)
        y = y.cumsum(1) / 4
    return y


LOOPS = [rows_by_step, columns_by_step, list_of_steps, index_from_data, step_from_data,
         read_in_a_loop, written_in_a_branch, scattered_in_a_loop]  # fmt: skip


@pytest.mark.quick("rows_by_step", "written_in_a_branch")
@pytest.mark.parametrize("f", LOOPS, ids=lambda f: f.__name__)
def test_in_loops(f):
    static = dy2st.to_static(f)
    for _ in range(2):
        grads, results = [], []
        for g in (f, static):
            x = paddle.to_tensor(X.numpy(), stop_gradient=False)
            results.append(g(x, AT))
            (results[-1] * X[0]).sum().backward() if f is not read_in_a_loop else (
                results[-1].sum().backward()
            )
            grads.append(x.grad)
        check.same(results[1], results[0])
        if f is not step_from_data:  # eager has no gradient behind its mask
            check.same(grads[1], grads[0], 1e-5, 1e-5)
    report = dy2st.report(static, paddle.to_tensor(X.numpy(), stop_gradient=False), AT)
    assert report.foreign == () and all("unrolled" not in str(q) for q in report.loops)


# ---------------------------------------------------------------- named sizes
def named_reads(x, i):
    return x[i], x[:, i[:1]], x[i, i], x[:, :, 0][i], paddle.gather_nd(x, i.unsqueeze(1))


def named_writes(x, i):
    y = x * 1
    y[i] = 2.0
    y[i, i] = y[i, i] + 1
    y[:, i] = x[:, i[:1]]
    y[y > 1] = 0.5
    return y, paddle.index_add(x, i, 0, x[i]), paddle.scatter(x, i, x[i] * 2)


def named_sums(x, i):
    return x.cumsum(0), x.cumsum(-1), paddle.cumprod(x, 1)


@pytest.mark.parametrize("f", [named_reads, named_writes, named_sums])
def test_named_sizes(f):
    specs = [InputSpec([None, None, 3], "float32"), InputSpec([None], "int64")]
    static = dy2st.to_static(f, input_spec=specs)
    for shape, n in (((4, 5, 3), 2), ((3, 3, 3), 3), ((6, 2, 3), 1)):
        args = t(shape), paddle.to_tensor(np.arange(n) % 2)
        check.same(static(*args), f(*args), 1e-5, 1e-6)
    assert dy2st.report(static, *args).foreign == ()


# ---------------------------------------------------------------- out of range
OUTSIDE = {
    "read": lambda x, i: x[i, 0],
    "write": lambda x, i: x.__setitem__(i, 1.0),
    "pairs": lambda x, i: x.__setitem__((i, i), 1.0),
    "gather_nd": lambda x, i: paddle.gather_nd(x, i.unsqueeze(1)),
    "scatter_": lambda x, i: x.scatter_(i, paddle.zeros([2, 5])),
    "put_along_axis_": lambda x, i: x.put_along_axis_(i.unsqueeze(0), 1.0, 0, broadcast=False),
    "index_add_": lambda x, i: x.index_add_(i, 0, paddle.zeros([2, 5])),
}


@pytest.mark.quick("bad0-write", "bad1-read", "bad1-index_add_")
@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("bad", [[0, 4], [-5, 1]])
def test_an_index_out_of_range_raises_and_changes_nothing(name, bad):
    """Eager Paddle reads and writes other memory in most of these."""
    static, x = dy2st.to_static(OUTSIDE[name]), paddle.to_tensor(X.numpy())
    static(paddle.to_tensor(X.numpy()), paddle.to_tensor([0, -1]))
    with pytest.raises((IndexError, RuntimeError), match="out of (range|bounds)"):
        static(x, paddle.to_tensor(bad))
    check.same(x, X, 0.0, 0.0)


def test_a_mask_that_selects_another_number_of_elements_raises():
    def f(x, m, v):
        x[m] = v

    static, x = dy2st.to_static(f), paddle.to_tensor(X.numpy())
    v = t([3])
    static(paddle.to_tensor(X.numpy()), paddle.to_tensor(np.arange(20).reshape(4, 5) < 3), v)
    with pytest.raises(ValueError, match="as many elements"):
        static(x, paddle.to_tensor(np.arange(20).reshape(4, 5) < 4), v)
    check.same(x, X, 0.0, 0.0)


# ---------------------------------------------------------------- None beside index tensors
#: of what each item selects along its axis: a number, a slice, tensors of rank 1 and 2, a mask
ITEMS = {
    "N": None,
    ":": slice(None),
    "s": slice(1, 3),
    "i": 1,
    "a": paddle.to_tensor([2, 0]),
    "b": paddle.to_tensor([[0, 2], [1, 1]]),
    ".": ...,
}
BEHIND = (
    "aN bN aNN aNi aNs aN: aiN abN aaN bsN iaN iaaN saN sbN aiaN .aN :aN :bN :aaN a.N b:N aa:N aaNi"
)
#: with a number only; a mask is not read
MASK_BEHIND = "Nm NmN Nmi Nms Nm: Nim iNm mN mNi msN smN imN"
#: eager reads or writes other elements or other memory, or raises
FRONT = "Na Nb NNa Nai Na: Naa Nas Nia iNa aNa aNb aNia N:a :Na aN:a .Na N.a sNa a:Na iNaa Nsa"
MASK_FRONT = "NNm N:m :Nm Nsm sNm aNm Nam Nma iaNm"


def items_of(spec):
    """The items as a tuple, and the tensors among them as a list."""
    out = []
    for k, c in enumerate(spec):
        axes = [q for q in spec[:k] if q != "N"]
        flags = [True, False, True, True][: 3 + len(axes)]
        out.append(paddle.to_tensor(flags) if c == "m" else ITEMS[c])
    return tuple(out), [q for q in out if isinstance(q, paddle.Tensor)]


def none_case(spec, read):
    """A function of the tensor, a value and the index tensors; values fit what NumPy selects."""
    items, tensors = items_of(spec)

    def f(x, v, *tensors):
        left = iter(tensors)
        key = tuple(next(left) if isinstance(q, paddle.Tensor) else q for q in items)
        if read:
            return x[key]
        x[key] = v
        return x * 1

    return f, tensors


def block():
    return paddle.arange(60.0).reshape([3, 4, 5])


def selected(spec):
    items, _ = items_of(spec)
    key = tuple(q.numpy() if isinstance(q, paddle.Tensor) else q for q in items)
    return np.arange(60.0).reshape(3, 4, 5)[key]


@pytest.mark.quick("aNs", "iaN")
@pytest.mark.parametrize("spec", BEHIND.split())
def test_none_behind_index_tensors(spec):
    rows = paddle.to_tensor(100 + np.arange(selected(spec).size).reshape(selected(spec).shape))
    for read, value in ((True, 0.0), (False, 7.0), (False, rows.astype("float32"))):
        f, tensors = none_case(spec, read)
        one, two = block(), block()
        check.same(dy2st.to_static(f)(two, value, *tensors), f(one, value, *tensors))
        check.same(two, one)


@pytest.mark.quick("Nim", "imN")
@pytest.mark.parametrize("spec", MASK_BEHIND.split())
def test_a_number_for_what_a_mask_beside_none_selects(spec):
    f, tensors = none_case(spec, False)
    static = dy2st.to_static(f)
    for _ in range(3):
        one, two = block(), block()
        check.same(static(two, 7.0, *tensors), f(one, 7.0, *tensors))
        assert check.moved([one], [0]) == check.moved([two], [0])
        check.same(two, one)


@pytest.mark.quick("True-Naa", "True-sNa", "True-iaNm", "False-Naa", "False-sNa", "False-iaNm")
@pytest.mark.parametrize("spec", [*FRONT.split(), *MASK_FRONT.split()])
@pytest.mark.parametrize("read", [True, False])
def test_none_in_front_of_index_tensors_is_refused(spec, read):
    with pytest.raises(dy2st.SourceError, match="None in front|a mask beside|depends on values"):
        none_refusal(spec, read)


@pytest.mark.parametrize("spec", ["Nm", "iNm", "NmN"])
def test_a_tensor_for_what_a_mask_behind_none_selects_is_refused(spec):
    """Eager writes other elements."""
    f, tensors = none_case(spec, False)
    x = block()
    with pytest.raises(dy2st.SourceError, match="None in front"):
        dy2st.to_static(f)(x, paddle.ones([5]), *tensors)
    check.same(x, block(), 0.0, 0.0)


def none_refusal(spec, read):
    f, tensors = none_case(spec, read)
    x = block()
    try:
        dy2st.to_static(f)(x, 7.0, *tensors)
    finally:
        check.same(x, block(), 0.0, 0.0)


# ---------------------------------------------------------------- what is refused, and why
REFUSED = {
    "None in front of a tensor": (lambda x, i: x[None, i], "None in front of a tensor"),
    "None between tensors": (lambda x, i: x[i, None, i], "None in front of a tensor"),
    "a mask beside a tensor": (lambda x, i: x.__setitem__((x[:, 0] > 0, i), 1.0), "a mask beside"),
    "its own rows": (lambda x, i: x.__setitem__(i, x[:2]), "reads the storage that it writes"),
    "no element": (lambda x, i: x.__setitem__([], 5.0), "indexing does not accept"),
    "floats": (lambda x, i: x[x[0]], "indexing does not accept"),
    "a mask too short": (lambda x, i: x[[True, False]], "indexing does not accept"),
    "too many": (lambda x, i: x[i, i, i], "too many indices"),
    "shapes that do not broadcast": (lambda x, i: x[i, [0, 1, 2]], "do not broadcast"),
    "a value too long": (lambda x, i: x.__setitem__(i, x[0, :3] * 2), "cannot be assigned"),
}


@pytest.mark.quick("a mask beside a tensor", "too many")
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    f, text = REFUSED[name]
    x = paddle.to_tensor(X.numpy())
    with pytest.raises(dy2st.SourceError, match=text):
        dy2st.to_static(f)(x, AT)
    check.same(x, X, 0.0, 0.0)


def test_the_whole_of_an_empty_tensor():
    """`Tensor.view`, which makes the result another object, refuses tensors without elements."""
    x = paddle.zeros([4, 0])
    x.stop_gradient = False
    check.same(dy2st.to_static(lambda x: (x[:], x[..., :]))(x), (x[:], x[..., :]))


# ---------------------------------------------------------------- in place
def test_a_few_rows_of_a_large_buffer_are_written_in_place():
    """Nothing of the size of the buffer is copied: not even in scratch memory."""
    program = parse("""
program p(%x: f32[4096,512] buffer "x", %y: f32[2,512] arg "y", %i: i64[2] arg "i") {
  %z = scatter_nd(%x, %y, %i, axis=0)  : f32[4096,512]
  return
  write %x = %z
}""")
    run = compile_program(program)
    x, y = np.zeros([4096, 512], "float32"), np.ones([2, 512], "float32")
    run(x, y, np.array([4095, -4096]))
    assert x.sum() == 1024 and x[0].all() and x[4095].all()
    lowered = lower(program, cpu.machine())
    assert lowered.copies == () and run.layout.fixed < 1024


# ---------------------------------------------------------------- half precision
def halves(x, i):
    y = x.clone()
    y[i] = 1.5
    y[1] = x[0]
    return y, x[i], x[i, i], x[2].clone()


@pytest.mark.quick("generic")
@pytest.mark.parametrize("target", ["avx2", "generic"])
def test_half_precision_is_moved(target, monkeypatch):
    """Native code must not take elements of two bytes for wider ones."""
    monkeypatch.setenv("DY2ST_CPU", target)
    x = paddle.to_tensor(np.arange(21).reshape(3, 7)).astype("float16")
    args = x, paddle.to_tensor([2, 0])
    static = dy2st.to_static(halves)
    check.same(static(*args), halves(*args), 0.0, 0.0)
    assert dy2st.report(static, *args).foreign == ()


class Row:
    def __getitem__(self, index):
        return "own"


def first(x):
    return x[0]


def test_reads_are_intercepted_however_often_a_class_has_changed():
    """Python 3.13 goes on with the `__getitem__` that a line of code has called before."""
    patch = intercept._patch(Row, "__getitem__", lambda held: lambda self, index: "recorded")
    for k in range(1200):
        patch.install()
        Row.changes = k
        assert Row().changes == k
        patch.remove()
    for _ in range(100):
        first(Row())
    patch.install()
    assert first(Row()) == "recorded"


# ---------------------------------------------------------------- gradients
def reads_of_integers(ids, x):
    """By an index that requires a gradient, as what a float is cast to does."""
    i = (x * 2).astype("int64")
    i.stop_gradient = False
    return (
        paddle.index_select(ids, i),
        paddle.gather_nd(ids, i.unsqueeze(1)),
        paddle.take_along_axis(ids, i, 0),
        ids[i],
        ids[i[0]],
    )


def test_reads_of_integers_pass_no_gradient_to_the_index():
    x = paddle.to_tensor([0.0, 1.0], stop_gradient=False)
    ids = paddle.to_tensor([5, 6, 7])
    have, want = dy2st.to_static(reads_of_integers)(ids, x), reads_of_integers(ids, x)
    assert [q.stop_gradient for q in have] == [q.stop_gradient for q in want]
    check.same(have, want)
