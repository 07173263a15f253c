"""Saved programs: one file, run by NumPy in a process without Paddle."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import paddle
import pytest
from paddle import nn
from paddle.static import InputSpec

import dy2st
from dy2st.export.load import FileError
from tests.parity.models import recurrent as zoo

ROOT = Path(__file__).parents[3]
SPEC = [InputSpec([None, None], "int64", "tokens")]


def save_lstm(path):
    paddle.seed(4)
    layer = zoo.CharLSTM()
    dy2st.save(layer, path, input_spec=SPEC)
    return layer


@pytest.mark.slow
def test_runs_in_a_process_without_paddle(tmp_path):
    file = tmp_path / "lstm.dy2st"
    layer = save_lstm(file)
    rng = np.random.default_rng(0)
    cases = [rng.integers(0, 50, shape) for shape in [(2, 5), (1, 1), (4, 33)]]
    for k, x in enumerate(cases):
        np.save(tmp_path / f"x{k}.npy", x)
    script = f"""
import sys
sys.modules["paddle"] = None
import numpy as np, dy2st
run = dy2st.load({str(file)!r})
for k in range({len(cases)}):
    np.save({str(tmp_path)!r} + f"/y{{k}}.npy", run(np.load({str(tmp_path)!r} + f"/x{{k}}.npy")))
    assert run.buffers["steps"] == k + 1
run.reset()
assert run.buffers["steps"] == 0
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, timeout=120)
    with paddle.no_grad():
        for k, x in enumerate(cases):
            want = layer(paddle.to_tensor(x)).numpy()
            np.testing.assert_allclose(np.load(tmp_path / f"y{k}.npy"), want, 2e-6, 2e-6)


def test_the_file_holds_text_and_weights(tmp_path):
    file = tmp_path / "lstm.dy2st"
    save_lstm(file)
    with zipfile.ZipFile(file) as z:
        assert sorted(z.namelist()) == ["manifest.json", "program.txt", "weights.safetensors"]
        assert json.loads(z.read("manifest.json"))["format"] == "dy2st"
        assert z.read("program.txt").decode().startswith("program forward(")
    assert [p.name for p in tmp_path.iterdir()] == ["lstm.dy2st"]


def test_saving_leaves_the_layer_alone(tmp_path):
    layer = save_lstm(tmp_path / "a.dy2st")
    assert layer.steps.item() == 0 and "forward" not in vars(layer)


def test_arguments_by_name_and_their_errors(tmp_path):
    save_lstm(tmp_path / "a.dy2st")
    run = dy2st.load(tmp_path / "a.dy2st")
    x = np.zeros([2, 3], "int64")
    np.testing.assert_array_equal(run(tokens=x), run(x))
    with pytest.raises(TypeError, match="tokens"):
        run()
    with pytest.raises(TypeError, match="tokens"):
        run(x, x)
    with pytest.raises(TypeError, match="tokens is float64"):
        run(np.zeros([2, 3]))
    with pytest.raises(ValueError, match="tokens"):
        run(np.zeros([2, 3, 4], "int64"))
    with pytest.raises(ValueError):
        run(np.zeros([2, 0], "int64"))
    steps = run.buffers["steps"].copy()
    with pytest.raises(IndexError):
        run(np.full([1, 2], 50))
    assert run.buffers["steps"] == steps


class Remembers(nn.Layer):
    """The state is an attribute that every call rebinds."""

    def __init__(self):
        super().__init__()
        self.cell = nn.SimpleRNNCell(3, 4)
        self.h = paddle.zeros([2, 4])

    def forward(self, x):
        for t in range(x.shape[1]):
            self.h = self.cell(x[:, t], self.h)[0]
        return {"state": self.h, "row": x[0], "n": x.shape[1], "label": ("last", None)}


def test_rebound_state_and_structures(tmp_path):
    paddle.seed(0)
    layer = Remembers()
    dy2st.save(layer, tmp_path / "r.dy2st", [InputSpec([2, None, 3], "float32", "x")])
    run = dy2st.load(tmp_path / "r.dy2st")
    rng = np.random.default_rng(1)
    for steps in (3, 5):
        x = rng.normal(size=[2, steps, 3]).astype("float32")
        with paddle.no_grad():
            want = layer(paddle.to_tensor(x))
        have = run(x)
        assert list(have) == list(want) and have["n"] == steps
        assert have["label"] == ("last", None)
        np.testing.assert_allclose(have["state"], want["state"].numpy(), 2e-6, 2e-6)
        np.testing.assert_array_equal(have["row"], x[0])
    run.reset()
    assert not run.buffers["h"].any() if "h" in run.buffers else True


class Keeps(nn.Layer):
    """Attributes that a call stores, and does not read before: a weight norm has one."""

    def __init__(self, asks):
        super().__init__()
        self.conv = nn.utils.weight_norm(nn.Conv1D(3, 4, 3))
        self.asks = asks

    def forward(self, x):
        if self.asks and hasattr(self, "features"):
            x = x + self.features.mean()
        self.features = self.conv(x)
        return self.features * 2


def test_attributes_that_no_call_reads_stay_out_of_the_file(tmp_path):
    x, spec = paddle.randn([2, 3, 8]), [InputSpec([None, 3, None], "float32", "x")]
    layer = Keeps(asks=False)
    dy2st.save(layer, tmp_path / "k.dy2st", spec)
    run = dy2st.load(tmp_path / "k.dy2st")
    want = layer(x).numpy()
    for _ in range(2):
        np.testing.assert_allclose(run(x.numpy()), want, 1e-5, 1e-5)
    with pytest.raises(dy2st.Dy2stError, match="it stores keeps.features, which it does not read"):
        dy2st.save(Keeps(asks=True), tmp_path / "k.dy2st", spec)


