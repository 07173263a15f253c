"""Branches, returns and loops."""

# ruff: noqa: F821, F841, F842, E731, B007, B023, UP037, F632, B006, B008, B018, B020, I001, UP032
from tests.dy2st.convert.convert_cases import Box, case, log


@case((1,), (-1,), (0,))
def branch(x):
    if x > 0:
        y = "up"
    elif x < 0:
        y = "down"
    else:
        y = "flat"
    return y


@case((1,), (0,))
def branch_without_else(x):
    y = 0
    if x:
        y = x
        z = y
    return y


@case((1,), (0,))
def branch_leaves_unbound(x):
    if x:
        y = 1
    return y


@case((0,), (1,), (2,), (3,))
def early_returns(x):
    if x == 0:
        return "zero"
    if x == 1:
        return "one"
    y = x * 2
    if x == 2:
        return y
    log(y)


@case((0, 0), (0, 1), (1, 0), (1, 1))
def return_deep(a, b):
    if a:
        if b:
            return "both"
        log("a")
    else:
        log("not a")
    log("end")
    return b


@case((0,), (1,), (2,))
def both_branches_return(x):
    if x:
        if x == 1:
            return 1
        else:
            return 2
    else:
        return 3
    log("dead")
    dead = 1


@case((0,), (1,))
def raise_in_branch(x):
    if x:
        raise ValueError(f"bad {x}")
    return x


@case((0,), (1,))
def implicit_none(x):
    if x:
        return
    log("through")


@case((1,))
def unbound_by_dead_code(x):
    if x:
        return unknown
    unknown = 1


@case(())
def code_after_return():
    return log(1)
    return log(2)


# Loops


@case(([1, 2, 3],), ([],))
def accumulate(xs):
    s = 0
    for x in xs:
        s += x
    return s


@case(([1, 2, 3],), ([],))
def target_lives_on(xs):
    for x in xs:
        pass
    return x


@case(([1, 5, 2],), ([1, 2],), ([],), ([5],))
def for_break(xs):
    s = 0
    for x in xs:
        if x > 3:
            break
        s += x
    return s


@case(([1, 5, 2],), ([1, 2],), ([],))
def for_break_else(xs):
    for x in xs:
        if x > 3:
            log("found", x)
            break
        log("no", x)
    else:
        log("none")
        x = None
    return x


@case(([1, 2],), ([],))
def for_else_without_break(xs):
    for x in xs:
        log(x)
    else:
        log("else")


@case((0,), (3,), (9,))
def while_else(n):
    while n:
        n -= 1
        if n == 5:
            break
    else:
        return "done"
    return n


@case((0,), (5,))
def while_simple(n):
    total = 0
    while n > 0:
        total, n = total + n, n - 1
    return total, n


@case((3,), (10,))
def while_true(n):
    k = 0
    while True:
        k += 1
        if k > n:
            break
        if k % 2:
            continue
        log(k)
    return k


@case((3, 0), (10, 0), (10, 4))
def while_true_with_work_before_the_break(n, least):
    k, out = 0, []
    while True:
        k += 1
        out.append(k)
        if k * k > n:
            if k < least:
                continue
            for q in out:
                if q == 2:
                    break
                log(q)
            out = tuple(out)
            log(out)
            break
            log("never")
    else:
        log("never")
    return out, k


@case((3,), (10,))
def while_true_with_work_before_the_return(n):
    for m in range(2):
        k = m
        while True:
            k += 1
            if k < n:
                log(k)
            else:
                total = k * k
                log(total)
                return total
        log("never")
    return None


@case(([],), ([1, 2],), ([1, 5, 6],), ([8, 5],), ([5, 8],))
def return_that_follows_the_loop(xs):
    total = 0
    for x in xs:
        total += x
        for y in range(x):
            if y == 7:
                return log(total) or total
        if x > 4:
            log("early")
            return log(total) or total
        try:
            if x == 2:
                return log(total) or total
        finally:
            total = -total
    return log(total) or total


@case((3,), (10,))
def while_true_with_work_in_a_try(n):
    k = 0
    while True:
        k += 1
        try:
            if k > n:
                k = k // (n - 3)
                break
        except ZeroDivisionError:
            k = -100
            n = -200
    return k


@case((7,))
def while_true_return(n):
    while True:
        n -= 1
        if n < 3:
            return n


@case(([1, 2, 3, 4],), ([],))
def for_continue(xs):
    out = []
    for x in xs:
        if x % 2:
            continue
        out.append(x)
    return out


