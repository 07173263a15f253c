"""Import directions of the three packages, the size of their folders, and how tests mirror them.

Each package is a list of floors, the lowest first. A module imports modules of its own folder and
of lower floors. Imports in functions and under TYPE_CHECKING count like all others.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("ir", "executor", "dy2st")

#: The modules and folders of each floor; "" is the package itself, which gathers public names.
FLOORS = {
    "ir": [
        "loc types messages",
        "layout",
        "opdef scalar",
        "program",
        "ops",
        "uses pairs",
        "rewrite literal attributes",
        "text verifier interpreter",
        "",
        "analysis",
        "passes",
        "autodiff streaming",
    ],
    "executor": [
        "memory allocation",
        "launches",
        "plan",
        "lowering",
        "interrupt host_calls poison code_cache",
        "executable",
        "segmented",
        "capacity",
        "backend",
        "cpu gpu",
        "",
    ],
    "dy2st": [
        "convert",
        "trace",
        "state",
        "capture",
        "branches",
        "loops",
        "library",
        "results runtime",
        "compiled",
        "api inspection functional",
        "nn",
        "streaming",
        "export",
        "",
    ],
}
#: Folders that do not see each other although one is below the other, or on the same floor.
APART = [
    ("dy2st.results", "dy2st.library"),
    ("dy2st.capture.foreign", "dy2st.capture.indexing"),
    ("dy2st.capture.foreign", "dy2st.capture.adapters"),
    ("dy2st.capture.indexing", "dy2st.capture.adapters"),
    ("executor", "ir.passes"),
    ("executor", "ir.autodiff"),
]
MOST_MODULES = 14
#: the most lines of a module, and of a function
MOST_LINES = 500
MOST_LINES_OF_FUNCTION = 80
#: the most modules in a folder of tests
MOST_TESTS = 20
#: folders of a package without a folder of tests, each with the folder whose tests cover it
TESTED_ELSEWHERE = {
    # their rows are calls among those of all adapters
    "dy2st/capture/adapters/structured": "dy2st/capture/adapters",
}
#: folders of tests without a package: helpers and tables of cases
TESTS_ONLY = {
    "dy2st/capture/adapters/common": "everyday functions, whatever adapter they have",
    "dy2st/convert/convert_cases": "functions that the tests of the converter convert",
    "executor/gpu/emulator": "stand-ins for the driver and its libraries",
}
#: how often the modules of dy2st may say `Any`, which tells neither a reader nor the type checker
MOST_ANY = 1000


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def modules() -> dict[str, Path]:
    return {name_of(p): p for q in PACKAGES for p in sorted((ROOT / q).rglob("*.py"))}


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def imported(path: Path) -> Iterator[str]:
    """Every module that a file names in an import statement, wherever the statement stands."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module, f"{path}: a relative import"
            for a in node.names:
                inner = f"{node.module}.{a.name}"
                yield inner if inner in modules() else node.module


@functools.cache
def graph() -> dict[str, frozenset[str]]:
    """The modules of the three packages that each of them imports."""
    own = modules()
    return {m: frozenset(n for n in imported(p) if n in own) - {m} for m, p in own.items()}


def edges() -> list[tuple[str, str]]:
    return sorted((m, n) for m, names in graph().items() for n in names)


def top(name: str) -> str:
    return name.split(".")[0]


def within(name: str, folder: str) -> bool:
    return name == folder or name.startswith(f"{folder}.")


def floor(name: str) -> tuple[int, str]:
    """The number of a module's floor, and its module or folder there."""
    package, *rest = name.split(".")
    part = rest[0] if rest else ""
    for at, names in enumerate(FLOORS[package]):
        if part in names.split(" "):
            return at, part
    raise AssertionError(f"{name} is on no floor: place it in FLOORS")


@pytest.mark.sampled
@pytest.mark.quick("executor", "dy2st")
@pytest.mark.parametrize("package", PACKAGES)
def test_imports_go_down(package):
    """Modules on one floor see each other, folders on one floor do not."""
    wrong = []
    for module, name in edges():
        if top(module) == top(name) == package:
            (here, part), (there, other) = floor(module), floor(name)
            folders = f"{package}.{part}.", f"{package}.{other}."
            beside = there == here and part != other
            if there > here or beside and any(m.startswith(folders) for m in modules()):
                wrong.append(f"{module} imports {name}")
    assert wrong == []


