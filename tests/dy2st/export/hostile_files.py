"""Files that mean harm: mutations of saved programs, and programs and manifests made up at random.

Used by tests/dy2st/export/test_hostile_files.py and scripts/fuzz/files.py; `guarded.py` runs them.
"""

from __future__ import annotations

import functools
import io
import json
import math
import random
import re
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save as save_tensors

from dy2st.export.manifest import FORMAT, MANIFEST, PROGRAM, VERSION, WEIGHTS
from ir import OPS, Builder, Dy2stError, Input, Op, Program, Size, Type, Value, parse, verify
from ir.attributes import kind_of
from ir.literal import parse_type, print_attr
from ir.opdef import OpDef, ShapeError, collecting, complete_attrs
from ir.types import BOOL, DTYPES, F32, F64, I32, I64
from ir.uses import walk

GOLDEN = Path(__file__).parents[2] / "golden"
NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, 16, 33, 64, 100, 1000, 1 << 20, (1 << 31) - 1, 1 << 31)
EXTREMES = (1 << 40, 1 << 59, 1 << 61, (1 << 62) + 1, (1 << 63) - 1, 1 << 63, 1 << 64, 10**30)
NAMES = ("N", "M", "T")
SIZES = ("N", "M", "T", "2*N", "N+1", "N-1", "N*M", "N*N", "T+3", "-N", "N*N*N*N", "1000*M-999")


@dataclass
class File:
    """A saved program as what is in it."""

    text: str
    result: Any
    stores: list[Any] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    head: dict[str, Any] = field(default_factory=lambda: {"format": FORMAT, "version": VERSION})

    def pack(self) -> bytes:
        data = io.BytesIO()
        manifest = {**self.head, "result": self.result, "stores": self.stores}
        with zipfile.ZipFile(data, "w") as z:
            z.writestr(MANIFEST, json.dumps(manifest))
            z.writestr(PROGRAM, self.text)
            z.writestr(WEIGHTS, save_tensors(self.weights))
        return data.getvalue()


def file_of(program: Program) -> File:
    """A program and its results; inputs that are no arguments get weights."""
    weights, sizes = {}, dict.fromkeys(program.sizes, 1)
    for k, i in enumerate(program.inputs):
        shape = i.value.type.concrete(sizes)
        if i.kind != "arg" and 0 <= math.prod(shape) < 1 << 20 and min(shape, default=0) >= 0:
            weights[str(k)] = np.ones(shape, i.value.type.dtype.numpy)
    outputs = [["out", k, []] for k in range(len(program.outputs))]
    return File(str(program), ["tuple", outputs], [], weights)


# ---------------------------------------------------------------- programs to begin with
@functools.cache
def bases() -> tuple[str, ...]:
    """The texts of programs with every row of the op table, and of those in `tests/golden`."""
    texts = [str(p) for p in _rows()]
    for path in sorted(GOLDEN.rglob("*.txt")):
        for text in re.findall(r"^program .*?^}", path.read_text(), re.MULTILINE | re.DOTALL):
            try:
                program = verify(parse(text))
            except Dy2stError:
                continue
            if not any(isinstance(n, Op) and OPS[n.name].effect for n in walk(program.ops)):
                texts.append(text)
    return tuple(texts)


def _rows() -> Iterator[Program]:
    for name, row in OPS.items():
        for e in row.examples:
            inputs = [Input(Value(parse_type(t)), "arg", f"x{k}") for k, t in enumerate(e.types)]
            b = Builder()
            results = b.emit(name, [i.value for i in inputs], dict(e.attrs))
            yield Program("p", tuple(inputs), tuple(b.ops), results)


# ---------------------------------------------------------------- changes of the text
def _number(rng: random.Random) -> str:
    n = rng.choice(NUMBERS if rng.random() < 0.8 else EXTREMES)
    return str(-n if rng.random() < 0.2 else n)


def _token(rng: random.Random, text: str, pattern: str) -> re.Match[str] | None:
    return rng.choice(list(re.finditer(pattern, text)) or [None])


def _replace(text: str, m: re.Match[str] | None, new: str) -> str:
    return text if m is None else text[: m.start()] + new + text[m.end() :]


