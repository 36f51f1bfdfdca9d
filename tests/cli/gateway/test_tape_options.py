"""Tests of the gateway option `--record`, and of `fairlead session`."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from fairlead.protocol.revisions import NEWEST_HANDSHAKE
from fairlead.recording.tape import TapeEntry, TapeReader, decode_entry
from tests.support.cli_process import LIMIT
from tests.support.cli_user import Person, person
from tests.support.running_gateway import Running, connected, get, running

pytestmark = pytest.mark.slow  # runs in `make test-all`

__all__ = ["person"]

SECRET = "sk-live-4f9a8b7c6d5e"
HANDSHAKE = NEWEST_HANDSHAKE.value


def gateway_file(person: Person, **settings: Any) -> str:
    entry = {**person.server(), "env": {"NOTES_TOKEN": "${THE_TOKEN}"}}
    file = person.project / "gateway.json"
    servers = {"notes": entry, "more": person.server(name="more.py")}
    file.write_text(json.dumps({"listen": "127.0.0.1:0", "servers": servers, **settings}))
    return str(file)


async def visit(url: str) -> None:
    """Call tools with one client of each era; one server prints a secret."""
    async with connected(url) as one, connected(url, HANDSHAKE) as two:
        assert (await one.call("notes_add", {"a": 1, "b": 2})).text == "3"
        assert (await two.call("more_add", {"a": 2, "b": 2})).text == "4"
        assert (await two.call("notes_variable", {"name": "NOTES_TOKEN"})).text == SECRET


def check(tape: Path) -> list[TapeEntry]:
    reader = TapeReader(tape)
    assert (reader.info.status, reader.info.redacted) == ("complete", True)
    assert SECRET.encode() not in tape.with_name(f"{tape.name}.tape.jsonl").read_bytes()
    entries = list(reader)
    calls = [e for e in entries if decode_entry(e).get("method") == "tools/call"]
    assert [(e.server, decode_entry(e)["params"]["name"]) for e in calls] == [
        ("notes", "notes_add"),
        ("more", "more_add"),
        ("notes", "notes_variable"),
    ]
    assert calls[0].session != calls[1].session == calls[2].session
    return entries


def ready(it: Running) -> str:
    """Wait until all servers are listed, and return the URL."""
    limit = time.monotonic() + LIMIT
    while get(it.url, "/ready")[0] != 200:
        assert time.monotonic() < limit, it.said
    return it.url


def record(person: Person, *args: str) -> Running:
    with running(person, *args, env={"THE_TOKEN": SECRET}) as it:
        asyncio.run(visit(ready(it)))
        assert it.ends() == 0
        rest = it.process.stdout.read() if it.process.stdout else b""
        it.said += rest.decode()
        return it


@pytest.mark.covers("GTW-10", "CMD-04")
def test_a_gateway_records_the_messages_of_all_clients(person: Person) -> None:
    file = gateway_file(person)
    it = record(person, "gateway", file, "--record", "monday", "--tag", "week")
    tapes = person.ours / "data" / "tapes"
    assert f"messages on {tapes / 'monday.tape.jsonl'}" in it.said
    entries = check(tapes / "monday")
    assert f"recorded: {len(entries)} messages" in it.said
    assert TapeReader(tapes / "monday").info.tags == ["week"]
    refused = person.runs("gateway", file, "--record", "monday", env={"THE_TOKEN": SECRET})
    assert refused.code == 1
    assert "tape 'monday' already exists" in refused.err
    assert "--overwrite" in refused.err
    wrong = person.runs("gateway", "--record", file)
    assert wrong.code == 2
    assert "put FILE before --record" in wrong.err


@pytest.mark.covers("GTW-10")
def test_the_record_setting_in_a_gateway_file_records_each_run_on_a_new_tape(
    person: Person,
) -> None:
    file = gateway_file(person, record="harbour")
    record(person, "gateway", file)
    record(person, "gateway", file)  # a new tape each time
    tapes = sorted((person.ours / "data" / "tapes").glob("harbour-*.tape.jsonl"))
    assert len(tapes) == 2
    for tape in tapes:
        check(tape.with_name(tape.name.removesuffix(".tape.jsonl")))
    wrong = person.runs("gateway", gateway_file(person, record=3), env={"THE_TOKEN": SECRET})
    assert wrong.code == 2
    assert "record" in wrong.err


@pytest.mark.covers("GTW-10")
def test_up_with_the_record_option_creates_a_tape_named_up(person: Person) -> None:
    entry = {**person.server(), "env": {"NOTES_TOKEN": SECRET}}
    person.has("ours/mcp.json", {"notes": entry, "more": person.server(name="more.py")})
    record(person, "up", "--port", "0", "--record")
    [tape] = (person.ours / "data" / "tapes").glob("up-*.tape.jsonl")
    check(tape.with_name(tape.name.removesuffix(".tape.jsonl")))


GROWS = """
    @server.tool()
    def grow() -> str:
        server.tool(name="late")(lambda: "late")
        return "grown"
