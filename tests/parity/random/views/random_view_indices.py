"""Indices and views for random programs: their text, and the shape of what they give."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any


@dataclass(frozen=True)
class Part:
    """The text of a part of a tensor, and its shape. `mask`: a selection by truth values; `listed`:
    one by lists; `dense`: its elements surely lie side by side."""

    text: str
    shape: tuple[Any, ...]
    mask: bool = False
    dense: bool = False
    listed: bool = False


def single(w: Any, s: Any, n: Any) -> str:
    """One element of an axis of n."""
    least = 3 if n == "N" else n
    choices = [str(w.random.randrange(least)), str(w.random.randrange(-least, 0))] * 2
    if w.cuts:
        v = w.some(s).name
        choices += [f"({v}.mean() > 0.1).cast('int64')", f"int({v}.sum() > 0.3)"]
        if least < 2:
            choices = ["0", "-1"]
    if s.index is not None:
        t, end = s.index
        choices += [t, t, t] if end == n or n != "N" and end != "N" and end <= n else []
        choices += [f"{t} - 1"] if end == n else []
        choices += [f"{t} % {n}"] if n != "N" else []
    return str(w.pick(*choices))


def span(w: Any, n: Any) -> tuple[str, Any]:
    """A slice of an axis of n, and its length."""
    if n == "N":
        return w.pick((":", "N"), (":2", 2), ("::-1", "N"), ("1:3", 2))
    texts = [":", "1:", ":2", "::2", "::-1", "1:3", ":-1", "-2:", "1::2", "n - n:"]
    found = [(q, len(range(n)[as_slice(q)])) for q in texts]
    return w.pick(*[q for q in found if q[1]])


def as_slice(text: str) -> slice:
    n = 1
    return slice(*(eval(q, {"n": n}) if q else None for q in text.split(":")))


def slots(w: Any, s: Any, v: Any) -> Part:
    """What basic indexing selects for a write; eager refuses to assign to `x[0:1, None] `."""
    return basic(w, s, v, new_axes=False)


def basic(w: Any, s: Any, v: Any, new_axes: bool = True) -> Part:
    """A chain of integers, slices, None and `...`."""
    items: list[str] = []
    shape: list[Any] = []
    used = w.random.randint(1, len(v.shape))
    front = w.chance(0.2) and used < len(v.shape)
    axes = v.shape[len(v.shape) - used :] if front else v.shape[:used]
    if front:
        items.append("...")
        shape += v.shape[: len(v.shape) - used]
    for n in axes:
        kind = w.pick("one", "span", "span", "none" if new_axes and len(v.shape) < 3 else "span")
        if kind == "none":
            items.append("None")
            shape.append(1)
        if kind == "one":
            items.append(single(w, s, n))
            continue
        text, length = span(w, n)
        items.append(text)
        shape.append(length)
    shape += [] if front else v.shape[used:]
    side = len(items) == 1 and not front and not items[0].startswith(("None", ":-", "::", "1::"))
    return Part(f"{v.name}[{', '.join(items)}]", tuple(shape), dense=v.dense and side)


def advanced(w: Any, s: Any, v: Any) -> Part:
    """A list, a tensor of indices, or a mask."""
    return replace(by_list(w, v), listed=True)


def by_list(w: Any, v: Any) -> Part:
    """Of a tensor that is not contiguous, eager reads `v[:, list]` in a wrong shape."""
    n, rest = v.shape[0], v.shape[1:]
    most = 3 if n == "N" else n
    picks = several(w, most)
    kind = w.pick("list", "tensor", "mask", "second" if rest else "list")
    if kind == "mask":
        return Part(f"{v.name}[{v.name} > {w.number()}]", (), True)
    if kind == "list":
        return Part(f"{v.name}[{picks}]", (len(picks), *rest))
    if kind == "tensor":
        return Part(f"{v.name}[paddle.to_tensor({picks})]", (len(picks), *rest))
    m = 3 if rest[0] == "N" else rest[0]
    other = several(w, m)
    forms = [Part(f"{v.name}[:, {other}]", (n, len(other), *rest[1:]))] if v.dense else []
    if len(picks) == len(other):
        forms.append(Part(f"{v.name}[{picks}, {other}]", (len(picks), *rest[1:])))
    return w.pick(*forms, *([] if forms else [Part(f"{v.name}[{picks}]", (len(picks), *rest))]))


def several(w: Any, n: int) -> list[int]:
    """Two places of an axis, or one; apart where gradients count: eager's count double there."""
    if w.cuts:
        return [w.random.randrange(n) for _ in range(2)]
    return w.random.sample(range(n), min(n, 2))


def any_view(w: Any, s: Any, v: Any) -> Part:
    """Something that shares memory with `v`, or looks as if it did."""
    if w.chance(0.5):
        return basic(w, s, v)
    forms = [
        unsqueezed, transposed, flattened, folded, squeezed, whole, unbound, narrowed, diagonal,
        unflattened, between, windows,
    ]  # fmt: skip
    return w.pick(*forms)(w, v)


