"""The probe of a foreign call: its result types, aliases and writes are measured on stand-ins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from dy2st.capture.foreign import gradient
from dy2st.capture.foreign.arguments import dims_in, factors_in, rebuild
from dy2st.capture.foreign.refusals import another_type, shape_by_value
from dy2st.capture.foreign.run import function, is_void, run
from dy2st.trace.emitter import grad_enabled
from dy2st.trace.fake_tensor import DTYPE_FROM_PADDLE, DTYPE_TO_PADDLE, Tensor, type_of
from dy2st.trace.memory import extent, meet
from dy2st.trace.signals import Refused, raise_defect
from dy2st.trace.symint import dim_of, is_symint
from dy2st.trace.trace import Trace
from dy2st.trace.user_stack import perform
from ir import Require, Size, Type
from ir.types import Dim, evaluate_dim, floor_divide, product, substitute_dim

#: ops whose result depends on the generator: stand-ins must not advance it
RANDOM = frozenset(
    "dropout dropout_nd uniform gaussian randint randperm bernoulli multinomial poisson rrelu "
    "standard_gamma binomial gumbel_softmax exponential_ truncated_gaussian_random uniform_inplace "
    "uniform_inplace_ gaussian_inplace gaussian_inplace_ dirichlet random_ fused_dropout_add "
    "shuffle_batch top_p_sampling class_center_sample".split()
)


#: ops whose result shape depends on values
BY_VALUE = frozenset("unique unique_consecutive edit_distance nms multiclass_nms3".split())


#: ops that take a shape or bounds
SHAPED = frozenset(
    "full empty reshape expand tile slice strided_slice uniform gaussian randint split".split()
)


#: random ops whose one result has the type of the first operand: known without a stand-in run
SAME_TYPE = frozenset(("dropout", "bernoulli"))


#: kernels that read outside of operands whose sizes do not fit
UNCHECKED = frozenset(("warpctc", "warprnnt"))


#: kernels of images and regions of them that trust the number of regions in each image
REGIONS = frozenset(("roi_align", "roi_pool", "psroi_pool"))


#: the largest number by which a size is divided
LONGEST_STEP = 8
PRIMES = (5, 7, 11, 13, 17, 19, 23, 29)
#: numbers for sizes of the program beside indices of loops
LARGER = (97, 109, 127, 139, 151, 163, 179, 191)


class ProbeInconclusive(ValueError):
    """Stand-ins do not determine the result; eager Paddle has no such error."""


NO_SHAPE = ProbeInconclusive("the shape of the result does not follow from the named sizes")


def in_steps(name: str, base: int, found: Sequence[int]) -> Dim:
    """The quotient that has these values from this size on; raises ProbeInconclusive."""
    for step in range(1, LONGEST_STEP + 1):
        slope = found[step] - found[0]
        for rest in range(step):
            d = floor_divide(
                Size.named(name) * slope + (step * found[0] - base * slope + rest), step
            )
            if all(evaluate_dim(d, {name: base + k}) == n for k, n in enumerate(found)):
                return d
    raise NO_SHAPE


class Probe:
    """Runs the kernel on stand-ins and reads off result types, aliases and writes. `sizes` are all
    that dims of the call consist of: names, and quotients as if they were names."""

    def __init__(
        self, trace: Trace, name: str, literal: Any, types: Sequence[Type], known: Sequence[Any]
    ) -> None:
        self.trace, self.name, self.literal, self.types = trace, name, literal, types
        self.known = known
        numbers = tuple(dim_of(d) for q in known for d in sizes_in(q))
        shapes = tuple(d for t in types for d in t.shape)
        self.sizes = sorted(factors_in((shapes, literal, numbers)))
        self.same = {n: n for n in self.sizes}
        self.definite = False

    def measure(self) -> tuple[list[Type], object, dict[int, int]]:
        """A kernel that fails may ask for a matrix that is positive definite."""
        try:
            return self.measured()
        except Exception as error:
            raise_defect(error)
            if not any(is_square(t) for t in self.types):
                raise
            self.definite = True
            try:
                return self.measured()
            except (ValueError, RuntimeError, IndexError) as again:
                raise_defect(again)
            raise

    def measured(self) -> tuple[list[Type], Any, dict[int, int]]:
        if self.name in BY_VALUE:
            raise shape_by_value(self.trace, "the result of ", self.name)
        if self.name in SAME_TYPE:
            return [self.types[0]], "new", {}
        first, structure, written = self.tied()
        base = self.numbers(self.sizes)
        if self.shaped_by_values(base, first):
            raise shape_by_value(self.trace, "the result of ", self.name)
        if not self.sizes:
            return first, structure, written
        moved = {n: self.once({**base, n: base[n] + 1})[0] for n in self.sizes}
        if any(len(q) != len(first) for q in moved.values()):
            raise ProbeInconclusive("the number of results follows from a named size")
        types = [self.affine(i, t, base, moved) for i, t in enumerate(first)]
        if not self.fit(types, base):
            types = self.stepped(first, base)
            if not self.fit(types, base):
                raise NO_SHAPE
            own = {str(n): Size.named(n) for n in base}
            types = [t.with_shape(substitute_dim(d, own) for d in t.shape) for t in types]
        return types, structure, written

    def fit(self, types: Sequence[Type], base: Mapping[str, int]) -> bool:
        """Whether the results have these types with larger and with small sizes."""
        larger, small = ({n: v + 3 for n, v in base.items()}, dict.fromkeys(base, 2))
        checks = ((larger, not self.are_sizes(larger)), (small, True))
        return all(self.holds(types, check, may_fail) for check, may_fail in checks)

    def stepped(self, first: Sequence[Type], base: Mapping[str, int]) -> list[Type]:
        """Result types of which each dim follows from one size, in steps. Quotients among the sizes
        are names in them, which no other quotient is joined with."""
        if any(n in self.trace.sizes.births for n in base):
            raise NO_SHAPE
        along = {
            n: [self.once({**base, n: v + k})[0] for k in range(2 * LONGEST_STEP + 1)]
            for n, v in base.items()
        }
        out = []
        for i, t in enumerate(first):
            dims: list[Dim] = []
            for axis in range(t.ndim):
                seen = {n: [q[i].shape[axis] for q in types] for n, types in along.items()}
                moving = [n for n, found in seen.items() if len(set(found)) > 1]
                if len(moving) > 1:
                    raise NO_SHAPE
                dims.append(t.shape[axis])
                for n in moving:
                    dims[-1] = in_steps(str(n), base[n], [int(d) for d in seen[n]])  # type: ignore[arg-type]
            out.append(t.with_shape(dims))
        return out

    def tied(self) -> tuple[list[Type], object, dict[int, int]]:
        """The first run. Where the kernel does not take sizes that differ, sizes of the program are
        taken to be equal, which becomes a condition of the program."""
        if self.name in UNCHECKED and self.sizes:
            raise ProbeInconclusive("its sizes have to be numbers in input_spec")
        error: Exception | None = None
        for same in self.ties():
            self.same = same
            sizes = self.numbers(sorted(set(same.values())))
            try:
                found = self.once(sizes)
            except (ValueError, RuntimeError, IndexError) as e:
                raise_defect(e)
                error = error or e
                continue
            self.sizes = list(sizes)
            for n, to in same.items():
                if n != to:
                    where = self.trace.where()
                    pair = Size.named(n), "==", Size.named(to)
                    self.trace.add_require(Require(*pair, self.name, where))
            return found
        assert error is not None
        if self.name in SHAPED and self.vague():
            raise shape_by_value(self.trace, "the result of ", self.name) from None
        raise error

    def numbers(self, names: Sequence[str]) -> dict[str, int]:
        """A number for each size: `n - t` and `t - 3` are sizes, too, also for a number more."""
        births = self.trace.sizes.births
        inner = sorted((n for n in names if n in births), key=births.__getitem__, reverse=True)
        outer = [n for n in names if n not in births]
        if not inner:
            return dict(zip(outer, PRIMES))
        tried = [
            {n: first + k * step for k, n in enumerate(inner)} | dict(zip(outer, LARGER))
            for first, step in ((17, 6), (5, 2), (2, 2), (1, 1), (0, 1))
        ]
        return next((q for q in tried if self.are_sizes(q)), tried[0])

    def are_sizes(self, numbers: Mapping[str, int]) -> bool:
        """Whether nothing that is given has a negative size, with one number more as well."""
        dims = [d for t in self.types for d in t.shape] + list(dims_in(self.literal))
        several = [numbers, *({**numbers, n: v + 1} for n, v in numbers.items())]
        return all(evaluate_dim(d, self.complete(q)) >= 0 for q in several for d in dims)

    def ties(self) -> Iterator[dict[str, str]]:
        """Yield assumptions about equal sizes: none, then pairs of sizes of inputs, then all of
        them."""
        alone = {n: n for n in self.sizes}
        facts = self.trace.sizes
        free = [n for n in self.sizes if n not in facts.loops]
        yield alone
        for a, b in itertools.combinations(free, 2):
            yield {**alone, b: a}
        if len(free) > 2:
            yield {**alone, **dict.fromkeys(free, free[0])}

    def complete(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Return all sizes, given one of each class of equal sizes."""
        return {n: sizes[to] for n, to in self.same.items()}

    def holds(self, types: Sequence[Type], sizes: Mapping[str, int], may_fail: bool) -> bool:
        """Whether the results have these types with other sizes. `may_fail`: the kernel may not
        take them."""
        try:
            found = self.once(sizes)[0]
        except Exception as error:
            raise_defect(error)
            if may_fail:
                return True
            raise
        return [q.shape for q in found] == [t.concrete(sizes) for t in types]

    def vague(self) -> bool:
        """Whether integers that may stand for a shape are not known."""
        return any(q is None and is_list(t) for q, t in zip(self.known, self.types))

    def shaped_by_values(self, sizes: Mapping[str, int], types: Sequence[Type]) -> bool:
        """Whether other integers in small operands give results of other shapes."""
        if not self.vague():
            return False
        try:
            others = self.once(sizes, fill=2)[0]
        except Exception as error:  # the kernel does not take these integers: nothing is learned
            raise_defect(error)
            return False
        return [t.shape for t in others] != [t.shape for t in types]

    def flags(
        self, operands: Sequence[Tensor], written: Sequence[int]
    ) -> tuple[list[bool], list[int]]:
        """Return which results, then which overwritten operands, require a gradient, and the
        operands that backward gives one."""
        trained = [k for k, q in enumerate(operands) if not q.stop_gradient]
        if not trained or not grad_enabled() or self.name in RANDOM or self.name in BY_VALUE:
            return [], trained
        sizes = self.complete(self.numbers(self.sizes))
        tensors = self.stand_ins(sizes)
        leaves, found = gradient.recorded(
            run, self.name, self.literal, tensors, trained, written, sizes
        )
        flags = [not t.stop_gradient for t in found]
        return flags, gradient.reached(leaves, found, trained)

    def affine(self, i: int, t: Type, base: Any, moved: Any) -> Type:
        dims = []
        for axis, d in enumerate(t.shape):
            total: Any = d
            for n in self.sizes:
                slope = moved[n][i].shape[axis] - d
                total = total + (Size.named(n) - base[n]) * slope
            dims.append(total)
        return t.with_shape(dims)

    def stand_ins(self, sizes: Mapping[str, int], fill: int = 1) -> list[Tensor]:
        made = []
        for k, (t, known) in enumerate(zip(self.types, self.known)):
            made.append(stand_in(t, known, sizes, k, fill if is_list(t) else 1))
            if self.definite and known is None and is_square(t):
                made[k] = positive_definite(made[k])
        if self.name in REGIONS and len(made) == 3:
            made[2] = all_in_the_first(made[2], made[1].shape[0])
        return made

    def once(
        self, sizes: Mapping[str, int], fill: int = 1
    ) -> tuple[list[Type], object, dict[int, int]]:
        state = paddle.get_rng_state() if self.name in RANDOM else None
        sizes = self.complete(sizes)
        try:
            with paddle.no_grad():
                stand_ins = self.stand_ins(sizes, fill)
                before = [(q.inplace_version, q.numpy()) for q in stand_ins]
                positional, keywords = self.literal
                values = [rebuild(a, stand_ins, sizes) for a in positional]
                named = {k: rebuild(a, stand_ins, sizes) for k, a in keywords}
                out = perform(function(self.name), *values, **named)
        finally:
            if state is not None:
                paddle.set_rng_state(state)
        self.check_kept(stand_ins, [old for _, old in before])
        written = {
            k: q.inplace_version - version
            for k, (q, (version, old)) in enumerate(zip(stand_ins, before))
            if q.inplace_version != version or not np.array_equal(q.numpy(), old, equal_nan=True)
        }
        types: list[Type] = []
        return types, self.structure(out, stand_ins, types), written

    def check_kept(self, stand_ins: Sequence[Tensor], before: Sequence[np.ndarray]) -> None:
        """A call that writes leaves element types and shapes as they are, or is refused."""
        for q, old, t in zip(stand_ins, before, self.types):
            if type_of(q).dtype.numpy == old.dtype and tuple(q.shape) == old.shape:
                continue
            raise Refused(
                f"{self.name} makes {type_of(q)} of a tensor that is {t}, in place.",
                self.trace.where(),
                reason="Other tensors that share its memory would be read wrongly.",
                remedy="Bind a new tensor: the same call without the `_`, or without `output`.",
            )

    def structure(self, out: Any, stand_ins: Sequence[Tensor], types: list[Type]) -> Any:
        if isinstance(out, (list, tuple)):
            return type(out)(self.structure(q, stand_ins, types) for q in out)
        if out is None:
            return None
        for k, q in enumerate(stand_ins):
            if out is q:
                return k
        if is_void(out):
            return None
        if out.dtype not in DTYPE_FROM_PADDLE:
            raise another_type(self.trace, self.name, str(out.dtype).removeprefix("paddle."))
        for q in stand_ins:
            if not self.is_apart(out, q):
                raise Refused(
                    f"{self.name} returns a view of a part of its argument.",
                    self.trace.where(),
                    reason="A program knows the memory of views by its own ops only.",
                    remedy="Index the tensor: `x[a:b]`.",
                )
        types.append(type_of(out))
        return "new"

    def is_apart(self, out: Tensor, argument: Tensor) -> bool:
        """Whether a result shows a whole argument, or nothing of it. Paddle refuses to look at
        strides that lead beyond the memory of a tensor."""
        try:
            whole = out.data_ptr() == argument.data_ptr() and out.shape == argument.shape
            return whole or not meet(extent(out), extent(argument))
        except RuntimeError:
            return False


