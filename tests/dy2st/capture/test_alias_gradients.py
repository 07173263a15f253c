"""Gradients where tensors share memory: eager's where eager is right, else the true ones.

A case whose write is marked with `# ignored` is one where eager leaves that write out of the
gradient of the other tensors: there the gradient must be the slope, and one warning names the line.
"""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import paddle
import pytest
from paddle import nn

import dy2st
from tests.check import default_dtype, weighted

pytestmark = pytest.mark.sampled

STEP = 1e-6


class Plain(nn.Layer):
    """Arguments a[3, 4] and b[4]; a buffer of rows."""

    def __init__(self):
        super().__init__()
        self.register_buffer("rows", paddle.full([3, 4], 0.5))
        self.kept = None


# ---------------------------------------------------------------- eager ignores the write
class BaseAfterAViewWasScaled(Plain):
    def forward(self, a, b):
        h = a * 2.0
        w = h[0:2]
        w.scale_(3.0)  # ignored
        return h


class ViewAfterTheBaseWasScaled(Plain):
    def forward(self, a, b):
        h = a * 2.0
        w = h[0:2]
        h.scale_(3.0)  # ignored
        return w


class BaseAfterAssigningThroughAView(Plain):
    def forward(self, a, b):
        h = a * 2.0
        v = h[0:2]
        v[0] = 5.0  # ignored
        return h


class ReshapedBaseAfterMultiplyingByAGradient(Plain):
    def forward(self, a, b):
        h = a * 2.0
        u = h.reshape([3, 1, 4])
        u.multiply_(b.reshape([1, 1, 4]) * 5)  # ignored
        return h


class ViewOfAView(Plain):
    def forward(self, a, b):
        h = a * 2.0
        rows = h[1:]
        cell = rows[1, 2:]
        cell.scale_(3.0)  # ignored
        return h * h


class ThroughTranspose(Plain):
    def forward(self, a, b):
        h = a * 2.0
        columns = h.T
        columns[1] = columns[1] * b[0]  # ignored
        return h


class ThroughReshapeOfASlice(Plain):
    def forward(self, a, b):
        h = a * 2.0
        u = h[1:].reshape([-1]).unsqueeze(0)
        u.multiply_(u * 0.5)  # ignored
        return paddle.tanh(h)


class SiblingsThatOverlap(Plain):
    def forward(self, a, b):
        h = a * 2.0
        u, v = h[0:2], h[1:3]
        u.multiply_(b)  # ignored
        return v * 1.0


class RowByRowInALoop(Plain):
    def forward(self, a, b):
        h = a * 2.0
        for t in range(3):
            row = h[t]
            row.multiply_(b)  # ignored
        return h * h


class ViewFromOutsideOfALoop(Plain):
    def forward(self, a, b):
        h = a * 2.0
        rows = h[1:]
        for t in range(2):
            rows[t] = rows[t] * b + h[0]  # ignored
        return h


class RowsOfATensor(Plain):
    def forward(self, a, b):
        h = a * 2.0
        for row in h:
            row.scale_(0.5)  # ignored
        return h * b


class InABranchOnData(Plain):
    def forward(self, a, b):
        h = a * 2.0
        v = h[0:2]
        if a[0, 0] < 100.0:
            v.multiply_(b)  # ignored
        return h


class InAWhile(Plain):
    def forward(self, a, b):
        h = a * 2.0
        v = h[0]
        while h.abs().sum() < 60.0:
            v.scale_(1.5, bias=0.5)  # ignored
        return h * h


class ThroughAnIndexFromData(Plain):
    def forward(self, a, b):
        h = a * 2.0
        k = paddle.argmax(a[:, 0])
        row = h[k]
        row.multiply_(b)  # ignored
        return h


class ThroughAnAttribute(Plain):
    def forward(self, a, b):
        h = a * 2.0
        self.kept = h[:, 1:3]
        h.multiply_(b)  # ignored
        return self.kept * 1.0


class ThroughAList(Plain):
    def forward(self, a, b):
        h = a * 2.0
        parts = [h[0], h[1]]
        parts[1].multiply_(b)  # ignored
        return h


class BaseAndViewAreResults(Plain):
    def forward(self, a, b):
        h = a * 2.0
        w = h[:, :2]
        w.scale_(3.0)  # ignored
        return h, w


class SqueezeOfNothingIsAResult(Plain):
    def forward(self, a, b):
        h = a * 2.0
        same = h.squeeze(0)
        w = h[1:]
        w.multiply_(b)  # ignored
        return w, same


class AssignedThroughAFlatView(Plain):
    def forward(self, a, b):
        h = a * 2.0
        flat = h.flatten()
        flat[::3] = b * b  # ignored
        return h * h


class AnotherRowOfABufferIsWrittenLater(Plain):
    def forward(self, a, b):
        self.rows[0].add_(b)  # ignored
        self.rows[1].add_(b)
        return self.rows[0] * b


class TwoRowsOfWhichOneIsRead(Plain):
    def forward(self, a, b):
        h = a * 2.0
        h[0].multiply_(b)  # ignored
        h[1].multiply_(b)
        return h[0] * h[0]


