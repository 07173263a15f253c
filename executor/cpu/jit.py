"""From LLVM text to a function that Python can call.

A function that an earlier program has is not compiled again while that program is alive, or the
function is among the last `KEPT`: kernels learn sizes and strides when they are called, so programs
have many of them in common.
"""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from weakref import WeakValueDictionary

import llvmlite
import llvmlite.binding as llvm

from executor import code_cache
from executor.cpu.llvm_text import Source, callees, is_cold
from executor.cpu.target import Target


@dataclass(eq=False)
class Code:
    """A compiled function: keeps the module that it lies in, and the functions that it calls."""

    address: int
    engine: llvm.ExecutionEngine
    calls: tuple[Code, ...]


KEPT = 512
#: how many functions LLVM gets at once: its time for a module grows faster than the module
MODULE = 256
#: LLVM's level of optimisation for functions that are not cold; a program has code of one level
LEVEL = 2
_RECENT: OrderedDict[Code, None] = OrderedDict()
_KNOWN: WeakValueDictionary[tuple[Target, int, str], Code] = WeakValueDictionary()
_LOCK = threading.Lock()


class Native:
    """A compiled program. `run(address of the table)` releases the interpreter lock.

    The object owns the code: whoever keeps `run` must keep the object.
    """

    report = ""

    def __init__(self, source: Source, target: Target) -> None:
        self.code = compiled(source, target)
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
        self.run: Callable[[int], int] = function(self.code.address)


def compiled(source: Source, target: Target) -> Code:
    """The last function of `source`."""
    level = LEVEL
    found = {n: _KNOWN.get((target, level, n)) for n in source.functions}
    codes = {n: code for n, code in found.items() if code is not None}
    if len(codes) < len(found):
        _compile(source, target, codes, level)
    _keep(codes.values())
    return codes[next(reversed(found))]


def _keep(codes: Iterable[Code]) -> None:
    with _LOCK:
        for code in codes:
            _RECENT[code] = None
            _RECENT.move_to_end(code)
        while len(_RECENT) > KEPT:
            _RECENT.popitem(last=False)


def _compile(source: Source, target: Target, codes: dict[str, Code], level: int) -> None:
    """Add what is missing to `codes`.

    The engine gets machine code: one that made it itself would keep a megabyte besides. LLVM takes
    a fourth of the time for a cold function, and makes code of twice the size for it.
    """
    missing = {n: text for n, text in source.functions.items() if n not in codes}
    efforts = {n: 0 if is_cold(text) else level for n, text in missing.items()}
    known = llvm.parse_assembly(Source({n: source.functions[n] for n in codes}).text(codes))
    engine = llvm.create_mcjit_compiler(known, _of_declarations())
    for name in codes:
        engine.add_global_mapping(known.get_function(name), codes[name].address)
    for effort in sorted(set(efforts.values()), reverse=True):
        order = [n for n in efforts if efforts[n] == effort]
        for k in range(0, len(order), MODULE):
            part = set(order[k : k + MODULE])
            code = machine_code(source.text(source.functions.keys() - part), target, effort)
            engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    for name, text in missing.items():
        calls = tuple(codes[n] for n in callees(text))
        codes[name] = Code(engine.get_function_address(name), engine, calls)
        _KNOWN[target, level, name] = codes[name]


def machine_code(text: str, target: Target, level: int) -> bytes:
    """The object file of LLVM text; text that has been compiled before is not compiled again."""

    def compile() -> bytes:
        machine = _machine(target, level)
        code: bytes = machine.emit_object(_optimised(text, machine))
        return code

    return code_cache.machine_code((text, repr(target), str(level), *_compiler()), compile)


@lru_cache
def _compiler() -> tuple[str, ...]:
    """What the code of a text depends on besides the target: LLVM, and how it is called here."""
    llvm_version = ".".join(map(str, llvm.llvm_version_info))
    return llvmlite.__version__, llvm_version, Path(__file__).read_text()


class _Machines(threading.local):
    """Of this thread: one serves one compilation at a time."""

    def __init__(self) -> None:
        self.made: dict[tuple[Target, int], llvm.TargetMachine] = {}


_MACHINES = _Machines()


def _machine(target: Target, level: int = 2) -> llvm.TargetMachine:
    """Made once: what LLVM derives from the features takes as long as a small function."""
    made = _MACHINES.made
    if (target, level) not in made:
        made[target, level] = llvm.Target.from_default_triple().create_target_machine(
            cpu=target.cpu, features=target.features, opt=level, codemodel="jitdefault"
        )
    return made[target, level]


def _of_declarations() -> llvm.TargetMachine:
    """A machine that an engine may own; it has no function to compile."""
    return llvm.Target.from_default_triple().create_target_machine(opt=0, codemodel="jitdefault")


def _optimised(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    module.verify()
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, llvm.create_pass_builder(machine, options))
    return module


def assembly(source: Source, target: Target) -> str:
    """The machine code of a program, to look at; the target need not be the host's."""
    machine = _machine(target)
    text: str = machine.emit_assembly(_optimised(source.text(), machine))
    return text
