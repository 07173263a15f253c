"""The cost of running models chunk by chunk.

Prints Markdown. A stack of three causal convolutions (3 taps, 64 channels) and a GRU (64) on 16,000
frames in chunks of 160: the streaming program against the whole sequence at once, and, with
`--onnxruntime PYTHON` (an interpreter that has onnxruntime and onnx), against the same model
written by hand for ONNX Runtime with its caches as inputs and outputs. All run in turns, on one
thread. Then the real-time factor of each model of the tests: the time for a second of sound.

`python -m scripts.bench.bench_stream [--rounds 15] [--onnxruntime PYTHON]` from the root.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import nn
from paddle.static import InputSpec

import dy2st
from tests.dy2st.streaming import models

FRAMES, CHUNK, WIDTH = 16_000, 160, 64
#: model, shape, axis of time, chunk, frames of a second of sound
REAL_TIME = {
    "DeepSpeech2": ([1, None, 16], 1, 16, 100),
    "MDTC": ([1, None, 10], 1, 10, 100),
    "CRN": ([1, None, 16], 1, 4, 100),
    "DPRNN": ([1, None, 6], 1, 16, 100),
    "U2": ([1, None, 8], 1, 16, 100),
    "Vocoder": ([1, 8, None], 2, 5, 100),
    "WaveNet": ([1, 1, None], 2, 160, 16_000),
}


class Stack(nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.LayerList(nn.Conv1D(WIDTH, WIDTH, 3) for _ in range(3))
        self.rnn = nn.GRU(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        for conv in self.convs:
            x = F.relu(conv(F.pad(x, [2, 0], data_format="NCL")))
        y, _ = self.rnn(x.transpose([0, 2, 1]))
        return y


#: runs in the other interpreter: one pass over the sequence for each line that it reads
WORKER = """
import sys, time, numpy as np, onnx, onnxruntime as ort
from onnx import TensorProto as P, helper as h
d = dict(np.load(sys.argv[1]))
chunk, width, nodes, inits = int(d["chunk"]), int(d["width"]), [], []
def const(name, a):
    inits.append(onnx.numpy_helper.from_array(np.ascontiguousarray(a.astype("float32")), name))
    return name
ins = [h.make_tensor_value_info("x", P.FLOAT, [1, width, chunk])]
outs = [h.make_tensor_value_info("y", P.FLOAT, [chunk, 1, 1, width])]
x = "x"
for k in range(3):
    ins.append(h.make_tensor_value_info(f"c{k}", P.FLOAT, [1, width, 2]))
    outs.append(h.make_tensor_value_info(f"n{k}", P.FLOAT, [1, width, 2]))
    for n, v in (("s", chunk), ("e", chunk + 2), ("a", 2)):
        if k == 0: inits.append(onnx.numpy_helper.from_array(np.array([v], "int64"), n))
    nodes += [h.make_node("Concat", [f"c{k}", x], [f"w{k}"], axis=2),
              h.make_node("Slice", [f"w{k}", "s", "e", "a"], [f"n{k}"]),
              h.make_node("Conv", [f"w{k}", const(f"W{k}", d[f"w{k}"]),
                                   const(f"B{k}", d[f"b{k}"])], [f"v{k}"]),
              h.make_node("Relu", [f"v{k}"], [f"r{k}"])]
    x = f"r{k}"
def gates(a):
    r, z, c = np.split(a, 3)
    return np.concatenate([z, r, c])[None]
nodes += [h.make_node("Transpose", [x], ["t"], perm=[2, 0, 1]),
          h.make_node("GRU", ["t", const("W", gates(d["wi"])), const("R", gates(d["wh"])),
                      const("B", np.concatenate([gates(d["bi"]), gates(d["bh"])], 1)), "", "h0"],
                      ["y", "h1"], hidden_size=width, linear_before_reset=1)]
ins.append(h.make_tensor_value_info("h0", P.FLOAT, [1, 1, width]))
outs.append(h.make_tensor_value_info("h1", P.FLOAT, [1, 1, width]))
graph = h.make_graph(nodes, "stack", ins, outs, inits)
model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)])
model.ir_version = 8
o = ort.SessionOptions(); o.intra_op_num_threads = o.inter_op_num_threads = 1
s = ort.InferenceSession(model.SerializeToString(), o, providers=["CPUExecutionProvider"])
chunks = [np.ascontiguousarray(d["x"][:, :, k:k + chunk]) for k in range(0, d["x"].shape[2], chunk)]
names = ["y", "n0", "n1", "n2", "h1"]
for line in sys.stdin:
    state = {f"c{k}": np.zeros([1, width, 2], "float32") for k in range(3)}
    state["h0"] = np.zeros([1, 1, width], "float32")
    start, ys = time.perf_counter(), []
    for c in chunks:
        y, n0, n1, n2, h1 = s.run(names, {"x": c, **state})
        ys.append(y); state = {"c0": n0, "c1": n1, "c2": n2, "h0": h1}
    took = time.perf_counter() - start
    np.save(sys.argv[2], np.concatenate(ys)[:, 0, 0])
    print(took, flush=True)
