"""Many threads and many calls of one translated function."""

from __future__ import annotations

import gc
import sys
import threading
from pathlib import Path

import numpy as np
import paddle
import pytest

import dy2st
from tests.conftest import mostly_slow


class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.inner = paddle.nn.Linear(4, 4)

    def forward(self, x, gain=1.0):
        y = x
        for t in range(x.shape[0]):
            y = y * 0.5 + self.inner(x[t]) * gain
        return y.sum(0)


def data(n):
    x = paddle.full([n, 4], 0.25 * n)
    x.stop_gradient = False
    return x


@pytest.mark.parametrize("threads", mostly_slow([8, 50], 0, nightly=[100]))
def test_threads_with_changing_shapes(threads):
    eager, sizes, wrong = Net(), range(1, 7), []
    gains = (1.0, 2.0, 0.5, 3)
    want = {(n, g): eager(data(n), g).numpy() for n in sizes for g in gains}
    static = dy2st.to_static(eager)
    start, calls = threading.Barrier(threads), threads

    def work(seed):
        start.wait()
        for k, n in enumerate(np.random.default_rng(seed).choice(sizes, calls)):
            gain = gains[(seed + k) % len(gains)]
            y = static(data(int(n)), gain)
            if not np.allclose(y.numpy(), want[int(n), gain], 1e-5, 1e-5):
                wrong.append((seed, n, gain))
            if seed % 4 == 0:
                y.sum().backward()

    running = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not wrong
    assert dy2st.explain(static).made <= 2 * 4 * len(sizes)


def resident() -> int:
    """KiB of memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
@pytest.mark.parametrize("calls", mostly_slow([2000], nightly=[20000]))
def test_memory_does_not_grow_with_calls(calls, young):
    """Calls with gradients, with other arrays, and with Python numbers that change."""
    static, product = dy2st.to_static(Net()), dy2st.to_static(lambda x, a: x * a)
    x = data(5)

    def call(k):
        static(x, 1.0 + k).sum().backward()
        for q in (x, *static.parameters()):
            q.clear_gradient()
        product(x.detach(), np.full([5, 4], k, "float32"))

    for k in range(200):
        call(k)
    gc.collect()
    before = resident()
    for k in range(calls):
        call(k)
    gc.collect()
    assert resident() - before < 1024
    assert dy2st.explain(static).made == 2 and dy2st.explain(product).made == 1