def change_number(rng: random.Random, text: str) -> str:
    return _replace(text, _token(rng, text, r"(?<![\w%.])\d+(?![\w.])"), _number(rng))


def change_dim(rng: random.Random, text: str) -> str:
    """One number everywhere: the types may still agree."""
    m = _token(rng, text, r"(?<![\w%.])\d+(?![\w.])")
    if m is None:
        return text
    new = rng.choice(SIZES) if rng.random() < 0.6 else _number(rng)
    return re.sub(rf"(?<![\w%.]){m[0]}(?![\w.])", new, text)


def change_size(rng: random.Random, text: str) -> str:
    m = _token(rng, text, r"(?<=[\[,= ])-?(?:\d+|[A-Z]\w*)(?=[\],)])")
    return _replace(text, m, rng.choice(SIZES) if rng.random() < 0.7 else _number(rng))


def rename_size(rng: random.Random, text: str) -> str:
    """Two named sizes become one, or one becomes two."""
    m = _token(rng, text, r"(?<=[\[,])[A-Z]\w*(?=[\],])")
    return _replace(text, m, rng.choice(NAMES)) if m else text


def change_op(rng: random.Random, text: str) -> str:
    return _replace(text, _token(rng, text, r"(?<== )\w+(?=\()"), rng.choice(list(OPS)))


def change_type(rng: random.Random, text: str) -> str:
    """An element type, once or everywhere."""
    m, new = _token(rng, text, r"\b[fiub]\w*\d+(?=\[)|\bbool(?=\[)"), rng.choice(list(DTYPES))
    if m is None or rng.random() < 0.5:
        return _replace(text, m, new)
    return re.sub(rf"\b{m[0]}\b", new, text)


def swap_tokens(rng: random.Random, text: str) -> str:
    found = list(re.finditer(r"%?\w+", text))
    if len(found) < 2:
        return text
    a, b = sorted(rng.sample(found, 2), key=lambda m: m.start())
    return text[: a.start()] + b[0] + text[a.end() : b.start()] + a[0] + text[b.end() :]


def swap_values(rng: random.Random, text: str) -> str:
    found = list(re.finditer(r"%\w+", text))
    return _replace(text, rng.choice(found), rng.choice(found)[0]) if found else text


