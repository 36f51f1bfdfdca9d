"""Detection of tool results that report an error."""

import re
from typing import Final

import msgspec
from msgspec import Raw, Struct, UnsetType

from ...wire.json import read_json

__all__ = ["is_tool_error"]

# The bytes are searched first, because most results do not match and decoding is expensive.
_says_so: Final = re.compile(rb'"isError"\s*:\s*true').search


class _Flag(Struct):
    is_error: bool = msgspec.field(default=False, name="isError")


def is_tool_error(result: Raw | bytes | UnsetType) -> bool:
    """Return True if a tool result reports an error."""
    if isinstance(result, UnsetType) or _says_so(result) is None:
        return False
    return read_json(result, _Flag, _Flag()).is_error
