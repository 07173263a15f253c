"""Comparing translated functions with eager Paddle, call by call.

`observe` makes one call and notes what a caller can see of it; `equal` compares what an eager and a
translated call did: results, arguments and state, which tensors are one object or share memory,
versions, the generator, what was printed. `parity` runs both for several calls in a row, `trains`
several steps of training, `agree` the gradients of a function. Tables of tests (programs, in-place
calls, random programs) bring functions and arguments of their own.
"""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import paddle

import dy2st
from executor.cpu.backend import Cpu
from ir.uses import walk

BOUNDS = {"float64": 1e-9, "float32": 1e-4}


# ---------------------------------------------------------------- values
def leaves(x: Any) -> list[Any]:
    """Tensors and Python values of a nested result, in order."""
    if isinstance(x, dict):
        return [q for k in sorted(x) for q in leaves(x[k])]
    if isinstance(x, (list, tuple)):
        return [q for part in x for q in leaves(part)]
    return [x]


def tensors(x: Any) -> list[Any]:
    return [q for q in leaves(x) if isinstance(q, paddle.Tensor)]


def near(have: np.ndarray, want: np.ndarray, rtol: float, atol: float, what: str = "") -> None:
    """`assert_allclose` takes a hundred times as long as to see that two small arrays are equal."""
    if np.array_equal(have, want):
        return
    if have.shape != want.shape or not np.allclose(have, want, rtol, atol, equal_nan=True):
        np.testing.assert_allclose(have, want, rtol=rtol, atol=atol, err_msg=what)


def same(have: Any, want: Any, rtol: float = 2e-6, atol: float = 2e-6, what: str = "") -> None:
    """Equal structure, dtypes and shapes; values within the bounds, integers exactly."""
    assert type(have) is type(want) or isinstance(want, paddle.Tensor), (what, have, want)
    if isinstance(want, (list, tuple)):
        assert len(have) == len(want), what
        for i, (a, b) in enumerate(zip(have, want)):
            same(a, b, rtol, atol, f"{what}[{i}]")
        return
    if isinstance(want, dict):
        assert list(have) == list(want), what
        for k in want:
            same(have[k], want[k], rtol, atol, f"{what}[{k!r}]")
        return
    if isinstance(want, np.ndarray):
        assert have.dtype == want.dtype, (what, have.dtype, want.dtype)
        np.testing.assert_array_equal(have, want, err_msg=what)
        return
    if not isinstance(want, paddle.Tensor):
        assert have == want or (have != have and want != want), (what, have, want)
        return
    assert have.dtype == want.dtype, (what, have.dtype, want.dtype)
    assert list(have.shape) == list(want.shape), (what, have.shape, want.shape)
    assert have.stop_gradient == want.stop_gradient, (what, "stop_gradient")
    a, b = have.numpy(), want.numpy()
    if a.dtype.kind == "f":
        near(a, b, rtol, atol, what)
    else:
        np.testing.assert_array_equal(a, b, err_msg=what)


def versions(tensors: Sequence[Any]) -> list[int]:
    return [q.inplace_version for q in tensors]


def moved(tensors: Sequence[Any], before: Sequence[int]) -> list[bool]:
    """Whose version counter a call has moved: eager moves it at every write, a program once."""
    return [q.inplace_version > version for q, version in zip(tensors, before, strict=True)]


def close(have: Any, want: Any, bound: float, what: str) -> None:
    """Where eager has no gradient at all, because no iteration read the tensor, zeros will do."""
    if want is None:
        assert have is None or not have.any(), f"{what}: {have} instead of None"
        return
    assert have is not None, f"{what}: None instead of {want}"
    near(np.asarray(have), np.asarray(want), bound, bound, what)


# ---------------------------------------------------------------- memory
def identities(values: Any) -> list[int | None]:
    """For each tensor among the leaves the place where the same object appears first."""
    first: dict[int, int] = {}
    places = enumerate(leaves(values))
    return [first.setdefault(id(q), k) if isinstance(q, paddle.Tensor) else None for k, q in places]


