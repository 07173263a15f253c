"""Compilation of LLVM text to a function that Python can call.

A function that an earlier program has is not compiled again while that program is alive, or the
function is among the last `KEPT`: kernels learn sizes and strides when they are called, so programs
have many of them in common. What is left is compiled on all processors, in parts.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import llvmlite
import llvmlite.binding as llvm
from llvmlite.binding import ffi

from executor import code_cache
from executor.cpu.llvm_text import LlvmSource, callees, declaration, is_cold
from executor.cpu.target import Target


@dataclass(eq=False)
class CompiledFunction:
    """A compiled function: keeps the module that it lies in, and the functions that it calls."""

    address: int
    engine: llvm.ExecutionEngine
    calls: tuple[CompiledFunction, ...]


KEPT = 512
#: how much text LLVM gets at once: each module costs a millisecond, and its time grows faster than
#: the module; cold functions take a fourth of the time
MODULE, COLD_MODULE = 1 << 15, 1 << 17
#: LLVM's level of optimisation for functions that are not cold; a program has code of one level
LEVEL = 2
_RECENT: OrderedDict[CompiledFunction, None] = OrderedDict()
_KNOWN: WeakValueDictionary[tuple[Target, int, str], CompiledFunction] = WeakValueDictionary()
_LOCK = threading.Lock()


class JitProgram:
    """A compiled program. `run(address of the table)` releases the interpreter lock.

    The object owns the code: whoever keeps `run` must keep the object.
    """

    report = ""

    def __init__(self, source: LlvmSource, target: Target) -> None:
        self.code = compiled(source, target)
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
        self.run: Callable[[int], int] = function(self.code.address)


def compiled(source: LlvmSource, target: Target) -> CompiledFunction:
    """The last function of `source`."""
    level = LEVEL
    found = {n: _KNOWN.get((target, level, n)) for n in source.functions}
    codes = {n: code for n, code in found.items() if code is not None}
    if len(codes) < len(found):
        _compile(source, target, codes, level)
    _keep(codes.values())
    return codes[next(reversed(found))]


def _keep(codes: Iterable[CompiledFunction]) -> None:
    with _LOCK:
        for code in codes:
            _RECENT[code] = None
            _RECENT.move_to_end(code)
        while len(_RECENT) > KEPT:
            _RECENT.popitem(last=False)


def _compile(
    source: LlvmSource, target: Target, codes: dict[str, CompiledFunction], level: int
) -> None:
    """Add what is missing to `codes`.

    The engine gets machine code: one that made it itself would keep a megabyte besides. LLVM takes
    a fourth of the time for a cold function, and makes code of twice the size for it.
    """
    missing = {n: text for n, text in source.functions.items() if n not in codes}
    efforts = {n: 0 if is_cold(text) else level for n, text in missing.items()}
    declared = (declaration(source.functions[n]) for n in codes)
    known = llvm.parse_assembly("\n".join(declared))
    engine = llvm.create_mcjit_compiler(known, _of_declarations())
    for name in codes:
        engine.add_global_mapping(known.get_function(name), codes[name].address)
    texts = [
        (source.text(part), target, efforts[next(iter(part))]) for part in parts(missing, efforts)
    ]
    for code in in_parallel(machine_code, texts):
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    for name, text in missing.items():
        calls = tuple(codes[n] for n in callees(text))
        codes[name] = CompiledFunction(engine.get_function_address(name), engine, calls)
        _KNOWN[target, level, name] = codes[name]


def parts(texts: Mapping[str, str], efforts: Mapping[str, int]) -> Iterator[set[str]]:
    """The functions of each module, all of one effort."""
    for effort in sorted(set(efforts.values()), reverse=True):
        most = MODULE if effort else COLD_MODULE
        part, size = set[str](), 0
        for name in texts:
            if efforts[name] != effort:
                continue
            if part and size + len(texts[name]) > most:
                yield part
                part, size = set(), 0
            part.add(name)
            size += len(texts[name])
        yield part


def in_parallel(work: Callable[..., bytes], given: list[tuple[str, Target, int]]) -> list[bytes]:
    """Apply `work` to each item in parallel; return the results in order. The threads end with the
    call, so that a process may fork at any time."""
    threads = min(len(given), len(os.sched_getaffinity(0)))
    if threads < 2:
        return [work(*q) for q in given]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, *zip(*given)))


def machine_code(text: str, target: Target, level: int) -> bytes:
    """The object file of LLVM text; text that has been compiled before is not compiled again."""

    def compile() -> bytes:
        with _machine(target, level) as machine:
            return _emitted(_optimised(text, machine), machine)

    return code_cache.machine_code((text, repr(target), str(level), *_compiler()), compile)


@lru_cache
def _compiler() -> tuple[str, ...]:
    """Return the part of a cache key that identifies the compiler: LLVM, and this module."""
    llvm_version = ".".join(map(str, llvm.llvm_version_info))
    return llvmlite.__version__, llvm_version, Path(__file__).read_text()


def _emitted(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> bytes:
    """Like `machine.emit_object(module)`, without the lock by which llvmlite runs one function of
    LLVM at a time: LLVM asks for a machine and a context that no other thread uses."""
    with ffi.OutputString() as error:
        emit = _unlocked("LLVMPY_TargetMachineEmitToMemory")
        buffer = emit(machine, module, True, error)
        if not buffer:
            raise RuntimeError(str(error))
    start, size = ffi.lib.LLVMPY_GetBufferStart(buffer), ffi.lib.LLVMPY_GetBufferSize(buffer)
    try:
        return ctypes.string_at(start, size)
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


@lru_cache
def _unlocked(name: str) -> Callable[..., Any]:
    """A function of llvmlite's library; calls release the interpreter lock."""
    locked, function = getattr(ffi.lib, name), getattr(ctypes.CDLL(ffi.lib._name), name)
    function.argtypes, function.restype = locked.argtypes, locked.restype
    found: Callable[..., Any] = function
    return found


#: those that no compilation uses
_MACHINES: dict[tuple[Target, int], list[llvm.TargetMachine]] = {}


@contextmanager
def _machine(target: Target, level: int = 2) -> Iterator[llvm.TargetMachine]:
    """One for this compilation alone, kept for later ones: what LLVM derives from the features
    takes as long as a small function."""
    idle = _MACHINES.setdefault((target, level), [])
    try:
        machine = idle.pop()
    except IndexError:
        machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=target.cpu, features=target.features, opt=level, codemodel="jitdefault"
        )
    yield machine
    idle.append(machine)


def _of_declarations() -> llvm.TargetMachine:
    """A machine that an engine may own; it has no function to compile."""
    return llvm.Target.from_default_triple().create_target_machine(opt=0, codemodel="jitdefault")


def _optimised(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text, llvm.create_context())
    module.verify()
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(machine, options))
    return module


def assembly(source: LlvmSource, target: Target) -> str:
    """The machine code of a program, to look at; the target need not be the host's."""
    with _machine(target) as machine:
        text: str = machine.emit_assembly(_optimised(source.text(), machine))
    return text
