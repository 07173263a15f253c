"""The gradients of region ops: of a loop, another loop; of a branch, another branch.

Both read values of the forward node. `ir.autodiff.residuals` chooses those that are handed over, by
a new stack port or join of the forward node, and those that are computed again.

    scan %t < T {                                 scan %r < T {                 # i = T - 1 - r
      const %w1 = %w                                const %w1 = %w
      carry %h  = %h0 then %h2 last %hT    =>       seq   %h2 = %hs[T - 1 - r]
      stack %hs = %h2 axis 0                        seq   %dh2 = %dhs[T - 1 - r]
                                                    carry %dh = %dhT then %dh1 last %dh0
                                                    carry %dw = zeros then %dw1 last %dwT
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ir.analysis.cost import bytes_of
from ir.autodiff.append_only_buffers import appended
from ir.autodiff.backward_state import BackwardState, Grads
from ir.autodiff.residual_stacks import cut_to, in_full_size, placed
from ir.autodiff.shared_states import share_states
from ir.ops.gradients import zeros
from ir.passes.cloning import NodeCopier
from ir.program import Carry, Cond, Const, Join, Last, Node, Port, Scan, Seq, Stack, Value
from ir.rewrite import Block, in_order
from ir.types import I64, Dim, Size, Type


class LoopGradient:
    """The gradient of one loop: `ports` are those of the backward loop, `stacks` are new ones of
    the forward loop, `padding` is what ends its body and `behind` what follows it, `prefix` is what
    begins the backward body. `sources` and `collected`: the ports that bring in a value of the
    forward body, and those that collect one."""

    def __init__(self, shared: BackwardState, s: Scan, grads: Grads, b: Block) -> None:
        self.shared, self.s, self.grads, self.b = shared, s, grads, b
        self.length: Dim = s.length
        self.size = shared.fresh("r") if s.size else ""
        self.index = Value(Type(I64), "r")
        self.ports: list[Port] = []
        self.stacks: list[Stack] = []
        self.sources = {p.inner: p for p in s.ins}
        self.collected = {p.inner: p for p in reversed(s.ports) if isinstance(p, Stack)}
        self.prefix, self.padding, self.behind = Block(), Block(), Block()
        self.body = Block()
        self.inner: Grads = {}
        self.first: dict[Port, Value] = {}
        self.appended: dict[Value, Carry] = {}
        self.lasts: dict[Carry, Value] = {}

    def reverse(self) -> list[Node]:
        """Emits the backward loop; returns the forward loop, and what follows it."""
        if self.length == 0:
            self.hand_on()
            return [self.s]
        for p in self.s.ports:
            self.enter(p)
        self.shared.around.append(self.s)
        ops = self.shared.block(self.s.body, self.inner, self.body)
        self.shared.around.pop()
        makers, leaving = self.leave()
        self.appended = appended(self.s, self.body.ops)
        entering = {self.s.index, *self.sources}

        def cost(v: Value) -> int:
            return bytes_of(v) if isinstance(self.sources.get(v), Carry) else 0

        sizes = self.forward_size()
        body, leaving = self.shared.hand_over(
            self.body.ops,
            leaving,
            ops,
            entering,
            cost,
            self.bring,
            "stack",
            sizes=sizes,
            final=self.appended,
        )
        self.ports += [make(v) for make, v in zip(makers, leaving)]
        self.share_states()
        whole = (*self.prefix.ops, *body)
        if self.ports:
            ports = in_order(self.ports)
            loop = Scan(self.index, self.length, ports, whole, self.s.loc, size=self.size)
            self.b.append(replace(loop, unroll=self.s.unroll))
        self.add_results()
        own = (replace(p, last=self.lasts[p]) if p in self.lasts else p for p in self.s.ports)
        ports, body = in_order((*own, *self.stacks)), (*ops, *self.padding.ops)
        return [replace(self.s, ports=ports, body=body), *self.behind.ops]

    def hand_on(self) -> None:
        """No iteration: what a carry was before is what it is after."""
        for p in self.s.carries:
            if p.last is not None:
                self.shared.add(self.b, self.grads, p.init, self.grads.get(p.last))

    # -------- into the body
    def enter(self, p: Port) -> None:
        active, add = self.shared.activity.active, self.shared.add
        if isinstance(p, Carry) and self.carries_gradient(p):
            dh = self.first[p] = _gradient_of(p.inner)
            add(self.body, self.inner, p.next, dh)
        elif isinstance(p, Stack) and p.outer in self.grads:
            g = _gradient_of(p.inner)
            self.ports.append(Seq(g, self.grads[p.outer], p.axis, self.length - 1, -1))
            add(self.body, self.inner, p.inner, g)
        elif isinstance(p, Last) and p.outer in self.grads:
            dh = self.first[p] = _gradient_of(p.inner)
            add(self.body, self.inner, p.inner, dh)
        elif isinstance(p, Const) and active(p.inner):
            self.first[p] = self.inner[p.inner] = _gradient_of(p.inner)

    def carries_gradient(self, p: Carry) -> bool:
        useful = self.shared.activity.useful
        return p.inner in self.shared.activity.varies and not useful.isdisjoint({p.inner, p.last})

    # -------- out of the body
    def leave(self) -> tuple[list[Callable[[Value], Port]], list[Value]]:
        """Return constructors of the ports that read the end of the body, and the values that they
        read."""
        makers: list[Callable[[Value], Port]] = []
        leaving: list[Value] = []
        self.results: list[tuple[Value, Value, Seq | None]] = []
        for p in self.s.ports:
            found = self.made_by(p)
            if found is not None:
                makers.append(found[0])
                leaving.append(found[1])
        return makers, leaving

    def made_by(self, p: Port) -> tuple[Callable[[Value], Port], Value] | None:
        if isinstance(p, Carry) and p in self.first:
            return self.carried(p.init, p.inner, self.first[p], self.of_last(p))
        if isinstance(p, Last) and p in self.first:
            nothing = zeros(self.body, p.inner.type)
            first, init = self.first[p], self.grads[p.outer]
            return (lambda v: Carry(first, init, v)), nothing
        if isinstance(p, Const) and p in self.first:
            if self.inner[p.inner] is self.first[p]:
                return None
            start = self.grads.pop(p.outer, None) or zeros(self.b, p.outer.type)
            return self.carried(p.outer, p.inner, self.first[p], start)
        if isinstance(p, Seq) and p.inner in self.inner:
            return self.stacked(p)
        return None

    def of_last(self, p: Carry) -> Value:
        found = self.grads.get(p.last) if p.last is not None else None
        return found or zeros(self.b, p.inner.type)

    def carried(
        self, target: Value, inner: Value, first: Value, init: Value
    ) -> tuple[Callable[[Value], Port], Value]:
        last = None
        if self.shared.activity.active(target):
            last = Value(first.type, first.name)
            self.results.append((target, last, None))
        after = self.inner.get(inner) or zeros(self.body, first.type)
        return (lambda v: Carry(first, init, v, last)), after

    def stacked(self, p: Seq) -> tuple[Callable[[Value], Port], Value]:
        """Gradients of slices, the last iteration first."""
        shape = list(p.inner.type.shape)
        shape.insert(p.axis, self.length)
        outer = Value(p.outer.type.with_shape(shape), p.outer.name and f"d_{p.outer.name}")
        self.results.append((p.outer, outer, p))
        return (lambda v: Stack(outer, v, p.axis)), self.inner[p.inner]

    def add_results(self) -> None:
        for target, g, seq in self.results:
            part = g if seq is None else placed(self.b, seq, g, self.length)
            self.shared.add(self.b, self.grads, target, part)

    # -------- forward values in the backward body
    def bring(self, v: Value) -> Value:
        if v is self.s.index:
            return self.forward_index()
        new, p = Value(v.type, v.name), self.sources.get(v)
        if v in self.appended:
            self.ports.append(Const(new, self.last_of(self.appended[v])))
        elif isinstance(p, Const):
            self.ports.append(Const(new, p.outer))
        elif isinstance(p, Seq):
            start = p.start + p.step * (self.length - 1)
            self.ports.append(Seq(new, p.outer, p.axis, start, -p.step))
        else:
            stack = self.stack_of(in_full_size(self.padding, v, [self.s]))
            whole = Value(stack.inner.type, v.name)
            self.ports.append(Seq(whole, stack.outer, stack.axis, self.length - 1, -1))
            kept = NodeCopier(str, sizes=self.forward_size()).attr(v.type)
            return cut_to(self.prefix, whole, kept)
        return new

    def last_of(self, p: Carry) -> Value:
        """The value of a carry after the forward loop."""
        if p.last is not None:
            return p.last
        return self.lasts.setdefault(p, Value(p.inner.type, p.inner.name))

    def stack_of(self, v: Value) -> Stack:
        """The stack of the forward loop that collects `v`: one that is there, or a new one."""
        if v not in self.collected:
            self.collected[v] = self.s.new_stack(v)
            self.stacks.append(self.collected[v])
        return self.collected[v]

    def share_states(self) -> None:
        shown = self.shared.outputs
        found = {v: p for v, p in self.collected.items() if p.outer not in shown}
        gone = share_states(self.s, found, self.stacks, self.ports, self.behind)
        self.stacks = [p for p in self.stacks if p not in gone]
        if self.shared.is_again(self.s):
            self.shared.behind_again.update(self.behind.ops)

    def forward_size(self) -> dict[str, Dim]:
        """The index of the forward loop, in types, by that of the backward loop."""
        return {self.s.size: self.length - 1 - Size.named(self.size)} if self.size else {}

    def forward_index(self) -> Value:
        b = self.prefix
        new: Value = b.subtract(b.size(n=self.length - 1), self.index, hint=self.s.index.name)
        return new


class BranchGradient:
    """The gradient of one branch: another one on the same test."""

    def __init__(self, shared: BackwardState, c: Cond, grads: Grads, b: Block) -> None:
        self.shared, self.c, self.grads, self.b = shared, c, grads, b
        self.ins: list[Const] = []
        self.joins: list[Join] = []
        self.more: tuple[list[Node], list[Node]] = ([], [])

    def reverse(self) -> Cond:
        c, active = self.c, self.shared.activity.active
        targets = [p for p in c.ins if active(p.inner) and active(p.outer)]
        seeds = self.seeds(targets)
        sides = [self.side(k, seeds) for k in (0, 1)]
        changed = [
            p for p in targets if any(s.inner.get(p.inner) is not seeds.get(p.inner) for s in sides)
        ]
        then, orelse = (self.hand_over(k, side, changed) for k, side in enumerate(sides))
        if changed:
            outs = tuple(Join(Value(a.type, a.name), a, e) for a, e in zip(then[1], orelse[1]))
            ins = tuple(self.ins)
            self.b.append(Cond(c.test, ins, then[0], orelse[0], outs, c.loc))
            for p, j in zip(changed, outs):
                if p.inner in seeds:
                    self.grads[p.outer] = j.outer
                else:
                    self.shared.add(self.b, self.grads, p.outer, j.outer)
        forward = [(*side.forward, *more) for side, more in zip(sides, self.more)]
        outs = (*c.outs, *self.joins)
        return replace(c, then=forward[0], orelse=forward[1], outs=outs)

    def seeds(self, targets: Sequence[Const]) -> Grads:
        """The gradients of outer values that are there already: the branches add to them."""
        out: dict[Value, Value] = {}
        for p in targets:
            if p.outer in self.grads:
                out.setdefault(p.outer, p.inner)
        return {inner: self.outside(self.grads[outer]) for outer, inner in out.items()}

    def side(self, k: int, seeds: Grads) -> _BranchBlock:
        body, inner = Block(), dict(seeds)
        block, leaving = self.c.branches[k]
        for j, v in zip(self.c.outs, leaving):
            if j.outer in self.grads:
                self.shared.add(body, inner, v, self.outside(self.grads[j.outer]))
        return _BranchBlock(body, inner, self.shared.block(block, inner, body))

    def hand_over(
        self, k: int, side: _BranchBlock, targets: Sequence[Const]
    ) -> tuple[tuple[Node, ...], list[Value]]:
        wanted = [side.inner.get(p.inner) or zeros(side.body, p.inner.type) for p in targets]
        entering = [p.inner for p in self.c.ins]
        ops, forward, prefix = side.body.ops, side.forward, Block()
        bring = partial(self.bring, k=k, prefix=prefix)
        sizes = {s.size: Size.named(s.size) for s in self.shared.around if s.size}
        made, leaving = self.shared.hand_over(
            ops, wanted, forward, entering, lambda v: 0, bring, "keep", sizes=sizes
        )
        return (*prefix.ops, *made), leaving

    def outside(self, outer: Value) -> Value:
        """An outer value, inside of the backward branch."""
        for p in self.ins:
            if p.outer is outer:
                return p.inner
        self.ins.append(Const(Value(outer.type, outer.name), outer))
        return self.ins[-1].inner

    def bring(self, v: Value, k: int, prefix: Block) -> Value:
        for p in self.c.ins:
            if p.inner is v:
                return self.outside(p.outer)
        for j in (*self.c.outs, *self.joins):
            if (j.then, j.orelse)[k] is v:
                return self.outside(j.outer)
        own, nothing = Block(), Block()
        whole = in_full_size(own, v, self.shared.around)
        other = zeros(nothing, whole.type)
        self.more[k].extend(own.ops)
        self.more[1 - k].extend(nothing.ops)
        pair = (whole, other) if k == 0 else (other, whole)
        self.joins.append(Join(Value(whole.type, v.name), *pair))
        return cut_to(prefix, self.outside(self.joins[-1].outer), v.type)


@dataclass(frozen=True, eq=False)
class _BranchBlock:
    """One block of a branch: what is emitted, the gradients in it, and its forward ops."""

    body: Block
    inner: Grads
    forward: list[Node]


def _gradient_of(v: Value) -> Value:
    return Value(v.type, f"d_{v.name}" if v.name else "")


__all__ = ["BranchGradient", "LoopGradient"]
