"""Conversations on disk: written while they happen, read while they are written, played again."""

from .format import Entry, TapeInfo
from .reader import TapeReader, plain, read_tape
from .writer import TapeWriter

__all__ = ["Entry", "TapeInfo", "TapeReader", "TapeWriter", "plain", "read_tape"]
