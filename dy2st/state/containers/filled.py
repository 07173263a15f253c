"""Methods of a list that a loop has filled: those that keep its elements in one piece."""

from __future__ import annotations

from typing import Any

from dy2st.state.stacked_run import StackedRun
from dy2st.trace.signals import Refused
from dy2st.trace.trace import Trace
from ir import SourceError

KEEPING = ("copy", "__add__", "clear", "insert", "pop", "reverse")


def method(trace: Trace, self: Any, name: str, args: tuple[Any, ...]) -> object:
    """The methods that keep a list of a loop's elements one piece."""
    if name == "copy":
        return type(self)(self.parts())
    if name == "__add__":
        other = args[0].parts() if type(args[0]) is type(self) else list(args[0])
        return type(self)([*self.parts(), *other])
    if name == "clear":
        return list.clear(self)
    if name == "insert" and args[0] == 0:
        return list.insert(self, 0, args[1])
    if name == "pop" and (not args or args[0] in (-1, 0)):
        at = args[0] if args else -1
        item, rest = self[at], self[1:] if at == 0 else self[:-1]
        list.__setitem__(self, slice(None), rest.parts())
        return item
    if name == "reverse":
        return list.__setitem__(self, slice(None), self[::-1].parts())
    for q in self.parts():
        if isinstance(q, StackedRun):
            trace.unroll(q.loop, f"list.{name} is called on the list that it fills")
    raise Refused(
        SourceError(
            f"list.{name} on a list that a loop has filled.",
            trace.where(),
            reason="The loop leaves one stacked tensor, not separate elements.",
            remedy="Stack the list first and work on the tensor.",
        )
    )


__all__ = ["KEEPING", "method"]
