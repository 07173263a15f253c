"""The cache of the translations of one function: lookup by a call's arguments, insertion, eviction.

`Cache.entries` maps what a call is specialised on (`Signature.key`) to entries, newest first. All
entries together are at most `MOST_PROGRAMS`; the one that was used least recently goes.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from dy2st.capture.foreign.iterators import told
from dy2st.compiled.arguments import argument_names
from dy2st.compiled.entry import MISS, Entry
from dy2st.compiled.error_exits import (
    EARLY,
    ErrorPath,
    RerunEagerly,
    RetraceInputs,
    UnrolledError,
    as_raised,
)
from dy2st.compiled.errors import users_error
from dy2st.compiled.foreign_kernels import CPU, Device, code_of
from dy2st.compiled.recompilation import (
    Explanation,
    GuardChange,
    RecompileReason,
    RecompileWarning,
    Specialization,
    nearest,
    remedies,
    tensor_text,
)
from dy2st.compiled.translate import translate
from dy2st.state.dynamic_numbers import DynamicNumbers
from dy2st.state.signature import Signature
from dy2st.state.strings import is_lazy
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.signals import RetraceForTruth
from dy2st.trace.user_stack import is_internal, user_loc
from ir import SourceError

#: programs of one entry that end in an error
MOST_ENDINGS = 8
#: a trace stores stand-ins in the user's objects; CPython's syntax trees are built by one thread
TRANSLATING = threading.RLock()
MOST_PROGRAMS = 64
DIRECT = """def direct(args):
    try:
        {lines}
        if not ({test}): return _MISS
    except (AttributeError, TypeError, ValueError): return _MISS
    return _CALL({leaves})
"""
#: held while a call runs again, and what it shows is not shown a second time
SILENT = threading.RLock()


def set_direct(entry: Entry, signature: Signature, key: Sequence[Any]) -> None:
    """Let calls of this key, one of the signature, come in by `entry.direct`."""
    test = signature.test(key, entry.compared)
    if test is not None:
        names = {**test.names, "_MISS": MISS, "_CALL": entry.call}
        lines = "\n        ".join(test.lines)
        exec(code_of(DIRECT.format(lines=lines, test=test.text, leaves=test.leaves)), names)
        entry.direct = names["direct"]  # type: ignore[assignment]


def changes_of(entry: Entry, leaves: Sequence[object]) -> list[GuardChange]:
    """Return the reasons for which an entry rejects a call: changed values that its trace has read,
    or tensors that it looks up."""
    found = entry.checks.changes(leaves)
    for number, q in enumerate(entry.traced if not found else ()):
        now = entry.input(number, leaves) if q.place is not None and q.number is None else None
        before = f"{q.type.dtype.numpy.name}{list(q.type.shape)}"
        after = tensor_text(now) if isinstance(now, Tensor) else before
        if after != before:
            found.append(GuardChange(q.name, before, after))
    return found


def guarding(
    numbers: DynamicNumbers | None,
    function: Callable[..., object],
    signature: Signature,
    spec: Sequence[object] | None,
    *options: Any,
    **more: Any,
) -> Entry:
    """A translation, with the truths of conditions on `numbers` as guards where it needs them."""
    while True:
        try:
            return translate(function, signature, spec, numbers, *options, **more)
        except RetraceForTruth as stop:
            assert numbers is not None
            numbers.guarded.add(stop.site)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Suppress prints of all threads, and the logs and warnings of this one: they have been
    made."""
    thread, out, err = threading.get_ident(), io.StringIO(), io.StringIO()

    def handle(logger: logging.Logger, record: logging.LogRecord) -> None:
        if threading.get_ident() != thread:
            original(logger, record)

    with SILENT, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        original = logging.Logger.handle
        logging.Logger.handle = handle  # type: ignore[method-assign, assignment]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            logging.Logger.handle = original  # type: ignore[method-assign]


class Candidates(tuple[Entry, ...]):
    """The entries of one key, newest first. Those that ask the same of the numbers of a call are
    found by the answers, however many there are."""

    tables: dict[object, tuple[Callable[[Sequence[object]], object], dict[object, list[Entry]]]]
    rest: list[Entry]

    @staticmethod
    def made(entries: Iterable[Entry]) -> Candidates:
        new = Candidates(entries)
        new.tables, new.rest = {}, [q for q in new if not q.asked.keys]
        for entry in new:
            if entry.asked.keys:
                _, known = new.tables.setdefault(entry.asked.keys, (entry.asked.of, {}))
                known.setdefault(entry.asked.values, []).append(entry)
        return new

    def of(self, leaves: Sequence[object]) -> Iterable[Entry]:
        """Those that may accept a call with these leaves."""
        return self.answering(leaves) if self.tables else self

    def answering(self, leaves: Sequence[object]) -> Iterator[Entry]:
        for ask, known in self.tables.values():
            try:
                answers = ask(leaves)
            except (AttributeError, LookupError, TypeError, ArithmeticError, ValueError):
                continue
            yield from known.get(answers, ())
        yield from self.rest


