"""A character model, eager and translated: the same numbers, timed side by side, then no Paddle.

Trains `CharLSTM` for a moment on docstrings of the standard library, eager and translated in turns,
compares and times both, saves it, and runs the saved program in a process in which importing Paddle
fails.
Exits with 1 at the first difference.
"""

from __future__ import annotations

import importlib
import inspect
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle.static import InputSpec

import dy2st

MODULES = (
    "argparse",
    "collections",
    "csv",
    "datetime",
    "decimal",
    "difflib",
    "email.message",
    "functools",
    "heapq",
    "inspect",
    "json",
    "logging",
    "os",
    "pathlib",
    "random",
    "re",
    "shutil",
    "statistics",
    "string",
    "subprocess",
    "tarfile",
    "textwrap",
    "threading",
)
HIDDEN, LENGTH, BATCHES = 256, 128, (1, 16)
ROUNDS = 20
TOLERANCE = 1e-4  # of logits of the order of 10, after 128 steps in float32
SPEC = [InputSpec([None, None], "int64", "tokens")]
PROMPT = "Return the "

WITHOUT_PADDLE = """
import sys
sys.modules["paddle"] = None  # from here on `import paddle` raises ImportError
import numpy as np
import dy2st

run = dy2st.load(sys.argv[1])
tokens = np.load(sys.argv[2])
logits = run(tokens)
np.savez(sys.argv[3], logits=logits, steps=run.buffers["steps"])
"""


class CharLSTM(paddle.nn.Layer):
    """int64[B, T] characters to float32[B, T, vocab] logits; `steps` counts the calls."""

    def __init__(self, vocab: int, hidden: int) -> None:
        super().__init__()
        self.embed = paddle.nn.Embedding(vocab, hidden)
        self.ih = paddle.nn.Linear(hidden, 4 * hidden)
        self.hh = paddle.nn.Linear(hidden, 4 * hidden)
        self.out = paddle.nn.Linear(hidden, vocab)
        self.hidden = hidden
        self.register_buffer("steps", paddle.zeros([], "int64"))

    def forward(self, tokens):
        x = self.embed(tokens)
        h = c = paddle.zeros([tokens.shape[0], self.hidden])
        ys = []
        for t in range(tokens.shape[1]):
            i, f, g, o = paddle.split(self.ih(x[:, t]) + self.hh(h), 4, axis=-1)
            c = F.sigmoid(f) * c + F.sigmoid(i) * paddle.tanh(g)
            h = F.sigmoid(o) * paddle.tanh(c)
            ys.append(h)
        self.steps.add_(paddle.to_tensor(1))
        return self.out(paddle.stack(ys, axis=1))


def fail(message: str) -> None:
    sys.exit(f"demo: FAILED: {message}")


# ---------------------------------------------------------------- text and training
def docstrings() -> str:
    """The docstrings of MODULES, their classes, functions and methods, in a fixed order."""
    found: list[str] = []
    for name in MODULES:
        module = importlib.import_module(name)
        found.append(inspect.getdoc(module) or "")
        for _, member in sorted(vars(module).items()):
            if getattr(member, "__module__", None) == name:
                found.append(inspect.getdoc(member) or "")
                if inspect.isclass(member):
                    found += [
                        inspect.getdoc(q) or ""
                        for _, q in sorted(vars(member).items())
                        if inspect.isfunction(q)
                    ]
    return "\n\n".join(filter(None, found))


class Characters:
    """Printable ASCII and the end of a line as numbers; anything else is left out."""

    alphabet = "\n" + "".join(map(chr, range(32, 127)))

    def encode(self, text: str) -> np.ndarray:
        number = {c: k for k, c in enumerate(self.alphabet)}
        return np.array([number[c] for c in text if c in number], "int64")

    def decode(self, numbers: list[int]) -> str:
        return "".join(self.alphabet[k] for k in numbers)