@case(([1, 2, 3, 4, 5, 6, 7],))
def for_continue_nested(xs):
    out = []
    for x in xs:
        if x > 1:
            if x % 2:
                out.append(-x)
                if x == 5:
                    continue
                out.append("odd")
            elif x == 6:
                continue
            out.append("tail")
        out.append(x)
    return out


@case(([1, 2, 3],), ([3],), ([],))
def return_in_loop(xs):
    for x in xs:
        if x == 3:
            return "three"
        log(x)
    log("after")


@case(([[1, 2], [3, 4]], 3), ([[1, 2], [3, 4]], 9), ([], 1))
def return_in_nested_loop(rows, wanted):
    for i, row in enumerate(rows):
        for j, x in enumerate(row):
            if x == wanted:
                return i, j
            log(x)
        log("row")
    return None


@case(([[1, 0, 2], [9, 1], [3]],), ([[1]],), ([],))
def nested_jumps(rows):
    total = 0
    for row in rows:
        for x in row:
            if x == 0:
                break
            if x == 9:
                return "nine", total
            if x == 1:
                continue
            total += x
        else:
            total += 100
            continue
        total += 1000
    return total


@case(([[1, 2], [0], [5]],), ([[1], [7, 8]],), ([[1]],))
def nested_both_leave(rows):
    for row in rows:
        for x in row:
            if x == 7:
                return "seven"
            if x == 0:
                break
        if x == 5:
            break
        log(x)
    else:
        return "all"
    return "left"


@case(([1, 2, 3, 4],))
def break_in_else(xs):
    out = []
    for x in xs:
        for y in range(x):
            if y == 2:
                break
        else:
            if x == 1:
                continue
            out.append(x)
            break
        out.append(-x)
    return out


@case(([3, 1, 2],))
def iterator_is_not_overdrawn(xs):
    it = iter(xs)
    for x in it:
        if x == 1:
            break
    return list(it)


@case((4,))
def loop_over_range(n):
    out = []
    for i in range(n):
        for j in range(i, n, 2):
            out.append((i, j))
    return out


@case(([1, 2, 3],), ([],), ([1],))
def previous_value(xs):
    prev = None
    out = []
    for x in xs:
        if prev is not None:
            out.append(x - prev)
        prev = x
    return out


@case(([1, 2, 3],), ([],))
def unbound_first(xs):
    out = []
    for x in xs:
        if x > 1:
            out.append(last)
        last = x
    return out


@case((3,))
def unbound_after_del(n):
    x = n
    for i in range(n):
        if i == 1:
            del x
    return x


@case((2,), (0,))
def del_in_loop(n):
    for i in range(n):
        y = i
        del y
    try:
        return y
    except NameError as e:
        return type(e) in (NameError, UnboundLocalError)


@case((3,))
def del_places(n):
    d, b, xs = {"a": 1, "b": {"c": n}}, Box(x=1, y=2), [1, 2, 3, 4]
    del d["a"], d["b"]["c"], (b.x, xs[1:3])
    return d, b, xs


@case(([(1, (2, 3)), (4, (5, 6))],))
def nested_target(xs):
    out = []
    for a, (b, c) in xs:
        out.append(a + b * c)
    return out


@case(([(1, 2, 3), (4, 5, 6, 7)],))
def starred_target(xs):
    for first, *rest in xs:
        log(first, rest)
    return first, rest


@case(([1, 2, 3],))
def store_target(xs):
    b, d = Box(x=0), {}
    for b.x in xs:
        log(b.x)
    for d["k"], b.x in zip(xs, xs):
        log(d, b.x)
    return b, d


@case((5,))
def loop_changes_its_iterable_name(n):
    xs = list(range(n))
    for x in xs:
        xs = [x]
    return xs


@case(([1, 2],))
def two_loops_same_names(xs):
    s = 0
    for i, x in enumerate(xs):
        s += x * i
    for i, x in enumerate(xs):
        s -= x * i
    return s, i, x


@case((3,), (0,))
def loop_in_branch(n):
    if n:
        s = 0
        for i in range(n):
            s += i
    else:
        s = "none"
    return s


@case((6,))
def branch_in_loop_in_branch(n):
    a, b = 1, 2
    if n > 1:
        while n:
            n -= 1
            if n % 2:
                a, b = b, a + b
            else:
                c = a
                a += 1
    return a, b, c
