"""Programs of whole sequences and their streams: random stacks, and what cannot be streamed."""

import numpy as np
import pytest

from dy2st.streaming.check import fed
from ir import SourceError, evaluate, parse
from ir.streaming import QUANTUM, StreamLength, rules, stream
from ir.uses import size_names, walk
from tests.conftest import mostly_slow
from tests.ir.streaming.random_stacks import Stack_
from tests.ir.streaming.streamed_stacks import compare, streamed


@pytest.mark.sampled(every=40)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # frames that are no data hold anything
@pytest.mark.parametrize("block", mostly_slow(range(14), 14, nightly=range(14, 20)))
def test_random_stacks_equal_the_whole_sequence(block):
    """The result of each chunk, and the tail, are frames of the whole result."""
    outcomes = [compare(seed) for seed in range(10 * block, 10 * block + 10)]
    assert outcomes.count("equal") >= 7


@pytest.mark.slow
def test_no_op_names_the_size_of_the_sequence():
    for seed in range(300, 330):
        stack = Stack_(seed, 8)
        program = streamed(stack, 2 * stack.unit).program
        nodes = list(walk(program.ops))
        assert QUANTUM not in set().union(*(size_names(n) for n in nodes)), stack
        inner = [p for n in nodes if n.name == "scan" for p in n.ins]
        assert all(QUANTUM not in p.inner.type.names for p in inner), stack


def test_lengths_of_sequences_of_any_length():
    n = StreamLength().then(add=2 - 3).then(by=2).then(add=1)  # a convolution of 3 taps, stride 2
    assert [n.of(k) for k in (0, 1, 2, 7, 8)] == [0, 1, 1, 4, 4]


INTERNAL = """program f(%x: f32[2,4,4*stream_units] arg "x") {
  %z = full(value=2.0, shape=[4*stream_units, 4], dtype=f32) : f32[4*stream_units,4]
  scan %i < 2 {
    const %zi = %z                            : f32[4*stream_units,4]
    seq   %xi = %x[i]                         : f32[4,4*stream_units]
    stack %y = %yi axis 0                     : f32[2,4*stream_units,4]
    body
      %xt = transpose(%xi, perm=[1, 0])       : f32[4*stream_units,4]
      %yi = multiply(%xt, %zi)                : f32[4*stream_units,4]
  }
  return %y
}"""


def test_a_tensor_made_inside_has_a_chunk_in_the_port_of_a_loop():
    made = stream(parse(INTERNAL), 1, 4).program
    (loop,) = (n for n in made.ops if n.name == "scan")
    types = {str(p.outer.type): str(p.inner.type) for p in loop.ins}
    assert types == {"f32[4,4]": "f32[4,4]", "f32[2,4,4]": "f32[4,4]"}


def test_a_defect_in_a_rule_is_no_refusal(monkeypatch):
    monkeypatch.setitem(rules.RULES, "transpose", lambda c, op, xs: int("planted"))
    with pytest.raises(ValueError, match="planted") as found:
        stream(parse(INTERNAL), 1, 4)
    assert not isinstance(found.value, SourceError)


REFUSED = {
    "sum over time": ("%y = sum(%x, axes=[1]) : f32[2]", "`sum` over time"),
    "softmax over time": ("%y = max(%x, axes=[1], keepdim=True) : f32[2,1]", "`max` over time"),
    "products over time": (
        "%y = matmul(%x, %x, trans_y=True) : f32[2,2]",
        "a product that sums over time",
    ),
    "attention to all": (
        "%y = matmul(%x, %x, trans_x=True) : f32[4*stream_units,4*stream_units]",
        "time along two axes",
    ),
    "the last frame": (
        "%y = index(%x, axis=1, index=4*stream_units-1) : f32[2]",
        "a frame at the end",
    ),
    "backwards": (
        "%y = slice(%x, axis=1, start=4*stream_units-1, length=4*stream_units, step=-1)"
        " : f32[2,4*stream_units]",
        "read backwards",
    ),
    "two sequences": (
        "%y = concat(%x, %x, axis=1) : f32[2,8*stream_units]",
        "two sequences along time",
    ),
    "the length": ("%y = size(n=4*stream_units) : i64[]", "the length of the sequence"),
    "lookups": (
        "%i = argmax(%x, axis=0, dtype=i64) : i64[4*stream_units]\n"
        "  %y = gather(%x, %i, axis=1) : f32[2,4*stream_units]",
        "a lookup of frames",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_the_whole_sequence_is_refused(name):
    text, message = REFUSED[name]
    program = parse(f'program f(%x: f32[2,4*stream_units] arg "x") {{\n  {text}\n  return %y\n}}')
    with pytest.raises(SourceError) as e:
        stream(program, 1, 4)
    assert message in e.value.message


LOOP = """program f(%x: f32[4*stream_units,3] arg "x") {{
  %h0 = full(value=0.0, shape=[3], dtype=f32) : f32[3]
  scan %t < 4*stream_units {{
    seq   %xt = %x[{seq}]                      : f32[3]
    carry %h = %h0 then %h2                    : f32[3]
    stack %y = %h2 axis 0                      : f32[4*stream_units,3]
    body
      %h2 = add(%h, %xt)                       : f32[3]
  }}
  return %y
}}"""


def test_a_loop_that_runs_backwards_is_refused():
    stream(parse(LOOP.format(seq="t")), 1, 4)
    with pytest.raises(SourceError, match="backwards over time"):
        stream(parse(LOOP.format(seq="4*stream_units-1-t")), 1, 4)


def test_a_chunk_that_is_no_multiple_of_the_stride_is_refused():
    program = parse(
        f'program f(%x: f32[1,1,1,9*{QUANTUM}] arg "x", %w: f32[1,1,1,2] param "w") {{\n'
        f"  %y = max_pool(%x, taps=[1, 3], stride=[1, 3], padding=[[0, 0], [0, 0]])"
        f" : f32[1,1,1,3*{QUANTUM}]\n"
        f"  %z = unfold(%y, axis=3, size=3, step=3) : f32[1,1,1,{QUANTUM},3]\n  return %z\n}}"
    )
    assert stream(program, 1, 9).outputs[0].rate == 1
    stack = Stack_(0, 0)
    stack.layers = [("conv", (3, 2, 1, (1, 1)))]
    with pytest.raises(Exception, match="a multiple of the stride"):
        stack.build(7)  # a number is cut, a size of a stream is not
        streamed(stack, 3)


def test_a_snapshot_goes_on_where_it_was_taken():
    stack = Stack_(0, 0)
    stack.layers = [
        ("conv", (3, 1, 1, (1, 1))),
        ("gru", ("weight", 0, True)),
        ("running", "cumsum"),
    ]
    s = streamed(stack, 2)
    x = np.random.default_rng(0).standard_normal((2, 3, 12)).astype("float32")
    s(x[:, :, :2]), s(x[:, :, 2:4])
    saved = s.snapshot()
    first = s(x[:, :, 4:6])
    s.restore(saved)
    assert np.array_equal(s(x[:, :, 4:6]), first)
    s.reset()
    (want,), _ = evaluate(stack.build(12)[0], [x, *stack.build(12)[1]])
    assert np.allclose(fed(s, {"x": x}, [2] * 6)[0], want, atol=1e-5)
    with pytest.raises(ValueError, match="another program"):
        s.restore({})