class AValueOfABufferIsAFactor(Plain):
    """To eager the buffer has no gradient, nor has what is computed from it."""

    def forward(self, a, b):
        row = self.rows[0]
        row.multiply_(b)  # ignored
        y = self.rows[0] * 2.0 + 1.0
        return y * a


class SetBesideAnotherWrite(Plain):
    def forward(self, a, b):
        h = a * 2.0
        row = h[0]
        row.multiply_(b)  # ignored
        h[1] = b
        return h * h


class WrittenFirstAndAnotherPartLater(Plain):
    def forward(self, a, b):
        h = a * 2.0
        u, v = h[0], h[1]
        u.multiply_(b)  # ignored
        h[2] = b * b
        v.add_(paddle.ones([4]))
        return h


class TheSameRowFromDataTwice(Plain):
    def forward(self, a, b):
        h = a * 2.0
        k = paddle.argmax(a[:, 0])
        one, two = h[k], h[k]
        one.multiply_(b)  # ignored
        return two * 1.0


class ReadBeforeTheWriteInALoop(Plain):
    """The next iteration reads what this one has written."""

    def forward(self, a, b):
        h, s = a * 2.0, b * 0.0
        v = h[0]
        for t in range(3):
            s = s + v
            h[0] = b * (t + 1.0)  # ignored
        return s


class AViewOfAnotherObjectInALoop(Plain):
    def forward(self, a, b):
        h, s = a * 2.0, b * 0.0
        w = h[1:]
        for t in range(3):
            s = s + h[1] * (t + 1.0)
            w.add_(b)  # ignored
        return s


class RowsOfABufferInALoop(Plain):
    def forward(self, a, b):
        for t in range(3):
            self.rows[t].add_(b)  # ignored
        return self.rows * b


# ---------------------------------------------------------------- eager is right
class ANumberIsAddedThroughAView(Plain):
    def forward(self, a, b):
        h = a * 2.0
        h[0].add_(self.rows[0])
        h[1:].subtract_(paddle.ones([4]))
        h[:, 2].scale_(1.0, bias=2.0)
        return h * b


class AllIsReplacedAfterAView(Plain):
    def forward(self, a, b):
        h = a * 2.0
        h[0].multiply_(b)
        paddle.assign(a * b, h)
        return h * h


class DetachedAfterAWrite(Plain):
    def forward(self, a, b):
        h = a * 2.0
        d = h.detach()
        h.multiply_(b)
        return d * b


class ReadAndWrittenInALoop(Plain):
    def forward(self, a, b):
        h, s = a * 2.0, b * 0.0
        for t in range(3):
            s = s + h[0] + h.sum()
            h.add_(b)
            h[1] = b * (t + 1.0)
        return s


class TheViewThatWasWritten(Plain):
    def forward(self, a, b):
        h = a * 2.0
        v = h[0:2]
        v[0] = 5.0
        return v


class AWholeSliceIsTheSameObject(Plain):
    def forward(self, a, b):
        h = a * 2.0
        h[0] = 5.0
        again = h[:]
        return again


class AssignedValueRequiresAGradient(Plain):
    def forward(self, a, b):
        h = a * 2.0
        h[1] = b[0]
        h[:, 2] = b[1:] * b[0]
        return h * h


class AddedToASlice(Plain):
    def forward(self, a, b):
        h = a * 2.0
        h[1] += b
        h[:, 0] -= b[:3]
        return h


class ReadBeforeTheWrite(Plain):
    def forward(self, a, b):
        h = a * 2.0
        y = h * 1.0
        h.scale_(3.0)
        return y + h


class SiblingsApart(Plain):
    def forward(self, a, b):
        h = a * 2.0
        u, v = h[:1], h[1:]
        u.multiply_(b)
        return v * 1.0, u * 1.0


class EvenAndOddRows(Plain):
    def forward(self, a, b):
        h = a * 2.0
        odd = h[:, 1::2]
        even = h[:, ::2]
        even.scale_(3.0)
        return odd * odd, even


class ACopyIsWritten(Plain):
    def forward(self, a, b):
        h = a * 2.0
        c, picked = h.clone(), h[[0, 2]]
        c.multiply_(b)
        picked.scale_(5.0)
        return h + c, picked


class ACopyByReshape(Plain):
    def forward(self, a, b):
        h = a * 2.0
        flat = h.T.reshape([-1])
        flat.scale_(3.0)
        return h, flat


class AugmentedAssignmentRebinds(Plain):
    def forward(self, a, b):
        h = a * 2.0
        v = h[0]
        v += b
        v *= b
        return h, v


class SetInALoop(Plain):
    def forward(self, a, b):
        y = paddle.zeros([3, 4])
        for t in range(3):
            y[t] = a[t] * b
            y[t] += a[t]
        return y


class SetInABranch(Plain):
    def forward(self, a, b):
        y = a * 1.0
        if a[0, 0] < 100.0:
            y[0] = b * b
        else:
            y[1] = b
        return y * y


class ABufferIsWrittenAndRead(Plain):
    def forward(self, a, b):
        self.rows.add_(a * b)
        row = self.rows[0]
        return self.rows * 2.0, row * row


