"""What has just passed: a bounded memory of exchanges, and a live feed of it."""

from .journal import Journal, JournalReader
from .journal_record import JournalRecord
from .line_observer import LineObserver

__all__ = ["Journal", "JournalReader", "JournalRecord", "LineObserver"]
