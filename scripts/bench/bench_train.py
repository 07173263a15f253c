"""Training: tokens per second, the first backward of long loops, what checkpoints cost, and what a
call of a small net costs.

Prints Markdown. `python -m scripts.bench.bench_train [--steps 64]` from the root; with `--small`
only the table of small nets. Compared models train in turns, and the best round counts.
`paddle.jit.to_static` unrolls the loop: its first call takes minutes for hundreds of steps, so
`--steps` is small by default.
"""

from __future__ import annotations

import argparse
import copy
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn

import dy2st
from ir.types import evaluate_dim
from scripts.demo import fast_eager
from tests.parity.models.recurrent import CharLSTM

VOCABULARY, HIDDEN, BATCH = 64, 256, 16


def batches(steps: int, count: int = 4) -> list[Any]:
    rng = np.random.default_rng(0)
    shape = (count, BATCH, steps + 1)
    return [paddle.to_tensor(q) for q in rng.integers(0, VOCABULARY, shape)]


def trainer(model: Any) -> Callable[[Any], Any]:
    """One step of Adam on a batch; gives the loss."""
    optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())

    def step(tokens: Any) -> Any:
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape([-1, VOCABULARY]), tokens[:, 1:].reshape([-1]))
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss

    return step


def seconds(f: Callable[..., Any], *args: Any) -> float:
    start = time.perf_counter()
    f(*args)
    return time.perf_counter() - start


def speed(steps: int, rounds: int, with_jit: bool) -> None:
    paddle.seed(0)
    model = CharLSTM(VOCABULARY, HIDDEN)
    data = batches(steps)
    models = {"eager": copy.deepcopy(model)}
    if with_jit:
        models["paddle.jit.to_static"] = paddle.jit.to_static(copy.deepcopy(model))
    models["dy2st"] = dy2st.to_static(copy.deepcopy(model))
    run = {name: trainer(m) for name, m in models.items()}
    first = {name: seconds(step, data[0]) for name, step in run.items()}
    best = dict.fromkeys(run, float("inf"))
    losses: dict[str, float] = {}
    for k in range(rounds):
        for name, step in run.items():
            start = time.perf_counter()
            losses[name] = float(step(data[k % len(data)]))
            best[name] = min(best[name], time.perf_counter() - start)
    print(f"CharLSTM, B = {BATCH}, T = {steps}, H = {HIDDEN}, Adam, best of {rounds} rounds\n")
    print("| | first step, s | a step, ms | tokens/s | times eager | loss |")
    print("|---|---|---|---|---|---|")
    for name in run:
        rate, ratio = BATCH * steps / best[name], best["eager"] / best[name]
        print(f"| {name} | {first[name]:.2f} | {1e3 * best[name]:.1f} | {rate:.0f} | {ratio:.1f} "
              f"| {losses[name]:.4f} |")  # fmt: skip


class Cell(nn.Layer):
    """Paddle's LSTM cell in a Python loop."""

    def __init__(self, features: int = 32, hidden: int = 64) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(features, hidden)

    def forward(self, x: Any) -> Any:
        state, ys = self.cell.get_initial_states(x[:, 0], self.cell.state_shape), []
        for t in range(x.shape[1]):
            y, state = self.cell(x[:, t], state)
            ys.append(y)
        return paddle.stack(ys, 1)


def first_backward(lengths: tuple[int, ...] = (64, 512, 2000)) -> None:
    print("\nThe first call and the first backward of an LSTM cell in a loop, B = 4\n")
    print("| T | first forward, s | first backward, s | second of each, s |")
    print("|---|---|---|---|")
    for steps in lengths:
        net = dy2st.to_static(Cell())
        x = paddle.randn([4, steps, 32])
        times = []
        for _ in range(2):
            start = time.perf_counter()
            loss = net(x).sum()
            times.append(time.perf_counter() - start)
            times.append(seconds(loss.backward))
        forward, backward, again, back = times
        print(f"| {steps} | {forward:.2f} | {backward:.2f} | {again + back:.3f} |")


def there_and_back(net: Any, x: Any) -> None:
    net(x).sum().backward()