def relations(values: Sequence[Any]) -> list[str]:
    """For every pair of tensors whether it is one object, shares memory, or neither."""
    return [
        "one object" if a is b else "shared memory" if shares(a, b) else ""
        for a, b in itertools.combinations(values, 2)
    ]


def shares(a: Any, b: Any) -> bool:
    (low, high), (least, most) = extent(a), extent(b)
    return low < most and least < high


def extent(t: Any) -> tuple[int, int]:
    """The addresses from the first to behind the last byte of a tensor."""
    if 0 in t.shape:
        return 0, 0
    steps = [(n - 1) * s for n, s in zip(t.shape, t.strides)]
    size = t.element_size()
    below = sum(q for q in steps if q < 0) * size
    return t.data_ptr() + below, t.data_ptr() + sum(q for q in steps if q > 0) * size + size


# ---------------------------------------------------------------- one call
@dataclass
class Observed:
    """What one call did. `held` is what the caller had afterwards, `before` the tensors that it
    had at first, `moved` by how much their versions have moved."""

    result: Any
    error: Exception | None
    held: Any
    before: list[Any]
    moved: list[int]
    generator: str
    printed: str


def random_state() -> str:
    """The generator's words and position, without the address of its engine."""
    fields = str(paddle.base.core.default_cpu_generator().get_state()).split()
    return " ".join(fields[:3] + fields[4:])


def outcome(f: Callable[..., Any], args: Sequence[Any]) -> Any:
    """The result, or the exception. Python 3.10 has no notes: there the text ends with the line of
    an error that data raises, which goes."""
    try:
        return f(*args)
    except Exception as e:
        if sys.version_info < (3, 11) and e.args and isinstance(e.args[0], str):
            e.args = (re.sub(r" ?\(\w+\.py:\d+\)\Z", "", e.args[0]), *e.args[1:])
        return e


def buffers(layer: Any) -> dict[str, Any]:
    """Buffers and parameters: running statistics are parameters in Paddle. A function has none."""
    if not isinstance(layer, paddle.nn.Layer):
        return {}
    return {**dict(layer.named_buffers()), **dict(layer.named_parameters())}


def observe(
    f: Callable[..., Any], args: Sequence[Any], held: Any = list, seed: int = 0
) -> Observed:
    """Call `f`. `held()` gives what the caller has besides the arguments."""
    before = list({id(q): q for q in tensors([list(args), held()])}.values())
    versions = [q.inplace_version for q in before]
    paddle.seed(seed)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        result = outcome(f, args)
    error = result if isinstance(result, Exception) else None
    moved = [q.inplace_version - version for q, version in zip(before, versions)]
    after = [list(args), held()]
    return Observed(result, error, after, before, moved, random_state(), printed.getvalue())


def both_raise(have: Observed, want: Observed, what: str = "") -> bool:
    """Whether eager and the translated call raised; an error if only one of them did."""
    if want.error is not None:
        assert have.error is not None, f"{what}: eager raises {want.error!r}, dy2st does not"
        return True
    if have.error is not None:
        raise have.error
    return False


def equal(
    have: Observed,
    want: Observed,
    what: str = "",
    objects: bool = False,
    memory: bool = False,
    versions: bool = False,
    **bounds: float,
) -> None:
    """The calls did the same. `objects`: also which tensors of results and arguments are one;
    `memory`: and which share memory, with those from before the call; `versions`: and that every
    version counter moved that eager moved."""
    same(have.result, want.result, what=f"{what}: result", **bounds)
    same(have.held, want.held, what=f"{what}: arguments and state", **bounds)
    if objects:
        one, two = (identities([q.result, q.held]) for q in (have, want))
        assert one == two, f"{what}: objects that are the same"
    if memory:
        one, two = (relations(tensors([q.result, q.before, q.held])) for q in (have, want))
        assert one == two, f"{what}: aliases"
    if versions:
        message = f"{what}: versions {have.moved}, in eager {want.moved}"
        assert all(a > 0 for a, b in zip(have.moved, want.moved, strict=True) if b > 0), message
    assert have.generator == want.generator, f"{what}: the generator is in another state"
    assert have.printed == want.printed, f"{what}: printed {have.printed!r}, not {want.printed!r}"


