"""The object that converted code calls; its interface is the docstring of `dy2st.convert`.

`control` decides what loops, branches and operators mean, `access` reads and stores attributes and
items, `receivers` those that are only appended to, `calls` finds the function to call.
`unconverted` is the runtime of functions that `not_to_static` marks.
"""

from __future__ import annotations

import sys

from dy2st.loops.generators import comprehension, display, generator_, holds, items, iterated
from dy2st.loops.iterables import unzip
from dy2st.runtime import calls, unconverted
from dy2st.runtime.access import (
    del_attr,
    del_item,
    load_attr,
    load_item,
    load_old,
    store_attr,
    store_item,
)
from dy2st.runtime.append_receivers import imported, mapping, receiver, receiver_item
from dy2st.runtime.calls import fn
from dy2st.runtime.control import (
    and_,
    assert_,
    aug,
    compared,
    for_,
    if_,
    ifexp,
    in_,
    is_,
    is_not,
    not_,
    not_in,
    or_,
    read,
    subject,
    while_,
)
from dy2st.runtime.displays import dict_, list_, set_, union
from dy2st.runtime.matching import given, matches, part
from dy2st.state.bindings import rebinding, rebinds
from dy2st.state.protocols import manager, trying
from dy2st.state.strings import joined, percent
from dy2st.state.tree import UNDEF

slice_ = slice

calls.RUNTIMES.update({"converted": sys.modules[__name__], "unconverted": unconverted})

__all__ = [
    "UNDEF", "and_", "assert_", "aug", "compared", "comprehension", "del_attr", "del_item",
    "dict_", "display", "fn", "for_", "generator_", "given", "holds", "if_", "ifexp",
    "imported", "in_", "is_", "is_not", "items", "iterated", "joined", "list_", "load_attr",
    "load_item", "load_old", "manager", "mapping", "matches", "not_", "not_in", "or_", "part",
    "percent", "read", "rebinding", "rebinds", "receiver", "receiver_item", "set_", "slice_",
    "store_attr", "store_item", "subject", "trying", "union", "unzip", "while_",
]  # fmt: skip
