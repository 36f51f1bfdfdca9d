"""Settings that are edited while a gateway runs apply to new connections and restart nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli_user import Person, person
from tests.support.gateway_servers import until
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.running_gateway import Running, running
from tests.support.upstream_gateways import connect, running_file, write_file

__all__ = ["person"]


class Edited:
    """A running gateway and its file."""

    def __init__(self, gateway: Running, log: ServerLog) -> None:
        self.gateway, self.log = gateway, log
        self.url = gateway.url

    async def edit(self, entry: dict[str, Any] | None = None, **settings: Any) -> None:
        """Change the file, and wait until the gateway has read it and added a new server."""
        marker = f"marker{len(self.log.started())}"
        servers = {
            "notes": {**self.log.entry("notes"), **(entry or {})},
            marker: self.log.entry(marker),
        }
        write_file(self.log.folder, servers, **settings)
        await asyncio.to_thread(self.gateway.wait_for, f"{marker}: connected")


@asynccontextmanager
async def edited_file(person: Person, log: ServerLog, **settings: Any) -> AsyncIterator[Edited]:
    file = write_file(log.folder, {"notes": log.entry("notes")}, **settings)
    with running_file(person, file) as gateway:
        gateway.wait_for("notes: connected")
        async with asyncio.timeout(LIMIT):
            yield Edited(gateway, log)


@pytest.mark.parametrize(
    "settings",
    [
        {"share": "session"},
        {"share": "all"},
        {"idle_close": 5, "idle_close_used": 50},
        {"max_connections": 7},
        {"log_level": "warning"},
    ],
    ids=lambda settings: "-".join(f"{k}={v}" for k, v in settings.items()),
)
@pytest.mark.parametrize("place", ["file", "server"])
async def test_editing_a_setting_restarts_no_process(
    tmp_path: Path, person: Person, settings: dict[str, Any], place: str
) -> None:
    log = ServerLog(tmp_path)
    async with edited_file(person, log) as running:
        async with (
            connect(running.url, "notes") as plain,
            connect(running.url, "notes", "elicitation") as other,
        ):
            before = [await plain.pid(), await other.pid()]
            if place == "file":
                await running.edit(**settings)
            else:
                await running.edit(entry=settings)
            assert [await plain.pid(), await other.pid()] == before
            await until(lambda: log.running("notes") == before)
        assert "notes: disconnected" not in running.gateway.said


async def test_an_edited_share_setting_applies_to_sessions_opened_later(
    tmp_path: Path, person: Person
) -> None:
    log = ServerLog(tmp_path)
    async with edited_file(person, log, share="alike") as running:
        async with (
            connect(running.url, "notes", "elicitation") as one,
            connect(running.url, "notes", "elicitation") as two,
        ):
            shared = await one.pid()
            assert await two.pid() == shared
            await running.edit(share="session")
            async with (
                connect(running.url, "notes", "elicitation") as three,
                connect(running.url, "notes", "elicitation") as four,
            ):
                assert len({shared, await three.pid(), await four.pid()}) == 3
            assert await one.pid() == await two.pid() == shared


@pytest.mark.slow
async def test_repeated_changes_of_the_share_setting_leave_no_extra_process(
    tmp_path: Path, person: Person
) -> None:
    log = ServerLog(tmp_path)
    async with edited_file(person, log) as running:
        async with connect(running.url, "notes", "elicitation") as client:
            pid = await client.pid()
            for share in ("session", "all", "alike"):
                await running.edit(share=share)
                assert await client.pid() == pid
            await until(lambda: len(log.running("notes")) == 2)


async def test_an_invalid_share_does_not_affect_the_running_gateway(
    tmp_path: Path, person: Person
) -> None:
    log = ServerLog(tmp_path)
    async with edited_file(person, log) as running:
        async with connect(running.url, "notes", "elicitation") as client:
            pid = await client.pid()
            write_file(tmp_path, {"notes": log.entry("notes")}, share="everyone")
            line = await asyncio.to_thread(running.gateway.wait_for, "share")
            assert '"alike"' in line
            assert await client.pid() == pid


# fairlead up


def up_entry(entry: dict[str, Any], idle_close: float) -> dict[str, Any]:
    """Return an entry of a host's file with the settings that a gateway's file would have."""
    return {**entry, "idle_close": idle_close, "idle_close_used": idle_close}


async def test_up_stops_a_stdio_server_that_is_not_called_and_keeps_its_lists(
    tmp_path: Path, person: Person
) -> None:
    log = ServerLog(tmp_path)
    person.has("ours/mcp.json", {"notes": up_entry(log.entry("notes"), 1)})
    with running(person, "up", "--port", "0") as up:
        url = up.url
        async with asyncio.timeout(LIMIT), connect(url, "notes") as client:
            first = await client.pid()
            listed = await client.tools()
            await until(lambda: not log.running())
            assert await client.tools() == listed
            await client.list_everything()
            await log.quiet()
            assert not log.running()
            assert await client.pid() != first
        assert up.ends() == 0