def test_there_is_no_circle():
    """Strongly connected components, by Tarjan."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[list[str]] = []

    def visit(v: str) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in sorted(graph()[v]):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            found = stack[stack.index(v) :]
            del stack[stack.index(v) :]
            if len(found) > 1:
                circles.append(sorted(found))

    for v in graph():
        if v not in index:
            visit(v)
    assert circles == []


@pytest.mark.parametrize("one, other", APART, ids=lambda q: q)
def test_folders_that_do_not_see_each_other(one, other):
    assert [e for e in edges() if within(e[0], one) and within(e[1], other)] == []


def test_folders_are_small():
    sizes = Counter(p.parent for p in modules().values() if p.name != "__init__.py")
    assert {str(d.relative_to(ROOT)): n for d, n in sizes.items() if n > MOST_MODULES} == {}


def test_modules_and_functions_are_short():
    lines = {m: p.read_text().count("\n") for m, p in modules().items()}
    assert {m: n for m, n in lines.items() if n > MOST_LINES} == {}
    functions = {
        f"{m}.{n.name}": n.end_lineno - n.lineno + 1
        for m, p in modules().items()
        for n in nodes(p)
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    assert {f: n for f, n in functions.items() if n > MOST_LINES_OF_FUNCTION} == {}


def folders(root: Path) -> dict[str, int]:
    """The number of modules, besides `__init__`, in each folder of the packages below `root`."""
    paths = [p for q in PACKAGES for p in (root / q).rglob("*.py")]
    sizes = {p.parent.relative_to(root).as_posix(): 0 for p in paths}
    for p in paths:
        sizes[p.parent.relative_to(root).as_posix()] += p.name != "__init__.py"
    return sizes


def test_tests_mirror_the_packages():
    packages, tests = folders(ROOT), folders(ROOT / "tests")
    untested = {d for d, n in packages.items() if n and not tests.get(d)}
    assert untested == set(TESTED_ELSEWHERE), "a folder of a package without tests"
    assert all(tests[d] for d in TESTED_ELSEWHERE.values())
    assert tests.keys() - packages.keys() == set(TESTS_ONLY), "a folder of tests without a package"


def test_folders_of_tests_are_small():
    sizes = Counter(p.parent for p in (ROOT / "tests").rglob("*.py") if p.name != "__init__.py")
    assert {str(d.relative_to(ROOT)): n for d, n in sizes.items() if n > MOST_TESTS} == {}


def test_any_is_rare():
    """It is for what Paddle leaves without a type and for users' values that are used as they are;
    a value that is only handed on, or narrowed first, is an `object`."""
    own = [p for m, p in modules().items() if within(m, "dy2st")]
    found = Counter(p.parent.name for p in own for n in nodes(p) if getattr(n, "id", "") == "Any")
    assert found.total() <= MOST_ANY, found


@pytest.mark.slow
def test_who_imports_which_package():
    """`ir` knows neither Paddle nor a device, `executor` no framework; llvmlite is the CPU's."""
    for module, path in modules().items():
        for name in map(top, imported(path)):
            assert name not in ("dy2st", "paddle") or within(module, "dy2st"), module
            assert name != "executor" or not within(module, "ir"), module
            assert name != "llvmlite" or within(module, "executor.cpu"), module


def test_a_backend_is_imported_where_backends_are_registered_only():
    users = [m for m, names in graph().items() if any(within(n, "executor.cpu") for n in names)]
    assert [m for m in users if not within(m, "executor.cpu")] == ["executor"]


def test_the_converter_knows_the_standard_library_and_ir_loc():
    for module, path in modules().items():
        if within(module, "dy2st.convert"):
            for name in imported(path):
                own = within(name, "dy2st.convert") or name == "ir.loc"
                assert own or top(name) in sys.stdlib_module_names, f"{module} imports {name}"


@pytest.mark.slow
def test_modules_are_imported_at_the_top():
    """But for the package `dy2st`, which imports its public names when they are asked for."""
    for module, path in modules().items():
        text = path.read_text()
        if module == "dy2st":
            continue
        assert "TYPE_CHECKING" not in text and "import_module" not in text, module
        for node in nodes(path):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                inner = [q for q in ast.walk(node) if isinstance(q, (ast.Import, ast.ImportFrom))]
                assert not inner, f"{module}.{node.name} imports a module"


@pytest.mark.sampled
@pytest.mark.quick("ir")
@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_does_not_import_paddle(package):
    code = f"import {package}, sys; sys.exit('paddle' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def definitions(paths: Iterable[Path]) -> dict[str, list[str]]:
    """The files that define a class, on whatever level, or an alias of a type of each name."""
    found: dict[str, list[str]] = defaultdict(list)
    for p in paths:
        for node in nodes(p):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(p.as_posix())
            elif isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
                found[ast.unparse(node.target)].append(p.as_posix())
    return found


def defined_twice(paths: Iterable[Path]) -> dict[str, list[str]]:
    return {name: homes for name, homes in definitions(paths).items() if len(homes) > 1}


def hidden_submodules(package: Path, name: str) -> list[str]:
    """The submodules of a package that its `__init__` binds to something else."""
    folders = {p.parent.name for p in package.glob("*/*.py")}  # one without modules is a leftover
    inner = folders | {p.stem for p in package.glob("*.py") if p.stem != "__init__"}
    bound = []
    for node in ast.parse((package / "__init__.py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module != name:
            bound += [a.asname or a.name for a in node.names]
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.append(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound += [q.id for t in targets for q in ast.walk(t) if isinstance(q, ast.Name)]
    return sorted(inner & set(bound))


def test_a_class_name_is_defined_once():
    assert defined_twice(modules().values()) == {}


def test_no_attribute_of_a_package_hides_a_submodule():
    packages = {m: p.parent for m, p in modules().items() if p.name == "__init__.py"}
    hidden = {m: hidden_submodules(p, m) for m, p in packages.items()}
    assert {p: names for p, names in hidden.items() if names} == {}


def test_the_checks_of_names_can_fail(tmp_path):
    (tmp_path / "one.py").write_text("class Call: ...\n")
    (tmp_path / "two.py").write_text("def f():\n    class Call: ...\n")
    (tmp_path / "three.py").write_text("Call: TypeAlias = int\nOther: TypeAlias = str\n")
    (tmp_path / "__init__.py").write_text("from ir.text import parse as one\ndef two(): ...\n")
    found = defined_twice(tmp_path.glob("*.py"))
    assert {name: len(homes) for name, homes in found.items()} == {"Call": 3}
    assert hidden_submodules(tmp_path, "package") == ["one", "two"]
