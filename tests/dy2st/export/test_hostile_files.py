"""Files that mean harm: each way that one did harm, and 500 made up at random."""

from __future__ import annotations

import io
import json
import os
import signal
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dy2st.export import atomic
from dy2st.export.limits import FileError
from dy2st.export.load import load
from dy2st.export.manifest import MANIFEST, PROGRAM, WEIGHTS
from ir import VerifyError, parse
from tests.dy2st.export.hostile_files import File

ROOT = Path(__file__).parents[3]
TEXT = """program p(%x: f32[N] arg "x", %h: f32[2] buffer "h") {
  %1 = add(%x, %x)                             : f32[N]
  %2 = add(%h, %h)                             : f32[2]
  return %1, %2
  write %h = %2
}"""


def plain(**change) -> File:
    given = {"text": TEXT, "result": ["out", 0, []], "weights": {"1": np.ones(2, np.float32)}}
    return File(**{**given, **change})


def loaded(path: Path, f: File | bytes):
    path.write_bytes(f if isinstance(f, bytes) else f.pack())
    return load(path)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "a.dy2st"


def test_the_plain_file_works(file):
    run = loaded(file, plain())
    np.testing.assert_array_equal(run(np.ones(3, "f")), [2, 2, 2])
    np.testing.assert_array_equal(run.buffers["h"], [2, 2])


