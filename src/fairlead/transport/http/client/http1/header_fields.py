"""Header fields of requests: merging, validation and their form on the wire."""

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

from .....errors import ChannelClosed

__all__ = ["CredentialFields", "format_fields", "merge_headers"]

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def merge_headers(under: Mapping[str, str], over: Mapping[str, str]) -> dict[str, str]:
    """Merge two sets of headers; `over` replaces headers of the same name, regardless of case."""
    names = {name.lower() for name in over}
    return {**{n: v for n, v in under.items() if n.lower() not in names}, **over}


def format_fields(headers: Mapping[str, str]) -> str:
    """Return the lines of header fields.

    Raises:
        ChannelClosed: A header name or value is invalid.
    """
    fields = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    # A line break in a value would add a header or a second request (request smuggling).
    # Counting the breaks of all fields is faster than checking each value.
    lines = fields.count("\r\n")
    one_each = lines == fields.count("\r") == fields.count("\n") == len(headers)
    if not one_each or "\0" in fields or not all(map(_is_name, headers)):
        raise ChannelClosed("a request header has an invalid name or value", delivered=False)
    return fields


class CredentialFields:
    """The lines of the last headers with credentials, which most requests of a client share."""

    def __init__(self, reserved: Collection[str]) -> None:
        """`reserved` are names, in lower case, that other fields of a request may have."""
        self._reserved = frozenset(reserved)
        self._headers: Mapping[str, str] = {}
        self._names: frozenset[str] = frozenset()
        self._lines = ""

    def beside(self, credentials: Mapping[str, str], names: set[str]) -> str | None:
        """Return the lines of credentials; None if one of them may replace another header.

        `names` are those of the other headers, in lower case.

        Raises:
            ChannelClosed: A header name or value is invalid.
        """
        if credentials is not self._headers:
            self._lines = format_fields(credentials)
            self._names = frozenset(name.lower() for name in credentials)
            self._headers = credentials
        separate = self._names.isdisjoint(names) and self._names.isdisjoint(self._reserved)
        return self._lines if separate else None


@lru_cache(maxsize=1024)
def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None
