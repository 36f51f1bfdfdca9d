"""Settings that are edited while a gateway runs, which apply to new connections."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlead.errors import RpcError
from tests.support.cli_user import Person, person
from tests.support.gateway_servers import until
from tests.support.observed_servers import LIMIT, ServerLog
from tests.support.running_gateway import Running, running
from tests.support.upstream_gateways import (
    HANDSHAKE,
    STATELESS,
    connect,
    raw_session,
    running_file,
    write_file,
)

__all__ = ["person"]


class Edited:
    """A running gateway and its configuration file."""

    def __init__(self, gateway: Running, log: ServerLog, notes: dict[str, Any]) -> None:
        self.gateway, self.log, self._notes = gateway, log, notes
        self.url = gateway.url

    async def edit(self, entry: dict[str, Any] | None = None, **settings: Any) -> None:
        """Change the file, and wait until the gateway has read it and added a new server."""
        marker = f"marker{len(self.log.started())}"
        servers = {
            "notes": {**self._notes, **(entry or {})},
            marker: self.log.entry(marker, eras=["handshake", "stateless"]),
        }
        write_file(self.log.folder, servers, **settings)
        await asyncio.to_thread(self.gateway.wait_for, f"{marker}: connected")

    async def edit_in(self, place: str, **settings: Any) -> None:
        """Change settings for the whole file or for the server, and wait as in `edit`."""
        if place == "file":
            await self.edit(**settings)
        else:
            await self.edit(entry=settings)

    async def restart_server(self) -> int:
        """Kill the process of the default connection; return the id of the next process."""
        before = self.log.started("notes")
        os.kill(before[0], signal.SIGKILL)
        await until(lambda: len(self.log.started("notes")) > len(before))
        return self.log.started("notes")[-1]


@asynccontextmanager
async def edited_file(
    person: Person, log: ServerLog, notes: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Edited]:
    """Run a gateway whose file has one server, by default an observed server."""
    entry = log.entry("notes") if notes is None else notes
    file = write_file(log.folder, {"notes": entry}, **settings)
    with running_file(person, file) as gateway:
        gateway.wait_for("notes: connected")
        async with asyncio.timeout(LIMIT):
            yield Edited(gateway, log, entry)


@pytest.mark.parametrize(
    "settings",
    [
        {"share": "session"},
        {"share": "all"},
        {"idle_close": 5, "idle_close_used": 50},
        {"max_connections": 7},
        {"log_level": "warning"},
        {"era": "handshake"},
        {"call_timeout": 7, "input_timeout": 7, "park_timeout": 7, "collect": 0.1},
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
            await running.edit_in(place, **settings)
            assert [await plain.pid(), await other.pid()] == before
            await until(lambda: log.running("notes") == before)
        assert "notes: disconnected" not in running.gateway.said


async def test_a_changed_share_setting_applies_to_sessions_opened_later(
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


@pytest.mark.parametrize("place", ["file", "server"])
async def test_a_changed_limit_of_connections_applies_to_the_next_connection(
    tmp_path: Path, person: Person, place: str
) -> None:
    log = ServerLog(tmp_path)
    async with edited_file(person, log) as running:
        async with (
            connect(running.url, "notes", "elicitation") as one,
            connect(running.url, "notes", "sampling") as other,
        ):
            pid = await one.pid()
            await running.edit_in(place, max_connections=2)
            with pytest.raises(RpcError, match="'notes' is busy: 2 connections") as refused:
                await other.pid()
            assert refused.value.data["retryAfter"] > 0
            await running.edit_in(place, max_connections=3)
            assert await other.pid() != pid
            assert await one.pid() == pid


async def test_a_former_name_in_an_edited_file_is_accepted_with_a_warning(
    tmp_path: Path, person: Person
) -> None:
    log = ServerLog(tmp_path)
    async with edited_file(person, log) as running:
        await running.edit(upstream="per-session")
        line = await asyncio.to_thread(running.gateway.wait_for, "`upstream` is deprecated")
        assert 'use `share = "session"`' in line
        async with (
            connect(running.url, "notes", "elicitation") as one,
            connect(running.url, "notes", "elicitation") as other,
        ):
            assert await one.pid() != await other.pid()


async def test_an_invalid_share_setting_does_not_affect_the_running_gateway(
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


# Settings of calls, which apply to the next call


async def never(question: Any) -> Any:
    await asyncio.Event().wait()


@pytest.mark.parametrize("place", ["file", "server"])
@pytest.mark.parametrize(
    ("eras", "version", "declares"),
    [
        (["handshake"], HANDSHAKE, ()),
        (["handshake"], HANDSHAKE, ("elicitation",)),
        (["handshake"], STATELESS, ()),
        (["handshake"], STATELESS, ("elicitation",)),
        (["stateless"], HANDSHAKE, ()),
        (["stateless"], STATELESS, ()),
    ],
    ids=["plain", "asking", "bridged", "bridged-asking", "bridged-back", "stateless"],
)
async def test_a_changed_call_timeout_applies_to_the_next_call(
    tmp_path: Path,
    person: Person,
    place: str,
    eras: list[str],
    version: str,
    declares: tuple[str, ...],
) -> None:
    log = ServerLog(tmp_path)
    async with (
        edited_file(person, log, log.entry("notes", eras=eras)) as running,
        connect(running.url, "notes", *declares, version=version) as client,
    ):
        await client.pid()
        await running.edit_in(place, call_timeout=0.2)
        with pytest.raises(RpcError, match=r"0\.2 s"):
            await client.call("hold", until=str(tmp_path / "never"))


@pytest.mark.parametrize("place", ["file", "server"])
@pytest.mark.parametrize("kind", ["handshake", "stateless"])
async def test_a_changed_input_timeout_applies_to_the_next_question(
    tmp_path: Path, person: Person, place: str, kind: str
) -> None:
    log = ServerLog(tmp_path)
    entry = log.entry("notes") if kind == "handshake" else log.two_eras("notes")
    era = "auto" if kind == "handshake" else "stateless"
    async with (
        edited_file(person, log, entry, era=era) as running,
        connect(running.url, "notes", "elicitation", on_elicit=never) as client,
    ):
        await client.pid()
        if place == "file":
            await running.edit(era=era, input_timeout=0.2)
        else:
            await running.edit(entry={"input_timeout": 0.2}, era=era)
        try:
            text = await client.call("ask")
        except RpcError as exc:
            text = str(exc)
        assert "elicitation/create was not answered" in text


@pytest.mark.parametrize("place", ["file", "server"])
async def test_a_changed_turn_wait_applies_to_the_next_call(
    tmp_path: Path, person: Person, place: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        edited_file(person, log, turn_wait=60) as running,
        connect(running.url, "notes", "elicitation") as one,
        connect(running.url, "notes", "elicitation") as two,
    ):
        pid = await one.pid()
        assert await two.pid() == pid
        await running.edit_in(place, turn_wait=0.05)
        gate = tmp_path / "gate"
        holding = asyncio.create_task(one.call("hold", until=str(gate)))
        await until(lambda: len(log.received("tools/call", pid=pid)) == 3)
        assert await two.pid() != pid
        gate.touch()
        await holding


@pytest.mark.parametrize("place", ["file", "server"])
@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_a_changed_turn_timeout_applies_to_the_next_call(
    tmp_path: Path, person: Person, place: str, version: str
) -> None:
    log = ServerLog(tmp_path)
    fixed = {"max_connections": 2, "turn_wait": 0.05}
    async with (
        edited_file(person, log, **fixed) as running,
        connect(running.url, "notes", "elicitation", version=version) as one,
        connect(running.url, "notes", "elicitation", version=version) as two,
    ):
        pid = await one.pid()
        await running.edit(
            **fixed,
            **({"turn_timeout": 0.1} if place == "file" else {}),
            entry={} if place == "file" else {"turn_timeout": 0.1},
        )
        gate = tmp_path / "gate"
        holding = asyncio.create_task(one.call("hold", until=str(gate)))
        await until(lambda: len(log.received("tools/call", pid=pid)) == 2)
        with pytest.raises(RpcError, match="busy"):
            await two.pid()
        gate.touch()
        await holding


@pytest.mark.parametrize("place", ["file", "server"])
async def test_a_changed_park_timeout_applies_to_the_next_parked_call(
    tmp_path: Path, person: Person, place: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        edited_file(person, log) as running,
        connect(running.url, "notes", "elicitation", version=STATELESS, on_elicit=never) as client,
    ):
        await running.edit_in(place, park_timeout=0.2)
        asking = asyncio.create_task(client.call("ask"))
        await until(lambda: "the client did not continue the call" in log.path.read_text())
        asking.cancel()


@pytest.mark.parametrize("place", ["file", "server"])
async def test_a_changed_collect_setting_applies_to_the_next_question(
    tmp_path: Path, person: Person, place: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        edited_file(person, log, collect=3600) as running,
        connect(running.url, "notes", "elicitation", version=STATELESS) as client,
    ):
        await running.edit_in(place, collect=0.01)
        assert "yes" in await client.call("ask")


async def test_a_changed_limit_of_parked_calls_applies_to_the_next_question(
    tmp_path: Path, person: Person
) -> None:
    log = ServerLog(tmp_path)
    asked = asyncio.Event()

    async def note_question(question: Any) -> Any:
        asked.set()
        await never(question)

    async with (
        edited_file(person, log) as running,
        connect(
            *(running.url, "notes", "elicitation"), version=STATELESS, on_elicit=note_question
        ) as one,
        connect(running.url, "notes", "elicitation", version=STATELESS) as two,
    ):
        await running.edit(max_parked=1)
        asking = asyncio.create_task(one.call("ask"))
        await asked.wait()
        assert "too many calls" in await two.call("ask")
        asking.cancel()


@pytest.mark.parametrize("place", ["file", "server"])
@pytest.mark.parametrize("declares", [(), ("elicitation",)], ids=["default", "own"])
async def test_a_changed_hang_timeout_applies_to_the_next_call(
    tmp_path: Path, person: Person, place: str, declares: tuple[str, ...]
) -> None:
    log = ServerLog(tmp_path)
    async with (
        edited_file(person, log, call_timeout=0.2) as running,
        connect(running.url, "notes", *declares) as client,
    ):
        pid = await client.pid()
        if place == "file":
            await running.edit(call_timeout=0.2, hang_timeout=0.2)
        else:
            await running.edit(entry={"hang_timeout": 0.2}, call_timeout=0.2)
        with pytest.raises(RpcError):
            await client.call("pause", seconds=3600)
        await until(lambda: pid not in log.running())


@pytest.mark.parametrize("place", ["file", "server"])
async def test_a_changed_log_level_applies_to_the_next_call(
    tmp_path: Path, person: Person, place: str
) -> None:
    log = ServerLog(tmp_path)
    async with (
        edited_file(person, log, log.two_eras("notes"), era="stateless") as running,
        raw_session(running.url, "notes") as client,  # sets no level
    ):
        await client.pid()
        own = {"log_level": "error"} if place == "server" else {}
        file = {"log_level": "error"} if place == "file" else {}
        await running.edit(entry=own, era="stateless", **file)
        await client.pid()
        levels = [
            call.params["_meta"]["io.modelcontextprotocol/logLevel"]
            for call in log.received("tools/call", server="notes")
        ]
        assert levels == ["info", "error"]


# Settings of connections, which apply to the next connection


@pytest.mark.parametrize("place", ["file", "server"])
@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_changed_era_applies_to_the_next_default_connection(
    tmp_path: Path, person: Person, place: str, era: str
) -> None:
    log = ServerLog(tmp_path)
    before = "stateless" if era == "handshake" else "handshake"
    entry = log.entry("notes", eras=["handshake", "stateless"])
    async with edited_file(
        person,
        log,
        {**entry, "era": before} if place == "server" else entry,
        **({"era": before} if place == "file" else {}),
    ) as running:
        [first] = log.started("notes")
        assert log.is_handshake(first) is (before == "handshake")
        await running.edit_in(place, era=era)
        pid = await running.restart_server()
        await until(lambda: log.received("tools/list", pid=pid))
        assert log.is_handshake(pid) is (era == "handshake")


@pytest.mark.parametrize("place", ["file", "server"])
async def test_a_changed_connect_timeout_applies_to_the_next_default_connection(
    tmp_path: Path, person: Person, place: str
) -> None:
    log, gate = ServerLog(tmp_path), tmp_path / "gate"
    gate.touch()
    async with edited_file(person, log, log.entry("notes", gate=str(gate))) as running:
        gate.unlink()
        await running.edit_in(place, connect_timeout=0.3)
        await running.restart_server()
        await asyncio.to_thread(running.gateway.wait_for, "timed out after 300ms")


@pytest.mark.parametrize("place", ["file", "server"])
async def test_changed_idle_times_apply_to_the_next_connection(
    tmp_path: Path, person: Person, place: str
) -> None:
    log = ServerLog(tmp_path)
    # The last connection of a server that is not lazy would stay open.
    async with edited_file(person, log, {**log.entry("notes"), "lazy": True}) as running:
        await running.edit_in(place, idle_close=0.3, idle_close_used=0.3)
        async with connect(running.url, "notes", "elicitation") as client:
            pid = await client.pid()
        await until(lambda: pid not in log.running())


@pytest.mark.parametrize("place", ["file", "server"])
async def test_changed_idle_times_apply_to_open_connections(
    tmp_path: Path, person: Person, place: str
) -> None:
    log = ServerLog(tmp_path)
    async with edited_file(person, log) as running:
        async with connect(running.url, "notes", "elicitation") as client:
            pid = await client.pid()
        await running.edit_in(place, idle_close=0.3, idle_close_used=0.3)
        await until(lambda: pid not in log.running())


@pytest.mark.parametrize("place", ["file", "server"])
async def test_a_changed_interval_of_pings_applies_to_an_open_connection(
    tmp_path: Path, person: Person, place: str
) -> None:
    log = ServerLog(tmp_path)
    async with edited_file(person, log, log.entry("notes", eras=["handshake"])) as running:
        [pid] = log.started("notes")
        await running.edit_in(place, health_interval=0.1)
        await until(lambda: log.received("ping", pid=pid))


@pytest.mark.parametrize("place", ["file", "server"])
async def test_changed_capabilities_are_declared_on_the_next_default_connection(
    tmp_path: Path, person: Person, place: str
) -> None:
    log = ServerLog(tmp_path)
    async with edited_file(person, log) as running:
        await running.edit_in(place, share="all", capabilities=["elicitation"])
        pid = await running.restart_server()
        await until(lambda: log.received("initialize", pid=pid))
        [initialize] = log.received("initialize", pid=pid)
        assert "elicitation" in initialize.params["capabilities"]


# fairlead up


def up_entry(entry: dict[str, Any], idle_close: float) -> dict[str, Any]:
    """Return an entry of a host's file with settings as in a gateway's file."""
    return {**entry, "idle_close": idle_close, "idle_close_used": idle_close}


async def test_up_stops_an_unused_stdio_server_and_keeps_its_lists(
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
