"""The programs of the benchmark. Where one decides by a threshold, its results are compared bit by
bit with those of the interpreter in the same types; else with float64."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

import ir
from ir import Program
from ir.literal import parse_type
from ir.opdef import OPS
from ir.passes import run
from ir.program import Builder, Input, Value

NEURON = """
program neuron(%x: f32[T,N] arg "x", %v0: f32[N] arg "v") {
  %one = full(value=1.0, dtype=f32)              : f32[]
  scan %t < T {
    seq %xt = %x[t]                              : f32[N]
    const %limit = %one                          : f32[]
    carry %v = %v0 then %v2 last %vT             : f32[N]
    stack %ys = %z axis 0                        : f32[T,N]
    body
      %d = subtract(%xt, %v)                     : f32[N]
      %e = scale(%d, scale=0.5)                  : f32[N]
      %u = add(%v, %e)                           : f32[N]
      %s = greater_equal(%u, %limit)             : bool[N]
      %z = cast(%s, dtype=f32)                   : f32[N]
      %r = subtract(%limit, %z)                  : f32[N]
      %v2 = multiply(%u, %r)                     : f32[N]
  }
  return %ys, %vT
}
"""
RECURRENT = """
program recurrent(%x: f32[T,B,H] arg "x", %w: f32[H,H] param "w", %h0: f32[B,H] arg "h") {
  scan %t < T {
    seq %xt = %x[t]                              : f32[B,H]
    const %wc = %w                               : f32[H,H]
    carry %h = %h0 then %h2 last %hT             : f32[B,H]
    stack %ys = %h2 axis 0                       : f32[T,B,H]
    body
      %a = matmul(%h, %wc)                       : f32[B,H]
      %b = add(%a, %xt)                          : f32[B,H]
      %h2 = tanh(%b)                             : f32[B,H]
  }
  return %ys, %hT
}
"""
LSTM = """
program lstm(%x: f32[T,B,H] arg "x", %wx: f32[H,4*H] param "wx", %wh: f32[H,4*H] param "wh", \
%h0: f32[B,H] arg "h", %c0: f32[B,H] arg "c") {
  %g = matmul(%x, %wx)                           : f32[T,B,4*H]
  scan %t < T {
    seq %gt = %g[t]                              : f32[B,4*H]
    const %w = %wh                               : f32[H,4*H]
    carry %h = %h0 then %h2 last %hT             : f32[B,H]
    carry %c = %c0 then %c2 last %cT             : f32[B,H]
    stack %ys = %h2 axis 0                       : f32[T,B,H]
    body
      %a = matmul(%h, %w)                        : f32[B,4*H]
      %b = add(%a, %gt)                          : f32[B,4*H]
      %i = slice(%b, axis=1, start=0, length=H)  : f32[B,H]
      %f = slice(%b, axis=1, start=H, length=H)  : f32[B,H]
      %m = slice(%b, axis=1, start=2*H, length=H) : f32[B,H]
      %o = slice(%b, axis=1, start=3*H, length=H) : f32[B,H]
      %si = sigmoid(%i)                          : f32[B,H]
      %sf = sigmoid(%f)                          : f32[B,H]
      %so = sigmoid(%o)                          : f32[B,H]
      %tm = tanh(%m)                             : f32[B,H]
      %p = multiply(%sf, %c)                     : f32[B,H]
      %q = multiply(%si, %tm)                    : f32[B,H]
      %c2 = add(%p, %q)                          : f32[B,H]
      %tc = tanh(%c2)                            : f32[B,H]
      %h2 = multiply(%so, %tc)                   : f32[B,H]
  }
  return %ys, %hT, %cT
}
"""
GATED = """
program gated(%g: f32[L,D] arg "g", %x: f32[L,D] arg "x", %h0: f32[D] arg "h") {
  scan %t < L {
    seq %gt = %g[t]                              : f32[D]
    seq %xt = %x[t]                              : f32[D]
    carry %h = %h0 then %h2 last %hT             : f32[D]
    stack %ys = %h2 axis 0                       : f32[L,D]
    body
      %f = sigmoid(%gt)                          : f32[D]
      %p = multiply(%f, %h)                      : f32[D]
      %h2 = add(%p, %xt)                         : f32[D]
  }
  return %ys, %hT
}
"""
DECODE = """
program decode(%q: f32[S,A,G,E] arg "q", %k: f32[S,A,G,E] arg "k", %v: f32[S,A,G,E] arg "v", \
%keys: f32[A,G,S,E] arg "keys", %values: f32[A,G,S,E] arg "values") {
  scan t < S {
    seq %qt = %q[t]                              : f32[A,G,E]
    seq %kt = %k[t]                              : f32[A,G,E]
    seq %vt = %v[t]                              : f32[A,G,E]
    carry %ks = %keys then %ks2 last %ksT        : f32[A,G,S,E]
    carry %vs = %values then %vs2 last %vsT      : f32[A,G,S,E]
    stack %ys = %y axis 0                        : f32[S,A,G,1,E]
    body
      %ks2 = set_dynamic_index(%ks, %kt, %t, axis=2) : f32[A,G,S,E]
      %vs2 = set_dynamic_index(%vs, %vt, %t, axis=2) : f32[A,G,S,E]
      %q1 = reshape(%qt, shape=[A,G,1,E])        : f32[A,G,1,E]
      %ka = slice(%ks2, axis=2, start=0, length=t+1) : f32[A,G,t+1,E]
      %s = matmul(%q1, %ka, trans_y=True)        : f32[A,G,1,t+1]
      %a = scale(%s, scale=0.125)                : f32[A,G,1,t+1]
      %p = softmax(%a, axis=3)                   : f32[A,G,1,t+1]
      %va = slice(%vs2, axis=2, start=0, length=t+1) : f32[A,G,t+1,E]
      %y = matmul(%p, %va)                       : f32[A,G,1,E]
  }
  return %ys
}
"""
ATTENTION = """
program attention(%q: f32[A,G,1,E] arg "q", %k: f32[A,G,S,E] arg "k", %v: f32[A,G,S,E] arg "v") {
  %s = matmul(%q, %k, trans_y=True)              : f32[A,G,1,S]
  %a = scale(%s, scale=0.125)                    : f32[A,G,1,S]
  %p = softmax(%a, axis=3)                       : f32[A,G,1,S]
  %y = matmul(%p, %v)                            : f32[A,G,1,E]
  return %y
}
"""
SOFTMAX = """
program softmax(%x: f32[R,C] arg "x") {
  %y = softmax(%x, axis=1)                       : f32[R,C]
  return %y
}
"""
PRODUCT = """
program product(%x: f32[M,K] arg "x", %w: f32[K,K] param "w") {
  %y = matmul(%x, %w)                            : f32[M,K]
  return %y
}
"""
CONVOLUTION = """
program convolution(%x: f32[B,I,X,X] arg "x", %w: f32[I,I,3,3] param "w") {
  %y = conv(%x, %w, padding=[[1,1],[1,1]])       : f32[B,I,X,X]
  return %y
}
"""
#: of few heads, with many keys
CACHE = ATTENTION.replace("attention(", "cache(").replace("A,", "1,").replace("S", "Z")
#: at a batch of one
LAYER = """
program layer(%x: f32[1,K] arg "x", %w: f32[K,4*K] param "w") {
  %y = matmul(%x, %w)                            : f32[1,4*K]
  return %y
}
"""
#: convolutions of a state
STEPS = """
program steps(%x: f32[Q,8,I,28,28] arg "x", %w: f32[I,I,3,3] param "w", \
%h0: f32[8,I,28,28] arg "h") {
  scan %t < Q {
    seq %xt = %x[t]                              : f32[8,I,28,28]
    const %wc = %w                               : f32[I,I,3,3]
    carry %h = %h0 then %h2 last %hT             : f32[8,I,28,28]
    stack %ys = %h2 axis 0                       : f32[Q,8,I,28,28]
    body
      %a = conv(%h, %wc, padding=[[1,1],[1,1]])  : f32[8,I,28,28]
      %b = add(%a, %xt)                          : f32[8,I,28,28]
      %h2 = tanh(%b)                             : f32[8,I,28,28]
  }
  return %ys, %hT
}
"""
EXACT = frozenset(["neuron"])
#: in the order of their weight
TEXTS = (
    NEURON, LSTM, DECODE, RECURRENT, GATED, CACHE, LAYER, ATTENTION, SOFTMAX, PRODUCT,
    CONVOLUTION, STEPS,
)  # fmt: skip
NAMES = tuple(t.split("(")[0].split()[1] for t in TEXTS)
#: elements of which the random numbers of an input are copies; no size of a program is a multiple
PERIOD = 999_983
SIZES = "T=128,N=1048576,B=64,H=256,R=8192,C=4096,M=4096,K=1024,L=16384,D=2048"
SIZES += ",A=8,G=12,E=64,S=256,I=64,X=56,Z=65536,Q=4"
SMALL = "T=3,N=20,B=2,H=5,R=6,C=40,M=5,K=7,L=70,D=3,A=1,G=2,E=5,S=3,I=4,X=5,Z=300,Q=2"
#: rows of one program, so that their kernels are compiled together
TOGETHER = 12


def fixed(text: str, name: str, size: int) -> str:
    """The program with a number for a named size."""
    text = re.sub(rf"(\d+)\*{name}\b", lambda m: str(int(m[1]) * size), text)
    return re.sub(rf"\b{name}\b", str(size), text)


def read(text: str) -> dict[str, int]:
    """Sizes by name, from `A=1,B=2`."""
    return {n: int(k) for n, _, k in (q.partition("=") for q in text.split(",") if q)}


def named(name: str, sizes: Mapping[str, int]) -> Program:
    """Matrices, rows and few states stay in registers only if their sizes are known."""
    text = TEXTS[NAMES.index(name)]
    for size in "HCDEIX":
        text = fixed(text, size, sizes[size])
    return run(ir.verify(ir.parse(text)))


def inputs(program: Program, sizes: Mapping[str, int]) -> list[np.ndarray]:
    """Random floats, so small that products of matrices stay about 1; zeros for the rest."""
    rng, out = np.random.default_rng(0), []
    for i in program.inputs:
        shape, dtype = i.value.type.concrete(sizes), i.value.type.dtype
        scale = 1 / np.sqrt(shape[0]) if i.kind == "param" and len(shape) > 1 else 1.0
        count = math.prod(shape) if dtype.kind == "f" else 0
        floats = rng.normal(size=min(count, PERIOD)) * scale if count else np.zeros(1)
        out.append(np.resize(floats.astype(dtype.numpy), shape))
    return out


def reference(program: Program, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the results with f64 in the place of f32, unless they must be exact."""
    if program.name in EXACT:
        return list(ir.evaluate(program, [a.copy() for a in arrays])[0])
    wide = ir.verify(ir.parse(str(program).replace("f32", "f64")))
    given = [a.astype("f8") if a.dtype == np.float32 else a for a in arrays]
    return list(ir.evaluate(wide, given)[0])


