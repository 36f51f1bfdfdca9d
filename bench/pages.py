"""Complete lists of a thousand tools, in the pages of the server."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Generic, Self, TypeVar

import msgspec

from .child import Child, Failed
from .requests import Era, list_tools

__all__ = ["Lists"]

_THOUSAND = 1000


class Lists:
    """Complete lists. Each page is requested when the previous one has arrived.

    The cursors are read from a first list, so that the requests can be built before the clock
    starts. The cursors of the measured pages are checked after it has stopped.
    """

    most = 100  # 80 MB of answers

    def __init__(self, cursors: list[str | None]) -> None:
        self._cursors = cursors  # of the pages, in order; the first has none

    @classmethod
    def learn(cls, child: Child, era: Era, first: int) -> Self:
        """Read the cursors of a server; requests are numbered from `first`.

        Raises:
            Failed: The server does not respond with a list.
        """
        cursors: list[str | None] = [None]
        for number in count(first):
            child.say(list_tools(era, number, cursors[-1]))
            line = child.hear()
            try:
                cursor = _decode_cursor(line).result.next_cursor
            except msgspec.MsgspecError:
                raise Failed(f"not a list in {era.value}: {line[:300]!r}") from None
            if cursor is None:
                break
            cursors.append(cursor)
        return cls(cursors)

    @property
    def pages(self) -> int:
        """The number of pages of the list."""
        return len(self._cursors)

    def lines(self, era: Era, first: int, count: int) -> list[bytes]:
        cursors = self._cursors * count
        return [list_tools(era, number, cursor) for number, cursor in enumerate(cursors, first)]

    def check(self, answers: Iterable[bytes], first: int, count: int) -> None:
        given = {answer.id: answer.result for answer in map(_answer, answers)}
        for start in range(first, first + count * self.pages, self.pages):
            try:
                self._check([given.pop(start + n) for n in range(self.pages)])
            except KeyError:
                raise Failed(f"a page of the list from {start} on is missing") from None
        if given:
            raise Failed(f"{len(given)} pages that nobody asked for, {min(given)} the first")

    def _check(self, pages: list[_Page]) -> None:
        if [page.next_cursor for page in pages] != [*self._cursors[1:], None]:
            raise Failed("the pages of a list lead elsewhere than before")
        tools = [tool for page in pages for tool in page.tools]
        if not len(tools) == len({tool.name for tool in tools}) == _THOUSAND:
            raise Failed(f"a list of {len(tools)} tools instead of {_THOUSAND}")
        for tool in tools:
            parameters = tool.input_schema.properties.values()
            if len(parameters) not in (3, 4) or not all(p.description for p in parameters):
                raise Failed(f"not described in full: {tool}")


class _Property(msgspec.Struct):
    description: str = ""


class _Schema(msgspec.Struct):
    properties: dict[str, _Property]


class _Tool(msgspec.Struct, rename="camel"):
    name: str
    description: str
    input_schema: _Schema


class _End(msgspec.Struct, rename="camel"):
    """The members of a page that are needed to request the next one."""

    next_cursor: str | None = None


class _Page(_End, rename="camel", kw_only=True):
    tools: list[_Tool]


_Result = TypeVar("_Result", _End, _Page)


class _Answer(msgspec.Struct, Generic[_Result]):
    id: int
    result: _Result


_decode = msgspec.json.Decoder(_Answer[_Page]).decode
_decode_cursor = msgspec.json.Decoder(_Answer[_End]).decode


def _answer(line: bytes) -> _Answer[_Page]:
    try:
        return _decode(line)
    except msgspec.MsgspecError:
        raise Failed(f"not a list of tools: {line[:300]!r}") from None