def change_lines(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    what = rng.randrange(4)
    if what == 0:
        del lines[at]
    elif what == 1:
        lines.insert(to, lines[at])
    elif what == 2:
        lines[at], lines[to] = lines[to], lines[at]
    else:
        lines.insert(to, rng.choice(HOSTILE_LINES))
    return "\n".join(lines)


def with_inputs(text: str) -> str:
    """With an input of each size that none has as a plain dimension."""
    plain = {n for n in NAMES if re.search(rf"[\[,]{n}[\],]", text.split("\n")[0])}
    missing = [n for n in NAMES if n not in plain and re.search(rf"\b{n}\b", text)]
    more = "".join(f'%of_{n}: bool[{n}] arg "of_{n}", ' for n in missing)
    return re.sub(r"^program (\w+)\((?=%)", lambda m: m[0] + more, text, count=1)


def change_bytes(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice('%[](){}:=@,"\\ \n\t\0*+-.aN0é\u0663') + text[at + 1 :]


HOSTILE_LINES = (
    '  require N == M ""',
    '  require N >= 100000000000000000000 ""',
    "  return %x0",
    "  write %x0 = %1",
    "  %9 = copy_(%x0, %x0)",
    '  %9 = foreign(%x0, call="os.system", args=[], types=[])',
    '  check(%x0, error="SystemExit", message="")',
    "  scan %t9 < 4611686018427387904 {",
    "  }",
    "  body",
    "    go    %x0 then %x0",
    "[" * 5000,
    "  %9 = full(value=" + "{1: " * 900,
    " " * 50_000 + "x",
    "  %9 = full(value=1.0, shape=[" + "N, " * 5000 + "]) : f32[]",
)
TEXT: tuple[Callable[[random.Random, str], str], ...] = (
    change_number, change_number, change_dim, change_dim, change_size, change_size, rename_size,
    change_op, change_type, swap_tokens, swap_values, swap_values, change_lines, change_bytes,
)  # fmt: skip


# ---------------------------------------------------------------- changes of the manifest
def _literal(rng: random.Random) -> str:
    """An attribute of a view."""
    kind = rng.randrange(5)
    if kind == 0:
        return _number(rng)
    if kind == 1:
        return rng.choice(SIZES)
    parts = [rng.choice((_number(rng), *SIZES[:4])) for _ in range(rng.randrange(4))]
    return f"[{', '.join(parts)}]"


_VIEWS = sorted(n for n, row in OPS.items() if row.views)


def recipe(rng: random.Random) -> list[Any]:
    steps = []
    for _ in range(rng.randrange(1, 3)):
        name = rng.choice((*_VIEWS, "strided", "strided", "alias", "add"))
        attrs = [[k, _literal(rng)] for k in OPS[name].attrs] if name in OPS else []
        if name == "strided" and rng.random() < 0.7:
            n = rng.randrange(3)
            dims, strides = ([int(_number(rng)) for _ in range(n)] for _ in range(2))
            given = {"shape": tuple(dims), "strides": tuple(strides), "offset": rng.choice(NUMBERS)}
            attrs = [[k, print_attr(v)] for k, v in given.items()]
        steps.append([name, attrs])
    return steps


def tree(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(12)
    at = rng.choice((0, 0, 0, 1, 2, -1, 7, 1 << 70, 0.0, True, None, "0"))
    if kind < 2 and depth < 4:
        parts = [tree(rng, depth + 1) for _ in range(rng.randrange(3))]
        return [rng.choice(("list", "tuple", "elements")), parts]
    if kind == 2 and depth < 4:
        return ["dict", [[rng.choice(('"a"', "{}", "[1, {}]", "N")), tree(rng, depth + 1)]]]
    if kind == 3:
        return ["elements", ["rows", at, rng.choice((True, False, 1))]]
    if kind == 4:
        return [rng.choice(("size", "constant")), rng.choice((*SIZES, "Q", "1.5", "[N, f32[N]]"))]
    if kind == 5:
        return ["number", at]
    if kind == 6:
        return rng.choice(([], {}, "out", 5, None, ["out"], ["out", 0], [["out"], 0, []], True))
    return [rng.choice(("out", "same", "same")), at, recipe(rng) if rng.random() < 0.7 else []]


def change_manifest(rng: random.Random, f: File) -> None:
    kind = rng.randrange(8)
    if kind < 4:
        f.result = tree(rng)
    elif kind == 4:
        f.stores = [[rng.choice((0, 1, -1, "0", 1 << 65)), tree(rng)]]
    elif kind == 5:
        junk = (None, [], "dy2st", -1, float("nan"), 1e999, 10**40)
        f.head[rng.choice(("format", "version"))] = rng.choice(junk)
    elif kind == 6:
        for _ in range(rng.choice((3, 500, 100_000))):
            f.result = ["list", [f.result]] if rng.random() < 0.9 else f.result
            if kind == 6 and len(f.head) > 2:
                break
        f.result = f.result if rng.random() < 0.5 else ["tuple", [f.result] * 3]
    else:
        f.result, f.stores = f.stores, f.result


def change_weights(rng: random.Random, f: File) -> None:
    key = rng.choice(sorted(f.weights) or ["0"])
    dtype = rng.choice((np.float32, np.int64, np.bool_, np.float16, np.uint16))
    shape = tuple(rng.choice((0, 1, 2, 3)) for _ in range(rng.randrange(3)))
    f.weights[key] = np.full(shape, rng.choice((0, 1, 200)), dtype)


def change_input(rng: random.Random, f: File) -> None:
    """An input of another kind; a weight may be there or not."""
    kinds = ("arg", "param", "buffer", "const", "rng", "other")
    f.text = _replace(
        f.text, _token(rng, f.text, rf"(?<=\] )(?:{'|'.join(kinds[:5])})\b"), rng.choice(kinds)
    )
    if rng.random() < 0.7:
        try:
            f.weights = file_of(parse(f.text)).weights
        except (Dy2stError, TypeError, ValueError):
            f.weights["0"] = np.ones((2,), np.float32)


def change_whole(rng: random.Random, data: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 20))):
        at = rng.randrange(max(1, len(out)))
        what = rng.randrange(5)
        if what == 0:
            del out[at:]
        elif what == 1:
            del out[at : at + rng.randrange(1, 50)]
        elif what == 2:
            out[at:at] = out[at : at + rng.randrange(1, 50)]
        elif what == 3:
            out[at : at + 4] = rng.choice((0, 1, 0xFFFFFFFF, 0x7FFFFFFF)).to_bytes(4, "little")
        elif out:
            out[at % len(out)] ^= rng.randrange(1, 256)
    return bytes(out)


# ---------------------------------------------------------------- programs that are made up
_OPS = sorted(n for n, row in OPS.items() if row.examples)
#: ops that address memory by sizes or by data
_RISKY = (
    "reshape", "expand", "add", "where", "matmul", "strided", "set_strided", "slice", "set_slice",
    "index", "set_index", "dynamic_index", "set_dynamic_index", "dynamic_slice", "gather",
    "set_dynamic_slice", "gather_nd", "scatter_nd", "embedding", "concat", "stack", "split",
    "unfold", "argmax", "transpose", "cumsum", "sum", "conv", "max_pool", "iota", "full", "cast",
)  # fmt: skip


def _dim(rng: random.Random) -> Any:
    kind = rng.random()
    if kind < 0.45:
        return Size.named(rng.choice(NAMES))
    if kind < 0.55:
        size = Size.named(rng.choice(NAMES)) * rng.choice((1, 1, 2, -1, Size.named("N")))
        return size + rng.choice((0, 0, 1, -1, 5))
    return int(_number(rng)) if kind < 0.58 else rng.choice((0, 1, 1, 2, 3, 4, 5, 8))


def _type(rng: random.Random) -> Type:
    dtype = rng.choice((F32, F32, F32, F64, I64, I64, I32, BOOL, rng.choice(list(DTYPES.values()))))
    dims = tuple(_dim(rng) for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3, 4))))
    return Type(dtype, tuple(max(0, d) if isinstance(d, int) else d for d in dims))