"""


class OnnxRuntime:
    """The model written by hand, in another process."""

    def __init__(self, python: str, layer: Stack, x: np.ndarray, folder: Path) -> None:
        rnn = layer.rnn
        arrays = {"x": x, "chunk": np.array(CHUNK), "width": np.array(WIDTH)}
        for k, conv in enumerate(layer.convs):
            arrays |= {f"w{k}": conv.weight.numpy(), f"b{k}": conv.bias.numpy()}
        arrays |= {"wi": rnn.weight_ih_l0.numpy(), "wh": rnn.weight_hh_l0.numpy()}
        arrays |= {"bi": rnn.bias_ih_l0.numpy(), "bh": rnn.bias_hh_l0.numpy()}
        np.savez(folder / "arrays.npz", **arrays)
        self.result = folder / "y.npy"
        command = [python, "-c", WORKER, str(folder / "arrays.npz"), str(self.result)]
        self.process = subprocess.Popen(  # noqa: S603  an interpreter that the caller names
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def timed(f: Callable[[], object]) -> Callable[[], float]:
    def call() -> float:
        start = time.perf_counter()
        f()
        return time.perf_counter() - start

    return call


def in_turns(ways: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in ways}
    for f in ways.values():
        f()
    for _ in range(rounds):
        for name, f in ways.items():
            found[name].append(1e3 * f())
    return found


def stack(rounds: int, python: str | None, folder: Path) -> None:
    paddle.seed(0)
    layer = Stack()
    x = np.random.default_rng(0).standard_normal((1, WIDTH, FRAMES)).astype("float32")
    spec = [InputSpec([1, WIDTH, None], "float32", "x")]
    s = dy2st.stream(layer, {"x": 2}, CHUNK, input_spec=spec)
    chunks = [np.ascontiguousarray(x[:, :, k : k + CHUNK]) for k in range(0, FRAMES, CHUNK)]
    room, tensor = [np.empty([1, CHUNK, WIDTH], "float32")], paddle.to_tensor(x)
    ways: dict[str, Callable[[], float]] = {}
    other = OnnxRuntime(python, layer, x, folder) if python else None
    with paddle.no_grad():
        static = dy2st.to_static(layer)
        whole = static(tensor).numpy()[0]
        s.reset()
        ours = np.concatenate([s(c) for c in chunks], 1)[0]
        print(f"largest difference from the whole sequence: {abs(ours - whole).max():.1e}")
        ways["streaming program"] = timed(lambda: [s(c, out=room) for c in chunks])
        ways["whole sequence"] = timed(lambda: static(tensor))
        if other is not None:
            ways["ONNX Runtime, by hand"] = other
        found = in_turns(ways, rounds)
    if other is not None:
        print(f"of ONNX Runtime: {abs(np.load(other.result) - whole).max():.1e}")
        other.close()
    base = found["streaming program"]
    print("\n| 16,000 frames, chunks of 160 | median, ms | least, ms | streaming, times that |")
    print("|---|---:|---:|---:|")
    for name, times in found.items():
        ratio = statistics.median(a / b for a, b in zip(base, times))
        print(f"| {name} | {statistics.median(times):.1f} | {min(times):.1f} | {ratio:.2f} |")


def real_time(rounds: int) -> None:
    print("\n| model | chunk, frames | a chunk, µs | real-time factor |")
    print("|---|---:|---:|---:|")
    for name, (shape, axis, chunk, second) in REAL_TIME.items():
        paddle.seed(0)
        layer = getattr(models, name)()
        layer.eval()
        spec = [InputSpec(list(shape), "float32", "x")]
        s = dy2st.stream(layer, {"x": axis}, chunk, input_spec=spec)
        x = np.ones([chunk if k == axis else d for k, d in enumerate(shape)], "float32")
        call = timed(lambda s=s, x=x: [s(x) for _ in range(50)])
        took = statistics.median(in_turns({name: call}, rounds)[name]) / 50
        factor = took / 1e3 / (chunk / second)
        print(f"| {name} | {chunk} | {1e3 * took:.0f} | {factor:.5f} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--onnxruntime", help="an interpreter that has onnxruntime and onnx")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stack(options.rounds, options.onnxruntime, Path(folder))
    real_time(options.rounds)


if __name__ == "__main__":
    sys.exit(main())
