"""Populations of random choices: numbers, or elements that an index in the program picks."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle

from dy2st.state.arrays import is_array
from dy2st.state.containers.dynamic_lookup import is_called, one_kind, picked
from dy2st.state.containers.elements import MOST_NUMBERS
from dy2st.state.ownership import refuse
from dy2st.state.traced_list import TraceList
from dy2st.trace.fake_tensor import Tensor
from dy2st.trace.scalar import kind_of
from dy2st.trace.signals import Refused
from dy2st.trace.symint import SymRange


def is_chosen_by_index(population: Any) -> bool:
    """Whether a choice among these is that of an index, which the program makes: of tensors, of
    tuples with tensors, or of what can be called."""
    known = isinstance(population, (list, tuple, paddle.nn.LayerList))
    if not known or getattr(population, "segmented", False) or not len(population):
        return False
    return all(map(holds_tensor, population)) or all(map(is_called, population))


def holds_tensor(x: object) -> bool:
    return isinstance(x, Tensor) or type(x) is tuple and any(map(holds_tensor, x))


def check_population(name: str, population: object) -> None:
    """It chooses from numbers of one kind."""
    if isinstance(population, (range, SymRange)) or getattr(population, "segmented", False):
        return
    items = list(population) if isinstance(population, (list, tuple, str)) else []
    if not items or one_kind(items):
        return
    if all(map(kind_of, items)):
        raise refuse(
            f"{name}() of numbers of different types.",
            "The type of its result is known only when the program runs.",
            "Write all of them as floats, or all as integers.",
        )
    raise refuse(
        f"{name}() picks {picked(items)}.",
        "Which one is known only when the program runs. A program chooses between numbers, "
        "tensors, tuples of them, Layers and functions.",
        "Choose between those (`random.choice([paddle.tanh, paddle.sin])(x)`), or draw an index "
        "and branch on it: `i = random.randrange(2)`, `if i == 0: ...`.",
    )


def not_shuffled(name: str, x: object) -> Refused:
    """A shuffle that a program does not make."""
    known: dict[type, str] = {list: "a list from outside", TraceList: "a list of other elements"}
    array = isinstance(x, np.ndarray) or is_array(x)
    what = "an array" if array else known.get(type(x)) or f"a {type(x).__name__}"
    return refuse(
        f"{name}() of {what}.",
        f"A program shuffles lists of numbers, tensors or Layers that the function has made, and "
        f"lists from outside of at most {MOST_NUMBERS} numbers and tuples.",
        "Index a tensor with a random order: `x[numpy.random.permutation(n)]`, or "
        "`i = list(range(n)); random.shuffle(i); x = x[i]`.",
    )


__all__ = ["check_population", "is_chosen_by_index", "not_shuffled"]
