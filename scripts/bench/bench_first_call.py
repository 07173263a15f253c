"""The cost of the first call of a model, stage by stage, and in a later process.

Prints Markdown. Each first call is made in a process of its own: inference (the forward of an
evaluated model, no gradients) and training (forward and backward), with no machine code (cold) and
with that of an earlier process (warm). The columns are seconds of the processor, of all threads
together, the least of `--rounds`: of the trace, the passes, gradients of programs, lowering, the
text of the code, and LLVM. "first call" is the whole call by the clock, execution included;
"later" is the least of five calls behind it. Last come files: `dy2st.load` of a program of 3,400
lines, and of two models.

With `--against PATH`, the root of another version of the project, each is measured there, too, in
turns.

`python -m scripts.bench.bench_first_call [--models NAME ...] [--rounds 3] [--against PATH]` from
the root.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from scripts.bench.first_call_models import MODELS
from scripts.demo import processor

HERE = Path(__file__).resolve().parents[2]
STAGES = ("trace", "passes", "gradient", "lowering", "code", "LLVM")
SAVED = ("Unrolled decoder", "BERT-base", "GPT, 16 tokens")
COMMAND = ".venv/bin/python -m scripts.bench.bench_first_call"


def worker(tree: Path, cache: str, *arguments: str) -> dict[str, float]:
    """Run `first_call_models` with the packages of `tree`; return the numbers that it prints."""
    script = Path(__file__).with_name("first_call_models.py")
    settings = {"PYTHONPATH": str(tree), "DY2ST_CACHE": cache, "MKL_DEBUG_CPU_TYPE": "5"}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), *arguments],
        env={**os.environ, **settings, "OMP_NUM_THREADS": "1"},
        cwd=tree,
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, float] = json.loads(run.stdout or "{}")
    return found


def least(found: Sequence[dict[str, float]]) -> dict[str, float]:
    return {k: min(q.get(k, 0.0) for q in found) for k in sorted({k for q in found for k in q})}


def compared(
    trees: Sequence[Path], rounds: int, cache: str, *arguments: str
) -> list[dict[str, float]]:
    """For each tree the least times, in turns. With a cache, a run before fills it."""
    folders = [cache and f"{cache}/{k}" for k in range(len(trees))]
    if cache:
        for tree, folder in zip(trees, folders):
            worker(tree, folder, *arguments)
    found: list[list[dict[str, float]]] = [[] for _ in trees]
    for _ in range(rounds):
        for tree, folder, into in zip(trees, folders, found):
            into.append(worker(tree, folder, *arguments))
    return [least(q) for q in found]


def row(name: str, q: dict[str, float], stages: Sequence[str]) -> str:
    cells = [f"{q.get(k, 0.0):.2f}" for k in stages]
    return f"| {name} | {' | '.join(cells)} | {sum(q.get(k, 0.0) for k in stages):.2f} |"


def first_calls(names: Sequence[str], trees: Sequence[Path], rounds: int) -> Iterator[str]:
    yield f"| model | {', s | '.join(STAGES)}, s | all, s | first call, s | later, ms |"
    yield "|---|" + "---:|" * (len(STAGES) + 3)
    for name in names:
        for what in ("inference", "training"):
            for cold in (True, False):
                with tempfile.TemporaryDirectory() as folder:
                    found = compared(trees, rounds, "" if cold else folder, name, what)
                for which, q in zip(("", ", before")[: len(trees)], found):
                    title = f"{name}, {what}, {'cold' if cold else 'warm'}{which}"
                    yield f"{row(title, q, STAGES)} {q['first']:.2f} | {1e3 * q['later']:.1f} |"


def loads(trees: Sequence[Path], rounds: int) -> Iterator[str]:
    stages = ("read", *(k for k in STAGES if k not in ("trace", "gradient")))
    yield f"| file | {', s | '.join(stages)}, s | all, s | load, s | lines |"
    yield "|---|" + "---:|" * (len(stages) + 3)
    for name in SAVED:
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/saved.dy2st"
            worker(trees[0], "", name, "save", path)
            for cold in (True, False):
                cache = "" if cold else f"{folder}/cache"
                for which, q in zip(
                    ("", ", before"), compared(trees, rounds, cache, name, "load", path)
                ):
                    title = f"{name}, {'cold' if cold else 'warm'}{which}"
                    yield f"{row(title, q, stages)} {q['first']:.2f} | {q['lines']:.0f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--against", type=Path, help="the root of another version")
    options = parser.parse_args()
    trees = [HERE] if options.against is None else [HERE, options.against.resolve()]
    print(f"{datetime.date.today()}, `{COMMAND}`, {processor()}, {os.cpu_count()} cores.\n")
    for line in first_calls(options.models, trees, options.rounds):
        print(line, flush=True)
    print()
    for line in loads(trees, options.rounds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