def rows() -> list[tuple[Program, list[np.ndarray]]]:
    """The examples of all ops, some together, with arrays for them."""
    names = [n for n, row in OPS.items() if row.ref is not None and row.examples]
    return [_examples(names[k : k + TOGETHER]) for k in range(0, len(names), TOGETHER)]


def _examples(names: Sequence[str]) -> tuple[Program, list[np.ndarray]]:
    b, rng = Builder(), np.random.default_rng(0)
    values: list[Value] = []
    arrays: list[np.ndarray] = []
    outs: list[Value] = []
    for name in names:
        for example in OPS[name].examples:
            own = [Value(parse_type(t)) for t in example.types]
            outs += b.emit(name, own, dict(example.attrs))
            values += own
            arrays += [_array(v, example.low, example.high, rng) for v in own]
    given = tuple(Input(v, "arg", f"x{k}") for k, v in enumerate(values))
    title = f"{names[0]} to {names[-1]}"
    return Program(title.replace(" ", "_"), given, tuple(b.ops), tuple(outs)), arrays


def _array(v: Value, low: float, high: float, rng: np.random.Generator) -> np.ndarray:
    shape, dtype = v.type.concrete({}), v.type.dtype
    if dtype.kind == "f":
        return np.asarray(rng.uniform(low, high, shape)).astype(dtype.numpy)
    ends = (0, 1) if dtype.kind == "b" else (int(low), int(high))
    return np.asarray(rng.integers(ends[0], ends[1] + 1, shape)).astype(dtype.numpy)
