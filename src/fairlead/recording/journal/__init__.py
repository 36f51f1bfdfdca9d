"""What has just passed: a bounded memory of exchanges, and a live feed of it."""

from .journal import Journal, Reader
from .journal_record import Record
from .line_observer import Overheard

__all__ = ["Journal", "Overheard", "Reader", "Record"]