def parity(
    layer: Any,
    make_args: Callable[[], Sequence[Any]],
    input_spec: Any = None,
    calls: int = 3,
    device: str = "cpu",
    **bounds: float,
) -> Any:
    """`layer` translated gives what `layer` gives, for several calls in a row.

    Returns the translated layer. Where eager raises, the translated call must raise too.
    """
    eager = copy.deepcopy(layer)
    static = dy2st.to_static(copy.deepcopy(layer), input_spec, device=device)
    for k in range(calls):
        one = make_args()
        two = [q.clone() if isinstance(q, paddle.Tensor) else copy.deepcopy(q) for q in one]
        want = observe(eager, one, lambda: buffers(eager), 7 + k)
        have = observe(static, two, lambda: buffers(static), 7 + k)
        if not both_raise(have, want, f"call {k}"):
            equal(have, want, f"call {k}", **bounds)
    return static


# ---------------------------------------------------------------- gradients
@contextlib.contextmanager
def default_dtype(dtype: str) -> Iterator[None]:
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        yield
    finally:
        paddle.set_default_dtype(before)


def trained(results: Any) -> list[int]:
    """The places of results that require a gradient."""
    found = enumerate(leaves(results))
    return [k for k, q in found if isinstance(q, paddle.Tensor) and not q.stop_gradient]


def weighted(results: Any, places: Sequence[int] | None = None) -> Any:
    """A number that depends on every result that requires a gradient, on each element its own way.

    `places`: of these results instead.
    """
    total, chosen = None, set(trained(results) if places is None else places)
    for k, q in enumerate(leaves(results)):
        if k not in chosen:
            continue
        weights = np.cos(np.arange(q.size) * 0.7 + k).reshape(q.shape)
        term = (q * paddle.to_tensor(weights, q.dtype)).sum()
        total = term if total is None else total + term
    return total


def gradient_of(q: Any) -> Any:
    return None if q.grad is None else q.grad.numpy()


def step(
    f: Callable[..., Any],
    args: Sequence[Any],
    of: Sequence[Any],
    places: Sequence[int] | None = None,
) -> tuple[Any, list[Any]]:
    """Forward and backward: the results, and the gradients of the tensors `of`.

    `places`: the results that the loss consists of; those that require a gradient by default.
    """
    results = f(*args)
    loss = weighted(results, places)
    if loss is not None:
        loss.backward()
    return results, [gradient_of(q) for q in of]


def detached(x: Any) -> Any:
    """Arguments of the same values, with gradients of their own."""
    if isinstance(x, (list, tuple)):
        return type(x)(detached(q) for q in x)
    if not isinstance(x, paddle.Tensor):
        return copy.deepcopy(x)
    out = x.detach().clone()
    out.stop_gradient = x.stop_gradient
    return out


def trains(
    make: Callable[[], Any],
    make_args: Callable[[], Sequence[Any]],
    dtype: str = "float64",
    steps: int = 3,
    rate: float = 0.05,
    **options: Any,
) -> Any:
    """The Layer that `make` makes, translated: results, all gradients and steps of SGD are eager's.

    Returns the translated layer.
    """
    bound = BOUNDS[dtype]
    with default_dtype(dtype):
        paddle.seed(3)
        layer = make()
        pair = [layer, dy2st.to_static(copy.deepcopy(layer), **options)]
        optimizers = [paddle.optimizer.SGD(rate, parameters=m.parameters()) if m.parameters()
                      else None for m in pair]  # fmt: skip
        for k in range(steps):
            args = make_args()
            found = []
            for model, optimizer in zip(pair, optimizers):
                paddle.seed(k)
                mine = detached(args)
                found.append(step(model, mine, [*tensors(list(mine)), *model.parameters()]))
                if optimizer is not None:
                    optimizer.step()
                    optimizer.clear_grad()
            (want, wanted), (have, had) = found
            same(have, want, rtol=bound, atol=bound, what=f"step {k}: result")
            names = [*(f"argument {k}" for k in range(len(wanted) - len(layer.parameters()))),
                     *dict(layer.named_parameters())]  # fmt: skip
            for name, a, b in zip(names, had, wanted, strict=True):
                close(a, b, bound, f"step {k}: gradient of {name}")
            state = zip(pair[1].state_dict().items(), pair[0].state_dict().values())
            for (name, a), b in state:
                close(a.numpy(), b.numpy(), bound, f"step {k}: {name}")
    return pair[1]


