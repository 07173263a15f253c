"""The benchmark of the GPU, on the emulator: every program agrees with float64."""

from __future__ import annotations

import json

from scripts.bench import gpu


def test_the_benchmark_checks_what_it_times(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu, "REPEAT", 1)
    path = tmp_path / "rows.json"
    rows = gpu.main(["--json", str(path), "--sizes", "T=3,N=20,B=2,H=5"])
    assert [r.name for r in rows] == ["neuron", "recurrent", "softmax", "product"]
    assert all(r.error < 1e-6 for r in rows) and [r.waiting for r in rows] == [0, 1, 0, 0]
    assert json.loads(path.read_text())["device"].startswith("emulator, sm_90, 3 multi")
    assert "| recurrent | " in capsys.readouterr().out
