# ruff: noqa: E501
"""The IR itself: sizes, types, text, the verifier, the reference of every row."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ir import (
    OPS,
    Builder,
    Carry,
    Const,
    Fused,
    Input,
    Last,
    Loc,
    Op,
    Program,
    Scan,
    Seq,
    ShapeError,
    Size,
    SourceError,
    Stack,
    Type,
    Value,
    VerifyError,
    parse,
    verify,
)
from ir.analysis.alias import places_along
from ir.attributes import check_attrs, kind_of
from ir.interpreter import evaluate
from ir.layout import StridedLayout, row_major
from ir.literal import parse_attr, parse_dim, parse_type, print_attr
from ir.opdef import assume, broadcast, collecting, complete_attrs, op, view_rule
from ir.pairs import RECORDED
from ir.types import (
    BF16,
    BOOL,
    DTYPES,
    F32,
    F64,
    I64,
    NotANumber,
    divide,
    dtype_of,
    evaluate_dim,
    product,
    substitute_dim,
)

B, T = Size.named("B"), Size.named("T")


# ---------------------------------------------------------------- sizes and types
def test_sizes_have_one_normal_form():
    assert T + 1 - 1 == T and T - T == 0 and isinstance(T - T, int)
    assert (T + 1) * (T - 1) == T * T - 1 and 2 * T == T + T and 3 - T == -(T - 3)
    assert B * T == T * B and hash(B * T) == hash(T * B)
    assert T * 0 == 0 and product((B, 2, T)) == 2 * B * T


@pytest.mark.parametrize("seed", range(5))
def test_sizes_are_the_ring_of_their_values(seed):
    r = random.Random(seed)
    for _ in range(100):
        at = {"B": r.randint(0, 5), "T": r.randint(0, 9)}
        dims = [B, T, r.randint(-3, 3), B * T, T * 2 + r.randint(0, 4)]
        x, y = r.choice(dims), r.choice(dims)
        for f in (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b):
            assert evaluate_dim(f(x, y), at) == f(evaluate_dim(x, at), evaluate_dim(y, at))
        assert parse_dim(str(x)) == x and parse_dim(str(x * y - x)) == x * y - x
        assert substitute_dim(x * y, {"T": B + 1}) == substitute_dim(
            x, {"T": B + 1}
        ) * substitute_dim(y, {"T": B + 1})


@pytest.mark.parametrize(
    "text, dim",
    [("T", T), ("-T+1", 1 - T), ("2*T", 2 * T), ("B*T+3", B * T + 3), ("T-1-T", -1), ("7", 7),
     (" T + 1 ", T + 1), ("T*T", T * T)],
)  # fmt: skip
def test_sizes_are_read(text, dim):
    assert parse_dim(text) == dim


@pytest.mark.parametrize("text", ["", "+", "T+", "2T", "T**2", "T/2", "a b", "(T", "1.5"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="not a size"):
        parse_dim(text)


@pytest.mark.parametrize(
    "a, b, want",
    [(6, 2, 3), (7, 2, None), (6 * T, 2 * T, 3), (6 * T + 3, 3, 2 * T + 1), (6 * T, B, None),
     (T * B, T, B), (T, T + 1, None), (0, T, 0), (2 * T + 2, T + 1, 2), (T * B + B, T + 1, B),
     (T * T - 1, T + 1, T - 1), (T * B + T + B + 1, B + 1, T + 1), (T * T, T + 1, None),
     (2 * T + 1, T + 1, None), (T, 0, None)],
)  # fmt: skip
def test_sizes_divide(a, b, want):
    assert divide(a, b) == want


@pytest.mark.parametrize(
    "use", [lambda n: n < 3, lambda n: 3 >= n, lambda n: n // 2, lambda n: 5 % n, range, int, float]
)
def test_a_size_in_the_place_of_a_number_is_told_apart(use):
    with pytest.raises(NotANumber, match=r"of T\+1, which is not known"):
        use(T + 1)


def test_missing_sizes_are_a_key_error():
    with pytest.raises(KeyError):
        T.evaluate({"B": 1})


@pytest.mark.parametrize("text", ["f32[]", "i64[B,T,3]", "bool[2*T+1]", "bf16[0]", "u8[T*T]"])
def test_types_are_read(text):
    assert str(parse_type(text)) == text


@pytest.mark.parametrize("text", ["f32", "f33[]", "f32[", "f32[,]", "f32[T,]", "f32[T]]", "[T]"])
def test_what_is_no_type_is_refused(text):
    with pytest.raises(ValueError):
        parse_type(text)


def test_element_types():
    for d in DTYPES.values():
        if d is not BF16:
            assert dtype_of(d.numpy) is d and d.numpy.itemsize == d.size
    with pytest.raises(TypeError):
        dtype_of("complex64")
    with pytest.raises(TypeError):
        _ = BF16.numpy


# ---------------------------------------------------------------- conditions on sizes
def test_shapes_broadcast():
    assert broadcast((B, 1, 3), (T, 1)) == (B, T, 3)
    with pytest.raises(ShapeError, match=r"shapes \[2\] and \[3\] do not broadcast"):
        broadcast((2,), (3,))
    with collecting() as wanted:
        assert broadcast((B,), (3,)) == (3,)
    assert [(w.left, w.relation, w.right) for w in wanted] == [(B, "==", 3)]


def test_conditions_on_numbers_are_decided_now():
    assume(3, ">=", 3)
    for left, relation, right in ((2, ">=", 3), (2, "==", 3), (T, ">=", T + 1)):
        with pytest.raises(ShapeError, match="does not hold"):
            assume(left, relation, right)
    with pytest.raises(ShapeError, match="cannot be decided"):
        assume(T, ">=", 1)


def test_the_builder_records_conditions():
    b, x, y = Builder(Loc("m.py", 3)), Value(Type(F32, (B,))), Value(Type(F32, (T,)))
    b.add(x, y)
    assert [str(r) for r in b.requires] == ["B == T"] and b.requires[0].loc.line == 3


@pytest.mark.parametrize("name", OPS)
def test_every_attribute_has_a_kind(name):
    row = OPS[name]
    for attr in row.attrs:
        assert kind_of(name, attr) is not None, f"{attr} of {name} in ir/attributes.py"
    for e in row.examples:
        check_attrs(name, complete_attrs(row, dict(e.attrs)))


@pytest.mark.parametrize(
    ("op_", "attr", "value"),
    [
        ("slice", "step", 1.0),
        ("sum", "axes", 3),
        ("argmax", "axis", True),
        ("unfold", "step", 0),
        ("conv", "stride", (0, 1)),
        ("max_pool", "taps", (1 << 40, 1)),
        ("index", "index", 1 << 63),
        ("strided", "strides", (parse_attr("9223372036854775808*N"),)),
        ("cast", "dtype", "f32"),
        ("matmul", "trans_x", 1),
    ],
)
def test_an_attribute_of_another_kind_is_refused(op_, attr, value):
    example = OPS[op_].examples[0]
    with pytest.raises(ShapeError, match=f"the attribute {attr} cannot be"):
        check_attrs(op_, complete_attrs(OPS[op_], {**example.attrs, attr: value}))


def test_rows_are_declared_once():
    with pytest.raises(ValueError, match="declared twice"):
        op("add(x, y)", types=lambda x, y: x)
    with pytest.raises(ShapeError, match="no attribute 'axes'"):
        complete_attrs(OPS["concat"], {"axes": 1})
    with pytest.raises(ShapeError, match="needs the attribute 'axis'"):
        complete_attrs(OPS["concat"], {})


# ---------------------------------------------------------------- text
ATTRS = [1, -3, True, False, None, 0.0, -0.0, 1.5, 1e-05, 1e300, float("inf"), -float("inf"), "", 'a"b\\c\nd',
         (), (1,), (1, (2.0, "x")), T, 2 * T - 1, F32, BOOL, Type(F32, (B, 3)), Type(I64),
         {}, {"a": 1, "b": (T, None)}, {1: {"x": F64}}]  # fmt: skip


@pytest.mark.parametrize("value", ATTRS, ids=repr)
def test_attributes_are_read_as_they_were_printed(value):
    back = parse_attr(print_attr(value))
    assert back == value and type(back) is type(value) and print_attr(back) == print_attr(value)


def test_nan_is_an_attribute():
    assert np.isnan(parse_attr(print_attr(float("nan"))))


@pytest.mark.parametrize(
    "text", ["", "[1", "{1}", "{1: }", "1 2", '"a', "@", "[1}", "f32[", "1.5.2"]
)
def test_what_is_no_attribute_is_refused(text):
    with pytest.raises(VerifyError):
        parse_attr(text)


def test_attributes_without_text_are_refused():
    with pytest.raises(TypeError, match="no text for the attribute"):
        print_attr(object())


EVERYTHING = """
program all(%x: f32[B,T,3] arg "x", %w: f32[3] param "cell.w", %n: i64[] buffer "a \\"b\\"", %c: f32[3] const "c", %r: i64[2] rng "rng") {
  require T >= 1 "max of x"                                            @ model.py:3
  require B == T "add"
  %m = max(%x, axes=[1])                         : f32[B,3]            @ model.py:3
  %a, %b = split(%w, axis=0, sections=[1, 2])    : f32[1], f32[2]
  %y = foreign(%x, call="dropout", args=[0.5, None, True, {"axis": [1, T]}, "two words", f64], types=[f32[B,T,3], bool[]]) : f32[B,T,3], bool[]
  scan %t < 2*T-1 {                                                    @ model.py:5
    const %w1 = %w                               : f32[3]
    carry %h = %m then %h2 last %hT              : f32[B,3]
    carry %k = %m then %h                        : f32[B,3]
    stack %ys = %h2 axis 1                       : f32[B,2*T-1,3]
    body
      %d = add(%h, %k)                           : f32[B,3]
      %h2 = multiply(%d, %w1)                    : f32[B,3]
  }
  scan %s < T {
    seq   %u = %x[:, s]                          : f32[B,3]
    seq   %v = %x[:, T-s-1]                      : f32[B,3]
    last  %z = %o                                : f32[B,3]
    body
      scan %s1 < 2 {
        const %u1 = %u                           : f32[B,3]
        carry %v1 = %v then %v2 last %o          : f32[B,3]
        body
          fused [B, 3] {
            const %u2 = %u1                      : f32[B,3]
            const %v3 = %v1                      : f32[B,3]
            out   %v2 = %q                       : f32[B,3]
            body
              %p = maximum(%u2, %v3)             : f32[B,3]
              %q = clip(%p, min=-1.0, max=inf)   : f32[B,3]
          }
      }
  }
  %p0 = full(value=True, dtype=bool)             : bool[]
  check(%p0, error="ValueError", message="a \\"b\\"")                    @ model.py:8
  while %i < T as n1 {                                                 @ model.py:9
    go    %p0 then %g
    seq   %e = %x[:, i]                          : f32[B,3]
    carry %f = %hT then %f2 last %fT             : f32[B,3]
    stack %fs = %f2 axis 0                       : f32[n1,B,3]
    body
      %f2 = add(%f, %e)                          : f32[B,3]
      %g = full(value=False, dtype=bool)         : bool[]
  }
  while %i2 as n2 {
    go    %p0 then %p1
    const %p2 = %p0                              : bool[]
    carry %l = %p0 then %l                       : bool[]
    body
      %p1 = logical_not(%p2)                     : bool[]
      %l1 = size(n=n1)                           : i64[]
  }
  cond %p0 {                                                           @ model.py:20
    const %fs1 = %fs                             : f32[n1,B,3]
    join  %fs2 = %fs3 else %fs1                  : f32[n1,B,3]
    join  %j = %j1 else %j2                      : i64[]
    then
      %p4 = full(value=False, dtype=bool)        : bool[]
      cond %p4 {
        const %fs4 = %fs1                        : f32[n1,B,3]
        then
        else
          foreign(%fs4, call="print", args=[], types=[])
      }
      %fs3 = tanh(%fs1)                          : f32[n1,B,3]
      %j1 = size(n=n2)                           : i64[]
    else
      %j2 = size(n=2*n1)                         : i64[]
  }
  copy_(%w, %c)
  return %hT, %ys, %z, %fs2
  write %n = %n
}""".strip()


def test_a_program_with_everything_is_read_as_it_was_printed():
    text = EVERYTHING.replace("%y = foreign", "%y, %y1 = foreign")
    p = parse(text)
    assert str(parse(str(p))) == str(p)
    verify(p)
    assert p.sizes == ("B", "T") and p.inputs[2].name == 'a "b"'
    assert p.ops[0].loc == Loc("model.py", 3)
    foreign = p.ops[2]
    assert foreign.attrs["args"] == (0.5, None, True, {"axis": (1, T)}, "two words", F64)
    assert str(p).split("\n")[3:5] == text.split("\n")[3:5]
    begin = text.index("  while %i < T")
    assert text[begin : text.index("  copy_")] in str(p)


def test_names_stay_apart():
    v = [Value(Type(F32), n) for n in ("a", "a", "a1", "", "", "a.b", "1", "T")]
    x = Value(Type(F32, (T,)), "x")
    p = Program("p", tuple(Input(q, "arg", q.name) for q in (*v, x)), (), tuple(v))
    again = parse(str(verify(p)))
    assert str(again) == str(p) and len(again.inputs) == 9


@pytest.mark.sampled
@pytest.mark.quick("0")
@pytest.mark.parametrize("seed", range(4))
def test_broken_texts_raise_verify_errors_only(seed):
    r = random.Random(seed)
    text = EVERYTHING.replace("%y = foreign", "%y, %y1 = foreign")
    for _ in range(250):
        broken = mutated(text, r)
        try:
            verify(parse(broken))
        except VerifyError:
            continue
        except Exception as e:
            raise AssertionError(f"{type(e).__name__}: {e}, seed {seed}:\n{broken}") from e


def mutated(text: str, r: random.Random) -> str:
    for _ in range(r.randint(1, 3)):
        kind, at = r.randrange(5), r.randrange(len(text))
        if kind == 0:
            text = text[:at] + text[at + r.randint(1, 12) :]
        elif kind == 1:
            text = text[:at] + r.choice("%,:=@[]{}\"'()-+*TB0129. \n\\xe") + text[at + 1 :]
        elif kind == 2:
            lines = text.split("\n")
            del lines[r.randrange(len(lines))]
            text = "\n".join(lines)
        elif kind == 3:
            lines = text.split("\n")
            lines.insert(r.randrange(len(lines)), r.choice(lines))
            text = "\n".join(lines)
        else:
            words = text.split(" ")
            i, j = r.randrange(len(words)), r.randrange(len(words))
            words[i], words[j] = words[j], words[i]
            text = " ".join(words)
    return text


@pytest.mark.parametrize("n", range(0, 40))
def test_texts_that_end_early_are_refused(n):
    text = EVERYTHING.replace("%y = foreign", "%y, %y1 = foreign")
    with pytest.raises(VerifyError):
        parse(text[: n * len(text) // 40])


@pytest.mark.parametrize(
    "call, match",
    [
        ("gather_nd(axis=0) : f32[3]", "takes 1 operands, not 0"),
        ("scatter_nd(%x, axis=0) : f32[3]", "takes 2 operands, not 1"),
        ("sum_pool(%x, taps=[1, 1], stride=[1, 1], padding=[[T, 0], [0, 0]]) : f32[1,1,4,2]",
         "pooling with padding"),
        ('fourier(%x, axis=1, n=0, kind="complex", inverse=False, factor=1.0, doubled=False)'
         " : f32[1,1,4,2]", "a transform of length 0"),
        ('foreign(%x, call="f", args=1, types=3) : f32[3]', "types cannot be 3"),
        ('foreign(%x, call="f", args=1, types=[3]) : f32[3]', "types cannot be"),
        ('foreign(%x, call="f", args=1, types=[f32[3]], writes=[2]) : f32[3]', "of 1"),
    ],
)  # fmt: skip
def test_a_call_in_a_text_that_no_builder_makes_is_refused(call, match):
    text = (
        f'program p(%x: f32[1,1,4,2] arg "x", %n: f32[T] arg "n") {{\n  %y = {call}\n  return\n}}'
    )
    with pytest.raises(VerifyError, match=match):
        verify(parse(text))


def test_errors_of_texts_name_the_line():
    with pytest.raises(VerifyError, match="line 2: %q is not defined"):
        parse('program p(%x: f32[3] arg "x") {\n  %y = neg(%q)  : f32[3]\n  return %y\n}')


# ---------------------------------------------------------------- the verifier
X = Value(Type(F32, (T, 3)), "x")
ROW = Value(Type(F32, (3,)), "row")
INDEX = Value(Type(I64), "t")


def rejects(match: str, ops=(), outputs=(), inputs=None, **more) -> None:
    inputs = (Input(X, "arg", "x"), Input(ROW, "arg", "row")) if inputs is None else inputs
    with pytest.raises(VerifyError, match=match):
        verify(Program("p", inputs, tuple(ops), tuple(outputs), **more))


def test_the_verifier_rejects_definitions():
    y = Value(X.type)
    rejects("unknown kind", inputs=(Input(X, "weight", "x"),))
    rejects("defined twice", inputs=(Input(X, "arg", "x"), Input(X, "arg", "y")))
    rejects("no input has the size B", inputs=(Input(Value(Type(F32, (B + 1,))), "arg", "x"),))
    rejects("before it is defined", outputs=(y,))
    rejects("before it is defined", [Op("neg", (y,), (Value(X.type),))])
    rejects("defined twice", [Op("neg", (X,), (y,)), Op("neg", (X,), (y,))])
    rejects("unknown op", [Op("nonsense", (X,), (y,))])
    rejects(
        "a size that is not known there",
        [Op("full", (), (Value(Type(F32, (B,))),), {"value": 0, "shape": (B,), "dtype": F32})],
    )
    rejects("its results are", [Op("neg", (X,), (Value(Type(F64, (T, 3))),))])
    rejects("neg takes 1 operands", [Op("neg", (X, X), (y,))])
    rejects("no attribute 'axis'", [Op("neg", (X,), (y,), {"axis": 1})])
    rejects("concat of", [Op("concat", (X, ROW), (y,), {"axis": 0})])


def test_the_verifier_rejects_writes():
    y = Value(X.type)
    rejects("is not an input", [Op("neg", (X,), (y,))], writes=((y, X),))
    rejects("written back twice", writes=((X, X), (X, X)))
    rejects("write of", writes=((X, ROW),))


def scan(*ports, body=(), trip=T, index=INDEX) -> list:
    return [Scan(index, trip, ports, tuple(body))]


def test_the_verifier_rejects_loops():
    v, o, w = Value(ROW.type, "v"), Value(X.type, "o"), Value(Type(F32, (4,)), "w")
    rejects("the index of a scan", scan(index=Value(Type(F32))))
    rejects("a size that is not known there", scan(trip=B))
    rejects("scan of -1", scan(trip=-1))
    rejects("const port", scan(Const(v, X)))
    rejects("seq port", scan(Seq(w, X, 0)))
    rejects("no axis 2", scan(Seq(v, X, 2)))
    rejects("carry port", scan(Carry(v, X, v)))
    rejects("carry port", scan(Carry(v, ROW, v, Value(X.type))))
    rejects("stack port", scan(Const(v, ROW), Stack(ROW_STACK, v, 1)))
    rejects("no axis 2", scan(Const(v, ROW), Stack(o, v, 2)))
    rejects("last port", scan(Const(v, ROW), Last(o, v)))
    rejects("before it is defined", scan(Stack(o, v, 0)))
    rejects("before it is defined", scan(Const(v, ROW), body=[Op("neg", (ROW,), (w,))]))
    rejects("defined twice", scan(Const(v, ROW), Const(v, ROW)))


ROW_STACK = Value(Type(F32, (T, 3)), "stack")


def test_the_verifier_rejects_kernels():
    v, y = Value(X.type), Value(X.type)
    rejects("fused operand", [Fused((T, 3), (Const(v, ROW),), (), ())])
    rejects("fused result", [Fused((2, T, 3), (Const(v, X),), (), ((y, v),))])
    rejects("fused result", [Fused((2, 2), (Const(v, X),), (), ((y, v),))])
    t = Value(Type(F32, (3, T)))
    transpose = Op("transpose", (v,), (t,), {"perm": (1, 0)})
    rejects("it has no kernel", [Fused((T, 3), (Const(v, X),), (transpose,), ())])


# ---------------------------------------------------------------- rows
def example_program(name, e) -> Program:
    b = Builder()
    inputs = tuple(
        Input(Value(parse_type(t), f"x{i}"), "arg", f"x{i}") for i, t in enumerate(e.types)
    )
    out = b.emit(name, [i.value for i in inputs], e.attrs)
    return verify(Program("p", inputs, tuple(b.ops), out))


def example_inputs(p: Program, e) -> list[np.ndarray]:
    rng, out = np.random.default_rng(0), []
    for i in p.inputs:
        shape, d = i.value.type.shape, i.value.type.dtype
        x = rng.integers(0, 2, shape) if d is BOOL else rng.uniform(e.low, e.high, shape)
        out.append(np.asarray(np.floor(x) if d.kind == "i" else x).astype(d.numpy))
    return out


WITH_REF = [
    n for n, row in OPS.items() if row.ref is not None and not row.effect and n not in RECORDED
]


@pytest.mark.parametrize("name", WITH_REF)
def test_types_are_what_the_reference_gives(name):
    assert OPS[name].examples, f"{name} has no examples"
    for e in OPS[name].examples:
        p = example_program(name, e)
        inputs = example_inputs(p, e)
        kept = [x.copy() for x in inputs]
        if name in ("dynamic_index", "set_dynamic_index"):
            inputs[-1] = kept[-1] = np.asarray(1, np.int64)
        outputs, writes = evaluate(p, inputs)
        assert not writes
        for value, got in zip(p.outputs, outputs):
            assert got.dtype == value.type.dtype.numpy and got.shape == value.type.shape
        for x, y in zip(inputs, kept):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", WITH_REF)
def test_examples_are_read_as_they_were_printed(name):
    for e in OPS[name].examples:
        text = str(example_program(name, e))
        assert str(verify(parse(text))) == text


def test_views_can_be_written_through():
    assert {n for n, row in OPS.items() if row.writes} == {"copy_"}
    assert {row.through.view for row in OPS.values() if row.through} <= {
        n for n, row in OPS.items() if row.views
    }


VIEW_EXAMPLES = [(n, e) for n, row in OPS.items() if row.views for e in row.examples]


def view_example(name, e):
    p = example_program(name, e)
    x, *at = example_inputs(p, e)
    return p, [x, *([np.asarray(1)] if name == "dynamic_index" else at)]


class NumpyViews:
    """An array with the methods by which rows make views of Paddle's tensors."""

    def __init__(self, array):
        self.array, self.ndim, self.shape = array, array.ndim, array.shape

    def __getitem__(self, at):
        return self.array[(*at, ...)]

    def reshape(self, shape):
        return self.array.reshape(shape)

    def transpose(self, perm):
        return self.array.transpose(perm)

    def detach(self):
        return self.array

    def view(self, shape):
        return self.array.reshape(shape)

    def diagonal(self, offset, axis1, axis2):
        return OPS["diagonal"].ref(self.array, offset, axis1, axis2)

    def unfold(self, axis, size, step):
        return OPS["unfold"].ref(self.array, axis, size, step)

    def as_strided(self, shape, strides, offset):
        return OPS["strided"].ref(self.array, shape, strides, offset)