@pytest.mark.slow
def test_five_hundred_files_made_up_at_random():
    """`scripts/fuzz/files.py` in a process of its own: cases that die are seen. None of these has a
    call that runs until its time is over."""
    script = ["scripts/fuzz/files.py", "--count", "500", "--seed", "600"]
    command = [sys.executable, *script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


# ---------------------------------------------------------------- recipes and trees
def strided(shape, strides, offset):
    given = {"shape": shape, "strides": strides, "offset": offset}
    return [["strided", [[k, str(v)] for k, v in given.items()]]]


FIXED = TEXT.replace("f32[N]", "f32[4]")


@pytest.mark.parametrize(
    "tree",
    [
        ["out", 0, strided([100000], [1000], 0)],
        ["same", 0, strided([4], [-1], 0)],
        ["same", 0, strided([2], [1], 3)],
        ["same", 0, strided([-1, -1], [1, 1], 0)],
        ["same", 0, strided([4], ['"a"'], 0)],
        ["same", 0, strided([1 << 62], [1 << 62], 0)],
        ["same", 0, [["strided", []]]],
        ["same", 0, [["slice", [["axis", "0"], ["start", "0"], ["length", "9"]]]]],
        ["same", 0, [["index", [["axis", "0"], ["index", "4"]]]]],
        ["same", 0, [["dynamic_index", [["axis", "0"]]]]],
        ["same", 0, [["add", []]]],
        ["same", 0, [["reshape", [["shape", "[Q]"]]]]],
    ],
)
def test_a_recipe_is_checked_as_an_op(file, tree):
    with pytest.raises(FileError):
        loaded(file, plain(text=FIXED, result=tree))


@pytest.mark.parametrize(
    "steps",
    [
        strided([2], [1], "N-3"),
        strided([5], [1], 0),
        strided("[2*N-6]", [1], 0),
        [["reshape", [["shape", "[2, 2]"]]]],
        [["slice", [["axis", "0"], ["start", "1"], ["length", "N"]]]],
        [["slice", [["axis", "0"], ["start", "0"], ["length", "N-3"]]]],
        [["index", [["axis", "0"], ["index", "2"]]]],
    ],
)
def test_a_recipe_on_named_sizes_is_checked_in_a_call(file, steps):
    run = loaded(file, plain(result=["same", 0, steps]))
    with pytest.raises((ValueError, IndexError)):
        run(np.ones(2, "f"))


@pytest.mark.parametrize(
    "op",
    [
        "index(%x, axis=0, index=-2) : f32[]",
        "index(%x, axis=0, index=5) : f32[]",
        "index(%x, axis=0, index=N-9) : f32[]",
        "set_index(%x, %s, axis=0, index=-2) : f32[N]",
        "set_index(%x, %s, axis=-1, index=5) : f32[N]",
        "set_index(%x, %s, axis=0, index=N-9) : f32[N]",
        "slice(%x, axis=0, start=-1, length=2, step=1) : f32[2]",
        "slice(%x, axis=0, start=N-5, length=2, step=1) : f32[2]",
        "slice(%x, axis=0, start=1, length=N+3, step=-1) : f32[N+3]",
        "set_slice(%x, %h, axis=0, start=-1, step=1) : f32[N]",
        "set_slice(%x, %h, axis=0, start=N-2, step=2) : f32[N]",
        "set_slice(%x, %h, axis=0, start=0, step=-1) : f32[N]",
        "diagonal(%y, offset=-5, axis1=0, axis2=1) : f32[N-5]",
    ],
)
def test_no_part_outside_of_an_axis_of_named_size_is_read_or_written(file, op):
    head = (
        'program p(%x: f32[N] arg "x", %y: f32[N,N] arg "y", %h: f32[2] arg "h", %s: f32[] arg "s")'
    )
    text = f"{head} {{\n  %1 = {op}\n  return %1\n}}"
    with pytest.raises((FileError, IndexError, ValueError)):
        run = loaded(file, plain(text=text, weights={}))
        run(np.ones(2, "f"), np.ones((2, 2), "f"), np.ones(2, "f"), np.float32(1))


OUT = ["out", 0, []]
TREES = [
    None, [], {}, "out", 3, True, ["out"], ["out", 0], ["out", 2, []], ["out", -1, []],
    ["out", True, []], ["out", 0.0, []], ["out", "0", []], ["out", 0, 0], ["out", 0, [[]]],
    ["out", 0, [["transpose"]]], ["out", 0, [["transpose", [["perm"]]]]], ["same", 2, []],
    ["number", 0], ["number", None], ["rows", 0, True], ["rows", 0, 1], ["elements", OUT],
    ["elements", ["list", []]], ["elements", ["rows", 0, 1]], ["list"], ["list", {}],
    ["list", [None]], ["dict", [["1"]]], ["dict", [["{}", OUT]]], ["dict", [["[1, {}]", OUT]]],
    ["dict", [["1", OUT], ["1", OUT]]],
    ["constant", 1], ["constant", '"'], ["constant", "[" * 5000], ["size", "1.5"], ["size", "K"],
    ["size", "f32"], [["out"], 0, []], ["fill", 0], ["read", []], ["__init__", 0],
    ["elements", ["tuple", [["rows", 0, False], ["rows", 1, False]]]],
]  # fmt: skip


def test_a_manifest_has_at_most_a_mebibyte(file):
    with pytest.raises(FileError, match="bytes of manifest.json: a file may have 1048576"):
        loaded(file, plain(result=["list", [OUT] * 100_000]))


@pytest.mark.parametrize("tree", TREES, ids=range(len(TREES)))
def test_a_tree_is_one_of_this_program(file, tree):
    with pytest.raises(FileError):
        loaded(file, plain(result=tree))


@pytest.mark.parametrize(
    "stores",
    [
        [[0, ["out", 0, []]]],
        [[5, ["out", 0, []]]],
        [["1", ["out", 1, []]]],
        [[1]],
        [[1, ["out", 0, []]]],
        {},
        None,
        [[True, ["out", 1, []]]],
    ],
)
def test_stores_go_into_inputs_of_their_type(file, stores):
    if stores == {}:
        assert loaded(file, plain(stores=stores)).arguments == ("x",)
        return
    with pytest.raises(FileError):
        loaded(file, plain(stores=stores))


def test_a_stored_number_is_of_the_type_of_its_buffer(file):
    with pytest.raises(FileError, match="stores a Python value to h"):
        loaded(file, plain(stores=[[1, ["constant", '"text"']]]))


# ---------------------------------------------------------------- texts
IMAGE = """program p(%x: f32[1,1,4,4] arg "x") {{
  %1 = {}(%x, taps=[{}, 1], stride=[1, {}], padding=[[{}, 0], [0, 0]]) : f32[1,1,4,4]
  return %1
}}"""
DEEP = "".join(f"scan %t{k} < 2 {{\nbody\n" for k in range(100)) + "}\n" * 100


def calling(op: str, result: str = "f32[N]") -> str:
    return f'program p(%x: f32[N] arg "x") {{\n  %1 = {op} : {result}\n  return %1\n}}'


TEXTS = {
    "a negative dim": TEXT.replace("f32[2]", "f32[-2]"),
    "a size that overflows": FIXED.replace("f32[4]", "f32[1099511627776,1099511627776]"),
    "an unknown op": calling("exec(%x)"),
    "an op of Paddle's": calling('foreign(%x, call="f", args=[], types=[f32[N]])'),
    "an attribute of another kind": calling('cumsum(%x, axis="0")'),
    "a number that is no axis": calling("cumsum(%x, axis=True)"),
    "a number of 70 bits": calling("cumsum(%x, axis=1180591620717411303424)"),
    "a number that i8 does not hold": calling("full(value=200, shape=[N], dtype=i8)", "i8[N]"),
    "steps of 0 pixels": IMAGE.format("max_pool", 1, 0, 0),
    "a window of a billion taps": IMAGE.format("sum_pool", 1000000000, 1, 999999999),
    "blocks inside of each other": f'program p(%x: f32[4] arg "x") {{\n{DEEP}  return %x\n}}',
    "nothing": "",
    "two arguments of one name": TEXT.replace('%h: f32[2] buffer "h"', '%h: f32[2] arg "x"'),
    "a size that no input has": TEXT.replace("f32[N]", "f32[N+1]"),
    "a type of 40 dims": TEXT.replace("f32[2]", f"f32[{','.join('2' * 40)}]"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_is_no_program_is_refused(file, name):
    with pytest.raises(FileError):
        loaded(file, plain(text=TEXTS[name]))


HEAD = 'program p(%x: f32[N] arg "x") {\n  %1 = '
LONG = {
    "blanks": " " * 50_000 + "x" + " " * 50_000 + "y",
    "blanks before a type": "add(%x, %x)" + " " * 50_000 + ": z",
    "at": "add(%x, %x)" + " @ " * 50_000,
    "types": "add(%x, %x)" + " : f32[" * 50_000,
    "brackets": "full(value=" + "[" * 50_000 + ")",
    "braces": "full(value=" + "{1: " * 50_000 + ")",
    "a sum": "full(value=1, shape=[" + "N+" * 50_000 + "1])",
    "a product": "full(value=1, shape=[" + "N*" * 50_000 + "1])",
    "dims": "full(value=1) : f32[" + "N," * 50_000 + "1]",
    "quotes": 'full(value="' + "\\" * 50_000,
    "digits": "full(value=" + "1" * 50_000 + ".x)",
    "operands": "add(" + "%x, " * 50_000 + "?)",
    "a file": "add(%x, %x) @ " + ":1" * 50_000 + "x",
}


@pytest.mark.parametrize("name", LONG)
def test_a_text_is_read_in_linear_time(name):
    start = time.process_time()
    with pytest.raises(VerifyError) as found:
        parse(f"{HEAD}{LONG[name]}\n  return %1\n}}")
    assert time.process_time() - start < 1
    assert len(str(found.value)) < 100_000


# ---------------------------------------------------------------- the archive
def archive(members, compression=zipfile.ZIP_STORED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as z:
        for name, content in members:
            z.writestr(name, content)
    return data.getvalue()


def members(**change) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(plain().pack())) as z:
        found = {i.filename: z.read(i) for i in z.infolist()}
    return list({**found, **{k.replace("_", "."): v for k, v in change.items()}}.items())


ARCHIVES = {
    "a zip bomb": lambda: archive(members(program_txt=b" " * 10_000_000), zipfile.ZIP_DEFLATED),
    "one more member": lambda: archive([*members(), ("code.py", b"1")]),
    "no weights": lambda: archive(members()[:2]),
    "bad UTF-8": lambda: archive(members(program_txt=TEXT.encode() + b"\xff")),
    "bad JSON": lambda: archive(members(manifest_json=b"{")),
    "deep JSON": lambda: archive(members(manifest_json=b"[" * 100_000)),
    "a manifest that is a list": lambda: archive(members(manifest_json=b"[]")),
    "a manifest without a result": lambda: archive(
        members(manifest_json=json.dumps({"format": "dy2st", "version": 2}))
    ),
    "a version of NaN": lambda: archive(
        members(manifest_json=b'{"format": "dy2st", "version": NaN}')
    ),
    "a number of 10,000 digits": lambda: archive(
        members(manifest_json=b'{"format": "dy2st", "version": ' + b"1" * 10_000 + b"}")
    ),
    "weights of a large header": lambda: archive(
        members(weights_safetensors=struct.pack("<q", 1 << 62) + b"{}")
    ),
    "a weight that is not there": lambda: plain(weights={}).pack(),
    "a weight of another shape": lambda: plain(weights={"1": np.ones(3, np.float32)}).pack(),
    "a weight of another type": lambda: plain(weights={"1": np.ones(2)}).pack(),
    "half of it": lambda: plain().pack()[:500],
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_that_is_no_saved_program_is_refused(file, name):
    with pytest.raises(FileError):
        loaded(file, ARCHIVES[name]())


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_is_there_twice_is_refused(file):
    with pytest.raises(FileError, match="each once"):
        loaded(file, archive([*members(), members()[0]]))


def test_a_member_that_claims_to_be_large_is_refused(file):
    data = bytearray(plain().pack())
    at = data.rindex(PROGRAM.encode()) - 46
    for field in (20, 24):
        struct.pack_into("<I", data, at + field, 0xFFFFFFF0)
    with pytest.raises(FileError):
        loaded(file, bytes(data))


def test_a_file_that_cannot_be_read_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent.dy2st")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)


# ---------------------------------------------------------------- calls
CALLED = """program p(%x: f32[N,4] arg "x", %i: i64[M] arg "i", %w: f32[N,4] arg "w") {
  %1 = gather(%x, %i, axis=1) : f32[N,M]
  %2 = add(%w, %x) : f32[N,4]
  return %1
  write %w = %2
}"""
WIDE = np.arange(48, dtype=np.float32).reshape(6, 8)
ONES = np.ones((3, 4), np.float32)
FIRST = np.zeros(2, np.int64)


def written() -> np.ndarray:
    return np.zeros((3, 4), np.float32)


def unaligned() -> np.ndarray:
    return np.frombuffer(bytearray(49), np.uint8)[1:].view(np.float32).reshape(3, 4)


def read_only() -> np.ndarray:
    array = written()
    array.flags.writeable = False
    return array


FLAT = np.zeros(16, np.float32)
CALLS = {
    "another element type": ((ONES.astype("d"), FIRST, written()), TypeError, "x is float64"),
    "the other byte order": ((ONES.astype(">f4"), FIRST, written()), TypeError, "x is >f4"),
    "objects": ((ONES.astype(object), FIRST, written()), TypeError, "x is object"),
    "a text": (("a", FIRST, written()), TypeError, "x is <U1"),
    "None": ((None, FIRST, written()), TypeError, "x is object"),
    "another rank": ((ONES[0], FIRST, written()), ValueError, r"x is f32\[N,4\], not of shape"),
    "another size": ((ONES, FIRST, WIDE[:4, :4].copy()), ValueError, "w is f32.*, N = 3, not of"),
    "no memory for it": (
        (ONES, np.broadcast_to(np.int64(0), 1 << 45), written()),
        MemoryError,
        "allocate",
    ),
    "an index outside": ((ONES, FIRST + 4, written()), IndexError, "gather"),
    "an index far outside": ((ONES, FIRST - (1 << 62), written()), IndexError, "gather"),
    "written and read-only": ((ONES, FIRST, read_only()), ValueError, "w is written"),
    "written in steps": ((ONES, FIRST, WIDE[::2, ::2]), ValueError, "w is written"),
    "written, not aligned": ((ONES, FIRST, unaligned()), ValueError, "w is written"),
    "written and read": ((ONES, FIRST, ONES), ValueError, "w is written, .* with input x"),
    "overlapping": (
        (FLAT[:12].reshape(3, 4), FIRST, FLAT[4:].reshape(3, 4)),
        ValueError,
        "w is written, .* with input x",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_that_does_not_fit_is_named(file, name):
    run = loaded(file, plain(text=CALLED, weights={}))
    arguments, kind, message = CALLS[name]
    with pytest.raises(kind, match=message):
        run(*arguments)


@pytest.mark.parametrize("x", [WIDE[::2, ::2], WIDE[2::-1, 3::-1], unaligned(), ONES[:0]])
def test_arrays_of_every_layout_are_read(file, x):
    run = loaded(file, plain(text=CALLED, weights={}))
    i, w = np.array([3, 0])[::-1], np.zeros(x.shape, np.float32)
    np.testing.assert_array_equal(run(x, i, w), np.take(x, i, 1))
    np.testing.assert_array_equal(w, x)


# ---------------------------------------------------------------- saving
def test_a_file_is_synchronised_with_its_folder(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.fstat(fd)), fsync(fd)))
    with atomic.replaced(tmp_path / "a") as f:
        f.write(b"all of it")
    assert (tmp_path / "a").read_bytes() == b"all of it"
    assert [q.st_ino for q in synced] == [(tmp_path / "a").stat().st_ino, tmp_path.stat().st_ino]


@pytest.mark.parametrize("nameless", [True, False])
def test_an_error_leaves_what_was_there(tmp_path, monkeypatch, nameless):
    if not nameless:
        monkeypatch.setattr(atomic, "_nameless", lambda folder: None)
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), atomic.replaced(tmp_path / "a") as f:
        f.write(b"new")
        raise ZeroDivisionError
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"
    with atomic.replaced(tmp_path / "a") as f:
        f.write(b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"new"


def test_a_process_that_is_killed_leaves_nothing(tmp_path):
    script = f"""
import os, signal, pathlib
from dy2st.export import atomic
os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)
with atomic.replaced(pathlib.Path({str(tmp_path)!r}, "a")) as f:
    f.write(b"half")
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=120)
    assert done.returncode == -signal.SIGKILL
    f = atomic._nameless(tmp_path)
    if f is None:
        pytest.skip("a system without files that have no name")
    f.close()
    assert list(tmp_path.iterdir()) == []


def test_the_members_have_their_names(file):
    assert {n for n, _ in members()} == {MANIFEST, PROGRAM, WEIGHTS}


def test_a_key_that_is_a_dict_is_no_defect(file):
    entries = ["dict", [['[{"a": 1}]', ["out", 0, []]]]]
    with pytest.raises(FileError, match="or a dict for a key"):
        loaded(file, plain(result=entries))


def test_a_defect_of_loading_is_said_to_be_one(file, monkeypatch):
    monkeypatch.setattr("dy2st.export.load.verify", lambda program: {}["planted"])
    with pytest.raises(FileError, match=r"KeyError: 'planted'.*a defect of dy2st"):
        loaded(file, plain())