def _attribute(rng: random.Random, op: str, name: str, old: Any, types: list[Type]) -> Any:
    """A value of the kind that the op takes, most of the time."""
    if rng.random() < 0.3 and not isinstance(old, type):
        return old
    kind = kind_of(op, name)
    dims = [d for t in types for d in t.shape] or [1]
    small, dim = rng.choice((-2, -1, 0, 1, 2, 3, 8)), rng.choice((rng.choice(dims), _dim(rng)))
    like = rng.choice(types).shape if types else ()
    many = tuple(rng.choice((d, d, _dim(rng))) for d in like)
    free = tuple(rng.choice((dim, small, _dim(rng))) for _ in range(rng.choice((0, 1, 2, 3))))
    candidates: list[Any] = [
        small, small, dim, rng.random() < 0.5, rng.uniform(-3, 3), float("nan"), None, many, free,
        tuple(rng.sample(range(len(like)), len(like))), (small, rng.choice((1, 2, 3))),
        ((small, _dim(rng)), (_dim(rng), small)), int(_number(rng)),
        rng.choice((F32, F64, I64, I32, BOOL)), rng.choice(("assign", "add", "ValueError", "x")),
    ]  # fmt: skip
    return rng.choice([c for c in candidates if kind(c)] or [old])


def _operands(rng: random.Random, row: OpDef, known: list[Value]) -> tuple[Value, ...]:
    """Of the element types of an example, where there are such values."""
    e = rng.choice(row.examples)
    types = [parse_type(t) for t in e.types]
    types = types[:1] * rng.randrange(1, 4) if row.variadic and not types[1:] else types
    out = []
    for t in types:
        fits = [v for v in known if v.type.dtype.kind == t.dtype.kind]
        close = [v for v in fits if v.type.ndim == t.ndim] if rng.random() < 0.8 else []
        out.append(rng.choice(close or fits or known))
    return tuple(out)


