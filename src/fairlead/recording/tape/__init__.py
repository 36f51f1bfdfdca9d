"""Conversations on disk: written while they happen, read while they are written, played again."""

from .format import TapeEntry, TapeInfo
from .tape_reader import TapeReader, decode_entry, read_tape
from .writer import TapeWriter

__all__ = ["TapeEntry", "TapeInfo", "TapeReader", "TapeWriter", "decode_entry", "read_tape"]
