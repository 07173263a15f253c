"""Random programs about storage: values of few types, so that one often takes the place of another.

Joins of new pieces, views of values that die, parts that are made from the part that they replace,
branches that give one of two inputs, states that swap, inputs that get each other's values.
Used by tests/executor/plan/test_random_places.py and scripts/fuzz/places.py.
"""

from __future__ import annotations

from typing import Any

from executor.segmented.partition import growing
from ir.program import (
    Builder,
    Carry,
    Cond,
    Const,
    Fused,
    Input,
    Join,
    Program,
    Scan,
    Seq,
    Stack,
    Value,
)
from ir.types import F64, I64, Size, Type
from ir.verifier import verify
from tests.executor.test_random_programs import Generator

T = Size.named("T")
SHAPES = [(2,), (4,), (2, 2), (2, 4), (4, 2), (T, 2), (4,), (2, 2)]
NAMES = ("add", "subtract", "multiply", "maximum")


def native_places(seed: int) -> Program:
    """The first program from `seed` on, in steps of a million, that needs no segments."""
    while growing((p := Places(seed).program()).ops):
        seed += 1_000_000
    return p


class Places(Generator):
    """As `Generator`, with a pool in which newer values are likelier to be chosen."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.dtype, self.sizes, self.control = F64, {"T"}, True

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def choice(self, items: Any) -> Any:
        if not len(items):
            raise LookupError("nothing fits")
        return items[int(len(items) * self.rng.random() ** 0.4)]

    def of(self, pool: list[Value], t: Type) -> Value:
        return self.choice([v for v in pool if v.type == t])

    def known(self, pool: list[Value]) -> list[Value]:
        """Values with axes, none of which is empty or has a named size."""
        found = [v for v in pool if v.type.dtype == F64 and v.type.ndim and not v.type.names]
        return [v for v in found if 0 not in v.type.shape]

    def program(self) -> Program:
        inputs = [Value(Type(F64, s), f"x{k}") for k, s in enumerate(SHAPES)]
        inputs += [Value(Type(I64), "i"), Value(Type(I64, (3,)), "n")]
        pool, b = list(inputs), Builder()
        self.fill(b, pool, 0, int(self.rng.integers(4, 14)))
        writes = []
        for x in inputs[:8]:
            if self.chance(0.4):
                own = self.chance(0.7) and not x.type.names
                new = self.next_of(b, pool, [x]) if own else x
                writes.append((x, self.of(pool, x.type) if new is x else new))
        outputs = [self.choice(pool) for _ in range(int(self.rng.integers(1, 5)))]
        ports = tuple(Input(v, "arg", v.name) for v in inputs)
        requires = tuple(b.requires)
        return verify(Program("p", ports, tuple(b.ops), tuple(outputs), tuple(writes), requires))

    def fill(self, b: Builder, pool: list[Value], depth: int, count: int) -> None:
        makers = [self.map, self.map, self.map, self.look, self.look, self.store, self.store]
        makers += [self.store, self.join, self.join, self.parts, self.again, self.product]
        makers += [self.moved, self.fused, self.running, self.literal, self.whole_and_part]
        makers += [self.beside, self.beside]
        deep = [self.branch, self.crosswise, self.crosswise, self.loop, self.turn, self.turn]
        deep += [self.loop, self.scan]
        for _ in range(count):
            maker = int(self.rng.integers(len(makers) + len(deep) * (depth < 2)))
            sizes = set(self.sizes)
            try:
                if maker < len(makers):
                    made = makers[maker](b, pool)
                else:
                    made = deep[maker - len(makers)](b, pool, depth)
            except LookupError:
                self.sizes = sizes
                continue
            made = [made] if isinstance(made, Value) else list(made or ())
            pool += [v for v in made if v.type.ndim < 4]

    # ------------------------------------------------------------ ops
    def map(self, b: Builder, pool: list[Value]) -> Any:
        x = self.choice(self.floats(pool))
        if self.chance(0.3):
            return b.tanh(x)
        y = self.of(pool, x.type) if self.chance(0.6) else self.partner(pool, x)
        return getattr(b, NAMES[int(self.rng.integers(4))])(x, b.tanh(y) if self.chance(0.3) else y)

    def literal(self, b: Builder, pool: list[Value]) -> Any:
        x = self.choice(self.known(pool))
        return b.full(value=float(self.rng.integers(3)), shape=x.type.shape, dtype=F64)

    def running(self, b: Builder, pool: list[Value]) -> Any:
        x = self.choice(self.known(pool))
        if self.chance(0.5):
            return b.cumsum(x, axis=int(self.rng.integers(x.type.ndim)))
        return b.sum(x, axes=(int(self.rng.integers(x.type.ndim)),), keepdim=self.chance(0.5))

    def product(self, b: Builder, pool: list[Value]) -> Any:
        x = self.choice([v for v in self.known(pool) if v.type.ndim == 2])
        rows = x.type.shape[1]
        y = self.choice(
            [v for v in self.known(pool) if v.type.shape in ((rows,), (rows, 2), (rows, 4))]
        )
        z = b.matmul(x, y)
        if self.chance(0.3):
            return z
        other = self.of(pool, z.type)
        if other.type.ndim and self.chance(0.4):
            pool.append(self.stored(b, pool, other))
        return b.add(z, other)

    def moved(self, b: Builder, pool: list[Value]) -> Any:
        """Elements by indices: a gather, or a write that adds."""
        x = self.choice(self.known(pool))
        index = self.index(b, pool, x.type.shape[0])
        if self.chance(0.5):
            return b.gather(x, index, axis=0)
        y = self.of(pool, x.type.with_shape((3, *x.type.shape[1:]))) if self.chance(0.2) else None
        if y is None:
            y = b.gather(self.of(pool, x.type), index, axis=0)
        how = "add" if self.chance(0.5) else "assign"
        return b.scatter_nd(x, y, index, axis=0, combine=how)

    def index(self, b: Builder, pool: list[Value], n: Any) -> Value:
        index = self.choice([v for v in pool if v.type == Type(I64, (3,))])
        return b.remainder(index, b.full(value=n, dtype=I64))

    def at(self, b: Builder, pool: list[Value], n: Any) -> Value:
        number = self.choice([v for v in pool if v.type == Type(I64)])
        return b.remainder(number, b.full(value=n, dtype=I64))

    def look(self, b: Builder, pool: list[Value]) -> Any:
        """A view."""
        return self.view_of(b, pool, self.choice(self.known(pool)))[1]

    def view_of(self, b: Builder, pool: list[Value], x: Value) -> tuple[Any, Value]:
        """A view of `x`, and what writes its part."""
        axis = int(self.rng.integers(x.type.ndim))
        n = x.type.shape[axis]
        kind = int(self.rng.integers(8))
        if kind == 0 and x.type.ndim > 1:
            perm = tuple(map(int, self.rng.permutation(x.type.ndim)))
            back = tuple(perm.index(k) for k in range(len(perm)))
            return (lambda y: b.transpose(y, perm=back)), b.transpose(x, perm=perm)
        if kind == 1:
            n = size(x.type.shape)
            shape = self.choice([(n,), *(s for s in SHAPES if size(s) == n)])
            return (lambda y: b.reshape(y, shape=x.type.shape)), b.reshape(x, shape=shape)
        if kind == 2:
            at = self.at(b, pool, n)
            return (lambda y: b.set_dynamic_index(x, y, at, axis=axis)), b.dynamic_index(
                x, at, axis=axis
            )
        if kind == 3 and n > 1:
            at, length = self.at(b, pool, 2), n - 1
            view = b.dynamic_slice(x, at, axis=axis, length=length)
            return (lambda y: b.set_dynamic_slice(x, y, at, axis=axis)), view
        if kind == 4:
            k = int(self.rng.integers(n))
            return (lambda y: b.set_index(x, y, axis=axis, index=k)), b.index(x, axis=axis, index=k)
        if kind == 5 and x.type.ndim == 1 and n > 3:
            a = {"strides": (1, 2), "offset": int(self.rng.integers(n - 3))}
            view = b.strided(x, shape=(2, 2), **a)
            return (lambda y: b.set_strided(x, y, **a)), view
        start, length, step = self.span(n)
        view = b.slice(x, axis=axis, start=start, length=length, step=step)
        return (lambda y: b.set_slice(x, y, axis=axis, start=start, step=step)), view

    def span(self, n: int) -> tuple[int, int, int]:
        length = max(1, n // int(self.rng.integers(1, 3)))
        if self.chance(0.4):
            return n - 1, length, -1
        return int(self.rng.integers(n - length + 1)), length, 1

    def store(self, b: Builder, pool: list[Value]) -> Any:
        return self.stored(b, pool, self.choice(self.known(pool)))

    def stored(self, b: Builder, pool: list[Value], x: Value) -> Value:
        """Parts of a value are replaced, often by what is made of the parts themselves; in between,
        it may be read. What a part is made of may be seen by others, too."""
        if self.chance(0.4):
            x = b.tanh(x)
        for _ in range(int(self.rng.integers(1, 3))):
            write, part = self.view_of(b, pool, x)
            if self.chance(0.25):
                pool.append(part)
            if self.chance(0.3):
                part = self.elsewhere(b, pool, x, part)
            y = self.part(b, pool, x, part)
            for _ in range(int(self.rng.integers(0, 3))):
                self.read(b, pool, x)
                y = self.changed_part(b, pool, y)
            if self.chance(0.15):
                pool.append(y)
            made = write(y)
            if made.type != x.type:
                return made
            x = made
        return x

    def elsewhere(self, b: Builder, pool: list[Value], x: Value, part: Value) -> Value:
        """Another part of `x` of the same type, if a few attempts find one."""
        found = [self.view_of(b, pool, x)[1] for _ in range(3)]
        return next((v for v in found if v.type == part.type), part)

    def part(self, b: Builder, pool: list[Value], x: Value, part: Value) -> Value:
        """A value of the type of `part`, which is a view of `x`."""
        kind = int(self.rng.integers(8))
        if kind < 2:
            return b.tanh(part)
        if kind == 2:
            return b.add(part, self.of([*pool, part], part.type))
        if kind == 3 and part.type.ndim:
            return self.fused_two(b, part)[1]
        if kind == 4:
            return b.multiply(self.of([*pool, part], part.type), part)
        if kind == 5 and part.type.ndim:
            pieces = self.parts_of(b, part)
            return b.concat(*pieces[::-1], axis=0) if pieces[0].type == pieces[1].type else part
        if kind == 6:
            return b.scale(part, scale=0.5)
        return self.of([*pool, part], part.type)

    def parts_of(self, b: Builder, x: Value) -> list[Value]:
        n = x.type.shape[0]
        return [b.tanh(q) for q in b.split(x, axis=0, sections=(n // 2, n - n // 2))]

    def changed_part(self, b: Builder, pool: list[Value], y: Value) -> Value:
        if y.type.ndim and self.chance(0.6):
            write, part = self.view_of(b, pool, y)
            made = write(b.tanh(part))
            return made if made.type == y.type else y
        return b.tanh(y) if self.chance(0.4) else y

    def read(self, b: Builder, pool: list[Value], x: Value) -> None:
        kind = int(self.rng.integers(5))
        if kind == 0:
            pool.append(b.tanh(x))
        elif kind == 1:
            pool.append(self.view_of(b, pool, x)[1])
        elif kind == 2:
            pool.append(b.sum(x, axes=(0,), keepdim=False))

    def fused_two(self, b: Builder, x: Value) -> list[Value]:
        """One kernel with two results, one of which the other is made of."""
        p, c = Const(Value(x.type), x), Builder()
        q = c.scale(p.inner, scale=0.5)
        outs = tuple((Value(x.type), v) for v in (q, c.tanh(q)))
        b.append(Fused(x.type.shape, (p,), tuple(c.ops), outs))
        return [outer for outer, _ in outs]

    def whole_and_part(self, b: Builder, pool: list[Value]) -> Any:
        """What one kernel makes is stored in what it makes, too."""
        one, two = self.fused_two(b, self.choice(self.known(pool)))
        axis = int(self.rng.integers(one.type.ndim))
        n = one.type.shape[axis]
        start, step = (n - 1, -1) if self.chance(0.5) else (0, 1)
        return b.set_slice(one, two, axis=axis, start=start, step=step)

    def again(self, b: Builder, pool: list[Value]) -> Any:
        """Several reads after a write: of the old value, of views of it and of the new one."""
        x = self.choice(self.known(pool))
        write, part = self.view_of(b, pool, x)
        new = write(b.tanh(part))
        reads = [x, new, part]
        out = [b.add(q, self.partner(pool, q)) for q in reads if self.chance(0.6)]
        return [*out, new]

    def join(self, b: Builder, pool: list[Value]) -> Any:
        """Pieces side by side, made just before or there already."""
        first = self.choice([v for v in self.known(pool) if v.type.ndim < 3])
        count = int(self.rng.integers(1, 4))
        pieces = [first, *(self.of(pool, first.type) for _ in range(count))]
        pieces = [self.piece(b, pool, v) if self.chance(0.6) else v for v in pieces]
        if self.chance(0.5) and first.type.ndim < 2:
            made = b.stack(*pieces, axis=int(self.rng.integers(first.type.ndim + 1)))
        else:
            made = b.concat(*pieces, axis=int(self.rng.integers(first.type.ndim)))
        return [*(p for p in pieces if self.chance(0.15)), made]

    def piece(self, b: Builder, pool: list[Value], v: Value) -> Value:
        kind = int(self.rng.integers(4))
        if kind == 0:
            return b.tanh(v)
        if kind == 1:
            return b.add(v, self.of(pool, v.type))
        if kind == 2:
            write, part = self.view_of(b, pool, v)
            made = write(b.tanh(part))
            return made if made.type == v.type else b.square(v)
        return b.reshape(b.tanh(b.reshape(v, shape=(size(v.type.shape),))), shape=v.type.shape)

    def beside(self, b: Builder, pool: list[Value]) -> Any:
        """A value and the same memory in another order are operands of one op."""
        x = b.tanh(self.choice(self.known(pool)))
        n = x.type.shape[0]
        y = b.slice(x, axis=0, start=n - 1, length=n, step=-1)
        if x.type.ndim == 2 and x.type.shape[1] == n and self.chance(0.5):
            y = b.transpose(x, perm=(1, 0))
        return b.add(*((x, y) if self.chance(0.5) else (y, x)))

    def parts(self, b: Builder, pool: list[Value]) -> Any:
        x = self.choice([v for v in self.known(pool) if max(v.type.shape) > 1])
        axis = self.choice([k for k, n in enumerate(x.type.shape) if n > 1])
        n = x.type.shape[axis]
        one, two = b.split(x, axis=axis, sections=(n // 2, n - n // 2))
        return [one, b.tanh(two)] if self.chance(0.5) else [one, two]

    # ------------------------------------------------------------ branches
    def branch(self, b: Builder, pool: list[Value], depth: int) -> Any:
        """Results are updates of an operand, one of two operands, or both of them crosswise."""
        test = self.test(b, pool)
        given = list(dict.fromkeys(self.choice(pool) for _ in range(4)))
        same = self.floats(pool)
        given += [v for v in {self.of(same, q.type) for q in given if q in same} - {*given}]
        given += [self.choice(given)] * self.chance(0.1)
        ins = [Const(Value(v.type), v) for v in given]
        sides, outside = [], set(self.sizes)
        for _ in range(2):
            side, own = Builder(), [p.inner for p in ins]
            if self.chance(0.7):
                self.fill(side, own, depth + 1, int(self.rng.integers(1, 4)))
            own += [self.stored(side, own, v) for v in self.known(own)[:2] if self.chance(0.4)]
            self.sizes = set(outside)
            sides.append((side, [v for v in own if v.type.names <= outside]))
        (then, mine), (orelse, yours) = sides
        outs = []
        for _ in range(int(self.rng.integers(1, 5))):
            v = self.choice(mine)
            w = self.of(yours, v.type)
            outs.append(Join(Value(v.type), v, w))
        for p in ins:
            if self.chance(0.4):
                outs.append(Join(Value(p.inner.type), p.inner, self.of(yours, p.inner.type)))
        b.append(Cond(test, tuple(ins), tuple(then.ops), tuple(orelse.ops), tuple(outs)))
        return [j.outer for j in outs]

    def alike(self, b: Builder, pool: list[Value]) -> list[Value]:
        """Two or three values of one type, most of them new."""
        x = self.choice([v for v in self.known(pool) if v.type.ndim < 3])
        found = [x, *(self.of(pool, x.type) for _ in range(int(self.rng.integers(1, 3))))]
        return list(dict.fromkeys(b.tanh(v) if self.chance(0.8) else v for v in found))

    def next_of(self, b: Builder, own: list[Value], given: list[Value]) -> Value:
        """One of the values, what is made of one, or of one in another order."""
        t = given[0].type
        x = self.choice(given[::-1] if self.chance(0.8) else [v for v in own if v.type == t])
        kind = int(self.rng.integers(7))
        if kind == 0:
            return b.tanh(x)
        if kind == 1:
            return b.add(x, self.choice(given))
        if kind == 2 and x.type.shape[0] % 2 == 0:
            return b.concat(*self.parts_of(b, x)[::-1], axis=0)
        if kind in (3, 4):
            made = self.stored(b, own, x)
            return made if made.type == x.type else x
        return x

    def crosswise(self, b: Builder, pool: list[Value], depth: int) -> Any:
        """Each side hands values of one type on, changed or not, in an order of its own."""
        test, given = self.test(b, pool), self.alike(b, pool)
        ins = [Const(Value(v.type), v) for v in given]
        inner = [p.inner for p in ins]
        count = int(self.rng.integers(1, len(ins) + 3))
        sides: list[Any] = []
        for _ in range(2):
            side, own = Builder(), list(inner)
            out = [self.next_of(side, own, inner) for _ in range(count)]
            sides.append((side, out))
        (then, mine), (orelse, yours) = sides
        outs = tuple(Join(Value(v.type), v, w) for v, w in zip(mine, yours) if v.type == w.type)
        b.append(Cond(test, tuple(ins), tuple(then.ops), tuple(orelse.ops), outs))
        return [j.outer for j in outs]

    # ------------------------------------------------------------ loops
    def turn(self, b: Builder, pool: list[Value], depth: int) -> Any:
        """States of one type that change places, changed or not."""
        given = self.alike(b, pool)
        index, body = Value(Type(I64), "t"), Builder()
        inner = [Value(v.type) for v in given]
        consts = [Const(Value(v.type), v) for v in given if self.chance(0.15)]
        own = [index, *inner, *(p.inner for p in consts)]
        after = [self.next_of(body, own, inner) for _ in inner]
        carries = [Carry(*q, Value(q[0].type)) for q in zip(inner, given, after)]
        ports: list[Any] = [*consts, *carries]
        for v in [self.choice([*after, *inner])] if self.chance(0.5) else []:
            ports.append(Stack(Value(v.type.with_shape((3, *v.type.shape))), v, 0))
        scan = Scan(index, 3, tuple(ports), tuple(body.ops))
        b.append(scan)
        return scan.results

    def trip(self) -> Any:
        return self.choice([T, 0, 1, 2, 3, 4])

    def limit(self, b: Builder, pool: list[Value]) -> Value:
        """How many iterations a `while` may run, where data says so."""
        return self.at(b, pool, 4)

    def loop(self, b: Builder, pool: list[Value], depth: int) -> Any:
        """States that are updated, handed over, swapped; slices that are written and stacked."""
        trip = (T, 1, 2, 3, 4)[int(self.rng.integers(5))]
        index = Value(Type(I64), "t")
        ports: list[Any] = []
        for v in dict.fromkeys(self.choice(pool) for _ in range(int(self.rng.integers(1, 4)))):
            ports.append(Const(Value(v.type), v))
        for v in self.floats(pool):
            if v.type.ndim and v.type.shape[0] == trip and self.chance(0.5):
                ports.append(Seq(Value(v.type.with_shape(v.type.shape[1:])), v, 0, 0, 1))
        state = [self.choice(self.floats(pool)) for _ in range(int(self.rng.integers(1, 3)))]
        state += [self.of(pool, v.type) for v in state if self.chance(0.6)]
        inner = [(Value(v.type), v) for v in state]
        body, own = Builder(), [index, *(p.inner for p in ports), *(v for v, _ in inner)]
        outside = set(self.sizes)
        self.fill(body, own, depth + 1, int(self.rng.integers(1, 6)))
        self.sizes, own = outside, [v for v in own if v.type.names <= outside]
        for v, init in inner:
            after = self.of(own, v.type)
            if self.chance(0.35) and v.type.ndim and not v.type.names:
                made = self.stored(body, own, v)
                after = made if made.type == v.type else after
            ports.append(Carry(v, init, after, Value(v.type) if self.chance(0.85) else None))
        for _ in range(int(self.rng.integers(0, 3))):
            v = self.choice(self.floats(own))
            if v.type.ndim < 3:
                ports.append(Stack(Value(v.type.with_shape((trip, *v.type.shape))), v, 0))
        scan = Scan(index, trip, tuple(ports), tuple(body.ops))
        b.append(scan)
        return scan.results


def size(shape: Any) -> Any:
    out: Any = 1
    for n in shape:
        out = out * n
    return out
