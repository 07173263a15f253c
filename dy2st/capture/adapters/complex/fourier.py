"""Fourier transforms: the row `fourier` for smooth lengths, else products with DFT matrices.

One sequence alone, and a length with another prime factor, is transformed by products, which loops
can join to larger ones. A length n = a * b is then a transform of length a of each of the b
sequences x[i::b], a product with the roots of unity, and transforms of length b. A length that is
small or prime is one product.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import paddle

from dy2st.capture.adapters.complex.table import OF_FLOATS, complex_adapter, dtype_of, pairs
from dy2st.capture.adapters.table import adapter
from dy2st.state.ownership import refuse
from dy2st.trace.emitter import Emitter, NoRow, lift
from dy2st.trace.fake_tensor import DTYPE_TO_PADDLE, FakeTensor, Tensor
from ir.ops.linalg import is_smooth
from ir.types import Dim, DType, Type, product

#: the longest transform that is one product though there is an op for it
SHORT = 16
#: the longest transform that is one product, and the longest of a prime length
WHOLE, MOST_PRIME = 64, 512


# ---------------------------------------------------------------- the entries
@complex_adapter("fft_c2c")
def fft_c2c(e: Emitter, x: Tensor, axes: Sequence[int], norm: str, forward: bool) -> FakeTensor:
    kind, sizes = dtype_of(e, x), sizes_along(e, x, axes)
    z, factor = pairs(e, x, kind), scaling(norm, forward, sizes)
    for axis, n in zip(axes, sizes):
        z = complex_along(e, z, axis, n, sign_of(forward), factor)
        factor = 1.0
    return e.as_complex(z)  # type: ignore[no-any-return]


@adapter("fft_r2c")
def fft_r2c(
    e: Emitter, x: Tensor, axes: Sequence[int], norm: str, forward: bool, onesided: bool
) -> FakeTensor:
    if dtype_of(e, x) not in OF_FLOATS:
        raise NoRow("a transform of this element type")
    sizes = sizes_along(e, x, axes)
    sign, factor = sign_of(forward), scaling(norm, forward, sizes)
    *rest, last = axes
    if onesided:
        z = real_along(e, x, int(last) % e.type(x).ndim, sizes[-1], sign, factor)
    else:
        z, rest = e.stack(x, e.full(0.0, dtype_of(e, x), e.type(x).shape), axis=-1), [*axes]
    for axis, n in zip(rest, sizes):
        z = complex_along(e, z, axis, n, sign, 1.0 if onesided or axis != rest[0] else factor)
    return e.as_complex(z)  # type: ignore[no-any-return]


@complex_adapter("fft_c2r")
def fft_c2r(
    e: Emitter, x: Tensor, axes: Sequence[int], norm: str, forward: bool, last_dim_size: int = 0
) -> FakeTensor:
    sizes = sizes_along(e, x, axes)
    sizes[-1] = int(last_dim_size) or 2 * (sizes[-1] - 1)
    if sizes[-1] < 1 or sizes[-1] // 2 + 1 != e.type(x).shape[axes[-1]]:
        raise NoRow("a transform of another size")
    sign, factor = sign_of(forward), scaling(norm, forward, sizes)
    z = pairs(e, x, dtype_of(e, x))
    *rest, last = axes
    for axis, n in zip(rest, sizes):
        z = complex_along(e, z, axis, n, sign, 1.0)
    at = int(last) % (e.type(z).ndim - 1)
    if has_row(e.type(z).shape[:-1], at, sizes[-1]):
        how = {"kind": "synthesis", "inverse": sign > 0, "factor": factor, "doubled": True}
        return e.fourier(z, axis=at, n=sizes[-1], **how)  # type: ignore[no-any-return]
    z = real_of_half(e, _pair_last(e, z, at), sizes[-1], sign, factor)
    n = e.type(z).ndim
    return e.transpose(z, perm=(*range(at), n - 1, *range(at, n - 1)))  # type: ignore[no-any-return]


def sizes_along(e: Emitter, x: Tensor, axes: Sequence[int]) -> list[int]:
    """The lengths of the transforms."""
    sizes = [e.type(x).shape[int(a)] for a in axes]
    if not sizes or not all(isinstance(n, int) and n > 0 for n in sizes):
        raise NoRow("a Fourier transform along an axis without a fixed size")
    return sizes


def sign_of(forward: bool) -> int:
    return -1 if forward else 1


def scaling(norm: str, forward: bool, sizes: Sequence[int]) -> float:
    count = float(np.prod(np.array(sizes, float)))
    if norm == "ortho":
        return float(count**-0.5)
    return 1.0 / count if (norm == "forward") is bool(forward) else 1.0


# ---------------------------------------------------------------- axes
def complex_along(e: Emitter, z: Tensor, axis: int, n: int, sign: int, factor: float) -> FakeTensor:
    """The transform of pairs along an axis of the complex tensor."""
    at = int(axis) % (e.type(z).ndim - 1)
    if has_row(e.type(z).shape[:-1], at, n):
        how = {"kind": "complex", "inverse": sign > 0, "factor": factor}
        return e.fourier(z, axis=at, n=n, **how)  # type: ignore[no-any-return]
    found = transform(e, _pair_last(e, z, at), n, sign, factor)
    return _back(e, found, at)


def real_along(e: Emitter, x: Tensor, at: int, n: int, sign: int, factor: float) -> FakeTensor:
    """Pairs of the frequencies up to the half along an axis of a real tensor."""
    if has_row(e.type(x).shape, at, n):
        how = {"kind": "analysis", "inverse": sign > 0, "factor": factor}
        return e.fourier(x, axis=at, n=n, **how)  # type: ignore[no-any-return]
    return _back(e, half_of_real(e, _last(e, x, at), n, sign, factor), at)


def has_row(shape: Sequence[Dim], at: int, n: int) -> bool:
    """Whether a transform of the sequences along an axis is an op of its own."""
    others = product([d for a, d in enumerate(shape) if a != at])
    return n > SHORT and is_smooth(n) and others != 1


def _last(e: Emitter, x: Tensor, axis: int) -> FakeTensor:
    """A real tensor with an axis at the end."""
    n = e.type(x).ndim
    at = int(axis) % n
    order = (*range(at), *range(at + 1, n), at)
    return x if at == n - 1 else e.transpose(x, perm=order)


def _pair_last(e: Emitter, z: Tensor, at: int) -> FakeTensor:
    """Pairs with an axis at the end, in front of the axis of the pairs."""
    n = e.type(z).ndim
    order = (*range(at), *range(at + 1, n - 1), at, n - 1)
    return z if at == n - 2 else e.transpose(z, perm=order)


def _back(e: Emitter, z: Tensor, axis: int) -> FakeTensor:
    """The last axis of pairs where it was."""
    n = e.type(z).ndim
    at = int(axis) % (n - 1)
    if at == n - 2:
        return z
    return e.assign(e.transpose(z, perm=(*range(at), n - 2, *range(at, n - 2), n - 1)))


# ---------------------------------------------------------------- transforms of the last axis
def transform(e: Emitter, z: Tensor, n: int, sign: int, factor: float, kept: int = 0) -> FakeTensor:
    """Transform pairs `[..., n, 2]`: the first `kept` frequencies, all if it is 0."""
    kept, a = kept or n, split_of(n)
    outer, dtype = e.type(z).shape[:-2], e.type(z).dtype
    if a is None:
        flat = e.reshape(z, shape=(*outer, 2 * n))
        out = e.matmul(flat, held(e, "whole", n, kept, sign, factor, dtype))
        return e.reshape(out, shape=(*outer, kept, 2))
    b = n // a
    z = _swap(e, e.reshape(z, shape=(*outer, a, b, 2)), 1)
    z = transform(e, z, a, sign, factor)
    return _second(e, z, a, b, sign, kept)


def _second(e: Emitter, z: Tensor, a: int, b: int, sign: int, kept: int) -> FakeTensor:
    """The second stage of a transform: `z` holds transforms of length `a`, as `[..., b, a, 2]`."""
    outer, dtype = e.type(z).shape[:-3], e.type(z).dtype
    z = _swap(e, turned(e, z, held(e, "roots", b, a, sign, 1.0, dtype)), 1)
    rows = -(-kept // a)
    z = _swap(e, transform(e, z, b, sign, 1.0, rows), 1)
    z = e.reshape(z, shape=(*outer, rows * a, 2))
    return z if rows * a == kept else e.slice(z, axis=len(outer), start=0, length=kept)


def half_of_real(e: Emitter, x: Tensor, n: int, sign: int, factor: float) -> FakeTensor:
    """Transform a real tensor `[..., n]`: pairs of its frequencies up to the half."""
    outer, dtype, kept, a = e.type(x).shape[:-1], e.type(x).dtype, n // 2 + 1, split_of(n)
    if a is None:
        out = e.matmul(x, held(e, "of_real", n, kept, sign, factor, dtype))
        return e.reshape(out, shape=(*outer, kept, 2))
    b = n // a
    x = _swap(e, e.reshape(x, shape=(*outer, a, b)), 0)
    z = e.matmul(x, held(e, "of_real", a, a, sign, factor, dtype))
    return _second(e, e.reshape(z, shape=(*outer, b, a, 2)), a, b, sign, kept)


def real_of_half(e: Emitter, z: Tensor, n: int, sign: int, factor: float) -> FakeTensor:
    """The real tensor `[..., n]` of pairs of frequencies up to the half: the steps of
    `half_of_real` the other way round. Every frequency stands for its conjugate, too."""
    outer, dtype, kept, a = e.type(z).shape[:-2], e.type(z).dtype, n // 2 + 1, split_of(n)
    if a is None:
        flat = e.reshape(z, shape=(*outer, 2 * kept))
        return e.matmul(flat, held(e, "to_real", n, kept, sign, factor, dtype))
    b = n // a
    rows = -(-kept // a)
    if rows * a > kept:
        zeros = e.full(0.0, dtype, (*outer, rows * a - kept, 2))
        z = e.concat(z, zeros, axis=len(outer))
    z = e.reshape(z, shape=(*outer, rows, a, 2))
    z = _swap(e, e.multiply(z, held(e, "weights", n, a, sign, factor, dtype)), 1)
    z = partial(e, z, b, rows, sign)
    z = _swap(e, turned(e, z, held(e, "roots", a, b, sign, 1.0, dtype, n)), 1)
    flat = e.reshape(z, shape=(*outer, b, 2 * a))
    x = _swap(e, e.matmul(flat, held(e, "real_part", a, a, sign, 1.0, dtype)), 0)
    return e.reshape(x, shape=(*outer, n))


def partial(e: Emitter, z: Tensor, n: int, given: int, sign: int) -> FakeTensor:
    """The transform of length `n` of pairs `[..., given, 2]`, with zeros behind them."""
    outer, dtype = e.type(z).shape[:-2], e.type(z).dtype
    if split_of(n) is None:
        flat = e.reshape(z, shape=(*outer, 2 * given))
        out = e.matmul(flat, held(e, "partial", n, given, sign, 1.0, dtype))
        return e.reshape(out, shape=(*outer, n, 2))
    zeros = e.full(0.0, dtype, (*outer, n - given, 2))
    return transform(e, e.concat(z, zeros, axis=len(outer)), n, sign, 1.0)


def _swap(e: Emitter, z: Tensor, behind: int) -> FakeTensor:
    """The last two axes in front of the last `behind`, exchanged."""
    n = e.type(z).ndim - behind
    return e.transpose(z, perm=(*range(n - 2), n - 1, n - 2, *range(n, n + behind)))


def turned(e: Emitter, z: Tensor, roots: object) -> FakeTensor:
    """The product with roots of unity, both pairs."""
    (a, b), (c, d) = ([e.index(q, axis=-1, index=k) for k in (0, 1)] for q in (z, roots))
    re = e.subtract(e.multiply(a, c), e.multiply(b, d))
    return e.stack(re, e.add(e.multiply(a, d), e.multiply(b, c)), axis=-1)


# ---------------------------------------------------------------- constants
def split_of(n: int) -> int | None:
    """The factor nearest to the root of n from below; None for a length that is one product."""
    if n <= WHOLE:
        return None
    a = next(q for q in range(int(n**0.5), 0, -1) if n % q == 0)
    if a == 1 and n > MOST_PRIME:
        raise refuse(
            f"a Fourier transform of length {n}, which has a prime factor above {MOST_PRIME}.",
            "Transforms are products of matrices of their factors, and this one is too large.",
            f"Choose a length with small factors: `n={1 << n.bit_length()}`.",
        )
    return None if a == 1 else a


@functools.lru_cache(maxsize=256)
def _made(what: str, n: int, m: int, sign: int, factor: float, dtype: DType, whole: int) -> Tensor:
    """A constant: the matrix of a transform of length n with m frequencies, or a table."""
    return paddle.to_tensor(_TABLES[what](n, m, sign, factor, whole), DTYPE_TO_PADDLE[dtype])


def _roots(rows: int, columns: int, n: int, sign: int) -> np.ndarray:
    """exp(sign * 2 pi i * j * k / n), exact in j * k."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % n
    return np.exp(sign * 2j * np.pi * turns / n)