def sizes_in(known: Sequence[object] | None) -> list[object]:
    return [q for q in known or () if is_symint(q)]


def is_list(t: Type) -> bool:
    """Integers that may stand for a shape."""
    count = product(t.shape)
    return t.dtype.kind == "i" and t.ndim <= 1 and isinstance(count, int) and count <= 8


def is_square(t: Type) -> bool:
    return t.dtype.kind == "f" and t.ndim > 1 and t.shape[-1] == t.shape[-2]


def positive_definite(x: Tensor) -> Tensor:
    array = x.numpy()
    array = (array + array.swapaxes(-1, -2)) / 2 + np.eye(*array.shape[-2:]) * array.shape[-1]
    return paddle.to_tensor(array.astype(x.numpy().dtype))


def all_in_the_first(counts: Tensor, total: int) -> Tensor:
    array = np.zeros(counts.shape, "int32")
    array[:1] = total
    return paddle.to_tensor(array, counts.dtype)


def stand_in(
    t: Type, known: Sequence[Any] | None, sizes: Mapping[str, int], position: int, fill: int = 1
) -> Tensor:
    """The numbers that the tensor is known to hold, else varied floats and ones: a write shows."""
    shape = [evaluate_dim(d, sizes) for d in t.shape]
    if known is not None:
        numbers = [evaluate_dim(q.dim, sizes) if is_symint(q) else q for q in known]
        return paddle.to_tensor(np.array(numbers, t.dtype.numpy).reshape(shape))
    if t.dtype.kind == "f":
        rng = np.random.default_rng(len(shape) + position)
        array = rng.uniform(0.3, 0.9, shape).astype(t.dtype.numpy)
        return paddle.to_tensor(array)
    return paddle.full(shape, fill, DTYPE_TO_PADDLE[t.dtype])