class ABufferIsFilledInALoop(Plain):
    def forward(self, a, b):
        h = b
        for t in range(3):
            h = paddle.tanh(h * a[t])
            self.rows[t] = h
        return self.rows * 1.0


class RowsAreTakenAfterTheWrite(Plain):
    def forward(self, a, b):
        h = a * 2.0
        h.multiply_(b)
        return [row * row for row in h]


# ---------------------------------------------------------------- eager cannot run backwards
class MultipliedSlice(Plain):
    def forward(self, a, b):
        h = a * 2.0
        h[1] += b
        h[:, 0] *= b[:3]
        return h


class SquaredInALoop(Plain):
    def forward(self, a, b):
        y = paddle.zeros([3, 4])
        for t in range(3):
            y[t] = a[t] * b
            y[t] = y[t] * y[t]
        return y


class AddedInALoop(Plain):
    def forward(self, a, b):
        y = a * 1.0
        for t in range(1, 3):
            y[t] += y[t - 1] * b
        return y


# ---------------------------------------------------------------- what autograd does not see
class WrittenThroughDetach(Plain):
    def forward(self, a, b):
        h = a * 2.0
        h.detach()[0] = 100.0
        return h * b


class WrittenWithoutGradients(Plain):
    def forward(self, a, b):
        h = a * 2.0
        v = h[1:]
        with paddle.no_grad():
            v.scale_(3.0)
            h[0] = 5.0
        return h + b


class SetByValue(Plain):
    def forward(self, a, b):
        h = a * 2.0
        h.detach().set_value(a.detach() * 5.0)
        return h + b


class ARowThatRequiredNoGradient(Plain):
    def forward(self, a, b):
        row = self.rows[0]
        self.rows.add_(a * b)
        return row * row


CASES = [q for q in list(globals().values()) if isinstance(q, type) and issubclass(q, Plain)][1:]
RAISES = (MultipliedSlice, SquaredInALoop, AddedInALoop)
HIDDEN = (
    DetachedAfterAWrite, WrittenThroughDetach, WrittenWithoutGradients, SetByValue,
    ARowThatRequiredNoGradient,
)  # fmt: skip


def ignored(case):
    """The line of the write that eager leaves out of a gradient, or None."""
    lines, first = inspect.getsourcelines(case)
    found = [k for k, q in enumerate(lines) if q.rstrip().endswith("# ignored")]
    return first + found[0] if found else None


def arguments(call):
    rng = np.random.default_rng([7, call])
    return rng.normal(size=[3, 4]), rng.normal(size=[4]) + 1.5


def total(model, arrays):
    """The sum of the results, each element with a weight of its own; eager, without gradients."""
    with paddle.no_grad():
        out = model(*(paddle.to_tensor(q) for q in arrays))
        for q in out if isinstance(out, (tuple, list)) else [out]:
            q.stop_gradient = False
        return float(weighted(out))


def slopes(case, arrays):
    """Finite differences; every evaluation starts with a Layer of its own."""
    out = []
    for k, array in enumerate(arrays):
        slope = np.zeros_like(array)
        for at in np.ndindex(array.shape):
            ends = []
            for step in (STEP, -STEP):
                moved = [q.copy() for q in arrays]
                moved[k][at] += step
                ends.append(total(case(), moved))
            slope[at] = (ends[0] - ends[1]) / (2 * STEP)
        out.append(slope)
    return out


def derived(model, arrays):
    """Gradients of the arguments, zeros for none, and the warnings about shared memory."""
    leaves = [paddle.to_tensor(q, stop_gradient=False) for q in arrays]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss = weighted(model(*(q * 1.0 for q in leaves)))
    if loss is not None:
        loss.backward()
    found = [str(w.message) for w in caught if issubclass(w.category, dy2st.AliasWarning)]
    grads = [np.zeros(q.shape) if q.grad is None else q.grad.numpy() for q in leaves]
    return grads, found


def agree(have, want, bound):
    return all(np.allclose(a, b, bound, bound) for a, b in zip(have, want, strict=True))


@pytest.mark.quick("BaseAfterAViewWasScaled", "InABranchOnData")
@pytest.mark.parametrize("case", CASES, ids=lambda q: q.__name__)
def test_gradients(case):
    """Three calls, each with buffers that know nothing of the graph of the call before."""
    line = ignored(case)
    with default_dtype("float64"):
        eager, static = case(), dy2st.to_static(case())
        for call in range(3):
            arrays = arguments(call)
            for model in (eager, static):
                model.register_buffer("rows", paddle.full([3, 4], 0.5))
            have, found = derived(static, arrays)
            assert len(found) == (line is not None and call == 0), found
            assert not found or f"test_alias_gradients.py:{line}:" in found[0], found
            if case not in HIDDEN:
                slope = slopes(case, arrays)
                assert agree(have, slope, 1e-6), (call, have, slope)
            if case in RAISES:
                with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                    derived(eager, arrays)
                continue
            want, none = derived(eager, arrays)
            assert none == []
            assert agree(have, want, 1e-9) == (line is None), (call, have, want)
