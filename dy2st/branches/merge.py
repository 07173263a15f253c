"""Merging the state of the two branches of a condition on data, place by place (phi placement).

Two values of one type become one result of the `cond`. Values of different types leave the variable
unresolved: an error only if it is read where the branch taken is not known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from dy2st.branches.branch import BranchTrace, inside
from dy2st.branches.chosen_containers import chosen, has_name, named_apart
from dy2st.branches.merge_errors import absence, changing_keys, difference, lengths
from dy2st.branches.merge_lists import (
    appended,
    changed_keys,
    check_appended,
    elements,
    extension,
    keys,
    left_in,
    one_by_one,
    parts_after,
    same_keys,
)
from dy2st.branches.merge_scalars import merged
from dy2st.branches.merge_tagged_unions import merge_either
from dy2st.branches.padded_tensors import merge_bounded
from dy2st.branches.unresolved import (
    Alternative,
    Unresolved,
    alternatives,
    generated,
    plain,
    resolve_under,
    unresolved,
)
from dy2st.state.container_writes import Contents
from dy2st.state.dynamic_numbers import keep_dynamic
from dy2st.state.guards import is_constant, same_constant
from dy2st.state.ownership import note_contents, refuse
from dy2st.state.stacked_run import StackedRun
from dy2st.state.traced_list import TraceList
from dy2st.state.tree import UNDEF, alike, describe, doubtful, is_container, is_value, rebuilt
from dy2st.state.tree import parts as parts_of
from dy2st.trace import scalar
from dy2st.trace.emitter import lift
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.scalar import (
    PathCondition,
    RuntimeScalar,
    fixed,
    is_mixed,
    is_runtime_scalar,
    kind_of,
    known,
    negated,
)
from dy2st.trace.signals import NeedsConcrete
from dy2st.trace.symint import is_symint, settled_after
from dy2st.trace.trace import Frame, Trace
from dy2st.trace.undo import MISSING, ItemLocation, Location
from ir import Builder, Cond, Join, Type, Value
from ir.types import BOOL


class MergeConflict(Exception):
    """Two values cannot be merged; the cause is the error for the user."""


class BranchMerge:
    """Merges what two branches leave in a place. `loop`: one is an iteration, one a loop's end."""

    def __init__(
        self,
        trace: Trace,
        test: RuntimeScalar,
        yes: BranchTrace,
        no: BranchTrace,
        names: Sequence[str],
        loop: bool = False,
    ) -> None:
        self.trace, self.test, self.yes, self.no, self.loop = trace, test, yes, no, loop
        self.names = [n.rstrip("=") for n in names]
        self.outs: list[Join] = []
        self.unlike = False  # in requiring a gradient
        self.after = Builder()
        self.known: dict[tuple[int, int], tuple[object, object, object]] = {}
        self.merged: dict[tuple[int, int], tuple[object, object, object]] = {}

    def join(self, name: str, a: object, b: object) -> object:
        """The merged value of a place; raises Refused where the branches leave different types."""
        if a is b:
            return a
        if Unresolved not in (type(a), type(b)) and is_constant(a) and same_constant(a, b):
            return a
        if (id(a), id(b)) not in self.known:
            self.known[id(a), id(b)] = (a, b, self.joined(name, a, b))
        return self.known[id(a), id(b)][2]

    def truth(self, x: object, holds: bool) -> object:
        """The truth value of the condition itself, which is a constant within each branch."""
        return holds if is_runtime_scalar(x) and x.value is self.test.value else x

    def joined(self, name: str, a: object, b: object) -> object:
        """Like `join`, for two different values; unresolved where they cannot be merged."""
        if type(a) is Unresolved or type(b) is Unresolved:
            pairs = ((a, self.yes), (b, self.no))
            a, b = (resolve_under(x, side.frame.facts) for x, side in pairs)
            if type(a) is not Unresolved and type(b) is not Unresolved:
                return self.join(name, a, b)
            return self.of_conflicts(name, a, b)
        try:
            return self.agreed(name, a, b)
        except MergeConflict as e:
            error = e.__cause__
            assert error is not None
            return self.apart(name, error, [(a, frozenset())], [(b, frozenset())], [])

    def apart(
        self,
        name: str,
        error: BaseException,
        yes: list[tuple[object, frozenset[PathCondition] | None]],
        no: list[tuple[object, frozenset[PathCondition] | None]],
        both: list[Alternative],
    ) -> object:
        """An unresolved variable: each value holds where its branch ran and under its path
        condition."""
        out = list(both)
        for pairs, missing, op in ((yes, self.no, "is"), (no, self.yes, "not")):
            for value, facts in pairs:
                ran = {(op, self.test.value)}
                half = self.halves(name, value, missing)
                out.append(Alternative(half, None if facts is None else facts | ran))
        return unresolved(error, tuple(out))

    def of_conflicts(self, name: str, a: object, b: object) -> object:
        """Merge the alternatives of equal type of two unresolved variables; the rest stays
        unresolved."""
        error = next(q for q in (a, b) if type(q) is Unresolved).__dict__["error"]
        left, right = list(alternatives(a)), list(alternatives(b))
        both: list[Alternative] = []
        for x in list(left):
            for y in right:
                try:
                    both.append(Alternative(self.agreed(name, x.value, y.value), None))
                except MergeConflict:
                    continue
                left.remove(x)
                right.remove(y)
                break
        yes, no = ([(q.value, q.facts) for q in side] for side in (left, right))
        return self.apart(name, error, yes, no, both)

    def agreed(self, name: str, a: object, b: object) -> object:
        """The merged value; raises MergeConflict."""
        if a is b or (is_constant(a) and same_constant(a, b)):
            return a
        if a is UNDEF or b is UNDEF:
            return self.one_sided(name, a, b)
        grows = hasattr(type(a), "merged") or hasattr(type(b), "merged")
        if grows and (longer := self.growing(name, a, b)) is not None:
            return longer
        if (extended := extension(self, a, b)) is not None:
            return extended
        if isinstance(a, Tensor) and isinstance(b, Tensor) and not grows:
            return self.tensor(name, lift(self.trace, a), lift(self.trace, b))
        if is_symint(a) and is_symint(b) and a.dim == b.dim:
            if not self.trace.is_local(a.dim, self.yes.frame):
                return a
        found = self.numbers(a, b)
        if found is None:
            found = merge_either(self, name, a, b)
        if found is not None:
            return found
        for x, side in ((a, self.yes), (b, self.no)):
            if isinstance(x, TraceList) and x.segmented:
                with inside(self.trace, side.frame):
                    x.split(self.trace)
        if alike(a, b):
            return self.containers(name, a, b)
        raise MergeConflict from self.refusal(name, a, b)

    def containers(self, name: str, a: object, b: object) -> object:
        """One with the merged elements: exact for reads; for changes if nobody else knows both."""
        key = (id(a), id(b))
        if key in self.merged:
            return self.merged[key][2]
        one, two = parts_after(a, self.yes), parts_after(b, self.no)
        if one is None or two is None:
            raise MergeConflict from self.stop(*changing_keys(plain(name), a))
        out = rebuilt(self.trace, a, [self.agreed(name, x, y) for x, y in zip(one, two)])
        if is_value(a):
            return out
        before, able = list[object](), True
        for x, side in ((a, self.yes), (b, self.no)):
            note_contents(self.trace, x)
            able = not has_name(self, x) and able
            if not able or self.trace.home(x) is not side.frame:
                before.append(x)
            elif id(x) in side.doubts:
                before.append(side.doubts[id(x)])
        if before:
            self.trace.doubt(chosen(self.trace, out, (a, b), before, self.undecided(), able))
        self.merged[key] = (a, b, out)
        return out

    def undecided(self) -> Callable[[], BaseException]:
        """Makes the error of a change of a merged container."""
        if not self.test.data:
            reason = "a container that the index decides on is changed in place"
            return functools.partial(NeedsConcrete, reason, self.test.loops)
        return doubtful(self.trace, "The branches of a condition on data give it different ones.")

    def numbers(self, a: Any, b: object) -> Any:
        """The merged number; None unless both are of one kind, or a bool and a bool tensor."""
        mixed = isinstance(a, Tensor) or isinstance(b, Tensor) or is_mixed(a) or is_mixed(b)
        a, b = self.as_truth(a, b), self.as_truth(b, a)
        a, b = fixed(self.truth(a, True)), fixed(self.truth(b, False))
        equal = is_constant(a) and same_constant(a, b)
        if equal and not mixed:
            return a
        if kind_of(a) is None or kind_of(a) is not kind_of(b):
            return None
        out = self.number(a, b)
        out.mixed, out.always = mixed, a if equal else None
        if out.kind is int and not mixed:
            ran = known(self.test, "implied"), negated(known(self.test, "implies"))
            out.sides = tuple(q for q in zip((a, b), ran) if self.is_known(q[0]))
        return out

    def is_known(self, x: object) -> bool:
        """Whether a number of a branch can be told outside of it, perhaps where more is known."""
        return not (is_symint(x) and not self.trace.sizes.is_known(x.dim, self.trace.frames))

    def as_truth(self, x: object, other: object) -> object:
        """A bool tensor beside a Python bool is taken for its truth."""
        single = isinstance(x, Tensor) and kind_of(other) is bool
        if not single or lift(self.trace, x)._value.type != Type(BOOL):
            return x
        return RuntimeScalar(lift(self.trace, x)._value, self.trace)

    def refusal(self, name: str, a: object, b: object) -> BaseException:
        return self.stop(*difference(plain(name), a, b, self.loop))

    def stop(self, message: str, reason: str, remedy: str) -> BaseException:
        """The error to raise; for a condition on the index alone, the signal to unroll the loop."""
        if not self.test.data:
            peel = settled_after(self.test)
            return NeedsConcrete(f"{message} {reason}", self.test.loops, peel)
        return refuse(message, reason, remedy)

    # ------------------------------------------------------------ leaves
    def value(self, side: BranchTrace, x: FakeTensor) -> Value:
        with inside(self.trace, side.frame):
            return self.trace.read_value(x._value)

    def out(self, t: Type, hint: str, then: Value, orelse: Value) -> Value:
        """One result of the cond, the same for the same pair."""
        for j in self.outs:
            if j.then is then and j.orelse is orelse:
                return j.outer
        outer = self.trace.new_value(t, hint)
        self.outs.append(Join(outer, then, orelse))
        return outer

    def tensor(self, name: str, a: FakeTensor, b: FakeTensor) -> FakeTensor:
        if a.ask_type() != b.ask_type():
            if (part := merge_bounded(self, name, a, b)) is None:
                raise MergeConflict from self.refusal(name, a, b)
            return part
        hint = name if name.isidentifier() else a._value.name
        then, orelse = self.value(self.yes, a), self.value(self.no, b)
        outer = self.out(a._value.type, hint, then, orelse)
        self.doubt(outer, self.certainty(a), self.certainty(b))
        self.unlike |= a.stop_gradient is not b.stop_gradient
        return self.trace.fake(outer, a.stop_gradient and b.stop_gradient)

    def growing(self, name: str, a: Any, b: Any) -> object:
        """Merge two tensors of which a loop makes one longer (`ConcatenatedTensor`); None for any
        other pair. Two of one type with different growth are read whole in their branches."""
        made = None
        if hasattr(type(a), "merged"):
            made = a.merged(b, lambda x, y: self.tensor(name, x, y))
        if made is not None or describe(a) != describe(b):
            return made
        for side, x in ((self.yes, a), (self.no, b)):
            self.value(side, lift(self.trace, x))
        return self.tensor(name, a, b)

    def certainty(self, x: FakeTensor) -> object:
        """True if `x` is always defined, else the value of its flag with the message for a failed
        check."""
        return self.trace.undefined.values.get(x._value, True)

    def doubt(self, outer: Value, a: object, b: object) -> None:
        """Note that `outer` is defined only if the branch taken defines it."""
        if a is True and b is True:
            return
        message = next(q[1] for q in (a, b) if type(q) is tuple)
        values = []
        for side, q in ((self.yes, a), (self.no, b)):
            with inside(self.trace, side.frame):
                if type(q) is tuple and q[0] is not None:
                    values.append(self.trace.read_value(q[0]))
                else:
                    values.append(scalar.value_in(self.trace, q is True, BOOL))
        self.trace.undefined.values[outer] = (
            self.out(Type(BOOL), "defined", *values),
            message,
        )

    def number(self, a: object, b: object) -> RuntimeScalar:
        dtype = scalar.DTYPES[scalar.kind_of(a)]  # type: ignore[index]
        values = []
        for side, q in ((self.yes, a), (self.no, b)):
            with inside(self.trace, side.frame):
                value = scalar.value_in(self.trace, q, dtype)
                values.append(self.trace.read_value(value))
        return merged(self.out(Type(dtype), "", *values), self.test, a, b)

    # ------------------------------------------------------------ defined on one side
    def one_sided(self, name: str, a: object, b: object) -> object:
        """A variable that one branch defines: a check fails if it is read after the other one."""
        known, missing = (b, self.yes) if a is UNDEF else (a, self.no)
        return self.tree(name, known, missing)

    def tree(self, name: str, x: object, missing: BranchTrace) -> object:
        if isinstance(x, Tensor):
            out = self.half(name, x, missing)
            self.guard(name, out._value, self.certainty(lift(self.trace, x)), missing)
            return out
        if is_value(x) or is_container(x) and self.trace.home(x) is self.there(missing):
            parts = [self.tree(name, q, missing) for q in parts_of(x)]
            made = named_apart(self, x, missing, parts)
            check_appended(self, x, made)
            return made
        if is_runtime_scalar(x) or is_symint(x) or (kind_of(x) is not None and not generated(name)):
            number = self.half_number(x, missing)
            self.guard(name, number.value, True, missing)
            return number
        if generated(name):
            return x
        self.trace.undefined.names[name] = self.trace.where()
        return UNDEF

    def there(self, missing: BranchTrace) -> Frame:
        """The frame of the branch that is not `missing`."""
        return (self.no if missing is self.yes else self.yes).frame

    def halves(self, name: str, x: object, missing: BranchTrace) -> object:
        """Like `half`, also in containers that the branch has made."""
        if isinstance(x, Tensor):
            return self.half(name, x, missing)
        if not is_value(x) and not (is_container(x) and self.trace.home(x) is self.there(missing)):
            return x
        key = (id(x), id(missing))
        if key not in self.merged:
            parts = [self.halves(name, q, missing) for q in parts_of(x)]
            return named_apart(self, x, missing, parts)
        return self.merged[key][2]

    def half(self, name: str, x: FakeTensor, missing: BranchTrace) -> FakeTensor:
        """A tensor of one branch, zeros if the other one ran."""
        if hasattr(type(x), "merged"):
            if generated(name) and x.outlives(self.there(missing)):
                return x
            return x.merged(x, lambda piece, _: self.half(name, piece, missing))  # type: ignore[no-any-return]
        x = lift(self.trace, x)
        t = x._value.type
        with inside(self.trace, missing.frame):
            zeros = self.trace.emit("full", [], {"value": 0, "shape": t.shape, "dtype": t.dtype})
        there = self.no if missing is self.yes else self.yes
        pair = {id(there): self.value(there, x), id(missing): zeros}
        hint = name if name.isidentifier() else ""
        outer = self.out(t, hint, pair[id(self.yes)], pair[id(self.no)])
        return self.trace.fake(outer, x.stop_gradient)

    def half_number(self, x: object, missing: BranchTrace) -> RuntimeScalar:
        """A number of one branch, zero if the other one ran."""
        kind = kind_of(x)
        assert kind is not None
        return self.number(*((x, kind(0)) if missing is self.no else (kind(0), x)))

    def guard(self, name: str, value: Value, sure: object, missing: BranchTrace) -> None:
        """Check each read of a half; generated variables have flags of their own. `sure`: the
        certainty in the branch that sets it."""
        if not generated(name):
            not_set = None, f"{name!r} is set in only one branch of a condition on data"
            self.doubt(value, *((not_set, sure) if missing is self.yes else (sure, not_set)))

    # ------------------------------------------------------------ places and lists
    def stores(self) -> list[tuple[Location, object]]:
        out = []
        places = {k: q for k, (q, _) in (*self.no.stores.items(), *self.yes.stores.items())}
        whole = {id(q.obj) for q in places.values() if isinstance(q, Contents)}
        whole.update(self.yes.changed, self.no.changed)
        self.check_order(places)
        for key, place in places.items():
            if key[0] == "item" and id(place.obj) in whole:
                continue
            now = keep_dynamic(self.trace, place)
            a, b = (left_in(side, key, place, now) for side in (self.yes, self.no))
            if isinstance(place, Contents) and not same_keys(place, a, b):
                raise self.stop(*lengths(changed_keys(place), keys(place, a), keys(place, b)))
            out.append((place, self.left(place, a, b)))
        return out

    def left(self, place: Location, a: object, b: object) -> object:
        """The value of a place after the branches."""
        if isinstance(place, Contents):
            return self.certain(str(place), a, b)
        if (a is MISSING) is (b is MISSING):
            out = self.join(str(place), a, b)
            loops = [f for f in self.trace.frames if f.loop and type(out) is Unresolved]
            for f in loops[-1:]:
                f.unresolved[place.key] = place
            return out
        error, partial = self.stop(*absence(place, a, b)), self.trace.objects.partial
        private = isinstance(place.obj, dict) and not self.trace.outside_of_trace(place.obj)
        if not isinstance(place, ItemLocation) or not private or not partial:
            raise error
        partial[-1].append(place.obj)
        return self.apart(str(place), error, [(a, frozenset())], [(b, frozenset())], [])

    def check_order(self, places: dict[tuple[object, ...], Location]) -> None:
        """Refuse branches that add keys to a dict in different orders."""
        for obj in {id(q.obj): q.obj for q in places.values() if isinstance(q.obj, dict)}.values():
            new = [k for k, q in places.items() if q.obj is obj and q.get() is MISSING]
            orders = [[k for k in side.stores if k in new] for side in (self.yes, self.no)]
            if all(orders) and orders[0] != orders[1] and set(orders[0]) == set(orders[1]):
                raise self.stop(
                    "the order of a dict's keys depends on data.",
                    "The branches of a condition on data add the same keys in different orders.",
                    "Add them in the same order in both branches.",
                )

    def appends(self) -> list[tuple[TraceList, list[object]]]:
        out = []
        for key in dict.fromkeys((*self.yes.appends, *self.no.appends)):
            if key in self.yes.changed or key in self.no.changed:
                continue
            target = (self.yes.appends.get(key) or self.no.appends[key])[0]
            a = self.yes.appends.get(key, (target, []))[1]
            b = self.no.appends.get(key, (target, []))[1]
            if items := appended(self, a, b):
                out.append((target, items))
        return out

    def changed(self) -> list[tuple[TraceList, list[object]]]:
        """Lists from outside that a branch has shortened or reordered, with their merged
        elements, those too that the other one has stored."""
        out = []
        for key in dict.fromkeys((*self.yes.changed, *self.no.changed)):
            target = (self.yes.changed.get(key) or self.no.changed[key])[0]
            a, b = (self.contents(side, key, target) for side in (self.yes, self.no))
            if len(a) != len(b) or any(isinstance(q, StackedRun) for q in (*a, *b)):
                sizes = elements(len(a)), elements(len(b))
                raise self.stop(*lengths("the length of a list depends on data.", *sizes))
            out.append((target, [self.certain("an element of the list", *q) for q in zip(a, b)]))
        return out

    def contents(self, side: BranchTrace, key: int, target: TraceList) -> list[object]:
        """The elements of a list at the end of a branch."""
        if key in side.changed:
            found = side.changed[key][1]
        else:
            found = [*target.parts(), *side.appends.get(key, (target, []))[1]]
            for q, value in side.stores.values():
                if q.obj is target and isinstance(q, ItemLocation):
                    found[q.index] = value
        with inside(self.trace, side.frame):
            return one_by_one(self.trace, found)

    def certain(self, name: str, a: object, b: object) -> object:
        """Like `join`, but an unresolved result is an error at once."""
        out = self.join(name, a, b)
        if type(out) is Unresolved:
            raise out.__dict__["error"]
        return out

    def finish(self) -> None:
        """Append the cond to the frame around it."""
        trace, frames = self.trace, (self.yes.frame, self.no.frame)
        ins = tuple(p for f in frames for p in f.consts.values())
        then, orelse = (tuple(f.builder.ops) for f in frames)
        if then or orelse or self.outs:
            test = trace.read_value(self.test.value)
            node = Cond(test, ins, then, orelse, tuple(self.outs), trace.where())
            trace.builder.append(node)
            trace.frame.notes.append(("cond", trace.where(), ""))
        trace.builder.ops += self.after.ops
        for side in (self.yes, self.no):
            trace.adopt(side.frame, side.written)


__all__ = ["BranchMerge"]
