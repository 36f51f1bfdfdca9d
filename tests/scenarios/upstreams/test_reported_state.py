"""The state of a server as reported by status, health, metrics and the admin API."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fairlead.errors import FairleadError
from fairlead.gateway.operations.observability import Observability
from fairlead.observe.metrics import Metrics
from tests.support.adjustable_clock import AdjustableClock, virtual_time
from tests.support.cli_user import Person, person
from tests.support.gateway_servers import until
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.upstream_gateways import HANDSHAKE, Client, connect, gateway_for

__all__ = ["person", "virtual_time"]


async def read(web: aiohttp.ClientSession, url: str, path: str) -> Any:
    async with web.get(url.removesuffix("/mcp") + path, headers={"X-Admin-Token": "x"}) as answer:
        text = await answer.text()
    return json.loads(text) if answer.content_type == "application/json" else text


def metrics_options() -> dict[str, Any]:
    return {"observing": Observability(metrics=Metrics()), "admin_token": "x"}


async def crash(client: Client) -> None:
    with pytest.raises(FairleadError):
        await client.call("die")


async def test_a_server_with_only_a_connection_of_a_client_is_reported_as_connected(
    tmp_path: Path, virtual_time: AdjustableClock
) -> None:
    """The default connection is closed when it is idle and a client has its own connection."""
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(4000),
        gateway_for({"notes": log.entry("notes")}, options=metrics_options()) as served,
        connect(served.url, "notes", "elicitation") as client,
        aiohttp.ClientSession() as web,
    ):
        pid = await client.pid()
        await virtual_time.advance(310)
        await until(lambda: log.running() == [pid])
        [row] = (await read(web, served.url, "/status"))["servers"]
        assert (row["status"], row["revision"], row["era"]) == ("connected", HANDSHAKE, "handshake")
        assert (await read(web, served.url, "/health"))["connected"] == 1
        assert "fairlead_servers_connected 1\n" in await read(web, served.url, "/metrics")
        assert (await read(web, served.url, "/ready"))["degraded"] == []


async def test_the_admin_api_describes_connections_and_suspended_keys(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, options=metrics_options()) as served,
        connect(served.url, "notes") as plain,
        connect(served.url, "notes", "roots") as alone,
        connect(served.url, "notes", "elicitation") as crashing,
        aiohttp.ClientSession() as web,
    ):
        await plain.pid()
        await alone.call("folders")
        for _ in range(6):
            await crash(crashing)
        await crash(crashing)
        [row] = await read(web, served.url, "/admin/servers")
        facts = ("default", "capabilities", "exclusive", "sessions")
        assert [[one[fact] for fact in facts] for one in row["connections"]] == [
            [True, {}, False, 1],
            [False, {"roots": {}}, True, 1],
        ]
        [key] = row["suspended"]
        assert 0 < key.pop("seconds") <= 30
        assert key == {
            "revision": HANDSHAKE,
            "capabilities": {"elicitation": {"form": {}}},
            "principal": None,
            "in_session": True,
            "exclusive": False,
            "default": False,
            "losses": 6,
        }
        [public] = (await read(web, served.url, "/status"))["servers"]
        assert (public["status"], public["connections"]) == ("connected", [])
        assert public["suspended"] == [
            {"default": False, "losses": 6, "seconds": public["suspended"][0]["seconds"]}
        ]
        assert "suspended for some clients" in await read(web, served.url, "/")
        metrics = await read(web, served.url, "/metrics")
        assert 'fairlead_server_connections{server="notes"} 2\n' in metrics
        assert 'fairlead_server_suspended{server="notes"} 1\n' in metrics
        assert "fairlead_shortage 0\n" in metrics


async def test_a_suspended_default_connection_is_reported_while_other_connections_work(
    tmp_path: Path, person: Person
) -> None:
    log = ServerLog(tmp_path)
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": log.entry("notes")}, options=metrics_options()) as served,
        connect(served.url, "notes", "elicitation") as working,
        connect(served.url, "notes") as crashing,
        aiohttp.ClientSession() as web,
    ):
        pid = await working.pid()
        for _ in range(7):
            await crash(crashing)
        row = served.server_status("notes")
        assert (row["status"], row["error"]) == ("connected", None)
        assert row["remedy"] == "fairlead mcp reconnect notes"
        [key] = row["suspended"]
        assert (key["default"], key["capabilities"], key["losses"]) == (True, {}, 6)
        assert key["seconds"] is None
        [public] = (await read(web, served.url, "/status"))["servers"]
        assert public["suspended"] == [{"default": True, "losses": 6, "seconds": None}]
        assert "suspended for some clients" in await read(web, served.url, "/")
        base = served.url.removesuffix("/mcp")
        told = await asyncio.to_thread(person.runs, "status", "--url", base)
        assert told.code == 1
        assert "warning: notes: suspended for some clients\n" in told.err
        assert "hint: to connect notes: fairlead mcp reconnect notes" in told.err
        assert await working.pid() == pid
        await served.gateway.upstreams["notes"].reconnect()
        assert served.server_status("notes")["suspended"] == []
        await crashing.pid()
        assert await working.pid() == pid


async def test_only_connections_after_a_loss_count_as_reconnections(tmp_path: Path) -> None:
    log = ServerLog(tmp_path)
    entry = {**log.entry("notes"), "lazy": True}
    times = {"idle_close": 0.2, "idle_close_used": 0.2}
    async with (
        asyncio.timeout(LIMIT),
        gateway_for({"notes": entry}, options=metrics_options(), **times) as served,
        connect(served.url, "notes") as client,
        aiohttp.ClientSession() as web,
    ):
        for number in range(3):
            await until(lambda: not log.running())
            await client.pid()  # starts the idle server
            assert len(log.started()) == number + 2
        await served.gateway.upstreams["notes"].reconnect()
        text = await read(web, served.url, "/metrics")
        assert 'fairlead_reconnects_total{server="notes"} 0\n' in text
        await crash(client)
        await client.pid()
        text = await read(web, served.url, "/metrics")
        assert 'fairlead_reconnects_total{server="notes"} 1\n' in text
