"""Tests of lists from servers that violate the protocol."""

from pathlib import Path

import pytest
from msgspec import Raw

from fairlead import MCPClient, MCPClientConfig, MCPServer
from fairlead.client.api.lists import read_result
from fairlead.client.api.typed_results import read_list
from fairlead.client.connection.era_cache import known_eras
from fairlead.errors import RemoteProtocolError
from tests.support.in_memory_client import client_of
from tests.support.scripted_stdio_server import program

CONFIG = MCPClientConfig(protocol_version="latest")


@pytest.fixture(autouse=True)
def _forget_verdicts() -> None:
    known_eras.clear()


# Each cursor returns a different kind of page.
PAGES = """
pages = {
    None: {"tools": [{"name": "a", "inputSchema": {}}, {"name": 5}, {}], "nextCursor": "odd"},
    "odd": {"nextCursor": "worse"},
    "worse": {"tools": 17, "nextCursor": "last"},
    "last": {"tools": [{"name": "b", "inputSchema": {}}], "nextCursor": "odd"},
}
endless = 0
for request in requests():
    if request["method"] == "tools/list":
        answer(request, pages[request.get("params", {}).get("cursor")])
    elif request["method"] == "prompts/list":
        endless += 1
        answer(request, {"prompts": [{"name": "p%d" % endless}], "nextCursor": str(endless)})
    elif request["method"] == "resources/list":
        answer(request, {"resources": [], "nextCursor": ""})
"""


async def test_malformed_pages_are_skipped_and_reported(tmp_path: Path) -> None:
    command = program(tmp_path, PAGES, stateless=False)
    async with MCPClient.connect_stdio(command, CONFIG) as client:
        assert [tool["name"] for tool in await client.list_tools()] == ["a", "b"]
        assert [reason.partition(" Expected")[0] for reason in client.skipped] == [
            "tools/list: 2 items without a name",
            "tools/list: a page without tools",
            "tools/list: tools:",
        ]


def test_the_list_member_of_a_page_must_be_a_list_or_absent() -> None:
    assert read_list(None, "tools") == []
    assert read_list([1], "tools") == [1]
    with pytest.raises(RemoteProtocolError, match="tools is not a list"):
        read_list({}, "tools")


async def test_only_the_last_hundred_skipped_items_are_kept() -> None:
    async with client_of(MCPServer("s")) as client:
        for number in range(101):
            client._skip("tools/list", f"item {number}")
        assert client.skipped == [f"tools/list: item {number}" for number in range(1, 101)]


async def test_a_list_is_offered_unless_the_server_lacks_its_capability() -> None:
    async with client_of(MCPServer("s")) as client:
        assert client._offers("server/discover")
        assert not client._offers("prompts/list")
        client._agreement = None
        assert client._offers("prompts/list")


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b'{"resultType":"odd"}', "unknown resultType"),
        (b"[]", "The result is malformed"),
        (b"{", "The result is malformed"),
    ],
)
def test_a_malformed_list_result_or_one_of_an_unknown_type_is_an_error(
    raw: bytes, problem: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=problem) as refused:
        read_result(Raw(raw))
    assert refused.value.code == -32600
    for good in (b"{}", b'{"resultType":"complete"}', b'{"resultType":"input_required"}'):
        assert isinstance(read_result(Raw(good)), dict)