def checkpoints(lengths: tuple[int, ...] = (256, 1024, 4096), rounds: int = 5) -> None:
    print("\nCheckpoints of the same loop, B = 4: what is kept for backward, and its time\n")
    print("| T | checkpoint | kept, MiB | arenas, MiB | forward and backward, ms | times none |")
    print("|---|---|---|---|---|---|")
    for steps in lengths:
        x = paddle.randn([4, steps, 32])
        nets = {c: dy2st.to_static(Cell(), checkpoint=c) for c in ("none", "sqrt")}
        best = dict.fromkeys(nets, float("inf"))
        for _ in range(rounds):
            for name, net in nets.items():
                best[name] = min(best[name], seconds(there_and_back, net, x))
        for name, net in nets.items():
            entry = net.forward.entry(x)
            kept = sum(evaluate_dim(r.bytes, {}) for r in entry.training.gradient.residuals)
            arenas = sum(e.layout.bytes({}) for e in (entry.executable, entry.training.executable))
            print(f"| {steps} | {name} | {kept / 2**20:.2f} | {arenas / 2**20:.2f} "
                  f"| {1e3 * best[name]:.1f} | {best[name] / best['none']:.2f} |")  # fmt: skip


# ---------------------------------------------------------------- small nets
class Residual(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Any) -> Any:
        return x + self.b(F.relu(self.a(x)))


def mlp() -> Any:
    a, b, c = (nn.Linear(64, 64) for _ in range(3))
    return nn.Sequential(a, nn.ReLU(), b, nn.ReLU(), c)


def normalised() -> Any:
    return nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))


SMALL: dict[str, Callable[[], Any]] = {
    "Linear(64, 64)": lambda: nn.Linear(64, 64),
    "MLP of three Linear(64, 64)": mlp,
    "LayerNorm(64) and an MLP of two": normalised,
    "residual block of two Linear(64, 64)": Residual,
    "LSTMCell(64, 64)": lambda: nn.LSTMCell(64, 64),
    "15 Linear(16, 16)": lambda: nn.Sequential(*(nn.Linear(16, 16) for _ in range(15))),
}


def step_of(net: Any, x: Any) -> Callable[[], None]:
    """Forward and backward, and the gradients let go."""
    parameters = net.parameters()

    def result() -> Any:
        found = net(x)
        return found[0] if isinstance(found, tuple) else found

    ones = paddle.ones(result().shape)

    def step() -> None:
        result().backward(ones)
        for p in parameters:
            p.clear_gradient(False)

    return step


def small_nets(rounds: int, with_jit: bool, calls: int = 100) -> None:
    names = ["eager", *["paddle.jit.to_static"] * with_jit, "dy2st"]
    columns = [*(f"{n}, µs" for n in names), *(f"times {n}" for n in names[:-1])]
    print("\nForward and backward of small nets, a batch of 8; processor time, the least\n")
    print(f"| net | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}")
    for name, make in SMALL.items():
        net = make()
        x = paddle.randn([8, net.parameters()[0].shape[-1 if "LSTM" in name else 0]])
        nets = [net, *[paddle.jit.to_static(copy.deepcopy(net))] * with_jit]
        steps = [step_of(n, x) for n in (*nets, dy2st.to_static(copy.deepcopy(net)))]
        best = [float("inf")] * len(steps)
        for _ in range(rounds):
            for k, step in enumerate(steps):
                step()
                start = time.thread_time()
                for _ in range(calls):
                    step()
                best[k] = min(best[k], 1e6 * (time.thread_time() - start) / calls)
        cells = [*(f"{t:.1f}" for t in best), *(f"{t / best[-1]:.2f}" for t in best[:-1])]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--small", action="store_true", help="small nets only")
    parser.add_argument("--without-jit", action="store_true", help="leave Paddle's own one out")
    options = parser.parse_args()
    fast_eager()
    print(f"{platform.processor() or platform.machine()}, Paddle {paddle.__version__}\n")
    if not options.small:
        speed(options.steps, options.rounds, not options.without_jit)
        first_backward()
        checkpoints()
    small_nets(6 * options.rounds, not options.without_jit)


if __name__ == "__main__":
    main()
