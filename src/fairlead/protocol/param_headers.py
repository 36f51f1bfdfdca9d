"""Arguments of a server's tools that are also sent as headers (`x-mcp-header`, stateless HTTP)."""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from ..limits import LIST_BYTES
from ..wire.json import read_json
from .headers import ParamHeader, param_headers
from .types.base import HEADER_ANNOTATION

__all__ = ["ParamHeaderIndex", "read_param_headers"]

_MARK: Final = HEADER_ANNOTATION.encode()


def read_param_headers(definition: bytes | Raw) -> tuple[ParamHeader, ...]:
    """Return the arguments that a tool definition marks. The JSON must be valid.

    Raises:
        ValueError: A mark is invalid.
    """
    if not _may_mark(bytes(definition)):
        return ()
    return param_headers(msgspec.json.decode(definition, type=_Tool).schema)


class ParamHeaderIndex:
    """Marked arguments of a server's tools, read from its tool lists.

    The tool definitions they come from may have as many bytes in total as one list may have; beyond
    that, the oldest entries are dropped.
    """

    def __init__(self, max_bytes: int = LIST_BYTES.value) -> None:
        self._room = max_bytes
        self._sizes: dict[str, int] = {}
        self._marks: dict[str, tuple[ParamHeader, ...]] = {}

    def of(self, tool: str) -> tuple[ParamHeader, ...]:
        """Return the arguments that a call of this tool must repeat in headers;
        empty if it is unknown.
        """
        return self._marks.get(tool, ())

    def learn(self, result: Raw) -> str | None:
        """Read a page of `tools/list` and return the cursor of the next page."""
        text = bytes(result)
        # Most tool lists contain no marks and need not be decoded.
        reads = bool(self._marks) or _may_mark(text)
        if not reads and b'"nextCursor"' not in text:
            return None
        page = read_json(text, _Page, _Page())
        if reads:
            self.usable(page.tools)
        return page.cursor

    def usable(
        self, tools: Iterable[Raw], reject: Callable[[str], None] = lambda _: None
    ) -> list[Raw]:
        """Read tool definitions and return those of tools that can be called over HTTP.

        A tool with invalid marks is left out, and `reject` is called with the reason.
        """
        return [tool for tool in tools if self._learn(tool, reject)]

    def _learn(self, item: Raw, reject: Callable[[str], None]) -> bool:
        try:
            name = msgspec.json.decode(item, type=_Named).name
            marks = read_param_headers(item)
        except (msgspec.DecodeError, RecursionError):
            # Keep a malformed definition: the code that uses it reports the error.
            return True
        except ValueError as exc:
            reject(f"{name!r} cannot be called over HTTP: {exc}")
            return False
        self._forget(name)
        if marks:
            self._marks[name], self._sizes[name] = marks, len(item)
            self._room -= len(item)
            while self._room < 0:
                self._forget(next(iter(self._marks)))
        return True

    def _forget(self, name: str) -> None:
        self._marks.pop(name, None)
        self._room += self._sizes.pop(name, 0)


class _Named(Struct):
    name: str


class _Tool(Struct):
    schema: Any = msgspec.field(default=None, name="inputSchema")


class _Page(Struct):
    tools: list[Raw] = []
    cursor: str | None = msgspec.field(default=None, name="nextCursor")


def _may_mark(text: bytes) -> bool:
    """Return True if the text may contain a mark; JSON may also spell it with escapes."""
    return _MARK in text or b"\\u" in text
