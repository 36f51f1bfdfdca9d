"""Tests of paged lists and of the warm-up of a server."""

import base64
import subprocess
import sys

import msgspec
import pytest

from fairlead import MCPServer, RpcError
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.server.features.paged_list import PagedList
from tests.support.raw_server_client import META, wire_to


def server(*, warm_up: bool) -> MCPServer:
    made = MCPServer("s", warm_up=warm_up, page_size=2)
    for number in range(5):
        made.register_resource(f"r://{number}", f"r{number}", content_provider="x")
    made.tool("t")(lambda: "x")
    made.prompt("p")(lambda: "x")
    return made


@pytest.mark.covers("SRV-14")
async def test_warm_up_encodes_lists_before_the_first_request() -> None:
    warm = server(warm_up=True)
    assert len(warm.registry.listing._pages) == 0
    async with wire_to(warm) as wire:
        assert len(warm.registry.listing._pages) == 2  # one page for each era
        assert len(warm.prompts._pages) == 2
        assert len(warm.resources.fixed._pages) == 6
        assert len(warm.resources.templates._pages) == 0
        assert len((await wire.ask("resources/list", {"_meta": META}))["result"]["resources"]) == 2
        assert len(warm.resources.fixed._pages) == 6
        warm.remove_tool("t")
        assert (await wire.ask("tools/list", {"_meta": META}))["result"]["tools"] == []


@pytest.mark.covers("SRV-14")
async def test_lists_are_encoded_when_a_server_starts_to_run() -> None:
    warm, inner = server(warm_up=True), server(warm_up=True)
    inner.remove_prompt("p")
    for number in range(5):
        inner.remove_resource(f"r://{number}")
    warm.mount(inner, "i")
    async with warm.running():
        assert len(warm.registry.listing._pages) == 2
        assert len(inner.registry.listing._pages) == 2


@pytest.mark.covers("SRV-14")
async def test_lists_are_encoded_on_demand_if_warm_up_is_disabled() -> None:
    cold = server(warm_up=False)
    async with wire_to(cold) as wire:
        assert len(cold.registry.listing._pages) == 0
        await wire.ask("tools/list", {"_meta": META})
        assert (len(cold.registry.listing._pages), len(cold.prompts._pages)) == (1, 0)


PROGRAM = """
import asyncio, sys
from dataclasses import dataclass
from fairlead import MCPServer
from fairlead.protocol.caller import ANONYMOUS
from fairlead.transport.memory import memory_pair

@dataclass
class A:
    a: int

@dataclass
class B:
    b: int

server = MCPServer("s", warm_up={warm_up})

@server.tool()
def either(x: A | B) -> str:  # only its schema can tell
    return ""

async def main():
    left, right = memory_pair()
    peer = server.attach(right, ANONYMOUS)
    print("jsonschema_rs" in sys.modules)
    await server.registry.execute("either", dict(x=dict(a=1)))
    print("jsonschema_rs" in sys.modules)
    await peer.close()

asyncio.run(main())
"""


@pytest.mark.covers("SRV-14")
@pytest.mark.parametrize("warm_up", [True, False])
def test_schemas_are_compiled_at_warm_up_or_on_demand(warm_up: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(warm_up=warm_up)],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stdout.split() == [str(warm_up), "True"], done.stderr


class Entry(msgspec.Struct):
    definition: dict[str, str]


def listing(*names: str) -> PagedList[Entry]:
    made: PagedList[Entry] = PagedList("tool", "tools/list", "tools", 2)
    for name in names:
        made.add(name, Entry({"name": name}))
    return made


def pages(made: PagedList[Entry]) -> list[list[str]]:
    found, cursor = [], None
    while True:
        page = msgspec.json.decode(b"{%b}" % made.page(cursor, NEWEST))
        found.append([tool["name"] for tool in page["tools"]])
        cursor = page.get("nextCursor")
        if cursor is None:
            return found


@pytest.mark.parametrize(
    ("names", "expected"),
    [("", [[]]), ("a", [["a"]]), ("ab", [["a", "b"]]), ("abc", [["a", "b"], ["c"]])],
    ids=["none", "one", "two", "three"],
)
def test_a_list_is_split_into_pages_of_the_configured_size(
    names: str, expected: list[list[str]]
) -> None:
    assert pages(listing(*names)) == expected


@pytest.mark.parametrize("offset", ["0", "-1", "4", "x", ""])
def test_a_list_request_with_an_unknown_cursor_is_rejected(offset: str) -> None:
    cursor = base64.urlsafe_b64encode(offset.encode()).decode()
    for given in (cursor, "not base64!"):
        with pytest.raises(RpcError) as refused:
            listing("a", "b", "c").page(given, NEWEST)
        assert refused.value.code == -32602
        assert refused.value.message == f"Unknown cursor {given!r}: list again from the start"


def test_a_cursor_at_the_end_of_a_shortened_list_returns_an_empty_page() -> None:
    made = listing("a", "b", "c")
    cursor = msgspec.json.decode(b"{%b}" % made.page(None, NEWEST))["nextCursor"]
    made.remove("c")
    assert made.page(cursor, NEWEST) == b'"tools":[]'
    made.remove("b")
    with pytest.raises(RpcError):
        made.page(cursor, NEWEST)


def test_a_changed_list_calls_its_listeners_and_drops_encoded_pages() -> None:
    made, told = listing("a"), list[str]()
    made.listeners.append(lambda: told.append("changed"))
    made.warm_up(NEWEST, NEWEST_HANDSHAKE)
    assert (len(made._pages), told) == (2, [])
    with pytest.raises(ValueError, match="^a tool 'a' is already registered$"):
        made.add("a", Entry({"name": "other"}))
    made.add("a", Entry({"name": "other"}), replace=True)
    assert (len(made._pages), told) == (0, ["changed"])
    assert pages(made) == [["other"]]
    assert (made.names(), len(made)) == (["a"], 1)
    made.remove("a")
    assert (len(made._pages), told, made.get("a")) == (0, ["changed", "changed"], None)
    with pytest.raises(KeyError):
        made.remove("a")


def test_a_second_warm_up_keeps_encoded_pages() -> None:
    made = listing("a", "b", "c")
    first = made.page(None, NEWEST)
    made.warm_up(NEWEST)
    assert len(made._pages) == 2
    assert made.page(None, NEWEST) is first
