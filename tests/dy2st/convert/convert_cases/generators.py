"""Generator functions, and variables of the module and of functions around the converted one."""

# ruff: noqa: F821, F841, F842, E731, B007, B023, B018, B020, PLW0603
from tests.dy2st.convert.convert_cases import case, log


def numbers(n):
    for i in range(n):
        if i == 1:
            continue
        if i == 4:
            return "left"
        for k in range(3):
            if k == i:
                break
            log(k)
        yield i, k
    else:
        yield "else"
    return "end"


def forever(start):
    while True:
        got = yield start
        if got is not None and got > 0 or start > 5:
            start += got or 1
        else:
            start += 1


def delegating(n):
    left = yield from numbers(n)
    log(left)
    try:
        yield (yield left)
    except KeyError as e:
        yield str(e)
    finally:
        log("closed")


@case((0,), (2,), (6,))
def iterates_over_generators(n):
    out = [x for x in numbers(n)]
    out += list(numbers(n))
    for i, x in enumerate(numbers(n)):
        out.append((i, x))
        if i == 2:
            break
    return out, dict(zip("abc", numbers(n))), [*numbers(n)], sum(1 for _ in numbers(n))


@case((2,), (6,))
def sends_and_throws(n):
    g = forever(n)
    out = [next(g), g.send(3), g.send(-1), next(g)]
    g.close()
    d = delegating(n)
    for x in d:
        out.append(x)
        if x in ("left", "end"):
            out.append(d.throw(KeyError("k")))
    return out


@case((3,))
def generator_closure(n):
    total = 0

    def gen():
        nonlocal total
        for i in range(n):
            total += i
            x = yield total
            while total < 2:
                total += 1
        assert (yield "ask") is None, "asked"

    seen = []
    for v in gen():
        seen.append((v, total))
    return seen, total


@case((4,))
def yields_in_expressions(n):
    def gen():
        a = (yield 1) or (yield 2)
        b = (yield 3) if a else (yield 4)
        c = [0]
        c[0] += (yield b) < 2 < (yield 5)
        with log(Manager()) as m:
            yield m
        match n:
            case 4:
                yield "four"
        return c

    return list(gen())


class Manager:
    def __enter__(self):
        log("in")
        return "m"

    def __exit__(self, *error):
        log("out")


class Tree:
    def __init__(self, value, kids=()):
        self.value, self.kids = value, kids

    def walk(self):
        yield self.value
        for kid in self.kids:
            yield from kid.walk()


@case((3,))
def generator_method(n):
    return list(Tree(n, [Tree(1), Tree(2, [Tree(5)])]).walk())


COUNT, PAIR = 0, (1, 2)


@case((3,), (0,))
def assigns_globals(n):
    global COUNT, PAIR
    COUNT = 0
    for COUNT in range(n):
        a, PAIR = COUNT, (COUNT, n)
    COUNT += 10
    while (COUNT := COUNT + 1) < 14:
        if COUNT == 12:
            PAIR = [COUNT for _ in range(2)]

    def inner():
        global COUNT
        COUNT += 1
        return COUNT

    return inner(), COUNT, PAIR


@case((3,))
def binds_globals_by_statements(n):
    global thing, sqrt, Named

    def thing(k):
        return k + n

    from math import sqrt

    class Named:
        x = n

    out = thing(2), sqrt(4), Named.x
    with Manager() as thing:
        out = *out, thing
    del thing
    return out, "thing" in globals()


def counter():
    count, seen = 0, []

    def bump(n):
        nonlocal count, seen
        count, seen = 0, []
        for i in range(n):
            count += i
            if count > 1:
                seen = [*seen, count]
        return count, seen

    return bump


bump = case((3,), (0,), (3,))(counter())


@case((2,))
def comprehensions_as_loops(n):
    rows = [[(i, j) for j in range(i) if j % 2 == 0 if j < 3] for i in range(n + 3) if i]
    flat = [x for row in rows for x in row]
    keep = i = "outer"
    named = [last := k for k in range(3)]
    calls = [f() for f in [lambda k=k: k * n for k in range(3)]]
    return rows, flat, i, named, last, calls, flat and [x for x in flat][0], [] or [n for _ in "ab"]