@contextlib.contextmanager
def without_code() -> Iterator[None]:
    """No code is made for what is translated inside, to look at programs and reports: it must not
    be called."""

    class Nothing:
        report = ""

        def run(self, table: int) -> int:
            raise AssertionError("a program without code is called")

    with mock.patch.object(Cpu, "build", lambda *_: Nothing()):
        yield


def sizes_of_programs(static: Any, args: Sequence[Any]) -> list[int]:
    """The numbers of ops: of the program and, where it has a gradient, of both of its training."""
    for x in tensors(args):
        x.stop_gradient = x.dtype not in (paddle.float32, paddle.float64)
    with without_code():
        entry = static.forward.entry(*args)
    gradient = getattr(entry.training, "gradient", None)
    programs = [entry.program] if gradient is None else [gradient.forward, gradient.backward]
    return [sum(1 for _ in walk(p.ops)) for p in programs]


def few_traces(report: Any) -> None:
    """At most two traces of each loop were thrown away for want of a fact, four of one whose parts
    run apart, and none was given up because it takes more."""
    loops = [q for q in report.retraced if q.startswith("the loop at ")]
    apart = ("run apart", "a loop of their own")
    often = [q for q in loops if thrown(q) > (4 if any(text in q for text in apart) else 2)]
    assert not often, often
    given_up = [str(q) for q in report.loops if "each trace of its body" in q.reason]
    assert not given_up, given_up


def thrown(line: str) -> int:
    """How many traces of a loop were thrown away for want of a fact, as the report says."""
    own = line.partition(" because the code around it")[0]
    found = re.search(r" (?:(once)|(twice)|(\d+) times), because", own)
    return 0 if found is None else 1 if found[1] else 2 if found[2] else int(found[3])


def agree(f: Callable[..., Any], *args: Any, dtype: str = "float64", calls: int = 2) -> Any:
    """A function translated: results and the gradients of its arguments as in eager."""
    static, eager = dy2st.to_static(f), getattr(f, "__dy2st_original__", f)
    for call in range(calls):
        one, two = detached(args), detached(args)
        want, wanted = step(eager, one, tensors(one))
        have, had = step(static, two, tensors(two))
        same(have, want, rtol=BOUNDS[dtype], atol=BOUNDS[dtype], what=f"call {call}")
        for k, (a, b) in enumerate(zip(had, wanted, strict=True)):
            close(a, b, BOUNDS[dtype], f"call {call}: gradient of argument {k}")
    return static


def data(*shape: int, seed: int = 0, dtype: str = "float64", trained: bool = True) -> Any:
    array = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    return paddle.to_tensor(array, stop_gradient=not trained)


def with_gradient(f: Callable[[Any], Any], x: Any) -> tuple[list[Any], Any]:
    """The results for `x`, and its gradient, if results have one."""
    x = x.clone().detach()
    x.stop_gradient = False
    out = f(x)
    every = out if isinstance(out, tuple) else (out,)
    floats = [q for q in every if isinstance(q, paddle.Tensor) and q.dtype == x.dtype]
    if found := [q for q in floats if not q.stop_gradient]:
        sum((q * q).sum() + q.sum() for q in found).backward()
    return [q.detach() if isinstance(q, paddle.Tensor) else q for q in every], x.grad


def of_one_program(f: Callable[[Any], Any], *args: Any) -> Any:
    """Results and gradients for several arguments are those of eager, all of one program; returns
    the translated function."""
    static = dy2st.to_static(f)
    for k, x in enumerate(args):
        same(with_gradient(static, x), with_gradient(f, x), 1e-4, 1e-4, f"argument {k}")
    assert len(static.__dy2st_cache__.entries) == 1
    return static
