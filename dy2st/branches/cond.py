"""Translation of a branch on data to one `cond`.

Both branches are traced, each from the same state and undone afterwards. The state that they leave
is merged place by place: variables, attributes and items that were stored, elements appended to
lists. Writes into tensors stay in the branches. A branch that raises becomes a check at run time.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

from dy2st.branches import error_exits
from dy2st.branches.branch import BranchTrace, GetState, SetState, error_of_eager, trace_branch
from dy2st.branches.merge import BranchMerge
from dy2st.branches.merge_lists import settled
from dy2st.branches.predicates import attempt, known_here, truth_here
from dy2st.branches.unresolved import Unresolved, here
from dy2st.state.arrays import tensor_of
from dy2st.state.containers import list_pops
from dy2st.state.containers.tagged_union import TaggedUnion
from dy2st.state.ownership import check_keys, note_class, refuse
from dy2st.state.protocols import special
from dy2st.state.strings import described, is_lazy, shows_values, text_of, with_values
from dy2st.state.traced_list import TraceList
from dy2st.state.tree import UNDEF
from dy2st.trace import scalar as number
from dy2st.trace.emitter import lift, uniform
from dy2st.trace.fake_tensor import FakeTensor, Tensor
from dy2st.trace.item import scalar
from dy2st.trace.scalar import RuntimeScalar, is_runtime_scalar, known, negated
from dy2st.trace.signals import NeedsConcrete, Refused, raise_defect
from dy2st.trace.symint import is_symint
from dy2st.trace.trace import Trace
from dy2st.trace.user_stack import perform
from ir import Op, SourceError
from ir.loc import EAGER, source_error
from ir.uses import walk


# ---------------------------------------------------------------- conditions
def condition(trace: Trace, value: Any) -> Any:
    """The truth of a value: a bool where Python knows it, else a runtime scalar."""
    value = here(value)
    if type(value) is Unresolved and "truth" in value.__dict__:
        return value.__dict__["truth"]
    if type(value) is TaggedUnion:
        return value.each(lambda x: condition(trace, x))
    value = tensor_of(value)
    if isinstance(value, Tensor):
        known = uniform(trace, value._value) if type(value) is FakeTensor else None
        return tensor_truth(trace, value) if known is None else bool(known > 0)
    if is_runtime_scalar(value):
        value = number.fixed(value)
        return truth_here(trace, value) if is_runtime_scalar(value) else value
    if is_symint(value):
        return value != 0
    check_keys(value)
    if isinstance(value, TraceList) and list_pops.known(value, trace.frames):
        return condition(trace, value.length() > 0)
    for name in ("__bool__", "__len__"):
        if users := special(trace, value, name):
            return condition(trace, users[0])
        note_class(trace, value, name)
    return perform(bool, value)


def settled_condition(trace: Trace, value: object) -> Any:
    """Like `condition`, but a bool for a tensor whose value the trace knows. The test of a loop is
    none: the tensor may be another one when it is asked again."""
    found = trace.known(value._value) if type(value) is FakeTensor else None
    if found is not None and len(found) == 1 and type(found[0]) in number.DTYPES:
        return bool(found[0] > 0)
    return condition(trace, value)


def tensor_truth(trace: Trace, x: object) -> RuntimeScalar:
    """`bool(x)` of a tensor with one element; raises Refused for others, as eager does.

    Paddle takes a number for true where it is greater than zero.
    """
    fake = lift(trace, x)
    n = RuntimeScalar(scalar(trace, fake, "a condition"), trace)
    return n if n.kind is bool else number.compare(trace, "gt", n, 0)  # type: ignore[no-any-return]


# ---------------------------------------------------------------- both sides
def decide(
    trace: Trace,
    test: RuntimeScalar,
    then: Callable[[], object],
    orelse: Callable[[], object],
    get_state: GetState,
    set_state: SetState,
    names: Sequence[str],
    again: int | None = None,
    loop: bool = False,
    either: bool = False,
) -> None:
    """Run the side that `test` says, at run time. `again`: the number of the decision, if it is
    made once more. `loop`: as in `BranchMerge`. `either`: the caller knows what to do with values
    of two types."""
    truth = known_here(trace, test)
    if not is_runtime_scalar(truth):
        (then if truth else orelse)()
        return None
    at = error_exits.decision(trace.frame) if again is None else again
    assumed = error_exits.assumed(trace, test, at)
    if assumed is not None:
        return error_exits.follow(trace.frame, then if assumed else orelse)
    facts = known(test, "implies"), negated(known(test, "implied"))
    with attempt(trace, test) as guard:
        yes = trace_branch(trace, then, get_state, set_state, facts[0], (at, True))
        no = trace_branch(trace, orelse, get_state, set_state, facts[1], (at, False))
        if yes.failed is not None or no.failed is not None:
            return fail(trace, test, yes, no, then, orelse, get_state, set_state)
        joiner = BranchMerge(trace, test, yes, no, names, loop)
        state = tuple(
            joiner.join(n, a, b) for n, a, b in zip(joiner.names, yes.state, no.state, strict=True)
        )
        stores = joiner.stores()
        appends, changed = joiner.appends(), joiner.changed()
        guard(state, yes.state, no.state, either)
        guard([v for _, v in stores], unlike=joiner.unlike)
        guard([q for _, items in appends for q in items])
    joiner.finish()
    for place, value in stores:
        trace.store(place, value, told=True)
    for target, items in appends:
        trace.check_certain(target, changes=True)
        for item in settled(trace, target, items):
            target.note_append(item)
    for target, items in changed:
        target.replace_parts(items)
    set_state(state)
    return None


# ---------------------------------------------------------------- sides that raise
def fail(
    trace: Trace,
    test: RuntimeScalar,
    yes: BranchTrace,
    no: BranchTrace,
    then: Callable[[], object],
    orelse: Callable[[], object],
    get_state: GetState,
    set_state: SetState,
) -> None:
    """The side that raises is a check; the other one goes on. Where both raise, in a branch, that
    is how the branch ends."""
    nested = trace.frame.branch or trace.endings.ahead is not None
    if yes.failed is not None and no.failed is not None and not nested:
        both = [k for k in EAGER if isinstance(yes.failed, k) and isinstance(no.failed, k)]
        raise Refused(
            source_error(both[0] if both else SourceError)(
                "both branches of a condition on data raise.",
                trace.where(),
                reason="A program without a result is not made.",
                remedy="Raise one error whose message says both.",
            )
        )
    check_not_trying(trace, test)
    for side in (yes, no):
        trace.frame.predicates.update(side.frame.predicates)
    error = yes.failed or no.failed
    assert error is not None
    if isinstance(error, StopIteration):
        raise refuse(
            "data decides when an iterator ends.",
            "Its items are made one by one while the function is traced.",
            "Write the loop with `while` in the function itself.",
        )
    ok = number.negate(test) if yes.failed is not None else test
    branch, block = (yes, then) if yes.failed is not None else (no, orelse)
    site = error_exits.site(trace, branch, holds_values(error))
    if not site and trace.endings.ahead is None:
        error_exits.check_attributes(error)
    shows = shows_values(text_of(error)) and not (site and branch.written)
    if acts(branch) or shows:
        failing, none = reporting(trace, block, ok, site, get_state, set_state), lambda: None
        sides = (failing, none) if branch is yes else (none, failing)
        again = branch.frame.decision[0]  # type: ignore[index]
        decide(trace, test, *sides, lambda: (), lambda values: None, (), again)
    else:
        report(trace, error, ok, site, described(text_of(error)))
    (orelse if branch is yes else then)()


def acts(branch: BranchTrace) -> bool:
    """Whether it does something before it raises: it prints, or it may raise another error."""
    ops = walk(branch.frame.builder.ops)
    return any(q.name == "check" or is_host_op(q) for q in ops if isinstance(q, Op))


def is_host_op(op: Op) -> bool:
    return op.name == "foreign" and op.attrs["call"] in ("host", "print")


def reporting(
    trace: Trace,
    block: Callable[[], object],
    ok: object,
    site: int,
    get_state: GetState,
    set_state: SetState,
) -> Callable[[], None]:
    """A branch that raises an error whose text has values which the branch computes: it leaves
    nothing but the check."""

    def run() -> None:
        mark, before = trace.undo_log.mark(), get_state()
        try:
            block()
        except Refused as refused:
            if (found := error_of_eager(refused)) is None:
                raise
            report(trace, found, ok, site, *with_values(trace, text_of(found)))
        except Exception as error:
            raise_defect(error)
            report(trace, error, ok, site, *with_values(trace, text_of(error)))
        trace.undo_log.undo_to(mark)
        set_state(before)

    return run


def report(trace: Trace, error: Exception, ok: Any, site: int, text: str, shown: Any = ()) -> None:
    """The program raises this error unless `ok`: the nearest builtin class, with the name of the
    user's class in the message. `site`, `shown`: `check`."""
    kind = next(k for k in type(error).__mro__ if getattr(builtins, k.__name__, None) is k)
    if not site and trace.endings.ahead is None and (vars(error) or len(error.args) > 1):
        trace.endings.paths.append(None)
        site = len(trace.endings.paths)
    trace.endings.errors[site or (kind.__name__, type(error).__name__)] = error
    text = text if kind is type(error) else f"{type(error).__name__}: {text}"
    number.check(trace, ok.value, kind.__name__, text, shown=shown, site=site)


