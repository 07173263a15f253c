"""The benchmark of the GPU, on the emulator: what it checks, and that nothing loses what it has
found."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

from executor.gpu.driver import driver
from scripts.bench import gpu, gpu_device, gpu_measure, gpu_peers, gpu_programs
from scripts.bench.gpu import Part

SCALE = gpu_measure.Scale(gpu_programs.read(gpu_programs.SMALL), 1, 1000, 5, 40)


def records(part: str, scale: gpu_measure.Scale = SCALE) -> dict:
    found: dict = {}
    for new in gpu_measure.records(part, scale):
        found = gpu.merged(found, json.loads(json.dumps(new)))
    return found


@pytest.mark.slow
def test_each_program_is_checked_and_timed():
    waiting = {"lstm", "decode", "recurrent", "steps"}
    for name in gpu_programs.NAMES:
        found = records(f"program {name} float32")
        assert found["right"] and found["small error"] <= 1e-4 and found["error"] <= 1e-4, name
        assert found["waiting"] == (name in waiting), name
        assert {"call", "device", "host", "first call"} <= set(found)
        assert found["kernels"] == 1 or name not in ("softmax", "product"), name
        assert f"| {name} (float32) | " in gpu.line(Part("", 1), found)
    parts = {
        "device": {"copy": 1e9},
        "a": found,
        f"peers {name} float32": {"peers": {"x": 2.0, "y": "no"}},
    }
    (row,) = gpu.ratios(parts)
    assert row["peers"] == {"x": round(2 / found["device"], 2)} and row["floor"] > 0


def test_parts_share_what_is_right(monkeypatch, tmp_path):
    scale = replace(SCALE, folder=tmp_path)
    assert records("program lstm float32", scale)["right"]
    reference, calls = gpu_programs.reference, []
    monkeypatch.setattr(gpu_programs, "reference", lambda p, xs: 1 // 0)
    monkeypatch.setattr(gpu_measure, "peers", lambda *q: calls.append(q) or iter([("torch", 3.0)]))
    assert records("peers lstm float32", scale) == {"peers": {"torch": 3.0}}
    (_, arrays, want, *_), program = calls[0], gpu_programs.named("lstm", SCALE.sizes)
    np.testing.assert_array_equal(want, reference(program, arrays)[0])


def test_what_the_device_does(monkeypatch):
    monkeypatch.setitem(driver().__dict__, "threads", 32)
    monkeypatch.setenv("EMULATOR_THREADS", "32")
    found = records("device")
    assert found["device"].startswith("emulator, sm_90, 3 multi") and found["copy"] > 0
    assert found["matrix"] > 0
    assert records("soak") == {"rounds": 40, "stale": 0, "right": True}
    few = [gpu_programs._examples(["exp", "sum"])]
    monkeypatch.setattr(gpu_programs, "rows", lambda: few)
    assert records("ops 0")["right"]


def test_a_wrong_result_is_told(monkeypatch):
    """Also one of the small size only."""
    right = gpu_programs.reference
    wrong = iter([1.01, 1.0])
    monkeypatch.setattr(
        gpu_programs, "reference", lambda p, xs: [next(wrong) * a for a in right(p, xs)]
    )
    found = records("program softmax float32")
    assert not found["right"] and found["error"] <= 1e-4 and gpu.is_bad(found)
    assert "WRONG" in gpu.line(Part("", 1), found)


# ---------------------------------------------------------------- processes
def script(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", f"import os, time\n{text}"]


SCRIPTS = {
    "good": "print('{\"call\": 1}'); print('{\"right\": true}')",
    "crashes": "print('{\"device\": 2}', flush=True); os.write(2, b'Xid 31'); os.abort()",
    "hangs": "print('{\"device\": 3}', flush=True); os.fork(); time.sleep(60)",
    "cut": "print('{\"call\": 4}', flush=True); os.write(1, bytes([255, 10])); print('{\"a')",
}


@pytest.mark.slow
def test_what_fails_loses_its_own_part_only(tmp_path, monkeypatch, capsys):
    path = tmp_path / "found.json"
    todo = [Part(name, 0.4 if name == "hangs" else 20) for name in SCRIPTS]
    todo += [Part(f"good {k}", 20, alone=False) for k in range(3)]
    saved = []

    def start(name: str, limit: float) -> dict:
        saved.append(len(json.loads(path.read_text())["parts"]) if path.exists() else 0)
        return gpu.outcome(script(SCRIPTS[name.split()[0]]), limit)

    begun = time.monotonic()
    monkeypatch.setattr(gpu, "LEAST", 0.0)
    assert gpu.report(gpu.supervise(todo, start, 60, 2), path) == 1
    assert time.monotonic() - begun < 30 and saved[:4] == [0, 1, 2, 3]
    found = json.loads(path.read_text())["parts"]
    assert list(found) == [p.name for p in todo]
    assert found["good"]["call"] == 1 and found["good"]["right"] and found["cut"]["call"] == 4
    assert found["crashes"]["device"] == 2
    assert found["crashes"]["failed"].startswith("exit code -6: Xid 31")
    assert found["hangs"]["device"] == 3 and found["hangs"]["failed"].startswith("no end after 0 s")
    assert "hangs: device 3" in capsys.readouterr().out


def test_nothing_begins_when_the_time_is_over():
    def start(name: str, limit: float) -> dict:
        assert limit <= 60
        return {}

    found = [q for _, q in gpu.supervise([Part("a", 90), Part("b", 90)], start, 60, 1)]
    assert not any("failed" in q for q in found)
    ((_, late),) = gpu.supervise([Part("a", 90)], start, 1, 1)
    assert late["failed"] == "no time was left"


def test_the_parts_come_in_the_order_of_their_weight():
    names = [p.name for p in gpu.parts(["model"], "float32", True)]
    assert names[:4] == ["device", *(f"program {n} float32" for n in ("neuron", "lstm", "decode"))]
    assert names[-1] == "sanitize initcheck" and len(set(names)) == len(names)
    assert {"saved model float32", "program lstm bfloat16", "peers softmax float32"} <= set(names)
    assert not any("peers" in p.name for p in gpu.parts([], "float32", False))


WITHOUT_LLVM = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "llvmlite" and name not in sys.modules:
            raise ModuleNotFoundError(name)
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *q: None if name == "llvmlite" else find(name, *q)
sys.meta_path.insert(0, Finder())
from scripts.bench import gpu
sys.exit(gpu.main(["--part", "program softmax float32", "--only", "check"]))
"""