def unsqueezed(w: Any, v: Any) -> Part:
    if len(v.shape) > 3:
        return flattened(w, v)
    at = w.random.randint(0, len(v.shape))
    shape = (*v.shape[:at], 1, *v.shape[at:])
    return Part(w.pick(f"{v.name}.unsqueeze({at})", f"paddle.unsqueeze({v.name}, [{at}])"), shape)


def transposed(w: Any, v: Any) -> Part:
    perm = list(range(len(v.shape)))
    w.random.shuffle(perm)
    shape = tuple(v.shape[k] for k in perm)
    texts = [(f"{v.name}.transpose({perm})", shape)]
    texts.append((f"{v.name}.T", v.shape[::-1]))
    if len(v.shape) > 1:
        swapped = (v.shape[1], v.shape[0], *v.shape[2:])
        texts += [(f"{v.name}.swapaxes(0, 1)", swapped), (f"{v.name}.moveaxis(1, 0)", swapped)]
    return Part(*w.pick(*texts))


def flattened(w: Any, v: Any) -> Part:
    if "N" in v.shape:
        return Part(f"{v.name}[:]", v.shape)
    n = prod(v.shape)
    forms = [f"{v.name}.reshape([-1])", f"{v.name}.flatten()", f"paddle.reshape({v.name}, [{n}])"]
    return Part(w.pick(*forms), (n,))


def folded(w: Any, v: Any) -> Part:
    """Another shape with as many elements."""
    if "N" in v.shape:
        return transposed(w, v)
    n = prod(v.shape)
    shape = w.pick(*[(a, n // a) for a in (1, 2, 3, 4) if n % a == 0])
    texts = [f"{v.name}.reshape({list(shape)})", f"{v.name}.reshape([{shape[0]}, -1])"]
    return Part(w.pick(*texts), shape)


def squeezed(w: Any, v: Any) -> Part:
    at = [k for k, n in enumerate(v.shape) if n == 1]
    if not at:
        return Part(f"{v.name}.squeeze(0)", v.shape)
    k = w.pick(*at)
    return Part(f"{v.name}.squeeze({k})", (*v.shape[:k], *v.shape[k + 1 :]))


def whole(w: Any, v: Any) -> Part:
    forms = [f"{v.name}[:]", f"{v.name}[...]", f"{v.name}[:]"]
    last = f"{v.name}.detach()" if w.cuts else f"{v.name}[...]"
    return Part(w.pick(*forms, last), v.shape, dense=v.dense)


def unbound(w: Any, v: Any) -> Part:
    if v.shape[0] == "N":
        return whole(w, v)
    k = w.random.randrange(v.shape[0])
    return Part(f"paddle.unbind({v.name}, 0)[{k}]", v.shape[1:])


def narrowed(w: Any, v: Any) -> Part:
    """Through functions instead of brackets; `split` copies. Eager's `narrow` of a view counts from
    the beginning of the memory, which is anywhere where data has chosen the view."""
    n = v.shape[0]
    if n == "N" or n < 2 or v.root in w.bound:
        return whole(w, v)
    forms = [
        (f"paddle.slice({v.name}, [0], [0], [2])", 2),
        (f"paddle.strided_slice({v.name}, [0], [0], [{n}], [2])", -(-n // 2)),
        (f"paddle.narrow({v.name}, 0, 1, {n - 1})", n - 1),
        (f"paddle.split({v.name}, [1, {n - 1}], 0)[0]", 1),
    ]
    text, length = w.pick(*forms)
    return Part(text, (length, *v.shape[1:]))


def diagonal(w: Any, v: Any) -> Part:
    if len(v.shape) < 2 or "N" in v.shape[:2]:
        return transposed(w, v)
    text = w.pick(f"{v.name}.diagonal()", f"paddle.diagonal({v.name}, 0, 0, 1)")
    return Part(text, (*v.shape[2:], min(v.shape[:2])))


def windows(w: Any, v: Any) -> Part:
    """Windows of the first axis that do not overlap."""
    n = v.shape[0]
    if n == "N" or n < 1 or len(v.shape) > 3:
        return whole(w, v)
    size = w.random.randint(1, min(n, 2))
    step = size + w.random.randint(0, 1)
    return Part(f"{v.name}.unfold(0, {size}, {step})", ((n - size) // step + 1, *v.shape[1:], size))


def unflattened(w: Any, v: Any) -> Part:
    """An axis becomes two."""
    n = v.shape[0]
    if "N" in v.shape or len(v.shape) > 3:
        return whole(w, v)
    shape = (1, n) if n % 2 else w.pick((2, n // 2), (n, 1))
    text = f"{v.name}.unflatten(0, {list(shape)})"
    if v.dense and w.chance(0.5):
        text = f"{v.name}.view({[*shape, *v.shape[1:]]})"
    return Part(text, (*shape, *v.shape[1:]))


def between(w: Any, v: Any) -> Part:
    """A slice whose bounds are tensors."""
    if v.shape[0] != "N" and v.shape[0] < 2:
        return whole(w, v)
    bounds = "paddle.to_tensor(0) : paddle.to_tensor(2)"
    return Part(f"{v.name}[{bounds}]", (2, *v.shape[1:]))
