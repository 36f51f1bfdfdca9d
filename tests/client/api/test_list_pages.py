"""Tests of reading lists page by page."""

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from fairlead.client.api.list_budget import ListBudget, ListTooLarge
from fairlead.client.api.list_pages import read_pages
from fairlead.errors import RemoteProtocolError, RpcError
from fairlead.limits import LIST_PAGES

both_eras = pytest.mark.parametrize("stateless", [True, False], ids=["stateless", "handshake"])


class ListServer:
    """A fake server that answers each `tools/list` cursor with a page or an error."""

    def __init__(self, pages: dict[str | None, Any]) -> None:
        self.asked: list[str | None] = []
        self._pages = pages

    async def ask(self, params: dict[str, str] | None) -> Raw:
        cursor = None if params is None else params["cursor"]
        self.asked.append(cursor)
        page = self._pages[cursor]
        if isinstance(page, Exception):
            raise page
        return Raw(msgspec.json.encode(page))

    async def tools(self, *, stateless: bool) -> list[str]:
        pages = read_pages(self.ask, ListBudget("tools/list"), stateless=stateless)
        return [
            name
            async for page in pages
            for name in msgspec.json.decode(page["tools"], type=list[str])
        ]


@both_eras
async def test_a_list_ends_with_a_page_without_a_cursor(stateless: bool) -> None:
    server = ListServer(
        {
            None: {"tools": ["a"], "nextCursor": "2"},
            "2": {"tools": ["b"], "nextCursor": None},
        }
    )
    assert await server.tools(stateless=stateless) == ["a", "b"]


@both_eras
async def test_an_empty_cursor_is_used_to_request_the_next_page(stateless: bool) -> None:
    server = ListServer(
        {
            None: {"tools": ["a"], "nextCursor": ""},
            "": {"tools": ["b"], "nextCursor": "3"},
            "3": {"tools": ["c"]},
        }
    )
    assert await server.tools(stateless=stateless) == ["a", "b", "c"]
    assert server.asked == [None, "", "3"]


@both_eras
@pytest.mark.parametrize("cursor", ["", "x"])
async def test_reading_a_list_ends_at_a_repeated_cursor(stateless: bool, cursor: str) -> None:
    server = ListServer(
        {
            None: {"tools": ["a"], "nextCursor": cursor},
            cursor: {"tools": ["b"], "nextCursor": cursor},
        }
    )
    assert await server.tools(stateless=stateless) == ["a", "b"]
    assert server.asked == [None, cursor]


async def test_an_empty_cursor_at_the_end_of_a_handshake_list_ends_the_list() -> None:
    first = {"tools": ["a"], "nextCursor": "2"}
    last = {"tools": ["b"], "nextCursor": ""}
    begins_again = ListServer({None: first, "2": last, "": first})
    assert await begins_again.tools(stateless=False) == ["a", "b"]
    refuses = ListServer({None: first, "2": last, "": RpcError(-32602, "Invalid cursor")})
    assert await refuses.tools(stateless=False) == ["a", "b"]


async def test_the_error_response_to_a_cursor_is_raised() -> None:
    refusal = RpcError(-32602, "Invalid cursor")
    for stateless, cursor in ((True, ""), (True, "2"), (False, "2")):
        server = ListServer({None: {"tools": [], "nextCursor": cursor}, cursor: refusal})
        with pytest.raises(RpcError, match="Invalid cursor"):
            await server.tools(stateless=stateless)


@pytest.mark.parametrize("page", [[], {"tools": [], "nextCursor": 5}])
async def test_a_malformed_page_is_an_error(page: Any) -> None:
    with pytest.raises(RemoteProtocolError, match="A page of tools/list is malformed"):
        await ListServer({None: page}).tools(stateless=True)


async def test_the_number_of_pages_of_a_list_is_limited() -> None:
    pages: dict[str | None, Any] = {
        str(number): {"tools": [], "nextCursor": str(number + 1)}
        for number in range(LIST_PAGES.value + 1)
    }
    server = ListServer({**pages, None: {"tools": [], "nextCursor": "0"}})
    with pytest.raises(ListTooLarge, match=f"more than {LIST_PAGES.value} pages"):
        await server.tools(stateless=True)
