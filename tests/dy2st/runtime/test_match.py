"""`match` reads its subject as other code does: guarded, by data, by the index of a loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import paddle
import pytest

import dy2st
from tests import check


@dataclasses.dataclass
class Op:
    kind: str
    by: Any = 1.0


class Settings:
    SCALED = "scaled"


class Measured:
    __match_args__ = ("size", "parts")

    def __init__(self) -> None:
        self.half, self.parts = 1, [1.0]

    @property
    def size(self) -> int:
        return self.half * 2


def applied(x: Any, op: Any) -> Any:
    match op:
        case Op("mul", by):
            return x * by
        case Op(kind="add", by=by) if by > 0:
            return x + by
        case Op(kind=Settings.SCALED):
            return x * 10
        case Measured(2, [k]):
            return x - k
        case Measured(n, [*parts]):
            parts.append(n)
            return x - sum(parts)
        case {"op": "pow", **rest}:
            return x ** rest.get("p", 2)
        case [first, *others]:
            x = applied(x, first)
            for other in others:
                x = applied(x, other)
            return x
        case _:
            return x


def change_field(ops: list[Any]) -> None:
    ops[0].by = 3.0


def change_kind(ops: list[Any]) -> None:
    ops[0].kind = "scaled"


def change_guard(ops: list[Any]) -> None:
    ops[1].by = -1.0


def change_property(ops: list[Any]) -> None:
    ops[2].half = 4


def change_parts(ops: list[Any]) -> None:
    ops[2].parts.append(5.0)


def change_key(ops: list[Any]) -> None:
    ops[3]["p"] = 1


def change_inner(ops: list[Any]) -> None:
    ops[4][1].by = 0.25


def change_value(ops: list[Any]) -> None:
    Settings.SCALED = "add"


CHANGES = [
    change_field, change_kind, change_guard, change_property, change_parts, change_key,
    change_inner, change_value,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_what_a_pattern_read_is_followed(
    change: Callable[[list[Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Settings, "SCALED", "scaled")
    inner = [Op("add", 2.0), Op("mul", 0.5)]
    ops = [Op("mul", 2.0), Op("add", 1.0), Measured(), {"op": "pow"}, inner]

    def f(x: Any) -> Any:
        for op in ops:
            x = applied(x, op)
        return x

    static, x = dy2st.to_static(f), paddle.to_tensor([1.5, 2.0])
    for _ in range(2):
        check.same(static(x), f(x))
        change(ops)


def test_a_number_of_the_program_is_matched() -> None:
    def f(x: Any) -> Any:
        match int(x.argmax()), x.shape:
            case 0, [n]:
                return x * n
            case (1 | 2) as k, _:
                return x * k + 1
            case k, [3 | 4]:
                return x - k

    static = dy2st.to_static(f)
    for k in range(4):
        x = paddle.nn.functional.one_hot(paddle.to_tensor(k), 4)
        check.same(static(x), f(x))


class Gate(paddle.nn.Layer):
    def __init__(self, k: int) -> None:
        super().__init__()
        self.fc, self.kind, self.by = paddle.nn.Linear(2, 2), "ab"[k % 2], float(k)

    def forward(self, x: Any) -> Any:
        return paddle.tanh(self.fc(x))


class Gates(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.gates = paddle.nn.LayerList([Gate(k) for k in range(10)])

    def forward(self, x: Any) -> Any:
        for gate in self.gates:
            match gate:
                case Gate(kind="a", by=by):
                    x = gate(x) * by
                case Gate(kind="b"):
                    x = x + gate(x)
        return x


def test_the_layers_of_a_loop_are_matched() -> None:
    net = Gates()
    static, x = dy2st.to_static(Gates()), paddle.ones([1, 2])
    static.set_state_dict(net.state_dict())
    for _ in range(2):
        check.same(static(x), net(x))
        for gates in (net.gates, static.gates):
            gates[3].kind, gates[2].by = "a", 0.5
