"""Which arguments of a server's tools travel in headers too (`x-mcp-header`, stateless HTTP)."""

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
    """Return the marked arguments of a tool. The JSON has to be valid.

    Raises:
        ValueError: A mark breaks the rules.
    """
    if not _may_mark(bytes(definition)):
        return ()
    return param_headers(msgspec.json.decode(definition, type=_Tool).schema)


class ParamHeaderIndex:
    """The marked arguments of the tools of one server, learned from its lists of tools.

    Holds the marks of as many bytes of definitions as one list may have. What was learned first
    is forgotten first.
    """

    def __init__(self, max_bytes: int = LIST_BYTES.value) -> None:
        self._room = max_bytes
        self._sizes: dict[str, int] = {}
        self._marks: dict[str, tuple[ParamHeader, ...]] = {}

    def of(self, tool: str) -> tuple[ParamHeader, ...]:
        """Return what a call of this tool has to repeat in headers, as far as is known."""
        return self._marks.get(tool, ())

    def learn(self, result: Raw) -> str | None:
        """Learn from a page of `tools/list`; return where the next one begins."""
        text = bytes(result)
        # Most servers have no marks, and their lists need not be read.
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
        """Learn from definitions; return those of tools that can be called over HTTP.

        `reject` is called with the reason for each of the others: their marks break the rules.
        """
        return [tool for tool in tools if self._learn(tool, reject)]

    def _learn(self, item: Raw, reject: Callable[[str], None]) -> bool:
        try:
            name = msgspec.json.decode(item, type=_Named).name
            marks = read_param_headers(item)
        except (msgspec.DecodeError, RecursionError):
            return True  # what uses it says what is wrong with it
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
    """Return True if it is worth a look: JSON can spell a mark with escapes."""
    return _MARK in text or b"\\u" in text