class Cache:
    """The entries of a function, and what its calls have shown of its numbers.

    `options`: `checkpoint`, `donate` and `device` of `to_static`. `clock` gives each use of an
    entry its time. `latest` is an entry of the last calls, which is asked first.
    """

    latest: Entry | None = None

    def __init__(
        self,
        function: Callable[..., object],
        input_spec: Sequence[object] | None,
        checkpoint: str | int,
        donate: Sequence[str],
        device: Device = CPU,
    ) -> None:
        self.function, self.input_spec = function, input_spec
        self.options = checkpoint, tuple(donate), device
        self.entries: dict[object, Candidates] = {}
        self.numbers = DynamicNumbers()
        self.reasons: dict[Entry, RecompileReason] = {}
        self.clock: Callable[[], int] = itertools.count(1).__next__
        self.made, self.warned = 0, False
        self.lock = threading.RLock()

    def keys(self, signature: Signature) -> Iterator[object]:
        """Yield the keys under which an entry for a call can be, the most specific one first."""
        yield signature.key
        if self.numbers.leaves:
            yield self.numbers.key(signature)
        if self.input_spec is not None:
            yield self.numbers.key(signature, signature.general)

    def candidates(self, key: object, leaves: Sequence[object]) -> Iterable[Entry]:
        """The entries under a key that may accept a call with these leaves."""
        found = self.entries.get(key)
        return () if found is None else found.of(leaves)

    def call(self, signature: Signature) -> object:
        """The result of a call: of the entry that accepts it, or of a new one."""
        entry: Entry | None = None
        try:
            while True:
                made = self.made
                for key in self.keys(signature):
                    for entry in self.candidates(key, signature.leaves):
                        result = entry.call(signature.leaves)
                        if result is not MISS:
                            entry.used, self.latest = self.clock(), entry
                            return result
                with told():
                    entry = self.translate(signature, made)
                result = entry.call(signature.leaves)
                if result is not MISS:
                    return result
                known = entry.again is not None and entry.again.items is None
                if known and self.made == made + 1:  # no other thread has changed what it reads
                    raise AssertionError("a fresh translation does not accept its own arguments")
        except Exception as error:
            raise self.ended(entry, signature, error)  # noqa: B904

    # ------------------------------------------------------------ calls that end in an error
    def ended(self, entry: Entry | None, signature: Signature, error: Exception) -> Exception:
        """The error of a call of `entry`, or of a translation, which has changed nothing: of the
        user's class, and all is as eager leaves it afterwards."""
        site = vars(error).pop("site", 0)
        entry = None if site == EARLY else entry
        error = error if entry is None else users_error(error, entry.errors, site)
        if not site or entry is not None and entry.executable.donated:
            return error
        again = RetraceInputs() if entry is None or entry.again is None else entry.again
        path = () if entry is None else again.paths[site - 1]
        if path is None:
            return error
        if isinstance(path, RerunEagerly):
            with silent() if path.quiet else contextlib.nullcontext():
                return self.rerun(signature, error)
        made: Entry | None = None
        try:
            for made in self.endings(entry, signature, again, path):
                result = made.call(signature.leaves)
                if result is not MISS:
                    return as_raised(result, error)
            return error
        except Exception as other:
            if is_internal(other):
                return other
            if isinstance(path, UnrolledError) and made is not None:
                return self.ended(made, signature, other)
            known = entry is not None or isinstance(other, SourceError)
            return error if known and not any(map(is_lazy, vars(error).values())) else other

    def rerun(self, signature: Signature, error: Exception) -> Exception:
        """The error of eager, which runs the call that has failed and changed nothing."""
        try:
            self.function(*signature.args, **signature.kwargs)
        except Exception as raised:
            raised.__suppress_context__ |= raised.__context__ is error
            return raised
        return error

    def endings(
        self,
        entry: Entry | None,
        signature: Signature,
        again: RetraceInputs,
        path: ErrorPath | UnrolledError,
    ) -> Iterator[Entry]:
        """Programs that run a call up to its error and return that error. For an error in loops
        they are programs with these loops unrolled, and raise it."""
        known = entry.ends if entry is not None else []
        yield from [one for p, one in known if p == path]
        loops = path.loops if isinstance(path, UnrolledError) else ()
        unrolled = {**(again.unrolled or {}), **dict.fromkeys(loops, "an error is raised in it")}
        with TRANSLATING, self.lock:
            made = guarding(
                again.dynamic, self.function, signature, again.spec, device=self.options[2],
                path=None if loops else path, unrolled=unrolled,
            )  # fmt: skip
        self.take_turns(made)
        known[:] = [*known[1 - MOST_ENDINGS :], (path, made)]
        yield made

    def find(self, signature: Signature) -> Entry:
        """The entry that a call would use; it is made if there is none."""
        made = self.made
        return self.accepting(signature) or self.translate(signature, made)

    def accepting(self, signature: Signature) -> Entry | None:
        leaves = signature.leaves
        found = (e for key in self.keys(signature) for e in self.candidates(key, leaves))
        return next((e for e in found if e.accepts(leaves)), None)

    # ------------------------------------------------------------ making entries
    def translate(self, signature: Signature, made: int) -> Entry:
        """A new entry for this call, kept under the key of what it is specialised on; or one that
        another thread has made since there were `made`."""
        with TRANSLATING, self.lock:
            known = self.accepting(signature) if self.made != made else None
            if known is not None:
                return known
            reason = self.reason(signature)
            for spec in {self.input_spec: 0, None: 0}:
                entry = self.translated(signature, spec)
                if spec is None or entry.accepts(signature.leaves):
                    break
            key = self.numbers.key(signature, None if spec is None else signature.general)
            if self.reasons:
                entry.learn(max(self.reasons, key=lambda known: known.used))
            self.make_room()
            self.take_turns(entry)
            set_direct(entry, signature, key)
            entry.used, self.latest = self.clock(), entry
            self.entries[key] = Candidates.made((entry, *self.entries.get(key, ())))
            self.reasons[entry] = replace(reason, case=reason.case.moving(self.numbers.leaves))
            self.made += 1
        return entry

    def translated(self, signature: Signature, spec: Sequence[object] | None) -> Entry:
        """A new translation, with dynamic numbers as inputs if the function allows it."""
        numbers = self.numbers
        numbers.learn(self.reasons, self.entries, signature)
        while numbers:
            before = set(numbers.guarded)
            try:
                return guarding(numbers, self.function, signature, spec, *self.options)
            except SourceError:
                if not numbers.guard_more(everywhere=True):
                    numbers.pin()
            except Exception as error:  # of Python, to which an input is no number; or of the user
                if is_internal(error):
                    raise
                if numbers.guard_more(everywhere=False):
                    continue
                numbers.guarded = before
                entry = translate(self.function, signature, spec, None, *self.options)
                numbers.pin()
                return entry
        return translate(self.function, signature, spec, None, *self.options)

    def take_turns(self, entry: Entry) -> None:
        """Calls of several threads that count lose nothing: each reads what the last has stored.
        Host calls may wait for each other, so programs with some do not wait."""
        call, lock = entry.call, self.lock

        def alone(leaves: Sequence[object], _only_check: bool = False) -> object:
            with lock:
                return call(leaves, _only_check)

        if entry.updates:
            entry.call = alone

    def make_room(self) -> None:
        """Before another entry comes: the one that was used least recently goes."""
        if len(self.reasons) < MOST_PROGRAMS:
            return
        self.warn()
        oldest = min(self.reasons, key=lambda entry: entry.used)
        for key, entries in list(self.entries.items()):
            if oldest in entries:
                rest = Candidates.made(q for q in entries if q is not oldest)
                self.entries[key] = rest
                if not rest:
                    del self.entries[key]
        del self.reasons[oldest]
        self.latest = None

    # ------------------------------------------------------------ reasons
    def reason(self, signature: Signature) -> RecompileReason:
        """Return the reason why no entry so far serves a call."""
        case = Specialization.of(signature, argument_names(self.function, signature))

        def reads(entry: Entry) -> Callable[[], list[GuardChange]]:
            return lambda: changes_of(entry, signature.leaves)

        made = [(self.reasons[q].case, reads(q)) for q in reversed(self.reasons)]
        return RecompileReason(self.made + 1, case, tuple(nearest(case, made)))

    def explanation(self) -> Explanation:
        reasons = tuple(self.reasons.values())
        name = getattr(self.function, "__qualname__", repr(self.function))
        return Explanation(name, reasons, self.made, tuple(remedies(reasons)))

    def warn(self) -> None:
        if self.warned:
            return
        self.warned = True
        found = self.explanation()
        lines = [
            f"dy2st: {found.name} has {len(found.reasons)} programs. From now on the one that was "
            "used least recently is dropped for each new one. What changes from call to call:",
            *(found.remedies or map(str, found.reasons[-3:])),
            "dy2st.explain shows why each program was made.",
        ]
        loc = user_loc()
        warnings.warn_explicit("\n  ".join(lines), RecompileWarning, loc.file, loc.line)
