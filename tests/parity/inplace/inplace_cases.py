"""Every in-place API of Paddle as a `Case`: a call on `y` with operands it accepts.

test_inplace_apis.py runs each in every context, and fails when Paddle has a name ending in
`_` that is neither here nor in `OTHER`.
"""

from __future__ import annotations

from collections.abc import Iterator

import paddle

from tests.parity.inplace.inplace_contexts import Case, Spec

#: names that are no in-place calls, with the reason
OTHER = {
    "Tensor.grad_": "a property: the gradient's storage",
    "Tensor.reconstruct_from_": "internal: moves the storage of a tensor that has none",
}

EXACT = (0.0, 0.0)
CLOSE = (2e-5, 2e-6)
LOOSE = (2e-3, 2e-5)
POSITIVE = Spec(low=0.2, high=3.0)
UNIT = Spec(low=-0.9, high=0.9)
INTS, SMALL = Spec("i64[3,4]", -9, 9), Spec("i64[3,4]", 1, 5)
BOOLS = Spec("bool[3,4]")
LATE = "eager refuses backward: what it kept was written"
#: where eager raises for a call that changes the element type, after one iteration or by strides
STRIDED = ("for", "while", "loop on an argument", "steps of an argument", "transposed")

#: name -> where its operand comes from, and how close it is to eager's own, which errs, too
UNARY: dict[str, tuple[Spec, tuple[float, float]]] = {
    "abs_": (Spec(), EXACT), "acos_": (UNIT, LOOSE), "acosh_": (Spec(low=1.0, high=9.0), LOOSE),
    "asin_": (UNIT, LOOSE), "asinh_": (Spec(), CLOSE), "atan_": (Spec(), CLOSE),
    "atanh_": (UNIT, LOOSE), "ceil_": (Spec(), EXACT), "cos_": (Spec(), CLOSE),
    "cosh_": (UNIT, LOOSE), "digamma_": (POSITIVE, LOOSE), 
    "erfinv_": (Spec(low=-0.5, high=0.5), LOOSE),
    "exp_": (Spec(low=-2.0, high=0.5), LOOSE), "floor_": (Spec(), EXACT), "frac_": (Spec(), EXACT),
    "gammaln_": (POSITIVE, LOOSE), "i0_": (UNIT, LOOSE), "lgamma_": (POSITIVE, LOOSE),
    "log_": (POSITIVE, LOOSE), "log10_": (POSITIVE, LOOSE), "log1p_": (POSITIVE, CLOSE),
    "log2_": (POSITIVE, LOOSE), "logit_": (Spec(low=0.1, high=0.9), LOOSE),
    "nan_to_num_": (Spec(), EXACT), "neg_": (Spec(), EXACT), "reciprocal_": (POSITIVE, CLOSE),
    "round_": (Spec(), EXACT), "rsqrt_": (POSITIVE, CLOSE), "sigmoid_": (Spec(), CLOSE),
    "sin_": (Spec(), CLOSE), "sinc_": (UNIT, LOOSE), "sinh_": (UNIT, LOOSE),
    "sqrt_": (POSITIVE, CLOSE), "square_": (UNIT, CLOSE), "tan_": (UNIT, LOOSE),
    "tanh_": (Spec(), CLOSE), "trunc_": (Spec(), EXACT), "zero_": (Spec(), EXACT),
}  # fmt: skip
FUNCTIONS: dict[str, tuple[Spec, tuple[float, float]]] = {
    "paddle.erf_(y)": (Spec(), CLOSE), "paddle.expm1_(y)": (UNIT, LOOSE),
    "F.elu_(y, 0.7)": (Spec(), CLOSE), "F.hardtanh_(y, -0.5, 0.7)": (Spec(), EXACT),
    "F.leaky_relu_(y, 0.1)": (Spec(), EXACT), "F.relu_(y)": (Spec(), EXACT),
    "F.softmax_(y)": (Spec(), CLOSE), "F.tanh_(y)": (Spec(), CLOSE),
    "F.thresholded_relu_(y, 0.4)": (Spec(), EXACT),
}  # fmt: skip
#: name -> the types of both operands
PAIRS: dict[str, tuple[Spec, Spec]] = {
    **{n: (Spec(), Spec()) for n in "add_ subtract_ multiply_ sub_ mul_ copysign_".split()},
    **{n: (Spec(), POSITIVE) for n in "divide_ div_ mod_ floor_mod_ remainder_".split()},
    "floor_divide_": (INTS, SMALL),
    "bitwise_and_": (INTS, INTS), "bitwise_or_": (INTS, INTS), "bitwise_xor_": (INTS, INTS),
    "bitwise_left_shift_": (SMALL, Spec("i64[3,4]", 0, 2)),
    "bitwise_right_shift_": (INTS, Spec("i64[3,4]", 0, 3)),
    "logical_and_": (BOOLS, BOOLS), "logical_or_": (BOOLS, BOOLS), "logical_xor_": (BOOLS, BOOLS),
    **{n: (BOOLS, BOOLS) for n in "equal_ not_equal_".split()},
    **{
        n: (BOOLS, BOOLS)
        for n in "greater_equal_ greater_than_ less_ less_equal_ less_than_".split()
    },
}  # fmt: skip


