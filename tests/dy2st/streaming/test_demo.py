"""The demo of enhancement: its sound by chunks is that of the whole, and it can be drawn."""

import numpy as np
import pytest

from scripts import stream_demo


@pytest.mark.slow
def test_the_demo_agrees_with_the_whole(tmp_path, monkeypatch, capsys):
    plot = tmp_path / "plot.svg"
    arguments = ["demo", "--steps", "1", "--seconds", "0.33", "--plot", str(plot)]
    monkeypatch.setattr("sys.argv", arguments)
    assert stream_demo.main() == 0
    assert "delay 160 samples" in capsys.readouterr().out
    assert plot.read_text().count("<polyline") == 3


def test_the_transform_and_its_overlap_add_give_the_sound_back():
    model = stream_demo.Enhancer()
    model.mask.bias.set_value(np.full(model.mask.bias.shape, 30, "float32"))
    clean, _ = stream_demo.sound(0.1, 0)
    out = model(stream_demo.paddle.to_tensor(clean)).numpy()
    assert out[:, : -stream_demo.HOP] == pytest.approx(clean[:, : out.shape[1] - 160], abs=1e-5)