@pytest.mark.slow
def test_a_part_is_a_process_that_needs_no_llvm():
    found = gpu.outcome([sys.executable, "-c", WITHOUT_LLVM], 60)
    assert found["right"] and "failed" not in found
    assert gpu.command("soak", ["--sizes", ""])[1:] == [
        "-m", "scripts.bench.gpu", "--part", "soak", "--sizes", "",
    ]  # fmt: skip


def test_a_barrier_that_does_not_wait_leaves_stale_words(monkeypatch):
    broken = gpu_device.KERNELS.replace("if (barrier(g, n)) return;", "g.round++;")
    monkeypatch.setattr(gpu_device, "KERNELS", broken)
    assert gpu_device.Probe(driver()).soak(40) > 0


def test_a_peer_has_a_time_only_if_its_result_is_right(monkeypatch):
    want = np.arange(6, dtype="f4").reshape(2, 3)
    found = {
        "right": lambda: (want[0], [want + 1e-6]),
        "wrong": lambda: [want + np.float32([1, 0, 0])],
        "fails": lambda: 1 // 0,
        "other": lambda: want[0],
    }
    made = [gpu_peers.Peer(n, call, lambda call, repeat: 7.0) for n, call in found.items()]
    monkeypatch.setattr(gpu_peers, "torch_peers", lambda *_: iter(made))
    monkeypatch.setattr(gpu_peers.importlib.util, "find_spec", lambda name: name == "torch" or None)
    rows = dict(gpu_peers.peers("product", [], want, "float32", 1))
    assert rows == {
        "right": 7.0,
        "wrong": "wrong: 33.3% of the elements",
        "fails": "ZeroDivisionError: integer division or modulo by zero",
        "other": "wrong: 100.0% of the elements",
    }