def train(models: dict[str, CharLSTM], data: np.ndarray, steps: int = 60) -> None:
    """Adam on the same batches, the models in turns; the translated one learns as eager does."""
    batch, length = 16, 32
    optimizers = {k: paddle.optimizer.Adam(1e-2, parameters=m.parameters())
                  for k, m in models.items()}  # fmt: skip
    random = np.random.default_rng(0)
    times: dict[str, list[float]] = {name: [] for name in models}
    losses: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(steps):
        at = random.integers(0, len(data) - length - 1, batch)
        rows = paddle.to_tensor(np.stack([data[a : a + length + 1] for a in at]))
        for name, model in models.items():
            start = time.perf_counter()
            loss = F.cross_entropy(model(rows[:, :-1]), rows[:, 1:])
            loss.backward()
            optimizers[name].step()
            optimizers[name].clear_grad()
            times[name].append(time.perf_counter() - start)
            losses[name].append(float(loss))
    same_losses(losses["dy2st"], losses["eager"])
    print(f"\ntraining: {steps} steps of Adam, B = {batch}, T = {length}, in turns, median step")
    print(f"{'':<21} {'first step, s':>13} {'a step, ms':>11} {'tokens/s':>9}  loss")
    for name, found in times.items():
        step = statistics.median(found)
        print(f"{name:<21} {found[0]:>13.2f} {1e3 * step:>11.2f} {batch * length / step:>9.0f}  "
              f"{losses[name][0]:.3f} -> {losses[name][-1]:.3f}")  # fmt: skip


def same_losses(have: list[float], want: list[float]) -> None:
    """Close for the first steps; training amplifies rounding, so roughly so at the end."""
    early = max(abs(a - b) for a, b in zip(have[:10], want[:10]))
    late = abs(have[-1] - want[-1])
    if not (early < 1e-3 and late < 0.05 * want[-1] and want[-1] < 0.8 * want[0]):
        fail(f"trained, the losses differ by {early:.1e} at first, {late:.1e} at the end")


def copy_of(model: CharLSTM) -> CharLSTM:
    other = CharLSTM(model.out.weight.shape[1], model.hidden)
    other.set_state_dict(model.state_dict())
    other.eval()
    return other


# ---------------------------------------------------------------- parity
def generate(model: Callable[..., paddle.Tensor], tokens: list[int], count: int = 50) -> list[int]:
    """The most likely next character, fed back; the context grows up to 64 characters."""
    out = list(tokens)
    for _ in range(count):
        logits = model(paddle.to_tensor([out[-64:]], "int64"))
        out.append(int(logits[0, -1].argmax()))
    return out


def same_logits(have: np.ndarray, want: np.ndarray, what: str) -> float:
    if have.shape != want.shape or have.dtype != want.dtype:
        fail(f"{what}: logits {have.dtype}{have.shape}, eager gives {want.dtype}{want.shape}")
    worst = float(np.abs(have - want).max())
    if not worst <= TOLERANCE:
        fail(f"{what}: logits differ by {worst:.2e}")
    return worst


def compare(eager: CharLSTM, static: CharLSTM, text: Characters, tokens: paddle.Tensor) -> None:
    """Logits, the buffer after every call, and generated text."""
    for call in range(3):
        worst = same_logits(static(tokens).numpy(), eager(tokens).numpy(), f"call {call}")
        if int(static.steps) != int(eager.steps):
            fail(f"call {call}: steps is {int(static.steps)}, eager has {int(eager.steps)}")
    print(
        f"logits at {list(tokens.shape)}: the largest difference is {worst:.1e}, "
        f"steps is {int(eager.steps)} in both"
    )
    prompt = text.encode(PROMPT).tolist()
    want, have = (text.decode(generate(q, prompt)) for q in (eager, static))
    if have != want:
        fail(f"generated {have!r}, eager {want!r}")
    print(f"generated by both: {want!r}")


def without_paddle(static: CharLSTM, eager: CharLSTM, data: np.ndarray) -> None:
    """Save; load and run in a process without Paddle, at sizes that no call has had."""
    tokens = data[: 3 * 77].reshape(3, 77)
    with tempfile.TemporaryDirectory() as folder:
        names = [str(Path(folder) / n) for n in ("char_lm.dy2st", "tokens.npy", "out.npz")]
        dy2st.save(static, names[0], input_spec=SPEC)
        np.save(names[1], tokens)
        size = Path(names[0]).stat().st_size
        done = subprocess.run([sys.executable, "-c", WITHOUT_PADDLE, *names])
        if done.returncode:
            fail("the saved program does not run without Paddle")
        with np.load(names[2]) as out:
            logits, steps = out["logits"], int(out["steps"])
    worst = same_logits(logits, eager(paddle.to_tensor(tokens)).numpy(), "without Paddle")
    if steps != int(static.steps) + 1:
        fail(f"without Paddle: steps is {steps}, not {int(static.steps) + 1}")
    print(
        f"saved ({size / 1e6:.1f} MB), loaded without Paddle, run at [3, 77]: "
        f"the largest difference is {worst:.1e}, steps {steps}"
    )


