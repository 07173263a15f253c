"""Loop fission where a product with weights reads a state that does not depend on it.

    scan %t < T {                                    scan %t < T {
      carry %h = %h0 then %h2                          carry %h = %h0 then %h2
      carry %l = %l0 then %l2 last %lT                 stack %hs = %h2 axis 0
      body                                             body
        %h2 = tanh(...)                                  %h2 = tanh(...)
        %y = matmul(%h2, %w1)              =>        }
        %l2 = ... %l ... %y ...                      %ys = matmul(%hs, %w)
    }                                                scan %u < T {
                                                       seq   %y = %ys[u]
                                                       carry %l = %l0 then %l2 last %lT
                                                       ...

The product of all steps passes over the weights once, not T times. What crosses the cut is written
to memory and read again: the cut is made if that is less than the weights, if these do not stay in
a cache, and for few rows. Checks stay in the first loop. Out of scope: while loops, loops whose
index is a size, other effects, and products whose results can be collected
(`ir.passes.loops.loop_batching`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ir.analysis.cost import number, pays
from ir.analysis.recurrences import Vertex, components, dependences, gives, reached, reads
from ir.passes.loops.loop_batching import worth_sinking
from ir.passes.loops.slices_to_ports import put
from ir.passes.loops.vectorize import Batched, batch
from ir.passes.rules import can_fail
from ir.program import Carry, Const, Last, Node, Op, Port, Program, Scan, Seq, Stack, Value
from ir.rewrite import Block, rewrite_all, substitute
from ir.types import product
from ir.uses import counts, has_effect

#: loops of fewer steps are not cut
FEWEST_STEPS = 4
#: with more rows a product is not slowed down by reading its weights
MOST_ROWS = 8


def split_loops(program: Program) -> Program:
    """No product with weights is left in a loop that could be one product of all steps."""
    return rewrite_all(program, _visit)


def _visit(b: Block, s: Node) -> Sequence[Value] | None:
    if not isinstance(s, Scan) or s.count or s.size or any(counts(s.body)):
        return None
    checks = [n for n in s.body if has_effect(n)]
    if not all(isinstance(n, Op) and n.name == "check" for n in checks):
        return None
    if isinstance(s.trip, int) and s.trip < FEWEST_STEPS:
        return None
    weights = {p.inner for p in s.ports if isinstance(p, Const)}
    anchors = {n for n in s.body if is_anchor(n, weights)}
    anchors -= worth_sinking(s).keys() if anchors else set()
    if not anchors:
        return None
    cut = _Fission(s, anchors)
    return cut.emit(b) if cut.products and cut.keeps_errors(checks) and cut.pays() else None


def is_anchor(n: Node, weights: Collection[Value]) -> bool:
    """Whether it is a product of few rows with one of the weights."""
    if not isinstance(n, Op) or n.name != "matmul" or n.attrs["trans_x"]:
        return False
    x, w = n.operands
    if w not in weights or x in weights or w.type.ndim != 2 or x.type.ndim < 2:
        return False
    return number(product(x.type.shape[:-1])) <= MOST_ROWS


class _Fission:
    """`products`: what leaves the loop. `late`: what the second loop does, carries included."""

    def __init__(self, s: Scan, anchors: Collection[Node]) -> None:
        self.s = s
        self.vertices: list[Vertex] = [*s.body, *s.carries]
        self.maker = {v: n for n in self.vertices for v in gives(n)}
        self.read_by, self.reads = dependences(self.vertices)
        stateful = reached(s.carries, self.read_by)
        found = components(self.vertices, self.read_by, self.reads)
        cycles = {n for component in found if len(component) > 1 for n in component}
        able = {n for n in anchors if n in stateful and n not in cycles}
        behind = reached(self.readers(able), self.read_by)
        self.products = [n for n in s.body if n in able and n not in behind and isinstance(n, Op)]
        behind = reached(self.readers(self.products), self.read_by)
        early = self.needed_early(behind)
        self.late = set(self.vertices) - early - set(self.products)

    def makers(self, values: Iterable[Value]) -> list[Vertex]:
        return [self.maker[v] for v in values if v in self.maker]

    def readers(self, nodes: Iterable[Vertex]) -> list[Vertex]:
        return [q for n in nodes for q in self.read_by.get(n, ())]

    def needed_early(self, behind: Collection[Vertex]) -> set[Vertex]:
        """Return the nodes that the products, or results independent of them, need."""
        outs: list[Vertex] = [p for p in self.s.carries if p.last is not None]
        outs += self.makers(p.inner for p in self.s.ports if isinstance(p, (Stack, Last)))
        outs += [n for n in self.vertices if isinstance(n, Op) and n.name == "check"]
        outs = [n for n in outs if n not in behind and n not in self.products]
        return reached([*outs, *(q for n in self.products for q in self.reads[n])], self.reads)

    def keeps_errors(self, checks: Sequence[Node]) -> bool:
        """Whether the second loop has none of the checks, and what else may raise there raises what
        they do: those of all steps are made before it."""
        if any(n in self.late for n in checks):
            return False
        late = [n for n in self.vertices if n in self.late and not isinstance(n, Carry)]
        kinds = {n.attrs["error"] for n in checks if isinstance(n, Op)}
        if not checks or not any(map(can_fail, late)):
            return True
        divides = any(
            can_fail(n) and not (isinstance(n, Op) and n.row.kernel is None) for n in late
        )
        return kinds == {"IndexError"} and not divides

    # -------- cost
    def crossing(self) -> list[Value]:
        """The values of the first loop that the products and the second loop read."""
        read = [v for n in self.products for v in n.operands]
        read += [v for n in self.vertices if n in self.late for v in reads(n)]
        gone = self.late | set(self.products)
        return [v for v in dict.fromkeys(read) if v in self.maker and self.maker[v] not in gone]

    def pays(self) -> bool:
        """Whether a step reads more weights than what is written to memory for it and read, and
        than a cache keeps."""
        stacked = {p.inner for p in self.s.ports if isinstance(p, Stack) and _is_stack(p)}
        moved = [v for v in self.crossing() if v not in stacked]
        moved += [n.result for n in self.products]
        return pays(moved, [n.operands[1] for n in self.products])

    # -------- emitting
    def is_early(self, p: Port) -> bool:
        """Whether a port that is no const or seq belongs to the first loop."""
        if isinstance(p, Carry):
            return p not in self.late
        assert isinstance(p, (Stack, Last))
        maker = self.maker.get(p.inner)
        return maker not in self.late and maker not in self.products

    def emit(self, b: Block) -> Sequence[Value]:
        s = self.s
        entering = [p for p in s.ports if isinstance(p, (Const, Seq))]
        others = [p for p in s.ports if not isinstance(p, (Const, Seq))]
        stacks = {p.inner: p for p in others if _is_stack(p) and isinstance(p, Stack)}
        crossing = {v: stacks[v] if v in stacks else s.new_stack(v) for v in self.crossing()}
        made = [p for v, p in crossing.items() if v not in stacks]
        first: list[Port] = [*entering, *(p for p in others if self.is_early(p)), *made]
        early = [n for n in s.body if n not in self.late and n not in self.products]
        put(b, only_read(replace(s, ports=tuple(first), body=tuple(early))))

        sequences = {v: Batched(p.outer, p.axis) for v, p in crossing.items()}
        sequences |= {n.result: self.product(b, n, sequences) for n in self.products}
        env = {
            v: Value(v.type, v.name) for v in (s.index, *(p.inner for p in entering), *sequences)
        }
        second: list[Port] = [replace(p, inner=env[p.inner]) for p in entering]
        second += [Seq(env[v], q.value, q.axis or 0) for v, q in sequences.items()]
        second += [_reading(p, env) for p in others if not self.is_early(p)]
        late = substitute((n for n in s.body if n in self.late), env)
        put(b, only_read(replace(s, index=env[s.index], ports=tuple(second), body=late)))
        return s.results

    def product(self, b: Block, op: Op, sequences: Mapping[Value, Batched]) -> Batched:
        """`op` of all steps."""
        x, w = op.operands
        (weights,) = (p.outer for p in self.s.ports if isinstance(p, Const) and p.inner is w)
        out = batch(b.at(op), op, [sequences[x], Batched(weights)], self.s.trip)
        assert out is not None
        return out


def _is_stack(p: Port) -> bool:
    """Whether a port stacks along an axis that a product can have as one of its rows."""
    return isinstance(p, Stack) and p.axis < p.inner.type.ndim


def _reading(p: Port, env: Mapping[Value, Value]) -> Port:
    """A port of the second loop."""
    if isinstance(p, Carry):
        return replace(p, next=env.get(p.next, p.next))
    assert isinstance(p, (Stack, Last))
    return replace(p, inner=env.get(p.inner, p.inner))


def only_read(s: Scan) -> Scan:
    """Without const and seq ports that nothing in the body reads."""
    read = {v for n in s.body for v in n.operands} | set(s.needed)
    kept = [p for p in s.ports if not isinstance(p, (Const, Seq)) or p.inner in read]
    return replace(s, ports=tuple(kept))


__all__ = ["FEWEST_STEPS", "is_anchor", "only_read", "split_loops"]
