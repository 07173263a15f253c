"""Stores, the order of evaluation, operators that choose."""

# ruff: noqa: F821, F841, F842, E731, B007, B023, UP037, F632, B006, B008, B018, B020, I001, UP032
from tests.dy2st.convert.convert_cases import Box, case, log


@case(())
def order_of_stores():
    b, xs, d = Box(x=0), [0, 1, 2], {}
    log(b).x = log(5)
    log(xs)[log(1)] = log("v")
    log(d)[log("k")] = log(xs)[log(0)] = log("two")
    log(b).x, log(xs)[log(2)], (log(d)[log("n")], *b.rest) = log((1, 2, (3, 4, 5)))
    return b, xs, d


@case(())
def order_of_augmented():
    b, xs = Box(x=[1]), [1, 2, 3]
    log(b).x += log([2])
    log(xs)[log(1)] += log(10)
    log(xs)[log(0) : log(2)] *= log(2)
    y = x = [0]
    x += log([1])
    return b, xs, x is y, y


@case(())
def order_of_calls():
    def f(*a, **k):
        return a, k

    return log(f)(log(1), *log((2, 3)), k=log(4), **log({"j": 5}))


@case(())
def index_then_name():
    a = [0, 1]
    i = 0
    i, a[i] = 1, "x"
    a[i], i = "y", 5
    return a, i


@case((2,))
def every_operator(x):
    y = x + 40
    y += 1
    y -= 2
    y *= 3
    y //= 2
    y %= 50
    y **= 2
    y <<= 3
    y >>= 1
    y |= 1
    y ^= 7
    y &= 0xFFF
    y /= 4
    return y


@case((Box(x=1),))
def aug_with_walrus(b):
    c = b
    b.x += (b := Box(x=5)).x
    return b, c


@case(())
def annotated():
    x: int = 3
    y: int
    b = Box()
    b.x: "no" = 4
    for i in range(2):
        z: "int" = i
    return x, b, z


@case(([1, 2, 3, 4, 5],))
def slices(xs):
    xs[1:3] = [9]
    return xs[::2], xs[-1], xs[:2], xs[slice(1, None)]


@case(((1, 2, 3),))
def unpacking(xs):
    a, *b = xs
    *c, d = xs
    [e, (f)] = 1, 2
    (g,) = h = [7]
    return [*b, *c, a], {**{"a": 1}, "b": d}, {*b}, e, f, g, h


@case(((1, 2, 3),), ((1,),))
def unpack_error(xs):
    b = Box()
    a, b.x = xs
    return a


# Operators that choose


@case((0, 0), (0, 1), (1, 0), (1, 1))
def boolean(a, b):
    log(log(a) and log(b))
    log(log(a) or log(b) or log("c"))
    return not (a and b), not a and not b or a


@case((1, 2, 3), (3, 2, 1), (1, 1, 1), (1, 3, 2))
def chained(a, b, c):
    log(log(a) < log(b) < log(c))
    log(log(a) <= log(b) <= log(c) != log(7) > log(0))
    return a == b == c, a < b > c, a in [a, b] in [[a, b]], 1 < b <= 2


@case((1,), (0,))
def conditional(x):
    return log("a") if log(x) else log("b")


@case((None,), (1,), ([],))
def identity(x):
    y = x
    return x is None, x is not None, x is y, x is not y, x is True, x is [] is x


@case((1,), (9,))
def membership(x):
    return x in [1, 2], x not in (1, 2), x in {1: 2} and x not in set()


@case(([3, 2, 1],), ([],))
def walrus_in_while(xs):
    while (n := len(xs)) > 1 and (m := xs.pop()) < 5:
        log(n, m)
    return n


@case(([1, 2, 0, 3],), ([0],))
def walrus_not_none(xs):
    it = iter(xs)
    while (x := next(it, None)) is not None and x:
        y = x
        log(y)
    return x


@case((3,), (0,))
def walrus_in_branches(n):
    if (a := n) and (b := a + 1) > 2:
        return a, b
    c = (d := 5) if a else (e := 6)
    f = a or (g := c) or 1
    return a, c, f, (d if n else e)


@case(([1, 2, 3],))
def walrus_in_comprehension(xs):
    ys = [y for x in xs if (y := x * 2) > 2 and y]
    for x in xs:
        zs = [z := x + v for v in xs]
    return ys, y, zs, z


@case((1,), (0,), (None,))
def asserts(x):
    assert x is not None
    assert x, f"message {log(x)}"
    return x


@case((3, 4))
def fstrings(a, b=2):
    for i in range(2):
        s = f"{a!r:>5} {b + i} {max(a, b)} {i=}"
    return s