def holds_values(error: Exception) -> bool:
    """Whether it has values of the program in more than its text."""
    args = () if len(error.args) == 1 and isinstance(error.args[0], str) else error.args
    return any(map(is_lazy, (*args, *vars(error).values())))


def check_not_trying(trace: Trace, test: RuntimeScalar | None = None) -> None:
    if trace.trying and test is not None and not test.data:
        raise NeedsConcrete("an error is raised inside of a `try` statement", test.loops)
    if trace.trying:
        raise refuse(
            "an error that depends on data is raised inside of a `try` statement.",
            "The choice of the handler would depend on data.",
            "Compute the condition and branch on it instead of raising.",
        )


# ---------------------------------------------------------------- values
def choose(
    trace: Trace,
    test: RuntimeScalar,
    then: Callable[[], object],
    orelse: Callable[[], object],
    either: bool = False,
) -> Any:
    """`then() if test else orelse()`; `either`: as in `decide`."""
    held: list[object] = [UNDEF]

    def set_state(values: tuple[object, ...]) -> None:
        held[0] = values[0]

    def side(f: Callable[[], object]) -> Callable[[], None]:
        return lambda: set_state((f(),))

    names = ("the value",)
    sides = side(then), side(orelse)
    decide(trace, test, *sides, lambda: (held[0],), set_state, names, either=either)
    return held[0]


__all__ = ["check_not_trying", "choose", "condition", "decide", "settled_condition", "tensor_truth"]