def _interleaved(w: np.ndarray) -> np.ndarray:
    """The real matrix that acts on pairs as the complex one on numbers."""
    n, m = w.shape
    out = np.empty((n, 2, m, 2))
    out[:, 0, :, 0] = out[:, 1, :, 1] = w.real
    out[:, 0, :, 1], out[:, 1, :, 0] = w.imag, -w.imag
    return out.reshape(2 * n, 2 * m)


def _parts(w: np.ndarray) -> np.ndarray:
    return np.stack((w.real, w.imag), -1)


def _conjugates(n: int, m: int) -> np.ndarray:
    """Return the multiplicity of frequency k of m: one if it is its own conjugate, zero behind the
    half."""
    k = np.arange(m)
    return np.where(k > n // 2, 0.0, np.where((k == 0) | (2 * k == n), 1.0, 2.0))


def _to_real(n: int, m: int, sign: int) -> np.ndarray:
    """Pairs of m frequencies to n real numbers."""
    w = _roots(m, n, n, sign) * _conjugates(n, m)[:, None]
    return np.stack((w.real, -w.imag), 1).reshape(2 * m, n)


_TABLES: dict[str, Callable[..., np.ndarray]] = {
    "whole": lambda n, m, sign, factor, _: _interleaved(factor * _roots(n, m, n, sign)),
    "of_real": lambda n, m, sign, factor, _: _parts(factor * _roots(n, m, n, sign)).reshape(
        n, 2 * m
    ),
    "roots": lambda n, m, sign, factor, whole: _parts(_roots(n, m, whole or n * m, sign)),
    "to_real": lambda n, m, sign, factor, _: factor * _to_real(n, m, sign),
    "weights": lambda n, m, sign, factor, _: (
        factor * _conjugates(n, -(-(n // 2 + 1) // m) * m).reshape(-1, m, 1)
    ),
    "partial": lambda n, m, sign, factor, _: _interleaved(_roots(m, n, n, sign)),
    "real_part": lambda n, m, sign, factor, _: np.stack(
        (_roots(n, n, n, sign).real, -_roots(n, n, n, sign).imag), 1
    ).reshape(2 * n, n),
}


def held(
    e: Emitter, what: str, n: int, m: int, sign: int, factor: float, dtype: DType, whole: int = 0
) -> FakeTensor:
    """A constant as an input of the program."""
    with e.trace.pause():
        tensor = _made(what, n, m, sign, factor, dtype, whole)
        shape = tuple(int(d) for d in tensor.shape)
    if id(tensor) not in e.trace.inputs.by_id:
        name = f"constant_{sum(q.kind == 'const' for q in e.trace.inputs.by_id.values())}"
        e.trace.add_input(tensor, "const", name, Type(dtype, shape))
    return lift(e.trace, tensor)


__all__ = ["fft_c2c", "fft_c2r", "fft_r2c"]
