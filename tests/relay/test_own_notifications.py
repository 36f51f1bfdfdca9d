"""Recording of notifications that a gateway or relay creates."""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fairlead import MCPClient
from fairlead.gateway import Gateway
from fairlead.gateway.catalog.views import View
from fairlead.manager import MCPManager
from fairlead.protocol.envelope import Direction
from fairlead.recording.journal import Journal
from fairlead.recording.journal.journal_interceptor import Journaling
from fairlead.recording.tape import TapeEntry, TapeReader, TapeWriter, decode_entry
from fairlead.recording.tape.tape_interceptor import Recorder
from tests.support.gateway_servers import (
    BOTH,
    HANDSHAKE,
    LIMIT,
    Ears,
    config,
    joining,
    make,
    serving,
    until,
)
from tests.support.raw_relay import scene

TOOLS = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
KEY = "io.modelcontextprotocol/subscriptionId"


def news(tape: Path) -> list[tuple[TapeEntry, dict[str, Any]]]:
    """Return the recorded change notifications that were forwarded."""
    told = [(entry, decode_entry(entry)) for entry in TapeReader(tape) if not entry.stopped]
    assert all(e.dir is Direction.SERVER_TO_CLIENT for e, m in told if m.get("method") == TOOLS)
    return [(e, m) for e, m in told if m.get("method") in (TOOLS, UPDATED)]


def listen_id(tape: Path, session: str | None) -> Any:
    """Return the request id of the last subscription in a session."""
    entries = [decode_entry(e) for e in TapeReader(tape) if e.session == session]
    return [m["id"] for m in entries if m.get("method") == "subscriptions/listen"][-1]


@pytest.mark.covers("GTW-10")
@pytest.mark.parametrize("upstream", BOTH)
@pytest.mark.parametrize("version", BOTH)
async def test_change_notifications_sent_by_a_gateway_are_recorded(
    tmp_path: Path, version: str, upstream: str
) -> None:
    ears, place = Ears(), tmp_path / "one"
    recorder, journal = Recorder(TapeWriter(place)), Journal()
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        serving(make("blue")) as blue,
        MCPManager(config=config(upstream), on_roots=None) as manager,
        Gateway(manager, interceptors=[Journaling(journal), recorder]) as gateway,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with (
            joining(gateway, version, on_notification=ears) as client,
            contextlib.AsyncExitStack() as stack,
        ):
            await client.list_tools()
            if version != HANDSHAKE:
                await stack.enter_async_context(client.changes("tools"))
            await client.call("red_grow", {"tool": "more"})
            await ears.hear(TOOLS)
            await gateway.connect({"blue": {"url": blue}})
            await ears.hear(TOOLS)
            await gateway.disconnect("blue")
            await ears.hear(TOOLS)
            await client.subscribe("red://fixed")
            await client.call("red_touch", {"uri": "red://fixed"})
            await ears.hear(UPDATED, uri="red://fixed")
        heard = Counter({TOOLS: 3, UPDATED: 1})
    recorder.tape.close()
    told = news(place)
    assert Counter(message["method"] for _, message in told) == heard
    assert [e.server for e, _ in told] == [None] * 4, "created by the gateway, not by a server"
    assert {e.session for e, _ in told} == {"s1"}
    if version != HANDSHAKE:
        last = listen_id(place, "s1")
        assert told[-1][1]["params"] == {"uri": "red://fixed", "_meta": {KEY: last}}
        assert told[-1][0].related == last
    else:
        assert [m.get("params") for _, m in told] == [None] * 3 + [{"uri": "red://fixed"}]
    seen = [r for r in journal.records() if r.method == TOOLS and r.session == "s1"]
    assert len(seen) == 3
    assert not recorder._under_way
    assert not recorder._alone


@pytest.mark.parametrize("version", BOTH)
async def test_a_notification_is_recorded_once_for_each_receiving_client(
    tmp_path: Path, version: str
) -> None:
    place, everybody = tmp_path / "one", [Ears(), Ears()]
    recorder = Recorder(TapeWriter(place))
    server = make("red")
    async with (
        asyncio.timeout(LIMIT),
        serving(server) as red,
        Gateway(interceptors=[recorder]) as gateway,
        serving(gateway) as url,
        contextlib.AsyncExitStack() as stack,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        for ears in everybody:
            joined = MCPClient.connect_http(url, config(version), on_notification=ears)
            client = await stack.enter_async_context(joined)
            await client.subscribe("red://fixed")
        server.resource_updated("red://fixed")
        for ears in everybody:
            await ears.hear(UPDATED, uri="red://fixed")
    recorder.tape.close()
    told = news(place)
    assert len(told) == len({e.session for e, _ in told}) == 2
    assert None not in {e.session for e, _ in told}


@pytest.mark.parametrize("version", BOTH)
async def test_change_notifications_at_the_endpoint_of_a_server_are_recorded_once(
    tmp_path: Path, version: str
) -> None:
    place, ears = tmp_path / "one", Ears()
    recorder = Recorder(TapeWriter(place))
    async with (
        asyncio.timeout(LIMIT),
        serving(make("red")) as red,
        MCPManager(config=config(HANDSHAKE), on_roots=None) as manager,
        Gateway(manager, interceptors=[recorder]) as gateway,
        serving(gateway) as url,
    ):
        await gateway.connect({"red": {"url": red}})
        await until(lambda: gateway.is_ready)
        async with MCPClient.connect_http(
            f"{url}/red", config(version), on_notification=ears
        ) as client:
            await client.subscribe("red://fixed")
            await client.call("touch", {"uri": "red://fixed"})
            await ears.hear(UPDATED, uri="red://fixed")
            if version == HANDSHAKE:
                gateway.show({}, View(deny=("red_secret",)))
                await ears.hear(TOOLS)
    recorder.tape.close()
    told = news(place)
    assert [m["method"] for _, m in told] == [UPDATED] + [TOOLS] * (version == HANDSHAKE)
    assert len({e.session for e, _ in told}) == 1
    assert told[0][0].session is not None


async def test_notifications_that_a_relay_sends_to_clients_of_the_other_era_are_recorded(
    tmp_path: Path,
) -> None:
    """The relay manages the subscriptions, because the server does not support listen requests."""
    place = tmp_path / "one"
    recorder = Recorder(TapeWriter(place))
    async with scene(interceptors=[recorder]) as between:
        client = await between.client()
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["x://y"]}
        listen = client.stateless("subscriptions/listen", {"notifications": wanted})
        acknowledged = await client.method("notifications/subscriptions/acknowledged")
        server = await between.server()
        server.tell(UPDATED, {"uri": "x://y"})
        server.tell(TOOLS)
        heard = [await client.read(), await client.read()]
    recorder.tape.close()
    entries = list(TapeReader(place))
    told = [e for e in entries if e.dir is Direction.SERVER_TO_CLIENT and not e.stopped]
    assert [decode_entry(e) for e in told] == [acknowledged, *heard]
    assert [e.related for e in told] == [listen] * 3
    assert [decode_entry(e)["method"] for e in entries if e.stopped] == [UPDATED, TOOLS]
    assert not recorder._under_way
