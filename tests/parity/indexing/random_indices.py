"""Random indices into random shapes: what is read, what is written, and the gradients of both.

`compare(seed)` makes one function with one index, and compares it with eager Paddle; values of
assigned tensors and index tensors are arguments, everything else is in the text. Eager forgets
strides that integers and slices leave for the index tensors beside them: where it differs from
NumPy, dy2st is compared with NumPy. Left out is what eager does wrong otherwise: None in front of
an index tensor, steps beside one, indices out of range (it reads and writes other memory),
gradients of values assigned through None, to one element twice or to none, and of
`x[mask] += v` and `x[0, None] += v`. An argument that no result depends on has no gradient here,
and zeros in eager. New axes of tensors without elements are left out: written, they are refused.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import paddle

import dy2st
from tests import check

TEXT = """
def read(x{names}):
    return x[{index}]


def write(x, v{names}):
    y = x * 1
    z = y
    y[{index}] = {value}
    return z, y.sum()


def add(x, v{names}):
    y = x * 1
    y[{index}] += {value}
    return y


def store(x, v{names}):
    x[{index}] = {value}
"""


@dataclass
class Made:
    """An index: its items as text, and the tensors that these name."""

    shape: tuple[int, ...]
    items: list[str]
    tensors: dict[str, np.ndarray] = field(default_factory=dict)
    picked: bool = False
    masked: bool = False

    def name(self, array: np.ndarray) -> str:
        name = f"i{len(self.tensors)}"
        self.tensors[name] = array
        return name


def made(rng: np.random.Generator) -> Made:
    shape = tuple(int(n) for n in rng.integers(1, 5, rng.integers(1, 5)))
    if rng.random() < 0.05:
        shape = (*shape[:-1], 0)
    m = Made(shape, [])
    common = tuple(int(n) for n in rng.integers(1, 4, rng.integers(1, 3)))
    tensors = rng.random() < 0.7
    used = int(rng.integers(0, len(shape) + 1))
    axis = 0
    while axis < used:
        axis += item(rng, m, axis, common, tensors)
    if axis < len(shape) and rng.random() < 0.3:
        m.items.insert(int(rng.integers(0, len(m.items) + 1)), "...")
        moved(m, rng)
    if not m.picked and 0 not in shape and rng.random() < 0.3:
        m.items.insert(int(rng.integers(0, len(m.items) + 1)), "None")
    if not m.items:
        m.items.append(":")
    return m


def moved(m: Made, rng: np.random.Generator) -> None:
    """Items behind `...` index other axes: all of them become slices that fit any."""
    at = m.items.index("...")
    m.items[at + 1 :] = [":" for _ in m.items[at + 1 :]]
    kept = " ".join(m.items)
    m.tensors = {n: a for n, a in m.tensors.items() if n in kept}
    m.picked = any(q[0] in "i[" for q in m.items)


def item(
    rng: np.random.Generator, m: Made, axis: int, common: tuple[int, ...], tensors: bool
) -> int:
    """Append one item; how many axes it takes."""
    n = m.shape[axis]
    kinds = ["slice", "slice", "int", "scalar"] + (["tensor", "tensor", "list", "mask"] * tensors)
    kind = str(rng.choice(kinds))
    if m.masked and kind in ("tensor", "list"):
        kind = "slice"
    if kind == "mask" and m.picked:
        kind = "slice"
    if kind == "slice" or n == 0:
        m.items.append(cut(rng, n, stepped=not tensors))
    elif kind == "int":
        m.items.append(str(int(rng.integers(-n, n))))
    elif kind == "scalar":
        m.items.append(m.name(np.asarray(rng.integers(-n, n))))
    else:
        m.picked = True
        m.items.append(picking(rng, m, kind, n, common))
    return 1


def picking(rng: np.random.Generator, m: Made, kind: str, n: int, common: tuple[int, ...]) -> str:
    if kind == "mask":
        m.masked = True
        return str([bool(q) for q in rng.random(n) < 0.6])
    shape = tuple(
        1 if rng.random() < 0.2 else d for d in common[int(rng.integers(0, len(common))) :]
    )
    array = rng.integers(-n, n, shape)
    if kind == "list":
        return str(array.tolist())
    return m.name(array.astype(rng.choice(["int64", "int32"])))


def cut(rng: np.random.Generator, n: int, stepped: bool) -> str:
    ends = ["" if rng.random() < 0.4 else str(int(rng.integers(-n - 1, n + 2))) for _ in "ab"]
    steps = ["", "", "2", "3", "-1", "-2"] if stepped else [""]
    return f"{ends[0]}:{ends[1]}:{rng.choice(steps)}"


# ---------------------------------------------------------------- values
def value_for(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[str, np.ndarray]:
    """The text of a value, and the tensor `v` that it may name, for elements of `shape`."""
    kind = str(rng.choice(["number", "whole", "part", "0-d", "double", "integer"]))
    own = shape
    if kind in ("part", "double", "integer"):
        own = tuple(1 if rng.random() < 0.4 else d for d in shape[int(rng.integers(0, 2)) :])
    if kind in ("0-d", "number"):
        own = ()
    dtype = {"double": "float64", "integer": "int64"}.get(kind, "float32")
    array = (rng.uniform(-4, 4, own)).astype(dtype)
    return ("1.5" if kind == "number" else "v"), array


# ---------------------------------------------------------------- comparing
def functions(m: Made, value: str, seed: int) -> dict[str, Any]:
    names = "".join(f", {n}" for n in m.tensors)
    text = TEXT.format(names=names, index=", ".join(m.items), value=value)
    file = f"<random index {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space: dict[str, Any] = {"paddle": paddle, "__name__": "random_indices"}
    exec(compile(text, file, "exec"), space)
    return space


def source(seed: int) -> str:
    rng = np.random.default_rng(seed)
    m = made(rng)
    return f"x: {list(m.shape)}; x[{', '.join(m.items)}]; {m.tensors}"


def compare(seed: int) -> str:
    """What was compared. Raises AssertionError where dy2st and eager differ."""
    rng = np.random.default_rng(seed)
    m = made(rng)
    x = rng.uniform(-2, 2, m.shape).astype("float32")
    want = reference(m, x)
    text, v = value_for(rng, want.shape)
    if 0 in want.shape:
        text, v = "v", np.zeros(want.shape, "float32")
    f = functions(m, text, seed)
    indices = [paddle.to_tensor(a) for a in m.tensors.values()]
    value = np.float32(1.5) if text != "v" else v.astype("float32")
    seen = [trained(f["read"], x, None, indices, want)]
    asked, some = not m.picked and "None" not in m.items, 0 not in want.shape
    if some:
        seen.append(trained(f["write"], x, v, indices, reference(m, x, value), asked))
    plain = not m.masked and "None" not in m.items
    if some and plain and (text != "v" or v.dtype == np.float32):
        seen.append(trained(f["add"], x, v, indices, reference(m, x, want + value), asked))
    one, static = paddle.to_tensor(x), dy2st.to_static(f["store"])
    for _ in range(2):
        static(one, paddle.to_tensor(v), *indices)
        np.testing.assert_array_equal(one.numpy(), reference(m, x, value), "an argument")
    return "views" if not m.picked else "tensors" if all(seen) else "tensors, eager is wrong"


def reference(m: Made, x: np.ndarray, value: np.ndarray | None = None) -> np.ndarray:
    """What is read, or `x` with `value` written: integers and slices first, as in Paddle."""
    items = [eval(f"np.s_[{q}]", {"np": np, **m.tensors}) for q in m.items]
    whole = x.copy()
    chosen = [isinstance(q, list) or np.ndim(q) > 0 for q in items]
    basic = [slice(None) if c else q for q, c in zip(items, chosen)]
    basic = [int(q) if isinstance(q, np.ndarray) else q for q in basic]
    part = whole[(*basic, ...)] if ... not in basic else whole[tuple(basic)]
    if m.picked:
        kept = [
            q if c else ... if q is ... else slice(None)
            for q, b, c in zip(items, basic, chosen)
            if not isinstance(b, int)
        ]
        key = tuple(kept)
    else:
        key = (...,)
    if value is None:
        return np.asarray(part[key])
    part[key] = value
    return whole


def trained(
    f: Any,
    x: np.ndarray,
    v: np.ndarray | None,
    indices: list[Any],
    right: np.ndarray,
    of_value: bool = False,
) -> bool:
    """Values, and the gradients of x and of the value; False where eager is not `right`."""
    try:
        want, grads = run(f, x, v, indices, of_value)
    except ValueError:  # eager's gradient of a value of lower rank
        want, grads = run(f, x, v, indices, False)
        of_value = False
    have, got = run(dy2st.to_static(f), x, v, indices, of_value)
    np.testing.assert_array_equal(check.leaves(have)[0].numpy(), right)
    if not np.array_equal(check.leaves(want)[0].numpy(), right):
        return False
    check.same(have, want, 1e-6, 1e-4, "values")
    for a, b in zip(got, grads, strict=True):
        if a is not None or (b is not None and b.any()):
            check.same(a, b, 1e-5, 1e-5, "gradients")
    return True


def run(f: Any, x: np.ndarray, v: np.ndarray | None, indices: list[Any], of_value: bool) -> Any:
    args = [paddle.to_tensor(x, stop_gradient=False)]
    if v is not None:
        constant = v.dtype != np.float32 or not of_value
        args.append(paddle.to_tensor(v, stop_gradient=constant))
    out = f(*args, *indices)
    rng = np.random.default_rng(7)
    weights = [rng.uniform(0.5, 2, q.shape).astype("float32") for q in check.leaves(out)]
    sum((q * paddle.to_tensor(w)).sum() for q, w in zip(check.leaves(out), weights)).backward()
    return out, [q.grad for q in args if not q.stop_gradient]
