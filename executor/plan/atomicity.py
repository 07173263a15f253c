"""Atomicity: a call that fails changes no input.

An input that would be written before an op that may fail is written at the end instead, from a
copy. The copy is not needed where a loop can check all of its indices before it starts:
`checked_first`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from executor.launches import Check, Failure, Gather, Index, Launch, Loop, When, blocks, results
from executor.memory import Buffer, View, memory_of
from ir import CapacityExceeded
from ir.types import I64, Size


def written_early(launches: Sequence[Launch], failures: Sequence[Failure]) -> dict[Buffer, int]:
    """Inputs that are written before a launch that may fail, with the number of its error."""
    out: dict[Buffer, int] = {}
    _walk(launches, failures, frozenset(), out)
    return out


def _walk(
    launches: Sequence[Launch],
    failures: Sequence[Failure],
    written: frozenset[Buffer],
    out: dict[Buffer, int],
) -> frozenset[Buffer]:
    for x in launches:
        written |= {v.buffer for v in results(x) if v.buffer.kind == "input"}
        error = _error(x, failures)
        if error:
            out.update((b, error) for b in written - out.keys())
        after = written.union(*(_walk(b, failures, written, out) for b in blocks(x)))
        if isinstance(x, Loop) and after != written:
            _walk(x.body, failures, after, out)
        written = after
    return written


def _error(x: Launch, failures: Sequence[Failure]) -> int:
    """The number of the error that may stop `x`; 0 if none can."""
    error: int = getattr(x, "error", 0)
    return 0 if error and failures[error - 1].impossible else error


# ---------------------------------------------------------------- checks before a loop
def checked_first(launches: Sequence[Launch], failures: Sequence[Failure]) -> tuple[Launch, ...]:
    """Loops that write inputs are preceded by a loop that checks all of their indices, if these do
    not depend on what the loop computes. The errors, and their order, stay the same."""
    out: list[Launch] = []
    for x in launches:
        if isinstance(x, Loop) and x.go is None:
            stored = frozenset(_stored(x.body))
            body = _Checks(failures, stored).of(x.body) if _writes_inputs(stored) else None
            if body:
                out += [replace(x, body=body), _unchecked(x, failures)]
                continue
        out.append(x)
    return tuple(out)


def _writes_inputs(stored: Iterable[Buffer]) -> bool:
    return any(b.kind == "input" for b in stored)


def _stored(launches: Iterable[Launch]) -> Iterator[Buffer]:
    for x in launches:
        yield from (v.buffer for v in results(x))
        for inside in blocks(x):
            yield from _stored(inside)


@dataclass(frozen=True)
class _Checks:
    """`stored` are the buffers that the loop writes."""

    failures: Sequence[Failure]
    stored: frozenset[Buffer]

    def of(self, launches: Iterable[Launch]) -> tuple[Launch, ...] | None:
        """The launches that may fail, with the launches that bind their symbols; None if their
        operands depend on values that the loop computes. Empty if nothing fails."""
        out: list[Launch] = []
        for x in launches:
            found = self.one(x)
            if found is None:
                return None
            out += found
        fails = any(self.fails(x) for x in out)
        return tuple(out) if fails else ()

    def one(self, x: Launch) -> Sequence[Launch] | None:
        if isinstance(x, (When, Loop)) and getattr(x, "go", None) is None:
            body = self.of(x.body)
            return body if not body else [replace(x, body=body)]
        if isinstance(x, Index):
            known = not isinstance(x.source, View) or self.known(x.source)
            return [x] if known else None
        if not self.fails(x):
            return ()
        if isinstance(x, Check):
            counted = self.failures[x.error - 1].kind is CapacityExceeded
            return None if counted else [x]
        if isinstance(x, Gather) and x.index.dtype == I64 and self.known(x.index):
            return [_rows_checked(x)]
        return None

    def known(self, v: View) -> bool:
        """Whether the loop does not write what `v` shows."""
        return self.stored.isdisjoint(memory_of(v.buffer))

    def fails(self, x: Launch) -> bool:
        inside = (q for b in blocks(x) for q in b)
        return bool(_error(x, self.failures)) or any(map(self.fails, inside))


def _rows_checked(x: Gather) -> Launch:
    """Loops over the indices of a gather."""
    names = [f"#g{x.error}.{axis}" for axis in range(x.index.ndim)]
    source = x.index
    for name in names:
        source = source.index(0, Size.named(name))
    inner: Launch = Index(f"#g{x.error}", source, x.x.shape[x.axis], x.error, x.wrap)
    for name, n in zip(reversed(names), reversed(x.index.shape)):
        inner = Loop(name, f"{name}.p", f"{name}.q", n, (inner,))
    return inner


def _unchecked(x: Launch, failures: Sequence[Failure]) -> Launch:
    """The launches without the checks that have been made already."""
    if isinstance(x, (When, Loop)):
        body = tuple(_unchecked(q, failures) for q in x.body if not isinstance(q, Check))
        return replace(x, body=body)
    if isinstance(x, (Index, Gather)) and _error(x, failures):
        return replace(x, error=0)
    return x