#: they run on kernels of Paddle's
FOREIGN = ("digamma_", "gammaln_", "i0_", "lgamma_")


def unary() -> Iterator[Case]:
    for name, (spec, bounds) in UNARY.items():
        yield Case(name, f"y.{name}()", spec, bounds=bounds, foreign=name in FOREIGN)
    for call, (spec, bounds) in FUNCTIONS.items():
        yield Case(call.split("(")[0], call, spec, bounds=bounds)
    for name in ("bitwise_not_", "bitwise_invert_", "abs_", "neg_"):
        yield Case(f"{name} of integers", f"y.{name}()", INTS, variant=True)
    for name in ("logical_not_", "bitwise_not_"):
        yield Case(f"{name} of bools", f"y.{name}()", BOOLS, variant=name != "logical_not_")
    for name in ("tanh_", "exp_", "sqrt_", "sigmoid_"):
        yield Case(f"{name} of doubles", f"y.{name}()", Spec("f64[3,4]", 0.1, 1.0), bounds=CLOSE,
                   variant=True)  # fmt: skip
    yield Case("round_ to decimals", "y.round_(1)", bounds=CLOSE, variant=True)
    yield Case("nan_to_num_ of odd numbers", "y.divide_(a).nan_to_num_(0.5, 3.0, -4.0)",
               operands={"a": lambda: paddle.to_tensor([0.0, 1.0, -0.0, 2.0])},
               no_gradient=LATE, variant=True)  # fmt: skip


def pairs() -> Iterator[Case]:
    for name, (x, y) in PAIRS.items():
        yield Case(name, f"y.{name}(a)", x, {"a": y})
    for name in ("add_", "multiply_", "subtract_"):
        row = {"a": Spec("f32[4]")}
        yield Case(f"{name} a row", f"y.{name}(a)", Spec(), row, variant=True)
        yield Case(f"{name} integers", f"y.{name}(a)", INTS, {"a": INTS}, variant=True)
        late = LATE if name == "multiply_" else ""
        yield Case(f"{name} itself", f"y.{name}(y)", no_gradient=late, variant=True)
        yield Case(f"{name} of nothing", f"y.{name}(a)", Spec("f32[0,4]"), row, variant=True)
        yield Case(f"{name} of a number", f"y.{name}(a)", Spec("f32[]"), {"a": Spec("f32[]")},
                   variant=True)  # fmt: skip
    for name in ("equal_", "less_than_", "greater_equal_", "not_equal_", "logical_and_"):
        yield Case(f"{name} of floats", f"y.{name}(a)", Spec(), {"a": Spec()}, raises=STRIDED,
                   refused={"*": "makes bool[3,4] of a tensor that is f32[3,4]"})  # fmt: skip
    yield Case("remainder_ of integers", "y.remainder_(a)", INTS, {"a": SMALL}, variant=True)
    yield Case("floor_divide_ of floats", "y.floor_divide_(a)", Spec(), {"a": POSITIVE},
               no_gradient="eager's is that of y itself")  # fmt: skip
    yield Case("bitwise_xor_ of bools", "y.bitwise_xor_(a)", BOOLS, {"a": BOOLS}, variant=True)
    yield Case("hypot_", "y.hypot_(a)", operands={"a": Spec()}, bounds=CLOSE)
    yield Case("ldexp_", "y.ldexp_(a)", operands={"a": Spec("i64[3,4]", -2, 2)})
    yield Case("lerp_", "y.lerp_(a, 0.3)", operands={"a": Spec()}, bounds=CLOSE)
    yield Case("lerp_ by a tensor", "y.lerp_(a, w)", operands={"a": Spec(), "w": UNIT},
               bounds=CLOSE)  # fmt: skip
    yield Case("gammainc_", "y.gammainc_(a)", POSITIVE, {"a": POSITIVE}, LOOSE, foreign=True)
    yield Case("gammaincc_", "y.gammaincc_(a)", POSITIVE, {"a": POSITIVE}, LOOSE, foreign=True)
    yield Case("copysign_ of a number", "y.copysign_(-1.0)", variant=True)