@pytest.mark.parametrize("name, e", VIEW_EXAMPLES, ids=lambda q: q if isinstance(q, str) else "")
def test_a_view_lies_and_reads_as_its_row_says(name, e):
    """Its layout and the Python form, against NumPy's view."""
    rule, attrs = view_rule(name), complete_attrs(OPS[name], e.attrs)
    p, (x, *at) = view_example(name, e)
    view = OPS[name].ref(x, *at, **attrs)
    whole = row_major(p.inputs[0].value.type.shape)
    indices = [int(q) for q in at]
    made = rule.python(NumpyViews(x), *indices, **attrs)
    np.testing.assert_array_equal(made, view)
    if not view.size:
        return
    lies = rule.layout(whole, *indices, **attrs)
    assert np.shares_memory(x, view) and np.shares_memory(x, made)
    start = x.__array_interface__["data"][0]
    assert lies.offset * x.itemsize == view.__array_interface__["data"][0] - start
    assert lies.shape == view.shape
    for n, s, want in zip(view.shape, lies.strides, view.strides):
        assert n == 1 or s * x.itemsize == want
    if OPS[name].shows_all:
        assert rule.layout(lies, **rule.inverse(p.inputs[0].value.type, **attrs)) == whole
    if rule.static is not None:
        other, known = rule.static(*indices, **attrs)
        assert view_rule(other).layout(whole, **known) == lies


