"""Tools as somebody approved them: their definitions in a file, and what has changed since."""

from .diff import Difference, compare, difference_of
from .lock_file import (
    Lock,
    Locked,
    LockedTool,
    LockFile,
    digest_of,
    lock_tools,
    read_lock,
    write_lock,
)
from .suspicious_text import suspicions

__all__ = [
    "Difference",
    "Lock",
    "LockFile",
    "Locked",
    "LockedTool",
    "compare",
    "difference_of",
    "digest_of",
    "lock_tools",
    "read_lock",
    "suspicions",
    "write_lock",
]
