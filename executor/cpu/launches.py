"""Launches of the CPU's own: reductions of expressions; products and convolutions by panels, with
the memory that they need.

A *panel* holds `columns` columns of the right matrix of a product side by side, [K][columns].
"""

from __future__ import annotations

from dataclasses import dataclass

from executor.launches import BackendLaunch
from executor.memory import View
from ir.opdef import Reduction as Reduction
from ir.scalar.language import Scalar
from ir.types import Dim


@dataclass(frozen=True, eq=False)
class MapReduce(BackendLaunch):
    """A `Map`, of which `outs[k]` gets, where it has a rule, the reduction of `roots[k]` along
    `axes`. No two of `outs` share memory, nor do the reduced ones with `ins`."""

    shape: tuple[Dim, ...]
    ins: tuple[View, ...]
    roots: tuple[Scalar, ...]
    axes: tuple[int, ...]
    rules: tuple[Reduction | None, ...]
    outs: tuple[View, ...]


@dataclass(frozen=True, eq=False)
class Pack(BackendLaunch):
    """A right matrix [batch..., K, N] into panels; `out` has its shape, and room for whole
    panels."""

    out: View
    y: View
    columns: int


@dataclass(frozen=True, eq=False)
class PackedGemm(BackendLaunch):
    """A `Gemm` whose right matrix lies in the panels that a `Pack` made."""

    out: View
    x: View
    panels: View
    initial: View | None
    columns: int


@dataclass(frozen=True, eq=False)
class PanelGemm(BackendLaunch):
    """A `Gemm` that packs one panel after the other into `scratch`."""

    out: View
    x: View
    y: View
    initial: View | None
    columns: int
    scratch: View


@dataclass(frozen=True, eq=False)
class PanelConv(BackendLaunch):
    """A `Conv` whose sum is taken in parts: of `channels` channels and `lines` lines of taps.

    `left` has room for the weights of a part, `panel` for what one panel of results reads.
    """

    out: View
    x: View
    w: View
    stride: tuple[int, int]
    before: tuple[Dim, Dim]
    dilation: tuple[int, int]
    left: View
    panel: View
    columns: int
    channels: int
    lines: int


@dataclass(frozen=True, eq=False)
class LaneFourier(BackendLaunch):
    """A `Fourier` of `width` sequences at a time, of twice as many real ones."""

    out: View
    x: View
    axis: int
    n: int
    kind: str
    inverse: bool
    factor: float
    doubled: bool
    width: int
    scratch: View
