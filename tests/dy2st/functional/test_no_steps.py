"""`dy2st.scan` and `dy2st.flex_scan` over no steps: no body runs, it is traced for its types."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from tests.check import data, random_state, same

pytestmark = pytest.mark.sampled(every=16)

RUNS = ["eager", "translated"]


def ways(f):
    """Eager and translated."""
    return {"eager": f, "translated": dy2st.to_static(f)}


def nothing(*shape, dtype="float64"):
    return paddle.zeros([0, *shape], dtype)


def results(f, *args):
    """What both ways return; they agree."""
    want = f(*args)
    same(dy2st.to_static(f)(*args), want)
    return want


def leak(c, x):
    c = c * 0.5 + x
    return c, (c * c).sum()


OUTPUTS = {
    "tensor": (lambda c, x: (c, c + x), [0, 3], paddle.float64),
    "scalar": (lambda c, x: (c, (c * x).sum()), [0], paddle.float64),
    "matrix": (lambda c, x: (c, paddle.outer(c, x)), [0, 3, 3], paddle.float64),
    "bool": (lambda c, x: (c, c > x), [0, 3], paddle.bool),
    "cast": (lambda c, x: (c, x.astype("float32")[:2]), [0, 2], paddle.float32),
    "number": (lambda c, x: (c, 1), [0], paddle.int64),
    "product": (lambda c, x: (c, c @ paddle.ones([3, 5], "float64")), [0, 5], paddle.float64),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_have_the_shape_and_type_of_a_step(name):
    body, shape, dtype = OUTPUTS[name]
    h = data(3, trained=False)
    last, ys = results(lambda h, x: dy2st.scan(body, h, x), h, nothing(3))
    assert ys.shape == shape and ys.dtype == dtype
    same(last, h)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_time_is_in_its_axis(axis):
    x = paddle.zeros([0, 4] if axis == 0 else [4, 0], "float64")
    _, ys = results(lambda h, x: dy2st.scan(lambda c, q: (c, q), h, x, axis=axis), data(2), x)
    assert ys.shape == x.shape


def test_structures():
    def body(c, x):
        return {"a": c["b"], "b": c["a"]}, [{"y": x}, None, (c["a"],)]

    h = data(3, trained=False)
    _, ys = results(lambda h, x: dy2st.scan(body, {"a": h, "b": h}, x), h, nothing(2))
    assert ys[1] is None and ys[0]["y"].shape == [0, 2] and ys[2][0].shape == [0, 3]


def test_a_length_of_zero():
    _, ys = results(lambda h: dy2st.scan(lambda c, _: (c * 2, c), h, length=0), data(3))
    assert ys.shape == [0, 3]


@pytest.mark.parametrize("option", ["reverse", "unroll", "truncate_gradient", "checkpoint"])
def test_options(option):
    value = {"reverse": True, "unroll": 3, "truncate_gradient": 2, "checkpoint": "sqrt"}[option]
    f = lambda h, x: dy2st.scan(leak, h, x, **{option: value})  # noqa: E731
    _, ys = results(f, data(3, trained=False), nothing(3))
    assert ys.shape == [0]


def test_taps():
    def f(h, x):
        return dy2st.scan(lambda s, q: (s[0] + s[1] + q, s[0]), dy2st.taps(h, (-3, -1)), x)

    h = data(3, 2, trained=False)
    last, ys = results(f, h, nothing(2))
    same(last, h)
    assert ys.shape == [0, 2]


def test_a_nested_scan_over_no_steps():
    def f(h, x):
        def outer(c, q):
            return dy2st.scan(leak, c, q)

        return dy2st.scan(outer, h, x)

    for shape in ([0, 2, 3], [2, 0, 3], [0, 0, 3]):
        _, ys = results(f, data(3, trained=False), paddle.zeros(shape, "float64"))
        assert ys.shape == shape[:2]


def test_gradients_reach_init():
    for run in ways(lambda h, x: dy2st.scan(leak, h, x)[0]).values():
        h = data(3)
        run(h, nothing(3)).sum().backward()
        assert h.grad.tolist() == [1, 1, 1]


@pytest.mark.parametrize("how", RUNS)
def test_the_body_leaves_nothing_behind(how, capsys):
    calls, total = [], paddle.zeros([3], "float64")
    norm = paddle.nn.BatchNorm1D(3)

    def body(c, x):
        calls.append(1)
        total.add_(x)
        print("a step")
        noise = paddle.rand([3], "float64")
        return c + noise, norm(x.astype("float32").unsqueeze(0))[0]

    run = ways(lambda h, x: dy2st.scan(body, h, x))[how]
    before, mean = random_state(), norm._mean.clone()
    _, ys = run(data(3, trained=False), nothing(3))
    assert ys.shape == [0, 3] and ys.dtype == paddle.float32
    assert calls == [] and not total.any() and capsys.readouterr().out == ""
    assert random_state() == before and bool((norm._mean == mean).all())


def test_one_program_for_every_length():
    spec = [paddle.static.InputSpec([3], "float64", "h"),
            paddle.static.InputSpec([None, 3], "float64", "x")]  # fmt: skip
    static = dy2st.to_static(lambda h, x: dy2st.scan(leak, h, x), input_spec=spec)
    h = data(3, trained=False)
    for steps in (4, 0, 1, 9):
        x = data(steps, 3, trained=False)
        same(static(h, x), dy2st.scan(leak, h, x), rtol=1e-9, atol=1e-9)
    assert "1 program" in str(dy2st.explain(static))


# ---------------------------------------------------------------- templates
@pytest.mark.parametrize("device", [(), ("cpu",), (paddle.CPUPlace(),)], ids=["", "cpu", "place"])
def test_templates_take_the_place_of_the_body(device):
    def body(c, x):
        raise AssertionError("the body is not asked")

    def f(h, x):
        return dy2st.scan(body, h, x, output_templates=((2, 5), "float32", *device))

    last, ys = results(f, data(3, trained=False), nothing(3))
    assert ys.shape == [0, 2, 5] and ys.dtype == paddle.float32


@pytest.mark.parametrize("dtype", ["int32", paddle.int32, "paddle.int32"], ids=str)
def test_element_types_of_templates(dtype):
    _, ys = dy2st.scan(leak, data(3), nothing(3), output_templates=((), dtype))
    assert ys.shape == [0] and ys.dtype == paddle.int32


def test_templates_have_the_structure_of_the_outputs():
    templates = {"a": ((3,), "float64"), "b": [((), "int64"), None]}
    f = lambda h, x: dy2st.scan(leak, h, x, output_templates=templates)  # noqa: E731
    _, ys = results(f, data(3, trained=False), nothing(3))
    assert ys["a"].shape == [0, 3] and ys["b"][0].dtype == paddle.int64 and ys["b"][1] is None


def test_templates_of_a_loop_that_runs_are_checked_only():
    f = lambda h, x: dy2st.scan(leak, h, x, output_templates=((), "float64"))  # noqa: E731
    _, ys = results(f, data(3, trained=False), data(4, 3, trained=False))
    assert ys.shape == [4]


def test_templates_of_a_named_size():
    spec = [paddle.static.InputSpec([3], "float64"), paddle.static.InputSpec([None, 3], "float64")]
    f = lambda h, x: dy2st.scan(leak, h, x, output_templates=((), "float64"))  # noqa: E731
    static = dy2st.to_static(f, input_spec=spec)
    assert static(data(3, trained=False), nothing(3))[1].shape == [0]


@pytest.mark.parametrize("how", RUNS)
def test_a_body_that_cannot_be_traced_needs_templates(how):
    def body(c, x):
        return c, x[: int(x.sum())]

    run = ways(lambda h, x: dy2st.scan(body, h, x))[how]
    with pytest.raises(dy2st.SourceError, match="Or give output_templates"):
        run(data(3, trained=False), nothing(3))


# ---------------------------------------------------------------- flex_scan
def core(x, v):
    v = v * 0.5 + x
    return (v > 1).astype("float32"), v


def test_flex_scan():
    f = lambda x, v: dy2st.flex_scan(core, 1, 1, 1, x, v)  # noqa: E731
    spikes, states = results(f, nothing(3), data(3, trained=False))
    assert spikes.shape == [0, 3] and spikes.dtype == paddle.float32
    assert states.shape == [0, 3] and states.dtype == paddle.float64


@pytest.mark.parametrize("templates", [None, [((3,), "float32")]], ids=["traced", "given"])
def test_flex_scan_with_final_states(templates):
    def f(x, v):
        return dy2st.flex_scan(
            core, 1, 1, 1, x, v, final_state_only=True, output_templates=templates
        )

    v = data(3, trained=False)
    spikes, last = results(f, nothing(3), v)
    assert spikes.shape == [0, 3] and last.data_ptr() != v.data_ptr()
    same(last, v)


def test_flex_scan_with_templates_and_states():
    f = lambda x, v: dy2st.flex_scan(  # noqa: E731
        core, 1, 1, 1, x, v, output_templates=[((7,), "int32")]
    )
    spikes, states = results(f, nothing(3), data(3, trained=False))
    assert spikes.shape == [0, 7] and spikes.dtype == paddle.int32 and states.shape == [0, 3]


def test_while_loop_whose_condition_fails_at_once():
    h = data(3, trained=False)
    f = lambda h: dy2st.while_loop(lambda c: c.sum() > 1e9, lambda c: c * 2, h)  # noqa: E731
    last = results(f, h)
    assert last.data_ptr() != h.data_ptr()
    same(last, h)
