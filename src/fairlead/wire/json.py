"""JSON in the form that Fairlead writes: compact UTF-8 on one line; and names of members."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, UnsetType

__all__ = ["CR", "LF", "UNREADABLE", "MemberNames", "read_json", "single_line", "to_json"]

# Integers are used, because `10 in data` is ten times as fast as `b"\n" in data`.
LF: Final = 10
CR: Final = 13

# Exceptions that decoding JSON from another program may raise.
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")
D = TypeVar("D")

_encode = msgspec.json.Encoder().encode


class MemberNames:
    """Names of members that Fairlead reads, to find other spellings of them.

    Names are case-sensitive in JSON-RPC, but the JSON packages of Go and C# ignore case by default
    and use the last spelling. A message could therefore have one meaning for Fairlead and another
    one for its receiver.
    """

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)
        self._folded = frozenset(map(_fold, names))

    def respells(self, name: str) -> bool:
        """Return True for a name that differs only in case from one of these names."""
        return name not in self._names and _fold(name) in self._folded

    def exact(self, members: Mapping[str, T]) -> Mapping[str, T]:
        """Return the members without those that differ only in case from one of these names."""
        if members.keys() <= self._names or not any(map(self.respells, members)):
            return members
        return {name: value for name, value in members.items() if not self.respells(name)}


def read_json(raw: Raw | bytes | UnsetType | None, kind: type[T], default: D) -> T | D:
    """Decode JSON from another program; return `default` if it is missing or not of this type."""
    if raw is None or isinstance(raw, UnsetType):
        return default
    try:
        return msgspec.json.decode(raw, type=kind)
    except UNREADABLE:
        return default


def to_json(value: Any) -> bytes:
    """Encode a value.

    A lone surrogate in a string becomes U+FFFD; file names that are not valid UTF-8 contain lone
    surrogates. `NaN` and infinities have no JSON form and are written as `null`.
    """
    try:
        return _encode(value)
    except UnicodeEncodeError:
        # The slow conversion runs only after a failure. `Raw` is kept, because it is JSON.
        return _encode(_without_lone_surrogates(msgspec.to_builtins(value, builtin_types=(Raw,))))


def single_line(frame: bytes) -> bytes:
    """Return the same JSON without line breaks.

    Values that were received as bytes keep their whitespace. In the line protocol, a line break in
    such a value would allow a peer to inject an unchecked second message on its own line.
    """
    if LF in frame or CR in frame:
        # `format` keeps the spelling of numbers and strings.
        return msgspec.json.format(frame, indent=-1)
    return frame


def _fold(name: str) -> str:
    # Upper case first, because U+0131 (a dotless i) has no other form that equals `i`.
    return name.upper().casefold()


def _without_lone_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        # In UTF-16, a surrogate pair becomes one character; lone surrogates are replaced.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_without_lone_surrogates(k): _without_lone_surrogates(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_lone_surrogates(item) for item in value]
    return value
