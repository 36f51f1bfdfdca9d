"""Lists read from one connection to a server, with or without a client."""

import asyncio
import json
from typing import Any

import pytest

from fairlead.client.api.list_budget import ListBudget, ListTooLarge
from fairlead.errors import ChannelClosed, RemoteProtocolError, RpcError
from fairlead.gateway.catalog.list_comparison import read_lists
from fairlead.protocol.caller import ANONYMOUS, Caller
from fairlead.protocol.revisions import NEWEST, NEWEST_HANDSHAKE
from fairlead.protocol.targets.list_kind import ListKind
from tests.support.listing_connection import ListingConnection
from tests.support.virtual_time import VirtualTime

TOOLS = [{"name": "a"}, {"name": "b"}, {"name": "c"}]
ALL: dict[str, Any] = {
    "tools/list": TOOLS,
    "prompts/list": [{"name": "p"}],
    "resources/list": [{"uri": "r:1"}],
    "resources/templates/list": [{"uriTemplate": "r:{x}"}],
}
NOTHING: dict[ListKind, list[Any]] = {kind: [] for kind in ListKind}


def budget(kind: ListKind) -> ListBudget:
    return ListBudget(kind.method)


def caller(*, stateless: bool = True, info: bytes | None = None) -> Caller:
    revision = NEWEST if stateless else NEWEST_HANDSHAKE
    return Caller(revision, stateless, ANONYMOUS, b'{"sampling":{}}', info)


async def read(connection: ListingConnection, *about: Any) -> dict[ListKind, list[Any]]:
    """Return all lists of a connection, decoded."""
    given: Any = connection
    lists = await read_lists(given, budget, *about)
    return {kind: [json.loads(bytes(item)) for item in items] for kind, items in lists.items()}


async def test_all_pages_of_all_lists_are_read() -> None:
    connection = ListingConnection(ALL, page_size=2)
    assert await read(connection) == {
        ListKind.TOOLS: TOOLS,
        ListKind.PROMPTS: [{"name": "p"}],
        ListKind.RESOURCES: [{"uri": "r:1"}],
        ListKind.TEMPLATES: [{"uriTemplate": "r:{x}"}],
    }
    assert connection.requests[:2] == [("tools/list", None), ("tools/list", {"cursor": "2"})]
    assert (len(connection.requests), connection.timeouts) == (5, {30.0})


async def test_lists_that_the_server_does_not_declare_are_empty() -> None:
    connection = ListingConnection(ALL, capabilities='{"tools":{}}')
    assert await read(connection) == {**NOTHING, ListKind.TOOLS: TOOLS}
    assert connection.requests == [("tools/list", None)]
    connection.agreement = None
    assert await read(connection) == NOTHING


@pytest.mark.parametrize(
    "error", [RpcError(-32601, "no"), RemoteProtocolError("malformed", code=-32600)]
)
async def test_a_server_without_the_method_for_templates_has_an_empty_list(
    error: Exception,
) -> None:
    connection = ListingConnection({**ALL, "resources/templates/list": error})
    assert (await read(connection))[ListKind.TEMPLATES] == []
    connection.items["resources/list"] = error
    with pytest.raises(type(error)):
        await read(connection)


async def test_a_connection_lost_while_templates_are_listed_is_an_error() -> None:
    connection = ListingConnection({**ALL, "resources/templates/list": ChannelClosed("lost")})
    with pytest.raises(ChannelClosed, match="lost"):
        await read(connection)


@pytest.mark.parametrize(
    ("info", "shown"),
    [
        (None, {"name": "fairlead", "version": "0"}),
        (b'{"name":"c","version":"1"}', {"name": "c", "version": "1"}),
    ],
)
async def test_list_requests_to_a_stateless_server_describe_the_client(
    info: Any, shown: Any
) -> None:
    connection = ListingConnection(ALL, stateless=True, page_size=2)
    lists = await read(connection, caller(info=info))
    meta = {
        "io.modelcontextprotocol/protocolVersion": NEWEST.value,
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}},
        "io.modelcontextprotocol/clientInfo": shown,
    }
    assert lists[ListKind.TOOLS] == TOOLS
    assert connection.requests[:2] == [
        ("tools/list", {"_meta": meta}),
        ("tools/list", {"cursor": "2", "_meta": meta}),
    ]
    assert connection.timeouts == {30.0}


@pytest.mark.parametrize(("stateless", "given"), [(False, True), (True, False)])
async def test_list_requests_describe_no_client_in_a_session_or_if_there_is_none(
    stateless: bool, given: bool
) -> None:
    connection = ListingConnection(ALL, stateless=stateless)
    await read(connection, caller() if given else None)
    assert {str(params) for _, params in connection.requests} == {"None"}


async def test_a_list_over_its_item_limit_is_an_error() -> None:
    given: Any = ListingConnection(ALL, page_size=1)
    with pytest.raises(ListTooLarge, match="tools/list has more than 2 items"):
        await read_lists(given, lambda kind: ListBudget(kind.method, 10_000, 2))


async def test_reading_all_pages_of_a_list_times_out_after_two_minutes(
    virtual_time: VirtualTime,
) -> None:
    connection = ListingConnection(ALL, page_size=1)
    connection.answering = lambda: asyncio.sleep(50)
    began = virtual_time.now
    with pytest.raises(TimeoutError):
        await read(connection)
    assert virtual_time.now == began + 120
    connection.page_size = 2
    await read(connection)  # each list has its own time limit
    assert virtual_time.now == began + 120 + 5 * 50


async def test_a_list_that_is_not_an_array_is_a_server_error() -> None:
    connection = ListingConnection(ALL)
    connection.malformed = True
    with pytest.raises(RemoteProtocolError):
        await read(connection)
