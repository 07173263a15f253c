"""Programs compiled once in a test."""

from __future__ import annotations

import executor
from ir import Program

#: those of the test that runs, by `id`
COMPILED: dict[int, tuple[Program, executor.Executable]] = {}


def on_gpu(program: Program) -> executor.Executable:
    if id(program) not in COMPILED:
        COMPILED[id(program)] = program, executor.compile(program, backend="gpu")
    return COMPILED[id(program)][1]
