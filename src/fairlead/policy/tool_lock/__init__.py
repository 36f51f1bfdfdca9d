"""Approved definitions of tools in a lock file, and comparison with the current ones."""

from .lock_file import (
    LockedServer,
    LockedTool,
    LockFileWatcher,
    ToolLockData,
    digest_of,
    lock_tools,
    read_lock,
    write_lock,
)
from .suspicious_text import find_suspicious_text
from .tool_diff import ToolDifference, compare_tools, difference_of

__all__ = [
    "LockFileWatcher",
    "LockedServer",
    "LockedTool",
    "ToolDifference",
    "ToolLockData",
    "compare_tools",
    "difference_of",
    "digest_of",
    "find_suspicious_text",
    "lock_tools",
    "read_lock",
    "write_lock",
]
