"""Loop interchange: a loop over steps of a loop over layers is turned inside out.

    scan %t < T {                                    scan %l < L {
      const %ws = %w                                   seq   %wl = %w[l]
      seq   %x = %xs[t]                                seq   %h0 = %s0[l]
      carry %s = %s0 then %s2 last %sT                 carry %X = %xs then %Y last %ys
      stack %ys = %xL axis 0                           stack %sT = %hT axis 0
      body                                             body
        scan %l < L {                                    scan %t < T {
          seq   %h = %s[l]                                 const %wt = %wl
          seq   %wl = %ws[l]               =>              seq   %y = %X[t]
          carry %y = %x then %y2 last %xL                  carry %h = %h0 then %h2 last %hT
          stack %s2 = %h2 axis 0                           stack %Y = %y2 axis 0
          body                                             body
            %p = matmul(%y, %wl)                             %p = matmul(%y, %wt)
            ...                                              ...

Each layer has a state of its own, and reads of the others what the layer below it gives in the same
step. Now the weights of one layer are read by one step after the other, and a product that reads no
state becomes one product of all steps (`ir.passes.loops.loop_batching`). What the steps do before
and behind the layers are loops of their own. Done where the weights of all layers do not stay in a
cache, for few rows. Out of scope: while loops, indices that are sizes, effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ir.analysis.cost import number, pays
from ir.analysis.recurrences import Vertex, dependences, gives, reached, reads
from ir.passes.loops.fission import FEWEST_STEPS, is_anchor, only_read
from ir.passes.loops.slices_to_ports import is_whole, put
from ir.program import Carry, Const, Last, Node, Port, Program, Scan, Seq, Stack, Value
from ir.rewrite import Block, rewrite_all, substitute
from ir.types import Type
from ir.uses import counts, has_effect, uses


def interchange_loops(program: Program) -> Program:
    """The weights of layers are not read again in each step."""
    return rewrite_all(program, _visit)


def _visit(b: Block, s: Node) -> Sequence[Value] | None:
    if not isinstance(s, Scan) or isinstance(s.trip, int) and s.trip < FEWEST_STEPS:
        return None
    inner = [n for n in s.body if isinstance(n, Scan)]
    if len(inner) != 1 or not all(map(_is_plain, (s, *inner))):
        return None
    nest = _Nest(s, inner[0])
    return nest.emit(b) if nest.is_able() and nest.pays() else None


def _is_plain(s: Scan) -> bool:
    named = s.go is not None or s.count or s.size or any(counts(s.body))
    return not named and not any(map(has_effect, s.body))


class _Nest:
    """`steps` around `layers`. states: the seq port of `layers` that reads a carry of `steps` ->
    that carry, and the stack that makes its next value; own: those carries. early, late: what else
    the steps do, before and behind the layers. crossing: what they hand on. sequences: values of a
    step -> what they are in all steps."""

    def __init__(self, steps: Scan, layers: Scan) -> None:
        self.steps, self.layers = steps, layers
        made = {p.outer: p for p in layers.ports if isinstance(p, Stack) and p.axis == 0}
        carried = {p.inner: p for p in steps.carries if p.next in made}
        self.states: dict[Seq, tuple[Carry, Stack]] = {
            q: (carried[q.outer], made[carried[q.outer].next])
            for q in layers.ports
            if isinstance(q, Seq) and q.outer in carried and q.axis == 0 and is_whole(layers, q)
        }
        self.own = own = {p for p, _ in self.states.values()}
        vertices: list[Vertex] = [*steps.body, *(p for p in steps.carries if p not in own)]
        self.maker = {v: n for n in vertices for v in gives(n)}
        edges, _ = dependences(vertices)
        self.late = reached(edges.get(layers, ()), edges)
        self.early = set(vertices) - self.late - {layers}
        self.consts = {p.inner: p.outer for p in steps.ports if isinstance(p, Const)}
        self.sequences = {
            p.inner: p.outer
            for p in steps.ports
            if isinstance(p, Seq) and p.axis == 0 and is_whole(steps, p)
        }
        self.crossing = self.read_later()

    def read_later(self) -> dict[Value, None]:
        """The values of what is early that the layers and what is late read."""
        found = [v for n in (self.layers, *self.steps.body) if n not in self.early
                 for v in n.operands]  # fmt: skip
        found += [p.next for p in self.steps.carries if p in self.late]
        return {v: None for v in found if self.maker.get(v) in self.early}

    # -------- conditions
    def is_able(self) -> bool:
        if not self.states or self.layers in self.late:
            return False
        read = uses(self.steps.body, self.steps.needed)
        if any(read[p.inner] != 1 for p, _ in self.states.values()):
            return False
        shown = all(isinstance(p, Last) or p.axis == 0 for p in self.outs)
        return shown and all(map(self.fits, self.layers.ports))

    @property
    def outs(self) -> list[Stack | Last]:
        """The ports of the steps that show what the layers give."""
        shown = (p for p in self.steps.ports if isinstance(p, (Stack, Last)))
        return [p for p in shown if p.inner in self.layers.results]

    def of_steps(self, v: Value) -> bool:
        """Whether each step has its own `v`, and all of them are one tensor."""
        return v in self.sequences or v in self.crossing

    def fits(self, p: Port) -> bool:
        if isinstance(p, Const):
            known = p.outer in self.consts or self.of_steps(p.outer)
            return known or p.outer is self.steps.index
        if isinstance(p, Seq):
            return p in self.states or p.outer in self.consts
        if isinstance(p, Carry):
            return self.of_steps(p.init)
        return isinstance(p, Stack) and p.axis == 0

    def pays(self) -> bool:
        """Whether products of layers become products of all steps, so that a step need not read
        their weights."""
        weights = {
            p.inner for p in self.layers.ports if isinstance(p, Seq) and p not in self.states
        }
        edges, _ = dependences(self.layers.body)
        states = {q.inner for q in self.states}
        behind = reached((n for n in self.layers.body if states & set(n.operands)), edges)
        read = [n.operands[1] for n in self.layers.body
                if n not in behind and is_anchor(n, weights)]  # fmt: skip
        moved = [p.next for p in self.layers.carries]
        times = number(self.layers.trip)
        return bool(read) and pays(moved * times, read * times)

    # -------- emitting
    def emit(self, b: Block) -> Sequence[Value]:
        s = self.steps
        entering = [p for p in s.ports if isinstance(p, (Const, Seq))]
        apart = {*self.outs, *self.own}
        others = [p for p in s.ports if not isinstance(p, (Const, Seq)) and p not in apart]
        early = [p for p in others if not self.is_late(p)]
        stacks = [s.new_stack(v) for v in self.crossing]
        self.sequences |= {p.inner: p.outer for p in stacks}
        body = tuple(n for n in s.body if n in self.early)
        if early or stacks:
            put(b, only_read(replace(s, ports=(*entering, *early, *stacks), body=body)))
        self.sequences |= self.interchanged(b)
        late = [p for p in others if self.is_late(p)]
        if late:
            put(b, self.behind(entering, late))
        found = {p.outer: self.shown(b, p) for p in self.outs}
        return [found.get(r, r) for r in s.results]

    def is_late(self, p: Port) -> bool:
        if isinstance(p, Carry):
            return p in self.late
        assert isinstance(p, (Stack, Last))
        return self.maker.get(p.inner) in self.late

    def shown(self, b: Block, p: Stack | Last) -> Value:
        whole = self.sequences[p.inner]
        if isinstance(p, Stack):
            return whole
        last: Value = b.index(whole, axis=0, index=self.steps.trip - 1)
        return last

    def behind(self, entering: Sequence[Port], late: Sequence[Port]) -> Scan:
        """The loop of what the steps do behind the layers."""
        s, env = self.steps, {self.steps.index: Value(self.steps.index.type, self.steps.index.name)}
        ports: list[Port] = []
        for p in entering:
            assert isinstance(p, (Const, Seq))
            env[p.inner] = Value(p.inner.type, p.inner.name)
            ports.append(replace(p, inner=env[p.inner]))
        for v in (*self.crossing, *self.layers.results):
            if v in self.sequences:
                env[v] = Value(v.type, v.name)
                ports.append(Seq(env[v], self.sequences[v], 0))
        for p in late:
            if isinstance(p, Carry):
                ports.append(replace(p, next=env.get(p.next, p.next)))
            else:
                ports.append(p)
        body = substitute((n for n in s.body if n in self.late), env)
        return only_read(replace(s, index=env[s.index], ports=tuple(ports), body=body))

    def interchanged(self, b: Block) -> dict[Value, Value]:
        """Emit the loop over the layers; returns what their results are in all steps."""
        steps, layers = self.steps, self.layers
        build = _Build(steps, layers)
        for p in layers.ports:
            if isinstance(p, Const):
                self.const(build, p)
            elif isinstance(p, Seq) and p in self.states:
                build.state(p, *self.states[p])
            elif isinstance(p, Seq):
                inner = build.layer_port(replace(p, outer=self.consts[p.outer]))
                build.ports.append(Const(p.inner, inner))
            elif isinstance(p, Carry):
                build.carry(p, self.sequences[p.init])
        read = {v for n in self.late for v in reads(n)} | {p.inner for p in self.outs}
        for p in layers.ports:
            if isinstance(p, Stack) and p.outer in read:
                build.stack(p)
        put(b, build.loop())
        return build.found

    def const(self, build: _Build, p: Const) -> None:
        if p.outer is self.steps.index:
            build.env[p.inner] = build.index
        elif p.outer in self.consts:
            build.ports.append(Const(p.inner, build.layer_const(self.consts[p.outer])))
        else:
            build.ports.append(Seq(p.inner, build.layer_const(self.sequences[p.outer]), 0))


class _Build:
    """The two loops: `ports` are those of the loop over steps, which is inside, `around` those of
    the loop over layers. found: results of the layers in a step -> in all steps."""

    def __init__(self, steps: Scan, layers: Scan) -> None:
        self.steps, self.layers = steps, layers
        self.index = Value(steps.index.type, steps.index.name)
        self.layer = Value(layers.index.type, layers.index.name)
        self.ports: list[Port] = [Const(layers.index, self.layer)]
        self.around: list[Port] = []
        self.env: dict[Value, Value] = {}
        self.found: dict[Value, Value] = {}

    def of_all(self, v: Value) -> Value:
        return Value(v.type.with_shape((self.steps.trip, *v.type.shape)), v.name)

    def layer_port(self, p: Seq) -> Value:
        inner = Value(p.inner.type, p.inner.name)
        self.around.append(replace(p, inner=inner))
        return inner

    def layer_const(self, outer: Value) -> Value:
        inner = Value(outer.type, outer.name)
        self.around.append(Const(inner, outer))
        return inner

    def state(self, q: Seq, p: Carry, made: Stack) -> None:
        first = self.layer_port(replace(q, outer=p.init))
        last = Value(q.inner.type, q.inner.name) if p.last is not None else None
        self.ports.append(Carry(q.inner, first, made.inner, last))
        if p.last is not None and last is not None:
            self.around.append(Stack(p.last, last))

    def carry(self, p: Carry, first: Value) -> None:
        before, after = Value(first.type, p.inner.name), self.of_all(p.next)
        last = self.of_all(p.next) if p.last is not None else None
        self.ports += [Seq(p.inner, before, 0), Stack(after, p.next)]
        self.around.append(Carry(before, first, after, last))
        if p.last is not None and last is not None:
            self.found[p.last] = last

    def stack(self, p: Stack) -> None:
        one = self.of_all(p.inner)
        steps, *shape = one.type.shape
        whole = Value(Type(one.type.dtype, (steps, self.layers.trip, *shape)), p.outer.name)
        self.ports.append(Stack(one, p.inner))
        self.around.append(Stack(whole, one, 1))
        self.found[p.outer] = whole

    def loop(self) -> Scan:
        inside = Block()
        ports = tuple(map(self.renamed, self.ports))
        body = substitute(self.layers.body, self.env)
        put(inside, only_read(replace(self.steps, index=self.index, ports=ports, body=body)))
        around = replace(
            self.layers, index=self.layer, ports=tuple(self.around), body=tuple(inside.ops)
        )
        return only_read(around)

    def renamed(self, p: Port) -> Port:
        if isinstance(p, Carry):
            return replace(p, next=self.env.get(p.next, p.next))
        if isinstance(p, (Stack, Last)):
            return replace(p, inner=self.env.get(p.inner, p.inner))
        return p


__all__ = ["interchange_loops"]