def numbers() -> Iterator[Case]:
    """Calls whose operands are Python numbers."""
    yield Case("clip_", "y.clip_(-0.5, 0.7)")
    yield Case("clamp_", "y.clamp_(min=-0.5)")
    yield Case("clip_ of integers", "y.clip_(-2, 3)", INTS, variant=True)
    yield Case("clip_ by tensors", "y.clip_(a, b)",
               operands={"a": Spec("f32[]", -1.0, 0.0), "b": Spec("f32[]", 0.1, 1.0)})  # fmt: skip
    yield Case("scale_", "y.scale_(0.5, 1.0)")
    yield Case("scale_ after", "y.scale_(0.5, 1.0, bias_after_scale=False)", variant=True)
    yield Case("pow_", "y.pow_(2.0)", POSITIVE, bounds=CLOSE)
    yield Case("pow_ of a root", "y.pow_(0.3)", POSITIVE, bounds=CLOSE)
    yield Case("fill_", "y.fill_(2.5)")
    yield Case("fill_ integers", "y.fill_(2)", INTS, variant=True)
    yield Case("fill_ bools", "y.fill_(True)", BOOLS, variant=True)
    yield Case("multigammaln_", "y.multigammaln_(2)", Spec(low=3.0, high=9.0), bounds=LOOSE,
               foreign=True)  # fmt: skip
    yield Case("polygamma_", "y.polygamma_(1)", POSITIVE, bounds=LOOSE, foreign=True)
    yield Case("renorm_", "y.renorm_(2.0, 0, 1.0)", bounds=CLOSE)
    yield Case("cumsum_", "y.cumsum_(0)", UNIT, bounds=CLOSE)
    yield Case("cumprod_", "y.cumprod_(1)", UNIT, bounds=CLOSE)
    yield Case("paddle.increment", "paddle.increment(y, 2.0)", Spec("f32[1]"))
    yield Case("paddle.increment of integers", "paddle.increment(y)", Spec("i64[1]"), variant=True)
    yield Case("apply_", "y.apply_(lambda v: v * 2 + 1)",
               refused={"*": "apply and apply_ call a function"})  # fmt: skip
    refused, index = {"*": "in a translated function"}, {"i": lambda: paddle.to_tensor([2, 0])}
    yield Case("gcd_", "y.gcd_(a)", INTS, {"a": SMALL}, refused=refused)
    yield Case("lcm_", "y.lcm_(a)", SMALL, {"a": SMALL}, refused=refused)
    yield Case("F.embedding_renorm_", "F.embedding_renorm_(i, y, 1.0)", operands=index,
               refused=refused)  # fmt: skip


def products() -> Iterator[Case]:
    square, batch = Spec("f32[4,4]", -0.5, 0.5), Spec("f32[2,4,4]", -0.5, 0.5)
    yield Case("addmm_", "y.addmm_(a, b, 0.5, 2.0)", square, {"a": square, "b": square}, CLOSE)
    yield Case("baddbmm_", "y.baddbmm_(a, b, 0.5, 2.0)", batch, {"a": batch, "b": batch}, CLOSE)


