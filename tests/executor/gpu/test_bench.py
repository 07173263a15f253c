"""The benchmark of the GPU, on the emulator: what it checks, and that it ends."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from executor.gpu.driver import driver
from scripts.bench import gpu, gpu_device, gpu_peers, gpu_programs


@pytest.fixture(autouse=True)
def small(monkeypatch):
    sizes = {"REPEAT": 1, "ELEMENTS": 1000, "ROUNDS": 5, "SOAKED": 40}
    for name, n in sizes.items():
        monkeypatch.setattr(gpu, name, n)
    monkeypatch.setattr(gpu_programs, "SIZES", gpu_programs.SMALL)
    monkeypatch.setattr(gpu, "sanitized", lambda: {})
    monkeypatch.setattr(gpu_programs, "rows", lambda: [gpu_programs._examples(["exp", "sum"])])


def test_the_benchmark_checks_what_it_times(tmp_path, capsys):
    path = tmp_path / "rows.json"
    assert gpu.main(["--json", str(path)]) == 0
    found = json.loads(path.read_text())
    names = [re.match(r"\s*program (\w+)", t)[1] for t in gpu_programs.TEXTS]
    assert [r["name"] for r in found["programs"]] == names
    assert [r["waiting"] for r in found["programs"]] == [0, 1, 1, 0, 0, 0, 0, 1, 0]
    assert [r["kernels"] for r in found["programs"]][3:7] == [1, 1, 2, 1]
    assert found["device"].startswith("emulator, sm_90, 3 multi")
    assert found["ceilings"]["stale"] == 0 and found["ops with a large error"] == {}
    assert "| recurrent | " in capsys.readouterr().out


def test_a_wrong_result_is_an_error(monkeypatch, capsys):
    right = gpu_programs.reference
    monkeypatch.setattr(gpu_programs, "reference", lambda p, xs: [1.01 * a for a in right(p, xs)])
    assert gpu.main(["--only", "check"]) == 1


def test_a_barrier_that_does_not_wait_leaves_stale_words(monkeypatch):
    broken = gpu_device.KERNELS.replace("if (barrier(g, n)) return;", "g.round++;")
    monkeypatch.setattr(gpu_device, "KERNELS", broken)
    assert gpu_device.Probe(driver()).soak(40) > 0


def test_a_peer_has_a_time_only_if_its_result_is_right(monkeypatch):
    want = np.arange(6, dtype="f4").reshape(2, 3)
    found = {
        "right": lambda: (want[0], [want + 1e-6]),
        "wrong": lambda: [want + np.float32([1, 0, 0])],
        "other": lambda: want[0],
    }
    made = [gpu_peers.Peer(n, call, lambda call, repeat: 7.0) for n, call in found.items()]
    monkeypatch.setattr(gpu_peers, "torch_peers", lambda *_: iter(made))
    monkeypatch.setattr(gpu_peers.importlib.util, "find_spec", lambda name: name == "torch" or None)
    rows = dict(gpu_peers.peers("product", [], want, "float32", 1))
    assert rows == {
        "right": 7.0,
        "wrong": "wrong: 33.3% of the elements",
        "other": "wrong: 100.0% of the elements",
    }
