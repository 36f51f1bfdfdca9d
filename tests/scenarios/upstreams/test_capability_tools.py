"""Tools that a server lists only for clients with certain capabilities."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateway_servers import until
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.upstream_gateways import (
    ENDPOINTS,
    HANDSHAKE,
    STATELESS,
    Client,
    connect,
    eventually,
    gateway_for,
)

VARYING = {"elicitation": "with_elicitation", "sampling": "with_sampling"}
both_endpoints = pytest.mark.parametrize("endpoint", ENDPOINTS)
capabilities = pytest.mark.parametrize("capability", VARYING)


def varying(client: Client) -> Any:
    """Return a function that lists a client's capability-dependent tools."""

    async def read() -> set[str]:
        return set(await client.tools()) & set(VARYING.values())

    return read


@both_endpoints
@capabilities
@pytest.mark.parametrize("eras", [["handshake"], ["stateless"]], ids=lambda eras: eras[0])
@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_a_tool_for_a_client_capability_is_listed_and_can_be_called(
    tmp_path: Path, endpoint: str, capability: str, eras: list[str], version: str
) -> None:
    log = ServerLog(tmp_path)
    entry = log.entry("notes", varying=VARYING, eras=eras)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}) as served,
        connect(served.url, "notes", capability, endpoint=endpoint, version=version) as client,
    ):
        tool = VARYING[capability]
        await eventually(varying(client), lambda tools: tools == {tool})
        assert (await client.call(tool)).startswith(f"{tool} of notes")


@both_endpoints
async def test_a_tool_for_a_client_capability_is_not_listed_for_other_clients(
    tmp_path: Path, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    entry = log.entry("notes", varying=VARYING)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}) as served,
        connect(served.url, "notes", endpoint=endpoint) as plain,
        connect(served.url, "notes", "roots", endpoint=endpoint) as roots,
        connect(served.url, "notes", "elicitation", endpoint=endpoint) as eliciting,
        connect(served.url, "notes", *VARYING, endpoint=endpoint) as both,
    ):
        await eventually(varying(both), lambda tools: tools == set(VARYING.values()))
        await eventually(varying(eliciting), lambda tools: tools == {"with_elicitation"})
        assert await varying(plain)() == set()
        assert await varying(roots)() == set()
        assert await varying(eliciting)() == {"with_elicitation"}


async def test_a_client_is_notified_once_the_tools_for_its_capabilities_are_listed(
    tmp_path: Path,
) -> None:
    """The first list may be incomplete; a list after the notification is complete."""
    log = ServerLog(tmp_path)
    entry = log.entry("notes", varying=VARYING)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}, options={"deadline": 0.0}) as served,
        connect(served.url, "notes", "elicitation") as client,
    ):
        while "with_elicitation" not in await client.tools():
            await client.ears.hear("notifications/tools/list_changed")


async def test_merged_names_do_not_depend_on_the_client(tmp_path: Path) -> None:
    """For some clients, tool `c` of `a_b` and tool `b_c` of `a` would have the same merged name."""
    log = ServerLog(tmp_path)
    servers = {
        "a_b": log.entry("a_b", tools=[], varying={"elicitation": "c"}),
        "a": log.entry("a", tools=["b_c"]),
    }
    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        served = await stack.enter_async_context(gateway_for(servers))
        clients = [
            await stack.enter_async_context(connect(served.url, "a", *declares))
            for declares in ((), ("elicitation",))
        ]

        async def names_and_targets(client: Client) -> dict[str, str]:
            """Return the tool and the server that each merged name refers to."""
            listed = [tool["name"] for tool in await client.mcp.list_tools(cache=False)]
            answers = [(await client.mcp.call(name)).text for name in listed]
            return {
                name: text.rpartition(" ")[0] for name, text in zip(listed, answers, strict=True)
            }

        plain, eliciting = clients
        full = await eventually(lambda: names_and_targets(eliciting), lambda found: len(found) == 2)
        assert set(full.values()) == {"b_c of a", "c of a_b"}
        own = await names_and_targets(plain)
        assert list(own.values()) == ["b_c of a"]
        assert own.items() <= full.items()


async def test_lists_of_servers_are_compared_one_server_at_a_time(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    names = [f"server{n}" for n in range(6)]
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({name: log.entry(name) for name in names}) as served,
    ):
        async with connect(served.url, "server0", "elicitation") as client:
            await client.list_everything()
            await log.quiet()
            await until(lambda: len(log.running()) == len(names))
        assert log.peak() <= len(names) + 1
        started = len(log.started())
        assert started <= 2 * len(names)
        async with connect(served.url, "server0", "elicitation") as client:
            await client.list_everything()
            await log.quiet()
        assert len(log.started()) == started


async def test_lists_of_every_server_are_compared_for_a_client_that_makes_no_calls(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)
    names = [f"server{n}" for n in range(4)]
    servers = {name: log.entry(name, varying=VARYING) for name in names}
    async with (
        asyncio.timeout(LIMIT),
        gateway_for(servers) as served,
        connect(served.url, "server0", "elicitation") as client,
    ):

        async def listed() -> set[str]:
            return {tool["name"] for tool in await client.mcp.list_tools(cache=False)}

        await eventually(listed, lambda tools: tools >= {f"{x}_with_elicitation" for x in names})


@pytest.mark.parametrize("reason", ["lazy", "share", "changing"])
async def test_lists_of_lazy_or_shared_servers_are_not_compared_and_changing_ones_only_once(
    tmp_path: Path, reason: str
) -> None:
    log = ServerLog(tmp_path)
    entry = log.entry("notes", varying=VARYING, changing_lists=reason == "changing")
    settings = {"share": "all"} if reason == "share" else {}
    if reason == "lazy":
        entry["lazy"] = True
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}, **settings) as served,
        connect(served.url, "notes", "elicitation") as client,
    ):
        before = len(log.started())
        await client.list_everything()
        await log.quiet()
        await client.list_everything()
        await log.quiet()
        assert len(log.running()) <= 1
        # Only a comparison detects that lists change.
        assert len(log.started()) - before <= (1 if reason == "changing" else 0)


async def test_a_call_of_a_tool_for_another_capability_is_sent_to_the_clients_process(
    tmp_path: Path,
) -> None:
    """Routing uses the names of all variants; the server decides whether the tool exists."""
    log = ServerLog(tmp_path)
    entry = log.entry("notes", varying=VARYING)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}) as served,
        connect(served.url, "notes") as plain,
        connect(served.url, "notes", "elicitation") as eliciting,
    ):
        await eventually(varying(eliciting), lambda tools: tools == {"with_elicitation"})
        own = await plain.pid()
        assert await plain.call("with_elicitation") == f"with_elicitation of notes {own}"