def moves() -> Iterator[Case]:
    """Calls that move, pick or overwrite elements."""
    row, index = Spec("f32[2,4]"), {"i": lambda: paddle.to_tensor([2, 0])}
    column = {"i": lambda: paddle.to_tensor([[0, 2, 1, 0]])}
    yield Case("tril_", "y.tril_()")
    yield Case("triu_", "y.triu_(1)")
    yield Case("fill_diagonal_", "y.fill_diagonal_(1.5)")
    yield Case("fill_diagonal_tensor_", "y.fill_diagonal_tensor_(a)",
               operands={"a": Spec("f32[3]")})  # fmt: skip
    yield Case("index_add_", "y.index_add_(i, 0, a)", operands={**index, "a": row})
    yield Case("index_fill_", "y.index_fill_(i, 0, 1.5)", operands=index)
    yield Case("index_put_", "y.index_put_([i], a)", operands={**index, "a": row})
    yield Case("index_put_ adds", "y.index_put_([i], a, True)", operands={**index, "a": row})
    yield Case("masked_fill_", "y.masked_fill_(m, 1.5)", operands={"m": BOOLS})
    yield Case("masked_fill_ by a tensor", "y.masked_fill_(m, a)",
               operands={"m": Spec("bool[4]"), "a": Spec("f32[]")},
        no_gradient="eager gives a value without axes zero")  # fmt: skip
    yield Case("masked_scatter_", "y.masked_scatter_(m, a)",
               operands={"m": BOOLS, "a": Spec("f32[20]")})  # fmt: skip
    yield Case("put_along_axis_", "y.put_along_axis_(i, a, 0)",
               operands={**column, "a": Spec("f32[1,4]")})  # fmt: skip
    yield Case("put_along_axis_ adds", "y.put_along_axis_(i, a, 0, 'add')",
               operands={**column, "a": Spec("f32[1,4]")})  # fmt: skip
    yield Case("scatter_", "y.scatter_(i, a)", operands={**index, "a": row})
    yield Case("scatter_ adds", "y.scatter_(i, a, overwrite=False)",
               operands={**index, "a": row})  # fmt: skip
    yield Case("scatter_add_", "y.scatter_add_(0, i, a)",
               operands={**column, "a": Spec("f32[1,4]")})  # fmt: skip
    yield Case("where_", "paddle.where_(m, y, a)", operands={"m": BOOLS, "a": Spec()})
    yield Case("where_ of the method", "m.where_(y, a)", operands={"m": BOOLS, "a": Spec()})
    yield from overwriting()


def overwriting() -> Iterator[Case]:
    yield Case("copy_", "y.copy_(a, True)", operands={"a": Spec()})
    yield Case("set_value", "y.set_value(a)", operands={"a": Spec()})
    yield Case("set_value of an array", "y.set_value(np.full([3, 4], 2.5, 'float32'))",
               left_out={"steps of an argument": "eager ignores the strides"})  # fmt: skip
    yield Case("paddle.assign", "paddle.assign(a, y)", operands={"a": Spec()})
    yield Case("paddle.assign of a product", "paddle.assign(y * 2, output=y)")
    yield Case("setitem", "y[1] = a", operands={"a": Spec("f32[4]")})
    yield Case("setitem adds", "y[1:] += a", operands={"a": Spec("f32[4]")})
    yield Case("setitem of a number", "y[:, 1] = 2.5")
    yield Case("write through a view", "y[1].add_(a)", operands={"a": Spec("f32[4]")},
               no_gradient="eager ignores the view")  # fmt: skip


#: Python's augmented assignments: they rebind the name and write nothing
AUGMENTED = {
    "+=": Spec(), "-=": Spec(), "*=": Spec(), "/=": POSITIVE, "//=": POSITIVE, "%=": POSITIVE,
    "**=": UNIT, "@=": Spec("f32[4,4]"), "&=": INTS, "|=": INTS, "^=": INTS,
    "<<=": Spec("i64[3,4]", 0, 2), ">>=": Spec("i64[3,4]", 0, 2),
}  # fmt: skip


