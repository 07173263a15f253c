"""Which module may import which: one direction, as CONTRIBUTING.md and the architecture say."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: A module of ir imports modules of its own level and of those above it in this list.
LEVELS = [
    {
        "ir.loc",
        "ir.types",
        "ir.scalar.language",
        "ir.scalar.evaluate",
        "ir.scalar.exponential",
        "ir.scalar.trigonometry",
        "ir.scalar.special",
    },
    {"ir.opdef"},
    {"ir.program"},
    {"ir.ops"},
    {
        "ir.interpreter",
        "ir.text",
        "ir.literal",
        "ir.analysis.alias",
        "ir.rewrite",
        "ir.verify",
        "ir.analysis.history",
    },
    {"ir"},
    {"ir.autodiff", "ir.passes"},
]
CONVERTER = {
    "dy2st.convert.source",
    "dy2st.convert.jumps",
    "dy2st.convert.liveness",
    "dy2st.convert.statements",
}
LAZY = {("ir.program", "ir.text"), ("dy2st.convert.source", "astor")}


def modules(package: str) -> Iterator[tuple[str, Path]]:
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path: Path, module: str) -> Iterator[tuple[str, bool]]:
    """Names of imported modules, and whether the import is inside of a function."""
    tree = ast.parse(path.read_text())
    at_import = set(_outside_functions(tree))
    for node in ast.walk(tree):
        lazy = node not in at_import
        if isinstance(node, ast.Import):
            yield from ((a.name, lazy) for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module if path.name == "__init__.py" else module.rpartition(".")[0]
                stem = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*stem, *([node.module] if node.module else [])])
            yield base, lazy
            yield from ((f"{base}.{a.name}", lazy) for a in node.names if is_module(base, a.name))


def is_module(base: str, name: str) -> bool:
    path = ROOT.joinpath(*base.split("."), name)
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from _outside_functions(child)


def level(name: str) -> int:
    for at, names in enumerate(LEVELS):
        if name in names or any(name.startswith(f"{n}.") for n in names - {"ir"}):
            return at
    raise AssertionError(f"{name} is in no level of tests/docs/test_layout.py: place it")


def top(name: str) -> str:
    return name.split(".")[0]


@pytest.mark.parametrize("module, path", list(modules("ir")), ids=lambda q: str(q).split("/")[-1])
def test_ir_imports_point_one_way(module, path):
    for name, lazy in imports(path, module):
        assert top(name) not in ("paddle", "llvmlite", "dy2st", "executor"), name
        if top(name) != "ir" or (lazy and (module, name) in LAZY):
            continue
        if name == "ir" and module != "ir":
            continue  # `from ir import kernel`: the modules that it names are checked
        assert level(name) <= level(module), f"{module} imports {name}"


def test_the_executor_knows_ir_only():
    for module, path in modules("executor"):
        for name, _ in imports(path, module):
            assert top(name) not in ("paddle", "dy2st"), f"{module} imports {name}"
            assert not name.startswith("ir.passes"), f"{module} imports {name}"
            if top(name) == "llvmlite":
                assert module.startswith("executor.cpu"), f"{module} imports {name}"


def test_a_backend_is_imported_where_backends_are_registered_only():
    """By `executor/__init__.py`; everything else finds backends by name."""
    found = set()
    for package in ("ir", "executor", "dy2st"):
        for module, path in modules(package):
            names = {name for name, _ in imports(path, module)}
            if any(name.split(".")[:2] == ["executor", "cpu"] for name in names):
                found.add(module)
    assert {m for m in found if not m.startswith("executor.cpu")} == {"executor"}


def test_llvmlite_is_only_below_executor_cpu():
    for package in ("ir", "dy2st"):
        for module, path in modules(package):
            assert all(top(name) != "llvmlite" for name, _ in imports(path, module)), module


def test_the_converter_knows_the_standard_library_and_ir_loc():
    """So do the modules of dy2st that it is split into."""
    paths = dict(modules("dy2st"))
    todo, seen = [m for m in sorted(CONVERTER) if m in paths], {"dy2st"}
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        for name, lazy in imports(paths[module], module):
            if name in paths:
                todo.append(name)
            elif not (lazy and (module, name) in LAZY):
                standard = top(name) in sys.stdlib_module_names
                assert name == "ir.loc" or standard, f"{module} imports {name}"


@pytest.mark.parametrize("package", ["ir", "executor", "dy2st"])
def test_importing_a_package_does_not_import_paddle(package):
    code = f"import {package}, sys; sys.exit('paddle' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
