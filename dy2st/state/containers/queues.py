"""Queues, and other containers that Python has in Python: their methods are converted."""

from __future__ import annotations

import collections
import heapq
import queue
import types
from typing import Any

from dy2st.state.ownership import refuse
from dy2st.state.protocols import CONVERTED


def put(self: Any, item: Any, block: bool = True, timeout: Any = None) -> None:
    if 0 < self.maxsize <= len(self.queue):
        if block:
            full(self)
        raise queue.Full
    add(self.queue, item, isinstance(self, queue.LifoQueue))
    self.unfinished_tasks += 1


def add(items: Any, item: Any, last: bool) -> None:
    if last or isinstance(items, collections.deque):
        items.append(item)
    else:
        heapq.heappush(items, item)


def put_nowait(self: Any, item: Any) -> None:
    self.put(item, False)


def get(self: Any, block: bool = True, timeout: Any = None) -> Any:
    if not len(self.queue):
        if block:
            full(self)
        raise queue.Empty
    if isinstance(self, queue.LifoQueue):
        return self.queue.pop()
    if isinstance(self, queue.PriorityQueue):
        return heapq.heappop(self.queue)
    return self.queue.popleft()


def get_nowait(self: Any) -> Any:
    return self.get(False)


def qsize(self: Any) -> int:
    return len(self.queue)


def empty(self: Any) -> bool:
    return not len(self.queue)


def is_full(self: Any) -> bool:
    return 0 < self.maxsize <= len(self.queue)


def full(self: Any) -> None:
    raise refuse(
        f"put() or get() of a {type(self).__name__} would wait for another thread.",
        "A function is translated in one go.",
        "Use put_nowait and get_nowait, or ask qsize() first.",
    )


def methods(kind: type) -> dict[Any, Any]:
    """The methods of a class of Python, to be converted as they are."""
    return {f: f for f in vars(kind).values() if isinstance(f, types.FunctionType)}


REWRITTEN: dict[Any, Any] = {
    **{f: new for kind in CONVERTED for f, new in methods(kind).items()},
    add: add,
    queue.Queue.put: put,
    queue.Queue.put_nowait: put_nowait,
    queue.Queue.get: get,
    queue.Queue.get_nowait: get_nowait,
    queue.Queue.qsize: qsize,
    queue.Queue.empty: empty,
    queue.Queue.full: is_full,
}