def collects(x):
    """Lists that a loop fills: of tensors, of pairs, of Python numbers; and a number."""
    rows, pairs, totals, n = [], [], [], 0
    for t in range(x.shape[0]):
        rows.append(x[t] * 2)
        pairs.append((x[t].sum(), paddle.exp(x[t])))
        totals.append(int(x[t].sum() * 4))
        n += int(x[t].max())
    return rows, pairs, {"totals": totals, "n": n}


def as_arrays(x):
    if isinstance(x, dict):
        return {k: as_arrays(q) for k, q in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x)(as_arrays(q) for q in x)
    return x.numpy() if isinstance(x, paddle.Tensor) else x


def same_arrays(have, want):
    assert type(have) is type(want)
    if isinstance(want, (list, tuple)):
        assert len(have) == len(want)
        for a, b in zip(have, want):
            same_arrays(a, b)
    elif isinstance(want, np.ndarray):
        assert have.dtype == want.dtype and have.shape == want.shape
        np.testing.assert_allclose(have, want, 2e-6, 2e-6)
    else:
        assert have == want


def test_lists_that_a_loop_fills(tmp_path):
    dy2st.save(collects, tmp_path / "l.dy2st", [InputSpec([None, 3], "float32", "x")])
    run = dy2st.load(tmp_path / "l.dy2st")
    rng = np.random.default_rng(2)
    for steps in (4, 1, 0):
        x = rng.normal(size=[steps, 3]).astype("float32")
        same_arrays(run(x), as_arrays(collects(paddle.to_tensor(x))))


def added(x, y):
    return x + y


def multiplied(x, y):
    return paddle.matmul(x, y)


def joined(x, y):
    return paddle.concat([x, y], 1)


def looped(x, y):
    for _ in range(3):
        x = x * y
    return x


EIGHT = InputSpec([None, 8], "float32")
TIED = [
    (added, [EIGHT, EIGHT], "x_0 == y_0 does not hold .add, test_export.py:"),
    (joined, [EIGHT, EIGHT], "x_0 == y_0 does not hold"),
    (looped, [EIGHT, EIGHT], "x_0 == y_0 does not hold"),
    (multiplied, [InputSpec([8, None], "float32"), EIGHT], "x_1 == y_0 does not hold"),
]


@pytest.mark.parametrize(("function", "spec", "message"), TIED)
def test_open_sizes_that_must_be_equal(tmp_path, function, spec, message):
    dy2st.save(function, tmp_path / "t.dy2st", spec)
    run = dy2st.load(tmp_path / "t.dy2st")
    turned = spec[0].shape[0] == 8
    for n in (3, 1, 7):
        x = np.ones((8, n) if turned else (n, 8), "float32")
        y = np.full((n, 8), 2, "float32")
        want = function(paddle.to_tensor(x), paddle.to_tensor(y)).numpy()
        np.testing.assert_allclose(run(x, y), want)
    with pytest.raises(ValueError, match=message) as found:
        run(np.ones((8, 3) if turned else (3, 8), "float32"), np.ones((4, 8), "float32"))
    for part in ("x is f32[", "y is f32[y_0,8] of shape [4, 8]"):
        assert part in str(found.value)


def test_open_sizes_that_need_not_be_equal_stay_apart(tmp_path):
    dy2st.save(lambda x, y: (x * 2, y.sum()), tmp_path / "t.dy2st", [EIGHT, EIGHT])
    run = dy2st.load(tmp_path / "t.dy2st")
    assert not run.program.requires
    doubled, total = run(np.ones((3, 8), "float32"), np.ones((4, 8), "float32"))
    assert doubled.shape == (3, 8) and total == 32


def test_a_message_says_what_open_sizes_stand_for(tmp_path):
    with pytest.raises(dy2st.SourceError, match=r"stand for numbers here: \[2, 8\], \[3, 7\]"):
        dy2st.save(added, tmp_path / "t", [EIGHT, InputSpec([None, 7], "float32")])


def test_foreign_ops_cannot_be_saved(tmp_path):
    with pytest.raises(dy2st.Dy2stError, match="lgamma"):
        dy2st.save(lambda x: paddle.lgamma(x), tmp_path / "f", [InputSpec([None], "float32")])
    assert list(tmp_path.iterdir()) == []


def test_damaged_files_are_refused(tmp_path):
    file = tmp_path / "lstm.dy2st"
    save_lstm(file)
    whole = file.read_bytes()
    rng = np.random.default_rng(8)
    bad = tmp_path / "bad.dy2st"
    for kind in range(60):
        data = bytearray(whole)
        at = int(rng.integers(0, len(data)))
        if kind % 3 == 0:
            data = data[:at]
        elif kind % 3 == 1:
            data[at] ^= int(rng.integers(1, 256))
        else:
            del data[at : at + int(rng.integers(1, 50))]
        bad.write_bytes(bytes(data))
        with pytest.raises(FileError):
            dy2st.load(bad)
    bad.write_text("no zip")
    with pytest.raises(FileError):
        dy2st.load(bad)
    with pytest.raises(FileNotFoundError):
        dy2st.load(tmp_path / "absent.dy2st")
