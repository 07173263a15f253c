"""`break`, `continue` and early `return`, on indices and on tensors, in nested loops too."""

from __future__ import annotations

import paddle

from tests.parity.programs import by_call, program, values


@program(x="f32[B,T,4]")
def break_on_an_index(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        if t == 3:
            break
        h = h + x[:, t]
    return h


@program(x="f32[B,T,4]", limit=by_call(3.0, 1e9, -1.0))
def break_on_a_tensor(x, limit):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = h + x[:, t].abs()
        if h.mean() > limit:
            break
    return h


@program(x="f32[B,T,4]", limit=by_call(3.0, 1e9, -1.0))
def break_before_the_work(x, limit):
    h, n = paddle.zeros([x.shape[0], 4]), 0
    for row in x.transpose([1, 0, 2]):
        if h.mean() > limit:
            break
        h = h + row.abs()
        n += 1
    return h, n


@program(x="f32[T,4]", limit=by_call(1.0, 1e9, -1.0))
def break_with_a_list(x, limit):
    ys = []
    for row in x:
        ys.append(row * 2)
        if row.max() > limit:
            break
    return paddle.stack(ys)


@program(
    x="f32[T,4]",
    limit=by_call(1.0, 1e9, -1.0),
    copies="rows up to a break are copied",
    quick=True,
)
def length_of_the_list_after_break(x, limit):
    ys = []
    for row in x:
        if row.max() > limit:
            break
        ys.append(row)
    return len(ys), ys


@program(x="f32[6,4]", limit=by_call(1.0, 1e9, -1.0))
def break_in_a_constant_range(x, limit):
    h = x[0]
    for i in range(1, 6):
        h = paddle.tanh(h + x[i])
        if h.sum() > limit:
            break
    return h, i


@program(x="f32[B,T,4]")
def continue_on_an_index(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        if t % 2 == 1:
            continue
        h = h * 0.5 + x[:, t]
    return h


@program(x="f32[T,4]")
def continue_on_a_tensor(x):
    s, kept = paddle.zeros([4]), 0
    for row in x:
        if row.sum() < 0:
            continue
        s = s + row
        kept += 1
    return s, kept


@program(x="f32[T,4]", limit=by_call(2.0, 1e9, 0.0))
def continue_and_break(x, limit):
    s = paddle.zeros([4])
    for t, row in enumerate(x):
        if t == 0:
            continue
        if row.sum() < 0:
            continue
        s = s + row
        if s.sum() > limit:
            break
    return s


@program(x="f32[B,T,4]")
def return_on_an_index(x):
    h = paddle.zeros([x.shape[0], 4])
    for t in range(x.shape[1]):
        h = h + x[:, t]
        if t == 4:
            return h * 2
    return h


@program(x="f32[T,4]", limit=by_call(1.5, 1e9, -1e9))
def return_on_a_tensor(x, limit):
    s = paddle.zeros([4])
    for row in x:
        s = s + row
        if s.sum() > limit:
            return s
    return s - 1


@program(x="f32[T,4]", limit=by_call(1.0, 1e9, -1e9))
def return_the_index_found(x, limit):
    for t in range(x.shape[0]):
        if x[t].max() > limit:
            return t
    return -1


@program(x="f32[T,4]", limit=by_call(1.0, 1e9, -1e9))
def return_a_pair_or_a_pair(x, limit):
    best = paddle.zeros([])
    for t, row in enumerate(x):
        best = paddle.maximum(best, row.max())
        if best > limit:
            return best, t
    return best * 0, x.shape[0]


@program(x="f32[3,T,4]", limit=by_call(2.0, 1e9, -1.0))
def break_in_the_inner_loop(x, limit):
    out = []
    for b in range(3):
        s = paddle.zeros([])
        for t in range(x.shape[1]):
            s = s + x[b, t].abs().max()
            if s > limit:
                break
        out.append(s)
    return paddle.stack(out)


@program(x="f32[3,T,4]", limit=by_call(6.0, 1e9, -1.0))
def break_out_of_both_loops(x, limit):
    s, found = paddle.zeros([]), False
    for b in range(3):
        for t in range(x.shape[1]):
            s = s + x[b, t].abs().max()
            if s > limit:
                found = True
                break
        if found:
            break
    return s, found


@program(x="f32[3,T,4]", limit=by_call(6.0, 1e9, -1.0))
def return_from_the_inner_loop(x, limit):
    s = paddle.zeros([])
    for b in range(3):
        for t in range(x.shape[1]):
            s = s + x[b, t].abs().max()
            if s > limit:
                return s
        s = s * 0.5
    return -s


@program(x="f32[2,T,4]")
def continue_in_the_inner_loop(x):
    s = paddle.zeros([])
    for b in range(2):
        for t in range(x.shape[1]):
            if x[b, t, 0] > 0:
                continue
            s = s + x[b, t].sum()
        s = s * 0.5
    return s


@program(x="f32[T,4]", limit=by_call(1.0, 1e9, -1e9), copies="data chooses a view", quick=True)
def for_else_finds_nothing(x, limit):
    for row in x:
        if row.max() > limit:
            found = row
            break
    else:
        found = paddle.zeros([4])
    return found


@program(x="f32[B,4]", mode=values("half", "double", "none"))
def early_return_on_python_values(x, mode):
    if mode == "half":
        return x * 0.5
    if mode == "double":
        return x * 2
    for _ in range(3):
        x = x + 1
    return x


@program(x="f32[B,4]", bias=by_call(-100.0, 100.0, 0.0))
def early_return_on_a_tensor(x, bias):
    y = x + bias
    if y.sum() > 0:
        return y * 2
    y = y - 1
    return -y


@program(x="f32[B,4]", bias=by_call(-100.0, 100.0, 0.0))
def guard_clauses_on_tensors(x, bias):
    if bias > 50:
        return x
    if bias < -50:
        return -x
    for _ in range(3):
        x = paddle.tanh(x)
    return x


@program(x="f32[T,4]", eos=by_call(3, 1, 9))
def greedy_until_end_token(x, eos):
    token = paddle.zeros([], "int64")
    out = []
    for t in range(x.shape[0]):
        token = (token + 1 + (x[t].argmax() > 5).astype("int64")) % 5
        out.append(token)
        if token == eos:
            break
    return paddle.stack(out), token


@program(x="f32[B,T,4]", patience=values(2, 1, 3))
def early_stopping(x, patience):
    best, bad, t = paddle.full([], 1e9), 0, 0
    for t in range(x.shape[1]):
        loss = x[:, t].abs().mean()
        if loss < best:
            best, bad = loss, 0
        else:
            bad += 1
        if bad >= patience:
            break
    return best, t