def grown(rng: random.Random) -> Program:
    """A program of ops, operands and attributes at random, with the types that the rows give."""
    types = [_type(rng) for _ in range(rng.randrange(1, 5))]
    types += [Type(rng.choice((F32, F32, I64)), (Size.named(n),)) for n in NAMES]
    types += [Type(I64), Type(F32, (Size.named("N"), Size.named("M")))]
    inputs = [Input(Value(t), "arg", f"x{k}") for k, t in enumerate(types)]
    known, ops, tries = [i.value for i in inputs], [], 0
    while len(ops) < rng.choice((1, 2, 4)) and tries < 300:
        tries += 1
        row = OPS[rng.choice(_RISKY if rng.random() < 0.7 else _OPS)]
        operands = _operands(rng, row, known)
        shapes = [v.type for v in operands]
        try:
            full = complete_attrs(row, dict(rng.choice(row.examples).attrs))
            attrs = {k: _attribute(rng, row.name, k, v, shapes) for k, v in full.items()}
            with collecting():
                made = row.result_types(shapes, attrs)
        except Exception:
            continue
        results = tuple(map(Value, made))
        ops.append(Op(row.name, operands, results, attrs))
        known += [*results, *results]
    used = [v for op in ops for v in op.results] or known
    outputs = tuple(dict.fromkeys(rng.sample(used, min(2, len(used)))))
    read = {v for op in ops for v in op.operands} | set(outputs)
    kept = [i for i in inputs if i.value in read or rng.random() < 0.1]
    named = {str(d) for i in kept for d in i.value.type.shape}
    kept += [i for i in inputs if i not in kept and set(map(str, i.value.type.shape)) - named]
    writes = [(i.value, v) for i in kept for v in outputs if i.value.type == v.type][:1]
    return Program(
        "p", tuple(kept), tuple(ops), outputs, tuple(writes if rng.random() < 0.5 else ())
    )


def images(rng: random.Random) -> Program:
    """Windows over images: a convolution or pooling with attributes at random."""
    while True:
        n, c, groups = rng.choice((Size.named("N"), 0, 1, 2)), rng.choice((1, 2, 4)), 1
        pixels = [rng.choice((0, 1, 2, 5, 9, 17)) for _ in range(2)]
        attrs: dict[str, Any] = {
            "stride": tuple(rng.choice((1, 1, 2, 3, 7)) for _ in range(2)),
            "padding": tuple(
                tuple(rng.choice((0, 0, 1, 2, 9)) for _ in range(2)) for _ in range(2)
            ),
        }
        taps = tuple(rng.choice((1, 2, 3, 3, 8)) for _ in range(2))
        types = [Type(rng.choice((F32, F64)), (n, c, *pixels))]
        name = rng.choice(("conv", "conv", "max_pool", "sum_pool"))
        if name == "conv":
            groups = rng.choice((1, 1, 2, c))
            attrs |= {"groups": groups, "dilation": (rng.choice((1, 2, 5)), rng.choice((1, 3)))}
            filters = (rng.choice((0, 1, 2, 4, 33)), max(1, c // groups), *taps)
            types.append(Type(types[0].dtype, filters))
            if rng.random() < 0.2:
                attrs["padding"] = ((rng.choice((-1, -3)), 0), (2, rng.choice((0, -2, 1 << 20))))
        else:
            attrs["taps"] = taps
        inputs = tuple(Input(Value(t), "arg", f"x{k}") for k, t in enumerate(types))
        b = Builder()
        try:
            results = b.emit(name, [i.value for i in inputs], attrs)
        except (ShapeError, ValueError):
            continue
        return Program("p", inputs, tuple(b.ops), results)


# ---------------------------------------------------------------- cases
def case(seed: int) -> bytes:
    """The file of a seed."""
    rng = random.Random(seed)
    kind = rng.random()
    if kind < 0.05:
        return file_of(images(rng)).pack()
    f = file_of(grown(rng)) if kind < 0.4 else file_of(parse(rng.choice(bases())))
    if kind < 0.35:
        return f.pack()
    changes = rng.choice((1, 1, 1, 2, 3))
    for _ in range(changes):
        what = rng.random()
        if what < 0.6:
            f.text = rng.choice(TEXT)(rng, f.text)
            f.text = with_inputs(f.text) if rng.random() < 0.8 else f.text
        elif what < 0.8:
            change_manifest(rng, f)
        elif what < 0.9:
            change_input(rng, f)
        else:
            change_weights(rng, f)
    try:
        data = f.pack()
    except (ValueError, RecursionError):
        data = File(f.text, ["list", []], [], f.weights).pack()
    return change_whole(rng, data) if rng.random() < 0.1 else data


__all__ = ["File", "bases", "case", "file_of", "grown", "images"]
