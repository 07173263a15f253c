"""`try` and `with`; exceptions and the lines they name."""

# ruff: noqa: F821, F841, F842, E731, B007, B023, UP037, F632, B006, B008, B018, B020, I001, UP032
import contextlib

from tests.dy2st.convert.convert_cases import Box, Manager, case, log


@case((0,), (1,), (2,))
def try_return(x):
    try:
        if x == 1:
            return "one"
        log(1 // x)
    except ZeroDivisionError as e:
        log(e)
        return "zero"
    else:
        log("else")
    finally:
        log("finally")
    return "end"


@case(([1, 2, 0, 4],), ([1, 9, 3],), ([1, 8, 3],), ([1],))
def jumps_in_try(xs):
    for x in xs:
        try:
            log(x)
            if x == 9:
                break
            if x == 8:
                return "eight"
            y = 1 // x
            if x == 1:
                continue
            log("tail", y)
        except ZeroDivisionError:
            log("zero")
            continue
        else:
            log("else")
        finally:
            log("finally")
        log("after")
    return "end"


@case(([1, 0, 2],), ([5],))
def jumps_in_handler(xs):
    out = []
    for x in xs:
        try:
            out.append(10 // x)
        except ZeroDivisionError:
            break
        finally:
            out.append("f")
    else:
        out.append("else")
    return out


@case((0,), (1,))
def return_value_before_finally(x):
    y = [x]
    try:
        return y
    finally:
        y = "other"
        log(y)


@case(([1, 2, 3],))
def loop_in_finally(xs):
    try:
        s = 0
    finally:
        for x in xs:
            if x == 2:
                break
            s += x
    return s


@case((0,), (1,))
def exception_leaves_loop(x):
    n = 0
    try:
        for i in range(5):
            n = i
            k = i * 2
            if i == 3 and x:
                raise KeyError(i)
            n = -i
    except KeyError:
        return n, k
    return n, i


@case((0,), (1,))
def exception_in_branch(x):
    y = "before"
    try:
        if x:
            y = "in"
            1 // 0
            y = "out"
        else:
            y = "else"
    except ZeroDivisionError as e:
        log(y, str(e))
    return y


@case((0,), (1,))
def bare_raise(x):
    try:
        try:
            1 // x
        except ZeroDivisionError:
            if not x:
                log("again")
                raise
    except ArithmeticError as e:
        return type(e).__name__
    return x


@case((0,), (1,), ("a",))
def several_handlers(x):
    try:
        y = 1 // x
    except ZeroDivisionError:
        y = "zero"
    except (TypeError, ValueError) as e:
        y = str(e)
    return y


@case((1,))
def handler_name_goes(x):
    e = "mine"
    for i in range(2):
        try:
            raise ValueError(i)
        except ValueError as e:
            log(str(e))
    return e


@case(([1, 2, 3],), ([7],))
def jumps_in_with(xs):
    for x in xs:
        with Manager(x) as name:
            if x == 2:
                continue
            if x == 7:
                return name
            if x == 3:
                break
            log("body", name)
        log("after")
    return "end"


@case((0,), (1,))
def with_swallows(x):
    y = "a"
    with Manager("m", swallow=True), contextlib.suppress(KeyError):
        y = "b"
        1 // x
        y = "c"
    return y


@case((1,))
def with_stores(x):
    b, d = Box(), {}
    with Manager("m") as b.x, Manager("n") as d["k"], Manager("o") as o:
        log(b, d, o)
    return b, d


@case(())
def with_unpacks():
    with contextlib.nullcontext((1, [2, 3])) as (a, [b, *c]):
        return a, b, c


@case((1,), (2,), (0,))
def nested_try(x):
    try:
        try:
            if x == 1:
                raise KeyError("k")
            if x == 2:
                raise ValueError("v")
        finally:
            log("inner")
        return "fine"
    except KeyError:
        return "key"
    finally:
        log("outer")


@case((0,))
def error_in_loop(x):
    total = 0
    for i in range(3):
        if i == 2:
            total += 1 // x
    return total


@case((0,))
def error_in_callee(x):
    def inner(y):
        while True:
            y -= 1
            if y < -2:
                raise RuntimeError("deep")

    for _ in range(2):
        inner(x)


@case((Box(x=1),))
def error_in_attribute(b):
    if b:
        return b.x.missing


@case(([1],))
def error_in_index(xs):
    while xs:
        xs[5] += 1


@case((3,))
def error_in_iterable(n):
    for x in n:
        log(x)


@case((3,))
def error_in_test(n):
    while n < "a":
        log(n)


@case((3,))
def error_in_store(n):
    for i in range(n):
        n.x = i


@case((3,))
def error_in_boolean(n):
    return n > 2 and n / 0


@case((3,))
def error_chained(n):
    try:
        n.x
    except AttributeError as e:
        if n:
            raise ValueError("outer") from e
