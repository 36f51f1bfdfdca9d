"""Tapes: recorded conversations on disk, which can be read while they are written."""

from .format import TapeEntry, TapeInfo
from .tape_reader import TapeReader, decode_entry, read_tape
from .writer import TapeWriter

__all__ = ["TapeEntry", "TapeInfo", "TapeReader", "TapeWriter", "decode_entry", "read_tape"]