# ---------------------------------------------------------------- time
def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def fast_eager() -> None:
    """Let Paddle's MKL use AVX2 on AMD, where it is 2 to 6 times slower by default.

    The comparison is with the best that eager can do. Before the first product of the process.
    """
    if "AMD" in processor():
        os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")


def first_call(model: CharLSTM, tokens: paddle.Tensor) -> float:
    """Seconds; the warning of `paddle.jit.to_static` about `add_` is what the table's note says."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        start = time.perf_counter()
        model(tokens)
        return time.perf_counter() - start


def interleaved(
    models: dict[str, CharLSTM], tokens: paddle.Tensor, rounds: int = ROUNDS
) -> dict[str, float]:
    """The median time of a call in ms; in each round every model is called twice and timed once."""
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            model(tokens)
            start = time.perf_counter()
            model(tokens)
            times[name].append(time.perf_counter() - start)
    return {name: 1e3 * statistics.median(q) for name, q in times.items()}


def measure(trained: CharLSTM, data: np.ndarray, batch: int) -> tuple[list[str], float]:
    """Rows of the table for one batch size, and how many times faster than eager dy2st is."""
    tokens = paddle.to_tensor(data[: batch * LENGTH].reshape(batch, LENGTH))
    eager = copy_of(trained)
    jit = paddle.jit.to_static(copy_of(trained))
    static = dy2st.to_static(copy_of(trained), input_spec=SPEC)
    before = int(jit.steps)
    first = {
        "eager": first_call(eager, tokens),
        "paddle.jit.to_static": first_call(jit, tokens),
        "dy2st": first_call(static, tokens),
    }
    dropped = int(jit.steps) == before
    same_logits(static(tokens).numpy(), eager(tokens).numpy(), f"B = {batch}")
    ms = interleaved({"eager": eager, "paddle.jit.to_static": jit, "dy2st": static}, tokens)
    rows = [
        f"{batch:>3}  {name:<21} {first[name]:>13.2f} {ms[name]:>11.2f} "
        f"{ms['eager'] / ms[name]:>13.1f}" + (" *" if dropped and "jit" in name else "")
        for name in ms
    ]
    return rows, ms["eager"] / ms["dy2st"]


def table(trained: CharLSTM, data: np.ndarray) -> float:
    measured = [measure(trained, data, batch) for batch in BATCHES]
    threads = os.environ.get("OMP_NUM_THREADS", "?")
    print(
        f"\nT = {LENGTH}, H = {HIDDEN}, no_grad, median of {ROUNDS} interleaved calls, "
        f"threads: Paddle {threads}, dy2st 1"
    )
    print(f"{'B':>3}  {'':<21} {'first call, s':>13} {'a call, ms':>11} {'times faster':>13}")
    rows = [row for rows, _ in measured for row in rows]
    print("\n".join(rows))
    if any(row.endswith("*") for row in rows):
        print("* leaves `steps` as it was: it drops the in-place add_")
    ratios = {b: ratio for b, (_, ratio) in zip(BATCHES, measured)}
    slowest = min(ratios, key=ratios.__getitem__)
    print(f"the smaller of the two dy2st ratios (B = {slowest}) goes into the last line")
    return ratios[slowest]


def main() -> None:
    fast_eager()
    paddle.seed(0)
    text = Characters()
    data = text.encode(docstrings())
    print(f"text: {len(data)} characters of docstrings from {len(MODULES)} modules")
    trained = CharLSTM(len(text.alphabet), HIDDEN)
    jit = paddle.jit.to_static(copy_of(trained))
    models = {
        "eager": trained,
        "paddle.jit.to_static": jit,
        "dy2st": dy2st.to_static(copy_of(trained)),
    }
    for model in models.values():
        model.train()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        train(models, data)
    trained.eval()
    eager, static = copy_of(trained), dy2st.to_static(copy_of(trained), input_spec=SPEC)
    tokens = paddle.to_tensor(data[: 4 * LENGTH].reshape(4, LENGTH))
    with paddle.no_grad():
        compare(eager, static, text, tokens)
        without_paddle(static, eager, data)
        print(f"\n{dy2st.program(static, tokens)}\n{dy2st.report(static, tokens)}")
        ratio = table(trained, data)
    print(f"demo: parity ok, {ratio:.1f} times faster than eager")


if __name__ == "__main__":
    main()
