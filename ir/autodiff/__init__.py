"""Reverse mode over functional programs: a forward program and a backward program.

    forward   inputs              -> outputs, kept values        and the writes
    backward  gradients, residuals -> one gradient for each input that asks

The joint program (`ir.autodiff.joint`) is split where the gradients of the outputs enter. A
forward value that the backward part reads is a residual: an input itself, the storage of an input
after the writes (a slot), an output, or one more output of the forward program.

Gradients that the program itself takes are ops of it by then (`ir.autodiff.pullback`). A `while`
loop is not checkpointed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from ir.analysis.cost import bytes_of
from ir.autodiff.activity import Activity
from ir.autodiff.checkpoint import Checkpoint, segmented
from ir.autodiff.deferred_sums import defer_sums
from ir.autodiff.joint import Reverse
from ir.autodiff.residuals import NotDifferentiable, from_inputs, in_storage
from ir.ops.gradients import zeros
from ir.passes.loops.ports import drop_unused_ports
from ir.passes.slots import sources
from ir.program import Input, Node, Op, Program, Scan, Stack, Value
from ir.rewrite import Block, expand_op, in_order, rewrite
from ir.types import BOOL, Dim, Size, Type, product
from ir.uses import dim_names, loop_sizes, size_names


@dataclass(frozen=True)
class Residual:
    """An input of the backward program behind the gradients.

    source, index: "input", the input of this index as it was called, never written by the program;
        "slot", the storage of the input of this index after the writes; "output" or "kept", the
        output of this index of the forward program, an original one or one behind them; "capacity",
        nothing but the size of a capacity of the forward program.
    copy_of: the input of whose storage after the writes it is a copy, or -1.
    """

    source: str
    index: int
    name: str
    type: Type
    copy_of: int = -1

    @property
    def bytes(self) -> Dim:
        """The memory that it takes to keep it; inputs, slots and outputs are there anyway."""
        return product(self.type.shape) * self.type.dtype.size if self.source == "kept" else 0


@dataclass(frozen=True)
class Gradient:
    """`report`: a line for each forward value that is read, in loops and branches too: reuse; keep,
    or stack by a loop, and its bytes, where a named size counts as 64; recompute, and its work."""

    forward: Program
    backward: Program
    residuals: tuple[Residual, ...]
    report: tuple[str, ...]


def differentiate(
    program: Program,
    of: Sequence[int],
    wrt: Sequence[int],
    checkpoint: Checkpoint = "none",
    *,
    slots: bool | Collection[int] = True,
) -> Gradient:
    """The gradients of outputs `of` with respect to inputs `wrt`.

    Args:
        program: functional, composite ops not expanded.
        of: outputs that receive a gradient: the first inputs of `backward`, in this order.
        wrt: inputs whose gradient is asked: the outputs of `backward`; zeros where it is none.
        checkpoint: "none"; "sqrt" or a number k: scans of the program keep their state every
            sqrt(T) or k iterations, and the backward pass computes the rest again.
        slots: inputs whose storage the backward program may read after the writes, where
            `ir.passes.slots` says that this is what the forward ops read; or all, or none.

    Raises NotDifferentiable for an op without a gradient on the way.
    """
    chosen = [program.results[k] for k in of] + [program.inputs[k].value for k in wrt]
    program = rewrite(program, _without_gradient)
    program, again, notes = segmented(program, of, wrt, checkpoint)
    activity = Activity(program, of, wrt)
    taken = {*program.sizes, *loop_sizes(program.ops)}
    found = readable(program, slots)
    own, computed_in, shown = from_inputs(program), in_storage(program), set(program.outputs)
    shared = Reverse(activity, again, taken, own, found, computed_in, shown, list(notes))
    block, grads = Block(), dict[Value, Value]()
    given = [Value(v.type, f"d_{v.name}" if v.name else "") for v in chosen[: len(of)]]
    for k, g in zip(of, given):
        shared.add(block, grads, program.results[k], g)
    ops = shared.block(program.ops, grads, block)
    inputs = (program.inputs[k].value for k in wrt)
    results = [grads.get(v) or zeros(block, v.type) for v in inputs]
    split = _Split(program, ops, found)
    back, results = shared.hand_over(
        block.ops, results, ops, split.index, split.cost, split.bring, "keep", whole=True
    )
    split.name_sizes(given, results, back)
    backward = split.backward(given, of, back, results)
    forward = drop_unused_ports(split.forward())
    return Gradient(forward, backward, tuple(split.residuals), tuple(shared.report))


def readable(program: Program, slots: bool | Collection[int]) -> dict[Value, int]:
    """The values that the backward program may read as slots, with the numbers of the inputs."""
    if isinstance(slots, bool):
        return sources(program) if slots else {}
    return {v: k for v, k in sources(program).items() if k in slots}


def _without_gradient(b: Block, node: Node) -> Sequence[Value] | None:
    """Composite rows that have no gradient of their own are differentiated by their parts."""
    if isinstance(node, Op) and node.row.grad is None:
        return expand_op(b, node)
    return None


class _Split:
    """The split between forward and backward program: residuals become inputs of the backward
    one."""

    def __init__(self, program: Program, ops: list[Node], slots: dict[Value, int]) -> None:
        self.program, self.ops = program, ops
        self.index = {i.value: k for k, i in enumerate(program.inputs)}
        self.written = {target for target, _ in program.writes}
        self.slots, self.storages = slots, sources(program)
        self.residuals: list[Residual] = []
        self.inputs: list[Input] = []
        self.kept: list[Value] = []

    def cost(self, v: Value) -> int:
        return bytes_of(v) if v in self.written else 0

    def bring(self, v: Value) -> Value:
        """`v` in the backward program."""
        name, kind, new = v.name or f"kept {len(self.kept)}", "arg", Value(v.type, v.name)
        if v in self.index and v not in self.written:
            source, at = "input", self.index[v]
            kind, name = self.program.inputs[at].kind, self.program.inputs[at].name
        elif v in self.slots:
            source, at = "slot", self.slots[v]
            kind, name = self.program.inputs[at].kind, self.program.inputs[at].name
        elif v in self.program.outputs:
            source, at = "output", self.program.outputs.index(v)
        else:
            source, at = "kept", len(self.program.outputs) + len(self.kept)
            self.kept.append(v)
        copy_of = self.storages.get(v, -1) if source in ("output", "kept") else -1
        self.residuals.append(Residual(source, at, name, v.type, copy_of))
        self.inputs.append(Input(new, kind, name))
        return new

    def name_sizes(
        self, given: Sequence[Value], results: Sequence[Value], ops: Sequence[Node]
    ) -> None:
        """Bring something with each size that the backward program names and no input has."""
        named: set[str] = set().union(*map(size_names, ops), *(v.type.names for v in results))
        inner = set(loop_sizes(ops))
        while True:
            values = [*given, *(i.value for i in self.inputs)]
            plain = {str(d) for v in values for d in v.type.shape if isinstance(d, Size)}
            asked = named.union(*(v.type.names for v in values)) - inner - plain
            if not asked:
                return
            name = min(asked)
            if name in self.program.capacities:
                self.bring_capacity(name)
            else:
                self.bring(self.having(name))

    def bring_capacity(self, name: str) -> None:
        """An input that nothing reads, which has the size."""
        value = Value(Type(BOOL, (Size.named(name),)), name)
        self.residuals.append(Residual("capacity", -1, name, value.type))
        self.inputs.append(Input(value, "arg", name))

    def having(self, name: str) -> Value:
        """A value with the size `name` as a plain dimension, as small as can be."""
        size = Size.named(name)
        values = (i.value for i in self.program.inputs)
        found = sorted((v for v in values if size in v.type.shape), key=self.cost)
        if found:
            return found[0]
        at = next(k for k, n in enumerate(self.ops) if isinstance(n, Scan) and n.count == name)
        loop = self.ops[at]
        assert isinstance(loop, Scan)
        stack = Stack(Value(loop.index.type.with_shape((size,)), loop.index.name), loop.index)
        self.ops[at] = replace(loop, ports=in_order((*loop.ports, stack)))
        return stack.outer

    def forward(self) -> Program:
        outputs = (*self.program.outputs, *self.kept)
        return replace(self.program, ops=tuple(self.ops), outputs=outputs)

    def backward(
        self, given: Sequence[Value], of: Sequence[int], ops: Sequence[Node], results: list[Value]
    ) -> Program:
        names = [self.program.outputs[k].name or f"output {k}" for k in of]
        first = (Input(v, "arg", f"grad of {name}") for v, name in zip(given, names))
        program = Program(
            f"{self.program.name}_backward", (*first, *self.inputs), tuple(ops), tuple(results)
        )
        known = set(program.sizes)
        requires = [r for r in self.program.requires if dim_names((r.left, r.right)) <= known]
        program = replace(program, requires=tuple(requires))
        return drop_unused_ports(defer_sums(drop_unused_ports(program)))


__all__ = ["Gradient", "NotDifferentiable", "Residual", "differentiate"]
