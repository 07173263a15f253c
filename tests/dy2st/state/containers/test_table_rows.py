"""Lists of lists whose rows a loop changes at its index."""

from __future__ import annotations

import paddle
import pytest

import dy2st
from ir.uses import walk
from tests import check
from tests.dy2st.state.containers.test_list_reads import rolls

pytestmark = pytest.mark.sampled(every=16)


def zero():
    return paddle.zeros([3], "float64")


# ---------------------------------------------------------------- one loop
def layers_of_a_network(x):
    hs = [[None] * 3 for _ in range(x.shape[0])]
    for t in range(x.shape[0]):
        inp = x[t]
        for k in range(3):
            before = hs[t - 1][k] if t > 0 else zero()
            hs[t][k] = paddle.tanh(inp + before * 0.5)
            inp = hs[t][k]
    return [h[-1] for h in hs]


def states_of_a_cell(x):
    n = x.shape[0]
    h = [[zero() for _ in range(2)] for _ in range(n + 1)]
    c = [[zero() for _ in range(2)] for _ in range(n + 1)]
    for t in range(n):
        inp = x[t]
        for k in range(2):
            c[t + 1][k] = c[t][k] * 0.5 + inp
            h[t + 1][k] = paddle.tanh(c[t + 1][k] + h[t][k])
            inp = h[t + 1][k]
    return paddle.stack([q[-1] for q in h[1:]]), h[n], c[n]


def rows_that_begin_empty(x):
    states = [[zero() for _ in range(2)]]
    for t in range(x.shape[0]):
        states.append([])
        inp = x[t]
        for k in range(2):
            states[t + 1].append(paddle.tanh(inp + states[t][k]))
            inp = states[t + 1][k]
    return [s[1] for s in states[1:]], states[-1]


def rows_in_a_dict(x):
    rec = {"h": [], "c": []}
    for t in range(x.shape[0]):
        rec["h"].append([])
        rec["c"].append([])
        for k in range(2):
            before = rec["h"][t - 1][k] if t else zero()
            rec["h"][t].append(paddle.tanh(x[t] + before))
            rec["c"][t].append(rec["h"][t][k] * 2)
    return [row[1] for row in rec["h"]], rec["c"][-1]


def grid(x):
    n = x.shape[0]
    h = [[None] * 4 for _ in range(n + 1)]
    for i in range(n + 1):
        h[i][0] = zero()
    for j in range(4):
        h[0][j] = zero()
    for i in range(1, n + 1):
        for j in range(1, 4):
            h[i][j] = paddle.tanh(x[i - 1] + h[i - 1][j] * 0.5 - h[i][j - 1] * 0.3)
    return [row[1:] for row in h[1:]]


def edit_distance(x):
    n, m = x.shape[0], 12
    d = [[0.0] * (m + 1) for _ in range(n + 1)]
    for i in range(n + 1):
        d[i][0] = float(i)
    for j in range(m + 1):
        d[0][j] = float(j)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            cost = 0.0 if (i * 7 + j) % 3 == 0 else 1.0
            d[i][j] = min(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + cost)
    return x.sum() * d[n][m], d[n][m]


def backwards(x):
    n = x.shape[0]
    beta = [[None] * 2 for _ in range(n)]
    for t in range(n - 1, -1, -1):
        beta[t][0] = paddle.tanh(x[t] + (beta[t + 1][0] if t < n - 1 else zero()))
        beta[t][1] = beta[t][0] * 2
    return [b[1] for b in beta], beta[0] if n else None


ROLLED = (
    layers_of_a_network, rows_that_begin_empty, rows_in_a_dict, grid,
    edit_distance, backwards,
)  # fmt: skip


@pytest.mark.parametrize("f", ROLLED, ids=lambda f: f.__name__)
def test_a_table_is_filled_by_one_loop(f):
    rolls(f, lengths=(0, 1, 5), least=1 if f is rows_in_a_dict else 0)


