"""The target of generated code: the host's vector unit, or a smaller one on request.

`DY2ST_CPU` = avx512, avx2 or generic overrides the choice. `wide` is for tests: the shapes of the
512-bit code on a processor that has AVX2 only.

generic is x86-64-v2 (SSE4.2). It has no fused multiply-add: in f32 the product and the sum are
formed in double (off by one in the last place in rare half-way cases), in f64 by the C library's
`fma`, which is exact and slow.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache

import llvmlite.binding as llvm

from ir.types import DType

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()


@dataclass(frozen=True)
class Target:
    """`bits` of a vector; `scalef`: 2**n by one instruction; `masks`: masked vector access to
    4- and 8-byte elements; `narrow_masks`: to 1- and 2-byte elements as well; `f16`: conversions of
    16-bit floats."""

    name: str
    cpu: str
    features: str
    bits: int
    fma: bool
    scalef: bool = False
    masks: bool = True
    narrow_masks: bool = False
    f16: bool = True

    def lanes(self, dtype: DType) -> int:
        return self.bits // max(dtype.bits, 32)


NAMES = ("avx512", "avx2", "generic", "wide")


@lru_cache
def supported(name: str) -> bool:
    """Whether this host can run code for the target."""
    has = llvm.get_host_cpu_features()
    if name == "avx512":
        return all(has.get(f"avx512{q}", False) for q in ("f", "bw", "dq", "vl"))
    return name == "generic" or all(has.get(q, False) for q in ("avx2", "fma", "f16c"))


@lru_cache
def named(name: str) -> Target:
    """Raises ValueError for an unknown name."""
    host, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    own = supported("avx512")
    if name == "avx512":
        cpu, features = (host, features) if own else ("skylake-avx512", "")
        return Target(name, cpu, features, 512, True, scalef=True, narrow_masks=True)
    if name in ("avx2", "wide"):
        mine = supported("avx2") and not own
        cpu, features = (host, features) if mine else ("haswell", "")
        return Target(name, cpu, features, 256 if name == "avx2" else 512, True)
    if name == "generic":
        return Target(name, "x86-64-v2", "", 128, False, masks=False, f16=False)
    raise ValueError(f"DY2ST_CPU is one of {', '.join(NAMES)}, not {name!r}")


def current() -> Target:
    """The target to compile for; raises RuntimeError if this host cannot run it."""
    name = os.environ.get("DY2ST_CPU") or next(n for n in NAMES if supported(n))
    target = named(name)
    if not supported(name):
        raise RuntimeError(f"DY2ST_CPU={name}: this processor cannot run such code")
    return target
