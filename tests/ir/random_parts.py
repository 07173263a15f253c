"""Random writes to parts of parts of a tensor, as `functionalize` leaves them, with reads between.

A write goes through up to four views: each of them is taken out of the one before, the last one is
changed, and each is stored back. Everything may be in a loop that carries the tensor.
"""

from __future__ import annotations

import numpy as np

import ir
from ir.opdef import view_rule
from ir.program import Builder, Carry, Const, Input, Last, Program, Scan, Seq, Stack, Value
from ir.types import F32, I64, Type

SHAPES = ((4, 6), (3, 4, 2), (6, 6), (2, 3, 4, 2), (1, 4, 3))


class Parts:
    """`given` are values of the block: numbers to store, and positions."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def below(self, n: int) -> int:
        return int(self.rng.integers(n))

    def program(self) -> Program:
        shape = SHAPES[self.below(len(SHAPES))]
        x, y, at = Value(Type(F32, shape), "x"), Value(Type(F32, (3,)), "y"), Value(Type(I64), "at")
        b = Builder()
        if self.chance(0.6):
            last, seen = self.loop(b, x, y, at)
        else:
            last, seen = self.writes(b, x, b.index(y, axis=0, index=0), at)
        outputs = (*seen[:2], b.scale(last, scale=2.0)) if self.chance(0.5) else (*seen[:1], last)
        writes = ((x, last),) if self.chance(0.7) else ()
        inputs = tuple(Input(v, "arg", v.name) for v in (x, y, at))
        return ir.verify(Program("p", inputs, tuple(b.ops), outputs, writes, tuple(b.requires)))

    def loop(self, b: Builder, x: Value, y: Value, at: Value) -> tuple[Value, list[Value]]:
        init = x if self.chance(0.7) else b.scale(x, scale=0.5)
        inner, number, place = Value(x.type, "c"), Value(Type(F32), "v"), Value(Type(I64), "i")
        index, body = Value(Type(I64), "t"), Builder()
        spot = index if self.chance(0.5) else place
        new, seen = self.writes(body, inner, number, spot)
        last = Value(x.type, "last")
        ports = [Const(place, at), Seq(number, y, 0), Carry(inner, init, new, last)]
        outs = [last]
        for v in seen[:1]:
            kind = Stack(Value(v.type.with_shape((3, *v.type.shape))), v, 0)
            ports.append(kind if self.chance(0.6) else Last(Value(v.type), v))
            outs.append(ports[-1].outer)
        ports.sort(key=lambda p: (Const, Seq, Carry, Stack, Last).index(type(p)))
        b.append(Scan(index, 3, tuple(ports), tuple(body.ops)))
        return last, outs[1:]

    def writes(self, b: Builder, x: Value, number: Value, at: Value) -> tuple[Value, list[Value]]:
        """The tensor after some writes, and what was read in between."""
        seen: list[Value] = []
        for _ in range(1 + self.below(3)):
            steps = self.views(b, x, at)
            new = self.changed(b, steps[-1][0], number, x)
            if self.chance(0.3):
                seen.append(b.scale(steps[self.below(len(steps))][0], scale=3.0))
            for k in range(len(steps) - 1, 0, -1):
                name, operands, attrs = steps[k][1:]
                new = view_rule(name).unview(b, steps[k - 1][0], new, *operands, **attrs)
                if self.chance(0.1):
                    seen.append(b.scale(new, scale=4.0))
            x = new
            if self.chance(0.2):
                seen.append(b.scale(x, scale=5.0))
        return x, seen

    def changed(self, b: Builder, part: Value, number: Value, x: Value) -> Value:
        new = b.expand(number, shape=part.type.shape)
        kind = self.below(4)
        if kind == 0:
            return b.add(part, new)
        if kind == 1 and part.type.ndim and part.type.shape[0] > 1:
            index = b.reshape(b.iota(n=2, dtype=I64), shape=(2,))
            two = b.expand(number, shape=(2, *part.type.shape[1:]))
            return b.scatter_nd(part, two, index, axis=0)
        if kind == 2 and part.type.ndim == 2 and x.type.shape == part.type.shape:
            return b.add(b.transpose(x, perm=(1, 0)), new) if x.type.shape == (6, 6) else new
        return new

    def views(self, b: Builder, x: Value, at: Value) -> list[tuple]:
        """(value, row, its other operands, its attributes) from `x` on."""
        steps: list[tuple] = [(x, "", (), {})]
        for _ in range(1 + self.below(4)):
            v = steps[-1][0]
            name, operands, attrs = self.view(b, v, at)
            if name:
                steps.append((b.emit(name, (v, *operands), attrs)[0], name, operands, attrs))
        return steps

    def view(self, b: Builder, v: Value, at: Value) -> tuple:
        shape, ndim = v.type.shape, v.type.ndim
        kind = self.below(7)
        if ndim == 0:
            return "", (), {}
        axis = self.below(ndim)
        n = shape[axis]
        if kind == 6:
            size = 1 + self.below(n)
            return "unfold", (), {"axis": axis, "size": size, "step": size + self.below(2)}
        if kind == 0:
            return "transpose", (), {"perm": tuple(map(int, self.rng.permutation(ndim)))}
        if kind == 1:
            flat = (int(np.prod(shape)),) if self.chance(0.5) else (shape[0], -1)
            flat = tuple(int(np.prod(shape)) // max(1, shape[0]) if d < 0 else d for d in flat)
            return "reshape", (), {"shape": flat}
        if kind == 2:
            start = self.below(n)
            return "slice", (), {"axis": axis, "start": start, "length": n - start, "step": 1}
        if kind == 3:
            return "index", (), {"axis": axis, "index": self.below(n)}
        if kind == 4 and n >= 3:
            return "dynamic_index", (at,), {"axis": axis}
        if n >= 4:
            return "dynamic_slice", (at,), {"axis": axis, "length": 2}
        return "", (), {}
