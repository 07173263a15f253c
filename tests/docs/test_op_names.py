"""What an op is, its row says: nobody else has a list of view ops."""

import ast
from collections.abc import Iterator
from pathlib import Path

from ir import OPS
from tests.docs.test_layout import modules, nodes

#: rows that show elements of an operand, or store through a view of it
VIEWS = {n for n, row in OPS.items() if row.may_alias or row.through}
MOST_NAMES = 2
#: module -> why it has a list all the same
EXCEPTIONS = {
    "ir.passes.loops.vectorize": "the batching rule of each op, as `@rule` registers one elsewhere",
    "ir.passes.loops.invariant_ports": "what one slice of each is; another view has no such slice",
    "dy2st.capture.adapters.complex.moves": "names of Paddle's entries, which are no rows",
    "dy2st.capture.foreign.probe": "names of Paddle's entries, which are no rows",
}


def texts(node: ast.AST) -> Iterator[str]:
    """The texts that a collection, a call or a chain of comparisons lists."""
    listed: list[ast.expr | None] = []
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        listed = [*node.elts]
    elif isinstance(node, ast.Dict):
        listed = [*node.keys]
    elif isinstance(node, ast.Call):
        listed = [*node.args]
    elif isinstance(node, ast.BoolOp):
        listed = [q for c in node.values if isinstance(c, ast.Compare) for q in c.comparators]
    if isinstance(node, ast.Attribute) and node.attr == "split":
        words = getattr(node.value, "value", "")
        yield from words.split() if isinstance(words, str) else ()
    for q in listed:
        if isinstance(q, ast.Constant) and isinstance(q.value, str):
            yield q.value


def lists(path: Path) -> Iterator[tuple[int, set[str]]]:
    """The lists of view ops in a module, but for the names by which rules are registered."""
    text = path.read_text()
    quoted = sum(f'"{name}"' in text for name in VIEWS)
    if quoted <= MOST_NAMES and ".split()" not in text:
        return
    tree = nodes(path)
    registered = {q for n in tree for q in getattr(n, "decorator_list", ())}
    for node in tree:
        found = VIEWS.intersection(texts(node)) if node not in registered else set()
        if len(found) > MOST_NAMES:
            yield getattr(node, "lineno", 0), found


def test_no_module_lists_view_ops():
    """A property of them belongs to their rows: `ir.opdef` has the properties."""
    own = {m: p for m, p in modules().items() if not m.startswith("ir.ops.")}
    found = {m: [*lists(p)] for m, p in own.items()}
    assert {m: q for m, q in found.items() if q and m not in EXCEPTIONS} == {}
    assert {m for m in EXCEPTIONS if not found[m]} == set(), "an exception that is none"


def test_a_list_of_view_ops_is_found(tmp_path):
    for text in (
        'a = {"slice", "index", "transpose"}',
        'if x.name in ("slice", "index", "set_slice"):\n    pass',
        'a = x.name == "slice" or x.name == "index" or x.name == "expand"',
        'a = b.op_of(x, "slice", "index", "reshape")',
        'a = "slice index reshape add".split()',
        'a = {"slice": 1, "index": 2, "unfold": 3}',
    ):
        path = tmp_path / f"{abs(hash(text))}.py"
        path.write_text(text)
        assert [*lists(path)], text
    path = tmp_path / "rules.py"
    path.write_text('@rule("slice", "index", "unfold")\ndef f(x):\n    return x')
    assert not [*lists(path)]
