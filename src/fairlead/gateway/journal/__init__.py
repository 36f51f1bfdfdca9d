"""What has just passed: a bounded memory of exchanges, and a live feed of it."""

from .journal import Journal, Reader
from .overheard import Overheard
from .record import Record

__all__ = ["Journal", "Overheard", "Reader", "Record"]
