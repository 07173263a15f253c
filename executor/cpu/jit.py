"""From LLVM text to a function that Python can call."""

from __future__ import annotations

import ctypes

import llvmlite.binding as llvm

from executor.cpu.target import Target


class Native:
    """A compiled module. `run(address of the table)` releases the interpreter lock.

    The object owns the code: whoever keeps `run` must keep the object.
    """

    def __init__(self, text: str, target: Target) -> None:
        self.machine = llvm.Target.from_default_triple().create_target_machine(
            cpu=target.cpu, features=target.features, opt=2, codemodel="jitdefault"
        )
        self.module = _optimised(text, self.machine)
        self.engine = llvm.create_mcjit_compiler(self.module, self.machine)
        self.engine.finalize_object()
        address = self.engine.get_function_address("run")
        self.run = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)


def _optimised(text: str, machine: llvm.TargetMachine) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    module.verify()
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    builder = llvm.create_pass_builder(machine, options)
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    for f in module.functions:
        if not f.is_declaration:
            passes.run(f, builder)
    return module


def assembly(text: str, target: Target) -> str:
    """The machine code of a module, to look at; the target need not be the host's."""
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, codemodel="jitdefault"
    )
    return machine.emit_assembly(_optimised(text, machine))
