"""The number of list requests that each server receives at start-up."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fairlead.manager import MCPManager
from tests.support.gateway_servers import until
from tests.support.observed_servers import LIMIT, LIST_METHODS, ServerLog
from tests.support.observed_stdio_server import TOOLS
from tests.support.upstream_gateways import connect, gateway_for

ONCE = dict.fromkeys(LIST_METHODS, 1)
HEALTHY = ("one", "two", "three", "four")
eras = pytest.mark.parametrize("eras", [["handshake"], ["stateless"]], ids=lambda eras: eras[0])


@eras
async def test_each_server_receives_each_list_request_once_at_start_up(
    tmp_path: Path, eras: list[str]
) -> None:
    log = ServerLog(tmp_path)
    servers = {name: log.entry(name, eras=eras) for name in HEALTHY}
    async with asyncio.timeout(LIMIT), gateway_for(servers):
        await log.quiet()
        assert {name: log.counts(name) for name in HEALTHY} == dict.fromkeys(HEALTHY, ONCE)
        assert len(log.started()) == len(HEALTHY)


async def test_a_server_with_both_eras_receives_each_list_request_once(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with asyncio.timeout(LIMIT), gateway_for({"notes": log.two_eras("notes")}):
        await log.quiet()
        assert log.counts("notes") == ONCE


@eras
async def test_a_hanging_or_crashing_server_causes_no_second_request_to_other_servers(
    tmp_path: Path, eras: list[str]
) -> None:
    log = ServerLog(tmp_path)
    servers = {
        "hanging": log.entry("hanging", silent=["*"]),
        "crashing": log.entry("crashing", crash=True),
        **{name: log.entry(name, eras=eras) for name in HEALTHY},
    }
    async with (
        asyncio.timeout(LIMIT),
        gateway_for(servers, ready=False, connect_timeout=1.5) as served,
    ):
        await until(lambda: served.server_status("hanging")["status"] == "failed")
        await log.quiet()
        assert {name: log.counts(name) for name in HEALTHY} == dict.fromkeys(HEALTHY, ONCE)
        async with connect(served.url, "one") as client:
            assert await client.pid() == log.started("one")[0]


async def test_adding_a_server_causes_no_list_request_to_other_servers(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({name: log.entry(name) for name in HEALTHY}) as served,
    ):
        await served.gateway.connect({"late": log.entry("late")})
        await until(lambda: served.gateway.is_ready)
        await log.quiet()
        assert {name: log.counts(name) for name in (*HEALTHY, "late")} == dict.fromkeys(
            (*HEALTHY, "late"), ONCE
        )


async def test_clients_without_capabilities_cause_no_further_list_requests(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    servers = {name: log.entry(name) for name in HEALTHY}
    async with asyncio.timeout(LIMIT), gateway_for(servers) as served:
        for endpoint in ("merged", "single", "merged"):
            async with connect(served.url, "one", endpoint=endpoint) as client:
                if endpoint == "merged":
                    await client.list_everything()
        await log.quiet()
        assert {name: log.counts(name) for name in HEALTHY} == dict.fromkeys(HEALTHY, ONCE)


async def test_a_changed_list_is_requested_once(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    servers = {name: log.entry(name) for name in ("one", "two")}
    async with (
        asyncio.timeout(LIMIT),
        gateway_for(servers) as served,
        connect(served.url, "one") as client,
    ):
        await client.call("grow", tool="more")
        await until(lambda: log.counts("one")["tools/list"] == 2)
        await log.quiet()
        assert log.counts("one") == {**ONCE, "tools/list": 2}
        assert log.counts("two") == ONCE


@eras
async def test_a_gateway_with_a_manager_requests_each_list_once(
    tmp_path: Path, eras: list[str]
) -> None:
    log = ServerLog(tmp_path)
    servers = {name: log.entry(name, eras=eras) for name in HEALTHY}
    async with (
        asyncio.timeout(LIMIT),
        MCPManager(tmp_path, on_roots=None) as manager,
        gateway_for(servers, manager=manager),
    ):
        await log.quiet()
        assert {name: log.counts(name) for name in HEALTHY} == dict.fromkeys(HEALTHY, ONCE)
        assert len(log.started()) == len(HEALTHY)
        assert len(manager.get_tools()) == len(HEALTHY) * len(TOOLS)


@eras
async def test_a_manager_without_a_gateway_requests_only_the_tools_and_only_once(
    tmp_path: Path, eras: list[str]
) -> None:
    log = ServerLog(tmp_path)
    servers = {name: log.entry(name, eras=eras) for name in HEALTHY}
    async with asyncio.timeout(LIMIT), MCPManager(tmp_path) as manager:
        report = await manager.connect_servers(servers)
        assert not report.errors
        await log.quiet()
        expected = {**dict.fromkeys(LIST_METHODS, 0), "tools/list": 1}
        assert {name: log.counts(name) for name in HEALTHY} == dict.fromkeys(HEALTHY, expected)


async def test_a_gateway_uses_the_process_of_its_manager_which_declares_its_callbacks(
    tmp_path: Path,
) -> None:
    log = ServerLog(tmp_path)

    def of_manager(question: Any) -> Any:
        return {"action": "accept", "content": {"value": "manager"}}

    async with (
        asyncio.timeout(LIMIT),
        MCPManager(tmp_path, on_roots=None, on_elicit=of_manager) as manager,
        gateway_for({"notes": log.entry("notes")}, manager=manager) as served,
    ):
        [first] = log.started()
        [opening] = log.received("initialize")
        assert set(opening.params["capabilities"]) == {"elicitation"}
        [ask] = [tool for tool in manager.get_tools() if tool.name.endswith("ask")]
        assert '"manager"' in str(await ask.execute({}))
        async with connect(served.url, "notes", "elicitation") as client:
            assert '"yes"' in await client.call("ask")
        async with connect(served.url, "notes") as client:
            assert '"manager"' not in await client.call("ask")
        assert log.running()[0] == first