def augmented() -> Iterator[Case]:
    for sign, other in AUGMENTED.items():
        kind = other.type.split("[")[0]
        y = Spec(other.type, 0, 5) if kind == "i64" else Spec(other.type, 0.2, 1.5)
        bounds = EXACT if sign in ("+=", "-=", "*=", "&=", "|=", "^=", "<<=", ">>=") else CLOSE
        yield Case(f"y {sign} a", f"y {sign} a", y, {"a": other}, bounds, rebinds=True,
                   variant=True)  # fmt: skip
        if sign != "@=":
            late = LATE if sign in ("*=", "/=", "%=", "**=") else ""
            yield Case(f"y[1] {sign} a", f"y[1] {sign} a[1]", y, {"a": other}, bounds,
                       no_gradient=late)  # fmt: skip


def retyping() -> Iterator[Case]:
    """Calls that give `y` another element type in the same memory."""
    for name, call, y, a, made in [
        ("divide_ of integers", "y.divide_(a)", INTS, SMALL, "f32[3,4] of a tensor that is i64"),
        (
            "add_ of doubles",
            "y.add_(a)",
            Spec(),
            Spec("f64[3,4]"),
            "f64[3,4] of a tensor",
        ),
        ("exp_ of integers", "y.exp_()", INTS, INTS, "f32[3,4] of a tensor that is i64"),
        ("paddle.assign of floats", "paddle.assign(a, y)", INTS, Spec(), "f32[3,4] of a tensor"),
    ]:
        again = ("loop on an argument",) if name.startswith("divide_") else ()
        yield Case(name, call, y, {"a": a}, refused={"*": made}, variant=True,
                   raises=("transposed", *again))  # fmt: skip


def shapes() -> Iterator[Case]:
    refused = {
        "if": "of a tensor from outside of a branch on data",
        "while": "of a tensor from outside of the block",
        "buffer": "which comes from outside",
        "argument": "which comes from outside",
    }
    for name, call, y in [
        ("reshape_", "y.reshape_([4, 3])", Spec()),
        ("flatten_", "y.flatten_()", Spec()),
        ("squeeze_", "y.squeeze_(1)", Spec("f32[3,1,4]")),
        ("unsqueeze_", "y.unsqueeze_(0)", Spec()),
        ("transpose_", "y.transpose_([1, 0])", Spec()),
        ("t_", "y.t_()", Spec()),
    ]:
        yield Case(name, call, y, refused=refused, reshapes=True)
    strided = "eager raises where strides are not those of a contiguous tensor"
    yield Case("cast_", "y.cast_('float64')", refused=refused, reshapes=True,
               left_out={"steps of an argument": strided, "transposed": strided})  # fmt: skip
    yield Case("cast_ to the same", "y.cast_('float32')")
    yield Case("detach_", "y.detach_()")
    yield Case("requires_grad_", "y.requires_grad_(False)", no_gradient="eager refuses it")


def storage() -> Iterator[Case]:
    refused = {"*": "is given the memory of another one"}
    yield Case("set_", "y.set_(a)", operands={"a": Spec()}, refused=refused)
    yield Case("resize_", "y.resize_([2, 3])", refused=refused,
               raises=("steps of an argument", "transposed"))  # fmt: skip


def randoms() -> Iterator[Case]:
    for name, call, bounds in [
        ("bernoulli_", "y.bernoulli_(0.4)", EXACT),
        ("cauchy_", "y.cauchy_(0.5, 2.0)", LOOSE),
        ("exponential_", "y.exponential_(2.0)", CLOSE),
        ("geometric_", "y.geometric_(0.4)", LOOSE),
        ("log_normal_", "y.log_normal_(0.5, 0.3)", LOOSE),
        ("normal_", "y.normal_(0.5, 2.0)", CLOSE),
        ("random_", "y.random_(0, 100)", EXACT),
        ("random_ without bounds", "y.random_()", EXACT),
        ("uniform_", "y.uniform_(-1.0, 2.0)", EXACT),
        ("uniform_ of a seed", "y.uniform_(-1.0, 2.0, seed=5)", EXACT),
    ]:
        yield Case(name, call, bounds=bounds, foreign=True, variant=" " in name)
    yield Case("random_ integers", "y.random_(3, 100)", INTS, foreign=True, variant=True)


GROUPS = (
    unary, pairs, numbers, products, moves, augmented, retyping, shapes, storage, randoms,
)  # fmt: skip
CASES = [case for group in GROUPS for case in group()]