def test_a_long_table_of_zeros():
    """The lists of a short one are made one by one, since they may be changed."""
    sizes = set()
    for n in (1, 5, 70, 90):
        static = check.agree(states_of_a_cell, check.data(n, 3, seed=n), calls=1)
        if n > 64:
            x = check.data(n, 3)
            assert "unrolled" not in str(dy2st.report(static, x))
            sizes.add(sum(1 for _ in walk(dy2st.program(static, x).ops)))
    assert len(sizes) == 1


# ---------------------------------------------------------------- rows by other names
def table(n):
    return [[zero(), zero()] for _ in range(n)]


def fill(tab, x):
    for t in range(1, x.shape[0]):
        tab[t][0] = x[t] + tab[t - 1][0]
        tab[t][1] = tab[t][0] * 2


def a_row_from_before(x):
    tab = table(x.shape[0])
    row = tab[2]
    fill(tab, x)
    return row[0], tab[2][1], row


def a_row_from_before_in_the_loop(x):
    tab, out = table(x.shape[0]), []
    row = tab[2]
    for t in range(1, x.shape[0]):
        tab[t][0] = x[t] + tab[t - 1][0]
        out.append(row[0] * 2)
    return out


def a_slice_from_before(x):
    tab = table(x.shape[0])
    some = tab[1:]
    fill(tab, x)
    return some[0][0], some[-1][1], tab


def a_copy_from_before(x):
    tab = table(x.shape[0])
    other = list(tab)
    fill(tab, x)
    return other[1][0], other[-1][1], tab


def a_copy_by_a_loop(x):
    tab = table(x.shape[0])
    fill(tab, x)
    rows = [r for r in tab]
    fill(tab, x * 2)
    return rows[1][1], tab


def one_list_in_several_places(x):
    tab = [[zero(), zero()]] * x.shape[0]
    fill(tab, x)
    return tab[0][0], tab[-1][1]


def a_row_that_is_kept(x):
    tab, keep = table(x.shape[0]), []
    for t in range(x.shape[0]):
        keep.append(tab[t])
        tab[t][0] = x[t]
    return keep[2][0], tab


def the_last_row_as_a_variable(x):
    tab = table(x.shape[0])
    for t in range(x.shape[0]):
        row = tab[t]
        row[0] = x[t]
    row[1] = x[0] * 7
    return tab


def two_rows_in_an_iteration(x):
    tab = table(x.shape[0] + 1)
    for t in range(x.shape[0]):
        tab[t][0] = x[t] + tab[t][1]
        tab[t + 1][1] = tab[t][0] * 2
    return tab


def changed_behind_the_loop(x):
    tab = table(x.shape[0])
    fill(tab, x)
    last = tab[-1]
    last[0] = x[0] * 5
    tab[1][1] = x[1]
    tab.append([x[0]])
    return tab[1], tab, last, len(tab)


def in_some_iterations(x):
    tab = table(x.shape[0])
    for t in range(1, x.shape[0]):
        if x[t].sum() > 0:
            tab[t][0] = x[t] + tab[t - 1][1]
        tab[t][1] = tab[t][0] + x[t]
    return [r[1] for r in tab[1:]]


ALIASES = (
    a_row_from_before, a_row_from_before_in_the_loop, a_slice_from_before, a_copy_from_before,
    a_copy_by_a_loop, one_list_in_several_places, a_row_that_is_kept, the_last_row_as_a_variable,
    two_rows_in_an_iteration, changed_behind_the_loop, in_some_iterations,
)  # fmt: skip


@pytest.mark.parametrize("f", ALIASES, ids=lambda f: f.__name__)
def test_rows_are_lists_with_names(f):
    check.agree(f, check.data(5, 3), calls=1)


@pytest.mark.parametrize("rows", [5, 9])
def test_identity_of_rows(rows):
    def f(x):
        tab = table(x.shape[0])
        fill(tab, x)
        return tab[3], tab

    row, tab = dy2st.to_static(f)(check.data(rows, 3))
    assert row is tab[3]
