"""The same texts compiled by NVRTC, where it is installed: no headers, all architectures."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from executor.gpu.backend import Gpu
from executor.gpu.codegen import source
from executor.gpu.nvrtc import OPTIONS, Compiler, first_of, installed, machine_code
from executor.gpu.preamble import TEXT
from executor.gpu.schedule import DeviceLimits, schedule
from executor.lowering.program import lower
from executor.plan.arena import layout
from ir.autodiff import differentiate
from ir.passes import run as run_passes
from scripts.bench.gpu_programs import ATTENTION, DECODE, GATED, LSTM, PRODUCT, RECURRENT, fixed
from tests.executor.gpu.kernels.loops.test_linear import LINEAR, TWO
from tests.executor.gpu.kernels.test_tiles import FEW, FILTERS, LOOP
from tests.executor.gpu.test_programs import ADDED, LIF, RNN, parsed
from tests.executor.test_executor import ROWS, examples_program

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
H200 = DeviceLimits(resident=132, threads=256)


def text_of(program, device=H200) -> str:
    machine = Gpu()
    lowered = machine.legalize(lower(program, machine))
    plan = layout(lowered.launches, machine.memory.alignment)
    return source(lowered, plan, schedule(lowered.launches, plan, device)).text


FEW_ROWS = FEW.replace("RIGHT", "A,K,N").replace("TY", "False").replace(",3,", ",8,")
EMPTY = TEXT + 'extern "C" __global__ void empty(i64* table) {}\n'
NEEDED = pytest.mark.skipif(first_of(installed()) is None, reason="no NVRTC")


def compiled(text, architecture):
    compiler = first_of(installed())
    assert compiler is not None
    code, log = compiler.compiled(text, architecture, (*OPTIONS, "--ptxas-options=-v"))
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", log)]
    assert code.startswith(b"\x7fELF") and max(registers) <= 255
    return log


@NEEDED
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    "program",
    [LIF, RNN, ADDED, PRODUCT, FILTERS, FEW_ROWS, LOOP.replace(",6,5]", ",28,28]")],
    ids=["lif", "rnn", "added", "product", "filters", "few", "loop"],
)
def test_loops_and_branches(program, architecture):
    text = text_of(run_passes(parsed(program)))
    assert not re.search(r"[1-9]\d* bytes spill", compiled(text, architecture))


@NEEDED
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_matrix_in_registers_does_not_spill(architecture):
    for cell, width in ((RECURRENT, 256), (LSTM, 512), (LSTM, 1024)):
        text = text_of(run_passes(parsed(fixed(cell, "H", width))))
        assert "kept)[128]" in text
        assert not re.search(r"[1-9]\d* bytes spill", compiled(text, architecture))


@NEEDED
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("precision", ["tensorfloat32", "bfloat16"])
def test_tensor_cores_hardly_spill(precision, architecture):
    """With 128 registers for the matrix, NVRTC 12.9 has none left for an address or two."""
    for cell, width in ((LSTM, 256), (LSTM, 512), (PRODUCT, 0)):
        program = run_passes(parsed(fixed(cell, "H", width)))
        text = text_of(program, replace(H200, precision=precision))
        assert "mma_" in text[len(TEXT) :]
        log = compiled(text, architecture)
        assert max(map(int, re.findall(r"(\d+) bytes spill", log))) <= 8


@NEEDED
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_gradients_of_cells_do_not_spill(precision, architecture):
    """Their matrix is in registers, and the sums behind the loop are taken by tiles."""
    for cell, width in ((RECURRENT, 256), (LSTM, 512)):
        p = run_passes(parsed(fixed(cell, "H", width)), stop_before="expand")
        every = range(len(p.outputs)), range(len(p.inputs))
        program = run_passes(differentiate(p, *every).backward, start_at="expand")
        text = text_of(program, replace(H200, precision=precision))
        assert text.count("kept)[") > 1 and "sums[4][4]" in text
        log = compiled(text, architecture)
        assert max(map(int, re.findall(r"(\d+) bytes spill", log))) <= 8


@NEEDED
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_recurrences_do_not_spill(architecture):
    for text in (LINEAR, TWO, LINEAR.replace("f32", "f64"), fixed(GATED, "D", 2048)):
        made = text_of(run_passes(parsed(text)))
        assert "slopes" in made
        assert not re.search(r"[1-9]\d* bytes spill", compiled(made, architecture))


@NEEDED
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_attention_does_not_spill(architecture):
    for text in (ATTENTION, DECODE):
        made = text_of(run_passes(parsed(fixed(text, "E", 64))))
        assert "query[8]" in made
        assert not re.search(r"[1-9]\d* bytes spill", compiled(made, architecture))


@NEEDED
@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_rows(name):
    compiled(text_of(examples_program(name)[0]), "sm_90")


def test_a_text_is_compiled_once(monkeypatch, tmp_path):
    monkeypatch.setenv("DY2ST_CACHE", str(tmp_path / "cache"))
    text = EMPTY
    code = machine_code(text, "sm_90")
    monkeypatch.setattr(Compiler, "compile", lambda *_: b"new")
    assert machine_code(text, "sm_90") == code
    assert machine_code(text, "sm_80") == b"new"