@pytest.mark.parametrize("name, e", VIEW_EXAMPLES, ids=lambda q: q if isinstance(q, str) else "")
def test_a_view_of_a_view_lies_as_its_row_says(name, e):
    """Of a tensor whose elements are two apart along each axis, the last ones first."""
    rule, attrs = view_rule(name), complete_attrs(OPS[name], e.attrs)
    _, (x, *at) = view_example(name, e)
    apart = np.zeros([2 * d for d in x.shape], x.dtype)[(*[slice(None, None, -2)] * x.ndim, ...)]
    if not x.size or not x.ndim:
        return
    steps = tuple(s // x.itemsize for s in apart.strides)
    lies = rule.layout(StridedLayout(0, x.shape, steps), *map(int, at), **attrs)
    if lies is None:
        assert rule.copies
        return
    view = OPS[name].ref(apart, *at, **attrs)
    if view.size:
        places = [q.__array_interface__["data"][0] for q in (view, apart)]
        assert lies.shape == view.shape and lies.offset * x.itemsize == places[0] - places[1]
        assert [s * x.itemsize for n, s in zip(view.shape, lies.strides) if n > 1] == [
            s for n, s in zip(view.shape, view.strides) if n > 1
        ]


@pytest.mark.parametrize("name, e", VIEW_EXAMPLES, ids=lambda q: q if isinstance(q, str) else "")
def test_a_write_through_a_view_changes_what_it_shows(name, e):
    p, inputs = view_example(name, e)
    if view_rule(name).overlaps(p.outputs[0].type, **complete_attrs(OPS[name], e.attrs)):
        pytest.skip("nothing is written through a view that overlaps itself")
    attrs, want = complete_attrs(OPS[name], e.attrs), inputs[0].copy()
    shape = OPS[name].ref(want, *inputs[1:], **attrs).shape
    new = np.arange(np.prod(shape)).reshape(shape).astype(want.dtype)
    OPS[name].ref(want, *inputs[1:], **attrs)[...] = new
    b, value = Builder(), Value(p.outputs[0].type, "new")
    base, *at = (i.value for i in p.inputs)
    out = view_rule(name).unview(b, base, value, *at, **attrs)
    ins = (*p.inputs, Input(value, "arg", "new"))
    (got,), _ = evaluate(verify(Program("p", ins, tuple(b.ops), (out,))), [*inputs, new])
    np.testing.assert_array_equal(got, want)


def test_places_along_an_axis_that_views_show():
    p = parse(
        'program p(%x: f32[6,8] arg "x", %i: i64[] arg "i") {\n'
        "  %a = index(%x, axis=1, index=2)  : f32[6]\n"
        "  %b = slice(%x, axis=1, start=7, length=3, step=-2)  : f32[6,3]\n"
        "  %c = transpose(%x, perm=[1, 0])  : f32[8,6]\n"
        "  %d = reshape(%x, shape=[48])  : f32[48]\n"
        "  %e = dynamic_index(%x, %i, axis=1)  : f32[6]\n"
        "  return %a, %b, %c, %d, %e\n}"
    )
    found = [(places_along(op, 0), places_along(op, 1)) for op in p.ops]
    whole = range(0, 6)
    assert found[:3] == [(whole, range(2, 3)), (whole, range(7, 1, -2)), (whole, range(0, 8))]
    assert found[3:] == [(None, None)] * 2


# ---------------------------------------------------------------- evaluating
def test_results_do_not_keep_the_layout_of_operands():
    p = parse(
        'program p(%x: f32[2,3] arg "x", %y: f32[6] arg "y") {\n'
        "  %a = transpose(%x, perm=[1, 0])  : f32[3,2]\n  %b = neg(%a)  : f32[3,2]\n"
        "  %c = reshape(%b, shape=[6])  : f32[6]\n  copy_(%c, %y)\n  return %b\n}"
    )
    y = np.arange(6, dtype=np.float32)
    (out,), _ = evaluate(p, [np.zeros((2, 3), np.float32), y])
    np.testing.assert_array_equal(out, y.reshape(3, 2))


def test_inputs_that_do_not_fit_are_refused():
    p = parse('program p(%x: f32[T,2*T] arg "x") {\n  require T >= 2 "r"\n  return %x\n}')
    for shape, match in (((3, 5), "is f32"), ((3,), "is f32"), ((1, 2), "does not hold")):
        with pytest.raises(ValueError, match=match):
            evaluate(p, [np.zeros(shape)])


def test_a_last_port_of_no_iteration_is_refused():
    p = parse(
        'program p(%x: f32[T] arg "x") {\n  scan %t < T {\n    seq   %v = %x[t]  : f32[]\n'
        "    last  %o = %v  : f32[]\n    body\n  }\n  return %o\n}"
    )
    assert evaluate(p, [np.array([1.0, 2.0])])[0][0] == 2.0
    with pytest.raises(ValueError, match="no last value"):
        evaluate(p, [np.zeros(0)])


@pytest.mark.parametrize("t, n", [("t+1", 3), ("2*t", 4), ("t-1", 3)])
def test_seq_ports_are_checked(t, n):
    p = parse(
        f'program p(%x: f32[T] arg "x") {{\n  scan %t < T {{\n    seq   %v = %x[{t}]  : f32[]\n'
        "    stack %o = %v axis 0  : f32[T]\n    body\n  }\n  return %o\n}"
    )
    with pytest.raises(IndexError, match="seq port reads"):
        evaluate(p, [np.zeros(n)])


@pytest.mark.parametrize("row", ["floor_divide", "remainder"])
def test_integers_are_not_divided_by_zero(row):
    """Floats are; and where there is no element, nothing is divided."""
    for t in ("i64", "i32", "f64"):
        p = parse(
            f'program p(%x: {t}[N,2] arg "x", %y: {t}[2] arg "y") {{\n'
            f"  %z = {row}(%x, %y)  : {t}[N,2]\n  return %z\n}}"
        )
        dtype = p.inputs[0].value.type.dtype.numpy
        x, y = np.array([[7, -7]], dtype), np.array([2, -2], dtype)
        np.testing.assert_array_equal(
            evaluate(p, [x, y])[0][0], x // y if row == "floor_divide" else x % y
        )
        zero = np.array([2, 0], dtype)
        assert evaluate(p, [x[:0], zero])[0][0].shape == (0, 2)
        if t == "f64":
            assert not np.isfinite(evaluate(p, [x, zero])[0][0][0, 1])
            continue
        with pytest.raises(ZeroDivisionError):
            evaluate(p, [x, zero])


def test_foreign_ops_need_a_caller():
    p = parse(
        'program p(%x: f32[T] arg "x") {\n  %y = foreign(%x, call="f", args=[], types=[f32[T]])  : f32[T]\n  return %y\n}'
    )
    with pytest.raises(NotImplementedError, match="f needs Paddle"):
        evaluate(p, [np.zeros(2)])
    out, _ = evaluate(p, [np.ones(2)], lambda op, args, sizes: [args[0] * sizes["T"]])
    np.testing.assert_array_equal(out[0], [2, 2])


# ---------------------------------------------------------------- errors
def test_source_errors_show_the_line(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("def f(x):\n    y = 1\n    h = concat(h)\n")
    loc = Loc(str(path), 3, 4, "f", 5)
    text = str(SourceError("'h' changes type", loc, here="f32[B]", reason="Why.", remedy="Do."))
    assert text == (
        "dy2st: 'h' changes type\n\n  model.py:3, f\n   1 | def f(x):\n   2 |     y = 1\n"
        "   3 |     h = concat(h)\n           ^ f32[B]\n\nWhy.\nDo."
    )
    assert "nowhere.py:7" in str(SourceError("m", Loc("nowhere.py", 7), here="here"))
    assert str(SourceError("m")) == "dy2st: m"
