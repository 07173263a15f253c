"""Transformation of a program of a whole sequence into one that takes it chunk by chunk."""

from ir.streaming.band_attention import banded
from ir.streaming.facts import QUANTUM, Stream, StreamLength
from ir.streaming.transform import StreamedProgram, StreamOutput, StreamState, stream

__all__ = [
    "QUANTUM",
    "StreamLength",
    "StreamOutput",
    "StreamState",
    "Stream",
    "StreamedProgram",
    "banded",
    "stream",
]
