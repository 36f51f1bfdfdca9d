"""The era of upstream connections, which follows the client unless a setting overrides it."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_user import Person, person
from tests.support.gateway_servers import until
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.running_gateway import running
from tests.support.upstream_gateways import (
    ENDPOINTS,
    ERAS,
    HANDSHAKE,
    STATELESS,
    connect,
    gateway_for,
    raw_session,
    running_file,
    write_file,
)

__all__ = ["person"]

ASKED = ("elicitation", "sampling", "roots")
both_endpoints = pytest.mark.parametrize("endpoint", ENDPOINTS)
both_eras = pytest.mark.parametrize("era", ERAS)


def proposed(log: ServerLog, pid: int) -> list[Any]:
    """Return the revision and capabilities of each `initialize` that a process received."""
    return [
        (one.params["protocolVersion"], set(one.params["capabilities"]))
        for one in log.received("initialize", pid=pid)
    ]


@both_endpoints
@both_eras
async def test_requests_of_a_server_with_both_eras_reach_the_client(
    tmp_path: Path, endpoint: str, era: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.two_eras("notes")}) as served,
        connect(served.url, "notes", *ASKED, endpoint=endpoint, version=ERAS[era]) as client,
    ):
        assert await client.call("ask") == "accept yes"
        assert await client.call("sample") == "sampled"
        assert await client.call("folders") == "file:///work"


@both_endpoints
async def test_log_messages_of_a_server_with_both_eras_reach_a_handshake_client(
    tmp_path: Path, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.two_eras("notes")}) as served,
        connect(served.url, "notes", "elicitation", endpoint=endpoint) as client,
    ):
        await client.mcp.set_log_level("debug")
        pid = int(await client.call("speak", text="one"))
        await until(lambda: client.logged == ["one"])
        assert log.is_handshake(pid)


@both_endpoints
@pytest.mark.parametrize("declares", [(), ("elicitation",), ASKED], ids=["none", "one", "all"])
async def test_a_server_with_both_eras_receives_the_handshake_of_a_handshake_client(
    tmp_path: Path, endpoint: str, declares: tuple[str, ...]
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.two_eras("notes")}) as served,
        connect(served.url, "notes", *declares, endpoint=endpoint) as client,
    ):
        assert await client.call("revision") == HANDSHAKE
        pid = await client.pid()
        assert proposed(log, pid) == [(HANDSHAKE, set(declares))]
        assert not log.received("server/discover", pid=pid)


@both_endpoints
async def test_a_server_with_both_eras_receives_stateless_requests_of_a_stateless_client(
    tmp_path: Path, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.two_eras("notes")}) as served,
        connect(served.url, "notes", "elicitation", endpoint=endpoint, version=STATELESS) as client,
    ):
        assert await client.call("revision") == STATELESS
        assert not log.is_handshake(await client.pid())


@both_endpoints
async def test_clients_of_both_eras_use_a_server_with_both_eras_at_the_same_time(
    tmp_path: Path, endpoint: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.two_eras("notes")}) as served,
        connect(served.url, "notes", "elicitation", endpoint=endpoint) as old,
        connect(served.url, "notes", "elicitation", endpoint=endpoint, version=STATELESS) as new,
    ):
        answers = await asyncio.gather(*(one.call("ask") for one in (old, new) * 3))
        assert answers == ["accept yes"] * 6
        assert await old.call("revision") == HANDSHAKE
        assert await new.call("revision") == STATELESS


@both_eras
async def test_a_server_of_one_era_serves_clients_of_the_other(tmp_path: Path, era: str) -> None:
    log = ServerLog(tmp_path)
    [client_era] = set(ERAS) - {era}
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes", eras=[era])}) as served,
        connect(served.url, "notes", version=ERAS[client_era]) as client,
    ):
        assert log.is_handshake(await client.pid()) == (era == "handshake")


@both_endpoints
@both_eras
@pytest.mark.parametrize("place", ["file", "server"])
async def test_the_era_in_a_configuration_file_overrides_that_of_the_client(
    tmp_path: Path, person: Person, endpoint: str, era: str, place: str
) -> None:
    log = ServerLog(tmp_path)
    setting = {"era": era}
    servers = {
        "notes": {**log.two_eras("notes"), **(setting if place == "server" else {})},
        "plain": log.two_eras("plain"),
    }
    file = write_file(tmp_path, servers, **(setting if place == "file" else {}))
    [other_era] = set(ERAS) - {era}
    with running_file(person, file) as gateway:
        gateway.wait_for("plain: connected")
        async with asyncio.timeout(LIMIT):
            for version in ERAS.values():
                async with connect(
                    gateway.url, "notes", "elicitation", endpoint=endpoint, version=version
                ) as client:
                    assert log.is_handshake(await client.pid()) == (era == "handshake")
            async with connect(
                gateway.url, "plain", endpoint=endpoint, version=ERAS[other_era]
            ) as client:
                follows_client = log.is_handshake(await client.pid()) != (era == "handshake")
                assert follows_client == (place == "server")


async def test_the_error_for_an_unknown_era_in_a_file_names_the_valid_values(
    tmp_path: Path, person: Person
) -> None:
    log = ServerLog(tmp_path)
    servers = {"notes": {**log.entry("notes"), "era": "modern"}}
    with running_file(person, write_file(tmp_path, servers)) as gateway:
        line = gateway.wait_for("era")
        assert all(choice in line for choice in ('"auto"', '"handshake"', '"stateless"'))
        assert gateway.process.wait(LIMIT) == 2


@pytest.mark.parametrize("place", ["single", "proxy"])
@pytest.mark.parametrize("version", [HANDSHAKE, "2025-06-18", "2025-03-26"])
async def test_the_handshake_of_a_client_is_forwarded_unchanged_to_a_single_server(
    tmp_path: Path, person: Person, place: str, version: str
) -> None:
    log = ServerLog(tmp_path)
    capabilities = {"elicitation": {}, "experimental": {"x": {"y": 1}}}
    entry = log.two_eras("notes")
    async with asyncio.timeout(LIMIT), AsyncExitStack() as stack:
        if place == "proxy":
            words = ("proxy", "--listen", "0", "--", entry["command"], *entry["args"])
            proxy = stack.enter_context(running(person, *words))
            line = proxy.wait_for("http://127.0.0.1")
            url = next(word for word in line.split() if word.startswith("http://"))
        else:
            url = (await stack.enter_async_context(gateway_for({"notes": entry}))).url + "/notes"
        session = await stack.enter_async_context(
            raw_session(url, None, capabilities, version=version)
        )
        pid = await session.pid()
        [opening] = log.received("initialize", pid=pid)
        assert opening.params == {
            "protocolVersion": version,
            "capabilities": capabilities,
            "clientInfo": {"name": "raw", "version": "1"},
        }
