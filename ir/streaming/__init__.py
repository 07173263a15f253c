"""Transformation of a program of a whole sequence into one that takes it chunk by chunk."""

from ir.streaming.bands import banded
from ir.streaming.facts import QUANTUM, Length, Stream
from ir.streaming.transform import Output, State, Streamed, stream

__all__ = ["QUANTUM", "Length", "Output", "State", "Stream", "Streamed", "banded", "stream"]
