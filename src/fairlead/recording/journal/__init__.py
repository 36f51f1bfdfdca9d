"""Journal: the latest exchanges in bounded memory, and a live feed of them."""

from .journal import Journal, JournalReader
from .journal_record import JournalRecord
from .line_observer import LineObserver

__all__ = ["Journal", "JournalReader", "JournalRecord", "LineObserver"]
