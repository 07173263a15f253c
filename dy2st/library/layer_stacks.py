"""Layers of Paddle that call one Layer after the other: their loops are those of the user."""

from __future__ import annotations

from typing import Any

from paddle.nn import Sequential, TransformerDecoder, TransformerEncoder


def sequential(self: Any, input: Any) -> Any:
    """`Sequential.forward`."""
    for layer in self:
        input = layer(input)
    return input


#: what is converted and called instead of a function, by identity
REWRITTEN: dict[Any, Any] = {
    Sequential.forward: sequential,
    TransformerEncoder.forward: TransformerEncoder.forward,
    TransformerDecoder.forward: TransformerDecoder.forward,
}
