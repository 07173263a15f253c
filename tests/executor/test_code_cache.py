"""Machine code on disk: read again only as it was written, by its user, for the same key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from executor import code_cache


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("DY2ST_CACHE", str(tmp_path / "new" / "cache"))
    return tmp_path / "new" / "cache"


class Compilations:
    def __init__(self):
        self.keys = []

    def __call__(self, *key):
        def compile():
            self.keys.append(key)
            return " ".join(key).encode()

        assert code_cache.machine_code(key, compile) == " ".join(key).encode()
        return self.keys


def test_a_key_is_compiled_once(folder):
    code = Compilations()
    keys = [("a", "b"), ("ab", ""), ("a b",), ("", "ab")]
    for _ in range(2):
        for key in keys:
            code(*key)
    assert code.keys == keys
    assert folder.stat().st_mode & 0o077 == 0
    assert len(list(folder.iterdir())) == 4


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b"", lambda b: b[::-1]]
)
def test_a_damaged_file_is_not_read(folder, damage):
    code = Compilations()
    code("text")
    (file,) = folder.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert len(code("text")) == 2
    assert len(code("text")) == 2


def test_a_folder_that_others_can_write_is_not_used(folder):
    code = Compilations()
    code("text")
    folder.chmod(0o777)
    assert len(code("text")) == 2
    code("another")
    assert len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("place", ["", "/proc/none/dy2st", "file"])
def test_without_a_folder_everything_is_compiled(monkeypatch, tmp_path, place):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    monkeypatch.setenv("DY2ST_CACHE", place)
    code = Compilations()
    code("text")
    assert len(code("text")) == 2
    assert os.listdir() == ["file"]


def test_a_full_disk_is_no_error(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    code = Compilations()
    monkeypatch.setattr(Path, "replace", full)
    code("text")
    assert list(folder.iterdir()) == []


def test_the_folder_is_bounded(folder, monkeypatch):
    monkeypatch.setattr(code_cache, "MOST_BYTES", 60)
    monkeypatch.setattr(code_cache, "INTERVAL", 1)
    code = Compilations()
    for key in "abcd":
        code(key)
        for file in folder.iterdir():
            os.utime(file, (0, file.stat().st_mtime - 10))
    assert len(list(folder.iterdir())) == 2
    assert code("d") == code("c") == [(q,) for q in "abcd"]
    assert len(code("a")) == 5


@pytest.mark.slow
def test_threads_and_processes_share_it(folder):
    code = Compilations()
    threads = [Thread(target=code, args=(str(k % 3),)) for k in range(24)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    text = "from executor import code_cache; code_cache.machine_code(('1',), lambda: 1 / 0)"
    subprocess.run([sys.executable, "-c", text], check=True)
    assert len(list(folder.iterdir())) == 3


@pytest.mark.slow
def test_a_program_of_an_earlier_process_is_not_compiled_again(folder):
    text = """
import sys
import numpy as np
import executor, ir
from executor.cpu import jit
if sys.argv[1:]:
    del jit._optimised
p = ir.parse('program p(%x: f32[n] arg "x") {\\n  %y = tanh(%x)  : f32[n]\\n  return %y\\n}')
print(executor.compile(p)(np.ones(3, np.float32)))
"""
    command = [sys.executable, "-c", text]
    runs = [subprocess.run(command + more, capture_output=True) for more in ([], ["again"])]
    assert runs[0].stdout == runs[1].stdout != b"", runs