"""
CHANGED = "notifications/tools/list_changed"


@pytest.mark.covers("GTW-10")
@pytest.mark.parametrize("version", ["auto", HANDSHAKE])
def test_notifications_from_the_gateway_itself_are_recorded(person: Person, version: str) -> None:
    file = person.project / "gateway.json"
    servers = {"notes": person.server(GROWS), "more": person.server(name="more.py")}
    file.write_text(json.dumps({"listen": "127.0.0.1:0", "servers": servers}))

    async def scene(url: str) -> None:
        heard: asyncio.Queue[str] = asyncio.Queue()

        async def hear() -> None:
            while await heard.get() != CHANGED:
                pass

        async with (
            connected(url, version, on_notification=lambda what, _: heard.put_nowait(what)) as one,
            one.changes("tools"),
        ):
            await one.list_tools()
            await one.call("notes_grow")
            await hear()
            file.write_text(
                json.dumps({"listen": "127.0.0.1:0", "servers": {"notes": servers["notes"]}})
            )
            await hear()  # a server was disconnected

    with running(person, "gateway", str(file), "--record", "news") as it:
        asyncio.run(scene(ready(it)))
        assert it.ends() == 0
    entries = list(TapeReader(person.ours / "data" / "tapes" / "news"))
    told = [e for e in entries if decode_entry(e).get("method") == CHANGED and not e.stopped]
    [listener] = {e.session for e in entries if decode_entry(e).get("method") in LISTENS[version]}
    assert [(e.dir.value, e.session, e.server) for e in told] == [
        ("server_to_client", listener, None)
    ] * 2


LISTENS = {"auto": ("subscriptions/listen",), HANDSHAKE: ("initialize",)}


@pytest.mark.covers("CMD-04")
def test_sessions_can_be_listed_and_ended_with_commands(person: Person) -> None:
    file = gateway_file(person, admin_token="open-sesame")

    async def scene(url: str) -> None:
        base = url.removesuffix("/mcp")

        async def session(*args: str, token: str = "open-sesame") -> tuple[int, str, str]:
            return await asyncio.to_thread(
                person.runs,
                *("session", *args, "--url", base),
                env={"FAIRLEAD_ADMIN_TOKEN": token},
            )

        assert "no sessions; stateless clients do not have sessions" in (await session("list"))[2]
        async with connected(url, HANDSHAKE) as one, connected(url, HANDSHAKE) as two:
            await one.call("notes_add", {"a": 1, "b": 2})
            _, said, _ = await session("list", "--json")
            first, second = json.loads(said)
            assert first["protocol_version"] == HANDSHAKE
            code, said, err = await session("end", str(first["id"]))
            assert (code, said, "ended" in err) == (0, "", True)
            code, said, _ = await session("list")
            assert [line.split()[0] for line in said.splitlines()] == [f"#{second['id']}"]
            assert (await two.call("notes_add", {"a": 1, "b": 3})).text == "4"
            code, _, err = await session("end", str(first["id"]))
            assert (code, f"unknown session {first['id']}" in err) == (1, True)
            assert (await session("end"))[0] == 2
            code, _, err = await session("list", token="guess")
            assert (code, "--admin-token" in err) == (1, True)

    with running(person, "gateway", file, env={"THE_TOKEN": SECRET}) as it:
        asyncio.run(scene(ready(it)))
        assert it.ends() == 0
