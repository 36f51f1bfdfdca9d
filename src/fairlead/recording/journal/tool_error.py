"""Whether a tool says that it failed, which is a result and no error."""

import re
from typing import Final

import msgspec
from msgspec import Raw, Struct, UnsetType

from ...wire.json import read_json

__all__ = ["is_tool_error"]

_says_so: Final = re.compile(rb'"isError"\s*:\s*true').search  # somewhere in it


class _Flag(Struct):
    is_error: bool = msgspec.field(default=False, name="isError")


def is_tool_error(result: Raw | bytes | UnsetType) -> bool:
    """Whether the result of a tool says that the tool failed."""
    if isinstance(result, UnsetType) or _says_so(result) is None:
        return False  # not anywhere in it
    return read_json(result, _Flag, _Flag()).is_error
