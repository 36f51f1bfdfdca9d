"""Journal that keeps the latest exchanges in bounded memory, with a live feed."""

from .journal import Journal, JournalReader
from .journal_record import JournalRecord
from .line_observer import LineObserver

__all__ = ["Journal", "JournalReader", "JournalRecord", "LineObserver"]
