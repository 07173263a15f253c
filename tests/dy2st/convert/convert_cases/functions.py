"""Comprehensions, functions, classes, methods, lambdas."""

# ruff: noqa: F821, F841, F842, E731, B007, B023, UP037, F632, B006, B008, B018, B020, I001, UP032
from tests.dy2st.convert.convert_cases import Box, case, log

LEVEL = 3


@case(([1, 2, 3],))
def comprehensions(xs):
    x = "kept"
    a = [x * 2 for x in xs if x > 1]
    b = {x: [y for y in range(x)] for x in xs}
    c = {x % 2 for x in xs}
    d = sum(x * y for x in xs for y in xs if x != y)
    return a, b, c, d, x


@case(([1, 2, 3],))
def lazy_generator(xs):
    k = 1
    g = (x * k for x in xs)
    for i in range(3):
        k = i + 10
    return list(g)


@case((3,))
def closure_sees_loop(n):
    h = 0

    def peek():
        return h

    for h in range(n):
        log(peek())
    return peek(), [f() for f in [lambda: h]]


@case((3,))
def closure_writes(n):
    count = 0

    def bump(by=1):
        nonlocal count
        for _ in range(by):
            count += 1
        if by > 1:
            return
        return count

    for i in range(n):
        bump(i)
        if i == 1:
            log(bump())
    return count


@case((4,))
def lambdas_in_loop(n):
    fs = []
    for i in range(n):
        fs.append(lambda k=i: (k, i))
    return [f() for f in fs]


@case((5,))
def recursion(n):
    if n < 2:
        return n
    return recursion(n - 1) + recursion(n - 2)


@case((5,))
def inner_recursion(n):
    def fact(k):
        if k == 0:
            return 1
        return k * fact(k - 1)

    return fact(n), fact.__name__, fact.__qualname__


@case((1, 2, 3), (1,))
def stars(a, *args, b=2, **kwargs):
    for x in args:
        a += x
        kwargs["n"] = a
    return a, args, b, kwargs


@case((1,), (1, 2))
def defaults(a, b=LEVEL, /, c=4, *, d=5):
    if a:
        b += c
    return a, b, c, d


@case((3,))
def inner_defaults(n):
    def f(a, b=log(n + 1), *, c=[n]):
        while a:
            a -= 1
            c.append(a)
        return b, c

    f(1)
    return f(2)


@case((3,))
def inner_decorator(n):
    def twice(f):
        return lambda *a: (f(*a), f(*a))

    @log
    @twice
    def g(x):
        for i in range(x):
            if i == 1:
                return i
        return x

    return g(n)


@case((3,))
def inner_generator(n):
    def gen(k):
        for i in range(k):
            if i == 1:
                continue
            yield i
        yield from "ab"

    out = []
    for x in gen(n):
        out.append(x)
    return out


@case((2,))
def inner_class(n):
    for i in range(n):

        class P:
            """A point."""

            x = i

            def get(self):
                return self.x, n, i

    return P().get(), P.__qualname__, P.get.__qualname__, P.__doc__


@case((2,))
def imports(n):
    for i in range(n):
        import math
        import os.path as p
        from math import floor, pi as tau
    return math.floor(tau), floor(2.5), p.basename("a/b")


@case((1,), ([1, 2],), ({"k": 3, "z": 1},), (Box(x=4),), ("s",), ([9, 9, 9],))
def matching(x):
    match x:
        case 1 | "s":
            y = "literal"
        case [a, b] if a < b:
            y = a + b
        case {"k": k, **rest}:
            return k, rest
        case Box(x=v):
            y = v
        case [_, *tail] as whole:
            y = (tail, whole)
    return y


class Pair:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __eq__(self, other):
        return (self.a, self.b) == (other.a, other.b)


@case(
    (Pair(1, [2, 3, 4]),), (Pair(2, [2, 4]),), (Pair(3, -1),), (Pair(None, {"k": (1,)}),), ((),),
    (7,), ("s",), ([1, "a"],), ([True, "b"],), ({"k": None, 2: 3},),
)  # fmt: skip
def matching_parts(x):
    a = n = "none"
    match x:
        case Pair(1, [n, *rest, 4]) if rest != [3, 3]:
            return "list", n, rest
        case Pair(a=int(a), b=-1) | Pair(2 as a, [_, 4]):
            return "either", a
        case Pair(b={"k": (n,)}, a=None) if (k := n) > 0:
            return "nested", n, k
        case [True | "x", str() as a]:
            return "bool", a
        case [n, "a"] if n > 5:
            return "guard"
        case [n, _]:
            pass
        case () | []:
            return "empty"
        case {"k": None, **n}:
            return "mapping", n
        case int() as n if n == 8:
            return "eight"
    return a, n


@case(([1, [2], "stop", 3],), ([1, "out"],), ([5],))
def match_in_loop(xs):
    for x in xs:
        match x:
            case "stop":
                break
            case "out":
                return "out"
            case [y]:
                continue
            case _:
                y = x
        log(x, y)
    else:
        return "all"
    return y


@case((LEVEL,))
def reads_globals(n):
    global LEVEL
    for i in range(LEVEL):
        n += LEVEL
    return n


@case((3,))
def uses_locals(n):
    m = 4
    for i in range(2):
        k = i
        seen = eval("n + m + i")
        names = sorted((x, v) for x, v in locals().items() if x in ("n", "m", "i", "k"))
    return seen, names, sorted(x for x in vars() if x[0] != "_" and len(x) == 1)


@case((1,))
def docstring(n):
    """What it is for."""
    for i in range(n):
        if i:
            return i


@case((2,))
def multiple_with_same_flag_names(_break):
    _returned = _item = _value = _body = 0
    for _item in range(5):
        if _item == _break:
            break
        _value += _item
    for _item in range(5):
        if _item == 3:
            return _value, _break, _returned, _item, _body


class Base:
    __slots_like = 1

    def step(self, x):
        return x + 1


class Derived(Base):
    __private = 10

    def __init__(me):
        me.__count = 0

    def run(me, xs):
        for x in xs:
            if x == 4:
                break
            me.__count += super().step(x) + me.__private
            me.__last__ = __class__.__name__
        return me.__count, me.__last__

    def inner(self, x):
        def f(y):
            return super(Derived, self).step(y) if y else self.__hidden(y)

        while x:
            x -= 1
            log(f(x), [s.step(1) for s in [super()]])
        return x

    def __hidden(self, __y):
        for __y in range(__y + 3):
            if __y == 1:
                return __y

    @staticmethod
    def static(*args):
        for a in args:
            if a:
                return a

    @classmethod
    def make(cls, n):
        for _ in range(n):
            new = cls()
            new.run([n])
        return new._Derived__count


METHODS = [
    (Derived.run, ([1, 2],)),
    (Derived.run, ([4],)),
    (Derived.run, ([],)),
    (Derived.inner, (2,)),
    (Derived._Derived__hidden, (1,)),
]
STATIC = [(Derived.static, (0, 5)), (Derived.make.__func__, (Derived, 2))]

PAIR = (lambda x: x + 1 if x else x), (lambda x: [y for y in range(x)])
NESTED = lambda x: lambda y: x + y
TWINS = (lambda x: x and 1), (lambda x: x and 1)
LAMBDAS = [(PAIR[0], (3,)), (PAIR[0], (0,)), (PAIR[1], (3,)), (NESTED(2), (3,)), (TWINS[1], (5,))]
