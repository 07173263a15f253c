"""Quotients of sizes: normal form, text, proofs, and programs whose shapes have them."""

from __future__ import annotations

import random

import numpy as np
import pytest

import executor
from ir import VerifyError, evaluate, parse, verify
from ir.analysis.overflow import LARGEST, extents, too_large
from ir.analysis.ranges import never_negative
from ir.literal import parse_attr, parse_dim, print_attr
from ir.types import (
    LONGEST_TEXT,
    Dim,
    Size,
    evaluate_dim,
    floor_divide,
    is_natural,
    line,
    multiple_of_name,
    substitute_dim,
)

N, T = Size.named("N"), Size.named("T")
CONV = """program conv(%x: f64[B,2,N,T] arg "x", %w: f64[3,2,3,3] arg "w") {
  require N-1 >= 0 "conv"
  require T-3 >= 0 "conv"
  %y = conv(%x, %w, stride=[2, 2], padding=[[1, 1], [0, 0]]) : f64[B,3,((N+1)//2),((T+1)//2)-1]
  %m = max_pool(%x, taps=[3, 3], stride=[2, 2], padding=[[1, 1], [1, 1]]) : \
f64[B,2,((N+1)//2),((T+1)//2)]
  %s = sum_pool(%m, taps=[2, 1], stride=[2, 1], padding=[[0, 1], [0, 0]]) : \
f64[B,2,((N+3)//4),((T+1)//2)]
  %e = slice(%x, axis=3, start=1, length=(T//2), step=2) : f64[B,2,N,(T//2)]
  return %y, %m, %s, %e
}"""
#: of the first operand
SHAPES = ((1, 2, 1, 3), (2, 2, 5, 6), (1, 2, 8, 9), (0, 2, 2, 4))


def made(depth: int, env: dict[str, int], rng: random.Random) -> tuple[Dim, int]:
    """A dim, and its value."""
    r = rng.random()
    if depth == 0 or r < 0.15:
        name = rng.choice(["N", "T", rng.randint(-5, 9)])
        return (name, name) if isinstance(name, int) else (Size.named(name), env[name])
    a, b = made(depth - 1, env, rng)
    if r < 0.45:
        c, d = made(depth - 1, env, rng)
        return a + c, b + d
    k = rng.randint(1, 7)
    if r < 0.6:
        return a * (k - 4), b * (k - 4)
    if r < 0.68:
        c, d = made(depth - 1, env, rng)
        return a * c, b * d
    return floor_divide(a, k), b // k


def test_quotients_in_polynomials():
    """Value, text, natural numerators, and other sizes in place of names."""
    for seed in range(600):
        rng = random.Random(seed)
        env = {"N": rng.randint(0, 20), "T": rng.randint(0, 9)}
        try:
            d, value = made(5, env, rng)
        except ValueError as error:
            assert "quotient with too many terms" in str(error)
            continue
        assert evaluate_dim(d, env) == value, seed
        text = str(d)
        assert eval(text, dict(env)) == value, seed
        if len(text) <= LONGEST_TEXT:
            assert parse_dim(text) == d and parse_attr(print_attr((d, 1))) == (d, 1), seed
        assert all(is_natural(q.numerator) for q in getattr(d, "quotients", ())), seed
        later = substitute_dim(d, {"T": N + 2})
        assert evaluate_dim(later, env) == evaluate_dim(d, {**env, "T": env["N"] + 2}), seed


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("(((N+1)//2)//2)", "((N+1)//4)"),
        ("((2*N+5)//4)", "(N//2)+1"),
        ("((7*N)//4)", "-((N+3)//4)+2*N"),
        ("((4*N+8*T)//4)", "N+2*T"),
        ("((((N+1)//2)+1)//2)", "((N+3)//4)"),
    ],
)
def test_one_normal_form(a, b):
    assert str(parse_dim(a)) == b
    assert -1 * floor_divide(-1 * N, 4) == floor_divide(N + 3, 4)


@pytest.mark.parametrize(
    "text",
    ["(N//0)", "(N//-1)", "((N)", "(N//2", "(N//2)T", "(//2)", "(N//T)", "(5", "N//", "()"]
    + [f"(N//{1 << 40})", "(" * 600 + "N", "(" * 500 + "N"],
)
def test_texts_that_are_no_size(text):
    with pytest.raises(ValueError, match="not a size|characters"):
        parse_dim(text)
    with pytest.raises(VerifyError):
        parse(f'program p(%x: f32[N] arg "x") {{\n  %y = size(n={text}) : i64[]\n  return %y\n}}')


def test_quotients_are_not_linear():
    half = floor_divide(N, 2)
    assert line(half + N, "N") is None and line(half * 2 + T, "T") == (half * 2, 1)
    assert multiple_of_name(half * 2) is None


def test_proofs():
    third = floor_divide(N + 2, 3)
    assert never_negative(third * 3 - N) and never_negative(N + 2 - third * 3)
    assert not never_negative(N + 1 - third * 3) and not never_negative(third * 3 - N - 1)
    assert never_negative(floor_divide(N + 1, 2) - 1, [N - 1])
    assert not never_negative(floor_divide(N, 2) - 1, [N - 1])


def test_sizes_in_a_program():
    program = verify(parse(CONV))
    assert str(program) == str(parse(str(program)))
    compiled = executor.compile(program)
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        inputs = [rng.normal(size=shape), rng.normal(size=(3, 2, 3, 3))]
        for have, want in zip(compiled(*inputs), evaluate(program, inputs)[0], strict=True):
            np.testing.assert_allclose(have, want, atol=1e-12)
    with pytest.raises(ValueError, match="does not hold"):
        compiled(np.zeros((1, 2, 4, 2)), np.zeros((3, 2, 3, 3)))


def test_numerators_do_not_overflow():
    program = verify(
        parse(
            f'program p(%x: f32[N,T] arg "x") {{\n'
            f"  %y = full(value=0.0, shape=[(({1 << 30}*N*T)//{(1 << 31) - 1})], dtype=f32) : "
            f"f32[(({1 << 30}*N*T)//{(1 << 31) - 1})]\n  return %y\n}}"
        )
    )
    found = extents(program)
    assert too_large(found, {"N": 1 << 10, "T": 1 << 10})
    assert not too_large(found, {"N": 2, "T": 1 << 10})
    assert LARGEST > 1 << 40
